// The cases: scopes built by hand, at the extents where tiles, vectors and warps begin and end.

static ein__val input(ein_ctx *ctx, ein__dtype t, int rank, const int64_t *dims);
static double *contents(ein__val v);
static ein__val define(ein_ctx *ctx, ein__dtype t, ein__red reduce, int nt, int ns,
                       const int64_t *n, ein__ex body);
static void layout(ein_ctx *ctx, ein__val v, const char *order, int gap, int offset);
static void compute_made(ein_ctx *ctx, uint32_t first);
static int forced_joint;                      // of the values, terms are computed together
static ein__step *forced_sums, *forced_peer;  // the values finish sums; a map behind the last one
static const ein__norm *taken;  // the row operation in the product to be checked, or NULL
static void check(ein_ctx *ctx, const char *name, ein__kind kind, int nval, const ein__val *val);

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define READ(v, pad, ...)                                     \
    ein__ex_read(ctx, v, pad, (const ein__ix[]){__VA_ARGS__}, \
                 COUNT(((const ein__ix[]){__VA_ARGS__})))
#define CHECK(name, kind, ...)                                       \
    check(ctx, name, kind, COUNT(((const ein__val[]){__VA_ARGS__})), \
          (const ein__val[]){__VA_ARGS__})
#define ADDC(ix, c) ein__ix_addc(ctx, ix, c)
#define ADD(a, b) ein__ix_add(ctx, a, b)
#define SCALE(a, k) ein__ix_scale(ctx, a, k)
#define BIN(f, a, b) ein__ex_binary(ctx, EIN__##f, a, b)
#define UN(f, a) ein__ex_unary(ctx, EIN__##f, a)
#define NUM(v) ein__ex_const(ctx, v)

static ein__ix it(ein_ctx *ctx, uint32_t slot, int64_t n) { return ein__ix_iter(ctx, slot, n); }

// ------------------------------------------------------------------------------- maps

static void map_shapes(ein_ctx *ctx) {
    static const int64_t extent[] = {1, 2, 3, 4, 31, 32, 33, 64, 65};
    for (int i = 0; i < COUNT(extent); i++) {
        int64_t a = extent[i], b = extent[(i * 5 + 3) % COUNT(extent)];
        ein__ix x = it(ctx, 0, a), y = it(ctx, 1, b);
        ein__val u = input(ctx, EIN__F32, 2, DIMS(a, b)), w = input(ctx, EIN__F32, 1, DIMS(b));
        ein__val r =
            define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(a, b), UN(RELU, READ(u, 0, x, y)));
        CHECK("relu", EIN__K_MAP, r);
        r = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(a, b),
                   BIN(ADD, READ(u, 0, x, y), BIN(MUL, READ(w, 0, y), NUM(0.5))));
        CHECK("bias", EIN__K_MAP, r);
        layout(ctx, u, NULL, 4, 8);
        layout(ctx, r, "10", 0, 4);
        CHECK("strided", EIN__K_MAP, r);
        layout(ctx, u, NULL, 0, 1);
        layout(ctx, r, NULL, 0, 0);
        CHECK("misaligned", EIN__K_MAP, r);
        // a halo of pads, and a slice
        ein__ex read =
            READ(u, i % 2 ? -2 : 0, ADDC(it(ctx, 0, a + 2), -1), ADDC(it(ctx, 1, b + 3), -2));
        r = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(a + 2, b + 3), read);
        CHECK("pad", EIN__K_MAP, r);
        if (b > 4) {
            r = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(a, b - 4),
                       READ(u, 0, x, ADDC(it(ctx, 1, b - 4), 4)));
            layout(ctx, u, NULL, 0, 0);
            CHECK("slice", EIN__K_MAP, r);
        }
    }
    ein__val s = input(ctx, EIN__F32, 0, NULL);
    ein__ex read = ein__ex_read(ctx, s, 0, NULL, 0);
    CHECK("scalar", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 0, 0, NULL, BIN(ADD, read, NUM(1))));
    CHECK("spread", EIN__K_MAP, define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(3, 8), read));
}

