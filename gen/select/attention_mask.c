// Keys that no row of a tile attends to: where the score is one constant, c, for all keys j with
//     K < 0,  K = a * i - j + b  or  K = j - a * i + b,  a >= 0,
// i the row, every key from a * i + b + 1 on has c for the rows up to i, or every key before a * i
// - b for the rows from i on. Its weight is exp(c - m), m the largest score: once that is 0 for
// every row of the tile, such keys change nothing. The kernel begins with the first key that some
// row attends to and stops behind the last one (causal attention: half of all keys; a window: as
// many as it is wide). It tests this at run time, since nothing else says how far c is below the
// other scores; until it is far enough, the kernel goes on with further keys, behind the last of
// all with the first one. Weights that are no softmax are 0 there, and add nothing.
//
// K is looked for in the conditions of the score, and both sides of it are what the score is there.
// Where several iterators count rows, as heads that share their keys do beside positions, that of i
// counts slowest: `each` neighbours have the same i.

// Key a * i + key, i the row, or the quotient of it by `each`, which slot `row` counts.
typedef struct ein__attention_edge {
    bool is;
    int row;
    int64_t a, key, each;
} ein__attention_edge;

typedef struct ein__attention_mask {
    ein__ex value;                   // c
    ein__ex kept;                    // the score of other keys
    bool far;                        // c is so low that it is expected not to count
    bool read;                       // some edge is that of a mask which the score reads
    ein__attention_edge begin, end;  // the first one of those, and the first one behind them
} ein__attention_mask;

enum {
    EIN__ATTENTION_FAR = -100,   // exp(-88) is about the smallest number of f32
    EIN__ATTENTION_TILE = 1024,  // more than the rows of any tile
    EIN__ATTENTION_LIMITS = 24,  // forms looked at
    EIN__ATTENTION_LEAVES = 4    // of them, on one side of a condition
};

typedef struct ein__attention_limits {
    ein__ix k[EIN__ATTENTION_LIMITS];
    int n;
} ein__attention_limits;

typedef struct ein__attention_source {
    ein__val dot;
    int looks;
} ein__attention_source;

// K and its contrary: of quotients, what is 0 or more wherever they are.
static void ein__attention_limit(ein_ctx *ctx, ein__attention_limits *all, ein__ix k) {
    ein__ix both[] = {k, ein__ix_addc(ctx, ein__ix_scale(ctx, k, -1), -1)};
    ein__side_frame frame;
    for (int i = 0; i < 2 && all->n < EIN__ATTENTION_LIMITS; i++)
        if (both[i].i && ein__side_frame_of(ctx, both[i], &frame))
            all->k[all->n++] = ein__ix_addc(ctx, frame.a, frame.above);
}

// Forms that `ex` is, or one of which it is: a distance is one or its negative.
static int ein__attention_leaves(ein_ctx *ctx, ein__ex ex, ein__ix *leaf, int room) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    int n = 0;
    if (room > 0 && ein__side_count(ctx, ex, leaf)) return 1;
    if (e.op == EIN__X_UNARY && (e.fn == EIN__ABS || e.fn == EIN__NEG)) {
        n = ein__attention_leaves(ctx, e.kid[0], leaf, e.fn == EIN__ABS ? room / 2 : room);
        for (int i = 0; i < n; i++) {
            ein__ix minus = ein__ix_scale(ctx, leaf[i], -1);
            leaf[e.fn == EIN__ABS ? n + i : i] = minus;
        }
        if (e.fn == EIN__ABS) n *= 2;
    } else if (e.op == EIN__X_BINARY && (e.fn == EIN__MIN || e.fn == EIN__MAX)) {
        n = ein__attention_leaves(ctx, e.kid[0], leaf, room);
        n += ein__attention_leaves(ctx, e.kid[1], leaf + n, room - n);
    }
    return n;
}

