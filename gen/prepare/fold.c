// Rewrites of the value program that need no search: maps inlined into maps, weight-only factors of
// a linear epilogue folded into the weights (batch normalisation is the common case). Each pass
// rebuilds the program bottom-up.

// A concatenation with all its pieces, and as it is read (nest.c).
typedef struct ein__nested {
    ein__val flat, now;
} ein__nested;

typedef struct ein__pass {
    ein_ctx *ctx;
    ein__val *order;  // live values, operands first; stb_ds array
    ein__val *now;    // by old value id: what it has become
    int *uses;        // by old value id: values that read it (outputs count as one more)
    ein__readers readers;
    size_t nold;
    ein__val *by_scope;   // by scope id: the value with this definition, so that equal ones are one
    ein__val self;        // value being rebuilt
    bool reduction;       // ... is a reduction
    bool copies_only;     // inline nothing but copies
    bool digits;          // ... and those that take a subscript apart as well
    bool lines_only;      // ... and lines that are looked up
    bool keep;            // a contraction that a library computes as it stands keeps its operands
    bool nothing;         // inline nothing
    bool joins;           // the value being rebuilt lays others side by side
    ein__nested *joined;  // concatenations so far; stb_ds array
    void *user;           // of the rewrite
} ein__pass;

static bool ein__ex_affine(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nix; i++)
        if (!ein__ix_affine(ctx, e->ix[i])) return false;
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__ex_affine(ctx, e->kid[i])) return false;
    return true;
}

// Whether no subscript of `read` is looked up, and none takes iterators of `whole` apart.
static bool ein__read_is_plain(ein_ctx *ctx, const ein__expr *read, uint32_t whole) {
    for (uint32_t i = 0; i < read->nix; i++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[i]);
        if (ein__ix_has_gather(ctx, read->ix[i])) return false;
        for (uint32_t t = 0; t < f->n; t++) {
            const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
            if (a->kind != EIN__ITER && (ein__atom_uses(ctx, f->t[t].atom) & whole)) return false;
        }
    }
    return true;
}

// Whether a kernel that takes operands wherever they lie may as well read what copy `p` reads:
// neighbours along the last dimension of `read` stay neighbours.
static bool ein__sees_through(ein_ctx *ctx, ein__val p, const ein__expr *read) {
    uint32_t nt = ein__scope_of(ctx, p)->nt, last = nt ? ein__ix_uses(ctx, read->ix[nt - 1]) : 0;
    double factor;
    return ein__read_is_plain(ctx, read, last) &&
           ein__read_is_plain(ctx, ein__multiple_of(ctx, p, &factor), nt ? 1u << (nt - 1) : 0);
}

static bool ein__ex_reads_reduction(ein_ctx *ctx, ein__ex ex) {
    bool found = false;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__scope *s = ein__scope_of(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val});
        found |= s && s->reduce != EIN__R_NONE;
    }
    return found;
}

// ------------------------------------------------------------------------------------ inlining

// Traversal merging: W[i] = g(i), read at E(x), is g(E(x)) where E(x) is in W's box, and 0
// elsewhere. None when that cannot be written as an expression. Precondition: E gives integers, and
// where it leaves the box the padding of the read is 0.
static ein__ex ein__inline_body(ein_ctx *ctx, const ein__scope *s, ein__ex body,
                                const ein__expr *read) {
    for (uint32_t i = 0; i < read->nix; i++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[i]);
        bool inside = f->lo >= 0 && f->hi < s->n[i];
        if (f->q != 1 || (!inside && read->bits)) return (ein__ex){0};
    }
    body = ein__ex_subst(ctx, body, read->ix, (int)s->nt);
    for (uint32_t i = 0; body.i && i < read->nix; i++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[i]);
        if (f->lo < 0 || f->hi >= s->n[i])
            body = ein__ex_when(ctx, read->ix[i], s->n[i], false, body);
    }
    return body;
}
static ein__ex ein__rule_inline(ein_ctx *ctx, ein__val p, const ein__expr *read) {
    const ein__scope *s = ein__scope_of(ctx, p);
    return ein__inline_body(ctx, s, s->body, read);
}

enum { EIN__MAX_INLINE = 160 };  // nodes of an inlined body, counted as a tree

// How many times fewer elements a value has that counts as small, and how many nodes an expression
// that is computed again for it may have.
enum { EIN__SMALL_SHARE = 8, EIN__SMALL_BODY = 5, EIN__STATISTIC_BODY = 8 };

// What map `p` reads: values about as large as itself, reductions that are small beside it, and
// whether one of the large ones is a reduction that only `p` reads, so that its kernel computes
// `p`.
static void ein__operands_of(const ein__pass *z, ein__val p, int *large, bool *statistic,
                             bool *behind) {
    ein_ctx *ctx = z->ctx;
    int64_t its = ein__elements(&ctx->value[p.i].shape);
    *large = 0;
    *statistic = *behind = false;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, p)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        const ein__scope *s = ein__scope_of(ctx, v);
        bool reduction = s && s->reduce != EIN__R_NONE;
        bool small = ein__elements(&ctx->value[v.i].shape) * EIN__SMALL_SHARE <= its;
        *statistic |= reduction && small;
        *large += !small;
        bool shared = (ptrdiff_t)v.i < arrlen(z->uses) && z->uses[v.i] > 1;
        *behind |= reduction && !small && !shared;
    }
}

