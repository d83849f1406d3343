// The inverse of a read: the reader's iterators as functions of the position in the value that it
// reads.

// Digits of an iterator that a read has: `scale` of the iterator are one of a digit, which takes
// `size` values. All of the iterator is one digit.
typedef struct ein__digits_read {
    int n;
    int64_t scale[EIN__MAX_RANK], size[EIN__MAX_RANK];
} ein__digits_read;

// The digit of an iterator of `s`, or all of it, that `a` is. False: it is none.
static bool ein__read_digit(ein_ctx *ctx, const ein__scope *s, const ein__atom *a, uint32_t *slot,
                            int64_t *scale, int64_t *size) {
    if (a->kind == EIN__ITER) {
        *slot = a->slot;
        *scale = 1;
        *size = *slot < s->nt ? s->n[*slot] : 0;
        return *size > 0;
    }
    if (a->kind != EIN__FLOOR && a->kind != EIN__MOD) return false;
    const ein__index *f = ein__ix_get(ctx, (ein__ix){a->ix});
    if (f->n != 1 || f->c || f->q != 1 || f->t[0].k != 1) return false;
    if (!ein__read_digit(ctx, s, ein__atom_get(ctx, f->t[0].atom), slot, scale, size) ||
        *size % a->n)
        return false;
    if (a->kind == EIN__FLOOR) *scale *= a->n;
    *size = a->kind == EIN__FLOOR ? *size / a->n : a->n;
    return true;
}

// Takes down the digit that `a` is. False: it is none, or of one value, or one too many.
static bool ein__take_digit(ein_ctx *ctx, const ein__scope *s, const ein__atom *a,
                            ein__digits_read *found, uint32_t *slot, int64_t *scale,
                            int64_t *size) {
    if (!ein__read_digit(ctx, s, a, slot, scale, size) || *size < 2) return false;
    ein__digits_read *d = &found[*slot];
    if (d->n == EIN__MAX_RANK) return false;
    d->scale[d->n] = *scale;
    d->size[d->n++] = *size;
    return true;
}

// Whether the digits make up an iterator of extent `n`, each there once.
static bool ein__digits_whole(const ein__digits_read *d, int64_t n) {
    int64_t unit = 1;
    for (int turn = 0; turn < d->n; turn++) {
        int at = 0;
        while (at < d->n && d->scale[at] != unit) at++;
        if (at == d->n) return false;
        unit *= d->size[at];
    }
    return unit == n;
}

// Adds what subscript `f`, of a dimension of `extent` whose iterator is `it`, tells of the
// iterators of `s`: it is a digit, or a number of several ones, k * digit with k the sizes of those
// below. False when it is neither.
static bool ein__invert_subscript(ein_ctx *ctx, const ein__scope *s, const ein__index *f,
                                  ein__ix it, int64_t extent, ein__digits_read *found,
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
// `extent`: `map[t]` for every traversal slot t. Subscripts are t, digits of t as t / d, t % d and
// t / d % e, numbers of such digits, or constants. False when digits do not make up each t, as t /
// 4 and t / 2.
static bool ein__invert_read(ein_ctx *ctx, const ein__expr *read, const ein__scope *s,
                             const int64_t *extent, ein__ix *map) {
    ein__digits_read found[EIN__MAX_ITERS];
    memset(found, 0, sizeof found);
    for (uint32_t t = 0; t < s->nt; t++) map[t] = ein__ix_const(ctx, 0);
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        ein__ix it = ein__ix_iter(ctx, k, extent[k]);
        if (f->n && !ein__invert_subscript(ctx, s, f, it, extent[k], found, map)) return false;
    }
    for (uint32_t t = 0; t < s->nt; t++)
        if (s->n[t] > 1 && !ein__digits_whole(&found[t], s->n[t])) return false;
    return true;
}
