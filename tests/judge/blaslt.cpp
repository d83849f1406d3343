// CPU bodies of the cublasLt functions that emitted code may call: a few algorithms that differ in
// what they ask for and not in what they compute; plain and ReLU, GELU and bias epilogues.
#include <math.h>
#include <stdio.h>

#include <cublasLt.h>

#include <algorithm>

#include "gemm.h"

struct cublasLtContext {
    int unused;
};

namespace {

// What lies inside the library's opaque structures.
struct operation {
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    int64_t bias_stride;
    cudaDataType bias_type;  // (cudaDataType)-1: that of D
};

struct matrix {
    cudaDataType type;
    int32_t order;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    int64_t stride;
};

struct preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
    uint64_t kinds = ~0ull;                        // of implementations
};

// What an algorithm is set to, and what was promised when it was chosen.
struct algorithm {
    uint32_t known;  // 0: nobody filled this
    int32_t id;
    uint32_t tile;
    int32_t parts;
    uint32_t reduction, swizzle, custom, stages;
    uint16_t inner, cluster;
    uint32_t alignment;  // least of what was wished
    uint32_t bias;       // that of the bias it was chosen for; 0: none
    uint64_t workspace;
};

static_assert(sizeof(operation) <= sizeof(cublasLtMatmulDescOpaque_t), "fits the opaque structure");
static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
              "fits the opaque structure");
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits the opaque structure");
static_assert(sizeof(matrix) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits the opaque structure");

operation *of(cublasLtMatmulDesc_t desc) { return reinterpret_cast<operation *>(desc); }
matrix *of(cublasLtMatrixLayout_t layout) { return reinterpret_cast<matrix *>(layout); }
preference *of(cublasLtMatmulPreference_t p) { return reinterpret_cast<preference *>(p); }

algorithm *of(cublasLtMatmulAlgo_t *a) { return reinterpret_cast<algorithm *>(a); }
const algorithm *of(const cublasLtMatmulAlgo_t *a) {
    return reinterpret_cast<const algorithm *>(a);
}

template <class T>
cublasStatus_t set(T *field, const void *value, size_t bytes) {
    if (!value || bytes != sizeof(T)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, value, sizeof(T));
    return CUBLAS_STATUS_SUCCESS;
}

// The library's choices in its order: id, tile, stages, parts of k, what needs a workspace.
const struct {
    int32_t id;
    uint32_t tile, stages;
    int32_t parts;
    uint32_t reduction;
    size_t workspace;
} choices[] = {
    {7, 20, 12, 1, CUBLASLT_REDUCTION_SCHEME_INPLACE, 1024},
    {7, 20, 12, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 8192},
    {7, 15, 12, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
    {9, 18, 0, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 4096},
};

}  // namespace

#define LT_CALL(error)                                                              \
    do {                                                                            \
        if (judge_entry(__func__)) {                                                \
            return judge_env().no_device ? CUBLAS_STATUS_NOT_INITIALIZED : (error); \
        }                                                                           \
    } while (0)

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = nullptr;
    LT_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *handle = new cublasLtContext;
    judge_ledger("cublasLt handle", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    bool fails = judge_entry(__func__);
    delete handle;
    judge_ledger("cublasLt handle", handle ? -1 : 0);
    return fails ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

// ---- descriptors

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    *desc = nullptr;
    LT_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *desc = new cublasLtMatmulDescOpaque_t();
    *of(*desc) = {compute, scale, CUBLAS_OP_N,     CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                  nullptr, 0,     (cudaDataType)-1};
    judge_ledger("matmul descriptor", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    bool fails = judge_entry(__func__);
    delete desc;
    judge_ledger("matmul descriptor", desc ? -1 : 0);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    LT_CALL(CUBLAS_STATUS_INVALID_VALUE);
    operation *o = of(desc);
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&o->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&o->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&o->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return set(&o->bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(&o->bias_type, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    *layout = nullptr;
    LT_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *layout = new cublasLtMatrixLayoutOpaque_t();
    *of(*layout) = {type, CUBLASLT_ORDER_COL, rows, columns, ld, 1, 0};
    judge_ledger("matrix layout", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    bool fails = judge_entry(__func__);
    delete layout;
    judge_ledger("matrix layout", layout ? -1 : 0);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    LT_CALL(CUBLAS_STATUS_INVALID_VALUE);
    matrix *m = of(layout);
    switch ((int)attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return set(&m->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return set(&m->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return set(&m->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return set(&m->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return set(&m->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(&m->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(&m->stride, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
    *p = nullptr;
    LT_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *p = new cublasLtMatmulPreferenceOpaque_t();
    *of(*p) = preference();
    judge_ledger("matmul preference", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    bool fails = judge_entry(__func__);
    delete p;
    judge_ledger("matmul preference", p ? -1 : 0);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    LT_CALL(CUBLAS_STATUS_INVALID_VALUE);
    preference *w = of(p);
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&w->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&w->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&w->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&w->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&w->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&w->alignment[3], value, bytes);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK: return set(&w->kinds, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

size_t cublasLtGetVersion(void) {
    const char *text = getenv("JUDGE_CUBLAS_VERSION");
    return text ? strtoul(text, nullptr, 10) : CUBLAS_VERSION;
}

// ---- algorithms

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *algo) {
    LT_CALL(CUBLAS_STATUS_NOT_SUPPORTED);
    if (!handle || !algo || (id != 7 && id != 9) || scale != CUDA_R_32F || a != b || c != d ||
        !judge_type_known(a) || !judge_type_known(c) || compute == CUBLAS_COMPUTE_16F) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *algo = {};
    algorithm *o = of(algo);
    o->known = 1;
    o->id = id;
    o->parts = 1;
    o->alignment = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    LT_CALL(CUBLAS_STATUS_INVALID_VALUE);
    algorithm *o = of(algo);
    if (!algo || !o->known) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    switch ((int)attribute) {
    case CUBLASLT_ALGO_CONFIG_TILE_ID: return set(&o->tile, value, bytes);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: return set(&o->parts, value, bytes);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: return set(&o->reduction, value, bytes);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING: return set(&o->swizzle, value, bytes);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION: return set(&o->custom, value, bytes);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID: return set(&o->stages, value, bytes);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID: return set(&o->inner, value, bytes);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID: return set(&o->cluster, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written) {
    LT_CALL(CUBLAS_STATUS_INVALID_VALUE);
    const algorithm *o = of(algo);
    const struct {
        const void *from;
        size_t bytes;
    } field[] = {{&o->id, 4},        {&o->tile, 4},    {&o->parts, 4},
                 {&o->reduction, 4}, {&o->swizzle, 4}, {&o->custom, 4},
                 {&o->stages, 4},    {&o->inner, 2},   {&o->cluster, 2}};
    size_t at = (size_t)attribute;
    if (!algo || !o->known || at >= sizeof field / sizeof *field || !value ||
        bytes != field[at].bytes) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(value, field[at].from, field[at].bytes);
    if (written) {
        *written = field[at].bytes;
    }
    return CUBLAS_STATUS_SUCCESS;
}

// ---- multiplication

namespace {

bool epilogue_known(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_RELU ||
           e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU || e == CUBLASLT_EPILOGUE_GELU_BIAS;
}

bool layout_ok(const matrix &m) {
    uint64_t leading = m.order == CUBLASLT_ORDER_ROW ? m.columns : m.rows;
    return m.rows > 0 && m.columns > 0 && m.batch > 0 && m.ld >= (int64_t)leading &&
           m.rows < 1u << 31 && m.columns < 1u << 31 && m.ld < (int64_t)1 << 31 &&
           (m.order == CUBLASLT_ORDER_COL || m.order == CUBLASLT_ORDER_ROW);
}

// A row-major matrix is its transpose in column-major order; C and D have to agree on the order, or
// both operands swap.
cublasStatus_t check_product(const operation &o, const matrix &a, const matrix &b, const matrix &c,
                             const matrix &d, judge_gemm *g) {
    if (!layout_ok(a) || !layout_ok(b) || !layout_ok(c) || !layout_ok(d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    bool ta = o.transpose_a != CUBLAS_OP_N, tb = o.transpose_b != CUBLAS_OP_N;
    uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns, n = tb ? b.rows : b.columns;
    if (k != (tb ? b.columns : b.rows) || d.rows != m || d.columns != n || c.rows != m ||
        c.columns != n || a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    bool fast = o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                o.compute == CUBLAS_COMPUTE_32F_FAST_16F ||
                o.compute == CUBLAS_COMPUTE_32F_FAST_16BF;
    bool compute_ok = o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                      (fast && a.type == CUDA_R_32F);
    bool types_ok = judge_type_known(a.type) && a.type == b.type && c.type == d.type &&
                    (d.type == a.type || d.type == CUDA_R_32F);
    if (!compute_ok || o.scale != CUDA_R_32F || !types_ok || !epilogue_known(o.epilogue) ||
        c.order != d.order) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *g = {ta != (a.order == CUBLASLT_ORDER_ROW),
          tb != (b.order == CUBLASLT_ORDER_ROW),
          (int)m,
          (int)n,
          (int)k,
          1,
          0,
          a.type,
          b.type,
          d.type,
          a.ld,
          b.ld,
          d.ld};
    if (d.order == CUBLASLT_ORDER_ROW) {
        *g = {!g->transpose_b, !g->transpose_a, g->n,   g->m, g->k, 1,   0,
              b.type,          a.type,          d.type, b.ld, a.ld, d.ld};
    }
    g->tf32 = o.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return CUBLAS_STATUS_SUCCESS;
}

float finish(cublasLtEpilogue_t epilogue, float v) {
    if (epilogue & CUBLASLT_EPILOGUE_RELU) {
        return v < 0 ? 0.0f : v;
    }
    return epilogue & CUBLASLT_EPILOGUE_GELU
               ? 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)))
               : v;
}

// How the bias of a descriptor is aligned, as far as kernels care; 0: nothing tells.
uint32_t bias_alignment(const operation &o) {
    uintptr_t at = (uintptr_t)o.bias;
    return at % 16 ? (uint32_t)(at & -at) : at ? 16 : 0;
}

// Whether an algorithm may be chosen: NULL looks like the best alignment there is.
bool bias_told(const char *function, const operation &o) {
    bool told = !(o.epilogue & CUBLASLT_EPILOGUE_BIAS) || bias_alignment(o);
    if (!told) {
        fprintf(stderr, "judge: %s: no address tells how the bias is aligned\n", function);
    }
    return told;
}

// Bias (one value a row of D) and activation, on one result.
void run_epilogue(const operation &o, const matrix &d, void *data, long long batch) {
    bool biased = o.epilogue & CUBLASLT_EPILOGUE_BIAS;
    cudaDataType bias_type = (int)o.bias_type == -1 ? d.type : o.bias_type;
    for (uint64_t i = 0; i < d.rows; i++) {
        for (uint64_t j = 0; j < d.columns; j++) {
            size_t at =
                (size_t)(batch * d.stride) +
                (d.order == CUBLASLT_ORDER_ROW ? i * (uint64_t)d.ld + j : i + j * (uint64_t)d.ld);
            float bias =
                biased ? judge_load(o.bias, (size_t)(batch * o.bias_stride) + i, bias_type) : 0.0f;
            judge_store(data, at, d.type, finish(o.epilogue, judge_load(data, at, d.type) + bias));
        }
    }
}

// C's layout as that of D, so that the product can be formed in D.
void copy_matrix(const matrix &c, const void *from, const matrix &d, void *to, long long batch) {
    for (uint64_t i = 0; i < d.rows; i++) {
        for (uint64_t j = 0; j < d.columns; j++) {
            bool rows = d.order == CUBLASLT_ORDER_ROW;
            size_t source = (size_t)(batch * c.stride) +
                            (rows ? i * (uint64_t)c.ld + j : i + j * (uint64_t)c.ld);
            size_t target = (size_t)(batch * d.stride) +
                            (rows ? i * (uint64_t)d.ld + j : i + j * (uint64_t)d.ld);
            judge_store(to, target, d.type, judge_load(from, source, c.type));
        }
    }
}

void check_operand(const char *name, const matrix &m, const void *data) {
    bool rows = m.order == CUBLASLT_ORDER_ROW;
    judge_check_matrix("cublasLtMatmul", name, data, m.type, (long long)(rows ? m.columns : m.rows),
                       (long long)(rows ? m.rows : m.columns), m.ld, m.stride, m.batch);
}

}  // namespace

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned) {
    LT_CALL(CUBLAS_STATUS_NOT_SUPPORTED);
    *returned = 0;
    if (!handle || !desc || !a || !b || !c || !d || !wish || requested < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!bias_told(__func__, *of(desc))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    judge_gemm g;
    cublasStatus_t status = check_product(*of(desc), *of(a), *of(b), *of(c), *of(d), &g);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    const preference *w = of(wish);
    // Strict arithmetic is what the programs ask for; tensor cores would be another judge's.
    if (!(w->kinds & CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (const auto &each : choices) {
        if (*returned == requested) {
            break;
        }
        bool allowed = !each.reduction || (w->reductions & each.reduction);
        if (!allowed || each.workspace > w->workspace) {
            continue;
        }
        cublasLtMatmulHeuristicResult_t *r = &results[(*returned)++];
        *r = {};
        *of(&r->algo) = {1,
                         each.id,
                         each.tile,
                         each.parts,
                         each.reduction,
                         0,
                         0,
                         each.stages,
                         0,
                         0,
                         *std::min_element(w->alignment, w->alignment + 4),
                         bias_alignment(*of(desc)),
                         each.workspace};
        r->workspaceSize = each.workspace;
        // What the library likes best may keep few multiprocessors busy.
        r->wavesCount = *returned == 1 && getenv("JUDGE_CUBLAS_IDLE") ? 0.02f : 1.0f;
    }
    return *returned ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// Only what the library would have chosen itself, with its workspace.
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    LT_CALL(CUBLAS_STATUS_NOT_SUPPORTED);
    if (!handle || !desc || !a || !b || !c || !d || !algo || !of(algo)->known || !result) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!bias_told(__func__, *of(desc))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    judge_gemm g;
    cublasStatus_t status = check_product(*of(desc), *of(a), *of(b), *of(c), *of(d), &g);
    const algorithm *o = of(algo);
    for (const auto &each : choices) {
        if (status == CUBLAS_STATUS_SUCCESS && o->id == each.id && o->tile == each.tile &&
            o->parts == each.parts && o->reduction == each.reduction && o->stages == each.stages &&
            !o->swizzle && !o->custom && !o->inner && !o->cluster) {
            *result = {};
            result->algo = *algo;
            of(&result->algo)->workspace = each.workspace;
            of(&result->algo)->bias = bias_alignment(*of(desc));
            result->workspaceSize = each.workspace;
            return CUBLAS_STATUS_SUCCESS;
        }
    }
    return status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

namespace {

// The workspace that an algorithm needs: what it was found with or, built from its parts, what the
// library knows of it.
size_t needed(const algorithm &o) {
    size_t bytes = o.workspace;
    for (const auto &each : choices) {
        if (o.id == each.id && o.tile == each.tile && o.reduction == each.reduction) {
            bytes = std::max(bytes, each.workspace);
        }
    }
    return bytes;
}

bool aligned(const void *data, const algorithm *o) {
    return !o || (uintptr_t)data % o->alignment == 0;
}

}  // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t ad, const void *b,
                              cublasLtMatrixLayout_t bd, const void *beta, const void *c,
                              cublasLtMatrixLayout_t cd, void *d, cublasLtMatrixLayout_t dd,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream) {
    LT_CALL(CUBLAS_STATUS_EXECUTION_FAILED);
    if (!handle || !desc || !ad || !bd || !cd || !dd || !alpha || !beta ||
        (algo && !of(algo)->known)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    operation o = *of(desc);
    matrix ma = *of(ad), mb = *of(bd), mc = *of(cd), md = *of(dd);
    judge_gemm g;
    cublasStatus_t status = check_product(o, ma, mb, mc, md, &g);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    bool biased = o.epilogue & CUBLASLT_EPILOGUE_BIAS, swapped = md.order == CUBLASLT_ORDER_ROW;
    g.alpha = *(const float *)alpha;
    g.beta = *(const float *)beta;
    const algorithm *chosen = algo ? of(algo) : nullptr;
    if (!aligned(a, chosen) || !aligned(b, chosen) || !aligned(c, chosen) || !aligned(d, chosen)) {
        fprintf(stderr, "judge: cublasLtMatmul: an address is not aligned as was promised\n");
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (biased && chosen && chosen->bias > bias_alignment(o)) {
        fprintf(stderr, "judge: cublasLtMatmul: the bias is not aligned as was promised\n");
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if ((chosen && bytes < needed(*chosen)) || (bytes && !judge_in_device(workspace, bytes)) ||
        (biased && !judge_in_device(o.bias, 1))) {
        fprintf(stderr,
                "judge: cublasLtMatmul: workspace or bias is too small or not device memory\n");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    check_operand("A", ma, a);
    check_operand("B", mb, b);
    check_operand("D", md, d);
    if (g.beta != 0) {
        check_operand("C", mc, c);
    }
    judge_check_distinct("cublasLtMatmul", g, md.stride, md.batch);
    if (chosen && judge_env().report_launches) {
        fprintf(stderr, "judge: cublasLtMatmul algorithm %d.%u.%u.%d.%u\n", chosen->id,
                chosen->tile, chosen->stages, chosen->parts, chosen->reduction);
    }
    cudaError_t error = judge_enqueue(stream, [=] {
        memset(workspace, 0xFF, bytes);
        for (long long i = 0; i < md.batch; i++) {
            const char *left =
                (const char *)a + i * ma.stride * (long long)judge_type_bytes(ma.type);
            const char *right =
                (const char *)b + i * mb.stride * (long long)judge_type_bytes(mb.type);
            if (g.beta != 0 && c != d) {
                copy_matrix(mc, c, md, d, i);
            }
            judge_gemm_run(g, swapped ? right : left, swapped ? left : right,
                           (char *)d + i * md.stride * (long long)judge_type_bytes(md.type));
            run_epilogue(o, md, d, i);
        }
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
