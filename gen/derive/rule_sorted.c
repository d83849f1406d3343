// Rule `sorted`: a product whose weights are looked up for each row, as experts are that a router
// picks for each token,
//     V[p,j] = sum(k) x[p,k] W[e(p),j,k],
// is one of rows that are sorted by their weights, in tiles of M rows that have one in common
// (MegaBlocks, Gale et al. 2023, section 5; here by index forms):
//     Z[t,i,j] = sum(k) x[o(t,i),k] W[E(t),j,k],  V[p,j] = Z[tile(p), line(p), j],
// so that a tile's weights are read once, and not for each of its rows. With rows counted as
// r in 0:R, in blocks of G, key(r) = e(r), and integers throughout,
//     C[b,e] = sum(q) [key(b*G + q) = e],  P[b,e] = sum(c <= b) C[c,e],
//     first(e) = sum(c < e) ceil(P[R/G - 1, c] / M),
//     rank(r) = sum(q < r % G) [key(r - r % G + q) = key(r)],
//     M*tile(r) + line(r) = M*first(key(r)) + P[r/G - 1, key(r)] + rank(r),
//     E(t) = sum(e > 0) [first(e) <= t],
//     o(t,i) = the r of E(t) with P[r/G - 1, E(t)] + rank(r) = (t - first(E(t)))*M + i:
// its block is the number of blocks b with P[b,E(t)] at most that. Lines that no row has compute
// row 0's, which nobody reads. A row whose weight lies outside W has no tile: it is 0, as a product
// of what W gives there. Iterators of rows that are summed over are summed over last.

enum {
    EIN__SORTED_LEAST = 16,       // rows of a tile,
    EIN__SORTED_MOST = 128,       // at least and at most: powers of two
    EIN__SORTED_WEIGHTS = 4096,   // that can be picked
    EIN__SORTED_COUNT = 1 << 22,  // rows: floats tell their lines apart
    EIN__SORTED_FACTORS = 8,      // of a term
    EIN__SORTED_MAPS = 4,         // between a product of sorted rows and the next one
    EIN__SORTED_LAUNCHES = 8      // that one product saves; sorting, for all, takes nine
};

// What rows are sorted by, and what that gives.
typedef struct ein__sorting {
    ein__ex key;  // e, in the iterators of rows: slots 0..n-1
    int n;
    int64_t extent[EIN__MAX_RANK];
    int64_t rows, weights, block, blocks, size, tiles;  // R, how many W has, G, R/G, M, most t
    ein__val keys, before, first, rank;                 // e by r, P, first, rank
    ein__val tile, line, picked, order[EIN__MAX_RANK];  // ..., E, iterators of o
} ein__sorting;

// A product of such rows.
typedef struct ein__picking {
    ein__scope s;      // V
    ein__ex x, w;      // factors of terms; w reads W itself
    ein__ex beside;    // of rows: they are the same for all terms
    uint32_t dim, by;  // of W: the one that is looked up; iterators of rows
    ein__ix place;     // its subscript
} ein__picking;

// ------------------------------------------------------------------------------------ which rows

// The read that factor `e` of `s` is, or a map that is nothing but one.
static ein__ex ein__looked_up(ein_ctx *ctx, const ein__expr *e) {
    ein__val v = {e->val};
    if (!ein__is_map(ctx, v)) return ein__ex_of(ctx, e);
    ein__attempt attempt = ein__try(ctx);
    ein__ex body = ein__rule_inline(ctx, v, e);
    return ein__tried(ctx, attempt) && body.i && ein__ex_get(ctx, body)->op == EIN__X_READ
               ? body
               : ein__ex_of(ctx, e);
}

