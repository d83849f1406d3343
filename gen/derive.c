// Derivation: other definitions of a contraction, found by rules on its expression alone (EinNet
// section 4, OLLIE section 4). A class is a tensor value, its members are equivalent definitions; a
// definition reads other classes, so alternatives add up instead of multiplying. Layouts are no
// part of it: they are chosen afterwards.
//
//   summation splitting     V = sum(y,z) a b        =>  V = sum(y) W,  W = sum(z) a b
//   variable substitution   W depends on x, y only through E(x,y)  =>  W[x,y] = W'[E(x,y)], with
//   the
//                           range of E tightened to where the reads are inside (boundary
//                           tightening)
//   operator matching       a read that a library cannot address is written out as a tensor first
//   digit re-layout         a[d*x + u], u = d*U + p  =>  a'[x + U, p], a'[i,p] = a[d*i + p]

enum {
    EIN__DERIVE_STATES = 300,  // definitions of one problem
    EIN__DERIVE_DEPTH = 3,     // rules in a row
    EIN__MAX_GROWTH = 16,      // of an activation written out for a library call
    EIN__MAX_SPLIT = 6         // summation iterators whose subsets are enumerated
};

typedef struct ein__def {
    ein__val cls;
    ein__sc sc;
    int from;  // definition it was made from, -1 for a class's first
    int depth;
    const char *rule;  // name of the rule and what it was applied to
    bool inner;        // the inner half of a split: not split again, a direct split gives the same
} ein__def;

typedef struct ein__deriver {
    ein_ctx *ctx;
    ein__def *def;          // stb_ds arrays
    ein__val *by_scope;     // class by scope id
    int64_t *cost;          // by value id: of the cheapest definition; 0 not known, -1 being found
    int *best;              // by value id: that definition
    ein__val problem, map;  // what is derived, and the map that alone reads it (or none)
    ein__ex map_read;
    uint32_t first;  // values from here on were made for this problem
} ein__deriver;

#ifdef EIN_CHECK_STEPS
static int64_t ein__steps_checked;

// Both sides of a rule's application, modulo 2^61-1, at random places, with what the problem reads
// as free inputs. Test builds only: this costs far more than the rule.
static void ein__check_step(ein__deriver *z, ein__val cls, ein__sc sc, const char *rule) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[cls.i];
    if (old.scope.i == sc.i) return;
    ein__val other =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    bool *fresh = NULL;
    for (uint32_t i = 0; i < (uint32_t)arrlen(ctx->value); i++)
        arrput(fresh, i < z->first && i != z->problem.i);
    if (!ein__evalp_equal_from(ctx, cls, other, EIN_CHECK_STEPS, 1, fresh))
        ein__error(ctx, EIN_DIFFERS, (ein__pos){0, 0}, "%s: %s changes the value", old.name, rule);
    arrfree(fresh);
    ein__steps_checked++;
}
#endif

static bool ein__add_def(ein__deriver *z, ein__val cls, const ein__scope *s, int from,
                         const char *rule, bool inner) {
    ein__sc sc = ein__sc_make(z->ctx, s);
    if (!sc.i || arrlen(z->def) >= EIN__DERIVE_STATES) return false;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++)
        if (z->def[i].sc.i == sc.i && z->def[i].cls.i == cls.i) return false;
#ifdef EIN_CHECK_STEPS
    ein__check_step(z, cls, sc, rule);
#endif
    ein__def d = {cls, sc, from, from < 0 ? 0 : z->def[from].depth + 1, rule, inner};
    arrput(z->def, d);
    return true;
}

// The class whose definition is `s`, made when there is none.
static ein__val ein__class_of(ein__deriver *z, const ein__scope *s, const char *suffix, int from,
                              const char *rule, bool inner) {
    ein_ctx *ctx = z->ctx;
    const ein__value base = ctx->value[z->problem.i];
    ein__shape shape = {.rank = (int)s->nt};
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) return (ein__val){0};
    ein__sc sc = ein__sc_make(ctx, s);
    if (!sc.i) return (ein__val){0};
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc.i) arrput(z->by_scope, (ein__val){0});
    if (z->by_scope[sc.i].i) return z->by_scope[sc.i];
    for (uint32_t i = 0; i < s->nt; i++) shape.d[i] = s->n[i];
    if (ein__elements(&shape) > EIN__MAX_ELEMENTS) return (ein__val){0};
    ein__val v = ein__val_new(ctx, ein__namef(ctx, "%s.%s", base.name, suffix), EIN__V_SCOPE,
                              base.tensor, sc, &shape, EIN__F32, base.node);
    z->by_scope[sc.i] = v;
    ein__add_def(z, v, s, from, rule, inner);
    return v;
}

