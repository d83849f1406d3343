// Segment reductions (picks.c), where a term belongs to few rows: the lanes of a warp test the
// terms for its row; then all lanes add up those found, in the order of the terms, each lane for
// columns of its own.

// Scans the terms and the map behind them. Slots of rows stay what they are.
static ein__kred ein__kpicks_make(ein__kgen *g, const ein__step *step, const ein__picks *p) {
    const ein__scope *s = ein__scope_of(g->ctx, step->val[0]);
    ein__kred r = {.acc = step->val[0],
                   .out = step->out,
                   .reduce = (ein__red)s->reduce,
                   .sums = 1,
                   .scan = ein__kscan_make(g)};
    g->inner[g->ninner++] = (ein__kinner){.v = r.acc, .text = {"acc"}};
    for (int k = 1; k + 1 < step->nval; k++)
        g->inner[g->ninner++] = (ein__kinner){.v = step->val[k], .put = true};
    ein__kscan_expr(g, &r.scan, s->body);
    if (step->nval > 1) ein__kscan_expr(g, &r.scan, ein__kbody(g, r.out));
    r.scan.pinned |= p->rows;
    ein__kscan_out(g, &r.scan, r.out);
    for (uint32_t i = 0; i < s->ns; i++) r.s[r.ns++] = (int)(s->nt + i);
    r.nt = ein__korder(g, r.out, r.t);
    ein__ksort_reduction(&r);
    r.nt = ein__kmerge(g, &r.scan, r.t, r.nt);
    r.ns = ein__kmerge(g, &r.scan, r.s, r.ns);
    r.count = ein__kcount_slots(g, r.s, r.ns);
    for (int i = 0; i < r.ns; i++) g->slot[r.s[i]].level = 1;
    ein__kred_number(g, &r, s->body);
    ein__put(&r.index, "");
    ein__put(&r.post, "");
    return r;
}

// Those of the slots `t` that are rows', or the others.
static int ein__kpicks_slots(const ein__kred *r, uint32_t rows, bool in, int *t) {
    int n = 0;
    for (int i = 0; i < r->nt; i++)
        if ((rows >> r->t[i] & 1) == in) t[n++] = r->t[i];
    return n;
}

// One side of the question; what needs no term is named in front of the loop.
static const char *ein__kpicks_side(ein__kgen *g, ein__ex ex) {
    ein__ktext t = ein__kvalue(g, ex, 0);
    if (!t.level) t = ein__kvalue_named(g, ex, 0);
    return ein__kparen(g, t, EIN__TERM);
}

// Whether term k is one of the row's; what that needs goes to `asks`.
static const char *ein__kpicks_question(ein__kgen *g, const ein__kred *r, const ein__expr *x,
                                        ein__buf *asks) {
    ein__knum num = g->num;
    int level = 0;
    uint32_t uses = ein__kmask(g, x->kid[0]) | ein__kmask(g, x->kid[1]);
    for (int k = 0; k < 2; k++) ein__kcount(g, x->kid[k]);
    bool whole = ein__kinteger(g, x->kid[0]) && ein__kinteger(g, x->kid[1]);
    const char *is;
    if (whole) {
        g->num = EIN__NUM_INT;
        const char *first = ein__kpicks_side(g, x->kid[0]),
                   *second = ein__kpicks_side(g, x->kid[1]);
        is = ein__namef(g->ctx, "%s == %s", first, second);
        g->num = num;
    } else {
        is = ein__kcondition(g, x, 0, &level);
    }
    ein__kdecompose(g, asks, r->s, r->ns, r->scan.used & uses, "k");
    ein__put(asks, g->code[1].s);
    ein__buf_free(&g->code[1]);
    ein__put(&g->code[1], "");
    ein__kforget(g, 1);
    ein__kuncount(g);
    return is;
}

// What is added for a found term, and what warps that share a row do with their sums.
static void ein__kpicks_terms(ein__kgen *g, ein__kred *r, ein__ex term, ein__buf *terms,
                              ein__buf *put, ein__buf *join) {
    ein__kcount(g, term);
    for (int i = 0; i < g->vec; i++) {
        const char *a = g->vec > 1 ? ein__kacc[i] : "acc";
        g->inner[0].text[i] = a;
        ein__put(&r->core, ein__kcombine(g, r->reduce, a, ein__kred_term(g, r, term, i).s));
        ein__put(&r->init, i ? ", " : ein__knum_type(g));
        ein__putf(&r->init, "%s%s = %s", i ? "" : " ", a, ein__kidentity(g, r->reduce));
        ein__putf(put, "part[warp][lane][%d] = %s;\n", i, a);
        ein__put(join, ein__kcombine(g, r->reduce, a, ein__namef(g->ctx, "part[w][lane][%d]", i)));
    }
    ein__put(&r->init, ";\n");
    ein__kdecompose(g, terms, r->s, r->ns, r->scan.used & ein__kmask(g, term), "found[warp][m]");
    ein__put(terms, g->code[1].s);
    ein__put(terms, r->core.s);
}

