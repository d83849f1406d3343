// Rematerialisation, as compilers do it for registers: maps of a plan that read a short sum, which
// others read too, compute it themselves. Then a map need not wait for the sum's kernel, and may
// share a launch with it (siblings.c), or with other kernels that only waited for it.

enum { EIN__RECOMPUTED_TERMS = 16 };  // at most: each is read once more, from the caches

// Whether map `map` may compute the sum `head` that it reads.
static bool ein__may_recompute(const ein__stitcher *s, const ein__step *head,
                               const ein__step *map) {
    ein_ctx *ctx = s->ctx;
    const ein__layout *l = &ctx->plan.layout[head->out.i];
    ein__bkind kind = ctx->plan.buffer[l->buffer].kind;
    if (head->kind != EIN__K_REDUCE || head->nval > 2 || !ein__is_threaded(ctx, head) ||
        ein__warps_of(ctx, head) || ctx->value[head->out.i].dtype > EIN__BF16)
        return false;
    if ((kind != EIN__B_ARENA && kind != EIN__B_OUTPUT) || arrlen(s->writers[l->buffer]) != 1)
        return false;
    // Else nobody would need the sum by itself.
    if (kind == EIN__B_ARENA && arrlen(s->readers[l->buffer]) < 2) return false;
    return ein__terms_of(ein__scope_of(ctx, head->val[0])) <= EIN__RECOMPUTED_TERMS &&
           ein__is_walked_alike(ctx, head->out, map->out) && ein__follows(ctx, map, head->out);
}

// Both as one kernel that stores what the map gives.
static ein__step ein__recomputed_step(ein_ctx *ctx, const ein__step *head, const ein__step *map) {
    ein__step s = *map;
    s.kind = EIN__K_REDUCE;
    s.nval = 0;
    for (int k = 0; k < head->nval; k++) s.val[s.nval++] = head->val[k];
    s.val[s.nval++] = map->val[0];
    ein__price_kernel(ctx, &s);
    return s;
}

// Lets the plan's maps compute such sums. Gives whether some do.
static bool ein__recompute_plan(ein_ctx *ctx) {
    ein__val **reads = NULL;
    ein__stitcher s = ein__stitcher_look(ctx, &reads);
    bool any = false;
    for (int j = 0; j < s.n; j++) {
        if (!ein__may_chain(ctx, &s.step[j])) continue;
        for (ptrdiff_t k = 0; k < arrlen(reads[j]); k++) {
            const int *w = s.writers[ctx->plan.layout[reads[j][k].i].buffer];
            if (arrlen(w) != 1 || w[0] >= j) continue;
            const ein__step *head = ein__as_kernel(ctx, &s.step[w[0]]);
            bool fits = arrlen(reads[j]) + arrlen(reads[w[0]]) < EIN__MAX_ARGS - 3;
            if (!fits || !ein__may_recompute(&s, head, &s.step[j])) continue;
            s.step[j] = ein__recomputed_step(ctx, head, &s.step[j]);
            if (head != &s.step[w[0]]) {
                s.step[w[0]] = *head;
                s.step[w[0]].ps = ein__cost_step(ctx, head);
            }
            s.step[j].again = s.step[w[0]].again = true;
            any = true;
            break;
        }
    }
    ein__stitcher_end(&s, reads);
    return any;
}
