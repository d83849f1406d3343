// The variants in which a program is planned (the model as folded, derived, merged, with other
// layouts, and so on), of which the cheapest plan is kept.

// A value that is an output as it stands (an input, a weight, or another output's value) gets a
// copy, so that every output has a step that writes it.
static bool ein__own_outputs(ein_ctx *ctx, ein__val *root, int nroot) {
    for (int k = 0; k < nroot; k++) {
        bool shared = ctx->value[root[k].i].kind != EIN__V_SCOPE;
        for (int j = 0; j < k; j++) shared |= root[j].i == root[k].i;
        if (!shared) continue;
        root[k] = ein__identity_copy(ctx, root[k], ctx->graph.output[k].name);
        if (!root[k].i) return false;
    }
    return true;
}

// A plan that rereads, or does without a rule, must be cheaper by a share of that one's cost: what
// it changes is all over the program, and a changed layer should not change the others for a
// trifle. One that does both changes it once.
enum { EIN__REREADING_GAIN = 64, EIN__WITHOUT_GAIN = 50 };

// Steps of plans that take long to make; values that all of them together may have made before the
// others are made as if they took long, too: passes go through all values.
enum { EIN__MANY_STEPS = 64, EIN__MANY_VALUES = 50000 };

static bool ein__takes_long(const ein_ctx *ctx) {
    ptrdiff_t made = arrlen(ctx->value) + ctx->unmade - ctx->values_before;
    bool any = ctx->desc.probe || ctx->desc.form;
    return !any && (arrlen(ctx->plan.step) > EIN__MANY_STEPS || made > EIN__MANY_VALUES);
}

// Whether `ctx->plan` is to be taken instead of `best`: never one that costs more than the
// baseline.
static bool ein__is_better_plan(const ein_ctx *ctx, const ein__plan *best) {
    int64_t ps = ein__plan_cost(&ctx->plan), than = ein__plan_cost(best);
    if (ctx->approach.without) than -= than / EIN__WITHOUT_GAIN;
    else if (ctx->approach.rereading) than -= than / EIN__REREADING_GAIN;
    return ps <= best->baseline_ps && ps < than;
}

// Makes the plan that was made before, if there is one, the context's again unless the new one is
// better, which then leaves nothing behind of what was made since `made`.
static void ein__keep_better(ein_ctx *ctx, ein__plan *best, bool ok, const ein__made *made) {
    if (best->root && (!ok || !ein__is_better_plan(ctx, best))) {
        ein__pass_plan(ctx, &ctx->plan);
        ctx->plan = *best;
        if (ok) ein__unmake(ctx, made);
    } else if (best->root) {
        ein__pass_plan(ctx, best);
    }
    int64_t ps = ein__plan_cost(&ctx->plan);
    if (ctx->plan.root && (!ctx->least_ps || ps < ctx->least_ps)) ctx->least_ps = ps;
}

// The place in ctx->tried of the derived program under `root`, which is put there if it is new.
static ptrdiff_t ein__tried_at(ein_ctx *ctx, const ein__val *root, int nroot) {
    ptrdiff_t n = arrlen(ctx->tried);
    for (ptrdiff_t i = 0; i < n; i++)
        if (ein__is_same_program(ctx, root, ctx->tried[i].root, nroot)) return i;
    ein__derived tried = {.root = EIN__NEW(&ctx->arena, ein__val, nroot + 1)};
    memcpy(tried.root, root, (size_t)nroot * sizeof *root);
    arrput(ctx->tried, tried);
    return n;
}

// Whether a step of the plan was derived by rule `r`.
static bool ein__plan_uses(const ein_ctx *ctx, ein__rule_id r) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        for (int k = 0; k < ctx->plan.step[i].nval; k++) {
            const char *why = ctx->value[ctx->plan.step[i].val[k].i].why;
            if (why && strstr(why, ein__rules[r].what)) return true;
        }
    return false;
}

static const ein__rule_id ein__left_out[] = {EIN__RULE_SPLIT, EIN__RULE_PHASES, EIN__RULE_WINDOWS};
enum { EIN__LEFT_OUT = sizeof ein__left_out / sizeof *ein__left_out };

