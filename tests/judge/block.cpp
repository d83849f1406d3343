// Runs a grid on one CPU thread. Every CUDA thread gets a fiber, but a fiber runs threads one after
// another until one of them has to wait, so kernels without barriers never switch. Barriers and
// warp operations are checked: all expected threads, one source line.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "fiber.h"
#include "include/cuda_pipeline_primitives.h"
#include "judge.h"

#define KEEP_OUT_OF_BSS \
    __attribute__((section("judge_state")))  // race mode takes .bss for shared memory

KEEP_OUT_OF_BSS judge_thread *judge_self = nullptr;
KEEP_OUT_OF_BSS uint3 threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0};
KEEP_OUT_OF_BSS dim3 blockDim(1), gridDim(1);
KEEP_OUT_OF_BSS judge_clock judge_now = {};
const char *judge_let_in = nullptr;

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(void const volatile *start, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(void const volatile *start, size_t bytes);
}

namespace {

const unsigned max_threads = 1024;
const size_t max_shared = 227 << 10;

enum thread_state { running, at_barrier, at_warp, at_grid, returned };

struct thread : judge_thread {
    thread_state state;
    int line;  // of the barrier or warp operation it waits at
    judge_fiber *fiber;
};

// One warp's meetings. Values alternate between two buffers: a lane may reach the next meeting
// while others still read this one.
struct warp {
    uint64_t values[2][32];
    float floats[2][32][12];  // of lanes that bring more
    unsigned meeting, arrived, mask, returned;
};

// The asynchronous copies that a thread has begun and not yet waited for, from `first` on.
struct copies {
    std::vector<judge_copy> begun;
    size_t first;
    unsigned group;  // that copies begun now will belong to
};

KEEP_OUT_OF_BSS thread threads[max_threads] = {};
KEEP_OUT_OF_BSS copies copying[max_threads] = {};
KEEP_OUT_OF_BSS warp warps[max_threads / 32] = {};
alignas(256) unsigned char dynamic_shared[max_shared + 256];

// The running block. `order` is the order in which threads start; the ready queue holds each thread
// at most once.
struct {
    void (*body)(void *);
    void *state;
    const char *kernel;
    bool reversed, random;
    bool early, ahead;  // launched early; the work before it is not over yet
    unsigned size, started, returned, waiting;
    unsigned order[max_threads];
    thread *ready[max_threads];
    unsigned ready_first, ready_count;
} block;

std::vector<judge_fiber *> idle;

[[noreturn]] void fault(const char *problem) {
    fprintf(stderr, "judge: kernel %s, block (%u,%u,%u): %s\n", block.kernel, blockIdx.x,
            blockIdx.y, blockIdx.z, problem);
    unsigned shown = 0;
    for (unsigned i = 0; i < block.size && shown < 6; i++) {
        const thread &t = threads[i];
        if (t.state == at_barrier || t.state == at_warp) {
            fprintf(stderr, "judge:   thread %u waits at line %d (%s)\n", i, t.line,
                    t.state == at_barrier ? "__syncthreads" : "warp operation");
            shown++;
        }
    }
    judge_fault("synchronisation");
}

void wake(thread *t) {
    t->state = running;
    block.ready[(block.ready_first + block.ready_count++) % max_threads] = t;
}

thread *take_ready() {
    thread **first = &block.ready[block.ready_first];
    if (block.random) {
        std::swap(
            *first,
            block.ready[(block.ready_first + judge_random() % block.ready_count) % max_threads]);
    }
    thread *t = *first;
    block.ready_first = (block.ready_first + 1) % max_threads;
    block.ready_count--;
    return t;
}

void fiber_main();

// Leaves the current fiber for whatever can run next: a thread that was woken, a thread not yet
// started, or the host.
void leave() {
    if (block.ready_count) {
        judge_switch(take_ready()->fiber);
    } else if (block.started < block.size) {
        judge_fiber *next = idle.empty() ? judge_new_fiber(fiber_main) : idle.back();
        if (!idle.empty()) {
            idle.pop_back();
        }
        judge_switch(next);
    } else {
        judge_switch(judge_host_fiber());
    }
}

bool start_next() {
    if (block.started == block.size) {
        return false;
    }
    return !block.random || !block.ready_count || judge_random() % 2;
}

// What every fiber runs, for ever: threads while there are any to start, then back into the pool.
void fiber_main() {
    for (;;) {
        while (start_next()) {
            thread *t = &threads[block.order[block.started++]];
            t->fiber = judge_current_fiber();
            t->state = running;
            t->ordered = !block.early;
            judge_self = t;
            threadIdx = t->index;
            block.body(block.state);
            if (!t->ordered) {
                fault("launched early, and a thread ends without cudaGridDependencySynchronize");
            }
            if (copying[t->linear].first < copying[t->linear].begun.size()) {
                fault("a thread ends without waiting for its asynchronous copies");
            }
            t->state = returned;
            warps[t->warp].returned |= 1u << t->lane;
            block.returned++;
        }
        judge_check_stack();
        idle.push_back(judge_current_fiber());
        leave();
    }
}

void wait_as(thread *me, thread_state state) {
    me->state = state;
    leave();
    judge_self = me;
    threadIdx = me->index;
}

thread *self(const char *operation) {
    if (!judge_self) {
        judge_fault("%s outside a kernel", operation);
    }
    return static_cast<thread *>(judge_self);
}

}  // namespace

