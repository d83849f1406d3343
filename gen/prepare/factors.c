// Rule `factors`: a sum of products of which a factor is computed where it is multiplied, as
// relu(x[m,k]) * w[k,n] or x[m,k] * u[k] * w[k,n], gets that factor as a value of its own: then the
// sum is a product as library calls and tiles compute it, and an element of the value is computed
// once instead of once for every element of the other factor. Of three or more factors, two are
// multiplied first where they are such a product: sum(i,j) x[b,i] W[o,i,j] y[b,j] is sum(i) x[b,i]
// sum(j) W[o,i,j] y[b,j]. A guard, as of sum(j) [j <= i] s[i,j] v[j,d], goes to a factor that has
// its iterators, and one of taps to the filter. A factor that depends on iterators alone, as
// cos(i*j), becomes a table that is computed at load. Where terms are sums of such products they
// are summed apart: sum(k) (a b - c d) is sum(k) a b - sum(k) c d; and so are weights that are
// added to what is no product.

enum {
    EIN__FACTORS = 8,             // of a product
    EIN__FACTOR_REUSE = 8,        // readings of an element, at least
    EIN__FACTOR_SPREAD = 16,      // terms of the sum for each element, where it has many
    EIN__FACTOR_TABLE = 1 << 24,  // elements of what is computed from few
    EIN__FACTOR_WORK = 1 << 20,   // terms of a sum that is worth several
};

typedef struct ein__computed {
    ein__ex ex, den;  // the factor; what it is one over, or none
    uint32_t uses;
    bool weight_only, guarded, placed;  // `placed`: a function of places, too
} ein__computed;

// Whether `ex` is a function of what it reads and, then `f` is so, of places.
static bool ein__list_reads(ein_ctx *ctx, ein__ex ex, ein__computed *f) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_IDX || e->op == EIN__X_WHEN) {
        if (ein__ix_get(ctx, e->ix[0])->q != 1 || ein__ix_has_gather(ctx, e->ix[0])) return false;
        f->placed = true;
    }
    if (e->op == EIN__X_READ)
        return !ein__is_table(ctx, (ein__val){e->val}) && ein__is_real(ctx, (ein__val){e->val});
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__list_reads(ctx, e->kid[i], f)) return false;
    return true;
}

// The factors of a product, constants in `alpha`. False: too many, or what is none. Divisors are
// factors as they are: one over a product that is 0 is no product of inverses.
static bool ein__list_factors(ein_ctx *ctx, ein__ex ex, bool below, ein__computed *list, int *n,
                              double *alpha) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c;
    bool constant = ein__ex_is_const(ctx, ex, &c);
    if (constant && !below && fma(*alpha, c, -(*alpha * c)) == 0) {
        *alpha *= c;
        return true;
    }
    if (!below && e->op == EIN__X_UNARY && e->fn == EIN__NEG) {
        *alpha = -*alpha;
        return ein__list_factors(ctx, e->kid[0], below, list, n, alpha);
    }
    if (!below && e->op == EIN__X_BINARY && (e->fn == EIN__DIV || e->fn == EIN__MUL))
        return ein__list_factors(ctx, e->kid[0], false, list, n, alpha) &&
               ein__list_factors(ctx, e->kid[1], e->fn == EIN__DIV, list, n, alpha);
    ein__computed f = {.ex = ex, .uses = ein__ex_uses(ctx, ex)};
    f.weight_only = ein__ex_weight_only(ctx, ex);
    if (*n == EIN__FACTORS || !ein__list_reads(ctx, ex, &f)) return false;
    if (below) f.ex = ein__ex_binary(ctx, EIN__DIV, ein__ex_const(ctx, 1), ex);
    if (below) f.den = ex;
    list[(*n)++] = f;
    return f.ex.i != 0;
}

static ein__computed ein__join_two(ein_ctx *ctx, const ein__computed *a, const ein__computed *b) {
    const ein__computed *top = a->den.i ? b : a, *other = a->den.i ? a : b;
    ein__fn fn = other->den.i ? EIN__DIV : EIN__MUL;
    ein__ex ex = ein__ex_binary(ctx, fn, top->ex, other->den.i ? other->den : other->ex);
    return (ein__computed){.ex = ex,
                           .uses = a->uses | b->uses,
                           .weight_only = a->weight_only && b->weight_only,
                           .guarded = a->guarded || b->guarded,
                           .placed = a->placed || b->placed};
}

