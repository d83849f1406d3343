// Eight halves at a time: maps with operands of both types, padding, rows; and where the extents or
// addresses leave only four or one. The GPU of one SM has enough threads at these sizes.

static void halves_map(ein_ctx *ctx, int64_t a, int64_t b, ein__dtype other, int gap, int offset) {
    ein__val x = input(ctx, EIN__F16, 2, DIMS(a, b)), z = input(ctx, other, 2, DIMS(a, b)),
             w = input(ctx, EIN__F32, 1, DIMS(b)), c = input(ctx, other, 1, DIMS(a));
    ein__ix i = it(ctx, 0, a), j = it(ctx, 1, b);
    ein__ex sum = BIN(ADD, READ(x, 0, i, j), BIN(ADD, READ(w, 0, j), READ(c, 0, i)));
    ein__val y = define(ctx, EIN__F16, EIN__R_NONE, 2, 0, DIMS(a, b),
                        BIN(ADD, BIN(MUL, READ(z, 0, i, j), NUM(0.5)), UN(RELU, sum)));
    layout(ctx, z, NULL, gap, offset);
    CHECK("halves", EIN__K_MAP, y);
    layout(ctx, y, NULL, gap, offset);
    CHECK("halves_strided", EIN__K_MAP, y);
    ein__val p = define(ctx, EIN__F16, EIN__R_NONE, 2, 0, DIMS(a + 3, b + 16),
                        READ(x, -0.5, ADDC(it(ctx, 0, a + 3), -1), ADDC(it(ctx, 1, b + 16), -8)));
    CHECK("halves_pad", EIN__K_MAP, p);
}

static void halves_row(ein_ctx *ctx, int64_t a, int64_t b) {
    ein__val x = input(ctx, EIN__F16, 2, DIMS(a, b)), w = input(ctx, EIN__F32, 1, DIMS(b));
    ein__ix i = it(ctx, 0, a), j = it(ctx, 1, b);
    const int64_t *box = DIMS(a, b);
    ein__ex read = READ(x, 0, i, j);
    ein__val most = define(ctx, EIN__F32, EIN__R_MAX, 1, 1, box, read);
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 1, 1, box, BIN(SUB, read, READ(most, 0, i)));
    ein__val y = define(ctx, EIN__F16, EIN__R_NONE, 2, 0, box,
                        BIN(ADD, BIN(MUL, READ(w, 0, j), BIN(SUB, read, READ(most, 0, i))),
                            BIN(DIV, READ(sum, 0, i), NUM(64))));
    CHECK("halves_row", EIN__K_ROW, most, sum, y);
    weigh(ctx, w);
    CHECK("early_halves", EIN__K_ROW, most, sum, y);
    arrsetlen(ctx->plan.buffer, 0);
}

// Functions of what is stored as halves in FP16 mode, and of what is also stored as f32.
static void halves_functions(ein_ctx *ctx, int64_t a, int64_t b) {
    static const ein__fn fn[] = {EIN__ERF, EIN__EXP, EIN__SIGMOID, EIN__TANH};
    const int64_t *box = DIMS(a, b);
    ein__val x = input(ctx, EIN__F16, 2, box), z = input(ctx, EIN__F32, 2, box);
    ein__ix i = it(ctx, 0, a), j = it(ctx, 1, b);
    ein__ex wide = BIN(MUL, READ(x, 0, i, j), BIN(SUB, NUM(3), READ(z, 0, i, j)));
    ein_math math = ctx->desc.math;
    ctx->desc.math = EIN_MATH_FP16;
    for (int k = 0; k < COUNT(fn); k++) {
        ein__ex y = ein__ex_unary(ctx, fn[k], wide);
        ein__ex of = BIN(MUL, BIN(ADD, NUM(1), y), READ(x, 0, i, j));
        CHECK("halves_function", EIN__K_MAP, define(ctx, EIN__F16, EIN__R_NONE, 2, 0, box, of));
        CHECK("halves_wide", EIN__K_MAP, define(ctx, EIN__F32, EIN__R_NONE, 2, 0, box, of));
    }
    ctx->desc.math = math;
}

static void halves(ein_ctx *ctx) {
    static const int64_t extent[] = {1, 8, 12, 24, 49, 256, 2001, 2048};
    const ein__gpu *gpu = ctx->gpu;
    ctx->gpu = ein__gpu_find("nano");
    for (int k = 0; k < COUNT(extent); k++) {
        int64_t b = extent[k], a = 2300 / b + 2;
        halves_map(ctx, a, b, EIN__F16, k % 3 == 1 ? 8 : 0, k % 3 == 1 ? 8 : 0);
        halves_map(ctx, a, b, EIN__F32, k % 2 ? 4 : 0, k % 2 ? 4 : 1);
        halves_row(ctx, 3, b);
        halves_row(ctx, 2, b + 256);
        halves_functions(ctx, a, b);
    }
    halves_row(ctx, 2, 10000);
    ctx->gpu = gpu;
}
