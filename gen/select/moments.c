// Two sums over the same terms as one pass: a mean and the variance about it, which is what group,
// instance and global normalizations begin with where a row is too long, or its dimensions too
// scattered, for one kernel with the map behind. With u[i,k] = x[i,k] - x[i,o] and n terms,
//     sum(k) x[i,k]        = n x[i,o] + sum(k) u[i,k]
//     sum(k) p(x[i,k], i)  = c0[i] n + c1[i] sum(k) u[i,k] + c2[i] sum(k) u[i,k]^2
// where p is a polynomial of degree 2 whose coefficients may read the first sum: substitution. A
// mean that is large beside the deviation costs no digits, as in norm.c; o is the middle, since
// what padding does to an image it does to the borders. Sums that do not depend on each other are
// taken together as they are. The two become a pair (pair.c) if that is cheaper.

// A polynomial of u, coefficients by degree; none: 0. Beside them x[i,o] so many times, apart since
// that goes away where a mean is taken from x.
typedef struct ein__quadratic {
    bool ok;
    ein__ex c[3];
    double origins;
} ein__quadratic;

typedef struct ein__summer {
    ein_ctx *ctx;
    const ein__scope *s;  // of the second sum
    ein__val first;
    ein__ex x, origin, one;  // the first sum's terms, x[i,o], the sum of u,
    ein__ex total;           // the first sum in terms of these
    bool dependent, failed;  // whether the first sum was read; elsewhere than at its own row
} ein__summer;

static ein__ex ein__quadratic_plus(ein_ctx *ctx, ein__ex a, ein__ex b) {
    return !a.i ? b : !b.i ? a : ein__ex_binary(ctx, EIN__ADD, a, b);
}

static void ein__quadratic_negate(ein_ctx *ctx, ein__quadratic *a) {
    for (int i = 0; i < 3; i++)
        if (a->c[i].i) a->c[i] = ein__ex_unary(ctx, EIN__NEG, a->c[i]);
    a->origins = -a->origins;
}

// With x[i,o] in its place among the coefficients.
static void ein__quadratic_settle(ein__summer *z, ein__quadratic *a) {
    if (a->origins == 0) return;
    ein__ex t = ein__ex_binary(z->ctx, EIN__MUL, ein__ex_const(z->ctx, a->origins), z->origin);
    a->c[0] = ein__quadratic_plus(z->ctx, a->c[0], t);
    a->origins = 0;
}

static ein__quadratic ein__quadratic_times(ein__summer *z, ein__quadratic *a, ein__quadratic *b) {
    ein__quadratic r = {.ok = a->ok && b->ok};
    ein__quadratic_settle(z, a);
    ein__quadratic_settle(z, b);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            if (!a->c[i].i || !b->c[j].i) continue;
            r.ok &= i + j < 3;
            if (!r.ok) return r;
            ein__ex t = ein__ex_binary(z->ctx, EIN__MUL, a->c[i], b->c[j]);
            r.c[i + j] = ein__quadratic_plus(z->ctx, r.c[i + j], t);
        }
    return r;
}

static ein__ex ein__first_sum(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__summer *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->val != z->first.i) return ex;
    for (uint32_t k = 0; k < e->nix; k++)
        z->failed |= e->ix[k].i != ein__ix_iter(ctx, k, z->s->n[k]).i;
    z->dependent = true;
    return z->total;
}

// The first sum divided by the number of terms: the mean of u, and x[i,o].
static bool ein__is_mean(ein__summer *z, ein__ex ex, ein__quadratic *mean) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    double n;
    if (e->op != EIN__X_BINARY || e->fn != EIN__DIV || !ein__ex_is_const(ctx, e->kid[1], &n))
        return false;
    const ein__expr *read = ein__ex_get(ctx, e->kid[0]);
    if (n != (double)ein__terms_of(z->s) || read->op != EIN__X_READ || read->val != z->first.i)
        return false;
    (void)ein__first_sum(ctx, z, e->kid[0]);
    *mean = (ein__quadratic){.ok = !z->failed, .origins = 1};
    mean->c[0] = ein__ex_binary(ctx, EIN__DIV, z->one, ein__ex_const(ctx, n));
    return true;
}

