// Re-association of products: one contraction reads another, and the factors change partners.
//
//   sum(k) (sum(j) a b) c  =>  sum(j) a (sum(k) b c)
//
// Sums that `a` takes no part in go inside, whatever they came from; where `b` and `c` are weights,
// the inner product is made at load. It stands beside the merges, because it is one more rule
// between contractions: what it gives is priced, chosen, listed and proved as they are.

// The three factors in one set of slots: traversal of the outer product, its reductions, then those
// of the inner one.
typedef struct ein__triple {
    ein__ex a, b, c;
    double alpha;
    uint32_t nt, n;  // traversal slots, all slots
    int64_t extent[EIN__MAX_ITERS];
} ein__triple;

// Whether the outer product reads nothing of `inner` that is outside its box, or the factors of
// `inner` are 0 there as well: one of them has the iterator as a subscript of the same extent.
static bool ein__padded_alike(ein_ctx *ctx, const ein__expr *r, const ein__expr *const *factor) {
    const ein__shape *shape = &ctx->value[r->val].shape;
    for (uint32_t d = 0; d < r->nix; d++) {
        const ein__index *f = ein__ix_get(ctx, r->ix[d]);
        bool alike = f->lo >= 0 && f->hi < shape->d[d];
        if (f->q != 1) return false;
        for (int i = 0; i < 2 && !alike; i++)
            for (uint32_t k = 0; k < factor[i]->nix; k++) {
                uint32_t slot;
                alike |= ein__ix_is_iter(ctx, factor[i]->ix[k], &slot) && slot == d &&
                         ctx->value[factor[i]->val].shape.d[k] == shape->d[d];
            }
        if (!alike) return false;
    }
    return true;
}

// Contraction `v` as a product of three: factor `side` is a contraction itself, of which factor
// `keep` stays outside. False where that is not the form.
static bool ein__triple_of(ein__merger *z, ein__val v, int side, int keep, ein__triple *t) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *outer[2], *inner[2];
    double alpha;
    if (!ein__two_factors(ctx, s, outer, &t->alpha) || outer[0]->val == outer[1]->val) return false;
    const ein__expr *r = outer[side];
    const ein__value *u = &ctx->value[r->val];
    const ein__scope *of = ein__scope_of(ctx, (ein__val){r->val});
    if (!of || u->weight_only || u->dtype != EIN__F32 || (v.i < z->changed && r->val < z->changed))
        return false;
    if (ein__keeps_fp32(ctx, v) || ein__keeps_fp32(ctx, (ein__val){r->val})) return false;
    if (!ein__two_factors(ctx, of, inner, &alpha) || !ein__padded_alike(ctx, r, inner))
        return false;
    t->alpha *= alpha;
    t->nt = s->nt;
    t->n = s->nt + s->ns;
    if (t->n + of->ns > EIN__MAX_ITERS) return false;
    memcpy(t->extent, s->n, sizeof t->extent);
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t d = 0; d < of->nt; d++) map[d] = r->ix[d];
    for (uint32_t j = of->nt; j < of->nt + of->ns; j++) {
        map[j] = ein__ix_iter(ctx, t->n, of->n[j]);
        t->extent[t->n++] = of->n[j];
    }
    int n = (int)(of->nt + of->ns);
    t->a = ein__ex_subst(ctx, ein__ex_of(ctx, inner[keep]), map, n);
    t->b = ein__ex_subst(ctx, ein__ex_of(ctx, inner[1 - keep]), map, n);
    t->c = ein__ex_of(ctx, outer[1 - side]);
    return t->a.i && t->b.i;
}

// Adds the slots in `from` to a scope as traversal or reductions; `map` says where they are there.
static void ein__add_slots(ein_ctx *ctx, const ein__triple *t, uint32_t from, bool reduced,
                           ein__scope *s, ein__ix *map) {
    for (uint32_t k = 0; k < t->n; k++) {
        if (!(from >> k & 1)) continue;
        uint32_t to = s->nt + s->ns;
        s->n[to] = t->extent[k];
        map[k] = ein__ix_iter(ctx, to, t->extent[k]);
        s->nt += !reduced;
        s->ns += reduced;
    }
    s->reduce = s->ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
}

