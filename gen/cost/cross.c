// Reductions whose terms are functions of one element of a row and one of a column, but no
// products: pairwise distances, max-plus products, additive attention. Tiles load both and keep
// them in registers as for a product (templates/tiles_cross.cu); a loop over the terms of each
// result would load both again every time. Several reductions with the same results and the same
// iterators of terms may be one tile's, which computes what their terms have in common once
// (joint.c).

enum {
    EIN__CROSS_NODES = 64,  // looked at in a term
    EIN__CROSS_EACH = 256   // instructions of one
};

// What is looked for: the iterators that rows and columns may use, and what was found.
typedef struct ein__crossing {
    ein_ctx *ctx;
    uint32_t results, side[2];  // all of the result; of those in rows and columns
    ein__ex value[2][EIN__CROSS_VALUES], either[EIN__CROSS_VALUES], seen[EIN__CROSS_NODES];
    int values[2], eithers, nseen, visits;
    int64_t each;
} ein__crossing;

static bool ein__cross_keep(ein__ex *list, int *n, ein__ex ex) {
    for (int i = 0; i < *n; i++)
        if (list[i].i == ex.i) return true;
    if (*n == EIN__CROSS_VALUES) return false;
    list[(*n)++] = ex;
    return true;
}

// Instructions of one operation; a sign costs nothing, and a maximum as much as two others (compute
// capability 8.0 to 9.0).
static int64_t ein__cross_each(ein_ctx *ctx, const ein__expr *e) {
    bool unary = e->op == EIN__X_UNARY, binary = e->op == EIN__X_BINARY;
    if (unary && (e->fn == EIN__ABS || e->fn == EIN__NEG)) return 0;
    if (unary && e->fn == EIN__RELU) return 2;
    if (binary && (e->fn == EIN__MAX || e->fn == EIN__MIN)) return 2;
    if (e->op == EIN__X_SELECT) return 2;
    return ein__function_operations(ctx, e, false);
}

// Takes a term apart into what rows and what columns have. False: it is no such function.
static bool ein__cross_walk(ein__crossing *z, ein__ex ex) {
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    if (e->op == EIN__X_CONST) return true;
    if (++z->visits > EIN__CROSS_NODES) return false;
    uint32_t uses = ein__ex_uses(z->ctx, ex), of = uses & z->results;
    bool in[2] = {!(of & ~z->side[0]), !(of & ~z->side[1])};
    if (in[0] || in[1]) {
        if (!e->reads) return false;
        if (in[0] && in[1]) return ein__cross_keep(z->either, &z->eithers, ex);
        return ein__cross_keep(z->value[in[1]], &z->values[in[1]], ex);
    }
    if (e->op != EIN__X_UNARY && e->op != EIN__X_BINARY && e->op != EIN__X_SELECT) return false;
    for (int i = 0; i < z->nseen; i++)
        if (z->seen[i].i == ex.i) return true;
    z->seen[z->nseen++] = ex;
    z->each += ein__cross_each(z->ctx, e);
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__cross_walk(z, e->kid[i])) return false;
    return true;
}

// The reads of `n` reductions; an stb_ds array.
static ein__ex *ein__cross_reads(ein_ctx *ctx, const ein__scope *const *s, int n) {
    ein__ex *all = NULL;
    for (int k = 0; k < n; k++) {
        const ein__ex *reads = ein__ex_reads(ctx, s[k]->body);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) arrput(all, reads[i]);
    }
    return all;
}

// The iterators of the result that the reads of rows and of columns use: those of the read with
// most elements, and those of all others that do not make do with these.
static bool ein__cross_sides(ein_ctx *ctx, const ein__scope *const *all, int nall,
                             ein__crossing *z) {
    const ein__scope *s = all[0];
    ein__ex *reads = ein__cross_reads(ctx, all, nall);
    int64_t most = -1;
    bool floats = true;
    for (uint32_t i = 0; i < s->nt; i++) z->results |= s->n[i] > 1 ? 1u << i : 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        uint32_t of = ein__read_slots(ctx, e) & z->results;
        int64_t n = 1;
        floats &= ctx->value[e->val].dtype <= EIN__BF16;
        for (uint32_t k = 0; k < s->nt; k++) n = of >> k & 1 ? ein__times(n, s->n[k]) : n;
        if (n <= most) continue;
        most = n;
        z->side[0] = of;
    }
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t of = ein__read_slots(ctx, ein__ex_get(ctx, reads[i])) & z->results;
        if (of & ~z->side[0]) z->side[1] |= of;
    }
    arrfree(reads);
    uint32_t both = z->side[0] & z->side[1];
    return floats && (z->side[0] | z->side[1]) == z->results && (z->side[0] & ~both) &&
           (z->side[1] & ~both);
}