// `ex` of the second sum's terms as such a polynomial.
static ein__quadratic ein__quadratic_of(ein__summer *z, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__quadratic a = {.ok = true}, b;
    uint32_t rows = (1u << z->s->nt) - 1, fn = e->fn;
    ein__ex right = e->kid[1];
    bool binary = e->op == EIN__X_BINARY;
    if (ex.i == z->x.i) {
        a.origins = 1;
        a.c[1] = ein__ex_const(ctx, 1);
        return a;
    }
    if (ein__is_mean(z, ex, &a)) return a;
    if (!(ein__ex_uses(ctx, ex) & ~rows)) {
        a.c[0] = ein__ex_replace_reads(ctx, ex, ein__first_sum, z);
        a.ok = a.c[0].i && !z->failed;
        return a;
    }
    bool square = e->op == EIN__X_UNARY && fn == EIN__SQUARE, known = square;
    known |= e->op == EIN__X_UNARY && fn == EIN__NEG;
    known |= binary && (fn == EIN__ADD || fn == EIN__SUB || fn == EIN__MUL || fn == EIN__DIV);
    if (!known) return (ein__quadratic){.ok = false};
    a = ein__quadratic_of(z, e->kid[0]);
    if (!a.ok) return a;
    if (square) b = a;
    else b = binary ? ein__quadratic_of(z, right) : (ein__quadratic){.ok = true};
    if (square || (binary && fn == EIN__MUL)) return ein__quadratic_times(z, &a, &b);
    if (fn == EIN__DIV) {
        ein__quadratic_settle(z, &b);
        a.ok = b.ok && b.c[0].i && !b.c[1].i && !b.c[2].i;
        ein__quadratic_settle(z, &a);
        for (int i = 0; i < 3 && a.ok; i++)
            if (a.c[i].i) a.c[i] = ein__ex_binary(ctx, EIN__DIV, a.c[i], b.c[0]);
        return a;
    }
    if (fn != EIN__ADD) ein__quadratic_negate(ctx, binary ? &b : &a);
    for (int i = 0; i < 3; i++) a.c[i] = ein__quadratic_plus(ctx, a.c[i], b.c[i]);
    a.origins += b.origins;
    a.ok = b.ok;
    return a;
}

// A body of the sums' iterators, or of their rows', at those behind the one that says which sum.
static ein__ex ein__one_further(ein_ctx *ctx, const ein__scope *s, ein__ex body) {
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_iter(ctx, i + 1, s->n[i]);
    return ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
}

// [j == 0] a + [j == 1] b, where j is the first iterator and the others are those of `s`.
static ein__ex ein__either(ein_ctx *ctx, const ein__scope *s, ein__ex a, ein__ex b) {
    ein__ix j = ein__ix_iter(ctx, 0, 2);
    a = ein__one_further(ctx, s, a);
    b = ein__one_further(ctx, s, b);
    if (!a.i || !b.i) return (ein__ex){0};
    return ein__ex_binary(ctx, EIN__ADD, ein__ex_when(ctx, j, 1, false, a),
                          ein__ex_when(ctx, ein__ix_addc(ctx, j, -1), 1, false, b));
}

// A value of pairs, with the rows of `s` and, `sums`, its terms.
static ein__val ein__pair_value(ein_ctx *ctx, ein__val of, const ein__scope *s, bool sums,
                                const char *suffix, ein__ex body) {
    const ein__value old = ctx->value[of.i];
    ein__scope t = {.nt = s->nt + 1, .ns = sums ? s->ns : 0, .body = body};
    ein__shape shape = {.rank = (int)s->nt + 1};
    t.reduce = sums ? EIN__R_SUM : EIN__R_NONE;
    t.n[0] = 2;
    for (uint32_t i = 0; i < t.nt - 1 + t.ns; i++) t.n[i + 1] = s->n[i];
    for (uint32_t i = 0; i < t.nt; i++) shape.d[i] = t.n[i];
    ein__sc sc = body.i ? ein__sc_make(ctx, &t) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, ein__namef(ctx, "%s.%s", old.name, suffix), EIN__V_SCOPE, old.tensor,
                        sc, &shape, EIN__F32, old.node);
}

// Sum `j` of pair `v`, at the rows of `s`.
static ein__ex ein__pair_read(ein_ctx *ctx, ein__val v, const ein__scope *s, int j) {
    ein__ix ix[EIN__MAX_RANK];
    ix[0] = ein__ix_const(ctx, j);
    for (uint32_t k = 0; k < s->nt; k++) ix[k + 1] = ein__ix_iter(ctx, k, s->n[k]);
    return v.i ? ein__ex_read(ctx, v, 0, ix, (int)s->nt + 1) : (ein__ex){0};
}

static ein__ex ein__quadratic_term(ein_ctx *ctx, ein__ex c, ein__ex by) {
    return c.i ? ein__ex_binary(ctx, EIN__MUL, c, by) : c;
}

