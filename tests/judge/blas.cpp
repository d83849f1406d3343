// CPU bodies of the cuBLAS functions that emitted code may call, on OpenBLAS. Prototypes and their
// meaning are the vendor's.
#include <stdio.h>

#include <cblas.h>
#include <cublas_v2.h>

#include <algorithm>

#include "gemm.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    void *workspace = nullptr;
    size_t workspace_bytes = 0;
};

#define BLAS_CALL(handle, error)                                                    \
    do {                                                                            \
        if (judge_entry(__func__)) {                                                \
            return judge_env().no_device ? CUBLAS_STATUS_NOT_INITIALIZED : (error); \
        }                                                                           \
        if (!(handle)) {                                                            \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                   \
        }                                                                           \
    } while (0)

// ---- products

static void single_thread() {
    static const bool done = (openblas_set_num_threads(1), true);
    (void)done;
}

// cblas_sgemm, but C is scaled by beta also where the product is empty, and cleared, not scaled,
// when beta is 0.
static void sgemm(CBLAS_ORDER order, bool transpose_a, bool transpose_b, long m, long n, long k,
                  float alpha, const float *a, long lda, const float *b, long ldb, float beta,
                  float *c, long ldc) {
    single_thread();
    if (k > 0 && alpha != 0) {
        cblas_sgemm(order, transpose_a ? CblasTrans : CblasNoTrans,
                    transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a,
                    (int)lda, b, (int)ldb, beta, c, (int)ldc);
        return;
    }
    long lines = order == CblasColMajor ? n : m, length = order == CblasColMajor ? m : n;
    for (long i = 0; i < lines; i++) {
        for (long j = 0; j < length; j++) {
            c[i * ldc + j] = beta == 0 ? 0.0f : beta * c[i * ldc + j];
        }
    }
}

