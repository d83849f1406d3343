// Rule `toeplitz`: where no channel is summed together with a window, as in a depthwise or a very
// long convolution, one factor has one column or few, which do not fill a tile. Blocks of B places
// of the result serve as columns, with a Toeplitz matrix of the weights for the second factor,
//
//   V[b,x] = sum(y) d[b, a*x + y] w[b,y]
//          = Z[b, x / B, x % B],  Z[b,X,t] = sum(m) d[b, a*B*X + m] w[b, m - a*t]
//
// with m in 0:Y+a*(B-1), of Y + a*(B-1) terms rather than Y: w outside of its box is 0. The matrix
// is never stored, only w with as many zeros around it as its reads reach, so that loads need no
// guards: what it costs is arithmetic, at the rate of a product instead of a loop's.

enum {
    EIN__TOEPLITZ_COLUMNS = 64,  // of a tile, at most ...
    EIN__TOEPLITZ_LEAST = 4,     // ... and places ...
    EIN__TOEPLITZ_TAPS = 6,      // ... and terms that are worth it
    EIN__TOEPLITZ_GROWTH = 400,  // of the terms, percent
    EIN__TOEPLITZ_SIZES = 3      // numbers of columns that are tried
};

// A window in d: x, y and the step of x.
typedef struct ein__toeplitz {
    const ein__scope *s;
    const ein__expr *data, *filter;
    uint32_t x, y;
    int64_t step;
} ein__toeplitz;

// Whether the weights have iterator `slot` in one subscript, alone, over the whole of its
// dimension, so that they are 0 wherever it has no place.
static bool ein__spans_filter(ein_ctx *ctx, const ein__expr *w, uint32_t slot) {
    int found = 0;
    for (uint32_t k = 0; k < w->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, w->ix[k]);
        if (!(ein__ix_uses(ctx, w->ix[k]) >> slot & 1)) continue;
        int64_t by = ein__ix_coef(ctx, w->ix[k], slot);
        if (f->q != 1 || f->n != 1 || (by != 1 && by != -1) || f->lo ||
            f->hi + 1 != ctx->value[w->val].shape.d[k])
            return false;
        found++;
    }
    return found == 1 && !w->bits;
}

// The window in subscript `k` of the data, along the places that the weights have none of.
static bool ein__find_toeplitz(ein_ctx *ctx, ein__toeplitz *z, uint32_t k) {
    const ein__index *f = ein__ix_get(ctx, z->data->ix[k]);
    uint32_t others = ein__read_slots(ctx, z->filter), found = 0;
    for (uint32_t i = 0; i < z->data->nix; i++)
        if (i != k) others |= ein__ix_uses(ctx, z->data->ix[i]) & ((1u << z->s->nt) - 1);
    if (f->q != 1 || !ein__ix_affine(ctx, z->data->ix[k])) return false;
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t slot = ein__atom_get(ctx, f->t[i].atom)->slot;
        if (slot >= z->s->nt) {
            if (f->t[i].k != 1 || z->s->n[slot] < EIN__TOEPLITZ_TAPS ||
                !ein__spans_filter(ctx, z->filter, slot))
                continue;
            z->y = slot;
            found |= 1;
        } else if (f->t[i].k > 0 && !(others >> slot & 1)) {
            z->x = slot;
            z->step = f->t[i].k;
            found |= 2;
        }
    }
    return found == 3;
}

// About `most` of `n` places: the largest part of them all that is near that, else as many as leave
// the last block fullest.
static int64_t ein__block_places(int64_t n, int64_t most) {
    most = ein__least(n, most);
    for (int64_t b = most; 4 * b >= 3 * most; b--)
        if (n % b == 0) return b;
    return ein__ceil(n, ein__ceil(n, most));
}

static const char ein__in_blocks[] = "windows in blocks: Toeplitz matrix of the weights";

// Read `ex` of a tensor with zeros around it, as a read of what it reaches of those too; as it is
// where it stays inside.
static ein__ex ein__toeplitz_inside(ein__deriver *d, ein__ex ex, const char *suffix, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__scope box = {.reduce = EIN__R_NONE, .nt = e->nix};
    ein__ix at[EIN__MAX_RANK], back[EIN__MAX_RANK];
    bool inside = true;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        bool guarded = ein__is_guarded(ctx, e, k);
        int64_t lo = guarded ? f->lo : 0;
        if (guarded && f->q != 1) return ex;
        box.n[k] = guarded ? f->hi - lo + 1 : ctx->value[e->val].shape.d[k];
        at[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, k, box.n[k]), lo);
        back[k] = ein__ix_addc(ctx, e->ix[k], -lo);
        inside &= !guarded;
    }
    if (inside || e->bits) return ex;
    box.body = ein__ex_read(ctx, (ein__val){e->val}, 0, at, (int)e->nix);
    if (!box.body.i) return box.body;
    ein__val v = ein__class_of(d, &box, suffix, from, ein__in_blocks, EIN__INNER);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)box.nt) : (ein__ex){0};
}

