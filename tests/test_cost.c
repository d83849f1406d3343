// The estimates: positive, growing with every size, free of overflow up to the largest tensors, and
// in the order of the devices.

static void compared(bool ok, const char *what, const char *device, int64_t a, int64_t b) {
    CHECK(ok, "%s on %s: %lld and %lld", what, device, (long long)a, (long long)b);
}

static uint64_t draw_seed = 1;

// 1 to 2^bits, small and large sizes alike.
static int64_t draw(int bits) {
    draw_seed = ein__splitmix(draw_seed);
    int width = (int)(draw_seed >> 33) % (bits + 1);
    draw_seed = ein__splitmix(draw_seed);
    return 1 + (int64_t)(draw_seed >> 1) % ((int64_t)1 << width);
}

static const char *const order[] = {"h200", "a100", "agx-orin"};

// The costs of one call on these devices. An SM of Orin has twice the FP32 lanes of one of A100, so
// that few blocks may take up to half the time there; many may not.
static void in_order(const int64_t *ps, int64_t outputs, const char *what) {
    int64_t slack = outputs < 1 << 19 ? 2 : 1;
    compared(ps[0] <= ps[1], "h200 and a100", what, ps[0], ps[1]);
    compared(ps[1] <= slack * ps[2], "a100 and agx-orin", what, ps[1], ps[2]);
}

// ------------------------------------------------------------------------------- library calls

static int64_t gemm_cost(ein_ctx *ctx, const int64_t *d) {
    ein__gemm g = {.batch = d[0], .m = d[1], .n = d[2], .k = d[3]};
    g.sa = g.sb = d[0] > 1;
    return ein__cost_gemm(ctx, &g);
}

// d: images, channels a group, filters a group, groups, height, width, filter; s: stride.
static int64_t conv_cost(ein_ctx *ctx, const int64_t *d, int64_t s, bool transposed) {
    ein__conv c = {.spatial = 2, .n = d[0], .c = d[1] * d[3], .f = d[2] * d[3], .group = d[3]};
    for (int i = 0; i < 2; i++) {
        c.out[i] = transposed ? d[4 + i] * s : d[4 + i];
        c.in[i] = transposed ? d[4 + i] : d[4 + i] * s;
        c.k[i] = d[6];
        c.pad[i] = d[6] / 2;
        c.stride[i] = s;
        c.dilation[i] = 1;
    }
    return ein__cost_conv(ctx, &c, transposed);
}

typedef int64_t cost_fn(ein_ctx *ctx, const int64_t *d);

static int64_t conv_1(ein_ctx *ctx, const int64_t *d) { return conv_cost(ctx, d, 1, false); }
static int64_t conv_2(ein_ctx *ctx, const int64_t *d) { return conv_cost(ctx, d, 2, false); }
static int64_t data_1(ein_ctx *ctx, const int64_t *d) { return conv_cost(ctx, d, 1, true); }
static int64_t data_2(ein_ctx *ctx, const int64_t *d) { return conv_cost(ctx, d, 2, true); }

// A cost, and that of the same call with one size grown. `fixed`: what is no size.
static void grows(ein_ctx *ctx, const char *what, cost_fn *cost, const int64_t *d, int n, int fixed,
                  int bits) {
    const char *device = ein__gpu_of(ctx)->name;
    int64_t ps = cost(ctx, d), e[8];
    compared(ps > 0 && ps <= EIN__PS_LIMIT, what, device, ps, 0);
    for (int i = 0; i < n; i++)
        for (int how = 0; how < 2; how++) {
            if (i == fixed) continue;
            memcpy(e, d, sizeof e);
            e[i] = how ? e[i] * 2 : e[i] + draw(3);
            if (e[i] > (int64_t)1 << bits) continue;
            int64_t more = cost(ctx, e);
            compared(more >= ps, what, device, ps, more);
            if (more >= ps) continue;
            for (int k = 0; k < n; k++)
                printf(k == i ? " %lld->%lld" : " %lld", (long long)d[k], (long long)e[k]);
            printf("\n");
        }
}

