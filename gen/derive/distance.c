// Expression distance (EinNet section 5.2): how much of the iterator mapping table (its Table 2)
// keeps a contraction from being an operator. A cell of the table is a group of iterators in one of
// the operands or in the result; a group is told by where its iterators occur:
//
//              both factors   one and the result   both, summed      all three
//   GEMM       -              rows, columns        depth             batch
//   conv       -              batch, axes; out     in, taps          groups
//   band       -              rows; columns        depth or band     batch
//
// A cell fits when the group's iterators are there as the operator has them, in its order and with
// its strides; the distance is how many do not. 0 means that the operator is matched as it stands,
// EIN__FAR that an iterator is in no group, so that no re-layout makes the operator of it.

enum { EIN__FAR = 99 };

static uint32_t ein__read_uses(const ein_ctx *ctx, const ein__expr *r) {
    uint32_t uses = 0;
    for (uint32_t k = 0; k < r->nix; k++) uses |= ein__ix_uses(ctx, r->ix[k]);
    return uses;
}

static bool ein__is_conv(ein_ctx *ctx, const ein__scope *s) {
    int64_t out[EIN__MAX_RANK];
    ein__conv_form f;
    ein__dense_result(s, out);
    return ein__find_conv(ctx, s, out, &f) && ein__conv_sizes(&f);
}

// A product as the table sees it: which iterators are in which factor.
typedef struct ein__mapped {
    const ein__scope *s;
    const ein__expr *read[2];
    double alpha;
    uint32_t in[2], sums, real;  // slots; real: of more than one place
} ein__mapped;

static bool ein__map_iterators(ein_ctx *ctx, const ein__scope *s, ein__mapped *p) {
    *p = (ein__mapped){.s = s};
    if (!ein__two_factors(ctx, s, p->read, &p->alpha)) return false;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (s->n[i] > 1) p->real |= 1u << i;
    for (int k = 0; k < 2; k++) p->in[k] = ein__read_uses(ctx, p->read[k]) & p->real;
    p->sums = p->real & ~((1u << s->nt) - 1);
    return true;
}

// Whether every iterator is in some group: what is summed is in both factors, the rest in one.
static bool ein__all_grouped(const ein__mapped *p) {
    return !(p->sums & ~(p->in[0] & p->in[1])) && !(p->real & ~(p->in[0] | p->in[1]));
}

// Whether the iterators of `group` stand in `read` as one index does that counts them: in
// subscripts of their own, inside the box, each the next one's stride times its extent.
static bool ein__one_chain(ein_ctx *ctx, const ein__scope *s, const ein__expr *read,
                           uint32_t group) {
    const ein__shape *shape = &ctx->value[read->val].shape;
    int64_t stride[EIN__MAX_RANK];
    ein__chain chain[EIN__MAX_ITERS];
    int n = 0;
    ein__dense_strides(shape, stride);
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        uint32_t uses = ein__ix_uses(ctx, read->ix[k]);
        if (!(uses & group)) continue;
        if ((uses & ~group) || f->q != 1 || f->lo < 0 || f->hi >= shape->d[k] ||
            !ein__ix_linear(ctx, f))
            return false;
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(group >> i & 1)) continue;
        ein__chain one = {s->n[i], {0, 0, 0}, 1u << i};
        for (uint32_t k = 0; k < read->nix; k++)
            one.stride[0] += stride[k] * ein__ix_coef(ctx, read->ix[k], i);
        if (one.stride[0] <= 0) return false;
        chain[n++] = one;
    }
    return ein__join_chains(chain, n) <= 1;
}