static void map_views(ein_ctx *ctx) {
    ein__val u = input(ctx, EIN__F32, 3, DIMS(4, 6, 8)),
             w = input(ctx, EIN__F32, 3, DIMS(4, 6, 12));
    ein__ix a = it(ctx, 0, 4), b = it(ctx, 1, 6), c = it(ctx, 2, 20);
    ein__ex cat = BIN(ADD, READ(u, 0, a, b, c), READ(w, 0, a, b, ADDC(c, -8)));
    CHECK("concat", EIN__K_MAP, define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 20), cat));
    c = it(ctx, 2, 20);
    cat = BIN(ADD, READ(u, 0, a, b, c), READ(w, 0, a, b, ADDC(c, -7)));
    CHECK("concat7", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 19),
                 BIN(ADD, READ(u, 0, a, b, it(ctx, 2, 19)),
                     READ(w, 0, a, b, ADDC(it(ctx, 2, 19), -7)))));
    // reshape [4,6,8] -> [24,8] -> [12,16], and one that does not line up
    ein__ix x = it(ctx, 0, 12), y = it(ctx, 1, 16), flat = ADD(SCALE(x, 16), y);
    ein__ex r =
        READ(u, 0, ein__ix_floordiv(ctx, flat, 48),
             ein__ix_mod(ctx, ein__ix_floordiv(ctx, flat, 8), 6), ein__ix_mod(ctx, flat, 8));
    CHECK("reshape", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(12, 16), UN(NEG, r)));
    layout(ctx, u, "201", 1, 0);
    CHECK("reshape_strided", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(12, 16), UN(NEG, r)));
    layout(ctx, u, NULL, 0, 0);
    // channel shuffle, flip, nearest upsampling, zero insertion
    ein__ix h = it(ctx, 1, 6),
            g = ADD(SCALE(ein__ix_mod(ctx, h, 2), 3), ein__ix_floordiv(ctx, h, 2));
    CHECK("shuffle", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 8), READ(u, 0, a, g, it(ctx, 2, 8))));
    CHECK("flip", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 8),
                 READ(u, 0, a, ADDC(SCALE(h, -1), 5), ADDC(SCALE(it(ctx, 2, 8), -1), 7))));
    for (int64_t f = 2; f <= 4; f++) {
        ein__ix up = it(ctx, 1, 6 * f), right = it(ctx, 2, 8 * f);
        CHECK("nearest", EIN__K_MAP,
              define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6 * f, 8 * f),
                     READ(u, 0, a, ein__ix_floordiv(ctx, up, f), ein__ix_floordiv(ctx, right, f))));
        CHECK("insert", EIN__K_MAP,
              define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6 * f, 8 * f),
                     READ(u, -1, a, ein__ix_div(ctx, ADDC(up, -1), f),
                          ein__ix_div(ctx, ADDC(right, 1), f))));
        CHECK("floor_negative", EIN__K_MAP,
              define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6 * f, 8 * f),
                     READ(u, 0.5, a, ein__ix_floordiv(ctx, ADDC(up, -3), f),
                          ein__ix_mod(ctx, ADDC(right, -5), 8))));
    }
    // guards, indices as values, selections
    ein__ix j = it(ctx, 2, 8);
    ein__ex e = READ(u, 0, a, b, j);
    CHECK("when", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 8),
                 ein__ex_when(ctx, ADD(ADDC(b, -2), j), 5, false, UN(EXP, e))));
    CHECK("when_not", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 8),
                 BIN(ADD, ein__ex_when(ctx, ein__ix_div(ctx, ADD(b, j), 3), 9, true, UN(NEG, e)),
                     ein__ex_when(ctx, ADDC(j, -4), 8, false, NUM(2)))));
    CHECK("triangle", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 8),
                 ein__ex_select(ctx, EIN__LE, ein__ex_idx(ctx, ein__ix_sub(ctx, j, b)), NUM(0), e,
                                NUM(-1))));
    CHECK("prelu", EIN__K_MAP,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(4, 6, 8),
                 ein__ex_select(ctx, EIN__LT, e, NUM(0),
                                BIN(MUL, e, READ(w, 0, a, b, ein__ix_const(ctx, 3))), e)));
}

static void map_functions(ein_ctx *ctx) {
    ein__val u = input(ctx, EIN__F32, 2, DIMS(5, 40)), w = input(ctx, EIN__F32, 2, DIMS(5, 40));
    ein__ix a = it(ctx, 0, 5), b = it(ctx, 1, 40);
    ein__ex x = READ(u, 0, a, b), y = READ(w, 0, a, b);
    for (int fn = EIN__NEG; fn < EIN__NFN; fn++) {
        if (ein__fn_table[fn].arity != 1) continue;
        ein__ex arg = fn == EIN__LOG || fn == EIN__SQRT || fn == EIN__RSQRT
                          ? BIN(ADD, UN(ABS, x), NUM(0.25))
                          : x;
        CHECK(fn == EIN__SIN || fn == EIN__COS ? "unary_wave" : "unary", EIN__K_MAP,
              define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(5, 40),
                     ein__ex_unary(ctx, (ein__fn)fn, arg)));
    }
    for (int fn = EIN__ADD; fn <= EIN__MAX; fn++) {
        ein__ex arg = fn == EIN__POW ? BIN(ADD, UN(ABS, x), NUM(0.5)) : x;
        ein__ex by = fn == EIN__DIV ? BIN(ADD, UN(SQUARE, y), NUM(1)) : y;
        CHECK("binary", EIN__K_MAP,
              define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(5, 40),
                     BIN(SUB, ein__ex_binary(ctx, (ein__fn)fn, arg, by),
                         BIN(SUB, x, BIN(MUL, y, BIN(ADD, x, y))))));
    }
    ein__ex whole = READ(input(ctx, EIN__I32, 2, DIMS(5, 40)), 0, a, b),
            by = BIN(ADD, UN(SQUARE, whole), NUM(3));
    for (int fn = EIN__QUOT; fn <= EIN__REM; fn++)
        CHECK("quotient", EIN__K_MAP,
              define(ctx, EIN__I64, EIN__R_NONE, 2, 0, DIMS(5, 40),
                     ein__ex_binary(ctx, (ein__fn)fn, BIN(MUL, whole, NUM(9)), by)));
    for (int fn = EIN__EQ; fn <= EIN__GE; fn++)
        CHECK("compare", EIN__K_MAP,
              define(ctx, EIN__BOOL, EIN__R_NONE, 2, 0, DIMS(5, 40),
                     ein__ex_select(ctx, (ein__fn)fn, x, y, NUM(1), NUM(0))));
    // erf form of GELU, and one long expression
    ein__ex gelu = BIN(MUL, BIN(MUL, x, NUM(0.5)),
                       BIN(ADD, UN(ERF, BIN(MUL, x, NUM(0.70710678118654752))), NUM(1)));
    CHECK("gelu", EIN__K_MAP, define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(5, 40), gelu));
    ein__ex sum = x;
    for (int i = 0; i < 12; i++)
        sum =
            BIN(ADD, BIN(MUL, sum, NUM(0.5)), BIN(MUL, gelu, READ(w, 0, a, ein__ix_const(ctx, i))));
    CHECK("long", EIN__K_MAP, define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(5, 40), sum));
}

