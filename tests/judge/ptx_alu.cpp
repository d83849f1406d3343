// Arithmetic of PTX.
#include <fenv.h>
#include <math.h>

#include <algorithm>

#include "ptx.h"

namespace ptx {

namespace {

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

template <class T>
constexpr bool real = std::is_floating_point<T>::value;

// ---- the forms of operations: D, then what is read

template <class Op, class D, class A = D>
void one(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<cell<D>>(i.o[0]);
    const auto *a = w.at<cell<A>>(i.o[1]);
    each(mask, [&](int l) { d[l] = put<D>(Op()(get<A>(a[l]))); });
}

template <class Op, class D, class A = D, class B = A>
void two(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<cell<D>>(i.o[0]);
    const auto *a = w.at<cell<A>>(i.o[1]);
    const auto *b = w.at<cell<B>>(i.o[2]);
    each(mask, [&](int l) { d[l] = put<D>(Op()(get<A>(a[l]), get<B>(b[l]))); });
}

template <class Op, class D, class A = D, class B = A, class C = D>
void three(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<cell<D>>(i.o[0]);
    const auto *a = w.at<cell<A>>(i.o[1]);
    const auto *b = w.at<cell<B>>(i.o[2]);
    const auto *c = w.at<cell<C>>(i.o[3]);
    each(mask, [&](int l) { d[l] = put<D>(Op()(get<A>(a[l]), get<B>(b[l]), get<C>(c[l]))); });
}

#define OP1(name, ...)               \
    struct name {                    \
        template <class T>           \
        T operator()(T a) const {    \
            return (T)(__VA_ARGS__); \
        }                            \
    };
#define OP2(name, ...)                 \
    struct name {                      \
        template <class T>             \
        T operator()(T a, T b) const { \
            return (T)(__VA_ARGS__);   \
        }                              \
    };
#define OP3(name, ...)                      \
    struct name {                           \
        template <class T>                  \
        T operator()(T a, T b, T c) const { \
            return (T)(__VA_ARGS__);        \
        }                                   \
    };

// Of two numbers the one that is none loses; -0 is less than 0.
template <class T>
T least(T a, T b) {
    if constexpr (real<T>) {
        return a != a ? b : b != b ? a : a < b || (a == b && std::signbit(a)) ? a : b;
    } else {
        return a < b ? a : b;
    }
}
template <class T>
T most(T a, T b) {
    if constexpr (real<T>) {
        return a != a ? b : b != b ? a : a > b || (a == b && !std::signbit(a)) ? a : b;
    } else {
        return a > b ? a : b;
    }
}

template <class T>
T high(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        typedef std::conditional_t<std::is_signed<T>::value, __int128, unsigned __int128> wide;
        return (T)((wide)a * (wide)b >> 64);
    } else {
        typedef std::conditional_t<std::is_signed<T>::value, s64, u64> wide;
        return (T)((wide)a * (wide)b >> 8 * sizeof(T));
    }
}

// Integers wrap: in unsigned numbers at least as wide as C's arithmetic.
template <class T>
using wraps = std::conditional_t<sizeof(T) == 8, u64, u32>;

struct add {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (real<T>) {
            return a + b;
        } else {
            return (T)((wraps<T>)a + (wraps<T>)b);
        }
    }
};
struct sub {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (real<T>) {
            return a - b;
        } else {
            return (T)((wraps<T>)a - (wraps<T>)b);
        }
    }
};
struct mul {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (real<T>) {
            return a * b;
        } else {
            return (T)((wraps<T>)a * (wraps<T>)b);
        }
    }
};
struct mad {
    template <class T>
    T operator()(T a, T b, T c) const {
        return (T)((wraps<T>)a * (wraps<T>)b + (wraps<T>)c);
    }
};
OP2(mul_high, high(a, b))
OP3(mad_high, (wraps<T>)high(a, b) + (wraps<T>)c)
OP2(over, a / b)
// By 0 all bits are set; the quotient that is too large wraps.
OP2(divided, b == 0 ? (T)-1 : b == (T)-1 && a < 0 ? (T)(0 - (wraps<T>)a) : (T)(a / b))
OP2(rest, b == 0 ? a : std::is_signed<T>::value && b == (T)-1 ? (T)0 : (T)(a % b))
OP2(minimum, least(a, b))
OP2(maximum, most(a, b))
OP2(both, a &b)
OP2(either, a | b)
OP2(differ, a ^ b)
OP1(invert, ~a)
OP1(minus, 0 - (wraps<T>)a)
OP1(negative, -a)
OP1(magnitude, a < 0 ? (T)(0 - (wraps<T>)a) : a)
OP1(absolute, fabs(a))
OP1(root, sqrt(a))
OP1(inverse, 1 / a)
OP2(signed_as, copysign(b, a))

