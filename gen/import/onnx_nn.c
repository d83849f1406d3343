// onnx_nn.c - convolution, pooling and sums of blocks that overlap. Whatever pads automatically in
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

// ---- more axes than the language's operators have ----

enum { MOST_AXES = 3 };

// What a window leaves alone of a tensor of too many axes: those go to the images while the rest
// is worked on. JAX has windows over all axes, of which most are 1.
typedef struct {
    int n, still[CLI_MAX_RANK];  // spatial axes that are not worked on
    ox_value *whole;             // the tensor
} aside;

static bool stands_still(const window *w, int a) {
    return w->kernel[a] == 1 && w->strides[a] == 1 && !w->pads[a] && !w->pads[a + w->n];
}

// Takes the axes out of the window; one is left in any case.
static void take_aside(window *w, aside *by) {
    window all = *w;
    *by = (aside){0};
    if (w->n <= MOST_AXES) {
        return;
    }
    w->n = 0;
    for (int a = 0; a < all.n; a++) {
        if (stands_still(&all, a) && (w->n || a + 1 < all.n)) {
            by->still[by->n++] = a;
            continue;
        }
        w->kernel[w->n] = all.kernel[a];
        w->strides[w->n] = all.strides[a];
        w->dilations[w->n++] = all.dilations[a];
    }
    for (int a = 0, k = 0, s = 0; a < all.n; a++) {
        if (s < by->n && by->still[s] == a) {
            s++;
            continue;
        }
        w->pads[k] = all.pads[a];
        w->pads[k++ + w->n] = all.pads[a + all.n];
    }
}

// Images and what stands aside first, then channels and the other axes: the order of the axes.
static ox_list aside_order(ox *o, const aside *by, int rank) {
    int64_t *perm = ox_alloc(o, CLI_MAX_RANK * sizeof *perm);
    int to = 0;
    perm[to++] = 0;
    for (int i = 0; i < by->n; i++) {
        perm[to++] = by->still[i] + 2;
    }
    for (int a = 1; a < rank; a++) {
        bool still = false;
        for (int i = 0; i < by->n; i++) {
            still = still || by->still[i] + 2 == a;
        }
        if (!still) {
            perm[to++] = a;
        }
    }
    return (ox_list){rank, perm, NULL};
}

// [N,C,i..] as [N*i.., C, the other i..].
static ox_value *set_aside(ox *o, ox_node *n, ox_value *x, aside *by) {
    if (!by->n) {
        return x;
    }
    ox_need_sym(o, n, x);
    by->whole = x;
    ox_list order = aside_order(o, by, x->rank);
    int64_t shape[CLI_MAX_RANK] = {-1};
    const char *sym[CLI_MAX_RANK] = {NULL};
    for (int i = by->n + 1; i < x->rank; i++) {
        shape[i - by->n] = x->dims[order.v[i]];
        sym[i - by->n] = x->sym[order.v[i]];
    }
    x = ox_with_list(o, n, "Transpose", ".turned", x, "perm", order);
    return ox_with_list(o, n, "Reshape", ".images", x, "shape",
                        (ox_list){by->whole->rank - by->n, shape, sym});
}

// The result back among all axes.
static ox_value *bring_back(ox *o, ox_node *n, ox_value *y, const aside *by, const char *name) {
    const ox_value *x = by->whole;
    ox_list order = aside_order(o, by, x->rank);
    int64_t shape[CLI_MAX_RANK], back[CLI_MAX_RANK];
    const char *sym[CLI_MAX_RANK];
    ox_need_sym(o, n, y);
    for (int i = 0; i < x->rank; i++) {
        bool still = i <= by->n;
        shape[i] = still ? x->dims[order.v[i]] : y->dims[i - by->n];
        sym[i] = still ? x->sym[order.v[i]] : y->sym[i - by->n];
        back[order.v[i]] = i;
    }
    y = ox_with_list(o, n, "Reshape", ".apart", y, "shape", (ox_list){x->rank, shape, sym});
    ox_begin(o);
    ox_arg(o, y);
    ox_set_list(o, "perm", (ox_list){x->rank, back, NULL});
    return ox_end(o, "Transpose", name, y->dtype);
}

// The filter without the axes that stand aside.
static ox_value *narrow_filter(ox *o, ox_node *n, ox_value *filter, const aside *by) {
    int64_t axes[CLI_MAX_RANK];
    for (int i = 0; i < by->n; i++) {
        axes[i] = by->still[i] + 2;
    }
    return by->n ? ox_with_list(o, n, "Squeeze", ".filter", filter, "axes",
                                (ox_list){by->n, axes, NULL})
                 : filter;
}

