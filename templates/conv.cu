//@key model    prefix of the program's symbols
//@key steps  the program reports its steps
//@key pins     a table of costs has chosen algorithms
//@key spatial  spatial axes that descriptors have
//@key rank     $spatial + 2
//@key room     bytes of workspace that the library may use for one
//@key typed    convolutions have types of their own: not all are FP32
//@key tf32     some are TF32
//@key nhwc     some have their channels last
//@key copied   and these are copied where cuDNN refuses them
//@key limit    bytes of workspace that a convolution may use
//@key elementdatatype  cuDNN's type of tensors
//@key param    parameters that give it and the order, or nothing
//@key arg      the arguments for them
//@key scalar   type of a tensor's elements
//@key engines  some are made by cuDNN's graph API
//@key pinned   a table of costs has chosen its engines
//@key transposed  some are transposed
//@key choose   conv_open; conv_choose where that does more
//@key wrapped  it does
//@if tf32
#if CUDNN_MAJOR < 8 || CUDART_VERSION < 11000
#error "TF32 needs CUDA 11 and cuDNN 8 or later"
#endif

//@end
static int conv_tensor($model *m, const char *name, cudnnTensorDescriptor_t *t, int n, int c,
                       const int *axes$param) {
    int dim[$rank] = {n, c}, stride[$rank];
    for (int i = 0; i < $spatial; i++) dim[2 + i] = axes[i];
    //@if nhwc
    int step = last ? c : 1;
    for (int i = $rank - 1; i > 1; i--) {
        stride[i] = step;
        step *= dim[i];
    }
    stride[1] = last ? 1 : step;
    stride[0] = last ? step : step * c;
    //@else
    stride[$rank - 1] = 1;
    for (int i = $rank - 1; i > 0; i--) stride[i - 1] = stride[i] * dim[i];
    //@end
    CUDNN_CALL(m, name, cudnnCreateTensorDescriptor(t));
    CUDNN_CALL(m, name, cudnnSetTensorNdDescriptor(*t, $elementdatatype, $rank, dim, stride));
    return 0;
}

