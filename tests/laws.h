// The laws of the rows that are no rules of search, on random scopes and programs: what a rule
// makes of a value is built as a value, and compared with it modulo 2^61-1. Used after scopes.h.

// A law's two sides. Neither is made where the rule does not fire.
typedef struct sides {
    ein__val a, b;
} sides;

static const sides NO_SIDES = {{0}, {0}};

static ein__val map_of(ein_ctx *ctx, const char *name, const ein__scope *s, ein__ex body) {
    return body.i ? new_scope(ctx, name, EIN__R_NONE, (int)s->nt, 0, s->n, body) : (ein__val){0};
}

static ein__val scope_value(ein_ctx *ctx, const char *name, const ein__scope *s) {
    return new_scope(ctx, name, (ein__red)s->reduce, (int)s->nt, (int)s->ns, s->n, s->body);
}

// alpha * W[at], over the box of `s`.
static ein__val window_on(ein_ctx *ctx, const ein__scope *s, const ein__rearranged *w,
                          double alpha) {
    ein__val v = scope_value(ctx, "w", &w->s);
    ein__ex read = v.i ? ein__ex_read(ctx, v, 0, w->at, (int)w->s.nt) : (ein__ex){0};
    return map_of(ctx, "y2", s, ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), read));
}

static ein__ix own_index(ein_ctx *ctx, const ein__scope *s, uint32_t k) {
    return ein__ix_iter(ctx, k, s->n[k]);
}

// ------------------------------------------------------------------------------------ ranges

static sides law_substitute(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *read[2];
    ein__ex *reads = NULL;
    ein__rearranged w;
    double alpha;
    uint32_t sums = (1u << (s->nt + s->ns)) - (1u << s->nt);
    ein__two_factors(ctx, s, read, &alpha);
    for (int k = 0; k < 2; k++) arrput(reads, ein__ex_of(ctx, read[k]));
    bool made = ein__rule_substitute(ctx, s, reads, sums, 100 * random_in(1, 2), &w), forms = false;
    arrfree(reads);
    for (uint32_t k = 0; made && k < w.s.nt; k++) forms |= ein__is_composite(ctx, w.at[k]);
    return made && forms ? (sides){v, window_on(ctx, s, &w, alpha)} : NO_SIDES;
}

// A product of a map that has zeros around what it is made of, by guards and by what is read.
static sides tightened_operand(ein_ctx *ctx) {
    int64_t n[3], box[2];
    ein__shape shape = {.rank = 2}, filter = {.rank = 1};
    ein__ix at[2], shifted[2];
    for (int k = 0; k < 2; k++) {
        shape.d[k] = random_in(1, 5);
        box[k] = shape.d[k] + random_in(0, 3);
        at[k] = ein__ix_iter(ctx, (uint32_t)k, box[k]);
        shifted[k] = ein__ix_addc(ctx, at[k], random_in(-2, 1));
    }
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    ein__ex read = ein__ex_read(ctx, x, 0, shifted, 2);
    ein__ex body = random_in(0, 1) ? ein__ex_binary(ctx, EIN__ADD, read, ein__ex_const(ctx, 2))
                                   : ein__ex_unary(ctx, EIN__SQUARE, read);
    if (random_in(0, 1)) body = ein__ex_binary(ctx, EIN__MUL, body, read);
    if (random_in(0, 1)) body = read;
    int guarded = (int)random_in(0, 1);
    body = ein__ex_when(ctx, ein__ix_addc(ctx, at[guarded], random_in(-2, 2)),
                        random_in(1, box[guarded]), random_in(0, 4) == 0, body);
    ein__val p = new_scope(ctx, "p", EIN__R_NONE, 2, 0, box, body);
    n[0] = random_in(1, 5);
    n[1] = filter.d[0] = random_in(1, 3);
    n[2] = box[1];
    ein__val w = ein__val_new(ctx, "w", EIN__V_INPUT, -1, (ein__sc){0}, &filter, EIN__F32, -1);
    if (!p.i) return NO_SIDES;
    ein__ix tap = ein__ix_iter(ctx, 1, n[1]), place = ein__ix_iter(ctx, 0, n[0]);
    at[0] = ein__ix_add(ctx, ein__ix_scale(ctx, place, random_in(1, 2)), tap);
    at[0] = ein__ix_addc(ctx, at[0], random_in(-2, 1));
    at[1] = ein__ix_iter(ctx, 2, n[2]);
    ein__ex product = ein__ex_read(ctx, w, 0, &tap, 1);
    product = ein__ex_binary(ctx, EIN__MUL, product, ein__ex_read(ctx, p, 0, at, 2));
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 1, 2, n, product), root = v;
    bool ok = v.i && ein__run_pass(ctx, &root, 1, ein__rebuild_tightened);
    return ok && root.i != v.i ? (sides){v, root} : NO_SIDES;
}

static sides law_tighten(ein_ctx *ctx, ein__val v) {
    if (!random_in(0, 3)) return tightened_operand(ctx);
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *read[2];
    ein__places at[EIN__MAX_ITERS], all[EIN__MAX_ITERS];
    ein__rearranged w;
    double alpha;
    ein__two_factors(ctx, s, read, &alpha);
    ein__all_places(s, at);
    ein__all_places(s, all);
    if (!ein__tighten_slots(ctx, s, read, at))
        return (sides){v, map_of(ctx, "y2", s, ein__ex_const(ctx, 0))};
    if (!memcmp(at, all, (s->nt + s->ns) * sizeof *at) || !ein__over_places(ctx, s, at, &w))
        return NO_SIDES;
    return (sides){v, window_on(ctx, s, &w, 1)};
}

