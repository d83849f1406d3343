// Convolutions in the form that a library call needs: filters are transposed at load, and padding
// that no call accepts is written out where that is cheaper than a generated kernel.

// The filter as a dense value in the library's order; its own read when it is that already.
static ein__ex ein__relay_filter(ein__pass *z, const ein__conv_form *f) {
    ein_ctx *ctx = z->ctx;
    int slot[EIN__MAX_ITERS], n = ein__conv_filter_order(f, slot);
    int64_t stride[EIN__MAX_RANK], extent[EIN__MAX_ITERS];
    ein__factor w;
    ein__strides_of(ctx, (ein__val){f->w->val}, stride);
    if (ein__address(ctx, f->w, stride, &w) && !w.offset &&
        ein__dense_in_order(f->s, w.coef, slot, n))
        return ein__ex_of(ctx, f->w);
    if (n > EIN__MAX_RANK) return (ein__ex){0};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int k = 0; k < n; k++) {
        extent[k] = f->s->n[slot[k]];
        map[slot[k]] = ein__ix_iter(ctx, (uint32_t)k, extent[k]);
        back[k] = ein__ix_iter(ctx, (uint32_t)slot[k], extent[k]);
    }
    ein__ex body = ein__ex_subst(ctx, ein__ex_of(ctx, f->w), map, (int)(f->s->nt + f->s->ns));
    const char *name = ein__namef(ctx, "%s.filter", ctx->value[z->self.i].name);
    ein__val v = ein__new_map(z, name, ein__moved_type(ctx, body, false), n, extent, body);
    return v.i ? ein__ex_read(ctx, v, 0, back, n) : (ein__ex){0};
}

// x with its padding written out, so that the window starts at 0 and ends with the data. The window
// along every axis becomes stride * o + dilation * r.
static ein__ex ein__pad_data(ein__pass *z, const ein__conv_form *f) {
    ein_ctx *ctx = z->ctx;
    const ein__conv *c = &f->c;
    int rank = (int)f->x->nix;
    int64_t extent[EIN__MAX_RANK];
    ein__ix from[EIN__MAX_RANK], to[EIN__MAX_RANK];
    for (int k = 0; k < rank; k++) {
        extent[k] = ctx->value[f->x->val].shape.d[k];
        to[k] = f->x->ix[k];
        from[k] = ein__ix_iter(ctx, (uint32_t)k, extent[k]);
    }
    for (int a = 0; a < c->spatial; a++) {
        int k = f->axis[a];
        int64_t last = (c->out[a] - 1) * c->stride[a] + (c->k[a] - 1) * c->dilation[a] - c->pad[a];
        ein__places box = {0, extent[k] - 1};
        ein__rule_relax_operand(ctx, &box, (ein__places){-c->pad[a], last}, true);
        extent[k] = box.hi - box.lo + 1;
        from[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, (uint32_t)k, extent[k]), box.lo);
        to[k] = ein__ix_addc(ctx, to[k], -box.lo);
    }
    ein__ex body = ein__ex_read(ctx, (ein__val){f->x->val}, 0, from, rank);
    const char *name = ein__namef(ctx, "%s.padded", ctx->value[z->self.i].name);
    ein__val v = ein__new_map(z, name, ein__moved_type(ctx, body, false), rank, extent, body);
    return v.i ? ein__ex_read(ctx, v, 0, to, rank) : (ein__ex){0};
}