// Descriptors of one convolution. FP32 means FMA arithmetic: no TF32.
static int conv_describe($model *m, conv_call *c, const conv_size *s) {
    const int one[$spatial + 1] = {1, 1, 1};
    int filter[$rank] = {s->transposed ? s->c : s->f, (s->transposed ? s->f : s->c) / s->group};
    for (int i = 0; i < $spatial; i++) filter[2 + i] = s->filter[i];
    //@if typed
    const cudnnDataType_t type = s->half ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
    const int tensor_op = s->half || s->tf32;
    //@end
    //@if copied
    int last = s->nhwc && c->copies != COPIES_ALL;
    //@else
    //@if nhwc
    const int last = s->nhwc;
    //@end
    //@end
    int r = conv_tensor(m, s->name, &c->x, s->n, s->c, s->in$arg);
    if (!r) r = conv_tensor(m, s->name, &c->y, s->n, s->f, s->out$arg);
    if (!r && s->fused) r = conv_tensor(m, s->name, &c->bias, 1, s->f, one$arg);
    if (r) return r;
    CUDNN_CALL(m, s->name, cudnnCreateFilterDescriptor(&c->w));
    //@if copied
    last = s->nhwc && !c->copies;
    //@end
    //@if nhwc
    // A filter's order is that of the tensors: with channels last [f, taps, c].
    CUDNN_CALL(
        m, s->name,
        cudnnSetFilterNdDescriptor(c->w, $elementdatatype,
                                   last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, $rank, filter));
    //@else
    CUDNN_CALL(
        m, s->name,
        cudnnSetFilterNdDescriptor(c->w, $elementdatatype, CUDNN_TENSOR_NCHW, $rank, filter));
    //@end
    CUDNN_CALL(m, s->name, cudnnCreateConvolutionDescriptor(&c->conv));
    CUDNN_CALL(m, s->name,
               cudnnSetConvolutionNdDescriptor(c->conv, $spatial, s->pad, s->stride, s->dilation,
                                               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    CUDNN_CALL(m, s->name, cudnnSetConvolutionGroupCount(c->conv, s->group));
    //@if typed
    CUDNN_CALL(
        m, s->name,
        cudnnSetConvolutionMathType(c->conv, tensor_op ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
    //@else
    CUDNN_CALL(m, s->name, cudnnSetConvolutionMathType(c->conv, CUDNN_FMA_MATH));
    //@end
    if (!s->fused) return 0;
    CUDNN_CALL(m, s->name, cudnnCreateActivationDescriptor(&c->act));
    CUDNN_CALL(m, s->name,
               cudnnSetActivationDescriptor(
                   c->act, s->relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                   CUDNN_NOT_PROPAGATE_NAN, 0));
    return 0;
}

//@if pins
// Brings the offers of the algorithm that was measured as the fastest to the front.
template <class Offer>
static void conv_pin(const conv_size *s, Offer *p, int n) {
    int front = 0;
    if (!s->version || cudnnGetVersion() != s->version) return;
    for (int i = 0; i < n; i++) {
        if ((int)p[i].algo != s->pin) continue;
        const Offer offer = p[i];
        for (int k = i; k > front; k--) p[k] = p[k - 1];
        p[front++] = offer;
    }
}

//@end
// Whether offer i of n is one in FP32: not what an algorithm would do with the default arithmetic,
// which may be TF32 and has another workspace, where it is listed with FMA too.
template <class Offer>
static bool conv_plain(const Offer *p, int n, int i) {
    if (p[i].mathType != CUDNN_DEFAULT_MATH) return p[i].mathType == CUDNN_FMA_MATH;
    for (int k = 0; k < n; k++)
        if (p[k].algo == p[i].algo && p[k].mathType == CUDNN_FMA_MATH) return false;
    return true;
}

// Whether offer i of the library's n runs in the arithmetic that the convolution asks for, fits the
// workspace, and gives the same bits on every run.
template <class Offer>
static bool conv_may_take(const Offer *p, int n, int i, const conv_size *s, size_t room) {
    //@if typed
    // None may round f32 tensors to f16.
    bool good = p[i].mathType != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    if (!s->half && !s->tf32) good = conv_plain(p, n, i);
    //@else
    (void)s;
    const bool good = conv_plain(p, n, i);
    //@end
    return good && p[i].status == CUDNN_STATUS_SUCCESS && p[i].memory <= room &&
           p[i].determinism == CUDNN_DETERMINISTIC;
}

// The first of the library's offers that it may take; `only`: the algorithm that it has to be, or
// -1.
template <class Offer>
static int conv_first($model *m, conv_call *c, const conv_size *s, Offer *p, int n, int only) {
    //@if pins
    conv_pin(s, p, n);
    //@end
    for (int i = 0; i < n; i++) {
        if (!conv_may_take(p, n, i, s, $room)) continue;
        if (only >= 0 && (int)p[i].algo != only) continue;
        c->algorithm = (int)p[i].algo;
        c->workspace = p[i].memory;
        //@if typed
        // An algorithm runs with the arithmetic that it was listed with.
        if (s->half || s->tf32)
            CUDNN_CALL(m, s->name, cudnnSetConvolutionMathType(c->conv, p[i].mathType));
        //@end
        return 0;
    }
    //@if nhwc
    if (s->nhwc)
        return fail(m, BAD_CALL, s->name, "cuDNN has no algorithm for this convolution in NHWC");
    //@end
    return fail(m, BAD_CALL, s->name, "cuDNN has no algorithm for this convolution");
}

// Algorithms are offered for a convolution alone. Where the library refuses one of a fused call, or
// does not list the one that it has to be, that which fused calls always have takes its place.
static bool conv_fall_back($model *m, conv_call *c, const conv_size *s) {
    const cudnnConvolutionFwdAlgo_t always = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    size_t bytes = 0;
    //@if copied
    //@else
    (void)s;
    //@end
    if (c->algorithm == (int)always ||
        cudnnGetConvolutionForwardWorkspaceSize(m->cudnn, c->x, c->w, c->conv, c->y, always,
                                                &bytes) != CUDNN_STATUS_SUCCESS ||
        bytes > $room)
        return false;
    c->algorithm = (int)always;
    c->workspace = bytes;
    return true;
}

static int $choose($model *m, conv_call *c, const conv_size *s) {
    // An algorithm may be listed once for each arithmetic.
    cudnnConvolutionFwdAlgoPerf_t p[16];
    // An identity activation is only supported with this algorithm.
    const int only = s->fused && !s->relu ? CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM : -1;
    int n = 0, r = conv_describe(m, c, s);
    if (r) return r;
    //@if transposed
    if (s->transposed) {
        cudnnConvolutionBwdDataAlgoPerf_t q[12];
        CUDNN_CALL(m, s->name,
                   cudnnGetConvolutionBackwardDataAlgorithm_v7(m->cudnn, c->w, c->x, c->conv, c->y,
                                                               12, &n, q));
        return conv_first(m, c, s, q, n, -1);
    }
    //@end
    CUDNN_CALL(
        m, s->name,
        cudnnGetConvolutionForwardAlgorithm_v7(m->cudnn, c->x, c->w, c->conv, c->y, 16, &n, p));
    r = conv_first(m, c, s, p, n, only);
    if (!r || only < 0) return r;
    if (!conv_fall_back(m, c, s)) {
        r = conv_first(m, c, s, p, n, -1);
        if (r) return r;
        c->apart = 1;
    }
    m->error[0] = 0;
    return 0;
}

//@if copied
static void conv_close(conv_call *c);

// The call where cuDNN has refused channels last.
static int conv_open_copied($model *m, conv_call *c, const conv_size *s) {
    const size_t limit = $limit, all = conv_copies(s, COPIES_ALL);
    for (int copies = COPIES_ALL; copies > COPIES_NONE; copies--) {
        if (conv_copies(s, copies) > limit) continue;
        conv_close(c);
        memset(c, 0, sizeof *c);
        c->copies = copies;
        if (conv_choose(m, c, s)) continue;
        m->error[0] = 0;
        (void)cudaGetLastError();
        return 0;
    }
    const size_t n = strlen(m->error);
    snprintf(m->error + n, sizeof m->error - n,
             "; refused in NHWC and, with copies of its tensors (%zu bytes of %zu) or its filter, "
             "in NCHW",
             all, limit);
    return BAD_CALL;
}

//@end
//@if wrapped
static int conv_open($model *m, conv_call *c, const conv_size *s) {
    //@if pinned
    if (s->choice.engine >= 0 && !engine_open(m, c, s)) return 0;
    //@end
    int r = conv_choose(m, c, s);
    //@if copied
    if (r && s->nhwc) r = conv_open_copied(m, c, s);
    //@end
    return r;
}

//@end
static void conv_close(conv_call *c) {
    //@if engines
    // The pack of addresses is this call's own, and the last of what it has.
    engine_drop(&c->graph, !c->shared ? 0 : c->graph.n - (c->graph.pack != NULL));
    //@end
    if (c->shared) return;
    if (c->x) cudnnDestroyTensorDescriptor(c->x);
    if (c->y) cudnnDestroyTensorDescriptor(c->y);
    if (c->bias) cudnnDestroyTensorDescriptor(c->bias);
    if (c->w) cudnnDestroyFilterDescriptor(c->w);
    if (c->conv) cudnnDestroyConvolutionDescriptor(c->conv);
    if (c->act) cudnnDestroyActivationDescriptor(c->act);
}

static cudnnStatus_t conv_fused($model *m, const conv_call *c, const void *x, const void *w,
                                const void *bias, const void *z, void *y, void *workspace) {
    const float one = 1.f, zero = 0.f;
    return cudnnConvolutionBiasActivationForward(
        m->cudnn, &one, c->x, x, c->w, w, c->conv, (cudnnConvolutionFwdAlgo_t)c->algorithm,
        workspace, c->workspace, z ? &one : &zero, c->y, z ? z : y, c->bias, bias, c->act, c->y, y);
}

//@if steps
// What a fused call does in calls of its own, for where the library makes none.
static cudnnStatus_t conv_apart($model *m, const conv_call *c, const conv_size *s, const void *x,
                                const void *w, const void *bias, const void *z, void *y,
                                void *workspace) {
    const float one = 1.f, zero = 0.f;
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
    if (z && z != y) e = cudnnAddTensor(m->cudnn, &one, c->y, z, &zero, c->y, y);
    if (!e)
        e = cudnnConvolutionForward(m->cudnn, &one, c->x, x, c->w, w, c->conv,
                                    (cudnnConvolutionFwdAlgo_t)c->algorithm, workspace,
                                    c->workspace, z ? &one : &zero, c->y, y);
    if (!e) e = cudnnAddTensor(m->cudnn, &one, c->bias, bias, &one, c->y, y);
    if (!e && s->relu) e = cudnnActivationForward(m->cudnn, c->act, &one, c->y, y, &zero, c->y, y);
    return e;
}

// From cuDNN 9 on the last digits say why a call is not supported.
static bool conv_refused(cudnnStatus_t e) {
#if CUDNN_MAJOR >= 9
    return (int)e / 1000 * 1000 == (int)CUDNN_STATUS_NOT_SUPPORTED;
#else
    return e == CUDNN_STATUS_NOT_SUPPORTED;
#endif
}

//@end
// y = x * w, or y = act(x * w + z + bias) when the call is fused; `z` may be NULL.
static int conv_run($model *m, int k, const $scalar *x, const $scalar *w, const $scalar *bias,
                    const $scalar *z, $scalar *y, void *workspace) {
    const float one = 1.f, zero = 0.f;
    const conv_size *s = &conv_sizes[k];
    conv_call *c = &m->conv[k];
    //@if engines
    if (c->graph.plan) return engine_run(m, &m->conv[k].graph, s, x, w, bias, z, y, workspace);
    //@end
    //@if copied
    $scalar *const result = y;
    if (c->copies) CALL(conv_copy_in(m, c, s, &x, &w, &z, &y, &workspace));
    //@end
    if (s->fused) {
        //@if steps
        cudnnStatus_t e = CUDNN_STATUS_NOT_SUPPORTED;
        if (!c->apart) e = conv_fused(m, c, x, w, bias, z, y, workspace);
        if (!c->apart && conv_refused(e) && conv_fall_back(m, c, s))
            e = conv_fused(m, c, x, w, bias, z, y, workspace);
        if (conv_refused(e)) {
            c->apart = 1;
            e = conv_apart(m, c, s, x, w, bias, z, y, workspace);
        }
        //@else
        cudnnStatus_t e = conv_fused(m, c, x, w, bias, z, y, workspace);
        //@end
        CUDNN_CALL(m, s->name, e);
        //@if transposed
    } else if (s->transposed) {
        CUDNN_CALL(m, s->name,
                   cudnnConvolutionBackwardData(m->cudnn, &one, c->w, w, c->x, x, c->conv,
                                                (cudnnConvolutionBwdDataAlgo_t)c->algorithm,
                                                workspace, c->workspace, &zero, c->y, y));
        //@end
    } else {
        CUDNN_CALL(m, s->name,
                   cudnnConvolutionForward(m->cudnn, &one, c->x, x, c->w, w, c->conv,
                                           (cudnnConvolutionFwdAlgo_t)c->algorithm, workspace,
                                           c->workspace, &zero, c->y, y));
    }
    //@if copied
    if (c->copies == COPIES_ALL) CALL(conv_move(m, s, 2, y, result, 1));
    //@end
    //@if steps
    stepped(m, s->name);
    //@end
    return 0;
}
