// onnx_fold.c - computes at import time what is known then: mostly the shape arithmetic that
// exporters leave in a graph. Elements of shapes keep, beside their number, the expression over the
// model's dims that they come from.
#include "onnx.h"

#include <math.h>

// ---- making results ----

static bool is_small(ox *o, int rank, const int64_t *dims) {
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

static void dense_strides(const ox_const *c, int64_t *strides) {
    int64_t step = 1;
    for (int a = c->rank - 1; a >= 0; a--) {
        strides[a] = step;
        step *= c->dims[a];
    }
}

static void copy_element(ox *o, ox_const *to, int64_t at, const ox_const *from, int64_t i) {
    size_t size = cli_dtype_size(to->dtype);
    memcpy((uint8_t *)(uintptr_t)to->data + (size_t)at * size,
           from->data + (from->splat ? 0 : (size_t)i * size), size);
    ox_set_sym(o, to, at, ox_sym(from, i));
}

// Offset of element i of a box in a tensor with the given strides.
static int64_t offset_of(int64_t i, int rank, const int64_t *dims, const int64_t *strides) {
    int64_t offset = 0;
    for (int a = rank - 1; a >= 0; a--) {
        offset += i % dims[a] * strides[a];
        i /= dims[a];
    }
    return offset;
}

// Copy of the elements base + sum index * stride. NULL when there are too many.
static const ox_const *view(ox *o, const ox_const *c, int rank, const int64_t *dims,
                            const int64_t *strides, int64_t base) {
    if (c->splat) {
        return ox_splat(o, c->dtype, rank, dims, c->data);
    }
    if (!is_small(o, rank, dims)) {
        return NULL;
    }
    ox_const *r = ox_make(o, c->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        copy_element(o, r, i, c, base + offset_of(i, rank, dims, strides));
    }
    return r;
}

static const ox_const *known(ox *o, ox_node *n, int input) {
    return ox_known(o, ox_in(o, n, input));
}

static bool bind(ox *o, ox_node *n, const ox_const *c) {
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
        return bind(o, n, ox_decode(o, a->a->t, n->n_out ? n->out_onnx[0] : ""));
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        a = ox_find(o, n, forms[i]);
        if (a) {
            return bind(o, n, from_numbers(o, n, a->a, forms[i]));
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
    ox_list dims = ox_list_of(o, n, "input", known(o, n, 0));
    check_dims(o, n, dims);
    if (ox_is_symbolic(dims)) {
        return false;
    }
    const ox_attr *a = ox_find(o, n, "value");
    uint8_t zero[8] = {0};
    if (!a) {
        return bind(o, n, ox_splat(o, CLI_F32, dims.n, dims.v, zero));
    }
    const ox_const *c = a->a->t ? ox_decode(o, a->a->t, "value") : NULL;
    if (!c || c->count != 1) {
        ox_die(o, n, "attribute 'value' is not a tensor of one element");
    }
    return bind(o, n, ox_splat(o, c->dtype, dims.n, dims.v, c->data));
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
    return bind(o, n, c);
}

// Ones on a diagonal, in the shape of the input.
static bool fold_eye_like(ox *o, ox_node *n) {
    ox_value *v = ox_in(o, n, 0);
    int64_t k = ox_int(o, n, "k", 0), code = ox_int(o, n, "dtype", 0);
    cli_dtype dtype = code ? ox_dtype(code > 0 && code < 100 ? (int32_t)code : 0) : v->dtype;
    ox_need_sym(o, n, v);
    if (v->rank != 2 || dtype == CLI_NONE || v->sym[0] || v->sym[1] ||
        !is_small(o, v->rank, v->dims)) {
        ox_unsupported(o, n, "EyeLike of another shape than a matrix of known size, or this type");
    }
    ox_const *c = ox_make(o, dtype, 2, v->dims);
    for (int64_t i = 0; i < c->count; i++) {
        ox_setf(c, i, i % v->dims[1] - i / v->dims[1] == k);
    }
    return bind(o, n, c);
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
    return bind(o, n, c);
}

static bool fold_range(ox *o, ox_node *n) {
    const ox_const *in[3] = {known(o, n, 0), known(o, n, 1), known(o, n, 2)};
    if (in[0]->count != 1 || in[1]->count != 1 || in[2]->count != 1) {
        ox_die(o, n, "the inputs of Range are not scalars");
    }
    double start = ox_getf(in[0], 0), limit = ox_getf(in[1], 0), delta = ox_getf(in[2], 0);
    double size = delta != 0 ? ceil((limit - start) / delta) : HUGE_VAL;
    if (!(size <= OX_FOLD_LIMIT)) {
        ox_die(o, n, "Range makes too many elements");
    }
    int64_t count = size > 0 ? (int64_t)size : 0;
    is_small(o, 1, &count);
    ox_const *c = ox_make(o, in[0]->dtype, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        if (ox_is_float(c->dtype)) {
            ox_setf(c, i, start + (double)i * delta);
        } else {
            ox_seti(c, i, ox_geti(in[0], 0) + i * ox_geti(in[2], 0));
        }
    }
    return bind(o, n, c);
}

// a - b cos(x) + c cos(2 x), one turn of x over the window; symmetric ones have both its ends.
static bool fold_window(ox *o, ox_node *n) {
    static const struct {
        const char *name;
        double a, b, c;
    } windows[] = {{"HannWindow", 0.5, 0.5, 0},
                   {"HammingWindow", 25.0 / 46, 21.0 / 46, 0},
                   {"BlackmanWindow", 0.42, 0.5, 0.08}};
    const ox_const *size = known(o, n, 0);
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
    return bind(o, n, c);
}

// ---- moving elements ----

static bool fold_reshape(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    ox_list shape;
    if (!ox_int_input(o, n, "shape", 1, &shape) || shape.n > CLI_MAX_RANK) {
        ox_die(o, n, "Reshape without a usable shape");
    }
    int64_t dims[CLI_MAX_RANK], count = 0;
    int infer = -1;
    bool zeros = ox_int(o, n, "allowzero", 0) != 0;
    for (int i = 0; i < shape.n; i++) {
        dims[i] = shape.v[i] == 0 && !zeros && i < c->rank ? c->dims[i] : shape.v[i];
        if (shape.v[i] == -1 && infer < 0) {
            infer = i;
            dims[i] = 1;
        }
    }
    bool good = cli_count(shape.n, dims, &count);
    if (good && infer >= 0 && count > 0 && c->count % count == 0) {
        dims[infer] = c->count / count;
        count = c->count;
    }
    if (!good || count != c->count) {
        ox_die(o, n, "the shape does not have the %lld elements of the input", (long long)c->count);
    }
    return bind(o, n, ox_reshaped(o, c, shape.n, dims));
}

static bool fold_flatten(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    int64_t axis = ox_int(o, n, "axis", 1), dims[2] = {1, 1};
    axis = axis == c->rank ? axis : ox_axis(o, n, axis, c->rank);
    for (int a = 0; a < c->rank; a++) {
        dims[a >= axis] *= c->dims[a];
    }
    return bind(o, n, ox_reshaped(o, c, 2, dims));
}

static bool fold_squeeze(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    ox_list axes;
    bool all = !ox_int_input(o, n, "axes", 1, &axes);
    bool drop[CLI_MAX_RANK] = {false};
    for (int i = 0; i < axes.n; i++) {
        drop[ox_axis(o, n, axes.v[i], c->rank)] = true;
    }
    int64_t dims[CLI_MAX_RANK];
    int rank = 0;
    for (int a = 0; a < c->rank; a++) {
        if (drop[a] && c->dims[a] != 1) {
            ox_die(o, n, "axis %d has size %lld, not 1", a, (long long)c->dims[a]);
        }
        if (!(drop[a] || (all && c->dims[a] == 1))) {
            dims[rank++] = c->dims[a];
        }
    }
    return bind(o, n, ox_reshaped(o, c, rank, dims));
}

static bool fold_unsqueeze(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    ox_list axes;
    if (!ox_int_input(o, n, "axes", 1, &axes) || c->rank + axes.n > CLI_MAX_RANK) {
        ox_die(o, n, "Unsqueeze without usable axes");
    }
    int rank = c->rank + axes.n, from = 0;
    bool added[CLI_MAX_RANK] = {false};
    for (int i = 0; i < axes.n; i++) {
        int64_t axis = ox_axis(o, n, axes.v[i], rank);
        if (added[axis]) {
            ox_die(o, n, "axis %lld is added twice", (long long)axis);
        }
        added[axis] = true;
    }
    int64_t dims[CLI_MAX_RANK];
    for (int a = 0; a < rank; a++) {
        dims[a] = added[a] ? 1 : c->dims[from++];
    }
    return bind(o, n, ox_reshaped(o, c, rank, dims));
}

static bool fold_transpose(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    int64_t dense[CLI_MAX_RANK], dims[CLI_MAX_RANK], strides[CLI_MAX_RANK];
    bool seen[CLI_MAX_RANK] = {false};
    ox_list perm;
    bool given = ox_ints(o, n, "perm", &perm);
    if (given && perm.n != c->rank) {
        ox_die(o, n, "perm has %d axes, the input %d", perm.n, c->rank);
    }
    dense_strides(c, dense);
    for (int a = 0; a < c->rank; a++) {
        int64_t from = given ? ox_axis(o, n, perm.v[a], c->rank) : c->rank - 1 - a;
        if (seen[from]) {
            ox_die(o, n, "perm has an axis twice");
        }
        seen[from] = true;
        dims[a] = c->dims[from];
        strides[a] = dense[from];
    }
    return bind(o, n, view(o, c, c->rank, dims, strides, 0));
}

// ONNX's clamping: a negative position counts from the end, then both are forced into the axis.
static int64_t slice_length(int64_t *start, int64_t end, int64_t step, int64_t dim) {
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? dim - 1 : dim;
    *start = *start < 0 ? *start + dim : *start;
    end = end < -dim ? low : end < 0 ? end + dim : end;
    *start = *start < 0 ? 0 : *start > high ? high : *start;
    end = end < low ? low : end > dim ? dim : end;
    if (step > 0) {
        return end > *start ? (end - *start - 1) / step + 1 : 0;
    }
    return *start > end ? (*start - end - 1) / -step + 1 : 0;
}

static bool fold_slice(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    ox_list l[4];
    ox_slice_lists(o, n, l);
    int64_t dims[CLI_MAX_RANK], strides[CLI_MAX_RANK], base = 0;
    memcpy(dims, c->dims, sizeof dims);
    dense_strides(c, strides);
    bool seen[CLI_MAX_RANK] = {false};
    for (int i = 0; i < l[0].n; i++) {
        int64_t axis = ox_axis(o, n, l[2].n ? l[2].v[i] : i, c->rank);
        int64_t step = l[3].n ? l[3].v[i] : 1, start = l[0].v[i];
        if (seen[axis] || step == 0 || step == INT64_MIN) {
            ox_die(o, n, "Slice with a repeated axis or a bad step");
        }
        seen[axis] = true;
        dims[axis] = slice_length(&start, l[1].v[i], step, c->dims[axis]);
        base += dims[axis] ? start * strides[axis] : 0;
        strides[axis] = dims[axis] > 1 ? strides[axis] * step : 0;
    }
    return bind(o, n, view(o, c, c->rank, dims, strides, base));
}

static bool fold_split(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), c->rank), at = 0;
    ox_list split;
    bool given = ox_int_input(o, n, "split", 1, &split);
    int64_t parts = ox_int(o, n, "num_outputs", n->n_out);
    int64_t part = parts > 0 ? (c->dims[axis] + parts - 1) / parts : 0;
    if (parts != n->n_out || (given && split.n != n->n_out)) {
        ox_die(o, n, "Split into a wrong number of parts");
    }
    if (!is_small(o, c->rank, c->dims)) {
        return false;
    }
    int64_t dims[CLI_MAX_RANK], strides[CLI_MAX_RANK];
    memcpy(dims, c->dims, sizeof dims);
    dense_strides(c, strides);
    for (int i = 0; i < n->n_out; i++) {
        int64_t left = c->dims[axis] - at;
        dims[axis] = given ? split.v[i] : part < left ? part : left;
        if (dims[axis] < 0 || dims[axis] > left) {
            ox_die(o, n, "Split with parts that are not the whole");
        }
        ox_bind_known(o, n, i, view(o, c, c->rank, dims, strides, at * strides[axis]));
        at += dims[axis];
    }
    return true;
}

