//@key name      the kernel's name
//@key params    its parameters
//@key number    unsigned type that counts everything
//@key outputs   output elements
//@key index     the output's position, from id
//@key before    statements that need no term
//@key identity  of the reduction
//@key count     terms of the reduction
//@key terms     one term, from k: the position, loads, acc
//@key after     statements of the epilogue
//@key store     the store
//@key T         what is added up in
//@key join      acc combined with row j's
//@key block     number of the 32 outputs that this block works on
//@key start     this thread's first term
//@key stride    threads that share the terms
//@key ahead     terms of a thread whose loads are on their way together
//@key parts     blocks that share the terms of an output; empty: one
//@key load      the sum of one of them
//@key add       acc combined with other
static __global__ void __launch_bounds__(256) $name($params) {
    __shared__ $T part[8][32];
    const $number column = $block * 32u + threadIdx.x;
    //@if index
    const $number id = column < $outputs ? column : $outputs - 1u;  // all load, some do not store
    //@end
    await_previous(next_early);
    //@if index
    $index;
    //@end
    $before;
    $T acc = $identity;
    const int ahead = $ahead;
    (void)ahead;  // where pragmas are not known
#pragma unroll ahead
    for ($number k = $start; k < $count; k += $stride) {
        $terms;
    }
    part[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    //@if parts
    $T *const sums = reinterpret_cast<$T *>(parts) + threadIdx.x;
    if (threadIdx.y == 0u) {
#pragma unroll
        for (int j = 1; j < 8; j++) {
            $join;
        }
        sums[blockIdx.x * 32u] = acc;
    }
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    acc = $identity;
    for (unsigned p = threadIdx.y; p < $parts; p += 8u) {
        const $T other = $load;
        $add;
    }
    part[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    //@end
    if (threadIdx.y == 0u && column < $outputs) {
#pragma unroll
        for (int j = 1; j < 8; j++) {
            $join;
        }
        $after;
        $store;
    }
}
