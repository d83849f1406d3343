// Arithmetic operations of an expression as kernels execute them, by which it is decided whether a
// map's memory traffic hides its arithmetic.

// Instructions of a read at digits, four neighbours a thread: counted in the machine code of
// bilinear maps for sm_90, of 34 to 116 instructions an output.
enum { EIN__DIGIT_OPERATIONS = 4, EIN__DIVISION = 8 };

// Instructions of another read, and of a subscript that may be outside, where a product's loads
// compute what they give: counted in what nvcc 13 makes of a mirrored image's for sm_90.
enum { EIN__READ_OPERATIONS = 8, EIN__GUARD_OPERATIONS = 3 };

// Whether a division by `ex` is a multiplication by a power of two.
static bool ein__is_power_of_two(const ein_ctx *ctx, ein__ex ex) {
    double c;
    int exponent;
    return ein__ex_is_const(ctx, ex, &c) && frexp(c, &exponent) == 0.5;
}

// Whether `e` is a function with bounded slope of a quotient by a constant, so that the quotient
// may as well be a product with its reciprocal `factor`: that is less than two roundings apart.
static bool ein__is_scaled(const ein_ctx *ctx, const ein__expr *e, double *factor) {
    if (e->op != EIN__X_UNARY || (e->fn != EIN__ERF && e->fn != EIN__TANH && e->fn != EIN__SIGMOID))
        return false;
    const ein__expr *x = ein__ex_get(ctx, e->kid[0]);
    double c;
    if (x->op != EIN__X_BINARY || x->fn != EIN__DIV || !ein__ex_is_const(ctx, x->kid[1], &c))
        return false;
    *factor = 1 / c;
    return fabs(c) > 1e-30 && fabs(c) < 1e30;
}

// Instructions of a function, or of an operation on two; those of erf, exp, sigmoid and tanh for
// halves, too, are counted in machine code for sm_90.
static int64_t ein__function_operations(const ein_ctx *ctx, const ein__expr *e, bool halves) {
    switch ((int)e->fn) {
    case EIN__ERF: return halves ? 9 : 20;
    case EIN__TANH: return halves ? 10 : 20;
    case EIN__SIGMOID: return halves ? 7 : 8;
    case EIN__EXP: return halves ? 5 : 8;
    case EIN__POW:
    case EIN__SIN:
    case EIN__COS:
    case EIN__ATAN:
    case EIN__QUOT:
    case EIN__REM: return 20;
    case EIN__DIV: return ein__is_power_of_two(ctx, e->kid[1]) ? 1 : EIN__DIVISION;
    case EIN__LOG:
    case EIN__SQRT:
    case EIN__RSQRT: return EIN__DIVISION;
    default: return 1;
    }
}

static int64_t ein__count_operations(ein_ctx *ctx, ein__ex ex, uint32_t slots, bool halves) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    int64_t n = e->op == EIN__X_READ || e->op == EIN__X_CONST ? 0 : 1;
    if (ctx->counted[ex.i] == ctx->counts || (slots && !(ein__ex_uses(ctx, ex) & slots))) return 0;
    ctx->counted[ex.i] = ctx->counts;
    if (e->op == EIN__X_UNARY || e->op == EIN__X_BINARY)
        n = ein__function_operations(ctx, e, halves);
    double factor;
    if (ein__is_scaled(ctx, e, &factor)) n -= EIN__DIVISION - 1;
    for (uint32_t i = 0; i < e->nkid; i++)
        n += ein__count_operations(ctx, e->kid[i], slots, halves);
    return n;
}

// Operations of an expression, whose parts are computed once however often they are used (as they
// are emitted): divisions and simple functions are some instructions each, the others some tens.
// Those alone that change with some `slots`, 0: all. `halves`: what is stored of them holds no more
// digits.
static int64_t ein__operations_for(ein_ctx *ctx, ein__ex ex, uint32_t slots, bool halves) {
    ptrdiff_t had = arrlen(ctx->counted), n = arrlen(ctx->exprs.rec);
    if (had < n) {
        arrsetlen(ctx->counted, n);
        memset(ctx->counted + had, 0, (size_t)(n - had) * sizeof *ctx->counted);
    }
    ctx->counts++;
    return ein__count_operations(ctx, ex, slots, halves);
}

static int64_t ein__operations_along(ein_ctx *ctx, ein__ex ex, uint32_t slots) {
    return ein__operations_for(ctx, ex, slots, false);
}

static int64_t ein__ex_operations(ein_ctx *ctx, ein__ex ex) {
    return ein__operations_along(ctx, ex, 0);
}

// What a map's reads at digits of its position take beside the arithmetic: the digits and
// addresses, which plain reads have for next to nothing.
static int64_t ein__digit_operations(ein_ctx *ctx, const ein__scope *s) {
    int64_t n = 0;
    if (s->reduce != EIN__R_NONE) return 0;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        bool digits = false, again = false;
        for (uint32_t k = 0; k < e->nix; k++) digits |= !ein__ix_affine(ctx, e->ix[k]);
        for (ptrdiff_t j = 0; j < i && digits; j++) again |= reads[j].i == reads[i].i;
        if (digits && !again) n += EIN__DIGIT_OPERATIONS;
    }
    return n;
}
