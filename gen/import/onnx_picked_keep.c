// onnx_picked_keep.c - operators that keep picked rows apart: their inputs are arranged, so that
// the operator itself, of all rows, is what it is elsewhere.
#include "onnx_picked.h"

void ox_take_rows(ox *o, ox_node *n, ox_rows *r, const ox_value *v, int along) {
    if (r->set && r->set != v->picked) {
        ox_refuse_rows(o, n, r->set, ox_format(o, "others are picked by %s", v->picked->node));
    }
    if (r->set && r->along != along) {
        ox_refuse_rows(o, n, r->set, "along two axes");
    }
    r->set = v->picked;
    r->along = along;
    r->over |= v->over;
}

// What has no picked rows must be the same for all.
static void check_beside(ox *o, ox_node *n, const ox_rows *r, ox_value *v, int rank) {
    ox_need_shape(o, n, v);
    int axis = r->along - (rank - v->rank);
    if (axis >= 0 && v->dims[axis] != 1) {
        ox_refuse_rows(o, n, r->set,
                       ox_format(o, "beside them stand %lld rows, all of which count",
                                 (long long)v->dims[axis]));
    }
}

static void widen(ox *o, ox_node *n, const ox_rows *r, int from, int to) {
    for (int i = from; i < to && i < n->n_in; i++) {
        if (n->in[i] && n->in[i]->picked && ox_extent(r->set, n->in[i]->over) > 1) {
            n->in[i] = ox_widened(o, n, n->in[i], r->over);
        }
    }
}

// Inputs that broadcast; the axes of picked rows lie on each other.
static void each_of(ox *o, ox_node *n, ox_rows *r, int count) {
    int rank = 0;
    for (int i = 0; i < count && i < n->n_in; i++) {
        if (n->in[i]) {
            ox_need_shape(o, n, n->in[i]);
            rank = n->in[i]->rank > rank ? n->in[i]->rank : rank;
        }
    }
    for (int i = 0; i < count && i < n->n_in; i++) {
        if (n->in[i] && n->in[i]->picked) {
            ox_take_rows(o, n, r, n->in[i], n->in[i]->along + rank - n->in[i]->rank);
        }
    }
    for (int i = 0; i < count && i < n->n_in; i++) {
        if (n->in[i] && !n->in[i]->picked) {
            check_beside(o, n, r, n->in[i], rank);
        }
    }
    widen(o, n, r, 0, count);
}

static void each(ox *o, ox_node *n, ox_rows *r) {
    bool like = !strcmp(n->op, "CastLike");
    each_of(o, n, r, like ? 1 : n->n_in);
    if (r->set && n->opset < 7) {
        ox_refuse_rows(o, n, r->set, "of so old an operator set");
    }
}

// The first input alone has picked rows.
ox_value *ox_only(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    for (int i = 1; i < n->n_in; i++) {
        if (n->in[i] && n->in[i]->picked) {
            ox_refuse_rows(o, n, n->in[i]->picked, "they are read where all rows count");
        }
    }
    ox_take_rows(o, n, r, x, x->along);
    return x;
}

void ox_check_rows(ox *o, ox_node *n, const ox_rows *r, bool is) {
    if (!is) {
        ox_refuse_rows(o, n, r->set, "it mixes those that are picked, whose places are not known");
    }
}

// Along one axis, that of an attribute.
static void beside_axis(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    bool place = !strncmp(n->op, "Arg", 3), soft = strstr(n->op, "oftmax") && n->opset < 13;
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", place ? 0 : soft ? 1 : -1), x->rank);
    bool tail = soft || !strcmp(n->op, "LayerNormalization") || !strcmp(n->op, "RMSNormalization");
    ox_check_rows(o, n, r, tail ? r->along < axis : r->along != axis);
    for (int i = 1; i < n->n_in && tail; i++) {
        if (n->in[i]) {
            check_beside(o, n, r, n->in[i], x->rank);
        }
    }
    if (place && !ox_int(o, n, "keepdims", 1)) {
        r->along -= axis < r->along;
    }
}

