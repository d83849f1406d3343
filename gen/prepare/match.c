// Operator matching: which library call computes a contraction. An iterator's group is the set of
// operands and result it occurs in (EinNet section 5.1, Table 2); attributes come from flattened
// strides. Nothing here knows what operator of the model a contraction came from.

// A factor of a contraction as a linear address: offset + sum coef[slot] * iterator, in elements.
typedef struct ein__factor {
    const ein__expr *read;
    int64_t offset, coef[EIN__MAX_ITERS];
} ein__factor;

EIN__FN void ein__dense_strides(const ein__shape *s, int64_t *stride) {
    int64_t step = 1;
    for (int i = s->rank; i-- > 0;) {
        stride[i] = step;
        step *= s->d[i];
    }
}

// The layout of value `v` in the plan, NULL while it has none.
static const ein__layout *ein__layout_of(const ein_ctx *ctx, ein__val v) {
    const ein__plan *p = &ctx->plan;
    bool placed = (ptrdiff_t)v.i < arrlen(p->placed) && p->placed[v.i];
    return placed && p->layout[v.i].buffer >= 0 ? &p->layout[v.i] : NULL;
}

// Strides of value `v`: the planned ones, or dense ones while nothing is planned.
static void ein__strides_of(ein_ctx *ctx, ein__val v, int64_t *stride) {
    const ein__layout *l = ein__layout_of(ctx, v);
    const int64_t *known = l ? l->stride : NULL;
    for (int k = 0; k < 2 && v.i; k++)
        if (ctx->turned[k].v.i == v.i) known = ctx->turned[k].stride;
    if (known) memcpy(stride, known, sizeof l->stride);
    else ein__dense_strides(&ctx->value[v.i].shape, stride);
}

// Whether a read stays inside its box in every dimension but `skip` (-1: in all).
static bool ein__inside_but(ein_ctx *ctx, const ein__expr *read, int skip) {
    const ein__shape *s = &ctx->value[read->val].shape;
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if ((int)k != skip && (f->q != 1 || f->lo < 0 || f->hi >= s->d[k])) return false;
    }
    return true;
}

static bool ein__inside(ein_ctx *ctx, const ein__expr *read) {
    return ein__inside_but(ctx, read, -1);
}

// Adds the places of a read whose subscripts are sums of iterators: nearly all of them. Inside its
// box no product leaves the range of its elements.
static bool ein__linear_address(ein_ctx *ctx, const ein__expr *read, const int64_t *stride,
                                int skip, ein__factor *f) {
    *f = (ein__factor){.read = read};
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *ix = ein__ix_get(ctx, read->ix[k]);
        if ((int)k == skip) continue;
        if (ix->q != 1 || !ein__ix_linear(ctx, ix)) return false;
        f->offset += ix->c * stride[k];
        for (uint32_t t = 0; t < ix->n; t++)
            f->coef[ein__atom_get(ctx, ix->t[t].atom)->slot] += ix->t[t].k * stride[k];
    }
    return true;
}

// The address of a read that is inside its box, without dimension `skip` (-1: of all), when it is
// affine (div and mod that recombine, as a reshape's do, are).
static bool ein__address_but(ein_ctx *ctx, const ein__expr *read, const int64_t *stride, int skip,
                             ein__factor *f) {
    if (!ein__inside_but(ctx, read, skip)) return false;
    if (ein__linear_address(ctx, read, stride, skip, f)) return true;
    ein__ix sum = ein__ix_const(ctx, 0);
    for (uint32_t k = 0; k < read->nix; k++)
        if ((int)k != skip) sum = ein__ix_add(ctx, sum, ein__ix_scale(ctx, read->ix[k], stride[k]));
    if (!sum.i || !ein__ix_affine(ctx, sum)) return false;
    const ein__index *ix = ein__ix_get(ctx, sum);
    *f = (ein__factor){.read = read, .offset = ix->c};
    for (uint32_t k = 0; k < ix->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, ix->t[k].atom);
        f->coef[a->slot] = ix->t[k].k;
    }
    return true;
}

static bool ein__address(ein_ctx *ctx, const ein__expr *read, const int64_t *stride,
                         ein__factor *f) {
    return ein__address_but(ctx, read, stride, -1, f);
}

