// The distributive law, in both directions, where that multiplies less.
//
// `distribute`: a product of a sum, when products of its terms are at hand or have few terms
// themselves, as where one weight meets a tensor that grows from step to step, X = X' + F + w with
// weights w:
//     sum(y) P X = sum(y) P X' + sum(y) P F + sum(y) P w,
// the first at hand, the last made at load, and with F[i] = sum(k) W[i,k] U[i,k]
//     sum(y) P[y] sum(k) W[y,k] U[k] = sum(k) (sum(y) P[y] W[y,k]) U[k], its weight made at load.
// Outside the box of X all of these are 0: U must be where F is.
//
// `collect`: sum(k) W U + sum(k) W V = sum(k) W (U + V).

// A contraction that was looked at, and what it has become.
typedef struct ein__distributed {
    uint32_t scope;
    ein__val v;
} ein__distributed;

// The value that term `ex` of map `m` is, where it stands; none for another term.
static ein__val ein__term_in_place(ein_ctx *ctx, ein__ex ex, const ein__scope *m) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    bool is = e->op == EIN__X_READ && ein__reads_in_place(ctx, e, m);
    return is && ctx->value[e->val].dtype == EIN__F32 ? (ein__val){e->val} : (ein__val){0};
}

// The factors of a product of weights and data, `*w` and `*x`.
static bool ein__weighs(ein_ctx *ctx, const ein__scope *s, const ein__expr **w, const ein__expr **x,
                        double *alpha) {
    const ein__expr *read[2];
    if (!s || !ein__two_factors(ctx, s, read, alpha)) return false;
    int k = ctx->value[read[1]->val].weight_only;
    *w = read[k];
    *x = read[1 - k];
    return ctx->value[(*w)->val].weight_only && !ctx->value[(*x)->val].weight_only;
}

typedef struct ein__swap {
    uint32_t from;
    ein__val to;
} ein__swap;

static ein__ex ein__swap_read(ein_ctx *ctx, void *user, ein__ex read) {
    const ein__swap *swap = (const ein__swap *)user;
    const ein__expr *e = ein__ex_get(ctx, read);
    return e->val == swap->from ? ein__ex_read(ctx, swap->to, 0, e->ix, (int)e->nix) : read;
}

// Product `s` with `to`, of the same box, for what it reads as `from`.
static ein__scope ein__product_of_other(ein_ctx *ctx, const ein__scope *s, ein__val from,
                                        ein__val to) {
    ein__scope t = *s;
    ein__swap swap = {from.i, to};
    t.body = ein__ex_replace_reads(ctx, s->body, ein__swap_read, &swap);
    return t;
}

// A value like `like` but for a suffix of its name, of scope `s`, made by rule `by`.
static ein__val ein__rule_value(ein__pass *z, ein__val like, const char *suffix,
                                const ein__scope *s, ein__rule_id by) {
    ein_ctx *ctx = z->ctx;
    const char *name = ein__namef(ctx, "%s.%s", ctx->value[like.i].name, suffix);
    ein__val v = ein__pass_value(z, name, like, EIN__F32, s);
    if (v.i) ctx->value[v.i].why = ein__rules[by].what;
    return v;
}

// ------------------------------------------------------------------------------- products of sums

// Product `s`, P X, whose X is F, a product W U, in one scope: the slots of `s` and of F's sum in
// `outer` and `inner`; the last ones, so many, neither the result nor U needs.
typedef struct ein__composed {
    ein__scope all;
    uint32_t elided;
    ein__ix outer[EIN__MAX_ITERS], inner[EIN__MAX_ITERS];
} ein__composed;

// Whether F is 0 where `x`, a read of its box, leaves it: there U, read at the same places of as
// long a dimension, is.
static bool ein__zero_outside(ein_ctx *ctx, const ein__expr *x, const ein__scope *f,
                              const ein__expr *u) {
    for (uint32_t d = 0; d < x->nix; d++) {
        const ein__index *at = ein__ix_get(ctx, x->ix[d]);
        bool covered = at->q == 1 && at->lo >= 0 && at->hi < f->n[d];
        for (uint32_t k = 0; k < u->nix && !covered; k++)
            covered = u->ix[k].i == ein__ix_iter(ctx, d, f->n[d]).i &&
                      ctx->value[u->val].shape.d[k] == f->n[d];
        if (!covered) return false;
    }
    return true;
}

