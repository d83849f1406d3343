// Products by tiles (product.c says what rows, columns and terms are). A block's threads fetch the
// tiles of both factors to shared memory as their index forms have them, guards included, and each
// thread multiplies its share, or its warp does on tensor cores; whatever map is fused runs on the
// accumulators before the store. The factors, the result and the epilogue each see the iterators
// merged as far as they alone allow: a filter is read along one long row of terms although the
// image needs channel and tap apart.

typedef struct ein__kprod {
    ein__tiled p;
    const ein__product_tile *t;
    int parts;                           // blocks that share the terms of a tile
    int64_t share;                       // terms of each, the last one no more than those
    ein__math math;                      // of the tile
    int order[3][EIN__MAX_ITERS], n[3];  // rows, columns, batch: slots, outermost first
    int sum[EIN__MAX_ITERS], nsum;
    uint32_t used;                    // slots of the batch that some address needs
    ein__ex factor[2];                // what loads compute: reads, or maps in front of the product
    ein__ex main[2];                  // the largest read of each
    ein__kslot slot[EIN__MAX_ITERS];  // as they are before a part merges them
    ein__buf index, load[2], store;
    const char *along[2], *args[2], *call[2];  // whether neighbours are terms; of the loads
    bool fetched[2], wide[2];  // loads say where a factor lies (tiles_async.cu); several elements
    int width;                 // neighbours that a load of the rows' factor gives
    ein__ex shift;             // what warps subtract from that factor's lines (norm.c), or none
    ein__buf start, room, totals, factors, also;  // of a row operation, or empty
    ein__ex made[EIN__NORM_ROWS], stored;         // definitions in the product's iterators
    bool sums;
    int kinds, first;  // of sums; the row operation's first value of those that the step computes
    int64_t shared;
} ein__kprod;

static void ein__kprod_free(ein__kprod *r) {
    ein__buf_free(&r->index);
    for (int k = 0; k < 2; k++) ein__buf_free(&r->load[k]);
    ein__buf_free(&r->store);
    ein__buf_free(&r->start);
    ein__buf_free(&r->room);
    ein__buf_free(&r->totals);
    ein__buf_free(&r->factors);
    ein__buf_free(&r->also);
}

