// onnx_nn.c - convolution, pooling, normalisation and resizing. Whatever pads automatically in
// ONNX gets its pads in numbers here.
#include "onnx.h"

#include <math.h>

// The spatial attributes of one node: `n` axes, pads first the begins and then the ends.
typedef struct {
    int n;
    int64_t kernel[CLI_MAX_RANK], strides[CLI_MAX_RANK], dilations[CLI_MAX_RANK];
    int64_t pads[2 * CLI_MAX_RANK], out_pads[CLI_MAX_RANK];
} window;

static void take_list(ox *o, ox_node *n, const char *name, int64_t *to, int count, int64_t least,
                      int64_t otherwise) {
    ox_list list;
    for (int i = 0; i < count; i++) {
        to[i] = otherwise;
    }
    if (!ox_ints(o, n, name, &list)) {
        return;
    }
    if (list.n != count) {
        ox_die(o, n, "attribute '%s' has %d numbers, not %d", name, list.n, count);
    }
    for (int i = 0; i < count; i++) {
        if (list.v[i] < least || list.v[i] > OX_MAX_DIM) {
            ox_die(o, n, "attribute '%s' has the number %lld", name, (long long)list.v[i]);
        }
        to[i] = list.v[i];
    }
}

// A list that says the same for every axis is written as one number, one that says nothing not at
// all.
static void set_window_list(ox *o, const char *name, const int64_t *v, int count, int64_t usual) {
    bool same = true;
    for (int i = 1; i < count; i++) {
        same = same && v[i] == v[0];
    }
    if (same && count && v[0] != usual) {
        ox_set_int(o, name, v[0]);
    } else if (!same) {
        ox_set_list(o, name, (ox_list){count, v, NULL});
    }
}

static void take_window(ox *o, ox_node *n, window *w, int rank) {
    w->n = rank - 2;
    if (w->n < 1) {
        ox_die(o, n, "operator '%s' on a tensor of %d axes", n->op, rank);
    }
    take_list(o, n, "strides", w->strides, w->n, 1, 1);
    take_list(o, n, "dilations", w->dilations, w->n, 1, 1);
    take_list(o, n, "pads", w->pads, 2 * w->n, 0, 0);
}

static int64_t extent(const window *w, int a) { return (w->kernel[a] - 1) * w->dilations[a] + 1; }

static bool known_auto_pad(ox *o, ox_node *n, const char *mode) {
    if (strcmp(mode, "NOTSET") && strcmp(mode, "VALID") && strcmp(mode, "SAME_UPPER") &&
        strcmp(mode, "SAME_LOWER")) {
        char shown[60];
        ox_die(o, n, "auto_pad '%s' is not known", cli_escape(shown, sizeof shown, mode));
    }
    return !strncmp(mode, "SAME", 4);
}

// SAME makes ceil(input / stride) outputs; the odd pad goes to the end (UPPER) or the begin.
static void resolve_auto_pad(ox *o, ox_node *n, window *w) {
    const char *mode = ox_string(o, n, "auto_pad", "NOTSET");
    if (!known_auto_pad(o, n, mode)) {
        if (!strcmp(mode, "VALID")) {
            memset(w->pads, 0, sizeof w->pads);
        }
        return;
    }
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    if (x->rank != w->n + 2) {
        ox_die(o, n, "input has %d axes, not %d", x->rank, w->n + 2);
    }
    for (int a = 0; a < w->n; a++) {
        int64_t in = x->dims[a + 2], out = (in + w->strides[a] - 1) / w->strides[a];
        int64_t total = (out - 1) * w->strides[a] + extent(w, a) - in;
        int64_t less = total > 0 ? total / 2 : 0, more = total > 0 ? total - less : 0;
        bool upper = !strcmp(mode, "SAME_UPPER");
        w->pads[a] = upper ? less : more;
        w->pads[a + w->n] = upper ? more : less;
    }
}

static void set_window(ox *o, const window *w) {
    set_window_list(o, "strides", w->strides, w->n, 1);
    set_window_list(o, "pads", w->pads, 2 * w->n, 0);
    set_window_list(o, "dilations", w->dilations, w->n, 1);
}

