//@key op     sum, prod, max or min
//@key join   v combined with other
//@key block  whether the block's form is wanted too
static __device__ __forceinline__ float warp_$op(float v) {  // every lane gets the result
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, d);
        $join;
    }
    return v;
}
//@if block

static __device__ __forceinline__ float block_$op(float v, float *part) {  // 256 threads, 8 words
    v = warp_$op(v);
    if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int j = 1; j < 8; j++) {
        const float other = part[j];
        $join;
    }
    return v;
}
//@end
