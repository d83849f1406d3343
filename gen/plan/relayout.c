// The choice of layouts: a value whose storage is not prescribed may have its dimensions in any
// order in memory. Starting from declared order, with copies as views where possible, single values
// are given the order that their producer or a reader prefers, as long as all steps together become
// cheaper. The values are visited in the program's order, in a bounded number of sweeps.

enum { EIN__LAYOUT_SWEEPS = 3, EIN__LAYOUT_TRIALS = 1000 };

// What the step of a stored value costs under the layouts as they stand, and whether another layout
// of its operands or its result could make it cheaper.
typedef struct ein__price {
    int64_t ps;
    bool open;
} ein__price;
typedef ein__price ein__price_step(ein_ctx *ctx, const ein__selector *sel, ein__val v);

// A value as it was before a change.
typedef struct ein__before {
    ein__val v;
    bool view;
    ein__layout layout;
    ein__seat choice;
    ein__price price;
} ein__before;

typedef struct ein__relayout {
    ein__placer *z;
    ein__price_step *price_step;
    ein__before *log;
    ein__price *price;  // by value: of its step; 0 for a view
    int *group;         // by value: values whose places depend on each other have the same number
    ein__val **of;      // by group: its values, operands first
    int trials;
} ein__relayout;

// ------------------------------------------------------------------------------------ groups

static int ein__group_find(int *group, int i) {
    while (group[i] != i) i = group[i] = group[group[i]];
    return i;
}

// Copies and concatenations tie the places of values together. Inputs and weights tie nothing: they
// have their place.
static void ein__relayout_groups(ein__relayout *r) {
    ein_ctx *ctx = r->z->ctx;
    const ein__val *order = r->z->sel->order;
    ptrdiff_t n = arrlen(ctx->value);
    arrsetlen(r->group, n);
    arrsetlen(r->of, n);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        r->group[order[i].i] = (int)order[i].i;
        r->of[order[i].i] = NULL;
    }
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        ein__val v = order[i];
        ein__pieces pc = {.n = 0};
        if (!ein__is_stored(r->z, v)) continue;
        const ein__expr *read = ein__copy_of(ctx, v);
        if (read) pc = (ein__pieces){.n = 1, .read = {read}};
        else if (!ein__is_concat(ctx, v, &pc)) continue;
        for (int k = 0; k < pc.n; k++)
            if (ctx->value[pc.read[k]->val].kind == EIN__V_SCOPE)
                r->group[ein__group_find(r->group, (int)pc.read[k]->val)] =
                    ein__group_find(r->group, (int)v.i);
    }
    for (ptrdiff_t i = 0; i < arrlen(order); i++)
        arrput(r->of[ein__group_find(r->group, (int)order[i].i)], order[i]);
}

// ------------------------------------------------------------------------------------ changes

static ein__price ein__price_of(ein__relayout *r, ein__val v) {
    if (!ein__is_stored(r->z, v) || r->z->view[v.i]) return (ein__price){0, false};
    return r->price_step(r->z->ctx, r->z->sel, v);
}

static void ein__log_value(ein__relayout *r, ein__val v) {
    const ein__placer *z = r->z;
    ein__before b = {v, z->view[v.i], z->ctx->plan.layout[v.i], z->choice[v.i], r->price[v.i]};
    arrput(r->log, b);
}

static void ein__undo(ein__relayout *r, ptrdiff_t mark) {
    ein__placer *z = r->z;
    while (arrlen(r->log) > mark) {
        const ein__before b = arrpop(r->log);
        z->view[b.v.i] = b.view;
        z->ctx->plan.layout[b.v.i] = b.layout;
        z->choice[b.v.i] = b.choice;
        r->price[b.v.i] = b.price;
    }
}

static bool ein__same_place(ein_ctx *ctx, ein__val v, const ein__layout *a, const ein__layout *b) {
    const ein__shape *s = &ctx->value[v.i].shape;
    if (a->offset != b->offset) return false;
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] > 1 && a->stride[k] != b->stride[k]) return false;
    return true;
}

static void ein__note_step(ein__val **list, ein__val v) {
    for (ptrdiff_t i = 0; i < arrlen(*list); i++)
        if ((*list)[i].i == v.i) return;
    arrput(*list, v);
}

