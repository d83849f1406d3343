// Segment reductions (scatter-add): a term counts only for the result whose index equals a number
// that the term carries, for all others it is the reduction's identity (ein__picks_terms). They
// have channels: iterators of the result that do not decide which terms count,
//     y[n,c] = sum(e) select(at[e] == n, u[e,c], 0).
// A warp, or the eight warps of a block, computes the channels of one row: each lane tests one
// term, and then all lanes add up the terms that were found, one or four channels each
// (emit_picks.c). So there is one test for a row and a term instead of one for every channel.

enum {
    EIN__PICKS_AHEAD = 8,         // terms that a lane asks about in a turn
    EIN__PICKS_LIST = 32,         // as many found ones are added once they are there
    EIN__PICKS_WARPS = 8,         // of a block
    EIN__PICKS_LANES = 4,         // channels of a lane, where they are vectors
    EIN__PICKS_UNROLLED = 4,      // found terms whose loads are on their way together
    EIN__PICKS_RESIDENT = 32,     // warps of an SM; assumed
    EIN__PICKS_TURN_PS = 100000,  // loads of a turn, from a cache, and the vote; assumed
    // Loads of found terms, one of which may have the place of the other, from the L2 cache;
    // assumed.
    EIN__PICKS_FOUND_PS = 400000
};

typedef struct ein__picks {
    uint32_t rows;  // iterators that decide, with a term, whether it is one of the result's
    int vec;        // channels of a lane
    int warps;      // that share the terms of a row
} ein__picks;

// Whether rows of reduction `s`, whose result has strides `out`, may have warps; all but how many.
static bool ein__match_picks(ein_ctx *ctx, const ein__scope *s, const int64_t *out, ein__picks *p) {
    if (!ein__picks_terms(ctx, s)) return false;
    const ein__expr e = *ein__ex_get(ctx, s->body);
    uint32_t results = (1u << s->nt) - 1, uses = 0;
    int last = -1;
    bool vector = ein__integers_read(ctx, e.kid[2]) <= 0;
    for (int k = 0; k < 2; k++) uses |= ein__ex_uses(ctx, e.kid[k]);
    p->rows = uses & results;
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] > 1 && out[i] == 1) last = (int)i;
    if (last < 0 || (p->rows >> last & 1) || ein__extent_of(s, p->rows) < 2) return false;
    for (uint32_t i = 0; i < s->nt; i++)
        vector &= (int)i == last || s->n[i] == 1 || out[i] % EIN__PICKS_LANES == 0;
    p->vec = vector && ein__reads_vectors(ctx, s, last) ? EIN__PICKS_LANES : 1;
    return true;
}

// Warps that ask about all terms: those of each row, of its channels as many as lanes have.
static int64_t ein__picks_groups(const ein__scope *s, const ein__picks *p) {
    uint32_t channels = ((1u << s->nt) - 1) & ~p->rows;
    return ein__times(ein__extent_of(s, p->rows),
                      ein__ceil(ein__extent_of(s, channels), 32 * p->vec));
}

// Terms of a row, if each is one of some row's: rows whose numbers are others than those of all
// terms (batches of both) have no part in that.
static int64_t ein__picks_found(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr e = *ein__ex_get(ctx, s->body);
    uint32_t results = (1u << s->nt) - 1;
    uint32_t apart = ein__ex_uses(ctx, e.kid[0]) ^ ein__ex_uses(ctx, e.kid[1]);
    return ein__ceil(ein__terms_of(s), ein__extent_of(s, apart & results));
}

// Instructions of a warp for a found term: its place, loads, their guards, arithmetic.
static int64_t ein__picked_operations(ein_ctx *ctx, const ein__scope *s, const ein__picks *p) {
    enum { AROUND = 4 };
    ein__ex term = ein__ex_get(ctx, s->body)->kid[2];
    const ein__ex *reads = ein__ex_reads(ctx, term);
    return AROUND + p->vec * (ein__ex_operations(ctx, term) + 1) +
           arrlen(reads) * (EIN__READ_OPERATIONS + EIN__GUARD_OPERATIONS);
}

// What such warps take beside launch and memory: instructions, and what they wait for.
static void ein__picks_work(ein_ctx *ctx, const ein__scope *s, const ein__picks *p, ein__work *w) {
    // Instructions of a warp and of a turn beside its questions; where something is found; of warps
    // that put sums together; of the rate.
    enum { AROUND = 60, TURN = 8, FOUND = 12, JOIN = 40, SHARE = 800 };
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t terms = ein__terms_of(s), groups = ein__picks_groups(s, p);
    int64_t warps = ein__times(groups, p->warps), found = ein__picks_found(ctx, s);
    int64_t turns = ein__ceil(ein__ceil(terms, p->warps), 32 * EIN__PICKS_AHEAD);
    int64_t ask = 1 + ein__term_operations(ctx, s, false, 1);
    int64_t add = ein__picked_operations(ctx, s, p);
    int64_t each = ein__times(turns, TURN + EIN__PICKS_AHEAD * ask) + AROUND;
    each += ein__least(turns, ein__ceil(found, p->warps)) * EIN__PICKS_AHEAD * FOUND;
    if (p->warps > 1) each += JOIN * p->vec;
    int64_t all = ein__plus(ein__times(warps, each), ein__times(ein__times(groups, found), add));
    // The peak counts two operations an instruction.
    w->math_ps = ein__math_ps(g, ein__times(all, 2 * 32), SHARE);
    int64_t waves = ein__ceil(warps, g->sms * EIN__PICKS_RESIDENT);
    int64_t loads = ein__ceil(ein__ceil(found, p->warps), EIN__PICKS_UNROLLED);
    int64_t waits =
        ein__plus(ein__times(turns, EIN__PICKS_TURN_PS), ein__times(loads, EIN__PICKS_FOUND_PS));
    w->chain_ps = ein__times(waves, waits);
}

// What the blocks fetch from the L2 cache to ask about all terms, unless an SM's own cache keeps it
// for all of its blocks.
static int64_t ein__picks_fetch_ps(ein_ctx *ctx, const ein__scope *s, const ein__picks *p) {
    enum { KEPT = 128 << 10 };  // bytes
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t blocks = ein__ceil(ein__times(ein__picks_groups(s, p), p->warps), EIN__PICKS_WARPS);
    int64_t terms = 0;
    const ein__ex *reads = ein__ex_reads(ctx, ein__each_term(ctx, s));
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (!(ein__ex_uses(ctx, reads[i]) >> s->nt)) continue;
        int64_t bytes = ein__times(ein__terms_of(s), ein__element_size(ctx, (ein__val){e->val}));
        terms = ein__plus(terms, ein__least(bytes, ein__bytes_of(ctx, (ein__val){e->val})));
    }
    int64_t times = terms <= KEPT ? ein__least(blocks, g->sms) : blocks;
    return ein__memory_ps(g, ein__times(times, terms), ein__memory_share[0], true);
}
