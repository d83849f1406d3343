// Derivation: other definitions of a contraction, found by rules on its expression alone (EinNet
// section 4, OLLIE section 4). It is an e-graph: a class is a tensor value, its members are
// equivalent definitions, and a definition reads other classes, so alternatives add up instead of
// multiplying. Layouts are not part of it; they are chosen afterwards. rules.c lists the rules.
// Variable substitution is not searched for, because every inner value is made in normal form: W
// that depends on x, y only through E(x,y) becomes W'[E(x,y)], the range of E tightened to where
// the reads are inside.

enum {
    EIN__DERIVE_STATES = 1000,  // definitions of one problem; ein_desc.states
    EIN__DERIVE_DEPTH = 8,      // rules in a row; ein_desc.depth
    EIN__MAX_GROWTH = 16,       // of an activation written out for a library call
    EIN__MAX_SPLIT = 6          // summation iterators whose subsets are enumerated
};

// Where a class stands in the derivation of its problem.
typedef enum {
    EIN__WHOLE,  // the problem itself, or all of it in another arrangement
    EIN__INNER,  // an operand or a result written out
    EIN__HALF,  // the inner half of a split: what a direct split or change gives is not tried again
    EIN__FORMED  // made to be a library call as it stands
} ein__place_of_class;

// Rows of the iterator mapping table that distances are measured to (distance.c).
typedef enum {
    EIN__TO_GEMM,
    EIN__TO_CONV,
    EIN__TO_BAND,
    EIN__NTARGETS,
    EIN__TO_ANY = EIN__NTARGETS,
    EIN__TO_NONE
} ein__target;

typedef struct ein__def {
    ein__val cls;
    ein__sc sc;
    int from;  // definition it was made from, -1 for a class's first
    int depth;
    const char *rule;  // name of the rule and what it was applied to
    ein__place_of_class place;
    int by;                                  // ein__rule_id of that, -1 for a class's first
    uint8_t known, distance[EIN__NTARGETS];  // bits of the distances that are known
    int64_t step_ps;  // cost of its step where no map is fused, and 1 ps; 0: not known
} ein__def;

typedef struct ein__deriver {
    ein_ctx *ctx;
    ein__def *def;          // stb_ds arrays
    ein__val *cls;          // classes made, each by its first definition
    int64_t *cost;          // by class: of the cheapest definition; 0 not known, -1 being found
    int *best;              // by class: that definition
    ein__val problem, map;  // what is derived, and the map that alone reads it (or none)
    ein__ex map_read;
    uint32_t first;          // values from here on were made for this problem
    int added[EIN__NRULES];  // definitions by rule
    // Matrices of basis changes made so far, F(m, r): A^T, G, B^T.
    struct {
        int m, r;
        ein__val at, g, bt;
    } transform[8];
    int ntransform;
    int64_t lookups;  // definitions that rules gave, known ones included
    ein_stop stop;
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
    uint32_t *fresh = NULL;
    for (uint32_t i = 0; i < (uint32_t)arrlen(ctx->value); i++)
        arrput(fresh, i < z->first && i != z->problem.i ? i : 0);
    if (!ein__evalp_equal_from(ctx, cls, other, EIN_CHECK_STEPS, 1, fresh))
        ein__error(ctx, EIN_DIFFERS, (ein__pos){0, 0}, "%s: %s changes the value", old.name, rule);
    arrfree(fresh);
    ein__steps_checked++;
}
#endif

static void ein__stopped(ein__deriver *z, ein_stop why) {
    if (z->stop < why) z->stop = why;
}

static bool ein__add_def(ein__deriver *z, ein__val cls, const ein__scope *s, int from,
                         const char *rule, ein__place_of_class place) {
    const ein_desc *limit = &z->ctx->desc;
    ein__sc sc = ein__sc_make(z->ctx, s);
    if (!sc.i) return false;
    z->lookups++;
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !limit->no_fingerprint; i++)
        if (z->def[i].sc.i == sc.i && z->def[i].cls.i == cls.i) return false;
    if (arrlen(z->def) >= (limit->states ? limit->states : EIN__DERIVE_STATES)) {
        ein__stopped(z, EIN_STOP_STATES);
        return false;
    }
