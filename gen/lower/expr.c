// Scalar expressions, scopes and values. Bodies are interned trees that go through constructors;
// scopes are interned, so equal definitions have one id; values are named definitions.

// ORDER fn
static const ein__fn_info ein__fn_table[EIN__NFN] = {
    {"+", 2},    {"-", 2},      {"*", 2},     {"/", 2},    {"pow", 2},     {"min", 2},
    {"max", 2},  {"==", 2},     {"!=", 2},    {"<", 2},    {"<=", 2},      {">", 2},
    {">=", 2},   {"neg", 1},    {"abs", 1},   {"relu", 1}, {"tanh", 1},    {"exp", 1},
    {"log", 1},  {"sqrt", 1},   {"rsqrt", 1}, {"erf", 1},  {"sigmoid", 1}, {"floor", 1},
    {"ceil", 1}, {"square", 1}, {"sin", 1},   {"cos", 1},  {"atan", 1},    {"quot", 2},
    {"rem", 2},
};

EIN__FN const ein__expr *ein__ex_get(const ein_ctx *ctx, ein__ex ex) {
    return ctx->exprs.rec[ex.i];
}

EIN__FN const ein__scope *ein__sc_get(const ein_ctx *ctx, ein__sc sc) {
    return ctx->scopes.rec[sc.i];
}

EIN__FN const ein__value *ein__val_get(const ein_ctx *ctx, ein__val v) { return &ctx->value[v.i]; }

static uint64_t ein__bits_of(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static double ein__f64_of(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static ein__ex ein__ex_intern(ein_ctx *ctx, const ein__expr *e) {
    ein__expr clean;
    memset(&clean, 0, sizeof clean);
    clean.op = e->op;
    clean.fn = e->fn;
    clean.val = e->val;
    clean.negate = e->negate;
    clean.bits = e->bits;
    clean.n = e->n;
    clean.nkid = e->nkid;
    clean.nix = e->nix;
    clean.reads = e->op == EIN__X_READ;
    for (uint32_t i = 0; i < e->nkid; i++) {
        clean.kid[i] = e->kid[i];
        clean.reads |= ein__ex_get(ctx, e->kid[i])->reads;
    }
    for (uint32_t i = 0; i < e->nix; i++) {
        clean.ix[i] = e->ix[i];
        clean.reads |= ein__ix_has_gather(ctx, e->ix[i]);
    }
    ein__ex ex = {ein__intern(&ctx->forms, &ctx->exprs, &clean, sizeof clean)};
    while (arrlen(ctx->reads) <= (ptrdiff_t)ex.i) arrput(ctx->reads, NULL);
    return ex;
}

// ------------------------------------------------------------------------------------ leaves

EIN__FN ein__ex ein__ex_const(ein_ctx *ctx, double v) {
    ein__expr e = {.op = EIN__X_CONST, .bits = ein__bits_of(v)};
    return ein__ex_intern(ctx, &e);
}

EIN__FN bool ein__ex_is_const(const ein_ctx *ctx, ein__ex ex, double *v) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op != EIN__X_CONST) return false;
    *v = ein__f64_of(e->bits);
    return true;
}

EIN__FN ein__ex ein__ex_idx(ein_ctx *ctx, ein__ix ix) {
    int64_t c;
    if (!ix.i) return (ein__ex){0};
    if (ein__ix_is_const(ctx, ix, &c)) return ein__ex_const(ctx, (double)c);
    ein__expr e = {.op = EIN__X_IDX, .nix = 1, .ix = {ix}};
    return ein__ex_intern(ctx, &e);
}

// v[ix...]; outside the value's box, and where an index is not an integer, it is `pad`.
EIN__FN ein__ex ein__ex_read(ein_ctx *ctx, ein__val v, double pad, const ein__ix *ix, int n) {
    const ein__shape *s = &ctx->value[v.i].shape;
    ein__expr e = {.op = EIN__X_READ, .val = v.i, .bits = ein__bits_of(pad), .nix = (uint32_t)n};
    bool inside = true;
    EIN_ASSERT(n == s->rank);
    for (int i = 0; i < n; i++) {
        if (!ix[i].i) return (ein__ex){0};
        const ein__index *f = ein__ix_get(ctx, ix[i]);
        // lo > hi: no value of the form is an integer.
        if (f->hi < 0 || f->lo >= s->d[i] || f->lo > f->hi) return ein__ex_const(ctx, pad);
        inside &= f->q == 1 && f->lo >= 0 && f->hi < s->d[i] && !ein__ix_has_gather(ctx, ix[i]);
        e.ix[i] = ix[i];
    }
    if (inside) e.bits = 0;
    return ein__ex_intern(ctx, &e);
}

// ------------------------------------------------------------------------------------ functions

// The read that `read` is, as a handle.
EIN__FN ein__ex ein__ex_of(ein_ctx *ctx, const ein__expr *read) {
    return ein__ex_read(ctx, (ein__val){read->val}, ein__f64_of(read->bits), read->ix,
                        (int)read->nix);
}

// What functions give at 0 by every libm, in proofs too. False: this one is none of them.
EIN__FN bool ein__unary_at_zero(ein__fn fn, double *y) {
    *y = fn == EIN__EXP || fn == EIN__COS ? 1 : fn == EIN__SIGMOID ? 0.5 : 0;
    return *y != 0 || fn == EIN__TANH || fn == EIN__SQRT || fn == EIN__ERF || fn == EIN__SIN ||
           fn == EIN__ATAN;
}

