// Devices, and the table of measured costs. Costs are picoseconds, as integers: a table's measured
// row where there is one, else an estimate (estimate.c). The emitted file says of every cost which
// it is.

// Rates are dense, at boost clock: GFLOP/s and MB/s. `tf32`: 0 where there is none; `fp16`: with
// f32 sums, the rate of FP32 where there are no tensor cores. `l2_rate` is the rate of the L2 cache
// in percent of the memory's. `node` is the cost of one CUDA-graph node, ns. `block_kb`: shared
// memory that a block can ask for; `sm_kb`: that an SM has. `memory_gb`: the largest there is of
// that name; of a Jetson the CPU takes its part.
typedef struct ein__gpu {
    const char *name, *title;
    int cc, sms;
    int64_t fp32, tf32, fp16, bandwidth, l2_bytes, l2_rate, node_ns;
    int block_kb, sm_kb, memory_gb;
} ein__gpu;

// Sources: vendors' datasheets and whitepapers; launch costs are starting values until measured. No
// datasheet states a rate for the L2: V100's is 2.2 TB/s as microbenchmarks have it, which is 0.28
// of 64 bytes a clock and SM; the others are estimates between 0.3 and 0.6 of that.
static const ein__gpu ein__gpu_table[] = {
    {"h200", "H200 SXM", 90, 132, 67000, 495000, 989000, 4800000, 60 << 20, 140, 1300, 227, 228,
     141},
    {"h100", "H100 SXM", 90, 132, 67000, 495000, 989000, 3350000, 50 << 20, 200, 1300, 227, 228,
     80},
    {"a100", "A100 SXM 80GB", 80, 108, 19500, 156000, 312000, 2039000, 40 << 20, 220, 1500, 163,
     164, 80},
    {"a100-40", "A100 SXM 40GB", 80, 108, 19500, 156000, 312000, 1555000, 40 << 20, 288, 1500, 163,
     164, 40},
    {"v100", "V100 SXM2", 70, 80, 15700, 0, 125000, 900000, 6 << 20, 240, 1500, 96, 96, 32},
    {"l4", "L4", 89, 58, 30300, 60000, 121000, 300000, 48 << 20, 500, 1500, 99, 100, 24},
    {"rtx4090", "RTX 4090", 89, 128, 82600, 82600, 165000, 1008000, 72 << 20, 450, 1500, 99, 100,
     24},
    {"nano", "Jetson Nano", 53, 1, 236, 0, 236, 25600, 256 << 10, 140, 8000, 48, 64, 4},
    {"tx2", "Jetson TX2", 62, 2, 670, 0, 670, 59700, 512 << 10, 140, 8000, 48, 64, 8},
    {"xavier-nx", "Jetson Xavier NX", 72, 6, 850, 0, 6800, 59700, 512 << 10, 250, 8000, 96, 96, 8},
    {"agx-xavier", "Jetson AGX Xavier", 72, 8, 1410, 0, 11300, 137000, 512 << 10, 200, 8000, 96, 96,
     32},
    {"orin-nano", "Jetson Orin Nano 8GB", 87, 8, 1280, 5100, 10200, 68000, 2 << 20, 250, 4000, 163,
     164, 8},
    {"orin-nx", "Jetson Orin NX 16GB", 87, 8, 1880, 7500, 15000, 102000, 4 << 20, 250, 4000, 163,
     164, 16},
    {"agx-orin", "Jetson AGX Orin 64GB", 87, 16, 5300, 21000, 42600, 204800, 4 << 20, 300, 4000,
     163, 164, 64},
    {"agx-thor", "Jetson AGX Thor T5000", 110, 20, 8100, 129000, 259000, 273000, 32 << 20, 400,
     4000, 227, 228, 128},
};

EIN__FN const ein__gpu *ein__gpu_at(int index) {
    int n = (int)(sizeof ein__gpu_table / sizeof *ein__gpu_table);
    return index >= 0 && index < n ? &ein__gpu_table[index] : NULL;
}