// Appends the slots of `mask` to `order`, those with the largest coefficient in `row` first.
static int ein__kprod_order(uint32_t mask, const ein__krow *row, int *order) {
    int n = 0;
    for (int i = 0; i < EIN__MAX_ITERS; i++) {
        if (!(mask >> i & 1)) continue;
        int at = n++;
        for (; at > 0 && row->k[order[at - 1]] < row->k[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

// The orders in which flat numbers count: the result's for columns and batch, so that neighbouring
// threads store neighbours; the first factor's for rows; for terms that of the longer steps.
static void ein__kprod_orders(ein__kgen *g, const ein__scope *s, ein__kprod *r,
                              const ein__kscan *all) {
    ein__kscan one = ein__kscan_make(g);
    ein__krow steps = {{0}};
    for (int k = 0; k < 2; k++) {
        ein__kscan_row(g, &one, r->main[k]);
        for (int i = 0; i < EIN__MAX_ITERS; i++) {
            int64_t step = one.near[k].k[i] < 0 ? -one.near[k].k[i] : one.near[k].k[i];
            if (steps.k[i] < step) steps.k[i] = step;
        }
    }
    const ein__krow *out = &all->row[arrlen(all->row) - 1];
    r->n[0] = ein__kprod_order(r->p.group[0], &one.near[0], r->order[0]);
    r->n[1] = ein__kprod_order(r->p.group[1], out, r->order[1]);
    r->n[2] = ein__kprod_order(r->p.group[2], out, r->order[2]);
    uint32_t sums = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1);
    r->nsum = ein__kprod_order(sums, &steps, r->sum);
    uint32_t inner;
    if (ein__product_inner(g->ctx, s, &r->p, &inner)) {
        int n = 0;
        for (int i = 0; i < r->nsum; i++)
            if (r->sum[i] != (int)inner) r->sum[n++] = r->sum[i];
        r->sum[n] = (int)inner;
    }
    r->n[2] = ein__kmerge(g, all, r->order[2], r->n[2]);
    r->used = all->used;
    memcpy(r->slot, g->slot, sizeof r->slot);
    ein__kscan_free(&one);
}

// Name of the flat number that counts an order's slots: the slot itself where it is one.
static const char *ein__kprod_flat(const ein__kgen *g, const int *order, int n, const char *name) {
    return n == 1 ? g->slot[order[0]].name : name;
}

static const char *ein__kprod_below(const ein__kgen *g, const char *flat, int n, int64_t end) {
    if (n == 1) return ein__namef(g->ctx, "%s < %lld", flat, (long long)end);
    return ein__namef(g->ctx, "%s < %s", flat, ein__knumber(g, end));
}

// Declares what `body` mentions of the slots that count terms, of which the innermost one's extent
// is a multiple of a step: the others are those of the whole step.
static void ein__kprod_declare_step(ein__kgen *g, ein__buf *b, const int *order, int n,
                                    const char *term, const char *body) {
    const char *type = ein__kint(g), *last = g->slot[order[n - 1]].name;
    ein__buf digits = {0};
    uint32_t used = 0;
    ein__put(&digits, "");
    for (int i = 0; i + 1 < n; i++)
        if (ein__kmentions(body, g->slot[order[i]].name)) used |= 1u << order[i];
    const char *inner = ein__knumber(g, g->slot[order[n - 1]].n);
    ein__kdecompose(g, &digits, order, n - 1, used, ein__namef(g->ctx, "k0 / %s", inner));
    ein__put(b, digits.s);
    if (ein__kmentions(body, last))
        ein__putf(b, "const %s %s = (%s)(k0 %% %s + %s);\n", type, last, type, inner, term);
    ein__buf_free(&digits);
}

// Declares what `body` mentions of an order's slots, and of their flat number `flat`, which is
// `from`, in front of it.
static void ein__kprod_declare(ein__kgen *g, ein__buf *b, const int *order, int n, const char *flat,
                               const char *from, const char *body) {
    const char *u = ein__kunsigned(g), *type = ein__kint(g);
    ein__buf digits = {0};
    uint32_t used = 0;
    ein__put(&digits, "");
    for (int i = 0; i < n; i++)
        if (ein__kmentions(body, g->slot[order[i]].name)) used |= 1u << order[i];
    if (n == 1) {
        if (used) ein__putf(b, "const %s %s = (%s)(%s);\n", type, flat, type, from);
        ein__buf_free(&digits);
        return;
    }
    int vec = g->vec;
    g->vec = 1;
    ein__kdecompose(g, &digits, order, n, used, flat);
    g->vec = vec;
    if (used || ein__kmentions(body, flat)) ein__putf(b, "const %s %s = %s;\n", u, flat, from);
    ein__put(b, digits.s);
    ein__buf_free(&digits);
}

// How well a warp's lanes along an order's last slot read what lies side by side: elements of the
// run, at most a warp's, in 1/16 by the step between them.
static int64_t ein__kprod_run(const ein__kgen *g, const ein__kscan *s, const int *order, int n) {
    int64_t step = n ? s->near[0].k[order[n - 1]] : 0, run = n ? g->slot[order[n - 1]].n : 0;
    if (step < 0) step = -step;
    return step ? 16 * (run < 32 ? run : 32) / step : 0;
}

// The factor's address with `width` lanes along `slot`, or with one where they are no vector.
static ein__kaccess ein__kprod_access(ein__kgen *g, ein__ex read, int slot, int width,
                                      bool *vector) {
    size_t mark[2] = {g->code[0].n, g->code[1].n};
    int nindex = g->nindex;
    g->vec = width;
    g->vec_slot = slot;
    ein__kaccess at = slot >= 0 ? ein__kaccess_of(g, read, 0) : (ein__kaccess){0};
    *vector = at.vector;
    if (!at.vector) {
        // What was named for it is taken back.
        ein__kforget(g, 0);
        for (int k = 0; k < 2; k++) g->code[k].s[g->code[k].n = mark[k]] = 0;
        g->nindex = nindex;
        g->vec = 1;
        g->vec_slot = -1;
        at = ein__kaccess_of(g, read, 0);
    }
    g->vec = 1;
    g->vec_slot = -1;
    return at;
}

// The text of a factor that its loads compute, four lanes along `slot` at once where its reads
// allow.
static const char *ein__kprod_compute(ein__kgen *g, ein__ex ex, int slot, bool *vector) {
    size_t mark[2] = {g->code[0].n, g->code[1].n};
    int nindex = g->nindex, nvalue = g->nvalue, scattered = g->scattered;
    ein__kcount(g, ex);
    *vector = slot >= 0;
    if (!*vector) return ein__kvalue(g, ex, 0).s;
    const char *v[4];
    g->vec = 4;
    g->vec_slot = slot;
    for (int i = 0; i < 4; i++) v[i] = ein__kvalue(g, ex, i).s;
    g->vec = 1;
    g->vec_slot = -1;
    *vector = g->scattered == scattered;
    if (*vector) return ein__namef(g->ctx, "make_float4(%s, %s, %s, %s)", v[0], v[1], v[2], v[3]);
    ein__kforget(g, 0);
    for (int k = 0; k < 2; k++) g->code[k].s[g->code[k].n = mark[k]] = 0;
    g->nindex = nindex;
    g->nvalue = nvalue;
    g->scattered = scattered;
    return ein__kvalue(g, ex, 0).s;
}

// What a load gives: as many elements as 16 bytes hold, one after the other or all at once; halves
// for tiles of halves are left as they are.
static const char *ein__kprod_value(ein__kgen *g, const ein__kprod *r, const ein__kaccess *at,
                                    int width, const char **zero) {
    bool half = r->math == EIN__MATH_FP16 && at->dtype == EIN__F16;
    *zero = half ? "__float2half_rn(0.f)" : "0.f";
    if (width == 1)
        return half ? ein__namef(g->ctx, "%s[%s]", at->param, at->at.s) : ein__kload(g, at, 1).s;
    *zero = half ? "make_uint4(0u, 0u, 0u, 0u)" : "make_float4(0.f, 0.f, 0.f, 0.f)";
    if (!half) return ein__kload4(g, at);
    return ein__namef(g->ctx, "*reinterpret_cast<const uint4 *>(%s + %s)", at->param,
                      ein__kparen(g, at->at, EIN__TERM));
}

// Whether a load may say where it finds its elements: they are 16 or 4 bytes and of the type that
// the tile holds.
static bool ein__kprod_fetches(const ein__kprod *r, const ein__kaccess *at, int width) {
    if (r->math == EIN__MATH_FP32 || r->t->stages == 1) return false;
    return r->math == EIN__MATH_FP16 ? at->dtype == EIN__F16 && width == 8 : at->dtype == EIN__F32;
}

// How far apart a read's addresses are for neighbours along `slot`; 0: that differs or is more than
// an unsigned counts bytes, or what it reads depends on the slot in other ways too. `s` has scanned
// the read first.
static int64_t ein__kprod_stride(const ein__kscan *s, int slot) {
    int64_t k = s->row[0].k[slot];
    return s->pinned >> slot & 1 || k < 0 || k > INT32_MAX / 8 ? 0 : k;
}

// Such a load.
static void ein__kprod_fetch(ein__kgen *g, const ein__kprod *r, const ein__kaccess *at, int width,
                             const char *guard, ein__buf *body) {
    const char *type = width == 8                  ? "uint4"
                       : width == 4                ? "float4"
                       : r->math == EIN__MATH_FP16 ? "__half"
                                                   : "float";
    ein__putf(body, "return fetch<%s>(%s", type, at->param);
    if (strcmp(at->at.s, "0")) ein__putf(body, " + %s", ein__kparen(g, at->at, EIN__TERM));
    ein__putf(body, guard ? ", %s);\n" : ");\n", guard);
}

// Line and term that a thread loads as its element `e`: `wide` neighbours, or vectors of `width`,
// along the terms or along the lines.
static void ein__kprod_element(ein_ctx *c, const ein__kprod *r, bool along, int wide, int width,
                               const char **across, const char **term) {
    const char *fast = wide > 1 ? ein__namef(c, "e %% %du", wide) : "0u",
               *slow = ein__namef(c, "e / %du", wide);
    if (width > 1) fast = ein__namef(c, "%s * %du", fast, width);
    *across = along ? slow : fast;
    *term = along ? fast : slow;
    if (r->math == EIN__MATH_FP32) *across = "e.line", *term = "e.term";
}

// The names of the sum's slots at term `term` of a step, which begins at k0 unless the address has
// that by itself.
static void ein__kprod_declare_term(ein__kgen *g, ein__buf *load, const int *sum, int nsum,
                                    int terms, const char *term, bool moves, const char *body) {
    if (nsum > 1 && g->slot[sum[nsum - 1]].n % terms == 0)
        ein__kprod_declare_step(g, load, sum, nsum, term, body);
    else
        ein__kprod_declare(g, load, sum, nsum, ein__kprod_flat(g, sum, nsum, "k"),
                           moves ? term : ein__namef(g->ctx, "k0 + %s", term), body);
}

// How a factor is read, with the slots of its lines and terms merged as its reads allow.
static ein__kscan ein__kprod_scan(ein__kgen *g, const ein__kprod *r, int side, int *line_slot,
                                  int *nline, int *sum, int *nsum) {
    ein__kscan scan = ein__kscan_make(g);
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(line_slot, r->order[side], sizeof r->order[side]);
    memcpy(sum, r->sum, sizeof r->sum);
    ein__kscan_row(g, &scan, r->main[side]);
    if (r->factor[side].i != r->main[side].i) ein__kscan_expr(g, &scan, r->factor[side]);
    *nline = ein__kmerge(g, &scan, line_slot, r->n[side]);
    *nsum = ein__kmerge(g, &scan, sum, r->nsum);
    for (int i = 0; i < *nline; i++) g->slot[line_slot[i]].level = 1;
    for (int i = 0; i < *nsum; i++) g->slot[sum[i]].level = 1;
    return scan;
}

// How loads that say where a factor lies go on: a thread's in one step are as far from each other
// everywhere, and as far from those in the next one, so the rest of the address is known before the
// step, or before the loop. Its lines are counted by slot `line` or several (-1), its terms, or
// those of one step, by `term`; `steps`: all terms are. True: the loop's position is no part of the
// load.
static bool ein__kprod_calls(ein__kgen *g, ein__kprod *r, int side, const ein__kaccess *at,
                             const ein__kscan *scan, int line, int term, bool steps, int wide) {
    const char *name = side ? "b" : "a";
    int64_t size = ein__dtype_size(at->dtype), stride = 0, apart = 0;
    if (term >= 0) stride = ein__kprod_stride(scan, term) * size;
    if (!strcmp(r->along[side], "false")) apart = stride;
    else if (line >= 0) apart = ein__kprod_stride(scan, line) * size;
    apart *= EIN__PRODUCT_THREADS / wide;
    if (apart > INT32_MAX) apart = 0;
    bool moves = r->fetched[side] && steps && stride && r->p.depth % r->t->terms == 0;
    r->call[side] = name;
    if (moves)
        r->call[side] =
            ein__namef(g->ctx, "moving<%lld, %lld>(%s)", (long long)stride, (long long)apart, name);
    else if (apart) r->call[side] = ein__namef(g->ctx, "spaced<%lld>(%s)", (long long)apart, name);
    return moves;
}

// One factor's part of the loop: loads into registers, stores into the tile.
static void ein__kprod_load(ein__kgen *g, ein__kprod *r, int side) {
    ein_ctx *c = g->ctx;
    ein__ex read = r->factor[side];
    bool computed = read.i != r->main[side].i;
    int line_slot[EIN__MAX_ITERS], sum[EIN__MAX_ITERS], nline, nsum;
    ein__kscan scan = ein__kprod_scan(g, r, side, line_slot, &nline, sum, &nsum);
    int64_t extent = r->p.extent[side], depth = r->p.depth;
    int tile = side ? r->t->cols : r->t->rows, terms = r->t->terms;
    bool along = ein__kprod_run(g, &scan, sum, nsum) > ein__kprod_run(g, &scan, line_slot, nline);
    // Sums along a line are those of threads that load it, or of warps that multiply it.
    along |= !side && r->sums && r->math == EIN__MATH_FP32;
    int lane = along ? sum[nsum - 1] : nline ? line_slot[nline - 1] : -1;
    ein__val of = {ein__ex_get(c, r->main[side])->val};
    bool vector, half = !computed && ein__kdtype(g, of) == EIN__F16;
    int width = r->math == EIN__MATH_FP16 && half ? 8 : 4;
    if (lane >= 0 && (g->slot[lane].n % width || scan.near[0].k[lane] != 1)) lane = -1;
    ein__kaccess at = {0};
    const char *value = computed ? ein__kprod_compute(g, read, lane, &vector) : NULL, *zero;
    if (!computed) at = ein__kprod_access(g, read, lane, width, &vector);
    if (!vector) width = 1;
    int wide = along ? terms / width : tile / width;
    const char *across, *term;
    ein__kprod_element(c, r, along, wide, width, &across, &term);
    r->along[side] = along ? "true" : "false";
    if (!side) r->width = width;
    ein__buf body = {0}, guard = {0};
    const char *at_line = ein__kprod_flat(g, line_slot, nline, side ? "n" : "m"),
               *at_term = ein__kprod_flat(g, sum, nsum, "k");
    if (!computed) ein__put(&body, g->code[1].s);
    if (extent % tile) ein__putf(&guard, "%s && ", ein__kprod_below(g, at_line, nline, extent));
    if (depth % terms) ein__putf(&guard, "%s && ", ein__kprod_below(g, at_term, nsum, depth));
    if (at.guard) ein__putf(&guard, "%s && ", at.guard);
    if (!computed) value = ein__kprod_value(g, r, &at, width, &zero);
    else zero = vector ? "make_float4(0.f, 0.f, 0.f, 0.f)" : "0.f";
    if (guard.n) guard.s[guard.n -= 4] = 0;
    if (guard.n && computed) ein__putf(&body, "if (!(%s)) return %s;\n", guard.s, zero);
    if (computed) ein__put(&body, g->code[1].s);
    r->wide[side] = width > 1;
    r->fetched[side] = !computed && ein__kprod_fetches(r, &at, width);
    bool half_one = r->math == EIN__MATH_FP16 && half && width == 1, moves = false;
    r->call[side] = side ? "b" : "a";
    if (r->fetched[side] || half_one) {
        bool inner = nsum == 1 || (nsum && g->slot[sum[nsum - 1]].n % terms == 0);
        moves = ein__kprod_calls(g, r, side, &at, &scan, nline == 1 ? line_slot[0] : -1,
                                 inner ? sum[nsum - 1] : -1, nsum == 1, wide);
        ein__kprod_fetch(g, r, &at, width, guard.n ? guard.s : NULL, &body);
    } else if (guard.n && !computed) {
        ein__putf(&body, "return %s ? %s : %s;\n", guard.s, value, zero);
    } else {
        ein__putf(&body, "return %s;\n", value);
    }
    const char *which = r->math == EIN__MATH_FP32 ? "element" : "unsigned";
    r->args[side] = ein__namef(c, moves ? "%s e" : "%s e, unsigned k0", which);
    ein__kprod_declare(g, &r->load[side], line_slot, nline, at_line,
                       ein__namef(c, "%s0 + %s", side ? "n" : "m", across), body.s);
    ein__kprod_declare_term(g, &r->load[side], sum, nsum, terms, term, moves, body.s);
    ein__put(&r->load[side], body.s);
    ein__kforget(g, 1);
    ein__buf_free(&g->code[1]);
    ein__put(&g->code[1], "");
    ein__buf_free(&body);
    ein__buf_free(&guard);
    ein__kscan_free(&scan);
}

// The epilogue and the store at (m, n). False: not with this many lanes.
static bool ein__kprod_store(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    static const char *const acc[4] = {"acc[i][j]", "acc[i][j + 1]", "acc[i][j + 2]",
                                       "acc[i][j + 3]"};
    ein__kscan scan = ein__kscan_make(g);
    int order[2 * EIN__MAX_ITERS], rows[EIN__MAX_ITERS], cols[EIN__MAX_ITERS], n = 0;
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(rows, r->order[0], sizeof rows);
    memcpy(cols, r->order[1], sizeof cols);
    if (step->nval > 1) ein__kscan_expr(g, &scan, ein__kbody(g, step->out));
    ein__kscan_out(g, &scan, step->out);
    int nrow = ein__kmerge(g, &scan, rows, r->n[0]), ncol = ein__kmerge(g, &scan, cols, r->n[1]);
    for (int i = 0; i < r->n[2]; i++) order[n++] = r->order[2][i];
    for (int i = 0; i < nrow; i++) order[n++] = rows[i];
    for (int i = 0; i < ncol; i++) order[n++] = cols[i];
    bool ok = g->vec == 1 || (ncol && ein__kvector_out(g, step->out, order, n, &scan));
    if (ok && g->vec > 1) g->vec_slot = cols[ncol - 1];
    if (ok) {
        if (r->p.alpha != 1)
            for (int i = 0; i < g->vec; i++)
                ein__putf(&r->store, "%s *= %s;\n", acc[i], ein__kliteral(g, r->p.alpha).s);
        ein__ktext value[4];
        ein__ex body = {0};
        g->post = &r->store;
        if (step->nval > 1) {
            body = ein__kbody(g, step->out);
            ein__kcount(g, body);
        }
        for (int i = 0; i < g->vec; i++) {
            value[i] = (ein__ktext){acc[i], EIN__PRIMARY, 0};
            if (step->nval > 1) value[i] = ein__kvalue(g, body, i);
        }
        ein__kstore(g, &r->store, step->out, &scan, value);
        g->post = NULL;
        ok = !g->scattered;
    }
    const char *m = ein__kprod_flat(g, rows, nrow, "m"), *at = ein__kprod_flat(g, cols, ncol, "n");
    ein__buf in = {0}, body = {0}, head = {0};
    ein__put(&in, "");
    if (r->p.extent[0] % r->t->rows) ein__put(&in, ein__kprod_below(g, m, nrow, r->p.extent[0]));
    if (r->p.extent[1] % r->t->cols)
        ein__putf(&in, "%s%s", in.n ? " && " : "", ein__kprod_below(g, at, ncol, r->p.extent[1]));
    if (in.n) ein__putf(&body, "if (%s) {\n", in.s);
    if (r->store.s) ein__kindent(&body, r->store.s, in.n ? 4 : 0);
    if (in.n) ein__put(&body, "}\n");
    if (body.s) {
        ein__kprod_declare(g, &head, rows, nrow, m, "m0 + tile.row(i)", body.s);
        ein__kprod_declare(g, &head, cols, ncol, at, "n0 + tile.column(j)", body.s);
    }
    ein__buf_free(&r->store);
    ein__putf(&r->store, "%s%s", head.s ? head.s : "", body.s ? body.s : "");
    ein__buf_free(&in);
    ein__buf_free(&body);
    ein__buf_free(&head);
    ein__kscan_free(&scan);
    return ok;
}

// First element of the tile that digit `id / *below % n` counts; `*below` grows.
static const char *ein__kprod_first(ein__kgen *g, int64_t *below, int64_t n, int size) {
    const char *u = g->wide ? "ull" : "u", *s = "id";
    if (n == 1) return ein__namef(g->ctx, "0%s", u);
    if (*below > 1) s = ein__namef(g->ctx, "%s / %lld%s", s, (long long)*below, u);
    *below *= n;
    return ein__namef(g->ctx, "%s %% %lld%s * %d%s", s, (long long)n, u, size, u);
}

// Part, column tile, row tile and batch of a block: id counts them, the part fastest.
static int64_t ein__kprod_index(ein__kgen *g, ein__kprod *r) {
    const char *u = ein__kunsigned(g), *type = ein__kint(g);
    int64_t below = r->parts, across = (r->p.extent[1] + r->t->cols - 1) / r->t->cols,
            down = (r->p.extent[0] + r->t->rows - 1) / r->t->rows;
    memcpy(g->slot, r->slot, sizeof r->slot);
    const char *column = ein__kprod_first(g, &below, across, r->t->cols);
    ein__putf(&r->index, "const %s n0 = %s, m0 = %s;\n", u, column,
              ein__kprod_first(g, &below, down, r->t->rows));
    for (int i = r->n[2] - 1; i >= 0; i--) {
        const ein__kslot *s = &g->slot[r->order[2][i]];
        const char *digit = ein__kdigit(g, &below, s->n, 1);
        if (r->used >> r->order[2][i] & 1)
            ein__putf(&r->index, "const %s %s = %s;\n", type, s->name, digit);
    }
    ein__put(&r->index, g->code[0].s);
    return below;
}

// The tile's type, and how many rows and columns of it a thread stores.
static const char *ein__kprod_tile(ein__kgen *g, const ein__kprod *r, int *rows, int *cols) {
    const ein__product_tile *t = r->t;
    if (r->math == EIN__MATH_FP32) {
        *rows = t->rm / t->parts;
        *cols = t->rn;
        ein__kneed(g, EIN__NEED_TILES);
        return ein__namef(g->ctx, "product_tile<%d, %d, %d, %d, %d, %d, %d>", t->rows, t->cols,
                          t->terms, t->parts, t->rm, t->rn, g->vec);
    }
    bool half = r->math == EIN__MATH_FP16, shared = t->parts > 1, four = g->vec > 1;
    *rows = shared ? t->rows * t->cols / EIN__PRODUCT_THREADS / g->vec : t->rm / (four ? 16 : 8);
    *cols = shared ? g->vec : t->rn / (four ? 2 : 4);
    ein__kneed(g, half ? EIN__NEED_TENSOR_HALF : EIN__NEED_TENSOR_TF32);
    if (half) ein__kneed(g, EIN__NEED_HALF);
    int stages = r->fetched[0] || r->fetched[1] ? ein__product_stages(t) : t->stages == 1 ? 1 : 2;
    return ein__namef(g->ctx, "tensor_tile<%s, %d, %d, %d, %d, %d, %d, %d, %d>",
                      half ? "__half" : "float", t->rows, t->cols, t->terms, t->parts, t->rm, t->rn,
                      stages, g->vec);
}

// ------------------------------------------------------------------------------- rows

// Their type: sums of what threads load, or of the fragments that warps multiply.
static const char *ein__kprod_sums(ein__kgen *g, const ein__kprod *r) {
    if (r->math != EIN__MATH_FP32) return "decltype(sums)";
    return ein__namef(g->ctx, "row_sums<%d, %d, %d>", r->t->rows, r->t->terms, r->width);
}

// Forgets what was declared inside a part of the kernel that is over.
static void ein__kprod_leave(ein__kgen *g) {
    ein__kforget(g, 1);
    ein__buf_free(&g->code[1]);
    ein__put(&g->code[1], "");
}

// What rows `line` of the tile begin with: a lambda, which warps subtract.
static void ein__kprod_shift(ein__kgen *g, ein__kprod *r) {
    ein__kscan scan = ein__kscan_make(g);
    ein__buf body = {0};
    int rows[EIN__MAX_ITERS];
    bool vector;
    const char *zero;
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(rows, r->order[0], sizeof rows);
    ein__kscan_row(g, &scan, r->shift);
    int n = ein__kmerge(g, &scan, rows, r->n[0]);
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].level = 1;
    ein__kaccess at = ein__kprod_access(g, r->shift, -1, 1, &vector);
    const char *m = ein__kprod_flat(g, rows, n, "m"),
               *value = ein__kprod_value(g, r, &at, 1, &zero);
    ein__put(&body, g->code[1].s);
    if (r->p.extent[0] % r->t->rows)
        ein__putf(&body, "return %s ? %s : %s;\n", ein__kprod_below(g, m, n, r->p.extent[0]), value,
                  zero);
    else ein__putf(&body, "return %s;\n", value);
    ein__put(&r->start, "const auto first = [&](unsigned line) {\n");
    ein__buf text = {0};
    ein__kprod_declare(g, &text, rows, n, m, "m0 + line", body.s);
    ein__put(&text, body.s);
    ein__kindent(&r->start, text.s, 4);
    ein__put(&r->start, "};\n");
    ein__kprod_leave(g);
    ein__buf_free(&text);
    ein__buf_free(&body);
    ein__kscan_free(&scan);
}

// Where the sums are kept while the product is computed, and what is made of them afterwards: that
// has the memory of a tensor cores' tile then, which leaves no room beside it.
static void ein__kprod_room(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    int rows = r->t->rows, factors = step->nrow - r->kinds;
    if (r->math == EIN__MATH_FP32) {
        const char *sums = ein__kprod_sums(g, r);
        ein__kneed(g, EIN__NEED_ROWS);
        ein__putf(&r->start, "%s sums = {};\n", sums);
        ein__putf(&r->room, "__shared__ float total[%d][%d][%s::PARTS], factor[%d][%d];\n",
                  r->kinds, rows, sums, factors, rows);
        return;
    }
    ein__kneed(g, EIN__NEED_TENSOR_ROWS);
    if (r->shift.i) ein__kprod_shift(g, r);
    ein__putf(&r->start, r->shift.i ? "decltype(tile)::row_sums<decltype(first)> sums(first);\n"
                                    : "decltype(tile)::row_sums<unshifted> sums((unshifted()));\n");
    ein__putf(&r->room,
              "__syncthreads();\n"
              "float(&total)[%d][%d][%d] = *reinterpret_cast<float(*)[%d][%d][%d]>(tile.bytes);\n"
              "float(&factor)[%d][%d] =\n"
              "    *reinterpret_cast<float(*)[%d][%d]>(tile.bytes + sizeof total);\n",
              r->kinds, rows, r->t->parts, r->kinds, rows, r->t->parts, factors, rows, factors,
              rows);
}

// Definitions of the row operation in the product's iterators, before anything is counted of them.
static void ein__kprod_rows(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein_ctx *c = g->ctx;
    const ein__expr *x = r->p.read[0];
    size_t had = (size_t)arrlen(c->exprs.rec);
    while (r->kinds < step->nrow && !ein__is_map(c, step->val[1 + r->kinds])) r->kinds++;
    r->sums = r->kinds > 0;
    for (int i = r->kinds; i < step->nrow; i++) {
        ein__val v = step->val[1 + i];
        r->made[i - r->kinds] =
            ein__ex_subst(c, ein__kbody(g, v), x->ix, ein__val_get(c, v)->shape.rank);
    }
    r->first = g->ninner;
    for (int i = 1; i <= step->nrow; i++)
        g->inner[g->ninner++] = (ein__kinner){step->val[i], {NULL}, false};
    if (step->also.i) r->stored = ein__ex_subst(c, ein__kbody(g, step->also), x->ix, (int)x->nix);
    ein__kmemo_grow(g, had);
}

// `body` in `to`, where the iterators of `order`, which count `flat` from `from` on, are in range.
static void ein__kprod_inside(ein__kgen *g, ein__buf *to, const int *order, int n, const char *flat,
                              const char *from, bool whole, int64_t end, const char *body) {
    ein__buf text = {0};
    if (!whole) ein__putf(&text, "if (%s) {\n", ein__kprod_below(g, flat, n, end));
    ein__kindent(&text, body, whole ? 0 : 4);
    if (!whole) ein__put(&text, "}\n");
    ein__kprod_declare(g, to, order, n, flat, from, text.s);
    ein__put(to, text.s);
    ein__buf_free(&text);
}

// What later parts read the factors of a row as.
static void ein__kprod_name_factors(ein__kgen *g, const ein__kprod *r, int n, const char *row) {
    for (int i = 0; i < n; i++) {
        const char *text = ein__namef(g->ctx, "factor[%d][%s]", i, row);
        for (int k = 0; k < 4; k++) g->inner[r->first + r->kinds + i].text[k] = text;
    }
}

// What is made of the rows' sums, for row m0 + line of the tile.
static void ein__kprod_factor(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein_ctx *c = g->ctx;
    ein__kscan scan = ein__kscan_make(g);
    ein__buf body = {0}, last = {0};
    int rows[EIN__MAX_ITERS], n = step->nrow - r->kinds;
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(rows, r->order[0], sizeof rows);
    ein__kuncount(g);
    ein__put(&r->totals, "");
    for (int i = 0; i < r->kinds; i++) {
        ein__ex u = ein__kbody(g, step->val[1 + i]);
        const char *what = ein__ex_get(c, u)->op == EIN__X_READ ? "sum" : "square";
        ein__putf(&r->totals, "sums.total(sums.%s, total[%d]);\n", what, i);
        ein__putf(&body, "const float s%d = sums.of(total[%d], line);\n", i, i);
        g->inner[r->first + i].text[0] = ein__namef(c, "s%d", i);
    }
    for (int i = 0; i < n; i++) {
        ein__kscan_expr(g, &scan, r->made[i]);
        ein__kcount(g, r->made[i]);
    }
    int nrow = ein__kmerge(g, &scan, rows, r->n[0]);
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].level = 1;
    for (int i = 0; i < n; i++)
        ein__putf(&last, "factor[%d][line] = %s;\n", i, ein__kvalue(g, r->made[i], 0).s);
    ein__putf(&body, "%s%s", g->code[1].s, last.s);
    ein__kprod_inside(g, &r->factors, rows, nrow, ein__kprod_flat(g, rows, nrow, "m"), "m0 + line",
                      r->p.extent[0] % r->t->rows == 0, r->p.extent[0], body.s);
    ein__kprod_leave(g);
    ein__kprod_name_factors(g, r, n, "line");
    ein__buf_free(&body);
    ein__buf_free(&last);
    ein__kscan_free(&scan);
}

// The address of the row operation's own result by slots of the product.
static void ein__kprod_place(ein__kgen *g, const ein__kprod *r, ein__val v, ein__krow *row) {
    *row = (ein__krow){{0}};
    for (uint32_t k = 0; k < r->p.read[0]->nix; k++) {
        uint32_t slot;
        if (ein__ix_is_iter(g->ctx, r->p.read[0]->ix[k], &slot))
            row->k[slot] = ein__kstride(g, v, (int)k);
    }
}

// The text that stores `width` neighbours along `slot`, or one (slot -1); false: they are none.
static bool ein__kprod_also_text(ein__kgen *g, const ein__step *step, const ein__kprod *r,
                                 const ein__krow *row, int slot, int width, ein__buf *text) {
    ein__ktext value[4];
    ein__klin at;
    int scattered = g->scattered;
    int64_t offset = g->ctx->plan.layout[step->also.i].offset;
    bool vector = width == 1 || (row->k[slot] == 1 && offset % width == 0);
    at.c = at.n = at.uneven = at.apart = 0;
    for (int i = 0; i < EIN__MAX_ITERS; i++) {
        const ein__kslot *s = &g->slot[i];
        ein__kterm t = {row->k[i], {s->name, EIN__PRIMARY, 1}, i == slot, 1, s->n};
        if (!row->k[i] || s->gone) continue;
        ein__klin_add(g, &at, t);
        vector &= i == slot || row->k[i] % width == 0;
    }
    if (!vector) return false;
    g->vec = width;
    g->vec_slot = width > 1 ? slot : -1;
    g->to = "also";
    for (int i = 0; i < width; i++) value[i] = ein__kvalue(g, r->stored, i);
    ein__put(text, g->code[1].s);
    ein__kput_store(g, text, ein__kdtype(g, step->also), ein__klin_text(g, &at, 0).s, value);
    g->vec = 1;
    g->vec_slot = -1;
    g->to = NULL;
    bool near = g->scattered == scattered;
    g->scattered = scattered;
    return near;
}

// A block's share of the row operation's own result: all of its rows, and of the columns as many as
// there are blocks along the rows.
static void ein__kprod_also(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein_ctx *c = g->ctx;
    int64_t depth = r->p.depth, across = (r->p.extent[1] + r->t->cols - 1) / r->t->cols;
    int rows[EIN__MAX_ITERS], sum[EIN__MAX_ITERS], width = 4;
    ein__buf body = {0}, text = {0};
    ein__krow row;
    ein__kprod_place(g, r, step->also, &row);
    ein__kscan scan = ein__kscan_make(g);
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(rows, r->order[0], sizeof rows);
    memcpy(sum, r->sum, sizeof sum);
    ein__kuncount(g);
    ein__kcount(g, r->stored);
    ein__kscan_expr(g, &scan, r->stored);
    arrput(scan.row, row);
    arrput(scan.near, row);
    arrput(scan.read, (ein__ex){0});
    int nrow = ein__kmerge(g, &scan, rows, r->n[0]), nsum = ein__kmerge(g, &scan, sum, r->nsum);
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].level = 1;
    int slot = nsum ? sum[nsum - 1] : -1;
    g->also = step->also;
    bool four = slot >= 0 && g->slot[slot].n % width == 0 &&
                ein__kprod_also_text(g, step, r, &row, slot, width, &body);
    if (!four) {
        ein__kprod_leave(g);
        ein__buf_free(&body);
        width = 1;
        ein__kprod_also_text(g, step, r, &row, -1, width, &body);
    }
    int64_t share = (depth + across - 1) / across;
    share = (share + width - 1) / width;
    r->shared = share * r->t->rows;
    const char *u = g->wide ? "ull" : "u", *m = ein__kprod_flat(g, rows, nrow, "m"),
               *k = ein__kprod_flat(g, sum, nsum, "k");
    const char *block =
        ein__namef(c, "n0 / %d%s * %lld%s", r->t->cols, u, (long long)(share * width), u);
    const char *term = ein__namef(c, "%s + e %% %lldu * %du", block, (long long)share, width);
    bool all = share * width * across == depth;
    ein__kprod_inside(g, &text, sum, nsum, k, term, all, depth, body.s);
    ein__putf(&r->also, "const unsigned line = e / %lldu;\n", (long long)share);
    ein__kprod_inside(g, &r->also, rows, nrow, m, "m0 + line", r->p.extent[0] % r->t->rows == 0,
                      r->p.extent[0], text.s);
    ein__kprod_leave(g);
    ein__buf_free(&body);
    ein__buf_free(&text);
    ein__kscan_free(&scan);
}

