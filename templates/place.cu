// A value and its place: of two the greater value stays (MAX; else the lesser), of equal ones that
// with the first place (LAST: the last). NaN never does.
template <bool MAX, bool LAST, typename V, typename P>
struct ranked {
    V value;
    P place;

    __device__ __forceinline__ void take(V v, P p) {
        const bool better = MAX ? v > value : v < value;
        const bool beyond = LAST ? p > place : p < place;
        if (better || (v == value && beyond)) {
            value = v;
            place = p;
        }
    }

    __device__ __forceinline__ void take_warp() {  // every lane gets the result
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
            const V v = __shfl_xor_sync(0xffffffffu, value, d);
            const P p = __shfl_xor_sync(0xffffffffu, place, d);
            take(v, p);
        }
    }

    __device__ __forceinline__ void take_block(ranked *part) {  // 256 threads, 8 of part
        take_warp();
        if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = *this;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 8; j++) take(part[j].value, part[j].place);
    }
};
