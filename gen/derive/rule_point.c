// One-point rule. A subscript (E + k*r) / q, E in the traversal and r summed, is an integer for one
// value of r modulo q only: the low digit of r is a function of E, and its sum drops out. With
// r = q*R + p and u = (E + k*p) / q the subscript is u + k*R, without a denominator, so
//
//   V[x] = sum(c,r) a[c, (E + k*r)/q] w[c,r]
//        = Z[p(E), u(E)],  Z[p,u] = sum(c,R) a[c, u + k*R] w[c, q*R + p]:
//
// a transposed convolution is one convolution of stride 1 with q times the channels per axis, and a
// pixel shuffle. Z has places that no x comes to, since u of one phase reaches further than that of
// another. Over E itself, counted from its least value L, there are none: E = L + q*a + b, and p is
// a function of b,
//
//   V[x] = Z[b(E), a(E)],  Z[b,a] = sum(c,R) a[c, u(a,b) + k*R] w[c, q*R + p(b)],
//
// a product whose window begins elsewhere in each phase; no library has it.

// Growth of the result, percent: a halo of 1 around a result of 2 x 2 is 225.
enum { EIN__POINT_GROWTH = 250 };

// A subscript of the data with a denominator, and what becomes of it.
typedef struct ein__point {
    bool active;
    int sum;                  // slot of r; -1: none, E itself must be a multiple of q
    int64_t k, q;             // coefficient of r, denominator
    int64_t step, phases;     // r = q*R + step*p + first, p in 0:phases
    int64_t first, taps;      // R in 0:taps
    int64_t turn;             // p is E * turn modulo the phases
    uint32_t outer;           // slots of E
    ein__ix e;                // (E + k*first) / step in the old iterators
    bool own;                 // E by digits, not u and p
    int64_t lo, n;            // range of u, or of E's upper digit
    ein__ix phase, at;        // p and u in the new iterators
    uint32_t p_slot, u_slot;  // in the new scope
} ein__point;

typedef struct ein__points {
    const ein__scope *s;
    bool own;
    const ein__expr *x, *w;
    uint32_t in_x, in_w;          // slots that the operands use
    uint32_t outer;               // slots of all E
    ein__point p[EIN__MAX_RANK];  // by dimension of x
    ein__scope t;                 // the new scope
    ein__ix map[EIN__MAX_ITERS];  // old slots in the new iterators
    ein__ix back[EIN__MAX_RANK];  // new traversal slots in the old iterators
} ein__points;

// The y in 0:q with k*y = 1 modulo q, for k and q without a common factor.
static int64_t ein__inverse_mod(int64_t k, int64_t q) {
    int64_t a = ein__floormod(k, q), b = q, x = 1, y = 0;
    while (b) {
        int64_t d = a / b, swap = a - d * b;
        a = b;
        b = swap;
        swap = x - d * y;
        x = y;
        y = swap;
    }
    return ein__floormod(x, q);
}

// Whether slot `i` occurs in a subscript other than dimension `dim` of x.
static bool ein__used_beside(ein_ctx *ctx, const ein__points *z, uint32_t i, uint32_t dim) {
    for (uint32_t k = 0; k < z->x->nix; k++)
        if (k != dim && (ein__ix_uses(ctx, z->x->ix[k]) >> i & 1)) return true;
    return z->in_w >> i & 1;
}

// Tells E, r and multiples of q apart in dimension `dim` of x; `e` receives E. False: there is more
// than one r, r takes some residues only, or E is needed elsewhere as well.
static bool ein__point_parts(ein_ctx *ctx, ein__points *z, uint32_t dim, ein__ix *e) {
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    ein__point *p = &z->p[dim];
    *p = (ein__point){.active = true, .sum = -1, .k = 1, .q = f->q, .taps = 1};
    *e = ein__ix_const(ctx, f->c);
    p->step = f->q;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        int64_t k = f->t[i].k;
        if (a->kind != EIN__ITER) return false;
        bool sum = a->slot >= z->s->nt, beside = ein__used_beside(ctx, z, a->slot, dim);
        if (k % p->q == 0 && (sum || beside)) continue;
        if (sum) {
            if (p->sum >= 0 || ein__gcd(k, p->q) != 1) return false;
            p->sum = (int)a->slot;
            p->k = k;
            continue;
        }
        if (beside) return false;
        p->outer |= 1u << a->slot;
        p->step = ein__gcd(p->step, k);
        *e = ein__ix_add(ctx, *e, ein__ix_scale(ctx, ein__ix_iter(ctx, a->slot, a->n), k));
    }
    return e->i != 0;
}

