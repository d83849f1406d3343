// Memory of a plan: one arena for activations, by liveness; constants; workspaces.

static void ein__touch(ein_ctx *ctx, ein__val v, const ein__step *s, int at) {
    ein__buffer *b = &ctx->plan.buffer[ctx->plan.layout[v.i].buffer];
    bool fresh = b->first < 0;
    if (fresh) b->first = at;
    for (int e = 0; e < EIN__BRANCHES; e++) {
        if (fresh) b->last_on[e] = -1;
        if (fresh || s->known[e] < b->known[e]) b->known[e] = s->known[e];
    }
    b->last_on[s->branch] = at;
}

static void ein__liveness(ein_ctx *ctx, const ein__step *steps) {
    for (ptrdiff_t i = 0; i < arrlen(steps); i++) {
        ein__val *reads = ein__step_reads(ctx, &steps[i]);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) ein__touch(ctx, reads[k], &steps[i], (int)i);
        arrfree(reads);
        ein__touch(ctx, steps[i].out, &steps[i], (int)i);
        if (steps[i].also.i) ein__touch(ctx, steps[i].also, &steps[i], (int)i);
        for (int m = 0; m < steps[i].npeer; m++)
            ein__touch(ctx, steps[i].peer[m].out, &steps[i], (int)i);
    }
}

static int64_t ein__align(int64_t n) { return (n + 255) & ~(int64_t)255; }

// Whether every use of `a` is over before any use of `b`, whatever runs side by side.
static bool ein__is_before(const ein__buffer *a, const ein__buffer *b) {
    for (int e = 0; e < EIN__BRANCHES; e++)
        if (a->last_on[e] > b->known[e]) return false;
    return true;
}

// What has a place in the arena: a buffer, or (buffer < 0) a branch's workspace.
typedef struct ein__room {
    int64_t at, bytes;
    int buffer, branch;
} ein__room;

// Whether step `i` may run while buffer `b` is in use.
static bool ein__is_beside(const ein__plan *p, int i, const ein__buffer *b) {
    const ein__step *s = &p->step[i];
    if (b->known[s->branch] >= i) return false;
    for (int e = 0; e < EIN__BRANCHES; e++)
        if (b->last_on[e] > s->known[e]) return true;
    return false;
}

// Whether steps of branches `a` and `b` that use a workspace may run side by side.
static bool ein__workspaces_meet(const ein__plan *p, int a, int b) {
    for (int i = 0; i < arrlen(p->step); i++) {
        if (p->step[i].branch != a || !p->step[i].workspace) continue;
        for (int k = 0; k < arrlen(p->step); k++) {
            if (p->step[k].branch != b || !p->step[k].workspace) continue;
            if (p->step[i].known[b] < k && p->step[k].known[a] < i) return true;
        }
    }
    return false;
}

// Whether two of them may be in use at the same time. A workspace is while a step of its branch
// that wants one runs: at other times its place is anybody's.
static bool ein__rooms_meet(const ein__plan *p, const ein__room *a, const ein__room *b) {
    if (a->buffer >= 0 && b->buffer >= 0) {
        const ein__buffer *x = &p->buffer[a->buffer], *y = &p->buffer[b->buffer];
        return !ein__is_before(x, y) && !ein__is_before(y, x);
    }
    if (a->buffer < 0 && b->buffer < 0) return ein__workspaces_meet(p, a->branch, b->branch);
    const ein__room *buffer = a->buffer < 0 ? b : a, *space = a->buffer < 0 ? a : b;
    for (int i = 0; i < arrlen(p->step); i++)
        if (p->step[i].branch == space->branch && p->step[i].workspace &&
            ein__is_beside(p, i, &p->buffer[buffer->buffer]))
            return true;
    return false;
}

// Lowest offset where `r` overlaps nothing placed that may be in use at the same time. `placed` is
// ordered by offset.
static int64_t ein__fit(const ein__plan *p, const ein__room *placed, const ein__room *r) {
    int64_t at = 0;
    for (ptrdiff_t i = 0; i < arrlen(placed); i++) {
        if (placed[i].at + placed[i].bytes <= at || !ein__rooms_meet(p, &placed[i], r)) continue;
        if (at + r->bytes <= placed[i].at) break;
        at = placed[i].at + placed[i].bytes;
    }
    return at;
}

// What needs a place: steps on one branch share a workspace, those of branches that run side by
// side have one each.
static ein__room *ein__rooms(ein__plan *p) {
    ein__room *rooms = NULL;
    bool wanted[EIN__BRANCHES] = {false};
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        const ein__step *s = &p->step[i];
        if (s->workspace > p->workspace_bytes) p->workspace_bytes = s->workspace;
        wanted[s->branch] |= s->workspace > 0;
    }
    for (int b = 0; b < EIN__BRANCHES; b++) {
        ein__room r = {0, ein__align(p->workspace_bytes), -1, b};
        p->workspace_at[b] = -1;
        if (wanted[b]) arrput(rooms, r);
    }
    for (int i = 0; i < arrlen(p->buffer); i++) {
        ein__room r = {0, ein__align(p->buffer[i].bytes), i, 0};
        if (p->buffer[i].kind == EIN__B_ARENA && p->buffer[i].first >= 0) arrput(rooms, r);
    }
    return rooms;
}

