// Proof by evaluation: expressions over the field of 2^61 - 1 elements. Inputs are random elements,
// so two polynomials that agree at random positions are equal but for a chance of degree / 2^61.
//
// What has no meaning in the field is interpreted so that the laws that rules rely on hold and no
// others do: exp, sqrt and so on are keyed hashes of their argument. max and min take the larger
// and smaller element of a random total order (-inf first, inf last), and comparisons use the same
// order: a lattice, for which max(max(a,b),c), a maximum split in two or padded by -inf, relu(x) =
// max(x, 0) come out equal, and max(a,b) + c does not meet max(a+c,b+c). Numbers with few binary
// places are compared and rounded as they are, which is how expressions fold them.

#define EIN__PRIME (((uint64_t)1 << 61) - 1)
#define EIN__PROOF_STEPS ((int64_t)1 << 32)  // most bodies evaluated: beyond, a proof takes hours
enum { EIN__PROOF_DEPTH = 2000 };            // longest chain of values: each takes the C stack
enum {
    EIN__PROOF_SHARE = 4,       // one proof may take 1 / 4 of what is left for several
    EIN__PROOF_SHOWN = 1 << 20  // bodies between two calls of ein_desc.progress
};

typedef uint64_t ein__fp;  // in [0, EIN__PRIME)
__extension__ typedef unsigned __int128 ein__u128;

static ein__fp ein__fp_add(ein__fp a, ein__fp b) {
    uint64_t s = a + b;
    return s >= EIN__PRIME ? s - EIN__PRIME : s;
}

static ein__fp ein__fp_neg(ein__fp a) { return a ? EIN__PRIME - a : 0; }

static ein__fp ein__fp_mul(ein__fp a, ein__fp b) {
    ein__u128 p = (ein__u128)a * b;
    return ein__fp_add((uint64_t)p & EIN__PRIME, (uint64_t)(p >> 61));
}

static ein__fp ein__fp_power(ein__fp a, uint64_t n) {
    ein__fp r = 1;
    for (; n; n >>= 1, a = ein__fp_mul(a, a))
        if (n & 1) r = ein__fp_mul(r, a);
    return r;
}

static ein__fp ein__fp_int(int64_t v) {
    uint64_t m = (v < 0 ? 0 - (uint64_t)v : (uint64_t)v) % EIN__PRIME;
    return v < 0 ? ein__fp_neg(m) : m;
}

// ------------------------------------------------------------------------------------ memory

typedef struct ein__memo_slot {
    uint64_t position;
    uint32_t val;
    uint32_t used;
    ein__fp value;
} ein__memo_slot;

// What a proof takes as it is, and what it came to. By value id, or NULL.
typedef struct ein__grounds {
    const uint32_t *fresh;  // the free value that it stands for, or 0
    const uint32_t *by;     // the copy of that one whose elements are its own, or 0
    uint8_t *met;           // which of the two compared came to it or, for free values, to these
} ein__grounds;

enum { EIN__MET_FIRST = 1, EIN__MET_SECOND = 2 };

typedef struct ein__proof {
    ein_ctx *ctx;
    uint64_t key;
    ein__grounds from;
    uint8_t mark;          // of the one that is evaluated
    ein__memo_slot *slot;  // elements known: open addressing, at most half full
    uint32_t mask, used;
    // By value: the elements known behind those, one more than each, 0 for what is not known; NULL
    // where too few are. How many are known.
    ein__fp **dense;
    uint32_t *known;
    uint64_t room;  // elements for which there may still be such a table
    int64_t steps, limit;
    int depth;
    bool failed;
    // A hash of what was compared for the element that is computed, or 0. By value: which of 64
    // such hashes its elements had, and the number of values with some, but less than EIN__ORDERS.
    uint64_t compared;
    uint64_t *orders;
    int few;
} ein__proof;

// An order of elements is one bit where polynomials have 61: a value that compares is proved by so
// many different comparisons, in one round where it has them, else in so many rounds.
enum { EIN__ORDERS = 16 };

