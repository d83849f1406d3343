// Cuts: tensors that both the model and the plan compute. Once one is proved equal, later proofs
// replace it by a free variable on both sides, and so reach back to the nearest cuts only, at full
// sizes too.

typedef struct ein__prover {
    ein_ctx *ctx;
    int samples;
    // By value id: the free value that it is in later proofs, and the copy of that one by which it
    // is it, or 0; the model's value that it was proved to be. stb_ds arrays.
    uint32_t *fresh, *by, *own;
} ein__prover;

// Makes room for the context's values.
static void ein__prover_grow(ein__prover *z) {
    while (arrlen(z->fresh) < arrlen(z->ctx->value)) {
        arrput(z->fresh, 0);
        arrput(z->by, 0);
        arrput(z->own, 0);
    }
}

static void ein__prover_free(ein__prover *z) {
    arrfree(z->fresh);
    arrfree(z->by);
    arrfree(z->own);
}

// The model's value that planned value `v` goes by the name of: a tensor, or one of the values that
// it is made of; none for values made on the way.
static ein__val ein__namesake(const ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    if (p->kind != EIN__V_SCOPE || p->tensor < 0) return (ein__val){0};
    ein__val own = ctx->tensor_value[p->tensor];
    while (own.i && ctx->value[own.i].tensor == p->tensor && ctx->value[own.i].name != p->name)
        own.i--;
    const ein__value *o = &ctx->value[own.i];
    bool same = own.i && own.i != v.i && o->tensor == p->tensor && o->kind == EIN__V_SCOPE &&
                ein__is_real(ctx, own) == ein__is_real(ctx, v) &&
                (ein__is_real(ctx, v) || o->dtype == p->dtype) &&
                ein__same_shape(&o->shape, &p->shape);
    return same ? own : (ein__val){0};
}

// Marks of values: both of two compared came to it; it was looked at for a cut.
enum { EIN__MET_BOTH = EIN__MET_FIRST | EIN__MET_SECOND, EIN__MET_LOOKED = 4 };

// What both came to they came to the operands of: elements that one of them had found were taken
// by the other as they were. Operands have smaller numbers than what is made of them.
static void ein__meet_operands(const ein__prover *z, const uint32_t *fresh, uint8_t *met) {
    for (ptrdiff_t i = arrlen(met); i-- > 0;) {
        const ein__scope *s = ein__scope_of(z->ctx, (ein__val){(uint32_t)i});
        if (!s || fresh[i] || met[i] != EIN__MET_BOTH) continue;
        const ein__ex *reads = ein__ex_reads(z->ctx, s->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t r = ein__ex_get(z->ctx, reads[k])->val;
            met[fresh[r] ? fresh[r] : r] = EIN__MET_BOTH;
        }
    }
}

// Whether the definition of cut `v` is made of what was met: a definition that comes to it passes
// it by as well, as a plan that reads a slice and the whole does.
static bool ein__is_passed_by(const ein__prover *z, const uint32_t *fresh, ein__val v,
                              uint8_t *met) {
    const ein__scope *s = ein__scope_of(z->ctx, v);
    bool passed = false;
    if (!s || met[v.i] & EIN__MET_LOOKED) return false;
    met[v.i] |= EIN__MET_LOOKED;
    const ein__ex *reads = ein__ex_reads(z->ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !passed; i++) {
        ein__val r = {ein__ex_get(z->ctx, reads[i])->val};
        if (fresh[r.i] || z->ctx->value[r.i].weight_only) continue;
        passed = met[r.i] & EIN__MET_BOTH || ein__is_passed_by(z, fresh, r, met);
    }
    return passed;
}

// The last cut that one of two passes by, or, where there is none, with `any` the last that they
// came to; 0: none. Earlier ones may be what the definition of that one comes to.
static uint32_t ein__last_passed(const ein__prover *z, const uint32_t *fresh, uint8_t *met,
                                 bool any) {
    uint32_t last = 0, last_met = 0;
    ein__meet_operands(z, fresh, met);
    for (ptrdiff_t i = 0; i < arrlen(met); i++) {
        uint32_t cut = fresh[i], marks = met[cut] & EIN__MET_BOTH;
        if (!cut || !marks || cut <= last) continue;
        if (cut > last_met) last_met = cut;
        for (ptrdiff_t k = 0; k < arrlen(met); k++) met[k] &= EIN__MET_BOTH;
        if (marks != EIN__MET_BOTH || ein__is_passed_by(z, fresh, (ein__val){(uint32_t)i}, met))
            last = cut;
    }
    return last || !any ? last : last_met;
}

