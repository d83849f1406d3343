// Converging derivation: where only the form of an operand keeps a definition from being a library
// call, the operand is copied to a tensor that has the form (EinNet section 5.2).

// Read `r` written out as a tensor whose dimensions are the iterators it uses: group iterators
// first, the summation last (or first for the second factor). None when that is no gain or grows
// too much.
static ein__ex ein__written_out(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                                const ein__expr *other, int from) {
    ein_ctx *ctx = z->ctx;
    uint32_t mine = ein__read_uses(ctx, r), theirs = ein__read_uses(ctx, other);
    // What was written out once is in the right order already.
    if (r->val >= z->first && ein__copy_of(ctx, (ein__val){r->val})) return (ein__ex){0};
    bool weight = ctx->value[r->val].weight_only;
    int64_t volume = ein__extent_of(s, mine), had = ein__elements(&ctx->value[r->val].shape);
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
    if (!t.body.i || ein__reads_in_place(ctx, ein__ex_get(ctx, t.body), &t)) return (ein__ex){0};
    ein__val v =
        ein__class_of(z, &t, weight ? "relaid" : "columns", from, "operand re-laid", EIN__INNER);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// Converging derivation: what keeps a contraction from being a GEMM is the address of an operand,
// so that operand is written out (im2col is this, applied to a convolution's data).
static void ein__rule_match_gemm(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    ein__gemm g;
    bool free = d.cls.i != z->problem.i;
    if (!ein__may_converge(z, from, EIN__TO_GEMM) || !ein__two_factors(ctx, s, read, &alpha))
        return;
    ein__ex out[2] = {{0}, {0}};
    for (int which = 1; which < 4; which++) {
        ein__ex x[2];
        bool made = true;
        for (int k = 0; k < 2; k++) {
            if (which == 1 << k) out[k] = ein__written_out(z, s, read[k], read[1 - k], from);
            x[k] = which >> k & 1 ? out[k] : ein__ex_of(ctx, read[k]);
            made = made && x[k].i;
        }
        if (!made) continue;
        ein__scope t = *s;
        t.body = ein__ex_binary(ctx, EIN__MUL, x[0], x[1]);
        if (alpha != 1) t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t.body);
        if (!t.body.i || !ein__best_gemm(ctx, &t, free, &g, NULL)) continue;
        ein__add_def(z, d.cls, &t, from, "operand re-laid", d.place);
    }
}

// ------------------------------------------------------------------------------------ convolution

// A contraction put into the order that a convolution has: [batch, group, out, axes] with the sums
// [in, taps]. `x` is the data, `w` the filter.
typedef struct ein__ordered {
    const ein__scope *s;
    ein__ex x, w;
    uint32_t flip;                // sums that run backwards in a window
    int axis[3], naxis;           // dimensions of x
    int slot[EIN__MAX_ITERS], n;  // old slots in the new order
    int end[6];                   // of batch, group, out, axes, in, taps in `slot`
    ein__scope t;                 // the new scope; body last
    ein__ix map[EIN__MAX_ITERS];  // by old slot
} ein__ordered;

static const char ein__in_conv_order[] = "dimensions ordered for matching";

// Whether dimension `dim` of read `x` can be an axis: a * o [+ b * r] + c with o in no other
// operand, r summed, and neither in another dimension. `*mixed`: it has both.
static bool ein__can_be_axis(ein_ctx *ctx, const ein__conv_form *f, int dim, bool *mixed,
                             uint32_t *flip) {
    const ein__index *ix = ein__ix_get(ctx, f->x->ix[dim]);
    uint32_t uses = ein__ix_uses(ctx, f->x->ix[dim]);
    int space = 0, taps = 0;
    if (ix->q != 1 || !ix->n) return false;
    for (uint32_t k = 0; k < f->x->nix; k++)
        if ((int)k != dim && (ein__ix_uses(ctx, f->x->ix[k]) & uses)) return false;
    for (uint32_t i = 0; i < ix->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, ix->t[i].atom);
        if (a->kind != EIN__ITER) return false;
        if (f->role[a->slot] == EIN__C_BATCH && ix->t[i].k > 0) space++;
        else if (f->role[a->slot] == EIN__C_IN) taps++;
        else return false;
        if (f->role[a->slot] == EIN__C_IN && ix->t[i].k < 0) *flip |= 1u << a->slot;
    }
    *mixed = taps == 1;
    return space == 1 && taps <= 1;
}

