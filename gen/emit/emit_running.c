// Running sums (running.c): a thread goes along the places of one, adds the term of each, and
// stores the sum so far or what a map makes of it.

// Scans the terms and the map behind them; the threads' slots are all but the one they go along.
static ein__kred ein__krun_make(ein__kgen *g, const ein__step *step, const ein__running *p,
                                ein__ex term) {
    ein__kred r = {.acc = step->val[0],
                   .out = step->out,
                   .reduce = EIN__R_SUM,
                   .sums = 1,
                   .scan = ein__kscan_make(g)};
    g->inner[g->ninner++] = (ein__kinner){.v = r.acc, .text = {"acc"}};
    for (int k = 1; k + 1 < step->nval; k++)
        g->inner[g->ninner++] = (ein__kinner){.v = step->val[k], .put = true};
    ein__kscan_expr(g, &r.scan, term);
    if (step->nval > 1) ein__kscan_expr(g, &r.scan, ein__kbody(g, r.out));
    ein__kscan_out(g, &r.scan, r.out);
    int along = (int)p->slot, n = ein__korder(g, r.out, r.t);
    r.scan.pinned |= 1u << along;
    r.scan.used |= 1u << along;
    for (int i = 0; i < n; i++)
        if (r.t[i] != along) r.t[r.nt++] = r.t[i];
    r.s[r.ns++] = along;
    r.nt = ein__kmerge(g, &r.scan, r.t, r.nt);
    ein__kslices_first(g, r.t, r.nt);
    r.outputs = ein__kcount_slots(g, r.t, r.nt);
    g->slot[along].level = 1;
    ein__kred_number(g, &r, term);
    ein__put(&r.index, "");
    ein__put(&r.post, "");
    return r;
}

// What a thread does at a place: `core` has all of it.
static void ein__krun_parts(ein__kgen *g, ein__kred *r, const ein__step *step, ein__ex term) {
    ein__kcount(g, term);
    for (int i = 0; i < g->vec; i++) {
        const char *acc = g->vec > 1 ? ein__kacc[i] : "acc";
        ein__put(&r->core, ein__kcombine(g, r->reduce, acc, ein__kred_term(g, r, term, i).s));
        g->inner[0].text[i] = acc;
        ein__put(&r->init, i ? ", " : ein__knum_type(g));
        ein__putf(&r->init, "%s%s = %s", i ? "" : " ", acc, ein__kidentity(g, r->reduce));
    }
    ein__put(&r->init, ";\n");
    ein__kred_store(g, r, step);
    ein__put(&r->core, r->post.s);
    ein__put(&r->core, r->store.s);
}

// Around that, the loop; loads of several places are on their way while one is added.
static void ein__krun_loop(ein__kgen *g, const ein__kred *r, ein__buf *out) {
    const ein__kslot *s = &g->slot[r->s[0]];
    ein__putf(out, "#pragma unroll %d\nfor (%s %s = 0; %s < %lld; %s++) {\n",
              EIN__RUNNING_AHEAD / g->vec, ein__kint(g), s->name, s->name, (long long)s->n,
              s->name);
    ein__kindent(out, g->code[1].s, 4);
    ein__kindent(out, r->core.s, 4);
    ein__put(out, "}\n");
}

// What a thread does in a turn of a block that goes along: its places' sums, what is before them,
// what becomes of them.
static void ein__kline_parts(ein__kgen *g, ein__kred *r, const ein__step *step, ein__ex term,
                             ein__buf *sums, ein__buf *add) {
    ein__buf terms = {0};
    const char *last = ein__kidentity(g, r->reduce);
    ein__kcount(g, term);
    for (int i = 0; i < g->vec; i++) {
        const char *acc = g->vec > 1 ? ein__kacc[i] : "acc";
        const char *text = ein__kcombine(g, r->reduce, acc, ein__kred_term(g, r, term, i).s);
        ein__putf(&terms, "%s %s = %s;\n", ein__knum_type(g), acc, last);
        ein__put(&terms, text);
        ein__put(add, ein__kcombine(g, r->reduce, acc, "before"));
        g->inner[0].text[i] = last = acc;
    }
    ein__put(sums, g->code[1].s);
    ein__put(sums, terms.s);
    ein__buf_free(&terms);
    ein__kred_store(g, r, step);
}

