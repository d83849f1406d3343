// The search over a program: each distinct problem is derived once (explore.c), and the pass
// replaces every contraction by its cheapest derivation.

static ein__deriver ein__deriver_of(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    return (ein__deriver){.ctx = ctx,
                          .problem = v,
                          .map = map,
                          .map_read = read,
                          .first = (uint32_t)arrlen(ctx->value)};
}

// ------------------------------------------------------------------------------------ problems

// What the choice among a problem's definitions depends on beside the problem is the map behind it:
// its scope, with stand-ins for what it reads, and the type of its result.
typedef struct ein__choice {
    ein__sc map;  // none: no map
    ein__dtype dtype;
    int best;
    int64_t ps;
} ein__choice;

// A contraction up to the names of its operands, for which values of the same shapes stand in.
typedef struct ein__problem {
    ein__sc key;
    ein__val stand_in[EIN__PROBLEM_READS];
    int nstand;
    ein__deriver z;
    ein__choice *choice;  // stb_ds array
    bool counted;         // its distances are in the statistics
} ein__problem;

typedef struct ein__search {
    ein__problem **problem;  // stb_ds arrays
    int *by_key;             // by scope id: number of the problem, from 1
    ein__val *stand_in;
    ein__val *by_scope;  // inner values made, by scope id
} ein__search;

EIN__FN ein__search *ein__search_of(ein_ctx *ctx) {
    if (!ctx->search) ctx->search = EIN__NEW(&ctx->arena, ein__search, 1);
    return ctx->search;
}

EIN__FN void ein__search_free(ein__search *z) {
    if (!z) return;
    for (ptrdiff_t i = 0; i < arrlen(z->problem); i++) {
        ein__deriver_free(&z->problem[i]->z);
        arrfree(z->problem[i]->choice);
    }
    arrfree(z->problem);
    arrfree(z->by_key);
    arrfree(z->stand_in);
    arrfree(z->by_scope);
}

// The stand-in for values like `v` that is none of the `taken` ones.
static ein__val ein__stand_in(ein_ctx *ctx, ein__val v, const ein__val *taken, int ntaken) {
    ein__search *z = ein__search_of(ctx);
    const ein__value like = ctx->value[v.i];
    bool made = like.kind != EIN__V_INPUT || like.made;
    for (ptrdiff_t i = 0; i < arrlen(z->stand_in); i++) {
        const ein__value *p = &ctx->value[z->stand_in[i].i];
        bool fits = p->dtype == like.dtype && p->weight_only == like.weight_only &&
                    p->made == made && p->shape.rank == like.shape.rank;
        for (int k = 0; fits && k < like.shape.rank; k++) fits = p->shape.d[k] == like.shape.d[k];
        for (int k = 0; fits && k < ntaken; k++) fits = taken[k].i != z->stand_in[i].i;
        if (fits) return z->stand_in[i];
    }
    ein__val to =
        ein__val_new(ctx, "operand", EIN__V_INPUT, -1, (ein__sc){0}, &like.shape, like.dtype, -1);
    ctx->value[to.i].weight_only = like.weight_only;
    ctx->value[to.i].made = made;
    arrput(z->stand_in, to);
    return to;
}

// A problem's own operands and what stands in for them.
typedef struct ein__operands {
    ein__val stand_in[EIN__PROBLEM_READS], actual[EIN__PROBLEM_READS];
    int n;
    bool full;  // it reads more
} ein__operands;

static ein__ex ein__bind_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__operands *b = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = {e->val}, to = {0};
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    for (int i = 0; i < b->n; i++)
        if (b->actual[i].i == v.i) to = b->stand_in[i];
    b->full |= !to.i && b->n == EIN__PROBLEM_READS;
    if (b->full) return ex;
    if (!to.i) {
        to = ein__stand_in(ctx, v, b->stand_in, b->n);
        b->actual[b->n] = v;
        b->stand_in[b->n++] = to;
    }
    return ein__ex_read(ctx, to, pad, e->ix, (int)e->nix);
}

// The problem that contraction `v` is, derived when it is new. NULL when it meets a limit.
static ein__problem *ein__problem_of(ein_ctx *ctx, ein__val v, ein__operands *b) {
    ein__search *z = ein__search_of(ctx);
    ein__scope s = *ein__scope_of(ctx, v);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__bind_read, b);
    ein__sc key = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    ctx->stats.problems++;
    if (!key.i || b->full) return NULL;
    while (arrlen(z->by_key) <= (ptrdiff_t)key.i) arrput(z->by_key, 0);
    if (z->by_key[key.i]) return z->problem[z->by_key[key.i] - 1];
    ein__problem *p = EIN__NEW(&ctx->arena, ein__problem, 1);
    ein__val self = ein__val_new(ctx, "", EIN__V_SCOPE, -1, key, &ctx->value[v.i].shape,
                                 ctx->value[v.i].dtype, -1);
    p->key = key;
    p->nstand = b->n;
    memcpy(p->stand_in, b->stand_in, sizeof p->stand_in);
    p->z = ein__deriver_of(ctx, self, (ein__val){0}, (ein__ex){0});
    arrput(z->problem, p);
    z->by_key[key.i] = (int)arrlen(z->problem);
    ein__explore(&p->z);
    return p;
}