// p as a function of `e`, which is E without what it has in common with q.
static ein__ix ein__point_phase(ein_ctx *ctx, const ein__point *p, ein__ix e) {
    return ein__ix_mod(ctx, ein__ix_scale(ctx, e, p->turn), p->phases);
}

// u as a function of `e`. For k = -1 and 1 it is e / q rounded down or up: one form, not a form of
// p.
static ein__ix ein__point_place(ein_ctx *ctx, const ein__point *p, ein__ix e) {
    if (p->phases == 1) return e;
    if (p->k == 1) e = ein__ix_addc(ctx, e, p->phases - 1);
    else if (p->k != -1)
        e = ein__ix_add(ctx, e, ein__ix_scale(ctx, ein__point_phase(ctx, p, e), p->k));
    return ein__ix_floordiv(ctx, e, p->phases);
}

// r's digits.
static bool ein__point_digits(ein_ctx *ctx, const ein__points *z, ein__point *p, ein__ix e) {
    if (p->sum < 0) {
        p->e = ein__ix_div(ctx, e, p->q);
        p->phases = 1;
        return p->e.i != 0;
    }
    // Modulo the factor that E shares with q, r is a constant; what is left of q has phases.
    int64_t c = ein__floormod(ein__ix_get(ctx, e)->c, p->step);
    int64_t inverse = ein__inverse_mod(p->k, p->q), extent = z->s->n[p->sum];
    if (inverse > EIN__INDEX_LIMIT / p->q) return false;
    p->first = ein__floormod(-c * (inverse % p->step), p->step);
    p->phases = p->q / p->step;
    if (p->first >= extent || p->k < -EIN__INDEX_LIMIT / p->q || p->k > EIN__INDEX_LIMIT / p->q)
        return false;
    p->taps = (extent - p->first + p->q - 1) / p->q;
    p->turn = ein__floormod(-inverse, p->phases);
    p->e = ein__ix_div(ctx, ein__ix_addc(ctx, e, p->k * p->first), p->step);
    return ein__point_phase(ctx, p, p->e).i && ein__point_place(ctx, p, p->e).i;
}

// The range of E's upper digit.
static bool ein__point_own(ein_ctx *ctx, ein__point *p) {
    const ein__index *e = ein__ix_get(ctx, p->e);
    p->own = true;
    p->lo = e->lo;
    p->n = ein__ceil(e->hi - e->lo + 1, p->phases);
    return p->n > 0;
}

// The range of u: where some read is inside; enlarged until both ends are padded alike, since
// library calls take one padding for both. False: no read is inside.
static bool ein__point_range(ein_ctx *ctx, ein__points *z, uint32_t dim) {
    ein__point *p = &z->p[dim];
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    const ein__index *u = ein__ix_get(ctx, ein__point_place(ctx, p, p->e));
    int64_t low = 0, high = 0, extent = ctx->value[z->x->val].shape.d[dim];
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t slot = ein__atom_get(ctx, f->t[i].atom)->slot;
        if (p->outer >> slot & 1) continue;
        int64_t k = (int)slot == p->sum ? p->k : f->t[i].k / p->q;
        int64_t n = (int)slot == p->sum ? p->taps : z->s->n[slot];
        *(k < 0 ? &low : &high) += k * (n - 1);
    }
    ein__places places = {u->lo, u->hi};
    ein__reach data = {1, extent, {low, high}};
    if (!ein__rule_tighten(ctx, &places, &data)) return false;
    ein__rule_relax(ctx, &places, &data);
    p->lo = places.lo;
    p->n = places.hi - places.lo + 1;
    return p->n > 0;
}

