// The steps of a plan once layouts are chosen: the arguments of calls and kernels, their
// workspaces, their costs.

static int64_t ein__conv_workspace(ein_ctx *ctx, const ein__conv *c, ein__val out) {
    int64_t bytes =
        ein__bytes_of(ctx, c->x) + ein__bytes_of(ctx, c->w) + ein__bytes_of(ctx, out) + (1 << 20);
    int64_t cap = (int64_t)256 << 20;
    return (bytes < cap ? bytes : cap) & ~(int64_t)255;
}

// A library that shares the terms of a product between blocks keeps its partial sums there: in f32,
// of whole tiles, and no block has fewer terms than a tile takes in a few steps. That it needs no
// more is an assumption; it takes what it is given, and chooses by it. The most is what NVIDIA says
// to give (cuBLAS manual, cublasSetWorkspace).
enum { EIN__PART_TILE = 128, EIN__PART_TERMS = 64 };

static int64_t ein__most_workspace(ein_ctx *ctx) {
    return (int64_t)(ein__gpu_of(ctx)->cc >= 90 ? 32 : 4) << 20;
}

static int64_t ein__gemm_workspace(ein_ctx *ctx, const ein__gemm *g) {
    int64_t most = ein__most_workspace(ctx), least = (int64_t)1 << 16;
    int64_t tiles_m = (g->m + EIN__PART_TILE - 1) / EIN__PART_TILE;
    int64_t tiles_n = (g->n + EIN__PART_TILE - 1) / EIN__PART_TILE;
    int64_t parts = (g->k + EIN__PART_TERMS - 1) / EIN__PART_TERMS;
    int64_t count[] = {tiles_m, tiles_n, g->batch, parts};
    int64_t bytes = (int64_t)EIN__PART_TILE * EIN__PART_TILE * 4;
    if (parts < 2) return least;
    for (int i = 0; i < 4 && bytes < most; i++)
        bytes = count[i] > most / bytes ? most : bytes * count[i];
    return bytes < most ? bytes : most;
}

// Whether the step's result has a type that a call with such operands stores. What keeps FP32 does
// so in TF32 mode too, where types do not tell.
static bool ein__stores(const ein_ctx *ctx, const ein__step *step, ein__math *math,
                        ein__dtype operand) {
    ein__dtype out = ctx->value[step->out.i].dtype;
    if (ein__keeps_fp32(ctx, step->val[0]) && *math == EIN__MATH_TF32) *math = EIN__MATH_FP32;
    return out == operand || (out == EIN__F32 && operand == EIN__F16);
}

// Parameters of a product. Addresses that views have moved lower what may be said of alignment.
static bool ein__product_step(ein_ctx *ctx, ein__step *step) {
    const ein__scope *s = ein__scope_of(ctx, step->val[0]);
    const ein__layout *l = ctx->plan.layout, *out = &l[step->out.i];
    ein__gemm *g = &step->gemm;
    ein__epilogue e;
    if (!ein__match_gemm(ctx, s, out->stride, g) ||
        !ein__stores(ctx, step, &g->math, ctx->value[g->a.i].dtype))
        return false;
    g->wide = g->math == EIN__MATH_FP16 && ctx->value[step->out.i].dtype == EIN__F32;
    if (step->nval == 2) {
        if (!ein__product_epilogue(ctx, step->val[0], step->val[1], &e) ||
            !ein__gemm_takes(s, out->stride, &e, g))
            return false;
        g->obias = e.at;
    }
    int64_t at[] = {l[g->a.i].offset + g->oa, l[g->b.i].offset + g->ob, out->offset,
                    g->bias.i ? l[g->bias.i].offset + g->obias : 0, g->z.i ? l[g->z.i].offset : 0};
    g->align = ein__aligned(16, ein__math_bytes(g->math), at, 5);
    step->ps = ein__cost_gemm(ctx, g);
    step->key = ein__gemm_key(ctx, g);
    step->workspace = ein__gemm_workspace(ctx, g);
    return true;
}

