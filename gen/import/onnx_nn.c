// onnx_nn.c - convolution, pooling and sums of blocks that overlap. Whatever pads automatically in
// ONNX gets its pads in numbers here.
#include "onnx.h"

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

// Whether the mode makes the pads fit; VALID means none, NOTSET those that are given.
static bool fits_pads(ox *o, ox_node *n, window *w, const char *mode) {
    if (!strcmp(mode, "VALID")) {
        memset(w->pads, 0, sizeof w->pads);
    }
    return known_auto_pad(o, n, mode);
}

static const ox_value *input_of(ox *o, ox_node *n, const window *w) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    if (x->rank != w->n + 2) {
        ox_die(o, n, "input has %d axes, not %d", x->rank, w->n + 2);
    }
    return x;
}

// Shares an axis' pads between its ends; the odd one goes to the end (UPPER) or the begin.
static void share_pads(window *w, int a, int64_t total, const char *mode) {
    int64_t less = total > 0 ? total / 2 : 0, more = total > 0 ? total - less : 0;
    bool upper = !strcmp(mode, "SAME_UPPER");
    w->pads[a] = upper ? less : more;
    w->pads[a + w->n] = upper ? more : less;
}

// SAME makes ceil(input / stride) outputs.
static void resolve_auto_pad(ox *o, ox_node *n, window *w) {
    const char *mode = ox_string(o, n, "auto_pad", "NOTSET");
    if (!fits_pads(o, n, w, mode)) {
        return;
    }
    const ox_value *x = input_of(o, n, w);
    for (int a = 0; a < w->n; a++) {
        int64_t in = x->dims[a + 2], out = (in + w->strides[a] - 1) / w->strides[a];
        share_pads(w, a, (out - 1) * w->strides[a] + extent(w, a) - in, mode);
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
    bool same = fits_pads(o, n, w, mode), sized = ox_has(n, "output_shape");
    if (!same && !sized) {
        return;
    }
    const ox_value *x = input_of(o, n, w);
    int64_t out[CLI_MAX_RANK];
    take_list(o, n, "output_shape", out, w->n, 1, 0);
    for (int a = 0; a < w->n; a++) {
        int64_t in = x->dims[a + 2];
        int64_t wanted = sized ? out[a] : in * w->strides[a];
        int64_t total = w->strides[a] * (in - 1) + w->out_pads[a] + extent(w, a) - wanted;
        w->out_pads[a] += total < 0 ? -total : 0;
        share_pads(w, a, total, mode);
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

// The windows of a pooling node; whether windows may go beyond the end.
static bool take_pool(ox *o, ox_node *n, window *w) {
    ox_list kernel;
    if (!ox_ints(o, n, "kernel_shape", &kernel) || kernel.n < 1 || kernel.n > CLI_MAX_RANK - 2) {
        ox_die(o, n, "operator '%s' without a usable kernel_shape", n->op);
    }
    take_window(o, n, w, kernel.n + 2);
    take_list(o, n, "kernel_shape", w->kernel, w->n, 1, 1);
    resolve_auto_pad(o, n, w);
    return ox_int(o, n, "ceil_mode", 0) != 0;
}

static void set_pool(ox *o, ox_value *x, const window *w) {
    ox_begin(o);
    ox_arg(o, x);
    set_window_list(o, "kernel_shape", w->kernel, w->n, 0);
    set_window(o, w);
}

// MaxPool and AveragePool. `ceil_mode` and `count_include_pad` are written where they are on.
static void convert_pool(ox *o, ox_node *n) {
    window w = {0};
    bool ceiling = take_pool(o, n, &w);
    bool counted = ox_int(o, n, "count_include_pad", 0) != 0;
    ox_int(o, n, "storage_order", 0);  // of the indices, which are not supported
    set_pool(o, ox_in(o, n, 0), &w);
    if (ceiling) {
        ox_set_int(o, "ceil_mode", 1);
    }
    if (counted && !strcmp(n->op, "AveragePool")) {
        ox_set_int(o, "count_include_pad", 1);
    }
    ox_end_node(o, n, n->op);
}

// |x|^p; and the root that belongs to it, which ends the node.
static ox_value *powers(ox *o, ox_node *n, ox_value *x, int64_t p) {
    ox_value *size = p == 2 ? x : ox_unary(o, n, "Abs", ".size", x);
    if (p == 2) {
        return ox_binary(o, n, "Mul", ".square", x, x);
    }
    return p == 1 ? size : ox_by_number(o, n, "Pow", ".power", size, (double)p);
}

static void end_root(ox *o, ox_node *n, ox_value *sum, int64_t p) {
    if (p == 2) {
        ox_begin(o);
        ox_arg(o, sum);
        ox_end_node(o, n, "Sqrt");
    } else {
        ox_end_binary(o, n, "Pow", sum, ox_number(o, n, ".root", sum->dtype, 1 / (double)p));
    }
}

static int64_t take_p(ox *o, ox_node *n) {
    int64_t p = n->opset < 2 ? 2 : ox_int(o, n, "p", 2);
    if (n->opset < 2) {
        p = (int64_t)ox_float(o, n, "p", 2);
    }
    if (p < 1 || p > 64) {
        ox_unsupported(o, n, "operator '%s' with p = %lld", n->op, (long long)p);
    }
    return p;
}

// The mean over all of a window, pads included, times its size.
static void convert_lp_pool(ox *o, ox_node *n) {
    window w = {0};
    int64_t p = take_p(o, n), size = 1;
    if (take_pool(o, n, &w)) {
        ox_unsupported(o, n, "operator 'LpPool' with ceil_mode");
    }
    for (int a = 0; a < w.n; a++) {
        size *= size <= OX_MAX_DIM ? w.kernel[a] : 1;
    }
    ox_value *x = ox_in(o, n, 0);
    set_pool(o, powers(o, n, x, p), &w);
    ox_set_int(o, "count_include_pad", 1);
    ox_value *mean = ox_end(o, "AveragePool", ox_fresh(o, ox_base(o, n), ".mean"), x->dtype);
    end_root(o, n, ox_by_number(o, n, "Mul", ".sum", mean, (double)size), p);
}

static void convert_global_lp_pool(ox *o, ox_node *n) {
    int64_t p = take_p(o, n), axes[CLI_MAX_RANK];
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    if (x->rank < 3) {
        ox_die(o, n, "operator '%s' on a tensor of %d axes", n->op, x->rank);
    }
    for (int a = 2; a < x->rank; a++) {
        axes[a - 2] = a;
    }
    ox_value *v = powers(o, n, x, p);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "axes", (ox_list){x->rank - 2, axes, NULL});
    ox_set_int(o, "keepdims", 1);
    end_root(o, n, ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".sum"), x->dtype), p);
}

