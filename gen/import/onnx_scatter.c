// onnx_scatter.c - operators that store at positions (the Scatter family), and those whose
// positions are rows that index several axes (GatherND).
#include "onnx.h"

#include <math.h>

// Of places and updates, each of which are compared; of places with an update that is known.
enum { MAX_PAIRS = 1 << 28, MAX_PLACES = 1 << 24 };

// x with its first `k` axes as one: [P,..].
static ox_value *joined(ox *o, ox_node *n, const char *suffix, ox_value *x, int k) {
    int64_t dims[CLI_MAX_RANK], first = 1;
    ox_need_shape(o, n, x);
    for (int a = 0; a < k; a++) {
        first *= x->dims[a];
    }
    dims[0] = first;
    for (int a = k; a < x->rank; a++) {
        dims[a - k + 1] = x->dims[a];
    }
    return ox_with_list(o, n, "Reshape", suffix, x, "shape",
                        (ox_list){x->rank - k + 1, dims, NULL});
}

// The places that rows of k numbers name, counted over axes `from` .. `from` + k together.
static ox_value *row_places(ox *o, ox_node *n, ox_value *at, const ox_value *x, int from, int k) {
    int64_t size = k, step = 1;
    ox_const *steps = ox_make(o, CLI_I64, 1, &size);
    for (int a = k - 1; a >= 0; a--) {
        ox_seti(steps, a, step);
        step *= x->dims[from + a];
    }
    at = ox_cast_to(o, n, ".whole", at, CLI_I64);
    at = ox_binary(o, n, "Mul", ".steps", at, ox_constant(o, ox_base(o, n), ".strides", steps));
    int64_t last = -1;
    ox_begin(o);
    ox_arg(o, at);
    ox_set_list(o, "axes", (ox_list){1, &last, NULL});
    ox_set_int(o, "keepdims", 0);
    return ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".places"), CLI_I64);
}

// Known rows of k numbers as such places, those from the end counted from 0.
static ox_const *known_places(ox *o, ox_node *n, const ox_const *c, const ox_value *x, int from,
                              int k) {
    int rank = c->rank - 1;
    ox_const *r = ox_make(o, CLI_I64, rank, c->dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t place = 0;
        for (int a = 0; a < k; a++) {
            int64_t p = ox_geti(c, i * k + a), dim = x->dims[from + a];
            if (p < -dim || p >= dim) {
                ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)dim);
            }
            place = place * dim + (p < 0 ? p + dim : p);
        }
        ox_seti(r, i, place);
    }
    return r;
}

// Numbers in a row of positions `at`, which name axes from `from` on.
static int row_length(ox *o, ox_node *n, ox_value *x, ox_value *at, int from) {
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, at);
    int64_t k = at->rank ? at->dims[at->rank - 1] : 0;
    if (k < 1 || k > x->rank - from || ox_is_float(at->dtype)) {
        ox_die(o, n, "operator '%s' with positions that do not fit", n->op);
    }
    return (int)k;
}

// Where the first `from` axes, which x and the positions have in common, begin in x, as a constant
// that broadcasts to the positions; NULL where there are none.
static ox_value *batch_places(ox *o, ox_node *n, const ox_value *x, const ox_value *at, int from,
                              int k) {
    int64_t step = 1, dims[CLI_MAX_RANK];
    if (!from) {
        return NULL;
    }
    for (int a = 0; a < at->rank - 1; a++) {
        dims[a] = a < from ? x->dims[a] : 1;
        if (a < from && x->dims[a] != at->dims[a]) {
            ox_die(o, n, "operator '%s' with positions that do not fit", n->op);
        }
    }
    for (int a = from; a < from + k; a++) {
        step *= x->dims[a];
    }
    int64_t count;
    if (!cli_count(at->rank - 1, dims, &count) || count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' of too many batches", n->op);
    }
    ox_const *c = ox_make(o, CLI_I64, at->rank - 1, dims);
    for (int64_t i = 0; i < c->count; i++) {
        ox_seti(c, i, i * step);
    }
    return ox_constant(o, ox_base(o, n), ".batches", c);
}