enum {
    EIN__MEMO_FIRST = 1 << 10,
    EIN__MEMO_LAST = 1 << 22,
    EIN__DENSE_SHARE = 16,         // of a value's elements, one in so many known is worth a table
    EIN__DENSE_ELEMENTS = 1 << 25  // of all tables together
};

static ein__memo_slot *ein__memo_find(ein__proof *z, uint32_t val, uint64_t position) {
    uint64_t h = ein__splitmix(position * 0x9E3779B97F4A7C15ull + val);
    uint32_t at = (uint32_t)h & z->mask;
    while (z->slot[at].used && (z->slot[at].val != val || z->slot[at].position != position))
        at = (at + 1) & z->mask;
    return &z->slot[at];
}

static void ein__memo_resize(ein__proof *z, uint32_t size) {
    ein__memo_slot *old = z->slot;
    uint32_t n = old ? z->mask + 1 : 0;
    z->slot = EIN_REALLOC(NULL, size * sizeof *z->slot);
    if (!z->slot) EIN_OUT_OF_MEMORY();
    memset(z->slot, 0, size * sizeof *z->slot);
    z->mask = size - 1;
    for (uint32_t i = 0; i < n; i++)
        if (old[i].used) *ein__memo_find(z, old[i].val, old[i].position) = old[i];
    EIN_FREE(old);
}

// Whether an element is known, and what it is.
static bool ein__memo_get(ein__proof *z, uint32_t val, uint64_t position, ein__fp *value) {
    ein__fp found = z->dense[val] ? z->dense[val][position] : 0;
    if (found) *value = found - 1;
    if (found) return true;
    const ein__memo_slot *s = ein__memo_find(z, val, position);
    *value = s->value;
    return s->used;
}

// Counts what is known of a value; a table of its elements, once many of them are.
static void ein__memo_count(ein__proof *z, uint32_t val) {
    uint64_t n = (uint64_t)ein__elements(&z->ctx->value[val].shape);
    if ((uint64_t)++z->known[val] * EIN__DENSE_SHARE <= n || n > z->room) return;
    z->dense[val] = EIN_REALLOC(NULL, n * sizeof **z->dense);
    z->room = z->dense[val] ? z->room - n : 0;
    if (z->dense[val]) memset(z->dense[val], 0, n * sizeof **z->dense);
}

static void ein__memo_clear(ein__proof *z) {
    memset(z->slot, 0, (z->mask + 1) * sizeof *z->slot);
    z->used = 0;
    z->room = EIN__DENSE_ELEMENTS;
    for (ptrdiff_t i = 0; i < arrlen(z->dense); i++) {
        EIN_FREE(z->dense[i]);
        z->dense[i] = NULL;
        z->known[i] = 0;
    }
}

static void ein__memo_open(ein__proof *z) {
    ein__memo_resize(z, EIN__MEMO_FIRST);
    for (ptrdiff_t i = 0; i < arrlen(z->ctx->value); i++) {
        arrput(z->dense, NULL);
        arrput(z->known, 0);
        arrput(z->orders, 0);
    }
    z->room = EIN__DENSE_ELEMENTS;
}

static void ein__memo_close(ein__proof *z) {
    ein__memo_clear(z);
    arrfree(z->dense);
    arrfree(z->known);
    arrfree(z->orders);
    EIN_FREE(z->slot);
}

// Once the table is as large as it gets, it starts anew.
static void ein__memo_put(ein__proof *z, uint32_t val, uint64_t position, ein__fp value) {
    if (z->dense[val]) {
        z->dense[val][position] = value + 1;
        return;
    }
    ein__memo_count(z, val);
    if (z->used * 2 > z->mask) {
        if (z->mask + 1 < EIN__MEMO_LAST) {
            ein__memo_resize(z, (z->mask + 1) * 2);
        } else {
            memset(z->slot, 0, (z->mask + 1) * sizeof *z->slot);
            z->used = 0;
        }
    }
    ein__memo_slot *s = ein__memo_find(z, val, position);
    z->used += !s->used;
    *s = (ein__memo_slot){position, val, 1, value};
}

