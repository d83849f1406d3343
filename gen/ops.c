// The operators: one row each, and the functions through which the rest of the generator sees them.

#define EIN__WINDOW "strides=1 pads=0 dilations=1 auto_pad=NOTSET|SAME_UPPER|SAME_LOWER|VALID "
#define EIN__REDUCE "axes? keepdims=1 noop_with_empty_axes=0"

// ORDER of words: auto_pad in ops_conv.c, Resize in ops_shape.c, approximate in ein__op_gelu
static const ein__op_row ein__op_table[] = {
    // name, operands, attributes, any type, body, function
    {"Conv", "x w b?", EIN__WINDOW "group=1 kernel_shape?", false, NULL, ein__op_conv},
    {"ConvTranspose", "x w b?", EIN__WINDOW "group=1 kernel_shape? output_padding=0 output_shape?",
     false, NULL, ein__op_conv_transpose},
    {"MatMul", "a b", "", false, NULL, ein__op_matmul},
    {"Gemm", "a b c?", "alpha=1 beta=1 transA=0 transB=0", false, NULL, ein__op_gemm},
    {"G2BMM", "q k", "w dilation=1", false, NULL, ein__op_g2bmm},
    {"GBMM", "a v", "dilation=1", false, NULL, ein__op_gbmm},

    {"Add", "a b", "", false, "a + b", NULL},
    {"Sub", "a b", "", false, "a - b", NULL},
    {"Mul", "a b", "", false, "a * b", NULL},
    {"Div", "a b", "", false, "a / b", NULL},
    {"Pow", "a b", "", false, "pow(a, b)", NULL},
    {"Max", "x...", "", false, "max", ein__op_nary},
    {"Min", "x...", "", false, "min", ein__op_nary},
    {"Sum", "x...", "", false, "+", ein__op_nary},
    {"Neg", "x", "", false, "-x", NULL},
    {"Abs", "x", "", false, "abs(x)", NULL},
    {"Exp", "x", "", false, "exp(x)", NULL},
    {"Log", "x", "", false, "log(x)", NULL},
    {"Sqrt", "x", "", false, "sqrt(x)", NULL},
    {"Reciprocal", "x", "", false, "1 / x", NULL},
    {"Erf", "x", "", false, "erf(x)", NULL},
    {"Floor", "x", "", false, "floor(x)", NULL},
    {"Ceil", "x", "", false, "ceil(x)", NULL},
    {"Tanh", "x", "", false, "tanh(x)", NULL},
    {"Sigmoid", "x", "", false, "sigmoid(x)", NULL},
    {"Relu", "x", "", false, "relu(x)", NULL},
    {"LeakyRelu", "x", "alpha=0.01", false, "select(x < 0, alpha * x, x)", NULL},
    {"PRelu", "x slope", "", false, "select(x < 0, slope * x, x)", ein__op_prelu},
    {"Elu", "x", "alpha=1", false, "select(x < 0, alpha * (exp(x) - 1), x)", NULL},
    {"Softplus", "x", "", false, "relu(x) + log(1 + exp(-abs(x)))", NULL},
    {"HardSigmoid", "x", "alpha=0.2 beta=0.5", false, "max(0, min(1, alpha * x + beta))", NULL},
    {"HardSwish", "x", "", false, "x * max(0, min(1, x / 6 + 0.5))", NULL},
    {"Gelu", "x", "approximate=none|tanh", false, NULL, ein__op_gelu},
    {"Clip", "x", "min? max?", false, NULL, ein__op_clip},
    {"Identity", "x", "", true, "x", ein__op_identity},

    {"MaxPool", "x", EIN__WINDOW "kernel_shape ceil_mode=0 storage_order=0!", false, NULL,
     ein__op_max_pool},
    {"AveragePool", "x", EIN__WINDOW "kernel_shape ceil_mode=0 count_include_pad=0", false, NULL,
     ein__op_average_pool},
    {"GlobalMaxPool", "x", "", false, "max({r#,}) x[{X#,}]", ein__op_global_pool},
    {"GlobalAveragePool", "x", "", false, "(sum({r#,}) x[{X#,}]) / N", ein__op_global_pool},
    {"ReduceMean", "x", EIN__REDUCE, false, "(sum({r#,}) x[{X#,}]) / N", ein__op_reduce},
    {"ReduceSum", "x", EIN__REDUCE, true, "sum({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceMax", "x", EIN__REDUCE, true, "max({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceMin", "x", EIN__REDUCE, true, "min({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceProd", "x", EIN__REDUCE, true, "prod({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceSumSquare", "x", EIN__REDUCE, false, "sum({r#,}) square(x[{X#,}])", ein__op_reduce},
    {"ReduceL2", "x", EIN__REDUCE, false, "sqrt(sum({r#,}) square(x[{X#,}]))", ein__op_reduce},
    {"ArgMax", "x", "axis=0 keepdims=1 select_last_index=0", true, "max", ein__op_place},
    {"ArgMin", "x", "axis=0 keepdims=1 select_last_index=0", true, "min", ein__op_place},
    {"BatchNormalization", "x scale b mean var", "epsilon=1e-05 momentum=0.9 training_mode=0!",
     false, NULL, ein__op_batch_normalization},
    {"LayerNormalization", "x scale b?", "axis=-1 epsilon=1e-05 stash_type=1!", false, NULL,
     ein__op_layer_normalization},
    {"Softmax", "x", "axis=-1", false, "y[{i#,}] = exp(x[{i#,}] - m[{K#,}]) / s[{K#,}]",
     ein__op_softmax},
    {"LogSoftmax", "x", "axis=-1", false, "y[{i#,}] = x[{i#,}] - m[{K#,}] - log(s[{K#,}])",
     ein__op_softmax},

    {"Concat", "x...", "axis", true, NULL, ein__op_concat},
    {"Split", "x", "axis=0 split? num_outputs?", true, NULL, ein__op_split},
    {"Slice", "x", "starts ends axes? steps?", true, NULL, ein__op_slice},
    {"Pad", "x", "pads value=0 axes? mode=constant|!reflect|!edge|!wrap", true, NULL, ein__op_pad},
    {"Transpose", "x", "perm?", true, NULL, ein__op_transpose},
    {"Reshape", "x", "shape allowzero=0!", true, NULL, ein__op_reshape},
    {"Flatten", "x", "axis=1", true, NULL, ein__op_flatten},
    {"Squeeze", "x", "axes?", true, NULL, ein__op_squeeze},
    {"Unsqueeze", "x", "axes", true, NULL, ein__op_unsqueeze},
    {"Expand", "x", "shape", true, NULL, ein__op_expand_to},
    {"DepthToSpace", "x", "blocksize mode=DCR|CRD", true,
     "(h%B*B+w%B)*C+c,h/B,w/B;c*BB+h%B*B+w%B,h/B,w/B", ein__op_blocks},
    {"SpaceToDepth", "x", "blocksize mode=DCR|CRD", true,
     "c%C,h*B+c/C/B,w*B+c/C%B;c/BB,h*B+c/B%B,w*B+c%B", ein__op_blocks},
    {"Resize", "x",
     "scales? sizes? axes? mode=nearest|linear|!cubic "
     "nearest_mode=round_prefer_floor|round_prefer_ceil|floor|ceil "
     "coordinate_transformation_mode=half_pixel|pytorch_half_pixel|asymmetric|align_corners|"
     "!half_pixel_symmetric|!tf_crop_and_resize antialias=0! exclude_outside=0!",
     false, NULL, ein__op_resize},
};

