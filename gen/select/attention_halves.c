// Keys and values that are f32 where an attention multiplies halves. Each tile of rows would load
// all of them, wait, convert them and store them before it multiplies. Copies as halves, which
// another kernel makes once, can be loaded asynchronously while others are multiplied. Decided by
// cost; storage.c makes them.

// Puts copies in the place of the keys and values of `a` that are f32. Gives what the kernel takes
// that makes them; EIN__PS_LIMIT: there are none.
static int64_t ein__attention_halve(ein_ctx *ctx, ein__attention *a) {
    ein__work w = {0};
    ein__val of = {0}, half = {0};
    for (int part = 1; part < EIN__ATTENTION_PARTS; part++) {
        const ein__expr *e = ein__attention_factor(ctx, a, part);
        ein__val v = {e ? e->val : 0};
        const ein__value *p = &ctx->value[v.i];
        bool floats = p->dtype == EIN__F32 && ein__element_size(ctx, v) == 4;
        if (!e || p->weight_only || !floats) continue;
        const ein__expr read = *e;
        if (v.i != of.i) {
            w.bytes[0] = ein__plus(w.bytes[0], ein__times(ein__elements(&p->shape), 4 + 2));
            half = ein__converted(ctx, v, EIN__F16);
        }
        of = v;
        if (!half.i) return EIN__PS_LIMIT;
        *ein__attention_part(a, part) =
            ein__ex_read(ctx, half, ein__f64_of(read.bits), read.ix, (int)read.nix);
    }
    return w.bytes[0] ? ein__work_ps(ein__gpu_of(ctx), &w) : EIN__PS_LIMIT;
}

// What attention `a` costs with such copies, and they; EIN__PS_LIMIT: it has none.
static int64_t ein__cost_attention_halves(ein_ctx *ctx, const ein__attention *a,
                                          int64_t bytes_out) {
    ein__attention z = *a;
    if (ctx->desc.math != EIN_MATH_FP16 || ein__attention_mode(ctx, a) != EIN__MATH_FP16)
        return EIN__PS_LIMIT;
    int64_t ps = ein__attention_halve(ctx, &z);
    if (ps == EIN__PS_LIMIT) return ps;
    return ein__cost_sum(ps, ein__cost_attention(ctx, &z, bytes_out));
}
