// Interval analysis of integers: between which numbers the value of an expression lies, and whether
// its type, or f32, can represent them all.

typedef struct ein__numbers {
    double lo, hi;
} ein__numbers;

// What numbers a type holds; false: those of no integers.
static bool ein__type_numbers(ein__dtype type, ein__numbers *r) {
    if (type <= EIN__BF16) return false;
    double bits = type == EIN__I8 ? 7 : type == EIN__I32 ? 31 : 63;
    *r = (ein__numbers){-exp2(bits), exp2(bits) - 1};
    if (type == EIN__U8) *r = (ein__numbers){0, 255};
    if (type == EIN__BOOL) *r = (ein__numbers){0, 1};
    return true;
}

static ein__numbers ein__both_numbers(ein__numbers a, ein__numbers b) {
    return (ein__numbers){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}

static ein__numbers ein__times_numbers(ein__numbers a, double b) {
    return (ein__numbers){fmin(a.lo * b, a.hi * b), fmax(a.lo * b, a.hi * b)};
}

// A quotient has the dividend's sign where no divisor is below 0; a remainder always has it.
static ein__numbers ein__part_numbers(ein__fn fn, ein__numbers a, ein__numbers b) {
    double of = fmax(fabs(a.lo), fabs(a.hi)), by = fmax(fabs(b.lo), fabs(b.hi));
    if (fn == EIN__QUOT && b.lo < 0) return (ein__numbers){-of, of};
    ein__numbers r = {fmin(a.lo, 0), fmax(a.hi, 0)};
    return fn == EIN__QUOT ? r : (ein__numbers){fmax(r.lo, -by), fmin(r.hi, by)};
}

static bool ein__binary_numbers(ein__fn fn, ein__numbers a, ein__numbers b, ein__numbers *r) {
    if (fn == EIN__ADD) *r = (ein__numbers){a.lo + b.lo, a.hi + b.hi};
    else if (fn == EIN__SUB) *r = (ein__numbers){a.lo - b.hi, a.hi - b.lo};
    else if (fn == EIN__MIN) *r = (ein__numbers){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
    else if (fn == EIN__MAX) *r = (ein__numbers){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    else if (fn == EIN__MUL)
        *r = ein__both_numbers(ein__times_numbers(a, b.lo), ein__times_numbers(a, b.hi));
    else if (fn == EIN__QUOT || fn == EIN__REM) *r = ein__part_numbers(fn, a, b);
    else return false;
    return true;
}

static bool ein__unary_numbers(ein__fn fn, ein__numbers a, ein__numbers *r) {
    double most = fmax(fabs(a.lo), fabs(a.hi));
    if (fn == EIN__NEG) *r = (ein__numbers){-a.hi, -a.lo};
    else if (fn == EIN__RELU) *r = (ein__numbers){fmax(a.lo, 0), fmax(a.hi, 0)};
    else if (fn == EIN__ABS) *r = (ein__numbers){0, most};
    else if (fn == EIN__SQUARE) *r = (ein__numbers){0, most * most};
    else return false;
    return true;
}

// Between what numbers an expression of integers lies, as its operands' types have it; false: it is
// one of other numbers.
static bool ein__int_numbers(const ein_ctx *ctx, ein__ex ex, ein__numbers *r) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__numbers a[2] = {{0, 0}, {0, 0}};
    uint32_t first = e->op == EIN__X_SELECT ? 2 : 0;
    for (uint32_t k = 0; k < 2 && first + k < e->nkid; k++)
        if (!ein__int_numbers(ctx, e->kid[first + k], &a[k])) return false;
    switch ((ein__xop)e->op) {
    case EIN__X_CONST:
        memcpy(&r->lo, &e->bits, sizeof r->lo);
        r->hi = r->lo;
        return r->lo == floor(r->lo);
    case EIN__X_IDX: {
        const ein__index *f = ein__ix_get(ctx, e->ix[0]);
        *r = (ein__numbers){(double)f->lo, (double)f->hi};
        return f->q == 1;
    }
    case EIN__X_READ: return ein__type_numbers(ctx->value[e->val].dtype, r);
    case EIN__X_WHEN: *r = ein__both_numbers(a[0], (ein__numbers){0, 0}); return true;
    case EIN__X_SELECT: *r = ein__both_numbers(a[0], a[1]); return true;
    case EIN__X_UNARY: return ein__unary_numbers((ein__fn)e->fn, a[0], r);
    case EIN__X_BINARY: return ein__binary_numbers((ein__fn)e->fn, a[0], a[1], r);
    }
    return false;
}

// Whether map `v` has a type that cuts off what its expression may come to: a cast to fewer bits, a
// product of integers. Memory does that, so what reads `v` is not to compute it itself. Of 64 bits
// nothing is cut off, and what a float loses as a half is no part of the model.
static bool ein__narrows(const ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    ein__numbers r, type;
    bool few = p->dtype == EIN__I8 || p->dtype == EIN__U8 || p->dtype == EIN__I32;
    if (!few || p->kind != EIN__V_SCOPE) return false;
    return ein__type_numbers(p->dtype, &type) &&
           ein__int_numbers(ctx, ein__sc_get(ctx, p->scope)->body, &r) &&
           (r.lo < type.lo || r.hi > type.hi);
}

// Whether map `v` makes an integer of some other number: what computes it itself has a float, which
// has not all digits of what is made of such.
static bool ein__rounds(const ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    ein__numbers r;
    return p->dtype > EIN__BF16 && p->kind == EIN__V_SCOPE &&
           !ein__int_numbers(ctx, ein__sc_get(ctx, p->scope)->body, &r);
}

// Whether `ex` comes to numbers that are none of its operands, nor their negatives.
static bool ein__calculates(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    bool made =
        e->op == EIN__X_UNARY && e->fn != EIN__NEG && e->fn != EIN__ABS && e->fn != EIN__RELU;
    made |= e->op == EIN__X_BINARY && e->fn != EIN__MIN && e->fn != EIN__MAX;
    for (uint32_t k = 0; k < e->nkid && !made; k++) made = ein__calculates(ctx, e->kid[k]);
    return made;
}

// Whether `reader`, of integers, must read what map `v` rounds as memory has it.
static bool ein__needs_rounded(const ein_ctx *ctx, ein__val v, ein__val reader) {
    const ein__value *p = &ctx->value[reader.i];
    if (p->dtype <= EIN__BF16 || p->dtype == EIN__BOOL || !ein__rounds(ctx, v)) return false;
    return ein__narrows(ctx, reader) || ein__calculates(ctx, ein__sc_get(ctx, p->scope)->body);
}

// Whether f32 has each number that an expression of integers may come to.
static bool ein__fits_float(const ein_ctx *ctx, ein__ex ex) {
    ein__numbers r;
    return ein__int_numbers(ctx, ex, &r) && r.lo >= -16777216 && r.hi <= 16777216;
}

// Whether 32 bits hold what an expression of integers comes to, and all that it is made of, `depth`
// operations at most; what its choices compare may be floats.
static bool ein__fits_int(const ein_ctx *ctx, ein__ex ex, int depth) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    uint32_t sides = e->op == EIN__X_SELECT ? 2 : 0;
    ein__numbers r;
    if (!depth) return false;
    for (uint32_t k = sides; k < e->nkid; k++)
        if (!ein__fits_int(ctx, e->kid[k], depth - 1)) return false;
    if (!ein__int_numbers(ctx, ex, &r) || r.lo < INT32_MIN || r.hi > INT32_MAX) return false;
    for (uint32_t k = 0; k < sides; k++)
        if (ein__int_numbers(ctx, e->kid[k], &r) && !ein__fits_int(ctx, e->kid[k], depth - 1))
            return false;
    return r.hi > INT32_MIN;
}
