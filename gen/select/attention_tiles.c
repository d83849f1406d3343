// How the kernels of an attention cut the work up, and what they cost. Without tensor cores
// (templates/attention.cu) a block of 8 x 16 threads takes 8 * rm rows and 16 * rn keys at a time,
// rc columns a thread in runs of vc; kc of the depth and kv of the keys are in shared memory at
// once. On tensor cores (templates/attention_mma.cu) a block has `rw` warps of 16 rows, and 4 / rw
// warps share the keys of a row, nk each at a time. In a band, rows of a tile are of one residue
// modulo the dilation, and keys are counted from the tile's first row on (see emit_band.c).
typedef struct ein__attention_tile {
    int rows, keys, width;  // of a tile: rows, keys at a time, columns filled up
    int rm, rn, rc, vc, kc, kv;
    ein__math math;  // FP32: without tensor cores
    int rw, nk;
    int64_t key_part, part;  // with tensor cores: bytes of shared memory for a part of the keys;
                             // for that and the values, or for what warps share in the end
    int64_t nrow, row_tiles, residues, batch, depth, cols;
    int64_t nkey;   // keys of a row
    int64_t terms;  // keys that a tile meets at most ...
    int64_t met;    // ... and on average
    bool masked;    // a tile need not meet all of them
    ein__attention_mask mask;
    int64_t ps;  // arithmetic alone
} ein__attention_tile;

enum {
    EIN__ATTENTION_SHARED = 48 * 1024,  // bytes that a block may have without asking
    EIN__ATTENTION_COLUMNS = 256,
    EIN__ATTENTION_CHUNK = 32,    // of the depth
    EIN__ATTENTION_SHARE = 500,   // of the peak arithmetic in 1/1000, as ein__math_share has it
    EIN__ATTENTION_RESIDENT = 4,  // blocks of an SM, at most
    EIN__ATTENTION_SAMPLES = 64,  // tiles looked at for how many keys one meets
    // With tensor cores: columns, of which a warp has all; bytes of a part of the depth; registers
    // of a thread for scores and the result, and beside them.
    EIN__ATTENTION_WIDE = 128,
    EIN__ATTENTION_PART = 256,
    EIN__ATTENTION_SUMS = 144,
    EIN__ATTENTION_KEPT = 64,
    // Instructions, counted in machine code: of a score beside its expression (maximum, difference,
    // factor, power, sum, conversion), of a copy of 16 bytes and of a turn apart from these.
    EIN__ATTENTION_SCORE = 6,
    EIN__ATTENTION_COPY = 8,
    EIN__ATTENTION_TURN = 60,
    // Tenths of the busiest unit's time that a turn takes. Assumed until measured; kernels of this
    // structure reach a third of an H100's peak in FP16 (FlashAttention-2, depth 64).
    EIN__ATTENTION_APART = 16
};

static int64_t ein__up(int64_t n, int64_t to) { return ein__times(ein__ceil(n, to), to); }

static int64_t ein__attention_extent(const ein__attention *a, uint32_t slots) {
    int64_t n = 1;
    for (uint32_t i = 0; i < a->slots; i++)
        if (slots >> i & 1) n = ein__times(n, a->box.n[i]);
    return n;
}