// Digits of all subscripts with a denominator. False: there is none, or of one nothing is found.
static bool ein__find_points(ein_ctx *ctx, ein__points *z) {
    bool any = false;
    uint32_t sums = 0;
    for (uint32_t k = 0; k < z->x->nix; k++) {
        ein__point *p = &z->p[k];
        ein__ix e;
        *p = (ein__point){0};
        if (ein__ix_get(ctx, z->x->ix[k])->q == 1) continue;
        if (!ein__point_parts(ctx, z, k, &e) || !ein__point_digits(ctx, z, p, e)) return false;
        bool own = z->own && p->outer && p->phases > 1;
        if (!(own ? ein__point_own(ctx, p) : ein__point_range(ctx, z, k))) return false;
        if (p->sum >= 0 && (sums >> p->sum & 1)) return false;
        if (p->sum >= 0) sums |= 1u << p->sum;
        z->outer |= p->outer;
        any |= own || !z->own;
    }
    return any;
}

// ------------------------------------------------------------------------------------ the scope

static bool ein__point_slot(ein__points *z, int64_t n, ein__ix back, uint32_t *slot) {
    if (z->t.nt == EIN__MAX_RANK) return false;
    z->back[z->t.nt] = back;
    z->t.n[z->t.nt] = n;
    *slot = z->t.nt++;
    return true;
}

static bool ein__point_keep(ein_ctx *ctx, ein__points *z, uint32_t i) {
    uint32_t slot;
    ein__ix it = ein__ix_iter(ctx, i, z->s->n[i]);
    if (!ein__point_slot(z, z->s->n[i], it, &slot)) return false;
    z->map[i] = ein__ix_iter(ctx, slot, z->s->n[i]);
    return true;
}

// The first dimension of x that is no batch: it stands for channels, or for a window.
static uint32_t ein__point_batch_end(ein_ctx *ctx, const ein__points *z) {
    uint32_t k = 0, slot;
    for (; k < z->x->nix; k++)
        if (!ein__ix_is_iter(ctx, z->x->ix[k], &slot) || slot >= z->s->nt || (z->in_w >> slot & 1))
            break;
    return k;
}

// Slots of the phases: of those that stand beside digits of E, or of those that are channels.
static bool ein__point_phases(ein_ctx *ctx, ein__points *z, bool own) {
    for (uint32_t k = 0; k < z->x->nix; k++) {
        ein__point *p = &z->p[k];
        if (!p->active || p->phases == 1 || p->own != own) continue;
        ein__ix back = own ? ein__ix_mod(ctx, ein__ix_addc(ctx, p->e, -p->lo), p->phases)
                           : ein__point_phase(ctx, p, p->e);
        if (!ein__point_slot(z, p->phases, back, &p->p_slot)) return false;
    }
    return true;
}

// The slot of u, or of E's upper digit, and with it p and u in the new iterators.
static bool ein__point_window(ein_ctx *ctx, ein__points *z, ein__point *p) {
    ein__ix phase = ein__ix_const(ctx, 0), back;
    if (p->phases > 1) phase = ein__ix_iter(ctx, p->p_slot, p->phases);
    p->phase = phase;
    p->at = p->e;
    if (!p->outer) return true;
    if (p->own) back = ein__ix_floordiv(ctx, ein__ix_addc(ctx, p->e, -p->lo), p->phases);
    else back = ein__ix_addc(ctx, ein__point_place(ctx, p, p->e), -p->lo);
    if (!ein__point_slot(z, p->n, back, &p->u_slot)) return false;
    p->at = ein__ix_addc(ctx, ein__ix_iter(ctx, p->u_slot, p->n), p->lo);
    if (!p->own) return true;
    ein__ix e = ein__ix_scale(ctx, ein__ix_iter(ctx, p->u_slot, p->n), p->phases);
    e = ein__ix_addc(ctx, ein__ix_add(ctx, e, phase), p->lo);
    p->phase = ein__point_phase(ctx, p, e);
    p->at = ein__point_place(ctx, p, e);
    return p->phase.i && p->at.i;
}