// The parts of a row operation; then its factors are those of the row that a thread stores.
static void ein__kprod_norm(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    int vec = g->vec;
    g->vec = 1;
    ein__kprod_room(g, step, r);
    ein__kprod_factor(g, step, r);
    if (step->also.i) ein__kprod_also(g, step, r);
    ein__kprod_name_factors(g, r, step->nrow - r->kinds, "tile.row(i)");
    ein__kuncount(g);
    g->vec = vec;
}

// Whether a factor is read as a kernel of the run finds it, since weights alone are: then its loads
// need not wait for the kernel before. On tensor cores only what is fetched is loaded by itself.
static bool ein__kprod_constant(ein__kgen *g, const ein__kprod *r, int side) {
    ein__ex *reads = NULL;
    ein__ex_reads(g->ctx, r->factor[side], &reads);
    bool constant = r->math == EIN__MATH_FP32 || r->fetched[side];
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(g->ctx, reads[i])->val};
        constant = constant && ein__val_get(g->ctx, v)->weight_only;
    }
    arrfree(reads);
    return constant;
}

// 1: the first factor's loads need not wait, 2: the second's (or both), 0: neither, or the place of
// the tile itself is read from memory.
static const char *ein__kprod_early(ein__kgen *g, const ein__kprod *r) {
    if (strchr(r->index.s, '[')) return "0";
    return ein__kprod_constant(g, r, 1) ? "2" : ein__kprod_constant(g, r, 0) ? "1" : "0";
}

