// The range of keys of an attention's block: where a mask begins and ends for the rows of its tile
// (attention_mask.c), and the block's share of the keys between, where several blocks have one
// tile.

// Whether blocks may be done before they have met all keys.
static bool ein__kattention_skips(const ein__attention_tile *t) {
    return t->masked &&
           ein__up(ein__attention_end(&t->mask, 0, t->rows, t->nkey), t->keys) < t->terms;
}

// The edge of the tile's row `row`, `back` keys before it.
static const char *ein__kattention_edge(ein__kgen *g, const ein__attention_edge *e, int64_t row,
                                        int64_t back) {
    bool whole = e->a && e->each > 1;  // neighbouring rows have one edge
    long long key = (long long)(e->key + (whole ? 0 : e->a * row) - back);
    long long far = key < 0 ? -key : key;
    const char *by = e->a == 1 ? "" : ein__namef(g->ctx, "%lld * ", (long long)e->a), *at = "m0";
    if (!e->a) return ein__namef(g->ctx, "%lld", key);
    if (whole && row) at = ein__namef(g->ctx, "(m0 + %lld)", (long long)row);
    if (whole) at = ein__namef(g->ctx, "(%s / %lld)", at, (long long)e->each);
    return ein__namef(g->ctx, "%s%s %c %lld", by, at, key < 0 ? '-' : '+', far);
}

// The first key that no row of the tile attends to, or "" where there is none for any tile.
static const char *ein__kattention_behind(ein__kgen *g, const ein__attention_tile *t) {
    return ein__kattention_skips(t) ? ein__kattention_edge(g, &t->mask.end, t->rows - 1, 0) : "";
}

// Whether every key is hidden from some place behind the last row, of a tile that looks whether its
// rows have met a key: that place never does, and the tile would go on with all keys.
static bool ein__kattention_blind(const ein__attention_tile *t) {
    int64_t rows = t->row_tiles * t->rows;
    bool looks = ein__kattention_skips(t) || ein__attention_is_late(t);
    return looks && t->nrow < rows && ein__attention_begin(&t->mask, rows - 1, t->nkey) == t->nkey;
}

// Where the mask hides a key of the turn from some row of the tile.
static const char *ein__kattention_hides(ein__kgen *g, const ein__attention_tile *t) {
    const ein__attention_edge *begin = &t->mask.begin, *end = &t->mask.end;
    const char *before = "", *behind = "";
    if (begin->is)
        before = ein__namef(g->ctx, "u0 < %s", ein__kattention_edge(g, begin, t->rows - 1, 0));
    if (end->is) behind = ein__namef(g->ctx, "u0 > %s", ein__kattention_edge(g, end, 0, t->keys));
    return ein__namef(g->ctx, "%s%s%s", behind, begin->is && end->is ? " || " : "", before);
}

