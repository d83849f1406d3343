// Rewrites that give row statistics and what lies around library calls the form that a kernel or a
// call needs: maps reordered to run along what they read, copies where places are given.

// A map value of type `type` with `n` dimensions; gives it, or none.
static ein__val ein__new_map(ein__pass *z, const char *name, ein__dtype type, int n,
                             const int64_t *extent, ein__ex body) {
    ein__scope s = {.reduce = EIN__R_NONE, .nt = (uint32_t)n, .body = body};
    memcpy(s.n, extent, (size_t)n * sizeof *extent);
    return ein__pass_value(z, name, z->self, type, &s);
}

static ein__val ein__with_product(ein__pass *z, ein__val v, ein__ex x, ein__ex w) {
    if (!x.i || !w.i) return (ein__val){0};
    return ein__with_body(z, v, ein__ex_binary(z->ctx, EIN__MUL, x, w));
}

// Rewrites the program under `root`; `*changed` when that made another one of it. Maps that have
// one reader left are then computed there.
static bool ein__rewrite_program(ein_ctx *ctx, ein__val *root, int nroot,
                                 ein__val (*rewrite)(ein__pass *, ein__val), void *user,
                                 bool *changed) {
    size_t bytes = (size_t)nroot * sizeof *root;
    ein__val *before = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    memcpy(before, root, bytes);
    if (!ein__run_pass_for(ctx, root, nroot, rewrite, user)) return false;
    *changed = memcmp(before, root, bytes) != 0;
    return !*changed || ein__run_pass(ctx, root, nroot, ein__rebuild_inline);
}

// ------------------------------------------------------------------------------------ maps

enum { EIN__FLAT_DEPTH = 4 };  // of statistics made of statistics

// Map `v` as a copy of one over another box, of body `body`, which it reads at `back`; layouts make
// the copy a view.
static ein__val ein__over_box(ein__pass *z, ein__val v, const char *suffix, int n,
                              const int64_t *extent, ein__ex body, const ein__ix *back) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    z->self = v;
    const char *name = ein__namef(ctx, "%s.%s", old.name, suffix);
    ein__val w = ein__new_map(z, name, old.dtype, n, extent, body);
    if (!w.i) return w;
    return ein__new_map(z, old.name, old.dtype, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, w, 0, back, n));
}

// Rewrites map `v` so that its traversal order is `slot[]`, and gives the copy that puts the
// dimensions back.
static ein__val ein__reorder_map(ein__pass *z, ein__val v, const int *slot) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix map[EIN__MAX_RANK], back[EIN__MAX_RANK];
    int64_t extent[EIN__MAX_RANK];
    for (uint32_t k = 0; k < s->nt; k++) {
        extent[k] = s->n[slot[k]];
        map[slot[k]] = ein__ix_iter(ctx, k, extent[k]);
        back[k] = ein__ix_iter(ctx, (uint32_t)slot[k], extent[k]);
    }
    return ein__over_box(z, v, "rows", (int)s->nt, extent,
                         ein__ex_subst(ctx, s->body, map, (int)s->nt), back);
}

// Map `v` over the box of the reduction that `read` reads, when the two differ by digits or order
// only; `v` becomes a copy of it.
static ein__val ein__follow_reduction(ein__pass *z, ein__val v, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v), *p = ein__scope_of(ctx, (ein__val){read->val});
    ein__ix map[EIN__MAX_ITERS];
    if (!ein__invert_read(ctx, read, s, p->n, map)) return v;
    return ein__over_box(z, v, "split", (int)p->nt, p->n,
                         ein__ex_subst(ctx, s->body, map, (int)s->nt), read->ix);
}

// Map `v` over the box of row statistic `p`, its rows and what it runs over, where the two differ
// by dimensions of one element alone; `v` becomes a copy of it.
static ein__val ein__follow_rows(ein__pass *z, ein__val v, const ein__scope *p) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_ITERS], zero = ein__ix_const(ctx, 0);
    uint32_t k = 0, n = p->nt + p->ns;
    bool same = s->nt == n;
    for (uint32_t i = 0; i < s->nt; i++) {
        same = same && s->n[i] == p->n[i];
        map[i] = zero;
        if (s->n[i] == 1) continue;
        while (k < n && p->n[k] == 1) back[k++] = zero;
        if (k == n || p->n[k] != s->n[i]) return v;
        map[i] = ein__ix_iter(ctx, k, s->n[i]);
        back[k++] = ein__ix_iter(ctx, i, s->n[i]);
    }
    while (k < n && p->n[k] == 1) back[k++] = zero;
    if (same || k < n || n > EIN__MAX_RANK) return v;
    return ein__over_box(z, v, "rows", (int)n, p->n, ein__ex_subst(ctx, s->body, map, (int)s->nt),
                         back);
}

