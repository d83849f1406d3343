// What the interpreter of PTX (ptx.h) makes of instructions, each compared with plain C, bit by
// bit: numbers at the edges, every byte of tables, shifts beyond the width. The kernels are PTX
// alone: run_judge_tests has them interpreted.
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long wide;

#ifdef __CUDA_ARCH__
#define ASM(...) asm volatile(__VA_ARGS__)
#else
#define ASM(...)
#endif

enum { N = 4096 };

static float as_float(unsigned v) {
    float f;
    memcpy(&f, &v, 4);
    return f;
}
static unsigned as_word(float f) {
    unsigned v;
    memcpy(&v, &f, 4);
    return v;
}
static int top(unsigned v) { return v >> 31 ? -1 : 0; }

// Each row: a name, the instruction of three words, and C for the same, with a, b and c. A float's
// NaN is compared as one.
#define WORDS(_)                                                                                  \
    _(prmt, "prmt.b32 %0, %1, %2, %3;", permuted(a, b, c))                                        \
    _(shf_l_wrap, "shf.l.wrap.b32 %0, %1, %2, %3;", (unsigned)(both(a, b) << c % 32 >> 32))       \
    _(shf_r_wrap, "shf.r.wrap.b32 %0, %1, %2, %3;", (unsigned)(both(a, b) >> c % 32))             \
    _(shf_l_clamp, "shf.l.clamp.b32 %0, %1, %2, %3;",                                             \
      c > 31 ? a : (unsigned)(both(a, b) << c >> 32))                                             \
    _(shf_r_clamp, "shf.r.clamp.b32 %0, %1, %2, %3;", c > 31 ? b : (unsigned)(both(a, b) >> c))   \
    _(lop3_majority, "lop3.b32 %0, %1, %2, %3, 0xe8;", (a & b) | (a & c) | (b & c))               \
    _(lop3_choice, "lop3.b32 %0, %1, %2, %3, 0xca;", (a & b) | (~a & c))                          \
    _(lop3_and_or, "lop3.b32 %0, %1, %2, %3, 0xf8;", a | (b & c))                                 \
    _(bfe_u, "bfe.u32 %0, %1, %2, %3;", field(a, b, c))                                           \
    _(bfe_s, "bfe.s32 %0, %1, %2, %3;", signed_field(a, b, c))                                    \
    _(bfi, "bfi.b32 %0, %1, %2, %3, 7;", inserted(a, b, c, 7))                                    \
    _(shl, "shl.b32 %0, %1, %2;", b > 31 ? 0 : a << b)                                            \
    _(shr_u, "shr.u32 %0, %1, %2;", b > 31 ? 0 : a >> b)                                          \
    _(shr_s, "shr.s32 %0, %1, %2;", (unsigned)(b > 31 ? top(a) : (int)a >> b))                    \
    _(mul_hi_u, "mul.hi.u32 %0, %1, %2;", (unsigned)((wide)a * b >> 32))                          \
    _(mul_hi_s, "mul.hi.s32 %0, %1, %2;", (unsigned)((long long)(int)a * (int)b >> 32))           \
    _(mad_lo, "mad.lo.s32 %0, %1, %2, %3;", a *b + c)                                             \
    _(mad_hi, "mad.hi.u32 %0, %1, %2, %3;", (unsigned)((wide)a * b >> 32) + c)                    \
    _(div_s, "div.s32 %0, %1, %2;", b + 1 < 2 ? 0 - (b == 0) + (b ? 0 - a : 0) : (int)a / (int)b) \
    _(rem_s, "rem.s32 %0, %1, %2;", b == 0 ? a : b + 1 == 0 ? 0 : (int)a % (int)b)                \
    _(rem_u, "rem.u32 %0, %1, %2;", b ? a % b : a)                                                \
    _(min_s, "min.s32 %0, %1, %2;", (int)a < (int)b ? a : b)                                      \
    _(max_u, "max.u32 %0, %1, %2;", a > b ? a : b)                                                \
    _(abs_s, "abs.s32 %0, %1;", (int)a < 0 ? 0 - a : a)                                           \
    _(popc, "popc.b32 %0, %1;", (unsigned)__builtin_popcount(a))                                  \
    _(clz, "clz.b32 %0, %1;", a ? (unsigned)__builtin_clz(a) : 32)                                \
    _(brev, "brev.b32 %0, %1;", reversed(a))                                                      \
    _(dp4a, "dp4a.s32.s32 %0, %1, %2, %3;", dots(a, b, c))                                        \
    _(dp2a, "dp2a.hi.u32.u32 %0, %1, %2, %3;",                                                    \
      c + (a & 0xffff) * (b >> 16 & 0xff) + (a >> 16) * (b >> 24))                                \
    _(carry, "{.reg .u32 t; add.cc.u32 t, %1, %2; addc.u32 %0, %3, 0;}",                          \
      c + (((wide)a + b) >> 32 ? 1 : 0))                                                          \
    _(borrow, "{.reg .u32 t; sub.cc.u32 t, %1, %2; subc.u32 %0, %3, 0;}", c - (a < b))            \
    _(setp_or,                                                                                    \
      "{.reg .pred p, q; setp.lt.s32 p, %1, %2; setp.gt.or.u32 p|q, %1, %3, p;"                   \
      " selp.b32 %0, 5, 9, p;}",                                                                  \
      (int)a<(int)b || a> c ? 5 : 9)                                                              \
    _(setp_q,                                                                                     \
      "{.reg .pred p, q; setp.lt.s32 p|q, %1, %2; setp.gt.and.u32 q, %1, %3, !p;"                 \
      " selp.b32 %0, 5, 9, q;}",                                                                  \
      !((int)a < (int)b) && a > c ? 5 : 9)                                                        \
    _(guard, "{.reg .pred p; setp.eq.u32 p, %1, %2; mov.u32 %0, %3; @!p add.u32 %0, %1, %2;}",    \
      a == b ? c : a + b)                                                                         \
    _(bytes, "{.reg .u16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, l};}", a << 16 | a >> 16)      \
    _(sat_u8, "{.reg .u16 t; cvt.sat.u8.s32 t, %1; cvt.u32.u16 %0, t;}",                          \
      (int)a<0 ? 0 : a> 255 ? 255 : a)                                                            \
    _(s8, "{.reg .s16 t; cvt.s8.s32 t, %1; cvt.s32.s16 %0, t;}", (unsigned)(int)(signed char)a)   \
    _(low_word,                                                                                   \
      "{.reg .b64 t; .reg .b32 l; mov.b64 t, {%1, %2}; cvt.s64.s32 t, t;"                         \
      " mov.b64 {l, %0}, t; xor.b32 %0, %0, l;}",                                                 \
      a ^ (unsigned)top(a))                                                                       \
    _(wide_16, "{.reg .u16 l, h; mov.b32 {l, h}, %1; mul.wide.s16 %0, l, h;}",                    \
      (unsigned)((int)(short)a * (short)(a >> 16)))