// The convolution that the node's attributes say, of `x` in place of its first input.
ox_value *ox_conv(ox *o, ox_node *n, ox_value *x, ox_value *weight, ox_value *bias,
                  const char *name) {
    window w = {0};
    aside by;
    ox_need_shape(o, n, weight);
    take_window(o, n, &w, weight->rank);
    take_kernel_of_weight(o, n, &w, weight);
    resolve_auto_pad(o, n, &w);
    if (w.n > MOST_AXES) {
        input_of(o, n, &w);
    }
    take_aside(&w, &by);
    int64_t group = ox_int(o, n, "group", 1);
    x = set_aside(o, n, x, &by);
    weight = narrow_filter(o, n, weight, &by);
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, weight);
    ox_arg(o, bias);
    set_window(o, &w);
    if (group != 1) {
        ox_set_int(o, "group", group);
    }
    const char *images = by.n ? ox_fresh(o, name, ".of_images") : name;
    ox_value *y = ox_end(o, "Conv", images, x->dtype);
    return by.n ? bring_back(o, n, y, &by, name) : y;
}

static void convert_conv(ox *o, ox_node *n) {
    ox_value *weight = ox_in(o, n, 1), *x = ox_in(o, n, 0), *bias = ox_opt(o, n, 2);
    ox_bind(o, n, 0, ox_conv(o, n, x, weight, bias, ox_first(o, n)));
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

// ---- where maxima stand ----

// Windows that indices of maxima were found in, so that these are known to be in them.
typedef struct ox_pooled {
    window w;
    int64_t in[CLI_MAX_RANK];  // sizes of what was pooled
    bool columns;              // counted column by column
} pooled;

// What a step along spatial axis `a` is worth in a flat index, rows first or columns.
static int64_t flat_step(const pooled *p, int a) {
    int64_t step = 1;
    for (int k = 0; k < p->w.n; k++) {
        step *= (p->columns ? k < a : k > a) ? p->in[k] : 1;
    }
    return step;
}

// Sums over axes of (count[a] * by[a] + from[a]) * step, as a constant of the given sizes.
static ox_value *flat_places(ox *o, ox_node *n, const pooled *p, const int64_t *sizes,
                             const int64_t *by, const int64_t *from, bool flat) {
    int64_t count;
    if (!cli_count(p->w.n, sizes, &count) || count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' with indices of too many elements", n->op);
    }
    ox_const *c = ox_make(o, CLI_I64, flat ? 1 : p->w.n, flat ? &count : sizes);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, place = 0;
        for (int a = p->w.n - 1; a >= 0; a--) {
            place += (rest % sizes[a] * by[a] + from[a]) * flat_step(p, a);
            rest /= sizes[a];
        }
        ox_seti(c, i, place);
    }
    return ox_constant(o, ox_base(o, n), ".flat", c);
}

// Where the image of each batch and channel begins.
static ox_value *image_places(ox *o, ox_node *n, const pooled *p, const ox_value *x) {
    int64_t dims[CLI_MAX_RANK] = {x->dims[0], x->dims[1]}, step = 1, count;
    for (int a = 0; a < p->w.n; a++) {
        dims[2 + a] = 1;
        step *= p->in[a];
    }
    if (!cli_count(x->rank, dims, &count) || count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' with indices of too many channels", n->op);
    }
    ox_const *c = ox_make(o, CLI_I64, x->rank, dims);
    for (int64_t i = 0; i < count; i++) {
        ox_seti(c, i, i * step);
    }
    return ox_constant(o, ox_base(o, n), ".images", c);
}

static ox_value *gather_known(ox *o, ox_node *n, ox_value *x, const ox_const *at, int axis) {
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, ox_constant(o, ox_base(o, n), ".places", at));
    ox_set_int(o, "axis", axis);
    return ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".taken"), x->dtype);
}

// Padding never wins; behind the end there is as much of it as the last window needs.
static ox_value *padded(ox *o, ox_node *n, const window *w, ox_value *x, const int64_t *out) {
    int64_t pads[2 * CLI_MAX_RANK] = {0};
    bool any = false;
    for (int a = 0; a < w->n; a++) {
        int64_t need = (out[a] - 1) * w->strides[a] + extent(w, a);
        int64_t there = x->dims[2 + a] + w->pads[a];
        pads[2 + a] = w->pads[a];
        pads[x->rank + 2 + a] = need > there ? need - there : 0;
        any = any || pads[2 + a] || pads[x->rank + 2 + a];
    }
    if (!any) {
        return x;
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "pads", (ox_list){2 * x->rank, pads, NULL});
    ox_set_float(o, "value", -HUGE_VAL);
    return ox_end(o, "Pad", ox_fresh(o, ox_base(o, n), ".padded"), x->dtype);
}

