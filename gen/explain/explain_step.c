// How explaining prints one step: its library call or kernel, its equation, the rules that led to
// it and what the best form so far cost.

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

// How many cells of the iterator mapping table keep a product from being an operator, for those
// that re-layouts could make of it.
static void ein__put_distances(ein__explainer *x, const ein__def *d) {
    static const char *const name[][2] = {{"GEMM", "gemm"}, {"conv", "conv"}, {"band", "band"}};
    const char *comma = "";
    // A step of a merge is no definition of a search.
    int def = (int)arrlen(x->z->def) - 1;
    while (def >= 0 && &x->z->def[def] != d) def--;
    if (def < 0) return;
    if (ein__def_distance(x->z, def, EIN__TO_ANY) == EIN__FAR) return;
    ein__put(x->out, x->json ? ", \"distance\": {" : ", distance to ");
    for (int to = 0; to < EIN__NTARGETS; to++) {
        int far = ein__def_distance(x->z, def, (ein__target)to);
        if (far == EIN__FAR) continue;
        ein__putf(x->out, x->json ? "%s\"%s\": %d" : "%s%s %d", comma, name[to][x->json], far);
        comma = ", ";
    }
    if (x->json) ein__put(x->out, "}");
}

static const char *ein__tiled_name(ein_ctx *ctx, const ein__scope *s, const int64_t *out) {
    ein__tiled p;
    ein__product_cut cut = {.parts = 1};
    if (ein__match_tiles(ctx, s, out, &p)) (void)ein__product_cut_of(ctx, &p, &cut);
    if (cut.parts == 1) return "tiled product kernel";
    return ein__namef(ctx, "tiled product kernel, terms in %d parts, one %s", cut.parts,
                      cut.cluster ? "cluster" : "kernel");
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
    ein__kind kind = s->ns ? EIN__K_REDUCE : EIN__K_MAP;
    ein__split split = {0, 1};
    if (product)
        kind = ein__choose_parts(ctx, s, last ? x->z->map : (ein__val){0}, x->z->map_read, !last,
                                 &ps, &split);
    bool load = ctx->value[d->cls.i].weight_only;
    ein__basis t;
    const char *name = ctx->approach.rereading && ein__is_reread(x->z, s) ? "read in its source"
                       : ein__match_basis(ctx, s, &t)                     ? "transform kernel"
                       : split.parts > 1        ? "tiled product kernel, terms in parts"
                       : kind == EIN__K_PRODUCT ? ein__tiled_name(ctx, s, dense)
                       : s->ns                  ? "reduction kernel"
                                                : "map kernel";
    if (kind == EIN__K_GEMM && gemm) ein__put_gemm_match(x, &g);
    else if ((kind == EIN__K_CONV || kind == EIN__K_CONV_DATA) && conv) ein__put_conv_match(x, &f);
    else if (kind == EIN__K_BAND && band) ein__put_band_match(x, &b);
    else ein__putf(x->out, x->json ? "{\"kind\": \"%s%s\"}" : "%s%s", name, load ? " at load" : "");
    // What a product lacks, where no library has it.
    if (!x->json && !load && !gemm && !conv && !band) ein__put_distances(x, d);
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
    ein__def *d = &x->z->def[def];
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
        ein__put_distances(x, d);
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
    const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, x->z->def[def].sc)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t v = ein__ex_get(ctx, reads[i])->val;
        while (arrlen(x->listed) <= (ptrdiff_t)v) arrput(x->listed, false);
        int best = ein__best_def(x->z, (ein__val){v});
        bool made = best >= 0;
        if (!made || x->listed[v] || v == x->z->problem.i) continue;
        x->listed[v] = true;
        ein__put_steps_of(x, v == x->other.i ? x->by : best);
    }
    ein__put_step_line(x, def);
}

// ------------------------------------------------------------------------------------ costs so far

// Places of the classes that a definition reads, joined to `*list`; -1 ends it.
static void ein__read_classes(ein__deriver *z, const ein__def *d, int **list) {
    const ein__ex *reads = ein__ex_reads(z->ctx, ein__sc_get(z->ctx, d->sc)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ptrdiff_t at = ein__class_at(z, (ein__val){ein__ex_get(z->ctx, reads[i])->val});
        if (at >= 0) arrput(*list, (int)at);
    }
    arrput(*list, -1);
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