// The node's output is `v`, made for it unless it is `given`.
static void bind_made(ox *o, ox_node *n, ox_value *v, const ox_value *given) {
    v->name = v == given ? v->name : ox_first(o, n);
    ox_bind(o, n, 0, v);
}

static void convert_gather_nd(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    int64_t from = ox_int(o, n, "batch_dims", 0);
    ox_need_shape(o, n, at);
    if (from < 0 || from > at->rank - 1) {
        ox_die(o, n, "GatherND with %lld batch_dims", (long long)from);
    }
    int k = row_length(o, n, x, at, (int)from);
    const ox_const *c = ox_known(o, at);
    ox_range w[CLI_MAX_RANK];
    if (!from && ox_window(o, n, at, x, k, w)) {
        bind_made(o, n, ox_window_of(o, n, x, k, w, at->rank - 1), x);
        return;
    }
    ox_value *batch = batch_places(o, n, x, at, (int)from, k);
    if (c && c->count <= OX_FOLD_LIMIT) {
        at = ox_constant(o, ox_base(o, n), ".places", known_places(o, n, c, x, (int)from, k));
    } else {
        at = row_places(o, n, at, x, (int)from, k);
    }
    at = batch ? ox_binary(o, n, "Add", ".of_batch", at, batch) : at;
    x = joined(o, n, ".rows", x, (int)from + k);
    ox_need_shape(o, n, x);
    if (ox_known(o, at) && ox_read_in_place(o, n, x, ox_known(o, at), 0)) {
        return;
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, at);
    ox_set_int(o, "axis", 0);
    ox_end_node(o, n, "Gather");
}

// How updates are combined with what is there: by `op`, several of them before by `several`, which
// `none` changes nothing in.
typedef struct {
    const char *name, *op, *several;
    double none;
} way;

static const way *take_way(ox *o, ox_node *n) {
    static const way ways[] = {{"none", NULL, NULL, 0},
                               {"add", "Add", "ReduceSum", 0},
                               {"mul", "Mul", "ReduceProd", 1},
                               {"max", "Max", "ReduceMax", -HUGE_VAL},
                               {"min", "Min", "ReduceMin", HUGE_VAL}};
    const char *name = ox_string(o, n, "reduction", "none");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!strcmp(ways[i].name, name)) {
            return &ways[i];
        }
    }
    ox_die(o, n, "operator '%s' with an unknown reduction", n->op);
}

// What place `p` of the result takes: an update's number, or -1. Later updates win, as they do in
// every runtime; NULL when there are any and not one of them is to win.
static int64_t *sources(ox *o, const ox_const *to, int64_t size, bool twice) {
    int64_t *from = ox_alloc(o, (size_t)size * sizeof *from);
    for (int64_t p = 0; p < size; p++) {
        from[p] = -1;
    }
    for (int64_t i = 0; i < to->count; i++) {
        int64_t p = ox_geti(to, i);
        if (from[p] >= 0 && !twice) {
            return NULL;
        }
        from[p] = i;
    }
    return from;
}

// ---- every place looks at every update ----

// x, updates of which stand along `axis` of u at positions `at`; `at` has 1 for sizes of the other
// axes or u's. Every place looks at every update: the last one that names it counts, as in every
// runtime.
typedef struct {
    ox_value *x, *u, *at;
    int64_t axis;
} stores;

static ox_value *reduced(ox *o, ox_node *n, const char *op, ox_value *x, int64_t axis) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_set_int(o, "keepdims", 0);
    return ox_end(o, op, ox_fresh(o, ox_base(o, n), ".found"), x->dtype);
}

static bool is_combined(cli_dtype type) {
    return ox_is_float(type) || type == CLI_I64 || type == CLI_I32;
}

