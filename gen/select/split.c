// Long sums in parts (split-K): where a product has too few tiles to fill the machine, its terms
// are shared between tiles. One part of a summation iterator becomes a dimension of an inner value,
// and a second kernel adds the parts up in order, the map behind the product fused:
//     v[t] = sum(p) w[p,t],  w[p,t] = sum(r in 0:n/d) of v's terms at n/d * p + r

typedef struct ein__split {
    uint32_t slot;  // summation iterator that is parted
    int64_t parts;  // its extent is a multiple; 1: it stays whole
} ein__split;

enum {
    EIN__SPLIT_PARTS = 64,  // at most
    EIN__SPLIT_FEW = 8,     // more than those are powers of two
    EIN__SPLIT_MARGIN = 5,  // percent by which two kernels must be cheaper than one
    // ... and ps: kernels of a program took that much more each than one that is repeated, whose
    // instructions are in the caches (resnet18 and bert_base in TF32 on an H200).
    EIN__SPLIT_PS = 700000
};

// The longest summation iterator that `parts` divides; false when there is none.
static bool ein__split_slot(const ein__scope *s, int64_t parts, uint32_t *slot) {
    int64_t most = 0;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (s->n[i] % parts || s->n[i] <= most) continue;
        most = s->n[i];
        *slot = i;
    }
    return most > 0;
}

// A product whose terms are to be shared: what its kernel reads and stores while they are not,
// bytes of its result, and what the map behind it takes by itself, ps.
typedef struct ein__split_base {
    ein__tiled p;
    ein__work traffic;
    int64_t result, map;
} ein__split_base;

// What the product, its tiles' loops `math` ps, and, fused with the sum of its `parts`, the map
// behind it cost.
static int64_t ein__split_ps(ein_ctx *ctx, const ein__split_base *b, int64_t parts, int64_t math) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__work w = b->traffic, sum = {0};
    int64_t all = ein__times(b->result, parts);
    w.math_ps = math;
    ein__add_operand(ctx, &w, (ein__val){0}, EIN__BY_UNIT, all - b->result);
    ein__add_operand(ctx, &sum, (ein__val){0}, EIN__BY_UNIT, ein__plus(all, b->result));
    int64_t rest = ein__work_ps(g, &sum) - ein__launch_ps(g);
    return ein__cost_sum(ein__work_ps(g, &w), ein__plus(b->map, rest));
}

// What product `s` and, fused with the sum of its parts, map `m` (or none) cost when the terms are
// shared between tiles; INT64_MAX: they are better left together.
static int64_t ein__cost_split(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__split *split) {
    ein__split_base b = {.map = ein__launch_ps(ein__gpu_of(ctx))};
    int64_t out[EIN__MAX_RANK], whole, best = INT64_MAX, node = b.map;
    bool terms = false, known = false;
    *split = (ein__split){0, 1};
    ein__dense_result(s, out);
    if (s->nt + 1 > EIN__MAX_RANK || s->nt + s->ns + 1 > EIN__MAX_ITERS) return INT64_MAX;
    if (!ein__match_tiles(ctx, s, out, &b.p)) return INT64_MAX;
    (void)ein__product_tile_of(ctx, &b.p, &whole);
    if (whole < 2 * node) return INT64_MAX;
    uint32_t inner = 0;
    bool tap = ein__product_inner(ctx, s, &b.p, &inner);
    ein__kernel k = {.kind = EIN__K_PRODUCT, .n = 1, .s = {s}, .size = 4, .out = out};
    b.result = ein__times(ein__outputs_of(s), 4);
    for (int64_t parts = 2; parts <= EIN__SPLIT_PARTS; parts++) {
        uint32_t slot = 0;
        if ((parts & (parts - 1)) && parts > EIN__SPLIT_FEW) continue;
        if (!ein__split_slot(s, parts, &slot)) continue;
        ein__tiled p = b.p;
        int64_t math;
        p.extent[2] = ein__times(p.extent[2], parts);
        p.depth /= parts;
        // Fewer terms of a tap lie together.
        for (int side = 0; side < 2 && tap && slot == inner; side++)
            if (p.load[side].steps > 1) p.load[side].steps /= parts;
        (void)ein__product_tile_of(ctx, &p, &math);
        if (math >= whole) continue;
        if (!known) ein__kernel_traffic(ctx, &k, &b.traffic, &terms);
        if (!known && m.i)
            b.map = ein__cost_scope(ctx, EIN__K_MAP, ein__scope_of(ctx, m), (ein__val){0},
                                    (ein__ex){0});
        known = true;
        int64_t ps = ein__split_ps(ctx, &b, parts, math);
        if (ps >= best) continue;
        best = ps;
        *split = (ein__split){slot, parts};
    }
    return best;
}