// Sizes that do not depend on rm and rn; false when there are too many columns. A part of the depth
// fills up as little as possible.
static bool ein__attention_sizes(ein_ctx *ctx, const ein__attention *a, ein__attention_tile *t) {
    *t = (ein__attention_tile){.depth = ein__attention_extent(a, a->depth),
                               .cols = ein__attention_extent(a, a->cols),
                               .nkey = ein__attention_extent(a, a->keys),
                               .batch = ein__attention_extent(a, a->batch),
                               .nrow = ein__attention_extent(a, a->rows),
                               .residues = 1};
    if (a->band) {
        int64_t d = a->d < 0 ? -a->d : a->d;
        t->residues = ein__least(d, t->nrow);
        t->nrow = ein__ceil(t->nrow, d);
    }
    t->masked = ein__attention_masked(ctx, a, &t->mask) && t->nrow <= INT32_MAX;
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

// How many tiles of rows there are, and the keys that they meet, a whole number of steps each.
static void ein__attention_meet(const ein__attention *a, ein__attention_tile *t) {
    t->row_tiles = ein__ceil(t->nrow, t->rows);
    t->met = t->terms = a->band ? t->nkey + t->rows - 1 : t->nkey;
    if (!t->masked) return;
    int64_t samples = ein__least(t->row_tiles, EIN__ATTENTION_SAMPLES), sum = 0;
    for (int64_t i = 0; i < samples; i++) {
        int64_t first = i * t->row_tiles / samples * t->rows;
        int64_t end = ein__attention_end(&t->mask, first, t->rows, t->nkey);
        sum += ein__least(ein__up(end > 0 ? end : 1, t->keys), t->nkey);
    }
    t->met = sum / samples;
}

// Keys that all tiles go over, in steps of `keys`, when blocks run in waves. Where some meet fewer,
// those with most come first, and the last ones fill up what they leave, but for half a block.
static int64_t ein__attention_span(const ein__gpu *g, const ein__attention_tile *t) {
    int64_t blocks = ein__times(ein__times(t->batch, t->residues), t->row_tiles);
    int64_t keys = ein__up(t->terms, t->keys), one = ein__times(g->sms, keys);
    int64_t waves = ein__times(ein__ceil(blocks, g->sms), one);
    if (!t->masked) return waves;
    int64_t some = ein__plus(ein__times(blocks, ein__up(t->met, t->keys)), one / 2);
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

// Arithmetic of all tiles: two products, and what a score costs apart from them. Blocks run in
// waves; smaller tiles load more for a multiply-add.
static int64_t ein__attention_math(ein_ctx *ctx, const ein__attention *a,
                                   const ein__attention_tile *t) {
    static const int relative[] = {0, 400, 600, 750, 850, 900, 950, 980, 1000};  // by rm
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t depth = ein__up(t->depth, t->kc);
    int64_t each = ein__ex_operations(ctx, a->score) + 14;  // exp, maximum, sum
    int64_t flop = ein__plus(2 * ((a->dot.i ? depth : 0) + 16 * t->rc), each);
    flop = ein__times(ein__times(8 * t->rm, ein__attention_span(g, t)), flop);
    int64_t share = EIN__ATTENTION_SHARE * relative[t->rm] / 1000;
    return ein__math_ps(g, flop, t->rn == 4 ? share : share * 9 / 10);
}

// The arithmetic of both products where tensor cores multiply; FP32 where they do not.
static ein__math ein__attention_mode(ein_ctx *ctx, const ein__attention *a) {
    if (ein__gpu_of(ctx)->cc < 80 || ein__keeps_fp32(ctx, a->out)) return EIN__MATH_FP32;
    for (int k = 0; k < a->n; k++)
        if (ein__keeps_fp32(ctx, a->inner[k])) return EIN__MATH_FP32;
    return ctx->desc.math == EIN_MATH_TF32   ? EIN__MATH_TF32
           : ctx->desc.math == EIN_MATH_FP16 ? EIN__MATH_FP16
                                             : EIN__MATH_FP32;
}

// Elements of a row that two steps of a tensor core's depth are apart of those it multiplies: rows
// begin 16 bytes later, so that lanes read different banks.
static int64_t ein__attention_pitch(const ein__attention_tile *t, int64_t n) {
    return n + 16 / ein__math_bytes(t->math);
}

// Whether a tile with `rw` warps of 16 * rm rows fits that take `nk` keys at a time.
static bool ein__tensor_fits(ein__attention_tile *t, int rw, int rm, int nk) {
    int64_t size = ein__math_bytes(t->math), step = 32 / size, split = 4 / rw;
    int64_t parts = ein__ceil(t->depth * size, EIN__ATTENTION_PART);
    int64_t kc = ein__up(ein__ceil(t->depth, parts), step), keys = split * nk;
    t->kc = (int)kc;
    t->rw = rw;
    t->rm = rm;
    t->nk = nk;
    t->rows = 16 * rw * rm;
    t->keys = (int)keys;
    t->width = (int)ein__up(t->cols, 16);
    int64_t query = size * ein__times(t->rows, ein__attention_pitch(t, ein__up(t->depth, kc)));
    t->key_part = size * keys * ein__attention_pitch(t, kc);
    t->part = t->key_part + size * keys * ein__attention_pitch(t, t->width);
    // What warps that share keys have in the end: by 16 rows, a maximum, a sum and an accumulator.
    t->part = ein__most(t->part, (split - 1) * rw * rm * 32 * 4 * (t->width / 2 + 4));
    return rm * (t->width + nk) / 2 <= EIN__ATTENTION_SUMS &&
           ein__plus(query, t->part) <= EIN__ATTENTION_SHARED;
}

// Keys and values are read once more for every tile of rows, from the L2 cache.
static int64_t ein__attention_again(ein_ctx *ctx, const ein__attention *a,
                                    const ein__attention_tile *t) {
    int64_t blocks = ein__times(ein__times(t->batch, t->residues), t->row_tiles);
    int64_t key = a->dot.i ? ein__element_size(ctx, (ein__val){ein__ex_get(ctx, a->key)->val}) : 0;
    int64_t value = ein__element_size(ctx, (ein__val){ein__ex_get(ctx, a->value)->val});
    int64_t bytes = ein__times(ein__times(blocks, t->met), key * t->depth + value * t->cols);
    return ein__memory_ps(ein__gpu_of(ctx), bytes, ein__memory_share[EIN__BY_WINDOW], true);
}

// Cycles of a warp's turn, which the warps of a block take side by side: of instructions, by kind;
// of tensor cores; or of the shared memory, which gives 128 bytes a cycle to all four.
static int64_t ein__attend_cycles(ein_ctx *ctx, const ein__attention *a,
                                  const ein__attention_tile *t) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t size = ein__math_bytes(t->math), step = 32 / size, half = size == 2;
    int64_t depth = a->dot.i ? ein__up(t->depth, t->kc) : 0, steps = depth / step;
    int64_t products = t->rm * (t->nk / 8 * steps + t->nk / step * (t->width / 8));
    int64_t blocks = t->nk / 16 * (t->width / 16);  // of values, 16 columns of 16 keys each
    int64_t wide = steps * (t->rm + t->nk / 16) + half * blocks, narrow = (1 - half) * 8 * blocks;
    int64_t scores =
        ein__times(t->rm * t->nk / 2, ein__ex_operations(ctx, a->score) + EIN__ATTENTION_SCORE);
    int64_t copies = t->keys * (depth + t->width) * size / 16 / 128 * EIN__ATTENTION_COPY;
    int64_t issued = products + wide + narrow + t->rm * t->width / 2 + copies;
    issued = ein__plus(scores, issued + EIN__ATTENTION_TURN);
    int64_t flop = 4 * products * 16 * 8 * step * 2, lanes = g->cc == 80 ? 64 : 128;
    int64_t peak = t->math == EIN__MATH_TF32 ? g->tf32 : g->fp16;
    int64_t multiplied = ein__muldiv(flop, g->fp32 * 1000, peak * 2 * lanes * EIN__TENSOR_SHARE);
    return ein__most(issued, ein__most(multiplied, 4 * (4 * wide + narrow)));
}

// Time of all tiles: the slowest of turns, which do not quite overlap, of what blocks fetch, and of
// the steps of one block after the other where those of others do not hide their latency.
static int64_t ein__attend_tensor_ps(ein_ctx *ctx, const ein__attention *a,
                                     const ein__attention_tile *t) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t depth = ein__up(t->depth, t->kc), turns = ein__ceil(t->terms, t->keys);
    int64_t blocks = ein__times(ein__times(t->batch, t->residues), t->row_tiles);
    int64_t lanes = g->cc == 80 ? 64 : 128;
    int64_t span = ein__attention_span(g, t) / (g->sms * t->keys);
    int64_t cycles = ein__times(ein__attend_cycles(ctx, a, t), span);
    cycles = ein__muldiv(cycles, EIN__ATTENTION_APART, 10);
    int64_t ps = ein__muldiv(cycles, 1000 * g->sms * 2 * lanes, g->fp32);
    int64_t registers = t->rm * (t->width + t->nk) / 2 + EIN__ATTENTION_KEPT;
    int64_t resident = ein__least(EIN__ATTENTION_RESIDENT, ein__most(1, 512 / registers));
    int64_t rounds = ein__ceil(blocks, ein__times(g->sms, resident));
    int64_t steps = ein__plus(ein__times(turns, depth / t->kc + 1), 2);
    int64_t chain = ein__times(steps, EIN__PRODUCT_STEP_PS);
    chain = ein__plus(chain, ein__muldiv(ein__times(chain, rounds - 1), t->met, t->terms));
    return ein__most(ein__most(ps, chain), ein__attention_again(ctx, a, t));
}

