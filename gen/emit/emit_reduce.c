// Reductions: one output element (or four neighbours) a thread with the reduction in loops; for few
// outputs and long reductions a warp, a block, or a column of threads shares one output. The order
// of additions is fixed in every form.

static void ein__kindent(ein__buf *out, const char *text, int by) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n && *text != '#') ein__putf(out, "%*s", by, "");
        ein__put_n(out, text, n);
        ein__put(out, "\n");
        text += n + (text[n] != 0);
    }
}

// The loops over an order's slots, the first of `level`, around `core`, each level's own statements
// first; a slot that is one vector long needs none. Small loops are unrolled from the inside while
// at most 64 bodies result.
static void ein__kloops(ein__kgen *g, ein__buf *out, const int *order, int n, int level,
                        const char *core) {
    ein__buf text = {0};
    int64_t bodies = 1;
    ein__put(&text, core);
    for (int i = n - 1; i >= 0; i--) {
        const ein__kslot *s = &g->slot[order[i]];
        ein__buf loop = {0};
        bodies = s->n <= EIN__UNROLLED && bodies ? bodies * s->n : 0;
        if (bodies > 64) bodies = 0;
        int step = order[i] == g->vec_slot ? g->vec : 1;
        if (step == s->n && step > 1) {
            ein__put(&loop, g->code[i + level].s);
            ein__put(&loop, text.s);
            ein__buf_free(&text);
            text = loop;
            continue;
        }
        if (bodies && !g->naive) ein__put(&loop, "#pragma unroll\n");
        ein__putf(&loop, "for (%s %s = %s; %s < %s; %s) {\n", ein__kint(g), s->name,
                  s->from ? s->from : "0", s->name,
                  s->until ? s->until : ein__namef(g->ctx, "%lld", (long long)s->n),
                  step > 1 ? ein__namef(g->ctx, "%s += %d", s->name, step)
                           : ein__namef(g->ctx, "%s++", s->name));
        ein__kindent(&loop, g->code[i + level].s, 4);
        ein__kindent(&loop, text.s, 4);
        ein__put(&loop, "}\n");
        ein__buf_free(&text);
        text = loop;
    }
    ein__put(out, text.s);
    ein__buf_free(&text);
}

// The kernel whose threads, by number, do what `loops` says. False: there are too many of them.
static bool ein__kred_threads(ein__kgen *g, ein__kred *r, int64_t threads, const char *loops,
                              const char *hint, ein__buf *out, ein__launch *l) {
    if (g->too_wide || (threads > INT32_MAX && !g->wide)) return false;
    ein__key keys[] = {[EIN__THREAD_KEYS] = {"body", loops}};
    if (!g->overflow && ein__kthreads(g, threads, r->index.s, keys, l))
        ein__kfinish(g, r->out, hint, ein__tmpl_map, keys, EIN__COUNT(keys), out, l);
    return true;
}

// Where the loop over reduction slot `slot` begins (or not `until`) ends, as a name that is
// declared in front of all loops; NULL: with all terms, or lanes differ.
static const char *ein__kred_bound(ein__kgen *g, const ein__kred *r, int slot, bool until) {
    const ein__kslot *s = &g->slot[slot];
    ein__bounds b = ein__bounds_of(g->ctx, ein__scope_of(g->ctx, r->acc), (uint32_t)slot);
    ein__ix ix = until ? b.until : b.from;
    if (!ix.i || (g->vec_slot >= 0 && ein__ix_uses(g->ctx, ix) >> g->vec_slot & 1)) return NULL;
    ein__klin l = ein__klin_of(g, ix, 0);
    const char *name = ein__namef(g->ctx, "%s_%s", until ? "until" : "from", s->name);
    const char *type = ein__kint(g), *at = ein__klin_text(g, &l, 0).s, *u = g->wide ? "ll" : "";
    const ein__index *x = ein__ix_get(g->ctx, ix);
    if (x->hi > s->n) at = ein__namef(g->ctx, "min(%s, %lld%s)", at, (long long)s->n, u);
    if (x->lo < 0) at = ein__namef(g->ctx, "max(%s, 0%s)", at, u);
    ein__putf(&g->code[0], "const %s %s = %s;\n", type, name, at);
    return name;
}

