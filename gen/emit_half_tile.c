// Transposes of halves: tiles of 64 x 64, two halves an access, where both dimensions fill one;
// other copies through tiles are those of emit_map.c.

enum { EIN__HALF_TILE = 64 };

// Whether every step of an address but that of slot `along` is even.
static bool ein__khalf_even(const ein__kgen *g, const int64_t *k, const int *order, int n,
                            int along, int64_t offset) {
    for (int i = 0; i < n; i++)
        if (order[i] != along && k[order[i]] % 2) return false;
    return g->slot[along].n % 2 == 0 && offset % 2 == 0;
}

static const char *ein__khalf_at(ein__kgen *g, const char *param, const int64_t *k, int64_t start,
                                 const int *order, int n) {
    ein__ktext at = ein__knarrow_at(g, k, start, order, n, -1);
    return ein__namef(g->ctx, "%s + %s", param, ein__kparen(g, at, EIN__TERM));
}

// The operand's address for such a copy; false: it is another kernel's.
static bool ein__khalf_of(ein__kgen *g, const ein__step *step, const ein__kscan *scan,
                          const int *order, int n, int *a, ein__factor *from) {
    ein_ctx *ctx = g->ctx;
    ein__ex read = {0};
    int64_t stride[EIN__MAX_RANK];
    *a = ein__ktile_read(g, scan, order, n, &read);
    if (*a < 0 || ein__kbody(g, step->out).i != read.i) return false;
    const ein__expr *e = ein__ex_get(ctx, read);
    const ein__krow *to = &scan->row[arrlen(scan->row) - 1];
    int b = order[n - 1];
    bool half =
        ein__kdtype(g, step->out) == EIN__F16 && ein__kdtype(g, (ein__val){e->val}) == EIN__F16;
    if (!half || g->slot[*a].n < EIN__HALF_TILE || g->slot[b].n < EIN__HALF_TILE) return false;
    for (int d = 0; d < ctx->value[e->val].shape.rank; d++)
        stride[d] = ein__kstride(g, (ein__val){e->val}, d);
    if (!ein__address(ctx, e, stride, from) || to->k[b] != 1 || from->coef[*a] != 1) return false;
    return ein__khalf_even(g, from->coef, order, n, *a,
                           from->offset + ctx->plan.layout[e->val].offset) &&
           ein__khalf_even(g, to->k, order, n, b, ctx->plan.layout[step->out.i].offset);
}

static bool ein__khalf_put(ein__kgen *g, const ein__step *step, const ein__kscan *scan,
                           const int *order, int n, int a, const ein__factor *from,
                           const char *hint, ein__buf *out, ein__launch *l) {
    ein_ctx *c = g->ctx;
    int rest[EIN__MAX_RANK], nrest = 0, b = order[n - 1];
    ein__val v = {ein__ex_get(c, ein__kbody(g, step->out))->val};
    const ein__krow *to = &scan->row[arrlen(scan->row) - 1];
    for (int i = 0; i < n - 1; i++)
        if (order[i] != a) rest[nrest++] = order[i];
    int64_t tiles = (g->slot[a].n + EIN__HALF_TILE - 1) / EIN__HALF_TILE *
                    ((g->slot[b].n + EIN__HALF_TILE - 1) / EIN__HALF_TILE) *
                    ein__kcount_slots(g, rest, nrest);
    const char *load = ein__khalf_at(g, ein__kparam(g, v), from->coef, from->offset, order, n);
    const char *store = ein__khalf_at(g, "y", to->k, 0, order, n);
    if (g->too_wide || (tiles > INT32_MAX && !g->wide)) return false;
    if (g->overflow || !ein__kgrid(c, l, tiles, 32)) return true;
    l->block[1] = 8;
    ein__buf index = {0};
    ein__ktile_index(g, &index, rest, nrest, a, b, EIN__HALF_TILE);
    ein__key keys[] = {{0},
                       {0},
                       {"number", ein__kunsigned(g)},
                       {"many", tiles > 1 ? "1" : ""},
                       {"int", ein__kint(g)},
                       {"index", index.s},
                       {"a", g->slot[a].name},
                       {"b", g->slot[b].name},
                       {"na", ein__namef(c, "%lld", (long long)g->slot[a].n)},
                       {"nb", ein__namef(c, "%lld", (long long)g->slot[b].n)},
                       {"from", load},
                       {"to", store},
                       {"step", ein__namef(c, "%lld", (long long)to->k[a])}};
    ein__kbytes(g, scan, ein__kcount_slots(g, order, n), l);
    ein__kfinish(g, step->out, hint, ein__tmpl_transpose_half, keys, 13, out, l);
    ein__buf_free(&index);
    return true;
}

// One attempt at a transpose; false: try again without vectors or with 64-bit indices.
static bool ein__ktranspose_kernel(ein__kgen *g, const ein__step *step, const char *hint,
                                   ein__buf *out, ein__launch *l) {
    ein_ctx *ctx = g->ctx;
    int order[EIN__MAX_RANK], vec = g->vec, a;
    bool wide = g->wide, done = false;
    ein__factor from;
    if (vec == 1) return ein__ktranspose(g, step, hint, out, l);
    ein__kscan scan = ein__kscan_make(g);
    ein__kscan_expr(g, &scan, ein__kbody(g, step->out));
    ein__kscan_out(g, &scan, step->out);
    int n = ein__kmerge(g, &scan, order, ein__korder(g, step->out, order));
    if (ein__khalf_of(g, step, &scan, order, n, &a, &from))
        done = ein__khalf_put(g, step, &scan, order, n, a, &from, hint, out, l);
    ein__kscan_free(&scan);
    if (done) return true;
    ein__kgen_free(g);
    *g = ein__kgen_make(ctx, step->out, wide, vec);
    return ein__ktranspose(g, step, hint, out, l);
}