static void calls(ein_ctx *const *ctx, int n) {
    int64_t d[8] = {0};
    for (int i = 0; i < 3000; i++) {
        // Any of the operands may have 2^40 elements.
        int bits = i % 3 ? 12 : 20;
        for (int k = 0; k < 8; k++) d[k] = draw(bits);
        grows(ctx[i % n], "gemm", gemm_cost, d, 4, -1, 20);
        // More groups are less work for as many channels; one is the common case.
        d[3] = i % 2 ? 1 : draw(8);
        d[6] = 1 + 2 * (int64_t)(i % 4);
        grows(ctx[i % n], "conv", conv_1, d, 7, 3, 20);
        grows(ctx[i % n], "conv stride 2", conv_2, d, 6, 3, 20);
        grows(ctx[i % n], "backward-data", data_1, d, 6, 3, 20);
        grows(ctx[i % n], "backward-data stride 2", data_2, d, 6, 3, 20);
    }
}

// A call's key tells it, whatever it does: the probe makes the call from the key alone.
static void keys(ein_ctx *ctx) {
    for (int i = 0; i < 4000; i++) {
        ein__call call;
        ein__math math = (ein__math)(i % 3);
        int64_t b = i % 2 ? 1 : draw(6), m = draw(10), n = draw(10), k = draw(10);
        ein__gemm g = {.batch = b, .m = m, .n = n, .k = k, .math = math, .alpha = 1};
        g.ta = draw(1) > 1;
        g.tb = draw(1) > 1;
        g.lda = (g.ta ? m : k) + draw(4);
        g.ldb = (g.tb ? k : n) + draw(4);
        g.ldc = n + draw(4);
        if (b > 1) g.sa = draw(30), g.sb = draw(30), g.sc = draw(30);
        g.wide = math == EIN__MATH_FP16 && draw(1) > 1;
        g.align = 16 >> (draw(8) % (math == EIN__MATH_FP16 ? 4 : 3));
        g.bias.i = draw(1) > 1;
        g.act = (ein__act)(i / 6 % 3);
        if (draw(1) > 1) g.z.i = 1, g.ldz = n + draw(4), g.sz = b > 1 ? draw(30) : 0;
        const char *key = ein__gemm_key(ctx, &g);
        compared(ein__call_of(ctx, key, &call), key, "the probe", 0, 0);
        ein__conv c = {.spatial = 1 + i % 3, .n = m, .c = n, .f = k, .group = 1, .math = math};
        for (int a = 0; a < c.spatial; a++) {
            c.in[a] = c.out[a] = draw(8);
            c.k[a] = c.stride[a] = c.dilation[a] = draw(3);
            c.pad[a] = draw(3) - 1;
        }
        bool transposed = draw(1) > 1;
        c.nhwc = draw(1) > 1;
        if (!transposed) c.bias.i = draw(1) > 1, c.z.i = draw(1) > 1, c.relu = draw(1) > 1;
        key = ein__conv_key(ctx, &c, transposed);
        compared(ein__call_of(ctx, key, &call), key, "the probe", 0, 0);
    }
}

// ------------------------------------------------------------------------------------- kernels

typedef struct kernel_case {
    const char *name, *text;
    int ndim;
    const char *dim[4];
    int bits[4];  // of the largest extent
} kernel_case;

