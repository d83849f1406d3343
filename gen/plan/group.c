// Products of different sizes in one call of the library (cublasGemmGroupedBatchedEx): those of a
// plan that do not need each other, as projections of different inputs, 1x1 convolutions side by
// side or experts. Products that merging (merge.c) has made one are no longer among them. Operands'
// addresses are set in create, so they lie in the arena or in the constants, not in a caller's
// tensors.

enum {
    EIN__GROUP_MEMBERS = 16,   // products of a group
    EIN__GROUP_PROBLEMS = 64,  // and matrices, where products have batches
    EIN__GROUP_STEPS = 512,    // steps of a plan that are looked at together
    EIN__GROUP_REACH = 64      // steps between a group's first one and its last one
};

// ------------------------------------------------------------------------------------ costs

// `n` products in one launch without split-K, tiles of the longest sums first: a wave takes as long
// as its longest sum. The library is given their sizes on the host; that it brings them to the
// device by a node of its own is an assumption, as is the share of the peak, that of batches.
EIN__FN int64_t ein__estimate_group(ein_ctx *ctx, const ein__gemm *const *p, int n) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__math math = ein__has_tensor_cores(g, p[0]->math) ? p[0]->math : EIN__MATH_FP32;
    const ein__rates *r = &ein__gemm_rates[math];
    int64_t least = INT64_MAX;
    int order[EIN__GROUP_MEMBERS];
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at && p[order[at - 1]]->k < p[i]->k; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int t = 0; t < 3; t++) {
        int64_t ps = 0, before = 0;
        for (int i = 0; i < n; i++) {
            const ein__gemm *m = p[order[i]];
            int64_t blocks =
                ein__times(ein__ceil(m->m, r->tile[t].rows), ein__ceil(m->n, r->tile[t].columns));
            int64_t behind = ein__plus(before, ein__times(blocks, m->batch));
            int64_t waves = ein__ceil(behind, g->sms) - ein__ceil(before, g->sms);
            ps = ein__plus(ps, ein__blocks_ps(g, math, r, &r->tile[t], m->k, waves, 1000));
            before = behind;
        }
        least = ein__least(least, ps);
    }
    ein__work w = {.extra_ps = ein__plus(least, ein__launch_ps(g))};
    for (int i = 0; i < n; i++) ein__add_product(ctx, &w, p[i]);
    return ein__work_ps(g, &w);
}

static int ein__member_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Canonical text of such a call, whatever the order of its products: the keys of these without what
// they have in common. Strides between a batch's matrices are not told: their addresses are.
EIN__FN const char *ein__grouped_key(ein_ctx *ctx, const ein__gemm *const *p, int n) {
    const char *part[EIN__GROUP_MEMBERS];
    ein__buf b = {0};
    for (int i = 0; i < n; i++)
        part[i] = ein__namef(ctx,
                             " b=%lld m=%lld n=%lld k=%lld ta=%d tb=%d lda=%lld ldb=%lld "
                             "ldc=%lld",
                             (long long)p[i]->batch, (long long)p[i]->m, (long long)p[i]->n,
                             (long long)p[i]->k, p[i]->ta, p[i]->tb, (long long)p[i]->lda,
                             (long long)p[i]->ldb, (long long)p[i]->ldc);
    qsort(part, (size_t)n, sizeof *part, ein__member_order);
    ein__putf(&b, "grouped %s products=%d", ein__math_key(p[0]->math), n);
    for (int i = 0; i < n; i++) ein__put(&b, part[i]);
    const char *key = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return key;
}

// ------------------------------------------------------------------------------------ groups

typedef struct ein__grouper {
    ein_ctx *ctx;
    ein__step *step, *alone;  // the plan's; as they are without groups (stb_ds array)
    int n, **deps;            // by step, those it needs; stb_ds arrays
    int *first;               // by step, the first one of its group, or itself
    int *next;                // by step, the next one of its group, -1: none
    bool *dear;               // by step, a group with it was measured and is dearer
    int *able;                // steps that may be in a group; stb_ds array
    int *bit;                 // by step, its place among these, -1: none
    uint64_t *before;         // by step, which of these are before it
    int words;
} ein__grouper;