// The digit `flat / step % size` of the number that counts a box's elements, the last of its `n`
// dimensions first; without what changes nothing, unless `all` of the number is to be told.
static ein__ix ein__digit_of_box(ein_ctx *ctx, const int64_t *extent, uint32_t n, int64_t step,
                                 int64_t size, bool all) {
    ein__ix ix = ein__ix_const(ctx, 0);
    int64_t stride = 1, unit = 1;
    for (uint32_t i = n; i-- > 0 && !all; stride *= extent[i])
        if (step % stride == 0) unit = stride;
    stride = 1;
    for (uint32_t i = n; i-- > 0; stride *= extent[i]) {
        ein__ix at = ein__ix_iter(ctx, i, extent[i]);
        if (stride >= unit) ix = ein__ix_add(ctx, ix, ein__ix_scale(ctx, at, stride / unit));
    }
    return ein__ix_mod(ctx, ein__ix_floordiv(ctx, ix, step / unit), size);
}

// The place in a box of `extent` of what a map's iterators count, and whether `read` reads a value
// of its first dimensions there.
static bool ein__place_in_box(ein_ctx *ctx, const ein__scope *map, const ein__expr *read,
                              const int64_t *extent, uint32_t n, bool all, ein__ix *at) {
    int64_t step = 1;
    bool same = true;
    for (uint32_t k = n; k-- > 0; step *= extent[k]) {
        at[k] = ein__digit_of_box(ctx, map->n, map->nt, step, extent[k], all);
        same &= k >= read->nix || read->ix[k].i == at[k].i;
    }
    return same;
}

// Map `v` over the box of row statistic `p`, its rows and what it runs over, where the two count
// the same elements by other digits and the map reads the statistic of its own row, as groups of
// channels have it; `v` becomes a copy of it.
static ein__val ein__follow_groups(ein__pass *z, ein__val v, const ein__expr *read,
                                   const ein__scope *p) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_ITERS];
    uint32_t n = p->nt + p->ns;
    int64_t step = 1;
    if (ein__extent_of(s, ~0u) != ein__extent_of(p, ~0u) || n > EIN__MAX_RANK) return v;
    if (!ein__place_in_box(ctx, s, read, p->n, n, true, back) &&
        !ein__place_in_box(ctx, s, read, p->n, n, false, back))
        return v;
    for (uint32_t i = s->nt; i-- > 0; step *= s->n[i])
        map[i] = ein__digit_of_box(ctx, p->n, n, step, s->n[i], false);
    return ein__over_box(z, v, "rows", (int)n, p->n, ein__ex_subst(ctx, s->body, map, (int)s->nt),
                         back);
}

static bool ein__reads_in_place(ein_ctx *ctx, const ein__expr *read, const ein__scope *reader) {
    if (read->nix != reader->nt) return false;
    for (uint32_t k = 0; k < read->nix; k++)
        if (read->ix[k].i != ein__ix_iter(ctx, k, reader->n[k]).i ||
            ctx->value[read->val].shape.d[k] != reader->n[k])
            return false;
    return true;
}

// Traversal slots at which `read` reads a row statistic: bare, distinct and fewer than the reader
// has. Dimensions of extent 1 have no iterator and count as rows.
static bool ein__row_slots(ein_ctx *ctx, const ein__expr *read, const ein__scope *reader,
                           uint32_t *mask) {
    *mask = 0;
    for (uint32_t k = 0; k < reader->nt; k++)
        if (reader->n[k] == 1) *mask |= 1u << k;
    for (uint32_t k = 0; k < read->nix; k++) {
        uint32_t slot;
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if (f->n == 0) continue;
        if (!ein__ix_is_iter(ctx, read->ix[k], &slot) || (*mask >> slot & 1)) return false;
        if (ctx->value[read->val].shape.d[k] != reader->n[slot]) return false;
        *mask |= 1u << slot;
    }
    return *mask != (1u << reader->nt) - 1;
}

// Traversal slots of reduction `s` that only keep the place of a dimension it sums up: of one
// element, where an operand of its rank has iterators of the sum.
static uint32_t ein__kept_dims(ein_ctx *ctx, const ein__scope *s) {
    uint32_t sums = ~((1u << s->nt) - 1), found = 0;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < s->nt && r->nix == s->nt; k++)
            if (s->n[k] == 1 && (ein__ix_uses(ctx, r->ix[k]) & sums)) found |= 1u << k;
    }
    return found;
}