// Whether `w` is looked up in one dimension, by what its other subscripts have nothing to do with.
static bool ein__picks_weights(ein_ctx *ctx, ein__picking *z) {
    const ein__expr *w = ein__ex_get(ctx, z->w);
    uint32_t others = 0;
    int found = 0;
    for (uint32_t k = 0; k < w->nix; k++) {
        if (!ein__ix_has_gather(ctx, w->ix[k])) {
            others |= ein__ix_uses(ctx, w->ix[k]);
            continue;
        }
        const ein__index *f = ein__ix_get(ctx, w->ix[k]);
        if (f->n != 1 || f->q != 1 || f->t[0].k != 1 ||
            ein__atom_get(ctx, f->t[0].atom)->kind != EIN__GATHER)
            return false;
        z->dim = k;
        z->place = w->ix[k];
        z->by = ein__ix_uses(ctx, w->ix[k]);
        found++;
    }
    return found == 1 && !w->bits && z->by && !(z->by & others);
}

// How rows are counted: in tiles of `size`, and in blocks of about as many as there are blocks.
static void ein__count_sorting(ein__sorting *o, int64_t size) {
    o->size = size;
    o->tiles = (o->rows + ein__least(o->weights, o->rows) * (size - 1)) / size;
    o->block = 1;
    while (o->block * o->block < o->rows) o->block *= 2;
    o->blocks = ein__ceil(o->rows, o->block);
}

// Whether it saves enough to read weights once for each tile.
static bool ein__sorting_pays(ein_ctx *ctx, const ein__picking *z, const ein__sorting *o) {
    ein__val w = {ein__ex_get(ctx, z->w)->val};
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t all = ein__times(ein__elements(&ctx->value[w.i].shape), ein__element_size(ctx, w));
    int64_t each = all / o->weights;
    int64_t saved = ein__times(each, o->rows - o->tiles);
    return o->tiles < o->rows && ein__memory_ps(g, saved, ein__memory_share[0], true) >=
                                     EIN__SORTED_LAUNCHES * ein__launch_ps(g);
}

// The rows' iterators, and the number of a row's weight in them. False: there are too many.
static bool ein__find_rows(ein_ctx *ctx, const ein__picking *z, ein__sorting *o) {
    ein__ix map[EIN__MAX_ITERS];
    int64_t size = EIN__SORTED_LEAST;
    o->rows = ein__extent_of(&z->s, z->by);
    o->weights = ctx->value[ein__ex_get(ctx, z->w)->val].shape.d[z->dim];
    if (o->weights < 2 || o->weights > EIN__SORTED_WEIGHTS || o->rows > EIN__SORTED_COUNT)
        return false;
    while (size < EIN__SORTED_MOST && size * o->weights < o->rows) size *= 2;
    ein__count_sorting(o, size);
    for (uint32_t i = 0; i < z->s.nt + z->s.ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (!(z->by >> i & 1)) continue;
        if (o->n == EIN__MAX_RANK) return false;
        map[i] = ein__ix_iter(ctx, (uint32_t)o->n, z->s.n[i]);
        o->extent[o->n++] = z->s.n[i];
    }
    const ein__index *f = ein__ix_get(ctx, z->place);
    ein__ex key = {ein__atom_get(ctx, f->t[0].atom)->ex};
    key = ein__ex_binary(ctx, EIN__ADD, key, ein__ex_const(ctx, (double)f->c));
    o->key = ein__ex_subst(ctx, key, map, (int)(z->s.nt + z->s.ns));
    return o->key.i != 0;
}

// The factors of product `ex`. False: they are too many.
static bool ein__list_picking(ein_ctx *ctx, ein__ex ex, ein__ex *factor, int *n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__list_picking(ctx, e->kid[0], factor, n) &&
               ein__list_picking(ctx, e->kid[1], factor, n);
    if (*n == EIN__SORTED_FACTORS) return false;
    factor[(*n)++] = ex;
    return true;
}

// The factors beside number `k` of `n`: z->x, and in z->beside those that are the same for all
// terms of a row.
static void ein__split_picking(ein_ctx *ctx, const ein__ex *factor, int n, int k, ein__picking *z) {
    uint32_t terms = ~z->by & ~0u << z->s.nt;
    z->x = z->beside = ein__ex_const(ctx, 1);
    for (int i = 0; i < n; i++) {
        ein__ex *part = ein__ex_uses(ctx, factor[i]) & terms ? &z->x : &z->beside;
        if (i != k) *part = ein__ex_binary(ctx, EIN__MUL, *part, factor[i]);
    }
}

