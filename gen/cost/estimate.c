// The cost of a generated kernel: a table's row, else an estimate.

// A permutation whose innermost dimension changes, where both sides are worth a tile. `out`:
// strides of the result.
static bool ein__is_transpose(ein_ctx *ctx, const ein__scope *s, const int64_t *out) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    int inner = -1, out_inner = -1;
    if (s->reduce != EIN__R_NONE || e->op != EIN__X_READ || s->nt < 2) return false;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    if (!ein__address(ctx, e, stride, &f)) return false;
    for (uint32_t t = 0; t < s->nt; t++) {
        if (s->n[t] > 1 && f.coef[t] == 1) inner = (int)t;
        if (s->n[t] > 1 && out[t] == 1) out_inner = (int)t;
        if (s->n[t] > 1 && f.coef[t] <= 0) return false;
    }
    return inner >= 0 && out_inner >= 0 && inner != out_inner && s->n[inner] >= 8 &&
           s->n[out_inner] >= 8;
}

// Elements read by value, so that several reads of one value do not count more than it has.
typedef struct ein__traffic {
    ein__ex *seen;
    struct ein__traffic_of {
        ein__val v;
        ein__access access;
        int64_t n;
    } * of;
} ein__traffic;

static void ein__add_traffic(ein_ctx *ctx, ein__traffic *z, const ein__kernel *k,
                             const ein__scope *s, int lane) {
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        bool skip = false;
        for (ptrdiff_t j = 0; j < arrlen(z->seen); j++) skip |= z->seen[j].i == reads[i].i;
        for (int j = 0; j < EIN__STEP_VALUES; j++) skip |= k->inner[j].i == e->val;
        for (int j = 0; j < 2; j++) skip |= k->load[j].i == e->val;
        arrput(z->seen, reads[i]);
        if (skip) continue;
        ein__access access;
        int64_t n = ein__read_elements(ctx, s, e, lane, &access);
        // Tiles through shared memory: whole sectors on both sides.
        if (k->kind == EIN__K_TRANSPOSE) n = ein__extent_of(s, ~0u);
        ptrdiff_t at = 0;
        while (at < arrlen(z->of) && z->of[at].v.i != e->val) at++;
        if (at == arrlen(z->of))
            arrput(z->of, ((struct ein__traffic_of){{e->val}, EIN__BY_UNIT, 0}));
        struct ein__traffic_of *o = &z->of[at];
        int64_t all = ein__elements(&ctx->value[e->val].shape);
        // Sectors fetched again stay; neighbouring reads of a value share its elements.
        o->n = ein__most(ein__most(o->n, n), ein__least(ein__plus(o->n, n), all));
        if (access > o->access) o->access = access;
    }
}

// Elements that the kernel reads and writes; the traffic goes to `w`. Rows too long for registers
// are read by every pass.
static int64_t ein__kernel_traffic(ein_ctx *ctx, const ein__kernel *k, ein__work *w, bool *terms) {
    const ein__scope *last = k->s[k->n - 1];
    ein__traffic z = {0};
    int64_t outputs = ein__outputs_of(last), elements = outputs;
    int lane = ein__kernel_lane(ctx, k, terms);
    bool again = k->kind == EIN__K_ROW && ein__terms_of(k->s[0]) > EIN__ROW_LENGTH;
    for (int i = 0; i < k->n; i++)
        // A map behind shared reductions runs once an output.
        if (!i || !*terms || k->s[i]->reduce != EIN__R_NONE)
            ein__add_traffic(ctx, &z, k, k->s[i], lane);
        else ein__add_traffic(ctx, &z, k, k->s[i], (int)last->nt - 1);
    for (int i = 0; i < 2; i++)
        if (k->load[i].i) ein__add_traffic(ctx, &z, k, ein__scope_of(ctx, k->load[i]), lane);
    for (ptrdiff_t i = 0; i < arrlen(z.of); i++) {
        int64_t n = again ? ein__times(z.of[i].n, k->n) : z.of[i].n;
        elements = ein__plus(elements, n);
        ein__add_operand(ctx, w, z.of[i].v, z.of[i].access,
                         ein__times(n, ein__element_size(ctx, z.of[i].v)));
    }
    ein__access access = k->kind == EIN__K_TRANSPOSE ? EIN__BY_STRIDE : EIN__BY_UNIT;
    w->bytes[access] = ein__plus(w->bytes[access], ein__times(outputs, k->size));
    arrfree(z.seen);
    arrfree(z.of);
    // It is stored from what is read once more, but for what passes compute in front.
    int64_t times = k->kind == EIN__K_ROW ? 1 : 2;
    if (k->also.i)
        w->bytes[EIN__BY_UNIT] =
            ein__plus(w->bytes[EIN__BY_UNIT], times * ein__bytes_of(ctx, k->also));
    return elements;
}