// Whether all that reads `old` has far more elements, so that nothing behind it is a map of its own
// size, which its kernel would compute.
static bool ein__is_statistic(const ein__pass *z, ein__val old) {
    ein_ctx *ctx = z->ctx;
    int64_t its = ein__elements(&ctx->value[old.i].shape);
    const int *first = &z->readers.first[old.i];
    bool large = first[1] - first[0] == z->uses[old.i];
    for (int i = first[0]; i < first[1] && large; i++)
        large =
            ein__extent_of(ein__scope_of(ctx, z->readers.all[i]), ~0u) / EIN__SMALL_SHARE >= its;
    return large;
}

// Statistic `v` as a copy of one with another box of rows, `t` of shape `shape`, which it reads at
// `back`.
static ein__val ein__over_rows(ein__pass *z, ein__val v, const ein__scope *t,
                               const ein__shape *shape, const ein__ix *back) {
    ein_ctx *ctx = z->ctx;
    const ein__value was = ctx->value[v.i];
    ein__sc sc = t->body.i ? ein__sc_make(ctx, t) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    ein__val w =
        ein__val_new(ctx, was.name, EIN__V_SCOPE, was.tensor, sc, shape, was.dtype, was.node);
    ctx->value[w.i].why = was.why;
    z->self = v;
    return ein__new_map(z, was.name, was.dtype, was.shape.rank, was.shape.d,
                        ein__ex_read(ctx, w, 0, back, (int)t->nt));
}

// Statistic `v`, which was `old`, without the dimensions that it keeps: as rows are counted. A copy
// puts them back, which its readers see through.
static ein__val ein__drop_kept_dims(ein__pass *z, ein__val v, ein__val old) {
    ein_ctx *ctx = z->ctx;
    const ein__value was = ctx->value[v.i];
    const ein__scope *s = ein__scope_of(ctx, v);
    uint32_t kept = ein__kept_dims(ctx, s);
    ein__scope t = {.reduce = s->reduce, .ns = s->ns};
    ein__shape shape = {.rank = 0};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    if (!kept || was.weight_only || !ein__is_statistic(z, old)) return v;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        uint32_t at = t.nt + (i < s->nt ? 0 : i - s->nt);
        map[i] = kept >> i & 1 ? ein__ix_const(ctx, 0) : ein__ix_iter(ctx, at, s->n[i]);
        if (kept >> i & 1) continue;
        if (i < s->nt) back[t.nt++] = ein__ix_iter(ctx, i, s->n[i]);
        if (i < s->nt) shape.d[shape.rank++] = s->n[i];
        t.n[at] = s->n[i];
    }
    t.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
    return ein__over_rows(z, v, &t, &shape, back);
}

// Whether `e`, a read in scope `s`, goes through all of a value of `n` elements by one iterator.
static bool ein__is_flat(ein_ctx *ctx, const ein__expr *e, const ein__scope *s, int64_t n) {
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    int slots = 0;
    bool whole = false;
    ein__dense_strides(&ctx->value[e->val].shape, stride);
    if (!ein__address(ctx, e, stride, &f) || f.offset) return false;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!f.coef[i] || s->n[i] == 1) continue;
        slots++;
        whole = f.coef[i] == 1 && s->n[i] == n;
    }
    return slots == 1 && whole;
}

// Whether all that reads statistic `old` counts its rows by one iterator, as maps do that were
// flattened, but for statistics of the same rows of which this is true as well.
static bool ein__is_flattened(const ein__pass *z, ein__val old, int depth) {
    ein_ctx *ctx = z->ctx;
    const ein__shape shape = ctx->value[old.i].shape;
    int64_t n = ein__elements(&shape);
    const int *first = &z->readers.first[old.i];
    int readers = first[1] - first[0], wide = 0;
    for (int k = 0; k < shape.rank; k++) wide += shape.d[k] > 1;
    bool flat = depth < EIN__FLAT_DEPTH && wide > 1 && readers && readers == z->uses[old.i];
    for (int i = first[0]; i < first[1] && flat; i++) {
        const ein__scope *s = ein__scope_of(ctx, z->readers.all[i]);
        const ein__ex *reads = ein__ex_reads(ctx, s->body);
        bool rows = false;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            const ein__expr *e = ein__ex_get(ctx, reads[k]);
            if (e->val != old.i) continue;
            bool same = s->reduce != EIN__R_NONE && ein__reads_in_place(ctx, e, s);
            flat = flat && (same || (s->reduce == EIN__R_NONE && ein__is_flat(ctx, e, s, n)));
            rows |= same;
        }
        if (rows) flat = flat && ein__is_flattened(z, z->readers.all[i], depth + 1);
    }
    return flat;
}

