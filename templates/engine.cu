//@key model    prefix of the program's symbols
//@key spatial  spatial axes that descriptors have
//@key rank     $spatial + 2
//@key limit    bytes of workspace a convolution may use
//@key typed    convolutions have types of their own: not all are FP32
//@key half     whether a convolution has f16 tensors
//@key tensorop whether it may use tensor cores
//@key settings room for settings of an engine
//@key pinned   a table of costs has chosen engines
//@key nhwc     some have their channels last
//@key steps    the program reports its steps
// ---- convolutions by cuDNN's graph API
#if CUDNN_VERSION >= 8300

struct engine_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *value;
};

static int engine_new($model *m, engine_call *c, const char *name,
                      cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
    if (c->n == ENGINE_DESCRIPTORS) return fail(m, BAD_CALL, name, "too many descriptors");
    CUDNN_CALL(m, name, cudnnBackendCreateDescriptor(type, d));
    c->own[c->n++] = *d;
    return 0;
}

// Destroys all descriptors but the first `kept`.
static void engine_drop(engine_call *c, int kept) {
    while (c->n > kept) cudnnBackendDestroyDescriptor(c->own[--c->n]);
}

// A finished descriptor.
template <int N>
static int engine_make($model *m, engine_call *c, const char *name,
                       cudnnBackendDescriptorType_t type, const engine_attribute (&a)[N],
                       cudnnBackendDescriptor_t *d) {
    CALL(engine_new(m, c, name, type, d));
    for (int i = 0; i < N; i++)
        if (a[i].n)
            CUDNN_CALL(m, name,
                       cudnnBackendSetAttribute(*d, a[i].name, a[i].type, a[i].n, a[i].value));
    CUDNN_CALL(m, name, cudnnBackendFinalize(*d));
    return 0;
}

// Tensors from ENGINE_INNER on are never stored, nor rounded.
static int engine_tensor($model *m, engine_call *c, const conv_size *s, int64_t id,
                         const int64_t *dim, cudnnBackendDescriptor_t *d) {
    const bool inner = id >= ENGINE_INNER;
    //@if typed
    const cudnnDataType_t type = $half && !inner ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
    //@else
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    //@end
    int64_t stride[$rank], alignment = 16;
    //@if nhwc
    int64_t step = s->nhwc ? dim[1] : 1;
    for (int i = $rank - 1; i > 1; i--) {
        stride[i] = step;
        step *= dim[i];
    }
    stride[1] = s->nhwc ? 1 : step;
    stride[0] = s->nhwc ? step : step * dim[1];
    //@else
    stride[$rank - 1] = 1;
    for (int i = $rank - 1; i > 0; i--) stride[i - 1] = stride[i] * dim[i];
    //@end
    const engine_attribute a[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, $rank, dim},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, $rank, stride},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner},
    };
    return engine_make(m, c, s->name, CUDNN_BACKEND_TENSOR_DESCRIPTOR, a, d);
}

// y = x * w; transposed: the gradient of such a convolution with regard to its data.
static int engine_convolution($model *m, engine_call *c, const conv_size *s,
                              cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                              cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t *op) {
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const float one = 1.f, zero = 0.f;
    int64_t axes = $spatial, pad[$spatial], stride[$spatial], dilation[$spatial];
    cudnnBackendDescriptor_t conv;
    for (int i = 0; i < $spatial; i++) {
        pad[i] = s->pad[i];
        stride[i] = s->stride[i];
        dilation[i] = s->dilation[i];
    }
    const engine_attribute sizes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, axes, pad},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, axes, pad},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, axes, stride},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, axes, dilation},
    };
    CALL(engine_make(m, c, s->name, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, sizes, &conv));
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    if (s->transposed) {
        const engine_attribute a[] = {
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, part, 1, &conv},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, part, 1, &x},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, part, 1, &w},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, part, 1, &y},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, &one},
            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, &zero},
        };
        return engine_make(m, c, s->name,
                           CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, a, op);
    }
    const engine_attribute a[] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part, 1, &conv},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, part, 1, &x},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, part, 1, &w},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, part, 1, &y},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero},
    };
    return engine_make(m, c, s->name, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, a,
                       op);
}

// y = x + b, or relu(x) where b is NULL.
static int engine_pointwise($model *m, engine_call *c, const conv_size *s,
                            cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                            cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t *op) {
    const cudnnPointwiseMode_t mode = b ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD;
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    cudnnBackendDescriptor_t what;
    const engine_attribute of[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &sums},
    };
    CALL(engine_make(m, c, s->name, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, of, &what));
    const engine_attribute a[] = {
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part, 1, &what},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part, 1, &x},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part, b ? 1 : 0, &b},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part, 1, &y},
    };
    return engine_make(m, c, s->name, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, a, op);
}

