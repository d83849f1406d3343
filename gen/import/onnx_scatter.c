// onnx_scatter.c - what stores at positions, and what reads where rows of them name several axes.
#include "onnx.h"

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

// The places that rows of k numbers name, counted over the first k axes together.
static ox_value *row_places(ox *o, ox_node *n, ox_value *at, const ox_value *x, int k) {
    int64_t size = k, step = 1;
    ox_const *steps = ox_make(o, CLI_I64, 1, &size);
    for (int a = k - 1; a >= 0; a--) {
        ox_seti(steps, a, step);
        step *= x->dims[a];
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

// Known rows of k numbers as places, those from the end counted from 0.
static ox_const *known_places(ox *o, ox_node *n, const ox_const *c, const ox_value *x, int k) {
    int rank = c->rank - 1;
    ox_const *r = ox_make(o, CLI_I64, rank, c->dims);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t place = 0;
        for (int a = 0; a < k; a++) {
            int64_t p = ox_geti(c, i * k + a);
            if (p < -x->dims[a] || p >= x->dims[a]) {
                ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)x->dims[a]);
            }
            place = place * x->dims[a] + (p < 0 ? p + x->dims[a] : p);
        }
        ox_seti(r, i, place);
    }
    return r;
}

static int row_length(ox *o, ox_node *n, ox_value *x, ox_value *at) {
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, at);
    int64_t k = at->rank ? at->dims[at->rank - 1] : 0;
    if (k < 1 || k > x->rank || at->dtype == CLI_F32) {
        ox_die(o, n, "operator '%s' with positions that do not fit", n->op);
    }
    return (int)k;
}

static void convert_gather_nd(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    int k = row_length(o, n, x, at);
    if (ox_int(o, n, "batch_dims", 0)) {
        ox_unsupported(o, n, "GatherND with batch_dims");
    }
    const ox_const *c = ox_known(o, at);
    if (c && c->count <= OX_FOLD_LIMIT) {
        at = ox_constant(o, ox_base(o, n), ".places", known_places(o, n, c, x, k));
    } else {
        at = row_places(o, n, at, x, k);
    }
    x = joined(o, n, ".rows", x, k);
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, at);
    ox_set_int(o, "axis", 0);
    ox_end_node(o, n, "Gather");
}

// What place `p` of the result takes: an update's number, or -1. Later updates win, as they do in
// every runtime.
static int64_t *sources(ox *o, ox_node *n, const ox_const *to, int64_t size, bool twice) {
    int64_t *from = ox_alloc(o, (size_t)size * sizeof *from);
    for (int64_t p = 0; p < size; p++) {
        from[p] = -1;
    }
    for (int64_t i = 0; i < to->count; i++) {
        int64_t p = ox_geti(to, i);
        if (from[p] >= 0 && !twice) {
            ox_unsupported(o, n, "operator '%s' that combines several updates of one place", n->op);
        }
        from[p] = i;
    }
    return from;
}

// Rows x [P,..] with rows u [M,..] where `to` says, then in the shape of `like`.
static void scatter_rows(ox *o, ox_node *n, ox_value *x, ox_value *u, const ox_const *to,
                         const ox_value *like) {
    static const struct {
        const char *name, *op;
    } ways[] = {{"none", NULL}, {"add", "Add"}, {"mul", "Mul"}, {"max", "Max"}, {"min", "Min"}};
    const char *way = ox_string(o, n, "reduction", "none");
    size_t w = 0;
    while (w < sizeof ways / sizeof *ways && strcmp(ways[w].name, way)) {
        w++;
    }
    if (w == sizeof ways / sizeof *ways) {
        ox_die(o, n, "operator '%s' with an unknown reduction", n->op);
    }
    ox_need_shape(o, n, x);
    int64_t size = x->dims[0], dims[CLI_MAX_RANK], *from = sources(o, n, to, size, w == 0);
    for (int a = 0; a < x->rank; a++) {
        dims[a] = a ? 1 : size;
    }
    ox_const *at = ox_make(o, CLI_I64, 1, &size), *is = ox_make(o, CLI_BOOL, x->rank, dims);
    for (int64_t p = 0; p < size; p++) {
        ox_seti(at, p, from[p] < 0 ? 0 : from[p]);
        ox_seti(is, p, from[p] >= 0);
    }
    ox_begin(o);
    ox_arg(o, u);
    ox_arg(o, ox_constant(o, ox_base(o, n), ".sources", at));
    ox_set_int(o, "axis", 0);
    ox_value *taken = ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".taken"), u->dtype);
    if (w) {
        taken = ox_binary(o, n, ways[w].op, ".combined", x, taken);
    }
    ox_value *mask = ox_constant(o, ox_base(o, n), ".stored", is);
    ox_value *all = ox_where(o, n, ".rows", mask, taken, x);
    ox_end_list(o, n, "Reshape", all, "shape", (ox_list){like->rank, like->dims, NULL});
}

static const ox_const *need_known(ox *o, ox_node *n, ox_value *at) {
    const ox_const *c = ox_known(o, at);
    if (!c) {
        ox_unsupported(o, n,
                       "operator '%s' with positions computed at run time: two of them may be "
                       "one",
                       n->op);
    }
    if (c->count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' with %lld positions", n->op, (long long)c->count);
    }
    return c;
}

static void convert_scatter_nd(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1), *u = ox_in(o, n, 2);
    const ox_const *c = need_known(o, n, at);
    int k = row_length(o, n, x, at);
    const ox_const *to = known_places(o, n, c, x, k);
    ox_need_shape(o, n, u);
    bool fits = u->rank == at->rank - 1 + x->rank - k;
    for (int a = 0; fits && a < u->rank; a++) {
        fits = u->dims[a] == (a < at->rank - 1 ? at->dims[a] : x->dims[a - at->rank + 1 + k]);
    }
    if (!fits) {
        ox_die(o, n, "ScatterND with updates whose shape does not fit");
    }
    int rows = at->rank - 1;
    scatter_rows(o, n, joined(o, n, ".data", x, k), joined(o, n, ".updates", u, rows), to, x);
}

static void convert_scatter_elements(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1), *u = ox_in(o, n, 2);
    const ox_const *c = need_known(o, n, at);
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, u);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank), size = 1;
    bool fits = c->rank == x->rank && u->rank == x->rank;
    for (int a = 0; fits && a < x->rank; a++) {
        size *= x->dims[a];
        fits = u->dims[a] == c->dims[a] && (a == axis || c->dims[a] <= x->dims[a]) &&
               size <= OX_FOLD_LIMIT;
    }
    if (!fits) {
        ox_unsupported(o, n, "operator '%s' whose shapes do not fit or are too large", n->op);
    }
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
    scatter_rows(o, n, joined(o, n, ".data", x, x->rank), joined(o, n, ".updates", u, u->rank), to,
                 x);
}

const ox_row ox_scatter_rows[] = {
    {"GatherND", 2, 2, convert_gather_nd},
    {"ScatterND", 3, 3, convert_scatter_nd},
    {"ScatterElements", 3, 3, convert_scatter_elements},
    {"Scatter", 3, 3, convert_scatter_elements},
    {NULL, 0, 0, NULL},
};