void judge_syncthreads(int line) {
    thread *me = self("__syncthreads");
    if (block.returned) {
        fault("a barrier is reached after threads of the block have returned");
    }
    me->line = line;
    if (block.waiting + 1 < block.size) {
        block.waiting++;
        wait_as(me, at_barrier);
        return;
    }
    for (unsigned i = 0; i < block.size; i++) {
        if (threads[i].line != line) {
            me->state = at_barrier;
            fault("threads of one block wait at different barriers");
        }
    }
    block.waiting = 0;
    judge_now.barrier++;
    memset(judge_now.warp_sync, 0, sizeof judge_now.warp_sync);
    for (unsigned i = 0; i < block.size; i++) {
        thread *t = &threads[block.reversed ? block.size - 1 - i : i];
        if (t != me) {
            wake(t);
        }
    }
}

// A barrier's vote. The next barrier has the other one: a thread may be there before all have read
// this one.
int judge_syncthreads_or(int line, int predicate) {
    static struct {
        unsigned launch, block, barrier;
        int any;
    } votes[2];
    auto &vote = votes[judge_now.barrier % 2];
    if (vote.launch != judge_now.launch || vote.block != judge_now.block ||
        vote.barrier != judge_now.barrier) {
        vote = {judge_now.launch, judge_now.block, judge_now.barrier, 0};
    }
    vote.any |= predicate != 0;
    judge_syncthreads(line);
    return vote.any;
}

void judge_await_grid() {
    thread *me = self("cudaGridDependencySynchronize");
    if (block.ahead && !me->ordered) {
        wait_as(me, at_grid);
    }
    me->ordered = true;
}

void judge_trigger() {
    if (!self("cudaTriggerProgrammaticLaunchCompletion")->ordered) {
        fault(
            "the next kernel is let in before the wait: it could begin before what came before "
            "this kernel is over, which the judge does not try");
    }
    judge_let_in = block.kernel;
}

void judge_threadfence() {
    if (judge_race_fence) {
        judge_race_fence();
    }
}

// ---- asynchronous copies

void judge_check_copy(const judge_copy &copy, const void *from, size_t zeros) {
    self("__pipeline_memcpy_async");
    bool sized = copy.bytes == 4 || copy.bytes == 8 || copy.bytes == 16;
    if (!sized || zeros > copy.bytes) {
        fault("an asynchronous copy is of 4, 8 or 16 bytes, and no more of them are zeros");
    }
    if ((uintptr_t)copy.to % copy.bytes || (uintptr_t)from % copy.bytes) {
        fault("an asynchronous copy is not aligned to its size");
    }
    if (judge_is_device(copy.to) || (zeros < copy.bytes && !judge_in_device(from, 1))) {
        fault("an asynchronous copy goes from global to shared memory");
    }
}

bool judge_keep_copy(const judge_copy &copy) {
    copies &c = copying[self("__pipeline_memcpy_async")->linear];
    c.begun.push_back(copy);
    c.begun.back().group = c.group;
    // Static shared memory of a block that begins ahead is not kept for it.
    bool at_once = !block.ahead && (block.reversed || (block.random && judge_random() % 2));
    return !at_once && !judge_race_report;
}

