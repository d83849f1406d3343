//@key op      sum, prod, max or min
//@key join    v combined with other
//@key warp    whether the warp's form is wanted
//@key block   whether the block's form is wanted too
//@key column  whether that of a block with many rows is
//@if warp
static __device__ __forceinline__ float warp_$op(float v) {  // every lane gets the result
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, d);
        $join;
    }
    return v;
}
//@end
//@if block

template <int WARPS>
static __device__ __forceinline__ float block_$op(float v, float (&part)[WARPS]) {
    v = warp_$op(v);
    if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = v;
    __syncthreads();
    if (WARPS == 32) return warp_$op(part[threadIdx.x % 32u]);
    v = part[0];
#pragma unroll
    for (int j = 1; j < WARPS; j++) {
        const float other = part[j];
        $join;
    }
    return v;
}
//@end
//@if column

// Of 256 threads those share a row that have one place among ROWS neighbours.
template <unsigned ROWS>
static __device__ __forceinline__ float column_$op(float v, float (*part)[ROWS]) {
    const unsigned place = threadIdx.x % ROWS;
#pragma unroll
    for (unsigned d = 16u; d >= ROWS; d /= 2u) {
        const float other = __shfl_xor_sync(0xffffffffu, v, d);
        $join;
    }
    if (threadIdx.x % 32u < ROWS) part[threadIdx.x / 32u][place] = v;
    __syncthreads();
    v = part[0][place];
#pragma unroll
    for (int j = 1; j < 8; j++) {
        const float other = part[j][place];
        $join;
    }
    return v;
}
//@end
