// Estimates of library calls that no table knows, made of the parts of estimate.c: products by
// tiles that fill the machine, convolutions as products, with what cuDNN converts.

// How a library's kernels run: their tiles, each with its share of the peak in 1/1000, what a block
// takes until its first terms are there and when it stores, the least that a term takes, and what
// it takes until the parts of a split sum are added up. Fitted to half of the calls measured on an
// H200 (bench/fit.py); the largest tiles are those of products of 4096 x 4096 x 4096 there, and of
// convolutions an assumption. Convolutions with FMA have no small tiles, and cuDNN splits no sums.
typedef struct ein__rates {
    struct ein__rates_tile {
        int64_t rows, columns, share;
    } tile[3];
    int64_t start_ps, term_ps, split_ps;
    int splits;
} ein__rates;

static const ein__rates ein__gemm_rates[] = {
    [EIN__MATH_FP32] =
        {{{128, 128, 770}, {64, 64, 885}, {32, 32, 1000}}, 1070000, 10800, 2420000, EIN__SPLITS},
    [EIN__MATH_TF32] =
        {{{128, 128, 790}, {64, 64, 677}, {32, 32, 130}}, 1746000, 0, 2162000, EIN__SPLITS},
    [EIN__MATH_FP16] = {
        {{128, 128, 790}, {64, 64, 1000}, {32, 32, 148}}, 160000, 0, 2600000, EIN__SPLITS}};
static const ein__rates ein__conv_rates[] = {
    [EIN__MATH_FP32] = {{{128, 128, 750}, {64, 32, 480}, {0}}, 1480000, 5600, 0, 1},
    [EIN__MATH_TF32] = {{{128, 128, 700}, {64, 64, 870}, {0}}, 3120000, 0, 0, 1},
    [EIN__MATH_FP16] = {{{128, 128, 700}, {64, 64, 490}, {0}}, 870000, 0, 0, 1}};

// Whether the GPU has a rate of its own for this arithmetic.
static bool ein__has_tensor_cores(const ein__gpu *g, ein__math math) {
    return math == EIN__MATH_TF32 ? g->tf32 > 0 : math == EIN__MATH_FP16 && g->fp16 > g->fp32;
}

// Blocks of a tile, so many on an SM: they share its arithmetic, and of those that are resident
// together one waits while another computes. `share` of the tile's, in 1/1000.
static int64_t ein__blocks_ps(const ein__gpu *g, ein__math math, const ein__rates *r,
                              const struct ein__rates_tile *t, int64_t depth, int64_t each,
                              int64_t share) {
    int64_t peak = !ein__has_tensor_cores(g, math) ? g->fp32
                   : math == EIN__MATH_TF32        ? g->tf32
                                                   : g->fp16;
    int64_t flop = ein__times(ein__times(each, g->sms), 2 * t->rows * t->columns);
    int64_t ps = ein__muldiv(ein__times(flop, depth), 1000 * 1000,
                             ein__most(peak * (t->share * share / 1000), 1));
    int64_t wait = ein__plus(r->start_ps, ein__times(depth, r->term_ps));
    return ein__plus(ps, ein__times(wait, ein__ceil(each, EIN__CALL_RESIDENT)));
}

// A tiled product: the least over tiles and, where the library has it, split-K into any number of
// parts. A wave of blocks takes as long as a full one; the parts of a split are added up in the L2
// cache, by another kernel or by the last block.
static int64_t ein__tiled_ps(const ein__gpu *g, ein__math math, const ein__rates *r, int64_t m,
                             int64_t n, int64_t k, int64_t batch, int64_t share) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 3 && r->tile[i].rows; i++)
        for (int split = 1; split <= (batch > 1 ? 1 : r->splits); split++) {
            const struct ein__rates_tile *t = &r->tile[i];
            int64_t blocks = ein__times(ein__ceil(m, t->rows), ein__ceil(n, t->columns));
            blocks = ein__times(ein__times(blocks, batch), split);
            int64_t depth = ein__most(ein__ceil(k, split), split > 1 ? EIN__SPLIT_DEPTH : 1);
            int64_t ps = ein__blocks_ps(g, math, r, t, depth, ein__ceil(blocks, g->sms), share);
            int64_t parts = ein__times(ein__times(m, n), 2 * 4 * split);
            if (split > 1)
                ps = ein__plus(ein__plus(ps, r->split_ps),
                               ein__memory_ps(g, parts, ein__memory_share[0], true));
            best = ein__least(best, ps);
        }
    return best;
}

// The same where tensor cores may compute it: FMA, which the library also has, is no dearer.
static int64_t ein__call_ps(const ein__gpu *g, ein__math math, const ein__rates *of, int64_t m,
                            int64_t n, int64_t k, int64_t batch, int64_t share) {
    int64_t fma = ein__tiled_ps(g, EIN__MATH_FP32, &of[EIN__MATH_FP32], m, n, k, batch, 1000);
    if (!ein__has_tensor_cores(g, math)) return fma;
    return ein__least(fma, ein__tiled_ps(g, math, &of[math], m, n, k, batch, share));
}