// Slots of `s` that U needs, read through `x`.
static uint32_t ein__slots_through(ein_ctx *ctx, const ein__expr *u, const ein__expr *x,
                                   uint32_t nt) {
    uint32_t dims = 0, slots = 0;
    for (uint32_t k = 0; k < u->nix; k++) dims |= ein__ix_uses(ctx, u->ix[k]);
    for (uint32_t d = 0; d < nt; d++)
        if (dims >> d & 1) slots |= ein__ix_uses(ctx, x->ix[d]);
    return slots;
}

static bool ein__place_slot(ein_ctx *ctx, ein__composed *c, ein__ix *map, int64_t n) {
    uint32_t at = c->all.nt + c->all.ns;
    if (at == EIN__MAX_ITERS) return false;
    c->all.n[at] = n;
    c->all.ns++;
    *map = ein__ix_iter(ctx, at, n);
    return true;
}

// Lays out the slots: the result's, then sums as the dimensions of P have them, F's in place of
// those that are elided, so that the weight lies as P did.
static bool ein__compose_slots(ein_ctx *ctx, const ein__scope *s, const ein__expr *p,
                               const ein__scope *f, uint32_t needed, ein__composed *c) {
    uint32_t sums = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1), placed = 0;
    uint32_t elided = sums & ~needed;
    bool ok = true, inner = false;
    *c = (ein__composed){.all = {.reduce = EIN__R_SUM, .nt = s->nt}};
    for (uint32_t i = 0; i < s->nt; i++) {
        c->all.n[i] = s->n[i];
        c->outer[i] = ein__ix_iter(ctx, i, s->n[i]);
    }
    for (uint32_t d = 0; d <= p->nix && ok; d++) {
        uint32_t uses = d < p->nix ? ein__ix_uses(ctx, p->ix[d]) & sums : sums;
        for (uint32_t i = s->nt; i < s->nt + s->ns && ok; i++) {
            if (!(uses & ~placed & ~elided & 1u << i)) continue;
            placed |= 1u << i;
            ok = ein__place_slot(ctx, c, &c->outer[i], s->n[i]);
        }
        for (uint32_t k = 0; !inner && (uses & elided) && k < f->ns && ok; k++)
            ok = ein__place_slot(ctx, c, &c->inner[f->nt + k], f->n[f->nt + k]);
        inner |= (uses & elided) != 0;
    }
    for (uint32_t i = s->nt; i < s->nt + s->ns && ok; i++) {
        if (!(elided >> i & 1)) continue;
        ok = ein__place_slot(ctx, c, &c->outer[i], s->n[i]);
        c->elided++;
    }
    return ok && inner;
}

// P (W U) as (P W) U: the scope of the product over U. False: it cannot be had.
static bool ein__rule_compose(ein__pass *z, ein__val v, ein__val of, ein__scope *result) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v), *f = ein__scope_of(ctx, of);
    const ein__expr *p, *x, *w, *u;
    double alpha, beta;
    ein__composed c;
    if (!ein__weighs(ctx, s, &p, &x, &alpha) || !ein__weighs(ctx, f, &w, &u, &beta)) return false;
    if (x->nix != f->nt || !ein__zero_outside(ctx, x, f, u)) return false;
    if (!ein__compose_slots(ctx, s, p, f, ein__slots_through(ctx, u, x, f->nt), &c)) return false;
    int n = (int)(s->nt + s->ns), nf = (int)(f->nt + f->ns);
    for (uint32_t d = 0; d < f->nt; d++) c.inner[d] = ein__ix_subst(ctx, x->ix[d], c.outer, n);
    ein__ex weight =
        ein__ex_binary(ctx, EIN__MUL, ein__ex_subst(ctx, ein__ex_of(ctx, p), c.outer, n),
                       ein__ex_subst(ctx, ein__ex_of(ctx, w), c.inner, nf));
    ein__ex data = ein__ex_subst(ctx, ein__ex_of(ctx, u), c.inner, nf);
    if (!weight.i || !data.i) return false;
    z->self = v;
    uint32_t slots = 1u << (c.all.nt + c.all.ns);
    weight = ein__hoist_sum(z, &c.all, weight, slots - (slots >> c.elided), "weight");
    c.all.ns -= c.elided;
    c.all.body = weight.i ? ein__ex_binary(ctx, EIN__MUL, weight, data) : weight;
    c.all.body = ein__add_scaled(ctx, (ein__ex){0}, alpha * beta, c.all.body);
    *result = c.all;
    return c.all.body.i != 0;
}

