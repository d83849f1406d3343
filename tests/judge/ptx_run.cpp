// Warps, blocks and grids of interpreted PTX, and where the judge hands its launches over.
#include <ctype.h>
#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "ptx.h"

namespace ptx {

void fault(const warp &w, const inst &i, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const launch &of = *w.block->of;
    judge_fault("kernel %s, block (%u,%u,%u), warp %u, %s:%d: %s", of.config.name, w.block->index.x,
                w.block->index.y, w.block->index.z, w.number, of.code->from->file.c_str(), i.line,
                text);
}

namespace {

// ---- warps. `active` lanes are at `pc`, the others of `alive` at `pcs`, `stuck` ones at something
// that has to be done together with others. `other`: the least of the others' places.

void regroup(warp &w) {
    for (uint32_t left = w.active; left; left &= left - 1) {
        w.pcs[__builtin_ctz(left)] = w.pc;
    }
    w.pc = w.other = none;
    const uint32_t able = w.alive & ~w.stuck;
    for (uint32_t left = able; left; left &= left - 1) {
        const uint32_t at = w.pcs[__builtin_ctz(left)];
        if (at < w.pc) {
            w.other = w.pc;
            w.pc = at;
        } else if (at > w.pc && at < w.other) {
            w.other = at;
        }
    }
    w.active = 0;
    for (uint32_t left = able; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        w.active |= (uint32_t)(w.pcs[l] == w.pc) << l;
    }
}

void set_places(warp &w, uint32_t which, uint32_t pc) {
    for (uint32_t left = which; left; left &= left - 1) {
        w.pcs[__builtin_ctz(left)] = pc;
    }
}

// The lanes of `taken` go on at `target`, the other active ones at the next instruction.
void diverge(warp &w, uint32_t taken, uint32_t target) {
    const uint32_t rest = w.active & ~taken;
    set_places(w, taken, target);
    set_places(w, rest, w.pc + 1);
    w.active = 0;
    regroup(w);
}

void advance(warp &w) {
    if (++w.pc >= w.other) {
        regroup(w);
    }
}

// Whether all that the active lanes want to meet are here.
bool together(warp &w, const inst &i) {
    if (i.members == none) {
        return w.active == w.alive;
    }
    const uint32_t *named = w.at<uint32_t>(i.members);
    for (uint32_t left = w.active; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        const uint32_t who = named[l] & w.present;
        if (!(named[l] >> l & 1)) {
            fault(w, i, "lane %d is not in the mask %#x of what it takes part in", l, named[l]);
        }
        if (who & ~w.alive) {
            fault(w, i, "lanes %#x, which have returned, are wanted", who & ~w.alive);
        }
        if (who & ~w.active) {
            return false;
        }
    }
    return true;
}

// Brings those who wait here for the active lanes into them; false: others go first.
bool gathered(warp &w, const inst &i) {
    for (uint32_t left = w.stuck; left; left &= left - 1) {
        const int l = __builtin_ctz(left);
        if (w.pcs[l] == w.pc) {
            w.active |= 1u << l;
            w.stuck &= ~(1u << l);
        }
    }
    if (together(w, i)) {
        return true;
    }
    w.stuck |= w.active;
    set_places(w, w.active, w.pc);
    w.active = 0;
    if (w.stuck == w.alive) {
        fault(w, i, "lanes that have to be here together are at different places");
    }
    regroup(w);
    return false;
}

void leave(warp &w, const inst &i, uint32_t mask) {
    if (w.block->of->config.early && (mask & ~w.ordered)) {
        fault(w, i, "launched early, and a thread ends without griddepcontrol.wait");
    }
    for (const copy &c : w.copies) {
        if (mask >> c.lane & 1) {
            fault(w, i, "a thread ends without waiting for its asynchronous copies");
        }
    }
    if (!w.products.empty()) {
        fault(w, i, "a thread ends without waiting for its products");
    }
    if (w.arrived) {
        fault(w, i, "a thread ends without waiting for its cluster, at whose barrier it arrived");
    }
    const uint32_t rest = w.active & ~mask;
    w.alive &= ~mask;
    w.active = 0;
    set_places(w, rest, w.pc + 1);
    regroup(w);
    if (!w.alive) {
        w.state = warp::over;
    } else if (!w.active) {
        fault(w, i, "lanes wait for some that have returned");
    }
}

// A guarded instruction that lanes do together: the others are sent on before.
bool sent_on(warp &w, uint32_t mask) {
    if (mask == w.active) {
        return false;
    }
    const uint32_t rest = w.active & ~mask, at = w.pc;
    set_places(w, mask, at);
    set_places(w, rest, at + 1);
    w.active = 0;
    regroup(w);
    return true;
}

// At the cluster's barrier. True while the warp can go on.
bool cluster_step(warp &w, const inst &i) {
    cluster &all = *w.block->in;
    if (w.alive != w.present || w.arrived != (i.kind == step::join)) {
        fault(w, i, "a cluster's barrier wants all threads, to arrive and to wait in turn");
    }
    if (i.kind == step::arrive) {
        w.arrived = true;
        w.turn = all.turn;
        all.released += !i.flags;
        if (++all.arrived == all.blocks.size() * w.block->warps.size()) {
            all.visible = all.released == all.arrived;
            all.arrived = all.released = 0;
            all.turn++;
        }
    } else if (all.turn == w.turn) {
        w.state = warp::at_cluster;
        return false;
    } else {
        w.arrived = false;
    }
    advance(w);
    return true;
}

// An instruction that is more than its function. True while the warp can go on.
bool special_step(warp &w, const inst &i, uint32_t mask) {
    switch (i.kind) {
    case step::branch:
        if (mask == w.active) {
            w.pc = i.target;
            if (w.other != none) {
                regroup(w);
            }
        } else {
            diverge(w, mask, i.target);
        }
        return true;
    case step::leave: leave(w, i, mask); return w.state == warp::ready;
    case step::trap: fault(w, i, "trap");
    case step::trigger:
        if (mask & ~w.ordered) {
            fault(w, i, "the next kernel is let in before griddepcontrol.wait");
        }
        judge_let_in = w.block->of->config.name;
        advance(w);
        return true;
    default: break;
    }
    if (sent_on(w, mask) || !gathered(w, i)) {
        return true;
    }
    if (i.kind == step::meet) {
        if (profile_file()) {
            note(w, i, w.block->of->code->effects[w.pc], w.active);
        }
        i.run(w, i, w.active);
        advance(w);
        return true;
    }
    if (i.kind == step::arrive || i.kind == step::join) {
        return cluster_step(w, i);
    }
    if (i.kind == step::barrier && w.alive != w.present) {
        fault(w, i, "a barrier is reached after threads of the block have returned");
    }
    if (i.kind == step::await && !w.block->ahead) {
        w.ordered = w.alive;
        advance(w);
        return true;
    }
    w.state = i.kind == step::barrier ? warp::at_barrier : warp::at_grid;
    return false;
}

template <bool profiled>
void run_warp(warp &w) {
    const effect *effects = w.block->of->code->effects.data();
    const inst *code = w.block->of->code->code.data();
    const touches *touched = w.registers.empty() ? nullptr : w.block->of->code->touched.data();
    for (;;) {
        const inst &i = code[w.pc];
        uint32_t mask = w.active;
        if (i.guard != none) {
            const uint32_t p = *w.at<uint32_t>(i.guard);
            mask &= i.guard_negated ? ~p : p;
        }
        if (profiled && i.kind != step::meet) {
            note(w, i, effects[w.pc], mask);
        }
        if (touched && mask) {
            note_registers(w, i, touched[w.pc]);
        }
        if (i.kind != step::plain) {
            if (!mask) {
                advance(w);
            } else if (!special_step(w, i, mask)) {
                return;
            }
            continue;
        }
        if (mask) {
            i.run(w, i, mask);
        }
        if (++w.pc >= w.other) {
            regroup(w);
        }
    }
}

// ---- blocks

uint32_t value_of(const std::string &name, const warp &w, unsigned lane) {
    const judge_config &c = w.block->of->config;
    const uint3 &at = w.block->index;
    const unsigned linear = w.number * lanes + lane;
    const std::map<std::string, uint32_t> all = {{"%tid.x", linear % c.block.x},
                                                 {"%tid.y", linear / c.block.x % c.block.y},
                                                 {"%tid.z", linear / c.block.x / c.block.y},
                                                 {"%ntid.x", c.block.x},
                                                 {"%ntid.y", c.block.y},
                                                 {"%ntid.z", c.block.z},
                                                 {"%ctaid.x", at.x},
                                                 {"%ctaid.y", at.y},
                                                 {"%ctaid.z", at.z},
                                                 {"%nctaid.x", c.grid.x},
                                                 {"%nctaid.y", c.grid.y},
                                                 {"%nctaid.z", c.grid.z},
                                                 {"%laneid", lane},
                                                 {"%warpid", w.number},
                                                 {"%lanemask_eq", 1u << lane},
                                                 {"%lanemask_lt", (1u << lane) - 1},
                                                 {"%lanemask_le", (2u << lane) - 1},
                                                 {"%lanemask_gt", ~((2u << lane) - 1)},
                                                 {"%lanemask_ge", ~((1u << lane) - 1)}};
    auto found = all.find(name);
    if (found == all.end()) {
        judge_fault("%s: a register that is not known here: %s", c.name, name.c_str());
    }
    return found->second;
}

void set_specials(warp &w, bool first) {
    for (const special &s : w.block->of->code->specials) {
        if (!first && s.name.compare(0, 6, "%ctaid") != 0) {
            continue;
        }
        for (unsigned l = 0; l < lanes; l++) {
            w.at<uint32_t>(s.place)[l] = value_of(s.name, w, l);
        }
    }
}

// Everything unset reads as NaN, as in the judge's other memory.
void prepare(cta &b, launch &of, size_t number) {
    const kernel &k = *of.code;
    const dim3 &grid = of.config.grid, &shape = of.config.block;
    const unsigned threads = shape.x * shape.y * shape.z, count = (threads + lanes - 1) / lanes;
    const bool first = b.warps.empty();
    b.of = &of;
    b.number = number;
    b.index = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
               (unsigned)(number / grid.x / grid.y)};
    b.shared.assign(of.shared_bytes, (char)0xff);
    if (first) {
        b.warps.resize(count);
        b.frames.assign(count * k.frame + 64, (char)0xff);
    }
    char *frames = b.frames.data() + (64 - (uintptr_t)b.frames.data() % 64) % 64;
    for (unsigned n = 0; n < count; n++) {
        warp &w = b.warps[n];
        w.frame = frames + n * k.frame;
        w.block = &b;
        w.number = n;
        const unsigned left = threads - n * lanes;
        w.present = w.alive = w.active = left >= lanes ? ~0u : (1u << left) - 1;
        w.stuck = 0;
        w.arrived = false;
        w.pc = 0;
        w.other = none;
        w.state = warp::ready;
        w.ordered = of.config.early ? 0 : ~0u;
        w.copies.clear();
        memset(w.groups, 0, sizeof w.groups);
        w.local.assign(k.local * lanes, (char)0xff);
        set_specials(w, first);
        for (const constant &c : first ? k.constants : std::vector<constant>()) {
            for (unsigned l = 0; l < lanes; l++) {
                c.wide ? (void)(w.at<uint64_t>(c.place)[l] = c.value)
                       : (void)(w.at<uint32_t>(c.place)[l] = (uint32_t)c.value);
            }
        }
    }
    begin_order(b);
    if (profile_file()) {
        begin_profile(b);
    }
}

// All warps are at a barrier: their votes are counted, and they go on.
void release(cta &b) {
    if (profile_file()) {
        meet_profile(b);
    }
    bool any = false, all = true;
    const inst *code = b.of->code->code.data();
    for (warp &w : b.warps) {
        const inst &i = code[w.pc];
        if (i.flags) {
            uint32_t p = *w.at<uint32_t>(i.o[2]);
            p = (i.flags & 0x80 ? ~p : p) & w.present;
            any = any || p;
            all = all && p == w.present;
        }
    }
    for (warp &w : b.warps) {
        const inst &i = code[w.pc];
        if (i.flags) {
            *w.at<uint32_t>(i.o[0]) = ((i.flags & 3) == 1 ? any : all) ? ~0u : 0;
        }
        w.state = warp::ready;
        advance(w);
    }
}

// Lets warps go on that all of their cluster have met; whether there were some.
bool woken(cta &b) {
    bool some = false;
    for (warp &w : b.warps) {
        if (w.state == warp::at_cluster && b.in->turn != w.turn) {
            w.state = warp::ready;
            some = true;
        }
    }
    return some;
}

// Runs a block to its end, or to where all wait for the rest of the cluster or, ahead, for what
// comes before the grid.
void run_block(cta &b) {
    const size_t count = b.warps.size();
    for (;;) {
        size_t over = 0, waiting = 0, held = 0;
        for (size_t n = 0; n < count; n++) {
            warp &w = b.warps[b.of->reversed ? count - 1 - n : n];
            if (w.state == warp::ready) {
                profile_file() ? run_warp<true>(w) : run_warp<false>(w);
            }
            over += w.state == warp::over;
            waiting += w.state == warp::at_barrier;
            held += w.state == warp::at_grid || w.state == warp::at_cluster;
        }
        if (woken(b)) {
            continue;
        }
        if (over == count || (held && held + over == count)) {
            if (over == count) {
                end_order(b);
            }
            if (profile_file() && over == count) {
                end_profile(b);
            }
            return;
        }
        if (waiting == count) {
            release(b);
        } else {
            for (warp &w : b.warps) {
                if (w.state == warp::at_barrier) {
                    fault(w, b.of->code->code[w.pc], "not all threads reach the barrier");
                }
            }
        }
    }
}

bool is_over(const cta &b) {
    bool over = true;
    for (const warp &w : b.warps) {
        over = over && w.state == warp::over;
    }
    return over;
}

// Runs blocks side by side to their ends, or, ahead, to where all wait.
void run_cluster(cluster &c) {
    const size_t count = c.blocks.size();
    for (bool some = true; some;) {
        for (size_t n = 0; n < count; n++) {
            cta &b = *c.blocks[c.blocks[0]->of->reversed ? count - 1 - n : n];
            if (!is_over(b)) {
                run_block(b);
            }
        }
        some = false;
        for (auto &b : c.blocks) {
            some = woken(*b) || some;
        }
    }
    for (auto &b : c.blocks) {
        for (const warp &w : b->warps) {
            if (w.state == warp::at_cluster) {
                fault(w, b->of->code->code[w.pc], "not all blocks reach the cluster's barrier");
            }
        }
    }
}

void go_on(cluster &c) {
    for (auto &b : c.blocks) {
        b->ahead = false;
        for (warp &w : b->warps) {
            if (w.state == warp::at_grid) {
                w.state = warp::ready;
                w.ordered = w.alive;
                advance(w);
            }
        }
    }
    run_cluster(c);
}

// ---- which kernel a function is

std::vector<std::unique_ptr<module>> &modules() {
    static auto *all = [] {
        auto *found = new std::vector<std::unique_ptr<module>>;
        std::istringstream files(getenv("JUDGE_PTX") ? getenv("JUDGE_PTX") : "");
        for (std::string file; std::getline(files, file, ':');) {
            auto m = std::make_unique<module>();
            std::ifstream in(file, std::ios::binary);
            std::ostringstream text;
            text << in.rdbuf();
            if (!in) {
                judge_fault("JUDGE_PTX: cannot read %s", file.c_str());
            }
            m->file = file;
            m->text = text.str();
            parse_module(*m);
            found->push_back(std::move(m));
        }
        return found;
    }();
    return *all;
}

// A name without what says that it is one file's own: nvcc leaves these letters away.
std::string shared_name(const std::string &name) {
    std::string s = name;
    size_t at = s.compare(0, 3, "_ZN") == 0 ? 3 : 2;
    if (s.compare(0, 2, "_Z") != 0) {
        return s;
    }
    for (bool nested = at == 3;; nested = nested && at < s.size()) {
        if (s[at] == 'L' && isdigit((unsigned char)s[at + 1])) {
            s.erase(at, 1);
        }
        if (!nested || !isdigit((unsigned char)s[at])) {
            return s;
        }
        char *end;
        const size_t length = strtoul(s.c_str() + at, &end, 10);
        at = (size_t)(end - s.c_str()) + length;
    }
}

// The running program's functions by address.
std::map<uintptr_t, std::string> read_symbols() {
    std::map<uintptr_t, std::string> names;
    std::ifstream in("/proc/self/exe", std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    const std::string file = text.str();
    const char *p = file.data();
    const auto *header = (const ElfW(Ehdr) *)p;
    const auto *sections = (const ElfW(Shdr) *)(p + header->e_shoff);
    uintptr_t base = 0;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *to) {
            *(uintptr_t *)to = info->dlpi_addr;
            return 1;  // the program itself comes first
        },
        &base);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) {
            continue;
        }
        const char *strings = p + sections[sections[s].sh_link].sh_offset;
        const auto *symbols = (const ElfW(Sym) *)(p + sections[s].sh_offset);
        for (size_t n = 0; n < sections[s].sh_size / sizeof *symbols; n++) {
            if (ELF64_ST_TYPE(symbols[n].st_info) == STT_FUNC && symbols[n].st_value) {
                names[base + symbols[n].st_value] = strings + symbols[n].st_name;
            }
        }
    }
    return names;
}

