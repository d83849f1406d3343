//@key model    prefix of the program's symbols
//@key typed    products have types of their own: not all are FP32
//@key type     of the operands; outtype: of the result, what is added to it and the bias
//@key outtype  see there
//@key compute  what the library calls the arithmetic
//@key limit    bytes of workspace a product may use
//@key pins     a table of costs has chosen algorithms
//@key steps    the program reports its steps
// The library is column-major: it sees every matrix transposed, and computes b * a.
static int matmul_matrix($model *m, const char *name, cublasLtMatrixLayout_t *to, cudaDataType type,
                         int rows, int columns, int ld, int batch, long long stride) {
    CUBLAS_CALL(m, name,
                cublasLtMatrixLayoutCreate(to, type, (unsigned)columns, (unsigned)rows, ld));
    if (batch == 1) return 0;
    CUBLAS_CALL(m, name,
                cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                 sizeof batch));
    CUBLAS_CALL(m, name,
                cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &stride, sizeof stride));
    return 0;
}

static int matmul_describe($model *m, matmul_call *c, const matmul_size *s) {
    const cublasOperation_t ta = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                            tb = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
#if CUDART_VERSION >= 11000
    CUBLAS_CALL(m, s->name, cublasLtMatmulDescCreate(&c->desc, $compute, CUDA_R_32F));
#else
    CUBLAS_CALL(m, s->name, cublasLtMatmulDescCreate(&c->desc, CUDA_R_32F));
#endif
    CUBLAS_CALL(
        m, s->name,
        cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_TRANSA, &tb, sizeof tb));
    CUBLAS_CALL(
        m, s->name,
        cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_TRANSB, &ta, sizeof ta));
    CUBLAS_CALL(m, s->name,
                cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue,
                                               sizeof s->epilogue));
    // Algorithms are chosen by how the bias is aligned: no address, but one that ends like it.
    const void *const bias = (const void *)(size_t)s->align;
    if (s->bias)
        CUBLAS_CALL(m, s->name,
                    cublasLtMatmulDescSetAttribute(c->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                   &bias, sizeof bias));
    int r = matmul_matrix(m, s->name, &c->a, $type, s->ta ? s->k : s->m, s->ta ? s->m : s->k,
                          s->lda, s->batch, s->sa);
    if (!r)
        r = matmul_matrix(m, s->name, &c->b, $type, s->tb ? s->n : s->k, s->tb ? s->k : s->n,
                          s->ldb, s->batch, s->sb);
    if (!r) r = matmul_matrix(m, s->name, &c->c, $outtype, s->m, s->n, s->ldc, s->batch, s->sc);
    if (!r && s->ldz)
        r = matmul_matrix(m, s->name, &c->z, $outtype, s->m, s->n, s->ldz, s->batch, s->sz);
    return r;
}

