//@key model  prefix of the program's symbols
//@key early  some kernels may be launched before the one before is over
enum { ORDERED, EARLY };  // EARLY: it may be launched before the kernel before it is over

template <class... P, class... A>
static int launch($model *m, int when, void (*kernel)(P...), const char *name, dim3 grid,
                  dim3 block, cudaStream_t stream, A... args) {
    //@if early
#if CUDART_VERSION >= 11080
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = when == EARLY && m->early;
    CUDA_CALL(m, name, cudaLaunchKernelEx(&config, kernel, args...));
#else
    (void)when;
    kernel<<<grid, block, 0, stream>>>(args...);
    CUDA_CALL(m, name, cudaGetLastError());
#endif
    //@else
    (void)when;
    kernel<<<grid, block, 0, stream>>>(args...);
    CUDA_CALL(m, name, cudaGetLastError());
    //@end
    stepped(m, name);
    return 0;
}
