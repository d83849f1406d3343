//@key model  prefix of the program's symbols
//@key conv   the program calls cuDNN
//@key gemm   the program calls cuBLAS
//@key steps  it reports its steps to who asked in the options
//@key launches  it launches kernels, and says so step by step
enum { BAD_ARGUMENT = 1, BAD_WEIGHTS = 2, BAD_DEVICE = 3, BAD_CALL = 4 };

static int fail($model *m, int code, const char *where, const char *why) {
    // The first reason is the one that counts.
    if (!m->error[0]) snprintf(m->error, sizeof m->error, "%s: %s", where, why);
    return code;
}

#define CUDA_CALL(m, where, call)                                                       \
    do {                                                                                \
        cudaError_t e_ = (call);                                                        \
        if (e_ != cudaSuccess) return fail(m, BAD_CALL, where, cudaGetErrorString(e_)); \
    } while (0)
#define CALL(call)         \
    do {                   \
        int r_ = (call);   \
        if (r_) return r_; \
    } while (0)
//@if steps

static void stepped($model *m, const char *name) {
    if (m->step) m->step(m->user, name, m->stream);
}
//@else
#define LAUNCHED(m, where) CUDA_CALL(m, where, cudaGetLastError())
//@end
//@if launches

// What the runtime says of this launch alone: cudaGetLastError may have an error that came before.
template <class... P>
static cudaError_t launch_now(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                              cudaStream_t stream, P... p) {
    void *at[] = {(void *)&p..., NULL};
    return cudaLaunchKernel((const void *)kernel, grid, block, at, shared, stream);
}
//@end
//@if conv

#define CUDNN_CALL(m, where, call)                                                                \
    do {                                                                                          \
        cudnnStatus_t e_ = (call);                                                                \
        if (e_ != CUDNN_STATUS_SUCCESS) return fail(m, BAD_CALL, where, cudnnGetErrorString(e_)); \
    } while (0)
//@end
//@if gemm

static const char *cublas_reason(cublasStatus_t s) {
    switch (s) {
    case CUBLAS_STATUS_NOT_INITIALIZED: return "cuBLAS is not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED: return "cuBLAS could not allocate";
    case CUBLAS_STATUS_INVALID_VALUE: return "cuBLAS refused an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "cuBLAS does not support this device";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "cuBLAS could not launch";
    default: return "cuBLAS failed";
    }
}

#define CUBLAS_CALL(m, where, call)                                                          \
    do {                                                                                     \
        cublasStatus_t e_ = (call);                                                          \
        if (e_ != CUBLAS_STATUS_SUCCESS) return fail(m, BAD_CALL, where, cublas_reason(e_)); \
    } while (0)
//@end
