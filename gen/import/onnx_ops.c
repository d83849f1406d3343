// onnx_ops.c - types and shapes: ONNX of any opset in, a statement of opset 21 meaning with
// attributes for constant inputs out.
#include "onnx.h"

#include <math.h>

// A sequence keeps what it holds.
static void convert_alias(ox *o, ox_node *n) {
    bool sequence = !strcmp(n->op, "Identity") && n->in[0] && n->in[0]->sequence;
    ox_bind(o, n, 0, sequence ? n->in[0] : ox_in(o, n, 0));
}

static void convert_dropout(ox *o, ox_node *n) {
    ox_value *training = ox_opt(o, n, 2);
    const ox_const *c = training ? ox_known(o, training) : NULL;
    ox_find(o, n, "ratio");
    ox_find(o, n, "seed");
    ox_find(o, n, "is_test");
    if (training && (!c || c->count != 1 || ox_geti(c, 0))) {
        ox_unsupported(o, n, "Dropout in training mode");
    }
    convert_alias(o, n);
}

// ---- types ----

// Doubles are computed as f32, as their constants are. `shown` is what the file calls the type.
static void cast_to(ox *o, ox_node *n, cli_dtype to, const char *shown) {
    ox_value *v = ox_in(o, n, 0);
    ox_find(o, n, "saturate");
    to = to == CLI_F64 ? CLI_F32 : to;
    if (to == CLI_F32 && v->whole && !v->held && v->zero == 0) {
        v = v->whole;
    }
    if (to == CLI_U32 && (v->dtype == CLI_I32 || v->dtype == CLI_I64)) {
        ox_bind(o, n, 0, ox_as_words(o, n, v));
        return;
    }
    v = v->words ? ox_from_words(o, n, v, to) : v;
    if (to == v->dtype) {
        ox_bind(o, n, 0, v->held ? ox_unary(o, n, "Identity", ".floats", v) : v);
        return;
    }
    if (to == CLI_NONE || to == CLI_U16 || to == CLI_I16 || to == CLI_U32 || to == CLI_U64) {
        ox_unsupported(o, n, "Cast from %s to %s of a value computed at run time",
                       cli_dtype_name(v->dtype), shown);
    }
    const char *name = ox_first(o, n);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_word(o, "to", cli_dtype_name(to));
    ox_bind(o, n, 0, ox_end(o, "Cast", name, to));
}

static void convert_cast(ox *o, ox_node *n) {
    int64_t code = ox_int(o, n, "to", 0);
    int32_t type = code >= 0 && code < 100 ? (int32_t)code : 0;
    cast_to(o, n, ox_dtype(type), ox_type_name(type));
}

static void convert_cast_like(ox *o, ox_node *n) {
    ox_value *like = ox_in(o, n, 1);
    const ox_const *c = ox_known(o, like);
    cli_dtype to = c && c->bits ? CLI_NONE : like->dtype;
    cast_to(o, n, to, to == CLI_NONE ? "integers of fewer bits than a byte" : cli_dtype_name(to));
}

// ---- shapes ----

static void convert_reshape(ox *o, ox_node *n) {
    ox_list shape;
    if (!ox_int_input(o, n, "shape", 1, &shape) || shape.n > CLI_MAX_RANK) {
        ox_die(o, n, "Reshape without a usable shape");
    }
    bool zeros = ox_int(o, n, "allowzero", 0) != 0;
    for (int i = 0; i < shape.n; i++) {
        if (zeros && shape.v[i] == 0) {
            ox_unsupported(o, n, "Reshape to an empty tensor (allowzero)");
        }
        if (shape.v[i] < -1 || shape.v[i] > OX_MAX_DIM) {
            ox_die(o, n, "Reshape to a size of %lld", (long long)shape.v[i]);
        }
    }
    ox_end_list(o, n, "Reshape", ox_in(o, n, 0), "shape", shape);
}

static void convert_flatten(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "axis", ox_int(o, n, "axis", 1));
    ox_end_node(o, n, "Flatten");
}