// Those of the rules that may be left out by which steps of the plan were derived.
static uint64_t ein__used_rules(const ein_ctx *ctx) {
    uint64_t uses = 0;
    for (int i = 0; i < EIN__LEFT_OUT; i++)
        if (ein__plan_uses(ctx, ein__left_out[i])) uses |= (uint64_t)1 << ein__left_out[i];
    return uses;
}

// Plans the derived program under `root`, unless that has been; kept when it is the cheapest so
// far.
static bool ein__try_plan(ein_ctx *ctx, ein__val *root, int nroot, ein__merging merging) {
    ptrdiff_t known = arrlen(ctx->tried);
    ein__keep_attentions(ctx, root, nroot);
    if (ctx->online && !ein__run_pass(ctx, root, nroot, ein__rebuild_kept)) return false;
    if (!ein__derive(ctx, root, nroot)) return false;
    ptrdiff_t at = ein__tried_at(ctx, root, nroot);
    if (at < known) {
        ctx->tried_ps = ctx->tried[at].ps;
        ctx->tried_uses = ctx->tried[at].uses;
        return !ctx->status;
    }
    ein__plan best = ctx->plan;
    ein__made made = ein__made_now(ctx);
    ctx->plan = (ein__plan){0};
    bool ok = ein__build_halves(ctx, root, nroot);
    ctx->typed = false;
    ctx->tried_ps = ctx->tried[at].ps = ein__plan_cost(&ctx->plan);
    ctx->tried_uses = ctx->tried[at].uses = ein__used_rules(ctx);
    ctx->plan.way = (ein__planning){ctx->approach, merging, ctx->online, ctx->channels_last};
    ctx->plan.baseline_ps = best.baseline_ps;
    if (ok && ctx->desc.form && merging == EIN__UNMERGED) ein__pass_plan(ctx, &best);
    else ein__keep_better(ctx, &best, ok, &made);
    return ok;
}

// Plans the program under `root` with merges, in whole groups, and where leaving out members looks
// better with that as well: what a merge saves is an estimate that layouts may undo.
static bool ein__try_merged(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__merger z = {.ctx = ctx};
    ein__val *ready = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ptrdiff_t before = arrlen(ctx->value);
    bool ok = true, toggled = true;
    memcpy(ready, root, (size_t)nroot * sizeof *root);
    if (!ein__prepare_merges(ctx, ready, nroot)) return false;
    for (int toggle = 0; ok && toggle < 2 && toggled; toggle++) {
        ein__val *merged = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
        memcpy(merged, ready, (size_t)nroot * sizeof *ready);
        // What is not made again counts (ein__takes_long) as if it were.
        if (toggle) ctx->unmade += z.first_values - before;
        toggled = false;
        if (ein__merge_rounds(&z, merged, nroot, toggle))
            ok = ein__try_plan(ctx, merged, nroot, toggle ? EIN__TOGGLED : EIN__MERGED);
        for (ptrdiff_t i = 0; i < arrlen(z.found); i++) toggled |= z.found[i].toggled;
    }
    ein__merges_free(z.found);
    return ok;
}

// The same derived once more, as if what reads a derived result in another order could as well read
// what that was made from: maps that follow do, where they are all that reads it, and kernels that
// take any gather; but nobody knows before layouts are chosen.
static bool ein__try_rereading(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *derived = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(derived, root, (size_t)nroot * sizeof *root);
    ctx->approach.rereading = true;
    ein__forget_choices(ctx);
    bool ok = ein__try_plan(ctx, derived, nroot, EIN__UNMERGED);
    ctx->approach.rereading = false;
    ein__forget_choices(ctx);
    return ok;
}

// The same derived without some rules: their forms are priced with their tensors in the orders that
// suit them, which layouts may give to others.
static bool ein__try_without(ein_ctx *ctx, const ein__val *root, int nroot, uint64_t rules) {
    ein__val *derived = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(derived, root, (size_t)nroot * sizeof *root);
    ctx->approach.without = rules;
    ein__forget_choices(ctx);
    bool ok = ein__try_plan(ctx, derived, nroot, EIN__UNMERGED);
    if (ok && ctx->rereads) ok = ein__try_rereading(ctx, root, nroot);
    ctx->approach.without = 0;
    ein__forget_choices(ctx);
    return ok;
}

