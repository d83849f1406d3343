// Merging (EinNet section 4.3, Figures 3a and 15): several contractions become one wider
// contraction and windows on its result. Here is how a merged contraction is made; which ones are
// worth it is decided in merge_find.c.
//
// A member takes part by a contraction that is its own definition, or that one of its definitions
// reads (summation splitting): convolutions with different windows share the matrix product inside.
// What only weights go into is computed at load, so members' weights are laid side by side, padded
// with zeros where their windows differ, at no cost.

enum {
    EIN__MERGE_GROUP = 16,     // members of one merge
    EIN__MERGE_ROUNDS = 3,     // merges of merges
    EIN__MERGE_TRIES = 600,    // merges built and priced
    EIN__MERGE_TOGGLES = 200,  // and those to see which members are better left out
    EIN__MERGE_PARTS = 4000,   // contractions looked at, derived ones included
    EIN__MERGE_PADDING = 4     // growth of the arithmetic by windows padded with zeros
};

// A subscript of a data factor: (plain + k * r + c) / q, with `plain` in traversal iterators.
typedef struct ein__axis {
    int slot;         // of the reduction r, -1: none
    int64_t k, n, c;  // n: its extent, 1: none; k > 0
    bool flip;        // r counts down
} ein__axis;

// One way of having a member: a contraction, and how the member reads it.
typedef struct ein__part {
    ein__val member;
    ein__sc sc;     // the contraction
    ein__val cls;   // its class, which `outer` reads; the member itself when there is no `outer`
    ein__sc outer;  // definition of the member
    ein__ex x, w;   // factors; x depends on inputs
    double alpha;
    int level;
    uint32_t in_x, in_w;
    // Slots of iterators by a rule that names have no part in: traversal of x in order of
    // occurrence
    // (`nx` of them), other traversal, reductions.
    int nx, ncanon, canon[EIN__MAX_ITERS];
    ein__axis axis[EIN__MAX_RANK];
    bool windowed;                   // the subscripts of x are axes
    const char *same, *near, *like;  // keys: equal x and windows; equal x; equal form
} ein__part;

// The box of a merged contraction, and where each member stands in it.
typedef struct ein__joint {
    ein__scope s;
    int np, joined;  // traversal slot that counts through the members, -1: none
    bool apart;      // the first guards tell the members apart and leave no gap
    ein__ix map[EIN__MERGE_GROUP][EIN__MAX_ITERS];  // member's iterators in the merged ones
    struct {
        ein__ix ix;
        int64_t n;
    } guard[EIN__MERGE_GROUP][EIN__MAX_RANK + 1];  // a member is meant where all of them hold
    int nguard[EIN__MERGE_GROUP];
    int64_t at[EIN__MERGE_GROUP];                // where a member begins in the joined dimension
    uint32_t flat[EIN__MERGE_GROUP];             // its iterators that the joined one counts
    int slot[EIN__MERGE_GROUP][EIN__MAX_ITERS];  // its slot per merged traversal slot, or -1
} ein__joint;

// What a merge costs beside its contractions: copies, windows and maps that are steps of their own.
typedef struct ein__bill {
    ein__val v;
    int64_t ps;
} ein__bill;

typedef struct ein__merge {
    const char *rule;
    ein__val *member;     // the contractions; stb_ds arrays
    ein__val *old, *now;  // values replaced, and by what
    ein__val *taken;      // values that no other merge may have as well
    ein__val wide;        // the merged contraction
    ein__val inner;       // a second contraction that it makes, or none
    ein__bill *bill;      // stb_ds array
    ein__val map;         // what alone reads it, by `map_read`; or none
    ein__ex map_read;
    int64_t ps, members_ps;
    uint32_t first;  // values from here on were made in its round
    bool toggled;    // members of a group were left out
    bool chosen;
} ein__merge;

typedef struct ein__merger {
    ein_ctx *ctx;
    ein__val *order;    // live values, operands first; stb_ds arrays
    ein__val *product;  // the contractions among them that run computes
    int *uses, *level;  // by value
    ein__readers readers;
    bool *root;
    ein__val *behind;      // by value: the map that alone reads it, in place; or none
    ein__ex *behind_read;  // ... and that read
    uint32_t first;        // values from here on were made in this round
    uint32_t changed;      // ... and from here on in the last one
    ein__part *part;
    ein__merge *found;
    int tries, toggles;
    bool toggling;  // what is found now is what is left of a group
    // The first round, which is the same whatever is chosen: how many merges it found with how many
    // tries, and how many values there were then; 0: it is to come.
    ptrdiff_t first_found, first_values;
    int first_tries, first_toggles;
} ein__merger;

