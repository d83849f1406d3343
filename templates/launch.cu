//@key model  prefix of the program's symbols
//@key early  some kernels may be launched before the one before is over
//@key large  some kernels have to ask for their shared memory
//@key more   a parameter: how much of that the kernel takes
//@key bytes  of dynamic shared memory
// The place of a kernel in a chain of generated kernels, each of which may start before the one in
// front of it has ended (programmatic dependent launch).
enum { ALONE, FIRST, MIDDLE, LAST };

//@if large
// What a kernel has of the `shared` bytes of shared memory that it takes.
static size_t shared_of(const $model *m, int shared) {
    return size_t(shared < m->most_shared ? shared : m->most_shared);
}

//@end
template <class... P, class... A>
static int launch($model *m, int when, void (*kernel)(P...), const char *name, dim3 grid,
                  dim3 block$more, cudaStream_t stream, A... args) {
    //@if early
    const bool next_early = m->early && (when == FIRST || when == MIDDLE);
#if CUDART_VERSION >= 11080
    if (m->early && (when == MIDDLE || when == LAST)) {
        cudaLaunchAttribute early = {};
        cudaLaunchConfig_t config = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        config.gridDim = grid;
        config.blockDim = block;
        //@if large
        config.dynamicSmemBytes = $bytes;
        //@end
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = 1;
        CUDA_CALL(m, name, cudaLaunchKernelEx(&config, kernel, args..., next_early));
        stepped(m, name);
        return 0;
    }
#endif
    //@else
    const bool next_early = false;
    (void)when;
    //@end
    CUDA_CALL(m, name, launch_now<P...>(kernel, grid, block, $bytes, stream, args..., next_early));
    stepped(m, name);
    return 0;
}
//@if large

template <class... P, class... A>
static int launch($model *m, int when, void (*kernel)(P...), const char *name, dim3 grid,
                  dim3 block, cudaStream_t stream, A... args) {
    return launch(m, when, kernel, name, grid, block, 0, stream, args...);
}
//@end
