// onnx_norm.c - normalisation.
#include "onnx.h"

// Whether a batch is one instance, whatever the model's dims are: then its statistics are the
// instance's. Weights are standardised so.
static bool is_alone(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_sym(o, n, x);
    return x->rank > 2 && x->dims[0] == 1 && !x->sym[0];
}

static ox_value *mean_of(ox *o, ox_node *n, const char *suffix, ox_value *x, ox_list axes) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", axes);
    ox_set_int(o, "keepdims", 1);
    return ox_end(o, "ReduceMean", ox_fresh(o, ox_base(o, n), suffix), x->dtype);
}

// Training mode: the statistics of a channel are those of the whole batch, as where a layer keeps
// none of its own.
static void norm_by_batch(ox *o, ox_node *n, double epsilon) {
    ox_value *x = ox_in(o, n, 0), *by[2] = {ox_in(o, n, 1), ox_in(o, n, 2)};
    int64_t axes[CLI_MAX_RANK] = {0}, behind[CLI_MAX_RANK];
    ox_need_shape(o, n, x);
    if (x->rank < 2) {
        ox_die(o, n, "BatchNormalization of a tensor without channels");
    }
    ox_list list = {x->rank - 1, axes, NULL}, ones = {x->rank - 2, behind, NULL};
    for (int i = 0; i < ones.n; i++) {
        axes[i + 1] = i + 2;
        behind[i] = i + 1;
    }
    for (int i = 0; i < 2 && ones.n; i++) {
        by[i] = ox_with_list(o, n, "Unsqueeze", ".channels", by[i], "axes", ones);
    }
    ox_value *u = ox_binary(o, n, "Sub", ".centered", x, mean_of(o, n, ".mean", x, list));
    ox_value *v = mean_of(o, n, ".variance", ox_binary(o, n, "Mul", ".square", u, u), list);
    v = ox_unary(o, n, "Sqrt", ".deviation", ox_by_number(o, n, "Add", ".sum", v, epsilon));
    u = ox_binary(o, n, "Mul", ".scaled", ox_binary(o, n, "Div", ".normed", u, v), by[0]);
    ox_end_binary(o, n, "Add", u, by[1]);
}

static void convert_batch_norm(ox *o, ox_node *n) {
    double epsilon = ox_float(o, n, "epsilon", 1e-5);
    ox_find(o, n, "momentum");
    bool training = n->opset < 7 ? !ox_int(o, n, "is_test", 0) : ox_int(o, n, "training_mode", 0);
    bool alone = training && is_alone(o, n);
    if (!ox_int(o, n, "spatial", 1)) {
        ox_unsupported(o, n, "BatchNormalization that is not per channel");
    }
    if (training && !alone) {
        norm_by_batch(o, n, epsilon);
        return;
    }
    ox_begin(o);
    for (int i = 0; i < (alone ? 3 : 5); i++) {
        ox_arg(o, ox_in(o, n, i));
    }
    ox_set_float(o, "epsilon", epsilon);
    ox_end_node(o, n, alone ? "InstanceNormalization" : n->op);
}

// The axes from `axis` on.
static ox_list axes_from(ox *o, ox_node *n, ox_value *x, int64_t axis, int64_t *axes) {
    ox_need_shape(o, n, x);
    int64_t from = ox_axis(o, n, axis, x->rank);
    ox_list list = {x->rank - (int)from, axes, NULL};
    for (int i = 0; i < list.n; i++) {
        axes[i] = from + i;
    }
    return list;
}

// The mean and the inverse of the deviation as outputs, in f32 (stash_type 1) or as x is.
static void give_statistics(ox *o, ox_node *n, int64_t axis, double epsilon, bool wide) {
    int64_t axes[CLI_MAX_RANK];
    ox_value *x = ox_in(o, n, 0);
    ox_list list = axes_from(o, n, x, axis, axes);
    x = wide ? ox_cast_to(o, n, ".wide", x, CLI_F32) : x;
    ox_value *mean = mean_of(o, n, ".mean", x, list);
    ox_bind_as(o, n, 1, "Identity", mean, NULL, (ox_list){0});
    if (!ox_wants(n, 2)) {
        return;
    }
    ox_value *u = ox_binary(o, n, "Sub", ".centered", x, mean);
    ox_value *v = mean_of(o, n, ".variance", ox_binary(o, n, "Mul", ".square", u, u), list);
    v = ox_unary(o, n, "Sqrt", ".deviation", ox_by_number(o, n, "Add", ".sum", v, epsilon));
    ox_bind_as(o, n, 2, "Reciprocal", v, NULL, (ox_list){0});
}

