// Products whose second operand moves with the row: G2BMM, out[m,j] = sum p a[m,p] b[m + d j + c,
// p], and GBMM, out[m,p] = sum j a[m,j] b[m + d j + c, p], with any batch iterators around. Rows m
// of one residue modulo d meet only rows of b of one residue, and within a residue the band is
// dense: with m = d (m0 + row) + rho and u = row + j, b's position is d (m0 + u) + rho + c. So a
// tile of rows and a tile of u's is an ordinary tiled product, of which G2BMM stores the band and
// for which GBMM takes 0 outside of it. A band that runs backwards (d < 0) is taken from its end.

typedef struct ein__kband_form {
    const ein__expr *a, *b;
    int m, j, p, axis;  // slots; the moving dimension of b
    int64_t d, c;       // its form m + d j + c; m + d (extent of j - 1 - j) + c when `back`
    bool scores, back;  // scores: G2BMM, j is a traversal iterator, p is summed
    double alpha;
    int nbatch, batch[EIN__MAX_ITERS];
} ein__kband_form;

// Coefficients of a read's address, the moving axis left out. False when it is not linear.
static bool ein__kband_row(ein__kgen *g, const ein__expr *x, int skip, ein__krow *row,
                           int64_t *base) {
    const ein__shape *s = &ein__val_get(g->ctx, (ein__val){x->val})->shape;
    ein__kform f = {0};
    for (int d = 0; d < s->rank; d++) {
        if (d == skip) continue;
        if (!ein__kaxis_free(g, x->ix[d], s->d[d])) return false;
        ein__kform_add(g, &f, ein__kstride(g, (ein__val){x->val}, d), x->ix[d]);
    }
    ein__kform_recombine(g, &f);
    *base = f.c;
    for (int i = 0; i < f.n; i++) {
        const ein__atom *a = ein__atom_get(g->ctx, f.t[i].atom);
        if (a->kind != EIN__ITER) return false;
        row->k[a->slot] += f.t[i].k;
    }
    return true;
}

static bool ein__kband_parse(ein__kgen *g, const ein__scope *s, ein__kband_form *f, ein__krow *a,
                             ein__krow *b, int64_t *base_a, int64_t *base_b, ein__band_tile *t) {
    ein__band k;
    memset(a, 0, sizeof *a);
    memset(b, 0, sizeof *b);
    if (!ein__match_band(g->ctx, s, &k)) return false;
    *f = (ein__kband_form){.a = k.a,
                           .b = k.b,
                           .m = k.m,
                           .j = k.j,
                           .p = k.p,
                           .axis = k.axis,
                           .d = k.d < 0 ? -k.d : k.d,
                           .c = ein__ix_get(g->ctx, k.b->ix[k.axis])->lo,
                           .scores = !k.reduced,
                           .back = k.d < 0,
                           .alpha = k.alpha};
    *t = ein__band_tiles(&k);
    for (uint32_t i = 0; i < s->nt; i++)
        if ((int)i != f->m && (int)i != f->j && (int)i != f->p) f->batch[f->nbatch++] = (int)i;
    return ein__kband_row(g, f->a, -1, a, base_a) && ein__kband_row(g, f->b, f->axis, b, base_b);
}

// The place in the band that has place `at` from where the tile's product starts.
static const char *ein__kband_place(ein__kgen *g, const ein__kband_form *f, const char *at) {
    if (!f->back) return at;
    return ein__namef(g->ctx, "%lld - (%s)", (long long)g->slot[f->j].n - 1, at);
}

// `base + k0 * t0 + ...` over the batch iterators and some texts.
static const char *ein__kband_at(ein__kgen *g, const ein__kband_form *f, const ein__krow *row,
                                 int64_t base, const ein__kterm *more, int nmore) {
    ein__klin l;
    l.c = base;
    l.n = 0;
    for (int i = 0; i < f->nbatch; i++) {
        const ein__kslot *s = &g->slot[f->batch[i]];
        if (s->n > 1)
            ein__klin_add(g, &l, (ein__kterm){row->k[f->batch[i]], {s->name, 0, 0}, 0, 1, s->n});
    }
    for (int i = 0; i < nmore; i++) ein__klin_add(g, &l, more[i]);
    return ein__klin_text(g, &l, 0).s;
}

static ein__kterm ein__kband_term(ein__kgen *g, int64_t k, const char *name, int64_t n) {
    return (ein__kterm){k, {ein__name(g->ctx, name), EIN__PRIMARY, 0}, 0, 1, n};
}

