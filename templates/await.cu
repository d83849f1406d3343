// With programmatic dependent launch a kernel may start before the one in front of it has ended.
// Here it waits for that end; until then it writes nothing, and reads nothing that a step writes.
// From here on the next kernel may start, where it waits like this one: a kernel of a library would
// touch memory too early.
static __device__ __forceinline__ void await_previous(bool next_early) {
#if CUDART_VERSION >= 11080 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
    cudaGridDependencySynchronize();
    if (next_early) cudaTriggerProgrammaticLaunchCompletion();
#else
    (void)next_early;
#endif
}