// Statistic `v` with its rows counted by one iterator; a copy takes them apart again, which readers
// see through.
static ein__val ein__flatten_rows(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__value was = ctx->value[v.i];
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__scope t = {.reduce = s->reduce, .nt = 1, .ns = s->ns};
    ein__ix map[EIN__MAX_ITERS], back = ein__ix_const(ctx, 0);
    int64_t below = 1, rows = ein__elements(&was.shape);
    ein__shape shape = {.rank = 1, .d = {rows}};
    t.n[0] = rows;
    for (uint32_t i = s->nt; i-- > 0; below *= s->n[i]) {
        ein__ix at = ein__ix_floordiv(ctx, ein__ix_iter(ctx, 0, rows), below);
        map[i] = ein__ix_mod(ctx, at, s->n[i]);
        back = ein__ix_add(ctx, back, ein__ix_scale(ctx, ein__ix_iter(ctx, i, s->n[i]), below));
    }
    for (uint32_t i = 0; i < s->ns; i++) {
        t.n[1 + i] = s->n[s->nt + i];
        map[s->nt + i] = ein__ix_iter(ctx, 1 + i, t.n[1 + i]);
    }
    t.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
    return ein__over_rows(z, v, &t, &shape, &back);
}

// Whether one of a map's `reads` is of a reduction that nothing else reads, where it stands: the
// map ends the kernel of that one as it is.
static bool ein__ends_reduction(const ein__pass *z, const ein__ex *reads, const ein__scope *map) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        const ein__scope *p = ein__scope_of(ctx, (ein__val){r->val});
        if (p && p->reduce != EIN__R_NONE && z->uses[r->val] == 1 &&
            ein__reads_in_place(ctx, r, map))
            return true;
    }
    return false;
}

// Gives maps over reductions the traversal that lets one kernel compute both.
static ein__val ein__rebuild_map_order(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val old = v;
    bool kept = ein__is_kept(ctx, v);
    z->keep = true;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (s && s->reduce != EIN__R_NONE && !kept && !ein__is_contraction(ctx, s))
        return !ctx->value[v.i].weight_only && ein__is_flattened(z, old, 0)
                   ? ein__flatten_rows(z, v)
                   : ein__drop_kept_dims(z, v, old);
    if (!s || s->reduce != EIN__R_NONE || s->nt == 0 || kept) return v;
    if (ein__ex_get(ctx, s->body)->op == EIN__X_READ) return v;
    ein__val result = v;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    bool ends = ein__ends_reduction(z, reads, s);
    for (ptrdiff_t i = 0; i < arrlen(reads) && result.i == v.i && !ends; i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        const ein__scope *p = ein__scope_of(ctx, (ein__val){r->val});
        uint32_t rows;
        if (!p || p->reduce == EIN__R_NONE || ein__reads_in_place(ctx, r, s)) continue;
        if (!ein__row_slots(ctx, r, s, &rows)) {
            if (z->uses[r->val] == 1) result = ein__follow_reduction(z, v, r);
            if (result.i == v.i) result = ein__follow_groups(z, v, r, p);
            continue;
        }
        int slot[EIN__MAX_RANK], n = 0;
        bool ordered = true;
        for (int pass = 1; pass >= 0; pass--)
            for (uint32_t k = 0; k < s->nt; k++)
                if ((int)(rows >> k & 1) == pass) {
                    ordered &= n == (int)k;
                    slot[n++] = (int)k;
                }
        result = ordered ? ein__follow_rows(z, v, p) : ein__reorder_map(z, v, slot);
    }
    return result;
}

// Maps over a product that is read reshaped or permuted run along the product, so that a merge of
// products can take the maps behind them along; a copy puts the dimensions back.
static ein__val ein__rebuild_behind(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || !ein__is_map(ctx, v) || ein__copy_of(ctx, v) || ctx->value[v.i].weight_only)
        return v;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__val result = v;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && result.i == v.i; i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        const ein__scope *p = ein__scope_of(ctx, (ein__val){r->val});
        if (p && z->uses[r->val] == 1 && ein__is_contraction(ctx, p) &&
            !ein__reads_in_place(ctx, r, s))
            result = ein__follow_reduction(z, v, r);
    }
    return result;
}

EIN__FN bool ein__prepare_merges(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_behind);
}

// ------------------------------------------------------------------------------------ borders

