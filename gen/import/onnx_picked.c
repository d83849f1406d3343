// onnx_picked.c - rows of which a condition picks some at run time (NonZero, Compress, x[mask]). A
// plan has no sizes that depend on values, so all rows are computed, and what puts them back, or
// sums them, takes those that are picked and selects: what the others hold never shows.
//
// A list of places has coordinates, the axes of its condition that are larger than 1. A value has
// its picked rows along one axis, row by row as ONNX has them, but with all rows in place of those
// that are picked, and only for the coordinates `over` that it depends on: of tokens t that are
// picked for experts of rank k, hidden[t] has a row a token, its weights[t,k] one for each t and k.
// Places are then known numbers, which fold as others do. In known shapes how many rows are picked
// is the number of all, with the expression "?i?" (of o->picked[i]) for a name.
#include "onnx_picked.h"

enum { SAME_VISITS = 256 };

CLI_NORETURN void ox_refuse_rows(ox *o, ox_node *n, const ox_picked *set, const char *why) {
    ox_unsupported(o, n, "operator '%s' on rows of which %s picks some at run time: %s", n->op,
                   set->node, why);
}

// ---- lists of places ----

int64_t ox_extent(const ox_picked *s, unsigned over) {
    int64_t count = 1;
    for (int i = 0; i < s->rank; i++) {
        count *= over >> i & 1 ? s->dims[i] : 1;
    }
    return count;
}

unsigned ox_all_of(const ox_picked *s) { return (1u << s->rank) - 1; }

// Whether two values are computed the same way, as far as at most `*visits` steps tell.
static bool same_value(const ox_value *a, const ox_value *b, int *visits) {
    const ox_stmt *s = a->maker, *t = b->maker;
    if (a == b) {
        return true;
    }
    bool same = --*visits > 0 && s && t && s->op && t->op && !strcmp(s->op, t->op) &&
                !strcmp(s->attrs, t->attrs) && arrlen(s->args) == arrlen(t->args) &&
                arrlen(s->outs) == 1 && arrlen(t->outs) == 1;
    for (ptrdiff_t i = 0; same && i < arrlen(s->args); i++) {
        same = s->args[i] && t->args[i] ? same_value(s->args[i], t->args[i], visits)
                                        : s->args[i] == t->args[i];
    }
    return same;
}

// The list that equals `s`, which is kept where there is none.
const ox_picked *ox_kept_list(ox *o, ox_picked s) {
    for (ptrdiff_t i = 0; i < arrlen(o->picked); i++) {
        const ox_picked *t = o->picked[i];
        int visits = SAME_VISITS;
        bool same =
            t->rank == s.rank && t->turned == s.turned && same_value(t->mask, s.mask, &visits);
        for (int k = 0; same && k < s.rank; k++) {
            same = t->dims[k] == s.dims[k] && t->of[k] == s.of[k];
        }
        if (same) {
            return t;
        }
    }
    ox_picked *kept = ox_alloc(o, sizeof *kept);
    *kept = s;
    kept->count = ox_format(o, "?%d?", (int)arrlen(o->picked));
    arrput(o->picked, kept);
    return kept;
}

static bool is_view(const char *op) {
    return !strcmp(op, "Unsqueeze") || !strcmp(op, "Squeeze") || !strcmp(op, "Reshape") ||
           !strcmp(op, "Identity") || !strcmp(op, "Flatten");
}

// Axes of v larger than 1.
static int wide_axes(const ox_value *v, int *axes) {
    int count = 0;
    for (int a = 0; a < v->rank; a++) {
        if (v->dims[a] > 1) {
            axes[count++] = a;
        }
    }
    return count;
}

// Where `v` is spread from, or another shape of, a smaller condition, that one: of[i] is then the
// axis of it that coordinate i counts, -1 where all of its places are alike. `turned`: where that
// is false.
static ox_value *root_of(ox *o, ox_node *n, ox_value *v, int rank, int *of, bool *turned) {
    for (ox_stmt *s = v->maker; s && s->op; s = v->maker) {
        ox_value *x = s->args[0];
        int wide[CLI_MAX_RANK], from[CLI_MAX_RANK];
        bool spread = !strcmp(s->op, "Expand");
        bool turns = !strcmp(s->op, "Not");
        bool cast = !strcmp(s->op, "Cast") && x->dtype == CLI_BOOL;
        if (!spread && !turns && !cast && !is_view(s->op)) {
            break;
        }
        ox_need_shape(o, n, v);
        ox_need_shape(o, n, x);
        int count = wide_axes(v, wide), left = wide_axes(x, from);
        bool same = spread || count == left;
        for (int i = 0; same && !spread && i < count; i++) {
            same = v->dims[wide[i]] == x->dims[from[i]];
        }
        if (!same) {
            break;
        }
        for (int i = 0; i < rank; i++) {
            int at = 0;
            while (of[i] >= 0 && wide[at] != of[i]) {
                at++;
            }
            int aligned = of[i] - (v->rank - x->rank);
            of[i] = of[i] < 0 ? -1
                    : !spread ? from[at]
                              : (aligned < 0 || x->dims[aligned] == 1 ? -1 : aligned);
        }
        *turned = *turned != turns;
        v = x;
    }
    return v;
}

