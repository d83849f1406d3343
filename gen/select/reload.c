// Maps that only move stored elements, such as a channel shuffle, rolled windows or a padded input,
// and that several values read: each product that reads one gets a copy of the map of its own,
// which its loads may compute (prologue.c). The map itself, if others still need it, is then no
// longer between the product and its operands, and its launch may be shared.

// Whether `ex` is one element of what it reads, or nothing: reads of which one alone is no padding
// are added up where values are laid side by side in another way than one behind the other.
static bool ein__only_moves(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ) return true;
    if (e->op == EIN__X_WHEN) return ein__only_moves(ctx, e->kid[0]);
    if (e->op != EIN__X_BINARY || e->fn != EIN__ADD) return false;
    for (int k = 0; k < 2; k++) {
        const ein__expr *part = ein__ex_get(ctx, e->kid[k]);
        if (part->op == EIN__X_READ && !ein__read_is_padded(ctx, part)) return false;
        if (!ein__only_moves(ctx, e->kid[k])) return false;
    }
    return true;
}

// Whether product `v` may load by `read` what others read too.
static bool ein__may_reload(ein__pass *z, ein__val v, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    ein__val p = {read->val};
    return ein__is_map(ctx, p) && !ctx->value[p.i].weight_only && z->uses[p.i] > 1 &&
           !ein__copy_of(ctx, p) && !ein__joins(ctx, p) && !ein__keeps_fp32(ctx, v) &&
           ein__only_moves(ctx, ein__scope_of(ctx, p)->body) && ein__load_of(ctx, read, p).i;
}

static ein__val ein__rebuild_reload(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read[2];
    ein__ex factor[2];
    double alpha;
    bool any = false;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    v = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!v.i || ctx->value[v.i].weight_only || ein__is_kept(ctx, v)) return v;
    const ein__scope s = *ein__scope_of(ctx, v);
    if (!ein__is_contraction(ctx, &s) || !ein__two_factors(ctx, &s, read, &alpha)) return v;
    const ein__expr copy[2] = {*read[0], *read[1]};
    for (int k = 0; k < 2; k++) {
        const ein__value p = ctx->value[copy[k].val];
        factor[k] = ein__ex_of(ctx, &copy[k]);
        if (!ein__may_reload(z, v, &copy[k])) continue;
        ein__val own = ein__val_new(ctx, ein__namef(ctx, "%s.again", p.name), EIN__V_SCOPE,
                                    p.tensor, p.scope, &p.shape, p.dtype, p.node);
        factor[k] = ein__ex_read(ctx, own, ein__f64_of(copy[k].bits), copy[k].ix, (int)copy[k].nix);
        any = true;
    }
    if (!any) return v;
    ctx->reloads = true;
    body = ein__times_number(ctx, alpha, factor[0], factor[1]);
    return ctx->reloading && body.i ? ein__with_body(z, v, body) : v;
}

// Gives products copies of what they may load; ctx->reloads tells whether there is such.
static bool ein__reload_maps(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_reload);
}
