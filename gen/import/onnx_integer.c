// onnx_integer.c - products of 8-bit integers: what is left of them above their zero points is
// multiplied as floats, which is exact as long as sums stay below 2^24, and sums are rounded to
// the integers or scaled to the steps of the result. So what follows sees a product or a
// convolution of floats and what is done with it. Weights are in units of a power of two, which
// changes no digit, so that sums do not leave what f16 has where a plan stores them as that.
#include "onnx.h"

#include <math.h>

enum { BYTE = 255 };  // an 8-bit integer is so far from another at most

// ---- sums ----

// The largest sum of sizes of a constant's elements that are multiplied into one element: those of
// a place of its first axis, as of a filter, or of a column of a matrix.
static double largest_sum(const ox_const *c, bool by_first) {
    int64_t channels = by_first ? c->dims[0] : 1, columns = 1;
    int64_t rows = c->rank > 1 ? c->dims[c->rank - 2] : c->count;
    if (!by_first && c->rank > 1) {
        columns = c->dims[c->rank - 1];
        channels = c->count / (rows * columns);
    }
    int64_t terms = c->count / (channels * columns);
    double most = 0;
    if (c->splat) {
        return fabs(ox_getf(c, 0)) * (double)terms;
    }
    for (int64_t i = 0; i < channels * columns; i++) {
        double sum = 0;
        for (int64_t k = 0; k < terms; k++) {
            sum += fabs(ox_getf(c, (i / columns * terms + k) * columns + i % columns));
        }
        most = sum > most ? sum : most;
    }
    return most;
}

// The largest sum of products with bytes that there can be.
static double largest_product(ox *o, ox_node *n, ox_value *b, bool by_first) {
    double terms = 1;
    ox_need_shape(o, n, b);
    if (b->known) {
        if (b->known->count < 1) {
            ox_die(o, n, "operator '%s' with a constant without elements", n->op);
        }
        return BYTE * largest_sum(b->known, by_first);
    }
    for (int a = by_first ? 1 : b->rank; a < b->rank; a++) {
        terms *= (double)b->dims[a];
    }
    terms *= !by_first && b->rank ? (double)b->dims[b->rank > 1 ? b->rank - 2 : 0] : 1;
    return BYTE * BYTE * terms;
}

// v / unit
ox_value *ox_in_units(ox *o, ox_node *n, ox_value *v, double unit) {
    const ox_const *c = v->known;
    if (unit == 1 || !c) {
        return unit == 1 ? v : ox_by_number(o, n, "Mul", ".units", v, 1 / unit);
    }
    ox_const *r = ox_alloc(o, sizeof *r);
    *r = *c;
    int64_t stored = c->splat ? 1 : c->count;
    r->data = ox_alloc(o, (size_t)stored * cli_dtype_size(c->dtype));
    for (int64_t i = 0; i < stored; i++) {
        ox_setf(r, i, ox_getf(c, i) / unit);
    }
    return ox_constant(o, v->name, ".units", r);
}

ox_value *ox_in_reach(ox *o, ox_node *n, ox_value *b, bool by_first, double *unit) {
    static const double exact = 16777216, reach = 8192;
    double most = largest_product(o, n, b, by_first);
    if (most > exact) {
        ox_name_node(o, n, &o->sums);
    }
    for (*unit = 1; most > reach * *unit; *unit *= 2) {
    }
    return ox_in_units(o, n, b, *unit);
}

// Output 0 as i32, of sums in units that may lie beside the integers that they are.
static void bind_sums(ox *o, ox_node *n, ox_value *sums, double unit) {
    const char *name = ox_first(o, n);
    sums = ox_in_units(o, n, sums, 1 / unit);
    ox_value *whole = ox_unary(o, n, "Round", ".rounded", sums);
    ox_begin(o);
    ox_arg(o, whole);
    ox_set_word(o, "to", "i32");
    ox_value *v = ox_end(o, "Cast", name, CLI_I32);
    v->whole = sums;
    ox_bind(o, n, 0, v);
}