// ------------------------------------------------------------------------------------ parts

static ein__ix ein__axis_plain(ein_ctx *ctx, const ein__part *p, int dim, const ein__ix *map) {
    const ein__index *f = ein__ix_get(ctx, ein__ex_get(ctx, p->x)->ix[dim]);
    ein__ix sum = ein__ix_const(ctx, 0);
    for (uint32_t t = 0; t < f->n; t++) {
        uint32_t slot = ein__atom_get(ctx, f->t[t].atom)->slot;
        if ((int)slot != p->axis[dim].slot)
            sum = ein__ix_add(ctx, sum, ein__ix_scale(ctx, map[slot], f->t[t].k));
    }
    return sum;
}

// Whether every subscript of x is plain iterators and at most one reduction that stands nowhere
// else.
static bool ein__part_axes(ein_ctx *ctx, ein__part *p) {
    const ein__scope *s = ein__sc_get(ctx, p->sc);
    const ein__expr *x = ein__ex_get(ctx, p->x);
    uint32_t seen = 0, all = 0;
    for (uint32_t k = 0; k < x->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, x->ix[k]);
        ein__axis *a = &p->axis[k];
        *a = (ein__axis){.slot = -1, .n = 1, .c = f->c};
        for (uint32_t t = 0; t < f->n; t++) {
            const ein__atom *atom = ein__atom_get(ctx, f->t[t].atom);
            if (atom->kind != EIN__ITER) return false;
            if (atom->slot < s->nt) continue;
            if (a->slot >= 0 || (seen >> atom->slot & 1)) return false;
            seen |= 1u << atom->slot;
            a->slot = (int)atom->slot;
            a->n = atom->n;
            a->k = f->t[t].k;
        }
        if (a->k >= 0) continue;
        a->c += a->k * (a->n - 1);
        a->k = -a->k;
        a->flip = true;
    }
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++)
        if (s->n[i] > 1) all |= 1u << i;
    return seen == all;
}

// Adds the slots in [from, to) that read `r` uses, in order of occurrence.
static void ein__add_canon(ein_ctx *ctx, ein__part *p, const ein__expr *r, uint32_t from,
                           uint32_t to) {
    for (uint32_t k = 0; k < r->nix; k++)
        for (uint32_t i = from; i < to; i++) {
            bool known = !(ein__ix_uses(ctx, r->ix[k]) >> i & 1);
            for (int c = 0; c < p->ncanon; c++) known |= p->canon[c] == (int)i;
            if (!known) p->canon[p->ncanon++] = (int)i;
        }
}

static void ein__part_canon(ein_ctx *ctx, ein__part *p) {
    const ein__scope *s = ein__sc_get(ctx, p->sc);
    const ein__expr *x = ein__ex_get(ctx, p->x), *w = ein__ex_get(ctx, p->w);
    ein__add_canon(ctx, p, x, 0, s->nt);
    p->nx = p->ncanon;
    if (!ctx->value[w->val].weight_only) ein__add_canon(ctx, p, w, 0, s->nt);
    for (uint32_t i = 0; i < s->nt; i++) {
        bool known = s->n[i] == 1;
        for (int c = 0; c < p->ncanon; c++) known |= p->canon[c] == (int)i;
        if (!known) p->canon[p->ncanon++] = (int)i;
    }
    ein__add_canon(ctx, p, x, s->nt, s->nt + s->ns);
    ein__add_canon(ctx, p, w, s->nt, s->nt + s->ns);
}

static void ein__put_key(ein__buf *b, int64_t v) { ein__putf(b, "%lld ", (long long)v); }

