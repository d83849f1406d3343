// Expression splitting (EinNet section 4.2): a box is cut into parts, each a contraction of its
// own, and the result is their sum. A window is cut into two halves; the result into its interior,
// where all reads are inside, and its border. Boundary tightening of a whole problem is the same
// with one part.

// What slot `i` of `s` reads by subscript `dim` of read `r` while the other iterators take `at`.
// False: the subscript is no sum of iterators with i in it, or padding would not be 0.
static bool ein__reach_of(const ein_ctx *ctx, const ein__expr *r, uint32_t dim, uint32_t slot,
                          const ein__places *at, ein__reach *z) {
    const ein__index *f = ein__ix_get(ctx, r->ix[dim]);
    int64_t step = 0, lo = f->c, hi = f->c, last = ctx->value[r->val].shape.d[dim] - 1;
    if (f->q != 1 || r->bits) return false;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        int64_t k = f->t[t].k;
        if (a->kind != EIN__ITER) return false;
        if (a->slot == slot) {
            step = k;
            continue;
        }
        lo += k * (k > 0 ? at[a->slot].lo : at[a->slot].hi);
        hi += k * (k > 0 ? at[a->slot].hi : at[a->slot].lo);
    }
    // Counting the box from its end turns a negative step around.
    *z = step > 0 ? (ein__reach){step, last + 1, {lo, hi}}
                  : (ein__reach){-step, last + 1, {last - hi, last - lo}};
    return step != 0;
}

// Tightens the places of all iterators to where every factor can be inside. False: nowhere.
static bool ein__tighten_slots(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                               ein__places *at) {
    ein__reach z;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        for (int r = 0; r < 2; r++)
            for (uint32_t k = 0; k < read[r]->nix; k++)
                if (ein__reach_of(ctx, read[r], k, i, at, &z) &&
                    !ein__rule_tighten(ctx, &at[i], &z))
                    return false;
    return true;
}

static void ein__all_places(const ein__scope *s, ein__places *at) {
    for (uint32_t i = 0; i < s->nt + s->ns; i++) at[i] = (ein__places){0, s->n[i] - 1};
}

// The definition `s` with every iterator over its own places.
static bool ein__over_places(ein_ctx *ctx, const ein__scope *s, const ein__places *at,
                             ein__rearranged *w) {
    ein__ix map[EIN__MAX_ITERS];
    w->s = *s;
    if (s->nt > EIN__MAX_RANK) return false;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        w->s.n[i] = at[i].hi - at[i].lo + 1;
        map[i] = ein__ix_addc(ctx, ein__ix_iter(ctx, i, w->s.n[i]), at[i].lo);
        if (i < s->nt) w->at[i] = ein__ix_addc(ctx, ein__ix_iter(ctx, i, s->n[i]), -at[i].lo);
    }
    w->s.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
    return w->s.body.i != 0;
}

// A part as a class, read where the whole is.
static ein__ex ein__part_of(ein__deriver *z, const ein__scope *s, const ein__places *at,
                            const char *suffix, int from, int place) {
    ein__rearranged w;
    if (!ein__over_places(z->ctx, s, at, &w)) return (ein__ex){0};
    ein__val v = ein__class_of(z, &w.s, suffix, from, "expression splitting", place);
    return v.i ? ein__ex_read(z->ctx, v, 0, w.at, (int)s->nt) : (ein__ex){0};
}

// Whether summation slot `i` stands beside a traversal iterator in some subscript.
static bool ein__in_window(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                           uint32_t i) {
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            uint32_t uses = ein__ix_uses(ctx, read[r]->ix[k]);
            if ((uses >> i & 1) && (uses & ((1u << s->nt) - 1))) return true;
        }
    return false;
}

// What derivation starts from, if it is a product: no part of another split.
static bool ein__may_fall_apart(ein__deriver *z, int from, const ein__expr **read) {
    const ein__def d = z->def[from];
    double alpha;
    return !d.place && !d.depth &&
           ein__two_factors(z->ctx, ein__sc_get(z->ctx, d.sc), read, &alpha);
}

static void ein__add_sum(ein__deriver *z, int from, ein__ex sum) {
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(z->ctx, d.sc);
    ein__scope t = {.reduce = EIN__R_NONE, .nt = s->nt, .body = sum};
    memcpy(t.n, s->n, s->nt * sizeof *t.n);
    if (sum.i) ein__add_def(z, d.cls, &t, from, "expression splitting", d.place);
}

