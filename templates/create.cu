//@key model     prefix of the program's symbols
//@key MODEL     the same in upper case
//@key conv      the program calls cuDNN
//@key convs     how many convolutions
//@key gemm      the program calls cuBLAS
//@key typed     products have types of their own: not all are FP32
//@key matmuls   how many calls of cublasLt
//@key zeros     bytes at the end of the constants that are 0 at first, 0: none
//@key consts    bytes of the constants, 0: none
//@key init      bytes that only create needs, 0: none
//@key uploads   array `to` of pointers that the weights are uploaded to, or nothing
//@key manifest  hash of their names, types and shapes
//@key branches  of a recorded graph; empty: one
//@key tf32      products are TF32
//@key kernel    a kernel of the program, to ask what it was compiled for; empty: none
//@key alike     the program has calls that libraries are asked about in create
//@key libraries the program calls libraries
//@key prepare   some constants are made of weights
//@key grouped   some products of different sizes are one call
//@key early     some kernels may be launched before the one before is over
//@key large     array `large` of kernels that have to ask for their shared memory; empty: none
static int check_weights($model *m, const void *weights, size_t bytes) {
    const unsigned char *p = (const unsigned char *)weights;
    unsigned long long manifest = 0;
    if (!weights) return fail(m, BAD_WEIGHTS, "weights", "NULL was given");
    if (bytes != $MODEL_WEIGHT_BYTES)
        return fail(m, BAD_WEIGHTS, "weights", "the blob has another size than this model's");
    if (memcmp(p, "EINWGHT1", 8))
        return fail(m, BAD_WEIGHTS, "weights", "this is not a weight blob (einnet pack makes one)");
    for (int i = 7; i >= 0; i--) manifest = manifest << 8 | p[16 + i];
    if (p[8] != 1) return fail(m, BAD_WEIGHTS, "weights", "the blob has another format version");
    if (manifest != $manifest)
        return fail(m, BAD_WEIGHTS, "weights", "the blob belongs to another model (manifest hash)");
    return 0;
}

//@if large
// Kernels that take more shared memory than a block has unless it is asked for.
static int ask_shared($model *m, int device, int compiled_for) {
    struct kernel_size {
        const void *kernel;
        const char *name;
        int bytes, whole;  // whole: also where copies are not asynchronous
    };
    $large;
    // Where copies are not asynchronous, kernels need no more than what every block has.
    m->most_shared = 48 << 10;
    for (size_t i = 0; compiled_for < 80 && i < sizeof large / sizeof *large; i++)
        if (large[i].whole)
            return fail(m, BAD_DEVICE, large[i].name,
                        "the kernel needs more shared memory than a block has where it was "
                        "compiled for: that takes sm_80 or later");
    if (compiled_for < 80) return 0;
    CUDA_CALL(
        m, "cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&m->most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        if (large[i].bytes > m->most_shared)
            return fail(m, BAD_DEVICE, large[i].name,
                        "the kernel needs more shared memory than the device has (--gpu says what "
                        "a program is for)");
        const void *const kernel = large[i].kernel;
        CUDA_CALL(m, large[i].name,
                  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       large[i].bytes));
        // As many blocks as fit are to share an SM: the driver's own split may have room for one.
        CUDA_CALL(m, large[i].name,
                  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                       cudaSharedmemCarveoutMaxShared));
    }
    return 0;
}

//@end
static int check_device($model *m) {
    int count = 0, device = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count < 1)
        return fail(m, BAD_DEVICE, "no CUDA device",
                    e != cudaSuccess ? cudaGetErrorString(e) : "none is visible");
    CUDA_CALL(m, "cudaGetDevice", cudaGetDevice(&device));
    //@if tf32
    int capability = 0;
    CUDA_CALL(m, "cudaDeviceGetAttribute",
              cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device));
    if (capability < 8)
        return fail(m, BAD_DEVICE, "this program uses TF32",
                    "which the device does not have: it needs compute capability 8.0 or later");
    //@end
    //@if kernel
    cudaFuncAttributes a;
    e = cudaFuncGetAttributes(&a, (const void *)$kernel);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(m, BAD_DEVICE, "the kernels were compiled for another GPU (nvcc -arch=...)",
                    cudaGetErrorString(e));
    }
    //@end
    //@if large
    CALL(ask_shared(m, device, a.ptxVersion));
    //@end
    //@if early
#if CUDART_VERSION >= 11080
    // Only kernels compiled for sm_90 or later wait for the one before; graphs keep such launches
    // since CUDA 12.3.
    int driver = 0;
    CUDA_CALL(m, "cudaDriverGetVersion", cudaDriverGetVersion(&driver));
    m->can_early[0] = a.ptxVersion >= 90;
    m->can_early[1] = m->can_early[0] && CUDART_VERSION >= 12030 && driver >= 12030;
#endif
    //@end
    //@if conv
    size_t version = cudnnGetVersion(), major = version >= 90000 ? version / 10000 : version / 1000;
    if (major != CUDNN_MAJOR)
        return fail(m, BAD_DEVICE, "cuDNN",
                    "the library's major version is not the one compiled against");
    //@end
    return 0;
}

