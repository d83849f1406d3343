// onnx_rnn.c - LSTM, GRU and RNN, written out step by step: the length of the sequence is known
// when a model is imported. The products with the inputs of all steps are one in front of the
// recurrence; a step is one product of the state with the weights of all gates, then arithmetic
// (GRU that resets in front of the product: two). Equations are those of ONNX's operators.
#include "onnx.h"

#include <math.h>

enum { MAX_GATES = 4, MAX_SEQUENCE = 1024 };

// Operands of a step: those that are others in every step first.
enum { STEP_X, STEP_H, STEP_C, STEP_R, STEP_R_NEW, ROLES, CHANGING = STEP_R };

typedef struct {
    const char *op;
    double alpha, beta;
} activation;

typedef struct {
    ox *o;
    ox_node *n;
    int gates, directions, per_direction;
    int64_t steps, hidden;
    bool batch_first, couples, resets_behind;
    double clip;
    ox_value *x, *w, *r, *h0, *c0;  // [T,N,I], [D,G*H,I], [D,G*H,H], [D,N,H] and that, or NULL
    const ox_const *bias, *peep;    // [D,2*G*H], [D,3*H], or NULL
    ox_value *lens;                 // [1,N,1], lengths of the sequences; NULL: all have every step
    int64_t least;                  // every sequence is known to have as many steps
    activation act[6];
    ox_value *one, *zero;
} rnn;

// What one direction has.
typedef struct {
    ox_value *x[MAX_SEQUENCE];  // by place in the sequence: [1,N,G*H], products and biases
    ox_value *r;                // [H,G*H]; or [H,2*H] for what a reset does not change, and
    ox_value *r_new;            // [H,H]
    ox_value *bias_new;         // [H], of the product that a reset scales; NULL where it is 0
    ox_value *peep[3];          // [H]; NULL where there is none
    ox_value *h, *c;            // the state, [1,N,H]; NULL is 0
    ox_call call;               // of a step that has a state in front, once there is a block for it
    ox_role roles[ROLES];       // what changes from step to step, then weights
} direction;

static const char *label(const rnn *q, int d, int64_t t, const char *what) {
    const char *way = q->directions > 1 ? d ? ".back" : ".forth" : "";
    return t < 0 ? ox_format(q->o, "%s.%s", way, what)
                 : ox_format(q->o, "%s.t%lld.%s", way, (long long)t, what);
}

// ---- activations ----

static const struct {
    const char *name, *op;
    double alpha, beta;  // NAN: takes none
} known_activations[] = {
    {"Relu", "Relu", (double)NAN, (double)NAN},
    {"Tanh", "Tanh", (double)NAN, (double)NAN},
    {"Sigmoid", "Sigmoid", (double)NAN, (double)NAN},
    {"Affine", "Affine", 1, 0},
    {"LeakyRelu", "LeakyRelu", 0.01, (double)NAN},
    {"ThresholdedRelu", "ThresholdedRelu", 1, (double)NAN},
    {"ScaledTanh", "ScaledTanh", 1, 1},
    {"HardSigmoid", "HardSigmoid", 0.2, 0.5},
    {"Elu", "Elu", 1, (double)NAN},
    {"Softsign", "Softsign", (double)NAN, (double)NAN},
    {"Softplus", "Softplus", (double)NAN, (double)NAN},
};

static bool same_word(const ProtobufCBinaryData *a, const char *b) {
    if (a->len != strlen(b)) {
        return false;
    }
    for (size_t i = 0; i < a->len; i++) {
        if ((a->data[i] | 32) != (b[i] | 32)) {
            return false;
        }
    }
    return true;
}

static double next_number(const ox_attribute *list, size_t *at, double otherwise) {
    if (isnan(otherwise)) {
        return 0;
    }
    return list && *at < list->n_floats ? (double)list->floats[(*at)++] : otherwise;
}

