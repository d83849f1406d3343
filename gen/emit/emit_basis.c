// Small constant transforms: a thread loads one tile into registers, transforms it along one axis
// after the other with the matrices' numbers in the text, and stores all of it, the epilogue
// included. Neighbouring threads take neighbouring tiles of whichever side moves more data.

// The kernel's own iterators: tiles (one a thread), then the sums and the rows, which are loops
// over the tile in registers.
typedef struct ein__ktile {
    ein__basis b;
    int nt, t[EIN__MAX_ITERS];     // slots of the tiles, in the threads' order
    int cols[3], rows[3];          // slots of the loops
    ein__ix map[EIN__MAX_ITERS];   // the definition's iterators in the kernel's
    ein__ex read, epilogue;        // what is loaded; none: the tile is stored as it is
    ein__ix to[EIN__MAX_RANK];     // where an element goes
    int64_t coef[EIN__MAX_ITERS];  // strides by which the threads are ordered
} ein__ktile;

static ein__ix ein__ktile_slot(ein__kgen *g, int *count, int64_t n, const char *letter, int number,
                               int level) {
    int slot = (*count)++;
    if (slot >= EIN__MAX_ITERS) return ein__ix_overflow(g->ctx);
    g->slot[slot] = (ein__kslot){
        .name = ein__namef(g->ctx, "%s%d", letter, number), .n = n, .level = level, .gone = n == 1};
    return ein__ix_iter(g->ctx, (uint32_t)slot, n);
}

// Renames the definition's iterators: a row that is a digit, x mod m, becomes a loop of its own
// beside the tile's place x / m.
static bool ein__ktile_slots(ein__kgen *g, const ein__scope *s, ein__ktile *z) {
    ein_ctx *ctx = g->ctx;
    ein__ix row[EIN__MAX_ITERS] = {{0}};
    uint32_t slices = 0;
    int count = 0, at[EIN__MAX_RANK];
    memcpy(at, g->slice_at, sizeof at);
    for (uint32_t i = 0; i < s->nt; i++) {
        const ein__basis_axis *a = NULL;
        for (int k = 0; k < z->b.n; k++)
            if (z->b.axis[k].slot == i) a = &z->b.axis[k];
        if (a && !a->digit) continue;
        for (int k = 0; k < g->nslice; k++)
            if (at[k] == (int)i) slices |= 1u << (g->slice_at[k] = count);
        int64_t m = a ? a->rows : 1;
        if (s->n[i] > m) z->t[z->nt++] = count;
        z->map[i] = ein__ktile_slot(g, &count, (s->n[i] + m - 1) / m, "i", (int)i, 0);
        z->map[i] = ein__ix_scale(ctx, z->map[i], m);
    }
    for (int k = 0; k < z->b.n; k++) {
        const ein__basis_axis *a = &z->b.axis[k];
        z->cols[k] = count;
        z->map[a->sum] = ein__ktile_slot(g, &count, a->cols, "r", k, k + 1);
    }
    for (int k = 0; k < z->b.n; k++) {
        const ein__basis_axis *a = &z->b.axis[k];
        z->rows[k] = count;
        row[k] = ein__ktile_slot(g, &count, a->digit ? a->rows : s->n[a->slot], "o", k, k + 1);
        z->map[a->slot] = a->digit ? ein__ix_add(ctx, z->map[a->slot], row[k]) : row[k];
    }
    g->sliced = slices;
    return !ctx->status;
}

// Threads go along what the side with more elements has side by side.
static void ein__ktile_order(ein__kgen *g, ein__ktile *z, ein__val out) {
    int64_t rows = 1, cols = 1;
    for (int k = 0; k < z->b.n; k++) {
        rows *= g->slot[z->rows[k]].n;
        cols *= g->slot[z->cols[k]].n;
    }
    const ein__expr *x = ein__ex_get(g->ctx, z->read);
    ein__val v = rows >= cols || x->op != EIN__X_READ ? out : (ein__val){x->val};
    const ein__ix *ix = v.i == out.i ? z->to : x->ix;
    for (int d = 0; d < ein__val_get(g->ctx, v)->shape.rank; d++) {
        const ein__index *f = ein__ix_get(g->ctx, ix[d]);
        for (uint32_t k = 0; k < f->n; k++) {
            const ein__atom *a = ein__atom_get(g->ctx, f->t[k].atom);
            if (a->kind == EIN__ITER)
                z->coef[a->slot] += ein__kmul(g, ein__kstride(g, v, d), f->t[k].k);
        }
    }
    for (int i = 1; i < z->nt; i++)
        for (int j = i; j > 0 && z->coef[z->t[j - 1]] < z->coef[z->t[j]]; j--) {
            int swap = z->t[j];
            z->t[j] = z->t[j - 1];
            z->t[j - 1] = swap;
        }
    ein__kslices_first(g, z->t, z->nt);
}