enum { EIN__CUT_LEVELS = 64 };  // cuts that a proof may reach behind

// Equal from the nearest cuts on; where one of the two has a cut's definition in its place, from
// the cuts behind it. `far`: also from those behind cuts that both have, which costs much.
static bool ein__prove_equal(const ein__prover *z, ein__val a, ein__val b, bool far) {
    uint32_t *fresh = NULL, last = 0;
    uint8_t *met = NULL;
    bool equal = false;
    arrsetlen(fresh, arrlen(z->fresh));
    arrsetlen(met, arrlen(z->fresh));
    memcpy(fresh, z->fresh, (size_t)arrlen(fresh) * sizeof *fresh);
    for (int level = 0; !equal && level <= EIN__CUT_LEVELS && !z->ctx->status; level++) {
        memset(met, 0, (size_t)arrlen(met));
        ein__grounds from = {fresh, z->by, met};
        equal = ein__evalp_equal_by(z->ctx, a, b, z->samples, 1, &from);
        last = equal ? 0 : ein__last_passed(z, fresh, met, far);
        if (!last) break;
        for (ptrdiff_t i = 0; i < arrlen(fresh); i++)
            if (fresh[i] == last) fresh[i] = 0;
    }
    arrfree(fresh);
    arrfree(met);
    return equal;
}

// The free value of the cut that `v` is a copy of, or 0: a proof goes through copies for nothing.
static uint32_t ein__copied_cut(const ein__prover *z, ein__val v) {
    const ein__expr *read = ein__copy_of(z->ctx, v);
    for (; read && !z->fresh[read->val]; read = ein__copy_of(z->ctx, v)) v.i = read->val;
    return read ? z->fresh[read->val] : 0;
}

// Whether copy `v` has each element of what it reads once.
static bool ein__is_reordering(ein_ctx *ctx, ein__val v, const ein__expr *read) {
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__shape *shape = &ctx->value[read->val].shape;
    ein__ix map[EIN__MAX_ITERS];
    return ein__elements(shape) == ein__extent_of(s, ~0u) &&
           ein__invert_read(ctx, read, s, shape->d, map);
}

// What planned value `v` is a copy of in another order, which goes by no name of the model: that is
// stored, and what follows reads it.
static ein__val ein__reordered(const ein__prover *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read = ein__copy_of(ctx, v);
    while (read && ein__is_reordering(ctx, v, read)) {
        ein__val from = {read->val};
        if (z->fresh[from.i] || !ein__scope_of(ctx, from) || ein__namesake(ctx, from).i) break;
        v = from;
        read = ein__copy_of(ctx, v);
    }
    return v;
}

// A tensor that has kept its name but not its meaning (a scale was folded into it) is no cut, and
// neither is one whose proof meets a limit.
static void ein__prove_cut(ein__prover *z, ein__val planned) {
    ein_ctx *ctx = z->ctx;
    ein__val own = ein__namesake(ctx, planned);
    if (!own.i || z->fresh[planned.i]) return;
    ein__attempt attempt = ein__try(ctx);
    bool equal = ein__prove_equal(z, own, planned, false);
    if (!ein__tried(ctx, attempt) || !equal) return;
    z->own[planned.i] = own.i;
    if (z->fresh[own.i]) return;
    uint32_t copied = ein__copied_cut(z, planned);
    if (copied && copied == ein__copied_cut(z, own)) return;
    ein__val stored = ein__reordered(z, planned);
    z->fresh[own.i] = z->fresh[stored.i] = own.i;
    if (stored.i != planned.i) z->by[own.i] = planned.i;
}