// Bounds of the loops that are not written out. Of one that counts from 0 on for all threads that
// share the terms (`whole` false) only its end.
static void ein__kred_bounds(ein__kgen *g, const ein__kred *r, bool whole) {
    for (int i = 0; i < r->ns; i++) {
        ein__kslot *s = &g->slot[r->s[i]];
        if (s->gone || s->n <= EIN__UNROLLED || r->sums > 1) continue;
        if (whole) s->from = ein__kred_bound(g, r, r->s[i], false);
        s->until = ein__kred_bound(g, r, r->s[i], true);
    }
}

static bool ein__kreduce_thread(ein__kgen *g, ein__kred *r, const ein__step *step, const char *hint,
                                ein__buf *out, ein__launch *l) {
    if (g->vec > 1) {
        if (r->sums > 1 || step->sums || r->outputs / 4 < EIN__SHARED_OUTPUTS ||
            !ein__kvector_out(g, r->out, r->t, r->nt, &r->scan))
            return false;
        g->vec_slot = r->t[r->nt - 1];
    }
    if (!step->sums) ein__kred_bounds(g, r, true);
    ein__kred_parts(g, r, step, true);
    ein__buf loops = {0};
    ein__put(&loops, g->code[0].s);
    ein__put(&loops, r->init.s);
    ein__kloops(g, &loops, r->s, r->ns, 1, r->core.s);
    ein__put(&loops, r->post.s);
    ein__put(&loops, r->store.s);
    bool done = ein__kred_threads(g, r, r->outputs / g->vec, loops.s, hint, out, l);
    ein__buf_free(&loops);
    return done;
}

typedef enum { EIN__SHARE_NONE, EIN__SHARE_WARP, EIN__SHARE_BLOCK, EIN__SHARE_COLUMN } ein__kshare;

// How many neighbours along some slots read neighbouring elements.
static int64_t ein__krun_of(const ein__kgen *g, const ein__krow *row, const int *slots, int n) {
    int64_t run = 1;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n && !more; i++)
            if (g->slot[slots[i]].n > 1 && row->k[slots[i]] == run) {
                run = ein__times(run, g->slot[slots[i]].n);
                more = true;
            }
    }
    return run;
}

// Of a read: how many neighbouring terms, and how many neighbouring outputs, it has side by side,
// and the bytes of an element.
typedef struct ein__kruns {
    int64_t terms, outputs, size;
} ein__kruns;

// Those of the read with the most elements, or of `lead` where that is one of those scanned.
static ein__kruns ein__kruns_of(ein__kgen *g, const ein__kscan *scan, ein__ex lead, const int *t,
                                int nt, const int *s, int ns) {
    ein__kruns run = {0};
    int64_t most = 0;
    for (ptrdiff_t k = 0; k + 1 < arrlen(scan->near); k++) {
        const ein__krow *row = &scan->near[k];
        int64_t size = 1;
        for (int i = 0; i < ns; i++) size *= row->k[s[i]] ? g->slot[s[i]].n : 1;
        for (int i = 0; i < nt; i++) size *= row->k[t[i]] ? g->slot[t[i]].n : 1;
        if (lead.i && scan->read[k].i == lead.i) size = INT64_MAX;
        // Of what is stored there is no read.
        if (size <= most || !scan->read[k].i) continue;
        most = size;
        ein__val v = {ein__ex_get(g->ctx, scan->read[k])->val};
        run = (ein__kruns){ein__krun_of(g, row, s, ns), ein__krun_of(g, row, t, nt),
                           ein__element_size(g->ctx, v)};
    }
    return run;
}

