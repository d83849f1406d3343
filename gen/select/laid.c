// Values laid side by side of which some cannot be stored where they belong, as each is stored
// once: one that lies in another concatenation as well, an input, or what a library's call stores
// densely. Those get a copy of their own that lies there, so that the others are stored in place
// and a step moves no more than it must. A copy that need not be made is a view (layout.c).

// Whether piece `p` of a concatenation gets a copy.
static bool ein__may_lie_elsewhere(const ein__pass *z, ein__val p) {
    return !ein__scope_of(z->ctx, p) || z->uses[p.i] > 1;
}

static ein__val ein__rebuild_laid(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__pieces p;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v)), sum = {0};
    v = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!v.i || ctx->value[v.i].weight_only || !ein__is_concat(ctx, v, &p)) return v;
    for (int i = 0; i < p.n; i++) {
        ein__val own = {p.read[i]->val};
        ein__ex part = ein__ex_of(ctx, p.read[i]);
        if (ctx->value[own.i].weight_only) return v;
        if (ein__may_lie_elsewhere(z, own)) {
            own = ein__identity_copy(ctx, own, ein__namef(ctx, "%s.laid", ctx->value[v.i].name));
            if (!own.i) return own;
            part = ein__ex_read(ctx, own, 0, p.read[i]->ix, (int)p.read[i]->nix);
        }
        sum = i ? ein__ex_binary(ctx, EIN__ADD, sum, part) : part;
        if (!sum.i) return (ein__val){0};
    }
    return ein__with_body(z, v, sum);
}

// Gives concatenations copies of what may lie elsewhere.
static bool ein__copy_pieces(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_laid);
}
