// Tests of the algebra: index forms, expressions, the evaluators and printing, against plain
// evaluation written a second time.

// ------------------------------------------------------------------------------------ index forms

// Every point: the form has the tree's value, within the form's bounds where it is an integer.
static bool same_as_tree(ein_ctx *ctx, ein__ix ix, const tree *t, const int64_t *n, int slots,
                         int64_t *seen) {
    const ein__index *f = ein__ix_get(ctx, ix);
    int64_t it[EIN__MAX_ITERS] = {0};
    do {
        ratio r = eval_tree(t, it);
        int64_t x = plain_index(ctx, ix, it, NULL);
        if (x * r.q != r.x * f->q) return false;
        if (x % f->q == 0 && (x / f->q < f->lo || x / f->q > f->hi)) return false;
        ++*seen;
    } while (next_point(it, n, slots));
    return true;
}

static void fuzz_forms(int count) {
    ein_ctx *ctx = open_context();
    int64_t points = 0, kept = 0;
    for (int i = 0; i < count; i++) {
        int64_t n[EIN__MAX_ITERS];
        int slots = (int)random_in(1, 4);
        pool_used = 0;
        random_extents(n, slots, 500);
        const tree *t = random_tree((int)random_in(1, 5), slots, false);
        ein__ix ix = build_tree(ctx, t, n);
        if (ctx->status || i % 2000 == 1999) {
            // too many terms, or time for a fresh context
            if (!CHECK(ctx->status == EIN_OK || ctx->status == EIN_RESOURCES, "form %d: %s", i,
                       ein_error(ctx)))
                break;
            ein_close(ctx);
            ctx = open_context();
            if (!(ix = build_tree(ctx, t, n)).i) continue;
        }
        kept++;
        CHECK(same_as_tree(ctx, ix, t, n, slots, &points), "form %d differs or leaves its bounds",
              i);
    }
    ein_close(ctx);
    CHECK(kept * 10 > count * 9, "only %lld of %d forms fit", (long long)kept, count);
    CHECK(points > count, "the forms were evaluated");
}

// Substitution: the form at map(it), for integer replacements anywhere and others in linear places.
static void fuzz_substitution(int count) {
    ein_ctx *ctx = open_context();
    int64_t done = 0;
    for (int i = 0; i < count; i++) {
        int64_t n[EIN__MAX_ITERS], m[EIN__MAX_ITERS];
        random_extents(n, 2, 500);
        random_extents(m, 2, 200);
        pool_used = 0;
        const tree *t = random_tree(3, 2, false), *r[2];
        ein__ix map[2];
        for (int k = 0; k < 2; k++) {
            r[k] = random_tree(2, 2, random_in(0, 3) != 0);
            map[k] = build_tree(ctx, r[k], m);
        }
        ein__ix ix = build_tree(ctx, t, n);
        // Forms rely on the range of their iterators: keep replacements that stay inside.
        bool fits = ix.i && map[0].i && map[1].i;
        for (int k = 0; fits && k < 2; k++) {
            const ein__index *f = ein__ix_get(ctx, map[k]);
            fits = f->lo >= 0 && f->hi < n[k] && (n[k] > 1 || f->q == 1);
        }
        if (fits) {
            ein__ix s = ein__ix_subst(ctx, ix, map, 2);
            int64_t it[2] = {0};
            bool same = true;
            while (s.i && same) {
                ratio a = eval_tree(r[0], it), b = eval_tree(r[1], it);
                if (a.x % a.q == 0 && b.x % b.q == 0) {
                    ratio want = eval_tree(t, (int64_t[2]){a.x / a.q, b.x / b.q});
                    int64_t x = plain_index(ctx, s, it, NULL);
                    same = x * want.q == want.x * ein__ix_get(ctx, s)->q;
                }
                if (!next_point(it, m, 2)) break;
            }
            if (s.i) {
                CHECK(same, "substitution %d differs", i);
                done++;
            }
        }
        if (ctx->status || i % 2000 == 1999) {
            ein_close(ctx);
            ctx = open_context();
        }
    }
    ein_close(ctx);
    CHECK(done * 20 > count, "only %lld of %d substitutions fit", (long long)done, count);
}

#define SAME(x, y) CHECK((x).i && (x).i == (y).i, "two forms of one function have different ids")

static void test_laws(void) {
    ein_ctx *ctx = open_context();
    ein__ix h = ein__ix_iter(ctx, 0, 100), r = ein__ix_iter(ctx, 1, 7), p = ein__ix_iter(ctx, 2, 4);
    ein__ix e = ein__ix_addc(ctx, ein__ix_add(ctx, ein__ix_scale(ctx, h, 3), r), -5);
    for (int64_t d = 1; d < 12; d++) {
        ein__ix low = ein__ix_mod(ctx, e, d), high = ein__ix_floordiv(ctx, e, d);
        SAME(ein__ix_add(ctx, ein__ix_scale(ctx, high, d), low), e);
        SAME(ein__ix_mod(ctx, low, d), low);
        SAME(ein__ix_floordiv(ctx, high, 3), ein__ix_floordiv(ctx, e, 3 * d));
        SAME(ein__ix_mod(ctx, ein__ix_mod(ctx, e, 6 * d), d), low);
        SAME(ein__ix_floordiv(ctx, ein__ix_mod(ctx, e, 6 * d), d), ein__ix_mod(ctx, high, 6));
        // three digits meet again
        ein__ix mid = ein__ix_mod(ctx, high, 5), top = ein__ix_floordiv(ctx, high, 5);
        ein__ix all = ein__ix_add(ctx, ein__ix_scale(ctx, top, 5 * d), ein__ix_scale(ctx, mid, d));
        SAME(ein__ix_add(ctx, all, low), e);
        // multiples of d come out
        SAME(ein__ix_mod(ctx, ein__ix_add(ctx, e, ein__ix_scale(ctx, h, -2 * d)), d), low);
        SAME(ein__ix_floordiv(ctx, ein__ix_add(ctx, e, ein__ix_scale(ctx, h, d)), d),
             ein__ix_add(ctx, high, h));
    }
    // digits that are in range vanish
    ein__ix hp = ein__ix_add(ctx, ein__ix_scale(ctx, h, 4), p);
    SAME(ein__ix_floordiv(ctx, hp, 4), h);
    SAME(ein__ix_mod(ctx, hp, 4), p);
    SAME(ein__ix_mod(ctx, h, 100), h);
    SAME(ein__ix_floordiv(ctx, h, 100), ein__ix_const(ctx, 0));
    SAME(ein__ix_floordiv(ctx, ein__ix_addc(ctx, p, -4), 4), ein__ix_const(ctx, -1));
    // common factors, of the divisor too
    SAME(ein__ix_floordiv(ctx, ein__ix_addc(ctx, ein__ix_scale(ctx, h, 6), 3), 4),
         ein__ix_floordiv(ctx, ein__ix_addc(ctx, ein__ix_scale(ctx, h, 3), 1), 2));
    SAME(ein__ix_div(ctx, ein__ix_scale(ctx, hp, 6), 6), hp);
    SAME(ein__ix_div(ctx, ein__ix_div(ctx, e, 2), 3), ein__ix_div(ctx, e, 6));
    // affine in truth
    ein__ix x = ein__ix_iter(ctx, 3, 2);
    ein__ix flip = ein__ix_sub(ctx, x, ein__ix_mod(ctx, ein__ix_addc(ctx, x, 1), 2));
    SAME(ein__ix_div(ctx, ein__ix_addc(ctx, flip, 1), 2), x);
    SAME(ein__ix_iter(ctx, 5, 1), ein__ix_const(ctx, 0));
    CHECK(ein_get_status(ctx) == EIN_OK, "%s", ein_error(ctx));
    ein_close(ctx);
}