EIN__FN const ein__gpu *ein__gpu_find(const char *name) {
    for (int i = 0; ein__gpu_at(i); i++)
        if (!strcmp(ein__gpu_table[i].name, name)) return &ein__gpu_table[i];
    return NULL;
}

static const ein__gpu *ein__gpu_of(const ein_ctx *ctx) {
    return ctx->gpu ? ctx->gpu : &ein__gpu_table[0];
}

// mma.sync of halves came with 7.0; as we use it, with 8.0.
static bool ein__multiplies_halves(const ein_ctx *ctx) { return ein__gpu_of(ctx)->cc >= 80; }

// A node of a CUDA graph, ps.
static int64_t ein__launch_ps(const ein__gpu *g) { return g->node_ns * 1000; }

// FP32 units of an SM, each of which makes two operations a clock at most.
static int64_t ein__sm_lanes(const ein__gpu *g) { return g->cc >= 70 && g->cc <= 80 ? 64 : 128; }

static int64_t ein__least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t ein__most(int64_t a, int64_t b) { return a > b ? a : b; }

// ------------------------------------------------------------------------------------ the table

// Whether the product has an epilogue: cublasLt's then.
EIN__FN bool ein__is_matmul(const ein__gemm *g) { return g->bias.i || g->z.i || g->act; }

// Canonical text of a library call: what a measured row is found by. It tells all that the call's
// time depends on, so that the call can be made from it (emit_probe.c).
EIN__FN const char *ein__gemm_key(ein_ctx *ctx, const ein__gemm *g) {
    ein__buf b = {0};
    ein__putf(&b, "gemm %s b=%lld m=%lld n=%lld k=%lld ta=%d tb=%d lda=%lld ldb=%lld ldc=%lld",
              ein__math_key(g->math), (long long)g->batch, (long long)g->m, (long long)g->n,
              (long long)g->k, g->ta, g->tb, (long long)g->lda, (long long)g->ldb,
              (long long)g->ldc);
    if (g->batch > 1)
        ein__putf(&b, " sa=%lld sb=%lld sc=%lld", (long long)g->sa, (long long)g->sb,
                  (long long)g->sc);
    if (g->wide) ein__put(&b, " out=f32");
    if (ein__is_matmul(g)) {
        static const char *const act[] = {"none", "relu", "gelu"};
        ein__putf(&b, " bias=%d z=%d act=%s align=%d", g->bias.i != 0, g->z.i != 0, act[g->act],
                  g->align);
        if (g->z.i) ein__putf(&b, " ldz=%lld", (long long)g->ldz);
        if (g->z.i && g->batch > 1) ein__putf(&b, " sz=%lld", (long long)g->sz);
    }
    const char *key = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return key;
}

static void ein__put_axes_key(ein__buf *b, const char *name, const int64_t *v, int n) {
    ein__putf(b, " %s=", name);
    for (int i = 0; i < n; i++) ein__putf(b, "%s%lld", i ? "x" : "", (long long)v[i]);
}

EIN__FN const char *ein__conv_key(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    ein__buf b = {0};
    ein__putf(&b, "%s %s %s n=%lld c=%lld f=%lld g=%lld", transposed ? "conv_data" : "conv",
              ein__math_key(c->math), c->nhwc ? "nhwc" : "nchw", (long long)c->n, (long long)c->c,
              (long long)c->f, (long long)c->group);
    ein__put_axes_key(&b, "in", c->in, c->spatial);
    ein__put_axes_key(&b, "out", c->out, c->spatial);
    ein__put_axes_key(&b, "k", c->k, c->spatial);
    ein__put_axes_key(&b, "s", c->stride, c->spatial);
    ein__put_axes_key(&b, "p", c->pad, c->spatial);
    ein__put_axes_key(&b, "d", c->dilation, c->spatial);
    ein__putf(&b, " bias=%d z=%d relu=%d", c->bias.i != 0, c->z.i != 0, c->relu);
    const char *key = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return key;
}

// Remembers a call that the search has priced, for EIN_CALLS and EIN_PROBE.
EIN__FN void ein__record_call(ein_ctx *ctx, const char *key) {
    if (!ctx->quiet) shput(ctx->calls, key, true);
}
