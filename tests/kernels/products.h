// Products by tiles: every tile of the table at the sizes around its edges, all ways in which the
// factors and the result may lie in memory, windows, phases, batches and epilogues.

static int forced_tile;   // place in the table of tiles from 1; 0: as the estimate has it
static int forced_parts;  // blocks that share the terms of a tile; 0: one

// Takes the tile and the mode that it belongs to; 0: as the estimate has it, in FP32.
static void force_tile(ein_ctx *ctx, int tile) {
    ein__math math = tile ? ein__product_table[tile - 1].math : EIN__MATH_FP32;
    forced_tile = tile;
    ctx->typed = true;
    ctx->desc.math = math == EIN__MATH_TF32   ? EIN_MATH_TF32
                     : math == EIN__MATH_FP16 ? EIN_MATH_FP16
                                              : EIN_MATH_FP32;
}

// Whether the forced tile wants its second factor to be weights that are rounded, lines of terms.
static bool is_rounded(void) {
    const ein__product_tile *t = &ein__product_table[forced_tile ? forced_tile - 1 : 0];
    return t->warpgroups && t->math == EIN__MATH_TF32;
}

// Type of a factor: halves in FP16 mode, where `other` factors may still be f32.
static ein__dtype factor(const ein_ctx *ctx, bool other) {
    return ctx->desc.math == EIN_MATH_FP16 && !other ? EIN__F16 : EIN__F32;
}

// y[b,m,n] = sum(k) a[b,m,k] b[b,k,n], the operands stored in the orders given.
static void product(ein_ctx *ctx, int64_t b, int64_t m, int64_t n, int64_t k, const char *oa,
                    const char *ob, const char *oy) {
    ein__val x = input(ctx, factor(ctx, m % 5 == 2), 3, DIMS(b, m, k)),
             w = input(ctx, factor(ctx, n == 127), 3, DIMS(b, k, n));
    ein__ix ib = it(ctx, 0, b), im = it(ctx, 1, m), in = it(ctx, 2, n), ik = it(ctx, 3, k);
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 3, 1, DIMS(b, m, n, k),
                        BIN(MUL, READ(x, 0, ib, im, ik), READ(w, 0, ib, ik, in)));
    layout(ctx, x, oa, 0, 0);
    layout(ctx, w, ob, 0, 0);
    layout(ctx, y, oy, 0, 0);
    ctx->value[w.i].weight_only = is_rounded();
    CHECK("product", EIN__K_PRODUCT, y);
}

// Of tiles that take lines of terms alone: one step and several, all stages, ends of all kinds.
static void product_lines(ein_ctx *ctx, const ein__product_tile *t) {
    product(ctx, 2, 68, t->cols + 12, 20, "012", "021", "012");
    product(ctx, 1, 132, 40, t->terms * 7 + 4, "021", "021", "012");
    product(ctx, 1, 21, t->cols / 2 + 3, t->terms * 2, "012", "021", "012");
    product(ctx, 1, 129, 2 * t->cols - 4, t->terms * 4, "012", "021", "012");
}

