// What all kernels share (which iterators exist, their order, parameters, the kernel's name), and
// the kernels that are maps: one output element, or four neighbours, a thread; transposes through
// tiles.

// How to launch a kernel, and what it moves and computes. The parameters are pointers to the first
// elements of `arg`, in that order, the output last; then whether the next kernel is launched
// early.
enum { EIN__KDEVICES = 64 };

typedef struct ein__launch {
    unsigned grid[3], block[3];
    int smem;    // dynamic shared memory, bytes
    bool whole;  // all of it is needed, whatever the kernel was compiled for
    int narg;
    ein__val arg[EIN__MAX_PARAMS];
    int64_t threads;    // that have work, of a kernel that may be a part of another one
    const char *name;   // "k_" hint "_" and 8 hex digits that identify the text
    const char *of;     // the tensor that it makes, for messages
    ein__needs needs;   // see ein__emit_includes, ein__emit_helpers
    const char *extra;  // an argument in front of the pointers, or NULL
    ein__val rounded;   // weights that create is to round to TF32, or none
    bool shared;        // behind them: memory for the parts of sums, and counters of blocks
    int ndevice;        // functions that it calls, each with the values that it is about
    const char *device[EIN__KDEVICES];
    ein__val about[EIN__KDEVICES][EIN__PART_VALUES];
    const char *operands[EIN__KDEVICES];  // which tensors their parameters are, or NULL
} ein__launch;

// Which tensors several operands of a kernel are, of which the last `results` parameters are none;
// "": there is one.
static const char *ein__operands_text(ein_ctx *ctx, const ein__launch *l, int results) {
    const char *s = "";
    int n = l->narg - results;
    for (int i = 0; i < n && n > 1; i++)
        s = ein__namef(ctx, "%s%sp%d: %s", s, i ? ", " : "", i, ctx->value[l->arg[i].i].name);
    return s;
}

// ------------------------------------------------------------------------------- scanning

typedef struct ein__krow {
    int64_t k[EIN__MAX_ITERS];
} ein__krow;

// How the slots occur: linear in the addresses (one row a read, the last row is the output's), or
// in places where an iterator must keep its identity. `near` has the guarded axes' coefficients as
// well: it says what is adjacent in memory, not what may be merged.
typedef struct ein__kscan {
    uint32_t pinned, used;
    ein__krow *row, *near;  // stb_ds arrays
    ein__ex *read;          // by row; none for the output
    unsigned pass;
} ein__kscan;

static ein__kscan ein__kscan_make(ein__kgen *g) { return (ein__kscan){.pass = ++g->passes}; }

static void ein__kscan_free(ein__kscan *s) {
    arrfree(s->row);
    arrfree(s->near);
    arrfree(s->read);
}

static bool ein__kaxis_free(const ein__kgen *g, ein__ix ix, int64_t n) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    return x->q == 1 && x->lo >= 0 && x->hi < n && !ein__ix_has_gather(g->ctx, ix);
}

static void ein__kscan_row(ein__kgen *g, ein__kscan *s, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    const ein__shape *shape = &ein__val_get(g->ctx, (ein__val){x->val})->shape;
    ein__kform f = {0};
    ein__krow row = {{0}}, near;
    for (int d = 0; d < shape->rank; d++) {
        int64_t stride = ein__kstride(g, (ein__val){x->val}, d);
        if (ein__kaxis_free(g, x->ix[d], shape->d[d])) {
            ein__kform_add(g, &f, stride, x->ix[d]);
            continue;
        }
        const ein__index *i = ein__ix_get(g->ctx, x->ix[d]);
        s->pinned |= ein__ix_uses(g->ctx, x->ix[d]);
        for (uint32_t t = 0; t < i->n; t++) {
            const ein__atom *a = ein__atom_get(g->ctx, i->t[t].atom);
            if (a->kind == EIN__ITER && i->q == 1)
                row.k[a->slot] += ein__kmul(g, stride, i->t[t].k);
        }
    }
    near = row;
    memset(&row, 0, sizeof row);
    ein__kform_recombine(g, &f);
    for (int i = 0; i < f.n; i++) {
        const ein__atom *a = ein__atom_get(g->ctx, f.t[i].atom);
        if (a->kind == EIN__ITER) row.k[a->slot] += f.t[i].k, near.k[a->slot] += f.t[i].k;
        else if (a->kind == EIN__GATHER) s->pinned |= ein__kmask(g, (ein__ex){a->ex});
        else s->pinned |= ein__ix_uses(g->ctx, (ein__ix){a->ix});
    }
    arrput(s->row, row);
    arrput(s->near, near);
    arrput(s->read, ex);
}

