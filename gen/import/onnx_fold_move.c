// onnx_fold_move.c - constant folding of operators that move elements: views, parts, gathers and
// scatters.
#include "onnx.h"

static bool fold_reshape(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
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
    return ox_fold_to(o, n, ox_reshaped(o, c, shape.n, dims));
}

static bool fold_flatten(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
    int64_t axis = ox_int(o, n, "axis", 1), dims[2] = {1, 1};
    axis = axis == c->rank ? axis : ox_axis(o, n, axis, c->rank);
    for (int a = 0; a < c->rank; a++) {
        dims[a >= axis] *= c->dims[a];
    }
    return ox_fold_to(o, n, ox_reshaped(o, c, 2, dims));
}

static bool fold_squeeze(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
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
    return ox_fold_to(o, n, ox_reshaped(o, c, rank, dims));
}

static bool fold_unsqueeze(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
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
    return ox_fold_to(o, n, ox_reshaped(o, c, rank, dims));
}

static bool fold_transpose(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
    int64_t dense[CLI_MAX_RANK], dims[CLI_MAX_RANK], strides[CLI_MAX_RANK];
    bool seen[CLI_MAX_RANK] = {false};
    ox_list perm;
    bool given = ox_ints(o, n, "perm", &perm);
    if (given && perm.n != c->rank) {
        ox_die(o, n, "perm has %d axes, the input %d", perm.n, c->rank);
    }
    ox_dense_strides(c, dense);
    for (int a = 0; a < c->rank; a++) {
        int64_t from = given ? ox_axis(o, n, perm.v[a], c->rank) : c->rank - 1 - a;
        if (seen[from]) {
            ox_die(o, n, "perm has an axis twice");
        }
        seen[from] = true;
        dims[a] = c->dims[from];
        strides[a] = dense[from];
    }
    return ox_fold_to(o, n, ox_view(o, c, c->rank, dims, strides, 0));
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
    const ox_const *c = ox_known_in(o, n, 0);
    ox_list l[4];
    ox_slice_lists(o, n, l);
    int64_t dims[CLI_MAX_RANK], strides[CLI_MAX_RANK], base = 0;
    memcpy(dims, c->dims, sizeof dims);
    ox_dense_strides(c, strides);
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
    return ox_fold_to(o, n, ox_view(o, c, c->rank, dims, strides, base));
}

static bool fold_split(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), c->rank), at = 0;
    ox_list split;
    bool given = ox_int_input(o, n, "split", 1, &split);
    int64_t parts = ox_int(o, n, "num_outputs", n->n_out);
    int64_t part = parts > 0 ? (c->dims[axis] + parts - 1) / parts : 0;
    if (parts != n->n_out || (given && split.n != n->n_out)) {
        ox_die(o, n, "Split into a wrong number of parts");
    }
    if (!ox_fold_fits(o, c->rank, c->dims)) {
        return false;
    }
    int64_t dims[CLI_MAX_RANK], strides[CLI_MAX_RANK];
    memcpy(dims, c->dims, sizeof dims);
    ox_dense_strides(c, strides);
    for (int i = 0; i < n->n_out; i++) {
        int64_t left = c->dims[axis] - at;
        dims[axis] = given ? split.v[i] : part < left ? part : left;
        if (dims[axis] < 0 || dims[axis] > left) {
            ox_die(o, n, "Split with parts that are not the whole");
        }
        ox_bind_known(o, n, i, ox_view(o, c, c->rank, dims, strides, at * strides[axis]));
        at += dims[axis];
    }
    return true;
}

// Repeats may be 0, as those of sizes that nothing is left for.
static bool fold_tile(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0), *times = ox_known_in(o, n, 1);
    int64_t dims[CLI_MAX_RANK], strides[CLI_MAX_RANK];
    if (n->opset < 6 || times->count != c->rank) {
        return false;
    }
    for (int a = 0; a < c->rank; a++) {
        int64_t by = ox_geti(times, a);
        if (by < 0 || ox_sym(times, a) || (c->dims[a] && by > OX_MAX_DIM / c->dims[a])) {
            return false;
        }
        dims[a] = c->dims[a] * by;
    }
    if (!ox_fold_fits(o, c->rank, dims)) {
        return false;
    }
    ox_dense_strides(c, strides);
    ox_const *r = ox_make(o, c->dtype, c->rank, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t rest = i, from = 0;
        for (int a = c->rank - 1; a >= 0; a--) {
            from += rest % dims[a] % c->dims[a] * strides[a];
            rest /= dims[a];
        }
        ox_copy_element(o, r, i, c, from);
    }
    return ox_fold_to(o, n, r);
}

static bool fold_gather(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0), *index = ox_known_in(o, n, 1);
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
    if (!ox_fold_fits(o, rank, dims)) {
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
        ox_copy_element(o, r, i, c, from);
    }
    return ox_fold_to(o, n, r);
}