static const kernel_case kernels[] = {
    {"map", "input x: f32[A,B]\noutput y\ny[i,j] = relu(x[i,j]) + 1\n", 2, {"A", "B"}, {20, 20}},
    {"transpose", "input x: f32[A,B]\noutput y\ny[j,i] = x[i,j]\n", 2, {"A", "B"}, {20, 20}},
    {"strided",
     "input x: f32[A,4*B]\noutput y\ny[i,j] = x[i,4*j] where j in 0:B\n",
     2,
     {"A", "B"},
     {20, 18}},
    {"gather",
     "input x: f32[A,B]\ninput p: i32[C]\noutput y\ny[i,j] = x[@p[i],j]\n",
     3,
     {"A", "B", "C"},
     {16, 16, 16}},
    {"sum", "input x: f32[A,B]\noutput y\ny[i] = sum(j) x[i,j]\n", 2, {"A", "B"}, {20, 20}},
    {"window",
     "input x: f32[A,B]\noutput y\ny[i,j] = max(r) x[i,j+r-1] where j in 0:B, r in 0:3, pad x 0\n",
     2,
     {"A", "B"},
     {20, 20}},
    {"softmax", "input x: f32[A,B]\noutput y\ny = Softmax(x; axis=1)\n", 2, {"A", "B"}, {20, 20}},
    {"band",
     "input a: f32[H,M,P]\ninput b: f32[H,M,P]\noutput y\n"
     "y[h,m,j] = sum(p) a[h,m,p] * b[h,m+j-W,p] where j in 0:2*W+1, pad b 0\n",
     4,
     {"H", "M", "P", "W"},
     {6, 14, 8, 10}},
    {"depthwise",
     "input x: f32[1,C,H,H]\nweight k: f32[C,1,3,3] = ones()\noutput y\n"
     "y = Conv(x, k; group=C, pads=1)\n",
     2,
     {"C", "H"},
     {12, 12}},
    {"functions",
     "input x: f32[A,B]\noutput y\ny[i,j] = tanh(tanh(tanh(tanh(tanh(tanh(x[i,j]))))))\n",
     2,
     {"A", "B"},
     {20, 20}},
};

static int64_t plan_cost(const char *gpu, const kernel_case *k, const int64_t *d, int intensity) {
    ein_desc desc = {.gpu = gpu, .baseline = true, .intensity = intensity};
    ein_ctx *ctx = ein_open(&desc);
    ein__buf text = {0};
    ein__put(&text, "ein 1\nmodel m\ndim ");
    for (int i = 0; i < k->ndim; i++)
        ein__putf(&text, "%s%s = %lld", i ? ", " : "", k->dim[i], (long long)d[i]);
    ein__putf(&text, "\n%s", k->text);
    int64_t ps = -1;
    if (!ein_add_model(ctx, k->name, text.s, text.n) && !ein_plan(ctx))
        ps = ein__plan_cost(&ctx->plan);
    if (ps < 0) fputs(ein_error(ctx), stdout);
    ein__buf_free(&text);
    ein_close(ctx);
    return ps;
}

static void kernel(const kernel_case *k) {
    const int64_t slack = 100000;
    int64_t d[4], e[4], ps[3];
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < k->ndim; i++) d[i] = draw(k->bits[i]);
        for (int g = 0; g < 3; g++) {
            ps[g] = plan_cost(order[g], k, d, 0);
            compared(ps[g] > 0 && ps[g] <= 4 * EIN__PS_LIMIT, k->name, order[g], ps[g], 0);
        }
        in_order(ps, 0, k->name);
        for (int i = 0; i < k->ndim; i++) {
            // A sum of one term is none, and a map no band.
            if (d[i] == 1 && k->dim[i][0] == 'P') continue;
            memcpy(e, d, sizeof e);
            e[i] *= 2;
            // A larger one may be computed in another way, that is less by what no launch shows.
            int64_t more = plan_cost(order[round % 3], k, e, 0) + slack;
            compared(more >= ps[round % 3], k->name, order[round % 3], ps[round % 3], more);
            if (more < ps[round % 3]) printf("  %s %lld\n", k->dim[i], (long long)d[i]);
        }
    }
}

// ----------------------------------------------------------------------------------- the table

static void row(const char *name, const int64_t *ps) {
    printf("%-34s", name);
    for (int g = 0; g < 3; g++) printf(" %12.1f", (double)ps[g] / 1e6);
    printf("\n");
}

