// onnx_sample.c - images interpolated at positions that a tensor holds: grids (GridSample), regions
// (RoiAlign), filters with offsets (DeformConv).
#include "onnx.h"

#include <math.h>

typedef enum { ZEROS, BORDER, REFLECTION } padding;  // what is read outside an image

enum { MAX_TAPS = 4, MAX_AXES = 3 };

// The pixels along an axis that count for every position: where they stand, as whole numbers times
// what one step is worth in `pixels`, and their weights (NULL: 1).
typedef struct {
    int n;
    ox_value *place[MAX_TAPS], *weight[MAX_TAPS];
} taps;

typedef struct {
    ox *o;
    ox_node *n;
    padding padding;
    bool corners;      // -1 and 1 are the middles of the outermost pixels, not their edges
    ox_value *pixels;  // [N,C,all], of which N and C have positions of their own; or [C,all]
    ox_list spread;    // shape of positions in the former
    const char *join;  // "Add" or "Max": what weighted pixels are joined by
} sampler;

static ox_value *scaled(sampler *s, const char *op, const char *suffix, ox_value *v, double by) {
    return ox_by_number(s->o, s->n, op, suffix, v, by);
}

// number - v
static ox_value *from_number(sampler *s, const char *suffix, double number, ox_value *v) {
    ox_value *c = ox_number(s->o, s->n, ".number", v->dtype, number);
    return ox_binary(s->o, s->n, "Sub", suffix, c, v);
}

// ---- along one axis ----

// Whether `at` is in low .. high.
static ox_value *is_inside(sampler *s, ox_value *at, double low, double high) {
    ox_value *least = ox_number(s->o, s->n, ".least", at->dtype, low);
    ox_value *most = ox_number(s->o, s->n, ".most", at->dtype, high);
    ox_value *above = ox_truth(s->o, s->n, "GreaterOrEqual", ".low", at, least);
    ox_value *below = ox_truth(s->o, s->n, "LessOrEqual", ".high", at, most);
    return ox_truth(s->o, s->n, "And", ".inside", above, below);
}

// Mirrored at the middles of the outermost pixels or at their edges until it is between them.
static ox_value *reflected(sampler *s, ox_value *v, int64_t size) {
    double low = s->corners ? 0 : -0.5, range = (double)(s->corners ? size - 1 : size);
    if (range == 0) {
        return ox_clip_to(s->o, s->n, ".inside", v, 0, 0);
    }
    v = ox_unary(s->o, s->n, "Abs", ".beyond", low != 0 ? scaled(s, "Sub", ".from", v, low) : v);
    ox_begin(s->o);
    ox_arg(s->o, v);
    ox_arg(s->o, ox_number(s->o, s->n, ".period", v->dtype, 2 * range));
    ox_set_int(s->o, "fmod", 1);
    v = ox_end(s->o, "Mod", ox_fresh(s->o, ox_base(s->o, s->n), ".left"), v->dtype);
    v = ox_unary(s->o, s->n, "Abs", ".folded", scaled(s, "Sub", ".folded", v, range));
    return from_number(s, ".inside", low + range, v);
}

// Whole positions as places, and their weight with what padding makes of it.
static void add_tap(sampler *s, taps *t, ox_value *at, ox_value *weight, int64_t size,
                    int64_t step) {
    ox *o = s->o;
    if (s->padding == ZEROS) {
        ox_value *is = is_inside(s, at, 0, (double)(size - 1));
        is = ox_cast_to(o, s->n, ".is", is, at->dtype);
        weight = weight ? ox_binary(o, s->n, "Mul", ".weight", weight, is) : is;
    }
    at = s->padding == REFLECTION ? reflected(s, at, size)
                                  : ox_clip_to(o, s->n, ".clipped", at, 0, (double)(size - 1));
    at = ox_cast_to(o, s->n, ".whole", at, CLI_I64);
    t->place[t->n] = step == 1 ? at : scaled(s, "Mul", ".step", at, (double)step);
    t->weight[t->n++] = weight;
}

// Keys (1981): the weight of a pixel `d` away, up to 1 and from there on.
static ox_value *cubic(sampler *s, ox_value *d, bool far) {
    const double a = -0.75, near_by[] = {a + 2, -(a + 3), 0, 1},
                 far_by[] = {a, -5 * a, 8 * a, -4 * a};
    const double *by = far ? far_by : near_by;
    ox_value *v = scaled(s, "Mul", ".cubic", d, by[0]);
    for (int i = 1; i < 4; i++) {
        v = by[i] != 0 ? scaled(s, "Add", ".cubic", v, by[i]) : v;
        v = i < 3 ? ox_binary(s->o, s->n, "Mul", ".cubic", v, d) : v;
    }
    return v;
}

