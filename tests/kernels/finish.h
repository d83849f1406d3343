// Maps that finish the sums of a reduction that they read at some places each: one sum to four, of
// a thread, a warp and its parts, a block or a column; with a map between that is not stored, and
// with a second map behind the first.

static void one_finish(ein_ctx *ctx, int places, int64_t rows, int64_t size, int64_t terms,
                       bool along, bool between, ein__dtype type) {
    int64_t all = places * size;
    const int64_t box[] = {rows, all, terms}, small[] = {rows, size};
    ein__ix n = it(ctx, 0, rows), j = it(ctx, 1, all), k = it(ctx, 2, terms), d = it(ctx, 1, size);
    ein__val x = input(ctx, EIN__F32, 2, DIMS(rows, terms)), b = input(ctx, EIN__F32, 1, DIMS(all));
    ein__val w =
        along ? input(ctx, type, 2, DIMS(all, terms)) : input(ctx, type, 2, DIMS(terms, all));
    ein__ex term = BIN(MUL, READ(x, 0, n, k), along ? READ(w, 0, j, k) : READ(w, 0, k, j));
    ein__val v = define(ctx, EIN__F32, EIN__R_SUM, 2, 1, box, term);
    ein__val g = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, box,
                        BIN(ADD, BIN(MUL, READ(v, 0, n, j), NUM(0.5)), READ(b, 0, j)));
    ein__val of = between ? g : v;
    ein__ex first = READ(of, 0, n, d), second;
    for (int p = 1; p < places; p++)
        first = BIN(ADD, first, BIN(MUL, READ(of, 0, n, ADDC(d, p * size)), NUM(p % 2 ? -2 : 3)));
    ein__val m = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, small, first);
    second = BIN(SUB, READ(m, 0, n, d), READ(of, 0, n, ADDC(d, (places - 1) * size)));
    ein__val last = define(ctx, EIN__F32, EIN__R_NONE, 2, 0, small,
                           BIN(ADD, second, READ(b, 0, ADDC(d, (places / 2) * size))));
    layout(ctx, last, "10", 0, 0);
    ein__step head = {0}, peer = {.kind = EIN__K_MAP, .nval = 1, .val = {last}, .out = last};
    forced_sums = &head;
    for (int two = 0; two < 2; two++) {
        if (two) layout(ctx, last, NULL, 0, 4);
        forced_peer = two ? &peer : NULL;
        if (between) CHECK("finish_map", EIN__K_REDUCE, v, g, m);
        else CHECK("finish", EIN__K_REDUCE, v, m);
    }
    forced_sums = forced_peer = NULL;
}

static void finishes(ein_ctx *ctx) {
    static const int64_t sizes[] = {1, 5, 8, 33};
    static const int64_t terms[] = {3, 16, 32, 36, 260, 2052};
    int turn = 0;
    for (int s = 0; s < COUNT(sizes); s++)
        for (int t = 0; t < COUNT(terms); t++, turn++)
            one_finish(ctx, 1 + turn % EIN__SUMS, 1 + turn % 3, sizes[s], terms[t], turn % 5 < 3,
                       turn / 4 % 2, turn % 4 == 2 ? EIN__F16 : EIN__F32);
    // Many outputs: parts of a warp for each, and a thread.
    one_finish(ctx, 3, 513, 33, 12, true, true, EIN__F32);
    one_finish(ctx, 4, 513, 33, 12, true, false, EIN__F32);
    one_finish(ctx, 4, 513, 33, 12, false, false, EIN__F32);
}