// x up to the names of iterators, without and with its windows.
static void ein__part_input_keys(ein_ctx *ctx, ein__part *p) {
    const ein__scope *s = ein__sc_get(ctx, p->sc);
    const ein__expr *x = ein__ex_get(ctx, p->x);
    ein__buf b = {0};
    ein__put_key(&b, x->val);
    for (uint32_t k = 0; k < x->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, x->ix[k]);
        ein__put_key(&b, f->q);
        for (int c = 0; c < p->nx; c++)
            ein__put_key(&b, ein__ix_coef(ctx, x->ix[k], (uint32_t)p->canon[c]));
        ein__put(&b, "; ");
    }
    for (int c = 0; c < p->nx; c++) ein__put_key(&b, s->n[p->canon[c]]);
    p->near = ein__name(ctx, b.s);
    ein__put(&b, "| ");
    for (uint32_t k = 0; k < x->nix; k++) {
        ein__put_key(&b, p->axis[k].k);
        ein__put_key(&b, p->axis[k].n);
        ein__put_key(&b, p->axis[k].c);
    }
    p->same = ein__name(ctx, b.s);
    ein__buf_free(&b);
}

static void ein__put_read_key(ein_ctx *ctx, ein__buf *b, const ein__part *p, ein__ex ex) {
    const ein__expr *r = ein__ex_get(ctx, ex);
    for (uint32_t k = 0; k < r->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, r->ix[k]);
        ein__put_key(b, ctx->value[r->val].shape.d[k]);
        ein__put_key(b, f->q);
        ein__put_key(b, f->c);
        for (int c = 0; c < p->ncanon; c++)
            ein__put_key(b, ein__ix_coef(ctx, r->ix[k], (uint32_t)p->canon[c]));
        ein__put(b, "; ");
    }
}

// The contraction but for its operands; of weights only the iterators count.
static void ein__part_form_key(ein_ctx *ctx, ein__part *p) {
    const ein__scope *s = ein__sc_get(ctx, p->sc);
    bool weight = ctx->value[ein__ex_get(ctx, p->w)->val].weight_only;
    if (!ein__ex_affine(ctx, p->x) || (!weight && !ein__ex_affine(ctx, p->w))) return;
    ein__buf b = {0};
    ein__put_key(&b, p->level);
    ein__put_key(&b, p->nx);
    for (int c = 0; c < p->ncanon; c++) {
        ein__put_key(&b, p->canon[c] >= (int)s->nt);
        ein__put_key(&b, s->n[p->canon[c]]);
        ein__put_key(&b, p->in_w >> p->canon[c] & 1);
    }
    ein__put_read_key(ctx, &b, p, p->x);
    if (!weight) ein__put_read_key(ctx, &b, p, p->w);
    ein__put_key(&b, weight);
    if (!weight) ein__putf(&b, "%a", p->alpha);
    p->like = ein__name(ctx, b.s);
    ein__buf_free(&b);
}

// Adds contraction `sc` as a way of having `member`, when its form is one that merges: with its
// first activation as the data, and where both factors are activations with the other one as well
// (that matters for a shared input alone).
static void ein__add_part(ein__merger *z, ein__val member, ein__sc sc, ein__val cls,
                          ein__sc outer) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, sc);
    const ein__expr *read[2];
    double alpha;
    bool first = true;
    if (!ein__two_factors(ctx, s, read, &alpha)) return;
    for (int data = 0; data < 2; data++) {
        ein__part p = {.member = member, .sc = sc, .cls = cls, .outer = outer, .alpha = alpha};
        if (ctx->value[read[data]->val].weight_only || arrlen(z->part) >= EIN__MERGE_PARTS)
            continue;
        p.x = ein__ex_of(ctx, read[data]);
        p.w = ein__ex_of(ctx, read[1 - data]);
        p.in_x = ein__ex_uses(ctx, p.x);
        p.in_w = ein__ex_uses(ctx, p.w);
        p.level = z->level[member.i];
        // A sum over nothing that is read counts its terms; with no sum at all it is no
        // contraction.
        for (uint32_t i = 0; i < s->nt + s->ns; i++)
            if (s->n[i] > 1 && !((p.in_x | p.in_w) >> i & 1)) return;
        if (!((p.in_x | p.in_w) >> s->nt)) return;
        ein__part_canon(ctx, &p);
        p.windowed = ein__part_axes(ctx, &p);
        if (p.windowed) ein__part_input_keys(ctx, &p);
        if (first) ein__part_form_key(ctx, &p);
        if (first || p.windowed) arrput(z->part, p);
        first = false;
    }
}

// ------------------------------------------------------------------------------------ values

