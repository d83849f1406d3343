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
    EIN__SKINNY_SUMS = 64,   // of a thread
    EIN__SKINNY_LINES = 8,   // that a thread streams at once
    EIN__SKINNY_MANY = 8,    // lines to stream at least
    EIN__SKINNY_DEPTH = 64,  // terms at least: below, a thread an output does
    EIN__SKINNY_LANES = 8,   // threads along vectors of lines
    EIN__SKINNY_BLOCK = 256,
    EIN__SKINNY_BYTES = 128,    // that a thread has on their way along lines
    EIN__SKINNY_SHARED = 6144,  // floats of the few in shared memory at most
};

// Whether four neighbours of a factor along `slot` are one aligned vector.
static bool ein__skinny_vector(const ein__scope *s, const ein__factor *f, uint32_t slot) {
    bool ok = f->coef[slot] == 1 && s->n[slot] % 4 == 0 && f->offset % 4 == 0;
    for (uint32_t i = 0; ok && i < s->nt + s->ns; i++)
        if (i != slot && s->n[i] > 1) ok = f->coef[i] % 4 == 0;
    return ok;
}

// The address of factor `e` but for what a batch looks up, which begins with a vector. False: it is
// not affine.
static bool ein__skinny_address(ein_ctx *ctx, const ein__skinny *k, const ein__expr *e,
                                ein__factor *f) {
    int64_t stride[EIN__MAX_RANK];
    int looked_up = -1;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    for (uint32_t i = 0; i < e->nix; i++) {
        if (!ein__ix_has_gather(ctx, e->ix[i])) continue;
        if (looked_up >= 0 || stride[i] % 4 || (ein__ix_uses(ctx, e->ix[i]) & ~k->p.group[2]))
            return false;
        looked_up = (int)i;
    }
    return ein__address_but(ctx, e, stride, looked_up, f);
}

// Contraction `s` as such a product whose result has strides `out`.
EIN__FN bool ein__match_skinny(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                               ein__skinny *k) {
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
    if (t > EIN__BF16 || !ein__skinny_address(ctx, k, e, &f)) return false;
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

// How a product is shared among threads, and what they have on their way from memory.
typedef struct ein__skinny_cut {
    int columns;  // lines of a thread
    int lanes;    // threads that lie side by side along lines; the others share the terms
    int block;    // threads
    int ahead;    // terms, or vectors of them, that a thread loads before it multiplies by any
    int held;     // of the few, in fours
    int pitch;    // between terms in shared memory
    int64_t blocks, turns;
} ein__skinny_cut;

// A thread that loads and multiplies in turn waits for memory as often as it has loads. So it has
// several on their way, as many as keep memory busy with two blocks an SM, in turns of equal
// length.
static void ein__skinny_ahead(const ein__skinny *k, int size, ein__skinny_cut *cut) {
    int64_t count = k->terms ? k->p.depth / 4 : k->p.depth, shared = cut->block / cut->lanes;
    int most = k->terms ? EIN__SKINNY_LINES / cut->columns : EIN__SKINNY_BYTES / (4 * size);
    while (!k->terms && shared * most * cut->pitch > EIN__SKINNY_SHARED) most /= 2;
    cut->turns = ein__ceil(count, shared * most);
    cut->ahead = (int)ein__ceil(count, shared * cut->turns);
    cut->turns = ein__ceil(count, shared * cut->ahead);
}

EIN__FN ein__skinny_cut ein__skinny_cut_of(ein_ctx *ctx, const ein__skinny *k) {
    int64_t few = k->p.extent[k->few], many = k->p.extent[k->many], batch = k->p.extent[2];
    int64_t lines = ein__times(many, batch), sms = ein__gpu_of(ctx)->sms;
    ein__skinny_cut cut = {.columns = 4, .lanes = 1, .block = EIN__SKINNY_BLOCK};
    cut.held = (int)(few + 3) / 4 * 4;
    cut.pitch = cut.held % 8 ? cut.held : cut.held + 4;
    if (k->terms) {
        cut.columns = ein__skinny_columns(ctx, few, lines);
        while (cut.block > 32 && k->p.depth / 4 <= cut.block / 2) cut.block /= 2;
    } else {
        cut.lanes = lines < sms * 4 * EIN__SKINNY_LANES ? EIN__SKINNY_LANES / 2 : EIN__SKINNY_LANES;
    }
    cut.blocks = ein__times(ein__ceil(many, cut.columns * cut.lanes), batch);
    ein__skinny_ahead(k, (int)ein__element_size(ctx, (ein__val){k->p.read[k->many]->val}), &cut);
    return cut;
}
