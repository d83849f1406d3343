// onnx_fold.c - constant folding, of what is known at import time: mostly the shape arithmetic that
// exporters leave in a graph. Elements of shapes keep, beside their number, the expression over the
// model's dims that they come from.
#include "onnx.h"

#include <math.h>

// ---- making results ----

bool ox_fold_fits(ox *o, int rank, const int64_t *dims) {
    int64_t count = 0;
    if (!cli_count(rank, dims, &count) || count > OX_FOLD_LIMIT) {
        return false;
    }
    o->folded += count;
    if (o->folded > OX_FOLD_TOTAL) {
        ox_die(o, NULL, "the constants of the model fold into more than %d elements",
               OX_FOLD_TOTAL);
    }
    return true;
}

void ox_dense_strides(const ox_const *c, int64_t *strides) {
    int64_t step = 1;
    for (int a = c->rank - 1; a >= 0; a--) {
        strides[a] = step;
        step *= c->dims[a];
    }
}

void ox_copy_element(ox *o, ox_const *to, int64_t at, const ox_const *from, int64_t i) {
    size_t size = cli_dtype_size(to->dtype);
    memcpy((uint8_t *)(uintptr_t)to->data + (size_t)at * size,
           from->data + (from->splat ? 0 : (size_t)i * size), size);
    ox_set_sym(o, to, at, ox_sym(from, i));
}

int64_t ox_offset_of(int64_t i, int rank, const int64_t *dims, const int64_t *strides) {
    int64_t offset = 0;
    for (int a = rank - 1; a >= 0; a--) {
        offset += i % dims[a] * strides[a];
        i /= dims[a];
    }
    return offset;
}

const ox_const *ox_view(ox *o, const ox_const *c, int rank, const int64_t *dims,
                        const int64_t *strides, int64_t base) {
    if (c->splat) {
        return ox_splat(o, c->dtype, rank, dims, c->data);
    }
    if (!ox_fold_fits(o, rank, dims)) {
        return NULL;
    }
    ox_const *r = ox_make(o, c->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        ox_copy_element(o, r, i, c, base + ox_offset_of(i, rank, dims, strides));
    }
    return r;
}

const ox_const *ox_known_in(ox *o, ox_node *n, int input) {
    return ox_known(o, ox_in(o, n, input));
}

bool ox_fold_to(ox *o, ox_node *n, const ox_const *c) {
    if (c) {
        ox_bind_known(o, n, 0, c);
    }
    return c != NULL;
}

// ---- sources ----

static const ox_const *from_numbers(ox *o, ox_node *n, const ox_attribute *a, const char *name) {
    int64_t count = 1;
    int rank = 0;
    bool floats = !strncmp(name, "value_float", 11);
    if (!strcmp(name, "value_floats") || !strcmp(name, "value_ints")) {
        count = floats ? (int64_t)a->n_floats : (int64_t)a->n_ints;
        rank = 1;
    }
    if (count > OX_FOLD_LIMIT) {
        ox_die(o, n, "constant of %lld elements", (long long)count);
    }
    ox_const *c = ox_make(o, floats ? CLI_F32 : CLI_I64, rank, &count);
    for (int64_t i = 0; i < count; i++) {
        if (floats) {
            ox_setf(c, i, (double)(rank ? a->floats[i] : a->f));
        } else {
            ox_seti(c, i, rank ? a->ints[i] : a->i);
        }
    }
    return c;
}

static bool fold_constant(ox *o, ox_node *n) {
    static const char *const forms[] = {"value_float", "value_floats", "value_int", "value_ints"};
    const ox_attr *a = ox_find(o, n, "value");
    if (a) {
        if (!a->a->t) {
            ox_die(o, n, "attribute 'value' is not a tensor");
        }
        return ox_fold_to(o, n, ox_decode(o, a->a->t, n->n_out ? n->out_onnx[0] : ""));
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        a = ox_find(o, n, forms[i]);
        if (a) {
            return ox_fold_to(o, n, from_numbers(o, n, a->a, forms[i]));
        }
    }
    ox_unsupported(o, n, "a Constant that is not a tensor of numbers");
}

