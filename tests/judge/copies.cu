// Asynchronous copies to shared memory: right ones and planted faults, chosen by the argument.
// run_judge_tests says what has to be noticed when.
#include <cuda_runtime.h>
#include <cuda_pipeline_primitives.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 5, BLOCK = 64, N = STEPS * BLOCK };

// Sums over steps of what a thread's neighbour has copied, two steps ahead.
template <int WAIT, bool BARRIER, bool SOON>
static __device__ void add_up(const float4 *x, float *y) {
    __shared__ float4 s[3][BLOCK];
    const int t = (int)threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 2; k++) {
        __pipeline_memcpy_async(&s[k][t], x + k * BLOCK + t, 16);
        __pipeline_commit();
    }
    for (int k = 0; k < STEPS; k++) {
        __pipeline_wait_prior(WAIT);
        if (BARRIER) __syncthreads();
        // Too soon: over what others still have to read.
        const int to = SOON ? k % 3 : (k + 2) % 3;
        if (k + 2 < STEPS) __pipeline_memcpy_async(&s[to][t], x + (k + 2) * BLOCK + t, 16);
        __pipeline_commit();
        const float4 v = s[k % 3][BLOCK - 1 - t];
        sum += v.x + v.y + v.z + v.w;
    }
    __pipeline_wait_prior(0);
    y[t] = sum;
}

__global__ void right(const float4 *x, float *y) { add_up<1, true, false>(x, y); }
__global__ void no_wait(const float4 *x, float *y) { add_up<8, true, false>(x, y); }
__global__ void wait_for_less(const float4 *x, float *y) { add_up<2, true, false>(x, y); }
__global__ void no_barrier(const float4 *x, float *y) { add_up<1, false, false>(x, y); }
__global__ void too_soon(const float4 *x, float *y) { add_up<1, true, true>(x, y); }

// 4 and 8 bytes, some of them zeros.
__global__ void sizes(const float4 *x, float *y) {
    __shared__ float2 s[BLOCK];
    const int t = (int)threadIdx.x;
    const float *from = (const float *)x;
    __pipeline_memcpy_async(&s[t].x, from + t, 4, t % 2 ? 0 : 4);
    __pipeline_memcpy_async(&s[t].y, from + t, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    float sum = s[t].x + s[t].y;
    __pipeline_memcpy_async(&s[t], from + 2 * t, 8, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[t] = sum + s[t].x + s[t].y;
}

__global__ void misaligned(const float4 *x, float *y) {
    __shared__ float s[BLOCK * 4 + 4];
    __pipeline_memcpy_async(&s[threadIdx.x * 4 + 1], x + threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x * 4 + 1];
}

__global__ void to_global(const float4 *x, float *y) {
    __pipeline_memcpy_async(y + threadIdx.x, x + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
}

__global__ void never_arrives(const float4 *x, float *y) {
    __shared__ float4 s[BLOCK];
    __pipeline_memcpy_async(&s[threadIdx.x], x + threadIdx.x, 16);
    __pipeline_commit();
    y[threadIdx.x] = 0;
}

#define IS(case) (strcmp(name, #case) == 0)

// Status 3: a call failed, 4: a wrong result, 0: nothing noticed.
int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    static float host[N * 4], got[BLOCK];
    float4 *x;
    float *y;
    bool bad = false;
    void (*kernel)(const float4 *, float *) = right;
    if (IS(no_wait)) kernel = no_wait;
    if (IS(wait_for_less)) kernel = wait_for_less;
    if (IS(no_barrier)) kernel = no_barrier;
    if (IS(too_soon)) kernel = too_soon;
    if (IS(sizes)) kernel = sizes;
    if (IS(misaligned)) kernel = misaligned;
    if (IS(to_global)) kernel = to_global;
    if (IS(never_arrives)) kernel = never_arrives;
    for (int i = 0; i < N * 4; i++) host[i] = (float)(i % 97);
    if (cudaMalloc(&x, sizeof host) || cudaMalloc(&y, sizeof got)) return 3;
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(BLOCK);
    kernel<<<grid, block, 0, 0>>>(x, y);
    if (cudaDeviceSynchronize()) return 3;
    cudaMemcpy(got, y, sizeof got, cudaMemcpyDeviceToHost);
    for (int t = 0; t < BLOCK; t++) {
        float want = 0;
        for (int k = 0; k < STEPS * 4; k++)
            want += host[(k / 4 * BLOCK + BLOCK - 1 - t) * 4 + k % 4];
        if (IS(sizes)) want = (t % 2 ? host[t] : 0) + host[t] + host[2 * t];
        bad = bad || got[t] != want;
    }
    cudaFree(x);
    cudaFree(y);
    return bad ? 4 : 0;
}
