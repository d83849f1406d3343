// Patches: the part of a factor that a tile reads through windows, as the first convolutions of
// networks read an image of few channels. Where windows overlap, a tile that loads the terms of
// every line (row or column) loads most elements many times, one by one; a block that keeps the
// patch in shared memory loads each once and multiplies from there (templates/tiles_patch.cu). The
// lines of a tile are then a box of positions, a power of two along each iterator, instead of
// consecutive ones.

enum {
    EIN__BOXES = 3,               // numbers of lines that tiles with patches have ...
    EIN__BOX_LINES = 64,          // ... this one and its doubles
    EIN__PATCH_TERMS = 256,       // of a product at most: all of them are in shared memory
    EIN__PATCH_ELEMENTS = 8192,   // at most, which a thread has on their way at once, 32 of them
    EIN__PATCH_BYTES = 99 << 10,  // that a block has on sm_86 and sm_89
    EIN__PATCH_AGAIN = 2          // how often an element is used at least
};

// The positions of a tile, 2^log[slot] along a slot, and what they see.
typedef struct ein__box {
    uint8_t log[EIN__MAX_ITERS];
    int64_t boxes, elements;  // boxes: of the whole product; 0: there is none
} ein__box;

typedef struct ein__patch {
    int side;  // the factor that is a patch: 1 the rows', 2 the columns'; 0 none
    ein__box box[EIN__BOXES];
} ein__patch;

// A dimension of the value that is read: its position is c + sum coef[slot] * iterator.
typedef struct ein__patch_axis {
    int dim;
    int64_t c, coef[EIN__MAX_ITERS];
} ein__patch_axis;

static bool ein__patch_axis_of(const ein_ctx *ctx, ein__ix ix, ein__patch_axis *a) {
    const ein__index *f = ein__ix_get(ctx, ix);
    a->c = f->c;
    memset(a->coef, 0, sizeof a->coef);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *atom = ein__atom_get(ctx, f->t[i].atom);
        if (atom->kind != EIN__ITER) return false;
        a->coef[atom->slot] = f->t[i].k;
    }
    return f->q == 1;
}

// The dimensions of `read`, outermost in memory first. False: some are no such sums.
EIN__FN bool ein__patch_axes(ein_ctx *ctx, const ein__expr *read, ein__patch_axis *axis) {
    int64_t stride[EIN__MAX_RANK];
    ein__strides_of(ctx, (ein__val){read->val}, stride);
    for (int d = 0; d < (int)read->nix; d++) {
        ein__patch_axis a = {.dim = d};
        if (!ein__patch_axis_of(ctx, read->ix[d], &a)) return false;
        int at = d;
        for (; at > 0 && stride[axis[at - 1].dim] < stride[d]; at--) axis[at] = axis[at - 1];
        axis[at] = a;
    }
    return true;
}

// Positions of axis `a` that slots `mask` move it over, of which slot i has n[i].
static int64_t ein__patch_span(const ein__patch_axis *a, uint32_t mask, const int64_t *n) {
    int64_t span = 1;
    for (int i = 0; i < EIN__MAX_ITERS; i++) {
        if (!(mask >> i & 1) || !a->coef[i]) continue;
        int64_t k = a->coef[i] < 0 ? -a->coef[i] : a->coef[i];
        span = ein__plus(span, ein__times(k, n[i] - 1));
    }
    return span;
}

// Iterators of which a box may have several, and what a choice of it is judged by.
typedef struct ein__box_search {
    const ein__scope *s;
    const ein__patch_axis *axis;
    int naxis, slot[EIN__MAX_ITERS], nslot;
    uint32_t terms;
    int64_t depth, least;
    ein__box best;
} ein__box_search;

static void ein__box_try(ein__box_search *z, const ein__box *b, int lines) {
    int64_t n[EIN__MAX_ITERS], boxes = 1, elements = 1;
    uint32_t mask = z->terms;
    memcpy(n, z->s->n, sizeof n);
    for (int i = 0; i < z->nslot; i++) {
        int at = z->slot[i];
        boxes = ein__times(boxes, ein__ceil(n[at], (int64_t)1 << b->log[at]));
        n[at] = (int64_t)1 << b->log[at];
        mask |= 1u << at;
    }
    for (int d = 0; d < z->naxis; d++)
        elements = ein__times(elements, ein__patch_span(&z->axis[d], mask, n));
    // Instructions for an element are about as many as for two terms of a line.
    int64_t each = ein__plus(ein__times(lines, z->depth), ein__times(elements, 2));
    int64_t all = ein__times(boxes, each);
    if (elements > EIN__PATCH_ELEMENTS || all >= z->least) return;
    if (ein__times(elements, EIN__PATCH_AGAIN) > ein__times(lines, z->depth)) return;
    z->least = all;
    z->best = *b;
    z->best.boxes = boxes;
    z->best.elements = elements;
}

// All boxes of 2^left lines along slots from number `i` on.
static void ein__box_choose(ein__box_search *z, ein__box *b, int i, int left, int lines) {
    if (i == z->nslot) {
        if (!left) ein__box_try(z, b, lines);
        return;
    }
    int at = z->slot[i];
    for (int k = 0; k <= left; k++) {
        b->log[at] = (uint8_t)k;
        ein__box_choose(z, b, i + 1, left - k, lines);
        if ((int64_t)1 << k >= z->s->n[at]) break;
    }
    b->log[at] = 0;
}

// Boxes for a factor that is `read` by the lines of slots `group` of a product of `depth` terms.
static bool ein__patch_of(ein_ctx *ctx, const ein__scope *s, const ein__expr *read, uint32_t group,
                          int64_t depth, ein__box *box) {
    ein__patch_axis axis[EIN__MAX_RANK];
    ein__box_search z = {.s = s, .axis = axis, .naxis = (int)read->nix, .depth = depth};
    bool any = false;
    if (read->bits || !ein__patch_axes(ctx, read, axis)) return false;
    for (uint32_t i = 0; i < s->nt; i++)
        if ((group >> i & 1) && s->n[i] > 1) z.slot[z.nslot++] = (int)i;
    z.terms = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1);
    for (int k = 0; k < EIN__BOXES; k++) {
        ein__box none = {.boxes = 0};
        z.least = INT64_MAX;
        z.best = none;
        ein__box_choose(&z, &none, 0, 6 + k, EIN__BOX_LINES << k);
        box[k] = z.best;
        any |= box[k].boxes > 0;
    }
    return any;
}