static int64_t ein__slots_volume(const ein__scope *s, uint32_t mask) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (mask >> i & 1) n = ein__muldiv(n, s->n[i], 1);
    return n;
}

// ------------------------------------------------------------------------------------ substitution

// The part of a subscript in the `outer` iterators: E. The subscript is E + *rest + inner terms.
// None when the two cannot be told apart.
static ein__ix ein__outer_part(ein_ctx *ctx, ein__ix ix, uint32_t outer, int64_t *rest) {
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__ix e = ein__ix_const(ctx, 0);
    bool mixed = false;
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[k].atom);
        if (a->kind != EIN__ITER) return (ein__ix){0};
        if (outer >> a->slot & 1)
            e = ein__ix_add(ctx, e,
                            ein__ix_scale(ctx, ein__ix_iter(ctx, a->slot, a->n), f->t[k].k));
        else mixed = true;
    }
    *rest = f->c;
    if (f->q == 1) return e;
    if (mixed) return (ein__ix){0};
    int64_t low = ein__floormod(f->c, f->q);
    *rest = (f->c - low) / f->q;
    return ein__ix_div(ctx, ein__ix_addc(ctx, e, low), f->q);
}

// A dimension of an inner value: a bare iterator, or a form E of several.
typedef struct ein__dim {
    ein__ix form;    // in the outer scope's iterators
    int64_t lo, n;   // range of the form that matters
    uint32_t reads;  // which factors it occurs in
    bool composite;
} ein__dim;

typedef struct ein__dims {
    ein__dim d[EIN__MAX_ITERS];
    int n;
} ein__dims;

static bool ein__is_composite(ein_ctx *ctx, ein__ix e) {
    const ein__index *f = ein__ix_get(ctx, e);
    return f->n > 1 || (f->n == 1 && f->q > 1);
}

static ein__dim *ein__dim_of(ein__dims *z, ein__ix form) {
    for (int i = 0; i < z->n; i++)
        if (z->d[i].form.i == form.i) return &z->d[i];
    return NULL;
}

// Iterators that must stay themselves: those that stand alone in some subscript, or where a form
// cannot be separated.
static uint32_t ein__bare_slots(ein_ctx *ctx, const ein__ex *reads, uint32_t outer) {
    uint32_t bare = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < r->nix; k++) {
            int64_t rest;
            uint32_t used = ein__ix_uses(ctx, r->ix[k]) & outer;
            ein__ix e = used ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
            if (used && (!e.i || !ein__is_composite(ctx, e))) bare |= used;
        }
    }
    return bare;
}

// Adds form `e`; its range shrinks to where reads that are nothing but it (no inner terms, padding
// 0) are inside: elsewhere the product is 0, and so is reading outside.
static bool ein__add_composite(ein_ctx *ctx, ein__dims *z, ein__ix e, const ein__expr *r,
                               uint32_t k, int64_t rest, uint32_t factor) {
    ein__dim *d = ein__dim_of(z, e);
    const ein__index *f = ein__ix_get(ctx, e);
    if (!d) {
        if (z->n == EIN__MAX_ITERS) return false;
        d = &z->d[z->n++];
        *d = (ein__dim){.form = e, .lo = f->lo, .n = f->hi - f->lo + 1, .composite = true};
    }
    d->reads |= factor;
    if (ein__ix_get(ctx, r->ix[k])->n != f->n || r->bits) return true;
    int64_t lo = -rest, hi = ctx->value[r->val].shape.d[k] - 1 - rest, end = d->lo + d->n - 1;
    if (lo > d->lo) d->lo = lo;
    if (hi < end) end = hi;
    d->n = end - d->lo + 1;
    return d->n > 0;
}

