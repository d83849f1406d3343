// Norms fused into a tiled product (norm.c): sums along the rows of its first factor, the factors
// that are computed from them for each row, and a block's share of the normalized rows where these
// are stored.

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
    const char *zero;
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(rows, r->order[0], sizeof rows);
    ein__kscan_row(g, &scan, r->shift);
    int n = ein__kmerge(g, &scan, rows, r->n[0]);
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].level = 1;
    ein__kaccess at = ein__kprod_access(g, r->shift, -1, &(int){1});
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
    ein__putf(&r->start,
              r->shift.i ? "%s::row_sums<decltype(first)> sums(first);\n"
                         : "%s::row_sums<unshifted> sums((unshifted()));\n",
              ein__kprod_dynamic(g, r) ? "tile_type" : "decltype(tile)");
    // Behind what other blocks read there.
    const char *at = r->cluster ? ein__namef(g->ctx, "tile.bytes + %lld",
                                             (long long)ein__cluster_bytes(&r->p, r->t))
                                : "tile.bytes";
    ein__putf(&r->room,
              "__syncthreads();\n"
              "float(&total)[%d][%d][%d] = *reinterpret_cast<float(*)[%d][%d][%d]>(%s);\n"
              "float(&factor)[%d][%d] =\n"
              "    *reinterpret_cast<float(*)[%d][%d]>(%s + sizeof total);\n",
              r->kinds, rows, r->t->parts, r->kinds, rows, r->t->parts, at, factors, rows, factors,
              rows, at);
}

// Definitions of the row operation in the product's iterators, before anything is counted of them.
static void ein__kprod_rows(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein_ctx *c = g->ctx;
    const ein__expr *x = r->p.read[0];
    while (r->kinds < step->nrow && !ein__is_map(c, step->val[1 + r->kinds])) r->kinds++;
    r->sums = r->kinds > 0;
    for (int i = r->kinds; i < step->nrow; i++) {
        ein__val v = step->val[1 + i];
        r->made[i - r->kinds] =
            ein__ex_subst(c, ein__kbody(g, v), x->ix, ein__val_get(c, v)->shape.rank);
    }
    r->first = g->ninner;
    for (int i = 1; i <= step->nrow; i++)
        g->inner[g->ninner++] = (ein__kinner){.v = step->val[i], .level = 1};
    if (step->also.i) r->stored = ein__ex_subst(c, ein__kbody(g, step->also), x->ix, (int)x->nix);
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

// The whole of sum i along row `line`, in `to`: where blocks share the terms, what they have left.
static void ein__kprod_whole(ein__kprod *r, int i, ein__buf *to) {
    ein__putf(to, "const float s%d = ", i);
    if (r->parts == 1) {
        ein__putf(to, "sums.of(total[%d], line);\n", i);
        return;
    }
    ein__putf(&r->leave, "shares.rows[%d * shares.ROWS + line] = sums.of(total[%d], line);\n", i,
              i);
    ein__putf(to, "add_row(shares, %d, line);\n", i);
}

enum { EIN__ROW_WORDS = 4 };  // registers of a thread for what a row's factors read

// What the factors of a row read is asked for before its sums meet; `first` makes values of it.
static void ein__kprod_row_hold(ein__kgen *g, ein__kprod *r, int n, const int *rows, int nrow,
                                ein__buf *first) {
    ein__ex *reads = NULL;
    ein__buf hold = {0};
    for (int i = 0; i < n; i++) ein__kprod_reads(g, r->made[i], &reads);
    if (ein__kprod_ask(g, reads, NULL, EIN__ROW_WORDS, "row", &r->row_held, &hold, first))
        ein__kprod_inside(g, &r->row_hold, rows, nrow, ein__kprod_flat(g, rows, nrow, "m"),
                          "m0 + line", r->p.extent[0] % r->t->rows == 0, r->p.extent[0], hold.s);
    ein__buf_free(&hold);
    arrfree(reads);
}

// What is made of the rows' sums, for row m0 + line of the tile.
static void ein__kprod_factor(ein__kgen *g, const ein__step *step, ein__kprod *r) {
    ein_ctx *c = g->ctx;
    ein__kscan scan = ein__kscan_make(g);
    ein__buf body = {0}, first = {0}, last = {0};
    int rows[EIN__MAX_ITERS], n = step->nrow - r->kinds, nover = g->nover;
    memcpy(g->slot, r->slot, sizeof r->slot);
    memcpy(rows, r->order[0], sizeof rows);
    ein__kuncount(g);
    ein__put(&r->totals, "");
    for (int i = 0; i < r->kinds; i++) {
        ein__ex u = ein__kbody(g, step->val[1 + i]);
        const char *what = ein__ex_get(c, u)->op == EIN__X_READ ? "sum" : "square";
        ein__putf(&r->totals, "sums.total(sums.%s, total[%d]);\n", what, i);
        ein__kprod_whole(r, i, &body);
        g->inner[r->first + i].text[0] = ein__namef(c, "s%d", i);
    }
    for (int i = 0; i < n; i++) {
        ein__kscan_expr(g, &scan, r->made[i]);
        ein__kcount(g, r->made[i]);
    }
    int nrow = ein__kmerge(g, &scan, rows, r->n[0]);
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].level = 1;
    if (ein__kprod_meets(r)) ein__kprod_row_hold(g, r, n, rows, nrow, &first);
    if (r->row_held.n) ein__putf(&body, "const found_row &f = row;\n%s", first.n ? first.s : "");
    for (int i = 0; i < n; i++)
        ein__putf(&last, "factor[%d][line] = %s;\n", i, ein__kvalue(g, r->made[i], 0).s);
    ein__putf(&body, "%s%s", g->code[1].s, last.s);
    ein__kprod_inside(g, &r->factors, rows, nrow, ein__kprod_flat(g, rows, nrow, "m"), "m0 + line",
                      r->p.extent[0] % r->t->rows == 0, r->p.extent[0], body.s);
    ein__kprod_leave(g);
    ein__kprod_name_factors(g, r, n, "line");
    g->nover = nover;
    ein__buf_free(&body);
    ein__buf_free(&first);
    ein__buf_free(&last);
    ein__kscan_free(&scan);
}

// The address of the row operation's own result by slots of the product, which are its iterators or
// digits of these.
static void ein__kprod_place(ein__kgen *g, const ein__kprod *r, ein__val v, ein__krow *row) {
    const ein__expr *x = r->p.read[0];
    *row = (ein__krow){{0}};
    for (uint32_t k = 0; k < x->nix; k++) {
        EIN_ASSERT(ein__ix_affine(g->ctx, x->ix[k]));
        for (uint32_t slot = 0; slot < EIN__MAX_ITERS; slot++)
            row->k[slot] +=
                ein__kmul(g, ein__kstride(g, v, (int)k), ein__ix_coef(g->ctx, x->ix[k], slot));
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
    ein__kprod_name_factors(g, r, step->nrow - r->kinds, ein__kprod_row(r));
    ein__kuncount(g);
    g->vec = vec;
}
