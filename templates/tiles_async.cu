// Copies to shared memory that do not pass through registers, where the device has them (sm_80):
// several steps of a product may be on their way at once.
#if CUDART_VERSION >= 11000 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define ASYNC_COPIES 1
#else
#define ASYNC_COPIES 0
#endif

// What a load finds in memory: V at `from`, or zeros where it is not `inside`.
template <typename V>
struct fetched {
    const V *from;
    bool inside;
    __device__ __forceinline__ V value() const { return inside ? *from : V(); }
};
template <typename V, typename T>
static __device__ __forceinline__ fetched<V> fetch(const T *from, bool inside = true) {
    return {reinterpret_cast<const V *>(from), inside};
}

template <typename V>
static __device__ __forceinline__ const V *moved(const V *from, size_t bytes) {
    return reinterpret_cast<const V *>(reinterpret_cast<const char *>(from) + bytes);
}

// Loads of which a thread's in one step lie APART bytes from each other, every 256th of the step.
template <unsigned APART, typename L>
struct spaced_load {
    L load;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const
        -> decltype(load(e, k0)) {
        return load(e, k0);
    }
};
template <unsigned APART, typename L>
static __device__ __forceinline__ spaced_load<APART, L> spaced(L load) {
    return {load};
}

// Loads that lie BYTES further on for each term; a thread's in one step as those, or (APART 0) the
// load says where.
template <unsigned BYTES, unsigned APART, typename L>
struct moving_load {
    L load;
    __device__ __forceinline__ auto operator()(unsigned e, unsigned k0) const -> decltype(load(e)) {
        const auto v = load(e);
        return {moved(v.from, size_t(k0) * BYTES), v.inside};
    }
};
template <unsigned BYTES, unsigned APART, typename L>
static __device__ __forceinline__ moving_load<BYTES, APART, L> moving(L load) {
    return {load};
}

// The thread's load number i of the step from term k0 on.
template <typename L>
static __device__ __forceinline__ auto nth_load(const L &load, unsigned i, unsigned k0)
    -> decltype(load(0u, 0u)) {
    return load(threadIdx.x + 256u * i, k0);
}
template <unsigned APART, typename L>
static __device__ __forceinline__ auto nth_load(const spaced_load<APART, L> &load, unsigned i,
                                                unsigned k0) -> decltype(load(0u, 0u)) {
    return {moved(load(threadIdx.x, k0).from, size_t(i) * APART),
            load(threadIdx.x + 256u * i, k0).inside};
}

// Begins such a copy, to where V is aligned.
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
