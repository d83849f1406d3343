// onnx_build.c - statements that several operators are written out with. The names they get
// begin with that of the node's first output that is used.
#include "onnx.h"

static ox_value *end(ox *o, ox_node *n, const char *op, const char *suffix, cli_dtype dtype) {
    return ox_end(o, op, ox_fresh(o, ox_base(o, n), suffix), dtype);
}

ox_value *ox_unary(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x) {
    ox_begin(o);
    ox_arg(o, x);
    return end(o, n, op, suffix, x->dtype);
}

ox_value *ox_binary(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *a,
                    ox_value *b) {
    ox_begin(o);
    ox_arg(o, a);
    ox_arg(o, b);
    return end(o, n, op, suffix, a->dtype);
}

ox_value *ox_truth(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *a,
                   ox_value *b) {
    ox_value *v = ox_binary(o, n, op, suffix, a, b);
    v->dtype = CLI_BOOL;
    return v;
}

ox_value *ox_where(ox *o, ox_node *n, const char *suffix, ox_value *p, ox_value *a, ox_value *b) {
    ox_begin(o);
    ox_arg(o, p);
    ox_arg(o, a);
    ox_arg(o, b);
    return end(o, n, "Where", suffix, a->dtype);
}

ox_value *ox_with_list(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x,
                       const char *attr, ox_list list) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, attr, list);
    return end(o, n, op, suffix, x->dtype);
}

ox_value *ox_with_int(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x,
                      const char *attr, int64_t value) {
    return ox_with_list(o, n, op, suffix, x, attr, (ox_list){1, &value, NULL});
}

ox_value *ox_slice_of(ox *o, ox_node *n, const char *suffix, ox_value *x, int64_t axis,
                      int64_t start, int64_t end_at) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "starts", (ox_list){1, &start, NULL});
    ox_set_list(o, "ends", (ox_list){1, &end_at, NULL});
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    return end(o, n, "Slice", suffix, x->dtype);
}

ox_value *ox_clip_to(ox *o, ox_node *n, const char *suffix, ox_value *x, double low, double high) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_float(o, "min", low);
    ox_set_float(o, "max", high);
    return end(o, n, "Clip", suffix, x->dtype);
}