// A band kernel is a tiled product: its arithmetic is that of the tiles, their waste at the band's
// edges included, which the machine takes in waves; what a tile shares it loads once. Dilation
// costs nothing by itself, since tiles take rows of one residue; it does where neighbours in memory
// are rows, because then only every d-th element of a sector is used. So where rows are contiguous
// a re-layout by the dilation cannot pay: it is found, and if the dilation divides the length its
// copies are views and the kernel is the same one, else they are extra.
static void ein__band_work(ein_ctx *ctx, const ein__scope *s, ein__work *w) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__band b;
    if (!ein__match_band(ctx, s, &b)) return;
    ein__band_tile t = ein__band_tiles(&b);
    int64_t tiles = ein__times(ein__times(t.row_tiles, t.columns), ein__times(b.batch, t.residues));
    int64_t slots = ein__times(ein__ceil(tiles, g->sms), g->sms);
    int64_t flop = ein__times(slots, ein__times(2 * 16 * t.rm * 16 * t.rn, t.terms));
    int64_t unused = ein__least(t.residues, 8) - 1;
    const ein__expr *strided[2] = {b.x.coef[b.m] == 1 ? b.a : NULL,
                                   b.axis + 1 == (int)b.b->nix ? b.b : NULL};
    for (int k = 0; k < 2; k++)
        if (strided[k])
            ein__add_operand(ctx, w, (ein__val){strided[k]->val}, EIN__BY_UNIT,
                             ein__times(unused, ein__bytes_of(ctx, (ein__val){strided[k]->val})));
    w->math_ps = ein__math_ps(g, flop, ein__math_share[EIN__E_BAND]);
}

// The factor of the rows becomes that of the columns.
static void ein__turn_factors(ein__tiled *p) {
    const ein__tiled was = *p;
    for (int k = 0; k < 2; k++) {
        p->read[k] = was.read[1 - k];
        p->group[k] = was.group[1 - k];
        p->extent[k] = was.extent[1 - k];
        p->load[k] = was.load[1 - k];
    }
    if (was.patch.side) p->patch.side = 3 - was.patch.side;
}

// The factor that is no weight counts the rows, wherever neighbours of the result lie.
static void ein__turn_rows(const ein_ctx *ctx, ein__tiled *p) {
    if (!ctx->value[p->read[0]->val].weight_only) return;
    ein__turn_factors(p);
    p->scattered = true;
}

// Whether the loads of factor `side` find in memory what map `v` moves: then that is the factor.
static bool ein__loads_moved(ein_ctx *ctx, const ein__kernel *k, ein__val v, int side,
                             ein__tiled *p) {
    ein__ex load = ein__load_of(ctx, p->read[side], v);
    const ein__expr *e = load.i ? ein__ex_get(ctx, load) : NULL;
    if (!e || e->op != EIN__X_READ || e->bits || ctx->value[e->val].dtype != ctx->value[v.i].dtype)
        return false;
    bool alone;
    int last = ein__product_last(ctx, k->s[0], p, &alone);
    p->read[side] = e;
    p->load[side] = ein__factor_load_of(ctx, k->s[0], e, p->group[side], side ? k->out : NULL, last,
                                        alone, p->math);
    p->rounded = ein__may_round(ctx, (ein__val){p->read[1]->val});
    return true;
}

// What the loads of a product compute.
static void ein__loads_work(ein_ctx *ctx, const ein__kernel *k, ein__tiled *p) {
    for (int i = 0; i < 2 && !k->nrow; i++)
        for (int side = 0; side < 2; side++)
            if (k->load[i].i && p->read[side]->val == k->load[i].i &&
                !ein__loads_moved(ctx, k, k->load[i], side, p)) {
                p->load[side].each =
                    ein__computed_operations(ctx, ein__scope_of(ctx, k->load[i])->body);
                p->computed = true;
            }
}