// The pixels that count for positions `at` of an axis, in pixels.
static taps taps_of(sampler *s, const char *mode, ox_value *at, int64_t size, int64_t step) {
    taps t = {0};
    if (!strcmp(mode, "nearest")) {
        add_tap(s, &t, ox_unary(s->o, s->n, "Round", ".round", at), NULL, size, step);
        return t;
    }
    bool four = !strcmp(mode, "cubic");
    ox_value *first = ox_unary(s->o, s->n, "Floor", ".floor", at);
    ox_value *next = scaled(s, "Add", ".next", first, 1);
    ox_value *right = ox_binary(s->o, s->n, "Sub", ".far", at, first);
    ox_value *left = ox_binary(s->o, s->n, "Sub", ".near", next, at);
    if (!four) {
        add_tap(s, &t, first, left, size, step);
        add_tap(s, &t, next, right, size, step);
        return t;
    }
    ox_value *before = scaled(s, "Sub", ".before", first, 1);
    ox_value *behind = scaled(s, "Add", ".behind", first, 2);
    add_tap(s, &t, before, cubic(s, scaled(s, "Add", ".d", right, 1), true), size, step);
    add_tap(s, &t, first, cubic(s, right, false), size, step);
    add_tap(s, &t, next, cubic(s, left, false), size, step);
    add_tap(s, &t, behind, cubic(s, scaled(s, "Add", ".d", left, 1), true), size, step);
    return t;
}

// ---- all axes ----

static ox_value *pixel(sampler *s, ox_value *at) {
    bool own = s->spread.n > 0;
    if (own) {
        at = ox_with_int(s->o, s->n, "Unsqueeze", ".at", at, "axes", 1);
        at = ox_with_list(s->o, s->n, "Expand", ".places", at, "shape", s->spread);
    }
    ox_begin(s->o);
    ox_arg(s->o, s->pixels);
    ox_arg(s->o, at);
    ox_set_int(s->o, "axis", own ? 2 : 1);
    return ox_end(s->o, own ? "GatherElements" : "Gather",
                  ox_fresh(s->o, ox_base(s->o, s->n), ".pixel"), s->pixels->dtype);
}

// Every choice of a pixel along each of the axes, times its weights.
static ox_value *sampled(sampler *s, const taps *along, int axes) {
    ox_value *all = NULL;
    int count = 1;
    for (int a = 0; a < axes; a++) {
        count *= along[a].n;
    }
    for (int i = 0; i < count; i++) {
        ox_value *at = NULL, *weight = NULL;
        for (int a = axes - 1, rest = i; a >= 0; rest /= along[a].n, a--) {
            ox_value *p = along[a].place[rest % along[a].n],
                     *w = along[a].weight[rest % along[a].n];
            at = at ? ox_binary(s->o, s->n, "Add", ".place", at, p) : p;
            weight =
                weight && w ? ox_binary(s->o, s->n, "Mul", ".weight", weight, w) : (w ? w : weight);
        }
        ox_value *v = pixel(s, at);
        if (weight && s->spread.n) {
            weight = ox_with_int(s->o, s->n, "Unsqueeze", ".weight", weight, "axes", 1);
        }
        v = weight ? ox_binary(s->o, s->n, "Mul", ".weighted", v, weight) : v;
        all = all ? ox_binary(s->o, s->n, s->join, ".sum", all, v) : v;
    }
    return all;
}

// Product of some of a value's sizes.
static int64_t count_axes(ox *o, ox_node *n, const ox_value *v, int from, int to) {
    int64_t count;
    if (!cli_count(to - from, v->dims + from, &count) || count > OX_MAX_DIM) {
        ox_unsupported(o, n, "operator '%s' of too many pixels", n->op);
    }
    return count;
}

// ---- GridSample ----

// Coordinate number `k` of the grid, which goes from -1 to 1, in pixels [N,all].
static ox_value *coordinate(sampler *s, ox_value *grid, int k, int64_t size, ox_list flat) {
    ox_value *v = ox_slice_of(s->o, s->n, ".axis", grid, grid->rank - 1, k, k + 1);
    v = ox_with_list(s->o, s->n, "Reshape", ".axis", v, "shape", flat);
    v = scaled(s, "Mul", ".scaled", v, (double)(s->corners ? size - 1 : size) / 2);
    return scaled(s, "Add", ".at", v, (double)(size - 1) / 2);
}