// Whether there is nothing but arithmetic in `ex`.
static bool ein__is_arithmetic(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    bool plain = e->op == EIN__X_CONST || e->op == EIN__X_READ;
    if (e->op == EIN__X_UNARY) plain = e->fn == EIN__NEG || e->fn == EIN__SQUARE;
    if (e->op == EIN__X_BINARY)
        plain = e->fn != EIN__POW && e->fn != EIN__QUOT && e->fn != EIN__REM;
    for (uint32_t i = 0; i < e->nkid && plain; i++) plain = ein__is_arithmetic(ctx, e->kid[i]);
    return plain;
}

// Whether map `p`, which several values read, is no more to read than what it is made of: one value
// and statistics of it, as where a mean is taken away.
static bool ein__is_centred(const ein__pass *z, ein__val p) {
    int large;
    bool statistic, behind;
    ein__ex body = ein__scope_of(z->ctx, p)->body;
    if (ein__ex_size(z->ctx, body) > EIN__STATISTIC_BODY || !ein__is_arithmetic(z->ctx, body))
        return false;
    ein__operands_of(z, p, &large, &statistic, &behind);
    return large == 1 && statistic && !behind;
}

// Sums that a thread adds up together (pair.c, sums.c), at most; and of how many terms at least if
// these have work in common: those of windows (strip.c) are no more.
enum { EIN__SUMS = 4, EIN__COMMON_TERMS = 64 };

// For how many results of reduction `r` a thread may compute what `read` gives once: those along an
// iterator that it does not have.
static int64_t ein__computed_for(ein_ctx *ctx, const ein__scope *r, const ein__expr *read) {
    int64_t n = ein__extent_of(r, ~ein__ex_uses(ctx, ein__ex_of(ctx, read)) & ((1u << r->nt) - 1));
    bool enough = ein__extent_of(r, ~0u << r->nt) > EIN__COMMON_TERMS;
    return enough && r->reduce == EIN__R_SUM && n <= EIN__SUMS ? n : 1;
}

// Whether reduction `self` reads each element of copy `p` once, and nothing else does, of lines
// that are looked up: it may as well look them up.
static bool ein__finds_once(const ein__pass *z, ein__val old, ein__val p) {
    const ein__expr *copy = ein__copy_of(z->ctx, p);
    return copy && z->uses[old.i] == 1 &&
           ein__extent_of(ein__scope_of(z->ctx, z->self), ~0u) ==
               ein__elements(&z->ctx->value[p.i].shape) &&
           ein__finds_lines(z->ctx, copy, ein__scope_of(z->ctx, p));
}

// Whether reduction `self` may compute `p`, each element of which it reads once.
static bool ein__may_reduce(const ein__pass *z, ein__val old, ein__val p, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *r = ein__scope_of(ctx, z->self);
    int64_t volume = ein__extent_of(r, ~0u), its = ein__elements(&ctx->value[p.i].shape);
    int large;
    bool statistic, behind;
    const ein__expr *copy = ein__copy_of(ctx, p);
    if (copy && ein__repeats(ctx, copy)) return true;
    // A statistic of the row, such as a mean: cheaper to finish here than to store.
    if (ein__ex_size(ctx, ein__scope_of(ctx, p)->body) <= EIN__SMALL_BODY &&
        its <= volume / EIN__SMALL_SHARE)
        return ein__ex_reads_reduction(ctx, ein__scope_of(ctx, p)->body);
    if (copy)
        return ein__reads_whole(ctx, copy, ein__scope_of(ctx, p)) || ein__finds_once(z, old, p);
    if (volume > its * ein__computed_for(ctx, r, read)) return false;
    ein__operands_of(z, p, &large, &statistic, &behind);
    if (z->uses[old.i] == 2 && !statistic && ein__rule_on(ctx, EIN__RULE_FUSE) &&
        ein__in_place(ctx, z->order, z->self))
        return !behind;
    return !behind && (z->uses[old.i] == 1 || ein__is_centred(z, p));
}

// Whether no two elements of the reader's box read one element: each of its iterators stands alone
// in a subscript, as where values are laid side by side.
static bool ein__reads_once(ein_ctx *ctx, const ein__expr *read, const ein__scope *reader) {
    uint32_t alone = 0, slot;
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        bool one = ein__ix_is_iter(ctx, ein__ix_addc(ctx, read->ix[k], -f->c), &slot);
        if (one && f->q == 1) alone |= 1u << slot;
    }
    for (uint32_t i = 0; i < reader->nt; i++)
        if (reader->n[i] > 1 && !(alone >> i & 1)) return false;
    return true;
}

// Whether the reader may be stored piece by piece by what computes the values that it reads
// (layout.c): none of them is there before, or a copy.
static bool ein__may_be_filled(const ein__pass *z) {
    ein_ctx *ctx = z->ctx;
    bool may = true;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, z->self)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && may; i++) {
        ein__val v = z->now[ein__ex_get(ctx, reads[i])->val];
        may = ein__scope_of(ctx, v) && !ctx->value[v.i].weight_only && !ein__copy_of(ctx, v);
    }
    return may;
}

// Whether map `p`, which the reader alone reads, is computed there as often as by itself, and is
// not what a kernel of its own would compute behind a reduction or straight into its place.
static bool ein__is_moved(const ein__pass *z, ein__val p, const ein__expr *read) {
    int large;
    bool statistic, behind;
    if (!ein__reads_once(z->ctx, read, ein__scope_of(z->ctx, z->self)) || ein__may_be_filled(z))
        return false;
    ein__operands_of(z, p, &large, &statistic, &behind);
    return !behind && !statistic;
}

