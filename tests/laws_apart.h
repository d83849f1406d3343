// The law of dimensions taken apart (apart.c): on programs that count them together and take them
// apart again. Included by laws.h.

// The law of what nothing reads (rule_needed.c): of contraction `v` and a map of it parts are read,
// places and a few of them, perhaps beyond the end.
static sides law_needed(ein_ctx *ctx, ein__val v) {
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__ix at[EIN__MAX_RANK], few[EIN__MAX_RANK], one[EIN__MAX_RANK];
    ein__scope box = {.nt = 0};
    for (uint32_t k = 0; k < s.nt; k++) {
        int64_t n = random_in(1, s.n[k]), place = random_in(0, s.n[k] - 1);
        at[k] = ein__ix_iter(ctx, k, s.n[k]);
        one[k] = few[k] = ein__ix_const(ctx, place);
        if (random_in(0, 2) == 0) continue;
        few[k] = ein__ix_iter(ctx, box.nt, n);
        few[k] = ein__ix_addc(ctx, few[k], random_in(0, s.n[k] - n) - (random_in(0, 5) == 0));
        box.n[box.nt++] = n;
    }
    ein__ex body = random_linear(ctx, &s, ein__ex_read(ctx, v, 0, at, (int)s.nt));
    ein__val m = map_of(ctx, "m", &s, body);
    if (!m.i) return NO_SIDES;
    body = ein__ex_read(ctx, m, 2.5, few, (int)s.nt);
    if (random_in(0, 1))
        body = ein__ex_binary(ctx, EIN__ADD, body, ein__ex_read(ctx, v, 0, one, (int)s.nt));
    ein__val y = map_of(ctx, "y", &box, body), root = y;
    bool less, ok = y.i && ein__leave_out(ctx, &root, 1, &less);
    return ok && less ? (sides){y, root} : NO_SIDES;
}

// The law of gates (rule_gate.c): of contraction `v` a map reads two halves, perhaps one of them
// twice.
static sides law_gate(ein_ctx *ctx, ein__val v) {
    const ein__scope s = *ein__scope_of(ctx, v);
    uint32_t half = s.nt ? (uint32_t)random_in(0, s.nt - 1) : 0;
    ein__scope box = {.nt = s.nt};
    ein__ix at[EIN__MAX_RANK];
    if (!s.nt || s.n[half] % 2) return NO_SIDES;
    for (uint32_t k = 0; k < s.nt; k++) {
        box.n[k] = k == half ? s.n[k] / 2 : s.n[k];
        at[k] = ein__ix_iter(ctx, k, box.n[k]);
    }
    ein__ex low = ein__ex_read(ctx, v, 0, at, (int)s.nt);
    at[half] = ein__ix_addc(ctx, at[half], box.n[half]);
    ein__ex high = ein__ex_read(ctx, v, 0, at, (int)s.nt);
    ein__ex body = ein__ex_binary(ctx, random_in(0, 1) ? EIN__MUL : EIN__SUB, low, high);
    if (random_in(0, 1)) body = ein__ex_binary(ctx, EIN__ADD, body, low);
    ein__val y = map_of(ctx, "y", &box, body), root = y;
    bool changed, ok = y.i && ein__part_gates(ctx, &root, 1, &changed);
    return ok && changed ? (sides){y, root} : NO_SIDES;
}

// Digits of iterator `slot`, of which `size` are the extents, the last one counting ones; or all
// but the first as one. Gives how many there are.
static int digits_of(ein_ctx *ctx, uint32_t slot, const int64_t *size, bool two, int64_t *extent,
                     ein__ix *ix) {
    ein__ix it = ein__ix_iter(ctx, slot, size[0] * size[1] * size[2]);
    int64_t below = size[1] * size[2];
    extent[0] = size[0];
    ix[0] = ein__ix_floordiv(ctx, it, below);
    extent[1] = two ? below : size[1];
    ix[1] = two ? ein__ix_mod(ctx, it, below)
                : ein__ix_mod(ctx, ein__ix_floordiv(ctx, it, size[2]), size[1]);
    extent[2] = size[2];
    ix[2] = ein__ix_mod(ctx, it, size[2]);
    return two ? 2 : 3;
}

