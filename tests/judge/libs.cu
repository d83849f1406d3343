// The judge's cuBLAS and cublasLt bodies against naive loops. Prints a line for each failed check
// and a summary. Built by nvcc instead, it checks the same claims about the real library.
#include <cublasLt.h>
#include <cublas_v2.h>

#include "libs.h"

static cublasHandle_t blas;
static cublasLtHandle_t light;

// ---- cuBLAS

struct gemm_case {
    bool ta, tb;
    int m, n, k, extra, batch;
    bool broadcast_b;
    float alpha, beta;
    int lda() const { return (ta ? k : m) + extra + (k == 0); }
    int ldb() const { return (tb ? n : k) + extra + (k == 0); }
    int ldc() const { return m + extra; }
    size_t size_a() const { return (size_t)lda() * (ta ? m : k); }
    size_t size_b() const { return (size_t)ldb() * (tb ? k : n); }
    size_t size_c() const { return (size_t)ldc() * n; }
    std::string name(const char *what) const {
        char text[160];
        snprintf(text, sizeof text,
                 "%s ta%d tb%d m%d n%d k%d extra%d batch%d broadcast%d alpha%g beta%g", what, ta,
                 tb, m, n, k, extra, batch, broadcast_b, alpha, beta);
        return text;
    }
};

static std::vector<float> naive_gemm(const gemm_case &g, const std::vector<float> &a,
                                     const std::vector<float> &b, std::vector<float> c) {
    for (int s = 0; s < g.batch; s++) {
        const float *as = a.data() + s * g.size_a(),
                    *bs = b.data() + (g.broadcast_b ? 0 : s * g.size_b());
        for (int i = 0; i < g.m; i++) {
            for (int j = 0; j < g.n; j++) {
                float sum = 0;
                for (int l = 0; l < g.k; l++) {
                    sum += (g.ta ? as[l + i * g.lda()] : as[i + l * g.lda()]) *
                           (g.tb ? bs[j + l * g.ldb()] : bs[l + j * g.ldb()]);
                }
                float &to = c[s * g.size_c() + (size_t)(i + j * g.ldc())];
                to = g.alpha * sum + (g.beta != 0 ? g.beta * to : 0);
            }
        }
    }
    return c;
}

