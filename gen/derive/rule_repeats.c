// Rule `repeats`: a product of weights and a map that repeats each element d times, p[i] = q[i /
// d], as a convolution behind nearest-neighbour upsampling, is a product of q by phases. With P the
// least number for which d divides a * P, and h = P * H + t,
//
//   V[h] = sum(c,r) p[c, a*h + b*r + e] w[c,r]
//        = Z[t,H], Z[t,H] = sum(c,u) q[c, a*P/d * H + g(t) + u] W[t,c,u],
//   g(t) the least (a*t + b*r + e) / d,  W[t,c,u] = sum(r) [(a*t + b*r + e) / d = g(t) + u] w[c,r]:
//
// a window of 3 x 3 behind twofold upsampling becomes one of 2 x 2 in each of four phases. Where no
// r is in the subscript all phases may be the same, and Z is computed once for all of them.

enum {
    EIN__REPEAT_PHASES = 16,  // most phases of a dimension,
    EIN__REPEAT_TERMS = 64    // and terms of its sum
};

// A dimension of the operand, and how the product reads it.
typedef struct ein__repeat {
    int64_t d;           // 1: its elements do not repeat
    int outer, sum;      // slots of h and r; -1: none
    int64_t a, b, e;     // as above
    int64_t phases;      // P
    int64_t least;       // e and the least b*r
    int64_t taps;        // u in 0:taps
    bool phased;         // t matters
    ein__ix t, high, u;  // in the iterators of Z
} ein__repeat;

typedef struct ein__repeating {
    const ein__scope *s;  // V
    const ein__expr *p, *w;
    double alpha;
    ein__repeat r[EIN__MAX_RANK];  // by dimension of p
    ein__scope t;                  // Z
    ein__ix map[EIN__MAX_ITERS];   // V's iterators in those of Z, where they stay
    ein__ix back[EIN__MAX_RANK];   // Z's dimensions in V's iterators
} ein__repeating;

// ------------------------------------------------------------------------------------ repetition

// How often each element of dimension `k` repeats, as far as `ix` tells: all that has the iterator
// is quotients of it, whose divisors have a common one with `d`.
static int64_t ein__repeat_in(ein_ctx *ctx, ein__ix ix, uint32_t k, int64_t d) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n && d != 1; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        uint32_t slot;
        if (a->kind == EIN__ITER) {
            d = a->slot == k ? 1 : d;
        } else if (a->kind == EIN__GATHER) {
            d = 1;
        } else if (ein__ix_uses(ctx, (ein__ix){a->ix}) >> k & 1) {
            bool bare = a->kind == EIN__FLOOR && ein__ix_is_iter(ctx, (ein__ix){a->ix}, &slot);
            d = bare ? ein__gcd(d, a->n) : 1;
        }
    }
    return d;
}

static int64_t ein__repeat_of(ein_ctx *ctx, ein__ex ex, uint32_t k, int64_t d) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nix; i++) d = ein__repeat_in(ctx, e->ix[i], k, d);
    for (uint32_t i = 0; i < e->nkid; i++) d = ein__repeat_of(ctx, e->kid[i], k, d);
    return d;
}

// q, and its type, where that of a read is what is read.
static ein__val ein__repeated(ein__pass *z, ein__val p, const ein__repeating *r) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, p);
    const ein__value old = ctx->value[p.i];
    ein__ix map[EIN__MAX_RANK];
    ein__scope box = {.nt = s->nt};
    for (uint32_t k = 0; k < s->nt; k++) {
        box.n[k] = s->n[k] / r->r[k].d;
        map[k] = ein__ix_scale(ctx, ein__ix_iter(ctx, k, box.n[k]), r->r[k].d);
    }
    ein__ex body = ein__ex_subst(ctx, s->body, map, (int)s->nt);
    if (!body.i) return (ein__val){0};
    const ein__expr *e = ein__ex_get(ctx, body);
    if (e->op == EIN__X_READ && ein__reads_in_place(ctx, e, &box) &&
        ctx->value[e->val].dtype == old.dtype)
        return (ein__val){e->val};
    z->self = p;
    return ein__new_map(z, ein__namef(ctx, "%s.once", old.name), old.dtype, (int)s->nt, box.n,
                        body);
}

