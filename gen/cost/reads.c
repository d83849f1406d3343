// How reads access memory (steps, runs, guards), and how the threads of a product load a factor
// accordingly.

// How far, in elements, a subscript moves when iterator `slot` does by one: rounded up, -1 where
// the data decide. Inside floor and mod it is the step between two wraps.
static int64_t ein__ix_step(const ein_ctx *ctx, ein__ix ix, uint32_t slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    int64_t step = 0;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        int64_t k = f->t[t].k < 0 ? -f->t[t].k : f->t[t].k, inner = a->slot == slot;
        if (a->kind == EIN__GATHER) {
            if (ein__atom_uses(ctx, f->t[t].atom) >> slot & 1) return -1;
            continue;
        }
        if (a->kind != EIN__ITER) {
            inner = ein__ix_step(ctx, (ein__ix){a->ix}, slot);
            if (inner < 0) return -1;
            if (a->kind == EIN__FLOOR) inner = inner < a->n ? 0 : inner / a->n;
        }
        step = ein__plus(step, ein__times(k, inner));
    }
    return ein__ceil(step, f->q);
}

// The same for a read's address.
static int64_t ein__read_step(ein_ctx *ctx, const ein__expr *e, uint32_t slot) {
    int64_t stride[EIN__MAX_RANK], step = 0;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t by = ein__ix_step(ctx, e->ix[k], slot);
        if (by < 0) return -1;
        step = ein__plus(step, ein__times(by, stride[k] < 0 ? -stride[k] : stride[k]));
    }
    return step;
}

// The same for the first n slots at once.
static void ein__read_steps(ein_ctx *ctx, const ein__expr *e, uint32_t n, int64_t *step) {
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    bool affine = ein__address(ctx, e, stride, &f);
    for (uint32_t i = 0; i < n; i++)
        step[i] = !affine ? ein__read_step(ctx, e, i) : f.coef[i] < 0 ? -f.coef[i] : f.coef[i];
}

// Whether subscript `k` may leave its box, where a read needs a guard.
static bool ein__is_guarded(const ein_ctx *ctx, const ein__expr *read, uint32_t k) {
    const ein__index *f = ein__ix_get(ctx, read->ix[k]);
    return f->q > 1 || f->lo < 0 || f->hi >= ctx->value[read->val].shape.d[k];
}

// Slots in such subscripts.
static uint32_t ein__guarded_slots(ein_ctx *ctx, const ein__expr *read) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < read->nix; k++)
        if (ein__is_guarded(ctx, read, k)) used |= ein__ix_uses(ctx, read->ix[k]);
    return used;
}

// What all places of iterator `i` are multiples of, in elements, where the subscripts that have it
// are looked up, and have no other iterator of a run; -1: they are not.
static int64_t ein__looked_up_step(ein_ctx *ctx, const ein__expr *read, uint32_t i) {
    int64_t stride[EIN__MAX_RANK], step = 0;
    ein__strides_of(ctx, (ein__val){read->val}, stride);
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if (!(ein__ix_uses(ctx, read->ix[k]) >> i & 1)) continue;
        bool place = f->n == 1 && f->q == 1 && f->t[0].k == 1 &&
                     ein__atom_get(ctx, f->t[0].atom)->kind == EIN__GATHER;
        if (!place) return -1;
        step = ein__gcd(step, stride[k]);
    }
    return step;
}

// Positions of which two have room in one word of such a table, and what is between both of them
// and those that are behind the last term: see ein__kaxis_packed.
enum { EIN__TAP_RANGE = 1 << 14 };

// Whether position `f` of an axis of extent `n` stays in that range, and what the terms and others
// add to it by themselves.
static bool ein__tap_is_short(const ein_ctx *ctx, const ein__index *f, int64_t n, uint32_t terms) {
    int64_t most = f->c < 0 ? -f->c : f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t k = f->t[i].k < 0 ? -f->t[i].k : f->t[i].k;
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (ein__atom_uses(ctx, f->t[i].atom) & terms) most = ein__plus(most, ein__times(k, a->n));
    }
    int64_t low = f->lo < 0 ? -f->lo : 0, high = f->hi < 0 ? 0 : f->hi;
    return n <= EIN__TAP_RANGE && ein__plus(ein__most(low, high), most) < EIN__TAP_RANGE;
}

