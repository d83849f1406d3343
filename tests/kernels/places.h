// Places of extrema at the sizes where warps, blocks, columns and vectors begin and end: terms side
// by side or outputs, one block or several for an output, rows with ties, NaN and infinities, of
// floats, halves and integers, the first and the last place, with maps in front and behind.

typedef struct placing {
    ein__dtype type, result;
    bool along, max, last, keep;
    int parts;
} placing;

// A row of NaN alone, one of what no value is worse than, one with both, where there are so many.
static void spoil(ein__val u, const placing *p, int64_t outputs, int64_t terms) {
    double *c = contents(u), worst = p->max ? -INFINITY : INFINITY;
    for (int64_t i = 0; i < outputs && p->type == EIN__F32; i++)
        for (int64_t k = 0; k < terms && i % 8 < 4; k++) {
            double *x = &c[p->along ? i * terms + k : k * outputs + i];
            if (i % 8 == 1) *x = (double)NAN;
            if (i % 8 == 2) *x = worst;
            if (i % 8 == 3) *x = k % 3 ? (double)NAN : worst;
        }
}

static void one_place(ein_ctx *ctx, const placing *p, int64_t outputs, int64_t terms) {
    ein__ix i = it(ctx, 0, outputs), k = it(ctx, 1, terms), r = it(ctx, p->keep ? 2 : 1, terms);
    ein__val u = p->along ? input(ctx, p->type, 2, DIMS(outputs, terms))
                          : input(ctx, p->type, 2, DIMS(terms, outputs));
    spoil(u, p, outputs, terms);
    ein__ex x = p->along ? READ(u, 0, i, k) : READ(u, 0, k, i);
    ein__ex z = p->along ? READ(u, 0, i, r) : READ(u, 0, r, i);
    if (p->keep) x = BIN(SUB, NUM(1), x), z = BIN(SUB, NUM(1), z);  // a map in front
    ein__dtype inner = p->type > EIN__BF16 ? EIN__I64 : EIN__F32;
    ein__val m =
        define(ctx, inner, p->max ? EIN__R_MAX : EIN__R_MIN, 1, 1, DIMS(outputs, terms), x);
    ein__red how = p->last ? EIN__R_MAX : EIN__R_MIN;
    ein__ex body = ein__ex_select(ctx, EIN__EQ, z, READ(m, 0, i), ein__ex_idx(ctx, SCALE(r, 3)),
                                  NUM(p->last ? -1 : 3 * (double)terms));
    ein__val y = p->keep ? define(ctx, p->result, how, 2, 1, DIMS(outputs, 1, terms), body)
                         : define(ctx, p->result, how, 1, 1, DIMS(outputs, terms), body);
    forced_parts = p->parts;
    CHECK("place", EIN__K_PLACE, m, y);
    if (!p->keep) {
        ein__ex after =
            BIN(ADD, BIN(MUL, READ(y, 0, i), NUM(p->result > EIN__BF16 ? 2 : 0.5)), NUM(1));
        ein__val f = define(ctx, p->result, EIN__R_NONE, 1, 0, DIMS(outputs), after);
        CHECK("place_map", EIN__K_PLACE, m, y, f);
    }
    forced_parts = 0;
}

static void places(ein_ctx *ctx) {
    static const int64_t outputs[] = {1, 3, 8, 31, 32, 33, 65};
    static const int64_t terms[] = {2, 5, 31, 32, 33, 260, 1024, 2049, 4100};
    static const ein__dtype type[] = {EIN__F32, EIN__F16, EIN__F32, EIN__I32, EIN__F32, EIN__I64};
    static const ein__dtype result[] = {EIN__I64, EIN__I32, EIN__F32, EIN__I64, EIN__I64};
    static const int parts[] = {0, 2, 0, 3, 16, 0, 32};
    int turn = 0;
    for (int o = 0; o < COUNT(outputs); o++)
        for (int t = 0; t < COUNT(terms); t++, turn++) {
            int64_t most = ein__gpu_of(ctx)->sms * EIN__SHARE_RESIDENT;
            placing p = {.type = type[turn % COUNT(type)],
                         .result = result[turn % COUNT(result)],
                         .along = turn % 7 % 2 == 0,
                         .max = turn % 4 < 2,
                         .last = turn % 3 == 1,
                         .keep = turn % 5 == 3,
                         .parts = terms[t] < 32 ? 0 : parts[turn % COUNT(parts)]};
            while (p.along && outputs[o] * p.parts > most) p.parts /= 2;
            one_place(ctx, &p, outputs[o], terms[t]);
        }
    // many rows: a warp for each, or a thread where they are short or neighbours
    for (int k = 0; k < 3; k++)
        one_place(ctx, &(placing){.type = type[k], .result = EIN__I32, .along = k < 2, .max = k},
                  EIN__SHARED_OUTPUTS + 3, k ? 33 : 3);
    one_place(ctx, &(placing){EIN__F32, EIN__I64, true, true, false, false, EIN__SHARE_PARTS}, 2,
              4100);
    one_place(ctx, &(placing){EIN__I32, EIN__I64, false, false, true, false, EIN__SHARE_PARTS}, 40,
              4100);
}
