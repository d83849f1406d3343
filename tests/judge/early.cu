// Kernels that may begin before the work before them is over (programmatic dependent launch): right
// ones and planted faults, chosen by the first argument. run_judge_tests says what has to be
// noticed when. A second argument, `graph`: the launches are recorded and replayed.
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#if CUDART_VERSION < 11080
#error "early launches need CUDA 11.8 or later"
#endif

enum { N = 1024, BLOCK = 64, ORDERED = 0, EARLY = 1 };

static cudaStream_t stream;
static cudaError_t status = cudaSuccess;

template <class... P, class... A>
static void launch(int when, void (*kernel)(P...), A... args) {
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(N / BLOCK);
    config.blockDim = dim3(BLOCK);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = when == EARLY;
    cudaError_t e = cudaLaunchKernelEx(&config, kernel, args...);
    if (status == cudaSuccess) status = e;
}

static __device__ int self() { return (int)(blockIdx.x * BLOCK + threadIdx.x); }

__global__ void first(const float *x, float *y, bool next_early) {
    cudaGridDependencySynchronize();
    if (next_early) cudaTriggerProgrammaticLaunchCompletion();
    y[self()] = 2 * x[N - 1 - self()];
}

__global__ void right(const float *x, const float *w, float *y, bool next_early) {
    const float weight = w[self()];  // nothing writes to it
    cudaGridDependencySynchronize();
    if (next_early) cudaTriggerProgrammaticLaunchCompletion();
    y[self()] = weight * x[N - 1 - self()];
}

__global__ void no_wait(const float *x, const float *w, float *y, bool) {
    y[self()] = w[self()] * x[N - 1 - self()];
}

__global__ void some_wait(const float *x, const float *w, float *y, bool) {
    if (blockIdx.x) cudaGridDependencySynchronize();
    y[self()] = w[self()] * x[N - 1 - self()];
}

__global__ void reads_before(const float *x, const float *w, float *y, bool) {
    const float value = x[N - 1 - self()];
    cudaGridDependencySynchronize();
    y[self()] = w[self()] * value;
}

__global__ void writes_before(const float *x, const float *w, float *y, bool) {
    y[self()] = 0;
    cudaGridDependencySynchronize();
    y[self()] = w[self()] * x[N - 1 - self()];
}

__global__ void early_trigger(const float *x, const float *w, float *y, bool) {
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    y[self()] = w[self()] * x[N - 1 - self()];
}

// Keeps barriers, warps' meetings and shared memory on both sides of the wait.
__global__ void waits_inside(const float *x, const float *w, float *y, bool) {
    __shared__ float s[BLOCK];
    s[threadIdx.x] = w[self()];
    __syncthreads();
    const float weight = s[BLOCK - 1 - threadIdx.x];
    cudaGridDependencySynchronize();
    __syncthreads();
    s[threadIdx.x] = weight * __shfl_xor_sync(0xffffffffu, x[N - 1 - self()], 1);
    __syncthreads();
    y[self()] = s[BLOCK - 1 - threadIdx.x];
}

// Half words of shared memory, written ahead of the wait as they were by the launch before.
__global__ void halves_inside(const float *x, const float *w, float *y, bool next_early) {
    __shared__ unsigned short s[BLOCK];
    s[threadIdx.x] = (unsigned short)w[self()];
    cudaGridDependencySynchronize();
    if (next_early) cudaTriggerProgrammaticLaunchCompletion();
    __syncthreads();
    y[self()] = (float)s[BLOCK - 1 - threadIdx.x] * x[N - 1 - self()];
}

#define IS(case) (strcmp(name, #case) == 0)

// x -> a -> b -> y.
static void chain(const char *name, const float *x, const float *w, float *a, float *b, float *y) {
    void (*second)(const float *, const float *, float *, bool) = right;
    if (IS(no_wait) || IS(library_no_wait)) second = no_wait;
    if (IS(some_wait)) second = some_wait;
    if (IS(reads_before)) second = reads_before;
    if (IS(early_trigger)) second = early_trigger;
    if (IS(waits_inside)) second = waits_inside;
    if (IS(halves_inside)) second = halves_inside;
    const bool other = IS(library) || IS(library_no_wait) || IS(lets_library_in);
    launch(ORDERED, first, x, a, !other || IS(lets_library_in));
    if (IS(writes_before)) {
        launch(EARLY, writes_before, a, w, (float *)x, true);
        launch(EARLY, right, x, w, y, false);
        return;
    }
    if (other) {
        // Work that is no kernel of ours, between two that are.
        cudaMemcpyAsync(b, a, N * sizeof(float), cudaMemcpyDeviceToDevice, stream);
        launch(EARLY, second, b, w, y, false);
        return;
    }
    launch(EARLY, second, a, w, b, true);
    launch(IS(lets_ordered_in) ? ORDERED : EARLY, IS(halves_inside) ? halves_inside : right, b, w,
           y, IS(lets_nothing_in));
}

// The same on the host, from x[i] = i and w[i] = 3.
static bool wrong(const char *name, const float *y) {
    bool bad = false;
    for (int i = 0; i < N; i++) {
        const int k = N - 1 - i, m = k % BLOCK;
        float want = 2.f * 9.f * (float)(N - 1 - i);
        if (IS(library) || IS(library_no_wait)) want = 2.f * 3.f * (float)i;
        if (IS(waits_inside)) want = 2.f * 9.f * (float)(k - m + ((BLOCK - 1 - m) ^ 1));
        bad = bad || y[i] != want;
    }
    return bad;
}

// Status 3: a call failed, 4: a wrong result, 0: nothing noticed.
int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    const bool graph = argc > 2 && strcmp(argv[2], "graph") == 0;
    static float host[N], three[N];
    float *x, *w, *a, *b, *y;
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t replay = NULL;
    if (cudaMalloc(&x, sizeof host) || cudaMalloc(&w, sizeof host) || cudaMalloc(&a, sizeof host) ||
        cudaMalloc(&b, sizeof host) || cudaMalloc(&y, sizeof host))
        return 3;
    for (int i = 0; i < N; i++) {
        host[i] = (float)i;
        three[i] = 3;
    }
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemcpy(w, three, sizeof three, cudaMemcpyHostToDevice);
    if (graph) cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    chain(name, x, w, a, b, y);
    if (graph) {
        cudaStreamEndCapture(stream, &recorded);
        if (cudaGraphInstantiate(&replay, recorded, 0) || cudaGraphLaunch(replay, stream)) return 3;
    }
    if (cudaStreamSynchronize(stream) || status != cudaSuccess) return 3;
    cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);
    if (replay) cudaGraphExecDestroy(replay);
    if (recorded) cudaGraphDestroy(recorded);
    cudaStreamDestroy(stream);
    cudaFree(x);
    cudaFree(w);
    cudaFree(a);
    cudaFree(b);
    cudaFree(y);
    return wrong(name, host) ? 4 : 0;
}
