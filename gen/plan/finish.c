// Fuses maps of a plan that finish sums (sums.c) with the reduction that only they read: this saves
// a round trip through memory and a launch for each cell of a recurrent network, whose state and
// output are two maps (chain.c) that read the gates at several places each.

// Whether step `i` is a reduction that may be computed by the threads of what reads it.
static bool ein__may_finish(const ein__stitcher *s, int i, int j) {
    ein_ctx *ctx = s->ctx;
    const ein__step *head = &s->step[i];
    const ein__layout *l = &ctx->plan.layout[head->out.i];
    const int *readers = s->readers[l->buffer];
    const ein__scope *r = ein__scope_of(ctx, head->val[0]);
    if (s->gone[i] || head->ahead || head->npeer || head->sums || head->also.i || head->nrow ||
        head->nval > 2 || head->load[0].i || head->load[1].i || r->reduce != EIN__R_SUM ||
        r->ns == 0 || ctx->value[head->out.i].dtype > EIN__BF16 ||
        ctx->value[head->val[0].i].dtype > EIN__BF16)
        return false;
    if (ctx->plan.buffer[l->buffer].kind != EIN__B_ARENA || arrlen(s->writers[l->buffer]) != 1)
        return false;
    for (ptrdiff_t k = 0; k < arrlen(readers); k++)
        if (readers[k] != j) return false;
    // Nobody stores the sum any more: what is a part of it in place would not be there.
    const ein__step *maps = &s->step[j];
    if (!ein__reads_itself(ctx, maps, head->out)) return false;
    for (int m = 0; m < maps->npeer; m++)
        if (!ein__reads_itself(ctx, &maps->peer[m], head->out)) return false;
    return head->kind == EIN__K_REDUCE || head->kind == EIN__K_PRODUCT || ein__is_call(head->kind);
}

// Whether step `j` is a map, or maps one behind the other, that may finish sums.
static bool ein__may_be_finished(const ein__stitcher *s, int j) {
    const ein__step *m = &s->step[j];
    return m->kind == EIN__K_MAP && m->nval == 1 && !m->ahead && !m->sums && !m->also.i &&
           (m->chained || !m->npeer) && s->ctx->value[m->out.i].dtype <= EIN__BF16;
}

// Steps `i` and `j` as one, in the second one's place.
static ein__step ein__finished_step(ein_ctx *ctx, const ein__step *head, const ein__step *maps) {
    ein__step s = *maps;
    s.kind = EIN__K_REDUCE;
    s.sums = EIN__NEW(&ctx->arena, ein__step, 1);
    *s.sums = *head;
    s.nval = 0;
    for (int k = 0; k < head->nval; k++) s.val[s.nval++] = head->val[k];
    s.val[s.nval++] = maps->val[0];
    s.key = NULL;
    s.measured = false;
    return s;
}

// The estimate for such a step: the reduction with the first map, and what the others add.
EIN__FN int64_t ein__estimate_finish(ein_ctx *ctx, const ein__step *s) {
    ein__kernel k = ein__step_kernel(ctx, s);
    int64_t ps = ein__estimate_kernel(ctx, &k), launch = ein__launch_ps(ein__gpu_of(ctx));
    for (int i = 0; i < s->npeer; i++) {
        ein__kernel own = ein__step_kernel(ctx, &s->peer[i]);
        int64_t more = ein__estimate_kernel(ctx, &own) - launch;
        ps = ein__plus(ps, ein__most(more, 0) + EIN__STITCH_TURN_PS);
    }
    return ps;
}

static const char *ein__finish_key(ein_ctx *ctx, const ein__step *s) {
    ein__kernel k = ein__step_kernel(ctx, s);
    uint64_t h = ein__kernel_id(ctx, &k);
    for (int i = 0; i < s->npeer; i++) {
        ein__kernel own = ein__step_kernel(ctx, &s->peer[i]);
        h = ein__mix(h, ein__kernel_id(ctx, &own));
    }
    return ein__namef(ctx, "kernel finish %016llx",
                      (unsigned long long)ein__mix(h, (uint64_t)s->nval));
}

// Makes step `j` finish the sums of one that it reads, where that is cheaper.
static bool ein__finish_step(ein__stitcher *s, int j, ein__val *const *all) {
    ein_ctx *ctx = s->ctx;
    const ein__val *reads = all[j];
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        const int *w = s->writers[ctx->plan.layout[reads[k].i].buffer];
        ein__finish f;
        if (arrlen(w) != 1 || w[0] >= j || s->step[w[0]].out.i != reads[k].i) continue;
        const ein__step *head = &s->step[w[0]];
        bool fits = arrlen(reads) + arrlen(all[w[0]]) + s->step[j].npeer < EIN__MAX_ARGS - 3;
        if (!fits || !ein__may_finish(s, w[0], j)) continue;
        ein__step both = ein__finished_step(ctx, head, &s->step[j]);
        if (!ein__finish_of(ctx, &both, &f)) continue;
        // What is stored in another order is a matter of layouts.
        if (f.n == 1 && ein__copy_of(ctx, both.out)) continue;
        int64_t least = both.ps = ein__estimate_finish(ctx, &both);
        least = ein__cost_sum(least, ein__muldiv(least, EIN__STITCH_MARGIN, 100));
        if (ctx->kernel_rows || ctx->desc.probe) {
            both.key = ein__finish_key(ctx, &both);
            const ein__cost_row *row = ein__row_of(ctx, both.key);
            both.measured = row != NULL;
            if (row) both.ps = least = row->ps;
        }
        if (least >= ein__cost_sum(head->ps, s->step[j].ps)) continue;
        s->gone[w[0]] = true;
        s->step[j] = both;
        return true;
    }
    return false;
}