// ------------------------------------------------------------------------------------ functions

static ein__fp ein__fp_hash(const ein__proof *z, uint64_t what, ein__fp a, ein__fp b) {
    uint64_t h = ein__splitmix(z->key ^ (what * 0xD6E8FEB86659FD93ull));
    h = ein__splitmix(h ^ a);
    return ein__splitmix(h + 0x632BE59BD9B4E019ull * b) % EIN__PRIME;
}

enum { EIN__HASH_INF = 1000, EIN__HASH_RANK, EIN__HASH_INPUT, EIN__HASH_NUMBER };

static ein__fp ein__fp_inf(const ein__proof *z) { return ein__fp_hash(z, EIN__HASH_INF, 0, 0); }

static ein__fp ein__fp_inverse(const ein__proof *z, ein__fp a) {
    return a ? ein__fp_power(a, EIN__PRIME - 2) : ein__fp_hash(z, EIN__DIV, 0, 0);
}

// Doubles are integers times powers of two, and 2^61 = 1.
static ein__fp ein__fp_number(const ein__proof *z, double v) {
    if (v - v != 0) {
        if (v != v) return ein__fp_hash(z, EIN__HASH_NUMBER, 0, 0);
        return v > 0 ? ein__fp_inf(z) : ein__fp_neg(ein__fp_inf(z));
    }
    int e;
    int64_t m = (int64_t)ldexp(frexp(v, &e), 53);
    return ein__fp_mul(ein__fp_int(m), (uint64_t)1 << ein__floormod(e - 53, 61));
}

// The integer that an element stands for, when it is a small one.
static bool ein__fp_small(ein__fp a, int64_t *v) {
    const uint64_t limit = (uint64_t)1 << 40;
    *v = a < limit ? (int64_t)a : -(int64_t)(EIN__PRIME - a);
    return a < limit || EIN__PRIME - a < limit;
}

enum { EIN__PROOF_PLACES = 10 };  // binary ones of such numbers

// The same of a number with few binary places: `*v` is 2^EIN__PROOF_PLACES times it.
static bool ein__fp_few(ein__fp a, int64_t *v) {
    const uint64_t limit = (uint64_t)1 << (40 + EIN__PROOF_PLACES);
    a = ein__fp_mul(a, (uint64_t)1 << EIN__PROOF_PLACES);
    *v = a < limit ? (int64_t)a : -(int64_t)(EIN__PRIME - a);
    return a < limit || EIN__PRIME - a < limit;
}

static bool ein__fp_less(ein__proof *z, ein__fp a, ein__fp b) {
    ein__fp inf = ein__fp_inf(z);
    int64_t x, y;
    if (a == b) return false;
    z->compared = ein__splitmix(z->compared ^ a) + b;
    if (a == inf || b == ein__fp_neg(inf)) return false;
    if (b == inf || a == ein__fp_neg(inf)) return true;
    bool sa = ein__fp_few(a, &x), sb = ein__fp_few(b, &y);
    if (sa && sb) return x < y;
    ein__fp ra = sa ? EIN__PRIME / 2 : ein__fp_hash(z, EIN__HASH_RANK, a, 0);
    ein__fp rb = sb ? EIN__PRIME / 2 : ein__fp_hash(z, EIN__HASH_RANK, b, 0);
    return ra != rb ? ra < rb : a < b;
}

static ein__fp ein__fp_max(ein__proof *z, ein__fp a, ein__fp b) {
    return ein__fp_less(z, a, b) ? b : a;
}

static ein__fp ein__fp_min(ein__proof *z, ein__fp a, ein__fp b) {
    return ein__fp_less(z, a, b) ? a : b;
}

