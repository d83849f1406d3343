// Which steps may run side by side. A recorded CUDA graph keeps the dependences that streams and
// events express, so independent steps are recorded on different streams; a run that is not
// replayed uses one stream. (Nimble, NeurIPS 2020, section 4: stream assignment from the graph of
// dependences.)
//
// Only launches are counted as gained: a step consists of its launch, which overlaps with anything,
// and its work, for which the whole device is taken to be busy. So the gain is underestimated where
// steps are too small to fill the device.

// Values that a step reads from memory: all reads of the values it computes but those themselves.
static void ein__add_step_reads(ein_ctx *ctx, const ein__step *step, ein__val **to) {
    ein__val *list = *to;
    ein__val also = step->ahead ? (ein__val){0} : step->also;
    const ein__val beside[] = {step->load[0], step->load[1], also};
    for (int k = 0; k < step->nval + 3; k++) {
        ein__val v = k < step->nval ? step->val[k] : beside[k - step->nval];
        if (!v.i) continue;
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            ein__val r = {ein__ex_get(ctx, reads[i])->val};
            bool known = step->load[0].i == r.i || step->load[1].i == r.i;
            // Extrema that come with places are not there for what is behind these.
            int from = step->kind == EIN__K_PLACE && k > 1;
            for (int j = from; j < step->nval; j++) known |= step->val[j].i == r.i;
            for (ptrdiff_t j = 0; j < arrlen(list); j++) known |= list[j].i == r.i;
            // A transform has its matrices in its text.
            known |= !k && step->kind == EIN__K_BASIS && ein__is_table(ctx, r);
            if (!known) arrput(list, r);
        }
    }
    *to = list;
}

// A step, and those that are one with it: k from 0 to npeer.
static const ein__step *ein__step_member(const ein__step *s, int k) {
    return k ? &s->peer[k - 1] : s;
}

EIN__FN ein__val *ein__step_reads(ein_ctx *ctx, const ein__step *step) {
    ein__val *list = NULL;
    ein__add_step_reads(ctx, step, &list);
    for (int i = 0; i < step->npeer; i++) ein__add_step_reads(ctx, &step->peer[i], &list);
    for (int i = 0; i < step->nhidden; i++)
        ein__add_step_reads(ctx, &(ein__step){.nval = 1, .val = {step->hidden[i]}}, &list);
    if (step->ahead) ein__add_step_reads(ctx, step->ahead, &list);
    for (ptrdiff_t i = arrlen(list) - 1; i >= 0; i--) {
        bool own = step->ahead && list[i].i == step->ahead->out.i;
        for (int k = 0; step->chained && k <= step->npeer; k++)
            own |= list[i].i == ein__step_member(step, k)->out.i;
        for (int k = 0; k < step->nhidden; k++) own |= list[i].i == step->hidden[k].i;
        for (int k = 0; step->sums && k < step->nval; k++) own |= list[i].i == step->val[k].i;
        if (own) arrdel(list, i);
    }
    return list;
}

typedef struct ein__scheduler {
    ein__step *step;
    int n, used;                  // steps; branches in use
    int **writers;                // by buffer: the steps so far that wrote to it
    int64_t *finish;              // by step, picoseconds
    int (*known)[EIN__BRANCHES];  // by step: the last step of each branch that is over before it
    int64_t free[EIN__BRANCHES];  // when each branch's last step is over
    int last[EIN__BRANCHES];      // that step, -1: none
    int64_t launch, edge;         // costs of a step's launch, of waiting for another branch
} ein__scheduler;

// The last step on each branch that one of `deps` is or comes after; what `b` would have to wait
// for. Gives how many waits that takes.
static int ein__waits(const ein__scheduler *z, const int *deps, int b, int *wait) {
    int have[EIN__BRANCHES], n = 0;
    for (int c = 0; c < EIN__BRANCHES; c++) {
        have[c] = z->last[b] < 0 ? -1 : z->known[z->last[b]][c];
        wait[c] = -1;
    }
    have[b] = z->last[b];
    // The youngest first: what it has waited for need not be waited for again.
    for (ptrdiff_t k = arrlen(deps) - 1; k >= 0; k--) {
        int c = z->step[deps[k]].branch;
        if (deps[k] <= have[c]) continue;
        wait[c] = deps[k];
        n++;
        for (int e = 0; e < EIN__BRANCHES; e++)
            if (z->known[deps[k]][e] > have[e]) have[e] = z->known[deps[k]][e];
        have[c] = deps[k];
    }
    return n;
}