// What the sums of a product's rows take for each element of the factor: two additions at most, and
// a conversion of halves; and how the factor that they are of lies in memory.
static void ein__rows_work(ein_ctx *ctx, const ein__kernel *k, ein__tiled *p) {
    uint32_t sums = ~((1u << k->s[0]->nt) - 1), terms = 0;
    ein__ex x, first;
    if (!k->nrow) return;
    ein__turn_rows(ctx, p);
    const ein__expr *read[2] = {p->read[0], p->read[1]};
    for (uint32_t i = 0; i < read[0]->nix; i++)
        if (ein__ix_uses(ctx, read[0]->ix[i]) & sums) terms |= 1u << i;
    p->shifted = k->load[0].i &&
                 ein__product_shift(ctx, ein__scope_of(ctx, k->load[0])->body, terms, &x, &first);
    if (p->shifted)
        read[0] = ein__ex_get(ctx, ein__ex_subst(ctx, x, read[0]->ix, (int)read[0]->nix));
    ein__tensor_held(ctx, read, p);
    p->load[0] = ein__factor_load_of(ctx, k->s[0], read[0], p->group[0], NULL, -1, false, p->math);
    p->each = ctx->value[read[0]->val].dtype == EIN__F16;
    for (int i = 1; i <= k->nrow; i++) p->each += k->s[i]->reduce != EIN__R_NONE;
}

// How many reductions a product's tile computes, if it is none that adds another one.
static int ein__joint_of(const ein__kernel *k) { return k->joint ? k->joint : 1; }

// The product of kernel `k` as tiles compute it, and in `*addend` the one that they add to it, by
// the same lines. False: tiles do not.
static bool ein__match_product_kernel(ein_ctx *ctx, const ein__kernel *k, ein__tiled *p,
                                      ein__tiled *addend) {
    if (k->joint || !ein__match_tiles(ctx, k->s[0], k->out, p))
        return ein__match_cross(ctx, k->s, ein__joint_of(k), k->out, p);
    if (k->fma) p->math = EIN__MATH_FP32;
    ein__loads_work(ctx, k, p);
    ein__rows_work(ctx, k, p);
    if (!k->addend) return true;
    if (!ein__match_tiles(ctx, k->s[1], k->out, addend) || addend->alpha != p->alpha) return false;
    if (k->fma) addend->math = EIN__MATH_FP32;
    // Where neighbours of the result are of a batch, either factor may count the rows.
    if (addend->group[0] != p->group[0]) ein__turn_factors(addend);
    ein__loads_work(ctx, k, addend);
    p->addend = addend;
    return !memcmp(p->group, addend->group, sizeof p->group) && p->math == addend->math;
}

// A product by tiles: their loops, and what memory and the epilogue add. A result whose neighbours
// belong to different blocks is written a sector an element.
static void ein__product_work(ein_ctx *ctx, const ein__kernel *k, const ein__scope *s,
                              ein__work *w) {
    ein__tiled p, addend;
    ein__product_cut cut;
    if (!ein__match_product_kernel(ctx, k, &p, &addend)) return;
    w->math_ps = ein__product_cut_of(ctx, &p, &cut);
    int64_t result = ein__times(ein__outputs_of(s), k->size);
    if (p.scattered)
        ein__add_operand(ctx, w, (ein__val){0}, EIN__BY_STRIDE,
                         ein__times(result, EIN__SECTOR / 4 - 1));
}

// Whether a reduction's threads keep what their windows see in registers: each tap is then an
// instruction, as in a map.
static bool ein__is_strip(ein_ctx *ctx, const ein__kernel *k) {
    int64_t out[EIN__MAX_RANK];
    ein__strip w;
    int lane;
    if (!k->out) ein__dense_result(k->s[0], out);
    const int64_t *stride = k->out ? k->out : out;
    return ein__match_strip(ctx, k->s[0], stride, &w) ||
           (ein__match_last(ctx, k->s[0], stride, &w, &lane) &&
            ein__last_columns(ctx, &w, ein__outputs_of(k->s[0])));
}

// Whether a reduction streams one factor of a skinny product.
static bool ein__is_skinny(ein_ctx *ctx, const ein__kernel *k, ein__skinny *z) {
    int64_t out[EIN__MAX_RANK];
    if (k->kind != EIN__K_REDUCE) return false;
    if (!k->out) ein__dense_result(k->s[0], out);
    return ein__match_skinny(ctx, k->s[0], k->out ? k->out : out, z);
}