// Joins factors until none has only iterators of another: with weights if it is made of weights,
// and with the smaller one.
static void ein__join_factors(ein_ctx *ctx, const ein__scope *s, ein__computed *list, int *n) {
    for (int i = 0; i < *n; i++) {
        int best = -1;
        for (int k = 0; k < *n; k++) {
            if (k == i || list[i].uses & ~list[k].uses) continue;
            bool alike = list[k].weight_only == list[i].weight_only, better = best < 0;
            if (!better && alike != (list[best].weight_only == list[i].weight_only)) better = alike;
            else if (!better)
                better = ein__extent_of(s, list[k].uses) < ein__extent_of(s, list[best].uses);
            if (better) best = k;
        }
        if (best < 0) continue;
        list[best] = ein__join_two(ctx, &list[best], &list[i]);
        list[i] = list[--*n];
        i = -1;
    }
}

// The product inside the guards of `ex`, these in `guard`; those of fractions say which places
// there are, not which count.
static ein__ex ein__inside_guards(ein_ctx *ctx, ein__ex ex, ein__expr *guard, int *n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (*n = 0; e->op == EIN__X_WHEN && *n < EIN__FACTORS; e = ein__ex_get(ctx, ex)) {
        if (ein__ix_get(ctx, e->ix[0])->q != 1 || ein__ix_has_gather(ctx, e->ix[0])) break;
        guard[(*n)++] = *e;
        ex = e->kid[0];
    }
    return ex;
}

// Whether `ex` is a function of one place, read through a window with iterators `slots`: the places
// are those of the window for several values of other iterators, so that what a guard of `slots`
// leaves out is read anyway.
static bool ein__is_windowed(ein_ctx *ctx, ein__ex ex, uint32_t slots) {
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    const ein__expr *first = arrlen(reads) ? ein__ex_get(ctx, reads[0]) : NULL;
    bool all = first != NULL;
    for (ptrdiff_t i = 1; i < arrlen(reads) && all; i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        all = e->nix == first->nix && !memcmp(e->ix, first->ix, e->nix * sizeof *e->ix);
    }
    for (uint32_t k = 0; all && k < first->nix; k++) {
        uint32_t uses = ein__ix_uses(ctx, first->ix[k]);
        all = !(uses & slots) || (uses & ~slots);
    }
    return all;
}

// Puts guard `g` around the one factor that has its iterators, or around the weight that has them
// where the others that do are read through windows, as by masked convolutions. False: there is
// none, or another one that has them, which would be read where the product is not.
static bool ein__guard_factor(ein_ctx *ctx, const ein__expr *g, ein__computed *list, int n) {
    ein__computed *f = NULL, *weight = NULL;
    int found = 0, weights = 0, windows = 0;
    uint32_t slots = ein__ix_uses(ctx, g->ix[0]);
    for (int k = 0; k < n; k++) {
        if (slots & ~list[k].uses) continue;
        f = &list[k];
        found++;
        if (f->weight_only) weight = f;
        weights += f->weight_only;
        windows += !f->weight_only && ein__is_windowed(ctx, f->ex, slots);
    }
    if (found > 1 && weights == 1 && windows == found - 1) f = weight;
    else if (found != 1) return false;
    f->ex = ein__ex_when(ctx, g->ix[0], g->n, g->negate != 0, f->ex);
    f->den = (ein__ex){0};
    f->guarded = true;
    return f->ex.i != 0;
}

static ein__ex ein__read_at(ein_ctx *ctx, void *user, ein__ex read) {
    const ein__ix *at = (const ein__ix *)user;
    const ein__expr *e = ein__ex_get(ctx, read);
    return at ? ein__ex_read(ctx, (ein__val){e->val}, 0, at, (int)e->nix)
              : ein__ex_const(ctx, ein__f64_of(e->bits));
}

