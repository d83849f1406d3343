//@key parts  blocks share the terms of a tile
// Whether this block is the last of n to arrive. What the others wrote before they arrived it may
// read (by __ldcg) then, and the counter is 0 again.
static __device__ __forceinline__ bool arrives_last(unsigned *arrived, unsigned n) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0u) {
        __threadfence();
        last = atomicInc(arrived, n - 1u) == n - 1u;
        __threadfence();
    }
    __syncthreads();
    return last;
}
//@if parts

// PARTS blocks share the terms of a tile. Each leaves its sums, ROWS by RN a thread, in `parts`;
// the last to arrive gets all of them added up in the order of the parts, whichever it is itself.
template <int PARTS, int ROWS, int RM, int RN>
static __device__ __forceinline__ bool sum_parts(float (&acc)[RM][RN], unsigned part, unsigned tile,
                                                 float4 *parts, unsigned *arrived) {
    const int n = ROWS * RN / 4;
    float4 *const sums = parts + tile * (PARTS * n * 256u) + threadIdx.x;
#pragma unroll
    for (int e = 0; e < n; e++) {
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = acc[(4 * e + k) / RN][(4 * e + k) % RN];
        sums[(part * n + e) * 256u] = make_float4(v[0], v[1], v[2], v[3]);
    }
    if (!arrives_last(arrived + tile, PARTS)) return false;
#pragma unroll
    for (int e = 0; e < n; e++) {
        float sum[4] = {};
#pragma unroll
        for (unsigned p = 0; p < PARTS; p++) {
            float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
            if (p != part) v = __ldcg(&sums[(p * n + e) * 256u]);
            const float other[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[k] += p == part ? acc[(4 * e + k) / RN][(4 * e + k) % RN] : other[k];
        }
#pragma unroll
        for (int k = 0; k < 4; k++) acc[(4 * e + k) / RN][(4 * e + k) % RN] = sum[k];
    }
    return true;
}
//@end
