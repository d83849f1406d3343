// onnx_resize.c - resizing images; what the language's own Resize has not (cubic and antialiased
// weights, kept aspect ratios) is written out: which pixels count, and how much, is known.
#include "onnx.h"

#include <math.h>

// What a Resize asks for, all axes listed; `scales` where it is not `sized`, or `kept`, as what
// sizes an aspect ratio leaves.
typedef struct {
    const char *mode, *coordinates, *nearest;
    int n;
    double scales[CLI_MAX_RANK];
    bool sized, kept;
    ox_list sizes;
    double cubic;    // coefficient of cubic weights
    bool exclude;    // what lies outside has no weight
    bool antialias;  // pixels that are closer than those of the result are averaged
    bool cut;        // only what lies between `from` and `to` of an axis, 0 and 1 its ends
    double from[CLI_MAX_RANK], to[CLI_MAX_RANK];
    double outside;  // what is seen of a cut that reaches beyond the image
} resize;

// ---- written out ----

enum { CHAIN = 4 };  // weighted pixels up to which they are added one by one

// One axis: sum over `taps` neighbours of weight * pixel, both known for every result.
typedef struct {
    int axis;
    int64_t in, out, taps;
    double scale;
    double narrow;  // what distances are scaled by
} resize_along;

// Where in an axis of `in` pixels pixel `i` of `out` lies.
static double position(const resize *r, const resize_along *a, int64_t i) {
    double at = (double)i, in = (double)a->in, out = (double)a->out;
    if (r->cut) {
        double from = r->from[a->axis], to = r->to[a->axis];
        at = out > 1 ? from + at * (to - from) / (out - 1) : (from + to) / 2;
        return at * (in - 1);
    }
    if (!strcmp(r->coordinates, "asymmetric")) {
        return at / a->scale;
    }
    if (!strcmp(r->coordinates, "align_corners")) {
        // Of the size that the scale says, as the standard's reference has it.
        return out > 1 ? at * (in - 1) / (in * a->scale - 1) : 0;
    }
    if (!strcmp(r->coordinates, "pytorch_half_pixel") && out == 1) {
        return 0;
    }
    if (!strcmp(r->coordinates, "tf_half_pixel_for_nn")) {
        return (at + 0.5) / a->scale;
    }
    double middle = (at + 0.5) / a->scale - 0.5;
    bool symmetric = !strcmp(r->coordinates, "half_pixel_symmetric");
    return symmetric ? in / 2 * (1 - out / (in * a->scale)) + middle : middle;
}

// Keys (1981): weight of a pixel `d` away.
static double cubic(double d, double a) {
    d = fabs(d);
    if (d <= 1) {
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    }
    return d < 2 ? a * (((d - 5) * d + 8) * d - 4) : 0;
}

// How far the weights of a mode reach.
static double reach(const resize *r) { return !strcmp(r->mode, "cubic") ? 2 : 1; }

static double nearest(const resize *r, double at) {
    if (!strcmp(r->nearest, "floor") || !strcmp(r->nearest, "ceil")) {
        return *r->nearest == 'f' ? floor(at) : ceil(at);
    }
    return strcmp(r->nearest, "round_prefer_ceil") ? ceil(at - 0.5) : floor(at + 0.5);
}

// The first pixel that counts for one at `at`, and the weights of those from there on.
static int64_t weigh(const resize *r, const resize_along *a, double at, double *w) {
    if (!strcmp(r->mode, "nearest")) {
        w[0] = 1;
        return (int64_t)nearest(r, at);
    }
    bool is_cubic = !strcmp(r->mode, "cubic");
    double sum = 0;
    int64_t first = (int64_t)floor(at - reach(r) / a->narrow) + 1;
    for (int64_t t = 0; t < a->taps; t++) {
        double d = fabs(at - (double)(first + t)) * a->narrow;
        bool outside = first + t < 0 || first + t >= a->in;
        w[t] = is_cubic ? cubic(d, r->cubic) : d < 1 ? 1 - d : 0;
        w[t] = outside && r->exclude ? 0 : w[t];
        sum += w[t];
    }
    for (int64_t t = 0; t < a->taps && (r->exclude || r->antialias) && sum != 0; t++) {
        w[t] /= sum;
    }
    return first;
}

// Whether a place is not in the image, so that what is there is given.
static bool lies_outside(const resize *r, const resize_along *a, double at) {
    return r->cut && (at < 0 || at > (double)(a->in - 1));
}

