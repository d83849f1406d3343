// Estimates of library calls that no table knows, made of the parts of estimate.c: products by
// tiles that fill the machine, convolutions as products, with what cuDNN converts.

// Square tiles of a library's products, and their share of what the largest ones reach, in 1/1000.
enum { EIN__GEMM_TILES = 3 };
static const int64_t ein__gemm_tile[EIN__GEMM_TILES] = {128, 64, 32};
static const int64_t ein__gemm_tile_share[EIN__GEMM_TILES] = {1000, 850, 600};

// What a block's steps take one after the other, ps, as those of our own tiles (product.c).
static int64_t ein__tiled_chain(const ein__gpu *g, ein__math math, int64_t depth, int64_t blocks) {
    int64_t steps = ein__ceil(depth, EIN__CALL_STEP / ein__math_bytes(math));
    int64_t turns = steps / (math == EIN__MATH_FP32 ? 1 : EIN__CALL_AHEAD) + 1;
    return ein__times(ein__times(turns, EIN__PRODUCT_STEP_PS),
                      ein__ceil(blocks, g->sms * EIN__CALL_RESIDENT));
}

// A tiled product: the least over square tiles and, where the library has it, split-K into any
// number of parts. A wave of blocks takes as long as a full one; the parts of a split are added up
// in the L2 cache, by another kernel or by the last block.
static int64_t ein__tiled_ps(const ein__gpu *g, ein__math math, int64_t m, int64_t n, int64_t k,
                             int64_t batch, int64_t share, int most_split) {
    const int64_t *tile = ein__gemm_tile, *relative = ein__gemm_tile_share;
    int64_t best = INT64_MAX;
    for (int t = 0; t < EIN__GEMM_TILES; t++)
        for (int split = 1; split <= most_split; split++) {
            int64_t blocks = ein__times(ein__ceil(m, tile[t]), ein__ceil(n, tile[t]));
            blocks = ein__times(ein__times(blocks, batch), split);
            int64_t depth = ein__most(ein__ceil(k, split), split > 1 ? EIN__SPLIT_DEPTH : 1);
            int64_t slots = ein__times(ein__ceil(blocks, g->sms), g->sms);
            int64_t flop = ein__times(slots, ein__times(2 * tile[t] * tile[t], depth));
            int64_t ps = ein__product_ps(g, math, flop, share * relative[t] / 1000);
            ps = ein__most(ps, ein__tiled_chain(g, math, depth, blocks));
            int64_t parts = ein__times(ein__times(m, n), ein__times(batch, 2 * 4 * split));
            if (split > 1)
                ps = ein__plus(ps + EIN__SPLIT_PS,
                               ein__memory_ps(g, parts, ein__memory_share[0], true));
            best = ein__least(best, ps);
        }
    return best;
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

static int64_t ein__estimate_gemm(ein_ctx *ctx, const ein__gemm *p) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t mn = ein__times(p->m, p->n);
    ein__ekind kind = p->batch > 1 ? EIN__E_GEMM_BATCHED : EIN__E_GEMM;
    ein__work w = {0};
    w.math_ps =
        ein__tiled_ps(g, p->math, p->m, p->n, p->k, p->batch, ein__math_share[kind], EIN__SPLITS);
    if (p->m <= EIN__SKINNY || p->n <= EIN__SKINNY) {
        int64_t flop = ein__times(ein__times(2 * p->batch, mn), p->k);
        w.math_ps = ein__least(
            w.math_ps, ein__product_ps(g, p->math, flop, ein__math_share[EIN__E_GEMM_SKINNY]));
    }
    ein__add_product(ctx, &w, p);
    return ein__work_ps(g, &w);
}

EIN__FN int64_t ein__cost_gemm(ein_ctx *ctx, const ein__gemm *p) {
    int64_t ps;
    if (ctx->desc.probe) ein__record_call(ctx, ein__gemm_key(ctx, p));
    if (shlen(ctx->costs) && ein__measured(ctx, ein__gemm_key(ctx, p), &ps)) return ps;
    return ein__estimate_gemm(ctx, p);
}

