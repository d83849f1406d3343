// What an attention's kernel computes while it loads queries, keys or values: a map that nothing
// else reads, as in prologue.c for products. Examples are a rotation by position (Su et al. 2021,
// RoFormer) between a projection and its attention, a scale, and a bias behind a reshape. A query
// is loaded once for a tile of rows; keys and values are computed again for every tile that meets
// them, instead of being copied while others are multiplied: decided by cost.

enum { EIN__ATTENTION_PARTS = 3 };

static ein__ex *ein__attention_part(ein__attention *a, int part) {
    return part == 0 ? &a->query : part == 1 ? &a->key : &a->value;
}

// What `part` reads as a whole; none where it is computed.
static const ein__expr *ein__attention_factor(ein_ctx *ctx, ein__attention *a, int part) {
    const ein__expr *e = ein__ex_get(ctx, *ein__attention_part(a, part));
    return e->op == EIN__X_READ ? e : NULL;
}

// Puts the definition of what `part` reads in its place; false: there is no room for it.
static bool ein__attention_inline(ein_ctx *ctx, ein__attention *a, int part) {
    const ein__expr *e = ein__attention_factor(ctx, a, part);
    if (!e || a->nload == EIN__ATTENTION_LOADS || !ein__is_map(ctx, (ein__val){e->val}))
        return false;
    ein__ex body = ein__load_of(ctx, e, (ein__val){e->val});
    if (!body.i) return false;
    a->load[a->nload++] = (ein__val){e->val};
    *ein__attention_part(a, part) = body;
    return true;
}

static bool ein__is_in_step(const ein__step *step, uint32_t v) {
    bool found = false;
    for (int k = 0; k < step->nval; k++) found |= step->val[k].i == v;
    return found;
}

// The attention that `step` computes.
EIN__FN bool ein__attention_of(ein_ctx *ctx, const ein__step *step, ein__attention *a) {
    ein__val last = step->val[step->nval - 1];
    bool found = false;
    if (!ein__is_map(ctx, last)) found = ein__match_attention(ctx, last, (ein__val){0}, a);
    for (int k = step->nval - 1; k-- > 0 && !found && ein__is_map(ctx, last);)
        found = ein__match_attention(ctx, step->val[k], last, a);
    for (int part = 0; part < EIN__ATTENTION_PARTS && found; part++)
        for (const ein__expr *e = ein__attention_factor(ctx, a, part);
             e && found && ein__is_in_step(step, e->val); e = ein__attention_factor(ctx, a, part))
            found = ein__attention_inline(ctx, a, part);
    return found;
}

// What the kernel of an attention does: nothing but a softmax needs a maximum.
EIN__FN const char *ein__attention_word(ein_ctx *ctx, const ein__step *step) {
    for (int k = 0; k < step->nval; k++) {
        const ein__scope *s = ein__scope_of(ctx, step->val[k]);
        if (s && s->reduce == EIN__R_MAX) return "online softmax";
    }
    return "products as one";
}

// ------------------------------------------------------------------------------------ cost

// What a factor that is computed takes beside a plain copy: reads, bytes of an element of all of
// them, operations of an element, and how many neighbours along `slots` are loaded at once (0: they
// do not lie together).
typedef struct ein__attention_work {
    bool computed;
    int64_t reads, bytes, operations;
    int width;
} ein__attention_work;

// The number of neighbours along the only one of `slots` that `read` gives at once, 16 bytes at
// most; 0: they do not lie together.
static int ein__attention_width(ein_ctx *ctx, const ein__attention *a, const ein__expr *read,
                                uint32_t slots) {
    uint32_t slot = 0;
    if (!slots) return 1;
    while (!(slots >> slot & 1)) slot++;
    if (slots != 1u << slot || ein__read_step(ctx, read, slot) != 1) return 0;
    ein__val v = {read->val};
    bool halves = ein__element_size(ctx, v) == 2 && ctx->value[v.i].dtype != EIN__BF16;
    int width = halves ? 8 : 4;
    while (a->box.n[slot] % width) width = width == 8 ? 4 : 1;
    return width;
}

// Whether it is keys that lie together in `factor`, and not what one of them has along `slots`.
static bool ein__attention_lies_across(ein_ctx *ctx, const ein__attention *a, ein__ex factor,
                                       uint32_t slots) {
    bool across = false;
    const ein__ex *reads = ein__ex_reads(ctx, factor);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        for (uint32_t slot = 0; slot < a->slots; slot++) {
            if (!((a->keys | slots) >> slot & 1)) continue;
            if (ein__read_step(ctx, ein__ex_get(ctx, reads[i]), slot) != 1) continue;
            if (slots >> slot & 1) return false;
            across = true;
        }
    return across;
}

// Bytes that are fetched for an element of `read`: where neither a key's elements along `slots` nor
// those of keys lie together, what lies between them comes along, up to a sector.
static int64_t ein__attention_fetched(ein_ctx *ctx, const ein__attention *a, const ein__expr *read,
                                      uint32_t slots) {
    enum { SECTOR = 32 };
    int64_t size = ein__element_size(ctx, (ein__val){read->val}), nearest = 0;
    for (uint32_t slot = 0; slot < a->slots; slot++) {
        if (!((a->keys | slots) >> slot & 1)) continue;
        int64_t step = ein__read_step(ctx, read, slot);
        if (step > 0 && (!nearest || step < nearest)) nearest = step;
    }
    return nearest > 1 ? ein__least(ein__times(size, nearest), SECTOR) : size;
}

static ein__attention_work ein__attention_loading(ein_ctx *ctx, const ein__attention *a,
                                                  ein__ex factor, uint32_t slots) {
    ein__attention_work w = {.computed = ein__ex_get(ctx, factor)->op != EIN__X_READ, .width = 8};
    const ein__ex *reads = ein__ex_reads(ctx, factor);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        bool digits = false;
        w.reads++;
        w.bytes += ein__attention_fetched(ctx, a, e, slots);
        for (uint32_t k = 0; k < e->nix; k++) digits |= !ein__ix_affine(ctx, e->ix[k]);
        w.operations += digits;
        if (!w.computed || ein__ex_uses(ctx, reads[i]) & slots)
            w.width = (int)ein__least(w.width, ein__attention_width(ctx, a, e, slots));
    }
    // What is computed is converted one by one, and stored four at a time.
    if (w.computed) w.operations += ein__ex_operations(ctx, factor) + 1;
    if (w.computed) w.width = (int)ein__most(ein__least(w.width, 4), 1);
    return w;
}
