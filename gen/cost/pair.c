// Pairs of sums: a reduction whose first iterator has two values and stands in guards alone, so
// that both of its results for a row are made of the same reads,
//     t[j,i] = sum(k) ([j == 0] f(x[i,k]) + [j == 1] g(x[i,k])).
// One pass over the terms then computes both (emit_reduce.c), and the map behind it may read both.
//
// Or few results, as coordinates, whose terms have a dear factor in common, that of a distance,
//     a[i,d] = sum(j) m[j] * (x[j,d] - x[i,d]) / (r[i,j] * sqrt(r[i,j])):
// one thread has all of them and computes the factor once.

enum { EIN__COMMON_LEAST = 8 };  // instructions in common that are worth it: an exp, a division

// Whether no subscript of a read in `ex` has iterator `slot`.
static bool ein__is_read_without(ein_ctx *ctx, ein__ex ex, uint32_t slot) {
    bool without = true;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        without &= !(ein__ex_uses(ctx, reads[i]) >> slot & 1);
    without &= arrlen(reads) > 0;
    return without;
}

EIN__FN bool ein__is_pair(ein_ctx *ctx, const ein__scope *s) {
    return s->reduce == EIN__R_SUM && s->nt > 0 && s->ns > 0 && s->n[0] == 2 &&
           (ein__ex_uses(ctx, s->body) & 1) && ein__is_read_without(ctx, s->body, 0);
}

// Factor `ex` of a term with quotients of what changes with iterator `slot` by what does not as
// products with the reciprocal, of which all sums have one: less than two roundings apart.
static ein__ex ein__common_factors(ein_ctx *ctx, ein__ex ex, uint32_t slot) {
    ein__expr e = *ein__ex_get(ctx, ex);
    bool quotient = e.op == EIN__X_BINARY && e.fn == EIN__DIV;
    bool product = quotient || (e.op == EIN__X_BINARY && e.fn == EIN__MUL) ||
                   (e.op == EIN__X_UNARY && e.fn == EIN__NEG);
    if (!product || !(ein__ex_uses(ctx, ex) >> slot & 1)) return ex;
    for (uint32_t i = 0; i < e.nkid; i++)
        if (!quotient || !i) e.kid[i] = ein__common_factors(ctx, e.kid[i], slot);
    if (!quotient || ein__ex_uses(ctx, e.kid[1]) >> slot & 1 || !ein__ex_get(ctx, e.kid[1])->reads)
        return ein__ex_make(ctx, &e);
    ein__ex by = ein__ex_binary(ctx, EIN__DIV, ein__ex_const(ctx, 1), e.kid[1]);
    return ein__ex_binary(ctx, EIN__MUL, e.kid[0], by);
}

// A term of `s` whose sums along iterator `slot` a thread has together.
static ein__ex ein__common_term(ein_ctx *ctx, const ein__scope *s, uint32_t slot) {
    return ein__is_pair(ctx, s) ? s->body : ein__common_factors(ctx, s->body, slot);
}

// Instructions of `term` that do not change with iterator `slot`.
static int64_t ein__common_operations(ein_ctx *ctx, ein__ex term, uint32_t slot) {
    return ein__ex_operations(ctx, term) - ein__operations_along(ctx, term, 1u << slot);
}

// `body` of the iterators of `s`, of which `slot` has value `j`.
static ein__ex ein__ex_at(ein_ctx *ctx, const ein__scope *s, ein__ex body, uint32_t slot, int j) {
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_iter(ctx, i, s->n[i]);
    map[slot] = ein__ix_const(ctx, j);
    return ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
}

// How many sums of reduction `s` a thread adds up at once, which iterator `*slot` tells apart. 1:
// there is none, and `*slot` is no iterator.
static int ein__sums_together(ein_ctx *ctx, const ein__scope *s, uint32_t *slot) {
    int64_t most = 0;
    const ein__expr *e = ein__ex_get(ctx, s->body);
    *slot = EIN__MAX_ITERS;
    if (s->reduce != EIN__R_SUM || !s->nt || !s->ns) return 1;
    if (ein__is_pair(ctx, s)) *slot = 0;
    // Terms that numbers pick are left out (loops.c).
    bool picks = e->op == EIN__X_SELECT && e->fn == EIN__EQ;
    if (!*slot) return 2;
    if (picks || ein__extent_of(s, ~0u << s->nt) <= EIN__COMMON_TERMS) return 1;
    if (ein__ex_operations(ctx, s->body) < EIN__COMMON_LEAST) return 1;
    for (uint32_t i = 0; i < s->nt; i++) {
        if (s->n[i] < 2 || s->n[i] > EIN__SUMS) continue;
        int64_t common = ein__common_operations(ctx, ein__common_term(ctx, s, i), i);
        if (common < EIN__COMMON_LEAST || common * (s->n[i] - 1) <= most) continue;
        most = common * (s->n[i] - 1);
        *slot = i;
    }
    return most ? (int)s->n[*slot] : 1;
}

// The same of threads of a reduction `acc`, in floats; `out`: what they store, that or a map behind
// it.
EIN__FN int ein__adds_together(ein_ctx *ctx, ein__val acc, ein__val out, uint32_t *slot) {
    *slot = EIN__MAX_ITERS;
    if (ctx->value[acc.i].dtype != EIN__F32 || ctx->value[out.i].dtype != EIN__F32) return 1;
    return ein__sums_together(ctx, ein__scope_of(ctx, acc), slot);
}

// Whether map `m` is over the box of the pair that `read` reads, at the same row, either sum of it.
EIN__FN bool ein__reads_pair(ein_ctx *ctx, const ein__expr *read, const ein__scope *m) {
    ein__val v = {read->val};
    const ein__scope *s = ein__scope_of(ctx, v);
    int64_t c;
    if (!s || ctx->value[v.i].dtype != EIN__F32 || !ein__is_pair(ctx, s) || s->nt != m->nt ||
        m->n[0] != 2 || !ein__ix_is_const(ctx, read->ix[0], &c) || c < 0 || c > 1)
        return false;
    for (uint32_t k = 1; k < s->nt; k++)
        if (s->n[k] != m->n[k] || read->ix[k].i != ein__ix_iter(ctx, k, s->n[k]).i) return false;
    return true;
}