static int64_t ein__finish_on(const ein__scheduler *z, const int *deps, int i, int b) {
    int wait[EIN__BRANCHES];
    int64_t start = z->free[b];
    for (ptrdiff_t k = 0; k < arrlen(deps); k++)
        if (z->finish[deps[k]] > start) start = z->finish[deps[k]];
    start += z->edge * ein__waits(z, deps, b, wait);
    // A branch's first step waits for the start of the run.
    if (b && z->last[b] < 0 && !arrlen(deps)) start += z->edge;
    return ein__cost_sum(start, z->step[i].ps);
}

static void ein__put_on(ein__scheduler *z, const int *deps, int i, int b) {
    ein__step *s = &z->step[i];
    int wait[EIN__BRANCHES];
    z->finish[i] = ein__finish_on(z, deps, i, b);
    ein__waits(z, deps, b, wait);
    for (int c = 0; c < EIN__BRANCHES; c++)
        z->known[i][c] = z->last[b] < 0 ? -1 : z->known[z->last[b]][c];
    z->known[i][b] = z->last[b];
    s->branch = b;
    s->nwait = 0;
    for (int c = 0; c < EIN__BRANCHES; c++) {
        if (wait[c] < 0) continue;
        s->wait[s->nwait++] = wait[c];
        for (int e = 0; e < EIN__BRANCHES; e++)
            if (z->known[wait[c]][e] > z->known[i][e]) z->known[i][e] = z->known[wait[c]][e];
        if (wait[c] > z->known[i][c]) z->known[i][c] = wait[c];
    }
    z->free[b] = z->finish[i];
    z->last[b] = i;
    if (b >= z->used) z->used = b + 1;
}

static int ein__by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

// The steps that wrote what step `i` reads, oldest first.
static int *ein__step_deps(ein_ctx *ctx, ein__scheduler *z, int i) {
    int *deps = NULL;
    ein__val *reads = ein__step_reads(ctx, &z->step[i]);
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        const int *w = z->writers[ctx->plan.layout[reads[k].i].buffer];
        int own = -1;
        for (ptrdiff_t j = 0; j < arrlen(w); j++)
            if (z->step[w[j]].out.i == reads[k].i || z->step[w[j]].also.i == reads[k].i) own = w[j];
        for (ptrdiff_t j = 0; j < arrlen(w); j++)
            for (int m = 0; m < z->step[w[j]].npeer; m++)
                if (z->step[w[j]].peer[m].out.i == reads[k].i) own = w[j];
        // A view, or a value put together in place, is all that was written there.
        for (ptrdiff_t j = 0; j < arrlen(w); j++)
            if (own < 0 || own == w[j]) arrput(deps, w[j]);
    }
    arrfree(reads);
    if (deps) qsort(deps, (size_t)arrlen(deps), sizeof *deps, ein__by_number);
    ptrdiff_t n = 0;
    for (ptrdiff_t k = 0; k < arrlen(deps); k++)
        if (!n || deps[n - 1] != deps[k]) deps[n++] = deps[k];
    if (deps) arrsetlen(deps, n);
    return deps;
}

static void ein__schedule(ein_ctx *ctx, ein__scheduler *z, int most) {
    for (int i = 0; i < z->n; i++) {
        int *deps = ein__step_deps(ctx, z, i), best = 0;
        int64_t least = INT64_MAX;
        for (int b = 0; b < most && b <= z->used; b++) {
            int64_t t = ein__finish_on(z, deps, i, b);
            if (t >= least) continue;
            least = t;
            best = b;
        }
        ein__put_on(z, deps, i, best);
        arrput(z->writers[ctx->plan.layout[z->step[i].out.i].buffer], i);
        if (z->step[i].also.i) arrput(z->writers[ctx->plan.layout[z->step[i].also.i].buffer], i);
        for (int m = 0; m < z->step[i].npeer; m++)
            arrput(z->writers[ctx->plan.layout[z->step[i].peer[m].out.i].buffer], i);
        arrfree(deps);
    }
}

// When the next step of branch `b`, step `i`, can be launched; -1 while it waits for another's end.
static int64_t ein__start_of(const ein__scheduler *z, int i, int64_t free) {
    const ein__step *s = &z->step[i];
    int64_t start = free;
    for (int k = 0; k < s->nwait; k++) {
        int64_t over = z->finish[s->wait[k]];
        if (over < 0) return -1;
        if (over + z->edge > start) start = over + z->edge;
    }
    return start;
}