// Map `m` with its rows read at a number of digits: in the order of the last digit first, or with
// two iterators that have one digit and two.
static sides shuffled_rows(ein_ctx *ctx, ein__val m, const int64_t *size) {
    int64_t rows = size[0] * size[1] * size[2], cols = ctx->value[m.i].shape.d[1];
    int64_t below = size[1] * size[0], box[3] = {rows, cols};
    bool two = random_in(0, 1);
    ein__ix high, low, at[2];
    if (two) box[0] = size[2], box[1] = below, box[2] = cols;
    ein__ix it = ein__ix_iter(ctx, 0, box[0]);
    high = two ? it : ein__ix_floordiv(ctx, it, below);
    low = two ? ein__ix_iter(ctx, 1, below) : ein__ix_mod(ctx, it, below);
    // size[0] * size[1] numbers, the digits of which change places.
    low = ein__ix_add(ctx, ein__ix_scale(ctx, ein__ix_mod(ctx, low, size[0]), size[1]),
                      ein__ix_floordiv(ctx, low, size[0]));
    at[0] = ein__ix_add(ctx, ein__ix_scale(ctx, low, size[2]), high);
    at[1] = ein__ix_iter(ctx, two ? 2 : 1, cols);
    ein__val y =
        new_scope(ctx, "y", EIN__R_NONE, two ? 3 : 2, 0, box, ein__ex_read(ctx, m, 2.5, at, 2));
    ein__val root = y;
    bool alone = random_in(0, 1);
    ctx->numbering = true;
    bool made = y.i && (alone ? ein__take_numbers_apart(ctx, &root, 1)
                              : ein__take_apart(ctx, &root, 1, EIN__APART_NUMBERS));
    return made && root.i != y.i ? (sides){y, root} : NO_SIDES;
}

// A product whose rows are read by digits, a map over it, and one that takes the rows apart,
// perhaps beyond their end.
static sides law_apart(ein_ctx *ctx, ein__val unused) {
    int64_t size[3] = {random_in(2, 4), random_in(1, 3), random_in(2, 4)}, n[8], box[8];
    int64_t cols = random_in(1, 3), rows = size[0] * size[1] * size[2], below = size[1] * size[2];
    ein__shape shape = {0};
    ein__ix ix[4], at[3];
    (void)unused;
    n[0] = rows, n[1] = cols, n[2] = random_in(1, 4);
    shape.rank = digits_of(ctx, 0, size, random_in(0, 1), shape.d, ix);
    ix[shape.rank] = ein__ix_iter(ctx, 2, n[2]);
    shape.d[shape.rank++] = n[2];
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    static const int in_w[] = {0, 1, 2};
    bool batch = random_in(0, 1);
    ein__ex w = factor_read(ctx, n, in_w + !batch, 2 + batch);
    ein__ex product = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, x, 0, ix, shape.rank), w);
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 2, 1, n, product);
    for (uint32_t k = 0; k < 2; k++) at[k] = ein__ix_iter(ctx, k, n[k]);
    if (!v.i) return NO_SIDES;
    ein__ex body = random_linear(ctx, ein__scope_of(ctx, v), ein__ex_read(ctx, v, 0, at, 2));
    if (random_in(0, 1)) body = ein__ex_binary(ctx, EIN__ADD, body, ein__ex_idx(ctx, at[0]));
    ein__val m = map_of(ctx, "m", &(ein__scope){.nt = 2, .n = {n[0], n[1]}}, body);
    if (!m.i) return NO_SIDES;
    if (random_in(0, 2) == 0) return shuffled_rows(ctx, m, size);
    box[0] = size[0] + random_in(0, 1), box[1] = below, box[2] = cols;
    at[0] = ein__ix_scale(ctx, ein__ix_iter(ctx, 0, box[0]), below);
    at[0] = ein__ix_add(ctx, at[0], ein__ix_iter(ctx, 1, below));
    at[1] = ein__ix_iter(ctx, 2, cols);
    ein__val y = new_scope(ctx, "y", EIN__R_NONE, 3, 0, box, ein__ex_read(ctx, m, 2.5, at, 2));
    ein__val root = y;
    bool made =
        y.i && ein__take_apart(ctx, &root, 1, random_in(0, 1) ? EIN__APART : EIN__APART_SUMS);
    return made && root.i != y.i ? (sides){y, root} : NO_SIDES;
}