// A map that several members have behind them is one step.
static void ein__put_bill(ein__bill **bill, ein__val v, int64_t ps) {
    for (ptrdiff_t i = 0; i < arrlen(*bill); i++)
        if ((*bill)[i].v.i == v.i) return;
    arrput(*bill, ((ein__bill){v, ps}));
}

static ein__val ein__merge_value(ein__merger *z, ein__val like, const char *suffix,
                                 const ein__scope *s, const char *why) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[like.i];
    ein__shape shape = {.rank = (int)s->nt};
    if (!s->body.i || s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) return (ein__val){0};
    for (uint32_t i = 0; i < s->nt; i++) shape.d[i] = s->n[i];
    if (ein__elements(&shape) > EIN__MAX_ELEMENTS) return (ein__val){0};
    ein__sc sc = ein__sc_make(ctx, s);
    if (!sc.i) return (ein__val){0};
    const char *name = suffix ? ein__namef(ctx, "%s.%s", old.name, suffix) : old.name;
    ein__val v = ein__val_new(ctx, name, EIN__V_SCOPE, old.tensor, sc, &shape, EIN__F32, old.node);
    ctx->value[v.i].why = why;
    return v;
}

// What stands in the members' places, `ex` in each one's own iterators, as one value over the
// merged iterators that it needs; gives the read of it. `guards`: whether windows of the reduction
// matter as well. Weights are laid so at load; of activations it is a kernel, which `bill`
// receives.
static ein__ex ein__side_by_side(ein__merger *z, const ein__joint *f, const ein__ex *ex,
                                 bool guards, ein__val like, ein__bill **bill) {
    ein_ctx *ctx = z->ctx;
    ein__ex sum = {0}, only = {0};
    bool same = f->apart;
    for (int i = 0; i < f->np; i++) {
        ein__ex e = ein__ex_subst(ctx, ex[i], f->map[i], EIN__MAX_ITERS);
        if (!i) only = e;
        same &= e.i == only.i;
        for (int g = 0; g < (guards ? f->nguard[i] : 1); g++) {
            e = ein__ex_when(ctx, f->guard[i][g].ix, f->guard[i][g].n, false, e);
            same &= g == 0;
        }
        sum = i ? ein__ex_binary(ctx, EIN__ADD, sum, e) : e;
        if (!sum.i) return sum;
    }
    if (same) return only;
    ein__scope s = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    if (!ein__used_dims(ctx, &f->s, ein__ex_uses(ctx, sum), &s, map, back)) return (ein__ex){0};
    s.body = ein__ex_subst(ctx, sum, map, (int)(f->s.nt + f->s.ns));
    bool weight = true;
    for (int i = 0; i < f->np; i++) weight &= ein__ex_weight_only(ctx, ex[i]);
    ein__val v = ein__merge_value(z, like, weight ? "weights" : "operands", &s,
                                  "merging: laid side by side");
    if (v.i) ctx->value[v.i].dtype = ein__moved_type(ctx, s.body, true);
    if (v.i && !weight) ein__put_bill(bill, v, ein__kernel_cost(ctx, v));
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)s.nt) : (ein__ex){0};
}

// Values `part` of equal rank one behind the other along dimension `axis`; the other extents are
// the same. The value itself when there is only one.
static ein__val ein__concatenate(ein__merger *z, const ein__val *part, int n, int axis) {
    ein_ctx *ctx = z->ctx;
    const ein__shape first = ctx->value[part[0].i].shape;
    ein__scope s = {.reduce = EIN__R_NONE, .nt = (uint32_t)first.rank};
    int64_t at = 0, total = 0;
    for (int i = 0; i < n; i++) total += ctx->value[part[i].i].shape.d[axis];
    for (int k = 0; k < first.rank; k++) s.n[k] = k == axis ? total : first.d[k];
    for (int i = 0; i < n; i++) {
        ein__ix ix[EIN__MAX_RANK];
        for (int k = 0; k < first.rank; k++) ix[k] = ein__ix_iter(ctx, (uint32_t)k, s.n[k]);
        ix[axis] = ein__ix_addc(ctx, ix[axis], -at);
        ein__ex r = ein__ex_read(ctx, part[i], 0, ix, first.rank);
        s.body = i ? ein__ex_binary(ctx, EIN__ADD, s.body, r) : r;
        if (!s.body.i) return (ein__val){0};
        at += ctx->value[part[i].i].shape.d[axis];
    }
    ein__val v = ein__merge_value(z, part[0], "joined", &s, "merging: laid side by side");
    if (v.i) ctx->value[v.i].dtype = ein__moved_type(ctx, s.body, true);
    return v;
}