static void map_types(ein_ctx *ctx) {
    static const ein__dtype types[] = {EIN__F32, EIN__F16, EIN__BF16, EIN__I8,
                                       EIN__U8,  EIN__I32, EIN__I64};
    ein__ix a = it(ctx, 0, 6), b = it(ctx, 1, 20);
    for (int i = 0; i < COUNT(types); i++)
        for (int j = 0; j < COUNT(types); j++) {
            ein__val u = input(ctx, types[i], 2, DIMS(6, 20));
            ein__ex x = READ(u, 0, a, b);
            if (types[i] <= EIN__BF16 && types[j] > EIN__BF16) x = UN(FLOORF, x);
            CHECK("cast", EIN__K_MAP, define(ctx, types[j], EIN__R_NONE, 2, 0, DIMS(6, 20), x));
        }
    ein__val big = input(ctx, EIN__I64, 2, DIMS(6, 20));
    for (int i = 0; i < 120; i++) contents(big)[i] += 1e12;
    CHECK("integers", EIN__K_MAP,
          define(ctx, EIN__I64, EIN__R_NONE, 2, 0, DIMS(6, 20),
                 BIN(MAX, BIN(ADD, READ(big, 0, a, b), ein__ex_idx(ctx, b)), NUM(1e12))));
    CHECK("integer_sum", EIN__K_REDUCE,
          define(ctx, EIN__I64, EIN__R_SUM, 1, 1, DIMS(6, 20), READ(big, 0, a, b)));
    CHECK("integer_max", EIN__K_REDUCE,
          define(ctx, EIN__I64, EIN__R_MAX, 1, 1, DIMS(6, 20), READ(big, 0, a, b)));
}

static void map_gather(ein_ctx *ctx) {
    static const ein__dtype types[] = {EIN__I32, EIN__I64};
    for (int k = 0; k < 2; k++) {
        ein__val index = input(ctx, types[k], 1, DIMS(9)), u = input(ctx, EIN__F32, 2, DIMS(7, 16));
        for (int i = 0; i < 9; i++) contents(index)[i] = i * 5 % 11 - 2;  // some are outside
        ein__ex at = READ(index, 0, it(ctx, 0, 9));
        for (int n = 0; n < 2; n++) {
            ein__ix row = ein__ix_gather(ctx, at);
            CHECK("gather", EIN__K_MAP,
                  define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(9, 16),
                         READ(u, 0.75, n ? ADDC(row, 1) : row, it(ctx, 1, 16))));
        }
        at = READ(index, 3, ADDC(it(ctx, 1, 16), -3));
        CHECK("gather_in", EIN__K_MAP,
              define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(7, 16),
                     READ(u, -9, it(ctx, 0, 7),
                          ein__ix_floordiv(ctx, ADDC(ein__ix_gather(ctx, at), 1), 2))));
    }
}

// ------------------------------------------------------------------------------- reductions

typedef struct conv_case {
    int64_t n, c, f, h, w, r, s, stride, pad, dilation;
} conv_case;

static void convolutions(ein_ctx *ctx) {
    static const conv_case cases[] = {
        {1, 3, 4, 9, 9, 3, 3, 1, 1, 1},    {2, 2, 3, 8, 12, 3, 3, 1, 1, 1},
        {1, 1, 2, 7, 7, 5, 5, 2, 2, 1},    {1, 2, 2, 9, 9, 3, 3, 1, 2, 2},
        {1, 1, 1, 1, 1, 3, 3, 1, 1, 1},    {1, 4, 1, 5, 33, 1, 1, 1, 0, 1},
        {2, 2, 16, 48, 48, 3, 3, 1, 1, 1}, {1, 1, 18, 64, 64, 9, 9, 1, 4, 1}};
    for (int i = 0; i < COUNT(cases); i++) {
        conv_case k = cases[i];
        int64_t oh = (k.h + 2 * k.pad - k.dilation * (k.r - 1) - 1) / k.stride + 1;
        int64_t ow = (k.w + 2 * k.pad - k.dilation * (k.s - 1) - 1) / k.stride + 1;
        ein__val x = input(ctx, EIN__F32, 4, DIMS(k.n, k.c, k.h, k.w));
        ein__val w = input(ctx, EIN__F32, 4, DIMS(k.f, k.c, k.r, k.s)),
                 b = input(ctx, EIN__F32, 1, DIMS(k.f));
        ein__ix n = it(ctx, 0, k.n), f = it(ctx, 1, k.f), h = it(ctx, 2, oh), v = it(ctx, 3, ow);
        ein__ix c = it(ctx, 4, k.c), r = it(ctx, 5, k.r), s = it(ctx, 6, k.s);
        ein__ix ih = ADDC(ADD(SCALE(h, k.stride), SCALE(r, k.dilation)), -k.pad);
        ein__ix iw = ADDC(ADD(SCALE(v, k.stride), SCALE(s, k.dilation)), -k.pad);
        const int64_t *box = DIMS(k.n, k.f, oh, ow, k.c, k.r, k.s);
        ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 4, 3, box,
                              BIN(MUL, READ(x, 0, n, c, ih, iw), READ(w, 0, f, c, r, s)));
        CHECK("conv", EIN__K_REDUCE, sum);
        ein__val y = define(ctx, EIN__F32, EIN__R_NONE, 4, 0, box,
                            UN(RELU, BIN(ADD, READ(sum, 0, n, f, h, v), READ(b, 0, f))));
        CHECK("conv_bias", EIN__K_REDUCE, sum, y);
        layout(ctx, x, "0231", 0, 0);
        layout(ctx, y, "0231", 0, 0);
        CHECK("conv_nhwc", EIN__K_REDUCE, sum, y);
        // depthwise
        ein__val d = input(ctx, EIN__F32, 3, DIMS(k.c, k.r, k.s));
        ein__ix ch = it(ctx, 1, k.c);
        r = it(ctx, 4, k.r), s = it(ctx, 5, k.s);
        ih = ADDC(ADD(SCALE(h, k.stride), SCALE(r, k.dilation)), -k.pad);
        iw = ADDC(ADD(SCALE(v, k.stride), SCALE(s, k.dilation)), -k.pad);
        box = DIMS(k.n, k.c, oh, ow, k.r, k.s);
        CHECK("depthwise", EIN__K_REDUCE,
              define(ctx, EIN__F32, EIN__R_SUM, 4, 2, box,
                     BIN(MUL, READ(x, 0, n, ch, ih, iw), READ(d, 0, ch, r, s))));
        layout(ctx, x, NULL, 0, 0);
        CHECK("max_pool", EIN__K_REDUCE,
              define(ctx, EIN__F32, EIN__R_MAX, 4, 2, box, READ(x, -INFINITY, n, ch, ih, iw)));
        if (i % 4 == 1)
            CHECK("min_pool", EIN__K_REDUCE,
                  define(ctx, EIN__F32, EIN__R_MIN, 4, 2, box, READ(x, INFINITY, n, ch, ih, iw)));
    }
}

