// Basis change: a window sum of few taps is a product of polynomials, which interpolation computes
// with fewer multiplications: Toom and Cook's construction, known as Winograd's minimal filtering
// (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", section 4).
//
//   V[..,x] = sum(c,y) d[.., x + y + a] g[.., y], y of extent r, tiles x = m X + row, t = m + r -
//   1:
//     U[i,..]    = sum(y) G[i,y] g[.., y]                    weight-only: made at load
//     D[i,..,X]  = sum(u) Bt[i,u] d[.., m X + u + a]
//     M[i,..,X]  = sum(c) U[i,..] D[i,..,X]                  a batched GEMM
//     V[..,x]    = sum(i) At[x mod m, i] M[i,.., x / m]
//
// with one i, u per window axis. It adds up what cancels only in exact arithmetic: finite operands
// alone, and float results lose some digits (F(4,3) on two axes: 3 to 4 times a direct sum's
// error).

// The matrices of F(m, r). At and Bt are integers; row i of G is an integer row over `den[i]`.
typedef struct ein__toom {
    int m, r, t;
    int64_t at[EIN__TABLE_EXTENT][EIN__TABLE_EXTENT], g[EIN__TABLE_EXTENT][EIN__TABLE_EXTENT];
    int64_t bt[EIN__TABLE_EXTENT][EIN__TABLE_EXTENT], den[EIN__TABLE_EXTENT];
} ein__toom;

// Interpolation points a / b, the last one at infinity. Small ones, reciprocals and signs mixed,
// keep rounding low: 1/2, -2 rather than 2, -2 halves the error of F(4,3).
typedef struct ein__toom_point {
    int64_t a, b;
} ein__toom_point;

enum { EIN__POINTS = 6 };

static ein__toom_point ein__point_at(int i, int t) {
    static const ein__toom_point finite[EIN__POINTS - 1] = {
        {0, 1}, {1, 1}, {-1, 1}, {1, 2}, {-2, 1}};
    return i + 1 < t ? finite[i] : (ein__toom_point){1, 0};
}

static int64_t ein__ipow(int64_t a, int n) {
    int64_t p = 1;
    for (; n > 0; n--) p *= a;
    return p;
}

// Homogeneous interpolation at points (a_i : b_i), transposed: with N_i = prod(j != i) (b_j x - a_j
// y), row i of Bt is N_i's coefficients, G evaluates the filter and divides by N_i(a_i, b_i), At
// evaluates powers. Infinity is (1 : 0) and no special case. With at most EIN__POINTS points no
// number exceeds a few hundreds. False: more points are needed than there are.
EIN__FN bool ein__toom_cook(int m, int r, ein__toom *z) {
    *z = (ein__toom){.m = m, .r = r, .t = m + r - 1};
    if (m < 1 || r < 1 || z->t > EIN__POINTS || z->t < 2) return false;
    for (int i = 0; i < z->t; i++) {
        ein__toom_point p = ein__point_at(i, z->t);
        int64_t *n = z->bt[i], den = 1;
        int degree = 0;
        n[0] = 1;
        for (int j = 0; j < z->t; j++) {
            ein__toom_point q = ein__point_at(j, z->t);
            if (j == i) continue;
            den *= q.b * p.a - q.a * p.b;
            n[++degree] = 0;
            for (int k = degree; k >= 0; k--)
                n[k] = (k ? q.b * n[k - 1] : 0) - (k < degree ? q.a * n[k] : 0);
        }
        for (int k = 0; k < m; k++) z->at[k][i] = ein__ipow(p.a, k) * ein__ipow(p.b, m - 1 - k);
        for (int k = 0; k < r; k++) z->g[i][k] = ein__ipow(p.a, k) * ein__ipow(p.b, r - 1 - k);
        // The sign goes to Bt.
        for (int k = 0; den < 0 && k < z->t; k++) n[k] = -n[k];
        z->den[i] = den < 0 ? -den : den;
    }
    return true;
}

// ------------------------------------------------------------------------------------ tables

