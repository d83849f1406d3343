// onnx_attention.c - Attention (opset 23), written out: products, a mask, Softmax. Which kernel
// computes them is found later, in expressions.
#include "onnx.h"

#include <math.h>

typedef struct {
    ox *o;
    ox_node *n;
    ox_value *q, *k, *v;  // [N,H,S,D]
    int64_t q_heads, kv_heads;
    bool flat;  // inputs are [N,S,H*D]
} heads;

static ox_value *turned(heads *h, const char *suffix, ox_value *x, const int64_t *perm) {
    return ox_with_list(h->o, h->n, "Transpose", suffix, x, "perm", (ox_list){4, perm, NULL});
}

// [N,S,H*D] as [N,H,S,D].
static ox_value *by_heads(heads *h, const char *suffix, ox_value *x, int64_t count) {
    static const int64_t perm[4] = {0, 2, 1, 3};
    ox_need_sym(h->o, h->n, x);
    if (count < 1 || x->dims[2] % count) {
        ox_die(h->o, h->n, "operator 'Attention' without a usable number of heads");
    }
    int64_t dims[4] = {x->dims[0], x->dims[1], count, x->dims[2] / count};
    const char *sym[4] = {x->sym[0], x->sym[1], NULL, NULL};
    x = ox_with_list(h->o, h->n, "Reshape", suffix, x, "shape", (ox_list){4, dims, sym});
    return turned(h, suffix, x, perm);
}

static void take_heads(heads *h) {
    ox_value **in[3] = {&h->q, &h->k, &h->v};
    static const char *const suffix[3] = {".q", ".k", ".v"};
    h->q_heads = ox_int(h->o, h->n, "q_num_heads", 0);
    h->kv_heads = ox_int(h->o, h->n, "kv_num_heads", 0);
    for (int i = 0; i < 3; i++) {
        ox_value *x = ox_in(h->o, h->n, i);
        ox_need_shape(h->o, h->n, x);
        h->flat = x->rank == 3;
        if (x->rank != 3 && x->rank != 4) {
            ox_die(h->o, h->n, "operator 'Attention' on an input of %d axes", x->rank);
        }
        if (h->flat) {
            x = by_heads(h, suffix[i], x, i ? h->kv_heads : h->q_heads);
            ox_need_shape(h->o, h->n, x);
        }
        *in[i] = x;
    }
    h->q_heads = h->q->dims[1];
    h->kv_heads = h->k->dims[1];
    if (h->q_heads % h->kv_heads || h->v->dims[1] != h->kv_heads) {
        ox_die(h->o, h->n, "operator 'Attention' whose numbers of heads do not fit");
    }
}

// Keys or values behind those of the past, which are an output too.
static ox_value *after_past(heads *h, ox_value *x, int input, int output, const char *suffix) {
    ox_value *past = ox_opt(h->o, h->n, input);
    if (past) {
        ox_value *parts[2] = {past, x};
        ox_need_shape(h->o, h->n, past);
        x = ox_concat(h->o, h->n, suffix, parts, 2, 2);
        ox_need_shape(h->o, h->n, x);
    }
    ox_bind_as(h->o, h->n, output, "Identity", x, NULL, (ox_list){0});
    return x;
}

// Heads that queries share, once for each of these.
static ox_value *repeated(heads *h, const char *suffix, ox_value *x) {
    int64_t times = h->q_heads / h->kv_heads;
    if (times == 1) {
        return x;
    }
    ox_need_sym(h->o, h->n, x);
    int64_t spread[5] = {x->dims[0], x->dims[1], times, x->dims[2], x->dims[3]};
    int64_t whole[4] = {x->dims[0], h->q_heads, x->dims[2], x->dims[3]};
    const char *sym[5] = {x->sym[0], NULL, NULL, x->sym[2], NULL};
    const char *sym_whole[4] = {x->sym[0], NULL, x->sym[2], NULL};
    x = ox_with_int(h->o, h->n, "Unsqueeze", suffix, x, "axes", 2);
    x = ox_with_list(h->o, h->n, "Expand", suffix, x, "shape", (ox_list){5, spread, sym});
    return ox_with_list(h->o, h->n, "Reshape", suffix, x, "shape", (ox_list){4, whole, sym_whole});
}