// What is seen outside, added to results that are 0 there.
static ox_value *with_outside(ox *o, ox_node *n, const resize *r, ox_value *x,
                              const resize_along *a) {
    int64_t dims[CLI_MAX_RANK] = {a->out};
    bool any = false;
    for (int k = 1; k < x->rank - a->axis; k++) {
        dims[k] = 1;
    }
    ox_const *c = ox_make(o, x->dtype, x->rank - a->axis, dims);
    for (int64_t i = 0; i < a->out; i++) {
        bool outside = lies_outside(r, a, position(r, a, i));
        ox_setf(c, i, outside ? r->outside : 0);
        any = any || (outside && r->outside != 0);
    }
    ox_value *by = any ? ox_constant(o, ox_base(o, n), ".outside", c) : NULL;
    return any ? ox_binary(o, n, "Add", ".filled", x, by) : x;
}

static ox_value *gathered(ox *o, ox_node *n, ox_value *x, const ox_const *pixels, int axis) {
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, ox_constant(o, ox_base(o, n), ".pixels", pixels));
    ox_set_int(o, "axis", axis);
    return ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".pixel"), x->dtype);
}

// Pixel `t` of each result [out] and its weight [out,1..].
static ox_value *weighted_pixel(ox *o, ox_node *n, ox_value *x, const resize_along *a,
                                const ox_const *pixels, const ox_const *weights, int64_t t) {
    int64_t dims[CLI_MAX_RANK] = {a->out};
    for (int k = 1; k < x->rank - a->axis; k++) {
        dims[k] = 1;
    }
    ox_const *p = ox_make(o, CLI_I64, 1, dims);
    ox_const *w = ox_make(o, x->dtype, x->rank - a->axis, dims);
    bool ones = true;
    for (int64_t i = 0; i < a->out; i++) {
        ox_seti(p, i, ox_geti(pixels, i * a->taps + t));
        ox_setf(w, i, ox_getf(weights, i * a->taps + t));
        ones = ones && ox_getf(w, i) == 1;
    }
    ox_value *v = gathered(o, n, x, p, a->axis);
    ox_value *by = ones ? NULL : ox_constant(o, ox_base(o, n), ".weights", w);
    return ones ? v : ox_binary(o, n, "Mul", ".weighted", v, by);
}

static ox_value *resize_axis(ox *o, ox_node *n, const resize *r, ox_value *x,
                             const resize_along *a) {
    int64_t dims[CLI_MAX_RANK] = {a->out, a->taps}, sum_over = a->axis + 1;
    int rank = x->rank + 1 - a->axis;
    for (int k = 2; k < rank; k++) {
        dims[k] = 1;
    }
    ox_const *pixels = ox_make(o, CLI_I64, 2, dims), *weights = ox_make(o, x->dtype, rank, dims);
    double *w = ox_alloc(o, (size_t)a->taps * sizeof *w);
    for (int64_t i = 0; i < a->out; i++) {
        double at = position(r, a, i);
        bool outside = lies_outside(r, a, at);
        int64_t first = outside ? 0 : weigh(r, a, at, w);
        for (int64_t t = 0; t < a->taps; t++) {
            int64_t p = first + t;
            ox_setf(weights, i * a->taps + t, outside ? 0 : w[t]);
            ox_seti(pixels, i * a->taps + t, p < 0 ? 0 : p >= a->in ? a->in - 1 : p);
        }
    }
    ox_value *all = NULL;
    for (int64_t t = 0; t < a->taps && a->taps <= CHAIN; t++) {
        ox_value *v = weighted_pixel(o, n, x, a, pixels, weights, t);
        all = all ? ox_binary(o, n, "Add", ".sum", all, v) : v;
    }
    if (all) {
        return all;
    }
    all = ox_binary(o, n, "Mul", ".weighted", gathered(o, n, x, pixels, a->axis),
                    ox_constant(o, ox_base(o, n), ".weights", weights));
    ox_begin(o);
    ox_arg(o, all);
    ox_set_list(o, "axes", (ox_list){1, &sum_over, NULL});
    ox_set_int(o, "keepdims", 0);
    return ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".sum"), x->dtype);
}

// In single precision, as runtimes and the shapes that exporters write have it.
static int64_t scaled_size(int64_t in, double scale) {
    float size = (float)in * (float)scale;
    return size < (float)OX_MAX_DIM ? (int64_t)size : OX_MAX_DIM;
}