// Offsets in one arena: largest first, each at the lowest place free during its whole life; where
// values are to be inspected, nobody else gets their places.
static void ein__arena_offsets(ein_ctx *ctx) {
    ein__plan *p = &ctx->plan;
    ein__room *todo = ein__rooms(p), *placed = NULL;
    while (arrlen(todo)) {
        ptrdiff_t best = 0, at = 0;
        for (ptrdiff_t i = 1; i < arrlen(todo); i++)
            if (todo[i].bytes > todo[best].bytes) best = i;
        ein__room r = todo[best];
        arrdel(todo, best);
        r.at = ctx->desc.inspect ? p->arena_bytes : ein__fit(p, placed, &r);
        while (at < arrlen(placed) && placed[at].at <= r.at) at++;
        arrins(placed, at, r);
        if (r.at + r.bytes > p->arena_bytes) p->arena_bytes = r.at + r.bytes;
        if (r.buffer >= 0) p->buffer[r.buffer].at = r.at;
        else p->workspace_at[r.branch] = r.at;
    }
    arrfree(todo);
    arrfree(placed);
}

// Constants that run needs stay; weights that only create reads, and its intermediates, do not.
static void ein__constant_offsets(ein_ctx *ctx, const bool *kept) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        ein__buffer *b = &ctx->plan.buffer[i];
        if (b->kind != EIN__B_WEIGHT && b->kind != EIN__B_CONST) continue;
        if (!kept[i]) b->kind = EIN__B_INIT;
        if (!kept[i] && b->first < 0) continue;
        int64_t *total = kept[i] ? &ctx->plan.const_bytes : &ctx->plan.init_bytes;
        b->at = *total;
        *total += ein__align(b->bytes);
    }
}

// Every step has counters of its own, so that steps side by side never count together.
static void ein__place_counters(ein__plan *p) {
    p->counters = 0;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        p->step[i].counter = p->counters;
        p->counters += p->step[i].counters;
    }
}

// Whether step `s` reads `v` as a factor of products in TF32 and as nothing else.
static bool ein__reads_as_factor(ein_ctx *ctx, const ein__step *s, ein__val v) {
    const ein__gemm *g = &s->gemm;
    const ein__conv *c = &s->conv;
    if (s->npeer || s->ahead || s->sums || s->load[0].i || s->load[1].i) return false;
    if (s->kind == EIN__K_GEMM)
        return g->math == EIN__MATH_TF32 && g->bias.i != v.i && g->z.i != v.i;
    if (s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA)
        return c->math == EIN__MATH_TF32 && c->bias.i != v.i && c->z.i != v.i;
    if (s->kind != EIN__K_PRODUCT && s->kind != EIN__K_REDUCE) return false;
    for (int i = 0; i < s->nval; i++) {
        const ein__scope *of = ein__scope_of(ctx, s->val[i]);
        bool product = i == 0 || s->val[i].i == s->addend.i;
        if (product && ein__is_contraction(ctx, of) && !ein__keeps_fp32(ctx, s->val[i])) continue;
        const ein__ex *reads = ein__ex_reads(ctx, of->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            if (ein__ex_get(ctx, reads[k])->val == v.i) return false;
    }
    return true;
}

// Which constants create may round to TF32.
static void ein__mark_rounded(ein_ctx *ctx) {
    ein__plan *p = &ctx->plan;
    bool tf32 = ctx->desc.math == EIN_MATH_TF32;
    for (ptrdiff_t i = 0; i < arrlen(p->buffer); i++) {
        ein__bkind kind = p->buffer[i].kind;
        bool constant = kind == EIN__B_WEIGHT || kind == EIN__B_CONST;
        p->buffer[i].rounded = tf32 && constant && p->buffer[i].dtype == EIN__F32;
    }
    for (ptrdiff_t i = 0; i < arrlen(p->step) && tf32; i++) {
        ein__val *reads = ein__step_reads(ctx, &p->step[i]);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            if (!ein__reads_as_factor(ctx, &p->step[i], reads[k]))
                p->buffer[p->layout[reads[k].i].buffer].rounded = false;
        arrfree(reads);
    }
}

EIN__FN void ein__plan_memory(ein_ctx *ctx) {
    ein__plan *p = &ctx->plan;
    bool *kept = NULL;
    arrsetlen(kept, arrlen(p->buffer) + 1);
    ein__liveness(ctx, p->step);
    for (ptrdiff_t i = 0; i < arrlen(p->buffer); i++) kept[i] = p->buffer[i].first >= 0;
    ein__arena_offsets(ctx);
    ein__liveness(ctx, p->init);
    ein__constant_offsets(ctx, kept);
    ein__mark_rounded(ctx);
    arrfree(kept);
    ein__place_counters(p);
}
