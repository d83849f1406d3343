//@key name    the kernel's name
//@key params  its parameters
//@key T       type of a tile's element
//@key number  unsigned type that counts tiles
//@key many    whether there is more than one tile
//@key int     type of positions
//@key index   positions of the dimensions that are not tiled, first positions fa and fb, from id
//@key a       position along the operand's innermost dimension
//@key b       position along the result's innermost dimension
//@key na      its extent
//@key nb      its extent
//@key before  statements that need no position in the tile
//@key load    statements for the operand's element
//@key value   the element
//@key middle  statements that need no position in the tile
//@key store   loads, the expression, the store
static __global__ void __launch_bounds__(256) $name($params) {
    __shared__ $T tile[32][33];
    //@if many
    const $number id = blockIdx.x;
    //@end
    await_previous(next_early);
    $index;
    $before;
#pragma unroll
    for (int j = 0; j < 32; j += 8) {
        const $int $b = fb + j + (int)threadIdx.y, $a = fa + (int)threadIdx.x;
        if ($b < $nb && $a < $na) {
            $load;
            tile[j + threadIdx.y][threadIdx.x] = $value;
        }
    }
    __syncthreads();
    $middle;
#pragma unroll
    for (int j = 0; j < 32; j += 8) {
        const $int $a = fa + j + (int)threadIdx.y, $b = fb + (int)threadIdx.x;
        if ($a < $na && $b < $nb) {
            $store;
        }
    }
}
