// The inverse of a read: where the reader's iterators are, told by those of what is read.

// Which digits of an iterator a read has: the values of the lower one, and how many of those one of
// the upper one is; 0: not that one. All of the iterator is a lower one.
typedef struct ein__digit_pair {
    int64_t lower, upper;
} ein__digit_pair;

// The digit, or all, of an iterator of `s` that `a` is: `scale` of the iterator are one of it,
// which takes `size` values. False: it is none, or there already.
static bool ein__take_digit(ein_ctx *ctx, const ein__scope *s, const ein__atom *a,
                            ein__digit_pair *found, uint32_t *slot, int64_t *scale, int64_t *size) {
    bool digit = a->kind == EIN__FLOOR || a->kind == EIN__MOD;
    *slot = a->slot;
    if (digit ? !ein__ix_is_iter(ctx, (ein__ix){a->ix}, slot) : a->kind != EIN__ITER) return false;
    if (*slot >= s->nt) return false;
    int64_t n = s->n[*slot], *at = &found[*slot].lower;
    if (a->kind == EIN__FLOOR) at = &found[*slot].upper;
    if (*at) return false;
    *scale = a->kind == EIN__FLOOR ? a->n : 1;
    *size = a->kind == EIN__MOD ? a->n : n / *scale;
    *at = a->kind == EIN__FLOOR ? *scale : *size;
    return *size > 1;
}

// Adds what subscript `f`, of a dimension of `extent` whose iterator is `it`, tells of the
// iterators of `s`: it is a digit, or a number of several ones, k * digit with k the sizes of those
// below. False when it is neither.
static bool ein__invert_subscript(ein_ctx *ctx, const ein__scope *s, const ein__index *f,
                                  ein__ix it, int64_t extent, ein__digit_pair *found,
                                  ein__ix *map) {
    int64_t unit = 1;
    if (f->c || f->q != 1) return false;
    for (uint32_t n = 0; n < f->n; n++) {
        uint32_t t = 0, slot;
        int64_t scale, size;
        while (t < f->n && f->t[t].k != unit) t++;
        if (t == f->n) return false;
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        if (!ein__take_digit(ctx, s, a, found, &slot, &scale, &size) || size > extent / unit)
            return false;
        ein__ix digit = ein__ix_mod(ctx, ein__ix_floordiv(ctx, it, unit), size);
        map[slot] = ein__ix_add(ctx, map[slot], ein__ix_scale(ctx, digit, scale));
        unit *= size;
    }
    return unit == extent;
}

// The iterators of reader `s` in terms of those of the value that it reads, whose dimensions have
// `extent`: `map[t]` for every traversal slot t. Subscripts are t, t / d, t % d, numbers of such
// digits, or constants. False when digits do not make up each t, as t / 4 and t / 2.
static bool ein__invert_read(ein_ctx *ctx, const ein__expr *read, const ein__scope *s,
                             const int64_t *extent, ein__ix *map) {
    ein__digit_pair found[EIN__MAX_ITERS] = {{0, 0}};
    for (uint32_t t = 0; t < s->nt; t++) map[t] = ein__ix_const(ctx, 0);
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        ein__ix it = ein__ix_iter(ctx, k, extent[k]);
        if (f->n && !ein__invert_subscript(ctx, s, f, it, extent[k], found, map)) return false;
    }
    for (uint32_t t = 0; t < s->nt; t++) {
        int64_t n = s->n[t], lower = found[t].lower, upper = found[t].upper;
        bool all = upper ? upper == lower && n % upper == 0 : lower == n;
        if (n > 1 && !all) return false;
    }
    return true;
}