static sampler take_sampler(ox *o, ox_node *n, const char **mode) {
    const char *outside = ox_string(o, n, "padding_mode", "zeros");
    *mode = ox_string(o, n, "mode", "linear");
    *mode = !strcmp(*mode, "bilinear") ? "linear" : !strcmp(*mode, "bicubic") ? "cubic" : *mode;
    sampler s = {.o = o, .n = n, .join = "Add"};
    s.corners = ox_int(o, n, "align_corners", 0) != 0;
    s.padding = !strcmp(outside, "zeros")    ? ZEROS
                : !strcmp(outside, "border") ? BORDER
                                             : REFLECTION;
    bool known = !strcmp(*mode, "nearest") || !strcmp(*mode, "linear") || !strcmp(*mode, "cubic");
    if (!known || (s.padding == REFLECTION && strcmp(outside, "reflection"))) {
        char shown[60], shown_too[60];
        ox_unsupported(o, n, "GridSample with mode '%s' and padding_mode '%s'",
                       cli_escape(shown, sizeof shown, *mode),
                       cli_escape(shown_too, sizeof shown_too, outside));
    }
    return s;
}

static void convert_grid_sample(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *grid = ox_in(o, n, 1);
    const char *mode;
    sampler s = take_sampler(o, n, &mode);
    ox_need_sym(o, n, x);
    ox_need_shape(o, n, grid);
    int axes = x->rank - 2;
    if (axes < 1 || axes > MAX_AXES || (axes != 2 && !strcmp(mode, "cubic"))) {
        ox_unsupported(o, n, "GridSample of %d axes with mode '%s'", x->rank, mode);
    }
    if (grid->rank != x->rank || grid->dims[x->rank - 1] != axes || grid->dims[0] != x->dims[0]) {
        ox_die(o, n, "GridSample with a grid whose shape does not fit");
    }
    int64_t results = count_axes(o, n, grid, 1, axes + 1);
    int64_t pixels[3] = {x->dims[0], x->dims[1], count_axes(o, n, x, 2, x->rank)};
    int64_t spread[3] = {x->dims[0], x->dims[1], results}, flat[2] = {x->dims[0], results};
    int64_t whole[CLI_MAX_RANK] = {x->dims[0], x->dims[1]}, step = 1;
    const char *sym[CLI_MAX_RANK] = {x->sym[0]};
    taps along[MAX_AXES];
    s.pixels = ox_with_list(o, n, "Reshape", ".pixels", x, "shape", (ox_list){3, pixels, sym});
    s.spread = (ox_list){3, spread, sym};
    // The grid's first coordinate is the last axis'.
    for (int a = axes - 1; a >= 0; step *= x->dims[2 + a], a--) {
        int64_t size = x->dims[2 + a];
        ox_value *at = coordinate(&s, grid, axes - 1 - a, size, (ox_list){2, flat, sym});
        if (s.padding == BORDER && strcmp(mode, "cubic")) {
            at = ox_clip_to(o, n, ".inside", at, 0, (double)(size - 1));
        }
        along[a] = taps_of(&s, mode, at, size, step);
        whole[2 + a] = grid->dims[1 + a];
    }
    ox_value *all = sampled(&s, along, axes);
    ox_end_list(o, n, "Reshape", all, "shape", (ox_list){x->rank, whole, sym});
}