static void table(ein_ctx *const *ctx) {
    static const struct {
        const char *name;
        cost_fn *cost;
        int64_t d[8];
    } call[] = {
        {"gemm 1024^3", gemm_cost, {1, 1024, 1024, 1024}},
        {"gemm 4096^3", gemm_cost, {1, 4096, 4096, 4096}},
        {"gemm 49 x 512 x 4608", gemm_cost, {1, 49, 512, 4608}},
        {"gemm 49 x 4608 x 512", gemm_cost, {1, 49, 4608, 512}},
        {"gemm 1 x 4096 x 25088", gemm_cost, {1, 1, 4096, 25088}},
        {"gemm 12 x 128 x 128 x 64", gemm_cost, {12, 128, 128, 64}},
        {"conv 3x3 512 -> 512, 7x7", conv_1, {1, 512, 512, 1, 7, 7, 3}},
        {"conv 3x3 64 -> 64, 56x56", conv_1, {1, 64, 64, 1, 56, 56, 3}},
        {"conv 7x7 s2 3 -> 64, 112x112", conv_2, {1, 3, 64, 1, 112, 112, 7}},
        {"conv 5x5 32 -> 32, 16 x 224x224", conv_1, {16, 32, 32, 1, 224, 224, 5}},
        {"conv 1x1 256 -> 64, 56x56", conv_1, {1, 256, 64, 1, 56, 56, 1}},
        {"transposed 4x4 s2 16 x 448 -> 256", data_2, {16, 448, 256, 1, 2, 2, 4}},
        {"depthwise 3x3 32, 112x112 (library)", conv_1, {1, 1, 1, 32, 112, 112, 3}},
    };
    static const struct {
        const char *name;
        int at;
        int64_t d[4];
    } kern[] = {
        {"map, 1 M elements", 0, {1024, 1024}},
        {"map, 64 M elements", 0, {8192, 8192}},
        {"transpose 4096 x 4096", 1, {4096, 4096}},
        {"every 4th of 4096 x 16384", 2, {4096, 4096}},
        {"gather 4096 rows of 1024", 3, {65536, 1024, 4096}},
        {"sum of 1 M", 4, {1, 1 << 20}},
        {"softmax 8192 x 1024", 6, {8192, 1024}},
        {"band 8 x 10000 x 2001 x 64", 7, {8, 10000, 64, 1000}},
        {"depthwise 3x3 32, 112x112 (chosen)", 8, {32, 112}},
    };
    int64_t ps[3];
    printf("%-34s %12s %12s %12s  us\n", "", order[0], order[1], order[2]);
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        for (int g = 0; g < 3; g++) ps[g] = call[i].cost(ctx[g], call[i].d);
        row(call[i].name, ps);
    }
    for (size_t i = 0; i < sizeof kern / sizeof *kern; i++) {
        for (int g = 0; g < 3; g++) ps[g] = plan_cost(order[g], &kernels[kern[i].at], kern[i].d, 0);
        row(kern[i].name, ps);
    }
}

// Fewer operations than the threshold are free, more are not.
static void intensity(void) {
    static const int64_t d[4] = {1024, 1024};
    const kernel_case *functions = &kernels[9];
    int64_t low = plan_cost("agx-orin", functions, d, 1),
            high = plan_cost("agx-orin", functions, d, 1000);
    compared(low > high, "intensity", functions->name, low, high);
    compared(plan_cost("agx-orin", functions, d, 0) == plan_cost("agx-orin", functions, d, 4),
             "default intensity", functions->name, 0, 4);
}

static void devices(ein_ctx *const *ctx) {
    static cost_fn *const fn[] = {conv_1, conv_2, data_1, data_2, gemm_cost};
    static const char *const name[] = {"conv", "conv s2", "data", "data s2", "gemm"};
    for (int i = 0; i < 500; i++) {
        int64_t d[8], ps[3];
        for (int k = 0; k < 8; k++) d[k] = draw(10);
        d[3] = 1;
        d[6] = 3;
        for (int f = 0; f < 5; f++) {
            int64_t outputs = f == 4 ? d[0] * d[1] * d[2] : d[0] * d[2] * d[4] * d[5];
            for (int g = 0; g < 3; g++) ps[g] = fn[f](ctx[g], d);
            in_order(ps, outputs, name[f]);
        }
    }
}

// `table`: prints well-known calls on three devices instead.
static void test_cost(bool only_table) {
    ein_ctx *ctx[32];
    int n = 0;
    for (int g = 0; g < 3; g++) ctx[n++] = ein_open(&(ein_desc){.gpu = order[g]});
    for (int g = 0; ein_gpu_name(g) && n < 32; g++)
        ctx[n++] = ein_open(&(ein_desc){.gpu = ein__gpu_at(g)->name});
    if (only_table) {
        table(ctx);
    } else {
        calls(ctx, n);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) kernel(&kernels[k]);
        intensity();
        devices(ctx);
        keys(ctx[0]);
    }
    for (int g = 0; g < n; g++) ein_close(ctx[g]);
}
