// Rule `onehot`: a sum that multiplies by ones at places which integers say, and by zeros, as the
// gates of a mixture of experts are where each expert is computed for each token, has as many terms
// as there are integers,
//     V[x] = sum(e,y) G[x,e] D[x,e,y],  G[x,e] = sum(k) [i(x,k) = e] p[x,k],
//          = sum(k,y) [i(x,k) in 0:E] p[x,k] D'[x,k,y],  D'[x,k,y] = D[x,i'(x,k),y],
// with i' = i where that is a place, else 0. What nothing else reads is computed for those places
// alone, and so is what it is made of: D' of D's own definition. Weights are looked up: rows are
// sorted by them where that pays (rule_sorted.c).

enum { EIN__ONEHOT_DEPTH = 32 };  // of values that are computed for fewer places

typedef struct ein__onehot {
    ein__pass *z;
    ein__ix place;    // i' in the iterators of what is being made
    ein__scope made;  // V as it becomes, or a value that it is made of
    int depth;
    bool product;  // what is being made is a sum of products: weights are values of their own
} ein__onehot;

// ------------------------------------------------------------------------------------ what is
// found

// The factors of product `ex`, of maps too that nothing else reads. False: they are too many.
static bool ein__onehot_factors(ein__pass *z, ein__ex ex, ein__ex *factor, int *n) {
    ein_ctx *ctx = z->ctx;
    const ein__expr e = *ein__ex_get(ctx, ex);
    if (e.op == EIN__X_BINARY && e.fn == EIN__MUL)
        return ein__onehot_factors(z, e.kid[0], factor, n) &&
               ein__onehot_factors(z, e.kid[1], factor, n);
    if (e.op == EIN__X_READ && z->uses[e.val] == 1 && ein__is_map(ctx, (ein__val){e.val})) {
        ein__attempt attempt = ein__try(ctx);
        ein__ex body = ein__rule_inline(ctx, (ein__val){e.val}, &e);
        const ein__expr *in = ein__tried(ctx, attempt) && body.i ? ein__ex_get(ctx, body) : &e;
        if (in->op == EIN__X_BINARY && in->fn == EIN__MUL)
            return ein__onehot_factors(z, body, factor, n);
    }
    if (*n == EIN__SORTED_FACTORS) return false;
    factor[(*n)++] = ex;
    return true;
}

// What factor `ex` of `s` is where it is a gate: its terms' condition and value, in V's iterators
// and, behind them, the `*sums` iterators of extents `n` that it is summed over.
static bool ein__onehot_gate(ein_ctx *ctx, const ein__scope *s, ein__ex ex, ein__expr *gate,
                             int64_t *n, uint32_t *sums) {
    ein__expr e = *ein__ex_get(ctx, ex);
    ein__ix map[EIN__MAX_ITERS];
    *sums = 0;
    if (e.op == EIN__X_READ) {
        const ein__scope *g = ein__scope_of(ctx, (ein__val){e.val});
        bool sum = g && g->reduce == EIN__R_SUM;
        if (!g || ctx->value[e.val].weight_only || (g->reduce != EIN__R_NONE && !sum)) return false;
        if (s->nt + s->ns + g->ns > EIN__MAX_ITERS) return false;
        for (uint32_t k = 0; k < g->nt; k++) {
            uint32_t slot;
            map[k] = e.ix[k];
            if (g->n[k] == 1) continue;
            if (!ein__ix_is_iter(ctx, e.ix[k], &slot) || s->n[slot] != g->n[k]) return false;
        }
        for (*sums = 0; *sums < g->ns; ++*sums) {
            n[*sums] = g->n[g->nt + *sums];
            map[g->nt + *sums] = ein__ix_iter(ctx, s->nt + s->ns + *sums, n[*sums]);
        }
        ex = ein__ex_subst(ctx, g->body, map, (int)(g->nt + g->ns));
        if (!ex.i) return false;
        e = *ein__ex_get(ctx, ex);
    }
    double zero;
    *gate = e;
    return e.op == EIN__X_SELECT && e.fn == EIN__EQ && ein__ex_is_const(ctx, e.kid[3], &zero) &&
           zero == 0;
}

// Whether a gate asks if an integer that is read is iterator `over` of V's sum, which its value is
// the same for; then it is the place.
static bool ein__onehot_asks(ein_ctx *ctx, const ein__scope *s, const ein__expr *gate,
                             uint32_t *over, ein__ex *at) {
    for (int k = 0; k < 2; k++) {
        const ein__expr *i = ein__ex_get(ctx, gate->kid[k]),
                        *e = ein__ex_get(ctx, gate->kid[1 - k]);
        if (i->op != EIN__X_READ || ctx->value[i->val].dtype <= EIN__BF16 || i->bits ||
            e->op != EIN__X_IDX || !ein__ix_is_iter(ctx, e->ix[0], over) || *over < s->nt)
            continue;
        *at = gate->kid[k];
        return !((ein__ex_uses(ctx, *at) | ein__ex_uses(ctx, gate->kid[2])) >> *over & 1);
    }
    return false;
}

