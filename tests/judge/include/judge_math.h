// Device functions of CUDA C++ on the CPU: atomics, cached loads, intrinsics, min and max.
#ifndef JUDGE_MATH_H
#define JUDGE_MATH_H

// glibc declares private functions with these names, hence macros
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)

static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
static inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static inline double rsqrt(double a) { return 1.0 / sqrt(a); }
static inline float rcbrtf(float a) { return 1.0f / cbrtf(a); }
static inline float sinpif(float a) { return (float)sin((double)a * M_PI); }
static inline float cospif(float a) { return (float)cos((double)a * M_PI); }
static inline float normcdff(float a) { return (float)(0.5 * erfc((double)a * -M_SQRT1_2)); }

// No memcpy, which without optimisation is a call, and with the address sanitizer a slow one.
template <class To, class From>
JUDGE_OWN static inline To judge_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    return __builtin_bit_cast(To, value);
}

static inline int __float_as_int(float a) { return judge_bits<int>(a); }
static inline unsigned __float_as_uint(float a) { return judge_bits<unsigned>(a); }
static inline float __int_as_float(int a) { return judge_bits<float>(a); }
static inline float __uint_as_float(unsigned a) { return judge_bits<float>(a); }
static inline long long __double_as_longlong(double a) { return judge_bits<long long>(a); }
static inline double __longlong_as_double(long long a) { return judge_bits<double>(a); }

// The device's conversions saturate and turn NaN into 0; a C++ cast outside the range is undefined.
static inline int judge_to_int(float a) {
    return a != a                ? 0
           : a >= 2147483648.0f  ? 2147483647
           : a <= -2147483648.0f ? -2147483647 - 1
                                 : (int)a;
}
static inline int __float2int_rn(float a) { return judge_to_int(rintf(a)); }
static inline int __float2int_rz(float a) { return judge_to_int(truncf(a)); }
static inline int __float2int_rd(float a) { return judge_to_int(floorf(a)); }
static inline int __float2int_ru(float a) { return judge_to_int(ceilf(a)); }
static inline float __int2float_rn(int a) { return (float)a; }
static inline float __uint2float_rn(unsigned a) { return (float)a; }

static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// ---- loads and stores with cache hints

template <class T>
static inline T __ldg(const T *p) {
    return *p;
}
template <class T>
static inline T __ldca(const T *p) {
    return *p;
}
template <class T>
static inline T __ldcg(const T *p) {
    return *p;
}
template <class T>
static inline T __ldcs(const T *p) {
    return *p;
}
template <class T>
static inline void __stcg(T *p, T value) {
    *p = value;
}
template <class T>
static inline void __stcs(T *p, T value) {
    *p = value;
}
template <class T>
static inline void __stwt(T *p, T value) {
    *p = value;
}
// Only one thread runs at a time, so fences are there for the race mode alone.
static inline void __threadfence() { judge_threadfence(); }
static inline void __threadfence_block() {}

// ---- min and max: fminf/fmaxf for floats (a NaN loses), common type for integers

template <class A, class B>
static inline typename std::common_type<A, B>::type min(A a, B b) {
    using T = typename std::common_type<A, B>::type;
    static_assert(std::is_floating_point<A>::value == std::is_floating_point<B>::value,
                  "min of an integer and a float");
    if constexpr (std::is_floating_point<T>::value) {
        return (T)a != (T)a || (T)b < (T)a ? (T)b : (T)a;
    } else {
        return (T)b < (T)a ? (T)b : (T)a;
    }
}

template <class A, class B>
static inline typename std::common_type<A, B>::type max(A a, B b) {
    using T = typename std::common_type<A, B>::type;
    static_assert(std::is_floating_point<A>::value == std::is_floating_point<B>::value,
                  "max of an integer and a float");
    if constexpr (std::is_floating_point<T>::value) {
        return (T)a != (T)a || (T)a < (T)b ? (T)b : (T)a;
    } else {
        return (T)a < (T)b ? (T)b : (T)a;
    }
}

// ---- atomics: real atomic instructions, so that race mode can tell them from plain accesses

// Applies `change` to *p by compare-and-swap and returns the old value. Bits is the unsigned type
// of T's size.
template <class Bits, class T, class F>
static inline T judge_atomic(T *p, F change) {
    Bits *word = reinterpret_cast<Bits *>(p);
    Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        Bits wanted = judge_bits<Bits>(static_cast<T>(change(judge_bits<T>(old))));
        if (__atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            return judge_bits<T>(old);
        }
    }
}

#define JUDGE_ATOMICS(T, Bits)                                                  \
    static inline T atomicAdd(T *p, T v) {                                      \
        return judge_atomic<Bits>(p, [v](T old) { return (T)(old + v); });      \
    }                                                                           \
    static inline T atomicExch(T *p, T v) {                                     \
        return judge_atomic<Bits>(p, [v](T) { return v; });                     \
    }                                                                           \
    static inline T atomicMin(T *p, T v) {                                      \
        return judge_atomic<Bits>(p, [v](T old) { return v < old ? v : old; }); \
    }                                                                           \
    static inline T atomicMax(T *p, T v) {                                      \
        return judge_atomic<Bits>(p, [v](T old) { return old < v ? v : old; }); \
    }
#define JUDGE_INTEGER_ATOMICS(T, Bits)                                                            \
    static inline T atomicAnd(T *p, T v) {                                                        \
        return judge_atomic<Bits>(p, [v](T old) { return (T)(old & v); });                        \
    }                                                                                             \
    static inline T atomicOr(T *p, T v) {                                                         \
        return judge_atomic<Bits>(p, [v](T old) { return (T)(old | v); });                        \
    }                                                                                             \
    static inline T atomicXor(T *p, T v) {                                                        \
        return judge_atomic<Bits>(p, [v](T old) { return (T)(old ^ v); });                        \
    }                                                                                             \
    static inline T atomicCAS(T *p, T expected, T v) {                                            \
        return judge_atomic<Bits>(p, [expected, v](T old) { return old == expected ? v : old; }); \
    }
static inline unsigned atomicInc(unsigned *p, unsigned limit) {
    return judge_atomic<unsigned>(p, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}
JUDGE_ATOMICS(int, unsigned)
JUDGE_ATOMICS(unsigned, unsigned)
JUDGE_ATOMICS(unsigned long long, unsigned long long)
JUDGE_ATOMICS(float, unsigned)
JUDGE_ATOMICS(double, unsigned long long)
JUDGE_INTEGER_ATOMICS(int, unsigned)
JUDGE_INTEGER_ATOMICS(unsigned, unsigned)
JUDGE_INTEGER_ATOMICS(unsigned long long, unsigned long long)
#undef JUDGE_ATOMICS
#undef JUDGE_INTEGER_ATOMICS

#endif
