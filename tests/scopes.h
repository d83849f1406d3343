// Random contractions: subscripts are windows with strides, dilations, flips and denominators,
// bands, digits, several iterators a dimension, extents 1, read with and without padding, over
// inputs, weights, concatenations and larger values. Used after algebra.h.

enum {
    VOLUME = 3000,  // iterations of one scope: checks cost a multiple of it
    MAX_DIMS = 7,   // of an operand
    MAX_TRAVERSAL = 7,
    MAX_REDUCTION = 5
};

// A subscript before slots are known: (c + sum k * iterator) / q.
typedef struct form {
    int64_t c, q, k[4];
    int it[4], n;
} form;

// An iterator of the scope, traversal or reduction.
typedef struct iter {
    int64_t n;
    bool sum;
    uint32_t slot;
} iter;

typedef struct sketch {
    ein_ctx *ctx;
    iter it[EIN__MAX_ITERS];
    int nit, ndim[2];
    form dim[2][EIN__MAX_RANK];
    bool unpadded;  // every read is inside
    bool halves;    // coefficients and denominators of one size, as strides of a model are
    int64_t step;
} sketch;

static int new_iter(sketch *k, bool sum) {
    static const int64_t extent[] = {1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9};
    k->it[k->nit].n = extent[random_in(0, 13)];
    k->it[k->nit].sum = sum;
    return k->nit++;
}

static void put_form(sketch *k, int operand, form f) {
    if (!f.q) f.q = 1;
    k->dim[operand][k->ndim[operand]++] = f;
}

static form plain(int it) { return (form){.n = 1, .it = {it}, .k = {1}}; }

// One of both operands, with the other in `*second`.
static int any_operand(int *second) {
    int x = (int)random_in(0, 1);
    *second = 1 - x;
    return x;
}

static int64_t any_step(const sketch *k) {
    static const int64_t some[] = {1, 1, 1, 1, 2, 2, 3, 4, -1, -1, -2, -3};
    if (k->halves) return random_in(0, 1) ? 1 : k->step;
    return some[random_in(0, 11)];
}

// A window s * h + d * r + c, over q now and then; the iterator of the sum stands in the other
// operand too, turned around, under another window, or not at all.
static void add_window(sketch *k) {
    int b, a = any_operand(&b), h = new_iter(k, false), r = new_iter(k, true);
    form f = {.n = 2, .it = {h, r}, .k = {any_step(k), any_step(k)}, .c = random_in(-3, 3)};
    if (random_in(0, 3) == 0) {
        f.q = k->halves ? k->step : random_in(2, 4);
        f.k[0] = random_in(0, 3) ? 1 : f.k[0];
        f.k[1] = random_in(0, 3) ? -1 : f.k[1];
    }
    put_form(k, a, f);
    switch (random_in(0, 7)) {
    case 0: break;
    case 1: put_form(k, b, (form){.n = 1, .it = {r}, .k = {-1}, .c = k->it[r].n - 1}); break;
    case 2:
        put_form(k, b, (form){.n = 2, .it = {h, r}, .k = {1, any_step(k)}, .c = random_in(-2, 2)});
        break;
    case 3:
        put_form(k, b, (form){.n = 1, .it = {r}, .k = {any_step(k)}, .c = random_in(-1, 1)});
        break;
    case 4:  // the result's position stands in the other operand as well
        put_form(k, b, plain(h));
        put_form(k, b, plain(r));
        break;
    default: put_form(k, b, plain(r)); break;
    }
}

// Three iterators in one subscript: two windows over one another, or digits of a position.
static void add_wide_window(sketch *k) {
    int b, a = any_operand(&b), h = new_iter(k, false), r = new_iter(k, true);
    int s = new_iter(k, random_in(0, 1));
    form f = {.n = 3, .it = {h, r, s}, .k = {1, any_step(k), any_step(k)}, .c = random_in(-3, 2)};
    if (random_in(0, 1)) f.k[0] = k->it[s].n, f.k[2] = 1;
    put_form(k, a, f);
    put_form(k, b, plain(r));
    if (random_in(0, 2)) put_form(k, b, plain(s));
}