static ein__fp ein__fp_unary(ein__proof *z, ein__fn fn, ein__fp x) {
    int64_t few;
    double zero, number;
    if (x == 0 && ein__unary_at_zero(fn, &zero)) return ein__fp_number(z, zero);
    switch ((int)fn) {
    case EIN__NEG: return ein__fp_neg(x);
    case EIN__SQUARE: return ein__fp_mul(x, x);
    case EIN__RELU: return ein__fp_max(z, x, 0);
    case EIN__ABS: return ein__fp_max(z, x, ein__fp_neg(x));
    case EIN__SQRT:
    case EIN__FLOORF:
    case EIN__CEILF:
        if (!ein__fp_few(x, &few) || (fn == EIN__SQRT && few < 0)) break;
        number = ldexp((double)few, -EIN__PROOF_PLACES);
        number = fn == EIN__SQRT ? sqrt(number) : fn == EIN__CEILF ? ceil(number) : floor(number);
        return ein__fp_number(z, number);
    case EIN__RSQRT: return ein__fp_inverse(z, ein__fp_unary(z, EIN__SQRT, x));
    case EIN__SIGMOID:
        return ein__fp_inverse(z, ein__fp_add(1, ein__fp_unary(z, EIN__EXP, ein__fp_neg(x))));
    default: break;
    }
    return ein__fp_hash(z, (uint64_t)fn, x, 0);
}

static ein__fp ein__fp_binary(ein__proof *z, ein__fn fn, ein__fp x, ein__fp y) {
    int64_t a, b;
    switch ((int)fn) {
    case EIN__ADD: return ein__fp_add(x, y);
    case EIN__SUB: return ein__fp_add(x, ein__fp_neg(y));
    case EIN__MUL: return ein__fp_mul(x, y);
    case EIN__DIV: return ein__fp_mul(x, ein__fp_inverse(z, y));
    case EIN__MIN: return ein__fp_min(z, x, y);
    case EIN__MAX: return ein__fp_max(z, x, y);
    case EIN__POW:
        if (y <= 64) return ein__fp_power(x, y);
        break;
    case EIN__QUOT:
    case EIN__REM:
        if (!y || !ein__fp_small(x, &a) || !ein__fp_small(y, &b)) break;
        return ein__fp_int(fn == EIN__QUOT ? a / b : a % b);
    default: break;
    }
    return ein__fp_hash(z, (uint64_t)fn, x, y);
}

static bool ein__fp_compare(ein__proof *z, ein__fn fn, ein__fp x, ein__fp y) {
    switch ((int)fn) {
    case EIN__EQ: return x == y;
    case EIN__NE: return x != y;
    case EIN__LT: return ein__fp_less(z, x, y);
    case EIN__LE: return !ein__fp_less(z, y, x);
    case EIN__GT: return ein__fp_less(z, y, x);
    default: return !ein__fp_less(z, x, y);
    }
}

// ------------------------------------------------------------------------------------ evaluation

static ein__fp ein__proof_expr(ein__proof *z, ein__ex ex, const int64_t *it);

// Numerator of a form. What is no position at all is one outside of everything.
static int64_t ein__proof_index(ein__proof *z, ein__ix ix, const int64_t *it) {
    const ein__index *f = ein__ix_get(z->ctx, ix);
    uint64_t sum = (uint64_t)f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(z->ctx, f->t[i].atom);
        int64_t v;
        if (a->kind == EIN__ITER) {
            v = it[a->slot];
        } else if (a->kind == EIN__GATHER) {
            if (!ein__fp_small(ein__proof_expr(z, (ein__ex){a->ex}, it), &v))
                v = -(EIN__INDEX_LIMIT >> 8);
        } else {
            v = ein__proof_index(z, (ein__ix){a->ix}, it);
            v = a->kind == EIN__FLOOR ? ein__floordiv(v, a->n) : ein__floormod(v, a->n);
        }
        sum += (uint64_t)f->t[i].k * (uint64_t)v;
    }
    return (int64_t)sum;
}

static ein__fp ein__proof_value(ein__proof *z, uint32_t val, const int64_t *at);

