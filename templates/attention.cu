//@key name    the kernel's name
//@key params  its parameters
//@key RM      rows a thread
//@key RN      keys a thread
//@key RC      columns a thread
//@key VC      neighbours among them
//@key KC      depth of a part of the keys
//@key KV      keys of a part of the values
//@key depth   of a query and a key, filled up with zeros to a multiple of KC
//@key part    floats of the larger kind of part
//@key product  whether scores are made of a product; else the first of all parts are left out
//@key number  unsigned type that counts blocks
//@key many    whether there is more than one block
//@key parts   blocks that share the keys of a tile; empty: one
//@key tile    number of the block's tile
//@key shares  the first of the keys that the block takes, or how many, where that takes statements
//@key first   the first key that the block takes
//@key goes    whether there are more of them
//@key step    makes u0 the first key of the next turn
//@key lines   rows of a tile that there are, which parts have
//@key joined  what all parts of the tile have for a row's four columns from `at` on
//@key index   the batch's position and the tile's first row m0, from id
//@key queries  elements to load, or vectors of them
//@key queryRow  row of element e
//@key queryAt   its place in the row
//@key loadQuery  statements, then query[row][k] = its value
//@key stop    whether no row of the tile attends to a key of the turn; empty: it does
//@key masked  statements, then masked = the power of two that those keys have
//@key absent    whether all keys of the turn are 0; empty: no turn's are
//@key keysFrom  the depth's first place that a turn multiplies
//@key valuesFrom  the turn's first key whose value it does
//@key keySteps  elements of a part of the keys, or vectors of them, that a thread loads
//@key keyType   type of one
//@key keyPlace  statements: key and place k in it of the thread's element i
//@key loadKey   statements, then own[i] = its value
//@key putKey    part[key * (KC + 4) + k] = own[i]
//@key score   statements, then x = the score, by a factor, from s[i][j]; -inf: no such key
//@key unit    of a score: makes a power of two of it (softmax.cu); `most` is a row's largest one
//@key gate    statements, then weight[row][tx + 16 * j] = 0 where it is left out; empty: none is
//@key valueSteps  elements of a part of the values, or vectors of them, that a thread loads
//@key valueType   type of one
//@key valuePlace  statements: key and column col of the thread's element i
//@key loadValue   statements, then own[i] = its value
//@key putValue    part[key * 16 * RC + col] = own[i]
//@key soft    whether weights are a softmax of scores; else they are scores
//@key none    the score of a key that a row does not have
//@key added   what the sum of the weights adds up: x, or its absolute value
//@key partTop  the largest score of row i in a part
//@key sum     whether the result is divided by the sum of the weights
//@key store   where (row, col) is an element of the result: its position, its value, the store
// A block has 8 * RM rows and takes 16 * RN of their keys at a time: a thread has RM rows and the
// scores of RN keys, then RC columns of the result, VC of them side by side. Of the keys KC
// elements are in shared memory at once, of the values those of KV keys. One block a multiprocessor
// is enough: registers are not to be spilled for the sake of more.
static __global__ void __launch_bounds__(128, 1) $name($params) {
    const int RM = $RM, RN = $RN, RC = $RC, VC = $VC, KV = $KV;
    //@if product
    const int KC = $KC, depth = $depth;
    __shared__ __align__(16) float query[8 * RM][depth + 4];
    //@end
    // part: a part of the tile's keys, then of its values
    __shared__ __align__(16) float part[$part];
    __shared__ __align__(16) float weight[8 * RM][16 * RN + 4];
    // Neighbouring threads have neighbouring rows, so that shared memory answers a warp that reads
    // four words a thread in two cycles, not four.
    const int tx = (int)threadIdx.x / 2 % 16, ty = (int)threadIdx.x / 32 * 2 + (int)threadIdx.x % 2;
    //@if many
    const $number id = $tile;
    //@end
    await_previous(next_early);
    $index;
    //@if shares
    $shares;
    //@end
    //@if product
    for (int e = (int)threadIdx.x; e < $queries; e += 128) {
        const int row = $queryRow, k = $queryAt;
        $loadQuery;
    }
    //@end
    float acc[RM][RC];
    //@if soft
    float top[RM];
    //@end
    //@if sum
    float sum[RM];
    //@end
#pragma unroll
    for (int i = 0; i < RM; i++) {
        //@if soft
        top[i] = NO_KEY;
        //@end
        //@if sum
        sum[i] = 0.f;
        //@end
#pragma unroll
        for (int c = 0; c < RC; c++) acc[i][c] = 0.f;
    }
    for (int u0 = $first; $goes; $step) {
        //@if stop
        if ($stop) {
            //@if soft
            $masked;
            bool more = false;  // a weight that is not 0
#pragma unroll
            for (int i = 0; i < RM; i++) more |= !(weight_of(masked, top[i]) == 0.f);
            if (!__syncthreads_or(more)) break;
            //@else
            break;
            //@end
        }
        //@end
        float s[RM][RN];
        //@if product
#pragma unroll
        for (int i = 0; i < RM; i++) {
#pragma unroll
            for (int j = 0; j < RN; j++) s[i][j] = 0.f;
        }
        //@if absent
        const bool absent = $absent;
        if (absent) __syncthreads();  // weights of the keys before are still read
        //@end
        for (int k0 = $keysFrom; k0 < depth; k0 += KC) {
            $keyType own[$keySteps];
#pragma unroll
            for (int i = 0; i < $keySteps; i++) {
                $keyPlace;
                $loadKey;
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < $keySteps; i++) {
                $keyPlace;
                $putKey;
            }
            __syncthreads();
#pragma unroll 2
            for (int k = 0; k < KC; k += 4) {
                float4 b[RN];
#pragma unroll
                for (int j = 0; j < RN; j++)
                    b[j] = *reinterpret_cast<const float4 *>(&part[(tx + 16 * j) * (KC + 4) + k]);
#pragma unroll
                for (int i = 0; i < RM; i++) {
                    const float4 a = *reinterpret_cast<const float4 *>(&query[ty + 8 * i][k0 + k]);
#pragma unroll
                    for (int j = 0; j < RN; j++)
                        s[i][j] = a.x * b[j].x +
                                  (a.y * b[j].y + (a.z * b[j].z + (a.w * b[j].w + s[i][j])));
                }
            }
        }
        //@else
        // Weights of the keys before are still read.
        __syncthreads();
        //@end
        //@if soft
        // Weights relative to the largest score so far, and what was summed up before scaled.
#pragma unroll
        for (int i = 0; i < RM; i++) {
            const int row = ty + 8 * i;
            float most = -INFINITY;
#pragma unroll
            for (int j = 0; j < RN; j++) {
                float x = $none;
                $score;
                s[i][j] = x;
                most = fmaxf(most, x);
            }
#pragma unroll
            for (int d = 16; d > 1; d /= 2)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
            const float unit = $unit, now = fmaxf(top[i], most * unit);
            const float before = weight_of(top[i], now);
            top[i] = now;
#pragma unroll
            for (int c = 0; c < RC; c++) acc[i][c] *= before;
            //@if sum
            sum[i] *= before;
            //@end
#pragma unroll
            for (int j = 0; j < RN; j++) {
                const float w = weight_of(s[i][j] * unit, now);
                weight[row][tx + 16 * j] = w;
                //@if sum
                sum[i] += w;
                //@end
                //@if gate
                $gate;
                //@end
            }
        }
        //@else
#pragma unroll
        for (int i = 0; i < RM; i++) {
            const int row = ty + 8 * i;
#pragma unroll
            for (int j = 0; j < RN; j++) {
                float x = $none;
                $score;
                weight[row][tx + 16 * j] = x;
                //@if sum
                sum[i] += $added;
                //@end
            }
        }
        //@end
        for (int k0 = $valuesFrom; k0 < 16 * RN; k0 += KV) {
            $valueType own[$valueSteps];
#pragma unroll
            for (int i = 0; i < $valueSteps; i++) {
                $valuePlace;
                $loadValue;
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < $valueSteps; i++) {
                $valuePlace;
                $putValue;
            }
            __syncthreads();
#pragma unroll 2
            for (int k = 0; k < KV; k += 4) {
                float4 a[RM];
#pragma unroll
                for (int i = 0; i < RM; i++)
                    a[i] = *reinterpret_cast<const float4 *>(&weight[ty + 8 * i][k0 + k]);
#pragma unroll
                for (int c = 0; c < RC; c++) {
                    const float *b = part + k * 16 * RC + c / VC * 16 * VC + tx * VC + c % VC;
#pragma unroll
                    for (int i = 0; i < RM; i++)
                        acc[i][c] = a[i].x * b[0] +
                                    (a[i].y * b[16 * RC] +
                                     (a[i].z * b[32 * RC] + (a[i].w * b[48 * RC] + acc[i][c])));
                }
            }
        }
    }
    //@if sum
#pragma unroll
    for (int i = 0; i < RM; i++) {
#pragma unroll
        for (int d = 16; d > 1; d /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
    }
    //@end
    //@if parts
    typedef key_part<$lines, 16 * RC> block_part;
    block_part *const left = reinterpret_cast<block_part *>(parts);
#pragma unroll
    for (int i = 0; i < RM; i++) {
        const int row = ty + 8 * i;
        if (row >= $lines) continue;
#pragma unroll
        for (int c = 0; c < RC; c++)
            left[blockIdx.x].acc[row][c / VC * 16 * VC + tx * VC + c % VC] = acc[i][c];
        if (tx > 0) continue;
        left[blockIdx.x].top[row] = $partTop;
        left[blockIdx.x].sum[row] = sum[i];
    }
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    for (int e = (int)threadIdx.x; e < $lines * 4 * RC; e += 128) {
        const int row = e / (4 * RC), at = e % (4 * RC) * 4;
        const joined_keys all = $joined;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int col = at + c;
            $store;
        }
    }
    //@else
#pragma unroll
    for (int i = 0; i < RM; i++) {
        const int row = ty + 8 * i;
#pragma unroll
        for (int c = 0; c < RC; c++) {
            const int col = c / VC * 16 * VC + tx * VC + c % VC;
            $store;
        }
    }
    //@end
}
