// onnx_fourier.c - Fourier transforms as products with constant matrices: sizes are known when a
// model is imported.
#include "onnx.h"

#include <math.h>

enum { MATRIX_LIMIT = 1 << 25 };  // elements: the bins of 4096 real numbers, and no more

// What a transform takes and gives along its axis; numbers of `in` and `out` parts are 1 (real) or
// 2 (complex).
typedef struct {
    int64_t length, in, out;  // of the transform; of what is there and of what is asked for
    int in_parts, out_parts;
    bool inverse;
} transform;

// cos and sin of 2 pi j k / length; the inverse turns the other way and divides.
static void turn(const transform *t, int64_t j, int64_t k, double *re, double *im) {
    double angle = 2 * acos(-1) * (double)(j * k % t->length) / (double)t->length;
    double by = t->inverse ? 1 / (double)t->length : 1;
    // What an inverse to real numbers is not given is the conjugate of what it is.
    bool twice = t->inverse && t->out_parts == 1 && j && 2 * j != t->length;
    *re = by * (twice ? 2 : 1) * cos(angle);
    *im = by * (twice ? 2 : 1) * (t->inverse ? sin(angle) : -sin(angle));
}

// [in * in_parts, out * out_parts]: (a + ib) times (re + i im).
static const ox_const *matrix(ox *o, ox_node *n, const transform *t, cli_dtype dtype) {
    int64_t dims[2] = {t->in * t->in_parts, t->out * t->out_parts}, count;
    if (!cli_count(2, dims, &count) || count > MATRIX_LIMIT ||
        (o->folded += count) > OX_FOLD_TOTAL) {
        ox_unsupported(o, n, "operator '%s' of length %lld, whose matrix would be too large", n->op,
                       (long long)t->length);
    }
    ox_const *c = ox_make_upto(o, dtype, 2, dims, MATRIX_LIMIT);
    bool half = t->inverse && t->out_parts == 1;
    int64_t read = half ? t->length / 2 + 1 : t->length;  // the rest is cut off
    for (int64_t j = 0; j < t->in && j < read; j++) {
        for (int64_t k = 0; k < t->out; k++) {
            double part[2];
            turn(t, j, k, &part[0], &part[1]);
            for (int p = 0; p < t->in_parts * t->out_parts; p++) {
                int from = p / t->out_parts, to = p % t->out_parts;
                double sign = from && !to ? -1 : 1;
                int64_t row = j * t->in_parts + from, column = k * t->out_parts + to;
                ox_setf(c, row * dims[1] + column, sign * part[from != to]);
            }
        }
    }
    return c;
}

// One known whole number; `otherwise` where the input is omitted.
static int64_t number_input(ox *o, ox_node *n, int input, const char *what, int64_t otherwise) {
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (v && (!c || c->count != 1)) {
        ox_unsupported(o, n, "operator '%s' whose %s is not a known number", n->op, what);
    }
    return c ? ox_geti(c, 0) : otherwise;
}

// x with `axis` moved to the place before the last, or, `back`, from there.
static ox_value *moved(ox *o, ox_node *n, ox_value *x, int rank, int axis, bool back) {
    int64_t perm[CLI_MAX_RANK];
    if (axis == rank - 2) {
        return x;
    }
    for (int a = 0; a < rank; a++) {
        int there = a < axis || a == rank - 1 ? a : back ? a - 1 : a + 1;
        perm[a] = back && a == axis ? rank - 2 : !back && a == rank - 2 ? axis : there;
    }
    return ox_with_list(o, n, "Transpose", back ? ".back" : ".moved", x, "perm",
                        (ox_list){rank, perm, NULL});
}

