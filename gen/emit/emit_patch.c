// Products by patches (patch.c, templates/tiles_patch.cu): where a tile's lines are a box of
// positions, and the loads of what these see.

// Whether the lines of `side` are boxes: 0 the rows, 1 the columns.
static bool ein__kboxed(const ein__kprod *r, int side) { return r->t->patch == side + 1; }

// The digit of number `name` that counts `extent` above `below` numbers, which are `all` together.
static const char *ein__kbox_digit(ein__kgen *g, const char *type, const char *name, int64_t below,
                                   int64_t extent, int64_t all) {
    const char *s = name;
    if (below > 1) s = ein__namef(g->ctx, "%s / %lldu", s, (long long)below);
    if (below * extent < all) s = ein__namef(g->ctx, "%s %% %lldu", s, (long long)extent);
    return ein__namef(g->ctx, s == name ? "(%s)%s" : "(%s)(%s)", type, s);
}

// Positions of a box along `slot`.
static int64_t ein__kbox_extent(const ein__kprod *r, int slot) {
    return (int64_t)1 << ein__patch_box(&r->p, r->t)->log[slot];
}

static int64_t ein__kbox_count(const ein__kgen *g, const ein__kprod *r, int slot) {
    return ein__ceil(g->slot[slot].n, ein__kbox_extent(r, slot));
}

// The first position of the block's box along each slot, from id, of which `*below` is taken.
static void ein__kbox_index(ein__kgen *g, ein__kprod *r, int side, int64_t *below) {
    for (int i = r->n[side] - 1; i >= 0; i--) {
        int slot = r->order[side][i];
        if (ein__kbox_count(g, r, slot) == 1) continue;
        ein__putf(
            &r->index, "const %s first_%s = %s;\n", ein__kint(g), g->slot[slot].name,
            ein__kdigit(g, below, ein__kbox_count(g, r, slot), (int)ein__kbox_extent(r, slot)));
    }
}

// Declares what `body` mentions of the positions of line `line`, a call; where it may lie beyond
// the last one, `in` gets the test that it does not.
static void ein__kbox_declare(ein__kgen *g, const ein__kprod *r, int side, const char *line,
                              const char *body, ein__buf *in, ein__buf *out) {
    int64_t below = 1, lines = side ? r->t->cols : r->t->rows;
    for (int i = r->n[side] - 1; i >= 0; i--) {
        int slot = r->order[side][i];
        int64_t n = g->slot[slot].n, extent = ein__kbox_extent(r, slot);
        const char *name = g->slot[slot].name, *s = "0";
        bool over = n % extent != 0, first = ein__kbox_count(g, r, slot) > 1;
        if (extent > 1) s = ein__kbox_digit(g, ein__kint(g), line, below, extent, lines);
        if (first && extent > 1) s = ein__namef(g->ctx, "first_%s + %s", name, s);
        else if (first) s = ein__namef(g->ctx, "first_%s", name);
        below *= extent;
        if (over) ein__putf(in, "%s%s < %lld", in->n ? " && " : "", name, (long long)n);
        if (over || ein__kmentions(body, name))
            ein__putf(out, "const %s %s = %s;\n", ein__kint(g), name, s);
    }
}

// How a patch lies in shared memory: as the value does in memory, but for what its lines do not
// see.
typedef struct ein__kpatch {
    ein__patch_axis axis[EIN__MAX_RANK];
    int n;
    int64_t size[EIN__MAX_RANK], step[EIN__MAX_RANK];  // along each axis, and between neighbours
    int64_t low[EIN__MAX_RANK];  // what iterators that count backwards move a position at most
    int64_t place;               // of the first line's first term
} ein__kpatch;

static bool ein__kpatch_of(ein__kgen *g, const ein__kprod *r, int side, ein__kpatch *h) {
    const ein__expr *read = ein__ex_get(g->ctx, r->factor[side]);
    int64_t below = 1;
    *h = (ein__kpatch){.n = (int)read->nix};
    if (!ein__patch_axes(g->ctx, read, h->axis)) return false;
    for (int d = h->n - 1; d >= 0; d--) {
        const ein__patch_axis *a = &h->axis[d];
        int64_t span = 1;
        for (int i = 0; i < r->n[side] + r->nsum; i++) {
            bool line = i < r->n[side];
            int slot = line ? r->order[side][i] : r->sum[i - r->n[side]];
            int64_t most = (line ? ein__kbox_extent(r, slot) : g->slot[slot].n) - 1;
            int64_t by = ein__times(a->coef[slot], most);
            span += by < 0 ? -by : by;
            h->low[d] += by < 0 ? by : 0;
        }
        h->size[d] = span;
        h->step[d] = below;
        h->place -= h->low[d] * below;
        below *= span;
    }
    return true;
}