// Whether all operands begin where 16 bytes do, as engines were measured.
static bool ein__is_aligned_conv(const ein_ctx *ctx, const ein__step *step) {
    const ein__conv *c = &step->conv;
    const ein__val v[] = {c->x, c->w, c->bias, c->z, step->out};
    bool aligned = true;
    for (int i = 0; i < 5; i++)
        if (v[i].i)
            aligned &=
                ctx->plan.layout[v[i].i].offset * ein__dtype_size(ctx->value[v[i].i].dtype) % 16 ==
                0;
    return aligned;
}

// Parameters of a convolution whose tensors are in NCHW or, `nhwc`, in NHWC, data, filter and
// result alike.
static bool ein__conv_step(ein_ctx *ctx, ein__step *step, bool nhwc) {
    const ein__scope *s = ein__scope_of(ctx, step->val[0]);
    const ein__layout *out = &ctx->plan.layout[step->out.i];
    ein__conv_form f;
    if (!ein__find_conv_in(ctx, s, out->stride, nhwc, &f) || !ein__conv_sizes(&f)) return false;
    int slot[EIN__MAX_ITERS], n = ein__conv_filter_order(&f, slot);
    int64_t stride[EIN__MAX_RANK];
    ein__factor w;
    ein__strides_of(ctx, f.c.w, stride);
    if (!ein__address(ctx, f.w, stride, &w) || w.offset || !ein__dense_in_order(s, w.coef, slot, n))
        return false;
    step->conv = f.c;
    if (!ein__stores(ctx, step, &step->conv.math, ctx->value[f.c.x.i].dtype) ||
        ein__widens(ctx, step->val[0]))
        return false;
    if (step->nval == 2) {
        ein__epilogue e;
        if (!ein__product_epilogue(ctx, step->val[0], step->val[1], &e) ||
            !ein__conv_takes(ctx, &f, &e))
            return false;
        for (uint32_t t = 0; t < s->nt; t++)
            if (e.z.i && s->n[t] > 1 && e.step[t] != out->stride[t]) return false;
        step->conv.bias = e.bias;
        step->conv.z = e.z;
        step->conv.relu = e.act == EIN__ACT_RELU;
    }
    step->ps = ein__cost_conv(ctx, &step->conv, step->kind == EIN__K_CONV_DATA);
    step->key = ein__conv_key(ctx, &step->conv, step->kind == EIN__K_CONV_DATA);
    step->workspace = ein__conv_workspace(ctx, &step->conv, step->out);
    return true;
}

// Adds map `v` to what the step's loads compute, as the factor of product `of` that it is.
static bool ein__add_load(ein_ctx *ctx, ein__step *step, ein__val v, ein__val of) {
    const ein__expr *read[2];
    double alpha;
    int at = step->load[0].i != 0;
    if (!ein__two_factors(ctx, ein__scope_of(ctx, of), read, &alpha)) return false;
    for (int k = 0; k < 2; k++)
        if (read[k]->val == v.i) {
            step->load[at] = v;
            step->loaded[at] = ein__load_of(ctx, read[k], v);
            return true;
        }
    return false;
}

// Takes the maps in front of a product, or of two that are added up, out of the values that the
// step computes. Of two the one with more terms is the first. Several that are no contractions have
// terms in common.
static void ein__split_product(ein_ctx *ctx, ein__step *step) {
    ein__val maps[EIN__STEP_VALUES], of[EIN__STEP_VALUES];
    int nmap = 0, n = 0, last = step->nval - 1;
    for (int i = 0; i < last; i++) {
        if (ein__is_map(ctx, step->val[i])) maps[nmap++] = step->val[i];
        else of[n++] = step->val[i];
    }
    if (n == 2 &&
        ein__terms_of(ein__scope_of(ctx, of[0])) < ein__terms_of(ein__scope_of(ctx, of[1]))) {
        ein__val v = of[0];
        of[0] = of[1];
        of[1] = v;
    }
    of[n++] = step->val[last];
    bool joint = n > 2 && !ein__is_contraction(ctx, ein__scope_of(ctx, of[0]));
    if (joint) step->joint = n - 1;
    else if (n == 3) step->addend = of[1];
    for (int i = 0; i < nmap; i++)
        if (!ein__add_load(ctx, step, maps[i], of[0]) && n == 3)
            (void)ein__add_load(ctx, step, maps[i], of[1]);
    step->nval = n;
    memcpy(step->val, of, (size_t)n * sizeof *of);
}

