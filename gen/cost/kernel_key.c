// Keys of our own kernels in tables of costs: `kernel KIND ID`. ID is a hash of all that decides a
// kernel's text: expressions by structure, extents, shapes and strides of what it reads and stores,
// sizes of their elements, the templates of its kind and EIN_CODEGEN. Values' names and a context's
// ids are not in it, so equal kernels of different models and of different derivations share a row;
// a kernel whose template has changed has lost its rows. A product's row names its tile behind
// ` algo=`, as a call's names its algorithm.

enum {
    EIN__KEY_READS = 32,      // distinct operands that are told apart
    EIN__KEY_NODES = 100000,  // of an expression as a tree; what follows is not told apart
    EIN__KEY_LENGTH = 48,
    EIN__KEY_ALIGN = 8  // elements: of 16-byte addresses, if they are halves
};

typedef struct ein__hasher {
    ein_ctx *ctx;
    bool relaid;            // operands known at load may still be laid out anew
    const ein__val *inner;  // values in registers
    const ein__val *load;   // two that the loads of a product compute, or NULL
    int ninner, nodes, nseen;
    uint32_t seen[EIN__KEY_READS];
} ein__hasher;

static uint64_t ein__mix(uint64_t h, uint64_t v) { return ein__splitmix(h ^ ein__splitmix(v + 1)); }

static uint64_t ein__hash_ex(ein__hasher *z, ein__ex ex);
static uint64_t ein__hash_box(const ein__scope *s, uint32_t slots);

// Terms have no order here: theirs is one of ids.
static uint64_t ein__hash_ix(ein__hasher *z, ein__ix ix) {
    ein_ctx *ctx = z->ctx;
    const ein__index f = ein__ix_copy(ein__ix_get(ctx, ix));
    uint64_t h = ein__mix(ein__mix(1, (uint64_t)f.c), (uint64_t)f.q), sum = 0;
    if (++z->nodes > EIN__KEY_NODES) return h;
    for (uint32_t t = 0; t < f.n; t++) {
        const ein__index *now = ein__ix_get(ctx, ix);
        const ein__atom a = *ein__atom_get(ctx, now->t[t].atom);
        uint64_t term = ein__mix(ein__mix((uint64_t)now->t[t].k, a.kind), (uint64_t)a.n);
        if (a.kind == EIN__ITER) term = ein__mix(term, a.slot);
        else if (a.kind == EIN__GATHER) term = ein__mix(term, ein__hash_ex(z, (ein__ex){a.ex}));
        else term = ein__mix(term, ein__hash_ix(z, (ein__ix){a.ix}));
        sum += term;
    }
    return ein__mix(h, sum);
}

// What a kernel needs to know of an operand: where its elements lie and how large they are; of a
// constant matrix its entries, which are in the text.
static uint64_t ein__hash_operand(ein__hasher *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    int64_t stride[EIN__MAX_RANK];
    const ein__value *p = &ctx->value[v.i];
    bool real = p->dtype == EIN__F32 || p->dtype == EIN__F16;
    // Before types are settled stand-ins do not tell what will be a half.
    int64_t size = real && ein__is_untyped(ctx) ? 2 : ein__dtype_size(p->dtype);
    uint64_t h = ein__mix(real ? 2 : 3 + (uint64_t)p->dtype, (uint64_t)size);
    const ein__layout *l = ein__layout_of(ctx, v);
    ein__strides_of(ctx, v, stride);
    for (int k = 0; k < p->shape.rank; k++) {
        h = ein__mix(h, (uint64_t)p->shape.d[k]);
        if (p->shape.d[k] > 1) h = ein__mix(h, (uint64_t)stride[k]);
    }
    h = ein__mix(h, l ? (uint64_t)l->offset % EIN__KEY_ALIGN : 0);
    return ein__is_table(ctx, v) ? ein__mix(h, ein__hash_ex(z, ein__scope_of(ctx, v)->body)) : h;
}