struct fused {
    f32 operator()(f32 a, f32 b, f32 c) const { return __builtin_fmaf(a, b, c); }
    f64 operator()(f64 a, f64 b, f64 c) const { return __builtin_fma(a, b, c); }
};

template <class A, class D>
struct mul_wide {
    D operator()(A a, A b) const { return (D)((u64)(D)a * (u64)(D)b); }
};
template <class A, class D>
struct mad_wide {
    D operator()(A a, A b, D c) const { return (D)((u64)(D)a * (u64)(D)b + (u64)c); }
};

// Shifts by the width and more leave nothing, or the sign.
struct left {
    template <class T>
    T operator()(T a, u32 n) const {
        return n >= 8 * sizeof(T) ? (T)0 : (T)(a << n);
    }
};
struct right {
    template <class T>
    T operator()(T a, u32 n) const {
        const u32 most = 8 * sizeof(T) - 1;
        return std::is_signed<T>::value || n <= most ? (T)(a >> std::min(n, most)) : (T)0;
    }
};

struct ones {
    template <class T>
    u32 operator()(T a) const {
        return (u32)__builtin_popcountll(a);
    }
};
struct zeros {
    template <class T>
    u32 operator()(T a) const {
        return a ? (u32)__builtin_clzll(a) - (64 - 8 * sizeof(T)) : 8 * sizeof(T);
    }
};
struct mirrored {
    template <class T>
    T operator()(T a) const {
        T r = 0;
        for (size_t b = 0; b < 8 * sizeof(T); b++) {
            r |= (a >> b & 1) << (8 * sizeof(T) - 1 - b);
        }
        return r;
    }
};

// Bits [at, at + n) of a, with its last one's sign.
struct extract {
    template <class T>
    T operator()(T a, u32 at, u32 n) const {
        const u32 bits = 8 * sizeof(T);
        at &= 0xff;
        n &= 0xff;
        bool sign = std::is_signed<T>::value && n && (a >> std::min(at + n - 1, bits - 1) & 1);
        u64 r = at < bits ? (u64)(std::make_unsigned_t<T>)a >> at : 0;
        u64 keep = n >= 64 ? ~0ull : (1ull << n) - 1;
        u64 filled = at >= bits ? 0 : at + n > bits ? (1ull << (bits - at)) - 1 : keep;
        r &= keep;
        return (T)(sign ? r | ~(keep & filled) : r);
    }
};

template <class T>
void insert(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<T>(i.o[0]);
    const auto *a = w.at<T>(i.o[1]), *b = w.at<T>(i.o[2]);
    const auto *at = w.at<u32>(i.o[3]), *n = w.at<u32>(i.o[4]);
    each(mask, [&](int l) {
        u32 p = at[l] & 0xff, c = n[l] & 0xff;
        u64 keep = c >= 64 ? ~0ull : (1ull << c) - 1;
        u64 field = p >= 64 ? 0 : keep << p;
        u64 v = p >= 64 ? 0 : (u64)a[l] << p;
        d[l] = (T)((b[l] & ~field) | (v & field));
    });
}

// ---- dot products of bytes

template <int Parts, bool High, class A, class B>
struct dots {
    u32 operator()(u32 a, u32 b, u32 c) const {
        for (int p = 0; p < Parts; p++) {
            s32 x = Parts == 4 ? (std::is_signed<A>::value ? (s32)(int8_t)(a >> 8 * p)
                                                           : (s32)(u8)(a >> 8 * p))
                               : (std::is_signed<A>::value ? (s32)(s16)(a >> 16 * p)
                                                           : (s32)(u16)(a >> 16 * p));
            u32 byte = b >> 8 * (p + (High ? 2 : 0));
            s32 y = std::is_signed<B>::value ? (s32)(int8_t)byte : (s32)(u8)byte;
            c += (u32)x * (u32)y;
        }
        return c;
    }
};

