// Where every value is stored: buffers, and an affine address map for each value. Copies that only
// rename addresses (reshape, slice, split, concatenation, un-split digits) become views and cost
// nothing.

enum { EIN__NO_BUFFER = -1 };

// The slot-wise strides of a copy's source when the copy has layout `l`: the source is written
// straight to where the copy lives. False when some element of the source has no place there, or
// two.
static bool ein__inverse_view(ein_ctx *ctx, ein__val copy, const ein__expr *read,
                              const ein__layout *l, ein__layout *source) {
    const ein__scope *s = ein__scope_of(ctx, copy);
    const ein__shape *p = &ctx->value[read->val].shape;
    ein__ix map[EIN__MAX_ITERS];
    ein__factor f;
    for (int k = 0; k < p->rank; k++)
        if (p->d[k] > 1 && !ein__ix_uses(ctx, read->ix[k])) return false;
    if (!ein__invert_read(ctx, read, s, p->d, map)) return false;
    ein__ex back = ein__ex_read(ctx, copy, 0, map, (int)s->nt);
    if (!back.i || !ein__address(ctx, ein__ex_get(ctx, back), l->stride, &f)) return false;
    *source = *l;
    for (int k = 0; k < p->rank; k++) source->stride[k] = f.coef[k];
    return true;
}

// The general case: the source is dense in an order that the copy reads linearly (a reshape).
static bool ein__inverse_reshape(ein_ctx *ctx, ein__val copy, const ein__expr *read,
                                 const ein__layout *l, ein__layout *source) {
    const ein__shape *p = &ctx->value[read->val].shape, *c = &ctx->value[copy.i].shape;
    int64_t dense[EIN__MAX_RANK], mine[EIN__MAX_RANK];
    ein__factor f;
    ein__dense_strides(p, dense);
    ein__dense_strides(c, mine);
    if (ein__elements(p) != ein__elements(c) || !ein__address(ctx, read, dense, &f) || f.offset)
        return false;
    for (int k = 0; k < c->rank; k++)
        if (c->d[k] > 1 && (f.coef[k] != mine[k] || l->stride[k] != mine[k])) return false;
    *source = *l;
    memcpy(source->stride, dense, sizeof dense);
    return true;
}

// The layout of a copy of something that has a layout already: a strided window on it.
static bool ein__forward_view(ein_ctx *ctx, ein__val copy, const ein__expr *read,
                              const ein__layout *source, ein__layout *l) {
    ein__factor f;
    const ein__scope *s = ein__scope_of(ctx, copy);
    if (!ein__address(ctx, read, source->stride, &f)) return false;
    *l = *source;
    l->offset += f.offset;
    for (uint32_t t = 0; t < s->nt; t++) {
        l->stride[t] = f.coef[t];
        if (f.coef[t] < 0) return false;
    }
    return true;
}

// Whether a value with shape `s` is dense with strides `have` as it is with `want`.
static bool ein__same_strides(const ein__shape *s, const int64_t *have, const int64_t *want) {
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] > 1 && have[k] != want[k]) return false;
    return true;
}

static bool ein__is_dense(const ein__shape *s, const ein__layout *l) {
    int64_t want[EIN__MAX_RANK];
    ein__dense_strides(s, want);
    return ein__same_strides(s, l->stride, want);
}

// ------------------------------------------------------------------------------------ placement

// What was decided about a value's place; by default copies take or hand on a place where they can,
// and everything else is dense in declared order.
typedef struct ein__seat {
    bool ordered;  // it has its own place, its dimensions in `order`
    bool window;   // a copy: a window on its source although a library call reads it
    bool wanted;   // dense with its dimensions in `order`, in whatever place
    int order[EIN__MAX_RANK];
} ein__seat;

