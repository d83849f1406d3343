//@key tf32  whether products of f32 values rounded to TF32 are wanted
//@key half  whether products of f16 values are wanted
//@key rows  whether sums along rows are taken of fragments (tiles_mma.cu)
//@key older  whether devices run the program whose tensor cores do not multiply TF32
#ifdef __CUDA_ARCH__
#define TENSOR_CORES __CUDA_ARCH__
#else
#define TENSOR_CORES 0
#endif

// What tensor cores multiply. A fragment is what the 32 lanes of a warp hold of 16 lines of a
// factor (rows of the first one, columns of the second) and of 32 bytes of each: its registers are
// PTX's operand A; or those of the second factor (B): registers 0 and 1, and 2 and 3, are operands
// B of 8 lines, which the instruction wants side by side. In memory its rows are lines of terms
// (ALONG) or terms of lines, 16 bytes of a row together. Without tensor cores the lanes exchange
// fragments and multiply them term by term.
template <typename T>
struct tensor_type;

// The address of shared memory that ldmatrix takes.
template <typename T>
static __device__ __forceinline__ unsigned shared_address(const T *p) {
    unsigned at = 0u;
#ifdef __CUDA_ARCH__
#if CUDART_VERSION >= 11000
    at = static_cast<unsigned>(__cvta_generic_to_shared(p));
#else
    asm("{.reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}" : "=r"(at) : "l"(p));
#endif
#else
    (void)p;
#endif
    return at;
}

// Four times 8 rows of 16 bytes, which begin at the lanes' places in turn: lane 4g + t gets word t
// of the rows g.
template <typename T>
static __device__ __forceinline__ void fragment_rows(unsigned (&q)[4], const T *p, unsigned at) {
#if TENSOR_CORES >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                 : "r"(shared_address(p) + at * unsigned(sizeof *p))
                 : "memory");
#else
    const unsigned l = threadIdx.x % 32u;
#pragma unroll
    for (unsigned i = 0; i < 4u; i++) {
        const T *row = p + __shfl_sync(0xffffffffu, at, 8u * i + l / 4u);
        q[i] = reinterpret_cast<const unsigned *>(row)[l % 4u];
    }
#endif
}

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
#define ROUNDS_TF32 (TENSOR_CORES >= 900 && CUDART_VERSION >= 11080)

template <>
struct tensor_type<float> {
    // The nearest TF32 number, with 10 bits of mantissa; ties away from zero, or to even where one
    // instruction does that.
    static __device__ __forceinline__ float rounded(float v) {
        unsigned u = __float_as_uint(v);
#if ROUNDS_TF32
        asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(u) : "f"(v));
#elif TENSOR_CORES >= 800
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(v));
#else
        u = v == v ? (u + 0x1000u) & ~0x1fffu : 0x7fffffffu;  // the one NaN of the instruction
#endif
        return __uint_as_float(u);
    }
    static __device__ __forceinline__ float4 rounded(float4 v) {
        return make_float4(rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w));
    }

    // The same of a fragment, whose last 13 bits nobody reads; a NaN stays as it is.
    static __device__ __forceinline__ void round_words(unsigned (&q)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float v = __uint_as_float(q[i]);
            if (ROUNDS_TF32) q[i] = __float_as_uint(rounded(v));
            else if (v == v) q[i] += 0x1000u;
        }
    }

    // Row and column of memory that a lane reads first.
    template <bool ALONG, bool B>
    static __device__ __forceinline__ unsigned row() {
        const unsigned l = threadIdx.x % 32u;
        return !ALONG ? l % 4u : B ? l % 8u + l / 16u * 8u : l % 16u;
    }
    template <bool ALONG, bool B>
    static __device__ __forceinline__ unsigned column() {
        const unsigned l = threadIdx.x % 32u;
        return !ALONG ? l / 4u : B ? l / 8u % 2u * 4u : l / 16u * 4u;
    }
    // From there on; `above`: eight lines further on, `next`: how far four terms are away. Lane 4g
    // + t: lines g and g + 8 at term t, then at term t + 4; of B line g at both, then g + 8.
    template <bool ALONG, bool B>
    static __device__ __forceinline__ void fragment(unsigned (&q)[4], const float *p, unsigned at,
                                                    unsigned above, unsigned next) {
        if (ALONG) fragment_rows(q, p, at);
#pragma unroll
        for (int i = 0; i < (ALONG ? 0 : 4); i++) {
            const unsigned line = B ? i / 2 : i % 2, term = B ? i % 2 : i / 2;
            q[i] = __float_as_uint(p[(line ? above : at) + term * next]);
        }
    }

    //@if rows
    // A register less `first`, and what it holds added to sums of values and of squares.
    static __device__ __forceinline__ unsigned minus(unsigned q, float first) {
        return __float_as_uint(__uint_as_float(q) - first);
    }
    static __device__ __forceinline__ void add(unsigned q, float &sum, float &square) {
        const float v = __uint_as_float(q);
        sum += v;
        square += v * v;
    }

    //@end
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
        //@if older
        //@else