void judge_end_group() { copying[self("__pipeline_commit")->linear].group++; }

const judge_copy *judge_next_copy(unsigned groups) {
    copies &c = copying[self("__pipeline_wait_prior")->linear];
    if (c.first < c.begun.size() && c.begun[c.first].group + groups < c.group) {
        return &c.begun[c.first++];
    }
    if (c.first == c.begun.size()) {
        c.begun.clear();
        c.first = 0;
    }
    return nullptr;
}

// The last lane of a warp meeting wakes the others.
static void end_meeting(thread *me, warp &w, unsigned expected, bool orders) {
    for (unsigned i = 0; i < 32; i++) {
        unsigned lane = block.reversed ? 31 - i : i;
        thread *t = &threads[me->warp * 32 + lane];
        if (!(expected >> lane & 1) || t == me) {
            continue;
        }
        if (t->line != me->line) {
            me->state = at_warp;
            fault("lanes of one warp wait at different warp operations");
        }
        wake(t);
    }
    w.arrived = 0;
    w.meeting++;
    judge_now.warp_sync[me->warp] += orders;
}

const uint64_t *judge_warp_meet(unsigned mask, uint64_t value, int line, bool orders) {
    thread *me = self("a warp operation");
    warp &w = warps[me->warp];
    unsigned left = block.size - me->warp * 32;
    unsigned present = left >= 32 ? ~0u : (1u << left) - 1, expected = mask & present;
    if (!(mask >> me->lane & 1)) {
        fault("a lane calls a warp operation whose mask leaves it out");
    }
    if (expected & w.returned) {
        fault("a warp operation names a lane that has returned");
    }
    if (w.arrived && w.mask != mask) {
        fault("lanes of one warp operation give different masks");
    }
    uint64_t *values = w.values[w.meeting & 1];
    values[me->lane] = value;
    w.mask = mask;
    w.arrived |= 1u << me->lane;
    me->line = line;
    if (w.arrived == expected) {
        end_meeting(me, w, expected, orders && expected == present);
    } else {
        wait_as(me, at_warp);
    }
    return values;
}

float (*judge_meeting_floats())[12] {
    warp &w = warps[self("a product of tensor cores")->warp];
    return w.floats[w.meeting & 1];
}

const char *judge_kernel_name() { return block.kernel; }

void *judge_dynamic_shared() { return dynamic_shared; }

// ---- grids

static void prepare_threads(dim3 shape) {
    for (unsigned i = 0; i < block.size; i++) {
        thread &t = threads[i];
        t.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
        t.linear = i;
        t.lane = i % 32;
        t.warp = i / 32;
        block.order[i] = block.reversed ? block.size - 1 - i : i;
    }
}

static void set_block(dim3 grid, size_t number) {
    blockIdx = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                (unsigned)(number / grid.x / grid.y)};
}

static void begin_block(dim3 grid, size_t number, size_t shared) {
    set_block(grid, number);
    if (block.random) {
        for (unsigned i = block.size; i > 1; i--) {
            std::swap(block.order[i - 1], block.order[judge_random() % i]);
        }
    }
    memset(dynamic_shared, 0xFF, shared);  // unset shared memory reads as NaN
    for (unsigned w = 0; w <= (block.size - 1) / 32; w++) {
        warps[w].arrived = warps[w].returned = 0;
    }
    for (unsigned i = 0; i < block.size; i++) {
        copying[i].begun.clear();
        copying[i].first = copying[i].group = 0;
    }
    judge_now.block = (unsigned)number;
    judge_now.barrier = 0;
    memset(judge_now.warp_sync, 0, sizeof judge_now.warp_sync);
    block.started = block.returned = block.waiting = block.ready_first = block.ready_count = 0;
    leave();
    judge_self = nullptr;
}

static void check_ended() {
    if (block.returned != block.size) {
        fault("the block cannot go on: not all threads reach the barrier or warp operation");
    }
}

// A step that visits all blocks: prime to their number.
static size_t random_step(size_t blocks) {
    size_t step = 1 + judge_random() % blocks;
    while (std::gcd(step, blocks) != 1) {
        step++;
    }
    return step;
}