// ---- blocks that overlap ----

// A list that is an input.
static void known_list(ox *o, ox_node *n, const char *name, int input, int64_t *to, int count) {
    ox_list list;
    if (!ox_int_input(o, n, name, input, &list) || list.n != count) {
        ox_die(o, n, "operator '%s' without a usable %s", n->op, name);
    }
    for (int i = 0; i < count; i++) {
        if (list.v[i] < 1 || list.v[i] > OX_MAX_DIM || (list.sym && list.sym[i])) {
            ox_unsupported(o, n, "operator '%s' whose %s is not known or not usable", n->op, name);
        }
        to[i] = list.v[i];
    }
}

// x [N,C*K..,L..] as [N,C,K..,L..]: the blocks' elements, and where blocks stand.
static ox_value *split_blocks(ox *o, ox_node *n, ox_value *x, const window *w,
                              const int64_t *image) {
    int64_t dims[CLI_MAX_RANK], inside = 1, places = 1;
    const char *sym[CLI_MAX_RANK] = {x->sym[0]};
    for (int a = 0; a < w->n; a++) {
        int64_t room = image[a] + w->pads[a] + w->pads[a + w->n] - extent(w, a);
        dims[2 + a] = w->kernel[a];
        dims[2 + w->n + a] = room < 0 ? 0 : room / w->strides[a] + 1;
        inside *= inside <= OX_MAX_DIM ? w->kernel[a] : 1;
        places *= places <= OX_MAX_DIM ? dims[2 + w->n + a] : 1;
    }
    if (x->rank != 3 || x->dims[1] % inside || x->dims[2] != places || x->sym[1] || x->sym[2]) {
        ox_die(o, n, "operator 'Col2Im' whose blocks do not make up its input");
    }
    dims[0] = x->dims[0];
    dims[1] = x->dims[1] / inside;
    return ox_with_list(o, n, "Reshape", ".blocks", x, "shape", (ox_list){2 + 2 * w->n, dims, sym});
}

