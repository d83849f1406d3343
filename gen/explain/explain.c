// What the derivation found, for people and for other programs: every definition of a contraction
// with its steps, the rules that led to it and its cost.

// ------------------------------------------------------------------------------------ candidates

typedef struct ein__candidate {
    int def;         // of the problem
    ein__val other;  // none, or a class it reads that is taken by definition `by`
    int by;
    int64_t ps;
} ein__candidate;

// Whether class `v` is needed to compute definition `def`, everything by its cheapest definition.
static bool ein__def_needs(ein__deriver *z, int def, ein__val v) {
    bool needs = false;
    const ein__ex *reads = ein__ex_reads(z->ctx, ein__sc_get(z->ctx, z->def[def].sc)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !needs; i++) {
        ein__val read = {ein__ex_get(z->ctx, reads[i])->val};
        int best = ein__best_def(z, read);
        needs = read.i == v.i || (best >= 0 && ein__def_needs(z, best, v));
    }
    return needs;
}

static void ein__add_candidate(ein__candidate **list, ein__candidate c) {
    ptrdiff_t at = arrlen(*list);
    if (c.ps >= EIN__NO_WAY) return;
    while (at > 0 && (*list)[at - 1].ps > c.ps) at--;
    arrins(*list, at, c);
}

// Definition `def` of the problem with everything it reads at its cheapest, and once for every
// other definition of a class that it reads.
static void ein__add_candidates(ein__deriver *z, int def, ein__candidate **list) {
    ein_ctx *ctx = z->ctx;
    int64_t ps = ein__def_cost(z, &z->def[def], EIN__NO_WAY);
    ein__add_candidate(list, (ein__candidate){.def = def, .ps = ps});
    const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, z->def[def].sc)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && ps < EIN__NO_WAY; i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        int best = ein__best_def(z, v);
        bool again = false;
        for (ptrdiff_t k = 0; k < i; k++) again |= ein__ex_get(ctx, reads[k])->val == v.i;
        if (best < 0 || again || v.i == z->problem.i) continue;
        for (int k = 0; k < (int)arrlen(z->def); k++) {
            if (z->def[k].cls.i != v.i || k == best || ein__def_needs(z, k, v)) continue;
            int64_t other = ps - ein__class_cost(z, v) + ein__def_cost(z, &z->def[k], EIN__NO_WAY);
            ein__add_candidate(list, (ein__candidate){def, v, k, other});
        }
    }
}

// Classes of one name get numbers, so that the equations of a candidate can stand in one model.
static void ein__number_classes(ein__deriver *z) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, z->problem);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 1; i < arrlen(z->cls); i++) {
        const char *plain = ctx->value[z->cls[i].i].name, *name = plain;
        bool taken = true;
        for (int n = 2; taken; n++) {
            taken = false;
            for (ptrdiff_t k = 0; k < i; k++) taken |= !strcmp(ctx->value[z->cls[k].i].name, name);
            for (ptrdiff_t k = 0; k < arrlen(reads); k++)
                taken |= !strcmp(ctx->value[ein__ex_get(ctx, reads[k])->val].name, name);
            if (taken) name = ein__namef(ctx, "%s.%d", plain, n);
        }
        ctx->value[z->cls[i].i].name = name;
    }
}

// Explores the problem and lists its candidates, cheapest first, in the order found where costs are
// equal. A candidate's id is its place in this list. `*chosen`: the definition that the plan has,
// which is not the cheapest one where the plan is cheaper as a whole without a rule.
static ein__candidate *ein__candidates_of(ein__deriver *z, int *chosen) {
    ein__candidate *list = NULL;
    uint64_t without = z->ctx->approach.without;
    ein__explore(z);
    ein__number_classes(z);
    if (!z->ctx->status) ein__class_cost(z, z->problem);
    *chosen = ein__best_def(z, z->problem);
    if (without && !z->ctx->status) {
        z->ctx->approach.without = 0;
        arrsetlen(z->cost, 0);
        arrsetlen(z->best, 0);
        ein__class_cost(z, z->problem);
    }
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !z->ctx->status; i++)
        if (z->def[i].cls.i == z->problem.i) ein__add_candidates(z, (int)i, &list);
    z->ctx->approach.without = without;
    return list;
}

// ------------------------------------------------------------------------------------ printing

