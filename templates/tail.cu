//@key parts  blocks share the terms of a tile
// Whether this block is the last of n to arrive. What the others wrote before they arrived it may
// read (by __ldcg) then, and the counter is 0 again.
static __device__ __forceinline__ bool arrives_last(unsigned *arrived, unsigned n) {
    int last = 0;
    __syncthreads();
    if (threadIdx.x + threadIdx.y == 0u) {
        __threadfence();
        last = atomicInc(arrived, n - 1u) == n - 1u;
        __threadfence();
    }
    return __syncthreads_or(last) != 0;
}
//@if parts

// PARTS blocks share the terms of a tile, `share` each. All leave their sums, ROWS by RN a thread,
// in `parts`; the last to arrive (true) gets them added up in order, whichever it is itself.
template <int PARTS, int ROWS, bool ALONG_A, bool ALONG_B, int EARLY, typename TILE, typename A,
          typename B, int RM, int RN>
static __device__ __forceinline__ bool multiply_part(TILE &tile, unsigned terms, unsigned share,
                                                     A a, B b, float (&acc)[RM][RN], float4 *parts,
                                                     unsigned *arrived) {
    const unsigned part = blockIdx.x % PARTS, from = part * share, n = ROWS * RN / 4;
    tile.template multiply<ALONG_A, ALONG_B, EARLY>(from, min(from + share, terms), a, b, acc);
    float4 *const sums = parts + blockIdx.x / PARTS * (PARTS * n * 256u) + threadIdx.x;
#pragma unroll
    for (unsigned e = 0; e < n; e++) {
        float v[4];
#pragma unroll
        for (unsigned k = 0; k < 4u; k++) v[k] = acc[(4 * e + k) / RN][(4 * e + k) % RN];
        sums[(part * n + e) * 256u] = make_float4(v[0], v[1], v[2], v[3]);
    }
    if (!arrives_last(arrived + blockIdx.x / PARTS, PARTS)) return false;
#pragma unroll
    for (unsigned e = 0; e < n; e++) {
        float v[4] = {};
#pragma unroll
        for (unsigned p = 0; p < PARTS; p++) {
            float4 other = make_float4(0.f, 0.f, 0.f, 0.f);
            if (p != part) other = __ldcg(&sums[(p * n + e) * 256u]);
            const float w[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
            for (unsigned k = 0; k < 4u; k++)
                v[k] += p == part ? acc[(4 * e + k) / RN][(4 * e + k) % RN] : w[k];
        }
#pragma unroll
        for (unsigned k = 0; k < 4u; k++) acc[(4 * e + k) / RN][(4 * e + k) % RN] = v[k];
    }
    return true;
}
//@end
