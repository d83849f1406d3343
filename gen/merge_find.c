// Which contractions merge, and the pass that puts the chosen merges into the program. Groups come
// from equal forms of expressions; a merge is taken when the merged contraction and what reads it
// cost less than the members do alone.
//
//   shared input      V1 = sum(c) x k1, V2 = sum(c) x k2   =>  V = sum(c) x [k1 k2]
//   batched           V1 = sum(c) x1 k1, V2 = sum(c) x2 k2 =>  V[b] = sum(c) [x1 x2][b] [k1 k2][b]
//   sum of products   sum(c) x1 k1 + sum(d) x2 k2          =>  sum(c,d) [x1 x2] [k1 k2]

// ------------------------------------------------------------------------------------ frames

// The window that covers all members' windows on subscript `dim`: its step, first offset, extent.
static bool ein__hull(const ein__part *const *p, int n, int dim, int64_t *k, int64_t *lo,
                      int64_t *extent) {
    int64_t hi = 0;
    *k = *lo = 0;
    for (int i = 0; i < n; i++) {
        const ein__axis *a = &p[i]->axis[dim];
        int64_t last = a->c + a->k * (a->n - 1);
        if (a->n > 1 && *k && *k != a->k) return false;
        if (a->n > 1) *k = a->k;
        if (!i || a->c < *lo) *lo = a->c;
        if (!i || last > hi) hi = last;
    }
    if (*k == 0) *k = 1;
    for (int i = 0; i < n; i++)
        if ((p[i]->axis[dim].c - *lo) % *k) return false;
    *extent = (hi - *lo) / *k + 1;
    return true;
}

static void ein__add_guard(ein__joint *f, int i, ein__ix ix, int64_t n) {
    f->guard[i][f->nguard[i]].ix = ix;
    f->guard[i][f->nguard[i]++].n = n;
}

// Adds the reductions of the hulls of all windows but that of subscript `skip`, and members' places
// in them. `form` receives every subscript's part in the merged reductions.
static bool ein__joint_windows(ein_ctx *ctx, ein__joint *f, const ein__part *const *p, int skip,
                               ein__ix *form) {
    int rank = (int)ein__ex_get(ctx, p[0]->x)->nix;
    for (int d = 0; d < rank; d++) {
        int64_t k, lo, n;
        form[d] = ein__ix_const(ctx, 0);
        if (d == skip) continue;
        if (!ein__hull(p, f->np, d, &k, &lo, &n) || f->s.nt + f->s.ns >= EIN__MAX_ITERS)
            return false;
        uint32_t slot = f->s.nt + f->s.ns;
        ein__ix r = ein__ix_iter(ctx, slot, n);
        if (n > 1) f->s.n[f->s.nt + f->s.ns++] = n;
        form[d] = ein__ix_addc(ctx, ein__ix_scale(ctx, r, k), lo);
        for (int i = 0; i < f->np; i++) {
            const ein__axis *a = &p[i]->axis[d];
            ein__ix mine = ein__ix_addc(ctx, r, -(a->c - lo) / k);
            if (n != a->n) ein__add_guard(f, i, mine, a->n);
            if (a->slot < 0) continue;
            f->map[i][a->slot] =
                a->flip ? ein__ix_addc(ctx, ein__ix_scale(ctx, mine, -1), a->n - 1) : mine;
        }
    }
    f->s.reduce = f->s.ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    return f->s.ns > 0;
}

// The subscripts of member `i`'s data with the merged reductions.
static void ein__joint_subscripts(ein_ctx *ctx, const ein__joint *f, const ein__part *p, int i,
                                  const ein__ix *form, ein__ix *ix) {
    const ein__expr *x = ein__ex_get(ctx, p->x);
    for (uint32_t d = 0; d < x->nix; d++)
        ix[d] =
            ein__ix_div(ctx, ein__ix_add(ctx, ein__axis_plain(ctx, p, (int)d, f->map[i]), form[d]),
                        ein__ix_get(ctx, x->ix[d])->q);
}

static void ein__joint_clear(ein_ctx *ctx, ein__joint *f, int np) {
    *f = (ein__joint){.np = np, .joined = -1};
    for (int i = 0; i < np; i++)
        for (int t = 0; t < EIN__MAX_ITERS; t++) {
            f->map[i][t] = ein__ix_const(ctx, 0);
            f->slot[i][t] = -1;
        }
}

// Dimensions of a merged value as slots of member `p`, -1 for one of extent 1: the member's own
// ones, or (when nobody but new definitions reads it) those of x in their order, with the others
// where the reduction is.
static int ein__joint_order(ein_ctx *ctx, const ein__part *p, bool own, int *slot) {
    const ein__scope *s = ein__sc_get(ctx, p->sc);
    const ein__expr *x = ein__ex_get(ctx, p->x);
    uint32_t traversal = (1u << s->nt) - 1, listed = 0;
    int n = 0;
    if (own) {
        for (uint32_t t = 0; t < s->nt; t++) slot[n++] = s->n[t] > 1 ? (int)t : -1;
        return n;
    }
    for (uint32_t d = 0; d <= x->nix; d++) {
        uint32_t uses = d < x->nix ? ein__ix_uses(ctx, x->ix[d]) : ~0u, now = uses & p->in_x;
        if (uses & ~traversal) now |= ~p->in_x;
        for (int c = 0; c < p->ncanon; c++) {
            uint32_t bit = 1u << p->canon[c];
            if (!(now & bit & traversal) || (listed & bit)) continue;
            listed |= bit;
            slot[n++] = p->canon[c];
        }
    }
    return n;
}