// The elements of every window, along a last axis: [N,C,out..,all].
static ox_value *windows_of(ox *o, ox_node *n, const window *w, ox_value *x, const int64_t *out) {
    int64_t perm[CLI_MAX_RANK] = {0, 1}, shape[CLI_MAX_RANK] = {x->dims[0], x->dims[1]}, all = 1;
    const char *sym[CLI_MAX_RANK] = {x->sym[0]};
    x = padded(o, n, w, x, out);
    for (int a = 0; a < w->n; a++) {
        int64_t dims[2] = {out[a], w->kernel[a]}, count;
        if (!cli_count(2, dims, &count) || count > OX_FOLD_LIMIT || all > OX_MAX_DIM) {
            ox_unsupported(o, n, "operator '%s' with indices of too many elements", n->op);
        }
        ox_const *at = ox_make(o, CLI_I64, 2, dims);
        for (int64_t i = 0; i < count; i++) {
            int64_t k = i % w->kernel[a];
            ox_seti(at, i, i / w->kernel[a] * w->strides[a] + k * w->dilations[a]);
        }
        x = gather_known(o, n, x, at, 2 + 2 * a);
        perm[2 + a] = 2 + 2 * a;
        perm[2 + w->n + a] = 3 + 2 * a;
        shape[2 + a] = out[a];
        all *= w->kernel[a];
    }
    shape[2 + w->n] = all;
    x = ox_with_list(o, n, "Transpose", ".windows", x, "perm", (ox_list){2 + 2 * w->n, perm, NULL});
    return ox_with_list(o, n, "Reshape", ".elements", x, "shape", (ox_list){3 + w->n, shape, sym});
}

// Output 1 of MaxPool: the first of a window's largest elements, as its place in the whole tensor.
static void bind_indices(ox *o, ox_node *n, const window *w, ox_value *x, ox_value *y,
                         bool columns) {
    pooled *p = ox_alloc(o, sizeof *p);
    int64_t out[CLI_MAX_RANK], from[CLI_MAX_RANK], none[CLI_MAX_RANK] = {0};
    *p = (pooled){.w = *w, .columns = columns};
    ox_need_sym(o, n, x);
    ox_need_shape(o, n, y);
    if (x->rank != w->n + 2 || 2 + 2 * w->n > CLI_MAX_RANK) {
        ox_unsupported(o, n, "operator 'MaxPool' with indices of %d axes", x->rank);
    }
    for (int a = 0; a < w->n; a++) {
        p->in[a] = x->dims[2 + a];
        out[a] = y->dims[2 + a];
        from[a] = -w->pads[a];
    }
    ox_value *all = windows_of(o, n, w, x, out);
    ox_begin(o);
    ox_arg(o, all);
    ox_set_int(o, "axis", 2 + w->n);
    ox_set_int(o, "keepdims", 0);
    ox_value *at = ox_end(o, "ArgMax", ox_fresh(o, ox_base(o, n), ".which"), CLI_I64);
    ox_value *inside = flat_places(o, n, p, w->kernel, w->dilations, none, true);
    ox_begin(o);
    ox_arg(o, inside);
    ox_arg(o, at);
    ox_set_int(o, "axis", 0);
    at = ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".inside"), CLI_I64);
    at =
        ox_binary(o, n, "Add", ".of_image", at, flat_places(o, n, p, out, w->strides, from, false));
    ox_begin(o);
    ox_arg(o, at);
    ox_arg(o, image_places(o, n, p, x));
    at = ox_end(o, "Add", n->out[1], CLI_I64);
    at->pooled = p;
    ox_bind(o, n, 1, at);
}

// Pools by the windows, whose axes may be taken aside or not. `ceil_mode` and
// `count_include_pad` are written where they are on.
static ox_value *pool(ox *o, ox_node *n, const char *op, ox_value *x, const char *name, window *w,
                      bool may_aside) {
    bool ceiling = take_pool(o, n, w);
    bool counted = ox_int(o, n, "count_include_pad", 0) != 0;
    aside by = {0};
    if (w->n > MOST_AXES && may_aside) {
        input_of(o, n, w);
        take_aside(w, &by);
        x = set_aside(o, n, x, &by);
    }
    set_pool(o, x, w);
    if (ceiling) {
        ox_set_int(o, "ceil_mode", 1);
    }
    if (counted && !strcmp(op, "AveragePool")) {
        ox_set_int(o, "count_include_pad", 1);
    }
    const char *images = by.n ? ox_fresh(o, name, ".of_images") : name;
    ox_value *y = ox_end(o, op, images, x->dtype);
    return by.n ? bring_back(o, n, y, &by, name) : y;
}