static double ein__fold_unary(ein__fn fn, double x, bool *known) {
    double zero;
    *known = true;
    switch ((int)fn) {
    case EIN__NEG: return -x;
    case EIN__ABS: return fabs(x);
    case EIN__RELU: return x < 0 ? 0 : x;
    case EIN__SQRT: return sqrt(x);
    case EIN__FLOORF: return floor(x);
    case EIN__CEILF: return ceil(x);
    case EIN__SQUARE: return x * x;
    default: break;  // the others depend on the machine's libm: left to run time
    }
    *known = x == 0 && ein__unary_at_zero(fn, &zero);
    return *known ? zero : 0;
}

EIN__FN ein__ex ein__ex_unary(ein_ctx *ctx, ein__fn fn, ein__ex x) {
    double c;
    bool known;
    if (!x.i) return x;
    if (ein__ex_is_const(ctx, x, &c)) {
        c = ein__fold_unary(fn, c, &known);
        if (known) return ein__ex_const(ctx, c);
    }
    const ein__expr *e = ein__ex_get(ctx, x);
    if (fn == EIN__NEG && e->op == EIN__X_UNARY && e->fn == EIN__NEG) return e->kid[0];
    if (fn == EIN__RELU && e->op == EIN__X_UNARY && e->fn == EIN__RELU) return x;
    if ((fn == EIN__FLOORF || fn == EIN__CEILF) && e->op == EIN__X_IDX &&
        ein__ix_get(ctx, e->ix[0])->q == 1)
        return x;
    ein__expr r = {.op = EIN__X_UNARY, .fn = (uint32_t)fn, .nkid = 1, .kid = {x}};
    return ein__ex_intern(ctx, &r);
}

static bool ein__fold_binary(ein__fn fn, double x, double y, double *r) {
    switch ((int)fn) {
    case EIN__ADD: *r = x + y; return true;
    case EIN__SUB: *r = x - y; return true;
    case EIN__MUL: *r = x * y; return true;
    case EIN__DIV: *r = x / y; return y != 0;
    case EIN__MIN: *r = fmin(x, y); return true;
    case EIN__MAX: *r = fmax(x, y); return true;
    default: return false;
    }
}

static int ein__compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int ein__ix_compare(const ein_ctx *ctx, ein__ix a, ein__ix b) {
    if (a.i == b.i) return 0;
    const ein__index *x = ein__ix_get(ctx, a), *y = ein__ix_get(ctx, b);
    int r = ein__compare(x->n, y->n);
    if (!r) r = ein__compare(x->q, y->q);
    if (!r) r = ein__compare(x->c, y->c);
    for (uint32_t i = 0; !r && i < x->n; i++) {
        const ein__atom *p = ein__atom_get(ctx, x->t[i].atom),
                        *q = ein__atom_get(ctx, y->t[i].atom);
        r = ein__compare(p->kind, q->kind);
        if (!r) r = ein__compare(p->slot, q->slot);
        if (!r) r = ein__compare(x->t[i].k, y->t[i].k);
        if (!r) r = ein__compare(p->n, q->n);
        if (!r && p->ix && q->ix) r = ein__ix_compare(ctx, (ein__ix){p->ix}, (ein__ix){q->ix});
    }
    return r;
}

// Order by structure alone. Ids depend on what was interned before, and an order by them would let
// a change in one layer turn around operands in another.
static int ein__ex_compare(const ein_ctx *ctx, ein__ex a, ein__ex b) {
    if (a.i == b.i) return 0;
    const ein__expr *x = ein__ex_get(ctx, a), *y = ein__ex_get(ctx, b);
    int r = ein__compare(x->op == EIN__X_CONST, y->op == EIN__X_CONST);
    if (!r) r = ein__compare(x->op, y->op);
    if (!r) r = ein__compare(x->fn, y->fn);
    if (!r) r = ein__compare(x->nix, y->nix);
    if (!r) r = ein__compare((int64_t)(x->bits >> 1), (int64_t)(y->bits >> 1));
    if (!r) r = ein__compare((int64_t)(x->bits & 1), (int64_t)(y->bits & 1));
    for (uint32_t i = 0; !r && i < x->nkid; i++) r = ein__ex_compare(ctx, x->kid[i], y->kid[i]);
    for (uint32_t i = 0; !r && i < x->nix; i++) r = ein__ix_compare(ctx, x->ix[i], y->ix[i]);
    return r;
}

static bool ein__commutes(ein__fn fn) {
    return fn == EIN__ADD || fn == EIN__MUL || fn == EIN__MIN || fn == EIN__MAX;
}

static ein__ex ein__ex_joined(ein_ctx *ctx, ein__ex x, ein__ex y);