// The axes: every window; where windows are few, also the last dimensions of x that a batch could
// have, so that images stay images and matrices get an axis.
static bool ein__find_axes(ein_ctx *ctx, const ein__conv_form *f, ein__ordered *z) {
    bool window[EIN__MAX_RANK] = {false}, plain[EIN__MAX_RANK] = {false};
    int rank = (int)f->x->nix, nwindow = 0, nplain = 0;
    bool unit = false;
    for (int k = 0; k < rank; k++) {
        bool mixed = false;
        uint32_t flip = 0;
        unit |= !ein__ix_get(ctx, f->x->ix[k])->n;
        if (!ein__can_be_axis(ctx, f, k, &mixed, &flip)) continue;
        (mixed ? window : plain)[k] = true;
        nwindow += mixed;
        nplain += !mixed;
        if (mixed) z->flip |= flip;
    }
    int more = nwindow < 2 ? 2 - nwindow : 0, spare = unit || nwindow + nplain < 2 ? 0 : 1;
    if (more > nplain - spare) more = nplain - spare;
    for (int k = rank; k-- > 0 && more > 0;)
        if (plain[k]) {
            window[k] = true;
            more--;
        }
    z->naxis = 0;
    for (int k = 0; k < rank; k++) {
        if (!window[k]) continue;
        if (z->naxis == 3) return false;
        z->axis[z->naxis++] = k;
    }
    return z->naxis > 0;
}

// Appends the iterators of one role that stand in dimension `dim` of x, outermost first.
static void ein__append_slots(ein_ctx *ctx, const ein__conv_form *f, int dim, ein__crole role,
                              ein__ordered *z) {
    uint32_t uses = ein__ix_uses(ctx, f->x->ix[dim]);
    int first = z->n;
    for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++) {
        bool known = false;
        for (int k = 0; k < z->n; k++) known |= z->slot[k] == (int)i;
        if (known || !(uses >> i & 1) || f->role[i] != role) continue;
        int at = z->n++;
        int64_t step = ein__ix_coef(ctx, f->x->ix[dim], i);
        for (; at > first; at--) {
            if (ein__ix_coef(ctx, f->x->ix[dim], (uint32_t)z->slot[at - 1]) >= step) break;
            z->slot[at] = z->slot[at - 1];
        }
        z->slot[at] = (int)i;
    }
}

static void ein__order_slots(ein_ctx *ctx, const ein__conv_form *f, ein__ordered *z) {
    static const ein__crole role[] = {EIN__C_BATCH, EIN__C_GROUP, EIN__C_OUT,
                                      EIN__C_BATCH, EIN__C_IN,    EIN__C_IN};
    z->n = 0;
    for (int part = 0; part < 6; part++) {
        bool axes = part == 3 || part == 5;
        for (int k = 0; k < (int)f->x->nix && part != 2; k++) {
            bool axis = false;
            for (int a = 0; a < z->naxis; a++) axis |= z->axis[a] == k;
            if (axis == axes) ein__append_slots(ctx, f, k, role[part], z);
        }
        for (uint32_t i = 0; part == 2 && i < f->s->nt; i++)
            if (f->role[i] == EIN__C_OUT) z->slot[z->n++] = (int)i;
        z->end[part] = z->n;
    }
}

// The scope in the new order, and the two reads in it; windows that run backwards are turned
// around.
static bool ein__permute_scope(ein_ctx *ctx, const ein__conv_form *f, ein__ordered *z) {
    const ein__scope *s = f->s;
    z->t = (ein__scope){.reduce = s->reduce};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) z->map[i] = ein__ix_const(ctx, 0);
    for (int k = 0; k < z->n; k++) {
        uint32_t i = (uint32_t)z->slot[k];
        ein__ix iter = ein__ix_iter(ctx, (uint32_t)k, s->n[i]);
        bool turn = z->flip >> i & 1;
        z->t.n[k] = s->n[i];
        z->map[i] = turn ? ein__ix_addc(ctx, ein__ix_scale(ctx, iter, -1), s->n[i] - 1) : iter;
        if (i < s->nt) z->t.nt++;
        else z->t.ns++;
    }
    if (!z->t.ns) return false;
    z->x = ein__ex_subst(ctx, ein__ex_of(ctx, f->x), z->map, (int)(s->nt + s->ns));
    z->w = ein__ex_subst(ctx, ein__ex_of(ctx, f->w), z->map, (int)(s->nt + s->ns));
    return z->x.i && z->w.i && ein__ex_get(ctx, z->x)->op == EIN__X_READ &&
           ein__ex_get(ctx, z->w)->op == EIN__X_READ;
}

