// Index forms: affine in atoms, over a denominator. Every form goes through these constructors,
// which keep it in normal form; two forms that print alike are the same id. The normal form is not
// unique (derivation rules only lose a duplicate by that), but it never changes a value.

EIN__FN const ein__index *ein__ix_get(const ein_ctx *ctx, ein__ix ix) {
    return ctx->indices.rec[ix.i];
}

// A copy to change: records are as long as their terms, so the struct must not be assigned.
static ein__index ein__ix_copy(const ein__index *f) {
    ein__index r = {0};
    memcpy(&r, f, offsetof(ein__index, t) + f->n * sizeof(ein__term));
    return r;
}

EIN__FN const ein__atom *ein__atom_get(const ein_ctx *ctx, uint32_t atom) {
    return ctx->atoms.rec[atom];
}

static ein__ix ein__ix_overflow(ein_ctx *ctx) {
    ein__error(ctx, EIN_RESOURCES, ctx->subscript,
               "a subscript has too many terms or too large numbers");
    return (ein__ix){0};
}

// ------------------------------------------------------------------------------------ bounds

// Numbers this large would overflow somewhere further on; sizes are far below.
#define EIN__INDEX_LIMIT ((int64_t)1 << 56)

static void ein__atom_bounds(ein_ctx *ctx, uint32_t atom, int64_t *lo, int64_t *hi) {
    const ein__atom *a = ein__atom_get(ctx, atom);
    *lo = 0;
    *hi = a->n - 1;
    if (a->kind == EIN__FLOOR) {
        const ein__index *f = ein__ix_get(ctx, (ein__ix){a->ix});
        *lo = ein__floordiv(f->lo, a->n);
        *hi = ein__floordiv(f->hi, a->n);
    } else if (a->kind == EIN__GATHER) {
        *lo = -(EIN__INDEX_LIMIT >> 8);
        *hi = EIN__INDEX_LIMIT >> 8;
    }
}

// Bounds of c + sum k * atom before division. False when they leave the safe range.
static bool ein__sum_bounds(ein_ctx *ctx, const ein__index *f, int64_t *lo, int64_t *hi) {
    *lo = *hi = f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t l, h, a, b;
        ein__atom_bounds(ctx, f->t[i].atom, &l, &h);
        if (ein__mul_overflows(f->t[i].k, f->t[i].k > 0 ? l : h, &a) ||
            ein__mul_overflows(f->t[i].k, f->t[i].k > 0 ? h : l, &b) ||
            ein__add_overflows(*lo, a, lo) || ein__add_overflows(*hi, b, hi))
            return false;
    }
    return *lo >= -EIN__INDEX_LIMIT && *hi <= EIN__INDEX_LIMIT;
}

// r + k * a, denominators aside; false on overflow.
static bool ein__ix_append(ein__index *r, const ein__index *a, int64_t k) {
    int64_t c;
    if (ein__mul_overflows(a->c, k, &c) || ein__add_overflows(r->c, c, &r->c)) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        int64_t t;
        if (ein__mul_overflows(a->t[i].k, k, &t)) return false;
        uint32_t j = 0;
        while (j < r->n && r->t[j].atom != a->t[i].atom) j++;
        if (j < r->n) {
            if (ein__add_overflows(r->t[j].k, t, &r->t[j].k)) return false;
        } else {
            if (r->n == EIN__MAX_TERMS) return false;
            r->t[r->n++] = (ein__term){t, a->t[i].atom, 0};
        }
    }
    return true;
}