// Splits a sum of products into constant factor and exactly two reads with padding 0. A small
// constant matrix is no such factor: no library call is better than its few numbers in registers.
static bool ein__two_factors(ein_ctx *ctx, const ein__scope *s, const ein__expr *read[2],
                             double *alpha) {
    ein__ex stack[16];
    int top = 0, n = 0;
    if (s->reduce != EIN__R_SUM || !s->ns) return false;
    *alpha = 1;
    stack[top++] = s->body;
    while (top) {
        const ein__expr *e = ein__ex_get(ctx, stack[--top]);
        if (e->op == EIN__X_BINARY && e->fn == EIN__MUL && top + 2 <= 16) {
            stack[top++] = e->kid[1];
            stack[top++] = e->kid[0];
        } else if (e->op == EIN__X_CONST) {
            double c;
            memcpy(&c, &e->bits, sizeof c);
            *alpha *= c;
        } else if (e->op == EIN__X_READ && !e->bits && n < 2 &&
                   ein__multiplies(ctx->value[e->val].dtype,
                                   ctx->value[n ? read[0]->val : e->val].dtype) &&
                   !ein__is_table(ctx, (ein__val){e->val})) {
            read[n++] = e;
        } else {
            return false;
        }
    }
    return n == 2;
}

EIN__FN bool ein__is_contraction(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *read[2];
    double alpha;
    return ein__two_factors(ctx, s, read, &alpha);
}

// A sum of squares is a reduction, although it looks like a product.
static bool ein__is_square(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *read[2];
    double alpha;
    return ein__two_factors(ctx, s, read, &alpha) && read[0]->val == read[1]->val;
}

// ------------------------------------------------------------------------------------ GEMM

// Iterators that one dimension of a matrix stands for: extent, and stride per operand (A, B, C).
typedef struct ein__chain {
    int64_t n, stride[3];
    uint32_t slots;
} ein__chain;

typedef struct ein__groups {
    ein__chain m[EIN__MAX_ITERS], n[EIN__MAX_ITERS], k[EIN__MAX_ITERS], b[EIN__MAX_ITERS];
    int nm, nn, nk, nb;
} ein__groups;

// Joins iterators into maximal chains: i is followed by j when stride_i = stride_j * extent_j in
// every operand, so the two address one longer dimension.
static int ein__join_chains(ein__chain *c, int n) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < n && !again; i++)
            for (int j = 0; j < n && !again; j++) {
                int x = 0;
                while (x < 3 && i != j && c[i].stride[x] == c[j].stride[x] * c[j].n) x++;
                if (x < 3) continue;
                c[j].n *= c[i].n;
                c[j].slots |= c[i].slots;
                c[i] = c[--n];
                again = true;
            }
    }
    return n;
}

static bool ein__group_iterators(const ein__scope *s, const ein__factor *a, const ein__factor *b,
                                 const int64_t *out, ein__groups *g) {
    g->nm = g->nn = g->nk = g->nb = 0;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (s->n[i] == 1) continue;
        bool in_a = a->coef[i] != 0, in_b = b->coef[i] != 0, reduced = i >= s->nt;
        ein__chain c = {s->n[i], {a->coef[i], b->coef[i], reduced ? 0 : out[i]}, 1u << i};
        if (reduced && in_a && in_b) g->k[g->nk++] = c;
        else if (reduced) return false;
        else if (in_a && in_b) g->b[g->nb++] = c;
        else if (in_a) g->m[g->nm++] = c;
        else if (in_b) g->n[g->nn++] = c;
        else return false;
    }
    g->nm = ein__join_chains(g->m, g->nm);
    g->nn = ein__join_chains(g->n, g->nn);
    g->nk = ein__join_chains(g->k, g->nk);
    return g->nk == 1;
}

// Leading dimension of a row-major matrix [rows, cols] with these strides; `*t` when it is stored
// transposed. 0: neither stride is 1, or rows overlap.
static int64_t ein__leading(int64_t rows, int64_t rs, int64_t cols, int64_t cs, bool *t) {
    *t = false;
    if (cols == 1 || cs == 1) {
        int64_t ld = rows == 1 ? cols : rs;
        if (ld >= cols) return ld;
    }
    *t = true;
    if (rows == 1 || rs == 1) {
        int64_t ld = cols == 1 ? rows : cs;
        if (ld >= rows) return ld;
    }
    return 0;
}

