// Comparisons, predicates, choices and moves of PTX.
#include "ptx.h"

namespace ptx {

namespace {

// ---- comparisons

struct eq {
    template <class T>
    bool operator()(T a, T b) const {
        return a == b;
    }
};
struct ne {
    template <class T>
    bool operator()(T a, T b) const {
        return a < b || a > b;
    }
};
struct lt {
    template <class T>
    bool operator()(T a, T b) const {
        return a < b;
    }
};
struct le {
    template <class T>
    bool operator()(T a, T b) const {
        return a <= b;
    }
};
struct gt {
    template <class T>
    bool operator()(T a, T b) const {
        return a > b;
    }
};
struct ge {
    template <class T>
    bool operator()(T a, T b) const {
        return a >= b;
    }
};
struct num {
    template <class T>
    bool operator()(T a, T b) const {
        return a == a && b == b;
    }
};
// The same, or not comparable.
template <class C>
struct unordered {
    template <class T>
    bool operator()(T a, T b) const {
        return a != a || b != b || C()(a, b);
    }
};
struct never {
    template <class T>
    bool operator()(T, T) const {
        return false;
    }
};

enum { combine_none, combine_and, combine_or, combine_xor };

template <class C, class T>
void compare(warp &w, const inst &i, uint32_t mask) {
    const auto *a = w.at<cell<T>>(i.o[1]);
    const auto *b = w.at<cell<T>>(i.o[2]);
    uint32_t r = 0;
    for (int l = 0; l < lanes; l++) {
        r |= (uint32_t)C()(get<T>(a[l]), get<T>(b[l])) << l;
    }
    uint32_t q = ~r;
    if (int how = i.flags & 3) {
        uint32_t c = *w.at<uint32_t>(i.o[3]);
        c = i.flags & 0x80 ? ~c : c;
        q = how == combine_and ? q & c : how == combine_or ? q | c : q ^ c;
        r = how == combine_and ? r & c : how == combine_or ? r | c : r ^ c;
    }
    auto set = [&](uint32_t at, uint32_t value) {
        if (at != none) {
            uint32_t *p = w.at<uint32_t>(at);
            *p = (*p & ~mask) | (value & mask);
        }
    };
    set(i.o[0], r);
    set(i.o[19], q);
}

template <class T>
void select(warp &w, const inst &i, uint32_t mask) {
    T *d = w.at<T>(i.o[0]);
    const T *a = w.at<T>(i.o[1]), *b = w.at<T>(i.o[2]);
    const uint32_t p = *w.at<uint32_t>(i.o[3]);
    each(mask, [&](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}

#define WORDS(name, expression)                                                  \
    struct name {                                                                \
        uint32_t operator()(uint32_t a, uint32_t b) const { return expression; } \
    };
WORDS(both, a &b)
WORDS(either, a | b)
WORDS(differ, a ^ b)
WORDS(first, ((void)b, a))
WORDS(opposite, ((void)b, ~a))

template <class Op>
void predicates(warp &w, const inst &i, uint32_t mask) {
    uint32_t *d = w.at<uint32_t>(i.o[0]);
    uint32_t a = *w.at<uint32_t>(i.o[1]), b = i.count > 2 ? *w.at<uint32_t>(i.o[2]) : 0;
    *d = (*d & ~mask) | (Op()(a, b) & mask);
}

// ---- moves between words and their parts

template <class T>
void move(warp &w, const inst &i, uint32_t mask) {
    T *d = w.at<T>(i.o[0]);
    const T *a = w.at<T>(i.o[1]);
    each(mask, [&](int l) { d[l] = a[l]; });
}

// i.count parts of i.size bytes.
void pack(warp &w, const inst &i, uint32_t mask) {
    const bool wide = i.count * i.size == 8;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        uint64_t v = 0;
        for (int p = 0; p < i.count; p++) {
            v |= (uint64_t)w.at<uint32_t>(i.o[1 + p])[l] << 8 * i.size * p;
        }
        wide ? (void)(w.at<uint64_t>(i.o[0])[l] = v)
             : (void)(w.at<uint32_t>(i.o[0])[l] = (uint32_t)v);
    }
}

void unpack(warp &w, const inst &i, uint32_t mask) {
    const bool wide = i.count * i.size == 8;
    const uint32_t from = i.o[i.count];
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        uint64_t v = wide ? w.at<uint64_t>(from)[l] : w.at<uint32_t>(from)[l];
        for (int p = 0; p < i.count; p++) {
            if (i.o[p] != none) {
                w.at<uint32_t>(i.o[p])[l] =
                    (uint32_t)(v >> 8 * i.size * p) & (i.size == 4 ? ~0u : 0xffffu);
            }
        }
    }
}

// ---- the choice

template <class T>
handler comparison(const std::string &how) {
    static const std::map<std::string, handler> all = {{"eq", compare<eq, T>},
                                                       {"ne", compare<ne, T>},
                                                       {"lt", compare<lt, T>},
                                                       {"le", compare<le, T>},
                                                       {"gt", compare<gt, T>},
                                                       {"ge", compare<ge, T>},
                                                       {"lo", compare<lt, T>},
                                                       {"ls", compare<le, T>},
                                                       {"hi", compare<gt, T>},
                                                       {"hs", compare<ge, T>},
                                                       {"num", compare<num, T>},
                                                       {"nan", compare<unordered<never>, T>},
                                                       {"equ", compare<unordered<eq>, T>},
                                                       {"neu", compare<unordered<ne>, T>},
                                                       {"ltu", compare<unordered<lt>, T>},
                                                       {"leu", compare<unordered<le>, T>},
                                                       {"gtu", compare<unordered<gt>, T>},
                                                       {"geu", compare<unordered<ge>, T>}};
    auto found = all.find(how);
    bool only_real = how.size() == 3;
    return found == all.end() || (only_real && !std::is_floating_point<T>::value) ? nullptr
                                                                                  : found->second;
}

bool choose_compare(opcode &op, choice &c) {
    if (op.parts.empty()) {
        return false;
    }
    const std::string how = op.parts[0];
    op.parts.erase(op.parts.begin());
    c.at->flags = op.take("and")   ? combine_and
                  : op.take("or")  ? combine_or
                  : op.take("xor") ? combine_xor
                                   : combine_none;
    std::string t = op.type();
    handler run = t == "f32"                 ? comparison<float>(how)
                  : t == "f64"               ? comparison<double>(how)
                  : t == "s16"               ? comparison<int16_t>(how)
                  : t == "s32"               ? comparison<int32_t>(how)
                  : t == "s64"               ? comparison<int64_t>(how)
                  : t == "u16" || t == "b16" ? comparison<uint16_t>(how)
                  : t == "u32" || t == "b32" ? comparison<uint32_t>(how)
                  : t == "u64" || t == "b64" ? comparison<uint64_t>(how)
                                             : nullptr;
    std::vector<std::string> types = {"pred", t, t};
    if (c.at->flags) {
        types.push_back("pred");
    }
    return finish(c, run, types);
}

bool choose_predicates(opcode &op, choice &c, size_t operands) {
    static const std::map<std::string, handler> all = {{"and", predicates<both>},
                                                       {"or", predicates<either>},
                                                       {"xor", predicates<differ>},
                                                       {"not", predicates<opposite>},
                                                       {"mov", predicates<first>}};
    auto found = all.find(op.base);
    c.at->count = (uint8_t)operands;
    return found != all.end() &&
           finish(c, found->second, std::vector<std::string>(operands, "pred"));
}

}  // namespace

// A move to or from a vector of parts.
bool choose_parts(opcode &op, choice &c, const statement &s) {
    std::string t = op.type();
    const bool to_parts = s.operands[0].kind == operand::vector;
    const size_t parts = s.operands[to_parts ? 0 : 1].parts.size();
    c.at->count = (uint8_t)parts;
    c.at->size = (uint8_t)(type_bytes(t) / parts);
    if (c.at->size != 2 && c.at->size != 4) {
        return false;
    }
    std::vector<std::string> types(parts, c.at->size == 2 ? "b16" : "b32");
    types.insert(to_parts ? types.end() : types.begin(), t);
    return finish(c, to_parts ? unpack : pack, types);
}

bool choose_move(opcode &op, choice &c, size_t operands) {
    const std::string &b = op.base;
    if (b == "setp") {
        return choose_compare(op, c);
    }
    std::string t = op.type();
    if (t == "pred") {
        return choose_predicates(op, c, operands);
    }
    const bool wide = type_bytes(t) == 8;
    if (b == "selp") {
        return finish(c, wide ? select<uint64_t> : select<uint32_t>, {t, t, t, "pred"});
    }
    return b == "mov" && finish(c, wide ? move<uint64_t> : move<uint32_t>, {t, t});
}

}  // namespace ptx
