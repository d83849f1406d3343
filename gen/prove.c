// Proofs of a whole plan and of merges. In a plan, tensors that the model and the plan both have
// are cuts: once one is proved equal, later proofs take it as any value, the same on both sides. So
// each proof reaches back to the nearest cuts only, at full sizes too.

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

// ------------------------------------------------------------------------------------ merges

// Whether the cheapest derivation of the merged contraction is the contraction, for all values of
// what it reads.
static bool ein__derived_holds(ein_ctx *ctx, const ein__merge *m, ein__val v, int samples) {
    ein__operands b = {.n = 0};
    int64_t ps;
    ein__problem *p = ein__merge_problem(ctx, m, v, true, &b, &ps);
    if (!p) return false;
    uint32_t *fresh = NULL;
    for (uint32_t i = 0; i < (uint32_t)arrlen(ctx->value); i++) arrput(fresh, i != v.i ? i : 0);
    ein__realiser r = {.z = &p->z, .nstand = b.n, .self = v};
    memcpy(r.stand_in, b.stand_in, sizeof r.stand_in);
    memcpy(r.actual, b.actual, sizeof r.actual);
    ein__val made = ein__realise(&r, p->z.problem);
    while (arrlen(fresh) < arrlen(ctx->value)) arrput(fresh, 0);
    bool equal = made.i && ein__evalp_equal_from(ctx, v, made, samples, 1, fresh);
    arrfree(r.made);
    arrfree(r.by_scope);
    arrfree(fresh);
    return equal;
}

// A merge step by step: the merges of earlier rounds that are in its program, itself, and how its
// contraction is derived.
static bool ein__form_holds(ein_ctx *ctx, const ein__merge *found, const ein__merge_form *f,
                            int samples) {
    bool equal = true;
    for (ptrdiff_t i = 0; i < arrlen(found) && equal; i++)
        if (&found[i] == f->m || (found[i].chosen && found[i].first < f->m->first))
            equal = !ein__merge_differs(ctx, &found[i], samples).i;
    equal = equal && (!f->derived || ein__derived_holds(ctx, f->m, f->m->wide, samples));
    bool inner = f->derived && ein__runs_inner(ctx, f->m);
    return equal && (!inner || ein__derived_holds(ctx, f->m, f->m->inner, samples));
}

// Whether the merge with this id gives the values that it replaces, modulo 2^61-1 at `samples`
// random places each. `name`: a value that must take part in it, or NULL. False after an error too.
EIN__FN bool ein__verify_merge(ein_ctx *ctx, const char *name, int id, int samples) {
    int nroot = (int)arrlen(ctx->graph.output);
    ptrdiff_t at = id - EIN__MERGE_ID;
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    for (int k = 0; k < nroot; k++) root[k] = ctx->tensor_value[ctx->graph.output[k].tensor];
    if (!ein__own_outputs(ctx, root, nroot) || !ein__fold(ctx, root, nroot)) return false;
    ein__merge *found = ein__planned_merges(ctx, root, nroot);
    ein__merge_form *list = ein__merge_forms(ctx, found);
    ptrdiff_t n = arrlen(list);
    if (!ctx->status && !n)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0},
                   "no candidate %d: nothing in the model can be merged", id);
    if (!ctx->status && at >= n)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0},
                   "no candidate %d: the model's merges are %d to %lld", id, EIN__MERGE_ID,
                   (long long)(EIN__MERGE_ID + n - 1));
    if (!ctx->status && name && !ein__merge_has(ctx, list[at].m, name))
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "'%s' takes no part in candidate %d", name,
                   id);
    bool equal = !ctx->status && ein__form_holds(ctx, found, &list[at], samples);
    arrfree(list);
    ein__merges_free(found);
    return equal;
}
