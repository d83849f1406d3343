// Rule `linear`: a product of weights with a linear map of a tensor, and that map, are exchanged
// where that multiplies less. With a and i free of c,
//
//     sum(c) w[f,c] sum(k) a(k,h) x[c - o(k), i(k,h)]
//         = sum(k) a(k,h) Z[f, i(k,h)],  Z[f,j] = sum(c) w[f,c] x[c - o(k), j]:
//
// what is upsampled by interpolation, and concatenated with other channels after that, is
// multiplied before it. The part of the map that is not linear becomes a tensor of its own. The
// same holds for a sum over places of a product's results, L linear but for a constant,
//
//     sum(r) L(sum(c) w[f,c] x[c, i(h,r)]) = L'(sum(c) w[f,c] sum(r) x[c, i(h,r)]):
//
// what is pooled is multiplied behind the pooling.

enum {
    EIN__LINEAR_PARTS = 16,  // products that come of one
    EIN__LINEAR_GAIN = 75    // percent of the terms, at most
};

// A map in front of a product or behind it, which is linear in what has iterators of `along`.
typedef struct ein__linearity {
    ein_ctx *ctx;
    uint32_t along;
    const ein__ix *at;  // the map's iterators in those of what becomes of it
    int nt;
    bool (*leaf)(void *user, ein__ex ex, ein__ex *now);  // whether `ex` becomes `*now` as a whole
    ein__ex (*rest)(void *user, ein__ex ex);             // what is not linear does, or NULL
    void *user;
} ein__linearity;

// What becomes of `ex` of the map; none: it is not linear.
static ein__ex ein__linear_map(const ein__linearity *z, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__ex now = {0}, part[2];
    if (z->leaf(z->user, ex, &now)) return now;
    if (e.op == EIN__X_UNARY && e.fn == EIN__NEG)
        return ein__ex_unary(ctx, EIN__NEG, ein__linear_map(z, e.kid[0]));
    bool sum = e.fn == EIN__ADD || e.fn == EIN__SUB, factor[2] = {false};
    for (uint32_t k = 0; k < e.nkid && k < 2; k++)
        factor[k] = !sum && !(ein__ex_uses(ctx, e.kid[k]) & z->along);
    bool scaled = (e.fn == EIN__MUL && (factor[0] || factor[1])) || (e.fn == EIN__DIV && factor[1]);
    if (e.op != EIN__X_BINARY || !(sum || scaled)) return z->rest ? z->rest(z->user, ex) : now;
    for (int k = 0; k < 2; k++) {
        part[k] =
            factor[k] ? ein__ex_subst(ctx, e.kid[k], z->at, z->nt) : ein__linear_map(z, e.kid[k]);
        if (!part[k].i) return part[k];
    }
    return ein__ex_binary(ctx, (ein__fn)e.fn, part[0], part[1]);
}

typedef struct ein__linear {
    ein__pass *pass;
    ein_ctx *ctx;
    ein__val v;                                    // the product
    ein__scope s;                                  // its scope
    const ein__expr *p, *w;                        // its factors, the map and the weights
    const ein__scope *m;                           // the map's scope
    uint32_t summed;                               // dimensions of the map that are summed over,
    int64_t lo[EIN__MAX_RANK], hi[EIN__MAX_RANK];  // and where
    ein__ix at[EIN__MAX_RANK];                     // the map's iterators in the product's
    ein__linearity map;
    ein__val made[EIN__LINEAR_PARTS];
    int nmade;
    int64_t apart;  // elements of what is not linear
} ein__linear;

// ------------------------------------------------------------------------------------ products

// Slot of the product that dimension `k` of the map is; -1: it is no iterator alone.
static int ein__linear_slot(const ein__linear *z, uint32_t k) {
    uint32_t slot;
    return ein__ix_is_iter(z->ctx, z->at[k], &slot) ? (int)slot : -1;
}

// The sums of `t` over what is left of each dimension that is summed over; map[] gets the product's
// iterators of them.
static bool ein__linear_sums(const ein__linear *z, ein__scope *t, ein__ix *map) {
    ein_ctx *ctx = z->ctx;
    t->reduce = EIN__R_SUM;
    for (uint32_t k = 0; k < z->m->nt; k++) {
        if (!(z->summed >> k & 1)) continue;
        int slot = ein__linear_slot(z, k);
        if (!ein__new_slot(t, true, ctx, z->hi[k] - z->lo[k] + 1, &map[slot])) return false;
        map[slot] = ein__ix_addc(ctx, map[slot], z->lo[k]);
    }
    return true;
}

