// Running sums: threads that go along the places, as many terms ahead as they load, with four lanes
// where there are enough lines; blocks that do, whose threads have a vector of places or one.

// y[b,i,j] = f(sum(r) x[b,r,j] w[b,r] [r <= i + c]), of `m` places and `n` terms.
static void running(ein_ctx *ctx, int64_t b, int64_t m, int64_t n, int64_t lines, int64_t c,
                    ein__dtype t) {
    const int64_t *box = DIMS(b, m, lines, n);
    ein__val x = input(ctx, t, 3, DIMS(b, n, lines)), w = input(ctx, EIN__F32, 2, DIMS(b, n));
    ein__ix h = it(ctx, 0, b), i = it(ctx, 1, m), j = it(ctx, 2, lines), r = it(ctx, 3, n);
    ein__ix behind = ADDC(ADD(i, SCALE(r, -1)), c);
    ein__ex body = BIN(MUL, READ(w, 0, h, r), READ(x, 0, h, r, j));
    body = ein__ex_when(ctx, behind, m + n, false, body);
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 3, 1, box, body);
    ein__running p;
    ein__ex term;
    const int64_t *stride = ctx->plan.layout[sum.i].stride;
    if (!ein__runs_along(ctx, ein__scope_of(ctx, sum), stride, &p, &term)) exit(1);
    CHECK("running", EIN__K_REDUCE, sum);
    layout(ctx, sum, "102", 0, 4);
    CHECK("running_strided", EIN__K_REDUCE, sum);
    ein__ex y = BIN(ADD, READ(sum, 0, h, i, j), READ(w, 0, h, it(ctx, 1, m)));
    if (m > n) y = READ(sum, 0, h, i, j);
    ein__val map = define(ctx, t, EIN__R_NONE, 3, 0, box, BIN(MAX, UN(TANH, y), NUM(-0.5)));
    CHECK("running_map", EIN__K_REDUCE, sum, map);
}

// y[b,i] = f(sum(r) x[b,r] w[r] [r <= i + c]), of `m` places and `n` terms.
static void running_line(ein_ctx *ctx, int64_t b, int64_t m, int64_t n, int64_t c, ein__dtype t) {
    const int64_t *box = DIMS(b, m, n);
    ein__val x = input(ctx, t, 2, DIMS(b, n)), w = input(ctx, EIN__F32, 1, DIMS(n));
    ein__ix h = it(ctx, 0, b), i = it(ctx, 1, m), r = it(ctx, 2, n);
    ein__ix behind = ADDC(ADD(i, SCALE(r, -1)), c);
    ein__ex body = BIN(MUL, READ(w, 0, r), READ(x, 0, h, r));
    body = ein__ex_when(ctx, behind, m + n, false, body);
    ein__val sum = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, box, body);
    ein__running p;
    ein__ex term;
    const int64_t *stride = ctx->plan.layout[sum.i].stride;
    if (!ein__runs_lines(ctx, ein__scope_of(ctx, sum), stride, &p, &term)) exit(1);
    CHECK("running_line", EIN__K_REDUCE, sum);
    layout(ctx, sum, "01", 4, 4);
    CHECK("running_line_apart", EIN__K_REDUCE, sum);
    ein__ex y = BIN(ADD, READ(sum, 0, h, i), READ(x, 0, h, it(ctx, 1, m)));
    if (m > n) y = READ(sum, 0, h, i);
    ein__val map = define(ctx, t, EIN__R_NONE, 2, 0, box, BIN(MAX, UN(TANH, y), NUM(-0.5)));
    CHECK("running_line_map", EIN__K_REDUCE, sum, map);
}

static void running_lines(ein_ctx *ctx) {
    static const int64_t places[] = {256, 257, 1023, 1024, 1028, 2051};
    for (int i = 0; i < COUNT(places); i++) {
        ein__dtype t = i % 3 == 1 ? EIN__F16 : i % 3 == 2 ? EIN__BF16 : EIN__F32;
        running_line(ctx, 1 + i % 3, places[i], places[i], -(i % 3), t);
    }
    running_line(ctx, 2, 1032, 1024, -9, EIN__F32);
    running_line(ctx, 1, 260, 700, 0, EIN__F16);
}

static void running_sums(ein_ctx *ctx) {
    static const int64_t places[] = {2, 3, 4, 16, 17, 31};
    for (int i = 0; i < COUNT(places); i++) {
        int64_t n = places[i];
        running(ctx, 1 + i % 2, n, n, 33 + i, -(i % 3), i % 3 == 2 ? EIN__F16 : EIN__F32);
        running(ctx, 2, n + i, n, 12, -(i + 1), EIN__F32);
    }
    running(ctx, 1, 3, 3, 65540, 0, EIN__F32);
    running(ctx, 2, 2, 2, 32768, -1, EIN__BF16);
}