// What an algorithm has to keep to: the workspace, sums in one order on every run, addresses, and
// FP32 means FMA arithmetic.
static int matmul_wish($model *m, matmul_call *c, const matmul_size *s) {
    const size_t limit = $limit;
    const unsigned sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    CUBLAS_CALL(m, s->name, cublasLtMatmulPreferenceCreate(&c->wish));
    CUBLAS_CALL(m, s->name,
                cublasLtMatmulPreferenceSetAttribute(
                    c->wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
    CUBLAS_CALL(m, s->name,
                cublasLtMatmulPreferenceSetAttribute(
                    c->wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums));
    for (int i = 0; i < 4; i++)
        CUBLAS_CALL(
            m, s->name,
            cublasLtMatmulPreferenceSetAttribute(c->wish, aligned[i], &s->align, sizeof s->align));
#ifdef CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA
    //@if typed
    if (s->in != CUDA_R_32F || s->tf32) return 0;
    //@end
    const unsigned long long fma = CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA |
                                   CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F |
                                   CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
    CUBLAS_CALL(m, s->name,
                cublasLtMatmulPreferenceSetAttribute(c->wish, CUBLASLT_MATMUL_PREF_IMPL_MASK, &fma,
                                                     sizeof fma));
#endif
    return 0;
}
//@if pins

// Whether this library takes the algorithm that was measured.
static bool matmul_pinned($model *m, matmul_call *c, const matmul_size *s) {
    static const cublasLtMatmulAlgoConfigAttributes_t what[] = {
        CUBLASLT_ALGO_CONFIG_TILE_ID,
        CUBLASLT_ALGO_CONFIG_STAGES_ID,
        CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
        CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
#if CUBLAS_VERSION >= 111103
        CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
        CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
#endif
    };
    cublasLtMatmulHeuristicResult_t found = {};
    if (!s->version || cublasLtGetVersion() != s->version) return false;
    if (cublasLtMatmulAlgoInit(m->lt, $compute, CUDA_R_32F, $type, $type, $outtype, $outtype,
                               (int)s->pin[0], &c->algorithm))
        return false;
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        unsigned value = s->pin[1 + i];
        unsigned short half = (unsigned short)value;
        const void *from = i < 6 ? (const void *)&value : &half;
        if (cublasLtMatmulAlgoConfigSetAttribute(&c->algorithm, what[i], from, i < 6 ? 4 : 2))
            return false;
    }
    if (cublasLtMatmulAlgoCheck(m->lt, c->desc, c->b, c->a, c->z ? c->z : c->c, c->c, &c->algorithm,
                                &found) ||
        found.workspaceSize > $limit)
        return false;
    c->workspace = found.workspaceSize;
    return true;
}
//@end

// The first of the library's offers that it says will run, but none that keeps less than an eighth
// as many multiprocessors busy as another: for 128 x 768 x 3072 in FP32 cublasLt 13.1 offers a tile
// of 256 x 128 first, three blocks that take 500 us on an H200; other algorithms take 22.
static cublasStatus_t matmul_first($model *m, matmul_call *c) {
    cublasLtMatmulHeuristicResult_t p[8] = {};
    int n = 0;
    const cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(
        m->lt, c->desc, c->b, c->a, c->z ? c->z : c->c, c->c, c->wish, 8, p, &n);
    if (e != CUBLAS_STATUS_SUCCESS) return e;
    float fullest = 0.f;
    for (int i = 0; i < n; i++)
        if (p[i].state == CUBLAS_STATUS_SUCCESS)
            fullest = fmaxf(fullest, fminf(p[i].wavesCount, 1.f));
    for (int i = 0; i < n; i++) {
        if (p[i].state != CUBLAS_STATUS_SUCCESS || 8.f * p[i].wavesCount < fullest) continue;
        c->algorithm = p[i].algo;
        c->workspace = p[i].workspaceSize;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static int matmul_open($model *m, matmul_call *c, const matmul_size *s) {
    int r = matmul_describe(m, c, s);
    if (!r) r = matmul_wish(m, c, s);
    if (r) return r;
    //@if pins
    if (matmul_pinned(m, c, s)) return 0;
    //@end
    cublasStatus_t e = matmul_first(m, c);
#ifdef CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA
    if (e == CUBLAS_STATUS_NOT_SUPPORTED) {
        // A library may call its kernels something else: what they compute is what was asked for.
        const unsigned long long any = ~0ull;
        CUBLAS_CALL(m, s->name,
                    cublasLtMatmulPreferenceSetAttribute(c->wish, CUBLASLT_MATMUL_PREF_IMPL_MASK,
                                                         &any, sizeof any));
        e = matmul_first(m, c);
    }
#endif
    if (e == CUBLAS_STATUS_NOT_SUPPORTED)
        return fail(m, BAD_CALL, s->name, "cublasLt has no algorithm for this product");
    CUBLAS_CALL(m, s->name, e);
    return 0;
}

static void matmul_close(matmul_call *c) {
    if (c->shared) return;
    const cublasLtMatrixLayout_t matrix[] = {c->a, c->b, c->c, c->z};
    for (int i = 0; i < 4; i++)
        if (matrix[i]) cublasLtMatrixLayoutDestroy(matrix[i]);
    if (c->desc) cublasLtMatmulDescDestroy(c->desc);
    if (c->wish) cublasLtMatmulPreferenceDestroy(c->wish);
}

static int matmul_run($model *m, int k, const void *a, const void *b, const void *bias,
                      const void *z, void *c, void *workspace) {
    const matmul_size *s = &matmul_sizes[k];
    const matmul_call *call = &m->matmul[k];
    const float beta = z ? 1.f : 0.f;
    if (s->bias)
        CUBLAS_CALL(m, s->name,
                    cublasLtMatmulDescSetAttribute(call->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                   &bias, sizeof bias));
    CUBLAS_CALL(m, s->name,
                cublasLtMatmul(m->lt, call->desc, &s->alpha, b, call->b, a, call->a, &beta,
                               z ? z : c, call->z ? call->z : call->c, c, call->c, &call->algorithm,
                               workspace, call->workspace, m->lt_stream));
    //@if steps
    stepped(m, s->name);
    //@end
    return 0;
}