// Notes product `v`; false: there are too many.
static bool ein__linear_note(ein__linear *z, ein__val v) {
    for (int i = 0; i < z->nmade; i++)
        if (z->made[i].i == v.i) return true;
    if (z->nmade == EIN__LINEAR_PARTS) return false;
    z->made[z->nmade++] = v;
    return true;
}

// The sum of weights times `ex`, which is one and at most of what is summed over: made at load.
static ein__ex ein__linear_constant(ein__linear *z, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    ein__scope t = {.reduce = EIN__R_SUM};
    uint32_t uses = ein__read_slots(ctx, z->w) & ((1u << z->s.nt) - 1);
    if (!ein__used_dims(ctx, &z->s, uses, &t, map, back) || !ein__linear_sums(z, &t, map))
        return (ein__ex){0};
    int n = (int)(z->s.nt + z->s.ns);
    ex = ein__ex_subst(ctx, ex, z->at, (int)z->m->nt);
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_of(ctx, z->w), ex);
    t.body = ein__ex_subst(ctx, t.body, map, n);
    z->pass->self = z->v;
    ein__val v = ein__rule_value(z->pass, z->v, "constant", &t, EIN__RULE_LINEAR);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// Dimensions of Z for `x`, in the order in which the product has theirs: those of the weights, and
// the places of `x`. map[] gets the product's iterators of weights, place[] those of `x`, back[]
// where Z is read.
static bool ein__linear_box(const ein__linear *z, const ein__expr *x, ein__scope *t, ein__ix *map,
                            ein__ix *place, ein__ix *back) {
    ein_ctx *ctx = z->ctx;
    uint32_t in_w = ein__read_slots(ctx, z->w), placed = 0;
    for (uint32_t i = 0; i <= z->s.nt; i++) {
        if (i < z->s.nt && in_w >> i & 1) {
            if (t->nt == EIN__MAX_RANK || !ein__new_slot(t, false, ctx, z->s.n[i], &map[i]))
                return false;
            back[t->nt - 1] = ein__ix_iter(ctx, i, z->s.n[i]);
        }
        for (uint32_t k = 0; k < x->nix; k++) {
            if (placed >> k & 1 || ein__ix_uses(ctx, x->ix[k]) & z->summed) continue;
            ein__ix at = ein__ix_subst(ctx, x->ix[k], z->at, (int)z->m->nt);
            int64_t n = ctx->value[x->val].shape.d[k];
            if (i < z->s.nt && !(ein__ix_uses(ctx, at) >> i & 1)) continue;
            if (t->nt == EIN__MAX_RANK || !ein__new_slot(t, false, ctx, n, &place[k])) return false;
            back[t->nt - 1] = at;
            placed |= 1u << k;
        }
    }
    return true;
}

// Z for read `x`, where the map reads it: what is summed over is where `x` is. map[] has nothing
// yet.
static ein__ex ein__linear_value(ein__linear *z, const ein__expr *x, ein__ix *map) {
    ein_ctx *ctx = z->ctx;
    ein__ix place[EIN__MAX_RANK], back[EIN__MAX_RANK];
    ein__scope t = {.reduce = EIN__R_SUM};
    uint32_t slot;
    for (uint32_t k = 0; k < z->m->nt; k++)
        if (z->summed >> k & 1 && z->lo[k] > z->hi[k]) return ein__ex_const(ctx, 0);
    if (!ein__linear_box(z, x, &t, map, place, back) || !ein__linear_sums(z, &t, map))
        return (ein__ex){0};
    for (uint32_t k = 0; k < x->nix; k++) {
        if (!(ein__ix_uses(ctx, x->ix[k]) & z->summed)) continue;
        int64_t c = ein__ix_get(ctx, x->ix[k])->c;
        ein__ix_is_iter(ctx, ein__ix_addc(ctx, x->ix[k], -c), &slot);
        place[k] = ein__ix_addc(ctx, map[ein__linear_slot(z, slot)], c);
    }
    ein__ex w = ein__ex_subst(ctx, ein__ex_of(ctx, z->w), map, (int)(z->s.nt + z->s.ns));
    ein__ex data = ein__ex_read(ctx, (ein__val){x->val}, 0, place, (int)x->nix);
    t.body = ein__ex_binary(ctx, EIN__MUL, data, w);
    z->pass->self = z->v;
    ein__val v = t.body.i
                     ? ein__rule_value(z->pass, z->v, ctx->value[x->val].name, &t, EIN__RULE_LINEAR)
                     : (ein__val){0};
    if (!v.i || !ein__linear_note(z, v)) return (ein__ex){0};
    return ein__ex_read(ctx, v, 0, back, (int)t.nt);
}