// Where a map of box `n` reads another box of as many places: the number of its iterators, from any
// place on or backwards, taken apart by `size`.
static void moved_places(ein_ctx *ctx, const int64_t *n, const int64_t *size, ein__ix *at) {
    int64_t all = size[0] * size[1];
    ein__ix number = ein__ix_scale(ctx, ein__ix_iter(ctx, 0, n[0]), n[1]);
    number = ein__ix_add(ctx, number, ein__ix_iter(ctx, 1, n[1]));
    if (random_in(0, 1)) number = ein__ix_addc(ctx, ein__ix_scale(ctx, number, -1), all - 1);
    else number = ein__ix_mod(ctx, ein__ix_addc(ctx, number, random_in(0, all - 1)), all);
    at[0] = ein__ix_floordiv(ctx, number, size[1]);
    at[1] = ein__ix_mod(ctx, number, size[1]);
}

// The law of what is read at places that its reader has in another way (turn.c): a product with
// weights.
static sides law_turn_product(ein_ctx *ctx) {
    static const int in_a[] = {0, 1, 3}, in_w[] = {2, 3};
    int64_t n[4], box[3] = {random_in(1, 4), random_in(1, 4), random_in(1, 3)};
    ein__ix at[3];
    n[1] = random_in(1, 2) == 1 ? box[0] : 1;
    n[0] = box[0] * box[1] / n[1], n[2] = box[2], n[3] = random_in(1, 4);
    ein__ex a = factor_read(ctx, n, in_a, 3), w = factor_read(ctx, n, in_w, 2);
    ctx->value[ein__ex_get(ctx, w)->val].weight_only = true;
    ein__val v = new_scope(ctx, "v", EIN__R_SUM, 3, 1, n, ein__ex_binary(ctx, EIN__MUL, a, w));
    if (!v.i) return NO_SIDES;
    moved_places(ctx, box, n, at);
    at[2] = ein__ix_iter(ctx, 2, box[2]);
    ein__scope map = {.nt = 3, .n = {box[0], box[1], box[2]}};
    ein__ex other =
        ein__ex_binary(ctx, EIN__ADD, weight_read(ctx, &map), ein__ex_read(ctx, v, 0, at, 3));
    return law_pass(ctx, map_of(ctx, "m", &map, random_linear(ctx, &map, other)), EIN__RULE_TURN);
}

// Two statistics of rows, the second one perhaps of what the first one leaves, which a map reads
// beside the rows: all of them, or also some before the first and behind the last one, which are
// padding.
static sides law_turn_rows(ein_ctx *ctx) {
    int64_t box[3] = {random_in(1, 4), random_in(1, 4), random_in(8, 10)}, n[8], size[2];
    ein__ix at[3], row[2], own[3];
    size[1] = random_in(1, 2) == 1 ? box[0] : 1;
    n[0] = size[0] = box[0] * box[1] / size[1];
    int64_t beyond = size[1] == 1 && random_in(0, 1) ? random_in(0, n[0] / 3) : 0;
    n[0] -= beyond, n[1] = size[1], n[2] = random_in(2, 4);
    ein__shape shape = {.rank = 3, .d = {n[0], n[1], box[2]}};
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    for (uint32_t k = 0; k < 3; k++) own[k] = ein__ix_iter(ctx, k, n[k]);
    ein__ex term = ein__ex_read(ctx, x, 0, own, 3);
    ein__val first = new_scope(ctx, "a", EIN__R_SUM, 2, 1, n, term);
    if (!first.i) return NO_SIDES;
    for (uint32_t k = 0; k < 2; k++) row[k] = own[k];
    ein__ex mean = random_in(0, 2) ? ein__ex_read(ctx, first, 0, row, 2) : ein__ex_const(ctx, 2);
    ein__ex rest = ein__ex_unary(ctx, EIN__SQUARE, ein__ex_binary(ctx, EIN__SUB, term, mean));
    ein__val second = new_scope(ctx, "b", random_in(0, 1) ? EIN__R_SUM : EIN__R_MAX, 2, 1, n, rest);
    if (!second.i) return NO_SIDES;
    moved_places(ctx, box, size, at);
    at[0] = ein__ix_addc(ctx, at[0], -random_in(0, beyond));
    at[2] = ein__ix_iter(ctx, 2, box[2]);
    double pad = beyond && random_in(0, 3) == 0 ? 1.5 : 0;
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, x, 1, at, 3),
                                  ein__ex_read(ctx, second, pad, at, 2));
    if (random_in(0, 2))
        body = ein__ex_binary(ctx, EIN__SUB, body, ein__ex_read(ctx, first, 0, at, 2));
    ein__scope map = {.nt = 3, .n = {box[0], box[1], box[2]}};
    return law_pass(ctx, map_of(ctx, "m", &map, body), EIN__RULE_TURN);
}

