// An interpreter of the PTX that nvcc makes of emitted CUDA: with JUDGE_PTX=FILE[:FILE...] the
// judge runs what these hold for its kernels instead of their C++. Warps are run in lockstep; of
// lanes that diverge those that are furthest behind go first. What instructions do is written from
// the PTX ISA, not from the templates; one that is not known here is a fault. One thread runs at a
// time, so that fences do nothing; races are for the judge's own mode.
//
//   ptx_parse.cpp    text to modules and statements
//   ptx_decode.cpp   statements to instructions: places of registers, functions to run
//   ptx_alu.cpp      arithmetic
//   ptx_move.cpp     comparisons, predicates, choices, moves
//   ptx_cvt.cpp      conversions and numbers of 16 bits
//   ptx_memory.cpp   loads, stores, atomics, asynchronous copies
//   ptx_warp.cpp     what the lanes of a warp do together: shuffles, votes, matrices
//   ptx_wgmma.cpp    what warpgroups multiply
//   ptx_order.cpp    what these products have to be ordered with
//   ptx_run.cpp      warps, blocks and grids
//   ptx_profile.cpp  what a launch would ask of a GPU, counted on request
#ifndef JUDGE_PTX_H
#define JUDGE_PTX_H

#include <stdint.h>
#include <string.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "judge.h"