// At how many places the reader takes `old` for each of its elements.
static int ein__places_read(const ein__pass *z, ein__val old) {
    int places = 0;
    const ein__ex *reads = ein__ex_reads(z->ctx, ein__scope_of(z->ctx, z->self)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        places += ein__ex_get(z->ctx, reads[i])->val == old.i;
    return places;
}

// What may be computed again so that a map is not stored: so many nodes of its body for each of its
// elements, or so many nodes in all. The first is about what a store and a load cost, the second a
// launch. A function is as much as so many nodes.
enum { EIN__AGAIN_BODY = 32, EIN__AGAIN_WORK = 1 << 25, EIN__FUNCTION_NODES = 16 };

// Whether `e` is a function that is many instructions.
static bool ein__is_long(const ein__expr *e) {
    if (e->op == EIN__X_BINARY) return e->fn == EIN__POW;
    return e->op == EIN__X_UNARY && e->fn != EIN__NEG && e->fn != EIN__ABS && e->fn != EIN__RELU &&
           e->fn != EIN__SQUARE;
}

// Nodes that computing `ex` is worth.
static int64_t ein__ex_work(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    int64_t n = ein__is_long(e) ? EIN__FUNCTION_NODES : 1;
    for (uint32_t i = 0; i < e->nkid; i++) n += ein__ex_work(ctx, e->kid[i]);
    return n;
}

// Whether map `p`, there `old`, would be computed so often by a reader that takes it at several
// places, as a step of a stencil takes the one before, that it is rather stored.
static bool ein__is_again(const ein__pass *z, ein__val old, ein__val p) {
    ein_ctx *ctx = z->ctx;
    int64_t its = ein__elements(&ctx->value[p.i].shape);
    int64_t mine = ein__elements(&ctx->value[z->self.i].shape);
    double again = (double)mine * ein__places_read(z, old) - (double)its;
    double work = again * (double)ein__ex_work(ctx, ein__scope_of(ctx, p)->body);
    return work > EIN__AGAIN_BODY * (double)its && work > EIN__AGAIN_WORK;
}

// Whether the reader takes `p`, there `old`, at several places for each of its elements, as a
// resize does, and a reduction's kernel computes `p`, which is then for nothing.
static bool ein__is_resampled(const ein__pass *z, ein__val old, ein__val p) {
    int large;
    bool statistic, behind;
    if (ein__places_read(z, old) < 2) return false;
    ein__operands_of(z, p, &large, &statistic, &behind);
    return behind;
}

// Whether every element of `p` is one of the reader's whose address is affine: `p` can lie as the
// reader does.
static bool ein__can_lie_as_read(ein_ctx *ctx, ein__val p, const ein__expr *read,
                                 const ein__scope *reader) {
    const ein__shape *s = &ctx->value[p.i].shape;
    ein__ix map[EIN__MAX_ITERS];
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] > 1 && !ein__ix_uses(ctx, read->ix[k])) return false;
    if (!ein__invert_read(ctx, read, reader, s->d, map)) return false;
    for (uint32_t t = 0; t < reader->nt; t++)
        if (!ein__ix_affine(ctx, map[t])) return false;
    return true;
}

// Whether the reader is nothing but a reshape of `p`, of values laid side by side, that lays no
// values side by side itself: it costs nothing, as they lie where it does.
static bool ein__is_reshape_of_pieces(const ein__pass *z, ein__val p, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, z->self);
    uint32_t slot;
    bool bare = true;
    if (!ein__copy_of(ctx, z->self) || !ein__joins(ctx, p)) return false;
    for (uint32_t k = 0; k < read->nix; k++)
        bare &= !ein__ix_get(ctx, read->ix[k])->n || ein__ix_is_iter(ctx, read->ix[k], &slot);
    return !bare && (ein__reads_whole(ctx, read, s) || ein__can_lie_as_read(ctx, p, read, s));
}

// Whether the reader may compute `p` itself instead of reading it from memory.
static bool ein__may_inline(ein__pass *z, ein__val old, ein__val p, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    const ein__value *value = &ctx->value[p.i], *self = &ctx->value[z->self.i];
    if (z->nothing || !ein__is_map(ctx, p) || ein__narrows(ctx, p)) return false;
    if (!ein__rule_on(ctx, EIN__RULE_INLINE)) return false;
    if (value->weight_only && !self->weight_only) return false;
    const ein__scope *s = ein__scope_of(ctx, p);
    // Bodies of values that are read several times each grow by powers: those are not even tried.
    if (ein__ex_size(ctx, s->body) > EIN__MAX_INLINE) return false;
    if (ein__needs_rounded(ctx, p, z->self)) return false;
    const ein__expr *of = ein__copy_of(ctx, p);
    bool copy = of != NULL;
    // Halves as they are would be tensor cores'.
    if (copy && ein__keeps_fp32(ctx, z->self) && ctx->value[of->val].dtype != value->dtype)
        return false;
    if (z->copies_only) {
        double factor;
        bool multiple = ein__multiple_of(ctx, p, &factor) != NULL;
        if (multiple && z->digits) return ein__sees_through(ctx, p, read);
        if (!multiple || !ein__ex_affine(ctx, s->body)) return false;
        for (uint32_t i = 0; i < read->nix; i++)
            if (!ein__ix_affine(ctx, read->ix[i])) return false;
        return true;
    }
    if (z->lines_only) return ein__finds_once(z, old, p);
    if (z->reduction) return ein__may_reduce(z, old, p, read);
    if (copy && ein__is_pick(ctx, p)) return false;
    if (copy) return z->uses[old.i] == 1 || ein__ex_affine(ctx, s->body);
    if (ein__is_reshape_of_pieces(z, p, read)) return false;
    // It is stored for its other readers, and so where `self` would have it.
    if (z->joins && z->uses[old.i] > 1) return false;
    int64_t mine = ein__elements(&self->shape), its = ein__elements(&value->shape);
    // What finishes a statistic, such as a deviation, may be longer.
    bool statistic = ein__ex_reads_reduction(ctx, s->body);
    int most = statistic ? EIN__STATISTIC_BODY : EIN__SMALL_BODY;
    bool small = ein__ex_size(ctx, s->body) <= most && its * EIN__SMALL_SHARE <= mine &&
                 !ein__is_resampled(z, old, p);
    if (small) return true;
    if (z->uses[old.i] == 1 && !z->joins && its * 2 > mine) return !ein__is_again(z, old, p);
    if (z->uses[old.i] == 1 && ein__is_moved(z, p, read)) return true;
    return its == mine && ein__is_centred(z, p);
}