// Shrinks what is summed over to where `x` is read inside; it must stand alone in subscripts of
// `x`.
static bool ein__linear_shrink(ein__linear *z, const ein__expr *x) {
    ein_ctx *ctx = z->ctx;
    uint32_t slot;
    bool fits = !x->bits && ein__is_real(ctx, (ein__val){x->val});
    for (uint32_t k = 0; k < x->nix && fits; k++) {
        const ein__index *f = ein__ix_get(ctx, x->ix[k]);
        if (!(ein__ix_uses(ctx, x->ix[k]) & z->summed)) continue;
        int64_t c = f->c, n = ctx->value[x->val].shape.d[k];
        fits = f->q == 1 && ein__ix_is_iter(ctx, ein__ix_addc(ctx, x->ix[k], -c), &slot);
        if (!fits) break;
        z->lo[slot] = ein__most(z->lo[slot], -c);
        z->hi[slot] = ein__least(z->hi[slot], n - 1 - c);
    }
    return fits;
}

static ein__ex ein__linear_read(ein__linear *z, const ein__expr *x) {
    ein_ctx *ctx = z->ctx;
    int64_t lo[EIN__MAX_RANK], hi[EIN__MAX_RANK];
    ein__ix map[EIN__MAX_ITERS];
    memcpy(lo, z->lo, sizeof lo);
    memcpy(hi, z->hi, sizeof hi);
    for (uint32_t i = 0; i < z->s.nt + z->s.ns; i++) map[i] = ein__ix_const(ctx, 0);
    ein__ex read = ein__linear_shrink(z, x) ? ein__linear_value(z, x, map) : (ein__ex){0};
    memcpy(z->lo, lo, sizeof lo);
    memcpy(z->hi, hi, sizeof hi);
    return read;
}

// ------------------------------------------------------------------------------------ the map

// What a guard leaves of `e`, which it stands around.
static ein__ex ein__linear_guard(ein__linear *z, const ein__expr *e) {
    ein_ctx *ctx = z->ctx;
    uint32_t slot;
    const ein__expr g = *e;
    if (!(ein__ix_uses(ctx, g.ix[0]) & z->summed)) {
        ein__ex body = ein__linear_map(&z->map, g.kid[0]);
        return ein__ex_when(ctx, ein__ix_subst(ctx, g.ix[0], z->at, (int)z->m->nt), g.n, g.negate,
                            body);
    }
    int64_t c = ein__ix_get(ctx, g.ix[0])->c;
    if (g.negate || ein__ix_get(ctx, g.ix[0])->q != 1 ||
        !ein__ix_is_iter(ctx, ein__ix_addc(ctx, g.ix[0], -c), &slot))
        return (ein__ex){0};
    int64_t lo = z->lo[slot], hi = z->hi[slot];
    z->lo[slot] = ein__most(lo, -c);
    z->hi[slot] = ein__least(hi, g.n - 1 - c);
    ein__ex body =
        z->lo[slot] > z->hi[slot] ? ein__ex_const(ctx, 0) : ein__linear_map(&z->map, g.kid[0]);
    z->lo[slot] = lo;
    z->hi[slot] = hi;
    return body;
}

