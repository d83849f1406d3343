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

// Marks the cuts that the definition of `v` comes to, by their free values.
static void ein__cuts_below(const ein__prover *z, const uint32_t *fresh, ein__val v, uint8_t mark,
                            uint8_t *seen, uint8_t *met) {
    const ein__scope *s = ein__scope_of(z->ctx, v);
    if (!s || seen[v.i] & mark) return;
    seen[v.i] |= mark;
    ein__ex *reads = NULL;
    ein__ex_reads(z->ctx, s->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val r = {ein__ex_get(z->ctx, reads[i])->val};
        if (fresh[r.i]) met[fresh[r.i]] |= mark;
        else ein__cuts_below(z, fresh, r, mark, seen, met);
    }
    arrfree(reads);
}

// Takes out of `fresh` the cuts that one of two definitions comes to and the other passes by, or
// `all` that any of them comes to. False when there are none.
static bool ein__drop_cuts(const ein__prover *z, uint32_t *fresh, ein__val a, ein__val b,
                           bool all) {
    size_t n = (size_t)arrlen(fresh);
    uint8_t *seen = NULL, *met = NULL;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        arrput(seen, 0);
        arrput(met, 0);
    }
    ein__cuts_below(z, fresh, a, 1, seen, met);
    ein__cuts_below(z, fresh, b, 2, seen, met);
    for (size_t i = 0; i < n; i++) {
        if (!fresh[i] || met[fresh[i]] == 0 || (met[fresh[i]] == 3 && !all)) continue;
        fresh[i] = 0;
        any = true;
    }
    arrfree(seen);
    arrfree(met);
    return any;
}

enum { EIN__CUT_LEVELS = 8 };  // of cuts that a proof may reach behind

// Equal from the nearest cuts on; where a plan has a cut's definition in its place, from the cuts
// behind it. `far`: also where both have such places, which costs much.
static bool ein__prove_equal(ein__prover *z, ein__val a, ein__val b, bool far) {
    uint32_t *fresh = NULL;
    bool equal = ein__evalp_equal_from(z->ctx, a, b, z->samples, 1, z->fresh);
    for (ptrdiff_t i = 0; i < arrlen(z->fresh); i++) arrput(fresh, z->fresh[i]);
    for (int level = 0; !equal && level < EIN__CUT_LEVELS && !z->ctx->status; level++) {
        if (!ein__drop_cuts(z, fresh, a, b, false) &&
            !(far && ein__drop_cuts(z, fresh, a, b, true)))
            break;
        equal = ein__evalp_equal_from(z->ctx, a, b, z->samples, 1, fresh);
    }
    arrfree(fresh);
    return equal;
}

// A tensor that has kept its name but not its meaning (a scale was folded into it) is no cut, and
// neither is one whose proof meets a limit.
static void ein__prove_cut(ein__prover *z, ein__val planned) {
    ein_ctx *ctx = z->ctx;
    ein__val own = ein__namesake(ctx, planned);
    if (!own.i || z->fresh[own.i] || z->fresh[planned.i]) return;
    ein__attempt attempt = ein__try(ctx);
    bool equal = ein__prove_equal(z, own, planned, false);
    if (!ein__tried(ctx, attempt) || !equal) return;
    z->fresh[own.i] = z->fresh[planned.i] = own.i;
}

// Whether what the kernel of an attention computes is the value that it stands for, for all values
// of what it reads.
static bool ein__attention_holds(ein_ctx *ctx, const ein__step *step, int samples) {
    ein__attention a;
    uint32_t first = (uint32_t)arrlen(ctx->value), *fresh = NULL;
    if (!ein__attention_of(ctx, step, &a)) return false;
    ein__val made = ein__attention_meaning(ctx, &a);
    for (uint32_t i = 0; i < (uint32_t)arrlen(ctx->value); i++) arrput(fresh, i < first ? i : 0);
    for (int k = 0; k < step->nval; k++) fresh[step->val[k].i] = 0;
    bool equal = made.i && ein__evalp_equal_from(ctx, step->out, made, samples, 1, fresh);
    arrfree(fresh);
    return equal;
}

// Whether the plan computes what the model says: every attention, and every output, the value as
// lowered against the value as planned, modulo 2^61-1 at `samples` random places a proof. `name`
// receives what differs.
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
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step) && equal; i++) {
        if (ctx->plan.step[i].kind != EIN__K_ATTENTION) continue;
        *name = ctx->plan.step[i].name;
        equal = ein__attention_holds(ctx, &ctx->plan.step[i], samples);
    }
    for (int k = 0; k < nroot && equal; k++) {
        *name = ctx->graph.output[k].name;
        ein__val a = ctx->tensor_value[ctx->graph.output[k].tensor], b = ctx->plan.root[k];
        while (arrlen(z.fresh) < arrlen(ctx->value)) arrput(z.fresh, 0);
        equal = ein__prove_equal(&z, a, b, true);
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
