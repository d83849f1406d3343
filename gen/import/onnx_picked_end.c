// onnx_picked_end.c - where rows are picked, and where they end: what reads at places, stores at
// them, and sums. A node that has such rows among its inputs begins here.
#include "onnx_picked.h"

#include <math.h>

enum { MOST_WRITES = 64 };  // of one place, of which the last counts

// ---- what reads at places ----

static void one_hot(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", -1), x->rank + 1);
    r->along += axis <= r->along;
}

// Places with their coordinates as axes, so that what follows a rule is read by it.
static void read_apart(ox *o, ox_node *n, ox_rows *r) {
    ox_value *at = n->in[1];
    int count = 0;
    for (int i = 0; i < at->picked->rank; i++) {
        count += at->over >> i & 1;
    }
    ox_need_shape(o, n, n->in[0]);
    ox_need_shape(o, n, at);
    r->apart = count > 1 && ox_known(o, at) &&
               n->in[0]->rank + at->rank + at->picked->rank <= CLI_MAX_RANK + 1;
    if (r->apart) {
        n->in[1] = ox_apart(o, n, at);
    }
}

static void gather(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, at);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank);
    if (x->picked) {
        ox_only(o, n, r);
        const ox_const *c = ox_known(o, at);
        bool one = axis == x->along && c && c->count == 1 && ox_geti(c, 0) >= 0;
        ox_check_rows(o, n, r, axis != x->along || one);
        r->along += axis < x->along ? at->rank - 1 : 0;
        if (one) {
            ox_name_node(o, n, &o->numbered);
            x = ox_widened(o, n, x, ox_all_of(r->set));
            n->in[0] = ox_numbered(o, n, x, ox_geti(c, 0), 1);
            n->in[1] =
                ox_constant(o, ox_base(o, n), ".first", ox_make(o, CLI_I64, c->rank, c->dims));
            *r = (ox_rows){0};
        }
        return;
    }
    ox_take_rows(o, n, r, at, (int)axis + at->along);
    read_apart(o, n, r);
}

static void gather_nd(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    ox_need_shape(o, n, at);
    if (x->picked || ox_int(o, n, "batch_dims", 0) || at->along == at->rank - 1) {
        ox_refuse_rows(o, n, x->picked ? x->picked : at->picked,
                       "places among them, or of batches");
    }
    ox_take_rows(o, n, r, at, at->along);
    read_apart(o, n, r);
}

static void gather_elements(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    ox_need_shape(o, n, x);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank);
    if (at->picked) {
        ox_take_rows(o, n, r, at, at->along);
    }
    if (x->picked) {
        ox_take_rows(o, n, r, x, x->along);
    }
    ox_check_rows(o, n, r, at->picked && (axis == at->along ? !x->picked : x->picked != NULL));
    n->in[0] = x->picked ? ox_widened(o, n, x, r->over) : x;
    n->in[1] = ox_widened(o, n, at, r->over);
}

// The first rows of x, as many as are picked, one for each of these: the number of those in front
// of it says which.
static void hand_out(ox *o, ox_node *n, ox_rows *r, ox_value *x, int64_t axis, const ox_picked *s) {
    int64_t count = ox_extent(s, ox_all_of(s));
    ox_value *v = ox_cast_to(o, n, ".is", ox_mask_of(o, n, s, 1, 0), CLI_I64);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_int(o, "axis", 0);
    v = ox_end(o, "CumSum", ox_fresh(o, ox_base(o, n), ".counted"), CLI_I64);
    v = ox_by_number(o, n, "Sub", ".place", v, 1);
    v = ox_by_number(o, n, "Max", ".place", v, 0);
    if (x->dims[axis] < count) {
        v = ox_by_number(o, n, "Min", ".place", v, (double)(x->dims[axis] - 1));
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, v);
    ox_set_int(o, "axis", axis);
    ox_bind(o, n, 0, ox_end(o, "Gather", ox_first(o, n), x->dtype));
    *r = (ox_rows){.set = s, .along = (int)axis, .over = ox_all_of(s), .done = true};
}

