// Simplifies an expression for one side of a boundary: where K >= 0, K an affine form of iterators,
// or where K < 0. Conditions that are decided there are replaced by their value, whatever they are
// made of: comparisons of integers, distances, products and maxima of truth values, guards.

enum {
    EIN__SIDE_BYTE = 255,  // the largest number, of either sign, that a read byte or truth value is
    EIN__SIDE_DEPTH = 16   // of what stands inside of a condition
};

typedef struct ein__side {
    ein__ix k, minus;  // K, -K
    bool above;        // K >= 0; else K < 0
} ein__side;

static ein__side ein__side_of(ein_ctx *ctx, ein__ix k, bool above) {
    return (ein__side){k, ein__ix_scale(ctx, k, -1), above};
}

// An affine form a for an index form of iterators and quotients by one number:
// a - below <= by * form <= a + above.
typedef struct ein__side_frame {
    ein__ix a;
    int64_t by, below, above;
} ein__side_frame;

// False: there is none.
static bool ein__side_frame_of(ein_ctx *ctx, ein__ix ix, ein__side_frame *r) {
    const ein__index f = ein__ix_copy(ein__ix_get(ctx, ix));
    *r = (ein__side_frame){.by = 1};
    if (f.q != 1 || f.c > INT32_MAX || f.c < -INT32_MAX) return false;
    for (uint32_t t = 0; t < f.n; t++) {
        if (f.t[t].k > INT32_MAX || f.t[t].k < -INT32_MAX) return false;
        const ein__atom *atom = ein__atom_get(ctx, f.t[t].atom);
        if (atom->kind != EIN__ITER && atom->kind != EIN__FLOOR) return false;
        if (atom->kind == EIN__ITER || atom->n == r->by) continue;
        if (r->by > 1 || atom->n > INT16_MAX) return false;
        r->by = atom->n;
    }
    r->a = ein__ix_const(ctx, f.c * r->by);
    for (uint32_t t = 0; t < f.n && r->a.i; t++) {
        const ein__atom atom = *ein__atom_get(ctx, f.t[t].atom);
        int64_t k = f.t[t].k, most = (k < 0 ? -k : k) * (r->by - 1);
        bool floored = atom.kind == EIN__FLOOR;
        ein__ix part = {atom.ix};
        if (!floored) part = ein__ix_iter(ctx, atom.slot, atom.n);
        if (floored) *(k < 0 ? &r->above : &r->below) += most;
        r->a = ein__ix_add(ctx, r->a, ein__ix_scale(ctx, part, floored ? k : k * r->by));
    }
    return r->a.i && ein__ix_get(ctx, r->a)->q == 1 && ein__ix_affine(ctx, r->a);
}

// `ex`, arithmetic on whole numbers, as an index form that has such a frame.
static bool ein__side_count(ein_ctx *ctx, ein__ex ex, ein__ix *ix) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__ix x, y;
    double v;
    bool number = ein__ex_is_const(ctx, ex, &v);
    if (number && v >= INT16_MIN && v <= INT16_MAX && v == (double)(int16_t)v) {
        *ix = ein__ix_const(ctx, (int16_t)v);
    } else if (e.op == EIN__X_IDX) {
        *ix = e.ix[0];
    } else if (e.op == EIN__X_UNARY && e.fn == EIN__NEG) {
        if (!ein__side_count(ctx, e.kid[0], &x)) return false;
        *ix = ein__ix_scale(ctx, x, -1);
    } else if (e.op == EIN__X_BINARY &&
               (e.fn == EIN__ADD || e.fn == EIN__SUB || e.fn == EIN__MUL)) {
        if (!ein__side_count(ctx, e.kid[0], &x) || !ein__side_count(ctx, e.kid[1], &y))
            return false;
        bool left = e.fn == EIN__MUL && !ein__ix_uses(ctx, x);
        if (e.fn == EIN__MUL && !left && ein__ix_uses(ctx, y)) return false;
        *ix = e.fn == EIN__ADD   ? ein__ix_add(ctx, x, y)
              : e.fn == EIN__SUB ? ein__ix_add(ctx, x, ein__ix_scale(ctx, y, -1))
              : left             ? ein__ix_scale(ctx, y, ein__ix_get(ctx, x)->c)
                                 : ein__ix_scale(ctx, x, ein__ix_get(ctx, y)->c);
    } else {
        return false;
    }
    ein__side_frame frame;
    return ix->i && ein__side_frame_of(ctx, *ix, &frame);
}