// A constant matrix as a value: one guarded term per entry, rows divided by `den` (or none). The
// division is left to run time, so that it is exact modulo 2^61-1.
static ein__val ein__basis_table(ein__deriver *z, int rows, int cols,
                                 int64_t (*entry)[EIN__TABLE_EXTENT], const int64_t *den,
                                 const char *suffix, int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    ein__scope s = {.reduce = EIN__R_NONE, .nt = 2, .n = {rows, cols}};
    ein__ix i = ein__ix_iter(ctx, 0, rows), k = ein__ix_iter(ctx, 1, cols);
    s.body = ein__ex_const(ctx, 0);
    for (int a = 0; a < rows; a++) {
        ein__ex row = ein__ex_const(ctx, 0);
        for (int b = 0; b < cols; b++) {
            if (!entry[a][b]) continue;
            ein__ex v = ein__ex_const(ctx, (double)entry[a][b]);
            v = ein__ex_when(ctx, ein__ix_addc(ctx, k, -b), 1, false, v);
            row = ein__ex_binary(ctx, EIN__ADD, row, v);
        }
        if (den) row = ein__ex_binary(ctx, EIN__DIV, row, ein__ex_const(ctx, (double)den[a]));
        row = ein__ex_when(ctx, ein__ix_addc(ctx, i, -a), 1, false, row);
        s.body = ein__ex_binary(ctx, EIN__ADD, s.body, row);
    }
    return s.body.i ? ein__class_of(z, &s, suffix, from, rule, EIN__INNER) : (ein__val){0};
}

// ------------------------------------------------------------------------------------ the form

typedef struct ein__sliding {
    uint32_t x, y;   // traversal and summation slot
    ein__toom toom;  // F(m, extent of y)
    ein__val at, g, bt;
} ein__sliding;

typedef struct ein__slidings {
    const ein__scope *s;
    const ein__expr *data, *filter;
    double alpha;
    int n;
    ein__sliding w[3];
    uint32_t x, y;  // masks of the windows' slots
    uint32_t in_data, in_filter;
} ein__slidings;

// Whether form `f` is x + y + e, x traversal and y summed, and e of what the filter depends on too,
// as of phases.
static bool ein__is_window(const ein_ctx *ctx, const ein__slidings *z, const ein__index *f,
                           ein__sliding *w) {
    int x = 0, y = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__ITER) return false;
        bool sum = a->slot >= z->s->nt;
        if (!sum && z->in_filter >> a->slot & 1) continue;
        if (f->t[i].k != 1) return false;
        *(sum ? &w->y : &w->x) = a->slot;
        *(sum ? &y : &x) += 1;
    }
    return f->q == 1 && x == 1 && y == 1;
}

