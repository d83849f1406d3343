// Filters of windowed reductions with channels last (strip.c), once layouts are chosen: their
// channels innermost, as those of the data and of the result. They are re-laid at load, so nothing
// becomes dearer by that, and such reductions are priced as if it had been done.

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

static void ein__lay_filters(ein__relayout *r) {
    for (ptrdiff_t i = 0; i < arrlen(r->z->sel->order); i++) {
        ein__val m;
        const ein__scope *s = ein__window_of(r->z, r->z->sel->order[i], &m);
        if (s) ein__lay_filter(r, m, s);
    }
}
