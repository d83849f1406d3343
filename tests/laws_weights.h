// Laws of products of weights: distributed over what they multiply, collected (rule_distribute.c),
// and shared by what repeats (rule_repeats.c). Included by laws.h.

// sum(k) W[f,k] U[k,h], U where the result is or a place beside it.
static ein__val weighed(ein_ctx *ctx, ein__ex w, const int64_t *n, int64_t beside) {
    ein__shape shape = {.rank = 2, .d = {n[2], n[1]}};
    ein__val u = ein__val_new(ctx, "u", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    ein__ix ix[2] = {ein__ix_iter(ctx, 2, n[2]),
                     ein__ix_addc(ctx, ein__ix_iter(ctx, 1, n[1]), beside)};
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, w, ein__ex_read(ctx, u, 0, ix, 2));
    return new_scope(ctx, "f", EIN__R_SUM, 2, 1, n, body);
}

static ein__ex weights_of(ein_ctx *ctx, const int64_t *n, const int *slot, int rank) {
    ein__ex w = factor_read(ctx, n, slot, rank);
    if (w.i && ein__ex_get(ctx, w)->op == EIN__X_READ)
        ctx->value[ein__ex_get(ctx, w)->val].weight_only = true;
    return w;
}

// A product with windows on a product, with its weight made of both weights.
static sides law_distribute(ein_ctx *ctx, ein__val unused) {
    static const int in_w[] = {0, 2}, in_p[] = {0, 2, 3};
    int64_t inner[3] = {random_in(2, 5), random_in(2, 6), random_in(2, 4)};
    int64_t outer[4] = {random_in(2, 5), random_in(2, 5), inner[0], random_in(2, 3)};
    ein__ex w = weights_of(ctx, inner, in_w, 2), p = weights_of(ctx, outer, in_p, 3);
    ein__val f = weighed(ctx, w, inner, random_in(0, 2) ? 0 : random_in(-1, 1));
    (void)unused;
    if (!f.i || !p.i) return NO_SIDES;
    ein__ix row = ein__ix_scale(ctx, ein__ix_iter(ctx, 1, outer[1]), random_in(1, 2));
    row = ein__ix_add(ctx, row, ein__ix_iter(ctx, 3, outer[3]));
    ein__ix ix[2] = {ein__ix_iter(ctx, 2, outer[2]), ein__ix_addc(ctx, row, random_in(-2, 1))};
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, p, ein__ex_read(ctx, f, 0, ix, 2));
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 2, 2, outer, body);
    ein__pass z = {.ctx = ctx, .self = v};
    ein__scope made;
    bool is = v.i && ein__rule_compose(&z, v, f, &made);
    arrfree(z.by_scope);
    return is ? (sides){v, scope_value(ctx, "made", &made)} : NO_SIDES;
}