static void slice(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_in(o, n, 0);
    ox_list l[4];
    ox_need_shape(o, n, x);
    if (x->picked) {
        ox_only(o, n, r);
    } else if (ox_counts_of(n, 0) != 1 || !ox_counts_in(n->in[2])) {
        ox_refuse_size(o, n);
    }
    ox_slice_lists(o, n, l);
    for (int i = 0; i < l[0].n; i++) {
        int64_t axis = ox_axis(o, n, l[2].n ? l[2].v[i] : i, x->rank);
        const char *sym = l[1].sym ? l[1].sym[i] : NULL;
        const ox_picked *s = sym ? ox_list_named(o, sym) : NULL;
        bool first = l[0].v[i] == 0 && (!l[3].n || l[3].v[i] == 1);
        bool own = x->picked && axis == x->along;
        if (!own && !(sym && strchr(sym, '?'))) {
            continue;
        }
        if (!x->picked && s && first && l[0].n == 1) {
            hand_out(o, n, r, x, axis, s);
            return;
        }
        if (!own || !first || (s ? s != x->picked : l[1].v[i] < OX_MAX_DIM)) {
            ox_refuse_rows(o, n, s ? s : o->picked[0], "some of those that are picked");
        }
        if (s) {  // all of them
            ox_const *c = ox_make(o, CLI_I64, 1, (int64_t[]){l[1].n});
            for (int k = 0; k < l[1].n; k++) {
                ox_seti(c, k, k == i ? OX_MAX_DIM : l[1].v[k]);
            }
            n->in[2] = ox_constant(o, ox_base(o, n), ".ends", c);
        }
    }
}

// ---- what stores at places, or sums ----

// What `op` leaves out of its operands changes nothing; false: there is no such number.
static bool neutral(const char *op, cli_dtype type, double *none) {
    static const char zero[] = " ReduceSum ReduceMean ReduceSumSquare ReduceL1 ReduceL2 ";
    bool most = !strcmp(op, "ReduceMax"), least = !strcmp(op, "ReduceMin");
    *none = most ? -HUGE_VAL : least ? HUGE_VAL : !strcmp(op, "ReduceProd");
    bool known = strstr(zero, op) || !strcmp(op, "ReduceProd");
    return known || ((most || least) && ox_is_float(type));
}

// Mean of those that are picked: of none it is what 0/0 is.
static void mean(ox *o, ox_node *n, ox_value *x, ox_list axes, bool keep) {
    int64_t others = 1;
    for (int i = 0; i < axes.n; i++) {
        int64_t a = ox_axis(o, n, axes.v[i], x->rank);
        others *= a == x->along ? 1 : x->dims[a];
    }
    ox_value *count = ox_cast_to(o, n, ".count", ox_count_of(o, n, x->picked), x->dtype);
    if (others > 1) {
        count = ox_by_number(o, n, "Mul", ".elements", count, (double)others);
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", axes);
    ox_set_int(o, "keepdims", keep);
    ox_value *sum = ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".sum"), x->dtype);
    ox_end_binary(o, n, "Div", sum, count);
}

static void reduce(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    bool keep = ox_int(o, n, "keepdims", 1) != 0, named[CLI_MAX_RANK] = {false};
    int64_t all[CLI_MAX_RANK];
    double none;
    ox_list axes = {0};
    if (!ox_int_input(o, n, "axes", 1, &axes) || !axes.n) {
        axes = (ox_list){ox_int(o, n, "noop_with_empty_axes", 0) ? 0 : x->rank, all, NULL};
        for (int a = 0; a < x->rank; a++) {
            all[a] = a;
        }
    }
    for (int i = 0; i < axes.n; i++) {
        named[ox_axis(o, n, axes.v[i], x->rank)] = true;
    }
    if (!named[x->along]) {
        for (int a = 0; a < x->along && !keep; a++) {
            r->along -= named[a];
        }
        return;
    }
    ox_check_rows(o, n, r, neutral(n->op, x->dtype, &none));
    x = ox_selected(o, n, x, none);
    ox_need_shape(o, n, x);
    *r = (ox_rows){0};
    n->in[0] = x;
    if (!strcmp(n->op, "ReduceMean")) {
        ox_int(o, n, "noop_with_empty_axes", 0);
        mean(o, n, x, axes, keep);
        r->done = true;
    }
}

