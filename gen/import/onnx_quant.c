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

static const ox_const *number_list(ox *o, ox_node *n, int input, bool blocks, const char *what) {
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (v && !c) {
        ox_unsupported(o, n, "operator '%s' with a %s computed at run time", n->op, what);
    }
    if (c && (c->count < 1 || (!blocks && (c->rank > 1 || c->count > OX_FOLD_LIMIT)))) {
        ox_die(o, n, "operator '%s' with a %s of %d axes and %lld elements", n->op, what, c->rank,
               (long long)c->count);
    }
    return c;
}

// One number, one for every place of `axis`, or one for every `block` places of it and every place
// of the other axes.
typedef struct {
    const ox_const *scale, *zero;
    int64_t axis, block;
    int rank;  // of the tensor, where there are several
    int64_t dims[CLI_MAX_RANK];
} grid;

// Whether scales of blocks have the sizes that they must.
static bool fits(const grid *g, const ox_const *c) {
    bool same = c->rank == g->rank;
    for (int a = 0; a < g->rank && same; a++) {
        int64_t size = a == g->axis ? (g->dims[a] - 1) / g->block + 1 : g->dims[a];
        same = c->dims[a] == size;
    }
    return same;
}

static grid take_grid(ox *o, ox_node *n, ox_value *x) {
    int64_t axis = ox_int(o, n, "axis", 1), block = ox_int(o, n, "block_size", 0);
    grid g = {.scale = number_list(o, n, 1, block != 0, "scale"),
              .zero = number_list(o, n, 2, block != 0, "zero point"),
              .block = block};
    if (!g.scale || (g.zero && g.zero->count != g.scale->count)) {
        ox_die(o, n, "operator '%s' whose scale and zero point differ in size", n->op);
    }
    if (g.scale->count == 1 && !block) {
        return g;
    }
    ox_need_shape(o, n, x);
    g.rank = x->rank;
    g.axis = ox_axis(o, n, axis, x->rank);
    memcpy(g.dims, x->dims, sizeof g.dims);
    if (block < 0 || (block && !(fits(&g, g.scale) && (!g.zero || fits(&g, g.zero))))) {
        ox_die(o, n, "operator '%s' whose scales do not fit blocks of %lld", n->op,
               (long long)block);
    }
    if (!block && g.dims[g.axis] != g.scale->count) {
        ox_die(o, n, "operator '%s' with %lld scales for an axis of size %lld", n->op,
               (long long)g.scale->count, (long long)g.dims[g.axis]);
    }
    return g;
}

// Which scale element `i` of the tensor has; `inner`: elements of one place of the axis.
static int64_t scale_at(const grid *g, int64_t i, int64_t inner) {
    if (!g->rank) {
        return 0;
    }
    int64_t size = g->dims[g->axis], at = i / inner % size;
    if (!g->block) {
        return at;
    }
    int64_t blocks = (size - 1) / g->block + 1;
    return (i / inner / size * blocks + at / g->block) * inner + i % inner;
}

static int64_t inner_of(const grid *g) {
    int64_t inner = 1;
    for (int a = (int)g->axis + 1; a < g->rank; a++) {
        inner *= g->dims[a];
    }
    return inner;
}

// Numbers of a list along its axis, or of blocks, as a constant that broadcasts; NULL when all are
// `none`.
static ox_value *along_axis(ox *o, ox_node *n, const grid *g, const ox_const *c, const char *suffix,
                            const ox_value *x, double none) {
    bool plain = true;
    for (int64_t i = 0; i < c->count; i++) {
        plain = plain && ox_getf(c, i) == none;
    }
    if (plain) {
        return NULL;
    }
    if (!g->rank) {
        return ox_number(o, n, suffix, x->dtype, ox_getf(c, 0));
    }
    int64_t dims[CLI_MAX_RANK], inner = inner_of(g);
    for (int a = 0; a < g->rank; a++) {
        dims[a] = a == g->axis || g->block ? g->dims[a] : 1;
    }
    ox_const *r = ox_make(o, x->dtype, g->rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        ox_setf(r, i, ox_getf(c, g->block ? scale_at(g, i, inner) : i));
    }
    return ox_constant(o, ox_base(o, n), suffix, r);
}