// A factor of terms of one axis of windows, now and then of an iterator of the result too.
static ein__ex axis_factor(ein_ctx *ctx, const int64_t *n, uint32_t nt, uint32_t ns) {
    uint32_t slot[2] = {nt + (uint32_t)random_in(0, ns - 1), (uint32_t)random_in(0, nt - 1)};
    ein__shape shape = {.rank = (int)random_in(1, 2)};
    ein__ix ix[2];
    for (int k = 0; k < shape.rank; k++) {
        shape.d[k] = n[slot[k]];
        ix[k] = ein__ix_iter(ctx, slot[k], n[slot[k]]);
    }
    ein__val g = new_input(ctx, "g", shape.rank, shape.d, EIN__F32);
    ein__ex read = ein__ex_read(ctx, g, 0, ix, shape.rank);
    return random_in(0, 1) ? ein__ex_unary(ctx, EIN__EXP, read) : read;
}

// Windows over some axes of a tensor, or of one's squares and others, turned around, with steps,
// beyond its box, of sums also with factors: one axis first.
static sides law_separate(ein_ctx *ctx, ein__val unused) {
    static const int64_t steps[] = {1, 1, 1, 2, 3, -1, -2};
    static const double pads[] = {0, 0, 1, 2.5};
    int64_t n[EIN__MAX_ITERS];
    ein__shape shape = {.rank = (int)random_in(2, 4)};
    ein__ix ix[EIN__MAX_RANK];
    uint32_t nt = (uint32_t)shape.rank, ns = 0, at;
    (void)unused;
    for (uint32_t k = 0; k < nt; k++) {
        n[k] = random_in(1, 5);
        shape.d[k] = random_in(1, 7);
        ix[k] = ein__ix_scale(ctx, ein__ix_iter(ctx, k, n[k]), steps[random_in(0, 6)]);
        ix[k] = ein__ix_addc(ctx, ix[k], random_in(-3, 3));
    }
    for (uint32_t k = 0; k < nt; k++) {
        if (random_in(0, 2) == 0) continue;
        n[nt + ns] = random_in(1, 4);
        ein__ix term = ein__ix_iter(ctx, nt + ns, n[nt + ns]);
        ix[k] = ein__ix_add(ctx, ix[k], ein__ix_scale(ctx, term, steps[random_in(0, 6)]));
        ns++;
    }
    ein__val x = ein__val_new(ctx, "x", EIN__V_INPUT, -1, (ein__sc){0}, &shape, EIN__F32, -1);
    ein__red reduce = (ein__red)random_in(EIN__R_SUM, EIN__R_MIN);
    ein__ex body = ein__ex_read(ctx, x, pads[random_in(0, 3)], ix, shape.rank);
    if (reduce == EIN__R_SUM && ns && random_in(0, 1)) {
        body = ein__ex_unary(ctx, EIN__SQUARE, body);
        int rank = (int)random_in(1, shape.rank);
        ein__val y = new_input(ctx, "y", rank, shape.d, EIN__F32);
        if (random_in(0, 1))
            body = ein__ex_binary(ctx, EIN__MUL, body, ein__ex_read(ctx, y, 0, ix, rank));
        if (random_in(0, 1)) body = ein__ex_when(ctx, ix[0], shape.d[0], false, body);
        for (int64_t i = random_in(0, 2); i > 0; i--)
            body = ein__ex_binary(ctx, EIN__MUL, axis_factor(ctx, n, nt, ns), body);
    }
    ein__val v = ns ? new_scope(ctx, "v", reduce, (int)nt, (int)ns, n, body) : (ein__val){0};
    if (!v.i) return NO_SIDES;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__pass z = {.ctx = ctx, .self = v};
    ein__windows of;
    ein__val w = {0}, line;
    if (!ein__match_windows(ctx, s, &of)) return NO_SIDES;
    for (uint32_t k = 0; k < of.at.nix && !w.i; k++)
        if (ein__is_separate(ctx, &of, k, &at)) w = ein__rule_separate(&z, v, &of, k, at, &line);
    arrfree(z.by_scope);
    return w.i ? (sides){v, w} : NO_SIDES;
}