// The kernel's size is the weight's; an attribute can only repeat it.
static void take_kernel_of_weight(ox *o, ox_node *n, window *w, const ox_value *weight) {
    int64_t said[CLI_MAX_RANK];
    take_list(o, n, "kernel_shape", said, w->n, 1, 0);
    for (int a = 0; a < w->n; a++) {
        w->kernel[a] = weight->dims[a + 2];
        if (said[a] && said[a] != w->kernel[a]) {
            ox_die(o, n, "kernel_shape is %lld on axis %d, the weight has %lld", (long long)said[a],
                   a, (long long)w->kernel[a]);
        }
    }
}

static void convert_conv(ox *o, ox_node *n) {
    ox_value *weight = ox_in(o, n, 1);
    window w = {0};
    ox_need_shape(o, n, weight);
    take_window(o, n, &w, weight->rank);
    take_kernel_of_weight(o, n, &w, weight);
    resolve_auto_pad(o, n, &w);
    int64_t group = ox_int(o, n, "group", 1);
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_arg(o, weight);
    ox_arg(o, ox_opt(o, n, 2));
    set_window(o, &w);
    if (group != 1) {
        ox_set_int(o, "group", group);
    }
    ox_end_node(o, n, "Conv");
}

// Pads of a transposed convolution that is given by its result's size.
static void resolve_transposed_pads(ox *o, ox_node *n, window *w) {
    const char *mode = ox_string(o, n, "auto_pad", "NOTSET");
    bool same = known_auto_pad(o, n, mode), sized = ox_has(n, "output_shape");
    if (!same && !sized) {
        if (!strcmp(mode, "VALID")) {
            memset(w->pads, 0, sizeof w->pads);
        }
        return;
    }
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    if (x->rank != w->n + 2) {
        ox_die(o, n, "input has %d axes, not %d", x->rank, w->n + 2);
    }
    int64_t out[CLI_MAX_RANK];
    take_list(o, n, "output_shape", out, w->n, 1, 0);
    for (int a = 0; a < w->n; a++) {
        int64_t in = x->dims[a + 2];
        int64_t wanted = sized ? out[a] : in * w->strides[a];
        int64_t total = w->strides[a] * (in - 1) + w->out_pads[a] + extent(w, a) - wanted;
        int64_t less = total > 0 ? total / 2 : 0, more = total > 0 ? total - less : 0;
        bool upper = !strcmp(mode, "SAME_UPPER");
        w->out_pads[a] += total < 0 ? -total : 0;
        w->pads[a] = upper ? less : more;
        w->pads[a + w->n] = upper ? more : less;
    }
}

static void convert_conv_transpose(ox *o, ox_node *n) {
    ox_value *weight = ox_in(o, n, 1);
    window w = {0};
    ox_need_shape(o, n, weight);
    take_window(o, n, &w, weight->rank);
    take_list(o, n, "output_padding", w.out_pads, w.n, 0, 0);
    take_kernel_of_weight(o, n, &w, weight);
    resolve_transposed_pads(o, n, &w);
    int64_t group = ox_int(o, n, "group", 1);
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_arg(o, weight);
    ox_arg(o, ox_opt(o, n, 2));
    set_window(o, &w);
    set_window_list(o, "output_padding", w.out_pads, w.n, 0);
    if (group != 1) {
        ox_set_int(o, "group", group);
    }
    ox_end_node(o, n, "ConvTranspose");
}

// MaxPool and AveragePool. `ceil_mode` and `count_include_pad` are written where they are on.
static void convert_pool(ox *o, ox_node *n) {
    window w = {0};
    ox_list kernel;
    if (!ox_ints(o, n, "kernel_shape", &kernel) || kernel.n < 1 || kernel.n > CLI_MAX_RANK - 2) {
        ox_die(o, n, "operator '%s' without a usable kernel_shape", n->op);
    }
    take_window(o, n, &w, kernel.n + 2);
    take_list(o, n, "kernel_shape", w.kernel, w.n, 1, 1);
    bool ceiling = ox_int(o, n, "ceil_mode", 0) != 0;
    bool counted = ox_int(o, n, "count_include_pad", 0) != 0;
    ox_int(o, n, "storage_order", 0);  // of the indices, which are not supported
    resolve_auto_pad(o, n, &w);
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    set_window_list(o, "kernel_shape", w.kernel, w.n, 0);
    set_window(o, &w);
    if (ceiling) {
        ox_set_int(o, "ceil_mode", 1);
    }
    if (counted && !strcmp(n->op, "AveragePool")) {
        ox_set_int(o, "count_include_pad", 1);
    }
    ox_end_node(o, n, n->op);
}