// Whether `v` is a sum of products with such weights.
static bool ein__find_picking(ein_ctx *ctx, ein__val v, ein__picking *z, ein__sorting *o) {
    ein__ex factor[EIN__SORTED_FACTORS];
    int n = 0;
    z->s = *ein__scope_of(ctx, v);
    if (z->s.reduce != EIN__R_SUM || z->s.nt + z->s.ns + 2 > EIN__MAX_ITERS ||
        !ein__list_picking(ctx, z->s.body, factor, &n))
        return false;
    for (int k = 0; k < n; k++) {
        if (ein__ex_get(ctx, factor[k])->op != EIN__X_READ) continue;
        z->w = ein__looked_up(ctx, ein__ex_get(ctx, factor[k]));
        if (!ein__picks_weights(ctx, z)) continue;
        ein__split_picking(ctx, factor, n, k, z);
        if (z->x.i && z->beside.i && (ein__ex_uses(ctx, z->x) & z->by))
            return ein__find_rows(ctx, z, o);
    }
    return false;
}

// ------------------------------------------------------------------------------------ the order

// An integer value of the sorting, over as many dimensions as `s` has.
static ein__val ein__sorting_value(ein__pass *z, const ein__scope *s, const char *part) {
    ein_ctx *ctx = z->ctx;
    const char *name = ein__namef(ctx, "%s.%s", ctx->value[z->self.i].name, part);
    ein__val v = ein__pass_value(z, name, z->self, EIN__I32, s);
    if (v.i) ctx->value[v.i].why = ein__rules[EIN__RULE_SORTED].what;
    return v;
}

static ein__ex ein__sorting_read(ein_ctx *ctx, ein__val v, double pad, ein__ix i, ein__ix j) {
    ein__ix at[2] = {i, j};
    return ein__ex_read(ctx, v, pad, at, ctx->value[v.i].shape.rank);
}

static ein__ex ein__equal(ein_ctx *ctx, ein__ex a, ein__ex b, ein__ex then) {
    return ein__ex_select(ctx, EIN__EQ, a, b, then, ein__ex_const(ctx, 0));
}

// e by r: none is negative behind the last row.
static ein__val ein__sorting_keys(ein__pass *z, const ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__ix at[EIN__MAX_RANK], r = ein__ix_iter(ctx, 0, o->rows);
    int64_t below = 1;
    for (int k = o->n; k-- > 0; below *= o->extent[k])
        at[k] = ein__ix_mod(ctx, ein__ix_floordiv(ctx, r, below), o->extent[k]);
    ein__scope s = {.nt = 1, .n = {o->rows}, .body = ein__ex_subst(ctx, o->key, at, o->n)};
    return ein__sorting_value(z, &s, "keys");
}

// P, of C.
static ein__val ein__sorting_before(ein__pass *z, const ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.reduce = EIN__R_SUM, .nt = 2, .ns = 1, .n = {o->blocks, o->weights, o->block}};
    ein__ix b = ein__ix_iter(ctx, 0, o->blocks), e = ein__ix_iter(ctx, 1, o->weights);
    ein__ix at = ein__ix_scale(ctx, b, o->block);
    at = ein__ix_add(ctx, at, ein__ix_iter(ctx, 2, o->block));
    s.body = ein__equal(ctx, ein__sorting_read(ctx, o->keys, -1, at, e), ein__ex_idx(ctx, e),
                        ein__ex_const(ctx, 1));
    ein__val count = ein__sorting_value(z, &s, "count");
    if (!count.i) return count;
    s.n[2] = o->blocks;
    ein__ix c = ein__ix_iter(ctx, 2, o->blocks);
    s.body = ein__ex_when(ctx, ein__ix_sub(ctx, b, c), o->blocks, false,
                          ein__sorting_read(ctx, count, 0, c, e));
    return ein__sorting_value(z, &s, "before");
}

