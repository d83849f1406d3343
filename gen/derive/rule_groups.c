// A grouped convolution as one dense convolution: the group becomes a summed input channel too, and
// the weights are block-diagonal, x[g] = sum(j) [j == g] x[j]. Many groups are joined a few at a
// time.

// What becomes of each old iterator.
typedef struct ein__joined {
    const ein__conv_form *f;
    int64_t join[EIN__MAX_ITERS];  // groups of this iterator joined into one; 0: it stays
    ein__scope t;                  // the new scope; body last
    ein__ix data[EIN__MAX_ITERS], filter[EIN__MAX_ITERS];  // for the two factors
    ein__ix own[EIN__MAX_ITERS], other[EIN__MAX_ITERS];    // g and j
    ein__ix back[EIN__MAX_RANK];  // of new traversal slot: its form in the old iterators
} ein__joined;

// Which groups are joined: all of them, or of the innermost iterator as many as divide it.
static bool ein__choose_joined(ein__joined *z) {
    const ein__scope *s = z->f->s;
    int64_t groups = 1;
    int last = -1;
    for (uint32_t i = 0; i < s->nt; i++) {
        if (z->f->role[i] != EIN__C_GROUP) continue;
        groups = ein__times(groups, s->n[i]);
        last = (int)i;
    }
    if (last < 0) return false;
    for (uint32_t i = 0; i < s->nt && groups <= EIN__MAX_GROWTH; i++)
        if (z->f->role[i] == EIN__C_GROUP) z->join[i] = s->n[i];
    if (groups <= EIN__MAX_GROWTH) return true;
    for (int64_t e = EIN__MAX_GROWTH; e > 1 && !z->join[last]; e--)
        if (s->n[last] % e == 0) z->join[last] = e;
    return z->join[last] != 0;
}

static bool ein__joined_slot(ein_ctx *ctx, ein__joined *z, int64_t n, bool sum, ein__ix back,
                             ein__ix *iter) {
    if (!ein__new_slot(&z->t, sum, ctx, n, iter)) return false;
    if (!sum) z->back[z->t.nt - 1] = back;
    return true;
}

static bool ein__joined_slots(ein_ctx *ctx, ein__joined *z) {
    const ein__scope *s = z->f->s;
    for (uint32_t i = 0; i < s->nt; i++) {
        ein__ix old = ein__ix_iter(ctx, i, s->n[i]), high = ein__ix_const(ctx, 0);
        int64_t e = z->join[i];
        if (!e) {
            if (!ein__joined_slot(ctx, z, s->n[i], false, old, &z->data[i])) return false;
            z->filter[i] = z->data[i];
            continue;
        }
        if (e < s->n[i] &&
            !ein__joined_slot(ctx, z, s->n[i] / e, false, ein__ix_floordiv(ctx, old, e), &high))
            return false;
        if (!ein__joined_slot(ctx, z, e, false, ein__ix_mod(ctx, old, e), &z->own[i])) return false;
        z->data[i] = ein__ix_scale(ctx, high, e);
        z->filter[i] = ein__ix_add(ctx, z->data[i], z->own[i]);
    }
    for (uint32_t i = 0; i < s->nt; i++) {
        if (!z->join[i]) continue;
        if (!ein__joined_slot(ctx, z, z->join[i], true, (ein__ix){0}, &z->other[i])) return false;
        z->data[i] = ein__ix_add(ctx, z->data[i], z->other[i]);
    }
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!ein__joined_slot(ctx, z, s->n[i], true, (ein__ix){0}, &z->data[i])) return false;
        z->filter[i] = z->data[i];
    }
    z->t.reduce = EIN__R_SUM;
    return true;
}

// The block-diagonal filter: its dimensions are the new iterators that it uses, in their order.
static ein__ex ein__joined_filter(ein__deriver *d, const ein__joined *z, int from) {
    ein_ctx *ctx = d->ctx;
    ein__scope k = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    ein__ex w =
        ein__ex_subst(ctx, ein__ex_of(ctx, z->f->w), z->filter, (int)(z->f->s->nt + z->f->s->ns));
    for (uint32_t i = 0; w.i && i < z->f->s->nt; i++)
        if (z->join[i])
            w = ein__ex_when(ctx, ein__ix_sub(ctx, z->other[i], z->own[i]), 1, false, w);
    if (!w.i || !ein__used_dims(ctx, &z->t, ein__ex_uses(ctx, w), &k, map, back))
        return (ein__ex){0};
    k.body = ein__ex_subst(ctx, w, map, (int)(z->t.nt + z->t.ns));
    ein__val v = k.body.i
                     ? ein__class_of(d, &k, "dense", from, "block-diagonal weights", EIN__INNER)
                     : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)k.nt) : (ein__ex){0};
}

static void ein__rule_groups(ein__deriver *z, int from) {
    static const char rule[] = "groups joined, zeros between them in the weights";
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    int64_t out[EIN__MAX_RANK];
    ein__conv_form f;
    ein__dense_result(s, out);
    if (!ein__may_split_taps(z, &d) || !ein__find_conv(ctx, s, out, &f)) return;
    ein__joined j = {.f = &f};
    if (!ctx->value[f.c.w.i].weight_only || !ein__choose_joined(&j)) return;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) j.data[i] = j.filter[i] = ein__ix_const(ctx, 0);
    if (!ein__joined_slots(ctx, &j)) return;
    ein__ex x = ein__ex_subst(ctx, ein__ex_of(ctx, f.x), j.data, (int)(s->nt + s->ns));
    ein__ex w = ein__joined_filter(z, &j, from);
    j.t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
    if (!j.t.body.i) return;
    if (j.t.nt == s->nt) {
        ein__add_def(z, d.cls, &j.t, from, rule, EIN__INNER);
        return;
    }
    ein__val v = ein__class_of(z, &j.t, "joined", from, rule, EIN__INNER);
    ein__scope copy = {.reduce = EIN__R_NONE, .nt = s->nt};
    memcpy(copy.n, s->n, s->nt * sizeof *copy.n);
    copy.body = v.i ? ein__ex_read(ctx, v, 0, j.back, (int)j.t.nt) : (ein__ex){0};
    if (copy.body.i) ein__add_def(z, d.cls, &copy, from, rule, d.place);
}
