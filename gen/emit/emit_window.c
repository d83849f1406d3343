// Windowed reductions with what the windows see in registers; see strip.c. The rows that a thread
// computes are a loop over `o` around what a reduction's own thread would do, with the image's read
// replaced by an element of the registers.

enum {
    EIN__WINDOW_THREADS = 512
};  // of an SM, so that their loads hide each other's latency: assumed

typedef struct ein__kwindow_tile {
    ein__strip w;
    int vec, rows;
    bool vectors;  // `vec` neighbours of the image's rows are loaded at once
    // Columns loaded, from stride * column + first on; rows loaded, of each of the planes.
    int64_t first, columns, down;
} ein__kwindow_tile;

// Whether the image's rows can be loaded `vec` elements at a time: every row begins at a multiple,
// and a vector lies inside a row or outside.
static bool ein__kwindow_aligned(const ein__kgen *g, const ein__strip *w, int vec) {
    const ein__expr *e = ein__ex_get(g->ctx, w->image);
    const ein__value *v = ein__val_get(g->ctx, (ein__val){e->val});
    bool whole = vec == 4 || (vec == 2 && v->dtype == EIN__F32);
    if (!whole || v->shape.d[w->col.dim] % vec) return false;
    if (g->ctx->plan.layout[e->val].offset % vec) return false;
    for (int d = 0; d < v->shape.rank; d++)
        if (d != w->col.dim && ein__kstride(g, (ein__val){e->val}, d) % vec) return false;
    return true;
}

static void ein__kwindow_size(ein__kwindow_tile *t) {
    const ein__strip_axis *c = &t->w.col;
    t->first = t->vectors ? ein__floordiv(c->first, t->vec) * t->vec : c->first;
    t->columns = c->first - t->first + ein__strip_span(c, t->vec);
    if (t->vectors) t->columns = (t->columns + t->vec - 1) / t->vec * t->vec;
    t->down = ein__strip_span(&t->w.row, t->rows);
}

// Columns and rows of a thread: vectors where the result has them, then as many rows as leave
// enough threads and fit the registers. False: a thread an output is better.
static bool ein__kwindow_choose(ein__kgen *g, const ein__kred *r, ein__kwindow_tile *t) {
    int64_t sms = ein__gpu_of(g->ctx)->sms;
    int vec = g->vec;
    for (t->vec = 4; t->vec > 1; t->vec /= 2) {
        g->vec = t->vec;
        if (ein__kvector_out(g, r->out, r->t, r->nt, &r->scan)) break;
    }
    g->vec = vec;
    t->vectors = t->vec > 1 && ein__kwindow_aligned(g, &t->w, t->vec);
    if (r->outputs / t->vec < sms * EIN__WINDOW_LEAST) return false;
    int64_t taps = t->w.row.taps * t->w.col.taps * t->w.deep.taps;
    // A slice of another kernel has its rows alone.
    bool sliced = t->w.row.t >= 0 && (g->sliced >> t->w.row.t & 1);
    for (t->rows = sliced ? 1 : 4; t->rows > 0; t->rows /= 2) {
        ein__kwindow_size(t);
        int64_t strips = (t->w.row.n + t->rows - 1) / t->rows;
        int64_t threads = r->outputs / t->vec / t->w.row.n * strips;
        // What vectors have of a volume beyond the windows is not kept.
        int64_t held = t->w.deep.dim >= 0 ? ein__strip_span(&t->w.col, t->vec) : t->columns;
        bool fits = t->w.deep.taps * t->down * held <= EIN__WINDOW_REGISTERS &&
                    taps * t->rows * t->vec <= 8 * EIN__WINDOW_TAPS;
        bool some = t->rows == 1 || (t->w.row.n >= t->rows && threads >= sms * EIN__WINDOW_THREADS);
        if (fits && some) return t->vec > 1 || t->rows > 1;
    }
    return false;
}

// The thread's position: columns fastest, then strips of rows, then the rest.
static void ein__kwindow_index(ein__kgen *g, const ein__kred *r, const ein__kwindow_tile *t,
                               ein__buf *b) {
    ein__kslot keep = t->w.row.t >= 0 ? g->slot[t->w.row.t] : (ein__kslot){0};
    if (t->rows > 1) {
        g->slot[t->w.row.t].name = "strip";
        g->slot[t->w.row.t].n = (keep.n + t->rows - 1) / t->rows;
    }
    ein__kdecompose(g, b, r->t, r->nt, ~0u, "id");
    if (t->rows > 1) g->slot[t->w.row.t] = keep;
}