// Part `ex` of the map, which is not linear or not in single places, as a tensor of its own where
// it is summed over; none of all of the map.
static ein__ex ein__linear_rest(void *user, ein__ex ex) {
    ein__linear *z = user;
    ein_ctx *ctx = z->ctx;
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    ein__scope t = {.reduce = EIN__R_NONE};
    uint32_t uses = ein__ex_uses(ctx, ex);
    if (ex.i == z->m->body.i) return (ein__ex){0};
    for (uint32_t k = 0; k < z->m->nt; k++) {
        bool sums = z->summed >> k & 1;
        int64_t first = sums ? z->lo[k] : 0, n = sums ? z->hi[k] - first + 1 : z->m->n[k];
        map[k] = ein__ix_const(ctx, 0);
        if (n < 1) return ein__ex_const(ctx, 0);
        if (!(uses >> k & 1)) continue;
        if (t.nt == EIN__MAX_RANK || !ein__new_slot(&t, false, ctx, n, &map[k]))
            return (ein__ex){0};
        map[k] = ein__ix_addc(ctx, map[k], first);
        back[t.nt - 1] = ein__ix_addc(ctx, ein__ix_iter(ctx, k, z->m->n[k]), -first);
    }
    t.body = ein__ex_subst(ctx, ex, map, (int)z->m->nt);
    z->pass->self = z->v;
    ein__val v =
        t.body.i ? ein__rule_value(z->pass, z->v, "part", &t, EIN__RULE_LINEAR) : (ein__val){0};
    ein__ex read = v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
    if (!read.i) return read;
    z->apart = ein__plus(z->apart, ein__outputs_of(&t));
    const ein__expr x = *ein__ex_get(ctx, read);
    return ein__linear_read(z, &x);
}

// Whether map `f` is a product of weights and a bias, and nothing else reads either.
static bool ein__linear_biased(const ein__linear *z, ein__val f) {
    ein_ctx *ctx = z->ctx;
    const int *uses = z->pass->uses;
    const ein__expr *sum, *w, *data;
    if (f.i >= (uint32_t)arrlen(uses) || uses[f.i] != 1 || !ein__is_map(ctx, f)) return false;
    sum = ein__ex_get(ctx, ein__scope_of(ctx, f)->body);
    for (int k = 0; sum->op == EIN__X_BINARY && sum->fn == EIN__ADD && k < 2; k++) {
        const ein__expr *u = ein__ex_get(ctx, sum->kid[k]);
        double alpha;
        if (u->op == EIN__X_READ && ein__ex_weight_only(ctx, sum->kid[1 - k]) &&
            u->val < (uint32_t)arrlen(uses) && uses[u->val] == 1 &&
            ein__weighs(ctx, ein__scope_of(ctx, (ein__val){u->val}), &w, &data, &alpha))
            return true;
    }
    return false;
}

// Read `x` of such a map as what that computes: weights may then multiply each other
// (merge_chain.c).
static ein__ex ein__linear_inline(ein__linear *z, const ein__expr *x) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, (ein__val){x->val});
    int64_t lo[EIN__MAX_RANK], hi[EIN__MAX_RANK];
    ein__ex now = {0};
    bool inside = true;
    for (uint32_t k = 0; k < x->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, x->ix[k]);
        inside &= (f->q == 1 && f->lo >= 0 && f->hi < s->n[k]) ||
                  (ein__ix_uses(ctx, x->ix[k]) & z->summed);
    }
    memcpy(lo, z->lo, sizeof lo);
    memcpy(hi, z->hi, sizeof hi);
    if (inside && ein__linear_shrink(z, x))
        now = ein__linear_map(&z->map, ein__ex_subst(ctx, s->body, x->ix, (int)s->nt));
    memcpy(z->lo, lo, sizeof lo);
    memcpy(z->hi, hi, sizeof hi);
    return now;
}

// Parts of the map in the product's iterators: what is the same for all that is summed over, reads,
// weights of that, guards.
static bool ein__linear_leaf(void *user, ein__ex ex, ein__ex *now) {
    ein__linear *z = user;
    ein_ctx *ctx = z->ctx;
    const ein__expr e = *ein__ex_get(ctx, ex);
    uint32_t uses = ein__ex_uses(ctx, ex);
    bool free = !(uses & z->summed), weights = !(uses & ~z->summed) && ein__ex_weight_only(ctx, ex);
    if (free) {
        ein__ex all = ein__linear_constant(z, ein__ex_const(ctx, 1));
        ein__ex once = ein__ex_subst(ctx, ex, z->at, (int)z->m->nt);
        *now = all.i ? ein__ex_binary(ctx, EIN__MUL, once, all) : all;
    } else if (e.op == EIN__X_READ && !ctx->value[e.val].weight_only) {
        bool biased = ein__linear_biased(z, (ein__val){e.val});
        *now = biased ? ein__linear_inline(z, &e) : ein__linear_read(z, &e);
        if (!now->i) *now = ein__linear_rest(z, ex);
    } else if (weights) {
        *now = ein__linear_constant(z, ex);
    } else if (e.op == EIN__X_WHEN) {
        *now = ein__linear_guard(z, &e);
    } else {
        return false;
    }
    return true;
}

