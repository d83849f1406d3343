// Argmax and argmin: the place where a row is largest or smallest. Two reductions over the same
// terms,
//     m[i] = max(r) v[i,r]        y[i] = min(r) select(v[i,r] == m[i], p[i,r], none)
// are one reduction over pairs (v, p): of two pairs the one with the larger v is kept, of equal
// ones that with the smaller p; (-inf, none) is the identity. So the terms are read once, and no
// rounding can come between a term and the extremum that it is compared with.

typedef struct ein__extremum {
    ein__val best;   // m
    ein__ex value;   // v, in the iterators of y
    ein__ix at;      // p: an integer
    int64_t none;    // no place is beyond it
    bool max, last;  // m is a maximum; y is one
} ein__extremum;

static ein__fn ein__mirrored(ein__fn cmp) {
    if (cmp == EIN__LT || cmp == EIN__LE) return cmp == EIN__LT ? EIN__GT : EIN__GE;
    if (cmp == EIN__GT || cmp == EIN__GE) return cmp == EIN__GT ? EIN__LT : EIN__LE;
    return cmp;
}

// Which operand of a selection by `value cmp extremum` is taken where they are equal, 2 or 3; 0:
// the comparison tells something else. NaN, which no integer is, must not pass for the extremum.
static int ein__place_hit(ein_ctx *ctx, ein__fn cmp, bool max, ein__ex value) {
    if (cmp == EIN__EQ || cmp == (max ? EIN__GE : EIN__LE)) return 2;
    if (cmp == EIN__NE) return 3;
    return cmp == (max ? EIN__LT : EIN__GT) && ein__ex_integral(ctx, value) ? 3 : 0;
}

// Whether `read`, of the extrema, stands for the reduction of `value` over the terms of `s`.
static bool ein__place_compares(ein_ctx *ctx, const ein__scope *s, ein__ex value, ein__ex read,
                                ein__extremum *p) {
    const ein__expr *e = ein__ex_get(ctx, read);
    if (e->op != EIN__X_READ || ctx->value[e->val].kind != EIN__V_SCOPE) return false;
    const ein__scope *m = ein__sc_get(ctx, ctx->value[e->val].scope);
    ein__ix map[EIN__MAX_ITERS];
    if ((m->reduce != EIN__R_MAX && m->reduce != EIN__R_MIN) || m->ns != s->ns) return false;
    for (uint32_t k = 0; k < m->nt; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        map[k] = e->ix[k];
        if (f->q != 1 || f->lo < 0 || f->hi >= m->n[k] || ein__ix_has_gather(ctx, map[k]))
            return false;
    }
    for (uint32_t k = 0; k < m->ns; k++) {
        if (m->n[m->nt + k] != s->n[s->nt + k]) return false;
        map[m->nt + k] = ein__ix_iter(ctx, s->nt + k, s->n[s->nt + k]);
    }
    ein__attempt attempt = ein__try(ctx);
    ein__ex body = ein__ex_subst(ctx, m->body, map, (int)(m->nt + m->ns));
    if (!ein__tried(ctx, attempt) || body.i != value.i) return false;
    p->best = (ein__val){e->val};
    p->value = value;
    p->max = m->reduce == EIN__R_MAX;
    return true;
}

// Whether reduction `s` gives places of extrema.
EIN__FN bool ein__match_place(ein_ctx *ctx, const ein__scope *s, ein__extremum *p) {
    if (!s || (s->reduce != EIN__R_MAX && s->reduce != EIN__R_MIN)) return false;
    const ein__expr e = *ein__ex_get(ctx, s->body);
    int hit = 0;
    double none;
    if (e.op != EIN__X_SELECT) return false;
    for (int side = 0; side < 2 && !hit; side++) {
        ein__fn cmp = side ? ein__mirrored((ein__fn)e.fn) : (ein__fn)e.fn;
        if (ein__place_compares(ctx, s, e.kid[side], e.kid[1 - side], p))
            hit = ein__place_hit(ctx, cmp, p->max, p->value);
    }
    if (!hit) return false;
    const ein__expr *at = ein__ex_get(ctx, e.kid[hit]);
    if (at->op != EIN__X_IDX || !ein__ex_is_const(ctx, e.kid[5 - hit], &none)) return false;
    const ein__index *f = ein__ix_get(ctx, at->ix[0]);
    p->at = at->ix[0];
    p->last = s->reduce == EIN__R_MAX;
    if (f->q != 1 || ein__ix_has_gather(ctx, p->at) || fabs(none) > EIN__MAX_ELEMENTS) return false;
    p->none = (int64_t)none;
    if ((double)p->none != none || f->lo < -EIN__MAX_ELEMENTS || f->hi > EIN__MAX_ELEMENTS)
        return false;
    return p->last ? p->none <= f->lo : p->none >= f->hi;
}

// The same of value `v`.
static bool ein__place_of(ein_ctx *ctx, ein__val v, ein__extremum *p) {
    const ein__value *x = &ctx->value[v.i];
    return x->kind == EIN__V_SCOPE && ein__match_place(ctx, ein__sc_get(ctx, x->scope), p);
}

// Whether `v` gives places, or is the extrema of one of the values in `order` that does: one kernel
// computes both, so what both read is read once.
static bool ein__in_place(ein_ctx *ctx, const ein__val *order, ein__val v) {
    const ein__value *x = &ctx->value[v.i];
    ein__extremum p;
    if (ein__place_of(ctx, v, &p)) return true;
    if (x->kind != EIN__V_SCOPE) return false;
    const ein__scope *s = ein__sc_get(ctx, x->scope);
    if (s->reduce != EIN__R_MAX && s->reduce != EIN__R_MIN) return false;
    for (ptrdiff_t i = 0; i < arrlen(order); i++)
        if (ein__place_of(ctx, order[i], &p) && p.best.i == v.i) return true;
    return false;
}