// How long the steps take on their branches: launches side by side, work one after the other, in
// the order in which it can begin.
static int64_t ein__simulate(ein__scheduler *z) {
    int at[EIN__BRANCHES] = {0};
    int64_t free[EIN__BRANCHES] = {0}, device = 0;
    for (int i = 0; i < z->n; i++) z->finish[i] = -1;
    for (int done = 0; done < z->n; done++) {
        int best = -1;
        int64_t least = 0;
        for (int b = 0; b < z->used; b++) {
            while (at[b] < z->n && z->step[at[b]].branch != b) at[b]++;
            int64_t start = at[b] < z->n ? ein__start_of(z, at[b], free[b]) : -1;
            if (start < 0 || (best >= 0 && start >= least)) continue;
            best = b;
            least = start;
        }
        EIN_ASSERT(best >= 0);
        int i = at[best]++;
        int64_t ps = z->step[i].ps, launch = ps < z->launch ? ps : z->launch;
        int64_t begin = least + launch > device ? least + launch : device;
        z->finish[i] = free[best] = device = ein__cost_sum(begin, ps - launch);
    }
    return device;
}

// Numbers for the events: one is free again after the last wait for it. Event 0 is the run's start.
static void ein__number_events(ein__plan *p) {
    int n = (int)arrlen(p->step), *until = NULL, *busy = NULL;
    for (int i = 0; i < n; i++) arrput(until, -1);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < p->step[i].nwait; k++) until[p->step[i].wait[k]] = i;
    for (int b = 1; b < p->branches; b++)
        if (p->join[b] >= 0) until[p->join[b]] = n;
    arrput(busy, n + 1);
    for (int i = 0; i < n; i++) {
        int e = 1;
        if (until[i] < 0) continue;
        while (e < arrlen(busy) && busy[e] > i) e++;
        if (e == arrlen(busy)) arrput(busy, 0);
        busy[e] = until[i];
        p->step[i].event = e;
    }
    p->events = (int)arrlen(busy);
    arrfree(until);
    arrfree(busy);
}

static void ein__scheduler_free(ein__scheduler *z, ptrdiff_t buffers) {
    for (ptrdiff_t i = 0; i < buffers; i++) arrfree(z->writers[i]);
    arrfree(z->writers);
    arrfree(z->finish);
    arrfree(z->known);
}

static void ein__run_schedule(ein_ctx *ctx, ein__scheduler *z, int most) {
    ptrdiff_t buffers = arrlen(ctx->plan.buffer);
    z->step = ctx->plan.step;
    z->n = (int)arrlen(ctx->plan.step);
    z->used = 1;
    z->launch = ein__launch_ps(ein__gpu_of(ctx));
    z->edge = z->launch / 2;
    for (ptrdiff_t i = 0; i < buffers; i++) arrput(z->writers, NULL);
    arrsetlen(z->finish, z->n);
    arrsetlen(z->known, z->n);
    for (int b = 0; b < EIN__BRANCHES; b++) z->last[b] = -1;
    ein__schedule(ctx, z, most);
}

// How long the scheduled steps take; `alone`: one after the other. One branch where more would not
// gain a tenth: each has a workspace of its own.
static int64_t ein__branched_cost(ein__scheduler *z, int64_t alone) {
    int64_t beside = ein__simulate(z) + z->edge * (z->used - 1);
    return z->used == 1 || beside > alone - alone / 10 ? alone : beside;
}

// Gives every step of the plan its branch and what it waits for, at most `most` branches.
EIN__FN void ein__plan_branches(ein_ctx *ctx, int most) {
    ein__plan *p = &ctx->plan;
    ein__scheduler z = {0};
    int64_t alone = 0;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) alone = ein__cost_sum(alone, p->step[i].ps);
    ein__run_schedule(ctx, &z, most);
    int64_t beside = ein__branched_cost(&z, alone);
    if (beside == alone) {
        ein__scheduler_free(&z, arrlen(p->buffer));
        z = (ein__scheduler){0};
        ein__run_schedule(ctx, &z, 1);
    }
    p->branches = z.used;
    p->branched_ps = z.used > 1 ? beside : alone;
    for (int b = 0; b < EIN__BRANCHES; b++) {
        bool waited = !b || z.last[b] < 0;
        // Those that another one has waited for are over when that is.
        for (int c = 0; c < EIN__BRANCHES && !waited; c++)
            waited = c != b && z.last[c] >= 0 && z.known[z.last[c]][b] >= z.last[b];
        p->join[b] = waited ? -1 : z.last[b];
    }
    for (int i = 0; i < z.n; i++) memcpy(p->step[i].known, z.known[i], sizeof p->step[i].known);
    ein__number_events(p);
    ein__scheduler_free(&z, arrlen(p->buffer));
}