// Whether no two known positions are the same place of x.
static bool are_apart(ox *o, const ox_const *c, const ox_value *x, bool elements, int64_t axis) {
    enum { MOST = 1 << 26 };
    int64_t count = 1, k = elements ? 1 : c->dims[c->rank - 1];
    if (!cli_count(x->rank, x->dims, &count) || count > MOST || k < 1 || k > x->rank) {
        return false;
    }
    bool *seen = ox_alloc(o, (size_t)count);
    for (int64_t i = 0; i < c->count / k; i++) {
        int64_t place = 0, rest = i, at[CLI_MAX_RANK] = {0};
        for (int a = c->rank - 1; elements && a >= 0; a--) {
            at[a] = rest % c->dims[a];
            rest /= c->dims[a];
        }
        for (int a = 0; a < (elements ? x->rank : (int)k); a++) {
            int64_t p = elements ? (a == axis ? ox_geti(c, i) : at[a]) : ox_geti(c, i * k + a);
            p += p < 0 ? x->dims[a] : 0;
            if (p < 0 || p >= x->dims[a]) {
                return false;
            }
            place = place * x->dims[a] + p;
        }
        if (seen[place]) {
            return false;
        }
        seen[place] = true;
    }
    return true;
}

// A node as `n` of another operator and inputs, with a result of its own.
static ox_value *another(ox *o, ox_node *n, ox_converter convert, const char *op, ox_value **in,
                         int count) {
    ox_node *m = ox_alloc(o, sizeof *m);
    const char **name = ox_alloc(o, sizeof *name);
    *m = *n;
    m->op = op;
    m->in = in;
    m->n_in = count;
    m->n_out = 1;
    *name = ox_fresh(o, ox_base(o, n), ".there");
    m->out = m->out_onnx = name;
    convert(o, m);
    return ox_output_of(m, 0);
}

// v, which has rows for all coordinates, as those of one number `which` of the coordinates that
// `over` has not.
static ox_value *one_of(ox *o, ox_node *n, const ox_picked *s, ox_value *v, int along,
                        unsigned over, int64_t which) {
    int64_t count = ox_extent(s, over);
    v = ox_with_dims(o, n, ".apart", v, along, 1, s->dims, s->rank);
    for (int i = s->rank; i-- > 0;) {
        if (!(over >> i & 1)) {
            v = ox_slice_of(o, n, ".one", v, along + i, which % s->dims[i], which % s->dims[i] + 1);
            which /= s->dims[i];
        }
    }
    return ox_with_dims(o, n, ".rows", v, along, s->rank, &count, 1);
}

// Updates u of known places, the last that is picked of each, what is there where none is.
static ox_value *last_written(ox *o, ox_node *n, ox_converter convert, ox_value *u, unsigned over) {
    const ox_picked *s = u->picked;
    ox_value *x = n->in[0], *at = n->in[1];
    bool elements = strcmp(n->op, "ScatterND") != 0;
    int64_t axis = elements ? ox_int(o, n, "axis", 0) : 0,
            extra = ox_extent(s, ox_all_of(s) & ~over);
    int along = u->along;
    ox_need_shape(o, n, x);
    axis += axis < 0 ? x->rank : 0;
    if (extra > MOST_WRITES || !ox_known(o, at) ||
        !are_apart(o, ox_known(o, at), x, elements, axis)) {
        ox_refuse_rows(o, n, s, "several may go to one place, the last of them");
    }
    u = ox_widened(o, n, u, ox_all_of(s));
    ox_need_shape(o, n, u);
    ox_value *is = ox_mask_of(o, n, s, u->rank, along), *v = NULL, *any = NULL;
    for (int64_t i = 0; i < extra; i++) {
        ox_value *own = extra > 1 ? one_of(o, n, s, u, along, over, i) : u;
        ox_value *here = extra > 1 ? one_of(o, n, s, is, along, over, i) : is;
        v = v ? ox_where(o, n, ".last", here, own, v) : own;
        any = any ? ox_truth(o, n, "Or", ".any", any, here) : here;
    }
    ox_value **in = ox_alloc(o, 2 * sizeof(ox_value *));
    in[0] = x;
    in[1] = at;
    x = another(o, n, convert, elements ? "GatherElements" : "GatherND", in, 2);
    return ox_where(o, n, ".written", any, v, x);
}

