// Products by tiles (product.c says what rows, columns and terms are): each thread multiplies its
// share of what a block's threads have fetched (emit_factor.c), or its warp does on tensor cores;
// whatever map is fused runs on the accumulators before the store.

// A thread's sum of column j + `lane`: what it has computed, or what all parts add up to.
static const char *ein__kprod_sum(const ein__kprod *r, int lane) {
    static const char *const own[4] = {"acc[i][j]", "acc[i][j + 1]", "acc[i][j + 2]",
                                       "acc[i][j + 3]"};
    static const char *const all[4] = {"sum[s]", "sum[s + 1]", "sum[s + 2]", "sum[s + 3]"};
    return r->parts > 1 ? all[lane] : own[lane];
}

// Names the sums for the map behind them, those of several reductions by their number.
static void ein__kprod_inner(ein__kgen *g, const ein__step *step, const ein__kprod *r) {
    for (int k = 0; k == 0 || k < r->p.crosses; k++) {
        ein__kinner *sum = &g->inner[g->ninner++];
        *sum = (ein__kinner){.v = step->val[k]};
        for (int i = 0; i < 4; i++) {
            const char *first = ein__kprod_sum(r, i);
            sum->text[i] = k ? ein__namef(g->ctx, "acc%d%s", k, first + strlen("acc")) : first;
        }
    }
}

// The map behind the product; of a second one the tile has the sum.
static ein__ex ein__kprod_body(const ein__kgen *g, const ein__step *step) {
    ein__ex body = ein__kbody(g, step->out);
    return step->addend.i ? ein__without_addend(g->ctx, body, step->addend) : body;
}

// The tile's type, and how many rows and columns of it a thread stores.
static const char *ein__kprod_tile(ein__kgen *g, const ein__kprod *r, int *rows, int *cols) {
    const ein__product_tile *t = r->t;
    if (r->math == EIN__MATH_FP32) {
        *rows = t->rm / t->parts;
        *cols = t->rn;
        if (r->p.crosses) return ein__kcross_tile(g, r);
        ein__kneed(g, EIN__NEED_TILES);
        return ein__namef(g->ctx, "product_tile<%d, %d, %d, %d, %d, %d, %d>", t->rows, t->cols,
                          t->terms, t->parts, t->rm, t->rn, g->vec);
    }
    bool half = r->math == EIN__MATH_FP16, four = g->vec > 1;
    bool shared = t->parts > 1;
    *rows = shared ? t->rows * t->cols / EIN__PRODUCT_THREADS / g->vec : t->rm / (four ? 16 : 8);
    *cols = shared ? g->vec : t->rn / (four ? 2 : 4);
    ein__kneed(g, half ? EIN__NEED_TENSOR_HALF : EIN__NEED_TENSOR_TF32);
    if (half) ein__kneed(g, EIN__NEED_HALF);
    if (t->patch)
        return ein__namef(g->ctx, "patch_tile<%d, %d, %d, %lld, %d, %d, %d, %lld, %s>", t->rows,
                          t->cols, t->terms, (long long)r->p.depth, t->rm, t->rn, g->vec,
                          (long long)ein__patch_box(&r->p, t)->elements,
                          t->patch == 2 ? "true" : "false");
    if (t->warpgroups) {
        int across = ein__tile_side(t->cols) / g->vec;
        *rows = t->rows * across / EIN__PRODUCT_THREADS;
        *cols = t->cols / across;
        ein__kneed(g, EIN__NEED_WARPGROUPS);
        return ein__namef(g->ctx, "warpgroup_tile<%s, %d, %d, %d, %d, %d>",
                          half ? "__half" : "float", t->rows, t->cols, t->terms,
                          ein__kprod_stages(g, r), g->vec);
    }
    return ein__namef(g->ctx, "tensor_tile<%s, %d, %d, %d, %d, %d, %d, %d, %d>",
                      half ? "__half" : "float", t->rows, t->cols, t->terms, t->parts, t->rm, t->rn,
                      ein__kprod_stages(g, r), g->vec);
}

