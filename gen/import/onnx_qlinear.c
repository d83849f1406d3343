// onnx_qlinear.c - operators of onnxruntime's own that its quantisation writes: each is the float
// operator of what the integers stand for, in the steps of its result.
#include "onnx.h"

#include <math.h>

static const ox_along one = {0};

static ox_value *scale_of(ox *o, ox_node *n, int input, bool divides) {
    return ox_scale(o, n, input, one, CLI_F32, divides);
}

// What the integers of input `input` are above their zero point, input `zero`.
static ox_value *whole(ox *o, ox_node *n, int input, int zero) {
    ox_value *q = ox_in(o, n, input);
    return ox_whole(o, n, q, ox_zero(o, n, zero, one, CLI_F32, q), CLI_F32);
}

// What they stand for, as inputs `input`, a scale and a zero point.
static ox_value *real(ox *o, ox_node *n, int input) {
    return ox_scaled(o, n, whole(o, n, input, input + 2), scale_of(o, n, input + 1, false));
}

// The same in steps of the scale `to`.
static ox_value *in_steps_of(ox *o, ox_node *n, int input, ox_value *to) {
    ox_value *ratio = ox_over(o, n, scale_of(o, n, input + 1, false), to);
    return ox_scaled(o, n, whole(o, n, input, input + 2), ratio);
}

// Output 0, whose zero point is input `zero`, or if there is none integers as those of `like`.
static void bind_steps(ox *o, ox_node *n, ox_value *x, int zero, ox_value *like) {
    int bits;
    cli_dtype type = ox_result_type(o, n, zero, like, &bits);
    ox_bind_rounded(o, n, 0, x, ox_zero(o, n, zero, one, CLI_F32, NULL), type, bits);
}

// The same of a real value; its scale is the input in front.
static void bind_real(ox *o, ox_node *n, ox_value *x, int zero, ox_value *like) {
    x = ox_binary(o, n, "Div", ".steps", x, scale_of(o, n, zero - 1, true));
    bind_steps(o, n, x, zero, like);
}

static const char *fresh(ox *o, ox_node *n, const char *suffix) {
    return ox_fresh(o, ox_base(o, n), suffix);
}

// ---- element by element ----

static void convert_add(ox *o, ox_node *n) {
    ox_value *to = scale_of(o, n, 6, true);
    ox_value *a = in_steps_of(o, n, 0, to), *b = in_steps_of(o, n, 3, to);
    bind_steps(o, n, ox_binary(o, n, "Add", ".sum", a, b), 7, ox_in(o, n, 0));
}

static void convert_mul(ox *o, ox_node *n) {
    ox_value *factor = ox_times(o, n, scale_of(o, n, 1, false), scale_of(o, n, 4, false));
    ox_value *y = ox_binary(o, n, "Mul", ".product", whole(o, n, 0, 2), whole(o, n, 3, 5));
    factor = ox_over(o, n, factor, scale_of(o, n, 6, true));
    bind_steps(o, n, ox_scaled(o, n, y, factor), 7, ox_in(o, n, 0));
}

static void convert_activation(ox *o, ox_node *n) {
    bool sigmoid = !strcmp(n->op, "QLinearSigmoid");
    ox_value *x = real(o, n, 0);
    ox_begin(o);
    ox_arg(o, x);
    if (!sigmoid) {
        ox_set_float(o, "alpha", ox_float(o, n, "alpha", 0.01));
    }
    x = ox_end(o, sigmoid ? "Sigmoid" : "LeakyRelu", fresh(o, n, ".real"), CLI_F32);
    bind_real(o, n, x, 4, ox_in(o, n, 0));
}

static void convert_where(ox *o, ox_node *n) {
    ox_value *to = scale_of(o, n, 7, true);
    ox_value *a = in_steps_of(o, n, 1, to), *b = in_steps_of(o, n, 4, to);
    bind_steps(o, n, ox_where(o, n, ".chosen", ox_in(o, n, 0), a, b), 8, ox_in(o, n, 1));
}

// Its result's scale and zero point come first, then those of each part behind it.
static void convert_concat(ox *o, ox_node *n) {
    ox_value *to = scale_of(o, n, 0, true);
    int count = (n->n_in - 2) / 3;
    ox_value **parts = ox_alloc(o, (size_t)count * sizeof *parts);
    if (n->n_in != 2 + 3 * count || !ox_has(n, "axis")) {
        ox_die(o, n, "operator '%s' with %d inputs%s", n->op, n->n_in,
               ox_has(n, "axis") ? "" : " and no axis");
    }
    for (int i = 0; i < count; i++) {
        parts[i] = in_steps_of(o, n, 2 + 3 * i, to);
    }
    ox_value *x = ox_concat(o, n, ".parts", parts, count, ox_int(o, n, "axis", 0));
    bind_steps(o, n, x, 1, ox_in(o, n, 2));
}