// How the product of a step is cut up under the layouts as they stand, and what its parts take:
// as `name` says, where it is no NULL and fits, else as is estimated to be best.
static void ein__cut_step(ein_ctx *ctx, ein__step *step, const char *name) {
    ein__tiled p, addend;
    ein__product_cut cut;
    ein__kernel k = ein__step_kernel(ctx, step);
    if (!ein__match_product_kernel(ctx, &k, &p, &addend)) return;
    if (!name || !ein__product_cut_named(ctx, &p, name, &cut))
        (void)ein__product_cut_of(ctx, &p, &cut);
    step->tile = (int)(cut.tile - ein__product_table) + 1;
    step->parts = cut.parts;
    step->cluster = cut.cluster;
    bool shared = cut.parts > 1;
    step->counters = shared ? ein__product_blocks(&p, cut.tile) : 0;
    step->workspace = shared ? ein__tail_bytes(&p, cut.tile, cut.parts) : 0;
}

// How many blocks share the terms of a reduction's results, and what their parts take. What is
// known at load is computed once, so it needs none.
static void ein__share_step(ein_ctx *ctx, ein__step *step) {
    const ein__value *v = &ctx->value[step->out.i];
    if (v->weight_only) return;
    ein__kernel k = ein__step_kernel(ctx, step);
    int64_t outputs = ein__added_apart(ctx, step->val[0], step->out);
    ein__picks p;
    (void)ein__picked_work(ctx, &k, &step->parts, &p);
    if (step->parts < 2) return;
    // Of whole groups: a block's neighbouring outputs may lie beyond the last one.
    int64_t groups = ein__ceil(outputs, EIN__COLUMN_OUTPUTS);
    step->counters = outputs;
    int64_t sums = ein__times(groups, ein__times(EIN__COLUMN_OUTPUTS, step->parts));
    // A sum, a pair of sums, or a value and its place; of integers of 64 bits, whatever a map
    // behind makes of them.
    bool whole = ctx->value[step->val[0].i].dtype > EIN__BF16;
    int64_t each = step->kind == EIN__K_PLACE ? 16 : whole ? 8 : 4;
    uint32_t slot;
    each *= ein__adds_together(ctx, step->val[0], step->out, &slot);
    step->workspace = ein__times(sums, each);
}

// How many blocks share the keys of an attention's tile, and what their parts take.
static void ein__attention_step(ein_ctx *ctx, ein__step *step) {
    ein__attention a;
    ein__attention_tile t;
    if (!ein__attention_of(ctx, step, &a) ||
        !ein__attention_tiles(ctx, &a, ein__bytes_of(ctx, step->out), &t))
        return;
    step->parts = t.parts;
    step->counters = t.parts > 1 ? ein__attention_count_tiles(&t) : 0;
    step->workspace = ein__attention_workspace(&t);
}

// Fills the library parameters of a step whose first value is a contraction. False: the layouts do
// not allow the call after all, and a kernel takes over. Where they are both orders of a
// convolution's tensors, because channels or axes are 1, the cheaper one is told.
static bool ein__library_step(ein_ctx *ctx, ein__step *step) {
    if (step->kind == EIN__K_GEMM) return ein__product_step(ctx, step);
    ein__step last = *step;
    bool found = ein__conv_step(ctx, step, false);
    if (ctx->channels_last && ein__conv_step(ctx, &last, true) && (!found || last.ps < step->ps)) {
        *step = last;
        found = true;
    }
    return found;
}

// The cheaper kernel for a step whose call the layouts do not allow.
static ein__kind ein__kind_without_call(ein_ctx *ctx, const ein__step *step) {
    const ein__scope *s = ein__scope_of(ctx, step->val[0]);
    ein__step loops = *step, tiles = *step;
    ein__tiled p;
    loops.kind = ein__kernel_kind(ctx, s);
    tiles.kind = EIN__K_PRODUCT;
    if (!ein__match_tiles(ctx, s, ctx->plan.layout[step->out.i].stride, &p)) return loops.kind;
    return ein__cost_step(ctx, &tiles) < ein__cost_step(ctx, &loops) ? tiles.kind : loops.kind;
}