static void batches(ox *o, ox_node *n, ox_rows *r) {
    bool norm = !strcmp(n->op, "BatchNormalization");
    const ox_value *x = ox_only(o, n, r);
    ox_check_rows(o, n, r, !x->along && !(norm && ox_int(o, n, "training_mode", 0)));
}

static void products(ox *o, ox_node *n, ox_rows *r) {
    ox_value *a = ox_in(o, n, 0), *b = ox_in(o, n, 1);
    ox_need_shape(o, n, a);
    ox_need_shape(o, n, b);
    const ox_picked *s = a->picked ? a->picked : b->picked;
    if (a->rank < 2 || b->rank < 2) {
        ox_refuse_rows(o, n, s, "of vectors");
    }
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < 2; i++) {
        ox_value *v = i ? b : a, *w = i ? a : b;
        int along = v->along + rank - v->rank, kept = rank - (i ? 1 : 2);
        if (!v->picked) {
            continue;
        }
        ox_check_rows(o, n, &(ox_rows){.set = v->picked}, along < rank - 2 || along == kept);
        ox_take_rows(o, n, r, v, along);
        if (along < rank - 2 && !w->picked) {
            check_beside(o, n, r, w, rank);
        }
    }
    if (a->picked && b->picked && r->along >= rank - 2) {
        ox_refuse_rows(o, n, s, "along two axes");
    }
    widen(o, n, r, 0, 2);
}

static void gemm(ox *o, ox_node *n, ox_rows *r) {
    ox_value *a = ox_in(o, n, 0), *c = ox_opt(o, n, 2);
    const ox_value *b = ox_in(o, n, 1);
    const ox_picked *s = a->picked ? a->picked : b->picked ? b->picked : c->picked;
    if (b->picked || !a->picked || a->along != (ox_int(o, n, "transA", 0) ? 1 : 0)) {
        ox_refuse_rows(o, n, s, "it mixes those that are picked, whose places are not known");
    }
    ox_take_rows(o, n, r, a, 0);
    if (c && c->picked) {
        ox_need_shape(o, n, c);
        ox_take_rows(o, n, r, c, c->along + 2 - c->rank);
    } else if (c) {
        check_beside(o, n, r, c, 2);
    }
    widen(o, n, r, 1, 3);
    n->in[0] = ox_widened(o, n, a, r->over);
}

static void transpose(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    ox_list perm;
    bool given = ox_ints(o, n, "perm", &perm) && perm.n == x->rank;
    r->along = x->rank - 1 - x->along;
    for (int a = 0; given && a < perm.n; a++) {
        r->along = perm.v[a] == x->along ? a : r->along;
    }
}

static void squeeze(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    bool adds = !strcmp(n->op, "Unsqueeze"), named[CLI_MAX_RANK] = {false};
    ox_list axes = {0};
    if (!ox_int_input(o, n, "axes", 1, &axes) || x->rank + axes.n > CLI_MAX_RANK) {
        ox_refuse_rows(o, n, r->set, "without axes");
    }
    for (int i = 0; i < axes.n; i++) {
        named[ox_axis(o, n, axes.v[i], adds ? x->rank + axes.n : x->rank)] = true;
    }
    ox_check_rows(o, n, r, adds || !named[x->along]);
    for (int a = 0; !adds && a < x->along; a++) {
        r->along -= named[a];
    }
    for (int a = 0; adds && a <= r->along; a++) {
        r->along += named[a];
    }
}

static void concat(ox *o, ox_node *n, ox_rows *r) {
    for (int i = 0; i < n->n_in; i++) {
        ox_value *v = ox_in(o, n, i);
        ox_need_shape(o, n, v);
        if (v->picked) {
            ox_take_rows(o, n, r, v, v->along);
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        if (!n->in[i]->picked) {
            ox_refuse_rows(o, n, r->set, "others count all");
        }
    }
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), n->in[0]->rank);
    ox_check_rows(o, n, r, axis != r->along);
    for (int i = 0; i < n->n_in; i++) {
        n->in[i] = ox_widened(o, n, n->in[i], r->over);
    }
}

