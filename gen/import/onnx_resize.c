// onnx_resize.c - resizing images; cubic, whose positions and weights are known, is written out.
#include "onnx.h"

#include <math.h>

// What a Resize asks for, all axes listed; `scales` where it is not `sized`.
typedef struct {
    const char *mode, *coordinates, *nearest;
    int n;
    double scales[CLI_MAX_RANK];
    bool sized;
    ox_list sizes;
    double cubic;  // coefficient of cubic weights
    bool exclude;  // what lies outside has no weight
} resize;

// ---- cubic ----

// Where in an axis of `in` pixels pixel `i` of `out` lies.
static double position(const resize *r, int64_t i, int64_t in, int64_t out, double scale) {
    double at = (double)i;
    if (!strcmp(r->coordinates, "asymmetric")) {
        return at / scale;
    }
    if (!strcmp(r->coordinates, "align_corners")) {
        // Of the size that the scale says, as the standard's reference has it.
        return out > 1 ? at * (double)(in - 1) / ((double)in * scale - 1) : 0;
    }
    if (!strcmp(r->coordinates, "pytorch_half_pixel") && out == 1) {
        return 0;
    }
    return (at + 0.5) / scale - 0.5;
}

// Keys (1981): weight of a pixel `d` away.
static double cubic(double d, double a) {
    d = fabs(d);
    if (d <= 1) {
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    }
    return d < 2 ? a * (((d - 5) * d + 8) * d - 4) : 0;
}

// One axis: sum over 4 neighbours of weight * pixel, both known for every result.
static ox_value *resize_axis(ox *o, ox_node *n, const resize *r, ox_value *x, int axis, int64_t out,
                             double scale) {
    enum { TAPS = 4 };
    int64_t in = x->dims[axis], dims[CLI_MAX_RANK];
    ox_const *pixel[TAPS], *weight[TAPS];
    for (int a = 0; a < x->rank; a++) {
        dims[a] = a == axis ? out : 1;
    }
    for (int t = 0; t < TAPS; t++) {
        pixel[t] = ox_make(o, CLI_I64, 1, &out);
        weight[t] = ox_make(o, x->dtype, x->rank, dims);
    }
    for (int64_t i = 0; i < out; i++) {
        double at = position(r, i, in, out, scale), w[TAPS], sum = 0;
        int64_t first = (int64_t)floor(at) - 1;
        for (int t = 0; t < TAPS; t++) {
            bool outside = first + t < 0 || first + t >= in;
            w[t] = outside && r->exclude ? 0 : cubic(at - (double)(first + t), r->cubic);
            sum += w[t];
        }
        for (int t = 0; t < TAPS; t++) {
            int64_t p = first + t;
            ox_setf(weight[t], i, r->exclude ? w[t] / sum : w[t]);
            ox_seti(pixel[t], i, p < 0 ? 0 : p >= in ? in - 1 : p);
        }
    }
    ox_value *all = NULL;
    for (int t = 0; t < TAPS; t++) {
        ox_begin(o);
        ox_arg(o, x);
        ox_arg(o, ox_constant(o, ox_base(o, n), ".pixels", pixel[t]));
        ox_set_int(o, "axis", axis);
        ox_value *v = ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".pixel"), x->dtype);
        v = ox_binary(o, n, "Mul", ".weighted", v,
                      ox_constant(o, ox_base(o, n), ".weights", weight[t]));
        all = all ? ox_binary(o, n, "Add", ".sum", all, v) : v;
    }
    return all;
}

static void resize_cubic(ox *o, ox_node *n, const resize *r) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    int listed = r->sized ? r->sizes.n : r->n;
    if (listed != x->rank) {
        ox_die(o, n, "Resize of %d axes with %d numbers", x->rank, listed);
    }
    for (int a = 0; a < listed; a++) {
        double grown = (double)x->dims[a] * r->scales[a];
        int64_t out = r->sized ? r->sizes.v[a] : (int64_t)(grown < OX_MAX_DIM ? grown : OX_MAX_DIM);
        if (out < 1 || out > OX_FOLD_LIMIT) {
            ox_die(o, n, "Resize to a size of %lld", (long long)out);
        }
        double scale = r->sized ? (double)out / (double)x->dims[a] : r->scales[a];
        bool same = r->sized ? out == x->dims[a] : scale == 1;
        if (!same) {
            x = resize_axis(o, n, r, x, a, out, scale);
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

static void put_resize(ox *o, ox_node *n, const resize *r) {
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
        resize_cubic(o, n, r);
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

const ox_row ox_resize_rows[] = {
    {"Resize", 1, 4, convert_resize},
    {"Upsample", 1, 2, convert_upsample},
    {NULL, 0, 0, NULL},
};