// -inf, as it is or as log(0), or a number that any score vanishes beside: the sum of both is that
// number in f32, unless the score is 2^-25 of it, some 1e31.
static bool ein__side_never(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double v;
    if (e->op == EIN__X_UNARY && e->fn == EIN__LOG)
        return ein__ex_is_const(ctx, e->kid[0], &v) && v == 0;
    return ein__ex_is_const(ctx, ex, &v) && v <= -3.4e38;
}

typedef struct ein__side_range {
    int64_t lo, hi;
} ein__side_range;

// Values that affine form `ix` has on the side.
static ein__side_range ein__side_affine(ein_ctx *ctx, const ein__side *z, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__side_range r = {f->lo, f->hi};
    int64_t d;
    if (ein__same_lattice(ctx, ix, z->k, &d)) {
        if (z->above) r.lo = ein__most(r.lo, d);
        else r.hi = ein__least(r.hi, d - 1);
    }
    if (ein__same_lattice(ctx, ix, z->minus, &d)) {
        if (z->above) r.hi = ein__least(r.hi, d);
        else r.lo = ein__most(r.lo, d + 1);
    }
    return r;
}

// Values that a form has there.
static ein__side_range ein__side_reach(ein_ctx *ctx, const ein__side *z, ein__ix ix) {
    const ein__index f = ein__ix_copy(ein__ix_get(ctx, ix));
    ein__side_frame frame;
    if (!ein__side_frame_of(ctx, ix, &frame)) return (ein__side_range){f.lo, f.hi};
    ein__side_range r = ein__side_affine(ctx, z, frame.a);
    int64_t lo = -ein__floordiv(frame.below - r.lo, frame.by),
            hi = ein__floordiv(r.hi + frame.above, frame.by);
    return (ein__side_range){ein__most(lo, f.lo), ein__least(hi, f.hi)};
}

static bool ein__side_combined(ein__fn fn, ein__side_range x, ein__side_range y,
                               ein__side_range *r) {
    int64_t p[] = {x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi};
    switch ((int)fn) {
    case EIN__ADD: *r = (ein__side_range){x.lo + y.lo, x.hi + y.hi}; return true;
    case EIN__SUB: *r = (ein__side_range){x.lo - y.hi, x.hi - y.lo}; return true;
    case EIN__MIN:
        *r = (ein__side_range){ein__least(x.lo, y.lo), ein__least(x.hi, y.hi)};
        return true;
    case EIN__MAX:
        *r = (ein__side_range){ein__most(x.lo, y.lo), ein__most(x.hi, y.hi)};
        return true;
    case EIN__MUL:
        *r = (ein__side_range){p[0], p[0]};
        for (int i = 1; i < 4; i++)
            *r = (ein__side_range){ein__least(r->lo, p[i]), ein__most(r->hi, p[i])};
        return true;
    default: return false;
    }
}

static int ein__side_holds(ein_ctx *ctx, const ein__side *z, const ein__expr *e, int depth);

// Whether guard `e` lets its body through: 1, 0, or -1: it depends.
static int ein__side_passes(ein_ctx *ctx, const ein__side *z, const ein__expr *e) {
    ein__side_frame frame;
    if (!ein__side_frame_of(ctx, e->ix[0], &frame)) return -1;
    ein__side_range r = ein__side_reach(ctx, z, e->ix[0]);
    if (r.lo >= 0 && r.hi < e->n) return !e->negate;
    return r.hi < 0 || r.lo >= e->n ? (int)e->negate : -1;
}