static int64_t ein__contraction_ps(ein_ctx *ctx, const ein__scope *s) {
    int64_t ps = EIN__PS_LIMIT;
    (void)ein__choose(ctx, s, (ein__val){0}, (ein__ex){0}, true, &ps);
    return ps;
}

// The product that there is already of term `of` in the place of `x` in `s`; none: there is none.
static ein__val ein__at_hand(ein__pass *z, const ein__scope *s, ein__val x, ein__val of) {
    const ein__distributed *done = *(ein__distributed **)z->user;
    ein__scope other = ein__product_of_other(z->ctx, s, x, of);
    ein__sc sc = other.body.i ? ein__sc_make(z->ctx, &other) : (ein__sc){0};
    for (ptrdiff_t i = 0; i < arrlen(done) && sc.i; i++)
        if (done[i].scope == sc.i) return done[i].v;
    return (ein__val){0};
}

// Product `v` of `x` where that is `constant`, of weights alone: made at load.
static ein__val ein__of_constant(ein__pass *z, ein__val v, ein__val x, ein__ex constant) {
    ein_ctx *ctx = z->ctx;
    const ein__shape box = ctx->value[x.i].shape;
    z->self = v;
    ein__val w = ein__new_map(z, ein__namef(ctx, "%s.constant", ctx->value[v.i].name), EIN__F32,
                              box.rank, box.d, constant);
    if (!w.i) return w;
    ein__scope s = ein__product_of_other(ctx, ein__scope_of(ctx, v), x, w);
    return ein__rule_value(z, v, "of_constant", &s, EIN__RULE_DISTRIBUTE);
}

// Product `v` of `x`, a map of terms `sum`, as a sum of products; none when they are no cheaper or
// one cannot be had. Reading them takes as long as that of two results.
static ein__ex ein__distribute_over(ein__pass *z, ein__val v, ein__val x,
                                    const ein__addition *sum) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v), *m = ein__scope_of(ctx, x);
    ein__ex at_hand = {0}, rest = {0}, weights = {0};
    ein__ix at[EIN__MAX_RANK];
    ein__work w = {.bytes = {ein__times(ein__outputs_of(&s), 2 * 4)}};
    int64_t ps = ein__work_ps(ein__gpu_of(ctx), &w);
    for (uint32_t i = 0; i < s.nt; i++) at[i] = ein__ix_iter(ctx, i, s.n[i]);
    for (int k = 0; k < sum->n; k++) {
        const ein__addend *t = &sum->t[k];
        if (ein__ex_weight_only(ctx, t->ex)) {
            weights = ein__add_scaled(ctx, weights, t->scale, t->ex);
            continue;
        }
        ein__val of = ein__term_in_place(ctx, t->ex, m);
        ein__val product = of.i ? ein__at_hand(z, &s, x, of) : of;
        ein__ex *to = product.i ? &at_hand : &rest;
        ein__scope other;
        if (!product.i) {
            if (!of.i || !ein__rule_compose(z, v, of, &other)) return (ein__ex){0};
            ps = ein__cost_sum(ps, ein__contraction_ps(ctx, &other));
            product = ein__rule_value(z, v, "added", &other, EIN__RULE_DISTRIBUTE);
        }
        if (!product.i) return (ein__ex){0};
        *to = ein__add_scaled(ctx, *to, t->scale, ein__ex_read(ctx, product, 0, at, (int)s.nt));
    }
    if (ps >= ein__contraction_ps(ctx, &s)) return (ein__ex){0};
    if (rest.i) at_hand = ein__ex_binary(ctx, EIN__ADD, rest, at_hand);
    if (!weights.i || !at_hand.i) return at_hand;
    ein__val made = ein__of_constant(z, v, x, weights);
    return made.i
               ? ein__ex_binary(ctx, EIN__ADD, at_hand, ein__ex_read(ctx, made, 0, at, (int)s.nt))
               : (ein__ex){0};
}

