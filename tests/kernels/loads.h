// Products whose loads compute a factor, or convert it, from what they find: from one tensor, from
// two, with numbers of a row or of a term, with pads that are not zero, by lanes that are no
// vector, and from more than a load holds. All are exact in every tile's type.

static ein__val forced_load;  // the map in front of the product to be checked, or none

// Factor [lines, terms] of kind `kind`, of a type that the tile does not hold as well.
static ein__val loaded_factor(ein_ctx *ctx, int kind, int64_t lines, int64_t terms) {
    ein__dtype type = kind % 2 ? EIN__F16 : EIN__F32;
    ein__ix line = it(ctx, 0, lines), term = it(ctx, 1, terms);
    ein__val x = input(ctx, type, 2, DIMS(lines, terms));
    ein__ex e = READ(x, 0, line, term);
    switch (kind) {
    case 0:
        e = BIN(MUL, e, READ(input(ctx, EIN__F32, 1, DIMS(terms)), 0, term));
        e = UN(RELU, BIN(ADD, e, READ(input(ctx, EIN__F32, 1, DIMS(terms)), 0, term)));
        break;
    case 1:
        e = BIN(ADD, e, READ(input(ctx, EIN__F32, 2, DIMS(lines, terms)), 0, line, term));
        break;
    case 2: e = BIN(SUB, e, READ(x, 0, line, ein__ix_const(ctx, terms / 2))); break;
    case 3: e = BIN(ADD, UN(SQUARE, READ(x, 0, line, ADDC(term, -4))), NUM(0.5)); break;
    case 4: e = BIN(ADD, UN(ABS, READ(x, 2, ADDC(line, 1), term)), NUM(0.5)); break;
    case 5: e = UN(ABS, READ(x, 0, line, SCALE(it(ctx, 1, (terms + 1) / 2), 2))); break;
    case 6:
        for (int i = 0; i < 9; i++)
            e = BIN(ADD, e, READ(input(ctx, EIN__F32, 2, DIMS(lines, terms)), 0, line, term));
        break;
    default: e = BIN(MUL, UN(RELU, e), READ(input(ctx, type, 1, DIMS(lines)), 0, line)); break;
    }
    int64_t n = kind == 5 ? (terms + 1) / 2 : terms;
    return define(ctx, EIN__F32, EIN__R_NONE, 2, 0, DIMS(lines, n), e);
}

// y[m,n] = sum(k) a[m,k] b[n,k], one of the two computed (`side`) or, kind -1, of the other type.
static void product_load(ein_ctx *ctx, int kind, int side, int64_t m, int64_t n, int64_t k) {
    int64_t lines = side ? n : m;
    ein__val a =
        kind < 0 ? input(ctx, EIN__F16, 2, DIMS(lines, k)) : loaded_factor(ctx, kind, lines, k);
    if (kind == 5) k = (k + 1) / 2;
    ein__val b = input(ctx, factor(ctx, false), 2, DIMS(side ? m : n, k)), x[2] = {a, b};
    ein__ix im = it(ctx, 0, m), in = it(ctx, 1, n), ik = it(ctx, 2, k);
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, DIMS(m, n, k),
                        BIN(MUL, READ(x[side], 0, im, ik), READ(x[!side], 0, in, ik)));
    if (kind >= 0) forced_load = a;
    CHECK("product_load", EIN__K_PRODUCT, y);
    forced_load = (ein__val){0};
}

// The same product of factors that are stored in two types, converted by the loads.
static void product_typed(ein_ctx *ctx, int turn, int64_t m, int64_t n, int64_t k) {
    static const ein__dtype types[] = {EIN__BF16, EIN__F16, EIN__BF16, EIN__F32};
    ein__val a = input(ctx, types[turn % 4], 2, DIMS(m, k)),
             b = input(ctx, types[turn / 4 % 3], 2, DIMS(n, k));
    ein__ix im = it(ctx, 0, m), in = it(ctx, 1, n), ik = it(ctx, 2, k);
    if (turn % 2) layout(ctx, a, "10", 0, 0);
    if (turn / 2 % 2) layout(ctx, b, "10", 0, 0);
    ein__val y = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, DIMS(m, n, k),
                        BIN(MUL, READ(a, 0, im, ik), READ(b, 0, in, ik)));
    CHECK("product_typed", EIN__K_PRODUCT, y);
    if (turn % 3) return;
    ein__val stored =
        define(ctx, types[turn % 2], EIN__R_NONE, 2, 0, DIMS(m, n), UN(RELU, READ(y, 0, im, in)));
    CHECK("product_typed_map", EIN__K_PRODUCT, y, stored);
}

static void product_loads(ein_ctx *ctx) {
    static const int64_t extent[] = {33, 64, 7, 130, 20};
    int turn[EIN__MATH_FP16 + 1] = {0};
    for (int tile = 1; tile <= EIN__PRODUCT_PLAIN; tile++) {
        force_tile(ctx, tile);
        // Every arithmetic has each kind on both sides, once with whole vectors.
        for (int i = 0; i < 2; i++) {
            int t = turn[ein__product_table[tile - 1].math]++;
            product_load(ctx, t % 9 - 1, t / 9 % 2, extent[t % 5], extent[(t / 3 + 1) % 5],
                         t % 2 ? 136 : 24 + t % 3);
        }
        for (int i = 0; i < 2; i++)
            product_typed(ctx, 5 * tile + 7 * i, extent[(tile + i) % 5], extent[(tile / 2 + i) % 5],
                          i ? 72 : 40 + tile % 3);
    }
    force_tile(ctx, 0);
    for (int kind = -1; kind < 8; kind++) product_load(ctx, kind, 0, 64, 64, 96);
}
