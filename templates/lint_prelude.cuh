// Sample definitions under which every template compiles as it stands:
//     nvcc -DLINT_map -include templates/lint_prelude.cuh -cubin templates/map.cu
#ifndef EIN_LINT_PRELUDE_CUH
#define EIN_LINT_PRELUDE_CUH

#include <cuda_runtime.h>
#include <math.h>

#include "await.cu"

#define $name sample
#define $kind __global__ void
#define $params const float *__restrict__ p0, float *__restrict__ y, bool next_early
#define $number unsigned

#if defined(LINT_map) || defined(LINT_naive)
#define $thread blockIdx.x * 256u + threadIdx.x
#define $threads 1000u
#define $index const int i0 = (int)id
#define $body y[i0] = p0[i0]
#endif

#ifdef LINT_window
#define $thread blockIdx.x * 256u + threadIdx.x
#define $threads 1000u
#define $index const int i0 = (int)id
#define $tile x[2][2]
#define $load x[0][0] = x[0][1] = p0[i0], x[1][0] = x[1][1] = 0.f
#define $rows 2
#define $row y[i0] = x[0][0]
#endif

#ifdef LINT_window_last
#define $thread blockIdx.x * 256u + threadIdx.x
#define $threads 1000u
#define $index const int i0 = (int)id * 4
#define $columns 2
#define $begin -INFINITY
#define $taps acc[0][0] = acc[1][0] = p0[i0]
#define $column y[i0 + o] = acc[o][0]
#endif

#ifdef LINT_skinny
#define $block 256
#define $warps 8
#define $rows 2
#define $columns 4
#define $lanes 8u
#define $each 64
#define $index const unsigned n0 = id * 32u
#define $count 100u
#define $turn 64u
#define $position const int i1 = (int)(n0 + lane * 4u)
#define $type float
#define $loads 2
#define $stream                                                   \
    for (int u = 0; u < 2; u++) w[u] = p0[i1 + (int)(k0 + first)]
#define $ahead 2
#define $shares 1
#define $taken 8
#define $held 4
#define $pitch 4
#define $groups 4
#define $value make_float4(w[u], w[u], w[u], w[u])
#define $share own[s][0] = p0[k0 + t]
#define $terms acc[0][0] += w[0]
#define $sums 8
#define $first 8
#define $one threadIdx.x % 32u < 8u
#define $output (int)lane * 8 + e
#define $result const int n = (int)(n0 + e)
#define $inside n >= 1000
#define $store y[n] = v
#endif

#ifdef LINT_stitch
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float *__restrict__ also, bool next_early
#define $bound 64
#define $type float
#define $room 200
#define $part slices + threadIdx.y * 100u
#undef $number
#define $number blockIdx.x * 2u + threadIdx.y
#define $threads 32u
#define $first fill
#define $firstids 100u
#define $firstargs p0, own
#define $second drain
#define $secondids 50u
#define $secondargs own, y
#define $also 25u
#define $vector float4
static __device__ __forceinline__ void fill(const float *p0, float *y, unsigned id) {
    y[id % 100u] = p0[id];
}
static __device__ __forceinline__ void drain(const float *p0, float *y, unsigned id) {
    y[id] = p0[id % 50u * 2u];
}
#endif

#ifdef LINT_siblings
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float *__restrict__ y1, bool next_early
#define $bound 64
#define $thread blockIdx.x * 64u + threadIdx.x
#define $parts id < 64u ? copied(p0, y, id) : copied(p0, y1, id - 64u)
static __device__ __forceinline__ void copied(const float *p0, float *y, unsigned id) {
    y[id] = p0[id];
}
#endif

#ifdef LINT_basis
#define $thread blockIdx.x * 256u + threadIdx.x
#define $threads 1000u
#define $index const int i0 = (int)id
#define $tile d[2]
#define $load d[0] = p0[2 * i0], d[1] = p0[2 * i0 + 1]
#define $transform d[0] += d[1]
#define $store y[i0] = d[0]
#endif