static bool fold_concat(ox *o, ox_node *n) {
    const ox_const *first = ox_known_in(o, n, 0);
    if (!ox_has(n, "axis")) {
        ox_die(o, n, "Concat without axis");
    }
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), first->rank);
    int64_t dims[CLI_MAX_RANK], inner = 1, outer = 1, at = 0;
    memcpy(dims, first->dims, sizeof dims);
    dims[axis] = 0;
    for (int i = 0; i < n->n_in; i++) {
        const ox_const *c = ox_known_in(o, n, i);
        bool same = c->rank == first->rank && c->dtype == first->dtype;
        for (int a = 0; a < first->rank && same; a++) {
            same = a == axis || c->dims[a] == first->dims[a];
        }
        if (!same) {
            ox_die(o, n, "Concat of tensors whose shapes do not match");
        }
        dims[axis] += c->dims[axis];
    }
    if (!ox_fold_fits(o, first->rank, dims)) {
        return false;
    }
    for (int a = 0; a < first->rank; a++) {
        inner *= a > axis ? dims[a] : 1;
        outer *= a < axis ? dims[a] : 1;
    }
    ox_const *r = ox_make(o, first->dtype, first->rank, dims);
    for (int i = 0; i < n->n_in; i++) {
        const ox_const *c = ox_known_in(o, n, i);
        int64_t block = c->dims[axis] * inner;
        for (int64_t k = 0; k < outer * block; k++) {
            ox_copy_element(o, r, k / block * dims[axis] * inner + at + k % block, c, k);
        }
        at += block;
    }
    return ox_fold_to(o, n, r);
}

// Rows of an index name places along the first axes, at which updates take the place of what is
// there.
static bool fold_scatter_nd(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0), *index = ox_known_in(o, n, 1),
                   *u = ox_known_in(o, n, 2);
    int64_t k = index->rank ? index->dims[index->rank - 1] : 0, inner = 1, rows = 1;
    if (strcmp(ox_string(o, n, "reduction", "none"), "none") ||
        !ox_fold_fits(o, c->rank, c->dims)) {
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
        ox_copy_element(o, r, i, c, i);
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
            ox_copy_element(o, r, place * inner + i, u, row * inner + i);
        }
    }
    return ox_fold_to(o, n, r);
}

// Updates stand in the places of their own indices, but for one axis, along which they are named.
// Sizes into which a cache's rows are written are computed so.
static bool fold_scatter_elements(ox *o, ox_node *n) {
    const ox_const *c = ox_known_in(o, n, 0), *index = ox_known_in(o, n, 1),
                   *u = ox_known_in(o, n, 2);
    int64_t strides[CLI_MAX_RANK], own[CLI_MAX_RANK];
    bool fits = u->rank == c->rank && index->rank == c->rank && u->dtype == c->dtype;
    for (int a = 0; fits && a < c->rank; a++) {
        fits = u->dims[a] == index->dims[a] && u->dims[a] <= c->dims[a];
    }
    if (!fits || !c->rank || strcmp(ox_string(o, n, "reduction", "none"), "none") ||
        !ox_fold_fits(o, c->rank, c->dims)) {
        return false;
    }
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), c->rank);
    ox_dense_strides(c, strides);
    memcpy(own, strides, sizeof own);
    own[axis] = 0;
    ox_const *r = ox_make(o, c->dtype, c->rank, c->dims);
    for (int64_t i = 0; i < c->count; i++) {
        ox_copy_element(o, r, i, c, i);
    }
    for (int64_t i = 0; i < u->count; i++) {
        int64_t p = ox_geti(index, i), dim = c->dims[axis];
        if (p < -dim || p >= dim) {
            ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)dim);
        }
        int64_t place = (p < 0 ? p + dim : p) * strides[axis];
        ox_copy_element(o, r, place + ox_offset_of(i, u->rank, u->dims, own), u, i);
    }
    return ox_fold_to(o, n, r);
}

// Where an index names the place along a new axis stands the second of two values, else the first.
static bool fold_one_hot(ox *o, ox_node *n) {
    const ox_const *index = ox_known_in(o, n, 0), *depth = ox_known_in(o, n, 1);
    const ox_const *values = ox_known_in(o, n, 2);
    int64_t dims[CLI_MAX_RANK], size = depth->count == 1 ? ox_geti(depth, 0) : -1, inner = 1;
    if (size < 0 || values->count != 2 || index->rank == CLI_MAX_RANK) {
        ox_die(o, n, "OneHot of a bad depth or with values that are not two");
    }
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", -1), index->rank + 1);
    for (int a = 0; a <= index->rank; a++) {
        dims[a] = a == axis ? size : index->dims[a - (a > axis)];
        inner *= a > axis ? dims[a] : 1;
    }
    if (!ox_fold_fits(o, index->rank + 1, dims)) {
        return false;
    }
    ox_const *r = ox_make(o, values->dtype, index->rank + 1, dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t place = i / inner % size;
        double at = ox_getf(index, i / inner / size * inner + i % inner);
        bool is = at == (double)place || at == (double)(place - size);
        ox_copy_element(o, r, i, values, is);
    }
    return ox_fold_to(o, n, r);
}

const ox_folding ox_fold_moves[] = {
    {"Reshape", 1, fold_reshape, NULL, OX_ADD},
    {"Flatten", 1, fold_flatten, NULL, OX_ADD},
    {"Squeeze", 1, fold_squeeze, NULL, OX_ADD},
    {"Unsqueeze", 1, fold_unsqueeze, NULL, OX_ADD},
    {"Transpose", 1, fold_transpose, NULL, OX_ADD},
    {"Slice", 1, fold_slice, NULL, OX_ADD},
    {"Split", 1, fold_split, NULL, OX_ADD},
    {"Tile", 2, fold_tile, NULL, OX_ADD},
    {"Gather", 2, fold_gather, NULL, OX_ADD},
    {"Concat", 1, fold_concat, NULL, OX_ADD},
    {"ScatterND", 3, fold_scatter_nd, NULL, OX_ADD},
    {"ScatterElements", 3, fold_scatter_elements, NULL, OX_ADD},
    {"OneHot", 3, fold_one_hot, NULL, OX_ADD},
    {NULL, 0, NULL, NULL, OX_ADD},
};