static bool ein__ktile_make(ein__kgen *g, const ein__step *step, ein__ktile *z) {
    ein_ctx *ctx = g->ctx;
    const ein__scope *s = ein__sc_get(ctx, ein__val_get(ctx, step->val[0])->scope);
    *z = (ein__ktile){0};
    if (!ein__match_basis(ctx, s, &z->b) || !ein__ktile_slots(g, s, z)) return false;
    z->read = ein__ex_subst(ctx, z->b.read, z->map, (int)(s->nt + s->ns));
    if (step->nval > 1)
        z->epilogue = ein__ex_subst(ctx, ein__kbody(g, step->out), z->map, (int)s->nt);
    for (uint32_t d = 0; d < s->nt; d++) z->to[d] = z->map[d];
    if (!z->read.i || (step->nval > 1 && !z->epilogue.i)) return false;
    ein__ktile_order(g, z, step->out);
    return true;
}

static int64_t ein__ktile_side(const ein__ktile *z, int k) {
    const ein__basis_axis *a = &z->b.axis[k];
    return a->rows > a->cols ? a->rows : a->cols;
}

// "[r0][r1]" of the tile, with the names of slots.
static const char *ein__ktile_at(ein__kgen *g, const ein__ktile *z, const int *slot) {
    ein__buf b = {0};
    ein__put(&b, "d");
    for (int k = 0; k < z->b.n; k++)
        ein__putf(&b, "[%s]", g->slot[slot[k]].n == 1 ? "0" : g->slot[slot[k]].name);
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

static void ein__ktile_load(ein__kgen *g, const ein__ktile *z, ein__buf *load) {
    ein__buf core = {0};
    ein__kcount(g, z->read);
    ein__ktext v = ein__kvalue(g, z->read, 0);
    ein__putf(&core, "%s = %s;\n", ein__ktile_at(g, z, z->cols), v.s);
    ein__put(load, g->code[0].s);
    ein__kloops(g, load, z->cols, z->b.n, 1, core.s);
    ein__buf_free(&core);
    // Names inside of the loops end with them; what does not depend on them stays.
    ein__kforget(g, 1);
}

static const char *ein__kstep_text(ein__kgen *g, int64_t k) {
    return k > 1 ? ein__namef(g->ctx, "%lld * step", (long long)k) : k ? "step" : "0";
}

static void ein__kmatrix_row(ein__kgen *g, const double *entry, int64_t n, ein__buf *line) {
    bool first = true;
    for (int64_t u = 0; u < n; u++) {
        double v = entry[u], size = v < 0 ? -v : v;
        if (v == 0) continue;
        ein__put(line, v < 0 ? first ? " -" : " - " : first ? " " : " + ");
        if (size != 1) ein__putf(line, "%s * ", ein__kliteral(g, size).s);
        ein__putf(line, "s%lld", (long long)u);
        first = false;
    }
    ein__put(line, first ? " 0.f;" : ";");
}

// The function that applies one axis's matrix to a line of the tile; gives its name.
static const char *ein__ktile_matrix(ein__kgen *g, const ein__basis_axis *a, const double *entry,
                                     ein__launch *l) {
    ein__buf b = {0};
    for (int64_t u = 0; u < a->cols; u++) {
        bool used = false;
        for (int64_t i = 0; i < a->rows; i++) used |= entry[i * a->cols + u] != 0;
        if (used)
            ein__putf(&b, "    const float s%lld = d[%s];\n", (long long)u, ein__kstep_text(g, u));
    }
    for (int64_t i = 0; i < a->rows; i++) {
        ein__buf line = {0};
        ein__putf(&line, "    d[%s] =", ein__kstep_text(g, i));
        ein__kmatrix_row(g, entry + i * a->cols, a->cols, &line);
        ein__tmpl_line(&b, line.s, line.n);
        ein__buf_free(&line);
    }
    uint64_t h = ein__fnv(EIN__FNV_START, b.s, b.n);
    const char *name = ein__namef(g->ctx, "basis_%08x", (unsigned)((h ^ h >> 32) & 0xffffffffu));
    l->about[l->ndevice][0] = a->table;
    l->device[l->ndevice++] =
        ein__namef(g->ctx, "static __device__ __forceinline__ void %s(float *d, int step) {\n%s}\n",
                   name, b.s);
    ein__buf_free(&b);
    return name;
}

// Along every axis in turn: those before are rows already, those behind still columns.
static bool ein__ktile_transform(ein__kgen *g, const ein__ktile *z, ein__buf *b, ein__launch *l) {
    for (int k = 0; k < z->b.n; k++) {
        double entry[EIN__TABLE_EXTENT * EIN__TABLE_EXTENT];
        if (!ein__table_entries(g->ctx, z->b.axis[k].table, entry)) return false;
        ein__buf at = {0}, text = {0};
        int loop[3], n = 0;
        int64_t step = 1;
        ein__put(&at, "");
        for (int j = 0; j < z->b.n; j++) {
            int slot = j < k ? z->rows[j] : z->cols[j];
            if (j > k) step *= ein__ktile_side(z, j);
            ein__putf(&at, "[%s]", j == k || g->slot[slot].n == 1 ? "0" : g->slot[slot].name);
            if (j != k) loop[n++] = slot;
        }
        ein__putf(&text, "%s(&d%s, %lld);\n", ein__ktile_matrix(g, &z->b.axis[k], entry, l), at.s,
                  (long long)step);
        for (int j = 1; j < EIN__KLEVELS; j++)
            if (g->code[j].s) g->code[j].s[g->code[j].n = 0] = 0;
        if (n) ein__kloops(g, b, loop, n, 1, text.s);
        else ein__put(b, text.s);
        ein__buf_free(&at);
        ein__buf_free(&text);
    }
    return true;
}

// The widest vectors of neighbours that the last loop's elements make in the result: their number,
// with the lanes set up for it; 1: none.
static int ein__ktile_lanes(ein__kgen *g, const ein__step *step, const ein__ktile *z) {
    int slot = z->rows[z->b.n - 1];
    const ein__value *out = ein__val_get(g->ctx, step->out);
    int64_t offset = g->ctx->plan.layout[step->out.i].offset;
    for (g->vec = 4; g->vec > 1; g->vec /= 2) {
        ein__kform f = {0};
        ein__klin l;
        l.c = l.n = l.uneven = l.apart = 0;
        if (out->dtype != EIN__F32 || g->slot[slot].n % g->vec) continue;
        g->vec_slot = slot;
        g->slot[slot].gone = g->slot[slot].n == g->vec;
        bool ok = offset % g->vec == 0;
        for (int d = 0; d < out->shape.rank; d++) {
            int64_t stride = ein__kstride(g, step->out, d);
            ein__klin one = ein__klin_of(g, z->to[d], 0);
            bool whole = ein__klin_div(&one) % g->vec == 0 && out->shape.d[d] % g->vec == 0;
            ok = ok && (ein__klin_step(&one) == 0 || (stride == 1 && whole));
            ein__kform_add(g, &f, stride, z->to[d]);
        }
        ein__kform_lower(g, &l, &f, 0);
        if (ok && ein__klin_step(&l) == 1 && ein__klin_div(&l) % g->vec == 0) return g->vec;
    }
    g->vec_slot = -1;
    g->slot[slot].gone = g->slot[slot].n == 1;
    return g->vec = 1;
}

// The tile's element in a lane of the store.
static const char *ein__ktile_lane(ein__kgen *g, const ein__ktile *z, int lane) {
    ein__buf b = {0};
    ein__put(&b, "d");
    for (int k = 0; k < z->b.n; k++) {
        const ein__kslot *s = &g->slot[z->rows[k]];
        int by = z->rows[k] == g->vec_slot ? lane : 0;
        if (s->gone) ein__putf(&b, "[%d]", by);
        else if (by) ein__putf(&b, "[%s + %d]", s->name, by);
        else ein__putf(&b, "[%s]", s->name);
    }
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

// Epilogue and store of one element, or of the vector that it begins, where it is inside of the
// result.
static void ein__ktile_store(ein__kgen *g, const ein__step *step, const ein__ktile *z,
                             ein__buf *store) {
    ein_ctx *ctx = g->ctx;
    const ein__value *out = ein__val_get(ctx, step->out);
    ein__buf inside = {0}, core = {0}, guarded = {0};
    ein__kform f = {0};
    ein__klin l;
    ein__ktext value[EIN__KLANES];
    l.c = l.n = l.uneven = l.apart = 0;
    ein__ktile_lanes(g, step, z);
    g->post = &core;
    ein__put(&core, "");
    for (int d = 0; d < out->shape.rank; d++) {
        ein__kaxis a = ein__kaxis_of(g, z->to[d], out->shape.d[d], 0);
        if (a.guard) ein__putf(&inside, "%s%s", inside.n ? " && " : "", a.guard);
        ein__kform_add(g, &f, ein__kstride(g, step->out, d), z->to[d]);
    }
    ein__kform_lower(g, &l, &f, 0);
    for (int i = 0; i < g->vec; i++)
        value[i] = (ein__ktext){ein__ktile_lane(g, z, i), EIN__PRIMARY, 0};
    if (z->epilogue.i) {
        ein__kinner *in = &g->inner[g->ninner++];
        *in = (ein__kinner){.v = step->val[0]};
        for (int i = 0; i < g->vec; i++) in->text[i] = value[i].s;
        ein__kcount(g, z->epilogue);
        for (int i = 0; i < g->vec; i++) value[i] = ein__kvalue(g, z->epilogue, i);
    }
    ein__kput_store(g, &core, out->dtype, ein__klin_text(g, &l, 0).s, value);
    g->post = NULL;
    if (inside.n) {
        ein__putf(&guarded, "if (%s) {\n", inside.s);
        ein__kindent(&guarded, core.s, 4);
        ein__put(&guarded, "}\n");
    }
    ein__kloops(g, store, z->rows, z->b.n, 1, inside.n ? guarded.s : core.s);
    g->vec = 1;
    g->vec_slot = -1;
    ein__buf_free(&inside);
    ein__buf_free(&core);
    ein__buf_free(&guarded);
}

static const char *ein__ktile_array(ein__kgen *g, const ein__ktile *z) {
    ein__buf b = {0};
    ein__put(&b, "d");
    for (int k = 0; k < z->b.n; k++) ein__putf(&b, "[%lld]", (long long)ein__ktile_side(z, k));
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kbasis(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                        ein__launch *l) {
    ein__ktile z;
    if (g->vec > 1) return false;
    if (!ein__ktile_make(g, step, &z)) {
        ein__krestart(g, step->val[0], g->wide, 1);
        return ein__kreduce(g, step, hint, out, l);
    }
    ein__buf index = {0}, load = {0}, transform = {0}, store = {0};
    ein__put(&index, "");
    ein__kdecompose(g, &index, z.t, z.nt, ~0u, "id");
    ein__ktile_load(g, &z, &load);
    bool ok = ein__ktile_transform(g, &z, &transform, l);
    ein__ktile_store(g, step, &z, &store);
    int64_t threads = ein__kcount_slots(g, z.t, z.nt);
    ok = ok && !g->too_wide && (threads <= INT32_MAX || g->wide);
    ein__key keys[] = {[EIN__THREAD_KEYS] = {"tile", ein__ktile_array(g, &z)},
                       {"load", load.s},
                       {"transform", transform.s},
                       {"store", store.s}};
    if (ok && !g->overflow && ein__kthreads(g, threads, index.s, keys, l))
        ein__kfinish(g, step->out, hint, ein__tmpl_basis, keys, EIN__COUNT(keys), out, l);
    ein__buf_free(&index);
    ein__buf_free(&load);
    ein__buf_free(&transform);
    ein__buf_free(&store);
    return ok;
}
