// onnx_pick.c - operators that pick elements of an axis: Gather and its kin, OneHot, Hardmax, TopK.
#include "onnx.h"

// Known positions with those from the end counted from 0; in range.
static ox_value *known_positions(ox *o, ox_node *n, ox_value *at, const ox_const *c, int64_t size) {
    bool negative = false;
    if (c->count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' with %lld positions", n->op, (long long)c->count);
    }
    ox_const *r = ox_make(o, CLI_I64, c->rank, c->dims);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t p = ox_geti(c, i);
        if (p < -size || p >= size) {
            ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)size);
        }
        negative = negative || p < 0;
        ox_seti(r, i, p < 0 ? p + size : p);
    }
    return negative ? ox_constant(o, n->out[0], ".positions", r) : at;
}

// Positions that are base + sum step * index.
typedef struct {
    int rank;
    int64_t base, step[CLI_MAX_RANK], dims[CLI_MAX_RANK];
} affine;

static bool find_affine(const ox_const *c, affine *f) {
    int64_t stride = 1;
    *f = (affine){.rank = c->rank, .base = ox_geti(c, 0)};
    for (int a = c->rank - 1; a >= 0; a--) {
        f->dims[a] = c->dims[a];
        f->step[a] = c->dims[a] > 1 ? ox_geti(c, stride) - f->base : 0;
        stride *= c->dims[a];
    }
    for (int64_t i = 0; i < c->count; i++) {
        int64_t rest = i, p = f->base;
        for (int a = c->rank - 1; a >= 0; a--) {
            p += rest % c->dims[a] * f->step[a];
            rest /= c->dims[a];
        }
        if (p != ox_geti(c, i)) {
            return false;
        }
    }
    return true;
}

static const char *affine_text(ox *o, const affine *f, const char *index, int from) {
    char *text = NULL;
    for (int a = 0; a < f->rank; a++) {
        int64_t by = f->step[a] < 0 ? -f->step[a] : f->step[a];
        if (by) {
            ox_put(&text, "%s", f->step[a] < 0 ? "-" : arrlen(text) ? "+" : "");
            if (by > 1) {
                ox_put(&text, "%lld*", (long long)by);
            }
            ox_put(&text, "%s%d", index, from + a);
        }
    }
    if (f->base || !arrlen(text)) {
        ox_put(&text, arrlen(text) ? "%+lld" : "%lld", (long long)f->base);
    }
    return ox_take(o, &text);
}

// The result's indices, the name of x, the places that are read, the ranges.
static void put_reads(ox *o, ox_node *n, ox_value *x, const char *const part[4]) {
    ox_begin(o);
    ox_arg(o, x);
    ox_put(&o->attrs, "[%s] = %s[%s]" OX_BREAK_FIRST "where %s", part[0], part[1], part[2],
           part[3]);
    ox_end_node(o, n, NULL);
}

// Windows, strided or mirrored elements: where they stand is part of the program.
static void read_affine(ox *o, ox_node *n, ox_value *x, int axis, const affine *f) {
    const char *index = ox_free_name(o, "i");
    char *head = NULL, *reads = NULL, *ranges = NULL, *name = NULL;
    ox_put_name(&name, x->name);
    for (int a = 0, at = 0; a < x->rank; a++) {
        int count = a == axis ? f->rank : 1;
        ox_put(&reads, "%s", a ? "," : "");
        if (a == axis) {
            ox_put(&reads, "%s", affine_text(o, f, index, at));
        } else {
            ox_put(&reads, "%s%d", index, at);
        }
        for (int k = 0; k < count; k++, at++) {
            ox_put(&head, "%s%s%d", at ? "," : "", index, at);
            if (a == axis) {
                ox_put(&ranges, "%s%s%d in 0:%lld", k ? OX_COMMA : "", index, at,
                       (long long)f->dims[k]);
            }
        }
    }
    put_reads(o, n, x,
              (const char *[]){ox_take(o, &head), ox_take(o, &name), ox_take(o, &reads),
                               ox_take(o, &ranges)});
}

// As read_affine for GatherElements, whose positions have the result's axes.
static void read_elements(ox *o, ox_node *n, ox_value *x, int axis, const affine *f) {
    const char *index = ox_free_name(o, "i");
    char *head = NULL, *reads = NULL, *ranges = NULL, *name = NULL;
    ox_put_name(&name, x->name);
    for (int a = 0; a < f->rank; a++) {
        ox_put(&head, "%s%s%d", a ? "," : "", index, a);
        ox_put(&ranges, "%s%s%d in 0:%lld", a ? OX_COMMA : "", index, a, (long long)f->dims[a]);
        if (a == axis) {
            ox_put(&reads, "%s%s", a ? "," : "", affine_text(o, f, index, 0));
        } else {
            ox_put(&reads, "%s%s%d", a ? "," : "", index, a);
        }
    }
    put_reads(o, n, x,
              (const char *[]){ox_take(o, &head), ox_take(o, &name), ox_take(o, &reads),
                               ox_take(o, &ranges)});
}

