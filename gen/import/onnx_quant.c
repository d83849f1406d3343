// onnx_quant.c - what quantised exports put around float operators. A quantised value keeps its
// integers as floats: rounded, cut to the range of the type and exact, so that what stands between
// QuantizeLinear and DequantizeLinear (reshapes, pools, concatenations) is what it was. Constants
// are multiplied out here.
#include "onnx.h"

#include <math.h>

// The integers of a type of so many bits (0: all it has); false: of no type that is read.
static bool range_of(cli_dtype dtype, int bits, double *low, double *high) {
    bool is_signed = dtype == CLI_I8 || dtype == CLI_I16;
    bool byte = dtype == CLI_I8 || dtype == CLI_U8;
    double half = ldexp(1, (bits ? bits : byte ? 8 : 16) - 1);
    *low = is_signed ? -half : 0;
    *high = is_signed ? half - 1 : 2 * half - 1;
    return byte || dtype == CLI_I16 || dtype == CLI_U16;
}

// What a quantised value has in the file for a type; CLI_NONE where that is not known.
static cli_dtype type_of(ox *o, ox_value *v, int *bits) {
    const ox_const *c = ox_known(o, v);
    *bits = c ? c->bits : v->bits;
    return v->held ? v->held : ox_is_float(v->dtype) ? CLI_NONE : v->dtype;
}

cli_dtype ox_result_type(ox *o, ox_node *n, int input, ox_value *q, int *bits) {
    ox_value *zero = ox_opt(o, n, input);
    cli_dtype type = zero || q ? type_of(o, zero ? zero : q, bits) : CLI_NONE;
    *bits = type == CLI_NONE ? 0 : *bits;
    return type == CLI_NONE ? CLI_U8 : type;
}

// ---- scales and zero points ----

// Input `input` as numbers that broadcast.
static ox_value *numbers(ox *o, ox_node *n, int input, ox_along by, cli_dtype dtype, bool scale) {
    const char *suffix = scale ? ".scale" : ".zero";
    ox_value *v = ox_in(o, n, input);
    int64_t dims[CLI_MAX_RANK], count = 0;
    ox_need_shape(o, n, v);
    bool one = cli_count(v->rank, v->dims, &count) && count == 1, full = by.full && v->rank > 1;
    if (count < 1 || (!one && !full && (v->rank != 1 || count != by.size))) {
        ox_die(o, n, "operator '%s' with a %s of %d axes and %lld elements, where %lld are wanted",
               n->op, scale ? "scale" : "zero point", v->rank, (long long)count,
               (long long)(by.size > 0 ? by.size : 1));
    }
    int rank = one ? 0 : full ? v->rank : 1 + by.behind;
    for (int a = 0; a < rank; a++) {
        dims[a] = full ? v->dims[a] : a ? 1 : count;
    }
    const ox_const *c = ox_known(o, v);
    if (c) {
        c = ox_cast(o, c, dtype);
        return one ? ox_number(o, n, suffix, dtype, ox_getf(c, 0))
                   : ox_constant(o, v->name, suffix, ox_reshaped(o, c, rank, dims));
    }
    v = ox_cast_to(o, n, suffix, v, dtype);
    bool same = rank == v->rank && (rank < 2 || full);
    return same ? v
                : ox_with_list(o, n, "Reshape", suffix, v, "shape", (ox_list){rank, dims, NULL});
}

ox_value *ox_scale(ox *o, ox_node *n, int input, ox_along by, cli_dtype dtype, bool divides) {
    ox_value *v = ox_in(o, n, input);
    if (!ox_is_float(v->dtype) || v->held) {
        ox_die(o, n, "operator '%s' with a scale of type %s", n->op,
               cli_dtype_name(v->held ? v->held : v->dtype));
    }
    v = numbers(o, n, input, by, dtype, true);
    for (int64_t i = 0; v->known && i < v->known->count; i++) {
        double value = ox_getf(v->known, i);
        if (!isfinite(value) || (divides && value == 0)) {
            ox_die(o, n, "operator '%s' with a scale of %g", n->op, value);
        }
    }
    return v;
}

