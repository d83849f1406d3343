// Transposes of weights at load: one kernel with sizes and strides as arguments serves them all. It
// runs once, so the size of the emitted file matters, not its speed.

enum { EIN__RELAY_RANK = 6 };

// One launch for a step that only moves weights; false when it is something else.
static bool ein__emit_relay(ein_ctx *ctx, const ein__step *step, ein__buf *out, ein__launch *l) {
    const ein__expr *e = ein__copy_of(ctx, step->out);
    const ein__value *v = &ctx->value[step->out.i];
    bool moves = step->nval == 1 && (step->kind == EIN__K_MAP || step->kind == EIN__K_TRANSPOSE);
    moves &= !step->npeer && !step->ahead;
    ein__factor f;
    if (!moves || !e || !v->weight_only || v->dtype != EIN__F32) return false;
    if (ctx->value[e->val].dtype != EIN__F32) return false;
    if (!ein__address(ctx, e, ctx->plan.layout[e->val].stride, &f)) return false;
    ein__chain dim[EIN__MAX_RANK];
    int n = 0;
    const int64_t *to = ctx->plan.layout[step->out.i].stride;
    for (int k = 0; k < v->shape.rank; k++)
        if (v->shape.d[k] > 1) dim[n++] = (ein__chain){v->shape.d[k], {f.coef[k], to[k], to[k]}, 0};
    n = ein__join_chains(dim, n);
    if (n > EIN__RELAY_RANK) return false;
    ein__kgen g = ein__kgen_make(ctx, step->out, true, 1);
    g.ordered = true;  // one text, whether the operand is known before or just computed
    (void)ein__kparam(&g, (ein__val){e->val});
    ein__key keys[2];
    bool fits = ein__kgrid(ctx, l, (ein__elements(&v->shape) + 255) / 256, 256);
    if (fits) ein__kfinish(&g, step->out, "relay", ein__tmpl_relay, keys, 2, out, l);
    ein__kgen_free(&g);
    ein__buf extra = {0};
    ein__putf(&extra, "relay{%d, %lld", n, (long long)f.offset);
    for (int part = 0; n && part < 3; part++) {
        ein__put(&extra, ", {");
        for (int k = 0; k < n; k++)
            ein__putf(&extra, "%s%lld", k ? ", " : "",
                      (long long)(part ? dim[k].stride[part - 1] : dim[k].n));
        ein__put(&extra, "}");
    }
    ein__put(&extra, "}");
    l->extra = ein__name(ctx, extra.s);
    ein__buf_free(&extra);
    return fits;
}