// floor(E / d) moves with the atoms of E: where one of them stands beside it in the form, as in
// -h + floor(h / 2), bounds follow from d * floor(E / d) = E - m, 0 <= m < d. Coefficients of that
// form times `scale`, joined by atom; the last ones are the m. False when it is no use or too
// large.
static bool ein__expand_floors(ein_ctx *ctx, const ein__index *f, ein__index *sum, int64_t *scale,
                               int64_t *lo, int64_t *hi) {
    bool expand[EIN__MAX_TERMS] = {false}, any = false;
    *scale = 1;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__FLOOR) continue;
        const ein__index *e = ein__ix_get(ctx, (ein__ix){a->ix});
        for (uint32_t j = 0; j < e->n; j++)
            for (uint32_t k = 0; k < f->n; k++) expand[i] |= e->t[j].atom == f->t[k].atom;
        if (!expand[i]) continue;
        any = true;
        if (ein__mul_overflows(*scale, a->n / ein__gcd(*scale, a->n), scale)) return false;
    }
    *sum = (ein__index){.q = 1};
    *lo = *hi = 0;
    for (uint32_t i = 0; any && i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        ein__index one = {.q = 1, .n = 1};
        one.t[0] = (ein__term){1, f->t[i].atom, 0};
        const ein__index *e = expand[i] ? ein__ix_get(ctx, (ein__ix){a->ix}) : &one;
        int64_t k, m;
        if (ein__mul_overflows(f->t[i].k, expand[i] ? *scale / a->n : *scale, &k) ||
            !ein__ix_append(sum, e, k))
            return false;
        if (!expand[i]) continue;
        if (ein__mul_overflows(k, a->n - 1, &m) ||
            ein__add_overflows(k > 0 ? *lo : *hi, -m, k > 0 ? lo : hi))
            return false;
    }
    int64_t c;
    return any && !ein__mul_overflows(f->c, *scale, &c) && !ein__add_overflows(sum->c, c, &sum->c);
}

static void ein__tighten_bounds(ein_ctx *ctx, const ein__index *f, int64_t *lo, int64_t *hi) {
    ein__index sum;
    int64_t scale, l, h, ml, mh;
    if (!ein__expand_floors(ctx, f, &sum, &scale, &ml, &mh) ||
        !ein__sum_bounds(ctx, &sum, &l, &h) || ein__add_overflows(l, ml, &l) ||
        ein__add_overflows(h, mh, &h))
        return;
    l = -ein__floordiv(-l, scale);
    h = ein__floordiv(h, scale);
    if (l > *lo) *lo = l;
    if (h < *hi) *hi = h;
}

enum { EIN__COUNTED_EXTENT = 1024 };  // of an iterator whose values are gone through for bounds

// The one iterator that form `f` depends on; false: there are several, or the data decide, or it is
// no short one.
static bool ein__sole_iterator(ein_ctx *ctx, const ein__index *f, const ein__atom **iter) {
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER) {
            if ((*iter && *iter != a) || a->n > EIN__COUNTED_EXTENT) return false;
            *iter = a;
        } else if (a->kind == EIN__GATHER ||
                   !ein__sole_iterator(ctx, ein__ix_get(ctx, (ein__ix){a->ix}), iter)) {
            return false;
        }
    }
    return true;
}

static int64_t ein__sum_value(ein_ctx *ctx, const ein__index *f, uint32_t slot, int64_t v);

static int64_t ein__atom_value(ein_ctx *ctx, const ein__atom *a, uint32_t slot, int64_t v) {
    if (a->kind == EIN__ITER) return a->slot == slot ? v : 0;
    int64_t x = ein__sum_value(ctx, ein__ix_get(ctx, (ein__ix){a->ix}), slot, v);
    return a->kind == EIN__FLOOR ? ein__floordiv(x, a->n) : ein__floormod(x, a->n);
}

// Numerator of a form of the single iterator `slot` at value v; no gathers inside.
static int64_t ein__sum_value(ein_ctx *ctx, const ein__index *f, uint32_t slot, int64_t v) {
    int64_t sum = f->c;
    for (uint32_t i = 0; i < f->n; i++)
        sum += f->t[i].k * ein__atom_value(ctx, ein__atom_get(ctx, f->t[i].atom), slot, v);
    return sum;
}

// Bounds that are reached, of forms of one short iterator: those of i/2 - i/3 together are not what
// the two have each.
static void ein__count_bounds(ein_ctx *ctx, const ein__index *f, int64_t *lo, int64_t *hi) {
    const ein__atom *iter = NULL;
    if (f->n < 2 || !ein__sole_iterator(ctx, f, &iter) || !iter) return;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t x = 0; x < iter->n; x++) {
        int64_t v = ein__sum_value(ctx, f, iter->slot, x);
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    if (iter->n > 0) *lo = least, *hi = most;
}

