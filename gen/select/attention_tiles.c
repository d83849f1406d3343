// How the kernels of an attention cut the work up, and what they cost. Without tensor cores
// (templates/attention.cu) a block of 8 x 16 threads takes 8 * rm rows and 16 * rn keys at a time,
// rc columns a thread in runs of vc; kc of the depth and kv of the keys are in shared memory at
// once. On tensor cores (templates/attention_mma.cu) `rw` of a block's four or eight warps have 16
// or 32 rows each, and the others share the keys of these rows, nk each at a time. In a band, rows
// of a tile are of one residue modulo the dilation, and keys are counted from the tile's first row
// on (see emit_band.c).
//
// A tile of few rows (templates/attention_few.cu) is no matter of arithmetic but of reading keys
// and values once, at the memory's rate: `lanes` lanes share a key, and a block's lanes take
// `ahead` keys each at a time, rows in registers. Rows are whatever key and value do not have: a
// token's heads that share keys are rows of one tile, so these are read once for all of them.
//
// Where there are fewer tiles than the device holds, the keys of one are divided among `parts`
// blocks, each with a triple of its own (attention.c) for every row; the last to be done
// (templates/tail.cu) puts them together (Dao et al. 2023, Flash-Decoding).
typedef struct ein__attention_tile {
    int rows, keys, width;  // of a tile: rows, keys at a time, columns filled up
    int rm, rn, rc, vc, kc, kv;
    ein__math math;  // FP32: without tensor cores
    int warps, rw, nk;
    bool key_across, value_across;  // with tensor cores: keys lie together, not what one has
    int64_t key_part, part;  // with tensor cores: bytes of shared memory for a part of the keys;
                             // for that and the values, or for what warps share in the end
    int64_t query;           // and for the queries
    int64_t nrow, row_tiles, residues, batch, depth, cols;
    int64_t nkey;   // keys of a row
    int64_t terms;  // keys that there are for a tile ...
    int64_t most;   // ... that one meets at most ...
    int64_t met;    // ... and on average
    bool masked;    // a tile need not meet all of them
    bool ends;      // some row has not all of them
    ein__attention_mask mask;
    int64_t score;  // operations of a score where no mask hides it
    int64_t asked;  // the first cache's cycles for what two keys' scores of a warp read
    int64_t row_bytes, key_bytes;  // of that: bytes of a row's key; of a key's for all rows
    ein__attention_work load[3];   // what loads of queries, keys and values take
    int lanes, ahead;              // few rows; else 0
    int kw, vw, ke, ve;  // then: elements of a key and columns of a value a lane loads at once; has
    int parts;           // blocks that share the keys of a tile
    int64_t lines;       // rows of a tile that there are
    int64_t ps;          // arithmetic and steps alone ...
    int64_t tail_ps;     // ... what follows when keys are shared ...
    int64_t all;         // ... and everything, memory too
} ein__attention_tile;

enum {
    EIN__ATTENTION_SHARED = 48 * 1024,  // bytes that a block may have without asking
    EIN__ATTENTION_CHUNK = 32,          // of the depth
    EIN__ATTENTION_SHARE = 500,   // of the peak arithmetic in 1/1000, as ein__math_share has it
    EIN__ATTENTION_RESIDENT = 4,  // blocks of an SM, at most
    EIN__ATTENTION_SAMPLES = 64,  // tiles looked at for how many keys one meets
    // With tensor cores: bytes of a part of the depth, where it is not all at once; registers of a
    // thread beside those for scores and the result, as compilers like to have them; the least they
    // get by with; more for each thing that a kernel does beside; and all that there can be.
    EIN__ATTENTION_PART = 256,
    EIN__ATTENTION_KEPT = 66,
    EIN__ATTENTION_LEAST = 63,
    EIN__ATTENTION_MORE = 4,
    EIN__ATTENTION_LARGEST = 255,
    EIN__ATTENTION_PERCENT = 90,  // of the time that a tile may take which asks for shared memory
    // Elements that rows of keys that lie together begin later: in different banks.
    EIN__ATTENTION_ACROSS = 8,
    // Instructions, counted in machine code: of a score beside its expression (maximum,
    // multiply-add, power, sum, conversion), of a copy of 16 bytes and of a turn apart from these.
    EIN__ATTENTION_SCORE = 5,
    EIN__ATTENTION_COPY = 5,
    EIN__ATTENTION_TURN = 60,
    EIN__ATTENTION_ROUND = 7,  // of four elements rounded where they lie
    // With tensor cores a turn takes more than its busiest unit: hundredths of that unit's time,
    // beside a block's steps, and cycles of an SM for four warps, whatever they do, where others
    // hide the rest. By eleven kernels measured on an H200 and by models of what nvcc makes of
    // twelve more (bench/issue.py, which is near those of longformer). Tenths of what a turn of few
    // rows takes (assumed). Cycles for each value that one warp has of another's keys in the end.
    // Without tensor cores hundredths of what the arithmetic takes, for each block of an SM and
    // once more, by four measured kernels.
    EIN__ATTENTION_APART = 145,
    EIN__ATTENTION_MEETS = 600,
    EIN__ATTENTION_JOIN = 10,
    EIN__ATTENTION_MANY = 93,
    EIN__ATTENTION_ALONE = 45,
    EIN__ATTENTION_FEW = 16,
    // Few rows: threads of a block, rows of a tile, registers of a thread and those that it has
    // beside its elements; until a turn's loads from memory are there. The last two are assumed.
    EIN__ATTENTION_THREADS = 256,
    EIN__ATTENTION_ROWS = 8,
    EIN__ATTENTION_REGISTERS = 200,
    EIN__ATTENTION_BESIDE = 48,
    EIN__ATTENTION_TRIP_PS = 600000
};

static int64_t ein__up(int64_t n, int64_t to) { return ein__times(ein__ceil(n, to), to); }

static int64_t ein__attention_extent(const ein__attention *a, uint32_t slots) {
    int64_t n = 1;
    for (uint32_t i = 0; i < a->slots; i++)
        if (slots >> i & 1) n = ein__times(n, a->box.n[i]);
    return n;
}

