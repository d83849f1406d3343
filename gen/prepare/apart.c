// Rule `apart`: a flattened dimension, i = d * x + y, is split into the two again, V'[x,y] is V[d *
// x + y], where that removes divisions and remainders from the program and adds none. Exporters
// flatten heads and batches, or windows and images, into one dimension in front of an attention and
// split it behind it or for a mask; while such a dimension is read through / and %, neither
// products nor what follows them can be laid out in the order that others want.
//
// Dimensions that iterators connect, V[.., i, ..] = f(W[.., i, ..]), are one group and are split
// together. All else that a group meets (inputs and outputs, sums, reads at other places) stays as
// it is, and no division or remainder may be added there.
//
// A value that is read at a number made of digits, M[c,y,x] = V[4 * c + 2 * (y % 2) + x % 2, y / 2,
// x / 2], as by a pixel shuffle or where patches are put together, can be stored in M's place once
// that dimension is split, and M is a view of it.

enum {
    EIN__APART_TRIES = 4,   // divisors that one group is tried with
    EIN__APART_ROUNDS = 4,  // times that a dimension is taken apart
};

// Dimensions of a group: that of which it is part, or itself, and then what is tried. by[0], while
// there is any, is d.
typedef struct ein__apart_dim {
    int in, n;
    int64_t by[EIN__APART_TRIES];
    bool worse, better, stays;
} ein__apart_dim;

typedef struct ein__apart {
    ein_ctx *ctx;
    ein__val *order;
    int *first;           // by value id: the number of its first dimension; -1: it stays as it is
    ein__apart_dim *dim;  // by number; both stb_ds arrays
    ein__val *now;        // by value id: taken apart; stb_ds array
    bool sums;            // iterators of sums are dimensions too
    bool digits;          // iterators read by digits are taken apart
    bool numbers;         // and what is read at numbers of digits
    bool alone;           // what contractions read stays as it is
    ein__pass *pass;
} ein__apart;

// A value's iterators before and after.
typedef struct ein__apart_slots {
    uint32_t nt, ns;
    bool any;
    int64_t d[EIN__MAX_ITERS], n[EIN__MAX_ITERS];  // d: by old slot, 0: whole; n: by new slot
    ein__ix map[EIN__MAX_ITERS];                   // by old slot: in new ones
} ein__apart_slots;

// What iterator `k` of `v` is part of; none: it stays.
static ein__apart_dim *ein__apart_group(const ein__apart *a, ein__val v, uint32_t k) {
    if ((ptrdiff_t)v.i >= arrlen(a->first) || a->first[v.i] < 0) return NULL;
    if (!a->sums && k >= ein__scope_of(a->ctx, v)->nt) return NULL;
    int i = a->first[v.i] + (int)k;
    while (a->dim[i].in != i) i = a->dim[i].in = a->dim[a->dim[i].in].in;
    return &a->dim[i];
}

static int64_t ein__apart_by(const ein__apart *a, ein__val v, uint32_t k) {
    const ein__apart_dim *g = ein__apart_group(a, v, k);
    return g && g->n ? g->by[0] : 0;
}

// ------------------------------------------------------------------------------------ groups

// Another divisor of group `g`, of dimensions of `extent`.
static void ein__apart_offer(ein__apart_dim *g, int64_t by, int64_t extent) {
    bool known = by == 1 || by == extent || g->n == EIN__APART_TRIES || g->stays;
    for (int i = 0; i < g->n; i++) known |= g->by[i] == by;
    if (!known) g->by[g->n++] = by;
}

// The divisors of digits that `ix` takes from iterators of `v`.
static void ein__apart_digits(ein__apart *a, ein__val v, const ein__scope *s, ein__ix ix) {
    ein_ctx *ctx = a->ctx;
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *atom = ein__atom_get(ctx, f->t[t].atom);
        uint32_t slot;
        int64_t scale, size;
        if (atom->kind != EIN__FLOOR && atom->kind != EIN__MOD) continue;
        ein__apart_digits(a, v, s, (ein__ix){atom->ix});
        if (!ein__read_digit(ctx, s, atom, &slot, &scale, &size)) continue;
        ein__apart_dim *g = ein__apart_group(a, v, slot);
        if (!g) continue;
        ein__apart_offer(g, scale, s->n[slot]);
        ein__apart_offer(g, scale * size, s->n[slot]);
    }
}

