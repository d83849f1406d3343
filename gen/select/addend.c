// Sums of two products as one kernel: where a map adds two products that nothing else reads, as at
// the end of a residual block whose input is projected, or in the gates of a recurrent cell, a tile
// adds up the terms of one product behind those of the other. This saves a launch and a product's
// round trip through memory; decided by cost.

enum { EIN__ADDED = 4 };  // products of a map that are looked at

// How often each of two reads is a term of the sum that `ex` is.
static void ein__count_terms(const ein_ctx *ctx, ein__ex ex, const ein__ex *of, int *n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (int k = 0; k < 2; k++) n[k] += ex.i == of[k].i;
    for (uint32_t i = 0; i < e->nkid && e->op == EIN__X_BINARY && e->fn == EIN__ADD; i++)
        ein__count_terms(ctx, e->kid[i], of, n);
}

// Whether two reads are in `ex` in sums of both alone, once in each; `within`: it is part of one.
static bool ein__has_sum_alone(const ein_ctx *ctx, ein__ex ex, const ein__ex *of, bool within) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    bool adds = e->op == EIN__X_BINARY && e->fn == EIN__ADD, alone = true;
    int n[2] = {0, 0};
    if (ex.i == of[0].i || ex.i == of[1].i) return within;
    if (!e->reads) return true;
    if (adds && !within) ein__count_terms(ctx, ex, of, n);
    within = adds && (within || (n[0] == 1 && n[1] == 1));
    for (uint32_t i = 0; i < e->nkid && alone; i++)
        alone = ein__has_sum_alone(ctx, e->kid[i], of, within);
    return alone;
}

static ein__ex ein__read_without(ein_ctx *ctx, void *addend, ein__ex read) {
    return ein__ex_get(ctx, read)->val == *(const uint32_t *)addend ? ein__ex_const(ctx, 0) : read;
}

// Map `body` of a product and one that is added to it, as a map of the sum of both, which is read
// as the product alone was.
EIN__FN ein__ex ein__without_addend(ein_ctx *ctx, ein__ex body, ein__val addend) {
    return ein__ex_replace_reads(ctx, body, ein__read_without, &addend.i);
}

// A product that map `m` alone reads.
typedef struct ein__summand {
    ein__val v;
    ein__ex read;
} ein__summand;

// What the kernel of two products and map `m` of their sum costs, with maps that its loads compute,
// and whether that is known from a measurement; false: there is none.
static bool ein__cost_added(ein_ctx *ctx, ein__val m, const ein__summand *of,
                            const ein__prologue *front, int64_t *ps, bool *known) {
    const ein__scope *s[2] = {ein__scope_of(ctx, of[0].v), ein__scope_of(ctx, of[1].v)};
    const ein__ex reads[2] = {of[0].read, of[1].read};
    int first = ein__terms_of(s[0]) < ein__terms_of(s[1]);
    int64_t out[EIN__MAX_RANK];
    ein__tiled p, addend;
    ein__kernel k = {.kind = EIN__K_PRODUCT,
                     .n = 3,
                     .s = {s[first], s[1 - first], ein__scope_of(ctx, m)},
                     .inner = {of[first].v, of[1 - first].v},
                     .addend = true,
                     .fma = ctx->strict,
                     .out = out,
                     .size = ein__element_size(ctx, m)};
    memcpy(k.load, front->v, sizeof k.load);
    ein__dense_result(k.s[2], out);
    if (ein__keeps_fp32(ctx, of[0].v) != ein__keeps_fp32(ctx, of[1].v)) return false;
    if (!ein__has_sum_alone(ctx, k.s[2]->body, reads, false)) return false;
    if (!ein__match_product_kernel(ctx, &k, &p, &addend)) return false;
    *known = ein__kernel_row(ctx, &k) != NULL;
    *ps = ein__cost_kernel(ctx, &k);
    return true;
}

// What product `v` costs by itself, with map `m` behind it (or none); `*call`: as a call.
static int64_t ein__cost_by_itself(const ein__selector *z, ein__val v, ein__val m, ein__ex read,
                                   bool *call) {
    const ein__scope *s = ein__scope_of(z->ctx, v);
    ein__prologue front = ein__choose_loads(z, v, m, read);
    int64_t ps;
    bool known;
    if (front.n) return ein__cost_loading(z->ctx, s, m, read, &front, &known);
    *call |= ein__is_call(ein__choose(z->ctx, s, m, read, z->free, &ps));
    return ps;
}

// Maps that are better as part of the loads of either product. False: they are too many.
static bool ein__choose_both_loads(const ein__selector *z, ein__val m, const ein__summand *of,
                                   ein__prologue *all) {
    *all = (ein__prologue){0};
    for (int k = 0; k < 2; k++) {
        ein__prologue front = ein__choose_loads(z, of[k].v, m, of[k].read);
        if (all->n + front.n > 2) return false;
        for (int i = 0; i < front.n; i++) all->v[all->n++] = front.v[i];
    }
    return true;
}

