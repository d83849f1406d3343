// Padded channels: tensor cores load the channels of a pixel 16 bytes at a time, so a convolution
// whose channels do not fill the last load gets as many more as do. Boundary relaxing of a sum
// (EinNet section 4.1): sum(c in 0:C) x[c] w[c] is sum(c in 0:C') x'[c] w'[c], C' > C, with zeros
// in x' and w' from C on. The weights get theirs at load.

// The summation iterator that counts the channels one by one, in subscript `*dim` of the data; -1:
// several do, or groups too.
static int ein__channel_slot(ein_ctx *ctx, const ein__conv_form *f, uint32_t *dim) {
    int slot = -1;
    for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++) {
        if (f->role[i] == EIN__C_GROUP) return -1;
        if (f->role[i] != EIN__C_IN) continue;
        if (slot >= 0) return -1;
        slot = (int)i;
    }
    if (slot < 0 || f->plain[1] != f->plain[0] + 1) return -1;
    *dim = (uint32_t)f->plain[0];
    return ein__ix_is_iter(ctx, f->x->ix[*dim], &(uint32_t){0}) ? slot : -1;
}

// The data with `n` channels, read by iterators of which `map` has the channels' one.
static ein__ex ein__padded_data(ein__deriver *z, const ein__conv_form *f, uint32_t dim, int64_t n,
                                const ein__ix *map, int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    const ein__shape *shape = &ctx->value[f->x->val].shape;
    ein__scope c = {.reduce = EIN__R_NONE, .nt = f->x->nix};
    ein__ix at[EIN__MAX_RANK], back[EIN__MAX_RANK];
    for (uint32_t k = 0; k < f->x->nix; k++) {
        c.n[k] = k == dim ? n : shape->d[k];
        at[k] = ein__ix_iter(ctx, k, c.n[k]);
        back[k] = ein__ix_subst(ctx, f->x->ix[k], map, (int)(f->s->nt + f->s->ns));
    }
    c.body = ein__ex_read(ctx, f->c.x, 0, at, (int)f->x->nix);
    ein__val v =
        c.body.i ? ein__class_of(z, &c, "channels", from, rule, EIN__INNER) : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)f->x->nix) : (ein__ex){0};
}

// The filter in the library's order, with `n` channels at iterator `slot`.
static ein__ex ein__padded_filter(ein__deriver *z, const ein__conv_form *f, int slot, int64_t n,
                                  int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    int order[EIN__MAX_ITERS], count = ein__conv_filter_order(f, order);
    ein__scope c = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK], channel = ein__ix_const(ctx, 0);
    if (count > EIN__MAX_RANK) return (ein__ex){0};
    for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int k = 0; k < count; k++) {
        int64_t extent = order[k] == slot ? n : f->s->n[order[k]];
        map[order[k]] = ein__ix_iter(ctx, c.nt, extent);
        back[c.nt] = ein__ix_iter(ctx, (uint32_t)order[k], extent);
        if (order[k] == slot) channel = map[slot];
        c.n[c.nt++] = extent;
    }
    ein__ex w = ein__ex_subst(ctx, ein__ex_of(ctx, f->w), map, (int)(f->s->nt + f->s->ns));
    c.body = w.i ? ein__ex_when(ctx, channel, f->s->n[slot], false, w) : w;
    ein__val v = c.body.i ? ein__class_of(z, &c, "filter", from, rule, EIN__INNER) : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)c.nt) : (ein__ex){0};
}

static void ein__rule_pad(ein__deriver *z, int from) {
    static const char rule[] = "channels padded with zeros";
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    int64_t out[EIN__MAX_RANK];
    uint32_t dim = 0;
    ein__conv_form f;
    ein__dense_result(s, out);
    if (d.place == EIN__FORMED || !ein__find_conv(ctx, s, out, &f)) return;
    int slot = ein__channel_slot(ctx, &f, &dim);
    int64_t step = ein__channel_step(f.c.math), n = ein__ceil(f.c.c, step) * step;
    if (slot < 0 || n == f.c.c || !ctx->value[f.c.w.i].weight_only) return;
    ein__scope t = *s;
    ein__ix map[EIN__MAX_ITERS];
    t.n[slot] = n;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_iter(ctx, i, t.n[i]);
    ein__ex x = ein__padded_data(z, &f, dim, n, map, from, rule);
    ein__ex w = x.i ? ein__padded_filter(z, &f, slot, n, from, rule) : x;
    t.body = w.i ? ein__ex_binary(ctx, EIN__MUL, x, w) : w;
    if (t.body.i) ein__add_def(z, d.cls, &t, from, rule, EIN__FORMED);
}
