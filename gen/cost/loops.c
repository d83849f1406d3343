// The loops of reductions: which threads work on the terms of a result, and how long their loads
// and instructions take.

// A kernel to be priced: the definitions that it computes, operands first. What `inner` names is no
// memory traffic. Whatever else comes to decide a kernel's text belongs into ein__kernel_id as
// well.
typedef struct ein__kernel {
    ein__kind kind;
    int n;
    const ein__scope *s[EIN__STEP_VALUES];
    ein__val inner[EIN__STEP_VALUES];
    ein__val load[2];    // maps that the loads of a product or of rows compute
    int nrow;            // definitions behind a product's that are of its rows ...
    ein__val also;       // ... and the map of its rows that it stores too, or none
    bool addend;         // the definition behind a product's is one that is added to it
    int joint;           // of the first definitions, those whose terms a tile computes together
    bool fma;            // a product that keeps FP32 where the mode has tensor cores
    bool finished;       // maps finish its sums (sums.c)
    const int64_t *out;  // strides of the result; NULL: dense
    int64_t size;        // bytes of an element of the result
} ein__kernel;

// How many neighbours along iterators `from` to `to` - 1 of `s` read neighbouring elements by `e`:
// not along what tells sums apart that a thread has together.
static int64_t ein__run_of(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, uint32_t from,
                           uint32_t to) {
    int64_t run = 1;
    uint32_t apart;
    (void)ein__sums_together(ctx, s, &apart);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = from; i < to && !more; i++)
            if (s->n[i] > 1 && i != apart && ein__read_step(ctx, e, i) == run) {
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

// Whether no read takes elements apart that neighbouring results along iterator `i` need.
static bool ein__is_side_by_side(ein_ctx *ctx, const ein__scope *s, uint32_t i) {
    bool all = true;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t r = 0; r < arrlen(reads) && all; r++) {
        int64_t step = ein__read_step(ctx, ein__ex_get(ctx, reads[r]), i);
        all = step == 0 || step == 1;
    }
    return all;
}

// The read that decides along what neighbouring threads run: the one with the most elements or,
// where neighbouring results share each of these, one that has a warp's results side by side when
// no other has them apart. Of a contraction that is a weight alone: what it reads of data may lie
// otherwise in the end (layout.c). NULL: there is none.
static const ein__expr *ein__leading_read(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *largest = ein__largest_read(ctx, s);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    bool product = ein__is_contraction(ctx, s);
    uint32_t apart;
    (void)ein__sums_together(ctx, s, &apart);
    for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
        const ein__expr *e = ein__ex_get(ctx, reads[r]);
        if (product && !ctx->value[e->val].weight_only) continue;
        if (ein__run_of(ctx, s, e, 0, s->nt) < EIN__COLUMN_OUTPUTS) continue;
        for (uint32_t i = 0; i < s->nt; i++)
            if (s->n[i] > 1 && i != apart && ein__read_step(ctx, e, i) == 1 &&
                ein__read_step(ctx, largest, i) == 0 && ein__is_side_by_side(ctx, s, i))
                return e;
    }
    return largest;
}

// Whether the many results of reduction `s` are better off with a thread each although the terms of
// the leading read lie side by side: where neighbouring results have these in common, loads of a
// warp are of few lines anyway, and sums that lanes share are put together for every result, which
// takes more than few terms do.
static bool ein__shares_lines(ein_ctx *ctx, const ein__scope *s, const ein__expr *lead) {
    enum { TERMS = 256 };
    uint32_t last = s->nt;
    for (uint32_t i = 0; i < s->nt; i++) last = s->n[i] > 1 ? i : last;
    return last < s->nt && s->n[last] >= EIN__SHORT_ROW && ein__terms_of(s) <= TERMS &&
           ein__results_of(ctx, s) > EIN__SHARED_OUTPUTS && ein__read_step(ctx, lead, last) == 0 &&
           ein__is_side_by_side(ctx, s, last);
}

