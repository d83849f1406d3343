// onnx_top.c - TopK: the largest elements of an axis and where they stand.
#include "onnx.h"

#include <math.h>

// What is assumed, in pairs of elements that are compared in the same time: of a kernel's launch
// and its ends. The most of a node; how many are found round by round, and how often pieces are
// made.
enum { KERNEL_PAIRS = 1 << 21, MAX_TOP = 64, MAX_CUTS = 4 };
#define MAX_PAIRS 2147483648.0

typedef struct {
    ox_value *x, *at;      // values; their places along the axis
    ox_value *from;        // where they stand in the node's input; NULL: there
    ox_value *none, *low;  // a place and a value beyond all
    int64_t axis, size, count;
    double rows;
    bool largest;
} top;

static ox_value *reduced(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x,
                         int64_t axis) {
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_set_int(o, "keepdims", 1);
    return ox_end(o, op, ox_fresh(o, ox_base(o, n), suffix), x->dtype);
}

// A number that none that is looked for goes beyond.
static ox_value *beyond(ox *o, ox_node *n, const ox_value *x, bool largest) {
    ox_const *c = ox_make(o, x->dtype, 0, NULL);
    if (ox_is_float(x->dtype)) {
        ox_setf(c, 0, largest ? -HUGE_VAL : HUGE_VAL);
    } else {
        int64_t most = x->dtype == CLI_I64   ? INT64_MAX
                       : x->dtype == CLI_I32 ? INT32_MAX
                       : x->dtype == CLI_U8  ? UINT8_MAX
                                             : INT8_MAX;
        ox_seti(c, 0, !largest ? most : x->dtype == CLI_U8 ? 0 : -most - 1);
    }
    return ox_constant(o, ox_base(o, n), ".beyond", c);
}

// ---- what takes how long ----

// Every pair is compared, and every element asked for every place.
static double time_of_ranks(double rows, int64_t size, int64_t count) {
    return rows * (double)size * (double)(size + 2 * count) + 4.0 * KERNEL_PAIRS;
}

// Rounds are kernels one after the other, each of which reads all.
static double time_of_rounds(double rows, int64_t size, int64_t count) {
    return (double)count * (rows * (double)size * 3 + 4.0 * KERNEL_PAIRS);
}

static bool by_rounds(const top *t) {
    return t->x->rank >= CLI_MAX_RANK || t->count == 1 ||
           (t->count <= MAX_TOP &&
            time_of_rounds(t->rows, t->size, t->count) < time_of_ranks(t->rows, t->size, t->count));
}

// The least time, and how long the pieces are by which the first ones are found; 0: none.
static double time_of_pieces(const top *t, int64_t size, int cuts, int64_t *length) {
    double best = time_of_ranks(t->rows, size, t->count);
    double rounds = time_of_rounds(t->rows, size, t->count);
    best = t->count <= MAX_TOP && rounds < best ? rounds : best;
    *length = 0;
    for (int64_t m = t->count < 8 ? 16 : 2 * t->count; cuts && m <= size / 2; m *= 2) {
        int64_t pieces = (size + m - 1) / m, next;
        double time = time_of_ranks(t->rows * (double)pieces, m, t->count) + 2.0 * KERNEL_PAIRS +
                      time_of_pieces(t, pieces * t->count, cuts - 1, &next);
        if (time < best) {
            best = time;
            *length = m;
        }
    }
    return best;
}

// ---- all at once ----

// How many come before each element: what is beyond it, and its equals to the left. Elements lie
// along `axis` of the result, what they are compared with along the one behind it.
static ox_value *rank_of(ox *o, ox_node *n, const top *t, ox_value *one) {
    ox_value *other = ox_with_int(o, n, "Unsqueeze", ".other", t->x, "axes", t->axis);
    ox_value *left = ox_truth(o, n, "Less", ".left",
                              ox_places(o, n, t->x->rank + 1, t->axis + 1, t->size), t->at);
    ox_value *same = ox_truth(o, n, "Equal", ".same", other, one);
    ox_value *tie = ox_truth(o, n, "And", ".tie", same, left);
    ox_value *more = ox_truth(o, n, t->largest ? "Greater" : "Less", ".more", other, one);
    ox_value *is = ox_truth(o, n, "Or", ".before", more, tie);
    return reduced(o, n, "ReduceSum", ".rank", ox_cast_to(o, n, ".counted", is, CLI_I64),
                   t->axis + 1);
}

