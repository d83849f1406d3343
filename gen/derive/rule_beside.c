// Products of a concatenation as sums of products, where one of its pieces repeats elements: p[c,t]
// = x[c,t / d] for c < n, y[c - n,t] from there on, gives
//
//     sum(c,r) p[c, h + r] w[c,r] = sum(c in 0:n, r) x[c, (h + r) / d] w[c,r]
//                                 + sum(c,r) y[c, h + r] w[n + c,r],
//
// a sum of two products of which the first is computed by phases (rule_repeats.c): decoders
// upsample features and concatenate others to them. It is the law of rule `linear` for one product.

typedef struct ein__sideways {
    ein__pass *pass;
    ein_ctx *ctx;
    ein__val v, p;
    ein__scope s, m;            // of the product and of the map
    const ein__expr *read, *w;  // the product's factors, the map and the weights
    double alpha;
} ein__sideways;

// The product's slot that is dimension `k` of the map, and all of it, alone in the map's
// subscripts; -1: there is none.
static int ein__beside_slot(const ein__sideways *z, uint32_t k) {
    uint32_t slot, others = 0;
    for (uint32_t i = 0; i < z->read->nix; i++)
        if (i != k) others |= ein__ix_uses(z->ctx, z->read->ix[i]);
    bool is = ein__ix_is_iter(z->ctx, z->read->ix[k], &slot) && slot >= z->s.nt &&
              z->s.n[slot] == z->m.n[k] && !(others >> slot & 1);
    return is ? (int)slot : -1;
}

// The part of the product that term `ex` of the map has: over what is summed over and where the
// term may be other than 0.
static ein__val ein__beside_part(ein__sideways *z, const ein__addend *term, int number) {
    ein_ctx *ctx = z->ctx;
    ein__nonzero box;
    ein__scope t = z->s;
    ein__ix from[EIN__MAX_RANK], at[EIN__MAX_RANK], map[EIN__MAX_ITERS];
    int64_t n[EIN__MAX_RANK];
    for (uint32_t k = 0; k < z->m.nt; k++) {
        box.lo[k] = 0;
        box.hi[k] = z->m.n[k] - 1;
    }
    ein__shrink_to(ctx, term->ex, 0, &box);
    for (uint32_t i = 0; i < t.nt + t.ns; i++) map[i] = ein__ix_iter(ctx, i, t.n[i]);
    for (uint32_t k = 0; k < z->m.nt; k++) {
        int slot = ein__beside_slot(z, k);
        int64_t lo = slot < 0 ? 0 : box.lo[k];
        n[k] = slot < 0 ? z->m.n[k] : box.hi[k] - lo + 1;
        if (n[k] < 1) return (ein__val){0};
        from[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, k, n[k]), lo);
        at[k] = z->read->ix[k];
        if (slot < 0) continue;
        t.n[slot] = n[k];
        at[k] = ein__ix_iter(ctx, (uint32_t)slot, n[k]);
        map[slot] = ein__ix_addc(ctx, at[k], lo);
    }
    ein__ex body = ein__ex_subst(ctx, term->ex, from, (int)z->m.nt);
    z->pass->self = z->p;
    const char *name = ein__namef(ctx, "%s.part%d", ctx->value[z->p.i].name, number);
    ein__val p = body.i ? ein__new_map(z->pass, name, ctx->value[z->p.i].dtype, (int)z->m.nt, n,
                                       ein__add_scaled(ctx, (ein__ex){0}, term->scale, body))
                        : (ein__val){0};
    if (!p.i) return p;
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, p, 0, at, (int)z->m.nt),
                            ein__ex_subst(ctx, ein__ex_of(ctx, z->w), map, (int)(t.nt + t.ns)));
    t.body = ein__add_scaled(ctx, (ein__ex){0}, z->alpha, t.body);
    if (!t.body.i) return (ein__val){0};
    return ein__rule_value(z->pass, z->v, ein__namef(ctx, "part%d", number), &t, EIN__RULE_LINEAR);
}

