// Narrow transposes: one of both dimensions has a few elements only, as the channels of an image
// that is split into planes, or the other way round. Tiles would be mostly empty, and lanes along
// the long dimension would have strided accesses, so a thread transposes four places in registers:
// vectors on both sides.

enum { EIN__NARROW_MOST = 7 };  // from 8 on tiles are used

// Slots of a narrow transpose: `vec` runs along the long dimension, `few` along the short one.
typedef struct ein__knarrow_form {
    ein__ex read;
    int vec, few;
    int64_t c;         // extent of `few`
    bool planes;       // the result has the long dimension innermost, else the operand
    ein__factor from;  // the operand's address
    const ein__krow *to;
} ein__knarrow_form;

// Whether all steps of an address keep vectors aligned, but those along them: along `vec` and,
// where the short dimension lies inside, `few`.
static bool ein__knarrow_aligned(const ein__kgen *g, const int64_t *k, const int *order, int n,
                                 int vec, int few, int64_t offset) {
    for (int i = 0; i < n; i++)
        if (order[i] != vec && order[i] != few && g->slot[order[i]].n > 1 && k[order[i]] % 4)
            return false;
    return offset % 4 == 0;
}

// Reads one operand as such; false: it is something else.
static bool ein__knarrow_of(ein__kgen *g, const ein__kscan *s, ptrdiff_t at, ein__val out,
                            const int *order, int n, ein__knarrow_form *f) {
    ein_ctx *ctx = g->ctx;
    const ein__expr *e = ein__ex_get(ctx, s->read[at]);
    const ein__krow *from = &s->row[at];
    int last = order[n - 1], inner = -1;
    int64_t stride[EIN__MAX_RANK];
    for (int i = 0; i + 1 < n; i++)
        if (from->k[order[i]] == 1 && g->slot[order[i]].n > 1) inner = order[i];
    f->to = &s->row[arrlen(s->row) - 1];
    f->read = s->read[at];
    f->planes = inner >= 0 && g->slot[inner].n <= EIN__NARROW_MOST;
    f->vec = f->planes ? last : inner;
    f->few = f->planes ? inner : last;
    if (inner < 0 || (s->pinned & (1u << f->vec | 1u << f->few))) return false;
    f->c = g->slot[f->few].n;
    const ein__krow *thin = f->planes ? from : f->to, *wide = f->planes ? f->to : from;
    if (f->c < 2 || f->c > EIN__NARROW_MOST || g->slot[f->vec].n % 4) return false;
    if (thin->k[f->few] != 1 || thin->k[f->vec] != f->c || wide->k[f->vec] != 1) return false;
    ein__dtype type = ein__kdtype(g, (ein__val){e->val});
    if (type != EIN__F32 && type != EIN__F16) return false;
    for (int d = 0; d < ctx->value[e->val].shape.rank; d++)
        stride[d] = ein__kstride(g, (ein__val){e->val}, d);
    if (!ein__address(ctx, e, stride, &f->from)) return false;
    int64_t start = ctx->plan.layout[e->val].offset + f->from.offset;
    return ein__knarrow_aligned(g, from->k, order, n, f->vec, f->planes ? f->few : -1, start) &&
           ein__knarrow_aligned(g, f->to->k, order, n, f->vec, f->planes ? -1 : f->few,
                                ctx->plan.layout[out.i].offset);
}

// An address without what the short side of a vector adds: that is `j` vectors.
static ein__ktext ein__knarrow_at(ein__kgen *g, const int64_t *k, int64_t start, const int *order,
                                  int n, int without) {
    ein__klin l = {.c = start};
    for (int i = 0; i < n; i++) {
        const ein__kslot *s = &g->slot[order[i]];
        if (order[i] == without) continue;
        ein__klin_add(g, &l, (ein__kterm){k[order[i]], {s->name, EIN__NAMED, 0}, 0, 1, s->n});
    }
    if (without >= 0)
        ein__klin_add(g, &l, (ein__kterm){4, {"j", EIN__NAMED, 0}, 0, 1, g->slot[without].n});
    return ein__klin_text(g, &l, 0);
}

// Loads the operand's vectors to x, where the elements of a place lie together.
static void ein__knarrow_load(ein__kgen *g, const ein__knarrow_form *f, const int *order, int n,
                              ein__buf *b) {
    ein__val v = {ein__ex_get(g->ctx, f->read)->val};
    const char *name = f->planes ? "4 * j" : g->slot[f->few].name;
    const char *i = f->planes ? "j" : name;
    ein__ktext at =
        ein__knarrow_at(g, f->from.coef, f->from.offset, order, n, f->planes ? f->few : -1);
    ein__kaccess access = {.param = ein__kparam(g, v), .at = at, .dtype = ein__kdtype(g, v)};
    ein__putf(b, "float x[%lld];\n#pragma unroll\n", (long long)(4 * f->c));
    ein__putf(b, "for (int %s = 0; %s < %lld; %s++) {\n", i, i, (long long)f->c, i);
    ein__putf(b, "    const float4 v = %s;\n    x[%s] = v.x;\n", ein__kload4(g, &access), name);
    for (int k = 1; k < 4; k++)
        ein__putf(b, "    x[%s + %lld] = v.%s;\n", name, (long long)(f->planes ? k : k * f->c),
                  ein__klane[k]);
    ein__put(b, "}\n");
}