// Batch, residue, row tile and column tile of a block: id counts them, the column tile fastest.
static int64_t ein__kband_index(ein__kgen *g, const ein__kband_form *f, const ein__band_tile *t,
                                ein__buf *b) {
    const char *type = ein__kint(g);
    int64_t below = 1;
    ein__putf(b, "const %s c0 = %s;  // first column\n", type,
              ein__kdigit(g, &below, t->columns, 16 * t->rn));
    ein__putf(b, "const %s m0 = %s;  // first row, in its residue\n", type,
              ein__kdigit(g, &below, t->row_tiles, 16 * t->rm));
    if (f->d > 1)
        ein__putf(b, "const %s rho = %s;  // residue\n", type,
                  ein__kdigit(g, &below, t->residues, 1));
    for (int i = f->nbatch - 1; i >= 0; i--) {
        ein__kslot *s = &g->slot[f->batch[i]];
        s->gone = s->n == 1;
        if (!s->gone)
            ein__putf(b, "const %s %s = %s;\n", type, s->name, ein__kdigit(g, &below, s->n, 1));
    }
    return below;
}

// Texts of the two loads: what is outside of the tile's part of the band, or of the operand, is 0.
static void ein__kband_loads(ein__kgen *g, const ein__kband_form *f, const ein__krow *ra,
                             const ein__krow *rb, int64_t base_a, int64_t base_b, ein__buf *a,
                             ein__buf *b) {
    ein_ctx *c = g->ctx;
    const char *type = ein__kint(g), *u = ein__kunsigned(g), *su = g->wide ? "ull" : "u";
    ein__val va = {f->a->val}, vb = {f->b->val};
    int64_t nm = g->slot[f->m].n, nj = g->slot[f->j].n, np = g->slot[f->p].n;
    int64_t nb = ein__val_get(c, vb)->shape.d[f->axis];
    long long d = (long long)f->d;
    const char *pa = ein__kparam(g, va), *pb = ein__kparam(g, vb);
    if (d > 1) ein__putf(a, "const %s m = %lld * (m0 + row) + rho;\n", type, d);
    else ein__putf(a, "const %s m = m0 + row;\n", type);
    const char *term = f->scores ? "p" : "j";
    if (f->scores) {
        ein__putf(a, "const %s p = k0 + k;\nconst bool in = m < %lld && p < %lld;\n", type,
                  (long long)nm, (long long)np);
    } else {
        ein__putf(a, "const %s j = %s;\nconst bool in = m < %lld && (%s)j < %lld%s;\n", type,
                  ein__kband_place(g, f, "k0 + k - row"), (long long)nm, u, (long long)nj, su);
    }
    ein__kterm ta[] = {
        ein__kband_term(g, ra->k[f->m], "m", nm),
        ein__kband_term(g, ra->k[f->scores ? f->p : f->j], term, f->scores ? np : nj)};
    ein__kaccess xa = {.param = pa, .dtype = ein__kdtype(g, va)};
    xa.at.s = ein__kband_at(g, f, ra, base_a, ta, 2);
    ein__putf(a, "as[k][row] = in ? %s : 0.f;\n", ein__kload(g, &xa, 0).s);

    const char *along = f->scores ? "c0 + col" : "k0 + k",
               *column = f->scores ? "k0 + k" : "c0 + col";
    if (d > 1) ein__putf(b, "const %s at = %lld * (m0 + %s) + rho", type, d, along);
    else ein__putf(b, "const %s at = m0 + %s", type, along);
    if (f->c) ein__putf(b, " %c %lld", f->c < 0 ? '-' : '+', (long long)(f->c < 0 ? -f->c : f->c));
    ein__putf(b, ", p = %s;\n", column);
    const char *inside = ein__namef(c, "(%s)at < %lld%s", u, (long long)nb, su);
    ein__kterm tb[] = {ein__kband_term(g, ein__kstride(g, vb, f->axis), "at", nb),
                       ein__kband_term(g, rb->k[f->p], "p", np)};
    ein__kaccess xb = {.param = pb, .dtype = ein__kdtype(g, vb)};
    xb.at.s = ein__kband_at(g, f, rb, base_b, tb, 2);
    const char *value = ein__kload(g, &xb, 0).s;
    ein__putf(b, "const bool in = %s && p < %lld;\nbs[k][col] = in ? %s : 0.f;\n", inside,
              (long long)np, value);
}

