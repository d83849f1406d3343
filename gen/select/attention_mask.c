// Keys that no row of a tile attends to: where the score is
//     x = select(K >= 0, ..., c), K = a * i - j + b, a >= 0, c free of rows, keys and the product,
// every key from a * i + b + 1 on has c for the rows up to i. Its weight is exp(c - m), m the
// largest score: once that is 0 for every row of the tile, further keys change nothing, and the
// kernel stops there (causal attention: half of all keys). It looks, since nothing else says how
// far below the other scores c is; until it is, the kernel goes on.

typedef struct ein__attention_mask {
    ein__ex value;   // c
    ein__ex kept;    // the score of other keys
    int row;         // slot i; -1: a is 0
    int64_t a, key;  // the first key without rows up to i is a * i + key
} ein__attention_mask;

// `ex`, arithmetic on whole numbers, as an affine index form.
static bool ein__attention_count(ein_ctx *ctx, ein__ex ex, ein__ix *ix) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__ix x, y;
    double v;
    bool number = ein__ex_is_const(ctx, ex, &v);
    if (number && v >= INT16_MIN && v <= INT16_MAX && v == (double)(int16_t)v) {
        *ix = ein__ix_const(ctx, (int16_t)v);
    } else if (e.op == EIN__X_IDX) {
        *ix = e.ix[0];
    } else if (e.op == EIN__X_UNARY && e.fn == EIN__NEG) {
        if (!ein__attention_count(ctx, e.kid[0], &x)) return false;
        *ix = ein__ix_scale(ctx, x, -1);
    } else if (e.op == EIN__X_BINARY &&
               (e.fn == EIN__ADD || e.fn == EIN__SUB || e.fn == EIN__MUL)) {
        if (!ein__attention_count(ctx, e.kid[0], &x) || !ein__attention_count(ctx, e.kid[1], &y))
            return false;
        bool left = e.fn == EIN__MUL && !ein__ix_uses(ctx, x);
        if (e.fn == EIN__MUL && !left && ein__ix_uses(ctx, y)) return false;
        *ix = e.fn == EIN__ADD   ? ein__ix_add(ctx, x, y)
              : e.fn == EIN__SUB ? ein__ix_add(ctx, x, ein__ix_scale(ctx, y, -1))
              : left             ? ein__ix_scale(ctx, y, ein__ix_get(ctx, x)->c)
                                 : ein__ix_scale(ctx, x, ein__ix_get(ctx, y)->c);
    } else {
        return false;
    }
    return ein__ix_get(ctx, *ix)->q == 1 && ein__ix_affine(ctx, *ix);
}

// K of the condition of `e`, or of its contrary.
static bool ein__attention_kept(ein_ctx *ctx, const ein__expr *e, bool contrary, ein__ix *k) {
    ein__ix x, y;
    bool less = e->fn == EIN__LT || e->fn == EIN__LE;
    if (!less && e->fn != EIN__GT && e->fn != EIN__GE) return false;
    if (!ein__attention_count(ctx, e->kid[0], &x) || !ein__attention_count(ctx, e->kid[1], &y))
        return false;
    *k = less ? ein__ix_add(ctx, y, ein__ix_scale(ctx, x, -1))
              : ein__ix_add(ctx, x, ein__ix_scale(ctx, y, -1));
    if (e->fn == EIN__LT || e->fn == EIN__GT) *k = ein__ix_addc(ctx, *k, -1);
    if (contrary) *k = ein__ix_addc(ctx, ein__ix_scale(ctx, *k, -1), -1);
    return true;
}

// -inf, as it is or as log(0), or a number that any score vanishes beside: the sum of both is that
// number in f32, unless the score is 2^-25 of it, some 1e31.
static bool ein__attention_never(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double v;
    if (e->op == EIN__X_UNARY && e->fn == EIN__LOG)
        return ein__ex_is_const(ctx, e->kid[0], &v) && v == 0;
    return ein__ex_is_const(ctx, ex, &v) && v <= -3.4e38;
}

// A constant, or one element of a value that the kernel does not make.
static bool ein__attention_fixed(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_CONST || ein__attention_never(ctx, ex)) return true;
    return e->op == EIN__X_READ && e->val != a->dot.i && !ein__ex_uses(ctx, ex);
}

// The mask of `a`; false when there is none.
EIN__FN bool ein__attention_masked(ein_ctx *ctx, const ein__attention *a, ein__attention_mask *m) {
    ein__expr whole = *ein__ex_get(ctx, a->score), select = whole, *e = &select;
    ein__ex rest = {0};
    // x + -inf is -inf, so such a mask may be added as well.
    bool added = whole.op == EIN__X_BINARY && whole.fn == EIN__ADD;
    for (int k = 0; added && k < 2; k++) {
        const ein__expr *kid = ein__ex_get(ctx, whole.kid[k]);
        if (kid->op == EIN__X_SELECT) select = *kid, rest = whole.kid[1 - k];
    }
    if (a->band || e->op != EIN__X_SELECT || (a->keys & (a->keys - 1))) return false;
    for (int side = 2; side < 4; side++) {
        ein__ix k;
        if (added ? !ein__attention_never(ctx, e->kid[side])
                  : !ein__attention_fixed(ctx, a, e->kid[side]))
            continue;
        if (!ein__attention_kept(ctx, e, side == 2, &k)) return false;
        uint32_t used = ein__ix_uses(ctx, k), rows = used & ~a->keys;
        if ((used & a->keys) != a->keys || rows & (rows - 1) || rows & ~a->rows) continue;
        ein__ex kept = e->kid[5 - side];
        if (added) kept = ein__ex_binary(ctx, EIN__ADD, rest, kept);
        *m = (ein__attention_mask){.value = e->kid[side], .kept = kept, .row = -1};
        int j = 0;
        for (int i = 0; i < EIN__MAX_ITERS; i++) {
            if (rows >> i & 1) m->row = i;
            if (a->keys >> i & 1) j = i;
        }
        if (ein__ix_coef(ctx, k, (uint32_t)j) != -1) continue;
        m->a = m->row < 0 ? 0 : ein__ix_coef(ctx, k, (uint32_t)m->row);
        m->key = ein__ix_get(ctx, k)->c + 1;
        return m->a >= 0 && m->a <= INT32_MAX && m->key <= INT32_MAX && m->key >= -INT32_MAX &&
               (m->row < 0 || a->rows == 1u << m->row);
    }
    return false;
}

// The first key that no row of the `rows` rows from `first` on attends to, 0 to `keys`.
static int64_t ein__attention_end(const ein__attention_mask *m, int64_t first, int64_t rows,
                                  int64_t keys) {
    int64_t end = m->a * (first + rows - 1) + m->key;
    return end < 0 ? 0 : end < keys ? end : keys;
}
