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
//@key early     whether the streamed factor may be read before the kernel before is over
//@key count     terms, in vectors
//@key turn      of them the block takes so many at a time
//@key turns     whether there are more
//@key position  of the thread's lines
//@key type      of what a load of the streamed factor gives
//@key loads     that a thread has on their way
//@key stream    these loads, for terms from k0 on: w
//@key ahead     terms that they are of
//@key shares    terms whose few a lane fetches for its warp
//@key taken     terms of a warp
//@key some      whether lanes have nothing to fetch
//@key held      lines of the factor that has few, in fours
//@key pitch     between terms of these in shared memory
//@key groups    terms that a warp's lanes have side by side
//@key value     four of the streamed factor's numbers, of load u
//@key share     along lines: own[s][i] = what a lane fetches of term t for its warp
//@key terms     else: the terms of the loads, acc
//@key sums      outputs of a thread
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
    __shared__ __align__(16) float few[$warps][$taken][$pitch];
    const unsigned lane = threadIdx.x % $lanes, group = threadIdx.x % 32u / $lanes;
    //@end
    //@if many
    const $number id = blockIdx.x;
    //@end
    //@if early
    //@else
    await_previous(next_early);
    //@end
    $index;
    float acc[$rows][$columns] = {};
    {
        $position;
        //@if along
        const unsigned first = threadIdx.x / 32u * $taken + group;
        //@end
        //@if turns
#pragma unroll 1
        //@end
        for ($number k0 = 0; k0 < $count; k0 += $turn) {
            $type w[$loads];
            $stream;
            //@if early
            if (k0 == 0) await_previous(next_early);
            //@end
            //@if along
            // Lanes fetch the few for each other.
            float own[$shares][$held] = {};
#pragma unroll
            for (int s = 0; s < $shares; s++) {
                const unsigned t = threadIdx.x % 32u + 32u * s;
                //@if some
                if (t >= $taken) break;
                //@end
                $share;
            }
            //@end
            // Compilers would put loads behind multiplications; this way all are on their way.
            __syncwarp(~0u);
            //@if along
#pragma unroll
            for (int s = 0; s < $shares; s++) {
                const unsigned t = threadIdx.x % 32u + 32u * s;
                //@if some
                if (t >= $taken) break;
                    //@end
#pragma unroll
                for (int i = 0; i < $held; i += 4)
                    *reinterpret_cast<float4 *>(&few[threadIdx.x / 32u][t][i]) =
                        make_float4(own[s][i], own[s][i + 1], own[s][i + 2], own[s][i + 3]);
            }
            __syncwarp(~0u);
#pragma unroll
            for (int u = 0; u < $ahead; u++) {
                const float4 v = $value;
                const float *const term = few[threadIdx.x / 32u][u * $groups + group];
                float x[$held];
#pragma unroll
                for (int i = 0; i < $held; i += 4) {
                    const float4 four = *reinterpret_cast<const float4 *>(&term[i]);
                    x[i] = four.x;
                    x[i + 1] = four.y;
                    x[i + 2] = four.z;
                    x[i + 3] = four.w;
                }
#pragma unroll
                for (int i = 0; i < $rows; i++) {
                    acc[i][0] += v.x * x[i];
                    acc[i][1] += v.y * x[i];
                    acc[i][2] += v.z * x[i];
                    acc[i][3] += v.w * x[i];
                }
            }
            //@else
            $terms;
            //@end
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