static void begin_grid(const judge_grid &grid) {
    const judge_config &config = grid.config;
    block.body = grid.body;
    block.state = grid.state.get();
    block.kernel = config.name;
    block.reversed = judge_env().order == judge_settings::reversed;
    block.random = judge_env().order == judge_settings::random;
    block.early = config.early;
    block.size = config.block.x * config.block.y * config.block.z;
    blockDim = config.block;
    gridDim = config.grid;
    prepare_threads(config.block);
    if (__asan_poison_memory_region) {
        __asan_unpoison_memory_region(dynamic_shared, config.shared);
        __asan_poison_memory_region(dynamic_shared + config.shared,
                                    sizeof dynamic_shared - config.shared);
    }
}

// ---- blocks that begin before the work before their grid is over

// All that there is of a block whose threads wait for that work, but its static shared memory.
struct judge_held {
    size_t number;
    decltype(block) running;
    std::vector<thread> threads;
    std::vector<warp> warps;
    std::vector<copies> copying;
    std::vector<unsigned char> shared;
    judge_clock now;
};

// In race mode accesses are judged, so that nothing has to begin ahead.
void judge_begin_ahead(judge_grid &grid) {
    if (judge_race_report) {
        return;
    }
    begin_grid(grid);
    block.ahead = true;
    size_t blocks = (size_t)grid.config.grid.x * grid.config.grid.y * grid.config.grid.z;
    size_t first = block.random ? judge_random() % blocks : 0, last = blocks - 1;
    for (size_t number : {first, last}) {
        if (!grid.held.empty() && number == grid.held[0]->number) {
            break;
        }
        begin_block(grid.config.grid, number, grid.config.shared);
        auto held = std::make_shared<judge_held>();
        held->number = number;
        held->running = block;
        held->threads.assign(threads, threads + block.size);
        held->warps.assign(warps, warps + (block.size + 31) / 32);
        held->copying.assign(copying, copying + block.size);
        held->shared.assign(dynamic_shared, dynamic_shared + grid.config.shared);
        held->now = judge_now;
        grid.held.push_back(held);
    }
    block.ahead = false;
}

static void end_ahead(const judge_grid &grid, const judge_held &held) {
    unsigned launch = judge_now.launch;
    block = held.running;
    block.ahead = false;
    std::copy(held.threads.begin(), held.threads.end(), threads);
    std::copy(held.warps.begin(), held.warps.end(), warps);
    std::copy(held.copying.begin(), held.copying.end(), copying);
    std::copy(held.shared.begin(), held.shared.end(), dynamic_shared);
    judge_now = held.now;
    judge_now.launch = launch;
    set_block(grid.config.grid, held.number);
    for (unsigned i = 0; i < block.size; i++) {
        if (threads[i].state == at_grid) {
            wake(&threads[i]);
        }
    }
    leave();
    judge_self = nullptr;
    check_ended();
}

void judge_run_grid(judge_grid &grid) {
    const judge_config &config = grid.config;
    judge_now.launch++;
    begin_grid(grid);
    judge_traffic before = {}, after = {};
    if (judge_race_traffic) {
        judge_race_traffic(&before);
    }
    auto ahead = std::move(grid.held);
    grid.held.clear();
    for (const auto &held : ahead) {
        end_ahead(grid, *held);
    }
    size_t blocks = (size_t)config.grid.x * config.grid.y * config.grid.z;
    size_t start = block.random ? judge_random() % blocks : block.reversed ? blocks - 1 : 0;
    size_t step = block.random ? random_step(blocks) : block.reversed ? blocks - 1 : 1;
    for (size_t i = 0; i < blocks; i++) {
        size_t number = (start + i * step) % blocks;
        bool done = false;
        for (const auto &held : ahead) {
            done = done || held->number == number;
        }
        if (!done) {
            begin_block(config.grid, number, config.shared);
            check_ended();
        }
    }
    if (judge_race_traffic) {
        judge_race_traffic(&after);
    }
    if (judge_env().report_launches) {
        fprintf(stderr,
                "judge: launch %s grid %u,%u,%u block %u,%u,%u smem %zu loaded %llu stored %llu "
                "atomics %llu%s\n",
                config.name, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
                config.shared, after.loaded - before.loaded, after.stored - before.stored,
                after.atomics - before.atomics, ahead.empty() ? "" : " begun ahead");
    }
}

// Kernels that may use more dynamic shared memory than 48 KB, with their limits.
static std::map<const void *, int> &shared_limits() {
    static auto *limits = new std::map<const void *, int>;
    return *limits;
}