#if defined(LINT_reduce_warp) || defined(LINT_reduce_block) || defined(LINT_reduce_column)
#define $T float
#define $whole acc + part[0]
#define $warp blockIdx.x * 4u + threadIdx.x / 32u
#define $block 128
#define $outputs 1000u
#define $index const int i0 = (int)id
#define $before (void)0
#define $identity 0.f
#define $count 777u
#define $terms acc += p0[i0 * 777 + (int)k]
#define $join acc += part[j][threadIdx.x]
#define $add acc += other
#define $ahead 8
#ifdef LINT_reduce_warp
#undef $join
#define $join acc += other
#define $lanes 8u
#define $stores lane == 0u
#define $split (void)0
#define $other __shfl_xor_sync(0xffffffffu, acc, d)
#undef $whole
#define $whole __shfl_xor_sync(0xffffffffu, acc, 1)
#endif
#ifndef LINT_reduce_warp
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float4 *parts, \
        unsigned *arrived, bool next_early
#include "tail.cu"
#undef $block
#define $block blockIdx.x / 4u
#define $parts 4u
#define $stride 1024u
#endif
#ifdef LINT_reduce_block
#define $load __ldcg(&sums[blockIdx.x / 4u * 4u + threadIdx.x])
#define $start blockIdx.x % 4u * 256u + threadIdx.x
#endif
#ifdef LINT_reduce_column
#define $load __ldcg(&sums[(blockIdx.x / 4u * 4u + p) * 32u])
#define $start blockIdx.x % 4u * 256u + threadIdx.y
#endif
#define $after (void)0
#define $store y[i0] = acc
#endif

#ifdef LINT_picks
#define $T float
#define $threads 256
#define $warps 8u
#define $groups 1000u
#define $group blockIdx.x * 8u + warp
#define $row group / 2u
#define $lanes group % 2u * 32u + lane
#define $columns 40u
#define $index const int i0 = (int)id, i1 = (int)column
#define $before (void)0
#define $init float acc = 0.f
#define $first 0u
#define $end 777u
#define $ahead 8u
#define $list 288
#define $least 32u
#define $asks (void)0
#define $is p0[k] == (float)i0
#define $terms acc += p0[(int)found[warp][m] * 40 + i1]
#define $each 1
#define $put part[warp][lane][0] = acc
#define $join acc += part[w][lane][0]
#define $after (void)0
#define $store y[i0 * 40 + i1] = acc
#endif

#if defined(LINT_place_warp) || defined(LINT_place_block) || defined(LINT_place_column)
#include "place.cu"
#define $pair ranked<true, false, float, int>
#define $none {-INFINITY, 776}
#define $warp blockIdx.x * 4u + threadIdx.x / 32u
#define $outputs 1000u
#define $index const int i0 = (int)id
#define $before (void)0
#define $count 777u
#define $terms best.take(p0[i0 * 777 + (int)k], (int)k)
#define $after (void)0
#define $store y[i0] = (float)best.place
#ifdef LINT_place_warp
#define $block 128
#else
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float4 *parts, \
        unsigned *arrived, bool next_early
#include "tail.cu"
#define $block blockIdx.x / 4u
#define $parts 4u
#define $stride 1024u
#ifdef LINT_place_block
#define $start blockIdx.x % 4u * 256u + threadIdx.x
#else
#define $start blockIdx.x % 4u * 256u + threadIdx.y
#endif
#endif
#endif

#if defined(LINT_row_warp) || defined(LINT_row_block) || defined(LINT_row_column)
#define $rows 1000u
#define $warp blockIdx.x * 4u + threadIdx.x / 32u
#define $block 128
#define $parts 2
#define $index const int i0 = (int)id
#ifndef LINT_row_column
#define $ahead const float w = p0[lane]
#endif
#ifdef LINT_row_column
#define $lanes 16u
#define $column blockIdx.x * 16u + threadIdx.x % 16u
#define $row column < 1000u ? column : 1000u - 1u
#define $phases part[0][lane % 8u][0] = p0[i0], part[1][lane % 8u][0] = 0.f, y[i0] = part[0][0][0]
#elif defined(LINT_row_block)
#define $warps 4
#define $phases part[0][lane % 4u] = p0[i0], part[1][lane % 4u] = w, y[i0] = part[0][0]
#else
#define $phases y[i0] = w + p0[i0 + (int)lane]
#endif
#endif