#elif TENSOR_CORES
        // A program in TF32 does not start on such a device.
        asm volatile("trap;");
        //@end
#else
        multiply_add_words<tensor_type>(c, a, b0, b1);
#endif
    }
};
//@end
//@if half

// The same transposed: halves g of the rows 2t and 2t + 1.
template <typename T>
static __device__ __forceinline__ void fragment_columns(unsigned (&q)[4], const T *p, unsigned at) {
#if TENSOR_CORES >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3])
                 : "r"(shared_address(p) + at * unsigned(sizeof *p))
                 : "memory");
#else
    const unsigned l = threadIdx.x % 32u;
#pragma unroll
    for (unsigned i = 0; i < 4u; i++) {
        q[i] = 0u;
#pragma unroll
        for (unsigned k = 0; k < 2u; k++) {
            const T *row = p + __shfl_sync(0xffffffffu, at, 8u * i + l % 4u * 2u + k);
            q[i] |= static_cast<unsigned>(static_cast<__half_raw>(row[l / 4u]).x) << 16u * k;
        }
    }
#endif
}

template <>
struct tensor_type<__half> {
    static __device__ __forceinline__ unsigned pair(float low, float high) {
        const __half2 v = __floats2half2_rn(low, high);
        return *reinterpret_cast<const unsigned *>(&v);
    }
    static __device__ __forceinline__ uint4 rounded(uint4 v) { return v; }
    static __device__ __forceinline__ uint2 rounded(uint2 v) { return v; }
    static __device__ __forceinline__ __half rounded(__half v) { return v; }
    static __device__ __forceinline__ __half rounded(float v) { return __float2half_rn(v); }
    static __device__ __forceinline__ uint2 rounded(float4 v) {
        return make_uint2(pair(v.x, v.y), pair(v.z, v.w));
    }

    static __device__ __forceinline__ void round_words(unsigned (&)[4]) {}

    // As for f32. Lane 4g + t: lines g and g + 8 at terms 2t and 2t + 1, then at terms 8 further
    // on; of B line g at both, then g + 8.
    template <bool ALONG, bool B>
    static __device__ __forceinline__ unsigned row() {
        const unsigned l = threadIdx.x % 32u;
        return ALONG != B ? l % 16u : l % 8u + l / 16u * 8u;
    }
    template <bool ALONG, bool B>
    static __device__ __forceinline__ unsigned column() {
        const unsigned l = threadIdx.x % 32u;
        return ALONG != B ? l / 16u * 8u : l / 8u % 2u * 8u;
    }
    template <bool ALONG, bool B>
    static __device__ __forceinline__ void fragment(unsigned (&q)[4], const __half *p, unsigned at,
                                                    unsigned, unsigned) {
        if (ALONG) fragment_rows(q, p, at);
        else fragment_columns(q, p, at);
    }

    static __device__ __forceinline__ float value(unsigned bits) {
        __half_raw v;
        v.x = static_cast<unsigned short>(bits);
        return __half2float(v);
    }
    //@if rows
    static __device__ __forceinline__ unsigned minus(unsigned q, __half first) {
#if TENSOR_CORES >= 530
        const __half2 v = __hsub2(*reinterpret_cast<const __half2 *>(&q), __half2half2(first));
        return *reinterpret_cast<const unsigned *>(&v);
#else
        const float f = __half2float(first);
        return pair(value(q & 0xffffu) - f, value(q >> 16) - f);
#endif
    }
    static __device__ __forceinline__ void add(unsigned q, float &sum, float &square) {
        const float low = value(q & 0xffffu), high = value(q >> 16);
        sum += low;
        sum += high;
        square += low * low;
        square += high * high;
    }
    //@end
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