static void transposed_convolutions(ein_ctx *ctx) {
    static const conv_case cases[] = {{1, 3, 2, 4, 5, 4, 4, 2, 1, 1},
                                      {2, 2, 3, 3, 3, 3, 3, 3, 1, 1},
                                      {1, 2, 1, 8, 8, 9, 9, 4, 3, 1},
                                      {1, 2, 3, 1, 1, 4, 4, 1, 0, 1}};
    for (int i = 0; i < COUNT(cases); i++) {
        conv_case k = cases[i];
        int64_t oh = (k.h - 1) * k.stride - 2 * k.pad + k.r,
                ow = (k.w - 1) * k.stride - 2 * k.pad + k.s;
        ein__val x = input(ctx, EIN__F32, 4, DIMS(k.n, k.c, k.h, k.w));
        ein__val w = input(ctx, EIN__F32, 4, DIMS(k.c, k.f, k.r, k.s));
        ein__ix n = it(ctx, 0, k.n), f = it(ctx, 1, k.f), h = it(ctx, 2, oh), v = it(ctx, 3, ow);
        ein__ix c = it(ctx, 4, k.c), r = it(ctx, 5, k.r), s = it(ctx, 6, k.s);
        ein__ix ih = ein__ix_div(ctx, ADDC(ein__ix_sub(ctx, h, r), k.pad), k.stride);
        ein__ix iw = ein__ix_div(ctx, ADDC(ein__ix_sub(ctx, v, s), k.pad), k.stride);
        ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 4, 3, DIMS(k.n, k.f, oh, ow, k.c, k.r, k.s),
                            BIN(MUL, READ(x, 0, n, c, ih, iw), READ(w, 0, c, f, r, s)));
        CHECK("conv_transpose", EIN__K_REDUCE, y);
        layout(ctx, y, "0231", 0, 0);
        CHECK("conv_transpose_nhwc", EIN__K_REDUCE, y);
    }
}

// Few outputs, long reductions: a warp, a block or a column for each. The last block of the most
// rows has warps without one.
static void long_reductions(ein_ctx *ctx) {
    static const int64_t rows[] = {1, 2, 33, 5001}, count[] = {63, 64, 65, 256, 2049};
    for (int i = 0; i < COUNT(rows); i++)
        for (int j = 0; j < COUNT(count); j++) {
            if (rows[i] * count[j] > 350000) continue;
            ein__val u = input(ctx, EIN__F32, 2, DIMS(rows[i], count[j])),
                     w = input(ctx, EIN__F32, 1, DIMS(rows[i]));
            ein__ex x = READ(u, 0, it(ctx, 0, rows[i]), it(ctx, 1, count[j]));
            const int64_t *box = DIMS(rows[i], count[j]);
            ein__val s = define(ctx, EIN__F32, EIN__R_SUM, 1, 1, box, x);
            ein__val y =
                define(ctx, EIN__F32, EIN__R_NONE, 1, 0, box,
                       BIN(ADD, BIN(DIV, READ(s, 0, it(ctx, 0, rows[i])), NUM((double)count[j])),
                           READ(w, 0, it(ctx, 0, rows[i]))));
            CHECK("mean", EIN__K_REDUCE, s, y);
            if (i == j)
                CHECK("max", EIN__K_REDUCE, define(ctx, EIN__F32, EIN__R_MAX, 1, 1, box, x));
            layout(ctx, u, "10", 0, 0);
            CHECK("mean_column", EIN__K_REDUCE, s, y);
            if (i == j)
                CHECK("min_column", EIN__K_REDUCE, define(ctx, EIN__F32, EIN__R_MIN, 1, 1, box, x));
        }
    // global average pooling, two reduction iterators, guarded
    ein__val u = input(ctx, EIN__F32, 4, DIMS(2, 5, 9, 11));
    ein__ix n = it(ctx, 0, 2), c = it(ctx, 1, 5), h = it(ctx, 2, 11), v = it(ctx, 3, 13);
    CHECK("global", EIN__K_REDUCE,
          define(ctx, EIN__F32, EIN__R_SUM, 2, 2, DIMS(2, 5, 11, 13),
                 READ(u, 0.25, n, c, ADDC(h, -1), ADDC(v, -1))));
    layout(ctx, u, "0231", 3, 0);
    CHECK("global_nhwc", EIN__K_REDUCE,
          define(ctx, EIN__F32, EIN__R_SUM, 2, 2, DIMS(2, 5, 9, 11),
                 READ(u, 0, n, c, it(ctx, 2, 9), it(ctx, 3, 11))));
    ein__val p = input(ctx, EIN__F32, 1, DIMS(70));
    for (int i = 0; i < 70; i++) contents(p)[i] = i % 7 ? 1 : -2;
    CHECK("prod", EIN__K_REDUCE,
          define(ctx, EIN__F32, EIN__R_PROD, 0, 1, DIMS(70), READ(p, 0, it(ctx, 0, 70))));
    // offset-reduce: the sum of shifted products
    ein__val w = input(ctx, EIN__F32, 5, DIMS(6, 7, 3, 3, 8));
    ein__ix oh = it(ctx, 0, 6), ow = it(ctx, 1, 7), f = it(ctx, 2, 8), r = it(ctx, 3, 3),
            s = it(ctx, 4, 3);
    CHECK("offset_reduce", EIN__K_REDUCE,
          define(ctx, EIN__F32, EIN__R_SUM, 3, 2, DIMS(6, 7, 8, 3, 3),
                 READ(w, 0, ADDC(ADD(oh, r), -1), ADDC(ADD(ow, s), -1), r, s, f)));
    // large enough for vectors
    w = input(ctx, EIN__F32, 5, DIMS(20, 21, 3, 3, 192));
    oh = it(ctx, 0, 20), ow = it(ctx, 1, 21), f = it(ctx, 2, 192);
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 3, 2, DIMS(20, 21, 192, 3, 3),
                          READ(w, 0, ADDC(ADD(oh, r), -1), ADDC(ADD(ow, s), -1), r, s, f));
    ein__val b = input(ctx, EIN__F32, 1, DIMS(192));
    CHECK("offset_reduce_vector", EIN__K_REDUCE, sum,
          define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(20, 21, 192),
                 UN(RELU, BIN(ADD, READ(sum, 0, oh, ow, f), READ(b, 0, f)))));
}