static ox_value *store_computed(ox *o, ox_node *n, const stores *s) {
    const way *w = take_way(o, n);
    int rank = s->x->rank;
    int64_t size = s->x->dims[s->axis], count = s->u->dims[s->axis];
    if (rank + 1 > CLI_MAX_RANK || size > MAX_PAIRS / count || count > MAX_PAIRS ||
        (w->op && !is_combined(s->x->dtype))) {
        ox_unsupported(
            o, n, "operator '%s' whose places and updates are too many to compare, or of this type",
            n->op);
    }
    ox_value *at = ox_with_int(o, n, "Unsqueeze", ".column", s->at, "axes", s->axis);
    ox_value *is = ox_truth(o, n, "Equal", ".is", at, ox_places(o, n, rank + 1, s->axis, size));
    if (w->op) {
        ox_value *u = ox_with_int(o, n, "Unsqueeze", ".updates", s->u, "axes", s->axis);
        // No integer is less, or more, than all others: where there is no update stands what is.
        bool none_is_there = isinf(w->none) && !ox_is_float(u->dtype);
        ox_value *none = none_is_there
                             ? ox_with_int(o, n, "Unsqueeze", ".there", s->x, "axes", s->axis + 1)
                             : ox_number(o, n, ".none", u->dtype, w->none);
        u = reduced(o, n, w->several, ox_where(o, n, ".stored", is, u, none), s->axis + 1);
        return ox_binary(o, n, w->op, ".combined", s->x, u);
    }
    ox_value *which = ox_places(o, n, rank + 1, s->axis + 1, count);
    ox_value *none = ox_number(o, n, ".none", CLI_I64, -1);
    ox_value *zero = ox_number(o, n, ".zero", CLI_I64, 0);
    which = ox_where(o, n, ".stored", is, which, none);
    which = reduced(o, n, "ReduceMax", which, s->axis + 1);
    ox_value *found = ox_truth(o, n, "GreaterOrEqual", ".any", which, zero);
    which = ox_binary(o, n, "Max", ".source", which, zero);
    ox_need_shape(o, n, which);
    bool spread = false;
    for (int a = 0; a < rank; a++) {
        spread = spread || which->dims[a] != (a == s->axis ? size : s->x->dims[a]);
    }
    if (spread) {
        ox_need_sym(o, n, s->x);
        ox_list shape = {rank, s->x->dims, s->x->sym};
        which = ox_with_list(o, n, "Expand", ".sources", which, "shape", shape);
    }
    ox_begin(o);
    ox_arg(o, s->u);
    ox_arg(o, which);
    ox_set_int(o, "axis", s->axis);
    ox_value *taken =
        ox_end(o, "GatherElements", ox_fresh(o, ox_base(o, n), ".taken"), s->u->dtype);
    return ox_where(o, n, ".rows", found, taken, s->x);
}

// ---- known positions ----

// Updates that follow each other, as slices of one axis do: it is the first of x's first k axes
// that is larger than 1. -1 when the places are no such slice.
static int sliced_axis(const ox_value *x, int k, const ox_const *to, int64_t *first,
                       int64_t *count) {
    int axis = 0;
    int64_t inner = 1;
    while (axis + 1 < k && x->dims[axis] == 1) {
        axis++;
    }
    for (int a = axis + 1; a < k; a++) {
        inner *= x->dims[a];
    }
    for (int64_t i = 0; i < to->count; i++) {
        if (ox_geti(to, i) != ox_geti(to, 0) + i) {
            return -1;
        }
    }
    *first = to->count ? ox_geti(to, 0) / inner : 0;
    *count = to->count / inner;
    return to->count && ox_geti(to, 0) % inner == 0 && to->count % inner == 0 ? axis : -1;
}

// x in front of `count` places of an axis from `first` on, updates, what of x is behind.
static void splice(ox *o, ox_node *n, const way *w, ox_value *x, ox_value *u, int axis,
                   int64_t first, int64_t count) {
    int64_t size = x->dims[axis], dims[CLI_MAX_RANK];
    ox_value *parts[3];
    int all = 0;
    for (int a = 0; a < x->rank; a++) {
        dims[a] = a == axis ? count : x->dims[a];
    }
    u = ox_with_list(o, n, "Reshape", ".updates", u, "shape", (ox_list){x->rank, dims, NULL});
    if (first > 0) {
        parts[all++] = ox_slice_of(o, n, ".front", x, axis, 0, first);
    }
    if (w->op) {
        ox_value *there = ox_slice_of(o, n, ".there", x, axis, first, first + count);
        u = ox_binary(o, n, w->op, ".combined", there, u);
    }
    parts[all++] = u;
    if (first + count < size) {
        parts[all++] = ox_slice_of(o, n, ".behind", x, axis, first + count, size);
    }
    u = ox_concat(o, n, ".rows", parts, all, axis);
    ox_bind_as(o, n, 0, "Identity", u, NULL, (ox_list){0});
}