// x + 0 and x * 1 are x for every x, infinities and NaN included (but -0 + 0, which is 0); x * 0 is
// not 0 for all x and stays.
EIN__FN ein__ex ein__ex_binary(ein_ctx *ctx, ein__fn fn, ein__ex x, ein__ex y) {
    double a = 0, b = 0, r;
    if (!x.i || !y.i) return (ein__ex){0};
    ein__ex joined = fn == EIN__ADD ? ein__ex_joined(ctx, x, y) : (ein__ex){0};
    if (joined.i) return joined;
    bool ca = ein__ex_is_const(ctx, x, &a), cb = ein__ex_is_const(ctx, y, &b);
    if (ca && cb && ein__fold_binary(fn, a, b, &r)) return ein__ex_const(ctx, r);
    if (fn == EIN__ADD && cb && b == 0) return x;
    if (fn == EIN__ADD && ca && a == 0) return y;
    if (fn == EIN__SUB && cb && b == 0) return x;
    if (fn == EIN__SUB && ca && a == 0) return ein__ex_unary(ctx, EIN__NEG, y);
    if (fn == EIN__MUL && cb && b == 1) return x;
    if (fn == EIN__MUL && ca && a == 1) return y;
    if (fn == EIN__DIV && cb && b == 1) return x;
    if (fn == EIN__POW && cb && (b == 1 || b == 2 || b == 3)) {
        ein__ex square = b > 1 ? ein__ex_unary(ctx, EIN__SQUARE, x) : x;
        return b > 2 ? ein__ex_binary(ctx, EIN__MUL, square, x) : square;
    }
    if (ein__commutes(fn) && ein__ex_compare(ctx, x, y) > 0) {
        ein__ex swap = x;
        x = y;
        y = swap;
    }
    ein__expr e = {.op = EIN__X_BINARY, .fn = (uint32_t)fn, .nkid = 2, .kid = {x, y}};
    return ein__ex_intern(ctx, &e);
}

static bool ein__holds(ein__fn cmp, double a, double b) {
    return cmp == EIN__EQ   ? a == b
           : cmp == EIN__NE ? a != b
           : cmp == EIN__LT ? a < b
           : cmp == EIN__LE ? a <= b
           : cmp == EIN__GT ? a > b
                            : a >= b;
}

// x cmp y ? p : q. A condition that was stored as one of two numbers is the condition itself; one
// of numbers that are chosen from, which itself gives one of two, is made where they are.
EIN__FN ein__ex ein__ex_select(ein_ctx *ctx, ein__fn cmp, ein__ex x, ein__ex y, ein__ex p,
                               ein__ex q) {
    double a, b, c;
    if (!x.i || !y.i || !p.i || !q.i) return (ein__ex){0};
    if (p.i == q.i) return p;
    bool against = ein__ex_is_const(ctx, y, &b);
    if (against && ein__ex_is_const(ctx, x, &a)) return ein__holds(cmp, a, b) ? p : q;
    const ein__expr *s = ein__ex_get(ctx, x);
    if (against && s->op == EIN__X_SELECT && ein__ex_is_const(ctx, s->kid[2], &a) &&
        ein__ex_is_const(ctx, s->kid[3], &c))
        return ein__ex_select(ctx, (ein__fn)s->fn, s->kid[0], s->kid[1],
                              ein__holds(cmp, a, b) ? p : q, ein__holds(cmp, c, b) ? p : q);
    if (against && s->op == EIN__X_SELECT && ein__ex_is_const(ctx, p, &a) &&
        ein__ex_is_const(ctx, q, &c) &&
        (ein__ex_is_const(ctx, s->kid[2], &b) || ein__ex_is_const(ctx, s->kid[3], &b)))
        return ein__ex_select(ctx, (ein__fn)s->fn, s->kid[0], s->kid[1],
                              ein__ex_select(ctx, cmp, s->kid[2], y, p, q),
                              ein__ex_select(ctx, cmp, s->kid[3], y, p, q));
    ein__expr e = {.op = EIN__X_SELECT, .fn = (uint32_t)cmp, .nkid = 4, .kid = {x, y, p, q}};
    return ein__ex_intern(ctx, &e);
}

// Whether the value is an integer whatever is read: so never NaN.
EIN__FN bool ein__ex_integral(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c = ein__f64_of(e->bits);
    bool whole = c > -9e15 && c < 9e15 && c == (double)(int64_t)c;
    if (e->op == EIN__X_CONST) return whole;
    if (e->op == EIN__X_IDX) return ein__ix_get(ctx, e->ix[0])->q == 1;
    if (e->op == EIN__X_READ) return ctx->value[e->val].dtype > EIN__BF16 && whole;
    if (e->op == EIN__X_UNARY && e->fn != EIN__NEG && e->fn != EIN__ABS && e->fn != EIN__RELU &&
        e->fn != EIN__SQUARE)
        return false;
    if (e->op == EIN__X_BINARY && (e->fn == EIN__DIV || e->fn == EIN__POW)) return false;
    for (uint32_t i = e->op == EIN__X_SELECT ? 2 : 0; i < e->nkid; i++)
        if (!ein__ex_integral(ctx, e->kid[i])) return false;
    return true;
}

// ------------------------------------------------------------------------------------ guards

// a and b have equal linear part over one denominator: a = b + *shift.
static bool ein__same_lattice(ein_ctx *ctx, ein__ix a, ein__ix b, int64_t *shift) {
    const ein__index *x = ein__ix_get(ctx, a), *y = ein__ix_get(ctx, b);
    if (x->q != y->q || x->n != y->n) return false;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->t[i].atom != y->t[i].atom || x->t[i].k != y->t[i].k) return false;
    int64_t d = x->c - y->c;
    if (d % x->q) return false;
    *shift = d / x->q;
    return true;
}

