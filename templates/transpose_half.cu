//@key name    the kernel's name
//@key params  its parameters
//@key number  unsigned type that counts tiles
//@key many    whether there is more than one tile
//@key int     type of positions
//@key index   positions of the dimensions that are not tiled, first positions fa and fb, from id
//@key a       position along the operand's innermost dimension
//@key b       position along the result's innermost dimension
//@key na      its extent, even
//@key nb      its extent, even
//@key from    the operand's element
//@key to      the result's element
//@key step    from there to its next one along a
// Halves by twos: a word has two neighbours.
static __global__ void __launch_bounds__(256) $name($params) {
    __shared__ unsigned tile[64][33];
    //@if many
    const $number id = blockIdx.x;
    //@end
    await_previous(next_early);
    $index;
#pragma unroll
    for (int j = 0; j < 64; j += 8) {
        const $int $b = fb + j + (int)threadIdx.y, $a = fa + (int)threadIdx.x * 2;
        if ($b < $nb && $a < $na)
            tile[j + threadIdx.y][threadIdx.x] = *reinterpret_cast<const unsigned *>($from);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 64; j += 16) {
        const $int $a = fa + j + (int)threadIdx.y * 2, $b = fb + (int)threadIdx.x * 2;
        if ($a < $na && $b < $nb) {
            const unsigned p = tile[threadIdx.x * 2u][j / 2 + threadIdx.y];
            const unsigned q = tile[threadIdx.x * 2u + 1u][j / 2 + threadIdx.y];
            *reinterpret_cast<unsigned *>($to) = (p & 0xffffu) | q << 16;
            *reinterpret_cast<unsigned *>($to + $step) = p >> 16 | (q & 0xffff0000u);
        }
    }
}
