//@key steps   the program reports its steps
//@key model   prefix of the program's symbols
//@key typed   products have types of their own: not all are FP32
//@key tf32    some are TF32
//@key scalar  type of a matrix's elements
//@if tf32
#if CUDART_VERSION < 11000
#error "TF32 needs CUDA 11 or later"
#endif

//@end
// `batch` times c[m,n] = alpha * a[m,k] * b[k,n], row-major; ta, tb: the operand is stored
// transposed. The library is column-major and computes the transposed product. s*: strides between
// matrices.
typedef struct gemm_size {
    const char *name;
    int ta, tb, batch, m, n, k, lda, ldb, ldc;
    long long sa, sb, sc;
    float alpha;
    //@if typed
    cudaDataType in, out;  // of a and b, and of c; sums are f32
    int tf32;              // f32 operands are rounded
    //@end
} gemm_size;

static int gemm_run($model *h, const gemm_size *g, const $scalar *a, const $scalar *b, $scalar *c) {
    const float zero = 0.f;
    cublasOperation_t ta = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                      tb = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    //@if typed
#if CUDART_VERSION >= 11000
    const cublasComputeType_t compute = g->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasGemmAlgo_t algorithm = CUBLAS_GEMM_DEFAULT;
#else
    const cudaDataType compute = CUDA_R_32F;
    const cublasGemmAlgo_t algorithm =
        g->in == CUDA_R_16F ? CUBLAS_GEMM_DEFAULT_TENSOR_OP : CUBLAS_GEMM_DEFAULT;
#endif
    if (g->batch == 1)
        CUBLAS_CALL(h, g->name,
                    cublasGemmEx(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->in, g->ldb,
                                 a, g->in, g->lda, &zero, c, g->out, g->ldc, compute, algorithm));
    else
        CUBLAS_CALL(
            h, g->name,
            cublasGemmStridedBatchedEx(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->in,
                                       g->ldb, g->sb, a, g->in, g->lda, g->sa, &zero, c, g->out,
                                       g->ldc, g->sc, g->batch, compute, algorithm));
    //@else
    if (g->batch == 1)
        CUBLAS_CALL(h, g->name,
                    cublasSgemm(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->ldb, a,
                                g->lda, &zero, c, g->ldc));
    else
        CUBLAS_CALL(
            h, g->name,
            cublasSgemmStridedBatched(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->ldb,
                                      g->sb, a, g->lda, g->sa, &zero, c, g->ldc, g->sc, g->batch));
    //@end
    //@if steps
    stepped(h, g->name);
    //@end
    return 0;
}