static void check_dims(ox *o, ox_node *n, ox_list dims) {
    if (dims.n > CLI_MAX_RANK) {
        ox_unsupported(o, n, "a constant of %d axes", dims.n);
    }
    for (int i = 0; i < dims.n; i++) {
        if (dims.v[i] < 0 || dims.v[i] > OX_MAX_DIM) {
            ox_die(o, n, "a constant whose axis %d has size %lld", i, (long long)dims.v[i]);
        }
    }
}

static bool fold_constant_of_shape(ox *o, ox_node *n) {
    ox_list dims = ox_list_of(o, n, "input", ox_known_in(o, n, 0));
    check_dims(o, n, dims);
    if (ox_is_symbolic(dims)) {
        return false;
    }
    const ox_attr *a = ox_find(o, n, "value");
    uint8_t zero[8] = {0};
    if (!a) {
        return ox_fold_to(o, n, ox_splat(o, CLI_F32, dims.n, dims.v, zero));
    }
    const ox_const *c = a->a->t ? ox_decode(o, a->a->t, "value") : NULL;
    if (!c || c->count != 1) {
        ox_die(o, n, "attribute 'value' is not a tensor of one element");
    }
    return ox_fold_to(o, n, ox_splat(o, c->dtype, dims.n, dims.v, c->data));
}

static bool fold_shape(ox *o, ox_node *n) {
    ox_value *v = ox_in(o, n, 0);
    ox_need_sym(o, n, v);
    int64_t start = ox_int(o, n, "start", 0), end = ox_int(o, n, "end", v->rank);
    start = start < 0 ? start + v->rank : start;
    end = end < 0 ? end + v->rank : end;
    start = start < 0 ? 0 : start > v->rank ? v->rank : start;
    end = end > v->rank ? v->rank : end;
    int64_t count = end > start ? end - start : 0;
    ox_const *c = ox_make(o, CLI_I64, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        ox_seti(c, i, v->dims[start + i]);
        ox_set_sym(o, c, i, v->sym[start + i]);
    }
    return ox_fold_to(o, n, c);
}

// Ones on a diagonal, in the shape of the input.
static bool fold_eye_like(ox *o, ox_node *n) {
    ox_value *v = ox_in(o, n, 0);
    int64_t k = ox_int(o, n, "k", 0), code = ox_int(o, n, "dtype", 0);
    cli_dtype dtype = code ? ox_dtype(code > 0 && code < 100 ? (int32_t)code : 0) : v->dtype;
    ox_need_sym(o, n, v);
    if (v->rank != 2 || dtype == CLI_NONE || v->sym[0] || v->sym[1] ||
        !ox_fold_fits(o, v->rank, v->dims)) {
        ox_unsupported(o, n, "EyeLike of another shape than a matrix of known size, or this type");
    }
    ox_const *c = ox_make(o, dtype, 2, v->dims);
    for (int64_t i = 0; i < c->count; i++) {
        ox_setf(c, i, i % v->dims[1] - i / v->dims[1] == k);
    }
    return ox_fold_to(o, n, c);
}

static bool fold_size(ox *o, ox_node *n) {
    ox_value *v = ox_in(o, n, 0);
    ox_need_sym(o, n, v);
    int64_t count = 1;
    const char *sym = NULL;
    ox_const *c = ox_make(o, CLI_I64, 0, NULL);
    for (int a = 0; a < v->rank; a++) {
        sym = sym || v->sym[a] ? ox_join(o, '*', sym, count, v->sym[a], v->dims[a]) : NULL;
        count *= v->dims[a];
    }
    ox_seti(c, 0, count);
    ox_set_sym(o, c, 0, sym);
    return ox_fold_to(o, n, c);
}