// ------------------------------------------------------------------------------------ the rule

// Whether the product sums over whole dimensions of the map by iterators of their own, and has
// neither windows nor batches.
static bool ein__linear_fits(ein__linear *z) {
    ein_ctx *ctx = z->ctx;
    uint32_t sums = 0, outer = (1u << z->s.nt) - 1, slot;
    if (ein__read_slots(ctx, z->p) & ein__read_slots(ctx, z->w) & outer) return false;
    for (uint32_t k = 0; k < z->p->nix; k++) {
        z->at[k] = z->p->ix[k];
        z->lo[k] = 0;
        z->hi[k] = z->m->n[k] - 1;
        if (!(ein__ix_uses(ctx, z->p->ix[k]) & ~outer)) continue;
        if (!ein__ix_is_iter(ctx, z->p->ix[k], &slot) || (sums >> slot & 1) ||
            z->s.n[slot] != z->m->n[k])
            return false;
        sums |= 1u << slot;
        z->summed |= 1u << k;
    }
    for (uint32_t i = z->s.nt; i < z->s.nt + z->s.ns; i++)
        if (!(sums >> i & 1)) return false;
    return z->summed != 0;
}

// Whether the map's padding is where it is 0 by itself: nothing is read beyond it.
static bool ein__linear_inside(const ein__linear *z) {
    for (uint32_t k = 0; k < z->p->nix; k++) {
        const ein__index *f = ein__ix_get(z->ctx, z->p->ix[k]);
        if (f->q != 1 || f->lo < 0 || f->hi >= z->m->n[k]) return false;
    }
    return true;
}

// The product of weights whose result product `t` alone reads, so that weights multiply each other
// first (merge_chain.c) where that has fewer terms than the two have: `*terms`. NULL: there is
// none.
static const ein__scope *ein__linear_chain(const ein__linear *z, const ein__scope *t,
                                           int64_t *terms) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *w, *x, *v, *y;
    double alpha;
    if (!ein__weighs(ctx, t, &w, &x, &alpha) || x->val >= (uint32_t)arrlen(z->pass->uses))
        return NULL;
    const ein__scope *u = ein__scope_of(ctx, (ein__val){x->val});
    if (z->pass->uses[x->val] != 1 || !ein__weighs(ctx, u, &v, &y, &alpha)) return NULL;
    *terms = ein__times(ein__outputs_of(t), ein__extent_of(u, ~0u) / ein__outputs_of(u));
    return *terms < ein__plus(ein__extent_of(t, ~0u), ein__extent_of(u, ~0u)) ? u : NULL;
}

// Whether the products made have fewer terms than what they stand for, and are estimated to be
// cheaper together with what reads them than that is with its map.
static bool ein__linear_gains(const ein__linear *z) {
    ein_ctx *ctx = z->ctx;
    int64_t now = 0, ps = 0, had = ein__extent_of(&z->s, ~0u);
    int64_t than = ein__contraction_ps(ctx, &z->s);
    ein__work stored = {.bytes = {ein__outputs_of(&z->s)}}, map = {.bytes = {0}};
    for (int i = 0; i < z->nmade; i++) {
        const ein__scope *t = ein__scope_of(ctx, z->made[i]);
        int64_t own = ein__extent_of(t, ~0u), terms = own, each = ein__contraction_ps(ctx, t);
        const ein__scope *u = ein__linear_chain(z, t, &terms);
        if (u) {
            had = ein__plus(had, ein__extent_of(u, ~0u));
            than = ein__cost_sum(than, ein__contraction_ps(ctx, u));
            each = ein__muldiv(each, terms, own);
        }
        now = ein__plus(now, terms);
        ps = ein__cost_sum(ps, each);
        stored.bytes[0] = ein__plus(stored.bytes[0], ein__outputs_of(t));
    }
    stored.bytes[0] = ein__times(ein__plus(stored.bytes[0], z->apart), 4);
    map.bytes[0] = ein__times(ein__outputs_of(z->m), 4);
    ps = ein__cost_sum(ps, ein__work_ps(ein__gpu_of(ctx), &stored));
    if (z->pass->uses[z->p->val] == 1)
        than = ein__cost_sum(than, ein__work_ps(ein__gpu_of(ctx), &map));
    return z->nmade && now <= ein__muldiv(had, EIN__LINEAR_GAIN, 100) && ps < than;
}