// Traversal slots of the weights alone are counted by one dimension, in which members follow each
// other. It stands where the first member that has such slots has its last one (or first one).
static bool ein__shared_slots(ein_ctx *ctx, ein__joint *f, const ein__part *const *p, bool own,
                              bool last) {
    int64_t total = 0;
    int base = -1, place = -1, slot[EIN__MAX_ITERS];
    for (int i = 0; i < f->np; i++) {
        const ein__scope *s = ein__sc_get(ctx, p[i]->sc);
        int64_t n = 1;
        for (uint32_t t = 0; t < s->nt; t++) {
            if (s->n[t] == 1 || (p[i]->in_x >> t & 1)) continue;
            f->flat[i] |= 1u << t;
            n = ein__muldiv(n, s->n[t], 1);
        }
        f->at[i] = total;
        total += n;
        if (total > INT32_MAX) return false;
        if (base < 0 && f->flat[i]) base = i;
    }
    bool none = base < 0;
    if (none) base = 0;
    int n = ein__joint_order(ctx, p[base], own, slot);
    for (int k = 0; k < n; k++) {
        bool here = slot[k] < 0 ? none : (f->flat[base] >> slot[k] & 1) != 0;
        if (here && (last || place < 0)) place = k;
    }
    if (place < 0) {
        f->joined = 0;
        f->s.n[f->s.nt++] = total;
    }
    for (int k = 0; k < n; k++) {
        if (k == place) f->joined = (int)f->s.nt;
        else if (slot[k] >= 0 && (f->flat[base] >> slot[k] & 1)) continue;
        if (f->s.nt == EIN__MAX_RANK) return false;
        int c = 0;
        while (c < p[base]->nx && p[base]->canon[c] != slot[k]) c++;
        f->s.n[f->s.nt++] = k == place    ? total
                            : slot[k] < 0 ? 1
                                          : ein__sc_get(ctx, p[base]->sc)->n[slot[k]];
        for (int i = 0; i < f->np && k != place && slot[k] >= 0; i++)
            f->slot[i][f->s.nt - 1] = p[i]->canon[c];
    }
    return true;
}

// Members' traversal iterators in the merged ones.
static void ein__joint_maps(ein_ctx *ctx, ein__joint *f, const ein__part *const *p) {
    ein__ix j = ein__ix_iter(ctx, (uint32_t)f->joined, f->s.n[f->joined]);
    for (int i = 0; i < f->np; i++) {
        const ein__scope *s = ein__sc_get(ctx, p[i]->sc);
        ein__ix rest = ein__ix_addc(ctx, j, -f->at[i]);
        int64_t n = 1;
        for (uint32_t m = 0; m < f->s.nt; m++)
            if (f->slot[i][m] >= 0) f->map[i][f->slot[i][m]] = ein__ix_iter(ctx, m, f->s.n[m]);
        ein__ix mine = rest;
        for (uint32_t t = s->nt; t-- > 0;) {
            if (!(f->flat[i] >> t & 1)) continue;
            n *= s->n[t];
            bool top = !(f->flat[i] & ((1u << t) - 1));
            f->map[i][t] = top ? rest : ein__ix_mod(ctx, rest, s->n[t]);
            if (!top) rest = ein__ix_floordiv(ctx, rest, s->n[t]);
        }
        ein__add_guard(f, i, mine, n);
    }
}

// ------------------------------------------------------------------------------------ merges

static void ein__merge_members(ein__merger *z, ein__merge *m, const ein__part *const *p, int n) {
    for (int i = 0; i < n; i++) {
        ein__ex read = {0};
        arrput(m->member, p[i]->member);
        arrput(m->taken, p[i]->member);
        m->members_ps +=
            ein__merge_price(z, p[i]->member, ein__map_behind(z, p[i]->member, &read), read);
    }
}

// The merge of members into windows on `wide`, and what they cost.
static bool ein__merge_windows(ein__merger *z, ein__merge *m, const ein__joint *f,
                               const ein__part *const *p, int64_t *extra) {
    for (int i = 0; i < f->np; i++) {
        ein__ex read = {0};
        ein__val v = ein__member_of(z, f, i, p[i], p[i]->member, m->wide, m->rule);
        if (!v.i) return false;
        arrput(m->old, p[i]->member);
        arrput(m->now, v);
        if (p[i]->outer.i) {
            *extra += ein__outer_cost(z, p[i], v);
            continue;
        }
        ein__val map = ein__map_behind(z, p[i]->member, &read);
        *extra += map.i ? ein__kernel_cost(z->ctx, map) : ein__window_cost(z, p[i]->member, v);
    }
    return true;
}