static int upload($model *m, const unsigned char *blob, cudaStream_t stream) {
    //@if consts
    CUDA_CALL(m, "constants", cudaMalloc((void **)&m->constants, $consts));
    //@end
    //@if init
    CUDA_CALL(m, "weights", cudaMalloc((void **)&m->init, $init));
    //@end
    //@if zeros
    CUDA_CALL(m, "zeros", cudaMemsetAsync(m->constants + $consts - $zeros, 0, $zeros, stream));
    //@end
    //@if uploads
    $uploads;
    const $model_tensor *w = $model_describe()->weight;
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        if (to[i])
            CUDA_CALL(m, w[i].name,
                      cudaMemcpyAsync(to[i], blob + w[i].offset, w[i].bytes, cudaMemcpyHostToDevice,
                                      stream));
    //@else
    (void)m;
    (void)blob;
    (void)stream;
    //@end
    return 0;
}

//@if alike
// The first row that differs from row `i` in nothing but its name: their calls share what the
// library says.
template <class Row>
static int first_like(const Row *row, int i) {
    const size_t from = sizeof row->name;
    int k = 0;
    while (k < i && memcmp((const char *)(row + k) + from, (const char *)(row + i) + from,
                           sizeof *row - from))
        k++;
    return k;
}

//@end
//@if libraries
static int open_libraries($model *m) {
    //@if conv
    CUDNN_CALL(m, "cudnnCreate", cudnnCreate(&m->cudnn));
    for (int i = 0; i < $convs; i++) {
        int k = first_like(conv_sizes, i);
        m->conv[i] = m->conv[k];
        m->conv[i].shared = k < i;
        if (k == i) CALL(conv_open(m, &m->conv[i], &conv_sizes[i]));
    }
    //@end
    //@if gemm
    CUBLAS_CALL(m, "cublasCreate", cublasCreate(&m->cublas));
    //@if typed
#if CUDART_VERSION >= 11000
    // Parts of a product of halves are added up in f32.
    CUBLAS_CALL(m, "cublasSetMathMode",
                cublasSetMathMode(
                    m->cublas, (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
#endif
    //@end
    //@end
    //@if matmuls
    CUBLAS_CALL(m, "cublasLtCreate", cublasLtCreate(&m->lt));
    for (int i = 0; i < $matmuls; i++) {
        int k = first_like(matmul_sizes, i);
        m->matmul[i] = m->matmul[k];
        m->matmul[i].shared = k < i;
        if (k == i) CALL(matmul_open(m, &m->matmul[i], &matmul_sizes[i]));
    }
    //@end
    return 0;
}

//@end
//@if branches
static int open_branches($model *m) {
    for (size_t i = 1; i < sizeof m->side / sizeof *m->side; i++)
        CUDA_CALL(m, "branches", cudaStreamCreateWithFlags(&m->side[i], cudaStreamNonBlocking));
    for (size_t i = 0; i < sizeof m->event / sizeof *m->event; i++)
        CUDA_CALL(m, "branches", cudaEventCreateWithFlags(&m->event[i], cudaEventDisableTiming));
    return 0;
}

//@end
static int create_all($model *m, const void *weights, const $model_options *o) {
    cudaStream_t stream = NULL;
    //@if libraries
    CALL(open_libraries(m));
    //@end
    //@if branches
    CALL(open_branches(m));
    //@end
    if (o && o->arena) {
        m->arena = (char *)o->arena;
        if ((size_t)m->arena % 256)
            return fail(m, BAD_ARGUMENT, "arena", "it is not 256-byte aligned");
    } else if ($MODEL_ARENA_BYTES) {
        CUDA_CALL(m, "arena", cudaMalloc((void **)&m->arena, $MODEL_ARENA_BYTES));
        m->own_arena = 1;
    }
    CUDA_CALL(m, "stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int r = upload(m, (const unsigned char *)weights, stream);
    //@if grouped
    if (!r) r = grouped_open(m, stream);
    //@end
    //@if prepare
    if (!r) r = prepare_weights(m, stream);
    //@end
    cudaError_t e = cudaStreamSynchronize(stream);
    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, "weights", cudaGetErrorString(e));
    e = cudaStreamDestroy(stream);
    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, "stream", cudaGetErrorString(e));
    //@if init
    e = cudaFree(m->init);
    m->init = NULL;
    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, "weights", cudaGetErrorString(e));
    //@end
    return r;
}

int $model_create($model **out, const void *weights, size_t bytes, const $model_options *o) {
    if (!out) return BAD_ARGUMENT;
    $model *m = *out = ($model *)calloc(1, sizeof *m);
    if (!m) return BAD_CALL;
    int r = check_weights(m, weights, bytes);
    if (!r) r = check_device(m);
    if (!r) r = create_all(m, weights, o);
    m->ready = !r;
    if (o) {
        m->step = o->step;
        m->user = o->user;
    }
    //@if early
    // Between steps that somebody looks at, nothing may overlap.
    if (o && (o->no_early_launch || o->step)) m->can_early[0] = m->can_early[1] = 0;
    //@end
    return r;
}