static void check_bounds(ein_ctx *ctx, ein__ix ix, int64_t lo, int64_t hi) {
    const ein__index *f = ein__ix_get(ctx, ix);
    CHECK(f->lo == lo && f->hi == hi, "bounds %lld..%lld, not %lld..%lld", (long long)f->lo,
          (long long)f->hi, (long long)lo, (long long)hi);
}

static void test_bounds(void) {
    ein_ctx *ctx = open_context();
    ein__ix h = ein__ix_iter(ctx, 0, 8), r = ein__ix_iter(ctx, 1, 3);
    check_bounds(ctx, ein__ix_sub(ctx, h, r), -2, 7);
    // rounded inwards: -2h + 5 over 3 is an integer at 1, 4 and 7
    check_bounds(ctx, ein__ix_div(ctx, ein__ix_addc(ctx, ein__ix_scale(ctx, h, -2), 5), 3), -3, 1);
    check_bounds(ctx, ein__ix_div(ctx, ein__ix_addc(ctx, ein__ix_sub(ctx, h, r), 1), 2), 0, 4);
    check_bounds(ctx, ein__ix_scale(ctx, h, -3), -21, 0);
    check_bounds(ctx, ein__ix_floordiv(ctx, ein__ix_scale(ctx, h, -1), 2), -4, 0);
    check_bounds(ctx, ein__ix_mod(ctx, ein__ix_addc(ctx, h, 1), 16), 1, 8);
    // no value is an integer
    const ein__index *never = ein__ix_get(ctx, ein__ix_div(ctx, ein__ix_const(ctx, 1), 2));
    CHECK(never->lo > never->hi, "1/2 has an integer value");
    never = ein__ix_get(ctx, ein__ix_div(ctx, ein__ix_addc(ctx, ein__ix_scale(ctx, h, 4), 3), 6));
    CHECK(never->lo > never->hi, "(4h + 3) / 6 has an integer value");
    CHECK(!ein__ix_add(ctx, (ein__ix){0}, h).i, "none + h is none");
    CHECK(ein_get_status(ctx) == EIN_OK, "%s", ein_error(ctx));
    // numbers beyond all bounds are an error, not an overflow
    ein__ix big = h;
    for (int i = 0; i < 8 && big.i; i++) big = ein__ix_scale(ctx, big, 1 << 20);
    CHECK(!big.i && ein_get_status(ctx) == EIN_RESOURCES, "a huge form was accepted");
    ein_close(ctx);
    ctx = open_context();
    ein__ix sum = ein__ix_const(ctx, 0);
    for (uint32_t k = 0; k < EIN__MAX_ITERS; k++)
        sum = ein__ix_add(ctx, sum, ein__ix_iter(ctx, k, 5));
    CHECK(!sum.i && ein_get_status(ctx) == EIN_RESOURCES, "a form of 16 terms was accepted");
    ein_close(ctx);
}

// ------------------------------------------------------------------------------------ expressions

static void fuzz_expressions(int count) {
    int done = 0;
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[EIN__MAX_ITERS], m2[EIN__MAX_ITERS];
        maker m = {.slots = (int)random_in(1, 3), .n = n};
        random_extents(n, m.slots, 60);
        make_tensors(ctx, &m);
        ein__ex body = random_body(&m, (int)random_in(1, 4));
        ein__ix map[EIN__MAX_ITERS];
        int slots;
        random_map(&m, map, m2, &slots);
        ein__ex s = ein__ex_subst(ctx, body, map, m.slots);
        double **data = new_data(ctx);
        int64_t it[EIN__MAX_ITERS] = {0};
        bool same = true;
        while (s.i && same) {
            int64_t at[EIN__MAX_ITERS];
            for (int k = 0; k < m.slots; k++) at[k] = plain_index(ctx, map[k], it, data);
            same = same_number(plain_expr(ctx, body, at, data), plain_expr(ctx, s, it, data));
            if (!next_point(it, m2, slots)) break;
        }
        if (s.i && !ctx->status && !m.failed) {
            CHECK(same, "expression %d differs after substitution", i);
            done++;
        }
        free_data(ctx, data);
        ein_close(ctx);
    }
    CHECK(done * 10 > count * 7, "only %d of %d expressions fit", done, count);
}

// Whether `product`, an expression of `m`, under the guard `ix` in [0, extent) is the same number
// as the constructor makes it; `absorbed` counts those that it makes without a guard.
static bool same_guarded(const maker *m, ein__ix ix, int64_t extent, ein__ex product,
                         int *absorbed) {
    ein_ctx *ctx = m->ctx;
    ein__expr raw = {
        .op = EIN__X_WHEN, .n = extent, .nkid = 1, .nix = 1, .kid = {product}, .ix = {ix}};
    ein__ex plain = ein__ex_intern(ctx, &raw), made = ein__ex_when(ctx, ix, extent, false, product);
    *absorbed += ein__ex_get(ctx, made)->op != EIN__X_WHEN;
    double **data = new_data(ctx);
    int64_t it[EIN__MAX_ITERS] = {0};
    bool same = true;
    do {
        same =
            same && same_number(plain_expr(ctx, plain, it, data), plain_expr(ctx, made, it, data));
    } while (next_point(it, m->n, m->slots));
    free_data(ctx, data);
    return same;
}

