// onnx_ops.c - one function an operator: ONNX of any opset in, a statement of opset 21 meaning
// with attributes for constant inputs out. Convolution, pooling, normalisation and resizing are in
// onnx_nn.c, what reads at positions in onnx_pick.c.
#include "onnx.h"

#include <float.h>
#include <math.h>

static void end_as(ox *o, ox_node *n, const char *op) { ox_end_node(o, n, op); }

// Every input an argument, no attributes.
static void convert_plain(ox *o, ox_node *n) {
    ox_begin(o);
    for (int i = 0; i < n->n_in; i++) {
        ox_arg(o, ox_opt(o, n, i));
    }
    end_as(o, n, n->op);
}

// Before opset 7 a node had to ask for broadcasting. Without an axis it meant what it means now.
static void check_broadcast(ox *o, ox_node *n) {
    if (n->opset < 7 && ox_int(o, n, "broadcast", 0) && ox_has(n, "axis")) {
        ox_unsupported(o, n, "operator '%s' of opset %lld with an axis to broadcast along", n->op,
                       (long long)n->opset);
    }
}

static void convert_binary(ox *o, ox_node *n) {
    check_broadcast(o, n);
    convert_plain(o, n);
}

// Before opset 7 a vector of slopes meant the channels, as in later ones it means the last axis.
static void convert_prelu(ox *o, ox_node *n) {
    ox_value *slope = ox_in(o, n, 1), *x = ox_in(o, n, 0);
    const ox_const *c = n->opset < 7 ? ox_known(o, slope) : NULL;
    if (n->opset < 7 && (!c || c->rank != 1)) {
        ox_unsupported(o, n, "PRelu of opset %lld whose slope is not a known vector",
                       (long long)n->opset);
    }
    if (c && c->count > 1) {
        ox_need_shape(o, n, x);
        int64_t dims[CLI_MAX_RANK] = {c->count, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        int rank = x->rank > 1 ? x->rank - 1 : 1;
        slope = ox_constant(o, slope->name, ".column", ox_reshaped(o, c, rank, dims));
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, slope);
    ox_end_node(o, n, "PRelu");
}

static void convert_alias(ox *o, ox_node *n) { ox_bind(o, n, 0, ox_in(o, n, 0)); }

static void convert_dropout(ox *o, ox_node *n) {
    ox_value *training = ox_opt(o, n, 2);
    const ox_const *c = training ? ox_known(o, training) : NULL;
    ox_find(o, n, "ratio");
    ox_find(o, n, "seed");
    ox_find(o, n, "is_test");
    if (training && (!c || c->count != 1 || ox_geti(c, 0))) {
        ox_unsupported(o, n, "Dropout in training mode");
    }
    convert_alias(o, n);
}

// Max, Min, Sum and Mean take any number of inputs; the language's operators take two.
static ox_value *chain(ox *o, ox_node *n, const char *op, const char *last) {
    ox_value *v = ox_in(o, n, 0);
    for (int i = 1; i < n->n_in; i++) {
        bool ends = i + 1 == n->n_in;
        ox_begin(o);
        ox_arg(o, v);
        ox_arg(o, ox_in(o, n, i));
        v = ox_end(o, op, ends ? last : ox_fresh(o, last, ".part"), v->dtype);
    }
    return v;
}

static void need_name(ox *o, ox_node *n) {
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
}

static void convert_many(ox *o, ox_node *n) {
    need_name(o, n);
    ox_bind(o, n, 0, chain(o, n, strcmp(n->op, "Sum") ? n->op : "Add", n->out[0]));
}

static void convert_mean(ox *o, ox_node *n) {
    need_name(o, n);
    if (n->n_in == 1) {
        convert_alias(o, n);
        return;
    }
    ox_value *sum = chain(o, n, "Add", ox_fresh(o, n->out[0], ".sum"));
    ox_const *count = ox_make(o, sum->dtype, 0, NULL);
    ox_seti(count, 0, n->n_in);
    ox_begin(o);
    ox_arg(o, sum);
    ox_arg(o, ox_constant(o, n->out[0], ".count", count));
    end_as(o, n, "Div");
}

// The exponent may have another type than the base.
static void convert_pow(ox *o, ox_node *n) {
    ox_value *base = ox_in(o, n, 0), *exponent = ox_in(o, n, 1);
    check_broadcast(o, n);
    need_name(o, n);
    if (base->dtype != exponent->dtype) {
        const ox_const *c = ox_known(o, exponent);
        if (!c || c->count > OX_FOLD_LIMIT) {
            ox_unsupported(o, n, "Pow of %s by %s", cli_dtype_name(base->dtype),
                           cli_dtype_name(exponent->dtype));
        }
        exponent = ox_constant(o, n->out[0], ".exponent", ox_cast(o, c, base->dtype));
    }
    ox_begin(o);
    ox_arg(o, base);
    ox_arg(o, exponent);
    end_as(o, n, "Pow");
}

// Attributes are always printed, so that no reader needs the defaults.
static void convert_alpha(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_float(o, "alpha", ox_float(o, n, "alpha", strcmp(n->op, "LeakyRelu") ? 1 : 0.01));
    end_as(o, n, n->op);
}

static void convert_selu(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_float(o, "alpha", ox_float(o, n, "alpha", n->opset < 6 ? 1.6732 : 1.6732631921768188));
    ox_set_float(o, "gamma", ox_float(o, n, "gamma", n->opset < 6 ? 1.0507 : 1.0507010221481323));
    end_as(o, n, "Selu");
}

static void convert_hard_sigmoid(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_float(o, "alpha", ox_float(o, n, "alpha", 0.2));
    ox_set_float(o, "beta", ox_float(o, n, "beta", 0.5));
    end_as(o, n, n->op);
}

static void convert_gelu(ox *o, ox_node *n) {
    const char *how = ox_string(o, n, "approximate", "none");
    if (strcmp(how, "none") && strcmp(how, "tanh")) {
        ox_die(o, n, "Gelu with an unknown approximation");
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_word(o, "approximate", how);
    end_as(o, n, n->op);
}

// ---- Clip ----

// A bound that is known, or computed (then `*v` is set), or absent or infinite (then neither).
typedef struct {
    bool known;
    double value;
    ox_value *v;
} bound;

static bound clip_bound(ox *o, ox_node *n, const char *name, int input, double none) {
    bound b = {0};
    if (n->opset < 11) {
        b.value = ox_float(o, n, name, none);
        b.known = fabs(b.value) < (double)FLT_MAX;
        return b;
    }
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (c && c->count != 1) {
        ox_die(o, n, "input '%s' of Clip is not a scalar", name);
    }
    // Integers are cut by Max and Min: attributes are of floats.
    if (c && ox_is_float(c->dtype)) {
        b.value = ox_getf(c, 0);
        b.known = !isinf(b.value);
        if (isnan(b.value) || (isinf(b.value) && (b.value > 0) == (none < 0))) {
            ox_unsupported(o, n, "Clip with %s = %g", name, b.value);
        }
    } else {
        b.v = v;
    }
    return b;
}

static void clip(ox *o, ox_node *n, bound low, bound high) {
    ox_value *x = ox_in(o, n, 0);
    need_name(o, n);
    if (low.known || high.known) {
        ox_begin(o);
        ox_arg(o, x);
        if (low.known) {
            ox_set_float(o, "min", low.value);
        }
        if (high.known) {
            ox_set_float(o, "max", high.value);
        }
        bool ends = !low.v && !high.v;
        x = ox_end(o, "Clip", ends ? n->out[0] : ox_fresh(o, n->out[0], ".clip"), x->dtype);
    }
    if (low.v) {
        ox_begin(o);
        ox_arg(o, x);
        ox_arg(o, low.v);
        x = ox_end(o, "Max", high.v ? ox_fresh(o, n->out[0], ".max") : n->out[0], x->dtype);
    }
    if (high.v) {
        ox_begin(o);
        ox_arg(o, x);
        ox_arg(o, high.v);
        x = ox_end(o, "Min", n->out[0], x->dtype);
    }
    ox_bind(o, n, 0, x);
}

static void convert_clip(ox *o, ox_node *n) {
    bound low = clip_bound(o, n, "min", 1, -(double)FLT_MAX);
    bound high = clip_bound(o, n, "max", 2, (double)FLT_MAX);
    // A computed lower bound must act before a known upper one: the upper one wins in ONNX.
    if (low.v && high.known) {
        ox_const *c = ox_make(o, n->in[0]->dtype, 0, NULL);
        ox_setf(c, 0, high.value);
        need_name(o, n);
        high = (bound){.v = ox_constant(o, n->out[0], ".high", c)};
    }
    clip(o, n, low, high);
}

static void convert_relu6(ox *o, ox_node *n) {
    clip(o, n, (bound){.known = true, .value = 0}, (bound){.known = true, .value = 6});
}

// ---- shapes ----

static void set_shape_of(ox *o, const ox_value *v) {
    ox_list dims = {v->rank, v->dims, (const char **)(uintptr_t)v->sym};
    ox_set_list(o, "shape", dims);
}

// Before opset 13 Softmax works on the matrix that its axis splits the tensor into.
static void convert_softmax(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    int64_t axis = ox_int(o, n, "axis", n->opset < 13 ? 1 : -1);
    bool last = n->opset >= 13;
    if (!last) {
        ox_need_sym(o, n, x);
        axis = ox_axis(o, n, axis, x->rank);
        last = true;
        for (int a = (int)axis + 1; a < x->rank; a++) {
            last = last && x->dims[a] == 1 && !x->sym[a];
        }
        axis = last && axis == x->rank - 1 ? -1 : axis;
    }
    need_name(o, n);
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    if (last) {
        end_as(o, n, n->op);
        return;
    }
    ox_value *flat = ox_end(o, "Flatten", ox_fresh(o, n->out[0], ".flat"), x->dtype);
    ox_begin(o);
    ox_arg(o, flat);
    ox_set_int(o, "axis", -1);
    ox_value *soft = ox_end(o, n->op, ox_fresh(o, n->out[0], ".rows"), x->dtype);
    ox_begin(o);
    ox_arg(o, soft);
    set_shape_of(o, x);
    end_as(o, n, "Reshape");
}

static void convert_reshape(ox *o, ox_node *n) {
    ox_list shape;
    if (!ox_int_input(o, n, "shape", 1, &shape) || shape.n > CLI_MAX_RANK) {
        ox_die(o, n, "Reshape without a usable shape");
    }
    bool zeros = ox_int(o, n, "allowzero", 0) != 0;
    for (int i = 0; i < shape.n; i++) {
        if (zeros && shape.v[i] == 0) {
            ox_unsupported(o, n, "Reshape to an empty tensor (allowzero)");
        }
        if (shape.v[i] < -1 || shape.v[i] > OX_MAX_DIM) {
            ox_die(o, n, "Reshape to a size of %lld", (long long)shape.v[i]);
        }
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "shape", shape);
    end_as(o, n, "Reshape");
}

static void convert_flatten(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "axis", ox_int(o, n, "axis", 1));
    end_as(o, n, "Flatten");
}

static void convert_squeeze(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list axes;
    int64_t ones[CLI_MAX_RANK];
    if (!ox_int_input(o, n, "axes", 1, &axes)) {
        ox_need_shape(o, n, x);
        axes = (ox_list){0, ones, NULL};
        for (int a = 0; a < x->rank; a++) {
            if (x->dims[a] == 1) {
                ones[axes.n++] = a;
            }
        }
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", axes);
    end_as(o, n, "Squeeze");
}

static void convert_unsqueeze(ox *o, ox_node *n) {
    ox_list axes;
    if (!ox_int_input(o, n, "axes", 1, &axes)) {
        ox_die(o, n, "Unsqueeze without axes");
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "axes", axes);
    end_as(o, n, "Unsqueeze");
}

static void convert_transpose(ox *o, ox_node *n) {
    ox_list perm;
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    if (ox_ints(o, n, "perm", &perm)) {
        ox_set_list(o, "perm", perm);
    }
    end_as(o, n, "Transpose");
}

static void convert_expand(ox *o, ox_node *n) {
    ox_list shape;
    if (!ox_int_input(o, n, "shape", 1, &shape)) {
        ox_die(o, n, "Expand without shape");
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "shape", shape);
    end_as(o, n, "Expand");
}

static void convert_concat(ox *o, ox_node *n) {
    if (!ox_has(n, "axis")) {
        ox_die(o, n, "Concat without axis");
    }
    int64_t axis = ox_int(o, n, "axis", 0);
    if (n->n_in == 1) {
        convert_alias(o, n);
        return;
    }
    ox_begin(o);
    for (int i = 0; i < n->n_in; i++) {
        ox_arg(o, ox_in(o, n, i));
    }
    ox_set_int(o, "axis", axis);
    end_as(o, n, "Concat");
}

static void convert_split(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list split;
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", ox_int(o, n, "axis", 0));
    bool given = ox_int_input(o, n, "split", 1, &split) && split.n;
    int64_t parts = ox_int(o, n, "num_outputs", given ? split.n : n->n_out);
    if (given) {
        ox_set_list(o, "split", split);
    } else {
        ox_set_int(o, "num_outputs", parts);
    }
    if (parts != n->n_out) {
        ox_die(o, n, "Split into %lld parts with %d outputs", (long long)parts, n->n_out);
    }
    ox_value **outs = ox_alloc(o, (size_t)n->n_out * sizeof *outs);
    for (int i = 0; i < n->n_out; i++) {
        if (given && split.v[i] < 1) {
            ox_unsupported(o, n, "Split into a part of size %lld", (long long)split.v[i]);
        }
        const char *name = n->out[i] ? n->out[i] : ox_fresh(o, n->op, ".rest");
        outs[i] = ox_new_value(o, name, x->dtype);
    }
    ox_finish(o, "Split", outs, n->n_out);
    for (int i = 0; i < n->n_out; i++) {
        ox_bind(o, n, i, outs[i]);
    }
}

// "To the end" is written as the largest int64 or int32 by exporters; here always as the latter.
static ox_list clamp(ox *o, ox_list list) {
    int64_t *v = ox_alloc(o, (size_t)list.n * sizeof *v);
    for (int i = 0; i < list.n; i++) {
        int64_t x = list.v[i];
        v[i] = x > OX_MAX_DIM ? OX_MAX_DIM : x < -(int64_t)OX_MAX_DIM ? -(int64_t)OX_MAX_DIM : x;
    }
    return (ox_list){list.n, v, list.sym};
}

static void convert_slice(ox *o, ox_node *n) {
    ox_list l[4];
    ox_slice_lists(o, n, l);
    bool steps = false;
    for (int i = 0; i < l[3].n; i++) {
        steps = steps || l[3].v[i] != 1;
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "starts", clamp(o, l[0]));
    ox_set_list(o, "ends", clamp(o, l[1]));
    if (l[2].n) {
        ox_set_list(o, "axes", l[2]);
    }
    if (steps) {
        ox_set_list(o, "steps", clamp(o, l[3]));
    }
    end_as(o, n, "Slice");
}

// Opset 18 may name the axes; here every axis has its two numbers.
static ox_list all_pads(ox *o, ox_node *n, ox_list pads) {
    ox_list axes;
    if (!ox_int_input(o, n, "axes", 3, &axes)) {
        return pads;
    }
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    int64_t *v = ox_alloc(o, 2 * CLI_MAX_RANK * sizeof *v);
    if (pads.n != 2 * axes.n) {
        ox_die(o, n, "Pad with %d numbers for %d axes", pads.n, axes.n);
    }
    for (int i = 0; i < axes.n; i++) {
        int64_t axis = ox_axis(o, n, axes.v[i], x->rank);
        v[axis] = pads.v[i];
        v[axis + x->rank] = pads.v[i + axes.n];
    }
    return (ox_list){2 * x->rank, v, NULL};
}

static void convert_pad(ox *o, ox_node *n) {
    ox_list pads;
    const char *mode = ox_string(o, n, "mode", "constant");
    bool constant = !strcmp(mode, "constant");
    if (!constant && strcmp(mode, "reflect") && strcmp(mode, "edge") && strcmp(mode, "wrap")) {
        char shown[60];
        ox_unsupported(o, n, "Pad with mode '%s'", cli_escape(shown, sizeof shown, mode));
    }
    if (!ox_int_input(o, n, "pads", 1, &pads)) {
        ox_die(o, n, "Pad without pads");
    }
    double value = ox_float(o, n, "value", 0);
    ox_value *given = ox_opt(o, n, 2);
    const ox_const *c = given ? ox_known(o, given) : NULL;
    if (constant && given && (!c || c->count != 1 || !isfinite(ox_getf(c, 0)))) {
        ox_unsupported(o, n, "Pad with a value that is not a known finite number");
    }
    value = c ? ox_getf(c, 0) : value;
    pads = clamp(o, all_pads(o, n, pads));
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "pads", pads);
    if (constant && value != 0) {
        ox_set_float(o, "value", value);
    }
    if (!constant) {
        ox_set_word(o, "mode", mode);
    }
    end_as(o, n, "Pad");
}

// ---- reductions and products ----

static void convert_reduce(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list axes;
    int64_t all[CLI_MAX_RANK];
    bool keep = ox_int(o, n, "keepdims", 1) != 0;
    bool noop = ox_int(o, n, "noop_with_empty_axes", 0) != 0;
    if (!ox_int_input(o, n, "axes", 1, &axes) || !axes.n) {
        if (noop) {
            convert_alias(o, n);
            return;
        }
        ox_need_shape(o, n, x);
        axes = (ox_list){x->rank, all, NULL};
        for (int a = 0; a < x->rank; a++) {
            all[a] = a;
        }
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", axes);
    ox_set_int(o, "keepdims", keep);
    end_as(o, n, n->op);
}

static void convert_place(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    int64_t axis = ox_int(o, n, "axis", 0);
    bool keep = ox_int(o, n, "keepdims", 1) != 0;
    bool last = ox_int(o, n, "select_last_index", 0) != 0;
    need_name(o, n);
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    ox_set_int(o, "keepdims", keep);
    ox_set_int(o, "select_last_index", last);
    ox_bind(o, n, 0, ox_end(o, n->op, n->out[0], CLI_I64));
}

static void convert_gemm(ox *o, ox_node *n) {
    double alpha = ox_float(o, n, "alpha", 1), beta = ox_float(o, n, "beta", 1);
    int64_t a = ox_int(o, n, "transA", 0), b = ox_int(o, n, "transB", 0);
    check_broadcast(o, n);
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_arg(o, ox_in(o, n, 1));
    ox_arg(o, ox_opt(o, n, 2));
    if (a) {
        ox_set_int(o, "transA", 1);
    }
    if (b) {
        ox_set_int(o, "transB", 1);
    }
    if (alpha != 1) {
        ox_set_float(o, "alpha", alpha);
    }
    if (beta != 1) {
        ox_set_float(o, "beta", beta);
    }
    end_as(o, n, "Gemm");
}

// ---- the table ----

static const ox_row rows[] = {
    {"MatMul", 2, 2, convert_plain},
    {"Gemm", 2, 3, convert_gemm},
    {"Add", 2, 2, convert_binary},
    {"Sub", 2, 2, convert_binary},
    {"Mul", 2, 2, convert_binary},
    {"Div", 2, 2, convert_binary},
    {"Max", 1, -1, convert_many},
    {"Min", 1, -1, convert_many},
    {"Sum", 1, -1, convert_many},
    {"Mean", 1, -1, convert_mean},
    {"Pow", 2, 2, convert_pow},
    {"Neg", 1, 1, convert_plain},
    {"Abs", 1, 1, convert_plain},
    {"Relu", 1, 1, convert_plain},
    {"LeakyRelu", 1, 1, convert_alpha},
    {"Elu", 1, 1, convert_alpha},
    {"Celu", 1, 1, convert_alpha},
    {"Selu", 1, 1, convert_selu},
    {"ThresholdedRelu", 1, 1, convert_alpha},
    {"Softplus", 1, 1, convert_plain},
    {"Softsign", 1, 1, convert_plain},
    {"Mish", 1, 1, convert_plain},
    {"Sign", 1, 1, convert_plain},
    {"Round", 1, 1, convert_plain},
    {"Sin", 1, 1, convert_plain},
    {"Cos", 1, 1, convert_plain},
    {"IsNaN", 1, 1, convert_plain},
    {"Equal", 2, 2, convert_binary},
    {"Less", 2, 2, convert_binary},
    {"LessOrEqual", 2, 2, convert_plain},
    {"Greater", 2, 2, convert_binary},
    {"GreaterOrEqual", 2, 2, convert_plain},
    {"Not", 1, 1, convert_plain},
    {"And", 2, 2, convert_binary},
    {"Or", 2, 2, convert_binary},
    {"Xor", 2, 2, convert_binary},
    {"Where", 3, 3, convert_plain},
    {"PRelu", 2, 2, convert_prelu},
    {"Clip", 1, 3, convert_clip},
    {"Relu6", 1, 1, convert_relu6},
    {"Sigmoid", 1, 1, convert_plain},
    {"HardSigmoid", 1, 1, convert_hard_sigmoid},
    {"HardSwish", 1, 1, convert_plain},
    {"Tanh", 1, 1, convert_plain},
    {"Exp", 1, 1, convert_plain},
    {"Log", 1, 1, convert_plain},
    {"Sqrt", 1, 1, convert_plain},
    {"Reciprocal", 1, 1, convert_plain},
    {"Floor", 1, 1, convert_plain},
    {"Ceil", 1, 1, convert_plain},
    {"Erf", 1, 1, convert_plain},
    {"Gelu", 1, 1, convert_gelu},
    {"Softmax", 1, 1, convert_softmax},
    {"LogSoftmax", 1, 1, convert_softmax},
    {"ReduceMean", 1, 2, convert_reduce},
    {"ReduceSum", 1, 2, convert_reduce},
    {"ReduceMax", 1, 2, convert_reduce},
    {"ReduceMin", 1, 2, convert_reduce},
    {"ReduceProd", 1, 2, convert_reduce},
    {"ReduceSumSquare", 1, 2, convert_reduce},
    {"ReduceL1", 1, 2, convert_reduce},
    {"ReduceL2", 1, 2, convert_reduce},
    {"ReduceLogSum", 1, 2, convert_reduce},
    {"ReduceLogSumExp", 1, 2, convert_reduce},
    {"ArgMax", 1, 1, convert_place},
    {"ArgMin", 1, 1, convert_place},
    {"Concat", 1, -1, convert_concat},
    {"Split", 1, 2, convert_split},
    {"Slice", 1, 5, convert_slice},
    {"Pad", 1, 4, convert_pad},
    {"Transpose", 1, 1, convert_transpose},
    {"Reshape", 1, 2, convert_reshape},
    {"Flatten", 1, 1, convert_flatten},
    {"Squeeze", 1, 2, convert_squeeze},
    {"Unsqueeze", 1, 2, convert_unsqueeze},
    {"Expand", 2, 2, convert_expand},
    {"Identity", 1, 1, convert_alias},
    {"Dropout", 1, 3, convert_dropout},
    {NULL, 0, 0, NULL},
};

static const ox_row *const tables[] = {rows,         ox_nn_rows,    ox_pick_rows, ox_rnn_rows,
                                       ox_flow_rows, ox_quant_rows, ox_more_rows, ox_image_rows};

const ox_row *ox_row_of(const char *op) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const ox_row *row = tables[t]; row->op; row++) {
            if (!strcmp(row->op, op)) {
                return row;
            }
        }
    }
    return NULL;
}

// Edit distance of two names, letter case apart.
static int distance(const char *a, const char *b) {
    enum { MOST = 40 };
    int row[MOST + 1], n = (int)strlen(b);
    if (n > MOST || strlen(a) > MOST) {
        return MOST;
    }
    for (int j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + ((a[i - 1] | 32) != (b[j - 1] | 32));
            diagonal = row[j];
            int edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < edit ? change : edit;
        }
    }
    return row[n];
}

const char *ox_nearest(const char *op) {
    const char *best = NULL;
    int least = (int)strlen(op) / 3 + 1;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const ox_row *row = tables[t]; row->op; row++) {
            int d = distance(op, row->op);
            if (d < least) {
                least = d;
                best = row->op;
            }
        }
    }
    return best;
}