// GEMM: cells are the groups of the two factors. Its result may be stored in any order where it is
// `free`; else a product that matches only in another order is one cell off.
static int ein__gemm_distance(ein_ctx *ctx, const ein__mapped *p, bool free) {
    const ein__scope *s = p->s;
    ein__gemm g;
    uint32_t both = p->in[0] & p->in[1];
    int far = 0;
    if (!ein__all_grouped(p) || !p->sums) return EIN__FAR;
    // It takes a GEMM for every place of the iterators that all three have; one that needs more
    // leaves out what other strides would put into its rows or columns.
    if (ein__best_gemm(ctx, s, free, &g, NULL) && g.batch <= ein__extent_of(s, both & ~p->sums))
        return 0;
    for (int k = 0; k < 2; k++) {
        const uint32_t group[3] = {p->in[k] & ~both, p->sums, both & ~p->sums};
        for (int i = 0; i < 3; i++)
            far += group[i] && !ein__one_chain(ctx, s, p->read[k], group[i]);
    }
    return far ? far : 1;
}

// Subscripts of a convolution's data that are neither plain nor a window, and windows that run
// backwards; then the order of the dimensions: channels behind the batch, windows last.
static int ein__data_distance(ein_ctx *ctx, const ein__conv_form *f) {
    int far = 0, last = 0, windows = 0;
    bool ordered = true;
    for (uint32_t k = 0; k < f->x->nix; k++) {
        const ein__index *ix = ein__ix_get(ctx, f->x->ix[k]);
        int space = 0, taps = 0, other = 0, place = 0;
        bool backwards = false;
        for (uint32_t t = 0; t < ix->n; t++) {
            const ein__atom *a = ein__atom_get(ctx, ix->t[t].atom);
            ein__crole role = a->kind == EIN__ITER ? f->role[a->slot] : EIN__C_NONE;
            space += role == EIN__C_BATCH;
            taps += role == EIN__C_IN;
            other += role == EIN__C_NONE || role == EIN__C_GROUP || role == EIN__C_OUT;
            backwards |= ix->t[t].k < 0;
        }
        bool window = space && taps;
        place = window ? 2 : taps || other ? 1 : 0;
        windows += window;
        far += ix->q != 1 || (window && (space > 1 || taps > 1 || other)) || backwards;
        if (ix->n && place < last) ordered = false;
        if (place > last) last = place;
    }
    return far + !ordered + (windows > 3);
}

// Whether the dimensions of a filter are groups, results, channels, taps, and those of the result
// batch, groups, results, positions, each in one piece.
static int ein__order_mismatches(ein_ctx *ctx, const ein__conv_form *f) {
    static const int rank[] = {
        [EIN__C_NONE] = 0,   [EIN__C_GROUP] = 0, [EIN__C_OUT] = 1,   [EIN__C_IN] = 2,
        [EIN__C_FILTER] = 2, [EIN__C_SPACE] = 2, [EIN__C_BATCH] = 2,
    };
    int last = 0, filter = !ein__inside(ctx, f->w), result = 0;
    uint32_t window = 0;
    for (uint32_t k = 0; k < f->w->nix; k++) {
        uint32_t slot;
        if (!ein__ix_uses(ctx, f->w->ix[k])) continue;
        if (!ein__ix_is_iter(ctx, f->w->ix[k], &slot)) {
            filter = 1;
            continue;
        }
        if (rank[f->role[slot]] < last) filter = 1;
        last = rank[f->role[slot]];
    }
    for (uint32_t k = 0; k < f->x->nix; k++)
        if (ein__ix_get(ctx, f->x->ix[k])->n > 1) window |= ein__ix_uses(ctx, f->x->ix[k]);
    last = 0;
    for (uint32_t i = 0; i < f->s->nt; i++) {
        if (f->s->n[i] == 1) continue;
        bool batch = f->role[i] == EIN__C_BATCH && !(window >> i & 1);
        // A dimension that only the data has may be an axis as well as a batch.
        int place = f->role[i] == EIN__C_GROUP ? 1 : f->role[i] == EIN__C_OUT ? 2 : batch ? 0 : 3;
        if (batch && last >= 2) place = 3;
        if (place < last) result = 1;
        last = place;
    }
    return filter + result;
}

