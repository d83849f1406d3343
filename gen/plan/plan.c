// The plan of a program: the steps for its values in order, work on weights alone split off,
// kernels fused or kept apart as it is cheapest.

static void ein__plan_free(ein__plan *p) {
    arrfree(p->step);
    arrfree(p->init);
    arrfree(p->buffer);
    arrfree(p->placed);
    arrfree(p->layout);
    *p = (ein__plan){0};
}

// A plan that is not taken: kept where its kernels are to be measured.
static void ein__pass_plan(ein_ctx *ctx, ein__plan *p) {
    if (!ctx->desc.probe) {
        ein__plan_free(p);
        return;
    }
    arrput(ctx->passed, *p);
    *p = (ein__plan){0};
}

enum {
    EIN__NEAR_GAIN = 10,  // another way to make a plan may gain such a share of what it costs
    EIN__FEW_STEPS = 40,
    EIN__JOINING_SHARE = 50  // what lays results side by side takes such a share, or is let be
};

// Whether the plan has so few steps that a look at other plans costs little.
static bool ein__few_steps(const ein_ctx *ctx) { return arrlen(ctx->plan.step) <= EIN__FEW_STEPS; }

// Whether another way to make a plan that costs `ps` might make it the cheapest so far, or takes no
// long time. Kernels are to be measured whatever the estimates are.
static bool ein__is_worth_it(const ein_ctx *ctx, int64_t ps) {
    return ctx->desc.probe || ein__few_steps(ctx) || !ctx->least_ps ||
           ps / EIN__NEAR_GAIN <= ctx->least_ps / (EIN__NEAR_GAIN - 1);
}

static bool ein__plan_is_worth_it(const ein_ctx *ctx) {
    return ein__is_worth_it(ctx, ein__plan_cost(&ctx->plan));
}

// Whether `v` is a constant matrix that every reader has in its text.
static bool ein__is_in_text(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    bool text = ein__is_table(ctx, v) && !sel->root[v.i];
    for (int i = sel->readers.first[v.i]; text && i < sel->readers.first[v.i + 1]; i++) {
        ein__val r = sel->readers.all[i];
        text = sel->kind[r.i] == EIN__K_BASIS && ein__scope_of(ctx, r)->reduce != EIN__R_NONE;
    }
    return text;
}

// Products for a kernel of our own: filters re-laid at load; where the terms are better shared
// between tiles, the sum of their parts.
static ein__val ein__rebuild_product(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val old = v;
    z->keep = true;
    ein__ex body = ein__rebuild_body(z, v), read = {0};
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || ctx->value[v.i].weight_only) return v;
    if (!ein__is_contraction(ctx, ein__scope_of(ctx, v)))
        return ein__copy_of(ctx, v) || ein__is_kept(ctx, old) ? v : ein__loosen_weights(z, v);
    ein__split split;
    int64_t ps;
    ein__val map = ein__sole_reader(ctx, z->uses, &z->readers, old, &read);
    v = ein__read_directly(z, v, map, read);
    if (!v.i) return v;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__kind kind = ein__choose_parts(ctx, s, map, read, true, &ps, &split);
    if (kind == EIN__K_REDUCE) return ein__relay_window(z, v);
    if (kind != EIN__K_PRODUCT) return v;
    if (split.parts > 1 && ctx->taking && ein__norm_ahead(ctx, v)) {
        ctx->parted = true;
        if (ctx->whole) split.parts = 1;
    }
    if (split.parts > 1 && map.i && ein__is_better_added(z, old, map, read, ps)) split.parts = 1;
    int64_t lines = ein__cost_lines(ctx, s, map, read);
    bool cheaper = lines < INT64_MAX && lines < ein__cost_scope(ctx, EIN__K_PRODUCT, s, map, read);
    v = ein__relay_product(z, v, cheaper);
    return v.i && split.parts > 1 ? ein__split_value(z, v, &split) : v;
}

// A result that is stored where its output is has the output's name (ein__open_borders).
static void ein__name_results(ein_ctx *ctx, const ein__placer *placer, const ein__val *root,
                              int nroot) {
    for (int k = 0; k < nroot; k++) {
        const ein__expr *read = ein__copy_of(ctx, root[k]);
        if (!read || ctx->value[read->val].kind != EIN__V_SCOPE || placer->sel->root[read->val] ||
            ctx->value[read->val].dtype != ctx->value[root[k].i].dtype ||
            !ein__reads_in_place(ctx, read, ein__scope_of(ctx, root[k])))
            continue;
        ctx->value[read->val].name =
            placer->view[root[k].i] ? ctx->value[root[k].i].name : ein__last_name(ctx, root[k]);
    }
}

