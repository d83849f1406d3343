// What interpreted kernels would ask of a GPU, counted: with JUDGE_PROFILE=FILE every launch adds a
// line to it, whose fields bench/profile.py names. Counts are of PTX, which ptxas makes into
// instructions of its own; what one of PTX becomes, and after how many cycles its result is there,
// is assumed for Hopper.
//
// A block's path: every warp issues in order, an instruction begins when its operands are there, a
// branch when its predicate is, a barrier when all warps are. Nothing else keeps it waiting: this
// is what a block takes at least, however empty the machine is.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "ptx.h"

namespace ptx {

namespace {

// Cycles from an access to its value: from shared memory, the first cache, the second one; of an
// atomic operation in the latter. What a warp waits behind a branch and a barrier.
enum : uint16_t {
    PREDICATED = 12,
    SHARED = 24,
    HIT = 38,
    MISS = 270,
    ATOMIC = 500,
    BRANCH = 8,
    BARRIER = 20
};

// Bytes of a cache's line and of its sectors; banks of shared memory; lines that the first cache
// looks up in a cycle.
enum { LINE = 128, SECTOR = 32, BANKS = 32, TAGS = 2 };

// What PTX's operations become: issued instructions, the cycles in which these keep a scheduler's
// unit, and after which the result is there.
struct price {
    unit at;
    uint8_t slots;
    uint16_t busy, latency;
};

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

price of_float(const std::string &base, const std::string &text) {
    const bool exact = has(text, ".rn") || has(text, ".f64");
    if (base == "div") {
        return exact ? price{unit::special, 9, 8, 60} : price{unit::special, 4, 8, 32};
    }
    if (base == "rcp" || base == "sqrt" || base == "rsqrt") {
        return exact ? price{unit::special, 7, 8, 50} : price{unit::special, 1, 8, 22};
    }
    const bool scaled = !has(text, ".ftz") && (base == "ex2" || base == "lg2");
    return scaled ? price{unit::special, 3, 8, 30} : price{unit::special, 1, 8, 22};
}

price of_integer(const std::string &base, const std::string &text, bool wide) {
    if (base == "div" || base == "rem") {
        return wide ? price{unit::whole, 80, 160, 500} : price{unit::whole, 20, 40, 110};
    }
    if (base == "mul" || base == "mad") {
        if (has(text, ".hi")) {
            return wide ? price{unit::fma, 8, 16, 40} : price{unit::fma, 1, 4, 6};
        }
        return wide && has(text, ".lo") ? price{unit::fma, 4, 8, 14} : price{unit::fma, 1, 2, 5};
    }
    return wide ? price{unit::whole, 2, 4, 9} : price{unit::whole, 1, 2, 5};
}

price of_conversion(const std::string &text) {
    const bool real = has(text, ".f32") || has(text, ".f16") || has(text, ".bf16");
    const bool whole = has(text, ".s") || has(text, ".u");
    if (real && whole) {
        return {unit::special, 1, 8, 22};
    }
    return real || has(text, ".s64.s32") ? price{unit::whole, 1, 2, 6} : price{unit::none, 0, 0, 0};
}

price of_matrices(const std::string &text) {
    return has(text, "m16n8k8.row.col.f32.f16") ? price{unit::matrix, 1, 3, 25}
                                                : price{unit::matrix, 1, 6, 33};
}

price price_of(const std::string &base, const std::string &text, const statement &s) {
    const bool special = s.operands.size() == 2 && s.operands[1].text[0] == '%' &&
                         (has(s.operands[1].text, "id.") || has(s.operands[1].text, "laneid"));
    if (base == "mov" || base == "cvta" || base == "membar" || base == "fence") {
        return special ? price{unit::whole, 1, 2, 20} : price{unit::none, 0, 0, 0};
    }
    if (base == "cvt") {
        return of_conversion(text);
    }
    if (base == "mma") {
        return of_matrices(text);
    }
    if (base == "ex2" || base == "lg2" || base == "sin" || base == "cos" || base == "tanh" ||
        base == "rcp" || base == "sqrt" || base == "rsqrt") {
        return of_float(base, text);
    }
    const bool real = has(text, ".f32") || has(text, ".f16") || has(text, ".bf16");
    if (real && base == "div") {
        return of_float(base, text);
    }
    if (real &&
        (base == "fma" || base == "add" || base == "sub" || base == "mul" || base == "mad")) {
        return {unit::fma, 1, 1, 4};
    }
    if (base == "bra" || base == "ret" || base == "exit") {
        return {unit::none, 1, 0, 0};
    }
    return of_integer(base, text, has(text, "64") && base != "setp");
}

}  // namespace

const char *profile_file() {
    static const char *file = getenv("JUDGE_PROFILE");
    return file;
}

namespace {

// An access: its unit, and what a lane moves.
void set_access(effect &e, const std::string &base, const statement &s, const inst &i) {
    const bool stores = base == "st" || base == "red", atomic = base == "atom" || base == "red";
    const bool matrices = base == "ldmatrix", parameter = i.where == space::param;
    if (base == "cp") {
        e.at = has(s.text, "commit") ? unit::commit
               : has(s.text, "wait") ? unit::await
                                     : unit::copy;
        e.slots = 1;
        e.bytes = i.size;
    } else if (base == "ld" || stores || atomic || matrices) {
        const std::string type = s.text.substr(s.text.rfind('.') + 1);
        e.at = parameter ? unit::none : atomic ? unit::atomic : stores ? unit::store : unit::load;
        e.slots = !parameter;
        e.busy = e.latency = 0;
        e.bytes = matrices ? 16 : (uint8_t)(type_bytes(type) * i.count);
        e.matrices = matrices ? i.count : 0;
    } else if (base == "shfl" || base == "redux") {
        e.at = unit::exchange;
        e.slots = 1;
        e.busy = 0;
        e.latency = 23;
    }
}

// How many of the operands, of which there are so many, are results.
size_t results_of(const std::string &base, const statement &s, size_t operands) {
    static const char *const silent[] = {
        "st", "red", "cp", "bra", "ret", "bar", "exit", "trap", "griddepcontrol", "prefetch"};
    if (base == "bar" && operands == 3) {
        return 1;
    }
    for (const char *name : silent) {
        if (base == name) {
            return 0;
        }
    }
    if (s.operands.empty()) {
        return 0;
    }
    return s.operands[0].kind == operand::vector ? s.operands[0].parts.size() : 1;
}

}  // namespace

effect effect_of(const statement &s, const inst &i, size_t operands) {
    const std::string base = s.text.substr(0, s.text.find('.'));
    const price p = price_of(base, s.text, s);
    effect e = {p.at, p.slots, p.busy, p.latency, 0, 0, {}, {}};
    set_access(e, base, s, i);
    const size_t results = results_of(base, s, operands);
    for (size_t n = 0; n < operands && n < 18; n++) {
        if (i.o[n] != none) {
            (n < results ? e.writes : e.reads).push_back(i.o[n] / 4);
        }
    }
    if (results && operands && i.o[19] != none) {
        e.writes.push_back(i.o[19] / 4);
    }
    if (e.at == unit::copy) {
        for (uint32_t place : {i.o[1], i.o[2]}) {
            if (place != none) {
                e.reads.push_back(place / 4);
            }
        }
    }
    if (i.base != none) {
        e.reads.push_back(i.base / 4);
    }
    // What is not written keeps its value.
    if (i.guard != none) {
        e.reads.push_back(i.guard / 4);
        e.reads.insert(e.reads.end(), e.writes.begin(), e.writes.end());
    }
    return e;
}

namespace {

uint64_t address_at(warp &w, const inst &i, const effect &e, int l) {
    if (e.at == unit::copy) {
        return w.at<uint64_t>(i.o[1])[l] + (uint64_t)(int64_t)i.target;
    }
    uint64_t a = (uint64_t)i.offset;
    if (i.base != none) {
        a += i.address_bytes == 8 ? w.at<uint64_t>(i.base)[l] : w.at<uint32_t>(i.base)[l];
    }
    return a;
}

// Whether lanes that differ in one bit of their number, the same for all, read the same there.
bool paired(const uint64_t *a, uint32_t mask, int from, int count, int bit) {
    for (int l = from; l < from + count; l++) {
        if ((mask >> l & 1) && (mask >> (l ^ bit) & 1) && a[l] != a[l ^ bit]) {
            return false;
        }
    }
    return true;
}

// Cycles in which some lanes' accesses keep shared memory: the fullest bank decides.
uint32_t wave(const uint64_t *a, uint32_t mask, int from, int count, unsigned bytes) {
    uint64_t words[BANKS][lanes * 4];
    uint32_t n[BANKS] = {0}, most = 0;
    for (int l = from; l < from + count; l++) {
        for (unsigned b = 0; (mask >> l & 1) && b < std::max(4u, bytes); b += 4) {
            const uint64_t word = a[l] / 4 + b / 4;
            uint64_t *seen = words[word % BANKS];
            uint32_t &m = n[word % BANKS];
            if (std::find(seen, seen + m, word) == seen + m) {
                seen[m++] = word;
                most = std::max(most, m);
            }
        }
    }
    return most;
}

// Lanes of 8 and 16 bytes go by halves and quarters of a warp; two of these are one where lanes
// read the same in pairs.
uint32_t waves(const uint64_t *a, uint32_t mask, unsigned bytes) {
    const int group = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
    uint32_t all = 0;
    for (int from = 0; from < lanes;) {
        int count = group;
        if (group < 32 && from % (2 * group) == 0 &&
            (paired(a, mask, from, 2 * group, 1) || paired(a, mask, from, 2 * group, 2))) {
            count = 2 * group;
        }
        all += wave(a, mask, from, count, bytes);
        from += count;
    }
    return all;
}

// The sectors that a warp reaches, and in cycles how long its lines keep the first cache.
uint32_t reach_global(warp &w, const uint64_t *a, uint32_t mask, const effect &e, bool *missed) {
    uint64_t sectors[lanes], lines[lanes];
    uint32_t n = 0, m = 0, bytes = 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        sectors[n++] = a[l] / SECTOR;
        lines[m++] = a[l] / LINE;
        bytes += e.bytes;
    }
    std::sort(sectors, sectors + n);
    n = (uint32_t)(std::unique(sectors, sectors + n) - sectors);
    std::sort(lines, lines + m);
    m = (uint32_t)(std::unique(lines, lines + m) - lines);
    totals &t = w.block->sum;
    t.sectors += n;
    t.wanted += (bytes + SECTOR - 1) / SECTOR;
    *missed = false;
    for (uint32_t k = 0; k < n; k++) {
        const bool fresh = w.block->of->caches[w.block->number % sms].miss(sectors[k]);
        t.misses += fresh || e.at == unit::store || e.at == unit::atomic;
        *missed = *missed || fresh;
    }
    // What goes past the first cache is written to shared memory alone.
    const uint32_t data = e.at == unit::copy && e.bytes == 16 ? 0 : (bytes + LINE - 1) / LINE;
    return std::max((m + TAGS - 1) / TAGS, data);
}

uint32_t reach_shared(warp &w, const uint64_t *a, uint32_t mask, const effect &e) {
    uint32_t all = 0;
    totals &t = w.block->sum;
    if (e.matrices) {
        for (int m = 0; m < e.matrices; m++) {
            all += wave(a, ~0u, 8 * m, 8, 16);
        }
        t.fewest += e.matrices;
    } else {
        all = waves(a, mask, e.bytes);
        // Lanes that share words need fewer: what no conflict at all would take.
        uint64_t words[lanes * 4];
        uint32_t n = 0;
        for (uint32_t left = mask; left; left &= left - 1) {
            const int l = __builtin_ctz(left);
            for (unsigned b = 0; b < std::max(4u, (unsigned)e.bytes); b += 4) {
                words[n++] = a[l] / 4 + b / 4;
            }
        }
        std::sort(words, words + n);
        n = (uint32_t)(std::unique(words, words + n) - words);
        t.fewest += (n + BANKS - 1) / BANKS;
    }
    t.shared += all;
    return all;
}

// Cycles until an access's value is there.
uint32_t access(warp &w, const inst &i, const effect &e, uint32_t mask) {
    uint64_t a[lanes] = {0};
    for (uint32_t left = e.matrices ? ~0u : mask; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        a[l] = address_at(w, i, e, l);
    }
    totals &t = w.block->sum;
    if (i.where == space::shared && e.at != unit::copy) {
        const uint32_t n = reach_shared(w, a, mask, e);
        t.memory += n;
        return SHARED + n + (e.at == unit::atomic ? 40 : 0);
    }
    if (i.where == space::local || i.where == space::param) {
        t.memory += i.where == space::local;
        t.local += i.where == space::local;
        return HIT;
    }
    bool missed;
    const uint32_t n = reach_global(w, a, mask, e, &missed);
    t.memory += n;
    t.requests++;
    if (e.at == unit::copy) {
        for (uint32_t left = mask; left; left &= left - 1) {
            const int l = __builtin_ctz(left);
            a[l] = (uint64_t)i.offset + (i.base == none         ? 0
                                         : i.address_bytes == 8 ? w.at<uint64_t>(i.base)[l]
                                                                : w.at<uint32_t>(i.base)[l]);
        }
        t.memory += reach_shared(w, a, mask, e);
    }
    return e.at == unit::atomic ? ATOMIC : (missed ? MISS : HIT) + n;
}

}  // namespace