// ------------------------------------------------------------------------------- rows

// Makes `w` a weight, which may be read before the kernel before is over, until the plan's buffers
// are none again.
static void weigh(ein_ctx *ctx, ein__val w) {
    arrput(ctx->plan.buffer, (ein__buffer){.kind = EIN__B_ARENA});
    arrput(ctx->plan.buffer, (ein__buffer){.kind = EIN__B_WEIGHT});
    ctx->plan.layout[w.i].buffer = 1;
}

// softmax and layer normalisation over the last dimensions of [a, b, c...]
static void one_row(ein_ctx *ctx, int64_t a, int64_t b, int64_t c, int64_t d, const char *order,
                    int offset) {
    ein__val u = input(ctx, EIN__F32, 4, DIMS(a, b, c, d)), w = input(ctx, EIN__F32, 2, DIMS(c, d));
    layout(ctx, u, order, 0, offset);
    ein__ix i = it(ctx, 0, a), j = it(ctx, 1, b), k = it(ctx, 2, c), l = it(ctx, 3, d);
    ein__ex x = READ(u, 0, i, j, k, l);
    const int64_t *box = DIMS(a, b, c, d);
    ein__val m = define(ctx, EIN__F32, EIN__R_MAX, 2, 2, box, x);
    ein__ex e = UN(EXP, BIN(SUB, x, READ(m, 0, i, j)));
    ein__val s = define(ctx, EIN__F32, EIN__R_SUM, 2, 2, box, e);
    ein__val y = define(ctx, EIN__F32, EIN__R_NONE, 4, 0, box, BIN(DIV, e, READ(s, 0, i, j)));
    layout(ctx, y, order, 0, 0);
    CHECK("softmax", EIN__K_ROW, m, s, y);
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 2, 2, box, x);
    ein__ex mean = BIN(MUL, READ(sum, 0, i, j), NUM(1 / (double)(c * d)));
    ein__ex dev = BIN(SUB, x, mean);
    ein__val sq = define(ctx, EIN__F32, EIN__R_SUM, 2, 2, box, UN(SQUARE, dev));
    ein__ex var = BIN(ADD, BIN(MUL, READ(sq, 0, i, j), NUM(1 / (double)(c * d))), NUM(1e-5));
    ein__val z =
        define(ctx, EIN__F32, EIN__R_NONE, 4, 0, box,
               BIN(ADD, BIN(MUL, BIN(MUL, dev, UN(RSQRT, var)), READ(w, 0, k, l)), NUM(0.5)));
    CHECK("norm", EIN__K_ROW, sum, sq, z);
    if (order) return;
    weigh(ctx, w);
    CHECK("early_norm", EIN__K_ROW, sum, sq, z);
    arrsetlen(ctx->plan.buffer, 0);
}

// What ends a row with one result: a sum of what is expected of it, and the logarithm of a sum.
static void ended_row(ein_ctx *ctx, int64_t a, int64_t b, const char *order) {
    ein__val u = input(ctx, EIN__F32, 2, DIMS(a, b)), w = input(ctx, EIN__F32, 1, DIMS(b));
    layout(ctx, u, order, 0, 0);
    ein__ix i = it(ctx, 0, a), j = it(ctx, 1, b);
    ein__ex x = READ(u, 0, i, j);
    const int64_t *box = DIMS(a, b);
    ein__val m = define(ctx, EIN__F32, EIN__R_MAX, 1, 1, box, x);
    ein__ex e = UN(EXP, BIN(SUB, x, READ(m, 0, i)));
    ein__val s = define(ctx, EIN__F32, EIN__R_SUM, 1, 1, box, e);
    CHECK("logarithm", EIN__K_ROW, m, s,
          define(ctx, EIN__F32, EIN__R_NONE, 1, 0, box,
                 BIN(ADD, READ(m, 0, i), UN(LOG, READ(s, 0, i)))));
    CHECK("expected", EIN__K_ROW, m, s,
          define(ctx, EIN__F32, EIN__R_SUM, 1, 1, box,
                 BIN(MUL, BIN(DIV, e, READ(s, 0, i)), READ(w, 0, j))));
}

