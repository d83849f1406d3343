// Row statistics computed in the kernel that reads them. A reduction that reads others, or maps of
// others,
//     V[i] = reduce(k) g(i, k, P[E(i,k)])    P[p] = f(p, R[F(p)])    R[r] = reduce(k) h(r, k)
// where F(E(i,k)) is the same for all k, is
//     V[i] = reduce(k) g(i, k, f(E(i,k), R'[i]))    R'[i] = reduce(k) h(F(E(i)), k)
// and its kernel, which goes over the terms of a row anyway, computes R' first (ein__select_ended):
// a softmax over few values and the sums that it weights are one kernel. A statistic that several
// rows read is then computed again for each of them, which is cheaper where one thread has the row.
// Maps as large as all terms that nothing else reads, as the weights of a window are, need not be
// stored then either.

enum {
    EIN__ENDED_VALUES = 16,
    EIN__ENDED_TERMS = 64  // of a row: all of them are in registers
};

typedef struct ein__ended {
    ein__val v, map;  // the reduction; what its kernel computes behind it, or none
    bool whole;       // maps as large as its terms are taken that read no statistics
    ein__val taken[EIN__ENDED_VALUES];  // statistics and maps that it computes itself
    int ntaken;
    ein__val refused[EIN__ENDED_VALUES];  // ... and that it does not
    int nrefused;
} ein__ended;

// The new definition of a reduction in the making.
typedef struct ein__ending {
    ein_ctx *ctx;
    const ein__scope *s;
    const ein__val *taken;  // as the program has them now
    int ntaken;
    ein__val made[EIN__MAX_ROW_VALS];  // statistics, operands first
    int nmade;
    ein__val failed;  // what cannot be computed there
} ein__ending;

// ------------------------------------------------------------------------------------ rewriting

// Where term number k of the rows of `s`, counted by its iterators, is in statistic `r`: false
// where the two do not count alike.
static bool ein__ended_terms(ein_ctx *ctx, const ein__scope *s, const ein__scope *r, ein__ix *map) {
    int64_t step = 1;
    bool same = r->ns == s->ns;
    for (uint32_t i = 0; i < s->ns && same; i++) same = r->n[r->nt + i] == s->n[s->nt + i];
    for (uint32_t i = 0; i < s->ns && same; i++)
        map[r->nt + i] = ein__ix_iter(ctx, s->nt + i, s->n[s->nt + i]);
    if (same || r->ns != 1 || ein__terms_of(r) != ein__terms_of(s)) return same;
    ein__ix flat = ein__ix_const(ctx, 0);
    for (uint32_t i = s->nt + s->ns; i-- > s->nt; step *= s->n[i])
        flat = ein__ix_add(ctx, flat, ein__ix_scale(ctx, ein__ix_iter(ctx, i, s->n[i]), step));
    map[r->nt] = flat;
    return true;
}

static ein__ex ein__ended_read(ein_ctx *ctx, void *user, ein__ex ex);

// Statistic `r`, read by `e`, as one of the row of the reader.
static ein__ex ein__ended_statistic(ein__ending *z, ein__val r, const ein__expr *e) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = z->s, *was = ein__scope_of(ctx, r);
    const ein__value old = ctx->value[r.i];
    ein__scope t = {.reduce = was->reduce, .nt = s->nt, .ns = s->ns};
    ein__shape shape = {.rank = (int)s->nt};
    ein__ix map[EIN__MAX_ITERS], own[EIN__MAX_RANK];
    uint32_t rows = (1u << s->nt) - 1;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        bool inside = f->q == 1 && f->lo >= 0 && f->hi < was->n[k];
        if (!inside || (ein__ix_uses(ctx, e->ix[k]) & ~rows) || ein__ix_has_gather(ctx, e->ix[k]))
            return (ein__ex){0};
        map[k] = e->ix[k];
    }
    if (!ein__ended_terms(ctx, s, was, map)) return (ein__ex){0};
    t.body = ein__ex_subst(ctx, was->body, map, (int)(was->nt + was->ns));
    if (t.body.i) t.body = ein__ex_replace_reads(ctx, t.body, ein__ended_read, z);
    memcpy(t.n, s->n, sizeof t.n);
    ein__sc sc = t.body.i && !z->failed.i ? ein__sc_make(ctx, &t) : (ein__sc){0};
    if (!sc.i) return (ein__ex){0};
    for (uint32_t k = 0; k < s->nt; k++) {
        shape.d[k] = s->n[k];
        own[k] = ein__ix_iter(ctx, k, s->n[k]);
    }
    int i = 0;
    while (i < z->nmade && ctx->value[z->made[i].i].scope.i != sc.i) i++;
    if (i + 1 == EIN__MAX_ROW_VALS) return (ein__ex){0};
    if (i == z->nmade)
        z->made[z->nmade++] =
            ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &shape, EIN__F32, old.node);
    return ein__ex_read(ctx, z->made[i], 0, own, (int)s->nt);
}