// Values that `ex` has on the side, where it is a whole number whatever is read; false: not known.
static bool ein__side_values(ein_ctx *ctx, const ein__side *z, ein__ex ex, int depth,
                             ein__side_range *r) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__side_range x = {0, 0}, y = {0, 0};
    ein__ix ix;
    bool known = depth <= EIN__SIDE_DEPTH;
    if (!known) return false;
    if (ein__side_count(ctx, ex, &ix)) {
        *r = ein__side_reach(ctx, z, ix);
    } else if (e.op == EIN__X_READ) {
        ein__dtype type = ctx->value[e.val].dtype;
        *r = (ein__side_range){-EIN__SIDE_BYTE, EIN__SIDE_BYTE};
        known = !e.bits && (type == EIN__BOOL || type == EIN__I8);
    } else if (e.op == EIN__X_SELECT || e.op == EIN__X_WHEN) {
        bool select = e.op == EIN__X_SELECT;
        int holds = select ? ein__side_holds(ctx, z, &e, depth) : ein__side_passes(ctx, z, &e);
        if (holds != 0) known = ein__side_values(ctx, z, e.kid[select ? 2 : 0], depth + 1, &x);
        if (holds != 1 && select) known &= ein__side_values(ctx, z, e.kid[3], depth + 1, &y);
        *r = holds == 1 ? x : y;
        if (holds < 0) *r = (ein__side_range){ein__least(x.lo, y.lo), ein__most(x.hi, y.hi)};
    } else if (e.op == EIN__X_UNARY && (e.fn == EIN__ABS || e.fn == EIN__NEG)) {
        known = ein__side_values(ctx, z, e.kid[0], depth + 1, &x);
        *r = (ein__side_range){-x.hi, -x.lo};
        if (e.fn == EIN__ABS)
            *r = (ein__side_range){ein__most(ein__most(x.lo, -x.hi), 0), ein__most(x.hi, -x.lo)};
    } else {
        known = e.op == EIN__X_BINARY && ein__side_values(ctx, z, e.kid[0], depth + 1, &x) &&
                ein__side_values(ctx, z, e.kid[1], depth + 1, &y) &&
                ein__side_combined((ein__fn)e.fn, x, y, r);
    }
    return known && r->lo <= r->hi && r->lo >= -INT32_MAX && r->hi <= INT32_MAX;
}

// Whether the condition of select `e` holds on the side: 1, 0, or -1: it depends.
static int ein__side_holds(ein_ctx *ctx, const ein__side *z, const ein__expr *e, int depth) {
    ein__side_range x, y, d;
    ein__ix a, b;
    if (ein__side_count(ctx, e->kid[0], &a) && ein__side_count(ctx, e->kid[1], &b)) {
        ein__ix distance = ein__ix_add(ctx, a, ein__ix_scale(ctx, b, -1));
        if (!distance.i) return -1;
        d = ein__side_reach(ctx, z, distance);
    } else {
        if (!ein__side_values(ctx, z, e->kid[0], depth + 1, &x) ||
            !ein__side_values(ctx, z, e->kid[1], depth + 1, &y))
            return -1;
        d = (ein__side_range){x.lo - y.hi, x.hi - y.lo};
    }
    bool equal = d.lo == 0 && d.hi == 0, apart = d.lo > 0 || d.hi < 0;
    switch ((int)e->fn) {
    case EIN__LT: return d.hi < 0 ? 1 : d.lo >= 0 ? 0 : -1;
    case EIN__LE: return d.hi <= 0 ? 1 : d.lo > 0 ? 0 : -1;
    case EIN__GT: return d.lo > 0 ? 1 : d.hi <= 0 ? 0 : -1;
    case EIN__GE: return d.lo >= 0 ? 1 : d.hi < 0 ? 0 : -1;
    case EIN__EQ: return equal ? 1 : apart ? 0 : -1;
    case EIN__NE: return equal ? 0 : apart ? 1 : -1;
    default: return -1;
    }
}

// `ex` as it is on the side. x + -inf is -inf, so a mask may be added as well.
static ein__ex ein__side_put(ein_ctx *ctx, const ein__side *z, ein__ex ex) {
    ein__expr e = *ein__ex_get(ctx, ex);
    ein__side_range r;
    if (!e.nkid) return ex;
    int holds = e.op == EIN__X_SELECT ? ein__side_holds(ctx, z, &e, 0)
                : e.op == EIN__X_WHEN ? ein__side_passes(ctx, z, &e)
                                      : -1;
    if (holds >= 0 && e.op == EIN__X_SELECT) return ein__side_put(ctx, z, e.kid[3 - holds]);
    if (holds >= 0) return holds ? ein__side_put(ctx, z, e.kid[0]) : ein__ex_const(ctx, 0);
    if (ein__side_values(ctx, z, ex, 0, &r) && r.lo == r.hi)
        return ein__ex_const(ctx, (double)r.lo);
    for (uint32_t i = 0; i < e.nkid; i++) {
        e.kid[i] = ein__side_put(ctx, z, e.kid[i]);
        if (!e.kid[i].i) return (ein__ex){0};
    }
    bool sum = e.op == EIN__X_BINARY && e.fn == EIN__ADD;
    for (int k = 0; k < 2 && sum; k++)
        if (ein__side_never(ctx, e.kid[k])) return e.kid[k];
    return ein__ex_make(ctx, &e);
}