const kernel &kernel_of(const judge_config &config) {
    static auto *known = new std::map<const void *, std::unique_ptr<kernel>>;
    auto found = known->find(config.function);
    if (found != known->end()) {
        return *found->second;
    }
    static auto *names = new std::map<uintptr_t, std::string>(read_symbols());
    const std::string name = shared_name((*names)[(uintptr_t)config.function]);
    std::unique_ptr<kernel> decoded;
    for (auto &m : modules()) {
        auto f = m->functions.find(name);
        if (f == m->functions.end() || !f->second.entry) {
            continue;
        }
        if (decoded) {
            judge_fault("kernel %s: two files of JUDGE_PTX have %s", config.name, name.c_str());
        }
        decoded = decode(*m, f->second);
    }
    if (!decoded) {
        judge_fault("kernel %s: no entry %s in JUDGE_PTX", config.name, name.c_str());
    }
    return *((*known)[config.function] = std::move(decoded));
}

// The arguments where the entry's declarations want them.
void place_arguments(launch &l, const std::vector<std::string> &arguments) {
    const kernel &k = *l.code;
    if (arguments.size() != k.parameters.size()) {
        judge_fault("kernel %s: %zu arguments for %zu parameters", l.config.name, arguments.size(),
                    k.parameters.size());
    }
    l.parameters.assign(k.parameter_bytes, (char)0xff);
    for (size_t a = 0; a < arguments.size(); a++) {
        if (arguments[a].size() != k.parameters[a].bytes) {
            judge_fault("kernel %s: argument %zu has %zu bytes, its parameter %zu", l.config.name,
                        a, arguments[a].size(), k.parameters[a].bytes);
        }
        memcpy(l.parameters.data() + k.parameter_at[a], arguments[a].data(), arguments[a].size());
    }
}