// Whether `f`, of a dimension of `extent`, is a number of digits of the iterators of `s`, not all
// of which are iterators: no view is such, unless the dimension is taken apart where `unit[]` has
// it.
static bool ein__is_of_digits(ein_ctx *ctx, const ein__scope *s, ein__ix ix, int64_t extent,
                              int64_t *unit) {
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__digits_read found[EIN__MAX_ITERS];
    ein__ix map[EIN__MAX_ITERS], it = ein__ix_iter(ctx, 0, extent);
    bool digits = false;
    memset(found, 0, sizeof found);
    for (uint32_t i = 0; i < EIN__MAX_ITERS; i++) map[i] = ein__ix_const(ctx, 0);
    for (uint32_t t = 0; t < f->n; t++) {
        digits |= ein__atom_get(ctx, f->t[t].atom)->kind != EIN__ITER;
        unit[t] = f->t[t].k;
    }
    return f->n > 1 && digits && ein__invert_subscript(ctx, s, f, it, extent, found, map);
}

// The divisors that take a number of digits apart at which `e` reads.
static void ein__apart_numbers(ein__apart *a, const ein__scope *s, const ein__expr *e) {
    int64_t unit[EIN__MAX_ITERS];
    for (uint32_t k = 0; k < e->nix; k++) {
        ein__apart_dim *g = ein__apart_group(a, (ein__val){e->val}, k);
        int64_t n = a->ctx->value[e->val].shape.d[k];
        if (!g || !ein__is_of_digits(a->ctx, s, e->ix[k], n, unit)) continue;
        for (uint32_t t = 0; t < ein__ix_get(a->ctx, e->ix[k])->n; t++)
            ein__apart_offer(g, unit[t], n);
    }
}

static void ein__apart_find(ein__apart *a, ein__val v, const ein__scope *s, ein__ex ex) {
    const ein__expr *e = ein__ex_get(a->ctx, ex);
    if (a->numbers && e->op == EIN__X_READ) ein__apart_numbers(a, s, e);
    for (uint32_t i = 0; i < e->nix && a->digits; i++) ein__apart_digits(a, v, s, e->ix[i]);
    for (uint32_t i = 0; i < e->nkid; i++) ein__apart_find(a, v, s, e->kid[i]);
}

// Connects the dimensions of `v` with those that it reads by their iterators.
static void ein__apart_connect(ein__apart *a, ein__val v, const ein__scope *s) {
    const ein__ex *reads = ein__ex_reads(a->ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !(a->alone && s->reduce != EIN__R_NONE); i++) {
        const ein__expr *e = ein__ex_get(a->ctx, reads[i]);
        for (uint32_t k = 0, slot; k < e->nix; k++) {
            ein__apart_dim *of = ein__apart_group(a, (ein__val){e->val}, k), *g;
            if (!of || !ein__ix_is_iter(a->ctx, e->ix[k], &slot)) continue;
            g = ein__apart_group(a, v, slot);
            if (g && a->ctx->value[e->val].shape.d[k] == s->n[slot]) g->in = (int)(of - a->dim);
        }
    }
}

// A sum over a dimension of what stays, such as that of a projection over heads, stays: taken apart
// it is the same product.
static void ein__apart_keep(ein__apart *a, ein__val v, const ein__scope *s) {
    const ein__ex *reads = ein__ex_reads(a->ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(a->ctx, reads[i]);
        for (uint32_t k = 0; k < e->nix; k++)
            for (uint32_t slot = s->nt; slot < s->nt + s->ns; slot++)
                if (ein__ix_uses(a->ctx, e->ix[k]) >> slot & 1 && ein__apart_group(a, v, slot) &&
                    !ein__apart_group(a, (ein__val){e->val}, k))
                    ein__apart_group(a, v, slot)->stays = true;
    }
}

