// Reductions: one output element (or four neighbours) a thread with the reduction in loops; for few
// outputs and long reductions a warp, a block, or a column of threads shares one output. The order
// of additions is fixed in every form.

static const char *ein__kidentity(ein__kgen *g, ein__red r) {
    switch (r) {
    case EIN__R_PROD: return ein__kliteral(g, 1).s;
    case EIN__R_MAX: return g->num == EIN__NUM_INT ? "(-9223372036854775807ll - 1)" : "-INFINITY";
    case EIN__R_MIN: return g->num == EIN__NUM_INT ? "9223372036854775807ll" : "INFINITY";
    case EIN__R_SUM:
    case EIN__R_NONE: break;
    }
    return ein__kliteral(g, 0).s;
}

// `acc` combined with `value`. Maximum and minimum skip NaN, as fmaxf does.
static const char *ein__kcombine(ein__kgen *g, ein__red r, const char *acc, const char *value) {
    ein_ctx *c = g->ctx;
    const char *f = g->num == EIN__NUM_FLOAT ? "f" : "";
    if (r == EIN__R_SUM) return ein__namef(c, "%s += %s;\n", acc, value);
    if (r == EIN__R_PROD) return ein__namef(c, "%s *= %s;\n", acc, value);
    bool max = r == EIN__R_MAX;
    if (g->num != EIN__NUM_INT)
        return ein__namef(c, "%s = f%s%s(%s, %s);\n", acc, max ? "max" : "min", f, acc, value);
    return ein__namef(c, "if (%s %s %s) %s = %s;\n", value, max ? ">" : "<", acc, acc, value);
}

// A pair of sums, each combined with its part of `value`, which names a pair.
static const char *ein__kcombine_pair(ein__kgen *g, const char *value) {
    return ein__namef(g->ctx, "acc.x += %s.x;\nacc.y += %s.y;\n", value, value);
}

static const char *ein__kred_name(ein__red r) {
    static const char *const name[] = {"", "sum", "prod", "max", "min"};
    return name[r];
}

// `acc` combined over the threads of a warp or of a block.
static const char *ein__kwhole(ein__kgen *g, ein__red r, bool warp, bool pair) {
    static const char *const join[] = {"", "a + b", "a * b", "a > b ? a : b", "a < b ? a : b"};
    ein_ctx *c = g->ctx;
    const char *who = warp ? "warp" : "block", *part = warp ? "" : ", part";
    if (g->num == EIN__NUM_INT) {
        ein__kneed(g, EIN__NEED_INTEGER);
        const char *function = "[](long long a, long long b) { return";
        return ein__namef(c, "%s_join(acc%s, %s %s; })", who, part, function, join[r]);
    }
    ein__kneed(g, (ein__need)(EIN__NEED_WARP + r));
    if (pair) ein__kneed(g, warp ? EIN__NEED_WARP_PAIR : EIN__NEED_BLOCK_PAIR);
    else if (!warp) ein__kneed(g, (ein__need)(EIN__NEED_BLOCK + r));
    return ein__namef(c, "%s_%s(acc%s)", who, pair ? "pair" : ein__kred_name(r), part);
}

static void ein__kindent(ein__buf *out, const char *text, int by) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n && *text != '#') ein__putf(out, "%*s", by, "");
        ein__put_n(out, text, n);
        ein__put(out, "\n");
        text += n + (text[n] != 0);
    }
}