// Whether pad-0 read `e`, a factor of the guarded product, is 0 wherever the guard is false: one of
// its indices is the guard's form, shifted, and its box lies within the guard's range.
static bool ein__read_implies(ein_ctx *ctx, const ein__expr *e, ein__ix ix, int64_t n) {
    const ein__shape *s = &ctx->value[e->val].shape;
    const ein__index *g = ein__ix_get(ctx, ix);
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t shift;
        // read index = guard form + shift: box [0, d) is guard values [-shift, d - shift), of which
        // those in the form's own range count
        if (!ein__same_lattice(ctx, e->ix[k], ix, &shift)) continue;
        int64_t lo = -shift > g->lo ? -shift : g->lo;
        int64_t hi = s->d[k] - shift < g->hi + 1 ? s->d[k] - shift : g->hi + 1;
        if (lo >= 0 && hi <= n) return true;
    }
    return false;
}

// Whether a function of 0 is 0.
static bool ein__keeps_zero(ein__fn fn) {
    return fn == EIN__NEG || fn == EIN__RELU || fn == EIN__ABS || fn == EIN__SQUARE ||
           fn == EIN__SQRT || fn == EIN__TANH || fn == EIN__ERF;
}

enum { EIN__IMPLY_DEPTH = 8 };  // both sides of sums are looked at

// Whether `ex` is 0 wherever the guard is false: a factor of it is, or all of its terms are. Of
// functions squares are looked into, which are products; behind others the guard tells rules what
// lies beside what.
static bool ein__implies(ein_ctx *ctx, ein__ex ex, ein__ix ix, int64_t n, int depth) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c;
    if (e->op == EIN__X_READ) return !e->bits && ein__read_implies(ctx, e, ix, n);
    if (e->op == EIN__X_WHEN) return ein__implies(ctx, e->kid[0], ix, n, depth);
    if (e->op == EIN__X_UNARY)
        return (e->fn == EIN__NEG || e->fn == EIN__SQUARE) &&
               ein__implies(ctx, e->kid[0], ix, n, depth);
    if (e->op != EIN__X_BINARY) return false;
    bool both = e->fn == EIN__ADD || e->fn == EIN__SUB;
    if (both && depth == EIN__IMPLY_DEPTH) return false;
    bool first = ein__implies(ctx, e->kid[0], ix, n, depth + both);
    if (both) return first && ein__implies(ctx, e->kid[1], ix, n, depth + 1);
    if (e->fn == EIN__MUL) return first || ein__implies(ctx, e->kid[1], ix, n, depth);
    return first && e->fn == EIN__DIV && ein__ex_is_const(ctx, e->kid[1], &c) && c != 0;
}

// Under the guard "E - c divisible by q", floor(E / q) is (E - c) / q. Gives what then is subscript
// `sub`, none: as it was; `ix` is the guard's form (E - c) / q + shift.
static ein__ix ein__exact_division(ein_ctx *ctx, ein__ix sub, ein__ix ix) {
    const ein__index *g = ein__ix_get(ctx, ix);
    if (ein__ix_get(ctx, sub)->q != 1 || g->q == 1) return (ein__ix){0};
    // floor of the guard's own numerator, taken at a point of the lattice: (num) / q exactly
    // when floor(num / q) and the index agree up to a constant.
    ein__index num = ein__ix_copy(g);
    num.q = 1;
    ein__ix whole = ein__ix_intern(ctx, &num);
    // The index may have been written floor((num + r) / q), which is num / q on the lattice.
    for (int64_t r = 0; r < g->q && r < EIN__TABULATE; r++) {
        ein__ix floored = ein__ix_floordiv(ctx, ein__ix_addc(ctx, whole, r), g->q);
        int64_t shift;
        if (floored.i && ein__same_lattice(ctx, sub, floored, &shift))
            return ein__ix_addc(ctx, ix, shift);
    }
    return (ein__ix){0};
}

// The guard floor(E / m) == v as E - m v in [0, m), which holds for the same iterators: gives E - m
// v, and m. None: guard `ix` in [0, n) is no such.
static ein__ix ein__digit_window(ein_ctx *ctx, ein__ix ix, int64_t n, int64_t *m) {
    const ein__index *g = ein__ix_get(ctx, ix);
    if (n != 1 || g->q != 1 || g->n != 1 || g->t[0].k != 1) return (ein__ix){0};
    const ein__atom *a = ein__atom_get(ctx, g->t[0].atom);
    int64_t before;
    if (a->kind != EIN__FLOOR || ein__mul_overflows(a->n, g->c, &before)) return (ein__ix){0};
    *m = a->n;
    return ein__ix_addc(ctx, (ein__ix){a->ix}, before);
}

// Under the guard floor(E / m) == v, E % m is E - m v: what then is subscript `sub`, none: as it
// was; `ix` is the guard's form floor(E / m) - v.
static ein__ix ein__known_digit(ein_ctx *ctx, ein__ix sub, ein__ix ix) {
    int64_t m, shift;
    ein__ix window = ein__digit_window(ctx, ix, 1, &m);
    if (!window.i) return (ein__ix){0};
    ein__ix digit = ein__ix_mod(ctx, window, m);
    return digit.i && ein__same_lattice(ctx, sub, digit, &shift) ? ein__ix_addc(ctx, window, shift)
                                                                 : (ein__ix){0};
}