// Positions of pixels, one a row with a 1 behind them, times the transposed matrices.
static void convert_affine_grid(ox *o, ox_node *n) {
    static const int64_t perm[3] = {0, 2, 1};
    ox_value *theta = ox_in(o, n, 0);
    bool corners = ox_int(o, n, "align_corners", 0) != 0;
    ox_list size;
    if (!ox_int_input(o, n, "size", 1, &size) || size.n < 4 || size.n > 5) {
        ox_unsupported(o, n, "AffineGrid of another size than [N,C,H,W] or [N,C,D,H,W]");
    }
    int axes = size.n - 2;
    int64_t dims[2] = {1, axes + 1}, shape[CLI_MAX_RANK] = {size.v[0]};
    for (int a = 0; a < axes; a++) {
        int64_t pixels = size.v[2 + a];
        if (pixels < 1 || pixels > OX_FOLD_LIMIT || dims[0] * pixels > OX_FOLD_LIMIT) {
            ox_die(o, n, "AffineGrid of a size of %lld", (long long)pixels);
        }
        dims[0] *= pixels;
        shape[1 + a] = pixels;
    }
    ox_const *base = ox_make(o, theta->dtype, 2, dims);
    for (int64_t i = 0; i < dims[0]; i++) {
        int64_t rest = i;
        for (int k = 0; k < axes; k++) {
            int64_t whole = size.v[size.n - 1 - k];
            double last = (double)(corners ? whole - 1 : whole);
            double middle = 2 * (double)(rest % whole) - (double)(whole - 1);
            ox_setf(base, dims[1] * i + k, last > 0 ? middle / last : 0);
            rest /= whole;
        }
        ox_setf(base, dims[1] * i + axes, 1);
    }
    shape[1 + axes] = axes;
    const char *sym[CLI_MAX_RANK] = {size.sym ? size.sym[0] : NULL};
    theta = ox_with_list(o, n, "Transpose", ".turned", theta, "perm", (ox_list){3, perm, NULL});
    ox_value *all =
        ox_binary(o, n, "MatMul", ".rows", ox_constant(o, ox_base(o, n), ".base", base), theta);
    ox_end_list(o, n, "Reshape", all, "shape", (ox_list){size.n, shape, sym});
}

// ---- regions ----

typedef struct {
    int64_t height, width, samples;  // of a result, and along each axis of each of its elements
    double scale;
    bool half_pixel, max;
} regions;

static int64_t size_attribute(ox *o, ox_node *n, const char *name, int64_t otherwise) {
    int64_t v = ox_int(o, n, name, otherwise);
    if (v < 0 || v > OX_FOLD_LIMIT) {
        ox_die(o, n, "attribute '%s' has the number %lld", name, (long long)v);
    }
    return v;
}

static regions take_regions(ox *o, ox_node *n) {
    const char *where = n->opset < 16 ? "output_half_pixel" : "half_pixel";
    const char *mode = ox_string(o, n, "mode", "avg");
    where = ox_string(o, n, "coordinate_transformation_mode", where);
    regions r = {.max = !strcmp(mode, "max"), .half_pixel = !strcmp(where, "half_pixel")};
    r.height = size_attribute(o, n, "output_height", 1);
    r.width = size_attribute(o, n, "output_width", 1);
    r.samples = size_attribute(o, n, "sampling_ratio", 0);
    r.scale = ox_float(o, n, "spatial_scale", 1);
    if ((!r.max && strcmp(mode, "avg")) || (!r.half_pixel && strcmp(where, "output_half_pixel"))) {
        ox_die(o, n, "RoiAlign with an unknown mode");
    }
    if (!r.samples) {
        ox_unsupported(o, n,
                       "RoiAlign with sampling_ratio 0: how many pixels count depends on "
                       "values, which a plan cannot follow");
    }
    if (!r.height || !r.width) {
        ox_die(o, n, "RoiAlign to no pixels");
    }
    return r;
}

// Corners from `k` to `k` + 2 of regions [R,4], with axes for rows and columns behind: what lies
// between them, `count` times at equal distances, in pixels.
static taps region_taps(sampler *s, const regions *r, ox_value *rois, int k, int64_t size,
                        int64_t step) {
    ox *o = s->o;
    int64_t count = (k ? r->height : r->width) * r->samples;
    int64_t dims[3] = {1, k ? count : 1, k ? 1 : count};
    if (count > OX_FOLD_LIMIT) {
        ox_unsupported(o, s->n, "RoiAlign of too many pixels");
    }
    ox_const *places = ox_make(o, rois->dtype, 3, dims);
    for (int64_t i = 0; i < count; i++) {
        ox_setf(places, i, ((double)i + 0.5) / (double)count);
    }
    ox_value *end[2];
    for (int e = 0; e < 2; e++) {
        ox_value *v = ox_slice_of(o, s->n, ".corner", rois, 1, k + 2 * e, k + 2 * e + 1);
        v = ox_with_int(o, s->n, "Unsqueeze", ".corner", v, "axes", 2);
        v = scaled(s, "Mul", ".scaled", v, r->scale);
        end[e] = r->half_pixel ? scaled(s, "Sub", ".shifted", v, 0.5) : v;
    }
    ox_value *length = ox_binary(o, s->n, "Sub", ".length", end[1], end[0]);
    length = r->half_pixel ? length : scaled(s, "Max", ".length", length, 1);
    ox_value *at = ox_binary(o, s->n, "Mul", ".at", length,
                             ox_constant(o, ox_base(o, s->n), ".parts", places));
    at = ox_binary(o, s->n, "Add", ".at", end[0], at);
    // What is more than a pixel outside is 0, what is nearer the border's.
    ox_value *is = is_inside(s, at, -1, (double)size);
    is = ox_cast_to(o, s->n, ".is", is, at->dtype);
    at = ox_clip_to(o, s->n, ".inside", at, 0, (double)(size - 1));
    taps t = taps_of(s, "linear", at, size, step);
    for (int i = 0; i < t.n; i++) {
        t.weight[i] = ox_binary(o, s->n, "Mul", ".weight", t.weight[i], is);
    }
    return t;
}

