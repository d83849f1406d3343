//@key conv  the program calls cuDNN
//@key gemm  the program calls cuBLAS
//@key grouped  it makes calls of several products
//@key gpu   the device's name in tables of costs
//@key typed  calls have types of their own: not all are FP32
//@key half   some data are halves
//@key kernels  the program has kernels of our own
//@key calls    it calls a library
//@key codegen  version of the emitter
enum { USAGE = 2, BAD_FILE = 3, FAILED = 5, STOPPED = 75, NO_DEVICE = 77 };
enum { SAMPLES = 9, REPEATS = 20, ALGORITHMS = 16, LT_ALGORITHMS = 8 };
static const double BATCH_MS = 2, AWAKE_MS = 300;

static const char *name_of(int i) {
    //@if kernels
    if (i >= CALLS) return kernel_cases[i - CALLS].name;
    //@end
    //@if conv
    if (i < CONVS) return conv_sizes[i].name;
    //@end
    //@if grouped
    if (i >= CONVS + GEMMS) return group_sizes[i - CONVS - GEMMS].name;
    //@end
    //@if gemm
    return matmul_sizes[i - CONVS].name;
    //@else
    return NULL;
    //@end
}

// The order of measuring: what has the fewest algorithms to try comes first, our kernels, then
// products, then convolutions, so that a run that is cut short has rows of every kind.
static int case_at(int k) { return k < KERNELS ? CALLS + k : CASES - 1 - k; }

static double now_ms() {
    static time_t first;  // small numbers keep their digits
    timespec t;
    timespec_get(&t, TIME_UTC);
    if (!first) first = t.tv_sec;
    return (double)(t.tv_sec - first) * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Values between -1 and 1, none of them 0: zeros take less power and run at higher clocks.
static __global__ void fill(float *to, size_t n, unsigned seed) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned v = (unsigned)i * 2654435761u ^ (unsigned)(i >> 32) ^ seed * 0x9e3779b9u;
        v = (v ^ v >> 16) * 0x85ebca6bu;
        v = (v ^ v >> 13) * 0xc2b2ae35u;
        //@if half
        // Two f16 numbers of a size between 1/2 and 1; together they are an f32 number as well.
        to[i] = __uint_as_float((v & 0x83ff83ffu) | 0x38003800u);
        //@else
        to[i] = ((float)(v >> 9) + 0.5f) * (1.f / 4194304) - 1;
        //@end
    }
}

static int refill(probe *h, void *to, size_t bytes, int seed) {
    fill<<<dim3(1024), dim3(256), 0, h->stream>>>((float *)to, bytes / 4, (unsigned)seed);
    LAUNCHED(h, "fill");
    return 0;
}

// Makes a buffer hold at least so much.
static int grow(probe *h, void **buffer, size_t *had, size_t bytes, int seed) {
    if (bytes <= *had) return 0;
    void *old = *buffer;
    *buffer = NULL;
    *had = 0;
    if (old) CUDA_CALL(h, "cudaFree", cudaFree(old));
    cudaError_t e = cudaMalloc(buffer, bytes);
    if (e != cudaSuccess) {
        char what[64];
        snprintf(what, sizeof what, "%zu bytes of device memory", bytes);
        (void)cudaGetLastError();
        *buffer = NULL;
        return fail(h, BAD_CALL, what, cudaGetErrorString(e));
    }
    *had = bytes;
    return refill(h, *buffer, bytes, seed);
}
//@if calls

static int reserve(probe *h, int k, size_t bytes) {
    return grow(h, &h->buffer[k], &h->bytes[k], bytes, k);
}

static float *data_of(const probe *h, int k) { return (float *)h->buffer[k]; }
//@end

