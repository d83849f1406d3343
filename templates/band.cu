//@key name    the kernel's name
//@key params  its parameters
//@key RM      rows a thread
//@key RN      columns a thread
//@key KC      terms a step
//@key number  unsigned type that counts blocks
//@key many    whether there is more than one block
//@key index   the batch's position, first row m0 and first column c0 of the tile, from id
//@key terms   terms of the reduction, for one tile
//@key rowA    row of the first operand's element e
//@key termA   term of the first operand's element e
//@key loadA   statements, then as[k][row] = its value
//@key colB    column of the second operand's element e
//@key termB   term of the second operand's element e
//@key loadB   statements, then bs[k][col] = its value
//@key inside  whether (row, col) is an element of the result
//@key store   the result's position, the epilogue, the store
static __global__ void __launch_bounds__(256) $name($params) {
    const int RM = $RM, RN = $RN, KC = $KC;
    __shared__ __align__(16) float as[KC][16 * RM + 4];
    __shared__ __align__(16) float bs[KC][16 * RN + 4];
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    //@if many
    const $number id = blockIdx.x;
    //@end
    await_previous(next_early);
    $index;
    float acc[RM][RN];
#pragma unroll
    for (int i = 0; i < RM; i++) {
#pragma unroll
        for (int j = 0; j < RN; j++) acc[i][j] = 0.f;
    }
    for (int k0 = 0; k0 < $terms; k0 += KC) {
#pragma unroll
        for (int e = (int)threadIdx.x; e < 16 * RM * KC; e += 256) {
            const int row = $rowA, k = $termA;
            $loadA;
        }
#pragma unroll
        for (int e = (int)threadIdx.x; e < 16 * RN * KC; e += 256) {
            const int col = $colB, k = $termB;
            $loadB;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KC; k++) {
            float a[RM], b[RN];
#pragma unroll
            for (int i = 0; i < RM; i++) a[i] = as[k][ty * RM + i];
#pragma unroll
            for (int j = 0; j < RN; j++) b[j] = bs[k][tx + 16 * j];
#pragma unroll
            for (int i = 0; i < RM; i++) {
#pragma unroll
                for (int j = 0; j < RN; j++) acc[i][j] += a[i] * b[j];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < RM; i++) {
#pragma unroll
        for (int j = 0; j < RN; j++) {
            const int row = ty * RM + i, col = tx + 16 * j;
            if ($inside) {
                $store;
            }
        }
    }
}
