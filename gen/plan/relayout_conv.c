// Orders of the tensors of library convolutions. A call takes data, filter, result and addend in
// one order, so no single value can decide it: all values that calls tie together change from
// declared order (NCHW) to channels last (NHWC) at once, and the values between them follow.

enum { EIN__CALL_VALUES = 4 };  // data, filter, result, and what is added

// A value of a call, and its place with channels last.
typedef struct ein__call_value {
    ein__val v;
    ein__seat last;
} ein__call_value;

// A convolution call that may have either order.
typedef struct ein__conv_call {
    int n, tie;  // calls with values in common have the same number
    bool loops;  // it is a kernel's loops over each channel's window
    ein__call_value value[EIN__CALL_VALUES];
} ein__conv_call;

typedef struct ein__flipper {
    ein__relayout *r;
    ein__conv_call *call;  // stb_ds arrays
    int *tie;              // by value
} ein__flipper;

// The value that `read` reads, its dimensions as their iterators stand in slot[0..n-1], outermost
// first.
static ein__call_value ein__in_slot_order(ein_ctx *ctx, const ein__expr *read, const int *slot,
                                          int n) {
    ein__call_value to = {.v = {read->val}, .last = {.wanted = true}};
    int64_t key[EIN__MAX_RANK];
    for (uint32_t k = 0; k < read->nix; k++) {
        uint32_t used = ein__ix_uses(ctx, read->ix[k]);
        key[k] = EIN__MAX_ITERS + 1;
        for (int i = n; i-- > 0;)
            if (used >> slot[i] & 1) key[k] = EIN__MAX_ITERS - i;
    }
    ein__sorted_order(key, (int)read->nix, to.last.order);
    return to;
}

// The read of what the call adds in map `m` beside the product; NULL: nothing.
static const ein__expr *ein__call_addend(ein_ctx *ctx, ein__val m, ein__val product) {
    ein__epilogue e;
    const ein__expr *found = NULL;
    if (m.i == product.i || !ein__product_epilogue(ctx, product, m, &e) || !e.z.i) return NULL;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, m)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        if (ein__ex_get(ctx, reads[i])->val == e.z.i) found = ein__ex_get(ctx, reads[i]);
    return found;
}

// The call that stores `v`, or the kernel that computes what a call could, if all that it reads and
// stores may change places. Filters of kernels are laid out for them when they are loaded.
static bool ein__conv_call_of(const ein__relayout *r, ein__val v, ein__conv_call *c) {
    ein_ctx *ctx = r->z->ctx;
    ein__val product = r->z->product[v.i];
    bool loops = r->z->sel->kind[v.i] == EIN__K_REDUCE;
    bool own = loops || r->z->sel->kind[v.i] == EIN__K_PRODUCT;
    int64_t out[EIN__MAX_RANK];
    int slot[EIN__MAX_ITERS], result[EIN__MAX_ITERS], n = 0;
    ein__conv_form f;
    *c = (ein__conv_call){.loops = loops};
    if (!ein__is_stored(r->z, v) || r->z->sel->kind[v.i] == EIN__K_GEMM) return false;
    if (own) product = ein__own_product(r, v);
    if (!product.i) return false;
    const ein__scope *s = ein__scope_of(ctx, product);
    ein__dense_result(s, out);
    if (!ein__find_conv(ctx, s, out, &f) || !ein__conv_sizes(&f)) return false;
    f.c.nhwc = true;
    ein__call_value data = {.v = f.c.x, .last = {.wanted = true}};
    ein__conv_data_order(&f, data.last.order);
    c->value[c->n++] = data;
    int filter = ein__conv_filter_order(&f, slot);
    if (!own) c->value[c->n++] = ein__in_slot_order(ctx, f.w, slot, filter);
    if (loops && ein__is_free(r, (ein__val){f.w->val})) {
        // Threads lie along the channels: the filter's come last as well.
        int all = 0;
        for (uint32_t t = s->nt; t < s->nt + s->ns; t++) slot[all++] = (int)t;
        for (uint32_t t = 0; t < s->nt; t++) slot[all++] = (int)t;
        c->value[c->n++] = ein__in_slot_order(ctx, f.w, slot, all);
    }
    int count = ein__conv_result_order(&f, slot);
    ein__call_value stored = {.v = v, .last = {.wanted = true}};
    for (uint32_t t = 0; t < s->nt; t++) {
        bool known = false;
        for (int i = 0; i < count; i++) known |= slot[i] == (int)t;
        if (!known) result[n++] = (int)t;
    }
    memcpy(result + n, slot, (size_t)count * sizeof *slot);
    memcpy(stored.last.order, result, s->nt * sizeof *result);
    c->value[c->n++] = stored;
    const ein__expr *z = ein__call_addend(ctx, v, product);
    if (z) c->value[c->n++] = ein__in_slot_order(ctx, z, slot, count);
    for (int k = 0; k < c->n; k++)
        if (!ein__is_free(r, c->value[k].v)) return false;
    return true;
}