typedef struct ein__placer {
    ein_ctx *ctx;
    const ein__selector *sel;
    ein__val *all;  // values that have a place; stb_ds array
    // By value, those in `all`; stb_ds arrays.
    bool *view;         // it has no step of its own
    bool *run;          // no input is needed, but what every run computes: an output
    ein__val *product;  // the contraction whose library call stores it; none: a kernel does
    ein__val **reader;  // values whose steps read it
    ein__seat *choice;
} ein__placer;

static int ein__new_buffer(ein_ctx *ctx, ein__bkind kind, ein__val v, int index) {
    ein__buffer b = {.kind = kind,
                     .name = ctx->value[v.i].name,
                     .index = index,
                     .first = -1,
                     .bytes = ein__bytes_of(ctx, v),
                     .dtype = ctx->value[v.i].dtype};
    arrput(ctx->plan.buffer, b);
    return (int)arrlen(ctx->plan.buffer) - 1;
}

static void ein__place_dense(ein_ctx *ctx, ein__val v, ein__bkind kind, int index) {
    ein__layout *l = &ctx->plan.layout[v.i];
    *l = (ein__layout){.buffer = ein__new_buffer(ctx, kind, v, index)};
    ein__dense_strides(&ctx->value[v.i].shape, l->stride);
}

// A place of its own for a value that the program computes.
static void ein__place_own(ein__placer *z, ein__val v) {
    const ein__value *p = &z->ctx->value[v.i];
    const ein__seat *c = &z->choice[v.i];
    bool load = p->weight_only && !z->run[v.i];
    ein__place_dense(z->ctx, v, load ? EIN__B_CONST : EIN__B_ARENA, -1);
    if (c->ordered || c->wanted)
        ein__order_strides(p->shape.d, p->shape.rank, c->order, z->ctx->plan.layout[v.i].stride);
}

// Whether layout `l` is as dense as calls that have `v` for an operand want it: in declared order
// or in the one decided on.
static bool ein__is_packed(const ein__placer *z, ein__val v, const ein__layout *l) {
    const ein__shape *s = &z->ctx->value[v.i].shape;
    int64_t want[EIN__MAX_RANK];
    if (!z->choice[v.i].wanted) return ein__is_dense(s, l);
    ein__order_strides(s->d, s->rank, z->choice[v.i].order, want);
    return ein__same_strides(s, l->stride, want);
}

static bool ein__placed(const ein_ctx *ctx, ein__val v) {
    return ctx->plan.layout[v.i].buffer != EIN__NO_BUFFER;
}

// Whether the step that computes `p` can store it with layout `l`.
static bool ein__can_store(const ein__placer *z, ein__val p, const ein__layout *l) {
    ein_ctx *ctx = z->ctx;
    const ein__value *v = &ctx->value[p.i];
    if (v->kind != EIN__V_SCOPE || ein__placed(ctx, p) || z->sel->root[p.i]) return false;
    if (z->sel->home[p.i].i != p.i) return false;
    bool load = v->weight_only && !z->run[p.i];
    if (load != (ctx->plan.buffer[l->buffer].kind == EIN__B_CONST)) return false;
    ein__val product = z->product[p.i];
    if (z->choice[p.i].wanted && !ein__is_packed(z, p, l)) return false;
    if (!product.i) return true;
    if (z->sel->kind[p.i] != EIN__K_GEMM)
        return ein__is_packed(z, p, l) && l->offset * ein__dtype_size(v->dtype) % 16 == 0;
    ein__gemm g;
    ein__epilogue e;
    const ein__scope *s = ein__scope_of(ctx, product);
    if (!ein__match_gemm(ctx, s, l->stride, &g)) return false;
    return product.i == p.i ||
           (ein__product_epilogue(ctx, product, p, &e) && ein__gemm_takes(s, l->stride, &e, &g));
}