static ein__val ein__sorting_first(ein__pass *z, const ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.reduce = EIN__R_SUM, .nt = 1, .ns = 1, .n = {o->weights, o->weights}};
    ein__ix e = ein__ix_iter(ctx, 0, o->weights), c = ein__ix_iter(ctx, 1, o->weights);
    ein__ex all = ein__sorting_read(ctx, o->before, 0, ein__ix_const(ctx, o->blocks - 1), c);
    all = ein__ex_binary(ctx, EIN__ADD, all, ein__ex_const(ctx, (double)(o->size - 1)));
    all = ein__ex_binary(ctx, EIN__QUOT, all, ein__ex_const(ctx, (double)o->size));
    ein__ix behind = ein__ix_addc(ctx, ein__ix_sub(ctx, e, c), -1);
    s.body = ein__ex_when(ctx, behind, o->weights, false, all);
    return ein__sorting_value(z, &s, "first");
}

static ein__val ein__sorting_rank(ein__pass *z, const ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.reduce = EIN__R_SUM, .nt = 1, .ns = 1, .n = {o->rows, o->block}};
    ein__ix r = ein__ix_iter(ctx, 0, o->rows), q = ein__ix_iter(ctx, 1, o->block);
    ein__ix at = ein__ix_scale(ctx, ein__ix_floordiv(ctx, r, o->block), o->block);
    ein__ex other = ein__sorting_read(ctx, o->keys, -1, ein__ix_add(ctx, at, q), q);
    ein__ex same =
        ein__equal(ctx, other, ein__sorting_read(ctx, o->keys, -1, r, r), ein__ex_const(ctx, 1));
    ein__ix behind = ein__ix_sub(ctx, ein__ix_mod(ctx, r, o->block), q);
    s.body = ein__ex_when(ctx, ein__ix_addc(ctx, behind, -1), o->block, false, same);
    return ein__sorting_value(z, &s, "rank");
}

// P[r/G - 1, e], of block `b` = r/G.
static ein__ex ein__sorted_before(ein_ctx *ctx, const ein__sorting *o, ein__ix b, ein__ix e) {
    return ein__sorting_read(ctx, o->before, 0, ein__ix_addc(ctx, b, -1), e);
}

// tile or line by the iterators of rows; -1 for a row that has none.
static ein__val ein__sorting_place(ein__pass *z, const ein__sorting *o, bool tile) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.nt = (uint32_t)o->n};
    ein__ix r = ein__ix_const(ctx, 0);
    for (int k = 0; k < o->n; k++) {
        s.n[k] = o->extent[k];
        r = ein__ix_add(ctx, ein__ix_scale(ctx, r, s.n[k]), ein__ix_iter(ctx, (uint32_t)k, s.n[k]));
    }
    ein__ex none = ein__ex_const(ctx, -1), size = ein__ex_const(ctx, (double)o->size);
    ein__ex key = ein__sorting_read(ctx, o->keys, -1, r, r);
    ein__ix e = ein__ix_gather(ctx, key);
    ein__ex at = ein__ex_binary(ctx, EIN__MUL, ein__sorting_read(ctx, o->first, 0, e, e), size);
    at = ein__ex_binary(ctx, EIN__ADD, at,
                        ein__sorted_before(ctx, o, ein__ix_floordiv(ctx, r, o->block), e));
    at = ein__ex_binary(ctx, EIN__ADD, at, ein__sorting_read(ctx, o->rank, 0, r, r));
    at = ein__ex_binary(ctx, tile ? EIN__QUOT : EIN__REM, at, size);
    at = ein__ex_select(ctx, EIN__LT, key, ein__ex_const(ctx, (double)o->weights), at, none);
    s.body = ein__ex_select(ctx, EIN__LT, key, ein__ex_const(ctx, 0), none, at);
    return ein__sorting_value(z, &s, tile ? "tile" : "line");
}

static ein__val ein__sorting_picked(ein__pass *z, const ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.reduce = EIN__R_SUM, .nt = 1, .ns = 1, .n = {o->tiles, o->weights - 1}};
    ein__ix t = ein__ix_iter(ctx, 0, o->tiles);
    ein__ix e = ein__ix_addc(ctx, ein__ix_iter(ctx, 1, o->weights - 1), 1);
    s.body = ein__ex_select(ctx, EIN__LE, ein__sorting_read(ctx, o->first, 0, e, e),
                            ein__ex_idx(ctx, t), ein__ex_const(ctx, 1), ein__ex_const(ctx, 0));
    return ein__sorting_value(z, &s, "picked");
}

