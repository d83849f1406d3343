// Merged contractions: members side by side (shared input), or behind a new dimension (batched),
// and what then stands for each of them. merge_find.c says which are tried.

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
            n = ein__times(n, s->n[t]);
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

// Members and what they cost alone, a map behind several of them once.
static void ein__merge_members(ein__merger *z, ein__merge *m, const ein__part *const *p, int n) {
    for (int i = 0; i < n; i++) {
        ein__ex read = {0};
        ein__val map = ein__map_behind(z, p[i]->member, &read), other = {0};
        for (int k = 0; k < i; k++)
            if (z->behind[p[k]->member.i].i == map.i) other = map;
        arrput(m->member, p[i]->member);
        arrput(m->taken, p[i]->member);
        int64_t ps = ein__merge_price(z, p[i]->member, other.i ? (ein__val){0} : map, read);
        m->members_ps = ein__cost_sum(m->members_ps, ps);
    }
}

// The merge of members into windows on `wide`, and what they cost.
static bool ein__merge_windows(ein__merger *z, ein__merge *m, const ein__joint *f,
                               const ein__part *const *p) {
    for (int i = 0; i < f->np; i++) {
        ein__ex read = {0};
        ein__val v = ein__member_of(z, f, i, p[i], p[i]->member, m->wide, m->rule);
        if (!v.i) return false;
        arrput(m->old, p[i]->member);
        arrput(m->now, v);
        if (p[i]->outer.i) {
            ein__put_bill(&m->bill, v, ein__outer_cost(z, p[i], v));
            continue;
        }
        ein__val map = ein__map_behind(z, p[i]->member, &read);
        if (map.i) ein__put_bill(&m->bill, map, ein__kernel_cost(z->ctx, map));
        else ein__put_bill(&m->bill, v, ein__window_cost(z, p[i]->member, v));
    }
    return true;
}

// The same with the maps behind the members joined as well. False when there are none, or they
// differ.
static bool ein__merge_maps(ein__merger *z, ein__merge *m, const ein__joint *f,
                            const ein__part *const *p) {
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
        ein__put_bill(&m->bill, v, ein__window_cost(z, map[i], v));
    }
    return true;
}

// Builds the merge around the merged contraction `s`, with members alone and with their maps;
// `bill`: what its operands cost.
static void ein__merge_around(ein__merger *z, const ein__joint *f, const ein__part *const *p,
                              const ein__scope *s, const ein__bill *bill, const char *rule) {
    ein__val wide = ein__merge_value(z, p[0]->member, "merged", s, rule);
    for (int maps = 0; wide.i && maps < 2; maps++) {
        ein__merge m = {.rule = rule, .wide = wide};
        ein__attempt attempt = ein__try(z->ctx);
        for (ptrdiff_t i = 0; i < arrlen(bill); i++) arrput(m.bill, bill[i]);
        bool ok = maps ? ein__merge_maps(z, &m, f, p) : ein__merge_windows(z, &m, f, p);
        if (ein__tried(z->ctx, attempt) && ok && !z->ctx->status) {
            ein__merge_members(z, &m, p, f->np);
            ein__add_merge(z, &m);
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
        before += ein__extent_of(s, ~0u);
    }
    if (!ein__shared_slots(ctx, &f, p, own, last)) return;
    ein__joint_maps(ctx, &f, p);
    f.apart = true;
    if (!ein__joint_windows(ctx, &f, p, -1, form)) return;
    // Windows padded this much are nobody's gain.
    if (ein__extent_of(&f.s, ~0u) / EIN__MERGE_PADDING > before) return;
    ein__joint_subscripts(ctx, &f, p[0], 0, form, ix);
    const ein__expr *x = ein__ex_get(ctx, p[0]->x);
    ein__ex data = ein__ex_read(ctx, (ein__val){x->val}, 0, ix, (int)x->nix);
    for (int i = 0; i < n; i++) w[i] = ein__scaled(ctx, p[i]->alpha, p[i]->w);
    ein__bill *bill = NULL;
    ein__ex weights = ein__side_by_side(z, &f, w, true, p[0]->member, &bill);
    ein__scope s = f.s;
    s.body = data.i && weights.i ? ein__ex_binary(ctx, EIN__MUL, data, weights) : (ein__ex){0};
    if (s.body.i) ein__merge_around(z, &f, p, &s, bill, "merging: shared input");
    arrfree(bill);
}

// ------------------------------------------------------------------------------------ batched

// Factor `x` of member 0 read from the members' factors laid one behind the other along the first
// dimension that is read inside its box (`grouped`: along the one that the reduction runs through).
static ein__ex ein__stacked(ein__merger *z, const ein__joint *f, const ein__part *const *p,
                            bool second, bool grouped, ein__bill **bill) {
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
    if (all.i) ein__put_bill(bill, all, ein__concat_cost(z, all, part, f->np, axis));
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
    ein__bill *bill = NULL;
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
    ein__ex x = ein__stacked(z, &f, p, false, grouped, &bill);
    ein__ex y = weight ? ein__side_by_side(z, &f, w, true, p[0]->member, &bill)
                       : ein__scaled(ctx, p[0]->alpha, ein__stacked(z, &f, p, true, false, &bill));
    if (x.i && y.i) f.s.body = ein__ex_binary(ctx, EIN__MUL, x, y);
    if (f.s.body.i && (ein__ex_uses(ctx, f.s.body) >> place & 1))
        ein__merge_around(z, &f, p, &f.s, bill, "merging: batched");
    arrfree(bill);
}