static bool ein__is_placed(ein_ctx *ctx, ein__val v) {
    ein__bkind kind = ctx->plan.buffer[ctx->plan.layout[v.i].buffer].kind;
    return kind != EIN__B_INPUT && kind != EIN__B_OUTPUT;
}

// Whether the product may be in a group. On tensor cores every address is one of 16 bytes.
static bool ein__may_group(ein_ctx *ctx, const ein__step *s) {
    const ein__gemm *g = &s->gemm;
    if (s->kind != EIN__K_GEMM || ein__is_matmul(g) || g->wide ||
        g->batch > EIN__GROUP_PROBLEMS / 2)
        return false;
    int64_t size = ein__math_bytes(g->math);
    int64_t at[] = {g->sa * size, g->sb * size, g->sc * size};
    bool aligned = g->math == EIN__MATH_FP32 || g->align >= 16;
    for (int i = 0; i < 3 && g->math != EIN__MATH_FP32 && g->batch > 1; i++)
        aligned &= at[i] % 16 == 0;
    return aligned && ein__is_placed(ctx, g->a) && ein__is_placed(ctx, g->b) &&
           ein__is_placed(ctx, s->out);
}

// Looks at the plan; `may` says which steps may be in a group.
static void ein__grouper_look(ein__grouper *z, bool (*may)(ein_ctx *, const ein__step *)) {
    ein__scheduler s = {.step = z->step, .n = z->n};
    ptrdiff_t buffers = arrlen(z->ctx->plan.buffer);
    for (ptrdiff_t i = 0; i < buffers; i++) arrput(s.writers, NULL);
    for (int i = 0; i < z->n; i++) {
        bool able = may(z->ctx, &z->step[i]);
        arrput(z->deps, ein__step_deps(z->ctx, &s, i));
        arrput(s.writers[z->ctx->plan.layout[z->step[i].out.i].buffer], i);
        if (z->step[i].also.i) arrput(s.writers[z->ctx->plan.layout[z->step[i].also.i].buffer], i);
        for (int m = 0; m < z->step[i].npeer; m++)
            arrput(s.writers[z->ctx->plan.layout[z->step[i].peer[m].out.i].buffer], i);
        arrput(z->alone, z->step[i]);
        arrput(z->first, i);
        arrput(z->next, -1);
        arrput(z->dear, false);
        arrput(z->bit, able ? (int)arrlen(z->able) : -1);
        if (able) arrput(z->able, i);
    }
    for (ptrdiff_t i = 0; i < buffers; i++) arrfree(s.writers[i]);
    arrfree(s.writers);
    z->words = (int)(arrlen(z->able) + 63) / 64;
    for (int i = 0; i < z->n; i++)
        for (int w = 0; w < z->words; w++) {
            uint64_t set = 0;
            for (ptrdiff_t k = 0; k < arrlen(z->deps[i]); k++) {
                int d = z->deps[i][k];
                set |= z->before[(ptrdiff_t)d * z->words + w];
                if (z->bit[d] >= 0 && z->bit[d] / 64 == w) set |= 1ull << z->bit[d] % 64;
            }
            arrput(z->before, set);
        }
}

static void ein__grouper_free(ein__grouper *z) {
    for (ptrdiff_t i = 0; i < arrlen(z->deps); i++) arrfree(z->deps[i]);
    arrfree(z->deps);
    arrfree(z->alone);
    arrfree(z->first);
    arrfree(z->next);
    arrfree(z->dear);
    arrfree(z->able);
    arrfree(z->bit);
    arrfree(z->before);
}

