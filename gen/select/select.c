// Instruction selection: which step (library call or kernel) computes which values, and what is
// fused into it.

typedef struct ein__selector {
    ein_ctx *ctx;
    ein__val *order;  // live values, operands first; stb_ds arrays
    int *uses;        // by value
    ein__readers readers;
    ein__val *home;   // by value: the value whose step computes it (itself, or a later one)
    ein__val *first;  // by value: the first that its step computes, in the order, once all are
    ein__val *next;   // ... chosen; and by one of these the next one, or none
    ein__kind *kind;  // by value: how a reduction is computed
    bool *root;       // by value: is a model output
    bool pairs;       // two sums apart may become one pass (moments.c)
    bool free;        // results of products may be stored in any order of their dimensions
    int reordered;    // products that are a GEMM only because of that
} ein__selector;

// ------------------------------------------------------------------------------------ reductions

static ein__kind ein__kernel_kind(ein_ctx *ctx, const ein__scope *s) {
    ein__band b;
    ein__basis t;
    if (ein__match_basis(ctx, s, &t)) return EIN__K_BASIS;
    return ein__match_band(ctx, s, &b) ? EIN__K_BAND : EIN__K_REDUCE;
}

// What a kernel of our own must be cheaper by than a library call, in percent, while its cost is an
// estimate. On an H200 estimates of 2200 products of ours were off by 5 to 11 %, half of them,
// either way; where plans took calls for less than that, programs got slower or links without a
// gain.
enum { EIN__OWN_MARGIN = 3 };

// What such a kernel counts as beside a call.
static int64_t ein__beside_call(int64_t ps, bool measured) {
    return measured ? ps : ein__cost_sum(ps, ein__muldiv(ps, EIN__OWN_MARGIN, 100));
}

// The cheapest library call for contraction `s` with map `m` as below, and its cost; `kind` and
// `*ps` stay where there is none that costs less than `bound`.
static ein__kind ein__choose_library(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read,
                                     bool free, ein__kind kind, int64_t bound, int64_t *ps) {
    int64_t out[EIN__MAX_RANK], gemm_ps, conv_ps;
    ein__conv_form f;
    bool fused;
    if (ctx->desc.libs == EIN_LIBS_NONE || !ein__rule_on(ctx, EIN__RULE_MATCH)) return kind;
    if (ein__gemm_and_map(ctx, s, m, read, free, &gemm_ps, &fused) &&
        (gemm_ps < bound || (gemm_ps == bound && !fused))) {
        *ps = bound = gemm_ps;
        kind = EIN__K_GEMM;
    }
    ein__dense_result(s, out);
    if (ctx->desc.libs != EIN_LIBS_ALL || !ein__find_conv(ctx, s, out, &f) || !ein__conv_sizes(&f))
        return kind;
    (void)ein__conv_and_map(ctx, &f, m, read, &conv_ps);
    if (conv_ps < bound || (conv_ps == bound && kind != EIN__K_GEMM)) {
        *ps = conv_ps;
        kind = f.transposed ? EIN__K_CONV_DATA : EIN__K_CONV;
    }
    return kind;
}

// The cheapest kernel of our own for contraction `s` with map `m` as below; `*bound`: what a call
// must cost less than.
static ein__kind ein__choose_own(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read,
                                 ein__split *split, int64_t *ps, int64_t *bound) {
    ein__kind kind = ein__kernel_kind(ctx, s);
    int64_t own = ein__least(ein__cost_scope(ctx, EIN__K_PRODUCT, s, m, read),
                             ein__cost_lines(ctx, s, m, read));
    ein__split parts = {0, 1};
    *bound = *ps = ein__cost_scope(ctx, kind, s, m, read);
    // Parts of a sum are not to be rounded to halves.
    if (split && ctx->desc.math != EIN_MATH_FP16) {
        int64_t several = ein__cost_split(ctx, s, m, &parts);
        int64_t margin = ein__muldiv(several, EIN__SPLIT_MARGIN, 100) + EIN__SPLIT_PS;
        if (ein__plus(several, margin) < own) own = several;
        else parts.parts = 1;
    }
    if (split) *split = (ein__split){0, 1};
    if (own >= *ps) return kind;
    *ps = own;
    bool known = parts.parts == 1 && ein__is_scope_measured(ctx, EIN__K_PRODUCT, s, m, read);
    *bound = ein__least(*bound, ein__beside_call(own, known));
    if (split) *split = parts;
    return EIN__K_PRODUCT;
}

// The cheapest way to compute contraction `s`, and in `*ps` what it costs together with map `m`,
// which alone reads it by `read` (or none): a library call, with the map fused where the library
// can, or a kernel, which fuses any. Equal costs go to the library, and to GEMM first: a
// convolution is no better than the product it contains unless it fuses more. A kernel that fuses
// the map is as good as cublasLt with its epilogue. `free`: its result may lie in memory in any
// order. With `split` also a product whose terms are in parts, which then become values of their
// own before steps are selected (ein__rebuild_product).
static ein__kind ein__choose_parts(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read,
                                   bool free, int64_t *ps, ein__split *split) {
    int64_t bound;
    ein__kind own = ein__choose_own(ctx, s, m, read, split, ps, &bound);
    ein__kind best = ein__choose_library(ctx, s, m, read, free, own, bound, ps);
    if (split && best != EIN__K_PRODUCT) *split = (ein__split){0, 1};
    return best;
}

static ein__kind ein__choose(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read, bool free,
                             int64_t *ps) {
    return ein__choose_parts(ctx, s, m, read, free, ps, NULL);
}