// Block clusters that have begun, by the number of their first block.
struct started : launch {
    std::map<size_t, cluster> held;
};

// The blocks from `first` on, which are a cluster.
void prepare_cluster(cluster &c, launch &of, size_t first, bool ahead) {
    c.blocks.resize(of.code->cluster);
    c.arrived = c.released = 0;
    c.visible = true;
    for (size_t n = 0; n < c.blocks.size(); n++) {
        if (!c.blocks[n]) {
            c.blocks[n] = std::make_unique<cta>();
        }
        c.blocks[n]->in = &c;
        c.blocks[n]->ahead = ahead;
        prepare(*c.blocks[n], of, first + n);
    }
}

std::shared_ptr<started> begin(judge_grid &grid) {
    auto l = std::make_shared<started>();
    l->code = &kernel_of(grid.config);
    l->config = grid.config;
    l->reversed = judge_env().order == judge_settings::reversed;
    l->random = judge_env().order == judge_settings::random;
    l->shared_bytes = l->code->shared + grid.config.shared;
    if (l->shared_bytes > (size_t)judge_shared_of(grid.config.function)) {
        judge_fault("kernel %s: %zu bytes of shared memory, %zu of them static", grid.config.name,
                    l->shared_bytes, l->code->shared);
    }
    const dim3 &b = grid.config.block;
    if (b.x * b.y * b.z > l->code->most_threads) {
        judge_fault("kernel %s: %u threads, its bound is %u", grid.config.name, b.x * b.y * b.z,
                    l->code->most_threads);
    }
    if (grid.config.grid.x % l->code->cluster) {
        judge_fault("kernel %s: a grid of %u blocks is not whole clusters of %u", grid.config.name,
                    grid.config.grid.x, l->code->cluster);
    }
    l->seen.resize(l->code->code.size());
    place_arguments(*l, grid.arguments);
    return l;
}

}  // namespace

}  // namespace ptx