// The result over more places, or an operand with zeros around it.
static sides law_relax(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *read[2];
    double alpha;
    ein__two_factors(ctx, s, read, &alpha);
    int r = (int)random_in(0, 1);
    if (!read[r]->nix) return NO_SIDES;
    uint32_t k = (uint32_t)random_in(0, (int64_t)read[r]->nix - 1);
    const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
    int64_t extent = ctx->value[read[r]->val].shape.d[k];
    if (random_in(0, 1)) {
        ein__places at[EIN__MAX_ITERS];
        ein__rearranged w;
        ein__reach z;
        ein__all_places(s, at);
        for (uint32_t i = 0; i < s->nt; i++) {
            if (!ein__reach_of(ctx, read[r], k, i, at, &z)) continue;
            ein__rule_relax(ctx, &at[i], &z);
            int64_t before = -(z.step * at[i].lo + z.window.lo);
            int64_t after = z.step * at[i].hi + z.window.hi - (z.extent - 1);
            CHECK(before >= 0 && before >= after && before - after < z.step,
                  "boundary relaxing leaves %lld before and %lld behind", (long long)before,
                  (long long)after);
            if (at[i].lo == 0 && at[i].hi == s->n[i] - 1) return NO_SIDES;
            return ein__over_places(ctx, s, at, &w) ? (sides){v, window_on(ctx, s, &w, 1)}
                                                    : NO_SIDES;
        }
        return NO_SIDES;
    }
    ein__places reads = {f->lo, f->hi}, box = {0, extent - 1};
    if (f->q != 1 || reads.hi < 0 || reads.lo >= extent) return NO_SIDES;
    if (box.lo < reads.lo) box.lo = reads.lo;
    if (box.hi > reads.hi) box.hi = reads.hi;
    ein__places had = box;
    ein__rule_relax_operand(ctx, &box, reads, random_in(0, 1));
    if (!memcmp(&box, &had, sizeof box)) return NO_SIDES;
    ein__scope large = {.reduce = EIN__R_NONE, .nt = read[r]->nix};
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t i = 0; i < read[r]->nix; i++) {
        large.n[i] = i == k ? box.hi - box.lo + 1 : ctx->value[read[r]->val].shape.d[i];
        ix[i] = ein__ix_addc(ctx, own_index(ctx, &large, i), i == k ? box.lo : 0);
    }
    ein__val a = {read[r]->val};
    a = map_of(ctx, "large", &large, ein__ex_read(ctx, a, 0, ix, (int)large.nt));
    memcpy(ix, read[r]->ix, sizeof ix);
    ix[k] = ein__ix_addc(ctx, ix[k], -box.lo);
    ein__scope t = *s;
    t.body = a.i ? ein__ex_read(ctx, a, 0, ix, (int)large.nt) : (ein__ex){0};
    t.body = ein__ex_binary(ctx, EIN__MUL, t.body, ein__ex_of(ctx, read[1 - r]));
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t.body);
    return t.body.i ? (sides){v, scope_value(ctx, "y2", &t)} : NO_SIDES;
}

// ------------------------------------------------------------------------------------ programs

// Sums and products of reads and constants under guards: a proof knows other functions by name
// only, and not that they may be applied to constants at once.
static ein__ex random_sum(maker *m, int depth) {
    static const ein__fn binary[] = {EIN__ADD, EIN__SUB, EIN__MUL, EIN__MUL};
    ein_ctx *ctx = m->ctx;
    ein__ex r = random_read(m);
    if (depth && random_in(0, 3)) {
        ein__ex other = random_in(0, 3) ? random_sum(m, depth - 1) : ein__ex_const(ctx, 1.5);
        r = ein__ex_binary(ctx, binary[random_in(0, 3)], random_sum(m, depth - 1), other);
    }
    if (depth && random_in(0, 5) == 0)
        r = ein__ex_when(ctx, random_index(m, random_in(0, 1)), random_in(1, 5),
                         random_in(0, 3) == 0, r);
    m->failed |= !r.i;
    return r.i ? r : ein__ex_const(ctx, 1);
}

// A map over a random box; some of what it reads are weights.
static ein__val random_map_value(ein_ctx *ctx, maker *m, int64_t *n, int depth) {
    make_tensors(ctx, m);
    for (int k = 0; k < 4; k++)
        if (random_in(0, 1)) {
            ctx->value[m->tensor[k].i].kind = EIN__V_WEIGHT;
            ctx->value[m->tensor[k].i].weight_only = true;
        }
    m->slots = (int)random_in(1, 3);
    m->n = n;
    for (int k = 0; k < m->slots; k++) n[k] = random_in(1, 7);
    ein__ex body = random_sum(m, depth);
    return m->failed ? (ein__val){0} : new_scope(ctx, "p", EIN__R_NONE, m->slots, 0, n, body);
}

// What a pass makes of the program under `v`.
static sides law_pass(ein_ctx *ctx, ein__val v, ein__rule_id rule) {
    ein__val root = v;
    if (!v.i || !ein__run_pass(ctx, &root, 1, ein__rules[rule].rewrite)) return NO_SIDES;
    return root.i != v.i ? (sides){v, root} : NO_SIDES;
}

// A map, read by another one as it stands, beyond its box and between its elements.
static sides law_inline(ein_ctx *ctx, ein__val unused) {
    int64_t n[8], many[8];
    maker m = {.flags = random_in(0, 1) ? RANDOM_PLAIN_INDEX : 0}, reader = {.flags = m.flags};
    ein__val p = random_map_value(ctx, &m, n, 2), q = random_map_value(ctx, &reader, many, 1);
    (void)unused;
    if (!p.i || !q.i) return NO_SIDES;
    ein__ix ix[EIN__MAX_RANK];
    for (int k = 0; k < m.slots; k++) ix[k] = random_index(&reader, random_in(0, 3));
    ein__ex read = ein__ex_read(ctx, p, random_in(0, 3) ? 0 : 2.5, ix, m.slots);
    const ein__scope *s = ein__scope_of(ctx, q);
    ein__ex other = ein__ex_binary(ctx, EIN__ADD, s->body, read);
    ein__val v = map_of(ctx, "y", s, random_in(0, 1) ? other : read);
    if (!v.i || ein__ex_get(ctx, read)->op != EIN__X_READ) return NO_SIDES;
    if (random_in(0, 1)) return law_pass(ctx, v, EIN__RULE_INLINE);
    ein__ex merged = ein__rule_inline(ctx, p, ein__ex_get(ctx, read));
    if (!merged.i) return NO_SIDES;
    return (sides){map_of(ctx, "y", s, read), map_of(ctx, "y2", s, merged)};
}

// What `part` has side by side along `axis`, piece i from at[i] on; the sum begins anywhere.
static ein__val join_of(ein_ctx *ctx, const char *name, const ein__val *part, const int64_t *at,
                        int parts, int axis) {
    ein__shape shape = ctx->value[part[0].i].shape;
    shape.d[axis] = at[parts];
    ein__ex body = {0};
    for (int i = (int)random_in(0, parts - 1), left = parts; left > 0;
         i = (i + 1) % parts, left--) {
        ein__ix ix[EIN__MAX_RANK];
        for (int k = 0; k < shape.rank; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, shape.d[k]);
        ix[axis] = ein__ix_addc(ctx, ix[axis], -at[i]);
        ein__ex read = ein__ex_read(ctx, part[i], 0, ix, shape.rank);
        body = body.i ? ein__ex_binary(ctx, EIN__ADD, body, read) : read;
    }
    return new_scope(ctx, name, EIN__R_NONE, shape.rank, 0, shape.d, body);
}