// The slots of what a thread stores, as the epilogue and the result merge them: rows and columns.
typedef struct ein__kends {
    ein__kscan scan;
    int rows[EIN__MAX_ITERS], cols[EIN__MAX_ITERS], nrow, ncol;
} ein__kends;

// `text`, which is about (m, n), where that is inside; m and n are declared in front of it.
static void ein__kprod_placed(ein__kgen *g, const ein__kprod *r, const ein__kends *e,
                              ein__buf *text) {
    const char *m = ein__kprod_flat(g, e->rows, e->nrow, "m"),
               *n = ein__kprod_flat(g, e->cols, e->ncol, "n");
    ein__buf in = {0}, body = {0}, head = {0};
    ein__put(&in, "");
    ein__put(&head, "");
    for (int side = 0; side < 2; side++)
        if (ein__kboxed(r, side))
            ein__kbox_declare(g, r, side, side ? ein__kprod_column(r) : ein__kprod_row(r),
                              text->s ? text->s : "", &in, &head);
    if (!ein__kboxed(r, 0) && r->p.extent[0] % r->t->rows)
        ein__putf(&in, "%s%s", in.n ? " && " : "", ein__kprod_below(g, m, e->nrow, r->p.extent[0]));
    if (!ein__kboxed(r, 1) && r->p.extent[1] % r->t->cols)
        ein__putf(&in, "%s%s", in.n ? " && " : "", ein__kprod_below(g, n, e->ncol, r->p.extent[1]));
    if (in.n) ein__putf(&body, "if (%s) {\n", in.s);
    if (text->s) ein__kindent(&body, text->s, in.n ? 4 : 0);
    if (in.n) ein__put(&body, "}\n");
    if (body.s) {
        const char *row = ein__namef(g->ctx, "m0 + %s", ein__kprod_row(r));
        const char *column = ein__namef(g->ctx, "n0 + %s", ein__kprod_column(r));
        if (!ein__kboxed(r, 0)) ein__kprod_declare(g, &head, e->rows, e->nrow, m, row, body.s);
        if (!ein__kboxed(r, 1)) ein__kprod_declare(g, &head, e->cols, e->ncol, n, column, body.s);
    }
    ein__buf_free(text);
    ein__putf(text, "%s%s", head.s ? head.s : "", body.s ? body.s : "");
    ein__buf_free(&in);
    ein__buf_free(&body);
    ein__buf_free(&head);
}

// How often a thread reads what `read` of the epilogue stands for, of `rows` x `cols` that it
// stores: once for all rows where that has none of their iterators, and for all columns likewise.
// Of a cluster's blocks each stores a share, which may be one of the same columns.
static int ein__kprod_times(ein__kgen *g, const ein__kprod *r, ein__ex read, int rows, int cols) {
    uint32_t uses = ein__kmask(g, read);
    int vectors = rows * (cols / g->vec), most = vectors;
    if (r->cluster) most = (int)ein__ceil(vectors, r->parts);
    if (r->cluster && vectors % r->parts) return most;
    int down = uses & r->p.group[0] ? rows : 1, across = uses & r->p.group[1] ? cols / g->vec : 1;
    return (int)ein__least(down * across, most);
}

// Registers of a thread for what the epilogue of a warpgroups' tile reads, beside the sums.
static int ein__kprod_spare(const ein__product_tile *t, int sums) {
    enum { OTHERS = 48, LEAST = 16, MOST = 48 };
    int spare = (t->resident > 1 ? 128 : 256) - sums - OTHERS;
    return spare < LEAST ? LEAST : spare < MOST ? spare : MOST;
}

// How many of `all` vectors are asked for at once, `most` at most: a share of them, so that all
// rounds are alike and nvcc unrolls them (where the last one was shorter it kept an array in local
// memory).
static int ein__kprod_together(int most, int all) {
    int n = (int)ein__least(most, all);
    while (all % n) n--;
    return n;
}