// Read `e` under a guard of form `ix`, with subscripts that this makes simpler; none: there are
// none.
static ein__ex ein__absorb_read(ein_ctx *ctx, const ein__expr *e, ein__ix ix) {
    ein__ix sub[EIN__MAX_RANK];
    bool changed = false;
    for (uint32_t k = 0; k < e->nix; k++) {
        sub[k] = e->ix[k];
        ein__ix now = ein__exact_division(ctx, e->ix[k], ix);
        if (!now.i) now = ein__known_digit(ctx, e->ix[k], ix);
        if (!now.i) continue;
        sub[k] = now;
        changed = true;
    }
    if (!changed) return (ein__ex){0};
    return ein__ex_read(ctx, (ein__val){e->val}, ein__f64_of(e->bits), sub, (int)e->nix);
}

// Guard `when` around another body.
static ein__ex ein__rewrap(ein_ctx *ctx, const ein__expr *when, ein__ex body) {
    double c;
    ein__expr e = *when;
    if (!body.i || (ein__ex_is_const(ctx, body, &c) && c == 0)) return body;
    e.kid[0] = body;
    return ein__ex_intern(ctx, &e);
}

static ein__ex ein__absorb(ein_ctx *ctx, ein__ex ex, ein__ix ix) {
    ein__expr e = *ein__ex_get(ctx, ex);
    if (e.op == EIN__X_READ && !e.bits) {
        ein__ex r = ein__absorb_read(ctx, &e, ix);
        return r.i ? r : ex;
    }
    if (e.op == EIN__X_BINARY && e.fn == EIN__MUL) {
        ein__ex x = ein__absorb(ctx, e.kid[0], ix), y = ein__absorb(ctx, e.kid[1], ix);
        return ein__ex_binary(ctx, EIN__MUL, x, y);
    }
    if (e.op == EIN__X_WHEN) return ein__rewrap(ctx, &e, ein__absorb(ctx, e.kid[0], ix));
    return ex;
}

// `body` under the guard `ix` in [0, n), without it where that fixes a digit and reads of what has
// the other digit as a dimension are 0 elsewhere: what was stacked and then numbered is laid side
// by side.
static ein__ex ein__by_window(ein_ctx *ctx, ein__ix ix, int64_t n, ein__ex body) {
    int64_t m;
    ein__ix window = ein__digit_window(ctx, ix, n, &m);
    if (!window.i) return body;
    ein__ex windowed = ein__absorb(ctx, body, ix);
    return windowed.i && ein__implies(ctx, windowed, window, m, 0) ? windowed : body;
}

// `body` where `ix` is an integer in [0, n) (negate: where it is not), else 0 without evaluating
// it. A guard that a factor's padding implies is dropped; "divisible" guards turn floored reads
// into exact ones first, which then imply them.
EIN__FN ein__ex ein__ex_when(ein_ctx *ctx, ein__ix ix, int64_t n, bool negate, ein__ex body) {
    double c;
    if (!ix.i || !body.i) return (ein__ex){0};
    const ein__index *f = ein__ix_get(ctx, ix);
    bool always = f->q == 1 && f->lo >= 0 && f->hi < n && !ein__ix_has_gather(ctx, ix);
    bool never = f->hi < 0 || f->lo >= n || f->lo > f->hi;
    if (always || never) return (always != negate) ? body : ein__ex_const(ctx, 0);
    if (!negate && f->q > 1) body = ein__absorb(ctx, body, ix);
    if (!body.i || (ein__ex_is_const(ctx, body, &c) && c == 0)) return body;
    if (!negate && ein__implies(ctx, body, ix, n, 0)) return body;
    ein__ex windowed = negate ? body : ein__by_window(ctx, ix, n, body);
    if (windowed.i != body.i) return windowed;
    const ein__expr *b = ein__ex_get(ctx, body);
    if (b->op == EIN__X_WHEN) {
        if (b->ix[0].i == ix.i && b->n == n && b->negate == (uint32_t)negate) return body;
        // guards stand in one order, outermost the largest id
        if (b->ix[0].i > ix.i)
            return ein__rewrap(ctx, b, ein__ex_when(ctx, ix, n, negate, b->kid[0]));
    }
    ein__expr e = {.op = EIN__X_WHEN,
                   .negate = negate,
                   .n = n,
                   .nkid = 1,
                   .nix = 1,
                   .kid = {body},
                   .ix = {ix}};
    return ein__ex_intern(ctx, &e);
}

// An expression at two ranges of places that lie side by side, as the sum of both, is that at all
// of them: what was cut and put together again. Constants stay as they are, since a matrix is exact
// modulo a prime as long as nothing in it is divided beforehand.
static ein__ex ein__join_guards(ein_ctx *ctx, const ein__expr *x, const ein__expr *y) {
    int64_t shift;
    if (x->op != EIN__X_WHEN || y->op != EIN__X_WHEN || x->negate || y->negate ||
        x->kid[0].i != y->kid[0].i || !ein__ex_get(ctx, x->kid[0])->reads ||
        !ein__same_lattice(ctx, x->ix[0], y->ix[0], &shift))
        return (ein__ex){0};
    if (shift == x->n) return ein__ex_when(ctx, x->ix[0], x->n + y->n, false, x->kid[0]);
    if (shift == -y->n) return ein__ex_when(ctx, y->ix[0], x->n + y->n, false, x->kid[0]);
    return (ein__ex){0};
}