// The read that decides who works on a reduction's outputs, if it is not the largest one; whether
// threads do `apart`.
static ein__ex ein__kreduce_lead(ein__kgen *g, const ein__kred *r, bool *apart) {
    ein_ctx *ctx = g->ctx;
    const ein__scope *s = ein__scope_of(ctx, r->acc);
    const ein__expr *largest = ein__largest_read(ctx, s), *lead = ein__leading_read(ctx, s);
    *apart = lead && ein__shares_lines(ctx, s, lead);
    return lead == largest ? (ein__ex){0} : ein__ex_of(ctx, lead);
}

// Who works on one output. One read decides, mostly that with the most elements: where neighbouring
// terms are adjacent in memory over a warp's length, lanes take terms; where neighbouring outputs
// are, lanes take outputs and the terms are split over the rows of a block, but for many outputs,
// of which a thread has some of its own. Rows of many outputs need `least` terms at least.
static ein__kshare ein__kshare_of(ein__kgen *g, const ein__kred *r, int64_t least) {
    bool many = r->outputs > EIN__SHARED_OUTPUTS;
    if (r->count < (many ? least : 32)) return EIN__SHARE_NONE;
    bool apart;
    ein__ex lead = ein__kreduce_lead(g, r, &apart);
    if (apart) return EIN__SHARE_NONE;
    ein__kruns run = ein__kruns_of(g, &r->scan, lead, r->t, r->nt, r->s, r->ns);
    if (many && run.terms < ein__least(r->count, 32)) return EIN__SHARE_NONE;
    if (run.terms < 32 && run.outputs >= EIN__COLUMN_THREADS) return EIN__SHARE_COLUMN;
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

enum { EIN__LANES_KEYS = 10 };

// What the lanes that share an output do together, a warp or a part of one.
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
    if (r->sums > 1)
        other = ein__ksums_each(g, r->sums, "acc", "__shfl_xor_sync(0xffffffffu, ", ", d)");
    keys[0] = (ein__key){"warp", at};
    keys[1] = (ein__key){"guard", part || g->part ? "" : "1"};
    keys[2] = (ein__key){"lanes", ein__namef(c, "%du", lanes)};
    keys[3] = (ein__key){"part", part ? "1" : ""};
    keys[4] = (ein__key){"stores", stores};
    keys[5] = (ein__key){"other", other};
    keys[6] = (ein__key){"join", ein__kcombine_sums(g, r->sums, r->reduce, "acc", "other")};
    keys[7] = (ein__key){"kind", ein__kfunction(g, 32 * warps)};
    keys[8] = (ein__key){"alone", ein__kalone(g)};
    keys[9] = (ein__key){"split", g->part ? "const unsigned lane = id % 32u;\nid /= 32u;\n" : ""};
}

// Which of its slots a thread goes through by itself, when `lanes` of them share the terms.
static void ein__kreduce_own(ein__kgen *g, ein__kred *r, int64_t lanes) {
    int64_t n[EIN__MAX_ITERS];
    for (int i = 0; i < r->ns; i++) n[i] = g->slot[r->s[i]].n;
    ein__loop_operations(g->ctx, ein__scope_of(g->ctx, r->acc), n, r->ns, lanes, 1, &r->own);
}

// The turns of the threads that share terms, of `vec` each: the first `outer` slots count them.
static const char *ein__kred_count(ein__kgen *g, const ein__kred *r, int outer, int vec) {
    const char *until = outer == 1 ? g->slot[r->s[0]].until : NULL;
    if (!until) return ein__knumber(g, ein__kcount_slots(g, r->s, outer) / vec);
    if (vec > 1) until = ein__namef(g->ctx, "(%s + %d) / %d", until, vec - 1, vec);
    return ein__namef(g->ctx, "(%s)%s", ein__kunsigned(g),
                      vec > 1 ? ein__namef(g->ctx, "(%s)", until) : until);
}