// The dimensions of the value that `reads` depend on, substituted where that does not enlarge the
// box by more than `growth` / 100.
static bool ein__inner_dims(ein_ctx *ctx, const ein__scope *s, const ein__ex *reads, uint32_t outer,
                            int64_t growth, ein__dims *z) {
    uint32_t bare = ein__bare_slots(ctx, reads, outer), used = 0;
    z->n = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < r->nix; k++) {
            int64_t rest;
            uint32_t in = ein__ix_uses(ctx, r->ix[k]) & outer;
            used |= in;
            ein__ix e = in ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
            // A form whose iterators are all needed themselves would only add a dimension.
            if (!e.i || !ein__is_composite(ctx, e) || !(in & ~bare)) continue;
            if (!ein__add_composite(ctx, z, e, r, k, rest, 1u << i)) return false;
        }
    }
    int64_t volume = 1;
    for (int i = 0; i < z->n; i++) volume = ein__muldiv(volume, z->d[i].n, 1);
    volume = ein__muldiv(volume, ein__slots_volume(s, bare), 1);
    if (ein__muldiv(volume, 100, 1) > ein__muldiv(ein__slots_volume(s, used), growth, 1)) {
        z->n = 0;
        bare = used;
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(bare >> i & 1) || s->n[i] == 1) continue;
        if (z->n == EIN__MAX_ITERS) return false;
        z->d[z->n++] = (ein__dim){.form = ein__ix_iter(ctx, i, s->n[i]), .n = s->n[i]};
    }
    for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
        const ein__expr *e = ein__ex_get(ctx, reads[r]);
        for (uint32_t k = 0; k < e->nix; k++) {
            int64_t rest;
            uint32_t in = ein__ix_uses(ctx, e->ix[k]) & outer;
            ein__ix form = in ? ein__outer_part(ctx, e->ix[k], outer, &rest) : (ein__ix){0};
            if (form.i && ein__is_composite(ctx, form) && ein__dim_of(z, form)) continue;
            for (int i = 0; i < z->n; i++)
                if (!z->d[i].composite && (in & ein__ix_uses(ctx, z->d[i].form)))
                    z->d[i].reads |= 1u << r;
        }
    }
    return true;
}

// Canonical order of dimensions: those of both factors, those of the factor without windows (the
// filter), plain ones of the other, windows last: neighbouring results then stand side by side.
static int ein__dim_rank(const ein__dim *d, uint32_t windowed) {
    return d->reads == 3 ? 0 : d->composite ? 3 : (d->reads & windowed) ? 2 : 1;
}

static void ein__order_dims(ein__dims *z) {
    uint32_t windowed = 0;
    for (int i = 0; i < z->n; i++)
        if (z->d[i].composite) windowed |= z->d[i].reads;
    for (int i = 1; i < z->n; i++)
        for (int j = i; j > 0; j--) {
            ein__dim *a = &z->d[j - 1], *b = &z->d[j];
            if (ein__dim_rank(a, windowed) <= ein__dim_rank(b, windowed)) break;
            ein__dim swap = *a;
            *a = *b;
            *b = swap;
        }
}

// One subscript of a read, rewritten to the new value's iterators.
static ein__ex ein__inner_read(ein_ctx *ctx, const ein__expr *r, uint32_t outer, const ein__dims *z,
                               const ein__ix *map, int nmap) {
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t k = 0; k < r->nix; k++) {
        int64_t rest = 0;
        uint32_t in = ein__ix_uses(ctx, r->ix[k]) & outer;
        ein__ix e = in ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
        int at = -1;
        for (int i = 0; e.i && i < z->n; i++)
            if (z->d[i].composite && z->d[i].form.i == e.i) at = i;
        if (at < 0) {
            ix[k] = ein__ix_subst(ctx, r->ix[k], map, nmap);
            continue;
        }
        ix[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, (uint32_t)at, z->d[at].n), z->d[at].lo + rest);
        const ein__index *f = ein__ix_get(ctx, r->ix[k]);
        for (uint32_t t = 0; t < f->n; t++) {
            uint32_t slot = ein__atom_get(ctx, f->t[t].atom)->slot;
            if (!(outer >> slot & 1))
                ix[k] = ein__ix_add(ctx, ix[k], ein__ix_scale(ctx, map[slot], f->t[t].k));
        }
    }
    double pad;
    memcpy(&pad, &r->bits, sizeof pad);
    return ein__ex_read(ctx, (ein__val){r->val}, pad, ix, (int)r->nix);
}