static bool fold_range(ox *o, ox_node *n) {
    const ox_const *in[3] = {ox_known_in(o, n, 0), ox_known_in(o, n, 1), ox_known_in(o, n, 2)};
    if (in[0]->count != 1 || in[1]->count != 1 || in[2]->count != 1) {
        ox_die(o, n, "the inputs of Range are not scalars");
    }
    double start = ox_getf(in[0], 0), limit = ox_getf(in[1], 0), delta = ox_getf(in[2], 0);
    double size = delta != 0 ? ceil((limit - start) / delta) : HUGE_VAL;
    if (!(size <= OX_FOLD_LIMIT)) {
        ox_die(o, n, "Range makes too many elements");
    }
    int64_t count = size > 0 ? (int64_t)size : 0;
    ox_fold_fits(o, 1, &count);
    ox_const *c = ox_make(o, in[0]->dtype, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        if (ox_is_float(c->dtype)) {
            ox_setf(c, i, start + (double)i * delta);
        } else {
            ox_seti(c, i, ox_geti(in[0], 0) + i * ox_geti(in[2], 0));
        }
    }
    return ox_fold_to(o, n, c);
}

// a - b cos(x) + c cos(2 x), one turn of x over the window; symmetric ones have both its ends.
static bool fold_window(ox *o, ox_node *n) {
    static const struct {
        const char *name;
        double a, b, c;
    } windows[] = {{"HannWindow", 0.5, 0.5, 0},
                   {"HammingWindow", 25.0 / 46, 21.0 / 46, 0},
                   {"BlackmanWindow", 0.42, 0.5, 0.08}};
    const ox_const *size = ox_known_in(o, n, 0);
    int64_t code = ox_int(o, n, "output_datatype", 1), open = ox_int(o, n, "periodic", 1) != 0;
    cli_dtype type = code < 100 ? ox_dtype((int32_t)code) : CLI_NONE;
    int64_t count = size->count == 1 ? ox_geti(size, 0) : 0;
    int w = 0;
    while (strcmp(windows[w].name, n->op)) {
        w++;
    }
    if (type == CLI_NONE || !ox_is_float(type) || count < (open ? 1 : 2) || count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' of this size or type", n->op);
    }
    ox_const *c = ox_make(o, type, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        double x = 6.283185307179586 * (double)i / (double)(open ? count : count - 1);
        ox_setf(c, i, windows[w].a - windows[w].b * cos(x) + windows[w].c * cos(2 * x));
    }
    return ox_fold_to(o, n, c);
}

// ---- computing ----

// Shape that the inputs broadcast to, and each input's strides in it (0 along broadcast axes).
static int broadcast(ox *o, ox_node *n, const ox_const **in, int count, int64_t *dims,
                     int64_t strides[][CLI_MAX_RANK]) {
    int rank = 0;
    for (int i = 0; i < count; i++) {
        rank = in[i]->rank > rank ? in[i]->rank : rank;
    }
    for (int a = 0; a < rank; a++) {
        dims[a] = 1;
        for (int i = 0; i < count; i++) {
            int b = a - (rank - in[i]->rank);
            int64_t dim = b < 0 ? 1 : in[i]->dims[b];
            if (dim != 1 && dims[a] != 1 && dim != dims[a]) {
                ox_die(o, n, "the shapes of the inputs do not broadcast");
            }
            dims[a] = dim != 1 ? dim : dims[a];
        }
    }
    for (int i = 0; i < count; i++) {
        int64_t dense[CLI_MAX_RANK] = {0};
        ox_dense_strides(in[i], dense);
        for (int a = 0; a < rank; a++) {
            int b = a - (rank - in[i]->rank);
            strides[i][a] = b < 0 || in[i]->dims[b] == 1 ? 0 : dense[b];
        }
    }
    return rank;
}

// Integers to one whole power, as products: squared sizes stay expressions over the dims.
static bool fold_power(ox *o, ox_node *n, const ox_const *c, const ox_const *power) {
    double times = power->count == 1 ? ox_getf(power, 0) : -1;
    if (!(times >= 1 && times < 64) || times != floor(times) || power->rank > c->rank ||
        !ox_fold_fits(o, c->rank, c->dims)) {
        return false;
    }
    ox_const *r = ox_make(o, c->dtype, c->rank, c->dims);
    for (int64_t i = 0; i < r->count; i++) {
        ox_copy_element(o, r, i, c, i);
        for (int k = 1; k < (int)times; k++) {
            const char *sym = ox_sym(r, i);
            sym = sym ? ox_join(o, '*', sym, 0, ox_sym(c, i), 0) : NULL;
            ox_seti(r, i, ox_compute_int(o, n, OX_MUL, ox_geti(r, i), ox_geti(c, i)));
            ox_set_sym(o, r, i, sym);
        }
    }
    return ox_fold_to(o, n, r);
}