void note(warp &w, const inst &i, const effect &e, uint32_t mask) {
    pace &p = w.own;
    totals &t = w.block->sum;
    t.slots += e.slots;
    if (e.at < unit::load) {
        t.busy[(int)e.at] += e.busy;
    }
    t.lanes += (uint64_t)e.slots * __builtin_popcount(mask);
    p.clock += e.slots;
    uint64_t start = p.clock;
    for (uint32_t r : e.reads) {
        start = std::max(start, p.ready[r]);
    }
    if (i.kind == step::branch) {
        // A few instructions ptxas predicates instead.
        if (i.guard != none && i.target > w.pc && i.target - w.pc <= PREDICATED) {
            return;
        }
        p.clock = i.guard == none ? p.clock + 2 : std::max(start, p.clock) + BRANCH;
        return;
    }
    uint64_t done = start + e.latency;
    switch (e.at) {
    case unit::exchange: t.memory++; break;
    case unit::load:
    case unit::atomic:
        if (mask) {
            done = start + access(w, i, e, mask);
        }
        break;
    case unit::store:
        if (mask) {
            access(w, i, e, mask);
        }
        p.stored = std::max(p.stored, start);
        return;
    case unit::copy:
        if (mask) {
            p.group = std::max(p.group, start + access(w, i, e, mask));
        }
        return;
    case unit::commit:
        p.groups.push_back(p.group);
        p.group = 0;
        return;
    case unit::await: {
        const bool all = i.o[0] == none;
        size_t but = all ? 0 : *w.at<uint32_t>(i.o[0]);
        if (all) {
            p.clock = std::max(p.clock, p.group);
        }
        for (size_t n = 0; n + but < p.groups.size(); n++) {
            p.clock = std::max(p.clock, p.groups[n]);
        }
        return;
    }
    default: break;
    }
    for (uint32_t r : e.writes) {
        p.ready[r] = std::max(i.guard != none ? p.ready[r] : 0, done);
    }
}

