// Windowed reductions with channels last (strip.c): four channels and a strip of columns a thread,
// a row of the windows at a time in registers.

typedef struct ein__klast_strip {
    ein__strip w;
    int lane, columns;
    int64_t span;  // of a row, under a strip
} ein__klast_strip;

// Whether four channels of the image are a vector wherever they are read.
static bool ein__klast_aligned(const ein__kgen *g, const ein__strip *w) {
    const ein__expr *e = ein__ex_get(g->ctx, w->image);
    const ein__shape *shape = &ein__val_get(g->ctx, (ein__val){e->val})->shape;
    bool aligned = g->ctx->plan.layout[e->val].offset % 4 == 0;
    for (int d = 0; d < shape->rank; d++) {
        int64_t stride = ein__kstride(g, (ein__val){e->val}, d);
        aligned &= shape->d[d] == 1 || stride == 1 || stride % 4 == 0;
    }
    return aligned;
}

// Whether data and result have vectors of channels, and there are threads enough.
static bool ein__klast_choose(const ein__kgen *g, const ein__kred *r, ein__klast_strip *z) {
    if (!ein__klast_aligned(g, &z->w) || g->num != EIN__NUM_FLOAT || !r->nt ||
        r->t[r->nt - 1] != z->lane || !ein__kvector_out(g, r->out, r->t, r->nt, &r->scan))
        return false;
    z->columns = ein__last_columns(g->ctx, &z->w, r->outputs);
    z->span = ein__strip_span(&z->w.col, z->columns);
    return z->columns > 0;
}

// stride * `of` (or times `many`) + dilation * `tap` + first: a position on an axis of the image.
static ein__klin ein__klast_place(const ein__strip_axis *a, const char *of, int many,
                                  const char *tap, int64_t step, int64_t taps) {
    ein__klin l = {.c = a->first};
    if (of) l.t[l.n++] = (ein__kterm){a->stride * many, {of, EIN__NAMED, 0}, 0, 1, a->n};
    if (tap) l.t[l.n++] = (ein__kterm){step, {tap, EIN__NAMED, 0}, 0, 1, taps};
    return l;
}

// The statements that fill x with a row of the image, from t0 and the strip's first column on.
static void ein__klast_load(ein__kgen *g, const ein__klast_strip *z, ein__buf *b) {
    const ein__expr *e = ein__ex_get(g->ctx, z->w.image);
    const ein__strip_axis *row = &z->w.row, *col = &z->w.col;
    const ein__val of = {e->val};
    const ein__shape *shape = &ein__val_get(g->ctx, of)->shape;
    ein__kaccess at = {.param = ein__kparam(g, of), .dtype = ein__kdtype(g, of)};
    ein__kform f = {0};
    ein__klin l = {0};
    const char *type = ein__kint(g), *guard = "";
    for (int d = 0; d < shape->rank; d++)
        if (d != row->dim && d != col->dim) ein__kform_add(g, &f, ein__kstride(g, of, d), e->ix[d]);
    ein__kform_recombine(g, &f);
    ein__kform_lower(g, &l, &f, 0);
    if (row->dim >= 0) {
        int64_t h = shape->d[row->dim];
        const char *slot = g->slot[row->t].gone ? NULL : g->slot[row->t].name;
        const char *tap = row->k < 0 || g->slot[row->k].gone ? NULL : g->slot[row->k].name;
        ein__klin y = ein__klast_place(row, slot, 1, tap, row->dilation, row->taps);
        ein__putf(b, "const %s t0 = %s;\n", type, ein__klin_text(g, &y, 0).s);
        ein__kterm down = {ein__kstride(g, of, row->dim), {"t0", EIN__NAMED, 0}, 0, 1, h};
        ein__klin_add(g, &l, down);
        bool top = row->first < 0;
        bool bottom = row->first + ein__strip_span(row, row->n) > h;
        ein__klin t0 = {.n = 1, .t[0] = {1, {"t0", EIN__NAMED, 0}, 0, 1, h}};
        if (top || bottom) guard = ein__kwithin(g, t0, 0, h, top, bottom);
    }
    int64_t w = shape->d[col->dim];
    bool left = col->first < 0;
    bool right = col->first + ein__strip_span(col, ein__ceil(col->n, z->columns) * z->columns) > w;
    ein__klin x = ein__klast_place(col, "strip", z->columns, "k", 1, z->span);
    ein__klin t1 = {.n = 1, .t[0] = {1, {"t1", EIN__NAMED, 0}, 0, 1, w}};
    if (left || right)
        guard = ein__namef(g->ctx, "%s%s%s", guard, *guard ? " && " : "",
                           ein__kwithin(g, t1, 0, w, left, right));
    ein__klin_add(g, &l,
                  (ein__kterm){ein__kstride(g, of, col->dim), {"t1", EIN__NAMED, 0}, 0, 1, w});
    at.at = ein__klin_text(g, &l, 0);
    const char *v = ein__kload4(g, &at), *pad = ein__kfill(g, ein__kliteral(g, ein__kbits(e)).s);
    ein__putf(b, "float4 x[%lld];\n#pragma unroll\n", (long long)z->span);
    ein__putf(b, "for (int k = 0; k < %lld; k++) {\n    const %s t1 = %s;\n", (long long)z->span,
              type, ein__klin_text(g, &x, 0).s);
    ein__putf(b, *guard ? "    x[k] = %s ? %s : %s;\n}\n" : "    x[k] = %s%s;\n}\n",
              *guard ? guard : "", v, pad);
}