// What a load computes is told by its definition, by where it is wanted and by how it would lie,
// after which lanes are laid.
static uint64_t ein__hash_load(ein__hasher *z, const ein__expr *e) {
    const ein__scope *s = ein__scope_of(z->ctx, (ein__val){e->val});
    uint64_t h = ein__mix(ein__hash_box(s, s->nt), ein__hash_ex(z, s->body));
    h = ein__mix(h, ein__hash_operand(z, (ein__val){e->val}));
    for (uint32_t k = 0; k < e->nix; k++) h = ein__mix(h, ein__hash_ix(z, e->ix[k]));
    return h;
}

static uint64_t ein__hash_read(ein__hasher *z, const ein__expr *e) {
    bool known = false;
    for (int i = 0; z->load && i < 2; i++)
        if (z->load[i].i && z->load[i].i == e->val) return ein__hash_load(z, e);
    for (int i = 0; i < z->ninner; i++)
        if (z->inner[i].i && z->inner[i].i == e->val) return ein__mix(4, (uint64_t)i);
    for (int i = 0; i < z->nseen; i++) known |= z->seen[i] == e->val;
    if (!known && z->nseen < EIN__KEY_READS) z->seen[z->nseen++] = e->val;
    if (z->relaid && z->ctx->value[e->val].weight_only) {
        uint32_t used = 0;
        for (uint32_t k = 0; k < e->nix; k++) used |= ein__ix_uses(z->ctx, e->ix[k]);
        return ein__mix(5, used);
    }
    uint64_t h = ein__mix(ein__hash_operand(z, (ein__val){e->val}), e->bits);
    for (uint32_t k = 0; k < e->nix; k++) h = ein__mix(h, ein__hash_ix(z, e->ix[k]));
    return h;
}

// Operands of what commutes have no order: theirs is one of ids.
static uint64_t ein__hash_ex(ein__hasher *z, ein__ex ex) {
    const ein__expr e = *ein__ex_get(z->ctx, ex);
    if (++z->nodes > EIN__KEY_NODES) return 0;
    if (e.op == EIN__X_READ) return ein__hash_read(z, &e);
    bool commutes = e.op == EIN__X_BINARY &&
                    (e.fn == EIN__ADD || e.fn == EIN__MUL || e.fn == EIN__MIN || e.fn == EIN__MAX);
    uint64_t h = ein__mix(ein__mix(6 + e.op, e.fn), ein__mix(e.negate, (uint64_t)e.n)), sum = 0;
    h = ein__mix(h, e.bits);
    for (uint32_t k = 0; k < e.nkid; k++) {
        uint64_t kid = ein__hash_ex(z, e.kid[k]);
        if (commutes) sum += kid;
        else h = ein__mix(h, kid);
    }
    if (e.op == EIN__X_IDX || e.op == EIN__X_WHEN) h = ein__mix(h, ein__hash_ix(z, e.ix[0]));
    return ein__mix(h, sum);
}

static uint64_t ein__hash_box(const ein__scope *s, uint32_t slots) {
    uint64_t h = ein__mix(ein__mix(s->reduce, s->nt), slots);
    for (uint32_t i = 0; i < slots; i++) h = ein__mix(h, (uint64_t)s->n[i]);
    return h;
}

static uint64_t ein__hash_kind(const ein_ctx *ctx, ein__kind kind) {
    // Kernels that multiply may have other instructions in other modes.
    bool product = kind == EIN__K_PRODUCT || kind == EIN__K_BAND || kind == EIN__K_ATTENTION;
    uint64_t h = ein__mix(ein__mix(EIN_CODEGEN, ctx->kernel_seed[kind]), kind);
    return ein__mix(h, product ? (uint64_t)ctx->desc.math : 0);
}

// The result's strides (NULL: dense) and the size of its elements.
static uint64_t ein__hash_result(uint64_t h, const ein__scope *s, const int64_t *out,
                                 int64_t size) {
    int64_t dense[EIN__MAX_RANK];
    if (!out) {
        ein__dense_result(s, dense);
        out = dense;
    }
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] > 1) h = ein__mix(h, (uint64_t)out[i]);
    return ein__mix(h, (uint64_t)size);
}

static void ein__put_kernel_key(char key[EIN__KEY_LENGTH], ein__kind kind, uint64_t id) {
    snprintf(key, EIN__KEY_LENGTH, "kernel %s %016llx", ein__kernel_word(kind),
             (unsigned long long)id);
}