// One choice of the chains that stay as m and n (-1: none, extent 1); the others become batch.
static bool ein__gemm_choice(const ein__groups *g, int im, int in, ein__gemm *r) {
    ein__chain batch[3 * EIN__MAX_ITERS], one = {1, {0, 0, 0}, 0};
    int nb = 0;
    for (int i = 0; i < g->nb; i++) batch[nb++] = g->b[i];
    for (int i = 0; i < g->nm; i++)
        if (i != im) batch[nb++] = g->m[i];
    for (int i = 0; i < g->nn; i++)
        if (i != in) batch[nb++] = g->n[i];
    nb = ein__join_chains(batch, nb);
    if (nb > 1) return false;
    ein__chain b = nb ? batch[0] : one, k = g->k[0];
    ein__chain m = im >= 0 ? g->m[im] : one, n = in >= 0 ? g->n[in] : one;
    bool tc;
    r->ldc = ein__leading(m.n, m.stride[2], n.n, n.stride[2], &tc);
    r->lda = ein__leading(m.n, m.stride[0], k.n, k.stride[0], &r->ta);
    r->ldb = ein__leading(k.n, k.stride[1], n.n, n.stride[1], &r->tb);
    if (!r->ldc || !r->lda || !r->ldb || tc) return false;
    if (b.stride[0] < 0 || b.stride[1] < 0 || b.stride[2] < 0) return false;
    r->batch = b.n;
    r->m = m.n;
    r->n = n.n;
    r->k = k.n;
    r->sa = b.stride[0];
    r->sb = b.stride[1];
    r->sc = b.stride[2];
    r->rows = m.slots;
    r->columns = n.slots;
    int64_t limit = INT32_MAX;
    return m.n <= limit && n.n <= limit && k.n <= limit && b.n <= limit && r->lda <= limit &&
           r->ldb <= limit && r->ldc <= limit;
}

// A product's factors as linear addresses, under the layouts as they stand.
typedef struct ein__factors {
    ein__factor f[2];
    double alpha;
} ein__factors;

static bool ein__product_of(ein_ctx *ctx, const ein__scope *s, ein__factors *p) {
    const ein__expr *read[2];
    int64_t stride[EIN__MAX_RANK];
    if (!ein__two_factors(ctx, s, read, &p->alpha)) return false;
    if (!ein__alike(ctx, (ein__val){read[0]->val}, (ein__val){read[1]->val})) return false;
    for (int i = 0; i < 2; i++) {
        ein__strides_of(ctx, (ein__val){read[i]->val}, stride);
        if (!ein__address(ctx, read[i], stride, &p->f[i])) return false;
    }
    return true;
}

// Strided-batched GEMM for a product whose result has strides `out`; both orders of the operands
// are tried, and every choice of m and n chains: largest m * n wins.
static bool ein__match_product(ein_ctx *ctx, const ein__scope *s, const ein__factors *p,
                               const int64_t *out, ein__gemm *best) {
    bool found = false;
    // Without a batch m * n is all there is.
    for (int swap = 0; swap < 2 && (!found || best->batch > 1); swap++) {
        const ein__factor *a = &p->f[swap], *b = &p->f[1 - swap];
        ein__groups g;
        if (!ein__group_iterators(s, a, b, out, &g)) continue;
        for (int im = g.nm - 1; im >= -1; im--)
            for (int in = g.nn - 1; in >= -1; in--) {
                ein__gemm r = {.a = {a->read->val},
                               .b = {b->read->val},
                               .alpha = p->alpha,
                               .oa = a->offset,
                               .ob = b->offset};
                if (!ein__gemm_choice(&g, im, in, &r)) continue;
                if (found && r.m * r.n <= best->m * best->n) continue;
                *best = r;
                found = true;
            }
    }
    if (found) best->math = ein__math_of(ctx, best->a, best->b);
    return found;
}

EIN__FN bool ein__match_gemm(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                             ein__gemm *best) {
    ein__factors p;
    return ein__product_of(ctx, s, &p) && ein__match_product(ctx, s, &p, out, best);
}

// Strides of a dense tensor with extents `n` whose dimensions lie in memory in `order`, outermost
// first.
EIN__FN void ein__order_strides(const int64_t *n, int rank, const int *order, int64_t *stride) {
    int64_t step = 1;
    for (int k = rank; k-- > 0;) {
        stride[order[k]] = step;
        step *= n[order[k]];
    }
}