// Positions of a read that have an end and move with terms (slots `terms`).
static int ein__tap_positions(const ein_ctx *ctx, const ein__expr *read, uint32_t terms) {
    int n = 0;
    for (uint32_t k = 0; k < read->nix; k++)
        n += (ein__ix_uses(ctx, read->ix[k]) & terms) && ein__is_guarded(ctx, read, k);
    return n;
}

// Words a term of a table that has what terms (slots `terms`) add to a read's address and to the
// positions that are guarded, or whether there is such a term; 0: they do more than add, or there
// are more such positions than three.
static int ein__tap_words(const ein_ctx *ctx, const ein__expr *read, uint32_t terms) {
    int n = ein__tap_positions(ctx, read, terms);
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if (ein__ix_has_gather(ctx, read->ix[k])) return 0;
        if (!(ein__ix_uses(ctx, read->ix[k]) & terms)) continue;
        if (f->q > 1) return 0;
        for (uint32_t i = 0; i < f->n; i++) {
            bool adds = ein__atom_get(ctx, f->t[i].atom)->kind == EIN__ITER;
            if (!adds && (ein__atom_uses(ctx, f->t[i].atom) & terms)) return 0;
        }
    }
    return n <= 1 ? 2 : n <= 3 ? 4 : 0;
}

// Whether two positions of a table's terms have room in one word.
static bool ein__tap_packs(const ein_ctx *ctx, const ein__expr *read, uint32_t terms) {
    bool packs = ein__tap_positions(ctx, read, terms) == 2;
    for (uint32_t k = 0; k < read->nix; k++)
        if ((ein__ix_uses(ctx, read->ix[k]) & terms) && ein__is_guarded(ctx, read, k))
            packs &= ein__tap_is_short(ctx, ein__ix_get(ctx, read->ix[k]),
                                       ctx->value[read->val].shape.d[k], terms);
    return packs;
}

// How a product's threads load one factor.
typedef struct ein__factor_load {
    bool along;  // neighbours are terms of a line, not lines of a term
    bool half;   // they are halves
    bool guarded;
    int words;      // elements at once
    int64_t apart;  // how far the ones of neighbouring threads are apart where that is one
    int64_t each;   // instructions for each of them that compute it, if loads do
    int64_t steps;  // places change with every term unless this is a multiple of a step's; 0: never
    int taps;    // words a term of a table that has what the terms add to places; 0: there is none
    bool packs;  // on tensor cores two, of which one has two positions
} ein__factor_load;

// Slots of a factor along which its elements follow each other.
typedef struct ein__run {
    int slot;        // along which neighbours are nearest; -1: none moves
    int64_t step;    // how far apart they are
    int64_t length;  // how many follow each other so, along it and those behind it
    uint32_t slots;  // all of these
} ein__run;

// The run along `slot` and those of `mask` that go on where it ends.
static ein__run ein__run_from(const ein__scope *s, const int64_t *step, uint32_t mask, int slot) {
    ein__run r = {.slot = slot, .step = slot < 0 ? 0 : step[slot], .length = 1};
    uint32_t all = s->nt + s->ns;
    for (uint32_t turn = 0; r.slot >= 0 && turn < all; turn++)
        for (uint32_t i = 0; i < all; i++) {
            if (!(mask >> i & 1) || (r.slots >> i & 1) || s->n[i] <= 1) continue;
            if (step[i] != ein__times(r.step, r.length)) continue;
            r.length = ein__times(r.length, s->n[i]);
            r.slots |= 1u << i;
        }
    return r;
}

