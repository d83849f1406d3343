//@key model  prefix of the program's symbols
//@key conv   the program calls cuDNN
//@key convs  how many convolutions
//@key gemm   the program calls cuBLAS
//@key branches  of a recorded graph; empty: one
//@key init   some memory is needed by create alone
//@key matmuls  how many calls of cublasLt
void $model_destroy($model *m) {
    if (!m) return;
    if (m->graph) cudaGraphExecDestroy(m->graph);
    //@if conv
    for (int i = 0; i < $convs; i++) conv_close(&m->conv[i]);
    if (m->cudnn) cudnnDestroy(m->cudnn);
    //@end
    //@if gemm
    if (m->cublas) cublasDestroy(m->cublas);
    //@end
    //@if matmuls
    for (int i = 0; i < $matmuls; i++) matmul_close(&m->matmul[i]);
    if (m->lt) cublasLtDestroy(m->lt);
    //@end
    //@if branches
    for (size_t i = 0; i < sizeof m->event / sizeof *m->event; i++)
        if (m->event[i]) cudaEventDestroy(m->event[i]);
    for (size_t i = 1; i < sizeof m->side / sizeof *m->side; i++)
        if (m->side[i]) cudaStreamDestroy(m->side[i]);
    //@end
    //@if init
    if (m->init) cudaFree(m->init);
    //@end
    if (m->constants) cudaFree(m->constants);
    if (m->own_arena) cudaFree(m->arena);
    free(m);
}

const char *$model_error(const $model *m) {
    return m ? m->error : "there is no handle: create had no host memory or was not called";
}