bool judge_interprets() {
    static const bool set = getenv("JUDGE_PTX") != nullptr;
    return set;
}

void judge_interpret_ahead(judge_grid &grid) {
    auto l = ptx::begin(grid);
    const dim3 &g = grid.config.grid;
    const size_t blocks = (size_t)g.x * g.y * g.z;
    for (size_t first : {(size_t)0, blocks - l->code->cluster}) {
        if (!l->held.count(first)) {
            ptx::prepare_cluster(l->held[first], *l, first, true);
            ptx::run_cluster(l->held[first]);
        }
    }
    grid.interpreted = l;
}

void judge_interpret(judge_grid &grid) {
    auto l = std::static_pointer_cast<ptx::started>(grid.interpreted);
    grid.interpreted.reset();
    if (!l) {
        l = ptx::begin(grid);
    }
    for (auto &c : l->held) {
        ptx::go_on(c.second);
    }
    const dim3 &g = grid.config.grid;
    const size_t size = l->code->cluster, blocks = (size_t)g.x * g.y * g.z;
    ptx::cluster next;
    for (size_t n = 0; n < blocks; n += size) {
        const size_t first = l->reversed ? blocks - size - n : n;
        if (!l->held.count(first) &&
            (!ptx::profile_file() || ptx::is_counted(first / size, blocks / size))) {
            ptx::prepare_cluster(next, *l, first, false);
            ptx::run_cluster(next);
        }
    }
    if (ptx::profile_file()) {
        ptx::write_profile(*l);
    }
}