// B's position moves with A's: a band of A B^T, or a sum along a band.
static void add_band(sketch *k) {
    int b, a = any_operand(&b), i = new_iter(k, false), j = new_iter(k, random_in(0, 2) == 0);
    put_form(k, a, plain(i));
    if (k->it[j].sum || random_in(0, 5) == 0) put_form(k, a, plain(j));
    put_form(k, b, (form){.n = 2, .it = {i, j}, .k = {1, any_step(k)}, .c = random_in(-6, 2)});
}

// One dimension of an operand that is two of the other: k = n * k1 + k2.
static void add_digits(sketch *k) {
    int b, a = any_operand(&b);
    bool sum = random_in(0, 3) != 0;
    int hi = new_iter(k, sum), lo = new_iter(k, sum);
    put_form(k, a, (form){.n = 2, .it = {hi, lo}, .k = {k->it[lo].n, 1}});
    if (!sum) return;
    put_form(k, b, plain(hi));
    put_form(k, b, plain(lo));
}

static void add_axis(sketch *k) {
    int b, a = any_operand(&b), it;
    switch (random_in(0, 13)) {
    case 0:
    case 1: put_form(k, a, plain(new_iter(k, false))); break;  // m or n
    case 2:
    case 3:
    case 4:  // k
        it = new_iter(k, true);
        put_form(k, a, plain(it));
        put_form(k, b, plain(it));
        break;
    case 5:  // batch
        it = new_iter(k, false);
        put_form(k, a, plain(it));
        put_form(k, b, plain(it));
        break;
    case 6: put_form(k, a, plain(new_iter(k, true))); break;  // a sum over one factor
    case 7:
        it = new_iter(k, random_in(0, 1));
        put_form(k, a, (form){.n = 1, .it = {it}, .k = {any_step(k)}, .c = random_in(-3, 3)});
        if (random_in(0, 1)) put_form(k, b, plain(it));
        break;
    case 8: add_wide_window(k); break;
    case 9: add_band(k); break;
    case 10: add_digits(k); break;
    default: add_window(k); break;
    }
}

static bool fits(const sketch *k) {
    int64_t volume = 1;
    int nt = 0, ns = 0;
    for (int i = 0; i < k->nit; i++) {
        volume *= k->it[i].n;
        *(k->it[i].sum ? &ns : &nt) += 1;
    }
    return volume <= VOLUME && nt <= MAX_TRAVERSAL && ns <= MAX_REDUCTION && ns > 0 &&
           k->ndim[0] <= MAX_DIMS && k->ndim[1] <= MAX_DIMS;
}

static void shuffle(int *v, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)random_in(0, i), swap = v[i];
        v[i] = v[j];
        v[j] = swap;
    }
}

// Slots in random order, traversal first; extents by slot in `n`.
static void place_iters(sketch *k, int64_t *n, int *nt, int *ns) {
    int order[EIN__MAX_ITERS];
    uint32_t slot = 0;
    for (int i = 0; i < k->nit; i++) order[i] = i;
    shuffle(order, k->nit);
    *nt = *ns = 0;
    for (int sum = 0; sum < 2; sum++)
        for (int i = 0; i < k->nit; i++) {
            if (k->it[order[i]].sum != (sum == 1)) continue;
            n[slot] = k->it[order[i]].n;
            k->it[order[i]].slot = slot++;
            *(sum ? ns : nt) += 1;
        }
}

static ein__ix form_ix(const sketch *k, const form *f) {
    ein__ix x = ein__ix_const(k->ctx, f->c);
    for (int i = 0; i < f->n; i++) {
        const iter *it = &k->it[f->it[i]];
        ein__ix one = ein__ix_iter(k->ctx, it->slot, it->n);
        x = ein__ix_add(k->ctx, x, ein__ix_scale(k->ctx, one, f->k[i]));
    }
    return ein__ix_div(k->ctx, x, f->q);
}

// a[i, ..] + b[i - n, ..]: a concatenation along the first dimension.
static ein__val new_concat(ein_ctx *ctx, const char *name, const ein__shape *s) {
    ein__ix ix[EIN__MAX_RANK];
    int64_t d[EIN__MAX_RANK];
    ein__ex part[2];
    memcpy(d, s->d, sizeof d);
    int64_t first = random_in(1, s->d[0] - 1);
    for (int p = 0; p < 2; p++) {
        d[0] = p ? s->d[0] - first : first;
        ein__val v = new_input(ctx, p ? "tail" : "head", s->rank, d, EIN__F32);
        for (int i = 0; i < s->rank; i++) ix[i] = ein__ix_iter(ctx, (uint32_t)i, s->d[i]);
        if (p) ix[0] = ein__ix_addc(ctx, ix[0], -first);
        part[p] = ein__ex_read(ctx, v, 0, ix, s->rank);
    }
    return new_scope(ctx, name, EIN__R_NONE, s->rank, 0, s->d,
                     ein__ex_binary(ctx, EIN__ADD, part[0], part[1]));
}

