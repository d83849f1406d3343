// Products by tiles whose terms are no products (cross.c): what a thread does with each term.

enum { EIN__CROSS_WRITTEN = 2048 };  // instructions of a thread's terms that are written out

// See emit_product.c.
static bool ein__kprod_constant(ein__kgen *g, const ein__kprod *r, int side);
static void ein__kprod_put_loads(ein__kgen *g, const ein__kprod *r, ein__buf *out);

// The tile's type: terms of eight that are written out, and whether its last step has an end.
static const char *ein__kcross_tile(ein__kgen *g, const ein__kprod *r) {
    const ein__product_tile *t = r->t;
    int terms = 8;
    while (terms > 1 && t->rm * t->rn * terms * r->p.term_each > EIN__CROSS_WRITTEN) terms /= 2;
    ein__kneed(g, EIN__NEED_TILES);
    ein__kneed(g, EIN__NEED_CROSS);
    if (ein__kcross_two(&r->p, 0) || ein__kcross_two(&r->p, 1)) ein__kneed(g, EIN__NEED_CROSS_TWO);
    return ein__namef(g->ctx, "cross_tile<%d, %d, %d, %d, %s, %d, %d, %d, %d, %d, %d, %d>",
                      r->p.crosses, r->p.values[0], r->p.values[1], terms,
                      r->ends ? "true" : "false", t->rows, t->cols, t->terms, t->parts, t->rm,
                      t->rn, g->vec);
}

// A term where all values are zero.
static ein__ex ein__kcross_at_zero(ein_ctx *ctx, const ein__tiled *p, ein__ex ex) {
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < p->values[k]; i++)
            if (p->value[k][i].i == ex.i) return ein__ex_const(ctx, 0);
    ein__expr e = *ein__ex_get(ctx, ex);
    if (e.op == EIN__X_CONST) return ex;
    for (uint32_t i = 0; i < e.nkid; i++) e.kid[i] = ein__kcross_at_zero(ctx, p, e.kid[i]);
    return ein__ex_make(ctx, &e);
}

// Whether zeros behind the last term would change the result.
static bool ein__kcross_ends(ein_ctx *ctx, const ein__kprod *r) {
    double c;
    bool ends = !r->p.added;
    if (r->p.depth % r->t->terms == 0) return false;
    for (int k = 0; k < r->p.crosses && !ends; k++) {
        ein__ex zero = ein__kcross_at_zero(ctx, &r->p, r->p.term[k]);
        ends = !ein__ex_is_const(ctx, zero, &c) || c != 0;
    }
    return ends;
}

// What a thread does with the values of a term, as text of a lambda.
static const char *ein__kcross_term(ein__kgen *g, const ein__kprod *r, ein__red reduce) {
    static const char *const name[2][EIN__CROSS_VALUES] = {{"x0", "x1"}, {"y0", "y1"}};
    ptrdiff_t named = arrlen(g->name);
    ein__buf text = {0}, out = {0};
    int vec = g->vec;
    g->vec = 1;
    ein__put(&text, "");
    g->post = &text;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < r->p.values[k]; i++) {
            ein__kterm t = {1, {name[k][i], EIN__NAMED, 0}, 0, 1, 0};
            arrput(g->name, ((ein__kname){ein__kex_kind(g), r->p.value[k][i].i, 0, t}));
        }
    for (int k = 0; k < r->p.crosses; k++) ein__kcount(g, r->p.term[k]);
    for (int k = 0; k < r->p.crosses; k++) {
        ein__ktext v = ein__kvalue(g, r->p.term[k], 0);
        ein__put(&text, ein__kcombine(g, reduce, ein__namef(g->ctx, "to[%d]", k), v.s));
    }
    g->post = NULL;
    g->vec = vec;
    arrsetlen(g->name, named);
    ein__putf(&out, "const auto term = [](float (&to)[%d]", r->p.crosses);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < EIN__CROSS_VALUES; i++)
            ein__putf(&out, ", float%s%s", i < r->p.values[k] ? " " : "",
                      i < r->p.values[k] ? name[k][i] : "");
    ein__put(&out, ") {\n");
    ein__kindent(&out, text.s, 4);
    ein__put(&out, "};\n");
    const char *s = ein__name(g->ctx, out.s);
    ein__buf_free(&text);
    ein__buf_free(&out);
    return s;
}

// Declares what the sums of the reductions behind the first come to, `cols` columns a thread.
static const char *ein__kcross_more(ein__kgen *g, const ein__kprod *r, int cols) {
    ein__buf b = {0};
    for (int k = 1; k < r->p.crosses; k++)
        ein__putf(&b, "float acc%d[%d][%d] = {};\ntile.finish<%d>(dot, acc%d);\n", k, r->t->rm,
                  cols, k, k);
    const char *s = b.s ? ein__name(g->ctx, b.s) : "";
    ein__buf_free(&b);
    return s;
}

// What a thread does with terms, behind the loads in `loads`, and the loads of rows and columns as
// the tile multiplies them: those of second values with them.
static void ein__kcross_put(ein__kgen *g, const ein__step *step, const ein__kprod *r,
                            const ein__kprod *second, ein__buf *loads, const char **a,
                            const char **b) {
    ein__red reduce = (ein__red)ein__scope_of(g->ctx, step->val[0])->reduce;
    const char *call[2] = {*a, *b};
    ein__kprod_put_loads(g, second, loads);
    ein__put(loads, ein__kcross_term(g, r, reduce));
    for (int k = 0; k < 2; k++)
        if (ein__kcross_two(&r->p, k))
            call[k] =
                ein__namef(g->ctx, "both<%s>(%s, %s)", second->along[k], call[k], second->call[k]);
    *a = call[0];
    *b = ein__namef(g->ctx, "crossed(%s, term, %s)", call[1], ein__kidentity(g, reduce));
}

// The loads of second values, by the lines and terms of the first ones.
static void ein__kcross_second(ein__kgen *g, ein__kprod *first, ein__kprod *r) {
    r->t = first->t;
    r->parts = first->parts;
    r->math = first->math;
    r->name[0] = "c";
    r->name[1] = "d";
    r->nsum = first->nsum;
    memcpy(r->order, first->order, sizeof r->order);
    memcpy(r->n, first->n, sizeof r->n);
    memcpy(r->sum, first->sum, sizeof r->sum);
    memcpy(r->slot, first->slot, sizeof r->slot);
    for (int k = 0; k < 2; k++) {
        if (!ein__kcross_two(&first->p, k)) continue;
        ein__kprod_load(g, r, k);
        bool constant = ein__kprod_constant(g, r, k);
        if (!constant && first->early == (k ? "2" : "1")) first->early = "0";
    }
}

// The values of rows and columns, and what they read most of.
static void ein__kcross_factors(ein__kgen *g, ein__kprod *r, ein__kprod *second) {
    second->p = r->p;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < r->p.values[k]; i++) {
            ein__kprod *of = i ? second : r;
            of->factor[k] = r->p.value[k][i];
            of->main[k] = ein__ex_of(g->ctx, ein__cross_read(g->ctx, of->factor[k]));
        }
}
