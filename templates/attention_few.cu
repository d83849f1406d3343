//@key name    the kernel's name
//@key params  its parameters
//@key ROWS    rows of a tile
//@key L       lanes that share a key
//@key J       keys that they take at a time
//@key KE      elements of a key that a lane has
//@key KW      neighbours among them
//@key cols    columns, filled up to those of all lanes
//@key VE      columns that a lane has
//@key VW      neighbours among them
//@key depth   of a query and a key, filled up to the elements of all lanes
//@key product  whether scores are made of a product; else the first factor is left out
//@key number  unsigned type that counts tiles
//@key many    whether there is more than one tile
//@key tile    number of the block's tile
//@key index   the batch's position and the tile's first row m0, from id
//@key parts   blocks that share the keys of a tile; empty: one
//@key shares  the first of the keys that the block takes, or how many, where that takes statements
//@key first   the first key that the block takes
//@key goes    whether there are more of them
//@key step    makes u0 the first key of the next turn
//@key queries  elements to load, or vectors of them
//@key queryRow  row of element e
//@key queryAt   its place in the row
//@key loadQuery  statements, then query[row][k] = its value
//@key stop    whether no row of the tile attends to a key of the turn; empty: it does
//@key masked  statements, then masked = the power of two that those keys have
//@key keyType   type of what a lane loads of a key at once
//@key loadKey   statements, then keys[i] = elements from k on of a key
//@key score   statements, then x = the score, by a factor, from s[row][j]; -inf: no such key
//@key unit    of a score: makes a power of two of it (softmax.cu); `most` is a row's largest one
//@key gate    statements, then s[row][j] = 0 where that weight is left out; empty: none is
//@key soft    whether weights are a softmax of scores; else they are scores
//@key none    the score of a key that a row does not have
//@key added   what the sum of the weights adds up: x, or its absolute value
//@key start   the largest score of a row before any key
//@key valueType   type of what a lane loads of a value at once
//@key loadValue   statements, then values[i] = columns from col on of a key's value
//@key lines   rows of a tile that there are
//@key joined  what all warps, or all parts of the tile, have for a row's four columns from `at` on
//@key store   where (row, col) is an element of the result: its position, its value, the store
// Few rows: each L lanes have an online softmax of their own over keys of their own, of which they
// load 16 bytes a lane where those lie together, J keys at a time; warps meet when all keys are
// done.
static __global__ void __launch_bounds__(256) $name($params) {
    const int ROWS = $ROWS, L = $L, J = $J, VE = $VE, VW = $VW, cols = $cols;
    const int GROUPS = 256 / L;
    typedef key_part<ROWS, cols> block_part;
    __shared__ block_part warps[8];
    const int lane = (int)threadIdx.x % L, group = (int)threadIdx.x / L;
    //@if many
    const $number id = $tile;
    //@end
    await_previous(next_early);
    $index;
    //@if shares
    $shares;
    //@end
    //@if product
    const int KE = $KE, KW = $KW, depth = $depth;
    __shared__ __align__(16) float query[ROWS][depth];
    for (int e = (int)threadIdx.x; e < $queries; e += 256) {
        const int row = $queryRow, k = $queryAt;
        $loadQuery;
    }
    __syncthreads();
    float q[ROWS][KE];
#pragma unroll
    for (int row = 0; row < ROWS; row++)
#pragma unroll
        for (int e = 0; e < KE; e++) q[row][e] = query[row][(lane + L * (e / KW)) * KW + e % KW];
    //@end
    float top[ROWS], sum[ROWS], acc[ROWS][VE];
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        top[row] = $start;
        sum[row] = 0.f;
#pragma unroll
        for (int c = 0; c < VE; c++) acc[row][c] = 0.f;
    }
    for (int u0 = $first; $goes; $step) {
        //@if stop
        if ($stop) {
            //@if soft
            $masked;
            bool more = false;  // a weight that is not 0, of a row whatever lanes have its keys
#pragma unroll
            for (int row = 0; row < ROWS; row++)
                more |= !__syncthreads_or(weight_of(masked, top[row]) == 0.f);
            if (!more) break;
            //@else
            break;
            //@end
        }
        //@end
        $valueType values[J * VE / VW];
#pragma unroll
        for (int i = 0; i < J * VE / VW; i++) {
            const int key = group + GROUPS * (i / (VE / VW));
            const int col = (lane + L * (i % (VE / VW))) * VW;
            $loadValue;
        }
        // Compilers would put loads of values behind the scores; this way all are on their way.
        __syncwarp(~0u);
        //@if product
        $keyType keys[J * KE / KW];
#pragma unroll
        for (int i = 0; i < J * KE / KW; i++) {
            const int key = group + GROUPS * (i / (KE / KW)), k = (lane + L * (i % (KE / KW))) * KW;
            $loadKey;
        }
        //@end
        float s[ROWS][J];
        //@if product
#pragma unroll
        for (int j = 0; j < J; j++) {
            float k[KE];
#pragma unroll
            for (int e = 0; e < KE / KW; e++) spread_keys::to(&k[e * KW], keys[j * (KE / KW) + e]);
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                s[row][j] = 0.f;
#pragma unroll
                for (int e = 0; e < KE; e++) s[row][j] += q[row][e] * k[e];
#pragma unroll
                for (int d = L / 2; d > 0; d /= 2)
                    s[row][j] += __shfl_xor_sync(0xffffffffu, s[row][j], d);
            }
        }
        //@end
        //@if soft
        // Weights relative to the largest score so far, and what was summed up before scaled.
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            float most = -INFINITY;
#pragma unroll
            for (int j = 0; j < J; j++) {
                float x = $none;
                $score;
                s[row][j] = x;
                most = fmaxf(most, x);
            }
            const float unit = $unit, now = fmaxf(top[row], most * unit);
            const float before = weight_of(top[row], now);
            top[row] = now;
            sum[row] *= before;