// A sum over one-hot places, which may be no places, or twice the same: of products with weights,
// in the sum itself or in a value, and in another one that is a product too, with what stands
// beside them. The gate is a value, or a selection for one place, perhaps in a map with other
// factors.
static sides law_onehot(ein_ctx *ctx, ein__val unused) {
    int64_t t = random_in(1, 3), e = random_in(3, 5), k = random_in(1, 2), c = random_in(2, 3);
    bool alone = k == 1 && random_in(0, 1), apart = random_in(0, 1);
    ein__shape picks = {.rank = 2, .d = {t, k}}, rows = {.rank = 2, .d = {t, c}};
    ein__shape all = {.rank = 3, .d = {e, c, c}};
    ein__val i = ein__val_new(ctx, "i", EIN__V_INPUT, -1, (ein__sc){0}, &picks, EIN__I32, -1);
    ein__val p = ein__val_new(ctx, "p", EIN__V_INPUT, -1, (ein__sc){0}, &picks, EIN__F32, -1);
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &rows, EIN__F32, -1);
    ein__val w = ein__val_new(ctx, "w", EIN__V_WEIGHT, -1, (ein__sc){0}, &all, EIN__F32, -1);
    int64_t in_gate[3] = {t, e, k}, in_h[4] = {e, t, c, c}, in_v[4] = {t, c, e, c};
    ein__ix at[3] = {ein__ix_iter(ctx, 0, t), ein__ix_iter(ctx, 2, k)};
    ein__ex zero = ein__ex_const(ctx, 0);
    if (alone) at[1] = ein__ix_const(ctx, 0);
    ein__ex gate = ein__ex_select(ctx, EIN__EQ, ein__ex_read(ctx, i, 0, at, 2),
                                  ein__ex_idx(ctx, ein__ix_iter(ctx, 1, e)),
                                  ein__ex_read(ctx, p, 0, at, 2), zero);
    ein__red sum = alone ? EIN__R_NONE : EIN__R_SUM;
    ein__val g = new_scope(ctx, "g", sum, 2, !alone, in_gate, gate);
    at[0] = ein__ix_iter(ctx, 0, e), at[1] = ein__ix_iter(ctx, 2, c),
    at[2] = ein__ix_iter(ctx, 3, c);
    ein__ex body = ein__ex_read(ctx, w, 0, at, 3);
    at[0] = ein__ix_iter(ctx, 1, t), at[1] = at[2];
    body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, x, 0, at, 2), body);
    ein__val h = new_scope(ctx, "h", EIN__R_SUM, 3, 1, in_h, body);
    if (!g.i || !h.i) return NO_SIDES;
    at[0] = ein__ix_iter(ctx, 2, e), at[1] = ein__ix_iter(ctx, 0, t);
    at[2] = ein__ix_iter(ctx, apart ? 1 : 3, c);
    body = ein__ex_read(ctx, h, 0, at, 3);
    if (random_in(0, 1)) body = ein__ex_unary(ctx, EIN__SQUARE, body);
    at[1] = ein__ix_iter(ctx, 1, c), at[2] = ein__ix_iter(ctx, 3, c);
    if (!apart) body = ein__ex_binary(ctx, EIN__MUL, body, ein__ex_read(ctx, w, 0, at, 3));
    at[1] = at[0], at[0] = ein__ix_iter(ctx, 0, t);
    body = ein__ex_binary(ctx, EIN__MUL, body, ein__ex_read(ctx, g, 0, at, 2));
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 2, apart ? 1 : 2, in_v, body), root = v;
    bool changed, ok = v.i && ein__look_up_places(ctx, &root, 1, &changed);
    return ok && changed ? (sides){v, root} : NO_SIDES;
}

// A product with weights that integers pick, which may be none's, for one or two iterators of rows,
// of which one may be summed over, behind another one perhaps; rows in tiles of any size.
static sides law_sorted(ein_ctx *ctx, ein__val unused) {
    int64_t n[5] = {random_in(2, 5), random_in(1, 3), random_in(2, 3), random_in(2, 3), 0};
    int64_t weights = random_in(2, 5);
    bool summed = random_in(0, 1), two = random_in(0, 2) > 0, again = random_in(0, 1);
    int order[4] = {0, 1, 2, 3};  // slots of rows' iterators, of the result's other one, of terms
    if (summed) order[1] = 2, order[2] = 1;
    ein__ix it[4], at[3];
    int64_t extent[4];
    (void)unused;
    for (int k = 0; k < 4; k++) extent[order[k]] = n[k];
    for (int k = 0; k < 4; k++) it[k] = ein__ix_iter(ctx, (uint32_t)order[k], n[k]);
    ein__shape picks = {.rank = 2, .d = {n[0], n[1]}},
               all = {.rank = 3, .d = {weights, n[2], n[3]}};
    ein__val e = ein__val_new(ctx, "e", EIN__V_INPUT, -1, (ein__sc){0}, &picks, EIN__I32, -1);
    ein__val w = ein__val_new(ctx, "w", EIN__V_WEIGHT, -1, (ein__sc){0}, &all, EIN__F32, -1);
    ein__shape rows = {.rank = 3, .d = {n[0], two ? n[1] : 1, n[3]}};
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &rows, EIN__F32, -1);
    at[0] = ein__ix_gather(ctx, ein__ex_read(ctx, e, 0, it, 2));
    at[1] = it[2], at[2] = it[3];
    ein__ex body = ein__ex_read(ctx, w, 0, at, 3);
    at[0] = it[0], at[1] = two ? it[1] : ein__ix_const(ctx, 0);
    body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, x, 0, at, 3), body);
    if (again) body = ein__ex_binary(ctx, EIN__MUL, body, ein__ex_read(ctx, e, 0, it, 2));
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, summed ? 2 : 3, summed ? 2 : 1, extent, body);
    ein__pass z = {.ctx = ctx, .self = v};
    ein__picking p;
    ein__sorting o = {.n = 0};
    if (!v.i || !ein__find_picking(ctx, v, &p, &o)) return NO_SIDES;
    ein__count_sorting(&o, random_in(1, 4));
    ein__val made = ein__sorted_product(&z, v, &p, &o);
    arrfree(z.by_scope);
    return (sides){v, made};
}