// What scores read beside the product's element. A warp asks for eight rows at once, of which the
// cache looks up two a cycle; for both keys of a lane where they lie together.
static void ein__attention_asks(ein_ctx *ctx, const ein__attention *a, ein__ex score,
                                ein__attention_tile *t) {
    const ein__ex *reads = ein__ex_reads(ctx, score);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        uint32_t used = ein__ex_uses(ctx, reads[i]);
        if (e->val == a->dot.i || !(used & a->keys)) continue;
        bool rows = (used & a->rows) != 0;
        bool both = !a->band && t->nkey % 2 == 0 && ein__attention_width(ctx, a, e, a->keys) > 0;
        t->asked += (rows ? 4 : 1) * (both ? 1 : 2);
        *(rows ? &t->row_bytes : &t->key_bytes) += ein__element_size(ctx, (ein__val){e->val});
    }
}

// Sizes that do not depend on rm and rn; false when there are too many columns. A part of the depth
// fills up as little as possible.
static bool ein__attention_sizes(ein_ctx *ctx, const ein__attention *a, ein__attention_tile *t) {
    *t = (ein__attention_tile){.depth = ein__attention_extent(a, a->depth),
                               .cols = ein__attention_extent(a, a->cols),
                               .nkey = ein__attention_extent(a, a->keys),
                               .batch = ein__attention_extent(a, a->batch),
                               .nrow = ein__attention_extent(a, a->rows),
                               .residues = 1,
                               .warps = 4,
                               .parts = 1};
    if (a->band) {
        int64_t d = a->d < 0 ? -a->d : a->d;
        t->residues = ein__least(d, t->nrow);
        t->nrow = ein__ceil(t->nrow, d);
    }
    t->masked = ein__attention_masked(ctx, a, &t->mask) && t->nrow <= INT32_MAX;
    t->ends = t->masked || a->band;
    ein__attention_score s = ein__attention_scores_of(ctx, a);
    ein__ex score = t->masked ? ein__score_as(ctx, &s, t->mask.kept) : s.ex;
    t->score = ein__ex_operations(ctx, score) + (s.factor == 0 && a->alpha != 1);
    t->score += ein__ex_operations(ctx, a->gate);
    ein__attention_asks(ctx, a, score, t);
    ein__attention_asks(ctx, a, a->gate, t);
    const ein__ex part[] = {a->query, a->key, a->value};
    const uint32_t along[] = {a->depth, a->depth, a->cols};
    for (int k = 0; k < 3; k++)
        if (part[k].i) t->load[k] = ein__attention_loading(ctx, a, part[k], along[k]);
    if (t->cols > EIN__ATTENTION_COLUMNS || t->depth > INT32_MAX || t->nkey > INT32_MAX / 4)
        return false;
    for (int vc = 4; vc > 0; vc /= 2)
        if (!t->rc || ein__up(t->cols, 16 * vc) < 16 * t->rc) {
            t->vc = vc;
            t->rc = (int)(ein__up(t->cols, 16 * vc) / 16);
        }
    int64_t most = ein__least(ein__up(t->depth, 4), EIN__ATTENTION_CHUNK);
    for (int kc = (int)most; kc == most || kc >= 8; kc -= 4)
        if (!t->kc || ein__up(t->depth, kc) < ein__up(t->depth, t->kc)) t->kc = kc;
    return true;
}

// The first key of the turn that a tile of rows from `first` on begins with.
static int64_t ein__attention_low(const ein__attention_tile *t, int64_t first) {
    int64_t last = ein__up(t->nkey, t->keys) - t->keys;
    return ein__least(ein__attention_begin(&t->mask, first, t->nkey) / t->keys * t->keys, last);
}

// Whether some tile does not begin with the first of all keys.
static bool ein__attention_is_late(const ein__attention_tile *t) {
    return t->masked && ein__attention_low(t, (t->row_tiles - 1) * t->rows) > 0;
}

// How many tiles of rows there are, and the keys that they meet, a whole number of steps each.
static void ein__attention_meet(const ein__attention *a, ein__attention_tile *t) {
    t->row_tiles = ein__ceil(t->nrow, t->rows);
    t->lines = t->row_tiles > 1 ? t->rows : t->nrow;
    t->met = t->most = t->terms = a->band ? t->nkey + t->rows - 1 : t->nkey;
    if (!t->masked || !t->mask.far) return;
    bool late = ein__attention_is_late(t);
    if (late) t->most = 0;
    int64_t samples = ein__least(t->row_tiles, EIN__ATTENTION_SAMPLES), sum = 0;
    for (int64_t i = 0; i < samples; i++) {
        int64_t first = i * t->row_tiles / samples * t->rows;
        int64_t end = ein__attention_end(&t->mask, first, t->rows, t->nkey);
        int64_t low = late ? ein__attention_low(t, first) : 0;
        end = ein__least(ein__up(end > 0 ? end : 1, t->keys), t->nkey);
        int64_t met = ein__most(end - low, ein__least(t->keys, t->nkey));
        sum += met;
        if (late) t->most = ein__most(t->most, met);
    }
    t->met = sum / samples;
}

static int64_t ein__attention_count_tiles(const ein__attention_tile *t) {
    return ein__times(ein__times(t->batch, t->residues), t->row_tiles);
}

static int64_t ein__attention_blocks(const ein__attention_tile *t) {
    return ein__times(ein__attention_count_tiles(t), t->parts);
}

// Turns of a block whose tile meets `keys` keys.
static int64_t ein__attention_turns(const ein__attention_tile *t, int64_t keys) {
    return ein__ceil(ein__ceil(keys, t->keys), t->parts);
}

// Keys that all tiles go over, in steps of `keys`, when blocks run in waves. Where some meet fewer,
// those with most come first, and the last ones fill up what they leave, but for half a block.
static int64_t ein__attention_span(const ein__gpu *g, const ein__attention_tile *t) {
    int64_t blocks = ein__attention_blocks(t);
    int64_t keys = ein__times(ein__attention_turns(t, t->most), t->keys);
    int64_t one = ein__times(g->sms, keys);
    int64_t waves = ein__times(ein__ceil(blocks, g->sms), one);
    if (!t->masked) return waves;
    int64_t usual = ein__times(ein__attention_turns(t, t->met), t->keys);
    int64_t some = ein__plus(ein__times(blocks, usual), one / 2);
    return ein__least(ein__most(some, one), waves);
}