typedef struct ein__role {
    bool chosen, runner_up, given;  // given: the definition that the model has
} ein__role;

static void ein__put_candidate(ein__explainer *x, const ein__candidate *c, int id, ein__role role) {
    static const char *const no_yes[] = {"false", "true"};
    for (ptrdiff_t i = 0; i < arrlen(x->listed); i++) x->listed[i] = false;
    x->nstep = 0;
    x->other = c->other;
    x->by = c->by;
    if (x->json) {
        ein__putf(x->out,
                  "%s\n      {\"id\": %d, \"ps\": %lld, \"chosen\": %s, \"runner_up\": %s, "
                  "\"given\": %s, \"steps\": [",
                  id ? "," : "", id, (long long)c->ps, no_yes[role.chosen], no_yes[role.runner_up],
                  no_yes[role.given]);
        ein__put_steps_of(x, c->def);
        ein__put(x->out, "]}");
        return;
    }
    ein__putf(x->out, "  candidate %d%s%s%s:", id,
              !role.chosen ? ""
              : id         ? ", chosen (the plan as a whole is cheaper so)"
                           : ", chosen",
              role.runner_up ? ", runner-up" : "", role.given ? ", as given" : "");
    ein__put_us(x->out, c->ps);
    ein__put(x->out, "\n");
    ein__put_steps_of(x, c->def);
}

// A contraction of the model, and the map that alone reads it (or none).
typedef struct ein__contraction {
    ein__val v, map;
    ein__ex read;
} ein__contraction;

// All candidates, or the chosen one, the next best and the one that the model has.
static void ein__explain_value(ein_ctx *ctx, const ein__contraction *c, bool all, bool json,
                               ein__buf *out) {
    ein__deriver z = ein__deriver_of(ctx, c->v, c->map, c->read);
    int chosen;
    ein__candidate *list = ein__candidates_of(&z, &chosen);
    int64_t *so_far = ctx->status ? NULL : ein__costs_so_far(&z);
    ein__explainer x = {.ctx = ctx, .z = &z, .out = out, .json = json, .so_far = so_far};
    bool second = false;
    for (ptrdiff_t i = 0; i < arrlen(list) && !ctx->status; i++) {
        ein__role role = {.chosen = list[i].def == chosen && !list[i].other.i,
                          .given = list[i].def == 0 && !list[i].other.i};
        role.runner_up = !role.chosen && !second;
        second |= role.runner_up;
        if (all || role.chosen || role.runner_up || role.given)
            ein__put_candidate(&x, &list[i], (int)i, role);
    }
    arrfree(list);
    arrfree(so_far);
    arrfree(x.listed);
    ein__deriver_free(&z);
}

// Whether the value is called `name`, or the block is that it belongs to.
static bool ein__goes_by(const ein_ctx *ctx, ein__val v, const char *name) {
    const char *mine = v.i ? ctx->value[v.i].name : NULL;
    size_t n = strlen(name);
    return mine && !strncmp(mine, name, n) && (!mine[n] || mine[n] == '.');
}

// What may be meant by `name`, which nothing goes by: the contraction that it was derived from, or
// one that is spelt nearly so.
static void ein__meant(const ein_ctx *ctx, ein__val v, const char *name, const char **best,
                       int *distance) {
    const char *mine = ctx->value[v.i].name;
    size_t n = strlen(mine);
    if (!strncmp(name, mine, n) && name[n] == '.') {
        *best = mine;
        *distance = 0;
    } else {
        ein__suggest(name, mine, best, distance);
    }
}

// The contractions of the model that are derived: all of them, or those called `name`, or as the
// map that alone reads them, by which the emitted file calls a kernel that computes both. An stb_ds
// array; none is an error when a name was given. `root` receives the model's outputs.
static ein__contraction *ein__contractions(ein_ctx *ctx, const char *name, ein__val *root) {
    int nroot = (int)arrlen(ctx->graph.output);
    ein__contraction *list = NULL;
    const char *best = NULL;
    int distance = 3;
    if (!ein__derived_program(ctx, root, nroot)) return NULL;
    ein__val *order = ein__live(ctx, root, nroot);
    int *uses = ein__count_uses(ctx, order, root, nroot);
    ein__readers readers = ein__find_readers(ctx, order);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        ein__contraction c = {.v = order[i]};
        const ein__scope *s = ein__scope_of(ctx, c.v);
        if (!s || ctx->value[c.v.i].weight_only || !ein__is_contraction(ctx, s)) continue;
        c.map = ein__sole_reader(ctx, uses, &readers, c.v, &c.read);
        if (!name || ein__goes_by(ctx, c.v, name) || ein__goes_by(ctx, c.map, name))
            arrput(list, c);
        else ein__meant(ctx, c.v, name, &best, &distance);
    }
    arrfree(order);
    arrfree(uses);
    ein__readers_free(&readers);
    if (name && !list)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "no contraction is called '%s'%s%s%s",
                   name, best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
    return list;
}

