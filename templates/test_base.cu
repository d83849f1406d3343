//@key model      prefix of the program's symbols
//@key inputs     how many there are
//@key outputs    how many there are
//@key tolerance  relative L2 error allowed
//@key conv       the program calls cuDNN
//@key gemm       the program calls cuBLAS
//@key errors     it keeps every value, so that their errors can be reported
// The program under test, under names that do not change from model to model.
typedef ::$model network;
typedef ::$model_tensor tensor;
typedef ::$model_info network_info;
typedef ::$model_options network_options;

static int network_create(network **m, const void *weights, size_t n, const network_options *o) {
    return ::$model_create(m, weights, n, o);
}
static int network_run(network *m, const void *const *in, void *const *out, cudaStream_t stream) {
    return ::$model_run(m, in, out, stream);
}
static int network_capture(network *m, const void *const *in, void *const *out) {
    return ::$model_capture(m, in, out);
}
static void network_destroy(network *m) { ::$model_destroy(m); }
static const char *network_error(const network *m) { return ::$model_error(m); }
static const network_info *network_describe() { return ::$model_describe(); }

// Library versions, 0 where the program does not use the library.
static size_t cudnn_version() {
    //@if conv
    return cudnnGetVersion();
    //@else
    return 0;
    //@end
}

static int cublas_version() {
    int version = 0;
    //@if gemm
    cublasHandle_t handle;
    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return -1;
    cublasStatus_t status = cublasGetVersion(handle, &version);
    if (cublasDestroy(handle) != CUBLAS_STATUS_SUCCESS) status = CUBLAS_STATUS_INTERNAL_ERROR;
    if (status != CUBLAS_STATUS_SUCCESS) return -1;
    //@end
    return version;
}

enum { INPUTS = $inputs, OUTPUTS = $outputs };
enum { MATCHES = 0, DIFFERS = 1, USAGE = 2, BAD_FILE = 3, FAILED = 5, NO_DEVICE = 77 };
static const double TOLERANCE = $tolerance;

static int fail(int code, const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", network_describe()->model, what, why);
    return code;
}

#define CALL(call)                                                                 \
    do {                                                                           \
        cudaError_t e_ = (call);                                                   \
        if (e_ != cudaSuccess) return fail(FAILED, #call, cudaGetErrorString(e_)); \
    } while (0)

#define TRY(call)                \
    do {                         \
        int code_ = (call);      \
        if (code_) return code_; \
    } while (0)

// What --steps owns.
struct step_clock {
    int runs;
    int count, at;       // steps of a run; the one that is awaited
    const char **names;  // of the first run
    cudaEvent_t *event;  // event[0] before the first step, event[i + 1] after step i
    double *ms;          // [step][run]
    bool recording;
    cudaError_t error;
};

// The program calls this after each step that it has launched.
static void on_step(void *user, const char *name, cudaStream_t stream) {
    step_clock *c = (step_clock *)user;
    if (c->recording && c->at < c->count) {
        if (c->error == cudaSuccess) c->error = cudaEventRecord(c->event[c->at + 1], stream);
#ifdef NVTX
        nvtxRangePop();
        if (c->at + 1 < c->count) nvtxRangePushA(c->names[c->at + 1]);
#endif
    } else if (c->names && c->at < c->count) {
        c->names[c->at] = name;
    }
    c->at++;
}

// Everything a run of this program owns; `release` gives it back whatever was reached.
struct test {
    const char *weights_file, *out_dir, *in_file[INPUTS + 1];
    bool check, bench, steps, no_early_launch;
    //@if errors
    bool errors;
    //@end
    double bench_ms, tolerance;
    const network_info *info;
    FILE *report;  // stdout, unless that is for the figures of --bench
    unsigned char *weights;
    size_t weight_bytes;
    network *model;
    cudaStream_t stream;
    void *arena;
    void *in[INPUTS + 1], *out[OUTPUTS + 1];  // on the device
    void *result[OUTPUTS + 1];                // of the first run, on the host
    double error;                             // the largest relative L2 error seen
    step_clock clock;
};

static int device_alloc(void **p, size_t bytes) {
    char what[64];
    cudaError_t e = cudaMalloc(p, bytes);
    if (e == cudaSuccess) return 0;
    *p = NULL;
    snprintf(what, sizeof what, "%zu bytes of device memory", bytes);
    return fail(FAILED, what, cudaGetErrorString(e));
}

static int device_free(void **p) {
    void *old = *p;
    *p = NULL;
    if (old) CALL(cudaFree(old));
    return 0;
}

static int host_alloc(void **p, size_t bytes) {
    *p = malloc(bytes ? bytes : 1);
    return *p ? 0 : fail(FAILED, "host memory", "exhausted");
}

static int to_device(const test *t, void *to, const void *from, size_t bytes) {
    CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, t->stream));
    CALL(cudaStreamSynchronize(t->stream));
    return 0;
}

static int to_host(const test *t, void *to, const void *from, size_t bytes) {
    CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, t->stream));
    CALL(cudaStreamSynchronize(t->stream));
    return 0;
}