// Guards "q divides E - c" around products of reads at floor((E + r) / q): the constructor turns
// these into exact reads and drops the guard; the value stays.
static void fuzz_lattices(int count) {
    int absorbed = 0;
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[EIN__MAX_ITERS];
        maker m = {.slots = 3, .n = n, .flags = RANDOM_PLAIN_INDEX};
        random_extents(n, 3, 300);
        make_tensors(ctx, &m);
        int64_t q = random_in(2, 4), c = random_in(0, 4);
        ein__ix e = random_index(&m, true);
        ein__ix ix = ein__ix_div(ctx, ein__ix_addc(ctx, e, -c), q);
        int64_t first = ein__ix_get(ctx, ix)->lo, range = ein__ix_get(ctx, ix)->hi - first + 1;
        ix = ein__ix_addc(ctx, ix, -first + random_in(-1, 1) * random_in(0, 1));
        ein__ex product = random_body(&m, 1);
        for (int k = 0; k < 2; k++) {
            ein__ix num = ein__ix_addc(ctx, e, random_in(-c, q)),
                    at = ein__ix_floordiv(ctx, num, q);
            if (random_in(0, 2) == 0) at = ein__ix_div(ctx, num, q);
            ein__ix sub[2] = {ein__ix_addc(ctx, at, random_in(-1, 1)), random_index(&m, false)};
            product = ein__ex_binary(ctx, EIN__MUL, product,
                                     ein__ex_read(ctx, m.tensor[k], 0, sub, k + 1));
        }
        if (range > 0 && !ctx->status)
            CHECK(same_guarded(&m, ix, range + random_in(-1, 1), product, &absorbed),
                  "guard %d changed its product", i);
        ein_close(ctx);
    }
    CHECK(absorbed * 4 > count, "only %d of %d guards were absorbed", absorbed, count);
}

// Guards floor(E / d) == v around reads of what has E % d, or a neighbour, as its first dimension
// (or nearly): the constructor makes windows of these; the value stays.
static void fuzz_digit_guards(int count) {
    int absorbed = 0;
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[EIN__MAX_ITERS], d = random_in(2, 5);
        maker m = {.slots = 3, .n = n, .flags = RANDOM_PLAIN_INDEX};
        random_extents(n, 3, 300);
        make_tensors(ctx, &m);
        int64_t extent = d + (random_in(0, 4) ? 0 : random_in(-1, 1));
        ein__val t = new_input(ctx, "digits", 2, (int64_t[]){extent, 3}, EIN__F32);
        ein__ix e = random_index(&m, true), quotient = ein__ix_floordiv(ctx, e, d);
        int64_t lo = ein__ix_get(ctx, quotient)->lo, hi = ein__ix_get(ctx, quotient)->hi;
        ein__ix at = ein__ix_addc(ctx, ein__ix_mod(ctx, e, d), random_in(0, 5) ? 0 : 1);
        ein__ix sub[2] = {at, random_index(&m, false)};
        double pad = random_in(0, 5) ? 0 : 1;
        ein__ex product =
            ein__ex_binary(ctx, EIN__MUL, random_body(&m, 1), ein__ex_read(ctx, t, pad, sub, 2));
        ein__ix ix = ein__ix_addc(ctx, quotient, -random_in(lo, hi));
        if (!ctx->status)
            CHECK(same_guarded(&m, ix, random_in(0, 5) ? 1 : 2, product, &absorbed),
                  "guard %d changed its product", i);
        ein_close(ctx);
    }
    CHECK(absorbed * 4 > count, "only %d of %d guards were absorbed", absorbed, count);
}

// ------------------------------------------------------------------------------------ evaluation

static void check_value(ein_ctx *ctx, ein__val v, const char *what, int i) {
    double **data = new_data(ctx);
    if (CHECK(ein__eval_values(ctx, &v, 1, data), "%s %d: %s", what, i, ein_error(ctx))) {
        double *want = plain_value(ctx, v, data);
        int64_t at = difference(data[v.i], want, ein__elements(&ctx->value[v.i].shape));
        int64_t e = at < 0 ? 0 : at;
        CHECK(at < 0, "%s %d: element %lld is %g, not %g", what, i, (long long)e, data[v.i][e],
              want[e]);
        free(want);
    }
    free_data(ctx, data);
}

static ein__val random_scope(ein_ctx *ctx, maker *m, int64_t *n, const char *name) {
    int nt = (int)random_in(0, 3), ns = m->flags & RANDOM_MAP ? 0 : (int)random_in(0, 2);
    ein__red red = ns ? (ein__red)random_in(EIN__R_SUM, EIN__R_MIN) : EIN__R_NONE;
    m->slots = nt + ns;
    m->n = n;
    random_extents(n, m->slots, 400);
    if (m->slots == 0) {
        m->slots = 1;
        n[0] = 1;
    }
    ein__ex body = random_body(m, (int)random_in(1, 3));
    if (red == EIN__R_PROD) body = ein__ex_unary(ctx, EIN__TANH, body);
    return new_scope(ctx, name, red, nt, ns, n, body);
}

static void fuzz_scopes(int count) {
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[EIN__MAX_ITERS];
        maker m = {0};
        make_tensors(ctx, &m);
        ein__val v = random_scope(ctx, &m, n, "y");
        if (v.i && !ctx->status) check_value(ctx, v, "scope", i);
        ein_close(ctx);
    }
}

// sum x * w with padding, strides and denominators, strips longer than one chunk, both orders.
static void fuzz_products(int count) {
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[4] = {random_in(1, 3), random_in(0, 1) ? random_in(1, 9) : random_in(200, 600),
                        random_in(1, 4), random_in(0, 1) ? random_in(1, 5) : random_in(200, 600)};
        ein__val x =
            new_input(ctx, "x", 2, (int64_t[]){random_in(1, 4), random_in(1, 700)}, EIN__F32);
        ein__val w =
            new_input(ctx, "w", 2, (int64_t[]){random_in(1, 700), random_in(1, 4)}, EIN__F32);
        maker m = {.ctx = ctx, .slots = 4, .n = n, .flags = RANDOM_PLAIN_INDEX};
        ein__ix a[2] = {random_index(&m, true), random_index(&m, random_in(0, 3) != 0)};
        ein__ix b[2] = {random_index(&m, true), random_index(&m, true)};
        ein__ex body =
            ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, x, (double)random_in(0, 1), a, 2),
                           ein__ex_read(ctx, w, 0, b, 2));
        ein__val v = new_scope(ctx, "y", EIN__R_SUM, 2, 2, n, body);
        if (CHECK(v.i != 0, "%s", ein_error(ctx))) check_value(ctx, v, "product", i);
        ein_close(ctx);
    }
}

// ------------------------------------------------------------------------------------ text