// The value sum(inner) of the product of `reads`, as a class in normal form, and how the rest of
// the definition reads it. None when it cannot be made.
static ein__ex ein__inner_value(ein__deriver *z, const ein__scope *s, const ein__ex *reads,
                                uint32_t inner, int64_t growth, const char *suffix, int from,
                                const char *rule) {
    ein_ctx *ctx = z->ctx;
    uint32_t all = (1u << (s->nt + s->ns)) - 1, outer = all & ~inner;
    ein__dims dims;
    if (!ein__inner_dims(ctx, s, reads, outer, growth, &dims) || dims.n > EIN__MAX_RANK)
        return (ein__ex){0};
    ein__order_dims(&dims);
    ein__scope t = {.reduce = inner ? EIN__R_SUM : EIN__R_NONE, .nt = (uint32_t)dims.n};
    ein__ix map[EIN__MAX_ITERS] = {{0}}, back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int i = 0; i < dims.n; i++) {
        uint32_t slot;
        t.n[i] = dims.d[i].n;
        back[i] = ein__ix_addc(ctx, dims.d[i].form, -dims.d[i].lo);
        if (!dims.d[i].composite && ein__ix_is_iter(ctx, dims.d[i].form, &slot))
            map[slot] = ein__ix_iter(ctx, (uint32_t)i, t.n[i]);
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(inner >> i & 1) || s->n[i] == 1) continue;
        if (t.nt + t.ns == EIN__MAX_ITERS) return (ein__ex){0};
        t.n[t.nt + t.ns] = s->n[i];
        map[i] = ein__ix_iter(ctx, t.nt + t.ns++, s->n[i]);
    }
    if (!t.ns) t.reduce = EIN__R_NONE;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__ex r = ein__inner_read(ctx, ein__ex_get(ctx, reads[i]), outer, &dims, map,
                                    (int)(s->nt + s->ns));
        t.body = t.body.i ? ein__ex_binary(ctx, EIN__MUL, t.body, r) : r;
        if (!t.body.i) return t.body;
    }
    ein__val w = ein__class_of(z, &t, suffix, from, rule, true);
    return w.i ? ein__ex_read(ctx, w, 0, back, dims.n) : (ein__ex){0};
}

// ------------------------------------------------------------------------------------ rules

// The reductions of `mask` as the printer names them: "r0,r2".
static void ein__put_slots(ein__buf *b, const ein__scope *s, uint32_t mask) {
    const char *comma = "";
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(mask >> i & 1)) continue;
        ein__putf(b, "%sr%d", comma, (int)(i - s->nt));
        comma = ",";
    }
}

// Scope `s` without the reductions in `gone`.
static bool ein__without_sums(ein_ctx *ctx, const ein__scope *s, uint32_t gone, ein__ex body,
                              ein__scope *t) {
    ein__ix map[EIN__MAX_ITERS];
    *t = (ein__scope){.nt = s->nt};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (gone >> i & 1) continue;
        uint32_t slot = i < s->nt ? i : t->nt + t->ns++;
        t->n[slot] = s->n[i];
        map[i] = ein__ix_iter(ctx, slot, s->n[i]);
    }
    t->reduce = t->ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    t->body = ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
    return t->body.i != 0;
}