// Whether the reader may have `body` in the place of `old`: a position stays what memory holds.
static bool ein__may_stand(const ein__pass *z, ein__val old, ein__ex body) {
    ein_ctx *ctx = z->ctx;
    return ein__ex_size(ctx, body) <= EIN__MAX_INLINE &&
           (ein__is_real(ctx, old) || ein__ex_get(ctx, body)->op == EIN__X_READ ||
            !ein__ex_looks_up(ctx, ein__scope_of(ctx, z->self)->body, old));
}

static ein__ex ein__rebuild_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__pass *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val old = {e->val}, p = z->now[e->val];
    if (ein__may_inline(z, old, p, e)) {
        ein__attempt attempt = ein__try(ctx);
        ein__ex body = ein__rule_inline(ctx, p, e);
        if (ein__tried(ctx, attempt) && body.i && ein__may_stand(z, old, body)) return body;
        if (ctx->status) return (ein__ex){0};
    }
    if (p.i == old.i) return ex;
    return ein__ex_read(ctx, p, ein__f64_of(e->bits), e->ix, (int)e->nix);
}

// A value like `v` with another definition over the same box.
static ein__val ein__with_scope(ein_ctx *ctx, ein__val v, const ein__scope *s) {
    const ein__value old = ctx->value[v.i];
    ein__sc sc = ein__sc_make(ctx, s);
    if (!sc.i) return (ein__val){0};
    ein__val w =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    ctx->value[w.i].why = old.why;
    return w;
}

// A value like `v` with another body; `v` itself when the body is the same.
static ein__val ein__with_body(ein__pass *z, ein__val v, ein__ex body) {
    ein__scope s = *ein__scope_of(z->ctx, v);
    if (s.body.i == body.i) return v;
    s.body = body;
    return ein__with_scope(z->ctx, v, &s);
}

// The body of `s` with its reads of what has become of their values; nothing is inlined.
static ein__ex ein__body_now(ein__pass *z, const ein__scope *s) {
    z->nothing = true;
    ein__ex body = ein__ex_replace_reads(z->ctx, s->body, ein__rebuild_read, z);
    z->nothing = false;
    return body;
}

// `body` of reduction `s`, which is no contraction, after maps were inlined: the square of a value
// instead of its product with itself, and in TF32, which would round its terms' factors, the old
// body where it would be a product of different values.
static ein__ex ein__no_product(ein__pass *z, const ein__scope *s, ein__ex body) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, body);
    ein__scope t = *s;
    t.body = body;
    if (!ein__is_contraction(ctx, &t)) return body;
    if (e->fn == EIN__MUL && e->kid[0].i == e->kid[1].i)
        return ein__ex_unary(ctx, EIN__SQUARE, e->kid[0]);
    return ctx->desc.math == EIN_MATH_TF32 ? ein__body_now(z, s) : body;
}

// Distinct values that `ex` reads; each is a parameter of the kernel that computes it.
static int ein__operand_count(ein_ctx *ctx, ein__ex ex) {
    int n = 0;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        bool first = true;
        for (ptrdiff_t j = 0; j < i && first; j++)
            first = ein__ex_get(ctx, reads[j])->val != ein__ex_get(ctx, reads[i])->val;
        n += first;
    }
    return n;
}

// The value of scope `s` and type `type` in the program that the pass makes, one for equal scopes;
// `like` is what it is made for. None when it cannot be had.
static ein__val ein__pass_value(ein__pass *z, const char *name, ein__val like, ein__dtype type,
                                const ein__scope *s) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[like.i];
    ein__shape shape = {.rank = (int)s->nt};
    ein__sc sc = s->body.i && s->nt <= EIN__MAX_RANK ? ein__sc_make(ctx, s) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    memcpy(shape.d, s->n, s->nt * sizeof *s->n);
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc.i) arrput(z->by_scope, (ein__val){0});
    ein__val twin = z->by_scope[sc.i];
    if (twin.i && ctx->value[twin.i].dtype == type) return twin;
    ein__val v = ein__val_new(ctx, name, EIN__V_SCOPE, old.tensor, sc, &shape, type, old.node);
    if (!twin.i) z->by_scope[sc.i] = v;
    return v;
}