// Factor `ex`, all of whose reads are at one place of equal boxes, as the read of a value over that
// box; what they read outside gives 0. None where it is no such thing.
static ein__ex ein__factor_in_box(ein__pass *z, const ein__scope *s, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    ein__ix at[EIN__MAX_RANK];
    double outside;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    const ein__expr first = *ein__ex_get(ctx, reads[0]);
    const ein__shape shape = ctx->value[first.val].shape;
    bool same = true;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        same = same && ein__same_shape(&ctx->value[e->val].shape, &shape) &&
               !memcmp(e->ix, first.ix, first.nix * sizeof *e->ix);
    }
    if (!same || ein__elements(&shape) / 2 > ein__extent_of(s, ein__ex_uses(ctx, ex)))
        return (ein__ex){0};
    ein__ex pad = ein__ex_replace_reads(ctx, ex, ein__read_at, NULL);
    bool zero = pad.i && ein__ex_is_const(ctx, pad, &outside) && outside == 0;
    if (!zero && !ein__inside(ctx, &first)) return (ein__ex){0};
    for (int k = 0; k < shape.rank; k++) at[k] = ein__ix_iter(ctx, (uint32_t)k, shape.d[k]);
    ein__ex body = ein__ex_replace_reads(ctx, ex, ein__read_at, at);
    ein__val v = ein__new_map(z, ein__namef(ctx, "%s.factor", ctx->value[z->self.i].name), EIN__F32,
                              shape.rank, shape.d, body);
    return v.i ? ein__ex_read(ctx, v, 0, first.ix, shape.rank) : (ein__ex){0};
}

// Whether no subscript of what `ex` reads has two iterators, so that it has more elements than that
// only by what is laid across, not by windows.
static bool ein__reads_no_window(ein_ctx *ctx, ein__ex ex) {
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < e->nix; k++) {
            uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
            if (uses & (uses - 1)) return false;
        }
    }
    return true;
}

// Whether `mine` elements of factor `f` are not too many to be stored: not many times those that it
// is made of, or few beside the terms of the sum.
static bool ein__may_store(ein_ctx *ctx, const ein__scope *s, const ein__computed *f,
                           int64_t mine) {
    if (mine / 2 <= ein__elements_read(ctx, f->ex)) return true;
    if (mine > EIN__FACTOR_TABLE) return false;
    return (f->placed && f->weight_only) || (ein__reads_no_window(ctx, f->ex) &&
                                             mine <= ein__extent_of(s, ~0u) / EIN__FACTOR_SPREAD);
}

// The factor as a read: its own, of a value over a box, or of one over its iterators.
static ein__ex ein__factor_read(ein__pass *z, const ein__scope *s, const ein__computed *f) {
    ein_ctx *ctx = z->ctx;
    ein__ex ex = f->ex;
    const ein__expr *e = ein__ex_get(ctx, ex);
    int64_t mine = ein__extent_of(s, f->uses);
    int dims = 0;
    if (e->op == EIN__X_READ && !e->bits) return ex;
    ein__ex read = f->guarded || f->placed ? (ein__ex){0} : ein__factor_in_box(z, s, ex);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) dims += f->uses >> i & 1;
    if (read.i || dims > EIN__MAX_RANK || !ein__may_store(ctx, s, f, mine)) return read;
    return ein__hoist(z, s, ex, "factor");
}

// How often an element of factor `of` is read, at least: places of a result with iterators `kept`
// that it has no part in.
static bool ein__factor_reused(const ein__scope *s, const ein__computed *of, uint32_t kept) {
    return ein__extent_of(s, kept & ~of->uses) >= EIN__FACTOR_REUSE;
}

// Multiplications of the sum when factors a and b are summed first over what no other factor uses,
// `sums`; INT64_MAX where that is no product which is worth it.
static int64_t ein__pair_cost(const ein__scope *s, const ein__computed *list, int n, int a, int b,
                              uint32_t *sums) {
    uint32_t uses = list[a].uses | list[b].uses, others = 0;
    for (int k = 0; k < n; k++)
        if (k != a && k != b) others |= list[k].uses;
    *sums = uses & ~others & ~((1u << s->nt) - 1);
    if (!*sums || !ein__factor_reused(s, &list[a], uses & ~*sums) ||
        !ein__factor_reused(s, &list[b], uses & ~*sums))
        return INT64_MAX;
    int64_t inner = ein__extent_of(s, uses), outer = ein__extent_of(s, ~*sums);
    return inner > INT64_MAX - outer ? INT64_MAX : inner + outer;
}