// What a product reads and stores.
static void ein__add_product(ein_ctx *ctx, ein__work *w, const ein__gemm *p) {
    int64_t copies_a = p->sa ? p->batch : 1, copies_b = p->sb ? p->batch : 1;
    int64_t mn = ein__times(p->m, p->n);
    int64_t size = ein__math_bytes(p->math), out = p->wide ? 4 : size;
    ein__add_operand(ctx, w, p->a, EIN__BY_UNIT,
                     ein__times(ein__times(p->m, p->k), size * copies_a));
    ein__add_operand(ctx, w, p->b, EIN__BY_UNIT,
                     ein__times(ein__times(p->k, p->n), size * copies_b));
    ein__add_operand(ctx, w, (ein__val){0}, EIN__BY_UNIT, ein__times(mn, out * p->batch));
    if (p->z.i) ein__add_operand(ctx, w, p->z, EIN__BY_UNIT, ein__times(mn, out * p->batch));
}

// Whether the lines of all matrices begin at multiples of 16 bytes, as tensor cores load them.
static bool ein__lines_fit(const ein__gemm *p) {
    int64_t step = 16 / ein__math_bytes(p->math);
    return !(p->lda % step) && !(p->ldb % step) && !(p->ldc % step);
}

// Share of a tile's arithmetic that a product gets by how its matrices lie, in 1/1000.
static int64_t ein__call_share(const ein__gemm *p) {
    bool tf32 = p->math == EIN__MATH_TF32, across = p->ta && !p->tb, along = !p->ta && p->tb;
    int64_t share = ein__lines_fit(p) ? 1000 : tf32 ? EIN__CALL_APART_TF32 : EIN__CALL_APART;
    if (!tf32) return share;
    return share * (across ? EIN__CALL_ACROSS : along ? EIN__CALL_ALONG : 1000) / 1000;
}

// What a product takes longer that adds a bias, and again one that adds a tensor, beside its bytes;
// and one of halves until it begins, whatever its size.
enum { EIN__MATMUL_END_PS = 300000, EIN__HALVES_BEGIN_PS = 400000 };

static int64_t ein__estimate_gemm(ein_ctx *ctx, const ein__gemm *p) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t share = ein__call_share(p);
    ein__work w = {0};
    // What a block reads it waits for before it computes.
    w.extra_ps = ein__call_ps(g, p->math, ein__gemm_rates, p->m, p->n, p->k, p->batch, share);
    if (p->batch == 1 && p->math != EIN__MATH_FP16 &&
        (p->m <= EIN__SKINNY || p->n <= EIN__SKINNY)) {
        int64_t flop = ein__times(ein__times(2, ein__times(p->m, p->n)), p->k);
        w.extra_ps =
            ein__least(w.extra_ps, ein__math_ps(g, flop, ein__math_share[EIN__E_GEMM_SKINNY]));
    }
    if (p->math == EIN__MATH_FP16) w.extra_ps = ein__plus(w.extra_ps, EIN__HALVES_BEGIN_PS);
    if (p->bias.i) w.extra_ps = ein__plus(w.extra_ps, EIN__MATMUL_END_PS);
    if (p->z.i) w.extra_ps = ein__plus(w.extra_ps, EIN__MATMUL_END_PS);
    ein__add_product(ctx, &w, p);
    return ein__work_ps(g, &w);
}

EIN__FN int64_t ein__cost_gemm(ein_ctx *ctx, const ein__gemm *p) {
    int64_t ps;
    if (ctx->desc.probe) ein__record_call(ctx, ein__gemm_key(ctx, p));
    if (shlen(ctx->costs) && ein__measured(ctx, ein__gemm_key(ctx, p), &ps)) return ps;
    return ein__estimate_gemm(ctx, p);
}

// Channels of a pixel that tensor cores load at once, 16 bytes of them, where they lie together.
static int64_t ein__channel_step(ein__math math) {
    return math == EIN__MATH_FP32 ? 1 : 16 / ein__math_bytes(math);
}

// What a convolution multiplies with. In NHWC tensor cores take channels by 16 bytes; those of
// other tensors are assumed to go without (in NCHW the library pads what it converts).
static ein__math ein__conv_math(const ein__conv *c) {
    int64_t step = ein__channel_step(c->math);
    bool whole = c->c % (step * c->group) == 0 && c->f % (step * c->group) == 0;
    return c->nhwc && !whole ? EIN__MATH_FP32 : c->math;
}

// On tensor cores cuDNN computes in NHWC: with NCHW tensors its workspace holds a converted copy of
// the filter and the data (asked of cuDNN 9.19 for 3x3 [1,512,7,7]: as many bytes as the weights
// have), which every call makes anew, a kernel each; that the result is converted back is an
// assumption. With NHWC tensors there is none.
static int64_t ein__conv_conversions(const ein__gpu *g, const ein__conv *c, const ein__work *w) {
    if (c->nhwc) return 0;
    int64_t bytes = ein__times(ein__work_bytes(w), 2);
    return ein__plus(ein__memory_ps(g, bytes, EIN__CONVERSION_SHARE, false), 3 * ein__launch_ps(g));
}