// Two concatenations, the longer of which begins with the shorter one.
static sides law_nest(ein_ctx *ctx, ein__val unused) {
    ein__val part[5], root[2];
    int64_t at[6] = {0}, d[EIN__MAX_RANK];
    int rank = (int)random_in(1, 3), axis = (int)random_in(0, rank - 1);
    int parts = (int)random_in(3, 5), first = (int)random_in(2, parts - 1);
    (void)unused;
    for (int k = 0; k < rank; k++) d[k] = random_in(1, 3);
    for (int i = 0; i < parts; i++) {
        ein__ix ix[EIN__MAX_RANK];
        d[axis] = random_in(1, 3);
        at[i + 1] = at[i] + d[axis];
        for (int k = 0; k < rank; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, d[k]);
        ein__val x = new_input(ctx, "x", rank, d, EIN__F32);
        ein__ex minus = ein__ex_unary(ctx, EIN__NEG, ein__ex_read(ctx, x, 0, ix, rank));
        part[i] = new_scope(ctx, "part", EIN__R_NONE, rank, 0, d, minus);
    }
    root[0] = join_of(ctx, "short", part, at, first, axis);
    root[1] = join_of(ctx, "long", part, at, parts, axis);
    ein__val v = root[1];
    if (!v.i || !ein__run_pass(ctx, root, 2, ein__rebuild_nested) || root[1].i == v.i)
        return NO_SIDES;
    return (sides){v, root[1]};
}

static sides law_hoist(ein_ctx *ctx, ein__val unused) {
    int64_t n[8];
    maker m = {0};
    (void)unused;
    return law_pass(ctx, random_map_value(ctx, &m, n, 3), EIN__RULE_HOIST);
}

// A function of an input over iterators `uses` of a box, read at them or moved by one.
static ein__ex random_factor(ein_ctx *ctx, const int64_t *n, uint32_t uses) {
    static const ein__fn fn[] = {EIN__RELU, EIN__SQUARE, EIN__EXP, EIN__NEG};
    ein__ix ix[EIN__MAX_RANK];
    ein__shape shape = {0};
    for (uint32_t k = 0; k < 8; k++) {
        if (!(uses >> k & 1)) continue;
        ix[shape.rank] = ein__ix_addc(ctx, ein__ix_iter(ctx, k, n[k]), -(random_in(0, 3) == 0));
        shape.d[shape.rank++] = n[k];
    }
    ein__ex x = ein__ex_const(ctx, (double)random_in(1, 3));
    for (int64_t i = random_in(1, 2); i > 0; i--) {
        ein__val v = new_input(ctx, "x", shape.rank, shape.d, EIN__F32);
        if (random_in(0, 1)) ctx->value[v.i].weight_only = true;
        ein__ex read = ein__ex_read(ctx, v, 0, ix, shape.rank);
        x = ein__ex_binary(ctx, random_in(0, 1) ? EIN__ADD : EIN__MUL, x, read);
    }
    return random_in(0, 1) ? ein__ex_unary(ctx, fn[random_in(0, 3)], x) : x;
}

// Products of rows and columns with factors that are computed, and forms of two vectors, also under
// guards.
static sides law_factors(ein_ctx *ctx, ein__val unused) {
    int64_t n[4] = {random_in(8, 10), random_in(8, 10), random_in(2, 5), random_in(2, 5)};
    bool form = random_in(0, 1);
    uint32_t uses[4] = {form ? 5 : 13, form ? 14 : 14, form ? 9 : (uint32_t)random_in(1, 15), 8};
    int64_t factors = form ? 3 : random_in(2, 4);
    ein__ex body = ein__ex_const(ctx, (double)random_in(1, 2));
    (void)unused;
    for (int64_t i = 0; i < factors && body.i; i++) {
        ein__ex f = random_factor(ctx, n, uses[i]);
        if (f.i) body = ein__ex_binary(ctx, random_in(0, 3) ? EIN__MUL : EIN__DIV, body, f);
    }
    for (int64_t i = random_in(0, 3) - 1; i > 0 && body.i; i--) {
        uint32_t a = (uint32_t)random_in(0, 3), b = (uint32_t)random_in(0, 3);
        ein__ix ix = ein__ix_sub(ctx, ein__ix_iter(ctx, a, n[a]), ein__ix_iter(ctx, b, n[b]));
        ix = ein__ix_addc(ctx, ix, random_in(-1, 2));
        body = ein__ex_when(ctx, ix, random_in(1, 9), random_in(0, 3) == 0, body);
    }
    return law_pass(ctx, new_scope(ctx, "y", EIN__R_SUM, 2, 2, n, body), EIN__RULE_FACTORS);
}

// A weight over some of the iterators of `s`.
static ein__ex weight_read(ein_ctx *ctx, const ein__scope *s) {
    ein__ix ix[EIN__MAX_RANK];
    ein__shape shape = {0};
    for (uint32_t k = 0; k < s->nt; k++) {
        if (random_in(0, 2)) continue;
        shape.d[shape.rank] = s->n[k];
        ix[shape.rank++] = own_index(ctx, s, k);
    }
    ein__val w = ein__val_new(ctx, "scale", EIN__V_WEIGHT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    return ein__ex_read(ctx, w, 0, ix, shape.rank);
}

// A linear function of the read of a contraction, and relu of it now and then.
static ein__ex random_linear(ein_ctx *ctx, const ein__scope *s, ein__ex x) {
    for (int64_t i = random_in(1, 3); i > 0 && x.i; i--) {
        static const ein__fn fn[] = {EIN__MUL, EIN__MUL, EIN__ADD, EIN__SUB, EIN__DIV};
        ein__fn f = fn[random_in(0, 4)];
        ein__ex w = f == EIN__DIV ? ein__ex_const(ctx, 4) : weight_read(ctx, s);
        bool turn = f != EIN__DIV && random_in(0, 1);
        x = random_in(0, 5) ? ein__ex_binary(ctx, f, turn ? w : x, turn ? x : w)
                            : ein__ex_unary(ctx, EIN__NEG, x);
    }
    return x.i && random_in(0, 1) ? ein__ex_unary(ctx, EIN__RELU, x) : x;
}

// The box of `s`, and how a map over it in another order reads it.
static void turned(ein_ctx *ctx, const ein__scope *s, bool turn, ein__scope *box, ein__ix *ix) {
    int order[EIN__MAX_RANK];
    *box = (ein__scope){.reduce = EIN__R_NONE, .nt = s->nt};
    for (uint32_t k = 0; k < s->nt; k++) order[k] = (int)k;
    if (turn) shuffle(order, (int)s->nt);
    for (uint32_t k = 0; k < s->nt; k++) box->n[order[k]] = s->n[k];
    for (uint32_t k = 0; k < s->nt; k++) ix[k] = own_index(ctx, box, (uint32_t)order[k]);
}

static sides law_scale(ein_ctx *ctx, ein__val v) {
    ein__scope box;
    ein__ix ix[EIN__MAX_RANK];
    const ein__scope *s = ein__scope_of(ctx, v);
    turned(ctx, s, random_in(0, 1), &box, ix);
    ein__ex x = ein__ex_read(ctx, v, 0, ix, (int)s->nt);
    return law_pass(ctx, map_of(ctx, "m", &box, random_linear(ctx, &box, x)), EIN__RULE_SCALE);
}

// A factor over the iterators in `uses`, in any order.
static ein__ex factor_read(ein_ctx *ctx, const int64_t *n, const int *slot, int rank) {
    int order[EIN__MAX_RANK];
    ein__ix ix[EIN__MAX_RANK];
    ein__shape shape = {.rank = rank};
    for (int k = 0; k < rank; k++) order[k] = slot[k];
    shuffle(order, rank);
    for (int k = 0; k < rank; k++) {
        shape.d[k] = n[order[k]];
        ix[k] = ein__ix_iter(ctx, (uint32_t)order[k], n[order[k]]);
    }
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    return ein__ex_read(ctx, x, 0, ix, rank);
}

static sides law_turn_product(ein_ctx *ctx);
static sides law_turn_rows(ein_ctx *ctx);

// Products in batches, which a map reads in any order of their dimensions, beside other operands.
static sides law_turn(ein_ctx *ctx, ein__val unused) {
    static const int in_a[] = {0, 1, 3}, in_b[] = {0, 2, 3};
    int64_t n[4], kind = random_in(0, 2);
    ein__scope box;
    ein__ix ix[EIN__MAX_RANK];
    (void)unused;
    if (kind) return kind == 1 ? law_turn_product(ctx) : law_turn_rows(ctx);
    for (int k = 0; k < 4; k++) n[k] = random_in(1, 5);
    ein__ex a = factor_read(ctx, n, in_a, 3), b = factor_read(ctx, n, in_b, 3);
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 3, 1, n, ein__ex_binary(ctx, EIN__MUL, a, b));
    if (!v.i) return NO_SIDES;
    turned(ctx, ein__scope_of(ctx, v), true, &box, ix);
    ein__ex x = ein__ex_read(ctx, v, 0, ix, 3);
    ein__ex other = ein__ex_binary(ctx, EIN__ADD, weight_read(ctx, &box), x);
    return law_pass(ctx, map_of(ctx, "m", &box, random_linear(ctx, &box, other)), EIN__RULE_TURN);
}