// Numbers what may be taken apart: dimensions of what is computed, but for outputs.
static void ein__apart_begin(ein__apart *a, const ein__val *root, int nroot) {
    ein_ctx *ctx = a->ctx;
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) {
        arrput(a->first, -1);
        arrput(a->now, (ein__val){0});
    }
    for (ptrdiff_t i = 0; i < arrlen(a->order); i++) {
        ein__val v = a->order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        bool stays = !s || ctx->value[v.i].weight_only;
        for (int k = 0; k < nroot; k++) stays |= root[k].i == v.i;
        if (!stays) a->first[v.i] = (int)arrlen(a->dim);
        for (uint32_t k = 0; !stays && k < s->nt + s->ns; k++) {
            ein__apart_dim alone = {.in = (int)arrlen(a->dim)};
            arrput(a->dim, alone);
        }
    }
    for (int step = 0; step < 3; step++)
        for (ptrdiff_t i = 0; i < arrlen(a->order); i++) {
            ein__val v = a->order[i];
            const ein__scope *s = ein__scope_of(ctx, v);
            if (!s || (a->first[v.i] < 0 && step < 2)) continue;
            if (step == 0) ein__apart_connect(a, v, s);
            if (step == 1) ein__apart_keep(a, v, s);
            if (step == 2) ein__apart_find(a, v, s, s->body);
        }
}

// ------------------------------------------------------------------------------------ gains

// Iterators of `v`, of scope `s`; false: there is no room for so many.
static bool ein__apart_slots_of(const ein__apart *a, ein__val v, const ein__scope *s,
                                ein__apart_slots *z) {
    ein_ctx *ctx = a->ctx;
    *z = (ein__apart_slots){.nt = 0};
    for (uint32_t i = 0, at = 0; i < s->nt + s->ns; i++) {
        int64_t d = ein__apart_by(a, v, i);
        if (at + (d > 0) >= EIN__MAX_ITERS) return false;
        z->d[i] = d;
        z->any |= d > 0;
        z->map[i] = ein__ix_const(ctx, 0);
        if (d) {
            z->n[at] = s->n[i] / d;
            z->map[i] = ein__ix_scale(ctx, ein__ix_iter(ctx, at, z->n[at]), d);
            at++;
        }
        z->n[at] = d ? d : s->n[i];
        z->map[i] = ein__ix_add(ctx, z->map[i], ein__ix_iter(ctx, at, z->n[at]));
        if (++at > EIN__MAX_RANK && i < s->nt) return false;
        if (i < s->nt) z->nt = at;
        z->ns = at - z->nt;
    }
    return true;
}

static int ein__count_digits(ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    int n = 0;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        if (a->kind == EIN__FLOOR || a->kind == EIN__MOD)
            n += 1 + ein__count_digits(ctx, (ein__ix){a->ix});
    }
    return n;
}

// Notes for the groups that `ix`, of `v`, meets whether it has more digits or fewer when iterators
// are taken apart and, if `of` is a group, what it reads there.
static void ein__apart_weigh(ein__apart *a, ein__val v, const ein__apart_slots *z, ein__ix ix,
                             ein__apart_dim *of) {
    ein_ctx *ctx = a->ctx;
    uint32_t used = ein__ix_uses(ctx, ix);
    int64_t d = of && of->n ? of->by[0] : 0;
    int before = ein__count_digits(ctx, ix), after = INT32_MAX;
    ein__attempt attempt = ein__try(ctx);
    ein__ix to = ein__ix_subst(ctx, ix, z->map, EIN__MAX_ITERS);
    bool whole = to.i && (!d || ein__ix_get(ctx, to)->q == 1);
    ein__ix part[2] = {to, ein__ix_const(ctx, 0)};
    if (whole && d) part[0] = ein__ix_floordiv(ctx, to, d), part[1] = ein__ix_mod(ctx, to, d);
    if (ein__tried(ctx, attempt) && whole && part[0].i && part[1].i)
        after = ein__count_digits(ctx, part[0]) + ein__count_digits(ctx, part[1]);
    for (int i = -1; i < EIN__MAX_ITERS; i++) {
        ein__apart_dim *g = of;
        if (i >= 0) g = (used >> i & 1) && z->d[i] ? ein__apart_group(a, v, (uint32_t)i) : NULL;
        if (!g || !g->n) continue;
        g->worse |= after > before;
        g->better |= after < before;
    }
}