static transform take_transform(ox *o, ox_node *n, ox_value *x, int *axis) {
    bool inverse = ox_int(o, n, "inverse", 0) != 0, half = ox_int(o, n, "onesided", 0) != 0;
    int64_t at = n->opset < 20 ? ox_int(o, n, "axis", 1) : number_input(o, n, 2, "axis", -2);
    ox_need_sym(o, n, x);
    *axis = (int)ox_axis(o, n, at, x->rank);
    int last = x->rank - 1;
    if (*axis == last || x->dims[last] < 1 || x->dims[last] > 2) {
        ox_die(o, n, "operator 'DFT' without an axis of real or complex numbers");
    }
    transform t = {.in = x->dims[*axis], .in_parts = (int)x->dims[last], .inverse = inverse};
    bool real = inverse && half;
    t.length = number_input(o, n, 1, "length", real ? 2 * (t.in - 1) : t.in);
    if (t.length < 1 || t.length > OX_FOLD_LIMIT || x->sym[*axis]) {
        ox_unsupported(o, n, "operator 'DFT' of a length that is not known or not usable");
    }
    t.out = half && !inverse ? t.length / 2 + 1 : t.length;
    t.out_parts = real ? 1 : 2;
    return t;
}

static void convert_dft(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    int axis;
    transform t = take_transform(o, n, x, &axis);
    int rank = x->rank;
    int64_t dims[CLI_MAX_RANK];
    const char *sym[CLI_MAX_RANK];
    for (int a = 0, at = 0; a < rank - 1; a++) {
        if (a != axis) {
            dims[at] = x->dims[a];
            sym[at++] = x->sym[a];
        }
    }
    dims[rank - 2] = t.in * t.in_parts;
    sym[rank - 2] = sym[rank - 1] = NULL;
    x = moved(o, n, x, rank, axis, false);
    x = ox_with_list(o, n, "Reshape", ".rows", x, "shape", (ox_list){rank - 1, dims, sym});
    x = ox_binary(o, n, "MatMul", ".product", x,
                  ox_constant(o, ox_base(o, n), ".matrix", matrix(o, n, &t, x->dtype)));
    dims[rank - 2] = t.out;
    dims[rank - 1] = t.out_parts;
    x = ox_with_list(o, n, "Reshape", ".bins", x, "shape", (ox_list){rank, dims, sym});
    x = moved(o, n, x, rank, axis, true);
    ox_bind_as(o, n, 0, "Identity", x, NULL, (ox_list){0});
}

// A convolution of the signal with the transform's waves under the window, one filter a part of a
// bin.
static const ox_const *waves(ox *o, ox_node *n, const transform *t, const ox_const *window,
                             cli_dtype dtype) {
    int64_t dims[3] = {t->out * 2, 1, t->length};
    const ox_const *m = matrix(o, n, t, dtype);
    ox_const *c = ox_make_upto(o, dtype, 3, dims, MATRIX_LIMIT);
    for (int64_t f = 0; f < dims[0]; f++) {
        for (int64_t i = 0; i < t->length; i++) {
            double by = window ? ox_getf(window, i) : 1;
            ox_setf(c, f * t->length + i, by * ox_getf(m, i * dims[0] + f));
        }
    }
    return c;
}

static void convert_stft(ox *o, ox_node *n) {
    static const int64_t perm[3] = {0, 2, 1};
    ox_value *x = ox_in(o, n, 0), *window = ox_opt(o, n, 2);
    const ox_const *w = window ? ox_known(o, window) : NULL;
    ox_need_sym(o, n, x);
    if (window && (!w || w->rank != 1)) {
        ox_unsupported(o, n, "operator 'STFT' whose window is not known");
    }
    int64_t step = number_input(o, n, 1, "step", 0);
    int64_t size = number_input(o, n, 3, "length", w ? w->count : 0);
    bool half = ox_int(o, n, "onesided", 1) != 0;
    bool real = x->rank == 2 || (x->rank == 3 && x->dims[2] == 1);
    if (!real || (w && w->count != size) || size < 1 || size > x->dims[1] || step < 1) {
        ox_unsupported(o, n, "operator 'STFT' of complex numbers or with an unusable frame");
    }
    transform t = {.length = size, .in = size, .in_parts = 1, .out_parts = 2};
    t.out = half ? size / 2 + 1 : size;
    int64_t shape[4] = {x->dims[0], 1, x->dims[1], 0};
    const char *sym[4] = {x->sym[0], NULL, x->sym[1], NULL};
    ox_value *filter = ox_constant(o, ox_base(o, n), ".waves", waves(o, n, &t, w, x->dtype));
    x = ox_with_list(o, n, "Reshape", ".signal", x, "shape", (ox_list){3, shape, sym});
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, filter);
    if (step != 1) {
        ox_set_int(o, "strides", step);
    }
    x = ox_end(o, "Conv", ox_fresh(o, ox_base(o, n), ".parts"), x->dtype);
    x = ox_with_list(o, n, "Transpose", ".frames", x, "perm", (ox_list){3, perm, NULL});
    shape[1] = (shape[2] - size) / step + 1;
    shape[2] = t.out;
    shape[3] = 2;
    if (sym[2]) {
        shape[1] = -1;
        sym[2] = NULL;
    }
    ox_end_list(o, n, "Reshape", x, "shape", (ox_list){4, shape, sym});
}

