// Kernels to be measured: those of the plan, of the plans that were not taken (the untouched
// program among them), of plans without libraries and of such as take each problem's second and
// third best definition; of products every tile that is estimated to be nearly as good as the best.
// Contexts of other models hand theirs over as text (EIN_CALLS): a line with the row's key, then,
// each behind a tab,
//     #NAME grid=1x1x1 block=256x1x1 smem=0 needs=0x0 rank=0 text=CHARACTERS   how it is launched
//     @TYPE n=ELEMENTS at=OFFSET                                       an operand, or the result
//     <...  >...  |...    functions that it calls, first lines apart; its own text; line by line
// A kernel's rank is the place of the first plan that has it: the chosen one has 0.

enum {
    EIN__PROBE_RANKS = 2,   // definitions of a problem behind the best that are tried
    EIN__PROBE_SLOWER = 3,  // tiles that take so many times as long as the best are left out
    EIN__PROBE_RANK_LIMIT = 1000
};

// Plans the program in one more way, for its kernels: calls are measured for the plan itself alone.
static bool ein__probe_variant(ein_ctx *ctx, ein_libs libs, int rank) {
    ein__plan chosen = ctx->plan;
    ein_libs own = ctx->desc.libs;
    ctx->plan = (ein__plan){0};
    ctx->desc.libs = libs;
    ctx->rank = rank;
    ctx->quiet = true;
    ein__forget_costs(ctx);
    bool ok = ein__cheapest_plan(ctx);
    ein__pass_plan(ctx, &ctx->plan);
    ctx->desc.libs = own;
    ctx->rank = 0;
    ctx->quiet = false;
    ctx->plan = chosen;
    ctx->approach = chosen.way.approach;
    ein__forget_costs(ctx);
    return ok;
}

static bool ein__probe_variants(ein_ctx *ctx) {
    bool ok = true;
    if (ctx->desc.libs != EIN_LIBS_NONE) ok = ein__probe_variant(ctx, EIN_LIBS_NONE, 0);
    for (int rank = 1; ok && rank <= EIN__PROBE_RANKS && !ctx->desc.baseline; rank++)
        ok = ein__probe_variant(ctx, ctx->desc.libs, rank);
    return ok;
}

// ------------------------------------------------------------------------------------ as text

// Lines of `text`, each behind a tab and a mark, that of the first one `first`.
static void ein__put_marked(ein__buf *out, char first, char mark, const char *text) {
    for (bool begins = true; *text; begins = false) {
        size_t n = strcspn(text, "\n");
        ein__putf(out, "\t%c", begins ? first : mark);
        ein__put_n(out, text, n);
        ein__put(out, "\n");
        text += n + (text[n] != 0);
    }
}

static void ein__put_box(ein__buf *out, const int64_t *n, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) ein__putf(out, "%s%lld", i ? "x" : "", (long long)n[i]);
    if (!count) ein__put(out, "1");
}

static void ein__put_argument(ein_ctx *ctx, ein__buf *out, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    const ein__layout *l = &ctx->plan.layout[v.i];
    int64_t n = 1;
    for (int k = 0; k < p->shape.rank; k++)
        n = ein__plus(n, ein__times(p->shape.d[k] - 1, l->stride[k]));
    ein__putf(out, "\t@%s n=%lld at=%lld\n", ein__kctype(p->dtype), (long long)n,
              (long long)(l->offset % EIN__KEY_ALIGN));
}

// Memory for the parts of sums, and the counters of blocks.
static void ein__put_shared(ein__buf *out, const ein__step *step, const ein__launch *l) {
    int64_t sums = (step->workspace + 15) / 16;
    if (step->kind == EIN__K_PRODUCT) {
        const ein__product_tile *t = &ein__product_table[step->tile - 1];
        sums = (int64_t)l->grid[0] * t->rows * (t->cols + (step->nrow ? 2 : 0)) / 4;
    }
    ein__putf(out, "\t@float4 n=%lld at=0\n\t@unsigned n=%lld at=0\n", (long long)sums,
              (long long)l->grid[0] / step->parts);
}