// What lowering makes of equation `text`, which may read every value there is.
static ein__val lower_text(ein_ctx *ctx, const char *text) {
    ein__equation **eq = ein__parse_equations(ctx, text);
    ein__operand *list = NULL;
    ein__ranges ranges = {0};
    ein__val v = {0};
    for (uint32_t i = 1; i < arrlenu(ctx->value); i++) {
        ein__operand o = {.name = ctx->value[i].name, .val = {i}, .shape = ctx->value[i].shape};
        arrput(list, o);
    }
    if (eq && arrlen(eq) == 1 && ein__resolve(ctx, eq[0], list, NULL, &ranges)) {
        ein__lowerer l = {.ctx = ctx,
                          .eq = eq[0],
                          .operand = list,
                          .ranges = &ranges,
                          .base = eq[0]->result,
                          .node = -1,
                          .tensor = -1};
        v = ein__lower_equation(&l, eq[0]->result, EIN__F32);
    }
    arrfree(ranges.bound);
    arrfree(list);
    arrfree(eq);
    return v;
}

static char *print_value(ein_ctx *ctx, ein__val v) {
    ein__buf b = {0};
    ein__print_value(ctx, v, &b);
    return b.s;
}

// Values that print as themselves, or as `want`.
static void golden(const char *text, const char *want) {
    ein_ctx *ctx = open_context();
    new_input(ctx, "x", 4, (int64_t[]){1, 3, 8, 8}, EIN__F32);
    new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    new_input(ctx, "a \"b\"", 2, (int64_t[]){8, 5}, EIN__F32);
    new_input(ctx, "s", 0, NULL, EIN__F32);
    new_input(ctx, "at", 1, (int64_t[]){8}, EIN__I32);
    ein__val k = new_input(ctx, "k", 4, (int64_t[]){2, 3, 3, 3}, EIN__F32);
    ctx->value[k.i].weight_only = true;
    ein__val v = lower_text(ctx, text);
    if (CHECK(v.i != 0, "%s: %s", text, ein_error(ctx))) {
        char *s = print_value(ctx, v);
        CHECK(!strcmp(s, want ? want : text), "printed  %s\n  wanted   %s", s, want ? want : text);
        EIN_FREE(s);
    }
    ein_close(ctx);
}

#define RANGE8 " where i0 in 0:8"

static void test_golden(void) {
    // a convolution, as a user writes it and as it prints
    golden(
        "y[n,f,h,w] = sum(c,r,s) x[n,c,h+r-1,w+s-1] * k[f,c,r,s] where h in 0:8, w in 0:8, pad x 0",
        "y[i0,i1,i2,i3] = sum(r0,r1,r2) x[0,r0,i2+r1-1,i3+r2-1] * k[i1,r0,r1,r2] where i0 in 0:1, "
        "i2 in 0:8, i3 in 0:8, pad x 0");
    // a transposed one: guards end the product
    golden("y[h] = sum(r) v[(h+1-r)/2] * s[] * [(h+1-r)%2 == 0] where h in 0:16, r in 0:4, pad v 0",
           "y[i0] = sum(r0) s[] * v[(i0-r0+1)/2] * [(i0-r0+1)%2 == 0] where i0 in 0:16, r0 in 0:4, "
           "pad v 0");
    golden("y[h] = v[(h-1)/2] * [h%2 == 1] where h in 0:17, pad v 0",
           "y[i0] = v[(i0-1)/2] * [(i0+1)%2 == 0] where i0 in 0:17, pad v 0");
    golden("y[i0] = max(r0) v[2*i0+r0-1] where i0 in 0:4, r0 in 0:3, pad v -inf", NULL);
    // precedence
    golden("y[i0] = (v[i0] + s[]) * v[i0]", "y[i0] = v[i0] * (s[] + v[i0])");
    golden("y[i0] = s[] - (v[i0] - 1)", NULL);
    golden("y[i0] = s[] - v[i0] - 1", NULL);
    golden("y[i0] = -(s[] * v[i0]) + 0.125", NULL);
    golden("y[i0] = -s[] * v[i0]", "y[i0] = v[i0] * -s[]");
    golden("y[i0] = 0.5 + s[] * v[i0] * 2 - 1", "y[i0] = s[] * v[i0] * 2 + 0.5 - 1");
    golden("y[i0] = 2.5 * v[i0] / (s[] / 3) + -1", NULL);
    golden("y[i0] = 1 / (s[] * v[i0])", NULL);
    golden("y[i0] = relu(tanh(v[i0]) + max(s[], 1e-05))", NULL);
    golden("y[i0] = pow(s[], min(inf, v[i0]))", "y[i0] = pow(s[], min(v[i0], inf))");
    golden("y[i0] = select(v[i0] < s[], 0.25 * v[i0], v[i0])", NULL);
    golden("y[] = s[] * idx(3)", "y[] = 3 * s[]");
    // subscripts
    golden("y[i0,i1] = v[i1+i0/2] where i0 in 0:8, i1 in 0:4", NULL);
    golden("y[i0,i1] = v[(3*i0+i1)%8] where i0 in 0:80, i1 in 0:40", NULL);
    golden("y[i0] = v[7-i0]" RANGE8, NULL);
    golden("y[i0] = v[(7-i0)/2]" RANGE8, "y[i0] = v[(i0+1)/2-i0+3]" RANGE8);
    golden("y[i0] = idx(i0-2*(i0/3)) * s[]" RANGE8, NULL);
    golden("y[i0,i1] = \"a \\\"b\\\"\"[@at[i0],i1]", NULL);
    // guards: both sides, one side, none that always holds; the opposite of a range takes a select
    golden("y[i0] = v[i0] * [i0 >= 2] * [i0 <= 5]", "y[i0] = v[i0] * [i0 <= 5] * [i0 >= 2]");
    golden("y[i0] = s[] * [i0 < 9] * [i0 > -3]" RANGE8, "y[i0] = s[]" RANGE8);
    golden("y[i0,i1] = s[] * [i0 == i1] where i0 in 0:8, i1 in 0:4", NULL);
    golden("y[i0,i1] = s[] * [i0+1 != i1] where i0 in 0:8, i1 in 0:12", NULL);
    golden("y[i0] = [i0%4 == 3]" RANGE8, "y[i0] = [(i0+1)%4 == 0]" RANGE8);
    golden("y[i0] = s[] * [i0%4 != 0] + 1" RANGE8, NULL);
    // names
    golden("y[i0_] = \"a \\\"b\\\"\"[i0_,0] where i0_ in 0:8", "y[i0] = \"a \\\"b\\\"\"[i0,0]");
}

