// Loads, stores, atomics and asynchronous copies of PTX. An access has to be aligned to all that it
// moves, and lie in one live allocation, in the block's shared memory or in the thread's own.
#include <algorithm>

#include "ptx.h"

namespace ptx {

namespace {

uint64_t address_of(warp &w, const inst &i, int l) {
    uint64_t a = (uint64_t)i.offset;
    if (i.base != none) {
        a += i.address_bytes == 8 ? w.at<uint64_t>(i.base)[l] : w.at<uint32_t>(i.base)[l];
    }
    return i.where == space::shared && i.address_bytes != 8 ? (uint32_t)a : a;
}

char *in_shared(warp &w, const inst &i, uint64_t a, size_t bytes) {
    const size_t size = w.block->of->shared_bytes;
    if (a < shared_window || a - shared_window > size || bytes > size - (a - shared_window)) {
        fault(w, i, "%zu bytes at %lld of %zu bytes of shared memory", bytes,
              (long long)a - shared_window, size);
    }
    return w.block->shared.data() + (a - shared_window);
}

char *in_local(warp &w, const inst &i, uint64_t a, size_t bytes, int l) {
    const size_t size = w.block->of->code->local;
    if (a > size || bytes > size - a) {
        fault(w, i, "%zu bytes at %lld of %zu bytes of local memory", bytes, (long long)a, size);
    }
    return w.local.data() + size * l + a;
}

bool in_module(const module &m, uint64_t a, size_t bytes) {
    for (auto &v : m.memory) {
        uint64_t first = (uint64_t)v.second.data();
        if (a >= first && a + bytes <= first + v.second.size() * 8) {
            return true;
        }
    }
    return false;
}

char *in_global(warp &w, const inst &i, uint64_t a, size_t bytes) {
    launch &of = *w.block->of;
    range &seen = of.seen[&i - of.code->code.data()];
    const char *p = (const char *)a;
    if (p < seen.first || p + bytes > seen.first + seen.bytes) {
        const void *first;
        size_t size;
        if (judge_allocation((const void *)a, &first, &size) && p + bytes <= (char *)first + size) {
            marks &m = of.touched[(const char *)first];
            m.constant.resize(size / 64 + 1);
            m.written.resize(size / 64 + 1);
            seen = {(const char *)first, size, &m};
        } else if (!in_module(*of.code->from, a, bytes)) {
            fault(w, i, "%zu bytes at %p are not in live device memory", bytes, (void *)a);
        }
    }
    return (char *)a;
}

// Shared memory of another block of the cluster, or null.
char *in_cluster(warp &w, const inst &i, const char *p, size_t bytes) {
    for (auto &b : w.block->in->blocks) {
        const char *first = b->shared.data(), *end = first + b->shared.size();
        if (p < first || p >= end) {
            continue;
        }
        bool over = true;
        for (const warp &other : b->warps) {
            over = over && other.state == warp::over;
        }
        if (over || p + bytes > end) {
            fault(w, i, over ? "shared memory of a block that is over" : "%zu bytes at its end",
                  bytes);
        }
        if (w.arrived || !w.block->in->visible) {
            fault(w, i,
                  w.arrived ? "shared memory of a block that need not wait any more"
                            : "shared memory of a block behind a barrier that shows nothing");
        }
        return b->shared.data() + (p - first);
    }
    return nullptr;
}

// Shared and local memory have windows in generic addresses: here where they lie.
char *in_generic(warp &w, const inst &i, uint64_t a, size_t bytes) {
    const char *p = (const char *)a, *shared = w.block->shared.data(), *local = w.local.data();
    if (p >= shared && p < shared + w.block->shared.size()) {
        return in_shared(w, i, p - shared + shared_window, bytes);
    }
    if (p >= local && p + bytes <= local + w.local.size()) {
        return (char *)a;
    }
    char *beside = in_cluster(w, i, p, bytes);
    return beside ? beside : in_global(w, i, a, bytes);
}

char *reach(warp &w, const inst &i, int l, size_t bytes) {
    const uint64_t a = address_of(w, i, l);
    if (a & (bytes - 1)) {
        fault(w, i, "%zu bytes at %#llx, which is not aligned to that", bytes,
              (unsigned long long)a);
    }
    switch (i.where) {
    case space::shared: return in_shared(w, i, a, bytes);
    case space::local: return in_local(w, i, a, bytes, l);
    case space::global: return in_global(w, i, a, bytes);
    case space::generic: return in_generic(w, i, a, bytes);
    case space::param: break;
    }
    if (a + bytes > w.block->of->parameters.size()) {
        fault(w, i, "outside the parameters");
    }
    return w.block->of->parameters.data() + a;
}

// An aligned access of up to 16 bytes: its bits lie in one word of the marks.
void touch(warp &w, const inst &i, const char *p, size_t bytes, bool writes) {
    launch &of = *w.block->of;
    const range &seen = of.seen[&i - of.code->code.data()];
    if (p < seen.first || p >= seen.first + seen.bytes) {
        return;
    }
    const size_t at = (size_t)(p - seen.first);
    const uint64_t bits = ((1ull << bytes) - 1) << at % 64;
    marks &m = *seen.touched;
    (writes ? m.written : m.constant)[at / 64] |= bits;
    if (m.written[at / 64] & m.constant[at / 64] & bits) {
        fault(w, i, "%zu bytes at %p are read as constant and written by one launch", bytes, p);
    }
}

// A write by a lane, where products of warpgroups may be reading, or read later.
void note_store(warp &w, const inst &i, int l, const char *p, size_t bytes) {
    const std::vector<char> &shared = w.block->shared;
    if (!w.registers.empty() && p >= shared.data() && p < shared.data() + shared.size()) {
        const uint32_t at = (uint32_t)(p - shared.data());
        begin_write(w, i, at, bytes);
        end_write(w, l, at, bytes);
    }
}

// ---- loads and stores: i.count values of T

enum { constant_data = 1 };

template <class T>
void load(warp &w, const inst &i, uint32_t mask) {
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        T v[4];
        const char *p = reach(w, i, l, sizeof(T) * i.count);
        memcpy(v, p, sizeof(T) * i.count);
        if (i.flags & constant_data) {
            touch(w, i, p, sizeof(T) * i.count, false);
        }
        for (int k = 0; k < i.count; k++) {
            if (i.o[k] == none) {
                continue;
            }
            // The sign goes to all of the register.
            const uint64_t wide =
                (uint64_t)(std::conditional_t<std::is_signed<T>::value, int64_t, uint64_t>)v[k];
            if (i.register_bytes == 8) {
                w.at<uint64_t>(i.o[k])[l] = wide;
            } else {
                w.at<uint32_t>(i.o[k])[l] = (uint32_t)wide & (i.register_bytes == 2 ? 0xffff : ~0u);
            }
        }
    }
}

template <class T>
void store(warp &w, const inst &i, uint32_t mask) {
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        T v[4];
        char *p = reach(w, i, l, sizeof(T) * i.count);
        for (int k = 0; k < i.count; k++) {
            v[k] =
                i.register_bytes == 8 ? (T)w.at<uint64_t>(i.o[k])[l] : (T)w.at<uint32_t>(i.o[k])[l];
        }
        memcpy(p, v, sizeof(T) * i.count);
        touch(w, i, p, sizeof(T) * i.count, true);
        note_store(w, i, l, p, sizeof(T) * i.count);
    }
}