// ------------------------------------------------------------------------------------ what is made

static ein__ex ein__onehot_read(ein_ctx *ctx, void *user, ein__ex ex);

// Gives `t` a dimension for each iterator that read `e` uses, in the order of its subscripts, as
// ein__used_dims does.
static bool ein__onehot_dims(ein__onehot *o, const ein__expr *e, ein__scope *t, ein__ix *map,
                             ein__ix *back) {
    ein_ctx *ctx = o->z->ctx;
    const ein__scope *s = &o->made;
    uint32_t done = 0;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (uint32_t k = 0; k < e->nix; k++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            if (!(ein__ix_uses(ctx, e->ix[k]) & ~done & 1u << i)) continue;
            if (!ein__new_slot(t, false, ctx, s->n[i], &map[i])) return false;
            back[t->nt - 1] = ein__ix_iter(ctx, i, s->n[i]);
            done |= 1u << i;
        }
    return true;
}

// Read `e`, of a value that nothing else reads, as a value of its own over the iterators that it
// uses, made of that one's definition. None: it would be no smaller.
static ein__ex ein__onehot_value(ein__onehot *o, const ein__expr *e) {
    ein_ctx *ctx = o->z->ctx;
    const ein__scope *s = ein__scope_of(ctx, (ein__val){e->val});
    const ein__value old = ctx->value[e->val];
    ein__onehot inner = {.z = o->z, .depth = o->depth + 1};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK], at[EIN__MAX_ITERS];
    if (!ein__onehot_dims(o, e, &inner.made, map, back)) return (ein__ex){0};
    uint32_t nt = inner.made.nt, all = o->made.nt + o->made.ns;
    if (ein__extent_of(&inner.made, ~0u) >= ein__elements(&old.shape)) return (ein__ex){0};
    for (uint32_t k = 0; k < s->nt; k++) at[k] = ein__ix_subst(ctx, e->ix[k], map, (int)all);
    for (uint32_t k = s->nt; k < s->nt + s->ns; k++)
        if (!ein__new_slot(&inner.made, true, ctx, s->n[k], &at[k])) return (ein__ex){0};
    inner.place = ein__ix_subst(ctx, o->place, map, (int)all);
    inner.made.reduce = s->reduce;
    inner.product = ein__is_contraction(ctx, s);
    inner.made.body = ein__ex_subst(ctx, s->body, at, (int)(s->nt + s->ns));
    if (inner.made.body.i)
        inner.made.body = ein__ex_replace_reads(ctx, inner.made.body, ein__onehot_read, &inner);
    if (!inner.made.body.i) return (ein__ex){0};
    const char *name = ein__namef(ctx, "%s.picked", old.name);
    ein__val v = ein__pass_value(o->z, name, (ein__val){e->val}, old.dtype, &inner.made);
    if (!v.i) return (ein__ex){0};
    ctx->value[v.i].why = ein__rules[EIN__RULE_ONEHOT].what;
    return ein__ex_read(ctx, v, 0, back, (int)nt);
}

// Weights that are looked up as a value of their own.
static ein__ex ein__onehot_weights(ein__onehot *o, ein__ex ex) {
    ein_ctx *ctx = o->z->ctx;
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    const ein__expr e = *ein__ex_get(ctx, ex);
    const ein__value of = ctx->value[e.val];
    if (!ein__onehot_dims(o, &e, &t, map, back)) return (ein__ex){0};
    t.body = ein__ex_subst(ctx, ex, map, (int)(o->made.nt + o->made.ns));
    const char *name = ein__namef(ctx, "%s.picked", of.name);
    ein__val v = t.body.i ? ein__pass_value(o->z, name, o->z->self, of.dtype, &t) : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// A read of what is made: of an old value what that has become, at the place what it is there.
static ein__ex ein__onehot_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__onehot *o = user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    const ein__value *v = &ctx->value[e.val];
    bool at = false, inside = true;
    if (e.val >= o->z->nold) return ex;
    for (uint32_t k = 0; k < e.nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e.ix[k]);
        bool here = e.ix[k].i == o->place.i;
        at |= here;
        inside &= here || (f->q == 1 && f->lo >= 0 && f->hi < v->shape.d[k] &&
                           !ein__ix_has_gather(ctx, e.ix[k]));
    }
    ein__ex made = {0},
            now = ein__ex_read(ctx, o->z->now[e.val], ein__f64_of(e.bits), e.ix, (int)e.nix);
    if (!at || !inside || !now.i) return now;
    if (v->weight_only) made = o->product ? ein__onehot_weights(o, now) : now;
    else if (v->kind == EIN__V_SCOPE && o->z->uses[e.val] == 1 && o->depth < EIN__ONEHOT_DEPTH)
        made = ein__onehot_value(o, &e);
    return made.i ? made : ctx->status ? made : now;
}

