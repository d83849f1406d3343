// Products of tensors that the model stores as f16 or bf16. A library call multiplies f32 (halves
// in FP16 mode), and so do rules and merges: here such factors become copies as f32, exactly what
// they are, made at load of weights. Where a kernel of ours is cheaper that converts what it loads,
// it reads the tensor itself again (ein__read_directly).

// Whether products read `v` as f32: f16 is multiplied as it is in FP16 mode.
static bool ein__is_narrow(const ein_ctx *ctx, ein__val v) {
    ein__dtype t = ctx->value[v.i].dtype;
    return t == EIN__BF16 || (t == EIN__F16 && ctx->desc.math != EIN_MATH_FP16);
}

// Whether map `v` is a copy of f32 that nothing views: what computes that stores it at once.
static bool ein__is_narrowing(ein_ctx *ctx, ein__val v) {
    const ein__expr *read = ein__copy_of(ctx, v);
    return read && ein__is_narrow(ctx, v) && ctx->value[read->val].dtype == EIN__F32;
}

// Factor `read` as f32.
static ein__ex ein__widened(ein__pass *z, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    ein__val v = {read->val};
    if (!ein__is_narrow(ctx, v)) return ein__ex_of(ctx, read);
    const ein__shape shape = ctx->value[v.i].shape;
    ein__ix ix[EIN__MAX_RANK];
    for (int i = 0; i < shape.rank; i++) ix[i] = ein__ix_iter(ctx, (uint32_t)i, shape.d[i]);
    ein__ex body = ein__ex_read(ctx, v, 0, ix, shape.rank);
    const char *name = ein__namef(ctx, "%s.float", ctx->value[v.i].name);
    z->self = v;
    ein__val copy = ein__new_map(z, name, EIN__F32, shape.rank, shape.d, body);
    return copy.i ? ein__ex_read(ctx, copy, 0, read->ix, (int)read->nix) : (ein__ex){0};
}

// A product of two factors and a number.
static ein__ex ein__times_number(ein_ctx *ctx, double alpha, ein__ex a, ein__ex b) {
    ein__ex body = a.i && b.i ? ein__ex_binary(ctx, EIN__MUL, a, b) : (ein__ex){0};
    if (!body.i || alpha == 1) return body;
    return ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
}

// Whether product `v` of `read` multiplies halves as they are.
static bool ein__stays_halves(const ein_ctx *ctx, ein__val v, const ein__expr *const *read) {
    ein__val a = {read[0]->val}, b = {read[1]->val};
    return ein__are_halves(ctx, a, b) && !ein__keeps_fp32(ctx, v);
}

static ein__val ein__rebuild_typed(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read[2];
    double alpha;
    z->self = v;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || ctx->value[v.i].weight_only ||
        !ein__two_factors(ctx, ein__scope_of(ctx, v), read, &alpha) ||
        read[0]->val == read[1]->val || ein__stays_halves(ctx, v, read) ||
        !(ein__is_narrow(ctx, (ein__val){read[0]->val}) ||
          ein__is_narrow(ctx, (ein__val){read[1]->val})))
        return v;
    ein__ex a = ein__widened(z, read[0]), b = ein__widened(z, read[1]);
    body = ein__times_number(ctx, alpha, a, b);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Gives products of the program under `root` factors of f32.
static bool ein__widen_factors(ein_ctx *ctx, ein__val *root, int nroot) {
    bool any = false;
    for (ptrdiff_t i = 1; i < arrlen(ctx->value) && !any; i++)
        any = ein__is_narrow(ctx, (ein__val){(uint32_t)i});
    return !any || ein__run_pass(ctx, root, nroot, ein__rebuild_typed);
}
