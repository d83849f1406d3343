// Fuses two kernels of a plan where each block can compute its part of the second one from its own
// part of the first one's result: the block keeps a slice of that tensor in shared memory. This
// saves a launch and a round trip through memory; FusionStitching (Zheng et al., 2020) and AStitch
// (ASPLOS 2022, section 3) call it block composition. Winograd's transforms of one convolution and
// of the next one meet so, as do pooling and what follows: channels are slices.

enum {
    EIN__STITCH_BYTES = 24 << 10,  // of shared memory a block, so that an SM holds some blocks
    EIN__STITCH_THREADS = 256,     // a block at most
    EIN__STITCH_LEAST = 16,        // elements of a slice
    EIN__STITCH_FEW = 128,         // below as many, a block takes more slices
    // What a block takes for the second kernel beside its work: the barrier and a round of loads
    // from shared memory; and for every further turn of its threads, or map that they compute
    // behind another (chain.c). Assumed.
    EIN__STITCH_PS = 400000,
    EIN__STITCH_TURN_PS = 150000,
    EIN__STITCH_MARGIN = 10  // percent by which its estimate must be less than those of two
};

typedef struct ein__stitcher {
    ein_ctx *ctx;
    ein__step *step;  // the plan's
    int n;
    bool apart;                // calls too, as the kernels that they could be
    bool *gone;                // by step: it is part of another one
    int **readers, **writers;  // by buffer: steps; stb_ds arrays
} ein__stitcher;

// What is to be one kernel.
typedef struct ein__seam {
    const ein__step *first, *second;  // as kernels
    ein__val v;                       // between them
    bool also;                        // others read it too
    int64_t slices, elements;         // of v; of a slice
    int groups;
    ein__slice cut[2];
    int64_t ps;
} ein__seam;

// Whether a warp of the step's kernel has a result, where its threads are part of another kernel.
static bool ein__warps_of(ein_ctx *ctx, const ein__step *s) {
    const ein__scope *p = ein__scope_of(ctx, s->val[0]);
    return s->kind == EIN__K_REDUCE &&
           ein__shares_warps(ein__added_apart(ctx, s->val[0], s->out), ein__terms_of(p));
}

// Whether blocks of the step's kernel go along the lines of a running sum.
static bool ein__has_lines(ein_ctx *ctx, const ein__step *s) {
    ein__running p;
    ein__ex term;
    return s->kind == EIN__K_REDUCE && !s->sums &&
           ein__runs_lines(ctx, ein__scope_of(ctx, s->val[0]), ctx->plan.layout[s->out.i].stride,
                           &p, &term);
}

// Whether threads of the step's kernel work by themselves on elements or tiles of the result, or
// warps do whose lanes read neighbours.
static bool ein__is_threaded(ein_ctx *ctx, const ein__step *s) {
    ein__skinny skinny;
    ein__picks picks;
    ein__kernel k;
    // Its threads are numbered by an unsigned.
    if (ein__elements(&ctx->value[s->out.i].shape) > INT32_MAX) return false;
    if (ein__is_call(s->kind) || s->npeer || s->ahead || s->also.i || s->nval > EIN__PART_VALUES ||
        s->parts > 1 || s->sums)
        return false;
    if (s->kind == EIN__K_MAP || s->kind == EIN__K_BASIS) return true;
    if (s->kind != EIN__K_REDUCE || ein__has_lines(ctx, s)) return false;
    if (ein__step_picks(ctx, s, &picks)) return false;
    k = ein__step_kernel(ctx, s);
    if (ein__warps_of(ctx, s)) {
        bool lanes;
        (void)ein__kernel_lane(ctx, &k, &lanes);
        if (!lanes || ctx->threads_only) return false;
    }
    return !ein__is_skinny(ctx, &k, &skinny);
}

// Whether threads of step `s`, a running sum, go along; `*t`: the iterator that they go along.
static bool ein__is_running(ein_ctx *ctx, const ein__step *s, uint32_t *t) {
    ein__running p;
    ein__ex term;
    const int64_t *out = ctx->plan.layout[s->out.i].stride;
    if (s->kind != EIN__K_REDUCE ||
        !ein__runs_along(ctx, ein__scope_of(ctx, s->val[0]), out, &p, &term))
        return false;
    *t = p.slot;
    return true;
}