// Those that are picked of updates u, added (or as `op` says) over the coordinates that places have
// not.
static ox_value *all_written(ox *o, ox_node *n, const char *op, ox_value *u, unsigned over) {
    const ox_picked *s = u->picked;
    int64_t axes[CLI_MAX_RANK], count = ox_extent(s, over);
    double none;
    ox_list list = {0, axes, NULL};
    int along = u->along;
    if (!neutral(op, u->dtype, &none)) {
        ox_refuse_rows(o, n, s, "integers of which the largest or least is kept");
    }
    u = ox_selected(o, n, u, none);
    for (int i = 0; i < s->rank; i++) {
        if (!(over >> i & 1)) {
            axes[list.n++] = along + i;
        }
    }
    if (!list.n) {
        return u;
    }
    u = ox_with_dims(o, n, ".apart", u, along, 1, s->dims, s->rank);
    ox_begin(o);
    ox_arg(o, u);
    ox_set_list(o, "axes", list);
    ox_set_int(o, "keepdims", 1);
    u = ox_end(o, op, ox_fresh(o, ox_base(o, n), ".together"), u->dtype);
    return ox_with_dims(o, n, ".rows", u, along, s->rank, &count, 1);
}

static void scatter(ox *o, ox_node *n, ox_rows *r, ox_converter convert) {
    static const char *const ways[][2] = {
        {"add", "ReduceSum"}, {"mul", "ReduceProd"}, {"max", "ReduceMax"}, {"min", "ReduceMin"}};
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1), *u = ox_in(o, n, 2);
    const ox_picked *s = at->picked ? at->picked : u->picked ? u->picked : x->picked;
    const char *way = ox_string(o, n, "reduction", "none"), *op = NULL;
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, at);
    int64_t axis = strcmp(n->op, "ScatterND") ? ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank) : 0;
    if (x->picked || at->picked != s || u->picked != s || at->along != axis || u->along != axis ||
        (!strcmp(n->op, "ScatterND") && at->rank != 2)) {
        ox_refuse_rows(o, n, s, "it stores where other rows are, or others than those");
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        op = strcmp(way, ways[i][0]) ? op : ways[i][1];
    }
    n->in[2] = op ? all_written(o, n, op, u, at->over) : last_written(o, n, convert, u, at->over);
    *r = (ox_rows){0};
}

// ---- the operators that make such rows ----

// Results of a node are rows as `r` says.
static void finish(ox *o, ox_node *n, const ox_rows *r, ptrdiff_t before) {
    for (int i = 0; i < n->n_out && r->set; i++) {
        ox_value *v = ox_output_of(n, i);
        if (!v) {
            continue;
        }
        if (shgeti(o->wanted, n->out[i]) >= 0) {
            ox_refuse_rows(o, n, r->set, "an output of the model has sizes that are known");
        }
        bool own = false;
        for (ptrdiff_t k = before; k < arrlen(o->values); k++) {
            own = own || o->values[k] == v;
        }
        if (r->apart) {
            int64_t count = ox_extent(r->set, r->over);
            v = ox_with_dims(o, n, ".rows", v, r->along, r->set->rank, &count, 1);
        } else if (!own) {
            const ox_const *c = ox_known(o, v);
            v = c ? ox_constant(o, ox_base(o, n), ".rows", c)
                  : ox_unary(o, n, "Identity", ".rows", v);
        }
        v = ox_narrowed(o, n, ox_tagged(v, r->set, r->along, r->over));
        shput(n->scope->values, (char *)(uintptr_t)n->out_onnx[i], v);
    }
}