const ox_picked *ox_places_of(ox *o, ox_node *n, ox_value *is) {
    ox_picked s = {.node = ox_title(o, n)};
    int64_t count;
    ox_need_shape(o, n, is);
    if (!cli_count(is->rank, is->dims, &count) || count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' of too many places", n->op);
    }
    for (int i = 0; i < n->n_in && !n->scope->parent; i++) {
        s.end = n->in[i] == is && is->maker ? n->p->input[i] : s.end;
    }
    s.rank = wide_axes(is, s.of);
    for (int i = 0; i < s.rank; i++) {
        s.dims[i] = is->dims[s.of[i]];
    }
    s.mask = root_of(o, n, is, s.rank, s.of, &s.turned);
    ox_name_node(o, n, &o->picks);
    return ox_kept_list(o, s);
}

// ---- values with picked rows ----

// v in the place where its rows were along `axis`: dims there become `dims`.
ox_value *ox_with_dims(ox *o, ox_node *n, const char *suffix, ox_value *v, int axis, int take,
                       const int64_t *dims, int count) {
    int64_t shape[CLI_MAX_RANK];
    int rank = 0;
    ox_need_shape(o, n, v);
    if (v->rank - take + count > CLI_MAX_RANK) {
        ox_unsupported(o, n, "operator '%s' on picked rows of too many axes", n->op);
    }
    for (int a = 0; a < axis; a++) {
        shape[rank++] = v->dims[a];
    }
    for (int i = 0; i < count; i++) {
        shape[rank++] = dims[i];
    }
    for (int a = axis + take; a < v->rank; a++) {
        shape[rank++] = v->dims[a];
    }
    if (rank == v->rank && !memcmp(shape, v->dims, (size_t)rank * sizeof *shape)) {
        return v;
    }
    const ox_const *c = ox_known(o, v);
    if (c) {
        return ox_constant(o, ox_base(o, n), suffix, ox_reshaped(o, c, rank, shape));
    }
    return ox_with_list(o, n, "Reshape", suffix, v, "shape", (ox_list){rank, shape, NULL});
}

ox_value *ox_tagged(ox_value *v, const ox_picked *s, int along, unsigned over) {
    v->picked = s;
    v->along = along;
    v->over = over;
    return v;
}

// The coordinates of rows as axes, 1 for those that v has not.
ox_value *ox_apart(ox *o, ox_node *n, ox_value *v) {
    int64_t dims[CLI_MAX_RANK];
    for (int i = 0; i < v->picked->rank; i++) {
        dims[i] = v->over >> i & 1 ? v->picked->dims[i] : 1;
    }
    return ox_with_dims(o, n, ".apart", v, v->along, 1, dims, v->picked->rank);
}

static ox_value *spread(ox *o, ox_node *n, ox_value *v, ox_list shape) {
    const ox_const *c = ox_known(o, v);
    int64_t strides[CLI_MAX_RANK] = {0};
    ox_need_shape(o, n, v);
    if (v->rank == shape.n && !memcmp(v->dims, shape.v, (size_t)shape.n * sizeof *shape.v)) {
        return v;
    }
    if (!c) {
        return ox_with_list(o, n, "Expand", ".spread", v, "shape", shape);
    }
    ox_dense_strides(c, strides);
    for (int a = 0; a < c->rank; a++) {
        strides[a] = c->dims[a] == 1 ? 0 : strides[a];
    }
    c = ox_view(o, c, shape.n, shape.v, strides, 0);
    if (!c) {
        ox_unsupported(o, n, "operator '%s' of too many places", n->op);
    }
    return ox_constant(o, ox_base(o, n), ".spread", c);
}

