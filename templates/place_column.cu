//@key name     the kernel's name
//@key params   its parameters
//@key number   unsigned type that counts everything
//@key outputs  output elements
//@key index    the output's position, from id
//@key before   statements that need no term
//@key pair     the type of a value and its place
//@key none     the pair that every other one is better than
//@key count    terms of the reduction
//@key terms    one term, from k: the position, loads, best
//@key after    statements of the epilogue
//@key store    the store
//@key block    number of the 32 outputs that this block works on
//@key start    this thread's first term
//@key stride   threads that share the terms
//@key parts    blocks that share the terms of an output; empty: one
static __global__ void __launch_bounds__(256) $name($params) {
    __shared__ $pair part[8][32];
    const $number column = $block * 32u + threadIdx.x;
    //@if index
    const $number id = column < $outputs ? column : $outputs - 1u;  // all load, some do not store
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
    part[threadIdx.y][threadIdx.x] = best;
    __syncthreads();
    //@if parts
    $pair *const all = reinterpret_cast<$pair *>(parts) + threadIdx.x;
    if (threadIdx.y == 0u) {
#pragma unroll
        for (int j = 1; j < 8; j++) {
            best.take(part[j][threadIdx.x].value, part[j][threadIdx.x].place);
        }
        all[blockIdx.x * 32u] = best;
    }
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    for (unsigned p = threadIdx.y; p < $parts; p += 8u) {
        const $pair *const other = &all[(blockIdx.x / $parts * $parts + p) * 32u];
        best.take(__ldcg(&other->value), __ldcg(&other->place));
    }
    part[threadIdx.y][threadIdx.x] = best;
    __syncthreads();
    //@end
    if (threadIdx.y == 0u && column < $outputs) {
#pragma unroll
        for (int j = 1; j < 8; j++) {
            best.take(part[j][threadIdx.x].value, part[j][threadIdx.x].place);
        }
        $after;
        $store;
    }
}