// The loop of an axis' taps around `text`, unrolled; `code`: what is known there alone.
static void ein__klast_loop(ein__kgen *g, const ein__strip_axis *a, const char *code,
                            const char *text, ein__buf *out) {
    bool loop = a->k >= 0 && !g->slot[a->k].gone;
    if (loop)
        ein__putf(out, "#pragma unroll\nfor (%s %s = 0; %s < %lld; %s++) {\n", ein__kint(g),
                  g->slot[a->k].name, g->slot[a->k].name, (long long)a->taps, g->slot[a->k].name);
    ein__kindent(out, code, loop ? 4 : 0);
    ein__kindent(out, text, loop ? 4 : 0);
    if (loop) ein__put(out, "}\n");
}

// Sums over the windows of all columns: levels 1 and 2 are the rows and columns of taps, 3 a column
// of the strip.
static void ein__klast_taps(ein__kgen *g, const ein__kred *r, const ein__klast_strip *z,
                            ein__buf *out) {
    const ein__strip_axis *col = &z->w.col;
    ein__buf load = {0}, core = {0}, inner = {0};
    ein__klast_load(g, z, &load);
    ein__klin at = {0};
    ein__klin_add(g, &at, (ein__kterm){col->stride, {"o", EIN__NAMED, 0}, 0, 1, col->n});
    if (col->k >= 0 && !g->slot[col->k].gone)
        ein__klin_add(
            g, &at,
            (ein__kterm){col->dilation, {g->slot[col->k].name, EIN__NAMED, 0}, 0, 1, col->taps});
    const char *x = ein__klin_text(g, &at, 0).s;
    g->over[g->nover].ex = z->w.image;
    g->over[g->nover].text = (ein__ktext){"", EIN__PRIMARY, 3};
    for (int l = 0; l < 4; l++)
        g->over[g->nover].lane[l] = ein__namef(g->ctx, "x[%s].%s", x, ein__klane[l]);
    g->nover++;
    ein__ex body = ein__kbody(g, r->acc);
    ein__kcount(g, body);
    ein__buf sums = {0};
    for (int l = 0; l < 4; l++)
        ein__put(&sums, ein__kcombine(g, r->reduce, ein__namef(g->ctx, "acc[o][%d]", l),
                                      ein__kvalue(g, body, l).s));
    ein__putf(&core, "#pragma unroll\nfor (int o = 0; o < %d; o++) {\n", z->columns);
    ein__kindent(&core, g->code[3].s, 4);
    ein__kindent(&core, sums.s, 4);
    ein__put(&core, "}\n");
    ein__klast_loop(g, col, g->code[2].s, core.s, &inner);
    ein__put(&load, inner.s);
    ein__klast_loop(g, &z->w.row, g->code[1].s, load.s, out);
    ein__buf_free(&load);
    ein__buf_free(&core);
    ein__buf_free(&inner);
    ein__buf_free(&sums);
}

