//@key name    the kernel's name
//@key params  its parameters
//@key T       type of the operands in shared memory
//@key resident  blocks of a multiprocessor; registers are not to be spilled for the sake of more
//@key W       warps of a block
//@key RW      of these, along the rows
//@key RM      times 16 rows that a warp has
//@key NK      keys a warp takes at a time
//@key KC      depth of a part of the keys
//@key cols    columns, filled up to a multiple of 16
//@key depth   of a query and a key, filled up with zeros to a multiple of KC
//@key product  whether scores are made of a product; else what makes one is left out
//@key deep    whether the keys come in more than one part
//@key keyPart  16-byte words of a part of the keys
//@key across  whether keys or values have keys that lie together
//@key room    16-byte words of a part of the keys and one of the values, or of what warps share
//@key storage  declares `words` in shared memory: these, then the queries
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
//@key begin   load_keys(first, 0), where there is a first key
//@key ahead   load_values(first), where no turn is left out; empty: values wait for keys
//@key queries  elements to load, or vectors of them
//@key queryRow  row of element e
//@key queryAt   its place in the row
//@key loadQuery  statements, then query[row * (depth + PAD) + k] = its value
//@key stop    whether no row of the tile attends to a key of the turn; empty: it does
//@key masked  statements, then masked = the power of two that those keys have
//@key zeroKeys    whether all keys of the turn are 0; empty: no turn's are
//@key zeroValues  whether all values of it are
//@key follows  whether there is a next turn
//@key next    its first key
//@key keySteps  elements of a part of the keys, or vectors of them, that a thread loads
//@key keyTurns  of those, that are unrolled
//@key keyPlace  statements: key and place k in it of the thread's element i
//@key loadKey  statements, then its value is where it belongs
//@key keyAcross  whether the keys' elements of one place lie together, in shared memory too
//@key keyAt   where that value is
//@key keyWords  whether keys arrive as they are in memory, to be rounded here
//@key score   statements, then x = the score made from s[m][j][e], by a factor
//@key both    whether that is the score of two keys, and next that of the second one
//@key unit    of a score: makes a power of two of it (softmax.cu); `most` is a row's largest one
//@key slack   powers that a row's weights may have while what was summed up is not scaled
//@key ends    whether a row of the tile may have no such key, or a masked one; empty: never
//@key absent  statements, then s[m][j][e] = the score where it has no such key, or a masked one
//@key gate    statements, then s[m][j][e] = 0 where that weight is left out; empty: none is
//@key valueSteps  elements of a part of the values, or vectors of them, that a thread loads
//@key valueTurns  of those, that are unrolled
//@key valuePlace  statements: key and column col of the thread's element i
//@key loadValue  statements, then its value is where it belongs
//@key valueAcross  whether a column's values of all keys lie together, in shared memory too
//@key valueAt   where that value is
//@key valueWords  whether values arrive as they are in memory, to be rounded here
//@key soft    whether weights are a softmax of scores; else they are scores
//@key weighs  whether there is something to be done with weights, such as their sum
//@key none    the score of a key that a row does not have
//@key added   what the sum of the weights adds up: s[m][j][e], or its absolute value
//@key partTop  the largest score of row i in a part
//@key sum     whether the result is divided by the sum of the weights
//@key split   whether several warps share the keys of a row
//@key others  warps whose keys come on top of the warp's own in the end
//@key pairs   whether two columns are stored at once
//@key store   where (row, col) is an element of the result: its position, its value, the store
// Both products on tensor cores. RW warps have RM times 16 rows each, of which a thread has two;
// the KW warps of the same rows take NK keys each at a time. Of the keys KC elements are in shared
// memory at once. Values are on their way while scores are made, the next keys while values are
// multiplied.
static __global__ void __launch_bounds__(32 * $W, $resident) $name($params) {
    typedef $T T;
    typedef tensor_type<T> type;
    const int W = $W, RW = $RW, KW = W / RW, RM = $RM, NK = $NK, cols = $cols;
    const int WORD = 4 / sizeof(T), PAD = 4 * WORD;  // rows begin in different banks
    //@if across
    const int ACROSS = KW * NK + 8;  // from what all keys have to the next of it
    //@end
    // No arrays of T, whose constructor may be none of shared memory's.
    $storage;
    uint4 *const room = words.word;
    //@if product
    const int KC = $KC, depth = $depth;
    T *const query = reinterpret_cast<T *>(room + $room), *const keys = reinterpret_cast<T *>(room);
    //@end
    T *const values = reinterpret_cast<T *>(room) + $keyPart * PAD;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int own = warp / KW * RM * 16, first = warp % KW * NK;  // row, key
    //@if many
    const $number id = $tile;
    //@end
    await_previous(next_early);
    $index;
    //@if shares
    $shares;
    //@end
    // Parts of keys and values, of u0's turn.
    //@if product
    const int KEY_TURNS = $keyTurns;
    const auto load_keys = [&](int u0, int k0) {
#pragma unroll KEY_TURNS
        for (int i = 0; i < $keySteps; i++) {
            $keyPlace;
            $loadKey;
        }
        end_step();
    };
    //@end
    const int VALUE_TURNS = $valueTurns;
    const auto load_values = [&](int u0) {
#pragma unroll VALUE_TURNS
        for (int i = 0; i < $valueSteps; i++) {
            $valuePlace;
            $loadValue;
        }
        end_step();
    };
    //@if keyWords
    const auto round_keys = [&] {
#pragma unroll 4
        for (int i = 0; i < $keySteps; i++) {
            $keyPlace;
            attend<T>::round(&$keyAt);
        }
    };
    //@end
    //@if valueWords
    const auto round_values = [&] {
#pragma unroll 4
        for (int i = 0; i < $valueSteps; i++) {
            $valuePlace;
            attend<T>::round(&$valueAt);
        }
    };
    //@end
    //@if product
    $begin;
    for (int e = (int)threadIdx.x; e < $queries; e += 32 * W) {
        const int row = $queryRow, k = $queryAt;
        $loadQuery;
    }
    //@if ahead
    $ahead;
    //@end
    //@end
    float acc[RM][cols / 8][4];
    //@if soft
    float top[RM][2];
    //@end
    //@if sum
    float sum[RM][2];
    //@end
#pragma unroll
    for (int m = 0; m < RM; m++) {
        //@if weighs
#pragma unroll
        for (int i = 0; i < 2; i++) {
            //@if soft
            top[m][i] = NO_KEY;
            //@end
            //@if sum
            sum[m][i] = 0.f;
            //@end
        }
        //@end
#pragma unroll
        for (int c = 0; c < cols / 8; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[m][c][e] = 0.f;
    }
#pragma unroll 1
    for (int u0 = $first; $goes; $step) {
        //@if stop
        if ($stop) {
            //@if soft
            $masked;
            float most[RM][2];
#pragma unroll
            for (int m = 0; m < RM; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) most[m][i] = top[m][i];
            await_steps<0>();
            //@if split
            // What the warps that share a row have seen together.
            float *const tops = reinterpret_cast<float *>(values) + (own + lane / 4);
            __syncthreads();
#pragma unroll
            for (int m = 0; m < RM; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (lane % 4 == 0) tops[warp % KW * RW * RM * 16 + 16 * m + 8 * i] = top[m][i];
            __syncthreads();
#pragma unroll
            for (int k = 0; k < KW; k++)
#pragma unroll
                for (int m = 0; m < RM; m++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        most[m][i] = fmaxf(most[m][i], tops[k * RW * RM * 16 + 16 * m + 8 * i]);
            //@end
            bool more = false;  // a weight that is not 0
#pragma unroll
            for (int m = 0; m < RM; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) more |= !(weight_of(masked, most[m][i]) == 0.f);
            if (!__syncthreads_or(more)) break;
            //@else
            await_steps<0>();
            break;
            //@end
        }
        //@end
        float s[RM][NK / 8][4];
        //@if product
#pragma unroll
        for (int m = 0; m < RM; m++)
#pragma unroll
            for (int j = 0; j < NK / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[m][j][e] = 0.f;
        //@if zeroKeys
        // Keys beyond an end.
        const bool zeroKeys = $zeroKeys;
        //@end
        for (int k0 = 0; k0 < depth; k0 += KC) {
            //@if deep
            if (k0 > 0) {
                __syncthreads();
                load_keys(u0, k0);
            }
            //@end
            //@if ahead
            // The first values are on their way behind the first keys.
            if (u0 == $first && k0 == 0) await_steps<1>();
            else await_steps<0>();
            //@else
            await_steps<0>();
            //@end
            //@if keyWords
            round_keys();
            //@end
            __syncthreads();
            //@if ahead
            if (u0 > $first && k0 == 0) load_values(u0);
            //@else
            if (k0 == 0) load_values(u0);
            //@end
            //@if zeroKeys
            if (zeroKeys) {
                continue;  // scores stay 0
            }
            //@end
#pragma unroll
            for (int k = 0; k < KC; k += 8 * WORD) {
                unsigned a[RM][4], b[4];
#pragma unroll
                for (int m = 0; m < RM; m++)
                    pitched_fragment<true, false>(
                        a[m], &query[(own + 16 * m) * (depth + PAD) + k0 + k], depth + PAD);
#pragma unroll
                for (int j = 0; j < NK / 8; j += 2) {
                    //@if keyAcross
                    pitched_fragment<false, true>(b, &keys[k * ACROSS + first + 8 * j], ACROSS);
                    //@else
                    pitched_fragment<true, true>(b, &keys[(first + 8 * j) * (KC + PAD) + k],
                                                 KC + PAD);
                    //@end
#pragma unroll
                    for (int m = 0; m < RM; m++) {
                        type::multiply_add(s[m][j], a[m], b[0], b[1]);
                        type::multiply_add(s[m][j + 1], a[m], b[2], b[3]);
                    }
                }
            }
        }
        //@else
        __syncthreads();
        load_values(u0);
        //@end
#pragma unroll
        for (int m = 0; m < RM; m++) {
#pragma unroll
            for (int j = 0; j < NK / 8; j++) {
                //@if both
#pragma unroll
                for (int e = 0; e < 4; e += 2) {
                    float x = $none, next = $none;
                    $score;
                    s[m][j][e] = x;
                    s[m][j][e + 1] = next;
                }
                //@else
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float x = $none;
                    $score;
                    s[m][j][e] = x;
                }
                //@end
            }
        }
        //@if ends
        if ($ends) {
            __syncwarp(~0u);  // or compilers would choose for every score of every turn
#pragma unroll
            for (int m = 0; m < RM; m++) {
#pragma unroll
                for (int j = 0; j < NK / 8; j++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        $absent;
                    }
                }
            }
        }
        //@end
        //@if soft
        // Weights relative to the largest score so far, or to one before that is not far below, so
        // that what was summed up is seldom scaled.
        float unit[RM][2], power[RM][2];
        bool grown = false;
#pragma unroll
        for (int m = 0; m < RM; m++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float most = fmaxf(s[m][0][2 * i], s[m][0][2 * i + 1]);
#pragma unroll
                for (int j = 1; j < NK / 8; j++)
                    most = fmaxf(most, fmaxf(s[m][j][2 * i], s[m][j][2 * i + 1]));
#pragma unroll
                for (int d = 2; d > 0; d /= 2)
                    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
                unit[m][i] = $unit;
                power[m][i] = most * unit[m][i];
                grown |= power[m][i] > top[m][i] + $slack;
            }
        }
        if (grown) {
#pragma unroll
            for (int m = 0; m < RM; m++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float now = fmaxf(top[m][i], power[m][i]);
                    const float before = weight_of(top[m][i], now);
                    top[m][i] = now;
#pragma unroll
                    for (int c = 0; c < cols / 8; c++) {
                        acc[m][c][2 * i] *= before;
                        acc[m][c][2 * i + 1] *= before;
                    }
                    //@if sum
                    sum[m][i] *= before;
                    //@end
                }
            }
        }
        //@end
        //@if weighs
#pragma unroll
        for (int m = 0; m < RM; m++) {
#pragma unroll
            for (int j = 0; j < NK / 8; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    //@if soft
                    s[m][j][e] = weight_of(s[m][j][e] * unit[m][e / 2], top[m][e / 2]);
                    //@end
                    //@if sum
                    sum[m][e / 2] += $added;
                    //@end
                    //@if gate
                    $gate;
                    //@end
                }
            }
        }
        //@end
        await_steps<0>();
        //@if valueWords
        round_values();
        //@end
        __syncthreads();
        //@if product
        if ($follows) load_keys($next, 0);
        //@end
        //@if zeroValues
        if ($zeroValues) {
            continue;
        }
        //@end
#pragma unroll
        for (int j = 0; j < NK / 8; j += WORD) {
            unsigned a[RM][4], b[4];
#pragma unroll
            for (int m = 0; m < RM; m++) attend<T>::weights(&s[m][j], a[m]);
#pragma unroll
            for (int c = 0; c < cols / 8; c += 2) {
                //@if valueAcross
                attend<T>::columns(&values[8 * c * ACROSS + first + 8 * j], ACROSS, b);
                //@else
                attend<T>::values(&values[(first + 8 * j) * (cols + PAD) + 8 * c], cols + PAD, b);
                //@end
#pragma unroll
                for (int m = 0; m < RM; m++) {
                    type::multiply_add(acc[m][c], a[m], b[0], b[1]);
                    type::multiply_add(acc[m][c + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    //@if sum
#pragma unroll
    for (int m = 0; m < RM; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int d = 2; d > 0; d /= 2) sum[m][i] += __shfl_xor_sync(0xffffffffu, sum[m][i], d);
        }
    }
    //@end
    //@if split
    // What the other warps have of these rows comes on top, by value and lane.
    const int VALUES = cols / 2 + 4;
    float *const rest = reinterpret_cast<float *>(room) + (warp / KW * RM * VALUES * 32 + lane);
    __syncthreads();
    if (warp % KW > 0) {
#pragma unroll
        for (int m = 0; m < RM; m++) {
            float *const to = rest + ((warp % KW - 1) * RW * RM + m) * VALUES * 32;
            //@if weighs
#pragma unroll
            for (int i = 0; i < 2; i++) {
                //@if soft
                to[i * 32] = top[m][i];
                //@end
                //@if sum
                to[(2 + i) * 32] = sum[m][i];
                //@end
            }
            //@end
#pragma unroll
            for (int v = 0; v < cols / 2; v++) to[(4 + v) * 32] = acc[m][v / 4][v % 4];
        }
    }
    __syncthreads();
    //@if parts
    //@else
    if (warp % KW > 0) return;
    //@end
    for (int o = 0; o < $others; o++) {
#pragma unroll
        for (int m = 0; m < RM; m++) {
            const float *const from = rest + (o * RW * RM + m) * VALUES * 32;
            //@if soft
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float other = from[i * 32], most = fmaxf(top[m][i], other);
                const float mine = weight_of(top[m][i], most), theirs = weight_of(other, most);
                top[m][i] = most;
                //@if sum
                sum[m][i] = sum[m][i] * mine + from[(2 + i) * 32] * theirs;
                //@end
#pragma unroll
                for (int v = 0; v < cols / 2; v++)
                    if (v % 4 / 2 == i)
                        acc[m][v / 4][v % 4] =
                            acc[m][v / 4][v % 4] * mine + from[(4 + v) * 32] * theirs;
            }
            //@else
            //@if sum
#pragma unroll
            for (int i = 0; i < 2; i++) sum[m][i] += from[(2 + i) * 32];
                //@end
#pragma unroll
            for (int v = 0; v < cols / 2; v++) acc[m][v / 4][v % 4] += from[(4 + v) * 32];
            //@end
        }
    }
    //@end
    //@if parts
    typedef key_part<$lines, cols> block_part;
    block_part *const left = reinterpret_cast<block_part *>(parts);
#pragma unroll
    for (int m = 0; m < RM; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = own + 16 * m + lane / 4 + 8 * i;
            if (row >= $lines || warp % KW > 0) continue;
#pragma unroll
            for (int c = 0; c < cols / 8; c++)
                *reinterpret_cast<float2 *>(&left[blockIdx.x].acc[row][8 * c + lane % 4 * 2]) =
                    make_float2(acc[m][c][2 * i], acc[m][c][2 * i + 1]);
            if (lane % 4 > 0) continue;
            left[blockIdx.x].top[row] = $partTop;
            left[blockIdx.x].sum[row] = sum[m][i];
        }
    }
    if (!arrives_last(arrived + blockIdx.x / $parts, $parts)) return;
    for (int e = (int)threadIdx.x; e < $lines * cols / 4; e += 32 * W) {
        const int row = e / (cols / 4), at = e % (cols / 4) * 4;
        const joined_keys all = $joined;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int col = at + c;
            $store;
        }
    }
    //@else
#pragma unroll
    for (int m = 0; m < RM; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = own + 16 * m + lane / 4 + 8 * i;
#pragma unroll
            for (int c = 0; c < cols / 8; c++) {
                //@if pairs
                const int col = 8 * c + lane % 4 * 2;
                $store;
                //@else
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    const int col = 8 * c + lane % 4 * 2 + e % 2;
                    $store;
                }
                //@end
            }
        }
    }
    //@end
}
