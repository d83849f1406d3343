// The arithmetic of products (ein_desc.math), and what follows from it for sizes of elements and
// keys of cost tables. FP32 is FMA and nothing else, but for products of what the model stores as
// halves, which are exact. TF32 takes f32 operands and rounds them to 10 bits of mantissa; FP16
// takes halves. All add up in f32.

static const char *ein__math_name(ein_math math) {
    static const char *const names[] = {"FP32", "TF32", "FP16"};
    return names[math];
}

// Whether calls carry the types of their tensors: in every mode but FP32, and where one of the plan
// multiplies halves.
static bool ein__is_typed(const ein_ctx *ctx) {
    bool typed = ctx->desc.math != EIN_MATH_FP32;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step) && !typed; i++) {
        const ein__step *s = &ctx->plan.step[i];
        typed = s->kind == EIN__K_GEMM ? s->gemm.math != EIN__MATH_FP32
                                       : (s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA) &&
                                             s->conv.math != EIN__MATH_FP32;
    }
    return typed;
}

// Bytes of an operand's element.
static int64_t ein__math_bytes(ein__math math) { return math == EIN__MATH_FP16 ? 2 : 4; }

// Type of the operands and arithmetic, as keys of costs have them.
static const char *ein__math_key(ein__math math) {
    static const char *const names[] = {"f32 fma", "f32 tf32", "f16 tensor"};
    return names[math];
}

// Whether products of halves are tensor cores' whatever the mode: f32 has all bits of them, and
// what they are added up in is f32 too (cost.c).
static bool ein__multiplies_halves(const ein_ctx *ctx);

// Whether such a product is that of `a` and `b`. A sum of squares is a statistic.
static bool ein__are_halves(const ein_ctx *ctx, ein__val a, ein__val b) {
    return ein__multiplies_halves(ctx) && a.i != b.i && ctx->value[a.i].dtype == EIN__F16 &&
           ctx->value[b.i].dtype == EIN__F16;
}

// Whether `ex` is an element of halves as it is, or zero; `apart`: of terms one at most is not
// zero.
static bool ein__moves_halves(ein_ctx *ctx, ein__ex ex, bool apart) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ) return !e->bits && ctx->value[e->val].dtype == EIN__F16;
    if (e->op == EIN__X_WHEN) return ein__moves_halves(ctx, e->kid[0], apart);
    if (!apart || e->op != EIN__X_BINARY || e->fn != EIN__ADD) return false;
    const ein__ex kid[2] = {e->kid[0], e->kid[1]};
    return ein__moves_halves(ctx, kid[0], true) && ein__moves_halves(ctx, kid[1], true);
}

// The type of a map `body` that moves what products read: halves are to stay what they are.
static ein__dtype ein__moved_type(ein_ctx *ctx, ein__ex body, bool apart) {
    bool mode = ctx->desc.math != EIN_MATH_FP16 && ein__multiplies_halves(ctx);
    return mode && body.i && ein__moves_halves(ctx, body, apart) ? EIN__F16 : EIN__F32;
}

// Whether the model has tensors of which such products may be.
static bool ein__has_halves(const ein_ctx *ctx) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.tensor); i++)
        if (ctx->graph.tensor[i].dtype == EIN__F16) return ein__multiplies_halves(ctx);
    return false;
}

// What the emitted file's first lines say.
static const char *ein__math_title(const ein_ctx *ctx) {
    static const char *const titles[] = {"FP32",
                                         "TF32: products of f32 values rounded to TF32, f32 sums",
                                         "FP16: products of f16 values, f32 sums and statistics"};
    if (ctx->desc.math == EIN_MATH_FP32 && ein__has_halves(ctx))
        return "FP32: of tensors that are f16 products of f16 values, f32 sums";
    return titles[ctx->desc.math];
}

// Whether `v` belongs to a tensor that --keep-fp32 names, where that says something.
static bool ein__keeps_fp32(const ein_ctx *ctx, ein__val v) {
    int tensor = ctx->value[v.i].tensor;
    bool kept = tensor >= 0 && tensor < (int)arrlen(ctx->keep_fp32) && ctx->keep_fp32[tensor];
    return kept && (ctx->desc.math != EIN_MATH_FP32 || ein__has_halves(ctx));
}

static bool ein__is_real(const ein_ctx *ctx, ein__val v) {
    ein__dtype t = ctx->value[v.i].dtype;
    return t == EIN__F32 || t == EIN__F16 || t == EIN__BF16;
}

// Whether values still have the model's types although the mode stores most of them as halves:
// while a program is derived, before storage.c has given each its own type.
static bool ein__is_untyped(const ein_ctx *ctx) {
    return ctx->desc.math == EIN_MATH_FP16 && !ctx->typed;
}

// Whether products with an operand `v` keep its exponents in a mode that would make it halves.
static bool ein__stays_wide(ein_ctx *ctx, ein__val v) {
    return ctx->desc.math == EIN_MATH_FP16 && ein__is_wide(ctx, v);
}

// Of a product with these operands.
static ein__math ein__math_of(ein_ctx *ctx, ein__val a, ein__val b) {
    if (ein__are_halves(ctx, a, b)) return EIN__MATH_FP16;
    if (ctx->desc.math != EIN_MATH_FP16) return (ein__math)ctx->desc.math;
    if (ein__stays_wide(ctx, a) || ein__stays_wide(ctx, b)) return EIN__MATH_FP32;
    bool halves = ctx->value[a.i].dtype == EIN__F16 && ctx->value[b.i].dtype == EIN__F16;
    return halves || ein__is_untyped(ctx) ? EIN__MATH_FP16 : EIN__MATH_FP32;
}

// Whether products of tensors of these types are ours to plan. Kernels convert what they load.
static bool ein__multiplies(ein__dtype a, ein__dtype b) { return a <= EIN__BF16 && b <= EIN__BF16; }

// Whether a library multiplies such factors: it wants them of one type.
static bool ein__alike(const ein_ctx *ctx, ein__val a, ein__val b) {
    ein__dtype s = ctx->value[a.i].dtype, t = ctx->value[b.i].dtype;
    if (s == EIN__BF16 || t == EIN__BF16) return false;
    if (ein__are_halves(ctx, a, b)) return true;
    if (ctx->desc.math != EIN_MATH_FP16) return s == EIN__F32 && t == EIN__F32;
    return s == t || ein__is_untyped(ctx);
}

// Bytes of an element of `v` in memory, or what they most likely will be.
static int64_t ein__element_size(ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    bool made = p->kind != EIN__V_INPUT || p->made;
    bool half = p->dtype == EIN__F32 && made && ein__is_untyped(ctx) && !ein__is_wide(ctx, v);
    return half ? 2 : ein__dtype_size(p->dtype);
}