// The kernel whose blocks go along lines. False: there are too many of them.
static bool ein__kline_put(ein__kgen *g, ein__kred *r, const ein__step *step, ein__ex term,
                           const char *hint, ein__buf *out, ein__launch *l) {
    ein_ctx *c = g->ctx;
    ein__buf sums = {0}, add = {0};
    const ein__kslot *s = &g->slot[r->s[0]];
    ein__kline_parts(g, r, step, term, &sums, &add);
    bool ok = !g->too_wide && !g->scattered && s->n <= INT32_MAX / 2;
    ein__key keys[] = {
        {0},
        {0},
        {"number", ein__kunsigned(g)},
        {"blocks", ein__namef(c, "%lld", (long long)r->outputs)},
        {"block", ein__kblock_id(g)},
        {"index", r->index.s},
        {"before", g->code[0].s},
        {"int", ein__kint(g)},
        {"place", s->name},
        {"count", ein__namef(c, "%lld", (long long)s->n)},
        {"each", ein__namef(c, "%d", g->vec)},
        {"turn", ein__namef(c, "%d", EIN__BLOCK_THREADS * g->vec)},
        {"last", ein__namef(c, g->wide ? "%lldll" : "%lld", (long long)s->n - g->vec)},
        {"T", ein__knum_type(g)},
        {"sums", sums.s},
        {"total", g->inner[0].text[g->vec - 1]},
        {"add", add.s},
        {"after", r->post.s},
        {"store", r->store.s}};
    l->threads = r->outputs * EIN__BLOCK_THREADS;
    if (ok && !g->overflow && ein__kgrid(c, l, r->outputs, EIN__BLOCK_THREADS))
        ein__kfinish(g, r->out, hint, ein__tmpl_running, keys, EIN__COUNT(keys), out, l);
    ein__buf_free(&sums);
    ein__buf_free(&add);
    return ok;
}

// One attempt at a running sum whose threads or blocks go along; `*fits`: whether it is one.
static bool ein__krunning(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                          ein__launch *l, bool *fits) {
    const ein__scope *s = ein__scope_of(g->ctx, step->val[0]);
    int64_t stride[EIN__MAX_RANK];
    ein__running p;
    ein__ex term;
    for (uint32_t i = 0; i < s->nt; i++) stride[i] = ein__kstride(g, step->out, (int)i);
    bool along = ein__runs_along(g->ctx, s, stride, &p, &term) && !(g->sliced >> p.slot & 1);
    bool lines = !along && !g->part && !g->naive && !step->sums &&
                 ein__runs_lines(g->ctx, s, stride, &p, &term);
    *fits = along || lines;
    if (!*fits) return false;
    ein__kred r = ein__krun_make(g, step, &p, term);
    bool ok = true;
    if (lines && g->vec > 1) {
        ok = ein__kvector_out(g, r.out, r.s, 1, &r.scan);
        g->vec_slot = (int)p.slot;
    }
    if (lines) ok = ok && ein__kline_put(g, &r, step, term, hint, out, l);
    if (along && g->vec > 1) {
        ok = r.outputs / 4 >= EIN__SHARED_OUTPUTS && ein__kvector_out(g, r.out, r.t, r.nt, &r.scan);
        if (ok) g->vec_slot = r.t[r.nt - 1];
    }
    if (ok && along) {
        ein__buf loops = {0};
        ein__krun_parts(g, &r, step, term);
        ein__put(&loops, g->code[0].s);
        ein__put(&loops, r.init.s);
        ein__krun_loop(g, &r, &loops);
        ok = ein__kred_threads(g, &r, r.outputs / g->vec, loops.s, hint, out, l);
        ein__buf_free(&loops);
    }
    ein__kred_free(&r);
    return ok;
}