// Whether iterator `t` of the step's first value is one of a tile's axes, or threads go along it or
// have all of its values.
static bool ein__is_tiled_axis(ein_ctx *ctx, const ein__step *s, uint32_t t) {
    ein__basis b;
    uint32_t along;
    bool tiled = false;
    if (ein__is_running(ctx, s, &along)) return along == t;
    if (s->kind == EIN__K_REDUCE)
        return ein__adds_together(ctx, s->val[0], s->out, &along) > 1 && along == t;
    if (s->kind != EIN__K_BASIS || !ein__match_basis(ctx, ein__scope_of(ctx, s->val[0]), &b))
        return false;
    for (int k = 0; k < b.n; k++) tiled |= b.axis[k].slot == t;
    return tiled;
}

// The iterator of the second kernel at which it reads dimension `d` of `v` everywhere, and nothing
// but that iterator; -1: there is none.
static int ein__slice_iterator(ein_ctx *ctx, const ein__seam *z, int d) {
    const ein__scope *s = ein__scope_of(ctx, z->second->val[0]);
    int found = -1;
    bool ok = true;
    for (int k = 0; k < z->second->nval; k++) {
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, z->second->val[k])->body);
        for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
            const ein__expr *e = ein__ex_get(ctx, reads[i]);
            uint32_t t;
            if (e->val != z->v.i) continue;
            ok = ein__ix_is_iter(ctx, e->ix[d], &t) && t < s->nt &&
                 (found < 0 || found == (int)t) && s->n[t] == ctx->value[z->v.i].shape.d[d];
            if (ok) found = (int)t;
        }
    }
    return ok && found >= 0 && !ein__is_tiled_axis(ctx, z->second, (uint32_t)found) ? found : -1;
}

// Whether the step reads nothing of the buffer of `v` but `v`.
static bool ein__reads_itself(ein_ctx *ctx, const ein__step *s, ein__val v) {
    const ein__layout *l = ctx->plan.layout;
    bool itself = true;
    for (int k = 0; k < s->nval; k++) {
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, s->val[k])->body);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            uint32_t r = ein__ex_get(ctx, reads[i])->val;
            itself &= r == v.i || l[r].buffer != l[v.i].buffer;
        }
    }
    return itself;
}

// The dimensions of `v` from the outermost one on; 0: it does not lie dense in a buffer of its own.
static int ein__dense_order(const ein_ctx *ctx, ein__val v, int *order) {
    const ein__value *p = &ctx->value[v.i];
    const ein__layout *l = &ctx->plan.layout[v.i];
    int64_t below = 1;
    int n = 0;
    for (int d = 0; d < p->shape.rank; d++) {
        int j = n;
        if (p->shape.d[d] == 1) continue;
        for (; j > 0 && l->stride[order[j - 1]] < l->stride[d]; j--) order[j] = order[j - 1];
        order[j] = d;
        n++;
    }
    for (int i = n - 1; i >= 0; i--) {
        if (l->stride[order[i]] != below) return 0;
        below *= p->shape.d[order[i]];
    }
    bool whole = ctx->plan.buffer[l->buffer].bytes == below * ein__dtype_size(p->dtype);
    return l->offset == 0 && whole ? n : 0;
}

// Threads with work, about.
static int64_t ein__thread_count(ein_ctx *ctx, const ein__step *s) {
    int64_t n = ein__elements(&ctx->value[s->out.i].shape);
    ein__basis b;
    uint32_t along;
    if (ein__warps_of(ctx, s)) return ein__times(n, 32);
    if (ein__is_running(ctx, s, &along)) n /= ein__scope_of(ctx, s->val[0])->n[along];
    if (s->kind == EIN__K_BASIS && ein__match_basis(ctx, ein__scope_of(ctx, s->val[0]), &b))
        for (int k = 0; k < b.n; k++) n /= b.axis[k].rows;
    else if (n / 4 >= EIN__SHARED_OUTPUTS) n /= 4;
    return n > 0 ? n : 1;
}

// Several slices a block where one has few threads, as long as all SMs have blocks.
static void ein__group_slices(ein_ctx *ctx, ein__seam *z) {
    int64_t sms = ein__gpu_of(ctx)->sms, size = ein__dtype_size(ctx->value[z->v.i].dtype);
    int64_t threads =
        ein__most(ein__thread_count(ctx, z->first), ein__thread_count(ctx, z->second));
    for (z->groups = 1; z->groups < EIN__STITCH_THREADS / 32; z->groups *= 2) {
        bool few = threads / z->slices * z->groups < EIN__STITCH_FEW;
        bool fits = (z->elements + 8) * size * 2 * z->groups <= EIN__STITCH_BYTES;
        if (!few || !fits || z->slices % (2 * z->groups) || z->slices / (2 * z->groups) < sms)
            break;
    }
}