// Whether a value is known to be one number everywhere.
static bool is_number(const ox_value *v, double number) {
    bool is = v->known != NULL;
    for (int64_t i = 0; is && i < (v->known->splat ? 1 : v->known->count); i++) {
        is = ox_getf(v->known, i) == number;
    }
    return is;
}

ox_value *ox_zero(ox *o, ox_node *n, int input, ox_along by, cli_dtype dtype, ox_value *q) {
    ox_value *v = ox_opt(o, n, input);
    if (!v) {
        return NULL;
    }
    int bits = 0, own_bits = 0;
    cli_dtype type = q ? type_of(o, q, &bits) : CLI_NONE, own = type_of(o, v, &own_bits);
    if ((type != CLI_NONE && own != CLI_NONE && (type != own || bits != own_bits)) ||
        (own == CLI_NONE && (v->known || v->initializer))) {
        ox_die(o, n, "operator '%s' with a zero point of type %s for integers of type %s", n->op,
               cli_dtype_name(own == CLI_NONE ? v->dtype : own),
               type == CLI_NONE ? "its own" : cli_dtype_name(type));
    }
    v = numbers(o, n, input, by, dtype, false);
    return is_number(v, 0) ? NULL : v;
}

// a op b in f32, as runtimes fold scales; NULL unless both are known and one has one element.
static ox_value *folded(ox *o, ox_node *n, ox_value *a, ox_value *b, bool over) {
    const ox_const *x = a->known, *y = b->known;
    if (!x || !y || (x->count != 1 && y->count != 1) || x->dtype != y->dtype) {
        return NULL;
    }
    const ox_const *longer = x->count > 1 || x->rank > y->rank ? x : y;
    ox_const *c = ox_make(o, x->dtype, longer->rank, longer->dims);
    for (int64_t i = 0; i < c->count; i++) {
        float p = (float)ox_getf(x, x->count > 1 ? i : 0),
              q = (float)ox_getf(y, y->count > 1 ? i : 0);
        float r = over ? p / q : p * q;
        ox_setf(c, i, (double)r);
    }
    return c->rank ? ox_constant(o, ox_base(o, n), ".factor", c)
                   : ox_number(o, n, ".factor", c->dtype, ox_getf(c, 0));
}

ox_value *ox_times(ox *o, ox_node *n, ox_value *a, ox_value *b) {
    ox_value *v = is_number(b, 1) ? a : folded(o, n, a, b, false);
    return v ? v : ox_binary(o, n, "Mul", ".factor", a, b);
}

ox_value *ox_over(ox *o, ox_node *n, ox_value *a, ox_value *b) {
    ox_value *v = folded(o, n, a, b, true);
    return v ? v : ox_binary(o, n, "Div", ".factor", a, b);
}

ox_value *ox_scaled(ox *o, ox_node *n, ox_value *x, ox_value *by) {
    return is_number(by, 1) ? x : ox_binary(o, n, "Mul", ".scaled", x, by);
}

// ---- integers as floats ----

// Of numbers that broadcast against a tensor, `block` places of its axis `axis` to one of them.
typedef struct {
    int axis;
    int64_t block;
} blocks;

static const blocks no_blocks = {-1, 1};

// Which of them element `i` of the tensor has.
static int64_t number_at(const ox_const *c, int rank, const int64_t *dims, int64_t i, blocks in) {
    int64_t at = 0, step = 1;
    for (int a = rank - 1, k = c->rank - 1; k >= 0; a--, k--) {
        int64_t place = i % dims[a] / (a == in.axis ? in.block : 1);
        i /= dims[a];
        at += c->dims[k] > 1 ? place * step : 0;
        step *= c->dims[k];
    }
    return at;
}

static bool fits(const ox_const *c, int rank, const int64_t *dims, blocks in) {
    bool fit = c->rank <= rank && (in.axis < 0 || c->rank == rank);
    for (int a = rank - c->rank, k = 0; fit && k < c->rank; a++, k++) {
        int64_t size = a == in.axis ? (dims[a] - 1) / in.block + 1 : dims[a];
        fit = c->dims[k] == size || (in.axis < 0 && c->dims[k] == 1);
    }
    return fit;
}

