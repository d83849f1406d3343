// Estimates of kernels that no table has, and the parts of which estimates of library calls are
// made (estimate_calls.c): a roofline model with a share of the peak rates for each kind of call,
// how far tiles fill the machine, bytes by class of access, and the L2 cache. The launch is added:
// the next step of a graph begins when this one has ended. Estimates are there to rank candidates;
// shares that no published figure supports are round numbers. Integers only; products saturate
// where sizes can be large. No estimate of a call shrinks when a size grows, except by alignment: a
// size that tensor cores can load 16 bytes at a time may be cheaper than a smaller one.

static const int64_t EIN__PS_LIMIT = (int64_t)1 << 48;  // 20000 steps of it add up without overflow

// What runs, beside the tiled calls of estimate_calls.c.
typedef enum {
    EIN__E_GEMM_SKINNY,  // m or n at most 8: the matrix streams through
    EIN__E_CONV_NARROW,  // depthwise and nearly so: no product to tile
    EIN__E_BAND,         // tiled kernel, without double buffering
    EIN__E_LOOPS,  // plain loops: two loads a multiply-add, and an SM loads 1/4 of what it adds
    EIN__E_ROW,    // as maps, with exchanges between the lanes
    EIN__E_MAP     // an instruction a node; the peak counts two operations an instruction
} ein__ekind;

// e_c: share of peak arithmetic once the machine is filled, in 1/1000.
static const int64_t ein__math_share[] = {
    [EIN__E_GEMM_SKINNY] = 300, [EIN__E_CONV_NARROW] = 35, [EIN__E_BAND] = 450,
    [EIN__E_LOOPS] = 90,        [EIN__E_ROW] = 250,        [EIN__E_MAP] = 300,
};

enum { EIN__TENSOR_SHARE = 700 };  // the most that a product gets out of tensor cores

typedef enum {
    EIN__BY_UNIT,
    EIN__BY_STRIDE,
    EIN__BY_WINDOW,
    EIN__BY_GATHER,
    EIN__NACCESS
} ein__access;

// e_m: share of peak bandwidth, in 1/1000. Unit stride is a measured copy; windows are read again
// from the caches.
static const int64_t ein__memory_share[] = {880, 800, 800, 600};

enum {
    EIN__SECTOR = 32,         // bytes: the least that memory moves
    EIN__INTENSITY = 4,       // operations an element, see ein_desc.intensity
    EIN__ROW_LENGTH = 40960,  // elements of a row that fit a block's registers
    EIN__ROW_THREADS = 32,    // of a row; of a longer one those of a block
    EIN__ROW_WIDE = 1024,     // ... or of a large one
    EIN__ROW_ISSUED = 3,      // instructions for an element of it beside the arithmetic
    EIN__BLOCK_THREADS = 256,
    EIN__SHARED_OUTPUTS = 16384,  // with more, every thread has some of its own
    EIN__SHORT_ROW = 8,           // or lanes of a warp have one whose terms are as many, in a row
    EIN__BLOCK_OUTPUTS = 528,     // of reductions with a block for each, which have so many terms
    EIN__BLOCK_TERMS = 2048,      // ... at least
    EIN__COLUMN_OUTPUTS = 32,     // neighbouring outputs of a block whose threads lie along them
    EIN__COLUMN_THREADS = 8,      // ... that share the terms of one
    EIN__SKINNY = 8,
    EIN__CHANNELS = 8,  // below this many input channels a convolution computes with padded ones
    EIN__SPLITS = 8,    // split-K of products
    EIN__SPLIT_DEPTH = 64,       // terms that a part of a split product has at least
    EIN__CALL_RESIDENT = 2,      // blocks an SM
    EIN__CALL_APART = 150,       // of tensor cores, where lines are not aligned, in 1/1000 ...
    EIN__CALL_APART_TF32 = 533,  // ... of TF32; and where neither factor's terms lie together, as
    EIN__CALL_ACROSS = 601,      // warpgroups' instructions for TF32 want them; or both do
    EIN__CALL_ALONG = 1538,
    EIN__CONVERSION_SHARE = 290,  // of the bandwidth, of what cuDNN converts, in 1/1000
};

// Traffic and arithmetic of one call.
typedef struct ein__work {
    int64_t math_ps, chain_ps;    // arithmetic; what one thread does in sequence
    int64_t bytes[EIN__NACCESS];  // of activations
    int64_t weights;              // bytes: from memory, whatever the L2 cache holds
    int64_t extra_ps;             // of kernels that run before and after
} ein__work;

static int64_t ein__bytes_of(ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    return ein__elements(&p->shape) * ein__element_size(ctx, v);
}

// `share`: of the peak, in 1/1000.
static int64_t ein__math_ps(const ein__gpu *g, int64_t flop, int64_t share) {
    return ein__muldiv(flop, 1000 * 1000, g->fp32 * share);
}

