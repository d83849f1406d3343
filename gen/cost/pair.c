// Pairs of sums: a reduction whose first iterator has two values and stands in guards alone, so
// that both of its results for a row are made of the same reads,
//     t[j,i] = sum(k) ([j == 0] f(x[i,k]) + [j == 1] g(x[i,k])).
// One pass over the terms then computes both (emit_reduce.c), and the map behind it may read both.

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

// Whether threads of a reduction `acc` have both sums of a pair, in floats; `out`: what they store,
// that or a map behind it.
EIN__FN bool ein__adds_pair(ein_ctx *ctx, ein__val acc, ein__val out) {
    return ctx->value[acc.i].dtype == EIN__F32 && ctx->value[out.i].dtype == EIN__F32 &&
           ein__is_pair(ctx, ein__scope_of(ctx, acc));
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