// The means that the node's attributes say, of `x` in place of its first input.
ox_value *ox_average(ox *o, ox_node *n, ox_value *x, const char *name) {
    window w = {0};
    return pool(o, n, "AveragePool", x, name, &w, true);
}

// MaxPool and AveragePool.
static void convert_pool(ox *o, ox_node *n) {
    window w = {0};
    bool columns = ox_int(o, n, "storage_order", 0) != 0;
    bool places = !strcmp(n->op, "MaxPool") && ox_wants(n, 1);
    ox_value *x = ox_in(o, n, 0);
    const char *name = ox_wants(n, 0) || !places ? ox_first(o, n) : ox_fresh(o, n->out[1], ".max");
    ox_value *y = pool(o, n, n->op, x, name, &w, !places);
    y->held = x->held;
    ox_bind(o, n, 0, y);
    if (places) {
        bind_indices(o, n, &w, x, y, columns);
    }
}

// The window that each place along an axis is in, where windows do not overlap.
static ox_value *window_at(ox *o, ox_node *n, const pooled *p, ox_value *v) {
    for (int a = 0; a < p->w.n; a++) {
        ox_const *at = ox_make(o, CLI_I64, 1, &p->in[a]);
        for (int64_t i = 0; i < p->in[a]; i++) {
            int64_t k = (i + p->w.pads[a]) / p->w.strides[a], last = v->dims[2 + a] - 1;
            ox_seti(at, i, k > last ? last : k);
        }
        v = gather_known(o, n, v, at, 2 + a);
        ox_need_shape(o, n, v);
    }
    return v;
}

// Whether the indices are those of windows as the node's that do not overlap, so that the only
// element that may be stored at a place is its window's.
static bool same_windows(const pooled *p, const window *w, const ox_value *x) {
    bool same = p && !p->columns && p->w.n == w->n && x->rank == w->n + 2;
    for (int a = 0; same && a < w->n; a++) {
        int64_t out =
            (x->dims[2 + a] - 1) * w->strides[a] - w->pads[a] - w->pads[a + w->n] + w->kernel[a];
        same = p->w.kernel[a] == w->kernel[a] && p->w.strides[a] == w->strides[a] &&
               p->w.pads[a] == w->pads[a] && p->w.dilations[a] == 1 && p->in[a] == out &&
               p->in[a] <= OX_FOLD_LIMIT && w->strides[a] >= w->kernel[a];
    }
    return same;
}

static void convert_max_unpool(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    int64_t ones[CLI_MAX_RANK], none[CLI_MAX_RANK] = {0};
    ox_list shape;
    window w = {0};
    if (take_pool(o, n, &w)) {
        ox_die(o, n, "operator 'MaxUnpool' with ceil_mode");
    }
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, at);
    while (!at->pooled && at->maker && at->maker->op && !strcmp(at->maker->op, "Identity")) {
        at = at->maker->args[0];
    }
    const pooled *p = at->pooled;
    bool fits = same_windows(p, &w, x) && at->rank == x->rank &&
                !memcmp(at->dims, x->dims, (size_t)x->rank * sizeof *x->dims);
    if (ox_int_input(o, n, "output_shape", 2, &shape)) {
        fits = fits && shape.n == x->rank;
        for (int a = 0; fits && a < w.n; a++) {
            fits = shape.v[2 + a] == p->in[a];
        }
    }
    if (!fits) {
        ox_unsupported(o, n,
                       "MaxUnpool whose indices are not those of a MaxPool with its windows, "
                       "which do not overlap and reach the end");
    }
    for (int a = 0; a < w.n; a++) {
        ones[a] = 1;
    }
    ox_value *flat = flat_places(o, n, p, p->in, ones, none, false);
    flat = ox_binary(o, n, "Add", ".own", flat, image_places(o, n, p, x));
    ox_value *is = ox_truth(o, n, "Equal", ".is", window_at(o, n, p, at), flat);
    x = window_at(o, n, p, x);
    ox_value *zero = ox_number(o, n, ".zero", x->dtype, 0);
    ox_begin(o);
    ox_arg(o, is);
    ox_arg(o, x);
    ox_arg(o, zero);
    ox_end_node(o, n, "Where");
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
    {"MaxUnpool", 2, 3, convert_max_unpool},
    {"Col2Im", 3, 3, convert_col2im},
    {"GlobalAveragePool", 1, 1, ox_plain},
    {"GlobalMaxPool", 1, 1, ox_plain},
    {"LpPool", 1, 1, convert_lp_pool},
    {"GlobalLpPool", 1, 1, convert_global_lp_pool},
    {NULL, 0, 0, NULL},
};