// Finds the windows of the data factor. False when there are none, when another form mixes
// traversal and summation, or when no channel is left to sum.
static bool ein__find_windows(const ein_ctx *ctx, ein__slidings *z) {
    const ein__scope *s = z->s;
    uint32_t all = (1u << (s->nt + s->ns)) - 1, sums = all & ~((1u << s->nt) - 1), one = 0;
    z->in_data = ein__read_uses(ctx, z->data);
    z->in_filter = ein__read_uses(ctx, z->filter);
    for (uint32_t k = 0; k < z->data->nix; k++) {
        ein__sliding w;
        uint32_t uses = ein__ix_uses(ctx, z->data->ix[k]);
        bool window = ein__is_window(ctx, z, ein__ix_get(ctx, z->data->ix[k]), &w);
        if (ein__ix_has_gather(ctx, z->data->ix[k]) || uses & (z->x | z->y)) return false;
        if (!window && uses & sums && uses & ~sums) return false;
        if (!window) continue;
        if (z->n == 3) return false;
        z->w[z->n++] = w;
        z->x |= 1u << w.x;
        z->y |= 1u << w.y;
        // The dimensions before must not have known them either.
        for (uint32_t j = 0; j < k; j++)
            if (ein__ix_uses(ctx, z->data->ix[j]) & uses) return false;
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (s->n[i] == 1) one |= 1u << i;
    uint32_t channels = sums & ~z->y & ~one;
    return z->n && !(z->in_filter & z->x) && !(z->y & ~z->in_filter) && channels &&
           !(channels & ~(z->in_data & z->in_filter)) &&
           !(all & ~one & ~(z->in_data | z->in_filter));
}

// ------------------------------------------------------------------------------------ the values

// Groups of iterators, by the factors they occur in; a window's iterator counts as its tiles.
static uint32_t ein__batch_slots(const ein__slidings *w) {
    return w->in_data & w->in_filter & ((1u << w->s->nt) - 1);
}

static uint32_t ein__channel_slots(const ein__slidings *w) {
    return w->in_data & w->in_filter & ~w->y & ~((1u << w->s->nt) - 1);
}

static uint32_t ein__filter_slots(const ein__slidings *w) { return w->in_filter & ~w->in_data; }

static uint32_t ein__data_slots(const ein__slidings *w) { return w->in_data & ~w->in_filter; }

static const ein__sliding *ein__sliding_of(const ein__slidings *w, uint32_t slot) {
    for (int k = 0; k < w->n; k++)
        if (w->w[k].x == slot) return &w->w[k];
    return NULL;
}

static int64_t ein__slot_extent(const ein__slidings *w, uint32_t slot) {
    const ein__sliding *v = ein__sliding_of(w, slot);
    return v ? (w->s->n[slot] + v->toom.m - 1) / v->toom.m : w->s->n[slot];
}

// A new value: a row per window first, then iterators by group.
typedef struct ein__layer {
    ein__scope s;
    ein__ix map[EIN__MAX_ITERS];  // by old slot, in the new ones; of a window: the tile
} ein__layer;

static ein__ix ein__layer_add(ein_ctx *ctx, ein__layer *l, int64_t n, bool sum) {
    uint32_t slot = l->s.nt + l->s.ns;
    if (slot == EIN__MAX_ITERS || (!sum && slot == EIN__MAX_RANK)) return ein__ix_overflow(ctx);
    l->s.n[slot] = n;
    if (sum) l->s.ns++;
    else l->s.nt++;
    return ein__ix_iter(ctx, slot, n);
}

static void ein__layer_slots(ein_ctx *ctx, ein__layer *l, const ein__slidings *w, uint32_t mask,
                             bool sum) {
    for (uint32_t i = 0; i < w->s->nt + w->s->ns; i++)
        if ((mask >> i & 1) && ein__slot_extent(w, i) > 1)
            l->map[i] = ein__layer_add(ctx, l, ein__slot_extent(w, i), sum);
}

static ein__layer ein__layer_of(ein_ctx *ctx, const ein__slidings *w) {
    ein__layer l = {.s = {.reduce = EIN__R_SUM}};
    for (uint32_t i = 0; i < w->s->nt + w->s->ns; i++) l.map[i] = ein__ix_const(ctx, 0);
    for (int k = 0; k < w->n; k++) ein__layer_add(ctx, &l, w->w[k].toom.t, false);
    return l;
}

// sum prod table[row_k, sum_k] * operand; the sums are the layer's last slots.
static ein__val ein__transformed(ein__deriver *z, ein__layer *l, const ein__slidings *w,
                                 bool filter, int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *r = filter ? w->filter : w->data;
    ein__scope *t = &l->s;
    for (int k = 0; k < w->n; k++) {
        const ein__toom *f = &w->w[k].toom;
        l->map[w->w[k].x] = ein__ix_scale(ctx, l->map[w->w[k].x], f->m);
        l->map[w->w[k].y] = ein__layer_add(ctx, l, filter ? f->r : f->t, true);
    }
    t->body = ein__ex_subst(ctx, ein__ex_of(ctx, r), l->map, (int)(w->s->nt + w->s->ns));
    for (int k = 0; k < w->n; k++) {
        const ein__sliding *v = &w->w[k];
        ein__ix at[2] = {ein__ix_iter(ctx, (uint32_t)k, t->n[k]), l->map[v->y]};
        t->body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, filter ? v->g : v->bt, 0, at, 2),
                                 t->body);
    }
    if (!t->body.i) return (ein__val){0};
    return ein__class_of(z, t, filter ? "filter" : "data", from, rule, EIN__INNER);
}

static ein__val ein__basis_filter(ein__deriver *z, const ein__slidings *w, int from,
                                  const char *rule) {
    ein__layer l = ein__layer_of(z->ctx, w);
    ein__layer_slots(z->ctx, &l, w, ein__batch_slots(w), false);
    ein__layer_slots(z->ctx, &l, w, ein__filter_slots(w), false);
    ein__layer_slots(z->ctx, &l, w, ein__channel_slots(w), false);
    return ein__transformed(z, &l, w, true, from, rule);
}

static ein__val ein__basis_data(ein__deriver *z, const ein__slidings *w, int from,
                                const char *rule) {
    ein__layer l = ein__layer_of(z->ctx, w);
    ein__layer_slots(z->ctx, &l, w, ein__batch_slots(w), false);
    ein__layer_slots(z->ctx, &l, w, ein__channel_slots(w), false);
    ein__layer_slots(z->ctx, &l, w, ein__data_slots(w), false);
    return ein__transformed(z, &l, w, false, from, rule);
}