// Numbers of activations are listed in the order of the activations that take any.
static void take_activations(rnn *q, const char *const *usual) {
    const ox_attr *names = ox_find(q->o, q->n, "activations");
    const ox_attr *alphas = ox_find(q->o, q->n, "activation_alpha");
    const ox_attr *betas = ox_find(q->o, q->n, "activation_beta");
    int count = q->per_direction * q->directions;
    size_t alpha = 0, beta = 0;
    if (names && names->a->n_strings && (int)names->a->n_strings != count) {
        ox_die(q->o, q->n, "operator '%s' with %zu activations, not %d", q->n->op,
               names->a->n_strings, count);
    }
    bool given = names && names->a->n_strings;
    for (int i = 0; i < count; i++) {
        const char *name = usual[i % q->per_direction];
        size_t k = 0, all = sizeof known_activations / sizeof *known_activations;
        while (k < all && !(given ? same_word(&names->a->strings[i], known_activations[k].name)
                                  : !strcmp(name, known_activations[k].name))) {
            k++;
        }
        if (k == all) {
            ox_unsupported(q->o, q->n, "operator '%s' with an unknown activation", q->n->op);
        }
        q->act[i].op = known_activations[k].op;
        q->act[i].alpha =
            next_number(alphas ? alphas->a : NULL, &alpha, known_activations[k].alpha);
        q->act[i].beta = next_number(betas ? betas->a : NULL, &beta, known_activations[k].beta);
    }
}

static ox_value *scaled(rnn *q, const char *suffix, ox_value *v, const char *op, double by) {
    return ox_by_number(q->o, q->n, op, suffix, v, by);
}

static ox_value *activate(rnn *q, int d, int which, const char *suffix, ox_value *v) {
    const activation *a = &q->act[d * q->per_direction + which];
    ox *o = q->o;
    if (!strcmp(a->op, "Affine")) {
        return scaled(q, suffix, scaled(q, suffix, v, "Mul", a->alpha), "Add", a->beta);
    }
    if (!strcmp(a->op, "ScaledTanh")) {
        v = ox_unary(o, q->n, "Tanh", suffix, scaled(q, suffix, v, "Mul", a->beta));
        return scaled(q, suffix, v, "Mul", a->alpha);
    }
    bool hard = !strcmp(a->op, "HardSigmoid");
    ox_begin(o);
    ox_arg(o, v);
    if (hard || !strcmp(a->op, "LeakyRelu") || !strcmp(a->op, "ThresholdedRelu") ||
        !strcmp(a->op, "Elu")) {
        ox_set_float(o, "alpha", a->alpha);
    }
    if (hard) {
        ox_set_float(o, "beta", a->beta);
    }
    return ox_end(o, a->op, ox_fresh(o, ox_base(o, q->n), suffix), v->dtype);
}

static ox_value *clipped(rnn *q, const char *suffix, ox_value *v) {
    return q->clip > 0 ? ox_clip_to(q->o, q->n, suffix, v, -q->clip, q->clip) : v;
}

// ---- inputs ----

static void check_shape(rnn *q, const char *what, int rank, const int64_t *dims, int want_rank,
                        const int64_t *want) {
    bool same = rank == want_rank;
    for (int i = 0; same && i < rank; i++) {
        same = want[i] < 0 || dims[i] == want[i];
    }
    if (!same) {
        ox_die(q->o, q->n, "operator '%s' with a %s whose shape does not fit", q->n->op, what);
    }
}

// Biases and peepholes are small and known, so that sums of biases are made here.
static const ox_const *take_vector(rnn *q, int input, const char *what, int64_t size) {
    ox_value *v = ox_opt(q->o, q->n, input);
    const ox_const *c = v ? ox_known(q->o, v) : NULL;
    int64_t want[2] = {q->directions, size};
    if (v && !c) {
        ox_unsupported(q->o, q->n, "operator '%s' with a %s computed at run time", q->n->op, what);
    }
    if (c) {
        check_shape(q, what, c->rank, c->dims, 2, want);
    }
    return c;
}