// What the epilogue reads is asked for before the sums of groups or blocks meet, which takes as
// long as memory takes to answer; `first` is what makes values of it. Where a thread would need too
// many registers for it, warpgroups' tiles ask for some vectors' before these are stored: one after
// the other, each behind its guard, they would be waited for.
static void ein__kprod_hold(ein__kgen *g, ein__kprod *r, const ein__kends *e, ein__ex body,
                            int rows, int cols, ein__buf *first) {
    ein__ex *reads = NULL;
    int *times = NULL;
    ein__kslot slot[EIN__MAX_ITERS];
    memcpy(slot, g->slot, sizeof slot);
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].level = 1;
    ein__kprod_reads(g, body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        arrput(times, ein__kprod_times(g, r, reads[i], rows, cols));
    int words = ein__kprod_ask(g, reads, times, EIN__FOUND_WORDS, "y", &r->held, &r->hold, first);
    if (!words && r->t->warpgroups && r->parts == 1) {
        int spare = ein__kprod_spare(r->t, rows * cols);
        words = ein__kprod_ask(g, reads, NULL, spare, "y", &r->held, &r->hold, first);
        if (words) r->together = ein__kprod_together(spare / words, rows * (cols / g->vec));
    }
    if (words) ein__kprod_placed(g, r, e, &r->hold);
    memcpy(g->slot, slot, sizeof slot);
    arrfree(times);
    arrfree(reads);
}

// The value of each lane of what is stored: the sum, and what the epilogue makes of it.
static void ein__kprod_values(ein__kgen *g, const ein__step *step, ein__kprod *r,
                              const ein__kends *e, int rows, int cols, ein__ktext value[4]) {
    ein__buf first = {0};
    ein__ex body = {0};
    if (step->nval > 1) body = ein__kprod_body(g, step);
    if (body.i && ein__kprod_meets(r)) ein__kprod_hold(g, r, e, body, rows, cols, &first);
    g->post = &r->store;
    if (r->p.alpha != 1)
        for (int i = 0; i < g->vec; i++)
            ein__putf(&r->store, "%s *= %s;\n", ein__kprod_sum(r, i),
                      ein__kliteral(g, r->p.alpha).s);
    if (first.s) ein__put(&r->store, first.s);
    if (body.i) ein__kcount(g, body);
    for (int i = 0; i < g->vec; i++) {
        value[i] = (ein__ktext){ein__kprod_sum(r, i), EIN__PRIMARY, 0};
        if (body.i) value[i] = ein__kvalue(g, body, i);
    }
    ein__buf_free(&first);
}

// The epilogue and the store at (m, n). False: not with this many lanes.
static bool ein__kprod_store(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein__kends e = {.scan = ein__kscan_make(g)};
    int order[2 * EIN__MAX_ITERS], n = 0, nover = g->nover;
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(e.rows, r->order[0], sizeof e.rows);
    memcpy(e.cols, r->order[1], sizeof e.cols);
    if (step->nval > 1) ein__kscan_expr(g, &e.scan, ein__kprod_body(g, step));
    ein__kscan_out(g, &e.scan, step->out);
    e.nrow = ein__kboxed(r, 0) ? r->n[0] : ein__kmerge(g, &e.scan, e.rows, r->n[0]);
    e.ncol = ein__kboxed(r, 1) ? r->n[1] : ein__kmerge(g, &e.scan, e.cols, r->n[1]);
    for (int i = 0; i < r->n[2]; i++) order[n++] = r->order[2][i];
    for (int i = 0; i < e.nrow; i++) order[n++] = e.rows[i];
    for (int i = 0; i < e.ncol; i++) order[n++] = e.cols[i];
    bool ok = g->vec == 1 || (e.ncol && ein__kvector_out(g, step->out, order, n, &e.scan));
    if (ok && g->vec > 1) g->vec_slot = e.cols[e.ncol - 1];
    if (ok && g->vec > 1 && ein__kboxed(r, 1)) ok = ein__kbox_extent(r, g->vec_slot) >= g->vec;
    if (ok) {
        ein__ktext value[4];
        int stored[2];
        ein__kprod_tile(g, r, &stored[0], &stored[1]);
        ein__kprod_values(g, step, r, &e, stored[0], stored[1], value);
        ein__kstore(g, &r->store, step->out, &e.scan, value);
        g->post = NULL;
        ok = !g->scattered;
    }
    g->nover = nover;
    ein__kprod_placed(g, r, &e, &r->store);
    ein__kscan_free(&e.scan);
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
    if (ein__kboxed(r, 1)) {
        ein__kbox_index(g, r, 1, &below);
        ein__putf(&r->index, "const %s m0 = %s;\n", u,
                  ein__kprod_first(g, &below, down, r->t->rows));
    } else if (ein__kboxed(r, 0)) {
        ein__putf(&r->index, "const %s n0 = %s;\n", u,
                  ein__kprod_first(g, &below, across, r->t->cols));
        ein__kbox_index(g, r, 0, &below);
    } else {
        const char *column = ein__kprod_first(g, &below, across, r->t->cols);
        ein__putf(&r->index, "const %s n0 = %s, m0 = %s;\n", u, column,
                  ein__kprod_first(g, &below, down, r->t->rows));
    }
    for (int i = r->n[2] - 1; i >= 0; i--) {
        const ein__kslot *s = &g->slot[r->order[2][i]];
        const char *digit = ein__kdigit(g, &below, s->n, 1);
        if (r->used >> r->order[2][i] & 1)
            ein__putf(&r->index, "const %s %s = %s;\n", type, s->name, digit);
    }
    ein__put(&r->index, g->code[0].s);
    return below;
}