static ein__ex ein__ended_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__ending *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val p = {e->val};
    bool take = false;
    for (int i = 0; i < z->ntaken; i++) take |= z->taken[i].i == p.i;
    if (!take || z->failed.i) return ex;
    ein__ex made;
    if (ein__is_map(ctx, p)) {
        made = ein__rule_inline(ctx, p, e);
        if (made.i) made = ein__ex_replace_reads(ctx, made, ein__ended_read, z);
    } else {
        made = ein__ended_statistic(z, p, e);
    }
    if (!made.i && !z->failed.i) z->failed = p;
    return made.i ? made : ex;
}

// The definition of reduction `v` that computes what is taken.
static ein__ex ein__ended_body(ein__ending *z, ein__val v) {
    z->s = ein__scope_of(z->ctx, v);
    ein__ex body = ein__ex_replace_reads(z->ctx, z->s->body, ein__ended_read, z);
    return z->failed.i ? (ein__ex){0} : body;
}

// ------------------------------------------------------------------------------------ choosing

static bool ein__is_among(const ein__val *list, int n, ein__val v) {
    bool found = false;
    for (int i = 0; i < n; i++) found |= list[i].i == v.i;
    return found;
}

// Whether `p` may be computed by the threads of reduction `s`.
static bool ein__may_end(const ein__selector *z, const ein__ended *c, const ein__scope *s,
                         ein__val p) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *r = ein__scope_of(ctx, p);
    ein__kind kind = z->kind[z->home[p.i].i];
    if (!r || z->root[p.i] || ctx->value[p.i].weight_only || ein__is_kept(ctx, p) ||
        ein__is_among(c->refused, c->nrefused, p) || ctx->value[p.i].dtype > EIN__BF16)
        return false;
    if (kind != EIN__K_MAP && kind != EIN__K_ROW && kind != EIN__K_REDUCE) return false;
    if (r->reduce == EIN__R_NONE) return !ein__joins(ctx, p);
    int64_t rows = ein__outputs_of(s), terms = ein__terms_of(s);
    if (ein__outputs_of(r) < rows && !ein__is_threads_row(rows, terms)) return false;
    uint32_t apart;
    return ein__terms_of(r) == terms && ein__sums_together(ctx, r, &apart) == 1 &&
           (!ein__is_contraction(ctx, r) || ein__is_square(ctx, r));
}

// Adds what `ex` reads of statistics to what is taken, and the maps by way of which it does. Gives
// whether it reads any.
static bool ein__ended_collect(const ein__selector *z, ein__ended *c, const ein__scope *s,
                               ein__ex ex, int depth) {
    ein_ctx *ctx = z->ctx;
    bool any = false;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val p = {ein__ex_get(ctx, reads[i])->val};
        bool known = ein__is_among(c->taken, c->ntaken, p);
        any |= known;
        if (known || depth == EIN__NORM_DEPTH || !ein__may_end(z, c, s, p)) continue;
        bool below = ein__ended_collect(z, c, s, ein__scope_of(ctx, p)->body, depth + 1);
        bool large = ein__elements(&ctx->value[p.i].shape) == ein__extent_of(s, ~0u);
        if (!below && ein__is_map(ctx, p) && !(c->whole && large)) continue;
        if (c->ntaken < EIN__ENDED_VALUES) c->taken[c->ntaken++] = p;
        any = true;
    }
    return any;
}

