//@key few   some kernel multiplies without tensor cores what lanes load
//@key half  some of those load halves
// What a part of the keys gives for some rows: values by their weights, the largest scores and the
// sums of the weights, of (NO_KEY, 0, 0) where a row has none of these keys.
template <int ROWS, int COLS>
struct __align__(16) key_part {
    float acc[ROWS][COLS], top[ROWS], sum[ROWS];
};

struct joined_keys {
    float top, sum, acc[4];
};

// A row's four columns from `col` on of all N parts, in their order; SHARED: which lie in shared
// memory, not where other blocks left them.
template <int N, bool SHARED, int ROWS, int COLS>
static __device__ __forceinline__ joined_keys join_keys(const key_part<ROWS, COLS> *part, int row,
                                                        int col) {
    joined_keys all = {NO_KEY, 0.f, {0.f, 0.f, 0.f, 0.f}};
    float top[N];
#pragma unroll
    for (int p = 0; p < N; p++) {
        top[p] = SHARED ? part[p].top[row] : __ldcg(&part[p].top[row]);
        all.top = fmaxf(all.top, top[p]);
    }
#pragma unroll
    for (int p = 0; p < N; p++) {
        const float4 *const from = reinterpret_cast<const float4 *>(&part[p].acc[row][col]);
        const float4 v = SHARED ? *from : __ldcg(from);
        const float sum = SHARED ? part[p].sum[row] : __ldcg(&part[p].sum[row]);
        const float w = weight_of(top[p], all.top);
        all.sum += sum * w;
        all.acc[0] += v.x * w;
        all.acc[1] += v.y * w;
        all.acc[2] += v.z * w;
        all.acc[3] += v.w * w;
    }
    return all;
}
//@if few

// What a lane loads at once, in f32.
struct spread_keys {
    static __device__ __forceinline__ void to(float *x, float v) { x[0] = v; }
    static __device__ __forceinline__ void to(float *x, float4 v) {
        x[0] = v.x;
        x[1] = v.y;
        x[2] = v.z;
        x[3] = v.w;
    }
    //@if half
    static __device__ __forceinline__ void to(float *x, uint4 v) {
        const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __half2float(__ushort_as_half((unsigned short)(word[i] & 0xffffu)));
            x[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(word[i] >> 16)));
        }
    }
    //@end
};
//@end