// Time of one block's steps without tensor cores, as above.
static int64_t ein__plain_chain(ein_ctx *ctx, const ein__attention_tile *t) {
    int64_t blocks = ein__times(ein__times(t->batch, t->residues), t->row_tiles);
    int64_t parts = ein__ceil(t->depth, t->kc) + ein__ceil(t->keys, t->kv);
    int64_t steps = ein__plus(ein__times(ein__ceil(t->terms, t->keys), parts), 2);
    int64_t rounds = ein__ceil(blocks, ein__times(ein__gpu_of(ctx)->sms, EIN__ATTENTION_RESIDENT));
    return ein__times(ein__times(steps, EIN__PRODUCT_STEP_PS), rounds);
}

// The best tile with tensor cores where it is faster than `best`, which is none yet if not `found`.
static bool ein__tensor_tiles(ein_ctx *ctx, const ein__attention *a, bool found,
                              ein__attention_tile *best) {
    ein__attention_tile t;
    ein__math math = ein__attention_mode(ctx, a);
    (void)ein__attention_sizes(ctx, a, &t);
    if (math == EIN__MATH_FP32 || t.cols > EIN__ATTENTION_WIDE || t.depth > EIN__PRODUCT_DEPTH)
        return found;
    if (found) best->ps = ein__most(best->ps, ein__plain_chain(ctx, best));
    t.math = math;
    for (int cut = 0; cut < 18; cut++) {
        int rw = 4 >> cut % 3, rm = 2 >> cut / 3 % 2, nk = 64 >> cut / 6;
        if (!ein__tensor_fits(&t, rw, rm, nk)) continue;
        ein__attention_meet(a, &t);
        t.ps = ein__attend_tensor_ps(ctx, a, &t);
        if (found && t.ps >= best->ps) continue;
        *best = t;
        found = true;
    }
    return found;
}