// Whether nothing else needs what is taken.
static bool ein__ended_alone(const ein__selector *z, const ein__ended *c) {
    bool alone = true;
    for (int i = 0; i < c->ntaken; i++) {
        const int *first = &z->readers.first[c->taken[i].i];
        alone = alone && first[1] - first[0] == z->uses[c->taken[i].i];
        for (int k = first[0]; k < first[1] && alone; k++) {
            ein__val by = z->readers.all[k];
            alone = by.i == c->v.i || ein__is_among(c->taken, c->ntaken, by);
        }
    }
    return alone;
}

// What the kernel that stores `home` costs.
static int64_t ein__home_cost(const ein__selector *z, ein__val home) {
    ein_ctx *ctx = z->ctx;
    int64_t out[EIN__MAX_RANK];
    ein__kernel k = {.kind = z->kind[home.i], .size = ein__element_size(ctx, home), .out = out};
    if (ein__copy_of(ctx, home)) return 0;
    if (k.kind == EIN__K_MAP) return ein__kernel_cost(ctx, home);
    for (ein__val v = z->first[home.i]; v.i && k.n < EIN__MAX_ROW_VALS; v = z->next[v.i]) {
        if (v.i != home.i) k.inner[k.n] = v;
        k.s[k.n++] = ein__scope_of(ctx, v);
    }
    ein__dense_result(ein__scope_of(ctx, home), out);
    return ein__cost_kernel(ctx, &k);
}

// What the kernels cost now that compute the reduction and what is taken; all that they store is.
static int64_t ein__ended_now(const ein__selector *z, const ein__ended *c) {
    int64_t all = ein__home_cost(z, z->home[c->v.i]);
    for (int i = 0; i < c->ntaken; i++) {
        ein__val home = z->home[c->taken[i].i];
        if (home.i == c->taken[i].i) all = ein__cost_sum(all, ein__home_cost(z, home));
        else if (!ein__is_among(c->taken, c->ntaken, home) && home.i != z->home[c->v.i].i) return 0;
    }
    return all;
}

// What one kernel costs; none: there cannot be one, for what is refused then.
static int64_t ein__ended_cost(const ein__selector *z, ein__ended *c) {
    ein_ctx *ctx = z->ctx;
    ein__ending e = {.ctx = ctx, .taken = c->taken, .ntaken = c->ntaken};
    ein__attempt attempt = ein__try(ctx);
    ein__scope s = *ein__scope_of(ctx, c->v);
    ein__val last = c->map.i ? c->map : c->v;
    int64_t out[EIN__MAX_RANK], ps = EIN__PS_LIMIT;
    ein__kernel k = {.kind = EIN__K_ROW, .size = ein__element_size(ctx, last), .out = out};
    s.body = ein__ended_body(&e, c->v);
    ein__sc sc = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (e.failed.i && c->nrefused < EIN__ENDED_VALUES) c->refused[c->nrefused++] = e.failed;
    if (sc.i && e.nmade) {
        for (int i = 0; i < e.nmade; i++) {
            k.inner[k.n] = e.made[i];
            k.s[k.n++] = ein__scope_of(ctx, e.made[i]);
        }
        if (c->map.i) k.inner[k.n] = c->v;
        k.s[k.n++] = ein__sc_get(ctx, sc);
        if (c->map.i) k.s[k.n++] = ein__scope_of(ctx, c->map);
        ein__dense_result(k.s[k.n - 1], out);
        bool fits = k.n < EIN__MAX_ROW_VALS;
        for (int i = 0; i < e.nmade; i++) fits &= !ein__ex_looks_up(ctx, s.body, e.made[i]);
        if (fits) ps = ein__cost_kernel(ctx, &k);
    }
    return ein__tried(ctx, attempt) ? ps : EIN__PS_LIMIT;
}