// Appends the slots in `mask` to `order`, the one with the largest step first.
static int ein__order_group(uint32_t mask, const int64_t *step, int *order, int n) {
    int first = n;
    for (int i = 0; i < EIN__MAX_RANK; i++) {
        if (!(mask >> i & 1)) continue;
        int at = n++;
        for (; at > first && step[order[at - 1]] < step[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

enum { EIN__GEMM_ORDERS = 4 };

// How far an order is from the declared one: pairs that lie the other way round, and above all
// whether another dimension is innermost. Dimensions of extent 1 do not count.
static int ein__order_distance(const int64_t *extent, const int *order, int rank) {
    int n = 0, inner = -1, declared = -1;
    for (int i = 0; i < rank; i++) {
        if (extent[i] > 1) declared = i;
        if (extent[order[i]] == 1) continue;
        inner = order[i];
        for (int j = 0; j < i; j++) n += extent[order[j]] > 1 && order[j] > order[i];
    }
    return inner == declared ? n : n + EIN__MAX_RANK * EIN__MAX_RANK;
}

// Orders of the result's dimensions in which a product is few calls of GEMM: batch, rows and
// columns each as their operand has them, so that they join into chains. The batch is outermost, or
// between rows and columns. The order nearest to the declared one is first. 0: no GEMM in any.
EIN__FN int ein__gemm_orders(const ein__scope *s, const ein__factors *p,
                             int order[EIN__GEMM_ORDERS][EIN__MAX_RANK]) {
    uint32_t unit = 0, group[4] = {0, 0, 0, 0};  // in neither factor, the first, the second, both
    for (uint32_t i = 0; i < s->nt; i++) {
        if (s->n[i] == 1) unit |= 1u << i;
        else group[(p->f[0].coef[i] != 0) + 2 * (p->f[1].coef[i] != 0)] |= 1u << i;
    }
    if (group[0]) return 0;
    static const int turn[EIN__GEMM_ORDERS][3] = {{3, 1, 2}, {3, 2, 1}, {1, 3, 2}, {2, 3, 1}};
    int count = group[3] ? EIN__GEMM_ORDERS : 2;
    for (int k = 0; k < count; k++) {
        int one[EIN__MAX_RANK] = {0}, n = ein__order_group(unit, p->f[0].coef, one, 0), at = k;
        for (int g = 0; g < 3; g++)
            n = ein__order_group(group[turn[k][g]], p->f[turn[k][g] == 2].coef, one, n);
        int far = ein__order_distance(s->n, one, n);
        for (; at > 0 && ein__order_distance(s->n, order[at - 1], n) > far; at--)
            memcpy(order[at], order[at - 1], sizeof one);
        memcpy(order[at], one, sizeof one);
    }
    return count;
}

// ------------------------------------------------------------------------------------ convolution

// Roles of iterators, from the operands they occur in.
typedef enum {
    EIN__C_NONE,
    EIN__C_BATCH,
    EIN__C_OUT,
    EIN__C_GROUP,
    EIN__C_IN,
    EIN__C_FILTER,
    EIN__C_SPACE
} ein__crole;

typedef struct ein__conv_form {
    const ein__scope *s;
    const ein__expr *x, *w;
    ein__crole role[EIN__MAX_ITERS];
    int space[3], filter[3];  // slot of the output position and of the filter tap per axis, or -1
    int axis[3];              // dimension of x per axis
    int plain[2];             // dimensions of x before which batch and channels end
    bool transposed;          // backward-data
    ein__conv c;
} ein__conv_form;

static bool ein__conv_roles(ein_ctx *ctx, ein__conv_form *z) {
    uint32_t in_x = 0, in_w = 0;
    for (uint32_t k = 0; k < z->x->nix; k++) in_x |= ein__ix_uses(ctx, z->x->ix[k]);
    for (uint32_t k = 0; k < z->w->nix; k++) in_w |= ein__ix_uses(ctx, z->w->ix[k]);
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++) {
        bool a = in_x >> i & 1, b = in_w >> i & 1;
        z->role[i] = EIN__C_NONE;
        if (z->s->n[i] == 1) continue;
        if (i >= z->s->nt) {
            if (!a || !b) return false;
            z->role[i] = EIN__C_IN;  // filter taps are told apart by the dimension they stand in
        } else if (a && b) {
            z->role[i] = EIN__C_GROUP;
        } else if (a) {
            z->role[i] = EIN__C_BATCH;
        } else if (b) {
            z->role[i] = EIN__C_OUT;
        } else {
            return false;
        }
    }
    return true;
}

// One dimension of x: the bare iterators of a batch or channel dimension, or a window
// (stride * o + dilation * r - pad) / q.
static bool ein__conv_dim(ein_ctx *ctx, ein__conv_form *z, int dim, bool window) {
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    int64_t extent = ctx->value[z->x->val].shape.d[dim];
    int o = -1, r = -1;
    int64_t ko = 0, kr = 0;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        if (a->kind != EIN__ITER) return false;
        if (z->role[a->slot] == EIN__C_BATCH && o < 0) {
            o = (int)a->slot;
            ko = f->t[t].k;
        } else if (z->role[a->slot] == EIN__C_IN && r < 0) {
            r = (int)a->slot;
            kr = f->t[t].k;
        } else {
            return false;
        }
    }
    int axis = z->c.spatial;
    if (!window || axis == 3) return false;
    ein__conv *c = &z->c;
    z->space[axis] = o;
    z->filter[axis] = r;
    z->axis[axis] = dim;
    c->in[axis] = extent;
    c->out[axis] = o >= 0 ? z->s->n[o] : 1;
    c->k[axis] = r >= 0 ? z->s->n[r] : 1;
    if (z->transposed) {
        // input position (o + pad - dilation * r) / stride
        if ((o >= 0 && ko != 1) || (r >= 0 && kr >= 0)) return false;
        c->stride[axis] = f->q;
        c->dilation[axis] = r >= 0 ? -kr : 1;
        c->pad[axis] = f->c;
    } else {
        if (f->q != 1 || (o >= 0 && ko <= 0) || (r >= 0 && kr <= 0)) return false;
        c->stride[axis] = o >= 0 ? ko : 1;
        c->dilation[axis] = r >= 0 ? kr : 1;
        c->pad[axis] = -f->c;
    }
    if (o >= 0) z->role[o] = EIN__C_SPACE;
    if (r >= 0) z->role[r] = EIN__C_FILTER;
    c->spatial++;
    return true;
}

// Whether dimension `dim` of x is made of iterators of one role only, inside, and which.
static ein__crole ein__conv_plain_role(ein_ctx *ctx, const ein__conv_form *z, int dim) {
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    int64_t extent = ctx->value[z->x->val].shape.d[dim];
    ein__crole role = EIN__C_NONE;
    if (f->q != 1 || f->lo < 0 || f->hi >= extent) return EIN__C_NONE;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        if (a->kind != EIN__ITER) return EIN__C_NONE;
        ein__crole r = z->role[a->slot];
        if (r == EIN__C_GROUP) r = EIN__C_IN;
        if (role != EIN__C_NONE && r != role) return EIN__C_NONE;
        role = r;
    }
    return role;
}

static int64_t ein__conv_out_size(const ein__conv *c, int axis, int64_t in) {
    int64_t span = c->dilation[axis] * (c->k[axis] - 1) + 1;
    return ein__floordiv(in + 2 * c->pad[axis] - span, c->stride[axis]) + 1;
}

// Sizes that cuDNN computes itself must come out as the expression has them: padding is symmetric.
static bool ein__conv_sizes(const ein__conv_form *z) {
    const ein__conv *c = &z->c;
    for (int a = 0; a < c->spatial; a++) {
        int64_t in = z->transposed ? c->out[a] : c->in[a],
                out = z->transposed ? c->in[a] : c->out[a];
        if (c->pad[a] < 0 || ein__conv_out_size(c, a, in) != out) return false;
    }
    return true;
}

// Rank-order of x's dimensions: batch, channels, axes; several may stand for the batch and for the
// channels. Dimensions of extent 1 without iterators stand for whichever is missing.
static bool ein__conv_dims(ein_ctx *ctx, ein__conv_form *z) {
    int rank = (int)z->x->nix, dim = 0;
    const ein__shape *s = &ctx->value[z->x->val].shape;
    uint32_t used[2] = {0, 0};
    z->c.n = z->c.c = 1;
    for (int part = 0; part < 2; part++) {
        ein__crole want = part ? EIN__C_IN : EIN__C_BATCH;
        for (int taken = 0; dim < rank - 1; dim++, taken++) {
            ein__crole role = ein__conv_plain_role(ctx, z, dim);
            bool unit = role == EIN__C_NONE && s->d[dim] == 1 && !taken;
            if (role != want && !unit) break;
            used[part] |= ein__ix_uses(ctx, z->x->ix[dim]);
            *(part ? &z->c.c : &z->c.n) *= s->d[dim];
        }
        z->plain[part] = dim;
    }
    if (!z->plain[0] || z->plain[1] == z->plain[0] || rank - dim > 3) return false;
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++)
        if (used[0] >> i & 1) z->role[i] = EIN__C_NONE;
    for (; dim < rank; dim++)
        if (!ein__conv_dim(ctx, z, dim, true)) return false;
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++) {
        bool channel = used[1] >> i & 1;
        if (used[0] >> i & 1) z->role[i] = EIN__C_BATCH;
        else if (z->role[i] == EIN__C_BATCH) return false;
        if (z->role[i] == EIN__C_FILTER && channel) return false;
        if ((z->role[i] == EIN__C_IN || z->role[i] == EIN__C_GROUP) && !channel) return false;
    }
    return true;
}