// The loops over an order's slots around `core`, each level's own statements first; a slot that is
// one vector long needs none. Small loops are unrolled from the inside while at most 64 bodies
// result.
static void ein__kloops(ein__kgen *g, ein__buf *out, const int *order, int n, const char *core) {
    ein__buf text = {0};
    int64_t bodies = 1;
    ein__put(&text, core);
    for (int i = n - 1; i >= 0; i--) {
        const ein__kslot *s = &g->slot[order[i]];
        ein__buf loop = {0};
        bodies = s->n <= 16 && bodies ? bodies * s->n : 0;
        if (bodies > 64) bodies = 0;
        int step = order[i] == g->vec_slot ? g->vec : 1;
        if (step == s->n && step > 1) {
            ein__put(&loop, g->code[i + 1].s);
            ein__put(&loop, text.s);
            ein__buf_free(&text);
            text = loop;
            continue;
        }
        if (bodies && !g->naive) ein__put(&loop, "#pragma unroll\n");
        ein__putf(&loop, "for (%s %s = 0; %s < %lld; %s) {\n", ein__kint(g), s->name, s->name,
                  (long long)s->n,
                  step > 1 ? ein__namef(g->ctx, "%s += %d", s->name, step)
                           : ein__namef(g->ctx, "%s++", s->name));
        ein__kindent(&loop, g->code[i + 1].s, 4);
        ein__kindent(&loop, text.s, 4);
        ein__put(&loop, "}\n");
        ein__buf_free(&text);
        text = loop;
    }
    ein__put(out, text.s);
    ein__buf_free(&text);
}

// A reduction being emitted: the scope, the orders of its traversal and reduction slots, the parts.
typedef struct ein__kred {
    ein__val acc, out;
    ein__red reduce;
    bool pair;                 // of sums (pair.c), with ...
    ein__ex term[2], last[2];  // ... the terms and the result of each
    int nt, ns, t[EIN__MAX_ITERS], s[EIN__MAX_ITERS];
    int64_t outputs, count;
    ein__kscan scan;
    ein__buf index, init, core, post, store;
} ein__kred;

static void ein__kred_free(ein__kred *r) {
    ein__kscan_free(&r->scan);
    ein__buf_free(&r->index);
    ein__buf_free(&r->init);
    ein__buf_free(&r->core);
    ein__buf_free(&r->post);
    ein__buf_free(&r->store);
}

// The reduction slots by falling stride, so that neighbouring lanes read neighbours.
static void ein__ksort_reduction(ein__kred *r) {
    for (int i = 1; i < r->ns; i++) {
        for (int j = i; j > 0; j--) {
            int64_t a = 0, b = 0;
            for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.row); k++) {
                int64_t x = r->scan.near[k].k[r->s[j - 1]], y = r->scan.near[k].k[r->s[j]];
                a = x > a ? x : a;
                b = y > b ? y : b;
            }
            if (a >= b) break;
            int t = r->s[j - 1];
            r->s[j - 1] = r->s[j];
            r->s[j] = t;
        }
    }
}

// `body` of the iterators of `s`, the first of which has value `j`.
static ein__ex ein__kred_half(ein_ctx *ctx, const ein__scope *s, ein__ex body, int j) {
    ein__ix map[EIN__MAX_ITERS];
    map[0] = ein__ix_const(ctx, j);
    for (uint32_t i = 1; i < s->nt + s->ns; i++) map[i] = ein__ix_iter(ctx, i, s->n[i]);
    return ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
}

// Takes from a reduction to pairs of sums the iterator that says which: every thread has both, for
// which the epilogue reads them by name. Before anything is counted.
static void ein__kred_pair(ein__kgen *g, ein__kred *r, const ein__scope *s) {
    static const char *const sum[] = {"acc.x", "acc.y"};
    ein_ctx *ctx = g->ctx;
    size_t had = (size_t)arrlen(ctx->exprs.rec);
    ein__ix ix[EIN__MAX_RANK];
    int n = 0;
    r->pair = !g->naive && ein__kdtype(g, r->out) == EIN__F32 && ein__is_pair(ctx, s);
    if (!r->pair) return;
    for (int i = 0; i < r->nt; i++)
        if (r->t[i]) r->t[n++] = r->t[i];
    r->nt = n;
    g->slot[0].gone = true;
    for (uint32_t k = 1; k < s->nt; k++) ix[k] = ein__ix_iter(ctx, k, s->n[k]);
    for (int j = 0; j < 2; j++) {
        ix[0] = ein__ix_const(ctx, j);
        ein__ex read = ein__ex_read(ctx, r->acc, 0, ix, (int)s->nt);
        g->over[g->nover].ex = read;
        g->over[g->nover++].text = (ein__ktext){sum[j], EIN__PRIMARY, 0};
        r->term[j] = ein__kred_half(ctx, s, s->body, j);
        bool map = r->out.i != r->acc.i;
        r->last[j] = map ? ein__kred_half(ctx, s, ein__kbody(g, r->out), j) : read;
    }
    ein__kmemo_grow(g, had);
}

