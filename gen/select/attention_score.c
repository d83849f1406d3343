// The form in which kernels keep scores. A weight is 2^(s * unit - top), top the same of the
// largest s (templates/softmax.cu): where a score is f * (dot + constants), as it is when it is
// scaled and masked, s is the score divided by f, and a weight takes one multiply-add; elsewhere s
// is the score. Where the result is a quotient of both sums, it is the same whatever top is: then
// it need not follow every score that is a little larger.

typedef struct ein__attention_score {
    ein__ex ex;     // s
    double factor;  // f; 0: s is the score
} ein__attention_score;

// A constant, -inf written as log(0) too.
static bool ein__score_number(ein_ctx *ctx, ein__ex ex, double *v) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ein__ex_is_const(ctx, ex, v)) return true;
    bool never = e->op == EIN__X_UNARY && ein__side_never(ctx, ex);
    if (never) *v = -HUGE_VAL;
    return never;
}

// Which kid of a product or of a quotient is what a positive constant, `v`, scales; -1: none.
static int ein__score_scaled(ein_ctx *ctx, const ein__expr *e, double *v) {
    if (e->op != EIN__X_BINARY || (e->fn != EIN__MUL && e->fn != EIN__DIV)) return -1;
    for (int k = e->fn == EIN__DIV; k < 2; k++)
        if (ein__ex_is_const(ctx, e->kid[k], v) && *v > 0) return 1 - k;
    return -1;
}

// f, where `ex` is f * (dot + constants) or a choice of such; 0: it is of constants alone; -1: it
// is something else.
static double ein__score_factor(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    bool select = e.op == EIN__X_SELECT, sum = e.op == EIN__X_BINARY && e.fn == EIN__ADD;
    double v, f[2];
    if (ein__score_number(ctx, ex, &v)) return 0;
    if (e.op == EIN__X_READ) return a->dot.i && e.val == a->dot.i && a->alpha > 0 ? a->alpha : -1;
    int k = ein__score_scaled(ctx, &e, &v);
    if (k >= 0) {
        f[0] = ein__score_factor(ctx, a, e.kid[k]);
        return f[0] <= 0 ? -1 : e.fn == EIN__MUL ? f[0] * v : f[0] / v;
    }
    if (!select && !sum) return -1;
    for (k = 0; select && k < 2; k++)
        if (ein__attention_only(ctx, e.kid[k], a->dot).i) return -1;
    for (k = 0; k < 2; k++) f[k] = ein__score_factor(ctx, a, e.kid[k + (select ? 2 : 0)]);
    if (f[0] < 0 || f[1] < 0) return -1;
    if (f[0] > 0 && f[1] > 0) return select && f[0] == f[1] ? f[0] : -1;
    return f[0] + f[1];
}

// The largest number that has a place beside scores by f, so that it has a power.
static double ein__score_far(double f) { return 1e38 / (f > 0.5 ? 2 * f : 1); }

// `ex` by f. Constants that no score comes near stay numbers, as do their powers.
static ein__ex ein__score_by(ein_ctx *ctx, ein__ex ex, double f) {
    const double far = ein__score_far(f);
    const ein__expr e = *ein__ex_get(ctx, ex);
    double v;
    if (ein__score_number(ctx, ex, &v)) {
        bool finite = v - v == 0;
        if (finite) v = v / f < -far ? -far : v / f > far ? far : v / f;
        return ein__ex_const(ctx, v);
    }
    int k = ein__score_scaled(ctx, &e, &v);
    if (k >= 0) return ein__score_by(ctx, e.kid[k], e.fn == EIN__MUL ? f / v : f * v);
    if (e.op == EIN__X_SELECT)
        return ein__ex_select(ctx, (ein__fn)e.fn, e.kid[0], e.kid[1],
                              ein__score_by(ctx, e.kid[2], f), ein__score_by(ctx, e.kid[3], f));
    if (e.op == EIN__X_BINARY)
        return ein__ex_binary(ctx, EIN__ADD, ein__score_by(ctx, e.kid[0], f),
                              ein__score_by(ctx, e.kid[1], f));
    return ex;
}

// How many constants of `ex`, which is times `by` in the score, have no place beside scores by f
// and are moved: equal ones that are not added count once. `moved`: the score's last one; 0: none.
static int ein__score_moved(ein_ctx *ctx, ein__ex ex, double f, double by, double *moved) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    double v, was = *moved, far = ein__score_far(f);
    if (ein__score_number(ctx, ex, &v)) {
        if (v - v != 0 || (v / f <= far && v / f >= -far)) return 0;
        *moved = v * by;
        return was == 0 || was == *moved ? 1 : 2;
    }
    int k = ein__score_scaled(ctx, &e, &v);
    if (k >= 0 && e.fn == EIN__DIV) v = 1 / v;
    if (k >= 0) return ein__score_moved(ctx, e.kid[k], f / v, by * v, moved);
    if (e.op != EIN__X_SELECT && e.op != EIN__X_BINARY) return 0;
    bool select = e.op == EIN__X_SELECT;
    int x = ein__score_moved(ctx, e.kid[select ? 2 : 0], f, by, moved),
        y = ein__score_moved(ctx, e.kid[select ? 3 : 1], f, by, moved);
    return select && x < 2 && y < 2 ? x | y : x + y;
}