// Expression fusion: M[x] = f(x, V[x]) over V[x] = reduce(y) g(x,y) is f(x, reduce(y) g(x,y)), one
// step that stores M alone; `*read` receives the read of V. Precondition: M is a map over V's box
// and reads V once, at its own index, or both sums of a pair; the caller's: nothing else reads V.
static bool ein__rule_fuse(ein_ctx *ctx, ein__val m, ein__val v, ein__ex *read) {
    const ein__scope *s = ein__scope_of(ctx, m);
    int times = 0;
    bool pair = true;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE) || !s || s->reduce != EIN__R_NONE) return false;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        if (ein__ex_get(ctx, reads[k])->val != v.i) continue;
        times++;
        *read = reads[k];
        pair = pair && ein__reads_pair(ctx, ein__ex_get(ctx, reads[k]), s);
    }
    // A position is looked up in memory.
    if (!times || ein__ex_looks_up(ctx, s->body, v)) return false;
    if (pair) return ctx->value[m.i].dtype == EIN__F32;
    return times == 1 && ein__reads_in_place(ctx, ein__ex_get(ctx, *read), s);
}

// The map that alone reads reduction `v`, at its own index, and that read; none otherwise.
EIN__FN ein__val ein__sole_reader(ein_ctx *ctx, const int *uses, const ein__readers *readers,
                                  ein__val v, ein__ex *read) {
    const int *first = &readers->first[v.i];
    if (uses[v.i] != 1 || first[0] == first[1]) return (ein__val){0};
    ein__val m = readers->all[first[0]];
    return ein__rule_fuse(ctx, m, v, read) ? m : (ein__val){0};
}

// ------------------------------------------------------------------------------------ rows

enum { EIN__MAX_ROW_VALS = 8 };

// Whether reduction `r` runs over the dimensions of map `m` behind the first `rows`, with the rows'
// iterators in front, and nobody outside the step needs it.
static bool ein__row_member(ein__selector *z, ein__val r, const ein__scope *m, uint32_t rows) {
    const ein__scope *s = ein__scope_of(z->ctx, r);
    if (!s || s->reduce == EIN__R_NONE || z->root[r.i] || s->nt != rows || s->nt + s->ns != m->nt)
        return false;
    if (z->ctx->value[r.i].weight_only || z->kind[r.i] == EIN__K_PLACE) return false;
    // A row's registers are floats, which have no digits for some integers.
    if (z->ctx->value[r.i].dtype > EIN__BF16) return false;
    for (uint32_t i = 0; i < m->nt; i++)
        if (s->n[i] != m->n[i]) return false;
    return !ein__is_contraction(z->ctx, s) || ein__is_square(z->ctx, s);
}

// Adds to `list` the reductions that `v` reads and that run over the same rows, operands first.
static bool ein__row_collect(ein__selector *z, ein__val v, const ein__scope *m, uint32_t rows,
                             ein__val *list, int *n) {
    ein_ctx *ctx = z->ctx;
    bool ok = true;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        ein__val r = {e->val};
        bool known = false, bare = e->nix == rows;
        for (int k = 0; k < *n; k++) known |= list[k].i == r.i;
        if (known || !ein__row_member(z, r, m, rows)) continue;
        for (uint32_t k = 0; bare && k < rows; k++)
            bare = e->ix[k].i == ein__ix_iter(ctx, k, m->n[k]).i;
        if (!bare) continue;
        ok = ein__row_collect(z, r, m, rows, list, n) && *n < EIN__MAX_ROW_VALS - 1;
        if (ok) list[(*n)++] = r;
    }
    return ok;
}

// Whether `v` reads `r`, and if so at its own row only: `*own` is cleared by another read.
static bool ein__reads_row(ein_ctx *ctx, ein__val v, ein__val r, bool *own) {
    const ein__scope *s = ein__scope_of(ctx, v);
    bool does = false;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (e->val != r.i) continue;
        does = true;
        *own &= !ein__ex_looks_up(ctx, s->body, r);
        for (uint32_t k = 0; k < e->nix; k++) *own &= e->ix[k].i == ein__ix_iter(ctx, k, s->n[k]).i;
    }
    return does;
}

// Uses of `r` by the members and by `m` itself must be all there are, each at its own row: that row
// alone is in registers.
static bool ein__row_closed(ein__selector *z, ein__val m, const ein__val *list, int n) {
    for (int k = 0; k < n; k++) {
        int inside = 0;
        bool own = true;
        for (int j = 0; j <= n; j++)
            inside += ein__reads_row(z->ctx, j < n ? list[j] : m, list[k], &own);
        if (inside != z->uses[list[k].i] || !own) return false;
    }
    return true;
}

// The reductions that map `m` can compute along its own rows; 0 when there are none.
static int ein__row_members(ein__selector *z, ein__val m, ein__val *list) {
    const ein__scope *s = ein__scope_of(z->ctx, m);
    for (uint32_t rows = s->nt; rows-- > 0;) {
        int n = 0;
        if (s->n[rows] == 1 && rows + 1 == s->nt) continue;
        if (ein__row_collect(z, m, s, rows, list, &n) && n && ein__row_closed(z, m, list, n))
            return n;
    }
    return 0;
}