// Scans both definitions, orders and merges the slots; those of a window's axes (or NULL) stay
// apart.
static ein__kred ein__kred_make(ein__kgen *g, const ein__step *step, const ein__strip *w) {
    ein__kred r = {.acc = step->val[0], .out = step->out, .scan = ein__kscan_make(g)};
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, r.acc)->scope);
    r.reduce = (ein__red)s->reduce;
    g->inner[g->ninner++] = (ein__kinner){.v = r.acc, .text = {"acc"}};
    ein__kscan_expr(g, &r.scan, s->body);
    if (step->nval > 1) ein__kscan_expr(g, &r.scan, ein__kbody(g, r.out));
    ein__kscan_out(g, &r.scan, r.out);
    const int apart[] = {w ? w->row.t : -1, w ? w->row.k : -1, w ? w->col.t : -1,
                         w ? w->col.k : -1};
    for (int i = 0; i < 4; i++)
        if (apart[i] >= 0) r.scan.pinned |= 1u << apart[i], r.scan.used |= 1u << apart[i];
    r.nt = ein__korder(g, r.out, r.t);
    if (!w) ein__kred_pair(g, &r, s);
    for (uint32_t i = 0; i < s->ns; i++) r.s[r.ns++] = (int)(s->nt + i);
    ein__ksort_reduction(&r);
    r.nt = ein__kmerge(g, &r.scan, r.t, r.nt);
    ein__kslices_first(g, r.t, r.nt);
    r.ns = ein__kmerge(g, &r.scan, r.s, r.ns);
    r.outputs = ein__kcount_slots(g, r.t, r.nt);
    r.count = ein__kcount_slots(g, r.s, r.ns);
    if (ein__kdtype(g, r.out) > EIN__BF16 && ein__kinteger(g, s->body)) {
        g->num = EIN__NUM_INT;
        if (step->nval > 1 && !ein__kinteger(g, ein__kbody(g, r.out))) g->num = EIN__NUM_FLOAT;
    }
    ein__put(&r.index, "");
    ein__put(&r.post, "");
    return r;
}

// Fills the parts of a reduction to pairs, whose levels are set: lanes are terms.
static void ein__kred_pair_parts(ein__kgen *g, ein__kred *r) {
    static const char *const sum[] = {"acc.x", "acc.y"};
    int vec = g->vec;
    for (int j = 0; j < 2; j++) ein__kcount(g, r->term[j]);
    for (int i = 0; i < vec; i++)
        for (int j = 0; j < 2; j++)
            ein__put(&r->core,
                     ein__kcombine(g, r->reduce, sum[j], ein__kvalue(g, r->term[j], i).s));
    ein__put(&r->init, "float2 acc = make_float2(0.f, 0.f);\n");
    g->vec_slot = -1;
    g->vec = 1;
    g->post = &r->post;
    for (int j = 0; j < 2; j++) ein__kcount(g, r->last[j]);
    ein__ktext value[2];
    for (int j = 0; j < 2; j++) value[j] = ein__kvalue(g, r->last[j], 0);
    for (int j = 0; j < 2; j++) {
        g->plane = j * ein__kstride(g, r->out, 0);
        ein__kstore(g, &r->store, r->out, &r->scan, &value[j]);
    }
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    g->vec = vec;
}