// Product `v` in front of the linear map that it reads, or itself.
static ein__val ein__rule_linear(ein__pass *pass, ein__val v) {
    ein_ctx *ctx = pass->ctx;
    const ein__value old = ctx->value[v.i];
    ein__linear z = {.pass = pass, .ctx = ctx, .v = v};
    double alpha;
    if (old.weight_only || old.dtype != EIN__F32 || !ein__scope_of(ctx, v) ||
        !ein__weighs(ctx, ein__scope_of(ctx, v), &z.w, &z.p, &alpha))
        return v;
    z.s = *ein__scope_of(ctx, v);
    ein__val of = {z.p->val};
    if (!ein__is_map(ctx, of) || ctx->value[of.i].dtype != EIN__F32) return v;
    ein__scope m = *ein__scope_of(ctx, of);
    z.m = &m;
    if (!ein__linear_fits(&z) || !ein__linear_inside(&z)) return v;
    z.map =
        (ein__linearity){ctx, z.summed, z.at, (int)m.nt, ein__linear_leaf, ein__linear_rest, &z};
    ein__attempt attempt = ein__try(ctx);
    ein__ex body = ein__linear_map(&z.map, m.body);
    body = ein__add_scaled(ctx, (ein__ex){0}, alpha, body);
    bool gains = body.i && ein__linear_gains(&z);
    pass->self = v;
    ein__val now = gains ? ein__new_map(pass, old.name, EIN__F32, old.shape.rank, old.shape.d, body)
                         : (ein__val){0};
    return ein__tried(ctx, attempt) && now.i ? now : v;
}

// ------------------------------------------------------------------------------------ pools

// A sum V over places, of what is made of a product C of each.
typedef struct ein__pooling {
    ein__pass *pass;
    ein_ctx *ctx;
    ein__val v, of, product;
    ein__scope s, c;         // of V and of C
    const ein__expr *x, *w;  // C's factors
    double alpha;
    ein__ix at[EIN__MAX_RANK];  // C's dimensions in V's iterators
    uint32_t pooled;            // those that change along V's sum
    bool inside;                // none of these is read beyond its end
    ein__val sums, made;        // of x, and the product of these
    ein__ex now;                // the latter at V's places
} ein__pooling;

// Whether each pooled dimension of the product is one of `x`, read in place, and none of weights.
static bool ein__pools_operand(const ein__pooling *z) {
    ein_ctx *ctx = z->ctx;
    uint32_t found = 0, slot;
    for (uint32_t k = 0; k < z->x->nix; k++) {
        uint32_t uses = ein__ix_uses(ctx, z->x->ix[k]) & z->pooled;
        if (!uses) continue;
        if (!ein__ix_is_iter(ctx, z->x->ix[k], &slot) || (found >> slot & 1) ||
            ctx->value[z->x->val].shape.d[k] != z->c.n[slot])
            return false;
        found |= 1u << slot;
    }
    return found == z->pooled && !(ein__read_slots(ctx, z->w) & z->pooled);
}

