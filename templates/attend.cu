//@key tf32  some kernel multiplies f32 values rounded to TF32
//@key half  some kernel multiplies halves
//@key across  some kernel has values whose keys lie together
// A fragment of rows that lie `pitch` elements apart.
template <bool ALONG, bool B, typename T>
static __device__ __forceinline__ void pitched_fragment(unsigned (&q)[4], const T *p,
                                                        unsigned pitch) {
    typedef tensor_type<T> type;
    const unsigned at = type::template row<ALONG, B>() * pitch + type::template column<ALONG, B>();
    type::template fragment<ALONG, B>(q, p, at, at + 8u, 4u * pitch);
}

// Beside the fragments of what lies in rows, an attention on tensor cores multiplies its weights,
// which a warp has as the sums of the first product left them, with columns of the values.
template <typename T>
struct attend;

template <int N>
struct shared_words {
    uint4 word[N];
};

//@if tf32
template <>
struct attend<float> {
    // Operand A of weights of keys 0 to 7: a lane has keys 2t and 2t + 1, as terms t and t + 4.
    static __device__ __forceinline__ void weights(const float (*s)[4], unsigned (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = __float_as_uint(tensor_type<float>::rounded(s[0][i % 2 * 2 + i / 2]));
    }

    // Keys 0 to 7 in the same order, of columns 0 to 7 (registers 0 and 1) and 8 to 15.
    static __device__ __forceinline__ void values(const float *p, int pitch, unsigned (&b)[4]) {
        const int g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i] = __float_as_uint(p[(2 * t + i % 2) * pitch + i / 2 * 8 + g]);
    }

    //@if across
    // The same where a column's keys lie together.
    static __device__ __forceinline__ void columns(const float *p, int pitch, unsigned (&b)[4]) {
        const int g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float2 v = *reinterpret_cast<const float2 *>(&p[(i * 4 + g) * pitch + 2 * t]);
            b[i] = __float_as_uint(v.x);
            b[i + 1] = __float_as_uint(v.y);
        }
    }

    //@end
    // Rounds four elements that were copied as they are in memory.
    static __device__ __forceinline__ void round(float *p) {
        float4 *const four = reinterpret_cast<float4 *>(p);
        *four = tensor_type<float>::rounded(*four);
    }
};

//@end
//@if half
template <>
struct attend<__half> {
    // Operand A of weights of keys 0 to 15.
    static __device__ __forceinline__ void weights(const float (*s)[4], unsigned (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = tensor_type<__half>::pair(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
    }

    // Keys 0 to 15, of columns 0 to 7 (registers 0 and 1) and 8 to 15.
    static __device__ __forceinline__ void values(const __half *p, int pitch, unsigned (&b)[4]) {
        pitched_fragment<false, true>(b, p, static_cast<unsigned>(pitch));
    }
    //@if across

    // The same where a column's keys lie together.
    static __device__ __forceinline__ void columns(const __half *p, int pitch, unsigned (&b)[4]) {
        pitched_fragment<true, true>(b, p, static_cast<unsigned>(pitch));
    }
    //@end
};

//@end
// Stores one or several elements in shared memory as the factors of a product.
template <typename T, typename V>
static __device__ __forceinline__ void attend_put(T *to, V v) {
    typedef decltype(tensor_type<T>::rounded(v)) stored;
    *reinterpret_cast<stored *>(to) = tensor_type<T>::rounded(v);
}