// Appends the slots with a role, or those of the axes (of filters: of their taps).
static int ein__conv_slots(const ein__conv_form *z, ein__crole role, int *slot, int n) {
    bool axes = role == EIN__C_SPACE || role == EIN__C_FILTER;
    const int *of = role == EIN__C_SPACE ? z->space : z->filter;
    for (int a = 0; axes && a < z->c.spatial; a++)
        if (of[a] >= 0) slot[n++] = of[a];
    for (uint32_t i = 0; !axes && i < z->s->nt + z->s->ns; i++)
        if (z->role[i] == role) slot[n++] = (int)i;
    return n;
}

// Slots in the order a dense filter has: [group, out, in, taps] or, with channels last, [group,
// out, taps, in]; transposed, out and in change places.
static int ein__conv_filter_order(const ein__conv_form *z, int *slot) {
    ein__crole out = z->transposed ? EIN__C_IN : EIN__C_OUT,
               in = z->transposed ? EIN__C_OUT : EIN__C_IN;
    int n = ein__conv_slots(z, EIN__C_GROUP, slot, 0);
    n = ein__conv_slots(z, out, slot, n);
    if (!z->c.nhwc) n = ein__conv_slots(z, in, slot, n);
    n = ein__conv_slots(z, EIN__C_FILTER, slot, n);
    return z->c.nhwc ? ein__conv_slots(z, in, slot, n) : n;
}