// The same with the maps behind the members joined as well. False when there are none, or they
// differ.
static bool ein__merge_maps(ein__merger *z, ein__merge *m, const ein__joint *f,
                            const ein__part *const *p, int64_t *extra) {
    ein_ctx *ctx = z->ctx;
    ein__val map[EIN__MERGE_GROUP];
    ein__ex read[EIN__MERGE_GROUP], body[EIN__MERGE_GROUP];
    for (int i = 0; i < f->np; i++) {
        if (p[i]->outer.i) return false;
        map[i] = ein__map_behind(z, p[i]->member, &read[i]);
        if (!map[i].i || ctx->value[map[i].i].dtype != EIN__F32) return false;
        body[i] = ein__scope_of(ctx, map[i])->body;
        if (ein__occurrences(ctx, body[i], read[i]) != 1) return false;
    }
    ein__scope s = {.reduce = EIN__R_NONE, .nt = f->s.nt};
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t t = 0; t < s.nt; t++) {
        s.n[t] = f->s.n[t];
        ix[t] = ein__ix_iter(ctx, t, s.n[t]);
    }
    m->map_read = ein__ex_read(ctx, m->wide, 0, ix, (int)s.nt);
    s.body = ein__join_bodies(z, f, body, read, m->map_read, map[0]);
    m->map = s.body.i ? ein__merge_value(z, map[0], "merged", &s, m->rule) : (ein__val){0};
    if (!m->map.i) return false;
    for (int i = 0; i < f->np; i++) {
        ein__val v = ein__member_of(z, f, i, p[i], map[i], m->map, m->rule);
        if (!v.i) return false;
        arrput(m->old, map[i]);
        arrput(m->now, v);
        arrput(m->taken, map[i]);
        *extra += ein__window_cost(z, map[i], v);
    }
    return true;
}

// Builds the merge around the merged contraction `s`, with members alone and with their maps.
static void ein__merge_around(ein__merger *z, const ein__joint *f, const ein__part *const *p,
                              const ein__scope *s, int64_t extra, const char *rule) {
    ein__val wide = ein__merge_value(z, p[0]->member, "merged", s, rule);
    for (int maps = 0; wide.i && maps < 2; maps++) {
        ein__merge m = {.rule = rule, .wide = wide};
        int64_t ps = extra;
        ein__attempt attempt = ein__try(z->ctx);
        bool ok = maps ? ein__merge_maps(z, &m, f, p, &ps) : ein__merge_windows(z, &m, f, p, &ps);
        if (ein__tried(z->ctx, attempt) && ok && !z->ctx->status) {
            ein__merge_members(z, &m, p, f->np);
            ein__add_merge(z, &m, ps);
        }
        ein__merge_free(&m);
    }
}

static ein__ex ein__scaled(ein_ctx *ctx, double alpha, ein__ex e) {
    return alpha == 1 ? e : ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), e);
}

static void ein__merge_shared(ein__merger *z, const ein__part *const *p, int n, bool last) {
    ein_ctx *ctx = z->ctx;
    ein__joint f;
    ein__ix form[EIN__MAX_RANK], ix[EIN__MAX_RANK];
    ein__ex w[EIN__MERGE_GROUP];
    ein__joint_clear(ctx, &f, n);
    bool own = true;
    int64_t before = 0;
    for (int i = 0; i < n; i++) {
        const ein__scope *s = ein__sc_get(ctx, p[i]->sc);
        own &= !p[i]->outer.i;
        before += ein__slots_volume(s, ~0u);
    }
    if (!ein__shared_slots(ctx, &f, p, own, last)) return;
    ein__joint_maps(ctx, &f, p);
    f.apart = true;
    if (!ein__joint_windows(ctx, &f, p, -1, form)) return;
    // Windows padded this much are nobody's gain.
    if (ein__slots_volume(&f.s, ~0u) / EIN__MERGE_PADDING > before) return;
    ein__joint_subscripts(ctx, &f, p[0], 0, form, ix);
    const ein__expr *x = ein__ex_get(ctx, p[0]->x);
    ein__ex data = ein__ex_read(ctx, (ein__val){x->val}, 0, ix, (int)x->nix);
    for (int i = 0; i < n; i++) w[i] = ein__scaled(ctx, p[i]->alpha, p[i]->w);
    ein__ex weights = ein__side_by_side(z, &f, w, true, p[0]->member, "weights");
    if (!data.i || !weights.i) return;
    ein__scope s = f.s;
    s.body = ein__ex_binary(ctx, EIN__MUL, data, weights);
    ein__merge_around(z, &f, p, &s, 0, "merging: shared input");
}

// ------------------------------------------------------------------------------------ batched

