// onnx_attention.c - Attention and RotaryEmbedding (opset 23), written out: products, a mask,
// Softmax; rotations. Which kernel computes them is found later, in expressions.
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

// What queries may see of keys: at most so many before and behind their own place, -1: any number.
typedef struct {
    int64_t left, right;
} sight;

static sight take_sight(heads *h) {
    sight z = {ox_int(h->o, h->n, "left_window_size", -1),
               ox_int(h->o, h->n, "right_window_size", -1)};
    if (z.left < -1 || z.right < -1) {
        ox_die(h->o, h->n, "operator 'Attention' with a window of negative size");
    }
    if (ox_int(h->o, h->n, "is_causal", 0)) {
        z.right = 0;
    }
    return z;
}

// 0 where a query may look, lowest where it may not; queries begin after the past.
static ox_value *sight_mask(heads *h, const sight *z, int64_t rows, int64_t columns, int64_t past) {
    int64_t dims[2] = {rows, columns}, count;
    if (!cli_count(2, dims, &count) || count > OX_FOLD_LIMIT) {
        ox_unsupported(h->o, h->n,
                       "operator 'Attention' with is_causal or a window over %lld x %lld",
                       (long long)rows, (long long)columns);
    }
    ox_const *c = ox_make(h->o, h->q->dtype, 2, dims);
    for (int64_t i = 0; i < count; i++) {
        int64_t behind = i % columns - i / columns - past;
        bool hidden = (z->right >= 0 && behind > z->right) || (z->left >= 0 && -behind > z->left);
        ox_setf(c, i, hidden ? -HUGE_VAL : 0);
    }
    return ox_constant(h->o, ox_base(h->o, h->n), ".causal", c);
}

// Scores of keys that `seen` tells.
static ox_value *only(heads *h, const char *suffix, ox_value *scores, ox_value *seen) {
    ox_value *low = ox_number(h->o, h->n, ".lowest", scores->dtype, -HUGE_VAL);
    return ox_where(h->o, h->n, suffix, seen, scores, low);
}

// Scores where each batch has as many keys as `lengths` says, of which its queries are the last.
static ox_value *padded(heads *h, const sight *z, ox_value *scores, ox_value *lengths) {
    static const int64_t axes[3] = {1, 2, 3};
    ox *o = h->o;
    ox_node *n = h->n;
    int64_t rows = h->q->dims[2], keys = h->k->dims[2];
    if (lengths->dtype != CLI_I64 || ox_opt(o, n, 4)) {
        ox_die(o, n, "operator 'Attention' with lengths that are no int64, or a past beside them");
    }
    lengths =
        ox_with_list(o, n, "Unsqueeze", ".lengths", lengths, "axes", (ox_list){3, axes, NULL});
    ox_value *key = ox_places(o, n, 4, 3, keys);
    scores = only(h, ".there", scores, ox_truth(o, n, "Less", ".stored", key, lengths));
    if (z->left < 0 && z->right < 0) {
        return scores;
    }
    ox_value *row = ox_binary(o, n, "Add", ".row", ox_places(o, n, 4, 2, rows), lengths);
    if (z->right >= 0) {
        ox_value *last = ox_by_number(o, n, "Add", ".last", row, (double)(z->right - rows));
        scores = only(h, ".seen", scores, ox_truth(o, n, "LessOrEqual", ".behind", key, last));
    }
    if (z->left >= 0) {
        ox_value *first = ox_by_number(o, n, "Sub", ".first", row, (double)(z->left + rows));
        scores = only(h, ".near", scores, ox_truth(o, n, "GreaterOrEqual", ".ahead", key, first));
    }
    return scores;
}

// The mask for all keys: those that it leaves out are hidden.
static ox_value *whole_mask(heads *h, ox_value *mask) {
    ox *o = h->o;
    ox_node *n = h->n;
    int64_t dims[CLI_MAX_RANK], keys = h->k->dims[2];
    ox_need_sym(o, n, mask);
    int last = mask->rank - 1;
    bool fits = last >= 0 && mask->dims[last] <= keys, fixed = true;
    for (int a = 0; a <= last; a++) {
        dims[a] = mask->dims[a];
        fixed = fixed && !mask->sym[a];
    }
    if (!fits) {
        ox_die(o, n, "operator 'Attention' with a mask of more than %lld keys", (long long)keys);
    }
    if (dims[last] == keys) {
        return mask;
    }
    if (!fixed) {
        ox_unsupported(o, n,
                       "operator 'Attention' with a mask of fewer keys and of sizes that "
                       "the model leaves open");
    }
    dims[last] = keys - dims[last];
    ox_const *c = ox_make(o, mask->dtype, mask->rank, dims);
    for (int64_t i = 0; i < c->count && mask->dtype != CLI_BOOL; i++) {
        ox_setf(c, i, -HUGE_VAL);
    }
    ox_value *parts[2] = {mask, ox_constant(o, ox_base(o, n), ".hidden", c)};
    return ox_concat(o, n, ".mask", parts, 2, last);
}