static void ein__find_conv_calls(ein__flipper *z) {
    ein__relayout *r = z->r;
    const ein__val *order = r->z->sel->order;
    for (ptrdiff_t i = 0; i < arrlen(r->z->ctx->value); i++) arrput(z->tie, (int)i);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        ein__conv_call c;
        if (!ein__conv_call_of(r, order[i], &c)) continue;
        for (int k = 1; k < c.n; k++)
            z->tie[ein__group_find(z->tie, (int)c.value[k].v.i)] =
                ein__group_find(z->tie, (int)c.value[0].v.i);
        arrput(z->call, c);
    }
    for (ptrdiff_t i = 0; i < arrlen(z->call); i++)
        z->call[i].tie = ein__group_find(z->tie, (int)z->call[i].value[0].v.i);
}

// Gives the values of a call channels last, or takes it away. Gives what the steps cost more.
static int64_t ein__flip_call(ein__flipper *z, const ein__conv_call *c, bool last,
                              ein__val **touched) {
    ein__relayout *r = z->r;
    int64_t delta = 0;
    for (int k = 0; k < c->n; k++) {
        const ein__call_value *p = &c->value[k];
        const ein__seat declared = {.ordered = false};
        if (r->z->choice[p->v.i].wanted == last) continue;
        delta += ein__change(r, p->v, last ? &p->last : &declared, touched);
    }
    return delta;
}

// The same for all calls with number `tie` (-1: for all).
static int64_t ein__flip_calls(ein__flipper *z, int tie, bool last, ein__val **touched) {
    int64_t delta = 0;
    for (ptrdiff_t i = 0; i < arrlen(z->call); i++)
        if (tie < 0 || z->call[i].tie == tie)
            delta += ein__flip_call(z, &z->call[i], last, touched);
    return delta;
}

static int64_t ein__steps_cost(const ein__relayout *r) {
    const ein__val *order = r->z->sel->order;
    int64_t ps = 0;
    for (ptrdiff_t i = 0; i < arrlen(order); i++) ps = ein__plus(ps, r->price[order[i].i].ps);
    return ps;
}

static void ein__sweep_layouts(ein__relayout *r) {
    const ein__val *order = r->z->sel->order;
    r->trials = 0;
    for (int sweep = 0; sweep < EIN__LAYOUT_SWEEPS; sweep++) {
        ptrdiff_t mark = arrlen(r->log);
        for (ptrdiff_t i = 0; i < arrlen(order); i++) ein__improve_value(r, order[i]);
        if (arrlen(r->log) == mark) break;
    }
}

// Lets the neighbours of what was flipped, the values `touched`, make the best of it; takes the
// flip back unless the steps then cost less than `before`.
static void ein__settle_flip(ein__relayout *r, ein__val *touched, int64_t before, ptrdiff_t mark) {
    for (ptrdiff_t k = 0; k < arrlen(touched); k++) ein__improve_value(r, touched[k]);
    arrfree(touched);
    if (ein__steps_cost(r) >= before) ein__undo(r, mark);
}

// Flips the calls of every tie in turn where that is cheaper, with what their neighbours make of
// it.
static void ein__flip_ties(ein__flipper *z) {
    ein__relayout *r = z->r;
    for (ptrdiff_t i = 0; i < arrlen(z->call); i++) {
        const ein__conv_call *c = &z->call[i];
        ptrdiff_t mark = arrlen(r->log);
        ein__val *touched = NULL;
        int64_t before = ein__steps_cost(r);
        bool first = true;
        for (ptrdiff_t k = 0; k < i; k++) first &= z->call[k].tie != c->tie;
        if (!first) continue;
        r->trials = 0;
        ein__flip_calls(z, c->tie, !r->z->choice[c->value[0].v.i].wanted, &touched);
        ein__settle_flip(r, touched, before, mark);
    }
}

// Flips kernels of windows one by one where that is cheaper: for the loops of one channel's window
// the best order is another one at some sizes, and copies on both sides may be none.
static void ein__flip_alone(ein__flipper *z) {
    ein__relayout *r = z->r;
    for (ptrdiff_t i = 0; i < arrlen(z->call); i++) {
        const ein__conv_call *c = &z->call[i];
        ptrdiff_t mark = arrlen(r->log);
        ein__val *touched = NULL;
        int64_t before = ein__steps_cost(r);
        if (!c->loops) continue;
        r->trials = 0;
        ein__flip_call(z, c, !r->z->choice[c->value[0].v.i].wanted, &touched);
        ein__settle_flip(r, touched, before, mark);
    }
}

