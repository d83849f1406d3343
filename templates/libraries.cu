//@key model  prefix of the program's symbols
//@key conv   the program calls cuDNN
//@key gemm   the program calls cuBLAS
//@key matmuls  how many calls of cublasLt
// Library calls go to this stream, with the workspace of this branch, from here on.
static int libraries_on($model *m, int branch, cudaStream_t stream) {
    //@if conv
    CUDNN_CALL(m, "cudnnSetStream", cudnnSetStream(m->cudnn, stream));
    //@end
    //@if gemm
    CUBLAS_CALL(m, "cublasSetStream", cublasSetStream(m->cublas, stream));
#if CUDART_VERSION >= 11000
    // Setting the stream takes the workspace away, so it is given again.
    static const size_t at[] = WORKSPACE_AT;  // in the arena, by branch
    CUBLAS_CALL(m, "cublasSetWorkspace",
                cublasSetWorkspace(m->cublas, m->arena + at[branch], WORKSPACE_BYTES));
#else
    (void)branch;
#endif
    //@end
    //@if matmuls
    m->lt_stream = stream;
    //@end
    //@if gemm
    //@else
    (void)branch;
    //@end
    return 0;
}