// The iterator of a reduction's terms along which threads run that share one output: along that its
// leading operand has adjacent, with others over which it goes on, or, with few outputs and none of
// them adjacent either, that with the shortest steps. -1: threads run along outputs.
static int ein__terms_beside(ein_ctx *ctx, const ein__scope *s, bool places) {
    int64_t outputs = ein__results_of(ctx, s), terms = ein__terms_of(s), least = INT64_MAX;
    bool few = outputs <= EIN__BLOCK_OUTPUTS && terms >= EIN__BLOCK_TERMS;
    bool small = outputs > EIN__SHARED_OUTPUTS && terms >= EIN__SHORT_ROW && !places;
    const ein__expr *e = ein__leading_read(ctx, s);
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

// The same, unless threads with results of their own are better off.
static int ein__terms_lane(ein_ctx *ctx, const ein__scope *s, bool places) {
    const ein__expr *e = ein__leading_read(ctx, s);
    return e && ein__shares_lines(ctx, s, e) ? -1 : ein__terms_beside(ctx, s, places);
}

// Whether the kernel is a reduction by any of the ways to share its terms.
static bool ein__shares(const ein__kernel *k) {
    return k->kind == EIN__K_REDUCE || k->kind == EIN__K_PLACE;
}

static bool ein__reads_value(ein_ctx *ctx, ein__ex ex, ein__val v) {
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    bool found = false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) found |= ein__ex_get(ctx, reads[i])->val == v.i;
    return found;
}

// Where those of `n` definitions of rows end that one pass computes together, from `from` on:
// reductions, none of which reads another one, and which then have in common what their terms do.
static int ein__pass_end(ein_ctx *ctx, const ein__scope *const *s, const ein__val *v, int n,
                         int from) {
    int end = from + 1;
    if (s[from]->reduce == EIN__R_NONE) return end;
    for (; end < n && s[end]->reduce != EIN__R_NONE; end++)
        for (int k = from; k < end; k++)
            if (ein__reads_value(ctx, s[end]->body, v[k])) return end;
    return end;
}

// Rows with the reductions of each pass as one, whose terms are all of theirs, in `joint`, of as
// many. False: they are no others.
static bool ein__joint_passes(ein_ctx *ctx, const ein__kernel *k, ein__kernel *all,
                              ein__scope *joint) {
    *all = *k;
    all->n = 0;
    for (int i = 0, end; k->kind == EIN__K_ROW && i < k->n; i = end) {
        end = ein__pass_end(ctx, k->s, k->inner, k->n, i);
        joint[i] = *k->s[i];
        for (int j = i + 1; j < end; j++)
            joint[i].body = ein__ex_binary(ctx, EIN__ADD, joint[i].body, k->s[j]->body);
        all->s[all->n++] = end > i + 1 ? &joint[i] : k->s[i];
    }
    return k->kind == EIN__K_ROW && all->n < k->n;
}

// Whether a thread has a row of `terms` elements alone, if neighbouring rows lie side by side.
static bool ein__is_threads_row(int64_t rows, int64_t terms) {
    enum { SHORT = 8, MODERATE = 16 };  // whatever the rows; where every thread has some of its own
    return terms < SHORT || (terms <= MODERATE && rows > EIN__SHARED_OUTPUTS);
}

// The last reduction of rows that end in one result each; NULL: `k` is no such kernel.
static const ein__scope *ein__row_end(const ein__kernel *k) {
    const ein__scope *last = NULL;
    if (k->kind != EIN__K_ROW || k->s[k->n - 1]->nt != k->s[0]->nt) return NULL;
    for (int i = 0; i < k->n; i++)
        if (k->s[i]->reduce != EIN__R_NONE) last = k->s[i];
    return last;
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
    const ein__scope *ended = ein__row_end(k);
    int along = ein__shares(k) ? ein__terms_lane(ctx, k->s[0], k->kind == EIN__K_PLACE) : -1;
    if (ended && !ein__is_threads_row(ein__outputs_of(ended), ein__terms_of(ended)))
        along = ein__terms_lane(ctx, ended, false);
    *terms = along >= 0;
    return *terms ? along : lane;
}

// How many values `ex` reads; -1: some are no integers.
static ptrdiff_t ein__integers_read(ein_ctx *ctx, ein__ex ex) {
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__dtype t = ctx->value[ein__ex_get(ctx, reads[i])->val].dtype;
        if (t != EIN__I32 && t != EIN__I64) return -1;
    }
    return arrlen(reads);
}

