//@key pins   a table of costs has chosen algorithms
//@key typed  products have types of their own: not all are FP32
// A product and what follows it in one call of cublasLt, row-major, `batch` times:
// c[m,n] = epilogue(alpha * a[m,k] * b[k,n] + z[m,n]), with a bias over columns in the epilogue.
// ta, tb: the operand is stored transposed; s*: strides between matrices; align: bytes, of every
// address.
typedef struct matmul_size {
    const char *name;
    int ta, tb, batch, m, n, k, lda, ldb, ldc;
    long long sa, sb, sc;
    float alpha;
    //@if typed
    cudaDataType in, out;  // of a and b, and of c; sums are f32
    int tf32;              // f32 operands are rounded
    //@end
    int ldz;  // 0: no z
    long long sz;
    cublasLtEpilogue_t epilogue;
    int bias;
    unsigned align;
    //@if pins
    // What was measured as the fastest, with this version of the library (0: nothing): algorithm,
    // tile, stages, parts of k, reduction, swizzle, custom option, inner shape, cluster shape.
    size_t version;
    unsigned pin[9];
    //@end
} matmul_size;

typedef struct matmul_call {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, z;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulAlgo_t algorithm;
    int shared;  // with an earlier call of the same sizes, which releases it
    size_t workspace;
} matmul_call;
