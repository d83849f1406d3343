// The judge's stand-in for <cuda_runtime.h>: lets a plain C++17 compiler build a `.cu` file whose
// launches went through launch.awk, and run it on the CPU. Types, enums and prototypes are the
// vendor's own (cuda_runtime_api.h); this header adds the qualifiers, the per-thread builtins and
// the typed launch. A block's threads run one at a time on fibers, so `__shared__` can be `static`:
// the sanitizers then see its bounds.
#ifndef JUDGE_CUDA_RUNTIME_H
#define JUDGE_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#define EIN_JUDGE 1

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __managed__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#ifdef JUDGE_RACE
#define __global__ \
    __attribute__((flatten))  // g++ does not report the store of a structure that a call returns
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__ static __attribute__((section("judge_constant")))
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

// ---- builtins of the running thread

// One CUDA thread of the running block. `linear` is its number in the block, `lane` and `warp`
// follow from it. `ordered`: what came before the launch is over for it.
struct judge_thread {
    uint3 index;
    unsigned linear, lane, warp;
    bool ordered;
};

extern judge_thread *judge_self;  // NULL while host code runs
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

// What launch.awk makes declarations of dynamic shared memory ask for.
void *judge_dynamic_shared();
void judge_syncthreads(int line);
int judge_syncthreads_or(int line, int predicate);
void judge_threadfence();
void judge_await_grid();
void judge_trigger();

// All lanes of `mask` meet here, each with a value; returns the values by lane, valid until the
// warp's next-but-one meeting. `orders` says whether the meeting also orders memory (only
// __syncwarp does).
const uint64_t *judge_warp_meet(unsigned mask, uint64_t value, int line, bool orders);

#define __syncthreads() judge_syncthreads(__LINE__)
#define __syncthreads_or(predicate) judge_syncthreads_or(__LINE__, predicate)
#define cudaGridDependencySynchronize() judge_await_grid()
#define cudaTriggerProgrammaticLaunchCompletion() judge_trigger()
#define __syncwarp(...) judge_syncwarp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) judge_shfl(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) judge_shfl_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) judge_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) judge_shfl_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) judge_ballot(__LINE__, mask, predicate)
#define __any_sync(mask, predicate) (judge_ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (judge_ballot(__LINE__, mask, !(predicate)) == 0)

static inline void judge_syncwarp(int line, unsigned mask = 0xffffffffu) {
    judge_warp_meet(mask, 0, line, true);
}

// reinterpret_cast, for which launch.awk puts this one: an address that is none of what the pointer
// points to is a fault in every mode. clang's sanitizer does not look where structures are copied.
void judge_misaligned(const void *p, size_t multiple);
template <class P, class Q>
static __forceinline__ P judge_cast(Q &&q) {
    const P p = reinterpret_cast<P>(q);
    if constexpr (std::is_pointer<P>::value) {
        typedef typename std::remove_pointer<P>::type T;
        if constexpr (std::is_object<T>::value) {
            if ((uintptr_t)p % alignof(T) != 0) {
                judge_misaligned(p, alignof(T));
            }
        }
    }
    return p;
}

// What moves values between lanes touches locals and the judge's own memory alone: sanitizers have
// nothing to find there.
#define JUDGE_OWN __attribute__((no_sanitize("address", "undefined")))

#include "judge_math.h"

// The value of lane `source`, or the caller's own where the source lies outside its segment.
template <class T>
JUDGE_OWN static inline T judge_exchange(int line, unsigned mask, T value, unsigned source,
                                         bool inside) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "what shuffles move");
    typedef std::conditional_t<sizeof(T) == 2, uint16_t,
                               std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>
        bits;
    const uint64_t *all = judge_warp_meet(mask, judge_bits<bits>(value), line, false);
    return inside ? judge_bits<T>((bits)all[source & 31]) : value;
}

template <class T>
JUDGE_OWN static inline T judge_shfl(int line, unsigned mask, T value, int source, int width = 32) {
    unsigned first = judge_self->lane & ~(unsigned)(width - 1);
    return judge_exchange(line, mask, value, first + ((unsigned)source & (unsigned)(width - 1)),
                          true);
}

template <class T>
JUDGE_OWN static inline T judge_shfl_up(int line, unsigned mask, T value, unsigned delta,
                                        int width = 32) {
    unsigned lane = judge_self->lane, first = lane & ~(unsigned)(width - 1);
    return judge_exchange(line, mask, value, lane - delta, lane >= first + delta);
}

template <class T>
JUDGE_OWN static inline T judge_shfl_down(int line, unsigned mask, T value, unsigned delta,
                                          int width = 32) {
    unsigned lane = judge_self->lane, end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
    return judge_exchange(line, mask, value, lane + delta, lane + delta < end);
}

template <class T>
JUDGE_OWN static inline T judge_shfl_xor(int line, unsigned mask, T value, int bits,
                                         int width = 32) {
    unsigned lane = judge_self->lane, end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
    return judge_exchange(line, mask, value, lane ^ (unsigned)bits, (lane ^ (unsigned)bits) < end);
}

JUDGE_OWN static inline unsigned judge_ballot(int line, unsigned mask, int predicate) {
    const uint64_t *all = judge_warp_meet(mask, predicate != 0, line, false);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        votes |= (mask >> lane & 1) && all[lane] ? 1u << lane : 0;
    }
    return votes;
}

// ---- tensor cores

// What launch.awk calls in place of the functions of these names in templates/mma.cu, whose lanes
// exchange one value at a time. The factors' elements are those of tensor_type<T>.
void judge_multiply_add(int line, float *c, const unsigned *a, unsigned b0, unsigned b1, bool half);

template <class T>
struct judge_half_terms;
template <template <class> class F, class T>
struct judge_half_terms<F<T>> {
    static const bool value = sizeof(T) == 2;
};