// x with update from[p] of u in place p of an axis, where that is not below 0, combined by `op`.
static ox_value *store_known(ox *o, ox_node *n, const char *op, ox_value *x, ox_value *u,
                             int64_t axis, const int64_t *from) {
    int64_t size = x->dims[axis], dims[CLI_MAX_RANK];
    for (int a = 0; a < x->rank; a++) {
        dims[a] = a == axis ? size : 1;
    }
    ox_const *at = ox_make(o, CLI_I64, 1, &size), *is = ox_make(o, CLI_BOOL, x->rank, dims);
    for (int64_t p = 0; p < size; p++) {
        ox_seti(at, p, from[p] < 0 ? 0 : from[p]);
        ox_seti(is, p, from[p] >= 0);
    }
    ox_begin(o);
    ox_arg(o, u);
    ox_arg(o, ox_constant(o, ox_base(o, n), ".sources", at));
    ox_set_int(o, "axis", axis);
    ox_value *taken = ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".taken"), u->dtype);
    if (op) {
        taken = ox_binary(o, n, op, ".combined", x, taken);
    }
    return ox_where(o, n, ".rows", ox_constant(o, ox_base(o, n), ".stored", is), taken, x);
}

// Rows x [P,..] with updates of which several are known to go to one place: those of each place are
// gathered side by side [P,most,..] and come to one first.
static ox_value *store_repeated(ox *o, ox_node *n, const way *w, ox_value *x, ox_value *u,
                                const ox_const *to) {
    int64_t size = x->dims[0], most = 0, dims[CLI_MAX_RANK] = {size};
    bool whole = w->none == 0 || w->none == 1;  // an integer
    int64_t *count = ox_alloc(o, (size_t)size * sizeof *count);
    for (int64_t i = 0; i < to->count; i++) {
        int64_t p = ox_geti(to, i);
        most = ++count[p] > most ? count[p] : most;
    }
    if (most > MAX_PLACES / size || x->rank == CLI_MAX_RANK || !(whole || ox_is_float(x->dtype))) {
        ox_unsupported(o, n, "operator '%s' with too many updates of one place, or of this type",
                       n->op);
    }
    dims[1] = most;
    for (int a = 2; a <= x->rank; a++) {
        dims[a] = 1;
    }
    ox_const *from = ox_make(o, CLI_I64, 2, dims), *is = ox_make(o, CLI_BOOL, x->rank + 1, dims);
    memset(count, 0, (size_t)size * sizeof *count);
    for (int64_t i = 0; i < to->count; i++) {
        int64_t p = ox_geti(to, i), at = p * most + count[p]++;
        ox_seti(from, at, i);
        ox_seti(is, at, 1);
    }
    ox_begin(o);
    ox_arg(o, u);
    ox_arg(o, ox_constant(o, ox_base(o, n), ".sources", from));
    ox_set_int(o, "axis", 0);
    u = ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".taken"), u->dtype);
    u = ox_where(o, n, ".stored", ox_constant(o, ox_base(o, n), ".is", is), u,
                 ox_number(o, n, ".none", u->dtype, w->none));
    return ox_binary(o, n, w->op, ".combined", x, reduced(o, n, w->several, u, 1));
}

static void check_size(ox *o, ox_node *n, int64_t size) {
    if (size > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' into %lld places", n->op, (long long)size);
    }
}