static int shared_limit(const void *function) {
    auto found = shared_limits().find(function);
    return found == shared_limits().end() ? 48 << 10 : found->second;
}

int judge_shared_of(const void *function) {
    return shared_limits().count(function) ? judge_largest_shared_block() : 48 << 10;
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
    JUDGE_CALL(cudaErrorUnknown);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
        return cudaSuccess;
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > judge_largest_shared_block()) {
        return judge_error(cudaErrorInvalidValue);
    }
    shared_limits()[function] = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
    JUDGE_CALL(cudaErrorUnknown);
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->maxDynamicSharedSizeBytes = shared_limit(function);
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = judge_env().capability;
    return cudaSuccess;
}

static bool shape_ok(const judge_config &c) {
    size_t size = (size_t)c.block.x * c.block.y * c.block.z;
    return size && size <= max_threads && c.block.x <= 1024 && c.block.y <= 1024 &&
           c.block.z <= 64 && c.grid.x && c.grid.y && c.grid.z && c.grid.x <= 2147483647u &&
           c.grid.y <= 65535 && c.grid.z <= 65535;
}

static bool pointers_ok(const judge_config &config, const judge_argument *arguments, int count) {
    for (int i = 1; i <= count; i++) {
        const void *pointer = nullptr;
        if (arguments[i].points) {
            memcpy(&pointer, arguments[i].at, sizeof pointer);
        }
        if (pointer && !judge_in_device(pointer, 0)) {
            fprintf(stderr, "judge: kernel %s: argument %d is not live device memory\n",
                    config.name, i);
            return false;
        }
    }
    return true;
}

struct known_kernel {
    std::string name;
    judge_launcher launch;
};

static std::map<const void *, known_kernel> &known_kernels() {
    static auto *kernels = new std::map<const void *, known_kernel>;
    return *kernels;
}

void judge_set_kernel(const void *kernel, const char *name, judge_launcher launcher) {
    known_kernels()[kernel] = {name, launcher};
}

const char *judge_name_of(const void *kernel) {
    auto found = known_kernels().find(kernel);
    return found == known_kernels().end() ? "(without a name)" : found->second.name.c_str();
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
    auto found = known_kernels().find(kernel);
    if (found == known_kernels().end()) {
        return judge_error(cudaErrorInvalidDeviceFunction);
    }
    return found->second.launch(
        {found->second.name.c_str(), kernel, grid, block, shared, stream, false}, arguments);
}

cudaError_t judge_launch(const judge_config &config, judge_body body,
                         const judge_argument *arguments, int count) {
    std::shared_ptr<void> state(body.state, body.drop);
    if (judge_entry("cudaLaunchKernel")) {
        return judge_error(judge_injected(cudaErrorLaunchOutOfResources));
    }
    if (!judge_stream_ok(config.stream)) {
        return judge_error(cudaErrorInvalidResourceHandle);
    }
    if (!shape_ok(config)) {
        fprintf(stderr, "judge: kernel %s: grid %u,%u,%u block %u,%u,%u is out of range\n",
                config.name, config.grid.x, config.grid.y, config.grid.z, config.block.x,
                config.block.y, config.block.z);
        return judge_error(cudaErrorInvalidConfiguration);
    }
    if (config.shared > (size_t)shared_limit(config.function)) {
        fprintf(stderr, "judge: kernel %s: %zu bytes of dynamic shared memory were not allowed\n",
                config.name, config.shared);
        return judge_error(cudaErrorInvalidValue);
    }
    if (!pointers_ok(config, arguments, count)) {
        return judge_error(cudaErrorIllegalAddress);
    }
    auto grid = std::make_shared<judge_grid>();
    grid->config = config;
    grid->body = body.run;
    grid->state = state;
    for (int i = 1; i <= count; i++) {
        grid->arguments.emplace_back((const char *)arguments[i].at, arguments[i].bytes);
    }
    std::function<void()> ahead;
    if (config.early) {
        ahead = [=] {
            judge_interprets() ? judge_interpret_ahead(*grid) : judge_begin_ahead(*grid);
        };
    }
    return judge_error(judge_enqueue(
        config.stream, [=] { judge_interprets() ? judge_interpret(*grid) : judge_run_grid(*grid); },
        ahead));
}