// Factor `x` of member 0 read from the members' factors laid one behind the other along the first
// dimension that is read inside its box (`grouped`: along the one that the reduction runs through).
static ein__ex ein__stacked(ein__merger *z, const ein__joint *f, const ein__part *const *p,
                            bool second, bool grouped, int64_t *extra) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *x = ein__ex_get(ctx, second ? p[0]->w : p[0]->x);
    ein__val part[EIN__MERGE_GROUP];
    ein__ix ix[EIN__MAX_RANK];
    int axis = -1;
    bool same = true;
    for (int i = 0; i < f->np; i++) {
        part[i] = (ein__val){ein__ex_get(ctx, second ? p[i]->w : p[i]->x)->val};
        same &= part[i].i == part[0].i;
    }
    for (uint32_t d = 0; d < x->nix; d++) {
        const ein__index *g = ein__ix_get(ctx, x->ix[d]);
        uint32_t slot = 0;
        bool inside = g->q == 1 && g->lo >= 0 && g->hi < ctx->value[x->val].shape.d[d];
        bool reduced =
            ein__ix_is_iter(ctx, x->ix[d], &slot) && slot >= ein__sc_get(ctx, p[0]->sc)->nt;
        if (axis < 0 && inside && (!grouped || reduced)) axis = (int)d;
        ix[d] = ein__ix_subst(ctx, x->ix[d], f->map[0], EIN__MAX_ITERS);
    }
    if (same) return ein__ex_read(ctx, part[0], 0, ix, (int)x->nix);
    if (axis < 0) return (ein__ex){0};
    ein__ix b = ein__ix_iter(ctx, (uint32_t)f->joined, f->np);
    ix[axis] = ein__ix_add(ctx, ix[axis], ein__ix_scale(ctx, b, ctx->value[x->val].shape.d[axis]));
    ein__val all = ein__concatenate(z, part, f->np, axis);
    if (all.i) *extra += ein__concat_cost(z, all, part, f->np, axis);
    return all.i ? ein__ex_read(ctx, all, 0, ix, (int)x->nix) : (ein__ex){0};
}

// Equal contractions of different operands as one, with a new dimension that counts them: in front,
// or (`grouped`) before the dimensions of the weights alone.
static void ein__merge_batched(ein__merger *z, const ein__part *const *p, int n, bool grouped) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, p[0]->sc);
    const bool weight = ctx->value[ein__ex_get(ctx, p[0]->w)->val].weight_only;
    ein__joint f;
    ein__ex w[EIN__MERGE_GROUP];
    int64_t extra = 0;
    bool own = true;
    int slot[EIN__MAX_ITERS], place = 0;
    for (int i = 0; i < n; i++) own &= !p[i]->outer.i;
    ein__joint_clear(ctx, &f, n);
    int nd = ein__joint_order(ctx, p[0], own, slot);
    while (grouped && place < nd && (slot[place] < 0 || (p[0]->in_x >> slot[place] & 1))) place++;
    if ((grouped && (!place || !weight)) || nd >= EIN__MAX_RANK || nd + s->ns >= EIN__MAX_ITERS)
        return;
    f.joined = place;
    f.apart = true;
    f.s.reduce = s->reduce;
    f.s.nt = (uint32_t)nd + 1;
    for (int k = 0; k < nd; k++) {
        int to = k < place ? k : k + 1, c = 0;
        f.s.n[to] = slot[k] < 0 ? 1 : s->n[slot[k]];
        while (c < p[0]->ncanon && p[0]->canon[c] != slot[k]) c++;
        for (int i = 0; i < n && slot[k] >= 0; i++) {
            f.slot[i][to] = p[i]->canon[c];
            f.map[i][p[i]->canon[c]] = ein__ix_iter(ctx, (uint32_t)to, f.s.n[to]);
        }
    }
    for (int c = 0; c < p[0]->ncanon; c++) {
        if (p[0]->canon[c] < (int)s->nt) continue;
        uint32_t to = f.s.nt + f.s.ns++;
        f.s.n[to] = s->n[p[0]->canon[c]];
        for (int i = 0; i < n; i++) f.map[i][p[i]->canon[c]] = ein__ix_iter(ctx, to, f.s.n[to]);
    }
    f.s.n[place] = n;
    for (int i = 0; i < n; i++) {
        f.at[i] = i;
        ein__add_guard(&f, i, ein__ix_addc(ctx, ein__ix_iter(ctx, (uint32_t)place, n), -i), 1);
        w[i] = ein__scaled(ctx, p[i]->alpha, p[i]->w);
    }
    ein__ex x = ein__stacked(z, &f, p, false, grouped, &extra);
    ein__ex y = weight ? ein__side_by_side(z, &f, w, true, p[0]->member, "weights")
                       : ein__scaled(ctx, p[0]->alpha, ein__stacked(z, &f, p, true, false, &extra));
    if (!x.i || !y.i) return;
    f.s.body = ein__ex_binary(ctx, EIN__MUL, x, y);
    if (!(ein__ex_uses(ctx, f.s.body) >> place & 1)) return;
    ein__merge_around(z, &f, p, &f.s, extra, "merging: batched");
}

// ------------------------------------------------------------------------------------ sums