// Whether all atoms are iterators: most forms are so, and need none of the laws of floor and mod.
static bool ein__ix_linear(const ein_ctx *ctx, const ein__index *f) {
    for (uint32_t i = 0; i < f->n; i++)
        if (ein__atom_get(ctx, f->t[i].atom)->kind != EIN__ITER) return false;
    return true;
}

// Adds its bounds to a form. False when they leave the safe range.
static bool ein__add_bounds(ein_ctx *ctx, ein__index *f) {
    int64_t lo, hi;
    if (!ein__sum_bounds(ctx, f, &lo, &hi)) return false;
    if (!ein__ix_linear(ctx, f)) {
        ein__tighten_bounds(ctx, f, &lo, &hi);
        ein__count_bounds(ctx, f, &lo, &hi);
    }
    f->lo = -ein__floordiv(-lo, f->q);
    f->hi = ein__floordiv(hi, f->q);
    // What q shares with every coefficient it does not share with c: no value is an integer.
    int64_t common = f->q;
    for (uint32_t i = 0; i < f->n && common > 1; i++) common = ein__gcd(f->t[i].k, common);
    if (common > 1) {
        f->lo = 1;
        f->hi = 0;
    }
    return true;
}

// Sorts the terms, joins equal atoms, drops zeros, reduces by the gcd, interns; bounds, which may
// have to be counted, are found once for each form.
static ein__ix ein__ix_intern(ein_ctx *ctx, ein__index *f) {
    for (uint32_t i = 1; i < f->n; i++)
        for (uint32_t j = i; j > 0 && f->t[j].atom < f->t[j - 1].atom; j--) {
            ein__term swap = f->t[j];
            f->t[j] = f->t[j - 1];
            f->t[j - 1] = swap;
        }
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (n && f->t[n - 1].atom == f->t[i].atom) {
            if (ein__add_overflows(f->t[n - 1].k, f->t[i].k, &f->t[n - 1].k))
                return ein__ix_overflow(ctx);
        } else {
            f->t[n++] = f->t[i];
        }
        if (!f->t[n - 1].k) n--;
    }
    f->n = n;
    if (f->q > 1) {
        int64_t g = ein__gcd(f->c, f->q);
        for (uint32_t i = 0; i < n; i++) g = ein__gcd(f->t[i].k, g);
        f->c /= g;
        f->q /= g;
        for (uint32_t i = 0; i < n; i++) f->t[i].k /= g;
    }
    // Every other byte up to the last term is set, so equal forms are equal records.
    f->unused = 0;
    for (uint32_t i = 0; i < n; i++) f->t[i].unused = 0;
    size_t size = offsetof(ein__index, t) + n * sizeof(ein__term);
    ein__ix known = {ein__interned(&ctx->indices, f, size)};
    if (known.i) return known;
    if (!ein__add_bounds(ctx, f)) return ein__ix_overflow(ctx);
    return (ein__ix){ein__intern(&ctx->forms, &ctx->indices, f, size)};
}

static uint32_t ein__atom_intern(ein_ctx *ctx, ein__atom_kind kind, uint32_t slot, int64_t n,
                                 uint32_t ix, uint32_t ex) {
    ein__atom a;
    memset(&a, 0, sizeof a);
    a.kind = (uint32_t)kind;
    a.slot = slot;
    a.n = n;
    a.ix = ix;
    a.ex = ex;
    return ein__intern(&ctx->forms, &ctx->atoms, &a, sizeof a);
}

// ------------------------------------------------------------------------------------ linear forms

EIN__FN ein__ix ein__ix_const(ein_ctx *ctx, int64_t c) {
    ein__index f = {.c = c, .q = 1};
    return ein__ix_intern(ctx, &f);
}