static ein__fp ein__proof_read(ein__proof *z, const ein__expr *e, const int64_t *it) {
    const ein__shape *s = &z->ctx->value[e->val].shape;
    int64_t at[EIN__MAX_RANK];
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t x = ein__proof_index(z, e->ix[k], it), q = ein__ix_get(z->ctx, e->ix[k])->q;
        bool whole = q == 1 || x % q == 0;  // the processor's division takes as long as the rest
        at[k] = q == 1 ? x : x / q;
        if (!whole || at[k] < 0 || at[k] >= s->d[k]) return ein__fp_number(z, ein__f64_of(e->bits));
    }
    return ein__proof_value(z, e->val, at);
}

static ein__fp ein__proof_expr(ein__proof *z, ein__ex ex, const int64_t *it) {
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    switch ((ein__xop)e->op) {
    case EIN__X_CONST: return ein__fp_number(z, ein__f64_of(e->bits));
    case EIN__X_IDX: {
        ein__fp x = ein__fp_int(ein__proof_index(z, e->ix[0], it));
        int64_t q = ein__ix_get(z->ctx, e->ix[0])->q;
        return q == 1 ? x : ein__fp_mul(x, ein__fp_inverse(z, ein__fp_int(q)));
    }
    case EIN__X_READ: return ein__proof_read(z, e, it);
    case EIN__X_UNARY: return ein__fp_unary(z, (ein__fn)e->fn, ein__proof_expr(z, e->kid[0], it));
    case EIN__X_BINARY: {
        ein__fp x = ein__proof_expr(z, e->kid[0], it);
        return ein__fp_binary(z, (ein__fn)e->fn, x, ein__proof_expr(z, e->kid[1], it));
    }
    case EIN__X_WHEN: {
        int64_t x = ein__proof_index(z, e->ix[0], it), q = ein__ix_get(z->ctx, e->ix[0])->q;
        bool is = x % q == 0 && x >= 0 && x / q < e->n;
        return is != (e->negate != 0) ? ein__proof_expr(z, e->kid[0], it) : 0;
    }
    case EIN__X_SELECT: {
        ein__fp x = ein__proof_expr(z, e->kid[0], it), y = ein__proof_expr(z, e->kid[1], it);
        return ein__proof_expr(z, e->kid[ein__fp_compare(z, (ein__fn)e->fn, x, y) ? 2 : 3], it);
    }
    default: return 0;
    }
}

// The free value that `val` stands for, or 0.
static uint32_t ein__free_of(const ein__proof *z, uint32_t val) {
    return z->from.fresh ? z->from.fresh[val] : 0;
}

// Elements of integer tensors are small integers, since they may serve as positions.
static ein__fp ein__proof_input(const ein__proof *z, uint32_t val, uint64_t position) {
    if (ein__free_of(z, val)) val = ein__free_of(z, val);
    if (z->from.met) z->from.met[val] |= z->mark;
    ein__dtype t = z->ctx->value[val].dtype;
    ein__fp x = ein__fp_hash(z, EIN__HASH_INPUT, val, position);
    bool integer = t > EIN__BF16;
    return t == EIN__BOOL ? x & 1 : integer ? x & 15 : x;
}

// Elements of a value that an innermost loop reads: `step` from each other, all inside.
typedef struct ein__walk {
    uint32_t val;
    uint64_t position, step;
} ein__walk;

enum { EIN__WALKS = 4, EIN__WALK_LEAST = 4 };  // factors of a product; its terms

static bool ein__is_given(const ein__proof *z, uint32_t val) {
    return z->ctx->value[val].kind != EIN__V_SCOPE || ein__free_of(z, val);
}

