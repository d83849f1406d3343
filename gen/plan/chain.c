// Multi-output fusion (the term is XLA's): successive maps of a plan as one kernel. Each reads what
// the ones before it store at the place where it stores its own result, so a thread has these
// values in registers. They cannot be one expression, because such a value is read elsewhere too:
// the states of a scan, step by step, or a cell's state and its output.

typedef struct ein__chainer {
    ein__stitcher s;
    int *place;    // by step: the step that it is part of now, or itself
    int **member;  // by step: what is one with it, as steps were in order; stb_ds arrays
    ein__val **reads;
} ein__chainer;

static bool ein__may_chain(ein_ctx *ctx, const ein__step *s) {
    const ein__layout *l = &ctx->plan.layout[s->out.i];
    ein__bkind kind = ctx->plan.buffer[l->buffer].kind;
    return s->kind == EIN__K_MAP && s->nval == 1 &&
           (kind == EIN__B_ARENA || kind == EIN__B_OUTPUT) && ein__is_threaded(ctx, s);
}

// Whether threads of equal numbers store equal positions of both.
static bool ein__is_walked_alike(const ein_ctx *ctx, ein__val a, ein__val b) {
    const ein__shape *p = &ctx->value[a.i].shape, *q = &ctx->value[b.i].shape;
    const ein__layout *l = &ctx->plan.layout[a.i], *m = &ctx->plan.layout[b.i];
    bool alike = p->rank == q->rank;
    for (int d = 0; alike && d < p->rank; d++) {
        alike = p->d[d] == q->d[d];
        for (int e = 0; e < d; e++)
            alike &= p->d[d] == 1 || p->d[e] == 1 ||
                     (l->stride[d] < l->stride[e]) == (m->stride[d] < m->stride[e]);
    }
    return alike;
}

// Whether map `s` reads nothing of the buffer of `v` but `v`, and that where it stores, be it as a
// position.
static bool ein__follows(ein_ctx *ctx, const ein__step *s, ein__val v) {
    const ein__layout *l = ctx->plan.layout;
    const ein__shape *shape = &ctx->value[v.i].shape;
    const ein__ex body = ein__scope_of(ctx, s->val[0])->body;
    bool ok = true;
    const ein__ex *reads = ein__ex_reads(ctx, body);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (l[e->val].buffer != l[v.i].buffer) continue;
        ok = e->val == v.i;
        for (int d = 0; ok && d < shape->rank; d++) {
            const ein__index *f = ein__ix_get(ctx, e->ix[d]);
            uint32_t t;
            // Where there is one place, what is read beyond it is padding.
            if (shape->d[d] == 1)
                ok = f->lo == 0 && f->hi == 0 && !ein__ix_has_gather(ctx, e->ix[d]);
            else ok = ein__ix_is_iter(ctx, e->ix[d], &t) && t == (uint32_t)d;
        }
    }
    return ok;
}

// What the members of steps `i` and `j` would take as one kernel: all that they store and, each
// value once, what they read that they do not compute themselves.
static int ein__link_args(const ein__chainer *z, int i, int j) {
    int args = 0;
    ein__val *known = NULL;
    for (int side = 0; side < 2; side++) {
        const int *member = z->member[side ? j : i];
        args += (int)arrlen(member);
        for (ptrdiff_t a = 0; a < arrlen(member); a++) arrput(known, z->s.step[member[a]].out);
    }
    for (int side = 0; side < 2; side++) {
        const int *member = z->member[side ? j : i];
        for (ptrdiff_t a = 0; a < arrlen(member); a++)
            for (ptrdiff_t r = 0; r < arrlen(z->reads[member[a]]); r++) {
                ein__val v = z->reads[member[a]][r];
                bool seen = false;
                for (ptrdiff_t k = 0; k < arrlen(known) && !seen; k++) seen = known[k].i == v.i;
                if (seen) continue;
                arrput(known, v);
                args++;
            }
    }
    arrfree(known);
    return args;
}

