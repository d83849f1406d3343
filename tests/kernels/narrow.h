// Transposes of which one dimension is short: as many elements as tiles begin with and fewer, long
// dimensions that are vectors and others, further dimensions around and between, halves.

static void one_narrow(ein_ctx *ctx, int64_t c, int64_t n, bool planes, ein__dtype type, int gap) {
    const int64_t batch = 3, from[] = {batch, planes ? n : c, planes ? c : n},
                  to[] = {batch, planes ? c : n, planes ? n : c};
    ein__ix i = it(ctx, 0, batch), j = it(ctx, 1, to[1]), k = it(ctx, 2, to[2]);
    ein__val u = input(ctx, type, 3, from), w = input(ctx, EIN__F32, 1, DIMS(c));
    ein__ex x = READ(u, 0, i, k, j);
    ein__val v = define(ctx, type, EIN__R_NONE, 3, 0, to, x);
    CHECK("narrow", EIN__K_MAP, v);
    layout(ctx, u, NULL, 0, 4);
    layout(ctx, v, NULL, 0, gap);
    CHECK("narrow_shifted", EIN__K_MAP, v);
    layout(ctx, u, "102", 0, 0);
    layout(ctx, v, NULL, 0, 0);
    CHECK("narrow_between", EIN__K_MAP, v);
    layout(ctx, u, NULL, 0, 0);
    x = BIN(ADD, BIN(MUL, x, NUM(0.5)), READ(w, 0, planes ? j : k));
    CHECK("narrow_map", EIN__K_MAP, define(ctx, type, EIN__R_NONE, 3, 0, to, x));
    // only some of the operand's elements, from the second on
    x = READ(u, 0, it(ctx, 0, 1), it(ctx, 2, to[2]), ADDC(it(ctx, 1, to[1] - 1), 1));
    CHECK("narrow_part", EIN__K_MAP,
          define(ctx, type, EIN__R_NONE, 3, 0, DIMS(1, to[1] - 1, to[2]), x));
}

// Rows of the long dimension a gap of 2 apart: they do not begin at vectors, or they do and their
// elements are no vectors.
static void narrow_gaps(ein_ctx *ctx, int64_t n, bool planes) {
    const int64_t c = 4, from[] = {3, planes ? n : c, planes ? c : n},
                  to[] = {3, planes ? c : n, planes ? n : c};
    ein__val u = input(ctx, EIN__F32, 3, from);
    ein__val v = define(ctx, EIN__F32, EIN__R_NONE, 3, 0, to,
                        READ(u, 0, it(ctx, 0, 3), it(ctx, 2, to[2]), it(ctx, 1, to[1])));
    layout(ctx, planes ? v : u, NULL, 2, 0);
    CHECK("narrow_gaps", EIN__K_MAP, v);
}

// Halves by tiles of 64 x 64, the last ones not whole, and what these refuse: odd extents, steps
// and places.
static void half_tiles(ein_ctx *ctx) {
    static const int64_t extent[] = {64, 66, 127, 130, 62};
    for (int i = 0; i < COUNT(extent); i++)
        for (int j = 0; j < 3; j++) {
            int64_t a = extent[i], b = extent[(i + j) % COUNT(extent)];
            ein__val u = input(ctx, EIN__F16, 3, DIMS(2, a, b));
            ein__ex x = READ(u, 0, it(ctx, 0, 2), it(ctx, 2, a), it(ctx, 1, b));
            ein__val v = define(ctx, EIN__F16, EIN__R_NONE, 3, 0, DIMS(2, b, a), x);
            CHECK("half_tile", EIN__K_TRANSPOSE, v);
            layout(ctx, u, j == 1 ? "102" : NULL, j, 2);
            layout(ctx, v, j == 2 ? "102" : NULL, 2 * j, j);
            CHECK("half_tile_placed", EIN__K_TRANSPOSE, v);
        }
}

// Each alone of what these refuse: an odd place, odd distances, odd extents with even distances.
static void half_odd(ein_ctx *ctx) {
    for (int i = 0; i < 5; i++) {
        int64_t a = i < 4 ? 66 : 65, b = i < 4 ? 64 : 67;
        ein__val u = input(ctx, EIN__F16, 2, DIMS(a, b));
        ein__val v = define(ctx, EIN__F16, EIN__R_NONE, 2, 0, DIMS(b, a),
                            READ(u, 0, it(ctx, 1, a), it(ctx, 0, b)));
        layout(ctx, u, NULL, i == 1 || i == 4, i == 0);
        layout(ctx, v, NULL, i == 3 || i == 4, i == 2);
        CHECK("half_odd", EIN__K_TRANSPOSE, v);
    }
}

static void narrow_transposes(ein_ctx *ctx) {
    static const int64_t extent[] = {2, 3, 4, 5, 7, 8}, length[] = {4, 8, 30, 64, 100};
    int turn = 0;
    for (int i = 0; i < COUNT(extent); i++)
        for (int j = i % 2; j < COUNT(length); j += 2, turn++)
            one_narrow(ctx, extent[i], length[j], turn % 2, turn % 3 ? EIN__F32 : EIN__F16,
                       turn % 4);
    for (int i = 0; i < 4; i++) narrow_gaps(ctx, i % 2 ? 8 : 30, i > 1);
    half_tiles(ctx);
    half_odd(ctx);
}
