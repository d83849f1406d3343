// Rule `separate`: windows over several axes of one tensor, of which nothing else is a factor, are
// taken one axis at a time, as of pools and box filters,
//
//   V[i,j] = reduce(r,s) x[E(i,r), F(j,s)] = reduce(r) W[E(i,r), j],  W[p,j] = reduce(s) x[p,
//   F(j,s)]
//
// of R + S terms instead of R * S. Outside of x both sides have its padding, which as many of its
// kind have to reduce to. Taken where both kernels are cheaper than one.

// The padding of `e` where any number of it reduces to itself.
static bool ein__is_neutral(const ein__scope *s, const ein__expr *e) {
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return s->reduce == EIN__R_SUM    ? pad == 0
           : s->reduce == EIN__R_PROD ? pad == 0 || pad == 1
                                      : true;
}

// Whether windows of reduction `s`, whose body is read `e`, can be taken along subscript `k` first:
// they overlap along it, and it has one iterator of the result, which no other subscript has, as
// none has its terms. `*at`: that iterator.
static bool ein__is_separate(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, uint32_t k,
                             uint32_t *at) {
    const ein__index *f = ein__ix_get(ctx, e->ix[k]);
    uint32_t uses = ein__ix_uses(ctx, e->ix[k]), sums = ((1u << s->ns) - 1) << s->nt, others = 0;
    if (f->q != 1 || !ein__ix_affine(ctx, e->ix[k])) return false;
    for (uint32_t d = 0; d < e->nix; d++)
        if (d != k) others |= ein__ix_uses(ctx, e->ix[d]);
    uint32_t along = uses & ~sums;
    if ((uses & others) || !(uses & sums) || !(sums & others) || !along || (along & (along - 1)))
        return false;
    for (*at = 0; !(along >> *at & 1);) ++*at;
    int64_t step = ein__ix_coef(ctx, e->ix[k], *at), reach = f->hi - f->lo + 1;
    step = step < 0 ? -step : step;
    return reach - step * (s->n[*at] - 1) > step;
}

// W along subscript `k`.
static ein__scope ein__separate_first(ein_ctx *ctx, const ein__scope *s, uint32_t k, uint32_t at) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    const ein__shape *shape = &ctx->value[e->val].shape;
    ein__scope t = {.reduce = s->reduce, .nt = e->nix};
    ein__ix map[EIN__MAX_ITERS], ix[EIN__MAX_RANK];
    uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
    for (uint32_t d = 0; d < e->nix; d++) {
        t.n[d] = d == k ? s->n[at] : shape->d[d];
        ix[d] = ein__ix_iter(ctx, d, t.n[d]);
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    map[at] = ix[k];
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(uses >> i & 1) || t.nt + t.ns == EIN__MAX_ITERS) continue;
        t.n[t.nt + t.ns] = s->n[i];
        map[i] = ein__ix_iter(ctx, t.nt + t.ns++, s->n[i]);
    }
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    ix[k] = ein__ix_subst(ctx, e->ix[k], map, (int)(s->nt + s->ns));
    t.body = ein__ex_read(ctx, (ein__val){e->val}, pad, ix, (int)e->nix);
    return t;
}

// V of W, a value like what is read.
static ein__scope ein__separate_rest(ein_ctx *ctx, const ein__scope *s, uint32_t k, uint32_t at,
                                     ein__val w) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    ein__scope t = {.reduce = s->reduce, .nt = s->nt};
    ein__ix map[EIN__MAX_ITERS], ix[EIN__MAX_RANK];
    uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool sum = i >= s->nt;
        uint32_t to = sum ? t.nt + t.ns : i;
        if (sum && (uses >> i & 1)) continue;
        t.n[to] = s->n[i];
        map[i] = ein__ix_iter(ctx, to, s->n[i]);
        t.ns += sum;
    }
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    for (uint32_t d = 0; d < e->nix; d++)
        ix[d] = d == k ? map[at] : ein__ix_subst(ctx, e->ix[d], map, (int)(s->nt + s->ns));
    t.body = ein__ex_read(ctx, w, pad, ix, (int)e->nix);
    return t;
}

// Windows `v` along subscript `k` first; none: it cannot be written.
static ein__val ein__rule_separate(ein__pass *z, ein__val v, uint32_t k, uint32_t at) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__scope first = ein__separate_first(ctx, &s, k, at);
    bool floats = old.dtype <= EIN__BF16 && s.reduce == EIN__R_SUM;
    ein__val w = first.body.i ? ein__pass_value(z, ein__namef(ctx, "%s.line", old.name), v,
                                                floats ? EIN__F32 : old.dtype, &first)
                              : (ein__val){0};
    if (!w.i) return w;
    ein__scope rest = ein__separate_rest(ctx, &s, k, at, w);
    if (!rest.body.i) return (ein__val){0};
    w = ein__pass_value(z, old.name, v, old.dtype, &rest);
    if (w.i) ctx->value[w.i].why = ein__rules[EIN__RULE_SEPARATE].what;
    return w;
}

// Windows `v` in the cheapest order of axes, or as they are. W has the type and shape of what it
// stands for in the price of the rest.
static ein__val ein__cheapest_separate(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    const ein__expr *e = ein__ex_get(ctx, s.body);
    if (ctx->value[v.i].weight_only || s.reduce == EIN__R_NONE || s.ns < 2 ||
        e->op != EIN__X_READ || !ein__is_neutral(&s, e))
        return v;
    int64_t least = ein__prefix_cost(ctx, &s);
    ein__val best = v;
    for (uint32_t k = 0; k < e->nix; k++) {
        uint32_t at;
        if (!ein__is_separate(ctx, &s, e, k, &at)) continue;
        ein__val made = ein__rule_separate(z, v, k, at);
        if (!made.i) continue;
        const ein__scope *rest = ein__scope_of(ctx, made);
        const ein__scope *first = ein__scope_of(ctx, (ein__val){ein__ex_get(ctx, rest->body)->val});
        int64_t ps = ein__cost_sum(ein__prefix_cost(ctx, first), ein__prefix_cost(ctx, rest));
        if (ps >= least) continue;
        least = ps;
        best = made;
    }
    return best.i == v.i ? v : ein__cheapest_separate(z, best);
}

static ein__val ein__rebuild_separate(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    return now.i ? ein__cheapest_separate(z, now) : now;
}

// Takes windows of the program under `root` one axis at a time where that is cheaper.
EIN__FN bool ein__separate_windows(ein_ctx *ctx, ein__val *root, int nroot) {
    bool changed;
    return !ein__rule_on(ctx, EIN__RULE_SEPARATE) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_separate, NULL, &changed);
}
