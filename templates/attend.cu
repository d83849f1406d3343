//@key tf32  some kernel multiplies f32 values rounded to TF32
//@key half  some kernel multiplies halves
// A warp's multiply-adds on tensor cores: C[16,8] += A[16,K] B[K,8], fragments as the PTX manual
// has them for mma.m16n8k8 (tf32) and mma.m16n8k16 (f16). A word is one TF32 number, or two halves
// that are neighbours along K. Lane 4 * g + t has words t and t + 4 of rows g and g + 8 of A, and
// of column g of B; of C the columns 2 * t and 2 * t + 1 in rows g and g + 8.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define ATTEND_TENSOR 1
#else
#define ATTEND_TENSOR 0  // lanes exchange fragments and multiply words
#endif

template <typename T>
struct attend;

//@if tf32
template <>
struct attend<float> {
    typedef float word;

    static __device__ __forceinline__ float rounded(float v) {
#if ATTEND_TENSOR
        unsigned bits;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
        return __uint_as_float(bits);
#else
        return v == v ? __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u) : v;
#endif
    }

    static __device__ __forceinline__ void put(float *to, float v) { *to = rounded(v); }
    static __device__ __forceinline__ void put(float *to, float4 v) {
        *reinterpret_cast<float4 *>(to) =
            make_float4(rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w));
    }

    static __device__ __forceinline__ float get(const float *p) { return *p; }

    // A made of weights of keys 0 to 7: keys 2 * t are words t, keys 2 * t + 1 words t + 4.
    static __device__ __forceinline__ void weights(const float (*s)[4], float (&a)[4]) {
        a[0] = rounded(s[0][0]);
        a[1] = rounded(s[0][2]);
        a[2] = rounded(s[0][1]);
        a[3] = rounded(s[0][3]);
    }

    // B for keys 0 to 7 in the same order, of columns 0 to 7 and of 8 to 15.
    static __device__ __forceinline__ void columns(const float *p, int pitch, float (&b)[4]) {
        const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 4; i++) b[i] = p[(2 * t + i % 2) * pitch + i / 2 * 8 + g];
    }

#if ATTEND_TENSOR
    static __device__ __forceinline__ void multiply(float (&c)[4], const float (&a)[4], float b0,
                                                    float b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
              "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
    }
#else
    static __device__ __forceinline__ float dot(float a, float b) { return a * b; }
#endif
};

//@end
//@if half
// Eight f16 numbers, moved at once.
struct __align__(16) attend_half8 {
    __half v[8];
};

template <>
struct attend<__half> {
    typedef __half2 word;

    static __device__ __forceinline__ void put(__half *to, float v) { *to = __float2half_rn(v); }
    static __device__ __forceinline__ void put(__half *to, float4 v) {
        __half2 *pair = reinterpret_cast<__half2 *>(to);
        pair[0] = __floats2half2_rn(v.x, v.y);
        pair[1] = __floats2half2_rn(v.z, v.w);
    }
    static __device__ __forceinline__ void put(__half *to, attend_half8 v) {
        *reinterpret_cast<attend_half8 *>(to) = v;
    }

    static __device__ __forceinline__ __half2 get(const __half *p) {
        return *reinterpret_cast<const __half2 *>(p);
    }

    // A made of weights of keys 0 to 15.
    static __device__ __forceinline__ void weights(const float (*s)[4], __half2 (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = __floats2half2_rn(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
    }

    // B for keys 0 to 15, of columns 0 to 7 and of 8 to 15.
    static __device__ __forceinline__ void columns(const __half *p, int pitch, __half2 (&b)[4]) {
        const int lane = (int)threadIdx.x % 32;
#if ATTEND_TENSOR
        // The places of four times 8 rows of 8 halves, from the lanes in turn.
        const __half *mine = p + lane % 16 * pitch + lane / 16 * 8;
        unsigned r[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"((unsigned)__cvta_generic_to_shared(mine))
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; i++) b[i] = *reinterpret_cast<const __half2 *>(&r[i]);
#else
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __half *v = p + (i % 2 * 8 + lane % 4 * 2) * pitch + i / 2 * 8 + lane / 4;
            b[i] = __halves2half2(v[0], v[pitch]);
        }
#endif
    }

#if ATTEND_TENSOR
    static __device__ __forceinline__ unsigned bits(__half2 v) {
        return *reinterpret_cast<const unsigned *>(&v);
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const __half2 (&a)[4],
                                                    __half2 b0, __half2 b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(bits(a[0])), "r"(bits(a[1])), "r"(bits(a[2])), "r"(bits(a[3])), "r"(bits(b0)),
              "r"(bits(b1)));
    }
#else
    static __device__ __forceinline__ float dot(__half2 a, __half2 b) {
        const float2 x = __half22float2(a), y = __half22float2(b);
        return x.x * y.x + x.y * y.y;
    }
#endif
};

//@end
// A from rows of shared memory.
template <typename T, typename W>
static __device__ __forceinline__ void attend_rows(const T *p, int pitch, W (&a)[4]) {
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4, word = sizeof(W) / sizeof(T);
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = attend<T>::get(p + (g + i % 2 * 8) * pitch + (t + i / 2 * 4) * word);
}

template <typename T, typename W>
static __device__ __forceinline__ void attend_multiply(float (&c)[4], const W (&a)[4], W b0, W b1) {
#if ATTEND_TENSOR
    attend<T>::multiply(c, a, b0, b1);
#else
    const int lane = (int)threadIdx.x % 32;
    for (int w = 0; w < 4; w++) {
        W x[4], y[4];
        for (int i = 0; i < 4; i++) x[i] = __shfl_sync(0xffffffffu, a[i], lane / 4 * 4 + w);
        for (int i = 0; i < 2; i++) {
            const int from = lane % 4 * 8 + i * 4 + w;  // has column 2 * t + i
            y[i] = __shfl_sync(0xffffffffu, b0, from);
            y[2 + i] = __shfl_sync(0xffffffffu, b1, from);
        }
        for (int i = 0; i < 4; i++)
            c[i] += attend<T>::dot(x[i / 2], y[i % 2]) + attend<T>::dot(x[2 + i / 2], y[2 + i % 2]);
    }
#endif
}