static const char *ein__kernel_block(ein_ctx *ctx, const ein__step *step, int rank) {
    ein__buf out = {0}, text = {0};
    ein__launch l = {0};
    const char *block = NULL;
    ein__put(&text, "");
    ein__emit_kernel(ctx, step, ein__kernel_word(step->kind), &text, &l);
    if (!ctx->status && !l.extra) {
        const ein__scope *s = ein__scope_of(ctx, step->val[0]);
        ein__putf(&out,
                  "\t#%s grid=%ux%ux%u block=%ux%ux%u smem=%d needs=%ux%u rank=%d size=", l.name,
                  l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.smem,
                  (unsigned)(l.needs & UINT32_MAX), (unsigned)(l.needs >> 32), rank);
        ein__put_box(&out, s->n, s->nt);
        ein__putf(&out, " sum=");
        ein__put_box(&out, s->n + s->nt, s->ns);
        ein__put(&out, "\n");
        for (int k = 0; k < l.narg; k++) ein__put_argument(ctx, &out, l.arg[k]);
        if (l.shared) ein__put_shared(&out, step, &l);
        for (int k = 0; k < l.ndevice; k++) ein__put_marked(&out, '<', '>', l.device[k]);
        ein__put_marked(&out, '|', '|', text.s);
        block = ein__name(ctx, out.s);
    }
    ein__buf_free(&out);
    ein__buf_free(&text);
    return block;
}

// Of two blocks for one key that with the lower rank stays, whatever their order.
static void ein__keep_block(ein_ctx *ctx, const char *key, const char *block) {
    ptrdiff_t at = shgeti(ctx->kernels, key);
    if (at >= 0) {
        const char *old = ctx->kernels[at].value;
        int64_t was = INT64_MAX, now = INT64_MAX;
        const char *s = strstr(old, " rank="), *t = strstr(block, " rank=");
        if (s) was = strtoll(s + 6, NULL, 10);
        if (t) now = strtoll(t + 6, NULL, 10);
        if (was < now || (was == now && strcmp(old, block) <= 0)) return;
    }
    shput(ctx->kernels, key, block);
}

// ------------------------------------------------------------------------------------ collecting

// Whether a table has the row of this kernel with this text.
static bool ein__has_kernel(ein_ctx *ctx, const char *key, const char *tile, const char *block) {
    const char *same =
        ein__namef(ctx, "%s\t%s\t%s\t%d", ein__gpu_of(ctx)->name, key, tile, EIN_CODEGEN);
    ptrdiff_t at = shgeti(ctx->cost_rows, same);
    if (at < 0) return false;
    const char *text = ctx->cost_row[ctx->cost_rows[at].value].text;
    return !*text || strstr(block, ein__namef(ctx, "_%s grid=", text));
}

static void ein__collect_kernel(ein_ctx *ctx, const ein__step *step, const char *tile, int rank) {
    const char *key = *tile ? ein__namef(ctx, "%s algo=%s", step->key, tile) : step->key;
    const char *block = ein__kernel_block(ctx, step, rank);
    if (block && !ein__has_kernel(ctx, step->key, tile, block)) ein__keep_block(ctx, key, block);
}

// The parts in which a tile's terms are estimated to be shared best, in memory or in a cluster, and
// the time.
static int64_t ein__best_parts(const ein__gpu *g, const ein__tiled *p, const ein__product_tile *t,
                               bool cluster, int *parts) {
    int64_t best = INT64_MAX;
    for (int n = 2; n <= EIN__TAIL_PARTS; n++) {
        if (cluster && !ein__clusters(g, p, t, n)) continue;
        int64_t ps = ein__tail_ps(g, p, t, n, cluster);
        if (ps >= best) continue;
        best = ps;
        *parts = n;
    }
    return best;
}

// Every tile that may turn out to be the best one, its terms in one piece and shared.
static void ein__collect_tiles(ein_ctx *ctx, ein__step step, int rank) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__tiled p, addend;
    int64_t best;
    ein__product_cut cut;
    ein__kernel k = ein__step_kernel(ctx, &step);
    if (!ein__match_product_kernel(ctx, &k, &p, &addend)) return;
    best = ein__product_cut_of(ctx, &p, &cut);
    for (step.tile = 1; step.tile <= EIN__PRODUCT_TILES; step.tile++) {
        const ein__product_tile *t = &ein__product_table[step.tile - 1];
        if (!ein__product_fits(&p, t)) continue;
        for (int shared = 0; shared < 3; shared++) {
            char name[32];
            step.parts = 1;
            step.cluster = shared == 2;
            int64_t ps = shared ? ein__best_parts(g, &p, t, step.cluster, &step.parts)
                                : ein__product_tile_ps(g, &p, t);
            if (ps / EIN__PROBE_SLOWER > best) continue;
            ein__product_cut_name(t, step.parts, step.cluster, name);
            ein__collect_kernel(ctx, &step, name, ps > best ? rank + 1 : rank);
        }
    }
}