// Slots in the order a dense result has: [batch, group, out, axes] or, with channels last, [batch,
// axes, group, out].
static int ein__conv_result_order(const ein__conv_form *z, int *slot) {
    int n = ein__conv_slots(z, EIN__C_BATCH, slot, 0);
    if (z->c.nhwc) n = ein__conv_slots(z, EIN__C_SPACE, slot, n);
    n = ein__conv_slots(z, EIN__C_GROUP, slot, n);
    n = ein__conv_slots(z, EIN__C_OUT, slot, n);
    return z->c.nhwc ? n : ein__conv_slots(z, EIN__C_SPACE, slot, n);
}

// Dimensions of the data in the order in which they lie in memory, outermost first.
static void ein__conv_data_order(const ein__conv_form *z, int *dim) {
    int rank = (int)z->x->nix, n = 0;
    for (int k = 0; k < z->plain[0]; k++) dim[n++] = k;
    for (int k = z->plain[1]; k < rank && z->c.nhwc; k++) dim[n++] = k;
    for (int k = z->plain[0]; k < z->plain[1]; k++) dim[n++] = k;
    for (int k = z->plain[1]; k < rank && !z->c.nhwc; k++) dim[n++] = k;
}

// Whether the addresses of `coef` are those of a dense tensor with `slot`s as its dimensions.
static bool ein__dense_in_order(const ein__scope *s, const int64_t *coef, const int *slot, int n) {
    int64_t step = 1;
    for (int k = n; k-- > 0;) {
        if (coef[slot[k]] != step) return false;
        step *= s->n[slot[k]];
    }
    return true;
}

// Dimensions [from, to) of x as one: the product of extents of the iterators with roles `role[]`
// (innermost role first), when the combined index counts them in the scope's order; 0 otherwise.
static int64_t ein__plain_extent(ein_ctx *ctx, const ein__conv_form *z, int from, int to,
                                 const ein__crole *role, int nrole) {
    const ein__shape *s = &ctx->value[z->x->val].shape;
    ein__ix all = ein__ix_const(ctx, 0);
    int64_t step = 1;
    for (int k = from; k < to; k++)
        all = ein__ix_add(ctx, ein__ix_scale(ctx, all, s->d[k]), z->x->ix[k]);
    if (!all.i || ein__ix_get(ctx, all)->c) return 0;
    for (int r = 0; r < nrole; r++)
        for (uint32_t i = z->s->nt + z->s->ns; i-- > 0;) {
            if (z->role[i] != role[r]) continue;
            if (ein__ix_coef(ctx, all, i) != step) return 0;
            step *= z->s->n[i];
        }
    return step;
}

// Whether cuDNN counts all of it: in ints, no tensor of 2^31 elements.
static bool ein__conv_counts(const ein__conv *c) {
    int64_t of[] = {ein__times(c->n, c->c), ein__times(c->n, c->f),
                    ein__times(c->f, c->c / c->group)};
    int64_t most = 0;
    for (int a = 0; a < c->spatial; a++) {
        const int64_t extent[] = {c->in[a], c->out[a], c->k[a]};
        const int64_t steps[] = {c->pad[a], c->stride[a], c->dilation[a]};
        for (int i = 0; i < 3; i++) {
            of[i] = ein__times(of[i], extent[i]);
            most = steps[i] > most ? steps[i] : most;
        }
    }
    for (int i = 0; i < 3; i++) most = of[i] > most ? of[i] : most;
    return most <= INT32_MAX;
}