// x with updates u, whose axes are x's, in the window of its axes from j on.
static ox_value *store_window(ox *o, ox_node *n, const way *w, ox_value *x, ox_value *u, int k,
                              const ox_range *in, int j) {
    if (j == k) {
        return w->op ? ox_binary(o, n, w->op, ".combined", x, u) : u;
    }
    const ox_range *r = &in[j];
    if (ox_is_whole(x, j, r)) {
        return store_window(o, n, w, x, u, k, in, j + 1);
    }
    ox_value *there = ox_window_along(o, n, x, j, r), *parts[3];
    there = store_window(o, n, w, there, u, k, in, j + 1);
    int64_t size = x->dims[j], end = r->begin + r->count;
    int all = 0;
    if (r->step != 1) {
        check_size(o, n, size);
        int64_t *from = ox_alloc(o, (size_t)size * sizeof *from);
        for (int64_t p = 0; p < size; p++) {
            int64_t i = (p - r->begin) / r->step;
            from[p] = i >= 0 && i < r->count && r->begin + i * r->step == p ? i : -1;
        }
        return store_known(o, n, NULL, x, there, j, from);
    }
    if (r->begin > 0) {
        parts[all++] = ox_slice_of(o, n, ".front", x, j, 0, r->begin);
    }
    parts[all++] = there;
    if (end < size) {
        parts[all++] = ox_slice_of(o, n, ".behind", x, j, end, size);
    }
    return ox_concat(o, n, ".rows", parts, all, j);
}

// Updates u, of `rows` axes that count them, where `to` says among the first k axes of x.
static void scatter_rows(ox *o, ox_node *n, ox_value *x, int k, ox_value *u, int rows,
                         const ox_const *to) {
    const way *w = take_way(o, n);
    const ox_value *like = x;
    int64_t first, count;
    int axis = sliced_axis(x, k, to, &first, &count);
    if (axis >= 0) {
        splice(o, n, w, x, u, axis, first, count);
        return;
    }
    x = joined(o, n, ".data", x, k);
    u = joined(o, n, ".updates", u, rows);
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, u);
    check_size(o, n, x->dims[0]);
    int64_t *from = sources(o, to, x->dims[0], !w->op);
    x = from ? store_known(o, n, w->op, x, u, 0, from) : store_repeated(o, n, w, x, u, to);
    ox_end_list(o, n, "Reshape", x, "shape", (ox_list){like->rank, like->dims, NULL});
}

// ---- the operators ----

// Positions of an axis of the given size, those from the end counted from 0.
static ox_value *from_start(ox *o, ox_node *n, ox_value *at, ox_value *size) {
    at = ox_cast_to(o, n, ".whole", at, CLI_I64);
    ox_value *zero = ox_number(o, n, ".zero", CLI_I64, 0);
    ox_value *negative = ox_truth(o, n, "Less", ".negative", at, zero);
    return ox_where(o, n, ".counted", negative, ox_binary(o, n, "Add", ".from_end", at, size), at);
}

static void check_positions(ox *o, ox_node *n, const ox_const *c) {
    if (c->count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' with %lld positions", n->op, (long long)c->count);
    }
}

// Rows of positions as the places of rows of x [P,..] and u [M,..].
static void scatter_computed_rows(ox *o, ox_node *n, ox_value *x, ox_value *at, ox_value *u,
                                  int k) {
    int64_t size = k, ones[CLI_MAX_RANK];
    ox_const *sizes = ox_make(o, CLI_I64, 1, &size);
    for (int a = 0; a < k; a++) {
        ox_seti(sizes, a, x->dims[a]);
    }
    at = from_start(o, n, at, ox_constant(o, ox_base(o, n), ".sizes", sizes));
    at = row_places(o, n, at, x, 0, k);
    stores s = {.x = joined(o, n, ".data", x, k), .axis = 0};
    s.u = joined(o, n, ".updates", u, u->rank - (x->rank - k));
    ox_need_shape(o, n, s.x);
    ox_need_shape(o, n, s.u);
    for (int a = 0; a < s.x->rank; a++) {
        ones[a] = a ? 1 : s.u->dims[0];
    }
    ox_list column = {s.x->rank, ones, NULL};
    s.at = ox_with_list(o, n, "Reshape", ".rows", at, "shape", column);
    ox_list shape = {x->rank, x->dims, NULL};
    ox_end_list(o, n, "Reshape", store_computed(o, n, &s), "shape", shape);
}