// The number of the row in line (t,i); 0: there is none.
static ein__val ein__sorting_row(ein__pass *z, const ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.reduce = EIN__R_SUM, .nt = 2, .ns = 1, .n = {o->tiles, o->size, o->blocks}};
    ein__ix t = ein__ix_iter(ctx, 0, o->tiles), i = ein__ix_iter(ctx, 1, o->size);
    ein__ix c = ein__ix_iter(ctx, 2, o->blocks);
    ein__ex picked = ein__sorting_read(ctx, o->picked, 0, t, t);
    ein__ix e = ein__ix_gather(ctx, picked);
    ein__ex at = ein__ex_binary(ctx, EIN__SUB, ein__ex_idx(ctx, t),
                                ein__sorting_read(ctx, o->first, 0, e, e));
    at = ein__ex_binary(ctx, EIN__MUL, at, ein__ex_const(ctx, (double)o->size));
    at = ein__ex_binary(ctx, EIN__ADD, at, ein__ex_idx(ctx, i));
    s.body = ein__ex_select(ctx, EIN__LE, ein__sorting_read(ctx, o->before, 0, c, e), at,
                            ein__ex_const(ctx, 1), ein__ex_const(ctx, 0));
    ein__val block = ein__sorting_value(z, &s, "block");
    if (!block.i) return block;
    s.n[2] = o->block;
    ein__ix b = ein__ix_gather(ctx, ein__sorting_read(ctx, block, 0, t, i));
    ein__ix r = ein__ix_scale(ctx, b, o->block);
    r = ein__ix_add(ctx, r, ein__ix_iter(ctx, 2, o->block));
    ein__ex rank = ein__ex_binary(ctx, EIN__ADD, ein__sorting_read(ctx, o->rank, 0, r, r),
                                  ein__sorted_before(ctx, o, b, e));
    s.body = ein__equal(ctx, ein__sorting_read(ctx, o->keys, -1, r, r), picked,
                        ein__equal(ctx, rank, at, ein__ex_idx(ctx, r)));
    return ein__sorting_value(z, &s, "row");
}

// What the numbers of the rows in lines are by the iterators of rows.
static bool ein__sorting_order(ein__pass *z, ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    ein__val row = ein__sorting_row(z, o);
    if (!row.i) return false;
    ein__scope s = {.nt = 2, .n = {o->tiles, o->size}};
    ein__ix t = ein__ix_iter(ctx, 0, o->tiles), i = ein__ix_iter(ctx, 1, o->size);
    int64_t below = 1;
    for (int k = o->n; k-- > 0; below *= o->extent[k]) {
        s.body = ein__sorting_read(ctx, row, 0, t, i);
        if (below > 1)
            s.body = ein__ex_binary(ctx, EIN__QUOT, s.body, ein__ex_const(ctx, (double)below));
        if (k)
            s.body =
                ein__ex_binary(ctx, EIN__REM, s.body, ein__ex_const(ctx, (double)o->extent[k]));
        o->order[k] = o->n == 1 ? row : ein__sorting_value(z, &s, ein__namef(ctx, "order%d", k));
        if (!o->order[k].i) return false;
    }
    return true;
}

static bool ein__sort(ein__pass *z, ein__sorting *o) {
    return (o->keys = ein__sorting_keys(z, o)).i && (o->before = ein__sorting_before(z, o)).i &&
           (o->first = ein__sorting_first(z, o)).i && (o->rank = ein__sorting_rank(z, o)).i &&
           (o->tile = ein__sorting_place(z, o, true)).i &&
           (o->line = ein__sorting_place(z, o, false)).i &&
           (o->picked = ein__sorting_picked(z, o)).i && ein__sorting_order(z, o);
}

// ------------------------------------------------------------------------------------ the product

// What is put in for rows that are sorted already: where they stand.
typedef struct ein__resorting {
    ein__ix tile, line;          // by the iterators of rows
    ein__ix in_tiles, in_lines;  // iterators that stand for t and i
    bool any;                    // has been put in
    int depth;                   // maps that are looked into
} ein__resorting;