// Marks in `*fell` contraction `v`, whose step is the last one, where a call for it became a kernel
// under the layouts, and the map that alone reads it a step of its own.
static void ein__mark_fallen(ein_ctx *ctx, const ein__selector *sel, ein__val v, bool **fell) {
    ptrdiff_t n = arrlen(ctx->plan.step);
    const ein__step *s = n ? &ctx->plan.step[n - 1] : NULL;
    ein__ex read = {0};
    if (!s || s->out.i != v.i || !ein__is_call(sel->kind[v.i]) || ein__is_call(s->kind) ||
        !ein__sole_reader(ctx, sel->uses, &sel->readers, v, &read).i)
        return;
    while (arrlen(*fell) < arrlen(ctx->value)) arrput(*fell, false);
    (*fell)[v.i] = true;
}

// Steps, layouts and memory for the prepared values under `root`, in ctx->plan. `loose`: products
// are selected as if their results could lie in memory in any order. Gives how many are selected
// for that reason alone.
static int ein__plan_values(ein_ctx *ctx, ein__val *root, int nroot, bool loose, bool **fell) {
    ein__selector sel = {.ctx = ctx, .free = loose};
    ein__select(&sel, root, nroot);
    ein__placer placer = {.ctx = ctx, .sel = &sel};
    bool *made = NULL;
    ein__place(&placer, root, nroot);
    arrsetlen(made, arrlen(ctx->value));
    memset(made, 0, (size_t)arrlen(made) * sizeof *made);
    ein__choose_layouts(&placer, ein__price_under_layouts);
    if (ctx->channels_last) ein__name_results(ctx, &placer, root, nroot);
    for (ptrdiff_t i = 0; i < arrlen(sel.order); i++) {
        ein__val v = sel.order[i];
        if (!ein__is_stored(&placer, v) || placer.view[v.i] || ein__is_in_text(ctx, &sel, v))
            continue;
        // What one step stores comes when the first of it is wanted.
        const ein__norm *n = ein__norm_of(ctx, v, true);
        if (n) v = n->out;
        if (made[v.i]) continue;
        made[v.i] = true;
        ein__make_step(ctx, &sel, v);
        ein__mark_fallen(ctx, &sel, v, fell);
    }
    ctx->plan.root = root;
    arrfree(made);
    ein__placer_free(&placer);
    ein__select_free(&sel);
    return sel.reordered;
}

// Steps for the values under `root`. Where an order of a result made the difference, the plan must
// show that it could be had: the selection without it is planned as well, the cheaper taken.
static void ein__plan_selected(ein_ctx *ctx, ein__val *root, int nroot, bool **fell) {
    if (ein__plan_values(ctx, root, nroot, true, fell)) {
        ein__plan with = ctx->plan;
        ctx->plan = (ein__plan){0};
        ein__plan_values(ctx, root, nroot, false, fell);
        if (ein__plan_cost(&with) < ein__plan_cost(&ctx->plan)) {
            ein__pass_plan(ctx, &ctx->plan);
            ctx->plan = with;
        } else {
            ein__pass_plan(ctx, &with);
        }
    }
}

// Makes `other` the context's plan again unless the new one is `ok` and cheaper; whether it is.
static bool ein__keep_cheaper(ein_ctx *ctx, ein__plan *other, bool ok) {
    bool cheaper = ok && ein__plan_cost(&ctx->plan) < ein__plan_cost(other);
    ein__pass_plan(ctx, cheaper ? other : &ctx->plan);
    if (!cheaper) ctx->plan = *other;
    return cheaper;
}

// The same; where calls became kernels under the layouts, also with these chosen from the start,
// which may compute the maps behind them.
static void ein__plan_orders(ein_ctx *ctx, ein__val *root, int nroot) {
    bool *fell = NULL, *again = NULL;
    ein__plan_selected(ctx, root, nroot, &fell);
    if (fell && !ctx->status) {
        ein__plan first = ctx->plan;
        ctx->plan = (ein__plan){0};
        ctx->fallen = fell;
        ein__plan_selected(ctx, root, nroot, &again);
        ctx->fallen = NULL;
        (void)ein__keep_cheaper(ctx, &first, true);
    }
    arrfree(fell);
    arrfree(again);
}

