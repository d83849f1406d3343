//@key name      the kernel's name
//@key params    its parameters
//@key number    unsigned type that counts everything
//@key outputs   output elements: blocks
//@key index     the output's position, from id
//@key before    statements that need no term
//@key identity  of the reduction
//@key count     terms of the reduction
//@key terms     one term, from k: the position, loads, acc
//@key after     statements of the epilogue
//@key store     the store
//@key op        the reduction
static __global__ void __launch_bounds__(256) $name($params) {  // $outputs blocks
    __shared__ float part[8];
    //@if index
    const $number id = blockIdx.x;
    //@end
    await_previous();
    //@if index
    $index;
    //@end
    $before;
    float acc = $identity;
#pragma unroll 4
    for ($number k = threadIdx.x; k < $count; k += 256u) {
        $terms;
    }
    acc = block_$op(acc, part);
    if (threadIdx.x == 0u) {
        $after;
        $store;
    }
}
