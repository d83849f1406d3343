// Converging derivation: what keeps a definition from being a library call is the form of an
// operand, so the operand is written out as a tensor that has the form (EinNet section 5.2).

// Read `r` written out as a tensor whose dimensions are the iterators it uses: group iterators
// first, the summation last (or first for the second factor). None when that is no gain or grows
// too much.
static ein__ex ein__written_out(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                                const ein__expr *other, int from) {
    ein_ctx *ctx = z->ctx;
    uint32_t mine = 0, theirs = 0;
    for (uint32_t k = 0; k < r->nix; k++) mine |= ein__ix_uses(ctx, r->ix[k]);
    for (uint32_t k = 0; k < other->nix; k++) theirs |= ein__ix_uses(ctx, other->ix[k]);
    // What was written out once is in the right order already.
    if (r->val >= z->first && ein__copy_of(ctx, (ein__val){r->val})) return (ein__ex){0};
    bool weight = ctx->value[r->val].weight_only;
    int64_t volume = ein__slots_volume(s, mine), had = ein__elements(&ctx->value[r->val].shape);
    if (!weight && volume > had * EIN__MAX_GROWTH) return (ein__ex){0};
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            int group = i >= s->nt ? 2 : theirs >> i & 1 ? 0 : 1;
            if (group != pass || !(mine >> i & 1) || s->n[i] == 1) continue;
            if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
            back[t.nt] = ein__ix_iter(ctx, i, s->n[i]);
            map[i] = ein__ix_iter(ctx, t.nt, s->n[i]);
            t.n[t.nt++] = s->n[i];
        }
    t.body = ein__ex_subst(ctx, ein__ex_of(ctx, r), map, (int)(s->nt + s->ns));
    if (!t.body.i) return t.body;
    ein__val v = ein__class_of(z, &t, weight ? "relaid" : "columns", from, "operand re-laid", true);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// Converging derivation: what keeps a contraction from being a GEMM is the address of an operand,
// so that operand is written out (im2col is this, applied to a convolution's data).
static void ein__rule_match_gemm(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    int64_t out[EIN__MAX_RANK];
    double alpha;
    ein__gemm g;
    if (!ein__two_factors(ctx, s, read, &alpha)) return;
    ein__dense_result(s, out);
    for (int which = 1; which < 4; which++) {
        ein__ex x[2];
        bool made = true;
        for (int k = 0; k < 2; k++) {
            x[k] = ein__ex_of(ctx, read[k]);
            if (which >> k & 1) x[k] = ein__written_out(z, s, read[k], read[1 - k], from);
            made = made && x[k].i;
        }
        if (!made) continue;
        ein__scope t = *s;
        t.body = ein__ex_binary(ctx, EIN__MUL, x[0], x[1]);
        if (alpha != 1) t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t.body);
        if (!t.body.i || !ein__match_gemm(ctx, &t, out, &g)) continue;
        ein__add_def(z, d.cls, &t, from, "operand re-laid for matching", d.inner);
    }
}
