// A program: the values that its outputs need, in an order where operands come first, and who reads
// what.

// By value of a program: those that read it, in the program's order: all[first[v]] up to
// all[first[v + 1]]. stb_ds arrays.
typedef struct ein__readers {
    ein__val *all;
    int *first;
} ein__readers;

// What `v` reads, ordered by where in the model the values come from, so that the program keeps the
// model's order; in `*reads`.
static void ein__reads_by_node(const ein_ctx *ctx, ein__val v, ein__ex **reads) {
    const ein__value *p = &ctx->value[v.i];
    arrsetlen(*reads, 0);
    if (p->kind != EIN__V_SCOPE) return;
    const ein__ex *all = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
    for (ptrdiff_t i = 0; i < arrlen(all); i++) {
        int node = ctx->value[ein__ex_get(ctx, all[i])->val].node;
        ptrdiff_t at = i;
        arrput(*reads, all[i]);
        for (; at && ctx->value[ein__ex_get(ctx, (*reads)[at - 1])->val].node > node; at--)
            (*reads)[at] = (*reads)[at - 1];
        (*reads)[at] = all[i];
    }
}

static void ein__live_visit(ein_ctx *ctx, ein__val v, unsigned char *seen, ein__val **order) {
    // Depth is a model's longest chain; an explicit stack keeps long chains off the C stack.
    ein__val *stack = NULL;
    ein__ex *reads = NULL;
    arrput(stack, v);
    while (arrlen(stack)) {
        ein__val top = arrlast(stack);
        if (seen[top.i] == 2) {
            (void)arrpop(stack);
            continue;
        }
        arrsetlen(reads, 0);
        if (seen[top.i] == 0) ein__reads_by_node(ctx, top, &reads);
        if (!arrlen(reads)) {
            seen[top.i] = 2;
            arrput(*order, top);
            (void)arrpop(stack);
        } else {
            seen[top.i] = 1;
            for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
                ein__val r = {ein__ex_get(ctx, reads[i])->val};
                if (!seen[r.i]) arrput(stack, r);
            }
        }
    }
    arrfree(reads);
    arrfree(stack);
}

// Values that `root`s need, operands first.
EIN__FN ein__val *ein__live(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *order = NULL;
    unsigned char *seen = EIN_REALLOC(NULL, (size_t)arrlen(ctx->value) + 1);
    if (!seen) EIN_OUT_OF_MEMORY();
    memset(seen, 0, (size_t)arrlen(ctx->value) + 1);
    for (int i = 0; i < nroot; i++)
        if (!seen[root[i].i]) ein__live_visit(ctx, root[i], seen, &order);
    EIN_FREE(seen);
    return order;
}

// How many values read each value; a root has one use more.
EIN__FN int *ein__count_uses(ein_ctx *ctx, const ein__val *order, const ein__val *root, int nroot) {
    int *uses = NULL;
    arrsetlen(uses, arrlen(ctx->value));
    memset(uses, 0, (size_t)arrlen(uses) * sizeof *uses);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        const ein__value *p = &ctx->value[order[i].i];
        if (p->kind != EIN__V_SCOPE) continue;
        const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            bool first = true;
            for (ptrdiff_t j = 0; j < k; j++) first &= ein__ex_get(ctx, reads[j])->val != v;
            uses[v] += first;
        }
    }
    for (int i = 0; i < nroot; i++) uses[root[i].i]++;
    return uses;
}

// Who reads what in the program `order`.
EIN__FN ein__readers ein__find_readers(ein_ctx *ctx, const ein__val *order) {
    ein__readers r = {NULL, NULL};
    int *end = ein__count_uses(ctx, order, NULL, 0), n = 0;
    arrsetlen(r.first, arrlen(end) + 1);
    for (ptrdiff_t i = 0; i < arrlen(end); i++) {
        r.first[i] = n;
        n += end[i];
        end[i] = r.first[i];
    }
    r.first[arrlen(end)] = n;
    arrsetlen(r.all, n);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        const ein__value *p = &ctx->value[order[i].i];
        if (p->kind != EIN__V_SCOPE) continue;
        const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            bool known = end[v] > r.first[v] && r.all[end[v] - 1].i == order[i].i;
            if (!known) r.all[end[v]++] = order[i];
        }
    }
    arrfree(end);
    return r;
}

EIN__FN void ein__readers_free(ein__readers *r) {
    arrfree(r->all);
    arrfree(r->first);
}

// ------------------------------------------------------------------------------------ keys

enum { EIN__DIGEST_NODES = 100000 };  // of a definition as a tree; behind them are ids

