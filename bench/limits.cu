// What the GPU and its libraries reach, one `key TAB argument TAB value` a line: bandwidth of
// copies by size, peaks of cuBLAS by arithmetic and size, and which of cuDNN's algorithms run for
// some layers in FP32. `--quick` tries it at small sizes.
// Exit code 77 without a GPU; a figure that could not be had is a line that begins with '#'.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 9, TURNS = 20, AHEAD = 16 };
static const float SAMPLE_MS = 2;

struct stopwatch {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    void *filler;
    size_t bytes;
};

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// `turns` times `work`, in milliseconds of one. The device is given something else first, so that
// the host is ahead of it and launches are no part of the time.
template <class Work>
static bool time_work(const stopwatch *c, Work work, int turns, float *ms) {
    bool ok = true;
    *ms = 0;
    for (int i = 0; i < AHEAD; i++)
        ok = ok && cudaMemsetAsync(c->filler, i, c->bytes, c->stream) == cudaSuccess;
    ok = ok && work() == 0 && cudaEventRecord(c->start, c->stream) == cudaSuccess;
    for (int i = 0; i < turns; i++) ok = ok && work() == 0;
    ok = ok && cudaEventRecord(c->stop, c->stream) == cudaSuccess &&
         cudaEventSynchronize(c->stop) == cudaSuccess &&
         cudaEventElapsedTime(ms, c->start, c->stop) == cudaSuccess;
    *ms /= (float)turns;
    return ok;
}

// Median milliseconds of `work`, warm; below 0: it failed.
template <class Work>
static float median_ms(const stopwatch *c, Work work) {
    float ms[SAMPLES];
    int turns = 1;
    for (int i = -2; i < SAMPLES; i++) {
        float *to = &ms[i < 0 ? 0 : i];
        if (!time_work(c, work, turns, to)) {
            (void)cudaGetLastError();
            return -1;
        }
        if (i < 0) turns = *to * TURNS < SAMPLE_MS ? TURNS : 1 + (int)(SAMPLE_MS / *to);
    }
    qsort(ms, SAMPLES, sizeof *ms, by_size);
    return ms[SAMPLES / 2];
}

static void put(const char *key, const char *argument, double value) {
    if (value > 0) printf("%s\t%s\t%.6g\n", key, argument, value);
    else printf("# %s %s: failed\n", key, argument);
    fflush(stdout);
}

// ---- memory ----

static void put_copies(const stopwatch *c, bool quick) {
    size_t most = (size_t)(quick ? 4 : 4096) << 20;
    for (size_t bytes = 1 << 20; bytes <= most; bytes *= 4) {
        void *from = NULL, *to = NULL;
        char size[24];
        snprintf(size, sizeof size, "%zu", bytes);
        float ms = -1;
        if (cudaMalloc(&from, bytes) == cudaSuccess && cudaMalloc(&to, bytes) == cudaSuccess)
            ms = median_ms(c, [&] {
                return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream) !=
                       cudaSuccess;
            });
        // Read and written.
        put("copy_gbps", size, ms > 0 ? 2e-6 * (double)bytes / (double)ms : -1);
        (void)cudaFree(from);
        (void)cudaFree(to);
        (void)cudaGetLastError();
    }
}

// ---- arithmetic ----

// Numbers of either sign from 1/2 to 1, f32 or pairs of f16: constant data, zeros above all, make
// fewer bits change and let clocks be higher than products of real data have.
static __global__ void fill_numbers(unsigned *to, size_t n, unsigned kept, unsigned base) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = (unsigned)i * 2654435761u;
        h = (h ^ (h >> 15)) * 2246822519u;
        to[i] = base | ((h ^ (h >> 13)) & kept);
    }
}

static bool fill(const stopwatch *c, void *to, size_t bytes, bool half) {
    unsigned kept = half ? 0x83ff83ffu : 0x807fffffu, base = half ? 0x38003800u : 0x3f000000u;
    fill_numbers<<<1024, 256, 0, c->stream>>>((unsigned *)to, bytes / 4, kept, base);
    return cudaGetLastError() == cudaSuccess;
}

static void put_gemm(const stopwatch *c, cublasHandle_t blas, const char *name, cudaDataType_t type,
                     cublasComputeType_t compute, int n) {
    size_t bytes = (size_t)n * n * (type == CUDA_R_16F ? 2 : 4);
    void *m[3] = {NULL, NULL, NULL};
    const float one = 1, zero = 0;
    char size[24];
    bool ok = true;
    for (int i = 0; i < 3; i++)
        ok = ok && cudaMalloc(&m[i], bytes) == cudaSuccess &&
             fill(c, m[i], bytes, type == CUDA_R_16F);
    float ms = !ok ? -1 : median_ms(c, [&] {
        return cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, m[0], type, n, m[1],
                            type, n, &zero, m[2], type, n, compute,
                            CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS;
    });
    snprintf(size, sizeof size, "%d", n);
    put(name, size, ms > 0 ? 2e-9 * n * n * n / (double)ms : -1);
    for (int i = 0; i < 3; i++) (void)cudaFree(m[i]);
    (void)cudaGetLastError();
}

static void put_peaks(const stopwatch *c, bool quick) {
    static const int sizes[] = {64, 1024, 4096, 8192};
    cublasHandle_t blas;
    if (cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS) {
        printf("# cuBLAS: failed\n");
        return;
    }
    (void)cublasSetStream(blas, c->stream);
    for (int i = quick ? 0 : 1; i < (quick ? 1 : 4); i++) {
        put_gemm(c, blas, "sgemm_tflops", CUDA_R_32F, CUBLAS_COMPUTE_32F, sizes[i]);
        put_gemm(c, blas, "tf32_tflops", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, sizes[i]);
        put_gemm(c, blas, "fp16_tflops", CUDA_R_16F, CUBLAS_COMPUTE_32F, sizes[i]);
    }
    (void)cublasDestroy(blas);
}