// The sums of x, whose dimensions are the iterators of C that are not pooled and of V that are in
// what is, in the order of x; back[] is where the product of sums reads them, by V's iterators and,
// behind these, C's sums.
static bool ein__pool_sums(ein__pooling *z, ein__ix *back) {
    ein_ctx *ctx = z->ctx;
    ein__ix c_in[EIN__MAX_ITERS], v_in[EIN__MAX_ITERS];
    ein__scope t = {.reduce = EIN__R_SUM};
    uint32_t c_has = 0, v_has = 0, in_v = (1u << z->s.nt) - 1;
    for (uint32_t k = 0; k < EIN__MAX_ITERS; k++) c_in[k] = v_in[k] = ein__ix_const(ctx, 0);
    for (uint32_t d = 0; d < z->x->nix; d++) {
        uint32_t uses = ein__ix_uses(ctx, z->x->ix[d]), slot = 0;
        bool pooled = (uses & z->pooled) && ein__ix_is_iter(ctx, z->x->ix[d], &slot);
        if (pooled) uses = ein__ix_uses(ctx, z->at[slot]) & in_v;
        for (uint32_t k = 0; uses >> k; k++) {
            if (!(uses >> k & 1) || (pooled ? v_has : c_has) >> k & 1) continue;
            int64_t n = pooled ? z->s.n[k] : z->c.n[k];
            if (!ein__new_slot(&t, false, ctx, n, pooled ? &v_in[k] : &c_in[k])) return false;
            *(pooled ? &v_has : &c_has) |= 1u << k;
            back[t.nt - 1] = pooled        ? ein__ix_iter(ctx, k, n)
                             : k < z->c.nt ? z->at[k]
                                           : ein__ix_iter(ctx, z->s.nt + k - z->c.nt, n);
        }
    }
    for (uint32_t k = z->s.nt; k < z->s.nt + z->s.ns; k++)
        if (!ein__new_slot(&t, true, ctx, z->s.n[k], &v_in[k])) return false;
    for (uint32_t k = 0; k < z->c.nt; k++)
        if (z->pooled >> k & 1)
            c_in[k] = ein__ix_subst(ctx, z->at[k], v_in, (int)(z->s.nt + z->s.ns));
    t.body = ein__ex_subst(ctx, ein__ex_of(ctx, z->x), c_in, (int)(z->c.nt + z->c.ns));
    z->pass->self = z->v;
    z->sums =
        t.body.i ? ein__rule_value(z->pass, z->v, "places", &t, EIN__RULE_LINEAR) : (ein__val){0};
    return z->sums.i != 0;
}

// The product of sums, over V's box.
static bool ein__pool_product(ein__pooling *z) {
    ein_ctx *ctx = z->ctx;
    ein__ix back[EIN__MAX_RANK], map[EIN__MAX_ITERS];
    ein__scope t = {.reduce = EIN__R_SUM, .nt = z->s.nt};
    memcpy(t.n, z->s.n, z->s.nt * sizeof *t.n);
    for (uint32_t k = 0; k < z->c.nt; k++) map[k] = z->at[k];
    for (uint32_t k = z->c.nt; k < z->c.nt + z->c.ns; k++)
        if (!ein__new_slot(&t, true, ctx, z->c.n[k], &map[k])) return false;
    if (!ein__pool_sums(z, back)) return false;
    int rank = ctx->value[z->sums.i].shape.rank;
    t.body =
        ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, z->sums, 0, back, rank),
                       ein__ex_subst(ctx, ein__ex_of(ctx, z->w), map, (int)(z->c.nt + z->c.ns)));
    t.body = ein__add_scaled(ctx, (ein__ex){0}, z->alpha, t.body);
    if (!t.body.i) return false;
    z->made = ein__rule_value(z->pass, z->v, "pooled", &t, EIN__RULE_LINEAR);
    return z->made.i != 0;
}

// Parts of a map of C, in V's iterators: C itself, and what is the same along the sum.
static bool ein__pool_leaf(void *user, ein__ex ex, ein__ex *now) {
    const ein__pooling *z = user;
    ein_ctx *ctx = z->ctx;
    const ein__expr e = *ein__ex_get(ctx, ex);
    bool same = !(ein__ex_uses(ctx, ex) & z->pooled);
    if (same && z->inside) {
        double places = (double)ein__extent_of(&z->s, ~((1u << z->s.nt) - 1));
        ein__ex all = ein__ex_subst(ctx, ex, z->at, (int)z->c.nt);
        *now = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, places), all);
    } else if (e.op == EIN__X_READ && e.val == z->product.i &&
               ein__reads_in_place(ctx, &e, &z->c)) {
        *now = z->now;
    }
    return same || now->i;
}

// The product of which `of`, itself or a map, is made; none: that is not all that it is made of.
static ein__val ein__pooled_product(ein_ctx *ctx, ein__val of) {
    const ein__scope *s = ein__scope_of(ctx, of);
    ein__val found = {0};
    if (!s || s->reduce != EIN__R_NONE) return of;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        if (ctx->value[v.i].weight_only) continue;
        if (found.i && found.i != v.i) return (ein__val){0};
        found = v;
    }
    return found;
}