// Sums two factors where that leaves no more to multiply, or little; they are one factor then, and
// the iterators that are summed have one place in `s`. False: there are no such two, or an error.
static bool ein__sum_pair(ein__pass *z, ein__scope *s, ein__computed *list, int *n) {
    ein_ctx *ctx = z->ctx;
    int64_t all = ein__extent_of(s, ~0u), least = all > INT64_MAX / 2 ? all : all + all / 4;
    int best[2] = {0, 0};
    uint32_t sums = 0, found;
    for (int a = 0; a < *n; a++)
        for (int b = a + 1; b < *n; b++) {
            int64_t cost = ein__pair_cost(s, list, *n, a, b, &found);
            if (cost >= least) continue;
            least = cost;
            sums = found;
            best[0] = a;
            best[1] = b;
        }
    if (!sums) return false;
    ein__ex x = ein__factor_read(z, s, &list[best[0]]);
    ein__ex y = ein__factor_read(z, s, &list[best[1]]);
    if (!x.i || !y.i) return false;
    ein__ex read = ein__hoist_sum(z, s, ein__ex_binary(ctx, EIN__MUL, x, y), sums, "inner");
    if (!read.i) return false;
    list[best[0]] = (ein__computed){
        .ex = read, .uses = ein__ex_uses(ctx, read), .weight_only = ein__ex_weight_only(ctx, read)};
    list[best[1]] = list[--*n];
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++)
        if (sums >> i & 1) s->n[i] = 1;
    return true;
}

// Whether a factor is a matrix of a small constant transform: a table of a place and a term.
static bool ein__is_small_matrix(ein_ctx *ctx, const ein__scope *s, const ein__computed *f) {
    uint32_t kept = f->uses & ((1u << s->nt) - 1), sums = f->uses & ~kept;
    return !ein__ex_get(ctx, f->ex)->reads && kept && sums && !(kept & (kept - 1)) &&
           !(sums & (sums - 1)) && ein__extent_of(s, kept) <= EIN__TABLE_EXTENT &&
           ein__extent_of(s, sums) <= EIN__TABLE_EXTENT;
}

// The sum as a small constant transform of one factor, all others being its matrices; none where it
// is no such thing, or an error.
static ein__val ein__as_transform(ein__pass *z, ein__val v, ein__scope s, ein__computed *list,
                                  int n, double alpha) {
    ein_ctx *ctx = z->ctx;
    ein__basis b;
    int matrices = 0, first = -1;
    for (int k = 0; k < n; k++) {
        if (!ein__is_small_matrix(ctx, &s, &list[k])) continue;
        if (first < 0) first = k;
        matrices++;
    }
    if (!matrices || matrices != n - 1 || matrices != (int)s.ns) return (ein__val){0};
    for (int k = 0; k < n; k++) {
        ein__computed f = list[k];
        if (k == first && alpha != 1)
            f.ex = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), f.ex);
        ein__ex read = f.ex.i ? ein__factor_read(z, &s, &f) : f.ex;
        if (!read.i) return (ein__val){0};
        s.body = k ? ein__ex_binary(ctx, EIN__MUL, s.body, read) : read;
    }
    bool is = s.body.i && ein__match_basis(ctx, &s, &b);
    return is ? ein__with_scope(ctx, v, &s) : (ein__val){0};
}