// What the compiler is to keep registers for: where factors do not pass through them, blocks enough
// for what the estimate has beside each other.
static const char *ein__kprod_bounds(const ein__kprod *r) {
    bool few = r->fetched[0] && r->fetched[1] && r->wide[0] && r->wide[1];
    return few && r->parts == 1 && r->t->resident > 1 ? "256, 2" : "256";
}

static void ein__kprod_finish(ein__kgen *g, const ein__step *step, ein__kprod *r, int64_t blocks,
                              const char *hint, ein__buf *out, ein__launch *l) {
    ein_ctx *c = g->ctx;
    int rows, cols;
    const char *tile = ein__kprod_tile(g, r, &rows, &cols);
    ein__key keys[] = {{0},
                       {0},
                       {"tile", tile},
                       {"RM", ein__namef(c, "%d", r->math ? rows : r->t->rm)},
                       {"RN", ein__namef(c, "%d", cols)},
                       {"rows", ein__namef(c, "%d", rows)},
                       {"V", ein__namef(c, "%d", g->vec)},
                       {"bounds", ein__kprod_bounds(r)},
                       {"number", ein__kunsigned(g)},
                       {"many", blocks > r->parts ? "1" : ""},
                       {"index", r->index.s},
                       {"reads", strchr(r->index.s, '[') ? "1" : ""},
                       {"terms", ein__namef(c, "%lldu", (long long)r->p.depth)},
                       {"argsA", r->args[0]},
                       {"loadA", r->load[0].s},
                       {"argsB", r->args[1]},
                       {"loadB", r->load[1].s},
                       {"a", r->call[0]},
                       {"b", r->call[1]},
                       {"along", ein__namef(c, "%s, %s", r->along[0], r->along[1])},
                       {"early", ein__kprod_early(g, r)},
                       {"parts", r->parts > 1 ? ein__namef(c, "%d", r->parts) : ""},
                       {"share", ein__namef(c, "%lldu", (long long)r->share)},
                       {"sums", r->sums ? "1" : ""},
                       {"lines", ein__namef(c, "%d", r->t->rows)},
                       {"totals", r->totals.s},
                       {"start", r->start.s},
                       {"room", r->room.s},
                       {"factor", r->factors.s},
                       {"also", r->also.s},
                       {"shared", ein__knumber(g, r->shared)},
                       {"store", r->store.s}};
    for (int k = 0; k < 2; k++) {
        ein__val read = {ein__ex_get(c, r->main[k])->val};
        const ein__value *v = ein__val_get(c, read);
        l->bytes_read += ein__elements(&v->shape) * ein__dtype_size(v->dtype);
    }
    ein__kneed(g, EIN__NEED_AWAIT);
    if (r->parts > 1) ein__kneed(g, EIN__NEED_PARTS);
    g->shared = r->parts > 1;
    int64_t flops = 2 * r->p.depth + g->flops;
    l->flops_per_out = flops > INT32_MAX ? INT32_MAX : (int)flops;
    ein__kfinish(g, step->out, hint, ein__tmpl_product, keys, (int)(sizeof keys / sizeof *keys),
                 out, l);
}