// Contraction `v` as a sum of products one of which is at hand, or itself.
static ein__val ein__rule_distribute(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *p, *x;
    const ein__value old = ctx->value[v.i];
    double alpha;
    ein__addition sum = {.n = 0};
    if (old.weight_only || old.dtype != EIN__F32 ||
        !ein__weighs(ctx, ein__scope_of(ctx, v), &p, &x, &alpha))
        return v;
    ein__val of = {x->val};
    if (ctx->value[of.i].dtype != EIN__F32 || !ein__is_map(ctx, of) || ein__copy_of(ctx, of) ||
        !ein__list_addends(ctx, ein__scope_of(ctx, of)->body, 1, &sum) || sum.n < 2)
        return v;
    bool any = false;
    for (int k = 0; k < sum.n && !any; k++) {
        ein__val term = ein__term_in_place(ctx, sum.t[k].ex, ein__scope_of(ctx, of));
        any = term.i && ein__at_hand(z, ein__scope_of(ctx, v), of, term).i;
    }
    ein__ex body = any ? ein__distribute_over(z, v, of, &sum) : (ein__ex){0};
    if (!body.i) return v;
    z->self = v;
    ein__val now = ein__new_map(z, old.name, EIN__F32, old.shape.rank, old.shape.d, body);
    return now.i ? now : v;
}

static ein__val ein__rebuild_distributed(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__distributed **done = z->user;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    ein__val is = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!is.i) return is;
    ein__val now = ein__rule_distribute(z, is);
    const ein__distributed d = {ctx->value[is.i].scope.i, now};
    if (ein__is_contraction(ctx, ein__scope_of(ctx, is)) && ctx->value[is.i].dtype == EIN__F32)
        arrput(*done, d);
    return now;
}

// ------------------------------------------------------------------------------- sums of products

// Whether both are products of one weight and of tensors of one shape, read alike.
static bool ein__weighs_alike(ein_ctx *ctx, ein__val a, ein__val b) {
    const ein__scope *s = ein__scope_of(ctx, a), *t = ein__scope_of(ctx, b);
    const ein__expr *w, *x, *v, *y;
    double alpha, beta;
    if (!ein__weighs(ctx, s, &w, &x, &alpha) || !ein__weighs(ctx, t, &v, &y, &beta)) return false;
    return alpha == beta && s->nt == t->nt && s->ns == t->ns &&
           !memcmp(s->n, t->n, (s->nt + s->ns) * sizeof *s->n) && x->val != y->val &&
           ein__ex_of(ctx, w).i == ein__ex_of(ctx, v).i && x->nix == y->nix &&
           ein__same_shape(&ctx->value[x->val].shape, &ctx->value[y->val].shape) &&
           ctx->value[x->val].dtype == EIN__F32 && ctx->value[y->val].dtype == EIN__F32 &&
           !memcmp(x->ix, y->ix, x->nix * sizeof *x->ix);
}

// The product that nothing but map `m` reads, as term `t`, and in which sums are many.
static ein__val ein__only_term(const ein__pass *z, const ein__addend *t, const ein__scope *m) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *w, *x;
    double alpha;
    ein__val v = ein__term_in_place(ctx, t->ex, m);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || z->uses[v.i] != 1 || !ein__weighs(ctx, s, &w, &x, &alpha)) return (ein__val){0};
    int64_t reads = ein__elements(&ctx->value[x->val].shape);
    return ein__extent_of(s, ~0u) / EIN__FACTOR_REUSE >= reads ? v : (ein__val){0};
}