static ein__run ein__nearest(const ein__scope *s, const int64_t *step, uint32_t mask) {
    int slot = -1;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(mask >> i & 1) || s->n[i] <= 1 || step[i] <= 0) continue;
        if (slot < 0 || step[i] < step[slot]) slot = (int)i;
    }
    return ein__run_from(s, step, mask, slot);
}

// The same of those along which the elements of a result with strides `out` follow each other:
// these are counted first.
static ein__run ein__nearest_of(const ein__scope *s, const int64_t *step, const int64_t *out,
                                uint32_t mask) {
    int first = -1;
    for (uint32_t i = 0; i < s->nt; i++)
        if ((mask >> i & 1) && s->n[i] > 1 && out[i] > 0 && (first < 0 || out[i] < out[first]))
            first = (int)i;
    ein__run r = ein__nearest(s, step, mask);
    if (first < 0 || r.slot < 0 || (r.slots >> first & 1)) return r;
    return (ein__run){first, step[first], s->n[first], 1u << first};
}

// The factor of product `s` that is read as `v`, as its loads compute it: none when its expression
// grows too large.
static ein__ex ein__load_of(ein_ctx *ctx, const ein__expr *read, ein__val v) {
    ein__attempt attempt = ein__try(ctx);
    ein__ex ex = ein__rule_inline(ctx, v, read);
    bool fits = ein__tried(ctx, attempt) && ex.i && ein__ex_size(ctx, ex) <= EIN__MAX_INLINE;
    return fits ? ex : (ein__ex){0};
}

// Loads of `read` as the factor of a product on tensor cores (FP32: without them). `lines`: slots
// of its rows or columns, in the order of `out` where that is not NULL; `last`: the one that counts
// the terms innermost (-1: the nearest), those of a step `alone` or with others that go on.
static ein__factor_load ein__factor_load_of(ein_ctx *ctx, const ein__scope *s,
                                            const ein__expr *read, uint32_t lines,
                                            const int64_t *out, int last, bool alone,
                                            ein__math math) {
    int64_t step[EIN__MAX_ITERS];
    uint32_t all = s->nt + s->ns, terms = ~((1u << s->nt) - 1) & ((1u << all) - 1);
    uint32_t guarded = ein__guarded_slots(ctx, read);
    bool half = ein__element_size(ctx, (ein__val){read->val}) == 2, gathers = false;
    ein__read_steps(ctx, read, all, step);
    for (uint32_t i = 0; i < all; i++) {
        // Where a batch lies is looked up once.
        if (step[i] < 0 && !((lines | terms) >> i & 1)) step[i] = ein__looked_up_step(ctx, read, i);
        gathers |= step[i] < 0;
    }
    ein__run line = out ? ein__nearest_of(s, step, out, lines) : ein__nearest(s, step, lines),
             term = last < 0 ? ein__nearest(s, step, terms)
                             : ein__run_from(s, step, alone ? 1u << last : terms,
                                             step[last] > 0 ? last : -1);
    ein__factor_load l = {.half = half, .words = half && math == EIN__MATH_FP16 ? 8 : 4};
    if (term.slot >= 0)
        l.along = line.slot < 0 || ein__times(ein__least(s->n[term.slot], 32), line.step) >
                                       ein__times(ein__least(s->n[line.slot], 32), term.step);
    ein__run lane = l.along ? term : line;
    if (lane.step != 1 || gathers || (guarded & lane.slots)) l.words = 1;
    l.apart = lane.slot >= 0 ? lane.step : 0;
    // Of halves four where eight do not begin together.
    for (uint32_t i = 0; i < all; i++) {
        bool moves = !(lane.slots >> i & 1) && s->n[i] > 1;
        while (l.words > 1 && (lane.length % l.words || (moves && step[i] % l.words)))
            l.words = l.words == 8 ? 4 : 1;
    }
    l.guarded = guarded != 0;
    if (gathers) l.steps = 1;
    else if (guarded & terms) l.steps = alone ? s->n[last] : 1;
    if (!l.along) l.taps = ein__tap_words(ctx, read, terms);
    l.packs = l.taps && ein__tap_packs(ctx, read, terms);
    return l;
}