// How many blocks share the terms of an output, or of neighbouring ones. The estimate may have
// taken others for neighbours than the merged iterators have, and there may be too many blocks for
// that.
static int ein__kshare_parts(const ein__kgen *g, const ein__kred *r, const ein__step *step,
                             ein__kshare *how) {
    int64_t most = ein__gpu_of(g->ctx)->sms * EIN__SHARE_RESIDENT;
    bool column = *how == EIN__SHARE_COLUMN;
    int64_t groups = column ? ein__ceil(r->outputs, EIN__COLUMN_OUTPUTS) : r->outputs;
    if (step->parts < 2 || groups * step->parts > most) return 1;
    if (!column) *how = EIN__SHARE_BLOCK;
    return step->parts;
}

// Launches `parts` blocks for each group of outputs.
static bool ein__kshare_grid(ein__kgen *g, ein__kshare how, int64_t groups, int parts, int threads,
                             ein__launch *l) {
    if (!ein__kgrid(g->ctx, l, groups * parts, threads)) return false;
    if (how == EIN__SHARE_COLUMN)
        l->block[0] = EIN__COLUMN_OUTPUTS, l->block[1] = EIN__COLUMN_THREADS;
    if (parts > 1) ein__kneed(g, EIN__NEED_LAST);
    g->shared = parts > 1;
    return true;
}

enum { EIN__SHARE_KEYS = 4 };

// The group that a block is for, and which of the terms its threads take.
static void ein__kshare_keys(ein__kgen *g, ein__kshare how, int parts, ein__key *keys) {
    ein_ctx *c = g->ctx;
    bool column = how == EIN__SHARE_COLUMN;
    int threads = column ? EIN__COLUMN_THREADS : EIN__BLOCK_THREADS;
    const char *block = ein__kblock_id(g), *start = column ? "threadIdx.y" : "threadIdx.x";
    if (parts > 1) {
        block = ein__namef(c, "%s / %du", block, parts);
        start = ein__namef(c, "blockIdx.x %% %du * %du + %s", parts, threads, start);
    }
    keys[0] = (ein__key){"block", block};
    keys[1] = (ein__key){"start", start};
    keys[2] = (ein__key){"stride", ein__namef(c, "%du", threads * parts)};
    keys[3] = (ein__key){"parts", parts > 1 ? ein__namef(c, "%du", parts) : ""};
}

// What a thread loads of another block's sums: three words are not loaded at once.
static const char *ein__kshare_load(ein__kgen *g, const ein__kred *r, bool column, int parts) {
    ein_ctx *c = g->ctx;
    const char *at = ein__namef(c, "blockIdx.x / %du * %du", parts, parts);
    at = column ? ein__namef(c, "sums[(%s + p) * 32u]", at)
                : ein__namef(c, "sums[%s + threadIdx.x]", at);
    return r->sums == 3 ? ein__ksums_each(g, r->sums, at, "__ldcg(&", ")")
                        : ein__namef(c, "__ldcg(&%s)", at);
}

enum { EIN__COLUMN_KEYS = 3 };

// How a column's threads put their sums together, and how many terms they load ahead.
static void ein__kcolumn_keys(ein__kgen *g, const ein__kred *r, ein__key *keys) {
    int ahead = r->own ? EIN__COLUMN_AHEAD / 2 : EIN__COLUMN_AHEAD;
    const char *add = ein__kcombine_sums(g, r->sums, r->reduce, "acc", "other"),
               *join = ein__kcombine_sums(g, r->sums, r->reduce, "acc", "part[j][threadIdx.x]");
    keys[0] = (ein__key){"add", add};
    keys[1] = (ein__key){"join", join};
    keys[2] = (ein__key){"ahead", ein__namef(g->ctx, "%d", ahead)};
}