// Fills the parts: `levels` says that each reduction slot has a loop of its own; otherwise one loop
// over `k` declares them all. Lanes along a reduction slot add to one sum.
static void ein__kred_parts(ein__kgen *g, ein__kred *r, const ein__step *step, bool levels) {
    static const char *const acc[EIN__KLANES] = {"acc0", "acc1", "acc2", "acc3",
                                                 "acc4", "acc5", "acc6", "acc7"};
    for (int i = 0; i < r->ns; i++) g->slot[r->s[i]].level = levels ? i + 1 : 1;
    if (r->pair) {
        ein__kred_pair_parts(g, r);
        return;
    }
    ein__ex body = ein__kbody(g, r->acc);
    ein__kcount(g, body);
    bool terms = false;
    for (int i = 0; i < r->ns; i++) terms |= r->s[i] == g->vec_slot;
    for (int i = 0; i < g->vec; i++) {
        const char *a = g->vec > 1 && !terms ? acc[i] : "acc";
        ein__ktext v = ein__kvalue(g, body, i);
        if (g->num == EIN__NUM_INT) v = ein__kname_value(g, body, i, v);
        g->inner[0].text[i] = a;
        ein__put(&r->core, ein__kcombine(g, r->reduce, a, v.s));
        if (i && terms) continue;
        ein__put(&r->init, i ? ", " : ein__knum_type(g));
        ein__putf(&r->init, "%s%s = %s", i ? "" : " ", a, ein__kidentity(g, r->reduce));
    }
    ein__put(&r->init, ";\n");
    if (terms) g->vec_slot = -1;
    int lanes = terms ? 1 : g->vec, vec = g->vec;
    g->vec = lanes;
    g->post = &r->post;
    ein__ktext value[EIN__KLANES];
    if (step->nval > 1) {
        body = ein__kbody(g, r->out);
        ein__kcount(g, body);
    }
    for (int i = 0; i < lanes; i++) {
        value[i] = (ein__ktext){g->inner[0].text[i], EIN__PRIMARY, 0};
        if (step->nval > 1) value[i] = ein__kvalue(g, body, i);
    }
    ein__kstore(g, &r->store, r->out, &r->scan, value);
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    g->vec = vec;
}

static bool ein__kreduce_thread(ein__kgen *g, ein__kred *r, const ein__step *step, const char *hint,
                                ein__buf *out, ein__launch *l) {
    if (g->vec > 1) {
        if (r->pair || r->outputs / 4 < EIN__SHARED_OUTPUTS ||
            !ein__kvector_out(g, r->out, r->t, r->nt, &r->scan))
            return false;
        g->vec_slot = r->t[r->nt - 1];
    }
    ein__kred_parts(g, r, step, true);
    int64_t threads = r->outputs / g->vec;
    if (g->too_wide || (threads > INT32_MAX && !g->wide)) return false;
    int block = ein__kblock(threads);
    if (g->overflow || !ein__kgrid(g->ctx, l, (threads + block - 1) / block, block)) return true;
    ein__buf loops = {0};
    ein__put(&loops, g->code[0].s);
    ein__put(&loops, r->init.s);
    ein__kloops(g, &loops, r->s, r->ns, r->core.s);
    ein__put(&loops, r->post.s);
    ein__put(&loops, r->store.s);
    ein__key keys[] = {{0},
                       {0},
                       {"thread", ein__kthread_id(g, block)},
                       {"number", ein__kunsigned(g)},
                       {"threads", ein__knumber(g, threads)},
                       {"index", r->index.s},
                       {"body", loops.s},
                       {"kind", ein__kfunction(g, block)},
                       {"alone", ein__kalone(g)}};
    l->threads = threads;
    ein__kfinish(g, r->out, hint, ein__tmpl_map, keys, 9, out, l);
    ein__buf_free(&loops);
    return true;
}

typedef enum { EIN__SHARE_NONE, EIN__SHARE_WARP, EIN__SHARE_BLOCK, EIN__SHARE_COLUMN } ein__kshare;