// Whether the members of steps `i` and `j` may be one kernel, wherever that is.
static bool ein__may_link(const ein__chainer *z, int i, int j) {
    ein_ctx *ctx = z->s.ctx;
    if (arrlen(z->member[i]) + arrlen(z->member[j]) > EIN__CHAINED) return false;
    for (ptrdiff_t a = 0; a < arrlen(z->member[i]); a++) {
        const ein__step *p = &z->s.step[z->member[i][a]];
        if (arrlen(z->s.writers[ctx->plan.layout[p->out.i].buffer]) != 1) return false;
        for (ptrdiff_t b = 0; b < arrlen(z->member[j]); b++) {
            const ein__step *q = &z->s.step[z->member[j][b]];
            if (!ein__is_walked_alike(ctx, p->out, q->out) || !ein__follows(ctx, q, p->out))
                return false;
        }
    }
    return ein__link_args(z, i, j) <= EIN__SIBLINGS_PARAMS;
}

// Whether nobody else reads what step `i` stores before step `j` is there.
static bool ein__may_sink(const ein__chainer *z, int i, int j) {
    for (ptrdiff_t a = 0; a < arrlen(z->member[i]); a++) {
        ein__val v = z->s.step[z->member[i][a]].out;
        const int *readers = z->s.readers[z->s.ctx->plan.layout[v.i].buffer];
        for (ptrdiff_t k = 0; k < arrlen(readers); k++)
            if (z->place[readers[k]] != i && z->place[readers[k]] < j) return false;
    }
    return true;
}

// Whether all that step `j` reads, but what step `i` stores, is there before step `i`.
static bool ein__may_rise(const ein__chainer *z, int i, int j) {
    for (ptrdiff_t b = 0; b < arrlen(z->member[j]); b++) {
        const ein__val *reads = z->reads[z->member[j][b]];
        for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
            const int *w = z->s.writers[z->s.ctx->plan.layout[reads[r].i].buffer];
            for (ptrdiff_t k = 0; k < arrlen(w); k++)
                if (z->place[w[k]] > i && z->place[w[k]] != j) return false;
        }
    }
    return true;
}

// Makes the members of step `from` those of step `to`, in the order of the steps.
static void ein__link(ein__chainer *z, int from, int to) {
    int *both = NULL;
    ptrdiff_t a = 0, b = 0, n = arrlen(z->member[from]), m = arrlen(z->member[to]);
    while (a < n || b < m) {
        bool first = b == m || (a < n && z->member[from][a] < z->member[to][b]);
        arrput(both, first ? z->member[from][a++] : z->member[to][b++]);
    }
    for (ptrdiff_t k = 0; k < n; k++) z->place[z->member[from][k]] = to;
    arrfree(z->member[to]);
    arrfree(z->member[from]);
    z->member[to] = both;
    z->s.gone[from] = true;
}

static void ein__chain_step(ein__chainer *z, int j) {
    ein_ctx *ctx = z->s.ctx;
    if (!ein__may_chain(ctx, &z->s.step[j])) return;
    for (ptrdiff_t k = 0; k < arrlen(z->reads[j]) && z->place[j] == j; k++) {
        const int *w = z->s.writers[ctx->plan.layout[z->reads[j][k].i].buffer];
        if (arrlen(w) != 1) continue;
        int i = z->place[w[0]];
        if (i >= j || !ein__may_chain(ctx, &z->s.step[w[0]]) || !ein__may_link(z, i, j)) continue;
        if (ein__may_sink(z, i, j)) ein__link(z, i, j);
        else if (ein__may_rise(z, i, j)) ein__link(z, j, i);
    }
}

// A hash of the text of member `at`, and of which of the others it reads.
static uint64_t ein__chain_id(ein_ctx *ctx, const ein__step *step, const int *member,
                              ptrdiff_t at) {
    ein__kernel k = ein__step_kernel(ctx, &step[member[at]]);
    uint64_t h = ein__kernel_id(ctx, &k);
    ein__val *reads = ein__step_reads(ctx, &step[member[at]]);
    for (ptrdiff_t r = 0; r < arrlen(reads); r++)
        for (ptrdiff_t i = 0; i < at; i++)
            if (reads[r].i == step[member[i]].out.i)
                h = ein__mix(h, (uint64_t)(r * EIN__CHAINED + i));
    arrfree(reads);
    return h;
}

