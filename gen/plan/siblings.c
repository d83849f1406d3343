// Horizontal fusion: independent kernels as one, of which some blocks run the one kernel and the
// others the other. Launches are saved, and blocks of both run where neither fills the device. Li
// et al., CGO 2022; Rammer (Ma et al., OSDI 2020) does it for whole operators. Only kernels whose
// threads work independently are joined, as in stitch.c, since blocks of any size can run these.

enum {
    EIN__SIBLINGS = EIN__GROUP_MEMBERS,  // kernels of one, at most
    EIN__SIBLINGS_PARAMS = 64,           // that they take together
    EIN__CHAINED = 32,                   // maps of a chain (chain.c), at most
    EIN__SIBLINGS_REACH = 16,  // steps from the first one to the last one: what waits takes memory
    // Branches must gain more than that: what they cost is known less well than launches are.
    EIN__SIBLINGS_PERCENT = 10,
    EIN__SIBLINGS_PS = 100000  // that finding its kernel may cost a block; assumed
};

// Whether threads of the step's kernel have rows with one result each.
static bool ein__has_threads_rows(ein_ctx *ctx, const ein__step *s) {
    if (s->kind != EIN__K_ROW || s->npeer || s->also.i || s->nval > EIN__PART_VALUES) return false;
    ein__kernel k = ein__step_kernel(ctx, s);
    const ein__scope *end = ein__row_end(&k);
    return end && ein__outputs_of(end) <= INT32_MAX &&
           ein__is_threads_row(ein__outputs_of(end), ein__terms_of(end));
}

// The step as a kernel that may be joined with others; NULL: there is none.
static const ein__step *ein__sibling_of(ein_ctx *ctx, const ein__step *step) {
    const ein__step *own = ein__as_kernel(ctx, step);
    return ein__is_threaded(ctx, own) || ein__has_threads_rows(ctx, own) ? own : NULL;
}

static bool ein__may_join(ein_ctx *ctx, const ein__step *s) {
    return ein__sibling_of(ctx, s) != NULL;
}

static bool ein__may_join_again(ein_ctx *ctx, const ein__step *s) {
    return s->again && ein__may_join(ctx, s);
}

// Adds what kernel `k`, which takes `ps` with its launch, takes of the device; `*longest`: of such
// kernels, what the threads of one wait for.
static void ein__add_time(ein_ctx *ctx, const ein__kernel *k, int64_t ps, int64_t *busy,
                          int64_t *longest) {
    int parts;
    ein__work w = ein__kernel_work(ctx, k, &parts);
    int64_t launch = ein__launch_ps(ein__gpu_of(ctx)), all = ein__most(ps - launch, 0);
    bool waits = !ein__kernel_row(ctx, k) && w.chain_ps >= all;
    w.chain_ps = 0;
    if (waits) *longest = ein__most(*longest, all);
    if (waits) all = ein__least(all, ein__work_ps(ein__gpu_of(ctx), &w) - launch);
    *busy = ein__plus(*busy, all);
}

// What the steps' kernels take together.
typedef struct ein__sibling_load {
    int params;
    int64_t threads;  // at most
    int64_t busy;     // what they take of the device, without launches
    int64_t longest;  // what the threads of one of them wait for, at most
    int64_t apart;    // what the steps take as they are
} ein__sibling_load;

// Blocks of one work while those of another wait.
static int64_t ein__sibling_ps(const ein__sibling_load *l) {
    return ein__most(l->busy, l->longest);
}

static ein__sibling_load ein__add_sibling(ein_ctx *ctx, ein__sibling_load l, const ein__step *s) {
    const ein__step *own = ein__sibling_of(ctx, s);
    ein__val *reads = ein__step_reads(ctx, own);
    l.params += (int)arrlen(reads) + 1;
    int64_t warp = ein__warps_of(ctx, own) ? 32 : 1;
    l.threads = ein__plus(l.threads, ein__times(ein__elements(&ctx->value[s->out.i].shape), warp));
    ein__kernel k = ein__step_kernel(ctx, own);
    ein__add_time(ctx, &k, own == s ? s->ps : ein__cost_step(ctx, own), &l.busy, &l.longest);
    l.apart = ein__cost_sum(l.apart, s->ps);
    arrfree(reads);
    return l;
}

// The kernels behind step able[at] that gain by being one with it: an unsigned numbers all threads.
static int ein__grow_siblings(const ein__grouper *z, int at, int *member, ein__sibling_load *all) {
    int n = 1, i = z->able[at];
    *all = ein__add_sibling(z->ctx, (ein__sibling_load){0}, &z->step[i]);
    member[0] = i;
    for (ptrdiff_t k = at + 1; k < arrlen(z->able) && n < EIN__SIBLINGS; k++) {
        int j = z->able[k];
        if (j - i > EIN__SIBLINGS_REACH) break;
        if (z->first[j] != j || z->next[j] >= 0 || !ein__is_apart(z, member, n, j)) continue;
        ein__sibling_load with = ein__add_sibling(z->ctx, *all, &z->step[j]);
        if (with.params > EIN__SIBLINGS_PARAMS || with.threads > INT32_MAX ||
            ein__sibling_ps(&with) - ein__sibling_ps(all) >= z->step[j].ps)
            continue;
        *all = with;
        member[n++] = j;
    }
    return n;
}