// The box of the rows that `last` ends, one result a row: its own, or that of a reduction that a
// map of rows reads in place.
static bool ein__ended_rows(ein_ctx *ctx, ein__val last, ein__scope *box) {
    const ein__scope *s = ein__scope_of(ctx, last);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    bool found = s->reduce != EIN__R_NONE;
    for (ptrdiff_t i = 0; i < arrlen(reads) && !found; i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        const ein__scope *r = ein__scope_of(ctx, (ein__val){e->val});
        found =
            r && r->reduce != EIN__R_NONE && ein__reads_in_place(ctx, e, ein__scope_of(ctx, last));
        if (found) s = r;
    }
    if (!found || s->ns == 0) return false;
    *box = *s;
    box->nt += box->ns;
    box->ns = 0;
    return true;
}

// The reductions along the rows that `last`, a reduction over these or a map of their results,
// ends; 0 when there are none, or it has no use for a kernel that makes several passes.
static int ein__ended_members(ein__selector *z, ein__val last, ein__val *list) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, last);
    ein__scope box;
    int n = 0, reductions = s->reduce != EIN__R_NONE;
    uint32_t apart;
    if (ctx->value[last.i].dtype > EIN__BF16 || !ein__ended_rows(ctx, last, &box)) return 0;
    if (reductions && (ein__is_contraction(ctx, s) || ein__sums_together(ctx, s, &apart) > 1))
        return 0;
    if (!ein__row_collect(z, last, &box, s->nt, list, &n) || !ein__row_closed(z, last, list, n))
        return 0;
    for (int k = 0; k < n; k++) {
        const ein__scope *r = ein__scope_of(ctx, list[k]);
        if (ctx->value[list[k].i].dtype > EIN__BF16 || ein__sums_together(ctx, r, &apart) > 1 ||
            z->home[list[k].i].i != list[k].i)
            return 0;
    }
    return reductions + n > 1 ? n : 0;
}

// ------------------------------------------------------------------------------------ selection

// Whether `v` is of a step that was chosen: computed inside of it, or what it stores.
static bool ein__is_chosen(const ein__selector *z, ein__val v) {
    return z->home[v.i].i != v.i || z->kind[v.i] != EIN__K_MAP;
}

// Whether nothing but the values of attention `a` and `last` reads its inner values, and none of
// them is another step's: an attention's result may be what the next one's scores are made of.
static bool ein__attention_closed(ein__selector *z, const ein__attention *a, ein__val last) {
    ein_ctx *ctx = z->ctx;
    if (ein__is_chosen(z, last)) return false;
    for (int k = 0; k < a->n; k++) {
        uint32_t v = a->inner[k].i;
        int inside = 0;
        if (ein__is_chosen(z, a->inner[k])) return false;
        for (int j = 0; j <= a->n; j++) {
            bool does = false;
            const ein__ex *reads =
                ein__ex_reads(ctx, ein__scope_of(ctx, j < a->n ? a->inner[j] : last)->body);
            for (ptrdiff_t i = 0; i < arrlen(reads); i++)
                does |= ein__ex_get(ctx, reads[i])->val == v;
            inside += does;
        }
        if (inside != z->uses[v] || z->root[v] || ctx->value[v].weight_only) return false;
    }
    return true;
}

enum {
    EIN__ATTENTION_COPIES = 10,  // a share of what attention costs apart
    EIN__ATTENTION_GAINS = 85    // in 1/100
};

// What the values of attention `a` cost as calls and kernels of their own: the two products, each
// with the map that alone reads it, and the rows of the softmax between them.
static int64_t ein__attention_apart(ein__selector *z, const ein__attention *a, ein__val map,
                                    ein__ex read) {
    ein_ctx *ctx = z->ctx;
    ein__kernel row = {.kind = EIN__K_ROW, .size = ein__is_untyped(ctx) ? 2 : 4};
    ein__ex scaled = {0};
    ein__val first = {0}, last = {0};
    int64_t ps, all = 0;
    if (a->dot.i) {
        first = ein__sole_reader(ctx, z->uses, &z->readers, a->dot, &scaled);
        ein__choose(ctx, ein__scope_of(ctx, a->dot), first, scaled, z->free, &all);
    }
    ein__choose(ctx, ein__scope_of(ctx, a->out), map, read, z->free, &ps);
    all = ein__cost_sum(all, ps);
    for (int k = 0; k < a->n; k++) {
        ein__val v = a->inner[k];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (v.i == a->dot.i || v.i == a->out.i || v.i == first.i || ein__copy_of(ctx, v)) continue;
        if (s->reduce == EIN__R_NONE && a->plain && last.i)
            all = ein__cost_sum(all, ein__kernel_cost(ctx, last));
        if (s->reduce == EIN__R_NONE) last = v;
        else row.inner[row.n] = v, row.s[row.n++] = s;
    }
    if (!row.n) return last.i ? ein__cost_sum(all, ein__kernel_cost(ctx, last)) : all;
    if (last.i) row.s[row.n++] = ein__scope_of(ctx, last);
    return ein__cost_sum(all, ein__cost_kernel(ctx, &row));
}

// What attention `a` costs as one kernel, whose products will read through copies
// (ein__rebuild_kept).
static int64_t ein__attention_together(ein_ctx *ctx, const ein__attention *a, int64_t bytes_out) {
    ein__attention z = *a;
    ein__ex *part[] = {&z.query, &z.key, &z.value};
    ein__attempt attempt = ein__try(ctx);
    for (int k = 0; k < 3; k++)
        for (const ein__expr *e = ein__ex_get(ctx, *part[k]); e->op == EIN__X_READ;
             e = ein__ex_get(ctx, *part[k])) {
            ein__val p = {e->val};
            if (!ein__copy_of(ctx, p) || !ein__sees_through(ctx, p, e)) break;
            ein__ex body = ein__rule_inline(ctx, p, e);
            if (!body.i || ein__ex_get(ctx, body)->op != EIN__X_READ) break;
            *part[k] = body;
        }
    int64_t ps = ein__least(ein__cost_attention(ctx, &z, bytes_out),
                            ein__cost_attention_halves(ctx, &z, bytes_out));
    return ein__tried(ctx, attempt) ? ps : EIN__PS_LIMIT;
}