// A kernel that is part of another one, by itself.
static void ein__collect_member(ein_ctx *ctx, ein__step own, int rank) {
    ein__kernel k = ein__step_kernel(ctx, &own);
    char key[EIN__KEY_LENGTH];
    ein__put_kernel_key(key, own.kind, ein__kernel_id(ctx, &k));
    own.key = ein__name(ctx, key);
    own.npeer = own.nhidden = 0;
    if (own.kind == EIN__K_PRODUCT) ein__collect_tiles(ctx, own, rank);
    else ein__collect_kernel(ctx, &own, "", rank);
}

static ein__step ein__map_step(const ein_ctx *ctx, ein__val v) {
    const char *name = ctx->value[v.i].name;
    return (ein__step){.kind = EIN__K_MAP, .name = name, .out = v, .nval = 1, .val = {v}};
}

// Kernels that a plan has as one, each by itself: a table that has them all can tell what it gains.
static void ein__collect_members(ein_ctx *ctx, const ein__step *step, int rank) {
    for (int i = step->sums ? -1 : 0; i <= step->npeer; i++) {
        ein__step own = i < 0 ? *step->sums : *ein__step_member(step, i);
        if (ein__is_call(own.kind)) continue;
        if (own.sums) {
            own.kind = EIN__K_MAP;
            own.val[0] = own.out;
            own.nval = 1;
            own.sums = NULL;
        }
        ein__collect_member(ctx, own, rank);
    }
    for (int i = 0; i < step->nhidden; i++)
        ein__collect_member(ctx, ein__map_step(ctx, step->hidden[i]), rank);
}

// The same of rows and of the maps in front of them.
static void ein__collect_fronts(ein_ctx *ctx, const ein__step *step, int rank) {
    ein__step own = *step;
    own.also = (ein__val){0};
    for (int i = 0; i < EIN__ROW_LOADS; i++) own.load[i] = (ein__val){0};
    ein__collect_member(ctx, own, rank);
    for (int i = 0; i < EIN__ROW_LOADS && step->load[i].i; i++) {
        ein__collect_member(ctx, ein__map_step(ctx, step->load[i]), rank);
    }
}

static void ein__collect_plan(ein_ctx *ctx, int rank) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step) && !ctx->status; i++) {
        ein__step step = ctx->plan.step[i];
        if (ein__is_call(step.kind) || !step.key) continue;
        if (step.kind == EIN__K_PRODUCT) ein__collect_tiles(ctx, step, rank);
        else ein__collect_kernel(ctx, &step, "", rank);
        if (step.npeer || step.sums || step.chained) ein__collect_members(ctx, &step, rank);
        if (step.kind == EIN__K_ROW && step.load[0].i) ein__collect_fronts(ctx, &step, rank);
    }
}

// The kernels of all plans, in ctx->kernels.
static bool ein__gather_kernels(ein_ctx *ctx) {
    if (!ctx->desc.probe || ctx->probed) return !ctx->status;
    ctx->probed = true;
    if (!ein__probe_variants(ctx)) return false;
    ein__plan chosen = ctx->plan;
    ein__collect_plan(ctx, 0);
    for (ptrdiff_t i = 0; i < arrlen(ctx->passed); i++) {
        int rank = (int)ein__least(2 * (i + 1), EIN__PROBE_RANK_LIMIT);
        ctx->plan = ctx->passed[i];
        ein__collect_plan(ctx, rank);
    }
    ctx->plan = chosen;
    return !ctx->status;
}

// ------------------------------------------------------------------------------------ estimates

// What a kernel's estimate is made of, for bench/fit.py: time of its arithmetic and of what a
// thread does in sequence, bytes by class of access, bytes known at load.
static void ein__put_work(ein__buf *out, const ein__step *step, const ein__work *w) {
    ein__putf(out, "kind=%s math=%lld chain=%lld bytes=", ein__kernel_word(step->kind),
              (long long)w->math_ps, (long long)w->chain_ps);
    for (int k = 0; k < EIN__NACCESS; k++)
        ein__putf(out, "%s%lld", k ? "/" : "", (long long)w->bytes[k]);
    ein__putf(out, " weights=%lld", (long long)w->weights);
}