// Products with one weight at some places of a tensor, in a sum of a map's, beside one that is
// alone.
static sides law_rounds(ein_ctx *ctx, ein__val unused) {
    static const int in_w[] = {1, 2};
    int64_t n[3] = {random_in(1, 4), random_in(1, 5), random_in(1, 5)}, places = random_in(2, 6);
    ein__shape shape = {.rank = 3, .d = {places, n[0], n[2]}};
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    ein__ex w[2] = {factor_read(ctx, n, in_w, 2), factor_read(ctx, n, in_w, 2)}, sum = {0};
    ein__ix at[2] = {ein__ix_iter(ctx, 0, n[0]), ein__ix_iter(ctx, 1, n[1])};
    (void)unused;
    for (int k = 0; k < 2; k++)
        ctx->value[ein__ex_get(ctx, w[k])->val].weight_only = n[1] * n[2] > 1;
    for (int64_t i = random_in(2, 4); i > 0; i--) {
        ein__ix ix[3] = {ein__ix_const(ctx, random_in(0, places - 1)), at[0],
                         ein__ix_iter(ctx, 2, n[2])};
        ein__ex product = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, x, 0, ix, 3),
                                         w[random_in(0, 3) ? 0 : 1]);
        ein__val v = new_scope(ctx, "v", EIN__R_SUM, 2, 1, n, product);
        if (!v.i) return NO_SIDES;
        ein__ex read = ein__ex_unary(ctx, EIN__SQUARE, ein__ex_read(ctx, v, 0, at, 2));
        sum = sum.i ? ein__ex_binary(ctx, EIN__ADD, sum, read) : read;
    }
    return law_pass(ctx, new_scope(ctx, "m", EIN__R_NONE, 2, 0, n, sum), EIN__RULE_ROUNDS);
}

// A sum of few terms, itself or through a map, in terms that a result's second iterator is in too.
static sides law_short(ein_ctx *ctx, ein__val unused) {
    static const int of_row[] = {0, 2}, of_term[] = {1, 2}, of_coordinate[] = {1, 2};
    int64_t few = random_in(1, 5), n[3] = {random_in(1, 4), random_in(60, 70), few};
    int64_t m[3] = {n[0], random_in(1, 5), n[1]}, coordinates = m[1];
    (void)unused;
    ein__ex apart = ein__ex_binary(ctx, EIN__SUB, factor_read(ctx, n, of_row, 2),
                                   factor_read(ctx, n, of_term, 2));
    ein__val r = new_scope(ctx, "r", EIN__R_SUM, 2, 1, n, ein__ex_unary(ctx, EIN__SQUARE, apart));
    ein__ix at[2] = {ein__ix_iter(ctx, 0, n[0]), ein__ix_iter(ctx, 1, n[1])};
    ein__ix by[2] = {at[0], ein__ix_iter(ctx, 2, m[2])};
    if (!r.i) return NO_SIDES;
    if (random_in(0, 1)) {
        ein__ex w = ein__ex_unary(ctx, EIN__EXP, ein__ex_read(ctx, r, 0, at, 2));
        r = new_scope(ctx, "w", EIN__R_NONE, 2, 0, n, w);
    }
    if (random_in(0, 1)) by[1] = ein__ix_addc(ctx, by[1], random_in(-1, 1));
    ein__ex weight = ein__ex_read(ctx, r, 0, by, 2);
    ein__ex x = ein__ex_binary(ctx, EIN__ADD, factor_read(ctx, m, of_coordinate, 2),
                               ein__ex_const(ctx, 0.5));
    if (coordinates == 1 && random_in(0, 1)) x = ein__ex_const(ctx, 2);
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, weight, x);
    ein__red how = random_in(0, 2) ? EIN__R_SUM : EIN__R_MAX;
    return law_pass(ctx, new_scope(ctx, "y", how, 2, 1, m, body), EIN__RULE_SHORT);
}

static ein__val as_it_is(ein__pass *z, ein__val before) {
    (void)z;
    return before;
}

// A running sum of a random map, from either end and shifted, in blocks.
static sides law_prefix(ein_ctx *ctx, ein__val unused) {
    int64_t n[EIN__MAX_RANK + 1];
    maker m = {0};
    ein__running p;
    (void)unused;
    ein__val x = random_map_value(ctx, &m, n, 2);
    if (!x.i) return NO_SIDES;
    int at = (int)random_in(0, m.slots - 1), reversed = (int)random_in(0, 1);
    int64_t terms = n[at], shift = random_in(-2, 1);
    n[m.slots] = terms;
    n[at] = random_in(1, terms + 1);
    ein__ix ix[EIN__MAX_RANK], r = ein__ix_iter(ctx, (uint32_t)m.slots, terms);
    for (int k = 0; k < m.slots; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, n[k]);
    ein__ix ahead = ein__ix_add(ctx, ix[at], ein__ix_scale(ctx, r, -1));
    ahead = ein__ix_addc(ctx, reversed ? ein__ix_scale(ctx, ahead, -1) : ahead, shift);
    ix[at] = r;
    ein__ex term = ein__ex_read(ctx, x, 0, ix, m.slots);
    ein__ex body = ein__ex_when(ctx, ahead, 2 * terms + 4, false, term);
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, m.slots, 1, n, body);
    ein__pass z = {.ctx = ctx, .self = v};
    if (!v.i || !ein__match_running(ctx, ein__scope_of(ctx, v), &p)) return NO_SIDES;
    ein__val w = ein__rule_prefix(&z, v, &p, random_in(1, terms), as_it_is);
    arrfree(z.by_scope);
    return (sides){v, w};
}