// The images of all batches stand behind each other, so that a region's are found by its batch.
static void convert_roi_align(ox *o, ox_node *n) {
    static const int64_t channels[4] = {1, 0, 2, 3}, inner[2] = {3, 5};
    ox_value *x = ox_in(o, n, 0), *rois = ox_in(o, n, 1), *batch = ox_in(o, n, 2);
    regions r = take_regions(o, n);
    sampler s = {.o = o, .n = n, .padding = BORDER, .join = r.max ? "Max" : "Add"};
    ox_need_shape(o, n, x);
    ox_need_sym(o, n, rois);
    ox_need_shape(o, n, batch);
    if (x->rank != 4 || rois->rank != 2 || rois->dims[1] != 4 || batch->rank != 1 ||
        batch->dims[0] != rois->dims[0]) {
        ox_die(o, n, "RoiAlign with inputs whose shapes do not fit");
    }
    int64_t h = x->dims[2], w = x->dims[3], step = count_axes(o, n, x, 2, 4);
    int64_t column[3] = {rois->dims[0], 1, 1}, flat[2] = {x->dims[1], -1};
    const char *column_sym[3] = {rois->sym[0]}, *parts_sym[6] = {NULL, rois->sym[0]};
    s.pixels =
        ox_with_list(o, n, "Transpose", ".channels", x, "perm", (ox_list){4, channels, NULL});
    s.pixels =
        ox_with_list(o, n, "Reshape", ".pixels", s.pixels, "shape", (ox_list){2, flat, NULL});
    taps along[2] = {region_taps(&s, &r, rois, 1, h, w), region_taps(&s, &r, rois, 0, w, 1)};
    batch = ox_cast_to(o, n, ".batch", batch, CLI_I64);
    batch =
        ox_with_list(o, n, "Reshape", ".batch", batch, "shape", (ox_list){3, column, column_sym});
    batch = scaled(&s, "Mul", ".image", batch, (double)step);
    for (int i = 0; i < along[0].n; i++) {
        along[0].place[i] = ox_binary(o, n, "Add", ".row", batch, along[0].place[i]);
    }
    int64_t parts[6] = {x->dims[1], rois->dims[0], r.height, r.samples, r.width, r.samples};
    ox_value *v = sampled(&s, along, 2);
    v = ox_with_list(o, n, "Reshape", ".samples", v, "shape", (ox_list){6, parts, parts_sym});
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "axes", (ox_list){2, inner, NULL});
    ox_set_int(o, "keepdims", 0);
    v = ox_end(o, r.max ? "ReduceMax" : "ReduceMean", ox_fresh(o, ox_base(o, n), ".pooled"),
               v->dtype);
    ox_end_list(o, n, "Transpose", v, "perm", (ox_list){4, channels, NULL});
}

// The elements of an axis of which the largest is taken, for each result along it: from `low` on,
// in front of `high`, which are whole numbers [R,1,P,1]; `is` [R,1,P,S] says which those are.
typedef struct {
    ox_value *is, *any;  // `any` [R,1,P,1]: whether there is one
} cells;