static void ein__place_sources(ein__placer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__layout l = ctx->plan.layout[v.i];
    const ein__expr *read = ein__copy_of(ctx, v);
    ein__layout source;
    if (z->sel->home[v.i].i != v.i) return;
    if (read && ctx->value[read->val].dtype == ctx->value[v.i].dtype) {
        ein__val p = {read->val};
        if ((ein__inverse_view(ctx, v, read, &l, &source) ||
             ein__inverse_reshape(ctx, v, read, &l, &source)) &&
            ein__can_store(z, p, &source)) {
            ctx->plan.layout[p.i] = source;
            z->view[v.i] = true;
        }
        return;
    }
    ein__pieces pc;
    if (!ein__is_concat(ctx, v, &pc)) return;
    ein__layout part[EIN__MAX_ARGS];
    for (int i = 0; i < pc.n; i++) {
        part[i] = l;
        part[i].offset += pc.at[i] * l.stride[pc.axis];
        for (int k = 0; k < (int)pc.read[i]->nix; k++)
            part[i].stride[k] = pc.slot[i][k] < 0 ? 0 : pc.scale[i][k] * l.stride[pc.slot[i][k]];
        if (ctx->value[pc.read[i]->val].dtype != ctx->value[v.i].dtype) return;
        if (!ein__can_store(z, (ein__val){pc.read[i]->val}, &part[i])) return;
    }
    for (int i = 0; i < pc.n; i++) ctx->plan.layout[pc.read[i]->val] = part[i];
    z->view[v.i] = true;
}

// A library call that reads `v` wants it dense; a window is not, unless that was decided.
static bool ein__readers_accept(const ein__placer *z, ein__val v, const ein__layout *l) {
    if (z->choice[v.i].window || ein__is_packed(z, v, l)) return true;
    if (z->choice[v.i].wanted) return false;
    for (ptrdiff_t i = 0; i < arrlen(z->reader[v.i]); i++) {
        ein__val r = z->reader[v.i][i];
        if (z->product[r.i].i) return false;
        // What is known at load was re-laid on purpose.
        if (z->sel->kind[r.i] == EIN__K_PRODUCT && z->ctx->value[v.i].weight_only) return false;
    }
    return true;
}

static void ein__place_forward(ein__placer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read = ein__copy_of(ctx, v);
    ein__layout l;
    if (!read || ein__placed(ctx, v) || z->sel->root[v.i] || z->sel->home[v.i].i != v.i) return;
    ein__val p = {read->val};
    if (!ein__placed(ctx, p) || ctx->value[p.i].dtype != ctx->value[v.i].dtype) return;
    if (ein__elements(&ctx->value[v.i].shape) > ein__elements(&ctx->value[p.i].shape)) return;
    if (!ein__forward_view(ctx, v, read, &ctx->plan.layout[p.i], &l)) return;
    if (!ein__readers_accept(z, v, &l)) return;
    ctx->plan.layout[v.i] = l;
    z->view[v.i] = true;
}

// Whether `v` is computed by a step of its own, or is a view.
static bool ein__is_stored(const ein__placer *z, ein__val v) {
    return z->ctx->value[v.i].kind == EIN__V_SCOPE && z->sel->home[v.i].i == v.i;
}

// Places for the stored values of `list` (operands first) that have none yet.
static void ein__place_values(ein__placer *z, const ein__val *list, ptrdiff_t n) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < n; i++)
        if (z->choice[list[i].i].ordered) ein__place_own(z, list[i]);
    // From the outputs back: copies hand their place to what they copy.
    for (ptrdiff_t i = n; i-- > 0;) {
        ein__val v = list[i];
        ein__pieces pc;
        if (!ein__is_stored(z, v) || z->choice[v.i].window) continue;
        bool fresh = !ein__placed(ctx, v);
        if (fresh && !ein__copy_of(ctx, v) && !ein__is_concat(ctx, v, &pc)) continue;
        if (fresh) ein__place_own(z, v);
        ein__place_sources(z, v);
        if (fresh && !z->view[v.i]) {
            // Nobody writes there for it: it may still become a window on its source.
            (void)arrpop(ctx->plan.buffer);
            ctx->plan.layout[v.i].buffer = EIN__NO_BUFFER;
        }
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        if (!ein__is_stored(z, list[i])) continue;
        ein__place_forward(z, list[i]);
        if (!ein__placed(ctx, list[i])) ein__place_own(z, list[i]);
    }
}