static bool fold_gather(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0), *index = known(o, n, 1);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), c->rank);
    int64_t dims[CLI_MAX_RANK], inner = 1;
    int rank = 0;
    if (c->rank + index->rank - 1 > CLI_MAX_RANK || ox_is_float(index->dtype)) {
        ox_die(o, n, "Gather with a bad index");
    }
    for (int a = 0; a < c->rank; a++) {
        for (int b = 0; a == axis && b < index->rank; b++) {
            dims[rank++] = index->dims[b];
        }
        if (a != axis) {
            dims[rank++] = c->dims[a];
            inner *= a > axis ? c->dims[a] : 1;
        }
    }
    if (!is_small(o, rank, dims)) {
        return false;
    }
    ox_const *r = ox_make(o, c->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t row = i / inner, pick = ox_geti(index, row % index->count);
        pick = pick < 0 ? pick + c->dims[axis] : pick;
        if (pick < 0 || pick >= c->dims[axis]) {
            ox_die(o, n, "Gather index outside an axis of size %lld", (long long)c->dims[axis]);
        }
        int64_t from = (row / index->count * c->dims[axis] + pick) * inner + i % inner;
        copy_element(o, r, i, c, from);
    }
    return bind(o, n, r);
}

static bool fold_concat(ox *o, ox_node *n) {
    const ox_const *first = known(o, n, 0);
    if (!ox_has(n, "axis")) {
        ox_die(o, n, "Concat without axis");
    }
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), first->rank);
    int64_t dims[CLI_MAX_RANK], inner = 1, outer = 1, at = 0;
    memcpy(dims, first->dims, sizeof dims);
    dims[axis] = 0;
    for (int i = 0; i < n->n_in; i++) {
        const ox_const *c = known(o, n, i);
        bool same = c->rank == first->rank && c->dtype == first->dtype;
        for (int a = 0; a < first->rank && same; a++) {
            same = a == axis || c->dims[a] == first->dims[a];
        }
        if (!same) {
            ox_die(o, n, "Concat of tensors whose shapes do not match");
        }
        dims[axis] += c->dims[axis];
    }
    if (!is_small(o, first->rank, dims)) {
        return false;
    }
    for (int a = 0; a < first->rank; a++) {
        inner *= a > axis ? dims[a] : 1;
        outer *= a < axis ? dims[a] : 1;
    }
    ox_const *r = ox_make(o, first->dtype, first->rank, dims);
    for (int i = 0; i < n->n_in; i++) {
        const ox_const *c = known(o, n, i);
        int64_t block = c->dims[axis] * inner;
        for (int64_t k = 0; k < outer * block; k++) {
            copy_element(o, r, k / block * dims[axis] * inner + at + k % block, c, k);
        }
        at += block;
    }
    return bind(o, n, r);
}