void judge_sgemm_rows(bool transpose_a, bool transpose_b, long m, long n, long k, float alpha,
                      const float *a, long lda, const float *b, long ldb, float beta, float *c,
                      long ldc) {
    sgemm(CblasRowMajor, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void judge_gemm_run(const judge_gemm &g, const void *a, const void *b, void *c) {
    if (g.m == 0 || g.n == 0) {
        return;
    }
    bool product = g.k > 0 && g.alpha != 0;
    judge_floats fa(a, g.type_a, product ? (size_t)judge_rows_a(g) : 0, (size_t)judge_columns_a(g),
                    (size_t)g.lda, g.tf32);
    judge_floats fb(b, g.type_b, product ? (size_t)judge_rows_b(g) : 0, (size_t)judge_columns_b(g),
                    (size_t)g.ldb, g.tf32);
    std::vector<float> wide;
    float *result = static_cast<float *>(c);
    if (g.type_c != CUDA_R_32F) {
        wide.resize((size_t)g.ldc * (size_t)g.n);
        result = wide.data();
        for (size_t i = 0; g.beta != 0 && i < (size_t)(g.ldc * (g.n - 1) + g.m); i++) {
            result[i] = judge_load(c, i, g.type_c);
        }
    }
    sgemm(CblasColMajor, g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.alpha, fa.get(), g.lda,
          fb.get(), g.ldb, g.beta, result, g.ldc);
    for (long long j = 0; g.type_c != CUDA_R_32F && j < g.n; j++) {
        for (long long i = 0; i < g.m; i++) {
            judge_store(c, (size_t)(j * g.ldc + i), g.type_c, result[j * g.ldc + i]);
        }
    }
}

void judge_check_matrix(const char *function, const char *name, const void *data, cudaDataType type,
                        long long rows, long long columns, long long ld, long long stride,
                        int batch) {
    if (rows == 0 || columns == 0 || batch == 0) {
        return;
    }
    long long last = stride * (batch - 1), extent = ld * (columns - 1) + rows;
    long long low = std::min(0ll, last), high = std::max(0ll, last) + extent;
    long long bytes = (long long)judge_type_bytes(type);
    if (!judge_in_device((const char *)data + low * bytes, (size_t)((high - low) * bytes))) {
        judge_fault("%s: %s at %p with %lld elements is not inside live device memory", function,
                    name, data, high - low);
    }
}

void judge_check_distinct(const char *function, const judge_gemm &g, long long stride, int batch) {
    long long s = stride < 0 ? -stride : stride;
    bool apart = s >= g.ldc * (g.n - 1) + g.m;  // whole matrices one after another
    bool interleaved =
        s >= g.m && s * (batch - 1) + g.m <= g.ldc;  // columns of all matrices side by side
    if (batch > 1 && g.m > 0 && g.n > 0 && !apart && !interleaved) {
        judge_fault("%s: the %d results overlap (stride %lld, m %d, n %d, ldc %lld)", function,
                    batch, stride, g.m, g.n, g.ldc);
    }
}

// ---- handle

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    *handle = nullptr;
    BLAS_CALL(handle, CUBLAS_STATUS_ALLOC_FAILED);
    *handle = new cublasContext;
    judge_ledger("cublas handle", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    bool fails = judge_entry(__func__);
    if (!handle) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    delete handle;
    judge_ledger("cublas handle", -1);
    return fails ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    BLAS_CALL(handle, CUBLAS_STATUS_NOT_INITIALIZED);
    if (!judge_stream_ok(stream)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->stream = stream;
    handle->workspace = nullptr;  // as documented: back to the library's own workspace
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
    BLAS_CALL(handle, CUBLAS_STATUS_NOT_INITIALIZED);
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    BLAS_CALL(handle, CUBLAS_STATUS_NOT_INITIALIZED);
    if ((uintptr_t)workspace % 256 != 0 || (bytes && !judge_in_device(workspace, bytes))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    BLAS_CALL(handle, CUBLAS_STATUS_NOT_INITIALIZED);
    int known = CUBLAS_TENSOR_OP_MATH | CUBLAS_PEDANTIC_MATH | CUBLAS_TF32_TENSOR_OP_MATH |
                CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    return (int)mode & ~known ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    BLAS_CALL(handle, CUBLAS_STATUS_NOT_INITIALIZED);
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "unknown cuBLAS status";
    }
}

// ---- multiplication

// A kernel of the library may use the user's workspace for anything.
static void spoil_workspace(const cublasContext &handle) {
    if (handle.workspace_bytes) {
        memset(handle.workspace, 0xFF, handle.workspace_bytes);
    }
}

static cublasStatus_t check_shape(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                  int lda, int ldb, int ldc, int batch) {
    auto known = [](cublasOperation_t op) {
        return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
    };
    if (!known(ta) || !known(tb) || m < 0 || n < 0 || k < 0 || batch < 0 ||
        lda < std::max(1, ta == CUBLAS_OP_N ? m : k) ||
        ldb < std::max(1, tb == CUBLAS_OP_N ? k : n) || ldc < std::max(1, m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

// The documented type combinations with float compute and float scale.
static cublasStatus_t check_types(cudaDataType a, cudaDataType b, cudaDataType c,
                                  cublasComputeType_t compute) {
    switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC: break;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        if (a != CUDA_R_32F) {
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
        break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return judge_type_known(a) && a == b && (c == a || c == CUDA_R_32F)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t strided(const char *function, const cublasContext &handle,
                              const judge_gemm &g, const void *a, long long stride_a, const void *b,
                              long long stride_b, void *c, long long stride_c, int batch) {
    if (g.m == 0 || g.n == 0 || batch == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    bool product = g.k > 0 && g.alpha != 0;
    if ((product && (!judge_is_device(a) || !judge_is_device(b))) || !judge_is_device(c)) {
        fprintf(stderr, "judge: %s: an operand is not device memory\n", function);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (product) {
        judge_check_matrix(function, "A", a, g.type_a, judge_rows_a(g), judge_columns_a(g), g.lda,
                           stride_a, batch);
        judge_check_matrix(function, "B", b, g.type_b, judge_rows_b(g), judge_columns_b(g), g.ldb,
                           stride_b, batch);
    }
    judge_check_matrix(function, "C", c, g.type_c, g.m, g.n, g.ldc, stride_c, batch);
    judge_check_distinct(function, g, stride_c, batch);
    cublasContext copy = handle;
    cudaError_t error = judge_enqueue(handle.stream, [=] {
        spoil_workspace(copy);
        long long size_a = (long long)judge_type_bytes(g.type_a),
                  size_c = (long long)judge_type_bytes(g.type_c);
        for (long long i = 0; i < batch; i++) {
            judge_gemm_run(g, (const char *)a + i * stride_a * size_a,
                           (const char *)b + i * stride_b * size_a,
                           (char *)c + i * stride_c * size_c);
        }
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t checked_strided(const char *function, cublasHandle_t handle,
                                      cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                      int k, const void *alpha, const void *a, cudaDataType type_a,
                                      int lda, long long stride_a, const void *b,
                                      cudaDataType type_b, int ldb, long long stride_b,
                                      const void *beta, void *c, cudaDataType type_c, int ldc,
                                      long long stride_c, int batch, cublasComputeType_t compute) {
    cublasStatus_t status = check_shape(ta, tb, m, n, k, lda, ldb, ldc, batch);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (!alpha || !beta) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    judge_gemm g = {ta != CUBLAS_OP_N,
                    tb != CUBLAS_OP_N,
                    m,
                    n,
                    k,
                    *(const float *)alpha,
                    *(const float *)beta,
                    type_a,
                    type_b,
                    type_c,
                    lda,
                    ldb,
                    ldc,
                    compute == CUBLAS_COMPUTE_32F_FAST_TF32};
    return strided(function, *handle, g, a, stride_a, b, stride_b, c, stride_c, batch);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                              int m, int n, int k, const float *alpha, const float *a, int lda,
                              const float *b, int ldb, const float *beta, float *c, int ldc) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    return checked_strided(__func__, handle, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, 0, b,
                           CUDA_R_32F, ldb, 0, beta, c, CUDA_R_32F, ldc, 0, 1, CUBLAS_COMPUTE_32F);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long stride_a, const float *b, int ldb,
                                         long long stride_b, const float *beta, float *c, int ldc,
                                         long long stride_c, int batch) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    return checked_strided(__func__, handle, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, stride_a,
                           b, CUDA_R_32F, ldb, stride_b, beta, c, CUDA_R_32F, ldc, stride_c, batch,
                           CUBLAS_COMPUTE_32F);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType type_a, int lda, const void *b, cudaDataType type_b,
                            int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    cublasStatus_t status = check_types(type_a, type_b, type_c, compute);
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : checked_strided(__func__, handle, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b,
                                 type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta,
                                          cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    cublasStatus_t status = check_types(type_a, type_b, type_c, compute);
    return status != CUBLAS_STATUS_SUCCESS
               ? status
               : checked_strided(__func__, handle, ta, tb, m, n, k, alpha, a, type_a, lda, stride_a,
                                 b, type_b, ldb, stride_b, beta, c, type_c, ldc, stride_c, batch,
                                 compute);
}

// The arrays of pointers live in device memory and are read when the work runs.
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t ta,
                                   cublasOperation_t tb, int m, int n, int k, const void *alpha,
                                   const void *const a[], cudaDataType type_a, int lda,
                                   const void *const b[], cudaDataType type_b, int ldb,
                                   const void *beta, void *const c[], cudaDataType type_c, int ldc,
                                   int batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    const char *function = __func__;
    cublasStatus_t status = check_types(type_a, type_b, type_c, compute);
    if (status == CUBLAS_STATUS_SUCCESS) {
        status = check_shape(ta, tb, m, n, k, lda, ldb, ldc, batch);
    }
    if (status != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || batch == 0) {
        return status;
    }
    size_t bytes = (size_t)batch * sizeof(void *);
    if (!judge_in_device(a, bytes) || !judge_in_device(b, bytes) || !judge_in_device(c, bytes)) {
        fprintf(stderr, "judge: %s: an array of pointers is not inside device memory\n", function);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    judge_gemm g = {ta != CUBLAS_OP_N,
                    tb != CUBLAS_OP_N,
                    m,
                    n,
                    k,
                    *(const float *)alpha,
                    *(const float *)beta,
                    type_a,
                    type_b,
                    type_c,
                    lda,
                    ldb,
                    ldc,
                    compute == CUBLAS_COMPUTE_32F_FAST_TF32};
    cublasContext copy = *handle;
    cudaError_t error = judge_enqueue(handle->stream, [=] {
        spoil_workspace(copy);
        for (int i = 0; i < batch; i++) {
            judge_check_matrix(function, "A", a[i], g.type_a, judge_rows_a(g), judge_columns_a(g),
                               g.lda, 0, 1);
            judge_check_matrix(function, "B", b[i], g.type_b, judge_rows_b(g), judge_columns_b(g),
                               g.ldb, 0, 1);
            judge_check_matrix(function, "C", c[i], g.type_c, g.m, g.n, g.ldc, 0, 1);
            judge_gemm_run(g, a[i], b[i], c[i]);
        }
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

#if CUBLAS_VERSION >= 120500
// Groups of products: their sizes on the host, their addresses in device memory, read when the work
// runs. JUDGE_CUBLAS_REFUSES=grouped: a device that the library has no such kernels for.
cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t ta[], const cublasOperation_t tb[],
    const int m[], const int n[], const int k[], const void *alpha, const void *const a[],
    cudaDataType type_a, const int lda[], const void *const b[], cudaDataType type_b,
    const int ldb[], const void *beta, void *const c[], cudaDataType type_c, const int ldc[],
    int groups, const int batch[], cublasComputeType_t compute) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    const char *function = __func__, *refused = getenv("JUDGE_CUBLAS_REFUSES");
    if (groups < 0 || !ta || !tb || !m || !n || !k || !alpha || !lda || !ldb || !beta || !ldc ||
        !batch) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    cublasStatus_t status = check_types(type_a, type_b, type_c, compute);
    // Other than a single product, no result is wider than its operands.
    if ((refused && strcmp(refused, "grouped") == 0) || type_c != type_a) {
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    std::vector<judge_gemm> products;
    std::vector<int> at;
    for (int i = 0; i < groups && status == CUBLAS_STATUS_SUCCESS; i++) {
        status = check_shape(ta[i], tb[i], m[i], n[i], k[i], lda[i], ldb[i], ldc[i], batch[i]);
        judge_gemm g = {ta[i] != CUBLAS_OP_N,
                        tb[i] != CUBLAS_OP_N,
                        m[i],
                        n[i],
                        k[i],
                        ((const float *)alpha)[i],
                        ((const float *)beta)[i],
                        type_a,
                        type_b,
                        type_c,
                        lda[i],
                        ldb[i],
                        ldc[i],
                        compute == CUBLAS_COMPUTE_32F_FAST_TF32};
        products.insert(products.end(), (size_t)std::max(0, batch[i]), g);
    }
    if (status != CUBLAS_STATUS_SUCCESS || products.empty()) {
        return status;
    }
    size_t bytes = products.size() * sizeof(void *);
    if (!judge_in_device(a, bytes) || !judge_in_device(b, bytes) || !judge_in_device(c, bytes)) {
        fprintf(stderr, "judge: %s: an array of pointers is not inside device memory\n", function);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    bool aligned = type_a != CUDA_R_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    cublasContext copy = *handle;
    cudaError_t error = judge_enqueue(handle->stream, [=] {
        spoil_workspace(copy);
        for (size_t i = 0; i < products.size(); i++) {
            const judge_gemm &g = products[i];
            judge_check_matrix(function, "A", a[i], g.type_a, judge_rows_a(g), judge_columns_a(g),
                               g.lda, 0, 1);
            judge_check_matrix(function, "B", b[i], g.type_b, judge_rows_b(g), judge_columns_b(g),
                               g.ldb, 0, 1);
            judge_check_matrix(function, "C", c[i], g.type_c, g.m, g.n, g.ldc, 0, 1);
            // The library's rule depends on k; 16 bytes are right for any.
            if (aligned && ((uintptr_t)a[i] | (uintptr_t)b[i] | (uintptr_t)c[i]) % 16) {
                judge_fault("%s: an address of product %zu is not one of 16 bytes", function, i);
            }
        }
        // They run side by side: nothing that one stores may be another one's operand.
        std::vector<std::vector<char>> results;
        for (size_t i = 0; i < products.size(); i++) {
            const judge_gemm &g = products[i];
            size_t size = (size_t)(g.ldc * (g.n - 1) + g.m) * judge_type_bytes(g.type_c);
            results.emplace_back((char *)c[i], (char *)c[i] + size);
            judge_gemm_run(g, a[i], b[i], results.back().data());
        }
        for (size_t i = 0; i < products.size(); i++) {
            const judge_gemm &g = products[i];
            size_t element = judge_type_bytes(g.type_c), column = (size_t)g.ldc * element;
            for (int j = 0; j < g.n; j++) {
                memcpy((char *)c[i] + j * column, results[i].data() + j * column,
                       (size_t)g.m * element);
            }
        }
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
#endif

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const float *alpha, const float *a, int lda, const float *x, int incx,
                              const float *beta, float *y, int incy) {
    BLAS_CALL(handle, CUBLAS_STATUS_EXECUTION_FAILED);
    if (m < 0 || n < 0 || incx == 0 || incy == 0 || lda < std::max(1, m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    int length_x = trans == CUBLAS_OP_N ? n : m, length_y = trans == CUBLAS_OP_N ? m : n;
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (!judge_is_device(a) || !judge_is_device(x) || !judge_is_device(y)) {
        fprintf(stderr, "judge: %s: an operand is not device memory\n", __func__);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    judge_check_matrix(__func__, "A", a, CUDA_R_32F, m, n, lda, 0, 1);
    judge_check_matrix(__func__, "x", x, CUDA_R_32F, 1, length_x, std::abs(incx), 0, 1);
    judge_check_matrix(__func__, "y", y, CUDA_R_32F, 1, length_y, std::abs(incy), 0, 1);
    float scale = *alpha, keep = *beta;
    cublasContext copy = *handle;
    cudaError_t error = judge_enqueue(handle->stream, [=] {
        spoil_workspace(copy);
        single_thread();
        for (int i = 0; keep == 0 && i < length_y; i++) {
            y[(long long)i * std::abs(incy)] = 0;
        }
        cblas_sgemv(CblasColMajor, trans == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, m, n, scale, a,
                    lda, x, incx, keep, y, incy);
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