// The members as one step.
static ein__step ein__chain_of(ein_ctx *ctx, const ein__step *step, const int *member) {
    ptrdiff_t n = arrlen(member);
    ein__step s = step[member[0]];
    int64_t launch = ein__launch_ps(ein__gpu_of(ctx));
    uint64_t h = ctx->kernel_seed[EIN__SEED_CHAIN];
    s.chained = true;
    s.peer = EIN__NEW(&ctx->arena, ein__step, n);
    for (ptrdiff_t i = 0; i < n; i++) {
        h = ein__mix(h, ein__chain_id(ctx, step, member, i));
        if (!i) continue;
        s.peer[s.npeer++] = step[member[i]];
        s.ps = ein__plus(s.ps, ein__most(step[member[i]].ps - launch, 0) + EIN__STITCH_TURN_PS);
    }
    s.measured = false;
    s.key = NULL;
    if (!ctx->kernel_rows && !ctx->desc.probe) return s;
    s.key = ein__namef(ctx, "kernel chain %016llx", (unsigned long long)h);
    const ein__cost_row *row = ein__row_of(ctx, s.key);
    s.measured = row != NULL;
    if (row) s.ps = row->ps;
    return s;
}

// Chains the plan's maps where that is cheaper.
static void ein__chain_plan(ein_ctx *ctx) {
    ein__chainer z = {0};
    z.s = ein__stitcher_look(ctx, &z.reads);
    for (int i = 0; i < z.s.n; i++) {
        int *own = NULL;
        arrput(own, i);
        arrput(z.member, own);
        arrput(z.place, i);
    }
    for (int j = 0; j < z.s.n; j++) ein__chain_step(&z, j);
    for (int j = 0; j < z.s.n; j++) {
        const int *member = z.member[j];
        int64_t apart = 0;
        if (arrlen(member) < 2) continue;
        ein__step s = ein__chain_of(ctx, z.s.step, member);
        for (ptrdiff_t k = 0; k < arrlen(member); k++)
            apart = ein__cost_sum(apart, z.s.step[member[k]].ps);
        if (s.ps < apart) z.s.step[j] = s;
        else
            for (ptrdiff_t k = 0; k < arrlen(member); k++) z.s.gone[member[k]] = false;
    }
    for (int i = 0; i < z.s.n; i++) arrfree(z.member[i]);
    arrfree(z.member);
    arrfree(z.place);
    ein__stitcher_end(&z.s, z.reads);
}

// Whether no step of the plan reads what chain `i` stores as `v`: it is no output either.
static bool ein__is_hidden(const ein__stitcher *s, int i, ein__val v) {
    ein_ctx *ctx = s->ctx;
    int buffer = ctx->plan.layout[v.i].buffer;
    const int *w = s->writers[buffer];
    return ctx->plan.buffer[buffer].kind == EIN__B_ARENA && arrlen(w) == 1 && w[0] == i &&
           !arrlen(s->readers[buffer]);
}

// Members of chain `i` that nobody else reads: its threads have them in registers alone.
static void ein__hide_of(const ein__stitcher *z, int i) {
    ein_ctx *ctx = z->ctx;
    const ein__step *s = &z->step[i];
    const ein__step *stored[EIN__CHAINED];
    ein__val hidden[EIN__CHAINED];
    int n = 0, none = 0;
    if (!s->chained || s->sums || s->ahead) return;
    for (int k = 0; k <= s->npeer; k++) {
        const ein__step *m = ein__step_member(s, k);
        if (ein__is_hidden(z, i, m->out)) hidden[none++] = m->out;
        else stored[n++] = m;
    }
    if (!none || !n) return;
    ein__step all = *stored[0];
    all.chained = true;
    all.ps = s->ps;
    all.measured = s->measured;
    all.key = s->key;
    all.npeer = 0;
    all.peer = EIN__NEW(&ctx->arena, ein__step, n);
    for (int k = 1; k < n; k++) all.peer[all.npeer++] = *stored[k];
    all.hidden = EIN__NEW(&ctx->arena, ein__val, none);
    all.nhidden = none;
    memcpy(all.hidden, hidden, (size_t)none * sizeof *hidden);
    if (!all.measured) all.ps = ein__least(all.ps, ein__estimate_joined(ctx, &all));
    z->step[i] = all;
}

// What chains store and nobody reads they need not store.
static void ein__hide_members(ein_ctx *ctx) {
    ein__val **reads = NULL;
    ein__stitcher z = ein__stitcher_look(ctx, &reads);
    for (int i = 0; i < z.n; i++) ein__hide_of(&z, i);
    ein__stitcher_end(&z, reads);
}