static ox_value *masked(heads *h, ox_value *scores, const sight *z) {
    ox *o = h->o;
    ox_node *n = h->n;
    ox_value *mask = ox_opt(o, n, 3), *past = ox_opt(o, n, 4), *lengths = ox_opt(o, n, 6);
    int64_t keys = h->k->dims[2];
    if (mask) {
        mask = whole_mask(h, mask);
        scores = mask->dtype == CLI_BOOL ? only(h, ".masked", scores, mask)
                                         : ox_binary(o, n, "Add", ".masked", scores, mask);
    }
    if (lengths) {
        return padded(h, z, scores, lengths);
    }
    if (z->left >= 0 || z->right >= 0) {
        mask = sight_mask(h, z, h->q->dims[2], keys, past ? past->dims[2] : 0);
        scores = ox_binary(o, n, "Add", ".seen", scores, mask);
    }
    return scores;
}

// The scores, or what they become, as an output.
static void give_scores(heads *h, int64_t mode, int64_t wanted, ox_value *s) {
    if (mode == wanted) {
        ox_bind_as(h->o, h->n, 3, "Identity", s, NULL, (ox_list){0});
    }
}

// The mask comes after the cap: what it hides stays hidden.
static ox_value *scores_of(heads *h, const sight *z, int64_t mode) {
    static const int64_t perm[4] = {0, 1, 3, 2};
    ox *o = h->o;
    ox_node *n = h->n;
    double usual = 1 / sqrt((double)h->q->dims[3]), cap = ox_float(o, n, "softcap", 0);
    ox_value *k = turned(h, ".turned", repeated(h, ".keys", h->k), perm);
    ox_value *s = ox_binary(o, n, "MatMul", ".scores", h->q, k);
    s = ox_by_number(o, n, "Mul", ".scaled", s, ox_float(o, n, "scale", usual));
    give_scores(h, mode, 0, s);
    if (cap > 0) {
        s = ox_unary(o, n, "Tanh", ".capped", ox_by_number(o, n, "Div", ".cap", s, cap));
        s = ox_by_number(o, n, "Mul", ".capped", s, cap);
    }
    give_scores(h, mode, 1, s);
    s = masked(h, s, z);
    give_scores(h, mode, 2, s);
    return s;
}

// Of a row without any key that is seen all weights are 0.
static ox_value *weights_of(heads *h, const sight *z, ox_value *s) {
    ox *o = h->o;
    ox_node *n = h->n;
    ox_begin(o);
    ox_arg(o, s);
    ox_set_int(o, "axis", -1);
    s = ox_end(o, "Softmax", ox_fresh(o, ox_base(o, n), ".weights"), s->dtype);
    if (ox_opt(o, n, 3) || ox_opt(o, n, 6) || z->left >= 0) {
        ox_value *none = ox_unary(o, n, "IsNaN", ".none", s);
        none->dtype = CLI_BOOL;
        s = ox_where(o, n, ".found", none, ox_number(o, n, ".zero", s->dtype, 0), s);
    }
    return s;
}