// Beside the bytes that stream: what the blocks fetch of the few again and again, from the caches;
// instructions; and the turns of the blocks that an SM has one after the other, each of which waits
// for memory once.
static void ein__skinny_work(ein_ctx *ctx, const ein__skinny *z, ein__work *w) {
    // Registers of a thread beside its sums; instructions of a vector beside multiplications; those
    // of a sum in the end, of which exchanges between lanes take four turns at issuing.
    enum { REGISTERS = 72, OF_SM = 65536, AROUND = 6, CONVERT = 4, EXCHANGE = 5, LEAVE = 4 };
    const ein__gpu *g = ein__gpu_of(ctx);
    const ein__tiled *p = &z->p;
    ein__skinny_cut cut = ein__skinny_cut_of(ctx, z);
    int64_t few = p->extent[z->few];
    int64_t lines = ein__times(p->extent[z->many], p->extent[2]);
    int64_t again = ein__times(ein__times(cut.blocks, few), p->depth);
    int64_t size = ein__element_size(ctx, (ein__val){p->read[z->few]->val});
    bool half = ein__element_size(ctx, (ein__val){p->read[z->many]->val}) == 2;
    int64_t each = 4 * few + ein__ceil(few, 4) + AROUND + (half ? CONVERT : 0);
    int64_t ops = ein__times(ein__times(lines, p->depth) / 4, each), end = LEAVE;
    for (int d = cut.lanes; d < 32; d *= 2) end += EXCHANGE;
    end = ein__times(end, few * cut.columns);
    ops = ein__plus(ops, ein__times(ein__times(cut.blocks, cut.block), end));
    // The SM with most blocks.
    ops = ein__muldiv(ops, ein__ceil(cut.blocks, g->sms), cut.blocks);
    int64_t slots = ein__most(OF_SM / ((REGISTERS + few * cut.columns) * cut.block), 1);
    int64_t waves = ein__ceil(cut.blocks, g->sms * slots);
    w->math_ps = ein__memory_ps(g, ein__times(again, size), ein__memory_share[0], true);
    w->math_ps = ein__most(w->math_ps, ein__issued_ps(g, ops, 1));
    w->chain_ps = ein__times(ein__times(waves, cut.turns) - 1, EIN__MEMORY_PS);
}

// Operations of what is computed for an element of a row in front of its first pass, or of every
// pass where it is too long for registers.
static int64_t ein__fronts_each(ein_ctx *ctx, const ein__kernel *k, bool halves) {
    int64_t each = 0;
    for (int i = 0; i < EIN__ROW_LOADS; i++)
        if (k->load[i].i)
            each += ein__operations_for(ctx, ein__scope_of(ctx, k->load[i])->body, 0, halves);
    return each;
}

// What a row's threads take for pass `i`, a reduction or the map behind them. Those of a block have
// one processor: its share of the caches, but where an earlier pass has left the row in registers,
// and its instructions.
static int64_t ein__row_chain(ein_ctx *ctx, const ein__kernel *k, int i) {
    const ein__scope *s = k->s[i];
    bool reduces = s->reduce != EIN__R_NONE;
    int64_t n = ein__outputs_of(k->s[k->n - 1]) / ein__most(ein__outputs_of(k->s[0]), 1);
    if (reduces) n = ein__terms_of(s);
    bool held = i && reduces && n <= EIN__ROW_LENGTH;
    int64_t turns =
        ein__most(ein__ceil(n, held ? EIN__ROW_WIDE : EIN__BLOCK_THREADS), EIN__ROW_THREADS);
    int64_t ps = ein__times(ein__least(ein__ceil(n, EIN__ROW_THREADS), turns), EIN__LOOP_TURN_PS);
    if (n <= EIN__ROW_THREADS * EIN__ROW_THREADS) return ps;
    int64_t each = ein__operations_along(ctx, s->body, ~0u << k->s[0]->nt);
    if (!held) each += EIN__ROW_ISSUED;
    if (!i || n > EIN__ROW_LENGTH) each += ein__fronts_each(ctx, k, false);
    return ein__most(ps, ein__issued_ps(ein__gpu_of(ctx), ein__times(n, each), 1));
}

// How long blocks take that go along the lines of a running sum, `n` places each, of `lines`.
static int64_t ein__lines_chain(const ein__gpu *g, int64_t lines, int64_t n) {
    int64_t each = n % EIN__LINE_EACH ? 1 : EIN__LINE_EACH;
    int64_t turns = ein__ceil(n, EIN__BLOCK_THREADS * each);
    int64_t waves = ein__ceil(lines, g->sms * EIN__LINE_RESIDENT);
    int64_t ops = ein__times(ein__times(ein__ceil(lines, g->sms), turns),
                             EIN__BLOCK_THREADS * EIN__LINE_OPERATIONS);
    int64_t ps = ein__times(ein__times(waves, turns), EIN__MEMORY_PS + EIN__LINE_TURN_PS);
    return ein__most(ps, ein__issued_ps(g, ops, 1));
}