// Data and result must be dense in the call's order, the channel dimension of x ordered
// group-major.
static bool ein__conv_layouts(ein_ctx *ctx, ein__conv_form *z, const int64_t *out) {
    int slot[EIN__MAX_ITERS], dim[EIN__MAX_RANK], n = ein__conv_result_order(z, slot);
    if (!ein__dense_in_order(z->s, out, slot, n)) return false;
    int64_t have[EIN__MAX_RANK], want[EIN__MAX_RANK];
    const ein__shape *s = &ctx->value[z->x->val].shape;
    ein__strides_of(ctx, (ein__val){z->x->val}, have);
    ein__conv_data_order(z, dim);
    ein__order_strides(s->d, s->rank, dim, want);
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] > 1 && have[k] != want[k]) return false;
    // batch: its iterators in the result's order; channel = group * (c / group) + c
    static const ein__crole batch[] = {EIN__C_BATCH}, channel[] = {EIN__C_IN, EIN__C_GROUP};
    if (ein__plain_extent(ctx, z, 0, z->plain[0], batch, 1) != z->c.n) return false;
    if (ein__plain_extent(ctx, z, z->plain[0], z->plain[1], channel, 2) != z->c.c) return false;
    int64_t groups = 1;
    for (uint32_t i = 0; i < z->s->nt; i++)
        if (z->role[i] == EIN__C_GROUP) groups *= z->s->n[i];
    int64_t f = groups;
    for (uint32_t i = 0; i < z->s->nt; i++)
        if (z->role[i] == EIN__C_OUT) f *= z->s->n[i];
    z->c.group = groups;
    z->c.f = f;
    return ein__conv_counts(&z->c);
}

static bool ein__match_conv_form(ein_ctx *ctx, ein__conv_form *z, const int64_t *out) {
    if (!ein__conv_roles(ctx, z) || !ein__conv_dims(ctx, z)) return false;
    z->c.x = (ein__val){z->x->val};
    z->c.w = (ein__val){z->w->val};
    z->c.math = ein__math_of(ctx, z->c.x, z->c.w);
    return ein__conv_layouts(ctx, z, out);
}

// Convolution forward or backward-data for contraction `s` whose result has strides `out`, its
// tensors with channels in front of the axes (NCHW) or, `nhwc`, behind them. The form may still
// need its filter re-laid (ein__conv_filter_order) and its window checked (ein__conv_sizes).
static bool ein__find_conv_in(ein_ctx *ctx, const ein__scope *s, const int64_t *out, bool nhwc,
                              ein__conv_form *z) {
    const ein__expr *read[2];
    double alpha;
    if (!ein__two_factors(ctx, s, read, &alpha) || alpha != 1) return false;
    if (!ein__alike(ctx, (ein__val){read[0]->val}, (ein__val){read[1]->val})) return false;
    for (int transposed = 0; transposed < 2; transposed++)
        for (int k = 0; k < 2; k++) {
            *z = (ein__conv_form){.s = s, .x = read[k], .w = read[1 - k], .transposed = transposed};
            z->c.nhwc = nhwc;
            if (!ein__inside(ctx, z->w)) continue;
            if (ctx->value[z->x->val].weight_only && !ctx->value[z->w->val].weight_only) continue;
            if (ein__match_conv_form(ctx, z, out)) return true;
        }
    return false;
}

// The same of tensors as they are declared: in NCHW.
static bool ein__find_conv(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                           ein__conv_form *z) {
    return ein__find_conv_in(ctx, s, out, false, z);
}

// Strides of the result of `s` by slot, dense.
static void ein__dense_result(const ein__scope *s, int64_t *out) {
    ein__shape shape = {.rank = (int)s->nt};
    for (uint32_t i = 0; i < s->nt; i++) shape.d[i] = s->n[i];
    ein__dense_strides(&shape, out);
}

// Whether a library computes `s` when all its operands are dense.
EIN__FN bool ein__is_library_form(ein_ctx *ctx, const ein__scope *s) {
    int64_t out[EIN__MAX_RANK];
    ein__conv_form z;
    ein__gemm g;
    ein__dense_result(s, out);
    if (ein__find_conv(ctx, s, out, &z) && ein__conv_sizes(&z)) return true;
    return ein__match_gemm(ctx, s, out, &g);
}

// ------------------------------------------------------------------------------------ bands

// A product whose second operand moves with the row: b is read at m + d * j + c along one dimension
// and nowhere else at m or j. m is a traversal iterator that a has too. G2BMM: j is a dimension of
// the result, the depth p is summed. GBMM: j is summed, and a's, p a dimension of the result that a
// has not. Every other iterator counts batches. Addresses may be any affine ones.
typedef struct ein__band {
    const ein__expr *a, *b;
    double alpha;
    int m, j, p, axis;  // slots; the moving dimension of b
    int64_t d, c;       // d < 0: the band runs backwards
    bool reduced;       // GBMM
    int64_t batch, rows, width, depth;
    ein__factor x, y;  // addresses of a, and of b without the moving dimension, when all is dense
} ein__band;