// Rows of an index name places along the first axes, at which updates take the place of what is
// there.
static bool fold_scatter_nd(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0), *index = known(o, n, 1), *u = known(o, n, 2);
    int64_t k = index->rank ? index->dims[index->rank - 1] : 0, inner = 1, rows = 1;
    if (strcmp(ox_string(o, n, "reduction", "none"), "none") || !is_small(o, c->rank, c->dims)) {
        return false;
    }
    for (int a = (int)k; k >= 1 && a < c->rank; a++) {
        inner *= c->dims[a];
    }
    for (int a = 0; a < index->rank - 1; a++) {
        rows *= index->dims[a];
    }
    if (k < 1 || k > c->rank || u->count != rows * inner || u->dtype != c->dtype) {
        ox_die(o, n, "ScatterND whose inputs do not fit");
    }
    ox_const *r = ox_make(o, c->dtype, c->rank, c->dims);
    for (int64_t i = 0; i < c->count; i++) {
        copy_element(o, r, i, c, i);
    }
    for (int64_t row = 0; row < rows && u->count; row++) {
        int64_t place = 0;
        for (int a = 0; a < k; a++) {
            int64_t p = ox_geti(index, row * k + a);
            if (p < -c->dims[a] || p >= c->dims[a]) {
                ox_die(o, n, "ScatterND index outside an axis of size %lld", (long long)c->dims[a]);
            }
            place = place * c->dims[a] + (p < 0 ? p + c->dims[a] : p);
        }
        for (int64_t i = 0; i < inner; i++) {
            copy_element(o, r, place * inner + i, u, row * inner + i);
        }
    }
    return bind(o, n, r);
}