// Further turns of a block's threads.
static int64_t ein__stitch_turns(ein_ctx *ctx, const ein__seam *z, const ein__step *s) {
    int64_t threads = ein__ceil(ein__thread_count(ctx, s), z->slices);
    return ein__ceil(threads, EIN__STITCH_THREADS / z->groups) - 1;
}

// What the arithmetic of step `s` takes, `ps` if all lanes of its warps had work: a slice may have
// fewer threads.
static int64_t ein__stitch_math(ein_ctx *ctx, const ein__seam *z, const ein__step *s, int64_t ps) {
    int64_t threads = ein__ceil(ein__thread_count(ctx, s), z->slices);
    return ein__muldiv(ps, ein__ceil(threads, 32) * 32, threads);
}

// What both take, without the tensor's way through memory. Fewer blocks than SMs compute as much
// longer, and wait for memory where each has its most.
static int64_t ein__estimate_seam(ein_ctx *ctx, const ein__seam *z) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__kernel a = ein__step_kernel(ctx, z->first), b = ein__step_kernel(ctx, z->second);
    int parts;
    b.inner[EIN__STEP_VALUES - 1] = z->v;
    ein__work w = ein__kernel_work(ctx, &a, &parts), x = ein__kernel_work(ctx, &b, &parts);
    int64_t stored = ein__bytes_of(ctx, z->v), blocks = z->slices / z->groups;
    if (!z->also) w.bytes[EIN__BY_UNIT] -= ein__least(stored, w.bytes[EIN__BY_UNIT]);
    for (int k = 0; k < EIN__NACCESS; k++) w.bytes[k] = ein__plus(w.bytes[k], x.bytes[k]);
    w.weights = ein__plus(w.weights, x.weights);
    w.math_ps = ein__plus(ein__stitch_math(ctx, z, z->first, w.math_ps),
                          ein__stitch_math(ctx, z, z->second, x.math_ps));
    w.chain_ps = ein__plus(w.chain_ps, x.chain_ps);
    int64_t alone = g->sms / EIN__TAIL_ALONE;
    if (blocks < alone) {
        for (int k = 0; k < EIN__NACCESS; k++) w.bytes[k] = ein__muldiv(w.bytes[k], alone, blocks);
        w.weights = ein__muldiv(w.weights, alone, blocks);
    }
    if (blocks < g->sms) w.math_ps = ein__muldiv(w.math_ps, g->sms, blocks);
    int64_t turns =
        ein__plus(ein__stitch_turns(ctx, z, z->first), ein__stitch_turns(ctx, z, z->second));
    int64_t waves = ein__ceil(blocks, ein__times(g->sms, EIN__SHARE_RESIDENT));
    w.extra_ps =
        ein__plus(EIN__STITCH_PS, ein__times(ein__times(turns, waves), EIN__STITCH_TURN_PS));
    return ein__work_ps(g, &w);
}

// The estimate for such a kernel as a step.
EIN__FN int64_t ein__estimate_stitch(ein_ctx *ctx, const ein__step *s) {
    ein__seam z = {.first = s->ahead,
                   .second = s,
                   .v = s->ahead->out,
                   .also = s->also.i != 0,
                   .slices = s->slices,
                   .groups = s->groups};
    return ein__estimate_seam(ctx, &z);
}

// A hash of the texts of both, as kernels have it (kernel_key.c).
static uint64_t ein__stitch_id(ein_ctx *ctx, const ein__step *s) {
    ein__kernel a = ein__step_kernel(ctx, s->ahead), b = ein__step_kernel(ctx, s);
    uint64_t h = ein__mix(ein__kernel_id(ctx, &a), ein__kernel_id(ctx, &b));
    h = ein__mix(ein__mix(h, ctx->kernel_seed[EIN__SEED_STITCH]), (uint64_t)s->groups);
    h = ein__mix(h, (uint64_t)s->slices);
    return ein__mix(h, s->also.i != 0);
}