// Gives `t` a dimension for each iterator of `s` in `used`, in their order. map[] gets the
// iterators of `s` in those of `t`, 0 for the others, back[] the dimensions of `t` in the iterators
// of `s`. False: they are too many.
static bool ein__used_dims(ein_ctx *ctx, const ein__scope *s, uint32_t used, ein__scope *t,
                           ein__ix *map, ein__ix *back) {
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (!(used >> i & 1)) continue;
        if (t->nt == EIN__MAX_RANK) return false;
        map[i] = ein__ix_iter(ctx, t->nt, s->n[i]);
        back[t->nt] = ein__ix_iter(ctx, i, s->n[i]);
        t->n[t->nt++] = s->n[i];
    }
    return true;
}

// New value with the iterators that `ex` uses as its dimensions, but for those in `sums`, over
// which it is summed; gives the read of it.
static ein__ex ein__hoist_sum(ein__pass *z, const ein__scope *s, ein__ex ex, uint32_t sums,
                              const char *suffix) {
    ein_ctx *ctx = z->ctx;
    ein__scope t = {.reduce = sums ? EIN__R_SUM : EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    if (!ein__used_dims(ctx, s, ein__ex_uses(ctx, ex) & ~sums, &t, map, back)) return (ein__ex){0};
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(sums >> i & 1)) continue;
        map[i] = ein__ix_iter(ctx, t.nt + t.ns, s->n[i]);
        t.n[t.nt + t.ns++] = s->n[i];
    }
    t.body = ein__ex_subst(ctx, ex, map, (int)(s->nt + s->ns));
    const char *name = ein__namef(ctx, "%s.%s", ctx->value[z->self.i].name, suffix);
    ein__val v = ein__pass_value(z, name, z->self, EIN__F32, &t);
    if (!v.i) return (ein__ex){0};
    return ein__ex_read(ctx, v, 0, back, (int)t.nt);
}

static ein__ex ein__hoist(ein__pass *z, const ein__scope *s, ein__ex ex, const char *suffix) {
    return ein__hoist_sum(z, s, ex, 0, suffix);
}

// Multiplies `*product` by the constants of a product. False: rounding would make it another
// number.
static bool ein__exact_factors(const ein_ctx *ctx, ein__ex ex, double *product) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c;
    if (ein__ex_is_const(ctx, ex, &c)) {
        double rounded = *product * c;
        bool exact = fma(*product, c, -rounded) == 0;
        *product = rounded;
        return exact;
    }
    return e->op != EIN__X_BINARY || (ein__exact_factors(ctx, e->kid[0], product) &&
                                      ein__exact_factors(ctx, e->kid[1], product));
}

// Body `seen` of contraction `s` with its constant factors in front or, where no library call has
// that, in a weight, which is multiplied at load. None: it is no such contraction.
static ein__ex ein__gather_factors(ein__pass *z, const ein__scope *s, ein__ex seen) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read[2];
    ein__scope t = *s;
    double alpha;
    t.body = seen;
    if (!ein__two_factors(ctx, &t, read, &alpha) || alpha == 1) return seen;
    alpha = 1;
    if (!ein__exact_factors(ctx, seen, &alpha)) return (ein__ex){0};
    ein__ex c = ein__ex_const(ctx, alpha), x[2];
    for (int k = 0; k < 2; k++) x[k] = ein__ex_of(ctx, read[k]);
    t.body = ein__ex_binary(ctx, EIN__MUL, c, ein__ex_binary(ctx, EIN__MUL, x[0], x[1]));
    if (!t.body.i || ein__is_library_form(ctx, &t)) return t.body;
    for (int k = 0; k < 2; k++) {
        if (!ctx->value[read[k]->val].weight_only || ctx->value[read[1 - k]->val].weight_only)
            continue;
        x[k] = ein__hoist(z, s, ein__ex_binary(ctx, EIN__MUL, c, x[k]), "scaled");
        return x[k].i ? ein__ex_binary(ctx, EIN__MUL, x[0], x[1]) : x[k];
    }
    return t.body;
}

// A contraction keeps its operands as they are unless copies seen through still leave a library
// call. What would read more values than a kernel takes keeps its own.
static ein__ex ein__rebuild_body(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    bool contraction = ein__is_contraction(ctx, s);
    z->self = v;
    z->reduction = s->reduce != EIN__R_NONE;
    z->joins = ein__joins(ctx, v);
    if (contraction && !(z->keep && ein__is_library_form(ctx, s))) {
        z->copies_only = true;
        ein__ex seen = ein__ex_replace_reads(ctx, s->body, ein__rebuild_read, z);
        z->copies_only = false;
        if (!seen.i) return seen;
        ein__scope t = *s;
        t.body = seen.i == s->body.i ? seen : ein__gather_factors(z, s, seen);
        if (ctx->status || (t.body.i && ein__is_library_form(ctx, &t))) return t.body;
    }
    // A transform reads its tile once; a map inlined there would be computed once an element read.
    ein__basis b;
    z->nothing = ein__match_basis(ctx, s, &b);
    z->lines_only = contraction;
    ein__ex body = ein__ex_replace_reads(ctx, s->body, ein__rebuild_read, z);
    z->lines_only = false;
    if (!z->nothing && body.i && ein__operand_count(ctx, body) > EIN__MAX_ARGS)
        body = ein__body_now(z, s);
    z->nothing = false;
    return z->reduction && !contraction && body.i ? ein__no_product(z, s, body) : body;
}

