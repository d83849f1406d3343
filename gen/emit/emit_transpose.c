// Transposes, through tiles in shared memory: read along the operand's innermost dimension, written
// along the result's. Tiles are 32 x 32; of halves 64 x 64 with two of them an access, where both
// dimensions fill one and nothing but a copy is made.

enum { EIN__TILE = 32, EIN__HALF_TILE = 64 };

// The read to go through tiles: its unit stride lies along a slot that is not the output's. Gives
// that slot; -1: none.
static int ein__ktrans_read(const ein__kgen *g, const ein__kscan *s, const int *order, int n,
                            ein__ex *read) {
    for (ptrdiff_t k = 0; n > 1 && k + 1 < arrlen(s->row); k++)
        for (int i = 0; i < n - 1; i++) {
            int a = order[i];
            if (s->row[k].k[a] != 1 || s->row[k].k[order[n - 1]] == 1) continue;
            if (s->pinned & (1u << a | 1u << order[n - 1]) || g->slot[a].n < 2) continue;
            *read = s->read[k];
            return a;
        }
    return -1;
}

// Tiles of `size` by `size`: along slot a, innermost in the operand, and b, the result's last one;
// one behind the other along the rest.
typedef struct ein__ktiles {
    int a, b, size, rest[EIN__MAX_RANK], nrest;
    int64_t count;
} ein__ktiles;

static ein__ktiles ein__ktrans_tiles(const ein__kgen *g, const int *order, int n, int a, int size) {
    ein__ktiles t = {.a = a, .b = order[n - 1], .size = size};
    for (int i = 0; i < n - 1; i++)
        if (order[i] != a) t.rest[t.nrest++] = order[i];
    t.count = (g->slot[a].n + size - 1) / size * ((g->slot[t.b].n + size - 1) / size) *
              ein__kcount_slots(g, t.rest, t.nrest);
    return t;
}

static void ein__ktrans_index(ein__kgen *g, ein__buf *b, const ein__ktiles *t) {
    int64_t ta = (g->slot[t->a].n + t->size - 1) / t->size, below = 1;
    int64_t tb = (g->slot[t->b].n + t->size - 1) / t->size;
    const char *type = ein__kint(g);
    ein__putf(b, "const %s fa = %s;\n", type, ein__kdigit(g, &below, ta, t->size));
    ein__putf(b, "const %s fb = %s;\n", type, ein__kdigit(g, &below, tb, t->size));
    for (int i = t->nrest - 1; i >= 0; i--)
        ein__putf(b, "const %s %s = %s;\n", type, g->slot[t->rest[i]].name,
                  ein__kdigit(g, &below, g->slot[t->rest[i]].n, 1));
}

// Keys that both templates have, in `k` from place 2 on.
enum { EIN__KTRANS_KEYS = 8 };

static void ein__ktrans_keys(ein__kgen *g, const ein__ktiles *t, const ein__buf *index,
                             ein__key *k) {
    const ein__key both[EIN__KTRANS_KEYS] = {
        {"number", ein__kunsigned(g)},
        {"many", t->count > 1 ? "1" : ""},
        {"int", ein__kint(g)},
        {"index", index->s},
        {"a", g->slot[t->a].name},
        {"b", g->slot[t->b].name},
        {"na", ein__namef(g->ctx, "%lld", (long long)g->slot[t->a].n)},
        {"nb", ein__namef(g->ctx, "%lld", (long long)g->slot[t->b].n)}};
    memcpy(k + 2, both, sizeof both);
}

// ------------------------------------------------------------------------------- copies of halves

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
    return ein__kpointer(g, param, at.s);
}