// A tensor that a plan no longer has, since its readers compute it from what it was a copy of, is
// one that the program had on the way: such a copy `v`, of what planned value `p` was made of, as a
// copy of `p`; none where it is no such thing.
static ein__val ein__copy_on_the_way(ein__prover *z, ein__val v, ein__val p) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    const ein__expr *read = ein__copy_of(ctx, v);
    ein__scope s = *ein__sc_get(ctx, old.scope);
    if (read->val == p.i) return v;
    if (!ein__same_shape(&ctx->value[read->val].shape, &ctx->value[p.i].shape))
        return (ein__val){0};
    s.body = ein__ex_read(ctx, p, 0, read->ix, (int)read->nix);
    ein__sc sc = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    v = ein__val_new(ctx, old.name, old.kind, old.tensor, sc, &old.shape, old.dtype, old.node);
    ein__prover_grow(z);
    return v;
}

// By id of a planned value: the last copy, named as one of the model's values, of what it was made
// of; by id of a copy: the one before it. stb_ds arrays, 0: none.
typedef struct ein__way {
    uint32_t *last, *before;
} ein__way;

static ein__way ein__way_to(ein_ctx *ctx, const ein__val *order) {
    ein__way way = {NULL, NULL};
    uint32_t *made = NULL, n = (uint32_t)arrlen(ctx->value);
    for (uint32_t i = 0; i < n; i++) {
        arrput(way.last, 0);
        arrput(way.before, 0);
        arrput(made, 0);
    }
    for (ptrdiff_t i = 0; i < arrlen(order); i++)
        for (ein__val v = order[i]; v.i && !made[v.i]; v = ctx->value[v.i].was)
            made[v.i] = order[i].i;
    for (uint32_t i = 0; i < n; i++) {
        const ein__expr *read = ein__copy_of(ctx, (ein__val){i});
        uint32_t from = read ? made[read->val] : 0;
        if (!from || !ein__namesake(ctx, (ein__val){i}).i) continue;
        way.before[i] = way.last[from];
        way.last[from] = i;
    }
    arrfree(made);
    return way;
}

// Proves the cuts of a plan; `outputs`: its outputs are some.
static void ein__prove_cuts(ein__prover *z, bool outputs) {
    ein_ctx *ctx = z->ctx;
    int nroot = (int)arrlen(ctx->graph.output);
    ein__val *order = ein__live(ctx, ctx->plan.root, nroot);
    ein__way way = ein__way_to(ctx, order);
    ein__prover_grow(z);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        bool output = false;
        for (int k = 0; k < nroot; k++) output |= ctx->plan.root[k].i == order[i].i;
        if (!output || outputs) ein__prove_cut(z, order[i]);
        for (uint32_t c = way.last[order[i].i]; c; c = way.before[c]) {
            ein__val own = ein__namesake(ctx, (ein__val){c});
            if (z->fresh[own.i] || own.i == order[i].i) continue;
            ein__val v = ein__copy_on_the_way(z, (ein__val){c}, order[i]);
            if (v.i) ein__prove_cut(z, v);
        }
    }
    arrfree(way.last);
    arrfree(way.before);
    arrfree(order);
}

// Bodies evaluated while a program is emitted: half a minute at most, whatever the sizes are.
#define EIN__EMIT_PROOFS ((int64_t)1 << 28)

// By id of a planned value that is a model's tensor: the model's value, where a proof tells that
// they are equal, else 0; an stb_ds array.
EIN__FN uint32_t *ein__proved_values(ein_ctx *ctx) {
    ein__prover z = {.ctx = ctx, .samples = 1};
    ctx->proof_steps = EIN__EMIT_PROOFS;
    ein__prove_cuts(&z, true);
    ctx->proof_steps = 0;
    for (ptrdiff_t i = 0; i < arrlen(z.own); i++)
        if (z.own[i] && ctx->tensor_value[ctx->value[z.own[i]].tensor].i != z.own[i]) z.own[i] = 0;
    // What a plan takes over as it is is the model's own.
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.tensor); i++) {
        uint32_t own = ctx->tensor_value[i].i;
        if (!z.own[own]) z.own[own] = own;
    }
    uint32_t *list = z.own;
    z.own = NULL;
    ein__prover_free(&z);
    return list;
}
