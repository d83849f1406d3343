// Reductions with terms in common as one kernel: where a map reads several over the same iterators
// that nothing else reads, as a weighted sum and the sum of its weights,
//     y[i,d] = R[i,d] / S[i,d],  R = sum(j) f(i,j,d) * v[j,d],  S = sum(j) f(i,j,d)
// a tile adds up all of them (cross.c) and computes what their terms have in common once; decided
// by cost.

typedef struct ein__joint_set {
    int n;
    ein__val v[EIN__SUMS];
    ein__ex read[EIN__SUMS];  // by the map
} ein__joint_set;

// What the kernel of several reductions and map `m` costs; EIN__PS_LIMIT: there is none.
static int64_t ein__cost_joint(ein_ctx *ctx, ein__val m, const ein__joint_set *of) {
    int64_t out[EIN__MAX_RANK];
    ein__tiled p;
    ein__kernel k = {.kind = EIN__K_PRODUCT,
                     .n = of->n + 1,
                     .joint = of->n,
                     .out = out,
                     .size = ein__element_size(ctx, m)};
    for (int i = 0; i < of->n; i++) {
        k.s[i] = ein__scope_of(ctx, of->v[i]);
        k.inner[i] = of->v[i];
    }
    k.s[of->n] = ein__scope_of(ctx, m);
    ein__dense_result(k.s[of->n], out);
    return ein__match_cross(ctx, k.s, of->n, out, &p) ? ein__cost_kernel(ctx, &k) : EIN__PS_LIMIT;
}

// What reduction `v` costs by itself, with map `m` behind it that reads it by `read` (or none).
static int64_t ein__cost_terms(ein_ctx *ctx, ein__val v, ein__val m, ein__ex read) {
    ein__kind kind = ein__choose_terms(ctx, v, m, read);
    return ein__cost_scope(ctx, kind, ein__scope_of(ctx, v), m, read);
}

// Whether map `m` alone reads `v`, which is not chosen yet, a reduction whose terms are no
// products.
static bool ein__may_be_joint(const ein__selector *z, ein__val v, ein__val m, ein__ex *read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || s->reduce == EIN__R_NONE || ein__is_chosen(z, v) || z->root[v.i] ||
        ctx->value[v.i].weight_only || ctx->value[v.i].dtype != EIN__F32 ||
        ein__is_contraction(ctx, s))
        return false;
    return ein__sole_reader(ctx, z->uses, &z->readers, v, read).i == m.i;
}

// Makes reduction `v`, others and the map that reads them one kernel, where that is cheaper.
static bool ein__select_joint(ein__selector *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__joint_set set = {.n = 1, .v = {v}};
    ein__val m = ein__sole_reader(ctx, z->uses, &z->readers, v, &set.read[0]);
    if (!m.i || ein__is_chosen(z, m) || ctx->value[m.i].weight_only ||
        ctx->value[m.i].dtype > EIN__BF16 || !ein__may_be_joint(z, v, m, &set.read[0]))
        return false;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, m)->body);
    int64_t ps = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads) && set.n < EIN__SUMS; i++) {
        ein__joint_set more = set;
        ein__val u = {ein__ex_get(ctx, reads[i])->val}, none = {0};
        ein__ex *read = &more.read[more.n];
        if (u.i == v.i || !ein__may_be_joint(z, u, m, read)) continue;
        if (set.n == 1) ps = ein__cost_terms(ctx, v, m, set.read[0]);
        more.v[more.n++] = u;
        int64_t all = ein__cost_joint(ctx, m, &more);
        if (all >= ein__cost_sum(ps, ein__cost_terms(ctx, u, none, *read))) continue;
        ps = all;
        set = more;
    }
    for (int k = 0; k < set.n && set.n > 1; k++) z->home[set.v[k].i] = m;
    if (set.n > 1) z->kind[m.i] = EIN__K_PRODUCT;
    return set.n > 1;
}