// ------------------------------------------------------------------------------------ the reads

// Tells a, b and e of the subscript of dimension `k`. False: it has other parts, or an iterator
// that is needed elsewhere.
static bool ein__repeat_parts(ein_ctx *ctx, ein__repeating *z, uint32_t k) {
    ein__repeat *r = &z->r[k];
    const ein__index *f = ein__ix_get(ctx, z->p->ix[k]);
    uint32_t used = 0;
    for (uint32_t i = 0; i < z->p->nix; i++)
        if (i != k) used |= ein__ix_uses(ctx, z->p->ix[i]);
    for (uint32_t i = 0; i < z->w->nix; i++)
        used |= ein__ix_uses(ctx, z->w->ix[i]) & ((1u << z->s->nt) - 1);
    r->e = f->c;
    if (f->q != 1) return false;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__ITER || (used >> a->slot & 1)) return false;
        bool sum = a->slot >= z->s->nt;
        if ((sum ? r->sum : r->outer) >= 0) return false;
        *(sum ? &r->sum : &r->outer) = (int)a->slot;
        *(sum ? &r->b : &r->a) = f->t[i].k;
    }
    return true;
}

// Phases and taps. False: there are too many, or numbers are too large.
static bool ein__repeat_phases(const ein__scope *s, ein__repeat *r) {
    int64_t n = r->outer < 0 ? 1 : s->n[r->outer], m = r->sum < 0 ? 1 : s->n[r->sum];
    int64_t limit = EIN__INDEX_LIMIT / (n + m + 1), a = r->a < 0 ? -r->a : r->a;
    r->phases = r->outer < 0 ? 1 : r->d / ein__gcd(r->d, a);
    if (a > limit || r->b > limit || r->b < -limit || r->e > EIN__INDEX_LIMIT ||
        r->e < -EIN__INDEX_LIMIT || r->phases > EIN__REPEAT_PHASES || m > EIN__REPEAT_TERMS)
        return false;
    r->least = r->e + (r->b < 0 ? r->b * (m - 1) : 0);
    for (int64_t t = 0; t < r->phases; t++)
        for (int64_t i = 0; i < m; i++) {
            int64_t at = ein__floordiv(r->a * t + r->b * i + r->e, r->d);
            r->taps = ein__most(r->taps, at - ein__floordiv(r->a * t + r->least, r->d) + 1);
            r->phased |= at != ein__floordiv(r->b * i + r->e, r->d);
        }
    return true;
}

// The dimensions of the operand that repeat. False: fewer terms are not what comes of it.
static bool ein__find_repeats(ein_ctx *ctx, ein__repeating *z) {
    const ein__scope *p = ein__scope_of(ctx, (ein__val){z->p->val});
    int64_t before = 1, after = 1;
    for (uint32_t k = 0; k < p->nt; k++) {
        ein__repeat *r = &z->r[k];
        *r = (ein__repeat){.d = ein__repeat_of(ctx, p->body, k, 0), .outer = -1, .sum = -1};
        // What has no such iterator is the same everywhere.
        if (!r->d) r->d = p->n[k];
        if (r->d < 2 || p->n[k] % r->d || !ein__repeat_parts(ctx, z, k) ||
            !ein__repeat_phases(z->s, r)) {
            r->d = 1;
            continue;
        }
        if (r->outer >= 0) {
            before = ein__times(before, z->s->n[r->outer]);
            after = ein__times(after, ein__ceil(z->s->n[r->outer], r->phases));
        }
        if (r->sum >= 0) before = ein__times(before, z->s->n[r->sum]);
        after = ein__times(after, ein__times(r->taps, r->phased ? r->phases : 1));
    }
    return after < before;
}

// ------------------------------------------------------------------------------------ Z

static bool ein__repeat_slot(ein_ctx *ctx, ein__repeating *z, int64_t n, bool sum, ein__ix back,
                             ein__ix *iter) {
    if (!ein__new_slot(&z->t, sum, ctx, n, iter)) return false;
    if (!sum) z->back[z->t.nt - 1] = back;
    return true;
}

// The repeat that has slot `i` of V for its h or r.
static ein__repeat *ein__repeat_with(ein__repeating *z, uint32_t i) {
    for (uint32_t k = 0; k < z->p->nix; k++)
        if (z->r[k].d > 1 && (z->r[k].outer == (int)i || z->r[k].sum == (int)i)) return &z->r[k];
    return NULL;
}