// Whether two products and map `m` of their sum take less as one kernel, whose loads compute
// `*front`.
static bool ein__adds_up(const ein__selector *z, ein__val m, const ein__summand *of,
                         ein__prologue *front) {
    ein_ctx *ctx = z->ctx;
    int64_t ps = 0, apart = INT64_MAX;
    bool call = false, known = false;
    ctx->strict = ein__keeps_fp32(ctx, of[0].v);
    bool fits =
        ein__choose_both_loads(z, m, of, front) && ein__cost_added(ctx, m, of, front, &ps, &known);
    for (int k = 0; k < 2 && fits; k++) {
        ein__val none = {0}, other = of[1 - k].v;
        int64_t one = ein__cost_by_itself(z, of[k].v, m, of[k].read, &call);
        one = ein__cost_sum(one, ein__cost_by_itself(z, other, none, (ein__ex){0}, &call));
        apart = ein__least(apart, one);
    }
    ctx->strict = false;
    return fits && (call ? ein__beside_call(ps, known) : ps) < apart;
}

// The products that map `m` alone reads and that are not chosen yet.
static int ein__summands(const ein__selector *z, ein__val m, ein__summand *of) {
    ein_ctx *ctx = z->ctx;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, m)->body);
    int n = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads) && n < EIN__ADDED; i++) {
        ein__summand one = {.v = {ein__ex_get(ctx, reads[i])->val}};
        const ein__scope *s = ein__scope_of(ctx, one.v);
        if (!s || !ein__is_contraction(ctx, s) || ein__is_chosen(z, one.v) || z->root[one.v.i] ||
            ctx->value[one.v.i].weight_only)
            continue;
        if (ein__sole_reader(ctx, z->uses, &z->readers, one.v, &one.read).i == m.i) of[n++] = one;
    }
    return n;
}

// Makes two of `n` products and map `m` one kernel, where that is cheaper.
static void ein__select_addend(ein__selector *z, ein__val m, const ein__summand *of, int n) {
    for (int k = 0; k < n * n && !ein__is_chosen(z, m); k++) {
        const ein__summand two[2] = {of[k / n], of[k % n]};
        ein__prologue front;
        if (k / n >= k % n || !ein__adds_up(z, m, two, &front)) continue;
        for (int j = 0; j < 2; j++) z->home[two[j].v.i] = m;
        for (int j = 0; j < front.n; j++) z->home[front.v[j].i] = m;
        z->kind[m.i] = EIN__K_PRODUCT;
    }
}

static bool ein__is_summand(const ein__summand *of, int n, ein__val v) {
    bool found = false;
    for (int k = 0; k < n; k++) found |= of[k].v.i == v.i;
    return found;
}

// Chooses how the products of a map of several are computed, when the last one's turn has come:
// what is in front of them is chosen then. `at`: one of them in the selector's order. False: it is
// none.
static bool ein__select_summands(ein__selector *z, ptrdiff_t at) {
    ein_ctx *ctx = z->ctx;
    ein__val v = z->order[at];
    ein__summand of[EIN__ADDED];
    ein__ex read;
    if (z->root[v.i] || !ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->unadded) return false;
    ein__val m = ein__sole_reader(ctx, z->uses, &z->readers, v, &read);
    if (!m.i || !ein__is_map(ctx, m) || ctx->value[m.i].weight_only) return false;
    int n = ein__summands(z, m, of);
    if (n < 2 || !ein__is_summand(of, n, v)) return false;
    for (ptrdiff_t i = at + 1; i < arrlen(z->order); i++)
        if (ein__is_summand(of, n, z->order[i])) return true;
    ein__select_addend(z, m, of, n);
    for (ptrdiff_t i = 0; i <= at; i++)
        if (ein__is_summand(of, n, z->order[i]) && !ein__is_chosen(z, z->order[i]))
            ein__select_reduction(z, z->order[i]);
    return true;
}

// Whether product `v`, which takes `ps` in parts with map `m` behind that reads it by `read`, is
// better whole as one of two that a kernel adds up.
static bool ein__is_better_added(const ein__pass *z, ein__val v, ein__val m, ein__ex read,
                                 int64_t ps) {
    ein_ctx *ctx = z->ctx;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, m)->body);
    const ein__prologue none = {0};
    bool better = false;
    if (!ein__rule_on(ctx, EIN__RULE_FUSE) || ctx->unadded) return false;
    for (ptrdiff_t i = 0; i < arrlen(reads) && !better; i++) {
        ein__summand two[2] = {{v, read}, {.v = {ein__ex_get(ctx, reads[i])->val}}};
        const ein__scope *s = ein__scope_of(ctx, two[1].v);
        int64_t both;
        bool known;
        if (two[1].v.i == v.i || !s || !ein__is_contraction(ctx, s) ||
            ctx->value[two[1].v.i].weight_only)
            continue;
        if (ein__sole_reader(ctx, z->uses, &z->readers, two[1].v, &two[1].read).i != m.i) continue;
        better =
            ein__cost_added(ctx, m, two, &none, &both, &known) &&
            both < ein__cost_sum(ps, ein__cost_as_is(ctx, two[1].v, (ein__val){0}, two[1].read));
    }
    return better;
}