// Plans the same values with row operations taken into products, where some look cheaper so, and
// keeps that plan if it is.
static void ein__plan_norms(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *with = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ein__made made = ein__made_now(ctx);
    memcpy(with, root, (size_t)nroot * sizeof *root);
    if (ctx->status || !ctx->taking || !ein__take_norms(ctx, with, nroot)) {
        ein__forget_norms(ctx);
        if (!ctx->status) ein__unmake(ctx, &made);
        return;
    }
    ein__plan apart = ctx->plan;
    ctx->plan = (ein__plan){0};
    ein__plan_orders(ctx, with, nroot);
    ein__forget_norms(ctx);
    if (!ein__keep_cheaper(ctx, &apart, true)) ein__unmake(ctx, &made);
}

// The plan for the values under `root`, which are made ready for it first.
static bool ein__build_ready(ein_ctx *ctx, ein__val *root, int nroot) {
    ctx->typed = false;
    ein__keep_attentions(ctx, root, nroot);
    if (!ein__prepare_calls(ctx, root, nroot) ||
        !ein__run_pass(ctx, root, nroot, ein__rebuild_product) ||
        !ein__take_numbers_apart(ctx, root, nroot) || !ein__prepare_maps(ctx, root, nroot))
        return false;
    if (ctx->desc.math == EIN_MATH_FP16) {
        if (!ein__store_types(ctx, root, nroot)) return false;
        ctx->typed = true;
    }
    if (ctx->channels_last && !ein__open_borders(ctx, root, nroot)) return false;
    if (ctx->taking && !ein__join_sums(ctx, root, nroot)) return false;
    if (!ein__reload_maps(ctx, root, nroot) || !ein__end_rows(ctx, root, nroot)) return false;
    if (ctx->laying && !ein__copy_pieces(ctx, root, nroot)) return false;
    ein__plan_orders(ctx, root, nroot);
    ein__plan_norms(ctx, root, nroot);
    return !ctx->status;
}

// What `build` plans for the values under `root` while `*flag` is set, or the context's plan,
// whichever costs less.
static bool ein__build_again(ein_ctx *ctx, ein__val *root, int nroot, bool *flag,
                             bool (*build)(ein_ctx *, ein__val *, int)) {
    ein__plan first = ctx->plan;
    ein__made made = ein__made_now(ctx);
    ctx->plan = (ein__plan){0};
    *flag = true;
    bool ok = build(ctx, root, nroot);
    *flag = false;
    if (!ein__keep_cheaper(ctx, &first, ok) && ok) ein__unmake(ctx, &made);
    return ok;
}

// The same, with products behind row operations parted or, if that makes a better plan, whole.
static bool ein__build_plan(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *whole = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(whole, root, (size_t)nroot * sizeof *root);
    ctx->parted = false;
    if (!ein__build_ready(ctx, root, nroot)) return false;
    if (!ctx->parted) return true;
    return ein__build_again(ctx, whole, nroot, &ctx->whole, ein__build_ready);
}

// The plan for the derived values under `root`, kernels made one where that is cheaper.
static bool ein__build_steps(ein_ctx *ctx, ein__val *root, int nroot) {
    if (!ein__build_plan(ctx, root, nroot)) return false;
    ein__group_products(ctx);
    ein__fuse_steps(ctx);
    return true;
}

// The same, with copies of maps for the loads of products too, where there are such.
static bool ein__build_reloads(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    ctx->reloads = false;
    if (!ein__build_steps(ctx, root, nroot)) return false;
    if (!ctx->reloads || !ein__plan_is_worth_it(ctx)) return true;
    return ein__build_again(ctx, other, nroot, &ctx->reloading, ein__build_steps);
}

// Whether steps that lay others' results side by side are a part of the plan's time.
static bool ein__plan_joins(ein_ctx *ctx) {
    int64_t ps = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        bool any = false;
        for (int k = 0; k < s->nval && !any; k++) any = ein__joins(ctx, s->val[k]);
        if (any) ps = ein__cost_sum(ps, s->ps);
    }
    return ps >= ein__plan_cost(&ctx->plan) / EIN__JOINING_SHARE && ps > 0;
}

// The same, with copies of what may lie elsewhere for those steps too, where there are such.
static bool ein__build_laid(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    if (!ein__build_reloads(ctx, root, nroot)) return false;
    if (!ein__plan_is_worth_it(ctx) || !ein__plan_joins(ctx)) return true;
    return ein__build_again(ctx, other, nroot, &ctx->laying, ein__build_steps);
}