// The order of steps, groups by their first ones, that is nearest to the one that there is; an
// stb_ds array. NULL: there is none, because groups need each other.
static int *ein__grouped_order(const ein__grouper *z) {
    int *order = NULL, *stack = NULL;
    char *state = NULL;  // by step: 1 what it needs is on the stack, 2 it is in the order
    bool cycle = false;
    for (int i = 0; i < z->n; i++) arrput(state, 0);
    for (int i = 0; i < z->n && !cycle; i++) {
        arrput(stack, z->first[i]);
        while (arrlen(stack) && !cycle) {
            int s = arrlast(stack);
            ptrdiff_t before = arrlen(stack);
            for (int m = s; m >= 0 && !state[s]; m = z->next[m])
                for (ptrdiff_t k = 0; k < arrlen(z->deps[m]); k++) {
                    int d = z->first[z->deps[m][k]];
                    if (state[d] < 2) arrput(stack, d);
                    cycle |= state[d] == 1 || d == s;
                }
            if (arrlen(stack) > before) {
                state[s] = 1;
                continue;
            }
            (void)arrpop(stack);
            if (state[s] < 2) arrput(order, s);
            state[s] = 2;
        }
    }
    if (cycle) arrfree(order);
    arrfree(stack);
    arrfree(state);
    return order;
}

static bool ein__is_apart(const ein__grouper *z, const int *member, int n, int j) {
    bool apart = true;
    for (int i = 0; i < n; i++) {
        int a = member[i], b = z->bit[a], c = z->bit[j];
        apart &= !(z->before[(ptrdiff_t)j * z->words + b / 64] >> b % 64 & 1);
        apart &= !(z->before[(ptrdiff_t)a * z->words + c / 64] >> c % 64 & 1);
    }
    return apart;
}

// The products behind product `at` that one call with it would take less time for each; estimates
// alone decide, so that what is measured is what is asked for then.
static int ein__grow_group(const ein__grouper *z, int at, int *member, const ein__gemm **gemm) {
    ein_ctx *ctx = z->ctx;
    int n = 1, i = z->able[at];
    int64_t call = ein__launch_ps(ein__gpu_of(ctx)), problems = z->step[i].gemm.batch;
    int64_t ps = ein__plus(ein__estimate_gemm(ctx, &z->step[i].gemm), call);
    member[0] = i;
    gemm[0] = &z->step[i].gemm;
    for (ptrdiff_t k = at + 1; k < arrlen(z->able) && n < EIN__GROUP_MEMBERS; k++) {
        int j = z->able[k];
        const ein__gemm *g = &z->step[j].gemm;
        if (j - i > EIN__GROUP_REACH) break;
        if (z->first[j] != j || z->next[j] >= 0 || z->dear[j] || g->math != gemm[0]->math ||
            problems + g->batch > EIN__GROUP_PROBLEMS || !ein__is_apart(z, member, n, j))
            continue;
        gemm[n] = g;
        int64_t with = ein__estimate_group(ctx, gemm, n + 1);
        if (with >= ein__plus(ps, ein__estimate_gemm(ctx, g))) continue;
        ps = with;
        problems += g->batch;
        member[n++] = j;
    }
    return n;
}

// What the members cost as calls of their own: one after the other or, in a recorded graph, side by
// side on branches, which is taken to fill the device as well as one call does.
static int64_t ein__apart_cost(const ein__grouper *z, const int *member, int n, int64_t grouped) {
    const ein_ctx *ctx = z->ctx;
    int64_t launch = ein__launch_ps(ein__gpu_of(ctx)), sum = 0, longest = 0;
    int branches = ctx->desc.branches ? ctx->desc.branches : EIN__BRANCHES;
    for (int i = 0; i < n; i++) {
        sum = ein__cost_sum(sum, z->step[member[i]].ps);
        longest = ein__most(longest, z->step[member[i]].ps);
    }
    if (branches < 2) return sum;
    int side = n < branches ? n : branches;
    int64_t beside = ein__times(longest, ein__ceil(n, side));
    beside = ein__most(beside, grouped - launch);
    return ein__least(sum, ein__plus(beside, launch / 2 * (side - 1)));
}

