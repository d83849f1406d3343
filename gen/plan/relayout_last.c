// Layouts of tensors that are made at load, chosen after all others: they cost nothing at run time,
// so each is laid out as its reader wants it, and readers were priced as if it had been. Filters of
// windowed reductions with channels last (strip.c) get their channels innermost, as data and result
// have them; factors of products get those dimensions innermost that are innermost in the result.

// How far out of a filter what is read at the iterators `used` lies.
static int64_t ein__filter_place(const ein__strip *w, int lane, uint32_t used) {
    if (used >> lane & 1) return 0;
    if (w->col.k >= 0 && (used >> w->col.k & 1)) return 1;
    return w->row.k >= 0 && (used >> w->row.k & 1) ? 2 : 3;
}

// Lays the filters of the reduction that is stored as `m`.
static void ein__lay_filter(ein__relayout *r, ein__val m, const ein__scope *s) {
    ein_ctx *ctx = r->z->ctx;
    ein__strip w;
    int lane;
    if (!ein__match_last(ctx, s, ctx->plan.layout[m.i].stride, &w, &lane)) return;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        ein__val f = {e->val}, *touched = NULL;
        int64_t key[EIN__MAX_RANK];
        int order[EIN__MAX_RANK];
        if (reads[i].i == w.image.i || !ctx->value[f.i].weight_only || !ein__is_free(r, f) ||
            ein__read_step(ctx, e, (uint32_t)lane) <= 1)
            continue;
        for (uint32_t k = 0; k < e->nix; k++)
            key[k] = ein__filter_place(&w, lane, ein__ix_uses(ctx, e->ix[k]));
        ein__sorted_order(key, (int)e->nix, order);
        ein__seat seat = ein__seat_in(order);
        (void)ein__change(r, f, &seat, &touched);
        arrfree(touched);
    }
}

// Value `v` if it is a reduction of a step of its own, which may have windows by channels, and as
// what it is stored; NULL: it is not.
static const ein__scope *ein__window_of(const ein__placer *z, ein__val v, ein__val *m) {
    const ein__scope *s = ein__scope_of(z->ctx, v);
    *m = z->sel->home[v.i];
    bool reduces = s && s->reduce != EIN__R_NONE && z->sel->kind[m->i] == EIN__K_REDUCE;
    return reduces && ein__is_stored(z, *m) ? s : NULL;
}

// Whether some filter may have to be laid.
static bool ein__has_windows(const ein__placer *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->sel->order); i++) {
        ein__val m;
        ein__strip w;
        int lane;
        const ein__scope *s = ein__window_of(z, z->sel->order[i], &m);
        if (s && ein__match_last(ctx, s, ctx->plan.layout[m.i].stride, &w, &lane)) return true;
    }
    return false;
}

// Lays the factors of the product that is stored as `m`, of which neighbours are neither lines as
// the result has them nor terms.
static void ein__lay_factors(ein__relayout *r, ein__val m, const ein__scope *s) {
    ein_ctx *ctx = r->z->ctx;
    const int64_t *out = ctx->plan.layout[m.i].stride;
    ein__tiled p;
    if (!ein__match_tiles(ctx, s, out, &p)) return;
    for (int side = 0; side < 2; side++) {
        const ein__expr *e = p.read[side];
        ein__val f = {e->val}, *touched = NULL;
        int64_t key[EIN__MAX_RANK], step[EIN__MAX_ITERS];
        int order[EIN__MAX_RANK], lane = -1;
        if (!ctx->value[f.i].weight_only || !ein__is_free(r, f) || arrlen(r->z->reader[f.i]) > 1)
            continue;
        ein__read_steps(ctx, e, s->nt + s->ns, step);
        for (uint32_t t = 0; t < s->nt; t++)
            if ((p.group[side] >> t & 1) && s->n[t] > 1 && (lane < 0 || out[t] < out[lane]))
                lane = (int)t;
        bool together = lane < 0 || step[lane] == 1;
        for (uint32_t t = s->nt; t < s->nt + s->ns; t++)
            together |= step[t] == 1 && s->n[t] >= EIN__PRODUCT_INNER;
        if (together) continue;
        for (uint32_t k = 0; k < e->nix; k++) {
            uint32_t used = ein__ix_uses(ctx, e->ix[k]);
            key[k] = used >> s->nt ? EIN__MAX_ELEMENTS : 0;
            for (uint32_t t = 0; t < s->nt; t++)
                if (used >> t & 1) key[k] = ein__most(key[k], out[t]);
        }
        ein__sorted_order(key, (int)e->nix, order);
        ein__seat seat = ein__seat_in(order);
        ptrdiff_t mark = arrlen(r->log);
        if (ein__change(r, f, &seat, &touched) > 0) ein__undo(r, mark);
        arrfree(touched);
    }
}

// The contraction that a kernel of our own computes with what it stores as `v`.
static ein__val ein__own_product(const ein__relayout *r, ein__val v) {
    const ein__selector *sel = r->z->sel;
    const ein__expr *read[2];
    double alpha;
    for (ein__val of = sel->first[v.i]; of.i; of = sel->next[of.i]) {
        const ein__scope *s = ein__scope_of(r->z->ctx, of);
        if (s && ein__two_factors(r->z->ctx, s, read, &alpha)) return of;
    }
    return (ein__val){0};
}

// The product that a kernel of ours stores as `v`; NULL: there is none.
static const ein__scope *ein__tiled_of(const ein__relayout *r, ein__val v) {
    const ein__placer *z = r->z;
    if (!ein__is_stored(z, v) || z->sel->kind[v.i] != EIN__K_PRODUCT) return NULL;
    ein__val product = ein__own_product(r, v);
    return product.i ? ein__scope_of(z->ctx, product) : NULL;
}

static void ein__lay_filters(ein__relayout *r) {
    for (ptrdiff_t i = 0; i < arrlen(r->z->sel->order); i++) {
        ein__val m;
        const ein__scope *s = ein__window_of(r->z, r->z->sel->order[i], &m);
        if (s) ein__lay_filter(r, m, s);
        s = ein__tiled_of(r, r->z->sel->order[i]);
        if (s) ein__lay_factors(r, r->z->sel->order[i], s);
    }
}