// An element goes where the number of those before it says. What has no name is not wanted.
static void top_by_rank(ox *o, ox_node *n, top *t, const char *const names[2], ox_value *out[2]) {
    int rank = t->x->rank + 1;
    t->at = ox_places(o, n, rank, t->axis, t->size);
    ox_value *one = ox_with_int(o, n, "Unsqueeze", ".one", t->x, "axes", t->axis + 1);
    ox_value *is = ox_truth(o, n, "Equal", ".is", rank_of(o, n, t, one),
                            ox_places(o, n, rank, t->axis + 1, t->count));
    ox_value *from = t->at;
    if (t->from && names[1]) {
        from = ox_with_int(o, n, "Unsqueeze", ".from", t->from, "axes", t->axis + 1);
    }
    for (int i = 0; i < 2; i++) {
        if (!names[i]) {
            continue;
        }
        ox_value *all =
            ox_where(o, n, i ? ".at" : ".found", is, i ? from : one, i ? t->none : t->low);
        ox_begin(o);
        ox_arg(o, all);
        ox_set_list(o, "axes", (ox_list){1, &t->axis, NULL});
        ox_set_int(o, "keepdims", 0);
        out[i] = ox_end(o, i || !t->largest ? "ReduceMin" : "ReduceMax", names[i], all->dtype);
    }
}

// ---- piece by piece ----

// The axis in so many pieces, with what is beyond all behind the last one.
static ox_value *cut(ox *o, ox_node *n, const top *t, ox_value *x, double low, int64_t pieces,
                     int64_t length) {
    int64_t shape[CLI_MAX_RANK], pads[2 * CLI_MAX_RANK] = {0}, more = pieces * length - t->size;
    const char *sym[CLI_MAX_RANK] = {NULL};
    int rank = 0;
    ox_need_sym(o, n, x);
    for (int a = 0; a < x->rank; a++) {
        shape[rank] = a == t->axis ? pieces : x->dims[a];
        sym[rank++] = a == t->axis ? NULL : x->sym[a];
        if (a == t->axis) {
            shape[rank++] = length;
        }
    }
    if (more) {
        pads[x->rank + t->axis] = more;
        ox_begin(o);
        ox_arg(o, x);
        ox_set_list(o, "pads", (ox_list){2 * x->rank, pads, NULL});
        ox_set_float(o, "value", low);
        x = ox_end(o, "Pad", ox_fresh(o, ox_base(o, n), ".padded"), x->dtype);
    }
    return ox_with_list(o, n, "Reshape", ".pieces", x, "shape", (ox_list){rank, shape, sym});
}

// The pieces' first ones as one axis.
static ox_value *joined(ox *o, ox_node *n, const top *t, ox_value *x, int64_t size) {
    int64_t shape[CLI_MAX_RANK];
    const char *sym[CLI_MAX_RANK] = {NULL};
    int rank = 0;
    ox_need_sym(o, n, x);
    for (int a = 0; a < x->rank; a++) {
        if (a == t->axis) {
            shape[rank++] = size;
            a++;
        } else {
            shape[rank] = x->dims[a];
            sym[rank++] = x->sym[a];
        }
    }
    return ox_with_list(o, n, "Reshape", ".kept", x, "shape", (ox_list){rank, shape, sym});
}

// What is among the first of all is among the first of its piece. Equal ones keep their order.
static void keep_of_pieces(ox *o, ox_node *n, top *t, int64_t length) {
    int64_t pieces = (t->size + length - 1) / length;
    length = (t->size + pieces - 1) / pieces;
    top part = *t;
    ox_value *kept[2] = {NULL, NULL};
    const char *names[2] = {ox_fresh(o, ox_base(o, n), ".best"), NULL};
    if (ox_wants(n, 1)) {
        names[1] = ox_fresh(o, ox_base(o, n), ".best_at");
    }
    part.x = cut(o, n, t, t->x, ox_getf(ox_known(o, t->low), 0), pieces, length);
    if (t->from) {
        part.from = cut(o, n, t, t->from, 0, pieces, length);
    }
    part.axis = t->axis + 1;
    part.size = length;
    ox_need_shape(o, n, part.x);
    top_by_rank(o, n, &part, names, kept);
    if (kept[1] && !t->from) {
        ox_value *piece = ox_places(o, n, part.x->rank, t->axis, pieces);
        piece = ox_by_number(o, n, "Mul", ".begin", piece, (double)length);
        kept[1] = ox_binary(o, n, "Add", ".best_from", kept[1], piece);
    }
    t->size = pieces * t->count;
    t->x = joined(o, n, t, kept[0], t->size);
    t->from = kept[1] ? joined(o, n, t, kept[1], t->size) : NULL;
    ox_need_shape(o, n, t->x);
}

// ---- round by round ----

// What comes behind value `v` at place `p`, by value and then by place; the others are beyond.
static ox_value *behind(ox *o, ox_node *n, const top *t, ox_value *v, ox_value *p) {
    ox_value *same = ox_truth(o, n, "Equal", ".same", t->x, v);
    ox_value *right = ox_truth(o, n, "Greater", ".right", t->at, p);
    ox_value *tie = ox_truth(o, n, "And", ".tie", same, right);
    ox_value *less = ox_truth(o, n, t->largest ? "Less" : "Greater", ".less", t->x, v);
    ox_value *is = ox_truth(o, n, "Or", ".behind", less, tie);
    return ox_where(o, n, ".rest", is, t->x, t->low);
}