// Of x, whose rows are for all coordinates, those that are number first, first + 1 .. of the picked
// ones, `count` of them: at the places that have so many in front of them.
ox_value *ox_numbered(ox *o, ox_node *n, ox_value *x, int64_t first, int64_t count) {
    const ox_picked *s = x->picked;
    int64_t all = ox_extent(s, ox_all_of(s)), axis = 1;
    if (count > OX_FOLD_LIMIT / all) {
        ox_refuse_rows(o, n, s, "by too many numbers");
    }
    ox_const *c = ox_make(o, CLI_I64, 2, (int64_t[]){count, 1});
    for (int64_t i = 0; i < count; i++) {
        ox_seti(c, i, first + i);
    }
    ox_value *v = ox_cast_to(o, n, ".is", ox_mask_of(o, n, s, 2, 1), CLI_I64);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_int(o, "axis", 1);
    v = ox_end(o, "CumSum", ox_fresh(o, ox_base(o, n), ".counted"), CLI_I64);
    ox_value *number = ox_constant(o, ox_base(o, n), ".number", c);
    v = ox_cast_to(o, n, ".front", ox_truth(o, n, "LessOrEqual", ".front", v, number), CLI_I64);
    ox_begin(o);
    ox_arg(o, v);
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_set_int(o, "keepdims", 0);
    v = ox_end(o, "ReduceSum", ox_fresh(o, ox_base(o, n), ".place"), CLI_I64);
    v = ox_by_number(o, n, "Min", ".place", v, (double)(all - 1));
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, v);
    ox_set_int(o, "axis", x->along);
    return ox_end(o, "Gather", ox_fresh(o, ox_base(o, n), ".rows"), x->dtype);
}

// Parts that are known say how many rows are picked; when all are, which is known, too.
static void split(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank), sum = 0;
    int64_t all = ox_extent(r->set, ox_all_of(r->set));
    ox_list parts = {0};
    if (axis != r->along) {
        return;
    }
    bool given = ox_int_input(o, n, "split", 1, &parts);
    for (int i = 0; given && i < parts.n; i++) {
        sum += parts.v[i] > 0 && parts.v[i] <= all ? parts.v[i] : all + 1;
    }
    if (!given || sum > all || ox_counts_of(n, 1)) {
        ox_refuse_rows(o, n, r->set, "parts of more than there are, or of no known number");
    }
    ox_name_node(o, n, &o->numbered);
    x = ox_widened(o, n, x, ox_all_of(r->set));
    n->in[0] = sum < all ? ox_numbered(o, n, x, 0, sum) : x;
    *r = (ox_rows){0};
}

// ---- shapes ----

// How many rows there are is a number of a shape.
static void sizes(ox *o, ox_node *n, ox_rows *r) {
    ox_value *x = ox_only(o, n, r);
    int64_t count = x->rank, all = 1;
    const char *sym = NULL;
    bool shape = !strcmp(n->op, "Shape");
    ox_const *c = ox_make(o, CLI_I64, shape, &count);
    if (ox_has(n, "start") || ox_has(n, "end")) {
        ox_refuse_rows(o, n, r->set, "some of its sizes");
    }
    ox_need_sym(o, n, x);
    for (int a = 0; a < x->rank; a++) {
        int64_t size = a == x->along ? ox_extent(r->set, ox_all_of(r->set)) : x->dims[a];
        const char *own = a == x->along ? r->set->count : x->sym[a];
        if (shape) {
            ox_seti(c, a, size);
            ox_set_sym(o, c, a, own);
        } else {
            sym = sym || own ? ox_join(o, '*', sym, all, own, size) : NULL;
            all *= size;
        }
    }
    if (!shape) {
        ox_seti(c, 0, all);
        ox_set_sym(o, c, 0, sym);
    }
    ox_bind_known(o, n, 0, c);
    r->set = NULL;
    r->done = true;
}

int64_t ox_product(const int64_t *v, int from, int to) {
    int64_t all = 1;
    for (int i = from; i < to; i++) {
        if (v[i] < 1 || all > INT64_MAX / v[i]) {
            return -1;
        }
        all *= v[i];
    }
    return all;
}