// x[E] + x[E - M], M the extent and E in 0:2*M, is x[E % M]: one of both is outside, which reads 0.
// So is what a roll does, the end of a tensor put in front of its beginning.
static ein__ex ein__join_reads(ein_ctx *ctx, const ein__expr *x, const ein__expr *y) {
    ein__ix ix[EIN__MAX_RANK];
    const ein__shape *shape = &ctx->value[x->val].shape;
    int at = -1;
    if (x->op != EIN__X_READ || y->op != EIN__X_READ || x->val != y->val || x->bits || y->bits)
        return (ein__ex){0};
    for (uint32_t k = 0; k < x->nix; k++) {
        ix[k] = x->ix[k];
        if (x->ix[k].i == y->ix[k].i) continue;
        if (at >= 0) return (ein__ex){0};
        at = (int)k;
    }
    int64_t shift, n = at < 0 ? 0 : shape->d[at];
    if (at < 0 || !ein__same_lattice(ctx, x->ix[at], y->ix[at], &shift) ||
        (shift != n && shift != -n))
        return (ein__ex){0};
    ix[at] = shift > 0 ? x->ix[at] : y->ix[at];
    const ein__index *f = ein__ix_get(ctx, ix[at]);
    if (f->q != 1 || f->lo < 0 || f->hi >= 2 * n || ein__ix_has_gather(ctx, ix[at]))
        return (ein__ex){0};
    ix[at] = ein__ix_mod(ctx, ix[at], n);
    return ix[at].i ? ein__ex_read(ctx, (ein__val){x->val}, 0, ix, (int)x->nix) : (ein__ex){0};
}

static bool ein__adds(const ein__expr *e) { return e->op == EIN__X_BINARY && e->fn == EIN__ADD; }

// x + y as one expression at one place, where one of both is a piece and the other one too, or a
// sum with a piece that it goes with; none where they are not of that kind.
static ein__ex ein__ex_joined(ein_ctx *ctx, ein__ex x, ein__ex y) {
    const ein__expr *a = ein__ex_get(ctx, x), *b = ein__ex_get(ctx, y);
    if (ein__adds(b) && !ein__adds(a)) return ein__ex_joined(ctx, y, x);
    if (b->op != EIN__X_WHEN && b->op != EIN__X_READ) return (ein__ex){0};
    ein__ex joined = ein__join_guards(ctx, a, b);
    if (!joined.i) joined = ein__join_reads(ctx, a, b);
    for (int k = 0; k < 2 && ein__adds(a) && !joined.i; k++) {
        ein__ex one = ein__ex_joined(ctx, a->kid[k], y);
        if (one.i) joined = ein__ex_binary(ctx, EIN__ADD, a->kid[1 - k], one);
    }
    return joined;
}

// ------------------------------------------------------------------------------------ traversal

// Rebuilds an expression of the same kind with other children.
EIN__FN ein__ex ein__ex_make(ein_ctx *ctx, const ein__expr *e) {
    switch ((ein__xop)e->op) {
    case EIN__X_CONST: return ein__ex_const(ctx, ein__f64_of(e->bits));
    case EIN__X_IDX: return ein__ex_idx(ctx, e->ix[0]);
    case EIN__X_READ:
        return ein__ex_read(ctx, (ein__val){e->val}, ein__f64_of(e->bits), e->ix, (int)e->nix);
    case EIN__X_UNARY: return ein__ex_unary(ctx, (ein__fn)e->fn, e->kid[0]);
    case EIN__X_BINARY: return ein__ex_binary(ctx, (ein__fn)e->fn, e->kid[0], e->kid[1]);
    case EIN__X_WHEN: return ein__ex_when(ctx, e->ix[0], e->n, e->negate != 0, e->kid[0]);
    case EIN__X_SELECT:
        return ein__ex_select(ctx, (ein__fn)e->fn, e->kid[0], e->kid[1], e->kid[2], e->kid[3]);
    default: return (ein__ex){0};
    }
}

EIN__FN uint32_t ein__ex_uses(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < e->nix; i++) mask |= ein__ix_uses(ctx, e->ix[i]);
    for (uint32_t i = 0; i < e->nkid; i++) mask |= ein__ex_uses(ctx, e->kid[i]);
    return mask;
}

static uint32_t ein__gather_uses(const ein_ctx *ctx, uint32_t ex) {
    return ein__ex_uses(ctx, (ein__ex){ex});
}

