// What the library is told of product i of all grouped calls. c is written, not added to.
static inline void group_member(group_arrays *g, int i, const gemm_size *s) {
    g->ta[i] = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    g->tb[i] = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    g->m[i] = s->m;
    g->n[i] = s->n;
    g->k[i] = s->k;
    g->lda[i] = s->lda;
    g->ldb[i] = s->ldb;
    g->ldc[i] = s->ldc;
    g->batch[i] = s->batch;
    g->alpha[i] = s->alpha;
    g->beta[i] = 0;
}
