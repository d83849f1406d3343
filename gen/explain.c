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
    bool gemm = product && ein__match_gemm(ctx, s, dense, &g);
    bool conv = product && ein__find_conv(ctx, s, dense, &f) && ein__conv_sizes(&f);
    bool band = product && ein__match_band(ctx, s, &b);
    ein__skind2 kind = s->ns ? EIN__K_REDUCE : EIN__K_MAP;
    if (product) kind = ein__choose(ctx, s, last ? x->z->map : (ein__val){0}, x->z->map_read, &ps);
    bool load = ctx->value[d->cls.i].weight_only;
    const char *name = s->ns ? "reduction kernel" : "map kernel";
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

static void ein__put_step_line(ein__explainer *x, int def) {
    ein_ctx *ctx = x->ctx;
    const ein__def *d = &x->z->def[def];
    ein__buf *out = x->out, text = {0};
    ein__sc keep = ctx->value[d->cls.i].scope;
    // The class is printed by this definition, not by its first.
    ctx->value[d->cls.i].scope = d->sc;
    ein__print_value(ctx, d->cls, &text);
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
        ein__put(out, "}");
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

typedef struct ein__candidate {
    int def;         // of the problem
    ein__val other;  // none, or a class it reads that is taken by definition `by`
    int by;
    int64_t ps;
} ein__candidate;

static void ein__put_candidate(ein__explainer *x, const ein__candidate *c, int id, bool chosen) {
    for (ptrdiff_t i = 0; i < arrlen(x->listed); i++) x->listed[i] = false;
    x->nstep = 0;
    x->other = c->other;
    x->by = c->by;
    if (x->json) {
        ein__putf(x->out, "%s\n      {\"id\": %d, \"ps\": %lld, \"chosen\": %s, \"steps\": [",
                  id ? "," : "", id, (long long)c->ps, chosen ? "true" : "false");
        ein__put_steps_of(x, c->def);
        ein__put(x->out, "]}");
        return;
    }
    ein__putf(x->out, "  candidate %d%s:", id, chosen ? ", chosen" : "");
    ein__put_us(x->out, c->ps);
    ein__put(x->out, "\n");
    ein__put_steps_of(x, c->def);
}

static void ein__add_candidate(ein__candidate **list, ein__candidate c) {
    ptrdiff_t at = arrlen(*list);
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
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        int best = ein__best_def(z, v);
        if (best < 0 || v.i == z->problem.i) continue;
        for (ptrdiff_t k = 0; k < arrlen(z->def); k++) {
            if (z->def[k].cls.i != v.i || k == best) continue;
            int64_t other = ps - ein__class_cost(z, v) + ein__def_cost(z, &z->def[k], EIN__NO_WAY);
            ein__add_candidate(list, (ein__candidate){def, v, (int)k, other});
        }
    }
    arrfree(reads);
}

// Candidates for the problem, cheapest first; all of them, or the chosen one and the one it started
// from.
static void ein__explain_value(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read, bool all,
                               bool json, ein__buf *out) {
    ein__deriver z = ein__deriver_of(ctx, v, map, read);
    ein__explainer x = {.ctx = ctx, .z = &z, .out = out, .json = json};
    ein__candidate *list = NULL;
    ein__explore(&z);
    if (!ctx->status) ein__class_cost(&z, v);
    for (ptrdiff_t i = 0; i < arrlen(z.def) && !ctx->status; i++)
        if (z.def[i].cls.i == v.i) ein__add_candidates(&z, (int)i, &list);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        bool chosen = list[i].def == ein__best_def(&z, v) && !list[i].other.i;
        if (all || chosen || (list[i].def == 0 && !list[i].other.i))
            ein__put_candidate(&x, &list[i], (int)i, chosen);
    }
    arrfree(list);
    arrfree(x.listed);
    ein__deriver_free(&z);
}

// Every contraction of the model, or the one called `name`.
EIN__FN bool ein__explain(ein_ctx *ctx, const char *name, bool all, bool json, ein__buf *out) {
    int nroot = (int)arrlen(ctx->graph.output), found = 0;
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    for (int k = 0; k < nroot; k++) root[k] = ctx->tensor_value[ctx->graph.output[k].tensor];
    if (!ein__own_outputs(ctx, root, nroot) || !ein__fold(ctx, root, nroot)) return false;
    ein__val *order = ein__live(ctx, root, nroot);
    int *uses = ein__count_uses(ctx, order, root, nroot);
    if (json) ein__put(out, "{\"einnet_explain\": 1, \"values\": [");
    for (ptrdiff_t i = 0; i < arrlen(order) && !ctx->status; i++) {
        ein__val v = order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        const char *mine = ctx->value[v.i].name;
        if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) continue;
        size_t n = name ? strlen(name) : 0;
        if (name && strcmp(mine, name) && (strncmp(mine, name, n) || mine[n] != '.')) continue;
        ein__ex read = {0};
        ein__val map = ein__sole_reader(ctx, order, uses, v, i + 1, &read);
        if (json) {
            ein__putf(out, "%s\n  {\"value\": ", found ? "," : "");
            ein__json_string(out, mine);
            ein__put(out, ", \"candidates\": [");
        } else {
            ein__putf(out, "%s%s\n", found ? "\n" : "", mine);
        }
        ein__explain_value(ctx, v, map, read, all, json, out);
        if (json) ein__put(out, "]}");
        found++;
    }
    if (json) ein__put(out, "]}\n");
    arrfree(order);
    arrfree(uses);
    if (name && !found)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "no contraction is called '%s'", name);
    return !ctx->status;
}

// Whether the plan computes what the model says: every output, the value as lowered against the
// value as planned, modulo 2^61-1 at `samples` random places. `name` receives the output that
// differs.
EIN__FN bool ein__verify(ein_ctx *ctx, int samples, const char **name) {
    for (ptrdiff_t k = 0; k < arrlen(ctx->graph.output); k++) {
        *name = ctx->graph.output[k].name;
        ein__val a = ctx->tensor_value[ctx->graph.output[k].tensor], b = ctx->plan.root[k];
        if (!ein__evalp_equal(ctx, a, b, samples, 1)) return false;
    }
    return true;
}