// The result's vectors: of one plane after the other, with whatever the map does to them ...
static bool ein__knarrow_planes(ein__kgen *g, const ein__step *step, const ein__knarrow_form *f,
                                const ein__kscan *scan, ein__buf *b) {
    ein__ex body = ein__kbody(g, step->out);
    ein__kslot *few = &g->slot[f->few];
    ein__ktext value[EIN__KLANES];
    few->level = 1;
    g->vec_slot = f->vec;
    g->over[g->nover].ex = f->read;
    g->over[g->nover].text = (ein__ktext){"", EIN__PRIMARY, 1};
    for (int i = 0; i < 4; i++)
        g->over[g->nover].lane[i] =
            i ? ein__namef(g->ctx, "x[%s + %lld]", few->name, (long long)(i * f->c))
              : ein__namef(g->ctx, "x[%s]", few->name);
    g->nover++;
    ein__kcount(g, body);
    for (int i = 0; i < 4; i++) value[i] = ein__kvalue(g, body, i);
    ein__kstore(g, &g->code[1], step->out, scan, value);
    ein__kloops(g, b, &f->few, 1, 1, "");
    return !g->scattered;
}

// ... or of one place after the other, copied.
static bool ein__knarrow_places(ein__kgen *g, const ein__step *step, const ein__knarrow_form *f,
                                const int *order, int n, ein__buf *b) {
    ein__dtype type = ein__kdtype(g, step->out);
    ein__ktext value[EIN__KLANES];
    ein__buf store = {0};
    if (ein__kbody(g, step->out).i != f->read.i || (type != EIN__F32 && type != EIN__F16))
        return false;
    g->vec_slot = f->vec;
    for (int i = 0; i < 4; i++)
        value[i] = (ein__ktext){
            i ? ein__namef(g->ctx, "x[4 * j + %d]", i) : ein__namef(g->ctx, "x[4 * j]"),
            EIN__PRIMARY, 1};
    ein__kput_store(g, &store, type, ein__knarrow_at(g, f->to->k, 0, order, n, f->few).s, value);
    ein__putf(b, "#pragma unroll\nfor (int j = 0; j < %lld; j++) {\n", (long long)f->c);
    ein__kindent(b, store.s, 4);
    ein__put(b, "}\n");
    ein__buf_free(&store);
    return true;
}

// One attempt; false: it is no narrow transpose, or not with these indices.
static bool ein__knarrow_put(ein__kgen *g, const ein__step *step, const ein__knarrow_form *f,
                             const ein__kscan *scan, const int *order, int n, const char *hint,
                             ein__buf *out, ein__launch *l) {
    ein__buf index = {0}, load = {0}, rest = {0}, body = {0};
    int threads_of[EIN__MAX_RANK], nthread = 0;
    for (int i = 0; i < n; i++)
        if (order[i] != f->few) threads_of[nthread++] = order[i];
    ein__knarrow_load(g, f, order, n, &load);
    bool ok = f->planes ? ein__knarrow_planes(g, step, f, scan, &rest)
                        : ein__knarrow_places(g, step, f, order, n, &rest);
    int64_t threads = ein__kcount_slots(g, threads_of, nthread) / 4;
    ok = ok && !g->too_wide && (threads <= INT32_MAX || g->wide);
    if (ok && !g->overflow) {
        ein__put(&index, "");
        ein__kdecompose(g, &index, threads_of, nthread, scan->used, "id");
        ein__putf(&body, "%s%s%s", g->code[0].s, load.s, rest.s);
        ein__key keys[] = {[EIN__THREAD_KEYS] = {"body", body.s}};
        if (ein__kthreads(g, threads, index.s, keys, l))
            ein__kfinish(g, step->out, hint, ein__tmpl_map, keys, EIN__COUNT(keys), out, l);
    }
    ein__buf_free(&index);
    ein__buf_free(&load);
    ein__buf_free(&rest);
    ein__buf_free(&body);
    return ok;
}

// One attempt at a map, as a narrow transpose where it is one; false: try again without vectors or
// with 64-bit indices.
static bool ein__kmap_kernel(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                             ein__launch *l) {
    int order[EIN__MAX_RANK], vec = g->vec;
    bool wide = g->wide, ok = false;
    if (vec != 4 || ein__kdtype(g, step->out) > EIN__BF16) return ein__kmap(g, step, hint, out, l);
    ein__kscan scan = ein__kscan_make(g);
    ein__kscan_expr(g, &scan, ein__kbody(g, step->out));
    ein__kscan_out(g, &scan, step->out);
    int n = ein__kmerge(g, &scan, order, ein__korder(g, step->out, order));
    for (ptrdiff_t k = 0; n > 1 && !ok && k + 1 < arrlen(scan.row); k++) {
        ein__knarrow_form f;
        if (!ein__knarrow_of(g, &scan, k, step->out, order, n, &f)) continue;
        if (f.planes && !ein__kvector_out(g, step->out, order, n, &scan)) break;
        ok = ein__knarrow_put(g, step, &f, &scan, order, n, hint, out, l);
        break;
    }
    ein__kscan_free(&scan);
    if (ok) return true;
    ein__krestart(g, step->out, wide, vec);
    return ein__kmap(g, step, hint, out, l);
}