// Row and column that register x[j][k] holds, from the thread's position.
static void ein__kwindow_place(ein__kgen *g, const ein__kwindow_tile *t, ein__klin *y,
                               ein__klin *x) {
    const ein__strip_axis *row = &t->w.row, *col = &t->w.col;
    ein__ktext slot = {g->slot[col->t].name, EIN__NAMED, 0}, k = {"k", EIN__NAMED, 0},
               j = {"j", EIN__NAMED, 0}, strip = {"strip", EIN__NAMED, 0};
    *x = (ein__klin){.c = t->first};
    *y = (ein__klin){.c = row->first};
    ein__klin_add(g, x, (ein__kterm){col->stride, slot, 0, 1, g->slot[col->t].n});
    ein__klin_add(g, x, (ein__kterm){1, k, 0, 1, t->columns});
    if (t->rows > 1) ein__klin_add(g, y, (ein__kterm){row->stride * t->rows, strip, 0, 1, row->n});
    else if (row->t >= 0 && !g->slot[row->t].gone)
        ein__klin_add(
            g, y, (ein__kterm){row->stride, {g->slot[row->t].name, EIN__NAMED, 0}, 0, 1, row->n});
    ein__klin_add(g, y, (ein__kterm){1, j, 0, 1, t->down});
}

// The test that row t0 and column t1 lie inside, empty where they always do. The furthest that a
// thread looks counts; rows beyond the last strip's are among them.
static void ein__kwindow_guard(ein__kgen *g, const ein__kwindow_tile *t, int64_t h, int64_t w,
                               ein__buf *guard) {
    const ein__strip_axis *row = &t->w.row, *col = &t->w.col;
    ein__klin down = {.n = 1, .t[0] = {1, {"t0", EIN__NAMED, 0}, 0, 1, h}};
    ein__klin across = {.n = 1, .t[0] = {1, {"t1", EIN__NAMED, 0}, 0, 1, w}};
    int64_t beyond = row->first + ein__strip_span(row, (row->n + t->rows - 1) / t->rows * t->rows);
    int64_t right = t->first + (col->n - t->vec) * col->stride + t->columns;
    bool top = row->first < 0, bottom = row->dim >= 0 && beyond > h;
    bool left = t->first < 0, end = w < right;
    if (top || bottom)
        ein__putf(guard, "%s%s", guard->n ? " && " : "", ein__kwithin(g, down, 0, h, top, bottom));
    if (left || end)
        ein__putf(guard, "%s%s", guard->n ? " && " : "", ein__kwithin(g, across, 0, w, left, end));
}

// The statement that loads x[j][k], or as many from there on as a vector has.
static void ein__kwindow_fetch(ein__kgen *g, const ein__kwindow_tile *t, const ein__kaccess *at,
                               const char *guard, const char *pad, ein__buf *b) {
    ein_ctx *ctx = g->ctx;
    const char *x = t->w.deep.dim >= 0 ? "x[d][j]" : "x[j]";
    if (!t->vectors) {
        const char *s = ein__kload(g, at, 0).s;
        if (guard) s = ein__namef(ctx, "%s ? %s : %s", guard, s, pad);
        ein__putf(b, "        %s[k] = %s;\n", x, s);
        return;
    }
    g->vec = t->vec;
    const char *s = ein__kload4(g, at);
    if (guard) s = ein__namef(ctx, "%s ? %s : %s", guard, s, ein__kfill(g, pad));
    ein__putf(b, "        const %s v = %s;\n", ein__kvec_type(g), s);
    for (int i = 0; i < t->vec; i++)
        ein__putf(b, "        %s[k%s] = v.%s;\n", x, i ? ein__namef(ctx, " + %d", i) : "",
                  ein__klane[i]);
}

// The plane of tap d that the thread's windows see, as t2, and the test that it lies inside, empty
// where it always does.
static void ein__kwindow_plane(ein__kgen *g, const ein__strip_axis *deep, int64_t n, ein__buf *b,
                               ein__buf *guard) {
    ein__klin z = {.c = deep->first};
    ein__ktext slot = {g->slot[deep->t].name, EIN__NAMED, 0}, tap = {"d", EIN__NAMED, 0};
    if (!g->slot[deep->t].gone)
        ein__klin_add(g, &z, (ein__kterm){deep->stride, slot, 0, 1, deep->n});
    ein__klin_add(g, &z, (ein__kterm){deep->dilation, tap, 0, 1, deep->taps});
    ein__putf(b, "    const %s t2 = %s;\n", ein__kint(g), ein__klin_text(g, &z, 0).s);
    ein__klin at = {.n = 1, .t[0] = {1, {"t2", EIN__NAMED, 0}, 0, 1, n}};
    bool front = deep->first < 0;
    bool back = deep->first + (deep->n - 1) * deep->stride + ein__strip_span(deep, 1) > n;
    if (front || back) ein__put(guard, ein__kwithin(g, at, 0, n, front, back));
}