// The product of the sum of what term `first` of `sum`, value `v`, and those like it multiply;
// these are taken out of `sum`.
static ein__val ein__collect_terms(ein__pass *z, const ein__scope *m, ein__addition *sum, int first,
                                   ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *w, *x, *y;
    double alpha;
    ein__ex body = {0};
    ein__ix at[EIN__MAX_RANK];
    ein__weighs(ctx, ein__scope_of(ctx, v), &w, &x, &alpha);
    const ein__val old = {x->val};
    const ein__shape box = ctx->value[old.i].shape;
    for (int k = 0; k < box.rank; k++) at[k] = ein__ix_iter(ctx, (uint32_t)k, box.d[k]);
    int n = first;
    for (int k = first; k < sum->n; k++) {
        ein__val u = ein__only_term(z, &sum->t[k], m);
        if (k != first && (!u.i || !ein__weighs_alike(ctx, v, u))) {
            sum->t[n++] = sum->t[k];
            continue;
        }
        ein__weighs(ctx, ein__scope_of(ctx, u), &w, &y, &alpha);
        body = ein__add_scaled(ctx, body, sum->t[k].scale,
                               ein__ex_read(ctx, (ein__val){y->val}, 0, at, box.rank));
        if (!body.i) return (ein__val){0};
    }
    sum->n = n;
    z->self = v;
    const char *name = ein__namef(ctx, "%s.terms", ctx->value[v.i].name);
    ein__val all = ein__new_map(z, name, EIN__F32, box.rank, box.d, body);
    if (!all.i) return all;
    ein__scope s = ein__product_of_other(ctx, ein__scope_of(ctx, v), old, all);
    return ein__rule_value(z, v, "collected", &s, EIN__RULE_COLLECT);
}

// Map `v` with products of one weight that it adds up as one product.
static ein__val ein__rule_collect(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope m = *ein__scope_of(ctx, v);
    ein__addition sum = {.n = 0};
    ein__ex body = {0};
    ein__ix at[EIN__MAX_RANK];
    bool any = false;
    if (!ein__is_map(ctx, v) || ctx->value[v.i].weight_only || ctx->value[v.i].dtype != EIN__F32 ||
        !ein__list_addends(ctx, m.body, 1, &sum))
        return v;
    for (uint32_t i = 0; i < m.nt; i++) at[i] = ein__ix_iter(ctx, i, m.n[i]);
    for (int k = 0; k < sum.n; k++) {
        ein__val u = ein__only_term(z, &sum.t[k], &m);
        bool like = false;
        for (int j = k + 1; j < sum.n && u.i && !like; j++) {
            ein__val other = ein__only_term(z, &sum.t[j], &m);
            like = other.i && ein__weighs_alike(ctx, u, other);
        }
        if (!like) {
            body = ein__add_scaled(ctx, body, sum.t[k].scale, sum.t[k].ex);
            continue;
        }
        any = true;
        u = ein__collect_terms(z, &m, &sum, k--, u);
        if (!u.i) return v;
        body = ein__add_scaled(ctx, body, 1, ein__ex_read(ctx, u, 0, at, (int)m.nt));
    }
    return any && body.i ? ein__with_body(z, v, body) : v;
}

static ein__val ein__rebuild_collected(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    return now.i ? ein__rule_collect(z, now) : now;
}

// Products of sums as sums of products, and sums of products as products of sums, in the program
// under `root` where that is cheaper; `*changed` when there are any.
EIN__FN bool ein__distribute(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    ein__distributed *done = NULL;
    bool ok = true, collected = false;
    *changed = false;
    if (ein__rule_on(ctx, EIN__RULE_DISTRIBUTE))
        ok = ein__rewrite_program(ctx, root, nroot, ein__rebuild_distributed, &done, changed);
    arrfree(done);
    if (ok && ein__rule_on(ctx, EIN__RULE_COLLECT))
        ok = ein__rewrite_program(ctx, root, nroot, ein__rebuild_collected, NULL, &collected);
    *changed |= collected;
    return ok;
}