static ein__ex ein__resorted_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__resorting *r = user, inner = *r;
    ein__expr e = *ein__ex_get(ctx, ex);
    bool stands = false;
    for (uint32_t k = 0; k < e.nix; k++) {
        bool tile = e.ix[k].i == r->tile.i, line = e.ix[k].i == r->line.i;
        if (tile || line) e.ix[k] = tile ? r->in_tiles : r->in_lines;
        stands |= tile || line;
    }
    r->any |= stands;
    if (stands) return ein__ex_read(ctx, (ein__val){e.val}, ein__f64_of(e.bits), e.ix, (int)e.nix);
    if (!ein__is_map(ctx, (ein__val){e.val}) || r->depth == EIN__SORTED_MAPS) return ex;
    ein__attempt attempt = ein__try(ctx);
    inner.any = false;
    inner.depth++;
    ein__ex body = ein__rule_inline(ctx, (ein__val){e.val}, &e);
    if (body.i && ein__ex_size(ctx, body) <= EIN__MAX_INLINE)
        body = ein__ex_replace_reads(ctx, body, ein__resorted_read, &inner);
    bool found = ein__tried(ctx, attempt) && body.i && inner.any;
    r->any |= found;
    return found ? body : ex;
}

// `ex`, of V's iterators, where what it reads of sorted rows, V[p] = Z[tile(p), line(p)], is read
// as it lies: iterators behind V's stand for t and i.
static ein__ex ein__resorted(ein_ctx *ctx, const ein__picking *p, const ein__sorting *o,
                             ein__ex ex) {
    const ein__scope *s = &p->s;
    uint32_t behind = s->nt + s->ns, n = 0;
    ein__ix row[EIN__MAX_RANK];
    for (uint32_t i = 0; i < behind; i++)
        if (p->by >> i & 1) row[n++] = ein__ix_iter(ctx, i, s->n[i]);
    ein__resorting r = {ein__ix_gather(ctx, ein__ex_read(ctx, o->tile, 0, row, o->n)),
                        ein__ix_gather(ctx, ein__ex_read(ctx, o->line, 0, row, o->n)),
                        ein__ix_iter(ctx, behind, o->tiles),
                        ein__ix_iter(ctx, behind + 1, o->size),
                        false,
                        0};
    return ein__ex_replace_reads(ctx, ex, ein__resorted_read, &r);
}

// A factor of V as value `name` by tiles, lines where it has rows, and the other iterators of V
// that it uses; the read of it in Z's iterators, which `at` has.
static ein__ex ein__sorted_factor(ein__pass *z, const ein__picking *p, const ein__sorting *o,
                                  bool rows, const ein__ix *at) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = &p->s;
    ein__scope t = {.nt = 1, .n = {o->tiles}};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK] = {ein__ix_iter(ctx, 0, o->tiles)};
    ein__ix tile = back[0], line = ein__ix_iter(ctx, 1, o->size);
    ein__ex ex = rows ? ein__resorted(ctx, p, o, p->x) : p->w;
    if (!ex.i) return ex;
    if (rows) t.n[t.nt] = o->size, back[t.nt++] = line;
    for (uint32_t i = 0, k = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (p->by >> i & 1) {
            if (rows)
                map[i] = ein__ix_gather(ctx, ein__sorting_read(ctx, o->order[k], 0, tile, line));
            k++;
        } else if (ein__ex_uses(ctx, ex) >> i & 1) {
            if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
            map[i] = ein__ix_iter(ctx, t.nt, s->n[i]);
            back[t.nt] = at[i];
            t.n[t.nt++] = s->n[i];
        }
    }
    map[s->nt + s->ns] = tile;
    map[s->nt + s->ns + 1] = line;
    t.body = ein__ex_subst(ctx, ex, map, (int)(s->nt + s->ns) + 2);
    if (!t.body.i) return t.body;
    ein__dtype type = EIN__F32;
    if (!rows) {
        ein__expr e = *ein__ex_get(ctx, t.body);
        e.ix[p->dim] = ein__ix_gather(ctx, ein__sorting_read(ctx, o->picked, 0, tile, tile));
        t.body = ein__ex_read(ctx, (ein__val){e.val}, 0, e.ix, (int)e.nix);
        type = ctx->value[e.val].dtype;
    }
    const char *name = ein__namef(ctx, "%s.%s", ctx->value[z->self.i].name, rows ? "rows" : "each");
    ein__val v = ein__pass_value(z, name, z->self, type, &t);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// V from Z.
