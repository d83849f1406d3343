// Running sums in blocks (Blelloch 1990, "Prefix sums and their applications", section 1.2):
//     V[i] = sum(r in 0:n) [r <= k(i)] F[r],  k = i + c or n - 1 - i + c (sums from the other end)
// is, with places counted as b * B + t,
//     P[b,t] = sum(u in 0:B) [u <= t] F[b*B + u],  Q[b] = sum(a) [a < b] P[a,B-1],
//     V[i] = P[k/B, k%B] + Q[k/B] where 0 <= k, else 0:
// n * B terms instead of n * n. Q is a running sum itself. B is chosen by the estimates.

enum { EIN__PREFIX_BLOCK = 8192 };  // longest block tried

// The box of `s` with the places of its slot `at` counted as `count` blocks of `size`, or as blocks
// alone (size 0), summed over `terms`; map[] has the slots of `s` in it.
static ein__scope ein__prefix_box(ein_ctx *ctx, const ein__scope *s, uint32_t at, int64_t count,
                                  int64_t size, int64_t terms, ein__ix *map) {
    ein__scope t = {.reduce = EIN__R_SUM, .ns = 1};
    for (uint32_t i = 0; i < s->nt; i++) {
        t.n[t.nt] = i == at ? count : s->n[i];
        map[i] = ein__ix_iter(ctx, t.nt, t.n[t.nt]);
        t.nt++;
        if (i == at && size) t.n[t.nt++] = size;
    }
    t.n[t.nt] = terms;
    return t;
}

// Sums of integers are integers.
static ein__val ein__prefix_value(ein__pass *z, const ein__scope *s, const char *part) {
    const ein__value of = z->ctx->value[z->self.i];
    ein__dtype type = of.dtype <= EIN__BF16 ? EIN__F32 : of.dtype;
    ein__val v = ein__pass_value(z, ein__namef(z->ctx, "%s.%s", of.name, part), z->self, type, s);
    if (v.i) z->ctx->value[v.i].why = "running sums in blocks";
    return v;
}

// P for blocks of `size`.
static ein__scope ein__prefix_inside(ein_ctx *ctx, const ein__scope *s, const ein__running *p,
                                     int64_t size) {
    int64_t n = s->n[s->nt], count = ein__ceil(n, size);
    ein__ix map[EIN__MAX_ITERS];
    ein__scope t = ein__prefix_box(ctx, s, p->slot, count, size, size, map);
    ein__ix place = ein__ix_iter(ctx, p->slot + 1, size), term = ein__ix_iter(ctx, t.nt, size);
    ein__ix at = ein__ix_add(ctx, ein__ix_scale(ctx, map[p->slot], size), term);
    map[s->nt] = p->reversed ? ein__ix_addc(ctx, ein__ix_scale(ctx, at, -1), n - 1) : at;
    t.body = ein__ex_subst(ctx, p->terms, map, (int)s->nt + 1);
    if (t.body.i && count * size > n) t.body = ein__ex_when(ctx, at, n, false, t.body);
    if (!t.body.i) return t;
    ein__ix ahead = ein__ix_add(ctx, place, ein__ix_scale(ctx, term, -1));
    t.body = ein__ex_when(ctx, ahead, size, false, t.body);
    return t;
}

// Q, of blocks whose sums are P's last ones.
static ein__scope ein__prefix_before(ein_ctx *ctx, const ein__scope *s, const ein__running *p,
                                     ein__val inside) {
    const ein__shape *of = &ctx->value[inside.i].shape;
    int64_t count = of->d[p->slot], size = of->d[p->slot + 1];
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK];
    ein__scope t = ein__prefix_box(ctx, s, p->slot, count, 0, count, map);
    ein__ix term = ein__ix_iter(ctx, t.nt, count);
    for (uint32_t i = 0; i < t.nt; i++) at[i + (i > p->slot)] = map[i];
    at[p->slot] = term;
    at[p->slot + 1] = ein__ix_const(ctx, size - 1);
    ein__ix behind = ein__ix_add(ctx, map[p->slot], ein__ix_scale(ctx, term, -1));
    t.body = ein__ex_when(ctx, ein__ix_addc(ctx, behind, -1), count, false,
                          ein__ex_read(ctx, inside, 0, at, (int)t.nt + 1));
    return t;
}