// Iterators replaced by forms, see ein__ix_subst. None when a replacement does not fit.
EIN__FN ein__ex ein__ex_subst(ein_ctx *ctx, ein__ex ex, const ein__ix *map, int nslot) {
    if (!ex.i) return ex;
    ein__expr e = *ein__ex_get(ctx, ex);
    bool same = true;
    for (uint32_t i = 0; i < e.nix; i++) {
        ein__ix ix = ein__ix_subst(ctx, e.ix[i], map, nslot);
        if (!ix.i) return (ein__ex){0};
        same &= ix.i == e.ix[i].i;
        e.ix[i] = ix;
    }
    for (uint32_t i = 0; i < e.nkid; i++) {
        ein__ex kid = ein__ex_subst(ctx, e.kid[i], map, nslot);
        if (!kid.i) return (ein__ex){0};
        same &= kid.i == e.kid[i].i;
        e.kid[i] = kid;
    }
    return same ? ex : ein__ex_make(ctx, &e);
}

static ein__ex ein__gather_subst(ein_ctx *ctx, ein__ex ex, const ein__ix *map, int nslot) {
    return ein__ex_subst(ctx, ex, map, nslot);
}

typedef ein__ex ein__read_fn(ein_ctx *ctx, void *user, ein__ex read);

static ein__ix ein__replace_gathers(ein_ctx *ctx, ein__ix ix, ein__read_fn *fn, void *user);

// Every READ replaced by what `fn` gives for it. A read inside a subscript (a gather) is handed
// over as well; its replacement must be a read.
EIN__FN ein__ex ein__ex_replace_reads(ein_ctx *ctx, ein__ex ex, ein__read_fn *fn, void *user) {
    ein__expr e = *ein__ex_get(ctx, ex);
    bool same = true;
    for (uint32_t i = 0; i < e.nix; i++) {
        ein__ix ix = ein__replace_gathers(ctx, e.ix[i], fn, user);
        if (!ix.i) return (ein__ex){0};
        same &= ix.i == e.ix[i].i;
        e.ix[i] = ix;
    }
    if (e.op == EIN__X_READ) return fn(ctx, user, same ? ex : ein__ex_intern(ctx, &e));
    for (uint32_t i = 0; i < e.nkid; i++) {
        ein__ex kid = ein__ex_replace_reads(ctx, e.kid[i], fn, user);
        if (!kid.i) return (ein__ex){0};
        same &= kid.i == e.kid[i].i;
        e.kid[i] = kid;
    }
    return same ? ex : ein__ex_make(ctx, &e);
}

static ein__ix ein__replace_gathers(ein_ctx *ctx, ein__ix ix, ein__read_fn *fn, void *user) {
    if (!ein__ix_has_gather(ctx, ix)) return ix;
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__ix sum = ein__ix_const(ctx, f->c);
    for (uint32_t i = 0; i < f->n && sum.i; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        ein__ix x;
        if (a->kind == EIN__GATHER) {
            ein__ex r = ein__ex_replace_reads(ctx, (ein__ex){a->ex}, fn, user);
            bool read = r.i && ein__ex_get(ctx, r)->op == EIN__X_READ;
            x = ein__ix_gather(ctx, read ? r : (ein__ex){a->ex});
        } else if (a->kind == EIN__ITER) {
            x = ein__ix_iter(ctx, a->slot, a->n);
        } else {
            x = ein__replace_gathers(ctx, (ein__ix){a->ix}, fn, user);
            x = a->kind == EIN__FLOOR ? ein__ix_floordiv(ctx, x, a->n) : ein__ix_mod(ctx, x, a->n);
        }
        sum = ein__ix_combine(ctx, sum, 1, x, f->t[i].k);
    }
    return sum.i ? ein__ix_div(ctx, sum, f->q) : sum;
}

static void ein__reads_of_index(const ein_ctx *ctx, ein__ix ix, ein__ex **list);

static void ein__add_reads(const ein_ctx *ctx, ein__ex ex, ein__ex **list) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (!e->reads) return;
    if (e->op == EIN__X_READ) {
        bool known = false;
        for (ptrdiff_t i = 0; i < arrlen(*list); i++) known |= (*list)[i].i == ex.i;
        if (!known) arrput(*list, ex);
    }
    for (uint32_t i = 0; i < e->nix; i++) ein__reads_of_index(ctx, e->ix[i], list);
    for (uint32_t i = 0; i < e->nkid; i++) ein__add_reads(ctx, e->kid[i], list);
}

static void ein__reads_of_index(const ein_ctx *ctx, ein__ix ix, ein__ex **list) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__GATHER) ein__add_reads(ctx, (ein__ex){a->ex}, list);
        else if (a->kind != EIN__ITER) ein__reads_of_index(ctx, (ein__ix){a->ix}, list);
    }
}

// Every READ of the expression, those inside subscripts included, each once: an stb_ds array, which
// the context keeps, since nearly every question about a program asks for it.
EIN__FN const ein__ex *ein__ex_reads(const ein_ctx *ctx, ein__ex ex) {
    ein__ex **known = &ctx->reads[ex.i];
    if (!*known) ein__add_reads(ctx, ex, known);
    return *known;
}

// Whether a subscript in `ex` is a position that is looked up in value `v`.
EIN__FN bool ein__ex_looks_up(const ein_ctx *ctx, ein__ex ex, ein__val v) {
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    ein__ex *positions = NULL;
    bool found = false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < e->nix; k++) ein__reads_of_index(ctx, e->ix[k], &positions);
    }
    for (ptrdiff_t i = 0; i < arrlen(positions); i++)
        found |= ein__ex_get(ctx, positions[i])->val == v.i;
    arrfree(positions);
    return found;
}

