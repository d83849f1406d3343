// onnx_sample.c - images read between their pixels, at positions that a tensor holds.
#include "onnx.h"

typedef struct {
    ox *o;
    ox_node *n;
    ox_value *pixels;  // [N,C,H*W]
    ox_list spread;    // shape of positions in it: [N,C,Ho*Wo]
    ox_list flat;      // [N,1,Ho*Wo]
    bool zeros;        // beyond the border, else its pixels
} sampler;

static ox_value *scaled(sampler *s, const char *op, const char *suffix, ox_value *v, double by) {
    return ox_by_number(s->o, s->n, op, suffix, v, by);
}

// Coordinate number `k` of the grid, which goes from -1 to 1, in pixels.
static ox_value *coordinate(sampler *s, ox_value *grid, int k, int64_t size, bool corners) {
    ox_value *v = ox_slice_of(s->o, s->n, k ? ".v" : ".u", grid, grid->rank - 1, k, k + 1);
    v = ox_with_list(s->o, s->n, "Reshape", k ? ".v" : ".u", v, "shape", s->flat);
    v = scaled(s, "Mul", ".scaled", v, (double)(corners ? size - 1 : size) / 2);
    v = scaled(s, "Add", ".at", v, (double)(size - 1) / 2);
    return s->zeros ? v : ox_clip_to(s->o, s->n, ".inside", v, 0, (double)(size - 1));
}

// 1 where the pixel is one of the axis, else 0.
static ox_value *is_inside(sampler *s, ox_value *at, int64_t size) {
    ox_value *zero = ox_number(s->o, s->n, ".zero", at->dtype, 0);
    ox_value *most = ox_number(s->o, s->n, ".most", at->dtype, (double)(size - 1));
    ox_value *low = ox_truth(s->o, s->n, "GreaterOrEqual", ".low", at, zero);
    ox_value *high = ox_truth(s->o, s->n, "LessOrEqual", ".high", at, most);
    return ox_cast_to(s->o, s->n, ".is", ox_truth(s->o, s->n, "And", ".both", low, high),
                      at->dtype);
}

// The pixels at (x, y), whole numbers, times `weight` (NULL: 1).
static ox_value *pixel(sampler *s, ox_value *x, ox_value *y, ox_value *weight, int64_t w,
                       int64_t h) {
    ox *o = s->o;
    if (s->zeros) {
        ox_value *is = ox_binary(o, s->n, "Mul", ".is", is_inside(s, x, w), is_inside(s, y, h));
        weight = weight ? ox_binary(o, s->n, "Mul", ".weight", weight, is) : is;
    }
    x = ox_cast_to(o, s->n, ".x", ox_clip_to(o, s->n, ".x", x, 0, (double)(w - 1)), CLI_I64);
    y = ox_cast_to(o, s->n, ".y", ox_clip_to(o, s->n, ".y", y, 0, (double)(h - 1)), CLI_I64);
    ox_value *at = ox_binary(o, s->n, "Add", ".place", scaled(s, "Mul", ".row", y, (double)w), x);
    at = ox_with_list(o, s->n, "Expand", ".places", at, "shape", s->spread);
    ox_begin(o);
    ox_arg(o, s->pixels);
    ox_arg(o, at);
    ox_set_int(o, "axis", 2);
    ox_value *v =
        ox_end(o, "GatherElements", ox_fresh(o, ox_base(o, s->n), ".pixel"), s->pixels->dtype);
    return weight ? ox_binary(o, s->n, "Mul", ".weighted", v, weight) : v;
}

static ox_value *between(sampler *s, ox_value *x, ox_value *y, int64_t w, int64_t h) {
    ox_value *at[2][2], *weight[2][2], *all = NULL, *in[2] = {x, y};
    for (int k = 0; k < 2; k++) {
        at[k][0] = ox_unary(s->o, s->n, "Floor", ".floor", in[k]);
        at[k][1] = scaled(s, "Add", ".next", at[k][0], 1);
        weight[k][1] = ox_binary(s->o, s->n, "Sub", ".far", in[k], at[k][0]);
        weight[k][0] = ox_binary(s->o, s->n, "Sub", ".near", at[k][1], in[k]);
    }
    for (int i = 0; i < 4; i++) {
        ox_value *by = ox_binary(s->o, s->n, "Mul", ".weight", weight[0][i & 1], weight[1][i >> 1]);
        ox_value *v = pixel(s, at[0][i & 1], at[1][i >> 1], by, w, h);
        all = all ? ox_binary(s->o, s->n, "Add", ".sum", all, v) : v;
    }
    return all;
}