// Whether a kernel that computes what map `m` reads computes `m` as well: a product behind whose
// sums it stands, or a row whose statistics it finishes.
static bool ein__is_behind(ein__selector *z, ein__val m) {
    ein_ctx *ctx = z->ctx;
    ein__val members[EIN__MAX_ROW_VALS];
    ein__ex body = ein__scope_of(ctx, m)->body;
    bool behind = ein__row_members(z, m, members) > 0;
    const ein__ex *reads = ein__ex_reads(ctx, body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        const ein__scope *s = ein__scope_of(ctx, v);
        int64_t n = ein__elements(&ctx->value[v.i].shape);
        behind |= s && s->reduce != EIN__R_NONE && !ctx->value[v.i].weight_only &&
                  n == ein__elements(&ctx->value[m.i].shape) && z->uses[v.i] == 1 &&
                  ein__attention_only(ctx, body, v).i;
    }
    return behind;
}

// Takes the map that `part` of `a` reads, perhaps by way of copies, into its loads; false: there is
// none, or others need it too.
static bool ein__attention_take(ein__selector *z, ein__attention *a, int part) {
    ein_ctx *ctx = z->ctx;
    for (bool copy = true; copy;) {
        const ein__expr *e = ein__attention_factor(ctx, a, part);
        ein__val v = {e ? e->val : 0};
        if (!e || !ein__is_map(ctx, v) || z->uses[v.i] != 1 || z->root[v.i] ||
            ein__is_chosen(z, v) || ctx->value[v.i].weight_only || ein__joins(ctx, v))
            return false;
        copy = ein__copy_of(ctx, v) != NULL;
        bool fits = copy ? ein__sees_through(ctx, v, e) : !ein__is_behind(z, v);
        // What types were given for is settled.
        if (!fits || (ctx->typed && !ein__is_kept(ctx, v)) || !ein__attention_inline(ctx, a, part))
            return false;
    }
    return true;
}

// Whether none of what loads compute is read by anything else in the kernel.
static bool ein__attention_loads_closed(ein_ctx *ctx, const ein__attention *a) {
    const ein__ex part[] = {a->query, a->key, a->value, a->score, a->gate, a->result};
    bool closed = true;
    for (int p = 0; p < 6; p++) {
        const ein__ex *reads = ein__ex_reads(ctx, part[p]);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++)
            for (int k = 0; k < a->nload; k++)
                closed &= ein__ex_get(ctx, reads[i])->val != a->load[k].i;
    }
    return closed;
}

// Gives `a` the loads that are best, and what it costs then with maps in front as kernels of their
// own; `*maps`: what all of these cost.
static int64_t ein__attention_with_loads(ein__selector *z, ein__attention *a, int64_t bytes_out,
                                         int64_t *maps) {
    ein_ctx *ctx = z->ctx;
    int64_t cost[EIN__ATTENTION_PARTS] = {0};
    const ein__attention plain = *a;
    int can = 0;
    *maps = 0;
    for (int p = 0; p < EIN__ATTENTION_PARTS && ein__rule_on(ctx, EIN__RULE_FUSE); p++) {
        ein__attention one = plain;
        if (plain.band || !ein__attention_take(z, &one, p)) continue;
        can |= 1 << p;
        cost[p] = ein__kernel_cost(ctx, one.load[one.nload - 1]);
        *maps = ein__cost_sum(*maps, cost[p]);
    }
    int64_t least = ein__cost_sum(ein__attention_together(ctx, a, bytes_out), *maps);
    for (int set = 1; set <= can; set++) {
        ein__attention with = plain;
        int64_t ps = 0;
        bool fits = !(set & ~can) && (!ctx->typed || set == can);
        for (int p = 0; p < EIN__ATTENTION_PARTS && fits; p++)
            if (set >> p & 1) fits = ein__attention_take(z, &with, p);
            else ps = ein__cost_sum(ps, cost[p]);
        if (!fits || !ein__attention_loads_closed(ctx, &with)) continue;
        ps = ein__cost_sum(ps, ein__attention_together(ctx, &with, bytes_out));
        if (ps >= least && !ctx->typed) continue;
        least = ps;
        *a = with;
    }
    return least;
}

// Whether `ps` for attention `a` as one kernel is to be taken where apart it costs `apart`: if it
// is not much dearer, because apart the products may need copies made that the kernel reads
// through, and a plan without any is compared as a whole. Weights that are no softmax are of any
// two products in a row: much has to be gained.
static bool ein__attention_pays(const ein__attention *a, int64_t ps, int64_t apart) {
    if (!a->soft) return ps < ein__muldiv(apart, EIN__ATTENTION_GAINS, 100);
    return ps < apart + apart / EIN__ATTENTION_COPIES;
}

