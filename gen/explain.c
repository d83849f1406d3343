// What the derivation found, for people and for other programs: every definition of a contraction
// with its steps, the rules that led to it and its cost.

typedef struct ein__explainer {
    ein_ctx *ctx;
    ein__deriver *z;
    ein__buf *out;
    bool json;
    bool *listed;    // by value id: its step is printed already
    ein__val other;  // a class that the candidate takes by definition `by`, not by its cheapest
    int by;
    int nstep;
    const int64_t *so_far;  // by definition: cost of the problem by it and those found before it
} ein__explainer;

static void ein__put_sizes_json(ein__buf *out, const char *name, const int64_t *v, int n) {
    ein__putf(out, ", \"%s\": [", name);
    for (int i = 0; i < n; i++) ein__putf(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    ein__put(out, "]");
}

static void ein__put_gemm_match(ein__explainer *x, const ein__gemm *g) {
    ein__putf(x->out,
              x->json
                  ? "{\"kind\": \"gemm\", \"batch\": %lld, \"m\": %lld, \"n\": %lld, \"k\": %lld}"
                  : "GEMM batch %lld, m %lld, n %lld, k %lld",
              (long long)g->batch, (long long)g->m, (long long)g->n, (long long)g->k);
}

static void ein__put_band_match(ein__explainer *x, const ein__band *g) {
    ein__putf(x->out,
              x->json ? "{\"kind\": \"%s\", \"batch\": %lld, \"m\": %lld, \"n\": %lld, "
                        "\"k\": %lld, \"dilation\": %lld}"
                      : "%s kernel, batch %lld, rows %lld, band %lld, depth %lld, dilation %lld",
              g->reduced ? (x->json ? "gbmm" : "GBMM") : (x->json ? "g2bmm" : "G2BMM"),
              (long long)g->batch, (long long)g->rows, (long long)g->width, (long long)g->depth,
              (long long)g->d);
}

static void ein__put_conv_match(ein__explainer *x, const ein__conv_form *f) {
    const ein__conv *c = &f->c;
    ein__putf(x->out,
              x->json ? "{\"kind\": \"%s\", \"n\": %lld, \"c\": %lld, \"f\": %lld, \"group\": %lld"
                      : "%s n %lld, c %lld, f %lld, groups %lld, filter ",
              f->transposed ? "conv_backward_data" : "conv", (long long)c->n, (long long)c->c,
              (long long)c->f, (long long)c->group);
    if (!x->json) {
        ein__put_sizes(x->out, c->k, c->spatial);
        return;
    }
    ein__put_sizes_json(x->out, "filter", c->k, c->spatial);
    ein__put_sizes_json(x->out, "stride", c->stride, c->spatial);
    ein__put_sizes_json(x->out, "dilation", c->dilation, c->spatial);
    ein__put(x->out, "}");
}

// How a definition is computed: the library call that is cheapest, or a kernel. In JSON also every
// call that matches, cheapest or not.
static void ein__put_signature(ein__explainer *x, const ein__def *d) {
    ein_ctx *ctx = x->ctx;
    const ein__scope *s = ein__sc_get(ctx, d->sc);
    int64_t dense[EIN__MAX_RANK], ps;
    ein__conv_form f;
    ein__gemm g;
    ein__band b;
    bool product = ein__is_contraction(ctx, s), last = d->cls.i == x->z->problem.i;
    ein__dense_result(s, dense);
    bool gemm = product && ein__best_gemm(ctx, s, !last, &g, &ps);
    bool conv = product && ein__find_conv(ctx, s, dense, &f) && ein__conv_sizes(&f);
    bool band = product && ein__match_band(ctx, s, &b);
    ein__skind2 kind = s->ns ? EIN__K_REDUCE : EIN__K_MAP;
    if (product)
        kind = ein__choose(ctx, s, last ? x->z->map : (ein__val){0}, x->z->map_read, !last, &ps);
    bool load = ctx->value[d->cls.i].weight_only;
    ein__basis t;
    const char *name = ein__match_basis(ctx, s, &t) ? "transform kernel"
                       : s->ns                      ? "reduction kernel"
                                                    : "map kernel";
    if (kind == EIN__K_GEMM && gemm) ein__put_gemm_match(x, &g);
    else if ((kind == EIN__K_CONV || kind == EIN__K_CONV_DATA) && conv) ein__put_conv_match(x, &f);
    else if (kind == EIN__K_BAND && band) ein__put_band_match(x, &b);
    else ein__putf(x->out, x->json ? "{\"kind\": \"%s%s\"}" : "%s%s", name, load ? " at load" : "");
    if (!x->json) return;
    ein__put(x->out, ", \"matches\": [");
    if (gemm) ein__put_gemm_match(x, &g);
    if (gemm && conv) ein__put(x->out, ", ");
    if (conv) ein__put_conv_match(x, &f);
    if ((gemm || conv) && band) ein__put(x->out, ", ");
    if (band) ein__put_band_match(x, &b);
    ein__put(x->out, "]");
}

// The rules that led to a definition, oldest first, each with the cost of the best form of the
// problem that was known once it had been applied.
static void ein__put_trail_json(ein__explainer *x, int def) {
    const ein__def *d = &x->z->def[def];
    if (!d->rule) return;
    if (d->from >= 0 && x->z->def[d->from].rule) {
        ein__put_trail_json(x, d->from);
        ein__put(x->out, ", ");
    }
    ein__put(x->out, "{\"rule\": ");
    ein__json_string(x->out, d->rule);
    ein__putf(x->out, ", \"best_ps\": %lld}", (long long)x->so_far[def]);
}

static void ein__put_step_line(ein__explainer *x, int def) {
    ein_ctx *ctx = x->ctx;
    const ein__def *d = &x->z->def[def];
    ein__buf *out = x->out, text = {0};
    ein__sc keep = ctx->value[d->cls.i].scope;
    // The class is printed by this definition, not by its first.
    ctx->value[d->cls.i].scope = d->sc;
    // A matrix is easier to read as one, but only its guarded terms are an equation.
    if (x->json || !ein__print_table(ctx, d->cls, &text)) ein__print_value(ctx, d->cls, &text);
    ctx->value[d->cls.i].scope = keep;
    int64_t ps = ein__def_step_cost(x->z, d);
    const char *why = ein__trail(x->z, def);
    if (x->json) {
        ein__put(out, x->nstep ? ",\n         " : "\n         ");
        ein__put(out, "{\"equation\": ");
        ein__json_string(out, text.s);
        ein__put(out, ", \"call\": ");
        ein__put_signature(x, d);
        ein__putf(out, ", \"ps\": %lld, \"rules\": ", (long long)ps);
        ein__json_string(out, why);
        ein__put(out, ", \"trail\": [");
        ein__put_trail_json(x, def);
        ein__put(out, "]}");
    } else {
        ein__put(out, "      ");
        ein__put_us(out, ps);
        ein__put(out, "  ");
        ein__put_signature(x, d);
        if (*why) ein__putf(out, "\n                  by %s", why);
        ein__putf(out, "\n                  %s\n", text.s);
    }
    ein__buf_free(&text);
    x->nstep++;
}

// The steps of a definition, operands first; other classes by their cheapest definition.
static void ein__put_steps_of(ein__explainer *x, int def) {
    ein_ctx *ctx = x->ctx;
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, x->z->def[def].sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t v = ein__ex_get(ctx, reads[i])->val;
        while (arrlen(x->listed) <= (ptrdiff_t)v) arrput(x->listed, false);
        int best = ein__best_def(x->z, (ein__val){v});
        bool made = best >= 0;
        if (!made || x->listed[v] || v == x->z->problem.i) continue;
        x->listed[v] = true;
        ein__put_steps_of(x, v == x->other.i ? x->by : best);
    }
    arrfree(reads);
    ein__put_step_line(x, def);
}