static void ein__kscan_expr(ein__kgen *g, ein__kscan *s, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    ein__kmemo *memo = ein__kmemo_of(g, ex);
    if (memo->scanned == s->pass) return;
    memo->scanned = s->pass;
    if (x->op == EIN__X_READ) {
        const ein__kinner *in = ein__kinner_of(g, x->val);
        if (in && in->put) ein__kscan_expr(g, s, ein__kbody(g, in->v));
        if (in) return;
        const ein__ex *at = ein__ex_reads(g->ctx, ex);
        for (ptrdiff_t i = 0; i < arrlen(at); i++)
            if (at[i].i != ex.i && ein__kput_of(g, at[i])) ein__kscan_expr(g, s, at[i]);
        ein__kscan_row(g, s, ex);
        return;
    }
    if (x->op == EIN__X_IDX || x->op == EIN__X_WHEN) s->pinned |= ein__ix_uses(g->ctx, x->ix[0]);
    ein__ex kid[4];
    ein__kkids(g, x, kid);
    for (uint32_t i = 0; i < x->nkid; i++) ein__kscan_expr(g, s, kid[i]);
}

static void ein__kscan_out(ein__kgen *g, ein__kscan *s, ein__val out) {
    ein__krow row = {{0}};
    int rank = ein__val_get(g->ctx, out)->shape.rank;
    for (int d = 0; d < rank; d++) row.k[d] = ein__kstride(g, out, d);
    arrput(s->row, row);
    arrput(s->near, row);
    arrput(s->read, (ein__ex){0});
    s->used = s->pinned;
    for (ptrdiff_t r = 0; r < arrlen(s->row); r++)
        for (int i = 0; i < EIN__MAX_ITERS; i++)
            if (s->row[r].k[i]) s->used |= 1u << i;
}

// Merges neighbours of an order that every address steps through as one: fewer divisions, longer
// vectors, plainer text. The inner slot stands for both.
static int ein__kmerge(ein__kgen *g, const ein__kscan *s, int *order, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (g->slot[order[i]].n == 1) g->slot[order[i]].gone = true;
        else order[kept++] = order[i];
    }
    n = kept;
    for (int i = n - 2; i >= 0; i--) {
        int a = order[i], b = order[i + 1];
        bool same = !((s->pinned | g->sliced) & (1u << a | 1u << b));
        for (ptrdiff_t r = 0; same && r < arrlen(s->row); r++)
            same = s->row[r].k[a] == ein__kmul(g, s->row[r].k[b], g->slot[b].n);
        if (!same) continue;
        g->slot[b].n *= g->slot[a].n;
        g->slot[a].gone = true;
        for (int j = i; j + 1 < n; j++) order[j] = order[j + 1];
        n--;
    }
    return n;
}

// Puts the slots that number the slices, where there are such, in front of the others.
static void ein__kslices_first(const ein__kgen *g, int *order, int n) {
    int rest[EIN__MAX_ITERS], k = 0, m = 0;
    for (int i = 0; i < n; i++)
        if (!(g->sliced >> order[i] & 1u)) rest[m++] = order[i];
    for (int i = 0; i < g->nslice; i++)
        for (int j = 0; j < n; j++)
            if (order[j] == g->slice_at[i]) rest[m + k++] = order[j];
    for (int i = 0; i < k; i++) order[i] = rest[m + i];
    for (int i = 0; i < m; i++) order[k + i] = rest[i];
}

