//@key word   how many sums there are
//@key type   what holds them
//@key each   those of v, each over the warp
//@key add    to those of v what row j of part has
//@key all    of them, as a word
//@key block  whether the block's form is wanted too
static __device__ __forceinline__ $type warp_$word($type v) {  // sums of $all, for every lane
    return $each;
}
//@if block

static __device__ __forceinline__ $type block_$word($type v, $type *part) {  // 256 threads
    v = warp_$word(v);
    if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int j = 1; j < 8; j++) {
        $add;
    }
    return v;
}
//@end