static void convert_scatter_nd(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1), *u = ox_in(o, n, 2);
    const ox_const *c = ox_known(o, at);
    int k = row_length(o, n, x, at, 0);
    if (c && !c->count) {
        take_way(o, n);
        ox_bind(o, n, 0, x);  // nothing is stored
        return;
    }
    ox_need_shape(o, n, u);
    bool fits = u->rank == at->rank - 1 + x->rank - k;
    for (int a = 0; fits && a < u->rank; a++) {
        fits = u->dims[a] == (a < at->rank - 1 ? at->dims[a] : x->dims[a - at->rank + 1 + k]);
    }
    if (!fits) {
        ox_die(o, n, "ScatterND with updates whose shape does not fit");
    }
    int rows = at->rank - 1;
    ox_range in[CLI_MAX_RANK];
    if (ox_window(o, n, at, x, k, in)) {
        ox_value *all = ox_window_updates(o, n, u, k, in, rows);
        bind_made(o, n, store_window(o, n, take_way(o, n), x, all, k, in, 0), u);
        return;
    }
    if (!c) {
        scatter_computed_rows(o, n, x, at, u, k);
        return;
    }
    check_positions(o, n, c);
    const ox_const *to = known_places(o, n, c, x, 0, k);
    scatter_rows(o, n, x, k, u, rows, to);
}

static void convert_scatter_elements(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1), *u = ox_in(o, n, 2);
    const ox_const *c = ox_known(o, at);
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, u);
    ox_need_shape(o, n, at);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank), size = 1;
    bool fits = at->rank == x->rank && u->rank == x->rank;
    for (int a = 0; fits && a < x->rank; a++) {
        size *= c ? x->dims[a] : 1;
        fits = u->dims[a] == at->dims[a] && size <= OX_FOLD_LIMIT &&
               (a == axis || (c ? at->dims[a] <= x->dims[a] : at->dims[a] == x->dims[a]));
    }
    if (!fits) {
        ox_unsupported(o, n, "operator '%s' whose shapes do not fit or are too large", n->op);
    }
    if (!c) {
        ox_value *length = ox_number(o, n, ".size", CLI_I64, (double)x->dims[axis]);
        stores s = {x, u, from_start(o, n, at, length), axis};
        ox_bind_as(o, n, 0, "Identity", store_computed(o, n, &s), NULL, (ox_list){0});
        return;
    }
    check_positions(o, n, c);
    ox_const *to = ox_make(o, CLI_I64, 1, &c->count);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t rest = i, place = 0, step = 1;
        for (int a = x->rank - 1; a >= 0; a--) {
            int64_t p = rest % c->dims[a];
            rest /= c->dims[a];
            p = a == axis ? ox_geti(c, i) : p;
            if (p < -x->dims[a] || p >= x->dims[a]) {
                ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)x->dims[a]);
            }
            place += (p < 0 ? p + x->dims[a] : p) * step;
            step *= x->dims[a];
        }
        ox_seti(to, i, place);
    }
    scatter_rows(o, n, x, x->rank, u, u->rank, to);
}

// ---- pieces of an axis whose places are computed ----

// Elements of `x` along `axis` at places that broadcast to `shape`.
static ox_value *at_places(ox *o, ox_node *n, ox_value *x, ox_value *at, int64_t axis,
                           ox_list shape) {
    at = ox_with_list(o, n, "Expand", ".places", at, "shape", shape);
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, at);
    ox_set_int(o, "axis", axis);
    return ox_end(o, "GatherElements", ox_fresh(o, ox_base(o, n), ".taken"), x->dtype);
}

// Numbers of an axis, one for each of its elements, as i64 that broadcast to x.
static ox_value *along_axis(ox *o, ox_node *n, const char *suffix, ox_value *v, const ox_value *x,
                            int64_t axis) {
    int64_t dims[CLI_MAX_RANK];
    const char *sym[CLI_MAX_RANK] = {NULL};
    ox_need_shape(o, n, v);
    if (v->rank != 1 || v->dims[0] != x->dims[axis] || ox_is_float(v->dtype)) {
        ox_die(o, n, "operator '%s' with numbers that do not fit its axis %lld", n->op,
               (long long)axis);
    }
    for (int a = 0; a < x->rank; a++) {
        dims[a] = a == axis ? x->dims[a] : 1;
        sym[a] = a == axis ? x->sym[a] : NULL;
    }
    v = ox_cast_to(o, n, suffix, v, CLI_I64);
    return ox_with_list(o, n, "Reshape", suffix, v, "shape", (ox_list){x->rank, dims, sym});
}