// Every proper subset of the summation goes to an inner value; factors free of it stay outside.
static void ein__rule_split(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (d.inner || s->ns < 2 || s->ns > EIN__MAX_SPLIT || !ein__two_factors(ctx, s, read, &alpha))
        return;
    for (uint32_t sub = 1; sub + 1 < 1u << s->ns; sub++) {
        uint32_t inner = sub << s->nt;
        ein__ex *in = NULL, outside = {0};
        for (int k = 0; k < 2; k++) {
            uint32_t uses = 0;
            for (uint32_t i = 0; i < read[k]->nix; i++) uses |= ein__ix_uses(ctx, read[k]->ix[i]);
            if (uses & inner) arrput(in, ein__ex_of(ctx, read[k]));
            else outside = ein__ex_of(ctx, read[k]);
        }
        ein__buf why = {0};
        ein__put(&why, "summation splitting (");
        ein__put_slots(&why, s, inner);
        ein__put(&why, " inside), variable substitution");
        ein__ex w = ein__inner_value(z, s, in, inner, 100, "part", from, ein__name(ctx, why.s));
        ein__buf_free(&why);
        arrfree(in);
        if (!w.i) continue;
        ein__ex body = outside.i ? ein__ex_binary(ctx, EIN__MUL, outside, w) : w;
        if (alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
        ein__scope t;
        if (ein__without_sums(ctx, s, inner, body, &t))
            ein__add_def(z, d.cls, &t, from, "summation splitting", d.inner);
    }
}

// Read `r` written out as a tensor whose dimensions are the iterators it uses: group iterators
// first, the summation last (or first for the second factor). None when that is no gain or grows
// too much.
static ein__ex ein__written_out(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                                const ein__expr *other, int from) {
    ein_ctx *ctx = z->ctx;
    uint32_t mine = 0, theirs = 0;
    for (uint32_t k = 0; k < r->nix; k++) mine |= ein__ix_uses(ctx, r->ix[k]);
    for (uint32_t k = 0; k < other->nix; k++) theirs |= ein__ix_uses(ctx, other->ix[k]);
    // What was written out once is in the right order already.
    if (r->val >= z->first && ein__copy_of(ctx, (ein__val){r->val})) return (ein__ex){0};
    bool weight = ctx->value[r->val].weight_only;
    int64_t volume = ein__slots_volume(s, mine), had = ein__elements(&ctx->value[r->val].shape);
    if (!weight && volume > had * EIN__MAX_GROWTH) return (ein__ex){0};
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            int group = i >= s->nt ? 2 : theirs >> i & 1 ? 0 : 1;
            if (group != pass || !(mine >> i & 1) || s->n[i] == 1) continue;
            if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
            back[t.nt] = ein__ix_iter(ctx, i, s->n[i]);
            map[i] = ein__ix_iter(ctx, t.nt, s->n[i]);
            t.n[t.nt++] = s->n[i];
        }
    t.body = ein__ex_subst(ctx, ein__ex_of(ctx, r), map, (int)(s->nt + s->ns));
    if (!t.body.i) return t.body;
    ein__val v = ein__class_of(z, &t, weight ? "relaid" : "columns", from, "operand re-laid", true);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// Converging derivation: what keeps a contraction from being a GEMM is the address of an operand,
// so that operand is written out (im2col is this, applied to a convolution's data).
static void ein__rule_match_gemm(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    int64_t out[EIN__MAX_RANK];
    double alpha;
    ein__gemm g;
    if (!ein__two_factors(ctx, s, read, &alpha)) return;
    ein__dense_result(s, out);
    for (int which = 1; which < 4; which++) {
        ein__ex x[2];
        bool made = true;
        for (int k = 0; k < 2; k++) {
            x[k] = ein__ex_of(ctx, read[k]);
            if (which >> k & 1) x[k] = ein__written_out(z, s, read[k], read[1 - k], from);
            made = made && x[k].i;
        }
        if (!made) continue;
        ein__scope t = *s;
        t.body = ein__ex_binary(ctx, EIN__MUL, x[0], x[1]);
        if (alpha != 1) t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t.body);
        if (!t.body.i || !ein__match_gemm(ctx, &t, out, &g)) continue;
        ein__add_def(z, d.cls, &t, from, "operand re-laid for matching", d.inner);
    }
}

// ------------------------------------------------------------------------------------ digits

// Digit re-layout by `d`: iterators that stand with coefficient 1 beside multiples of d become two
// digits, u = d * U + p, and every tensor read there is re-laid, a'[i, p] = a[d * i + p].
typedef struct ein__digit {
    int64_t d;
    uint32_t unit;  // slots that are split
    ein__scope t;   // the new scope; body last
    ein__ix whole[EIN__MAX_ITERS], high[EIN__MAX_ITERS], low[EIN__MAX_ITERS];  // by old slot
    ein__ix back[EIN__MAX_RANK];  // of new traversal slot: its form in the old iterators
} ein__digit;

// Whether form `f` is (multiples of d) + one bare iterator + c; that iterator in `*slot`.
static bool ein__beside(ein_ctx *ctx, const ein__index *f, int64_t d, uint32_t *slot,
                        bool *multiple) {
    int ones = 0;
    *multiple = false;
    if (f->q != 1) return false;
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[k].atom);
        if (a->kind != EIN__ITER) return false;
        if (f->t[k].k % d == 0) {
            *multiple = true;
        } else if (f->t[k].k == 1) {
            *slot = a->slot;
            ones++;
        } else {
            return false;
        }
    }
    return ones == 1;
}

static bool ein__find_units(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                            ein__digit *g) {
    uint32_t slot = 0, padded = 0;
    bool multiple;
    g->unit = 0;
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++)
            if (ein__beside(ctx, ein__ix_get(ctx, read[r]->ix[k]), g->d, &slot, &multiple) &&
                multiple)
                g->unit |= 1u << slot;
    // Every other use of such an iterator must be splittable too, and terms that a sum gains by
    // rounding up must meet a read outside its box.
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
            if (!(ein__ix_uses(ctx, read[r]->ix[k]) & g->unit)) continue;
            if (!ein__beside(ctx, f, g->d, &slot, &multiple) || !(g->unit >> slot & 1))
                return false;
            if (!multiple && !f->c && ctx->value[read[r]->val].shape.d[k] == s->n[slot])
                padded |= 1u << slot;
        }
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++)
        if ((g->unit >> i & 1) && s->n[i] % g->d && !(padded >> i & 1)) return false;
    return g->unit != 0;
}