// The output's slots, the one with the largest stride first.
static int ein__korder(const ein__kgen *g, ein__val out, int *order) {
    int n = ein__val_get(g->ctx, out)->shape.rank;
    for (int i = 0; i < n; i++) {
        int j = i;
        int64_t k = ein__kstride(g, out, i);
        for (; j > 0 && ein__kstride(g, out, order[j - 1]) < k; j--) order[j] = order[j - 1];
        order[j] = i;
    }
    return n;
}

// ------------------------------------------------------------------------------- set-up, parts

static void ein__kgen_free(ein__kgen *g) {
    arrfree(g->name);
    ein__table_free(&g->known);
    arrfree(g->memo);
    for (int i = 0; i < EIN__KLEVELS; i++) ein__buf_free(&g->code[i]);
}

// Names the iterators of `s` from slot `first` on.
static void ein__kslots(ein__kgen *g, const ein__scope *s, uint32_t first) {
    for (uint32_t i = first; i < s->nt + s->ns; i++) {
        bool t = i < s->nt;
        const char *name = ein__namef(g->ctx, "%c%u", t ? 'i' : 'r', (unsigned)(t ? i : i - s->nt));
        g->slot[i] = (ein__kslot){.name = name, .n = s->n[i]};
    }
}

// Starts a kernel whose slots are those of `v`'s scope: traversal i0.., reduction r0...
static ein__kgen ein__kgen_make(ein_ctx *ctx, ein__val v, bool wide, int vec) {
    ein__kgen g = {.ctx = ctx, .wide = wide, .vec = vec, .vec_slot = -1};
    g.part = ctx->slice.v.i != 0;
    for (int i = 0; i < ctx->slice.n; i++) {
        g.slice_at[g.nslice++] = ctx->slice.at[i];
        g.sliced |= 1u << ctx->slice.at[i];
    }
    const ein__scope *s = ein__sc_get(ctx, ein__val_get(ctx, v)->scope);
    ein__kslots(&g, s, 0);
    for (int i = 0; i < EIN__KLEVELS; i++) ein__put(&g.code[i], "");
    return g;
}

// Starts it anew, in another form.
static void ein__krestart(ein__kgen *g, ein__val v, bool wide, int vec) {
    ein_ctx *ctx = g->ctx;
    bool halves = g->halves;
    ein__kgen_free(g);
    *g = ein__kgen_make(ctx, v, wide, vec);
    g->halves = halves;
}

static int64_t ein__kcount_slots(const ein__kgen *g, const int *order, int n) {
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= g->slot[order[i]].n;
    return count;
}

// Declares the slots of an order from one number `from` that runs over all of them (an expression
// of unsigned type); slots nobody reads are left out.
static void ein__kdecompose(ein__kgen *g, ein__buf *b, const int *order, int n, uint32_t used,
                            const char *from) {
    int64_t below = 1;
    const char *type = ein__kint(g), *u = g->wide ? "ull" : "u";
    for (int i = n - 1; i >= 0; i--) {
        int s = order[i];
        int64_t size = g->slot[s].n / (s == g->vec_slot ? g->vec : 1);
        ein__buf e = {0};
        ein__put(&e, from);
        if (below > 1) ein__putf(&e, " / %lld%s", (long long)below, u);
        if (i > 0) ein__putf(&e, " %% %lld%s", (long long)size, u);
        const char *open = below > 1 || i > 0 ? "(" : "", *close = *open ? ")" : "";
        if ((used & 1u << s) && size == 1) {
            ein__putf(b, "const %s %s = 0;\n", type, g->slot[s].name);
        } else if (used & 1u << s) {
            ein__putf(b, "const %s %s = (%s)%s%s%s", type, g->slot[s].name, type, open, e.s, close);
            if (s == g->vec_slot && g->vec > 1) ein__putf(b, " * %d", g->vec);
            ein__put(b, ";\n");
        }
        ein__buf_free(&e);
        below *= size;
    }
}