static ein__ix ein__ix_atom(ein_ctx *ctx, uint32_t atom) {
    ein__index f = {.q = 1, .n = 1};
    f.t[0] = (ein__term){1, atom, 0};
    return ein__ix_intern(ctx, &f);
}

// The iterator of a slot, running over [0, n). One of extent 1 is the constant 0.
EIN__FN ein__ix ein__ix_iter(ein_ctx *ctx, uint32_t slot, int64_t n) {
    struct ein__known_iter *known =
        &ctx->known_iter[(slot + (uint64_t)n * EIN__MAX_ITERS) % EIN__KNOWN_ITERS];
    if (known->ix && known->slot == slot && known->n == n) return (ein__ix){known->ix};
    ein__ix ix = n == 1 ? ein__ix_const(ctx, 0)
                        : ein__ix_atom(ctx, ein__atom_intern(ctx, EIN__ITER, slot, n, 0, 0));
    *known = (struct ein__known_iter){n, slot, ix.i};
    return ix;
}

// The value of read `ex` of an integer tensor as an index.
EIN__FN ein__ix ein__ix_gather(ein_ctx *ctx, ein__ex ex) {
    if (!ex.i) return (ein__ix){0};
    return ein__ix_atom(ctx, ein__atom_intern(ctx, EIN__GATHER, 0, 0, 0, ex.i));
}

static ein__ix ein__ix_recombine(ein_ctx *ctx, ein__index *f);

static ein__ix ein__ix_combine(ein_ctx *ctx, ein__ix a, int64_t ka, ein__ix b, int64_t kb) {
    if (!a.i || !b.i) return (ein__ix){0};
    const ein__index *x = ein__ix_get(ctx, a), *y = ein__ix_get(ctx, b);
    int64_t g = ein__gcd(x->q, y->q), q, mx = y->q / g, my = x->q / g;
    ein__index r = {0};
    if (ein__mul_overflows(x->q, mx, &q) || ein__mul_overflows(ka, mx, &mx) ||
        ein__mul_overflows(kb, my, &my))
        return ein__ix_overflow(ctx);
    r.q = q;
    if (!ein__ix_append(&r, x, mx) || !ein__ix_append(&r, y, my)) return ein__ix_overflow(ctx);
    return ein__ix_recombine(ctx, &r);
}

EIN__FN ein__ix ein__ix_add(ein_ctx *ctx, ein__ix a, ein__ix b) {
    return ein__ix_combine(ctx, a, 1, b, 1);
}

EIN__FN ein__ix ein__ix_sub(ein_ctx *ctx, ein__ix a, ein__ix b) {
    return ein__ix_combine(ctx, a, 1, b, -1);
}

EIN__FN ein__ix ein__ix_scale(ein_ctx *ctx, ein__ix a, int64_t k) {
    if (k == 1) return a;
    return ein__ix_combine(ctx, a, k, a, 0);
}

EIN__FN ein__ix ein__ix_addc(ein_ctx *ctx, ein__ix a, int64_t c) {
    if (c == 0 || !a.i) return a;
    ein__index r = ein__ix_copy(ein__ix_get(ctx, a));
    if (!ein__ix_linear(ctx, &r)) return ein__ix_add(ctx, a, ein__ix_const(ctx, c));
    if (ein__mul_overflows(c, r.q, &c) || ein__add_overflows(r.c, c, &r.c))
        return ein__ix_overflow(ctx);
    return ein__ix_intern(ctx, &r);
}

// Exact division: an index only where q divides; reads elsewhere give their padding.
EIN__FN ein__ix ein__ix_div(ein_ctx *ctx, ein__ix a, int64_t q) {
    if (!a.i) return a;
    ein__index r = ein__ix_copy(ein__ix_get(ctx, a));
    if (ein__mul_overflows(r.q, q, &r.q)) return ein__ix_overflow(ctx);
    return ein__ix_intern(ctx, &r);
}

// ------------------------------------------------------------------------------------ floor and
// mod

EIN__FN uint32_t ein__ix_uses(const ein_ctx *ctx, ein__ix ix);