// The operand's address for such a copy; false: it is another kernel's.
static bool ein__khalf_of(ein__kgen *g, const ein__step *step, const ein__kscan *scan,
                          const int *order, int n, int *a, ein__factor *from) {
    ein_ctx *ctx = g->ctx;
    ein__ex read = {0};
    int64_t stride[EIN__MAX_RANK];
    *a = ein__ktrans_read(g, scan, order, n, &read);
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
    const ein__ktiles t = ein__ktrans_tiles(g, order, n, a, EIN__HALF_TILE);
    ein__val v = {ein__ex_get(g->ctx, ein__kbody(g, step->out))->val};
    const ein__krow *to = &scan->row[arrlen(scan->row) - 1];
    const char *load = ein__khalf_at(g, ein__kparam(g, v), from->coef, from->offset, order, n);
    const char *store = ein__khalf_at(g, "y", to->k, 0, order, n);
    if (g->too_wide || (t.count > INT32_MAX && !g->wide)) return false;
    if (g->overflow || !ein__kgrid(g->ctx, l, t.count, 32)) return true;
    l->block[1] = 8;
    ein__buf index = {0};
    ein__ktrans_index(g, &index, &t);
    ein__key keys[2 + EIN__KTRANS_KEYS + 3] = {{0}};
    const ein__key own[] = {
        {"from", load}, {"to", store}, {"step", ein__namef(g->ctx, "%lld", (long long)to->k[a])}};
    ein__ktrans_keys(g, &t, &index, keys);
    memcpy(keys + 2 + EIN__KTRANS_KEYS, own, sizeof own);
    ein__kfinish(g, step->out, hint, ein__tmpl_transpose_half, keys, 2 + EIN__KTRANS_KEYS + 3, out,
                 l);
    ein__buf_free(&index);
    return true;
}

// -------------------------------------------------------------------------------------- all others

// Not through tiles after all: a map.
static bool ein__ktrans_as_map(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                               ein__launch *l) {
    for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].gone = false;
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->out)->scope);
    for (uint32_t i = 0; i < s->nt; i++) g->slot[i].n = s->n[i];
    return ein__kmap(g, step, hint, out, l);
}

static bool ein__ktranspose(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                            ein__launch *l) {
    ein__val v = step->out;
    ein__ex body = ein__kbody(g, v), read = {0};
    ein__kscan scan = ein__kscan_make(g);
    int order[EIN__MAX_RANK];
    ein__kscan_expr(g, &scan, body);
    ein__kscan_out(g, &scan, v);
    int n = ein__kmerge(g, &scan, order, ein__korder(g, v, order));
    int a = ein__ktrans_read(g, &scan, order, n, &read);
    if (a < 0 || g->vec > 1) {
        ein__kscan_free(&scan);
        return a < 0 && ein__ktrans_as_map(g, step, hint, out, l);
    }
    const ein__ktiles t = ein__ktrans_tiles(g, order, n, a, EIN__TILE);
    g->slot[t.a].level = g->slot[t.b].level = 1;
    if (ein__kdtype(g, v) > EIN__BF16 && ein__kinteger(g, body)) g->num = EIN__NUM_INT;
    ein__ktext element = ein__kread(g, read, 0);
    ein__buf index = {0}, before = g->code[0], load = g->code[1];
    g->code[0] = g->code[1] = (ein__buf){0};
    ein__put(&g->code[0], "");
    ein__put(&g->code[1], "");
    ein__kforget(g, 1);
    g->over[g->nover].ex = read;
    g->over[g->nover++].text = ein__kt(g, EIN__PRIMARY, 1, "tile[threadIdx.x][j + threadIdx.y]");
    ein__kcount(g, body);
    ein__ktext value = ein__kvalue(g, body, 0);
    ein__kstore(g, &g->code[1], v, &scan, &value);
    bool ok = !g->too_wide;
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, t.count, 32)) {
        l->block[1] = 8;
        ein__ktrans_index(g, &index, &t);
        ein__key keys[2 + EIN__KTRANS_KEYS + 6] = {{0}};
        const ein__key own[] = {{"T", ein__knum_type(g)}, {"before", before.s},
                                {"load", load.s},         {"value", element.s},
                                {"middle", g->code[0].s}, {"store", g->code[1].s}};
        ein__ktrans_keys(g, &t, &index, keys);
        memcpy(keys + 2 + EIN__KTRANS_KEYS, own, sizeof own);
        ein__kfinish(g, v, hint, ein__tmpl_transpose, keys, 2 + EIN__KTRANS_KEYS + 6, out, l);
    }
    ein__buf_free(&index);
    ein__buf_free(&before);
    ein__buf_free(&load);
    ein__kscan_free(&scan);
    return ok;
}

// One attempt at a transpose; false: try again without vectors or with 64-bit indices.
static bool ein__ktranspose_kernel(ein__kgen *g, const ein__step *step, const char *hint,
                                   ein__buf *out, ein__launch *l) {
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
    ein__krestart(g, step->out, wide, vec);
    return ein__ktranspose(g, step, hint, out, l);
}