// The product of `b` and `c`, and `*outer`, which has `a` and reads it.
static ein__val ein__triple_inner(ein__merger *z, const ein__triple *t, ein__val v, const char *why,
                                  ein__scope *outer) {
    ein_ctx *ctx = z->ctx;
    const uint32_t traversal = (1u << t->nt) - 1, sums = ((1u << t->n) - 1) & ~traversal;
    uint32_t in_a = ein__ex_uses(ctx, t->a),
             in_w = ein__ex_uses(ctx, t->b) | ein__ex_uses(ctx, t->c);
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK];
    ein__scope s = {.reduce = EIN__R_NONE};
    *outer = s;
    if (!(sums & in_a) || !(sums & ~in_a)) return (ein__val){0};
    // Windows of the outer product last, as in a filter.
    const ein__scope *own = ein__scope_of(ctx, v);
    uint32_t late = sums & ((1u << (own->nt + own->ns)) - 1);
    ein__add_slots(ctx, t, in_w & traversal, false, &s, map);
    ein__add_slots(ctx, t, in_w & in_a & sums & ~late, false, &s, map);
    ein__add_slots(ctx, t, in_w & in_a & late, false, &s, map);
    if (s.nt > EIN__MAX_RANK) return (ein__val){0};
    ein__add_slots(ctx, t, sums & ~in_a, true, &s, map);
    ein__ex b = ein__ex_subst(ctx, t->b, map, (int)t->n),
            c = ein__ex_subst(ctx, t->c, map, (int)t->n);
    s.body = b.i && c.i ? ein__ex_binary(ctx, EIN__MUL, ein__scaled(ctx, t->alpha, b), c) : b;
    if (!c.i || !s.body.i || !ein__is_contraction(ctx, &s)) return (ein__val){0};
    ein__val w = ein__merge_value(z, v, "inner", &s, why);
    if (!w.i) return w;
    ein__add_slots(ctx, t, traversal, false, outer, map);
    ein__add_slots(ctx, t, sums & in_a & ~late, true, outer, map);
    ein__add_slots(ctx, t, sums & in_a & late, true, outer, map);
    uint32_t order[] = {in_w & traversal, in_w & in_a & sums & ~late, in_w & in_a & late};
    int n = 0;
    for (int g = 0; g < 3; g++)
        for (uint32_t k = 0; k < t->n; k++)
            if (order[g] >> k & 1) at[n++] = map[k];
    ein__ex a = ein__ex_subst(ctx, t->a, map, (int)t->n), r = ein__ex_read(ctx, w, 0, at, n);
    outer->body = a.i && r.i ? ein__ex_binary(ctx, EIN__MUL, a, r) : (ein__ex){0};
    bool product = outer->body.i && ein__is_contraction(ctx, outer);
    return product ? w : (ein__val){0};
}

static void ein__try_triple(ein__merger *z, ein__val v, int side, int keep) {
    ein_ctx *ctx = z->ctx;
    ein__triple t;
    ein__scope outer;
    ein__merge m = {.rule = "re-association"};
    if (!ein__triple_of(z, v, side, keep, &t)) return;
    const ein__expr *read[2];
    double alpha;
    ein__two_factors(ctx, ein__scope_of(ctx, v), read, &alpha);
    ein__val u = {read[side]->val};
    m.inner = ein__triple_inner(z, &t, v, m.rule, &outer);
    m.wide = m.inner.i ? ein__merge_value(z, v, NULL, &outer, m.rule) : (ein__val){0};
    if (!m.wide.i) return;
    const ein__scope *inner = ein__scope_of(ctx, m.inner), *of = ein__scope_of(ctx, u);
    int64_t before = ein__extent_of(of, ~0u) + ein__extent_of(ein__scope_of(ctx, v), ~0u);
    int64_t now = ein__extent_of(&outer, ~0u);
    if (!ctx->value[m.inner.i].weight_only) now += ein__extent_of(inner, ~0u);
    // So much more arithmetic is nobody's gain.
    if (now / EIN__MERGE_PADDING > before) return;
    m.map = ein__map_behind(z, v, &m.map_read);
    arrput(m.member, u);
    arrput(m.member, v);
    arrput(m.taken, u);
    arrput(m.taken, v);
    arrput(m.old, v);
    arrput(m.now, m.wide);
    m.members_ps = ein__merge_price(z, v, m.map, m.map_read);
    // What others read as well stays.
    if (z->uses[u.i] == 1 && !z->root[u.i])
        m.members_ps = ein__cost_sum(m.members_ps, ein__merge_price(z, u, (ein__val){0}, t.a));
    ein__add_merge(z, &m);
    ein__merge_free(&m);
}

// Every contraction that reads a contraction, with either factor of that one left outside.
static void ein__find_chains(ein__merger *z) {
    for (ptrdiff_t i = 0; i < arrlen(z->product) && !z->ctx->status; i++)
        for (int k = 0; k < 4 && z->tries < EIN__MERGE_TRIES; k++) {
            ein__attempt attempt = ein__try(z->ctx);
            ptrdiff_t before = arrlen(z->found);
            ein__try_triple(z, z->product[i], k / 2, k % 2);
            ein__tried(z->ctx, attempt);
            z->tries += arrlen(z->found) > before;
        }
}