// Operands of what commutes are put in order, whatever tells them apart.
static void test_operand_order(void) {
    ein_ctx *ctx = open_context();
    ein__val v = new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    ein__ix h = ein__ix_iter(ctx, 0, 8), near = ein__ix_addc(ctx, h, 1);
    ein__ex x = ein__ex_read(ctx, v, 0, &h, 1), half = ein__ex_const(ctx, 0.5);
    ein__ex next = ein__ex_const(ctx, 0.5 + 0x1p-53);
    ein__ex apart[] = {x,
                       half,
                       ein__ex_read(ctx, v, 0, &near, 1),
                       ein__ex_read(ctx, v, 0.5, &h, 1),
                       ein__ex_read(ctx, v, 0.5 + 0x1p-53, &h, 1),
                       ein__ex_binary(ctx, EIN__MUL, half, x),
                       ein__ex_binary(ctx, EIN__MUL, next, x)};
    int n = sizeof apart / sizeof *apart;
    for (int i = 0; i < n * n; i++) {
        ein__ex a = apart[i / n], b = apart[i % n];
        CHECK(ein__ex_binary(ctx, EIN__MAX, a, b).i == ein__ex_binary(ctx, EIN__MAX, b, a).i,
              "max of %d and %d in either order", i / n, i % n);
    }
    ein_close(ctx);
}

static void test_print_forms(void) {
    ein_ctx *ctx = open_context();
    int64_t n[2] = {8, 3};
    ein__val i0 = new_input(ctx, "i0", 1, (int64_t[]){8}, EIN__F32);
    ein__ix h = ein__ix_iter(ctx, 0, 8), r = ein__ix_iter(ctx, 1, 3), sum = ein__ix_add(ctx, h, r);
    struct {
        ein__ex body;
        const char *want;
    } row[] = {
        {ein__ex_read(ctx, i0, 0, &h, 1), "y[i0_,i1] = i0[i0_] where i1 in 0:3"},
        // two paddings of one tensor, and one off the lattice
        {ein__ex_binary(ctx, EIN__ADD, ein__ex_read(ctx, i0, 0, &sum, 1),
                        ein__ex_read(ctx, i0, 1, &sum, 1)),
         "y[i0_,i1] = i0[i0_+i1] + select([i0_+i1 <= 7] == 1, i0[i0_+i1], 1) where i0_ in 0:8, "
         "i1 in 0:3, pad i0 0"},
        {ein__ex_read(ctx, i0, -(double)INFINITY, (ein__ix[]){ein__ix_div(ctx, sum, 2)}, 1),
         "y[i0_,i1] = select([(i0_+i1)%2 == 0] == 1, i0[(i0_+i1)/2], -inf) where i0_ in 0:8, i1 in "
         "0:3, "
         "pad i0 -inf"},
        // outside of a range, and off a lattice or outside of a range
        {ein__ex_when(ctx, ein__ix_addc(ctx, sum, -2), 4, true, ein__ex_read(ctx, i0, 0, &h, 1)),
         "y[i0_,i1] = select([i0_+i1 <= 5] * [i0_+i1 >= 2] == 0, i0[i0_], 0) where i1 in 0:3"},
        {ein__ex_when(ctx, ein__ix_div(ctx, sum, 2), 3, true, ein__ex_const(ctx, 1)),
         "y[i0,i1] = select([(i0+i1)%2 == 0] * [i0+i1 <= 4] == 0, 1, 0) where i0 in 0:8, i1 in "
         "0:3"},
        {ein__ex_when(ctx, ein__ix_addc(ctx, sum, -2), 9, true, ein__ex_const(ctx, 1)),
         "y[i0,i1] = [i0+i1 <= 1] where i0 in 0:8, i1 in 0:3"},
        {ein__ex_binary(
             ctx, EIN__MUL,
             ein__ex_unary(ctx, EIN__NEG, ein__ex_when(ctx, h, 5, false, ein__ex_idx(ctx, r))),
             ein__ex_const(ctx, -0.5)),
         "y[i0,i1] = -0.5 * -(idx(i1) * [i0 <= 4]) where i0 in 0:8, i1 in 0:3"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *s = print_value(ctx, new_scope(ctx, "y", EIN__R_NONE, 2, 0, n, row[i].body));
        CHECK(!strcmp(s, row[i].want), "printed  %s\n  wanted   %s", s, row[i].want);
        EIN_FREE(s);
    }
    char *s = print_value(ctx, i0);
    CHECK(!strcmp(s, "input i0: f32[8]"), "printed %s", s);
    EIN_FREE(s);
    ein_close(ctx);
}

// Printed, read back, printed: the value is the same each time, and the text from the second time
// on.
static void fuzz_print(int count) {
    int same_text = 0, done = 0;
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[EIN__MAX_ITERS];
        maker m = {.flags = random_in(0, 1) ? RANDOM_MAP : RANDOM_PLAIN_INDEX};
        make_tensors(ctx, &m);
        ein__val v = random_scope(ctx, &m, n, "y");
        char *text[3] = {0};
        ein__val at[3] = {v};
        for (int k = 0; v.i && k < 3; k++) {
            text[k] = print_value(ctx, at[k]);
            if (k == 2) break;
            at[k + 1] = lower_text(ctx, text[k]);
            if (!CHECK(at[k + 1].i != 0, "%d: %s\n  %s", i, text[k], ein_error(ctx))) break;
        }
        if (text[2]) {
            double **data = new_data(ctx), *want = plain_value(ctx, v, data);
            bool ok = ein__eval_values(ctx, &at[1], 2, data);
            for (int k = 1; ok && k < 3; k++) {
                int64_t e = difference(data[at[k].i], want, ein__elements(&ctx->value[v.i].shape));
                CHECK(e < 0, "%d: element %lld of  %s", i, (long long)e, text[k - 1]);
            }
            CHECK(ok, "%s", ein_error(ctx));
            CHECK(!strcmp(text[1], text[2]), "%d: printed  %s\n  then     %s", i, text[1], text[2]);
            same_text += !strcmp(text[0], text[1]);
            done++;
            free(want);
            free_data(ctx, data);
        }
        for (int k = 0; k < 3; k++) EIN_FREE(text[k]);
        ein_close(ctx);
    }
    CHECK(same_text * 3 > done * 2, "only %d of %d printed the same at once", same_text, done);
}

// ------------------------------------------------------------------------------------ pitfalls

