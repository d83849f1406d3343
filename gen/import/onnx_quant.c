// onnx_quant.c - what quantised exports put around float operators. A quantised value keeps its
// integers as floats: rounded, cut to the range of the type and exact, so that what stands between
// QuantizeLinear and DequantizeLinear (reshapes, pools, concatenations) is what it was. Constants
// are multiplied out here.
#include "onnx.h"

#include <math.h>

// The integers of a type; false: of no type that is read.
static bool range_of(cli_dtype dtype, double *low, double *high) {
    *low = dtype == CLI_I8 ? -128 : dtype == CLI_I16 ? -32768 : 0;
    *high = dtype == CLI_I8 ? 127 : dtype == CLI_U8 ? 255 : dtype == CLI_I16 ? 32767 : 65535;
    return dtype == CLI_I8 || dtype == CLI_U8 || dtype == CLI_I16 || dtype == CLI_U16;
}

static const ox_const *number_list(ox *o, ox_node *n, int input, const char *what) {
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (v && !c) {
        ox_unsupported(o, n, "operator '%s' with a %s computed at run time", n->op, what);
    }
    if (c && (c->rank > 1 || c->count < 1 || c->count > OX_FOLD_LIMIT)) {
        ox_unsupported(o, n, "operator '%s' with a %s of %d axes (blocks are not supported)", n->op,
                       what, c->rank);
    }
    return c;
}

typedef struct {
    const ox_const *scale, *zero;  // one number, or one for every place of `axis`
    int64_t axis, count;
    int rank;  // of the tensor, where there are several
} grid;

static grid take_grid(ox *o, ox_node *n, ox_value *x) {
    grid g = {.scale = number_list(o, n, 1, "scale"), .zero = number_list(o, n, 2, "zero point")};
    int64_t axis = ox_int(o, n, "axis", 1), block = ox_int(o, n, "block_size", 0);
    if (!g.scale || (g.zero && g.zero->count != g.scale->count)) {
        ox_die(o, n, "operator '%s' whose scale and zero point differ in size", n->op);
    }
    if (block) {
        ox_unsupported(o, n, "operator '%s' with blocks", n->op);
    }
    g.count = g.scale->count;
    if (g.count > 1) {
        ox_need_shape(o, n, x);
        g.rank = x->rank;
        g.axis = ox_axis(o, n, axis, x->rank);
        if (x->dims[g.axis] != g.count) {
            ox_die(o, n, "operator '%s' with %lld scales for an axis of size %lld", n->op,
                   (long long)g.count, (long long)x->dims[g.axis]);
        }
    }
    return g;
}

// Numbers of a list along its axis, as a constant that broadcasts; NULL when all are `none`.
static ox_value *along_axis(ox *o, ox_node *n, const grid *g, const ox_const *c, const char *suffix,
                            const ox_value *x, double none) {
    bool plain = true;
    for (int64_t i = 0; i < c->count; i++) {
        plain = plain && ox_getf(c, i) == none;
    }
    if (plain) {
        return NULL;
    }
    if (c->count == 1) {
        return ox_number(o, n, suffix, x->dtype, ox_getf(c, 0));
    }
    int64_t dims[CLI_MAX_RANK];
    for (int a = 0; a < g->rank; a++) {
        dims[a] = a == g->axis ? c->count : 1;
    }
    return ox_constant(o, ox_base(o, n), suffix,
                       ox_reshaped(o, ox_cast(o, c, x->dtype), g->rank, dims));
}

static cli_dtype target_of(ox *o, ox_node *n, const grid *g) {
    static const struct {
        int64_t code;
        cli_dtype dtype;
    } codes[] = {{2, CLI_U8}, {3, CLI_I8}, {4, CLI_U16}, {5, CLI_I16}};
    int64_t code = ox_int(o, n, "output_dtype", 0);
    cli_dtype to = g->zero ? g->zero->dtype : code ? CLI_NONE : CLI_U8;
    for (size_t i = 0; !g->zero && i < sizeof codes / sizeof *codes; i++) {
        to = codes[i].code == code ? codes[i].dtype : to;
    }
    ox_find(o, n, "saturate");
    ox_find(o, n, "precision");
    return to;
}

// round(x / scale) + zero, cut to the type.
static void convert_quantize(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    grid g = take_grid(o, n, x);
    double low, high;
    if (!range_of(target_of(o, n, &g), &low, &high) || !ox_is_float(x->dtype)) {
        ox_unsupported(o, n, "QuantizeLinear to a type other than int8, uint8, int16 and uint16");
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

// Constants: (q - zero) * scale, in f32, as many as there are.
static const ox_const *multiplied_out(ox *o, const ox_const *c, const grid *g) {
    ox_const *r = ox_alloc(o, sizeof *r);
    *r = *c;
    r->dtype = CLI_F32;
    r->splat = c->splat && g->count == 1;
    r->sym = NULL;
    int64_t stored = r->splat ? 1 : c->count, inner = 1;
    float *data = ox_alloc(o, (size_t)stored * sizeof *data);
    for (int a = (int)g->axis + 1; a < c->rank; a++) {
        inner *= c->dims[a];
    }
    for (int64_t i = 0; i < stored; i++) {
        int64_t k = g->count > 1 ? i / inner % g->count : 0;
        double zero = g->zero ? ox_getf(g->zero, k) : 0;
        data[i] = (float)((float)(ox_getf(c, i) - zero) * (float)ox_getf(g->scale, k));
    }
    r->data = (const uint8_t *)data;
    return r;
}

static void convert_dequantize(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    const ox_const *c = ox_known(o, x);
    grid g = take_grid(o, n, x);
    if (g.scale->dtype != CLI_F32) {
        ox_unsupported(o, n, "DequantizeLinear to another type than float");
    }
    ox_int(o, n, "output_dtype", 0);
    if (c) {
        if (c->splat && g.count > 1 && c->count > OX_FOLD_LIMIT) {
            ox_unsupported(o, n, "DequantizeLinear of a constant of %lld elements",
                           (long long)c->count);
        }
        ox_bind_known(o, n, 0, multiplied_out(o, c, &g));
        return;
    }
    x = ox_cast_to(o, n, ".floats", x, CLI_F32);
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
