// Boundary tightening of operands (EinNet section 4.1): where p[i] is 0 but for a box, the product
// sum(y) p[E] w reads the value over that box alone, whose padding is 0,
//     p[i] = 0 <= i - lo < n ? f(i) : 0,   q[j] = f(j + lo),   sum(y) q[E - lo] w:
// a tensor that was padded with zeros is not stored a second time. Most library calls have no
// window with unequal borders, so that this is another program, not a better one.

typedef struct ein__nonzero {
    int64_t lo[EIN__MAX_RANK], hi[EIN__MAX_RANK];
} ein__nonzero;

// Shrinks the range of the iterator that `ix` is, but for a constant, to where `ix` is in [0, n).
static void ein__shrink_part(ein_ctx *ctx, ein__ix ix, int64_t n, ein__nonzero *part) {
    uint32_t slot;
    int64_t c = ein__ix_get(ctx, ix)->c;
    if (ein__ix_get(ctx, ix)->q != 1 || !ein__ix_is_iter(ctx, ein__ix_addc(ctx, ix, -c), &slot))
        return;
    if (part->lo[slot] < -c) part->lo[slot] = -c;
    if (part->hi[slot] > n - 1 - c) part->hi[slot] = n - 1 - c;
}

// Shrinks `part` to where `ex` may be other than 0. A product is 0 where a factor is, a sum where
// both terms are, a function that keeps 0 where its argument is (ein__implies).
static void ein__shrink_to(ein_ctx *ctx, ein__ex ex, int depth, ein__nonzero *part) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c;
    bool binary = e->op == EIN__X_BINARY, sum = binary && (e->fn == EIN__ADD || e->fn == EIN__SUB);
    if (e->op == EIN__X_WHEN && !e->negate) ein__shrink_part(ctx, e->ix[0], e->n, part);
    if (e->op == EIN__X_WHEN || (e->op == EIN__X_UNARY && ein__keeps_zero((ein__fn)e->fn)) ||
        (binary && e->fn == EIN__DIV && ein__ex_is_const(ctx, e->kid[1], &c) && c != 0))
        ein__shrink_to(ctx, e->kid[0], depth, part);
    for (int k = 0; k < 2 && binary && e->fn == EIN__MUL; k++)
        ein__shrink_to(ctx, e->kid[k], depth, part);
    if (sum && depth < EIN__IMPLY_DEPTH) {
        ein__nonzero other = *part;
        ein__shrink_to(ctx, e->kid[0], depth + 1, part);
        ein__shrink_to(ctx, e->kid[1], depth + 1, &other);
        for (int k = 0; k < EIN__MAX_RANK; k++) {
            if (other.lo[k] < part->lo[k]) part->lo[k] = other.lo[k];
            if (other.hi[k] > part->hi[k]) part->hi[k] = other.hi[k];
        }
    }
    for (uint32_t k = 0; e->op == EIN__X_READ && !e->bits && k < e->nix; k++)
        ein__shrink_part(ctx, e->ix[k], ctx->value[e->val].shape.d[k], part);
}

// The read `e` of map `p`, as one of a map over the box outside of which `p` is 0; none when that
// is all of it, or nothing, or others read `p` and it is more than a copy there.
static ein__ex ein__tighten_operand(ein__pass *z, const ein__expr *e, ein__val p) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, p);
    const ein__value old = ctx->value[p.i];
    ein__nonzero part = {{0}, {0}};
    ein__ix map[EIN__MAX_RANK], at[EIN__MAX_RANK];
    int64_t n[EIN__MAX_RANK];
    bool smaller = false;
    for (uint32_t k = 0; k < s->nt; k++) {
        part.lo[k] = 0;
        part.hi[k] = s->n[k] - 1;
    }
    ein__shrink_to(ctx, s->body, 0, &part);
    for (uint32_t k = 0; k < s->nt; k++) {
        n[k] = part.hi[k] - part.lo[k] + 1;
        if (n[k] < 1) return (ein__ex){0};
        smaller |= n[k] < s->n[k];
        map[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, k, n[k]), part.lo[k]);
        at[k] = ein__ix_addc(ctx, e->ix[k], -part.lo[k]);
    }
    if (!smaller) return (ein__ex){0};
    ein__ex body = ein__ex_subst(ctx, s->body, map, (int)s->nt);
    const ein__expr *inside = body.i ? ein__ex_get(ctx, body) : NULL;
    ein__scope box = {.nt = s->nt};
    memcpy(box.n, n, s->nt * sizeof *n);
    if (inside && inside->op == EIN__X_READ && ein__reads_in_place(ctx, inside, &box) &&
        ctx->value[inside->val].dtype == old.dtype)
        return ein__ex_read(ctx, (ein__val){inside->val}, 0, at, (int)s->nt);
    if (p.i >= (uint32_t)arrlen(z->uses) || z->uses[p.i] != 1) return (ein__ex){0};
    z->self = p;
    ein__val q =
        ein__new_map(z, ein__namef(ctx, "%s.inside", old.name), old.dtype, (int)s->nt, n, body);
    return q.i ? ein__ex_read(ctx, q, 0, at, (int)s->nt) : (ein__ex){0};
}

static ein__val ein__rebuild_tightened(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read[2];
    double alpha;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    ein__val is = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!is.i || ctx->value[is.i].weight_only ||
        !ein__two_factors(ctx, ein__scope_of(ctx, is), read, &alpha))
        return is;
    ein__ex factor[2];
    bool any = false;
    for (int k = 0; k < 2; k++) {
        ein__val p = {read[k]->val};
        factor[k] = (ein__ex){0};
        if (ein__is_map(ctx, p) && !ctx->value[p.i].weight_only)
            factor[k] = ein__tighten_operand(z, read[k], p);
        any |= factor[k].i != 0;
        if (!factor[k].i) factor[k] = ein__ex_of(ctx, read[k]);
    }
    if (!any || ctx->status) return is;
    body = ein__ex_binary(ctx, EIN__MUL, factor[0], factor[1]);
    body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
    if (!body.i) return (ein__val){0};
    is = ein__with_body(z, is, body);
    if (is.i) ctx->value[is.i].why = ein__rules[EIN__RULE_TIGHTEN].what;
    return is;
}

// Operands of products without the zeros around them in the program under `root`; `*changed` when
// there are any.
EIN__FN bool ein__tighten_operands(ein_ctx *ctx, ein__val *root, int nroot, bool *changed) {
    *changed = false;
    return !ein__rule_on(ctx, EIN__RULE_TIGHTEN) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_tightened, NULL, changed);
}
