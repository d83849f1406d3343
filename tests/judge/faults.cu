// Planted faults and controls for the judge, chosen by the first argument. run_judge_tests says
// which mode has to catch which.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- controls: correct kernels

__global__ void shared_reverse(float *p) {
    __shared__ float s[256];
    s[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    p[threadIdx.x] = s[255 - threadIdx.x];
}

__global__ void dynamic_reverse(float *p) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    float *s = reinterpret_cast<float *>(dynamic);
    s[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    p[threadIdx.x] = s[255 - threadIdx.x];
}

__global__ void static_and_dynamic(float *p) {
    __shared__ float s[256];
    extern __shared__ __align__(16) unsigned char dynamic[];
    float *t = reinterpret_cast<float *>(dynamic);
    s[threadIdx.x] = 1.0f;
    t[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    p[threadIdx.x] = t[255 - threadIdx.x] * s[255 - threadIdx.x];
}

__global__ void atomics(float *p) { atomicAdd(p, 1.0f); }

__global__ void warp_exchange(float *p) {
    __shared__ float s[32];
    s[threadIdx.x] = (float)threadIdx.x;
    __syncwarp();
    float other = s[31 - threadIdx.x];
    __syncwarp();
    s[threadIdx.x] = other + 1.0f;
    __syncwarp();
    p[threadIdx.x] = s[threadIdx.x ^ 1];
}

// Sums 8 warps by shuffles; rows of a loop reuse the shared memory behind a second barrier.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) block_sum(float *p, int rows) {
    __shared__ float parts[BLOCK / 32];
    for (int row = 0; row < rows; row++) {
        float v = (float)(threadIdx.x + row);
        for (int d = 16; d > 0; d >>= 1) {
            v += __shfl_xor_sync(0xffffffffu, v, d);
        }
        if (threadIdx.x % 32 == 0) {
            parts[threadIdx.x / 32] = v;
        }
        __syncthreads();
        float sum = 0;
        for (int i = 0; i < BLOCK / 32; i++) {
            sum += parts[i];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            p[row] = sum;
        }
    }
}

__global__ void half_neighbours(__half *p) { p[threadIdx.x] = __float2half((float)threadIdx.x); }

__global__ void bytes_neighbours(signed char *p) { p[threadIdx.x] = (signed char)threadIdx.x; }

__global__ void votes(float *p) {
    unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    int up = __shfl_up_sync(0xffffffffu, (int)threadIdx.x, 1);
    int down = __shfl_down_sync(0xffffffffu, (int)threadIdx.x, 2);
    int first = __shfl_sync(0xffffffffu, (int)threadIdx.x, 8, 16);
    bool any = __any_sync(0xffffffffu, threadIdx.x == 5),
         all = __all_sync(0xffffffffu, threadIdx.x < 32);
    const int one = __syncthreads_or(threadIdx.x == 7), none = __syncthreads_or(0);
    any = any && one && !none && __syncthreads_or(threadIdx.x == 30);
    p[threadIdx.x] =
        odd == 0xaaaaaaaau && any && all ? (float)(up + 100 * down + 10000 * first) : -1.0f;
}

__global__ void blocks(float *p, int n) {
    int i = (int)((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
    int t = (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    int at = i * (int)(blockDim.x * blockDim.y * blockDim.z) + t;
    if (at < n) {
        p[at] = (float)at;
    }
}

// Four blocks leave 32 numbers each, and the last to arrive adds them up; p[255] counts arrivals.
// Without one of the parts of the handshake it is wrong.
enum { LEAVE_FENCE = 1, TAKE_FENCE = 2, LEAVE_BARRIER = 4, RESET = 8, WHOLE = 15 };

template <int PARTS>
static __device__ void hand_over(float *p) {
    __shared__ bool last;
    unsigned *counter = (unsigned *)p + 255;
    p[32 + 32 * blockIdx.x + threadIdx.x] = (float)(blockIdx.x + threadIdx.x);
    if (PARTS & LEAVE_BARRIER) {
        __syncthreads();
    }
    if (threadIdx.x == 31) {
        if (PARTS & LEAVE_FENCE) {
            __threadfence();
        }
        last = (PARTS & RESET ? atomicInc(counter, 3) : atomicAdd(counter, 1)) == 3;
        if (PARTS & TAKE_FENCE) {
            __threadfence();
        }
    }
    __syncthreads();
    if (last) {
        float sum = 0;
        for (unsigned b = 0; b < 4; b++) {
            sum += __ldcg(&p[32 + 32 * b + 31 - threadIdx.x]);
        }
        p[threadIdx.x] = sum == (float)(6 + 4 * (31 - threadIdx.x)) ? sum : NAN;
    }
}

__global__ void last_block(float *p) { hand_over<WHOLE>(p); }
__global__ void race_no_fence_before(float *p) { hand_over<WHOLE - LEAVE_FENCE>(p); }
__global__ void race_no_fence_after(float *p) { hand_over<WHOLE - TAKE_FENCE>(p); }
__global__ void race_early_arrival(float *p) { hand_over<WHOLE - LEAVE_BARRIER>(p); }
__global__ void last_forgets(float *p) { hand_over<WHOLE - RESET>(p); }

// ---- races

__global__ void race_shared(float *p) {
    __shared__ float s[256];
    s[threadIdx.x] = (float)threadIdx.x;
    p[threadIdx.x] = s[255 - threadIdx.x];
}

__global__ void race_war(float *p) {
    __shared__ float s[256];
    for (int i = 0; i < 4; i++) {
        s[threadIdx.x] = p[threadIdx.x] + (float)i;
        __syncthreads();
        p[threadIdx.x] = s[(threadIdx.x + 1) & 255];
    }
}

__global__ void race_lockstep(float *p) {
    __shared__ float s[32];
    s[threadIdx.x] = 1.0f;
    if (threadIdx.x < 16) {
        s[threadIdx.x] += s[threadIdx.x + 16];
    }
    p[threadIdx.x] = s[0];
}

__global__ void race_shuffle_orders_nothing(float *p) {
    __shared__ float s[32];
    s[threadIdx.x] = (float)threadIdx.x;
    float v = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    p[threadIdx.x] = s[31 - threadIdx.x] + v;
}

__global__ void race_two_warps(float *p) {
    __shared__ float s[64];
    s[threadIdx.x] = (float)threadIdx.x;
    __syncwarp();
    p[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void race_blocks(float *p) { p[0] += 1.0f; }

__global__ void race_block_reads(float *p) {
    if (blockIdx.x == 2) {
        p[0] = 1.0f;
    } else {
        p[1 + blockIdx.x] = p[0];
    }
}

__global__ void race_halves(__half *p) { p[threadIdx.x / 2] = __float2half((float)threadIdx.x); }

__global__ void race_atomic_and_plain(float *p) {
    if (threadIdx.x == 7) {
        p[0] = 1.0f;
    } else {
        atomicAdd(p, 1.0f);
    }
}

__global__ void unset_shared(float *p) {
    __shared__ float s[256];
    if (threadIdx.x != 0) {
        s[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    p[threadIdx.x] = s[threadIdx.x];
}

__global__ void unset_dynamic(float *p) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    float *s = reinterpret_cast<float *>(dynamic);
    if (threadIdx.x != 0) {
        s[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    p[threadIdx.x] = s[threadIdx.x];
}

// ---- memory and arithmetic

__global__ void oob_global(float *p, int n) { p[threadIdx.x + n - 255] = 1.0f; }

__global__ void oob_read(float *p, int n) { p[threadIdx.x] = p[threadIdx.x + n - 255]; }

__global__ void oob_shared(float *p) {
    __shared__ float s[256];
    __shared__ float t[256];
    t[threadIdx.x] = 2.0f;
    s[threadIdx.x + 1] = 1.0f;
    __syncthreads();
    p[threadIdx.x] = s[threadIdx.x] + t[threadIdx.x];
}

__global__ void oob_dynamic(float *p) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    float *s = reinterpret_cast<float *>(dynamic);
    s[threadIdx.x + 1] = 1.0f;
    __syncthreads();
    p[threadIdx.x] = s[threadIdx.x];
}

__global__ void oob_local(float *p, int n) {
    float v[8];
    for (int i = 0; i < 8; i++) {
        v[i] = p[i];
    }
    p[threadIdx.x] = v[(int)threadIdx.x % 8 + n];
}

__global__ void misaligned(float *p) {
    float4 *q = reinterpret_cast<float4 *>(p + 1);
    q[threadIdx.x & 3] = make_float4(1, 2, 3, 4);
}

__global__ void int_overflow(float *p, int n) {
    int i = n * (int)(threadIdx.x + 1);
    p[threadIdx.x] = (float)i;
}

// ---- synchronisation

__global__ void divergent_barrier(float *p) {
    if (threadIdx.x < 128) {
        __syncthreads();
    }
    p[threadIdx.x] = 1.0f;
}

__global__ void two_barriers(float *p) {
    if (threadIdx.x < 128) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    p[threadIdx.x] = 1.0f;
}

__global__ void early_exit(float *p) {
    if (threadIdx.x >= 200) {
        return;
    }
    __syncthreads();
    p[threadIdx.x] = 1.0f;
}

__global__ void bad_mask(float *p) {
    float v = 1.0f;
    if (threadIdx.x < 16) {
        v += __shfl_down_sync(0xffffffffu, v, 8);
    }
    p[threadIdx.x] = v;
}

__global__ void mask_without_self(float *p) {
    float v = 1.0f;
    v += __shfl_down_sync(0x0000ffffu, v, 8);
    p[threadIdx.x] = v;
}

__global__ void stack_overrun(float *p) {
    volatile float big[10000];
    for (int i = 9999; i >= 0; i--) {
        big[i] = p[0];
    }
    p[threadIdx.x] = big[7];
}

// ---- host side

// Each of these launches the kernel of that name; false when there is none.
#define IS(kernel) (strcmp(name, #kernel) == 0)

static bool launch_control(const char *name, float *p) {
    if (IS(shared_reverse)) {
        shared_reverse<<<1, 256, 0, 0>>>(p);
    } else if (IS(dynamic_reverse)) {
        dynamic_reverse<<<1, 256, 1024, 0>>>(p);
    } else if (IS(static_and_dynamic)) {
        static_and_dynamic<<<1, 256, 47 << 10, 0>>>(p);
    } else if (IS(atomics)) {
        atomics<<<2, 256, 0, 0>>>(p);
    } else if (IS(warp_exchange)) {
        warp_exchange<<<1, 32, 0, 0>>>(p);
    } else if (IS(block_sum)) {
        block_sum<256><<<1, 256, 0, 0>>>(p, 5);
    } else if (IS(half_neighbours)) {
        half_neighbours<<<1, 256, 0, 0>>>((__half *)p);
    } else if (IS(bytes_neighbours)) {
        bytes_neighbours<<<1, 64, 0, 0>>>((signed char *)p);
    } else if (IS(votes)) {
        votes<<<1, 32, 0, 0>>>(p);
    } else if (IS(blocks)) {
        blocks<<<dim3(2, 3, 2), dim3(4, 3, 2), 0, 0>>>(p, 250);
    } else if (IS(allowed_shared)) {
        cudaFuncSetAttribute(dynamic_reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
        dynamic_reverse<<<1, 256, 65536, 0>>>(p);
    } else {
        return false;
    }
    return true;
}

static bool launch_race(const char *name, float *p) {
    if (IS(race_shared)) {
        race_shared<<<1, 256, 0, 0>>>(p);
    } else if (IS(race_war)) {
        race_war<<<1, 256, 0, 0>>>(p);
    } else if (IS(race_lockstep)) {
        race_lockstep<<<1, 32, 0, 0>>>(p);
    } else if (IS(race_shuffle_orders_nothing)) {
        race_shuffle_orders_nothing<<<1, 32, 0, 0>>>(p);
    } else if (IS(race_two_warps)) {
        race_two_warps<<<1, 64, 0, 0>>>(p);
    } else if (IS(race_blocks)) {
        race_blocks<<<2, 1, 0, 0>>>(p);
    } else if (IS(race_block_reads)) {
        race_block_reads<<<3, 1, 0, 0>>>(p);
    } else if (IS(race_no_fence_before)) {
        race_no_fence_before<<<4, 32, 0, 0>>>(p);
    } else if (IS(race_no_fence_after)) {
        race_no_fence_after<<<4, 32, 0, 0>>>(p);
    } else if (IS(race_early_arrival)) {
        race_early_arrival<<<4, 32, 0, 0>>>(p);
    } else if (IS(race_halves)) {
        race_halves<<<1, 64, 0, 0>>>((__half *)p);
    } else if (IS(race_atomic_and_plain)) {
        race_atomic_and_plain<<<1, 32, 0, 0>>>(p);
    } else if (IS(unset_shared)) {
        unset_shared<<<1, 256, 0, 0>>>(p);
    } else if (IS(unset_dynamic)) {
        unset_dynamic<<<1, 256, 1024, 0>>>(p);
    } else {
        return false;
    }
    return true;
}

static bool launch_memory_fault(const char *name, float *p) {
    if (IS(oob_global)) {
        oob_global<<<1, 256, 0, 0>>>(p, 256);
    } else if (IS(oob_read)) {
        oob_read<<<1, 256, 0, 0>>>(p, 256);
    } else if (IS(oob_shared)) {
        oob_shared<<<1, 256, 0, 0>>>(p);
    } else if (IS(oob_dynamic)) {
        oob_dynamic<<<1, 256, 1024, 0>>>(p);
    } else if (IS(oob_local)) {
        oob_local<<<1, 256, 0, 0>>>(p, 1);
    } else if (IS(misaligned)) {
        misaligned<<<1, 4, 0, 0>>>(p);
    } else if (IS(int_overflow)) {
        int_overflow<<<1, 256, 0, 0>>>(p, 100000000);
    } else if (IS(stack_overrun)) {
        stack_overrun<<<1, 1, 0, 0>>>(p);
    } else {
        return false;
    }
    return true;
}

static bool launch_wrong_sync(const char *name, float *p) {
    if (IS(divergent_barrier)) {
        divergent_barrier<<<1, 256, 0, 0>>>(p);
    } else if (IS(two_barriers)) {
        two_barriers<<<1, 256, 0, 0>>>(p);
    } else if (IS(early_exit)) {
        early_exit<<<1, 256, 0, 0>>>(p);
    } else if (IS(bad_mask)) {
        bad_mask<<<1, 32, 0, 0>>>(p);
    } else if (IS(mask_without_self)) {
        mask_without_self<<<1, 32, 0, 0>>>(p);
    } else {
        return false;
    }
    return true;
}

static bool launch_refused(const char *name, float *p) {
    if (IS(too_many_threads)) {
        shared_reverse<<<1, 2048, 0, 0>>>(p);
    } else if (IS(too_much_shared)) {
        dynamic_reverse<<<1, 256, 65536, 0>>>(p);
    } else if (IS(more_than_any_block_has)) {
        cudaFuncSetAttribute(dynamic_reverse, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (227 << 10) + 1);
    } else if (IS(too_much_beside_static)) {
        static_and_dynamic<<<1, 256, 48 << 10, 0>>>(p);
    } else {
        return false;
    }
    return true;
}

static cudaError_t launch(const char *name, float *p) {
    bool known = launch_control(name, p) || launch_race(name, p) || launch_memory_fault(name, p) ||
                 launch_wrong_sync(name, p) || launch_refused(name, p);
    return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

// A queue of work on two streams: copy and double on `a`, add one on `b`. Right only when `b` waits
// for `a`.
__global__ void twice(float *p) { p[threadIdx.x] *= 2.0f; }

__global__ void plus_one(float *p) { p[threadIdx.x] += 1.0f; }

static int replay(cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    int bad = cudaStreamEndCapture(stream, &graph);
    bad |= cudaGraphInstantiate(&executable, graph, NULL, NULL, 0);
    bad |= cudaGraphDestroy(graph);
    bad |= cudaGraphLaunch(executable, stream);
    bad |= cudaGraphExecDestroy(executable);
    return bad;
}

static int two_streams(float *p, bool wait, bool graph) {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    float host[256];
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    cudaMemsetAsync(p, 0, 1024, a);
    cudaStreamSynchronize(a);
    int bad = 0;
    if (graph) {
        bad |= cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
    }
    plus_one<<<1, 256, 0, a>>>(p);
    twice<<<1, 256, 0, a>>>(p);
    if (wait) {
        bad |= cudaEventRecord(fork, a);
        bad |= cudaStreamWaitEvent(b, fork, 0);
    }
    plus_one<<<1, 256, 0, b>>>(p);
    if (wait) {
        bad |= cudaEventRecord(join, b);
        bad |= cudaStreamWaitEvent(a, join, 0);
    }
    if (graph) {
        bad |= replay(a);
    }
    bad |= cudaMemcpyAsync(host, p, 1024, cudaMemcpyDeviceToHost, a);
    bad |= cudaStreamSynchronize(a);
    bad |= cudaDeviceSynchronize();
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    return bad ? 3 : host[0] == 3.0f && host[255] == 3.0f ? 0 : 4;
}

// Calls that a capture forbids break it: the end of the capture has to report that.
static int broken_capture(float *p, int which) {
    cudaStream_t a;
    cudaGraph_t g = (cudaGraph_t)p;
    float host[4];
    void *q = NULL;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    plus_one<<<1, 256, 0, a>>>(p);
    cudaError_t inside = which == 0   ? cudaMalloc(&q, 16)
                         : which == 1 ? cudaStreamSynchronize(a)
                                      : cudaMemcpy(host, p, 16, cudaMemcpyDeviceToHost);
    cudaError_t end = cudaStreamEndCapture(a, &g);
    cudaStreamDestroy(a);
    return inside != cudaSuccess && end != cudaSuccess && g == NULL ? 0 : 4;
}

// Twice: the second run finds the counter as the first one left it.
static int last_block_twice(float *p, bool forgets) {
    int bad = 0;
    for (int run = 0; run < 2; run++) {
        bad |= cudaMemset(p, 0xFF, 128);  // NaN
        if (forgets) {
            last_forgets<<<4, 32, 0, 0>>>(p);
        } else {
            last_block<<<4, 32, 0, 0>>>(p);
        }
        bad |= cudaGetLastError();
    }
    float host[32];
    bad |= cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost);
    return bad ? 3 : host[0] == 130.0f && host[31] == 6.0f ? 0 : 4;
}

static int host_case(const char *name, float *p) {
    float host[256] = {0};
    cudaGetLastError();
    if (IS(host_pointer)) {
        shared_reverse<<<1, 256, 0, 0>>>(host);
        return cudaGetLastError() == cudaSuccess ? 0 : 3;
    }
    if (IS(freed_pointer)) {
        float *q = NULL;
        cudaMalloc(&q, 1024);
        cudaFree(q);
        shared_reverse<<<1, 256, 0, 0>>>(q);
        return cudaGetLastError() == cudaSuccess ? 0 : 3;
    }
    if (IS(host_reads_device)) {
        return p[0] == 1.0f;
    }
    if (IS(leak)) {
        float *q = NULL;
        return cudaMalloc(&q, 100) == cudaSuccess ? 0 : 3;
    }
    if (IS(copy_past_end)) {
        return cudaMemcpy(host, p + 250, 28, cudaMemcpyDeviceToHost) == cudaSuccess ? 0 : 3;
    }
    if (IS(copy_wrong_way)) {
        return cudaMemcpy(p, host, 28, cudaMemcpyDeviceToHost) == cudaSuccess ? 0 : 3;
    }
    if (IS(properties)) {
        cudaDeviceProp prop;
        int optin = 0;
        size_t available = 0, total = 0;
        cudaGetDeviceProperties(&prop, 0);
        cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
        cudaMemGetInfo(&available, &total);
        printf("cc %d.%d sm %d shared %d memory %zu\n", prop.major, prop.minor,
               prop.multiProcessorCount, optin, total >> 20);
        return 0;
    }
    if (IS(double_free)) {
        float *q = NULL;
        cudaMalloc(&q, 100);
        cudaFree(q);
        return cudaFree(q) == cudaSuccess ? 0 : 3;
    }
    if (IS(streams_wait)) {
        return two_streams(p, true, false);
    }
    if (IS(streams_forget)) {
        return two_streams(p, false, false);
    }
    if (IS(last_block) || IS(last_forgets)) {
        return last_block_twice(p, IS(last_forgets));
    }
    if (IS(graph_fork)) {
        return two_streams(p, true, true);
    }
    for (int i = 0; i < 3; i++) {
        if (strncmp(name, "broken_capture", 14) == 0 && name[14] == '0' + i) {
            return broken_capture(p, i);
        }
    }
    return -1;
}

// Status 3: a call failed, 4: a wrong or NaN result, 0: nothing noticed.
int main(int argc, char **argv) {
    float *p = NULL, host[256];
    const char *name = argc > 1 ? argv[1] : "";
    cudaError_t error = cudaMalloc(&p, sizeof host);
    if (error == cudaSuccess) {
        error = cudaMemset(p, 0, sizeof host);
    }
    if (error != cudaSuccess) {
        printf("%s\n", cudaGetErrorString(error));
        return 3;
    }
    int status = host_case(name, p);
    if (status < 0) {
        error = launch(name, p);
        status = error != cudaSuccess ? 3 : 0;
    }
    if (status == 0 && cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess) {
        status = 3;
    }
    double sum = 0;
    for (int i = 0; i < 256 && status == 0 && !IS(half_neighbours) && !IS(bytes_neighbours); i++) {
        sum += host[i];
    }
    printf("sum %g\n", sum);
    cudaFree(p);
    return status ? status : sum != sum ? 4 : 0;
}