// What went wrong, or nearly did, in engines of this kind: each line a law that looks right.
static void test_pitfalls(void) {
    ein_ctx *ctx = open_context();
    ein__val x = new_input(ctx, "x", 1, (int64_t[]){9}, EIN__F32);
    ein__val one = new_input(ctx, "one", 1, (int64_t[]){1}, EIN__F32);
    ein__ix h = ein__ix_iter(ctx, 0, 6), r = ein__ix_iter(ctx, 1, 4);
    int64_t n[2] = {6, 4};
    double **data = new_data(ctx);
    data[one.i][0] = 7;

    // A dimension of extent 1 is not a unit dimension: elsewhere it reads as padding.
    ein__ex e = ein__ex_read(ctx, one, 0, (ein__ix[]){ein__ix_addc(ctx, h, -2)}, 1);
    for (int64_t i = 0; i < 6; i++)
        CHECK(plain_expr(ctx, e, &i, data) == (i == 2 ? 7 : 0), "one[h-2] at %d", (int)i);
    ein__val y = new_scope(ctx, "y", EIN__R_NONE, 1, 0, n, e);
    if (CHECK(ein__eval_values(ctx, &y, 1, data), "%s", ein_error(ctx)))
        CHECK(data[y.i][2] == 7 && data[y.i][1] == 0 && data[y.i][3] == 0, "one[h-2], interpreted");

    // 2t with t = (h+1-r)/2 loses the lattice; a guard keeps it.
    ein__ix t = ein__ix_div(ctx, ein__ix_addc(ctx, ein__ix_sub(ctx, h, r), 1), 2);
    ein__ix two_t = ein__ix_scale(ctx, ein__ix_iter(ctx, 0, 4), 2);
    ein__val v =
        new_scope(ctx, "v", EIN__R_NONE, 1, 0, (int64_t[]){4}, ein__ex_read(ctx, x, 0, &two_t, 1));
    ein__ex through = ein__ex_read(ctx, v, 0, &t, 1);
    ein__ex merged = ein__ex_subst(ctx, ein__sc_get(ctx, ctx->value[v.i].scope)->body, &t, 1);
    ein__ex guarded = ein__ex_when(ctx, t, 4, false, merged);
    CHECK(ein__ex_get(ctx, merged)->op == EIN__X_READ &&
              ein__ix_get(ctx, ein__ex_get(ctx, merged)->ix[0])->q == 1,
          "2t is an integer form");
    ein__val a = new_scope(ctx, "a", EIN__R_NONE, 2, 0, n, through);
    ein__val b = new_scope(ctx, "b", EIN__R_NONE, 2, 0, n, merged);
    ein__val c = new_scope(ctx, "c", EIN__R_NONE, 2, 0, n, guarded);
    CHECK(!ein__evalp_equal(ctx, a, b, 0, 1), "a lost lattice went unnoticed");
    CHECK(ein__evalp_equal(ctx, a, c, 0, 1), "the guard does not keep the lattice");

    // Half an iterator has no floor.
    ein__ix half = ein__ix_div(ctx, ein__ix_iter(ctx, 0, 70), 2);
    ein__ix floored = ein__ix_floordiv(ctx, ein__ix_iter(ctx, 0, 70), 3);
    CHECK(!ein__ix_subst(ctx, floored, &half, 1).i && ein_get_status(ctx) == EIN_OK,
          "floor(h / 2 / 3)");

    // A guard is dropped only where a read implies all of it, and a range that the form cannot
    // reach is implied.
    ein__ex read = ein__ex_read(ctx, x, 0, (ein__ix[]){ein__ix_addc(ctx, t, 1)}, 1);
    CHECK(ein__ex_when(ctx, t, 2, false, read).i != read.i, "a narrower guard was dropped");
    CHECK(ein__ex_when(ctx, ein__ix_addc(ctx, t, 1), 5, false, read).i == read.i,
          "an implied guard stayed");
    CHECK(ein__ex_when(ctx, ein__ix_addc(ctx, t, 2), 5, false, read).i != read.i,
          "a shifted guard was dropped");
    ein__ex padded = ein__ex_read(ctx, x, 1, (ein__ix[]){ein__ix_addc(ctx, t, 1)}, 1);
    CHECK(ein__ex_when(ctx, ein__ix_addc(ctx, t, 1), 5, false, padded).i != padded.i,
          "padding of 1 does not imply a guard");

    // Where the digit above is known, what has the one below as a dimension is read in a window.
    ein__val four = new_input(ctx, "four", 1, (int64_t[]){4}, EIN__F32);
    ein__ix i = ein__ix_iter(ctx, 0, 12),
            first = ein__ix_addc(ctx, ein__ix_floordiv(ctx, i, 4), -1);
    ein__ix below = ein__ix_mod(ctx, i, 4), window = ein__ix_addc(ctx, i, -4);
    ein__ex digit = ein__ex_read(ctx, four, 0, &below, 1);
    ein__ex second = ein__ex_read(ctx, four, 0, &window, 1);
    CHECK(ein__ex_when(ctx, first, 1, false, digit).i == second.i, "four[i%%4] * [i/4 == 1]");
    CHECK(ein__ex_get(ctx, ein__ex_when(ctx, first, 2, false, digit))->op == EIN__X_WHEN,
          "four[i%%4] * [i/4 >= 1]");

    // Denominators that never divide: the read is its padding, the guard false.
    ein__ix odd = ein__ix_div(ctx, ein__ix_addc(ctx, ein__ix_scale(ctx, h, 2), 1), 2);
    double pad = 0;
    CHECK(ein__ex_is_const(ctx, ein__ex_read(ctx, x, 3, &odd, 1), &pad) && pad == 3, "x[(2h+1)/2]");
    CHECK(ein__ex_is_const(ctx, ein__ex_when(ctx, odd, 99, false, read), &pad) && pad == 0,
          "[(2h+1)/2]");
    CHECK(ein__ex_when(ctx, odd, 99, true, read).i == read.i, "the opposite of [(2h+1)/2]");
    CHECK(ein_get_status(ctx) == EIN_OK, "%s", ein_error(ctx));
    free_data(ctx, data);
    ein_close(ctx);
}

// ------------------------------------------------------------------------------------ proofs

// Polynomials over integer inputs: the field and doubles compute the same integers.
static void fuzz_modular(int count) {
    static const ein__fn ring[] = {EIN__ADD, EIN__SUB, EIN__MUL};
    for (int i = 0; i < count; i++) {
        ein_ctx *ctx = open_context();
        int64_t n[EIN__MAX_ITERS];
        maker m = {.ctx = ctx, .slots = 3, .n = n, .flags = RANDOM_PLAIN_INDEX};
        ein__val in = new_input(ctx, "a", 2, (int64_t[]){5, 4}, EIN__I32);
        random_extents(n, 3, 100);
        // The field orders integers as usual, fractions anyhow.
        ein__red red = random_in(0, 3) ? EIN__R_SUM : EIN__R_MAX;
        ein__ex body = ein__ex_const(ctx, (double)random_in(-8, 8) / (red == EIN__R_SUM ? 8 : 1));
        for (int k = 0; k < 4; k++) {
            ein__ix ix[2] = {random_index(&m, false), random_index(&m, false)};
            ein__ex term = ein__ex_read(ctx, in, (double)random_in(0, 1), ix, 2);
            if (random_in(0, 2) == 0) term = ein__ex_idx(ctx, random_index(&m, true));
            if (random_in(0, 2) == 0)
                term = ein__ex_when(ctx, random_index(&m, false), 3, random_in(0, 1), term);
            body = ein__ex_binary(ctx, ring[random_in(0, 2)], body, term);
        }
        ein__val v = new_scope(ctx, "y", red, 2, 1, n, body);
        double **data = new_data(ctx);
        ein__proof z = {.ctx = ctx, .key = 7, .limit = EIN__PROOF_STEPS};
        ein__memo_open(&z);
        for (int64_t k = 0; k < 20; k++)
            data[in.i][k] = (double)ein__proof_input(&z, in.i, (uint64_t)k);
        bool same = ein__eval_values(ctx, &v, 1, data);
        int64_t at[2] = {0}, k = 0;
        do {
            same = same && ein__proof_value(&z, v.i, at) == ein__fp_number(&z, data[v.i][k++]);
        } while (next_point(at, n, 2));
        CHECK(same && !z.failed, "scope %d differs in the field: %s", i, ein_error(ctx));
        ein__memo_close(&z);
        free_data(ctx, data);
        ein_close(ctx);
    }
}