// What `read` reads for the iterators of `s`, its elements in the order of these: those in turn[0]
// outermost. The read as it is where that is no order, or takes much more memory.
static ein__ex ein__relaid_read(ein__pass *z, const ein__scope *s, const ein__expr *read,
                                const uint32_t *turn, int turns) {
    ein_ctx *ctx = z->ctx;
    ein__ex as_is = ein__ex_of(ctx, read);
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    int64_t extent[EIN__MAX_RANK], volume = 1;
    uint32_t used = ein__read_slots(ctx, read);
    int n = 0;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int t = 0; t < turns; t++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            if (!(turn[t] & used & 1u << i) || s->n[i] == 1) continue;
            if (n == EIN__MAX_RANK) return as_is;
            map[i] = ein__ix_iter(ctx, (uint32_t)n, s->n[i]);
            back[n] = ein__ix_iter(ctx, i, s->n[i]);
            extent[n++] = s->n[i];
            volume = ein__times(volume, s->n[i]);
        }
    if (volume > 2 * ein__elements(&ctx->value[read->val].shape)) return as_is;
    ein__ex body = ein__ex_subst(ctx, as_is, map, (int)(s->nt + s->ns));
    const char *name = ein__namef(ctx, "%s.lines", ctx->value[z->self.i].name);
    ein__val v = ein__new_map(z, name, ctx->value[read->val].dtype, n, extent, body);
    return v.i ? ein__ex_read(ctx, v, 0, back, n) : as_is;
}

// The order of dimensions in which those that `last` tells come behind the others.
static void ein__order_last(uint32_t last, int rank, int *order) {
    int n = 0;
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < rank; k++)
            if ((int)(last >> k & 1) == side) order[n++] = k;
}

// Prices operand `k` from now on as if the dimensions that use `slots` alone lay innermost. Gives
// the slots of these; 0: there are none.
static uint32_t ein__turn_operand(ein_ctx *ctx, const ein__expr *read, uint32_t slots, int k) {
    struct ein__turned *t = &ctx->turned[k];
    const ein__shape *shape = &ctx->value[read->val].shape;
    uint32_t last = 0, found = 0;
    int order[EIN__MAX_RANK];
    for (uint32_t i = 0; i < read->nix; i++) {
        uint32_t uses = ein__ix_uses(ctx, read->ix[i]);
        if (!uses || (uses & ~slots)) continue;
        last |= 1u << i;
        found |= uses;
    }
    ein__order_last(last, shape->rank, order);
    t->v = (ein__val){read->val};
    ein__order_strides(shape->d, shape->rank, order, t->stride);
    return found;
}

// What product `s` with map `m` as below costs as a kernel of our own when its weights lie as lines
// of terms, of which alone warpgroups multiply TF32. INT64_MAX: it has no weights that might, or
// they lie so.
static int64_t ein__cost_lines(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read) {
    int64_t out[EIN__MAX_RANK], ps = INT64_MAX;
    uint32_t inner;
    ein__tiled p;
    if (ctx->desc.math != EIN_MATH_TF32) return ps;
    ein__dense_result(s, out);
    if (!ein__match_tiles(ctx, s, out, &p) || !p.warpgroups || !p.rounded || p.load[1].along)
        return ps;
    // Layouts have windows' channels innermost.
    if (ein__product_inner(ctx, s, &p, &inner)) return ps;
    if (ein__turn_operand(ctx, p.read[1], ~((1u << s->nt) - 1), 0))
        ps = ein__cost_scope(ctx, EIN__K_PRODUCT, s, m, read);
    memset(ctx->turned, 0, sizeof ctx->turned);
    return ps;
}