// Positions that follow a rule; those out of range were refused before.
bool ox_read_in_place(ox *o, ox_node *n, ox_value *x, const ox_const *c, int axis) {
    affine f;
    bool elements = !strcmp(n->op, "GatherElements");
    int rank = elements ? c->rank : x->rank - 1 + c->rank;
    if (!c->rank || c->count < 2 || !ox_is_float(x->dtype) || rank > CLI_MAX_RANK ||
        (elements && c->rank != x->rank) || !find_affine(c, &f)) {
        return false;
    }
    if (elements) {
        read_elements(o, n, x, axis, &f);
    } else {
        read_affine(o, n, x, axis, &f);
    }
    return true;
}

// Whether numbers may be negative, as far as at most `*visits` values before them tell.
static bool may_be_negative(ox *o, ox_value *v, int *visits) {
    // Of the first: none. Of the second: one where all operands are known to be none, of Where but
    // for its condition. Of the third: none where one operand is.
    static const char never[] = " ArgMax ArgMin Abs Relu Sigmoid ",
                      all[] =
                          " Identity Reshape Flatten Unsqueeze Squeeze Transpose Slice Split "
                          "Concat Expand Tile Cast Add Mul Div Min Where ReduceSum ReduceMax "
                          "ReduceMin ReduceProd CumSum Floor Ceil Round TopK ",
                      one[] = " Max Mod ";
    const ox_const *c = ox_known(o, v);
    const ox_stmt *s = v->maker;
    if (c && c->count <= OX_FOLD_LIMIT) {
        bool negative = false;
        for (int64_t i = 0; i < (c->splat ? 1 : c->count); i++) {
            negative = negative || !(ox_getf(c, i) >= 0);
        }
        return negative;
    }
    if (v->dtype == CLI_BOOL || v->dtype == CLI_U8) {
        return false;
    }
    if (c || !s || !s->op || --*visits < 0) {
        return true;
    }
    if (!strcmp(s->op, "TopK") && v != s->outs[0]) {  // places
        return false;
    }
    const char *op = ox_format(o, " %s ", s->op);
    bool some = strstr(one, op) != NULL, few = some || strstr(all, op);
    bool where = !strcmp(s->op, "Where"), any = !few, every = true;
    for (ptrdiff_t i = where; i < arrlen(s->args) && few; i++) {
        bool may = s->args[i] && may_be_negative(o, s->args[i], visits);
        any = any || may;
        every = every && may;
    }
    return !strstr(never, op) && (some ? every : any);
}

// What the language does with a negative position is not what ONNX does, so it is said.
static void note_lookup(ox *o, ox_node *n, ox_value *at) {
    enum { VISITS = 64 };
    int visits = VISITS;
    if (may_be_negative(o, at, &visits)) {
        ox_name_node(o, n, &o->lookups);
    }
}

static void gather(ox *o, ox_node *n, int64_t axis) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    const ox_const *c = ox_known(o, at);
    if (at->dtype != CLI_I32 && at->dtype != CLI_I64) {
        ox_die(o, n, "%s with positions of type %s", n->op, cli_dtype_name(at->dtype));
    }
    const char *name = ox_first(o, n);
    if (c) {
        at = known_positions(o, n, at, c, x->dims[axis]);
        if (ox_read_in_place(o, n, x, ox_known(o, at), (int)axis)) {
            return;
        }
    } else {
        note_lookup(o, n, at);
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, at);
    ox_set_int(o, "axis", axis);
    ox_bind(o, n, 0, ox_end(o, n->op, name, x->dtype));
}

// Consecutive known positions are a Slice.
static void convert_gather(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    const ox_const *index = ox_known(o, ox_in(o, n, 1));
    ox_need_shape(o, n, x);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank);
    bool follow = index && index->rank <= 1 && index->count > 0 && !ox_is_float(index->dtype) &&
                  index->count <= OX_FOLD_LIMIT;
    int64_t start = follow ? ox_geti(index, 0) : 0;
    for (int64_t i = 0; follow && i < index->count; i++) {
        follow = ox_geti(index, i) == start + i;
    }
    start += start < 0 ? x->dims[axis] : 0;
    int64_t end = start + (index ? index->count : 0);
    if (!follow || (start >= 0 && start < x->dims[axis] && end > x->dims[axis])) {
        gather(o, n, axis);
        return;
    }
    if (start < 0 || end > x->dims[axis]) {
        ox_die(o, n, "Gather index outside an axis of size %lld", (long long)x->dims[axis]);
    }
    const char *name = ox_first(o, n);
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "starts", (ox_list){1, &start, NULL});
    ox_set_list(o, "ends", (ox_list){1, &end, NULL});
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    if (index->rank == 1) {
        ox_end_node(o, n, "Slice");
        return;
    }
    ox_value *row = ox_end(o, "Slice", ox_fresh(o, name, ".row"), x->dtype);
    ox_end_list(o, n, "Squeeze", row, "axes", (ox_list){1, &axis, NULL});
}

