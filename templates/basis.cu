//@key name       the kernel's name
//@key params     its parameters
//@key block      threads a block
//@key number     unsigned type that counts all threads
//@key threads    tiles
//@key index      this tile's position
//@key tile       the tile in registers: d[6][6]
//@key load       fills the tile
//@key transform  one axis after the other, in place
//@key store      the epilogue and the store of every element
static __global__ void __launch_bounds__($block) $name($params) {
    const $number id = ($number)blockIdx.x * $block + threadIdx.x;
    await_previous();
    if (id >= $threads) return;
    $index;
    float $tile;
    $load;
    $transform;
    $store;
}
