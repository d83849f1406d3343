// The operators: one row each, and the functions through which the rest of the generator sees them.

#define EIN__WINDOW "strides=1 pads=0 dilations=1 auto_pad=NOTSET|SAME_UPPER|SAME_LOWER|VALID "
#define EIN__REDUCE "axes? keepdims=1 noop_with_empty_axes=0"

// ORDER of words: auto_pad in ops_conv.c, Resize in ops_shape.c, approximate in ein__op_gelu
static const ein__op_row ein__op_table[] = {
    // name, operands, attributes, types, body, function
    {"Conv", "x w b?", EIN__WINDOW "group=1 kernel_shape?", EIN__FLOATS, NULL, ein__op_conv},
    {"ConvTranspose", "x w b?", EIN__WINDOW "group=1 kernel_shape? output_padding=0 output_shape?",
     EIN__FLOATS, NULL, ein__op_conv_transpose},
    {"MatMul", "a b", "", EIN__FLOATS, NULL, ein__op_matmul},
    {"Gemm", "a b c?", "alpha=1 beta=1 transA=0 transB=0", EIN__FLOATS, NULL, ein__op_gemm},
    {"Einsum", "x...", "equation", EIN__FLOATS, NULL, ein__op_einsum},
    {"G2BMM", "q k", "w dilation=1", EIN__FLOATS, NULL, ein__op_g2bmm},
    {"GBMM", "a v", "dilation=1", EIN__FLOATS, NULL, ein__op_gbmm},

    {"Add", "a b", "", EIN__NUMBERS, "a + b", NULL},
    {"Sub", "a b", "", EIN__NUMBERS, "a - b", NULL},
    {"Mul", "a b", "", EIN__NUMBERS, "a * b", NULL},
    {"Div", "a b", "", EIN__NUMBERS, "a / b", ein__op_div},
    {"Mod", "a b", "fmod=0", EIN__NUMBERS, NULL, ein__op_mod},
    {"Pow", "a b", "", EIN__FLOATS, "pow(a, b)", NULL},
    {"Max", "x...", "", EIN__NUMBERS, "max", ein__op_nary},
    {"Min", "x...", "", EIN__NUMBERS, "min", ein__op_nary},
    {"Sum", "x...", "", EIN__FLOATS, "+", ein__op_nary},
    {"Neg", "x", "", EIN__NUMBERS, "-x", NULL},
    {"Abs", "x", "", EIN__NUMBERS, "abs(x)", NULL},
    {"Exp", "x", "", EIN__FLOATS, "exp(x)", NULL},
    {"Log", "x", "", EIN__FLOATS, "log(x)", NULL},
    {"Sqrt", "x", "", EIN__FLOATS, "sqrt(x)", NULL},
    {"Reciprocal", "x", "", EIN__FLOATS, "1 / x", NULL},
    {"Erf", "x", "", EIN__FLOATS, "erf(x)", NULL},
    {"Floor", "x", "", EIN__FLOATS, "floor(x)", NULL},
    {"Ceil", "x", "", EIN__FLOATS, "ceil(x)", NULL},
    {"Tanh", "x", "", EIN__FLOATS, "tanh(x)", NULL},
    {"Sigmoid", "x", "", EIN__FLOATS, "sigmoid(x)", NULL},
    {"Relu", "x", "", EIN__FLOATS, "relu(x)", NULL},
    {"LeakyRelu", "x", "alpha=0.01", EIN__FLOATS, "select(x < 0, alpha * x, x)", NULL},
    {"PRelu", "x slope", "", EIN__FLOATS, "select(x < 0, slope * x, x)", ein__op_prelu},
    {"Elu", "x", "alpha=1", EIN__FLOATS, "select(x < 0, alpha * (exp(x) - 1), x)", NULL},
    {"Softplus", "x", "", EIN__FLOATS, "relu(x) + log(1 + exp(-abs(x)))", NULL},
    {"HardSigmoid", "x", "alpha=0.2 beta=0.5", EIN__FLOATS, "max(0, min(1, alpha * x + beta))",
     NULL},
    {"Selu", "x", "alpha=1.6732631921768188 gamma=1.0507010221481323", EIN__FLOATS,
     "select(x < 0, gamma * (alpha * (exp(x) - 1)), gamma * x)", NULL},
    {"Celu", "x", "alpha=1", EIN__FLOATS, "select(x < 0, alpha * (exp(x / alpha) - 1), x)", NULL},
    {"ThresholdedRelu", "x", "alpha=1", EIN__FLOATS, "select(x > alpha, x, 0)", NULL},
    {"Softsign", "x", "", EIN__FLOATS, "x / (1 + abs(x))", NULL},
    {"Mish", "x", "", EIN__FLOATS, "x * tanh(relu(x) + log(1 + exp(-abs(x))))", NULL},
    {"Sign", "x", "", EIN__NUMBERS, "select(x > 0, 1, select(x < 0, -1, x))", NULL},
    {"Round", "x", "", EIN__FLOATS,
     "select(x - floor(x) < 0.5, floor(x),"
     " select(x - floor(x) > 0.5, floor(x) + 1, 2 * floor(0.5 * floor(x) + 0.5)))",
     NULL},
    {"Sin", "x", "", EIN__FLOATS, "sin(x)", NULL},
    {"Cos", "x", "", EIN__FLOATS, "cos(x)", NULL},
    {"Tan", "x", "", EIN__FLOATS, "sin(x) / cos(x)", NULL},
    {"Asin", "x", "", EIN__FLOATS, "atan(x / sqrt((1 - x) * (1 + x)))", NULL},
    {"Acos", "x", "", EIN__FLOATS, "1.5707963267948966 - atan(x / sqrt((1 - x) * (1 + x)))", NULL},
    {"Atan", "x", "", EIN__FLOATS, "atan(x)", NULL},
    // A difference of exponentials, and a sum with a negative number, would cancel near 0.
    {"Sinh", "x", "", EIN__FLOATS, "tanh(x) * (0.5 * (exp(x) + exp(-x)))", NULL},
    {"Cosh", "x", "", EIN__FLOATS, "0.5 * (exp(x) + exp(-x))", NULL},
    {"Asinh", "x", "", EIN__FLOATS,
     "select(x < 0, -log(sqrt(x * x + 1) - x), log(sqrt(x * x + 1) + x))", NULL},
    {"Acosh", "x", "", EIN__FLOATS, "log(x + sqrt((x - 1) * (x + 1)))", NULL},
    {"Atanh", "x", "", EIN__FLOATS, "0.5 * log((1 + x) / (1 - x))", NULL},
    {"HardSwish", "x", "", EIN__FLOATS, "x * max(0, min(1, x / 6 + 0.5))", NULL},
    {"Gelu", "x", "approximate=none|tanh", EIN__FLOATS, NULL, ein__op_gelu},
    {"Clip", "x", "min? max?", EIN__FLOATS, NULL, ein__op_clip},
    {"Equal", "a b", "", EIN__ANY, "select(a == b, 1, 0)", ein__op_truth},
    {"Less", "a b", "", EIN__NUMBERS, "select(a < b, 1, 0)", ein__op_truth},
    {"LessOrEqual", "a b", "", EIN__NUMBERS, "select(a <= b, 1, 0)", ein__op_truth},
    {"Greater", "a b", "", EIN__NUMBERS, "select(a > b, 1, 0)", ein__op_truth},
    {"GreaterOrEqual", "a b", "", EIN__NUMBERS, "select(a >= b, 1, 0)", ein__op_truth},
    {"IsNaN", "x", "", EIN__FLOATS, "select(x == x, 0, 1)", ein__op_truth},
    {"Not", "x:bool", "", EIN__ANY, "select(x == 0, 1, 0)", ein__op_truth},
    {"And", "a:bool b:bool", "", EIN__ANY, "a * b", ein__op_truth},
    {"Or", "a:bool b:bool", "", EIN__ANY, "max(a, b)", ein__op_truth},
    {"Xor", "a:bool b:bool", "", EIN__ANY, "select(a == b, 0, 1)", ein__op_truth},
    {"Where", "condition:bool x y", "", EIN__ANY, "select(condition != 0, x, y)", NULL},
    {"Cast", "x", "to=f32|f16|bf16|i8|u8|i32|i64|bool", EIN__ANY, NULL, ein__op_cast},
    {"Identity", "x", "", EIN__ANY, "x", ein__op_identity},

    {"MaxPool", "x", EIN__WINDOW "kernel_shape ceil_mode=0 storage_order=0!", EIN__FLOATS, NULL,
     ein__op_max_pool},
    {"AveragePool", "x", EIN__WINDOW "kernel_shape ceil_mode=0 count_include_pad=0", EIN__FLOATS,
     NULL, ein__op_average_pool},
    {"GlobalMaxPool", "x", "", EIN__FLOATS, "max({r#,}) x[{X#,}]", ein__op_global_pool},
    {"GlobalAveragePool", "x", "", EIN__FLOATS, "(sum({r#,}) x[{X#,}]) / N", ein__op_global_pool},
    {"ReduceMean", "x", EIN__REDUCE, EIN__FLOATS, "(sum({r#,}) x[{X#,}]) / N", ein__op_reduce},
    {"ReduceSum", "x", EIN__REDUCE, EIN__ANY, "sum({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceMax", "x", EIN__REDUCE, EIN__ANY, "max({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceMin", "x", EIN__REDUCE, EIN__ANY, "min({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceProd", "x", EIN__REDUCE, EIN__ANY, "prod({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceSumSquare", "x", EIN__REDUCE, EIN__FLOATS, "sum({r#,}) square(x[{X#,}])",
     ein__op_reduce},
    {"ReduceL2", "x", EIN__REDUCE, EIN__FLOATS, "sqrt(sum({r#,}) square(x[{X#,}]))",
     ein__op_reduce},
    {"ReduceL1", "x", EIN__REDUCE, EIN__FLOATS, "sum({r#,}) abs(x[{X#,}])", ein__op_reduce},
    {"ReduceLogSum", "x", EIN__REDUCE, EIN__FLOATS, "log(sum({r#,}) x[{X#,}])", ein__op_reduce},
    {"ReduceLogSumExp", "x", EIN__REDUCE, EIN__FLOATS,
     "log(sum({r#,}) exp(x[{X#,}] - m[{i#,}])) + m[{i#,}]", ein__op_reduce},
    {"CumSum", "x", "axis exclusive=0 reverse=0", EIN__NUMBERS, NULL, ein__op_cum_sum},
    {"ArgMax", "x", "axis=0 keepdims=1 select_last_index=0", EIN__ANY, "max", ein__op_place},
    {"ArgMin", "x", "axis=0 keepdims=1 select_last_index=0", EIN__ANY, "min", ein__op_place},
    {"TopK", "x", "k axis=-1 largest=1 sorted=1", EIN__NUMBERS, NULL, ein__op_top_k},
    {"BatchNormalization", "x scale b mean var", "epsilon=1e-05 momentum=0.9 training_mode=0!",
     EIN__FLOATS, NULL, ein__op_batch_normalization},
    {"LayerNormalization", "x scale b?", "axis=-1 epsilon=1e-05 stash_type=1!", EIN__FLOATS, NULL,
     ein__op_layer_normalization},
    {"InstanceNormalization", "x scale b", "epsilon=1e-05", EIN__FLOATS, NULL,
     ein__op_instance_normalization},
    {"GroupNormalization", "x scale b", "num_groups epsilon=1e-05 stash_type=1!", EIN__FLOATS, NULL,
     ein__op_group_normalization},
    {"LpNormalization", "x", "axis=-1 p=2", EIN__FLOATS, NULL, ein__op_lp_normalization},
    {"Softmax", "x", "axis=-1", EIN__FLOATS, "y[{i#,}] = exp(x[{i#,}] - m[{K#,}]) / s[{K#,}]",
     ein__op_softmax},
    {"LogSoftmax", "x", "axis=-1", EIN__FLOATS, "y[{i#,}] = x[{i#,}] - m[{K#,}] - log(s[{K#,}])",
     ein__op_softmax},

    {"Concat", "x...", "axis", EIN__ANY, NULL, ein__op_concat},
    {"Split", "x", "axis=0 split? num_outputs?", EIN__ANY, NULL, ein__op_split},
    {"Slice", "x", "starts ends axes? steps?", EIN__ANY, NULL, ein__op_slice},
    {"Pad", "x", "pads value=0 axes? mode=constant|reflect|edge|wrap", EIN__ANY, NULL, ein__op_pad},
    {"Transpose", "x", "perm?", EIN__ANY, NULL, ein__op_transpose},
    {"Reshape", "x", "shape allowzero=0!", EIN__ANY, NULL, ein__op_reshape},
    {"Flatten", "x", "axis=1", EIN__ANY, NULL, ein__op_flatten},
    {"Squeeze", "x", "axes?", EIN__ANY, NULL, ein__op_squeeze},
    {"Unsqueeze", "x", "axes", EIN__ANY, NULL, ein__op_unsqueeze},
    {"Expand", "x", "shape", EIN__ANY, NULL, ein__op_expand_to},
    {"Tile", "x", "repeats", EIN__ANY, NULL, ein__op_tile},
    {"Trilu", "x", "k=0 upper=1", EIN__ANY, NULL, ein__op_trilu},
    {"Gather", "x indices:int", "axis=0", EIN__ANY, NULL, ein__op_gather},
    {"GatherElements", "x indices:int", "axis=0", EIN__ANY, NULL, ein__op_gather_elements},
    {"DepthToSpace", "x", "blocksize mode=DCR|CRD", EIN__ANY,
     "(h%B*B+w%B)*C+c,h/B,w/B;c*BB+h%B*B+w%B,h/B,w/B", ein__op_blocks},
    {"SpaceToDepth", "x", "blocksize mode=DCR|CRD", EIN__ANY,
     "c%C,h*B+c/C/B,w*B+c/C%B;c/BB,h*B+c/B%B,w*B+c%B", ein__op_blocks},
    {"Resize", "x",
     "scales? sizes? axes? mode=nearest|linear|!cubic "
     "nearest_mode=round_prefer_floor|round_prefer_ceil|floor|ceil "
     "coordinate_transformation_mode=half_pixel|pytorch_half_pixel|asymmetric|align_corners|"
     "!half_pixel_symmetric|!tf_crop_and_resize antialias=0! exclude_outside=0!",
     EIN__FLOATS, NULL, ein__op_resize},
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

// Operand k has its own type, or one that the row takes and the first operand of such a type has.
static bool ein__op_check_type(ein__op *o, int k) {
    static const char *const wanted[] = {"f32, f16 or bf16", "a number"};
    const char *own = ein__op_own_type(o, k);
    ein__dtype t = ein__op_tensor(o, k)->dtype;
    bool real = t == EIN__F32 || t == EIN__F16 || t == EIN__BF16;
    if (*own) {
        if ((t == EIN__BOOL) == (*own == 'b') && !real) return true;
        return ein__op_fail(o, NULL, "%s has type %s, expected %s", ein__op_in_name(o, k),
                            ein__dtype_name(t), *own == 'b' ? own : "i8, u8, i32 or i64");
    }
    if (!real && o->row->types != EIN__ANY && (t == EIN__BOOL || o->row->types == EIN__FLOATS))
        return ein__op_fail(o, NULL, "%s has type %s, expected %s", ein__op_in_name(o, k),
                            ein__dtype_name(t), wanted[o->row->types]);
    int first = 0;
    while (!ein__op_tensor(o, first) || *ein__op_own_type(o, first)) first++;
    if (t == ein__op_tensor(o, first)->dtype) return true;
    return ein__op_fail(o, NULL, "%s has type %s, %s has %s", ein__op_in_name(o, first),
                        ein__dtype_name(ein__op_tensor(o, first)->dtype), ein__op_in_name(o, k),
                        ein__dtype_name(t));
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
        (o->node->nout > 1 && o->row->make != ein__op_split && o->row->make != ein__op_top_k))
        return ein__op_fail(o, NULL, "%d results, expected one", o->node->nout);
    for (int k = 0; k < nin; k++) {
        const ein__tensor *t = ein__op_tensor(o, k);
        if (!t && (k < least || most >= EIN__MAX_ARGS))
            return ein__op_fail(o, NULL, "operand %s is missing", ein__op_in_name(o, k));
        if (!t) continue;
        if (ein__elements(&t->shape) > EIN__MAX_ELEMENTS)
            return ein__op_limit(o, NULL, "%s has more than 2^40 elements", ein__op_in_name(o, k));
        if (!ein__op_check_type(o, k)) return false;
    }
    return true;
}