// Plans the program under `root` as ctx->lead says; merged where there is something to merge.
static bool ein__try_led(ein_ctx *ctx, const ein__val *root, int nroot) {
    const ein__planning *lead = &ctx->lead;
    ptrdiff_t known = arrlen(ctx->tried);
    if (lead->approach.without) return ein__try_without(ctx, root, nroot, lead->approach.without);
    if (lead->approach.rereading) return ein__try_rereading(ctx, root, nroot);
    if (lead->merging && !ein__try_merged(ctx, root, nroot)) return false;
    if (arrlen(ctx->tried) > known) return true;
    ein__val *derived = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(derived, root, (size_t)nroot * sizeof *root);
    return ein__try_plan(ctx, derived, nroot, EIN__UNMERGED);
}

// Plans the program derived, and derived after merging, from the folded one under `root`.
static bool ein__try_plans(ein_ctx *ctx, const ein__val *root, int nroot) {
    arrsetlen(ctx->tried, 0);
    if (ctx->led) return ein__try_led(ctx, root, nroot);
    ein__val *derived = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(derived, root, (size_t)nroot * sizeof *root);
    bool ok = ein__try_plan(ctx, derived, nroot, EIN__UNMERGED);
    int64_t tried = ctx->tried_ps;
    uint64_t uses = ctx->tried_uses;
    if (ctx->desc.form) return ok;
    ok = ok && ein__try_merged(ctx, root, nroot);
    if (!ein__is_worth_it(ctx, tried)) return ok;
    if (ok && ctx->rereads) ok = ein__try_rereading(ctx, root, nroot);
    // Of a plan that is not taken it may be the one rule that makes it dear.
    uses |= ein__used_rules(ctx);
    for (uint64_t rules = uses & -uses; ok && rules; rules = (rules - uses) & uses)
        ok = ein__try_without(ctx, root, nroot, rules);
    return ok;
}

// Where plans take long to make, those to come are made in the way of the best one so far: each
// choice is tried in all its ways once, not in all combinations with others.
static void ein__follow_plan(ein_ctx *ctx) {
    ctx->led = ctx->many;
    ctx->lead = ctx->plan.way;
}

// The program under `root` as ctx->approach.variant has it; whether that is another one.
static bool ein__make_variant(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    switch (ctx->approach.variant) {
    case EIN__TIGHTENED: return ein__tighten_operands(ctx, root, nroot, changed);
    case EIN__FEWER_TERMS: return ein__multiply_less(ctx, root, nroot, changed);
    case EIN__DISTRIBUTED: return ein__distribute(ctx, root, nroot, changed);
    case EIN__GATED: return ein__part_gates(ctx, root, nroot, changed);
    case EIN__LOOKED_UP: return ein__look_up_places(ctx, root, nroot, changed);
    case EIN__AS_FOLDED:
    case EIN__VARIANTS: break;
    }
    return true;
}

// Plans the program under `root` derived, and derived after merging, both also with softmax
// computed online where that is cheaper.
static bool ein__try_derived(ein_ctx *ctx, ein__val *root, int nroot) {
    bool may = ein__rule_on(ctx, EIN__RULE_ONLINE) && !ctx->desc.form;
    ctx->taking = true;
    ctx->online = may;
    bool any = may && ein__keep_attentions(ctx, root, nroot);
    ctx->online = false;
    bool ok = (any && ctx->led && ctx->lead.online) || ein__try_plans(ctx, root, nroot);
    ctx->online = any && (!ctx->led || ctx->lead.online);
    if (ok && ctx->online) ok = ein__try_plans(ctx, root, nroot);
    ctx->online = ctx->taking = false;
    arrfree(ctx->kept);
    arrfree(ctx->tried);
    return ok;
}

// Reductions of the program under `root` in several steps, where each has fewer terms.
static bool ein__in_parts(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__sort_rows(ctx, root, nroot) && ein__block_prefixes(ctx, root, nroot) &&
           ein__separate_windows(ctx, root, nroot);
}