#ifdef LINT_transpose_half
#include <cuda_fp16.h>
#undef $params
#define $params const __half *__restrict__ p0, __half *__restrict__ y, bool next_early
#define $int int
#define $index const int fa = (int)(id % 4u) * 64, fb = (int)(id / 4u) * 64
#define $a i0
#define $b i1
#define $na 100
#define $nb 100
#define $from p0 + i1 * 100 + i0
#define $to y + i0 * 100 + i1
#define $step 100
#endif

#ifdef LINT_transpose
#define $T float
#define $int int
#define $index const int fa = (int)(id % 4u) * 32, fb = (int)(id / 4u) * 32
#define $a i0
#define $b i1
#define $na 100
#define $nb 100
#define $before (void)0
#define $load (void)0
#define $value p0[i1 * 100 + i0]
#define $middle (void)0
#define $store y[i0 * 100 + i1] = tile[threadIdx.x][j + threadIdx.y]
#endif

#ifdef LINT_band
#define $RM 4
#define $RN 4
#define $KC 16
#define $index const int m0 = (int)id * 64, c0 = 0
#define $terms 100
#define $rowA e / 16
#define $termA e % 16
#define $loadA as[k][row] = p0[(m0 + row) * 100 + k0 + k]
#define $colB e / 16
#define $termB e % 16
#define $loadB bs[k][col] = p0[(c0 + col) * 100 + k0 + k]
#define $inside m0 + row < 100 && c0 + col < 100
#define $store y[(m0 + row) * 100 + c0 + col] = acc[i][j]
#endif

#ifdef LINT_attention
#include <cuda_fp16.h>
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float4 *parts, \
        unsigned *arrived, bool next_early
#include "tail.cu"
#include "softmax.cu"
#include "attention_parts.cu"
#define $parts 4u
#define $tile blockIdx.x / 4u
#define $shares const int from = (int)(blockIdx.x % 4u) * 2 / 4 * 64, until = from + 64
#define $first from
#define $goes u0 < until
#define $step u0 += 16 * RN
#define $lines 33
#define $joined join_keys<4, false>(left + blockIdx.x / 4u * 4u, row, at)
#define $RM 8
#define $RN 4
#define $RC 4
#define $VC 4
#define $KC 32
#define $KV 32
#define $depth 64
#define $part 2304
#define $index const int m0 = (int)id * 64
#define $queries 64 * 64
#define $queryRow e / 64
#define $queryAt e % 64
#define $loadQuery query[row][k] = p0[(m0 + row) * 64 + k]
#define $keySteps 16
#define $keyType float
#define $keyPlace const int key = (int)threadIdx.x / 32 + 4 * i, k = (int)threadIdx.x % 32
#define $loadKey own[i] = u0 + key < 100 ? p0[(u0 + key) * 64 + k0 + k] : 0.f
#define $putKey part[key * (KC + 4) + k] = own[i]
#define $stop u0 >= m0 + 64
#define $masked const float masked = -1e9f
#define $unit score_unit(most)
#define $none -INFINITY
#define $added fabsf(x)
#define $partTop top[i]
#define $absent u0 >= 100
#define $keysFrom absent ? depth : 0
#define $valuesFrom absent ? 16 * RN : 0
#define $score if (u0 + tx + 16 * j < 100) x = s[i][j]
#define $gate if (u0 + tx + 16 * j > 90) weight[row][tx + 16 * j] = 0.f
#define $valueSteps 16
#define $valueType float
#define $valuePlace const int key = (int)threadIdx.x / 64 + 2 * i, col = (int)threadIdx.x % 64
#define $loadValue own[i] = u0 + k0 + key < 100 ? p0[(u0 + k0 + key) * 64 + col] : 0.f
#define $putValue part[key * 16 * RC + col] = own[i]
#define $store y[(m0 + row) * 64 + col] = sum[0]
#endif

#ifdef LINT_attend
#include <cuda_fp16.h>
#include "mma.cu"
#endif

#ifdef LINT_attention_mma
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#include "mma.cu"
#include "tiles_loads.cu"
#include "tiles_async.cu"
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float4 *parts, \
        unsigned *arrived, bool next_early