enum { EIN__NOPS = sizeof ein__op_table / sizeof ein__op_table[0] };

// Name of an operator by number; NULL past the end.
EIN__FN const char *ein__op_name(int index) {
    return index >= 0 && index < EIN__NOPS ? ein__op_table[index].name : NULL;
}

static const ein__op_row *ein__op_row_of(const char *name) {
    for (int i = 0; i < EIN__NOPS; i++)
        if (!strcmp(ein__op_table[i].name, name)) return &ein__op_table[i];
    return NULL;
}

// Number and types of operands and results.
static bool ein__op_check_operands(ein__op *o) {
    const char *s = o->row->in, *token;
    size_t n;
    int most = 0, least = 0, nin = o->node->nin;
    while (ein__op_token(&s, &token, &n)) {
        bool many = n > 3 && token[n - 1] == '.', optional = token[n - 1] == '?';
        most += many ? EIN__MAX_ARGS : 1;
        least += !optional;
    }
    if (nin < least || nin > most)
        return ein__op_fail(o, NULL, "%d operands, expected %s", nin, o->row->in);
    if (o->node->nout < 1 || o->node->nout > EIN__MAX_ARGS ||
        (o->node->nout > 1 && o->row->make != ein__op_split))
        return ein__op_fail(o, NULL, "%d results, expected one", o->node->nout);
    const ein__tensor *first = ein__op_tensor(o, 0);
    for (int k = 0; k < nin; k++) {
        const ein__tensor *t = ein__op_tensor(o, k);
        if (!t && (k < least || most >= EIN__MAX_ARGS))
            return ein__op_fail(o, NULL, "operand %s is missing", ein__op_in_name(o, k));
        if (!t) continue;
        if (ein__elements(&t->shape) > EIN__MAX_ELEMENTS)
            return ein__op_fail(o, NULL, "%s has more than 2^40 elements", ein__op_in_name(o, k));
        if (!o->row->any && t->dtype != EIN__F32 && t->dtype != EIN__F16 && t->dtype != EIN__BF16)
            return ein__op_fail(o, NULL, "%s has type %s, expected f32, f16 or bf16",
                                ein__op_in_name(o, k), ein__dtype_name(t->dtype));
        if (t->dtype != first->dtype)
            return ein__op_fail(o, NULL, "%s has type %s, %s has %s", ein__op_in_name(o, 0),
                                ein__dtype_name(first->dtype), ein__op_in_name(o, k),
                                ein__dtype_name(t->dtype));
    }
    return true;
}