// The convolution as a graph of operations. Engines that are compiled take z, then a bias, then
// relu, in this order alone.
static int engine_describe($model *m, engine_call *c, const conv_size *s) {
    int64_t dx[$rank] = {s->n, s->c}, dy[$rank] = {s->n, s->f}, db[$rank] = {1, s->f},
            dw[$rank] = {s->transposed ? s->c : s->f, (s->transposed ? s->f : s->c) / s->group};
    for (int i = 0; i < $spatial; i++) {
        dx[2 + i] = s->in[i];
        dy[2 + i] = s->out[i];
        dw[2 + i] = s->filter[i];
        db[2 + i] = 1;
    }
    cudnnBackendDescriptor_t op[4], x, w, other[3] = {NULL, NULL, NULL}, at, next;
    int others = 0, ops = 0;
    CALL(engine_tensor(m, c, s, ENGINE_X, dx, &x));
    CALL(engine_tensor(m, c, s, ENGINE_W, dw, &w));
    if (s->residual) CALL(engine_tensor(m, c, s, ENGINE_Z, dy, &other[others++]));
    if (s->fused) CALL(engine_tensor(m, c, s, ENGINE_BIAS, db, &other[others++]));
    if (s->relu) others++;
    CALL(engine_tensor(m, c, s, others ? ENGINE_INNER : ENGINE_Y, dy, &at));
    CALL(engine_convolution(m, c, s, x, w, at, &op[ops++]));
    for (int i = 0; i < others; i++, at = next) {
        int64_t id = i + 1 < others ? ENGINE_INNER + 1 + i : ENGINE_Y;
        CALL(engine_tensor(m, c, s, id, dy, &next));
        CALL(engine_pointwise(m, c, s, at, other[i], next, &op[ops++]));
    }
    const engine_attribute a[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->cudnn},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops, op},
    };
    return engine_make(m, c, s->name, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, a, &c->graph);
}

// Refuses an engine with other arithmetic than the program's, with other bits on another run, or
// one that would be compiled first.
static int engine_check($model *m, const conv_size *s, cudnnBackendDescriptor_t engine) {
    cudnnBackendNumericalNote_t note[32];
    cudnnBackendBehaviorNote_t behavior[32];
    int64_t notes = 0, behaviors = 0;
    bool good = true;
    CUDNN_CALL(m, s->name,
               cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, 32, &notes, note));
    CUDNN_CALL(m, s->name,
               cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                        CUDNN_TYPE_BEHAVIOR_NOTE, 32, &behaviors, behavior));
    for (int i = 0; i < notes && i < 32; i++)
        good = good && note[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
               note[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
               (note[i] != CUDNN_NUMERICAL_NOTE_TENSOR_CORE || $tensorop) &&
               (note[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS || $half);
    for (int i = 0; i < behaviors && i < 32; i++)
        good = good && behavior[i] != CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return good ? 0 : fail(m, BAD_CALL, s->name, "cuDNN's engine does not do what is asked");
}

// The plan of an engine with its settings.
static int engine_plan($model *m, conv_call *c, const conv_size *s,
                       cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t plan;
    int64_t bytes = 0, n = 0;
    const engine_attribute a[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->cudnn},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config},
    };
    CALL(engine_make(m, &c->graph, s->name, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, a, &plan));
    CUDNN_CALL(m, s->name,
               cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &n, &bytes));
    if (n != 1 || bytes < 0 || (size_t)bytes > $limit)
        return fail(m, BAD_CALL, s->name, "cuDNN's engine needs too much workspace");
    c->graph.plan = plan;
    c->workspace = (size_t)bytes;
    return 0;
}

// This engine with these settings.
static int engine_choose($model *m, conv_call *c, const conv_size *s, const engine_choice *choice) {
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    cudnnBackendDescriptor_t engine, config, setting[$settings];
    int64_t number = choice->engine;
    const engine_attribute of[] = {
        {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, part, 1, &c->graph.graph},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number},
    };
    CALL(engine_make(m, &c->graph, s->name, CUDNN_BACKEND_ENGINE_DESCRIPTOR, of, &engine));
    CALL(engine_check(m, s, engine));
    for (int i = 0; i < choice->settings; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->setting[i][0];
        int64_t value = choice->setting[i][1];
        const engine_attribute a[] = {
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type},
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value},
        };
        CALL(engine_make(m, &c->graph, s->name, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, a,
                         &setting[i]));
    }
    const engine_attribute a[] = {
        {CUDNN_ATTR_ENGINECFG_ENGINE, part, 1, &engine},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, part, choice->settings, setting},
    };
    CALL(engine_make(m, &c->graph, s->name, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, a, &config));
    return engine_plan(m, c, s, config);
}