// How axis `axis` is resized; false: not at all.
static bool take_along(ox *o, ox_node *n, const resize *r, const ox_value *x, int axis,
                       resize_along *a) {
    *a = (resize_along){.axis = axis, .in = x->dims[axis], .narrow = 1};
    a->out = r->sized ? r->sizes.v[axis] : scaled_size(a->in, r->scales[axis]);
    if (a->out < 1 || a->out > OX_FOLD_LIMIT) {
        ox_die(o, n, "Resize to a size of %lld", (long long)a->out);
    }
    bool by_size = r->sized && !r->kept;
    a->scale = by_size ? (double)a->out / (double)a->in : r->scales[axis];
    if (r->antialias && a->scale < 1) {
        a->narrow = a->scale;
    }
    double taps = strcmp(r->mode, "nearest") ? ceil(2 * reach(r) / a->narrow) : 1;
    if (taps > OX_FOLD_LIMIT || (int64_t)taps * a->out > OX_FOLD_LIMIT ||
        (taps > CHAIN && x->rank == CLI_MAX_RANK)) {
        ox_unsupported(o, n, "Resize from %lld to %lld pixels with too many weights",
                       (long long)a->in, (long long)a->out);
    }
    a->taps = (int64_t)taps;
    if (r->cut && (r->from[axis] != 0 || r->to[axis] != 1)) {
        return true;
    }
    return a->out != a->in || (!by_size && a->scale != 1);
}

static void resize_written(ox *o, ox_node *n, const resize *r) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    int listed = r->sized ? r->sizes.n : r->n;
    if (listed != x->rank) {
        ox_die(o, n, "Resize of %d axes with %d numbers", x->rank, listed);
    }
    for (int axis = 0; axis < listed; axis++) {
        resize_along a;
        if (take_along(o, n, r, x, axis, &a)) {
            ox_value *all = resize_axis(o, n, r, x, &a);
            ox_need_shape(o, n, all);
            x = with_outside(o, n, r, all, &a);
            ox_need_shape(o, n, x);
        }
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_end_node(o, n, "Identity");
}

// ---- the operators ----

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