// What may be K in the conditions of `ex`.
static void ein__attention_conditions(ein_ctx *ctx, ein__ex ex, ein__attention_limits *all) {
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__ix x[EIN__ATTENTION_LEAVES], y[EIN__ATTENTION_LEAVES];
    int nx = 0, ny = 0;
    bool less = e.fn == EIN__LT || e.fn == EIN__LE, strict = e.fn == EIN__LT || e.fn == EIN__GT;
    bool equal = e.fn == EIN__EQ || e.fn == EIN__NE;
    if (e.op == EIN__X_SELECT && (less || equal || e.fn == EIN__GT || e.fn == EIN__GE)) {
        nx = ein__attention_leaves(ctx, e.kid[0], x, EIN__ATTENTION_LEAVES);
        ny = ein__attention_leaves(ctx, e.kid[1], y, EIN__ATTENTION_LEAVES);
    }
    for (int i = 0; i < nx * ny; i++) {
        ein__ix from = less ? y[i % ny] : x[i / ny], by = less ? x[i / ny] : y[i % ny];
        ein__ix k = ein__ix_add(ctx, from, ein__ix_scale(ctx, by, -1));
        ein__attention_limit(ctx, all, strict ? ein__ix_addc(ctx, k, -1) : k);
        if (equal) ein__attention_limit(ctx, all, ein__ix_scale(ctx, k, -1));
    }
    if (e.op == EIN__X_WHEN && ein__ix_get(ctx, e.ix[0])->q == 1) {
        ein__ix minus = ein__ix_scale(ctx, e.ix[0], -1);
        ein__attention_limit(ctx, all, e.ix[0]);
        ein__attention_limit(ctx, all, ein__ix_addc(ctx, minus, e.n - 1));
    }
    for (uint32_t i = 0; i < e.nkid; i++) ein__attention_conditions(ctx, e.kid[i], all);
}

// A constant below 0, or one element of a value that the kernel does not make; weights that are no
// softmax are 0.
static bool ein__attention_fixed(ein_ctx *ctx, const ein__attention *a, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double v;
    if (!a->soft) return ein__ex_is_const(ctx, ex, &v) && v == 0;
    if (ein__side_never(ctx, ex)) return true;
    if (ein__ex_is_const(ctx, ex, &v)) return v < 0;
    return e->op == EIN__X_READ && e->val != a->dot.i && !ein__ex_uses(ctx, ex);
}

// The edge that K is, where it is one of `begin` or of others; else it is none.
static ein__attention_edge ein__attention_edge_of(ein_ctx *ctx, const ein__attention *a, ein__ix k,
                                                  bool begin) {
    const ein__attention_edge none = {0};
    uint32_t used = ein__ix_uses(ctx, k), rows = used & ~a->keys;
    const ein__index *f = ein__ix_get(ctx, k);
    uint32_t row = 0, key = 0;
    int64_t each = 1;
    if ((used & a->keys) != a->keys || rows & ~a->rows || rows & (rows - 1)) return none;
    while (!(a->keys >> key & 1)) key++;
    while (rows && !(rows >> row & 1)) row++;
    for (uint32_t i = 0; rows && i < a->slots; i++)
        if ((a->rows & ~rows) >> i & 1) each = ein__times(each, a->box.n[i]);
    int64_t by = rows ? ein__ix_coef(ctx, k, row) : 0;
    if (ein__ix_coef(ctx, k, key) != (begin ? 1 : -1)) return none;
    ein__attention_edge e = {true, (int)row, begin ? -by : by, begin ? -f->c : f->c + 1, each};
    if (e.a < 0 || e.a > INT32_MAX || e.key > INT32_MAX || e.key < -INT32_MAX) return none;
    // Kernels count edges in 32 bits, those of a last tile's rows too; and where no key is hidden
    // there is none.
    int64_t last = rows ? ein__times(e.a, ein__plus(a->box.n[row], EIN__ATTENTION_TILE)) : 0;
    bool far = ein__plus(last, e.key < 0 ? -e.key : e.key) > INT32_MAX / 2;
    return far || (begin && f->lo >= 0) ? none : e;
}

// Finds where the mask of `score` begins, or ends: the closest place of those that hide keys by a
// constant, the same on both sides. Gives its K; none.
static ein__ix ein__attention_find(ein_ctx *ctx, const ein__attention *a, ein__ex score, bool begin,
                                   ein__attention_mask *m) {
    ein__attention_edge *edge = begin ? &m->begin : &m->end, *other = begin ? &m->end : &m->begin;
    ein__attention_limits all = {.n = 0};
    ein__ix best = {0};
    if (edge->is) return best;
    ein__attention_conditions(ctx, score, &all);
    for (int i = 0; i < all.n; i++) {
        ein__attention_edge e = ein__attention_edge_of(ctx, a, all.k[i], begin);
        bool closer = begin ? e.key > edge->key : e.key < edge->key;
        if (!e.is || (edge->is && (e.a != edge->a || e.row != edge->row || !closer))) continue;
        if (other->is && other->a && e.a && other->row != e.row) continue;
        ein__side hidden = ein__side_of(ctx, all.k[i], false);
        ein__ex value = ein__side_put(ctx, &hidden, score);
        if (!value.i || !ein__attention_fixed(ctx, a, value)) continue;
        if (m->value.i && m->value.i != value.i) continue;
        m->value = value;
        *edge = e;
        best = all.k[i];
    }
    return best;
}