static void rows(ein_ctx *ctx) {
    static const int64_t count[] = {1, 2, 3, 31, 32, 33, 65, 1000, 1024, 1025, 5000, 9001};
    for (int i = 0; i < COUNT(count); i++) {
        one_row(ctx, 1, 3, 1, count[i], NULL, 0);
        if (count[i] <= 65) one_row(ctx, 5, 3, count[i], 3, NULL, 1);
        if (count[i] <= 33) one_row(ctx, 3, 4, count[i], 5, "2301", 0);
    }
    one_row(ctx, 1, 1, 7, 9, NULL, 0);
    one_row(ctx, 40, 30, 1, 10, NULL, 0);
    // as many elements as a large block has registers for, and more
    one_row(ctx, 1, 1, 1, 40960, NULL, 0);
    one_row(ctx, 1, 1, 1, 40961, NULL, 0);
    // columns of 16 and of 32 rows, and one that is too long for registers
    one_row(ctx, 7, 300, 2, 5, "2301", 0);
    one_row(ctx, 7, 610, 2, 5, "2301", 0);
    one_row(ctx, 3, 4, 220, 5, "2301", 0);
    one_row(ctx, 51, 99, 1, 8, NULL, 0);
    // a thread's, a warp's, a block's, of columns that are full and not
    ended_row(ctx, 37, 1, NULL);
    ended_row(ctx, 37, 7, NULL);
    ended_row(ctx, 5, 33, NULL);
    ended_row(ctx, 3, 1025, NULL);
    ended_row(ctx, 37, 9, "10");
    ended_row(ctx, 37, 100, "10");
    ended_row(ctx, 32, 40, "10");
    // a whole tensor is one row; and a mean that is a value of its own
    ein__val u = input(ctx, EIN__F32, 2, DIMS(6, 50));
    ein__ix i = it(ctx, 0, 6), j = it(ctx, 1, 50);
    ein__val m = define(ctx, EIN__F32, EIN__R_MAX, 0, 2, DIMS(6, 50), UN(ABS, READ(u, 0, i, j)));
    CHECK("scale", EIN__K_ROW, m,
          define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(6, 50),
                 BIN(DIV, READ(u, 0, i, j), ein__ex_read(ctx, m, 0, NULL, 0))));
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 1, 1, DIMS(6, 50), READ(u, 0, i, j));
    ein__val mean =
        define(ctx, EIN__F32, EIN__R_NONE, 1, 0, DIMS(6), BIN(DIV, READ(sum, 0, i), NUM(50)));
    CHECK("centre", EIN__K_ROW, sum, mean,
          define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(6, 50),
                 BIN(SUB, READ(u, 0, i, j), READ(mean, 0, i))));
}

// ------------------------------------------------------------------------------- transposes

static void transposes(ein_ctx *ctx) {
    static const int64_t extent[] = {8, 31, 32, 33, 65};
    for (int i = 0; i < COUNT(extent); i++) {
        int64_t a = extent[i], b = extent[(i * 2 + 1) % COUNT(extent)];
        ein__val u = input(ctx, EIN__F32, 2, DIMS(b, a)), w = input(ctx, EIN__F32, 2, DIMS(a, b));
        ein__ex x = READ(u, 0, it(ctx, 1, b), it(ctx, 0, a));
        ein__val y = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(a, b), x);
        CHECK("transpose", EIN__K_TRANSPOSE, y);
        layout(ctx, y, NULL, 3, 1);
        CHECK("transpose_strided", EIN__K_TRANSPOSE, y);
        CHECK("transpose_add", EIN__K_TRANSPOSE,
              define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(a, b),
                     UN(TANH, BIN(ADD, x, READ(w, 0, it(ctx, 0, a), it(ctx, 1, b))))));
    }
    ein__val u = input(ctx, EIN__F32, 4, DIMS(2, 3, 9, 12));
    ein__ix a = it(ctx, 0, 2), b = it(ctx, 3, 3), c = it(ctx, 1, 9), d = it(ctx, 2, 12);
    CHECK("to_nhwc", EIN__K_TRANSPOSE,
          define(ctx, EIN__F32, EIN__R_NONE, 4, 0, DIMS(2, 9, 12, 3), READ(u, 0, a, b, c, d)));
    a = it(ctx, 3, 2), b = it(ctx, 2, 3), c = it(ctx, 1, 9), d = it(ctx, 0, 12);
    CHECK("reverse", EIN__K_TRANSPOSE,
          define(ctx, EIN__F32, EIN__R_NONE, 4, 0, DIMS(12, 9, 3, 2), READ(u, 0, a, b, c, d)));
    ein__val v = input(ctx, EIN__I64, 5, DIMS(2, 3, 4, 5, 6));
    CHECK("rank5", EIN__K_TRANSPOSE,
          define(ctx, EIN__I64, EIN__R_NONE, 5, 0, DIMS(6, 2, 4, 3, 5),
                 READ(v, 0, it(ctx, 1, 2), it(ctx, 3, 3), it(ctx, 2, 4), it(ctx, 4, 5),
                      it(ctx, 0, 6))));
    ein__val h = input(ctx, EIN__F16, 3, DIMS(3, 33, 40));
    CHECK("half", EIN__K_TRANSPOSE,
          define(ctx, EIN__F16, EIN__R_NONE, 3, 0, DIMS(3, 40, 33),
                 READ(h, 0, it(ctx, 0, 3), it(ctx, 2, 33), it(ctx, 1, 40))));
}

// ------------------------------------------------------------------------------- bands

