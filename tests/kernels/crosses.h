// Reductions by tiles whose terms are no products: sums, products and extrema, of terms that are
// zero where nothing is loaded or not, one value of rows and columns or two, loads that compute,
// windows with padding, maps behind, all tiles that take them, blocks that share terms.

// The term of a[b,m,k] and c[b,n,k], of two values each, of what all rows have, or computed.
static ein__ex cross_term(ein_ctx *ctx, int which, ein__ex a, ein__ex c, ein__ex a2, ein__ex c2,
                          ein__ex all) {
    ein__ex less = BIN(SUB, a, c), other = BIN(SUB, a2, c2);
    switch (which) {
    case 0: return UN(ABS, less);
    case 1: return UN(EXP, UN(NEG, UN(ABS, less)));
    case 2: return UN(SQRT, BIN(ADD, UN(SQUARE, less), UN(SQUARE, other)));
    case 3: return BIN(MUL, all, UN(TANH, BIN(ADD, a, c)));
    case 4: return UN(ABS, BIN(SUB, BIN(MUL, UN(RELU, a), all), c));
    case 5: return BIN(ADD, BIN(MUL, a, c), UN(ABS, BIN(SUB, a, c2)));
    default: return BIN(MAX, less, BIN(MUL, other, NUM(0.25)));
    }
}

enum { CROSS_TERMS = 7 };

// What is no such reduction would be computed by loops.
static void is_cross(ein_ctx *ctx, ein__val v) {
    ein__tiled p;
    const ein__scope *s = ein__sc_get(ctx, ctx->value[v.i].scope);
    if (ein__match_cross(ctx, &s, 1, ctx->plan.layout[v.i].stride, &p)) return;
    fprintf(stderr, "no tile has rows and columns of this\n");
    exit(1);
}

static void cross(ein_ctx *ctx, int which, ein__red how, int64_t b, int64_t m, int64_t n, int64_t k,
                  const char *order) {
    ein__dtype type = (m + n) % 3 ? EIN__F32 : EIN__F16;
    ein__val a = input(ctx, type, 3, DIMS(b, m, k)), c = input(ctx, EIN__F32, 3, DIMS(b, n, k)),
             a2 = input(ctx, EIN__F32, 3, DIMS(b, m, k)), c2 = input(ctx, type, 3, DIMS(b, n, k)),
             all = input(ctx, EIN__F32, 1, DIMS(k));
    ein__ix ib = it(ctx, 0, b), im = it(ctx, 1, m), in = it(ctx, 2, n), ik = it(ctx, 3, k);
    ein__ex term = cross_term(ctx, which, READ(a, 0, ib, im, ik), READ(c, 0, ib, in, ik),
                              READ(a2, 0, ib, im, ik), READ(c2, 0, ib, in, ik), READ(all, 0, ik));
    // Of many factors the product stays what a float holds.
    if (how == EIN__R_PROD) term = BIN(ADD, NUM(1), BIN(MUL, term, NUM(0.01)));
    ein__val y = define(ctx, EIN__F32, how, 3, 1, DIMS(b, m, n, k), term);
    is_cross(ctx, y);
    layout(ctx, a, order, 0, 0);
    layout(ctx, c2, order, 0, 0);
    CHECK("cross", EIN__K_PRODUCT, y);
    if (m % 2) return;
    layout(ctx, c, "021", 0, 0);
    layout(ctx, y, order, 0, 4);
    CHECK("cross_apart", EIN__K_PRODUCT, y);
    ein__ex of = READ(y, 0, ib, im, in);
    ein__val e = define(ctx, which % 2 ? EIN__F16 : EIN__F32, EIN__R_NONE, 3, 0, DIMS(b, m, n),
                        BIN(ADD, UN(RELU, of), READ(a, 0, ib, im, it(ctx, 3, 1))));
    CHECK("cross_map", EIN__K_PRODUCT, y, e);
}

// Windows whose taps are compared with a filter's, outside of the image too.
static void cross_window(ein_ctx *ctx, ein__red how, double pad, int64_t c, int64_t f, int64_t h,
                         int64_t r) {
    ein__val x = input(ctx, EIN__F32, 4, DIMS(2, c, h, h)),
             w = input(ctx, EIN__F32, 4, DIMS(f, c, r, r));
    ein__ix in = it(ctx, 0, 2), jf = it(ctx, 1, f), ih = it(ctx, 2, h), iw = it(ctx, 3, h);
    ein__ix ic = it(ctx, 4, c), ir = it(ctx, 5, r), is = it(ctx, 6, r);
    ein__ex at = READ(x, pad, in, ic, ADDC(ADD(ih, ir), -1), ADDC(ADD(iw, is), -1));
    ein__ex tap = READ(w, 0, jf, ic, ir, is);
    ein__ex term = how == EIN__R_SUM ? UN(ABS, BIN(SUB, at, tap)) : BIN(ADD, at, tap);
    ein__val y = define(ctx, EIN__F32, how, 4, 3, DIMS(2, f, h, h, c, r, r), term);
    is_cross(ctx, y);
    CHECK("cross_window", EIN__K_PRODUCT, y);
    layout(ctx, y, "0231", 0, 0);
    CHECK("cross_window_last", EIN__K_PRODUCT, y);
}