// Whether `ex` is what reduction `r` has of no terms; infinities may be written as log(0).
static bool ein__is_nothing(ein_ctx *ctx, ein__ex ex, ein__red r) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c, none = r == EIN__R_SUM ? 0 : r == EIN__R_MAX ? -HUGE_VAL : HUGE_VAL;
    if (r != EIN__R_SUM && r != EIN__R_MAX && r != EIN__R_MIN) return false;
    if (e->op == EIN__X_CONST) return ein__ex_is_const(ctx, ex, &c) && c == none;
    if (e->op != EIN__X_UNARY || r == EIN__R_SUM) return false;
    if (e->fn == EIN__LOG) return r == EIN__R_MAX && ein__ex_is_const(ctx, e->kid[0], &c) && c == 0;
    ein__red other = r == EIN__R_MAX ? EIN__R_MIN : EIN__R_MAX;
    return e->fn == EIN__NEG && ein__is_nothing(ctx, e->kid[0], other);
}

// Whether a term of reduction `s` is nothing but where a number of the term is one of the result,
// as where elements are stored at places that tensors hold, and whether neighbours along the last
// iterator have that in common: a loop leaves out the rest of a term that is nothing, which nearly
// all are (assumed).
static bool ein__picks_terms(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    if (e->op != EIN__X_SELECT || e->fn != EIN__EQ) return false;
    if (!ein__is_nothing(ctx, e->kid[3], s->reduce)) return false;
    ptrdiff_t m = ein__integers_read(ctx, e->kid[0]), n = ein__integers_read(ctx, e->kid[1]);
    if (m < 0 || n < 0 || m + n == 0) return false;
    uint32_t a = ein__ex_uses(ctx, e->kid[0]), b = ein__ex_uses(ctx, e->kid[1]);
    uint32_t results = (1u << s->nt) - 1, last = 0;
    for (uint32_t i = 0; i < s->nt; i++) last = s->n[i] > 1 ? 1u << i : last;
    bool apart = (a & results && b & ~results) || (b & results && a & ~results);
    return apart && last && !((a | b) & last);
}

// What is done for every term of reduction `s`.
static ein__ex ein__each_term(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr e = *ein__ex_get(ctx, s->body);
    if (!ein__picks_terms(ctx, s)) return s->body;
    ein__ex one = ein__ex_const(ctx, 1), none = ein__ex_const(ctx, 0);
    return ein__ex_select(ctx, (ein__fn)e.fn, e.kid[0], e.kid[1], one, none);
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
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t outputs = ein__results_of(ctx, s), ps, turn = EIN__LOOP_TURN_PS;
    // A column's loads are single words, of which few blocks have too few on their way to hide how
    // far memory is.
    if (!terms && outputs <= EIN__SHARED_OUTPUTS && bytes > g->l2_bytes / 2)
        turn = EIN__MEMORY_PS / EIN__COLUMN_AHEAD;
    int64_t whole = ein__times(ein__loop_turns(ctx, s, terms), turn);
    ein__crowd c = {EIN__COLUMN_THREADS, ein__ceil(outputs, EIN__COLUMN_OUTPUTS), turn};
    if (terms) c = (ein__crowd){EIN__BLOCK_THREADS, outputs, turn};
    *parts = 1;
    if (whole <= EIN__TAIL_PS || outputs > (terms ? EIN__BLOCK_OUTPUTS : EIN__SHARED_OUTPUTS))
        return whole;
    const ein__expr *e = terms ? NULL : ein__leading_read(ctx, s);
    if (!terms && (!e || ein__run_of(ctx, s, e, 0, s->nt) < EIN__COLUMN_THREADS)) return whole;
    *parts = ein__share_parts(g, &c, ein__terms_of(s), bytes, &ps);
    return *parts > 1 ? ps : whole;
}

// What the loads of reduction `s` take where neighbouring threads, along `lane`, read elements that
// lie apart: a load of a warp then takes a turn of the cache for every line, however often the line
// has been read. Along results threads have four of them, along terms one.
static int64_t ein__lines_ps(ein_ctx *ctx, const ein__scope *s, int lane) {
    enum { LINE = 128, LINES = 2, WARP = 32, OUTPUTS = 4 };  // LINES of a cycle: assumed
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t lines = 0;
    if (lane < 0) return 0;
    bool shared = lane >= (int)s->nt;
    const ein__ex *reads = ein__ex_reads(ctx, ein__each_term(ctx, s));
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        int64_t step = ein__read_step(ctx, e, (uint32_t)lane);
        int64_t bytes = ein__times(step, ein__element_size(ctx, (ein__val){e->val}));
        int64_t apart = ein__times(bytes, shared ? WARP : OUTPUTS * WARP);
        if (step > 1) lines += ein__least(ein__ceil(apart, LINE), WARP);
    }
    int64_t terms = ein__bounded(ctx, s, ein__extent_of(s, ~0u));
    int64_t cycles = ein__muldiv(terms, lines, WARP * LINES);
    return ein__muldiv(cycles, 2 * ein__sm_lanes(g) * 1000, g->fp32);
}