// x's list with the axes behind its rows as coordinates, as many as have `size` places together;
// NULL where they do not.
static const ox_picked *joined(ox *o, const ox_value *x, int64_t size, unsigned *over) {
    ox_picked s = *x->picked;
    int64_t all = 1;
    *over = x->over;
    for (int a = x->along + 1; a < x->rank && all < size; a++) {
        all *= x->dims[a];
        if (x->dims[a] > 1 && s.rank == CLI_MAX_RANK) {
            return NULL;
        }
        if (x->dims[a] > 1) {
            *over |= 1u << s.rank;
            s.of[s.rank] = -1;
            s.dims[s.rank++] = x->dims[a];
        }
    }
    return all == size ? ox_kept_list(o, s) : NULL;
}

// x's list without its last coordinates, of `size` places together, where all of their places are
// alike; NULL where there are none such.
static const ox_picked *parted(ox *o, const ox_value *x, int64_t size) {
    ox_picked s = *x->picked;
    int64_t all = 1;
    while (s.rank && all < size && s.of[s.rank - 1] < 0) {
        all *= s.dims[--s.rank];
    }
    return all == size ? ox_kept_list(o, s) : NULL;
}

// The number of a Reshape's new shape that stands for the picked rows; -1: none. Fills in others.
static int find_rows(ox *o, ox_node *n, const ox_value *x, ox_list list, int64_t *to) {
    bool zeros = ox_int(o, n, "allowzero", 0) != 0;
    int at = -1, open = -1;
    for (int i = 0; i < list.n; i++) {
        const char *sym = list.sym ? list.sym[i] : NULL;
        bool counts = sym && strchr(sym, '?');
        to[i] = list.v[i] == 0 && !zeros && i < x->rank ? x->dims[i] : list.v[i];
        open = list.v[i] == -1 ? i : open;
        at = counts || (list.v[i] == 0 && !zeros && i == x->along) ? i : at;
    }
    if (at < 0 || open < 0) {
        return at < 0 ? open : at;
    }
    to[open] = 1;
    int64_t left = ox_product(to, 0, list.n) / to[at];
    int64_t have = ox_product(x->dims, 0, x->along) * ox_product(x->dims, x->along + 1, x->rank);
    to[open] = left > 0 && have % left == 0 ? have / left : -1;
    return at;
}

static void reshape(ox *o, ox_node *n, ox_rows *r) {
    ox_list list = {0};
    int64_t to[CLI_MAX_RANK];
    if (!ox_in(o, n, 0)->picked) {
        ox_refuse_size(o, n);
    }
    ox_value *x = ox_only(o, n, r);
    bool flat = !strcmp(n->op, "Flatten");
    int64_t axis = flat ? ox_int(o, n, "axis", 1) : 0, two[2] = {-1, 1};
    if (flat) {
        two[1] = ox_product(x->dims, 1, x->rank);
        ox_check_rows(o, n, r, axis == 1 && !x->along);
        list = (ox_list){2, two, NULL};
    } else if (!ox_int_input(o, n, "shape", 1, &list) || list.n > CLI_MAX_RANK) {
        ox_die(o, n, "Reshape without a usable shape");
    }
    int at = find_rows(o, n, x, list, to);
    const char *sym = at >= 0 && list.sym ? list.sym[at] : NULL;
    int64_t before = ox_product(x->dims, 0, x->along),
            was = ox_product(x->dims, x->along + 1, x->rank);
    int64_t front = at < 0 ? 0 : ox_product(to, 0, at),
            is = at < 0 ? 0 : ox_product(to, at + 1, list.n);
    const ox_picked *s = NULL;
    if (is > 0 && front == before && is == was) {
        s = x->picked;
    } else if (is > 0 && front == before && was % is == 0) {
        s = joined(o, x, was / is, &r->over);
    } else if (is > 0 && front == before && is % was == 0) {
        s = parted(o, x, is / was);
        x = s ? ox_widened(o, n, x, r->over | (ox_all_of(x->picked) & ~ox_all_of(s))) : x;
        r->over = s ? r->over & ox_all_of(s) : r->over;
    }
    const ox_picked *named = ox_list_named(o, sym);
    bool means =
        !sym || named == s ||
        (!named && s && strstr(sym, x->picked->count) && list.v[at] == ox_extent(s, ox_all_of(s)));
    if (!s || !means) {
        ox_refuse_rows(o, n, r->set, "a shape in which its rows are not found");
    }
    to[at] = ox_extent(s, r->over);
    ox_value *v = x;
    int64_t count;
    if (ox_known(o, x) && cli_count(list.n, to, &count)) {
        v = ox_constant(o, ox_first(o, n), ".rows", ox_reshaped(o, ox_known(o, x), list.n, to));
    } else {
        v = ox_with_list(o, n, "Reshape", ".rows", x, "shape", (ox_list){list.n, to, NULL});
    }
    ox_bind(o, n, 0, v);
    *r = (ox_rows){.set = s, .along = at, .over = r->over, .done = true};
}

