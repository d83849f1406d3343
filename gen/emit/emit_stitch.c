// Stitched kernels (stitch.c): both as functions of a thread's number, and the kernel whose blocks
// call them for their slices.

// One of the two; `cut` says what numbers the slices.
static void ein__emit_slice(ein_ctx *ctx, const ein__step *s, const ein__slice *cut,
                            ein__launch *all, ein__launch *l) {
    ein__buf text = {0};
    bool reduce = ein__scope_of(ctx, s->val[0])->reduce != EIN__R_NONE;
    ein__kfamily *family = s->kind == EIN__K_BASIS ? ein__kbasis
                           : s->kind == EIN__K_ROW ? ein__krow_kernel
                           : reduce                ? ein__kwindow
                                                   : ein__kmap;
    ctx->slice = *cut;
    ein__emit_family(ctx, s, family, ein__kernel_word(s->kind), &text, l);
    ctx->slice = (ein__slice){0};
    if (ctx->status) return;
    for (int k = 0; k < l->ndevice; k++) {
        all->device[all->ndevice] = l->device[k];
        all->about[all->ndevice++][0] = l->about[k][0];
    }
    for (int k = 0; k < s->nval; k++) all->about[all->ndevice][k] = s->val[k];
    all->operands[all->ndevice] = ein__operands_text(ctx, l, 1);
    all->device[all->ndevice++] = ein__name(ctx, text.s);
    ein__buf_free(&text);
}

// The arguments of one of the two: what lies in shared memory, the result, or a parameter, which is
// added to those of `g`.
static const char *ein__slice_arguments(ein__kgen *g, const ein__step *step, const ein__launch *l) {
    ein__buf b = {0};
    ein__put(&b, "");
    for (int i = 0; i < l->narg; i++) {
        const char *name = "own";
        if (l->arg[i].i == step->out.i) name = "y";
        else if (l->arg[i].i != step->ahead->out.i) name = ein__kparam(g, l->arg[i]);
        ein__putf(&b, "%s%s", i ? ", " : "", name);
    }
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

static void ein__emit_stitch(ein_ctx *ctx, const ein__step *step, ein__buf *out, ein__launch *l) {
    ein__launch part[2], all;
    memset(&all, 0, sizeof all);
    all.of = step->name;
    const ein__step *of[] = {step->ahead, step};
    ein__val v = step->ahead->out;
    for (int k = 0; k < 2 && !ctx->status; k++)
        ein__emit_slice(ctx, of[k], &step->cut[k], &all, &part[k]);
    if (ctx->status) return;
    ein__kgen g = ein__kgen_make(ctx, step->val[0], false, 1);
    ein__dtype type = ctx->value[v.i].dtype;
    int64_t count = ein__elements(&ctx->value[v.i].shape) / step->slices, ids[2];
    int64_t whole = 16 / ein__dtype_size(type), threads = 32;
    int64_t room = ein__ceil(count, whole) * whole;
    bool vectors = count % whole == 0, several = step->groups > 1;
    for (int k = 0; k < 2; k++) {
        ids[k] = part[k].threads / step->slices;
        threads = ein__most(threads, ein__ceil(ids[k], 32) * 32);
    }
    threads = ein__least(threads, EIN__STITCH_THREADS / step->groups);
    g.needs = part[0].needs | part[1].needs;
    g.also = step->also;
    if (!ein__kgrid(ctx, &all, step->slices / step->groups, (int)threads)) return;
    all.block[1] = (unsigned)step->groups;
    ein__key keys[] = {
        {0},
        {0},
        {"bound", ein__namef(ctx, "%lld", (long long)threads * step->groups)},
        {"type", ein__kctype(type)},
        {"room", ein__namef(ctx, "%lld", (long long)room * step->groups)},
        {"part",
         several ? ein__namef(ctx, "slices + threadIdx.y * %lldu", (long long)room) : "slices"},
        {"number",
         several ? ein__namef(ctx, "blockIdx.x * %du + threadIdx.y", step->groups) : "blockIdx.x"},
        {"threads", ein__namef(ctx, "%lldu", (long long)threads)},
        {"first", part[0].name},
        {"firstids", ein__namef(ctx, "%lldu", (long long)ids[0])},
        {"firstargs", ein__slice_arguments(&g, step, &part[0])},
        {"second", part[1].name},
        {"secondids", ein__namef(ctx, "%lldu", (long long)ids[1])},
        {"secondargs", ein__slice_arguments(&g, step, &part[1])},
        {"also",
         g.also.i ? ein__namef(ctx, "%lldu", (long long)(vectors ? count / whole : count)) : ""},
        {"vector", vectors ? "uint4" : ein__kctype(type)}};
    *l = all;
    ein__kfinish(&g, step->out, "stitch", ein__tmpl_stitch, keys, EIN__COUNT(keys), out, l);
    ein__kgen_free(&g);
}