// The loops of a tile's product, then epilogue and store at (m, j) or (m, p).
static void ein__kband_store(ein__kgen *g, const ein__step *step, const ein__kband_form *f,
                             const ein__kscan *scan, ein__buf *b, const char **inside) {
    ein_ctx *c = g->ctx;
    const char *type = ein__kint(g), *su = g->wide ? "ull" : "u";
    const char *m = "m0 + row";
    if (f->d > 1) m = ein__namef(c, "%lld * (m0 + row) + rho", (long long)f->d);
    int column = f->scores ? f->j : f->p;
    const char *at = f->scores ? ein__kband_place(g, f, "c0 + col - row") : "c0 + col";
    *inside = ein__namef(c, "%s < %lld && (%s)(%s) < %lld%s", m, (long long)g->slot[f->m].n,
                         ein__kunsigned(g), at, (long long)g->slot[column].n, su);
    const ein__krow *row = &scan->row[arrlen(scan->row) - 1];
    bool uses_m = row->k[f->m], uses_c = row->k[column];
    g->slot[f->m].gone = g->slot[f->m].n == 1;
    g->slot[column].gone = g->slot[column].n == 1;
    if (f->alpha != 1) ein__putf(b, "acc[i][j] *= %s;\n", ein__kliteral(g, f->alpha).s);
    if (uses_m && !g->slot[f->m].gone)
        ein__putf(b, "const %s %s = %s;\n", type, g->slot[f->m].name, m);
    if (uses_c && !g->slot[column].gone)
        ein__putf(b, "const %s %s = %s;\n", type, g->slot[column].name, at);
    ein__ktext value = {"acc[i][j]", EIN__PRIMARY, 0};
    if (step->nval > 1) {
        ein__ex body = ein__kbody(g, step->out);
        g->inner[g->ninner++] = (ein__kinner){.v = step->val[0], .text = {"acc[i][j]"}};
        ein__kcount(g, body);
        g->post = b;
        value = ein__kvalue(g, body, 0);
        g->post = NULL;
    }
    ein__kstore(g, b, step->out, scan, &value);
}

// The furthest place of b that a tile computes, inside or not.
static int64_t ein__kband_reach(const ein__kband_form *f, const ein__band_tile *t) {
    int64_t places = t->row_tiles * 16 * t->rm + t->span + 16 * (t->rn + t->kc);
    int64_t start = f->c < 0 ? -(f->c + 1) : f->c;
    return start > INT64_MAX / 8 ? start : start + ein__times(f->d, places);
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kband(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                       ein__launch *l) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    ein__kband_form f;
    ein__krow ra, rb;
    int64_t base_a = 0, base_b = 0;
    ein__band_tile t;
    bool found = ein__kband_parse(g, s, &f, &ra, &rb, &base_a, &base_b, &t);
    int64_t reach = found ? ein__kband_reach(&f, &t) : 0;
    if (!found || reach >= INT64_MAX / 8) return ein__kreduce(g, step, hint, out, l);
    if (g->vec > 1) return false;
    ein__kscan scan = ein__kscan_make(g);
    ein__kscan_out(g, &scan, step->out);
    ein__buf index = {0}, load_a = {0}, load_b = {0}, store = {0};
    const char *inside = NULL;
    int64_t blocks = ein__kband_index(g, &f, &t, &index);
    ein__kband_loads(g, &f, &ra, &rb, base_a, base_b, &load_a, &load_b);
    ein__kband_store(g, step, &f, &scan, &store, &inside);
    bool ok = !g->too_wide && (g->wide || reach <= INT32_MAX);
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, blocks, 256)) {
        ein_ctx *c = g->ctx;
        // Neighbouring threads load neighbours in memory.
        bool a_rows = ra.k[f.scores ? f.p : f.j] != 1 && ra.k[f.m] == 1 && f.d == 1;
        bool b_columns = f.scores ? rb.k[f.p] != 1 : rb.k[f.p] == 1;
        int nr = 16 * t.rm, nc = 16 * t.rn;
        ein__key keys[] = {
            {0},
            {0},
            {"RM", ein__namef(c, "%d", t.rm)},
            {"RN", ein__namef(c, "%d", t.rn)},
            {"KC", ein__namef(c, "%d", t.kc)},
            {"number", ein__kunsigned(g)},
            {"many", blocks > 1 ? "1" : ""},
            {"index", index.s},
            {"terms", ein__namef(c, "%lld", (long long)t.terms)},
            {"rowA", ein__namef(c, a_rows ? "e %% %d" : "e / %d", a_rows ? nr : t.kc)},
            {"termA", ein__namef(c, a_rows ? "e / %d" : "e %% %d", a_rows ? nr : t.kc)},
            {"loadA", load_a.s},
            {"colB", ein__namef(c, b_columns ? "e %% %d" : "e / %d", b_columns ? nc : t.kc)},
            {"termB", ein__namef(c, b_columns ? "e / %d" : "e %% %d", b_columns ? nc : t.kc)},
            {"loadB", load_b.s},
            {"inside", inside},
            {"store", store.s}};
        ein__kfinish(g, step->out, hint, ein__tmpl_band, keys, EIN__COUNT(keys), out, l);
    }
    ein__buf_free(&index);
    ein__buf_free(&load_a);
    ein__buf_free(&load_b);
    ein__buf_free(&store);
    ein__kscan_free(&scan);
    return ok;
}