// V from P and Q.
static ein__ex ein__prefix_sum(ein_ctx *ctx, const ein__scope *s, const ein__running *p,
                               ein__val inside, ein__val before) {
    int64_t size = ctx->value[inside.i].shape.d[p->slot + 1];
    ein__ix at[EIN__MAX_RANK], block[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt; i++)
        at[i + (i > p->slot)] = block[i] = ein__ix_iter(ctx, i, s->n[i]);
    at[p->slot] = block[p->slot] = ein__ix_floordiv(ctx, p->place, size);
    at[p->slot + 1] = ein__ix_mod(ctx, p->place, size);
    ein__ex sum = ein__ex_binary(ctx, EIN__ADD, ein__ex_read(ctx, inside, 0, at, (int)s->nt + 1),
                                 ein__ex_read(ctx, before, 0, block, (int)s->nt));
    return sum.i ? ein__ex_when(ctx, p->place, s->n[s->nt], false, sum) : sum;
}

// Running sum `v` in blocks of `size`, which are fewer than its terms.
static ein__val ein__rule_prefix(ein__pass *z, ein__val v, const ein__running *p, int64_t size,
                                 ein__val (*of_blocks)(ein__pass *z, ein__val before)) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__scope part = ein__prefix_inside(ctx, &s, p, size);
    z->self = v;
    ein__val inside = ein__prefix_value(z, &part, "inside");
    if (!inside.i) return inside;
    part = ein__prefix_before(ctx, &s, p, inside);
    ein__val before = ein__prefix_value(z, &part, "before");
    if (before.i) before = of_blocks(z, before);
    if (!before.i) return before;
    z->self = v;
    return ein__new_map(z, ctx->value[v.i].name, ctx->value[v.i].dtype, (int)s.nt, s.n,
                        ein__prefix_sum(ctx, &s, p, inside, before));
}

static int64_t ein__prefix_cost(ein_ctx *ctx, const ein__scope *s) {
    return ein__cost_scope(ctx, EIN__K_REDUCE, s, (ein__val){0}, (ein__ex){0});
}

// The blocks that running sum `s` is cheapest in; 0: none. The last map, which readers may compute,
// counts as a kernel of its own.
static int64_t ein__prefix_size(ein_ctx *ctx, const ein__scope *s, const ein__running *p) {
    ein__work w = {.bytes = {ein__times(ein__outputs_of(s), 3 * 4)}};
    int64_t least = ein__prefix_cost(ctx, s), size = 0;
    for (int64_t b = 4; b <= EIN__PREFIX_BLOCK && b < s->n[s->nt]; b *= 2) {
        ein__scope t = ein__prefix_inside(ctx, s, p, b);
        if (!t.body.i) return 0;
        ein__scope u = t;  // as many terms as Q has, of as large a box
        u.n[p->slot + 1] = 1;
        u.n[u.nt] = t.n[p->slot];
        int64_t ps = ein__cost_sum(ein__prefix_cost(ctx, &t), ein__prefix_cost(ctx, &u));
        ps = ein__cost_sum(ps, ein__work_ps(ein__gpu_of(ctx), &w));
        if (ps >= least) continue;
        least = ps;
        size = b;
    }
    return size;
}

// Running sum `v` in blocks where that is cheaper, else itself.
static ein__val ein__cheapest_prefix(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__running p;
    if (ctx->value[v.i].weight_only || !ein__match_running(ctx, &s, &p)) return v;
    int64_t size = ein__prefix_size(ctx, &s, &p);
    return size ? ein__rule_prefix(z, v, &p, size, ein__cheapest_prefix) : v;
}

static ein__val ein__rebuild_prefix(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    return now.i ? ein__cheapest_prefix(z, now) : now;
}

// Gives running sums of the program under `root` their blocks, and lets maps read through the
// result.
EIN__FN bool ein__block_prefixes(ein_ctx *ctx, ein__val *root, int nroot) {
    if (!ein__rule_on(ctx, EIN__RULE_PREFIX)) return true;
    bool changed;
    return ein__rewrite_program(ctx, root, nroot, ein__rebuild_prefix, NULL, &changed);
}