// Statements that put the mask's value where the mask hides element e's key. Constants are compared
// with what all places have in common.
static void ein__kattention_hidden(ein__kgen *g, const ein__attention_tile *t, const char *value,
                                   ein__buf *b) {
    static const char *const names[] = {"ahead", "back"}, *const by[] = {">=", "<"},
                             *const place = "m0 + own + lane / 4 + 16 * m + e / 2 * 8";
    const ein__attention_edge *edge[] = {&t->mask.end, &t->mask.begin};
    bool same = edge[0]->is && edge[1]->is && edge[0]->a == edge[1]->a;
    same = same && edge[0]->each == edge[1]->each;
    const char *test = "";
    for (int i = 0; i < 2; i++) {
        long long a = (long long)edge[i]->a, key = (long long)edge[i]->key;
        if (!edge[i]->is) continue;
        const char *name = names[same ? 0 : i];
        bool whole = a && edge[i]->each > 1;
        const char *times = a == 1 ? "" : ein__namef(g->ctx, "%lld * ", a);
        const char *at = "", *less = ein__namef(g->ctx, "%lld", key);
        if (whole) {
            at = ein__namef(g->ctx, " + 8 * j + e %% 2 - %s((%s) / %lld)", times, place,
                            (long long)edge[i]->each);
        } else {
            if (a) at = ein__namef(g->ctx, " - %s(m0 + own + lane / 4)", times);
            if (a == 1) less = ein__namef(g->ctx, "%s + 16 * m + e / 2 * 8", less);
            else if (a) less = ein__namef(g->ctx, "%s + %s(16 * m + e / 2 * 8)", less, times);
            less = ein__namef(g->ctx, "%s - 8 * j - e %% 2", less);
        }
        if (!i || !same)
            ein__putf(b, "const %s %s = u0 + first + lane %% 4 * 2%s;\n", ein__kint(g), name, at);
        test = ein__namef(g->ctx, "%s%s%s %s %s", test, *test ? " || " : "", name, by[i], less);
    }
    if (ein__kattention_blind(t))
        test = ein__namef(g->ctx, "(%s) && %s < %lld", test, place, (long long)t->nrow);
    ein__putf(b, "%sif (%s)\n    s[m][j][e] = %s;\n", g->code[0].s, test, value);
}

static const char *ein__kattention_int(ein__kgen *g, const char *text) {
    return g->wide ? ein__namef(g->ctx, "(int)(%s)", text) : text;
}

static const char *ein__kattention_by(ein__kgen *g, int n) {
    return n > 1 ? ein__namef(g->ctx, " / %d", n) : "";
}

// Turns that the blocks of a tile take but for the last one, as a name where a mask moves along: of
// those before the first key that no row attends to, as many a block as the last one has. That goes
// on behind them; it has the turn that holds the last key of the tile's first row, so that it meets
// a key of every row that has some, and sees that what is masked does not count.
static const char *ein__kattention_others(ein__kgen *g, const ein__attention_tile *t,
                                          const char *stop, ein__buf *b) {
    const ein__attention_edge *end = &t->mask.end;
    long long all = (long long)ein__up(t->terms, t->keys);
    bool late = ein__attention_is_late(t);
    const char *low = late ? "low" : "0", *less = late ? " - low" : "";
    if ((!late || !t->mask.begin.a) && (!*stop || !end->a)) {
        int64_t first = late ? ein__attention_low(t, 0) : 0;
        int64_t behind = *stop ? ein__least(end->key, all) : all;
        int64_t some = behind <= first ? 1 : ein__ceil(behind - first, t->keys);
        return ein__namef(g->ctx, "%lld", (long long)((t->parts - 1) * some / t->parts));
    }
    const char *behind = ein__namef(g->ctx, "%lld", all), *last = "turns - 1";
    if (*stop) {
        const char *seen = ein__kattention_int(g, ein__kattention_edge(g, end, 0, 1));
        behind = ein__namef(g->ctx, "min(%s, %lld)", ein__kattention_int(g, stop), all);
        last = ein__namef(g->ctx, "max(%s%s, 0) / %d", seen, less, t->keys);
    }
    ein__putf(b, "const int behind = %s;\n", behind);
    ein__putf(b, "const int turns = behind <= %s ? 1 : (behind%s + %d) / %d;\n", low, less,
              t->keys - 1, t->keys);
    const char *all_but = t->parts == 2 ? "" : ein__namef(g->ctx, "%d * ", t->parts - 1);
    ein__putf(b, "const int others = min(%sturns / %d, %s);\n", all_but, t->parts, last);
    return "others";
}