namespace ptx {

// ---- text

struct operand {
    enum { name, number, vector, address } kind = name;
    std::string text, second;  // `second`: the q of p|q
    uint64_t value = 0;        // a number's, or what is added to an address
    bool negated = false;
    std::vector<operand> parts;
};

struct declaration {
    std::string space, type, name;
    size_t align = 0, bytes = 0;
    bool array = false, ranged = false;
    std::string initial;  // bytes
};

// A label, a declaration, a brace, or an instruction with its guard.
struct statement {
    enum { label, declares, opens, closes, instruction } kind;
    int line = 0;
    std::string text, guard;
    bool guard_negated = false;
    std::vector<operand> operands;
    declaration declared;
};

struct function {
    std::string name;
    bool entry = false;
    std::vector<declaration> results, parameters;
    unsigned most_threads = 1024, cluster = 1;
    const char *body = nullptr, *end = nullptr;
    int line = 0;
};

struct module {
    std::string file, text;
    std::map<std::string, function> functions;
    std::map<std::string, declaration> variables;
    std::map<std::string, std::vector<uint64_t>> memory;  // of .global and .const variables
};

void parse_module(module &m);
std::vector<statement> parse_body(const module &m, const function &f);
size_t type_bytes(const std::string &type);

// ---- instructions

const int lanes = 32;
const uint32_t none = ~0u;
const uint32_t shared_window = 1024;  // where shared memory begins in its own addresses

struct warp;
struct inst;
typedef void (*handler)(warp &, const inst &, uint32_t mask);

enum class step : uint8_t {
    plain,
    branch,
    leave,
    meet,
    barrier,
    arrive,
    join,
    await,
    trigger,
    trap
};
enum class space : uint8_t { generic, global, shared, local, param };

struct inst {
    handler run = nullptr;
    step kind = step::plain;
    space where = space::generic;
    bool guard_negated = false;
    uint8_t count = 1, size = 0, flags = 0, register_bytes = 0, address_bytes = 0;
    uint8_t source_bytes = 0;  // of the second operand's register
    uint32_t guard = none;
    uint32_t members = none;  // of what a warp does together: who, or none for all
    uint32_t target = 0;
    int line = 0;
    int64_t offset = 0;
    uint32_t base = none;  // of an address; none: `offset` is all of it
    uint32_t o[20];        // places in a warp's registers
};

struct special {
    std::string name;
    uint32_t place;
};

struct constant {
    uint32_t place;
    bool wide;
    uint64_t value;
};

// What an instruction asks of a GPU (ptx_profile.cpp): a unit of a scheduler for `busy` cycles, and
// places of registers in words.
enum class unit : uint8_t {
    fma,
    whole,
    special,
    matrix,
    load,
    store,
    atomic,
    copy,
    commit,
    await,
    exchange,
    none
};

struct effect {
    unit at = unit::none;
    uint8_t slots = 0;
    uint16_t busy = 0, latency = 0;
    uint8_t bytes = 0, matrices = 0;
    std::vector<uint32_t> reads, writes;
};

// Registers that an instruction reads and writes.
struct touches {
    std::vector<uint32_t> reads, writes;
};

// An entry, decoded. Every warp has a frame of its own: constants, then registers, each with a
// value for every lane; a predicate is one word.
struct kernel {
    const module *from = nullptr;
    std::string name;
    std::vector<declaration> parameters;
    std::vector<uint32_t> parameter_at;
    std::vector<inst> code;
    std::vector<effect> effects;
    std::vector<std::vector<uint32_t>> lists;  // places of registers, where there are many
    // Of products of warpgroups, by list: the registers of sums (written) and of factors (read), as
    // numbers among those that some product has. By instruction: which of these it touches.
    std::vector<touches> products, touched;
    uint32_t watched = 0;
    std::vector<special> specials;
    std::vector<constant> constants;
    size_t frame = 0, shared = 0, dynamic_align = 16, local = 0, parameter_bytes = 0;
    unsigned most_threads = 1024, cluster = 1;
};

std::unique_ptr<kernel> decode(module &m, const function &f);

// An instruction's name in parts. What a handler's choice does not take is not known.
struct opcode {
    std::string base, whole;
    std::vector<std::string> parts;
    bool take(const char *part);
    std::string type();  // takes the first part that is a type
    bool done() const { return parts.empty(); }
};

// What is chosen for an instruction: its function, and the types of its operands in order.
struct choice {
    inst *at;
    std::vector<std::string> types;
};

bool choose_alu(opcode &op, choice &c);
bool choose_move(opcode &op, choice &c, size_t operands);
static inline bool finish(choice &c, handler run, std::vector<std::string> types) {
    c.at->run = run;
    c.types = std::move(types);
    return run != nullptr;
}

bool choose_parts(opcode &op, choice &c, const statement &s);
bool choose_convert(opcode &op, choice &c, size_t operands);
bool choose_memory(opcode &op, choice &c, const statement &s);
bool choose_warp(opcode &op, choice &c, const statement &s);
bool choose_group(const opcode &op, inst &i, int &columns, bool &fragment);

// ---- running

struct copy {
    uint32_t to, lane, group;
    uint8_t bytes, data[16];
};

struct cta;

// A warp's share of a product that need not be over yet: its registers, the parts of 16 bytes of
// shared memory that it reads, and how many batches had been committed before it was.
struct product {
    const touches *registers;
    uint32_t batch;
    bool committed;
    std::vector<uint32_t> parts;
};

// When a warp has what: cycles since its block began.
struct pace {
    uint64_t clock = 0, stored = 0, group = 0;
    std::vector<uint64_t> ready, groups;
};

// Of a block, and of all blocks of a launch. `path`: cycles that blocks take at least.
struct totals {
    uint64_t slots = 0, lanes = 0, busy[4] = {0}, memory = 0, requests = 0, sectors = 0, wanted = 0;
    uint64_t misses = 0, shared = 0, fewest = 0, local = 0, barriers = 0, path = 0, longest = 0;
    uint64_t blocks = 0;
};

struct warp {
    char *frame = nullptr;
    cta *block = nullptr;
    unsigned number = 0;
    uint32_t present = 0, alive = 0, active = 0, stuck = 0;
    uint32_t pc = 0, other = 0, pcs[lanes];
    uint32_t groups[lanes];  // of asynchronous copies that each lane has begun
    std::vector<copy> copies;
    std::vector<char> local;
    uint32_t ordered = 0;
    enum { ready, at_barrier, at_cluster, at_grid, over } state = ready;
    bool arrived = false;  // at its cluster's barrier, which has been passed `turn` times by then
    size_t turn = 0;
    uint32_t vote = 0;
    std::vector<product> products;
    std::vector<uint8_t> registers;  // of those watched: what became of each (ptx_order.cpp)
    uint32_t batches = 0;
    uint64_t sequence = 0;  // of what it has done together with its warpgroup
    bool fenced = false;
    pace own;