// Whether V, of scope z->s, is `*scale` times a sum over places of what is made of a product alone,
// whose places are more than V's. `*body`: how it is made; none: it is the product. Beyond the ends
// of dimensions that are not pooled the product of sums would not be 0: weights may go on there.
static bool ein__find_pooling(ein__pooling *z, ein__ex *body, double *scale) {
    ein_ctx *ctx = z->ctx;
    ein__addition sum = {.n = 0};
    if (z->s.reduce != EIN__R_SUM || !ein__list_addends(ctx, z->s.body, 1, &sum) || sum.n != 1)
        return false;
    const ein__expr *e = ein__ex_get(ctx, sum.t[0].ex);
    *scale = sum.t[0].scale;
    if (e->op != EIN__X_READ || e->bits) return false;
    z->of = (ein__val){e->val};
    z->product = ein__pooled_product(ctx, z->of);
    const ein__scope *p = ein__scope_of(ctx, z->of), *c = ein__scope_of(ctx, z->product);
    if (!p || !c || !ein__weighs(ctx, c, &z->w, &z->x, &z->alpha) || p->nt != c->nt ||
        ctx->value[z->of.i].dtype != EIN__F32 || ctx->value[z->product.i].dtype != EIN__F32)
        return false;
    z->c = *c;
    z->inside = true;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        bool pooled = ein__ix_uses(ctx, e->ix[k]) >> z->s.nt, in = f->lo >= 0 && f->hi < c->n[k];
        if (c->n[k] != p->n[k] || f->q != 1 || !(pooled || in)) return false;
        z->at[k] = e->ix[k];
        z->inside &= in;
        z->pooled |= (uint32_t)pooled << k;
    }
    *body = z->of.i == z->product.i ? (ein__ex){0} : p->body;
    return z->pooled && ein__pools_operand(z);
}

// Whether a smaller product and a sum of its operand are estimated to be cheaper than what there
// was.
static bool ein__pooling_gains(const ein__pooling *z) {
    ein_ctx *ctx = z->ctx;
    const int *uses = z->pass->uses;
    int64_t now = ein__contraction_ps(ctx, ein__scope_of(ctx, z->made));
    int64_t had = ein__contraction_ps(ctx, &z->c);
    now = ein__cost_sum(now, ein__prefix_cost(ctx, ein__scope_of(ctx, z->sums)));
    had = ein__cost_sum(had, ein__prefix_cost(ctx, &z->s));
    bool alone = uses[z->of.i] == 1 && (z->of.i == z->product.i || uses[z->product.i] == 1);
    return alone && now < had;
}

// Sum `v` of places of a product as a product of sums, or itself.
static ein__val ein__rule_pooled(ein__pass *pass, ein__val v) {
    ein_ctx *ctx = pass->ctx;
    const ein__value old = ctx->value[v.i];
    ein__pooling z = {.pass = pass, .ctx = ctx, .v = v};
    ein__ex body;
    ein__ix at[EIN__MAX_RANK];
    double scale;
    if (old.weight_only || old.dtype != EIN__F32 || !ein__scope_of(ctx, v)) return v;
    z.s = *ein__scope_of(ctx, v);
    if (!ein__find_pooling(&z, &body, &scale)) return v;
    ein__attempt attempt = ein__try(ctx);
    bool made = ein__pool_product(&z) && ein__pooling_gains(&z);
    const ein__linearity map = {ctx, z.pooled, z.at, (int)z.c.nt, ein__pool_leaf, NULL, &z};
    for (uint32_t k = 0; k < z.s.nt; k++) at[k] = ein__ix_iter(ctx, k, z.s.n[k]);
    if (made) z.now = ein__ex_read(ctx, z.made, 0, at, (int)z.s.nt);
    body = made && body.i ? ein__linear_map(&map, body) : z.now;
    body = ein__add_scaled(ctx, (ein__ex){0}, scale, body);
    pass->self = v;
    ein__val now = made && body.i
                       ? ein__new_map(pass, old.name, EIN__F32, old.shape.rank, old.shape.d, body)
                       : (ein__val){0};
    return ein__tried(ctx, attempt) && now.i ? now : v;
}

// ------------------------------------------------------------------------------------ the pass

static ein__val ein__rebuild_linear(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (now.i) now = ein__rule_linear(z, now);
    return now.i ? ein__rule_pooled(z, now) : now;
}

// Products in front of linear maps and behind sums over places, where they have fewer terms, in the
// program under `root`; `*changed` when there are any.
EIN__FN bool ein__move_linear(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    return !ein__rule_on(ctx, EIN__RULE_LINEAR) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_linear, NULL, changed);
}