static cublasOperation_t op(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

static void gemm_types(const gemm_case &g, cudaDataType in, cudaDataType out) {
    std::vector<float> a = values(g.size_a() * g.batch),
                       b = values(g.size_b() * (g.broadcast_b ? 1 : g.batch));
    std::vector<float> c = g.beta != 0 ? values(g.size_c() * g.batch)
                                       : poison(g.size_c() * g.batch),
                       want = naive_gemm(g, a, b, c);
    device_array da(a, in), db(b, in), dc(c, out);
    cublasStatus_t status = cublasGemmStridedBatchedEx(
        blas, op(g.ta), op(g.tb), g.m, g.n, g.k, &g.alpha, da.data, in, g.lda(),
        (long long)g.size_a(), db.data, in, g.ldb(), g.broadcast_b ? 0 : (long long)g.size_b(),
        &g.beta, dc.data, out, g.ldc(), (long long)g.size_c(), g.batch, CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT);
    check(status == CUBLAS_STATUS_SUCCESS && same(dc.get(), want),
          g.name("gemm strided ex") + (in == CUDA_R_16F    ? " f16"
                                       : in == CUDA_R_16BF ? " bf16"
                                                           : ""));
}

static void gemm_floats(const gemm_case &g) {
    std::vector<float> a = values(g.size_a() * g.batch),
                       b = values(g.size_b() * (g.broadcast_b ? 1 : g.batch));
    std::vector<float> c = g.beta != 0 ? values(g.size_c() * g.batch)
                                       : poison(g.size_c() * g.batch),
                       want = naive_gemm(g, a, b, c);
    device_array da(a), db(b), dc(c);
    cublasStatus_t status = cublasSgemmStridedBatched(
        blas, op(g.ta), op(g.tb), g.m, g.n, g.k, &g.alpha, da.f(), g.lda(), (long long)g.size_a(),
        db.f(), g.ldb(), g.broadcast_b ? 0 : (long long)g.size_b(), &g.beta, dc.f(), g.ldc(),
        (long long)g.size_c(), g.batch);
    check(status == CUBLAS_STATUS_SUCCESS && same(dc.get(), want), g.name("sgemm strided"));
    if (g.batch == 1) {
        device_array dd(c), de(c);
        status = cublasSgemm(blas, op(g.ta), op(g.tb), g.m, g.n, g.k, &g.alpha, da.f(), g.lda(),
                             db.f(), g.ldb(), &g.beta, dd.f(), g.ldc());
        check(status == CUBLAS_STATUS_SUCCESS && same(dd.get(), want), g.name("sgemm"));
        status = cublasGemmEx(blas, op(g.ta), op(g.tb), g.m, g.n, g.k, &g.alpha, da.f(), CUDA_R_32F,
                              g.lda(), db.f(), CUDA_R_32F, g.ldb(), &g.beta, de.f(), CUDA_R_32F,
                              g.ldc(), CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT);
        check(status == CUBLAS_STATUS_SUCCESS && same(de.get(), want), g.name("gemm ex"));
    }
}

static void gemm_pointers(const gemm_case &g) {
    std::vector<float> a = values(g.size_a() * g.batch), b = values(g.size_b() * g.batch),
                       c = poison(g.size_c() * g.batch);
    device_array da(a), db(b), dc(c);
    std::vector<void *> host;
    for (int i = 0; i < g.batch; i++) {
        host.push_back(da.f() + i * g.size_a());
    }
    for (int i = 0; i < g.batch; i++) {
        host.push_back(db.f() + i * g.size_b());
    }
    for (int i = 0; i < g.batch; i++) {
        host.push_back(dc.f() + i * g.size_c());
    }
    void **pointers = nullptr;
    cudaMalloc(&pointers, host.size() * sizeof(void *));
    cudaMemcpyAsync(pointers, host.data(), host.size() * sizeof(void *), cudaMemcpyHostToDevice,
                    stream);
    cublasStatus_t status = cublasGemmBatchedEx(
        blas, op(g.ta), op(g.tb), g.m, g.n, g.k, &g.alpha, pointers, CUDA_R_32F, g.lda(),
        pointers + g.batch, CUDA_R_32F, g.ldb(), &g.beta, pointers + 2 * g.batch, CUDA_R_32F,
        g.ldc(), g.batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    check(status == CUBLAS_STATUS_SUCCESS && same(dc.get(), naive_gemm(g, a, b, c)),
          g.name("gemm batched"));
    cudaFree(pointers);
}

static void gemm_all() {
    const int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {16, 4, 9}, {5, 1, 6}, {4, 3, 0}};
    for (int i = 0; i < 64; i++) {
        for (const int *s : shapes) {
            gemm_case g = {(i & 1) != 0,
                           (i & 2) != 0,
                           s[0],
                           s[1],
                           s[2],
                           i & 4 ? 3 : 0,
                           i & 8 ? 3 : 1,
                           (i & 16) != 0,
                           i & 32 ? 2.0f : 1.0f,
                           i & 32 ? -1.0f : 0.0f};
            gemm_floats(g);
            gemm_types(g, CUDA_R_16F, i & 4 ? CUDA_R_32F : CUDA_R_16F);
            gemm_types(g, CUDA_R_16BF, i & 4 ? CUDA_R_16BF : CUDA_R_32F);
            if (!g.broadcast_b && g.beta == 0) {
                gemm_pointers(g);
            }
        }
    }
    // results of a batch side by side in one wide matrix: stride m, leading dimension batch * m
    gemm_case g = {false, false, 2, 3, 4, 0, 1, false, 1, 0};
    std::vector<float> a = values(24), b = values(36), want;
    device_array da(a), db(b), dc(poison(18));
    cublasStatus_t status =
        cublasSgemmStridedBatched(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 4, &g.alpha, da.f(), 2, 8,
                                  db.f(), 4, 12, &g.beta, dc.f(), 6, 2, 3);
    std::vector<float> got = dc.get();
    bool ok = status == CUBLAS_STATUS_SUCCESS;
    for (int s = 0; s < 3; s++) {
        want =
            naive_gemm(g, {a.begin() + 8 * s, a.end()}, {b.begin() + 12 * s, b.end()}, poison(6));
        for (int i = 0; i < 6; i++) {
            ok = ok && got[(size_t)(i / 2 * 6 + 2 * s + i % 2)] == want[(size_t)i];
        }
    }
    check(ok, "sgemm strided, interleaved results");
}

// 1 + 2^-11 is no TF32 number: squared it is 1 or more by one step of TF32's mantissa, in FP32
// neither.
static void gemm_tf32() {
    const float one = 1, zero = 0, value = 1 + ldexpf(1, -11);
    cublasComputeType_t modes[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
    for (cublasComputeType_t mode : modes) {
        device_array a(std::vector<float>(1, value)), c(poison(1));
        cublasStatus_t status = cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data,
                                             CUDA_R_32F, 1, a.data, CUDA_R_32F, 1, &zero, c.data,
                                             CUDA_R_32F, 1, mode, CUBLAS_GEMM_DEFAULT);
        float got = c.get()[0], step = ldexpf(1, -10);
        bool rounded = got == 1 || got == (1 + step) * (1 + step);
        check(status == CUBLAS_STATUS_SUCCESS &&
                  (mode == CUBLAS_COMPUTE_32F ? got == value * value : rounded),
              mode == CUBLAS_COMPUTE_32F ? "FP32 keeps all bits" : "TF32 rounds its operands");
    }
}

static void gemm_refusals() {
    device_array x(values(64));
    float one = 1, zero = 0;
    auto sgemm = [&](int m, int n, int k, const float *a, int lda, int ldb, int ldc) {
        return cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &one, a, lda, x.f(), ldb, &zero,
                           x.f(), ldc);
    };
    check(sgemm(4, 3, 2, x.f(), 3, 3, 4) == CUBLAS_STATUS_INVALID_VALUE, "lda below m");
    check(sgemm(4, 3, 2, x.f(), 4, 2, 4) == CUBLAS_STATUS_INVALID_VALUE, "ldb below n");
    check(sgemm(4, 3, 2, x.f(), 4, 3, 3) == CUBLAS_STATUS_INVALID_VALUE, "ldc below m");
    check(sgemm(-1, 3, 2, x.f(), 4, 3, 4) == CUBLAS_STATUS_INVALID_VALUE, "negative m");
    check(sgemm(0, 3, 2, x.f(), 0, 3, 1) == CUBLAS_STATUS_INVALID_VALUE, "lda 0");
    check(sgemm(0, 3, 2, x.f(), 1, 3, 1) == CUBLAS_STATUS_SUCCESS, "m 0");
#ifdef EIN_JUDGE
    float host[64] = {0};
    check(sgemm(4, 3, 2, host, 4, 3, 4) == CUBLAS_STATUS_EXECUTION_FAILED, "host matrix");
#endif
    check(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.data, CUDA_R_16F, 1, x.data,
                       CUDA_R_32F, 1, &zero, x.data, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED,
          "mixed input types");
    check(cublasSetWorkspace(blas, (char *)x.data + 4, 16) == CUBLAS_STATUS_INVALID_VALUE,
          "misaligned workspace");
    check(cublasSetWorkspace(blas, x.data, 256) == CUBLAS_STATUS_SUCCESS, "workspace");
#ifdef EIN_JUDGE
    device_array y(values(64));
    check(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, y.f(), 1, y.f() + 1, 1, &zero,
                      y.f() + 2, 1) == CUBLAS_STATUS_SUCCESS &&
              x.get()[0] != x.get()[0],
          "the workspace is overwritten");
