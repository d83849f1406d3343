// Windows over an image whose threads take strips of columns and rows: the extents around vectors,
// windows that lie beside the image, every stride and dilation of the template. The GPU of one SM
// has enough threads for strips at these sizes.

typedef struct strip_case {
    int64_t h, w, r, s, stride, dilation, top, left;
} strip_case;

static void strip(ein_ctx *ctx, strip_case k, ein__dtype from, ein__dtype to, int gap, int offset) {
    int64_t oh = (k.h + 2 * k.top - k.dilation * (k.r - 1) - 1) / k.stride + 1;
    int64_t ow = (k.w + 2 * k.left - k.dilation * (k.s - 1) - 1) / k.stride + 1;
    // As many channels as make threads enough.
    int64_t c = 600 / (oh * ow) + 5;
    ein__val x = input(ctx, from, 3, DIMS(c, k.h, k.w)), w = input(ctx, from, 3, DIMS(c, k.r, k.s));
    ein__val b = input(ctx, EIN__F32, 1, DIMS(c)), z = input(ctx, from, 3, DIMS(c, oh, ow));
    ein__ix i = it(ctx, 0, c), row = it(ctx, 1, oh), col = it(ctx, 2, ow), r = it(ctx, 3, k.r),
            s = it(ctx, 4, k.s);
    ein__ix ih = ADDC(ADD(SCALE(row, k.stride), SCALE(r, k.dilation)), -k.top),
            iw = ADDC(ADD(SCALE(col, k.stride), SCALE(s, k.dilation)), -k.left);
    const int64_t *box = DIMS(c, oh, ow, k.r, k.s);
    const bool aligned = !gap && !offset;
    layout(ctx, x, NULL, gap, offset);
    if (!aligned) layout(ctx, z, NULL, 2, 2);
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 3, 2, box,
                          BIN(MUL, READ(x, 0, i, ih, iw), READ(w, 0, i, r, s)));
    if (to == EIN__F32) CHECK("strip", EIN__K_REDUCE, sum);
    ein__ex y =
        BIN(ADD, READ(sum, 0, i, row, col), BIN(ADD, READ(b, 0, i), READ(z, 0, i, row, col)));
    ein__val relu6 = define(ctx, to, EIN__R_NONE, 3, 0, box, BIN(MIN, UN(RELU, y), NUM(6)));
    CHECK("strip_residual", EIN__K_REDUCE, sum, relu6);
    if (!aligned) layout(ctx, relu6, NULL, 1, 4);
    if (!aligned) CHECK("strip_residual", EIN__K_REDUCE, sum, relu6);
    ein__val most = define(ctx, EIN__F32, EIN__R_MAX, 3, 2, box, READ(x, -INFINITY, i, ih, iw));
    if (to == EIN__F32) CHECK("strip_max", EIN__K_REDUCE, most);
}

// The same with channels last, of which a thread has four; filters with theirs first or last.
static void strip_last(ein_ctx *ctx, strip_case k, int64_t odd, ein__dtype type, bool beside,
                       int gap) {
    int64_t oh = (k.h + 2 * k.top - k.dilation * (k.r - 1) - 1) / k.stride + 1;
    int64_t ow = (k.w + 2 * k.left - k.dilation * (k.s - 1) - 1) / k.stride + 1;
    int64_t c = (2400 / (oh * ow) + 4) / 4 * 4 + odd;
    ein__val x = input(ctx, type, 3, DIMS(k.h, k.w, c)), b = input(ctx, EIN__F32, 1, DIMS(c));
    ein__val w =
        beside ? input(ctx, type, 3, DIMS(k.r, k.s, c)) : input(ctx, type, 3, DIMS(c, k.r, k.s));
    ein__ix row = it(ctx, 0, oh), col = it(ctx, 1, ow), i = it(ctx, 2, c), r = it(ctx, 3, k.r),
            s = it(ctx, 4, k.s);
    ein__ix ih = ADDC(ADD(SCALE(row, k.stride), SCALE(r, k.dilation)), -k.top),
            iw = ADDC(ADD(SCALE(col, k.stride), SCALE(s, k.dilation)), -k.left);
    const int64_t *box = DIMS(oh, ow, c, k.r, k.s);
    if (gap) layout(ctx, x, NULL, gap, gap);
    ein__ex tap = beside ? READ(w, 0, r, s, i) : READ(w, 0, i, r, s);
    ein__val sum =
        define(ctx, EIN__F32, EIN__R_SUM, 3, 2, box, BIN(MUL, READ(x, 0, ih, iw, i), tap));
    CHECK("strip_last", EIN__K_REDUCE, sum);
    ein__ex y = BIN(ADD, READ(sum, 0, row, col, i), READ(b, 0, i));
    ein__val relu = define(ctx, type, EIN__R_NONE, 3, 0, box, UN(RELU, BIN(MIN, y, NUM(6))));
    CHECK("strip_last_map", EIN__K_REDUCE, sum, relu);
    ein__val most = define(ctx, EIN__F32, EIN__R_MAX, 3, 2, box, READ(x, -INFINITY, ih, iw, i));
    CHECK("strip_last_max", EIN__K_REDUCE, most);
}