// Z's iterators: phases, what V has, terms.
static bool ein__repeat_slots(ein_ctx *ctx, ein__repeating *z) {
    const ein__scope *s = z->s;
    ein__ix none = ein__ix_const(ctx, 0);
    z->t = (ein__scope){.reduce = EIN__R_SUM};
    for (uint32_t k = 0; k < z->p->nix; k++) {
        ein__repeat *r = &z->r[k];
        r->t = r->high = r->u = none;
        if (r->d == 1 || !r->phased) continue;
        ein__ix it = ein__ix_iter(ctx, (uint32_t)r->outer, s->n[r->outer]);
        if (!ein__repeat_slot(ctx, z, r->phases, false, ein__ix_mod(ctx, it, r->phases), &r->t))
            return false;
    }
    for (uint32_t i = 0; i < s->nt; i++) {
        ein__repeat *r = ein__repeat_with(z, i);
        int64_t by = r ? r->phases : 1;
        ein__ix it = ein__ix_iter(ctx, i, s->n[i]);
        z->map[i] = none;
        if (!ein__repeat_slot(ctx, z, ein__ceil(s->n[i], by), false, ein__ix_floordiv(ctx, it, by),
                              r ? &r->high : &z->map[i]))
            return false;
    }
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        ein__repeat *r = ein__repeat_with(z, i);
        z->map[i] = none;
        if (!ein__repeat_slot(ctx, z, r ? r->taps : s->n[i], true, none, r ? &r->u : &z->map[i]))
            return false;
    }
    return true;
}

// g(t).
static ein__ix ein__repeat_least(ein_ctx *ctx, const ein__repeat *r, ein__ix t) {
    return ein__ix_floordiv(ctx, ein__ix_addc(ctx, ein__ix_scale(ctx, t, r->a), r->least), r->d);
}

// q where Z reads it.
static ein__ex ein__repeat_operand(ein_ctx *ctx, ein__repeating *z, ein__val q) {
    ein__ix at[EIN__MAX_RANK];
    for (uint32_t k = 0; k < z->p->nix; k++) {
        const ein__repeat *r = &z->r[k];
        at[k] = ein__ix_subst(ctx, z->p->ix[k], z->map, (int)(z->s->nt + z->s->ns));
        if (r->d == 1) continue;
        at[k] = ein__ix_scale(ctx, r->high, r->a * r->phases / r->d);
        at[k] = ein__ix_add(ctx, at[k], ein__ix_add(ctx, r->u, ein__repeat_least(ctx, r, r->t)));
    }
    return ein__ex_read(ctx, q, 0, at, (int)z->p->nix);
}