#ifdef EIN_CHECK_STEPS
    ein__check_step(z, cls, sc, rule);
#endif
    ein__def d = {.cls = cls, .sc = sc, .from = from, .rule = rule, .place = place, .by = -1};
    if (from >= 0) d.depth = z->def[from].depth + 1;
    arrput(z->def, d);
    return true;
}

// Place of a class in `cls`; -1 for other values.
static ptrdiff_t ein__class_at(const ein__deriver *z, ein__val v) {
    if (v.i < z->first && v.i != z->problem.i) return -1;
    for (ptrdiff_t i = 0; i < arrlen(z->cls); i++)
        if (z->cls[i].i == v.i) return i;
    return -1;
}

// The class whose definition is `s`, made when there is none.
static ein__val ein__class_of(ein__deriver *z, const ein__scope *s, const char *suffix, int from,
                              const char *rule, ein__place_of_class place) {
    ein_ctx *ctx = z->ctx;
    const ein__value base = ctx->value[z->problem.i];
    ein__shape shape = {.rank = (int)s->nt};
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) return (ein__val){0};
    ein__sc sc = ein__sc_make(ctx, s);
    if (!sc.i) return (ein__val){0};
    for (ptrdiff_t i = 0; i < arrlen(z->cls); i++)
        if (ctx->value[z->cls[i].i].scope.i == sc.i && !ctx->desc.no_fingerprint) return z->cls[i];
    for (uint32_t i = 0; i < s->nt; i++) shape.d[i] = s->n[i];
    if (ein__elements(&shape) > EIN__MAX_ELEMENTS) return (ein__val){0};
    bool map = s->reduce == EIN__R_NONE;
    ein__dtype type = map ? ein__moved_type(ctx, s->body, false) : EIN__F32;
    ein__val v = ein__val_new(ctx, ein__namef(ctx, "%s.%s", base.name, suffix), EIN__V_SCOPE,
                              base.tensor, sc, &shape, type, base.node);
    if (!ein__add_def(z, v, s, from, rule, place)) return (ein__val){0};
    arrput(z->cls, v);
    return v;
}

// ------------------------------------------------------------------------------------ substitution

// The part of a subscript in the `outer` iterators: E. The subscript is E + *rest + inner terms.
// None when the two cannot be told apart.
static ein__ix ein__outer_part(ein_ctx *ctx, ein__ix ix, uint32_t outer, int64_t *rest) {
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__index e = {.q = 1};
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[k].atom);
        if (a->kind != EIN__ITER) return (ein__ix){0};
        if (outer >> a->slot & 1) e.t[e.n++] = f->t[k];
    }
    *rest = f->c;
    if (f->q > 1) {
        if (e.n < f->n) return (ein__ix){0};
        int64_t low = ein__floormod(f->c, f->q);
        *rest = (f->c - low) / f->q;
        e.c = low;
        e.q = f->q;
    }
    return ein__ix_intern(ctx, &e);
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
    ein__places range = {d->lo, d->lo + d->n - 1};
    bool any = ein__rule_tighten(ctx, &range,
                                 &(ein__reach){1, ctx->value[r->val].shape.d[k], {rest, rest}});
    d->lo = range.lo;
    d->n = range.hi - range.lo + 1;
    return any;
}

// Iterators that must stay themselves: those that stand alone in some subscript, or where a form
// cannot be separated.
static uint32_t ein__bare_slots(ein_ctx *ctx, const ein__scope *s, const ein__ex *reads,
                                uint32_t outer, int64_t growth) {
    uint32_t bare = 0;
    for (bool again = true; again;) {
        uint32_t had = bare;
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            const ein__expr *r = ein__ex_get(ctx, reads[i]);
            for (uint32_t k = 0; k < r->nix; k++) {
                int64_t rest;
                uint32_t used = ein__ix_uses(ctx, r->ix[k]) & outer;
                ein__ix e = used ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
                bool composite = e.i && ein__is_composite(ctx, e);
                if (used && !composite) bare |= used;
                if (!composite || !(used & bare)) continue;
                // Beside an iterator that stays, as in 4*g + f, a form may have more values than
                // what it would replace.
                ein__dims one = {.n = 0};
                if (!ein__add_composite(ctx, &one, e, r, k, rest, 0) ||
                    one.d[0].n > ein__muldiv(ein__extent_of(s, used & ~bare), growth, 100))
                    bare |= used;
            }
        }
        again = bare != had;
    }
    return bare;
}

