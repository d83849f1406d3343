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
#if ASYNC_COPIES
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
}