// Whether a product of the plan loads a copy, which could be made beside other kernels.
static bool ein__loads_copies(ein_ctx *ctx) {
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        for (int k = 0; k < 2; k++) {
            ein__val p = ctx->plan.step[i].load[k];
            any |= p.i && ein__copy_of(ctx, p);
        }
    return any;
}

// The same, with maps in the loads of products or, if that makes a better plan, without.
static bool ein__build_loads(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    if (!ein__build_laid(ctx, root, nroot)) return false;
    if (!ein__plan_is_worth_it(ctx)) return true;
    if (!ein__in_the_way(ctx, ein__computes_loads) && !ein__loads_copies(ctx)) return true;
    return ein__build_again(ctx, other, nroot, &ctx->unloaded, ein__build_steps);
}

// What `build` plans, with products that kernels add up or, if that makes a better plan, apart.
static bool ein__build_sums(ein_ctx *ctx, ein__val *root, int nroot,
                            bool (*build)(ein_ctx *, ein__val *, int)) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    if (!build(ctx, root, nroot)) return false;
    if (!ein__plan_is_worth_it(ctx)) return true;
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        any |= ein__adds_product(&ctx->plan.step[i]);
    // Tables that have both forms can tell what one gains.
    if (!any || !(ctx->desc.probe || ein__in_the_way(ctx, ein__adds_product))) return true;
    return ein__build_again(ctx, other, nroot, &ctx->unadded, build);
}

// The plan for the values under `root`, kernels made one where that is cheaper.
static bool ein__build_fused(ein_ctx *ctx, ein__val *root, int nroot) {
    if (!ein__build_plan(ctx, root, nroot)) return false;
    ein__fuse_steps(ctx);
    return true;
}

// The plan for a program that is not derived.
static bool ein__build_baseline(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__build_sums(ctx, root, nroot, ein__build_fused);
}

// The same for a derived one.
static bool ein__build_added(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__build_sums(ctx, root, nroot, ein__build_loads);
}

// What `build` plans, with rows that end in one result each or, if that makes a better plan, with
// their reductions as kernels, which may be one with others (siblings.c), or with rows that compute
// maps as large as their terms, which kernels of their own might have in front of them (front.c).
static bool ein__build_rows(ein_ctx *ctx, ein__val *root, int nroot,
                            bool (*build)(ein_ctx *, ein__val *, int)) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    ctx->ends = ctx->weighs = false;
    if (!build(ctx, root, nroot)) return false;
    bool ends = ctx->ends, weighs = ctx->weighs, ok = true;
    if (!(ends || weighs) || !ein__plan_is_worth_it(ctx)) return true;
    ein__val *third = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(third, other, (size_t)nroot * sizeof *other);
    ein__step *steps = ctx->plan.step;
    if (ends) ok = ein__build_again(ctx, other, nroot, &ctx->unended, build);
    ctx->plan.unended = ctx->plan.step != steps;
    if (ok && weighs) ok = ein__build_again(ctx, third, nroot, &ctx->weighing, build);
    return ok;
}

static bool ein__build_numbers(ein_ctx *ctx, ein__val *root, int nroot) {
    bool ok = ein__build_added(ctx, root, nroot);
    ctx->plan.numbering = true;
    return ok;
}

// Whether a step of the plan only moves what another one stored.
static bool ein__plan_copies(ein_ctx *ctx) {
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        for (int k = 0; k < ctx->plan.step[i].nval; k++)
            any |= ein__copy_of(ctx, ctx->plan.step[i].val[k]) != NULL;
    return any;
}

// The same for the derived program, with what is read at numbers of digits (apart.c) as it is or,
// where that makes a better plan, taken apart.
static bool ein__build_derived(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    ctx->numbers = false;
    if (!ein__build_rows(ctx, root, nroot, ein__build_added)) return false;
    if (!ctx->numbers || !ein__plan_is_worth_it(ctx)) return true;
    if (!ein__few_steps(ctx) && !ein__plan_copies(ctx)) return true;
    ctx->unended = ctx->plan.unended;
    bool ok = ein__build_again(ctx, other, nroot, &ctx->numbering, ein__build_numbers);
    ctx->unended = false;
    return ok;
}

// The same, with copies as halves of what attentions read or, if that makes a better plan, without.
static bool ein__build_halves(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    ctx->halves = false;
    if (!ein__build_derived(ctx, root, nroot)) return false;
    if (!ctx->halves || !ein__plan_is_worth_it(ctx)) return true;
    return ein__build_again(ctx, other, nroot, &ctx->halving, ein__build_derived);
}