// Sums of products in units that are `factor` apart, in the steps of scale and zero point, inputs
// `scale` and `scale` + 1.
static void bind_scaled(ox *o, ox_node *n, ox_value *sums, double unit, ox_value *factor, int scale,
                        ox_value *like) {
    int bits;
    ox_value *to = ox_scale(o, n, scale, (ox_along){0}, CLI_F32, true);
    cli_dtype type = ox_result_type(o, n, scale + 1, like, &bits);
    ox_value *zero = ox_zero(o, n, scale + 1, (ox_along){0}, CLI_F32, NULL);
    factor = ox_times(o, n, ox_over(o, n, factor, to), ox_number(o, n, ".unit", CLI_F32, unit));
    ox_bind_rounded(o, n, 0, ox_scaled(o, n, sums, factor), zero, type, bits);
}

// ---- matrices ----

// Where the numbers of a matrix' rows or columns stand.
static ox_along along_axis(ox *o, ox_node *n, int input, bool columns) {
    ox_value *v = ox_in(o, n, input);
    ox_need_shape(o, n, v);
    if (v->rank < 2) {
        return (ox_along){0};
    }
    return (ox_along){v->dims[v->rank - (columns ? 1 : 2)], !columns, true};
}

static ox_value *whole_matrix(ox *o, ox_node *n, int input, int zero, bool columns) {
    ox_value *q = ox_in(o, n, input);
    return ox_whole(o, n, q, ox_zero(o, n, zero, along_axis(o, n, input, columns), CLI_F32, q),
                    CLI_F32);
}

static void convert_matmul_integer(ox *o, ox_node *n) {
    double unit;
    ox_value *a = whole_matrix(o, n, 0, 2, false), *b = whole_matrix(o, n, 1, 3, true);
    b = ox_in_reach(o, n, b, false, &unit);
    bind_sums(o, n, ox_binary(o, n, "MatMul", ".sums", a, b), unit);
}

static void convert_qlinear_matmul(ox *o, ox_node *n) {
    double unit;
    ox_value *a = whole_matrix(o, n, 0, 2, false), *b = whole_matrix(o, n, 3, 5, true);
    ox_value *of_a = ox_scale(o, n, 1, along_axis(o, n, 0, false), CLI_F32, false);
    ox_value *of_b = ox_scale(o, n, 4, along_axis(o, n, 3, true), CLI_F32, false);
    b = ox_in_reach(o, n, b, false, &unit);
    ox_value *sums = ox_binary(o, n, "MatMul", ".sums", a, b);
    bind_scaled(o, n, sums, unit, ox_times(o, n, of_a, of_b), 6, ox_in(o, n, 0));
}

// ---- convolutions ----

// The places of output channels in a filter, or in the result.
static ox_along along_channels(ox *o, ox_node *n, int input, bool of_filter) {
    ox_value *w = ox_in(o, n, input);
    ox_need_shape(o, n, w);
    if (w->rank < 3) {
        ox_die(o, n, "operator '%s' with a filter of %d axes", n->op, w->rank);
    }
    return (ox_along){w->dims[0], w->rank - (of_filter ? 1 : 2), false};
}

static ox_value *whole_filter(ox *o, ox_node *n, int input, int zero, double *unit) {
    ox_value *w = ox_in(o, n, input);
    w = ox_whole(o, n, w, ox_zero(o, n, zero, along_channels(o, n, input, true), CLI_F32, w),
                 CLI_F32);
    return ox_in_reach(o, n, w, true, unit);
}

static void convert_conv_integer(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    x = ox_whole(o, n, x, ox_zero(o, n, 2, (ox_along){0}, CLI_F32, x), CLI_F32);
    double unit;
    ox_value *w = whole_filter(o, n, 1, 3, &unit);
    bind_sums(o, n, ox_conv(o, n, x, w, NULL, ox_fresh(o, ox_base(o, n), ".sums")), unit);
}

void ox_check_channels(ox *o, ox_node *n) {
    if (ox_int(o, n, "channels_last", 0)) {
        ox_unsupported(o, n,
                       "operator '%s' with channels last; export without a runtime's "
                       "optimizations",
                       n->op);
    }
}