static void convert_global_pool(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_end_node(o, n, n->op);
}

// ---- normalisation ----

static void convert_batch_norm(ox *o, ox_node *n) {
    double epsilon = ox_float(o, n, "epsilon", 1e-5);
    ox_find(o, n, "momentum");
    bool training = n->opset < 7 ? !ox_int(o, n, "is_test", 0) : ox_int(o, n, "training_mode", 0);
    if (training || !ox_int(o, n, "spatial", 1)) {
        ox_unsupported(o, n, "BatchNormalization in training mode or not per channel");
    }
    ox_begin(o);
    for (int i = 0; i < 5; i++) {
        ox_arg(o, ox_in(o, n, i));
    }
    ox_set_float(o, "epsilon", epsilon);
    ox_end_node(o, n, n->op);
}

static void convert_layer_norm(ox *o, ox_node *n) {
    int64_t axis = ox_int(o, n, "axis", -1);
    double epsilon = ox_float(o, n, "epsilon", 1e-5);
    ox_find(o, n, "stash_type");
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_arg(o, ox_in(o, n, 1));
    ox_arg(o, ox_opt(o, n, 2));
    ox_set_int(o, "axis", axis);
    ox_set_float(o, "epsilon", epsilon);
    ox_end_node(o, n, n->op);
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
    static const int64_t last[1] = {1};
    int64_t spread[2] = {groups, channels / groups};
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "axes", (ox_list){1, last, NULL});
    v = ox_end(o, "Unsqueeze", ox_fresh(o, n->out[0], ".column"), v->dtype);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "shape", (ox_list){2, spread, NULL});
    v = ox_end(o, "Expand", ox_fresh(o, n->out[0], ".spread"), v->dtype);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "shape", (ox_list){1, &channels, NULL});
    return ox_end(o, "Reshape", ox_fresh(o, n->out[0], ".channels"), v->dtype);
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

static ox_value *part(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *a,
                      ox_value *b) {
    ox_begin(o);
    ox_arg(o, a);
    if (b) {
        ox_arg(o, b);
    }
    return ox_end(o, op, ox_fresh(o, n->out[0], suffix), a->dtype);
}