// Whether a tile of 8 * rm rows and 16 * rn keys fits.
static bool ein__attention_fits(ein__attention_tile *t, int rm, int rn) {
    int64_t rows = 8 * rm, keys = 16 * rn;
    int64_t kept = ein__plus(ein__times(rows, ein__up(t->depth, t->kc) + 4), rows * (keys + 4));
    int64_t free = EIN__ATTENTION_SHARED / 4 - kept, keyed = keys * (t->kc + 4);
    if (rm * t->rc > 64 || keyed > free) return false;
    t->kv = 32;
    while (t->kv > 4 && (int64_t)t->kv * 16 * t->rc > free) t->kv /= 2;
    t->rm = rm;
    t->rn = rn;
    t->rows = (int)rows;
    t->keys = (int)keys;
    t->width = 16 * t->rc;
    return (int64_t)t->kv * 16 * t->rc <= free;
}

// Instructions that `n` elements of a factor take that is computed as it is loaded; 0: it is not.
static int64_t ein__attention_issued(const ein__attention *a, const ein__attention_work *w,
                                     int64_t n) {
    if (!a->nload || !w->computed) return 0;
    int64_t loads = ein__times(ein__times(n, w->reads), EIN__ATTENTION_COPY);
    return ein__plus(ein__times(n, w->operations), loads / w->width);
}

// Those of a query, for all tiles that one multiprocessor has.
static int64_t ein__attention_query(ein_ctx *ctx, const ein__attention *a,
                                    const ein__attention_tile *t) {
    int64_t n = ein__times(t->rows, t->depth);
    int64_t tiles = ein__ceil(ein__attention_blocks(t), ein__gpu_of(ctx)->sms);
    return ein__times(ein__attention_issued(a, &t->load[0], n), tiles);
}

// How many of a tile's turns are beyond the ends of `n` places, where u is at first + by * u.
static int64_t ein__attention_outside(const ein__attention_tile *t, int64_t first, int64_t by,
                                      int64_t n) {
    if (by < 0) {
        first += by * (t->terms - 1);
        by = -by;
    }
    int64_t below = first < 0 ? ein__least(ein__ceil(-first, by), t->terms) : 0,
            behind = first < n ? ein__least(ein__ceil(n - first, by), t->terms) : 0;
    return below / t->keys + ein__ceil(t->terms, t->keys) - ein__ceil(behind, t->keys);
}

// Whether places in a band are numbers that neither estimates nor 32 bits of a kernel, a turn
// beyond the last key, need to care for.
static bool ein__attention_near(const ein__index *x, int64_t km, int64_t kj) {
    const int64_t most = 1 << 20, far = INT32_MAX;
    return x->q == 1 && kj && -most < kj && kj < most && -most < km && km < most && -far < x->c &&
           x->c < far;
}

// Of a band's turns the share, in 1/1000, whose keys are not all beyond the ends of what is read:
// the others take no products.
static int64_t ein__attention_inside(ein_ctx *ctx, const ein__attention *a,
                                     const ein__attention_tile *t) {
    const ein__expr *e = a->dot.i ? ein__ex_get(ctx, a->key) : NULL;
    int64_t turns = ein__ceil(t->terms, t->keys), most = 0, far = ein__most(a->d, -a->d);
    if (!a->band || !e || e->op != EIN__X_READ || e->bits) return 1000;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *x = ein__ix_get(ctx, e->ix[k]);
        int64_t km = ein__ix_coef(ctx, e->ix[k], (uint32_t)a->m), n, out = 0;
        int64_t kj = ein__ix_coef(ctx, e->ix[k], (uint32_t)a->j);
        uint32_t others = ein__ix_uses(ctx, e->ix[k]) & ~(1u << a->m | 1u << a->j);
        if (!ein__attention_near(x, km, kj) || others || a->box.n[a->m] > INT32_MAX) continue;
        n = ctx->value[e->val].shape.d[k];
        int64_t samples = ein__least(t->row_tiles, EIN__ATTENTION_SAMPLES);
        for (int64_t i = 0; i < samples; i++) {
            int64_t first = x->c + km * far * (i * t->row_tiles / samples * t->rows);
            if (a->d < 0) first += kj * (t->nkey - 1);
            out += ein__attention_outside(t, first, a->d < 0 ? -kj : kj, n);
        }
        most = ein__most(most, out * 1000 / (samples * turns));
    }
    return 1000 - ein__least(most, 1000);
}

// Arithmetic of all tiles: two products, and what a score costs apart from them. Blocks run in
// waves; smaller tiles load more for a multiply-add.
static int64_t ein__attention_math(ein_ctx *ctx, const ein__attention *a,
                                   const ein__attention_tile *t) {
    static const int relative[] = {0, 400, 600, 750, 850, 900, 950, 980, 1000};  // by rm
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t depth = ein__up(t->depth, t->kc);
    int64_t each = t->score + 14;  // exp, maximum, sum
    int64_t products = 2 * ((a->dot.i ? depth : 0) + 16 * t->rc);
    int64_t flop = ein__plus(products * ein__attention_inside(ctx, a, t) / 1000, each);
    int64_t span = ein__attention_span(g, t);
    flop = ein__times(ein__times(8 * t->rm, span), flop);
    int64_t loads = ein__attention_issued(a, &t->load[1], ein__times(span, t->depth));
    loads = ein__plus(loads, ein__attention_issued(a, &t->load[2], ein__times(span, t->cols)));
    loads = ein__plus(loads, ein__times(ein__attention_query(ctx, a, t), g->sms));
    flop = ein__plus(flop, ein__times(2, loads));
    int64_t share = EIN__ATTENTION_SHARE * relative[t->rm] / 1000;
    return ein__math_ps(g, flop, t->rn == 4 ? share : share * 9 / 10);
}