// Updates stand in the places of their own indices, but for one axis, along which they are named.
// Sizes into which a cache's rows are written are computed so.
static bool fold_scatter_elements(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0), *index = known(o, n, 1), *u = known(o, n, 2);
    int64_t strides[CLI_MAX_RANK], own[CLI_MAX_RANK];
    bool fits = u->rank == c->rank && index->rank == c->rank && u->dtype == c->dtype;
    for (int a = 0; fits && a < c->rank; a++) {
        fits = u->dims[a] == index->dims[a] && u->dims[a] <= c->dims[a];
    }
    if (!fits || !c->rank || strcmp(ox_string(o, n, "reduction", "none"), "none") ||
        !is_small(o, c->rank, c->dims)) {
        return false;
    }
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), c->rank);
    dense_strides(c, strides);
    memcpy(own, strides, sizeof own);
    own[axis] = 0;
    ox_const *r = ox_make(o, c->dtype, c->rank, c->dims);
    for (int64_t i = 0; i < c->count; i++) {
        copy_element(o, r, i, c, i);
    }
    for (int64_t i = 0; i < u->count; i++) {
        int64_t p = ox_geti(index, i), dim = c->dims[axis];
        if (p < -dim || p >= dim) {
            ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)dim);
        }
        int64_t place = (p < 0 ? p + dim : p) * strides[axis];
        copy_element(o, r, place + offset_of(i, u->rank, u->dims, own), u, i);
    }
    return bind(o, n, r);
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
        dense_strides(in[i], dense);
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
        !is_small(o, c->rank, c->dims)) {
        return false;
    }
    ox_const *r = ox_make(o, c->dtype, c->rank, c->dims);
    for (int64_t i = 0; i < r->count; i++) {
        copy_element(o, r, i, c, i);
        for (int k = 1; k < (int)times; k++) {
            const char *sym = ox_sym(r, i);
            sym = sym ? ox_join(o, '*', sym, 0, ox_sym(c, i), 0) : NULL;
            ox_seti(r, i, ox_compute_int(o, n, OX_MUL, ox_geti(r, i), ox_geti(c, i)));
            ox_set_sym(o, r, i, sym);
        }
    }
    return bind(o, n, r);
}