// The same of floats: a, b and c are these.
#define FLOATS(_)                                                                               \
    _(fma_rn, "fma.rn.f32 %0, %1, %2, %3;", fmaf(a, b, c))                                      \
    _(fma_rm, "fma.rm.f32 %0, %1, %2, %3;", towards(a, b, c, -INFINITY))                        \
    _(fma_rp, "fma.rp.f32 %0, %1, %2, %3;", towards(a, b, c, INFINITY))                         \
    _(min_f, "min.f32 %0, %1, %2;",                                                             \
      a != a                             ? b                                                    \
      : b != b                           ? a                                                    \
      : a < b || signbit(a) > signbit(b) ? a                                                    \
                                         : b)                                                   \
    _(max_f, "max.f32 %0, %1, %2;", fmaxf(a, b) == 0 && a == b && signbit(a) ? b : fmaxf(a, b)) \
    _(div_f, "div.rn.f32 %0, %1, %2;", a / b)                                                   \
    _(div_about, "div.approx.f32 %0, %1, %2;",                                                  \
      fabsf(b) > 0x1p126f && !isinf(b) ? a * copysignf(0, b) : (float)((double)a / b))          \
    _(rcp, "rcp.rn.f32 %0, %1;", 1 / a)                                                         \
    _(sqrt_f, "sqrt.rn.f32 %0, %1;", sqrtf(a))                                                  \
    _(sign, "copysign.f32 %0, %1, %2;", copysignf(b, a))                                        \
    _(rni, "cvt.rni.f32.f32 %0, %1;", rintf(a))                                                 \
    _(rzi, "cvt.rzi.f32.f32 %0, %1;", truncf(a))                                                \
    _(rmi, "cvt.rmi.f32.f32 %0, %1;", floorf(a))                                                \
    _(rpi, "cvt.rpi.f32.f32 %0, %1;", ceilf(a))                                                 \
    _(sat, "cvt.sat.f32.f32 %0, %1;", a > 0 ? a < 1 ? a : 1 : 0)                                \
    _(to_s32, "{.reg .s32 t; cvt.rni.s32.f32 t, %1; mov.b32 %0, t;}", as_float(integer(a)))     \
    _(to_u32, "{.reg .u32 t; cvt.rzi.u32.f32 t, %1; mov.b32 %0, t;}",                           \
      as_float(!(a > 0)            ? 0                                                          \
               : a >= 4294967296.f ? ~0u                                                        \
                                   : (unsigned)a))                                              \
    _(of_s32, "{.reg .s32 t; mov.b32 t, %1; cvt.rn.f32.s32 %0, t;}", (float)(int)as_word(a))    \
    _(of_u32, "{.reg .u32 t; mov.b32 t, %1; cvt.rn.f32.u32 %0, t;}", (float)as_word(a))         \
    _(half, "{.reg .b16 t; cvt.rn.f16.f32 t, %1; cvt.f32.f16 %0, t;}", halved(a))               \
    _(pair,                                                                                     \
      "{.reg .b32 t; .reg .b16 l, h; cvt.rn.f16x2.f32 t, %1, %2; mov.b32 {l, h}, t;"            \
      " cvt.f32.f16 %0, l;}",                                                                   \
      halved(b))                                                                                \
    _(bfloat, "{.reg .b16 t; cvt.rn.bf16.f32 t, %1; cvt.f32.bf16 %0, t;}", brained(a))          \
    _(equal_u, "{.reg .pred p; setp.equ.f32 p, %1, %2; selp.f32 %0, %3, %1, p;}",               \
      a == b || a != a || b != b ? c : a)                                                       \
    _(unequal, "{.reg .pred p; setp.ne.f32 p, %1, %2; selp.f32 %0, %3, %1, p;}",                \
      (a < b || a > b) ? c : a)                                                                 \
    _(number, "{.reg .pred p; setp.num.f32 p, %1, %2; selp.f32 %0, %3, %1, p;}",                \
      a == a && b == b ? c : a)