// Whether the contractions can be one with their data laid one behind the other along `*axis` (-1:
// they read the same data), in the traversal that they have in common.
static bool ein__sum_fits(ein_ctx *ctx, const ein__part *a, const ein__part *b, int *axis) {
    const ein__expr *x = ein__ex_get(ctx, a->x), *y = ein__ex_get(ctx, b->x);
    const ein__scope *s = ein__sc_get(ctx, a->sc), *t = ein__sc_get(ctx, b->sc);
    *axis = -1;
    if (!a->windowed || !b->windowed || x->nix != y->nix || s->nt != t->nt) return false;
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] != t->n[i]) return false;
    for (uint32_t d = 0; d < x->nix; d++) {
        const ein__shape *p = &ctx->value[x->val].shape, *q = &ctx->value[y->val].shape;
        const ein__axis *u = &a->axis[d], *v = &b->axis[d];
        uint32_t plain = 0;
        if (ein__ix_get(ctx, x->ix[d])->q != ein__ix_get(ctx, y->ix[d])->q) return false;
        for (uint32_t i = 0; i < s->nt; i++) {
            int64_t k = ein__ix_coef(ctx, x->ix[d], i);
            plain |= k != 0;
            if (k != ein__ix_coef(ctx, y->ix[d], i)) return false;
        }
        bool whole = !plain && !u->c && !v->c && u->n == p->d[d] && v->n == q->d[d] && u->k <= 1 &&
                     v->k <= 1 && !u->flip && !v->flip && ein__ix_get(ctx, x->ix[d])->q == 1 &&
                     u->n * v->n > 1;
        if (x->val != y->val && whole && *axis < 0) *axis = (int)d;
        else if (p->d[d] != q->d[d]) return false;
    }
    return x->val == y->val || *axis >= 0;
}

typedef struct ein__sum {
    ein__ex read[EIN__MERGE_GROUP];
    int n;
    ein__ex now;  // the first read becomes this, the others 0
} ein__sum;

static ein__ex ein__replace_terms(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__sum *z = user;
    for (int i = 0; i < z->n; i++)
        if (z->read[i].i == ex.i) return i ? ein__ex_const(ctx, 0) : z->now;
    return ex;
}

static void ein__merge_sum(ein__merger *z, ein__val map, const ein__part *const *p, ein__sum *sum,
                           int axis) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *t = ein__sc_get(ctx, p[0]->sc);
    const ein__expr *x = ein__ex_get(ctx, p[0]->x);
    ein__joint f;
    ein__ix form[EIN__MAX_RANK], ix[EIN__MAX_RANK];
    ein__val part[EIN__MERGE_GROUP];
    ein__ex w[EIN__MERGE_GROUP];
    int64_t total = 0, extra = 0;
    ein__joint_clear(ctx, &f, sum->n);
    f.s.nt = t->nt;
    for (uint32_t i = 0; i < t->nt; i++) {
        f.s.n[i] = t->n[i];
        for (int k = 0; k < f.np; k++) f.map[k][i] = ein__ix_iter(ctx, i, t->n[i]);
    }
    for (int i = 0; i < f.np; i++) {
        part[i] = (ein__val){ein__ex_get(ctx, p[i]->x)->val};
        w[i] = ein__scaled(ctx, p[i]->alpha, p[i]->w);
        if (axis >= 0) total += p[i]->axis[axis].n;
    }
    if (axis >= 0) {
        uint32_t slot = f.s.nt + f.s.ns++;
        ein__ix c = ein__ix_iter(ctx, slot, f.s.n[slot] = total);
        int64_t at = 0;
        for (int i = 0; i < f.np; i++) {
            ein__ix mine = ein__ix_addc(ctx, c, -at);
            ein__add_guard(&f, i, mine, p[i]->axis[axis].n);
            if (p[i]->axis[axis].slot >= 0) f.map[i][p[i]->axis[axis].slot] = mine;
            at += p[i]->axis[axis].n;
        }
        f.apart = true;
        if (!ein__joint_windows(ctx, &f, p, axis, form)) return;
        f.s.reduce = EIN__R_SUM;
        form[axis] = c;
        ein__val all = ein__concatenate(z, part, f.np, axis);
        if (all.i) extra = ein__concat_cost(z, all, part, f.np, axis);
        part[0] = all;
    } else if (!ein__joint_windows(ctx, &f, p, axis, form)) {
        return;
    }
    ein__joint_subscripts(ctx, &f, p[0], 0, form, ix);
    ein__ex data = part[0].i ? ein__ex_read(ctx, part[0], 0, ix, (int)x->nix) : (ein__ex){0};
    ein__ex weights = ein__side_by_side(z, &f, w, true, p[0]->member, "weights");
    ein__merge m = {.rule = "merging: sum of products"};
    ein__scope s = f.s, behind = *ein__scope_of(ctx, map);
    s.body = data.i && weights.i ? ein__ex_binary(ctx, EIN__MUL, data, weights) : (ein__ex){0};
    m.wide = s.body.i ? ein__merge_value(z, p[0]->member, "merged", &s, m.rule) : (ein__val){0};
    if (!m.wide.i) return;
    const ein__expr *r = ein__ex_get(ctx, sum->read[0]);
    m.map_read = sum->now = ein__ex_read(ctx, m.wide, 0, r->ix, (int)r->nix);
    behind.body = ein__ex_replace_reads(ctx, behind.body, ein__replace_terms, sum);
    m.map = behind.body.i ? ein__merge_value(z, map, NULL, &behind, m.rule) : (ein__val){0};
    if (!m.map.i) return;
    arrput(m.old, map);
    arrput(m.now, m.map);
    arrput(m.taken, map);
    for (int i = 0; i < f.np; i++) {
        arrput(m.member, p[i]->member);
        arrput(m.taken, p[i]->member);
        m.members_ps += ein__merge_price(z, p[i]->member, i ? (ein__val){0} : map, sum->read[i]);
    }
    ein__add_merge(z, &m, extra);
    ein__merge_free(&m);
}