// ---- over several elements ----

static void convert_average(ox *o, ox_node *n) {
    ox_check_channels(o, n);
    ox_value *x = real(o, n, 0);
    if (!strcmp(n->op, "QLinearGlobalAveragePool")) {
        x = ox_unary(o, n, "GlobalAveragePool", ".mean", x);
    } else {
        x = ox_average(o, n, x, fresh(o, n, ".mean"));
    }
    bind_real(o, n, x, 4, ox_in(o, n, 0));
}

static void convert_reduce_mean(ox *o, ox_node *n) {
    ox_value *x = real(o, n, 0);
    int64_t all[CLI_MAX_RANK];
    ox_list axes;
    ox_need_shape(o, n, x);
    for (int a = 0; a < x->rank; a++) {
        all[a] = a;
    }
    if (!ox_ints(o, n, "axes", &axes) || !axes.n) {
        axes = (ox_list){x->rank, all, NULL};
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", axes);
    ox_set_int(o, "keepdims", ox_int(o, n, "keepdims", 1) != 0);
    bind_real(o, n, ox_end(o, "ReduceMean", fresh(o, n, ".mean"), CLI_F32), 4, ox_in(o, n, 0));
}

static void convert_softmax(ox *o, ox_node *n) {
    ox_value *x = real(o, n, 0);
    x = ox_softmax(o, n, "Softmax", x, ox_int(o, n, "opset", 13), fresh(o, n, ".real"));
    bind_real(o, n, x, 4, ox_in(o, n, 0));
}

// ---- products ----

static ox_value *turned(ox *o, ox_node *n, ox_value *x, bool turn) {
    int64_t perm[CLI_MAX_RANK];
    if (!turn) {
        return x;
    }
    ox_need_shape(o, n, x);
    for (int a = 0; a < x->rank; a++) {
        perm[a] = a < x->rank - 2 ? a : 2 * x->rank - 3 - a;
    }
    return x->rank < 2 ? x
                       : ox_with_list(o, n, "Transpose", ".turned", x, "perm",
                                      (ox_list){x->rank, perm, NULL});
}

// alpha * (A B + C); C has as many steps as products have.
static void convert_gemm(ox *o, ox_node *n) {
    int64_t turn_a = ox_int(o, n, "transA", 0), turn_b = ox_int(o, n, "transB", 0);
    double alpha = ox_float(o, n, "alpha", 1), unit;
    ox_value *b = ox_in(o, n, 3), *c = ox_opt(o, n, 6);
    ox_need_shape(o, n, b);
    if (b->rank != 2) {
        ox_die(o, n, "operator '%s' with a matrix of %d axes", n->op, b->rank);
    }
    ox_along along = {b->dims[turn_b ? 0 : 1], turn_b != 0, false}, last = {along.size, 0, false};
    ox_value *a = whole(o, n, 0, 2);
    b = ox_whole(o, n, b, ox_zero(o, n, 5, along, CLI_F32, b), CLI_F32);
    b = turned(o, n, ox_in_reach(o, n, b, turn_b != 0, &unit), turn_b);
    ox_value *v = ox_binary(o, n, "MatMul", ".sums", turned(o, n, a, turn_a), b);
    c = c ? ox_in_units(o, n, ox_whole(o, n, c, NULL, CLI_F32), unit) : NULL;
    v = c ? ox_binary(o, n, "Add", ".biased", v, c) : v;
    ox_value *factor =
        ox_times(o, n, scale_of(o, n, 1, false), ox_scale(o, n, 4, last, CLI_F32, false));
    factor = ox_times(o, n, factor, ox_number(o, n, ".alpha", CLI_F32, alpha * unit));
    if (ox_opt(o, n, 7)) {
        factor = ox_over(o, n, factor, scale_of(o, n, 7, true));
        bind_steps(o, n, ox_scaled(o, n, v, factor), 8, ox_in(o, n, 0));
    } else {
        ox_bind_as(o, n, 0, "Identity", ox_scaled(o, n, v, factor), NULL, (ox_list){0});
    }
}

// Of A, which is `of_a` apart, and B, whose scale and zero point are inputs `scale` and `zero`: the
// product as floats, with a bias.
static void bind_product(ox *o, ox_node *n, ox_value *a, ox_value *of_a, int scale, int zero,
                         int bias) {
    ox_value *b = ox_in(o, n, 1), *added = ox_opt(o, n, bias);
    double unit;
    ox_need_shape(o, n, b);
    ox_along along = {b->rank > 1 ? b->dims[b->rank - 1] : 0, 0, true};
    ox_value *factor = ox_times(o, n, of_a, ox_scale(o, n, scale, along, CLI_F32, false));
    b = ox_whole(o, n, b, ox_zero(o, n, zero, along, CLI_F32, b), CLI_F32);
    b = ox_in_reach(o, n, b, false, &unit);
    factor = ox_times(o, n, factor, ox_number(o, n, ".unit", CLI_F32, unit));
    ox_value *y = ox_scaled(o, n, ox_binary(o, n, "MatMul", ".sums", a, b), factor);
    y = added ? ox_binary(o, n, "Add", ".biased", y, added) : y;
    ox_bind_as(o, n, 0, "Identity", y, NULL, (ox_list){0});
}

static void convert_to_float(ox *o, ox_node *n) {
    bind_product(o, n, whole(o, n, 0, 4), scale_of(o, n, 2, false), 3, 5, 6);
}

static void convert_dynamic(ox *o, ox_node *n) {
    ox_value *of_a, *zero, *a = ox_in_steps(o, n, ox_in(o, n, 0), &of_a, &zero);
    a = ox_binary(o, n, "Add", ".moved", ox_unary(o, n, "Round", ".rounded", a), zero);
    a = ox_binary(o, n, "Sub", ".whole", ox_clip_to(o, n, ".integers", a, 0, 255), zero);
    bind_product(o, n, a, of_a, 2, 3, 4);
}

static void convert_fused(ox *o, ox_node *n) {
    if (ox_int(o, n, "transBatchA", 0) || ox_int(o, n, "transBatchB", 0)) {
        ox_unsupported(o, n, "operator '%s' with batches that are transposed", n->op);
    }
    double alpha = ox_float(o, n, "alpha", 1);
    ox_value *a = turned(o, n, ox_in(o, n, 0), ox_int(o, n, "transA", 0) != 0);
    ox_value *b = turned(o, n, ox_in(o, n, 1), ox_int(o, n, "transB", 0) != 0);
    if (alpha == 1) {
        ox_end_binary(o, n, "MatMul", a, b);
        return;
    }
    ox_value *y = ox_binary(o, n, "MatMul", ".product", a, b);
    ox_end_binary(o, n, "Mul", y, ox_number(o, n, ".alpha", y->dtype, alpha));
}

// ---- weights of few bits ----

// Integer `i` of a row of those of so many bits, the lowest first.
static int packed(const ox_const *c, int64_t row, int64_t row_bytes, int64_t i, int64_t bits) {
    int64_t at = row * row_bytes + i * bits / 8;
    return (int)(ox_geti(c, at) >> (i * bits % 8) & ((1 << bits) - 1));
}

// A [.., K] times the transpose of B [N, K], whose rows are cut into blocks that have a scale and a
// zero point each: B is made here, as [K, N].
static void convert_nbits(ox *o, ox_node *n) {
    int64_t k = ox_int(o, n, "K", 0), columns = ox_int(o, n, "N", 0);
    int64_t bits = ox_int(o, n, "bits", 4), size = ox_int(o, n, "block_size", 0);
    ox_find(o, n, "accuracy_level");
    ox_value *q = ox_in(o, n, 1), *s = ox_in(o, n, 2), *z = ox_opt(o, n, 3);
    const ox_const *c = ox_known(o, q), *scale = ox_known(o, s), *zero = z ? ox_known(o, z) : NULL;
    if (!c || !scale || (z && !zero) || ox_opt(o, n, 4) || (bits != 2 && bits != 4 && bits != 8) ||
        ox_int(o, n, "weight_prepacked", 0)) {
        ox_unsupported(o, n,
                       "operator '%s' whose weights are not known, not of 2, 4 or 8 bits, or "
                       "not in order",
                       n->op);
    }
    bool usable = k > 0 && k <= OX_FOLD_TOTAL && columns > 0 && columns <= OX_FOLD_TOTAL &&
                  size >= 8 && size <= OX_FOLD_LIMIT && !(size & (size - 1));
    int64_t blocks = usable ? (k - 1) / size + 1 : 0, bytes = usable ? size * bits / 8 : 0;
    int64_t zero_bytes = (blocks * bits + 7) / 8;
    bool packs = zero && !ox_is_float(zero->dtype);
    if (!usable || c->dtype != CLI_U8 || c->count != columns * blocks * bytes ||
        !ox_is_float(scale->dtype) || scale->count != columns * blocks ||
        (zero && (packs ? zero->dtype != CLI_U8 || zero->count != columns * zero_bytes
                        : zero->count != columns * blocks)) ||
        (c->splat && k * columns > OX_FOLD_LIMIT)) {
        ox_die(o, n, "operator '%s' whose weights do not have the sizes that it says", n->op);
    }
    cli_dtype dtype = ox_in(o, n, 0)->dtype;
    ox_const *b = ox_make_upto(o, dtype, 2, (int64_t[]){k, columns}, INT64_MAX / 8);
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < k; i++) {
            int64_t block = j * blocks + i / size;
            double from = !zero   ? (double)(1 << (bits - 1))
                          : packs ? packed(zero, j, zero_bytes, i / size, bits)
                                  : ox_getf(zero, block);
            float value = (float)(packed(c, j, blocks * bytes, i, bits) - from) *
                          (float)ox_getf(scale, block);
            ox_setf(b, i * columns + j, (double)value);
        }
    }
    ox_value *bias = ox_opt(o, n, 5), *w = ox_constant(o, q->name, ".real", b);
    if (!bias) {
        ox_end_binary(o, n, "MatMul", ox_in(o, n, 0), w);
        return;
    }
    ox_end_binary(o, n, "Add", ox_binary(o, n, "MatMul", ".product", ox_in(o, n, 0), w), bias);
}