// Sum `v` with factors of its own.
static ein__val ein__with_factors(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__computed f[EIN__FACTORS];
    ein__expr guard[EIN__FACTORS];
    int n = 0, guards;
    double alpha = 1;
    ein__ex read[2];
    ein__scope s = *ein__scope_of(ctx, v);
    ein__ex product = ein__inside_guards(ctx, s.body, guard, &guards);
    if (ein__is_contraction(ctx, &s) || !ein__list_factors(ctx, product, false, f, &n, &alpha))
        return v;
    z->self = v;
    ein__join_factors(ctx, &s, f, &n);
    for (int k = 0; k < guards; k++)
        if (!ein__guard_factor(ctx, &guard[k], f, n)) return ctx->status ? (ein__val){0} : v;
    ein__val transform = ein__as_transform(z, v, s, f, n, alpha);
    if (ctx->status || transform.i) return transform;
    bool summed = false;
    while (n > 2 && ein__sum_pair(z, &s, f, &n)) {
        summed = true;
        if (n > 2) ein__join_factors(ctx, &s, f, &n);
    }
    uint32_t kept = (1u << s.nt) - 1;
    bool often =
        n == 2 && ein__factor_reused(&s, &f[0], kept) && ein__factor_reused(&s, &f[1], kept);
    if (ctx->status || n != 2 || !(summed || often)) return ctx->status ? (ein__val){0} : v;
    for (int k = 0; k < 2; k++) {
        read[k] = ein__factor_read(z, &s, &f[k]);
        if (!read[k].i) return ctx->status ? (ein__val){0} : v;
    }
    s.body = ein__ex_binary(ctx, EIN__MUL, read[0], read[1]);
    if (s.body.i && alpha != 1)
        s.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), s.body);
    return s.body.i ? ein__with_scope(ctx, v, &s) : (ein__val){0};
}

// ------------------------------------------------------------------------------- sums of products

enum { EIN__TERMS = 16 };  // of a sum

typedef struct ein__addend {
    ein__ex ex;
    double scale;
} ein__addend;

typedef struct ein__addition {
    ein__addend t[EIN__TERMS];
    int n;
} ein__addition;

static bool ein__list_addends(ein_ctx *ctx, ein__ex ex, double scale, ein__addition *a) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c;
    if (e->op == EIN__X_BINARY && (e->fn == EIN__ADD || e->fn == EIN__SUB))
        return ein__list_addends(ctx, e->kid[0], scale, a) &&
               ein__list_addends(ctx, e->kid[1], e->fn == EIN__SUB ? -scale : scale, a);
    if (e->op == EIN__X_UNARY && e->fn == EIN__NEG)
        return ein__list_addends(ctx, e->kid[0], -scale, a);
    for (int k = 0; k < 2 && e->op == EIN__X_BINARY && e->fn == EIN__MUL; k++)
        if (ein__ex_is_const(ctx, e->kid[k], &c) && fma(scale, c, -(scale * c)) == 0)
            return ein__list_addends(ctx, e->kid[1 - k], scale * c, a);
    if (a->n == EIN__TERMS) return false;
    a->t[a->n++] = (ein__addend){ex, scale};
    return true;
}

// `sum` + `scale` * `ex`; `sum` may be none.
static ein__ex ein__add_scaled(ein_ctx *ctx, ein__ex sum, double scale, ein__ex ex) {
    if (!ex.i) return ex;
    bool less = sum.i && scale == -1;
    if (scale != 1 && !less) ex = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, scale), ex);
    return sum.i ? ein__ex_binary(ctx, less ? EIN__SUB : EIN__ADD, sum, ex) : ex;
}

// Whether term `ex` is a product that is worth a sum of its own.
static bool ein__is_product_term(ein_ctx *ctx, const ein__scope *s, ein__ex ex) {
    ein__computed f[EIN__FACTORS];
    int n = 0;
    double alpha = 1;
    uint32_t kept = (1u << s->nt) - 1;
    if (!ein__list_factors(ctx, ex, false, f, &n, &alpha)) return false;
    ein__join_factors(ctx, s, f, &n);
    return n == 2 && ein__factor_reused(s, &f[0], kept) && ein__factor_reused(s, &f[1], kept);
}

// Whether the terms are products, but for some that have few of the iterators.
static bool ein__are_products(ein_ctx *ctx, const ein__scope *s, const ein__addition *sum) {
    int64_t all = ein__extent_of(s, ~0u);
    int products = 0;
    if (sum->n < 2 || all < EIN__FACTOR_WORK) return false;
    for (int k = 0; k < sum->n; k++) {
        if (ein__is_product_term(ctx, s, sum->t[k].ex)) products++;
        else if (all / EIN__FACTOR_REUSE < ein__extent_of(s, ein__ex_uses(ctx, sum->t[k].ex)))
            return false;
    }
    return products > 0;
}