// Terms of the product that is left of `v` when what repeats is multiplied once, in percent of
// `all`.
static int64_t ein__beside_share(ein_ctx *ctx, ein__val v, int64_t all) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__repeating r = {.s = s};
    int64_t share = ein__muldiv(ein__extent_of(s, ~0u), 100, all);
    if (!ein__weighs(ctx, s, &r.w, &r.p, &r.alpha) || !ein__is_map(ctx, (ein__val){r.p->val}) ||
        !ein__find_repeats(ctx, &r))
        return share;
    for (uint32_t k = 0; k < r.p->nix; k++) {
        const ein__repeat *d = &r.r[k];
        if (d->d == 1) continue;
        if (d->outer >= 0 && !d->phased) share /= d->phases;
        if (d->sum >= 0) share = share * d->taps / s->n[d->sum];
    }
    return share;
}

// The sum of the products of the map's terms; `*share`: terms of these in percent of `v`'s. None:
// one of them cannot be had.
static ein__ex ein__beside_sum(ein__sideways *z, const ein__addition *sum, int64_t *share) {
    ein_ctx *ctx = z->ctx;
    ein__ix at[EIN__MAX_RANK];
    ein__ex body = {0};
    *share = 0;
    for (uint32_t k = 0; k < z->s.nt; k++) at[k] = ein__ix_iter(ctx, k, z->s.n[k]);
    for (int k = 0; k < sum->n; k++) {
        ein__val part = ein__beside_part(z, &sum->t[k], k);
        if (!part.i) return (ein__ex){0};
        *share += ein__beside_share(ctx, part, ein__extent_of(&z->s, ~0u));
        body = ein__add_scaled(ctx, body, 1, ein__ex_read(ctx, part, 0, at, (int)z->s.nt));
    }
    return body;
}

// Product `v` of a map whose terms are side by side as a sum of products, or itself.
static ein__val ein__rule_beside(ein__pass *pass, ein__val v) {
    ein_ctx *ctx = pass->ctx;
    const ein__value old = ctx->value[v.i];
    ein__sideways z = {.pass = pass, .ctx = ctx, .v = v};
    ein__addition sum = {.n = 0};
    int64_t share;
    if (old.weight_only || old.dtype != EIN__F32 ||
        !ein__weighs(ctx, ein__scope_of(ctx, v), &z.w, &z.read, &z.alpha))
        return v;
    z.p = (ein__val){z.read->val};
    if (!ein__is_map(ctx, z.p) || ctx->value[z.p.i].dtype != EIN__F32 || pass->uses[z.p.i] != 1)
        return v;
    z.s = *ein__scope_of(ctx, v);
    z.m = *ein__scope_of(ctx, z.p);
    if (!ein__list_addends(ctx, z.m.body, 1, &sum) || sum.n < 2) return v;
    ein__attempt attempt = ein__try(ctx);
    ein__ex body = ein__beside_sum(&z, &sum, &share);
    pass->self = v;
    ein__val now = body.i && share <= EIN__LINEAR_GAIN
                       ? ein__new_map(pass, old.name, EIN__F32, old.shape.rank, old.shape.d, body)
                       : (ein__val){0};
    return ein__tried(ctx, attempt) && now.i ? now : v;
}

static ein__val ein__rebuild_beside(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    return now.i ? ein__rule_beside(z, now) : now;
}

// Products of parts that lie side by side in the program under `root`, where some repeat;
// `*changed` when there are any.
EIN__FN bool ein__part_beside(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    return !ein__rule_on(ctx, EIN__RULE_LINEAR) || !ein__rule_on(ctx, EIN__RULE_REPEATS) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_beside, NULL, changed);
}

// Products of the program under `root` with fewer terms by what is around them.
EIN__FN bool ein__multiply_less(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    bool moved, parted, shared;
    bool ok = ein__move_linear(ctx, root, nroot, &moved) &&
              ein__part_beside(ctx, root, nroot, &parted) &&
              ein__share_repeats(ctx, root, nroot, &shared);
    *changed = ok && (moved || parted || shared);
    return ok;
}
