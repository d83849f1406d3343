// Clusters of blocks: right ones and planted faults, chosen by the argument. Only the judge's
// interpreter of PTX has them, so that test_ptx.sh says what has to be noticed.
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 4, BLOCK = 64, N = 3 * BLOCKS * BLOCK };
enum fault { NONE, EARLY, LEAVES, WIDE, TWICE, STAYS, HIDES, LATE };

#ifdef __CUDA_ARCH__
#define CLUSTER __cluster_dims__(BLOCKS)
static __device__ void arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
static __device__ void only_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ void await() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
static __device__ const float *of_block(const float *own, unsigned block) {
    const float *other;
    asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(block));
    return other;
}
#else
#define CLUSTER
static void arrive() {}
static void only_arrive() {}
static void await() {}
static const float *of_block(const float *own, unsigned) { return own; }
#endif

// Each thread's sum of what all blocks of its cluster have at the place of its neighbour.
template <fault HOW>
static __device__ void add_up(const float *x, float *y) {
    __shared__ float s[BLOCK];
    const unsigned t = threadIdx.x, rank = blockIdx.x % BLOCKS;
    s[t] = x[blockIdx.x * BLOCK + t];
    if (HOW == STAYS && rank == 1) return;
    if (HOW != EARLY) {
        if (HOW == HIDES) only_arrive();
        else arrive();
        if (HOW == TWICE) arrive();
        await();
    }
    __syncthreads();
    float sum = 0;
    if (HOW == LATE) only_arrive();
    for (unsigned b = 0; b < BLOCKS; b++)
        sum += *of_block(&s[BLOCK - 1 - t], HOW == WIDE ? b + 1 : b);
    if (HOW != LEAVES) {
        if (HOW != LATE) only_arrive();
        y[blockIdx.x * BLOCK + t] = sum;
        await();
    } else {
        y[blockIdx.x * BLOCK + t] = sum;
    }
}

__global__ void CLUSTER right(const float *x, float *y) { add_up<NONE>(x, y); }
__global__ void CLUSTER reads_early(const float *x, float *y) { add_up<EARLY>(x, y); }
__global__ void CLUSTER ends_early(const float *x, float *y) { add_up<LEAVES>(x, y); }
__global__ void CLUSTER beyond(const float *x, float *y) { add_up<WIDE>(x, y); }
__global__ void CLUSTER arrives_twice(const float *x, float *y) { add_up<TWICE>(x, y); }
__global__ void CLUSTER stays_away(const float *x, float *y) { add_up<STAYS>(x, y); }
__global__ void CLUSTER shows_nothing(const float *x, float *y) { add_up<HIDES>(x, y); }
__global__ void CLUSTER reads_late(const float *x, float *y) { add_up<LATE>(x, y); }

#define IS(case) (strcmp(name, #case) == 0)

// Status 3: a call failed, 4: a wrong result, 0: nothing noticed.
int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    static float host[N], got[N];
    float *x, *y;
    bool bad = false;
    void (*kernel)(const float *, float *) = right;
    if (IS(reads_early)) kernel = reads_early;
    if (IS(ends_early)) kernel = ends_early;
    if (IS(beyond)) kernel = beyond;
    if (IS(arrives_twice)) kernel = arrives_twice;
    if (IS(stays_away)) kernel = stays_away;
    if (IS(shows_nothing)) kernel = shows_nothing;
    if (IS(reads_late)) kernel = reads_late;
    for (int i = 0; i < N; i++) host[i] = (float)(i % 97);
    if (cudaMalloc(&x, sizeof host) || cudaMalloc(&y, sizeof got)) return 3;
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    // Clusters have to be whole.
    const dim3 grid(IS(part_of_one) ? BLOCKS + 1 : N / BLOCK), block(BLOCK);
    kernel<<<grid, block, 0, 0>>>(x, y);
    if (cudaDeviceSynchronize()) return 3;
    cudaMemcpy(got, y, sizeof got, cudaMemcpyDeviceToHost);
    for (int i = 0; i < N; i++) {
        float want = 0;
        for (int b = 0; b < BLOCKS; b++)
            want +=
                host[i / (BLOCKS * BLOCK) * (BLOCKS * BLOCK) + b * BLOCK + BLOCK - 1 - i % BLOCK];
        bad = bad || got[i] != want;
    }
    cudaFree(x);
    cudaFree(y);
    return bad ? 4 : 0;
}