static void convert_squeeze(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list axes;
    int64_t ones[CLI_MAX_RANK];
    if (!ox_int_input(o, n, "axes", 1, &axes)) {
        ox_need_shape(o, n, x);
        axes = (ox_list){0, ones, NULL};
        for (int a = 0; a < x->rank; a++) {
            if (x->dims[a] == 1) {
                ones[axes.n++] = a;
            }
        }
    }
    ox_end_list(o, n, "Squeeze", x, "axes", axes);
}

static void convert_unsqueeze(ox *o, ox_node *n) {
    ox_list axes;
    if (!ox_int_input(o, n, "axes", 1, &axes)) {
        ox_die(o, n, "Unsqueeze without axes");
    }
    ox_end_list(o, n, "Unsqueeze", ox_in(o, n, 0), "axes", axes);
}

static void convert_transpose(ox *o, ox_node *n) {
    ox_list perm;
    if (ox_ints(o, n, "perm", &perm)) {
        ox_end_list(o, n, "Transpose", ox_in(o, n, 0), "perm", perm);
    } else {
        ox_plain(o, n);
    }
}

static void convert_expand(ox *o, ox_node *n) {
    ox_list shape;
    if (!ox_int_input(o, n, "shape", 1, &shape)) {
        ox_die(o, n, "Expand without shape");
    }
    ox_end_list(o, n, "Expand", ox_in(o, n, 0), "shape", shape);
}

// A constant of a shape that depends on a dim: a number, spread.
static void convert_constant_of_shape(ox *o, ox_node *n) {
    ox_list shape;
    const ox_attr *a = ox_find(o, n, "value");
    const ox_const *c =
        a && a->a->t ? ox_decode(o, a->a->t, "value") : ox_make(o, CLI_F32, 0, NULL);
    if (!ox_int_input(o, n, "input", 0, &shape) || c->count != 1 || !ox_wants(n, 0)) {
        ox_die(o, n, "ConstantOfShape without a usable shape, value or output");
    }
    ox_end_list(o, n, "Expand", ox_constant(o, n->out[0], ".value", ox_reshaped(o, c, 0, NULL)),
                "shape", shape);
}

static void convert_tile(ox *o, ox_node *n) {
    ox_list repeats;
    if (n->opset < 6) {
        ox_unsupported(o, n, "Tile of opset %lld, which repeats one axis", (long long)n->opset);
    }
    if (!ox_int_input(o, n, "repeats", 1, &repeats)) {
        ox_die(o, n, "Tile without repeats");
    }
    for (int i = 0; i < repeats.n; i++) {
        if (repeats.v[i] < 1) {
            ox_unsupported(o, n, "Tile with %lld repeats", (long long)repeats.v[i]);
        }
    }
    ox_end_list(o, n, "Tile", ox_in(o, n, 0), "repeats", repeats);
}

static void convert_blocks(ox *o, ox_node *n) {
    int64_t size = ox_int(o, n, "blocksize", 0);
    bool spreads = !strcmp(n->op, "DepthToSpace");
    const char *mode = spreads ? ox_string(o, n, "mode", "DCR") : "DCR";
    if (size < 1 || size > OX_MAX_DIM || (strcmp(mode, "DCR") && strcmp(mode, "CRD"))) {
        ox_die(o, n, "operator '%s' without a usable blocksize or mode", n->op);
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "blocksize", size);
    if (spreads) {
        ox_set_word(o, "mode", mode);
    }
    ox_end_node(o, n, n->op);
}

// ---- parts ----

static bool is_empty(ox *o, ox_value *v) {
    const ox_const *c = ox_known(o, v);
    return c && !c->count;
}

// Operands without elements are left out.
static void convert_concat(ox *o, ox_node *n) {
    if (!ox_has(n, "axis")) {
        ox_die(o, n, "Concat without axis");
    }
    int64_t axis = ox_int(o, n, "axis", 0);
    ox_value **parts = ox_alloc(o, (size_t)n->n_in * sizeof *parts);
    int count = 0;
    for (int i = 0; i < n->n_in; i++) {
        ox_value *v = ox_in(o, n, i);
        if (n->n_in == 1 || !is_empty(o, v)) {
            parts[count++] = v;
        }
    }
    ox_concat_node(o, n, parts, count, axis);
}

