// Scopes evaluated in double, index by index. A unit of its own, which is optimised and has no
// sanitizers: this takes most of the generator's time and is not what they are here for.
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

static double eval(ein_ctx *ctx, ein__ex ex, const int64_t *slot);

// Value of a form as a fraction's numerator; the denominator is the form's q.
static int64_t numerator(ein_ctx *ctx, ein__ix ix, const int64_t *slot) {
    const ein__index *f = ctx->indices.rec[ix.i];
    int64_t v = f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ctx->atoms.rec[f->t[i].atom];
        int64_t x = 0;
        switch ((ein__atom_kind)a->kind) {
        case EIN__ITER: x = slot[a->slot]; break;
        case EIN__FLOOR: x = ein__floordiv(numerator(ctx, (ein__ix){a->ix}, slot), a->n); break;
        case EIN__MOD: x = ein__floormod(numerator(ctx, (ein__ix){a->ix}, slot), a->n); break;
        case EIN__GATHER: x = (int64_t)eval(ctx, (ein__ex){a->ex}, slot); break;
        }
        v += f->t[i].k * x;
    }
    return v;
}

static bool position(ein_ctx *ctx, ein__ix ix, int64_t n, const int64_t *slot, int64_t *at) {
    const ein__index *f = ctx->indices.rec[ix.i];
    int64_t v = numerator(ctx, ix, slot), q = f->q;
    *at = q == 1 ? v : v / q;
    return *at * q == v && *at >= 0 && *at < n;
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

static double eval(ein_ctx *ctx, ein__ex ex, const int64_t *slot) {
    const ein__expr *x = ein__ex_get(ctx, ex);
    switch ((ein__xop)x->op) {
    case EIN__X_CONST: return ein__kbits(x);
    case EIN__X_IDX:
        return (double)numerator(ctx, x->ix[0], slot) / (double)ein__ix_get(ctx, x->ix[0])->q;
    case EIN__X_READ: {
        const ein__shape *s = &ctx->value[x->val].shape;
        int64_t at[EIN__MAX_RANK];
        for (int d = 0; d < s->rank; d++)
            if (!position(ctx, x->ix[d], s->d[d], slot, &at[d])) return ein__kbits(x);
        return content[x->val][linear(s, at)];
    }
    case EIN__X_UNARY: return apply((ein__fn)x->fn, eval(ctx, x->kid[0], slot), 0);
    case EIN__X_BINARY:
        return apply((ein__fn)x->fn, eval(ctx, x->kid[0], slot), eval(ctx, x->kid[1], slot));
    case EIN__X_WHEN: {
        int64_t at;
        bool in = position(ctx, x->ix[0], x->n, slot, &at);
        return in != (x->negate != 0) ? eval(ctx, x->kid[0], slot) : 0;
    }
    case EIN__X_SELECT: {
        double a = eval(ctx, x->kid[0], slot), b = eval(ctx, x->kid[1], slot);
        return eval(ctx, x->kid[apply((ein__fn)x->fn, a, b) != 0 ? 2 : 3], slot);
    }
    }
    return NAN;
}

bool step_box(const int64_t *n, int from, int to, int64_t *slot) {
    for (int d = to - 1; d >= from; d--) {
        if (++slot[d] < n[d]) return true;
        slot[d] = 0;
    }
    return false;
}

void compute(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__sc_get(ctx, ctx->value[v.i].scope);
    int nt = (int)s->nt, ns = (int)s->ns;
    int64_t slot[EIN__MAX_ITERS] = {0}, i = 0;
    content[v.i] = EIN__NEW(&ctx->arena, double, ein__elements(&ctx->value[v.i].shape));
    do {
        double acc = s->reduce == EIN__R_PROD  ? 1
                     : s->reduce == EIN__R_MAX ? -INFINITY
                     : s->reduce == EIN__R_MIN ? INFINITY
                                               : 0;
        do {
            double x = eval(ctx, s->body, slot);
            switch ((ein__red)s->reduce) {
            case EIN__R_NONE: acc = x; break;
            case EIN__R_SUM: acc += x; break;
            case EIN__R_PROD: acc *= x; break;
            case EIN__R_MAX: acc = fmax(acc, x); break;
            case EIN__R_MIN: acc = fmin(acc, x); break;
            }
        } while (step_box(s->n, nt, nt + ns, slot));
        content[v.i][i++] = acc;
    } while (step_box(s->n, 0, nt, slot));
}