// Checks a use of an operator, fills shape and type per result; with `text`, puts the equations.
static bool ein__op_make(ein_ctx *ctx, const ein__node *node, ein__buf *text, ein__shape *shape,
                         ein__dtype *dtype) {
    ein__op o = {.ctx = ctx, .node = node, .text = text, .shape = shape, .dtype = dtype};
    o.row = ein__op_row_of(node->op);
    if (!o.row) {
        const char *best = NULL;
        int distance = 3;
        for (int i = 0; i < EIN__NOPS; i++)
            ein__suggest(node->op, ein__op_table[i].name, &best, &distance);
        ein__error(ctx, EIN_UNSUPPORTED, node->pos, "unknown operator '%s'%s", node->op,
                   best ? ein__hint(ctx, best) : "; an equation may say what it computes");
        return false;
    }
    if (!ein__op_check_operands(&o) || !ein__op_check_attrs(&o)) return false;
    return o.row->make ? o.row->make(&o) : ein__op_elementwise(&o);
}

// Fills one shape and type per result of an operator.
EIN__FN bool ein__op_infer(ein_ctx *ctx, ein__node *node, ein__shape *shape, ein__dtype *dtype) {
    return ein__op_make(ctx, node, NULL, shape, dtype);
}

// Puts an operator's meaning as equations of the language, one a line, in formal names: operands as
// in its row, results y or y0 y1 .., everything else a value of its own.
EIN__FN bool ein__op_equations(ein_ctx *ctx, const ein__node *node, ein__buf *text) {
    ein__shape shape[EIN__MAX_ARGS];
    ein__dtype dtype[EIN__MAX_ARGS];
    return ein__op_make(ctx, node, text, shape, dtype);
}

// Formal name of operand or result k.
EIN__FN const char *ein__op_formal(ein_ctx *ctx, const ein__node *node, bool output, int k) {
    if (output) return node->nout == 1 ? ein__name(ctx, "y") : ein__namef(ctx, "y%d", k);
    ein__op o = {.ctx = ctx, .node = node, .row = ein__op_row_of(node->op)};
    return o.row ? ein__op_in_name(&o, k) : ein__name(ctx, "");
}