// Loads of the registers: x[j][k] is what lies at row j and column k from the first ones, in `l`
// where these are 0.
static void ein__kwindow_rows(ein__kgen *g, const ein__kwindow_tile *t, ein__klin *l, ein__buf *b,
                              ein__buf *guard) {
    const ein__expr *e = ein__ex_get(g->ctx, t->w.image);
    const ein__strip_axis *row = &t->w.row, *col = &t->w.col;
    const ein__val of = {e->val};
    const ein__shape *shape = &ein__val_get(g->ctx, of)->shape;
    ein__kaccess at = {.param = ein__kparam(g, of), .dtype = ein__kdtype(g, of)};
    ein__klin x, y;
    ein__kwindow_place(g, t, &y, &x);
    int64_t h = row->dim >= 0 ? shape->d[row->dim] : 1, w = shape->d[col->dim];
    const char *type = ein__kint(g);
    ein__put(b, "#pragma unroll\n");
    ein__putf(b, "for (int j = 0; j < %lld; j++) {\n", (long long)t->down);
    if (row->dim >= 0) ein__putf(b, "    const %s t0 = %s;\n", type, ein__klin_text(g, &y, 0).s);
    ein__put(b, "#pragma unroll\n");
    ein__putf(b, "    for (int k = 0; k < %lld; k%s) {\n", (long long)t->columns,
              t->vectors ? ein__namef(g->ctx, " += %d", t->vec) : "++");
    ein__putf(b, "        const %s t1 = %s;\n", type, ein__klin_text(g, &x, 0).s);
    ein__kwindow_guard(g, t, h, w, guard);
    if (row->dim >= 0) {
        ein__kterm down = {ein__kstride(g, of, row->dim), {"t0", EIN__NAMED, 0}, 0, 1, h};
        ein__klin_add(g, l, down);
    }
    ein__klin_add(g, l, (ein__kterm){1, {"t1", EIN__NAMED, 0}, 0, 1, w});
    at.at = ein__klin_text(g, l, 0);
    ein__kwindow_fetch(g, t, &at, guard->n ? guard->s : NULL, ein__kliteral(g, ein__kbits(e)).s, b);
    ein__put(b, "    }\n}\n");
}

// The same, and of volumes x[d][j][k] for the planes under the taps.
static bool ein__kwindow_load(ein__kgen *g, const ein__kwindow_tile *t, ein__buf *b) {
    const ein__expr *e = ein__ex_get(g->ctx, t->w.image);
    const ein__strip_axis *row = &t->w.row, *col = &t->w.col, *deep = &t->w.deep;
    const ein__val of = {e->val};
    const ein__shape *shape = &ein__val_get(g->ctx, of)->shape;
    ein__klin l = {0};
    ein__kform f = {0};
    ein__buf guard = {0}, rows = {0};
    for (int d = 0; d < shape->rank; d++)
        if (d != row->dim && d != col->dim && d != deep->dim)
            ein__kform_add(g, &f, ein__kstride(g, of, d), e->ix[d]);
    ein__kform_recombine(g, &f);
    ein__kform_lower(g, &l, &f, 0);
    if (deep->dim < 0) {
        ein__kwindow_rows(g, t, &l, b, &guard);
    } else {
        int64_t n = shape->d[deep->dim];
        ein__put(b, "#pragma unroll\n");
        ein__putf(b, "for (int d = 0; d < %lld; d++) {\n", (long long)deep->taps);
        ein__kwindow_plane(g, deep, n, b, &guard);
        ein__kterm plane = {ein__kstride(g, of, deep->dim), {"t2", EIN__NAMED, 0}, 0, 1, n};
        ein__klin_add(g, &l, plane);
        ein__kwindow_rows(g, t, &l, &rows, &guard);
        ein__kindent(b, rows.s, 4);
        ein__put(b, "}\n");
    }
    ein__buf_free(&guard);
    ein__buf_free(&rows);
    return !g->too_wide;
}

// `name * k + c`, shortened.
static const char *ein__kwindow_at(ein__kgen *g, const ein__strip_axis *a, const char *outer,
                                   int64_t c) {
    ein__klin l = {.c = c};
    if (outer) ein__klin_add(g, &l, (ein__kterm){a->stride, {outer, EIN__NAMED, 0}, 0, 1, a->n});
    if (a->k >= 0 && !g->slot[a->k].gone)
        ein__klin_add(
            g, &l, (ein__kterm){a->dilation, {g->slot[a->k].name, EIN__NAMED, 0}, 0, 1, a->taps});
    return ein__klin_text(g, &l, 0).s;
}