static void ein__sum_terms_of(ein__merger *z, const ein__scope *s, ein__ex ex, ein__ex **term) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ein__is_sum(ctx, ex))
        for (int k = 0; k < 2; k++) ein__sum_terms_of(z, s, e->kid[k], term);
    if (e->op != EIN__X_READ || z->uses[e->val] != 1 || z->root[e->val]) return;
    const ein__value *v = &ctx->value[e->val];
    const ein__scope *c = ein__scope_of(ctx, (ein__val){e->val});
    if (c && !v->weight_only && v->dtype == EIN__F32 && ein__is_contraction(ctx, c) &&
        ein__reads_in_place(ctx, e, s))
        arrput(*term, ex);
}

static const ein__part *ein__whole_part(const ein__merger *z, uint32_t val) {
    for (ptrdiff_t i = 0; i < arrlen(z->part); i++)
        if (z->part[i].member.i == val && !z->part[i].outer.i) return &z->part[i];
    return NULL;
}

// Sums of contractions in map `v`, in sub-expression `ex`: each with those that fit its first term.
static void ein__find_sums(ein__merger *z, ein__val v, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__ex *term = NULL;
    if (!ein__is_sum(ctx, ex)) {
        for (uint32_t i = 0; i < e->nkid; i++) ein__find_sums(z, v, e->kid[i]);
        return;
    }
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__sum_terms_of(z, s, ex, &term);
    for (ptrdiff_t a = 0; a + 1 < arrlen(term); a++) {
        const ein__part *p[EIN__MERGE_GROUP] = {ein__whole_part(z, ein__ex_get(ctx, term[a])->val)};
        ein__sum sum = {.n = 1, .read = {term[a]}};
        int axis = -1, other;
        for (ptrdiff_t b = a + 1; p[0] && b < arrlen(term) && sum.n < EIN__MERGE_GROUP; b++) {
            p[sum.n] = ein__whole_part(z, ein__ex_get(ctx, term[b])->val);
            if (!p[sum.n] || !ein__sum_fits(ctx, p[0], p[sum.n], &other)) continue;
            if (sum.n > 1 && other != axis) continue;
            axis = other;
            sum.read[sum.n++] = term[b];
        }
        bool once = sum.n > 1;
        for (int i = 0; i < sum.n; i++) once &= ein__occurrences(ctx, s->body, sum.read[i]) == 1;
        if (once && z->tries++ < EIN__MERGE_TRIES) ein__merge_sum(z, v, p, &sum, axis);
        if (once) break;
    }
    arrfree(term);
}

// ------------------------------------------------------------------------------------ the program

static void ein__merger_look(ein__merger *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t n = arrlen(ctx->value);
    z->first = (uint32_t)n;
    z->order = ein__live(ctx, root, nroot);
    z->uses = ein__count_uses(ctx, z->order, root, nroot);
    arrsetlen(z->level, n);
    arrsetlen(z->root, n);
    arrsetlen(z->behind, n);
    arrsetlen(z->behind_read, n);
    memset(z->level, 0, (size_t)n * sizeof *z->level);
    memset(z->root, 0, (size_t)n * sizeof *z->root);
    memset(z->behind, 0, (size_t)n * sizeof *z->behind);
    memset(z->behind_read, 0, (size_t)n * sizeof *z->behind_read);
    for (int k = 0; k < nroot; k++) z->root[root[k].i] = true;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (!s || ctx->value[v.i].weight_only) continue;
        ein__ex *reads = NULL;
        ein__ex_reads(ctx, s->body, &reads);
        bool copy = ein__copy_of(ctx, v) != NULL, map = s->reduce == EIN__R_NONE && !copy;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            const ein__expr *r = ein__ex_get(ctx, reads[k]);
            int times = 0;
            for (ptrdiff_t j = 0; j < arrlen(reads); j++)
                times += ein__ex_get(ctx, reads[j])->val == r->val;
            if (z->level[r->val] >= z->level[v.i]) z->level[v.i] = z->level[r->val] + 1;
            if (!map || times > 1 || z->uses[r->val] != 1 || z->root[r->val] ||
                !ein__reads_in_place(ctx, r, s))
                continue;
            z->behind[r->val] = v;
            z->behind_read[r->val] = reads[k];
        }
        arrfree(reads);
        if (ein__is_contraction(ctx, s) && ctx->value[v.i].dtype == EIN__F32) arrput(z->product, v);
    }
}

static void ein__merger_forget(ein__merger *z) {
    arrfree(z->order);
    arrfree(z->product);
    arrfree(z->uses);
    arrfree(z->level);
    arrfree(z->root);
    arrfree(z->behind);
    arrfree(z->behind_read);
    arrfree(z->part);
}

// The contractions that contraction `v` has inside by summation splitting.
static void ein__split_parts(ein__merger *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__deriver d = ein__deriver_of(ctx, v, (ein__val){0}, (ein__ex){0});
    ein__attempt attempt = ein__try(ctx);
    arrput(d.cls, v);
    ein__add_def(&d, v, ein__scope_of(ctx, v), -1, NULL, false);
    ein__rule_split(&d, 0);
    bool ok = ein__tried(ctx, attempt) && !ctx->status;
    for (ptrdiff_t i = 1; ok && i < arrlen(d.def); i++) {
        const ein__expr *e = ein__ex_get(ctx, ein__sc_get(ctx, d.def[i].sc)->body);
        if (d.def[i].cls.i != v.i || e->op != EIN__X_READ || e->val < d.first) continue;
        ein__val inner = {e->val};
        ein__add_part(z, v, ctx->value[inner.i].scope, inner, d.def[i].sc);
    }
    ein__deriver_free(&d);
}