// Lengths that are known to be the input's ask for nothing.
static void take_lengths(rnn *q) {
    static const int64_t axes[2] = {0, 2};
    ox_value *v = ox_opt(q->o, q->n, 4);
    const ox_const *c = v ? ox_known(q->o, v) : NULL;
    q->least = v && !c ? 0 : q->steps;
    if (!v) {
        return;
    }
    ox_need_shape(q->o, q->n, v);
    check_shape(q, "sequence_lens", v->rank, v->dims, 1, &q->x->dims[!q->batch_first]);
    for (int64_t i = 0; c && i < c->count && i < OX_FOLD_LIMIT; i++) {
        int64_t length = ox_geti(c, i);
        if (length < 0 || length > q->steps) {
            ox_die(q->o, q->n,
                   "operator '%s' with a sequence of length %lld in an input of %lld steps",
                   q->n->op, (long long)length, (long long)q->steps);
        }
        q->least = length < q->least ? length : q->least;
    }
    if (q->least < q->steps) {
        q->lens =
            ox_with_list(q->o, q->n, "Unsqueeze", ".lens", v, "axes", (ox_list){2, axes, NULL});
    }
}

static ox_value *swapped(rnn *q, const char *suffix, ox_value *v) {
    static const int64_t perm[3] = {1, 0, 2};
    return ox_with_list(q->o, q->n, "Transpose", suffix, v, "perm", (ox_list){3, perm, NULL});
}

static ox_value *take_state(rnn *q, int input, const char *suffix) {
    ox_value *v = ox_opt(q->o, q->n, input);
    if (!v || ox_is_zero(q->o, v)) {
        return NULL;
    }
    return q->batch_first ? swapped(q, suffix, v) : v;
}

static void take_inputs(rnn *q) {
    ox *o = q->o;
    ox_node *n = q->n;
    q->x = ox_in(o, n, 0);
    q->w = ox_in(o, n, 1);
    q->r = ox_in(o, n, 2);
    ox_need_shape(o, n, q->x);
    ox_need_shape(o, n, q->w);
    ox_need_shape(o, n, q->r);
    if (q->x->rank != 3 || q->r->rank != 3) {
        ox_die(o, n, "operator '%s' on an input that has not 3 axes", n->op);
    }
    q->steps = q->x->dims[q->batch_first];
    q->hidden = q->r->dims[2];
    int64_t size = q->gates * q->hidden;
    int64_t w[3] = {q->directions, size, q->x->dims[2]}, r[3] = {q->directions, size, q->hidden};
    check_shape(q, "weight", q->w->rank, q->w->dims, 3, w);
    check_shape(q, "recurrent weight", 3, q->r->dims, 3, r);
    int64_t said = ox_int(o, n, "hidden_size", q->hidden);
    if (said != q->hidden || q->hidden > OX_FOLD_LIMIT) {
        ox_die(o, n, "operator '%s' with a hidden_size that is not that of its weights", n->op);
    }
    if (q->steps > MAX_SEQUENCE) {
        ox_unsupported(o, n, "operator '%s' over %lld steps: steps are written out, %d at most",
                       n->op, (long long)q->steps, MAX_SEQUENCE);
    }
    q->bias = take_vector(q, 3, "bias", 2 * size);
    take_lengths(q);
    q->h0 = take_state(q, 5, ".initial_h");
    if (q->gates == MAX_GATES) {
        q->c0 = take_state(q, 6, ".initial_c");
        q->peep = take_vector(q, 7, "peephole", 3 * q->hidden);
    }
    if (q->batch_first) {
        q->x = swapped(q, ".steps", q->x);
    }
}

// ---- one direction ----

