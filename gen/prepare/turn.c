// Rule `turn`: a value that only one map reads is computed in the map's own index space, M[x] =
// f(x, V[E(x)]) is f(x, V'[x]) with V'[x] = V[E(x)]. It is applied to
// - products that are read with their dimensions in another order: a product may be stored in any
//   order, and M becomes its epilogue. Behind a copy the order would only be found when layouts are
//   chosen;
// - products along which M cannot run, as where windows of a rolled image are put back: then the
//   loads of the product find its rows;
// - statistics of rows, as in front of a normalization whose result is cut into windows: then they
//   are one kernel with the map. Where E leaves the box of V, as where images are padded to whole
//   windows, V' must come to the padding, 0, by itself, as sums of zeros do.

// Statistics of a map; places that it may have in percent of theirs, where some are padding.
enum { EIN__TURNED = 4, EIN__TURNED_PLACES = 150 };

typedef struct ein__turning {
    ein__pass *z;
    const ein__scope *s;  // the reader
    uint32_t also;        // iterators of it that are dimensions whatever tells the places
    uint32_t beyond;      // dimensions beyond which it reads the statistics, too
    int n;
    ein__val was[EIN__TURNED], from[EIN__TURNED];  // before the pass and in it
} ein__turning;

static ein__ex ein__turn_read(ein_ctx *ctx, void *user, ein__ex ex);

// Whether the iterators of a scope that has `nt` dimensions tell every place of `e`; `*beyond`: the
// dimensions of `of`, which it reads, that it leaves.
static bool ein__places_told(ein_ctx *ctx, const ein__expr *e, uint32_t nt, const ein__scope *of,
                             uint32_t *beyond) {
    *beyond = 0;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        if (f->lo < 0 || f->hi >= of->n[k]) *beyond |= 1u << k;
        if (f->q != 1 || ein__ix_has_gather(ctx, e->ix[k]) || ein__ix_uses(ctx, e->ix[k]) >> nt)
            return false;
    }
    return true;
}

// Whether every place of `e`, which a scope with `nt` iterators reads, is one of `of`.
static bool ein__places_inside(ein_ctx *ctx, const ein__expr *e, uint32_t nt,
                               const ein__scope *of) {
    uint32_t beyond;
    return ein__places_told(ctx, e, nt, of, &beyond) && !beyond;
}

// Iterators of `s` that tell where `e` reads.
static uint32_t ein__place_uses(ein_ctx *ctx, const ein__expr *e) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < e->nix; k++) used |= ein__ix_uses(ctx, e->ix[k]);
    return used;
}

// The read of what `e` reads, computed over the iterators of its reader that tell the place.
static ein__ex ein__turned(const ein__turning *t, const ein__expr *e) {
    ein_ctx *ctx = t->z->ctx;
    const ein__val p = {e->val};
    const ein__scope *s = t->s, *was = ein__scope_of(ctx, p);
    ein__scope made = {.reduce = was->reduce, .ns = was->ns};
    ein__ix map[EIN__MAX_ITERS], own[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    uint32_t used = ein__place_uses(ctx, e) | t->also;
    if (!ein__used_dims(ctx, s, used, &made, own, back) || made.nt + was->ns > EIN__MAX_ITERS)
        return (ein__ex){0};
    for (uint32_t k = 0; k < was->nt; k++)
        map[k] = ein__ix_subst(ctx, e->ix[k], own, (int)(s->nt + s->ns));
    for (uint32_t k = 0; k < was->ns; k++) {
        made.n[made.nt + k] = was->n[was->nt + k];
        map[was->nt + k] = ein__ix_iter(ctx, made.nt + k, was->n[was->nt + k]);
    }
    made.body = ein__ex_subst(ctx, was->body, map, (int)(was->nt + was->ns));
    ein__turning inner = *t;
    inner.s = &made;
    if (made.body.i) made.body = ein__ex_replace_reads(ctx, made.body, ein__turn_read, &inner);
    if (!made.body.i) return made.body;
    const ein__value old = ctx->value[p.i];
    ein__val v = ein__pass_value(t->z, old.name, p, old.dtype, &made);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)made.nt) : (ein__ex){0};
}

static ein__ex ein__turn_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__turning *t = user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    for (int i = 0; i < t->n; i++)
        if (t->from[i].i == e.val) return ein__turned(t, &e);
    return ex;
}

// ------------------------------------------------------------------------------------ products

// Whether `s` is a product whose factors are read by iterators alone: no window's, of which a
// library wants a certain order.
static bool ein__is_plain_product(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *read[2];
    double alpha;
    if (!ein__two_factors(ctx, s, read, &alpha)) return false;
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < read[i]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[i]->ix[k]);
            uint32_t slot;
            if (f->n && !ein__ix_is_iter(ctx, read[i]->ix[k], &slot)) return false;
        }
    return true;
}