// Takes decision `c` for `v` and places its group anew. Gives what the steps cost more, and adds to
// `touched` those whose operands or results have moved.
static int64_t ein__change(ein__relayout *r, ein__val v, const ein__seat *c, ein__val **touched) {
    ein__placer *z = r->z;
    ein_ctx *ctx = z->ctx;
    const ein__val *list = r->of[ein__group_find(r->group, (int)v.i)];
    ptrdiff_t first = arrlen(r->log), n = arrlen(list);
    ein__val *moved = NULL;
    int64_t delta = 0;
    for (ptrdiff_t i = 0; i < n; i++) ein__log_value(r, list[i]);
    z->choice[v.i] = *c;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (!ein__is_stored(z, list[i])) continue;
        z->view[list[i].i] = false;
        if (!z->sel->root[list[i].i]) ctx->plan.layout[list[i].i].buffer = EIN__NO_BUFFER;
    }
    ein__place_values(z, list, n);
    for (ptrdiff_t i = 0; i < n; i++) {
        ein__val m = list[i];
        const ein__before b = r->log[first + i];
        if (b.view == z->view[m.i] && ein__same_place(ctx, m, &b.layout, &ctx->plan.layout[m.i]))
            continue;
        ein__note_step(&moved, m);
        for (ptrdiff_t k = 0; k < arrlen(z->reader[m.i]); k++)
            ein__note_step(&moved, z->reader[m.i][k]);
    }
    for (ptrdiff_t i = 0; i < arrlen(moved); i++) {
        ein__val t = moved[i];
        ein__log_value(r, t);
        r->price[t.i] = ein__price_of(r, t);
        delta += r->price[t.i].ps - arrlast(r->log).price.ps;
        ein__note_step(touched, t);
    }
    arrfree(moved);
    return delta;
}

static bool ein__is_free(const ein__relayout *r, ein__val v) {
    return ein__is_stored(r->z, v) && !r->z->sel->root[v.i] && r->z->ctx->value[v.i].shape.rank > 1;
}

// Whether `v` is a copy that a step of its own makes.
static bool ein__is_made_copy(const ein__relayout *r, ein__val v) {
    return ein__is_stored(r->z, v) && !r->z->view[v.i] && ein__copy_of(r->z->ctx, v);
}

static int ein__orders_of_result(ein__relayout *r, ein__val v, bool cheaper, ein__seat *list);

// Tries decision `c` for `v`. Where it makes a product dearer whose own result is free, an order of
// that result may make good for it, and a copy of what has moved may have become a window on it.
// Gives what is gained (0: nothing, and nothing has changed).
static int64_t ein__attempt_change(ein__relayout *r, ein__val v, const ein__seat *c, int depth) {
    ein__placer *z = r->z;
    ein__val *touched = NULL;
    ptrdiff_t mark = arrlen(r->log);
    if (r->trials++ >= EIN__LAYOUT_TRIALS) return 0;
    int64_t delta = ein__change(r, v, c, &touched);
    for (ptrdiff_t i = 0; i < arrlen(touched) && depth; i++) {
        ein__val t = touched[i];
        ein__seat list[EIN__GEMM_ORDERS] = {{.window = true}};
        int n = 0;
        if (t.i == v.i) continue;
        if (ein__is_made_copy(r, t) && ein__is_free(r, t)) n = 1;
        else if (z->product[t.i].i && z->sel->kind[t.i] == EIN__K_GEMM)
            n = ein__orders_of_result(r, t, true, list);
        for (int k = 0; k < n; k++) delta -= ein__attempt_change(r, t, &list[k], depth - 1);
    }
    arrfree(touched);
    if (delta < 0) return -delta;
    ein__undo(r, mark);
    return 0;
}

// ------------------------------------------------------------------------------------ candidates

// Price of step `w` if `v` had its dimensions in `order`; nothing else moves.
static int64_t ein__price_with(ein__relayout *r, ein__val w, ein__val v, const int *order) {
    ein_ctx *ctx = r->z->ctx;
    const ein__shape *s = &ctx->value[v.i].shape;
    const ein__layout old = ctx->plan.layout[v.i];
    ctx->plan.layout[v.i].offset = 0;
    ein__order_strides(s->d, s->rank, order, ctx->plan.layout[v.i].stride);
    int64_t ps = r->price_step(ctx, r->z->sel, w).ps;
    ctx->plan.layout[v.i] = old;
    return ps;
}

static ein__seat ein__seat_in(const int *order) {
    ein__seat c = {.ordered = true};
    memcpy(c.order, order, sizeof c.order);
    return c;
}

// Orders of `v` in which the GEMM that computes it is cheaper than now, or those in which it is one
// at all.
static int ein__orders_of_result(ein__relayout *r, ein__val v, bool cheaper, ein__seat *list) {
    int order[EIN__GEMM_ORDERS][EIN__MAX_RANK], n = 0;
    const ein__scope *s = ein__scope_of(r->z->ctx, r->z->product[v.i]);
    ein__factors p;
    if (!ein__is_free(r, v) || !ein__product_of(r->z->ctx, s, &p)) return 0;
    int count = ein__gemm_orders(s, &p, order);
    for (int k = 0; k < count; k++)
        if (!cheaper || ein__price_with(r, v, v, order[k]) < r->price[v.i].ps)
            list[n++] = ein__seat_in(order[k]);
    return n;
}