// Sums `first` and `second` as one value, and the pair of sums that it is made of, which is itself
// where they are independent; none: the law does not apply.
static ein__val ein__rule_pair(ein_ctx *ctx, ein__val first, ein__val second, ein__val *sums) {
    const ein__scope a = *ein__scope_of(ctx, first), b = *ein__scope_of(ctx, second);
    ein__summer z = {.ctx = ctx, .s = &b, .first = first, .x = a.body};
    ein__ix map[EIN__MAX_ITERS];
    bool dependent = false;
    if (a.nt + 1 > EIN__MAX_RANK || a.nt + a.ns + 1 > EIN__MAX_ITERS) return (ein__val){0};
    const ein__ex *reads = ein__ex_reads(ctx, b.body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        dependent |= ein__ex_get(ctx, reads[i])->val == first.i;
    if (!dependent)
        return *sums = ein__pair_value(ctx, second, &b, true, "sums",
                                       ein__either(ctx, &b, a.body, b.body));
    for (uint32_t i = 0; i < b.nt + b.ns; i++)
        map[i] = i < b.nt ? ein__ix_iter(ctx, i, b.n[i]) : ein__ix_const(ctx, b.n[i] / 2);
    z.origin = ein__ex_subst(ctx, a.body, map, (int)(b.nt + b.ns));
    ein__ex u = z.origin.i ? ein__ex_binary(ctx, EIN__SUB, a.body, z.origin) : z.origin;
    if (!u.i) return (ein__val){0};
    ein__ex squares = ein__ex_unary(ctx, EIN__SQUARE, u);
    *sums = ein__pair_value(ctx, second, &b, true, "moments", ein__either(ctx, &b, u, squares));
    if (!sums->i) return *sums;
    // What is read of the sums has the rows' iterators here; ein__either moves all of it.
    ein__ex count = ein__ex_const(ctx, (double)ein__terms_of(&b));
    ein__val stand = *sums;
    ein__ex one = ein__pair_read(ctx, stand, &b, 0), two = ein__pair_read(ctx, stand, &b, 1);
    z.one = one;
    z.total = ein__quadratic_plus(ctx, ein__ex_binary(ctx, EIN__MUL, count, z.origin), one);
    ein__quadratic q = ein__quadratic_of(&z, b.body);
    ein__quadratic_settle(&z, &q);
    if (!q.ok || !z.dependent) return (ein__val){0};
    ein__ex all = ein__quadratic_term(ctx, q.c[2], two);
    all = ein__quadratic_plus(ctx, all, ein__quadratic_term(ctx, q.c[1], one));
    all = ein__quadratic_plus(ctx, all, ein__quadratic_term(ctx, q.c[0], count));
    if (!all.i) return (ein__val){0};
    ctx->value[sums->i].why = "sums in one pass";
    return ein__pair_value(ctx, second, &b, false, "both", ein__either(ctx, &b, z.total, all));
}

static bool ein__is_same_box(const ein__scope *a, const ein__scope *b) {
    bool same = a->nt == b->nt && a->ns == b->ns;
    for (uint32_t i = 0; same && i < a->nt + a->ns; i++) same = a->n[i] == b->n[i];
    return same;
}

// Whether both read what the first one reads most of, at the same place.
static bool ein__read_together(ein_ctx *ctx, const ein__scope *a, const ein__scope *b) {
    const ein__expr *x = ein__largest_read(ctx, a), *y = ein__largest_read(ctx, b);
    return x && x == y;
}

// What the two cost as a pair; the limit: they are none.
static int64_t ein__cost_pair(ein_ctx *ctx, ein__val first, ein__val second) {
    ein__val sums, none = {0};
    ein__ex read = {0};
    const ein__scope *a = ein__scope_of(ctx, first), *b = ein__scope_of(ctx, second);
    if (a->reduce != EIN__R_SUM || b->reduce != EIN__R_SUM || !ein__is_same_box(a, b) ||
        !ein__read_together(ctx, a, b))
        return EIN__PS_LIMIT;
    ein__attempt attempt = ein__try(ctx);
    ein__val both = ein__rule_pair(ctx, first, second, &sums);
    if (!ein__tried(ctx, attempt) || !both.i) return EIN__PS_LIMIT;
    if (both.i == sums.i) both = none;
    else read = ein__pair_read(ctx, sums, ein__scope_of(ctx, second), 0);
    return ein__cost_scope(ctx, EIN__K_REDUCE, ein__scope_of(ctx, sums), both, read);
}