// Whether threads share the terms of a result, so that each works out from one number where its
// next term lies: a warp, or a part of one; a block; or a column, whose lanes have results of their
// own. 0: threads have results of their own.
static int64_t ein__sharing_threads(ein_ctx *ctx, const ein__scope *s, bool terms) {
    int64_t outputs = ein__results_of(ctx, s), count = ein__terms_of(s);
    bool many = outputs > EIN__SHARED_OUTPUTS;
    if (many ? !terms : count < 32) return 0;
    const ein__expr *e = terms ? NULL : ein__leading_read(ctx, s);
    if (e && ein__run_of(ctx, s, e, 0, s->nt) >= EIN__COLUMN_THREADS) return EIN__COLUMN_THREADS;
    if (!many && outputs <= EIN__BLOCK_OUTPUTS && count >= EIN__BLOCK_TERMS)
        return EIN__BLOCK_THREADS;
    return ein__warp_lanes(count);
}

// Whether reduction iterator `i` goes on where the one behind it ends in every read, so that one
// number counts both.
static bool ein__goes_on(ein_ctx *ctx, const ein__scope *s, uint32_t i) {
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
        const ein__expr *e = ein__ex_get(ctx, reads[r]);
        int64_t step[EIN__MAX_ITERS];
        ein__read_steps(ctx, e, i + 2, step);
        if (step[i] != ein__times(step[i + 1], s->n[i + 1])) return false;
        if (ein__guarded_slots(ctx, e) >> i & 3) return false;
    }
    return true;
}

// Instructions of a term of reduction `s` in a loop whose threads share terms, but for the term's
// digits: counted in machine code for sm_90. `own`: in an unrolled loop, whose terms have places in
// common. Of a turn of `vec` terms whose reads are vectors, or the same for all.
static int64_t ein__term_operations(ein_ctx *ctx, const ein__scope *s, bool own, int vec) {
    const int64_t LOOP = own ? 0 : 2, READ = own ? 1 : 2, GUARD = own ? 1 : 3, GAPS = own ? 2 : 5;
    uint32_t terms = s->ns ? ~((1u << s->nt) - 1) : ~0u;
    ein__ex body = ein__each_term(ctx, s);
    int64_t n = LOOP + vec * ein__ex_operations(ctx, body);
    const ein__ex *reads = ein__ex_reads(ctx, body);
    for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
        const ein__expr *e = ein__ex_get(ctx, reads[r]);
        if (vec == 1 || (ein__ex_uses(ctx, reads[r]) & terms)) n += READ;
        for (uint32_t k = 0; k < e->nix; k++)
            if ((ein__ix_uses(ctx, e->ix[k]) & terms) && ein__is_guarded(ctx, e, k))
                n += GUARD + (ein__ix_get(ctx, e->ix[k])->q > 1 ? GAPS : 0);
    }
    return n;
}

// Instructions of a thread that shares with `lanes` - 1 others the terms of reduction `s`, which
// iterators of extents `n` count, the innermost last. `*own`: how many of the innermost ones it
// goes through by itself instead, so that it need not work out their digits for every term; NULL:
// none, as neighbouring threads have neighbouring terms, or `vec` of them side by side each.
static int64_t ein__loop_operations(ein_ctx *ctx, const ein__scope *s, const int64_t *n, int count,
                                    int64_t lanes, int vec, int *own) {
    enum { DIGIT = 12, BITS = 2, TAPS = 16 };
    int64_t best = INT64_MAX, taps = 1;
    for (int inner = 0; inner == 0 || (own && inner < count); inner++) {
        int64_t outer = 1, digits = 0;
        if (inner) taps = ein__times(taps, n[count - inner]);
        if (taps > TAPS) break;
        for (int i = 0; i < count - inner; i++) {
            outer = ein__times(outer, n[i]);
            if (i) digits += n[i] & (n[i] - 1) ? DIGIT : BITS;
        }
        int64_t each = ein__term_operations(ctx, s, inner != 0, vec);
        int64_t all = ein__times(ein__ceil(outer, lanes * vec), digits + taps * each);
        if (all >= best) continue;
        best = all;
        if (own) *own = inner;
    }
    return best;
}