// Whether halves have too few exponents for something that its products read; weights that are a
// softmax are 1 at most.
static bool ein__attention_is_wide(ein_ctx *ctx, const ein__attention *a) {
    const ein__ex part[] = {a->query, a->key, a->value};
    bool wide = false;
    for (int p = 0; p < 3; p++) {
        const ein__ex *reads = ein__ex_reads(ctx, part[p]);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++)
            wide |= ein__stays_wide(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val});
    }
    for (int k = 0; k < a->n && !a->soft; k++)
        wide |= ein__is_map(ctx, a->inner[k]) && ein__stays_wide(ctx, a->inner[k]);
    return wide;
}

// Whether the model stores what both products multiply as halves: elements as they are, and weights
// of the values.
static bool ein__attends_halves(ein_ctx *ctx, const ein__attention *a) {
    const ein__ex part[] = {a->query, a->key, a->value};
    const ein__expr *read[2];
    double alpha;
    bool half = ein__multiplies_halves(ctx) && a->dot.i;
    for (int p = 0; p < 3 && half; p++) half = ein__moves_halves(ctx, part[p], false);
    return half && ein__two_factors(ctx, ein__scope_of(ctx, a->out), read, &alpha) &&
           ctx->value[read[0]->val].dtype == EIN__F16 && ctx->value[read[1]->val].dtype == EIN__F16;
}

// The arithmetic of both products where tensor cores multiply; FP32 where they do not.
static ein__math ein__attention_mode(ein_ctx *ctx, const ein__attention *a) {
    if (ein__gpu_of(ctx)->cc < 80 || ein__keeps_fp32(ctx, a->out)) return EIN__MATH_FP32;
    for (int k = 0; k < a->n; k++)
        if (ein__keeps_fp32(ctx, a->inner[k])) return EIN__MATH_FP32;
    if (ein__attention_is_wide(ctx, a))
        return ein__gpu_of(ctx)->tf32 ? EIN__MATH_TF32 : EIN__MATH_FP32;
    if (ein__attends_halves(ctx, a)) return EIN__MATH_FP16;
    return ctx->desc.math == EIN_MATH_TF32   ? EIN__MATH_TF32
           : ctx->desc.math == EIN_MATH_FP16 ? EIN__MATH_FP16
                                             : EIN__MATH_FP32;
}

// Elements of a row that two steps of a tensor core's depth are apart of those it multiplies: rows
// begin 16 bytes later, so that lanes read different banks.
static int64_t ein__attention_pitch(const ein__attention_tile *t, int64_t n) {
    return n + 16 / ein__math_bytes(t->math);
}

// Bytes of shared memory that a tensor cores' tile takes.
static int64_t ein__attention_shared(const ein__attention_tile *t) {
    return ein__plus(t->query, ein__up(t->part, 16));
}

// Parts of keys and values in shared memory, as they lie in memory: where it is keys that lie
// together, what all of them have is a row there.
static void ein__tensor_parts(ein__attention_tile *t) {
    int64_t size = ein__math_bytes(t->math), split = t->warps / t->rw;
    int64_t across = size * (t->keys + EIN__ATTENTION_ACROSS), one = size * t->keys;
    t->key_part = t->key_across ? t->kc * across : ein__times(one, ein__attention_pitch(t, t->kc));
    t->part = t->key_part;
    t->part +=
        t->value_across ? t->width * across : ein__times(one, ein__attention_pitch(t, t->width));
    // What warps that share keys have in the end: by 16 rows, a maximum, a sum and an accumulator.
    t->part = ein__most(t->part, (split - 1) * t->rw * t->rm * 32 * 4 * (t->width / 2 + 4));
}

// Registers of a thread for scores and the result.
static int ein__attention_sums(const ein__attention_tile *t) {
    return t->rm * (t->width + t->nk) / 2;
}

// Whether threads that load a part have different places in their rows each time.
static bool ein__attention_uneven(const ein__attention_tile *t) {
    int64_t vector = 16 / ein__math_bytes(t->math), threads = 32 * t->warps;
    int64_t key = (t->key_across ? t->keys : t->kc) / vector;
    int64_t value = (t->value_across ? t->keys : t->width) / vector;
    return threads % key || threads % value;
}

// Registers that a thread cannot do without: more where warps share the keys of a row, where a row
// may lack some, where what lies together is keys, where scores read something, and for places.
static int ein__tensor_registers(const ein__attention_tile *t) {
    int more = t->rw < t->warps;
    more += t->ends || t->nkey % t->keys;
    more += t->key_across || t->value_across;
    more += t->asked > 0;
    more += ein__attention_uneven(t);
    return ein__attention_sums(t) + EIN__ATTENTION_LEAST + more * EIN__ATTENTION_MORE;
}

// Whether a tile with `rw` of its warps along the rows, 16 * rm of them each, fits that take `nk`
// keys at a time, and of the depth all (`deep` false) or parts.
static bool ein__tensor_fits(const ein__gpu *g, ein__attention_tile *t, int rw, int rm, int nk,
                             bool deep) {
    int64_t size = ein__math_bytes(t->math), step = 32 / size, split = t->warps / rw;
    int64_t parts = deep ? ein__ceil(t->depth * size, EIN__ATTENTION_PART) : 1;
    int64_t kc = ein__up(ein__ceil(t->depth, parts), step), keys = split * nk;
    if (deep && parts == 1) return false;
    t->kc = (int)kc;
    t->rw = rw;
    t->rm = rm;
    t->nk = nk;
    t->rows = 16 * rw * rm;
    t->keys = (int)keys;
    t->width = (int)ein__up(t->cols, 16);
    t->query = size * ein__times(t->rows, ein__attention_pitch(t, ein__up(t->depth, kc)));
    ein__tensor_parts(t);
    return ein__tensor_registers(t) <= EIN__ATTENTION_LARGEST &&
           ein__attention_shared(t) <= ein__shared_room(g, 1);
}