// The kernel of a running sum whose threads or blocks go along (running.c), as the map of its terms
// `*terms`; how long they take for the places. False: it is none.
static bool ein__running_kernel(ein_ctx *ctx, const ein__kernel *k, ein__kernel *map,
                                ein__scope *terms, int64_t *ps) {
    enum { RESIDENT = 1024 };  // threads of an SM: assumed
    int64_t out[EIN__MAX_RANK];
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__running p;
    ein__ex term;
    if (k->kind != EIN__K_REDUCE) return false;
    if (!k->out) ein__dense_result(k->s[0], out);
    const int64_t *stride = k->out ? k->out : out;
    bool along = ein__runs_along(ctx, k->s[0], stride, &p, &term);
    if (!along && !ein__runs_lines(ctx, k->s[0], stride, &p, &term)) return false;
    *terms = *k->s[0];
    terms->reduce = EIN__R_NONE;
    terms->ns = 0;
    terms->body = term;
    *map = *k;
    map->kind = EIN__K_MAP;
    map->s[0] = terms;
    int64_t lines = ein__outputs_of(terms) / terms->n[p.slot], lanes = 4;
    *ps = ein__lines_chain(g, lines, terms->n[p.slot]);
    if (!along) return true;
    if (lines / lanes < EIN__SHARED_OUTPUTS) lanes = 1;
    int64_t waves = ein__ceil(lines / lanes, g->sms * RESIDENT);
    *ps = ein__times(ein__times(waves, terms->n[p.slot]), EIN__LOOP_TURN_PS);
    return true;
}

// Operations of an element of scope `s` of a kernel; what is the same along a row is computed once,
// and so are the terms of a pair's two sums.
static int64_t ein__scope_operations(ein_ctx *ctx, const ein__kernel *k, const ein__scope *s,
                                     bool halves) {
    uint32_t slots = k->kind == EIN__K_ROW ? ~0u << k->s[0]->nt : 0;
    ein__ex body = k->kind == EIN__K_REDUCE ? ein__each_term(ctx, s) : s->body;
    int64_t each = ein__operations_for(ctx, body, slots, halves) + (s->reduce != EIN__R_NONE);
    if (ein__is_pair(ctx, s)) each = ein__ceil(each, 2);
    return k->kind == EIN__K_MAP ? each + ein__digit_operations(ctx, s) : each;
}

// What loops of reductions take for `flop` operations on terms of `s`, at the rate of loops whose
// terms are loaded for a multiply-add (roofline.c), or at that of maps with what the loads take
// beside: those of two are the difference for a multiply-add.
static int64_t ein__loops_ps(ein_ctx *ctx, const ein__scope *s, int64_t flop) {
    const ein__gpu *g = ein__gpu_of(ctx);
    const int64_t *share = ein__math_share;
    int64_t ps = ein__math_ps(g, flop, share[EIN__E_LOOPS]);
    int64_t terms = ein__bounded(ctx, s, ein__extent_of(s, ~0u));
    int64_t loads = ein__times(terms, (int64_t)arrlen(ein__ex_reads(ctx, s->body)));
    int64_t each =
        ein__math_ps(g, loads, share[EIN__E_LOOPS]) - ein__math_ps(g, loads, share[EIN__E_MAP]);
    return ein__least(ps, ein__plus(ein__math_ps(g, flop, share[EIN__E_MAP]), each));
}

// The kernel of sums that threads have together as one of as many results as threads add up, whose
// terms, in `whole`, are those of all of them. False: it is none.
static bool ein__together_kernel(ein_ctx *ctx, const ein__kernel *k, ein__kernel *all,
                                 ein__scope *whole) {
    uint32_t slot;
    const ein__scope *s = k->s[0];
    if (k->kind != EIN__K_REDUCE || k->finished || ein__is_pair(ctx, s)) return false;
    int sums = ein__sums_together(ctx, s, &slot);
    if (sums == 1) return false;
    ein__ex term = ein__common_term(ctx, s, slot);
    *whole = *s;
    *all = *k;
    all->s[0] = whole;
    whole->n[slot] = 1;
    whole->body = ein__ex_at(ctx, s, term, slot, 0);
    for (int j = 1; j < sums; j++)
        whole->body = ein__ex_binary(ctx, EIN__ADD, whole->body, ein__ex_at(ctx, s, term, slot, j));
    return true;
}