// Makes call `i` once.
static int issue(probe *h, int i) {
    //@if kernels
    if (i >= CALLS) {
        kernel_cases[i - CALLS].launch((char *const *)h->operand, h->stream);
        LAUNCHED(h, name_of(i));
        return 0;
    }
    //@end
    //@if conv
    if (i < CONVS)
        return conv_run(h, i, data_of(h, DATA), data_of(h, WEIGHTS), data_of(h, BIAS),
                        conv_sizes[i].residual ? data_of(h, RESIDUAL) : NULL, data_of(h, RESULT),
                        h->buffer[WORKSPACE]);
    //@end
    //@if grouped
    if (i >= CONVS + GEMMS) return issue_group(h, &group_sizes[i - CONVS - GEMMS]);
    //@end
    //@if gemm
    const matmul_size *s = &matmul_sizes[i - CONVS];
    if (!h->plain)
        return matmul_run(h, i - CONVS, data_of(h, DATA), data_of(h, WEIGHTS), data_of(h, BIAS),
                          s->ldz ? data_of(h, RESIDUAL) : NULL, data_of(h, RESULT),
                          h->buffer[WORKSPACE]);
    //@if typed
    const gemm_size g = {s->name, s->ta, s->tb, s->batch, s->m,     s->n,  s->k,   s->lda, s->ldb,
                         s->ldc,  s->sa, s->sb, s->sc,    s->alpha, s->in, s->out, s->tf32};
    //@else
    const gemm_size g = {s->name, s->ta,  s->tb,  s->batch, s->m,  s->n,  s->k,
                         s->lda,  s->ldb, s->ldc, s->sa,    s->sb, s->sc, s->alpha};
    //@end
    return gemm_run(h, &g, data_of(h, DATA), data_of(h, WEIGHTS), data_of(h, RESULT));
    //@else
    return 0;
    //@end
}

// ---- time ----

// Records a call several times over: replayed, launches cost the host nothing, as in a program.
static int record(probe *h, int i, int repeats, cudaGraphExec_t *exec) {
    cudaGraph_t graph = NULL;
    CUDA_CALL(h, "capture", cudaStreamBeginCapture(h->stream, cudaStreamCaptureModeThreadLocal));
    int r = 0;
    for (int k = 0; k < repeats && !r; k++) r = issue(h, i);
    cudaError_t e = cudaStreamEndCapture(h->stream, &graph);
    if (!r && e == cudaSuccess) {
#if CUDART_VERSION >= 12000
        e = cudaGraphInstantiate(exec, graph, 0);
#else
        e = cudaGraphInstantiate(exec, graph, NULL, NULL, 0);
#endif
        if (e != cudaSuccess) *exec = NULL;
    }
    if (graph) {
        cudaError_t destroyed = cudaGraphDestroy(graph);
        if (e == cudaSuccess) e = destroyed;
    }
    if (!r && e != cudaSuccess) r = fail(h, BAD_CALL, "capture", cudaGetErrorString(e));
    if (e != cudaSuccess) (void)cudaGetLastError();
    return r;
}