static bool fold_scalar(ox *o, ox_node *n, ox_scalar op) {
    const ox_const *in[2] = {known(o, n, 0), NULL};
    int count = op >= OX_NEG ? 1 : 2;
    int64_t dims[CLI_MAX_RANK], strides[2][CLI_MAX_RANK];
    if (n->n_in != count) {
        return false;  // Max and Min of another number of inputs
    }
    in[1] = count == 2 ? known(o, n, 1) : in[0];
    if (op == OX_POW && !ox_is_float(in[0]->dtype)) {
        return fold_power(o, n, in[0], in[1]);
    }
    int rank = broadcast(o, n, in, 2, dims, strides);
    bool compares = op >= OX_EQ && op <= OX_GE;
    bool floats = ox_is_float(in[0]->dtype) || ox_is_float(in[1]->dtype);
    if (!is_small(o, rank, dims) || (op == OX_MOD && ox_int(o, n, "fmod", 0) != floats)) {
        return false;
    }
    ox_const *r = ox_make(o, compares ? CLI_BOOL : in[0]->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t j = offset_of(i, rank, dims, strides[0]), k = offset_of(i, rank, dims, strides[1]);
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
    return bind(o, n, r);
}

static bool fold_clip(ox *o, ox_node *n) {
    const ox_const *x = known(o, n, 0), *bound[2];
    if (n->opset < 11 || !is_small(o, x->rank, x->dims)) {
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
        copy_element(o, r, i, x, i);
        for (int k = 0; k < 2; k++) {
            ox_scalar op = k ? OX_MIN : OX_MAX;
            if (bound[k] && ox_is_float(x->dtype)) {
                ox_setf(r, i, ox_compute_float(op, ox_getf(r, i), ox_getf(bound[k], 0)));
            } else if (bound[k]) {
                ox_seti(r, i, ox_compute_int(o, n, op, ox_geti(r, i), ox_geti(bound[k], 0)));
            }
        }
    }
    return bind(o, n, r);
}

static bool fold_where(ox *o, ox_node *n) {
    const ox_const *in[3] = {known(o, n, 0), known(o, n, 1), known(o, n, 2)};
    int64_t dims[CLI_MAX_RANK], strides[3][CLI_MAX_RANK];
    int rank = broadcast(o, n, in, 3, dims, strides);
    if (in[1]->dtype != in[2]->dtype) {
        ox_die(o, n, "Where with two types");
    }
    if (!is_small(o, rank, dims)) {
        return false;
    }
    ox_const *r = ox_make(o, in[1]->dtype, rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int pick = ox_geti(in[0], offset_of(i, rank, dims, strides[0])) ? 1 : 2;
        copy_element(o, r, i, in[pick], offset_of(i, rank, dims, strides[pick]));
    }
    return bind(o, n, r);
}

static bool fold_expand(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
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
        return bind(o, n, ox_splat(o, c->dtype, rank, dims, c->data));
    }
    return bind(o, n, view(o, c, rank, dims, strides[0], 0));
}