static void convert_layer_norm(ox *o, ox_node *n) {
    int64_t axis = ox_int(o, n, "axis", -1);
    double epsilon = ox_float(o, n, "epsilon", 1e-5);
    bool wide = ox_int(o, n, "stash_type", 1) == 1;
    if (ox_wants(n, 0)) {
        ox_begin(o);
        ox_arg(o, ox_in(o, n, 0));
        ox_arg(o, ox_in(o, n, 1));
        ox_arg(o, ox_opt(o, n, 2));
        ox_set_int(o, "axis", axis);
        ox_set_float(o, "epsilon", epsilon);
        ox_end_node(o, n, n->op);
    }
    if (ox_wants(n, 1) || ox_wants(n, 2)) {
        give_statistics(o, n, axis, epsilon, wide);
    }
}

static void convert_instance_norm(ox *o, ox_node *n) {
    ox_begin(o);
    for (int i = 0; i < 3; i++) {
        ox_arg(o, ox_in(o, n, i));
    }
    ox_set_float(o, "epsilon", ox_float(o, n, "epsilon", 1e-5));
    ox_find(o, n, "consumed_inputs");  // opset 1
    ox_end_node(o, n, n->op);
}

// Each of `groups` numbers for all channels of its group: [G] -> [G,1] -> [G,C/G] -> [C].
static ox_value *per_channel(ox *o, ox_node *n, ox_value *v, int64_t groups, int64_t channels) {
    int64_t spread[2] = {groups, channels / groups};
    v = ox_with_int(o, n, "Unsqueeze", ".column", v, "axes", 1);
    v = ox_with_list(o, n, "Expand", ".spread", v, "shape", (ox_list){2, spread, NULL});
    return ox_with_int(o, n, "Reshape", ".channels", v, "shape", channels);
}

// Scale and bias are per group before opset 21.
static void convert_group_norm(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *in[2] = {ox_in(o, n, 1), ox_in(o, n, 2)};
    int64_t groups = ox_int(o, n, "num_groups", 0);
    double epsilon = ox_float(o, n, "epsilon", 1e-5);
    ox_find(o, n, "stash_type");
    ox_need_shape(o, n, x);
    if (groups < 1 || x->rank < 2 || x->dims[1] % groups || !ox_wants(n, 0)) {
        ox_die(o, n, "GroupNormalization without a usable num_groups, input or output");
    }
    for (int i = 0; i < 2 && n->opset < 21; i++) {
        in[i] = per_channel(o, n, in[i], groups, x->dims[1]);
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, in[0]);
    ox_arg(o, in[1]);
    ox_set_int(o, "num_groups", groups);
    ox_set_float(o, "epsilon", epsilon);
    ox_end_node(o, n, n->op);
}

// Opset 23: y = x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` on. No operator
// of opset 21, so it is written out.
static void convert_rms_norm(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *scale = ox_in(o, n, 1);
    int64_t axes[CLI_MAX_RANK];
    ox_list reduced = axes_from(o, n, x, ox_int(o, n, "axis", -1), axes);
    ox_find(o, n, "stash_type");
    const char *name = ox_first(o, n);
    ox_const *epsilon = ox_make(o, x->dtype, 0, NULL);
    ox_setf(epsilon, 0, ox_float(o, n, "epsilon", 1e-5));
    ox_value *square = ox_binary(o, n, "Mul", ".square", x, x);
    ox_value *mean = mean_of(o, n, ".mean", square, reduced);
    ox_value *sum = ox_binary(o, n, "Add", ".sum", mean, ox_constant(o, name, ".epsilon", epsilon));
    ox_value *norm = ox_binary(o, n, "Div", ".norm", x, ox_unary(o, n, "Sqrt", ".root", sum));
    ox_end_binary(o, n, "Mul", norm, scale);
}

