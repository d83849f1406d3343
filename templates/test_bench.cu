enum { SETS = 8, SAMPLES = 50, FLUSH = 256 << 20 };

// What --bench owns; `bench_release` gives it back whatever was reached. Each set of inputs has a
// graph of its own, so that rotating them costs nothing on the device.
struct bench {
    int sets, samples, next;
    void *in[SETS][INPUTS + 1];
    void *out[OUTPUTS + 1];  // of plain runs: with the test's own, --check has recorded a graph
    cudaGraphExec_t graph[SETS];
    cudaEvent_t start, stop;
    void *flush;     // written between cold replays: larger than any cache
    size_t nodes;    // of a graph; 0: not known
    int replays;     // between two events, warm
    double busy_ms;  // before the first sample
    double sample[SAMPLES];
    char gpu[256];
    int driver, runtime;
};

struct figures {
    double median, p95, least;
};

static double now_ms() {
    static time_t first;  // small numbers keep their digits
    timespec t;
    timespec_get(&t, TIME_UTC);
    if (!first) first = t.tv_sec;
    return (double)(t.tv_sec - first) * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// In microseconds, from samples in milliseconds.
static figures figures_of(bench *b) {
    int n = b->samples;
    qsort(b->sample, (size_t)n, sizeof *b->sample, by_size);
    double middle = (b->sample[(n - 1) / 2] + b->sample[n / 2]) / 2;
    figures f = {middle * 1e3, b->sample[(n * 95 + 99) / 100 - 1] * 1e3, b->sample[0] * 1e3};
    return f;
}

// As many sets of inputs as fit into half of what is free, the first being the ones already there.
static int bench_inputs(const test *t, bench *b) {
    size_t free_bytes, all, bytes = 0;
    CALL(cudaMemGetInfo(&free_bytes, &all));
    for (int j = 0; j < INPUTS; j++) bytes += t->info->input[j].bytes + 512;
    free_bytes = free_bytes > FLUSH ? (free_bytes - FLUSH) / 2 : 0;
    b->sets = 1;
    while (bytes && b->sets < SETS && (size_t)b->sets * bytes < free_bytes) b->sets++;
    for (int s = 0; s < b->sets; s++) {
        for (int j = 0; j < INPUTS; j++) {
            const tensor *in = &t->info->input[j];
            void *host;
            b->in[s][j] = t->in[j];
            if (!s) continue;
            b->in[s][j] = NULL;
            TRY(device_alloc(&b->in[s][j], in->bytes));
            TRY(host_alloc(&host, in->bytes));
            seeded(in, j, s, host);
            int code = to_device(t, b->in[s][j], host, in->bytes);
            free(host);
            if (code) return code;
        }
    }
    return 0;
}

static int bench_outputs(const test *t, bench *b) {
    for (int j = 1; j < OUTPUTS; j++) b->out[j] = t->out[j];
    return device_alloc(&b->out[0], t->info->output[0].bytes);
}

static int bench_graph(const test *t, bench *b, int s) {
    cudaGraph_t graph = NULL;
    CALL(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));
    int code = network_run(t->model, b->in[s], t->out, t->stream);
    if (code) code = fail(FAILED, "run", network_error(t->model));
    cudaError_t e = cudaStreamEndCapture(t->stream, &graph);
    if (!code && e == cudaSuccess) {
#ifndef EIN_JUDGE
        e = cudaGraphGetNodes(graph, NULL, &b->nodes);
#endif
    }
    if (!code && e == cudaSuccess) {
#if CUDART_VERSION >= 12000
        e = cudaGraphInstantiate(&b->graph[s], graph, 0);
#else
        e = cudaGraphInstantiate(&b->graph[s], graph, NULL, NULL, 0);
#endif
        if (e != cudaSuccess) b->graph[s] = NULL;
    }
    if (graph) {
        cudaError_t destroyed = cudaGraphDestroy(graph);
        if (e == cudaSuccess) e = destroyed;
    }
    if (code) return code;
    return e == cudaSuccess ? 0 : fail(FAILED, "recording a graph", cudaGetErrorString(e));
}

static int bench_open(const test *t, bench *b) {
    cudaDeviceProp prop;
    int device = 0, code = bench_inputs(t, b);
    if (!code) code = bench_outputs(t, b);
    if (code) return code;
    CALL(cudaGetDevice(&device));
    CALL(cudaGetDeviceProperties(&prop, device));
    snprintf(b->gpu, sizeof b->gpu, "%s", prop.name);
    CALL(cudaDriverGetVersion(&b->driver));
    CALL(cudaRuntimeGetVersion(&b->runtime));
    CALL(cudaEventCreate(&b->start));
    CALL(cudaEventCreate(&b->stop));
    for (int s = 0; s < b->sets && !code; s++) code = bench_graph(t, b, s);
    return code ? code : device_alloc(&b->flush, FLUSH);
}

static int bench_release(bench *b) {
    cudaError_t e = cudaSuccess;
    int code = device_free(&b->flush);
    if (device_free(&b->out[0])) code = FAILED;
    for (int s = 0; s < SETS; s++) {
        if (b->graph[s] && e == cudaSuccess) e = cudaGraphExecDestroy(b->graph[s]);
        else if (b->graph[s]) cudaGraphExecDestroy(b->graph[s]);
        for (int j = 0; s && j < INPUTS; j++)
            if (device_free(&b->in[s][j])) code = FAILED;
    }
    if (b->start && e == cudaSuccess) e = cudaEventDestroy(b->start);
    else if (b->start) cudaEventDestroy(b->start);
    if (b->stop && e == cudaSuccess) e = cudaEventDestroy(b->stop);
    else if (b->stop) cudaEventDestroy(b->stop);
    if (e != cudaSuccess) code = fail(FAILED, "release", cudaGetErrorString(e));
    return code;
}