// W, whose dimensions are the iterators of Z that it depends on, where Z reads it.
static ein__ex ein__repeat_weights(ein__pass *pass, ein__repeating *z, ein__val v) {
    ein_ctx *ctx = pass->ctx;
    const ein__scope *s = z->s;
    ein__scope k = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], own[EIN__MAX_ITERS], at[EIN__MAX_RANK], r_at[EIN__MAX_RANK];
    ein__ex w = ein__ex_of(ctx, z->w);
    uint32_t uses = 0;
    bool summed = false;
    for (uint32_t i = 0; i < z->w->nix; i++)
        uses |= ein__ix_uses(ctx, ein__ix_subst(ctx, z->w->ix[i], z->map, (int)(s->nt + s->ns)));
    for (uint32_t i = 0; i < z->p->nix; i++)
        if (z->r[i].d > 1 && z->r[i].sum >= 0)
            uses |= ein__ix_uses(ctx, z->r[i].t) | ein__ix_uses(ctx, z->r[i].u), summed = true;
    if (!summed) return ein__ex_subst(ctx, w, z->map, (int)(s->nt + s->ns));
    if (!ein__used_dims(ctx, &z->t, uses, &k, own, at)) return (ein__ex){0};
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        map[i] = ein__ix_subst(ctx, z->map[i], own, (int)(z->t.nt + z->t.ns));
    for (uint32_t i = 0; i < z->p->nix; i++) {
        const ein__repeat *r = &z->r[i];
        if (r->d == 1 || r->sum < 0) continue;
        if (!ein__new_slot(&k, true, ctx, s->n[r->sum], &map[r->sum])) return (ein__ex){0};
        k.reduce = EIN__R_SUM;
        ein__ix t = ein__ix_subst(ctx, r->t, own, (int)(z->t.nt + z->t.ns));
        ein__ix u = ein__ix_subst(ctx, r->u, own, (int)(z->t.nt + z->t.ns));
        ein__ix of =
            ein__ix_add(ctx, ein__ix_scale(ctx, t, r->a), ein__ix_scale(ctx, map[r->sum], r->b));
        of = ein__ix_floordiv(ctx, ein__ix_addc(ctx, of, r->e), r->d);
        r_at[i] = ein__ix_sub(ctx, ein__ix_sub(ctx, of, ein__repeat_least(ctx, r, t)), u);
    }
    w = ein__ex_subst(ctx, w, map, (int)(s->nt + s->ns));
    for (uint32_t i = 0; i < z->p->nix && w.i; i++)
        if (z->r[i].d > 1 && z->r[i].sum >= 0) w = ein__ex_when(ctx, r_at[i], 1, false, w);
    if (!w.i) return w;
    k.body = w;
    pass->self = v;
    ein__val made =
        ein__pass_value(pass, ein__namef(ctx, "%s.taps", ctx->value[v.i].name), v, EIN__F32, &k);
    return made.i ? ein__ex_read(ctx, made, 0, at, (int)k.nt) : (ein__ex){0};
}

// ------------------------------------------------------------------------------------ the pass

// Product `v`, whose operand `p` repeats, as the law has it; none: it cannot be written.
static ein__val ein__repeats_once(ein__pass *pass, ein__repeating *z, ein__val v) {
    ein_ctx *ctx = pass->ctx;
    const ein__value old = ctx->value[v.i];
    ein__scope s = *z->s;
    z->s = &s;
    if (!ein__repeat_slots(ctx, z)) return (ein__val){0};
    ein__val q = ein__repeated(pass, (ein__val){z->p->val}, z);
    ein__ex x = q.i ? ein__repeat_operand(ctx, z, q) : (ein__ex){0};
    ein__ex w = x.i ? ein__repeat_weights(pass, z, v) : (ein__ex){0};
    z->t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
    z->t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, z->alpha), z->t.body);
    if (!z->t.body.i) return (ein__val){0};
    pass->self = v;
    ein__val made =
        ein__pass_value(pass, ein__namef(ctx, "%s.phases", old.name), v, old.dtype, &z->t);
    if (!made.i) return made;
    ctx->value[made.i].why = ein__rules[EIN__RULE_REPEATS].what;
    return ein__new_map(pass, old.name, old.dtype, (int)s.nt, s.n,
                        ein__ex_read(ctx, made, 0, z->back, (int)z->t.nt));
}

static ein__val ein__rebuild_repeats(ein__pass *pass, ein__val v) {
    ein_ctx *ctx = pass->ctx;
    const ein__expr *read[2];
    ein__repeating z = {.s = NULL};
    ein__ex body = ein__body_now(pass, ein__scope_of(ctx, v));
    ein__val is = body.i ? ein__with_body(pass, v, body) : (ein__val){0};
    if (!is.i || ctx->value[is.i].weight_only ||
        !ein__two_factors(ctx, ein__scope_of(ctx, is), read, &z.alpha))
        return is;
    for (int k = 0; k < 2; k++) {
        ein__val p = {read[k]->val};
        z.s = ein__scope_of(ctx, is);
        z.p = read[k];
        z.w = read[1 - k];
        if (!ein__is_map(ctx, p) || ctx->value[p.i].weight_only ||
            !ctx->value[z.w->val].weight_only || !ein__find_repeats(ctx, &z))
            continue;
        ein__attempt attempt = ein__try(ctx);
        ein__val made = ein__repeats_once(pass, &z, is);
        return ein__tried(ctx, attempt) && made.i ? made : is;
    }
    return is;
}

// Products of what repeats, by phases, in the program under `root`; `*changed` when there are any.
EIN__FN bool ein__share_repeats(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    return !ein__rule_on(ctx, EIN__RULE_REPEATS) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_repeats, NULL, changed);
}