static void ein__apart_weigh_all(ein__apart *a, ein__val v, const ein__apart_slots *z, ein__ex ex) {
    const ein__expr *e = ein__ex_get(a->ctx, ex);
    bool read = e->op == EIN__X_READ;
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t unit[EIN__MAX_ITERS], n = read ? a->ctx->value[e->val].shape.d[k] : 0;
        ein__apart_dim *of = read ? ein__apart_group(a, (ein__val){e->val}, k) : NULL;
        ein__apart_weigh(a, v, z, e->ix[k], of);
        if (of && of->n && a->numbers &&
            ein__is_of_digits(a->ctx, ein__scope_of(a->ctx, v), e->ix[k], n, unit))
            of->better = true;
    }
    for (uint32_t k = 0; k < e->nkid; k++) ein__apart_weigh_all(a, v, z, e->kid[k]);
}

// Weighs what the program would be; gives whether all groups that are left gain. What does not is
// tried with another divisor, or stays.
static bool ein__apart_settle(ein__apart *a) {
    bool settled = true, worse = false;
    for (ptrdiff_t i = 0; i < arrlen(a->dim); i++) a->dim[i].worse = a->dim[i].better = false;
    for (ptrdiff_t i = 0; i < arrlen(a->order); i++) {
        ein__val v = a->order[i];
        const ein__scope *s = ein__scope_of(a->ctx, v);
        ein__apart_slots z;
        if (!s) continue;
        bool fits = ein__apart_slots_of(a, v, s, &z);
        for (uint32_t k = 0; k < s->nt + s->ns && !fits; k++)
            if (ein__apart_by(a, v, k)) ein__apart_group(a, v, k)->worse = true;
        if (fits) ein__apart_weigh_all(a, v, &z, s->body);
    }
    for (ptrdiff_t i = 0; i < arrlen(a->dim); i++) worse |= a->dim[i].n && a->dim[i].worse;
    for (ptrdiff_t i = 0; i < arrlen(a->dim); i++) {
        ein__apart_dim *g = &a->dim[i];
        if (g->in != i || !g->n || (worse ? !g->worse : g->better)) continue;
        memmove(g->by, g->by + 1, (size_t)--g->n * sizeof *g->by);
        settled = false;
    }
    return settled;
}

// ------------------------------------------------------------------------------------ rewriting

static ein__ex ein__apart_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__apart *a = user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__val old = {e.val};
    ein__ix ix[2 * EIN__MAX_RANK];
    int n = 0;
    double pad = ein__f64_of(e.bits);
    if (!a->now[old.i].i) return ein__ex_read(ctx, a->pass->now[old.i], pad, e.ix, (int)e.nix);
    for (uint32_t k = 0; k < e.nix; k++) {
        int64_t d = ein__apart_by(a, old, k);
        if (d) ix[n++] = ein__ix_floordiv(ctx, e.ix[k], d);
        ix[n++] = d ? ein__ix_mod(ctx, e.ix[k], d) : e.ix[k];
    }
    return ein__ex_read(ctx, a->now[old.i], pad, ix, n);
}