static void band(ein_ctx *ctx, int64_t heads, int64_t m, int64_t p, int64_t w, int64_t d,
                 double pad) {
    int64_t j = 2 * w + 1;
    ein__val q = input(ctx, EIN__F32, 3, DIMS(heads, m, p)),
             k = input(ctx, EIN__F32, 3, DIMS(heads, m, p));
    ein__ix h = it(ctx, 0, heads), row = it(ctx, 1, m), col = it(ctx, 2, j), sum = it(ctx, 3, p);
    ein__ix at = ADDC(ADD(row, SCALE(col, d)), -d * w);
    const int64_t *box = DIMS(heads, m, j, p);
    ein__val s = define(ctx, EIN__F32, EIN__R_SUM, 3, 1, box,
                        BIN(MUL, READ(q, 0, h, row, sum), READ(k, pad, h, at, sum)));
    CHECK("g2bmm", EIN__K_BAND, s);
    ein__val y = define(ctx, EIN__F32, EIN__R_NONE, 3, 0, box,
                        BIN(MUL, READ(s, 0, h, row, col), NUM(0.125)));
    layout(ctx, q, "102", 0, 0);
    layout(ctx, k, "120", 0, 0);
    CHECK("g2bmm_scaled", EIN__K_BAND, s, y);
    ein__val a = input(ctx, EIN__F32, 3, DIMS(heads, m, j)),
             v = input(ctx, EIN__F32, 3, DIMS(heads, m, p));
    ein__ix out = it(ctx, 2, p), term = it(ctx, 3, j);
    at = ADDC(ADD(row, SCALE(term, d)), -d * w);
    box = DIMS(heads, m, p, j);
    ein__val o = define(ctx, EIN__F32, EIN__R_SUM, 3, 1, box,
                        BIN(MUL, READ(a, 0, h, row, term), READ(v, pad, h, at, out)));
    CHECK("gbmm", EIN__K_BAND, o);
    ein__val b = input(ctx, EIN__F32, 1, DIMS(p));
    ein__val z = define(ctx, EIN__F32, EIN__R_NONE, 3, 0, box,
                        BIN(ADD, READ(o, 0, h, row, out), READ(b, 0, out)));
    layout(ctx, v, "102", 0, 0);
    layout(ctx, z, "102", 0, 0);
    CHECK("gbmm_bias", EIN__K_BAND, o, z);
}

static void bands(ein_ctx *ctx) {
    band(ctx, 1, 70, 16, 5, 1, 0);
    band(ctx, 2, 65, 17, 8, 4, 0);
    band(ctx, 1, 130, 33, 20, 3, 0);
    band(ctx, 3, 9, 3, 1, 1, 0.5);
    band(ctx, 1, 33, 8, 40, 2, 0);
    band(ctx, 1, 300, 9, 130, 1, 0);
}

// ------------------------------------------------------------------------------- transforms

// A matrix of constants: `entry` has EIN__TABLE_EXTENT columns.
static ein__val matrix(ein_ctx *ctx, int rows, int cols, int64_t (*entry)[EIN__TABLE_EXTENT],
                       const int64_t *den) {
    ein__ex sum = NUM(0);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            double v = (double)entry[i][j] / (den ? (double)den[i] : 1);
            ein__ex e = ein__ex_when(ctx, ADDC(it(ctx, 1, cols), -j), 1, false, NUM(v));
            sum = BIN(ADD, sum, ein__ex_when(ctx, ADDC(it(ctx, 0, rows), -i), 1, false, e));
        }
    return define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(rows, cols), sum);
}

// Data and result transform of F(m x m, r x r) on [c, h, w], the second with an epilogue too.
static void transform2(ein_ctx *ctx, int m, int r, int64_t c, int64_t h, int64_t w, double pad) {
    ein__toom t;
    if (!ein__toom_cook(m, r, &t)) exit(1);
    int64_t n = t.t, a = (h + m - 1) / m, b = (w + m - 1) / m;
    ein__val bt = matrix(ctx, t.t, t.t, t.bt, NULL), at = matrix(ctx, t.m, t.t, t.at, NULL);
    ein__val g = matrix(ctx, t.t, t.r, t.g, t.den);
    ein__val x = input(ctx, EIN__F32, 3, DIMS(c, h, w)), k = input(ctx, EIN__F32, 3, DIMS(c, r, r));
    ein__ix i = it(ctx, 0, n), j = it(ctx, 1, n), z = it(ctx, 2, c), u = it(ctx, 5, n),
            v = it(ctx, 6, n);
    ein__ex read = READ(x, pad, z, ADDC(ADD(SCALE(it(ctx, 3, a), m), u), -1),
                        ADDC(ADD(SCALE(it(ctx, 4, b), m), v), -2));
    ein__val d = define(ctx, EIN__F32, EIN__R_SUM, 5, 2, DIMS(n, n, c, a, b, n, n),
                        BIN(MUL, READ(bt, 0, i, u), BIN(MUL, READ(bt, 0, j, v), read)));
    CHECK("transform_data", EIN__K_BASIS, d);
    CHECK("transform_fallback", EIN__K_REDUCE, d);
    layout(ctx, d, "20134", 1, 4);
    CHECK("transform_strided", EIN__K_BASIS, d);
    u = it(ctx, 3, r);
    v = it(ctx, 4, r);
    read = BIN(MUL, READ(g, 0, j, v), READ(k, 0, z, u, v));
    ein__val f = define(ctx, EIN__F32, EIN__R_SUM, 3, 2, DIMS(n, n, c, r, r),
                        BIN(MUL, READ(g, 0, i, u), read));
    CHECK("transform_filter", EIN__K_BASIS, f);
    ein__val p = input(ctx, EIN__F32, 5, DIMS(n, n, c, a, b)), q = input(ctx, EIN__F32, 1, DIMS(c));
    ein__ix row = it(ctx, 1, h), col = it(ctx, 2, w);
    z = it(ctx, 0, c);
    u = it(ctx, 3, n);
    v = it(ctx, 4, n);
    read = READ(p, 0, u, v, z, ein__ix_floordiv(ctx, row, m), ein__ix_floordiv(ctx, col, m));
    read = BIN(MUL, READ(at, 0, ein__ix_mod(ctx, col, m), v), read);
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 3, 2, DIMS(c, h, w, n, n),
                        BIN(MUL, READ(at, 0, ein__ix_mod(ctx, row, m), u), read));
    CHECK("transform_result", EIN__K_BASIS, y);
    ein__ex sum =
        BIN(ADD, READ(y, 0, z, row, col), BIN(ADD, READ(q, 0, z), READ(x, 0, z, row, col)));
    ein__val relu = define(ctx, EIN__F32, EIN__R_NONE, 3, 0, DIMS(c, h, w), UN(RELU, sum));
    CHECK("transform_relu", EIN__K_BASIS, y, relu);
    layout(ctx, relu, "102", 3, 5);
    CHECK("transform_relu_strided", EIN__K_BASIS, y, relu);
    layout(ctx, relu, NULL, 0, 1);
    CHECK("transform_relu_placed", EIN__K_BASIS, y, relu);
}