// A statement gives so many results at most; more of them are cut from parts.
static void split_groups(ox *o, ox_node *n, ox_value *x, const int64_t *sizes, ox_value **outs,
                         int count) {
    int64_t axis = ox_int(o, n, "axis", 0), sums[OX_MAX_ARGS] = {0};
    int step = 1, groups = count;
    while (groups > OX_MAX_ARGS) {
        step *= OX_MAX_ARGS;
        groups = (count - 1) / step + 1;
    }
    ox_value *parts[OX_MAX_ARGS];
    for (int i = 0; i < groups; i++) {
        bool one = step == 1 || i * step + 1 == count;
        parts[i] =
            one ? outs[i * step] : ox_new_value(o, ox_fresh(o, ox_base(o, n), ".part"), x->dtype);
        for (int k = i * step; k < count && k < (i + 1) * step; k++) {
            sums[i] += sizes[k];
        }
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    ox_set_list(o, "split", (ox_list){groups, sums, NULL});
    ox_finish(o, "Split", parts, groups);
    for (int i = 0; step > 1 && i < groups; i++) {
        int at = i * step, size = count - at < step ? count - at : step;
        if (size > 1) {
            split_groups(o, n, parts[i], sizes + at, outs + at, size);
        }
    }
}

// The sizes of the parts into which an axis is cut where none are given.
static ox_list even_parts(ox *o, ox_node *n, ox_value *x, int count) {
    ox_need_shape(o, n, x);
    int64_t dim = x->dims[ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank)];
    int64_t *sizes = ox_alloc(o, (size_t)count * sizeof *sizes);
    for (int i = 0; i < count; i++) {
        int64_t size = (dim + count - 1) / count;
        sizes[i] = i + 1 < count ? size : dim - size * i;
    }
    return (ox_list){count, sizes, NULL};
}

static void convert_split(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list split;
    bool given = ox_int_input(o, n, "split", 1, &split) && split.n;
    int64_t parts = ox_int(o, n, "num_outputs", given ? split.n : n->n_out);
    if (parts != n->n_out) {
        ox_die(o, n, "Split into %lld parts with %d outputs", (long long)parts, n->n_out);
    }
    if (!given && parts > OX_MAX_ARGS) {
        split = even_parts(o, n, x, n->n_out);
        given = true;
    }
    ox_value **outs = ox_alloc(o, (size_t)n->n_out * sizeof *outs);
    for (int i = 0; i < n->n_out; i++) {
        if (given && split.v[i] < 1) {
            ox_unsupported(o, n, "Split into a part of size %lld", (long long)split.v[i]);
        }
        const char *name = n->out[i] ? n->out[i] : ox_fresh(o, n->op, ".rest");
        outs[i] = ox_new_value(o, name, x->dtype);
        outs[i]->held = x->held;
    }
    if (parts > OX_MAX_ARGS) {
        split_groups(o, n, x, split.v, outs, n->n_out);
    } else {
        ox_begin(o);
        ox_arg(o, x);
        ox_set_int(o, "axis", ox_int(o, n, "axis", 0));
        if (given) {
            ox_set_list(o, "split", split);
        } else {
            ox_set_int(o, "num_outputs", parts);
        }
        ox_finish(o, "Split", outs, n->n_out);
    }
    for (int i = 0; i < n->n_out; i++) {
        ox_bind(o, n, i, outs[i]);
    }
}

// "To the end" is written as the largest int64 or int32 by exporters; here always as the latter.
static ox_list clamp(ox *o, ox_list list) {
    int64_t *v = ox_alloc(o, (size_t)list.n * sizeof *v);
    for (int i = 0; i < list.n; i++) {
        int64_t x = list.v[i];
        v[i] = x > OX_MAX_DIM ? OX_MAX_DIM : x < -(int64_t)OX_MAX_DIM ? -(int64_t)OX_MAX_DIM : x;
    }
    return (ox_list){list.n, v, list.sym};
}