// v with rows for all coordinates `over`, those that it has among them.
ox_value *ox_widened(ox *o, ox_node *n, ox_value *v, unsigned over) {
    const ox_picked *s = v->picked;
    int along = v->along;
    if (ox_extent(s, v->over) == ox_extent(s, over)) {
        return v;
    }
    int64_t shape[CLI_MAX_RANK], count = ox_extent(s, over);
    ox_value *all = ox_apart(o, n, v);
    ox_need_shape(o, n, all);
    for (int a = 0; a < all->rank; a++) {
        int i = a - along;
        bool own = i >= 0 && i < s->rank && over >> i & 1;
        shape[a] = own ? s->dims[i] : all->dims[a];
    }
    all = spread(o, n, all, (ox_list){all->rank, shape, NULL});
    return ox_tagged(ox_with_dims(o, n, ".rows", all, along, s->rank, &count, 1), s, along, over);
}

// Known numbers, without the coordinates that they do not depend on.
ox_value *ox_narrowed(ox *o, ox_node *n, ox_value *v) {
    const ox_picked *s = v->picked;
    for (int i = 0; i < s->rank; i++) {
        const ox_const *c = ox_known(o, v);
        if (!(v->over >> i & 1) || !c || c->splat || c->count > OX_FOLD_LIMIT) {
            continue;
        }
        int64_t inner = 1, dims[CLI_MAX_RANK], strides[CLI_MAX_RANK], base = 0;
        for (int a = v->along + 1; a < c->rank; a++) {
            inner *= c->dims[a];
        }
        for (int k = i + 1; k < s->rank; k++) {
            inner *= v->over >> k & 1 ? s->dims[k] : 1;
        }
        bool alike = true;
        for (int64_t e = 0; alike && e < c->count; e++) {
            int64_t first = e - e / inner % s->dims[i] * inner;
            alike = ox_getf(c, e) == ox_getf(c, first);
        }
        if (!alike) {
            continue;
        }
        ox_value *all = ox_apart(o, n, v);
        c = ox_known(o, all);
        memcpy(dims, c->dims, sizeof dims);
        ox_dense_strides(c, strides);
        dims[v->along + i] = 1;
        c = ox_view(o, c, c->rank, dims, strides, base);
        if (!c) {
            break;
        }
        unsigned over = v->over & ~(1u << i);
        int64_t count = ox_extent(s, over);
        all = ox_constant(o, ox_base(o, n), ".rows", c);
        v = ox_tagged(ox_with_dims(o, n, ".rows", all, v->along, s->rank, &count, 1), s, v->along,
                      over);
    }
    return v;
}

// Whether each place counts, for all coordinates, in a shape that broadcasts to `rank` axes.
ox_value *ox_mask_of(ox *o, ox_node *n, const ox_picked *s, int rank, int axis) {
    int64_t dims[CLI_MAX_RANK], count = ox_extent(s, ox_all_of(s));
    ox_value *v = ox_cast_to(o, n, ".is", s->mask, CLI_BOOL);
    v = s->turned ? ox_unary(o, n, "Not", ".is", v) : v;
    for (int i = 0; i < s->rank; i++) {
        dims[i] = s->of[i] < 0 ? 1 : s->dims[i];
    }
    ox_need_shape(o, n, v);
    v = ox_with_dims(o, n, ".is", v, 0, v->rank, dims, s->rank);
    v = spread(o, n, v, (ox_list){s->rank, s->dims, NULL});
    for (int a = 0; a < rank; a++) {
        dims[a] = a == axis ? count : 1;
    }
    return ox_with_dims(o, n, ".is", v, 0, s->rank, dims, rank);
}

// How many places are picked, as a scalar.
ox_value *ox_count_of(ox *o, ox_node *n, const ox_picked *s) {
    int64_t axis = 0;
    ox_value *v = ox_cast_to(o, n, ".is", ox_mask_of(o, n, s, 1, 0), CLI_I64);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_set_int(o, "keepdims", 0);
    return ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".count"), CLI_I64);
}

// v where its rows are picked, `none` elsewhere; v is for all coordinates.
ox_value *ox_selected(ox *o, ox_node *n, ox_value *v, double none) {
    v = ox_widened(o, n, v, ox_all_of(v->picked));
    ox_need_shape(o, n, v);
    ox_value *is = ox_mask_of(o, n, v->picked, v->rank, v->along);
    ox_value *w = ox_where(o, n, ".picked", is, v, ox_number(o, n, ".none", v->dtype, none));
    return ox_tagged(w, v->picked, v->along, ox_all_of(v->picked));
}