// Who works on one output. The read with the most elements decides: where neighbouring terms are
// adjacent in memory over a warp's length, lanes take terms; where neighbouring outputs are, lanes
// take outputs and the terms are split over the rows of a block, but for many outputs, of which a
// thread has some of its own. Rows of many outputs need `least` terms at least.
static ein__kshare ein__kshare_of(const ein__kgen *g, const ein__kred *r, int64_t least) {
    bool many = r->outputs > EIN__SHARED_OUTPUTS;
    if (r->count < (many ? least : 32)) return EIN__SHARE_NONE;
    int64_t most = 0, terms = 0, outputs = 0;
    for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.near); k++) {
        const ein__krow *row = &r->scan.near[k];
        int64_t size = 1, t = 0, o = 0;
        for (int i = 0; i < r->ns + r->nt; i++) {
            int s = i < r->ns ? r->s[i] : r->t[i - r->ns];
            int64_t *run = i < r->ns ? &t : &o;
            if (row->k[s]) size *= g->slot[s].n;
            if (row->k[s] == 1) *run = g->slot[s].n;
        }
        if (size > most) most = size, terms = t, outputs = o;
    }
    if (many && terms < ein__least(r->count, 32)) return EIN__SHARE_NONE;
    if (terms < 32 && outputs >= EIN__COLUMN_THREADS) return EIN__SHARE_COLUMN;
    bool few = r->outputs <= EIN__BLOCK_OUTPUTS && r->count >= EIN__BLOCK_TERMS;
    return few ? EIN__SHARE_BLOCK : EIN__SHARE_WARP;
}

// Lanes along the terms, where these lie side by side and are enough for a warp.
static bool ein__kreduce_vector(ein__kgen *g, const ein__kred *r, ein__kshare how) {
    int slot = r->ns ? r->s[r->ns - 1] : -1;
    bool unit = false;
    if (how == EIN__SHARE_COLUMN || slot < 0 || g->slot[slot].n % g->vec) return false;
    if (r->count / g->vec < 32) return false;
    for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.near); k++) unit |= r->scan.near[k].k[slot] == 1;
    if (unit) g->vec_slot = slot;
    return unit;
}

// What the lanes that share an output do together, a warp or a part of one: seven keys.
static void ein__kreduce_lanes(ein__kgen *g, const ein__kred *r, int lanes, int warps,
                               ein__key *keys) {
    ein_ctx *c = g->ctx;
    int each = warps * 32 / lanes;
    bool part = lanes < 32, spare = part && r->outputs % each;
    const char *id = ein__kgrid_id(g, each, ein__namef(c, "threadIdx.x / %du", lanes));
    const char *outputs = ein__knumber(g, r->outputs), *stores = "lane == 0u", *at = id;
    const char *other = "__shfl_xor_sync(0xffffffffu, acc, d)";
    if (spare) stores = ein__namef(c, "lane == 0u && %s < %s", id, outputs);
    if (spare) at = ein__namef(c, "min(%s, %s - 1)", id, outputs);
    if (r->pair)
        other =
            "make_float2(__shfl_xor_sync(0xffffffffu, acc.x, d), "
            "__shfl_xor_sync(0xffffffffu, acc.y, d))";
    keys[0] = (ein__key){"warp", at};
    keys[1] = (ein__key){"block", ein__namef(c, "%d", 32 * warps)};
    keys[2] = (ein__key){"lanes", ein__namef(c, "%du", lanes)};
    keys[3] = (ein__key){"part", part ? "1" : ""};
    keys[4] = (ein__key){"stores", stores};
    keys[5] = (ein__key){"other", other};
    keys[6] = (ein__key){"join", r->pair ? ein__kcombine_pair(g, "other")
                                         : ein__kcombine(g, r->reduce, "acc", "other")};
}