// Corners of regions are pixels and belong to them; halves are rounded away from 0. Cells overlap
// where they are no whole number of pixels.
static cells region_cells(sampler *s, ox_value *rois, double scale, int k, int64_t count,
                          int64_t size) {
    static const int64_t axes[2] = {2, 3};
    ox *o = s->o;
    ox_node *n = s->n;
    ox_value *end[2], *at[2];
    for (int e = 0; e < 2; e++) {
        ox_value *v = ox_slice_of(o, n, ".corner", rois, 1, 1 + k + 2 * e, 2 + k + 2 * e);
        v = ox_with_list(o, n, "Unsqueeze", ".corner", v, "axes", (ox_list){2, axes, NULL});
        v = scaled(s, "Mul", ".scaled", v, scale);
        ox_value *size_of = scaled(s, "Add", ".half", ox_unary(o, n, "Abs", ".size", v), 0.5);
        end[e] = ox_binary(o, n, "Mul", ".pixel", ox_unary(o, n, "Sign", ".sign", v),
                           ox_unary(o, n, "Floor", ".whole", size_of));
    }
    ox_value *length =
        scaled(s, "Add", ".length", ox_binary(o, n, "Sub", ".length", end[1], end[0]), 1);
    length = scaled(s, "Div", ".cell", scaled(s, "Max", ".length", length, 1), (double)count);
    ox_value *places = ox_cast_to(o, n, ".cells", ox_places(o, n, 4, 2, count), rois->dtype);
    for (int e = 0; e < 2; e++) {
        ox_value *v = e ? scaled(s, "Add", ".next", places, 1) : places;
        v = ox_unary(o, n, e ? "Ceil" : "Floor", ".whole",
                     ox_binary(o, n, "Mul", ".from", v, length));
        at[e] =
            ox_clip_to(o, n, ".inside", ox_binary(o, n, "Add", ".at", v, end[0]), 0, (double)size);
    }
    ox_value *pixel = ox_cast_to(o, n, ".pixels", ox_places(o, n, 4, 3, size), rois->dtype);
    ox_value *low = ox_truth(o, n, "GreaterOrEqual", ".low", pixel, at[0]);
    cells c = {.any = ox_truth(o, n, "Less", ".any", at[0], at[1])};
    c.is = ox_truth(o, n, "And", ".is", low, ox_truth(o, n, "Less", ".high", pixel, at[1]));
    return c;
}

// v [R,C,..] with its last axis as one of cells in front of it.
static ox_value *largest_of(sampler *s, ox_value *v, ox_value *is, int64_t axis) {
    int64_t last = -1;
    v = ox_with_int(s->o, s->n, "Unsqueeze", ".row", v, "axes", axis);
    is = ox_with_int(s->o, s->n, "Unsqueeze", ".is", is, "axes", 2);
    v = ox_where(s->o, s->n, ".taken", is, v, ox_number(s->o, s->n, ".none", v->dtype, -HUGE_VAL));
    ox_begin(s->o);
    ox_arg(s->o, v);
    ox_set_list(s->o, "axes", (ox_list){1, &last, NULL});
    ox_set_int(s->o, "keepdims", 0);
    return ox_end(s->o, "ReduceMax", ox_fresh(s->o, ox_base(s->o, s->n), ".largest"), v->dtype);
}

// One axis after the other: the largest of a cell is the largest of its rows' largest.
static void convert_max_roi_pool(ox *o, ox_node *n) {
    static const int64_t turned[4] = {0, 1, 3, 2};
    ox_value *x = ox_in(o, n, 0), *rois = ox_in(o, n, 1);
    double scale = ox_float(o, n, "spatial_scale", 1);
    sampler s = {.o = o, .n = n};
    int64_t one = 1;
    ox_list shape;
    ox_need_sym(o, n, x);
    ox_need_sym(o, n, rois);
    if (!ox_ints(o, n, "pooled_shape", &shape) || shape.n != 2 || x->rank != 4 || rois->rank != 2 ||
        rois->dims[1] != 5) {
        ox_die(o, n, "MaxRoiPool with inputs whose shapes do not fit");
    }
    for (int k = 0; k < 2; k++) {
        if (shape.v[k] < 1 || shape.v[k] > OX_FOLD_LIMIT || x->dims[2 + k] > OX_FOLD_LIMIT) {
            ox_die(o, n, "MaxRoiPool to, or from, %lld pixels", (long long)shape.v[k]);
        }
    }
    cells down = region_cells(&s, rois, scale, 1, shape.v[0], x->dims[2]);
    cells across = region_cells(&s, rois, scale, 0, shape.v[1], x->dims[3]);
    ox_value *batch = ox_slice_of(o, n, ".batch", rois, 1, 0, 1);
    batch = ox_with_list(o, n, "Squeeze", ".batch", batch, "axes", (ox_list){1, &one, NULL});
    batch = ox_cast_to(o, n, ".image", batch, CLI_I64);
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, batch);
    ox_set_int(o, "axis", 0);
    ox_value *v = ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".images"), x->dtype);
    v = largest_of(&s, v, across.is, 3);  // [R,C,H,PW]
    v = ox_with_list(o, n, "Transpose", ".turned", v, "perm", (ox_list){4, turned, NULL});
    v = largest_of(&s, v, down.is, 3);  // [R,C,PW,PH]
    v = ox_with_list(o, n, "Transpose", ".cells", v, "perm", (ox_list){4, turned, NULL});
    ox_value *any =
        ox_with_list(o, n, "Transpose", ".any", across.any, "perm", (ox_list){4, turned, NULL});
    any = ox_truth(o, n, "And", ".any", down.any, any);
    ox_value *zero = ox_number(o, n, ".zero", v->dtype, 0);
    ox_begin(o);
    ox_arg(o, any);
    ox_arg(o, v);
    ox_arg(o, zero);
    ox_end_node(o, n, "Where");
}