// The merged value read where member `i` has the element with subscripts `ix`; none when some
// subscript may leave the member's box where others begin.
static ein__ex ein__joint_read(ein_ctx *ctx, const ein__joint *f, int i, const ein__scope *part,
                               ein__val wide, const ein__ix *ix) {
    ein__ix at[EIN__MAX_RANK], flat = ein__ix_const(ctx, 0);
    uint32_t known = f->flat[i];
    for (uint32_t t = 0; t < part->nt; t++) {
        if (!(f->flat[i] >> t & 1)) continue;
        const ein__index *g = ein__ix_get(ctx, ix[t]);
        if (g->q != 1 || g->lo < 0 || g->hi >= part->n[t]) return (ein__ex){0};
        flat = ein__ix_add(ctx, ein__ix_scale(ctx, flat, part->n[t]), ix[t]);
    }
    for (uint32_t m = 0; m < f->s.nt; m++) {
        at[m] = ein__ix_const(ctx, 0);
        if ((int)m == f->joined) at[m] = ein__ix_addc(ctx, flat, f->at[i]);
        else if (f->slot[i][m] >= 0) at[m] = ix[f->slot[i][m]];
        if ((int)m != f->joined && f->slot[i][m] >= 0) known |= 1u << f->slot[i][m];
    }
    for (uint32_t t = 0; t < part->nt; t++) {
        int64_t c;
        if (!(known >> t & 1) && (!ein__ix_is_const(ctx, ix[t], &c) || c)) return (ein__ex){0};
    }
    return ein__ex_read(ctx, wide, 0, at, (int)f->s.nt);
}

typedef struct ein__inner {
    const ein__joint *f;
    const ein__part *part;
    ein__val wide;
    int i;
} ein__inner;

static ein__ex ein__replace_inner(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__inner *z = user;
    const ein__expr *r = ein__ex_get(ctx, ex);
    if (r->val != z->part->cls.i) return ex;
    return ein__joint_read(ctx, z->f, z->i, ein__sc_get(ctx, z->part->sc), z->wide, r->ix);
}

// Member `i` as a window on the merged value, or its definition that reads the merged value.
static ein__val ein__member_of(ein__merger *z, const ein__joint *f, int i, const ein__part *p,
                               ein__val like, ein__val wide, const char *why) {
    ein_ctx *ctx = z->ctx;
    if (p->outer.i) {
        ein__scope s = *ein__sc_get(ctx, p->outer);
        ein__inner inner = {f, p, wide, i};
        s.body = ein__ex_replace_reads(ctx, s.body, ein__replace_inner, &inner);
        return ein__merge_value(z, like, NULL, &s, why);
    }
    const ein__scope *c = ein__sc_get(ctx, p->sc);
    ein__scope s = {.reduce = EIN__R_NONE, .nt = c->nt};
    ein__ix ix[EIN__MAX_ITERS];
    for (uint32_t t = 0; t < c->nt; t++) {
        s.n[t] = c->n[t];
        ix[t] = ein__ix_iter(ctx, t, c->n[t]);
    }
    s.body = ein__joint_read(ctx, f, i, c, wide, ix);
    return ein__merge_value(z, like, NULL, &s, why);
}

// ------------------------------------------------------------------------------------ maps behind

