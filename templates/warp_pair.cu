//@key block  whether the block's form is wanted too
static __device__ __forceinline__ float2 warp_pair(float2 v) {  // sums of both, for every lane
    return make_float2(warp_sum(v.x), warp_sum(v.y));
}
//@if block

static __device__ __forceinline__ float2 block_pair(float2 v, float2 *part) {  // 256 threads
    v = warp_pair(v);
    if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int j = 1; j < 8; j++) {
        v.x += part[j].x;
        v.y += part[j].y;
    }
    return v;
}
//@end