#include "tail.cu"
#include "attend.cu"
#include "softmax.cu"
#include "attention_parts.cu"
#define $parts 4u
#define $tile blockIdx.x / 4u
#define $shares const int from = (int)(blockIdx.x % 4u) * 2 / 4 * 64, until = from + 64
#define $first from
#define $goes u0 < until
#define $step u0 += KW * NK
#define $follows u0 + KW * NK < until
#define $next u0 + KW * NK
#define $lines 33
#define $joined join_keys<4, false>(left + blockIdx.x / 4u * 4u, row, at)
#define $begin load_keys(0, 0)
#define $ahead load_values(0)
#define $others KW - 1
#define $T float
#define $resident 4
#define $W 4
#define $RW 2
#define $RM 1
#define $NK 32
#define $KC 64
#define $cols 64
#define $depth 64
#define $keyPart 1088
#define $room 2176
#define $storage __shared__ shared_words<2720> words
#define $index const int m0 = (int)id * 32
#define $queries 32 * 64
#define $queryRow e / 64
#define $queryAt e % 64
#define $loadQuery attend_put(&query[row * (depth + PAD) + k], p0[(m0 + row) * 64 + k])
#define $keySteps 32
#define $keyTurns 4
#define $keyPlace const int key = (int)threadIdx.x / 64 + 2 * i, k = (int)threadIdx.x % 64
#define $loadKey \
    attend_put(&keys[key * (KC + PAD) + k], u0 + key < 100 ? p0[(u0 + key) * 64 + k0 + k] : 0.f)
#define $stop u0 >= m0 + 32
#define $masked const float masked = -1e9f
#define $zeroKeys u0 >= 100
#define $zeroValues u0 >= 100
#define $unit score_unit(most)
#define $none -INFINITY
#define $added fabsf(s[m][j][e])
#define $partTop top[m][i]
#define $slack 8.f
#define $score x = s[m][j][e]
#define $gate if (u0 + first + 8 * j > 90) s[m][j][e] = 0.f
#define $keyAt keys[key * (KC + PAD) + k]
#define $valueAt values[key * (cols + PAD) + col]
#define $ends u0 + 64 > 100
#define $absent if (u0 + first + 8 * j + lane % 4 * 2 + e % 2 >= 100) s[m][j][e] = -INFINITY
#define $valueSteps 32
#define $valueTurns 4
#define $valuePlace const int key = (int)threadIdx.x / 64 + 2 * i, col = (int)threadIdx.x % 64
#define $loadValue \
    attend_put(&values[key * (cols + PAD) + col], u0 + key < 100 ? p0[(u0 + key) * 64 + col] : 0.f)
#define $store y[(m0 + row) * 64 + col] = sum[0][0]
#endif

#ifdef LINT_attention_parts
#include <cuda_fp16.h>
#include "softmax.cu"
#endif

#ifdef LINT_attention_few
#include <cuda_fp16.h>
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float4 *parts, \
        unsigned *arrived, bool next_early
#include "tail.cu"
#include "softmax.cu"
#include "attention_parts.cu"
#define $parts 4u
#define $tile blockIdx.x / 4u
#define $shares const int from = (int)(blockIdx.x % 4u) * 2 / 4 * 64, until = from + 64
#define $first from
#define $goes u0 < until
#define $step u0 += GROUPS * J
#define $lines 33
#define $joined join_keys<4, false>(left + blockIdx.x / 4u * 4u, row, at)
#define $ROWS 4
#define $L 16
#define $J 2
#define $KE 8
#define $KW 8
#define $VE 4
#define $VW 4
#define $depth 128
#define $cols 64
#define $index const int m0 = (int)id * 4
#define $queries 4 * 128
#define $queryRow e / 128
#define $queryAt e % 128
#define $loadQuery query[row][k] = p0[(m0 + row) * 128 + k]
#define $stop u0 >= m0 + 4
#define $masked const float masked = -1e9f
#define $unit score_unit(most)
#define $none -INFINITY
#define $added fabsf(x)
#define $start NO_KEY
#define $keyType uint4
#define $loadKey keys[i] = reinterpret_cast<const uint4 *>(p0)[((u0 + key) * 128 + k) / 8]
#define $score if (u0 + group + GROUPS * j < 100) x = s[row][j]
#define $gate if (u0 + group + GROUPS * j > 90) s[row][j] = 0.f
#define $valueType float4
#define $loadValue values[i] = reinterpret_cast<const float4 *>(p0)[((u0 + key) * 64 + col) / 4]
#define $store y[(m0 + row) * 64 + col] = all.acc[c] / all.sum
#endif

