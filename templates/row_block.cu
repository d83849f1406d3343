//@key name    the kernel's name
//@key params  its parameters
//@key number  unsigned type that counts everything
//@key rows    rows: blocks
//@key parts   reductions
//@key index   the row's position, from id
//@key phases  one pass over the row for each reduction, then the maps
static __global__ void __launch_bounds__(256) $name($params) {  // $rows blocks
    __shared__ float part[$parts][8];
    const unsigned lane = threadIdx.x;
    //@if index
    const $number id = blockIdx.x;
    //@end
    await_previous();
    //@if index
    $index;
    //@end
    $phases;
}