// What is known of the kernel beside a reduction's parts.
typedef struct ein__kpicked {
    ein__picks p;
    int nrow, ncolumn, row[EIN__MAX_ITERS], column[EIN__MAX_ITERS];
    const char *is;
    ein__buf asks, terms, put, join;
} ein__kpicked;

// False: there are too many of its blocks, or it is none with these vectors or indices.
static bool ein__kpicks_put(ein__kgen *g, ein__kred *r, const ein__kpicked *z, const char *hint,
                            ein__buf *out, ein__launch *l) {
    ein_ctx *c = g->ctx;
    bool shared = z->p.warps > 1;
    int64_t columns = ein__kcount_slots(g, z->column, z->ncolumn) / g->vec;
    int64_t parts = ein__ceil(columns, 32);
    int64_t groups = ein__kcount_slots(g, z->row, z->nrow) * parts;
    int64_t blocks = shared ? groups : ein__ceil(groups, EIN__PICKS_WARPS);
    int64_t turn = 32 * EIN__PICKS_AHEAD, share = ein__ceil(r->count, EIN__PICKS_WARPS);
    const char *times = ein__knumber(g, parts), *count = ein__knumber(g, r->count);
    bool fits = groups <= INT32_MAX / 32 && r->count <= INT32_MAX - EIN__PICKS_WARPS * turn;
    if (g->too_wide || g->scattered || !(fits || g->wide)) return false;
    l->threads = blocks * 32 * EIN__PICKS_WARPS;
    if (g->overflow || !ein__kgrid(c, l, blocks, 32 * EIN__PICKS_WARPS)) return true;
    ein__key keys[] = {
        {0},
        {0},
        {"number", ein__kunsigned(g)},
        {"threads", ein__namef(c, "%d", 32 * EIN__PICKS_WARPS)},
        {"warps", ein__namef(c, "%du", EIN__PICKS_WARPS)},
        {"groups", ein__knumber(g, groups)},
        {"group", ein__kgrid_id(g, shared ? 1 : EIN__PICKS_WARPS, "warp")},
        {"guard", shared ? "" : "1"},
        {"row", parts > 1 ? ein__namef(c, "group / %s", times) : "group"},
        {"lanes", parts > 1 ? ein__namef(c, "group %% %s * 32u + lane", times) : "lane"},
        {"columns", ein__knumber(g, columns)},
        {"index", r->index.s},
        {"before", g->code[0].s},
        {"init", r->init.s},
        {"first", shared ? ein__namef(c, "warp * %s", ein__knumber(g, share)) : "0u"},
        {"end",
         shared ? ein__namef(c, "min(first + %s, %s)", ein__knumber(g, share), count) : count},
        {"ahead", ein__namef(c, "%du", EIN__PICKS_AHEAD)},
        {"list", ein__namef(c, "%lld", (long long)(EIN__PICKS_LIST + turn))},
        {"least", ein__namef(c, "%du", EIN__PICKS_LIST)},
        {"asks", z->asks.s},
        {"is", z->is},
        {"terms", z->terms.s},
        {"after", r->post.s},
        {"store", r->store.s},
        {"shared", shared ? "1" : ""},
        {"T", ein__knum_type(g)},
        {"each", ein__namef(c, "%d", g->vec)},
        {"put", z->put.s},
        {"join", z->join.s}};
    ein__kfinish(g, r->out, hint, ein__tmpl_picks, keys, EIN__COUNT(keys), out, l);
    return true;
}

// One attempt at a reduction whose warps pick terms; `*fits`: whether it is one.
static bool ein__kpicks(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                        ein__launch *l, bool *fits) {
    ein__kpicked z = {.nrow = 0};
    *fits = !g->part && !g->naive && !step->sums && ein__step_picks(g->ctx, step, &z.p);
    if (!*fits) return false;
    ein__kred r = ein__kpicks_make(g, step, &z.p);
    z.nrow = ein__kpicks_slots(&r, z.p.rows, true, z.row);
    z.ncolumn = ein__kpicks_slots(&r, z.p.rows, false, z.column);
    bool ok = g->vec == 1 || ein__kvector_out(g, r.out, z.column, z.ncolumn, &r.scan);
    if (ok) {
        const ein__expr x = *ein__ex_get(g->ctx, ein__kbody(g, r.acc));
        ein__put(&z.asks, "");
        ein__put(&z.terms, "");
        if (g->vec > 1) g->vec_slot = z.column[z.ncolumn - 1];
        z.is = ein__kpicks_question(g, &r, &x, &z.asks);
        ein__kpicks_terms(g, &r, x.kid[2], &z.terms, &z.put, &z.join);
        ein__kred_store(g, &r, step);
        ein__buf_free(&r.index);
        ein__put(&r.index, "");
        ein__kdecompose(g, &r.index, z.row, z.nrow, r.scan.used, "id");
        ein__kdecompose(g, &r.index, z.column, z.ncolumn, r.scan.used, "column");
        ok = ein__kpicks_put(g, &r, &z, hint, out, l);
    }
    ein__kred_free(&r);
    ein__buf_free(&z.asks);
    ein__buf_free(&z.terms);
    ein__buf_free(&z.put);
    ein__buf_free(&z.join);
    return ok;
}