void prefetch(warp &, const inst &, uint32_t) {}

// ---- atomics, which here are so by themselves

enum { a_add, a_inc, a_dec, a_exch, a_min, a_max, a_and, a_or, a_xor, a_cas };

template <class T>
T changed(int how, T old, T v, T other) {
    if constexpr (!std::is_floating_point<T>::value) {
        switch (how) {
        case a_inc: return old >= v ? 0 : old + 1;
        case a_dec: return old == 0 || old > v ? v : old - 1;
        case a_and: return old & v;
        case a_or: return old | v;
        case a_xor: return old ^ v;
        case a_add: return (T)((uint64_t)old + (uint64_t)v);
        }
    }
    switch (how) {
    case a_add: return old + v;
    case a_min: return std::min(old, v);
    case a_max: return std::max(old, v);
    case a_cas: return old == v ? other : old;
    default: return v;
    }
}

// `red` gives no old value: what is added is then the first operand.
template <class T>
void atomic(warp &w, const inst &i, uint32_t mask) {
    const bool keeps = i.size != 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        char *p = reach(w, i, l, sizeof(T));
        T old, fresh, v = get<T>(w.at<cell<T>>(i.o[keeps])[l]);
        T other = i.flags == a_cas ? get<T>(w.at<cell<T>>(i.o[2])[l]) : v;
        memcpy(&old, p, sizeof old);
        fresh = changed(i.flags, old, v, other);
        memcpy(p, &fresh, sizeof fresh);
        touch(w, i, p, sizeof(T), true);
        note_store(w, i, l, p, sizeof(T));
        if (keeps && i.o[0] != none) {
            w.at<cell<T>>(i.o[0])[l] = put<T>(old);
        }
    }
}

// ---- addresses between spaces: i.flags says to generic