// `y[at] = value;` or a vector of lanes; converts to the stored type.
static void ein__kput_store(ein__kgen *g, ein__buf *b, ein__dtype t, const char *at,
                            const ein__ktext *value) {
    const char *y = g->to ? g->to : "y";
    if (g->vec == 2 && t == EIN__F16) {
        ein__kneed(g, EIN__NEED_HALF);
        ein__putf(b, "*reinterpret_cast<__half2 *>(&%s[%s]) = __floats2half2_rn(%s, %s);\n", y, at,
                  value[0].s, value[1].s);
        return;
    }
    if (g->vec > 1) {
        bool half = t == EIN__F16, bfloat = t == EIN__BF16;
        const char *type = t == EIN__I32 ? "int4" : ein__kvec_type(g),
                   *to = ein__kpointer(g, y, at);
        if (half) ein__kneed(g, g->vec == 8 ? EIN__NEED_STORE8 : EIN__NEED_STORE4);
        if (bfloat) ein__kneed(g, EIN__NEED_BFLOAT_STORE4);
        if (half || bfloat) ein__putf(b, "store_%s%d(%s", half ? "half" : "bfloat", g->vec, to);
        else ein__putf(b, "*reinterpret_cast<%s *>(%s) = make_%s(", type, to, type);
        for (int i = 0; i < g->vec; i++)
            ein__putf(b, "%s%s", i || half || bfloat ? ", " : "", value[i].s);
        ein__put(b, ");\n");
        return;
    }
    ein__putf(b, "%s[%s] = %s;\n", y, at, ein__kstored(g, t, value[0]));
}

// The same at the position that the output's slots have in a row of what was scanned.
static void ein__kstore_row(ein__kgen *g, ein__buf *b, ein__val out, const ein__krow *row,
                            const ein__ktext *value) {
    ein__klin l;
    bool whole = g->whole && g->vec > 1 && ein__kdtype(g, out) == EIN__F32;
    l.n = l.uneven = l.apart = 0;
    l.c = g->plane;
    for (int d = 0; d < EIN__MAX_ITERS; d++) {
        const ein__kslot *s = &g->slot[d];
        if (d >= ein__val_get(g->ctx, out)->shape.rank && !row->k[d]) continue;
        ein__kterm t = {row->k[d], {s->name, EIN__PRIMARY, s->level}, d == g->vec_slot, 1, s->n};
        if (whole && d != g->vec_slot) t.k /= g->vec;
        if (whole && d == g->vec_slot)
            t.text =
                ein__kt(g, EIN__PREFIX, s->level, ein__namef(g->ctx, "%s / %d", s->name, g->vec));
        if (!s->gone) ein__klin_add(g, &l, t);
    }
    const char *at = ein__klin_text(g, &l, 0).s;
    if (whole) {
        const char *type = ein__kvec_type(g);
        ein__putf(b, "reinterpret_cast<%s *>(y)[%s] = make_%s(", type, at, type);
        for (int i = 0; i < g->vec; i++) ein__putf(b, "%s%s", i ? ", " : "", value[i].s);
        ein__put(b, ");\n");
        return;
    }
    ein__kput_store(g, b, ein__kdtype(g, out), at, value);
}

// ... in the last one.
static void ein__kstore(ein__kgen *g, ein__buf *b, ein__val out, const ein__kscan *scan,
                        const ein__ktext *value) {
    ein__kstore_row(g, b, out, &scan->row[arrlen(scan->row) - 1], value);
}

// Whether nothing writes to `v` while the program runs.
static bool ein__kconstant(const ein_ctx *ctx, ein__val v) {
    int k = ctx->plan.layout[v.i].buffer;
    if (k < 0 || k >= arrlen(ctx->plan.buffer)) return false;
    ein__bkind kind = ctx->plan.buffer[k].kind;
    return kind == EIN__B_WEIGHT || kind == EIN__B_CONST || kind == EIN__B_INIT;
}