// A constant that is moved is one that no other score is near: neither another constant, nor what
// the result compares the largest score with.
EIN__FN ein__attention_score ein__attention_scores_of(ein_ctx *ctx, const ein__attention *a) {
    double f = a->soft ? ein__score_factor(ctx, a, a->score) : 0, moved = 0;
    bool whole = !(f > 1e-6 && f < 1e6);
    int most = ein__ex_contains(ctx, a->result, a->top) ? 0 : 1;
    if (whole || ein__score_moved(ctx, a->score, f, 1, &moved) > most)
        return (ein__attention_score){a->score, 0};
    return (ein__attention_score){ein__score_by(ctx, a->score, f), f};
}

// A score, or a part of it, as `s` has scores.
static ein__ex ein__score_as(ein_ctx *ctx, const ein__attention_score *s, ein__ex ex) {
    return s->factor > 0 ? ein__score_by(ctx, ex, s->factor) : ex;
}

// What kernels say that the largest score is where it is constant `c`: they have its power alone,
// of which roundings leave a neighbour of it (the same steps as there, in f32).
static double ein__score_back(const ein__attention_score *s, double c) {
    const float log2e = 1.44269504f, low = -2.35e38f;
    bool known = s->factor > 0;
    float score = (float)(known ? c / s->factor : c);
    float unit = known ? (float)(s->factor * 1.4426950408889634) : score < low ? 1.f : log2e;
    float top = score * unit;
    return (double)(top / (top < low ? 1.f : log2e));
}

// The result with constants that it compares the largest score with as kernels would have them: a
// row of masked scores alone has just that for its largest one.
EIN__FN ein__ex ein__attention_compared(ein_ctx *ctx, const ein__attention *a,
                                        const ein__attention_score *s, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    double c;
    if (!e.nkid) return ex;
    for (uint32_t i = 0; i < e.nkid; i++) e.kid[i] = ein__attention_compared(ctx, a, s, e.kid[i]);
    for (int k = 0; k < 2 && e.op == EIN__X_SELECT; k++)
        if (e.kid[1 - k].i == a->top.i && ein__ex_is_const(ctx, e.kid[k], &c) && c - c == 0)
            e.kid[k] = ein__ex_const(ctx, ein__score_back(s, c));
    return ein__ex_make(ctx, &e);
}

enum { EIN__NO_POWER = INT16_MIN };

// The power of a factor common to both sums that `ex` has; EIN__NO_POWER: none.
static int ein__attention_power(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    int p[4] = {0};
    if (e.op == EIN__X_READ) {
        if (e.val == a->max.i) return EIN__NO_POWER;
        return e.val == a->out.i || (a->sum.i && e.val == a->sum.i);
    }
    for (uint32_t i = 0; i < e.nkid; i++) {
        p[i] = ein__attention_power(ctx, a, e.kid[i]);
        if (p[i] == EIN__NO_POWER) return p[i];
    }
    if (e.op == EIN__X_BINARY && e.fn == EIN__MUL) return p[0] + p[1];
    if (e.op == EIN__X_BINARY && e.fn == EIN__DIV) return p[0] - p[1];
    bool same = p[0] == p[1];
    if (e.op == EIN__X_SELECT) return same && p[2] == p[3] ? p[2] : EIN__NO_POWER;
    if (e.op == EIN__X_UNARY && e.fn == EIN__NEG) return p[0];
    if (e.op == EIN__X_BINARY && (e.fn == EIN__ADD || e.fn == EIN__SUB))
        return same ? p[0] : EIN__NO_POWER;
    return p[0] || p[1] ? EIN__NO_POWER : 0;
}

// Whether the result is the same when both sums are multiplied by the same.
EIN__FN bool ein__attention_is_quotient(ein_ctx *ctx, const ein__attention *a) {
    return a->sum.i && ein__attention_power(ctx, a, a->result) == 0;
}

// Quotients by the sum of the weights as products with its reciprocal, of which a row has one.
EIN__FN ein__ex ein__attention_divided(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e.nkid; i++) e.kid[i] = ein__attention_divided(ctx, a, e.kid[i]);
    if (!e.nkid) return ex;
    const ein__expr *by = ein__ex_get(ctx, e.kid[e.nkid - 1]);
    if (e.op != EIN__X_BINARY || e.fn != EIN__DIV || by->op != EIN__X_READ || by->val != a->sum.i)
        return ein__ex_make(ctx, &e);
    ein__ex one = ein__ex_binary(ctx, EIN__DIV, ein__ex_const(ctx, 1), e.kid[1]);
    return ein__ex_binary(ctx, EIN__MUL, e.kid[0], one);
}