// What blocks read and the L2 cache has: keys and values once more for every tile of rows, and what
// their scores read.
static int64_t ein__attention_again(ein_ctx *ctx, const ein__attention *a,
                                    const ein__attention_tile *t) {
    int64_t tiles = ein__attention_count_tiles(t);
    int64_t key = a->dot.i ? t->load[1].bytes : 0;
    int64_t each = key * t->depth + t->load[2].bytes * t->cols + t->key_bytes;
    each = ein__plus(each, ein__times(t->lines, t->row_bytes));
    int64_t bytes = ein__times(ein__times(tiles, t->met), each);
    return ein__memory_ps(ein__gpu_of(ctx), bytes, ein__memory_share[EIN__BY_WINDOW], true);
}

// Cycles of a warp's turn, which the warps of a block take side by side: of instructions, by kind;
// of tensor cores; or of the memory that they share with the first cache, which gives 128 bytes a
// cycle to all four.
static int64_t ein__attend_cycles(ein_ctx *ctx, const ein__attention *a,
                                  const ein__attention_tile *t) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t size = ein__math_bytes(t->math), step = 32 / size, half = size == 2;
    int64_t depth = a->dot.i ? ein__up(t->depth, t->kc) : 0, steps = depth / step;
    int64_t products = t->rm * (t->nk / 8 * steps + t->nk / step * (t->width / 8));
    int64_t blocks = t->nk / 16 * (t->width / 16);  // of values, 16 columns of 16 keys each
    int64_t wide = steps * (t->rm + t->nk / 16) + half * blocks, narrow = (1 - half) * 8 * blocks;
    int64_t *const part[] = {&products, &wide, &narrow}, inside = ein__attention_inside(ctx, a, t);
    for (int p = 0; p < 3; p++) *part[p] = ein__times(*part[p], inside) / 1000;
    int64_t scores = ein__times(t->rm * t->nk / 2, t->score + EIN__ATTENTION_SCORE),
            threads = 32 * t->warps;
    int64_t key = ein__attention_issued(a, &t->load[1], t->keys * depth);
    int64_t value = ein__attention_issued(a, &t->load[2], t->keys * t->width);
    int64_t copied = (key ? 0 : depth) + (value ? 0 : t->width);
    int64_t bytes = t->keys * copied * size, rounded = half ? 0 : bytes / 16;
    int64_t copies = bytes / 16 / threads * EIN__ATTENTION_COPY + (key + value) / threads;
    copies += rounded * EIN__ATTENTION_ROUND / threads;
    int64_t issued = products + wide + narrow + copies;
    if (a->soft && !ein__attention_is_quotient(ctx, a)) issued += t->rm * t->width / 2;
    issued = ein__times(ein__plus(scores, issued + EIN__ATTENTION_TURN), t->warps) / 4;
    int64_t flop = t->warps * products * 16 * 8 * step * 2, lanes = ein__sm_lanes(g);
    int64_t peak = t->math == EIN__MATH_TF32 ? g->tf32 : g->fp16;
    int64_t multiplied = ein__muldiv(flop, g->fp32 * 1000, peak * 2 * lanes * EIN__TENSOR_SHARE);
    int64_t answered = t->warps * (4 * wide + narrow + t->rm * t->nk / 4 * t->asked);
    answered += rounded * 2 / 8;  // 16 bytes each, read and written
    return ein__most(issued, ein__most(multiplied, answered));
}

// Blocks of an SM for whose registers and shared memory there is room.
static int ein__attention_resident(const ein__gpu *g, const ein__attention_tile *t) {
    int registers = ein__attention_sums(t) + EIN__ATTENTION_KEPT;
    if (ein__attention_uneven(t)) registers += EIN__ATTENTION_MORE;
    if (registers > EIN__ATTENTION_LARGEST) registers = EIN__ATTENTION_LARGEST;
    int64_t shared = ((int64_t)g->sm_kb << 10) / (ein__attention_shared(t) + EIN__SHARED_RESERVED),
            most = ein__most(1, ein__least(2048 / t->warps / registers, shared));
    return (int)ein__least(EIN__ATTENTION_RESIDENT, most);
}

// Elements of `part`, or vectors of them, that a thread loads at once through registers, by the
// registers that there are: one takes as many loads of 16 bytes as it has reads.
static int ein__attention_loaded(const ein__gpu *g, const ein__attention_tile *t, int part) {
    enum { MANY = 64, SOME = 24 };
    int64_t reads = ein__least(ein__most(t->load[part].reads, 1), 4);
    int all = 2048 / t->warps / ein__attention_resident(g, t);
    if (all > EIN__ATTENTION_LARGEST) all = EIN__ATTENTION_LARGEST;
    int spare = all - ein__attention_sums(t) - EIN__ATTENTION_KEPT;
    return (spare >= MANY ? 16 : spare >= SOME ? 8 : 4) / (int)reads;
}

// Steps of a turn in which a block waits for keys (from 1 on) or values (2) that go through
// registers, and are not on their way meanwhile.
static int64_t ein__attention_waits(const ein__gpu *g, const ein__attention_tile *t, int from) {
    int64_t waits = 0, size = ein__math_bytes(t->math);
    for (int k = from; k < 3; k++) {
        const ein__attention_work *w = &t->load[k];
        bool across = k == 1 ? t->key_across : t->value_across;
        bool copied = !w->computed && w->bytes == size && (across || w->width * size == 16);
        int64_t loads = t->keys * (k == 1 ? t->kc : t->width) / ein__most(w->width, 1);
        if (!copied) waits += ein__ceil(loads, 32 * t->warps * ein__attention_loaded(g, t, k));
    }
    return waits;
}