// The type of elements of `v`, whose header the program needs.
static const char *ein__kparam_type(ein__kgen *g, ein__val v) {
    ein__dtype t = ein__kdtype(g, v);
    if (t == EIN__F16 || t == EIN__BF16)
        ein__kneed(g, t == EIN__F16 ? EIN__NEED_HALF : EIN__NEED_BF16);
    return ein__kctype(t);
}

// What may change while the kernel lives, before it has waited for the one before it, must not be
// called read-only: the compiler moves loads of const __restrict__ pointers across the wait, and
// across barriers, towards where their values are used. As the result is __restrict__, that word
// would say nothing else about the operands.
static const char *ein__kparams(ein__kgen *g, ein__val out) {
    ein__buf b = {0};
    for (int i = 0; i < g->narg; i++) {
        bool constant = g->naive || (!g->ordered && ein__kconstant(g->ctx, g->arg[i]));
        const char *type = ein__kparam_type(g, g->arg[i]);
        ein__putf(&b, "const %s *%sp%d, ", type, constant ? "__restrict__ " : "", i);
    }
    ein__putf(&b, "%s *__restrict__ y", ein__kparam_type(g, out));
    if (g->also.i) ein__putf(&b, ", %s *__restrict__ also", ein__kparam_type(g, g->also));
    for (int i = 0; i < g->npeer; i++)
        ein__putf(&b, ", %s *__restrict__ y%d", ein__kparam_type(g, g->peer[i].out), i + 1);
    if (g->shared) ein__put(&b, ", float4 *parts, unsigned *arrived");
    if (g->part) ein__putf(&b, ", %s id", ein__kunsigned(g));
    else if (!g->naive) ein__put(&b, ", bool next_early");
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

// Expands the template twice: the name carries a hash of the text without it. The first two keys
// are the name and the parameters.
static void ein__kfinish(ein__kgen *g, ein__val out, const char *hint, const char *const *lines,
                         ein__key *keys, int nkey, ein__buf *text, ein__launch *l) {
    ein__buf draft = {0};
    keys[0] = (ein__key){"name", ""};
    keys[1] = (ein__key){"params", ein__kparams(g, out)};
    ein__tmpl_put(&draft, lines, keys, nkey);
    uint64_t h = ein__fnv(EIN__FNV_START, draft.s, draft.n);
    if (strstr(draft.s, "await_previous(")) ein__kneed(g, EIN__NEED_AWAIT);
    ein__buf_free(&draft);
    l->name = ein__namef(g->ctx, "%s_%s_%08x", g->part ? "part" : "k", hint,
                         (unsigned)((h ^ h >> 32) & 0xffffffffu));
    keys[0].text = l->name;
    ein__tmpl_put(text, lines, keys, nkey);
    memcpy(l->arg, g->arg, sizeof *g->arg * (size_t)g->narg);
    l->arg[g->narg] = out;
    l->narg = g->narg + 1;
    if (g->also.i) l->arg[l->narg++] = g->also;
    for (int i = 0; i < g->npeer; i++) l->arg[l->narg++] = g->peer[i].out;
    l->needs = g->needs;
    l->shared = g->shared;
}

// Declares `name` of a type in shared memory: in what a launch says that the kernel has, `dynamic`
// bytes, or (0) in what every kernel may declare.
static const char *ein__kstorage(ein__kgen *g, const char *type, const char *name, int dynamic,
                                 ein__launch *l) {
    l->smem = dynamic;
    if (!dynamic) return ein__namef(g->ctx, "__shared__ %s %s;\n", type, name);
    return ein__namef(g->ctx,
                      "extern __shared__ __align__(1024) unsigned char dynamic_shared[];\n"
                      "typedef %s %s_type;\n"
                      "%s_type &%s = *reinterpret_cast<%s_type *>(dynamic_shared);\n",
                      type, name, name, name, name);
}

// Blocks of 256 once they fill a large device twice, smaller ones before.
static int ein__kblock(int64_t threads) {
    return threads >= 256 * 264 ? 256 : threads >= 128 * 264 ? 128 : 64;
}

static bool ein__kgrid(ein_ctx *ctx, ein__launch *l, int64_t blocks, int threads) {
    if (blocks > INT32_MAX) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "%s: its kernel would need %lld blocks",
                   l->of, (long long)blocks);
        return false;
    }
    l->grid[0] = (unsigned)blocks;
    l->block[0] = (unsigned)threads;
    l->grid[1] = l->grid[2] = l->block[1] = l->block[2] = 1;
    return true;
}