// The members as one step, the first one's, with the others as its peers; NULL: no order of the
// steps is left then.
static ein__step *ein__join_members(ein__grouper *z, const int *member, int n) {
    for (int i = 0; i < n; i++) {
        z->first[member[i]] = member[0];
        z->next[member[i]] = i + 1 < n ? member[i + 1] : -1;
    }
    int *order = ein__grouped_order(z);
    for (int i = 0; i < n && !order; i++) {
        z->first[member[i]] = member[i];
        z->next[member[i]] = -1;
    }
    if (!order) return NULL;
    arrfree(order);
    ein__step *s = &z->step[member[0]];
    s->peer = EIN__NEW(&z->ctx->arena, ein__step, n);
    for (int i = 1; i < n; i++) s->peer[s->npeer++] = z->step[member[i]];
    return s;
}

// Makes one call of the products where that is cheaper and an order of the steps is left.
static void ein__try_products(ein__grouper *z, const int *member, const ein__gemm *const *gemm,
                              int n) {
    ein_ctx *ctx = z->ctx;
    const char *key = ein__grouped_key(ctx, gemm, n);
    int64_t estimate = ein__estimate_group(ctx, gemm, n), ps = estimate;
    if (ctx->desc.probe) ein__record_call(ctx, key);
    bool measured = ein__measured(ctx, key, &ps);
    bool dear = ps >= ein__apart_cost(z, member, n, estimate);
    for (int i = 0; i < n; i++) z->dear[member[i]] = dear && measured;
    if (dear) return;
    ein__step *s = ein__join_members(z, member, n);
    if (!s) return;
    for (int i = 1; i < n; i++) s->workspace = ein__most(s->workspace, s->peer[i - 1].workspace);
    s->ps = ps;
    s->key = key;
    s->measured = measured;
    s->algorithm = NULL;
}

// What the plan's steps take in a recorded graph.
static int64_t ein__recorded_cost(ein_ctx *ctx) {
    ein__scheduler z = {0};
    int64_t alone = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        alone = ein__cost_sum(alone, ctx->plan.step[i].ps);
    ein__run_schedule(ctx, &z, ctx->desc.branches ? ctx->desc.branches : EIN__BRANCHES);
    int64_t beside = ein__branched_cost(&z, alone);
    ein__scheduler_free(&z, arrlen(ctx->plan.buffer));
    return beside;
}

// The steps with the groups that there are, in `list`, and what they take in a recorded graph.
static int64_t ein__grouped_cost(const ein__grouper *z, ein__step **list) {
    ein_ctx *ctx = z->ctx;
    int *order = ein__grouped_order(z);
    arrsetlen(*list, 0);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) arrput(*list, z->step[order[i]]);
    arrfree(order);
    ctx->plan.step = *list;
    int64_t ps = ein__recorded_cost(ctx);
    ctx->plan.step = z->step;
    return ps;
}

// A group taken apart: its steps as they were, and what the plan's take without it.
typedef struct ein__parting {
    int64_t without;
    int n, member[EIN__GROUP_MEMBERS];
    ein__step was[EIN__GROUP_MEMBERS];
} ein__parting;

// Takes the group of step `i` apart; `p` remembers it.
static void ein__part_group(ein__grouper *z, int i, ein__parting *p) {
    p->n = 0;
    for (int m = i; m >= 0; m = z->next[m]) p->member[p->n++] = m;
    for (int k = 0; k < p->n; k++) {
        int m = p->member[k];
        p->was[k] = z->step[m];
        z->step[m] = z->alone[m];
        z->first[m] = m;
        z->next[m] = -1;
    }
}

static void ein__rejoin_group(ein__grouper *z, const ein__parting *p) {
    for (int k = 0; k < p->n; k++) {
        z->step[p->member[k]] = p->was[k];
        z->first[p->member[k]] = p->member[0];
        z->next[p->member[k]] = k + 1 < p->n ? p->member[k + 1] : -1;
    }
}

static int ein__parting_order(const void *a, const void *b) {
    const ein__parting *p = (const ein__parting *)a, *q = (const ein__parting *)b;
    if (p->without != q->without) return p->without < q->without ? -1 : 1;
    return p->member[0] < q->member[0] ? -1 : 1;
}