// The place of a block along an axis of the image, times its stride.
static const char *place_of(ox *o, const window *w, int a, const char *i, const char *r) {
    const char *by = w->dilations[a] == 1 ? "" : ox_format(o, "%lld*", (long long)w->dilations[a]);
    const char *pad = w->pads[a] ? ox_format(o, "+%lld", (long long)w->pads[a]) : "";
    return ox_format(o, "%s%d%s-%s%s%d", i, a + 2, pad, by, r, a);
}

// No operator of the language, so it is written out: a pixel is the sum of the elements of blocks
// that lie on it,
//     y[n,c,i..] = sum(r..) x[n,c,r..,(i+pad-dilation*r)/stride..] where the division is exact
static void convert_col2im(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list shape;
    window w = {0};
    int64_t image[CLI_MAX_RANK];
    if (!ox_int_input(o, n, "block_shape", 2, &shape) || shape.n < 1 || shape.n > 3) {
        ox_die(o, n, "operator 'Col2Im' without a usable block_shape");
    }
    take_window(o, n, &w, shape.n + 2);
    known_list(o, n, "image_shape", 1, image, w.n);
    known_list(o, n, "block_shape", 2, w.kernel, w.n);
    ox_need_sym(o, n, x);
    x = split_blocks(o, n, x, &w, image);
    const char *i = ox_free_name(o, "i"), *r = ox_free_name(o, "r");
    char *name = NULL, *head = NULL, *sums = NULL, *reads = NULL, *exact = NULL, *ranges = NULL;
    ox_put_name(&name, x->name);
    for (int a = 0; a < w.n; a++) {
        const char *at = place_of(o, &w, a, i, r);
        ox_put(&head, ",%s%d", i, a + 2);
        ox_put(&sums, "%s%s%d", a ? "," : "", r, a);
        ox_put(&reads, ",%s%d", r, a);
        ox_put(&ranges, "%s%s%d in 0:%lld", a ? OX_COMMA : "", i, a + 2, (long long)image[a]);
        if (w.strides[a] > 1) {
            ox_put(&exact, OX_BREAK "* [(%s)%%%lld == 0]", at, (long long)w.strides[a]);
        }
    }
    for (int a = 0; a < w.n; a++) {
        const char *at = place_of(o, &w, a, i, r);
        ox_put(&reads, w.strides[a] > 1 ? ",(%s)/%lld" : ",%s", at, (long long)w.strides[a]);
    }
    const char *from = ox_take(o, &name);
    ox_begin(o);
    ox_arg(o, x);
    ox_put(&o->attrs,
           "[%s0,%s1%s] = sum(%s) %s[%s0,%s1%s]%s" OX_BREAK_FIRST "where %s" OX_COMMA "pad %s 0", i,
           i, ox_take(o, &head), ox_take(o, &sums), from, i, i, ox_take(o, &reads),
           ox_take(o, &exact), ox_take(o, &ranges), from);
    ox_end_node(o, n, NULL);
}

const ox_row ox_nn_rows[] = {
    {"Conv", 2, 3, convert_conv},
    {"ConvTranspose", 2, 3, convert_conv_transpose},
    {"MaxPool", 1, 1, convert_pool},
    {"AveragePool", 1, 1, convert_pool},
    {"Col2Im", 3, 3, convert_col2im},
    {"GlobalAveragePool", 1, 1, ox_plain},
    {"GlobalMaxPool", 1, 1, ox_plain},
    {"LpPool", 1, 1, convert_lp_pool},
    {"GlobalLpPool", 1, 1, convert_global_lp_pool},
    {NULL, 0, 0, NULL},
};