static wide both(unsigned low, unsigned high) { return (wide)high << 32 | low; }
static unsigned permuted(unsigned a, unsigned b, unsigned select) {
    unsigned char from[8], to[4];
    memcpy(from, &a, 4);
    memcpy(from + 4, &b, 4);
    for (int k = 0; k < 4; k++) {
        const unsigned s = select >> 4 * k;
        to[k] = from[s % 8];
        if (s & 8) to[k] = to[k] >= 128 ? 255 : 0;
    }
    memcpy(&a, to, 4);
    return a;
}
static unsigned field(unsigned a, unsigned at, unsigned n) {
    unsigned r = 0;
    at &= 255, n &= 255;
    for (unsigned k = 0; k < n && k < 32; k++) r |= at + k < 32 ? (a >> (at + k) & 1) << k : 0;
    return r;
}
static unsigned signed_field(unsigned a, unsigned at, unsigned n) {
    unsigned r = 0;
    at &= 255, n &= 255;
    const unsigned last = at + n - 1 > 31 ? 31 : at + n - 1, sign = n ? a >> last & 1 : 0;
    for (unsigned k = 0; k < 32; k++) r |= (k < n && at + k < 32 ? a >> (at + k) & 1 : sign) << k;
    return r;
}
static unsigned inserted(unsigned a, unsigned b, unsigned at, unsigned n) {
    at &= 255;
    for (unsigned k = 0; k < n && at + k < 32; k++)
        b = (b & ~(1u << (at + k))) | (a >> k & 1) << (at + k);
    return b;
}
static unsigned reversed(unsigned a) {
    unsigned r = 0;
    for (int k = 0; k < 32; k++) r = r << 1 | (a >> k & 1);
    return r;
}
static unsigned dots(unsigned a, unsigned b, unsigned c) {
    for (int k = 0; k < 4; k++) c += (signed char)(a >> 8 * k) * (signed char)(b >> 8 * k);
    return c;
}
// The rounding of a * b + c to one side: the product is exact in long double, and of the sum what
// is lost is known.
static float towards(float a, float b, float c, float where) {
    const float near = fmaf(a, b, c);
    const long double p = (long double)a * b, sum = p + c, of_c = sum - p;
    const long double lost = (p - (sum - of_c)) + (c - of_c), beyond = (sum - near) + lost;
    if (isinf(near) && !isinf(a) && !isinf(b) && !isinf(c) && (near < 0) != (where < 0))
        return nextafterf(near, where);
    if (near == 0 && beyond == 0 && signbit(p) != signbit(c)) return copysignf(0, where);
    if (near != near || isinf(near) || beyond == 0 || (where < 0) == (beyond > 0)) return near;
    return nextafterf(near, where);
}
static unsigned integer(float a) {
    if (a != a) return 0;
    return a >= 2147483648.f    ? 0x7fffffffu
           : a <= -2147483648.f ? 0x80000000u
                                : (unsigned)(int)rintf(a);
}
// To 11 bits, or less where it is denormal; ties to even.
static float halved(float a) {
    if (a != a || isinf(a)) return a;
    int e;
    frexpf(a, &e);
    const int last = e - 11 < -24 ? -24 : e - 11;
    const double r = ldexp(rint(ldexp((double)a, -last)), last);
    return fabs(r) > 65504 ? copysignf(INFINITY, a) : copysignf((float)r, a);
}
static float brained(float a) {
    if (a != a || isinf(a) || a == 0) return a;
    int e;
    frexpf(a, &e);
    const int last = e - 8 < -133 ? -133 : e - 8;
    return copysignf((float)ldexp(rint(ldexp((double)a, -last)), last), a);
}