// A product with the row operation `n` in it.
static void ein__norm_step(ein_ctx *ctx, const ein__norm *n, ein__step *step) {
    const ein__expr *read[2];
    double alpha;
    step->nval = 0;
    step->val[step->nval++] = n->dot;
    if (n->sum.i) step->val[step->nval++] = n->sum;
    if (n->square.i) step->val[step->nval++] = n->square;
    for (int i = 0; i < n->nrow; i++) step->val[step->nval++] = n->row[i];
    step->nrow = step->nval - 1;
    step->val[step->nval++] = n->out;
    step->also = n->also;
    if (!n->load.i || !ein__two_factors(ctx, ein__scope_of(ctx, n->dot), read, &alpha)) return;
    step->load[0] = n->load;
    step->loaded[0] = ein__load_of(ctx, read[read[0]->val != n->load.i], n->load);
}

// Places with their extrema in front, whether or not others need these as well.
static void ein__place_step(ein_ctx *ctx, ein__step *step) {
    ein__extremum p;
    int first = 0;
    while (first < step->nval && !ein__place_of(ctx, step->val[first], &p)) first++;
    EIN_ASSERT(first < step->nval);
    ein__val places = step->val[first], map = step->out;
    step->nval = 0;
    step->val[step->nval++] = p.best;
    step->val[step->nval++] = places;
    if (map.i != places.i) step->val[step->nval++] = map;
}

// The step that computes stored value `v` under the layouts as they stand, without its cost and how
// blocks share it when a kernel does. Gives whether a library does.
static bool ein__step_of(ein_ctx *ctx, const ein__selector *sel, ein__val v, ein__step *step) {
    *step = (ein__step){.kind = sel->kind[v.i], .out = v, .name = ctx->value[v.i].name};
    for (ein__val of = sel->first[v.i]; of.i && step->nval < EIN__STEP_VALUES; of = sel->next[of.i])
        step->val[step->nval++] = of;
    if (step->kind == EIN__K_PLACE) ein__place_step(ctx, step);
    const ein__norm *norm = ein__norm_of(ctx, v, false);
    if (norm) ein__norm_step(ctx, norm, step);
    else if (step->kind == EIN__K_PRODUCT) ein__split_product(ctx, step);
    bool library = ein__is_call(step->kind);
    if (library && ein__library_step(ctx, step)) return true;
    if (library) step->kind = ein__kind_without_call(ctx, step);
    step->workspace = 0;
    if (step->kind == EIN__K_MAP &&
        ein__is_transpose(ctx, ein__scope_of(ctx, v), ctx->plan.layout[v.i].stride))
        step->kind = EIN__K_TRANSPOSE;
    return false;
}

// Whether neighbouring threads of the step's kernel store or read what does not lie together.
static bool ein__is_scattered(ein_ctx *ctx, const ein__step *step) {
    const ein__shape *shape = &ctx->value[step->out.i].shape;
    const int64_t *stride = ctx->plan.layout[step->out.i].stride;
    int lane = -1;
    for (int k = 0; k < shape->rank; k++)
        if (shape->d[k] > 1 && (lane < 0 || stride[k] < stride[lane])) lane = k;
    if (lane < 0) return false;
    bool scattered = stride[lane] > 1;
    for (int v = 0; v < step->nval && !scattered; v++) {
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, step->val[v])->body);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++)
            scattered |= ein__read_step(ctx, ein__ex_get(ctx, reads[i]), (uint32_t)lane) > 1;
    }
    return scattered;
}

// Whether the step's kernel reads what is made at load, which can lie in any order for nothing.
static bool ein__reads_made_weight(ein_ctx *ctx, const ein__step *step) {
    for (int v = 0; v < step->nval; v++) {
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, step->val[v])->body);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            const ein__value *w = &ctx->value[ein__ex_get(ctx, reads[i])->val];
            if (w->weight_only && w->kind == EIN__V_SCOPE && w->shape.rank > 1) return true;
        }
    }
    return false;
}