// Whether product `s` is of weights and of what nothing else reads: no other product may share
// that, and attentions have rows of their own.
static bool ein__is_lone_product(const ein__pass *z, const ein__scope *s) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read[2];
    double alpha;
    bool lone = false;
    if (!ein__two_factors(ctx, s, read, &alpha)) return false;
    for (int k = 0; k < 2; k++)
        lone |= ctx->value[read[k]->val].weight_only && z->uses[read[1 - k]->val] == 1;
    return lone;
}

// Whether map `m` reads a product of box `p` in another order of its dimensions, `*bare` whether it
// has iterators alone to tell the place.
static bool ein__is_permuted(ein_ctx *ctx, const ein__expr *read, const ein__scope *m,
                             const ein__scope *p, bool *bare) {
    uint32_t used = 0, last = 0;
    bool ordered = true, whole = true;
    *bare = true;
    for (uint32_t k = 0; k < p->nt; k++) {
        uint32_t slot;
        if (p->n[k] == 1 && !ein__ix_get(ctx, read->ix[k])->n) continue;
        if (!ein__ix_is_iter(ctx, read->ix[k], &slot)) return *bare = false;
        whole = whole && !(used >> slot & 1) && m->n[slot] == p->n[k];
        ordered = ordered && slot >= last;
        last = slot;
        used |= 1u << slot;
    }
    return whole && !ordered && ein__extent_of(m, used) == ein__extent_of(m, ~0u);
}

// Whether map `m`, which alone reads product `p` by `read`, wants it computed where it reads it.
static bool ein__wants_product(const ein__pass *z, const ein__expr *read, const ein__scope *m,
                               ein__val p) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, p);
    ein__ix map[EIN__MAX_ITERS];
    bool bare;
    if (!ein__is_plain_product(ctx, s) || !ein__places_inside(ctx, read, m->nt, s)) return false;
    if (m->body.i == ein__ex_of(ctx, read).i) return false;
    if (ein__is_permuted(ctx, read, m, s, &bare)) return true;
    if (bare || !ein__is_lone_product(z, s)) return false;
    int64_t places = ein__extent_of(m, ~0u);
    return places <= ein__elements(&ctx->value[p.i].shape) &&
           ein__extent_of(m, ein__place_uses(ctx, read)) == places &&
           !ein__invert_read(ctx, read, m, s->n, map);
}

// ------------------------------------------------------------------------------------ statistics

// Whether `v` is a statistic of rows, few beside `n` elements.
static bool ein__is_small_statistic(ein_ctx *ctx, ein__val v, int64_t n) {
    const ein__scope *s = ein__scope_of(ctx, v);
    return s && s->reduce != EIN__R_NONE && !ctx->value[v.i].weight_only &&
           ein__elements(&ctx->value[v.i].shape) <= n / EIN__SMALL_SHARE &&
           (!ein__is_contraction(ctx, s) || ein__is_square(ctx, s));
}

typedef struct ein__beyond {
    const ein__scope *of;
    uint32_t slot;
} ein__beyond;

// What is read beyond dimension `slot` of a statistic: its padding, where it ends with it.
static ein__ex ein__beyond_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__beyond *b = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    const int64_t *n = ctx->value[e->val].shape.d;
    uint32_t slot;
    bool ends = false;
    for (uint32_t k = 0; k < e->nix; k++)
        ends |= ein__ix_is_iter(ctx, e->ix[k], &slot) && slot == b->slot && n[k] == b->of->n[slot];
    return ends ? ein__ex_const(ctx, ein__f64_of(e->bits)) : ex;
}

// Whether sum `of`, computed where `e` reads it, is 0 by itself beyond each of the dimensions.
static bool ein__is_nothing_beyond(ein_ctx *ctx, const ein__expr *e, const ein__scope *of,
                                   uint32_t beyond) {
    bool nothing = !beyond || (!e->bits && of->reduce == EIN__R_SUM);
    for (uint32_t k = 0; k < of->nt && nothing; k++) {
        ein__beyond b = {of, k};
        double c;
        if (!(beyond >> k & 1)) continue;
        ein__ex body = ein__ex_replace_reads(ctx, of->body, ein__beyond_read, &b);
        nothing = body.i && ein__ex_is_const(ctx, body, &c) && c == 0;
    }
    return nothing;
}

static bool ein__turns(const ein__turning *t, ein__val was) {
    bool found = false;
    for (int i = 0; i < t->n; i++) found |= t->was[i].i == was.i;
    return found;
}

