//@key name    the kernel's name
//@key params  its parameters
//@key number  unsigned type that counts everything
//@key rows    rows
//@key warp    the warp's number: each is for one row
//@key block   threads a block
//@key index   the row's position, from id
//@key ahead   reads weights before the kernel before is over; empty: there are none
//@key phases  one pass over the row for each reduction, then the maps
static __global__ void __launch_bounds__($block) $name($params) {
    const unsigned lane = threadIdx.x % 32u;
    const $number id = $warp;
    //@if ahead
    $ahead;
    //@end
    await_previous(next_early);
    if (id >= $rows) return;
    $index;
    $phases;
}