// Contractions with one operand in common, merged; each merge that is priced is checked on the way.
// It derives both, so one scope in four does.
static sides law_merge(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *read[2];
    double alpha;
    ein__two_factors(ctx, s, read, &alpha);
    int k = ctx->value[read[1]->val].weight_only;
    const ein__value w = ctx->value[read[k]->val];
    int64_t before = ein__steps_checked;
    if (!w.weight_only || ctx->value[read[1 - k]->val].weight_only || random_in(0, 3))
        return NO_SIDES;
    ein__val other =
        ein__val_new(ctx, "k2", EIN__V_WEIGHT, -1, (ein__sc){0}, &w.shape, w.dtype, -1);
    ein__scope t = *s;
    t.body = ein__ex_read(ctx, other, 0, read[k]->ix, (int)read[k]->nix);
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_of(ctx, read[1 - k]), t.body);
    if (!t.body.i) return NO_SIDES;
    ein__val root[2] = {v, scope_value(ctx, "y2", &t)}, was = root[random_in(0, 1)];
    bool first = was.i == v.i;
    if (!root[1].i) return NO_SIDES;
    ein__merge *found = NULL;
    ein__merge_program(ctx, root, 2, true, &found);
    ein__merges_free(found);
    return ein__steps_checked > before ? (sides){was, root[first ? 0 : 1]} : NO_SIDES;
}

// ------------------------------------------------------------------------------------ steps

// Element `at` of value `v` as it lies in memory, dense.
static ein__ex flat_read(ein_ctx *ctx, ein__val v, ein__ix at) {
    const ein__shape s = ctx->value[v.i].shape;
    int64_t stride[EIN__MAX_RANK];
    ein__ix ix[EIN__MAX_RANK];
    ein__dense_strides(&s, stride);
    for (int k = 0; k < s.rank; k++) {
        ix[k] = ein__ix_floordiv(ctx, at, stride[k]);
        if (k) ix[k] = ein__ix_mod(ctx, ix[k], s.d[k]);
    }
    return ein__ex_read(ctx, v, 0, ix, s.rank);
}

// c + sum k * iterator, over the slots of `s`.
static ein__ix linear(ein_ctx *ctx, const ein__scope *s, int64_t c, const int64_t *k) {
    ein__ix x = ein__ix_const(ctx, c);
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        x = ein__ix_add(ctx, x, ein__ix_scale(ctx, own_index(ctx, s, i), k[i]));
    return x;
}

// alpha * a * b summed, against the places of `v` at which a call with result `out` puts it. The
// result must be all of v, each element once.
static sides call_sides(ein_ctx *ctx, ein__val v, ein__scope *t, ein__ex a, ein__ex b, double alpha,
                        const int64_t *out, int64_t offset) {
    const ein__shape *shape = &ctx->value[v.i].shape;
    int64_t n = ein__elements(shape), it[EIN__MAX_ITERS] = {0};
    bool *seen = calloc((size_t)n + 1, sizeof *seen), once = true;
    int64_t count = 0;
    if (!seen) exit(5);
    do {
        int64_t at = offset;
        for (uint32_t k = 0; k < t->nt; k++) at += out[k] * it[k];
        once = once && at >= 0 && at < n && !seen[at];
        if (once) seen[at] = true;
        count++;
    } while (once && next_point(it, t->n, (int)t->nt));
    free(seen);
    CHECK(once && count == n, "a call computes all elements of its result once");
    ein__scope box = {.reduce = EIN__R_NONE, .nt = t->nt};
    memcpy(box.n, t->n, sizeof box.n);
    t->body = ein__ex_binary(ctx, EIN__MUL, a, b);
    t->body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t->body);
    if (!t->body.i) return NO_SIDES;
    return (sides){map_of(ctx, "y1", &box, flat_read(ctx, v, linear(ctx, &box, offset, out))),
                   scope_value(ctx, "call", t)};
}

// C[b,m,n] = alpha sum(k) A[b,m,k] B[b,k,n] in memory, as cuBLAS has it.
static sides gemm_sides(ein_ctx *ctx, ein__val v, const ein__gemm *g) {
    ein__scope t = {.reduce = EIN__R_SUM, .nt = 3, .ns = 1, .n = {g->batch, g->m, g->n, g->k}};
    int64_t a[] = {g->sa, g->ta ? 1 : g->lda, 0, g->ta ? g->lda : 1};
    int64_t b[] = {g->sb, 0, g->tb ? g->ldb : 1, g->tb ? 1 : g->ldb};
    return call_sides(ctx, v, &t, flat_read(ctx, g->a, linear(ctx, &t, g->oa, a)),
                      flat_read(ctx, g->b, linear(ctx, &t, g->ob, b)), g->alpha,
                      (int64_t[]){g->sc, g->ldc, 1}, 0);
}

// The filter as a value in the library's order, as ein__prepare has it made.
static ein__val dense_filter(ein_ctx *ctx, const ein__conv_form *f) {
    int slot[EIN__MAX_ITERS], n = ein__conv_filter_order(f, slot);
    ein__scope t = {.reduce = EIN__R_NONE, .nt = (uint32_t)n};
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int k = 0; k < n && n <= EIN__MAX_RANK; k++) {
        t.n[k] = f->s->n[slot[k]];
        map[slot[k]] = own_index(ctx, &t, (uint32_t)k);
    }
    if (n > EIN__MAX_RANK) return (ein__val){0};
    return map_of(ctx, "filter", &t,
                  ein__ex_subst(ctx, ein__ex_of(ctx, f->w), map, (int)(f->s->nt + f->s->ns)));
}