    template <class T>
    T *at(uint32_t place) {
        return reinterpret_cast<T *>(frame + place);
    }
};

// The bytes of an allocation that one launch reads as constant (ld.global.nc), or writes: none may
// be both.
struct marks {
    std::vector<uint64_t> constant, written;
};

struct range {
    const char *first = nullptr;
    size_t bytes = 0;
    marks *touched = nullptr;
};

struct launch;

// Blocks that run side by side: how many of their warps have arrived at their barrier, how many of
// these let others see what they wrote, how often all have arrived, and whether all let others see.
struct cluster {
    std::vector<std::unique_ptr<cta>> blocks;
    size_t arrived = 0, released = 0, turn = 0;
    bool visible = true;
};

// Of a block whose warpgroups multiply: which thread wrote a word of shared memory and when, how
// many products and copies that are not over read and write a part of 16 bytes, and when a thread
// last showed others what it wrote. Time is counted in writes and fences.
struct order {
    std::vector<uint16_t> writer, reading, coming;
    std::vector<uint32_t> written, shown;
    uint32_t now = 0;
};

// A block with its warps. `ahead`: what comes before the grid is not over yet.
struct cta {
    launch *of;
    cluster *in;
    size_t number;
    bool ahead = false;
    std::vector<char> frames, shared;
    std::vector<warp> warps;
    order known;
    uint3 index;
    totals sum;
};

const unsigned sms = 132;  // block b runs on SM b % sms

// Sectors of global memory that an SM's first cache holds: the last ones that it fetched.
struct cache {
    size_t most = 0, next = 0;
    std::vector<uint64_t> order;
    std::unordered_set<uint64_t> held;
    bool miss(uint64_t sector) {
        if (!held.insert(sector).second) {
            return false;
        }
        if (order.size() < most) {
            order.push_back(sector);
        } else {
            held.erase(order[next]);
            order[next] = sector;
            next = (next + 1) % most;
        }
        return true;
    }
};

struct launch {
    const kernel *code;
    judge_config config;
    std::vector<char> parameters;
    std::vector<range> seen;  // by instruction: the allocation that it met last
    std::map<const char *, marks> touched;
    size_t shared_bytes;
    bool reversed, random;
    totals sum;
    std::vector<cache> caches;
};

// ---- ptx_profile.cpp

const char *profile_file();  // of JUDGE_PROFILE, or null
effect effect_of(const statement &s, const inst &i, size_t operands);
void begin_profile(cta &b);
void note(warp &w, const inst &i, const effect &e, uint32_t mask);
void meet_profile(cta &b);
void end_profile(cta &b);
void write_profile(const launch &l);
bool is_counted(size_t block, size_t blocks);  // of large grids two SMs' are run, and no others

[[noreturn]] void fault(const warp &w, const inst &i, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- ptx_order.cpp, for kernels whose warpgroups multiply

void watch_registers(kernel &k);
void begin_order(cta &b);
void end_order(cta &b);
void note_registers(warp &w, const inst &i, const touches &t);
void begin_write(warp &w, const inst &i, uint32_t at, size_t bytes);
void end_write(warp &w, int lane, uint32_t at, size_t bytes);
void show_writes(warp &w, const inst &i, uint32_t mask);
void fence_products(warp &w, const inst &i, uint32_t mask);
void commit_products(warp &w, const inst &i, uint32_t mask);
void await_products(warp &w, const inst &i, uint32_t mask);
void begin_product(warp &w, const inst &i);
void read_shared(warp &w, const inst &i, uint32_t at, uint32_t bytes);

// ---- values in registers

template <class T>
using cell = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
static inline T get(cell<T> c) {
    if constexpr (sizeof(T) == sizeof(c)) {
        return __builtin_bit_cast(T, c);
    } else {
        return (T)c;
    }
}

// What is narrower than its register is zero above.
template <class T>
static inline cell<T> put(T v) {
    if constexpr (sizeof(T) == sizeof(cell<T>)) {
        return __builtin_bit_cast(cell<T>, v);
    } else {
        return (cell<T>)(std::make_unsigned_t<T>)v;
    }
}

template <class F>
static inline __attribute__((always_inline)) void each(uint32_t mask, F f) {
    if (mask == ~0u) {
#pragma GCC ivdep
        for (int l = 0; l < lanes; l++) {
            f(l);
        }
        return;
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        f(__builtin_ctz(rest));
    }
}

float from_half(uint16_t bits);

}  // namespace ptx

#endif