#endif
    cublasSetStream(blas, stream);
}

static void gemv_all() {
    for (int i = 0; i < 8; i++) {
        bool t = i & 1;
        int m = 5, n = 3, inc = i & 2 ? 2 : 1, lda = m + (i & 4 ? 2 : 0), nx = t ? m : n,
            ny = t ? n : m;
        float alpha = 2, beta = i & 4 ? 1.0f : 0.0f;
        std::vector<float> a = values((size_t)(lda * n)), x = values((size_t)(nx * inc)),
                           y = beta != 0 ? values((size_t)(ny * inc)) : poison((size_t)(ny * inc));
        std::vector<float> want = y;
        for (int r = 0; r < ny; r++) {
            float sum = 0;
            for (int c = 0; c < nx; c++) {
                sum += (t ? a[(size_t)(c + r * lda)] : a[(size_t)(r + c * lda)]) *
                       x[(size_t)(c * inc)];
            }
            float &to = want[(size_t)(r * inc)];
            to = alpha * sum + (beta != 0 ? beta * to : 0);
        }
        device_array da(a), dx(x), dy(y);
        cublasStatus_t status =
            cublasSgemv(blas, op(t), m, n, &alpha, da.f(), lda, dx.f(), inc, &beta, dy.f(), inc);
        check(status == CUBLAS_STATUS_SUCCESS && same(dy.get(), want),
              "sgemv " + std::to_string(i));
    }
}