static uint32_t ein__gather_uses(const ein_ctx *ctx, uint32_t ex);

static uint32_t ein__atom_uses(const ein_ctx *ctx, uint32_t atom) {
    const ein__atom *a = ein__atom_get(ctx, atom);
    if (a->kind == EIN__ITER) return 1u << a->slot;
    if (a->kind == EIN__GATHER) return ein__gather_uses(ctx, a->ex);
    return ein__ix_uses(ctx, (ein__ix){a->ix});
}

// Slots that occur anywhere in the form, as a bit mask.
EIN__FN uint32_t ein__ix_uses(const ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < f->n; i++) mask |= ein__atom_uses(ctx, f->t[i].atom);
    return mask;
}

static bool ein__ix_has_gather(const ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__GATHER) return true;
        if (a->kind != EIN__ITER && ein__ix_has_gather(ctx, (ein__ix){a->ix})) return true;
    }
    return false;
}

// The iterator atom of `slot` inside the form.
static const ein__atom *ein__find_iter(const ein_ctx *ctx, ein__ix ix, uint32_t slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER && a->slot == slot) return a;
        if (a->kind == EIN__FLOOR || a->kind == EIN__MOD) {
            const ein__atom *inner = ein__find_iter(ctx, (ein__ix){a->ix}, slot);
            if (inner) return inner;
        }
    }
    return NULL;
}

enum { EIN__TABULATE = 64 };  // extents up to this are tried value by value

// floor or mod of a form of one short iterator: its values, when they are affine, as that affine
// form.
static bool ein__tabulate(ein_ctx *ctx, uint32_t atom, ein__ix *r) {
    uint32_t mask = ein__atom_uses(ctx, atom), slot = 0;
    const ein__atom *a = ein__atom_get(ctx, atom);
    if (!mask || (mask & (mask - 1)) || ein__ix_has_gather(ctx, (ein__ix){a->ix})) return false;
    while (!(mask >> slot & 1)) slot++;
    const ein__atom *it = ein__find_iter(ctx, (ein__ix){a->ix}, slot);
    if (!it || it->n > EIN__TABULATE) return false;
    int64_t first = ein__atom_value(ctx, a, slot, 0);
    int64_t step = ein__atom_value(ctx, a, slot, 1) - first;
    for (int64_t v = 2; v < it->n; v++)
        if (ein__atom_value(ctx, a, slot, v) != first + step * v) return false;
    ein__ix x = ein__ix_scale(ctx, ein__ix_iter(ctx, slot, it->n), step);
    *r = ein__ix_addc(ctx, x, first);
    return true;
}

static ein__ix ein__ix_floor_or_mod(ein_ctx *ctx, ein__atom_kind kind, const ein__index *f,
                                    int64_t d);

// Takes multiples of d out of the integer form `f`: f = d * whole + rest. Coefficients of rest are
// in [0, d), or keep their sign.
static void ein__split_multiples(const ein__index *f, int64_t d, bool keep_sign, ein__index *whole,
                                 ein__index *rest) {
    *whole = (ein__index){.q = 1};
    *rest = (ein__index){.q = 1};
    whole->c = ein__floordiv(f->c, d);
    rest->c = ein__floormod(f->c, d);
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t k = f->t[i].k, up = keep_sign ? k / d : ein__floordiv(k, d), down = k - up * d;
        if (up) whole->t[whole->n++] = (ein__term){up, f->t[i].atom, 0};
        if (down) rest->t[rest->n++] = (ein__term){down, f->t[i].atom, 0};
    }
}

