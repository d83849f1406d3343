// Scopes evaluated in double, index by index. A unit of its own, which is optimised and has no
// sanitizers: this takes much of the generator's time and is not what they are here for.
#define EINNET_IMPLEMENTATION
#define EIN_STATIC
#define EIN_NO_STB_DS_IMPLEMENTATION
#include "all.h"

#include "eval.h"

double *content[8192];

static int64_t linear(const ein__shape *s, const int64_t *at) {
    int64_t i = 0;
    for (int d = 0; d < s->rank; d++) i = i * s->d[d] + at[d];
    return i;
}

// Several neighbours in one dimension are evaluated at once, so that few of them wait for the walk
// through an expression.
enum { LINE = 64 };

typedef struct line {
    ein_ctx *ctx;
    int64_t slot[EIN__MAX_ITERS];  // where the first of them is
    int along, n;                  // the iterator in which they differ, and how many they are
} line;

static void eval(line *l, ein__ex ex, double *out);

// Values of a form as numerators of fractions; their denominator is the form's q.
static void numerators(line *l, ein__ix ix, int64_t *out) {
    const ein__index *f = ein__ix_get(l->ctx, ix);
    int64_t inner[LINE];
    double held[LINE];
    for (int j = 0; j < l->n; j++) out[j] = f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = l->ctx->atoms.rec[f->t[i].atom];
        int64_t k = f->t[i].k;
        switch ((ein__atom_kind)a->kind) {
        case EIN__ITER:
            for (int j = 0; j < l->n; j++)
                out[j] += k * (l->slot[a->slot] + ((int)a->slot == l->along ? j : 0));
            break;
        case EIN__FLOOR:
            numerators(l, (ein__ix){a->ix}, inner);
            for (int j = 0; j < l->n; j++) out[j] += k * ein__floordiv(inner[j], a->n);
            break;
        case EIN__MOD:
            numerators(l, (ein__ix){a->ix}, inner);
            for (int j = 0; j < l->n; j++) out[j] += k * ein__floormod(inner[j], a->n);
            break;
        case EIN__GATHER:
            eval(l, (ein__ex){a->ex}, held);
            for (int j = 0; j < l->n; j++) out[j] += k * (int64_t)held[j];
            break;
        }
    }
}

// Places in a dimension of n elements, -1: outside.
static void positions(line *l, ein__ix ix, int64_t n, int64_t *at) {
    int64_t q = ein__ix_get(l->ctx, ix)->q;
    numerators(l, ix, at);
    for (int j = 0; j < l->n; j++) {
        int64_t place = q == 1 ? at[j] : at[j] / q;
        at[j] = place * q == at[j] && place >= 0 && place < n ? place : -1;
    }
}

static double apply(ein__fn fn, double x, double y) {
    switch (fn) {
    case EIN__ADD: return x + y;
    case EIN__SUB: return x - y;
    case EIN__MUL: return x * y;
    case EIN__DIV: return x / y;
    case EIN__POW: return pow(x, y);
    case EIN__MIN: return fmin(x, y);
    case EIN__MAX: return fmax(x, y);
    case EIN__EQ: return x == y;
    case EIN__NE: return x != y;
    case EIN__LT: return x < y;
    case EIN__LE: return x <= y;
    case EIN__GT: return x > y;
    case EIN__GE: return x >= y;
    case EIN__NEG: return -x;
    case EIN__ABS: return fabs(x);
    case EIN__RELU: return x < 0 ? 0 : x;
    case EIN__TANH: return tanh(x);
    case EIN__EXP: return exp(x);
    case EIN__LOG: return log(x);
    case EIN__SQRT: return sqrt(x);
    case EIN__RSQRT: return 1 / sqrt(x);
    case EIN__ERF: return erf(x);
    case EIN__SIN: return sin(x);
    case EIN__COS: return cos(x);
    case EIN__ATAN: return atan(x);
    case EIN__SIGMOID: return 1 / (1 + exp(-x));
    case EIN__FLOORF: return floor(x);
    case EIN__CEILF: return ceil(x);
    case EIN__SQUARE: return x * x;
    case EIN__QUOT: return trunc(x / y);
    case EIN__REM: return fmod(x, y);
    case EIN__NFN: break;
    }
    return NAN;
}

static void eval_read(line *l, const ein__expr *x, double *out) {
    const ein__shape *s = &l->ctx->value[x->val].shape;
    int64_t from[LINE] = {0}, at[LINE];
    for (int d = 0; d < s->rank; d++) {
        positions(l, x->ix[d], s->d[d], at);
        for (int j = 0; j < l->n; j++)
            from[j] = from[j] < 0 || at[j] < 0 ? -1 : from[j] * s->d[d] + at[j];
    }
    for (int j = 0; j < l->n; j++) out[j] = from[j] < 0 ? ein__kbits(x) : content[x->val][from[j]];
}

