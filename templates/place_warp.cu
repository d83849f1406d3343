//@key name     the kernel's name
//@key params   its parameters
//@key number   unsigned type that counts everything
//@key outputs  output elements
//@key block    threads a block
//@key index    the output's position, from id
//@key before   statements that need no term
//@key pair     the type of a value and its place
//@key none     the pair that every other one is better than
//@key count    terms of the reduction
//@key terms    one term, from k: the position, loads, best
//@key after    statements of the epilogue
//@key store    the store
//@key warp     the warp's number: each is for one output
static __global__ void __launch_bounds__($block) $name($params) {
    const unsigned lane = threadIdx.x % 32u;
    const $number id = $warp;
    await_previous(next_early);
    if (id >= $outputs) return;
    $index;
    $before;
    $pair best = $none;
#pragma unroll 4
    for ($number k = lane; k < $count; k += 32u) {
        $terms;
    }
    best.take_warp();
    if (lane == 0u) {
        $after;
        $store;
    }
}
