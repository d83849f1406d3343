// What the parts of the judge's runtime share: entry bookkeeping, faults, device memory, streams,
// and the clock of the race checker.
#ifndef JUDGE_H
#define JUDGE_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime.h"

enum { JUDGE_EXIT_FAULT = 86, JUDGE_EXIT_LEAK = 87, JUDGE_EXIT_RACE = 88 };

// ---- api.cpp

// Settings from the environment, read once.
struct judge_settings {
    long fail_at;          // JUDGE_FAIL_AT: the call that fails, counted from 1; 0 for none
    const char *fail_api;  // JUDGE_FAIL_API: count only calls of this name
    bool sticky;           // JUDGE_STICKY: every later call fails too
    bool leakcheck;        // JUDGE_LEAKCHECK: exit 87 when something is not released
    bool
        report;  // JUDGE_REPORT: a summary on stderr at exit; `launch`: also a line for each launch
    bool report_launches;
    bool no_device;  // JUDGE_NO_DEVICE: behave as on a machine without a GPU
    size_t memory;   // JUDGE_MEM_MB: device memory in bytes
    enum { forward, reversed, random } order;  // JUDGE_ORDER: rev or rand<seed>
    int capability;                            // JUDGE_CC: 90 is compute capability 9.0
};

const judge_settings &judge_env();

// Prints a message and ends the process with JUDGE_EXIT_FAULT.
[[noreturn]] void judge_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Counts a call of the named function; true when it has to fail. JUDGE_CALL is the form for runtime
// functions.
bool judge_entry(const char *name);

// Stores the error for cudaGetLastError and returns it.
cudaError_t judge_error(cudaError_t error);

// Changes the number of live objects of a kind by `change`.
void judge_ledger(const char *kind, int change);

uint64_t judge_random();

// The most shared memory that a block can ask for on this compute capability, in bytes.
int judge_largest_shared_block();

// The most that a block of this kernel has, what is static among it.
int judge_shared_of(const void *function);

cudaError_t judge_injected(cudaError_t error);

#define JUDGE_CALL(error)                              \
    do {                                               \
        if (judge_entry(__func__)) {                   \
            return judge_error(judge_injected(error)); \
        }                                              \
    } while (0)

// ---- crash.cpp

void judge_report_crashes();

// ---- memory.cpp

// Device memory is open only between these two; calls nest.
void judge_open_memory();
void judge_close_memory();

bool judge_is_device(const void *pointer);

// Whether [pointer, pointer + bytes) lies in one live allocation. With 0 bytes the end of an
// allocation counts as inside.
bool judge_in_device(const void *pointer, size_t bytes);

// The live allocation that an address is in.
bool judge_allocation(const void *pointer, const void **first, size_t *bytes);

extern char *const judge_arena;
extern const size_t judge_arena_bytes;

bool judge_is_pinned(const void *pointer);
void judge_check_redzones();

// ---- stream.cpp

// Queues work on a stream, or adds it to the graph being captured there. The work runs with device
// memory open. `ahead`: what may run before, as soon as the work before it is the stream's next.
cudaError_t judge_enqueue(cudaStream_t stream, std::function<void()> work,
                          std::function<void()> ahead = nullptr);

bool judge_is_capturing(cudaStream_t stream);
bool judge_stream_ok(cudaStream_t stream);

// For calls that are illegal while any capture is going on: breaks the captures and returns the
// error, or cudaSuccess.
cudaError_t judge_forbid_capture();

void judge_drain(cudaStream_t stream);
void judge_drain_all();

// ---- block.cpp

// Where the running thread stands in time: accesses of one launch are ordered only by these.
struct judge_clock {
    unsigned launch, block, barrier;
    unsigned warp_sync[32];  // full-warp __syncwarp calls of each warp since the last barrier
};

extern judge_clock judge_now;

// The kernel that has let the next one in, once one has; whoever runs grids looks and clears it.
extern const char *judge_let_in;

const char *judge_kernel_name();

// Room by lane for what the running thread's warp brings to its next meeting beside a value each;
// it stays until the meeting after the next.
float (*judge_meeting_floats())[12];

struct judge_held;

// A launched grid. `body` is called once for each thread; `held`: blocks that have begun.
struct judge_grid {
    judge_config config;
    void (*body)(void *);
    std::shared_ptr<void> state;
    std::vector<std::shared_ptr<judge_held>> held;
    std::vector<std::string> arguments;  // their bytes, for interpreted kernels, as `interpreted`
    std::shared_ptr<void> interpreted;
};

// Runs a whole grid now.
void judge_run_grid(judge_grid &grid);

// Begins some blocks of a grid that was launched early. They go on to their wait for what comes
// before the grid, and from there when it is run.
void judge_begin_ahead(judge_grid &grid);

// ---- ptx_run.cpp

// Whether kernels are run from the PTX of JUDGE_PTX; then these two are what runs a grid.
bool judge_interprets();
void judge_interpret(judge_grid &grid);
void judge_interpret_ahead(judge_grid &grid);

// ---- race.cpp, linked in race mode only

struct judge_traffic {
    unsigned long long loaded, stored, atomics;  // bytes of global memory
};

__attribute__((weak)) bool judge_race_report();
__attribute__((weak)) void judge_race_traffic(judge_traffic *traffic);
__attribute__((weak)) void judge_race_fence();

#endif