// What the library offers, its first choice first; the engine of offer i is engine[i].
static int engine_offers($model *m, engine_call *c, const conv_size *s, cudnnBackendHeurMode_t mode,
                         cudnnBackendDescriptor_t *offer, int64_t *n) {
    cudnnBackendDescriptor_t list;
    const engine_attribute a[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
    };
    CALL(engine_make(m, c, s->name, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, a, &list));
    for (int i = 0; i < ENGINE_OFFERS; i++)
        CALL(engine_new(m, c, s->name, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &offer[i]));
    CUDNN_CALL(m, s->name,
               cudnnBackendGetAttribute(list, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINE_OFFERS, n, offer));
    if (*n > ENGINE_OFFERS) *n = ENGINE_OFFERS;
    return 0;
}

// The engine of an offer, if a program may take it.
static int engine_of($model *m, engine_call *c, const conv_size *s, cudnnBackendDescriptor_t offer,
                     cudnnBackendDescriptor_t *engine) {
    int64_t n = 0;
    CALL(engine_new(m, c, s->name, CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine));
    CUDNN_CALL(m, s->name,
               cudnnBackendGetAttribute(offer, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, engine));
    return engine_check(m, s, *engine);
}
//@if pinned

// The first engine of the library's choice that a program may take.
static int engine_first($model *m, conv_call *c, const conv_size *s, cudnnBackendHeurMode_t mode) {
    cudnnBackendDescriptor_t offer[ENGINE_OFFERS], engine;
    int64_t n = 0;
    CALL(engine_offers(m, &c->graph, s, mode, offer, &n));
    for (int i = 0; i < n; i++) {
        int before = c->graph.n, r = engine_of(m, &c->graph, s, offer[i], &engine);
        if (!r) r = engine_plan(m, c, s, offer[i]);
        if (!r) return 0;
        engine_drop(&c->graph, before);
    }
    return fail(m, BAD_CALL, s->name, "cuDNN has no engine for this convolution");
}

// The engine that was measured as the fastest, with the version of the library that has it; else
// the library's choice. What fails here is no error of the program: the older API has the call too.
static int engine_open($model *m, conv_call *c, const conv_size *s) {
    int r = engine_describe(m, &c->graph, s), graph = c->graph.n;
    if (!r) {
        r = cudnnGetVersion() == s->version ? engine_choose(m, c, s, &s->choice) : BAD_CALL;
        if (r) engine_drop(&c->graph, graph);
        if (r) r = engine_first(m, c, s, CUDNN_HEUR_MODE_A);
        if (r) engine_drop(&c->graph, graph);
        if (r) r = engine_first(m, c, s, CUDNN_HEUR_MODE_FALLBACK);
    }
    if (r) engine_drop(&c->graph, 0);
    m->error[0] = 0;
    (void)cudaGetLastError();
    return r;
}
//@end

// A pack of addresses cannot be changed; that of the call before mostly serves again.
static int engine_pack($model *m, engine_call *c, const conv_size *s, const void *const *at) {
    const int64_t ids[] = {ENGINE_X, ENGINE_W, ENGINE_Y, ENGINE_BIAS, ENGINE_Z};
    if (c->pack) engine_drop(c, c->n - 1);
    c->pack = NULL;
    cudnnBackendDescriptor_t pack;
    const int64_t n = 3 + (s->fused ? 1 : 0) + (s->residual ? 1 : 0);
    const engine_attribute a[] = {
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at},
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &at[5]},
    };
    int before = c->n,
        r = engine_make(m, c, s->name, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, a, &pack);
    if (r) {
        engine_drop(c, before);
        return r;
    }
    c->pack = pack;
    memcpy(c->at, at, sizeof c->at);
    return 0;
}

static int engine_run($model *m, engine_call *c, const conv_size *s, const void *x, const void *w,
                      const void *bias, const void *z, void *y, void *workspace) {
    const void *const at[] = {x, w, y, bias, z, workspace};
    if (!c->pack || memcmp(at, c->at, sizeof at)) CALL(engine_pack(m, c, s, at));
    CUDNN_CALL(m, s->name, cudnnBackendExecute(m->cudnn, c->plan, c->pack));
    //@if steps
    stepped(m, s->name);
    //@end
    return 0;
}
#else
// This version lacks what is used: the older API makes the calls.
static void engine_drop(engine_call *, int) {}
//@if pinned
static int engine_open($model *, conv_call *, const conv_size *) { return BAD_CALL; }
//@end
static int engine_run($model *, engine_call *, const conv_size *, const void *, const void *,
                      const void *, const void *, void *, void *) {
    return BAD_CALL;
}
#endif
