// Reductions whose warps pick terms: numbers of terms where turns and lists end, alone or shared by
// the warps of a block; columns that are vectors or not, fill lanes or warps, lie in one dimension
// or two; all terms of one row, of few and of many; places that are affine or read at digits.

typedef struct picking {
    int64_t batch, rows, columns, terms;
    ein__red how;
    ein__dtype type, at;
    int spread;  // rows that terms are of
} picking;

static int picked_by[2];  // cases whose warps have a row each, or share one

static void count_picks(ein_ctx *ctx, ein__val v) {
    ein__step step = {.kind = EIN__K_REDUCE, .nval = 1, .val = {v}, .out = v};
    ein__picks p;
    if (ein__step_picks(ctx, &step, &p)) picked_by[p.warps > 1]++;
}

// y[b,n,c,d] = sum(e) select(2 at[b,e] + 1 == 2 n + 1, u[b,e,c,d], nothing).
static void one_pick(ein_ctx *ctx, const picking *p) {
    int64_t deep = p->columns % 3 ? 1 : 3, wide = p->columns / deep;
    ein__ix b = it(ctx, 0, p->batch), n = it(ctx, 1, p->rows), c = it(ctx, 2, deep),
            d = it(ctx, 3, wide), e = it(ctx, 4, p->terms);
    ein__val at = input(ctx, p->at, 2, DIMS(p->batch, p->terms)),
             u = input(ctx, p->type, 4, DIMS(p->batch, p->terms, deep, wide));
    for (int64_t i = 0; i < p->batch * p->terms; i++)
        contents(at)[i] = (double)(i * 7 % 11 * i % p->spread);
    ein__ex none = NUM(p->how == EIN__R_SUM ? 0 : p->how == EIN__R_MAX ? -HUGE_VAL : HUGE_VAL);
    bool integer = p->type > EIN__BF16;
    if (integer) none = NUM(0);
    ein__ex place = BIN(ADD, BIN(MUL, READ(at, 0, b, e), NUM(2)), NUM(1));
    ein__ex row = ein__ex_idx(ctx, ADDC(SCALE(n, 2), 1));
    ein__ex body = ein__ex_select(ctx, EIN__EQ, place, row, READ(u, 0, b, e, c, d), none);
    const int64_t *box = DIMS(p->batch, p->rows, deep, wide, p->terms);
    ein__val v = define(ctx, integer ? p->type : EIN__F32, p->how, 4, 1, box, body);
    count_picks(ctx, v);
    CHECK("picks", EIN__K_REDUCE, v);
    ein__ex y = BIN(MAX, BIN(MIN, READ(v, 0, b, n, c, d), NUM(40)), NUM(-40));
    ein__val m = define(ctx, p->type, EIN__R_NONE, 4, 0, box, BIN(ADD, y, NUM(1)));
    CHECK("picks_map", EIN__K_REDUCE, v, m);
    layout(ctx, v, "0123", 0, 1);
    CHECK("picks_misaligned", EIN__K_REDUCE, v);
    layout(ctx, v, "1023", 4, 0);
    CHECK("picks_apart", EIN__K_REDUCE, v);
}

// Terms of two iterators, of which places are read where others say.
static void picks_apart(ein_ctx *ctx, int64_t rows, int64_t first, int64_t second, bool held) {
    ein__ix n = it(ctx, 0, rows), c = it(ctx, 1, 8), f = it(ctx, 2, first), s = it(ctx, 3, second);
    ein__val at = input(ctx, EIN__I64, 2, DIMS(first, second)),
             from = input(ctx, EIN__I32, 2, DIMS(first, second)),
             u = input(ctx, EIN__F32, 2, DIMS(17, 8)), row = input(ctx, EIN__I64, 1, DIMS(rows));
    for (int64_t i = 0; i < first * second; i++) {
        contents(at)[i] = (double)(i * i % (rows + 1));
        contents(from)[i] = (double)(i * 5 % 19) - 1;
    }
    for (int64_t i = 0; i < rows; i++) contents(row)[i] = (double)(rows - i);
    ein__ix which = ein__ix_gather(ctx, READ(from, 0, f, s));
    ein__ex number = held ? READ(row, 0, n) : ein__ex_idx(ctx, n);
    ein__ex body = ein__ex_select(ctx, EIN__EQ, number, READ(at, 0, f, s),
                                  BIN(MUL, READ(u, 0.5, which, c), NUM(2)), NUM(0));
    ein__val v = define(ctx, EIN__F32, EIN__R_SUM, 2, 2, DIMS(rows, 8, first, second), body);
    count_picks(ctx, v);
    CHECK("picks_gather", EIN__K_REDUCE, v);
}

static void picks(ein_ctx *ctx) {
    static const int64_t terms[] = {31, 33, 255, 256, 257, 300, 513, 2047, 2049, 2600};
    static const int64_t columns[] = {4, 64, 3, 31, 128, 132, 33, 12, 260};
    static const ein__dtype type[] = {EIN__F32, EIN__F16, EIN__F32, EIN__I64, EIN__I32, EIN__BF16};
    static const ein__red how[] = {EIN__R_SUM, EIN__R_MAX, EIN__R_SUM, EIN__R_MIN};
    static const int spread[] = {1, 3, 40};
    for (int i = 0; i < 2 * COUNT(terms); i++) {
        picking p = {.batch = 1 + i % 3 % 2,
                     .rows = i % 2 ? 9 + i : 300,
                     .columns = columns[i % COUNT(columns)],
                     .terms = terms[i / 2],
                     .how = how[i % COUNT(how)],
                     .type = type[i % COUNT(type)],
                     .at = i % 4 < 2 ? EIN__I64 : EIN__I32,
                     .spread = spread[i % COUNT(spread)]};
        if (p.type > EIN__BF16) p.how = EIN__R_SUM;
        one_pick(ctx, &p);
    }
    picks_apart(ctx, 40, 7, 60, false);
    picks_apart(ctx, 33, 3, 170, true);
    if (picked_by[0] < 3 || picked_by[1] < 3) {
        fprintf(stderr, "picks: %d rows by a warp, %d by a block\n", picked_by[0], picked_by[1]);
        exit(1);
    }
}