// ---- cublasLt

static float epilogue_value(int epilogue, float v, float bias) {
    v += epilogue & CUBLASLT_EPILOGUE_BIAS ? bias : 0;
    if (epilogue & CUBLASLT_EPILOGUE_RELU) {
        return v > 0 ? v : 0;
    }
    return epilogue & CUBLASLT_EPILOGUE_GELU
               ? 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)))
               : v;
}

// D[m,n] = op(A) * B with an epilogue; `rows` gives all matrices in row-major order.
struct light_case {
    bool ta, rows;
    int epilogue, batch, m, n, k;
    int a_rows() const { return ta ? k : m; }
    int a_columns() const { return ta ? m : k; }
};

struct light_descriptors {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layouts[3];
    cublasLtMatmulPreference_t preference;
    int bad = 0;

    light_descriptors(const light_case &c, const void *bias, size_t limit) {
        cublasOperation_t operation = op(c.ta);
        int32_t order = c.rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)c.epilogue;
        bad |= cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        bad |= cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &operation,
                                              sizeof operation);
        bad |= cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue);
        bad |= cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof bias);
        const int shapes[3][2] = {{c.a_rows(), c.a_columns()}, {c.k, c.n}, {c.m, c.n}};
        for (int i = 0; i < 3; i++) {
            int rows = shapes[i][0], columns = shapes[i][1];
            int64_t stride = (int64_t)rows * columns;
            bad |= cublasLtMatrixLayoutCreate(&layouts[i], CUDA_R_32F, (uint64_t)rows,
                                              (uint64_t)columns, c.rows ? columns : rows);
            bad |= cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_ORDER,
                                                    &order, sizeof order);
            bad |= cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &c.batch, sizeof c.batch);
            bad |= cublasLtMatrixLayoutSetAttribute(
                layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
        }
        bad |= cublasLtMatmulPreferenceCreate(&preference);
        bad |= cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    }
    ~light_descriptors() {
        cublasLtMatmulPreferenceDestroy(preference);
        for (cublasLtMatrixLayout_t layout : layouts) {
            cublasLtMatrixLayoutDestroy(layout);
        }
        cublasLtMatmulDescDestroy(desc);
    }
};