// ---- recurrences ----

// Weights [D,K,G] of a recurrence, which have one scale and zero point a direction or column, as
// LSTM has them: real, and [D,G,K].
static ox_value *gate_weights(ox *o, ox_node *n, int input, int grid) {
    ox_value *v = ox_in(o, n, input), *z = ox_opt(o, n, grid + 1);
    const ox_const *q = ox_known(o, v), *scale = ox_known(o, ox_in(o, n, grid));
    const ox_const *zero = z ? ox_known(o, z) : NULL;
    if (!q || !scale || (z && !zero)) {
        ox_unsupported(o, n, "operator '%s' with weights computed at run time", n->op);
    }
    int64_t columns = q->rank == 3 ? q->dims[2] : 0;
    bool each = scale->count == q->dims[0] * columns;
    if (q->rank != 3 || q->count < 1 || q->splat || !ox_is_float(scale->dtype) ||
        (!each && scale->count != q->dims[0]) ||
        (zero && (zero->count != scale->count || zero->dtype != q->dtype))) {
        ox_die(o, n, "operator '%s' whose scales or zero points do not fit its weights", n->op);
    }
    ox_const *r =
        ox_make_upto(o, CLI_F32, 3, (int64_t[]){q->dims[0], columns, q->dims[1]}, q->count);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t k = i % q->dims[1], row = i / q->dims[1];  // of all directions
        int64_t d = row / columns, at = each ? row : d;
        double from = zero ? ox_getf(zero, at) : 0;
        double value = ox_getf(q, (d * q->dims[1] + k) * columns + row % columns) - from;
        float real = (float)value * (float)ox_getf(scale, at);
        ox_setf(r, i, (double)real);
    }
    return ox_constant(o, v->name, ".real", r);
}