static void convert_gather_elements(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    gather(o, n, ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank));
}

// ---- one of an axis ----

static void convert_one_hot(ox *o, ox_node *n) {
    ox_value *at = ox_in(o, n, 0), *both = ox_in(o, n, 2);
    const ox_const *depth = ox_known(o, ox_in(o, n, 1)), *values = ox_known(o, both);
    if (!depth || depth->count != 1 || !values || values->count != 2) {
        ox_unsupported(o, n, "OneHot with a depth or values that are not known");
    }
    ox_need_shape(o, n, at);
    int64_t size = ox_geti(depth, 0);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", -1), at->rank + 1);
    if (size < 1 || size > OX_FOLD_LIMIT || at->rank + 1 > CLI_MAX_RANK) {
        ox_die(o, n, "OneHot with a depth of %lld", (long long)size);
    }
    at = ox_with_int(o, n, "Unsqueeze", ".column", ox_cast_to(o, n, ".whole", at, CLI_I64), "axes",
                     axis);
    ox_value *count = ox_number(o, n, ".depth", CLI_I64, (double)size);
    ox_value *negative =
        ox_truth(o, n, "Less", ".negative", at, ox_number(o, n, ".zero", CLI_I64, 0));
    at = ox_where(o, n, ".counted", negative, ox_binary(o, n, "Add", ".from_end", at, count), at);
    ox_value *number[2];
    for (int i = 0; i < 2; i++) {
        ox_const *c = ox_make(o, values->dtype, 0, NULL);
        ox_setf(c, 0, ox_getf(values, i));
        number[i] = ox_constant(o, ox_base(o, n), i ? ".on" : ".off", c);
    }
    int rank = ox_shape(o, at) ? at->rank : 0;
    ox_value *is = ox_truth(o, n, "Equal", ".is", ox_places(o, n, rank, axis, size), at);
    ox_begin(o);
    ox_arg(o, is);
    ox_arg(o, number[1]);
    ox_arg(o, number[0]);
    ox_end_node(o, n, "Where");
}

static void convert_hardmax(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    int64_t axis = ox_int(o, n, "axis", n->opset < 13 ? 1 : -1);
    ox_need_shape(o, n, x);
    axis = ox_axis(o, n, axis, x->rank);
    if (n->opset < 13 && axis != x->rank - 1) {
        ox_unsupported(o, n, "Hardmax of opset %lld over several axes", (long long)n->opset);
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    ox_set_int(o, "keepdims", 1);
    ox_set_int(o, "select_last_index", 0);
    ox_value *at = ox_end(o, "ArgMax", ox_fresh(o, ox_base(o, n), ".place"), CLI_I64);
    ox_value *is =
        ox_truth(o, n, "Equal", ".is", ox_places(o, n, x->rank, axis, x->dims[axis]), at);
    ox_begin(o);
    ox_arg(o, is);
    ox_set_word(o, "to", cli_dtype_name(x->dtype));
    ox_bind(o, n, 0, ox_end(o, "Cast", n->out[0], x->dtype));
}

// ---- TopK ----

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

static void convert_top_k(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *out[2];
    ox_need_shape(o, n, x);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", -1), x->rank);
    int64_t largest = ox_int(o, n, "largest", 1), count = take_k(o, n, x->dims[axis]);
    ox_int(o, n, "sorted", 1);  // any order is right where none is asked for
    bool places = ox_wants(n, 1);
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "k", count);
    if (axis != x->rank - 1) {
        ox_set_int(o, "axis", axis);
    }
    if (!largest) {
        ox_set_int(o, "largest", 0);
    }
    for (int i = 0; i < 1 + places; i++) {
        const char *name = ox_wants(n, i) ? n->out[i] : ox_fresh(o, ox_base(o, n), ".values");
        out[i] = ox_new_value(o, name, i ? CLI_I64 : x->dtype);
    }
    ox_finish(o, "TopK", out, 1 + places);
    for (int i = 0; i < 1 + places; i++) {
        if (ox_wants(n, i)) {
            ox_bind(o, n, i, out[i]);
        }
    }
}

// ---- the table ----

const ox_row ox_pick_rows[] = {
    {"Gather", 2, 2, convert_gather},  {"GatherElements", 2, 2, convert_gather_elements},
    {"OneHot", 3, 3, convert_one_hot}, {"Hardmax", 1, 1, convert_hardmax},
    {"TopK", 1, 2, convert_top_k},     {NULL, 0, 0, NULL},
};
