//@key name      the kernel's name
//@key params    its parameters
//@key block     threads a block
//@key warps     warps a block
//@key rows      lines of the factor that has few
//@key columns   lines of the streamed factor that a thread multiplies with them
//@key lanes     threads that lie side by side along lines; the others share the terms
//@key along     whether there are such
//@key each      outputs of a block
//@key number    unsigned type that counts blocks and terms
//@key many      whether there is more than one block
//@key index     the batch's position and the first line n0 of the block, from id
//@key count     terms, in vectors
//@key start     this thread's first term
//@key stride    threads that share the terms
//@key sums      outputs of a thread
//@key position  of the thread's lines
//@key terms     one step from term k on: loads, acc
//@key first     lanes of a warp, that many apart, which add up to the same output
//@key one       whether this lane keeps what these sum up to
//@key output    number of a thread's sum e in the block
//@key result    position of the block's output e
//@key inside    whether it lies beside the result
//@key store     the epilogue and the store of v
// A block's threads take every term of its lines in turn, by vectors; a thread sums up its own
// terms for all of the few lines. Then lanes add up within a warp, and `part` has a row for each
// warp.
static __global__ void __launch_bounds__($block) $name($params) {
    __shared__ float part[$warps][$each];
    //@if along
    const unsigned lane = threadIdx.x % $lanes;
    //@end
    //@if many
    const $number id = blockIdx.x;
    //@end
    await_previous();
    $index;
    float acc[$rows][$columns] = {};
    {
        $position;
#pragma unroll 2
        for ($number k = $start; k < $count; k += $stride) {
            $terms;
        }
    }
#pragma unroll
    for (int e = 0; e < $sums; e++) {
        float v = acc[e / $columns][e % $columns];
#pragma unroll
        for (int d = $first; d < 32; d *= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
        if ($one) part[threadIdx.x / 32u][$output] = v;
    }
    __syncthreads();
#pragma unroll 1
    for (unsigned e = threadIdx.x; e < $each; e += $block) {
        $result;
        //@if inside
        if ($inside) continue;
        //@end
        float v = part[0][e];
#pragma unroll
        for (int j = 1; j < $warps; j++) v += part[j][e];
        $store;
    }
}