// Rank of an iterator in the result: batch, filter, window.
static int ein__digit_rank(ein_ctx *ctx, const ein__expr *const *read, uint32_t slot) {
    bool windowed = false, in[2] = {false, false};
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            if (!(ein__ix_uses(ctx, read[r]->ix[k]) >> slot & 1)) continue;
            in[r] = true;
            windowed |= ein__ix_get(ctx, read[r]->ix[k])->n > 1;
        }
    bool data[2] = {false, false};
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++)
            data[r] |= ein__ix_get(ctx, read[r]->ix[k])->n > 1;
    return windowed ? 3 : (in[0] && data[0]) || (in[1] && data[1]) ? 0 : 2;
}

static bool ein__digit_slots(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                             ein__digit *g) {
    bool split = (g->unit & ((1u << s->nt) - 1)) != 0;
    g->t = (ein__scope){.reduce = s->reduce};
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        g->whole[i] = g->high[i] = g->low[i] = ein__ix_const(ctx, 0);
    for (int rank = 0; rank < 5; rank++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            bool sum = i >= s->nt, unit = g->unit >> i & 1;
            ein__ix old = ein__ix_iter(ctx, i, s->n[i]);
            int mine = sum ? 4 : split ? ein__digit_rank(ctx, read, i) : 0;
            for (int part = unit ? 1 : 0; part < (unit ? 3 : 1); part++) {
                // The low digit of a window is one more batch dimension.
                if ((part == 2 && !sum ? 0 : mine) != rank) continue;
                uint32_t slot = g->t.nt + g->t.ns;
                int64_t n = part == 0 ? s->n[i] : part == 1 ? (s->n[i] + g->d - 1) / g->d : g->d;
                if (slot == EIN__MAX_ITERS || (!sum && slot == EIN__MAX_RANK)) return false;
                g->t.n[slot] = n;
                *(part == 0   ? &g->whole[i]
                  : part == 1 ? &g->high[i]
                              : &g->low[i]) = ein__ix_iter(ctx, slot, n);
                if (!sum)
                    g->back[slot] = part == 0   ? old
                                    : part == 1 ? ein__ix_floordiv(ctx, old, g->d)
                                                : ein__ix_mod(ctx, old, g->d);
                if (sum) g->t.ns++;
                else g->t.nt++;
            }
        }
    return true;
}

// Read `r` of the re-laid tensor. Its dimensions: batch, low digits of windows, channels, low
// digits of sums, windows.
static ein__ex ein__digit_read(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                               const ein__digit *g, int from) {
    ein_ctx *ctx = z->ctx;
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix body[EIN__MAX_RANK], index[EIN__MAX_RANK];
    if (r->bits) return (ein__ex){0};
    for (int group = 0; group < 5; group++)
        for (uint32_t k = 0; k < r->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, r->ix[k]);
            uint32_t uses = ein__ix_uses(ctx, r->ix[k]), slot = 0;
            int64_t extent = ctx->value[r->val].shape.d[k];
            bool multiple = false,
                 unit = (uses & g->unit) && ein__beside(ctx, f, g->d, &slot, &multiple);
            bool sum = slot >= s->nt;
            if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
            if (!unit) {
                int mine = f->n > 1 ? 4 : uses >> s->nt ? 2 : 0;
                if (mine != group) continue;
                body[k] = ein__ix_iter(ctx, t.nt, extent);
                index[t.nt] = ein__ix_subst(ctx, r->ix[k], g->whole, (int)(s->nt + s->ns));
                t.n[t.nt++] = extent;
                continue;
            }
            int64_t c0 = ein__floormod(f->c, g->d), c1 = ein__floordiv(f->c, g->d);
            int64_t lo = c0 ? -1 : 0, hi = ein__floordiv(extent - 1 - c0, g->d);
            if (group == (sum ? 3 : 1)) {
                index[t.nt] = g->low[slot];
                t.n[t.nt++] = g->d;
            } else if (group == 4) {
                ein__ix i = ein__ix_addc(ctx, g->high[slot], c1 - lo);
                for (uint32_t q = 0; q < f->n; q++) {
                    uint32_t other = ein__atom_get(ctx, f->t[q].atom)->slot;
                    if (other != slot)
                        i = ein__ix_add(ctx, i,
                                        ein__ix_scale(ctx, g->whole[other], f->t[q].k / g->d));
                }
                // Zeros are written out on one side until both are padded alike: library calls take
                // one padding for both.
                const ein__index *range = ein__ix_get(ctx, i);
                int64_t before = range->lo < 0 ? -range->lo : 0, after = range->hi - (hi - lo);
                if (after < 0) after = 0;
                if (after > before) hi += after - before;
                if (before > after) {
                    lo -= before - after;
                    i = ein__ix_addc(ctx, i, before - after);
                }
                // d * (i + lo) + p + c0, with p the low digit placed before
                body[k] = ein__ix_addc(
                    ctx, ein__ix_scale(ctx, ein__ix_iter(ctx, t.nt, hi - lo + 1), g->d),
                    lo * g->d + c0);
                for (uint32_t q = 0; q < t.nt; q++)
                    if (index[q].i == g->low[slot].i) {
                        body[k] = ein__ix_add(ctx, body[k], ein__ix_iter(ctx, q, g->d));
                        break;
                    }
                index[t.nt] = i;
                t.n[t.nt++] = hi - lo + 1;
            }
        }
    t.body = ein__ex_read(ctx, (ein__val){r->val}, 0, body, (int)r->nix);
    ein__val v =
        t.body.i ? ein__class_of(z, &t, "digits", from, "digit re-layout", true) : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, index, (int)t.nt) : (ein__ex){0};
}