// What read `e` goes through while iterator `slot`, now 0, takes `n` values; false where that is no
// walk.
static bool ein__walk_of(ein__proof *z, const ein__expr *e, const int64_t *it, uint32_t slot,
                         int64_t n, ein__walk *walk) {
    const ein__shape *s = &z->ctx->value[e->val].shape;
    *walk = (ein__walk){.val = e->val};
    if (ein__free_of(z, e->val) && z->from.by && z->from.by[e->val]) return false;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(z->ctx, e->ix[k]);
        int64_t first, step = 0, last;
        if (f->q != 1) return false;
        for (uint32_t i = 0; i < f->n; i++) {
            const ein__atom *a = ein__atom_get(z->ctx, f->t[i].atom);
            if (a->kind == EIN__ITER && a->slot == slot) step = f->t[i].k;
            else if (ein__atom_uses(z->ctx, f->t[i].atom) >> slot & 1) return false;
        }
        first = ein__proof_index(z, e->ix[k], it);
        last = first + step * (n - 1);
        if (first < 0 || last < 0 || first >= s->d[k] || last >= s->d[k]) return false;
        walk->position = walk->position * (uint64_t)s->d[k] + (uint64_t)first;
        walk->step = walk->step * (uint64_t)s->d[k] + (uint64_t)step;
    }
    return true;
}

// The reads that a product is made of, or false.
static bool ein__walk_factors(ein__proof *z, ein__ex ex, const ein__expr **read, int *n) {
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__walk_factors(z, e->kid[0], read, n) && ein__walk_factors(z, e->kid[1], read, n);
    if (e->op != EIN__X_READ || *n == EIN__WALKS) return false;
    read[(*n)++] = e;
    return true;
}

static ein__fp ein__walk_element(ein__proof *z, uint32_t val, uint64_t position) {
    const ein__shape *s = &z->ctx->value[val].shape;
    int64_t at[EIN__MAX_RANK];
    if (ein__is_given(z, val)) return ein__proof_input(z, val, position);
    if (z->dense[val] && z->dense[val][position]) return z->dense[val][position] - 1;
    for (int k = s->rank; k-- > 0; position /= (uint64_t)s->d[k])
        at[k] = (int64_t)(position % (uint64_t)s->d[k]);
    return ein__proof_value(z, val, at);
}

// What a scope's terms are added up by: along `lane`, its longest iterator, through what `read`
// reads where the terms are products.
typedef struct ein__loop {
    uint32_t lane;
    int reads;
    const ein__expr *read[EIN__WALKS];
} ein__loop;

static ein__loop ein__loop_of(ein__proof *z, const ein__scope *s) {
    ein__loop l = {.lane = s->nt};
    for (uint32_t i = s->nt + 1; i < s->nt + s->ns; i++)
        if (s->n[i] > s->n[l.lane]) l.lane = i;
    bool walks = s->reduce == EIN__R_SUM && s->n[l.lane] >= EIN__WALK_LEAST;
    if (!walks || !ein__walk_factors(z, s->body, l.read, &l.reads)) l.reads = 0;
    return l;
}

// The sum of products along the lane, if all that they read is inside.
static bool ein__proof_walks(ein__proof *z, const ein__scope *s, const ein__loop *l,
                             const int64_t *it, ein__fp *acc) {
    ein__walk walk[EIN__WALKS];
    int64_t n = s->n[l->lane];
    if (!l->reads) return false;
    for (int k = 0; k < l->reads; k++)
        if (!ein__walk_of(z, l->read[k], it, l->lane, n, &walk[k])) return false;
    for (int64_t t = 0; t < n && !z->failed; t++) {
        ein__fp x = 1;
        for (int k = 0; k < l->reads; k++) {
            x = ein__fp_mul(x, ein__walk_element(z, walk[k].val, walk[k].position));
            walk[k].position += walk[k].step;
        }
        *acc = ein__fp_add(*acc, x);
    }
    return true;
}

static ein__fp ein__proof_term(ein__proof *z, const ein__scope *s, const int64_t *it, ein__fp acc) {
    ein__fp x = ein__proof_expr(z, s->body, it);
    switch (s->reduce) {
    case EIN__R_PROD: return ein__fp_mul(acc, x);
    case EIN__R_MAX: return ein__fp_max(z, acc, x);
    case EIN__R_MIN: return ein__fp_min(z, acc, x);
    default: return ein__fp_add(acc, x);
    }
}

