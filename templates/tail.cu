//@key parts  blocks share the terms of a tile
//@key rows   they share sums along its rows too
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

// PARTS blocks share the terms of a tile. Each leaves its sums, ROWS by RN a thread, in `parts`.
template <int PARTS, int ROWS, int RM, int RN>
static __device__ __forceinline__ void leave_part(const float (&acc)[RM][RN], float4 *parts) {
    const unsigned n = ROWS * RN / 4;
    float4 *const sums = parts + blockIdx.x * (n * 256u) + threadIdx.x;
#pragma unroll
    for (unsigned e = 0; e < n; e++) {
        float v[4];
#pragma unroll
        for (unsigned k = 0; k < 4u; k++) v[k] = acc[(4 * e + k) / RN][(4 * e + k) % RN];
        sums[e * 256u] = make_float4(v[0], v[1], v[2], v[3]);
    }
}

// The last to arrive adds them up in order, whichever it is itself.
template <int PARTS, int ROWS, int RM, int RN>
static __device__ __forceinline__ void add_parts(float (&acc)[RM][RN], const float4 *parts) {
    const unsigned part = blockIdx.x % PARTS, n = ROWS * RN / 4;
    const float4 *const sums = parts + blockIdx.x / PARTS * (PARTS * n * 256u) + threadIdx.x;
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
}
//@end
//@if rows

// Where the blocks that share a tile of LINES rows leave sums along these, behind all tiles' own
// sums, of N float4 a thread: two of each row and block.
template <int PARTS, int LINES, int N>
static __device__ __forceinline__ float *row_parts(float4 *parts) {
    float *const rows = reinterpret_cast<float *>(parts + gridDim.x * (N * 256u));
    return rows + blockIdx.x / PARTS * (PARTS * 2u * LINES);
}
template <int PARTS, int LINES>
static __device__ __forceinline__ float add_row(const float *rows, unsigned kind, unsigned line) {
    float s = 0.f;
#pragma unroll
    for (unsigned p = 0; p < PARTS; p++) s += __ldcg(&rows[(2 * p + kind) * LINES + line]);
    return s;
}
//@end