// A generated kernel, and in `*parts` how many blocks share the terms of a reduction's results; one
// whose warps pick terms as the loops that parts of kernels have instead. Arithmetic that stays
// below the intensity threshold (operations an element read or written, EinNet's test of what may
// be an eOperator) hides behind the memory; a product above it runs at the rate of plain loops.
static ein__work ein__work_of(ein_ctx *ctx, const ein__kernel *k, int *parts) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__work w = {0};
    ein__kernel map, all;
    ein__scope along, whole, joint[EIN__STEP_VALUES];
    bool terms = false, halves = k->size == 2 && ctx->desc.math == EIN_MATH_FP16;
    *parts = 1;
    if (ein__running_kernel(ctx, k, &map, &along, &w.chain_ps)) k = &map;
    else if (ein__together_kernel(ctx, k, &all, &whole) || ein__joint_passes(ctx, k, &all, joint))
        k = &all;
    int64_t elements = ein__kernel_traffic(ctx, k, &w, &terms), flop = 0;
    int64_t threshold = ctx->desc.intensity > 0 ? ctx->desc.intensity : EIN__INTENSITY;
    ein__skinny skinny;
    bool streams = ein__is_skinny(ctx, k, &skinny);
    ein__ekind kind = k->kind == EIN__K_ROW      ? EIN__E_ROW
                      : streams                  ? EIN__E_GEMM_SKINNY
                      : k->kind == EIN__K_PLACE  ? EIN__E_ROW
                      : k->kind != EIN__K_REDUCE ? EIN__E_MAP
                      : ein__is_strip(ctx, k)    ? EIN__E_MAP
                                                 : EIN__E_LOOPS;
    for (int i = 0; i < k->n; i++) {
        const ein__scope *s = k->s[i];
        int64_t each = ein__scope_operations(ctx, k, s, halves);
        if (i && i <= k->nrow && s->reduce != EIN__R_NONE) continue;
        if ((i == 1 && k->addend) || (i && i < k->joint)) continue;
        if (k->kind == EIN__K_BAND && s->reduce != EIN__R_NONE) ein__band_work(ctx, s, &w);
        else if (k->kind == EIN__K_PRODUCT && s->reduce != EIN__R_NONE)
            ein__product_work(ctx, k, s, &w);
        else if (k->kind == EIN__K_BASIS && s->reduce != EIN__R_NONE)
            flop = ein__plus(flop, ein__scope_flop(ctx, s));
        else if (!streams || s->reduce == EIN__R_NONE)
            flop = ein__plus(flop, ein__bounded(ctx, s, ein__times(ein__extent_of(s, ~0u), each)));
        if (ein__shares(k) && s->reduce != EIN__R_NONE)
            w.chain_ps = ein__reduce_chain(ctx, s, terms, ein__work_bytes(&w), parts);
        if (streams && s->reduce != EIN__R_NONE) {
            ein__skinny_work(ctx, &skinny, &w);
            *parts = 1;
        }
        if (k->kind == EIN__K_ROW) w.chain_ps = ein__plus(w.chain_ps, ein__row_chain(ctx, k, i));
    }
    if (k->kind == EIN__K_ROW) {
        int64_t passes = ein__terms_of(k->s[0]) > EIN__ROW_LENGTH ? k->n : 1;
        int64_t each = ein__times(passes, ein__fronts_each(ctx, k, halves));
        flop = ein__plus(flop, ein__times(ein__extent_of(k->s[0], ~0u), each));
    }
    if (k->also.i && k->kind != EIN__K_ROW) {
        const ein__scope *s = ein__scope_of(ctx, k->also);
        int64_t each = ein__operations_for(ctx, s->body, 0, halves);
        flop = ein__plus(flop, ein__times(ein__extent_of(s, ~0u), each));
    }
    if (flop > ein__times(elements, threshold))
        w.math_ps = ein__plus(w.math_ps, kind == EIN__E_LOOPS
                                             ? ein__loops_ps(ctx, k->s[0], flop)
                                             : ein__math_ps(g, flop, ein__math_share[kind]));
    if (kind == EIN__E_LOOPS) {
        int lane = ein__kernel_lane(ctx, k, &terms);
        w.math_ps = ein__most(w.math_ps, ein__lines_ps(ctx, k->s[0], lane));
        w.math_ps = ein__most(w.math_ps, ein__turns_ps(ctx, k->s[0], terms));
        w.math_ps = ein__most(w.math_ps, ein__fetch_ps(ctx, k, terms));
    }
    if (ein__row_end(k)) w.math_ps = ein__most(w.math_ps, ein__ended_ps(ctx, k));
    if (k->kind == EIN__K_MAP) {
        int lane = ein__kernel_lane(ctx, k, &terms);
        w.math_ps = ein__most(w.math_ps, ein__lines_ps(ctx, k->s[0], lane));
        w.math_ps = ein__most(w.math_ps, ein__map_ps(ctx, k->s[0], lane));
    }
    return w;
}