// Time of `bytes` at e_m `share`, from memory or from the L2 cache.
static int64_t ein__memory_ps(const ein__gpu *g, int64_t bytes, int64_t share, bool cached) {
    int64_t rate = cached ? ein__most(g->bandwidth * g->l2_rate / 100, g->bandwidth) : g->bandwidth;
    return ein__muldiv(bytes, 1000 * 1000 * 1000, rate * share);
}

static int64_t ein__work_bytes(const ein__work *w) {
    int64_t all = w->weights;
    for (int k = 0; k < EIN__NACCESS; k++) all = ein__plus(all, w->bytes[k]);
    return all;
}

// What the step before wrote is in the L2 cache while all that this one touches fits half of it.
static int64_t ein__work_ps(const ein__gpu *g, const ein__work *w) {
    int64_t set = ein__work_bytes(w);
    int64_t memory = ein__memory_ps(g, w->weights, ein__memory_share[0], false);
    for (int k = 0; k < EIN__NACCESS; k++)
        memory = ein__plus(
            memory, ein__memory_ps(g, w->bytes[k], ein__memory_share[k], set <= g->l2_bytes / 2));
    int64_t ps = ein__most(ein__most(w->math_ps, w->chain_ps), memory);
    ps = ein__plus(ps, ein__plus(ein__launch_ps(g), w->extra_ps));
    return ein__least(ps, EIN__PS_LIMIT);
}

static void ein__add_operand(ein_ctx *ctx, ein__work *w, ein__val v, ein__access access,
                             int64_t bytes) {
    bool weight = (ptrdiff_t)v.i < arrlen(ctx->value) && ctx->value[v.i].weight_only;
    int64_t *to = weight ? &w->weights : &w->bytes[access];
    // The memory's share is that of unit stride.
    if (weight) bytes = ein__muldiv(bytes, ein__memory_share[0], ein__memory_share[access]);
    *to = ein__plus(*to, bytes);
}

static int64_t ein__outputs_of(const ein__scope *s) { return ein__extent_of(s, (1u << s->nt) - 1); }

// Results that are added up by threads of their own: those added up together count once.
static int64_t ein__results_of(ein_ctx *ctx, const ein__scope *s) {
    uint32_t slot;
    return ein__outputs_of(s) / ein__sums_together(ctx, s, &slot);
}

// The same where it is known what is stored of reduction `acc`.
static int64_t ein__added_apart(ein_ctx *ctx, ein__val acc, ein__val out) {
    uint32_t slot;
    return ein__outputs_of(ein__scope_of(ctx, acc)) / ein__adds_together(ctx, acc, out, &slot);
}

// Whether warps rather than threads have an output each, of so many with so many terms.
static bool ein__shares_warps(int64_t outputs, int64_t terms) {
    return outputs <= EIN__SHARED_OUTPUTS && terms >= 32;
}

static int64_t ein__terms_of(const ein__scope *s) { return ein__extent_of(s, ~0u << s->nt); }

// Different elements that a read touches: the box of its subscripts' ranges, and no more than there
// are combinations of the iterators.
static int64_t ein__read_distinct(ein_ctx *ctx, const ein__scope *s, const ein__expr *e,
                                  uint32_t *used) {
    const ein__shape *shape = &ctx->value[e->val].shape;
    int64_t n = 1;
    *used = 0;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
        int64_t lo = ein__most(f->lo, 0), hi = ein__least(f->hi, shape->d[k] - 1);
        int64_t range = hi < lo ? 1 : hi - lo + 1;
        n = ein__times(n, ein__least(range, ein__extent_of(s, uses)));
        *used |= uses;
    }
    return ein__least(n, ein__extent_of(s, *used));
}

// One read: its class, and the elements it moves, counted by the sectors they lie in. `lane` is the
// iterator along which neighbouring threads run. Where other iterators come by the rest of a
// sector, the caches keep two thirds of it for them.
static int64_t ein__read_elements(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, int lane,
                                  ein__access *access) {
    const ein__value *v = &ctx->value[e->val];
    uint32_t used;
    int64_t n = ein__read_distinct(ctx, s, e, &used), all = ein__most(ein__elements(&v->shape), 1);
    int64_t sector = EIN__SECTOR / ein__element_size(ctx, (ein__val){e->val});
    int64_t step = lane < 0 ? 1 : ein__read_step(ctx, e, (uint32_t)lane);
    *access = EIN__BY_UNIT;
    if (step < 0) {
        *access = EIN__BY_GATHER;
        return ein__least(ein__times(n, sector), all);
    }
    if (step <= 1) {
        if (ein__extent_of(s, used) / n >= 2) *access = EIN__BY_WINDOW;
        return n;
    }
    bool filled = false;
    *access = EIN__BY_STRIDE;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        int64_t other = (int)i == lane || s->n[i] == 1 ? 0 : ein__read_step(ctx, e, i);
        filled |= other > 0 && other < ein__least(step, sector);
    }
    int64_t wide = ein__times(n, ein__least(step, sector));
    if (!filled) return ein__least(wide, all);
    // Over short distances it is the warp itself.
    return step < sector || s->n[lane] < sector ? n : ein__plus(n, (wide - n) / 3);
}
