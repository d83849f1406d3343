//@key typed  calls have types of their own: not all are FP32
//@key tables  the products of all grouped calls, and the calls
static int reserve(probe *h, int k, size_t bytes);

// ---- products of different sizes in one call
$tables;
#if CUDART_VERSION >= 12050

// Matrices and addresses of call `s`: they lie one behind the other.
static int open_group(probe *h, const group_size *s) {
    group_arrays *g = &h->grouped;
    size_t at[3] = {0, 0, 0}, from[3][sizeof g->at[0] / sizeof *g->at[0]];
    const int of[] = {DATA, WEIGHTS, RESULT};
    int p = 0;
    for (int i = 0; i < s->count; i++) {
        const gemm_size *z = &grouped_sizes[s->first + i];
        const size_t rows[] = {(size_t)(z->ta ? z->k : z->m), (size_t)(z->tb ? z->n : z->k),
                               (size_t)z->m},
                     ld[] = {(size_t)z->lda, (size_t)z->ldb, (size_t)z->ldc};
        group_member(g, i, z);
        for (int b = 0; b < z->batch; b++, p++)
            for (int o = 0; o < 3; o++) {
                from[o][p] = at[o];
                at[o] += (4 * rows[o] * ld[o] + 255) / 256 * 256;
            }
    }
    for (int o = 0; o < 3; o++) {
        CALL(reserve(h, of[o], at[o]));
        for (int k = 0; k < p; k++) g->at[o][k] = (const char *)h->buffer[of[o]] + from[o][k];
    }
    CALL(reserve(h, TABLE, sizeof g->at));
    CALL(reserve(h, WORKSPACE, h->cublas_workspace));
    CUDA_CALL(
        h, "addresses",
        cudaMemcpyAsync(h->buffer[TABLE], g->at, sizeof g->at, cudaMemcpyHostToDevice, h->stream));
#if CUDART_VERSION >= 11000
    CUBLAS_CALL(h, "cublasSetWorkspace",
                cublasSetWorkspace(h->cublas, h->buffer[WORKSPACE], h->cublas_workspace));
#endif
    return 0;
}

static int issue_group(probe *h, const group_size *s) {
    group_arrays *g = &h->grouped;
    const size_t problems = sizeof g->at[0] / sizeof *g->at[0];
    const void *const *a = (const void *const *)h->buffer[TABLE], *const *b = a + problems;
    void *const *c = (void *const *)h->buffer[TABLE] + 2 * problems;
    //@if typed
    const gemm_size *first = &grouped_sizes[s->first];
    const cudaDataType type = first->in;
    const cublasComputeType_t compute =
        first->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    //@else
    const cudaDataType type = CUDA_R_32F;
    const cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    //@end
    CUBLAS_CALL(h, s->name,
                cublasGemmGroupedBatchedEx(h->cublas, g->tb, g->ta, g->n, g->m, g->k, g->alpha, b,
                                           type, g->ldb, a, type, g->lda, g->beta, c, type, g->ldc,
                                           s->count, g->batch, compute));
    return 0;
}
#else
static int open_group(probe *h, const group_size *s) {
    return fail(h, BAD_CALL, s->name, "such calls need CUDA 12.5");
}
static int issue_group(probe *, const group_size *) { return BAD_CALL; }
#endif