// The same, which is asked for again and again (priced.c). What meets a limit meets it each time.
static ein__work ein__kernel_work(ein_ctx *ctx, const ein__kernel *k, int *parts) {
    ein__priced p;
    memset(&p, 0, offsetof(ein__priced, by));
    size_t n = (size_t)ein__tell_kernel(ctx, k, p.by), size = offsetof(ein__priced, by) + n;
    ctx->priced.derived = offsetof(ein__priced, by);
    uint32_t id = n ? ein__interned(&ctx->priced, &p, size) : 0;
    const ein__priced *known = id ? ctx->priced.rec[id] : NULL;
#ifndef EIN_CHECK_STEPS
    if (known) {
        *parts = (int)known->parts;
        return known->work;
    }
#endif
    int nerror = ctx->nerror;
    p.work = ein__work_of(ctx, k, parts);
    p.parts = *parts;
    EIN_ASSERT(!known || !memcmp(known, &p, offsetof(ein__priced, by)));
    if (n && !known && ctx->nerror == nerror) ein__intern(&ctx->arena, &ctx->priced, &p, size);
    return p.work;
}

// The same of a kernel by itself, whose warps pick terms where that is cheaper than loops: `*p`, of
// no warps where they do not.
static ein__work ein__picked_work(ein_ctx *ctx, const ein__kernel *k, int *parts, ein__picks *p) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__work best = ein__kernel_work(ctx, k, parts);
    ein__kernel map = *k;
    ein__picks q;
    int64_t dense[EIN__MAX_RANK], least = 0, behind = 0;
    bool terms;
    *p = (ein__picks){0};
    ein__dense_result(k->s[0], dense);
    if (k->kind != EIN__K_REDUCE || k->finished || k->s[k->n - 1]->nt != k->s[0]->nt) return best;
    if (!ein__match_picks(ctx, k->s[0], k->out ? k->out : dense, &q)) return best;
    least = ein__work_ps(g, &best);
    map.kind = EIN__K_MAP;  // neighbouring lanes have neighbouring results
    for (int i = 1; i < k->n; i++) {
        int64_t each = ein__scope_operations(ctx, k, k->s[i], false);
        behind = ein__plus(behind, ein__times(ein__outputs_of(k->s[i]), each));
    }
    for (q.warps = 1; q.warps <= EIN__PICKS_WARPS; q.warps *= EIN__PICKS_WARPS) {
        ein__work w = {0};
        (void)ein__kernel_traffic(ctx, &map, &w, &terms);
        ein__picks_work(ctx, k->s[0], &q, &w);
        w.math_ps = ein__most(w.math_ps, ein__picks_fetch_ps(ctx, k->s[0], &q));
        w.math_ps = ein__plus(w.math_ps, ein__math_ps(g, behind, ein__math_share[EIN__E_MAP]));
        int64_t ps = ein__work_ps(g, &w);
        if (ps >= least) continue;
        least = ps;
        best = w;
        *p = q;
        *parts = 1;
    }
    return best;
}

static int64_t ein__estimate_kernel(ein_ctx *ctx, const ein__kernel *k) {
    int parts;
    ein__picks p;
    ein__work w = ein__picked_work(ctx, k, &parts, &p);
    return ein__work_ps(ein__gpu_of(ctx), &w);
}

// What tells the kernel from others; see kernel_key.c.
static uint64_t ein__kernel_id(ein_ctx *ctx, const ein__kernel *k) {
    ein__hasher z = {.ctx = ctx,
                     .relaid = k->kind == EIN__K_PRODUCT,
                     .inner = k->inner,
                     .load = k->load,
                     .ninner = EIN__STEP_VALUES};
    uint64_t h = ein__hash_kind(ctx, k->kind);
    for (int i = 0; i < k->n; i++) {
        const ein__scope *s = k->s[i];
        h = ein__mix(ein__mix(h, ein__hash_box(s, s->nt + s->ns)), ein__hash_ex(&z, s->body));
    }
    if (k->also.i) {
        const ein__scope *s = ein__scope_of(ctx, k->also);
        h = ein__mix(ein__mix(h, ein__hash_box(s, s->nt)), ein__hash_ex(&z, s->body));
        h = ein__mix(h, ein__hash_operand(&z, k->also));
    }
    if (k->kind == EIN__K_PLACE) h = ein__mix(h, ein__scope_of(ctx, k->inner[0])->reduce);
    if (k->fma) h = ein__mix(h, EIN__MATH_FP32 + 1);
    if (k->addend) h = ein__mix(h, EIN__K_PRODUCT);
    if (k->joint) h = ein__mix(h, (uint64_t)k->joint);
    if (k->kind == EIN__K_PRODUCT && !ein__is_contraction(ctx, k->s[0]))
        h = ein__mix(h, ctx->kernel_seed[EIN__SEED_CROSS]);
    h = ein__mix(h, (uint64_t)z.nseen);
    return ein__hash_result(h, k->s[k->n - 1], k->out, k->size);
}