static void product_sizes(ein_ctx *ctx) {
    static const int64_t extent[] = {1, 3, 5, 7, 17, 49, 127, 129};
    static const char *const order[] = {"012", "021", "102", "210"};
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        force_tile(ctx, tile);
        int tensor = ein__product_table[tile - 1].math != EIN__MATH_FP32;
        if (!tensor && tile > EIN__PRODUCT_FMA) {
            fprintf(stderr, "tile %d is looked at by nobody\n", tile);
            exit(1);
        }
        for (int i = tile % 3; i < COUNT(extent); i += 3) {
            int t = i + (tensor ? tile : tile / 2);
            product(ctx, 1, extent[i], extent[(i * 3 + tile) % COUNT(extent)],
                    extent[(i * 7 + 1) % COUNT(extent)], order[t % 2], order[t / 2 % 2],
                    order[t / 4 % 2]);
        }
        // Whole vectors on both sides, and several steps of the longest, of which halves of half a
        // vector.
        for (int i = 0; i < 3 * tensor; i++) {
            int four = i == 2 ? 4 : 0;
            product(ctx, 1 + i % 2, 8 + 16 * (i % 2) + four, 24 + four, 136 * i + 40 + four,
                    order[(i + tile) % 2], order[i / 2], order[tile / 2 % 2]);
        }
        if (is_rounded()) product_lines(ctx, &ein__product_table[tile - 1]);
        // Several of the largest tiles, which take whole vectors alone, and what lies beside them.
        if (!ein__product_is_large(&ein__product_table[tile - 1])) continue;
        product(ctx, 1, 136, 264, 200, "012", "012", "012");
        product(ctx, 1, 264, 136, 104, "012", "021", "012");
    }
    force_tile(ctx, 0);
    for (int i = 0; i < 16; i++)
        product(ctx, 2, 12, 20, 8, order[i % 4], order[(i / 4 + i) % 4], order[i / 4]);
    product(ctx, 3, 33, 36, 40, "012", "012", "120");
    product(ctx, 1, 1, 1, 1, NULL, NULL, NULL);
    product(ctx, 1, 1, 1, 300, NULL, NULL, NULL);
    product(ctx, 1, 130, 1, 1, NULL, NULL, NULL);
}

// A convolution with whatever a library's fused form has not: y = tanh-free residual chain, stored
// into a slice of something larger, channels innermost or not. Of `forms`, a bit each: where the
// result is stored as it is and with channels last; into a slice and as halves.
static void product_window(ein_ctx *ctx, int forms, int64_t c, int64_t f, int64_t h, int64_t r,
                           int stride, int dilation, int pad, bool transposed) {
    int64_t span = dilation * (r - 1) + 1, n = 2;
    int64_t o = transposed ? (h - 1) * stride - 2 * pad + span : (h + 2 * pad - span) / stride + 1;
    if (o < 1) return;
    ein__val x = input(ctx, factor(ctx, c % 3 == 0), 4, DIMS(n, c, h, h)),
             w = input(ctx, factor(ctx, false), 4, DIMS(f, c, r, r)),
             b = input(ctx, EIN__F32, 1, DIMS(f)), z = input(ctx, EIN__F32, 4, DIMS(n, f, o, o));
    ein__ix in = it(ctx, 0, n), jf = it(ctx, 1, f), ih = it(ctx, 2, o), iw = it(ctx, 3, o);
    ein__ix ic = it(ctx, 4, c), ir = it(ctx, 5, r), is = it(ctx, 6, r);
    ein__ix at[2] = {ih, iw}, tap[2] = {ir, is};
    for (int k = 0; k < 2; k++) {
        if (transposed)
            at[k] = ein__ix_div(ctx, ADDC(ADD(at[k], SCALE(tap[k], -dilation)), pad), stride);
        else at[k] = ADDC(ADD(SCALE(at[k], stride), SCALE(tap[k], dilation)), -pad);
    }
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 4, 3, DIMS(n, f, o, o, c, r, r),
                        BIN(MUL, READ(x, 0, in, ic, at[0], at[1]), READ(w, 0, jf, ic, ir, is)));
    ein__ex sum = BIN(ADD, BIN(MUL, READ(y, 0, in, jf, ih, iw), NUM(0.5)), READ(b, 0, jf));
    ein__val e = define(ctx, EIN__F32, EIN__R_NONE, 4, 0, DIMS(n, f, o, o),
                        BIN(ADD, UN(RELU, sum), READ(z, 0, in, jf, ih, iw)));
    if (forms & 1) CHECK("window_residual", EIN__K_PRODUCT, y, e);
    layout(ctx, e, NULL, 4, 4);
    if (forms & 2) CHECK("window_slice", EIN__K_PRODUCT, y, e);
    layout(ctx, x, "0231", 0, 0);
    layout(ctx, e, "0231", 0, 1);
    if (is_rounded()) layout(ctx, w, "0231", 0, 0);
    ctx->value[w.i].weight_only = is_rounded();
    if (forms & 1) CHECK("window_last", EIN__K_PRODUCT, y, e);
    ein__val half = define(ctx, EIN__F16, EIN__R_NONE, 4, 0, DIMS(n, f, o, o),
                           UN(RELU, READ(y, 0, in, jf, ih, iw)));
    if (forms & 2) CHECK("window_half", EIN__K_PRODUCT, y, half);
}