// Convolution: the nearer of the two ways to tell data from filter.
static int ein__conv_distance(ein_ctx *ctx, const ein__mapped *p) {
    int least = EIN__FAR;
    if (!ein__all_grouped(p) || !p->sums) return EIN__FAR;
    if (ein__is_conv(ctx, p->s)) return 0;
    for (int k = 0; k < 2; k++) {
        ein__conv_form f = {.s = p->s, .x = p->read[k], .w = p->read[1 - k]};
        if (ctx->value[f.x->val].weight_only && !ctx->value[f.w->val].weight_only) continue;
        if (!ein__conv_roles(ctx, &f)) continue;
        int far = (p->alpha != 1) + ein__data_distance(ctx, &f) + ein__order_mismatches(ctx, &f);
        if (far < 1) far = 1;
        if (far < least) least = far;
    }
    return least;
}

// G2BMM and GBMM: one subscript of one factor moves with the row; every other one that holds two
// iterators is a cell off, and so is every sum but one. Our kernels take any strides.
static int ein__band_distance(ein_ctx *ctx, const ein__mapped *p) {
    ein__band g;
    int least = EIN__FAR, sums = 0;
    uint32_t rows = ~p->sums & p->real;
    if (ein__match_band(ctx, p->s, &g)) return 0;
    for (uint32_t i = 0; i < EIN__MAX_ITERS; i++) sums += p->sums >> i & 1;
    for (int k = 0; k < 2; k++) {
        int mixed[2] = {0, 0};
        bool moves = false;
        for (int o = 0; o < 2; o++)
            for (uint32_t i = 0; i < p->read[o]->nix; i++) {
                uint32_t uses = ein__ix_uses(ctx, p->read[o]->ix[i]) & p->real;
                if (!(uses & (uses - 1))) continue;
                mixed[o]++;
                moves |= o == k && (uses & rows & p->in[1 - k]);
            }
        if (!moves) continue;
        int far = mixed[0] + mixed[1] - 1 + (sums > 1 ? sums - 1 : 0);
        if (far < 1) far = 1;
        if (far < least) least = far;
    }
    return least;
}

// Distance of definition `def` from operator `to`, or from the nearest one; EIN__FAR when it is no
// product. Kept with the definition.
static int ein__def_distance(ein__deriver *z, int def, ein__target to) {
    if (to == EIN__TO_NONE) return EIN__FAR;
    if (to == EIN__TO_ANY) {
        int least = EIN__FAR;
        for (int k = 0; k < EIN__NTARGETS; k++) {
            int far = ein__def_distance(z, def, (ein__target)k);
            if (far < least) least = far;
        }
        return least;
    }
    ein__def *d = &z->def[def];
    if (d->known >> to & 1) return d->distance[to];
    ein__mapped p;
    int far = EIN__FAR;
    if (ein__map_iterators(z->ctx, ein__sc_get(z->ctx, d->sc), &p))
        far = to == EIN__TO_GEMM   ? ein__gemm_distance(z->ctx, &p, d->cls.i != z->problem.i)
              : to == EIN__TO_CONV ? ein__conv_distance(z->ctx, &p)
                                   : ein__band_distance(z->ctx, &p);
    d->known |= (uint8_t)(1u << to);
    d->distance[to] = (uint8_t)far;
    return far;
}

// Converging derivation goes towards an operator that re-layouts can reach and that is not matched
// yet; what was formed for a call needs nothing.
static bool ein__may_converge(ein__deriver *z, int def, ein__target to) {
    if (z->def[def].place == EIN__FORMED) return false;
    int far = ein__def_distance(z, def, to);
    return far > 0 && far < EIN__FAR;
}

// Counts the definitions of a problem by their distance from the nearest operator.
static void ein__count_distances(ein__deriver *z) {
    ein_stats *stats = &z->ctx->stats;
    int nearest = EIN__FAR;
    for (int i = 0; i < (int)arrlen(z->def); i++) {
        int far = ein__def_distance(z, i, EIN__TO_ANY);
        if (far < nearest) nearest = far;
        if (far == EIN__FAR) stats->unmapped++;
        else stats->at_distance[far < EIN_DISTANCES ? far : EIN_DISTANCES - 1]++;
    }
    if (stats->nearest < nearest) stats->nearest = nearest;
}
