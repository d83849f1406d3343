// The cheapest of the plans that a model has in several arithmetics, with and without libraries.

enum {
    EIN__LAUNCHES = 4,    // they are a good part of a plan from one in so many parts of its time on
    EIN__SOON_STEPS = 8,  // of a small plan
    EIN__NEAR_PERCENT = 25,  // that a plan may cost more and still be the cheapest with fewer calls
    EIN__FEWER_PERCENT = 7   // that such a plan must cost less where launches are no good part
};

// A plan with what it was made by: what is explained is priced as it was.
typedef struct ein__planned {
    ein__plan plan;
    ein__search *search;
    ein_math math;
    ein_libs libs;
    bool channels_last;
} ein__planned;

static ein__planned ein__planned_now(const ein_ctx *ctx) {
    return (ein__planned){ctx->plan, ctx->search, ctx->desc.math, ctx->desc.libs,
                          ctx->channels_last};
}

static void ein__plan_again(ein_ctx *ctx, const ein__planned *p) {
    ctx->plan = p->plan;
    ctx->search = p->search;
    ctx->desc.math = p->math;
    ctx->desc.libs = p->libs;
    ctx->channels_last = p->channels_last;
}

// Whether a plan calls a library: any, or `cudnn`.
static bool ein__has_calls(const ein__plan *p, bool cudnn) {
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        ein__kind kind = p->step[i].kind;
        any |= ein__is_call(kind) && !(cudnn && kind == EIN__K_GEMM);
    }
    return any;
}

// What a plan costs with doubts: products of ours that nobody has measured cost more than they are
// estimated at, as they do beside a call.
static int64_t ein__doubted_cost(const ein__plan *p) {
    int64_t ps = ein__plan_cost(p);
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        const ein__step *s = &p->step[i];
        if (s->kind == EIN__K_PRODUCT)
            ps = ein__cost_sum(ps, ein__beside_call(s->ps, s->measured) - s->ps);
    }
    return ps;
}

static bool ein__costs_less(const ein__plan *p, const ein__plan *q) {
    return ein__plan_cost(p) < ein__plan_cost(q);
}

// Whether a plan is small, or launches are a good part of what it takes.
static bool ein__is_short(const ein_ctx *ctx, const ein__plan *p) {
    int64_t launches = arrlen(p->step) * ein__launch_ps(ein__gpu_of(ctx));
    return arrlen(p->step) <= EIN__SOON_STEPS || launches >= ein__plan_cost(p) / EIN__LAUNCHES;
}

// Whether plan `p`, with fewer libraries, is taken instead of one with more: it must be cheaper
// with doubts as well, and by more than them where it is not launches that it saves. No library is
// linked for calls that are estimated at just what our kernels are.
static bool ein__needs_fewer_calls(const ein_ctx *ctx, const ein__plan *p, const ein__plan *with) {
    int64_t ps = ein__plan_cost(p), least = ein__plan_cost(with), doubted = ein__doubted_cost(p);
    if (!ein__is_short(ctx, with)) doubted = ein__muldiv(doubted, 100 + EIN__FEWER_PERCENT, 100);
    return ps == least || (ps < least && doubted < ein__doubted_cost(with));
}

// Frees what was planned as `other`, which the context's plan is not.
static void ein__forget_plan(ein__planned *other) {
    ein__plan_free(&other->plan);
    ein__search_free(other->search);
}

// Plans in the context's arithmetic with `libs`; the context's plan stays unless the other one is
// taken for it.
static bool ein__try_libs(ein_ctx *ctx, ein_libs libs) {
    ein__planned best = ein__planned_now(ctx), other = {.math = best.math, .libs = libs};
    bool calls = ein__has_calls(&best.plan, false);
    int64_t baseline = best.plan.baseline_ps ? best.plan.baseline_ps : ein__plan_cost(&best.plan);
    ein__made made = ein__made_now(ctx);
    ctx->lead = best.plan.way;
    ein__count_problems(ctx);
    ein__plan_again(ctx, &other);
    bool ok = ein__plan_math(ctx);
    ein__count_problems(ctx);
    other = ein__planned_now(ctx);
    bool taken = ok && (calls ? ein__needs_fewer_calls(ctx, &other.plan, &best.plan)
                              : ein__costs_less(&other.plan, &best.plan));
    if (!taken) ein__plan_again(ctx, &best);
    ein__forget_plan(taken ? &best : &other);
    if (ok && !taken) ein__unmake(ctx, &made);
    // What is gained is gained over the plan with all libraries.
    if (taken) ctx->plan.baseline_ps = ein__plan_cost(&ctx->plan) < baseline ? baseline : 0;
    return ok;
}

// Plans with fewer of the libraries that the context's plan was made with: calls are chosen one by
// one, but what a kernel of ours saves is often the step before or behind it, and how tensors are
// stored was decided with calls in mind. Where there is no call to be given up kernels were chosen
// beside one.
static bool ein__try_fewer_calls(ein_ctx *ctx) {
    ein_libs libs = ctx->desc.libs;
    bool ok = true;
    if (libs == EIN_LIBS_ALL && ein__has_calls(&ctx->plan, true))
        ok = ein__try_libs(ctx, EIN_LIBS_CUBLAS);
    if (ok && libs != EIN_LIBS_NONE) ok = ein__try_libs(ctx, EIN_LIBS_NONE);
    return ok;
}