// Milliseconds of `n` replays.
static int replay(probe *h, cudaGraphExec_t graph, int n, double *ms) {
    float elapsed = 0;
    CUDA_CALL(h, "event", cudaEventRecord(h->start, h->stream));
    for (int i = 0; i < n; i++) CUDA_CALL(h, "replay", cudaGraphLaunch(graph, h->stream));
    CUDA_CALL(h, "event", cudaEventRecord(h->stop, h->stream));
    CUDA_CALL(h, "replay", cudaEventSynchronize(h->stop));
    CUDA_CALL(h, "event", cudaEventElapsedTime(&elapsed, h->start, h->stop));
    *ms = (double)elapsed;
    return 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct figure {
    long long ps;
    int spread;  // between the quartiles, in 1/1000 of the median
};

static int sample(probe *h, cudaGraphExec_t graph, int repeats, double most_ps, figure *f) {
    double ms, v[SAMPLES], begin = now_ms();
    CALL(replay(h, graph, 1, &ms));
    CALL(replay(h, graph, 1, &ms));
    while (!h->awake && now_ms() - begin < AWAKE_MS) CALL(replay(h, graph, 1, &ms));
    h->awake = 1;
    double turns = ms > 0 ? BATCH_MS / ms : 100;
    int n = turns < 1 ? 1 : turns > 1000 ? 1000 : (int)turns;
    int samples = ms > 50 || ms * 1e9 / repeats > most_ps ? 3 : SAMPLES;
    for (int k = 0; k < samples; k++) {
        CALL(replay(h, graph, n, &v[k]));
        v[k] *= 1e9 / n / repeats;
    }
    qsort(v, (size_t)samples, sizeof *v, by_size);
    double middle = v[samples / 2], width = v[samples * 3 / 4] - v[samples / 4];
    f->ps = middle < 1 ? 1 : middle < 9e17 ? (long long)(middle + 0.5) : (long long)9e17;
    f->spread = middle > 0 ? (int)(width / middle * 1000 + 0.5) : 0;
    return 0;
}

// Measures call `i` as it is set up; one that takes longer than `most_ps` less carefully.
static int measure(probe *h, int i, double most_ps, figure *f) {
    cudaGraphExec_t graph = NULL;
    CALL(issue(h, i));  // kernels are loaded
    double begin = now_ms();
    CALL(issue(h, i));
    CUDA_CALL(h, "call", cudaStreamSynchronize(h->stream));
    int repeats = now_ms() - begin < 1 ? REPEATS : 1, r = record(h, i, repeats, &graph);
    if (!r) r = sample(h, graph, repeats, most_ps, f);
    if (graph) {
        cudaError_t e = cudaGraphExecDestroy(graph);
        if (!r && e != cudaSuccess) r = fail(h, BAD_CALL, "graph", cudaGetErrorString(e));
    }
    return r;
}
//@if calls

// What was measured of a call, by algorithm; printed when all of them are done, so that a table
// has all rows of a call or none.
struct outcome {
    figure best, f[2 * ALGORITHMS];
    char algorithm[2 * ALGORITHMS][400];
    int n;
};

static void keep(outcome *o, const figure *f) {
    if (!o->n || f->ps < o->best.ps) o->best = *f;
    o->f[o->n++] = *f;
}

// Time beyond which an algorithm has lost already.
static double hopeless(const outcome *o) { return o->n ? 2.0 * (double)o->best.ps : 1e18; }

static void put_rows(const probe *h, int i, const outcome *o) {
    for (int k = 0; k < o->n; k++)
        printf("%s\t%s%s%s\t%lld\t%d\t%s\n", h->device, name_of(i),
               o->algorithm[k][0] ? " algo=" : "", o->algorithm[k], o->f[k].ps, o->f[k].spread,
               h->versions);
    fflush(stdout);
}

// An algorithm that did not run is told of, and the next one tried.
static int refused(probe *h, int i, const char *algorithm) {
    printf("# %s algo=%s: %s\n", name_of(i), algorithm, h->error);
    h->error[0] = 0;
    (void)cudaGetLastError();
    CUDA_CALL(h, "after a failed call", cudaStreamSynchronize(h->stream));
    return 0;
}
//@end
//@if gemm

// Elements of a batch of row-major matrices.
static size_t extent(int batch, long long stride, int rows, int columns, int ld) {
    return (size_t)((batch - 1) * stride + (rows - 1) * (long long)ld + columns);
}

static int reserve_gemm(probe *h, const matmul_size *s) {
    CALL(reserve(h, DATA,
                 4 * extent(s->batch, s->sa, s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->lda)));
    CALL(reserve(h, WEIGHTS,
                 4 * extent(s->batch, s->sb, s->tb ? s->n : s->k, s->tb ? s->k : s->n, s->ldb)));
    CALL(reserve(h, RESULT, 4 * extent(s->batch, s->sc, s->m, s->n, s->ldc)));
    if (s->bias) CALL(reserve(h, BIAS, 4 * (size_t)s->n));
    if (s->ldz) CALL(reserve(h, RESIDUAL, 4 * extent(s->batch, s->sz, s->m, s->n, s->ldz)));
    return reserve(h, WORKSPACE, h->cublas_workspace);
}

// What an algorithm of cublasLt is set to: see matmul_size.
static int name_algorithm(probe *h, const cublasLtMatmulAlgo_t *a, char *to, size_t room) {
    static const cublasLtMatmulAlgoConfigAttributes_t what[] = {
        CUBLASLT_ALGO_CONFIG_ID,
        CUBLASLT_ALGO_CONFIG_TILE_ID,
        CUBLASLT_ALGO_CONFIG_STAGES_ID,
        CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
        CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
#if CUBLAS_VERSION >= 111103
        CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
        CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
#endif
    };
    size_t used = (size_t)snprintf(to, room, "lt:");
    for (size_t i = 0; i < 9; i++) {
        // The last two are of 16 bits, and the library wants the very size.
        unsigned value = 0;
        unsigned short half = 0;
        size_t written;
        void *to_fill = i < 7 ? (void *)&value : &half;
        if (i < sizeof what / sizeof *what)
            CUBLAS_CALL(h, "algorithm",
                        cublasLtMatmulAlgoConfigGetAttribute(
                            a, what[i], to_fill, i < 7 ? sizeof value : sizeof half, &written));
        value += half;
        if (used < room) used += (size_t)snprintf(to + used, room - used, i ? ".%u" : "%u", value);
    }
    return 0;
}

static int measure_matmul(probe *h, int i, outcome *o) {
    matmul_call *c = &h->matmul[i - CONVS];
    cublasLtMatmulHeuristicResult_t p[LT_ALGORITHMS];
    int offers = 0;
    CALL(matmul_open(h, c, &matmul_sizes[i - CONVS]));
    CUBLAS_CALL(h, "algorithms",
                cublasLtMatmulAlgoGetHeuristic(h->lt, c->desc, c->b, c->a, c->z ? c->z : c->c, c->c,
                                               c->wish, LT_ALGORITHMS, p, &offers));
    for (int k = 0; k < offers; k++) {
        figure f;
        if (p[k].state != CUBLAS_STATUS_SUCCESS) continue;
        if (name_algorithm(h, &p[k].algo, o->algorithm[o->n], sizeof o->algorithm[0])) {
            CALL(refused(h, i, "unnamed"));
            continue;
        }
        c->algorithm = p[k].algo;
        c->workspace = p[k].workspaceSize;
        if (!measure(h, i, hopeless(o), &f)) keep(o, &f);
        else CALL(refused(h, i, o->algorithm[o->n]));
    }
    return 0;
}

static int measure_gemm(probe *h, int i) {
    const matmul_size *s = &matmul_sizes[i - CONVS];
    outcome o = {};
    figure f;
    CALL(reserve_gemm(h, s));
    h->plain = s->epilogue == CUBLASLT_EPILOGUE_DEFAULT && !s->ldz;
    if (h->plain) {
        // A larger workspace of a convolution may have taken its place.
#if CUDART_VERSION >= 11000
        CUBLAS_CALL(h, "cublasSetWorkspace",
                    cublasSetWorkspace(h->cublas, h->buffer[WORKSPACE], h->cublas_workspace));
#endif
        CALL(measure(h, i, 1e18, &f));
        keep(&o, &f);
    }
    h->plain = 0;
    int r = measure_matmul(h, i, &o);
    matmul_close(&h->matmul[i - CONVS]);
    memset(&h->matmul[i - CONVS], 0, sizeof h->matmul[0]);
    if (!r && !o.n) r = fail(h, BAD_CALL, "cublasLt", "no algorithm runs");
    if (!r) put_rows(h, i, &o);
    return r;
}
//@end
//@if grouped

static int measure_group(probe *h, int i) {
    outcome o = {};
    figure f;
    CALL(open_group(h, &group_sizes[i - CONVS - GEMMS]));
    CALL(measure(h, i, 1e18, &f));
    keep(&o, &f);
    put_rows(h, i, &o);
    return 0;
}
//@end
//@if conv

struct choice {
    int algorithm;
    size_t workspace;
    //@if typed
    cudnnMathType_t math;
    //@end
};
//@if typed

// An algorithm is listed once for each arithmetic; a program takes the first that it may.
static bool is_listed(const choice *list, int n, int algorithm) {
    for (int i = 0; i < n; i++)
        if (list[i].algorithm == algorithm) return true;
    return false;
}
//@end

static int list_forward(probe *h, int i, choice *list, int *n) {
    const conv_size *s = &conv_sizes[i];
    const conv_call *c = &h->conv[i];
    cudnnConvolutionFwdAlgoPerf_t p[ALGORITHMS];
    int offers = 0;
    CUDNN_CALL(h, "algorithms",
               cudnnGetConvolutionForwardAlgorithm_v7(h->cudnn, c->x, c->w, c->conv, c->y,
                                                      ALGORITHMS, &offers, p));
    for (int k = 0; k < offers; k++) {
        bool any = !s->fused || s->relu;
        if (!conv_may_take(p, offers, k, s, conv_limit(s))) continue;
        if (!any && p[k].algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) continue;
        //@if typed
        if (is_listed(list, *n, (int)p[k].algo)) continue;
        //@end
        list[*n].algorithm = (int)p[k].algo;
        //@if typed
        list[*n].math = p[k].mathType;
        //@end
        list[(*n)++].workspace = p[k].memory;
    }
    return 0;
}

static int list_data(probe *h, int i, choice *list, int *n) {
    const conv_size *s = &conv_sizes[i];
    const conv_call *c = &h->conv[i];
    cudnnConvolutionBwdDataAlgoPerf_t p[ALGORITHMS];
    int offers = 0;
    CUDNN_CALL(h, "algorithms",
               cudnnGetConvolutionBackwardDataAlgorithm_v7(h->cudnn, c->w, c->x, c->conv, c->y,
                                                           ALGORITHMS, &offers, p));
    for (int k = 0; k < offers; k++) {
        if (!conv_may_take(p, offers, k, s, conv_limit(s))) continue;
        //@if typed
        if (is_listed(list, *n, (int)p[k].algo)) continue;
        //@end
        list[*n].algorithm = (int)p[k].algo;
        //@if typed
        list[*n].math = p[k].mathType;
        //@end
        list[(*n)++].workspace = p[k].memory;
    }
    return 0;
}

#if CUDNN_VERSION >= 8300

// The fastest engines have rows, after `first` others.
static void keep_engine(outcome *o, int first, const figure *f, const engine_choice *choice) {
    int slowest = first;
    for (int k = first; k < o->n; k++)
        if (o->f[k].ps > o->f[slowest].ps) slowest = k;
    int to = o->n - first < ENGINES_KEPT ? o->n : slowest;
    if (to < o->n && f->ps >= o->f[to].ps) return;
    name_engine(choice, o->algorithm[to], sizeof o->algorithm[to]);
    if (to == o->n) keep(o, f);
    else o->f[to] = *f;
    if (f->ps < o->best.ps) o->best = *f;
}

// Every engine that a program may take, with settings that the library offers.
static int measure_engines(probe *h, int i, outcome *o) {
    engine_choice list[ENGINES];
    conv_call *c = &h->conv[i];
    int n = list_engines(h, i, list), graph = c->graph.n, first = o->n;
    for (int k = 0; k < n; k++) {
        figure f;
        char name[sizeof o->algorithm[0]];
        name_engine(&list[k], name, sizeof name);
        int r = engine_choose(h, c, &conv_sizes[i], &list[k]);
        if (!r) r = reserve(h, WORKSPACE, c->workspace);
        if (!r) r = measure(h, i, hopeless(o), &f);
        if (!r) keep_engine(o, first, &f, &list[k]);
        else CALL(refused(h, i, name));
        c->graph.plan = c->graph.pack = NULL;
        engine_drop(&c->graph, graph);
    }
    return 0;
}

#else
static int measure_engines(probe *, int, outcome *) { return 0; }
#endif

// Every algorithm in turn.
static int measure_algorithms(probe *h, int i) {
    choice list[ALGORITHMS];
    outcome o = {};
    int n = 0;
    CALL(conv_sizes[i].transposed ? list_data(h, i, list, &n) : list_forward(h, i, list, &n));
    for (int k = 0; k < n; k++) {
        figure f;
        h->conv[i].algorithm = list[k].algorithm;
        h->conv[i].workspace = list[k].workspace;
        snprintf(o.algorithm[o.n], sizeof o.algorithm[0], "%d", list[k].algorithm);
        //@if typed
        if (conv_sizes[i].half || conv_sizes[i].tf32)
            CUDNN_CALL(h, "arithmetic", cudnnSetConvolutionMathType(h->conv[i].conv, list[k].math));
        //@end
        int r = reserve(h, WORKSPACE, list[k].workspace);
        if (!r) r = measure(h, i, hopeless(&o), &f);
        if (!r) keep(&o, &f);
        else CALL(refused(h, i, o.algorithm[o.n]));
    }
    CALL(measure_engines(h, i, &o));
    if (!o.n) return fail(h, BAD_CALL, "cuDNN", "no algorithm runs");
    put_rows(h, i, &o);
    return 0;
}

static int measure_conv(probe *h, int i) {
    size_t x, w, y;
    conv_bytes(&conv_sizes[i], &x, &w, &y);
    CALL(reserve(h, DATA, x));
    CALL(reserve(h, WEIGHTS, w));
    CALL(reserve(h, RESULT, y));
    CALL(reserve(h, BIAS, 4 * (size_t)conv_sizes[i].f));
    if (conv_sizes[i].residual) CALL(reserve(h, RESIDUAL, y));
    int r = conv_open(h, &h->conv[i], &conv_sizes[i]);
    if (!r) r = measure_algorithms(h, i);
    conv_close(&h->conv[i]);
    memset(&h->conv[i], 0, sizeof h->conv[i]);
    return r;
}
//@end

//@if kernels

// Operands of kernel `k`: what another one left there is data as good as any, but for integers.
static int reserve_operands(probe *h, const kernel_case *k) {
    for (int j = 0; j < k->count; j++) {
        size_t bytes = (k->operand[j].bytes + 31) / 16 * 16;
        bool fresh = bytes > h->operand_bytes[j];
        CALL(grow(h, &h->operand[j], &h->operand_bytes[j], bytes, j));
        if (!k->operand[j].real)
            CUDA_CALL(h, "memset", cudaMemsetAsync(h->operand[j], 0, bytes, h->stream));
        else if (!fresh) CALL(refill(h, h->operand[j], bytes, j));
    }
    return 0;
}

static int measure_kernel(probe *h, int i) {
    const kernel_case *k = &kernel_cases[i - CALLS];
    figure f;
    if (k->shared) {
        CUDA_CALL(h, k->name,
                  cudaFuncSetAttribute(k->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       k->shared));
        CUDA_CALL(h, k->name,
                  cudaFuncSetAttribute(k->kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                       cudaSharedmemCarveoutMaxShared));
    }
    CALL(reserve_operands(h, k));
    CALL(measure(h, i, 1e18, &f));
    int driver = 0;
    CUDA_CALL(h, "cudaDriverGetVersion", cudaDriverGetVersion(&driver));
    printf("%s\t%s\t%lld\t%d\teinnet $codegen text %s driver %d\n", h->device, k->name, f.ps,
           f.spread, k->text, driver);
    fflush(stdout);
    return 0;
}
//@end

static int measure_any(probe *h, int i) {
    //@if kernels
    if (i >= CALLS) return measure_kernel(h, i);
    //@end
    //@if conv
    if (i < CONVS) return measure_conv(h, i);
    //@end
    //@if grouped
    if (i >= CONVS + GEMMS) return measure_group(h, i);
    //@end
    //@if gemm
    return measure_gemm(h, i);
    //@else
    return 0;
    //@end
}

// Measures what the table lacks. A call that fails is told of; one that breaks the device ends it.
static int measure_all(probe *h) {
    int measured = 0, failed = 0;
    for (int k = 0; k < CASES; k++) {
        const int i = case_at(k);
        if (h->done[i]) continue;
        if (h->deadline_ms > 0 && now_ms() >= h->deadline_ms) {
            fprintf(stderr, "probe: out of time: %d measured, %d failed\n", measured, failed);
            return STOPPED;
        }
        h->error[0] = 0;
        if (!measure_any(h, i)) {
            measured++;
            continue;
        }
        failed++;
        printf("# %s: %s\n", name_of(i), h->error);
        fflush(stdout);
        // No later launch is to be taken for what failed here.
        (void)cudaGetLastError();
        cudaError_t e = cudaStreamSynchronize(h->stream);
        if (e == cudaSuccess) continue;
        fprintf(stderr, "probe: the device is lost: %s\n", cudaGetErrorString(e));
        return FAILED;
    }
    fprintf(stderr, "probe: %d measured, %d failed\n", measured, failed);
    return 0;
}

// ---- the program ----

static int find_device() {
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count > 0) return 0;
    const char *why = e == cudaSuccess ? "none is visible" : cudaGetErrorString(e);
    fprintf(stderr, "no CUDA device: %s\n", why);
    return NO_DEVICE;
}