// Two programs, the last equation of each is compared.
static void prove(bool want, const char *first, const char *second) {
    ein_ctx *ctx = open_context();
    new_input(ctx, "x", 2, (int64_t[]){6, 8}, EIN__F32);
    new_input(ctx, "k", 2, (int64_t[]){6, 3}, EIN__F32);
    new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    new_input(ctx, "at", 1, (int64_t[]){5}, EIN__I32);
    const char *side[2] = {first, second};
    ein__val last[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        const char *s = side[i];
        while (*s) {
            size_t n = strcspn(s, "\n");
            last[i] = lower_text(ctx, ein__name_n(ctx, s, n));
            if (!CHECK(last[i].i != 0, "%s: %s", s, ein_error(ctx))) break;
            s += n + (s[n] != 0);
        }
    }
    if (last[0].i && last[1].i) {
        bool all = ein__evalp_equal(ctx, last[0], last[1], 0, 11);
        CHECK(all == want, "%s\n  and  %s\n  are %s", first, second, all ? "equal" : "different");
        if (want) CHECK(ein__evalp_equal(ctx, last[0], last[1], 5, 12), "%s at samples", first);
    }
    CHECK(ein_get_status(ctx) == EIN_OK, "%s", ein_error(ctx));
    ein_close(ctx);
}

static void test_proofs(void) {
    // a sum split in two, and its offsets
    prove(true, "y[h] = sum(c,r) x[c,h+r-1] * k[c,r] where h in 0:8, pad x 0",
          "w[r,t] = sum(c) x[c,t] * k[c,r]\nz[h] = sum(r) w[r,h+r-1] where h in 0:8, pad w 0");
    prove(false, "y[h] = sum(c,r) x[c,h+r-1] * k[c,r] where h in 0:8, pad x 0",
          "w[r,t] = sum(c) x[c,t] * k[c,r]\nz[h] = sum(r) w[r,h+r] where h in 0:8, pad w 0");
    // digits
    prove(true, "y[h] = sum(r) v[r] * [h > r] where h in 0:8",
          "z[h] = sum(p,q) v[2*p+q] * [h > 2*p+q] where h in 0:8, p in 0:4, q in 0:2");
    prove(false, "y[h] = sum(r) v[r] * [h > r] where h in 0:8",
          "z[h] = sum(p,q) v[2*p+q] * [h > 2*p+q] where h in 0:8, p in 0:4, q in 0:1");
    // numbers are exact
    prove(true, "y[h] = 0.375 * v[h] - 1.5", "z[h] = (v[h] - 4) * 3 / 8");
    prove(false, "y[h] = 0.1 * v[h]", "z[h] = v[h] / 10");
    prove(true, "y[h] = v[h] * v[h] - 1", "z[h] = (v[h] + 1) * (v[h] - 1)");
    prove(true, "y[h] = (v[h] + 2) / v[h]", "z[h] = 1 + 2 / v[h]");
    // functions without meaning in the field
    prove(true, "y[h] = exp(v[h] * v[h])", "z[h] = exp(square(v[h]))");
    prove(false, "y[h] = exp(v[h])", "z[h] = tanh(v[h])");
    prove(true, "y[h] = rsqrt(v[h])", "z[h] = 1 / sqrt(v[h])");
    prove(true, "y[h] = sigmoid(v[h])", "z[h] = 1 / (1 + exp(-v[h]))");
    // but for what they give at 0, as of padding
    prove(true, "y[h] = sqrt(v[h-2]) where h in 0:9, pad v 0",
          "w[t] = sqrt(v[t]) where t in 0:8\nz[h] = w[h-2] where h in 0:9, pad w 0");
    prove(true, "y[h] = erf(v[h-2]) where h in 0:9, pad v 0",
          "w[t] = erf(v[t]) where t in 0:8\nz[h] = w[h-2] where h in 0:9, pad w 0");
    prove(true, "y[h] = sigmoid(v[h-2]) where h in 0:9, pad v 0",
          "w[t] = sigmoid(v[t]) - 0.5 where t in 0:8\n"
          "z[h] = w[h-2] + 0.5 where h in 0:9, pad w 0");
    prove(false, "y[h] = exp(v[h-2]) where h in 0:9, pad v 0",
          "w[t] = exp(v[t]) where t in 0:8\nz[h] = w[h-2] where h in 0:9, pad w 0");
    // a lattice: max and min
    prove(true, "y[h] = max(r) v[2*h+r-1] where h in 0:4, r in 0:4, pad v -inf",
          "w[t] = max(p) v[2*t+p-1] where t in 0:5, p in 0:2, pad v -inf\n"
          "z[h] = max(w[h], w[h+1]) where h in 0:4");
    prove(false, "y[h] = max(r) v[2*h+r-1] where h in 0:4, r in 0:4, pad v -inf",
          "z[h] = max(r) v[2*h+r-1] where h in 0:4, r in 0:4, pad v 0");
    prove(true, "y[h] = max(v[h], -inf)", "z[h] = min(inf, v[h])");
    prove(true, "y[h] = relu(v[h])", "z[h] = select(v[h] < 0, 0, v[h])");
    prove(true, "y[] = min(h) v[h]",
          "w[h] = -v[h]\nu[] = max(h) w[h]\nz[] = min(h) max(v[h], v[h])");
    prove(false, "y[] = min(h) v[h]", "z[] = max(h) v[h]");
    // positions held by a tensor
    prove(true, "y[i,j] = x[@at[i],j] * v[j]", "w[c,j] = x[c,j] * v[j]\nz[i,j] = w[@at[i],j]");
    prove(false, "y[i,j] = x[@at[i],j] + v[j]", "w[c,j] = x[c,j] + v[j]\nz[i,j] = w[@at[i],j]");
    prove(true, "y[h] = select(idx(h) < 3, v[h], 0)", "z[h] = v[h] * [h < 3]");
}

