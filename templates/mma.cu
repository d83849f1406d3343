//@key tf32  whether products of f32 values rounded to TF32 are wanted
//@key half  whether products of f16 values are wanted
#ifdef __CUDA_ARCH__
#define TENSOR_CORES __CUDA_ARCH__
#else
#define TENSOR_CORES 0
#endif

// What tensor cores multiply. A fragment is what the 32 lanes of a warp hold of 16 lines of a
// factor (rows of the first one, columns of the second) and of 32 bytes of each: its registers are
// PTX's operand A; registers 0 and 2, and 1 and 3, are operands B of 8 lines. Without tensor cores
// the lanes exchange fragments and multiply them term by term.
template <typename T>
struct tensor_type;

// c += A B for 16 rows, 8 columns and 32 bytes of terms. Lane 4g + t has columns 2t and 2t + 1 of
// row g, then of row g + 8.
template <typename T>
static __device__ __forceinline__ void multiply_add_words(float (&c)[4], const unsigned (&a)[4],
                                                          unsigned b0, unsigned b1) {
    typedef unsigned long long pair;
    const int g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
    const pair b = static_cast<pair>(b1) << 32 | b0;
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const pair rows = static_cast<pair>(a[2 * k + 1]) << 32 | a[2 * k];
            const pair x = __shfl_sync(0xffffffffu, rows, 4 * g + q);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const pair columns = __shfl_sync(0xffffffffu, b, 4 * (2 * t + j) + q);
                const unsigned y = static_cast<unsigned>(columns >> 32 * k);
                c[j] += T::word(static_cast<unsigned>(x), y);
                c[2 + j] += T::word(static_cast<unsigned>(x >> 32), y);
            }
        }
}
//@if tf32

template <>
struct tensor_type<float> {
    // The nearest TF32 number, with 10 bits of mantissa; ties away from zero.
    static __device__ __forceinline__ float rounded(float v) {
        unsigned u = __float_as_uint(v);
#if TENSOR_CORES >= 800
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(v));
#else
        u = v == v ? (u + 0x1000u) & ~0x1fffu : 0x7fffffffu;  // the one NaN of the instruction
#endif
        return __uint_as_float(u);
    }
    static __device__ __forceinline__ float4 rounded(float4 v) {
        return make_float4(rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w));
    }

    // Lane 4g + t: lines g and g + 8 at term t, then at term t + 4. Term k of line i is
    // p[i * pitch + k] or, where lines lie together (not ALONG), p[k * pitch + i].
    template <bool ALONG>
    static __device__ __forceinline__ void fragment(unsigned (&q)[4], const float *p, int pitch) {
        const int g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int line = g + i % 2 * 8, k = t + i / 2 * 4;
            q[i] = __float_as_uint(p[ALONG ? line * pitch + k : k * pitch + line]);
        }
    }

    // What a register of A and one of B add; of both the bits of TF32 alone are read.
    static __device__ __forceinline__ float word(unsigned a, unsigned b) {
        return __uint_as_float(a & ~0x1fffu) * __uint_as_float(b & ~0x1fffu);
    }

    static __device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4],
                                                        unsigned b0, unsigned b1) {
#if TENSOR_CORES >= 800
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif TENSOR_CORES
        asm volatile("trap;");  // a program in TF32 does not start on such a device
#else
        multiply_add_words<tensor_type>(c, a, b0, b1);
#endif
    }
};
//@end
//@if half

template <>
struct tensor_type<__half> {
    static __device__ __forceinline__ unsigned bits(__half v) {
        return static_cast<__half_raw>(v).x;
    }
    static __device__ __forceinline__ unsigned pair(float low, float high) {
        const __half2 v = __floats2half2_rn(low, high);
        return *reinterpret_cast<const unsigned *>(&v);
    }
    static __device__ __forceinline__ uint4 rounded(uint4 v) { return v; }
    static __device__ __forceinline__ __half rounded(__half v) { return v; }
    static __device__ __forceinline__ __half rounded(float v) { return __float2half_rn(v); }
    static __device__ __forceinline__ uint2 rounded(float4 v) {
        return make_uint2(pair(v.x, v.y), pair(v.z, v.w));
    }

    // Lane 4g + t: lines g and g + 8 at terms 2t and 2t + 1, then at terms 8 further on. ldmatrix
    // takes the places of four times 8 rows of 8 halves from the lanes in turn, and transposes
    // where the rows are terms. Term k of line i as above.
    template <bool ALONG>
    static __device__ __forceinline__ void fragment(unsigned (&q)[4], const __half *p, int pitch) {
        const int l = threadIdx.x % 32u, low = l % 8 + (ALONG ? l / 8 % 2 : l / 16) * 8,
                  row = low * pitch + (ALONG ? l / 16 : l / 8 % 2) * 8;
#if TENSOR_CORES >= 750
        unsigned at;
        asm("{.reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}"
            : "=r"(at)
            : "l"(p + row));
        if (ALONG)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                         : "r"(at)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                         : "r"(at)
                         : "memory");
#else
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned h[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const int r = ALONG ? l / 4 : l % 4 * 2 + k, c = ALONG ? l % 4 * 2 + k : l / 4;
                h[k] = bits(p[__shfl_sync(0xffffffffu, row, 8 * i + r) + c]);
            }
            q[i] = h[0] | h[1] << 16;
        }
#endif
    }

    static __device__ __forceinline__ float value(unsigned half) {
        __half_raw v;
        v.x = static_cast<unsigned short>(half);
        return __half2float(v);
    }
    static __device__ __forceinline__ float word(unsigned a, unsigned b) {
        const float low = value(a & 0xffffu) * value(b & 0xffffu);
        return low + value(a >> 16) * value(b >> 16);
    }

    static __device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4],
                                                        unsigned b0, unsigned b1) {
#if TENSOR_CORES >= 800
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif TENSOR_CORES >= 750
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%8}, {%0, %1, %2, %3};\n"
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%6, %7}, {%9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
        multiply_add_words<tensor_type>(c, a, b0, b1);
#endif
    }
};
//@end