static void ein__find_parts(ein__merger *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->product); i++) {
        ein__val v = z->product[i];
        ein__add_part(z, v, ctx->value[v.i].scope, v, (ein__sc){0});
    }
    // Products inside matter where another contraction is as far from the inputs.
    for (ptrdiff_t i = 0; i < arrlen(z->product); i++) {
        ein__val v = z->product[i];
        bool peer = false;
        for (ptrdiff_t k = 0; k < arrlen(z->product); k++)
            peer |= k != i && z->level[z->product[k].i] == z->level[v.i];
        if (peer && ein__scope_of(ctx, v)->ns > 1) ein__split_parts(z, v);
    }
}

// Merges are looked for among values that the last round made, or that read such; in the first
// round everywhere.
static bool ein__is_news(const ein__merger *z, const ein__part *const *p, int n) {
    for (int i = 0; i < n; i++)
        if (p[i]->member.i >= z->changed) return true;
    return false;
}

static bool ein__spread(const ein__merger *z, const ein__part *const *p, int n) {
    int flat = 0;
    for (int i = 0; i < n; i++) {
        const ein__scope *s = ein__sc_get(z->ctx, p[i]->sc);
        int mine = 0;
        for (uint32_t t = 0; t < s->nt; t++) mine += s->n[t] > 1 && !(p[i]->in_x >> t & 1);
        if (mine > flat && !p[i]->outer.i) flat = mine;
    }
    return flat > 1;
}

typedef enum { EIN__BY_SAME, EIN__BY_NEAR, EIN__BY_LIKE } ein__group_key;

static const char *ein__part_key(const ein__part *p, ein__group_key by) {
    return by == EIN__BY_SAME ? p->same : by == EIN__BY_NEAR ? p->near : p->like;
}

static void ein__try_group(ein__merger *z, const ein__part *const *p, int n, ein__group_key by) {
    bool alike = true, whole = true;
    for (int i = 0; i < n; i++) {
        alike &= p[i]->same == p[0]->same;
        whole &= !p[i]->outer.i;
    }
    if (n < 2 || !ein__is_news(z, p, n) || (by == EIN__BY_NEAR && alike)) return;
    int variants = by == EIN__BY_LIKE ? 1 + whole : 1 + ein__spread(z, p, n);
    for (int k = 0; k < variants && z->tries++ < EIN__MERGE_TRIES; k++) {
        ein__attempt attempt = ein__try(z->ctx);
        if (by == EIN__BY_LIKE) ein__merge_batched(z, p, n, k);
        else ein__merge_shared(z, p, n, k == 0);
        ein__tried(z->ctx, attempt);
        if (z->ctx->status) return;
    }
}

// Parts with one key, one of each member, in the program's order.
static void ein__find_groups(ein__merger *z, ein__group_key by) {
    bool *done = NULL;
    arrsetlen(done, arrlen(z->part) + 1);
    memset(done, 0, (size_t)arrlen(done));
    for (ptrdiff_t a = 0; a < arrlen(z->part) && !z->ctx->status; a++) {
        const ein__part *p[EIN__MERGE_GROUP];
        const char *key = ein__part_key(&z->part[a], by);
        int n = 0;
        if (!key || done[a]) continue;
        for (ptrdiff_t b = a; b < arrlen(z->part); b++) {
            if (ein__part_key(&z->part[b], by) != key || done[b]) continue;
            bool known = false;
            for (int i = 0; i < n; i++) known |= p[i]->member.i == z->part[b].member.i;
            done[b] = true;
            if (!known) p[n++] = &z->part[b];
            if (n < EIN__MERGE_GROUP) continue;
            ein__try_group(z, p, n, by);
            n = 0;
        }
        ein__try_group(z, p, n, by);
    }
    arrfree(done);
}

// The cheapest merges that have no value in common, in the order of what they save.
static bool ein__choose_merges(ein__merger *z, ptrdiff_t from) {
    ein__val *taken = NULL;
    bool any = false;
    for (;;) {
        ein__merge *best = NULL;
        for (ptrdiff_t i = from; i < arrlen(z->found); i++) {
            ein__merge *m = &z->found[i];
            bool free = !m->chosen && m->ps < m->members_ps;
            for (ptrdiff_t k = 0; free && k < arrlen(m->taken); k++)
                for (ptrdiff_t t = 0; t < arrlen(taken); t++) free &= taken[t].i != m->taken[k].i;
            if (free && (!best || m->members_ps - m->ps > best->members_ps - best->ps)) best = m;
        }
        if (!best) break;
        best->chosen = any = true;
        for (ptrdiff_t k = 0; k < arrlen(best->taken); k++) arrput(taken, best->taken[k]);
    }
    arrfree(taken);
    return any;
}

// ------------------------------------------------------------------------------------ the pass