// sum(r in 0:n) = sum(r in 0:a) + sum(r in a:n)
static void ein__rule_parts(ein__deriver *z, int from) {
    enum { LEAST = 2 };  // places of a half
    const ein__scope *s = ein__sc_get(z->ctx, z->def[from].sc);
    const ein__expr *read[2];
    ein__places at[EIN__MAX_ITERS];
    if (!ein__may_fall_apart(z, from, read)) return;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        int64_t half = (s->n[i] + 1) / 2;
        if (s->n[i] < 2 * LEAST || !ein__in_window(z->ctx, s, read, i)) continue;
        ein__all_places(s, at);
        at[i].hi = half - 1;
        ein__ex a = ein__part_of(z, s, at, "half", from, EIN__HALF);
        at[i] = (ein__places){half, s->n[i] - 1};
        ein__ex b = ein__part_of(z, s, at, "half", from, EIN__HALF);
        ein__add_sum(z, from, a.i && b.i ? ein__ex_binary(z->ctx, EIN__ADD, a, b) : (ein__ex){0});
    }
}

// The places of traversal slot `i` at which no factor leaves its box whatever the others do.
static ein__places ein__interior(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                                 uint32_t i) {
    ein__places all[EIN__MAX_ITERS], in = {0, s->n[i] - 1};
    ein__reach z;
    ein__all_places(s, all);
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            if (!ein__reach_of(ctx, read[r], k, i, all, &z)) continue;
            int64_t lo = -ein__floordiv(z.window.lo, z.step);
            int64_t hi = ein__floordiv(z.extent - 1 - z.window.hi, z.step);
            if (lo > in.lo) in.lo = lo;
            if (hi < in.hi) in.hi = hi;
        }
    return in;
}

// V over a box is its interior, and the rest of the box along one axis after the other. A part is
// tightened: sums of a border pass over fewer places, and a part that is 0 is none.
static void ein__rule_border(ein__deriver *z, int from) {
    enum { AXES = 3 };
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, z->def[from].sc);
    const ein__expr *read[2];
    ein__places rest[EIN__MAX_ITERS], part[EIN__MAX_ITERS];
    ein__ex sum = {0};
    int axes = 0;
    if (!ein__may_fall_apart(z, from, read) || s->nt > EIN__MAX_RANK) return;
    ein__all_places(s, rest);
    for (uint32_t i = 0; i <= s->nt; i++) {
        ein__places in = i < s->nt ? ein__interior(ctx, s, read, i) : (ein__places){0, 0};
        bool whole = i == s->nt, cut = in.lo > 0 || in.hi < rest[i].hi;
        // Of a box that is mostly border the interior is not worth a step.
        if (!whole && (!cut || 2 * (in.hi - in.lo + 1) < s->n[i] || axes++ >= AXES)) continue;
        if (whole && !axes) return;
        for (int side = 0; side < (whole ? 1 : 2); side++) {
            memcpy(part, rest, sizeof part);
            if (!whole && side) part[i].lo = in.hi + 1;
            else if (!whole) part[i].hi = in.lo - 1;
            if (part[i].lo > part[i].hi && !whole) continue;
            if (!ein__tighten_slots(ctx, s, read, part)) continue;
            ein__ex one = ein__part_of(z, s, part, whole ? "interior" : "border", from,
                                       whole ? EIN__HALF : EIN__FORMED);
            if (!one.i) return;
            sum = sum.i ? ein__ex_binary(ctx, EIN__ADD, sum, one) : one;
        }
        if (!whole) rest[i] = in;
    }
    ein__add_sum(z, from, sum);
}

// The problem over the places where something is added: a sum of fewer terms, a smaller box.
static void ein__rule_tighten_problem(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    ein__places at[EIN__MAX_ITERS], all[EIN__MAX_ITERS];
    ein__rearranged w;
    if (!ein__may_fall_apart(z, from, read)) return;
    ein__all_places(s, at);
    ein__all_places(s, all);
    if (!ein__tighten_slots(ctx, s, read, at) || !memcmp(at, all, (s->nt + s->ns) * sizeof *at) ||
        !ein__over_places(ctx, s, at, &w))
        return;
    if (!memcmp(at, all, s->nt * sizeof *at)) {
        ein__add_def(z, d.cls, &w.s, from, "boundary tightening", d.place);
        return;
    }
    ein__val v = ein__class_of(z, &w.s, "tight", from, "boundary tightening", EIN__WHOLE);
    if (v.i) ein__add_sum(z, from, ein__ex_read(ctx, v, 0, w.at, (int)s->nt));
}