#pragma unroll
            for (int c = 0; c < VE; c++) acc[row][c] *= before;
#pragma unroll
            for (int j = 0; j < J; j++) {
                s[row][j] = weight_of(s[row][j] * unit, now);
                sum[row] += s[row][j];
                //@if gate
                $gate;
                //@end
            }
        }
        //@else
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
#pragma unroll
            for (int j = 0; j < J; j++) {
                float x = $none;
                $score;
                s[row][j] = x;
                sum[row] += $added;
            }
        }
        //@end
#pragma unroll
        for (int j = 0; j < J; j++) {
            float v[VE];
#pragma unroll
            for (int c = 0; c < VE / VW; c++)
                spread_keys::to(&v[c * VW], values[j * (VE / VW) + c]);
#pragma unroll
            for (int row = 0; row < ROWS; row++)
#pragma unroll
                for (int c = 0; c < VE; c++) acc[row][c] += s[row][j] * v[c];
        }
    }
    // The lanes of a warp that have the same columns, then its share of the block.
    block_part *const own = warps + threadIdx.x / 32u;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        float most = top[row];
#pragma unroll
        for (int d = 16; d >= L; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
        const float mine = weight_of(top[row], most);
        sum[row] *= mine;
#pragma unroll
        for (int d = 16; d >= L; d /= 2) sum[row] += __shfl_xor_sync(0xffffffffu, sum[row], d);
        if (threadIdx.x % 32u == 0u) {
            own->top[row] = most;
            own->sum[row] = sum[row];
        }
#pragma unroll
        for (int c = 0; c < VE; c++) {
            float v = acc[row][c] * mine;
#pragma unroll
            for (int d = 16; d >= L; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
            if (threadIdx.x % 32u < (unsigned)L)
                own->acc[row][(lane + L * (c / VW)) * VW + c % VW] = v;
        }
    }
    __syncthreads();
    //@if parts
    key_part<$lines, cols> *const left = reinterpret_cast<key_part<$lines, cols> *>(parts);
    for (int e = (int)threadIdx.x; e < $lines * cols / 4; e += 256) {
        const int row = e / (cols / 4), at = e % (cols / 4) * 4;
        const joined_keys all = join_keys<8, true>(warps, row, at);
        *reinterpret_cast<float4 *>(&left[blockIdx.x].acc[row][at]) =
            make_float4(all.acc[0], all.acc[1], all.acc[2], all.acc[3]);
        if (at == 0) {
            left[blockIdx.x].top[row] = all.top;
            left[blockIdx.x].sum[row] = all.sum;
        }
    }
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    //@end
    for (int e = (int)threadIdx.x; e < $lines * cols / 4; e += 256) {
        const int row = e / (cols / 4), at = e % (cols / 4) * 4;
        const joined_keys all = $joined;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int col = at + c;
            $store;
        }
    }
}