// The cheapest slices; false: there are none.
static bool ein__cut_slices(ein_ctx *ctx, ein__seam *z) {
    const ein__value *p = &ctx->value[z->v.i];
    int order[EIN__MAX_RANK], n = ein__dense_order(ctx, z->v, order);
    int64_t all = ein__elements(&p->shape), size = ein__dtype_size(p->dtype);
    ein__seam best = {.ps = INT64_MAX};
    z->slices = 1;
    z->cut[0] = z->cut[1] = (ein__slice){.v = z->v};
    // A tensor of a few elements needs no cut: one block computes all of it.
    z->elements = all;
    z->groups = 1;
    if (n && all <= 4 * EIN__STITCH_THREADS && all >= EIN__STITCH_LEAST) {
        z->ps = ein__estimate_seam(ctx, z);
        best = *z;
    }
    for (int i = 0; i + 1 < n; i++) {
        int d = order[i], t = ein__slice_iterator(ctx, z, d);
        if (t < 0 || ein__is_tiled_axis(ctx, z->first, (uint32_t)d)) break;
        for (int j = 0; j < z->cut[1].n; j++)
            if (z->cut[1].at[j] == t) t = -1;
        if (t < 0) break;
        for (int k = 0; k < 2; k++) z->cut[k].dims |= 1u << d;
        z->cut[0].at[z->cut[0].n++] = (uint8_t)d;
        z->cut[1].at[z->cut[1].n++] = (uint8_t)t;
        z->slices *= p->shape.d[d];
        z->elements = all / z->slices;
        if ((z->elements + 8) * size > EIN__STITCH_BYTES || z->elements < EIN__STITCH_LEAST)
            continue;
        ein__group_slices(ctx, z);
        z->ps = ein__estimate_seam(ctx, z);
        if (z->ps < best.ps) best = *z;
    }
    if (best.ps == INT64_MAX) return false;
    *z = best;
    return true;
}

// A step as a kernel. A call may be cheaper than one by itself and dearer than half of one, since
// it takes a launch of its own.
static const ein__step *ein__as_kernel(ein_ctx *ctx, const ein__step *step) {
    if (!ein__is_call(step->kind) || step->npeer) return step;
    ein__step *loops = EIN__NEW(&ctx->arena, ein__step, 1);
    *loops = (ein__step){.kind = ein__kernel_kind(ctx, ein__scope_of(ctx, step->val[0])),
                         .name = step->name,
                         .out = step->out,
                         .nval = step->nval};
    memcpy(loops->val, step->val, sizeof loops->val);
    return loops;
}

// What a kernel made of two steps costs, and the key of its row, where there may be one.
static void ein__price_kernel(ein_ctx *ctx, ein__step *s) {
    char key[EIN__KEY_LENGTH];
    s->ps = ein__cost_step(ctx, s);
    s->key = NULL;
    s->measured = false;
    if (!ctx->kernel_rows && !ctx->desc.probe) return;
    ein__kernel k = ein__step_kernel(ctx, s);
    ein__put_kernel_key(key, s->kind, ein__kernel_id(ctx, &k));
    s->key = ein__name(ctx, key);
    s->measured = ein__row_of(ctx, key) != NULL;
}

// Whether step `j` may do what step `i` does, whose result `v` it reads.
static bool ein__may_stitch(const ein__stitcher *s, int i, int j, ein__seam *z) {
    ein_ctx *ctx = s->ctx;
    const ein__layout *l = ctx->plan.layout;
    const int *readers = s->readers[l[z->v.i].buffer];
    ein__bkind kind = ctx->plan.buffer[l[z->v.i].buffer].kind;
    z->first = s->apart ? ein__as_kernel(ctx, &s->step[i]) : &s->step[i];
    z->second = s->apart ? ein__as_kernel(ctx, &s->step[j]) : &s->step[j];
    z->also = kind == EIN__B_OUTPUT;
    if (arrlen(s->writers[l[z->v.i].buffer]) != 1 || z->first->out.i != z->v.i || s->gone[i] ||
        (kind != EIN__B_ARENA && kind != EIN__B_OUTPUT))
        return false;
    for (ptrdiff_t k = 0; k < arrlen(readers); k++) {
        z->also |= readers[k] != j;
        // It is there when the second step is over.
        if (readers[k] < j) return false;
    }
    return ein__is_threaded(ctx, z->first) && ein__is_threaded(ctx, z->second) &&
           ein__reads_itself(ctx, z->second, z->v) && ein__cut_slices(ctx, z);
}

