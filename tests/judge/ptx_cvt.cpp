// Conversions of PTX, and arithmetic on numbers of 16 bits.
#include <math.h>

#include <limits>

#include "ptx.h"

namespace ptx {

float from_half(uint16_t bits) {
    static const std::vector<float> table = [] {
        std::vector<float> all(1 << 16);
        for (unsigned b = 0; b < 1 << 16; b++) {
            int e = b >> 10 & 31, f = b & 1023;
            float v = e == 31  ? f ? NAN : INFINITY
                      : e == 0 ? ldexpf((float)f, -24)
                               : ldexpf((float)(f + 1024), e - 25);
            all[b] = b >> 15 ? -v : v;
        }
        return all;
    }();
    return table[bits];
}

namespace {

// The nearest half, ties to even.
uint16_t to_half(double value) {
    if (value != value) {
        return 0x7fff;
    }
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double a = fabs(value);
    if (a >= 65520) {
        return sign | 0x7c00;
    }
    if (a < 0x1p-14) {
        return sign | (uint16_t)nearbyint(a * 0x1p24);
    }
    const int e = ilogb(a);
    return sign | (uint16_t)(((e + 14) << 10) + (int)nearbyint(ldexp(a, 10 - e)));
}

uint16_t to_bfloat(float value) {
    uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if (value != value) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

enum rounding { r_none, r_near, r_zero, r_down, r_up };
enum { saturates = 8 };

template <class T>
T round_to_integer(T v, int how) {
    return how == r_near   ? nearbyint(v)
           : how == r_zero ? trunc(v)
           : how == r_down ? floor(v)
                           : ceil(v);
}

template <class D>
uint64_t to_integer(double v) {
    if (v != v) {
        return 0;
    }
    // The first number beyond: the largest itself may be none of the type's.
    const double beyond = ldexp(1, std::numeric_limits<D>::digits);
    if (v >= beyond) {
        return (uint64_t)std::numeric_limits<D>::max();
    }
    if (v < (double)std::numeric_limits<D>::min()) {
        return (uint64_t)std::numeric_limits<D>::min();
    }
    return (uint64_t)(D)v;
}

template <class D, class S>
D between_integers(S v, bool saturate) {
    __int128 x = v, low = std::numeric_limits<D>::min(), top = std::numeric_limits<D>::max();
    return saturate ? (D)(x < low ? low : x > top ? top : x) : (D)v;
}

template <class T>
constexpr bool real = std::is_floating_point<T>::value;

template <class D, class S>
D converted(S v, int flags) {
    const int how = flags & 7;
    if constexpr (real<D> && real<S>) {
        S r = how > r_none && sizeof(D) == sizeof(S) ? round_to_integer(v, how) : v;
        if (flags & saturates) {
            r = r > 0 ? r < 1 ? r : 1 : 0;
        }
        return (D)r;
    } else if constexpr (real<D>) {
        return (D)v;
    } else if constexpr (real<S>) {
        return (D)to_integer<D>(round_to_integer(v, how));
    } else {
        return between_integers<D>(v, flags & saturates);
    }
}

// What is written has its sign in all of the register.
template <class D, class S>
void convert(warp &w, const inst &i, uint32_t mask) {
    auto *d = w.at<cell<D>>(i.o[0]);
    const auto *a = w.at<cell<S>>(i.o[1]);
    const int flags = i.flags;
    // Of a wider register it is the low word.
    const int step = sizeof *a == 4 && i.source_bytes == 8 ? 2 : 1;
    if constexpr (std::is_signed<D>::value && sizeof(D) < 4) {
        const uint32_t keep = i.register_bytes == 2 ? 0xffff : ~0u;
        each(mask, [&](int l) {
            d[l] = (uint32_t)(int32_t)converted<D>(get<S>(a[l * step]), flags) & keep;
        });
    } else {
        each(mask, [&](int l) { d[l] = put<D>(converted<D>(get<S>(a[l * step]), flags)); });
    }
}

template <class D>
handler from(const std::string &s) {
    static const std::map<std::string, handler> all = {
        {"u8", convert<D, uint8_t>},   {"s8", convert<D, int8_t>},    {"u16", convert<D, uint16_t>},
        {"s16", convert<D, int16_t>},  {"u32", convert<D, uint32_t>}, {"s32", convert<D, int32_t>},
        {"u64", convert<D, uint64_t>}, {"s64", convert<D, int64_t>},  {"f32", convert<D, float>},
        {"f64", convert<D, double>}};
    auto found = all.find(s);
    return found == all.end() ? nullptr : found->second;
}

handler conversion(const std::string &d, const std::string &s) {
    return d == "u8"    ? from<uint8_t>(s)
           : d == "s8"  ? from<int8_t>(s)
           : d == "u16" ? from<uint16_t>(s)
           : d == "s16" ? from<int16_t>(s)
           : d == "u32" ? from<uint32_t>(s)
           : d == "s32" ? from<int32_t>(s)
           : d == "u64" ? from<uint64_t>(s)
           : d == "s64" ? from<int64_t>(s)
           : d == "f32" ? from<float>(s)
           : d == "f64" ? from<double>(s)
                        : nullptr;
}

// ---- 16 bits

float from_bfloat(uint16_t bits) { return __builtin_bit_cast(float, (uint32_t)bits << 16); }

template <class F>
void word(warp &w, const inst &i, uint32_t mask, F f) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    const uint32_t *a = w.at<uint32_t>(i.o[1]);
    each(mask, [&](int l) { d[l] = f(a[l]); });
}

#define WORD(name, expression)                                               \
    void name(warp &w, const inst &i, uint32_t mask) {                       \
        word(w, i, mask, [](uint32_t a) -> uint32_t { return expression; }); \
    }
float as_float(uint32_t a) { return __builtin_bit_cast(float, a); }
uint32_t as_word(float a) { return __builtin_bit_cast(uint32_t, a); }
WORD(half_to_float, as_word(from_half((uint16_t)a)))
WORD(float_to_half, to_half(as_float(a)))
WORD(bfloat_to_float, as_word(from_bfloat((uint16_t)a)))
WORD(float_to_bfloat, to_bfloat(as_float(a)))
// 10 bits of mantissa, ties away from zero. A number that is none is the one NaN.
WORD(float_to_tf32, as_float(a) != as_float(a)         ? 0x7fffffffu
                    : (a & 0x7f800000u) == 0x7f800000u ? a
                                                       : (a + 0x1000u) & ~0x1fffu)
// The same, ties to even.
WORD(float_to_even_tf32, as_float(a) != as_float(a) ? 0x7fffffffu
                         : (a & 0x7f800000u) == 0x7f800000u
                             ? a
                             : (a + 0xfffu + (a >> 13 & 1u)) & ~0x1fffu)

// The first operand becomes the upper half.
template <uint16_t (*To)(float)>
void floats_to_pair(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    const uint32_t *a = w.at<uint32_t>(i.o[1]), *b = w.at<uint32_t>(i.o[2]);
    each(mask, [&](int l) { d[l] = (uint32_t)To(as_float(a[l])) << 16 | To(as_float(b[l])); });
}

uint16_t half_of(float v) { return to_half(v); }

template <int N>
void integer_to_half(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    const uint32_t *a = w.at<uint32_t>(i.o[1]);
    each(mask, [&](int l) {
        d[l] = to_half(N == 2    ? (double)(int16_t)a[l]
                       : N == -2 ? (double)(uint16_t)a[l]
                       : N == 4  ? (double)(int32_t)a[l]
                                 : (double)a[l]);
    });
}

// i.flags: operation; i.count: operands read.
enum half_operation { h_add, h_sub, h_mul, h_fma, h_neg, h_min, h_max, h_abs };

uint16_t halves(int operation, uint16_t x, uint16_t y, uint16_t z) {
    if (operation == h_neg || operation == h_abs) {
        return operation == h_neg ? x ^ 0x8000 : x & 0x7fff;
    }
    const double a = from_half(x), b = from_half(y), c = from_half(z);
    switch (operation) {
    case h_add: return to_half(a + b);
    case h_sub: return to_half(a - b);
    case h_mul: return to_half(a * b);
    case h_fma: return to_half(fma(a, b, c));
    case h_min: return to_half(fmin(a, b));
    default: return to_half(fmax(a, b));
    }
}

void half_arithmetic(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    const uint32_t *a = w.at<uint32_t>(i.o[1]);
    const uint32_t *b = i.count > 1 ? w.at<uint32_t>(i.o[2]) : a;
    const uint32_t *c = i.count > 2 ? w.at<uint32_t>(i.o[3]) : a;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        uint32_t r = halves(i.flags, (uint16_t)a[l], (uint16_t)b[l], (uint16_t)c[l]);
        if (i.size == 4) {
            r |= (uint32_t)halves(i.flags, (uint16_t)(a[l] >> 16), (uint16_t)(b[l] >> 16),
                                  (uint16_t)(c[l] >> 16))
                 << 16;
        }
        d[l] = r;
    }
}

bool choose_half(opcode &op, choice &c, size_t operands) {
    static const std::map<std::string, int> names = {{"add", h_add}, {"sub", h_sub}, {"mul", h_mul},
                                                     {"fma", h_fma}, {"neg", h_neg}, {"min", h_min},
                                                     {"max", h_max}, {"abs", h_abs}};
    auto found = names.find(op.base);
    bool pair = op.take("f16x2"), single = !pair && op.take("f16");
    if (found == names.end() || (!pair && !single)) {
        return false;
    }
    op.take("rn");
    c.at->run = half_arithmetic;
    c.at->flags = (uint8_t)found->second;
    c.at->count = (uint8_t)(operands - 1);
    c.at->size = pair ? 4 : 2;
    c.types.assign(operands, pair ? "b32" : "b16");
    return true;
}

bool choose_half_conversion(choice &c, const std::string &how, const std::string &d,
                            const std::string &s) {
    static const std::map<std::string, handler> all = {
        {"none f32 f16", half_to_float},           {"rn f16 f32", float_to_half},
        {"none f32 bf16", bfloat_to_float},        {"rn bf16 f32", float_to_bfloat},
        {"rna tf32 f32", float_to_tf32},           {"rn tf32 f32", float_to_even_tf32},
        {"rn f16x2 f32", floats_to_pair<half_of>}, {"rn bf16x2 f32", floats_to_pair<to_bfloat>},
        {"rn f16 s16", integer_to_half<2>},        {"rn f16 u16", integer_to_half<-2>},
        {"rn f16 s32", integer_to_half<4>},        {"rn f16 u32", integer_to_half<-4>}};
    auto found = all.find(how + " " + d + " " + s);
    if (found == all.end()) {
        return false;
    }
    c.at->run = found->second;
    c.types = {type_bytes(d) == 2 ? "b16" : "b32", type_bytes(s) == 2 ? "b16" : "b32"};
    if (d.size() > 2 && d.substr(d.size() - 2) == "x2") {
        c.types.push_back("b32");
    }
    return true;
}

// Whether a rounding is one that these types have.
bool rounds(const std::string &how, const std::string &d, const std::string &s) {
    bool to = d[0] == 'f', of = s[0] == 'f';
    bool integer = how == "rni" || how == "rzi" || how == "rmi" || how == "rpi";
    if (to && of) {
        return d == s ? integer || how == "none" : how == (d == "f32" ? "rn" : "none");
    }
    return of ? integer : to ? how == "rn" : how == "none";
}

}  // namespace

bool choose_convert(opcode &op, choice &c, size_t operands) {
    static const std::map<std::string, int> roundings = {{"rn", r_none},  {"rna", r_none},
                                                         {"rni", r_near}, {"rzi", r_zero},
                                                         {"rmi", r_down}, {"rpi", r_up}};
    if (op.base != "cvt") {
        return choose_half(op, c, operands);
    }
    std::string how = "none";
    for (auto &r : roundings) {
        if (op.take(r.first.c_str())) {
            how = r.first;
            c.at->flags = (uint8_t)r.second;
        }
    }
    const std::string d = op.type(), s = op.type();
    if (choose_half_conversion(c, how, d, s)) {
        return true;
    }
    if (op.take("sat")) {
        c.at->flags |= saturates;
    }
    c.at->run = conversion(d, s);
    c.types = {"~" + d, "^" + s};
    return c.at->run && rounds(how, d, s);
}

}  // namespace ptx