// The dimensions of the value that `reads` depend on, substituted where that does not enlarge the
// box by more than `growth` / 100.
static bool ein__inner_dims(ein_ctx *ctx, const ein__scope *s, const ein__ex *reads, uint32_t outer,
                            int64_t growth, ein__dims *z) {
    uint32_t bare = ein__bare_slots(ctx, s, reads, outer, growth), used = 0;
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
    for (int i = 0; i < z->n; i++) volume = ein__times(volume, z->d[i].n);
    volume = ein__times(volume, ein__extent_of(s, bare));
    if (!ein__rule_on(ctx, EIN__RULE_SUBSTITUTE) ||
        ein__times(volume, 100) > ein__times(ein__extent_of(s, used), growth)) {
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

// A value in another arrangement: V[x] = W[at(x)].
typedef struct ein__rearranged {
    ein__scope s;               // definition of W
    ein__ix at[EIN__MAX_RANK];  // in V's iterators
} ein__rearranged;

// Variable substitution: sum(inner) of the product of `reads`, which depends on the other iterators
// of `s` through forms E, as W[E]. Precondition: E separates from the inner iterators in every
// subscript where it replaces its own, and its box is no larger than theirs by more than `growth` /
// 100; iterators for which that fails stay themselves. False: W cannot be made.
static bool ein__rule_substitute(ein_ctx *ctx, const ein__scope *s, const ein__ex *reads,
                                 uint32_t inner, int64_t growth, ein__rearranged *w) {
    uint32_t all = (1u << (s->nt + s->ns)) - 1, outer = all & ~inner;
    ein__dims dims;
    ein__scope *t = &w->s;
    if (!ein__inner_dims(ctx, s, reads, outer, growth, &dims) || dims.n > EIN__MAX_RANK)
        return false;
    ein__order_dims(&dims);
    *t = (ein__scope){.reduce = inner ? EIN__R_SUM : EIN__R_NONE, .nt = (uint32_t)dims.n};
    ein__ix map[EIN__MAX_ITERS] = {{0}};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int i = 0; i < dims.n; i++) {
        uint32_t slot;
        t->n[i] = dims.d[i].n;
        w->at[i] = ein__ix_addc(ctx, dims.d[i].form, -dims.d[i].lo);
        if (!dims.d[i].composite && ein__ix_is_iter(ctx, dims.d[i].form, &slot))
            map[slot] = ein__ix_iter(ctx, (uint32_t)i, t->n[i]);
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(inner >> i & 1) || s->n[i] == 1) continue;
        if (t->nt + t->ns == EIN__MAX_ITERS) return false;
        t->n[t->nt + t->ns] = s->n[i];
        map[i] = ein__ix_iter(ctx, t->nt + t->ns++, s->n[i]);
    }
    if (!t->ns) t->reduce = EIN__R_NONE;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__ex r = ein__inner_read(ctx, ein__ex_get(ctx, reads[i]), outer, &dims, map,
                                    (int)(s->nt + s->ns));
        t->body = t->body.i ? ein__ex_binary(ctx, EIN__MUL, t->body, r) : r;
        if (!t->body.i) return false;
    }
    return true;
}

// The value sum(inner) of the product of `reads`, as a class in normal form, and how the rest of
// the definition reads it. None when it cannot be made.
static ein__ex ein__inner_value(ein__deriver *z, const ein__scope *s, const ein__ex *reads,
                                uint32_t inner, int64_t growth, const char *suffix, int from,
                                const char *rule) {
    ein__rearranged w;
    if (!ein__rule_substitute(z->ctx, s, reads, inner, growth, &w)) return (ein__ex){0};
    ein__val v = ein__class_of(z, &w.s, suffix, from, rule, EIN__HALF);
    return v.i ? ein__ex_read(z->ctx, v, 0, w.at, (int)w.s.nt) : (ein__ex){0};
}