// Whether threads read four elements along `lane` as one, or the same for all four.
static bool ein__reads_vectors(ein_ctx *ctx, const ein__scope *s, int lane) {
    enum { VECTOR = 4 };
    bool vector = s->n[lane] % VECTOR == 0;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        int64_t step = ein__read_step(ctx, e, (uint32_t)lane);
        vector &= step == 0 || (step == 1 && !(ein__guarded_slots(ctx, e) >> lane & 1));
    }
    return vector;
}

// Terms of a turn of a thread that shares them with others, where neighbouring ones lie side by
// side (ein__kreduce_vector).
static int ein__terms_vector(ein_ctx *ctx, const ein__scope *s) {
    enum { LANES = 4, TURNS = 32 };
    bool enough = ein__terms_of(s) / LANES >= TURNS;
    return enough && ein__reads_vectors(ctx, s, (int)(s->nt + s->ns) - 1) ? LANES : 1;
}

// What all instructions of such loops take, beside what a thread has before and behind them.
static int64_t ein__turns_ps(ein_ctx *ctx, const ein__scope *s, bool terms) {
    enum { AROUND = 50, SHARE = 800 };  // instructions; of the rate at which they are issued
    int64_t lanes = ein__sharing_threads(ctx, s, terms), n[EIN__MAX_ITERS] = {0};
    int count = 0, own;
    if (!lanes) return 0;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (s->n[i] == 1) continue;
        if (count && ein__goes_on(ctx, s, i - 1)) n[count - 1] = ein__times(n[count - 1], s->n[i]);
        else n[count++] = s->n[i];
    }
    bool column = lanes == EIN__COLUMN_THREADS && !terms;
    int vec = column ? 1 : ein__terms_vector(ctx, s);
    int64_t each = ein__loop_operations(ctx, s, n, count, lanes, vec, column ? &own : NULL);
    if (count == 1) each = ein__bounded(ctx, s, each);
    int64_t all = ein__times(ein__times(ein__results_of(ctx, s), lanes), each + AROUND);
    // The peak counts two operations an instruction.
    return ein__math_ps(ein__gpu_of(ctx), ein__times(all, 2), SHARE);
}

// Different elements of a read that `n` neighbouring results need, of which `out` has the strides.
static int64_t ein__block_elements(ein_ctx *ctx, const ein__scope *s, const ein__expr *e,
                                   const int64_t *out, int64_t n) {
    const ein__shape *shape = &ctx->value[e->val].shape;
    ein__scope part = *s;
    uint32_t used = 0, done = 0;
    int64_t elements = 1, rest = n, dense[EIN__MAX_RANK];
    ein__dense_result(s, dense);
    if (!out) out = dense;
    for (uint32_t turn = 0; turn < s->nt; turn++) {
        int at = -1;
        for (uint32_t i = 0; i < s->nt; i++)
            if (!(done >> i & 1) && (at < 0 || out[i] < out[at])) at = (int)i;
        done |= 1u << at;
        part.n[at] = ein__least(s->n[at], rest);
        rest = ein__ceil(rest, s->n[at]);
    }
    for (uint32_t k = 0; k < e->nix; k++) {
        uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
        int64_t range = 1;
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            int64_t by = uses >> i & 1 ? ein__ix_step(ctx, e->ix[k], i) : 0;
            range = ein__plus(range, by < 0 ? shape->d[k] : ein__times(by, part.n[i] - 1));
        }
        range = ein__least(ein__least(range, shape->d[k]), ein__extent_of(&part, uses));
        elements = ein__times(elements, range);
        used |= uses;
    }
    // The last of the box is filled in part.
    elements = ein__least(elements, ein__extent_of(&part, used));
    return ein__most(ein__muldiv(elements, n, ein__most(ein__outputs_of(&part), n)), 1);
}