// The read of `ex` that has most elements.
static const ein__expr *ein__cross_read(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *most = NULL;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (!most ||
            ein__elements(&ctx->value[e->val].shape) > ein__elements(&ctx->value[most->val].shape))
            most = e;
    }
    return most;
}

// Instructions of what a load computes beside a read that it would have had anyway: arithmetic, the
// other reads' addresses and guards.
static int64_t ein__computed_operations(ein_ctx *ctx, ein__ex ex) {
    int64_t each = ein__ex_operations(ctx, ex);
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        bool again = false;
        for (ptrdiff_t j = 0; j < i; j++) again |= reads[j].i == reads[i].i;
        if (again) continue;
        each += i ? EIN__READ_OPERATIONS : 0;
        for (uint32_t k = 0; k < e->nix; k++)
            each += ein__is_guarded(ctx, e, k) ? EIN__GUARD_OPERATIONS : 0;
    }
    return each;
}

static void ein__cross_loads(ein_ctx *ctx, const ein__scope *s, const int64_t *out, ein__tiled *p) {
    bool alone;
    for (int k = 0; k < 2; k++) p->read[k] = ein__cross_read(ctx, p->value[k][0]);
    int last = ein__product_last(ctx, s, p, &alone);
    p->computed = p->values[0] + p->values[1] > 2;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < p->values[k]; i++) {
            const ein__expr *read = ein__cross_read(ctx, p->value[k][i]);
            ein__factor_load *l = i ? &p->second[k] : &p->load[k];
            *l = ein__factor_load_of(ctx, s, read, p->group[k], k ? out : NULL, last, alone,
                                     EIN__MATH_FP32);
            if (ein__ex_of(ctx, read).i == p->value[k][i].i) continue;
            l->each = ein__computed_operations(ctx, p->value[k][i]);
            p->computed = true;
        }
}

// The terms of `n` reductions over the same iterators. False: they are no such functions, or of
// others.
static bool ein__cross_terms(ein_ctx *ctx, const ein__scope *const *all, int n, ein__crossing *z,
                             ein__tiled *p) {
    const ein__scope *s = all[0];
    if (s->reduce == EIN__R_NONE || !s->ns || !ein__cross_sides(ctx, all, n, z)) return false;
    for (int k = 0; k < n; k++) {
        const ein__scope *t = all[k];
        bool same = t->reduce == s->reduce && t->nt == s->nt && t->ns == s->ns;
        for (uint32_t i = 0; i < s->nt + s->ns && same; i++) same = t->n[i] == s->n[i];
        if (!same || !ein__cross_walk(z, t->body)) return false;
        p->term[p->crosses++] = t->body;
    }
    return z->nseen && z->each <= EIN__CROSS_EACH;
}

// Reductions `all` as a tile that computes such terms, their results' strides `out`. False: their
// terms are other ones.
EIN__FN bool ein__match_cross(ein_ctx *ctx, const ein__scope *const *all, int n, const int64_t *out,
                              ein__tiled *p) {
    const ein__scope *s = all[0];
    ein__crossing z = {.ctx = ctx};
    *p = (ein__tiled){.extent = {1, 1, 1}, .depth = 1, .alpha = 1, .held = EIN__NDTYPE};
    if (!ein__cross_terms(ctx, all, n, &z, p)) return false;
    int lane = ein__innermost_of(s, out);
    p->scattered = (z.side[0] & z.side[1]) >> lane & 1;
    int col = !p->scattered && (z.side[0] >> lane & 1) ? 0 : 1;
    for (int k = 0; k < 2; k++) {
        int side = k ? col : 1 - col;
        p->values[k] = z.values[side];
        memcpy(p->value[k], z.value[side], sizeof p->value[k]);
    }
    for (int i = 0; i < z.eithers; i++) {
        int k = p->values[0] < p->values[1] ? 0 : 1;
        if (!ein__cross_keep(p->value[k], &p->values[k], z.either[i])) return false;
    }
    if (!p->values[0] || !p->values[1]) return false;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool column = z.side[col] >> i & 1, row = z.side[1 - col] >> i & 1;
        int group = row == column ? 2 : column;
        int64_t *of = i < s->nt ? &p->extent[group] : &p->depth;
        if (i < s->nt) p->group[group] |= 1u << i;
        *of = ein__times(*of, s->n[i]);
    }
    bool most = s->reduce == EIN__R_MAX || s->reduce == EIN__R_MIN;
    p->term_each = ein__most(z.each, 1) + n * (most ? 2 : 1);
    p->added = s->reduce == EIN__R_SUM;
    ein__cross_loads(ctx, s, out, p);
    return p->depth <= EIN__PRODUCT_DEPTH;
}