static void ein__rule_digits(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    int64_t tried[8];
    int ntried = 0;
    double alpha;
    if (d.inner || d.depth || !ein__two_factors(ctx, s, read, &alpha) || alpha != 1) return;
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
            for (uint32_t q = 0; q < f->n; q++) {
                ein__digit g = {.d = f->t[q].k};
                bool again = false;
                for (int i = 0; i < ntried; i++) again |= tried[i] == g.d;
                if (g.d < 2 || f->n < 2 || again || ntried == 8) continue;
                tried[ntried++] = g.d;
                if (!ein__find_units(ctx, s, read, &g) || !ein__digit_slots(ctx, s, read, &g))
                    continue;
                ein__ex x = ein__digit_read(z, s, read[0], &g, from),
                        w = ein__digit_read(z, s, read[1], &g, from);
                if (!x.i || !w.i) continue;
                g.t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
                if (!(g.unit & ((1u << s->nt) - 1))) {
                    ein__add_def(z, d.cls, &g.t, from, "digit re-layout", d.inner);
                    continue;
                }
                ein__val v = ein__class_of(z, &g.t, "phases", from, "digit re-layout", true);
                ein__scope copy = {.reduce = EIN__R_NONE, .nt = s->nt};
                memcpy(copy.n, s->n, s->nt * sizeof *copy.n);
                copy.body = v.i ? ein__ex_read(ctx, v, 0, g.back, (int)g.t.nt) : (ein__ex){0};
                if (copy.body.i) ein__add_def(z, d.cls, &copy, from, "digit re-layout", d.inner);
            }
        }
}

// ------------------------------------------------------------------------------------ choice

static int64_t ein__class_cost(ein__deriver *z, ein__val v);

// A copy whose addresses are those of its source under another shape costs nothing.
static bool ein__is_view_copy(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    ein__ix map[EIN__MAX_ITERS];
    const ein__scope *p = e->op == EIN__X_READ ? ein__scope_of(ctx, (ein__val){e->val}) : NULL;
    return s->reduce == EIN__R_NONE && p && ein__inside(ctx, e) && ein__ex_affine(ctx, s->body) &&
           ein__invert_read(ctx, e, s, p, map);
}

// Bytes that a kernel for the definition moves: every read once, the result once.
static int64_t ein__def_bytes(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    int64_t bytes = ein__bytes_of(ctx, d->cls);
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, d->sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        bytes += ein__bytes_of(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val});
    arrfree(reads);
    return bytes;
}

// Cost of the step that computes a definition, without what it reads. The problem itself carries
// the cost of the map behind it, unless that map is fused.
static int64_t ein__def_step_cost(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, d->sc);
    bool last = d->cls.i == z->problem.i && z->map.i;
    int64_t map = last ? ein__kernel_cost(ctx, z->map) : 0, bytes = ein__def_bytes(z, d), ps;
    if (ctx->value[d->cls.i].weight_only || ein__is_view_copy(ctx, s)) return map;
    if (!ein__is_contraction(ctx, s)) {
        int64_t flop = ein__muldiv(ein__volume(s), ein__ex_size(ctx, s->body), 1);
        return ein__cost_kernel(ctx, flop, bytes);
    }
    ein__choose(ctx, s, last ? z->map : (ein__val){0}, z->map_read, bytes, &ps);
    return ps;
}

static int64_t ein__def_cost(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    int64_t total = ein__def_step_cost(z, d);
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, d->sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        total += ein__class_cost(z, (ein__val){ein__ex_get(ctx, reads[i])->val});
    arrfree(reads);
    return total;
}