static int replay(const test *t, bench *b) {
    CALL(cudaGraphLaunch(b->graph[b->next], t->stream));
    b->next = (b->next + 1) % b->sets;
    return 0;
}

// Milliseconds a replay, between two events around `n` of them.
static int time_replays(const test *t, bench *b, int n, double *ms) {
    float elapsed = 0;
    CALL(cudaEventRecord(b->start, t->stream));
    for (int i = 0; i < n; i++) TRY(replay(t, b));
    CALL(cudaEventRecord(b->stop, t->stream));
    CALL(cudaEventSynchronize(b->stop));
    CALL(cudaEventElapsedTime(&elapsed, b->start, b->stop));
    *ms = elapsed / n;
    return 0;
}

// Keeps the device busy until its clocks are up, and finds how many replays last long enough.
static int bench_busy(const test *t, bench *b) {
    double begin = now_ms(), ms;
    bool enough = false;
    b->replays = 1;
    while (!enough || now_ms() - begin < 50 * t->bench_ms) {
        TRY(time_replays(t, b, b->replays, &ms));
        enough = ms * b->replays >= t->bench_ms || b->replays >= 1 << 20;
        if (enough) continue;
        double more = ms > 0 ? t->bench_ms / ms * 1.1 + 1 : 8.0 * b->replays;
        b->replays = more > 8.0 * b->replays ? 8 * b->replays : (int)more;
    }
    b->busy_ms = now_ms() - begin;
    return 0;
}

static int bench_warm(const test *t, bench *b, figures *f) {
    for (int i = 0; i < b->samples; i++) TRY(time_replays(t, b, b->replays, &b->sample[i]));
    *f = figures_of(b);
    return 0;
}

static int bench_cold(const test *t, bench *b, figures *f) {
    for (int i = 0; i < b->samples; i++) {
        CALL(cudaMemsetAsync(b->flush, i & 255, FLUSH, t->stream));
        TRY(time_replays(t, b, 1, &b->sample[i]));
    }
    *f = figures_of(b);
    return 0;
}

// Host time from launch to completion of one run: as a graph, or by its plain calls.
static int bench_latency(const test *t, bench *b, bool graph, figures *f) {
    for (int i = 0; i < b->samples; i++) {
        double begin = now_ms();
        if (graph) TRY(replay(t, b));
        if (!graph && network_run(t->model, b->in[i % b->sets], b->out, t->stream))
            return fail(FAILED, "run", network_error(t->model));
        CALL(cudaStreamSynchronize(t->stream));
        b->sample[i] = now_ms() - begin;
    }
    *f = figures_of(b);
    return 0;
}

static void put_string(const char *name, const char *s) {
    printf("\"%s\": \"", name);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 32 || c == '"' || c == '\\') printf("\\u%04x", c);
        else putchar(c);
    }
    printf("\", ");
}

static void put_figures(const char *name, const figures *f) {
    printf("\"%smedian_us\": %.3f, ", name, f->median);
    printf("\"%sp95_us\": %.3f, ", name, f->p95);
    printf("\"%smin_us\": %.3f,\n", name, f->least);
}

static int bench_all(const test *t, bench *b) {
    figures warm, cold, latency, plain;
    b->samples = t->bench_ms >= 20 ? SAMPLES : 3 + (int)(t->bench_ms * (SAMPLES - 3) / 20);
    int code = bench_open(t, b);
    if (!code) code = bench_busy(t, b);
    if (!code) code = bench_warm(t, b, &warm);
    if (!code) code = bench_cold(t, b, &cold);
    if (!code) code = bench_latency(t, b, true, &latency);
    if (!code) code = bench_latency(t, b, false, &plain);
    int cublas = code ? 0 : cublas_version();
    if (cublas < 0) code = fail(FAILED, "cublasGetVersion", "the library refused");
    if (code) return code;
    const network_info *info = t->info;
    printf("{");
    put_string("model", info->model);
    put_string("gpu", b->gpu);
    printf("\"driver\": %d, \"runtime\": %d, ", b->driver, b->runtime);
    printf("\"cudnn\": %zu, \"cublas\": %d,\n", cudnn_version(), cublas);
    put_figures("", &warm);
    put_figures("cold_", &cold);
    put_figures("latency_", &latency);
    put_figures("plain_latency_", &plain);
    printf("\"samples\": %d, \"replays\": %d, \"input_sets\": %d, \"busy_ms\": %.0f,\n", b->samples,
           b->replays, b->sets, b->busy_ms);
    if (b->nodes) printf("\"kernels\": %zu, ", b->nodes);
    if (t->check) printf("\"error\": %.3g, ", t->error);
    printf("\"arena_bytes\": %zu, \"weight_bytes\": %zu, ", info->arena_bytes, info->weight_bytes);
    printf("\"const_bytes\": %zu, \"peak_bytes\": %zu}\n", info->const_bytes, info->peak_bytes);
    return 0;
}

// Prints one JSON object; all times are microseconds.
static int run_bench(const test *t) {
    bench *b;
    TRY(host_alloc((void **)&b, sizeof *b));
    memset(b, 0, sizeof *b);
    int code = bench_all(t, b), released = bench_release(b);
    free(b);
    return code ? code : released;
}
