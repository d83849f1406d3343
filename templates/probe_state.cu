//@key conv     the program calls cuDNN
//@key gemm     the program calls cuBLAS
//@key convs    how many convolutions
//@key gemms    how many products
//@key groups   how many calls of several products
//@key spatial  spatial axes that descriptors have
//@key kernels  how many kernels of our own
//@key size     bytes of an element of convolution s
enum { CONVS = $convs, GEMMS = $gemms, KERNELS = $kernels };
//@if groups
enum { GROUPS = $groups, CALLS = CONVS + GEMMS + GROUPS, CASES = CALLS + KERNELS };
//@else
enum { CALLS = CONVS + GEMMS, CASES = CALLS + KERNELS };
//@end

// Operands and results on the device, each as large as any call so far needed it.
//@if groups
enum { DATA, WEIGHTS, BIAS, RESIDUAL, RESULT, WORKSPACE, TABLE, BUFFERS };
//@else
enum { DATA, WEIGHTS, BIAS, RESIDUAL, RESULT, WORKSPACE, BUFFERS };
//@end

// All that the program owns; `release` gives it back whatever was reached.
struct probe {
    char error[256];  // of the call being measured
    const char *device, *have;
    double deadline_ms;         // from the start, 0: none
    unsigned char done[CASES];  // the table has a row
    char versions[160];
    cudaStream_t stream;
    cudaEvent_t start, stop;
    int awake;  // the clocks are up
    void *buffer[BUFFERS];
    size_t bytes[BUFFERS];
    //@if kernels
    void *operand[OPERANDS];  // of kernels
    size_t operand_bytes[OPERANDS];
    //@end
    //@if conv
    cudnnHandle_t cudnn;
    conv_call conv[CONVS];
    //@end
    //@if gemm
    cublasHandle_t cublas;
    cublasLtHandle_t lt;
    cudaStream_t lt_stream;
    size_t cublas_workspace;
    matmul_call matmul[GEMMS + 1];  // an array cannot be empty
    int plain;                      // the product in hand goes to cublasSgemm
    //@end
    //@if groups
    group_arrays grouped;  // of the call in hand
    //@end
};
//@if conv

// Bytes of data, weights and result of a convolution.
static void conv_bytes(const conv_size *s, size_t *x, size_t *w, size_t *y) {
    *x = $size * (size_t)s->n * (size_t)s->c;
    *w = $size * (size_t)s->f * (size_t)(s->c / s->group);
    *y = $size * (size_t)s->n * (size_t)s->f;
    for (int i = 0; i < $spatial; i++) {
        *x *= (size_t)s->in[i];
        *w *= (size_t)s->filter[i];
        *y *= (size_t)s->out[i];
    }
}

// The workspace that a program allows it.
static size_t conv_limit(const conv_size *s) {
    size_t x, w, y, most = (size_t)256 << 20;
    conv_bytes(s, &x, &w, &y);
    size_t bytes = x + w + y + ((size_t)1 << 20);
    return bytes < most ? bytes : most;
}
//@end