ox_value *ox_cast_to(ox *o, ox_node *n, const char *suffix, ox_value *x, cli_dtype to) {
    to = to == CLI_F64 ? CLI_F32 : to;  // what is computed from doubles is f32
    if (x->dtype == to) {
        return x;
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_word(o, "to", cli_dtype_name(to));
    return end(o, n, "Cast", suffix, to);
}

ox_value *ox_number(ox *o, ox_node *n, const char *suffix, cli_dtype dtype, double value) {
    ox_const *c = ox_make(o, dtype, 0, NULL);
    ox_setf(c, 0, value);
    c->splat = value > -1e38 && value < 1e38;  // then it is written in the text
    return ox_constant(o, ox_base(o, n), suffix, c);
}

ox_value *ox_by_number(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *v,
                       double number) {
    return ox_binary(o, n, op, suffix, v, ox_number(o, n, ".number", v->dtype, number));
}

// 0, 1 .. along `axis` of a tensor of `rank` axes, as a constant that broadcasts.
ox_value *ox_places(ox *o, ox_node *n, int rank, int64_t axis, int64_t count) {
    int64_t dims[CLI_MAX_RANK];
    for (int a = 0; a < rank; a++) {
        dims[a] = a == axis ? count : 1;
    }
    ox_const *c = ox_make(o, CLI_I64, rank, dims);
    for (int64_t i = 0; i < count; i++) {
        ox_seti(c, i, i);
    }
    return ox_constant(o, ox_base(o, n), ".places", c);
}

// An operator takes so many operands at most; more of them go through parts: how many are left.
static int concat_groups(ox *o, ox_node *n, ox_value **parts, int count, int64_t axis) {
    while (count > OX_MAX_ARGS) {
        int groups = 0;
        for (int at = 0; at < count; at += OX_MAX_ARGS) {
            int size = count - at < OX_MAX_ARGS ? count - at : OX_MAX_ARGS;
            parts[groups++] = ox_concat(o, n, ".part", parts + at, size, axis);
        }
        count = groups;
    }
    return count;
}

ox_value *ox_concat(ox *o, ox_node *n, const char *suffix, ox_value **parts, int count,
                    int64_t axis) {
    count = concat_groups(o, n, parts, count, axis);
    if (count == 1) {
        return parts[0];
    }
    ox_begin(o);
    for (int i = 0; i < count; i++) {
        ox_arg(o, parts[i]);
    }
    ox_set_int(o, "axis", axis);
    return end(o, n, "Concat", suffix, parts[0]->dtype);
}

// The same as the node's result.
void ox_concat_node(ox *o, ox_node *n, ox_value **parts, int count, int64_t axis) {
    count = concat_groups(o, n, parts, count, axis);
    if (count == 1) {
        ox_bind(o, n, 0, parts[0]);
        return;
    }
    ox_begin(o);
    for (int i = 0; i < count; i++) {
        ox_arg(o, parts[i]);
    }
    ox_set_int(o, "axis", axis);
    ox_end_node(o, n, "Concat");
}

// Cuts `x` into `count` parts of `size`; that they make up the axis is checked when the model is
// read, whatever its dims are then.
void ox_split_into(ox *o, ox_node *n, const char *suffix, ox_value *x, int64_t axis, int64_t size,
                   int count, ox_value **parts) {
    if (count == 1) {
        parts[0] = x;
        return;
    }
    int64_t sizes[OX_MAX_ARGS];
    int groups = (count - 1) / OX_MAX_ARGS + 1;
    ox_value *whole[OX_MAX_ARGS];
    int n_parts = groups > 1 ? groups : count;
    for (int i = 0; i < n_parts; i++) {
        int64_t in = i + 1 < n_parts ? OX_MAX_ARGS : count - (int64_t)i * OX_MAX_ARGS;
        sizes[i] = groups > 1 ? in * size : size;
        whole[i] = ox_new_value(o, ox_fresh(o, ox_base(o, n), suffix), x->dtype);
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    ox_set_list(o, "split", (ox_list){n_parts, sizes, NULL});
    ox_finish(o, "Split", whole, n_parts);
    for (int i = 0; i < n_parts; i++) {
        int in = groups == 1 ? 1 : i + 1 < groups ? OX_MAX_ARGS : count - i * OX_MAX_ARGS;
        if (groups > 1) {
            ox_split_into(o, n, suffix, whole[i], axis, size, in, parts + i * OX_MAX_ARGS);
        } else {
            parts[i] = whole[i];
        }
    }
}

// A node's output under its own name, from a value that has another one.
void ox_bind_as(ox *o, ox_node *n, int output, const char *op, ox_value *x, const char *attr,
                ox_list list) {
    if (!ox_wants(n, output)) {
        return;
    }
    ox_begin(o);
    ox_arg(o, x);
    if (attr) {
        ox_set_list(o, attr, list);
    }
    ox_bind(o, n, output, ox_end(o, op, n->out[output], x->dtype));
}

bool ox_is_zero(ox *o, ox_value *v) {
    const ox_stmt *s = v->maker;
    if (s && s->op && (!strcmp(s->op, "Expand") || !strcmp(s->op, "Identity"))) {
        return ox_is_zero(o, s->args[0]);
    }
    const ox_const *c = ox_known(o, v);
    if (!c || c->count > OX_FOLD_LIMIT) {
        return c && c->splat && ox_getf(c, 0) == 0;
    }
    for (int64_t i = 0; i < c->count; i++) {
        if (ox_getf(c, i) != 0) {
            return false;
        }
    }
    return true;
}

void ox_plain(ox *o, ox_node *n) {
    ox_begin(o);
    for (int i = 0; i < n->n_in; i++) {
        ox_arg(o, ox_opt(o, n, i));
    }
    ox_end_node(o, n, n->op);
}

void ox_end_binary(ox *o, ox_node *n, const char *op, ox_value *a, ox_value *b) {
    ox_begin(o);
    ox_arg(o, a);
    ox_arg(o, b);
    ox_end_node(o, n, op);
}

void ox_end_list(ox *o, ox_node *n, const char *op, ox_value *x, const char *attr, ox_list list) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, attr, list);
    ox_end_node(o, n, op);
}