// ------------------------------------------------------------------------------------ candidates

typedef struct ein__candidate {
    int def;         // of the problem
    ein__val other;  // none, or a class it reads that is taken by definition `by`
    int by;
    int64_t ps;
} ein__candidate;

// Whether class `v` is needed to compute definition `def`, everything by its cheapest definition.
static bool ein__def_needs(ein__deriver *z, int def, ein__val v) {
    ein__ex *reads = NULL;
    bool needs = false;
    ein__ex_reads(z->ctx, ein__sc_get(z->ctx, z->def[def].sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !needs; i++) {
        ein__val read = {ein__ex_get(z->ctx, reads[i])->val};
        int best = ein__best_def(z, read);
        needs = read.i == v.i || (best >= 0 && ein__def_needs(z, best, v));
    }
    arrfree(reads);
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
    ein__ex *reads = NULL;
    int64_t ps = ein__def_cost(z, &z->def[def], EIN__NO_WAY);
    ein__add_candidate(list, (ein__candidate){.def = def, .ps = ps});
    ein__ex_reads(ctx, ein__sc_get(ctx, z->def[def].sc)->body, &reads);
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
    arrfree(reads);
}

// Classes of one name get numbers, so that the equations of a candidate can stand in one model.
static void ein__number_classes(ein__deriver *z) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, z->problem);
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, s->body, &reads);
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
    arrfree(reads);
}