static ein__val ein__rebuild_apart(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__apart *a = z->user;
    const ein__value old = ctx->value[v.i];
    ein__scope s = *ein__scope_of(ctx, v), t;
    ein__apart_slots slots;
    ein__ix back[EIN__MAX_RANK];
    z->self = v;
    a->pass = z;
    bool fits = ein__apart_slots_of(a, v, &s, &slots);
    ein__ex body = slots.any ? ein__ex_subst(ctx, s.body, slots.map, EIN__MAX_ITERS) : s.body;
    if (fits && body.i) body = ein__ex_replace_reads(ctx, body, ein__apart_read, a);
    if (!fits || !body.i) return (ein__val){0};
    if (!slots.any) return ein__with_body(z, v, body);
    t = (ein__scope){.reduce = s.reduce, .nt = slots.nt, .ns = slots.ns, .body = body};
    memcpy(t.n, slots.n, sizeof t.n);
    ein__val w = ein__pass_value(z, old.name, v, old.dtype, &t);
    if (!w.i) return w;
    a->now[v.i] = w;
    for (uint32_t i = 0, n = 0; i < s.nt; i++) {
        ein__ix it = ein__ix_iter(ctx, i, s.n[i]);
        if (slots.d[i]) back[n++] = ein__ix_floordiv(ctx, it, slots.d[i]);
        back[n++] = slots.d[i] ? ein__ix_mod(ctx, it, slots.d[i]) : it;
    }
    return ein__new_map(z, old.name, old.dtype, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, w, 0, back, (int)t.nt));
}

// Whether anything is taken apart; `sums`: anything that sums run over.
static bool ein__apart_any(const ein__apart *a, bool sums) {
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(a->order); i++) {
        const ein__scope *s = ein__scope_of(a->ctx, a->order[i]);
        for (uint32_t k = sums && s ? s->nt : 0; s && k < s->nt + s->ns; k++)
            any |= ein__apart_by(a, a->order[i], k) > 0;
    }
    return any;
}

// What is to be taken apart of the program under `root` next, in `*a`, as `how` has it; whether
// that is anything.
static bool ein__apart_choose(ein_ctx *ctx, const ein__val *root, int nroot, ein__apart how,
                              ein__apart *a) {
    *a = how;
    a->ctx = ctx;
    a->order = ein__live(ctx, root, nroot);
    ein__apart_begin(a, root, nroot);
    while (!ein__apart_settle(a) && !ctx->status) continue;
    return !ctx->status && ein__apart_any(a, false);
}

static void ein__apart_free(ein__apart *a) {
    arrfree(a->order);
    arrfree(a->first);
    arrfree(a->dim);
    arrfree(a->now);
}

// Takes dimensions of the program under `root` apart by what `how` has; `*parts` tells whether
// there were such.
static bool ein__apart_rounds(ein_ctx *ctx, ein__val *root, int nroot, ein__apart how,
                              bool *parts) {
    bool ok = true, any = true;
    for (int round = 0; round < EIN__APART_ROUNDS && ok && any; round++) {
        ein__apart a;
        any = ein__apart_choose(ctx, root, nroot, how, &a);
        *parts |= ein__apart_any(&a, a.sums);
        ok = !ctx->status && (!any || ein__run_pass_for(ctx, root, nroot, ein__rebuild_apart, &a));
        ein__apart_free(&a);
    }
    return ok;
}

// Takes dimensions of the program under `root` apart, as `how` has it; ctx->parts tells whether
// there were such.
static bool ein__take_apart(ein_ctx *ctx, ein__val *root, int nroot, ein__apartness how) {
    ein__apart a = {
        .sums = how == EIN__APART_SUMS, .digits = true, .numbers = how == EIN__APART_NUMBERS};
    return ein__apart_rounds(ctx, root, nroot, a, &ctx->parts);
}

// The same where steps are about to be made of what was derived: of what is read at numbers of
// digits, and for whoever computes it alone. Without ctx->numbering nothing is taken apart, but
// ctx->numbers tells whether there is such.
static bool ein__take_numbers_apart(ein_ctx *ctx, ein__val *root, int nroot) {
    const ein__apart how = {.numbers = true, .alone = true};
    if (ctx->desc.form || !ein__rule_on(ctx, EIN__RULE_APART)) return true;
    if (ctx->numbering) return ein__apart_rounds(ctx, root, nroot, how, &ctx->numbers);
    if (ctx->numbers) return true;
    ein__apart a;
    ctx->numbers = ein__apart_choose(ctx, root, nroot, how, &a);
    ein__apart_free(&a);
    return !ctx->status;
}