// 0 where a query may look, lowest where the key is behind it; queries begin after the past.
static ox_value *causal_mask(heads *h, int64_t rows, int64_t columns, int64_t past) {
    int64_t dims[2] = {rows, columns}, count;
    if (!cli_count(2, dims, &count) || count > OX_FOLD_LIMIT) {
        ox_unsupported(h->o, h->n, "operator 'Attention' with is_causal over %lld x %lld",
                       (long long)rows, (long long)columns);
    }
    ox_const *c = ox_make(h->o, h->q->dtype, 2, dims);
    for (int64_t i = 0; i < count; i++) {
        ox_setf(c, i, i % columns > i / columns + past ? -HUGE_VAL : 0);
    }
    return ox_constant(h->o, ox_base(h->o, h->n), ".causal", c);
}

static ox_value *masked(heads *h, ox_value *scores, bool causal) {
    ox *o = h->o;
    ox_node *n = h->n;
    ox_value *mask = ox_opt(o, n, 3);
    int64_t keys = h->k->dims[2];
    if (mask) {
        ox_need_shape(o, n, mask);
        if (mask->rank < 1 || (mask->dims[mask->rank - 1] != keys && keys != 1)) {
            ox_unsupported(o, n, "operator 'Attention' with a mask of fewer keys");
        }
        if (mask->dtype == CLI_BOOL) {
            ox_value *low = ox_number(o, n, ".lowest", scores->dtype, -HUGE_VAL);
            scores = ox_where(o, n, ".masked", mask, scores, low);
        } else {
            scores = ox_binary(o, n, "Add", ".masked", scores, mask);
        }
    }
    if (causal) {
        ox_value *past = ox_opt(o, n, 4);
        mask = causal_mask(h, h->q->dims[2], keys, past ? past->dims[2] : 0);
        scores = ox_binary(o, n, "Add", ".seen", scores, mask);
    }
    return scores;
}

static ox_value *scores_of(heads *h, bool causal) {
    static const int64_t perm[4] = {0, 1, 3, 2};
    ox *o = h->o;
    ox_node *n = h->n;
    double usual = 1 / sqrt((double)h->q->dims[3]), cap = ox_float(o, n, "softcap", 0);
    ox_value *k = turned(h, ".turned", repeated(h, ".keys", h->k), perm);
    ox_value *s = ox_binary(o, n, "MatMul", ".scores", h->q, k);
    s = ox_by_number(o, n, "Mul", ".scaled", s, ox_float(o, n, "scale", usual));
    if (cap != 0 && (causal || ox_opt(o, n, 3))) {
        ox_unsupported(o, n, "operator 'Attention' with a softcap and a mask");
    }
    if (cap != 0) {
        s = ox_unary(o, n, "Tanh", ".capped", ox_by_number(o, n, "Div", ".cap", s, cap));
        s = ox_by_number(o, n, "Mul", ".capped", s, cap);
    }
    return masked(h, s, causal);
}

static void convert_attention(ox *o, ox_node *n) {
    static const int64_t perm[4] = {0, 2, 1, 3};
    heads h = {.o = o, .n = n};
    bool causal = ox_int(o, n, "is_causal", 0) != 0;
    ox_find(o, n, "softmax_precision");
    ox_find(o, n, "qk_matmul_output_mode");
    take_heads(&h);
    if (ox_wants(n, 3) || ox_opt(o, n, 6)) {
        ox_unsupported(o, n, "operator 'Attention' whose scores are an output, or of padded keys");
    }
    h.k = after_past(&h, h.k, 4, 1, ".keys");
    h.v = after_past(&h, h.v, 5, 2, ".values");
    ox_value *s = scores_of(&h, causal);
    ox_begin(o);
    ox_arg(o, s);
    ox_set_int(o, "axis", -1);
    s = ox_end(o, "Softmax", ox_fresh(o, ox_base(o, n), ".weights"), s->dtype);
    if (ox_opt(o, n, 3)) {  // a query that sees no key gives 0
        ox_value *none = ox_unary(o, n, "IsNaN", ".none", s);
        none->dtype = CLI_BOOL;
        s = ox_where(o, n, ".found", none, ox_number(o, n, ".zero", s->dtype, 0), s);
    }
    ox_value *v = repeated(&h, ".values", h.v);
    if (!h.flat) {
        ox_end_binary(o, n, "MatMul", s, v);
        return;
    }
    ox_value *y = ox_binary(o, n, "MatMul", ".heads", s, v);
    ox_need_sym(o, n, y);
    int64_t dims[3] = {y->dims[0], y->dims[2], y->dims[1] * y->dims[3]};
    const char *sym[3] = {y->sym[0], y->sym[2], NULL};
    ox_end_list(o, n, "Reshape", turned(&h, ".rows", y, perm), "shape", (ox_list){3, dims, sym});
}

const ox_row ox_attention_rows[] = {
    {"Attention", 3, 7, convert_attention},
    {NULL, 0, 0, NULL},
};
