// Argmax and argmin (place.c) as reductions over pairs of a value and its place: one output has a
// thread, a warp, a block, several blocks or a column of threads, as in other reductions.

// The parts of a kernel beside those of a reduction.
typedef struct ein__kplaces {
    ein__extremum p;
    ein__kred r;
    const char *pair, *none;  // the pair's type, and what it begins with
} ein__kplaces;

static ein__kplaces ein__kplaces_make(ein__kgen *g, const ein__step *step) {
    ein__kplaces z = {.r = {.acc = step->val[1], .out = step->out, .scan = ein__kscan_make(g)}};
    ein__kred *r = &z.r;
    const ein__scope *s = ein__scope_of(g->ctx, r->acc);
    bool found = ein__match_place(g->ctx, s, &z.p);
    EIN_ASSERT(found);
    (void)found;
    ein__kscan_expr(g, &r->scan, z.p.value);
    r->scan.pinned |= ein__ix_uses(g->ctx, z.p.at);
    g->inner[g->ninner++] = (ein__kinner){.v = r->acc, .text = {"best.place"}};
    if (step->nval > 2) ein__kscan_expr(g, &r->scan, ein__kbody(g, r->out));
    ein__kscan_out(g, &r->scan, r->out);
    r->nt = ein__korder(g, r->out, r->t);
    for (uint32_t i = 0; i < s->ns; i++) r->s[r->ns++] = (int)(s->nt + i);
    ein__ksort_reduction(r);
    r->nt = ein__kmerge(g, &r->scan, r->t, r->nt);
    r->ns = ein__kmerge(g, &r->scan, r->s, r->ns);
    r->outputs = ein__kcount_slots(g, r->t, r->nt);
    r->count = ein__kcount_slots(g, r->s, r->ns);
    if (ein__kinteger(g, z.p.value)) g->num = EIN__NUM_INT;
    const char *identity = ein__kidentity(g, z.p.max ? EIN__R_MAX : EIN__R_MIN);
    z.pair = ein__namef(g->ctx, "ranked<%s, %s, %s, %s>", z.p.max ? "true" : "false",
                        z.p.last ? "true" : "false", ein__knum_type(g), ein__kint(g));
    z.none = ein__namef(g->ctx, "{%s, %lld}", identity, (long long)z.p.none);
    ein__put(&r->index, "");
    ein__put(&r->post, "");
    return z;
}

// Whether places fit the type that counts here.
static bool ein__kplaces_fit(const ein__kgen *g, const ein__kplaces *z) {
    const ein__index *f = ein__ix_get(g->ctx, z->p.at);
    int64_t none = z->p.none < 0 ? -z->p.none : z->p.none;
    return g->wide || (f->lo >= -INT32_MAX && f->hi <= INT32_MAX && none <= INT32_MAX);
}

// Fills the parts, as ein__kred_parts does: lanes are terms of one output.
static void ein__kplaces_parts(ein__kgen *g, ein__kplaces *z, const ein__step *step, bool levels) {
    ein__kred *r = &z->r;
    for (int i = 0; i < r->ns; i++) g->slot[r->s[i]].level = levels ? i + 1 : 1;
    ein__kcount(g, z->p.value);
    for (int i = 0; i < g->vec; i++) {
        ein__ktext v = ein__kvalue(g, z->p.value, i);
        ein__klin at = ein__klin_of(g, z->p.at, i);
        ein__putf(&r->core, "best.take(%s, %s);\n", v.s, ein__klin_text(g, &at, i).s);
    }
    int vec = g->vec;
    g->vec = 1;
    g->vec_slot = -1;
    g->post = &r->post;
    ein__ktext value = {"best.place", EIN__PRIMARY, 0};
    g->num = EIN__NUM_INT;
    if (step->nval > 2) {
        ein__ex body = ein__kbody(g, r->out);
        ein__kinner *in = &g->inner[0];
        in->whole = ein__kdtype(g, r->acc) > EIN__BF16;
        in->text[0] = !in->whole ? "(float)best.place"
                      : g->wide  ? "best.place"
                                 : "(long long)best.place";
        g->num = ein__kmember_num(g, r->out);
        ein__kcount(g, body);
        value = ein__kvalue(g, body, 0);
    }
    ein__kstore(g, &r->store, r->out, &r->scan, &value);
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    ein__kneed(g, EIN__NEED_RANKED);
    g->vec = vec;
}