// Every contraction of the model, or the one called `name`, priced as in the plan.
EIN__FN bool ein__explain(ein_ctx *ctx, const char *name, bool all, bool json, ein__buf *out) {
    int nroot = (int)arrlen(ctx->graph.output);
    ein_stats before = ctx->stats;
    if (!ctx->plan.step && !ein__make_plan(ctx)) return false;
    ctx->typed = false;
    ctx->stats = before;
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ein__contraction *list = ein__contractions(ctx, name, root);
    ctx->stats.problems += arrlen(list);
    if (json) ein__put(out, "{\"einnet_explain\": 1, \"values\": [");
    for (ptrdiff_t i = 0; i < arrlen(list) && !ctx->status; i++) {
        const char *mine = ctx->value[list[i].v.i].name;
        if (json) {
            ein__putf(out, "%s\n  {\"value\": ", i ? "," : "");
            ein__json_string(out, mine);
            ein__put(out, ", \"candidates\": [");
        } else {
            ein__putf(out, "%s%s\n", i ? "\n" : "", mine);
        }
        ein__explain_value(ctx, &list[i], all, json, out);
        if (json) ein__put(out, "]}");
    }
    if (json) ein__put(out, "]");
    if (!ctx->status) ein__explain_merges(ctx, root, nroot, name, all, json, out);
    if (json) ein__put(out, "}\n");
    arrfree(list);
    return !ctx->status;
}

// ------------------------------------------------------------------------------------ proofs

// The value that candidate `c` computes, from the operands of the problem.
static ein__val ein__realise_candidate(ein__deriver *z, const ein__candidate *c) {
    ein__realiser r = {.z = z};
    z->best[0] = c->def;
    if (c->other.i) z->best[ein__class_at(z, c->other)] = c->by;
    ein__val made = ein__realise(&r, z->problem);
    arrfree(r.made);
    arrfree(r.by_scope);
    return made;
}

// Whether candidate `id` of the contraction called `name` (or of the only one) is the contraction,
// for all values of what it reads: modulo 2^61-1 at `samples` random places. False after an error
// too.
EIN__FN bool ein__verify_candidate(ein_ctx *ctx, const char *name, int id, int samples) {
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, arrlen(ctx->graph.output) + 1);
    ein__contraction *of = ein__contractions(ctx, name, root);
    bool equal = false;
    uint32_t *fresh = NULL;
    if (!ctx->status && arrlen(of) != 1)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0},
                   "ids of candidates belong to one contraction of the %lld here, '%s' and others",
                   (long long)arrlen(of), of ? ctx->value[of[0].v.i].name : "");
    if (!ctx->status) {
        ein__deriver z = ein__deriver_of(ctx, of[0].v, of[0].map, of[0].read);
        int chosen;
        ein__candidate *list = ein__candidates_of(&z, &chosen);
        for (uint32_t i = 0; i < z.first; i++) arrput(fresh, i != z.problem.i ? i : 0);
        if (!ctx->status && id >= (int)arrlen(list))
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "no candidate %d: '%s' has 0 to %lld",
                       id, ctx->value[of[0].v.i].name, (long long)arrlen(list) - 1);
        ein__val made = ctx->status ? (ein__val){0} : ein__realise_candidate(&z, &list[id]);
        while (arrlen(fresh) < arrlen(ctx->value)) arrput(fresh, 0);
        equal = made.i && ein__evalp_equal_from(ctx, of[0].v, made, samples, 1, fresh);
        arrfree(list);
        ein__deriver_free(&z);
    }
    arrfree(fresh);
    arrfree(of);
    return equal;
}