// y[n,g,f,o] = sum(c,r) x[n,g,c, stride*o + dilation*r - pad] w[g,f,c,r], or, transposed,
// x[n,g,c, (o + pad - dilation*r) / stride] w[g,c,f,r], all dense in memory, as cuDNN has them.
static sides conv_sides(ein_ctx *ctx, ein__val v, const ein__conv_form *f) {
    const ein__conv *c = &f->c;
    int sp = c->spatial, nt = 3 + sp;
    int64_t fg = c->f / c->group, cg = c->c / c->group, taps = 1, out[EIN__MAX_RANK] = {0};
    ein__scope t = {.reduce = EIN__R_SUM, .nt = (uint32_t)nt, .ns = (uint32_t)(1 + sp)};
    memcpy(t.n, (int64_t[]){c->n, c->group, fg}, 3 * sizeof *t.n);
    t.n[nt] = cg;
    for (int a = 0; a < sp; a++) {
        t.n[3 + a] = c->out[a];
        t.n[nt + 1 + a] = c->k[a];
        taps *= c->k[a];
    }
    ein__shape y = {.rank = nt}, x = {.rank = 2 + sp};
    memcpy(y.d, t.n, (size_t)nt * sizeof *t.n);
    ein__dense_strides(&y, out);
    // the data as [n, channels, axes] over the same memory
    memcpy(x.d, (int64_t[]){c->n, c->c}, 2 * sizeof *x.d);
    for (int a = 0; a < sp; a++) x.d[2 + a] = c->in[a];
    ein__scope data = {.reduce = EIN__R_NONE, .nt = (uint32_t)x.rank};
    int64_t stride[EIN__MAX_RANK];
    memcpy(data.n, x.d, sizeof x.d);
    ein__dense_strides(&x, stride);
    ein__val xv = map_of(ctx, "x1", &data, flat_read(ctx, c->x, linear(ctx, &data, 0, stride)));
    ein__val wv = dense_filter(ctx, f);
    if (!xv.i || !wv.i || ein__elements(&x) != ein__elements(&ctx->value[c->x.i].shape))
        return (sides){v, {0}};
    ein__ix ix[EIN__MAX_RANK];
    ix[0] = own_index(ctx, &t, 0);
    ix[1] = ein__ix_add(ctx, ein__ix_scale(ctx, own_index(ctx, &t, 1), cg),
                        own_index(ctx, &t, (uint32_t)nt));
    int64_t w[EIN__MAX_ITERS] = {0}, step = 1;
    for (int a = sp; a-- > 0; step *= c->k[a]) w[nt + 1 + a] = step;
    w[nt] = f->transposed ? fg * taps : taps;
    w[2] = f->transposed ? taps : cg * taps;
    w[1] = fg * cg * taps;
    for (int a = 0; a < sp; a++) {
        int64_t k[EIN__MAX_ITERS] = {0};
        k[3 + a] = f->transposed ? 1 : c->stride[a];
        k[nt + 1 + a] = f->transposed ? -c->dilation[a] : c->dilation[a];
        ix[2 + a] = linear(ctx, &t, f->transposed ? c->pad[a] : -c->pad[a], k);
        if (f->transposed) ix[2 + a] = ein__ix_div(ctx, ix[2 + a], c->stride[a]);
    }
    return call_sides(ctx, v, &t, ein__ex_read(ctx, xv, 0, ix, x.rank),
                      flat_read(ctx, wv, linear(ctx, &t, 0, w)), 1, out, 0);
}

// The library call that a contraction matches, if any: by its attributes alone.
static sides law_match(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    int64_t out[EIN__MAX_RANK];
    ein__conv_form f;
    ein__gemm g;
    ein__dense_result(s, out);
    if (random_in(0, 1) && ein__find_conv(ctx, s, out, &f) && ein__conv_sizes(&f))
        return conv_sides(ctx, v, &f);
    return ein__match_gemm(ctx, s, out, &g) ? gemm_sides(ctx, v, &g) : NO_SIDES;
}

// What the kernels of bands and of basis changes read, by what they are given.
static sides law_kernel(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__scope t = *s;
    ein__band g;
    ein__basis b;
    if (ein__match_basis(ctx, s, &b)) {
        t.body = b.read;
        for (int k = 0; k < b.n; k++) {
            const ein__basis_axis *a = &b.axis[k];
            ein__ix row = own_index(ctx, s, a->slot);
            if (a->digit) row = ein__ix_mod(ctx, row, a->rows);
            ein__ix at[2] = {row, own_index(ctx, s, a->sum)};
            t.body = ein__ex_binary(ctx, EIN__MUL, t.body, ein__ex_read(ctx, a->table, 0, at, 2));
        }
        return (sides){v, scope_value(ctx, "y2", &t)};
    }
    if (!ein__match_band(ctx, s, &g)) return NO_SIDES;
    int64_t k[EIN__MAX_ITERS] = {0}, stride[EIN__MAX_RANK];
    const ein__shape d = ctx->value[g.b->val].shape;
    ein__ix ix[EIN__MAX_RANK], rest = linear(ctx, s, g.y.offset, g.y.coef);
    ein__dense_strides(&d, stride);
    for (int i = 0; i < d.rank; i++)
        ix[i] = ein__ix_mod(ctx, ein__ix_floordiv(ctx, rest, stride[i]), d.d[i]);
    k[g.m] = 1;
    k[g.j] = g.d;
    ix[g.axis] = linear(ctx, s, g.c, k);
    ein__ex a = flat_read(ctx, (ein__val){g.a->val}, linear(ctx, s, g.x.offset, g.x.coef));
    t.body =
        ein__ex_binary(ctx, EIN__MUL, a, ein__ex_read(ctx, (ein__val){g.b->val}, 0, ix, d.rank));
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, g.alpha), t.body);
    return t.body.i ? (sides){v, scope_value(ctx, "y2", &t)} : NO_SIDES;
}

// A step keeps what it reduces in registers: a map, or a reduction behind it, reads it at its own
// place, whatever its subscripts say.
typedef struct in_register {
    ein__val v;
    const ein__scope *reader;
} in_register;

static ein__ex own_place(ein_ctx *ctx, void *user, ein__ex ex) {
    const in_register *z = user;
    ein__ix ix[EIN__MAX_RANK];
    const ein__scope *s = ein__scope_of(ctx, z->v);
    if (ein__ex_get(ctx, ex)->val != z->v.i) return ex;
    for (uint32_t k = 0; k < s->nt; k++) ix[k] = own_index(ctx, z->reader, k);
    return ein__ex_read(ctx, z->v, 0, ix, (int)s->nt);
}

// reduce(y) of exp(x - before), over the rows of x; `before` is read at its own row, mostly.
static ein__val row_reduction(ein_ctx *ctx, ein__red reduce, ein__val x, const int64_t *n, int rank,
                              ein__val before) {
    ein__ix ix[EIN__MAX_RANK];
    for (int k = 0; k < rank; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, n[k]);
    ein__ex body = ein__ex_read(ctx, x, 0, ix, rank);
    if (random_in(0, 3) == 0) ix[0] = ein__ix_const(ctx, 0);
    if (before.i)
        body = ein__ex_binary(ctx, EIN__SUB, body, ein__ex_read(ctx, before, 0, ix, rank - 1));
    if (before.i) body = ein__ex_unary(ctx, EIN__EXP, body);
    return body.i ? new_scope(ctx, "row", reduce, rank - 1, 1, n, body) : (ein__val){0};
}