static bool ein__kreduce_shared(ein__kgen *g, ein__kred *r, ein__kshare how, const ein__step *step,
                                const char *hint, ein__buf *out, ein__launch *l) {
    int64_t most = ein__gpu_of(g->ctx)->sms * EIN__SHARE_RESIDENT;
    int vec = g->vec, parts = step->parts > 1 ? step->parts : 1;
    bool column = how == EIN__SHARE_COLUMN;
    // The estimate may have taken others for neighbours than the merged iterators have.
    if ((column ? ein__ceil(r->outputs, EIN__COLUMN_OUTPUTS) : r->outputs) * parts > most)
        parts = 1;
    if (parts > 1 && !column) how = EIN__SHARE_BLOCK;
    if (vec > 1 && !ein__kreduce_vector(g, r, how)) return false;
    int last = g->vec_slot;
    ein__kred_parts(g, r, step, false);
    if (g->too_wide || g->scattered) return false;
    bool warp = how == EIN__SHARE_WARP, block = how == EIN__SHARE_BLOCK;
    int warps = !warp ? 8 : r->outputs >= 4096 ? 4 : 1;
    int lanes = !warp || r->count >= 32 ? 32 : r->count >= 16 ? 16 : 8;
    int64_t each = column ? EIN__COLUMN_OUTPUTS : warp ? warps * 32 / lanes : 1;
    int64_t groups = (r->outputs + each - 1) / each;
    if (g->overflow || !ein__kgrid(g->ctx, l, groups * parts, warps * 32)) return true;
    if (parts > 1) ein__kneed(g, EIN__NEED_LAST);
    g->shared = parts > 1;
    if (column) l->block[0] = EIN__COLUMN_OUTPUTS, l->block[1] = EIN__COLUMN_THREADS;
    ein__buf terms = {0};
    g->vec_slot = last;
    ein__kdecompose(g, &terms, r->s, r->ns, r->scan.used, "k");
    ein__put(&terms, g->code[1].s);
    ein__put(&terms, r->core.s);
    const char *number = ein__namef(g->ctx, "%d", parts),
               *x = column ? "threadIdx.y" : "threadIdx.x";
    bool several = parts > 1;
    int threads = column ? EIN__COLUMN_THREADS : EIN__BLOCK_THREADS;
    ein__key keys[20] = {
        {0},
        {0},
        {"number", ein__kunsigned(g)},
        {"outputs", block ? ein__namef(g->ctx, "%lld", (long long)groups * parts)
                          : ein__knumber(g, r->outputs)},
        {"index", r->index.s},
        {"before", g->code[0].s},
        {"identity", r->pair ? "make_float2(0.f, 0.f)" : ein__kidentity(g, r->reduce)},
        {"count", ein__knumber(g, r->count / vec)},
        {"terms", terms.s},
        {"after", r->post.s},
        {"store", r->store.s},
        {"T", r->pair ? "float2" : ein__knum_type(g)},
        {"whole", NULL},
        {"block",
         several ? ein__namef(g->ctx, "%s / %su", ein__kblock_id(g), number) : ein__kblock_id(g)},
        {"start",
         several ? ein__namef(g->ctx, "blockIdx.x %% %su * %du + %s", number, threads, x) : x},
        {"stride", ein__namef(g->ctx, "%du", threads * parts)},
        {"parts", several ? ein__namef(g->ctx, "%su", number) : ""},
        {"add",
         r->pair ? ein__kcombine_pair(g, "other") : ein__kcombine(g, r->reduce, "acc", "other")}};
    if (column) {
        const char *other = "part[j][threadIdx.x]";
        keys[12] = (ein__key){"join", r->pair ? ein__kcombine_pair(g, other)
                                              : ein__kcombine(g, r->reduce, "acc", other)};
        ein__kfinish(g, r->out, hint, ein__tmpl_reduce_column, keys, 18, out, l);
    } else {
        if (lanes == 32) keys[12].text = ein__kwhole(g, r->reduce, warp, r->pair);
        if (warp) ein__kreduce_lanes(g, r, lanes, warps, keys + 13);
        ein__kfinish(g, r->out, hint, warp ? ein__tmpl_reduce_warp : ein__tmpl_reduce_block, keys,
                     warp ? 20 : 17, out, l);
    }
    ein__buf_free(&terms);
    return true;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kreduce(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                         ein__launch *l) {
    ein__kred r = ein__kred_make(g, step, NULL);
    ein__kshare how = g->part ? EIN__SHARE_NONE : ein__kshare_of(g, &r, EIN__SHORT_ROW);
    bool ok = r.count <= INT32_MAX || g->wide;
    if (ok && how == EIN__SHARE_NONE) ok = ein__kreduce_thread(g, &r, step, hint, out, l);
    else if (ok) ok = ein__kreduce_shared(g, &r, how, step, hint, out, l);
    ein__kred_free(&r);
    return ok;
}