template <class A, class B>
handler dot(int parts, bool top) {
    return parts == 4 ? three<dots<4, false, A, B>, u32>
           : top      ? three<dots<2, true, A, B>, u32>
                      : three<dots<2, false, A, B>, u32>;
}

// ---- bytes and bits of two words

struct permute {
    u32 operator()(u32 a, u32 b, u32 select) const {
        u64 all = (u64)b << 32 | a;
        u32 d = 0;
        for (int k = 0; k < 4; k++) {
            u32 s = select >> 4 * k & 15;
            u32 byte = (u32)(all >> 8 * (s & 7)) & 0xff;
            d |= (s & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * k;
        }
        return d;
    }
};

template <bool Left, bool Wrap>
struct funnel {
    u32 operator()(u32 a, u32 b, u32 n) const {
        n = Wrap ? n & 31 : std::min(n, 32u);
        u64 all = (u64)b << 32 | a;
        return Left ? (u32)(all << n >> 32) : (u32)(all >> n);
    }
};

// The fourth operand is a table: bit 4a + 2b + c of it is the result.
void logic(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<u32>(i.o[0]);
    const auto *a = w.at<u32>(i.o[1]), *b = w.at<u32>(i.o[2]), *c = w.at<u32>(i.o[3]);
    const u32 table = *w.at<u32>(i.o[4]);
    each(mask, [&](int l) {
        u32 r = 0;
        for (u32 k = 0; k < 8; k++) {
            u32 met = (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
            r |= table >> k & 1 ? met : 0;
        }
        d[l] = r;
    });
}

// ---- with the carry of the instruction before: its place is o[18]

enum { takes_carry = 1, gives_carry = 2, subtracts = 4, product = 8, upper = 16 };

template <class T>
void carried(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<T>(i.o[0]);
    u32 &carry = *w.at<u32>(i.o[18]);
    const bool times = i.flags & product;
    const auto *a = w.at<T>(i.o[1]), *b = w.at<T>(i.o[2]), *c = w.at<T>(i.o[times ? 3 : 2]);
    for (u32 left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        T x = !times ? a[l] : i.flags & upper ? high(a[l], b[l]) : (T)(a[l] * b[l]);
        T y = c[l];
        unsigned __int128 in = i.flags & takes_carry ? carry >> l & 1 : 0, r;
        bool out;
        if (i.flags & subtracts) {
            r = (unsigned __int128)x - y - in;
            out = (unsigned __int128)y + in > x;
        } else {
            r = (unsigned __int128)x + y + in;
            out = r >> 8 * sizeof(T) & 1;
        }
        d[l] = (T)r;
        if (i.flags & gives_carry) {
            carry = (carry & ~(1u << l)) | (u32)out << l;
        }
    }
}

// ---- other roundings, seldom

template <class T, int Mode>
struct rounded {
    template <class F>
    T in(F f) const {
        fesetround(Mode);
        volatile T r = f();
        fesetround(FE_TONEAREST);
        return r;
    }
    T operator()(T x, T y, T z) const {
        volatile T a = x, b = y, c = z;
        return in([&] { return sizeof(T) == 4 ? fmaf(a, b, c) : fma(a, b, c); });
    }
};

// ---- approximations, here as near as a float comes; with .ftz nothing is denormal

f32 flushed(f32 a) { return fabsf(a) < 0x1p-126f ? copysignf(0, a) : a; }

template <class F, bool Ftz>
struct approximate {
    f32 operator()(f32 a) const {
        a = Ftz ? flushed(a) : a;
        f32 r = (f32)F()((f64)a);
        return Ftz ? flushed(r) : r;
    }
};
#define MATH(name, expression)                             \
    struct name {                                          \
        f64 operator()(f64 a) const { return expression; } \
    };
MATH(to_power, exp2(a))
MATH(to_logarithm, log2(a))
MATH(to_sine, sin(a))
MATH(to_cosine, cos(a))
MATH(to_tangent, tanh(a))
MATH(to_root, sqrt(a))
MATH(to_inverse, 1 / a)
MATH(to_inverse_root, 1 / sqrt(a))

// A quotient by multiplication: of what is divided by more than 2^126 nothing is left.
struct quotient {
    f32 operator()(f32 a, f32 b) const {
        return fabsf(b) > 0x1p126f && !isinf(b) ? a * copysignf(0, b) : (f32)((f64)a / b);
    }
};

// Only the upper half of the number counts, and of the result only that is given.
struct inverse_upper {
    f64 operator()(f64 a) const {
        u64 bits = __builtin_bit_cast(u64, 1 / a) & ~0xffffffffull;
        return __builtin_bit_cast(f64, bits);
    }
};

// ---- the choice

template <template <class> class F>
handler of_integer(const std::string &t) {
    return t == "u16" || t == "b16"   ? F<u16>::run
           : t == "s16"               ? F<s16>::run
           : t == "u32" || t == "b32" ? F<u32>::run
           : t == "s32"               ? F<s32>::run
           : t == "u64" || t == "b64" ? F<u64>::run
           : t == "s64"               ? F<s64>::run
                                      : nullptr;
}

template <template <class> class F>
handler of_number(const std::string &t) {
    return t == "f32" ? F<f32>::run : t == "f64" ? F<f64>::run : of_integer<F>(t);
}

template <template <class> class F>
handler of_real(const std::string &t) {
    return t == "f32" ? F<f32>::run : t == "f64" ? F<f64>::run : nullptr;
}

#define FORM(name, form, Op)                        \
    template <class T>                              \
    struct name {                                   \
        static constexpr handler run = form<Op, T>; \
    };
FORM(do_add, two, add)
FORM(do_sub, two, sub)
FORM(do_mul, two, mul)
FORM(do_mul_high, two, mul_high)
FORM(do_mad, three, mad)
FORM(do_mad_high, three, mad_high)
FORM(do_over, two, over)
FORM(do_divided, two, divided)
FORM(do_rest, two, rest)
FORM(do_min, two, minimum)
FORM(do_max, two, maximum)
FORM(do_and, two, both)
FORM(do_or, two, either)
FORM(do_xor, two, differ)
FORM(do_not, one, invert)
FORM(do_minus, one, minus)
FORM(do_negative, one, negative)
FORM(do_magnitude, one, magnitude)
FORM(do_absolute, one, absolute)
FORM(do_root, one, root)
FORM(do_inverse, one, inverse)
FORM(do_sign, two, signed_as)
FORM(do_fused, three, fused)
#define FORM_OF(name, ...)                          \
    template <class T>                              \
    struct name {                                   \
        static constexpr handler run = __VA_ARGS__; \
    };
FORM_OF(do_left, two<left, T, T, u32>)
FORM_OF(do_right, two<right, T, T, u32>)
FORM_OF(do_extract, three<extract, T, T, u32, u32>)

bool is_real(const std::string &t) { return t == "f32" || t == "f64"; }

std::string wider(const std::string &t) { return t[0] + std::to_string(type_bytes(t) * 16); }

bool choose_product(opcode &op, choice &c, bool sum) {
    bool lower = op.take("lo"), top = op.take("hi"), wide = op.take("wide");
    op.take("rn");
    std::string t = op.type();
    if (wide) {
        static const std::map<std::string, std::pair<handler, handler>> forms = {
            {"u16", {two<mul_wide<u16, u32>, u32, u16>, three<mad_wide<u16, u32>, u32, u16>}},
            {"s16", {two<mul_wide<s16, s32>, s32, s16>, three<mad_wide<s16, s32>, s32, s16>}},
            {"u32", {two<mul_wide<u32, u64>, u64, u32>, three<mad_wide<u32, u64>, u64, u32>}},
            {"s32", {two<mul_wide<s32, s64>, s64, s32>, three<mad_wide<s32, s64>, s64, s32>}}};
        auto found = forms.find(t);
        if (found == forms.end()) {
            return false;
        }
        std::string d = wider(t);
        return sum ? finish(c, found->second.second, {d, t, t, d})
                   : finish(c, found->second.first, {d, t, t});
    }
    if (is_real(t) == (lower || top)) {
        return false;
    }
    if (sum) {
        handler run = is_real(t) ? of_real<do_fused>(t)
                      : top      ? of_integer<do_mad_high>(t)
                                 : of_integer<do_mad>(t);
        return finish(c, run, {t, t, t, t});
    }
    return finish(c, top ? of_integer<do_mul_high>(t) : of_number<do_mul>(t), {t, t, t});
}

bool choose_logic(opcode &op, choice &c) {
    std::string t = op.type();
    const std::string &b = op.base;
    handler run = b == "and"   ? of_integer<do_and>(t)
                  : b == "or"  ? of_integer<do_or>(t)
                  : b == "xor" ? of_integer<do_xor>(t)
                               : of_integer<do_not>(t);
    return b == "not" ? finish(c, run, {t, t}) : finish(c, run, {t, t, t});
}

bool choose_one(opcode &op, choice &c) {
    std::string t = op.type();
    const std::string &b = op.base;
    if (b == "neg") {
        return finish(c, is_real(t) ? of_real<do_negative>(t) : of_integer<do_minus>(t), {t, t});
    }
    if (b == "abs") {
        return finish(c, is_real(t) ? of_real<do_absolute>(t) : of_integer<do_magnitude>(t),
                      {t, t});
    }
    bool wide = type_bytes(t) == 8;
    if (b == "popc") {
        return finish(c, wide ? one<ones, u32, u64> : one<ones, u32, u32>, {"u32", t});
    }
    if (b == "clz") {
        return finish(c, wide ? one<zeros, u32, u64> : one<zeros, u32, u32>, {"u32", t});
    }
    return finish(c, wide ? one<mirrored, u64> : one<mirrored, u32>, {t, t});
}

bool choose_two(opcode &op, choice &c) {
    bool about = op.base == "div" && op.take("approx");
    op.take("rn");
    std::string t = op.type();
    const std::string &b = op.base;
    if (about) {
        return finish(c, t == "f32" ? two<quotient, f32> : nullptr, {t, t, t});
    }
    if (b == "shl" || b == "shr") {
        handler run = b == "shl" ? of_integer<do_left>(t) : of_integer<do_right>(t);
        return finish(c, run, {t, t, "u32"});
    }
    handler run = b == "add"        ? of_number<do_add>(t)
                  : b == "sub"      ? of_number<do_sub>(t)
                  : b == "min"      ? of_number<do_min>(t)
                  : b == "max"      ? of_number<do_max>(t)
                  : b == "rem"      ? of_integer<do_rest>(t)
                  : b == "copysign" ? of_real<do_sign>(t)
                  : is_real(t)      ? of_real<do_over>(t)
                                    : of_integer<do_divided>(t);
    return finish(c, run, {t, t, t});
}

template <class F>
handler approximated(bool flush) {
    return flush ? one<approximate<F, true>, f32> : one<approximate<F, false>, f32>;
}

bool choose_function(opcode &op, choice &c) {
    bool near = op.take("rn"), about = op.take("approx"), flush = op.take("ftz");
    std::string t = op.type();
    const std::string &b = op.base;
    if (near && !flush && !about && (b == "sqrt" || b == "rcp")) {
        return finish(c, b == "sqrt" ? of_real<do_root>(t) : of_real<do_inverse>(t), {t, t});
    }
    if (about && flush && b == "rcp" && t == "f64") {
        return finish(c, one<inverse_upper, f64>, {t, t});
    }
    if (!about || t != "f32") {
        return false;
    }
    handler run = b == "ex2"     ? approximated<to_power>(flush)
                  : b == "lg2"   ? approximated<to_logarithm>(flush)
                  : b == "sin"   ? approximated<to_sine>(flush)
                  : b == "cos"   ? approximated<to_cosine>(flush)
                  : b == "tanh"  ? approximated<to_tangent>(flush)
                  : b == "sqrt"  ? approximated<to_root>(flush)
                  : b == "rsqrt" ? approximated<to_inverse_root>(flush)
                                 : approximated<to_inverse>(flush);
    return finish(c, run, {t, t});
}

bool choose_bits(opcode &op, choice &c) {
    const std::string &b = op.base;
    if (b == "prmt") {
        op.take("b32");
        return finish(c, three<permute, u32>, {"b32", "b32", "b32", "b32"});
    }
    if (b == "shf") {
        bool to_left = op.take("l"), wrap = op.take("wrap");
        op.take("r");
        op.take("clamp");
        op.take("b32");
        handler run = to_left
                          ? wrap ? three<funnel<true, true>, u32> : three<funnel<true, false>, u32>
                      : wrap ? three<funnel<false, true>, u32>
                             : three<funnel<false, false>, u32>;
        return finish(c, run, {"b32", "b32", "b32", "u32"});
    }
    if (b == "lop3") {
        op.take("b32");
        return finish(c, logic, {"b32", "b32", "b32", "b32", "b32"});
    }
    std::string t = op.type();
    if (b == "bfe") {
        return finish(c, of_integer<do_extract>(t), {t, t, "u32", "u32"});
    }
    return finish(c, type_bytes(t) == 8 ? insert<u64> : insert<u32>, {t, t, t, "u32", "u32"});
}

bool choose_dot(opcode &op, choice &c) {
    int parts = op.base == "dp4a" ? 4 : 2;
    bool top = op.take("hi");
    op.take("lo");
    std::string a = op.type(), b = op.type();
    handler run = a == "u32"   ? b == "u32" ? dot<u32, u32>(parts, top) : dot<u32, s32>(parts, top)
                    : b == "u32" ? dot<s32, u32>(parts, top)
                               : dot<s32, s32>(parts, top);
    return finish(c, run, {a == "u32" && b == "u32" ? "u32" : "s32", a, b, "b32"});
}

bool choose_carried(opcode &op, choice &c) {
    const std::string &b = op.base;
    inst &i = *c.at;
    bool out = op.take("cc"), in = b == "addc" || b == "subc" || b == "madc";
    bool times = b.compare(0, 3, "mad") == 0;
    i.flags = (uint8_t)((in ? takes_carry : 0) | (out ? gives_carry : 0) |
                        (b.compare(0, 3, "sub") == 0 ? subtracts : 0) | (times ? product : 0));
    if (op.take("hi")) {
        i.flags |= upper;
    }
    op.take("lo");
    std::string t = op.type();
    handler run = type_bytes(t) == 8 ? carried<u64> : carried<u32>;
    if (t[0] == 's' && (i.flags & upper)) {
        return false;
    }
    return times ? finish(c, run, {t, t, t, t}) : finish(c, run, {t, t, t});
}

bool choose_fused(opcode &op, choice &c) {
    static const std::map<std::string, std::pair<handler, handler>> modes = {
        {"rm", {three<rounded<f32, FE_DOWNWARD>, f32>, three<rounded<f64, FE_DOWNWARD>, f64>}},
        {"rp", {three<rounded<f32, FE_UPWARD>, f32>, three<rounded<f64, FE_UPWARD>, f64>}},
        {"rz", {three<rounded<f32, FE_TOWARDZERO>, f32>, three<rounded<f64, FE_TOWARDZERO>, f64>}}};
    for (auto &mode : modes) {
        if (op.take(mode.first.c_str())) {
            std::string t = op.type();
            handler run = t == "f32" ? mode.second.first : mode.second.second;
            return finish(c, run, {t, t, t, t});
        }
    }
    return choose_product(op, c, true);
}

}  // namespace

bool choose_alu(opcode &op, choice &c) {
    const std::string &b = op.base;
    auto among = [&](std::initializer_list<const char *> names) {
        return std::find(names.begin(), names.end(), b) != names.end();
    };
    bool carry = std::find(op.parts.begin(), op.parts.end(), "cc") != op.parts.end();
    if (carry || among({"addc", "subc", "madc"})) {
        return choose_carried(op, c);
    }
    if (among({"and", "or", "xor", "not"})) {
        return choose_logic(op, c);
    }
    if (among({"add", "sub", "min", "max", "div", "rem", "shl", "shr", "copysign"})) {
        return choose_two(op, c);
    }
    if (among({"neg", "abs", "popc", "clz", "brev"})) {
        return choose_one(op, c);
    }
    if (among({"ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp"})) {
        return choose_function(op, c);
    }
    if (among({"prmt", "shf", "lop3", "bfe", "bfi"})) {
        return choose_bits(op, c);
    }
    return b == "mul"                   ? choose_product(op, c, false)
           : b == "mad"                 ? choose_product(op, c, true)
           : b == "fma"                 ? choose_fused(op, c)
           : b == "dp2a" || b == "dp4a" ? choose_dot(op, c)
                                        : false;
}

}  // namespace ptx