static ein__val new_operand(ein_ctx *ctx, const char *name, const ein__shape *s) {
    int64_t what = random_in(0, 9);
    if (what == 0 && s->rank && s->d[0] > 1) return new_concat(ctx, name, s);
    return ein__val_new(ctx, ein__name(ctx, name), what < 5 ? EIN__V_WEIGHT : EIN__V_INPUT, -1,
                        (ein__sc){0}, s, EIN__F32, -1);
}

// A read of a new operand: its box covers the subscripts, or is larger, smaller or one element.
static ein__ex operand_read(sketch *k, int operand, ein__val same) {
    int order[EIN__MAX_RANK], rank = k->ndim[operand];
    ein__ix ix[EIN__MAX_RANK];
    ein__shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) order[i] = i;
    shuffle(order, rank);
    for (int i = 0; i < rank; i++) {
        const form *f = &k->dim[operand][order[i]];
        ix[i] = form_ix(k, f);
        if (!ix[i].i) return (ein__ex){0};
        const ein__index *b = ein__ix_get(k->ctx, ix[i]);
        bool bare = f->n == 1 && f->k[0] == 1 && !f->c;
        int64_t most = b->hi + 1 > 1 ? b->hi + 1 : 1;
        shape.d[i] = most;
        if (bare || k->unpadded) ix[i] = b->lo < 0 ? ein__ix_addc(k->ctx, ix[i], -b->lo) : ix[i];
        if (k->unpadded && b->lo < 0) shape.d[i] = b->hi - b->lo + 1;
        if (k->unpadded) continue;
        int64_t how = random_in(0, bare ? 19 : 7);
        if (how == 0) shape.d[i] = most + random_in(1, 3);
        else if (how < 4) shape.d[i] = random_in(1, most);
        else if (how == 4) shape.d[i] = 1;
    }
    if (same.i) {
        const ein__shape *s = &k->ctx->value[same.i].shape;
        bool equal = s->rank == rank;
        for (int i = 0; equal && i < rank; i++) equal = s->d[i] == shape.d[i];
        if (equal) return ein__ex_read(k->ctx, same, 0, ix, rank);
    }
    ein__val v = new_operand(k->ctx, operand ? "k" : "x", &shape);
    return v.i ? ein__ex_read(k->ctx, v, 0, ix, rank) : (ein__ex){0};
}

// A contraction of two operands, or none where the subscripts never meet the boxes.
static ein__val random_contraction(ein_ctx *ctx) {
    static const double alphas[] = {1, 1, 1, 1, 1, 1, 0.5, -2};
    const ein__expr *read[2];
    int64_t n[EIN__MAX_ITERS];
    int nt, ns;
    sketch k;
    double alpha;
    do {
        k = (sketch){.ctx = ctx, .unpadded = random_in(0, 3) == 0, .halves = random_in(0, 1)};
        k.step = random_in(2, 3);
        for (int64_t axes = random_in(1, 5); axes-- > 0 && k.nit < EIN__MAX_ITERS - 4;)
            add_axis(&k);
    } while (!fits(&k));
    place_iters(&k, n, &nt, &ns);
    ein__ex a = operand_read(&k, 0, (ein__val){0});
    ein__val same = {a.i && ein__ex_get(ctx, a)->op == EIN__X_READ && random_in(0, 9) == 0
                         ? ein__ex_get(ctx, a)->val
                         : 0};
    ein__ex b = operand_read(&k, 1, same);
    ein__ex body = ein__ex_binary(ctx, EIN__MUL, a, b);
    body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alphas[random_in(0, 7)]), body);
    ein__val v = body.i ? new_scope(ctx, "y", EIN__R_SUM, nt, ns, n, body) : (ein__val){0};
    bool good = v.i && ein__two_factors(ctx, ein__scope_of(ctx, v), read, &alpha);
    return good ? v : (ein__val){0};
}