// A map over a contraction, or over statistics of rows; sometimes in another order, or twice.
static ein__val fusable_program(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix ix[EIN__MAX_RANK];
    ein__scope box;
    if (random_in(0, 1)) {
        turned(ctx, s, random_in(0, 2) == 0, &box, ix);
        if (s->nt && random_in(0, 7) == 0) ix[0] = ein__ix_addc(ctx, ix[0], 1);
        ein__ex x = random_linear(ctx, &box, ein__ex_read(ctx, v, 0, ix, (int)s->nt));
        ix[0] = s->nt ? ein__ix_const(ctx, 0) : ix[0];
        if (random_in(0, 5) == 0)
            x = ein__ex_binary(ctx, EIN__ADD, x, ein__ex_read(ctx, v, 0, ix, (int)s->nt));
        return map_of(ctx, "m", &box, x);
    }
    int rank = (int)random_in(2, 3);
    int64_t n[3], rows = random_in(2, 5);
    for (int k = 0; k < 3; k++) n[k] = k ? random_in(2, 5) : rows;
    ein__val x = new_input(ctx, "x", rank, n, EIN__F32);
    ein__val a = row_reduction(ctx, EIN__R_MAX, x, n, rank, (ein__val){0});
    ein__val b = row_reduction(ctx, EIN__R_SUM, x, n, rank, a);
    for (int k = 0; k < rank; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, n[k]);
    ein__ex body = ein__ex_read(ctx, x, 0, ix, rank);
    if (random_in(0, 3) == 0) ix[0] = ein__ix_const(ctx, 1);
    body = ein__ex_binary(ctx, EIN__SUB, body, ein__ex_read(ctx, a, 0, ix, rank - 1));
    if (b.i) body = ein__ex_binary(ctx, EIN__DIV, body, ein__ex_read(ctx, b, 0, ix, rank - 1));
    return a.i && b.i ? new_scope(ctx, "m", EIN__R_NONE, rank, 0, n, body) : (ein__val){0};
}

static sides law_fuse(ein_ctx *ctx, ein__val v) {
    ein__val m = fusable_program(ctx, v);
    ein__selector z = {.ctx = ctx};
    sides result = NO_SIDES;
    if (!m.i) return result;
    ein__select(&z, &m, 1);
    for (ptrdiff_t i = 0; i < arrlen(z.order); i++) {
        ein__val fused = z.order[i];
        if (z.home[fused.i].i == fused.i) continue;
        for (ptrdiff_t k = 0; k < arrlen(z.order); k++) {
            ein__val reader = z.order[k];
            const ein__scope *s = ein__scope_of(ctx, reader);
            ein__scope t = s ? *s : (ein__scope){0};
            in_register user = {fused, s};
            if (s) t.body = ein__ex_replace_reads(ctx, s->body, own_place, &user);
            const ein__ex *reads = NULL;
            bool does = false;
            if (s) reads = ein__ex_reads(ctx, s->body);
            for (ptrdiff_t j = 0; j < arrlen(reads); j++)
                does |= ein__ex_get(ctx, reads[j])->val == fused.i;
            if (!does) continue;
            CHECK(z.home[reader.i].i == z.home[fused.i].i,
                  "what is fused is read by its step alone");
            // One pair is compared; a wrong one in preference to the others.
            if (!result.a.i || t.body.i != s->body.i)
                result = (sides){reader, scope_value(ctx, "y2", &t)};
        }
    }
    ein__select_free(&z);
    return result;
}

// ------------------------------------------------------------------------------------ attention

// The larger of `m` and an input.
static ein__val with_sink(ein_ctx *ctx, ein__val m) {
    const ein__scope *s = ein__scope_of(ctx, m);
    const ein__shape shape = ctx->value[m.i].shape;
    ein__val sink = ein__val_new(ctx, "t", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    ein__scope box = {.reduce = EIN__R_NONE, .nt = s->nt};
    ein__ix own[EIN__MAX_RANK];
    memcpy(box.n, s->n, sizeof box.n);
    for (uint32_t k = 0; k < s->nt; k++) own[k] = own_index(ctx, &box, k);
    ein__ex of = ein__ex_read(ctx, m, 0, own, shape.rank);
    return map_of(ctx, "b", &box,
                  ein__ex_binary(ctx, EIN__MAX, of, ein__ex_read(ctx, sink, 0, own, shape.rank)));
}

// A softmax of contraction `v` along one of its dimensions, and a second product that sums over
// this dimension: whatever is taken for an attention must mean what it stands for.
static sides law_online(ein_ctx *ctx, ein__val v) {
    const ein__scope s = *ein__scope_of(ctx, v);
    if (!s.nt || s.nt + 1 > EIN__MAX_RANK) return NO_SIDES;
    uint32_t key = (uint32_t)random_in(0, s.nt - 1), rest = s.nt - 1;
    int64_t n[EIN__MAX_ITERS];
    ein__ix own[EIN__MAX_RANK], rows[EIN__MAX_RANK], over[EIN__MAX_RANK];
    for (uint32_t k = 0; k < s.nt; k++) {
        own[k] = own_index(ctx, &s, k);
        if (k != key) n[k - (k > key)] = s.n[k];
        if (k != key) rows[k - (k > key)] = own[k];
    }
    n[rest] = s.n[key];
    for (uint32_t k = 0; k < s.nt; k++)
        over[k] = ein__ix_iter(ctx, k == key ? rest : k - (k > key), s.n[k]);
    ein__scope box = {.reduce = EIN__R_NONE, .nt = s.nt};
    memcpy(box.n, s.n, sizeof box.n);
    ein__ex read = ein__ex_read(ctx, v, 0, own, (int)s.nt);
    ein__val x = random_in(0, 1) ? map_of(ctx, "x", &box, random_linear(ctx, &box, read)) : v;
    if (!x.i) return NO_SIDES;
    ein__val m =
        new_scope(ctx, "m", EIN__R_MAX, (int)rest, 1, n, ein__ex_read(ctx, x, 0, over, (int)s.nt));
    if (m.i && random_in(0, 1)) m = with_sink(ctx, m);
    if (!m.i) return NO_SIDES;
    ein__ex e = ein__ex_binary(ctx, EIN__SUB, ein__ex_read(ctx, x, 0, own, (int)s.nt),
                               ein__ex_read(ctx, m, 0, rows, (int)rest));
    ein__val p = map_of(ctx, "p", &box, ein__ex_unary(ctx, EIN__EXP, e));
    ein__val l =
        new_scope(ctx, "l", EIN__R_SUM, (int)rest, 1, n, ein__ex_read(ctx, p, 0, over, (int)s.nt));
    e = ein__ex_binary(ctx, EIN__DIV, ein__ex_read(ctx, p, 0, own, (int)s.nt),
                       ein__ex_read(ctx, l, 0, rows, (int)rest));
    ein__val a = map_of(ctx, "a", &box, e);
    ein__shape shape = {.rank = 2, .d = {s.n[key], random_in(1, 4)}};
    ein__val w = ein__val_new(ctx, "w", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    ein__ix at[] = {ein__ix_iter(ctx, s.nt, s.n[key]), ein__ix_iter(ctx, rest, shape.d[1])};
    over[key] = at[0];
    n[rest] = shape.d[1];
    n[s.nt] = s.n[key];
    e = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, a, 0, over, (int)s.nt),
                       ein__ex_read(ctx, w, 0, at, 2));
    ein__val out = new_scope(ctx, "out", EIN__R_SUM, (int)s.nt, 1, n, e);
    ein__attention found;
    if (!out.i || !ein__match_attention(ctx, out, (ein__val){0}, &found)) return NO_SIDES;
    return (sides){out, ein__attention_meaning(ctx, &found)};
}

