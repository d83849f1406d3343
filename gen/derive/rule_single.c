// Sums of which only one term is not 0. A factor that is read along an axis of one element, with
// zeros around it, differs from 0 for one value of a summed iterator only, and this value is a
// function of the others,
//
//   sum(y,r) a[y, E + k*r] w[y,r] = sum(y) a[y,0] w[y,-k*E],   a[y,i] = 0 but for i = 0, k*k = 1:
//
// a transposed convolution of a single pixel, the first layer of a generator, is a plain product,
// and so is a convolution of one with borders around it, of which the middle tap is left.

// The summation iterator that subscript `ix` of an axis of one element fixes, and in `*value` what
// it is then; -1: none, or not within its range for all values of the others.
static int ein__fixed_slot(ein_ctx *ctx, const ein__scope *s, ein__ix ix, ein__ix *value) {
    if (ein__ix_get(ctx, ix)->q != 1 || !ein__ix_affine(ctx, ix)) return -1;
    for (uint32_t r = s->nt; r < s->nt + s->ns; r++) {
        int64_t k = ein__ix_coef(ctx, ix, r);
        if (k != 1 && k != -1) continue;
        ein__ix rest = ein__ix_sub(ctx, ix, ein__ix_scale(ctx, ein__ix_iter(ctx, r, s->n[r]), k));
        *value = ein__ix_scale(ctx, rest, -k);
        const ein__index *f = ein__ix_get(ctx, *value);
        if (!ctx->status && f->lo >= 0 && f->hi < s->n[r]) return (int)r;
    }
    return -1;
}

// `s` without the iterator that a factor's axis of one element fixes; false: there is none.
static bool ein__fix_one(ein_ctx *ctx, ein__scope *s) {
    const ein__expr *read[2];
    double alpha, pad;
    ein__ix value, map[EIN__MAX_ITERS];
    if (s->reduce != EIN__R_SUM || s->ns < 2 || !ein__two_factors(ctx, s, read, &alpha))
        return false;
    for (int k = 0; k < 2; k++)
        for (uint32_t d = 0; d < read[k]->nix; d++) {
            memcpy(&pad, &read[k]->bits, sizeof pad);
            if (pad != 0 || ctx->value[read[k]->val].shape.d[d] != 1) continue;
            int fixed = ein__fixed_slot(ctx, s, read[k]->ix[d], &value);
            if (fixed < 0) continue;
            ein__scope t = {.reduce = EIN__R_SUM, .nt = s->nt};
            for (uint32_t i = 0; i < s->nt + s->ns; i++) {
                if ((int)i == fixed) continue;
                uint32_t to = i - ((int)i > fixed);
                t.n[to] = s->n[i];
                map[i] = ein__ix_iter(ctx, to, s->n[i]);
                t.ns += i >= s->nt;
            }
            map[fixed] = ein__ix_const(ctx, 0);
            map[fixed] = ein__ix_subst(ctx, value, map, (int)(s->nt + s->ns));
            t.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
            if (!t.body.i) return false;
            *s = t;
            return true;
        }
    return false;
}

static void ein__rule_single(ein__deriver *z, int from) {
    const ein__def d = z->def[from];
    ein__scope s = *ein__sc_get(z->ctx, d.sc);
    bool any = false;
    while (ein__fix_one(z->ctx, &s)) any = true;
    if (any) ein__add_def(z, d.cls, &s, from, "sums of one term", d.place);
}