// Whether map `s` answers a question about two that vary apart, as which row of one is which of the
// other: there are more answers than what is asked about, and asking is no more than reading one.
static bool ein__asks_apart(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    double c;
    if (e->op != EIN__X_SELECT || !ein__ex_is_const(ctx, e->kid[2], &c) ||
        !ein__ex_is_const(ctx, e->kid[3], &c))
        return false;
    uint32_t wide = 0, used[2];
    for (uint32_t i = 0; i < s->nt; i++) wide |= (uint32_t)(s->n[i] > 1) << i;
    for (int k = 0; k < 2; k++) used[k] = ein__ex_uses(ctx, e->kid[k]) & wide;
    return used[0] & ~used[1] && used[1] & ~used[0];
}

// Map `v`, once `old`, which gives the same along some of its dimensions, as a copy of a map that
// does not have them. What a copy repeats is computed once and, by those who see through copies,
// read where it lies: an Expand in front of arithmetic is as good as one that is not written.
static ein__val ein__as_repeated(ein__pass *z, ein__val old, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    bool output = z->uses[old.i] > z->readers.first[old.i + 1] - z->readers.first[old.i];
    if (s->reduce != EIN__R_NONE || output || !ein__ex_get(ctx, s->body)->nkid) return v;
    if (ein__asks_apart(ctx, s)) return v;
    uint32_t used = ein__ex_uses(ctx, s->body);
    ein__scope once = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt; i++) used |= (uint32_t)(s->n[i] == 1) << i;
    if (!ein__used_dims(ctx, s, used, &once, map, back) || once.nt == s->nt) return v;
    once.body = ein__ex_subst(ctx, s->body, map, (int)s->nt);
    const char *name = ein__namef(ctx, "%s.once", ctx->value[v.i].name);
    ein__val w = ein__pass_value(z, name, v, ctx->value[v.i].dtype, &once);
    return w.i ? ein__with_body(z, v, ein__ex_read(ctx, w, 0, back, (int)once.nt)) : w;
}

static ein__val ein__rebuild_inline(ein__pass *z, ein__val v) {
    ein__ex body = ein__rebuild_body(z, v);
    return body.i ? ein__as_repeated(z, v, ein__with_body(z, v, body)) : (ein__val){0};
}

// ------------------------------------------------------------------------------------ linear
// folding

// `ex` as *term + *rest, where *term is V, read by `read`, times and over what does not read V. It
// keeps V: factors of several steps, put together without it, would be rounded as constants are.
// False: not linear.
static bool ein__linear_in(ein_ctx *ctx, ein__ex ex, ein__ex read, ein__ex *term, ein__ex *rest) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ex.i == read.i) {
        *term = read;
        *rest = ein__ex_const(ctx, 0);
        return true;
    }
    if (!ein__ex_contains(ctx, ex, read)) return false;
    ein__ex a, r;
    double zero;
    if (e->op == EIN__X_UNARY && e->fn == EIN__NEG) {
        if (!ein__linear_in(ctx, e->kid[0], read, &a, &r)) return false;
        *term = ein__ex_unary(ctx, EIN__NEG, a);
        *rest = ein__ex_unary(ctx, EIN__NEG, r);
        return true;
    }
    if (e->op != EIN__X_BINARY) return false;
    bool left = ein__ex_contains(ctx, e->kid[0], read),
         right = ein__ex_contains(ctx, e->kid[1], read);
    ein__ex with = e->kid[left ? 0 : 1], other = e->kid[left ? 1 : 0];
    if ((left && right) || !ein__linear_in(ctx, with, read, &a, &r)) return false;
    // No rest: 0 times an infinity would make one.
    bool none = ein__ex_is_const(ctx, r, &zero) && zero == 0;
    switch (e->fn) {
    case EIN__ADD:
        *term = a;
        *rest = ein__ex_binary(ctx, EIN__ADD, r, other);
        return true;
    case EIN__SUB:
        *term = left ? a : ein__ex_unary(ctx, EIN__NEG, a);
        *rest = left ? ein__ex_binary(ctx, EIN__SUB, r, other)
                     : ein__ex_binary(ctx, EIN__SUB, other, r);
        return true;
    case EIN__MUL:
        *term = ein__ex_binary(ctx, EIN__MUL, a, other);
        *rest = none ? r : ein__ex_binary(ctx, EIN__MUL, r, other);
        return true;
    case EIN__DIV:
        if (!left) return false;
        *term = ein__ex_binary(ctx, EIN__DIV, a, other);
        *rest = none ? r : ein__ex_binary(ctx, EIN__DIV, r, other);
        return true;
    default: return false;
    }
}

static bool ein__ex_weight_only(ein_ctx *ctx, ein__ex ex) {
    bool all = true;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        all &= ctx->value[ein__ex_get(ctx, reads[i])->val].weight_only;
    return all;
}

typedef struct ein__replacement {
    uint32_t val;
    ein__ex by;
} ein__replacement;

static ein__ex ein__read_replaced(ein_ctx *ctx, void *user, ein__ex read) {
    const ein__replacement *r = (const ein__replacement *)user;
    return ein__ex_get(ctx, read)->val == r->val ? r->by : read;
}

// `ex` with `by` for every read of `v`.
static ein__ex ein__ex_put(ein_ctx *ctx, ein__ex ex, ein__val v, ein__ex by) {
    ein__replacement r = {v.i, by};
    return ein__ex_replace_reads(ctx, ex, ein__read_replaced, &r);
}

