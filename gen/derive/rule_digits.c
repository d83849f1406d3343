// Digit re-layout: iterators that are added to multiples of a coefficient d are split into two
// digits each, i = d * (i / d) + i % d, and every tensor that is read there is laid out by these
// digits. Dilated convolutions and bands become batches of plain ones, strided convolutions become
// space-to-depth and stride 1.

// Digit re-layout by `d`: iterators that stand with coefficient 1 beside multiples of d become two
// digits, u = d * U + p, and every tensor read there is re-laid, a'[i, p] = a[d * i + p].
typedef struct ein__digit {
    int64_t d;
    uint32_t unit;  // slots that are split
    bool in_place;  // digits stay where their iterator was
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
    uint32_t both = ~0u;
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
        if ((g->unit >> i & 1) && s->n[i] > g->d && s->n[i] % g->d && !(padded >> i & 1))
            return false;
    // A row that both factors have is a batch to every library call, so its windows need no place
    // of their own: in the operand's order the copy is cheapest.
    for (int r = 0; r < 2; r++) {
        uint32_t uses = 0;
        for (uint32_t k = 0; k < read[r]->nix; k++) uses |= ein__ix_uses(ctx, read[r]->ix[k]);
        both &= uses;
    }
    g->in_place = (g->unit & both & ((1u << s->nt) - 1)) != 0;
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
            int mine = sum ? 4 : split && !g->in_place ? ein__digit_rank(ctx, read, i) : 0;
            for (int k = 0; k < 1 + unit; k++) {
                // The low digit of a window is one more batch dimension.
                int part = !unit ? 0 : g->in_place && !sum ? 2 - k : 1 + k;
                if ((part == 2 && !sum ? 0 : mine) != rank) continue;
                uint32_t slot = g->t.nt + g->t.ns;
                int64_t low = s->n[i] < g->d ? s->n[i] : g->d, n = part == 0 ? s->n[i]
                                                                   : part == 1
                                                                       ? (s->n[i] + g->d - 1) / g->d
                                                                       : low;
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
    // Multiples of one such iterator may stand beside another one.
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (g->unit >> i & 1)
            g->whole[i] = ein__ix_add(ctx, ein__ix_scale(ctx, g->high[i], g->d), g->low[i]);
    return true;
}

// A tensor being re-laid: the copy, its subscripts, and the subscripts that it is read at.
typedef struct ein__relaid {
    ein__scope t;
    ein__ix body[EIN__MAX_RANK], index[EIN__MAX_RANK];
} ein__relaid;

static bool ein__relaid_dim(ein__relaid *c, ein__ix index, int64_t n) {
    if (c->t.nt == EIN__MAX_RANK) return false;
    c->index[c->t.nt] = index;
    c->t.n[c->t.nt++] = n;
    return true;
}

// The dimension of the copy that a low digit stands for; -1: none yet.
static int ein__relaid_low(const ein__relaid *c, ein__ix low) {
    for (uint32_t q = 0; q < c->t.nt; q++)
        if (c->index[q].i == low.i) return (int)q;
    return -1;
}

// Subscript `k` of `r`, d * (high + ...) + low + c, becomes one more dimension of the copy: what
// stands beside the low digit, in the range that is both read and inside.
static bool ein__relaid_high(ein_ctx *ctx, const ein__expr *r, uint32_t k, const ein__digit *g,
                             uint32_t slot, ein__relaid *c) {
    const ein__index *f = ein__ix_get(ctx, r->ix[k]);
    int64_t c0 = ein__floormod(f->c, g->d), extent = ctx->value[r->val].shape.d[k];
    ein__ix i = ein__ix_addc(ctx, g->high[slot], ein__floordiv(f->c, g->d));
    int low = ein__relaid_low(c, g->low[slot]);
    for (uint32_t q = 0; q < f->n; q++) {
        uint32_t other = ein__atom_get(ctx, f->t[q].atom)->slot;
        if (other != slot)
            i = ein__ix_add(ctx, i, ein__ix_scale(ctx, g->whole[other], f->t[q].k / g->d));
    }
    if (!i.i || low < 0) return false;
    ein__places reads = {ein__ix_get(ctx, i)->lo, ein__ix_get(ctx, i)->hi}, box = reads;
    if (!ein__rule_tighten(ctx, &box, &(ein__reach){g->d, extent, {c0, c0 + g->d - 1}}))
        return false;
    // Zeros are written out on one side until both are padded alike: library calls take one padding
    // for both.
    if (!g->in_place) ein__rule_relax_operand(ctx, &box, reads, false);
    int64_t lo = box.lo, hi = box.hi;
    // d * (i + lo) + p + c0, with p the low digit placed before
    ein__ix at = ein__ix_scale(ctx, ein__ix_iter(ctx, c->t.nt, hi - lo + 1), g->d);
    at = ein__ix_add(ctx, at, ein__ix_iter(ctx, (uint32_t)low, c->t.n[low]));
    c->body[k] = ein__ix_addc(ctx, at, lo * g->d + c0);
    return ein__relaid_dim(c, ein__ix_addc(ctx, i, -lo), hi - lo + 1);
}

// Subscript `k` of `r` in the copy, if its dimensions belong to `group`: batch, low digits of
// windows, channels, low digits of sums, windows; or all where they were.
static bool ein__relaid_group(ein_ctx *ctx, const ein__scope *s, const ein__expr *r, uint32_t k,
                              const ein__digit *g, int group, ein__relaid *c) {
    const ein__index *f = ein__ix_get(ctx, r->ix[k]);
    uint32_t uses = ein__ix_uses(ctx, r->ix[k]), slot = 0;
    int64_t extent = ctx->value[r->val].shape.d[k];
    bool multiple = false, unit = (uses & g->unit) && ein__beside(ctx, f, g->d, &slot, &multiple);
    if (!unit) {
        int mine = g->in_place ? 0 : f->n > 1 ? 4 : uses >> s->nt ? 2 : 0;
        if (mine != group) return true;
        c->body[k] = ein__ix_iter(ctx, c->t.nt, extent);
        ein__ix whole = ein__ix_subst(ctx, r->ix[k], g->whole, (int)(s->nt + s->ns));
        return ein__relaid_dim(c, whole, extent);
    }
    int low = g->in_place ? 0 : slot >= s->nt ? 3 : 1, high = g->in_place ? 0 : 4;
    int64_t digits = s->n[slot] < g->d ? s->n[slot] : g->d;
    if (group == low && ein__relaid_low(c, g->low[slot]) < 0 &&
        !ein__relaid_dim(c, g->low[slot], digits))
        return false;
    return group != high || ein__relaid_high(ctx, r, k, g, slot, c);
}

// Read `r` of the re-laid tensor.
static ein__ex ein__digit_read(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                               const ein__digit *g, int from) {
    ein_ctx *ctx = z->ctx;
    ein__relaid c = {.t.reduce = EIN__R_NONE};
    if (r->bits) return (ein__ex){0};
    for (int group = 0; group < 5; group++)
        for (uint32_t k = 0; k < r->nix; k++)
            if (!ein__relaid_group(ctx, s, r, k, g, group, &c)) return (ein__ex){0};
    c.t.body = ein__ex_read(ctx, (ein__val){r->val}, 0, c.body, (int)r->nix);
    ein__val v = c.t.body.i ? ein__class_of(z, &c.t, "digits", from, "digit re-layout", EIN__INNER)
                            : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, c.index, (int)c.t.nt) : (ein__ex){0};
}

static void ein__rule_digits(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    int64_t tried[8];
    int ntried = 0;
    double alpha;
    if (d.place || d.depth || !ein__two_factors(ctx, s, read, &alpha)) return;
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
            for (uint32_t q = 0; q < f->n; q++) {
                int64_t step = f->t[q].k;
                ein__digit g = {.d = step < 0 ? -step : step};
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
                if (alpha != 1)
                    g.t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), g.t.body);
                if (!(g.unit & ((1u << s->nt) - 1))) {
                    ein__add_def(z, d.cls, &g.t, from, "digit re-layout", d.place);
                    continue;
                }
                ein__val v = ein__class_of(z, &g.t, "phases", from, "digit re-layout", EIN__INNER);
                ein__scope copy = {.reduce = EIN__R_NONE, .nt = s->nt};
                memcpy(copy.n, s->n, s->nt * sizeof *copy.n);
                copy.body = v.i ? ein__ex_read(ctx, v, 0, g.back, (int)g.t.nt) : (ein__ex){0};
                if (copy.body.i) ein__add_def(z, d.cls, &copy, from, "digit re-layout", d.place);
            }
        }
}