// Makes one kernel of the attention that `v` ends, if it is of softmax or of other weights as
// `soft` says, and cheaper so.
static void ein__select_attended(ein__selector *z, ein__val v, bool soft) {
    ein_ctx *ctx = z->ctx;
    ein__val map = {0}, last = v;
    ein__ex read = {0};
    ein__attention a, with;
    if (!ein__match_weights(ctx, v, map, soft, &a)) return;
    if (!soft && ein__match_weights(ctx, v, map, true, &with)) return;
    if (!z->root[v.i]) map = ein__sole_reader(ctx, z->uses, &z->readers, v, &read);
    bool copy = map.i && ein__copy_of(ctx, map) && !ein__is_narrowing(ctx, map);
    if (map.i && !ctx->value[map.i].weight_only && !copy &&
        ein__match_weights(ctx, v, map, soft, &with) && ein__attention_closed(z, &with, map)) {
        a = with;
        last = map;
    } else {
        map = (ein__val){0};
    }
    if (!ein__attention_closed(z, &a, last)) return;
    int64_t maps, ps = ein__attention_with_loads(z, &a, ein__bytes_of(ctx, last), &maps);
    // What types were given for is settled: the values inside are f32.
    bool settled = ctx->typed && ein__is_kept(ctx, v);
    int64_t apart = ein__cost_sum(ein__attention_apart(z, &a, map, read), maps);
    if (!settled && !ein__attention_pays(&a, ps, apart)) return;
    for (int k = 0; k < a.n; k++) z->home[a.inner[k].i] = last;
    for (int k = 0; k < a.nload; k++) z->home[a.load[k].i] = last;
    z->kind[last.i] = EIN__K_ATTENTION;
}

// Attentions as one kernel: those of softmax first, whose products may make others with what is in
// front of them or behind.
static void ein__select_attention(ein__selector *z) {
    for (int soft = 1; soft >= 0 && z->ctx->online; soft--)
        for (ptrdiff_t i = 0; i < arrlen(z->order); i++) ein__select_attended(z, z->order[i], soft);
}

// Whether the `n` reductions of `list` and map `m` take no longer as one kernel, a block or less
// for each row, than one after the other: few long rows leave a machine idle that shares the terms
// of each reduction between blocks.
static bool ein__rows_together(const ein__selector *z, ein__val m, const ein__val *list, int n) {
    ein_ctx *ctx = z->ctx;
    int64_t out[EIN__MAX_RANK], map = ein__kernel_cost(ctx, m), apart = map;
    const ein__scope *s = ein__scope_of(ctx, m);
    ein__kernel row = {.kind = EIN__K_ROW, .size = ein__element_size(ctx, m), .out = out};
    ein__dense_result(s, out);
    for (int k = 0; k < n; k++) {
        const ein__scope *r = row.s[row.n] = ein__scope_of(ctx, list[k]);
        row.inner[row.n++] = list[k];
        int64_t ps = ein__cost_scope(ctx, EIN__K_REDUCE, r, (ein__val){0}, (ein__ex){0});
        apart = ein__cost_sum(apart, ps);
    }
    row.s[row.n++] = s;
    // In a row that does not fit a block's registers each reduction is a pass over memory.
    if (z->pairs && n == 2 && ein__terms_of(row.s[0]) > EIN__ROW_LENGTH) {
        int64_t pair = ein__cost_sum(ein__cost_pair(ctx, list[0], list[1]), map);
        apart = ein__least(apart, pair);
    }
    return ein__cost_kernel(ctx, &row) <= apart;
}

// The row operation that is part of the product stored as `v`, or that stores `v` beside it.
static const ein__norm *ein__norm_of(const ein_ctx *ctx, ein__val v, bool beside) {
    const int *at = ctx->norm_at[beside];
    return (ptrdiff_t)v.i < arrlen(at) && at[v.i] ? &ctx->norm[at[v.i] - 1] : NULL;
}

static void ein__add_norm(ein_ctx *ctx, ein__norm norm) {
    const ein__val v[2] = {norm.out, norm.also};
    arrput(ctx->norm, norm);
    for (int beside = 0; beside < 2; beside++) {
        int **at = &ctx->norm_at[beside];
        while (arrlen(*at) < arrlen(ctx->value)) arrput(*at, 0);
        if (v[beside].i) (*at)[v[beside].i] = (int)arrlen(ctx->norm);
    }
}

static void ein__forget_norms(ein_ctx *ctx) {
    arrsetlen(ctx->norm, 0);
    for (int i = 0; i < 2; i++) arrsetlen(ctx->norm_at[i], 0);
}

static void ein__select_norms(ein__selector *z) {
    for (ptrdiff_t i = 0; i < arrlen(z->ctx->norm); i++) {
        const ein__norm *n = &z->ctx->norm[i];
        const ein__val inner[] = {n->dot, n->load, n->sum, n->square};
        for (int k = 0; k < 4; k++) z->home[inner[k].i] = n->out;
        for (int k = 0; k < n->nrow; k++) z->home[n->row[k].i] = n->out;
        z->kind[n->out.i] = EIN__K_PRODUCT;
        if (n->also.i) z->kind[n->also.i] = EIN__K_PRODUCT;
    }
    z->home[0] = (ein__val){0};
}

// Places of extrema with these themselves, and with the map that alone reads the places. Extrema
// that others need as well are no less theirs: the step has its own.
static void ein__select_places(ein__selector *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->order) && ein__rule_on(ctx, EIN__RULE_FUSE); i++) {
        ein__val v = z->order[i], map = {0};
        ein__ex read;
        ein__extremum p;
        if (ctx->value[v.i].weight_only || !ein__place_of(ctx, v, &p)) continue;
        if (!z->root[v.i]) map = ein__sole_reader(ctx, z->uses, &z->readers, v, &read);
        if (map.i && (z->home[map.i].i != map.i || z->kind[map.i] != EIN__K_MAP ||
                      ctx->value[map.i].weight_only || ein__copy_of(ctx, map)))
            map = (ein__val){0};
        ein__val last = map.i ? map : v;
        z->home[v.i] = last;
        z->kind[last.i] = EIN__K_PLACE;
        if (--z->uses[p.best.i] == 0) z->home[p.best.i] = last;
    }
}