// The operator that `name`, folded, stands for by its letters: the only one it is nearest to, or
// begins. NULL: none.
static const char *ein__op_nearest(const char *name) {
    const char *best = NULL, *begun = NULL;
    int least = ein__edits(name) + 1, begins = 0;
    for (int i = 0; i < EIN__NOPS; i++) {
        char known[EIN__FOLDED];
        ein__fold_name(known, ein__op_table[i].name);
        int d = ein__distance(name, known, least);
        if (d < least) best = ein__op_table[i].name;
        else if (d == least) best = NULL;
        least = d < least ? d : least;
        if (strlen(name) < 4 || strncmp(known, name, strlen(name))) continue;
        begun = ein__op_table[i].name;
        begins++;
    }
    return best ? best : begins == 1 ? begun : NULL;
}

static void ein__op_unknown(ein_ctx *ctx, const ein__node *node) {
    char name[EIN__FOLDED];
    ein__fold_op_name(name, node->op);
    const char *meant = ein__foreign_meant(EIN__FOREIGN(ein__foreign_op), name);
    if (!meant) meant = ein__op_nearest(name);
    const char *hint = "; an equation may say what it computes";
    if (meant && !strcmp(meant, EIN__IMPORTED))
        hint = "; the language lacks this operator of ONNX: einnet import writes it as others";
    else if (meant && strchr(meant, '=')) hint = ein__namef(ctx, "; write %s", meant);
    else if (meant && *meant) hint = ein__hint(ctx, meant);
    ein__error(ctx, EIN_UNSUPPORTED, node->pos, "unknown operator '%s'%s", node->op, hint);
}

// Checks a use of an operator, fills shape and type per result; with `text`, puts the equations.
static bool ein__op_make(ein_ctx *ctx, const ein__node *node, ein__buf *text, ein__shape *shape,
                         ein__dtype *dtype) {
    ein__op o = {.ctx = ctx, .node = node, .text = text, .shape = shape, .dtype = dtype};
    o.row = ein__op_row_of(node->op);
    if (!o.row) {
        ein__op_unknown(ctx, node);
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