// `name` taken apart along the slots of an order, of which one is `extent` long, as the place in
// the patch that they add up to; `c`: what is added to that.
static const char *ein__kpatch_place(ein__kgen *g, const ein__kprod *r, const ein__kpatch *h,
                                     const int *order, int n, bool line, int64_t c) {
    ein__klin l = {.c = c};
    const char *name = line ? "line" : "k";
    int64_t below = 1, all = line ? r->t->patch == 1 ? r->t->rows : r->t->cols : r->p.depth;
    for (int i = n - 1; i >= 0; i--) {
        int slot = order[i];
        int64_t extent = line ? ein__kbox_extent(r, slot) : g->slot[slot].n, k = 0;
        const char *s = ein__kbox_digit(g, "int", name, below, extent, all);
        for (int d = 0; d < h->n; d++) k += h->axis[d].coef[slot] * h->step[d];
        below *= extent;
        if (extent > 1) ein__klin_add(g, &l, (ein__kterm){k, {s, EIN__NAMED, 0}, 0, 1, extent});
    }
    return ein__klin_text(g, &l, 0).s;
}

// Where the patch begins along axis `d`, and whether it may leave the value at either end there.
static const char *ein__kpatch_first(ein__kgen *g, const ein__kprod *r, int side,
                                     const ein__kpatch *h, int d, bool *low, bool *high) {
    const ein__patch_axis *a = &h->axis[d];
    const ein__expr *read = ein__ex_get(g->ctx, r->factor[side]);
    int64_t n = ein__val_get(g->ctx, (ein__val){read->val})->shape.d[a->dim];
    int64_t c = a->c + h->low[d], least = c, most = c + h->size[d] - 1;
    ein__klin l = {.c = c};
    for (int i = 0; i < r->n[side]; i++) {
        int slot = r->order[side][i];
        int64_t last = (ein__kbox_count(g, r, slot) - 1) * ein__kbox_extent(r, slot);
        int64_t by = ein__times(a->coef[slot], last);
        if (!by) continue;
        *(by < 0 ? &least : &most) += by;
        const char *s = ein__namef(g->ctx, "first_%s", g->slot[slot].name);
        ein__klin_add(g, &l, (ein__kterm){a->coef[slot], {s, EIN__NAMED, 0}, 0, 1, last});
    }
    *low = least < 0;
    *high = most >= n;
    return ein__klin_text(g, &l, 0).s;
}

// The factor's loads: element e of the patch, and where lines and terms are in it.
static void ein__kprod_patch(ein__kgen *g, ein__kprod *r, int side) {
    ein_ctx *c = g->ctx;
    const ein__expr *read = ein__ex_get(c, r->factor[side]);
    const ein__val v = {read->val};
    const ein__shape *shape = &ein__val_get(c, v)->shape;
    ein__kaccess at = {.param = ein__kparam(g, v), .dtype = ein__kdtype(g, v)};
    ein__buf *b = &r->load[side], body = {0}, guard = {0};
    ein__klin l = {0};
    const char *index[EIN__MAX_RANK];
    int64_t elements = ein__patch_box(&r->p, r->t)->elements;
    ein__kpatch h;
    memcpy(g->slot, r->slot, sizeof r->slot);
    bool fits = ein__kpatch_of(g, r, side, &h);
    EIN_ASSERT(fits);
    (void)fits;
    for (int d = 0; d < h.n; d++) {
        bool low, high;
        int64_t n = shape->d[h.axis[d].dim];
        const char *name = ein__namef(c, "t%d", d), *e = "e";
        const char *first = ein__kpatch_first(g, r, side, &h, d, &low, &high);
        e = ein__kbox_digit(g, ein__kint(g), e, h.step[d], h.size[d], elements);
        if (h.size[d] == 1) e = first;
        else if (strcmp(first, "0")) e = ein__namef(c, "%s + %s", first, e);
        index[d] = ein__namef(c, "const %s %s = %s;\n", ein__kint(g), name, e);
        ein__kterm t = {1, {name, EIN__NAMED, 0}, 0, 1, n};
        ein__klin one = {.n = 1, .t[0] = t};
        if (low || high)
            ein__putf(&guard, "%s%s", guard.n ? " && " : "", ein__kwithin(g, one, 0, n, low, high));
        t.k = ein__kstride(g, v, h.axis[d].dim);
        ein__klin_add(g, &l, t);
    }
    at.at = ein__klin_text(g, &l, 0);
    const char *value = ein__kload(g, &at, 0).s;
    if (guard.n) value = ein__namef(c, "%s ? %s : %s", guard.s, value, ein__kliteral(g, 0).s);
    for (int d = 0; d < h.n; d++)
        if (ein__kmentions(value, ein__namef(c, "t%d", d))) ein__put(&body, index[d]);
    ein__putf(&body, "return %s;\n", value);
    const char *name = side ? "b" : "a";
    ein__putf(b, "const auto element_%s = [&](unsigned e) {\n", name);
    ein__kindent(b, body.s, 4);
    ein__putf(
        b, "};\nconst auto %s = patch<%lld>(\n    element_%s, [](unsigned line) { return %s; },\n",
        name, (long long)elements, name,
        ein__kpatch_place(g, r, &h, r->order[side], r->n[side], true, 0));
    ein__putf(b, "    [](unsigned k) { return %s; });\n",
              ein__kpatch_place(g, r, &h, r->sum, r->nsum, false, h.place));
    r->along[side] = "true";
    r->call[side] = name;
    ein__kneed(g, EIN__NEED_PATCHES);
    ein__buf_free(&body);
    ein__buf_free(&guard);
}