static cli_dtype target_of(ox *o, ox_node *n, const grid *g, int *bits) {
    int64_t code = ox_int(o, n, "output_dtype", 0);
    ox_find(o, n, "saturate");
    ox_find(o, n, "precision");
    if (g->zero) {
        *bits = g->zero->bits;
        return g->zero->dtype;
    }
    *bits = 0;
    return code ? ox_stored(code > 0 && code < 100 ? (int32_t)code : 0, bits) : CLI_U8;
}

// round(x / scale) + zero, cut to the type.
static void convert_quantize(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    grid g = take_grid(o, n, x);
    double low, high;
    int bits;
    cli_dtype to = target_of(o, n, &g, &bits);
    if (!range_of(to, bits, &low, &high) || !ox_is_float(x->dtype)) {
        ox_unsupported(o, n,
                       "QuantizeLinear to a type other than int2 to int16 and uint2 to "
                       "uint16");
    }
    ox_value *scale = along_axis(o, n, &g, g.scale, ".scale", x, 1);
    x = scale ? ox_binary(o, n, "Div", ".scaled", x, scale) : x;
    x = ox_unary(o, n, "Round", ".rounded", x);
    ox_value *zero = g.zero ? along_axis(o, n, &g, g.zero, ".zero", x, 0) : NULL;
    x = zero ? ox_binary(o, n, "Add", ".moved", x, zero) : x;
    x = ox_clip_to(o, n, ".integers", x, low, high);
    if (shgeti(o->wanted, ox_base(o, n)) >= 0) {
        ox_unsupported(o, n,
                       "a quantised value as an output of the model: take the one in front of "
                       "it or behind its DequantizeLinear");
    }
    ox_bind(o, n, 0, x);
}

// Constants: (q - zero) * scale in the scale's type, as many as there are.
static const ox_const *multiplied_out(ox *o, const ox_const *c, const grid *g) {
    ox_const *r = ox_alloc(o, sizeof *r);
    *r = *c;
    r->dtype = g->scale->dtype;
    r->bits = 0;
    r->splat = c->splat && !g->rank;
    r->sym = NULL;
    int64_t stored = r->splat ? 1 : c->count, inner = inner_of(g);
    r->data = ox_alloc(o, (size_t)stored * cli_dtype_size(r->dtype));
    for (int64_t i = 0; i < stored; i++) {
        int64_t k = scale_at(g, i, inner);
        double zero = g->zero ? ox_getf(g->zero, k) : 0;
        float value = (float)(ox_getf(c, i) - zero) * (float)ox_getf(g->scale, k);
        ox_setf(r, i, (double)value);
    }
    return r;
}

static void convert_dequantize(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    const ox_const *c = ox_known(o, x);
    grid g = take_grid(o, n, x);
    cli_dtype to = g.scale->dtype;
    if (to != CLI_F32 && to != CLI_F16 && to != CLI_BF16) {
        ox_unsupported(o, n, "DequantizeLinear to a type other than float, float16 and bfloat16");
    }
    ox_int(o, n, "output_dtype", 0);
    if (c) {
        if (c->splat && g.rank && c->count > OX_FOLD_LIMIT) {
            ox_unsupported(o, n, "DequantizeLinear of a constant of %lld elements",
                           (long long)c->count);
        }
        ox_bind_known(o, n, 0, multiplied_out(o, c, &g));
        return;
    }
    x = ox_cast_to(o, n, ".floats", x, to);
    ox_value *zero = g.zero ? along_axis(o, n, &g, g.zero, ".zero", x, 0) : NULL;
    x = zero ? ox_binary(o, n, "Sub", ".moved", x, zero) : x;
    ox_value *scale = along_axis(o, n, &g, g.scale, ".scale", x, 1);
    ox_begin(o);
    ox_arg(o, x);
    if (scale) {
        ox_arg(o, scale);
    }
    ox_end_node(o, n, scale ? "Mul" : "Identity");
}

const ox_row ox_quant_rows[] = {
    {"QuantizeLinear", 2, 3, convert_quantize},
    {"DequantizeLinear", 2, 3, convert_dequantize},
    {NULL, 0, 0, NULL},
};