// Keys of templates that are a kernel or, called with a thread's number, a part of one.
static const char *ein__kalone(const ein__kgen *g) { return g->part ? "" : "1"; }

static const char *ein__kfunction(const ein__kgen *g, int block) {
    if (g->part) return "__device__ __forceinline__ void";
    return ein__namef(g->ctx, "__global__ void __launch_bounds__(%d)", block);
}

static const char *ein__knumber(const ein__kgen *g, int64_t v) {
    return ein__namef(g->ctx, "%lld%s", (long long)v, g->wide ? "ull" : "u");
}

enum { EIN__THREAD_KEYS = 8 };

// Launches `threads` threads, each of which works by itself on what `index` tells it, and fills the
// first keys of their kernel's template, of which two are ein__kfinish's; its own ones follow.
// False: there are too many threads for a grid.
static bool ein__kthreads(ein__kgen *g, int64_t threads, const char *index,
                          ein__key keys[EIN__THREAD_KEYS], ein__launch *l) {
    int block = ein__kblock(threads);
    l->threads = threads;
    keys[2] = (ein__key){"thread", ein__kthread_id(g, block)};
    keys[3] = (ein__key){"number", ein__kunsigned(g)};
    keys[4] = (ein__key){"threads", ein__knumber(g, threads)};
    keys[5] = (ein__key){"index", index};
    keys[6] = (ein__key){"kind", ein__kfunction(g, block)};
    keys[7] = (ein__key){"alone", ein__kalone(g)};
    return ein__kgrid(g->ctx, l, ein__ceil(threads, block), block);
}

// Whether `vec` elements of `out`, stored where `row` says, lie together along slot `v`; those of
// different slices do not.
static bool ein__kvector_lies(const ein__kgen *g, ein__val out, int v, int vec,
                              const ein__krow *row) {
    if (row->k[v] != 1 || g->slot[v].n % vec || (g->sliced >> v & 1)) return false;
    if (g->ctx->plan.layout[out.i].offset % vec) return false;
    for (int d = 0; d < EIN__MAX_ITERS; d++)
        if (d != v && !g->slot[d].gone && row->k[d] % vec) return false;
    return true;
}

// Whether as many lanes along slot `v` can be stored as one vector.
static bool ein__kvector_at(const ein__kgen *g, ein__val out, int v, const ein__krow *row) {
    ein__dtype type = ein__kdtype(g, out);
    bool half = type == EIN__F16, bfloat = type == EIN__BF16;
    bool whole = type == EIN__I32 && g->narrow && g->vec == 4;
    if (g->naive || (type > EIN__BF16 && !whole)) return false;
    if ((half && g->vec == 2) || (bfloat && g->vec != 4)) return false;
    return (half || g->vec != 8) && ein__kvector_lies(g, out, v, g->vec, row);
}

// The same of the last slot of an order, stored where the last row of what was scanned says.
static bool ein__kvector_out(const ein__kgen *g, ein__val out, const int *order, int n,
                             const ein__kscan *s) {
    return n && ein__kvector_at(g, out, order[n - 1], &s->row[arrlen(s->row) - 1]);
}

// ------------------------------------------------------------------------------- map

