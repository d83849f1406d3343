// Proof of a whole plan. Tensors that the model and the plan both have are cuts: once one is proved
// equal, later proofs take it as any value, the same on both sides. So each proof reaches back to
// the nearest cuts only, at full sizes too.

typedef struct ein__prover {
    ein_ctx *ctx;
    int samples;
    uint32_t *fresh;  // by value id: the free value that it is in later proofs; stb_ds array
} ein__prover;

// The model's value that planned value `v` goes by the name of; none for values made on the way.
static ein__val ein__namesake(const ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    if (p->kind != EIN__V_SCOPE || p->tensor < 0) return (ein__val){0};
    const ein__tensor *t = &ctx->graph.tensor[p->tensor];
    ein__val own = ctx->tensor_value[p->tensor];
    bool same = t->name == p->name && own.i && own.i != v.i &&
                ctx->value[own.i].dtype == p->dtype &&
                ein__same_shape(&ctx->value[own.i].shape, &p->shape);
    return same ? own : (ein__val){0};
}

// A tensor that has kept its name but not its meaning (a scale was folded into it) is no cut, and
// neither is one whose proof meets a limit.
static void ein__prove_cut(ein__prover *z, ein__val planned) {
    ein_ctx *ctx = z->ctx;
    ein__val own = ein__namesake(ctx, planned);
    if (!own.i || z->fresh[own.i] || z->fresh[planned.i]) return;
    ein__attempt attempt = ein__try(ctx);
    bool equal = ein__evalp_equal_from(ctx, own, planned, z->samples, 1, z->fresh);
    if (!ein__tried(ctx, attempt) || !equal) return;
    z->fresh[own.i] = z->fresh[planned.i] = own.i;
}

// Whether the plan computes what the model says: every output, the value as lowered against the
// value as planned, modulo 2^61-1 at `samples` random places a proof. `name` receives the output
// that differs.
EIN__FN bool ein__verify(ein_ctx *ctx, int samples, const char **name) {
    int nroot = (int)arrlen(ctx->graph.output);
    ein__prover z = {.ctx = ctx, .samples = samples};
    ein__val *order = ein__live(ctx, ctx->plan.root, nroot);
    bool equal = true;
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) arrput(z.fresh, 0);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        bool output = false;
        for (int k = 0; k < nroot; k++) output |= ctx->plan.root[k].i == order[i].i;
        if (!output) ein__prove_cut(&z, order[i]);
    }
    for (int k = 0; k < nroot && equal; k++) {
        *name = ctx->graph.output[k].name;
        ein__val a = ctx->tensor_value[ctx->graph.output[k].tensor], b = ctx->plan.root[k];
        equal = ein__evalp_equal_from(ctx, a, b, samples, 1, z.fresh);
    }
    arrfree(order);
    arrfree(z.fresh);
    return equal;
}
