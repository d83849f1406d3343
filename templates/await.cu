// A kernel may be launched before the one before it is over (programmatic dependent launch). Here
// it waits for that one's end: nothing that a step wrote is read, and nothing written, before. From
// here on the next kernel may be launched, where that is one that waits in its turn: what is not
// ours may touch memory first.
static __device__ __forceinline__ void await_previous(bool next_early) {
#if CUDART_VERSION >= 11080 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
    cudaGridDependencySynchronize();
    if (next_early) cudaTriggerProgrammaticLaunchCompletion();
#else
    (void)next_early;
#endif
}
