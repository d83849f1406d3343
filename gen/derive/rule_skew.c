// Rule `skew`: in a band, where columns are counted from each row's own position, no tile has
// columns that all of its rows share. Loop skewing u = r + j of blocks of B rows makes each block a
// product, of which the band is the diagonals,
//
//   V[b,m,j] = sum(k) q[b,m,k] w[b, a*m + c*j, k]
//            = P[b, m / B, m % B, a*(m % B) + c*j],
//   P[b,M,r,u] = sum(k) q[b, B*M + r, k] w[b, a*B*M + u, k]
//
// with u in 0:a*(B-1)+c*(J-1)+1, of which each row needs J: correlations of two images over a few
// displacements, scores of attention to a neighbourhood. Bands of many columns have a kernel of
// their own (match.c), which stores nothing twice.

enum {
    EIN__SKEW_COLUMNS = 64,  // of a band, at most
    EIN__SKEW_GROWTH = 500,  // of the columns, percent
    EIN__SKEW_ROWS = 32,     // of a block, at most ...
    EIN__SKEW_LEAST = 4,     // ... and at least
    EIN__SKEW_SIZES = 3      // numbers of rows that are tried
};

// Rows m of one factor and columns j of a band in subscript `at` of the other, at row * m + col * j
// in steps of `step`.
typedef struct ein__skew {
    const ein__scope *s;
    const ein__expr *rows, *band;
    uint32_t at, m, j;
    int64_t row, col, step;
} ein__skew;

static const char ein__in_diagonals[] = "band as diagonals of products";

// Whether iterators z->m and z->j are those of a band in subscript z->at, and nowhere else in it.
static bool ein__find_skew(ein_ctx *ctx, ein__skew *z) {
    uint32_t beside = 0, own = ein__ix_uses(ctx, z->band->ix[z->at]);
    for (uint32_t k = 0; k < z->band->nix; k++)
        if (k != z->at) beside |= ein__ix_uses(ctx, z->band->ix[k]);
    uint32_t rows = ein__read_slots(ctx, z->rows), both = 1u << z->m | 1u << z->j;
    if (z->m == z->j || (own & both) != both || (beside & both)) return false;
    if (!(rows >> z->m & 1) || (rows >> z->j & 1)) return false;
    z->row = ein__ix_coef(ctx, z->band->ix[z->at], z->m);
    z->col = ein__ix_coef(ctx, z->band->ix[z->at], z->j);
    const int64_t most = EIN__SKEW_COLUMNS;
    if (!z->row || !z->col || z->row > most || -z->row > most || z->col > most || -z->col > most)
        return false;
    z->step = ein__gcd(z->row, z->col);
    z->row /= z->step;
    z->col /= z->step;
    return z->s->n[z->j] > 1 && z->s->n[z->j] <= EIN__SKEW_COLUMNS &&
           z->s->n[z->m] >= EIN__SKEW_LEAST;
}

// Adds V as the diagonals of products of `b` rows and `columns` columns, whose first one stands
// `low` steps from where row and column 0 do.
static void ein__add_skew(ein__deriver *d, const ein__skew *z, double alpha, int64_t b,
                          int64_t columns, int64_t low, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope s = *z->s;
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK], ix[EIN__MAX_RANK];
    ein__scope t = {.reduce = EIN__R_SUM, .nt = s.nt + 1, .ns = s.ns};
    if (t.nt > EIN__MAX_RANK || t.nt + t.ns > EIN__MAX_ITERS) return;
    for (uint32_t i = 0; i < s.nt + s.ns; i++) {
        uint32_t to = i + (i >= s.nt);
        t.n[to] = i == z->m ? ein__ceil(s.n[i], b) : i == z->j ? columns : s.n[i];
        map[i] = ein__ix_iter(ctx, to, t.n[to]);
        if (i < s.nt) at[i] = ein__ix_iter(ctx, i, s.n[i]);
    }
    t.n[s.nt] = b;
    ein__ix first = ein__ix_scale(ctx, map[z->m], b), row = ein__ix_iter(ctx, s.nt, b);
    ein__ix place = ein__ix_scale(ctx, ein__ix_addc(ctx, map[z->j], low), z->step);
    map[z->j] = ein__ix_const(ctx, 0);
    map[z->m] = first;
    for (uint32_t k = 0; k < z->band->nix; k++) {
        ix[k] = ein__ix_subst(ctx, z->band->ix[k], map, (int)(s.nt + s.ns));
        if (k == z->at) ix[k] = ein__ix_add(ctx, ix[k], place);
    }
    ein__ex w = ein__ex_read(ctx, (ein__val){z->band->val}, ein__f64_of(z->band->bits), ix,
                             (int)z->band->nix);
    map[z->m] = ein__ix_add(ctx, first, row);
    ein__ex q = ein__ex_subst(ctx, ein__ex_of(ctx, z->rows), map, (int)(s.nt + s.ns));
    if (!w.i || !q.i) return;
    at[s.nt] = ein__ix_mod(ctx, at[z->m], b);
    at[z->j] = ein__ix_add(ctx, ein__ix_scale(ctx, at[z->j], z->col),
                           ein__ix_addc(ctx, ein__ix_scale(ctx, at[s.nt], z->row), -low));
    at[z->m] = ein__ix_floordiv(ctx, at[z->m], b);
    t.body = ein__ex_binary(ctx, EIN__MUL, q, w);
    if (alpha != 1) t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t.body);
    ein__val v = t.body.i ? ein__class_of(d, &t, "blocks", from, ein__in_diagonals, EIN__FORMED)
                          : (ein__val){0};
    ein__scope copy = {.reduce = EIN__R_NONE, .nt = s.nt};
    memcpy(copy.n, s.n, s.nt * sizeof *copy.n);
    copy.body = v.i ? ein__ex_read(ctx, v, 0, at, (int)t.nt) : (ein__ex){0};
    if (copy.body.i) ein__add_def(d, old.cls, &copy, from, ein__in_diagonals, old.place);
}

// One band in blocks of several sizes.
static void ein__skew_sizes(ein__deriver *d, const ein__skew *z, double alpha, int from) {
    int64_t last = 0, n = z->s->n[z->j];
    for (int size = 0; size < EIN__SKEW_SIZES; size++) {
        int64_t b = ein__block_places(z->s->n[z->m], EIN__SKEW_ROWS >> size);
        int64_t down = z->row * (b - 1), across = z->col * (n - 1);
        int64_t columns = (down < 0 ? -down : down) + (across < 0 ? -across : across) + 1;
        if (b == last || ein__times(columns, 100) > ein__times(n, EIN__SKEW_GROWTH)) continue;
        ein__add_skew(d, z, alpha, b, columns, ein__least(down, 0) + ein__least(across, 0), from);
        last = b;
    }
}

static void ein__rule_skew(ein__deriver *d, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope s = *ein__sc_get(ctx, old.sc);
    const ein__expr *read[2];
    double alpha;
    if (old.place || !ein__two_factors(ctx, &s, read, &alpha)) return;
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
            if (f->q != 1 || f->n < 2 || !ein__ix_affine(ctx, read[r]->ix[k])) continue;
            for (uint32_t m = 0; m < s.nt; m++)
                for (uint32_t j = 0; j < s.nt; j++) {
                    ein__skew z = {
                        .s = &s, .rows = read[1 - r], .band = read[r], .at = k, .m = m, .j = j};
                    if (ein__find_skew(ctx, &z)) ein__skew_sizes(d, &z, alpha, from);
                }
        }
}