// Whether a factor is read as a kernel of the run finds it, since weights alone are: then its loads
// need not wait for the kernel before. On tensor cores only what is fetched is loaded by itself.
static bool ein__kprod_constant(ein__kgen *g, const ein__kprod *r, int side) {
    const ein__ex *reads = ein__ex_reads(g->ctx, r->factor[side]);
    bool constant = r->math == EIN__MATH_FP32 || r->fetched[side];
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(g->ctx, reads[i])->val};
        constant = constant && ein__kconstant(g->ctx, v);
    }
    return constant;
}

// 1: the first factor's loads need not wait, 2: the second's (or both), 0: neither.
static const char *ein__kprod_early(ein__kgen *g, const ein__kprod *r) {
    return ein__kprod_constant(g, r, 1) ? "2" : ein__kprod_constant(g, r, 0) ? "1" : "0";
}

// How many blocks of an SM the compiler is to keep registers for: two where loads are few and sums
// do not need more than half of the registers; else it is told that one will do, or it spills some
// for a second one.
static const char *ein__kprod_bounds(const ein__kgen *g, const ein__kprod *r) {
    if (r->cluster) return ein__namef(g->ctx, "CLUSTER(%d)", r->parts);
    bool few = (r->fetched[0] && r->fetched[1] && r->wide[0] && r->wide[1]) || r->t->patch;
    bool two = few && r->parts == 1 && r->t->resident > 1 && !ein__cross_alone(&r->p, r->t);
    return two ? "__launch_bounds__(256, 2)" : "__launch_bounds__(256, 1)";
}

static const char *ein__kprod_text(const ein__buf *b) { return b->n ? b->s : ""; }

// The declaration of a factor's loads, and of what they make of what they have found.
static void ein__kprod_put_load(const ein__kprod *r, int side, ein__buf *out) {
    const char *name = r->name[side];
    if (ein__kboxed(r, side)) {
        ein__put(out, r->load[side].s);
        return;
    }
    if (r->found[side].n) {
        ein__putf(out, "struct found_%s {\n", name);
        ein__kindent(out, r->found[side].s, 4);
        ein__put(out, "};\n");
    }
    ein__putf(out, "const auto %s = [&](%s) {\n", name, r->args[side]);
    ein__kindent(out, r->load[side].s, 4);
    ein__put(out, "};\n");
    if (!r->found[side].n) return;
    ein__putf(out, "const auto make_%s = [&](%s, const found_%s &f) {\n", name, r->make_args[side],
              name);
    ein__kindent(out, r->make[side].s, 4);
    ein__put(out, "};\n");
}

