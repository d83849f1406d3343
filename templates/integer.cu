// Integers combined over a warp, or a block of 256 threads with 8 of part: every thread gets the
// result.
template <typename T, typename JOIN>
static __device__ __forceinline__ T warp_join(T v, JOIN join) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = join(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

template <typename T, typename JOIN>
static __device__ __forceinline__ T block_join(T v, T *part, JOIN join) {
    v = warp_join(v, join);
    if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int j = 1; j < 8; j++) v = join(v, part[j]);
    return v;
}