// The keys of a block's share, in whole turns.
static void ein__kattention_shares(ein__kgen *g, const ein__attention_tile *t, const char *stop,
                                   ein__buf *b) {
    long long terms = (long long)t->terms, turns = (long long)ein__ceil(t->terms, t->keys);
    int others = t->parts - 1;
    if (t->parts == 1) return;
    ein__putf(b, "const int share = (int)(blockIdx.x %% %du);\n", t->parts);
    if (!*stop) {
        ein__putf(b, "const int from = share * %lld / %d * %d;\n", turns, t->parts, t->keys);
        ein__putf(b, "const int until = (share + 1) * %lld / %d * %d;\n", turns, t->parts, t->keys);
        return;
    }
    const char *theirs = ein__kattention_others(g, t, stop, b);
    const char *by = ein__kattention_by(g, others);
    ein__putf(b, "const int from = share * %s%s * %d;\n", theirs, by, t->keys);
    ein__putf(b, "const int until = share < %d ? (share + 1) * %s%s * %d : %lld;\n", others, theirs,
              by, t->keys, terms);
}

// Where blocks begin with the first key that some row attends to: `low`, of a whole turn.
static void ein__kattention_begins(ein__kgen *g, const ein__attention_tile *t, ein__buf *b) {
    const ein__attention_edge *begin = &t->mask.begin;
    long long all = (long long)ein__up(t->terms, t->keys);
    if (!begin->a) {
        ein__putf(b, "const int low = %lld;\n", (long long)ein__attention_low(t, 0));
        return;
    }
    int64_t last = begin->a * ((t->row_tiles - 1) * t->rows / begin->each) + begin->key;
    const char *seen = "seen";
    if (last >= all) seen = ein__namef(g->ctx, "min(seen, %lld)", all - t->keys);
    const char *edge = ein__kattention_edge(g, begin, 0, 0);
    ein__putf(b, "const int seen = %s;\n", ein__kattention_int(g, edge));
    ein__putf(b, "const int low = seen < %d ? 0 : %s / %d * %d;\n", t->keys, seen, t->keys,
              t->keys);
}

// The keys of a block's share then, in `togo` the number of its turns. The last block goes on
// behind the last key with the first one.
static void ein__kattention_turns(ein__kgen *g, const ein__attention_tile *t, const char *stop,
                                  ein__buf *b) {
    long long turns = (long long)ein__ceil(t->terms, t->keys);
    ein__kattention_begins(g, t, b);
    if (t->parts == 1) {
        ein__putf(b, "int togo = %lld;  // turns\n", turns);
        return;
    }
    ein__putf(b, "const int share = (int)(blockIdx.x %% %du);\n", t->parts);
    const char *others = ein__kattention_others(g, t, stop, b);
    const char *by = ein__kattention_by(g, t->parts - 1);
    ein__putf(b, "const int before = share * %s%s, from = low + before * %d;\n", others, by,
              t->keys);
    ein__putf(b, "int togo = (share < %d ? (share + 1) * %s%s : %lld) - before;\n", t->parts - 1,
              others, by, turns);
}

// The key that follows those of a turn, `step` of them.
static const char *ein__kattention_next(ein__kgen *g, const ein__attention_tile *t,
                                        const char *step) {
    long long all = (long long)ein__up(t->terms, t->keys);
    if (!ein__attention_is_late(t)) return ein__namef(g->ctx, "u0 + %s", step);
    return ein__namef(g->ctx, "u0 + %s < %lld ? u0 + %s : 0", step, all, step);
}

// Where a block's keys end.
static const char *ein__kattention_until(ein__kgen *g, const ein__attention_tile *t) {
    return t->parts > 1 ? "until" : ein__namef(g->ctx, "%lld", (long long)t->terms);
}

// A load for the first turn, ahead of the loop: `call` with its arguments behind the key.
static const char *ein__kattention_started(ein__kgen *g, const ein__attention_tile *t,
                                           const char *call, const char *rest) {
    bool late = ein__attention_is_late(t);
    const char *test = t->parts == 1 ? "" : late ? "if (togo > 0) " : "if (from < until) ";
    const char *first = t->parts > 1 ? "from" : late ? "low" : "0";
    return ein__namef(g->ctx, "%s%s(%s%s);\n", test, call, first, rest);
}