// Whether dimension `axis` of b is m + d * j + c.
static bool ein__band_axis(ein_ctx *ctx, const ein__scope *s, ein__band *g, int axis) {
    const ein__index *f = ein__ix_get(ctx, g->b->ix[axis]);
    int64_t dense[EIN__MAX_RANK];
    if (f->n != 2 || f->q != 1 || !ein__ix_affine(ctx, g->b->ix[axis])) return false;
    ein__dense_strides(&ctx->value[g->b->val].shape, dense);
    if (!ein__address_but(ctx, g->b, dense, axis, &g->y)) return false;
    for (int k = 0; k < 2; k++) {
        uint32_t m = ein__atom_get(ctx, f->t[k].atom)->slot,
                 j = ein__atom_get(ctx, f->t[1 - k].atom)->slot;
        int64_t d = f->t[1 - k].k;
        if (f->t[k].k != 1 || d > INT32_MAX || d < -INT32_MAX || m >= s->nt || !g->x.coef[m] ||
            g->y.coef[m] || g->y.coef[j])
            continue;
        g->reduced = j >= s->nt;
        if (g->reduced != (g->x.coef[j] != 0)) continue;
        g->m = (int)m;
        g->j = (int)j;
        g->d = d;
        g->c = f->c;
        g->axis = axis;
        return true;
    }
    return false;
}

// GBMM's column is a traversal iterator of b alone, the last such one.
static bool ein__band_sizes(const ein__scope *s, ein__band *g) {
    g->p = g->reduced ? -1 : (int)s->nt;
    for (uint32_t i = 0; g->reduced && i < s->nt; i++)
        if (g->y.coef[i] && !g->x.coef[i]) g->p = (int)i;
    if (g->p < 0) return false;
    g->rows = s->n[g->m];
    g->width = s->n[g->j];
    g->depth = s->n[g->p];
    g->batch = 1;
    for (uint32_t i = 0; i < s->nt; i++)
        if ((int)i != g->m && (int)i != g->j && (int)i != g->p) g->batch *= s->n[i];
    return true;
}

EIN__FN bool ein__match_band(ein_ctx *ctx, const ein__scope *s, ein__band *g) {
    const ein__expr *read[2];
    int64_t dense[EIN__MAX_RANK];
    double alpha;
    if (!ein__two_factors(ctx, s, read, &alpha) || s->ns != 1) return false;
    if (!ein__alike(ctx, (ein__val){read[0]->val}, (ein__val){read[1]->val})) return false;
    for (int k = 0; k < 2; k++) {
        *g = (ein__band){.a = read[k], .b = read[1 - k], .alpha = alpha};
        ein__dense_strides(&ctx->value[g->a->val].shape, dense);
        if (!ein__address(ctx, g->a, dense, &g->x)) continue;
        for (uint32_t i = 0; i < g->b->nix; i++)
            if (ein__band_axis(ctx, s, g, (int)i) && ein__band_sizes(s, g)) return true;
    }
    return false;
}

// How the kernel for a band (templates/band.cu) cuts it up: 16 x 16 threads of rm x rn elements,
// kc terms at a time. A tile takes rows of one residue modulo the dilation, which meet only rows of
// b of one residue, so between the rows of a tile and the `span` places that they reach the product
// is dense, whatever the dilation.
typedef struct ein__band_tile {
    int rm, rn, kc;
    int64_t residues, row_tiles, columns, span, terms;  // columns: tiles across
} ein__band_tile;

enum { EIN__BAND_LARGE = 256, EIN__BAND_DEEP = 64 };  // sizes from which larger tiles pay

EIN__FN ein__band_tile ein__band_tiles(const ein__band *g) {
    ein__band_tile t;
    int64_t d = g->d < 0 ? -g->d : g->d, rows = (g->rows + d - 1) / d;
    bool large = rows >= EIN__BAND_LARGE && g->width >= EIN__BAND_LARGE;
    t.rm = large ? 8 : 4;
    t.rn = large && (!g->reduced || g->depth > EIN__BAND_DEEP) ? 8 : 4;
    t.kc = large ? 8 : 16;
    t.residues = d < g->rows ? d : g->rows;
    t.row_tiles = (rows + 16 * t.rm - 1) / (16 * t.rm);
    t.span = g->width + 16 * t.rm - 1;
    t.columns = ((g->reduced ? g->depth : t.span) + 16 * t.rn - 1) / (16 * t.rn);
    t.terms = g->reduced ? t.span : g->depth;
    return t;
}