// (x - mean) / (sqrt(mean of (x - mean)^2) + 1e-9) over `axes`.
static void convert_mean_variance(ox *o, ox_node *n) {
    static const int64_t usual[3] = {0, 2, 3};
    ox_value *x = ox_in(o, n, 0);
    ox_list axes;
    if (!ox_ints(o, n, "axes", &axes)) {
        axes = (ox_list){3, usual, NULL};
    }
    ox_value *u = ox_binary(o, n, "Sub", ".centered", x, mean_of(o, n, ".mean", x, axes));
    ox_value *square = ox_binary(o, n, "Mul", ".square", u, u);
    ox_value *root = ox_unary(o, n, "Sqrt", ".root", mean_of(o, n, ".variance", square, axes));
    ox_end_binary(o, n, "Div", u, ox_by_number(o, n, "Add", ".deviation", root, 1e-9));
}

static void convert_lp_norm(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "axis", ox_int(o, n, "axis", -1));
    ox_set_int(o, "p", ox_int(o, n, "p", 2));
    ox_end_node(o, n, n->op);
}

// No operator of the language, so it is written out:
//     y[i] = x[i] / pow(bias + alpha/size * sum(j) square(x[i with channel + j]), beta)
// with j over a window of `size` channels, the odd one behind.
static void convert_lrn(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    int64_t size = ox_int(o, n, "size", 0);
    double alpha = ox_float(o, n, "alpha", 1e-4), beta = ox_float(o, n, "beta", 0.75);
    double bias = ox_float(o, n, "bias", 1);
    ox_need_shape(o, n, x);
    if (size < 1 || size > OX_MAX_DIM || x->rank < 3 || !ox_wants(n, 0)) {
        ox_die(o, n, "LRN without a usable size, input or output");
    }
    char *index = NULL, *reads = NULL, *name = NULL;
    const char *prefix = ox_free_name(o, "i"), *j = ox_free_name(o, "j");
    for (int a = 0; a < x->rank; a++) {
        ox_put(&index, "%s%s%d", a ? "," : "", prefix, a);
        ox_put(&reads, "%s%s%d", a ? "," : "", prefix, a);
        if (a == 1) {
            ox_put(&reads, "+%s", j);
        }
    }
    ox_put_name(&name, x->name);
    const char *i = ox_take(o, &index), *w = ox_take(o, &reads), *from = ox_take(o, &name);
    ox_begin(o);
    ox_arg(o, x);
    ox_put(&o->attrs, "[%s] = %s[%s]" OX_BREAK "/ pow(", i, from, i);
    ox_put_float(&o->attrs, bias);
    ox_put(&o->attrs, OX_BREAK "+ ");
    ox_put_float(&o->attrs, alpha / (double)size);
    ox_put(&o->attrs, OX_BREAK "* sum(%s) square(%s[%s])," OX_BREAK, j, from, w);
    ox_put_float(&o->attrs, beta);
    ox_put(&o->attrs, ")" OX_BREAK_FIRST "where %s in %lld:%lld," OX_BREAK "pad %s 0", j,
           -(long long)((size - 1) / 2), (long long)(size / 2) + 1, from);
    ox_end_node(o, n, NULL);
}

const ox_row ox_norm_rows[] = {
    {"BatchNormalization", 5, 5, convert_batch_norm},
    {"LayerNormalization", 2, 3, convert_layer_norm},
    {"InstanceNormalization", 3, 3, convert_instance_norm},
    {"GroupNormalization", 3, 3, convert_group_norm},
    {"LpNormalization", 1, 1, convert_lp_norm},
    {"MeanVarianceNormalization", 1, 1, convert_mean_variance},
    {"RMSNormalization", 2, 2, convert_rms_norm},
    {"LRN", 1, 1, convert_lrn},
    {NULL, 0, 0, NULL},
};