// Whether a slice ends where it begins, or begins behind its axis, as what is left of a head does
// when all of it is rotated.
static bool is_nothing(ox *o, ox_node *n, ox_value *x, const ox_list l[4], int i) {
    int64_t start = l[0].v[i], end = l[1].v[i];
    if (start == end || start <= 0 || end < OX_MAX_DIM || (l[3].n && l[3].v[i] < 1)) {
        return start == end;
    }
    ox_need_sym(o, n, x);
    int64_t axis = ox_axis(o, n, l[2].n ? l[2].v[i] : i, x->rank);
    return start >= x->dims[axis] && !x->sym[axis];
}

// Slices without elements are known.
static bool bind_empty(ox *o, ox_node *n, const ox_list l[4]) {
    ox_value *x = ox_in(o, n, 0);
    int64_t dims[CLI_MAX_RANK];
    bool nothing[CLI_MAX_RANK], any = false;
    if (ox_is_symbolic(l[0]) || ox_is_symbolic(l[1])) {
        return false;
    }
    for (int i = 0; i < l[0].n && i < CLI_MAX_RANK; i++) {
        nothing[i] = is_nothing(o, n, x, l, i);
        any = any || nothing[i];
    }
    if (!any) {
        return false;
    }
    ox_need_shape(o, n, x);
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < l[0].n && i < CLI_MAX_RANK; i++) {
        int64_t axis = ox_axis(o, n, l[2].n ? l[2].v[i] : i, x->rank);
        dims[axis] = nothing[i] ? 0 : dims[axis];
    }
    ox_bind_known(o, n, 0, ox_make(o, x->dtype, x->rank, dims));
    return true;
}

static void convert_slice(ox *o, ox_node *n) {
    ox_list l[4];
    ox_slice_lists(o, n, l);
    bool steps = false;
    for (int i = 0; i < l[3].n; i++) {
        steps = steps || l[3].v[i] != 1;
    }
    if (bind_empty(o, n, l)) {
        return;
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "starts", clamp(o, l[0]));
    ox_set_list(o, "ends", clamp(o, l[1]));
    if (l[2].n) {
        ox_set_list(o, "axes", l[2]);
    }
    if (steps) {
        ox_set_list(o, "steps", clamp(o, l[3]));
    }
    ox_end_node(o, n, "Slice");
}

// Opset 18 may name the axes; here every axis has its two numbers.
static ox_list all_pads(ox *o, ox_node *n, ox_list pads) {
    ox_list axes;
    if (!ox_int_input(o, n, "axes", 3, &axes)) {
        return pads;
    }
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    int64_t *v = ox_alloc(o, 2 * CLI_MAX_RANK * sizeof *v);
    if (pads.n != 2 * axes.n) {
        ox_die(o, n, "Pad with %d numbers for %d axes", pads.n, axes.n);
    }
    for (int i = 0; i < axes.n; i++) {
        int64_t axis = ox_axis(o, n, axes.v[i], x->rank);
        v[axis] = pads.v[i];
        v[axis + x->rank] = pads.v[i + axes.n];
    }
    return (ox_list){2 * x->rank, v, NULL};
}

static void convert_pad(ox *o, ox_node *n) {
    ox_list pads;
    const char *mode = ox_string(o, n, "mode", "constant");
    bool constant = !strcmp(mode, "constant");
    if (!constant && strcmp(mode, "reflect") && strcmp(mode, "edge") && strcmp(mode, "wrap")) {
        char shown[60];
        ox_unsupported(o, n, "Pad with mode '%s'", cli_escape(shown, sizeof shown, mode));
    }
    if (!ox_int_input(o, n, "pads", 1, &pads)) {
        ox_die(o, n, "Pad without pads");
    }
    double value = ox_float(o, n, "value", 0);
    ox_value *given = ox_opt(o, n, 2);
    const ox_const *c = given ? ox_known(o, given) : NULL;
    if (constant && given && (!c || c->count != 1 || isnan(ox_getf(c, 0)))) {
        ox_unsupported(o, n, "Pad with a value that is not a known number");
    }
    value = c ? ox_getf(c, 0) : value;
    pads = clamp(o, all_pads(o, n, pads));
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "pads", pads);
    if (constant && value != 0) {
        ox_set_float(o, "value", value);
    }
    if (!constant) {
        ox_set_word(o, "mode", mode);
    }
    ox_end_node(o, n, "Pad");
}