// Rows from..to of a direction's [D,G*H,K], as [K,to-from].
static ox_value *matrix(rnn *q, int d, const char *name, ox_value *v, int64_t from, int64_t to) {
    static const int64_t perm[2] = {1, 0};
    const char *suffix = label(q, d, -1, name);
    if (q->directions > 1) {
        v = ox_slice_of(q->o, q->n, suffix, v, 0, d, d + 1);
    }
    if (to - from < q->gates * q->hidden) {
        v = ox_slice_of(q->o, q->n, suffix, v, 1, from, to);
    }
    v = ox_with_int(q->o, q->n, "Squeeze", suffix, v, "axes", 0);
    return ox_with_list(q->o, q->n, "Transpose", suffix, v, "perm", (ox_list){2, perm, NULL});
}

// A vector of `size` numbers, sums of those at `a` and at `b` (< 0: none). NULL when all are 0.
static ox_value *vector(rnn *q, int d, const char *name, const ox_const *from, int64_t a, int64_t b,
                        int64_t size) {
    ox_const *c = ox_make(q->o, q->x->dtype, 1, &size);
    bool zero = true;
    for (int64_t i = 0; i < size; i++) {
        double value = ox_getf(from, a + i) + (b < 0 ? 0 : ox_getf(from, b + i));
        zero = zero && value == 0;
        ox_setf(c, i, value);
    }
    return zero ? NULL : ox_constant(q->o, ox_base(q->o, q->n), label(q, d, -1, name), c);
}

// Biases of inputs and state are added at once, but for the one that a reset scales.
static ox_value *input_bias(rnn *q, int d, direction *s) {
    int64_t size = q->gates * q->hidden, at = 2 * size * d, last = 2 * q->hidden;
    if (!q->bias) {
        return NULL;
    }
    if (!q->resets_behind) {
        return vector(q, d, "bias", q->bias, at, at + size, size);
    }
    s->bias_new = vector(q, d, "bias_new", q->bias, at + size + last, -1, q->hidden);
    ox_const *c = ox_make(q->o, q->x->dtype, 1, &size);
    for (int64_t i = 0; i < size; i++) {
        ox_setf(c, i, ox_getf(q->bias, at + i) + (i < last ? ox_getf(q->bias, at + size + i) : 0));
    }
    return ox_constant(q->o, ox_base(q->o, q->n), label(q, d, -1, "bias"), c);
}

static void begin_direction(rnn *q, int d, direction *s) {
    ox *o = q->o;
    ox_node *n = q->n;
    int64_t size = q->gates * q->hidden;
    bool resets_first = q->gates == 3 && !q->resets_behind;
    ox_value *all = ox_binary(o, n, "MatMul", label(q, d, -1, "inputs"), q->x,
                              matrix(q, d, "W", q->w, 0, size));
    ox_value *bias = input_bias(q, d, s);
    if (bias) {
        all = ox_binary(o, n, "Add", label(q, d, -1, "biased"), all, bias);
    }
    ox_split_into(o, n, label(q, d, -1, "input"), all, 0, 1, (int)q->steps, s->x);
    s->r = matrix(q, d, "R", q->r, 0, resets_first ? 2 * q->hidden : size);
    s->r_new = resets_first ? matrix(q, d, "R_new", q->r, 2 * q->hidden, size) : NULL;
    for (int i = 0; q->peep && i < 3; i++) {
        int64_t at = (3 * d + i) * q->hidden;
        s->peep[i] = vector(q, d, "peephole", q->peep, at, -1, q->hidden);
    }
    s->h = q->h0;
    s->c = q->c0;
    if (q->directions > 1) {
        s->h = s->h ? ox_slice_of(o, n, label(q, d, -1, "h"), s->h, 0, d, d + 1) : NULL;
        s->c = s->c ? ox_slice_of(o, n, label(q, d, -1, "c"), s->c, 0, d, d + 1) : NULL;
    }
}

// ---- steps ----

