// Reductions whose terms several blocks share, at the numbers of outputs where groups of 32 end,
// with fewer terms than there are threads as well.

static void one_share(ein_ctx *ctx, int parts, ein__red how, int64_t outputs, int64_t terms,
                      bool along, ein__dtype type) {
    const int64_t box[] = {outputs, terms};
    ein__ix i = it(ctx, 0, outputs), k = it(ctx, 1, terms);
    ein__val u = along ? input(ctx, type, 2, DIMS(outputs, terms))
                       : input(ctx, type, 2, DIMS(terms, outputs));
    ein__ex x = along ? READ(u, 0, i, k) : READ(u, 0, k, i);
    bool integer = type > EIN__BF16;
    if (how == EIN__R_PROD) x = BIN(MAX, BIN(MIN, x, NUM(1)), NUM(-1));
    ein__val v = define(ctx, integer ? type : EIN__F32, how, 1, 1, box, x);
    forced_parts = parts;
    CHECK("share", EIN__K_REDUCE, v);
    ein__val m = define(ctx, type, EIN__R_NONE, 1, 0, DIMS(outputs),
                        BIN(ADD, BIN(MUL, READ(v, 0, i), NUM(integer ? 3 : 0.25)), NUM(1)));
    CHECK("share_map", EIN__K_REDUCE, v, m);
    forced_parts = 0;
}

// A sum and the sum of squares in one pass, apart or with a map that makes other two of both.
static void one_pair(ein_ctx *ctx, int parts, int64_t outputs, int64_t terms, bool along,
                     ein__dtype type) {
    const int64_t box[] = {2, outputs, terms};
    ein__ix j = it(ctx, 0, 2), i = it(ctx, 1, outputs), k = it(ctx, 2, terms);
    ein__val u = along ? input(ctx, type, 2, DIMS(outputs, terms))
                       : input(ctx, type, 2, DIMS(terms, outputs));
    ein__ex x = along ? READ(u, 0, i, k) : READ(u, 0, k, i);
    ein__ex either = BIN(ADD, ein__ex_when(ctx, j, 1, false, x),
                         ein__ex_when(ctx, ADDC(j, -1), 1, false, UN(SQUARE, x)));
    ein__val v = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, box, either);
    forced_parts = parts;
    CHECK("pair", EIN__K_REDUCE, v);
    ein__ix zero = ein__ix_const(ctx, 0), one = ein__ix_const(ctx, 1);
    ein__ex a = READ(v, 0, zero, i), b = READ(v, 0, one, i);
    either = BIN(ADD, ein__ex_when(ctx, j, 1, false, BIN(SUB, b, a)),
                 ein__ex_when(ctx, ADDC(j, -1), 1, false, BIN(MUL, a, NUM(0.5))));
    ein__val m = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, box, either);
    layout(ctx, m, "10", 0, 0);
    CHECK("pair_map", EIN__K_REDUCE, v, m);
    forced_parts = 0;
}

// A thread, a warp, a block or a column for a pair, and several blocks of these.
static void pairs(ein_ctx *ctx) {
    static const int64_t outputs[] = {1, 5, 33, 600};
    static const int64_t terms[] = {9, 31, 64, 260, 2052};
    for (int o = 0; o < COUNT(outputs); o++)
        for (int t = 0; t < COUNT(terms); t++) {
            ein__dtype type = (o + t) % 3 == 1 ? EIN__F16 : EIN__F32;
            one_pair(ctx, 0, outputs[o], terms[t], t % 2, type);
            one_pair(ctx, terms[t] > 64 && outputs[o] < 65 ? 3 : 0, outputs[o], terms[t], o % 2,
                     type);
        }
    one_pair(ctx, 0, EIN__SHARED_OUTPUTS + 4, 33, false, EIN__F32);
}