// The same of the program in variant `k`, if that is another one.
static bool ein__try_variant(ein_ctx *ctx, const ein__val *root, int nroot, int k, bool *changed) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(other, root, (size_t)nroot * sizeof *root);
    ctx->approach.variant = (ein__variant)k;
    bool ok = ein__make_variant(ctx, other, nroot, changed);
    if (ok && *changed) ok = ein__try_derived(ctx, other, nroot);
    ctx->approach.variant = EIN__AS_FOLDED;
    return ok;
}

// The same as it is and in each other variant: in all ways, or where plans take long to make in the
// way that is best for it as it is.
static bool ein__try_variants(ein_ctx *ctx, ein__val *root, int nroot) {
    int lead = ctx->led ? (int)ctx->lead.approach.variant : EIN__AS_FOLDED;
    bool led = ctx->led, changed = false;
    if (lead != EIN__AS_FOLDED && !ein__try_variant(ctx, root, nroot, lead, &changed)) return false;
    if (changed) return true;
    bool ok = ein__try_derived(ctx, root, nroot);
    if (led || ctx->desc.form) return ok;
    ein__follow_plan(ctx);
    for (int k = EIN__AS_FOLDED + 1; k < EIN__VARIANTS && ok; k++)
        ok = ein__try_variant(ctx, root, nroot, k, &changed);
    ctx->led = false;
    return ok;
}

// Plans the program under `root` as it stands (the baseline), and in ein__try_derived's ways, as it
// is and in each other variant. The cheapest as a whole is taken, so it never costs more than the
// baseline under the same table. `derive`: not the baseline alone. ein_desc.form: derived with each
// contraction's so-and-so best definition, whatever that costs.
static bool ein__try_ways(ein_ctx *ctx, const ein__val *root, int nroot, int64_t *baseline,
                          bool derive) {
    // What a plan has as its root must stay as it is.
    ein__val *plain = EIN__NEW(&ctx->arena, ein__val, nroot + 1),
             *whole = EIN__NEW(&ctx->arena, ein__val, nroot + 1),
             *blocked = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    bool less;
    ein__plan best = ctx->plan;
    ein__made made = ein__made_now(ctx);
    ctx->plan = (ein__plan){0};
    memcpy(plain, root, (size_t)nroot * sizeof *root);
    bool ok = ein__build_rows(ctx, plain, nroot, ein__build_baseline);
    ctx->typed = false;
    if (ok) *baseline = ein__least(*baseline, ein__plan_cost(&ctx->plan));
    best.baseline_ps = ctx->plan.baseline_ps = *baseline;
    ctx->plan.way = (ein__planning){.approach = ctx->approach, .channels_last = ctx->channels_last};
    ctx->many |= ein__takes_long(ctx);
    ein__keep_better(ctx, &best, ok, &made);
    if (!ok || !derive) return ok;
    memcpy(blocked, root, (size_t)nroot * sizeof *root);
    memcpy(whole, root, (size_t)nroot * sizeof *root);
    // What is left out may have been shared; of large programs nobody asks that.
    if (!ein__leave_out(ctx, blocked, nroot, &less)) return false;
    ctx->approach.entire = less && ein__few_steps(ctx);
    if (ctx->approach.entire &&
        !(ein__in_parts(ctx, whole, nroot) && ein__try_derived(ctx, whole, nroot)))
        return false;
    ctx->approach.entire = false;
    return ein__in_parts(ctx, blocked, nroot) && ein__try_variants(ctx, blocked, nroot);
}

// Whether convolutions may take their tensors in NHWC too: where that could be cheaper, as for
// calls and for tensor cores' tiles, whose loads of a window's channels are one.
static bool ein__may_reorder(const ein_ctx *ctx) {
    bool tensor = ctx->desc.math != EIN_MATH_FP32 || ein__has_halves(ctx),
         calls = ctx->desc.libs == EIN_LIBS_ALL && (ctx->desc.probe || shlen(ctx->costs));
    return (tensor || calls) && ein__rule_on(ctx, EIN__RULE_MATCH);
}