// What is too long loses as much at both ends, what is too short gets zeros there; of an odd number
// one more behind.
static void convert_center_crop_pad(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list shape, axes;
    ox_need_shape(o, n, x);
    if (!ox_int_input(o, n, "shape", 1, &shape)) {
        ox_die(o, n, "CenterCropPad without a shape");
    }
    bool given = ox_ints(o, n, "axes", &axes);
    if (shape.n != (given ? axes.n : x->rank) || shape.n > x->rank) {
        ox_die(o, n, "CenterCropPad with a shape of %d numbers for %d axes", shape.n,
               given ? axes.n : x->rank);
    }
    int64_t starts[CLI_MAX_RANK], ends[CLI_MAX_RANK], cut[CLI_MAX_RANK];
    int64_t pads[2 * CLI_MAX_RANK] = {0};
    int cuts = 0, rank = x->rank;
    for (int i = 0; i < shape.n; i++) {
        int64_t a = given ? ox_axis(o, n, axes.v[i], rank) : i, size = shape.v[i];
        if (size < 1 || size > OX_MAX_DIM || (x->sym[a] && size != x->dims[a])) {
            ox_unsupported(o, n, "CenterCropPad of an axis to %lld", (long long)size);
        }
        int64_t more = size - x->dims[a];
        pads[a] = more > 0 ? more / 2 : 0;
        pads[a + rank] = more > 0 ? more - more / 2 : 0;
        if (more < 0) {
            starts[cuts] = -more / 2;
            ends[cuts] = starts[cuts] + size;
            cut[cuts++] = a;
        }
    }
    if (cuts) {
        ox_begin(o);
        ox_arg(o, x);
        ox_set_list(o, "starts", (ox_list){cuts, starts, NULL});
        ox_set_list(o, "ends", (ox_list){cuts, ends, NULL});
        ox_set_list(o, "axes", (ox_list){cuts, cut, NULL});
        x = ox_end(o, "Slice", ox_fresh(o, ox_first(o, n), ".cropped"), x->dtype);
    }
    ox_end_list(o, n, "Pad", x, "pads", (ox_list){2 * rank, pads, NULL});
}

static void convert_trilu(ox *o, ox_node *n) {
    ox_list k;
    bool upper = ox_int(o, n, "upper", 1) != 0;
    bool given = ox_int_input(o, n, "k", 1, &k) && k.n == 1;
    int64_t most = OX_MAX_DIM, at = given ? k.v[0] : 0;
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "k", at > most ? most : at < -most ? -most : at);
    ox_set_int(o, "upper", upper);
    ox_end_node(o, n, "Trilu");
}

// ---- the table ----

const ox_row ox_shape_rows[] = {
    {"Identity", 1, 1, convert_alias},
    {"Dropout", 1, 3, convert_dropout},
    {"Cast", 1, 1, convert_cast},
    {"CastLike", 2, 2, convert_cast_like},
    {"Reshape", 1, 2, convert_reshape},
    {"Flatten", 1, 1, convert_flatten},
    {"Squeeze", 1, 2, convert_squeeze},
    {"Unsqueeze", 1, 2, convert_unsqueeze},
    {"Transpose", 1, 1, convert_transpose},
    {"Expand", 2, 2, convert_expand},
    {"ConstantOfShape", 1, 1, convert_constant_of_shape},
    {"Tile", 2, 2, convert_tile},
    {"DepthToSpace", 1, 1, convert_blocks},
    {"SpaceToDepth", 1, 1, convert_blocks},
    {"Concat", 1, -1, convert_concat},
    {"Split", 1, 2, convert_split},
    {"Slice", 1, 5, convert_slice},
    {"Pad", 1, 4, convert_pad},
    {"CenterCropPad", 2, 2, convert_center_crop_pad},
    {"Trilu", 1, 2, convert_trilu},
    {NULL, 0, 0, NULL},
};