// ---- how many, as a number in shapes ----

const ox_picked *ox_list_named(ox *o, const char *sym) {
    for (ptrdiff_t i = 0; sym && i < arrlen(o->picked); i++) {
        if (!strcmp(o->picked[i]->count, sym)) {
            return o->picked[i];
        }
    }
    return NULL;
}

// Elements of a known value that count picked rows.
int ox_counts_in(const ox_value *v) {
    int count = 0;
    for (int64_t i = 0; v && v->known && v->known->sym && i < v->known->count; i++) {
        const char *sym = ox_sym(v->known, i);
        count += sym && strchr(sym, '?');
    }
    return count;
}

int ox_counts_of(const ox_node *n, int from) {
    int count = 0;
    for (int i = from; i < n->n_in; i++) {
        count += ox_counts_in(n->in[i]);
    }
    return count;
}

bool ox_is_picked(const ox_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] && (n->in[i]->picked || ox_counts_in(n->in[i]))) {
            return true;
        }
    }
    return false;
}

ox_value *ox_output_of(const ox_node *n, int i) {
    ox_value *v = NULL;
    return ox_wants(n, i) && ox_look_up(n->scope, n->out_onnx[i], &v) ? v : NULL;
}

CLI_NORETURN void ox_refuse_size(ox *o, ox_node *n) {
    ox_unsupported(o, n,
                   "operator '%s' on a size computed from how many rows are picked at run "
                   "time",
                   n->op);
}

// Arithmetic of shapes that keeps what its numbers are called; false where it is none.
bool ox_compute_sizes(ox *o, ox_node *n, ox_converter convert) {
    static const char all[] = " Concat Identity Add Sub Mul Div Where Equal ",
                      first[] = " Gather Slice Squeeze Unsqueeze Reshape Cast ReduceProd ";
    const char *op = ox_format(o, " %s ", n->op);
    bool any = strstr(all, op) != NULL;
    if ((!strcmp(n->op, "Shape") || !strcmp(n->op, "Size")) && !n->in[0]->picked) {
        convert(o, n);
        return true;
    }
    if (!any && (!strstr(first, op) || ox_counts_of(n, 1))) {
        return false;
    }
    int64_t to = strcmp(n->op, "Cast") ? 0 : ox_int(o, n, "to", 0);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] && (n->in[i]->picked || !ox_known(o, n->in[i]))) {
            return false;
        }
    }
    if (to && to != ONNX__TENSOR_PROTO__DATA_TYPE__INT64 &&
        to != ONNX__TENSOR_PROTO__DATA_TYPE__INT32) {
        return false;
    }
    bool equal = !strcmp(n->op, "Equal");
    int own = equal ? ox_counts_in(n->in[0]) > 0 : 0;
    const ox_const *c = equal ? ox_known(o, n->in[own]) : NULL;
    for (int64_t i = 0; c && i < c->count; i++) {  // no count is negative
        if (ox_counts_in(n->in[own]) || ox_getf(c, i) >= 0) {
            ox_refuse_size(o, n);
        }
    }
    convert(o, n);
    int before = ox_counts_of(n, 0);
    bool parts = !strcmp(n->op, "Gather") || !strcmp(n->op, "Slice");
    ox_value *v = ox_output_of(n, 0);
    if (!equal && !parts && v && (before > 0) != (ox_counts_in(v) > 0)) {
        ox_refuse_size(o, n);
    }
    return true;
}

// Such a number has no text of its own.
void ox_check_sizes(ox *o, ox_node *n) {
    for (int i = 0; i < n->n_out; i++) {
        if (ox_wants(n, i) && shgeti(o->wanted, n->out[i]) >= 0 &&
            ox_counts_in(ox_output_of(n, i))) {
            ox_refuse_size(o, n);
        }
    }
}

// Numbers that count picked rows as values computed at run time.
void ox_make_counts(ox *o, ox_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        if (!ox_counts_in(n->in[i])) {
            continue;
        }
        const ox_const *c = n->in[i]->known;
        const ox_picked *s = c->count == 1 ? ox_list_named(o, ox_sym(c, 0)) : NULL;
        if (!s) {
            ox_refuse_size(o, n);
        }
        ox_value *v = ox_cast_to(o, n, ".count", ox_count_of(o, n, s), c->dtype);
        n->in[i] = c->rank ? ox_with_dims(o, n, ".count", v, 0, 0, c->dims, c->rank) : v;
    }
}