static bool fold_cast(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    int64_t code = ox_int(o, n, "to", 0);
    cli_dtype to = ox_dtype((int32_t)code);
    ox_find(o, n, "saturate");
    if (to == CLI_NONE || code > 100) {
        ox_unsupported(o, n, "Cast to %s", ox_type_name((int32_t)code));
    }
    if (to == c->dtype && !c->bits) {
        return bind(o, n, c);
    }
    return (c->splat || is_small(o, c->rank, c->dims)) && bind(o, n, ox_cast(o, c, to));
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
    const ox_const *c = known(o, n, 0);
    bool mask[CLI_MAX_RANK], keep = ox_int(o, n, "keepdims", 1) != 0;
    int64_t dims[CLI_MAX_RANK], kept[CLI_MAX_RANK], strides[CLI_MAX_RANK], step = 1;
    int rank = 0;
    bool floats = ox_is_float(c->dtype);
    if ((floats && op != OX_MUL) || !is_small(o, c->rank, c->dims) || !c->count) {
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
        int64_t at = offset_of(i, c->rank, dims, strides);
        const char *x = begun[at] ? ox_sym(r, at) : NULL, *y = ox_sym(c, i);
        int64_t before = begun[at] ? ox_geti(r, at) : op == OX_MUL;
        if (floats) {
            ox_setf(r, at, begun[at] ? ox_getf(r, at) * ox_getf(c, i) : ox_getf(c, i));
        } else {
            int64_t value = ox_geti(c, i);
            ox_seti(r, at, begun[at] ? ox_compute_int(o, n, op, before, value) : value);
            if ((x || y) && (op == OX_MUL || op == OX_ADD)) {
                ox_set_sym(o, r, at, ox_join(o, "+-*"[op], x, before, y, value));
            }
        }
        begun[at] = true;
    }
    return bind(o, n, r);
}