void move_shared(warp &w, const inst &i, uint32_t mask) {
    const uint64_t shift = (uint64_t)w.block->shared.data() - shared_window;
    uint64_t *d = w.at<uint64_t>(i.o[0]);
    const uint64_t *a = w.at<uint64_t>(i.o[1]);
    each(mask, [&](int l) { d[l] = i.flags ? a[l] + shift : a[l] - shift; });
}

// Where another block of the cluster has what lies there in this block's shared memory.
void map_shared(warp &w, const inst &i, uint32_t mask) {
    auto &blocks = w.block->in->blocks;
    const uint64_t *a = w.at<uint64_t>(i.o[1]);
    const uint32_t *rank = w.at<uint32_t>(i.o[2]);
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        const uint64_t at = a[l] - (uint64_t)w.block->shared.data();
        if (rank[l] >= blocks.size() || at >= w.block->shared.size()) {
            fault(w, i, "no place of shared memory, or block %u of a cluster of %zu", rank[l],
                  blocks.size());
        }
        w.at<uint64_t>(i.o[0])[l] = (uint64_t)blocks[rank[l]]->shared.data() + at;
    }
}

void move_local(warp &w, const inst &i, uint32_t mask) {
    uint64_t *d = w.at<uint64_t>(i.o[0]);
    const uint64_t *a = w.at<uint64_t>(i.o[1]);
    each(mask, [&](int l) {
        uint64_t own = (uint64_t)w.local.data() + w.block->of->code->local * l;
        d[l] = i.flags ? a[l] + own : a[l] - own;
    });
}

void move_global(warp &w, const inst &i, uint32_t mask) {
    uint64_t *d = w.at<uint64_t>(i.o[0]);
    const uint64_t *a = w.at<uint64_t>(i.o[1]);
    each(mask, [&](int l) { d[l] = a[l]; });
}

// ---- asynchronous copies: o[0] to, o[1] from, o[2] what is not filled with zeros

// Read at once, and written as late as allowed; with JUDGE_ORDER=rev at once, too.
void deliver(warp &w, const inst &i, const copy &c) {
    memcpy(in_shared(w, i, c.to, c.bytes), c.data, c.bytes);
}

void begin_copy(warp &w, const inst &i, uint32_t mask) {
    const bool random = w.block->of->random && judge_random() % 2;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        copy c = {};
        c.bytes = i.size;
        c.lane = (uint32_t)l;
        c.group = w.groups[l];
        c.to = (uint32_t)address_of(w, i, l);
        uint32_t kept = i.o[2] == none ? i.size : w.at<uint32_t>(i.o[2])[l];
        const uint64_t a = w.at<uint64_t>(i.o[1])[l] + (uint64_t)(int64_t)i.target;
        if (c.to % i.size || a % i.size || kept > i.size) {
            fault(w, i, "a copy of %d bytes, %u of them read, from %#llx to %u", i.size, kept,
                  (unsigned long long)a, c.to);
        }
        in_shared(w, i, c.to, i.size);
        if (!w.registers.empty()) {
            begin_write(w, i, c.to - shared_window, i.size);
        }
        if (kept) {
            memcpy(c.data, in_global(w, i, a, kept), kept);
        }
        if (w.block->of->reversed || random) {
            deliver(w, i, c);
        }
        w.copies.push_back(c);
    }
}

void end_group(warp &w, const inst &, uint32_t mask) {
    each(mask, [&](int l) { w.groups[l]++; });
}

// All groups but the last ones that the operand says; none: also what has no group yet.
void await_copies(warp &w, const inst &i, uint32_t mask) {
    const bool all = i.o[0] == none;
    const uint32_t but = all ? 0 : *w.at<uint32_t>(i.o[0]);
    size_t kept = 0;
    for (const copy &c : w.copies) {
        if ((mask >> c.lane & 1) && (all || c.group + but < w.groups[c.lane])) {
            deliver(w, i, c);
            if (!w.registers.empty()) {
                end_write(w, (int)c.lane, c.to - shared_window, c.bytes);
            }
        } else {
            w.copies[kept++] = c;
        }
    }
    w.copies.resize(kept);
}

// ---- the choice

template <template <class> class F>
handler of_type(const std::string &t) {
    static const std::map<std::string, handler> all = {
        {"u8", F<uint8_t>::run},   {"s8", F<int8_t>::run},    {"u16", F<uint16_t>::run},
        {"s16", F<int16_t>::run},  {"u32", F<uint32_t>::run}, {"s32", F<int32_t>::run},
        {"u64", F<uint64_t>::run}, {"s64", F<int64_t>::run},  {"b8", F<uint8_t>::run},
        {"b16", F<uint16_t>::run}, {"b32", F<uint32_t>::run}, {"b64", F<uint64_t>::run},
        {"f32", F<uint32_t>::run}, {"f64", F<uint64_t>::run}};
    auto found = all.find(t);
    return found == all.end() ? nullptr : found->second;
}
template <class T>
struct loads {
    static constexpr handler run = load<T>;
};
template <class T>
struct stores {
    static constexpr handler run = store<T>;
};