// The operands of a map: `self` is what it reads as the problem, values like the others stand in.
typedef struct ein__map_operands {
    ein__val of, self;
    ein__val *actual, *stand_in;  // stb_ds arrays
} ein__map_operands;

static ein__ex ein__bind_map_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__map_operands *b = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = {e->val}, to = v.i == b->of.i ? b->self : (ein__val){0};
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    for (ptrdiff_t i = 0; i < arrlen(b->actual); i++)
        if (b->actual[i].i == v.i) to = b->stand_in[i];
    if (!to.i) {
        to = ein__stand_in(ctx, v, b->stand_in, (int)arrlen(b->stand_in));
        arrput(b->actual, v);
        arrput(b->stand_in, to);
    }
    return ein__ex_read(ctx, to, pad, e->ix, (int)e->nix);
}

// Map `map`, which reads the problem by `read`, up to the names of its operands: what costs ask of
// these is their shape, type and whether they are weights. None when it cannot be written down.
static ein__sc ein__map_key(ein_ctx *ctx, const ein__problem *p, ein__val map, ein__ex read) {
    ein__scope s = *ein__scope_of(ctx, map);
    ein__map_operands b = {.of = {ein__ex_get(ctx, read)->val}, .self = p->z.problem};
    s.body = ein__ex_replace_reads(ctx, s.body, ein__bind_map_read, &b);
    arrfree(b.actual);
    arrfree(b.stand_in);
    return s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
}

// The cheapest definition of the problem when `map`, which reads it by `read`, is all that reads
// it (or none is).
static ein__choice ein__choose_def(ein_ctx *ctx, ein__problem *p, ein__val map, ein__ex read) {
    ein__choice c = {.best = -1};
    if (map.i) {
        c.map = ein__map_key(ctx, p, map, read);
        c.dtype = ctx->value[map.i].dtype;
    }
    bool known = c.map.i || !map.i;
    for (ptrdiff_t i = 0; i < arrlen(p->choice) && known; i++)
        if (p->choice[i].map.i == c.map.i && p->choice[i].dtype == c.dtype) return p->choice[i];
    p->z.map = map;
    p->z.map_read = read;
    if (arrlen(p->z.cost)) p->z.cost[0] = 0;
    c.ps = ein__class_cost(&p->z, p->z.problem);
    c.best = ein__ranked_def(&p->z, p->z.problem,
                             ctx->rank + (ctx->desc.form > 1 ? ctx->desc.form - 1 : 0));
    if (known) arrput(p->choice, c);
    return c;
}

// What was chosen is asked for anew.
EIN__FN void ein__forget_choices(ein_ctx *ctx) {
    ein__search *z = ein__search_of(ctx);
    for (ptrdiff_t i = 0; i < arrlen(z->problem); i++) {
        arrsetlen(z->problem[i]->choice, 0);
        arrsetlen(z->problem[i]->z.cost, 0);
        arrsetlen(z->problem[i]->z.best, 0);
    }
}

// As before, and something has changed that costs of steps depend on.
EIN__FN void ein__forget_costs(ein_ctx *ctx) {
    ein__search *z = ein__search_of(ctx);
    ein__forget_choices(ctx);
    for (ptrdiff_t i = 0; i < arrlen(z->problem); i++)
        for (ptrdiff_t k = 0; k < arrlen(z->problem[i]->z.def); k++)
            z->problem[i]->z.def[k].step_ps = 0;
}

// ------------------------------------------------------------------------------------ the pass

// The cheapest derivation of contraction `v`, or `v` itself. `map`, `read`: the map that alone
// reads it.
static ein__val ein__derive_value(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    ein__operands b = {.n = 0};
    ein__attempt attempt = ein__try(ctx);
    ein__val result = v;
    ctx->stats.searching = true;
    ein__progress(ctx);
    ein__problem *p = ein__problem_of(ctx, v, &b);
    int best = p && !ctx->status ? ein__choose_def(ctx, p, map, read).best : -1;
    if (best > 0) {
        ein__search *z = ein__search_of(ctx);
        ein__realiser r = {.z = &p->z, .nstand = b.n, .self = v, .by_scope = z->by_scope};
        memcpy(r.stand_in, b.stand_in, sizeof r.stand_in);
        memcpy(r.actual, b.actual, sizeof r.actual);
        p->z.best[0] = best;
        result = ein__realise(&r, p->z.problem);
        z->by_scope = r.by_scope;
        arrfree(r.made);
    }
    ctx->stats.searching = false;
    ein__progress(ctx);
    return ein__tried(ctx, attempt) ? result : v;
}

static ein__val ein__rebuild_derived(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val old = v;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) return v;
    if (ein__is_kept(ctx, old)) return v;
    ein__ex read = {0};
    ein__val map = ein__sole_reader(ctx, z->uses, &z->readers, old, &read);
    return ein__derive_value(ctx, v, map, read);
}

// Definitions by distance of all problems derived, where ein_desc.distances asks for them.
EIN__FN void ein__count_problems(ein_ctx *ctx) {
    const ein__search *z = ein__search_of(ctx);
    for (ptrdiff_t i = 0; i < arrlen(z->problem) && ctx->desc.distances; i++) {
        if (!z->problem[i]->counted) ein__count_distances(&z->problem[i]->z);
        z->problem[i]->counted = true;
    }
}

EIN__FN bool ein__derive(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_derived);
}