// Sorts dimensions by falling key; equal ones stay in declared order.
static void ein__sorted_order(const int64_t *key, int rank, int *order) {
    for (int i = 0; i < rank; i++) {
        int at = i;
        for (; at > 0 && key[order[at - 1]] < key[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

// Dimensions by falling stride, those of extent 1 where they are declared. False: that is declared
// order.
EIN__FN bool ein__stored_order(const ein__shape *s, const int64_t *stride, int *order) {
    int64_t key[EIN__MAX_RANK];
    int n = 0, moving[EIN__MAX_RANK], sorted[EIN__MAX_RANK];
    bool differs = false;
    for (int k = 0; k < s->rank; k++) {
        if (s->d[k] == 1) continue;
        key[n] = stride[k];
        moving[n++] = k;
    }
    ein__sorted_order(key, n, sorted);
    for (int k = 0, at = 0; k < s->rank; k++) {
        order[k] = s->d[k] == 1 ? k : moving[sorted[at++]];
        differs |= order[k] != k;
    }
    return differs;
}

static void ein__try_order(ein__relayout *r, ein__val v, const int *order) {
    ein__seat c = ein__seat_in(order);
    ein__attempt_change(r, v, &c, 1);
}

// The order of `v` that follows an operand of its kernel: its dimensions as far apart as the
// operand's addresses are.
static void ein__follow_operands(ein__relayout *r, ein__val v) {
    ein_ctx *ctx = r->z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        int64_t step[EIN__MAX_RANK];
        int order[EIN__MAX_RANK];
        bool gather = false;
        if (ein__elements(&ctx->value[e->val].shape) * 4 < ein__elements(&ctx->value[v.i].shape))
            continue;
        for (uint32_t t = 0; t < s->nt; t++) {
            step[t] = ein__read_step(ctx, e, t);
            gather |= step[t] < 0;
            if (s->n[t] == 1) step[t] = INT64_MAX;
        }
        ein__sorted_order(step, (int)s->nt, order);
        if (!gather && ein__price_with(r, v, v, order) < r->price[v.i].ps)
            ein__try_order(r, v, order);
    }
}

// How far out of `v` each dimension should lie for a reader: by the outermost place of the
// iterators it is read at.
static void ein__order_for_read(ein__relayout *r, ein__val v, const ein__expr *e,
                                const int64_t *place, ein__val w) {
    ein_ctx *ctx = r->z->ctx;
    int64_t key[EIN__MAX_RANK];
    int order[EIN__MAX_RANK];
    for (uint32_t k = 0; k < e->nix; k++) {
        uint32_t used = ein__ix_uses(ctx, e->ix[k]);
        key[k] = used ? 0 : INT64_MAX;
        for (uint32_t t = 0; t < EIN__MAX_ITERS; t++)
            if (used >> t & 1 && place[t] > key[k]) key[k] = place[t];
    }
    ein__sorted_order(key, (int)e->nix, order);
    if (ein__price_with(r, w, v, order) < r->price[w.i].ps) ein__try_order(r, v, order);
}

// A GEMM reads `v`: its rows, terms and batch, each in the order that the result or the other
// operand has them.
static void ein__follow_gemm(ein__relayout *r, ein__val v, ein__val w, const ein__expr *e,
                             const ein__expr *other) {
    static const int turn[4][3] = {{2, 1, 0}, {2, 0, 1}, {1, 2, 0}, {1, 0, 2}};
    ein_ctx *ctx = r->z->ctx;
    const ein__scope *s = ein__scope_of(ctx, r->z->product[w.i]);
    int64_t stride[EIN__MAX_RANK], place[EIN__MAX_ITERS] = {0}, limit = EIN__MAX_ELEMENTS;
    ein__strides_of(ctx, w, stride);
    for (int k = 0; k < 4; k++) {
        for (uint32_t t = 0; t < s->nt + s->ns; t++) {
            int64_t step = ein__read_step(ctx, other, t);
            int group = t >= s->nt ? 0 : step ? 2 : 1;  // terms, rows, batch
            if (t < s->nt) step = stride[t];
            place[t] = turn[k][group] * limit + (step < limit ? step : limit - 1);
        }
        ein__order_for_read(r, v, e, place, w);
    }
}

// A kernel that multiplies reads `v` as factor `e`: lines that it has alone innermost, those of
// both factors outermost, terms between, so that few lines of the other one are multiplied with
// many neighbours (skinny.c).
static void ein__follow_lines(ein__relayout *r, ein__val v, ein__val w, const ein__scope *s,
                              const ein__expr *e) {
    ein_ctx *ctx = r->z->ctx;
    int64_t stride[EIN__MAX_RANK], place[EIN__MAX_ITERS] = {0};
    const ein__expr *read[2];
    double alpha;
    uint32_t rank = (uint32_t)ctx->value[w.i].shape.rank;
    if (!ein__two_factors(ctx, s, read, &alpha)) return;
    const ein__expr *other = read[read[0]->val == e->val];
    ein__strides_of(ctx, w, stride);
    for (uint32_t t = 0; t < s->nt + s->ns; t++) {
        bool both = t < s->nt && ein__read_slots(ctx, other) >> t & 1;
        place[t] = t < s->nt && t < rank ? stride[t] : EIN__MAX_ELEMENTS;
        if (both) place[t] = ein__plus(place[t], 2 * EIN__MAX_ELEMENTS);
    }
    ein__order_for_read(r, v, e, place, w);
}

// A kernel reads `v`: as its result lies in memory, with the terms of a sum outermost or innermost.
static void ein__follow_kernel(ein__relayout *r, ein__val v, ein__val w, const ein__scope *s,
                               const ein__expr *e) {
    ein_ctx *ctx = r->z->ctx;
    int64_t stride[EIN__MAX_RANK], place[EIN__MAX_ITERS] = {0};
    uint32_t rank = (uint32_t)ctx->value[w.i].shape.rank;
    ein__strides_of(ctx, w, stride);
    for (int inner = 0; inner < (s->ns ? 2 : 1); inner++) {
        for (uint32_t t = 0; t < s->nt + s->ns; t++)
            place[t] = t < s->nt || (t < rank && !inner) ? stride[t < rank ? t : 0]
                       : inner                           ? 0
                                                         : EIN__MAX_ELEMENTS;
        ein__order_for_read(r, v, e, place, w);
    }
    if (s->ns) ein__follow_lines(r, v, w, s, e);
}

// The orders of `v` that would suit reader `w`.
static void ein__follow_reader(ein__relayout *r, ein__val v, ein__val w) {
    ein_ctx *ctx = r->z->ctx;
    ein__val product = r->z->product[w.i];
    if (product.i && r->z->sel->kind[w.i] != EIN__K_GEMM) {
        int declared[EIN__MAX_RANK];
        for (int k = 0; k < EIN__MAX_RANK; k++) declared[k] = k;
        if (ein__price_with(r, w, v, declared) < r->price[w.i].ps) ein__try_order(r, v, declared);
        return;
    }
    const ein__expr *read[2];
    double alpha;
    if (product.i && ein__two_factors(ctx, ein__scope_of(ctx, product), read, &alpha)) {
        for (int k = 0; k < 2; k++)
            if (read[k]->val == v.i) ein__follow_gemm(r, v, w, read[k], read[1 - k]);
        return;
    }
    const ein__selector *sel = r->z->sel;
    for (ein__val of = sel->first[w.i]; of.i; of = sel->next[of.i]) {
        const ein__scope *s = ein__scope_of(ctx, of);
        const ein__ex *reads = s ? ein__ex_reads(ctx, s->body) : NULL;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            if (ein__ex_get(ctx, reads[k])->val == v.i)
                ein__follow_kernel(r, v, w, s, ein__ex_get(ctx, reads[k]));
    }
}

static void ein__improve_value(ein__relayout *r, ein__val v) {
    ein__placer *z = r->z;
    ein_ctx *ctx = z->ctx;
    bool open = r->price[v.i].open, copied = false;
    if (!ein__is_free(r, v)) return;
    if (ein__is_made_copy(r, v)) {
        ein__seat c = {.window = true};
        ein__attempt_change(r, v, &c, 1);
    }
    for (ptrdiff_t i = 0; i < arrlen(z->reader[v.i]); i++)
        copied |= ein__is_made_copy(r, z->reader[v.i][i]);
    if ((open || copied) && z->product[v.i].i && z->sel->kind[v.i] == EIN__K_GEMM) {
        ein__seat list[EIN__GEMM_ORDERS];
        int n = ein__orders_of_result(r, v, !copied, list);
        for (int k = 0; k < n; k++) ein__attempt_change(r, v, &list[k], copied ? 2 : 1);
    } else if (open && !z->product[v.i].i && ein__is_map(ctx, v)) {
        ein__follow_operands(r, v);
    }
    for (ptrdiff_t i = 0; i < arrlen(z->reader[v.i]); i++) {
        ein__val w = z->reader[v.i][i];
        if (r->price[w.i].open) ein__follow_reader(r, v, w);
    }
}