// An LSTM of the weights' values. onnxruntime rounds inputs and state at every step, which costs it
// digits and would cost a plan three kernels a step.
static void convert_lstm(ox *o, ox_node *n) {
    n->in[1] = gate_weights(o, n, 1, 8);
    n->in[2] = gate_weights(o, n, 2, 10);
    n->op = "LSTM";
    n->n_in = 8;
    ox_name_node(o, n, &o->unrounded);
    ox_recurrent(o, n);
}

const ox_row ox_runtime_rows[] = {
    {"QuantizeLinear", 2, 3, ox_quantize},
    {"DequantizeLinear", 2, 3, ox_dequantize},
    {"QLinearConv", 8, 9, ox_qlinear_conv},
    {"QLinearAdd", 7, 8, convert_add},
    {"QLinearMul", 7, 8, convert_mul},
    {"QLinearSigmoid", 4, 5, convert_activation},
    {"QLinearLeakyRelu", 4, 5, convert_activation},
    {"QLinearWhere", 9, 9, convert_where},
    {"QLinearConcat", 5, -1, convert_concat},
    {"QLinearAveragePool", 4, 5, convert_average},
    {"QLinearGlobalAveragePool", 5, 5, convert_average},
    {"QLinearReduceMean", 4, 5, convert_reduce_mean},
    {"QLinearSoftmax", 5, 5, convert_softmax},
    {"QGemm", 6, 9, convert_gemm},
    {"MatMulIntegerToFloat", 4, 7, convert_to_float},
    {"DynamicQuantizeMatMul", 3, 5, convert_dynamic},
    {"FusedMatMul", 2, 2, convert_fused},
    {"MatMulNBits", 3, 6, convert_nbits},
    {"DynamicQuantizeLSTM", 12, 12, convert_lstm},
    {NULL, 0, 0, NULL},
};
