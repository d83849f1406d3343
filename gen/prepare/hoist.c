// Sub-expressions that need no input, as values of their own, which are made once, at load: of
// weights, and functions of places, as cos(i*j) and pow(0.9, i).

static bool ein__is_sum(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    return e->op == EIN__X_BINARY && e->fn == EIN__ADD;
}

// Adds the weight-only terms of a sum (or the others) up.
static ein__ex ein__sum_terms(ein_ctx *ctx, ein__ex ex, bool weights) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ein__is_sum(ctx, ex))
        return ein__ex_binary(ctx, EIN__ADD, ein__sum_terms(ctx, e->kid[0], weights),
                              ein__sum_terms(ctx, e->kid[1], weights));
    return ein__ex_weight_only(ctx, ex) == weights ? ex : ein__ex_const(ctx, 0);
}

// a + (w + b) + v, with w and v known at load, as (a + b) + (w + v): one constant instead of two.
static ein__ex ein__group_terms(ein_ctx *ctx, ein__ex ex) {
    if (!ein__is_sum(ctx, ex)) return ex;
    return ein__ex_binary(ctx, EIN__ADD, ein__sum_terms(ctx, ex, false),
                          ein__sum_terms(ctx, ex, true));
}

// Whether a place chooses in `ex`, outside any function: kernels look for that, as for masks, and
// leave out what is not chosen.
static bool ein__chooses(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_SELECT || e->op == EIN__X_WHEN) return true;
    bool arithmetic = e->op == EIN__X_BINARY || (e->op == EIN__X_UNARY && e->fn == EIN__NEG);
    for (uint32_t i = 0; i < e->nkid && arithmetic; i++)
        if (ein__chooses(ctx, e->kid[i])) return true;
    return false;
}

// Whether a function of places that is more work than a load is computed in `ex`.
static bool ein__is_function(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ein__is_long(e) && ein__ex_uses(ctx, ex)) return true;
    for (uint32_t i = 0; i < e->nkid; i++)
        if (ein__is_function(ctx, e->kid[i])) return true;
    return false;
}

// Elements of a table of places, how often one is read at least, and of how much work.
enum { EIN__PLACED_MOST = 1 << 24, EIN__PLACED_REUSE = 8, EIN__PLACED_WORK = 1 << 16 };

// Whether `ex`, which needs no input, is rather a table, made at load, than computed in `s`.
static bool ein__is_made_once(ein_ctx *ctx, const ein__scope *s, ein__ex ex) {
    uint32_t uses = ein__ex_uses(ctx, ex);
    int64_t mine = ein__extent_of(s, uses), all = ein__extent_of(s, ~0u);
    int dims = 0;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) dims += uses >> i & 1;
    if (dims > EIN__MAX_RANK) return false;
    if (!ein__ex_get(ctx, ex)->reads)
        return mine <= all / EIN__PLACED_REUSE && mine <= EIN__PLACED_MOST &&
               all >= EIN__PLACED_WORK && !ein__chooses(ctx, ex) && ein__is_function(ctx, ex);
    // A table as large as the result would trade arithmetic for memory traffic.
    return mine <= all / 4 || mine <= 4096;
}

// Replaces maximal sub-expressions of weights and places that compute something by reads of values
// made once.
static ein__ex ein__hoist_weights(ein__pass *z, const ein__scope *s, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (!e->nkid) return ex;
    bool weight_only = ein__ex_weight_only(ctx, ex);
    if (!e->reads && !ein__is_real(ctx, z->self)) return ex;
    if (weight_only && ein__is_made_once(ctx, s, ex)) return ein__hoist(z, s, ex, "const");
    ein__expr copy = *e;
    bool changed = false;
    ein__ex sum = weight_only ? ex : ein__group_terms(ctx, ex);
    if (!sum.i || sum.i != ex.i) return sum.i ? ein__hoist_weights(z, s, sum) : sum;
    for (uint32_t i = 0; i < copy.nkid; i++) {
        ein__ex kid = ein__hoist_weights(z, s, copy.kid[i]);
        if (!kid.i) return kid;
        changed |= kid.i != copy.kid[i].i;
        copy.kid[i] = kid;
    }
    return changed ? ein__ex_make(ctx, &copy) : ex;
}

static ein__val ein__rebuild_hoist(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || ctx->value[v.i].weight_only) return v;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__basis transform;
    if (ein__is_contraction(ctx, s) || ein__match_basis(ctx, s, &transform)) return v;
    z->self = v;
    body = ein__hoist_weights(z, s, s->body);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}