// (q - zero) * scale, either of which may be NULL, of a constant, as many as there are.
static const ox_const *multiplied(ox *o, ox_node *n, const ox_const *c, const ox_value *zero,
                                  const ox_value *scale, blocks in, cli_dtype dtype) {
    const ox_const *z = zero ? zero->known : NULL, *s = scale ? scale->known : NULL;
    bool one = (!z || z->count == 1) && (!s || s->count == 1);
    if ((z && !fits(z, c->rank, c->dims, in)) || (s && !fits(s, c->rank, c->dims, in)) ||
        (c->splat && !one && c->count > OX_FOLD_LIMIT)) {
        ox_die(o, n, "operator '%s' with scales or zero points that do not fit its constant",
               n->op);
    }
    ox_const *r = ox_alloc(o, sizeof *r);
    *r = *c;
    r->dtype = dtype;
    r->bits = 0;
    r->sym = NULL;
    r->splat = c->splat && one;
    int64_t stored = r->splat ? 1 : c->count;
    r->data = ox_alloc(o, (size_t)stored * cli_dtype_size(dtype));
    for (int64_t i = 0; i < stored; i++) {
        double from = z ? ox_getf(z, one ? 0 : number_at(z, c->rank, c->dims, i, in)) : 0;
        double by = s ? ox_getf(s, one ? 0 : number_at(s, c->rank, c->dims, i, in)) : 1;
        float value = (float)(ox_getf(c, i) - from) * (float)by;
        ox_setf(r, i, (double)value);
    }
    return r;
}

ox_value *ox_whole(ox *o, ox_node *n, ox_value *q, ox_value *zero, cli_dtype dtype) {
    if (ox_known(o, q) && (!zero || zero->known)) {
        return ox_constant(o, q->name, ".whole",
                           multiplied(o, n, q->known, zero, NULL, no_blocks, dtype));
    }
    if (q->whole && (zero ? is_number(zero, q->zero) : q->zero == 0)) {
        return ox_cast_to(o, n, ".floats", q->whole, dtype);
    }
    q = ox_cast_to(o, n, ".floats", q, dtype);
    return zero ? ox_binary(o, n, "Sub", ".whole", q, zero) : q;
}

// The zero point is added last, so that who takes it off again takes what was there before.
void ox_bind_rounded(ox *o, ox_node *n, int output, ox_value *x, ox_value *zero, cli_dtype type,
                     int bits) {
    double low, high;
    if (!range_of(type, bits, &low, &high)) {
        ox_unsupported(o, n, "operator '%s' to a type other than int2 to int16 and uint2 to uint16",
                       n->op);
    }
    x = ox_unary(o, n, "Round", ".rounded", x);
    ox_value *q;
    if (!zero || (zero->known && zero->known->count == 1)) {
        double at = zero ? ox_getf(zero->known, 0) : 0;
        ox_value *whole = ox_clip_to(o, n, ".whole", x, low - at, high - at);
        q = zero ? ox_binary(o, n, "Add", ".integers", whole, zero)
                 : ox_unary(o, n, "Identity", ".integers", whole);
        q->whole = whole;
        q->zero = at;
    } else {
        q = ox_clip_to(o, n, ".integers", ox_binary(o, n, "Add", ".moved", x, zero), low, high);
    }
    q->held = type;
    q->bits = bits;
    ox_bind(o, n, output, q);
}

// ---- QuantizeLinear, DequantizeLinear ----

// Numbers of blocks, input `input`: NULL where they are absent.
static ox_value *of_blocks(ox *o, ox_node *n, int input, ox_value *x, blocks in, cli_dtype dtype) {
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (v && !c) {
        ox_unsupported(o, n, "operator '%s' in blocks whose scales are computed at run time",
                       n->op);
    }
    if (c && !fits(c, x->rank, x->dims, in)) {
        ox_die(o, n, "operator '%s' whose scales do not fit blocks of %lld", n->op,
               (long long)in.block);
    }
    if (!c || ox_known(o, x)) {
        return v;
    }
    ox_const *r = ox_make(o, dtype, x->rank, x->dims);
    for (int64_t i = 0; i < r->count; i++) {
        ox_setf(r, i, ox_getf(c, number_at(c, x->rank, x->dims, i, in)));
    }
    return ox_constant(o, ox_base(o, n), ".of_blocks", r);
}