void ox_qlinear_conv(ox *o, ox_node *n) {
    ox_value *q = ox_in(o, n, 0), *bias = ox_opt(o, n, 8);
    ox_check_channels(o, n);
    if (bias && bias->dtype != CLI_I32) {
        ox_die(o, n, "operator '%s' with a bias of type %s", n->op, cli_dtype_name(bias->dtype));
    }
    ox_value *x = ox_whole(o, n, q, ox_zero(o, n, 2, (ox_along){0}, CLI_F32, q), CLI_F32);
    double unit;
    ox_value *w = whole_filter(o, n, 3, 5, &unit);
    ox_value *of_x = ox_scale(o, n, 1, (ox_along){0}, CLI_F32, false);
    ox_value *of_w = ox_scale(o, n, 4, along_channels(o, n, 3, false), CLI_F32, false);
    bias = bias ? ox_in_units(o, n, ox_whole(o, n, bias, NULL, CLI_F32), unit) : NULL;
    ox_value *sums = ox_conv(o, n, x, w, bias, ox_fresh(o, ox_base(o, n), ".sums"));
    bind_scaled(o, n, sums, unit, ox_times(o, n, of_x, of_w), 6, q);
}

// ---- DynamicQuantizeLinear ----

// The extreme element of all, 0 among them.
static ox_value *extreme(ox *o, ox_node *n, const char *op, const char *of_two, ox_value *x) {
    int64_t axes[CLI_MAX_RANK];
    for (int a = 0; a < x->rank; a++) {
        axes[a] = a;
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", (ox_list){x->rank, axes, NULL});
    ox_set_int(o, "keepdims", 0);
    ox_value *v = ox_end(o, op, ox_fresh(o, ox_base(o, n), ".extreme"), x->dtype);
    return ox_by_number(o, n, of_two, ".extreme", v, 0);
}

ox_value *ox_in_steps(ox *o, ox_node *n, ox_value *x, ox_value **scale, ox_value **zero) {
    ox_need_shape(o, n, x);
    if (x->dtype != CLI_F32 || x->held || !x->rank) {
        ox_unsupported(o, n, "operator '%s' of what is no tensor of float", n->op);
    }
    ox_value *least = extreme(o, n, "ReduceMin", "Min", x);
    ox_value *range = ox_binary(o, n, "Sub", ".range", extreme(o, n, "ReduceMax", "Max", x), least);
    ox_value *none = ox_truth(o, n, "Equal", ".none", range, ox_number(o, n, ".zero", CLI_F32, 0));
    ox_value *step = ox_by_number(o, n, "Div", ".step", range, BYTE);
    // A tensor of zeros has a scale of 1, as in onnxruntime, where the standard divides 0 by 0.
    *scale = ox_where(o, n, ".scale", none, ox_number(o, n, ".one", CLI_F32, 1), step);
    ox_value *from =
        ox_unary(o, n, "Neg", ".from", ox_binary(o, n, "Div", ".steps", least, *scale));
    from = ox_unary(o, n, "Round", ".rounded", ox_clip_to(o, n, ".cut", from, 0, BYTE));
    *zero = from;
    return ox_binary(o, n, "Div", ".scaled", x, *scale);
}

static void convert_dynamic_quantize(ox *o, ox_node *n) {
    ox_value *scale, *zero;
    ox_value *x = ox_in_steps(o, n, ox_in(o, n, 0), &scale, &zero);
    ox_bind_rounded(o, n, 0, x, zero, CLI_U8, 0);
    ox_bind(o, n, 1, scale);
    zero->held = CLI_U8;
    ox_bind(o, n, 2, zero);
}

const ox_row ox_integer_rows[] = {
    {"MatMulInteger", 2, 4, convert_matmul_integer},
    {"ConvInteger", 2, 4, convert_conv_integer},
    {"QLinearMatMul", 8, 8, convert_qlinear_matmul},
    {"QLinearConv", 8, 9, ox_qlinear_conv},
    {"DynamicQuantizeLinear", 1, 1, convert_dynamic_quantize},
    {NULL, 0, 0, NULL},
};