// Of the data gradient: every phase of the strides is a product of its own, with some of the taps.
static int64_t ein__conv_data_ps(const ein__gpu *g, const ein__conv *c, int64_t out, int64_t taps,
                                 int64_t strides) {
    int64_t depth = ein__times(ein__ceil(taps, strides), ein__ceil(c->c, c->group));
    return ein__call_ps(g, ein__conv_math(c), ein__gemm_rates, ein__ceil(out, strides),
                        ein__ceil(c->f, c->group), depth, ein__times(c->group, strides), 1000);
}

// Arithmetic of a convolution, and what is converted for it.
static int64_t ein__conv_ps(const ein__gpu *g, const ein__conv *c, const ein__work *w,
                            bool transposed) {
    int64_t out = c->n, taps = 1, strides = 1;
    for (int i = 0; i < c->spatial; i++) {
        out = ein__times(out, c->out[i]);
        taps = ein__times(taps, c->k[i]);
        strides = ein__times(strides, c->stride[i]);
    }
    ein__math math = ein__conv_math(c);
    int64_t channels = ein__ceil(c->c, c->group), filters = ein__ceil(c->f, c->group);
    if (transposed) return ein__conv_data_ps(g, c, out, taps, strides);
    const ein__rates *fma = &ein__conv_rates[EIN__MATH_FP32], *r = &ein__conv_rates[math];
    if (math == EIN__MATH_FP16 && taps == 1 && strides == 1) r = &ein__gemm_rates[math];
    int64_t depth = ein__times(taps, taps == 1 ? channels : ein__most(channels, EIN__CHANNELS));
    int64_t ps = ein__tiled_ps(g, EIN__MATH_FP32, fma, out, filters, depth, c->group, 1000);
    if (ein__has_tensor_cores(g, math))
        ps =
            ein__least(ps, ein__plus(ein__tiled_ps(g, math, r, out, filters, depth, c->group, 1000),
                                     ein__conv_conversions(g, c, w)));
    if (c->group == 1) return ps;
    int64_t flop = ein__times(ein__times(2 * out, taps), ein__times(channels, c->f));
    return ein__least(ps, ein__math_ps(g, flop, ein__math_share[EIN__E_CONV_NARROW]));
}

// What calls of cuDNN that no measured row was like take beside what their tiles do, ps. With FP16
// 33 products of pixels and matrices (resnet50 on an H200) took 1.7 us each more than by kernels of
// ours, which were estimated to be slower; the data gradient of fsrcnn took 10.
enum { EIN__CONV_POINT_PS = 1700000, EIN__CONV_DATA_PS = 10000000 };

static int64_t ein__conv_begin_ps(const ein__gpu *g, const ein__conv *c, bool transposed) {
    if (!ein__has_tensor_cores(g, c->math)) return 0;
    if (transposed) return EIN__CONV_DATA_PS;
    bool point = c->math == EIN__MATH_FP16;
    for (int i = 0; i < c->spatial; i++) point &= c->k[i] == 1;
    return point ? EIN__CONV_POINT_PS : 0;
}

static int64_t ein__estimate_conv(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t size = ein__math_bytes(c->math), out = c->n, in = c->n, taps = size;
    for (int i = 0; i < c->spatial; i++) {
        out = ein__times(out, c->out[i]);
        in = ein__times(in, c->in[i]);
        taps = ein__times(taps, c->k[i]);
    }
    ein__work w = {0};
    int64_t result = ein__times(size * c->f, out);
    ein__add_operand(ctx, &w, c->x, EIN__BY_UNIT, ein__times(size * c->c, in));
    ein__add_operand(ctx, &w, c->w, EIN__BY_UNIT,
                     ein__times(taps, ein__times(c->f, ein__ceil(c->c, c->group))));
    ein__add_operand(ctx, &w, (ein__val){0}, EIN__BY_UNIT, result);
    w.extra_ps =
        ein__plus(ein__conv_ps(g, c, &w, transposed), ein__conv_begin_ps(g, c, transposed));
    if (c->z.i) ein__add_operand(ctx, &w, c->z, EIN__BY_UNIT, result);
    return ein__work_ps(g, &w);
}

// Without tensor cores the library has a single kernel for NHWC on Hopper (asked of cuDNN 9.19), so
// that order is taken only where a table says what it costs.
EIN__FN int64_t ein__cost_conv(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    int64_t ps;
    if (ctx->desc.probe) ein__record_call(ctx, ein__conv_key(ctx, c, transposed));
    if (shlen(ctx->costs) && ein__measured(ctx, ein__conv_key(ctx, c, transposed), &ps)) return ps;
    if (c->nhwc && !ein__has_tensor_cores(ein__gpu_of(ctx), c->math)) return EIN__PS_LIMIT;
    return ein__estimate_conv(ctx, c, transposed);
}

// The cheaper order of its tensors, where the program may choose it.
EIN__FN int64_t ein__cost_conv_any(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    ein__conv last = *c;
    int64_t ps = ein__cost_conv(ctx, c, transposed);
    last.nhwc = true;
    return ctx->channels_last ? ein__least(ps, ein__cost_conv(ctx, &last, transposed)) : ps;
}