// A column's position, epilogue and store.
static void ein__klast_store(ein__kgen *g, ein__kred *r, const ein__klast_strip *z,
                             const ein__step *step, ein__buf *out) {
    ein__ktext value[4];
    ein__buf body = {0};
    const char *name = g->slot[z->w.col.t].name;
    ein__put(&body, "");
    ein__putf(out, "const %s %s = strip * %d + o;\n", ein__kint(g), name, z->columns);
    if (z->w.col.n % z->columns)
        ein__putf(out, "if (%s >= %lld) break;\n", name, (long long)z->w.col.n);
    g->post = &body;
    for (int l = 0; l < 4; l++) g->inner[0].text[l] = ein__namef(g->ctx, "acc[o][%d]", l);
    if (step->nval > 1) ein__kcount(g, ein__kbody(g, r->out));
    for (int l = 0; l < 4; l++) {
        value[l] = (ein__ktext){g->inner[0].text[l], EIN__PRIMARY, 0};
        if (step->nval > 1) value[l] = ein__kvalue(g, ein__kbody(g, r->out), l);
    }
    ein__kstore(g, &r->store, r->out, &r->scan, value);
    g->post = NULL;
    ein__put(out, body.s);
    ein__put(out, r->store.s);
    ein__buf_free(&body);
}

static bool ein__klast_put(ein__kgen *g, ein__kred *r, ein__klast_strip *z, const ein__step *step,
                           const char *hint, ein__buf *out, ein__launch *l) {
    ein__buf index = {0}, taps = {0}, column = {0};
    const ein__strip_axis *row = &z->w.row, *col = &z->w.col;
    if (row->k >= 0) g->slot[row->k].level = 1;
    if (col->k >= 0) g->slot[col->k].level = 2;
    g->vec_slot = z->lane;
    ein__kslot keep = g->slot[col->t];
    g->slot[col->t].name = "strip";
    g->slot[col->t].n = ein__ceil(col->n, z->columns);
    int64_t threads = ein__kcount_slots(g, r->t, r->nt) / 4;
    ein__kdecompose(g, &index, r->t, r->nt, ~0u, "id");
    g->slot[col->t] = keep;
    ein__klast_taps(g, r, z, &taps);
    ein__klast_store(g, r, z, step, &column);
    bool zero = r->reduce == EIN__R_SUM;
    bool ok = !g->too_wide && !g->scattered && (threads <= INT32_MAX || g->wide);
    ein__put(&index, g->code[0].s);
    ein__key keys[] = {[EIN__THREAD_KEYS] = {"columns", ein__namef(g->ctx, "%d", z->columns)},
                       {"begin", zero ? "" : ein__kidentity(g, r->reduce)},
                       {"taps", taps.s},
                       {"column", column.s}};
    if (ok && !g->overflow && ein__kthreads(g, threads, index.s, keys, l))
        ein__kfinish(g, r->out, hint, ein__tmpl_window_last, keys, EIN__COUNT(keys), out, l);
    ein__buf_free(&index);
    ein__buf_free(&taps);
    ein__buf_free(&column);
    return ok;
}

// One attempt at a reduction over windows with channels last; `*fits`: whether it is one.
static bool ein__klast(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                       ein__launch *l, bool *fits) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    int64_t stride[EIN__MAX_RANK];
    ein__klast_strip z = {.columns = 0};
    for (uint32_t i = 0; i < s->nt; i++) stride[i] = ein__kstride(g, step->out, (int)i);
    *fits = g->vec == 4 && ein__match_last(g->ctx, s, stride, &z.w, &z.lane) &&
            !(g->sliced >> z.w.col.t & 1);
    if (!*fits) return false;
    bool wide = g->wide;
    ein__kred r = ein__kred_make(g, step, &z.w);
    *fits = ein__klast_choose(g, &r, &z);
    bool ok = *fits && ein__klast_put(g, &r, &z, step, hint, out, l);
    ein__kred_free(&r);
    if (!*fits) ein__krestart(g, step->val[0], wide, 4);
    return ok;
}
