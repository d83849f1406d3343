//@key name     the kernel's name
//@key params   its parameters
//@key number   unsigned type that counts everything
//@key outputs  output elements, times the blocks of each: blocks
//@key index    the output's position, from id
//@key before   statements that need no term
//@key pair     the type of a value and its place
//@key none     the pair that every other one is better than
//@key count    terms of the reduction
//@key terms    one term, from k: the position, loads, best
//@key after    statements of the epilogue
//@key store    the store
//@key block    number of the output that this block works on
//@key start    this thread's first term
//@key stride   threads that share the terms
//@key parts    blocks that share the terms of an output; empty: one
static __global__ void __launch_bounds__(256) $name($params) {  // $outputs blocks
    __shared__ $pair part[8];
    //@if index
    const $number id = $block;
    //@end
    await_previous(next_early);
    //@if index
    $index;
    //@end
    $before;
    $pair best = $none;
#pragma unroll 4
    for ($number k = $start; k < $count; k += $stride) {
        $terms;
    }
    best.take_block(part);
    //@if parts
    $pair *const all = reinterpret_cast<$pair *>(parts);
    if (threadIdx.x == 0u) all[blockIdx.x] = best;
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    if (threadIdx.x < $parts) {
        const $pair *const other = &all[blockIdx.x / $parts * $parts + threadIdx.x];
        best.take(__ldcg(&other->value), __ldcg(&other->place));
    }
    best.take_block(part);
    //@end
    if (threadIdx.x == 0u) {
        $after;
        $store;
    }
}