static bool fold_scalar(ox *o, ox_node *n, ox_scalar op) {
    const ox_const *in[2] = {ox_known_in(o, n, 0), NULL};
    int count = op >= OX_NEG ? 1 : 2;
    int64_t dims[CLI_MAX_RANK], strides[2][CLI_MAX_RANK];
    if (n->n_in != count) {
        return false;  // Max and Min of another number of inputs
    }
    in[1] = count == 2 ? ox_known_in(o, n, 1) : in[0];
    if (op == OX_POW && !ox_is_float(in[0]->dtype)) {
        return fold_power(o, n, in[0], in[1]);
    }
    int rank = broadcast(o, n, in, 2, dims, strides);
    bool compares = op >= OX_EQ && op <= OX_GE;
    bool floats = ox_is_float(in[0]->dtype) || ox_is_float(in[1]->dtype);
    if (!ox_fold_fits(o, rank, dims) || (op == OX_MOD && ox_int(o, n, "fmod", 0) != floats)) {
        return false;
    }
    ox_const *r = ox_make(o, compares ? CLI_BOOL : in[0]->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t j = ox_offset_of(i, rank, dims, strides[0]),
                k = ox_offset_of(i, rank, dims, strides[1]);
        if (floats) {
            ox_setf(r, i, ox_compute_float(op, ox_getf(in[0], j), ox_getf(in[1], k)));
            continue;
        }
        int64_t a = ox_geti(in[0], j), b = ox_geti(in[1], k);
        ox_seti(r, i, ox_compute_int(o, n, op, a, b));
        const char *x = ox_sym(in[0], j), *y = ox_sym(in[1], k);
        if (op <= OX_DIV && (x || y)) {
            ox_set_sym(o, r, i, ox_join(o, "+-*/"[op], x, a, y, b));
        }
    }
    return ox_fold_to(o, n, r);
}

// And or Or of which one side, a single value, decides: it is known then, or it is the other.
static bool fold_decided(ox *o, ox_node *n, ox_scalar op) {
    for (int k = 0; k < 2 && n->n_in == 2; k++) {
        ox_value *other = ox_in(o, n, 1 - k);
        const ox_const *c = ox_known(o, ox_in(o, n, k));
        if (!c || c->count != 1 || c->dtype != CLI_BOOL || ox_known(o, other)) {
            continue;
        }
        ox_need_sym(o, n, other);
        if (c->rank > other->rank) {
            return false;
        }
        if ((ox_geti(c, 0) != 0) != (op == OX_OR)) {
            ox_bind(o, n, 0, other);
            return true;
        }
        for (int a = 0; a < other->rank; a++) {
            if (other->sym[a] || other->bent) {
                return false;
            }
        }
        return ox_fold_to(o, n, ox_splat(o, CLI_BOOL, other->rank, other->dims, c->data));
    }
    return false;
}

static bool fold_clip(ox *o, ox_node *n) {
    const ox_const *x = ox_known_in(o, n, 0), *bound[2];
    if (n->opset < 11 || !ox_fold_fits(o, x->rank, x->dims)) {
        return false;
    }
    for (int k = 0; k < 2; k++) {
        ox_value *v = ox_opt(o, n, 1 + k);
        bound[k] = v ? ox_known(o, v) : NULL;
        if (v && bound[k]->count != 1) {
            return false;
        }
    }
    ox_const *r = ox_make(o, x->dtype, x->rank, x->dims);
    for (int64_t i = 0; i < r->count; i++) {
        ox_copy_element(o, r, i, x, i);
        for (int k = 0; k < 2; k++) {
            ox_scalar op = k ? OX_MIN : OX_MAX;
            if (bound[k] && ox_is_float(x->dtype)) {
                ox_setf(r, i, ox_compute_float(op, ox_getf(r, i), ox_getf(bound[k], 0)));
            } else if (bound[k]) {
                ox_seti(r, i, ox_compute_int(o, n, op, ox_geti(r, i), ox_geti(bound[k], 0)));
            }
        }
    }
    return ox_fold_to(o, n, r);
}