// Whether the `n` reductions of `list` and `last` behind them take less as one kernel: apart, a map
// of their results is part of the kernel of one of them.
static bool ein__ended_together(const ein__selector *z, ein__val last, const ein__val *list,
                                int n) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, last);
    bool map = s->reduce == EIN__R_NONE;
    int64_t out[EIN__MAX_RANK], apart = 0;
    ein__kernel row = {.kind = EIN__K_ROW, .size = ein__element_size(ctx, last), .out = out};
    ein__dense_result(s, out);
    for (int k = 0; k < n; k++) {
        const ein__scope *r = row.s[row.n] = ein__scope_of(ctx, list[k]);
        ein__ex read = {0};
        row.inner[row.n++] = list[k];
        bool fused = map && ein__sole_reader(ctx, z->uses, &z->readers, list[k], &read).i;
        ein__val with = fused ? last : (ein__val){0};
        map &= !fused;
        apart = ein__cost_sum(apart, ein__cost_scope(ctx, EIN__K_REDUCE, r, with, read));
    }
    if (map) apart = ein__cost_sum(apart, ein__kernel_cost(ctx, last));
    if (s->reduce != EIN__R_NONE)
        apart = ein__cost_sum(apart,
                              ein__cost_scope(ctx, EIN__K_REDUCE, s, (ein__val){0}, (ein__ex){0}));
    row.s[row.n++] = s;
    return ein__cost_kernel(ctx, &row) < apart;
}

// Reductions along the same rows whose last one, or a map of their results, is what is wanted of a
// row, as one kernel.
static void ein__select_ended(ein__selector *z) {
    ein_ctx *ctx = z->ctx;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->unended) return;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i], list[EIN__MAX_ROW_VALS], map = {0};
        const ein__scope *s = ein__scope_of(ctx, v);
        ein__ex read;
        if (!s || ein__is_chosen(z, v) || ctx->value[v.i].weight_only || ein__copy_of(ctx, v))
            continue;
        int n = ein__ended_members(z, v, list);
        if (n && s->reduce != EIN__R_NONE && !z->root[v.i])
            map = ein__sole_reader(ctx, z->uses, &z->readers, v, &read);
        // With what comes behind it, if that can be.
        if (map.i && !ein__is_chosen(z, map) && !ein__copy_of(ctx, map)) {
            ein__val more[EIN__MAX_ROW_VALS];
            if (ein__ended_members(z, map, more)) continue;
        }
        if (!n || !ein__ended_together(z, v, list, n)) continue;
        for (int k = 0; k < n; k++) z->home[list[k].i] = v;
        z->kind[v.i] = EIN__K_ROW;
        ctx->ends = true;
    }
}

static void ein__select_rows(ein__selector *z) {
    ein_ctx *ctx = z->ctx;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE)) return;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val m = z->order[i], list[EIN__MAX_ROW_VALS];
        if (z->home[m.i].i != m.i || z->kind[m.i] != EIN__K_MAP) continue;
        if (!ein__is_map(ctx, m) || ctx->value[m.i].weight_only || ein__copy_of(ctx, m)) continue;
        int n = ein__row_members(z, m, list);
        if (n && !ein__rows_together(z, m, list, n)) continue;
        for (int k = 0; k < n; k++) z->home[list[k].i] = m;
        if (n) z->kind[m.i] = EIN__K_ROW;
    }
}

// Whether contraction `v` of halves is stored as f32.
static bool ein__widens(ein_ctx *ctx, ein__val v) {
    const ein__expr *read[2];
    double alpha;
    bool typed = ctx->typed || ctx->desc.math != EIN_MATH_FP16;
    return ctx->value[v.i].dtype == EIN__F32 && typed &&
           ein__two_factors(ctx, ein__scope_of(ctx, v), read, &alpha) &&
           ctx->value[read[0]->val].dtype == EIN__F16;
}

// How contraction `v` of halves with an f32 result is computed: by no convolution.
static ein__kind ein__choose_wide(ein__selector *z, ein__val v, ein__val m, ein__ex read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__kind kind = ein__kernel_kind(ctx, s);
    int64_t loops = ein__cost_scope(ctx, kind, s, m, read), gemm_ps;
    int64_t own = ein__cost_scope(ctx, EIN__K_PRODUCT, s, m, read);
    ein__gemm g;
    bool found = ctx->desc.libs != EIN_LIBS_NONE &&
                 ein__best_gemm(ctx, s, z->free && !z->root[v.i], &g, &gemm_ps);
    if (found && m.i) gemm_ps = ein__cost_sum(gemm_ps, ein__kernel_cost(ctx, m));
    if (own < loops) kind = EIN__K_PRODUCT;
    own = ein__beside_call(own, ein__is_scope_measured(ctx, EIN__K_PRODUCT, s, m, read));
    if (found && gemm_ps < ein__least(loops, own)) kind = EIN__K_GEMM;
    return kind;
}