// The maps behind the members, as one map over the merged value: `body` of each, in its own
// iterators, must be the same but for weights. `read`: each one's read of its member.
static ein__ex ein__join_bodies(ein__merger *z, const ein__joint *f, const ein__ex *body,
                                const ein__ex *read, ein__ex wide, ein__val like) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e[EIN__MERGE_GROUP];
    bool all_read = true, weights = true;
    for (int i = 0; i < f->np; i++) {
        e[i] = ein__ex_get(ctx, body[i]);
        all_read &= body[i].i == read[i].i;
        // Not weights that stand at places computed at run time: those are no weights.
        weights &= e[i]->op == EIN__X_READ && ein__ex_weight_only(ctx, body[i]);
        if (e[i]->op != e[0]->op || e[i]->fn != e[0]->fn || e[i]->nkid != e[0]->nkid)
            return (ein__ex){0};
    }
    if (all_read) return wide;
    if (weights) return ein__side_by_side(z, f, body, false, like, NULL);
    ein__expr r = *e[0];
    if (r.op == EIN__X_CONST) {
        for (int i = 1; i < f->np; i++)
            if (body[i].i != body[0].i) return (ein__ex){0};
        return body[0];
    }
    if (r.op != EIN__X_UNARY && r.op != EIN__X_BINARY && r.op != EIN__X_SELECT) return (ein__ex){0};
    for (uint32_t k = 0; k < r.nkid; k++) {
        ein__ex kid[EIN__MERGE_GROUP];
        for (int i = 0; i < f->np; i++) kid[i] = e[i]->kid[k];
        r.kid[k] = ein__join_bodies(z, f, kid, read, wide, like);
        if (!r.kid[k].i) return r.kid[k];
    }
    return ein__ex_make(ctx, &r);
}

// ------------------------------------------------------------------------------------ costs

// Cost of the cheapest derivation of contraction `v` with the map that alone reads it (or none).
static int64_t ein__merge_price(ein__merger *z, ein__val v, ein__val map, ein__ex read) {
    ein__operands b = {.n = 0};
    int64_t ps = EIN__NO_WAY;
    ein__attempt attempt = ein__try(z->ctx);
    ein__problem *p = ein__problem_of(z->ctx, v, &b);
    if (p && !z->ctx->status) ps = ein__choose_def(z->ctx, p, map, read).ps;
    return ein__tried(z->ctx, attempt) ? ps : EIN__NO_WAY;
}

// Cost of map `v` as a kernel of its own.
static int64_t ein__map_cost(ein__merger *z, ein__val v) {
    return ein__cost_scope(z->ctx, EIN__K_MAP, ein__scope_of(z->ctx, v), (ein__val){0},
                           (ein__ex){0});
}

// The map that alone reads `v` in place and that a step for `v` may compute as well.
static ein__val ein__map_behind(ein__merger *z, ein__val v, ein__ex *read) {
    *read = z->behind_read[v.i];
    return z->behind[v.i];
}

// Cost of a concatenation: nothing where the producers can store there.
static int64_t ein__concat_cost(ein__merger *z, ein__val all, const ein__val *part, int n,
                                int axis) {
    ein_ctx *ctx = z->ctx;
    bool in_place = true, whole = true;
    for (int k = 0; k < axis; k++) whole &= ctx->value[part[0].i].shape.d[k] == 1;
    for (int i = 0; i < n; i++) {
        const ein__scope *s = ein__scope_of(ctx, part[i]);
        in_place = in_place && s && !ctx->value[part[i].i].weight_only && !z->root[part[i].i] &&
                   !ein__copy_of(ctx, part[i]);
        for (int j = 0; j < i; j++) in_place &= part[j].i != part[i].i;
        // A library stores whole blocks, and so does a map that may be fused into its call.
        if (in_place && !whole)
            in_place = !ein__is_contraction(ctx, s) && !ein__ex_reads_reduction(ctx, s->body);
    }
    return in_place ? 0 : ein__map_cost(z, all);
}

typedef struct ein__seen_through {
    ein__val old, now;
} ein__seen_through;

static ein__ex ein__see_through(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__seen_through *z = user;
    const ein__expr *r = ein__ex_get(ctx, ex);
    return r->val == z->old.i ? ein__rule_inline(ctx, z->now, r) : ex;
}

// Whether `v` is a contraction that run computes and that may be merged. A merged product has one
// arithmetic, so those that keep FP32 stay apart.
static bool ein__may_merge(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    return s && !ctx->value[v.i].weight_only && ctx->value[v.i].dtype == EIN__F32 &&
           ein__is_contraction(ctx, s) && !ein__is_kept(ctx, v) && !ein__keeps_fp32(ctx, v);
}

