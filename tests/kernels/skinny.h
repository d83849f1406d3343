// Products with few rows: the streamed factor along its terms or along its lines, at the extents
// where vectors, blocks and the lines of a thread end.

// y[b,m,n] = sum(k) x[b,m,k] w[b,n,k], with a bias and a residual; `order` is that of w, "021" has
// its lines side by side.
static void skinny(ein_ctx *ctx, int64_t b, int64_t m, int64_t n, int64_t k, const char *order,
                   ein__dtype t) {
    ein__val x = input(ctx, t, 3, DIMS(b, m, k)), w = input(ctx, t, 3, DIMS(b, n, k));
    ein__val bias = input(ctx, EIN__F32, 1, DIMS(n)), z = input(ctx, t, 3, DIMS(b, m, n));
    ein__ix h = it(ctx, 0, b), i = it(ctx, 1, m), j = it(ctx, 2, n), r = it(ctx, 3, k);
    const int64_t *box = DIMS(b, m, n, k);
    layout(ctx, w, order, 0, 0);
    // Rows side by side too, where four can be read at once.
    if (order && m % 4 == 0) layout(ctx, x, order, 0, 0);
    ein__ex body = BIN(MUL, READ(x, 0, h, i, r), READ(w, 0, h, j, r));
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 3, 1, box, body);
    CHECK("skinny", EIN__K_REDUCE, sum);
    ein__ex y = BIN(ADD, READ(sum, 0, h, i, j), BIN(ADD, READ(bias, 0, j), READ(z, 0, h, i, j)));
    ein__val relu = define(ctx, t, EIN__R_NONE, 3, 0, box, BIN(MIN, UN(RELU, y), NUM(9)));
    CHECK("skinny_bias", EIN__K_REDUCE, sum, relu);
    if (n % 2) return;
    // The other factor shifted, with padding, and a constant.
    body = BIN(MUL, NUM(0.5), BIN(MUL, READ(x, 0, h, i, ADDC(r, -3)), READ(w, 0, h, j, r)));
    layout(ctx, relu, "120", 1, 3);
    CHECK("skinny_shifted", EIN__K_REDUCE, define(ctx, EIN__F32, EIN__R_SUM, 3, 1, box, body));
    CHECK("skinny_strided", EIN__K_REDUCE, sum, relu);
}

// y[m,p,q] = sum(k) x[m,k] w[p,q,k]: lines that are counted by two iterators.
static void skinny_grid(ein_ctx *ctx, int64_t p, int64_t q, int64_t k, const char *order) {
    const int64_t m = 3, *box = DIMS(m, p, q, k);
    ein__val x = input(ctx, EIN__F32, 2, DIMS(m, k)), w = input(ctx, EIN__F32, 3, DIMS(p, q, k));
    ein__ix i = it(ctx, 0, m), g = it(ctx, 1, p), h = it(ctx, 2, q), r = it(ctx, 3, k);
    layout(ctx, w, order, 0, 0);
    ein__ex body = BIN(MUL, READ(x, 0, i, r), READ(w, 0, g, h, r));
    CHECK("skinny_grid", EIN__K_REDUCE, define(ctx, EIN__F32, EIN__R_SUM, 3, 1, box, body));
}

static void skinny_products(ein_ctx *ctx) {
    static const int64_t rows[] = {1, 2, 3, 5, 7, 16}, lines[] = {8, 9, 49, 100, 203, 516},
                         terms[] = {64, 68, 100, 260, 516, 1028};
    const ein__gpu *gpu = ctx->gpu;
    for (int i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 3; k++) {
            int64_t n = lines[(i + 2 * k) % COUNT(lines)], c = terms[(2 * i + k) % COUNT(terms)];
            ctx->gpu = k % 2 ? ein__gpu_find("nano") : gpu;
            if (rows[i] * n * c > 400000) continue;
            ein__dtype t = (i + k) % 3 == 2 ? EIN__F16 : (i + k) % 4 == 1 ? EIN__BF16 : EIN__F32;
            skinny(ctx, k == 1 ? 3 : 1, rows[i], n, c, NULL, t);
            skinny(ctx, k == 1 ? 3 : 1, rows[i], n / 4 * 4, c + i, "021", t);
        }
    ctx->gpu = gpu;
    for (int64_t p = 31; p <= 32; p++) {
        skinny_grid(ctx, p, 16, 260, NULL);
        skinny_grid(ctx, p, 16, 260, "201");
        skinny_grid(ctx, p, 16, 260, "210");
    }
}