static void take_scales(ox *o, ox_node *n, resize *r, const ox_const *c) {
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

static void check_scales(ox *o, ox_node *n, const resize *r) {
    for (int i = 0; i < r->n; i++) {
        if (!(r->scales[i] > 0 && r->scales[i] < OX_MAX_DIM)) {
            ox_die(o, n, "%s with a scale of %g", n->op, r->scales[i]);
        }
    }
}

// Opset 18 may name the axes; here all are listed.
static void spread_over_axes(ox *o, ox_node *n, resize *r) {
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

// Sizes are bounds of one scale that all axes have: what fits into them, or holds them.
static void keep_aspect(ox *o, ox_node *n, resize *r) {
    const char *policy = ox_string(o, n, "keep_aspect_ratio_policy", "stretch");
    bool larger = !strcmp(policy, "not_smaller");
    if (!r->sized || !strcmp(policy, "stretch")) {
        return;
    }
    if (!larger && strcmp(policy, "not_larger")) {
        char shown[60];
        ox_die(o, n, "Resize with an unknown keep_aspect_ratio_policy '%s'",
               cli_escape(shown, sizeof shown, policy));
    }
    ox_value *x = ox_in(o, n, 0);
    ox_list axes;
    bool listed = ox_ints(o, n, "axes", &axes);
    ox_need_shape(o, n, x);
    if ((listed ? axes.n : x->rank) != r->sizes.n || !r->sizes.n) {
        ox_die(o, n, "Resize with axes that do not match");
    }
    int64_t *sizes = ox_alloc(o, CLI_MAX_RANK * sizeof *sizes);
    double scale = 0;
    for (int i = 0; i < r->sizes.n; i++) {
        int64_t axis = listed ? ox_axis(o, n, axes.v[i], x->rank) : i;
        double own = (double)r->sizes.v[i] / (double)x->dims[axis];
        scale = !i || (larger ? own > scale : own < scale) ? own : scale;
        sizes[i] = x->dims[axis];
    }
    for (int i = 0; i < r->sizes.n; i++) {
        double size = floor(scale * (double)sizes[i] + 0.5);
        sizes[i] = size > 0 && size < OX_MAX_DIM ? (int64_t)size : 0;
        r->scales[i] = scale;
    }
    r->kept = true;
    r->sizes = (ox_list){r->sizes.n, sizes, NULL};
}

// Which part of each axis is seen; those that are not named are seen whole.
static void take_region(ox *o, ox_node *n, resize *r) {
    ox_value *v = ox_opt(o, n, 1), *x = ox_in(o, n, 0);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    double outside = ox_float(o, n, "extrapolation_value", 0);
    if (strcmp(r->coordinates, "tf_crop_and_resize")) {
        return;
    }
    if (!c) {
        ox_unsupported(o, n, "Resize of a region %s", v ? "computed at run time" : "without one");
    }
    ox_list axes;
    bool listed = ox_ints(o, n, "axes", &axes);
    ox_need_shape(o, n, x);
    int64_t count = listed ? axes.n : x->rank;
    if (c->rank != 1 || c->count != 2 * count || !ox_is_float(c->dtype)) {
        ox_die(o, n, "Resize with a region that does not name two places an axis");
    }
    for (int a = 0; a < x->rank; a++) {
        r->from[a] = 0;
        r->to[a] = 1;
    }
    for (int i = 0; i < (int)count; i++) {
        int64_t axis = listed ? ox_axis(o, n, axes.v[i], x->rank) : i;
        r->from[axis] = ox_getf(c, i);
        r->to[axis] = ox_getf(c, count + i);
        if (!(fabs(r->from[axis]) < OX_MAX_DIM && fabs(r->to[axis]) < OX_MAX_DIM)) {
            ox_die(o, n, "Resize with a region far outside its input");
        }
    }
    if (!r->sized) {
        ox_unsupported(o, n,
                       "Resize of a region by scales, of which the standard and runtimes "
                       "make different sizes; give it sizes");
    }
    r->cut = true;
    r->outside = outside;
}

// Whether the language's Resize, to which a scale is the simplest fraction that rounds to it, makes
// another size of `in`, or takes no such scale.
static bool is_no_fraction(int64_t in, double scale) {
    enum { LARGEST = 4096 };
    for (int64_t den = 1; den <= LARGEST; den++) {
        double num = floor(scale * (double)den + 0.5);
        if (num > 0 && (float)(num / (double)den) == (float)scale) {
            return floor((double)in * num / (double)den) != (double)scaled_size(in, scale);
        }
    }
    return true;
}

static bool has_odd_scale(ox *o, ox_node *n, const resize *r) {
    ox_value *x = ox_in(o, n, 0);
    bool any = false;
    if (r->sized) {
        return false;
    }
    ox_need_sym(o, n, x);
    for (int a = 0; a < r->n && r->n == x->rank; a++) {
        any = any || (!x->sym[a] && is_no_fraction(x->dims[a], r->scales[a]));
    }
    return any;
}

static void put_resize(ox *o, ox_node *n, const resize *r) {
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const coordinates[] = {
        "half_pixel",           "asymmetric",           "align_corners",      "pytorch_half_pixel",
        "half_pixel_symmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize", NULL};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil", NULL};
    check_word(o, n, "mode", r->mode, modes);
    check_word(o, n, "coordinate_transformation_mode", r->coordinates, coordinates);
    check_word(o, n, "nearest_mode", r->nearest, roundings);
    check_scales(o, n, r);
    if (!strcmp(r->mode, "cubic") || r->antialias || r->kept || r->cut ||
        !strcmp(r->coordinates, "half_pixel_symmetric") ||
        !strcmp(r->coordinates, "tf_half_pixel_for_nn") || has_odd_scale(o, n, r)) {
        resize_written(o, n, r);
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
    resize r = {ox_string(o, n, "mode", "nearest"), "asymmetric", "floor", .cubic = -0.75};
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
    resize r = {ox_string(o, n, "mode", "nearest"), "asymmetric", "floor", .cubic = -0.75};
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
    resize r = {ox_string(o, n, "mode", "nearest"),
                ox_string(o, n, "coordinate_transformation_mode", "half_pixel"),
                ox_string(o, n, "nearest_mode", "round_prefer_floor"), .n = 0};
    r.cubic = ox_float(o, n, "cubic_coeff_a", -0.75);
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
    r.antialias = ox_int(o, n, "antialias", 0) != 0;
    if (!r.antialias && r.exclude && strcmp(r.mode, "cubic")) {
        ox_unsupported(o, n, "Resize with exclude_outside in a mode that is not cubic");
    }
    if (r.antialias && !strcmp(r.mode, "nearest")) {
        ox_die(o, n, "Resize with antialias and mode 'nearest'");
    }
    if (r.sized && r.sizes.n > CLI_MAX_RANK) {
        ox_die(o, n, "Resize to %d axes", r.sizes.n);
    }
    keep_aspect(o, n, &r);
    spread_over_axes(o, n, &r);
    take_region(o, n, &r);
    put_resize(o, n, &r);
}

const ox_row ox_resize_rows[] = {
    {"Resize", 1, 4, convert_resize},
    {"Upsample", 1, 2, convert_upsample},
    {NULL, 0, 0, NULL},
};