// Adds V as a view of Z, the definition `t` but for its body.
static void ein__add_blocks(ein__deriver *d, ein__scope *t, ein__ex x, ein__ex w, const ein__ix *at,
                            int from) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope *s = ein__sc_get(ctx, old.sc);
    t->body = ein__ex_binary(ctx, EIN__MUL, x, w);
    ein__val v = t->body.i ? ein__class_of(d, t, "blocks", from, ein__in_blocks, EIN__FORMED)
                           : (ein__val){0};
    ein__scope copy = {.reduce = EIN__R_NONE, .nt = s->nt};
    memcpy(copy.n, s->n, s->nt * sizeof *copy.n);
    copy.body = v.i ? ein__ex_read(ctx, v, 0, at, (int)t->nt) : (ein__ex){0};
    if (copy.body.i) ein__add_def(d, old.cls, &copy, from, ein__in_blocks, old.place);
}

// Adds V in blocks of `b` places, with the data as they are and with zeros around them.
static void ein__add_toeplitz(ein__deriver *d, const ein__toeplitz *z, double alpha, int64_t b,
                              int from) {
    ein_ctx *ctx = d->ctx;
    const ein__scope s = *z->s;
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK];
    ein__scope t = {.reduce = EIN__R_SUM, .nt = s.nt + 1, .ns = s.ns};
    if (t.nt > EIN__MAX_RANK || t.nt + t.ns > EIN__MAX_ITERS) return;
    for (uint32_t i = 0; i < s.nt + s.ns; i++) {
        uint32_t to = i + (i >= s.nt);
        t.n[to] = i == z->x ? ein__ceil(s.n[i], b) : s.n[i];
        if (i == z->y) t.n[to] += z->step * (b - 1);
        map[i] = ein__ix_iter(ctx, to, t.n[to]);
        if (i < s.nt) at[i] = ein__ix_iter(ctx, i, s.n[i]);
    }
    t.n[s.nt] = b;
    ein__ix place = ein__ix_iter(ctx, s.nt, b);
    map[z->x] = ein__ix_add(ctx, ein__ix_scale(ctx, map[z->x], b), place);
    map[z->y] = ein__ix_add(ctx, map[z->y], ein__ix_scale(ctx, place, -z->step));
    at[s.nt] = ein__ix_mod(ctx, at[z->x], b);
    at[z->x] = ein__ix_floordiv(ctx, at[z->x], b);
    ein__ex x = ein__ex_subst(ctx, ein__ex_of(ctx, z->data), map, (int)(s.nt + s.ns));
    ein__ex w = ein__ex_subst(ctx, ein__ex_of(ctx, z->filter), map, (int)(s.nt + s.ns));
    if (!x.i || !w.i) return;
    ein__ex inside = ein__toeplitz_inside(d, x, "around", from);
    bool weights = ctx->value[z->filter->val].weight_only;
    ein__ex zeros = ein__toeplitz_inside(d, w, "zeros", from);
    ein__ex by = ein__ex_const(ctx, alpha);
    if (weights) w = zeros;
    ein__add_blocks(d, &t, x, ein__ex_binary(ctx, EIN__MUL, by, w), at, from);
    if (inside.i != x.i)
        ein__add_blocks(d, &t, inside, ein__ex_binary(ctx, EIN__MUL, by, zeros), at, from);
}

// By every window of the definition, in blocks of several sizes.
static void ein__rule_toeplitz(ein__deriver *d, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope s = *ein__sc_get(ctx, old.sc);
    const ein__expr *read[2];
    double alpha;
    if (old.place || !ein__two_factors(ctx, &s, read, &alpha)) return;
    for (int r = 0; r < 2; r++) {
        ein__toeplitz z = {.s = &s, .data = read[r], .filter = read[1 - r]};
        uint32_t of = ein__read_slots(ctx, z.filter) & ~ein__read_slots(ctx, z.data);
        int64_t columns = ein__extent_of(&s, of & ((1u << s.nt) - 1)), last = 0;
        for (uint32_t k = 0; k < z.data->nix; k++) {
            if (!ein__find_toeplitz(ctx, &z, k)) continue;
            for (int size = EIN__TOEPLITZ_SIZES - 1; size >= 0; size--) {
                int64_t most = (EIN__TOEPLITZ_COLUMNS >> size) / columns;
                if (most < EIN__TOEPLITZ_LEAST || s.n[z.x] < EIN__TOEPLITZ_LEAST) continue;
                int64_t b = ein__block_places(s.n[z.x], most), y = s.n[z.y];
                int64_t terms = ein__plus(y, ein__times(z.step, b - 1));
                if (b == last || ein__times(terms, 100) > ein__times(y, EIN__TOEPLITZ_GROWTH))
                    continue;
                ein__add_toeplitz(d, &z, alpha, b, from);
                last = b;
            }
            last = 0;
        }
    }
}