// A read of a map that the kernel does not make: its definition in place. What it has beside a mask
// is of no interest, so halves are left alone, which have no number as low as a mask's.
static ein__ex ein__attention_define_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__attention_source *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val p = {e->val};
    ein__dtype type = ctx->value[p.i].dtype;
    if (p.i == z->dot.i || !ein__is_map(ctx, p) || type == EIN__F16 || type == EIN__BF16 ||
        (type != EIN__BOOL && ein__narrows(ctx, p)) || ++z->looks > EIN__ATTENTION_LOOKS)
        return ex;
    ein__ex body = ein__rule_inline(ctx, p, e);
    if (!body.i || ein__ex_size(ctx, body) > EIN__MAX_INLINE) return ex;
    return ein__ex_replace_reads(ctx, body, ein__attention_define_read, z);
}

// The same in masks that are read: those of a batch, made once for all heads or all layers.
static void ein__attention_find_read(ein_ctx *ctx, const ein__attention *a,
                                     ein__attention_mask *m) {
    ein__attention_source z = {.dot = a->dot};
    ein__attention_mask found = *m;
    if (m->begin.is && m->end.is) return;
    ein__attempt attempt = ein__try(ctx);
    ein__ex score = ein__ex_replace_reads(ctx, a->score, ein__attention_define_read, &z);
    if (score.i && score.i != a->score.i && ein__ex_size(ctx, score) <= EIN__MAX_INLINE) {
        found.read = ein__attention_find(ctx, a, score, false, &found).i != 0;
        found.read |= ein__attention_find(ctx, a, score, true, &found).i != 0;
    }
    if (ein__tried(ctx, attempt)) *m = found;
}

// The mask of `a`; false when there is none.
EIN__FN bool ein__attention_masked(ein_ctx *ctx, const ein__attention *a, ein__attention_mask *m) {
    double c;
    *m = (ein__attention_mask){.kept = a->score};
    if (a->band || (a->keys & (a->keys - 1))) return false;
    ein__attempt attempt = ein__try(ctx);
    for (int begin = 0; begin < 2; begin++) {
        ein__ix k = ein__attention_find(ctx, a, a->score, begin, m);
        ein__side shown = ein__side_of(ctx, k, true);
        if (k.i && m->kept.i) m->kept = ein__side_put(ctx, &shown, m->kept);
    }
    if (!ein__tried(ctx, attempt) || !m->kept.i) return false;
    ein__attention_find_read(ctx, a, m);
    m->far = m->value.i && (!ein__ex_is_const(ctx, m->value, &c) || c <= EIN__ATTENTION_FAR);
    m->far |= m->value.i && !a->soft;
    return m->begin.is || m->end.is;
}

// The slot of the rows that counts slowest where there are several, or -1: any.
static int ein__attention_slowest(const ein__attention_mask *m) {
    const ein__attention_edge *e = m->end.is && m->end.a ? &m->end : &m->begin;
    return e->is && e->a ? e->row : -1;
}

static int64_t ein__attention_edge_at(const ein__attention_edge *e, int64_t row, int64_t most) {
    int64_t key = e->a * (row / e->each) + e->key;
    return key < 0 ? 0 : key < most ? key : most;
}

// The first key that the rows from `first` on attend to, 0 to `keys`.
static int64_t ein__attention_begin(const ein__attention_mask *m, int64_t first, int64_t keys) {
    return m->begin.is ? ein__attention_edge_at(&m->begin, first, keys) : 0;
}

// The first key that no row of the `rows` rows from `first` on attends to, 0 to `keys`.
static int64_t ein__attention_end(const ein__attention_mask *m, int64_t first, int64_t rows,
                                  int64_t keys) {
    return m->end.is ? ein__attention_edge_at(&m->end, first + rows - 1, keys) : keys;
}