typedef struct ein__redirect {
    ein__val *to;        // by value: what stands in its place, or none
    ein__val *now;       // by value: what it has become
    bool *output;        // by value: stands for an output, of which every one is a value of its own
    ein__val *by_scope;  // so that equal definitions are one value
} ein__redirect;

static ein__ex ein__redirect_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__redirect *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = z->now[e->val];
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return ein__ex_read(ctx, v.i ? v : (ein__val){e->val}, pad, e->ix, (int)e->nix);
}

static ein__val ein__redirected(ein_ctx *ctx, ein__redirect *z, ein__val v) {
    if (z->to[v.i].i) return z->now[z->to[v.i].i];
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s) return v;
    const ein__value old = ctx->value[v.i];
    ein__scope t = *s;
    t.body = ein__ex_replace_reads(ctx, s->body, ein__redirect_read, z);
    ein__sc sc = t.body.i ? ein__sc_make(ctx, &t) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc.i) arrput(z->by_scope, (ein__val){0});
    ein__val twin = z->by_scope[sc.i];
    bool own = z->output[v.i];
    if (twin.i && !own && ctx->value[twin.i].dtype == old.dtype) return twin;
    if (sc.i != old.scope.i) {
        v = ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype,
                         old.node);
        ctx->value[v.i].why = old.why;
    }
    if (!twin.i && !own) z->by_scope[sc.i] = v;
    return v;
}

// Rebuilds the program with the chosen merges. What replaces a value depends on values further from
// the outputs only, so there is an order; an explicit stack finds it.
static bool ein__apply_merges(ein__merger *z, ein__val *root, int nroot, ptrdiff_t from) {
    ein_ctx *ctx = z->ctx;
    ein__redirect r = {0};
    ein__val *stack = NULL;
    ptrdiff_t n = arrlen(ctx->value);
    arrsetlen(r.to, n);
    arrsetlen(r.now, n);
    arrsetlen(r.output, n);
    memset(r.to, 0, (size_t)n * sizeof *r.to);
    memset(r.now, 0, (size_t)n * sizeof *r.now);
    memset(r.output, 0, (size_t)n * sizeof *r.output);
    for (ptrdiff_t i = from; i < arrlen(z->found); i++)
        for (ptrdiff_t k = 0; z->found[i].chosen && k < arrlen(z->found[i].old); k++)
            r.to[z->found[i].old[k].i] = z->found[i].now[k];
    for (int k = nroot; k-- > 0;) {
        arrput(stack, root[k]);
        r.output[root[k].i] = true;
        r.output[r.to[root[k].i].i] = true;
    }
    while (arrlen(stack) && !ctx->status) {
        ein__val v = arrlast(stack);
        const ein__scope *s = ein__scope_of(ctx, v);
        ein__ex *reads = NULL;
        ptrdiff_t before = arrlen(stack);
        if (!r.now[v.i].i && r.to[v.i].i && !r.now[r.to[v.i].i].i) arrput(stack, r.to[v.i]);
        if (!r.now[v.i].i && !r.to[v.i].i && s) ein__ex_reads(ctx, s->body, &reads);
        for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
            ein__val x = {ein__ex_get(ctx, reads[i])->val};
            if (!r.now[x.i].i) arrput(stack, x);
        }
        arrfree(reads);
        if (arrlen(stack) > before) continue;
        if (!r.now[v.i].i) r.now[v.i] = ein__redirected(ctx, &r, v);
        if (!r.now[v.i].i) break;
        (void)arrpop(stack);
    }
    bool ok = !ctx->status && !arrlen(stack);
    for (int k = 0; ok && k < nroot; k++) root[k] = r.now[root[k].i];
    arrfree(stack);
    arrfree(r.to);
    arrfree(r.now);
    arrfree(r.output);
    arrfree(r.by_scope);
    return ok;
}

// Merges in the program under `root`, round by round; the roots are replaced. `found`: all merges
// that were priced (to be freed by ein__merges_free), or NULL. False when none was worth it.
EIN__FN bool ein__merge_program(ein_ctx *ctx, ein__val *root, int nroot, ein__merge **found) {
    ein__merger z = {.ctx = ctx};
    bool any = false;
    int rounds = ctx->rule_mask >> EIN__RULE_MERGE & 1 ? EIN__MERGE_ROUNDS : 0;
    for (int round = 0; round < rounds && !ctx->status; round++) {
        ptrdiff_t from = arrlen(z.found);
        ein__merger_look(&z, root, nroot);
        ein__find_parts(&z);
        ein__find_groups(&z, EIN__BY_SAME);
        ein__find_groups(&z, EIN__BY_NEAR);
        ein__find_groups(&z, EIN__BY_LIKE);
        for (ptrdiff_t i = 0; i < arrlen(z.order) && !ctx->status; i++) {
            ein__val v = z.order[i];
            if (v.i >= z.changed && ein__is_map(ctx, v) && !ctx->value[v.i].weight_only)
                ein__find_sums(&z, v, ein__scope_of(ctx, v)->body);
        }
        ein__merger_forget(&z);
        z.changed = (uint32_t)arrlen(ctx->value);
        if (!ein__choose_merges(&z, from) || !ein__apply_merges(&z, root, nroot, from)) break;
        any = true;
    }
    if (found) *found = z.found;
    else ein__merges_free(z.found);
    return any;
}
