// Expression splitting (EinNet section 4.2): a window falls into two halves, each a contraction of
// its own, and the result is their sum.

// Whether summation slot `i` stands beside a traversal iterator in some subscript.
static bool ein__in_window(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                           uint32_t i) {
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            uint32_t uses = ein__ix_uses(ctx, read[r]->ix[k]);
            if ((uses >> i & 1) && (uses & ((1u << s->nt) - 1))) return true;
        }
    return false;
}

// The definition `s` with the sum over slot `i` running over `n` places from `first` on, read where
// the whole is.
static ein__ex ein__part_of(ein__deriver *z, const ein__scope *s, uint32_t i, int64_t first,
                            int64_t n, int from) {
    ein_ctx *ctx = z->ctx;
    ein__scope t = *s;
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK];
    for (uint32_t k = 0; k < s->nt + s->ns; k++) map[k] = ein__ix_iter(ctx, k, s->n[k]);
    for (uint32_t k = 0; k < s->nt; k++) at[k] = map[k];
    t.n[i] = n;
    map[i] = ein__ix_addc(ctx, ein__ix_iter(ctx, i, n), first);
    t.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
    ein__val v = t.body.i ? ein__class_of(z, &t, "half", from, "expression splitting", EIN__HALF)
                          : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, at, (int)s->nt) : (ein__ex){0};
}

// sum(r in 0:n) = sum(r in 0:a) + sum(r in a:n)
static void ein__rule_parts(ein__deriver *z, int from) {
    enum { LEAST = 2 };  // places of a half
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (d.inner || d.depth || s->nt > EIN__MAX_RANK || !ein__two_factors(ctx, s, read, &alpha))
        return;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        int64_t half = (s->n[i] + 1) / 2;
        if (s->n[i] < 2 * LEAST || !ein__in_window(ctx, s, read, i)) continue;
        ein__ex a = ein__part_of(z, s, i, 0, half, from),
                b = ein__part_of(z, s, i, half, s->n[i] - half, from);
        ein__scope t = {.reduce = EIN__R_NONE, .nt = s->nt};
        memcpy(t.n, s->n, s->nt * sizeof *t.n);
        t.body = a.i && b.i ? ein__ex_binary(ctx, EIN__ADD, a, b) : (ein__ex){0};
        if (t.body.i) ein__add_def(z, d.cls, &t, from, "expression splitting", d.inner);
    }
}