// The read of a value whose dimensions are rows, then three groups of slots, at `row` and `map`.
static ein__ex ein__layer_read(ein_ctx *ctx, const ein__slidings *w, ein__val v, const ein__ix *row,
                               const ein__ix *map, const uint32_t *group) {
    ein__ix ix[EIN__MAX_RANK];
    int n = 0;
    for (int k = 0; k < w->n; k++) ix[n++] = row[k];
    for (int g = 0; g < 3; g++)
        for (uint32_t i = 0; i < w->s->nt + w->s->ns; i++)
            if ((group[g] >> i & 1) && ein__slot_extent(w, i) > 1 && n < EIN__MAX_RANK)
                ix[n++] = map[i];
    return ein__ex_read(ctx, v, 0, ix, n);
}

// M: the product, with the channels summed.
static ein__val ein__basis_product(ein__deriver *z, const ein__slidings *w, ein__val u, ein__val d,
                                   int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    const uint32_t batch = ein__batch_slots(w), channel = ein__channel_slots(w);
    const uint32_t of_u[] = {batch, ein__filter_slots(w), channel};
    const uint32_t of_d[] = {batch, channel, ein__data_slots(w)};
    ein__ix row[3];
    ein__layer l = ein__layer_of(ctx, w);
    for (int k = 0; k < w->n; k++) row[k] = ein__ix_iter(ctx, (uint32_t)k, w->w[k].toom.t);
    ein__layer_slots(ctx, &l, w, batch, false);
    ein__layer_slots(ctx, &l, w, ein__filter_slots(w), false);
    ein__layer_slots(ctx, &l, w, ein__data_slots(w), false);
    ein__layer_slots(ctx, &l, w, channel, true);
    if (ctx->status) return (ein__val){0};
    l.s.body = ein__ex_binary(ctx, EIN__MUL, ein__layer_read(ctx, w, u, row, l.map, of_u),
                              ein__layer_read(ctx, w, d, row, l.map, of_d));
    if (w->alpha != 1)
        l.s.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, w->alpha), l.s.body);
    return l.s.body.i ? ein__class_of(z, &l.s, "product", from, rule, EIN__FORMED) : (ein__val){0};
}

// V: back to the old basis, tiles side by side.
static bool ein__basis_result(ein__deriver *z, const ein__slidings *w, ein__val m, ein__scope *t) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = w->s;
    const uint32_t group[] = {ein__batch_slots(w), ein__filter_slots(w), ein__data_slots(w)};
    ein__ix row[3], map[EIN__MAX_ITERS];
    *t = (ein__scope){.reduce = EIN__R_SUM, .nt = s->nt, .ns = (uint32_t)w->n};
    if (s->nt + t->ns > EIN__MAX_ITERS) return false;
    memcpy(t->n, s->n, s->nt * sizeof *s->n);
    for (uint32_t i = 0; i < s->nt; i++) map[i] = ein__ix_iter(ctx, i, s->n[i]);
    for (int k = 0; k < w->n; k++) {
        const ein__toom *f = &w->w[k].toom;
        t->n[s->nt + (uint32_t)k] = f->t;
        row[k] = ein__ix_iter(ctx, s->nt + (uint32_t)k, f->t);
        map[w->w[k].x] = ein__ix_floordiv(ctx, map[w->w[k].x], f->m);
    }
    t->body = ein__layer_read(ctx, w, m, row, map, group);
    for (int k = 0; k < w->n; k++) {
        ein__ix x = ein__ix_iter(ctx, w->w[k].x, s->n[w->w[k].x]);
        ein__ix at[2] = {ein__ix_mod(ctx, x, w->w[k].toom.m), row[k]};
        t->body = ein__ex_binary(ctx, EIN__MUL, ein__ex_read(ctx, w->w[k].at, 0, at, 2), t->body);
    }
    return t->body.i != 0;
}

// ------------------------------------------------------------------------------------ the rule

// "basis change F(4x4,3x3)"
static const char *ein__basis_name(ein_ctx *ctx, const ein__slidings *w) {
    ein__buf b = {0};
    ein__put(&b, "basis change F(");
    for (int k = 0; k < w->n; k++) ein__putf(&b, "%s%d", k ? "x" : "", w->w[k].toom.m);
    for (int k = 0; k < w->n; k++) ein__putf(&b, "%s%d", k ? "x" : ",", w->w[k].toom.r);
    ein__put(&b, ")");
    const char *name = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return name;
}

