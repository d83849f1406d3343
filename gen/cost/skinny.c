// Skinny products: a contraction with at most a few rows (or columns), so few that the other factor
// streams through once and its bytes are what the product costs: fully connected layers at small
// batches. A block takes some lines of the streamed factor and all of the few, its threads share
// the terms (templates/skinny.cu).

typedef struct ein__skinny {
    ein__tiled p;
    int few, many;  // groups of `p`: 0 rows, 1 columns
    int slot;       // along which four elements of the streamed factor are one vector
    bool terms;     // that slot is one of the summation; else one of the many
} ein__skinny;

enum {
    EIN__SKINNY_FEW = 16,
    EIN__SKINNY_SUMS = 64,  // of a thread
    EIN__SKINNY_LINES = 8,  // that a thread streams at once
    EIN__SKINNY_MANY = 8,   // lines to stream at least
    EIN__SKINNY_DEPTH = 64  // terms at least: below, a thread an output does
};

// Whether four neighbours of a factor along `slot` are one aligned vector.
static bool ein__skinny_vector(const ein__scope *s, const ein__factor *f, uint32_t slot) {
    bool ok = f->coef[slot] == 1 && s->n[slot] % 4 == 0 && f->offset % 4 == 0;
    for (uint32_t i = 0; ok && i < s->nt + s->ns; i++)
        if (i != slot && s->n[i] > 1) ok = f->coef[i] % 4 == 0;
    return ok;
}

// Contraction `s` as such a product whose result has strides `out`.
EIN__FN bool ein__match_skinny(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                               ein__skinny *k) {
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    if (!ein__match_tiles(ctx, s, out, &k->p)) return false;
    k->few = k->p.extent[0] <= k->p.extent[1] ? 0 : 1;
    k->many = 1 - k->few;
    k->slot = -1;
    if (k->p.extent[k->few] > EIN__SKINNY_FEW || k->p.extent[k->many] < EIN__SKINNY_MANY ||
        k->p.depth < EIN__SKINNY_DEPTH)
        return false;
    const ein__expr *e = k->p.read[k->many];
    ein__dtype t = ctx->value[e->val].dtype;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    if (t > EIN__BF16 || !ein__address(ctx, e, stride, &f)) return false;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool line = i < s->nt && (k->p.group[k->many] >> i & 1);
        if ((!line && i < s->nt) || !ein__skinny_vector(s, &f, i)) continue;
        k->slot = (int)i;
        k->terms = i >= s->nt;
    }
    return k->slot >= 0;
}

// Lines of the streamed factor that a block takes, so many that the few are not read again too
// often, so few that every SM has two blocks. `lines`: of all batches.
static int ein__skinny_columns(const ein_ctx *ctx, int64_t few, int64_t lines) {
    int n = EIN__SKINNY_LINES;
    while (n > 1 && (n * few > EIN__SKINNY_SUMS || lines < 2 * n * ein__gpu_of(ctx)->sms)) n /= 2;
    return n;
}

// What the blocks read of the few again and again, from the caches, in elements; and the turns of a
// thread's loop.
EIN__FN int64_t ein__skinny_again(const ein_ctx *ctx, const ein__skinny *k, int64_t *turns) {
    int64_t few = k->p.extent[k->few], lines = ein__muldiv(k->p.extent[k->many], k->p.extent[2], 1);
    int64_t columns = k->terms ? ein__skinny_columns(ctx, few, lines) : 32;
    int64_t shared = k->terms ? 4 * 256 : 32;
    *turns = (k->p.depth + shared - 1) / shared;
    return ein__muldiv(ein__muldiv(lines / columns + 1, few, 1), k->p.depth, 1);
}