// A sum of products, some of them with one weight and some as often as two.
static sides law_collect(ein_ctx *ctx, ein__val unused) {
    static const int in_w[] = {0, 2};
    int64_t n[3] = {random_in(8, 10), random_in(1, 4), random_in(1, 4)};
    ein__ex w[2] = {weights_of(ctx, n, in_w, 2), weights_of(ctx, n, in_w, 2)}, sum = {0};
    ein__ix at[2] = {ein__ix_iter(ctx, 0, n[0]), ein__ix_iter(ctx, 1, n[1])};
    (void)unused;
    for (int64_t i = random_in(2, 4); i > 0; i--) {
        ein__val f = weighed(ctx, w[random_in(0, 3) ? 0 : 1], n, random_in(0, 3) ? 0 : 1);
        ein__ex read = f.i ? ein__ex_read(ctx, f, 0, at, 2) : (ein__ex){0};
        if (!read.i) return NO_SIDES;
        sum = ein__add_scaled(ctx, sum, (double)random_in(1, 3) - 2.5, read);
        if (!random_in(0, 2)) sum = ein__ex_binary(ctx, EIN__SUB, sum, read);
    }
    ein__val v = new_scope(ctx, "m", EIN__R_NONE, 2, 0, n, sum), root = v;
    bool ok = v.i && ein__run_pass(ctx, &root, 1, ein__rebuild_collected);
    return ok && root.i != v.i ? (sides){v, root} : NO_SIDES;
}

// ------------------------------------------------------------------------------------ repeats

// The map: a read, or more, of `x` at quotients of its iterators by divisors[].
static ein__val repeating_map(ein_ctx *ctx, const ein__shape *x, const int64_t *by) {
    ein__val v = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, x, EIN__F32, -1);
    ein__ix at[2];
    int64_t box[2];
    for (int k = 0; k < 2; k++) {
        // Now and then not the whole of it, or more, which is no repetition of all.
        box[k] = x->d[k] * by[k] + (random_in(0, 9) ? 0 : random_in(0, 1));
        at[k] = ein__ix_floordiv(ctx, ein__ix_iter(ctx, (uint32_t)k, box[k]), by[k]);
        if (random_in(0, 5) == 0) at[k] = ein__ix_const(ctx, 0);  // the same everywhere
    }
    ein__ex body = ein__ex_read(ctx, v, 0, at, 2);
    if (random_in(0, 2) == 0) body = ein__ex_unary(ctx, EIN__SQUARE, body);
    if (random_in(0, 2) == 0)
        body = ein__ex_binary(ctx, EIN__ADD, body, ein__ex_idx(ctx, at[random_in(0, 1)]));
    if (random_in(0, 9) == 0)
        body = ein__ex_binary(ctx, EIN__ADD, body, ein__ex_idx(ctx, ein__ix_iter(ctx, 0, box[0])));
    return new_scope(ctx, "p", EIN__R_NONE, 2, 0, box, body);
}

static sides law_repeats(ein_ctx *ctx, ein__val unused) {
    static const int in_w[] = {2, 3, 4};
    // h, f and g; r and c: p[.. h .. r .., .. g .. c ..] w[f,r,c] or w[r,c]
    int64_t n[5] = {random_in(1, 8), random_in(1, 5), random_in(1, 3), random_in(1, 4),
                    random_in(1, 4)};
    int64_t by[2] = {random_in(1, 4), random_in(1, 3)};
    ein__shape shape = {.rank = 2, .d = {random_in(1, 4), random_in(1, 4)}};
    ein__val p = repeating_map(ctx, &shape, by), root;
    int fewer = (int)random_in(0, 1);
    ein__ex w = weights_of(ctx, n, in_w + fewer, 3 - fewer);
    (void)unused;
    if (!p.i) return NO_SIDES;
    ein__ix at[2];
    for (uint32_t k = 0; k < 2; k++) {
        ein__ix h = ein__ix_iter(ctx, k, n[k]), r = ein__ix_iter(ctx, 3 + k, n[3 + k]);
        int64_t a = random_in(1, 3), b = random_in(-2, 2);
        if (random_in(0, 1)) a = b = 1;
        at[k] = ein__ix_add(ctx, ein__ix_scale(ctx, h, random_in(0, 5) ? a : -a),
                            ein__ix_scale(ctx, r, b));
        at[k] = ein__ix_addc(ctx, at[k], random_in(-3, 3));
    }
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, p, 0, at, 2), w);
    if (random_in(0, 3) == 0) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, 1.5), body);
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 3, 2, n, body);
    bool changed = false;
    root = v;
    bool made = v.i && ein__share_repeats(ctx, &root, 1, &changed);
    return made && changed ? (sides){v, root} : NO_SIDES;
}