// Whether `term` multiplies a read by constants whose product with `c` is not rounded.
static bool ein__scales_exactly(const ein_ctx *ctx, ein__ex term, double c) {
    const ein__expr *e = ein__ex_get(ctx, term);
    double k;
    if (e->op == EIN__X_UNARY && e->fn == EIN__NEG) return ein__scales_exactly(ctx, e->kid[0], c);
    if (e->op != EIN__X_BINARY || e->fn != EIN__MUL) return e->op == EIN__X_READ;
    int at = ein__ex_is_const(ctx, e->kid[1], &k) ? 1 : 0;
    if (!ein__ex_is_const(ctx, e->kid[at], &k) || fma(k, c, -(k * c)) != 0) return false;
    return ein__scales_exactly(ctx, e->kid[1 - at], k * c);
}

// Elements of all values that `ex` reads.
static int64_t ein__elements_read(ein_ctx *ctx, ein__ex ex) {
    int64_t n = 0;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        n += ein__elements(&ctx->value[ein__ex_get(ctx, reads[i])->val].shape);
    return n;
}

// Contraction `v` with what `term`, in its iterators, does to it done to its weight factor. None
// when no weight-only factor carries all of these iterators, or one that is read through a window,
// of which each place would be an element of its own.
static ein__val ein__scale_contraction(ein__pass *z, ein__val v, ein__ex term) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *e = ein__ex_get(ctx, s->body);
    if (s->reduce != EIN__R_SUM || e->op != EIN__X_BINARY || e->fn != EIN__MUL)
        return (ein__val){0};
    for (int k = 0; k < 2; k++) {
        ein__ex w = e->kid[k], x = e->kid[1 - k];
        double c;
        if (!ein__ex_weight_only(ctx, w) || ein__ex_weight_only(ctx, x)) continue;
        if (ein__ex_is_const(ctx, w, &c) && !ein__scales_exactly(ctx, term, c)) continue;
        ein__ex scaled = ein__ex_put(ctx, term, v, w);
        if (!scaled.i) return (ein__val){0};
        if (!ein__ex_weight_only(ctx, scaled)) return (ein__val){0};
        if (ein__ex_uses(ctx, scaled) & ~ein__ex_uses(ctx, w)) continue;
        int64_t mine = ein__extent_of(s, ein__ex_uses(ctx, scaled));
        if (mine > 4096 && mine / 2 > ein__elements_read(ctx, w)) continue;
        z->self = v;
        scaled = ein__hoist(z, s, scaled, "scaled");
        if (!scaled.i) return (ein__val){0};
        return ein__with_body(z, v, ein__ex_binary(ctx, EIN__MUL, x, scaled));
    }
    return (ein__val){0};
}

// In `ex`: the largest sub-expression linear in `read`, rewritten so that the contraction carries
// the factor. `scaled` receives the new contraction; none when nothing was to be done.
static ein__ex ein__fold_linear(ein__pass *z, const ein__scope *s, ein__ex ex, ein__ex read,
                                const ein__ix *map, ein__val *scaled) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *r = ein__ex_get(ctx, read);
    ein__ex term, rest;
    if (ein__linear_in(ctx, ex, read, &term, &rest)) {
        if (!term.i || !rest.i || term.i == read.i) return ex;
        ein__ex inner = ein__ex_subst(ctx, term, map, (int)s->nt);
        if (!inner.i) return ex;
        *scaled = ein__scale_contraction(z, (ein__val){r->val}, inner);
        if (!scaled->i) return ex;
        ein__ex again = ein__ex_read(ctx, *scaled, 0, r->ix, (int)r->nix);
        double zero;
        if (ein__ex_is_const(ctx, rest, &zero) && zero == 0) return again;
        return ein__ex_binary(ctx, EIN__ADD, again, rest);
    }
    ein__expr copy = *ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < copy.nkid; i++) {
        if (!ein__ex_contains(ctx, copy.kid[i], read)) continue;
        ein__ex kid = ein__fold_linear(z, s, copy.kid[i], read, map, scaled);
        if (!kid.i || kid.i == copy.kid[i].i) return kid.i ? ex : kid;
        copy.kid[i] = kid;
        return ein__ex_make(ctx, &copy);
    }
    return ex;
}

// How often `read` stands in the tree of `ex`, up to 2.
static int ein__occurrences(ein_ctx *ctx, ein__ex ex, ein__ex read) {
    if (ex.i == read.i) return 1;
    const ein__expr *e = ein__ex_get(ctx, ex);
    int n = 0;
    for (uint32_t i = 0; i < e->nkid && n < 2; i++) n += ein__occurrences(ctx, e->kid[i], read);
    return n > 2 ? 2 : n;
}

// Folds the factor of one contraction that map `v` reads; gives the new map, or `v` when none is
// left.
static ein__val ein__fold_one_scale(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__val result = v;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && result.i == v.i; i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        const ein__scope *p = ein__scope_of(ctx, (ein__val){r->val});
        ein__ix map[EIN__MAX_ITERS];
        ein__val scaled = {0};
        if (!p || p->reduce != EIN__R_SUM || ctx->value[r->val].weight_only) continue;
        if (r->val >= (uint32_t)arrlen(z->uses) || z->uses[r->val] != 1) continue;
        if (ein__occurrences(ctx, s->body, reads[i]) != 1) continue;
        // Read elsewhere too, it would be computed twice.
        bool twice = false;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            twice |= k != i && ein__ex_get(ctx, reads[k])->val == r->val;
        if (twice) continue;
        if (!ein__invert_read(ctx, r, s, p->n, map)) continue;
        ein__ex body = ein__fold_linear(z, s, s->body, reads[i], map, &scaled);
        if (body.i && scaled.i) result = ein__with_body(z, v, body);
    }
    return result;
}