static ox_value *two(rnn *q, int d, int64_t t, const char *op, const char *what, ox_value *a,
                     ox_value *b) {
    return ox_binary(q->o, q->n, op, label(q, d, t, what), a, b);
}

// a + b, where NULL is 0.
static ox_value *sum(rnn *q, int d, int64_t t, const char *what, ox_value *a, ox_value *b) {
    return !a || !b ? (a ? a : b) : two(q, d, t, "Add", what, a, b);
}

static ox_value *product(rnn *q, int d, int64_t t, const char *what, ox_value *a, ox_value *b) {
    return a && b ? two(q, d, t, "Mul", what, a, b) : NULL;
}

static ox_value *state_product(rnn *q, int d, int64_t t, const char *what, ox_value *h,
                               ox_value *r) {
    return h ? two(q, d, t, "MatMul", what, h, r) : NULL;
}

static void cut(rnn *q, int d, int64_t t, const char *what, ox_value *v, int count,
                ox_value **parts) {
    ox_split_into(q->o, q->n, label(q, d, t, what), v, 2, q->hidden, count, parts);
}

static ox_value *gate(rnn *q, int d, int64_t t, int which, const char *what, ox_value *v) {
    const char *suffix = label(q, d, t, what);
    return activate(q, d, which, suffix, clipped(q, suffix, v));
}

static ox_value *one_minus(rnn *q, int d, int64_t t, const char *what, ox_value *v) {
    q->one = q->one ? q->one : ox_number(q->o, q->n, ".one", v->dtype, 1);
    return two(q, d, t, "Sub", what, q->one, v);
}

// i, o, f: gates; c: what is added to the cell.
//     C' = f * C + i * g(c)     H' = o * h(C')     f = 1 - i where they are coupled
static void step_lstm(rnn *q, int d, int64_t t, direction *s) {
    ox_value *v[MAX_GATES], *h = state_product(q, d, t, "product", s->h, s->r);
    cut(q, d, t, "gate", sum(q, d, t, "sum", s->x[t], h), MAX_GATES, v);
    v[0] = sum(q, d, t, "i", v[0], product(q, d, t, "peep", s->c, s->peep[0]));
    ox_value *i = gate(q, d, t, 0, "i", v[0]), *f;
    if (q->couples) {
        f = one_minus(q, d, t, "f", i);
    } else {
        v[2] = sum(q, d, t, "f", v[2], product(q, d, t, "peep", s->c, s->peep[2]));
        f = gate(q, d, t, 0, "f", v[2]);
    }
    ox_value *added = two(q, d, t, "Mul", "added", i, gate(q, d, t, 1, "g", v[3]));
    s->c = sum(q, d, t, "c", product(q, d, t, "kept", s->c, f), added);
    v[1] = sum(q, d, t, "o", v[1], product(q, d, t, "peep", s->c, s->peep[1]));
    ox_value *out = gate(q, d, t, 0, "o", v[1]);
    s->h = two(q, d, t, "Mul", "h", out, activate(q, d, 2, label(q, d, t, "squashed"), s->c));
}

// z: how much of the state stays; r: how much of it makes the new one.
//     H' = (1 - z) * n + z * H     n = g(x + (r * H) R) or, behind the product, g(x + r * (H R +
//     b))
static void step_gru(rnn *q, int d, int64_t t, direction *s) {
    ox_value *x[3], *h[3] = {NULL, NULL, NULL};
    ox_value *all = state_product(q, d, t, "product", s->h, s->r);
    cut(q, d, t, "input", s->x[t], 3, x);
    if (all) {
        cut(q, d, t, "state", all, q->resets_behind ? 3 : 2, h);
    }
    ox_value *z = gate(q, d, t, 0, "z", sum(q, d, t, "z", x[0], h[0]));
    ox_value *r = gate(q, d, t, 0, "r", sum(q, d, t, "r", x[1], h[1]));
    if (q->resets_behind) {
        h[2] = product(q, d, t, "reset", r, sum(q, d, t, "biased", h[2], s->bias_new));
    } else if (s->h) {
        h[2] = state_product(q, d, t, "new", two(q, d, t, "Mul", "reset", r, s->h), s->r_new);
    }
    ox_value *made = gate(q, d, t, 1, "n", sum(q, d, t, "n", x[2], h[2]));
    made = two(q, d, t, "Mul", "added", one_minus(q, d, t, "rest", z), made);
    s->h = sum(q, d, t, "h", made, product(q, d, t, "kept", z, s->h));
}