#define KERNEL(name, text, c)                                                         \
    static __global__ void name(const unsigned *in, unsigned *out) {                  \
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                     \
        unsigned r = 0;                                                               \
        ASM(text : "=r"(r) : "r"(in[3 * i]), "r"(in[3 * i + 1]), "r"(in[3 * i + 2])); \
        out[i] = r;                                                                   \
    }
#define FLOAT_KERNEL(name, text, c)                                                   \
    static __global__ void name(const float *in, float *out) {                        \
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                     \
        float r = 0;                                                                  \
        ASM(text : "=f"(r) : "f"(in[3 * i]), "f"(in[3 * i + 1]), "f"(in[3 * i + 2])); \
        out[i] = r;                                                                   \
    }
WORDS(KERNEL)
FLOATS(FLOAT_KERNEL)

static unsigned in[3 * N], got[N];
static int passed, failed;

template <class T>
static void check(const char *name, void (*kernel)(const T *, T *), T (*wanted)(T, T, T)) {
    T *from, *to;
    cudaMalloc(&from, sizeof in);
    cudaMalloc(&to, sizeof got);
    cudaMemcpy(from, in, sizeof in, cudaMemcpyHostToDevice);
    const dim3 grid(N / 128), block(128);
    kernel<<<grid, block, 0, 0>>>(from, to);
    cudaMemcpy(got, to, sizeof got, cudaMemcpyDeviceToHost);
    int bad = 0;
    for (int i = 0; i < N; i++) {
        T v[3], r, g;
        memcpy(v, in + 3 * i, sizeof v);
        memcpy(&g, got + i, sizeof g);
        r = wanted(v[0], v[1], v[2]);
        if (!memcmp(&r, &g, sizeof r) || (r != r && g != g)) continue;
        if (!bad++) {
            unsigned w;
            memcpy(&w, &r, sizeof w);
            printf("FAIL %s of %08x %08x %08x: %08x, not %08x\n", name, in[3 * i], in[3 * i + 1],
                   in[3 * i + 2], got[i], w);
        }
    }
    bad ? failed++ : passed++;
    cudaFree(from);
    cudaFree(to);
}

int main() {
    static const unsigned edges[] = {
        0,          1,          2,          7,          8,          31,         32,
        33,         63,         64,         255,        256,        0x7fff,     0x8000,
        0xffff,     0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000, 0x3f000000,
        0x40200000, 0x7f800000, 0xff800000, 0x7fc00000, 0x00800000, 0x007fffff, 0x477fe000,
        0x477ff000, 0x33000000, 0x4effffff, 0xcf000000};
    const int n = sizeof edges / sizeof *edges;
    unsigned long long state = 1;
    for (int i = 0; i < 3 * N; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const unsigned v = (unsigned)(state >> 32);
        // Edges with edges, anything, and floats near one another.
        in[i] = i < N ? edges[v % n] : i < 2 * N ? v : 0x3f000000 + v % 0x1800000;
        if (i % 3 == 2 && v % 4 == 0) in[i] = v % 40;
    }
#define CHECK(name, text, ...)                                                        \
    check<unsigned>(#name, name, [](unsigned a, unsigned b, unsigned c) -> unsigned { \
        (void)a, (void)b, (void)c;                                                    \
        return __VA_ARGS__;                                                           \
    });
#define CHECK_FLOAT(name, text, ...)                                   \
    check<float>(#name, name, [](float a, float b, float c) -> float { \
        (void)a, (void)b, (void)c;                                     \
        return __VA_ARGS__;                                            \
    });
    WORDS(CHECK)
    FLOATS(CHECK_FLOAT)
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
