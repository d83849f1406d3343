//@key model  prefix of the program's symbols
//@key steps  the program reports its steps
// `batch` times c[m,n] = alpha * a[m,k] * b[k,n], row-major; ta, tb: the operand is stored
// transposed. The library is column-major and computes the transposed product. s*: strides between
// matrices.
typedef struct gemm_size {
    const char *name;
    int ta, tb, batch, m, n, k, lda, ldb, ldc;
    long long sa, sb, sc;
    float alpha;
} gemm_size;

static int gemm_run($model *h, const gemm_size *g, const float *a, const float *b, float *c) {
    const float zero = 0.f;
    cublasOperation_t ta = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                      tb = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (g->batch == 1)
        CUBLAS_CALL(h, g->name,
                    cublasSgemm(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->ldb, a,
                                g->lda, &zero, c, g->ldc));
    else
        CUBLAS_CALL(
            h, g->name,
            cublasSgemmStridedBatched(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->ldb,
                                      g->sb, a, g->lda, g->sa, &zero, c, g->ldc, g->sc, g->batch));
    //@if steps
    stepped(h, g->name);
    //@end
    return 0;
}