// Traversal of the new scope in the order a convolution has: batch, groups, channels and then the
// phases, which are channels, and windows; phases of a product's own are groups. Dimensions of
// extent 1 have no iterator.
static bool ein__point_traversal(ein_ctx *ctx, ein__points *z) {
    uint32_t nt = z->s->nt, placed = z->outer, first = ein__point_batch_end(ctx, z), only_x;
    only_x = z->in_x & ~z->in_w & ((1u << nt) - 1);
    for (int group = 0; group < 3; group++) {
        uint32_t want = group == 0 ? 0 : group == 1 ? z->in_x & z->in_w : z->in_w & ~z->in_x;
        for (uint32_t k = 0; group == 0 && k < first; k++)
            want |= ein__ix_uses(ctx, z->x->ix[k]) & only_x;
        for (uint32_t i = 0; i < nt; i++) {
            if (!(want >> i & 1) || (placed >> i & 1) || z->s->n[i] == 1) continue;
            if (!ein__point_keep(ctx, z, i)) return false;
            placed |= 1u << i;
        }
        if (group == 0 && !ein__point_phases(ctx, z, true)) return false;
    }
    if (!ein__point_phases(ctx, z, false)) return false;
    for (uint32_t k = 0; k < z->x->nix; k++) {
        ein__point *p = &z->p[k];
        uint32_t rest = ein__ix_uses(ctx, z->x->ix[k]) & only_x & ~placed;
        for (uint32_t i = 0; i < nt; i++) {
            if (!(rest >> i & 1) || z->s->n[i] == 1) continue;
            if (!ein__point_keep(ctx, z, i)) return false;
            placed |= 1u << i;
        }
        if (p->active && !ein__point_window(ctx, z, p)) return false;
    }
    return true;
}

static bool ein__read_backwards(ein_ctx *ctx, const ein__expr *x, uint32_t slot) {
    for (uint32_t k = 0; k < x->nix; k++)
        if (ein__ix_coef(ctx, x->ix[k], slot) < 0) return true;
    return false;
}

// Sums keep their order, counted so that the data is read forwards; r is q*R + step*p + first.
static bool ein__point_sums(ein_ctx *ctx, ein__points *z) {
    for (uint32_t i = z->s->nt; i < z->s->nt + z->s->ns; i++) {
        const ein__point *p = NULL;
        for (uint32_t k = 0; k < z->x->nix; k++)
            if (z->p[k].active && z->p[k].sum == (int)i) p = &z->p[k];
        int64_t n = p ? p->taps : z->s->n[i];
        ein__ix it = ein__ix_const(ctx, 0);
        if (n > 1) {
            if (z->t.nt + z->t.ns == EIN__MAX_ITERS) return false;
            it = ein__ix_iter(ctx, z->t.nt + z->t.ns, n);
            z->t.n[z->t.nt + z->t.ns++] = n;
        }
        bool backwards = p ? p->k < 0 : ein__read_backwards(ctx, z->x, i);
        if (backwards) it = ein__ix_addc(ctx, ein__ix_scale(ctx, it, -1), n - 1);
        if (p) {
            it = ein__ix_addc(ctx, ein__ix_scale(ctx, it, p->q), p->first);
            it = ein__ix_add(ctx, it, ein__ix_scale(ctx, p->phase, p->step));
        }
        z->map[i] = it;
    }
    z->t.reduce = z->t.ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    return true;
}

// ------------------------------------------------------------------------------------ operands

static ein__ex ein__point_data(ein_ctx *ctx, const ein__points *z) {
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t k = 0; k < z->x->nix; k++) {
        const ein__point *p = &z->p[k];
        const ein__index *f = ein__ix_get(ctx, z->x->ix[k]);
        if (!p->active) {
            ix[k] = ein__ix_subst(ctx, z->x->ix[k], z->map, (int)(z->s->nt + z->s->ns));
            continue;
        }
        ix[k] = p->at;
        for (uint32_t i = 0; i < f->n; i++) {
            uint32_t slot = ein__atom_get(ctx, f->t[i].atom)->slot;
            ein__ix term;
            if (p->outer >> slot & 1) continue;
            if ((int)slot == p->sum) {
                // r without its low digit, over q
                term = ein__ix_addc(ctx, z->map[slot], -p->first);
                term = ein__ix_sub(ctx, term, ein__ix_scale(ctx, p->phase, p->step));
                term = ein__ix_scale(ctx, ein__ix_div(ctx, term, p->q), p->k);
            } else {
                term = ein__ix_scale(ctx, z->map[slot], f->t[i].k / p->q);
            }
            ix[k] = ein__ix_add(ctx, ix[k], term);
        }
    }
    return ein__ex_read(ctx, (ein__val){z->x->val}, 0, ix, (int)z->x->nix);
}