static bool fold_where(ox *o, ox_node *n) {
    const ox_const *in[3] = {ox_known_in(o, n, 0), ox_known_in(o, n, 1), ox_known_in(o, n, 2)};
    int64_t dims[CLI_MAX_RANK], strides[3][CLI_MAX_RANK];
    int rank = broadcast(o, n, in, 3, dims, strides);
    if (in[1]->dtype != in[2]->dtype) {
        ox_die(o, n, "Where with two types");
    }
    if (!ox_fold_fits(o, rank, dims)) {
        return false;
    }
    ox_const *r = ox_make(o, in[1]->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int pick = ox_geti(in[0], ox_offset_of(i, rank, dims, strides[0])) ? 1 : 2;
        ox_copy_element(o, r, i, in[pick], ox_offset_of(i, rank, dims, strides[pick]));
    }
    return ox_fold_to(o, n, r);
}

static bool fold_expand(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
    ox_list shape;
    ox_int_input(o, n, "shape", 1, &shape);
    check_dims(o, n, shape);
    if (ox_is_symbolic(shape)) {
        return false;
    }
    ox_const target = {.rank = shape.n};
    memcpy(target.dims, shape.v, (size_t)shape.n * sizeof *shape.v);
    const ox_const *in[2] = {c, &target};
    int64_t dims[CLI_MAX_RANK], strides[2][CLI_MAX_RANK];
    int rank = broadcast(o, n, in, 2, dims, strides);
    if (c->count == 1 && !c->sym) {
        return ox_fold_to(o, n, ox_splat(o, c->dtype, rank, dims, c->data));
    }
    return ox_fold_to(o, n, ox_view(o, c, rank, dims, strides[0], 0));
}

static bool fold_cast(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
    int64_t code = ox_int(o, n, "to", 0);
    cli_dtype to = ox_dtype((int32_t)code);
    ox_find(o, n, "saturate");
    if (to == CLI_NONE || code > 100) {
        ox_unsupported(o, n, "Cast to %s", ox_type_name((int32_t)code));
    }
    if (to == c->dtype && !c->bits) {
        return ox_fold_to(o, n, c);
    }
    return (c->splat || ox_fold_fits(o, c->rank, c->dims)) && ox_fold_to(o, n, ox_cast(o, c, to));
}

// Axes in a mask; no axes means all, unless the node says otherwise.
static bool reduced_axes(ox *o, ox_node *n, int rank, bool *mask) {
    ox_list axes;
    bool given = ox_int_input(o, n, "axes", 1, &axes) && axes.n;
    bool none = ox_int(o, n, "noop_with_empty_axes", 0) != 0;
    for (int a = 0; a < rank; a++) {
        mask[a] = !given && !none;
    }
    for (int i = 0; i < axes.n; i++) {
        mask[ox_axis(o, n, axes.v[i], rank)] = true;
    }
    return given || !none;
}