// The scope that reads `v` where it stands.
static ein__sc ein__identity_scope(ein_ctx *ctx, ein__val v) {
    const ein__shape shape = ctx->value[v.i].shape;
    ein__scope s = {.reduce = EIN__R_NONE, .nt = (uint32_t)shape.rank};
    ein__ix ix[EIN__MAX_RANK];
    for (int i = 0; i < shape.rank; i++) {
        s.n[i] = shape.d[i];
        ix[i] = ein__ix_iter(ctx, (uint32_t)i, s.n[i]);
    }
    s.body = ein__ex_read(ctx, v, 0, ix, shape.rank);
    return s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
}

// A copy of `v` with its type: a view, unless layouts give it an order of its own.
static ein__val ein__identity_copy(ein_ctx *ctx, ein__val v, const char *name) {
    const ein__value old = ctx->value[v.i];
    ein__sc sc = ein__identity_scope(ctx, v);
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
}

// A copy of `v` (with its type) as `type`; weights are converted in create, where what computes
// them stores the other type at once.
static ein__val ein__converted(ein_ctx *ctx, ein__val v, ein__dtype type) {
    const ein__value old = ctx->value[v.i];
    const char *name = ein__namef(ctx, "%s.%s", old.name, type == EIN__F16 ? "half" : "float");
    ein__sc sc = old.scope;
    if (!old.weight_only || old.kind != EIN__V_SCOPE) sc = ein__identity_scope(ctx, v);
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, name, EIN__V_SCOPE, old.tensor, sc, &old.shape, type, old.node);
}

// Whether a library convolution computes contraction `v`, operands in declared order.
static bool ein__is_conv_value(ein_ctx *ctx, ein__val v, ein__conv_form *f) {
    const ein__scope *s = ein__scope_of(ctx, v);
    int64_t out[EIN__MAX_RANK];
    if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) return false;
    ein__dense_result(s, out);
    return ein__find_conv(ctx, s, out, f) && ein__conv_sizes(f);
}

static const char *ein__last_name(ein_ctx *ctx, ein__val v) {
    return ein__namef(ctx, "%s.nhwc", ctx->value[v.i].name);
}

// A convolution's operand that has its place from outside, through a copy that has not.
static ein__ex ein__open_operand(ein__pass *z, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    ein__val v = {read->val};
    if (ctx->value[v.i].kind == EIN__V_SCOPE) return ein__ex_of(ctx, read);
    ein__val copy = ein__identity_copy(ctx, v, ein__last_name(ctx, v));
    if (!copy.i) return (ein__ex){0};
    uint32_t sc = ctx->value[copy.i].scope.i;
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc) arrput(z->by_scope, (ein__val){0});
    if (!z->by_scope[sc].i) z->by_scope[sc] = copy;
    return ein__ex_read(ctx, z->by_scope[sc], 0, read->ix, (int)read->nix);
}

static ein__val ein__rebuild_open(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__conv_form f;
    z->self = v;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || !ein__is_conv_value(ctx, v, &f)) return v;
    return ein__with_product(z, v, ein__open_operand(z, f.x), ein__open_operand(z, f.w));
}

// Whether a convolution call may store root `v`, or reads it. A copy leaves what it reads free.
static bool ein__root_is_bound(ein_ctx *ctx, const ein__val *order, ein__val v) {
    ein__conv_form f;
    const ein__ex *reads = NULL;
    bool bound = ein__is_conv_value(ctx, v, &f);
    if (ein__is_map(ctx, v) && !ein__copy_of(ctx, v))
        reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !bound; i++)
        bound = ein__is_conv_value(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val}, &f);
    for (ptrdiff_t i = 0; i < arrlen(order) && !bound; i++)
        bound = ein__is_conv_value(ctx, order[i], &f) && f.c.x.i == v.i;
    return bound;
}

// Frees the layouts of what convolutions read and store: inputs, weights and outputs, whose places
// are given, get copies between them and the calls. They are views where layouts leave them in
// declared order.
EIN__FN bool ein__open_borders(ein_ctx *ctx, ein__val *root, int nroot) {
    if (!ein__run_pass(ctx, root, nroot, ein__rebuild_open)) return false;
    ein__val *order = ein__live(ctx, root, nroot);
    for (int k = 0; k < nroot && !ctx->status; k++) {
        ein__val inner = root[k];
        if (!ein__root_is_bound(ctx, order, inner)) continue;
        root[k] = ein__identity_copy(ctx, inner, ctx->value[inner.i].name);
        ctx->value[inner.i].name = ein__last_name(ctx, inner);
    }
    arrfree(order);
    return !ctx->status;
}

// The last pass before steps are selected: another one would take copies for superfluous.
EIN__FN bool ein__prepare_maps(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_map_order);
}