static bool ein__kreduce_shared(ein__kgen *g, ein__kred *r, ein__kshare how, const ein__step *step,
                                const char *hint, ein__buf *out, ein__launch *l) {
    static const char *const *const lines[] = {[EIN__SHARE_WARP] = ein__tmpl_reduce_warp,
                                               [EIN__SHARE_BLOCK] = ein__tmpl_reduce_block,
                                               [EIN__SHARE_COLUMN] = ein__tmpl_reduce_column};
    int vec = g->vec, parts = ein__kshare_parts(g, r, step, &how);
    bool warp = how == EIN__SHARE_WARP, column = how == EIN__SHARE_COLUMN;
    if (vec > 1 && !ein__kreduce_vector(g, r, how)) return false;
    int last = g->vec_slot;
    if (column && vec == 1) ein__kreduce_own(g, r, EIN__COLUMN_THREADS * parts);
    if (!step->sums && r->ns - r->own == 1) ein__kred_bounds(g, r, false);
    ein__kred_parts(g, r, step, false);
    if (g->too_wide || g->scattered) return false;
    int warps = warp ? ein__sharing_warps(r->outputs) : EIN__BLOCK_THREADS / 32;
    int lanes = warp ? (int)ein__warp_lanes(r->count) : 32;
    l->threads = r->outputs * 32;
    int64_t each = column ? EIN__COLUMN_OUTPUTS : warp ? warps * 32 / lanes : 1;
    int64_t groups = ein__ceil(r->outputs, each);
    if (g->overflow || !ein__kshare_grid(g, how, groups, parts, warps * 32, l)) return true;
    ein__buf terms = {0};
    g->vec_slot = last;
    const int outer = r->ns - r->own;
    ein__kdecompose(g, &terms, r->s, outer, r->scan.used, "k");
    ein__put(&terms, g->code[1].s);
    ein__kloops(g, &terms, r->s + outer, r->own, 2, r->core.s);
    ein__key keys[24] = {
        {0},
        {0},
        {"number", ein__kunsigned(g)},
        {"outputs", warp || column ? ein__knumber(g, r->outputs)
                                   : ein__namef(g->ctx, "%lld", (long long)groups * parts)},
        {"index", r->index.s},
        {"before", g->code[0].s},
        {"identity", ein__kred_zero(g, r)},
        {"count", ein__kred_count(g, r, outer, vec)},
        {"terms", terms.s},
        {"after", r->post.s},
        {"store", r->store.s},
        {"T", ein__ksums_type(g, r->sums)}};
    int n = 12;
    if (!column)
        keys[n++] =
            (ein__key){"whole", lanes == 32 ? ein__kwhole(g, r->reduce, warp, r->sums) : NULL};
    if (warp) {
        ein__kreduce_lanes(g, r, lanes, warps, keys + n);
        n += EIN__LANES_KEYS;
    } else {
        ein__kshare_keys(g, how, parts, keys + n);
        n += EIN__SHARE_KEYS;
        keys[n++] = (ein__key){"load", ein__kshare_load(g, r, column, parts)};
    }
    if (column) {
        ein__kcolumn_keys(g, r, keys + n);
        n += EIN__COLUMN_KEYS;
    }
    EIN_ASSERT(n <= EIN__COUNT(keys));
    ein__kfinish(g, r->out, hint, lines[how], keys, n, out, l);
    ein__buf_free(&terms);
    return true;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kreduce(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                         ein__launch *l) {
    ein__kred r = ein__kred_make(g, step, NULL);
    ein__kshare how = ein__kshare_of(g, &r, EIN__SHORT_ROW);
    // Part of another kernel, a warp has an output for which it would have been a block or a
    // column.
    if (g->part) how = ein__shares_warps(r.outputs, r.count) ? EIN__SHARE_WARP : EIN__SHARE_NONE;
    bool ok = r.count <= INT32_MAX || g->wide;
    if (ok && how == EIN__SHARE_NONE) ok = ein__kreduce_thread(g, &r, step, hint, out, l);
    else if (ok) ok = ein__kreduce_shared(g, &r, how, step, hint, out, l);
    ein__kred_free(&r);
    return ok;
}