// Least cost over a class's definitions; values that are no class of this problem cost nothing.
static int64_t ein__class_cost(ein__deriver *z, ein__val v) {
    while (arrlen(z->cost) <= (ptrdiff_t)v.i) {
        arrput(z->cost, 0);
        arrput(z->best, -1);
    }
    if (z->cost[v.i] == -1) return INT64_MAX / 8;  // a cycle: not this way
    if (z->cost[v.i]) return z->cost[v.i] - 1;
    int64_t least = 0;
    z->cost[v.i] = -1;
    int best = -1;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
        if (z->def[i].cls.i != v.i) continue;
        int64_t c = ein__def_cost(z, &z->def[i]);
        if (best < 0 || c < least) {
            least = c;
            best = (int)i;
        }
    }
    z->cost[v.i] = least + 1;
    z->best[v.i] = best;
    return least;
}

typedef struct ein__realiser {
    ein__deriver *z;
    ein__val *made;
} ein__realiser;

static ein__val ein__realise(ein__realiser *r, ein__val v);

static ein__ex ein__realise_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__realiser *r = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = ein__realise(r, (ein__val){e->val});
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return v.i ? ein__ex_read(ctx, v, pad, e->ix, (int)e->nix) : (ein__ex){0};
}

// What led to a definition, oldest rule first.
static const char *ein__trail(ein__deriver *z, int def) {
    const char *text = "";
    for (; def >= 0 && z->def[def].rule; def = z->def[def].from)
        text = *text ? ein__namef(z->ctx, "%s; %s", z->def[def].rule, text) : z->def[def].rule;
    return text;
}

// The class's value by its cheapest definition.
static ein__val ein__realise(ein__realiser *r, ein__val v) {
    ein__deriver *z = r->z;
    ein_ctx *ctx = z->ctx;
    if ((ptrdiff_t)v.i >= arrlen(z->best) || z->best[v.i] < 0) return v;
    while (arrlen(r->made) <= (ptrdiff_t)v.i) arrput(r->made, (ein__val){0});
    if (r->made[v.i].i) return r->made[v.i];
    const ein__def d = z->def[z->best[v.i]];
    ein__scope s = *ein__sc_get(ctx, d.sc);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__realise_read, r);
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    const ein__value old = ctx->value[v.i];
    ein__val made =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    // What happens at load is told by its last rule alone.
    ctx->value[made.i].why = old.weight_only ? d.rule : ein__trail(z, z->best[v.i]);
    r->made[v.i] = made;
    return made;
}

// ------------------------------------------------------------------------------------ the pass

static void ein__explore(ein__deriver *z) {
    ein__add_def(z, z->problem, ein__scope_of(z->ctx, z->problem), -1, NULL, false);
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !z->ctx->status; i++) {
        if (z->def[i].depth >= EIN__DERIVE_DEPTH) continue;
        ein__rule_split(z, (int)i);
        ein__rule_match_gemm(z, (int)i);
        ein__rule_digits(z, (int)i);
    }
}

static ein__deriver ein__deriver_of(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    return (ein__deriver){.ctx = ctx,
                          .problem = v,
                          .map = map,
                          .map_read = read,
                          .first = (uint32_t)arrlen(ctx->value)};
}

static void ein__deriver_free(ein__deriver *z) {
    arrfree(z->def);
    arrfree(z->by_scope);
    arrfree(z->cost);
    arrfree(z->best);
}

// The cheapest derivation of contraction `v`, or `v` itself. `map`, `read`: the map that alone
// reads it.
static ein__val ein__derive_value(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    ein__deriver z = ein__deriver_of(ctx, v, map, read);
    ein__realiser r = {.z = &z};
    ein__val result = v;
    ein__attempt attempt = ein__try(ctx);
    ein__explore(&z);
    if (!ctx->status) {
        ein__class_cost(&z, v);
        if (z.best[v.i] > 0) result = ein__realise(&r, v);
    }
    if (!ein__tried(ctx, attempt)) result = v;
    ein__deriver_free(&z);
    arrfree(r.made);
    return result;
}

static ein__val ein__rebuild_derived(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val old = v;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) return v;
    ein__val map = {0};
    ein__ex read = {0};
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++)
        if (z->order[i].i == old.i)
            map = ein__sole_reader(ctx, z->order, z->uses, old, i + 1, &read);
    return ein__derive_value(ctx, v, map, read);
}

EIN__FN bool ein__derive(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_derived);
}