// The other operand at the new iterators, and 0 where r is beyond its extent. False: it has no such
// iterator, so the data alone would have to be cut.
static bool ein__point_filter(ein_ctx *ctx, const ein__points *z, ein__ex *filter) {
    int n = (int)(z->s->nt + z->s->ns);
    ein__ex w = ein__ex_subst(ctx, ein__ex_of(ctx, z->w), z->map, n);
    for (uint32_t k = 0; k < z->x->nix && w.i; k++) {
        const ein__point *p = &z->p[k];
        if (!p->active || p->sum < 0) continue;
        int64_t extent = z->s->n[p->sum];
        if (ein__ix_get(ctx, z->map[p->sum])->hi < extent) continue;
        if (!(z->in_w >> p->sum & 1)) return false;
        w = ein__ex_when(ctx, z->map[p->sum], extent, false, w);
    }
    *filter = w;
    return w.i != 0;
}

// The rule's name, which tells of both forms apart.
static const char *ein__point_why(const ein__points *z) {
    return z->own ? "one-point rule by phases" : "one-point rule";
}

// The filter written out, its dimensions in the order a convolution's has.
static ein__ex ein__point_relay(ein__deriver *d, const ein__points *z, ein__ex w, int from) {
    ein_ctx *ctx = d->ctx;
    uint32_t used = ein__ex_uses(ctx, w);
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    int64_t volume = ein__extent_of(&z->t, used);
    bool load = ctx->value[z->w->val].weight_only;
    if (!load && volume > ein__elements(&ctx->value[z->w->val].shape) * EIN__MAX_GROWTH)
        return (ein__ex){0};
    if (!ein__used_dims(ctx, &z->t, used, &t, map, back)) return (ein__ex){0};
    t.body = ein__ex_subst(ctx, w, map, (int)(z->t.nt + z->t.ns));
    if (!t.body.i) return t.body;
    ein__val v = ein__class_of(d, &t, "taps", from, ein__point_why(z), EIN__INNER);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

static void ein__point_apply(ein__deriver *d, int from, ein__points *z, double alpha) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    ein__ex x, w;
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++) z->map[i] = ein__ix_const(ctx, 0);
    if (!ein__point_traversal(ctx, z) || !ein__point_sums(ctx, z)) return;
    const char *why = ein__point_why(z);
    int64_t volume = ein__extent_of(&z->t, (1u << z->t.nt) - 1),
            had = ein__extent_of(z->s, (1u << z->s->nt) - 1);
    if (ein__times(volume, 100) > ein__times(had, EIN__POINT_GROWTH)) return;
    x = ein__point_data(ctx, z);
    if (!x.i || !ein__point_filter(ctx, z, &w)) return;
    if (ein__ex_get(ctx, w)->op == EIN__X_CONST || ein__ex_get(ctx, x)->op == EIN__X_CONST) return;
    w = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), w);
    if (w.i) w = ein__point_relay(d, z, w, from);
    z->t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
    ein__val v =
        z->t.body.i ? ein__class_of(d, &z->t, "phases", from, why, EIN__WHOLE) : (ein__val){0};
    ein__scope copy = {.reduce = EIN__R_NONE, .nt = z->s->nt};
    memcpy(copy.n, z->s->n, z->s->nt * sizeof *copy.n);
    copy.body = v.i ? ein__ex_read(ctx, v, 0, z->back, (int)z->t.nt) : (ein__ex){0};
    if (copy.body.i) ein__add_def(d, old.cls, &copy, from, why, old.place);
}

static void ein__point_both(ein__deriver *d, int from, bool own) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope *s = ein__sc_get(ctx, old.sc);
    const ein__expr *read[2];
    double alpha;
    if (old.place || old.depth || !ein__two_factors(ctx, s, read, &alpha)) return;
    for (int k = 0; k < 2; k++) {
        ein__points z = {.s = s, .own = own, .x = read[k], .w = read[1 - k]};
        z.in_x = ein__read_slots(ctx, z.x);
        z.in_w = ein__read_slots(ctx, z.w);
        ein__attempt attempt = ein__try(ctx);
        if (ein__find_points(ctx, &z)) ein__point_apply(d, from, &z, alpha);
        if (!ein__tried(ctx, attempt)) return;
    }
}

static void ein__rule_point(ein__deriver *d, int from) { ein__point_both(d, from, false); }

static void ein__rule_phases(ein__deriver *d, int from) { ein__point_both(d, from, true); }