static bool fold_non_zero(ox *o, ox_node *n) {
    const ox_const *c = known(o, n, 0);
    if (!is_small(o, c->rank, c->dims)) {
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
    return bind(o, n, r);
}

// ---- the table ----

typedef bool (*fold_function)(ox *o, ox_node *n);
typedef bool (*fold_family)(ox *o, ox_node *n, ox_scalar op);

static const struct {
    const char *name;
    int min_in;
    fold_function function;
    fold_family family;
    ox_scalar op;
} folds[] = {
    {"Constant", 0, fold_constant, NULL, OX_ADD},
    {"ConstantOfShape", 1, fold_constant_of_shape, NULL, OX_ADD},
    {"Shape", 1, fold_shape, NULL, OX_ADD},
    {"Size", 1, fold_size, NULL, OX_ADD},
    {"EyeLike", 1, fold_eye_like, NULL, OX_ADD},
    {"Range", 3, fold_range, NULL, OX_ADD},
    {"HannWindow", 1, fold_window, NULL, OX_ADD},
    {"HammingWindow", 1, fold_window, NULL, OX_ADD},
    {"BlackmanWindow", 1, fold_window, NULL, OX_ADD},
    {"Reshape", 1, fold_reshape, NULL, OX_ADD},
    {"Flatten", 1, fold_flatten, NULL, OX_ADD},
    {"Squeeze", 1, fold_squeeze, NULL, OX_ADD},
    {"Unsqueeze", 1, fold_unsqueeze, NULL, OX_ADD},
    {"Transpose", 1, fold_transpose, NULL, OX_ADD},
    {"Slice", 1, fold_slice, NULL, OX_ADD},
    {"Split", 1, fold_split, NULL, OX_ADD},
    {"Gather", 2, fold_gather, NULL, OX_ADD},
    {"Concat", 1, fold_concat, NULL, OX_ADD},
    {"ScatterND", 3, fold_scatter_nd, NULL, OX_ADD},
    {"ScatterElements", 3, fold_scatter_elements, NULL, OX_ADD},
    {"Where", 3, fold_where, NULL, OX_ADD},
    {"Expand", 2, fold_expand, NULL, OX_ADD},
    {"Cast", 1, fold_cast, NULL, OX_ADD},
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
};

bool ox_folds(const char *op) {
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) {
        if (!strcmp(folds[i].name, op)) {
            return true;
        }
    }
    return false;
}

bool ox_fold(ox *o, ox_node *n) {
    size_t i = 0, count = sizeof folds / sizeof *folds;
    while (i < count && strcmp(folds[i].name, n->op)) {
        i++;
    }
    if (i == count) {
        return false;
    }
    bool asks_shape = folds[i].function == fold_shape || folds[i].function == fold_size ||
                      folds[i].function == fold_eye_like;
    if (n->n_in < folds[i].min_in) {
        ox_die(o, n, "operator '%s' with %d inputs", n->op, n->n_in);
    }
    for (int k = 0; k < n->n_in && !asks_shape; k++) {
        if (n->in[k] && !ox_known(o, n->in[k])) {
            return false;
        }
    }
    return folds[i].function ? folds[i].function(o, n) : folds[i].family(o, n, folds[i].op);
}