// The model's folded program under `root`.
static bool ein__folded_program(ein_ctx *ctx, ein__val *root, int nroot) {
    for (int k = 0; k < nroot; k++) root[k] = ctx->tensor_value[ctx->graph.output[k].tensor];
    return ein__own_outputs(ctx, root, nroot) && ein__fold(ctx, root, nroot);
}

// The folded programs that were planned in one arithmetic, and the least cost without derivation.
typedef struct ein__folds {
    ein__val *root[2 * EIN__APARTS];
    int n;
    int64_t baseline;
} ein__folds;

// Plans with convolutions in declared order, and where calls may have either order with these as
// well, since what derivation takes for granted layouts may not give. `one`: derived as ctx->lead
// has them alone.
static bool ein__try_orders(ein_ctx *ctx, ein__folds *z, bool one) {
    int nroot = (int)arrlen(ctx->graph.output);
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ctx->typed = ctx->nests = ctx->parts = false;
    if (!ein__folded_program(ctx, root, nroot)) return false;
    if ((ctx->approach.nesting && !ctx->nests) || (ctx->approach.apart && !ctx->parts)) return true;
    for (int i = 0; i < z->n; i++)
        if (ein__is_same_program(ctx, root, z->root[i], nroot)) return true;
    z->root[z->n++] = root;
    ctx->approach = (ein__approach){.nesting = ctx->approach.nesting, .apart = ctx->approach.apart};
    ctx->rereads = false;
    if (ctx->approach.nesting || ctx->approach.apart) ein__forget_costs(ctx);
    bool ok = true, both = !ctx->desc.form && ein__may_reorder(ctx);
    for (int last = 0; last <= (int)both && ok; last++) {
        ctx->channels_last = last;
        if (last) ein__forget_costs(ctx);
        bool derive = !ctx->desc.baseline && !(one && ctx->lead.channels_last != last);
        ok = ein__try_ways(ctx, root, nroot, &z->baseline, derive);
    }
    return ok;
}

// Whether the program is planned with its dimensions and concatenations as ctx->approach has them.
// `follows`: as ctx->lead has them alone.
static bool ein__folds_so(const ein_ctx *ctx, bool follows) {
    const ein__approach *a = &ctx->approach, *lead = &ctx->lead.approach;
    if (follows && (a->apart != lead->apart || a->nesting != lead->nesting)) return false;
    if ((a->apart || a->nesting) && ctx->desc.form) return false;
    if ((a->apart && !ein__rule_on(ctx, EIN__RULE_APART)) ||
        (a->nesting && !ein__rule_on(ctx, EIN__RULE_NEST)))
        return false;
    return follows || a->apart != EIN__APART_NUMBERS || ctx->plan.numbering || ein__few_steps(ctx);
}

// The plan of a lowered model in arithmetic `ctx->desc.math`: as it stands, with dimensions taken
// apart, of which kernels may have to find as many digits elsewhere, and with concatenations that
// begin with others, which library calls may be unable to store in pieces. Where plans take long to
// make and one was made before, in another arithmetic or with other libraries, as that one
// (ctx->lead).
static bool ein__plan_math(ein_ctx *ctx) {
    ein__folds folds = {.baseline = INT64_MAX};
    bool ok = true, follows = ctx->many;
    ctx->led = follows;
    for (int way = 0; way < 2 * EIN__APARTS && ok; way++) {
        ctx->approach.apart = (ein__apartness)(way % EIN__APARTS);
        ctx->approach.nesting = way / EIN__APARTS;
        if (!ein__folds_so(ctx, follows)) continue;
        ok = ein__try_orders(ctx, &folds, ctx->led && !follows);
        if (!follows) ein__follow_plan(ctx);
    }
    if (ok && !ctx->plan.root) {
        ctx->approach.apart = EIN__NUMBERED;
        ctx->approach.nesting = false;
        ok = ein__try_orders(ctx, &folds, false);
    }
    ctx->led = false;
    if (!ok) return false;
    int64_t least = folds.baseline;
    ctx->plan.baseline_ps = ein__plan_cost(&ctx->plan) < least ? least : 0;
    return !ctx->status;
}