// One row: its position and, where the last strip is not whole, whether it exists.
static void ein__kwindow_row(ein__kgen *g, ein__kred *r, const ein__kwindow_tile *t, ein__buf *b) {
    const ein__strip_axis *row = &t->w.row;
    ein__buf body = {0};
    if (t->rows > 1) {
        const char *name = g->slot[row->t].name;
        ein__putf(b, "const %s %s = strip * %d + o;\n", ein__kint(g), name, t->rows);
        if (row->n % t->rows) ein__putf(b, "if (%s >= %lld) break;\n", name, (long long)row->n);
    }
    ein__put(&body, g->code[0].s);
    ein__put(&body, r->init.s);
    ein__kloops(g, &body, r->s, r->ns, 1, r->core.s);
    ein__put(&body, r->post.s);
    ein__put(&body, r->store.s);
    ein__put(b, body.s);
    ein__buf_free(&body);
}

static bool ein__kwindow_put(ein__kgen *g, ein__kred *r, ein__kwindow_tile *t,
                             const ein__step *step, const char *hint, ein__buf *out,
                             ein__launch *l) {
    ein_ctx *c = g->ctx;
    ein__buf index = {0}, load = {0}, rows = {0};
    g->vec = t->vec;
    // Of several rows, nvcc takes the first one's vector apart unless its address is a vector's.
    g->whole = t->rows > 1;
    if (t->vec > 1) g->vec_slot = r->t[r->nt - 1];
    const ein__strip_axis *deep = &t->w.deep;
    bool volume = deep->dim >= 0;
    const char *plane = "";
    if (volume) plane = ein__namef(c, "[%s]", g->slot[deep->k].gone ? "0" : g->slot[deep->k].name);
    g->over[g->nover].ex = t->w.image;
    g->over[g->nover].text = (ein__ktext){"", EIN__PRIMARY, r->ns};
    for (int i = 0; i < t->vec; i++)
        g->over[g->nover].lane[i] = ein__namef(
            c, "x%s[%s][%s]", plane, ein__kwindow_at(g, &t->w.row, t->rows > 1 ? "o" : NULL, 0),
            ein__kwindow_at(g, &t->w.col, NULL, i * t->w.col.stride + t->w.col.first - t->first));
    g->nover++;
    bool ok = ein__kwindow_load(g, t, &load);
    g->vec = t->vec;
    ein__kwindow_index(g, r, t, &index);
    ein__kred_parts(g, r, step, true);
    ein__kwindow_row(g, r, t, &rows);
    int64_t strips = (t->w.row.n + t->rows - 1) / t->rows;
    int64_t threads = r->outputs / t->vec / t->w.row.n * strips;
    ok = ok && !g->too_wide && (threads <= INT32_MAX || g->wide);
    const char *planes = volume ? ein__namef(c, "[%lld]", (long long)deep->taps) : "";
    const char *tile =
        ein__namef(c, "x%s[%lld][%lld]", planes, (long long)t->down, (long long)t->columns);
    ein__key keys[] = {[EIN__THREAD_KEYS] = {"tile", tile},
                       {"load", load.s},
                       {"rows", t->rows > 1 ? ein__namef(c, "%d", t->rows) : ""},
                       {"row", rows.s}};
    if (ok && !g->overflow && ein__kthreads(g, threads, index.s, keys, l))
        ein__kfinish(g, r->out, hint, ein__tmpl_window, keys, EIN__COUNT(keys), out, l);
    ein__buf_free(&index);
    ein__buf_free(&load);
    ein__buf_free(&rows);
    return ok;
}

// One attempt at a reduction, along its places or by windows where it has such; false: try again
// without vectors or with 64-bit indices.
static bool ein__kwindow(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                         ein__launch *l) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    int64_t stride[EIN__MAX_RANK];
    ein__kwindow_tile t = {.vec = 1};
    for (uint32_t i = 0; i < s->nt; i++) stride[i] = ein__kstride(g, step->out, (int)i);
    bool wide = g->wide, found;
    bool done = ein__krunning(g, step, hint, out, l, &found);
    if (!found) done = ein__kpicks(g, step, hint, out, l, &found);
    if (!found) done = ein__klast(g, step, hint, out, l, &found);
    if (found) return done;
    if (g->vec == 1 || !ein__match_strip(g->ctx, s, stride, &t.w))
        return ein__kreduce(g, step, hint, out, l);
    ein__kred r = ein__kred_make(g, step, &t.w);
    bool fits = g->num == EIN__NUM_FLOAT && ein__kwindow_choose(g, &r, &t);
    bool ok = fits && ein__kwindow_put(g, &r, &t, step, hint, out, l);
    ein__kred_free(&r);
    if (fits) return ok;
    ein__krestart(g, step->val[0], wide, g->vec);
    return ein__kreduce(g, step, hint, out, l);
}