// Whether the GPU has a rate of its own for this arithmetic.
static bool ein__has_tensor_cores(const ein__gpu *g, ein__math math) {
    return math == EIN__MATH_TF32 ? g->tf32 > 0 : math == EIN__MATH_FP16 && g->fp16 > g->fp32;
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

// Into how many parts the library splits the terms of a convolution. Asked of cuDNN 9.19 for 3x3
// [1,512,7,7] on Hopper: on tensor cores its heuristics list engines with split-K slices, fused
// ones too; of the data gradient in FP16 alone. With FMA there are none (EinNet's Table 3 has 126
// us for it on an A100: 32 of 108 SMs busy). One of 1x1 is a plain product.
static int ein__conv_splits(const ein__gpu *g, const ein__conv *c, bool transposed, bool point) {
    if (point) return EIN__SPLITS;
    bool data = transposed && c->math != EIN__MATH_FP16;
    return ein__has_tensor_cores(g, ein__conv_math(c)) && !data ? EIN__SPLITS : EIN__CONV_SPLITS;
}

// Arithmetic of a convolution.
static int64_t ein__conv_math_ps(const ein__gpu *g, const ein__conv *c, bool transposed) {
    int64_t out = c->n, taps = 1, strides = 1;
    bool point = !transposed;
    for (int i = 0; i < c->spatial; i++) {
        out = ein__times(out, c->out[i]);
        taps = ein__times(taps, c->k[i]);
        strides = ein__times(strides, c->stride[i]);
        point &= c->k[i] == 1 && c->stride[i] == 1 && !c->pad[i];
    }
    int64_t channels = ein__ceil(c->c, c->group), filters = ein__ceil(c->f, c->group);
    ein__ekind kind = c->group > 1 ? EIN__E_CONV_GROUPED : point ? EIN__E_GEMM : EIN__E_CONV;
    if (transposed && c->group == 1) kind = strides > 1 ? EIN__E_CONV_SCATTER : EIN__E_CONV_DATA;
    if (transposed) taps = ein__ceil(taps, strides);
    int64_t depth = ein__times(taps, point ? channels : ein__most(channels, EIN__CHANNELS));
    int64_t tiled = ein__tiled_ps(g, ein__conv_math(c), out, filters, depth, c->group,
                                  ein__math_share[kind], ein__conv_splits(g, c, transposed, point));
    if (c->group == 1) return tiled;
    int64_t flop = ein__times(ein__times(2 * out, taps), ein__times(channels, c->f));
    return ein__least(tiled, ein__math_ps(g, flop, ein__math_share[EIN__E_CONV_NARROW]));
}

// On tensor cores cuDNN computes in NHWC: with NCHW tensors its workspace holds a converted copy of
// the filter and the data (asked of cuDNN 9.19 for 3x3 [1,512,7,7]: as many bytes as the weights
// have), which every call makes anew, a kernel each; that the result is converted back is an
// assumption. With NHWC tensors there is none, and none for a 1x1 convolution.
static void ein__conv_conversions(const ein__gpu *g, const ein__conv *c, ein__work *w) {
    bool point = true;
    for (int i = 0; i < c->spatial; i++) point &= c->k[i] == 1;
    if (!ein__has_tensor_cores(g, c->math) || c->nhwc || point) return;
    int64_t bytes = ein__work_bytes(w);
    int64_t ps = ein__memory_ps(g, ein__times(bytes, 2), ein__memory_share[0], false);
    w->extra_ps = ein__plus(ps, 3 * g->node_ns * 1000);
}

static int64_t ein__estimate_conv(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t size = ein__math_bytes(c->math), out = c->n, in = c->n, taps = size;
    for (int i = 0; i < c->spatial; i++) {
        out = ein__times(out, c->out[i]);
        in = ein__times(in, c->in[i]);
        taps = ein__times(taps, c->k[i]);
    }
    ein__work w = {.math_ps = ein__conv_math_ps(g, c, transposed)};
    int64_t result = ein__times(size * c->f, out);
    ein__add_operand(ctx, &w, c->x, EIN__BY_UNIT, ein__times(size * c->c, in));
    ein__add_operand(ctx, &w, c->w, EIN__BY_UNIT,
                     ein__times(taps, ein__times(c->f, ein__ceil(c->c, c->group))));
    ein__add_operand(ctx, &w, (ein__val){0}, EIN__BY_UNIT, result);
    ein__conv_conversions(g, c, &w);
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