static void eval_select(line *l, const ein__expr *x, double *out) {
    double a[LINE], b[LINE];
    bool yes[LINE];
    eval(l, x->kid[0], a);
    eval(l, x->kid[1], b);
    for (int j = 0; j < l->n; j++) yes[j] = apply((ein__fn)x->fn, a[j], b[j]) != 0;
    eval(l, x->kid[2], a);
    eval(l, x->kid[3], b);
    for (int j = 0; j < l->n; j++) out[j] = yes[j] ? a[j] : b[j];
}

static void eval(line *l, ein__ex ex, double *out) {
    const ein__expr *x = ein__ex_get(l->ctx, ex);
    double other[LINE];
    int64_t at[LINE];
    switch ((ein__xop)x->op) {
    case EIN__X_CONST:
        for (int j = 0; j < l->n; j++) out[j] = ein__kbits(x);
        break;
    case EIN__X_IDX:
        numerators(l, x->ix[0], at);
        for (int j = 0; j < l->n; j++)
            out[j] = (double)at[j] / (double)ein__ix_get(l->ctx, x->ix[0])->q;
        break;
    case EIN__X_READ: eval_read(l, x, out); break;
    case EIN__X_UNARY:
        eval(l, x->kid[0], out);
        for (int j = 0; j < l->n; j++) out[j] = apply((ein__fn)x->fn, out[j], 0);
        break;
    case EIN__X_BINARY:
        eval(l, x->kid[0], out);
        eval(l, x->kid[1], other);
        for (int j = 0; j < l->n; j++) out[j] = apply((ein__fn)x->fn, out[j], other[j]);
        break;
    case EIN__X_WHEN:
        positions(l, x->ix[0], x->n, at);
        eval(l, x->kid[0], out);
        for (int j = 0; j < l->n; j++)
            if ((at[j] >= 0) == (x->negate != 0)) out[j] = 0;
        break;
    case EIN__X_SELECT: eval_select(l, x, out); break;
    }
}

bool step_box(const int64_t *n, int from, int to, int64_t *slot) {
    for (int d = to - 1; d >= from; d--) {
        if (++slot[d] < n[d]) return true;
        slot[d] = 0;
    }
    return false;
}

static double empty(ein__red reduce) {
    return reduce == EIN__R_PROD  ? 1
           : reduce == EIN__R_MAX ? -INFINITY
           : reduce == EIN__R_MIN ? INFINITY
                                  : 0;
}

static double reduced(ein__red reduce, double acc, double x) {
    switch (reduce) {
    case EIN__R_NONE: return x;
    case EIN__R_SUM: return acc + x;
    case EIN__R_PROD: return acc * x;
    case EIN__R_MAX: return fmax(acc, x);
    case EIN__R_MIN: return fmin(acc, x);
    }
    return NAN;
}

// The next place of the line in a scope's dimensions [from, to) but its own.
static bool step_line(line *l, const ein__scope *s, int from, int to) {
    for (int d = to - 1; d >= from; d--) {
        if (d == l->along) continue;
        if (++l->slot[d] < s->n[d]) return true;
        l->slot[d] = 0;
    }
    return false;
}

void compute(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__sc_get(ctx, ctx->value[v.i].scope);
    const ein__shape *shape = &ctx->value[v.i].shape;
    int nt = (int)s->nt, all = nt + (int)s->ns;
    int64_t elements = ein__elements(shape), stride = 0, first = 0;
    double x[LINE], *to = content[v.i] = EIN__NEW(&ctx->arena, double, elements);
    for (int64_t i = 0; i < elements; i++) to[i] = empty((ein__red)s->reduce);
    line l = {.ctx = ctx};
    for (int d = 1; d < all; d++)
        if (s->n[d] > s->n[l.along]) l.along = d;
    for (int d = l.along; d < nt; d++) stride = d == l.along ? 1 : stride * s->n[d];
    do {
        l.slot[l.along] = first;
        l.n = all ? (int)(s->n[l.along] - first < LINE ? s->n[l.along] - first : LINE) : 1;
        do {
            double *at = to + linear(shape, l.slot);
            do {
                eval(&l, s->body, x);
                for (int j = 0; j < l.n; j++)
                    at[j * stride] = reduced((ein__red)s->reduce, at[j * stride], x[j]);
            } while (step_line(&l, s, nt, all));
        } while (step_line(&l, s, 0, nt));
        first += LINE;
    } while (all && first < s->n[l.along]);
}