// Two or three reductions of one tile, whose terms have a function in common, and the map of them:
// neither may be taken for another one, nor end where there are no terms.
static void cross_joint(ein_ctx *ctx, int sums, ein__red how, int64_t b, int64_t m, int64_t n,
                        int64_t k, const char *order) {
    ein__val a = input(ctx, EIN__F32, 3, DIMS(b, m, k)), c = input(ctx, EIN__F32, 3, DIMS(b, n, k)),
             a2 = input(ctx, EIN__F32, 3, DIMS(b, m, k)),
             c2 = input(ctx, EIN__F16, 3, DIMS(b, n, k));
    ein__ix ib = it(ctx, 0, b), im = it(ctx, 1, m), in = it(ctx, 2, n), ik = it(ctx, 3, k);
    ein__ex near =
        UN(EXP, UN(NEG, UN(ABS, BIN(SUB, READ(a, 0, ib, im, ik), READ(c, 0, ib, in, ik)))));
    ein__ex term[3] = {near, BIN(MUL, near, UN(ABS, READ(c2, 0, ib, in, ik))),
                       BIN(MUL, near, UN(ABS, READ(a2, 0, ib, im, ik)))};
    ein__val y[4];
    ein__ex all = NUM(0.5);
    for (int i = 0; i < sums; i++) {
        y[i] = define(ctx, EIN__F32, how, 3, 1, DIMS(b, m, n, k), term[(i + sums) % 3]);
        all = BIN(ADD, BIN(MUL, all, NUM(0.75)), READ(y[i], 0, ib, im, in));
    }
    y[sums] = define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(b, m, n), all);
    layout(ctx, c2, order, 0, 0);
    layout(ctx, y[sums], order, 0, 4);
    forced_joint = sums;
    if (sums == 2) CHECK("cross_two", EIN__K_PRODUCT, y[0], y[1], y[2]);
    else CHECK("cross_three", EIN__K_PRODUCT, y[0], y[1], y[2], y[3]);
    forced_joint = 0;
}

static void crosses(ein_ctx *ctx) {
    static const ein__red how[] = {EIN__R_SUM, EIN__R_SUM, EIN__R_MAX, EIN__R_SUM,
                                   EIN__R_MIN, EIN__R_SUM, EIN__R_PROD};
    static const int64_t extent[] = {3, 64, 5, 17, 34, 130, 127, 192};
    static const char *const order[] = {"012", "021", "102"};
    for (int tile = 1; tile <= EIN__PRODUCT_FMA; tile++) {
        const ein__product_tile *t = &ein__product_table[tile - 1];
        if (t->math != EIN__MATH_FP32) continue;
        force_tile(ctx, tile);
        for (int which = 0; which < CROSS_TERMS; which++) {
            int i = tile + which;
            int64_t terms = i % 3 ? t->terms * (1 + i % 2) : t->terms * 2 - 5 - i % 4;
            if (i % 5 == 4) terms = 3;
            cross(ctx, which, how[i % COUNT(how)], 1 + i % 2, extent[i % 8],
                  extent[(i * 3 + 1) % 8], terms, order[i % 3]);
        }
        for (int sums = 2; sums < 4; sums++)
            cross_joint(ctx, sums, how[tile % 5], 1 + tile % 2, extent[tile % 8],
                        extent[(tile * 3 + sums) % 8], t->terms * 2 - tile % 3, order[tile % 3]);
        cross_window(ctx, tile % 2 ? EIN__R_SUM : EIN__R_MAX, tile % 2 ? 0.5 : -HUGE_VAL, 3, 5, 7,
                     3);
        cross_window(ctx, EIN__R_SUM, 0, t->terms, 6, 5, 2);
        for (forced_parts = 2; forced_parts < 5; forced_parts += 2) {
            int64_t terms = t->terms * (forced_parts * 2 - 1) + tile % 7;
            cross(ctx, tile % CROSS_TERMS, EIN__R_SUM, 1, extent[tile % 8], extent[tile / 2 % 8],
                  terms, order[tile % 3]);
        }
        forced_parts = 0;
    }
    force_tile(ctx, 0);
    for (int which = 0; which < CROSS_TERMS; which++)
        cross(ctx, which, how[which], 3, 20, 36, 40, order[which % 3]);
}