// Time of all tiles: the slowest of turns, which do not quite overlap, of what blocks fetch, and of
// the steps of one block after the other where those of others do not hide their latency.
static int64_t ein__attend_tensor_ps(ein_ctx *ctx, const ein__attention *a,
                                     const ein__attention_tile *t) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t depth = ein__up(t->depth, t->kc), turns = ein__attention_turns(t, t->most);
    int64_t blocks = ein__attention_blocks(t);
    int64_t lanes = ein__sm_lanes(g);
    int64_t span = ein__attention_span(g, t) / (g->sms * t->keys);
    int64_t turn = ein__attend_cycles(ctx, a, t), query = ein__attention_query(ctx, a, t) / 128;
    int64_t all = ein__plus(ein__times(turn, span), query), clock = 1000 * g->sms * 2 * lanes;
    all = ein__times(all, EIN__ATTENTION_APART) / 100;
    all = ein__plus(all, ein__times(span, t->warps * EIN__ATTENTION_MEETS / 4));
    int64_t ps = ein__muldiv(all, clock, g->fp32);
    int64_t rounds = ein__ceil(blocks, ein__times(g->sms, ein__attention_resident(g, t)));
    int64_t waits = ein__attention_waits(g, t, a->dot.i ? 1 : 2);
    int64_t steps = ein__plus(ein__times(turns, depth / t->kc + 1 + waits), 3);
    int64_t chain = ein__times(steps, EIN__PRODUCT_STEP_PS);
    int64_t block = ein__times(ein__times(turn, turns), EIN__ATTENTION_APART) / 100;
    block += (t->warps / t->rw - 1) * t->rm * (t->width / 2 + 4) * EIN__ATTENTION_JOIN;
    chain = ein__plus(chain, ein__muldiv(block, clock, g->fp32));
    chain = ein__plus(chain, ein__muldiv(ein__times(chain, rounds - 1), t->met, t->most));
    return ein__most(ein__most(ps, chain), ein__attention_again(ctx, a, t));
}

// Time of one block's steps without tensor cores, as above.
static int64_t ein__plain_chain(ein_ctx *ctx, const ein__attention_tile *t) {
    int64_t loads = ein__ceil(t->depth, t->kc) + ein__ceil(t->keys, t->kv);
    int64_t steps = ein__plus(ein__times(ein__attention_turns(t, t->most), loads), 2);
    int64_t rounds = ein__ceil(ein__attention_blocks(t),
                               ein__times(ein__gpu_of(ctx)->sms, EIN__ATTENTION_RESIDENT));
    return ein__times(ein__times(steps, EIN__PRODUCT_STEP_PS), rounds);
}

// Time of all tiles without tensor cores.
static int64_t ein__attend_plain_ps(ein_ctx *ctx, const ein__attention *a,
                                    const ein__attention_tile *t) {
    int64_t each = ein__ceil(ein__attention_blocks(t), ein__gpu_of(ctx)->sms);
    int64_t ps = ein__attention_math(ctx, a, t);
    ps = ein__muldiv(ps, EIN__ATTENTION_MANY + EIN__ATTENTION_ALONE / each, 100);
    ps = ein__most(ps, ein__plain_chain(ctx, t));
    return ein__most(ps, ein__attention_again(ctx, a, t));
}

// Sizes of tiles of few rows; false when there are none.
static bool ein__few_sizes(ein_ctx *ctx, const ein__attention *a, ein__attention_tile *t) {
    (void)ein__attention_sizes(ctx, a, t);
    t->kw = a->dot.i ? t->load[1].width : 1;
    t->vw = t->load[2].width;
    t->rows = (int)ein__ceil(t->nrow, ein__ceil(t->nrow, EIN__ATTENTION_ROWS));
    t->math = EIN__MATH_FP32;
    return t->kw && t->vw && t->depth <= EIN__ATTENTION_SHARED / 4;
}

// What a lane has, from what it loads at once.
static void ein__few_lanes(const ein__attention *a, ein__attention_tile *t) {
    t->ke = a->dot.i ? (int)(ein__up(t->depth, t->lanes * t->kw) / t->lanes) : 0;
    t->ve = (int)(ein__up(t->cols, t->lanes * t->vw) / t->lanes);
    t->kc = a->dot.i ? t->ke * t->lanes : 1;
    t->width = t->ve * t->lanes;
}

// Registers of a thread: rows of the query and of the result, what is on its way, one of those
// spread to f32.
static int64_t ein__few_registers(const ein__attention_tile *t) {
    int64_t loads = t->ahead * 4 * (t->ke / t->kw + t->ve / t->vw);
    return t->rows * (t->ke + t->ve + t->ahead) + loads + ein__most(t->ke, t->ve) +
           EIN__ATTENTION_BESIDE;
}

// Whether a tile with `lanes` lanes a key fits, `ahead` keys at a time.
static bool ein__few_fits(const ein__attention *a, ein__attention_tile *t, int lanes, int ahead) {
    t->lanes = lanes;
    t->ahead = ahead;
    ein__few_lanes(a, t);
    t->keys = EIN__ATTENTION_THREADS / lanes * ahead;
    int64_t shared = t->rows * (t->kc + EIN__ATTENTION_THREADS / 32 * (t->width + 4)) * 4;
    return shared <= EIN__ATTENTION_SHARED && ein__few_registers(t) <= EIN__ATTENTION_REGISTERS;
}

// Time of all tiles of few rows: instructions, or one trip to memory after the other.
static int64_t ein__attend_few_ps(ein_ctx *ctx, const ein__attention *a,
                                  const ein__attention_tile *t) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t lanes = ein__sm_lanes(g), turns = ein__attention_turns(t, t->most), log = 0;
    for (int d = 1; d < t->lanes; d *= 2) log++;
    int64_t each = t->score + EIN__ATTENTION_SCORE;
    int64_t scores = t->ahead * (t->ke + t->ve + (a->dot.i ? 2 * log : 0)) + t->ve;
    scores = ein__times(t->rows, ein__plus(scores, ein__times(t->ahead, each)));
    int64_t copies = t->ahead * (t->ke / t->kw + t->ve / t->vw) * EIN__ATTENTION_COPY;
    int64_t spread = t->ahead * ((t->kw == 8) * t->ke + (t->vw == 8) * t->ve);
    int64_t issued = ein__plus(scores, copies + spread + EIN__ATTENTION_TURN);
    issued = ein__plus(issued, ein__attention_issued(a, &t->load[1], t->ahead * t->ke));
    issued = ein__plus(issued, ein__attention_issued(a, &t->load[2], t->ahead * t->ve));
    int64_t cycles = ein__times(issued, ein__attention_span(g, t) / (g->sms * t->keys));
    cycles = ein__plus(cycles, ein__attention_query(ctx, a, t) / EIN__ATTENTION_THREADS);
    cycles = ein__times(cycles, EIN__ATTENTION_THREADS / lanes);
    cycles = ein__muldiv(cycles, EIN__ATTENTION_FEW, 10);
    int64_t ps = ein__muldiv(cycles, 1000 * g->sms * 2 * lanes, g->fp32);
    int64_t resident = 65536 / EIN__ATTENTION_THREADS / ein__few_registers(t);
    int64_t rounds =
        ein__ceil(ein__attention_blocks(t), ein__times(g->sms, ein__most(resident, 1)));
    int64_t chain = ein__times(turns, EIN__ATTENTION_TRIP_PS);
    chain = ein__plus(chain, 2 * EIN__PRODUCT_STEP_PS + EIN__SHARE_JOIN_PS);
    chain = ein__plus(chain, ein__muldiv(ein__times(chain, rounds - 1), t->met, t->most));
    return ein__most(ein__most(ps, chain), ein__attention_again(ctx, a, t));
}