// Takes what is subtracted from lines out of the loads, where warps can do that: what is in memory
// is what the tile holds, and nothing behind the last term.
static void ein__kprod_split_shift(const ein__kgen *g, ein__kprod *r) {
    ein__ex x, first;
    uint32_t terms = ~(r->p.group[0] | r->p.group[1] | r->p.group[2]);
    ein__dtype type = r->math == EIN__MATH_FP16 ? EIN__F16 : EIN__F32;
    if (r->math == EIN__MATH_FP32 || r->t->stages == 1 || r->p.depth % r->t->terms ||
        !ein__product_shift(g->ctx, r->factor[0], terms, &x, &first) ||
        ein__kdtype(g, (ein__val){ein__ex_get(g->ctx, x)->val}) != type)
        return;
    r->factor[0] = x;
    r->shift = first;
}

// The factors as the step's loads compute them, and what they read most of.
static void ein__kprod_factors(const ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein_ctx *c = g->ctx;
    for (int k = 0; k < 2; k++) {
        ein__ex *reads = NULL;
        int64_t most = -1;
        r->factor[k] = ein__ex_of(c, r->p.read[k]);
        for (int i = 0; i < 2; i++)
            if (step->load[i].i && step->load[i].i == r->p.read[k]->val)
                r->factor[k] = step->loaded[i];
        if (!k && r->sums) ein__kprod_split_shift(g, r);
        r->main[k] = r->factor[k];
        ein__ex_reads(c, r->factor[k], &reads);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            ein__val v = {ein__ex_get(c, reads[i])->val};
            int64_t n = ein__elements(&ein__val_get(c, v)->shape);
            if (n <= most) continue;
            most = n;
            r->main[k] = reads[i];
        }
        arrfree(reads);
    }
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kproduct(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                          ein__launch *l) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    ein__kprod r = {.nsum = 0};
    int64_t stride[EIN__MAX_RANK], ps;
    int vec = g->vec;
    for (uint32_t i = 0; i < s->nt; i++) stride[i] = ein__kstride(g, step->out, (int)i);
    if (!ein__match_tiles(g->ctx, s, stride, &r.p)) return ein__kreduce(g, step, hint, out, l);
    if (ein__keeps_fp32(g->ctx, step->val[0])) r.p.math = EIN__MATH_FP32;
    ein__kernel kernel = ein__step_kernel(g->ctx, step);
    ein__rows_work(g->ctx, &kernel, &r.p);
    r.t = step->tile ? &ein__product_table[step->tile - 1] : NULL;
    if (!r.t || !ein__product_fits(&r.p, r.t)) r.t = ein__product_tile_of(g->ctx, &r.p, &ps);
    r.math = r.t->math;
    r.parts = step->parts ? step->parts : 1;
    r.share = ein__tail_share(&r.p, r.t, r.parts);
    EIN_ASSERT(r.share);
    ein__kscan all = ein__kscan_make(g);
    g->inner[g->ninner++] = (ein__kinner){
        step->val[0], {"acc[i][j]", "acc[i][j + 1]", "acc[i][j + 2]", "acc[i][j + 3]"}, false};
    if (step->nrow) ein__kprod_rows(g, step, &r);
    ein__kprod_factors(g, step, &r);
    for (int k = 0; k < 2; k++) ein__kscan_expr(g, &all, r.factor[k]);
    if (step->nval > 1) ein__kscan_expr(g, &all, ein__kbody(g, step->out));
    ein__kscan_out(g, &all, step->out);
    ein__kprod_orders(g, s, &r, &all);
    ein__kprod_load(g, &r, 0);
    ein__kprod_load(g, &r, 1);
    if (r.sums) ein__kprod_norm(g, step, &r);
    g->vec = vec;
    bool ok = ein__kprod_store(g, step, &r);
    int64_t blocks = ein__kprod_index(g, &r), limit = INT32_MAX - 1024;
    // Flat numbers run up to a tile beyond their ends.
    bool far = r.p.extent[0] > limit || r.p.extent[1] > limit;
    ok = ok && !g->too_wide && (g->wide || !far);
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, blocks, EIN__PRODUCT_THREADS))
        ein__kprod_finish(g, step, &r, blocks, hint, out, l);
    ein__kscan_free(&all);
    ein__kprod_free(&r);
    return ok;
}