// The estimate of kernel `step`, its tile given; its parts go to `features`.
static int64_t ein__estimate_step(ein_ctx *ctx, const ein__step *step, ein__buf *features) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__attention a;
    if (step->kind == EIN__K_ATTENTION) {
        bool found = ein__attention_of(ctx, step, &a);
        ein__put(features, "kind=attention");
        return found ? ein__estimate_attention(ctx, &a, ein__bytes_of(ctx, step->out)) : 0;
    }
    if (step->sums) {
        ein__put(features, "kind=finish");
        return ein__estimate_finish(ctx, step);
    }
    if (step->npeer || step->chained) {
        ein__put(features, step->chained ? "kind=chain" : "kind=siblings");
        return ein__estimate_joined(ctx, step);
    }
    if (step->ahead) {
        ein__put(features, "kind=stitch");
        return ein__estimate_stitch(ctx, step);
    }
    ein__kernel k = ein__step_kernel(ctx, step);
    int parts;
    ein__picks picks;
    ein__work w = ein__picked_work(ctx, &k, &parts, &picks);
    ein__tiled p, addend;
    if (step->kind == EIN__K_PRODUCT && step->tile &&
        ein__match_product_kernel(ctx, &k, &p, &addend)) {
        w.math_ps = step->parts > 1
                        ? ein__tail_ps(g, &p, &ein__product_table[step->tile - 1], step->parts,
                                       step->cluster)
                        : ein__product_tile_ps(g, &p, &ein__product_table[step->tile - 1]);
    }
    ein__put_work(features, step, &w);
    return ein__work_ps(g, &w);
}

static int64_t ein__estimate_call(ein_ctx *ctx, const ein__step *step) {
    if (step->npeer) return ein__estimate_group_step(ctx, step);
    if (step->kind == EIN__K_GEMM) return ein__estimate_gemm(ctx, &step->gemm);
    return ein__estimate_conv(ctx, &step->conv, step->kind == EIN__K_CONV_DATA);
}

// A line for each row of the step's kernel that was not there before.
static void ein__put_kernel_rows(ein_ctx *ctx, ein__step step, ein__buf *out, const char ***seen) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->cost_row); i++) {
        const ein__cost_row *r = &ctx->cost_row[i];
        if (strcmp(r->key, step.key) || strcmp(r->device, ein__gpu_of(ctx)->name)) continue;
        const char *mark = *r->algorithm ? " algo=" : "";
        const char *key = ein__namef(ctx, "%s%s%s", r->key, mark, r->algorithm);
        if (!ein__is_new(seen, key)) continue;
        ein__buf features = {0};
        if (*r->algorithm) ein__cut_step(ctx, &step, r->algorithm);
        int64_t ps = ein__estimate_step(ctx, &step, &features);
        ein__putf(out, "%s\t%lld\t%lld\t%lld\t%s\n", key, (long long)r->ps,
                  (long long)(r->spread < 0 ? 0 : r->spread), (long long)ps, features.s);
        ein__buf_free(&features);
    }
}

// The rows of a plan's kernels, and the plan itself where all its steps are measured.
static void ein__put_plan_rows(ein_ctx *ctx, int place, ein__buf *out, const char ***seen) {
    int64_t measured = 0, estimated = 0;
    bool all = arrlen(ctx->plan.step) > 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *step = &ctx->plan.step[i];
        ein__buf features = {0};
        bool call = ein__is_call(step->kind);
        all &= step->measured;
        measured = ein__plus(measured, step->ps);
        ein__put(&features, "");
        estimated = ein__plus(estimated, call ? ein__estimate_call(ctx, step)
                                              : ein__estimate_step(ctx, step, &features));
        ein__buf_free(&features);
        if (!call && step->key) ein__put_kernel_rows(ctx, *step, out, seen);
    }
    if (all)
        ein__putf(out, "plan %s %d\t%lld\t0\t%lld\tsteps=%d\n", ctx->graph.model, place,
                  (long long)measured, (long long)estimated, (int)arrlen(ctx->plan.step));
}

// What was measured of candidate plans and of their kernels beside the estimates: key, picoseconds,
// spread, estimate, what the estimate is made of.
EIN__FN void ein__emit_candidates(ein_ctx *ctx, ein__buf *out) {
    const char **seen = NULL;
    if (!ein__gather_kernels(ctx)) return;
    ein__plan chosen = ctx->plan;
    ein__put_plan_rows(ctx, 0, out, &seen);
    for (ptrdiff_t i = 0; i < arrlen(ctx->passed); i++) {
        ctx->plan = ctx->passed[i];
        ein__put_plan_rows(ctx, (int)i + 1, out, &seen);
    }
    ctx->plan = chosen;
    arrfree(seen);
}
