//@key name      the kernel's name
//@key params    its parameters
//@key number    unsigned type that counts everything
//@key outputs   output elements: blocks
//@key index     the output's position, from id
//@key before    statements that need no term
//@key identity  of the reduction
//@key count     terms of the reduction
//@key terms     one term, from k: the position, loads, acc
//@key after     statements of the epilogue
//@key store     the store
//@key T         what is added up in
//@key whole     acc combined over the threads
//@key block     number of the output that this block works on
//@key start     this thread's first term
//@key stride    threads that share the terms
//@key parts     blocks that share the terms of an output; empty: one
//@key load      the sum of one of them
static __global__ void __launch_bounds__(256) $name($params) {  // $outputs blocks
    __shared__ $T part[8];
    //@if index
    const $number id = $block;
    //@end
    await_previous(next_early);
    //@if index
    $index;
    //@end
    $before;
    $T acc = $identity;
#pragma unroll 4
    for ($number k = $start; k < $count; k += $stride) {
        $terms;
    }
    acc = $whole;
    //@if parts
    $T *const sums = reinterpret_cast<$T *>(parts);
    if (threadIdx.x == 0u) sums[blockIdx.x] = acc;
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    acc = $identity;
    if (threadIdx.x < $parts) acc = $load;
    acc = $whole;
    //@end
    if (threadIdx.x == 0u) {
        $after;
        $store;
    }
}