// Adds the statistics that `by` reads, which was `old`: those of a map, and of their rows others.
// False: one is read elsewhere than at one row for each of the reader's, or they are too many.
// All of them are read beyond the same dimensions, as each other's rows are.
static bool ein__add_statistics(ein__turning *t, ein__val old, int64_t n) {
    ein_ctx *ctx = t->z->ctx;
    const ein__scope *s = ein__scope_of(ctx, old);
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        const ein__val p = {e->val};
        if (!ein__is_small_statistic(ctx, p, n)) continue;
        for (ptrdiff_t k = 0; k < i; k++)
            if (ein__ex_get(ctx, reads[k])->val == e->val) return false;
        const ein__scope *of = ein__scope_of(ctx, p);
        int64_t places = ein__extent_of(s, ein__place_uses(ctx, e));
        uint32_t beyond;
        if (!ein__places_told(ctx, e, s->nt, of, &beyond) ||
            !ein__is_nothing_beyond(ctx, e, of, beyond))
            return false;
        int64_t most = beyond ? EIN__TURNED_PLACES : 100;
        if (places > ein__muldiv(ein__elements(&ctx->value[p.i].shape), most, 100)) return false;
        if (ein__turns(t, p)) continue;
        if (t->n == EIN__TURNED || (t->n && t->beyond != beyond)) return false;
        t->beyond = beyond;
        t->was[t->n] = p;
        t->from[t->n++] = t->z->now[p.i];
    }
    return true;
}

// Whether nothing but map `old` and each other reads the statistics.
static bool ein__turned_alone(const ein__turning *t, ein__val old) {
    const ein__pass *z = t->z;
    bool alone = true;
    for (int i = 0; i < t->n; i++) {
        const int *first = &z->readers.first[t->was[i].i];
        alone = alone && first[1] - first[0] == z->uses[t->was[i].i];
        for (int k = first[0]; k < first[1] && alone; k++)
            alone = z->readers.all[k].i == old.i || ein__turns(t, z->readers.all[k]);
    }
    return alone;
}

// Whether map `m` has rows for one of the statistics that it reads neither in its own dimensions
// nor in theirs, along which it could run.
static bool ein__has_no_rows(const ein__turning *t, const ein__scope *m) {
    ein_ctx *ctx = t->z->ctx;
    ein__ix map[EIN__MAX_ITERS];
    uint32_t rows;
    bool none = false;
    const ein__ex *reads = ein__ex_reads(ctx, m->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !none; i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (!ein__turns(t, (ein__val){e->val}) || ein__row_slots(ctx, e, m, &rows)) continue;
        const ein__scope *p = ein__scope_of(ctx, (ein__val){e->val});
        none = t->n > 1 || !ein__invert_read(ctx, e, m, p->n, map);
    }
    return none;
}

// The statistics that map `old` reads and that are computed where it does, in `t`; none: they are
// where they are.
static void ein__find_turned(ein__turning *t, ein__val old) {
    ein_ctx *ctx = t->z->ctx;
    int64_t n = ein__elements(&ctx->value[old.i].shape);
    bool ok = ein__add_statistics(t, old, n) && t->n && ein__has_no_rows(t, t->s);
    for (int i = 0; i < t->n && ok; i++) ok = ein__add_statistics(t, t->was[i], n);
    if (!ok || !ein__turned_alone(t, old)) t->n = 0;
}

// ------------------------------------------------------------------------------------ the pass

static ein__ex ein__turn_body(const ein__turning *t, ein__ex body) {
    ein_ctx *ctx = t->z->ctx;
    if (!t->n) return body;
    ein__attempt attempt = ein__try(ctx);
    ein__ex made = ein__ex_replace_reads(ctx, body, ein__turn_read, (void *)t);
    return ein__tried(ctx, attempt) && made.i ? made : body;
}

static ein__val ein__rebuild_turned(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *was = ein__scope_of(ctx, v);
    ein__ex body = ein__body_now(z, was);
    const ein__ex *reads = ein__ex_reads(ctx, was->body);
    bool map = was->reduce == EIN__R_NONE && !ctx->value[v.i].weight_only;
    for (ptrdiff_t i = 0; i < arrlen(reads) && map && body.i; i++) {
        const ein__expr *read = ein__ex_get(ctx, reads[i]);
        ein__val p = z->now[read->val];
        const ein__scope *s = ein__scope_of(ctx, p);
        int times = 0;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            times += ein__ex_get(ctx, reads[k])->val == read->val;
        if (!s || times > 1 || z->uses[read->val] != 1 || ctx->value[p.i].weight_only ||
            !ein__wants_product(z, read, was, p))
            continue;
        ein__turning t = {.z = z, .s = was, .n = 1, .was = {{read->val}}, .from = {p}};
        for (uint32_t k = 0; k < was->nt; k++) t.also |= (uint32_t)(was->n[k] == 1) << k;
        body = ein__turn_body(&t, body);
    }
    ein__turning t = {.z = z, .s = was};
    if (map && body.i) ein__find_turned(&t, v);
    if (t.n) body = ein__turn_body(&t, body);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}