template <class F>
static inline void judge_multiply_add_words(int line, float (&c)[4], const unsigned (&a)[4],
                                            unsigned b0, unsigned b1) {
    judge_multiply_add(line, c, a, b0, b1, judge_half_terms<F>::value);
}

template <class T>
static inline void judge_fragment_rows(int line, unsigned (&q)[4], const T *p, unsigned at) {
    const unsigned l = judge_self->lane;
    const uint64_t *all = judge_warp_meet(0xffffffffu, at, line, false);
    for (unsigned i = 0; i < 4; i++) {
        q[i] = judge_cast<const unsigned *>(p + all[8 * i + l / 4])[l % 4];
    }
}

template <class T>
static inline void judge_fragment_columns(int line, unsigned (&q)[4], const T *p, unsigned at) {
    const unsigned l = judge_self->lane;
    const uint64_t *all = judge_warp_meet(0xffffffffu, at, line, false);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t *rows = all + 8 * i + l % 4 * 2;
        q[i] = judge_bits<uint16_t>(p[rows[0] + l / 4]);
        q[i] |= (unsigned)judge_bits<uint16_t>(p[rows[1] + l / 4]) << 16;
    }
}

// ---- launch

// A kernel with its arguments bound: `run` runs it for the current thread, `drop` frees `state`.
struct judge_body {
    void *state;
    void (*run)(void *state);
    void (*drop)(void *state);
};

struct judge_config {
    const char *name;
    const void *function;
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    bool early;  // it may begin before the work before it in the stream is over
};

// An argument's bytes. What points has to be NULL or live device memory.
struct judge_argument {
    const void *at;
    size_t bytes;
    bool points;
};

// Queues the launch; errors also go where cudaGetLastError finds them. Takes `body` over in any
// case. The arguments are `arguments[1..count]`.
cudaError_t judge_launch(const judge_config &config, judge_body body,
                         const judge_argument *arguments, int count);

// What `kernel<<<grid, block, shared, stream>>>` becomes; calling it converts the arguments to the
// kernel's own types.
template <class... P>
struct judge_call {
    judge_config config;
    void (*kernel)(P...);

    // Not inlined: its code would otherwise be in every launch.
    __attribute__((noinline)) cudaError_t operator()(P... arguments) const {
        auto *bound = new auto([kernel = kernel, arguments...] { kernel(arguments...); });
        using bound_type = std::remove_pointer_t<decltype(bound)>;
        judge_body body = {bound, [](void *state) { (*static_cast<bound_type *>(state))(); },
                           [](void *state) {
                               delete static_cast<bound_type *>(state);
                           }};
        const judge_argument all[] = {{},
                                      {&arguments, sizeof arguments, std::is_pointer<P>::value}...};
        return judge_launch(config, body, all, (int)sizeof...(P));
    }
};

template <class... P>
static __attribute__((noinline)) judge_call<P...> judge_configure(const char *name,
                                                                  void (*kernel)(P...), dim3 grid,
                                                                  dim3 block, size_t shared = 0,
                                                                  cudaStream_t stream = nullptr) {
    return {{name, (const void *)kernel, grid, block, shared, stream, false}, kernel};
}

// Kernels that are passed on before they are launched: their names, and how they are launched with
// arguments by address. launch.awk adds the calls.
typedef cudaError_t (*judge_launcher)(const judge_config &config, void **arguments);
void judge_set_kernel(const void *kernel, const char *name, judge_launcher launcher);
const char *judge_name_of(const void *kernel);

template <class... P, size_t... I>
static inline cudaError_t judge_launch_at(const judge_config &config, void **arguments,
                                          std::index_sequence<I...>) {
    (void)arguments;
    const judge_call<P...> call = {config, (void (*)(P...))config.function};
    return call(*static_cast<P *>(arguments[I])...);
}

template <class... P>
static inline auto judge_named(void (*kernel)(P...), const char *name) -> void (*)(P...) {
    judge_set_kernel((const void *)kernel, name, [](const judge_config &config, void **arguments) {
        return judge_launch_at<P...>(config, arguments, std::index_sequence_for<P...>());
    });
    return kernel;
}

#if CUDART_VERSION >= 11080
// The attribute for early starts is the only one that is known here.
template <class... P, class... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...),
                                             A &&...arguments) {
    const void *function = (const void *)kernel;
    judge_call<P...> call = {{judge_name_of(function), function, c->gridDim, c->blockDim,
                              c->dynamicSmemBytes, c->stream, false},
                             kernel};
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization) {
            return cudaErrorNotSupported;
        }
        call.config.early = c->attrs[i].val.programmaticStreamSerializationAllowed;
    }
    return call(arguments...);
}
#endif

// ---- the vendor header's C++ forms of host functions

template <class T>
static inline cudaError_t cudaMalloc(T **pointer, size_t bytes) {
    return ::cudaMalloc((void **)pointer, bytes);
}

template <class T>
static inline cudaError_t cudaMallocHost(T **pointer, size_t bytes, unsigned flags = 0) {
    (void)flags;
    return ::cudaMallocHost((void **)pointer, bytes);
}

template <class F>
static inline cudaError_t cudaFuncSetAttribute(F *function, cudaFuncAttribute attribute,
                                               int value) {
    return ::cudaFuncSetAttribute((const void *)function, attribute, value);
}

template <class F>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, F *function) {
    return ::cudaFuncGetAttributes(attributes, (const void *)function);
}

#if CUDART_VERSION >= 12000
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                               cudaGraphNode_t *error_node, char *log,
                                               size_t log_bytes) {
    (void)error_node, (void)log, (void)log_bytes;
    return ::cudaGraphInstantiate(executable, graph, 0);
}
#endif

#endif