// floor((F + floor(E / a)) / d) = floor((a F + E) / (a d)): gives a F + E and a d. False when no
// floor stands in `f` by itself, or the numbers get large.
static bool ein__unnest(ein_ctx *ctx, const ein__index *f, int64_t d, ein__ix *nested,
                        int64_t *divisor) {
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__FLOOR || f->t[i].k != 1) continue;
        ein__index sum = {.q = 1}, other = ein__ix_copy(f);
        other.t[i] = other.t[--other.n];
        if (ein__mul_overflows(a->n, d, divisor) || *divisor > EIN__INDEX_LIMIT >> 16 ||
            !ein__ix_append(&sum, &other, a->n) ||
            !ein__ix_append(&sum, ein__ix_get(ctx, (ein__ix){a->ix}), 1))
            return false;
        int64_t lo, hi;
        if (!ein__sum_bounds(ctx, &sum, &lo, &hi)) return false;
        *nested = ein__ix_recombine(ctx, &sum);
        return nested->i != 0;
    }
    return false;
}

EIN__FN ein__ix ein__ix_floordiv(ein_ctx *ctx, ein__ix a, int64_t d);

// The largest factor g of d by which `f` is g * many + few, few in [0, g); both, unless g is 1.
static int64_t ein__common_factor(ein_ctx *ctx, const ein__index *f, int64_t d, ein__index *many,
                                  ein__index *few) {
    int64_t best = 1, all = d;
    for (uint32_t i = 0; i < f->n; i++) all = ein__gcd(f->t[i].k, all);
    for (uint32_t i = 0; i <= f->n; i++) {
        int64_t g = i < f->n ? ein__gcd(f->t[i].k, d) : all, lo, hi;
        if (g <= best) continue;
        ein__index a = {.q = 1, .c = ein__floordiv(f->c, g)};
        ein__index b = {.q = 1, .c = ein__floormod(f->c, g)};
        for (uint32_t k = 0; k < f->n; k++) {
            ein__term t = f->t[k];
            if (t.k % g) b.t[b.n++] = t;
            else a.t[a.n++] = (ein__term){t.k / g, t.atom, 0};
        }
        if (!ein__sum_bounds(ctx, &b, &lo, &hi) || lo < 0 || hi >= g) continue;
        best = g;
        *many = a;
        *few = b;
    }
    return best;
}

// floor(rest / d) or rest mod d, where rest's coefficients are in [0, d).
static ein__ix ein__ix_small(ein_ctx *ctx, ein__atom_kind kind, ein__index *rest, int64_t d) {
    int64_t lo, hi;
    if (!ein__sum_bounds(ctx, rest, &lo, &hi)) return ein__ix_overflow(ctx);
    int64_t at = ein__floordiv(lo, d);
    if (at == ein__floordiv(hi, d)) {
        if (kind == EIN__FLOOR) return ein__ix_const(ctx, at);
        rest->c -= at * d;
        return ein__ix_recombine(ctx, rest);
    }
    ein__index many, few;
    int64_t g = ein__common_factor(ctx, rest, d, &many, &few);
    if (g > 1) {
        // floor((g x + y) / (g d')) = floor(x / d') for y in [0, g), which the remainder keeps.
        ein__ix x = ein__ix_floor_or_mod(ctx, kind, &many, d / g);
        return kind == EIN__FLOOR ? x : ein__ix_combine(ctx, x, g, ein__ix_recombine(ctx, &few), 1);
    }
    ein__ix inner = ein__ix_recombine(ctx, rest);
    if (!inner.i) return inner;
    const ein__index *f = ein__ix_get(ctx, inner);
    int64_t divisor;
    ein__ix nested;
    if (kind == EIN__FLOOR && ein__unnest(ctx, f, d, &nested, &divisor))
        return ein__ix_floordiv(ctx, nested, divisor);
    if (f->n == 1 && f->c == 0 && f->t[0].k == 1) {
        const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
        if (kind == EIN__MOD && a->kind == EIN__MOD && a->n % d == 0)
            return ein__ix_floor_or_mod(ctx, EIN__MOD, ein__ix_get(ctx, (ein__ix){a->ix}), d);
        // floor((E mod ab) / b) = floor(E / b) mod a: the second form is the normal one.
        if (kind == EIN__FLOOR && a->kind == EIN__MOD && a->n % d == 0) {
            ein__ix e =
                ein__ix_floor_or_mod(ctx, EIN__FLOOR, ein__ix_get(ctx, (ein__ix){a->ix}), d);
            return e.i ? ein__ix_floor_or_mod(ctx, EIN__MOD, ein__ix_get(ctx, e), a->n / d) : e;
        }
    }
    uint32_t atom = ein__atom_intern(ctx, kind, 0, d, inner.i, 0);
    ein__ix table;
    if (ein__tabulate(ctx, atom, &table)) return table;
    return ein__ix_atom(ctx, atom);
}