// Scale and zero point, which is NULL where it is 0, of a tensor `x`, which is `q` where that is of
// integers.
static blocks take_grid(ox *o, ox_node *n, ox_value *x, ox_value *q, cli_dtype dtype,
                        ox_value **scale, ox_value **zero) {
    int64_t axis = ox_int(o, n, "axis", 1), block = ox_int(o, n, "block_size", 0), count;
    ox_value *s = ox_in(o, n, 1);
    ox_along by = {0};
    ox_need_shape(o, n, s);
    bool several = !cli_count(s->rank, s->dims, &count) || count != 1 || block;
    if (several) {
        ox_need_shape(o, n, x);
        axis = ox_axis(o, n, axis, x->rank);
        by = (ox_along){x->dims[axis], x->rank - (int)axis - 1, false};
    }
    if (!block) {
        *scale = ox_scale(o, n, 1, by, dtype, !q);
        *zero = ox_zero(o, n, 2, by, dtype, q);
        return no_blocks;
    }
    blocks in = {(int)axis, block > 0 ? block : 1};
    if (block < 0) {
        ox_die(o, n, "operator '%s' in blocks of %lld", n->op, (long long)block);
    }
    *scale = of_blocks(o, n, 1, x, in, dtype);
    *zero = of_blocks(o, n, 2, x, in, dtype);
    return in;
}

// round(x / scale) + zero, cut to the type.
void ox_quantize(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *scale, *zero;
    int64_t code = ox_int(o, n, "output_dtype", 0);
    int bits = 0;
    ox_find(o, n, "saturate");
    ox_find(o, n, "precision");
    if (!ox_is_float(x->dtype) || x->held) {
        ox_unsupported(o, n, "QuantizeLinear of integers");
    }
    take_grid(o, n, x, NULL, x->dtype, &scale, &zero);
    cli_dtype to = code && !ox_opt(o, n, 2)
                       ? ox_stored(code > 0 && code < 100 ? (int32_t)code : 0, &bits)
                       : ox_result_type(o, n, 2, NULL, &bits);
    x = is_number(scale, 1) ? x : ox_binary(o, n, "Div", ".scaled", x, scale);
    ox_bind_rounded(o, n, 0, x, zero, to, bits);
}

// (q - zero) * scale in the scale's type.
void ox_dequantize(ox *o, ox_node *n) {
    ox_value *q = ox_in(o, n, 0), *scale, *zero;
    cli_dtype to = ox_in(o, n, 1)->dtype;
    ox_int(o, n, "output_dtype", 0);
    if (to != CLI_F32 && to != CLI_F16 && to != CLI_BF16) {
        ox_unsupported(o, n, "DequantizeLinear to a type other than float, float16 and bfloat16");
    }
    blocks in = take_grid(o, n, q, q, to, &scale, &zero);
    const ox_const *c = ox_known(o, q);
    if (c && scale->known && (!zero || zero->known)) {
        ox_bind_known(o, n, 0, multiplied(o, n, c, zero, scale, in, to));
        return;
    }
    const char *name = ox_first(o, n);
    bool plain = is_number(scale, 1);
    ox_value *whole = ox_whole(o, n, q, zero, to);
    ox_begin(o);
    ox_arg(o, whole);
    if (!plain) {
        ox_arg(o, scale);
    }
    ox_bind(o, n, 0, ox_end(o, plain ? "Identity" : "Mul", name, to));
}

const ox_row ox_quant_rows[] = {
    {"QuantizeLinear", 2, 3, ox_quantize},
    {"DequantizeLinear", 2, 3, ox_dequantize},
    {NULL, 0, 0, NULL},
};