// Makes the two one step, in the second one's place, where that is cheaper.
static void ein__try_stitch(ein__stitcher *s, int i, int j, const ein__seam *z) {
    ein_ctx *ctx = s->ctx;
    ein__step both = *z->second;
    char key[EIN__KEY_LENGTH];
    both.ahead = EIN__NEW(&ctx->arena, ein__step, 1);
    *both.ahead = *z->first;
    both.also = z->also ? z->v : (ein__val){0};
    both.slices = z->slices;
    both.groups = z->groups;
    both.ps = ein__cost_sum(z->ps, ein__muldiv(z->ps, EIN__STITCH_MARGIN, 100));
    both.measured = false;
    both.key = NULL;
    for (int k = 0; k < 2; k++) both.cut[k] = z->cut[k];
    if (ctx->kernel_rows || ctx->desc.probe) {
        snprintf(key, sizeof key, "kernel stitch %016llx",
                 (unsigned long long)ein__stitch_id(ctx, &both));
        both.key = ein__name(ctx, key);
        const ein__cost_row *row = ein__row_of(ctx, both.key);
        both.measured = row != NULL;
        if (row) both.ps = row->ps;
    }
    if (both.ps >= ein__cost_sum(s->step[i].ps, s->step[j].ps)) return;
    if (!both.measured) both.ps = z->ps;
    ein__val *reads = ein__step_reads(ctx, &s->step[i]);
    for (ptrdiff_t k = 0; k < arrlen(reads); k++)
        arrput(s->readers[ctx->plan.layout[reads[k].i].buffer], j);
    arrfree(reads);
    s->step[j] = both;
    s->gone[i] = true;
}

// Stitches step `j` with one that writes what it reads.
static void ein__stitch_step(ein__stitcher *s, int j, ein__val *const *all) {
    const ein__val *reads = all[j];
    for (ptrdiff_t k = 0; k < arrlen(reads) && !s->step[j].ahead && !s->gone[j]; k++) {
        ein__seam z = {.v = reads[k]};
        const int *w = s->writers[s->ctx->plan.layout[z.v.i].buffer];
        if (arrlen(w) != 1 || w[0] >= j) continue;
        bool fits = arrlen(reads) + arrlen(all[w[0]]) < EIN__MAX_ARGS - 3;
        if (fits && ein__may_stitch(s, w[0], j, &z)) ein__try_stitch(s, w[0], j, &z);
    }
}

// The plan's steps and who reads and writes what; `reads`: by step, an stb_ds array each.
static ein__stitcher ein__stitcher_look(ein_ctx *ctx, ein__val ***reads) {
    ein__stitcher s = {.ctx = ctx, .step = ctx->plan.step, .n = (int)arrlen(ctx->plan.step)};
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        arrput(s.readers, NULL);
        arrput(s.writers, NULL);
    }
    for (int i = 0; i < s.n; i++) {
        ein__val *of = ein__step_reads(ctx, &s.step[i]);
        arrput(s.gone, false);
        arrput(*reads, of);
        arrput(s.writers[ctx->plan.layout[s.step[i].out.i].buffer], i);
        if (s.step[i].also.i) arrput(s.writers[ctx->plan.layout[s.step[i].also.i].buffer], i);
        for (int m = 0; m < s.step[i].npeer; m++)
            arrput(s.writers[ctx->plan.layout[s.step[i].peer[m].out.i].buffer], i);
        for (ptrdiff_t k = 0; k < arrlen(of); k++)
            arrput(s.readers[ctx->plan.layout[of[k].i].buffer], i);
    }
    return s;
}

// Takes what is part of another step out of the plan.
static void ein__stitcher_end(ein__stitcher *s, ein__val **reads) {
    ptrdiff_t kept = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->gone[i]) s->step[kept++] = s->step[i];
    if (s->step) arrsetlen(s->ctx->plan.step, kept);
    for (int i = 0; i < s->n; i++) arrfree(reads[i]);
    for (ptrdiff_t i = 0; i < arrlen(s->readers); i++) {
        arrfree(s->readers[i]);
        arrfree(s->writers[i]);
    }
    arrfree(reads);
    arrfree(s->readers);
    arrfree(s->writers);
    arrfree(s->gone);
}

// Stitches the plan's kernels, each with one that it reads from at most; calls with them or, where
// they are `late`, what is left of the kernels with calls.
static void ein__stitch_plan(ein_ctx *ctx, bool late) {
    ein__val **reads = NULL;
    ein__stitcher s = ein__stitcher_look(ctx, &reads);
    for (int j = 0; j < s.n && late; j++) ein__stitch_step(&s, j, reads);
    s.apart = true;
    for (int j = 0; j < s.n; j++) ein__stitch_step(&s, j, reads);
    ein__stitcher_end(&s, reads);
}

static int64_t ein__plan_cost(const ein__plan *p) {
    int64_t ps = 0;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) ps = ein__cost_sum(ps, p->step[i].ps);
    return ps;
}