static int open_all(probe *h) {
    int driver = 0;
    size_t used = 0, room = sizeof h->versions;
    CUDA_CALL(h, "cudaDriverGetVersion", cudaDriverGetVersion(&driver));
    CUDA_CALL(h, "stream", cudaStreamCreateWithFlags(&h->stream, cudaStreamNonBlocking));
    CUDA_CALL(h, "event", cudaEventCreate(&h->start));
    CUDA_CALL(h, "event", cudaEventCreate(&h->stop));
    //@if conv
    CUDNN_CALL(h, "cudnnCreate", cudnnCreate(&h->cudnn));
    CUDNN_CALL(h, "cudnnSetStream", cudnnSetStream(h->cudnn, h->stream));
    used += (size_t)snprintf(h->versions + used, room - used, "cudnn %zu ", cudnnGetVersion());
    //@end
    //@if gemm
    int version = 0, device = 0, major = 0;
    CUDA_CALL(h, "cudaGetDevice", cudaGetDevice(&device));
    CUDA_CALL(h, "compute capability",
              cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    h->cublas_workspace = (size_t)(major >= 9 ? 32 : 4) << 20;
    CUBLAS_CALL(h, "cublasCreate", cublasCreate(&h->cublas));
    //@if typed
#if CUDART_VERSION >= 11000
    CUBLAS_CALL(h, "cublasSetMathMode",
                cublasSetMathMode(
                    h->cublas, (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
#endif
    //@end
    CUBLAS_CALL(h, "cublasSetStream", cublasSetStream(h->cublas, h->stream));
    CUBLAS_CALL(h, "cublasGetVersion", cublasGetVersion(h->cublas, &version));
    CUBLAS_CALL(h, "cublasLtCreate", cublasLtCreate(&h->lt));
    h->lt_stream = h->stream;
    used += (size_t)snprintf(h->versions + used, room - used, "cublas %d cublaslt %zu ", version,
                             cublasLtGetVersion());
    //@end
    snprintf(h->versions + used, room - used, "driver %d", driver);
    return 0;
}

static void release(probe *h) {
    for (int k = 0; k < BUFFERS; k++)
        if (h->buffer[k]) (void)cudaFree(h->buffer[k]);
    //@if kernels
    for (int k = 0; k < OPERANDS; k++)
        if (h->operand[k]) (void)cudaFree(h->operand[k]);
    //@end
    //@if conv
    if (h->cudnn) (void)cudnnDestroy(h->cudnn);
    //@end
    //@if gemm
    if (h->cublas) (void)cublasDestroy(h->cublas);
    if (h->lt) (void)cublasLtDestroy(h->lt);
    //@end
    if (h->start) (void)cudaEventDestroy(h->start);
    if (h->stop) (void)cudaEventDestroy(h->stop);
    if (h->stream) (void)cudaStreamDestroy(h->stream);
}

// "# NAME: why", as a call or kernel that failed is told of.
static void have_failed(probe *h, const char *line) {
    for (int i = 0; i < CASES; i++) {
        size_t n = strlen(name_of(i));
        if (!strncmp(line, "# ", 2) && !strncmp(line + 2, name_of(i), n) && line[n + 2] == ':')
            h->done[i] = 1;
    }
}

// One line of the table: device, key and figures between tabs. A row of any algorithm will do: a
// call's rows are printed together.
static void have_line(probe *h, char *line) {
    char *key = strchr(line, '\t'), *end = key ? strchr(key + 1, '\t') : NULL;
    if (*line == '#') have_failed(h, line);
    if (*line == '#' || !end) return;
    *key++ = *end = 0;
    if (strcmp(line, h->device)) return;
    //@if kernels
    for (int i = CALLS; i < CASES; i++) {
        char text[24];
        snprintf(text, sizeof text, " text %s ", kernel_cases[i - CALLS].text);
        // A row of another text is one of another kernel.
        if (!strcmp(name_of(i), key) && strstr(end + 1, text)) h->done[i] = 1;
    }
    //@end
    char *algorithm = strstr(key, " algo=");
    if (algorithm) *algorithm = 0;
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(name_of(i), key)) h->done[i] = 1;
}

static int read_have(probe *h) {
    char line[2048];
    FILE *file = fopen(h->have, "r");
    if (!file) {
        fprintf(stderr, "probe: %s: cannot be read\n", h->have);
        return BAD_FILE;
    }
    // Longer lines are none of ours.
    while (fgets(line, sizeof line, file)) have_line(h, line);
    int bad = ferror(file);
    if (fclose(file) || bad) {
        fprintf(stderr, "probe: %s: cannot be read\n", h->have);
        return BAD_FILE;
    }
    return 0;
}

static const char usage_text[] =
    "usage: %s [--have TABLE] [--deadline SECONDS] [--device NAME] [--list]\n"
    "Prints rows of a table of costs: device, key, picoseconds, spread, versions.\n"
    "  --have TABLE        leave out what this table has for the device, and lines '# KEY: why'\n"
    "  --deadline SECONDS  begin no measurement after this time; exit status 75 then\n"
    "  --device NAME       what rows call the device; default: $gpu\n"
    "  --list              print the keys only; needs no device\n"
    "  --help              print this text\n"
    "exit status: 0 well, 2 usage, 3 bad file, 5 failed, 75 out of time, 77 no device\n";

static int usage(const char *program, const char *what, const char *why) {
    if (what) fprintf(stderr, "%s: %s\n", what, why);
    fprintf(stderr, usage_text, program);
    return USAGE;
}

static int read_options(probe *h, int argc, char **argv, bool *list) {
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool have = !strcmp(a, "--have"), deadline = !strcmp(a, "--deadline");
        bool device = !strcmp(a, "--device");
        if (!strcmp(a, "--list")) *list = true;
        else if (have || deadline || device) {
            if (!next || !*next) return usage(argv[0], a, "a value is missing");
            if (have) h->have = next;
            if (device) h->device = next;
            if (device && (strpbrk(next, "\t\r\n") || *next == '#'))
                return usage(argv[0], a, "this cannot be a name");
            char *end = NULL;
            if (deadline) h->deadline_ms = strtod(next, &end) * 1e3;
            if (deadline && (end == next || *end || !(h->deadline_ms > 0) || h->deadline_ms > 1e9))
                return usage(argv[0], next, "not a number of seconds");
            i++;
        } else return usage(argv[0], a, "unknown option");
    }
    return 0;
}

static int run(probe *h, int argc, char **argv) {
    bool list = false;
    int code = read_options(h, argc, argv, &list);
    if (!code && h->have) code = read_have(h);
    if (code) return code;
    if (h->deadline_ms > 0) h->deadline_ms += now_ms();
    for (int k = 0; list && k < CASES; k++)
        if (!h->done[case_at(k)]) printf("%s\n", name_of(case_at(k)));
    if (list) return 0;
    code = find_device();
    if (code) return code;
    if (open_all(h)) {
        fprintf(stderr, "probe: %s\n", h->error);
        code = FAILED;
    } else {
        code = measure_all(h);
    }
    release(h);
    return code;
}

int main(int argc, char **argv) {
    static probe h;
    h.device = "$gpu";
    bool help = argc == 2 && !strcmp(argv[1], "--help");
    if (help) printf(usage_text, argv[0]);
    int code = help ? 0 : run(&h, argc, argv);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "probe: standard output cannot be written\n");
        code = FAILED;
    }
    return code;
}