// A read written out with the iterators of `slot` as its dimensions, those of several lists.
static bool ein__copy_slots(ein_ctx *ctx, const ein__scope *t, int from, int to, ein__scope *c,
                            ein__ix *map, ein__ix *back) {
    for (int k = from; k < to; k++) {
        if (c->nt == EIN__MAX_RANK) return false;
        map[k] = ein__ix_iter(ctx, c->nt, t->n[k]);
        back[c->nt] = ein__ix_iter(ctx, (uint32_t)k, t->n[k]);
        c->n[c->nt++] = t->n[k];
    }
    return true;
}

static bool ein__copy_unit(ein_ctx *ctx, ein__scope *c, ein__ix *back) {
    if (c->nt == EIN__MAX_RANK) return false;
    back[c->nt] = ein__ix_const(ctx, 0);
    c->n[c->nt++] = 1;
    return true;
}

// The data as [batch, group, in, axes]. An axis is the dimension it was, or with `pad` just what
// its window passes over.
static ein__ex ein__conv_data(ein__deriver *d, const ein__ordered *z, bool pad, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__expr *x = ein__ex_get(ctx, z->x);
    const ein__value *v = &ctx->value[x->val];
    ein__scope c = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK], ix[EIN__MAX_RANK];
    for (int k = 0; k < z->n; k++) map[k] = ein__ix_const(ctx, 0);
    if (!ein__copy_slots(ctx, &z->t, 0, z->end[0], &c, map, back)) return (ein__ex){0};
    if (!c.nt && !ein__copy_unit(ctx, &c, back)) return (ein__ex){0};
    uint32_t batch = c.nt;
    if (!ein__copy_slots(ctx, &z->t, z->end[0], z->end[1], &c, map, back) ||
        !ein__copy_slots(ctx, &z->t, z->end[3], z->end[4], &c, map, back) ||
        (c.nt == batch && !ein__copy_unit(ctx, &c, back)))
        return (ein__ex){0};
    for (uint32_t k = 0; k < x->nix; k++) {
        bool axis = false;
        for (int a = 0; a < z->naxis; a++) axis |= z->axis[a] == (int)k;
        if (!axis) {
            ix[k] = ein__ix_subst(ctx, x->ix[k], map, z->n);
            continue;
        }
        const ein__index *f = ein__ix_get(ctx, x->ix[k]);
        if (c.nt == EIN__MAX_RANK) return (ein__ex){0};
        int64_t lo = pad ? f->lo : 0, n = pad ? f->hi - f->lo + 1 : v->shape.d[k];
        ix[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, c.nt, n), lo);
        back[c.nt] = ein__ix_addc(ctx, x->ix[k], -lo);
        c.n[c.nt++] = n;
    }
    if (!v->weight_only &&
        ein__extent_of(&c, (1u << c.nt) - 1) > ein__elements(&v->shape) * EIN__MAX_GROWTH)
        return (ein__ex){0};
    c.body = ein__ex_read(ctx, (ein__val){x->val}, 0, ix, (int)x->nix);
    ein__val made = c.body.i ? ein__class_of(d, &c, "data", from, "operand re-laid", EIN__INNER)
                             : (ein__val){0};
    return made.i ? ein__ex_read(ctx, made, 0, back, (int)c.nt) : (ein__ex){0};
}

// The filter as [group, out, in, taps]. Weights need it only when they are read outside: they are
// re-laid at load anyway.
static ein__ex ein__conv_weight(ein__deriver *d, const ein__ordered *z, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__expr *w = ein__ex_get(ctx, z->w);
    const ein__value *v = &ctx->value[w->val];
    int64_t stride[EIN__MAX_RANK];
    int slot[EIN__MAX_ITERS], n = 0;
    ein__factor f;
    for (int k = z->end[0]; k < z->n; k++)
        if (k < z->end[2] || k >= z->end[3]) slot[n++] = k;
    ein__dense_strides(&v->shape, stride);
    if (ein__inside(ctx, w) && (v->weight_only || (ein__address(ctx, w, stride, &f) && !f.offset &&
                                                   ein__dense_in_order(&z->t, f.coef, slot, n))))
        return z->w;
    ein__scope c = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (int k = 0; k < z->n; k++) map[k] = ein__ix_const(ctx, 0);
    if (!ein__copy_slots(ctx, &z->t, z->end[0], z->end[2], &c, map, back) ||
        !ein__copy_slots(ctx, &z->t, z->end[3], z->end[5], &c, map, back))
        return (ein__ex){0};
    c.body = ein__ex_subst(ctx, z->w, map, z->n);
    ein__val made = c.body.i ? ein__class_of(d, &c, "filter", from, "operand re-laid", EIN__INNER)
                             : (ein__val){0};
    return made.i ? ein__ex_read(ctx, made, 0, back, (int)c.nt) : (ein__ex){0};
}