void begin_profile(cta &b) {
    launch &l = *b.of;
    const dim3 &shape = l.config.block, &grid = l.config.grid;
    if (l.caches.empty()) {
        const size_t all = (size_t)grid.x * grid.y * grid.z, threads = shape.x * shape.y * shape.z;
        const size_t resident = std::min((all + sms - 1) / sms, 2048 / threads);
        const size_t used = std::min((size_t)196, resident * (l.shared_bytes + 1024) / 1024);
        l.caches.resize(sms);
        for (cache &c : l.caches) {
            c.most = (228 - used) * 1024 / SECTOR;
        }
    }
    b.sum = totals();
    for (warp &w : b.warps) {
        w.own = pace();
        w.own.ready.assign(b.of->code->frame / 4, 0);
    }
}

void meet_profile(cta &b) {
    uint64_t last = 0;
    for (warp &w : b.warps) {
        last = std::max({last, w.own.clock, w.own.stored});
    }
    for (warp &w : b.warps) {
        w.own.clock = last + BARRIER;
    }
    b.sum.barriers++;
}

void end_profile(cta &b) {
    uint64_t last = 0;
    for (warp &w : b.warps) {
        last = std::max({last, w.own.clock, w.own.stored});
    }
    totals &to = b.of->sum, &t = b.sum;
    to.slots += t.slots;
    to.lanes += t.lanes;
    for (int n = 0; n < 4; n++) {
        to.busy[n] += t.busy[n];
    }
    to.memory += t.memory;
    to.requests += t.requests;
    to.sectors += t.sectors;
    to.wanted += t.wanted;
    to.misses += t.misses;
    to.shared += t.shared;
    to.fewest += t.fewest;
    to.local += t.local;
    to.barriers += t.barriers;
    to.path += last;
    to.longest = std::max(to.longest, last);
    to.blocks++;
}

bool is_counted(size_t block, size_t blocks) {
    return blocks <= 2 * sms || block % sms % (sms / 2) == 0;
}

void write_profile(const launch &l) {
    FILE *f = fopen(profile_file(), "a");
    if (!f) {
        judge_fault("JUDGE_PROFILE: cannot write %s", profile_file());
    }
    const judge_config &c = l.config;
    const totals &t = l.sum;
    fprintf(f, "%s\t%llu\t%u\t%zu\t%llu", l.code->name.c_str(),
            (unsigned long long)c.grid.x * c.grid.y * c.grid.z, c.block.x * c.block.y * c.block.z,
            l.shared_bytes, (unsigned long long)t.blocks);
    for (uint64_t v : {t.slots, t.lanes, t.busy[0], t.busy[1], t.busy[2], t.busy[3], t.memory,
                       t.requests, t.sectors, t.wanted, t.misses, t.shared, t.fewest, t.local,
                       t.barriers, t.path, t.longest}) {
        fprintf(f, "\t%llu", (unsigned long long)v);
    }
    fprintf(f, "\n");
    fclose(f);
}

}  // namespace ptx