static ein__kind ein__choose_product(ein__selector *z, ein__val v, ein__val m, ein__ex read) {
    const ein__scope *s = ein__scope_of(z->ctx, v);
    int64_t ps, gemm_ps;
    ein__gemm g;
    if ((ptrdiff_t)v.i < arrlen(z->ctx->fallen) && z->ctx->fallen[v.i])
        return ein__choose_own(z->ctx, s, m, read, NULL, &ps, &gemm_ps);
    if (ein__widens(z->ctx, v) && !(m.i && ein__conv_fuses(z->ctx, m, read)))
        return ein__choose_wide(z, v, m, read);
    ein__kind kind = ein__choose(z->ctx, s, m, read, false, &ps);
    if (!z->free || z->root[v.i] || kind == EIN__K_GEMM || !ein__rule_on(z->ctx, EIN__RULE_MATCH) ||
        z->ctx->desc.libs == EIN_LIBS_NONE)
        return kind;
    if (!ein__best_gemm(z->ctx, s, true, &g, &gemm_ps) || gemm_ps >= ps) return kind;
    ein__kind other = ein__choose(z->ctx, s, m, read, true, &ps);
    z->reordered += other != kind;
    return other;
}

static bool ein__is_call(ein__kind k) {
    return k == EIN__K_CONV || k == EIN__K_CONV_DATA || k == EIN__K_GEMM;
}

// Whether the library call chosen for `v` computes map `m` as well.
static bool ein__call_fuses(const ein__selector *z, ein__val v, ein__val m, ein__ex read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    int64_t ps;
    bool fused;
    if (z->kind[v.i] == EIN__K_GEMM)
        return ein__gemm_and_map(ctx, s, m, read, z->free && !z->root[v.i], &ps, &fused) && fused;
    return ein__conv_fuses(ctx, m, read);
}

// Whether copy `p` is a step whatever layouts are chosen: what it copies has its place, and is no
// window there, or the copy is in no order of what it copies.
static bool ein__is_step(ein_ctx *ctx, ein__val p) {
    const ein__expr *read = ein__copy_of(ctx, p);
    const ein__value *from = &ctx->value[read->val];
    int64_t stride[EIN__MAX_RANK];
    ein__ix map[EIN__MAX_ITERS];
    ein__factor f;
    ein__dense_strides(&from->shape, stride);
    if (ein__address(ctx, read, stride, &f)) return false;
    return from->kind != EIN__V_SCOPE ||
           !ein__invert_read(ctx, read, ein__scope_of(ctx, p), from->shape.d, map);
}

// Whether nothing but product `v` needs map `p`, and its load may compute it.
static bool ein__loads(const ein__selector *z, ein__val v, ein__val p, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    return z->uses[p.i] == 1 && z->home[p.i].i == p.i && z->kind[p.i] == EIN__K_MAP &&
           !z->root[p.i] && ein__is_map(ctx, p) && !ctx->value[p.i].weight_only &&
           (!ein__copy_of(ctx, p) || ein__is_step(ctx, p)) && !ein__joins(ctx, p) &&
           !ein__keeps_fp32(ctx, v) && ein__load_of(ctx, read, p).i;
}

// Maps in front of product `v` that are cheaper as part of its loads, with map `m` behind it: what
// `v` costs with them as calls and kernels of their own, against a kernel of ours that loads them.
static ein__prologue ein__choose_loads(const ein__selector *z, ein__val v, ein__val m,
                                       ein__ex read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *factor[2];
    double alpha;
    ein__prologue all = {0}, best = {0};
    int64_t least;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->unloaded ||
        !ein__two_factors(ctx, s, factor, &alpha))
        return best;
    ein__tiled tiled;
    int64_t out[EIN__MAX_RANK];
    ein__dense_result(s, out);
    if (factor[0]->val == factor[1]->val || !ein__match_tiles(ctx, s, out, &tiled)) return best;
    for (int k = 0; k < 2; k++) {
        ein__val p = {factor[k]->val};
        if (ein__loads(z, v, p, factor[k])) all.v[all.n++] = p;
    }
    if (!all.n) return best;
    bool call = ein__is_call(ein__choose(ctx, s, m, read, z->free && !z->root[v.i], &least));
    for (int k = 0; k < all.n; k++) least = ein__cost_sum(least, ein__kernel_cost(ctx, all.v[k]));
    for (int set = 1; set < 1 << all.n; set++) {
        ein__prologue some = {0};
        int64_t rest = 0;
        for (int k = 0; k < all.n; k++) {
            if (set >> k & 1) some.v[some.n++] = all.v[k];
            else rest = ein__kernel_cost(ctx, all.v[k]);
        }
        bool known;
        int64_t ps = ein__cost_loading(ctx, s, m, read, &some, &known);
        ps = ein__cost_sum(call ? ein__beside_call(ps, known) : ps, rest);
        if (ps >= least) continue;
        least = ps;
        best = some;
    }
    return best;
}

// How reduction `v` is computed that is no product, with map `m` behind it: by loops, or by a tile
// where its terms are functions of rows and columns.
static ein__kind ein__choose_terms(ein_ctx *ctx, ein__val v, ein__val m, ein__ex read) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__kind kind = ein__kernel_kind(ctx, s);
    int64_t out[EIN__MAX_RANK];
    ein__tiled p;
    if (ctx->value[v.i].dtype > EIN__BF16 || ctx->value[v.i].weight_only) return kind;
    ein__dense_result(s, out);
    if (!ein__match_cross(ctx, &s, 1, out, &p)) return kind;
    int64_t tiles = ein__cost_scope(ctx, EIN__K_PRODUCT, s, m, read);
    return tiles < ein__cost_scope(ctx, kind, s, m, read) ? EIN__K_PRODUCT : kind;
}