// The first place of value `v`; behind `p` where the value before, `u`, is the same.
static ox_value *first_place(ox *o, ox_node *n, const top *t, ox_value *v, ox_value *u,
                             ox_value *p) {
    ox_value *is = ox_truth(o, n, "Equal", ".is", t->x, v);
    if (u) {
        ox_value *next = ox_truth(o, n, t->largest ? "Less" : "Greater", ".next", v, u);
        ox_value *right = ox_truth(o, n, "Greater", ".right", t->at, p);
        is = ox_truth(o, n, "And", ".found", is, ox_truth(o, n, "Or", ".open", next, right));
    }
    return reduced(o, n, "ReduceMin", ".place", ox_where(o, n, ".at", is, t->at, t->none), t->axis);
}

// The extremum among what comes behind the one before, and the first place that has it.
static void top_by_rounds(ox *o, ox_node *n, top *t) {
    ox_value *all[2][MAX_TOP];
    t->at = ox_places(o, n, t->x->rank, t->axis, t->size);
    for (int i = 0; i < (int)t->count; i++) {
        ox_value *u = i ? all[0][i - 1] : NULL, *p = i ? all[1][i - 1] : NULL;
        ox_value *rest = i ? behind(o, n, t, u, p) : t->x;
        all[0][i] = reduced(o, n, t->largest ? "ReduceMax" : "ReduceMin", ".value", rest, t->axis);
        all[1][i] = first_place(o, n, t, all[0][i], u, p);
    }
    for (int i = 0; i < 2; i++) {
        if (ox_wants(n, i)) {
            ox_bind(o, n, i,
                    ox_concat(o, n, i ? ".places" : ".values", all[i], (int)t->count, t->axis));
        }
    }
}

// ---- the node ----

static int64_t take_k(ox *o, ox_node *n, int64_t size) {
    ox_list k = {0};
    if (n->opset >= 10 && (!ox_int_input(o, n, "K", 1, &k) || k.n != 1)) {
        ox_die(o, n, "TopK without a usable K");
    }
    int64_t count = n->opset < 10 ? ox_int(o, n, "k", 0) : k.v[0];
    if (count < 1 || count > size) {
        ox_die(o, n, "TopK of %lld from an axis of size %lld", (long long)count, (long long)size);
    }
    return count;
}

// Pieces until the rest is compared faster than cut. Pad has no number below all of type i64.
static void cut_down(ox *o, ox_node *n, top *t) {
    int64_t length;
    int cuts = t->x->rank + 2 > CLI_MAX_RANK || t->x->dtype == CLI_I64 ? 0 : MAX_CUTS;
    double time = time_of_pieces(t, t->size, cuts, &length);
    if (time > MAX_PAIRS && t->count > MAX_TOP) {
        ox_unsupported(o, n,
                       "TopK of %lld from an axis of size %lld: too much to compare, and one after "
                       "the other it finds %d at most; what comes behind it is the caller's",
                       (long long)t->count, (long long)t->size, MAX_TOP);
    }
    for (; length; time_of_pieces(t, t->size, --cuts, &length)) {
        keep_of_pieces(o, n, t, length);
    }
}

static void convert_top_k(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *out[2];
    top t = {.x = x, .rows = 1, .largest = ox_int(o, n, "largest", 1) != 0};
    ox_int(o, n, "sorted", 1);  // any order is right where none is asked for
    ox_need_shape(o, n, x);
    t.axis = ox_axis(o, n, ox_int(o, n, "axis", -1), x->rank);
    t.size = x->dims[t.axis];
    t.count = take_k(o, n, t.size);
    for (int a = 0; a < x->rank; a++) {
        t.rows *= a == t.axis ? 1 : (double)x->dims[a];
    }
    t.none = ox_number(o, n, ".none", CLI_I64, (double)t.size);
    if (t.count > 1) {
        t.low = beyond(o, n, x, t.largest);
        cut_down(o, n, &t);
    }
    if (by_rounds(&t)) {
        top_by_rounds(o, n, &t);
        return;
    }
    const char *names[2] = {n->out[0], n->n_out > 1 ? n->out[1] : NULL};
    top_by_rank(o, n, &t, names, out);
    for (int i = 0; i < 2; i++) {
        if (names[i]) {
            ox_bind(o, n, i, out[i]);
        }
    }
}

const ox_row ox_top_rows[] = {{"TopK", 1, 2, convert_top_k}, {NULL, 0, 0, NULL}};