// ---- DeformConv ----

// A convolution whose filter reads where offsets move its elements to.
typedef struct {
    int64_t strides[2], dilations[2], pads[4];
    int64_t kernel[2], out[2];  // rows and columns
    int64_t groups, moved;      // of channels, by filters and by offsets
} deformed;

static void take_numbers(ox *o, ox_node *n, const char *name, int64_t *to, int count,
                         int64_t otherwise) {
    ox_list list;
    bool given = ox_ints(o, n, name, &list);
    if (given && list.n != count) {
        ox_die(o, n, "attribute '%s' has %d numbers, not %d", name, list.n, count);
    }
    for (int i = 0; i < count; i++) {
        to[i] = given ? list.v[i] : otherwise;
        if (to[i] < otherwise || to[i] > OX_FOLD_LIMIT) {
            ox_die(o, n, "attribute '%s' has the number %lld", name, (long long)to[i]);
        }
    }
}

static deformed take_deformed(ox *o, ox_node *n, ox_value *x, ox_value *filter, ox_value *offset) {
    deformed d;
    ox_need_sym(o, n, x);
    ox_need_shape(o, n, filter);
    ox_need_shape(o, n, offset);
    if (x->rank != 4 || filter->rank != 4 || offset->rank != 4) {
        ox_unsupported(o, n, "DeformConv of %d axes", x->rank);
    }
    take_numbers(o, n, "strides", d.strides, 2, 1);
    take_numbers(o, n, "dilations", d.dilations, 2, 1);
    take_numbers(o, n, "pads", d.pads, 4, 0);
    d.groups = ox_int(o, n, "group", 1);
    d.moved = ox_int(o, n, "offset_group", 1);
    int64_t kernel[2];
    take_numbers(o, n, "kernel_shape", kernel, 2, 0);
    bool fits = d.groups > 0 && d.moved > 0 && d.moved <= x->dims[1] && d.groups <= x->dims[1] &&
                x->dims[1] % d.moved == 0 && x->dims[1] == filter->dims[1] * d.groups &&
                filter->dims[0] % d.groups == 0 && offset->dims[0] == x->dims[0];
    for (int a = 0; a < 2; a++) {
        d.kernel[a] = filter->dims[2 + a];
        d.out[a] = offset->dims[2 + a];
        int64_t room = x->dims[2 + a] + d.pads[a] + d.pads[2 + a];
        room -= (d.kernel[a] - 1) * d.dilations[a] + 1;
        fits = fits && (!kernel[a] || kernel[a] == d.kernel[a]) && room >= 0 &&
               d.out[a] == room / d.strides[a] + 1;
    }
    int64_t inside = count_axes(o, n, filter, 2, 4);
    if (inside > OX_FOLD_LIMIT || d.out[0] > OX_FOLD_LIMIT || d.out[1] > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "DeformConv of too many pixels");
    }
    if (!fits || offset->dims[1] / 2 / d.moved != inside || offset->dims[1] % (2 * d.moved)) {
        ox_die(o, n, "DeformConv with inputs whose shapes do not fit");
    }
    return d;
}

// Where a filter's elements read along an axis, in pixels [N*moved,all]: their place and offset.
static ox_value *moved_places(sampler *s, const deformed *d, ox_value *offset, int a,
                              ox_list flat) {
    int64_t inside = d->kernel[0] * d->kernel[1], elements[3] = {inside, 1, 1};
    int64_t places[2] = {a ? 1 : d->out[0], a ? d->out[1] : 1};
    ox_const *element = ox_make(s->o, offset->dtype, 3, elements);
    ox_const *place = ox_make(s->o, offset->dtype, 2, places);
    for (int64_t i = 0; i < inside; i++) {
        int64_t at = a ? i % d->kernel[1] : i / d->kernel[1];
        ox_setf(element, i, (double)(at * d->dilations[a]));
    }
    for (int64_t i = 0; i < d->out[a]; i++) {
        ox_setf(place, i, (double)(i * d->strides[a] - d->pads[a]));
    }
    ox_value *v = ox_slice_of(s->o, s->n, ".offset", offset, 2, a, a + 1);
    v = ox_with_int(s->o, s->n, "Squeeze", ".offset", v, "axes", 2);
    v = ox_binary(s->o, s->n, "Add", ".at", v,
                  ox_constant(s->o, ox_base(s->o, s->n), ".element", element));
    v = ox_binary(s->o, s->n, "Add", ".at", v,
                  ox_constant(s->o, ox_base(s->o, s->n), ".place", place));
    return ox_with_list(s->o, s->n, "Reshape", ".at", v, "shape", flat);
}

