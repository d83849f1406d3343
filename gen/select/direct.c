// Products that read f16 and bf16 as they are stored: generated kernels convert what they load,
// which may be cheaper than a copy as f32 (typed.c) and a call, or than a kernel that reads twice
// as many bytes.

// Factor `read` without the copy as f32 that it is read through; none where there is no such copy.
static ein__ex ein__as_stored(ein_ctx *ctx, const ein__expr *read) {
    ein__val p = {read->val};
    const ein__expr *copy = ein__copy_of(ctx, p);
    if (ctx->value[p.i].dtype != EIN__F32 || !copy || !ein__is_narrow(ctx, (ein__val){copy->val}))
        return (ein__ex){0};
    if (ein__reads_in_place(ctx, copy, ein__scope_of(ctx, p))) {
        double pad;
        memcpy(&pad, &read->bits, sizeof pad);
        return ein__ex_read(ctx, (ein__val){copy->val}, pad, read->ix, (int)read->nix);
    }
    ein__attempt attempt = ein__try(ctx);
    ein__ex ex = ein__rule_inline(ctx, p, read);
    bool fits = ein__tried(ctx, attempt) && ex.i && ein__ex_get(ctx, ex)->op == EIN__X_READ;
    return fits ? ex : (ein__ex){0};
}

// What the copy that `read` reads costs, shared by all that reads it.
static int64_t ein__copy_cost(const ein__pass *z, const ein__expr *read) {
    ein__val p = {read->val};
    if (z->ctx->value[p.i].weight_only) return 0;
    return ein__kernel_cost(z->ctx, p) / ein__most(z->uses[p.i], 1);
}

// Product `v`, which map `map` alone reads by `of` (or none), with the factors read as they are
// stored of which that is cheaper.
static ein__val ein__read_directly(ein__pass *z, ein__val v, ein__val map, ein__ex of) {
    ein_ctx *ctx = z->ctx;
    ein__scope t = *ein__scope_of(ctx, v);
    const ein__expr *read[2];
    double alpha;
    ein__ex stored[2], as_is[2], best = t.body;
    int64_t least, ps, bound, copies[2];
    if (!ein__two_factors(ctx, &t, read, &alpha) || ein__is_kept(ctx, v)) return v;
    for (int k = 0; k < 2; k++) {
        as_is[k] = ein__ex_of(ctx, read[k]);
        stored[k] = ein__as_stored(ctx, read[k]);
        copies[k] = stored[k].i ? ein__copy_cost(z, read[k]) : 0;
    }
    if (!stored[0].i && !stored[1].i) return v;
    bool call = ein__is_call(ein__choose(ctx, &t, map, of, true, &least));
    least = ein__cost_sum(least, copies[0] + copies[1]);
    for (int set = 1; set < 4; set++) {
        if ((set & 1 && !stored[0].i) || (set & 2 && !stored[1].i)) continue;
        ein__ex a = set & 1 ? stored[0] : as_is[0], b = set & 2 ? stored[1] : as_is[1];
        ein__val of_a = {ein__ex_get(ctx, a)->val}, of_b = {ein__ex_get(ctx, b)->val};
        // Of halves both it would be tensor cores'.
        if (ein__keeps_fp32(ctx, v) && ein__are_halves(ctx, of_a, of_b)) continue;
        t.body = ein__times_number(ctx, alpha, a, b);
        if (!t.body.i) return (ein__val){0};
        (void)ein__choose_own(ctx, &t, map, of, NULL, &ps, &bound);
        if (call) ps = bound;
        for (int k = 0; k < 2; k++)
            if (!(set >> k & 1)) ps = ein__cost_sum(ps, copies[k]);
        if (ps >= least) continue;
        least = ps;
        best = t.body;
    }
    return ein__with_body(z, v, best);
}