static void step_rnn(rnn *q, int d, int64_t t, direction *s) {
    ox_value *h = state_product(q, d, t, "product", s->h, s->r);
    s->h = gate(q, d, t, 0, "h", sum(q, d, t, "sum", s->x[t], h));
}

// ---- the whole ----

static void put_outputs(rnn *q, ox_value *all, ox_value *h, ox_value *c) {
    static const int64_t batch[3] = {1, 0, 2}, batch_all[4] = {2, 0, 1, 3};
    if (q->batch_first) {
        ox_bind_as(q->o, q->n, 0, "Transpose", all, "perm", (ox_list){4, batch_all, NULL});
        ox_bind_as(q->o, q->n, 1, "Transpose", h, "perm", (ox_list){3, batch, NULL});
        if (c) {
            ox_bind_as(q->o, q->n, 2, "Transpose", c, "perm", (ox_list){3, batch, NULL});
        }
        return;
    }
    ox_bind_as(q->o, q->n, 0, "Identity", all, NULL, (ox_list){0});
    ox_bind_as(q->o, q->n, 1, "Identity", h, NULL, (ox_list){0});
    if (c) {
        ox_bind_as(q->o, q->n, 2, "Identity", c, NULL, (ox_list){0});
    }
}

// What sequences that have step `t` make of it; the others keep `old`, or 0 where it is NULL.
static ox_value *where_long(rnn *q, int d, int64_t t, const char *what, ox_value *on,
                            ox_value *made, ox_value *old) {
    if (!old) {
        q->zero = q->zero ? q->zero : ox_number(q->o, q->n, ".zero", made->dtype, 0);
        old = q->zero;
    }
    return ox_where(q->o, q->n, label(q, d, t, what), on, made, old);
}

// The first step that has a state in front becomes a block, those behind it call that: a sequence
// is a line a step.
static void call_step(rnn *q, int d, int64_t t, direction *s,
                      void (*step)(rnn *q, int d, int64_t t, direction *s)) {
    ox_value *h = s->h, *c = s->c, *results[2];
    int n = q->gates == MAX_GATES ? 2 : 1;
    ptrdiff_t from = arrlen(q->o->stmts);
    if (s->call.name) {
        ox_value *instead[CHANGING] = {s->x[t], h, c};
        results[0] = s->h =
            ox_new_value(q->o, ox_fresh(q->o, ox_base(q->o, q->n), label(q, d, t, "h")), h->dtype);
        results[1] = s->c =
            n > 1 ? ox_new_value(q->o, ox_fresh(q->o, ox_base(q->o, q->n), label(q, d, t, "c")),
                                 c->dtype)
                  : NULL;
        ox_call_block(q->o, &s->call, s->roles, instead, CHANGING, results, n);
        return;
    }
    step(q, d, t, s);
    if (!h || (n > 1 && !c)) {
        return;
    }
    ox_role roles[ROLES] = {{s->x[t], "x"}, {h, "h"}, {c, "c"}, {s->r, "r"}, {s->r_new, "r_new"}};
    memcpy(s->roles, roles, sizeof roles);
    results[0] = s->h;
    results[1] = s->c;
    const char *name = n > 1 ? "lstm_step" : q->gates == 3 ? "gru_step" : "rnn_step";
    ox_make_block(q->o, &s->call, name, from, s->roles, ROLES, results, n);
}

