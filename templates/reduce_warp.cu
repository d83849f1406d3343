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
//@key whole     acc combined over the threads
//@key warp      the number of the lanes that share an output
//@key lanes     how many these are
//@key part      whether they are a part of a warp; those without an output repeat the last one
//@key other     acc of the lane at distance d
//@key stores    whether this lane stores their output
//@key join      acc combined with other
//@key guard     whether warps may have no output
//@key kind      of function: a kernel ...
//@key alone     ... or, empty, what warps call with their threads' numbers (stitch.cu, siblings.cu)
//@key split     statements that make lane and output of such a number
static $kind $name($params) {
    //@if alone
    const unsigned lane = threadIdx.x % $lanes;
    const $number id = $warp;
    await_previous(next_early);
    //@end
    //@if split
    $split;
    //@end
    //@if guard
    if (id >= $outputs) return;
    //@end
    $index;
    $before;
    $T acc = $identity;
#pragma unroll 4
    for ($number k = lane; k < $count; k += $lanes) {
        $terms;
    }
    //@if part
#pragma unroll
    for (unsigned d = $lanes / 2u; d > 0u; d /= 2u) {
        const $T other = $other;
        $join;
    }
    //@else
    acc = $whole;
    //@end
    if ($stores) {
        $after;
        $store;
    }
}