// Opset 23: y = x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` on. No operator
// of opset 21, so it is written out.
static void convert_rms_norm(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *scale = ox_in(o, n, 1);
    ox_need_shape(o, n, x);
    int64_t from = ox_axis(o, n, ox_int(o, n, "axis", -1), x->rank), axes[CLI_MAX_RANK];
    ox_list reduced = {x->rank - (int)from, axes, NULL};
    ox_find(o, n, "stash_type");
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
    ox_const *epsilon = ox_make(o, x->dtype, 0, NULL);
    ox_setf(epsilon, 0, ox_float(o, n, "epsilon", 1e-5));
    for (int i = 0; i < reduced.n; i++) {
        axes[i] = from + i;
    }
    ox_value *square = part(o, n, "Mul", ".square", x, x);
    ox_begin(o);
    ox_arg(o, square);
    ox_set_list(o, "axes", reduced);
    ox_set_int(o, "keepdims", 1);
    ox_value *mean = ox_end(o, "ReduceMean", ox_fresh(o, n->out[0], ".mean"), x->dtype);
    ox_value *sum = part(o, n, "Add", ".sum", mean, ox_constant(o, n->out[0], ".epsilon", epsilon));
    ox_value *norm = part(o, n, "Div", ".norm", x, part(o, n, "Sqrt", ".root", sum, NULL));
    ox_begin(o);
    ox_arg(o, norm);
    ox_arg(o, scale);
    ox_end_node(o, n, "Mul");
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

// ---- resizing ----

static void check_word(ox *o, ox_node *n, const char *what, const char *word,
                       const char *const *known) {
    for (; *known; known++) {
        if (!strcmp(word, *known)) {
            return;
        }
    }
    char shown[60];
    ox_unsupported(o, n, "%s with %s '%s'", n->op, what, cli_escape(shown, sizeof shown, word));
}

static void take_scales(ox *o, ox_node *n, ox_resize *r, const ox_const *c) {
    if (!c) {
        ox_unsupported(o, n, "%s with scales computed at run time", n->op);
    }
    if (c->rank != 1 || c->count > CLI_MAX_RANK || !ox_is_float(c->dtype)) {
        ox_die(o, n, "the scales of %s are not a list of numbers", n->op);
    }
    r->n = (int)c->count;
    for (int i = 0; i < r->n; i++) {
        r->scales[i] = ox_getf(c, i);
    }
}

static void check_scales(ox *o, ox_node *n, const ox_resize *r) {
    for (int i = 0; i < r->n; i++) {
        if (!(r->scales[i] > 0 && r->scales[i] < OX_MAX_DIM)) {
            ox_die(o, n, "%s with a scale of %g", n->op, r->scales[i]);
        }
    }
}

// Opset 18 may name the axes; here all are listed.
static void spread_over_axes(ox *o, ox_node *n, ox_resize *r) {
    ox_list axes;
    if (!ox_ints(o, n, "axes", &axes)) {
        return;
    }
    ox_value *x = ox_in(o, n, 0);
    ox_need_sym(o, n, x);
    int64_t *sizes = ox_alloc(o, CLI_MAX_RANK * sizeof *sizes);
    const char **sym = ox_alloc(o, CLI_MAX_RANK * sizeof *sym);
    double scales[CLI_MAX_RANK];
    if (axes.n != (r->sized ? r->sizes.n : r->n)) {
        ox_die(o, n, "%s with axes that do not match", n->op);
    }
    for (int a = 0; a < x->rank; a++) {
        scales[a] = 1;
        sizes[a] = x->dims[a];
        sym[a] = x->sym[a];
    }
    for (int i = 0; i < axes.n; i++) {
        int64_t axis = ox_axis(o, n, axes.v[i], x->rank);
        scales[axis] = r->scales[i];
        if (r->sized) {
            sizes[axis] = r->sizes.v[i];
            sym[axis] = r->sizes.sym ? r->sizes.sym[i] : NULL;
        }
    }
    memcpy(r->scales, scales, (size_t)x->rank * sizeof *scales);
    r->n = r->sized ? 0 : x->rank;
    r->sizes = (ox_list){r->sized ? x->rank : 0, sizes, sym};
}

static void put_resize(ox *o, ox_node *n, const ox_resize *r) {
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const coordinates[] = {"half_pixel", "asymmetric", "align_corners",
                                              "pytorch_half_pixel", NULL};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil", NULL};
    check_word(o, n, "mode", r->mode, modes);
    check_word(o, n, "coordinate_transformation_mode", r->coordinates, coordinates);
    check_word(o, n, "nearest_mode", r->nearest, roundings);
    check_scales(o, n, r);
    if (!strcmp(r->mode, "cubic")) {
        ox_resize_cubic(o, n, r);
        return;
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    if (r->sized) {
        ox_set_list(o, "sizes", r->sizes);
    } else {
        ox_set_floats(o, "scales", r->scales, r->n);
    }
    ox_set_word(o, "mode", r->mode);
    ox_set_word(o, "coordinate_transformation_mode", r->coordinates);
    if (!strcmp(r->mode, "nearest")) {
        ox_set_word(o, "nearest_mode", r->nearest);
    }
    ox_end_node(o, n, "Resize");
}

static void convert_upsample(ox *o, ox_node *n) {
    ox_resize r = {ox_string(o, n, "mode", "nearest"), "asymmetric", "floor", .cubic = -0.75};
    const ox_attr *a = ox_find(o, n, "scales");
    if (a) {
        r.n = a->a->n_floats > CLI_MAX_RANK ? -1 : (int)a->a->n_floats;
        for (int i = 0; i < r.n; i++) {
            r.scales[i] = (double)a->a->floats[i];
        }
    } else {
        take_scales(o, n, &r, ox_known(o, ox_in(o, n, 1)));
    }
    if (r.n < 1) {
        ox_die(o, n, "Upsample without usable scales");
    }
    r.mode = !strcmp(r.mode, "bilinear") ? "linear" : r.mode;
    put_resize(o, n, &r);
}

// Opset 10 did not say how to round; runtimes take the lower pixel when enlarging and the upper one
// when shrinking.
static void resize_10(ox *o, ox_node *n) {
    ox_resize r = {ox_string(o, n, "mode", "nearest"), "asymmetric", "floor", .cubic = -0.75};
    bool grows = false, shrinks = false;
    take_scales(o, n, &r, ox_known(o, ox_in(o, n, 1)));
    for (int i = 0; i < r.n; i++) {
        grows = grows || r.scales[i] > 1;
        shrinks = shrinks || r.scales[i] < 1;
    }
    if (grows && shrinks && !strcmp(r.mode, "nearest")) {
        ox_unsupported(o, n, "Resize of opset 10 that enlarges and shrinks at once");
    }
    r.nearest = shrinks ? "ceil" : "floor";
    put_resize(o, n, &r);
}

static void convert_resize(ox *o, ox_node *n) {
    if (n->opset < 11) {
        resize_10(o, n);
        return;
    }
    ox_resize r = {ox_string(o, n, "mode", "nearest"),
                   ox_string(o, n, "coordinate_transformation_mode", "half_pixel"),
                   ox_string(o, n, "nearest_mode", "round_prefer_floor"), .n = 0};
    const char *policy = ox_string(o, n, "keep_aspect_ratio_policy", "stretch");
    r.cubic = ox_float(o, n, "cubic_coeff_a", -0.75);
    ox_find(o, n, "extrapolation_value");
    ox_value *scales = ox_opt(o, n, 2), *sizes = ox_opt(o, n, 3);
    const ox_const *c = scales ? ox_known(o, scales) : NULL;
    if (sizes) {
        r.sized = ox_int_input(o, n, "sizes", 3, &r.sizes) && r.sizes.n;
    }
    if (!r.sized) {
        if (!scales || (c && !c->count)) {
            ox_die(o, n, "Resize without scales and sizes");
        }
        take_scales(o, n, &r, c);
    }
    r.exclude = ox_int(o, n, "exclude_outside", 0) != 0;
    if (strcmp(policy, "stretch") || ox_int(o, n, "antialias", 0) ||
        (r.exclude && strcmp(r.mode, "cubic"))) {
        ox_unsupported(o, n, "Resize with antialias, exclude_outside or a kept aspect ratio");
    }
    if (r.sized && r.sizes.n > CLI_MAX_RANK) {
        ox_die(o, n, "Resize to %d axes", r.sizes.n);
    }
    spread_over_axes(o, n, &r);
    put_resize(o, n, &r);
}

static void convert_blocks(ox *o, ox_node *n) {
    int64_t size = ox_int(o, n, "blocksize", 0);
    bool spreads = !strcmp(n->op, "DepthToSpace");
    const char *mode = spreads ? ox_string(o, n, "mode", "DCR") : "DCR";
    if (size < 1 || size > OX_MAX_DIM || (strcmp(mode, "DCR") && strcmp(mode, "CRD"))) {
        ox_die(o, n, "operator '%s' without a usable blocksize or mode", n->op);
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "blocksize", size);
    if (spreads) {
        ox_set_word(o, "mode", mode);
    }
    ox_end_node(o, n, n->op);
}

const ox_row ox_nn_rows[] = {
    {"Conv", 2, 3, convert_conv},
    {"ConvTranspose", 2, 3, convert_conv_transpose},
    {"MaxPool", 1, 1, convert_pool},
    {"AveragePool", 1, 1, convert_pool},
    {"GlobalAveragePool", 1, 1, convert_global_pool},
    {"GlobalMaxPool", 1, 1, convert_global_pool},
    {"BatchNormalization", 5, 5, convert_batch_norm},
    {"LayerNormalization", 2, 3, convert_layer_norm},
    {"InstanceNormalization", 3, 3, convert_instance_norm},
    {"GroupNormalization", 3, 3, convert_group_norm},
    {"LpNormalization", 1, 1, convert_lp_norm},
    {"RMSNormalization", 2, 2, convert_rms_norm},
    {"LRN", 1, 1, convert_lrn},
    {"Resize", 1, 4, convert_resize},
    {"Upsample", 1, 2, convert_upsample},
    {"DepthToSpace", 1, 1, convert_blocks},
    {"SpaceToDepth", 1, 1, convert_blocks},
    {NULL, 0, 0, NULL},
};