static void ein__kprod_put_loads(ein__kgen *g, const ein__kprod *r, ein__buf *out) {
    const char *taps = ein__kprod_table(g, r);
    if (*taps)
        ein__putf(out,
                  "// What each term adds to an address (x) and to positions (y, z, w; of two the\n"
                  "// halves of y) that have an end; behind the last term none is inside.\n"
                  "%s__syncthreads();\n",
                  taps);
    for (int side = 0; side < 2; side++)
        if (r->load[side].n) ein__kprod_put_load(r, side, out);
    if (r->found[0].n || r->found[1].n) ein__kneed(g, EIN__NEED_COMPUTED);
}

// Adds the terms of the second product `r` to the tile's sums: all, or this part's, which may be
// none.
static void ein__kprod_put_second(ein__kgen *g, const ein__kprod *r, ein__buf *out) {
    long long terms = (long long)r->p.depth, share = (long long)r->share;
    const char *from = "0u", *until = ein__namef(g->ctx, "%lldu", terms);
    ein__buf in = {0};
    if (r->parts > 1) {
        ein__putf(&in, "const unsigned from = part * %lldu;\n", share);
        if (share * (r->parts - 1) >= terms) ein__putf(&in, "if (from < %lldu)\n    ", terms);
        from = "from";
        until = ein__namef(g->ctx, "min(from + %lldu, %lldu)", share, terms);
    }
    ein__putf(&in, "tile.multiply<%s, %s, 0>(%s, %s, %s, %s, next_early, dot);\n", r->along[0],
              r->along[1], from, until, r->call[0], r->call[1]);
    ein__buf text = {0};
    ein__put(&text, "// The second product's terms; the tile is free.\n");
    ein__kprod_put_loads(g, r, &text);
    ein__put(&text, "__syncthreads();\n");
    ein__put(&text, in.s);
    ein__put(out, "{\n");
    ein__kindent(out, text.s, 4);
    ein__put(out, "}\n");
    ein__buf_free(&in);
    ein__buf_free(&text);
}

// What the loads of the epilogue need of the row and the column of element e.
static const char *ein__kprod_at(ein__kgen *g, const ein__kprod *r, int cols) {
    const char *hold = ein__kprod_text(&r->hold), *i = "", *j = "";
    if (ein__kmentions(hold, "i"))
        i = cols > 1 ? ein__namef(g->ctx, "const int i = e / %d;\n", cols) : "const int i = e;\n";
    if (ein__kmentions(hold, "j"))
        j = cols > 1 ? ein__namef(g->ctx, "const int j = e %% %d;\n", cols) : "const int j = 0;\n";
    return ein__namef(g->ctx, "%s%s", i, j);
}