// The tile with the least arithmetic time, the largest one among equals; false when none fits.
EIN__FN bool ein__attention_tiles(ein_ctx *ctx, const ein__attention *a,
                                  ein__attention_tile *best) {
    ein__attention_tile t;
    bool found = false;
    if (!ein__attention_sizes(ctx, a, &t)) return false;
    for (int rm = 8; rm > 0; rm--)
        for (int rn = 4; rn > 1; rn /= 2) {
            if (!ein__attention_fits(&t, rm, rn)) continue;
            ein__attention_meet(a, &t);
            t.ps = ein__attention_math(ctx, a, &t);
            if (found && t.ps >= best->ps) continue;
            *best = t;
            found = true;
        }
    return ein__tensor_tiles(ctx, a, found, best);
}

// Time of the kernel: arithmetic, or what it moves. Queries, keys, values and what a score reads
// come from memory once; keys and values once more for every tile of rows, from the L2 cache.
static int64_t ein__estimate_attention(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__attention_tile t;
    ein__work w = {0};
    ein__traffic z = {0};
    if (!ein__attention_tiles(ctx, a, &t)) return EIN__PS_LIMIT;
    ein__kernel k = {.kind = EIN__K_ATTENTION, .inner = {a->dot, a->max, a->sum, a->out}};
    ein__ex part[] = {a->query, a->key, a->value, a->score, a->result};
    for (int p = 0; p < 5; p++) {
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
    w.bytes[EIN__BY_UNIT] = ein__plus(w.bytes[EIN__BY_UNIT], bytes_out);
    w.math_ps = t.ps;
    int64_t ps = ein__attention_again(ctx, a, &t);
    return ein__most(ein__least(ps, EIN__PS_LIMIT), ein__work_ps(g, &w));
}

// What tells the kernel from others; see kernel_key.c.
static uint64_t ein__attention_id(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    ein__val inner[] = {a->dot, a->max, a->sum, a->out};
    ein__ex part[] = {a->query, a->key, a->value, a->score, a->result};
    ein__hasher z = {.ctx = ctx, .inner = inner, .ninner = 4};
    uint64_t h = ein__mix(ein__hash_kind(ctx, EIN__K_ATTENTION), (uint64_t)bytes_out), alpha;
    memcpy(&alpha, &a->alpha, sizeof alpha);
    h = ein__mix(ein__mix(h, ein__hash_box(&a->box, a->slots)), alpha);
    h = ein__mix(h, (uint64_t)ein__attention_mode(ctx, a));
    for (int p = 0; p < 5; p++) h = ein__mix(h, ein__hash_ex(&z, part[p]));
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