// Cost of window `now` in the place of `old`: nothing when it is one block of the merged value, or
// when those who read it can address it there.
static int64_t ein__window_cost(ein__merger *z, ein__val old, ein__val now) {
    ein_ctx *ctx = z->ctx;
    int64_t copy = ein__map_cost(z, now);
    const ein__expr *r = ein__copy_of(ctx, now);
    if (!r || z->root[old.i]) return copy;
    const ein__shape *shape = &ctx->value[now.i].shape;
    int64_t from[EIN__MAX_RANK], dense[EIN__MAX_RANK];
    ein__factor f;
    bool block = true;
    ein__dense_strides(&ctx->value[r->val].shape, from);
    ein__dense_strides(shape, dense);
    if (!ein__address(ctx, r, from, &f)) return copy;
    for (int k = 0; k < shape->rank; k++) block &= shape->d[k] == 1 || f.coef[k] == dense[k];
    if (block) return 0;
    for (int i = z->readers.first[old.i]; i < z->readers.first[old.i + 1]; i++) {
        ein__val reader = z->readers.all[i];
        const ein__scope *s = ein__scope_of(ctx, reader);
        if (!ein__may_merge(ctx, reader) || !ein__is_library_form(ctx, s)) continue;
        ein__scope t = *s;
        ein__seen_through through = {old, now};
        t.body = ein__ex_replace_reads(ctx, s->body, ein__see_through, &through);
        if (!t.body.i || !ein__is_library_form(ctx, &t)) return copy;
    }
    return 0;
}

// Cost of definition `now` of a member, which reads the merged value, with the map behind it fused.
static int64_t ein__outer_cost(ein__merger *z, const ein__part *p, ein__val now) {
    const ein__scope *s = ein__scope_of(z->ctx, now);
    ein__ex read;
    ein__val map = ein__map_behind(z, p->member, &read);
    if (s->ns) return ein__cost_scope(z->ctx, EIN__K_REDUCE, s, map, read);
    int64_t window = ein__window_cost(z, p->member, now);
    return map.i ? ein__kernel_cost(z->ctx, map) : window;
}

static void ein__merge_free(ein__merge *m) {
    arrfree(m->member);
    arrfree(m->old);
    arrfree(m->now);
    arrfree(m->taken);
    arrfree(m->bill);
}

static void ein__merges_free(ein__merge *list) {
    for (ptrdiff_t i = 0; i < arrlen(list); i++) ein__merge_free(&list[i]);
    arrfree(list);
}

// Old and new definitions modulo 2^61-1 at `samples` places each, with everything else that the
// program has as free inputs. Gives the first value that differs, or none; a proof that meets a
// limit sets the context's error and gives the value as well.
static ein__val ein__merge_differs(ein_ctx *ctx, const ein__merge *m, int samples) {
    ein__val differs = {0};
    uint32_t *fresh = NULL;
    for (uint32_t i = 0; i < (uint32_t)arrlen(ctx->value); i++) arrput(fresh, i < m->first ? i : 0);
    for (ptrdiff_t k = 0; k < arrlen(m->taken); k++) fresh[m->taken[k].i] = 0;
    for (ptrdiff_t k = 0; k < arrlen(m->old) && !differs.i; k++)
        if (!ein__evalp_equal_from(ctx, m->old[k], m->now[k], samples, 1, fresh))
            differs = m->old[k];
    arrfree(fresh);
    return differs;
}

// Keeps a merge that was built whole.
static void ein__add_merge(ein__merger *z, ein__merge *m) {
    m->ps = ein__merge_price(z, m->wide, m->map, m->map_read);
    if (m->inner.i && !z->ctx->value[m->inner.i].weight_only)
        m->ps = ein__cost_sum(m->ps, ein__merge_price(z, m->inner, (ein__val){0}, (ein__ex){0}));
    for (ptrdiff_t i = 0; i < arrlen(m->bill); i++) m->ps = ein__cost_sum(m->ps, m->bill[i].ps);
    m->first = z->first;
    m->toggled = z->toggling;
#ifdef EIN_CHECK_STEPS
    ein__val differs = ein__merge_differs(z->ctx, m, EIN_CHECK_STEPS);
    if (differs.i)
        ein__error(z->ctx, EIN_DIFFERS, (ein__pos){0, 0}, "%s: merging (%s) changes the value",
                   z->ctx->value[differs.i].name, m->rule);
    ein__steps_checked += arrlen(m->old);
#endif
    arrput(z->found, *m);
    *m = (ein__merge){0};
}