// A transposed convolution with uneven padding: computed without padding, then cut (and, where
// output padding reaches beyond, filled with 0) by a map.
static ein__val ein__crop_transposed(ein__pass *z, ein__val v, const ein__conv_form *f, ein__ex w) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    ein__scope s = *f->s;
    ein__ix map[EIN__MAX_ITERS], cut[EIN__MAX_RANK];
    ein__shape shape = old.shape;
    for (uint32_t i = 0; i < s.nt + s.ns; i++) map[i] = ein__ix_iter(ctx, i, s.n[i]);
    for (uint32_t i = 0; i < s.nt; i++) cut[i] = map[i];
    for (int a = 0; a < f->c.spatial; a++) {
        if (f->space[a] < 0) return v;  // a single position: left to a kernel
        uint32_t o = (uint32_t)f->space[a];
        s.n[o] = shape.d[o] =
            (f->c.in[a] - 1) * f->c.stride[a] + (f->c.k[a] - 1) * f->c.dilation[a] + 1;
        map[o] = ein__ix_addc(ctx, ein__ix_iter(ctx, o, s.n[o]), -f->c.pad[a]);
        cut[o] = ein__ix_addc(ctx, cut[o], f->c.pad[a]);
    }
    ein__ex product = ein__ex_binary(ctx, EIN__MUL, ein__ex_of(ctx, f->x), w);
    s.body = product.i ? ein__ex_subst(ctx, product, map, (int)(s.nt + s.ns)) : product;
    if (!s.body.i) return (ein__val){0};
    ein__sc sc = ein__sc_make(ctx, &s);
    ein__val full = sc.i ? ein__val_new(ctx, ein__namef(ctx, "%s.full", old.name), EIN__V_SCOPE,
                                        old.tensor, sc, &shape, EIN__F32, old.node)
                         : (ein__val){0};
    if (!full.i) return full;
    return ein__new_map(z, old.name, old.dtype, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, full, 0, cut, old.shape.rank));
}

// What contraction `v` costs, with map `m` behind it that reads it by `read` (or none).
static int64_t ein__cost_as_is(ein_ctx *ctx, ein__val v, ein__val m, ein__ex read) {
    int64_t ps;
    ein__choose(ctx, ein__scope_of(ctx, v), m, read, true, &ps);
    return ps;
}

// Convolution `v`, whose padding no call takes, with its padding written out or cut off by a copy:
// where a call and the copy are cheaper than a kernel that reads or stores what is there, with map
// `m` behind them that reads `v` by `read` (or none).
static ein__val ein__even_padding(ein__pass *z, ein__val v, const ein__conv_form *f, ein__ex w,
                                  ein__val m, ein__ex read) {
    ein_ctx *ctx = z->ctx;
    ein__val even, copy, behind = {0};
    int64_t ps;
    if (f->transposed) {
        even = copy = ein__crop_transposed(z, v, f, w);
        if (!even.i || even.i == v.i) return even;
        ein__val full = {ein__ex_get(ctx, ein__scope_of(ctx, even)->body)->val};
        ps = ein__cost_as_is(ctx, full, behind, (ein__ex){0});
        if (m.i) copy = m;  // which then reads what was not cut
    } else {
        ein__ex x = ein__pad_data(z, f);
        even = ein__with_product(z, v, x, w);
        if (!even.i) return even;
        copy = (ein__val){ein__ex_get(ctx, x)->val};
        ps = ein__cost_as_is(ctx, even, m, read);
    }
    ps = ein__cost_sum(ps, ein__kernel_cost(ctx, copy));
    return ps < ein__cost_as_is(ctx, v, m, read) ? even : v;
}

static ein__val ein__rebuild_convolution(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val old = v;
    bool kept = ein__is_kept(ctx, v);
    z->keep = true;  // derivation may have chosen the copy
    ein__ex body = ein__rebuild_body(z, v), read = {0};
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || !ein__is_contraction(ctx, s) || kept) return v;
    int64_t out[EIN__MAX_RANK];
    ein__conv_form f;
    ein__dense_result(s, out);
    z->self = v;
    if (!ein__find_conv(ctx, s, out, &f)) return v;
    ein__ex w = ein__relay_filter(z, &f);
    if (!w.i) return ctx->status ? (ein__val){0} : v;
    ein__val map = ein__sole_reader(ctx, z->uses, &z->readers, old, &read);
    if (ein__conv_sizes(&f)) {
        // The order that a convolution takes may be the worse one for a product.
        ein__val relaid = ein__with_product(z, v, ein__ex_of(ctx, f.x), w);
        if (!relaid.i) return relaid;
        int64_t as_is = ein__cost_as_is(ctx, v, map, read);
        if (as_is >= ein__cost_as_is(ctx, relaid, map, read)) v = relaid;
    } else if (ein__rule_on(ctx, EIN__RULE_RELAX)) {
        v = ein__even_padding(z, v, &f, w, map, read);
    }
    return v;
}

// The last pass before products are prepared for kernels of our own.
EIN__FN bool ein__prepare_calls(ein_ctx *ctx, ein__val *root, int nroot) {
    if (ctx->desc.libs != EIN_LIBS_ALL) return true;
    return ein__run_pass(ctx, root, nroot, ein__rebuild_convolution);
}