static bool fold_reduce(ox *o, ox_node *n, ox_scalar op) {
    const ox_const *c = ox_known_in(o, n, 0);
    bool mask[CLI_MAX_RANK], keep = ox_int(o, n, "keepdims", 1) != 0;
    int64_t dims[CLI_MAX_RANK], kept[CLI_MAX_RANK], strides[CLI_MAX_RANK], step = 1;
    int rank = 0;
    bool floats = ox_is_float(c->dtype);
    if ((floats && op == OX_ADD) || !ox_fold_fits(o, c->rank, c->dims) || !c->count) {
        return false;
    }
    reduced_axes(o, n, c->rank, mask);
    for (int a = 0; a < c->rank; a++) {
        if (!mask[a] || keep) {
            kept[rank++] = mask[a] ? 1 : c->dims[a];
        }
        dims[a] = c->dims[a];
    }
    for (int a = c->rank - 1; a >= 0; a--) {
        strides[a] = mask[a] ? 0 : step;
        step *= mask[a] ? 1 : c->dims[a];
    }
    ox_const *r = ox_make(o, c->dtype, rank, kept);
    bool *begun = ox_alloc(o, (size_t)r->count);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = ox_offset_of(i, c->rank, dims, strides);
        const char *x = begun[at] ? ox_sym(r, at) : NULL, *y = ox_sym(c, i);
        int64_t before = begun[at] ? ox_geti(r, at) : op == OX_MUL;
        if (floats) {
            double value = ox_getf(c, i);
            ox_setf(r, at, begun[at] ? ox_compute_float(op, ox_getf(r, at), value) : value);
        } else {
            int64_t value = ox_geti(c, i);
            ox_seti(r, at, begun[at] ? ox_compute_int(o, n, op, before, value) : value);
            if ((x || y) && (op == OX_MUL || op == OX_ADD)) {
                ox_set_sym(o, r, at, ox_join(o, "+-*"[op], x, before, y, value));
            }
        }
        begun[at] = true;
    }
    return ox_fold_to(o, n, r);
}

// Sums of integers so far along an axis, from either end, with or without the element itself.
static bool fold_cum_sum(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0), *by = ox_known_in(o, n, 1);
    bool exclusive = ox_int(o, n, "exclusive", 0) != 0, reverse = ox_int(o, n, "reverse", 0) != 0;
    if (ox_is_float(c->dtype) || !c->rank || by->count != 1 || !ox_fold_fits(o, c->rank, c->dims)) {
        return false;
    }
    int64_t axis = ox_axis(o, n, ox_geti(by, 0), c->rank), size = c->dims[axis], inner = 1;
    for (int a = (int)axis + 1; a < c->rank; a++) {
        inner *= c->dims[a];
    }
    ox_const *r = ox_make(o, c->dtype, c->rank, c->dims);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t step = i / inner % size, to = reverse ? i + (size - 1 - 2 * step) * inner : i;
        int64_t last = reverse ? to + inner : to - inner, from = exclusive ? last : to;
        bool adds = step > 0, takes = adds || !exclusive;
        int64_t before = adds ? ox_geti(r, last) : 0, own = takes ? ox_geti(c, from) : 0;
        const char *x = adds ? ox_sym(r, last) : NULL, *y = takes ? ox_sym(c, from) : NULL;
        ox_seti(r, to, ox_compute_int(o, n, OX_ADD, before, own));
        if (x || y) {
            ox_set_sym(o, r, to, ox_join(o, '+', x, before, y, own));
        }
    }
    return ox_fold_to(o, n, r);
}

static bool fold_non_zero(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
    if (!ox_fold_fits(o, c->rank, c->dims)) {
        return false;
    }
    int64_t dims[2] = {c->rank, 0}, at = 0;
    for (int64_t i = 0; i < c->count; i++) {
        dims[1] += ox_getf(c, i) != 0;
    }
    ox_const *r = ox_make(o, CLI_I64, 2, dims);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t rest = i;
        for (int a = c->rank - 1; ox_getf(c, i) != 0 && a >= 0; a--) {
            ox_seti(r, a * dims[1] + at, rest % c->dims[a]);
            rest /= c->dims[a];
        }
        at += ox_getf(c, i) != 0;
    }
    return ox_fold_to(o, n, r);
}

// ---- the table ----