// What the filters are multiplied with: [N,groups,channels of one*kernel,places].
static ox_value *moved_columns(ox *o, ox_node *n, const deformed *d, ox_value *x, ox_value *offset,
                               ox_value *mask) {
    int64_t inside = d->kernel[0] * d->kernel[1], places = count_axes(o, n, offset, 2, 4);
    int64_t batch = x->dims[0] * d->moved, all = inside * places, own = x->dims[1] / d->moved;
    const char *by[5] = {x->sym[0] ? ox_join(o, '*', x->sym[0], 0, NULL, d->moved) : NULL};
    const char *first[4] = {x->sym[0]};
    int64_t pixels[3] = {batch, own, count_axes(o, n, x, 2, 4)};
    int64_t flat[2] = {batch, all}, beside[3] = {batch, 1, all};
    int64_t spread[3] = {batch, own, all}, split[5] = {batch, inside, 2, d->out[0], d->out[1]};
    int64_t columns[4] = {x->dims[0], d->groups, x->dims[1] / d->groups * inside, places};
    sampler s = {.o = o, .n = n, .padding = ZEROS, .join = "Add"};
    s.pixels = ox_with_list(o, n, "Reshape", ".pixels", x, "shape", (ox_list){3, pixels, by});
    s.spread = (ox_list){3, spread, by};
    offset = ox_with_list(o, n, "Reshape", ".offsets", offset, "shape", (ox_list){5, split, by});
    taps along[2];
    for (int a = 0; a < 2; a++) {
        ox_value *at = moved_places(&s, d, offset, a, (ox_list){2, flat, by});
        along[a] = taps_of(&s, "linear", at, x->dims[2 + a], a ? 1 : x->dims[3]);
    }
    ox_value *v = sampled(&s, along, 2);
    if (mask) {
        mask = ox_with_list(o, n, "Reshape", ".mask", mask, "shape", (ox_list){3, beside, by});
        v = ox_binary(o, n, "Mul", ".masked", v, mask);
    }
    return ox_with_list(o, n, "Reshape", ".columns", v, "shape", (ox_list){4, columns, first});
}

static void convert_deform_conv(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *filter = ox_in(o, n, 1), *offset = ox_in(o, n, 2);
    ox_value *bias = ox_opt(o, n, 3), *mask = ox_opt(o, n, 4);
    deformed d = take_deformed(o, n, x, filter, offset);
    ox_value *columns = moved_columns(o, n, &d, x, offset, mask);
    int64_t inside = filter->dims[1] * d.kernel[0] * d.kernel[1], filters = filter->dims[0];
    int64_t rows[3] = {d.groups, filters / d.groups, inside}, column[3] = {filters, 1, 1};
    int64_t whole[4] = {x->dims[0], filters, d.out[0], d.out[1]};
    const char *sym[4] = {x->sym[0]};
    filter = ox_with_list(o, n, "Reshape", ".filter", filter, "shape", (ox_list){3, rows, NULL});
    ox_value *v = ox_binary(o, n, "MatMul", ".product", filter, columns);
    if (!bias) {
        ox_end_list(o, n, "Reshape", v, "shape", (ox_list){4, whole, sym});
        return;
    }
    v = ox_with_list(o, n, "Reshape", ".image", v, "shape", (ox_list){4, whole, sym});
    bias = ox_with_list(o, n, "Reshape", ".bias", bias, "shape", (ox_list){3, column, NULL});
    ox_end_binary(o, n, "Add", v, bias);
}

const ox_row ox_sample_rows[] = {
    {"GridSample", 2, 2, convert_grid_sample}, {"AffineGrid", 2, 2, convert_affine_grid},
    {"RoiAlign", 3, 3, convert_roi_align},     {"MaxRoiPool", 2, 2, convert_max_roi_pool},
    {"DeformConv", 3, 5, convert_deform_conv}, {NULL, 0, 0, NULL},
};
