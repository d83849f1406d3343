// Choice: the cheapest definition of every class, and the values made from it.

static int64_t ein__class_cost(ein__deriver *z, ein__val v);

// A copy whose addresses are those of its source under another shape costs nothing.
static bool ein__is_view_copy(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    ein__ix map[EIN__MAX_ITERS];
    const ein__scope *p = e->op == EIN__X_READ ? ein__scope_of(ctx, (ein__val){e->val}) : NULL;
    return s->reduce == EIN__R_NONE && p && ein__inside(ctx, e) && ein__ex_affine(ctx, s->body) &&
           ein__invert_read(ctx, e, s, p, map);
}

// Bytes that a kernel for the definition moves: every read once, the result once.
static int64_t ein__def_bytes(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    int64_t bytes = ein__bytes_of(ctx, d->cls);
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, d->sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        bytes += ein__bytes_of(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val});
    arrfree(reads);
    return bytes;
}

// Cost of the step that computes a definition, without what it reads. The problem itself carries
// the cost of the map behind it, unless that map is fused.
static int64_t ein__def_step_cost(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, d->sc);
    bool last = d->cls.i == z->problem.i && z->map.i;
    int64_t map = last ? ein__kernel_cost(ctx, z->map) : 0, bytes = ein__def_bytes(z, d), ps;
    if (ctx->value[d->cls.i].weight_only || ein__is_view_copy(ctx, s)) return map;
    if (!ein__is_contraction(ctx, s)) {
        int64_t flop = ein__muldiv(ein__volume(s), ein__ex_size(ctx, s->body), 1);
        return ein__cost_kernel(ctx, flop, bytes);
    }
    ein__choose(ctx, s, last ? z->map : (ein__val){0}, z->map_read, bytes, &ps);
    return ps;
}

static int64_t ein__def_cost(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    int64_t total = ein__def_step_cost(z, d);
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, d->sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        total += ein__class_cost(z, (ein__val){ein__ex_get(ctx, reads[i])->val});
    arrfree(reads);
    return total;
}

// Least cost over a class's definitions; values that are no class of this problem cost nothing.
static int64_t ein__class_cost(ein__deriver *z, ein__val v) {
    while (arrlen(z->cost) <= (ptrdiff_t)v.i) {
        arrput(z->cost, 0);
        arrput(z->best, -1);
    }
    if (z->cost[v.i] == -1) return INT64_MAX / 8;  // a cycle: not this way
    if (z->cost[v.i]) return z->cost[v.i] - 1;
    int64_t least = 0;
    z->cost[v.i] = -1;
    int best = -1;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
        if (z->def[i].cls.i != v.i) continue;
        int64_t c = ein__def_cost(z, &z->def[i]);
        if (best < 0 || c < least) {
            least = c;
            best = (int)i;
        }
    }
    z->cost[v.i] = least + 1;
    z->best[v.i] = best;
    return least;
}

typedef struct ein__realiser {
    ein__deriver *z;
    ein__val *made;
} ein__realiser;

static ein__val ein__realise(ein__realiser *r, ein__val v);

static ein__ex ein__realise_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__realiser *r = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = ein__realise(r, (ein__val){e->val});
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return v.i ? ein__ex_read(ctx, v, pad, e->ix, (int)e->nix) : (ein__ex){0};
}

// What led to a definition, oldest rule first.
static const char *ein__trail(ein__deriver *z, int def) {
    const char *text = "";
    for (; def >= 0 && z->def[def].rule; def = z->def[def].from)
        text = *text ? ein__namef(z->ctx, "%s; %s", z->def[def].rule, text) : z->def[def].rule;
    return text;
}

// The class's value by its cheapest definition.
static ein__val ein__realise(ein__realiser *r, ein__val v) {
    ein__deriver *z = r->z;
    ein_ctx *ctx = z->ctx;
    if ((ptrdiff_t)v.i >= arrlen(z->best) || z->best[v.i] < 0) return v;
    while (arrlen(r->made) <= (ptrdiff_t)v.i) arrput(r->made, (ein__val){0});
    if (r->made[v.i].i) return r->made[v.i];
    const ein__def d = z->def[z->best[v.i]];
    ein__scope s = *ein__sc_get(ctx, d.sc);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__realise_read, r);
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    const ein__value old = ctx->value[v.i];
    ein__val made =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    // What happens at load is told by its last rule alone.
    ctx->value[made.i].why = old.weight_only ? d.rule : ein__trail(z, z->best[v.i]);
    r->made[v.i] = made;
    return made;
}