void take_space(opcode &op, inst &i) {
    i.where = op.take("global") || op.take("const") ? space::global
              : op.take("shared")                   ? space::shared
              : op.take("local")                    ? space::local
              : op.take("param")                    ? space::param
                                                    : space::generic;
}

// What says where a value is cached, and orders that nothing here needs.
void take_hints(opcode &op) {
    for (const char *hint : {"ca", "cg", "cs", "cv", "wb", "wt", "volatile", "relaxed", "acquire",
                             "release", "acq_rel", "gpu", "cta", "sys", "weak"}) {
        op.take(hint);
    }
    for (auto p = op.parts.begin(); p != op.parts.end();) {
        p = p->find("::") != std::string::npos ? op.parts.erase(p) : p + 1;
    }
}

bool choose_access(opcode &op, choice &c) {
    inst &i = *c.at;
    take_space(op, i);
    i.flags = op.take("nc") ? constant_data : 0;
    take_hints(op);
    i.count = op.take("v2") ? 2 : op.take("v4") ? 4 : 1;
    std::string t = op.type();
    i.run = op.base == "ld" ? of_type<loads>(t) : of_type<stores>(t);
    c.types.assign(i.count, "^" + t);
    return i.run != nullptr && type_bytes(t) * i.count <= 16;
}

bool choose_atomic(opcode &op, choice &c) {
    static const std::map<std::string, int> names = {
        {"add", a_add}, {"inc", a_inc}, {"dec", a_dec}, {"exch", a_exch}, {"min", a_min},
        {"max", a_max}, {"and", a_and}, {"or", a_or},   {"xor", a_xor},   {"cas", a_cas}};
    inst &i = *c.at;
    take_space(op, i);
    take_hints(op);
    bool known = false;
    for (auto &n : names) {
        if (op.take(n.first.c_str())) {
            i.flags = (uint8_t)n.second;
            known = true;
        }
    }
    std::string t = op.type();
    i.run = t == "u32" || t == "b32"   ? atomic<uint32_t>
            : t == "s32"               ? atomic<int32_t>
            : t == "u64" || t == "b64" ? atomic<uint64_t>
            : t == "s64"               ? atomic<int64_t>
            : t == "f32"               ? atomic<float>
            : t == "f64"               ? atomic<double>
                                       : nullptr;
    bool gives = op.base == "atom";
    i.size = gives;
    c.types.assign((gives ? 2 : 1) + (i.flags == a_cas), t);
    return known && i.run;
}

bool choose_address(opcode &op, choice &c) {
    inst &i = *c.at;
    i.flags = !op.take("to");
    i.run = op.take("shared")                       ? move_shared
            : op.take("local")                      ? move_local
            : op.take("global") || op.take("const") ? move_global
                                                    : nullptr;
    op.take("u64");
    c.types = {"b64", "b64"};
    return i.run != nullptr;
}

// Both addresses stand in brackets: the decoder takes the second as an operand.
bool choose_copy(opcode &op, choice &c, const statement &s) {
    inst &i = *c.at;
    op.take("async");
    if (op.take("commit_group")) {
        i.run = end_group;
        return true;
    }
    if (op.take("wait_group") || op.take("wait_all")) {
        i.run = await_copies;
        i.o[0] = none;
        c.types.assign(s.operands.size(), "u32");
        return true;
    }
    bool global = op.take("global"), shared = op.take("shared");
    take_hints(op);
    if (!global || !shared || s.operands.size() < 3 || s.operands[2].kind != operand::number) {
        return false;
    }
    i.where = space::shared;
    i.size = (uint8_t)s.operands[2].value;
    i.run = begin_copy;
    return i.size == 4 || i.size == 8 || i.size == 16;
}

}  // namespace

bool choose_memory(opcode &op, choice &c, const statement &s) {
    if (op.base == "ld" || op.base == "st") {
        return choose_access(op, c);
    }
    if (op.base == "atom" || op.base == "red") {
        return choose_atomic(op, c);
    }
    if (op.base == "cvta") {
        return choose_address(op, c);
    }
    if (op.base == "mapa") {
        c.at->run = map_shared;
        c.types = {"b64", "b64", "b32"};
        return op.take("u64");
    }
    if (op.base == "prefetch" || op.base == "prefetchu") {
        take_space(op, *c.at);
        op.parts.clear();
        c.at->run = prefetch;
        return true;
    }
    return op.base == "cp" && choose_copy(op, c, s);
}

}  // namespace ptx