static void convert_attention(ox *o, ox_node *n) {
    static const int64_t perm[4] = {0, 2, 1, 3};
    heads h = {.o = o, .n = n};
    int64_t mode = ox_int(o, n, "qk_matmul_output_mode", 0);
    ox_find(o, n, "softmax_precision");
    take_heads(&h);
    sight z = take_sight(&h);
    if (mode < 0 || mode > 3) {
        ox_die(o, n, "operator 'Attention' with qk_matmul_output_mode %lld", (long long)mode);
    }
    h.k = after_past(&h, h.k, 4, 1, ".keys");
    h.v = after_past(&h, h.v, 5, 2, ".values");
    ox_value *s = weights_of(&h, &z, scores_of(&h, &z, mode));
    give_scores(&h, mode, 3, s);
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

// ---- RotaryEmbedding ----

// x as [N,H,S,D], or (flat) as [N,S,H,D]; of each D numbers the first `size` are turned in pairs
// whose members are neighbours (interleaved) or `size / 2` apart.
typedef struct {
    ox *o;
    ox_node *n;
    int64_t dims[4], size;
    const char *sym[4];
    bool flat, interleaved;
} rotary;

static ox_value *take_rotary(rotary *r) {
    ox_value *x = ox_in(r->o, r->n, 0);
    int64_t count = ox_int(r->o, r->n, "num_heads", 0);
    ox_need_sym(r->o, r->n, x);
    r->flat = x->rank == 3;
    if ((!r->flat && x->rank != 4) || !ox_wants(r->n, 0)) {
        ox_die(r->o, r->n, "operator 'RotaryEmbedding' without a usable input or output");
    }
    if (r->flat && (count < 1 || x->dims[2] % count || x->sym[2])) {
        ox_die(r->o, r->n, "operator 'RotaryEmbedding' without a usable number of heads");
    }
    for (int a = 0; a < 4; a++) {
        r->dims[a] = a < x->rank ? x->dims[a] : 0;
        r->sym[a] = a < x->rank ? x->sym[a] : NULL;
    }
    if (r->flat) {
        r->dims[3] = x->dims[2] / count;
        r->dims[2] = count;
        x = ox_with_list(r->o, r->n, "Reshape", ".heads", x, "shape",
                         (ox_list){4, r->dims, r->sym});
    }
    r->size = ox_int(r->o, r->n, "rotary_embedding_dim", 0);
    r->size = r->size ? r->size : r->dims[3];
    if (r->size < 2 || r->size % 2 || r->size > r->dims[3] || r->sym[3]) {
        ox_die(r->o, r->n, "operator 'RotaryEmbedding' cannot turn %lld of %lld numbers",
               (long long)r->size, (long long)r->dims[3]);
    }
    return x;
}

// The cosines or sines of all positions, or those of the positions that are given.
static ox_value *angles(rotary *r, int input, const char *suffix) {
    ox_value *v = ox_in(r->o, r->n, input), *ids = ox_opt(r->o, r->n, 3);
    if (ids) {
        ox_begin(r->o);
        ox_arg(r->o, v);
        ox_arg(r->o, ids);
        ox_set_int(r->o, "axis", 0);
        v = ox_end(r->o, "Gather", ox_fresh(r->o, ox_base(r->o, r->n), suffix), v->dtype);
    }
    v = ox_with_int(r->o, r->n, "Unsqueeze", suffix, v, "axes", r->flat ? 2 : 1);
    return r->interleaved ? ox_with_int(r->o, r->n, "Unsqueeze", suffix, v, "axes", 4) : v;
}

// x [..,size] turned.
static ox_value *rotated(rotary *r, ox_value *x) {
    ox *o = r->o;
    ox_node *n = r->n;
    int64_t axis = r->interleaved ? 4 : 3, half = r->size / 2;
    int64_t whole[4] = {r->dims[0], r->dims[1], r->dims[2], r->size};
    int64_t pairs[5] = {r->dims[0], r->dims[1], r->dims[2], half, 2};
    const char *sym[5] = {r->sym[0], r->sym[1], r->sym[2], NULL, NULL};
    ox_value *c = angles(r, 1, ".cos"), *s = angles(r, 2, ".sin"), *part[2], *to[2];
    if (r->interleaved) {
        x = ox_with_list(o, n, "Reshape", ".pairs", x, "shape", (ox_list){5, pairs, sym});
    }
    ox_split_into(o, n, ".part", x, axis, r->interleaved ? 1 : half, 2, part);
    ox_value *near = ox_binary(o, n, "Mul", ".real", c, part[0]);
    to[0] = ox_binary(o, n, "Sub", ".real", near, ox_binary(o, n, "Mul", ".real", s, part[1]));
    near = ox_binary(o, n, "Mul", ".imag", s, part[0]);
    to[1] = ox_binary(o, n, "Add", ".imag", near, ox_binary(o, n, "Mul", ".imag", c, part[1]));
    x = ox_concat(o, n, ".turned", to, 2, axis);
    if (r->interleaved) {
        x = ox_with_list(o, n, "Reshape", ".turned", x, "shape", (ox_list){4, whole, sym});
    }
    return x;
}

static void convert_rotary(ox *o, ox_node *n) {
    rotary r = {.o = o, .n = n, .interleaved = ox_int(o, n, "interleaved", 0) != 0};
    ox_value *x = take_rotary(&r), *y;
    if (r.size < r.dims[3]) {
        y = rotated(&r, ox_slice_of(o, n, ".front", x, 3, 0, r.size));
        ox_value *both[2] = {y, ox_slice_of(o, n, ".rest", x, 3, r.size, r.dims[3])};
        y = ox_concat(o, n, ".joined", both, 2, 3);
    } else {
        y = rotated(&r, x);
    }
    if (r.flat) {
        int64_t dims[3] = {r.dims[0], r.dims[1], r.dims[2] * r.dims[3]};
        const char *sym[3] = {r.sym[0], r.sym[1], NULL};
        ox_end_list(o, n, "Reshape", y, "shape", (ox_list){3, dims, sym});
    } else {
        ox_bind_as(o, n, 0, "Identity", y, NULL, (ox_list){0});
    }
}

const ox_row ox_attention_rows[] = {
    {"Attention", 3, 7, convert_attention},
    {"RotaryEmbedding", 3, 4, convert_rotary},
    {NULL, 0, 0, NULL},
};