static bool light_result_ok(const light_case &c, const std::vector<float> &a,
                            const std::vector<float> &b, const std::vector<float> &bias,
                            const std::vector<float> &got) {
    auto at = [&](int s, int i, int j, int rows, int columns) {
        return (size_t)(s * rows * columns + (c.rows ? i * columns + j : i + j * rows));
    };
    for (int s = 0; s < c.batch; s++) {
        for (int i = 0; i < c.m; i++) {
            for (int j = 0; j < c.n; j++) {
                float sum = 0;
                for (int l = 0; l < c.k; l++) {
                    sum += a[c.ta ? at(s, l, i, c.k, c.m) : at(s, i, l, c.m, c.k)] *
                           b[at(s, l, j, c.k, c.n)];
                }
                float want = epilogue_value(c.epilogue, sum, bias[(size_t)i]);
                if (!(fabsf(got[at(s, i, j, c.m, c.n)] - want) <= 1e-5f * (1 + fabsf(want)))) {
                    return false;
                }
            }
        }
    }
    return true;
}

static void light_check(const light_case &c) {
    const size_t limit = 16384;
    float alpha = 1, beta = 0;
    std::vector<float> a = values((size_t)(c.m * c.k * c.batch)),
                       b = values((size_t)(c.k * c.n * c.batch)), bias = values((size_t)c.m);
    device_array da(a), db(b), dbias(bias), dd(poison((size_t)(c.m * c.n * c.batch))),
        work(limit / 4);
    light_descriptors d(c, dbias.data, limit);
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    int bad = d.bad | cublasLtMatmulAlgoGetHeuristic(light, d.desc, d.layouts[0], d.layouts[1],
                                                     d.layouts[2], d.layouts[2], d.preference, 1,
                                                     &found, &count);
    bad |= cublasLtMatmul(light, d.desc, &alpha, da.data, d.layouts[0], db.data, d.layouts[1],
                          &beta, dd.data, d.layouts[2], dd.data, d.layouts[2], &found.algo,
                          work.data, limit, stream);
    check(bad == 0 && count == 1 && found.workspaceSize <= limit &&
              light_result_ok(c, a, b, bias, dd.get()),
          "cublasLt ta" + std::to_string(c.ta) + " rows" + std::to_string(c.rows) + " epilogue" +
              std::to_string(c.epilogue));
}

// Every algorithm that the library offers, set up again from its parts, with a matrix added to the
// result; and what must be refused.
static void light_algorithms() {
    const light_case c = {false, false, CUBLASLT_EPILOGUE_RELU_BIAS, 2, 8, 12, 16};
    const size_t limit = 16384, size = (size_t)(c.m * c.n * c.batch);
    float alpha = 1, beta = 1;
    std::vector<float> a = values((size_t)(c.m * c.k * c.batch)),
                       b = values((size_t)(c.k * c.n * c.batch)), bias = values((size_t)c.m),
                       z = values(size), first;
    device_array da(a), db(b), dbias(bias), dz(z), dd(poison(size)), work(limit / 4);
    light_descriptors d(c, dbias.data, limit);
    unsigned sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    unsigned align = 16;
    d.bad |= cublasLtMatmulPreferenceSetAttribute(
        d.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
    d.bad |= cublasLtMatmulPreferenceSetAttribute(
        d.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align);
    cublasLtMatmulHeuristicResult_t found[8] = {};
    int count = 0;
    d.bad |= cublasLtMatmulAlgoGetHeuristic(light, d.desc, d.layouts[0], d.layouts[1], d.layouts[2],
                                            d.layouts[2], d.preference, 8, found, &count);
    check(!d.bad && count > 1, "cublasLt offers several algorithms");
    auto run = [&](const cublasLtMatmulAlgo_t *algo, void *to, size_t bytes) {
        return cublasLtMatmul(light, d.desc, &alpha, da.data, d.layouts[0], db.data, d.layouts[1],
                              &beta, dz.data, d.layouts[2], to, d.layouts[2], algo, work.data,
                              bytes, stream);
    };
    for (int i = 0; i < count; i++) {
        cublasLtMatmulAlgo_t algo;
        cublasLtMatmulHeuristicResult_t again = {};
        int id = -1, bad = 0;
        size_t written = 0;
        bad |= cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                    sizeof id, &written);
        bad |= cublasLtMatmulAlgoInit(light, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                      CUDA_R_32F, CUDA_R_32F, id, &algo);
        for (int k = 1; k < 9; k++) {
            unsigned value = 0;
            cublasLtMatmulAlgoConfigAttributes_t what = (cublasLtMatmulAlgoConfigAttributes_t)k;
            size_t bytes = k < CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 4 : 2;
            bad |=
                cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, what, &value, bytes, &written);
            bad |= !cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, what, &value, bytes ^ 6,
                                                         &written);
            bad |= cublasLtMatmulAlgoConfigSetAttribute(&algo, what, &value, written);
        }
        bad |= cublasLtMatmulAlgoCheck(light, d.desc, d.layouts[0], d.layouts[1], d.layouts[2],
                                       d.layouts[2], &algo, &again);
        bad |= again.workspaceSize != found[i].workspaceSize;
        bad |= run(&algo, dd.data, again.workspaceSize);
        std::vector<float> got = dd.get();
        if (!i) first = got;
        check(!bad && same(got, first), "cublasLt algorithm " + std::to_string(i));