static void ein__placer_index(ein__placer *z) {
    ein_ctx *ctx = z->ctx;
    const ein__selector *sel = z->sel;
    for (ptrdiff_t i = 0; i < arrlen(sel->order); i++) {
        ein__val v = sel->order[i], home = sel->home[v.i];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (!s) continue;
        ein__kind k = sel->kind[home.i];
        bool library = k == EIN__K_CONV || k == EIN__K_CONV_DATA || k == EIN__K_GEMM;
        if (library && !z->product[home.i].i) z->product[home.i] = v;
        const ein__ex *reads = ein__ex_reads(ctx, s->body);
        for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
            uint32_t p = ein__ex_get(ctx, reads[r])->val;
            z->run[v.i] |= z->run[p];
            bool known = sel->home[p].i == home.i;
            for (ptrdiff_t k2 = 0; k2 < arrlen(z->reader[p]); k2++)
                known |= z->reader[p][k2].i == home.i;
            if (!known) arrput(z->reader[p], home);
        }
    }
}

// Nothing is known of the values to be placed: those of the program, and inputs and weights that it
// does not read. Of all values that there are, other plans' among them, these are few.
static void ein__placer_begin(ein__placer *z) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t n = arrlen(ctx->value);
    for (ptrdiff_t i = 0; i < arrlen(z->sel->order); i++) arrput(z->all, z->sel->order[i]);
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.input) + arrlen(ctx->graph.weight); i++) {
        ptrdiff_t k = i - arrlen(ctx->graph.input);
        ein__val v = ctx->tensor_value[k < 0 ? ctx->graph.input[i] : ctx->graph.weight[k]];
        if (!z->sel->uses[v.i]) arrput(z->all, v);
    }
    arrsetlen(ctx->plan.placed, n);
    memset(ctx->plan.placed, 0, (size_t)n * sizeof *ctx->plan.placed);
    arrsetlen(ctx->plan.layout, n);
    arrsetlen(z->view, n);
    arrsetlen(z->run, n);
    arrsetlen(z->product, n);
    arrsetlen(z->reader, n);
    arrsetlen(z->choice, n);
    for (ptrdiff_t i = 0; i < arrlen(z->all); i++) {
        uint32_t v = z->all[i].i;
        ctx->plan.placed[v] = true;
        ctx->plan.layout[v] = (ein__layout){.buffer = EIN__NO_BUFFER};
        z->view[v] = z->run[v] = false;
        z->product[v] = (ein__val){0};
        z->reader[v] = NULL;
        z->choice[v] = (ein__seat){0};
    }
}

// Buffers and layouts for all values of the selection; `root` in the order of the model's outputs.
EIN__FN void ein__place(ein__placer *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    ein__placer_begin(z);
    for (int k = 0; k < nroot; k++) z->run[root[k].i] = ctx->value[root[k].i].weight_only;
    ein__placer_index(z);
    for (int k = 0; k < nroot; k++) ein__place_dense(ctx, root[k], EIN__B_OUTPUT, k);
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.input); i++)
        ein__place_dense(ctx, ctx->tensor_value[ctx->graph.input[i]], EIN__B_INPUT, (int)i);
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++)
        ein__place_dense(ctx, ctx->tensor_value[ctx->graph.weight[i]], EIN__B_WEIGHT, (int)i);
    ein__place_values(z, z->sel->order, arrlen(z->sel->order));
}

EIN__FN void ein__placer_free(ein__placer *z) {
    for (ptrdiff_t i = 0; i < arrlen(z->all); i++) arrfree(z->reader[z->all[i].i]);
    arrfree(z->all);
    arrfree(z->view);
    arrfree(z->run);
    arrfree(z->product);
    arrfree(z->reader);
    arrfree(z->choice);
}
