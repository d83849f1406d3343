// Copies to shared memory that do not pass through registers, where the device has them (sm_80):
// several steps of a product may be on their way at once.
#if CUDART_VERSION >= 11000 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define ASYNC_COPIES 1
#else
#define ASYNC_COPIES 0
#endif

// Begins a copy of what a load finds (tiles_loads.cu), to where V is aligned.
template <typename V, typename T>
static __device__ __forceinline__ void copy_async(T *to, fetched<V> v) {
#if ASYNC_COPIES && defined(__CUDA_ARCH__)
    // One instruction; __pipeline_memcpy_async has one for each number of bytes that are read.
    const unsigned at = shared_address(to), bytes = v.inside ? sizeof(V) : 0u;
    if (sizeof(V) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(v.from),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(v.from),
                     "n"(sizeof(V)), "r"(bytes)
                     : "memory");
#elif ASYNC_COPIES
    __pipeline_memcpy_async(to, v.from, sizeof(V), v.inside ? 0 : sizeof(V));
#else
    *reinterpret_cast<V *>(to) = v.value();
#endif
}
// The copies begun since the last time are one step's.
static __device__ __forceinline__ void end_step() {
#if ASYNC_COPIES
    __pipeline_commit();
#endif
}
// Waits until the thread's copies have arrived but those of the last N steps.
template <int N>
static __device__ __forceinline__ void await_steps() {
#if ASYNC_COPIES
    __pipeline_wait_prior(N);
#endif
#ifdef __CUDA_ARCH__
    // That does not tell the compiler that there is something new in memory.
    asm volatile("" ::: "memory");
#endif
}