// The kernel's measured row, of a product the fastest tile's; NULL: there is none.
static const ein__cost_row *ein__kernel_row(ein_ctx *ctx, const ein__kernel *k) {
    char key[EIN__KEY_LENGTH];
    if (!ctx->kernel_rows) return NULL;
    ein__put_kernel_key(key, k->kind, ein__kernel_id(ctx, k));
    return ein__row_of(ctx, key);
}

// Measured where a table has it, else estimated.
static int64_t ein__cost_kernel(ein_ctx *ctx, const ein__kernel *k) {
    const ein__cost_row *row = ein__kernel_row(ctx, k);
    return row ? row->ps : ein__estimate_kernel(ctx, k);
}

// A kernel of its own for definition `s`, with map `m` (or none) fused that reads it by `read`.
// Dense, but for values that a plan has placed.
static ein__kernel ein__scope_kernel(ein_ctx *ctx, ein__kind kind, const ein__scope *s, ein__val m,
                                     ein__ex read, int64_t *out) {
    ein__kernel k = {.kind = kind, .n = 1, .s = {s}, .size = ein__is_untyped(ctx) ? 2 : 4};
    k.fma = ctx->strict && kind == EIN__K_PRODUCT;
    if (m.i) {
        k.s[k.n++] = ein__scope_of(ctx, m);
        k.inner[0] = (ein__val){ein__ex_get(ctx, read)->val};
        k.size = ein__element_size(ctx, m);
    }
    ein__dense_result(k.s[k.n - 1], out);
    k.out = out;
    if (kind == EIN__K_MAP && !m.i && ein__is_transpose(ctx, s, out)) k.kind = EIN__K_TRANSPOSE;
    return k;
}

static int64_t ein__cost_scope(ein_ctx *ctx, ein__kind kind, const ein__scope *s, ein__val m,
                               ein__ex read) {
    int64_t out[EIN__MAX_RANK] = {0};
    ein__kernel k = ein__scope_kernel(ctx, kind, s, m, read, out);
    return ein__cost_kernel(ctx, &k);
}

// Whether that cost is a measured one.
static bool ein__is_scope_measured(ein_ctx *ctx, ein__kind kind, const ein__scope *s, ein__val m,
                                   ein__ex read) {
    int64_t out[EIN__MAX_RANK] = {0};
    ein__kernel k = ein__scope_kernel(ctx, kind, s, m, read, out);
    return ein__kernel_row(ctx, &k) != NULL;
}

static ein__kernel ein__step_kernel(ein_ctx *ctx, const ein__step *step) {
    int from = step->kind == EIN__K_PLACE;  // the extrema come with the places
    ein__kernel k = {.kind = step->kind, .n = step->nval - from};
    for (int i = 0; i < step->nval; i++) {
        if (i >= from) k.s[i - from] = ein__scope_of(ctx, step->val[i]);
        if (i + 1 < step->nval) k.inner[i] = step->val[i];
    }
    k.finished = step->sums;
    if (step->sums) k.s[0] = ein__finish_scope(ctx, step);
    for (int i = 0; i < 2; i++) k.load[i] = step->load[i];
    k.nrow = step->nrow;
    k.addend = step->addend.i != 0;
    k.joint = step->joint;
    k.also = step->ahead ? (ein__val){0} : step->also;
    k.fma = step->kind == EIN__K_PRODUCT && ein__keeps_fp32(ctx, step->val[0]);
    k.out = ctx->plan.layout[step->out.i].stride;
    k.size = ein__dtype_size(ctx->value[step->out.i].dtype);
    return k;
}

// Whether warps of the step's kernel pick terms.
static bool ein__step_picks(ein_ctx *ctx, const ein__step *step, ein__picks *p) {
    int parts;
    if (step->kind != EIN__K_REDUCE || !ein__picks_terms(ctx, ein__scope_of(ctx, step->val[0])))
        return false;
    ein__kernel k = ein__step_kernel(ctx, step);
    (void)ein__picked_work(ctx, &k, &parts, p);
    return p->warps > 0;
}

// A kernel of the plan, its values placed.
EIN__FN int64_t ein__cost_step(ein_ctx *ctx, const ein__step *step) {
    ein__kernel k = ein__step_kernel(ctx, step);
    return ein__cost_kernel(ctx, &k);
}

// Of two costs that are spent one after the other.
static int64_t ein__cost_sum(int64_t a, int64_t b) {
    return ein__least(ein__plus(a, b), INT64_MAX / 8);
}