static void transform1(ein_ctx *ctx, int m, int r, int64_t c, int64_t w) {
    ein__toom t;
    if (!ein__toom_cook(m, r, &t)) exit(1);
    int64_t n = t.t, b = (w + m - 1) / m;
    ein__val bt = matrix(ctx, t.t, t.t, t.bt, NULL), at = matrix(ctx, t.m, t.t, t.at, NULL);
    ein__val x = input(ctx, EIN__F32, 2, DIMS(c, w)), p = input(ctx, EIN__F32, 3, DIMS(n, c, b));
    ein__ix col = it(ctx, 1, w);
    ein__ex read = READ(x, 0, it(ctx, 1, c), ADDC(ADD(SCALE(it(ctx, 2, b), m), it(ctx, 3, n)), -1));
    CHECK("transform_line", EIN__K_BASIS,
          define(ctx, EIN__F32, EIN__R_SUM, 3, 1, DIMS(n, c, b, n),
                 BIN(MUL, READ(bt, 0, it(ctx, 0, n), it(ctx, 3, n)), read)));
    read = READ(p, 0, it(ctx, 2, n), it(ctx, 0, c), ein__ix_floordiv(ctx, col, m));
    CHECK("transform_line_result", EIN__K_BASIS,
          define(ctx, EIN__F32, EIN__R_SUM, 2, 1, DIMS(c, w, n),
                 BIN(MUL, READ(at, 0, ein__ix_mod(ctx, col, m), it(ctx, 2, n)), read)));
}

static void transforms(ein_ctx *ctx) {
    transform2(ctx, 2, 3, 5, 8, 6, 0);
    transform2(ctx, 2, 3, 3, 7, 9, 0.5);
    transform2(ctx, 4, 3, 2, 13, 18, 0);
    transform2(ctx, 4, 3, 3, 8, 4, 0);
    transform2(ctx, 2, 5, 2, 5, 7, 0);
    transform2(ctx, 4, 2, 33, 5, 9, 0);
    transform1(ctx, 2, 3, 4, 9);
    transform1(ctx, 4, 3, 3, 33);
    transform1(ctx, 4, 2, 1, 5);
}

// The same shape with another tensor behind it must be the same kernel.
static void same_text(ein_ctx *ctx) {
    const char *first = NULL;
    for (int i = 0; i < 2; i++) {
        ein__val u = input(ctx, EIN__F32, 2, DIMS(12, 20));
        ein__val y = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(12, 20),
                            UN(TANH, READ(u, 0, it(ctx, 0, 12), it(ctx, 1, 20))));
        ein__step step = {.kind = EIN__K_MAP, .name = "x", .nval = 1, .out = y, .val = {y}};
        ein__buf text = {0};
        ein__launch l;
        ein__emit_kernel(ctx, &step, "same", &text, &l);
        if (first && strcmp(first, text.s)) {
            fprintf(stderr, "equal kernels differ:\n%s%s", first, text.s);
            exit(1);
        }
        first = ein__name(ctx, text.s);
        ein__buf_free(&text);
    }
}

#include "products.h"
#include "patches.h"
#include "crosses.h"
#include "strips.h"
#include "skinny.h"
#include "shares.h"
#include "finish.h"
#include "running.h"
#include "places.h"
#include "narrow.h"
#include "halves.h"
#include "picks.h"

// Results that begin at any element, and with gaps between neighbours.
static void map_results(ein_ctx *ctx) {
    for (int i = 1; i <= 5; i++) {
        ein__val u = input(ctx, EIN__F32, 2, DIMS(6, 32));
        ein__val r = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(6, 32),
                            UN(NEG, READ(u, 0, it(ctx, 0, 6), it(ctx, 1, 32))));
        layout(ctx, r, NULL, 0, i);
        CHECK("misplaced", EIN__K_MAP, r);
        layout(ctx, r, NULL, 0, 0);
        for (int d = 0; d < 2; d++) ctx->plan.layout[r.i].stride[d] *= i;
        CHECK("apart", EIN__K_MAP, r);
    }
}

static void all_cases(ein_ctx *ctx) {
    map_shapes(ctx);
    map_views(ctx);
    map_functions(ctx);
    map_types(ctx);
    map_gather(ctx);
    convolutions(ctx);
    transposed_convolutions(ctx);
    long_reductions(ctx);
    rows(ctx);
    transposes(ctx);
    narrow_transposes(ctx);
    bands(ctx);
    transforms(ctx);
    products(ctx);
    patches(ctx);
    strips(ctx);
    crosses(ctx);
    skinny_products(ctx);
    shares(ctx);
    pairs(ctx);
    togethers(ctx);
    finishes(ctx);
    running_sums(ctx);
    running_lines(ctx);
    places(ctx);
    picks(ctx);
    halves(ctx);
    same_text(ctx);
    map_results(ctx);
}
