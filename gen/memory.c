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
    }
}

static int64_t ein__align(int64_t n) { return (n + 255) & ~(int64_t)255; }

// Whether every use of `a` is over before any use of `b`, whatever runs side by side.
static bool ein__is_before(const ein__buffer *a, const ein__buffer *b) {
    for (int e = 0; e < EIN__BRANCHES; e++)
        if (a->last_on[e] > b->known[e]) return false;
    return true;
}

// Lowest offset where `b` overlaps no placed buffer that may be alive at the same time. `placed` is
// ordered by offset.
static int64_t ein__fit(const ein__buffer *all, const int *placed, const ein__buffer *b) {
    int64_t at = 0;
    for (ptrdiff_t i = 0; i < arrlen(placed); i++) {
        const ein__buffer *p = &all[placed[i]];
        if (ein__is_before(p, b) || ein__is_before(b, p)) continue;
        if (at + ein__align(b->bytes) <= p->at) break;
        if (p->at + ein__align(p->bytes) > at) at = p->at + ein__align(p->bytes);
    }
    return at;
}

// Offsets in one arena: largest first, each at the lowest place free during its whole life; where
// values are to be inspected, nobody else gets their places.
static int64_t ein__arena_offsets(ein_ctx *ctx) {
    ein__buffer *all = ctx->plan.buffer;
    int *todo = NULL, *placed = NULL;
    int64_t total = 0;
    for (ptrdiff_t i = 0; i < arrlen(all); i++)
        if (all[i].kind == EIN__B_ARENA && all[i].first >= 0) arrput(todo, (int)i);
    while (arrlen(todo)) {
        ptrdiff_t best = 0;
        for (ptrdiff_t i = 1; i < arrlen(todo); i++)
            if (all[todo[i]].bytes > all[todo[best]].bytes) best = i;
        int k = todo[best];
        arrdel(todo, best);
        all[k].at = ctx->desc.inspect ? total : ein__fit(all, placed, &all[k]);
        ptrdiff_t at = 0;
        while (at < arrlen(placed) && all[placed[at]].at <= all[k].at) at++;
        arrins(placed, at, k);
        if (all[k].at + ein__align(all[k].bytes) > total)
            total = all[k].at + ein__align(all[k].bytes);
    }
    arrfree(todo);
    arrfree(placed);
    return total;
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

// Steps on one branch share a workspace; those of branches that run side by side have one each.
static void ein__workspaces(ein__plan *p) {
    bool wanted[EIN__BRANCHES] = {false};
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        const ein__step *s = &p->step[i];
        if (s->workspace > p->workspace_bytes) p->workspace_bytes = s->workspace;
        wanted[s->branch] |= s->workspace > 0;
    }
    for (int b = 0; b < EIN__BRANCHES; b++) {
        p->workspace_at[b] = wanted[b] ? p->arena_bytes : -1;
        if (wanted[b]) p->arena_bytes += ein__align(p->workspace_bytes);
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

EIN__FN void ein__plan_memory(ein_ctx *ctx) {
    ein__plan *p = &ctx->plan;
    bool *kept = NULL;
    arrsetlen(kept, arrlen(p->buffer) + 1);
    ein__liveness(ctx, p->step);
    for (ptrdiff_t i = 0; i < arrlen(p->buffer); i++) kept[i] = p->buffer[i].first >= 0;
    p->arena_bytes = ein__arena_offsets(ctx);
    ein__liveness(ctx, p->init);
    ein__constant_offsets(ctx, kept);
    arrfree(kept);
    ein__workspaces(p);
    ein__place_counters(p);
}