// ------------------------------------------------------------------------------------ linear maps

// A term of a map m[c,h] that is linear in a tensor: x[c - o, i(h)], perhaps behind a guard or
// times what does not depend on c.
static ein__ex linear_term(ein_ctx *ctx, const int64_t *box) {
    ein__ix c = ein__ix_iter(ctx, 0, box[0]), h = ein__ix_iter(ctx, 1, box[1]), at[2];
    ein__shape shape = {.rank = 2, .d = {random_in(1, box[0]), random_in(1, 3)}};
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    int64_t by = random_in(1, 3);
    at[0] = ein__ix_addc(ctx, c, random_in(-2, 1));
    at[1] = ein__ix_addc(ctx, ein__ix_floordiv(ctx, h, by), random_in(-1, 1));
    ein__ex term = ein__ex_read(ctx, x, 0, at, 2);
    if (random_in(0, 1))
        term = ein__ex_binary(ctx, EIN__MUL, ein__ex_idx(ctx, ein__ix_mod(ctx, h, by)), term);
    if (random_in(0, 2) == 0) term = ein__ex_binary(ctx, EIN__DIV, term, ein__ex_const(ctx, 4));
    if (random_in(0, 2) == 0) {
        ein__ix other[2] = {at[0], h};
        term = ein__ex_binary(ctx, EIN__SUB, term, ein__ex_read(ctx, x, 0, other, 2));
    }
    if (random_in(0, 2) == 0) term = ein__ex_unary(ctx, EIN__NEG, term);
    if (random_in(0, 1))
        term = ein__ex_when(ctx, ein__ix_addc(ctx, random_in(0, 2) ? c : h, random_in(-2, 1)),
                            random_in(1, 4), random_in(0, 7) == 0, term);
    return term;
}

// A product of weights and a sum of such terms, of weights and of what is the same everywhere.
static sides linear_operand(ein_ctx *ctx) {
    static const int in_w[] = {0, 2}, in_b[] = {0};
    int64_t box[2] = {random_in(2, 6), random_in(2, 9)}, n[3] = {random_in(1, 4), box[1], box[0]};
    ein__ex body = linear_term(ctx, box);
    for (int64_t i = random_in(0, 2); i > 0; i--)
        body = ein__ex_binary(ctx, EIN__ADD, body, linear_term(ctx, box));
    if (random_in(0, 2) == 0)
        body = ein__ex_binary(ctx, EIN__ADD, body, weights_of(ctx, box, in_b, 1));
    if (random_in(0, 3) == 0)
        body = ein__ex_binary(ctx, EIN__ADD, body, ein__ex_idx(ctx, ein__ix_iter(ctx, 1, box[1])));
    if (random_in(0, 9) == 0) body = ein__ex_unary(ctx, EIN__SQUARE, body);
    ein__val m = new_scope(ctx, "m", EIN__R_NONE, 2, 0, box, body);
    ein__ex w = weights_of(ctx, n, in_w, 2);
    if (!m.i) return NO_SIDES;
    ein__ix at[2] = {ein__ix_iter(ctx, 2, n[2]), ein__ix_iter(ctx, 1, n[1])};
    if (random_in(0, 3) == 0) at[1] = ein__ix_addc(ctx, at[1], random_in(-1, 0));
    ein__ex product = ein__ex_binary(ctx, EIN__MUL, w, ein__ex_read(ctx, m, 0, at, 2));
    if (random_in(0, 3) == 0)
        product = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, 1.5), product);
    return (sides){new_scope(ctx, "v", EIN__R_SUM, 2, 1, n, product), (ein__val){0}};
}

