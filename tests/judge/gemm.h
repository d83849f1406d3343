// Matrix products shared by the cuBLAS, cublasLt and cuDNN bodies.
#ifndef JUDGE_GEMM_H
#define JUDGE_GEMM_H

#include "judge.h"
#include "number.h"

// C = alpha * op(A) * op(B) + beta * C, column-major. C is not read when beta is 0.
struct judge_gemm {
    bool transpose_a, transpose_b;
    int m, n, k;
    float alpha, beta;
    cudaDataType type_a, type_b, type_c;
    long long lda, ldb, ldc;
    bool tf32 = false;  // f32 operands are rounded
};

void judge_gemm_run(const judge_gemm &g, const void *a, const void *b, void *c);

inline long long judge_rows_a(const judge_gemm &g) { return g.transpose_a ? g.k : g.m; }
inline long long judge_columns_a(const judge_gemm &g) { return g.transpose_a ? g.m : g.k; }
inline long long judge_rows_b(const judge_gemm &g) { return g.transpose_b ? g.n : g.k; }
inline long long judge_columns_b(const judge_gemm &g) { return g.transpose_b ? g.k : g.n; }

// Row-major float product C[m,n] = alpha * op(A) * op(B) + beta * C.
void judge_sgemm_rows(bool transpose_a, bool transpose_b, long m, long n, long k, float alpha,
                      const float *a, long lda, const float *b, long ldb, float beta, float *c,
                      long ldc);

// Faults unless a strided batch of rows x columns matrices lies inside one live allocation.
void judge_check_matrix(const char *function, const char *name, const void *data, cudaDataType type,
                        long long rows, long long columns, long long ld, long long stride,
                        int batch);

// Faults when the results of a strided batch overlap each other.
void judge_check_distinct(const char *function, const judge_gemm &g, long long stride, int batch);

#endif