// ---- convolutions ----

struct layer {
    const char *name;
    int n, c, f, h, k, stride;
};
static const layer layers[] = {
    {"resnet stem", 1, 3, 64, 224, 7, 2},     {"resnet c2", 1, 64, 64, 56, 3, 1},
    {"resnet c3 down", 1, 64, 128, 56, 3, 2}, {"resnet c3 point", 1, 64, 128, 56, 1, 2},
    {"resnet c3", 1, 128, 128, 28, 3, 1},     {"resnet c4 down", 1, 128, 256, 28, 3, 2},
    {"resnet c4", 1, 256, 256, 14, 3, 1},     {"resnet c5 down", 1, 256, 512, 14, 3, 2},
    {"resnet c5", 1, 512, 512, 7, 3, 1},      {"vgg c1", 1, 64, 64, 224, 3, 1},
    {"vgg c2", 1, 128, 128, 112, 3, 1},       {"vgg c3", 1, 256, 256, 56, 3, 1},
    {"vgg c4", 1, 512, 512, 28, 3, 1},        {"vgg c5", 1, 512, 512, 14, 3, 1},
};

// Every algorithm of a layer: microseconds, or the status that it ends with.
static void put_layer(const stopwatch *c, cudnnHandle_t dnn, const layer *l) {
    enum { ALGORITHMS = 8, WORKSPACE = 256 << 20 };
    int out = (l->h + 2 * (l->k / 2) - l->k) / l->stride + 1;
    size_t bytes[3] = {4ull * l->n * l->c * l->h * l->h, 4ull * l->f * l->c * l->k * l->k,
                       4ull * l->n * l->f * out * out};
    void *m[4] = {NULL, NULL, NULL, NULL};
    cudnnTensorDescriptor_t x = NULL, y = NULL;
    cudnnFilterDescriptor_t w = NULL;
    cudnnConvolutionDescriptor_t conv = NULL;
    bool ok = cudnnCreateTensorDescriptor(&x) == 0 && cudnnCreateTensorDescriptor(&y) == 0 &&
              cudnnCreateFilterDescriptor(&w) == 0 && cudnnCreateConvolutionDescriptor(&conv) == 0;
    ok = ok &&
         cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, l->n, l->c, l->h,
                                    l->h) == 0 &&
         cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, l->n, l->f, out, out) ==
             0 &&
         cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, l->f, l->c, l->k,
                                    l->k) == 0 &&
         cudnnSetConvolution2dDescriptor(conv, l->k / 2, l->k / 2, l->stride, l->stride, 1, 1,
                                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT) == 0 &&
         cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH) == 0;
    for (int i = 0; i < 3; i++) ok = ok && cudaMalloc(&m[i], bytes[i]) == cudaSuccess;
    ok = ok && cudaMalloc(&m[3], WORKSPACE) == cudaSuccess;
    for (int i = 0; i < 3; i++)
        ok = ok && cudaMemsetAsync(m[i], 0x38, bytes[i], c->stream) == cudaSuccess;
    cudnnConvolutionFwdAlgoPerf_t p[ALGORITHMS];
    int found = 0;
    if (!ok ||
        cudnnFindConvolutionForwardAlgorithmEx(dnn, x, m[0], w, m[1], conv, y, m[2], ALGORITHMS,
                                               &found, p, m[3], WORKSPACE) != CUDNN_STATUS_SUCCESS)
        printf("# %s: cudnnFind failed\n", l->name);
    for (int i = 0; i < found; i++) {
        if (p[i].status == CUDNN_STATUS_SUCCESS)
            printf("conv_us\t%s algo %d\t%.6g\n", l->name, (int)p[i].algo, (double)p[i].time * 1e3);
        else
            printf("# conv_us %s algo %d: %s\n", l->name, (int)p[i].algo,
                   cudnnGetErrorString(p[i].status));
    }
    for (int i = 0; i < 4; i++) (void)cudaFree(m[i]);
    if (conv) (void)cudnnDestroyConvolutionDescriptor(conv);
    if (w) (void)cudnnDestroyFilterDescriptor(w);
    if (y) (void)cudnnDestroyTensorDescriptor(y);
    if (x) (void)cudnnDestroyTensorDescriptor(x);
    fflush(stdout);
}

static void put_layers(const stopwatch *c) {
    cudnnHandle_t dnn;
    if (cudnnCreate(&dnn) != CUDNN_STATUS_SUCCESS) {
        printf("# cuDNN: failed\n");
        return;
    }
    (void)cudnnSetStream(dnn, c->stream);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) put_layer(c, dnn, &layers[i]);
    (void)cudnnDestroy(dnn);
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    int count = 0;
    stopwatch c;
    c.bytes = (size_t)(quick ? 1 : 64) << 20;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        fprintf(stderr, "limits: no CUDA device\n");
        return 77;
    }
    if (cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreate(&c.start) != cudaSuccess || cudaEventCreate(&c.stop) != cudaSuccess ||
        cudaMalloc(&c.filler, c.bytes) != cudaSuccess) {
        fprintf(stderr, "limits: the device cannot be used\n");
        return 5;
    }
    put_copies(&c, quick);
    put_peaks(&c, quick);
    if (!quick) put_layers(&c);
    (void)cudaFree(c.filler);
    (void)cudaEventDestroy(c.start);
    (void)cudaEventDestroy(c.stop);
    (void)cudaStreamDestroy(c.stream);
    return 0;
}
