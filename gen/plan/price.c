// Prices of steps, which layouts are chosen by. Equal layers have equal steps, and so have most of
// the plans of a model: a price is remembered by all that decides it.

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

// What layouts are chosen by. A step that has nothing to gain from another layout is closed.
static ein__price ein__price_anew(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    ein__step step;
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

// ------------------------------------------------------------------------------------ memory

// What a price depends on of what a step reads as `v`, beside its definition: which of the operands
// it is, and where it lies.
static uint64_t ein__operand_key(ein_ctx *ctx, ein__val v, uint64_t h) {
    const ein__value *p = &ctx->value[v.i];
    const ein__layout *l = &ctx->plan.layout[v.i];
    h = ein__mix(ein__mix(h, p->kind), (uint64_t)p->weight_only);
    h = ein__mix(ein__mix(h, p->dtype), (uint64_t)l->offset);
    for (int k = 0; k < p->shape.rank; k++) {
        h = ein__mix(h, (uint64_t)p->shape.d[k]);
        if (p->shape.d[k] > 1) h = ein__mix(h, (uint64_t)l->stride[k]);
    }
    return ein__is_table(ctx, v) ? ein__mix(h, ein__scope_key(ctx, p->scope)) : h;
}

typedef struct ein__met {
    uint32_t v[EIN__KEY_READS];
    int n;
} ein__met;

// Which of the values met it is; -1: there are too many.
static int ein__meet(ein__met *z, uint32_t v) {
    for (int i = 0; i < z->n; i++)
        if (z->v[i] == v) return i;
    if (z->n == EIN__KEY_READS) return -1;
    z->v[z->n] = v;
    return z->n++;
}

// A hash of all that decides the price of the step that computes `v`; 0: nobody knows that.
static uint64_t ein__price_key(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    ein__met met = {.n = 0};
    uint64_t h = ein__mix((uint64_t)ctx->desc.math * 2 + ctx->channels_last, sel->kind[v.i]);
    if (sel->kind[v.i] == EIN__K_PLACE || ein__norm_of(ctx, v, false) || ctx->desc.probe) return 0;
    h = ein__mix(h, (uint64_t)ctx->typed * 2 + ctx->strict);
    for (ein__val of = sel->first[v.i]; of.i; of = sel->next[of.i]) {
        const ein__value *p = &ctx->value[of.i];
        if (p->kind != EIN__V_SCOPE || ein__meet(&met, of.i) < 0) return 0;
        h = ein__mix(ein__mix(h, ein__scope_key(ctx, p->scope)), (uint64_t)of.i == v.i);
        h = ein__mix(ein__mix(h, p->dtype), (uint64_t)ein__keeps_fp32(ctx, of));
    }
    h = ein__operand_key(ctx, v, h);
    for (ein__val of = sel->first[v.i]; of.i; of = sel->next[of.i]) {
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, of)->body);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            ein__val p = {ein__ex_get(ctx, reads[i])->val};
            int before = met.n, at = ein__meet(&met, p.i);
            if (at < 0) return 0;
            h = ein__mix(h, (uint64_t)at);
            if (at == before) h = ein__operand_key(ctx, p, h);
        }
    }
    return h;
}

static ein__price ein__price_under_layouts(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    if (ctx->value[v.i].weight_only || ein__norm_of(ctx, v, true)) return (ein__price){0, false};
    uint64_t key = ein__price_key(ctx, sel, v);
    uint32_t known = key ? ein__interned(&ctx->priced, &key, sizeof key) : 0;
    if (known) return ctx->price[known];
    ein__price price = ein__price_anew(ctx, sel, v);
    if (!key || ctx->status) return price;
    known = ein__intern(&ctx->arena, &ctx->priced, &key, sizeof key);
    arrsetlen(ctx->price, known + 1);
    ctx->price[known] = price;
    return price;
}