static void product_windows(ein_ctx *ctx, int forms, int first, int n) {
    static const struct window {
        int c, f, h, r, stride, dilation, pad;
        bool transposed;
    } of[] = {{3, 8, 9, 3, 1, 1, 1, false},   {5, 7, 8, 3, 2, 1, 1, false},
              {4, 12, 12, 3, 1, 2, 2, false}, {2, 66, 5, 5, 1, 1, 2, false},
              {8, 16, 8, 1, 1, 1, 0, false},  {4, 6, 5, 4, 2, 1, 1, true},
              {3, 5, 4, 3, 3, 1, 0, true},    {2, 3, 6, 3, 1, 2, 1, true},
              {3, 9, 6, 3, 1, 1, 0, false}};
    for (int i = first; i < first + n; i++) {
        const struct window *w = &of[i % COUNT(of)];
        product_window(ctx, forms, w->c, w->f, w->h, w->r, w->stride, w->dilation, w->pad,
                       w->transposed);
    }
}

// y[f,h,w] = sum(c,r) x[c,h+r+at,w] k[f,c,r]: a position that is guarded below (at < 0), above or
// nowhere, over whole vectors where w is.
static void product_taps(ein_ctx *ctx, int at, int64_t w) {
    int64_t f = 9, h = 10, c = 5, r = 3, in = h + (at == 0 ? 2 : 0);
    ein__val x = input(ctx, factor(ctx, w % 3 == 0), 3, DIMS(c, in, w)),
             k = input(ctx, factor(ctx, false), 3, DIMS(f, c, r));
    ein__ix ih = it(ctx, 1, h), ic = it(ctx, 3, c), ir = it(ctx, 4, r);
    ein__ex read = READ(x, 0, ic, ADDC(ADD(ih, ir), at == 1 ? 0 : at), it(ctx, 2, w));
    CHECK("product_taps", EIN__K_PRODUCT,
          define(ctx, EIN__F32, EIN__R_SUM, 3, 2, DIMS(f, h, w, c, r),
                 BIN(MUL, read, READ(k, 0, it(ctx, 0, f), ic, ir))));
}

// The same of a volume, with three positions that are guarded.
static void product_volume(ein_ctx *ctx) {
    int64_t f = 6, n = 5, c = 2, r = 3;
    ein__val x = input(ctx, factor(ctx, false), 4, DIMS(c, n, n, n)),
             k = input(ctx, factor(ctx, false), 5, DIMS(f, c, r, r, r));
    ein__ix at[3], tap[3], ic = it(ctx, 4, c);
    for (uint32_t i = 0; i < 3; i++) {
        tap[i] = it(ctx, 5 + i, r);
        at[i] = ADDC(ADD(it(ctx, 1 + i, n), tap[i]), -1);
    }
    ein__ex weight = READ(k, 0, it(ctx, 0, f), ic, tap[0], tap[1], tap[2]);
    CHECK("product_volume", EIN__K_PRODUCT,
          define(ctx, EIN__F32, EIN__R_SUM, 4, 4, DIMS(f, n, n, n, c, r, r, r),
                 BIN(MUL, READ(x, 0, ic, at[0], at[1], at[2]), weight)));
}