// Copies and concatenations that chosen orders left behind: what is copied may as well lie where it
// is copied to, which is then a step less. Calls want their tensors dense; kernels of ours take
// what there is, as the price of their steps says.
static void ein__loosen_copies(ein__relayout *r) {
    ein_ctx *ctx = r->z->ctx;
    const ein__val *order = r->z->sel->order;
    static const ein__seat declared;
    for (ptrdiff_t i = arrlen(order); i-- > 0;) {
        ein__val v = order[i], *touched = NULL;
        ein__pieces pc = {.n = 0};
        ptrdiff_t mark = arrlen(r->log);
        int64_t delta = 0;
        if (!ein__is_stored(r->z, v) || r->z->view[v.i] || ctx->value[v.i].weight_only) continue;
        const ein__expr *read = ein__copy_of(ctx, v);
        if (read) pc = (ein__pieces){.n = 1, .read = {read}};
        else if (!ein__is_concat(ctx, v, &pc)) continue;
        for (int k = 0; k < pc.n; k++) {
            ein__val p = {pc.read[k]->val};
            const ein__seat *c = &r->z->choice[p.i];
            if (c->wanted || c->ordered) delta += ein__change(r, p, &declared, &touched);
        }
        arrfree(touched);
        if (delta >= 0) ein__undo(r, mark);
    }
}

static void ein__flip_parts(ein__flipper *z) {
    ein__flip_ties(z);
    ein__flip_alone(z);
    ein__loosen_copies(z->r);
}

// From all calls with channels last and from none, the cheaper.
static void ein__choose_conv_orders(ein__relayout *r) {
    ein__flipper z = {.r = r};
    ein__find_conv_calls(&z);
    if (arrlen(z.call)) {
        ptrdiff_t mark = arrlen(r->log);
        ein__val *touched = NULL;
        int64_t before = ein__steps_cost(r);
        ein__flip_calls(&z, -1, true, &touched);
        ein__sweep_layouts(r);
        ein__flip_parts(&z);
        arrfree(touched);
        if (ein__steps_cost(r) >= before) {
            ein__undo(r, mark);
            ein__flip_parts(&z);
        }
    }
    arrfree(z.call);
    arrfree(z.tie);
}

// Buffers that trials left behind go; the others keep their order.
static void ein__drop_buffers(ein_ctx *ctx, const ein__placer *z) {
    ein__buffer *all = ctx->plan.buffer;
    int *now = NULL, kept = 0;
    for (ptrdiff_t i = 0; i < arrlen(all); i++) arrput(now, all[i].index >= 0 ? 0 : -1);
    for (ptrdiff_t i = 0; i < arrlen(z->sel->order); i++) {
        int b = ctx->plan.layout[z->sel->order[i].i].buffer;
        if (b >= 0) now[b] = 0;
    }
    for (ptrdiff_t i = 0; i < arrlen(all); i++) {
        if (now[i] < 0) continue;
        all[kept] = all[i];
        now[i] = kept++;
    }
    arrsetlen(ctx->plan.buffer, kept);
    for (ptrdiff_t i = 0; i < arrlen(z->all); i++) {
        int *b = &ctx->plan.layout[z->all[i].i].buffer;
        if (*b >= 0) *b = now[*b];
    }
    arrfree(now);
}

// Changes the layouts of placed values while that makes the steps cheaper in sum.
EIN__FN void ein__choose_layouts(ein__placer *z, ein__price_step *price_step) {
    ein_ctx *ctx = z->ctx;
    const ein__val *order = z->sel->order;
    ein__relayout r = {.z = z, .price_step = price_step};
    arrsetlen(r.price, arrlen(ctx->value));
    bool open = false;
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        r.price[order[i].i] = ein__price_of(&r, order[i]);
        open |= r.price[order[i].i].open;
    }
    if (open || ctx->channels_last || ein__has_windows(z)) {
        ein__relayout_groups(&r);
        ein__sweep_layouts(&r);
        ein__loosen_copies(&r);
        if (ctx->channels_last) ein__choose_conv_orders(&r);
        ein__lay_filters(&r);
        ein__drop_buffers(ctx, z);
    }
    for (ptrdiff_t i = 0; r.of && i < arrlen(order); i++) arrfree(r.of[order[i].i]);
    arrfree(r.of);
    arrfree(r.group);
    arrfree(r.price);
    arrfree(r.log);
}