static const char *ein__siblings_key(ein_ctx *ctx, const ein__step *step, const int *member,
                                     int n) {
    uint64_t h = ctx->kernel_seed[EIN__SEED_SIBLINGS];
    for (int i = 0; i < n; i++) {
        ein__kernel k = ein__step_kernel(ctx, ein__as_kernel(ctx, &step[member[i]]));
        h = ein__mix(h, ein__kernel_id(ctx, &k));
    }
    return ein__namef(ctx, "kernel siblings %016llx", (unsigned long long)h);
}

static bool ein__try_siblings(ein__grouper *z, const int *member, int n,
                              const ein__sibling_load *all) {
    ein_ctx *ctx = z->ctx;
    int64_t launch = ein__launch_ps(ein__gpu_of(ctx));
    int64_t ps = ein__plus(ein__sibling_ps(all), launch + EIN__SIBLINGS_PS);
    const char *key = NULL;
    const ein__cost_row *row = NULL;
    if (ctx->kernel_rows || ctx->desc.probe) {
        key = ein__siblings_key(ctx, z->step, member, n);
        row = ein__row_of(ctx, key);
        if (row) ps = row->ps;
    }
    if (ps >= all->apart) return false;
    for (int i = 0; i < n; i++) z->step[member[i]] = *ein__as_kernel(ctx, &z->step[member[i]]);
    ein__step *s = ein__join_members(z, member, n);
    for (int i = 0; i < n && !s; i++) z->step[member[i]] = z->alone[member[i]];
    if (!s) return false;
    s->ps = ps;
    s->key = key;
    s->measured = row != NULL;
    return true;
}

static void ein__join_kernels(ein__grouper *z) {
    bool any = false;
    for (int at = 0; at < (int)arrlen(z->able); at++) {
        int member[EIN__SIBLINGS], i = z->able[at];
        if (z->first[i] != i || z->next[i] >= 0) continue;
        ein__sibling_load all;
        int n = ein__grow_siblings(z, at, member, &all);
        any |= n > 1 && ein__try_siblings(z, member, n, &all);
    }
    if (any) ein__keep_groups(z, EIN__SIBLINGS_PERCENT);
}

// Joins kernels of the plan that do not need each other, where an order of the steps is left: those
// that `may` be.
EIN__FN void ein__join_siblings(ein_ctx *ctx, bool (*may)(ein_ctx *, const ein__step *)) {
    ein__group_steps(ctx, may, ein__join_kernels);
}

enum { EIN__SHOWN = 200 };  // reads of what is hidden: as a tree it grows with each that is shared

typedef struct ein__shower {
    const ein__step *step;
    int left;
} ein__shower;

// What is hidden in a chain in the place of a read of it.
static ein__ex ein__show_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__shower *z = user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    bool hidden = false;
    for (int k = 0; k < z->step->nhidden; k++) hidden |= e.val == z->step->hidden[k].i;
    if (!hidden) return ex;
    ein__ex body = z->left-- > 0 ? ein__rule_inline(ctx, (ein__val){e.val}, &e) : (ein__ex){0};
    return body.i ? ein__ex_replace_reads(ctx, body, ein__show_read, user) : body;
}

// A member's `body` so; as it is where that is too much.
static ein__ex ein__shown_body(ein_ctx *ctx, const ein__step *s, ein__ex body) {
    ein__shower z = {s, EIN__SHOWN};
    ein__attempt attempt = ein__try(ctx);
    ein__ex shown = ein__ex_replace_reads(ctx, body, ein__show_read, &z);
    return ein__tried(ctx, attempt) && shown.i ? shown : body;
}

// The estimate for a kernel of several, siblings or a chain (chain.c), as a step.
EIN__FN int64_t ein__estimate_joined(ein_ctx *ctx, const ein__step *s) {
    int64_t launch = ein__launch_ps(ein__gpu_of(ctx)), ps = 0, longest = 0;
    for (int i = 0; i <= s->npeer; i++) {
        ein__kernel k = ein__step_kernel(ctx, i ? &s->peer[i - 1] : s);
        ein__scope whole = *k.s[0];
        if (s->nhidden) {
            whole.body = ein__shown_body(ctx, s, whole.body);
            k.s[0] = &whole;
        }
        if (s->chained) ps = ein__cost_sum(ps, ein__estimate_kernel(ctx, &k) - launch);
        else ein__add_time(ctx, &k, ein__estimate_kernel(ctx, &k), &ps, &longest);
    }
    int64_t more = s->chained ? s->npeer * EIN__STITCH_TURN_PS : EIN__SIBLINGS_PS;
    return ein__plus(ein__most(ps, longest), launch + more);
}
