//@key model     prefix of the program's symbols
//@key typed     products have types of their own: not all are FP32
//@key scalar    type of a matrix's elements
//@key members   products of all grouped calls
//@key problems  and their matrices, a batch counting as many
//@key table     where their addresses are in the constants
//@key addresses  a, b and c of every product: the array `at`
//@key steps     the program reports its steps
// Products of different sizes in one call, where the library has that: from CUDA 12.5 on.
static int grouped_open($model *m, cudaStream_t stream) {
    $addresses;
    group_arrays *g = &m->grouped;
    int p = 0;
    for (int i = 0; i < $members; i++) {
        const gemm_size *s = &grouped_sizes[i];
        //@if typed
        const long long element = s->in == CUDA_R_16F ? 2 : 4;
        //@else
        const long long element = 4;
        //@end
        const long long stride[] = {s->sa * element, s->sb * element, s->sc * element};
        group_member(g, i, s);
        for (int b = 0; b < s->batch; b++, p++)
            for (int o = 0; o < 3; o++) g->at[o][p] = (const char *)at[i][o] + b * stride[o];
    }
    CUDA_CALL(m, "grouped products",
              cudaMemcpyAsync(m->constants + $table, g->at, sizeof g->at, cudaMemcpyHostToDevice,
                              stream));
    return 0;
}

// A call for each product.
static int grouped_run_apart($model *m, const group_size *s) {
    int p = s->problem;
    for (int i = s->first; i < s->first + s->count; p += grouped_sizes[i++].batch)
        CALL(gemm_run(m, &grouped_sizes[i], (const $scalar *)m->grouped.at[0][p],
                      (const $scalar *)m->grouped.at[1][p], ($scalar *)m->grouped.at[2][p]));
    return 0;
}

static int grouped_run($model *m, const group_size *s) {
#if CUDART_VERSION >= 12050
    group_arrays *g = &m->grouped;
    const int i = s->first;
    const void *const *a = (const void *const *)(m->constants + $table) + s->problem;
    const void *const *b = a + $problems;
    void *const *c = (void *const *)(m->constants + $table) + 2 * $problems + s->problem;
    //@if typed
    const cudaDataType type = grouped_sizes[i].in;
    const cublasComputeType_t compute =
        grouped_sizes[i].tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    //@else
    const cudaDataType type = CUDA_R_32F;
    const cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    //@end
    if (g->apart) return grouped_run_apart(m, s);
    const cublasStatus_t e = cublasGemmGroupedBatchedEx(
        m->cublas, g->tb + i, g->ta + i, g->n + i, g->m + i, g->k + i, g->alpha + i, b, type,
        g->ldb + i, a, type, g->lda + i, g->beta + i, c, type, g->ldc + i, s->count, g->batch + i,
        compute);
    g->apart = e == CUBLAS_STATUS_NOT_SUPPORTED;
    if (!g->apart) {
        CUBLAS_CALL(m, s->name, e);
        //@if steps
        stepped(m, s->name);
        //@end
        return 0;
    }
#endif
    return grouped_run_apart(m, s);
}
