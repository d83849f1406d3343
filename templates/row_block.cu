//@key name    the kernel's name
//@key params  its parameters
//@key number  unsigned type that counts everything
//@key rows    rows: blocks
//@key parts   reductions
//@key block   threads a block
//@key warps   ... and warps
//@key index   the row's position, from id
//@key ahead   reads weights before the kernel before is over; empty: there are none
//@key phases  one pass over the row for each reduction, then the maps
static __global__ void __launch_bounds__($block) $name($params) {  // $rows blocks
    __shared__ float part[$parts][$warps];
    const unsigned lane = threadIdx.x;
    //@if index
    const $number id = blockIdx.x;
    //@end
    //@if ahead
    $ahead;
    //@end
    await_previous(next_early);
    //@if index
    $index;
    //@end
    $phases;
}