static ein__ix ein__ix_floor_or_mod(ein_ctx *ctx, ein__atom_kind kind, const ein__index *f,
                                    int64_t d) {
    ein__index whole, rest, copy = ein__ix_copy(f);
    if (d == 1) return kind == EIN__FLOOR ? ein__ix_recombine(ctx, &copy) : ein__ix_const(ctx, 0);
    // 99 - h under h < 100 is one digit, which 99 h + 99 does not show.
    int64_t lo, hi;
    ein__split_multiples(&copy, d, true, &whole, &rest);
    if (ein__sum_bounds(ctx, &rest, &lo, &hi) && ein__floordiv(lo, d) == ein__floordiv(hi, d)) {
        whole.c += ein__floordiv(lo, d);
        rest.c -= ein__floordiv(lo, d) * d;
        return ein__ix_recombine(ctx, kind == EIN__FLOOR ? &whole : &rest);
    }
    ein__split_multiples(&copy, d, false, &whole, &rest);
    ein__ix small = ein__ix_small(ctx, kind, &rest, d);
    if (kind == EIN__MOD || !small.i) return small;
    ein__ix w = ein__ix_recombine(ctx, &whole);
    return ein__ix_add(ctx, w, small);
}

// Floored division by d > 0 of an integer form.
EIN__FN ein__ix ein__ix_floordiv(ein_ctx *ctx, ein__ix a, int64_t d) {
    if (!a.i) return a;
    const ein__index *f = ein__ix_get(ctx, a);
    if (f->q != 1) return ein__ix_overflow(ctx);
    return ein__ix_floor_or_mod(ctx, EIN__FLOOR, f, d);
}

// Floored remainder in [0, d) of an integer form.
EIN__FN ein__ix ein__ix_mod(ein_ctx *ctx, ein__ix a, int64_t d) {
    if (!a.i) return a;
    const ein__index *f = ein__ix_get(ctx, a);
    if (f->q != 1) return ein__ix_overflow(ctx);
    return ein__ix_floor_or_mod(ctx, EIN__MOD, f, d);
}

// ------------------------------------------------------------------------------------
// recombination

// Finds terms kf * floor(E / d) and km * (E mod d) with kf == d * km: together km * E. Digits of a
// longer chain meet the same way, since floor(E / b) mod a is the normal form of every middle
// digit: with F = floor(E / b), b * a * floor(F / a) + b * (F mod a) = b * F.
static bool ein__join_digits(ein_ctx *ctx, ein__index *f, uint32_t *floor_at, uint32_t *mod_at,
                             ein__ix *whole) {
    for (uint32_t j = 0; j < f->n; j++) {
        const ein__atom *m = ein__atom_get(ctx, f->t[j].atom);
        int64_t k;
        if (m->kind != EIN__MOD || ein__mul_overflows(f->t[j].k, m->n, &k)) continue;
        ein__ix e = {m->ix};
        ein__ix high = ein__ix_floor_or_mod(ctx, EIN__FLOOR, ein__ix_get(ctx, e), m->n);
        if (!high.i) return false;
        const ein__index *h = ein__ix_get(ctx, high);
        if (h->n != 1 || h->c || h->t[0].k != 1) continue;
        for (uint32_t i = 0; i < f->n; i++)
            if (i != j && f->t[i].atom == h->t[0].atom && f->t[i].k == k) {
                *floor_at = i;
                *mod_at = j;
                *whole = e;
                return true;
            }
    }
    return false;
}