static void strips(ein_ctx *ctx) {
    static const strip_case cases[] = {
        {9, 16, 3, 3, 1, 1, 1, 1},  {7, 7, 3, 3, 1, 1, 1, 1},    {14, 14, 3, 3, 1, 1, 1, 1},
        {14, 14, 3, 3, 2, 1, 1, 1}, {16, 24, 3, 3, 2, 1, 1, 1},  {5, 49, 5, 5, 1, 1, 2, 2},
        {12, 20, 3, 3, 1, 2, 2, 2}, {1, 2001, 1, 3, 1, 1, 0, 1}, {13, 12, 3, 1, 1, 1, 1, 0},
        {9, 9, 2, 2, 2, 1, 0, 0},   {8, 8, 7, 7, 1, 1, 3, 3},    {3, 8, 3, 3, 1, 1, 3, 5},
        {17, 20, 2, 2, 1, 3, 0, 0}, {11, 16, 3, 3, 3, 1, 1, 1},  {3, 3, 3, 3, 1, 1, 1, 1}};
    const ein__gpu *gpu = ctx->gpu;
    ctx->gpu = ein__gpu_find("nano");
    for (int i = 0; i < COUNT(cases); i++) {
        strip(ctx, cases[i], EIN__F32, EIN__F32, i % 3 == 2 ? 3 : 0, i % 3 == 2);
        strip(ctx, cases[i], EIN__F16, EIN__F16, 0, 0);
        if (i % 3 == 0) strip(ctx, cases[i], EIN__BF16, EIN__BF16, 0, 0);
        if (i % 4 == 0) strip(ctx, cases[i], EIN__F16, EIN__F32, i % 8 ? 3 : 0, i % 8 != 0);
        if (i % 4 == 2) strip(ctx, cases[i], EIN__F32, EIN__F16, i % 8 == 2 ? 0 : 3, i % 8 != 2);
    }
    for (int i = 0; i < COUNT(cases); i++) {
        strip_last(ctx, cases[i], 0, i % 3 == 1 ? EIN__F16 : EIN__F32, i % 2, i % 4 == 3 ? 4 : 0);
        // Channels that are no vectors, or lie where none begins.
        if (i % 5 == 0) strip_last(ctx, cases[i], i % 2 ? 2 : 0, EIN__F32, true, i % 2 ? 0 : 2);
    }
    // Each alone of what keeps an image from being loaded by vectors though the result has them:
    // its place, its rows' distance, their length.
    const strip_case whole = {5, 24, 3, 3, 1, 1, 1, 1}, cut = {5, 14, 3, 3, 1, 1, 1, 2};
    strip(ctx, whole, EIN__F32, EIN__F32, 0, 1);
    strip(ctx, whole, EIN__F32, EIN__F32, 2, 0);
    strip(ctx, cut, EIN__F32, EIN__F32, 2, 0);
    ctx->gpu = gpu;
}