// The first elements of a sequence backwards, the others as they are.
static void convert_reverse_sequence(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *lengths = ox_in(o, n, 1);
    int64_t time = ox_int(o, n, "time_axis", 0), batch = ox_int(o, n, "batch_axis", 1);
    ox_need_sym(o, n, x);
    time = ox_axis(o, n, time, x->rank);
    batch = ox_axis(o, n, batch, x->rank);
    if (time == batch || x->dims[time] > OX_FOLD_LIMIT) {
        ox_die(o, n, "ReverseSequence without a usable time_axis");
    }
    ox_value *length = along_axis(o, n, ".lengths", lengths, x, batch);
    ox_value *at = ox_places(o, n, x->rank, time, x->dims[time]);
    ox_value *last = ox_binary(o, n, "Sub", ".last", length, ox_number(o, n, ".one", CLI_I64, 1));
    ox_value *is = ox_truth(o, n, "Less", ".is", at, length);
    at = ox_where(o, n, ".places", is, ox_binary(o, n, "Sub", ".turned", last, at), at);
    at = at_places(o, n, x, at, time, (ox_list){x->rank, x->dims, x->sym});
    ox_bind_as(o, n, 0, "Identity", at, NULL, (ox_list){0});
}

// Updates follow each other from a place on that every batch has for itself, as in caches of keys
// and values; a circular cache goes on at its begin.
static void convert_tensor_scatter(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *u = ox_in(o, n, 1), *first = ox_opt(o, n, 2);
    const char *mode = ox_string(o, n, "mode", "linear");
    bool circular = !strcmp(mode, "circular");
    ox_need_sym(o, n, x);
    ox_need_shape(o, n, u);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", -2), x->rank);
    bool fits = axis > 0 && u->rank == x->rank && u->dims[axis] <= x->dims[axis] &&
                x->dims[axis] <= OX_FOLD_LIMIT && (circular || !strcmp(mode, "linear"));
    for (int a = 0; fits && a < x->rank; a++) {
        fits = a == axis || u->dims[a] == x->dims[a];
    }
    if (!fits) {
        ox_die(o, n, "TensorScatter with an unknown mode or an update that does not fit");
    }
    int64_t size = x->dims[axis], count = u->dims[axis];
    ox_value *at = ox_places(o, n, x->rank, axis, size);
    if (first) {
        at = ox_binary(o, n, "Sub", ".from", at, along_axis(o, n, ".first", first, x, 0));
    }
    if (first && circular) {
        at = ox_by_number(o, n, "Mod", ".around", at, (double)size);
    }
    ox_value *zero = ox_number(o, n, ".zero", CLI_I64, 0);
    ox_value *last = ox_number(o, n, ".last", CLI_I64, (double)(count - 1));
    ox_value *low = ox_truth(o, n, "GreaterOrEqual", ".low", at, zero);
    ox_value *high = ox_truth(o, n, "LessOrEqual", ".high", at, last);
    ox_value *is = ox_truth(o, n, "And", ".is", low, high);
    at = ox_binary(o, n, "Min", ".at", ox_binary(o, n, "Max", ".at", at, zero), last);
    u = at_places(o, n, u, at, axis, (ox_list){x->rank, x->dims, x->sym});
    ox_begin(o);
    ox_arg(o, is);
    ox_arg(o, u);
    ox_arg(o, x);
    ox_end_node(o, n, "Where");
}

const ox_row ox_scatter_rows[] = {
    {"GatherND", 2, 2, convert_gather_nd},
    {"ScatterND", 3, 3, convert_scatter_nd},
    {"ScatterElements", 3, 3, convert_scatter_elements},
    {"Scatter", 3, 3, convert_scatter_elements},
    {"ReverseSequence", 2, 2, convert_reverse_sequence},
    {"TensorScatter", 2, 3, convert_tensor_scatter},
    {NULL, 0, 0, NULL},
};