static ein__step *ein__copy_steps(const ein__step *from) {
    ein__step *to = NULL;
    for (ptrdiff_t i = 0; i < arrlen(from); i++) arrput(to, from[i]);
    return to;
}

// The plan's steps are the best ones if they are the first or cost less than those.
static void ein__keep_steps(ein_ctx *ctx, ein__step **best, int64_t *least) {
    int64_t ps = ein__plan_cost(&ctx->plan);
    if (*best && ps >= *least) {
        arrfree(ctx->plan.step);
        return;
    }
    arrfree(*best);
    *best = ctx->plan.step;
    *least = ps;
}

// Lets the plan's maps finish sums where that is cheaper. Gives whether some do.
static bool ein__finish_plan(ein_ctx *ctx) {
    ein__val **reads = NULL;
    ein__stitcher s = ein__stitcher_look(ctx, &reads);
    bool any = false;
    for (int j = 0; j < s.n; j++)
        if (ein__may_be_finished(&s, j)) any |= ein__finish_step(&s, j, reads);
    ein__stitcher_end(&s, reads);
    return any;
}

// Chains and stitches what makes the cheapest plan first, and lets maps `finish` sums. Gives
// whether some may.
static bool ein__stitch_steps(ein_ctx *ctx, bool finish) {
    ein__step *apart = ctx->plan.step, *best = NULL;
    int64_t least = 0;
    bool any = false;
    for (int way = 0; way < 4; way++) {
        ctx->plan.step = ein__copy_steps(apart);
        if (way & 2 || finish) ein__chain_plan(ctx);
        if (way & 2 && finish) any |= ein__finish_plan(ctx);
        ein__stitch_plan(ctx, !(way & 1));
        ein__chain_plan(ctx);
        if (finish) any |= ein__finish_plan(ctx);
        ein__keep_steps(ctx, &best, &least);
    }
    arrfree(apart);
    ctx->plan.step = best;
    return any;
}

// Whether a product's loads compute what it multiplies, and whether it adds another one.
static bool ein__computes_loads(const ein__step *s) {
    return s->kind == EIN__K_PRODUCT && !s->nrow && (s->load[0].i || s->load[1].i);
}
static bool ein__adds_product(const ein__step *s) { return s->addend.i != 0; }

// Whether a product of such a `kind` is read by nothing but maps, at several places of each: they
// would finish its sums if it were none.
EIN__FN bool ein__in_the_way(ein_ctx *ctx, bool (*kind)(const ein__step *)) {
    ein__val **reads = NULL;
    ein__stitcher s = ein__stitcher_look(ctx, &reads);
    bool found = false;
    for (int j = 0; j < s.n && !found; j++) {
        for (ptrdiff_t k = 0; k < arrlen(reads[j]) && !found; k++) {
            const int *w = s.writers[ctx->plan.layout[reads[j][k].i].buffer];
            if (arrlen(w) != 1 || w[0] >= j) continue;
            const ein__step *head = &s.step[w[0]];
            if (!kind(head)) continue;
            int places = 0;
            const ein__ex *all = ein__ex_reads(ctx, ein__scope_of(ctx, s.step[j].out)->body);
            for (ptrdiff_t i = 0; i < arrlen(all); i++)
                places += ein__ex_get(ctx, all[i])->val == reads[j][k].i;
            found = places > 1 && s.step[j].kind == EIN__K_MAP;
        }
    }
    ein__stitcher_end(&s, reads);
    return found;
}

// Whether the plan has kernels whose warps have results.
static bool ein__any_warps(ein_ctx *ctx) {
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step) && !any; i++) {
        const ein__step *own = ein__as_kernel(ctx, &ctx->plan.step[i]);
        any = !own->npeer && ein__warps_of(ctx, own);
    }
    return any;
}

// Joins siblings of the plan, and rows with the maps in front of them, in the order that makes the
// cheaper plan: a map may be one with its sibling instead. The best plan so far is kept.
static void ein__join_steps(ein_ctx *ctx, ein__step **best, int64_t *least) {
    ein__step *apart = ctx->plan.step;
    bool fronts = true;
    for (int late = 0; late < 2 && fronts; late++) {
        ctx->plan.step = ein__copy_steps(apart);
        if (!late) fronts = ein__front_plan(ctx);
        ein__join_siblings(ctx, ein__may_join);
        if (late) ein__front_plan(ctx);
        ein__keep_steps(ctx, best, least);
    }
    arrfree(apart);
}

// Makes kernels of the plan one where that is cheaper. What finishes sums has no siblings, whose
// warps have sums may be in the way of others as one, and what computes a sum once more gains by
// siblings alone, so that plans with and without are made.
EIN__FN void ein__fuse_steps(ein_ctx *ctx) {
    ein__step *apart = ctx->plan.step, *best = NULL;
    int64_t least = 0;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->desc.inspect) return;
    bool warps = ein__any_warps(ctx), finish = true, again = true;
    for (int way = 0; way < 8; way++) {
        if ((way & 1 && !warps) || (way & 2 && !finish) || (way & 4 && !again)) continue;
        ctx->plan.step = ein__copy_steps(apart);
        if (way & 4 && !(again = ein__recompute_plan(ctx))) {
            arrfree(ctx->plan.step);
            break;
        }
        // What computes sums once more is made one with them before it is part of anything else.
        if (way & 4) ein__join_siblings(ctx, ein__may_join_again);
        ctx->threads_only = way & 1;
        bool any = ein__stitch_steps(ctx, !(way & 2));
        if (!way) finish = any;
        ein__join_steps(ctx, &best, &least);
    }
    ctx->threads_only = false;
    arrfree(apart);
    ctx->plan.step = best;
    ein__hide_members(ctx);
}