// Explores the problem and lists its candidates, cheapest first, in the order found where costs are
// equal. A candidate's id is its place in this list.
static ein__candidate *ein__candidates_of(ein__deriver *z) {
    ein__candidate *list = NULL;
    ein__explore(z);
    ein__number_classes(z);
    if (!z->ctx->status) ein__class_cost(z, z->problem);
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !z->ctx->status; i++)
        if (z->def[i].cls.i == z->problem.i) ein__add_candidates(z, (int)i, &list);
    return list;
}

// Places of the classes that a definition reads, joined to `*list`; -1 ends it.
static void ein__read_classes(ein__deriver *z, const ein__def *d, int **list) {
    ein__ex *reads = NULL;
    ein__ex_reads(z->ctx, ein__sc_get(z->ctx, d->sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ptrdiff_t at = ein__class_at(z, (ein__val){ein__ex_get(z->ctx, reads[i])->val});
        if (at >= 0) arrput(*list, (int)at);
    }
    arrput(*list, -1);
    arrfree(reads);
}

// By definition: the least cost of the problem by it and the definitions found before it.
static int64_t *ein__costs_so_far(ein__deriver *z) {
    int64_t *cost = NULL, *step = NULL, *so_far = NULL;
    int *classes = NULL, *start = NULL;
    for (ptrdiff_t i = 0; i < arrlen(z->cls); i++) arrput(cost, EIN__NO_WAY);
    for (ptrdiff_t n = 0; n < arrlen(z->def); n++) {
        arrput(step, ein__def_step_cost(z, &z->def[n]));
        arrput(start, (int)arrlen(classes));
        ein__read_classes(z, &z->def[n], &classes);
        // The new definition first; the older ones only once it has made something cheaper.
        bool changed = true;
        for (ptrdiff_t first = n; changed; first = 0) {
            changed = false;
            for (ptrdiff_t i = first; i <= n; i++) {
                int64_t total = step[i];
                for (int k = start[i]; classes[k] >= 0; k++)
                    total = ein__cost_sum(total, cost[classes[k]]);
                ptrdiff_t at = ein__class_at(z, z->def[i].cls);
                if (total >= cost[at]) continue;
                cost[at] = total;
                changed = true;
            }
        }
        arrput(so_far, cost[0]);
    }
    arrfree(cost);
    arrfree(step);
    arrfree(classes);
    arrfree(start);
    return so_far;
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
    ein__putf(x->out, "  candidate %d%s%s%s:", id, role.chosen ? ", chosen" : "",
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
    ein__candidate *list = ein__candidates_of(&z);
    int64_t *so_far = ctx->status ? NULL : ein__costs_so_far(&z);
    ein__explainer x = {.ctx = ctx, .z = &z, .out = out, .json = json, .so_far = so_far};
    bool second = false;
    for (ptrdiff_t i = 0; i < arrlen(list) && !ctx->status; i++) {
        ein__role role = {.chosen = list[i].def == ein__best_def(&z, c->v) && !list[i].other.i,
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

// The contractions of the model that are derived: all of them, or those called `name`. An stb_ds
// array; none is an error when a name was given. `root` receives the model's outputs.
static ein__contraction *ein__contractions(ein_ctx *ctx, const char *name, ein__val *root) {
    int nroot = (int)arrlen(ctx->graph.output);
    ein__contraction *list = NULL;
    for (int k = 0; k < nroot; k++) root[k] = ctx->tensor_value[ctx->graph.output[k].tensor];
    if (!ein__own_outputs(ctx, root, nroot) || !ein__fold(ctx, root, nroot)) return NULL;
    ein__val *order = ein__live(ctx, root, nroot);
    int *uses = ein__count_uses(ctx, order, root, nroot);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        ein__contraction c = {.v = order[i]};
        const ein__scope *s = ein__scope_of(ctx, c.v);
        const char *mine = ctx->value[c.v.i].name;
        if (!s || ctx->value[c.v.i].weight_only || !ein__is_contraction(ctx, s)) continue;
        size_t n = name ? strlen(name) : 0;
        if (name && strcmp(mine, name) && (strncmp(mine, name, n) || mine[n] != '.')) continue;
        c.map = ein__sole_reader(ctx, order, uses, c.v, i + 1, &c.read);
        arrput(list, c);
    }
    arrfree(order);
    arrfree(uses);
    if (name && !list)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "no contraction is called '%s'", name);
    return list;
}

// Every contraction of the model, or the one called `name`.
EIN__FN bool ein__explain(ein_ctx *ctx, const char *name, bool all, bool json, ein__buf *out) {
    int nroot = (int)arrlen(ctx->graph.output);
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
        ein__candidate *list = ein__candidates_of(&z);
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