// Bytes that a block leaves of its share of the keys: a key_part.
static int64_t ein__attention_part_bytes(const ein__attention_tile *t) {
    return ein__up(ein__times(t->lines, 4 * (t->width + 2)), 16);
}

static int64_t ein__attention_workspace(const ein__attention_tile *t) {
    return t->parts == 1 ? 0 : ein__times(ein__attention_blocks(t), ein__attention_part_bytes(t));
}

// What it takes to put the parts of all tiles together, as ein__tail_ps has it of products.
static int64_t ein__attention_tail(const ein__gpu *g, const ein__attention_tile *t) {
    int64_t alone = ein__most(g->sms / EIN__TAIL_ALONE, 1), tiles = ein__attention_count_tiles(t);
    int64_t l2 = ein__most(g->bandwidth * g->l2_rate / 100, g->bandwidth);
    int64_t tail = ein__times(t->parts * ein__attention_part_bytes(t), ein__most(tiles, alone));
    if (t->parts == 1) return 0;
    int64_t ps = ein__muldiv(ein__attention_workspace(t) + tail, 1000 * 1000, l2);
    return ein__plus(ps, EIN__TAIL_PS + t->parts * EIN__SHARE_ARRIVAL_PS);
}

typedef int64_t ein__attention_time(ein_ctx *ctx, const ein__attention *a,
                                    const ein__attention_tile *t);

// Takes `t` for `best` (none yet: its rows are 0) where it is faster, its keys shared by as many
// blocks as is best. `memory`: time of what it moves.
static void ein__attention_offer(ein_ctx *ctx, const ein__attention *a, ein__attention_time *time,
                                 int64_t memory, ein__attention_tile *t,
                                 ein__attention_tile *best) {
    static const int choices[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t whole = INT64_MAX;
    ein__attention_meet(a, t);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        // A machine that is full has nothing to gain.
        if (i && ein__attention_blocks(t) >= g->sms * EIN__ATTENTION_RESIDENT) break;
        t->parts = choices[i];
        if (i && t->parts > ein__ceil(t->met, t->keys)) break;
        if (ein__attention_workspace(t) > g->l2_bytes / 4) break;
        t->ps = time(ctx, a, t);
        t->tail_ps = ein__attention_tail(g, t);
        // Few turns do not hide what the first ones wait for; few rows have many.
        t->all = t->lanes ? ein__most(t->ps, memory) : ein__plus(t->ps, memory);
        t->all = ein__plus(t->all, t->tail_ps);
        if (!i) whole = t->all;
        if (i && !ein__tail_gains(t->all, whole)) continue;
        if (best->rows && (t->all > best->all || (t->all == best->all && t->ps >= best->ps)))
            continue;
        *best = *t;
    }
}

// Time of what `n` expressions move, queries, keys, values and what a score reads from memory once,
// and `bytes`.
static int64_t ein__attention_moved(ein_ctx *ctx, const ein__attention *a, const ein__ex *part,
                                    int n, int64_t bytes) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__work w = {0};
    ein__traffic z = {0};
    ein__kernel k = {.kind = EIN__K_ATTENTION, .inner = {a->dot, a->max, a->sum, a->out}};
    for (int p = 0; p < n; p++) {
        ein__scope s = a->box;
        s.body = part[p];
        s.ns = a->slots - s.nt;
        ein__add_traffic(ctx, &z, &k, &s, -1);
    }
    for (ptrdiff_t i = 0; i < arrlen(z.of); i++)
        ein__add_operand(ctx, &w, z.of[i].v, z.of[i].access,
                         ein__times(z.of[i].n, ein__element_size(ctx, z.of[i].v)));
    arrfree(z.seen);
    arrfree(z.of);
    w.bytes[EIN__BY_UNIT] = ein__plus(w.bytes[EIN__BY_UNIT], bytes);
    return ein__work_ps(g, &w) - ein__launch_ps(g);
}

// `a` with the keys alone that some row attends to.
static ein__attention ein__attention_seen(ein_ctx *ctx, const ein__attention *a) {
    ein__attention z = *a;
    ein__attention_mask m;
    int64_t keys = ein__attention_extent(a, a->keys), rows = ein__attention_extent(a, a->rows);
    if (rows > INT32_MAX || !ein__attention_masked(ctx, a, &m) || !m.far) return z;
    int64_t first = ein__attention_begin(&m, 0, keys);
    int64_t n = ein__attention_end(&m, 0, rows, keys) - first;
    int key = 0;
    while (!(a->keys >> key & 1)) key++;
    if (n <= 0 || n == keys) return z;
    ein__ix at = ein__ix_addc(ctx, ein__ix_iter(ctx, (uint32_t)key, n), first);
    ein__ex *part[] = {&z.key, &z.value, &z.score, &z.gate};
    z.box.n[key] = n;
    for (int p = 0; p < 4; p++) {
        *part[p] = ein__attention_in(ctx, a, *part[p], key, at);
        if (!part[p]->i) return *a;
    }
    return z;
}

