// The search: rules applied breadth first to the definitions of one problem, and the pass that
// replaces every contraction of a program by its cheapest derivation.

static void ein__explore(ein__deriver *z) {
    ein__add_def(z, z->problem, ein__scope_of(z->ctx, z->problem), -1, NULL, false);
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !z->ctx->status; i++) {
        if (z->def[i].depth >= EIN__DERIVE_DEPTH) continue;
        for (int r = 0; r < EIN__NRULES; r++) {
            ptrdiff_t before = arrlen(z->def);
            if (z->added[r] >= ein__rules[r].quota) continue;
            ein__rules[r].apply(z, (int)i);
            z->added[r] += (int)(arrlen(z->def) - before);
        }
    }
}

static ein__deriver ein__deriver_of(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    return (ein__deriver){.ctx = ctx,
                          .problem = v,
                          .map = map,
                          .map_read = read,
                          .first = (uint32_t)arrlen(ctx->value)};
}

static void ein__deriver_free(ein__deriver *z) {
    arrfree(z->def);
    arrfree(z->by_scope);
    arrfree(z->cost);
    arrfree(z->best);
}

// The cheapest derivation of contraction `v`, or `v` itself. `map`, `read`: the map that alone
// reads it.
static ein__val ein__derive_value(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    ein__deriver z = ein__deriver_of(ctx, v, map, read);
    ein__realiser r = {.z = &z};
    ein__val result = v;
    ein__attempt attempt = ein__try(ctx);
    ein__explore(&z);
    if (!ctx->status) {
        ein__class_cost(&z, v);
        if (z.best[v.i] > 0) result = ein__realise(&r, v);
    }
    if (!ein__tried(ctx, attempt)) result = v;
    ein__deriver_free(&z);
    arrfree(r.made);
    return result;
}

static ein__val ein__rebuild_derived(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val old = v;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) return v;
    ein__val map = {0};
    ein__ex read = {0};
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++)
        if (z->order[i].i == old.i)
            map = ein__sole_reader(ctx, z->order, z->uses, old, i + 1, &read);
    return ein__derive_value(ctx, v, map, read);
}

EIN__FN bool ein__derive(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_derived);
}