// A step beyond the end of a sequence leaves its state; what the step gives is 0.
static ox_value *take_step(rnn *q, int d, int64_t t, direction *s,
                           void (*step)(rnn *q, int d, int64_t t, direction *s)) {
    ox_value *h = s->h, *c = s->c;
    call_step(q, d, t, s, step);
    if (t < q->least) {
        return s->h;
    }
    ox_value *on = ox_truth(q->o, q->n, "Greater", label(q, d, t, "on"), q->lens,
                            ox_number(q->o, q->n, ".at", q->lens->dtype, (double)t));
    ox_value *given = where_long(q, d, t, "given", on, s->h, NULL);
    s->h = h ? where_long(q, d, t, "h", on, s->h, h) : given;
    s->c = s->c ? where_long(q, d, t, "c", on, s->c, c) : NULL;
    return given;
}

static void unroll(rnn *q, bool reversed, void (*step)(rnn *q, int d, int64_t t, direction *s)) {
    ox_value *all[2], *h[2], *c[2] = {NULL, NULL};
    for (int d = 0; d < q->directions; d++) {
        ox_value *states[MAX_SEQUENCE];
        direction s = {.h = NULL};
        begin_direction(q, d, &s);
        for (int64_t k = 0; k < q->steps; k++) {
            int64_t t = reversed || d ? q->steps - 1 - k : k;
            states[t] = take_step(q, d, t, &s, step);
        }
        all[d] = ox_concat(q->o, q->n, label(q, d, -1, "states"), states, (int)q->steps, 0);
        all[d] = ox_with_int(q->o, q->n, "Unsqueeze", label(q, d, -1, "all"), all[d], "axes", 1);
        h[d] = s.h;
        c[d] = s.c;
    }
    bool both = q->directions == 2;
    put_outputs(q, both ? ox_concat(q->o, q->n, ".both", all, 2, 1) : all[0],
                both ? ox_concat(q->o, q->n, ".last", h, 2, 0) : h[0],
                both && c[0] ? ox_concat(q->o, q->n, ".cell", c, 2, 0) : c[0]);
}

void ox_recurrent(ox *o, ox_node *n) {
    static const char *const lstm[] = {"Sigmoid", "Tanh", "Tanh"};
    rnn q = {.o = o, .n = n, .directions = 1};
    const char *way = ox_string(o, n, "direction", "forward");
    bool is_lstm = !strcmp(n->op, "LSTM"), is_gru = !strcmp(n->op, "GRU");
    bool backward = !strcmp(way, "reverse"), both = !strcmp(way, "bidirectional");
    if (strcmp(way, "forward") && !backward && !both) {
        ox_die(o, n, "operator '%s' with an unknown direction", n->op);
    }
    q.directions += both;
    q.gates = is_lstm ? MAX_GATES : is_gru ? 3 : 1;
    q.per_direction = is_lstm ? 3 : is_gru ? 2 : 1;
    q.batch_first = ox_int(o, n, "layout", 0) != 0;
    q.clip = ox_float(o, n, "clip", 0);
    q.couples = is_lstm && ox_int(o, n, "input_forget", 0) != 0;
    q.resets_behind = is_gru && ox_int(o, n, "linear_before_reset", 0) != 0;
    ox_find(o, n, "output_sequence");  // of opset 1: whether anybody reads the first output
    take_activations(&q, is_lstm || is_gru ? lstm : lstm + 1);
    take_inputs(&q);
    unroll(&q, backward, is_lstm ? step_lstm : is_gru ? step_gru : step_rnn);
}

const ox_row ox_rnn_rows[] = {
    {"LSTM", 3, 8, ox_recurrent},
    {"GRU", 3, 6, ox_recurrent},
    {"RNN", 3, 6, ox_recurrent},
    {NULL, 0, 0, NULL},
};