static void ein__kprod_finish(ein__kgen *g, const ein__step *step, ein__kprod *r,
                              const ein__kprod *second, int64_t blocks, const char *hint,
                              ein__buf *out, ein__launch *l) {
    ein_ctx *c = g->ctx;
    int rows, cols;
    const char *tile = ein__kprod_tile(g, r, &rows, &cols);
    bool reads = strchr(r->index.s, '[') != NULL;  // the tile's place is read from memory
    ein__buf loads = {0};
    ein__kprod_put_loads(g, r, &loads);
    const char *a = r->sums ? ein__namef(c, "summing(%s, &sums)", r->call[0]) : r->call[0],
               *b = r->call[1];
    if (r->p.crosses) ein__kcross_put(g, step, r, second, &loads, &a, &b);
    ein__key keys[] = {
        {0},
        {0},
        {"storage", ein__kstorage(g, tile, "tile", ein__kprod_dynamic(g, r), l)},
        {"RM", ein__namef(c, "%d", r->math ? rows : r->t->rm)},
        {"RN", ein__namef(c, "%d", cols)},
        {"rows", ein__namef(c, "%d", rows)},
        {"i", cols > 1 ? ein__namef(c, "e / %d", cols) : "e"},
        {"j", cols > 1 ? ein__namef(c, "e %% %d", cols) : "0"},
        {"V", ein__namef(c, "%d", g->vec)},
        {"bounds", ein__kprod_bounds(g, r)},
        {"number", ein__kunsigned(g)},
        {"many", blocks > r->parts ? "1" : ""},
        {"index", r->index.s},
        {"reads", reads ? "1" : ""},
        {"terms", ein__namef(c, "%lldu", (long long)r->p.depth)},
        {"loads", loads.s},
        {"a", a},
        {"b", b},
        {"along", ein__namef(c, "%s, %s", r->along[0], r->along[1])},
        {"early", reads ? "0" : r->early},
        {"second", ein__kprod_text(&r->second)},
        {"more", ein__kcross_more(g, r, cols)},
        {"parts", r->parts > 1 ? ein__namef(c, "%d", r->parts) : ""},
        {"share", ein__namef(c, "%lldu", (long long)r->share)},
        {"sharing", ein__namef(c, "parts_in_%s<%d, %d, %d>", r->cluster ? "cluster" : "memory",
                               r->parts, rows * cols / 4, r->t->rows)},
        {"sums", r->sums ? "1" : ""},
        {"leave", ein__kprod_text(&r->leave)},
        {"lines", ein__namef(c, "%d", r->t->rows)},
        {"totals", r->totals.s},
        {"start", r->start.s},
        {"room", r->room.s},
        {"factor", r->factors.s},
        {"also", r->also.s},
        {"shared", ein__knumber(g, r->shared)},
        {"held", r->together ? "" : ein__kprod_text(&r->held)},
        {"found", r->together ? r->held.s : ""},
        {"together", r->together ? ein__namef(c, "%d", r->together) : ""},
        {"vectors", r->parts > 1 ? ein__namef(c, "4 * shares.OWN / %d", g->vec)
                                 : ein__namef(c, "%d", rows * cols / g->vec)},
        {"at", ein__kprod_at(g, r, cols)},
        {"hold", ein__kprod_text(&r->hold)},
        {"rowHeld", ein__kprod_text(&r->row_held)},
        {"rowHold", ein__kprod_text(&r->row_hold)},
        {"store", r->store.s}};
    ein__kneed(g, EIN__NEED_AWAIT);
    if (r->parts > 1) ein__kneed(g, EIN__NEED_PARTS);
    if (r->parts > 1 && r->sums) ein__kneed(g, EIN__NEED_PART_ROWS);
    if (r->cluster) ein__kneed(g, EIN__NEED_CLUSTERS);
    if (r->t->warpgroups && r->math == EIN__MATH_TF32) l->rounded = (ein__val){r->p.read[1]->val};
    g->shared = r->parts > 1;
    g->ordered = true;
    ein__kfinish(g, step->out, hint, ein__tmpl_product, keys, (int)(sizeof keys / sizeof *keys),
                 out, l);
    ein__buf_free(&loads);
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
        int64_t most = -1;
        r->factor[k] = ein__ex_of(c, r->p.read[k]);
        for (int i = 0; i < 2; i++)
            if (step->load[i].i && step->load[i].i == r->p.read[k]->val)
                r->factor[k] = step->loaded[i];
        if (!k && r->sums) ein__kprod_split_shift(g, r);
        r->main[k] = r->factor[k];
        const ein__ex *reads = ein__ex_reads(c, r->factor[k]);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            ein__val v = {ein__ex_get(c, reads[i])->val};
            int64_t n = ein__elements(&ein__val_get(c, v)->shape);
            if (n <= most) continue;
            most = n;
            r->main[k] = reads[i];
        }
    }
}

// The loads of both factors of product `s`, whose tile and lines `r` has.
static void ein__kprod_operands(ein__kgen *g, const ein__scope *s, ein__kprod *r) {
    ein__kprod_terms(g, s, r);
    for (int side = 0; side < 2; side++)
        if (ein__kboxed(r, side)) ein__kprod_patch(g, r, side);
        else ein__kprod_load(g, r, side);
    r->early = ein__kprod_early(g, r);
}