// What the blocks of a reduction fetch from the L2 cache, each for itself unless an SM's own cache
// keeps an operand for all of its blocks.
static int64_t ein__fetch_ps(ein_ctx *ctx, const ein__kernel *k, bool terms) {
    enum { KEPT = 128 << 10 };  // bytes
    const ein__gpu *g = ein__gpu_of(ctx);
    const ein__scope *s = k->s[0];
    int64_t outputs = ein__results_of(ctx, s), lanes = ein__sharing_threads(ctx, s, terms);
    int64_t each = !lanes                                   ? EIN__BLOCK_THREADS
                   : lanes == EIN__COLUMN_THREADS && !terms ? EIN__COLUMN_OUTPUTS
                   : lanes == EIN__BLOCK_THREADS            ? 1
                                                 : ein__sharing_warps(outputs) * 32 / lanes;
    int64_t blocks = ein__ceil(outputs, each), busy = ein__least(blocks, g->sms), bytes = 0;
    const int64_t *out = k->s[k->n - 1]->nt == s->nt ? k->out : NULL;
    const ein__ex *reads = ein__ex_reads(ctx, ein__each_term(ctx, s));
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        int64_t size = ein__element_size(ctx, (ein__val){e->val});
        int64_t block = ein__times(ein__block_elements(ctx, s, e, out, each), size);
        int64_t all = ein__times(ein__ceil(blocks, busy), block);
        int64_t whole = ein__bytes_of(ctx, (ein__val){e->val});
        if (whole <= KEPT) all = ein__least(all, whole);
        bytes = ein__plus(bytes, ein__times(all, busy));
    }
    return ein__memory_ps(g, bytes, ein__memory_share[0], true);
}

// Instructions with which a map's thread takes its number apart: a digit an iterator, but for those
// that go on where the one behind them ends.
static int64_t ein__number_operations(ein_ctx *ctx, const ein__scope *s) {
    enum { DIGIT = 12, BITS = 2 };
    int64_t n = 0;
    bool first = true;
    for (uint32_t i = 0; i < s->nt; i++) {
        if (s->n[i] == 1 || (i + 1 < s->nt && ein__goes_on(ctx, s, i))) continue;
        if (!first) n += s->n[i] & (s->n[i] - 1) ? DIGIT : BITS;
        first = false;
    }
    return n;
}

// What the instructions of a map take whose elements threads compute one by one, because neighbours
// of the result, along `lane`, lie apart in what it reads or are no multiple of a vector.
static int64_t ein__map_ps(ein_ctx *ctx, const ein__scope *s, int lane) {
    enum { AROUND = 10, SHARE = 800 };
    if (lane < 0 || ein__reads_vectors(ctx, s, lane)) return 0;
    int64_t each = AROUND + ein__number_operations(ctx, s) + ein__term_operations(ctx, s, false, 1);
    return ein__math_ps(ein__gpu_of(ctx), ein__times(2 * ein__outputs_of(s), each), SHARE);
}

// What the threads of rows that end in one result each take: instructions of all passes, and what
// the last one, which reads what the others do, loads.
static int64_t ein__ended_ps(ein_ctx *ctx, const ein__kernel *k) {
    enum {
        AROUND = 50,
        JOIN = 20,
        SHARE = 800
    };  // instructions a thread; a reduction; of the rate
    const ein__scope *end = ein__row_end(k);
    bool terms;
    int lane = ein__kernel_lane(ctx, k, &terms);
    int64_t rows = ein__outputs_of(end), count = ein__terms_of(end), each = AROUND;
    int64_t threads = ein__is_threads_row(rows, count) ? 1
                      : !terms                         ? EIN__COLUMN_THREADS
                      : count <= 1024                  ? 32
                                                       : EIN__BLOCK_THREADS;
    for (int i = 0; i < k->n; i++) {
        int64_t turns = k->s[i]->reduce == EIN__R_NONE ? 1 : ein__ceil(count, threads);
        int64_t n = ein__term_operations(ctx, k->s[i], threads == 1, 1);
        each = ein__plus(each, ein__times(turns, n) + (threads > 1 ? JOIN : 0));
    }
    ein__kernel last = {.kind = EIN__K_REDUCE, .n = 1, .s = {end}, .size = k->size, .out = k->out};
    int64_t all = ein__times(2, ein__times(ein__times(rows, threads), each));
    int64_t ps = ein__math_ps(ein__gpu_of(ctx), all, SHARE);
    ps = ein__most(ps, ein__lines_ps(ctx, end, lane));
    return ein__most(ps, ein__fetch_ps(ctx, &last, terms));
}
