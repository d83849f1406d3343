// onnx_reduce.c - sums and products: matrices, Einsum, reductions, Softmax, running sums.
#include "onnx.h"

#include <ctype.h>

static void convert_gemm(ox *o, ox_node *n) {
    double alpha = ox_float(o, n, "alpha", 1), beta = ox_float(o, n, "beta", 1);
    int64_t a = ox_int(o, n, "transA", 0), b = ox_int(o, n, "transB", 0);
    ox_check_broadcast(o, n);
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_arg(o, ox_in(o, n, 1));
    ox_arg(o, ox_opt(o, n, 2));
    if (a) {
        ox_set_int(o, "transA", 1);
    }
    if (b) {
        ox_set_int(o, "transB", 1);
    }
    if (alpha != 1) {
        ox_set_float(o, "alpha", alpha);
    }
    if (beta != 1) {
        ox_set_float(o, "beta", beta);
    }
    ox_end_node(o, n, "Gemm");
}

// ---- Einsum ----

typedef struct {
    char of[128];   // letter in the text of a letter in the file; 0 where it has none yet
    char dots[10];  // letters of `...`, the last axis first
    bool taken[26];
    int uses[128];
    int broadcast;  // axes that `...` stands for, at most
    char *text;     // the equation so far, with room for the rest
    size_t n;
} letters;

static char free_letter(ox *o, ox_node *n, letters *l) {
    for (int i = 0; i < 26; i++) {
        if (!l->taken[i]) {
            l->taken[i] = true;
            return (char)('a' + i);
        }
    }
    ox_unsupported(o, n, "Einsum of more than 26 letters");
}

// Puts one operand's subscripts, or the result's (rank -1), up to `,`, `-` or the end.
static const char *put_letters(ox *o, ox_node *n, letters *l, const char *s, int rank) {
    int count = 0;
    for (const char *c = s; *c && *c != ',' && *c != '-'; c++) {
        count += isalpha((unsigned char)*c) != 0;
    }
    for (; *s && *s != ',' && *s != '-'; s++) {
        if (!strncmp(s, "...", 3)) {
            int axes = rank < 0 ? l->broadcast : rank - count;
            l->broadcast = axes > l->broadcast ? axes : l->broadcast;
            for (int a = axes; a-- > 0 && axes <= CLI_MAX_RANK;) {
                l->dots[a] = l->dots[a] ? l->dots[a] : free_letter(o, n, l);
                l->text[l->n++] = l->dots[a];
            }
            s += 2;
        } else if (isalpha((unsigned char)*s)) {
            char *letter = &l->of[(unsigned char)*s];
            *letter = *letter ? *letter : free_letter(o, n, l);
            l->uses[(unsigned char)*s] += rank >= 0;
            l->text[l->n++] = *letter;
        } else if (*s != ' ') {
            char shown[20], bad[2] = {*s, 0};
            ox_die(o, n, "Einsum with '%s' in its equation", cli_escape(shown, sizeof shown, bad));
        }
    }
    return s;
}