// ------------------------------------------------------------------------------------ norms

// A random row operation of random rows in front of a product, whatever the contraction: the
// product, or the row operation itself, against what its kernel computes instead.
static sides law_norm(ein_ctx *ctx, ein__val v) {
    int64_t n[EIN__MAX_ITERS] = {random_in(1, 5), random_in(2, 7)}, j = random_in(2, 5);
    ein__shape box = {.rank = 2, .d = {n[0], n[1]}}, cols = {.rank = 1, .d = {n[1]}},
               weights = {.rank = 2, .d = {n[1], j}};
    (void)v;
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &box, EIN__F32, -1);
    ein__val g = ein__val_new(ctx, "g", EIN__V_WEIGHT, -1, (ein__sc){0}, &cols, EIN__F32, -1);
    ein__val w = ein__val_new(ctx, "w", EIN__V_WEIGHT, -1, (ein__sc){0}, &weights, EIN__F32, -1);
    ein__ix row = ein__ix_iter(ctx, 0, n[0]), col = ein__ix_iter(ctx, 1, n[1]);
    ein__ex u = ein__ex_read(ctx, x, 0, (ein__ix[]){row, col}, 2),
            gain = ein__ex_read(ctx, g, 0, &col, 1), z = u;
    ein__ex half = ein__ex_const(ctx, 0.5), count = ein__ex_const(ctx, (double)n[1]);
    if (random_in(0, 2)) {
        ein__ex term = random_in(0, 1) ? u : ein__ex_binary(ctx, EIN__ADD, u, half);
        ein__val sum = new_scope(ctx, "sum", EIN__R_SUM, 1, 1, n, term);
        ein__ex mean = ein__ex_binary(ctx, EIN__DIV, ein__ex_read(ctx, sum, 0, &row, 1), count);
        z = ein__ex_binary(ctx, random_in(0, 1) ? EIN__SUB : EIN__ADD, u, mean);
    }
    if (random_in(0, 3) || z.i == u.i) {
        ein__ex square = random_in(0, 1) ? ein__ex_unary(ctx, EIN__SQUARE, z)
                                         : ein__ex_binary(ctx, EIN__MUL, z, z);
        if (random_in(0, 1)) square = ein__ex_binary(ctx, EIN__ADD, square, u);
        ein__val all = new_scope(ctx, "all", EIN__R_SUM, 1, 1, n, square);
        ein__ex s = ein__ex_read(ctx, all, 0, &row, 1);
        if (random_in(0, 1)) s = ein__ex_unary(ctx, EIN__SQRT, s);
        z = ein__ex_binary(ctx, random_in(0, 1) ? EIN__DIV : EIN__MUL, z, s);
    }
    if (random_in(0, 1)) z = ein__ex_binary(ctx, EIN__MUL, z, gain);
    if (random_in(0, 1))
        z = ein__ex_binary(ctx, EIN__SUB, ein__ex_binary(ctx, EIN__MUL, half, z), gain);
    if (random_in(0, 1)) z = ein__ex_unary(ctx, EIN__NEG, z);
    ein__val y = new_scope(ctx, "y", EIN__R_NONE, 2, 0, n, z);
    int64_t m[EIN__MAX_ITERS] = {n[0], j, n[1]};
    ein__ix terms = ein__ix_iter(ctx, 2, n[1]);
    ein__ex a = ein__ex_read(ctx, y, 0, (ein__ix[]){row, terms}, 2);
    ein__ex b = ein__ex_read(ctx, w, 0, (ein__ix[]){terms, ein__ix_iter(ctx, 1, j)}, 2);
    ein__ex product = ein__ex_binary(ctx, EIN__MUL, half, ein__ex_binary(ctx, EIN__MUL, a, b));
    ein__val p = new_scope(ctx, "p", EIN__R_SUM, 2, 1, m, product);
    ein__norm made;
    bool also = random_in(0, 1);
    if (!ein__rule_norm(ctx, p, (ein__val){0}, also, &made)) return NO_SIDES;
    return also && random_in(0, 1) ? (sides){y, made.also} : (sides){p, made.out};
}

#include "laws_apart.h"
#include "laws_weights.h"

// ------------------------------------------------------------------------------------ all of them

typedef struct law {
    ein__rule_id rule;
    sides (*of)(ein_ctx *ctx, ein__val contraction);
} law;
static const law laws[] = {
    {EIN__RULE_SUBSTITUTE, law_substitute}, {EIN__RULE_TIGHTEN, law_tighten},
    {EIN__RULE_RELAX, law_relax},           {EIN__RULE_INLINE, law_inline},
    {EIN__RULE_SCALE, law_scale},           {EIN__RULE_HOIST, law_hoist},
    {EIN__RULE_PREFIX, law_prefix},         {EIN__RULE_MERGE, law_merge},
    {EIN__RULE_MATCH, law_match},           {EIN__RULE_FUSE, law_fuse},
    {EIN__RULE_ONLINE, law_online},         {EIN__RULE_NORM, law_norm},
    {EIN__RULE_KERNEL, law_kernel},         {EIN__RULE_NEST, law_nest},
    {EIN__RULE_FACTORS, law_factors},       {EIN__RULE_TURN, law_turn},
    {EIN__RULE_ROUNDS, law_rounds},         {EIN__RULE_SHORT, law_short},
    {EIN__RULE_DISTRIBUTE, law_distribute}, {EIN__RULE_COLLECT, law_collect},
    {EIN__RULE_APART, law_apart},           {EIN__RULE_REPEATS, law_repeats},
    {EIN__RULE_LINEAR, law_linear},         {EIN__RULE_NEEDED, law_needed},
    {EIN__RULE_SEPARATE, law_separate},     {EIN__RULE_GATE, law_gate},
    {EIN__RULE_SORTED, law_sorted},         {EIN__RULE_ONEHOT, law_onehot},
};
enum { NLAWS = sizeof laws / sizeof *laws };
