// Rule `short`: a sum of few terms, as the square of a distance in space is, that a reduction alone
// reads, itself or through maps, is written out there,
//     sum(j) f(R[i,j]), R[i,j] = sum(d in 0:3) g(i,j,d), is sum(j) f(g(i,j,0) + g(i,j,1) +
//     g(i,j,2)),
// so that a value as large as all terms of the reduction is neither stored nor loaded.

enum {
    EIN__SHORT_TERMS = 4,
    EIN__SHORT_WORK = 32,  // nodes of all terms: about what a store and a load cost
    EIN__SHORT_MAPS = 4    // between the sum and the reduction
};

// What writes short sums out: the pass, and the reduction that reads them.
typedef struct ein__shortener {
    const ein__pass *z;
    const ein__scope *s;
    ein__ex body;  // of it, or of a map in it
    int maps;      // that the read stands in
} ein__shortener;

// Whether `v` is a sum of few terms, which are no product of a library's.
static bool ein__is_short_sum(ein_ctx *ctx, const ein__scope *s) {
    if (s->reduce != EIN__R_SUM || ein__is_contraction(ctx, s)) return false;
    int64_t terms = ein__extent_of(s, ~0u << s->nt);
    return terms > 1 && terms <= EIN__SHORT_TERMS &&
           terms * ein__ex_size(ctx, s->body) <= EIN__SHORT_WORK &&
           terms * ein__ex_work(ctx, s->body) <= EIN__SHORT_WORK;
}

// Whether `body` reads `v` at one place.
static bool ein__is_read_at_once(ein_ctx *ctx, ein__ex body, ein__val v) {
    const ein__ex *reads = ein__ex_reads(ctx, body);
    ein__ex read = {0};
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        if (ein__ex_get(ctx, reads[k])->val != v.i) continue;
        if (read.i && read.i != reads[k].i) return false;
        read = reads[k];
    }
    return read.i != 0;
}

// Whether `v`, of `n` elements, which one value alone reads, is a short sum or a map over as many
// elements of one, through such maps.
static bool ein__leads_short(const ein__pass *z, ein__val v, int64_t n, int maps) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || ctx->value[v.i].weight_only || ctx->value[v.i].dtype != EIN__F32 ||
        z->uses[v.i] != 1 || ein__elements(&ctx->value[v.i].shape) != n || ein__is_kept(ctx, v))
        return false;
    if (s->reduce != EIN__R_NONE) return ein__is_short_sum(ctx, s);
    const ein__ex *reads = maps < EIN__SHORT_MAPS ? ein__ex_reads(ctx, s->body) : NULL;
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        ein__val p = {ein__ex_get(ctx, reads[k])->val};
        if (ein__is_read_at_once(ctx, s->body, p) && ein__leads_short(z, p, n, maps + 1))
            return true;
    }
    return false;
}

// The terms of `s` added up, in the iterators of its result.
static ein__ex ein__added_terms(ein_ctx *ctx, const ein__scope *s) {
    ein__ix at[EIN__MAX_ITERS];
    ein__ex all = {0};
    int64_t terms = ein__extent_of(s, ~0u << s->nt);
    for (uint32_t i = 0; i < s->nt; i++) at[i] = ein__ix_iter(ctx, i, s->n[i]);
    for (int64_t t = 0; t < terms; t++) {
        int64_t rest = t;
        for (uint32_t i = s->nt + s->ns; i-- > s->nt; rest /= s->n[i])
            at[i] = ein__ix_const(ctx, rest % s->n[i]);
        ein__ex term = ein__ex_subst(ctx, s->body, at, (int)(s->nt + s->ns));
        all = all.i ? ein__ex_binary(ctx, EIN__ADD, all, term) : term;
    }
    return all;
}

// A read of a short sum, or of a map that leads to one: what it comes to.
static ein__ex ein__short_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__shortener *x = user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    const ein__val p = {e.val};
    int64_t n = ein__elements(&ctx->value[p.i].shape);
    if (ein__extent_of(x->s, ~0u) != n * ein__computed_for(ctx, x->s, &e)) return ex;
    if (!ein__is_read_at_once(ctx, x->body, p) || !ein__leads_short(x->z, p, n, x->maps)) return ex;
    const ein__scope *s = ein__scope_of(ctx, p);
    if (s->reduce != EIN__R_NONE) {
        ein__ex body = ein__inline_body(ctx, s, ein__added_terms(ctx, s), &e);
        return body.i ? body : ex;
    }
    ein__ex body = ein__rule_inline(ctx, p, &e);
    ein__shortener inner = {x->z, x->s, body, x->maps + 1};
    return body.i ? ein__ex_replace_reads(ctx, body, ein__short_read, &inner) : ex;
}

static ein__val ein__rebuild_short(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__ex body = ein__body_now(z, &s);
    if (!body.i) return (ein__val){0};
    bool sums = s.reduce != EIN__R_NONE && !ein__is_contraction(ctx, &s) &&
                !ctx->value[v.i].weight_only && ctx->value[v.i].dtype == EIN__F32;
    if (!sums) return ein__with_body(z, v, body);
    ein__shortener x = {z, &s, body, 0};
    ein__ex written = ein__ex_replace_reads(ctx, body, ein__short_read, &x);
    if (!written.i) return (ein__val){0};
    bool fits = ein__ex_size(ctx, written) <= EIN__MAX_INLINE &&
                ein__operand_count(ctx, written) <= EIN__MAX_ARGS;
    return ein__with_body(z, v, fits ? written : body);
}