static ein__val ein__unsorted(ein__pass *z, ein__val v, const ein__picking *p,
                              const ein__sorting *o, ein__val sorted) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = &p->s;
    ein__scope t = {.nt = s->nt};
    ein__ix at[EIN__MAX_RANK], row[EIN__MAX_RANK], map[EIN__MAX_ITERS];
    uint32_t n = 2, rows = 0;
    memcpy(t.n, s->n, s->nt * sizeof *s->n);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool by = p->by >> i & 1;
        map[i] = ein__ix_const(ctx, 0);
        if (i >= s->nt && !by) continue;
        if (i >= s->nt) t.n[t.nt + t.ns] = s->n[i], t.reduce = EIN__R_SUM;
        ein__ix it = ein__ix_iter(ctx, i < s->nt ? i : t.nt + t.ns++, s->n[i]);
        map[i] = it;
        if (by) row[rows++] = it;
        else at[n++] = it;
    }
    at[0] = ein__ix_gather(ctx, ein__ex_read(ctx, o->tile, 0, row, o->n));
    at[1] = ein__ix_gather(ctx, ein__ex_read(ctx, o->line, 0, row, o->n));
    t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, sorted, 0, at, (int)n),
                            ein__ex_subst(ctx, p->beside, map, (int)(s->nt + s->ns)));
    return t.body.i ? ein__with_scope(ctx, v, &t) : (ein__val){0};
}

static ein__val ein__sorted_product(ein__pass *z, ein__val v, const ein__picking *p,
                                    ein__sorting *o) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = &p->s;
    ein__scope t = {.reduce = EIN__R_SUM};
    ein__ix at[EIN__MAX_ITERS], unused;
    z->self = v;
    if (!ein__sort(z, o) || !ein__new_slot(&t, false, ctx, o->tiles, &unused) ||
        !ein__new_slot(&t, false, ctx, o->size, &unused))
        return (ein__val){0};
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (!(p->by >> i & 1) && !ein__new_slot(&t, i >= s->nt, ctx, s->n[i], &at[i]))
            return (ein__val){0};
    if (!t.ns) return (ein__val){0};
    ein__ex x = ein__sorted_factor(z, p, o, true, at);
    ein__ex w = x.i ? ein__sorted_factor(z, p, o, false, at) : (ein__ex){0};
    t.body = w.i ? ein__ex_binary(ctx, EIN__MUL, x, w) : w;
    if (!t.body.i) return (ein__val){0};
    const char *name = ein__namef(ctx, "%s.sorted", ctx->value[v.i].name);
    ein__val made = ein__pass_value(z, name, v, EIN__F32, &t);
    if (!made.i) return made;
    ctx->value[made.i].why = ein__rules[EIN__RULE_SORTED].what;
    return ein__unsorted(z, v, p, o, made);
}

static ein__val ein__rebuild_sorted(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__picking p;
    ein__sorting o = {.n = 0};
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    ein__val is = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!is.i || ctx->value[is.i].weight_only || !ein__find_picking(ctx, is, &p, &o) ||
        !ein__sorting_pays(ctx, &p, &o))
        return is;
    ein__attempt attempt = ein__try(ctx);
    ein__val made = ein__sorted_product(z, is, &p, &o);
    return ein__tried(ctx, attempt) && made.i ? made : is;
}

// Sorts rows of products by the weights that are looked up for them, in the program under `root`.
EIN__FN bool ein__sort_rows(ein_ctx *ctx, ein__val *root, int nroot) {
    bool changed;
    return !ein__rule_on(ctx, EIN__RULE_SORTED) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_sorted, NULL, &changed);
}