// The language's has small letters alone, and always a result.
static void convert_einsum(ox *o, ox_node *n) {
    const char *s = ox_string(o, n, "equation", "");
    letters l = {.broadcast = 0};
    char implied[3 + 'z' - 'A' + 2] = "...";
    // Dots stand for up to as many letters as a tensor has axes.
    size_t room = strlen(s) + sizeof implied;
    l.text = ox_alloc(o, (room + 1) * CLI_MAX_RANK + 4 * (size_t)n->n_in + 8);
    l.text[l.n++] = '"';
    for (const char *c = s; *c; c++) {  // small ones keep their names
        if (*c >= 'a' && *c <= 'z') {
            l.of[(unsigned char)*c] = *c;
            l.taken[*c - 'a'] = true;
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        ox_value *x = ox_in(o, n, i);
        ox_need_shape(o, n, x);
        s = put_letters(o, n, &l, s, x->rank);
        s += *s == ',';
        for (const char *c = i + 1 < n->n_in ? "," : "->"; *c; c++) {
            l.text[l.n++] = *c;
        }
    }
    if (!strncmp(s, "->", 2)) {
        put_letters(o, n, &l, s + 2, -1);
    } else {  // letters that stand once, in the order of the alphabet
        size_t k = strlen(implied);
        for (int c = 'A'; c <= 'z'; c++) {
            if (l.uses[c] == 1) {
                implied[k++] = (char)c;
            }
        }
        implied[k] = 0;
        put_letters(o, n, &l, implied, -1);
    }
    l.text[l.n++] = '"';
    ox_begin(o);
    for (int i = 0; i < n->n_in; i++) {
        ox_arg(o, ox_in(o, n, i));
    }
    ox_set_word(o, "equation", l.text);
    ox_end_node(o, n, "Einsum");
}

// ---- reductions ----

static void convert_reduce(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list axes;
    int64_t all[CLI_MAX_RANK];
    bool keep = ox_int(o, n, "keepdims", 1) != 0;
    bool noop = ox_int(o, n, "noop_with_empty_axes", 0) != 0;
    if (!ox_int_input(o, n, "axes", 1, &axes) || !axes.n) {
        if (noop) {
            ox_bind(o, n, 0, x);
            return;
        }
        ox_need_shape(o, n, x);
        axes = (ox_list){x->rank, all, NULL};
        for (int a = 0; a < x->rank; a++) {
            all[a] = a;
        }
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "axes", axes);
    ox_set_int(o, "keepdims", keep);
    ox_end_node(o, n, n->op);
}

static void convert_place(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    int64_t axis = ox_int(o, n, "axis", 0);
    bool keep = ox_int(o, n, "keepdims", 1) != 0;
    bool last = ox_int(o, n, "select_last_index", 0) != 0;
    const char *name = ox_first(o, n);
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    ox_set_int(o, "keepdims", keep);
    ox_set_int(o, "select_last_index", last);
    ox_bind(o, n, 0, ox_end(o, n->op, name, CLI_I64));
}

// Before opset 13 Softmax works on the matrix that its axis splits the tensor into.
ox_value *ox_softmax(ox *o, ox_node *n, const char *op, ox_value *x, int64_t opset,
                     const char *name) {
    int64_t axis = ox_int(o, n, "axis", opset < 13 ? 1 : -1);
    bool last = opset >= 13;
    if (!last) {
        ox_need_sym(o, n, x);
        axis = ox_axis(o, n, axis, x->rank);
        last = true;
        for (int a = (int)axis + 1; a < x->rank; a++) {
            last = last && x->dims[a] == 1 && !x->sym[a];
        }
        axis = last && axis == x->rank - 1 ? -1 : axis;
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_int(o, "axis", axis);
    if (last) {
        return ox_end(o, op, name, x->dtype);
    }
    ox_value *flat = ox_end(o, "Flatten", ox_fresh(o, name, ".flat"), x->dtype);
    ox_begin(o);
    ox_arg(o, flat);
    ox_set_int(o, "axis", -1);
    ox_value *soft = ox_end(o, op, ox_fresh(o, name, ".rows"), x->dtype);
    ox_begin(o);
    ox_arg(o, soft);
    ox_set_list(o, "shape", (ox_list){x->rank, x->dims, (const char **)(uintptr_t)x->sym});
    return ox_end(o, "Reshape", name, x->dtype);
}

static void convert_softmax(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_bind(o, n, 0, ox_softmax(o, n, n->op, x, n->opset, ox_first(o, n)));
}

static void convert_cum_sum(ox *o, ox_node *n) {
    ox_list axis;
    bool exclusive = ox_int(o, n, "exclusive", 0) != 0, reverse = ox_int(o, n, "reverse", 0) != 0;
    if (!ox_int_input(o, n, "axis", 1, &axis) || axis.n != 1) {
        ox_die(o, n, "CumSum without a usable axis");
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "axis", axis.v[0]);
    ox_set_int(o, "exclusive", exclusive);
    ox_set_int(o, "reverse", reverse);
    ox_end_node(o, n, "CumSum");
}

// No operator of the language: every element's product of those up to it, the others left out as 1.
// Elements lie along `axis` of the result, what they are products of along the one behind it.
static void convert_cum_prod(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_list list;
    bool exclusive = ox_int(o, n, "exclusive", 0) != 0, reverse = ox_int(o, n, "reverse", 0) != 0;
    if (!ox_int_input(o, n, "axis", 1, &list) || list.n != 1) {
        ox_die(o, n, "CumProd without a usable axis");
    }
    ox_need_shape(o, n, x);
    int64_t axis = ox_axis(o, n, list.v[0], x->rank), behind = axis + 1, size = x->dims[axis];
    if (x->rank == CLI_MAX_RANK || size > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "CumProd of %d axes or %lld elements", x->rank, (long long)size);
    }
    const char *order = exclusive ? reverse ? "Greater" : "Less"
                        : reverse ? "GreaterOrEqual"
                                  : "LessOrEqual";
    ox_value *is = ox_truth(o, n, order, ".is", ox_places(o, n, x->rank + 1, behind, size),
                            ox_places(o, n, x->rank + 1, axis, size));
    ox_value *rows = ox_with_int(o, n, "Unsqueeze", ".rows", x, "axes", axis);
    rows = ox_where(o, n, ".factors", is, rows, ox_number(o, n, ".one", x->dtype, 1));
    ox_begin(o);
    ox_arg(o, rows);
    ox_set_list(o, "axes", (ox_list){1, &behind, NULL});
    ox_set_int(o, "keepdims", 0);
    ox_end_node(o, n, "ReduceProd");
}

// ---- the table ----

const ox_row ox_reduce_rows[] = {
    {"MatMul", 2, 2, ox_plain},
    {"Gemm", 2, 3, convert_gemm},
    {"Einsum", 1, -1, convert_einsum},
    {"Softmax", 1, 1, convert_softmax},
    {"LogSoftmax", 1, 1, convert_softmax},
    {"ReduceMean", 1, 2, convert_reduce},
    {"ReduceSum", 1, 2, convert_reduce},
    {"ReduceMax", 1, 2, convert_reduce},
    {"ReduceMin", 1, 2, convert_reduce},
    {"ReduceProd", 1, 2, convert_reduce},
    {"ReduceSumSquare", 1, 2, convert_reduce},
    {"ReduceL1", 1, 2, convert_reduce},
    {"ReduceL2", 1, 2, convert_reduce},
    {"ReduceLogSum", 1, 2, convert_reduce},
    {"ReduceLogSumExp", 1, 2, convert_reduce},
    {"ArgMax", 1, 1, convert_place},
    {"ArgMin", 1, 1, convert_place},
    {"CumSum", 2, 2, convert_cum_sum},
    {"CumProd", 2, 2, convert_cum_prod},
    {NULL, 0, 0, NULL},
};