static void convert_grid_sample(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *grid = ox_in(o, n, 1);
    const char *mode = ox_string(o, n, "mode", "linear");
    const char *padding = ox_string(o, n, "padding_mode", "zeros");
    bool corners = ox_int(o, n, "align_corners", 0) != 0, nearest = !strcmp(mode, "nearest");
    bool linear = !strcmp(mode, "linear") || !strcmp(mode, "bilinear");
    sampler s = {.o = o, .n = n, .zeros = !strcmp(padding, "zeros")};
    if ((!nearest && !linear) || (!s.zeros && strcmp(padding, "border"))) {
        char shown[60], shown_too[60];
        ox_unsupported(o, n, "GridSample with mode '%s' and padding_mode '%s'",
                       cli_escape(shown, sizeof shown, mode),
                       cli_escape(shown_too, sizeof shown_too, padding));
    }
    ox_need_sym(o, n, x);
    ox_need_shape(o, n, grid);
    if (x->rank != 4) {
        ox_unsupported(o, n, "GridSample of %d axes", x->rank);
    }
    if (grid->rank != 4 || grid->dims[3] != 2 || grid->dims[0] != x->dims[0]) {
        ox_die(o, n, "GridSample with a grid whose shape does not fit");
    }
    int64_t h = x->dims[2], w = x->dims[3], results = grid->dims[1] * grid->dims[2];
    int64_t pixels[3] = {x->dims[0], x->dims[1], h * w};
    int64_t spread[3] = {x->dims[0], x->dims[1], results}, flat[3] = {x->dims[0], 1, results};
    int64_t whole[4] = {x->dims[0], x->dims[1], grid->dims[1], grid->dims[2]};
    const char *sym[4] = {x->sym[0], NULL, NULL, NULL};
    s.pixels = ox_with_list(o, n, "Reshape", ".pixels", x, "shape", (ox_list){3, pixels, sym});
    s.spread = (ox_list){3, spread, sym};
    s.flat = (ox_list){3, flat, sym};
    ox_value *u = coordinate(&s, grid, 0, w, corners), *v = coordinate(&s, grid, 1, h, corners);
    ox_value *all;
    if (nearest) {
        u = ox_unary(o, n, "Round", ".x", u);
        v = ox_unary(o, n, "Round", ".y", v);
        all = pixel(&s, u, v, NULL, w, h);
    } else {
        all = between(&s, u, v, w, h);
    }
    ox_end_list(o, n, "Reshape", all, "shape", (ox_list){4, whole, sym});
}

// Positions of pixels, one a row with a 1 behind them, times the transposed matrices.
static void convert_affine_grid(ox *o, ox_node *n) {
    static const int64_t perm[3] = {0, 2, 1};
    ox_value *theta = ox_in(o, n, 0);
    bool corners = ox_int(o, n, "align_corners", 0) != 0;
    ox_list size;
    if (!ox_int_input(o, n, "size", 1, &size) || size.n != 4) {
        ox_unsupported(o, n, "AffineGrid of another size than [N,C,H,W]");
    }
    int64_t h = size.v[2], w = size.v[3], dims[2] = {h * w, 3};
    if (h < 1 || w < 1 || h > OX_FOLD_LIMIT || w > OX_FOLD_LIMIT) {
        ox_die(o, n, "AffineGrid of %lld x %lld", (long long)h, (long long)w);
    }
    ox_const *base = ox_make(o, theta->dtype, 2, dims);
    for (int64_t i = 0; i < h * w; i++) {
        int64_t at[2] = {i % w, i / w}, whole[2] = {w, h};
        for (int k = 0; k < 2; k++) {
            double last = (double)(corners ? whole[k] - 1 : whole[k]);
            double middle = 2 * (double)at[k] - (double)(whole[k] - 1);
            ox_setf(base, 3 * i + k, last > 0 ? middle / last : 0);
        }
        ox_setf(base, 3 * i + 2, 1);
    }
    int64_t shape[4] = {size.v[0], h, w, 2};
    const char *sym[4] = {size.sym ? size.sym[0] : NULL, NULL, NULL, NULL};
    theta = ox_with_list(o, n, "Transpose", ".turned", theta, "perm", (ox_list){3, perm, NULL});
    ox_value *all =
        ox_binary(o, n, "MatMul", ".rows", ox_constant(o, ox_base(o, n), ".base", base), theta);
    ox_end_list(o, n, "Reshape", all, "shape", (ox_list){4, shape, sym});
}

const ox_row ox_sample_rows[] = {
    {"GridSample", 2, 2, convert_grid_sample},
    {"AffineGrid", 2, 2, convert_affine_grid},
    {NULL, 0, 0, NULL},
};