// A sum over places of a product, or of a map of it.
static sides pooled_product(ein_ctx *ctx) {
    static const int in_w[] = {0, 2}, in_b[] = {0}, in_x[] = {2, 1};
    int64_t n[3] = {random_in(1, 4), random_in(2, 9), random_in(1, 4)};
    ein__ex product =
        ein__ex_binary(ctx, EIN__MUL, weights_of(ctx, n, in_w, 2), factor_read(ctx, n, in_x, 2));
    ein__val c = new_scope(ctx, "c", EIN__R_SUM, 2, 1, n, product);
    if (!c.i) return NO_SIDES;
    ein__ix at[2] = {ein__ix_iter(ctx, 0, n[0]), ein__ix_iter(ctx, 1, n[1])};
    ein__ex body = ein__ex_read(ctx, c, 0, at, 2);
    if (random_in(0, 1)) body = ein__ex_binary(ctx, EIN__MUL, body, weights_of(ctx, n, in_b, 1));
    if (random_in(0, 1)) body = ein__ex_binary(ctx, EIN__SUB, weights_of(ctx, n, in_b, 1), body);
    if (random_in(0, 9) == 0) body = ein__ex_unary(ctx, EIN__SQUARE, body);
    if (random_in(0, 9) == 0) body = ein__ex_binary(ctx, EIN__MUL, body, ein__ex_idx(ctx, at[1]));
    ein__val m = new_scope(ctx, "m", EIN__R_NONE, 2, 0, n, body);
    int64_t step = random_in(1, 3), box[3] = {n[0], random_in(1, 4), random_in(1, 4)};
    if (random_in(0, 4)) box[1] = ein__most(1, (n[1] - box[2]) / step + 1);
    if (!m.i) return NO_SIDES;
    at[0] = ein__ix_iter(ctx, 0, box[0]);
    at[1] = ein__ix_add(ctx, ein__ix_scale(ctx, ein__ix_iter(ctx, 1, box[1]), step),
                        ein__ix_iter(ctx, 2, box[2]));
    if (random_in(0, 4) == 0) at[1] = ein__ix_addc(ctx, at[1], -1);
    ein__ex sum = ein__ex_read(ctx, random_in(0, 3) ? m : c, 0, at, 2);
    if (random_in(0, 1)) sum = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, 0.25), sum);
    return (sides){new_scope(ctx, "v", EIN__R_SUM, 2, 1, box, sum), (ein__val){0}};
}

// A product with a window on what is side by side, of which something repeats.
static sides side_by_side(ein_ctx *ctx) {
    static const int in_w[] = {0, 2, 3};
    int64_t box[2] = {random_in(2, 5), 2 * random_in(2, 4)};
    int64_t n[4] = {random_in(1, 3), random_in(1, 8), box[0], random_in(1, 4)};
    ein__ex body = {0};
    for (int64_t i = 0, lo = 0, hi; lo < box[0]; lo = hi, i++) {
        hi = random_in(0, 1) ? box[0] : random_in(lo + 1, box[0]);
        ein__shape shape = {.rank = 2, .d = {hi - lo, box[1]}};
        ein__ix at[2] = {ein__ix_addc(ctx, ein__ix_iter(ctx, 0, box[0]), -lo),
                         ein__ix_iter(ctx, 1, box[1])};
        if (random_in(0, 2)) at[1] = ein__ix_floordiv(ctx, at[1], 2), shape.d[1] /= 2;
        ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
        ein__ex term = ein__ex_read(ctx, x, 0, at, 2);
        // Guards where what is read has a value outside.
        if (random_in(0, 3) == 0) term = ein__ex_unary(ctx, EIN__SQUARE, term);
        term = ein__ex_when(ctx, at[0], hi - lo, false, term);
        body = ein__add_scaled(ctx, body, random_in(0, 2) ? 1 : -2, term);
    }
    ein__val m = new_scope(ctx, "m", EIN__R_NONE, 2, 0, box, body);
    if (!m.i) return NO_SIDES;
    ein__ix r = ein__ix_iter(ctx, 3, n[3]), at[2] = {ein__ix_iter(ctx, 2, n[2])};
    at[1] = ein__ix_add(ctx, ein__ix_scale(ctx, ein__ix_iter(ctx, 1, n[1]), random_in(1, 2)), r);
    at[1] = ein__ix_addc(ctx, at[1], random_in(-2, 0));
    ein__ex product =
        ein__ex_binary(ctx, EIN__MUL, weights_of(ctx, n, in_w, 3), ein__ex_read(ctx, m, 0, at, 2));
    return (sides){new_scope(ctx, "v", EIN__R_SUM, 2, 2, n, product), (ein__val){0}};
}

static sides law_linear(ein_ctx *ctx, ein__val unused) {
    bool changed = false, beside = random_in(0, 2) == 0;
    sides z = beside            ? side_by_side(ctx)
              : random_in(0, 1) ? linear_operand(ctx)
                                : pooled_product(ctx);
    (void)unused;
    z.b = z.a;
    bool ok = z.a.i && (beside ? ein__part_beside : ein__move_linear)(ctx, &z.b, 1, &changed);
    return ok && changed ? z : NO_SIDES;
}
