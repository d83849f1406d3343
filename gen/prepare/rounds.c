// Rule `rounds`: products of one weight with several slices of one tensor, as an unrolled
// recurrence has them, become one product over all these slices, v_t[i,j] = sum(k) x[t,i,k] w[j,k]
// is V[t,i,j] with V[s,i,j] = sum(k) x[s,i,k] w[j,k]: the weight is read once, not once a slice.

// Such a product: its factors, which of them is x, and the dimension of x in which it has one place
// of several.
typedef struct ein__round {
    const ein__expr *read[2];
    int x;
    uint32_t dim;
    int64_t place;
    double alpha;
} ein__round;

static bool ein__is_round(ein_ctx *ctx, ein__val v, ein__round *r) {
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || ctx->value[v.i].weight_only || ein__is_kept(ctx, v) ||
        !ein__two_factors(ctx, s, r->read, &r->alpha) || !ein__is_plain_product(ctx, s))
        return false;
    r->x = ctx->value[r->read[0]->val].weight_only;
    const ein__expr *x = r->read[r->x], *w = r->read[1 - r->x];
    if (ctx->value[x->val].weight_only || !ctx->value[w->val].weight_only) return false;
    for (r->dim = 0; r->dim < x->nix; r->dim++) {
        const ein__index *f = ein__ix_get(ctx, x->ix[r->dim]);
        int64_t n = ctx->value[x->val].shape.d[r->dim];
        r->place = f->c;
        if (f->n == 0 && f->q == 1 && n > 1 && f->c >= 0 && f->c < n) return true;
    }
    return false;
}

// Whether two products are the same but for the place.
static bool ein__is_other_round(ein_ctx *ctx, const ein__round *a, ein__val u, ein__val v,
                                ein__round *b) {
    const ein__scope *s = ein__scope_of(ctx, u), *t = ein__scope_of(ctx, v);
    if (!t || s->nt != t->nt || s->ns != t->ns ||
        memcmp(s->n, t->n, (s->nt + s->ns) * sizeof *s->n) || !ein__is_round(ctx, v, b))
        return false;
    const ein__expr *x = a->read[a->x], *y = b->read[b->x];
    if (x->val != y->val || a->dim != b->dim || a->alpha != b->alpha || x->bits != y->bits)
        return false;
    for (uint32_t k = 0; k < x->nix; k++)
        if (k != a->dim && x->ix[k].i != y->ix[k].i) return false;
    return ein__ex_of(ctx, a->read[1 - a->x]).i == ein__ex_of(ctx, b->read[1 - b->x]).i;
}

// The places lo..lo+n-1 that products like `v` have; false: too few of these for one product.
static bool ein__round_places(ein__pass *z, ein__val v, const ein__round *r, int64_t *lo,
                              int64_t *n) {
    int64_t hi = r->place, count = 0;
    *lo = r->place;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__round other;
        if (!ein__is_other_round(z->ctx, r, v, z->order[i], &other)) continue;
        if (other.place < *lo) *lo = other.place;
        if (other.place > hi) hi = other.place;
        count++;
    }
    *n = hi - *lo + 1;
    return count > 1 && *n <= 2 * count;
}

// The product over all places, made once.
static ein__val ein__all_rounds(ein__pass *z, ein__val v, const ein__round *r, int64_t lo,
                                int64_t n) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__scope t = {.reduce = s->reduce, .nt = s->nt + 1, .ns = s->ns, .n = {n}};
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK];
    ein__ex factor[2];
    if (s->nt + 1 > EIN__MAX_RANK || s->nt + s->ns + 1 > EIN__MAX_ITERS) return (ein__val){0};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        t.n[i + 1] = s->n[i];
        map[i] = ein__ix_iter(ctx, i + 1, s->n[i]);
    }
    for (int k = 0; k < 2; k++) {
        const ein__expr *e = r->read[k];
        double pad;
        memcpy(&pad, &e->bits, sizeof pad);
        for (uint32_t d = 0; d < e->nix; d++)
            at[d] = ein__ix_subst(ctx, e->ix[d], map, (int)(s->nt + s->ns));
        if (k == r->x) at[r->dim] = ein__ix_addc(ctx, ein__ix_iter(ctx, 0, n), lo);
        factor[k] = ein__ex_read(ctx, (ein__val){e->val}, pad, at, (int)e->nix);
    }
    t.body = ein__ex_binary(ctx, EIN__MUL, factor[0], factor[1]);
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, r->alpha), t.body);
    return ein__pass_value(z, ein__namef(ctx, "%s.rounds", old.name), v, old.dtype, &t);
}

static ein__val ein__rebuild_rounds(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__round r, now;
    int64_t lo, n;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    ein__val is = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!is.i || !ein__is_round(ctx, v, &r) || !ein__round_places(z, v, &r, &lo, &n) ||
        !ein__is_round(ctx, is, &now))
        return is;
    const ein__value old = ctx->value[is.i];
    ein__val all = ein__all_rounds(z, is, &now, lo, n);
    ein__ix at[EIN__MAX_RANK] = {ein__ix_const(ctx, now.place - lo)};
    if (!all.i) return ctx->status ? all : is;
    for (int k = 0; k < old.shape.rank; k++)
        at[k + 1] = ein__ix_iter(ctx, (uint32_t)k, old.shape.d[k]);
    z->self = is;
    return ein__new_map(z, old.name, old.dtype, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, all, 0, at, old.shape.rank + 1));
}
