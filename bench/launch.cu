// What a launch costs: chains of kernels that each need the one before, in a stream, as a recorded
// graph, and as one whose kernels may be launched early (programmatic dependent launch; built for
// sm_90 or later, CUDA 12.3). `key TAB nanoseconds a kernel` a line: of one block, and (`_wide`) of
// a block for each multiprocessor. Exit code 77 without a GPU, 1 when a sum is wrong.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHAIN = 512, ROUNDS = 21, BLOCK = 64 };

#define TRY(call)                                                    \
    do {                                                             \
        cudaError_t e_ = (call);                                     \
        if (e_ != cudaSuccess) {                                     \
            fprintf(stderr, "launch: %s\n", cudaGetErrorString(e_)); \
            return 5;                                                \
        }                                                            \
    } while (0)

static __global__ void add_one(float *p, bool next_early) {
#if CUDART_VERSION >= 11080 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
    cudaGridDependencySynchronize();
    if (next_early) cudaTriggerProgrammaticLaunchCompletion();
#else
    (void)next_early;
#endif
    p[blockIdx.x * BLOCK + threadIdx.x] += 1.f;
}

static int add_chain(cudaStream_t stream, float *p, int blocks, bool early) {
    for (int i = 0; i < CHAIN; i++) {
        const bool next_early = early && i + 1 < CHAIN;
#if CUDART_VERSION >= 11080
        cudaLaunchAttribute serial = {};
        cudaLaunchConfig_t config = {};
        serial.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        serial.val.programmaticStreamSerializationAllowed = 1;
        config.gridDim = dim3((unsigned)blocks);
        config.blockDim = dim3(BLOCK);
        config.stream = stream;
        config.attrs = &serial;
        config.numAttrs = early && i > 0;
        TRY(cudaLaunchKernelEx(&config, add_one, p, next_early));
#else
        add_one<<<blocks, BLOCK, 0, stream> > >(p, next_early);
        TRY(cudaGetLastError());
#endif
    }
    return 0;
}

static int record(cudaStream_t stream, float *p, int blocks, bool early, cudaGraphExec_t *exec) {
    cudaGraph_t graph = NULL;
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    int code = add_chain(stream, p, blocks, early);
    TRY(cudaStreamEndCapture(stream, &graph));
    if (code) return code;
#if CUDART_VERSION >= 12000
    TRY(cudaGraphInstantiate(exec, graph, 0));
#else
    TRY(cudaGraphInstantiate(exec, graph, NULL, NULL, 0));
#endif
    TRY(cudaGraphDestroy(graph));
    return 0;
}

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The median of several chains, from events around each; `recorded`: as a graph.
static int put_time(const char *key, float *p, int blocks, bool recorded, bool early) {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    cudaGraphExec_t exec = NULL;
    float ms[ROUNDS], sum = 0;
    TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    TRY(cudaEventCreate(&begin));
    TRY(cudaEventCreate(&end));
    TRY(cudaMemset(p, 0, sizeof(float) * BLOCK * (size_t)blocks));
    TRY(cudaDeviceSynchronize());
    int code = recorded ? record(stream, p, blocks, early, &exec) : 0;
    for (int i = 0; i < ROUNDS && !code; i++) {
        TRY(cudaEventRecord(begin, stream));
        if (recorded) TRY(cudaGraphLaunch(exec, stream));
        else code = add_chain(stream, p, blocks, early);
        TRY(cudaEventRecord(end, stream));
        TRY(cudaStreamSynchronize(stream));
        TRY(cudaEventElapsedTime(&ms[i], begin, end));
    }
    if (code) return code;
    TRY(cudaMemcpy(&sum, p + BLOCK * blocks - 1, sizeof sum, cudaMemcpyDeviceToHost));
    if (exec) TRY(cudaGraphExecDestroy(exec));
    TRY(cudaEventDestroy(begin));
    TRY(cudaEventDestroy(end));
    TRY(cudaStreamDestroy(stream));
    qsort(ms, ROUNDS, sizeof *ms, by_size);
    printf("%s\t%.0f\n", key, (double)ms[ROUNDS / 2] * 1e6 / CHAIN);
    return sum == (float)(CHAIN * ROUNDS) ? 0 : 1;
}

int main() {
    int count = 0, multiprocessors = 0, driver = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return 77;
    TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    TRY(cudaDriverGetVersion(&driver));
    cudaFuncAttributes a;
    TRY(cudaFuncGetAttributes(&a, (const void *)add_one));
    const bool early = CUDART_VERSION >= 12030 && driver >= 12030 && a.ptxVersion >= 90;
    float *p;
    TRY(cudaMalloc((void **)&p, sizeof(float) * BLOCK * (size_t)multiprocessors));
    int code = put_time("launch_ns", p, 1, false, false);
    if (!code) code = put_time("node_ns", p, 1, true, false);
    if (!code) code = put_time("node_ns_wide", p, multiprocessors, true, false);
    if (!code && early) code = put_time("early_launch_ns", p, 1, false, true);
    if (!code && early) code = put_time("early_node_ns", p, 1, true, true);
    if (!code && early) code = put_time("early_node_ns_wide", p, multiprocessors, true, true);
    TRY(cudaFree(p));
    return code;
}