// Chooses how reduction `v` is computed, and whether a map behind it and maps in front of it are
// part of its kernel.
static void ein__select_reduction(ein__selector *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ex read = {0};
    ein__val m = {0};
    if (!z->root[v.i]) m = ein__sole_reader(ctx, z->uses, &z->readers, v, &read);
    // A map that is part of another kernel stays there.
    if (m.i &&
        (z->home[m.i].i != m.i || z->kind[m.i] == EIN__K_ROW || z->kind[m.i] == EIN__K_ATTENTION ||
         z->kind[m.i] == EIN__K_PLACE || ein__norm_of(ctx, m, false) ||
         ein__norm_of(ctx, m, true) || ctx->value[m.i].weight_only != ctx->value[v.i].weight_only ||
         (ein__copy_of(ctx, m) && !ein__is_narrowing(ctx, m))))
        m = (ein__val){0};
    ctx->strict = ein__keeps_fp32(ctx, v);
    if (!ein__is_contraction(ctx, s) || ctx->value[v.i].weight_only)
        z->kind[v.i] = ein__choose_terms(ctx, v, m, read);
    else z->kind[v.i] = ein__choose_product(z, v, m, read);
    ein__prologue front = {0};
    if (!ctx->value[v.i].weight_only) front = ein__choose_loads(z, v, m, read);
    ctx->strict = false;
    if (front.n) z->kind[v.i] = EIN__K_PRODUCT;
    bool fuse = m.i && (z->kind[v.i] == EIN__K_BAND || z->kind[v.i] == EIN__K_REDUCE ||
                        z->kind[v.i] == EIN__K_PRODUCT);
    if (m.i && z->kind[v.i] == EIN__K_BASIS) fuse = ctx->value[m.i].dtype == EIN__F32;
    if (m.i && ein__is_call(z->kind[v.i])) fuse = ein__call_fuses(z, v, m, read);
    // A map fuses with one reduction only.
    fuse = fuse && z->kind[m.i] == EIN__K_MAP;
    for (int k = 0; k < front.n; k++) z->home[front.v[k].i] = fuse ? m : v;
    if (!fuse) return;
    z->home[v.i] = m;
    z->kind[m.i] = z->kind[v.i];
}

// See joint.c.
static bool ein__select_joint(ein__selector *z, ein__val v);
// See addend.c.
static bool ein__select_summands(ein__selector *z, ptrdiff_t at);

static void ein__select_reductions(ein__selector *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (!s || s->reduce == EIN__R_NONE || z->home[v.i].i != v.i) continue;
        if (z->kind[v.i] == EIN__K_ATTENTION || z->kind[v.i] == EIN__K_PLACE ||
            z->kind[v.i] == EIN__K_ROW)
            continue;
        if (!ein__select_joint(z, v) && !ein__select_summands(z, i)) ein__select_reduction(z, v);
    }
}

static void ein__select_begin(ein__selector *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t n = arrlen(ctx->value);
    z->order = ein__live(ctx, root, nroot);
    z->uses = ein__count_uses(ctx, z->order, root, nroot);
    z->readers = ein__find_readers(ctx, z->order);
    arrsetlen(z->home, n);
    arrsetlen(z->kind, n);
    arrsetlen(z->root, n);
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        z->home[v.i] = v;
        z->kind[v.i] = EIN__K_MAP;
        z->root[v.i] = false;
    }
    for (int k = 0; k < nroot; k++) z->root[root[k].i] = true;
    ein__mark_unrounded(ctx, z->order, root, nroot);
    ein__select_norms(z);
    ein__select_attention(z);
}

static void ein__select_members(ein__selector *z) {
    ptrdiff_t n = arrlen(z->home);
    arrsetlen(z->first, n);
    arrsetlen(z->next, n);
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) z->first[z->order[i].i] = (ein__val){0};
    for (ptrdiff_t i = arrlen(z->order); i-- > 0;) {
        ein__val v = z->order[i], *first = &z->first[z->home[v.i].i];
        z->next[v.i] = *first;
        *first = v;
    }
}

EIN__FN void ein__select(ein__selector *z, const ein__val *root, int nroot) {
    ein__select_begin(z, root, nroot);
    ein__select_places(z);
    ein__select_rows(z);
    ein__select_ended(z);
    ein__select_reductions(z);
    ein__select_members(z);
}

EIN__FN void ein__select_free(ein__selector *z) {
    arrfree(z->order);
    arrfree(z->uses);
    ein__readers_free(&z->readers);
    arrfree(z->home);
    arrfree(z->first);
    arrfree(z->next);
    arrfree(z->kind);
    arrfree(z->root);
    arrsetlen(z->ctx->unrounded, 0);
}

// Marks in ctx->kept what attentions of the program under `root` are made of. Gives whether there
// is one.
EIN__FN bool ein__keep_attentions(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__selector z = {.ctx = ctx, .free = true};
    bool any = false;
    arrsetlen(ctx->kept, 0);
    if (!ctx->online) return false;
    ein__select_begin(&z, root, nroot);
    arrsetlen(ctx->kept, arrlen(z.kind));
    memset(ctx->kept, 0, (size_t)arrlen(ctx->kept) * sizeof *ctx->kept);
    for (ptrdiff_t i = 0; i < arrlen(z.order); i++) {
        uint32_t v = z.order[i].i;
        ctx->kept[v] = z.kind[z.home[v].i] == EIN__K_ATTENTION;
        any |= ctx->kept[v];
    }
    ein__select_free(&z);
    return any;
}
