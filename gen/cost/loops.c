// The loops of reductions: who works on a result's terms, what their loads and instructions take.

// A kernel to be priced: the definitions that it computes, operands first. What `inner` names is no
// memory traffic. Whatever else comes to decide a kernel's text belongs into ein__kernel_id as
// well.
typedef struct ein__kernel {
    ein__skind2 kind;
    int n;
    const ein__scope *s[EIN__STEP_VALUES];
    ein__val inner[EIN__STEP_VALUES];
    ein__val load[2];    // maps that the loads of a product compute
    int nrow;            // definitions behind a product's that are of its rows ...
    ein__val also;       // ... and the map of its rows that it stores too, or none
    bool fma;            // a product that keeps FP32 where the mode has tensor cores
    const int64_t *out;  // strides of the result; NULL: dense
    int64_t size;        // bytes of an element of the result
} ein__kernel;

// How many neighbours along iterators `from` to `to` - 1 of `s` read neighbouring elements by `e`.
static int64_t ein__run_of(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, uint32_t from,
                           uint32_t to) {
    int64_t run = 1;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = from; i < to && !more; i++)
            if (s->n[i] > 1 && ein__read_step(ctx, e, i) == run) {
                run = ein__times(run, s->n[i]);
                more = true;
            }
    }
    return run;
}

// The read with the most elements; NULL: there is none.
static const ein__expr *ein__largest_read(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *largest = NULL;
    int64_t most = 0;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        uint32_t used;
        int64_t n = ein__read_distinct(ctx, s, e, &used);
        if (n <= most) continue;
        most = n;
        largest = e;
    }
    return largest;
}

// The iterator of a reduction's terms along which threads run that share one output: along that its
// largest operand has adjacent, with others over which it goes on, or, with few outputs and none of
// them adjacent either, that with the shortest steps. -1: threads run along outputs.
static int ein__terms_lane(ein_ctx *ctx, const ein__scope *s, bool places) {
    int64_t outputs = ein__results_of(ctx, s), terms = ein__terms_of(s), least = INT64_MAX;
    bool few = outputs <= EIN__BLOCK_OUTPUTS && terms >= EIN__BLOCK_TERMS;
    bool small = outputs > EIN__SHARED_OUTPUTS && terms >= EIN__SHORT_ROW && !places;
    const ein__expr *e = ein__largest_read(ctx, s);
    int along = -1;
    if (!e) return -1;
    for (uint32_t t = s->nt; t < s->nt + s->ns; t++)
        if (s->n[t] > 1 && ein__read_step(ctx, e, t) == 1) along = (int)t;
    if (along >= 0 &&
        ein__run_of(ctx, s, e, s->nt, s->nt + s->ns) < (small ? ein__least(terms, 32) : 32))
        along = -1;
    if (along >= 0 || !few || ein__run_of(ctx, s, e, 0, s->nt) >= EIN__COLUMN_THREADS) return along;
    for (uint32_t t = s->nt; t < s->nt + s->ns; t++) {
        int64_t step = s->n[t] > 1 ? ein__read_step(ctx, e, t) : 0;
        if (step <= 0 || step >= least) continue;
        least = step;
        along = (int)t;
    }
    return along;
}

// Whether the kernel is a reduction by any of the ways to share its terms.
static bool ein__shares(const ein__kernel *k) {
    return k->kind == EIN__K_REDUCE || k->kind == EIN__K_PLACE;
}

// The iterator along which neighbouring threads run: that of the result's neighbours, or one of a
// reduction's terms where threads share an output.
static int ein__kernel_lane(ein_ctx *ctx, const ein__kernel *k, bool *terms) {
    const ein__scope *last = k->s[k->n - 1];
    int lane = -1;
    *terms = false;
    if (k->kind == EIN__K_PRODUCT) return -1;  // tiles are read along whatever lies together
    for (uint32_t i = 0; i < last->nt; i++)
        if (last->n[i] > 1 && (!k->out || k->out[i] == 1)) lane = (int)i;
    int along = ein__shares(k) ? ein__terms_lane(ctx, k->s[0], k->kind == EIN__K_PLACE) : -1;
    *terms = along >= 0;
    return *terms ? along : lane;
}

// Turns that one thread's loop makes: all the terms, or its part of them where there are few
// outputs, or `terms` of one lie together.
static int64_t ein__loop_turns(ein_ctx *ctx, const ein__scope *s, bool terms) {
    int64_t outputs = ein__results_of(ctx, s), count = ein__terms_of(s);
    int64_t turns = count;
    if (outputs > EIN__SHARED_OUTPUTS && !terms) return turns;
    turns = ein__least(turns, ein__most(ein__ceil(count, terms ? 32 : EIN__COLUMN_THREADS), 32));
    if (terms && outputs <= EIN__BLOCK_OUTPUTS)
        turns = ein__least(turns, ein__most(ein__ceil(count, EIN__BLOCK_THREADS), 64));
    return turns;
}

// How long the loop of reduction `s` takes, `bytes` moved meanwhile, and in `*parts` how many
// blocks share its terms.
static int64_t ein__reduce_chain(ein_ctx *ctx, const ein__scope *s, bool terms, int64_t bytes,
                                 int *parts) {
    int64_t outputs = ein__results_of(ctx, s), ps;
    int64_t whole = ein__times(ein__loop_turns(ctx, s, terms), EIN__LOOP_TURN_PS);
    ein__crowd c = {EIN__COLUMN_THREADS, ein__ceil(outputs, EIN__COLUMN_OUTPUTS)};
    if (terms) c = (ein__crowd){EIN__BLOCK_THREADS, outputs};
    *parts = 1;
    if (whole <= EIN__TAIL_PS || outputs > (terms ? EIN__BLOCK_OUTPUTS : EIN__SHARED_OUTPUTS))
        return whole;
    const ein__expr *e = terms ? NULL : ein__largest_read(ctx, s);
    if (!terms && (!e || ein__run_of(ctx, s, e, 0, s->nt) < EIN__COLUMN_THREADS)) return whole;
    *parts = ein__share_parts(ein__gpu_of(ctx), &c, ein__terms_of(s), bytes, &ps);
    return *parts > 1 ? ps : whole;
}

// What the loads of reduction `s` take where neighbouring threads, along `lane`, read elements that
// lie apart: a load of a warp then takes a turn of the cache for every line, however often the line
// has been read. Threads have four outputs.
static int64_t ein__lines_ps(ein_ctx *ctx, const ein__scope *s, int lane) {
    enum { LINE = 128, LINES = 2, WARP = 32, OUTPUTS = 4 };  // LINES of a cycle: assumed
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t lines = 0;
    if (lane < 0 || lane >= (int)s->nt) return 0;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        int64_t step = ein__read_step(ctx, e, (uint32_t)lane);
        int64_t bytes = ein__times(step, ein__element_size(ctx, (ein__val){e->val}));
        if (step > 1) lines += ein__least(ein__ceil(bytes * OUTPUTS * WARP, LINE), WARP);
    }
    // An SM's FP32 units make two operations each of a cycle's 128.
    int64_t cycles = ein__muldiv(ein__extent_of(s, ~0u), lines, WARP * LINES);
    return ein__muldiv(cycles, 256 * 1000, g->fp32);
}
