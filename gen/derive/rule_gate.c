// Rule `gate`: a product whose two halves only one map reads, M[i] = f(V[i], V[i + n]), is two
// products, V0[i] = V[i] and V1[i] = V[i + n] over half of the dimension, f(V0[i], V1[i]): the map
// is computed in the epilogue of one of them, which reads the other one's result, while V, twice as
// large, would be stored and read once more. This covers gated units (GLU, GEGLU, SwiGLU with one
// matrix) and gated convolutions; what V[i] and V[i + n] read of weights are halves of these.

// By value id: the halves of a product, along dimension `dim` from `n` on; none.
typedef struct ein__gated {
    ein__val half[2];
    uint32_t dim;
    int64_t n;
} ein__gated;

// Whether `ix` lies in the first half of 2 * n, or in the second one, which `*second` says.
static bool ein__lies_in_half(const ein_ctx *ctx, ein__ix ix, int64_t n, bool *second) {
    const ein__index *f = ein__ix_get(ctx, ix);
    *second = f->lo >= n;
    return f->q == 1 && !ein__ix_has_gather(ctx, ix) && f->lo >= 0 && f->hi < 2 * n &&
           f->lo / n == f->hi / n;
}

// Whether all reads of `v` among `reads` are of one half of dimension `dim` or the other, and both
// are read.
static bool ein__reads_halves(const ein_ctx *ctx, const ein__ex *reads, ein__val v, uint32_t dim) {
    int64_t n = ctx->value[v.i].shape.d[dim];
    bool half[2] = {false, false}, second;
    if (n % 2) return false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (e->val != v.i) continue;
        if (!ein__lies_in_half(ctx, e->ix[dim], n / 2, &second)) return false;
        half[second] = true;
    }
    return half[0] && half[1];
}

// Whether product `v` is one that is to be two, along `g->dim`.
static bool ein__find_gate(ein__pass *z, ein__val v, ein__gated *g) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s) || z->uses[v.i] != 1 ||
        z->readers.first[v.i] == z->readers.first[v.i + 1])
        return false;
    ein__val map = z->readers.all[z->readers.first[v.i]];
    int64_t elements = ein__elements(&ctx->value[map.i].shape);
    if (!ein__is_map(ctx, map) || 2 * elements != ein__elements(&ctx->value[v.i].shape))
        return false;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, map)->body);
    for (uint32_t k = 0; k < s->nt; k++) {
        *g = (ein__gated){.dim = k, .n = s->n[k] / 2};
        if (ein__reads_halves(ctx, reads, v, k)) return true;
    }
    return false;
}

static ein__ex ein__gated_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__pass *z = user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    const ein__gated *g = (const ein__gated *)z->user + e.val;
    ein__ix ix[EIN__MAX_RANK];
    bool second = false;
    memcpy(ix, e.ix, sizeof ix);
    if (g->half[0].i && !ein__lies_in_half(ctx, ix[g->dim], g->n, &second)) return (ein__ex){0};
    if (second) ix[g->dim] = ein__ix_addc(ctx, ix[g->dim], -g->n);
    ein__val from = g->half[0].i ? g->half[second] : z->now[e.val];
    return ein__ex_read(ctx, from, ein__f64_of(e.bits), ix, (int)e.nix);
}

// Half `second` of product `v`, whose definition reads what it is to.
static ein__val ein__gate_half(ein__pass *z, ein__val v, const ein__gated *g, ein__ex body,
                               int second) {
    ein_ctx *ctx = z->ctx;
    ein__ix map[EIN__MAX_ITERS];
    ein__scope s = *ein__scope_of(ctx, v);
    s.n[g->dim] = g->n;
    for (uint32_t k = 0; k < s.nt + s.ns; k++) map[k] = ein__ix_iter(ctx, k, s.n[k]);
    if (second) map[g->dim] = ein__ix_addc(ctx, map[g->dim], g->n);
    s.body = ein__ex_subst(ctx, body, map, (int)(s.nt + s.ns));
    if (!s.body.i) return (ein__val){0};
    const char *name = ein__namef(ctx, "%s.gate%d", ctx->value[v.i].name, second);
    ein__val half = ein__pass_value(z, name, v, ctx->value[v.i].dtype, &s);
    if (half.i) ctx->value[half.i].why = ein__rules[EIN__RULE_GATE].what;
    return half;
}

static ein__val ein__rebuild_gates(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__gated *g = (ein__gated *)z->user + v.i, found;
    ein__ex body = ein__ex_replace_reads(ctx, ein__scope_of(ctx, v)->body, ein__gated_read, z);
    if (!body.i) return (ein__val){0};
    if (!ein__find_gate(z, v, &found)) return ein__with_body(z, v, body);
    for (int k = 0; k < 2; k++) {
        found.half[k] = ein__gate_half(z, v, &found, body, k);
        if (!found.half[k].i) return (ein__val){0};
    }
    *g = found;
    return found.half[0];
}

// Products whose halves one map reads as two products, in the program under `root`; `*changed` when
// there are any.
EIN__FN bool ein__part_gates(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    if (!ein__rule_on(ctx, EIN__RULE_GATE)) return true;
    ein__gated *all = NULL;
    arrsetlen(all, arrlen(ctx->value));
    memset(all, 0, (size_t)arrlen(all) * sizeof *all);
    bool ok = ein__rewrite_program(ctx, root, nroot, ein__rebuild_gates, all, changed);
    arrfree(all);
    return ok;
}