// Plans in arithmetic `math` and with `libs` or fewer; the context's plan stays unless the other
// one is cheaper.
static bool ein__try_math(ein_ctx *ctx, ein_math math, ein_libs libs, bool fewer) {
    ein__planned best = ein__planned_now(ctx), other = {.math = math, .libs = libs};
    int64_t near = ein__muldiv(ein__plan_cost(&best.plan), 100 + EIN__NEAR_PERCENT, 100);
    ein__made made = ein__made_now(ctx);
    ctx->lead = best.plan.way;
    ein__count_problems(ctx);
    ein__plan_again(ctx, &other);
    bool ok = ein__plan_math(ctx);
    ein__count_problems(ctx);
    if (ok && fewer && ein__plan_cost(&ctx->plan) <= near) ok = ein__try_fewer_calls(ctx);
    other = ein__planned_now(ctx);
    bool taken = ok && ein__costs_less(&other.plan, &best.plan);
    if (!taken) ein__plan_again(ctx, &best);
    ein__forget_plan(taken ? &best : &other);
    if (ok && !taken) ein__unmake(ctx, &made);
    return ok;
}

static bool ein__has_math(const ein_ctx *ctx, int m) {
    return m != EIN_MATH_TF32 || ein__gpu_of(ctx)->tf32;
}

// The cheapest plan in the arithmetic that was asked for or in a more exact one: to multiply in
// fewer bits takes conversions, calls that want addresses of 16 bytes and other orders of tensors,
// and forbids basis changes. What is asked for is what a mode's calls cost, or one definition, is
// planned in that mode alone.
static bool ein__cheapest_plan(ein_ctx *ctx) {
    ein_libs libs = ctx->desc.libs;
    ctx->least_ps = 0;
    ctx->many = false;
    ctx->values_before = arrlen(ctx->value) + ctx->unmade;
    bool ok = ein__plan_math(ctx), one = ctx->desc.probe || ctx->desc.form;
    bool alone = one || ctx->desc.only_math, fewer = !one && !ctx->desc.baseline;
    int least = alone ? (int)ctx->asked : 0;
    if (ok && fewer) ok = ein__try_fewer_calls(ctx);
    for (int m = (int)ctx->asked - 1; ok && m >= least; m--)
        if (ein__has_math(ctx, m)) ok = ein__try_math(ctx, (ein_math)m, libs, fewer);
    if (!ok) return false;
    if (!ctx->desc.baseline) ein__count_problems(ctx);
    ctx->approach = ctx->plan.way.approach;
    // Kernels to be measured are emitted at once.
    ctx->typed = ctx->desc.math == EIN_MATH_FP16;
    return !ctx->status;
}

EIN__FN bool ein__make_plan(ein_ctx *ctx) {
    if (!ein__cheapest_plan(ctx)) return false;
    ein__plan_branches(ctx, ctx->desc.branches ? ctx->desc.branches : EIN__BRANCHES);
    ein__plan_memory(ctx);
    return true;
}

// Whether the model's folded program can be another one: in a variant, or with dimensions taken
// apart.
static bool ein__has_variants(ein_ctx *ctx, ein__val *root, int nroot, bool *any) {
    ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    *any = ctx->parts = false;
    for (int k = EIN__AS_FOLDED + 1; k < EIN__VARIANTS && !*any; k++) {
        memcpy(other, root, (size_t)nroot * sizeof *root);
        ctx->approach.variant = (ein__variant)k;
        if (!ein__make_variant(ctx, other, nroot, any)) return false;
    }
    bool ok = true;
    for (int k = EIN__APART; k < EIN__APARTS && ok && !*any; k++) {
        if (!ein__rule_on(ctx, EIN__RULE_APART)) continue;
        ctx->approach.apart = (ein__apartness)k;
        ok = ein__folded_program(ctx, other, nroot);
        *any |= ctx->parts;
    }
    ctx->approach.apart = EIN__NUMBERED;
    return ok;
}

// The model's folded program, whose contractions are derived, under `root`, in the variant that the
// plan has; where there is another variant, a plan is made if there is none.
EIN__FN bool ein__derived_program(ein_ctx *ctx, ein__val *root, int nroot) {
    bool any, less;
    if (!ein__folded_program(ctx, root, nroot)) return false;
    if (!ctx->plan.step) {
        ein__val *other = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
        memcpy(other, root, (size_t)nroot * sizeof *root);
        if (!ein__has_variants(ctx, root, nroot, &any) || !ein__leave_out(ctx, other, nroot, &less))
            return false;
        any |= less;
        if (any && !(ein__make_plan(ctx) && ein__folded_program(ctx, root, nroot))) return false;
    }
    if (!ctx->plan.way.approach.entire && !ein__leave_out(ctx, root, nroot, &less)) return false;
    if (!ein__sort_rows(ctx, root, nroot)) return false;
    ctx->approach.variant = ctx->plan.way.approach.variant;
    return ein__make_variant(ctx, root, nroot, &any);
}
