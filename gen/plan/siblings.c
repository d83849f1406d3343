// Kernels that do not need each other as one: some blocks run the one, the others the other. A
// launch less for each, and blocks of both where neither fills the device. Li et al., CGO 2022
// (horizontal fusion); Rammer (Ma et al., OSDI 2020) has it for whole operators. Kernels whose
// threads work by themselves are joined, as in stitch.c: blocks of any size run those.

enum {
    EIN__SIBLINGS = 16,         // kernels of one, at most
    EIN__SIBLINGS_PARAMS = 64,  // that they take together
    EIN__SIBLINGS_PS = 100000,  // that finding its kernel may cost a block; assumed
    EIN__SIBLINGS_SEED = 16     // of the template's hash (ein_ctx.kernel_seed)
};

static bool ein__may_join(ein_ctx *ctx, const ein__step *s) {
    return !s->npeer && ein__is_threaded(ctx, s);
}

static int ein__step_params(ein_ctx *ctx, const ein__step *s) {
    ein__val *reads = ein__step_reads(ctx, s);
    int n = (int)arrlen(reads) + 1;
    arrfree(reads);
    return n;
}

static int64_t ein__step_elements(const ein_ctx *ctx, const ein__step *s) {
    return ein__elements(&ctx->value[s->out.i].shape);
}

// The kernels behind step able[at] that may be one with it: an unsigned numbers all threads.
static int ein__grow_siblings(const ein__grouper *z, int at, int *member) {
    int n = 1, i = z->able[at], params = ein__step_params(z->ctx, &z->step[i]);
    int64_t threads = ein__step_elements(z->ctx, &z->step[i]);
    member[0] = i;
    for (ptrdiff_t k = at + 1; k < arrlen(z->able) && n < EIN__SIBLINGS; k++) {
        int j = z->able[k], more = ein__step_params(z->ctx, &z->step[j]);
        int64_t all = ein__plus(threads, ein__step_elements(z->ctx, &z->step[j]));
        if (j - i > EIN__GROUP_REACH) break;
        if (z->first[j] != j || z->next[j] >= 0 || params + more > EIN__SIBLINGS_PARAMS ||
            all > INT32_MAX || !ein__is_apart(z, member, n, j))
            continue;
        params += more;
        threads = all;
        member[n++] = j;
    }
    return n;
}

// What the members take as one: what they take apart, without launches of their own.
static int64_t ein__joined_cost(ein_ctx *ctx, const ein__step *step, const int *member, int n) {
    int64_t launch = ein__gpu_of(ctx)->node_ns * 1000, ps = 0;
    for (int i = 0; i < n; i++) ps = ein__cost_sum(ps, step[member[i]].ps);
    return ein__plus(ps - (n - 1) * launch, EIN__SIBLINGS_PS);
}

static const char *ein__siblings_key(ein_ctx *ctx, const ein__step *step, const int *member,
                                     int n) {
    uint64_t h = ctx->kernel_seed[EIN__SIBLINGS_SEED];
    for (int i = 0; i < n; i++) {
        ein__kernel k = ein__step_kernel(ctx, &step[member[i]]);
        h = ein__mix(h, ein__kernel_id(ctx, &k));
    }
    return ein__namef(ctx, "kernel siblings %016llx", (unsigned long long)h);
}

static bool ein__try_siblings(ein__grouper *z, const int *member, int n) {
    ein_ctx *ctx = z->ctx;
    int64_t ps = ein__joined_cost(ctx, z->step, member, n), apart = 0;
    const char *key = NULL;
    const ein__cost_row *row = NULL;
    for (int i = 0; i < n; i++) apart = ein__cost_sum(apart, z->step[member[i]].ps);
    if (ctx->kernel_rows || ctx->desc.probe) {
        key = ein__siblings_key(ctx, z->step, member, n);
        row = ein__row_of(ctx, key);
        if (row) ps = row->ps;
    }
    ein__step *s = ps < apart ? ein__join_members(z, member, n) : NULL;
    if (!s) return false;
    s->ps = ps;
    s->key = key;
    s->measured = row != NULL;
    return true;
}

// Joins kernels of the plan that do not need each other, where an order of the steps is left.
EIN__FN void ein__join_siblings(ein_ctx *ctx) {
    ein__grouper z = {.ctx = ctx, .step = ctx->plan.step, .n = (int)arrlen(ctx->plan.step)};
    bool any = false;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->desc.inspect) return;
    ein__grouper_look(&z, ein__may_join);
    for (int at = 0; at < (int)arrlen(z.able); at++) {
        int member[EIN__SIBLINGS], i = z.able[at];
        if (z.first[i] != i || z.next[i] >= 0) continue;
        int n = ein__grow_siblings(&z, at, member);
        for (; n > 1 && !ein__try_siblings(&z, member, n); n--) continue;
        any |= n > 1;
    }
    int *order = any ? ein__grouped_order(&z) : NULL;
    if (order) ein__keep_groups(&z, order);
    ein__grouper_free(&z);
}

// The estimate for such a kernel as a step.
EIN__FN int64_t ein__estimate_siblings(ein_ctx *ctx, const ein__step *s) {
    int64_t launch = ein__gpu_of(ctx)->node_ns * 1000, ps = 0;
    for (int i = 0; i <= s->npeer; i++) {
        ein__kernel k = ein__step_kernel(ctx, i ? &s->peer[i - 1] : s);
        ps = ein__cost_sum(ps, ein__estimate_kernel(ctx, &k));
    }
    return ein__plus(ps - s->npeer * launch, EIN__SIBLINGS_PS);
}