// What hashes of structure are made with. Of a program, by id, 0: not known; of one definition, the
// values it reads, which count alone, in the order that they are met.
typedef struct ein__digest {
    ein_ctx *ctx;
    uint64_t *value, *expr;
    uint32_t *met;  // stb_ds arrays
    int nodes;
} ein__digest;

static uint64_t ein__digest_ex(ein__digest *z, ein__ex ex);

static uint64_t ein__digest_ix(ein__digest *z, ein__ix ix) {
    uint64_t h = ein__mix(1, ix.i);
    if (!ein__ix_has_gather(z->ctx, ix)) return h;
    const ein__index *f = ein__ix_get(z->ctx, ix);
    h = ein__mix(ein__mix(2, (uint64_t)f->c), (uint64_t)f->q);
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(z->ctx, f->t[t].atom);
        h = ein__mix(ein__mix(h, (uint64_t)f->t[t].k), a->kind);
        h = ein__mix(ein__mix(h, a->slot), (uint64_t)a->n);
        if (a->kind == EIN__GATHER) h = ein__mix(h, ein__digest_ex(z, (ein__ex){a->ex}));
        else if (a->kind != EIN__ITER) h = ein__mix(h, ein__digest_ix(z, (ein__ix){a->ix}));
    }
    return h;
}

static uint64_t ein__digest_read(ein__digest *z, uint32_t v) {
    if (z->value) return z->value[v];
    ptrdiff_t at = 0;
    while (at < arrlen(z->met) && z->met[at] != v) at++;
    if (at == arrlen(z->met)) arrput(z->met, v);
    return (uint64_t)at;
}

static uint64_t ein__digest_ex(ein__digest *z, ein__ex ex) {
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    if (z->expr && z->expr[ex.i]) return z->expr[ex.i];
    if (!z->expr && ++z->nodes > EIN__DIGEST_NODES) return ex.i;
    uint64_t h = ein__mix(ein__mix(e->op, e->fn), ein__mix(e->negate, (uint64_t)e->n));
    h = ein__mix(ein__mix(h, e->bits), e->op == EIN__X_READ ? ein__digest_read(z, e->val) : 0);
    for (uint32_t k = 0; k < e->nkid; k++) h = ein__mix(h, ein__digest_ex(z, e->kid[k]));
    for (uint32_t k = 0; k < e->nix; k++) h = ein__mix(h, ein__digest_ix(z, e->ix[k]));
    if (z->expr) z->expr[ex.i] = h;
    return h;
}

static uint64_t ein__digest_scope(ein__digest *z, const ein__scope *s) {
    uint64_t h = ein__mix(ein__mix(s->reduce, s->nt), s->ns);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) h = ein__mix(h, (uint64_t)s->n[i]);
    return ein__mix(h, ein__digest_ex(z, s->body));
}

static uint64_t ein__digest_value(ein__digest *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__value *p = &ctx->value[v.i];
    bool kept = (ptrdiff_t)v.i < arrlen(ctx->kept) && ctx->kept[v.i];
    uint64_t h = ein__mix(ein__mix(p->kind, p->dtype), (uint64_t)kept);
    if (p->kind != EIN__V_SCOPE) return ein__mix(h, v.i);
    h = ein__mix(ein__mix(h, (uint64_t)p->tensor), (uint64_t)p->node);
    return ein__mix(h, ein__digest_scope(z, ein__sc_get(ctx, p->scope)));
}

// A hash of the program under `root` up to names: programs of equal definitions, made for the same
// of the model, have equal ones.
EIN__FN uint64_t ein__program_key(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__digest z = {.ctx = ctx};
    ein__val *order = ein__live(ctx, root, nroot);
    uint64_t h = 0;
    arrsetlen(z.value, arrlen(ctx->value));
    arrsetlen(z.expr, arrlen(ctx->exprs.rec));
    memset(z.expr, 0, (size_t)arrlen(z.expr) * sizeof *z.expr);
    for (ptrdiff_t i = 0; i < arrlen(order); i++)
        z.value[order[i].i] = ein__digest_value(&z, order[i]);
    for (int k = 0; k < nroot; k++) h = ein__mix(h, z.value[root[k].i]);
    arrfree(order);
    arrfree(z.value);
    arrfree(z.expr);
    return h;
}

// A hash of definition `sc` up to what it reads.
EIN__FN uint64_t ein__scope_key(ein_ctx *ctx, ein__sc sc) {
    while (arrlen(ctx->scope_key) <= (ptrdiff_t)sc.i) arrput(ctx->scope_key, 0);
    if (ctx->scope_key[sc.i]) return ctx->scope_key[sc.i];
    ein__digest z = {.ctx = ctx};
    ctx->scope_key[sc.i] = ein__digest_scope(&z, ein__sc_get(ctx, sc));
    arrfree(z.met);
    return ctx->scope_key[sc.i];
}