EIN__FN bool ein__ex_contains(const ein_ctx *ctx, ein__ex ex, ein__ex part) {
    if (ex.i == part.i) return true;
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nkid; i++)
        if (ein__ex_contains(ctx, e->kid[i], part)) return true;
    return false;
}

// Nodes of the expression as a tree, saturating.
EIN__FN int ein__ex_size(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    int n = 1;
    for (uint32_t i = 0; i < e->nkid; i++) {
        n += ein__ex_size(ctx, e->kid[i]);
        if (n > 1000000) return 1000000;
    }
    return n;
}

// ------------------------------------------------------------------------------------ scopes,
// values

static bool ein__verify_index(const ein_ctx *ctx, ein__ix ix, const ein__scope *s) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER) {
            if (a->slot >= s->nt + s->ns || a->n != s->n[a->slot]) return false;
        } else if (a->kind != EIN__GATHER && !ein__verify_index(ctx, (ein__ix){a->ix}, s)) {
            return false;
        }
    }
    return true;
}

static bool ein__verify_expr(const ein_ctx *ctx, ein__ex ex, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ && (int)e->nix != ctx->value[e->val].shape.rank) return false;
    for (uint32_t i = 0; i < e->nix; i++)
        if (!ein__verify_index(ctx, e->ix[i], s)) return false;
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__verify_expr(ctx, e->kid[i], s)) return false;
    return true;
}

// Every iterator of the body belongs to the scope with the scope's extent; ranks of reads match.
EIN__FN bool ein__sc_verify(const ein_ctx *ctx, ein__sc sc) {
    const ein__scope *s = ein__sc_get(ctx, sc);
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) return false;
    if ((s->reduce == EIN__R_NONE) != (s->ns == 0)) return false;
    return ein__verify_expr(ctx, s->body, s);
}

// Product of the extents of some iterators, saturating; at least 1.
EIN__FN int64_t ein__extent_of(const ein__scope *s, uint32_t slots) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if ((slots >> i & 1) && s->n[i] > 1) n = ein__times(n, s->n[i]);
    return n;
}

EIN__FN ein__sc ein__sc_make(ein_ctx *ctx, const ein__scope *s) {
    if (!s->body.i) return (ein__sc){0};
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "an expression has too many iterators");
        return (ein__sc){0};
    }
    ein__scope clean;
    memset(&clean, 0, sizeof clean);
    clean.reduce = s->reduce;
    clean.nt = s->nt;
    clean.ns = s->ns;
    clean.body = s->body;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) clean.n[i] = s->n[i];
    ptrdiff_t known = arrlen(ctx->scopes.rec);
    ein__sc sc = {ein__intern(&ctx->forms, &ctx->scopes, &clean, sizeof clean)};
    EIN_ASSERT((ptrdiff_t)sc.i < known || ein__sc_verify(ctx, sc));
    return sc;
}

// Whether `v` has numbers that halves may have too few exponents for: those of a tensor that the
// model stores as bf16, what is a copy of such a value, or is known at load and made of one.
static bool ein__is_wide(const ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    if (p->dtype >= EIN__BF16) return p->dtype == EIN__BF16;
    bool tensor = p->tensor >= 0 && p->tensor < (int)arrlen(ctx->graph.tensor);
    return p->wide || (tensor && ctx->graph.tensor[p->tensor].dtype == EIN__BF16);
}

// What follows for value `v`, of a scope, from what it reads.
static void ein__inherit(ein_ctx *ctx, ein__value *v) {
    const ein__scope *s = ein__sc_get(ctx, v->scope);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    v->weight_only = true;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val of = {ein__ex_get(ctx, reads[i])->val};
        v->weight_only &= ctx->value[of.i].weight_only;
        v->wide |= ein__is_wide(ctx, of);
    }
    bool copy = ein__ex_get(ctx, s->body)->op == EIN__X_READ;
    v->wide &= s->reduce == EIN__R_NONE && (copy || v->weight_only);
}

// A new value. `tensor` and `node` say what of the model it belongs to (-1: nothing).
EIN__FN ein__val ein__val_new(ein_ctx *ctx, const char *name, ein__vkind kind, int tensor,
                              ein__sc sc, const ein__shape *shape, ein__dtype dtype, int node) {
    ein__value v = {.name = name,
                    .kind = kind,
                    .tensor = tensor,
                    .scope = sc,
                    .shape = *shape,
                    .dtype = dtype,
                    .node = node,
                    .weight_only = kind == EIN__V_WEIGHT};
    if (!arrlen(ctx->value)) arrput(ctx->value, (ein__value){0});
    if (kind == EIN__V_SCOPE) ein__inherit(ctx, &v);
    arrput(ctx->value, v);
    return (ein__val){(uint32_t)arrlen(ctx->value) - 1};
}

// Another value with the definition of `v`, in the place of `was`.
EIN__FN ein__val ein__val_again(ein_ctx *ctx, ein__val v, ein__val was) {
    const ein__value p = ctx->value[v.i], old = ctx->value[was.i];
    ein__val again =
        ein__val_new(ctx, old.name, p.kind, old.tensor, p.scope, &p.shape, p.dtype, old.node);
    ctx->value[again.i].why = p.why;
    ctx->value[again.i].was = was;
    return again;
}