// What differs at a border alone is met by few samples.
static void test_borders(void) {
    static const char *const border[] = {"[h < 1]",           "[h >= 999]",
                                         "[w < 1]",           "[w >= 999]",
                                         "[h < 1] * [w < 1]", "[h >= 999] * [w >= 999]"};
    for (size_t i = 0; i < sizeof border / sizeof *border; i++) {
        char text[128];
        ein_ctx *ctx = open_context();
        new_input(ctx, "u", 1, (int64_t[]){1000}, EIN__F32);
        new_input(ctx, "v", 1, (int64_t[]){1000}, EIN__F32);
        ein__val a = lower_text(ctx, "a[h,w] = u[h] * v[w]");
        snprintf(text, sizeof text, "b[h,w] = u[h] * (v[w] + %s)", border[i]);
        ein__val b = lower_text(ctx, ein__name_n(ctx, text, strlen(text)));
        if (CHECK(a.i && b.i, "%s", ein_error(ctx)))
            CHECK(!ein__evalp_equal(ctx, a, b, 3, 5), "the difference at %s", border[i]);
        ein_close(ctx);
    }
}

// A cut: below it values are taken as random, whatever they are defined as.
static void test_fresh(void) {
    ein_ctx *ctx = open_context();
    new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    ein__val w = lower_text(ctx, "w[h] = exp(v[h])");
    ein__val a = lower_text(ctx, "a[h] = w[h] * w[h]");
    ein__val b = lower_text(ctx, "b[h] = exp(v[h]) * w[h]");
    if (CHECK(w.i && a.i && b.i, "%s", ein_error(ctx))) {
        uint32_t fresh[8] = {0};
        CHECK(ein__evalp_equal(ctx, a, b, 0, 3), "w is exp(v)");
        fresh[w.i] = w.i;
        CHECK(!ein__evalp_equal_from(ctx, a, b, 0, 3, fresh), "w is anything");
    }
    ein_close(ctx);
}

// ------------------------------------------------------------------------------------ limits

static void test_limits(void) {
    ein_ctx *ctx = open_context();
    new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    ein__val kept = lower_text(ctx, "a[h] = v[h] + 1"), big = {0};
    ein__val y = lower_text(ctx, "y[h] = a[h] * a[h]");
    double **data = new_data(ctx);
    if (CHECK(kept.i && y.i, "%s", ein_error(ctx))) {
        CHECK(ein__eval_values(ctx, &y, 1, data), "%s", ein_error(ctx));
        CHECK(data[y.i] && !data[kept.i], "only what is wanted stays");
        big = lower_text(ctx, "z[i,j,h] = y[h] where i in 0:100000, j in 0:100000");
    }
    if (CHECK(big.i != 0, "%s", ein_error(ctx)))
        CHECK(!ein__eval_values(ctx, &big, 1, data) && ein_get_status(ctx) == EIN_RESOURCES &&
                  !data[big.i],
              "640 GB were found");
    free_data(ctx, data);
    ein_close(ctx);

    ctx = open_context();
    new_input(ctx, "v", 1, (int64_t[]){8}, EIN__F32);
    ein__val a = lower_text(ctx, "a0[h] = v[h] + 1");
    for (int i = 1; i < 3000 && a.i; i++)
        a = lower_text(ctx, ein__namef(ctx, "a%d[h] = a%d[h] + 1", i, i - 1));
    data = new_data(ctx);
    if (CHECK(a.i && ein__eval_values(ctx, &a, 1, data), "%s", ein_error(ctx)))
        CHECK(fabs(data[a.i][3] - data[1][3] - 3000) < 1e-9, "a chain of 3000 values");
    CHECK(!ein__evalp_equal(ctx, a, a, 0, 1) && ein_get_status(ctx) == EIN_RESOURCES,
          "a proof over 3000 values");
    free_data(ctx, data);
    ein_close(ctx);
}

// Every value of a model at its small sizes is what its text says.
static void check_model(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) fclose(f);
    ein_ctx *ctx = ein_open(&(ein_desc){.small = true});
    if (!ctx) exit(5);
    ein_add_model(ctx, path, text, n);
    bool ok = !ein_get_status(ctx) && ein__lower(ctx);
    CHECK(ok, "%s", ein_error(ctx));
    size_t count = arrlenu(ctx->value);
    for (uint32_t v = 1; ok && v < count; v++) {
        if (ctx->value[v].kind != EIN__V_SCOPE) continue;
        char *s = print_value(ctx, (ein__val){v});
        ein__val w = lower_text(ctx, s);
        // Names that the text defined once more are not to be read by the next one.
        for (size_t k = count; k < arrlenu(ctx->value); k++) ctx->value[k].name = "";
        ok = CHECK(w.i && ctx->value[w.i].scope.i == ctx->value[v].scope.i, "%s: %s\n  %s", path, s,
                   ein_error(ctx));
        EIN_FREE(s);
    }
    ein_close(ctx);
}

// Numbers of dims may be as large as they can be written.
static void test_division(void) {
    static const int64_t a[] = {INT64_MIN, INT64_MIN + 1, -7, -1, 0, 1, 7, INT64_MAX};
    static const int64_t b[] = {1, 2, 3, 7, INT64_MAX};
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        for (size_t k = 0; k < sizeof b / sizeof *b; k++) {
            int64_t rest = ein__floormod(a[i], b[k]), whole = ein__floordiv(a[i], b[k]), back;
            bool over = __builtin_mul_overflow(whole, b[k], &back);
            CHECK(rest >= 0 && rest < b[k], "a rest of %lld", (long long)rest);
            CHECK(over || back + rest == a[i], "%lld / %lld", (long long)a[i], (long long)b[k]);
        }
}

static void test_algebra(void) {
    const char *all = getenv("LONG");
    const int share = all && *all ? 1 : 3;  // what a short run has of it
    test_division();
    fuzz_forms(24000 / share);
    fuzz_substitution(20000 / share);
    test_laws();
    test_bounds();
    fuzz_expressions(4000 / share);
    fuzz_digit_guards(3000 / share);
    fuzz_lattices(4000 / share);
    fuzz_scopes(3000 / share);
    fuzz_products(300 / share);
    test_golden();
    test_operand_order();
    test_print_forms();
    fuzz_print(3000 / share);
    test_pitfalls();
    fuzz_modular(1000 / share);
    test_proofs();
    test_borders();
    test_fresh();
    test_limits();
}