// The second product, by the lines that the first one has: its text as part of the kernel. The tile
// copies what both may copy.
static void ein__kprod_second(ein__kgen *g, const ein__step *step, ein__kprod *first,
                              ein__kprod *r) {
    const ein__scope *s = ein__scope_of(g->ctx, step->addend);
    r->t = first->t;
    r->parts = first->parts;
    r->share = ein__addend_share(&r->p, r->t, r->parts);
    r->math = first->math;
    memcpy(r->order, first->order, sizeof r->order);
    memcpy(r->n, first->n, sizeof r->n);
    memcpy(g->slot, first->slot, sizeof g->slot);
    ein__kslots(g, s, s->nt);
    r->longest = first->longest;
    r->tap_bytes = first->tap_bytes;  // there is one table
    r->tap_words = first->tap_words;
    ein__kprod_operands(g, s, r);
    first->tap_bytes = r->tap_bytes;
    first->tap_words = r->tap_words;
    for (int k = 0; k < 2; k++) {
        r->fetched[k] = first->fetched[k] &= r->fetched[k];
        first->wide[k] &= r->wide[k];
    }
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kproduct(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                          ein__launch *l) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    ein__kprod r = {.name = {"a", "b"}}, second = {.name = {"a", "b"}};
    int64_t stride[EIN__MAX_RANK], ps;
    int vec = g->vec;
    for (uint32_t i = 0; i < s->nt; i++) stride[i] = ein__kstride(g, step->out, (int)i);
    ein__kernel kernel = ein__step_kernel(g->ctx, step);
    kernel.out = stride;
    if (!ein__match_product_kernel(g->ctx, &kernel, &r.p, &second.p)) {
        EIN_ASSERT(!step->addend.i);
        return ein__kreduce(g, step, hint, out, l);
    }
    r.t = step->tile ? &ein__product_table[step->tile - 1] : NULL;
    if (!r.t || !ein__product_fits(&r.p, r.t)) r.t = ein__product_tile_of(g->ctx, &r.p, &ps);
    r.math = r.t->math;
    r.parts = step->parts ? step->parts : 1;
    r.share = r.longest = ein__tail_share(&r.p, r.t, r.parts);
    r.cluster = step->cluster;
    EIN_ASSERT(r.share);
    ein__kscan all = ein__kscan_make(g);
    ein__kprod_inner(g, step, &r);
    if (step->nrow) ein__kprod_rows(g, step, &r);
    if (r.p.crosses) ein__kcross_factors(g, &r, &second);
    else ein__kprod_factors(g, step, &r);
    if (step->addend.i) ein__kprod_factors(g, step, &second);
    for (int k = 0; k < 2; k++) ein__kscan_expr(g, &all, r.factor[k]);
    for (int k = 0; k < 2; k++)
        if (second.factor[k].i) ein__kscan_expr(g, &all, second.factor[k]);
    if (step->nval > 1) ein__kscan_expr(g, &all, ein__kprod_body(g, step));
    ein__kscan_out(g, &all, step->out);
    ein__kprod_orders(g, &r, &all);
    r.ends = r.p.crosses && ein__kcross_ends(g->ctx, &r);
    ein__kprod_operands(g, s, &r);
    if (step->addend.i) ein__kprod_second(g, step, &r, &second);
    if (r.p.crosses) ein__kcross_second(g, &r, &second);
    if (r.sums) ein__kprod_norm(g, step, &r);
    g->vec = vec;
    bool ok = ein__kprod_store(g, step, &r);
    int64_t blocks = ein__kprod_index(g, &r), limit = INT32_MAX - 1024;
    // Flat numbers run up to a tile beyond their ends.
    bool far = r.p.extent[0] > limit || r.p.extent[1] > limit;
    ok = ok && !g->too_wide && (g->wide || !far);
    if (step->addend.i) ein__kprod_put_second(g, &second, &r.second);
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, blocks, EIN__PRODUCT_THREADS))
        ein__kprod_finish(g, step, &r, &second, blocks, hint, out, l);
    ein__kscan_free(&all);
    ein__kprod_free(&r);
    ein__kprod_free(&second);
    return ok;
}