// Tiles of `m` on every axis: the matrices, or false when an axis is too short or has too many
// taps.
static bool ein__basis_tiles(ein__slidings *w, int m) {
    int64_t tile = 1;
    for (int k = 0; k < w->n; k++) {
        int64_t r = w->s->n[w->w[k].y];
        if (m > w->s->n[w->w[k].x] || r > EIN__POINTS) return false;
        if (!ein__toom_cook(m, (int)r, &w->w[k].toom)) return false;
        tile *= w->w[k].toom.t;
    }
    return tile <= EIN__BASIS_TILE;
}

// The matrices of one axis; equal axes share them.
static bool ein__basis_matrices(ein__deriver *z, ein__sliding *w, int from, const char *rule) {
    enum { ROOM = sizeof z->transform / sizeof *z->transform };
    ein__toom *t = &w->toom;
    for (int i = 0; i < z->ntransform; i++)
        if (z->transform[i].m == t->m && z->transform[i].r == t->r) {
            w->at = z->transform[i].at;
            w->g = z->transform[i].g;
            w->bt = z->transform[i].bt;
            return true;
        }
    w->at = ein__basis_table(z, t->m, t->t, t->at, NULL, "at", from, rule);
    w->g = ein__basis_table(z, t->t, t->r, t->g, t->den, "g", from, rule);
    w->bt = ein__basis_table(z, t->t, t->t, t->bt, NULL, "bt", from, rule);
    if (!w->at.i || !w->g.i || !w->bt.i) return false;
    if (z->ntransform < ROOM) {
        z->transform[z->ntransform].m = t->m;
        z->transform[z->ntransform].r = t->r;
        z->transform[z->ntransform].at = w->at;
        z->transform[z->ntransform].g = w->g;
        z->transform[z->ntransform++].bt = w->bt;
    }
    return true;
}

static void ein__basis_change(ein__deriver *z, ein__slidings *w, int from) {
    ein_ctx *ctx = z->ctx;
    const char *rule = ein__basis_name(ctx, w);
    for (int k = 0; k < w->n; k++)
        if (!ein__basis_matrices(z, &w->w[k], from, rule)) return;
    if (ctx->status) return;
    ein__val u = ein__basis_filter(z, w, from, rule);
    ein__val d = u.i ? ein__basis_data(z, w, from, rule) : u;
    ein__val m = d.i ? ein__basis_product(z, w, u, d, from, rule) : d;
    ein__scope t;
    if (m.i && ein__basis_result(z, w, m, &t))
        ein__add_def(z, z->def[from].cls, &t, from, rule, EIN__INNER);
}

// A transform's operands are rounded after it, and its result's errors come with the matrices'
// entries: 3 to 4 times a direct sum's for F(4,3) on two axes, about 2 times for F(2,3). In FP32
// that is far below what is asked. TF32 and FP16 round operands to 11 bits, which is a relative
// error of 3e-4 in a direct sum and, with the bits that the transform itself loses, 2e-3 for
// F(4,3): all that TF32 may lose over a whole model. So there is no basis change in these modes.
static bool ein__basis_is_precise(const ein_ctx *ctx) { return ctx->desc.math == EIN_MATH_FP32; }

// Both factors may be the filter: the one that is known at load, or much the smaller. m is a power
// of two, so that positions split into tiles by shifts.
static void ein__rule_basis(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (!ein__basis_is_precise(ctx)) return;
    if (d.place >= EIN__HALF || ctx->value[d.cls.i].dtype != EIN__F32) return;
    if (!ein__two_factors(ctx, s, read, &alpha)) return;
    for (int k = 0; k < 2; k++) {
        const ein__value *filter = &ctx->value[read[k]->val], *data = &ctx->value[read[1 - k]->val];
        bool small = ein__elements(&filter->shape) * 16 <= ein__elements(&data->shape);
        if (data->weight_only || (!filter->weight_only && !small)) continue;
        for (int m = 2; m < EIN__POINTS; m *= 2) {
            ein__slidings w = {.s = s, .data = read[1 - k], .filter = read[k], .alpha = alpha};
            ein__attempt attempt = ein__try(ctx);
            if (ein__find_windows(ctx, &w) && ein__basis_tiles(&w, m))
                ein__basis_change(z, &w, from);
            if (!ein__tried(ctx, attempt)) return;
        }
    }
}
