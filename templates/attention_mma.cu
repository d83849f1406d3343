//@key name    the kernel's name
//@key params  its parameters
//@key T       type of the operands in shared memory
//@key RW      warps along the rows
//@key NK      keys a warp takes at a time
//@key KC      depth of a part of the keys
//@key cols    columns, filled up to a multiple of 16
//@key depth   of a query and a key, filled up with zeros to a multiple of KC
//@key part    16-byte words of the largest kind of part
//@key product  whether scores are made of a product; else the first of all parts are left out
//@key number  unsigned type that counts blocks
//@key many    whether there is more than one block
//@key index   the batch's position and the tile's first row m0, from id
//@key queries  elements to load, or vectors of them
//@key queryRow  row of element e
//@key queryAt   its place in the row
//@key loadQuery  statements, then query[row * (depth + PAD) + k] = its value
//@key terms   keys that a tile of rows meets
//@key keys    elements of a part to load
//@key keyRow  key of element e
//@key keyAt   its place in the key
//@key loadKey  statements, then part[key * (KC + PAD) + k] = its value
//@key score   statements, then x = the score made from s[j][e]; -inf where a row has no such key
//@key values  elements of a part to load
//@key valueRow  key of element e
//@key valueAt   its column
//@key loadValue  statements, then part[key * (cols + PAD) + col] = its value
//@key sum     whether the result is divided by the sum of the weights
//@key split   whether several warps share the keys of a row
//@key store   where (row, col) is an element of the result: its position, its value, the store
// Both products on tensor cores. A warp has 16 rows, of which a thread has two.
static __global__ void __launch_bounds__(128) $name($params) {
    typedef $T T;
    typedef tensor_type<T> type;
    const int RW = $RW, KW = 4 / RW, NK = $NK, cols = $cols;
    const int WORD = 4 / sizeof(T), PAD = 4 * WORD;  // rows begin in different banks
    // part: a part of the tile's keys, then of its values. No arrays of T, whose constructor may be
    // none of shared memory's.
    __shared__ uint4 parts[$part];
    T *const part = reinterpret_cast<T *>(parts);
    //@if product
    const int KC = $KC, depth = $depth;
    __shared__ uint4 queries[RW * (depth + PAD) * sizeof(T)];
    T *const query = reinterpret_cast<T *>(queries);
    //@end
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int own = warp / KW * 16, first = warp % KW * NK;  // row, key
    //@if many
    const $number id = blockIdx.x;
    //@end
    await_previous();
    $index;
    //@if product
    for (int e = (int)threadIdx.x; e < $queries; e += 128) {
        const int row = $queryRow, k = $queryAt;
        $loadQuery;
    }
    //@end
    float top[2], acc[cols / 8][4];
    //@if sum
    float sum[2];
    //@end
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = -INFINITY;
        //@if sum
        sum[i] = 0.f;
        //@end
    }
#pragma unroll
    for (int c = 0; c < cols / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) acc[c][e] = 0.f;
    for (int u0 = 0; u0 < $terms; u0 += KW * NK) {
        float s[NK / 8][4];
        //@if product
#pragma unroll
        for (int j = 0; j < NK / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[j][e] = 0.f;
        for (int k0 = 0; k0 < depth; k0 += KC) {
            __syncthreads();
#pragma unroll 4
            for (int e = (int)threadIdx.x; e < $keys; e += 128) {
                const int key = $keyRow, k = $keyAt;
                $loadKey;
            }
            __syncthreads();
#pragma unroll 2
            for (int k = 0; k < KC; k += 8 * WORD) {
                unsigned a[4], b[4];
                type::fragment<true>(a, &query[own * (depth + PAD) + k0 + k], pitched{depth + PAD});
#pragma unroll
                for (int j = 0; j < NK / 8; j += 2) {
                    type::fragment<true, true>(b, &part[(first + 8 * j) * (KC + PAD) + k],
                                               pitched{KC + PAD});
                    type::multiply_add(s[j], a, b[0], b[1]);
                    type::multiply_add(s[j + 1], a, b[2], b[3]);
                }
            }
        }
        //@end
        // The weights of these keys, relative to the largest score so far, and what was summed up
        // before scaled accordingly. Until a score is above -inf, 0 stands for the largest.
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float most = top[i];
#pragma unroll
            for (int j = 0; j < NK / 8; j++) {
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    float x = -INFINITY;
                    $score;
                    s[j][e] = x;
                    most = fmaxf(most, x);
                }
            }
#pragma unroll
            for (int d = 2; d > 0; d /= 2)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
            const float zero = most > -INFINITY ? most : 0.f, before = expf(top[i] - zero);
            top[i] = most;
#pragma unroll
            for (int c = 0; c < cols / 8; c++) {
                acc[c][2 * i] *= before;
                acc[c][2 * i + 1] *= before;
            }
            //@if sum
            sum[i] *= before;
            //@end
#pragma unroll
            for (int j = 0; j < NK / 8; j++) {
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    s[j][e] = expf(s[j][e] - zero);
                    //@if sum
                    sum[i] += s[j][e];
                    //@end
                }
            }
        }
        __syncthreads();
#pragma unroll 4
        for (int e = (int)threadIdx.x; e < $values; e += 128) {
            const int key = $valueRow, col = $valueAt;
            $loadValue;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < NK / 8; j += WORD) {
            unsigned a[4], b[4];
            attend<T>::weights(&s[j], a);
#pragma unroll
            for (int c = 0; c < cols / 8; c += 2) {
                attend<T>::values(&part[(first + 8 * j) * (cols + PAD) + 8 * c], cols + PAD, b);
                type::multiply_add(acc[c], a, b[0], b[1]);
                type::multiply_add(acc[c + 1], a, b[2], b[3]);
            }
        }
    }
    //@if sum
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int d = 2; d > 0; d /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
    }
    //@end
    //@if split
    // What the other warps have of these rows comes on top, by value and lane.
    const int VALUES = cols / 2 + 4;
    float *const rest = reinterpret_cast<float *>(parts) + (warp / KW * VALUES * 32 + lane);
    __syncthreads();
    if (warp % KW > 0) {
        float *const to = rest + (warp % KW - 1) * RW * VALUES * 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            to[i * 32] = top[i];
            //@if sum
            to[(2 + i) * 32] = sum[i];
            //@end
        }
#pragma unroll
        for (int v = 0; v < cols / 2; v++) to[(4 + v) * 32] = acc[v / 4][v % 4];
    }
    __syncthreads();
    if (warp % KW > 0) return;
    for (int o = 0; o < KW - 1; o++) {
        const float *const from = rest + o * RW * VALUES * 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float other = from[i * 32], most = fmaxf(top[i], other);
            const float zero = most > -INFINITY ? most : 0.f;
            const float mine = expf(top[i] - zero), theirs = expf(other - zero);
            top[i] = most;
            //@if sum
            sum[i] = sum[i] * mine + from[(2 + i) * 32] * theirs;
            //@end
#pragma unroll
            for (int v = 0; v < cols / 2; v++)
                if (v % 4 / 2 == i)
                    acc[v / 4][v % 4] = acc[v / 4][v % 4] * mine + from[(4 + v) * 32] * theirs;
        }
    }
    //@end
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = own + lane / 4 + 8 * i;
#pragma unroll
        for (int c = 0; c < cols / 8; c++) {
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                const int col = 8 * c + lane % 4 * 2 + e % 2;
                $store;
            }
        }
    }
}
