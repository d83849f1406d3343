// A program: the values that its outputs need, in an order where operands come first, and who reads
// what.

// By value of a program: those that read it, in the program's order: all[first[v]] up to
// all[first[v + 1]]. stb_ds arrays.
typedef struct ein__readers {
    ein__val *all;
    int *first;
} ein__readers;

// What `v` reads, ordered by where in the model the values come from, so that the program keeps the
// model's order; in `*reads`.
static void ein__reads_by_node(const ein_ctx *ctx, ein__val v, ein__ex **reads) {
    const ein__value *p = &ctx->value[v.i];
    arrsetlen(*reads, 0);
    if (p->kind != EIN__V_SCOPE) return;
    const ein__ex *all = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
    for (ptrdiff_t i = 0; i < arrlen(all); i++) {
        int node = ctx->value[ein__ex_get(ctx, all[i])->val].node;
        ptrdiff_t at = i;
        arrput(*reads, all[i]);
        for (; at && ctx->value[ein__ex_get(ctx, (*reads)[at - 1])->val].node > node; at--)
            (*reads)[at] = (*reads)[at - 1];
        (*reads)[at] = all[i];
    }
}

static void ein__live_visit(ein_ctx *ctx, ein__val v, unsigned char *seen, ein__val **order) {
    // Depth is a model's longest chain; an explicit stack keeps long chains off the C stack.
    ein__val *stack = NULL;
    ein__ex *reads = NULL;
    arrput(stack, v);
    while (arrlen(stack)) {
        ein__val top = arrlast(stack);
        if (seen[top.i] == 2) {
            (void)arrpop(stack);
            continue;
        }
        arrsetlen(reads, 0);
        if (seen[top.i] == 0) ein__reads_by_node(ctx, top, &reads);
        if (!arrlen(reads)) {
            seen[top.i] = 2;
            arrput(*order, top);
            (void)arrpop(stack);
        } else {
            seen[top.i] = 1;
            for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
                ein__val r = {ein__ex_get(ctx, reads[i])->val};
                if (!seen[r.i]) arrput(stack, r);
            }
        }
    }
    arrfree(reads);
    arrfree(stack);
}

// Values that `root`s need, operands first.
EIN__FN ein__val *ein__live(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *order = NULL;
    unsigned char *seen = EIN_REALLOC(NULL, (size_t)arrlen(ctx->value) + 1);
    if (!seen) EIN_OUT_OF_MEMORY();
    memset(seen, 0, (size_t)arrlen(ctx->value) + 1);
    for (int i = 0; i < nroot; i++)
        if (!seen[root[i].i]) ein__live_visit(ctx, root[i], seen, &order);
    EIN_FREE(seen);
    return order;
}

// How many values read each value; a root has one use more.
EIN__FN int *ein__count_uses(ein_ctx *ctx, const ein__val *order, const ein__val *root, int nroot) {
    int *uses = NULL;
    arrsetlen(uses, arrlen(ctx->value));
    memset(uses, 0, (size_t)arrlen(uses) * sizeof *uses);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        const ein__value *p = &ctx->value[order[i].i];
        if (p->kind != EIN__V_SCOPE) continue;
        const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            bool first = true;
            for (ptrdiff_t j = 0; j < k; j++) first &= ein__ex_get(ctx, reads[j])->val != v;
            uses[v] += first;
        }
    }
    for (int i = 0; i < nroot; i++) uses[root[i].i]++;
    return uses;
}

// Whether map `s` moves weights to places that are known at run time.
static bool ein__looks_up(const ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    return s->reduce == EIN__R_NONE && e->op == EIN__X_READ && ctx->value[e->val].weight_only;
}

// Marks weights in ctx->unrounded where what `v` makes of them is marked there, or the other way
// round: copies and concatenations, which may share memory, and what is looked up.
static void ein__share_unrounded(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__pieces pieces = {.n = 0};
    if (!s) return;
    bool looks_up = ein__looks_up(ctx, s);
    bool copies =
        ctx->value[v.i].weight_only && (ein__copy_of(ctx, v) || ein__is_concat(ctx, v, &pieces));
    const ein__ex *reads = looks_up || copies ? ein__ex_reads(ctx, s->body) : NULL;
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        uint32_t r = ein__ex_get(ctx, reads[k])->val;
        if (ctx->value[r].weight_only) ctx->unrounded[r] = ctx->unrounded[v.i] |= ctx->unrounded[r];
    }
}

// Marks in ctx->unrounded what something else than a product of the program `order` reads, or its
// caller.
EIN__FN void ein__mark_unrounded(ein_ctx *ctx, const ein__val *order, const ein__val *root,
                                 int nroot) {
    const ein__expr *read[2];
    double alpha;
    if (ctx->desc.math != EIN_MATH_TF32) return;
    arrsetlen(ctx->unrounded, arrlen(ctx->value));
    memset(ctx->unrounded, 0, (size_t)arrlen(ctx->unrounded) * sizeof *ctx->unrounded);
    for (int i = 0; i < nroot; i++) ctx->unrounded[root[i].i] = true;
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        const ein__scope *s = ein__scope_of(ctx, order[i]);
        bool output = false;  // those of weights alone are made by every run
        for (int k = 0; k < nroot; k++) output |= root[k].i == order[i].i;
        if (!s || (ctx->value[order[i].i].weight_only && !output)) continue;
        if (ein__two_factors(ctx, s, read, &alpha) && !ein__keeps_fp32(ctx, order[i])) continue;
        if (ein__looks_up(ctx, s) && !output) continue;
        const ein__ex *reads = ein__ex_reads(ctx, s->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            ctx->unrounded[ein__ex_get(ctx, reads[k])->val] = true;
    }
    for (ptrdiff_t i = arrlen(order); i-- > 0;) ein__share_unrounded(ctx, order[i]);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) ein__share_unrounded(ctx, order[i]);
}

// Whether `v` is weights that nothing but products in TF32 reads, as far as is known: then create
// may round them, and no product has to.
EIN__FN bool ein__may_round(const ein_ctx *ctx, ein__val v) {
    if (ctx->desc.math != EIN_MATH_TF32 || !ctx->value[v.i].weight_only) return false;
    return (ptrdiff_t)v.i >= arrlen(ctx->unrounded) || !ctx->unrounded[v.i];
}

// Who reads what in the program `order`.
EIN__FN ein__readers ein__find_readers(ein_ctx *ctx, const ein__val *order) {
    ein__readers r = {NULL, NULL};
    int *end = ein__count_uses(ctx, order, NULL, 0), n = 0;
    arrsetlen(r.first, arrlen(end) + 1);
    for (ptrdiff_t i = 0; i < arrlen(end); i++) {
        r.first[i] = n;
        n += end[i];
        end[i] = r.first[i];
    }
    r.first[arrlen(end)] = n;
    arrsetlen(r.all, n);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        const ein__value *p = &ctx->value[order[i].i];
        if (p->kind != EIN__V_SCOPE) continue;
        const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            bool known = end[v] > r.first[v] && r.all[end[v] - 1].i == order[i].i;
            if (!known) r.all[end[v]++] = order[i];
        }
    }
    arrfree(end);
    return r;
}

EIN__FN void ein__readers_free(ein__readers *r) {
    arrfree(r->all);
    arrfree(r->first);
}