static void convert_non_zero(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    const ox_picked *s = ox_places_of(o, n, x);
    int64_t dims[2] = {x->rank, ox_extent(s, ox_all_of(s))};
    if (!x->rank || dims[1] > OX_FOLD_LIMIT / x->rank) {
        ox_unsupported(o, n, "operator '%s' of a scalar, or of too many places", n->op);
    }
    ox_const *c = ox_make(o, CLI_I64, 2, dims);
    for (int64_t i = 0; i < dims[1]; i++) {
        int64_t rest = i;
        for (int a = x->rank - 1; a >= 0; a--) {
            ox_seti(c, a * dims[1] + i, rest % x->dims[a]);
            rest /= x->dims[a];
        }
    }
    ptrdiff_t before = arrlen(o->values);
    ox_bind_known(o, n, 0, c);
    finish(o, n, &(ox_rows){.set = s, .along = 1, .over = ox_all_of(s)}, before);
}

static void convert_compress(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *is = ox_in(o, n, 1);
    bool flat = !ox_has(n, "axis");
    int64_t axis = ox_int(o, n, "axis", 0), size;
    ox_need_shape(o, n, x);
    ox_need_shape(o, n, is);
    axis = flat ? 0 : ox_axis(o, n, axis, x->rank);
    if (flat) {
        size = ox_product(x->dims, 0, x->rank);
        x = ox_with_dims(o, n, ".flat", x, 0, x->rank, &size, 1);
        ox_need_shape(o, n, x);
    }
    if (is->rank != 1 || is->dims[0] > x->dims[axis]) {
        ox_die(o, n, "Compress with a condition that does not fit");
    }
    if (is->dims[0] < x->dims[axis]) {
        x = ox_slice_of(o, n, ".seen", x, axis, 0, is->dims[0]);
    }
    const ox_picked *s = ox_places_of(o, n, is);
    ptrdiff_t before = arrlen(o->values);
    ox_bind_as(o, n, 0, "Identity", x, NULL, (ox_list){0});
    finish(o, n, &(ox_rows){.set = s, .along = (int)axis, .over = ox_all_of(s)}, before);
}

const ox_row ox_picked_rows[] = {
    {"NonZero", 1, 1, convert_non_zero},
    {"Compress", 2, 2, convert_compress},
    {NULL, 0, 0, NULL},
};

// ---- nodes that read such rows ----

static const ox_arranged reading[] = {
    {slice, true, " Slice "},
    {one_hot, false, " OneHot "},
    {gather, false, " Gather "},
    {gather_nd, false, " GatherND "},
    {gather_elements, false, " GatherElements "},
    {reduce, false,
     " ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 "},
    {NULL, false, NULL},
};

static const ox_arranged *kind_of(ox *o, const ox_node *n) {
    const ox_arranged *const tables[] = {ox_keeping, reading};
    const char *op = ox_format(o, " %s ", n->op);
    for (size_t t = 0; ox_is_standard(n->domain) && t < sizeof tables / sizeof *tables; t++) {
        for (const ox_arranged *k = tables[t]; k->ops; k++) {
            if (strstr(k->ops, op)) {
                return k;
            }
        }
    }
    return NULL;
}

static const ox_picked *first_of(const ox_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] && n->in[i]->picked) {
            return n->in[i]->picked;
        }
    }
    return NULL;
}

void ox_convert_picked(ox *o, ox_node *n, void (*convert)(ox *, ox_node *)) {
    ox_rows r = {0};
    ptrdiff_t before = arrlen(o->values);
    const ox_arranged *kind = kind_of(o, n);
    bool counts = ox_counts_of(n, 0) > 0;
    if (counts && ox_is_standard(n->domain) && ox_compute_sizes(o, n, convert)) {
        ox_check_sizes(o, n);
        return;
    }
    if (counts && (!kind || !kind->lists)) {
        ox_make_counts(o, n);
    }
    const ox_picked *s = first_of(n);
    bool stores = !strcmp(n->op, "ScatterND") || !strcmp(n->op, "ScatterElements") ||
                  !strcmp(n->op, "Scatter");
    if (s && stores && ox_is_standard(n->domain)) {
        scatter(o, n, &r, convert);
    } else if (s && !kind) {
        ox_refuse_rows(o, n, s, "it is not read on such rows");
    } else if (s || (counts && kind && kind->lists)) {
        kind->arrange(o, n, &r);
    }
    if (!r.done) {
        convert(o, n);
    }
    finish(o, n, &r, before);
    ox_check_sizes(o, n);
}