#ifdef EIN_JUDGE
        if (again.workspaceSize)
            check(run(&algo, dd.data, again.workspaceSize - 1) == CUBLAS_STATUS_INVALID_VALUE,
                  "cublasLt with too small a workspace");
#endif
    }
#ifdef EIN_JUDGE
    unsigned tile = 999;
    cublasLtMatmulHeuristicResult_t again = {};
    device_array wide(size + 4);
    check(run(&found[0].algo, wide.f() + 1, limit) == CUBLAS_STATUS_EXECUTION_FAILED,
          "cublasLt with an address that is not aligned as promised");
    const void *between = dbias.f() + 1;
    cublasLtMatmulDescSetAttribute(d.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &between,
                                   sizeof between);
    check(run(&found[0].algo, dd.data, limit) == CUBLAS_STATUS_EXECUTION_FAILED,
          "cublasLt with a bias that is not aligned as it was");
    const light_descriptors untold(c, nullptr, limit);
    check(cublasLtMatmulAlgoGetHeuristic(light, untold.desc, d.layouts[0], d.layouts[1],
                                         d.layouts[2], d.layouts[2], d.preference, 1, &again,
                                         &count) == CUBLAS_STATUS_INVALID_VALUE,
          "cublasLt that is not told how the bias is aligned");
    check(cublasLtMatmulAlgoCheck(light, untold.desc, d.layouts[0], d.layouts[1], d.layouts[2],
                                  d.layouts[2], &found[0].algo,
                                  &again) == CUBLAS_STATUS_INVALID_VALUE,
          "cublasLt that is not told it by what checks an algorithm");
    cublasLtMatmulAlgoConfigSetAttribute(&found[0].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                         sizeof tile);
    check(cublasLtMatmulAlgoCheck(light, d.desc, d.layouts[0], d.layouts[1], d.layouts[2],
                                  d.layouts[2], &found[0].algo,
                                  &again) == CUBLAS_STATUS_NOT_SUPPORTED,
          "cublasLt with a tile that it does not have");
#endif
}

static void light_all() {
    const int epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_RELU,
                             CUBLASLT_EPILOGUE_BIAS,      CUBLASLT_EPILOGUE_GELU,
                             CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS};
    for (int epilogue : epilogues) {
        for (int i = 0; i < 8; i++) {
            light_check({(i & 1) != 0, (i & 2) != 0, epilogue, i & 4 ? 3 : 1, 6, 5, 7});
        }
    }
}

int main() {
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cublasCreate(&blas) ||
        cublasSetStream(blas, stream) || cublasLtCreate(&light)) {
        printf("no device\n");
        return 1;
    }
    gemm_all();
    gemm_tf32();
    gemm_refusals();
    gemv_all();
    light_all();
    light_algorithms();
    cublasLtDestroy(light);
    cublasDestroy(blas);
    cudaStreamDestroy(stream);
    return summary();
}