static ein__val ein__rebuild_scales(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || !ein__is_map(ctx, v) || ctx->value[v.i].weight_only) return v;
    for (ein__val next = ein__fold_one_scale(z, v); next.i != v.i;
         next = ein__fold_one_scale(z, v)) {
        if (!next.i) return next;
        v = next;
    }
    return v;
}

// ------------------------------------------------------------------------------------ passes

// Whether `v` takes part in an attention that is to be one kernel.
static bool ein__is_kept(const ein_ctx *ctx, ein__val v) {
    return (ptrdiff_t)v.i < arrlen(ctx->kept) && ctx->kept[v.i];
}

// What the kept values have become is kept.
static void ein__keep_on(const ein__pass *z) {
    ein_ctx *ctx = z->ctx;
    if (!arrlen(ctx->kept)) return;
    while (arrlen(ctx->kept) < arrlen(ctx->value)) arrput(ctx->kept, false);
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++)
        ctx->kept[z->now[z->order[i].i].i] |= ctx->kept[z->order[i].i];
}

// A kept product reads through copies: its kernel takes operands wherever they lie.
static ein__val ein__rebuild_kept(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    z->self = v;
    z->copies_only = z->digits = ein__is_kept(ctx, v) && ein__is_contraction(ctx, s);
    z->nothing = !z->copies_only;
    ein__ex body = ein__ex_replace_reads(ctx, s->body, ein__rebuild_read, z);
    ein__scope t = *s;
    t.body = body;
    if (body.i && z->copies_only && !ein__is_contraction(ctx, &t)) body = ein__body_now(z, s);
    z->copies_only = z->digits = z->nothing = false;
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Rebuilds the program under `root` with one rewrite; the roots are replaced.
static bool ein__run_pass_for(ein_ctx *ctx, ein__val *root, int nroot,
                              ein__val (*rewrite)(ein__pass *, ein__val), void *user) {
    ein__pass z = {.ctx = ctx, .user = user};
    z.order = ein__live(ctx, root, nroot);
    z.uses = ein__count_uses(ctx, z.order, root, nroot);
    z.readers = ein__find_readers(ctx, z.order);
    z.nold = (size_t)arrlen(ctx->value);
    arrsetlen(z.now, (ptrdiff_t)z.nold);
    memset(z.now, 0, z.nold * sizeof *z.now);
    for (ptrdiff_t i = 0; i < arrlen(z.order) && !ctx->status; i++) {
        ein__val v = z.order[i];
        const ein__value old = ctx->value[v.i];
        ein__val now = old.kind == EIN__V_SCOPE ? rewrite(&z, v) : v;
        if (!now.i) break;
        z.now[v.i] = now;
        if (now.i >= z.nold && !ctx->value[now.i].was.i) ctx->value[now.i].was = v;
        while (arrlen(z.uses) < arrlen(ctx->value)) arrput(z.uses, 0);
        if (now.i != v.i) z.uses[now.i] += z.uses[v.i];
        if (old.kind != EIN__V_SCOPE) continue;
        // Two values with one definition are one.
        uint32_t sc = ctx->value[now.i].scope.i;
        while (arrlen(z.by_scope) <= (ptrdiff_t)sc) arrput(z.by_scope, (ein__val){0});
        ein__val twin = z.by_scope[sc];
        bool is_root = false;
        for (int k = 0; k < nroot; k++) is_root |= root[k].i == v.i;
        if (!twin.i) z.by_scope[sc] = now;
        else if (!is_root && ctx->value[twin.i].dtype == ctx->value[now.i].dtype) z.now[v.i] = twin;
    }
    bool ok = !ctx->status;
    for (int k = 0; ok && k < nroot; k++) {
        ein__val was = root[k];
        root[k] = z.now[was.i];
        ok = root[k].i != 0;
        // Each output is stored.
        for (int j = 0; j < k && ok; j++)
            if (root[j].i == root[k].i) root[k] = ein__val_again(ctx, root[k], was);
    }
    if (ok) ein__keep_on(&z);
    arrfree(z.order);
    arrfree(z.uses);
    ein__readers_free(&z.readers);
    arrfree(z.now);
    arrfree(z.by_scope);
    arrfree(z.joined);
    return ok;
}

static bool ein__run_pass(ein_ctx *ctx, ein__val *root, int nroot,
                          ein__val (*rewrite)(ein__pass *, ein__val)) {
    return ein__run_pass_for(ctx, root, nroot, rewrite, NULL);
}

static ein__val ein__rebuild_same(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// Whether the programs under `p` and `q` are one but for names: of a program that has both, equal
// definitions are one value.
static bool ein__is_same_program(ein_ctx *ctx, const ein__val *p, const ein__val *q, int nroot) {
    ein__val *both = EIN__NEW(&ctx->arena, ein__val, 2 * nroot + 1);
    memcpy(both, p, (size_t)nroot * sizeof *p);
    memcpy(both + nroot, q, (size_t)nroot * sizeof *q);
    bool same = ein__run_pass(ctx, both, 2 * nroot, ein__rebuild_same);
    for (int k = 0; k < nroot && same; k++) {
        const ein__value *a = &ctx->value[both[k].i], *b = &ctx->value[both[nroot + k].i];
        same = a->scope.i == b->scope.i && a->dtype == b->dtype;
    }
    return same;
}