// Scans the maps of a step, which read each other's values from registers; rows[k] is where the
// k-th one is stored.
static void ein__kmap_scan(ein__kgen *g, const ein__step *step, ein__kscan *scan, ptrdiff_t *rows) {
    if (step->chained) g->peer = step->peer, g->npeer = step->npeer;
    for (int k = 0; k < step->nhidden; k++)
        g->inner[g->ninner++] = (ein__kinner){.v = step->hidden[k], .put = true};
    for (int k = 0; step->chained && k <= g->npeer; k++)
        g->inner[g->ninner++] = (ein__kinner){.v = ein__step_member(step, k)->out, .put = true};
    for (int k = 0; k <= g->npeer; k++) {
        ein__val v = ein__step_member(step, k)->out;
        ein__kscan_expr(g, scan, ein__kbody(g, v));
        ein__kscan_out(g, scan, v);
        rows[k] = arrlen(scan->row) - 1;
    }
}

// Their values, all of them before anything is stored: loads need not wait for that.
static void ein__kmap_values(ein__kgen *g, const ein__step *step, const ein__kscan *scan,
                             const ptrdiff_t *rows) {
    ein__ktext value[EIN__CHAINED][EIN__KLANES];
    ein__knum num = g->num;
    for (int k = 0; k <= g->npeer; k++)
        ein__kcount(g, ein__kbody(g, ein__step_member(step, k)->out));
    for (int k = 0; k <= g->npeer; k++) {
        ein__val v = ein__step_member(step, k)->out;
        g->num = ein__kmember_num(g, v);
        for (int lane = 0; lane < g->vec; lane++)
            value[k][lane] = ein__kvalue(g, ein__kbody(g, v), lane);
    }
    for (int k = 0; k <= g->npeer; k++) {
        ein__val v = ein__step_member(step, k)->out;
        g->num = ein__kmember_num(g, v);
        g->to = k ? ein__namef(g->ctx, "y%d", k) : NULL;
        ein__kstore_row(g, &g->code[0], v, &scan->row[rows[k]], value[k]);
    }
    g->num = num;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kmap(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                      ein__launch *l) {
    ein__val v = step->out;
    ein__kscan scan = ein__kscan_make(g);
    int order[EIN__MAX_RANK];
    ptrdiff_t rows[EIN__CHAINED];
    ein__kmap_scan(g, step, &scan, rows);
    int n = ein__korder(g, v, order);
    n = ein__kmerge(g, &scan, order, n);
    ein__kslices_first(g, order, n);
    bool ok = true;
    if (g->vec > 1) {
        for (int k = 0; k <= g->npeer && ok; k++)
            ok = ein__kvector_out(g, ein__step_member(step, k)->out, order, n, &scan);
        if (ok) g->vec_slot = order[n - 1];
    }
    if (ok) {
        ein__kmap_values(g, step, &scan, rows);
        ok = !g->scattered && !g->too_wide;
    }
    int64_t threads = ein__kcount_slots(g, order, n) / g->vec;
    if (threads > INT32_MAX && !g->wide) ok = false;
    if (ok && !g->overflow) {
        ein__buf index = {0};
        ein__put(&index, "");
        ein__kdecompose(g, &index, order, n, scan.used, "id");
        ein__key keys[] = {[EIN__THREAD_KEYS] = {"body", g->code[0].s}};
        if (ein__kthreads(g, threads, index.s, keys, l))
            ein__kfinish(g, v, hint, ein__tmpl_map, keys, EIN__COUNT(keys), out, l);
        ein__buf_free(&index);
    }
    ein__kscan_free(&scan);
    return ok;
}

// `(int)(id / below % n) * size`, with what does nothing left out; `*below` grows.
static const char *ein__kdigit(ein__kgen *g, int64_t *below, int64_t n, int size) {
    const char *s = "id", *u = g->wide ? "ull" : "u";
    if (n == 1) return "0";
    if (*below > 1) s = ein__namef(g->ctx, "%s / %lld%s", s, (long long)*below, u);
    s = ein__namef(g->ctx, "(%s)(%s %% %lld%s)", ein__kint(g), s, (long long)n, u);
    *below *= n;
    if (size > 1) s = ein__namef(g->ctx, "%s * %d", s, size);
    return s;
}