// Counts `n` bodies; false where that is too much.
static bool ein__proof_spend(ein__proof *z, int64_t n) {
    int64_t *proved = &z->ctx->stats.proved, before = *proved / EIN__PROOF_SHOWN;
    z->steps += n;
    *proved += n;
    bool stopped = *proved / EIN__PROOF_SHOWN > before && !ein__progress(z->ctx);
    if (z->steps <= z->limit && !stopped) return true;
    ein__error(z->ctx, EIN_RESOURCES, (ein__pos){0, 0}, "the proof %s",
               stopped ? "was cancelled" : "takes too long");
    z->failed = true;
    return false;
}

static ein__fp ein__proof_scope(ein__proof *z, const ein__scope *s, const int64_t *at) {
    int64_t it[EIN__MAX_ITERS] = {0};
    for (uint32_t k = 0; k < s->nt; k++) it[k] = at[k];
    ein__fp inf = ein__fp_inf(z), acc = s->reduce == EIN__R_PROD  ? 1
                                        : s->reduce == EIN__R_MAX ? ein__fp_neg(inf)
                                        : s->reduce == EIN__R_MIN ? inf
                                                                  : 0;
    ein__loop l = ein__loop_of(z, s);
    int64_t n = s->ns ? s->n[l.lane] : 1;
    bool more = true;
    while (more && !z->failed) {
        if (!ein__proof_spend(z, n)) break;
        bool whole = ein__proof_walks(z, s, &l, it, &acc);
        for (int64_t t = 0; t < n && !whole && !z->failed; t++) {
            if (s->ns) it[l.lane] = t;
            acc = ein__proof_term(z, s, it, acc);
        }
        if (s->ns) it[l.lane] = 0;
        more = false;
        for (uint32_t k = s->nt + s->ns; !more && k-- > s->nt;) {
            if (k == l.lane) continue;
            more = ++it[k] < s->n[k];
            if (!more) it[k] = 0;
        }
    }
    return acc;
}

// Counts the comparisons that an element of value `val` was made of.
static void ein__count_order(ein__proof *z, uint32_t val) {
    uint64_t had = z->orders[val], bit = (uint64_t)1 << (ein__splitmix(z->compared) & 63);
    int n = 1;
    if (!z->compared || had & bit) return;
    z->orders[val] |= bit;
    for (uint64_t rest = had; rest; rest &= rest - 1) n++;
    z->few += (n == 1) - (n == EIN__ORDERS);
}

// Element `at` of a value, inside its box.
static ein__fp ein__proof_value(ein__proof *z, uint32_t val, const int64_t *at) {
    const ein__value *v = &z->ctx->value[val];
    uint64_t position = 0;
    for (int k = 0; k < v->shape.rank; k++)
        position = position * (uint64_t)v->shape.d[k] + (uint64_t)at[k];
    if (ein__free_of(z, val) && z->from.by && z->from.by[val])
        return ein__proof_value(z, z->from.by[val], at);
    if (ein__is_given(z, val)) return ein__proof_input(z, val, position);
    if (z->from.met) z->from.met[val] |= z->mark;
    const ein__scope *s = ein__sc_get(z->ctx, v->scope);
    // A copy costs less than finding it.
    bool keep = s->reduce != EIN__R_NONE || ein__ex_get(z->ctx, s->body)->op != EIN__X_READ;
    ein__fp x;
    if (keep && ein__memo_get(z, val, position, &x)) return x;
    if (z->failed || ++z->depth > EIN__PROOF_DEPTH) {
        if (!z->failed)
            ein__error(z->ctx, EIN_RESOURCES, (ein__pos){0, 0},
                       "the proof of '%s' goes back over too "
                       "many values",
                       v->name);
        z->failed = true;
        return 0;
    }
    uint64_t reader = z->compared;
    z->compared = 0;
    x = ein__proof_scope(z, s, at);
    ein__count_order(z, val);
    z->compared = reader;
    z->depth--;
    if (keep && !z->failed) ein__memo_put(z, val, position, x);
    return x;
}

