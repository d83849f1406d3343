// A product of a warpgroup as the PTX manual wants it, of halves in steps that are copied ahead:
// d[64][64] = a[64][k] b[64][k]^T. tests/frame/test_ptx.sh has it interpreted, and plants faults.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>

enum { LINES = 64, STEP = 64, STEPS = 4, TERMS = STEPS * STEP, ROOM = 2 * LINES * STEP };

// Where 16 bytes `chunk` of a line lie in a step.
static __device__ unsigned place(unsigned line, unsigned chunk) {
    return (line * 8u + (chunk ^ line % 8u)) * 16u;
}

static __global__ void __launch_bounds__(128) multiply(const __half *a, const __half *b, float *d) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char steps[];
    __shared__ float scale[1];
    const unsigned t = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(steps);
    float c[32];
    const auto copy = [&](unsigned step) {
        for (unsigned e = t; step < STEPS && e < 2u * LINES * 8u; e += 128u) {
            const unsigned line = e / 8u % LINES, chunk = e % 8u, second = e / (8u * LINES);
            const __half *const from = (second ? b : a) + line * TERMS + step * STEP + chunk * 8u;
            const unsigned to = at + step % 2u * ROOM * 2u + second * (LINES * STEP * 2u);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + place(line, chunk)),
                         "l"(from)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    if (t == 0) scale[0] = d[0];
    for (int i = 0; i < 32; i++) c[i] = 0.f;
    copy(0);
#pragma unroll 1
    for (unsigned step = 0; step < STEPS; step++) {
        copy(step + 1);
        asm volatile(
            "cp.async.wait_group 1;\n"
            "fence.proxy.async.shared::cta;\n" ::
                : "memory");
        __syncthreads();
        for (int i = 0; i < 32; i++) asm volatile("" : "+f"(c[i]));
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (unsigned k = 0; k < STEP / 16; k++) {
            const unsigned long long kind = 1ull << 62 | 64ull << 32,
                                     from = (at + step % 2u * ROOM * 2u + k * 32u) >> 4;
            asm volatile(
                "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, "
                "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
                "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]),
                  "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
                  "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]),
                  "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
                  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
                  "+f"(c[30]), "+f"(c[31])
                : "l"(kind | from), "l"(kind | (from + LINES * STEP * 2 / 16)));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // Spelt so that it can be told from the other one.
        asm volatile("barrier.sync.aligned 0;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    for (int i = 0; i < 32; i++) {
        const unsigned row = t / 32u * 16u + t % 32u / 4u + i % 4 / 2 * 8,
                       column = i / 4 * 8 + t % 4u * 2u + i % 2;
        d[row * LINES + column] = c[i] * scale[0];
    }
#else
    (void)a, (void)b, (void)d;
#endif
}

static float value(int i) { return (float)(i * 37 % 61 - 30); }

// Status 3: a call failed, 4: a wrong result.
int main() {
    static __half host[2][LINES * TERMS];
    static float got[LINES * LINES];
    __half *factor[2];
    float *d;
    bool bad = false;
    for (int f = 0; f < 2; f++) {
        for (int i = 0; i < LINES * TERMS; i++) host[f][i] = __float2half(value(i + 7 * f));
        if (cudaMalloc(&factor[f], sizeof host[f])) return 3;
        cudaMemcpy(factor[f], host[f], sizeof host[f], cudaMemcpyHostToDevice);
    }
    if (cudaMalloc(&d, sizeof got)) return 3;
    got[0] = 0.5f;
    cudaMemcpy(d, got, sizeof got, cudaMemcpyHostToDevice);
    const dim3 grid(1), block(128);
    multiply<<<grid, block, 2 * ROOM * 2, 0>>>(factor[0], factor[1], d);
    if (cudaDeviceSynchronize()) return 3;
    cudaMemcpy(got, d, sizeof got, cudaMemcpyDeviceToHost);
    for (int e = 0; e < LINES * LINES; e++) {
        float want = 0;
        for (int k = 0; k < TERMS; k++)
            want += value(e / LINES * TERMS + k) * value(e % LINES * TERMS + k + 7);
        bad = bad || got[e] != want * 0.5f;
    }
    cudaFree(factor[0]);
    cudaFree(factor[1]);
    cudaFree(d);
    return bad ? 4 : 0;
}
