// Rule `turn`: a product that one map reads in another order of its dimensions has that order
// itself, M[x] = f(x, V[x']) is f(x, V'[x]) with V'[x] = V[x'] and x' a permutation of x. Whatever
// computes a product may store it in any order, and what M does is then an epilogue; behind a copy
// the order would only be found when layouts are chosen.

typedef struct ein__turning {
    ein__val from, to;
    const ein__scope *map;
} ein__turning;

static ein__ex ein__turn_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__turning *t = user;
    ein__ix ix[EIN__MAX_RANK];
    if (ein__ex_get(ctx, ex)->val != t->from.i) return ex;
    for (uint32_t k = 0; k < t->map->nt; k++) ix[k] = ein__ix_iter(ctx, k, t->map->n[k]);
    return ein__ex_read(ctx, t->to, 0, ix, (int)t->map->nt);
}

// Whether `s` is a product whose factors are read by iterators alone: no window's, of which a
// library wants a certain order.
static bool ein__is_plain_product(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *read[2];
    double alpha;
    if (!ein__two_factors(ctx, s, read, &alpha)) return false;
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < read[i]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[i]->ix[k]);
            uint32_t slot;
            if (f->n && !ein__ix_is_iter(ctx, read[i]->ix[k], &slot)) return false;
        }
    return true;
}

// The product `p` over the box of map `m`, which reads it by `read`, its dimensions in another
// order and nothing else; none when there is no such order.
static ein__val ein__turned_product(ein_ctx *ctx, ein__val p, const ein__scope *m,
                                    const ein__expr *read) {
    const ein__value old = ctx->value[p.i];
    const ein__scope *s = ein__scope_of(ctx, p);
    ein__scope t = {.reduce = s->reduce, .nt = m->nt, .ns = s->ns};
    ein__ix map[EIN__MAX_ITERS];
    ein__shape shape = {.rank = (int)m->nt};
    uint32_t used = 0, last = 0;
    bool ordered = true;
    if (m->nt + s->ns > EIN__MAX_ITERS) return (ein__val){0};
    for (uint32_t k = 0; k < s->nt; k++) {
        uint32_t slot;
        map[k] = read->ix[k];
        if (s->n[k] == 1 && !ein__ix_get(ctx, read->ix[k])->n) continue;
        if (!ein__ix_is_iter(ctx, read->ix[k], &slot) || (used >> slot & 1) ||
            m->n[slot] != s->n[k])
            return (ein__val){0};
        ordered = ordered && slot >= last;
        last = slot;
        used |= 1u << slot;
    }
    for (uint32_t k = 0; k < m->nt; k++) {
        if (m->n[k] > 1 && !(used >> k & 1)) return (ein__val){0};
        t.n[k] = shape.d[k] = m->n[k];
    }
    if (ordered) return (ein__val){0};
    for (uint32_t k = 0; k < s->ns; k++) {
        t.n[m->nt + k] = s->n[s->nt + k];
        map[s->nt + k] = ein__ix_iter(ctx, m->nt + k, t.n[m->nt + k]);
    }
    t.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
    ein__sc sc = t.body.i ? ein__sc_make(ctx, &t) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &shape, old.dtype, old.node);
}

static ein__val ein__rebuild_turned(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *was = ein__scope_of(ctx, v);
    ein__ex body = ein__body_now(z, was);
    const ein__ex *reads = ein__ex_reads(ctx, was->body);
    bool map = was->reduce == EIN__R_NONE && !ctx->value[v.i].weight_only && !ein__copy_of(ctx, v);
    for (ptrdiff_t i = 0; i < arrlen(reads) && map && body.i; i++) {
        const ein__expr *read = ein__ex_get(ctx, reads[i]);
        ein__val p = z->now[read->val];
        const ein__scope *s = ein__scope_of(ctx, p);
        int times = 0;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            times += ein__ex_get(ctx, reads[k])->val == read->val;
        if (!s || times > 1 || z->uses[read->val] != 1 || ctx->value[p.i].weight_only ||
            !ein__is_plain_product(ctx, s))
            continue;
        ein__turning t = {p, ein__turned_product(ctx, p, was, read), was};
        if (t.to.i) body = ein__ex_replace_reads(ctx, body, ein__turn_read, &t);
    }
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}