static const ox_folding folds[] = {
    {"Constant", 0, fold_constant, NULL, OX_ADD},
    {"ConstantOfShape", 1, fold_constant_of_shape, NULL, OX_ADD},
    {"Shape", 1, fold_shape, NULL, OX_ADD},
    {"Size", 1, fold_size, NULL, OX_ADD},
    {"EyeLike", 1, fold_eye_like, NULL, OX_ADD},
    {"Range", 3, fold_range, NULL, OX_ADD},
    {"HannWindow", 1, fold_window, NULL, OX_ADD},
    {"HammingWindow", 1, fold_window, NULL, OX_ADD},
    {"BlackmanWindow", 1, fold_window, NULL, OX_ADD},
    {"Where", 3, fold_where, NULL, OX_ADD},
    {"Expand", 2, fold_expand, NULL, OX_ADD},
    {"Cast", 1, fold_cast, NULL, OX_ADD},
    {"CumSum", 2, fold_cum_sum, NULL, OX_ADD},
    {"NonZero", 1, fold_non_zero, NULL, OX_ADD},
    {"Add", 2, NULL, fold_scalar, OX_ADD},
    {"Sub", 2, NULL, fold_scalar, OX_SUB},
    {"Mul", 2, NULL, fold_scalar, OX_MUL},
    {"Div", 2, NULL, fold_scalar, OX_DIV},
    {"Mod", 2, NULL, fold_scalar, OX_MOD},
    {"Pow", 2, NULL, fold_scalar, OX_POW},
    {"Clip", 1, fold_clip, NULL, OX_ADD},
    {"Max", 1, NULL, fold_scalar, OX_MAX},
    {"Min", 1, NULL, fold_scalar, OX_MIN},
    {"Equal", 2, NULL, fold_scalar, OX_EQ},
    {"Less", 2, NULL, fold_scalar, OX_LT},
    {"LessOrEqual", 2, NULL, fold_scalar, OX_LE},
    {"Greater", 2, NULL, fold_scalar, OX_GT},
    {"GreaterOrEqual", 2, NULL, fold_scalar, OX_GE},
    {"And", 2, NULL, fold_scalar, OX_AND},
    {"Or", 2, NULL, fold_scalar, OX_OR},
    {"Not", 1, NULL, fold_scalar, OX_NOT},
    {"Neg", 1, NULL, fold_scalar, OX_NEG},
    {"Abs", 1, NULL, fold_scalar, OX_ABS},
    {"Floor", 1, NULL, fold_scalar, OX_FLOOR},
    {"Ceil", 1, NULL, fold_scalar, OX_CEIL},
    {"Round", 1, NULL, fold_scalar, OX_ROUND},
    {"Sqrt", 1, NULL, fold_scalar, OX_SQRT},
    {"Reciprocal", 1, NULL, fold_scalar, OX_RECIPROCAL},
    {"Exp", 1, NULL, fold_scalar, OX_EXP},
    {"Log", 1, NULL, fold_scalar, OX_LOG},
    {"Sin", 1, NULL, fold_scalar, OX_SIN},
    {"Cos", 1, NULL, fold_scalar, OX_COS},
    {"ReduceProd", 1, NULL, fold_reduce, OX_MUL},
    {"ReduceSum", 1, NULL, fold_reduce, OX_ADD},
    {"ReduceMax", 1, NULL, fold_reduce, OX_MAX},
    {"ReduceMin", 1, NULL, fold_reduce, OX_MIN},
    {NULL, 0, NULL, NULL, OX_ADD},
};

static const ox_folding *folding_of(const char *op) {
    const ox_folding *const tables[] = {folds, ox_fold_moves};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const ox_folding *f = tables[t]; f->op; f++) {
            if (!strcmp(f->op, op)) {
                return f;
            }
        }
    }
    return NULL;
}

bool ox_folds(const char *op) { return folding_of(op) != NULL; }

bool ox_fold(ox *o, ox_node *n) {
    const ox_folding *f = folding_of(n->op);
    if (!f) {
        return false;
    }
    bool asks_shape = f->fold == fold_shape || f->fold == fold_size || f->fold == fold_eye_like;
    if (n->n_in < f->min_in) {
        ox_die(o, n, "operator '%s' with %d inputs", n->op, n->n_in);
    }
    for (int k = 0; k < n->n_in && !asks_shape; k++) {
        if (n->in[k] && !ox_known(o, n->in[k])) {
            return (f->by == OX_AND || f->by == OX_OR) && fold_decided(o, n, f->by);
        }
    }
    return f->fold ? f->fold(o, n) : f->compute(o, n, f->by);
}