static ein__ix ein__ix_recombine(ein_ctx *ctx, ein__index *f) {
    uint32_t i = 0, j = 0;
    ein__ix whole;
    if (ein__ix_linear(ctx, f)) return ein__ix_intern(ctx, f);
    while (ein__join_digits(ctx, f, &i, &j, &whole)) {
        int64_t k = f->t[j].k;
        uint32_t n = 0;
        for (uint32_t t = 0; t < f->n; t++)
            if (t != i && t != j) f->t[n++] = f->t[t];
        f->n = n;
        if (!ein__ix_append(f, ein__ix_get(ctx, whole), k)) return ein__ix_overflow(ctx);
    }
    if (ctx->status == EIN_RESOURCES) return (ein__ix){0};
    return ein__ix_intern(ctx, f);
}

// ------------------------------------------------------------------------------------ questions

EIN__FN bool ein__ix_is_const(const ein_ctx *ctx, ein__ix ix, int64_t *c) {
    const ein__index *f = ein__ix_get(ctx, ix);
    if (f->n || f->q != 1) return false;
    *c = f->c;
    return true;
}

// Exactly one iterator: coefficient 1, nothing added, nothing divided.
EIN__FN bool ein__ix_is_iter(const ein_ctx *ctx, ein__ix ix, uint32_t *slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    if (f->n != 1 || f->c || f->q != 1 || f->t[0].k != 1) return false;
    const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
    *slot = a->slot;
    return a->kind == EIN__ITER;
}

// Coefficient (of the numerator) of the bare iterator of `slot`.
EIN__FN int64_t ein__ix_coef(const ein_ctx *ctx, ein__ix ix, uint32_t slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER && a->slot == slot) return f->t[i].k;
    }
    return 0;
}

EIN__FN bool ein__ix_affine(const ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++)
        if (ein__atom_get(ctx, f->t[i].atom)->kind != EIN__ITER) return false;
    return true;
}

// ------------------------------------------------------------------------------------ substitution

static ein__ex ein__gather_subst(ein_ctx *ctx, ein__ex ex, const ein__ix *map, int nslot);

// The same where form and replacements are linear and integers: in one sum. False when they are
// not, or when it does not fit.
static bool ein__ix_subst_linear(const ein_ctx *ctx, const ein__index *f, const ein__ix *map,
                                 int nslot, ein__index *sum) {
    *sum = (ein__index){.c = f->c, .q = 1};
    if (f->q != 1) return false;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__ITER || (int)a->slot >= nslot || !map[a->slot].i) return false;
        const ein__index *to = ein__ix_get(ctx, map[a->slot]);
        if (to->q != 1 || !ein__ix_linear(ctx, to) || !ein__ix_append(sum, to, f->t[i].k))
            return false;
    }
    return true;
}

// The form with iterator of slot s replaced by map[s], for s < nslot; other slots must not occur. A
// replacement with a denominator may stand in linear places only.
EIN__FN ein__ix ein__ix_subst(ein_ctx *ctx, ein__ix ix, const ein__ix *map, int nslot) {
    if (!ix.i) return ix;
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__index all;
    if (ein__ix_subst_linear(ctx, f, map, nslot, &all)) return ein__ix_intern(ctx, &all);
    ein__ix sum = ein__ix_const(ctx, f->c);
    for (uint32_t i = 0; i < f->n && sum.i; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        ein__ix x = {0};
        if (a->kind == EIN__ITER) {
            if ((int)a->slot < nslot) x = map[a->slot];
        } else if (a->kind == EIN__GATHER) {
            x = ein__ix_gather(ctx, ein__gather_subst(ctx, (ein__ex){a->ex}, map, nslot));
        } else {
            x = ein__ix_subst(ctx, (ein__ix){a->ix}, map, nslot);
            if (x.i && ein__ix_get(ctx, x)->q != 1) return (ein__ix){0};
            x = a->kind == EIN__FLOOR ? ein__ix_floordiv(ctx, x, a->n) : ein__ix_mod(ctx, x, a->n);
        }
        sum = ein__ix_combine(ctx, sum, 1, x, f->t[i].k);
    }
    return sum.i ? ein__ix_div(ctx, sum, f->q) : sum;
}