// Numbers of a shape that count picked rows: 1 there, as no row needs a place of its own.
static void expand(ox *o, ox_node *n, ox_rows *r) {
    bool fills = !strcmp(n->op, "ConstantOfShape");
    ox_value *x = fills ? NULL : ox_in(o, n, 0);
    ox_list list = {0};
    if (!ox_int_input(o, n, "shape", fills ? 0 : 1, &list) || list.n > CLI_MAX_RANK) {
        ox_refuse_size(o, n);
    }
    if (ox_in(o, n, fills ? 0 : 1)->picked) {
        ox_refuse_rows(o, n, n->in[fills ? 0 : 1]->picked, "as a shape");
    }
    int64_t count = list.n, rank = list.n;
    ox_const *c = ox_make(o, CLI_I64, 1, &count);
    if (x) {
        ox_need_shape(o, n, x);
        rank = x->rank > rank ? x->rank : rank;
    }
    if (x && x->picked) {
        ox_take_rows(o, n, r, x, x->along + (int)rank - x->rank);
    }
    for (int i = 0; i < list.n; i++) {
        const char *sym = list.sym ? list.sym[i] : NULL;
        int axis = (int)rank - list.n + i;
        bool counts = sym && strchr(sym, '?');
        ox_seti(c, i, counts ? 1 : list.v[i]);
        ox_set_sym(o, c, i, counts ? NULL : sym);
        if (counts) {
            const ox_picked *s = ox_list_named(o, sym);
            if (!s || (r->set && (r->set != s || r->along != axis))) {
                ox_refuse_size(o, n);
            }
            *r = (ox_rows){.set = s, .along = axis, .over = r->over};
        } else if (x && x->picked && axis == r->along && list.v[i] != 1) {
            ox_refuse_rows(o, n, r->set, "to a number of rows that is known");
        }
    }
    if (x && !x->picked) {
        check_beside(o, n, r, x, (int)rank);
    }
    n->in[fills ? 0 : 1] = ox_constant(o, ox_base(o, n), ".shape", c);
}

// ---- the table ----

const ox_arranged ox_keeping[] = {
    {each, false,
     " Add Sub Mul Div Mod Max Min Sum Mean Pow Neg Abs Relu LeakyRelu Elu Celu Selu "
     "ThresholdedRelu Softplus Softsign Mish Sign Round Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh "
     "Acosh Atanh IsNaN IsInf Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Xor Where "
     "PRelu Clip Relu6 Sigmoid HardSigmoid HardSwish Swish Shrink Tanh Exp Log Sqrt Reciprocal "
     "Floor Ceil Erf Gelu Identity Dropout Cast CastLike "},
    {beside_axis, false,
     " Softmax LogSoftmax LayerNormalization RMSNormalization LpNormalization ArgMax ArgMin TopK "},
    {batches, false,
     " Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool BatchNormalization "
     "InstanceNormalization GroupNormalization "},
    {products, false, " MatMul "},
    {gemm, false, " Gemm "},
    {transpose, false, " Transpose "},
    {squeeze, false, " Squeeze Unsqueeze "},
    {concat, false, " Concat "},
    {split, false, " Split "},
    {sizes, false, " Shape Size "},
    {reshape, true, " Reshape Flatten "},
    {expand, true, " Expand ConstantOfShape "},
    {NULL, false, NULL},
};