#ifdef LINT_product
#undef $params
#define $params const float *__restrict__ p0, float *__restrict__ y, float4 *parts, \
        unsigned *arrived, bool next_early
#include "tail.cu"
#include <cuda_fp16.h>
#include "tiles_loads.cu"
#include "tiles_rows.cu"
#include "tiles.cu"
#define $storage __shared__ product_tile<64, 64, 16, 1, 4, 4, 1> tile
#define $bounds __launch_bounds__(256)
#define $RM 4
#define $RN 4
#define $rows 4
#define $i e / 4
#define $j e % 4
#define $V 1
#define $index const unsigned m0 = id * 64u, n0 = 0u
#define $loads                                                                         \
    const auto a = [&](unsigned e) {                                                   \
        return fetch<float4>(p0 + (m0 + e / 4u) * 96u + e % 4u * 4u);                  \
    };                                                                                 \
    const auto b = [&](unsigned e, unsigned k0) {                                      \
        return p0[(k0 + e / 64u) * 96u + n0 + e % 64u];                                \
    }
#define $terms 96u
#define $more acc[0][0] += acc[1][1]
#define $second                                                                        \
    tile.multiply<true, false, 0>(part, min(part + 48u, 96u), moving<4, 0>(a), b,      \
                                  next_early, dot)
#define $parts 2
#define $share 48u
#define $sharing parts_in_cluster<2, 4, 64>
#define $sums row_sums<64, 16, 4>
#define $lines 64
#define $start row_sums<64, 16, 4> sums = {}
#define $room __shared__ float total[1][64][row_sums<64, 16, 4>::PARTS], factor[1][64]
#define $totals sums.total(sums.sum, total[0])
#define $leave shares.rows[line] = sums.of(total[0], line)
#define $factor factor[0][line] = add_row(shares, 0, line) + row.v
#define $shared 64u
#define $also y[e] = factor[0][e]
#define $held struct found_y { float v; }
#define $vectors 16
#define $found
#define $together 2
#define $at const int i = $i, j = $j
#define $hold f.v = p0[i * 4 + j]
#define $rowHeld struct found_row { float v; }
#define $rowHold f.v = p0[m0 + line]
#define $along true, false
#define $early 2
#define $a summing(moving<4, 0>(a), &sums)
#define $b b
#define $store y[(m0 + tile.row(i)) * 64u + n0 + tile.column(j)] = sum[0] + acc[i % 4][j % 4] * f.v
#endif

#ifdef LINT_tiles
#include "tiles_loads.cu"
#include "tiles_rows.cu"
#endif

#ifdef LINT_tiles_rows
#include "tiles_loads.cu"
#endif

#ifdef LINT_tiles_async
#include <cuda_pipeline_primitives.h>
#include "tiles_loads.cu"
#endif

#ifdef LINT_mma
#include <cuda_fp16.h>
#endif

#ifdef LINT_tiles_mma
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#include "mma.cu"
#include "tiles_loads.cu"
#include "tiles_async.cu"
#include "tiles_rows.cu"
#endif

#ifdef LINT_tiles_cross
#include "tiles_loads.cu"
#include "tiles_rows.cu"
#include "tiles.cu"
#endif

#if defined(LINT_tiles_warpgroup) || defined(LINT_tiles_patch)
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#include "mma.cu"
#include "tiles_loads.cu"
#include "tiles_async.cu"
#include "tiles_rows.cu"
#include "tiles_mma.cu"
#endif

#ifdef LINT_warp
#define $join v += other
#endif

#ifdef LINT_warp_sums
static __device__ float warp_sum(float v) { return v; }
#define $type float2
#define $each make_float2(warp_sum(v.x), warp_sum(v.y))
#define $add v.x += part[j].x
#endif

#endif  // EIN_LINT_PRELUDE_CUH