static bool ein__kplace_thread(ein__kgen *g, ein__kplaces *z, const ein__step *step,
                               const char *hint, ein__buf *out, ein__launch *l) {
    ein__kred *r = &z->r;
    if (g->vec > 1) return false;
    ein__kplaces_parts(g, z, step, true);
    if (g->too_wide || (r->outputs > INT32_MAX && !g->wide)) return false;
    ein__buf loops = {0};
    ein__put(&loops, g->code[0].s);
    ein__putf(&loops, "%s best = %s;\n", z->pair, z->none);
    ein__kloops(g, &loops, r->s, r->ns, 1, r->core.s);
    ein__put(&loops, r->post.s);
    ein__put(&loops, r->store.s);
    ein__key keys[] = {[EIN__THREAD_KEYS] = {"body", loops.s}};
    if (!g->overflow && ein__kthreads(g, r->outputs, r->index.s, keys, l))
        ein__kfinish(g, r->out, hint, ein__tmpl_map, keys, EIN__COUNT(keys), out, l);
    ein__buf_free(&loops);
    return true;
}

// A warp for each output, or blocks of threads that share the terms of one or of 32 neighbours.
static bool ein__kplace_shared(ein__kgen *g, ein__kplaces *z, ein__kshare how,
                               const ein__step *step, const char *hint, ein__buf *out,
                               ein__launch *l) {
    static const char *const *const lines[] = {[EIN__SHARE_WARP] = ein__tmpl_place_warp,
                                               [EIN__SHARE_BLOCK] = ein__tmpl_place_block,
                                               [EIN__SHARE_COLUMN] = ein__tmpl_place_column};
    ein__kred *r = &z->r;
    int vec = g->vec, parts = ein__kshare_parts(g, r, step, &how);
    bool warp = how == EIN__SHARE_WARP, column = how == EIN__SHARE_COLUMN;
    if (vec > 1 && !ein__kreduce_vector(g, r, how)) return false;
    int last = g->vec_slot;
    ein__kplaces_parts(g, z, step, false);
    if (g->too_wide || g->scattered) return false;
    int warps = warp ? ein__sharing_warps(r->outputs) : EIN__BLOCK_THREADS / 32;
    int64_t groups = ein__ceil(r->outputs, column ? EIN__COLUMN_OUTPUTS : warp ? warps : 1);
    if (g->overflow || !ein__kshare_grid(g, how, groups, parts, warps * 32, l)) return true;
    ein__buf terms = {0};
    g->vec_slot = last;
    ein__kdecompose(g, &terms, r->s, r->ns, r->scan.used, "k");
    ein__put(&terms, g->code[1].s);
    ein__put(&terms, r->core.s);
    ein__key keys[16] = {
        {0},
        {0},
        {"number", ein__kunsigned(g)},
        {"outputs", warp || column ? ein__knumber(g, r->outputs)
                                   : ein__namef(g->ctx, "%lld", (long long)(groups * parts))},
        {"index", r->index.s},
        {"before", g->code[0].s},
        {"pair", z->pair},
        {"none", z->none},
        {"count", ein__knumber(g, r->count / vec)},
        {"terms", terms.s},
        {"after", r->post.s},
        {"store", r->store.s}};
    int n = 12;
    if (warp) {
        keys[n++] = (ein__key){"block", ein__namef(g->ctx, "%d", 32 * warps)};
        keys[n++] = (ein__key){"warp", ein__kwarp_id(g, warps)};
    } else {
        ein__kshare_keys(g, how, parts, keys + n);
        n += EIN__SHARE_KEYS;
    }
    EIN_ASSERT(n <= EIN__COUNT(keys));
    ein__kfinish(g, r->out, hint, lines[how], keys, n, out, l);
    ein__buf_free(&terms);
    return true;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kplaces_kernel(ein__kgen *g, const ein__step *step, const char *hint,
                                ein__buf *out, ein__launch *l) {
    ein__kplaces z = ein__kplaces_make(g, step);
    ein__kshare how = ein__kshare_of(g, &z.r, 32);
    bool ok = (z.r.count <= INT32_MAX || g->wide) && ein__kplaces_fit(g, &z);
    if (ok && how == EIN__SHARE_NONE) ok = ein__kplace_thread(g, &z, step, hint, out, l);
    else if (ok) ok = ein__kplace_shared(g, &z, how, step, hint, out, l);
    ein__kred_free(&z.r);
    return ok;
}