// Reads that no matrix is: both factors move with a position, a factor is read once a batch, a
// summation that one factor has alone, and a constant before it all.
static void product_others(ein_ctx *ctx) {
    ein__val q = input(ctx, EIN__F32, 3, DIMS(2, 19, 8)),
             k = input(ctx, EIN__F32, 3, DIMS(2, 19, 8));
    ein__ix h = it(ctx, 0, 2), m = it(ctx, 1, 19), j = it(ctx, 2, 7), p = it(ctx, 3, 8);
    ein__ex body = BIN(MUL, READ(q, 0, h, m, p), READ(k, 0, h, ADDC(ADD(m, j), -3), p));
    CHECK("product_band", EIN__K_PRODUCT,
          define(ctx, EIN__F32, EIN__R_SUM, 3, 1, DIMS(2, 19, 7, 8), BIN(MUL, body, NUM(0.5))));
    ein__val a = input(ctx, EIN__F32, 2, DIMS(20, 12)), b = input(ctx, EIN__F32, 1, DIMS(12));
    body = BIN(MUL, READ(a, 0, it(ctx, 0, 20), it(ctx, 1, 12)), READ(b, 0, it(ctx, 1, 12)));
    CHECK("product_vector", EIN__K_PRODUCT,
          define(ctx, EIN__F32, EIN__R_SUM, 1, 1, DIMS(20, 12), body));
    ein__ex spread =
        BIN(MUL, READ(a, 0, it(ctx, 0, 20), it(ctx, 3, 12)), READ(b, 0, it(ctx, 2, 5)));
    CHECK("product_spread", EIN__K_PRODUCT,
          define(ctx, EIN__F32, EIN__R_SUM, 3, 1, DIMS(20, 4, 5, 12), spread));
    ein__ex squared = BIN(MUL, READ(a, 0, it(ctx, 0, 20), it(ctx, 2, 12)),
                          READ(a, 0, it(ctx, 1, 20), it(ctx, 2, 12)));
    CHECK("product_gram", EIN__K_PRODUCT,
          define(ctx, EIN__F32, EIN__R_SUM, 2, 1, DIMS(20, 20, 12), squared));
}

// Terms shared by blocks, the last of which have fewer; epilogues behind their sum.
static void product_parts(ein_ctx *ctx) {
    static const int64_t extent[] = {3, 70, 33, 130, 20, 64};
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        force_tile(ctx, tile);
        int by = ein__product_table[tile - 1].math ? 4 : 2;
        for (forced_parts = 2 + tile % by; forced_parts <= 5; forced_parts += by) {
            int64_t depth = (forced_parts - 1) * ein__most(ein__product_table[tile - 1].terms, 64);
            depth += tile % 2 ? 61 : 9;
            int t = tile / 2 + forced_parts;
            product(ctx, 1 + t % 3, extent[t % 6], extent[(t + 2) % 6], depth, "012", "012", "012");
        }
    }
    // Five whole steps are no four parts: the last one would have none.
    force_tile(ctx, 1);
    forced_parts = 4;
    product(ctx, 1, 33, 20, 5 * ein__product_table[0].terms, "012", "012", "012");
    force_tile(ctx, 5);
    forced_parts = 3;
    for (int i = 0; i < 8; i += 2) product_windows(ctx, 3, i, 1);
    // More blocks than a thread has vectors, and as many.
    forced_parts = 8;
    for (int tile = 4; tile < 18; tile += 6) {
        force_tile(ctx, tile);
        product(ctx, 1, 33, 70, 8 * ein__product_table[tile - 1].terms - 5, "012", "012", "012");
    }
    force_tile(ctx, 0);
    forced_parts = 0;
}

#include "loads.h"

// y[m,n] = max(sum(k) z[m,k] w[k,n], 0), z a LayerNorm of x or x over its row's norm, with z itself
// stored as well or not; x and z in the orders given.
static void product_norm(ein_ctx *ctx, int64_t m, int64_t n, int64_t k, bool centered, bool also,
                         const char *order) {
    ein__val x = input(ctx, factor(ctx, m % 2), 2, DIMS(m, k)),
             w = input(ctx, factor(ctx, false), 2, DIMS(k, n)),
             g = input(ctx, EIN__F32, 1, DIMS(k));
    ctx->value[w.i].weight_only = ctx->value[g.i].weight_only = true;
    if (is_rounded()) layout(ctx, w, "10", 0, 0);
    // No row is constant.
    for (int64_t i = 0; i < m; i++) contents(x)[i * k + i % k] += 3;
    ein__ix im = it(ctx, 0, m), ik = it(ctx, 1, k), in = it(ctx, 1, n);
    ein__ex u = READ(x, 0, im, ik);
    if (centered) {
        ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 1, 1, DIMS(m, k), u);
        u = BIN(SUB, u, BIN(DIV, READ(sum, 0, im), NUM((double)k)));
    }
    ein__val squares = define(ctx, EIN__F32, EIN__R_SUM, 1, 1, DIMS(m, k), UN(SQUARE, u));
    ein__ex z = BIN(MUL, u, UN(RSQRT, BIN(ADD, READ(squares, 0, im), NUM(0.5))));
    z = BIN(MUL, z, READ(g, 0, ik));
    if (centered) z = BIN(ADD, z, READ(g, 0, ik));
    ein__val y = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(m, k), z);
    ein__val p = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, DIMS(m, n, k),
                        BIN(MUL, READ(y, 0, im, it(ctx, 2, k)), READ(w, 0, it(ctx, 2, k), in)));
    ein__val r = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(m, n), UN(RELU, READ(p, 0, im, in)));
    uint32_t first = (uint32_t)arrlen(ctx->value);
    ein__norm made;
    if (!ein__rule_norm(ctx, p, r, also, &made)) {
        fprintf(stderr, "no row operation of %d x %d x %d\n", (int)m, (int)n, (int)k);
        exit(1);
    }
    compute_made(ctx, first);
    layout(ctx, x, order, 0, 0);
    if (also) layout(ctx, made.also, order, 0, 0);
    taken = &made;
    CHECK("product_norm", EIN__K_PRODUCT, made.out);
    taken = NULL;
}