// i' of the integer that `at` reads, as an index.
static ein__ix ein__onehot_place(ein__pass *z, ein__ex at, int64_t n) {
    ein_ctx *ctx = z->ctx;
    const ein__expr e = *ein__ex_get(ctx, at);
    const ein__value of = ctx->value[e.val];
    ein__val now = z->now[e.val];
    ein__ix ix[EIN__MAX_RANK];
    for (int k = 0; k < of.shape.rank; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, of.shape.d[k]);
    ein__ex i = ein__ex_read(ctx, now, 0, ix, of.shape.rank), none = ein__ex_const(ctx, 0);
    ein__ex body = ein__ex_select(ctx, EIN__LT, i, ein__ex_const(ctx, (double)n), i, none);
    body = ein__ex_select(ctx, EIN__GE, i, none, body, none);
    const char *name = ein__namef(ctx, "%s.place", of.name);
    ein__val v = ein__new_map(z, name, EIN__I32, of.shape.rank, of.shape.d, body);
    return v.i ? ein__ix_gather(ctx, ein__ex_read(ctx, v, 0, e.ix, (int)e.nix)) : (ein__ix){0};
}

// V with gate number `k` of its factors.
static ein__val ein__onehot_sum(ein__pass *z, ein__val v, const ein__ex *factor, int n, int k,
                                const ein__expr *gate, const int64_t *extent, uint32_t sums,
                                uint32_t over, ein__ex at) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    uint32_t all = s.nt + s.ns;
    ein__ix map[EIN__MAX_ITERS];
    ein__onehot o = {.z = z, .made = {.nt = s.nt, .reduce = EIN__R_SUM}};
    memcpy(o.made.n, s.n, s.nt * sizeof *s.n);
    for (uint32_t i = 0; i < s.nt; i++) map[i] = ein__ix_iter(ctx, i, s.n[i]);
    for (uint32_t i = s.nt; i < all; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (i != over && !ein__new_slot(&o.made, true, ctx, s.n[i], &map[i])) return (ein__val){0};
    }
    for (uint32_t i = 0; i < sums; i++)
        if (!ein__new_slot(&o.made, true, ctx, extent[i], &map[all + i])) return (ein__val){0};
    if (!o.made.ns) o.made.reduce = EIN__R_NONE;
    z->self = v;
    at = ein__ex_subst(ctx, at, map, (int)(all + sums));
    o.place = map[over] = ein__onehot_place(z, at, s.n[over]);
    o.product = true;
    o.made.body = ein__ex_subst(ctx, gate->kid[2], map, (int)(all + sums));
    if (o.made.body.i && o.place.i)
        o.made.body = ein__ex_when(ctx, ein__ix_gather(ctx, at), s.n[over], false, o.made.body);
    for (int i = 0; i < n; i++)
        if (i != k)
            o.made.body = ein__ex_binary(ctx, EIN__MUL, o.made.body,
                                         ein__ex_subst(ctx, factor[i], map, (int)(all + sums)));
    if (o.made.body.i) o.made.body = ein__ex_replace_reads(ctx, o.made.body, ein__onehot_read, &o);
    ein__val made = o.made.body.i ? ein__with_scope(ctx, v, &o.made) : (ein__val){0};
    if (made.i) ctx->value[made.i].why = ein__rules[EIN__RULE_ONEHOT].what;
    return made;
}

static ein__val ein__rebuild_onehot(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__ex factor[EIN__SORTED_FACTORS], at;
    int64_t extent[EIN__MAX_ITERS];
    uint32_t sums, over;
    ein__expr gate;
    int n = 0;
    bool may = s.reduce == EIN__R_SUM && !ctx->value[v.i].weight_only &&
               ein__onehot_factors(z, s.body, factor, &n);
    for (int k = 0; k < n && may; k++) {
        int64_t terms = 1;
        if (!ein__onehot_gate(ctx, &s, factor[k], &gate, extent, &sums) ||
            !ein__onehot_asks(ctx, &s, &gate, &over, &at))
            continue;
        for (uint32_t i = 0; i < sums; i++) terms = ein__times(terms, extent[i]);
        if (terms >= s.n[over]) continue;
        ein__attempt attempt = ein__try(ctx);
        ein__val made = ein__onehot_sum(z, v, factor, n, k, &gate, extent, sums, over, at);
        if (ein__tried(ctx, attempt) && made.i) return made;
    }
    ein__ex body = ein__body_now(z, &s);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Looks up what sums over one-hot places need of the program under `root`; `*changed` when there is
// such a sum.
EIN__FN bool ein__look_up_places(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    return !ein__rule_on(ctx, EIN__RULE_ONEHOT) ||
           (ein__rewrite_program(ctx, root, nroot, ein__rebuild_onehot, NULL, changed) &&
            (!*changed || ein__sort_rows(ctx, root, nroot)));
}