// Sample `i` of the places of a value of this shape. What a border or a remainder gets wrong is
// seldom met by chance: two samples are corners, and of every other one behind them some subscripts
// are the first or the last.
static void ein__proof_place(const ein__proof *z, const ein__shape *s, int64_t i, int64_t *at) {
    for (int k = 0; k < s->rank; k++) {
        uint64_t chance = ein__splitmix(z->key + (uint64_t)(i * EIN__MAX_RANK + k));
        bool border = i == 1 || i == 2 || (i % 2 && chance >> 62 & 1);
        bool low = i == 2 || (i > 2 && chance >> 61 & 1);
        at[k] = !border ? (int64_t)(chance % (uint64_t)s->d[k]) : low ? 0 : s->d[k] - 1;
    }
}

// Place `i` of all that a value of this shape has.
static void ein__place_at(const ein__shape *s, int64_t i, int64_t *at) {
    for (int k = s->rank; k-- > 0; i /= s->d[k]) at[k] = i % s->d[k];
}

// Compares a and b at samples `first` and after, or all elements, `n` of them under one key; `more`
// samples where comparisons are few.
static bool ein__proof_round(ein__proof *z, ein__val a, ein__val b, int64_t first, int64_t n,
                             bool all, int more, uint64_t key) {
    const ein__shape *s = &z->ctx->value[a.i].shape;
    z->key = ein__splitmix(key);
    ein__memo_clear(z);
    for (int64_t i = 0; i < n || (z->few && i < n + more); i++) {
        int64_t at[EIN__MAX_RANK] = {0};
        if (all) ein__place_at(s, i, at);
        else ein__proof_place(z, s, first + i, at);
        z->mark = EIN__MET_FIRST;
        ein__fp x = ein__proof_value(z, a.i, at);
        z->mark = EIN__MET_SECOND;
        if (z->failed || x != ein__proof_value(z, b.i, at) || z->failed) return false;
    }
    return true;
}

// Whether values a and b, of one shape, are the same function of inputs and weights: compared at
// `samples` positions by chance and at borders, or at all of them when samples <= 0. `from` makes
// values inputs of the proof, which then covers what lies between; equal numbers are one input.
// False also after an error.
EIN__FN bool ein__evalp_equal_by(ein_ctx *ctx, ein__val a, ein__val b, int samples, uint64_t seed,
                                 const ein__grounds *from) {
    const ein__shape *s = &ctx->value[a.i].shape, *t = &ctx->value[b.i].shape;
    int64_t n = ein__elements(s);
    if (s->rank != t->rank || n > EIN__MAX_ELEMENTS) return false;
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] != t->d[k]) return false;
    ein__proof z = {.ctx = ctx, .from = *from, .limit = EIN__PROOF_STEPS};
    if (ctx->proof_steps) z.limit = ctx->proof_steps / EIN__PROOF_SHARE;
    ein__memo_open(&z);
    bool all = samples <= 0 || samples >= n, equal = true;
    for (int round = 0; equal && round < (z.few ? EIN__ORDERS : 1); round++)
        equal = ein__proof_round(&z, a, b, round,
                                 all     ? n
                                 : round ? 1
                                         : samples,
                                 all, all || round ? 0 : 2 * EIN__ORDERS,
                                 ein__splitmix(seed) + (uint64_t)round);
    if (ctx->proof_steps) ctx->proof_steps -= z.steps < z.limit ? z.steps : z.limit;
    ein__memo_close(&z);
    return equal;
}

// The same with free values alone, or NULL.
EIN__FN bool ein__evalp_equal_from(ein_ctx *ctx, ein__val a, ein__val b, int samples, uint64_t seed,
                                   const uint32_t *fresh) {
    ein__grounds from = {.fresh = fresh};
    return ein__evalp_equal_by(ctx, a, b, samples, seed, &from);
}

EIN__FN bool ein__evalp_equal(ein_ctx *ctx, ein__val a, ein__val b, int samples, uint64_t seed) {
    return ein__evalp_equal_from(ctx, a, b, samples, seed, NULL);
}