// Gives groups up until the steps take no more than `most` in a recorded graph: those first without
// which they take the least time, as long as each saves some; all, when that is not enough.
static void ein__give_up_groups(ein__grouper *z, int64_t ps, int64_t most, ein__step **list) {
    ein__parting *group = NULL, p;
    for (int i = 0; i < z->n; i++) {
        if (z->first[i] != i || z->next[i] < 0) continue;
        ein__part_group(z, i, &p);
        p.without = ein__grouped_cost(z, list);
        ein__rejoin_group(z, &p);
        arrput(group, p);
    }
    qsort(group, (size_t)arrlen(group), sizeof *group, ein__parting_order);
    for (ptrdiff_t k = 0; k < arrlen(group) && ps > most; k++) {
        ein__part_group(z, group[k].member[0], &p);
        int64_t without = ein__grouped_cost(z, list);
        if (without >= ps) ein__rejoin_group(z, &p);
        ps = ein__least(ps, without);
    }
    for (int i = 0; i < z->n && ps > most; i++)
        if (z->first[i] == i) ein__part_group(z, i, &p);
    arrfree(group);
}

// The plan's steps with the groups that were chosen, but for those for which a recorded graph,
// whose branches groups join, takes longer by more than `percent` of its time.
static void ein__keep_groups(ein__grouper *z, int percent) {
    ein_ctx *ctx = z->ctx;
    ein__step *list = NULL;
    for (int i = 0; i < z->n; i++) arrput(list, z->alone[i]);
    ctx->plan.step = list;
    int64_t most = ein__recorded_cost(ctx);
    ctx->plan.step = z->step;
    most += ein__muldiv(most, percent, 100);
    int64_t ps = ein__grouped_cost(z, &list);
    if (ps > most) {
        ein__give_up_groups(z, ps, most, &list);
        (void)ein__grouped_cost(z, &list);
    }
    ctx->plan.step = list;
    arrfree(z->step);
}

// Lets `join` make groups of the plan's steps that `may` be in one: of some of the plan at a time,
// behind which the others come, so that what this takes is not the square of their number.
static void ein__group_steps(ein_ctx *ctx, bool (*may)(ein_ctx *, const ein__step *),
                             void (*join)(ein__grouper *)) {
    ein__step *all = ctx->plan.step, *made = NULL;
    for (ptrdiff_t at = 0, n = 0; at < arrlen(all); at += n) {
        n = ein__least(arrlen(all) - at, EIN__GROUP_STEPS);
        ctx->plan.step = NULL;
        for (ptrdiff_t i = 0; i < n; i++) arrput(ctx->plan.step, all[at + i]);
        ein__grouper z = {.ctx = ctx, .step = ctx->plan.step, .n = (int)n};
        ein__grouper_look(&z, may);
        join(&z);
        ein__grouper_free(&z);
        for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) arrput(made, ctx->plan.step[i]);
        arrfree(ctx->plan.step);
    }
    arrfree(all);
    ctx->plan.step = made;
}

static void ein__join_products(ein__grouper *z) {
    bool any = false;
    for (int at = 0; at < (int)arrlen(z->able); at++) {
        int member[EIN__GROUP_MEMBERS], i = z->able[at];
        const ein__gemm *gemm[EIN__GROUP_MEMBERS];
        if (z->first[i] != i || z->next[i] >= 0 || z->dear[i]) continue;
        int n = ein__grow_group(z, at, member, gemm);
        if (n > 1) ein__try_products(z, member, gemm, n);
        any |= z->step[i].npeer > 0;
    }
    if (any) ein__keep_groups(z, 0);
}

// Products of the plan that do not need each other as one call, where that is cheaper.
EIN__FN void ein__group_products(ein_ctx *ctx) {
    if (!ein__rule_on(ctx, EIN__RULE_MERGE) || ctx->desc.form) return;
    ein__group_steps(ctx, ein__may_group, ein__join_products);
}

// The estimate for such a call as a step.
EIN__FN int64_t ein__estimate_group_step(ein_ctx *ctx, const ein__step *s) {
    const ein__gemm *gemm[EIN__GROUP_MEMBERS] = {&s->gemm};
    for (int i = 0; i < s->npeer; i++) gemm[i + 1] = &s->peer[i].gemm;
    return ein__estimate_group(ctx, gemm, s->npeer + 1);
}