// The two products' operands are in the L2 cache where they are for products of their own.
static int64_t ein__attention_memory(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    ein__attention z = ein__attention_seen(ctx, a);
    const ein__ex first[] = {z.query, z.key, z.score}, second[] = {z.value, z.gate, z.result};
    return ein__plus(ein__attention_moved(ctx, &z, first, 3, 0),
                     ein__attention_moved(ctx, &z, second, 3, bytes_out));
}

// Tiles on tensor cores. Halves are multiplied on GPUs too whose blocks cannot ask for shared
// memory, should the program be compiled for one: theirs ask only where much is gained.
static void ein__attention_tensor(ein_ctx *ctx, const ein__attention *a, int64_t memory,
                                  ein__attention_tile *t, ein__attention_tile *best) {
    const ein__gpu *g = ein__gpu_of(ctx);
    static const int keys[] = {64, 48, 32, 16};
    ein__attention_tile large = {0};
    t->key_across = a->dot.i && ein__attention_lies_across(ctx, a, a->key, a->depth);
    t->value_across = ein__attention_lies_across(ctx, a, a->value, a->cols);
    // Warps, of them those along the rows, 16 rows of one, its keys, parts of the depth.
    for (int cut = 0; cut < 2 * 3 * 2 * 4 * 2; cut++) {
        t->warps = cut % 2 ? 8 : 4;
        if (!ein__tensor_fits(g, t, t->warps >> cut / 2 % 3, 2 >> cut / 6 % 2, keys[cut / 12 % 4],
                              cut / 48))
            continue;
        bool asks = ein__attention_shared(t) > EIN__ATTENTION_SHARED && t->math == EIN__MATH_FP16;
        ein__attention_offer(ctx, a, ein__attend_tensor_ps, memory, t, asks ? &large : best);
    }
    if (large.rows && (!best->rows || large.all < best->all / 100 * EIN__ATTENTION_PERCENT))
        *best = large;
}

// The fastest tile for `a` as it is, the largest one among equals; its rows are 0 when none fits.
static ein__attention_tile ein__attention_best(ein_ctx *ctx, const ein__attention *a,
                                               int64_t memory) {
    ein__attention_tile t, best = {0};
    ein__math math = ein__attention_mode(ctx, a);
    if (!ein__attention_sizes(ctx, a, &t)) return best;
    for (int rm = 8; rm > 0; rm--)
        for (int rn = 4; rn > 1; rn /= 2)
            if (ein__attention_fits(&t, rm, rn))
                ein__attention_offer(ctx, a, ein__attend_plain_ps, memory, &t, &best);
    (void)ein__attention_sizes(ctx, a, &t);
    t.math = math;
    if (math != EIN__MATH_FP32 && t.depth <= EIN__PRODUCT_DEPTH)
        ein__attention_tensor(ctx, a, memory, &t, &best);
    bool few = ein__few_sizes(ctx, a, &t);
    for (int cut = 0; few && cut < 9; cut++)
        if (ein__few_fits(a, &t, 32 >> cut / 3, 4 >> cut % 3))
            ein__attention_offer(ctx, a, ein__attend_few_ps, memory, &t, &best);
    return best;
}

// The fastest tile, and in `a` whether heads that share keys are rows of it; false when none fits.
EIN__FN bool ein__attention_tiles(ein_ctx *ctx, ein__attention *a, int64_t bytes_out,
                                  ein__attention_tile *best) {
    int64_t memory = ein__attention_memory(ctx, a, bytes_out);
    ein__attention grouped = *a;
    *best = ein__attention_best(ctx, a, memory);
    if (!ein__attention_grouped(ctx, &grouped)) return best->rows > 0;
    ein__attention_tile t = ein__attention_best(ctx, &grouped, memory);
    if (t.rows && (!best->rows || t.all < best->all)) {
        *best = t;
        *a = grouped;
    }
    return best->rows > 0;
}

static int64_t ein__estimate_attention(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    ein__attention_tile t;
    ein__attention z = *a;
    if (!ein__attention_tiles(ctx, &z, bytes_out, &t)) return EIN__PS_LIMIT;
    return ein__least(ein__plus(t.all, ein__launch_ps(ein__gpu_of(ctx))), EIN__PS_LIMIT);
}

// What tells the kernel from others; see kernel_key.c.
static uint64_t ein__attention_id(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    ein__val inner[] = {a->dot, a->max, a->sum, a->out};
    ein__ex part[] = {a->query, a->key, a->value, a->score, a->result};
    ein__hasher z = {.ctx = ctx, .inner = inner, .ninner = 4};
    uint64_t h = ein__mix(ein__hash_kind(ctx, EIN__K_ATTENTION), (uint64_t)bytes_out), alpha;
    memcpy(&alpha, &a->alpha, sizeof alpha);
    h = ein__mix(ein__mix(h, ein__hash_box(&a->box, a->slots)), alpha);
    h = ein__mix(h, (uint64_t)ein__attention_mode(ctx, a) << 1 | a->soft);
    for (int p = 0; p < 5; p++) h = ein__mix(h, ein__hash_ex(&z, part[p]));
    if (ein__attention_is_gated(ctx, a)) h = ein__mix(h, ein__hash_ex(&z, a->gate));
    if (a->absolute) h = ein__mix(h, EIN__ABS);
    // What a mask that is read hides is in none of the parts.
    ein__attention_mask m;
    const ein__attention_edge *edge[] = {&m.begin, &m.end};
    bool read = ein__attention_masked(ctx, a, &m) && m.read;
    for (int i = 0; i < 2 && read; i++) {
        h = ein__mix(ein__mix(h, (uint64_t)edge[i]->a), (uint64_t)edge[i]->key + edge[i]->is);
        if (edge[i]->a && a->rows & (a->rows - 1)) h = ein__mix(h, (uint64_t)edge[i]->row);
    }
    return ein__mix(h, (uint64_t)z.nseen);
}

EIN__FN int64_t ein__cost_attention(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    char key[EIN__KEY_LENGTH];
    int64_t ps;
    if (ctx->kernel_rows) {
        ein__put_kernel_key(key, EIN__K_ATTENTION, ein__attention_id(ctx, a, bytes_out));
        if (ein__measured(ctx, key, &ps)) return ps;
    }
    return ein__estimate_attention(ctx, a, bytes_out);
}