// One known number.
static double known_input(ox *o, ox_node *n, int input, const char *what) {
    const ox_const *c = ox_known(o, ox_in(o, n, input));
    if (!c || c->count != 1) {
        ox_unsupported(o, n, "operator '%s' whose %s is not a known number", n->op, what);
    }
    return ox_getf(c, 0);
}

// The frequency that a place on the mel scale stands for, and the other way round.
static double hertz(double mel) { return 700 * expm1(mel * log(10) / 2595); }
static double mel(double frequency) { return 2595 * log1p(frequency / 700) / log(10); }

// Triangles over the bins of a spectrum, as the standard's reference has them: each begins in the
// middle of the one before and ends in that of the next.
static void put_triangles(ox_const *c, const int64_t *middle) {
    int64_t bins = c->dims[1];
    for (int64_t i = 0; i < bins; i++) {
        int64_t from = middle[i], top = middle[i + 1], to = middle[i + 2];
        for (int64_t j = from; j <= top; j++) {
            ox_setf(c, j * bins + i, top > from ? (double)(j - from) / (double)(top - from) : 1);
        }
        for (int64_t j = top; j < to; j++) {
            ox_setf(c, j * bins + i, (double)(to - j) / (double)(to - top));
        }
    }
}

static void convert_mel_matrix(ox *o, ox_node *n) {
    double bins = known_input(o, n, 0, "number of bins"), size = known_input(o, n, 1, "length"),
           rate = known_input(o, n, 2, "sample rate"), low = known_input(o, n, 3, "lower edge"),
           high = known_input(o, n, 4, "upper edge");
    int64_t code = ox_int(o, n, "output_datatype", 1);
    cli_dtype type = code > 0 && code < 100 ? ox_dtype((int32_t)code) : CLI_NONE;
    if (!ox_is_float(type) || !(bins >= 1 && bins < OX_FOLD_LIMIT) ||
        !(size >= 1 && size < OX_FOLD_LIMIT) || !(rate > 0) || !(low >= 0 && high > low) ||
        !(high < OX_MAX_DIM)) {
        ox_unsupported(o, n, "operator 'MelWeightMatrix' of this size, edges or type");
    }
    int64_t dims[2] = {(int64_t)size / 2 + 1, (int64_t)bins}, count;
    if (!cli_count(2, dims, &count) || count > OX_FOLD_LIMIT ||
        (o->folded += count) > OX_FOLD_TOTAL) {
        ox_unsupported(o, n, "operator 'MelWeightMatrix' of %lld x %lld", (long long)dims[0],
                       (long long)dims[1]);
    }
    int64_t *middle = ox_alloc(o, (size_t)(dims[1] + 2) * sizeof *middle);
    double step = (mel(high) - mel(low)) / (double)(dims[1] + 2);
    for (int64_t i = 0; i < dims[1] + 2; i++) {
        double at = floor((size + 1) * hertz((double)i * step + mel(low)) / rate);
        if (!(at < (double)dims[0])) {
            ox_die(o, n, "MelWeightMatrix whose upper edge is above half of its sample rate");
        }
        middle[i] = (int64_t)at;
    }
    ox_const *c = ox_make(o, type, 2, dims);
    put_triangles(c, middle);
    ox_bind_known(o, n, 0, c);
}

const ox_row ox_fourier_rows[] = {
    {"DFT", 1, 3, convert_dft},
    {"STFT", 2, 4, convert_stft},
    {"MelWeightMatrix", 5, 5, convert_mel_matrix},
    {NULL, 0, 0, NULL},
};