// The factor of a product that is known at load, its elements in the order in which the kernel
// counts them: batch, lines, terms with the innermost one last. Its own read when they cannot be,
// or when neighbours lie together already: the innermost terms or, unless a step must stay within a
// `tap` or is to have `lines` of terms, any terms or lines.
static ein__ex ein__relay_terms(ein__pass *z, const ein__scope *s, const ein__tiled *p, int side,
                                uint32_t inner, bool tap, bool lines) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read = p->read[side];
    ein__ex as_is = ein__ex_of(ctx, read);
    uint32_t used = ein__read_slots(ctx, read), sums = ~((1u << s->nt) - 1);
    uint32_t turn[4] = {p->group[2], p->group[side], sums & ~(1u << inner), 1u << inner};
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    ein__strides_of(ctx, (ein__val){read->val}, stride);
    if (!ctx->value[read->val].weight_only || !(used >> inner & 1)) return as_is;
    bool together = ein__address(ctx, read, stride, &f) && f.coef[inner] == 1;
    for (uint32_t i = 0; i < s->nt + s->ns && !tap && !lines; i++)
        together |= ((p->group[side] | sums) >> i & 1) && f.coef[i] == 1 && s->n[i] > 1;
    if (together) return as_is;
    return ein__relaid_read(z, s, read, turn, 4);
}

// Product `v` with what is known at load re-laid for its kernel; `lines`: the columns' factor is to
// be lines of terms.
static ein__val ein__relay_product(ein__pass *z, ein__val v, bool lines) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    int64_t out[EIN__MAX_RANK];
    ein__tiled p;
    uint32_t inner = s->nt;
    ein__dense_result(s, out);
    if (!ein__match_tiles(ctx, s, out, &p)) return v;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++)
        if (s->n[i] > s->n[inner]) inner = i;
    bool tap = ein__product_inner(ctx, s, &p, &inner);
    z->self = v;
    ein__ex a = ein__relay_terms(z, s, &p, 0, inner, tap, false),
            b = ein__relay_terms(z, s, &p, 1, inner, tap, lines);
    if (!a.i || !b.i) return (ein__val){0};
    if (a.i == ein__ex_of(ctx, p.read[0]).i && b.i == ein__ex_of(ctx, p.read[1]).i) return v;
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, a, b);
    if (body.i && p.alpha != 1)
        body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, p.alpha), body);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// A copy of weight `w`, which layouts may lay in another order than it is given in: until then a
// window on it.
static ein__val ein__loose_copy(ein__pass *z, ein__val w) {
    ein_ctx *ctx = z->ctx;
    const ein__value of = ctx->value[w.i];
    ein__ix ix[EIN__MAX_RANK];
    for (int d = 0; d < of.shape.rank; d++) ix[d] = ein__ix_iter(ctx, (uint32_t)d, of.shape.d[d]);
    return ein__new_map(z, of.name, of.dtype, of.shape.rank, of.shape.d,
                        ein__ex_read(ctx, w, 0, ix, of.shape.rank));
}

// The innermost iterator of a result of more than one value; s->nt: there is none.
static uint32_t ein__result_lane(const ein__scope *s) {
    uint32_t lane = s->nt;
    while (lane > 0 && s->n[lane - 1] == 1) lane--;
    return lane ? lane - 1 : s->nt;
}

static ein__ex ein__loosened_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__pass *z = user;
    const ein__expr old = *ein__ex_get(ctx, ex);
    const ein__value *w = &ctx->value[old.val];
    uint32_t lane = ein__result_lane(ein__scope_of(ctx, z->self));
    if (w->kind != EIN__V_WEIGHT || w->shape.rank < 2 || ein__read_step(ctx, &old, lane) <= 1)
        return ex;
    ein__val copy = ein__loose_copy(z, (ein__val){old.val});
    return copy.i ? ein__ex_read(ctx, copy, ein__f64_of(old.bits), old.ix, (int)old.nix)
                  : (ein__ex){0};
}