static void product_norms(ein_ctx *ctx) {
    static const int64_t rows[] = {5, 64, 33, 130, 16, 32}, terms[] = {64, 24, 130, 7, 256, 97};
    static const char *const order[] = {"01", "01", "10"};
    ctx->rule_mask = ~(uint64_t)0;
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        const ein__product_tile *t = &ein__product_table[tile - 1];
        bool tensor = t->math != EIN__MATH_FP32;
        force_tile(ctx, tile);
        for (int i = tile % 3; i < (tensor ? 3 : 6); i += 3)
            product_norm(ctx, rows[i], 8 + 60 * (i / 2), terms[(i + tile) % 6], (i + tile / 3) % 3,
                         i / 3, order[(i + tile / 2) % 3]);
        // Rows of whole steps, which tensor cores' tiles add up as their warps multiply them.
        if (!tensor) continue;
        if (tile % 2) product_norm(ctx, 34, 40, 3 * t->terms, true, tile % 4 < 2, "01");
        else product_norm(ctx, 24, 24, 2 * t->terms, tile % 4, false, order[1 + tile / 4 % 2]);
    }
    // Rows that blocks share, too: whole steps of the loop, or fewer at the end.
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        int64_t turn = ein__most(ein__product_table[tile - 1].terms, 32);
        force_tile(ctx, tile);
        forced_parts = 2 + tile % 3;
        int64_t whole = forced_parts * turn, row = rows[tile % 6];
        if (tile % 2) product_norm(ctx, row, 68, whole, true, tile % 4 < 2, order[tile % 3]);
        else product_norm(ctx, row, 20, whole - turn / 2 - 1, false, tile % 4, "01");
    }
    force_tile(ctx, 0);
    forced_parts = 0;
}

static void products(ein_ctx *ctx) {
    product_norms(ctx);
    product_loads(ctx);
    product_sizes(ctx);
    product_windows(ctx, 3, 0, 9);
    // Several steps of the loop within a tap, whose address moves then.
    force_tile(ctx, 1);
    product_window(ctx, 3, 16, 6, 5, 3, 2, 1, 1, false);
    force_tile(ctx, 3);
    product_window(ctx, 3, 48, 5, 4, 2, 1, 1, 1, false);
    force_tile(ctx, 0);
    product_others(ctx);
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        if (ein__product_table[tile - 1].math == EIN__MATH_FP32) continue;
        force_tile(ctx, tile);
        product_windows(ctx, 1 + tile % 2, tile, 1);
        if (is_rounded()) product_window(ctx, 1, 40, 20, 7, 3, 1, 1, 1, false);
        if (ein__product_table[tile - 1].rows == 16) product_others(ctx);
    }
    // Places of terms come from a table, in all forms of one.
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        force_tile(ctx, tile);
        product_taps(ctx, tile % 4 - 2, tile % 3 ? 8 : 9);
        if (tile % 5 == 1) product_volume(ctx);
    }
    force_tile(ctx, 0);
    product_parts(ctx);
}