// Adds what the ordered scope is to the definition's class: itself, or a copy of it.
static void ein__add_ordered(ein__deriver *d, const ein__ordered *z, double alpha, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__def def = d->def[from];
    const ein__scope *s = ein__sc_get(ctx, def.sc);
    ein__ix ix[EIN__MAX_RANK];
    bool same = alpha == 1 && z->t.nt == s->nt;
    for (uint32_t k = 0; k < z->t.nt; k++) {
        same &= z->slot[k] == (int)k;
        ix[k] = ein__ix_iter(ctx, (uint32_t)z->slot[k], s->n[z->slot[k]]);
    }
    if (same) {
        ein__add_def(d, def.cls, &z->t, from, ein__in_conv_order, def.place);
        return;
    }
    ein__val v = ein__class_of(d, &z->t, "conv", from, ein__in_conv_order, EIN__FORMED);
    ein__scope copy = {.reduce = EIN__R_NONE, .nt = s->nt};
    memcpy(copy.n, s->n, s->nt * sizeof *copy.n);
    copy.body = v.i ? ein__ex_read(ctx, v, 0, ix, (int)z->t.nt) : (ein__ex){0};
    if (copy.body.i && alpha != 1)
        copy.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), copy.body);
    if (copy.body.i) ein__add_def(d, def.cls, &copy, from, ein__in_conv_order, def.place);
}

// One choice of data and filter. False: it gives no convolution.
static bool ein__try_conv(ein__deriver *d, const ein__conv_form *f, double alpha, int from) {
    ein_ctx *ctx = d->ctx;
    ein__ordered z = {.s = f->s};
    if (!ein__find_axes(ctx, f, &z)) return false;
    ein__order_slots(ctx, f, &z);
    if (!ein__permute_scope(ctx, f, &z)) return false;
    ein__ex w = ein__conv_weight(d, &z, from);
    if (!w.i) return false;
    for (int way = 0; way < 3; way++) {
        ein__ex x = way ? ein__conv_data(d, &z, way == 2, from) : z.x;
        z.t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
        if (!z.t.body.i || !ein__is_conv(ctx, &z.t)) continue;
        ein__add_ordered(d, &z, alpha, from);
        return true;
    }
    return false;
}

// Subscripts of a read that have both a traversal iterator and a sum.
static int ein__count_windows(ein_ctx *ctx, const ein__scope *s, const ein__expr *read) {
    uint32_t traversal = (1u << s->nt) - 1;
    int n = 0;
    for (uint32_t k = 0; k < read->nix; k++) {
        uint32_t uses = ein__ix_uses(ctx, read->ix[k]);
        n += (uses & traversal) && (uses & ~traversal);
    }
    return n;
}

// Converging derivation: what keeps a contraction from being a convolution is the order of
// dimensions of its data, filter or result, so those are written in the order that it has.
static void ein__rule_match_conv(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (!ein__may_converge(z, from, EIN__TO_CONV) || !ein__two_factors(ctx, s, read, &alpha))
        return;
    for (int k = 0; k < 2; k++)
        if (read[k]->val >= z->first && ein__copy_of(ctx, (ein__val){read[k]->val})) return;
    // The factor with more windows is the data.
    int first = ein__count_windows(ctx, s, read[1]) > ein__count_windows(ctx, s, read[0]);
    for (int k = 0; k < 2; k++) {
        ein__conv_form f = {.s = s, .x = read[first ^ k], .w = read[first ^ k ^ 1]};
        if (ctx->value[f.x->val].weight_only && !ctx->value[f.w->val].weight_only) continue;
        if (ein__conv_roles(ctx, &f) && ein__try_conv(z, &f, alpha, from)) return;
    }
}