// A kernel's cost.
static int64_t ein__step_cost(ein_ctx *ctx, const ein__step *step) {
    ein__attention a;
    if (step->kind != EIN__K_ATTENTION) return ein__cost_step(ctx, step);
    bool found = ein__attention_of(ctx, step, &a);
    return found ? ein__cost_attention(ctx, &a, ein__bytes_of(ctx, step->out)) : EIN__PS_LIMIT;
}

// What layouts are chosen by. A step that has nothing to gain from another layout is closed.
static ein__price ein__price_under_layouts(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    ein__step step;
    if (ctx->value[v.i].weight_only || ein__norm_of(ctx, v, true)) return (ein__price){0, false};
    if (ein__step_of(ctx, sel, v, &step))
        return (ein__price){step.ps, step.kind == EIN__K_GEMM && step.gemm.batch > 1};
    bool fell = sel->kind[v.i] != step.kind, copy = ein__copy_of(ctx, v) != NULL;
    if (step.kind == EIN__K_ATTENTION) return (ein__price){ein__step_cost(ctx, &step), false};
    const ein__kernel k = ein__step_kernel(ctx, &step);
    int64_t ps = ein__cost_kernel(ctx, &k);
    if (step.kind == EIN__K_PRODUCT && ein__is_call(sel->kind[v.i]))
        ps = ein__beside_call(ps, ein__kernel_row(ctx, &k) != NULL);
    bool made = step.kind == EIN__K_REDUCE && ein__reads_made_weight(ctx, &step);
    return (ein__price){ps, fell || copy || made || ein__is_scattered(ctx, &step)};
}

// The key of a kernel's row, where there may be one; and what the row says.
static void ein__find_kernel_row(ein_ctx *ctx, ein__step *step) {
    char key[EIN__KEY_LENGTH];
    ein__attention a;
    if (!ctx->kernel_rows && !ctx->desc.probe) return;
    if (step->kind != EIN__K_ATTENTION) {
        ein__kernel k = ein__step_kernel(ctx, step);
        ein__put_kernel_key(key, step->kind, ein__kernel_id(ctx, &k));
    } else {
        if (!ein__attention_of(ctx, step, &a)) return;
        int64_t bytes = ein__bytes_of(ctx, step->out);
        ein__put_kernel_key(key, step->kind, ein__attention_id(ctx, &a, bytes));
    }
    step->key = ein__name(ctx, key);
    const ein__cost_row *row = ein__row_of(ctx, key);
    if (!row) return;
    step->measured = true;
    if (step->kind == EIN__K_PRODUCT) ein__cut_step(ctx, step, row->algorithm);
}

static void ein__make_step(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    ein__step step;
    if (ein__step_of(ctx, sel, v, &step)) {
        const ein__cost_row *row = ein__row_of(ctx, step.key);
        step.measured = row != NULL;
        // It was measured with the most.
        if (row && step.kind == EIN__K_GEMM) step.workspace = ein__most_workspace(ctx);
        // What was measured with 16-byte addresses may not be pinned for others.
        const ein__gemm *g = &step.gemm;
        bool fits = ein__is_matmul(g) || g->align >= 16;
        if (step.kind != EIN__K_GEMM || fits) step.algorithm = ein__pinned(row, &step.version);
        if (ein__is_engine(step.algorithm) && !ein__is_aligned_conv(ctx, &step))
            step.algorithm = NULL;
    } else {
        if (step.kind == EIN__K_PRODUCT) ein__cut_step(ctx, &step, NULL);
        if (step.kind == EIN__K_REDUCE || step.kind == EIN__K_PLACE) ein__share_step(ctx, &step);
        if (step.kind == EIN__K_ATTENTION) ein__attention_step(ctx, &step);
        step.ps = ein__step_cost(ctx, &step);
        ein__find_kernel_row(ctx, &step);
    }
    if (ctx->value[v.i].weight_only &&
        ctx->plan.buffer[ctx->plan.layout[v.i].buffer].kind == EIN__B_CONST) {
        arrput(ctx->plan.init, step);
    } else {
        arrput(ctx->plan.step, step);
    }
}
