// Proofs of a whole plan, from one cut (cuts.c) to the next, and of merges.

// Whether what the kernel of an attention computes is the value that it stands for, for all values
// of what it reads.
static bool ein__attention_holds(ein_ctx *ctx, const ein__step *step, int samples) {
    ein__attention a;
    uint32_t first = (uint32_t)arrlen(ctx->value), *fresh = NULL;
    ein__attention_tile t;
    if (!ein__attention_of(ctx, step, &a) ||
        !ein__attention_tiles(ctx, &a, ein__bytes_of(ctx, step->out), &t))
        return false;
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
    bool equal = true;
    ein__prove_cuts(&z, false);
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step) && equal; i++) {
        if (ctx->plan.step[i].kind != EIN__K_ATTENTION) continue;
        *name = ctx->plan.step[i].name;
        equal = ein__attention_holds(ctx, &ctx->plan.step[i], samples);
    }
    for (int k = 0; k < nroot && equal; k++) {
        *name = ctx->graph.output[k].name;
        ein__val a = ctx->tensor_value[ctx->graph.output[k].tensor], b = ctx->plan.root[k];
        ein__prover_grow(&z);
        equal = ein__prove_equal(&z, a, b, true);
    }
    ein__prover_free(&z);
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
    if (!ein__derived_program(ctx, root, nroot)) return false;
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
