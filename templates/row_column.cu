//@key name    the kernel's name
//@key params  its parameters
//@key number  unsigned type that counts everything
//@key lanes   rows of a block, side by side in memory
//@key column  the number of the thread's row
//@key row     ... or of the last row, if there are fewer
//@key parts   reductions
//@key index   the row's position, from id
//@key phases  one pass over the row for each reduction, then the maps
static __global__ void __launch_bounds__(256) $name($params) {
    __shared__ float part[$parts][8][$lanes];
    const unsigned lane = threadIdx.x / $lanes;
    const $number column = $column;
    const $number id = $row;
    await_previous(next_early);
    $index;
    $phases;
}