// Whether `ex` is a function of what rows and what columns have: each of its reads lacks an
// iterator of the result.
static bool ein__is_across(ein_ctx *ctx, const ein__scope *s, ein__ex ex) {
    uint32_t kept = (1u << s->nt) - 1;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        if (ein__extent_of(s, kept & ~ein__ex_uses(ctx, reads[i])) < EIN__FACTOR_REUSE)
            return false;
    return true;
}

// Leaves two terms of a sum: what is across, and weights that have few of the iterators, whose sum
// is made at load. False: there are others.
static bool ein__weights_apart(ein_ctx *ctx, const ein__scope *s, ein__addition *sum) {
    int64_t all = ein__extent_of(s, ~0u);
    ein__addend part[2] = {{.scale = 1}, {.scale = 1}};
    if (sum->n < 2 || all < EIN__FACTOR_WORK) return false;
    for (int k = 0; k < sum->n; k++) {
        ein__ex ex = sum->t[k].ex;
        bool few = all / EIN__FACTOR_REUSE >= ein__extent_of(s, ein__ex_uses(ctx, ex));
        bool weights = few && ein__ex_weight_only(ctx, ex);
        if (!weights && (few || !ein__is_across(ctx, s, ex))) return false;
        part[weights].ex = ein__add_scaled(ctx, part[weights].ex, sum->t[k].scale, ex);
        if (!part[weights].ex.i) return false;
    }
    for (int k = 0; k < 2; k++) sum->t[k] = part[k];
    sum->n = 2;
    return part[0].ex.i && part[1].ex.i;
}

// The sum of a term of `s` over the iterators that it has; those it has not repeat it.
static ein__ex ein__sum_of_term(ein__pass *z, const ein__scope *s, ein__addend t) {
    ein_ctx *ctx = z->ctx;
    uint32_t all = (1u << (s->nt + s->ns)) - (1u << s->nt), sums = ein__ex_uses(ctx, t.ex) & all;
    double times = t.scale * (double)ein__extent_of(s, all & ~sums);
    ein__ex read = sums ? ein__hoist_sum(z, s, t.ex, sums, "term") : t.ex;
    if (read.i && sums) {
        const ein__expr e = *ein__ex_get(ctx, read);
        ein__val now = ein__with_factors(z, (ein__val){e.val});
        read = now.i ? ein__ex_read(ctx, now, 0, e.ix, (int)e.nix) : (ein__ex){0};
    }
    return ein__add_scaled(ctx, (ein__ex){0}, times, read);
}

// Sum `v` of sums of products as a sum of sums; itself where it is none.
static ein__val ein__terms_apart(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__value was = ctx->value[v.i];
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__expr guard[EIN__FACTORS];
    ein__addition sum = {.n = 0};
    ein__ex body = {0};
    int guards;
    ein__ex inside = ein__inside_guards(ctx, s.body, guard, &guards);
    if (!ein__list_addends(ctx, inside, 1, &sum)) return v;
    if (!ein__are_products(ctx, &s, &sum) && !ein__weights_apart(ctx, &s, &sum))
        return ctx->status ? (ein__val){0} : v;
    for (int k = 0; k < sum.n; k++) {
        ein__addend t = sum.t[k];
        for (int g = guards; g-- > 0 && t.ex.i;)
            t.ex = ein__ex_when(ctx, guard[g].ix[0], guard[g].n, guard[g].negate != 0, t.ex);
        z->self = v;
        ein__ex term = t.ex.i ? ein__sum_of_term(z, &s, t) : t.ex;
        if (!term.i) return (ein__val){0};
        body = body.i ? ein__ex_binary(ctx, EIN__ADD, body, term) : term;
    }
    z->self = v;
    return body.i ? ein__new_map(z, was.name, was.dtype, was.shape.rank, was.shape.d, body)
                  : (ein__val){0};
}

static ein__val ein__rebuild_factors(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    v = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || s->reduce != EIN__R_SUM || !s->ns || !ein__is_real(ctx, v)) return v;
    ein__val apart = ein__terms_apart(z, v);
    return apart.i == v.i ? ein__with_factors(z, v) : apart;
}