// Few sums of terms with a divisor and a function in common, first or last of the result's
// dimensions, apart or with a map behind.
static void one_together(ein_ctx *ctx, int parts, int64_t outputs, int64_t sums, int64_t terms,
                         bool first) {
    const int64_t box[] = {first ? sums : outputs, first ? outputs : sums, terms};
    ein__ix at[2] = {it(ctx, 0, box[0]), it(ctx, 1, box[1])}, k = it(ctx, 2, terms);
    ein__ix d = at[!first], i = at[first];
    ein__val u = input(ctx, EIN__F32, 2, DIMS(terms, sums));
    ein__val w = first ? input(ctx, EIN__F32, 2, DIMS(terms, outputs))
                       : input(ctx, EIN__F32, 2, DIMS(outputs, terms));
    ein__ex far = UN(EXP, first ? READ(w, 0, k, i) : READ(w, 0, i, k));
    ein__ex x = BIN(DIV, BIN(MUL, UN(SQUARE, READ(u, 0, k, d)), NUM(0.5)), BIN(ADD, far, NUM(1)));
    ein__val v = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, box, x);
    forced_parts = parts;
    CHECK("together", EIN__K_REDUCE, v);
    ein__val m = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, box,
                        BIN(ADD, BIN(MUL, READ(v, 0, at[0], at[1]), NUM(0.25)), NUM(1)));
    layout(ctx, m, "10", 0, 0);
    CHECK("together_map", EIN__K_REDUCE, v, m);
    forced_parts = 0;
}

// A thread, a warp, a block or a column for such sums, and several blocks of these.
static void togethers(ein_ctx *ctx) {
    static const int64_t outputs[] = {1, 5, 33, 600}, terms[] = {65, 260, 2052};
    for (int o = 0; o < COUNT(outputs); o++)
        for (int t = 0; t < COUNT(terms); t++)
            for (int sums = 2; sums <= EIN__SUMS; sums++) {
                bool shared = outputs[o] < 65 && (o + t + sums) % 2;
                one_together(ctx, shared ? 3 : 0, outputs[o], sums, terms[t], (o + t) % 2);
            }
    one_together(ctx, 0, EIN__SHARED_OUTPUTS + 4, 3, 66, false);
}

// Rows of many outputs, which are shorter than a warp: lanes on both sides of its parts, outputs
// that fill no warp.
static void short_rows(ein_ctx *ctx) {
    static const int64_t terms[] = {7, 8, 15, 16, 31};
    static const ein__red how[] = {EIN__R_SUM, EIN__R_MAX, EIN__R_MIN, EIN__R_PROD, EIN__R_SUM};
    static const ein__dtype type[] = {EIN__F32, EIN__F32, EIN__F16, EIN__I64, EIN__F32};
    for (int k = 0; k < COUNT(terms); k++)
        one_share(ctx, 0, how[k], EIN__SHARED_OUTPUTS + 1 + k, terms[k], true, type[k]);
    one_pair(ctx, 0, EIN__SHARED_OUTPUTS + 3, 13, true, EIN__F32);
}

static void shares(ein_ctx *ctx) {
    static const int64_t outputs[] = {1, 3, 8, 31, 32, 33, 65};
    static const int64_t terms[] = {32, 33, 257, 1024, 2049, 4100};
    static const int parts[] = {2, 3, 16, 32, 64};
    int turn = 0;
    short_rows(ctx);
    for (int o = 0; o < COUNT(outputs); o++)
        for (int t = o % 2; t < COUNT(terms); t += 2, turn++) {
            int64_t most = ein__gpu_of(ctx)->sms * EIN__SHARE_RESIDENT;
            int p = parts[turn % COUNT(parts)];
            bool along = turn % 2;
            ein__red how = turn % 7 == 3 ? EIN__R_MIN : turn % 3 ? EIN__R_SUM : EIN__R_MAX;
            ein__dtype type = turn % 5 == 2 ? EIN__F16 : turn % 5 == 4 ? EIN__I32 : EIN__F32;
            if (type == EIN__I32 && turn % 2) how = EIN__R_PROD;
            while (along && outputs[o] * p > most) p /= 2;
            one_share(ctx, p, how, outputs[o], terms[t], along, type);
        }
    one_share(ctx, EIN__SHARE_PARTS, EIN__R_MIN, 2, 4100, true, EIN__F32);
    one_share(ctx, EIN__SHARE_PARTS, EIN__R_SUM, 40, 4100, false, EIN__F32);
    for (int how = EIN__R_SUM; how <= EIN__R_MIN; how++)
        for (int k = 0; k < 4; k++)
            one_share(ctx, k < 2 ? 0 : 8, (ein__red)how, 5, k < 2 ? 1030 : 4100, k % 2,
                      k == 1 ? EIN__I64 : EIN__I32);
}
