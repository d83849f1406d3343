// Sums over a part of their terms: where a guard leaves out all but those from one place on, or up
// to one, that depend on the result, as
//     sum(r in 0:n) [0 <= i - r] f,  sum(r in 0:n) [0 <= i - r < w] f,
// loops begin and end there.

enum { EIN__UNROLLED = 16 };  // terms of a loop that may have no bounds: it is written out

typedef struct ein__bounds {
    ein__ix from, until;  // of the iterator's values, in the result's iterators; or none
} ein__bounds;

// Narrows `b` by the guard 0 <= `ix` < `n`, where iterator `slot` of `s` counts by one in it.
static void ein__narrow_bounds(ein_ctx *ctx, const ein__scope *s, uint32_t slot, ein__ix ix,
                               int64_t n, ein__bounds *b) {
    const ein__index g = ein__ix_copy(ein__ix_get(ctx, ix));
    int64_t k = ein__ix_coef(ctx, ix, slot);
    if (g.q != 1 || (k != 1 && k != -1)) return;
    ein__ix rest =
        ein__ix_add(ctx, ix, ein__ix_scale(ctx, ein__ix_iter(ctx, slot, s->n[slot]), -k));
    if (ein__ix_has_gather(ctx, rest) || ein__ix_uses(ctx, rest) >> s->nt) return;
    bool low = g.lo < 0, high = g.hi >= n;
    if (k < 0) {
        if (low && !b->until.i) b->until = ein__ix_addc(ctx, rest, 1);
        if (high && !b->from.i) b->from = ein__ix_addc(ctx, rest, 1 - n);
        return;
    }
    rest = ein__ix_scale(ctx, rest, -1);
    if (low && !b->from.i) b->from = rest;
    if (high && !b->until.i) b->until = ein__ix_addc(ctx, rest, n);
}

// The factors of `ex`: where one of them is guarded, all is 0 elsewhere.
static void ein__bounds_in(ein_ctx *ctx, const ein__scope *s, uint32_t slot, ein__ex ex,
                           ein__bounds *b) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    if (e.op == EIN__X_WHEN && !e.negate) {
        ein__narrow_bounds(ctx, s, slot, e.ix[0], e.n, b);
        ein__bounds_in(ctx, s, slot, e.kid[0], b);
    } else if (e.op == EIN__X_BINARY && e.fn == EIN__MUL) {
        for (int k = 0; k < 2; k++) ein__bounds_in(ctx, s, slot, e.kid[k], b);
    } else if ((e.op == EIN__X_BINARY && e.fn == EIN__DIV) ||
               (e.op == EIN__X_UNARY && e.fn == EIN__NEG)) {
        ein__bounds_in(ctx, s, slot, e.kid[0], b);
    }
}

// Bounds of the values of `slot`, of which sum `s` has terms that are not 0.
static ein__bounds ein__bounds_of(ein_ctx *ctx, const ein__scope *s, uint32_t slot) {
    ein__bounds b = {.from = {0}};
    if (s->reduce == EIN__R_SUM) ein__bounds_in(ctx, s, slot, s->body, &b);
    return b;
}

// `terms` of sum `s`, of which the bounds leave so many: an average over the results, of which
// some at even distances are looked at.
static int64_t ein__bounded(ein_ctx *ctx, const ein__scope *s, int64_t terms) {
    enum { SAMPLES = 16 };
    for (uint32_t slot = s->nt; slot < s->nt + s->ns; slot++) {
        int64_t n = s->n[slot], left = 0;
        if (n <= EIN__UNROLLED) continue;
        ein__bounds b = ein__bounds_of(ctx, s, slot);
        if (!b.from.i && !b.until.i) continue;
        for (int i = 0; i < SAMPLES; i++) {
            int64_t at[2] = {0, n};
            for (int k = 0; k < 2; k++) {
                ein__ix ix = k ? b.until : b.from;
                const ein__index *x = ix.i ? ein__ix_get(ctx, ix) : NULL;
                if (x) at[k] = x->lo + ein__muldiv(x->hi - x->lo, 2 * i + 1, 2 * SAMPLES);
            }
            left += ein__most(ein__least(at[1], n) - ein__most(at[0], 0), 0);
        }
        terms = ein__muldiv(terms, left, n * SAMPLES);
    }
    return ein__most(terms, 1);
}