// What reduction `c->v` gains by what it reads of statistics, with maps that it may take or
// without; 0: nothing.
static int64_t ein__ended_gain(const ein__selector *z, ein__ended *c) {
    const ein__scope *s = ein__scope_of(z->ctx, c->v);
    for (bool again = true; again;) {
        int refused = c->nrefused;
        c->ntaken = 0;
        if (!ein__ended_collect(z, c, s, s->body, 0) || c->ntaken == EIN__ENDED_VALUES) return 0;
        if (ein__ended_alone(z, c)) {
            int64_t gain = ein__ended_now(z, c) - ein__ended_cost(z, c);
            if (gain > 0) return gain;
        }
        again = c->nrefused > refused && c->nrefused < EIN__ENDED_VALUES;
    }
    return 0;
}

// Whether reduction `v` is better with the statistics that it reads.
static bool ein__ended_choose(const ein__selector *z, ein__val v, ein__ended *c) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    uint32_t apart;
    *c = (ein__ended){.v = v};
    if (!s || s->reduce == EIN__R_NONE || s->ns == 0 || ctx->value[v.i].weight_only ||
        ein__is_kept(ctx, v) || ein__sums_together(ctx, s, &apart) > 1 ||
        ctx->value[v.i].dtype > EIN__BF16 || z->kind[z->home[v.i].i] != EIN__K_REDUCE ||
        ein__terms_of(s) > EIN__ENDED_TERMS || ein__norm_ahead(ctx, v))
        return false;
    if (z->home[v.i].i != v.i) c->map = z->home[v.i];
    ein__ended all = *c;
    all.whole = true;
    int64_t gain = ein__ended_gain(z, c);
    bool more = ein__ended_gain(z, &all) > gain;
    ctx->weighs |= more;
    if (more && ctx->weighing) *c = all;
    return gain > 0 || c->whole;
}

// ------------------------------------------------------------------------------------ the pass

static ein__val ein__rebuild_ended(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__ended *all = z->user;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    for (ptrdiff_t i = 0; i < arrlen(all) && now.i; i++) {
        ein__val taken[EIN__ENDED_VALUES];
        if (all[i].v.i != v.i) continue;
        for (int k = 0; k < all[i].ntaken; k++) taken[k] = z->now[all[i].taken[k].i];
        ein__ending e = {.ctx = ctx, .taken = taken, .ntaken = all[i].ntaken};
        body = ein__ended_body(&e, now);
        if (body.i) now = ein__with_body(z, v, body);
    }
    return now;
}

// Whether there is a reduction that may be a statistic: most programs have none.
static bool ein__has_statistics(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *order = ein__live(ctx, root, nroot);
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(order) && !any; i++) {
        const ein__scope *s = ein__scope_of(ctx, order[i]);
        any = s && s->reduce != EIN__R_NONE && !ctx->value[order[i].i].weight_only &&
              (!ein__is_contraction(ctx, s) || ein__is_square(ctx, s));
    }
    arrfree(order);
    return any;
}

// Lets reductions compute the statistics that they read where that is cheaper; the roots are
// replaced then.
EIN__FN bool ein__end_rows(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__selector z = {.ctx = ctx, .free = true};
    ein__ended *all = NULL, c;
    if (!ein__rule_on(ctx, EIN__RULE_NORM) || !ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->unended ||
        !ein__has_statistics(ctx, root, nroot))
        return true;
    ein__select(&z, root, nroot);
    for (ptrdiff_t i = 0; i < arrlen(z.order); i++)
        if (ein__ended_choose(&z, z.order[i], &c)) arrput(all, c);
    ein__select_free(&z);
    bool ok = !arrlen(all) || ein__run_pass_for(ctx, root, nroot, ein__rebuild_ended, all);
    arrfree(all);
    return ok && !ctx->status;
}