// Map or reduction `v`, which is no contraction, with copies of weights as they are given of which
// the neighbours in its result read elements that do not lie together.
static ein__val ein__loosen_weights(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    z->self = v;
    if (ein__result_lane(s) == s->nt) return v;
    ein__ex body = ein__ex_replace_reads(ctx, s->body, ein__loosened_read, z);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Reduction `v` of data `x` with a copy of filter `w`, which is a weight as it is given, if every
// channel has windows by itself: the copy is a view, or has its channels innermost where layouts
// put those of the result there (relayout_last.c).
static ein__val ein__loose_filter(ein__pass *z, ein__val v, const ein__expr *x,
                                  const ein__expr *w) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__val filter = {w->val};
    uint32_t both = ein__read_slots(ctx, x) & ein__read_slots(ctx, w);
    bool channels = false;
    for (uint32_t i = 0; i < s->nt; i++) channels |= (both >> i & 1) && s->n[i] % 4 == 0;
    if (ctx->value[filter.i].kind != EIN__V_WEIGHT || !channels || !(both >> s->nt)) return v;
    z->self = v;
    ein__val copy = ein__loose_copy(z, filter);
    if (!copy.i) return (ein__val){0};
    const ein__expr old = *w, data = *x;
    ein__ex read = ein__ex_read(ctx, copy, 0, old.ix, (int)old.nix);
    const ein__expr *factor[2];
    double alpha;
    if (!read.i || !ein__two_factors(ctx, s, factor, &alpha)) return (ein__val){0};
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, ein__ex_of(ctx, &data), read);
    if (body.i && alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Reduction `v` with a filter whose elements lie side by side for neighbouring threads, as those of
// the data do: of a window that every channel has by itself, channels last.
static ein__val ein__relay_window(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *read[2];
    double alpha;
    uint32_t lane = ein__result_lane(s);
    if (lane == s->nt || !ein__two_factors(ctx, s, read, &alpha)) return v;
    bool second = !ctx->value[read[0]->val].weight_only;
    const ein__expr *w = read[second], *x = read[!second];
    uint32_t turn[2] = {~(1u << lane), 1u << lane};
    if (!ctx->value[w->val].weight_only || ctx->value[x->val].weight_only) return v;
    if (ein__read_step(ctx, w, lane) <= 1 || ein__read_step(ctx, x, lane) != 1)
        return ein__loose_filter(z, v, x, w);
    z->self = v;
    ein__ex relaid = ein__relaid_read(z, s, w, turn, 2);
    if (!relaid.i || relaid.i == ein__ex_of(ctx, w).i) return v;
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, ein__ex_of(ctx, x), relaid);
    if (body.i && alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Product `v` as the sum of its parts.
static ein__val ein__split_value(ein__pass *z, ein__val v, const ein__split *split) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix map[EIN__MAX_ITERS], at[EIN__MAX_RANK];
    ein__shape shape = {.rank = (int)s->nt + 1, .d = {split->parts}};
    const ein__value old = ctx->value[v.i];
    ein__scope w = {.reduce = EIN__R_SUM, .nt = s->nt + 1, .ns = s->ns},
               t = {.reduce = EIN__R_SUM, .nt = s->nt, .ns = 1};
    w.n[0] = split->parts;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        w.n[i + 1] = i == split->slot ? s->n[i] / split->parts : s->n[i];
        map[i] = ein__ix_iter(ctx, i + 1, w.n[i + 1]);
        if (i < s->nt) shape.d[i + 1] = t.n[i] = s->n[i];
        if (i < s->nt) at[i + 1] = ein__ix_iter(ctx, i, s->n[i]);
    }
    ein__ix first = ein__ix_scale(ctx, ein__ix_iter(ctx, 0, split->parts), w.n[split->slot + 1]);
    map[split->slot] = ein__ix_add(ctx, map[split->slot], first);
    w.body = ein__ex_subst(ctx, s->body, map, (int)(s->nt + s->ns));
    ein__sc sc = w.body.i ? ein__sc_make(ctx, &w) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    ein__val parts = ein__val_new(ctx, ein__namef(ctx, "%s.parts", old.name), EIN__V_SCOPE,
                                  old.tensor, sc, &shape, EIN__F32, old.node);
    const char *rule = "summation splitting (parts)";
    ctx->value[parts.i].why = old.why && *old.why ? ein__namef(ctx, "%s; %s", old.why, rule) : rule;
    t.n[s->nt] = split->parts;
    at[0] = ein__ix_iter(ctx, s->nt, split->parts);
    t.body = ein__ex_read(ctx, parts, 0, at, (int)s->nt + 1);
    sc = t.body.i ? ein__sc_make(ctx, &t) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype,
                        old.node);
}
