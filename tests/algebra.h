// What tests of the algebra share: random forms and bodies, and a second, plain evaluator.

static int passed, failed;

#define CHECK(ok, ...) check((ok), __FILE__, __LINE__, __VA_ARGS__)

EIN__PRINTF(4, 5) static bool check(bool ok, const char *file, int line, const char *format, ...) {
    if (ok) {
        passed++;
        return true;
    }
    if (failed++ < 40) {
        va_list args;
        va_start(args, format);
        printf("%s:%d: ", file, line);
        vprintf(format, args);
        printf("\n");
        va_end(args);
    }
    return false;
}

// ------------------------------------------------------------------------------------ random

static uint64_t random_state;

static uint64_t random_u64(void) { return ein__splitmix(random_state++); }

static int64_t random_in(int64_t lo, int64_t hi) {
    return lo + (int64_t)(random_u64() % (uint64_t)(hi - lo + 1));
}

// Small numbers that doubles hold exactly, so that sums come out the same in any order.
static double random_number(void) { return (double)random_in(-16, 16) / 4; }

static ein_ctx *open_context(void) {
    ein_ctx *ctx = ein_open(NULL);
    if (!ctx) exit(5);
    return ctx;
}

static ein__val new_input(ein_ctx *ctx, const char *name, int rank, const int64_t *d,
                          ein__dtype t) {
    ein__shape s = {.rank = rank};
    for (int k = 0; k < rank; k++) s.d[k] = d[k];
    return ein__val_new(ctx, ein__name(ctx, name), EIN__V_INPUT, -1, (ein__sc){0}, &s, t, -1);
}

static ein__val new_scope(ein_ctx *ctx, const char *name, ein__red reduce, int nt, int ns,
                          const int64_t *n, ein__ex body) {
    ein__scope s = {.reduce = reduce, .nt = (uint32_t)nt, .ns = (uint32_t)ns, .body = body};
    ein__shape shape = {.rank = nt};
    for (int k = 0; k < nt + ns; k++) s.n[k] = n[k];
    for (int k = 0; k < nt; k++) shape.d[k] = n[k];
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, ein__name(ctx, name), EIN__V_SCOPE, -1, sc, &shape, EIN__F32, -1);
}

static bool next_point(int64_t *it, const int64_t *n, int count) {
    for (int k = count; k-- > 0;) {
        if (++it[k] < n[k]) return true;
        it[k] = 0;
    }
    return false;
}

// ------------------------------------------------------------------------------------ plain
// evaluation

static double plain_expr(ein_ctx *ctx, ein__ex ex, const int64_t *it, double *const *data);

static int64_t plain_index(ein_ctx *ctx, ein__ix ix, const int64_t *it, double *const *data) {
    const ein__index *f = ein__ix_get(ctx, ix);
    int64_t sum = f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        int64_t v = 0;
        if (a->kind == EIN__ITER) v = it[a->slot];
        if (a->kind == EIN__GATHER) v = (int64_t)plain_expr(ctx, (ein__ex){a->ex}, it, data);
        if (a->kind == EIN__FLOOR || a->kind == EIN__MOD) {
            int64_t x = plain_index(ctx, (ein__ix){a->ix}, it, data), m = x % a->n;
            if (m < 0) m += a->n;
            v = a->kind == EIN__MOD ? m : (x - m) / a->n;
        }
        sum += f->t[i].k * v;
    }
    return sum;
}

static double plain_read(ein_ctx *ctx, const ein__expr *e, const int64_t *it, double *const *data) {
    const ein__shape *s = &ctx->value[e->val].shape;
    int64_t address = 0;
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t x = plain_index(ctx, e->ix[k], it, data), q = ein__ix_get(ctx, e->ix[k])->q;
        if (x % q || x < 0 || x / q >= s->d[k]) return pad;
        address = address * s->d[k] + x / q;
    }
    return data[e->val][address];
}

static double plain_expr(ein_ctx *ctx, ein__ex ex, const int64_t *it, double *const *data) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double k[4] = {0};
    if (e->op == EIN__X_CONST) {
        memcpy(k, &e->bits, sizeof *k);
        return k[0];
    }
    if (e->op == EIN__X_READ) return plain_read(ctx, e, it, data);
    int64_t x = e->nix ? plain_index(ctx, e->ix[0], it, data) : 0;
    int64_t q = e->nix ? ein__ix_get(ctx, e->ix[0])->q : 1;
    if (e->op == EIN__X_IDX) return (double)x / (double)q;
    for (uint32_t i = 0; i < e->nkid; i++) k[i] = plain_expr(ctx, e->kid[i], it, data);
    if (e->op == EIN__X_UNARY) return ein__apply_unary((ein__fn)e->fn, k[0]);
    if (e->op == EIN__X_BINARY) return ein__apply_binary((ein__fn)e->fn, k[0], k[1]);
    if (e->op == EIN__X_SELECT) return ein__apply_cmp((ein__fn)e->fn, k[0], k[1]) ? k[2] : k[3];
    bool is = x % q == 0 && x >= 0 && x / q < e->n;
    return is != (e->negate != 0) ? k[0] : 0;
}

static double *plain_value(ein_ctx *ctx, ein__val v, double *const *data) {
    const ein__scope *s = ein__sc_get(ctx, ctx->value[v.i].scope);
    int64_t it[EIN__MAX_ITERS] = {0}, at = 0;
    double *out = malloc((size_t)ein__elements(&ctx->value[v.i].shape) * sizeof *out);
    if (!out) exit(5);
    do {
        double acc = s->reduce == EIN__R_PROD  ? 1
                     : s->reduce == EIN__R_MAX ? -(double)INFINITY
                     : s->reduce == EIN__R_MIN ? (double)INFINITY
                                               : 0;
        do {
            double x = plain_expr(ctx, s->body, it, data);
            if (s->reduce == EIN__R_SUM) acc += x;
            else if (s->reduce == EIN__R_PROD) acc *= x;
            else if (s->reduce == EIN__R_MAX) acc = fmax(acc, x);
            else if (s->reduce == EIN__R_MIN) acc = fmin(acc, x);
            else acc = x;
        } while (next_point(it + s->nt, s->n + s->nt, (int)s->ns));
        out[at++] = acc;
    } while (next_point(it, s->n, (int)s->nt));
    return out;
}

static bool same_number(double a, double b) {
    if (a == b || (a != a && b != b)) return true;
    return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b) + 1);
}

// First element at which two arrays differ, or -1.
static int64_t difference(const double *a, const double *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!same_number(a[i], b[i])) return i;
    return -1;
}

// Arrays for every value; those of inputs filled.
static double **new_data(ein_ctx *ctx) {
    size_t n = arrlenu(ctx->value) + 64;
    double **data = calloc(n, sizeof *data);
    for (uint32_t v = 1; data && v < arrlenu(ctx->value); v++) {
        if (ctx->value[v].kind == EIN__V_SCOPE) continue;
        int64_t count = ein__elements(&ctx->value[v].shape);
        data[v] = malloc((size_t)count * sizeof **data);
        bool integer = ctx->value[v].dtype == EIN__I32;
        for (int64_t i = 0; data[v] && i < count; i++)
            data[v][i] = integer ? (double)random_in(-1, 6) : random_number();
    }
    if (!data) exit(5);
    return data;
}

static void free_data(ein_ctx *ctx, double **data) {
    for (size_t v = 0; v < arrlenu(ctx->value); v++) free(data[v]);
    free(data);
}

// ------------------------------------------------------------------------------------ index forms

// A form as it was built, and its value: x / q.
typedef enum {
    T_ITER,
    T_CONST,
    T_ADD,
    T_SUB,
    T_SCALE,
    T_ADDC,
    T_FLOOR,
    T_MOD,
    T_DIV,
    T_COUNT
} tree_kind;
typedef struct tree {
    tree_kind kind;
    int64_t k;
    const struct tree *a, *b;
} tree;

static tree pool[64];
static int pool_used;

static const tree *random_tree(int depth, int slots, bool integer) {
    tree *t = &pool[pool_used++];
    t->kind =
        (tree_kind)(depth == 0 || pool_used > 56 ? random_in(0, 1) : random_in(0, T_COUNT - 1));
    if (integer && t->kind == T_DIV) t->kind = T_FLOOR;
    if (t->kind == T_CONST && random_in(0, 2)) t->kind = T_ITER;
    t->k = random_in(-9, 9);
    if (t->kind == T_ITER) t->k = random_in(0, slots - 1);
    if (t->kind == T_FLOOR || t->kind == T_MOD || t->kind == T_DIV) t->k = random_in(1, 9);
    bool two = t->kind == T_ADD || t->kind == T_SUB;
    if (t->kind > T_CONST)
        t->a = random_tree(depth - 1, slots, integer || t->kind == T_FLOOR || t->kind == T_MOD);
    if (two) t->b = random_tree(depth - 1, slots, integer);
    return t;
}

static ein__ix build_tree(ein_ctx *ctx, const tree *t, const int64_t *n) {
    switch (t->kind) {
    case T_ITER: return ein__ix_iter(ctx, (uint32_t)t->k, n[t->k]);
    case T_CONST: return ein__ix_const(ctx, t->k);
    case T_ADD: return ein__ix_add(ctx, build_tree(ctx, t->a, n), build_tree(ctx, t->b, n));
    case T_SUB: return ein__ix_sub(ctx, build_tree(ctx, t->a, n), build_tree(ctx, t->b, n));
    case T_SCALE: return ein__ix_scale(ctx, build_tree(ctx, t->a, n), t->k);
    case T_ADDC: return ein__ix_addc(ctx, build_tree(ctx, t->a, n), t->k);
    case T_FLOOR: return ein__ix_floordiv(ctx, build_tree(ctx, t->a, n), t->k);
    case T_MOD: return ein__ix_mod(ctx, build_tree(ctx, t->a, n), t->k);
    case T_DIV: return ein__ix_div(ctx, build_tree(ctx, t->a, n), t->k);
    case T_COUNT:
    default: return (ein__ix){0};
    }
}

typedef struct ratio {
    int64_t x, q;
} ratio;

static ratio eval_tree(const tree *t, const int64_t *it) {
    if (t->kind == T_ITER) return (ratio){it[t->k], 1};
    if (t->kind == T_CONST) return (ratio){t->k, 1};
    ratio a = eval_tree(t->a, it);
    if (t->kind == T_SCALE) return (ratio){a.x * t->k, a.q};
    if (t->kind == T_ADDC) return (ratio){a.x + t->k * a.q, a.q};
    if (t->kind == T_DIV) return (ratio){a.x, a.q * t->k};
    if (t->kind == T_FLOOR || t->kind == T_MOD) {
        int64_t m = a.x % t->k;
        if (m < 0) m += t->k;
        return (ratio){t->kind == T_MOD ? m : (a.x - m) / t->k, 1};
    }
    ratio b = eval_tree(t->b, it);
    return (ratio){a.x * b.q + (t->kind == T_ADD ? 1 : -1) * b.x * a.q, a.q * b.q};
}

static void random_extents(int64_t *n, int slots, int64_t most) {
    static const int64_t choice[] = {1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 30, 70};
    int64_t all = 1;
    for (int k = 0; k < slots; k++) {
        n[k] = choice[random_in(0, sizeof choice / sizeof *choice - 1)];
        if (all * n[k] > most) n[k] = 1 + (int64_t)(random_u64() & 1);
        all *= n[k];
    }
}

// ------------------------------------------------------------------------------------ expressions

enum { RANDOM_MAP = 1, RANDOM_PLAIN_INDEX = 2 };  // what random bodies may hold

typedef struct maker {
    ein_ctx *ctx;
    ein__val tensor[4];
    int slots, flags;
    const int64_t *n;
    bool failed;
} maker;

static void make_tensors(ein_ctx *ctx, maker *m) {
    m->ctx = ctx;
    m->tensor[0] = new_input(ctx, "a", 1, (int64_t[]){random_in(1, 9)}, EIN__F32);
    m->tensor[1] = new_input(ctx, "b", 2, (int64_t[]){random_in(1, 6), random_in(1, 6)}, EIN__F32);
    m->tensor[2] =
        new_input(ctx, "c.d", 3, (int64_t[]){random_in(1, 4), random_in(1, 4), 1}, EIN__F32);
    m->tensor[3] = new_input(ctx, "e e", 0, NULL, EIN__F32);
}

static ein__ix random_index(maker *m, bool integer) {
    pool_used = 0;
    if (m->flags & RANDOM_PLAIN_INDEX) {
        ein__ix x = ein__ix_const(m->ctx, random_in(-2, 3));
        for (int k = 0; k < m->slots; k++) {
            if (random_in(0, 1)) continue;
            ein__ix it = ein__ix_iter(m->ctx, (uint32_t)k, m->n[k]);
            x = ein__ix_add(m->ctx, x, ein__ix_scale(m->ctx, it, random_in(-2, 2)));
        }
        return integer || random_in(0, 2) ? x : ein__ix_div(m->ctx, x, random_in(1, 3));
    }
    const tree *t = random_tree((int)random_in(0, 3), m->slots, integer);
    return build_tree(m->ctx, t, m->n);
}

static ein__ex random_body(maker *m, int depth);

static ein__ex random_read(maker *m) {
    ein__val v = m->tensor[random_in(0, 3)];
    ein__ix ix[EIN__MAX_RANK];
    int rank = m->ctx->value[v.i].shape.rank;
    for (int k = 0; k < rank; k++) ix[k] = random_index(m, false);
    return ein__ex_read(m->ctx, v, random_in(0, 3) ? 0 : 2.5, ix, rank);
}

// Functions that give numbers for all numbers: laws of guards hold where everything is finite.
static ein__ex random_call(maker *m, int depth) {
    static const ein__fn unary[] = {EIN__NEG,    EIN__ABS,     EIN__RELU,   EIN__TANH,
                                    EIN__ERF,    EIN__SIGMOID, EIN__FLOORF, EIN__CEILF,
                                    EIN__SQUARE, EIN__SIN,     EIN__COS,    EIN__ATAN};
    static const ein__fn binary[] = {EIN__ADD, EIN__ADD, EIN__SUB, EIN__MUL,  EIN__MUL,
                                     EIN__MIN, EIN__MAX, EIN__DIV, EIN__QUOT, EIN__REM};
    ein__ex x = random_body(m, depth - 1);
    if (random_in(0, 2) == 0) return ein__ex_unary(m->ctx, unary[random_in(0, 11)], x);
    ein__fn fn = binary[random_in(0, 9)];
    bool divides = fn == EIN__DIV || fn == EIN__QUOT || fn == EIN__REM;
    ein__ex y = divides ? ein__ex_const(m->ctx, 4) : random_body(m, depth - 1);
    return ein__ex_binary(m->ctx, fn, x, y);
}

static ein__ex random_body(maker *m, int depth) {
    int64_t what = depth == 0 ? random_in(0, 4) : random_in(3, 11);
    ein_ctx *ctx = m->ctx;
    ein__ex r;
    if (what == 0) {
        r = ein__ex_const(ctx, random_number());
    } else if (what == 1) {
        r = ein__ex_idx(ctx, random_index(m, true));
    } else if (what < 5) {
        r = random_read(m);
    } else if (what < 9) {
        r = random_call(m, depth);
    } else if (what < 11) {
        ein__ix ix = random_index(m, random_in(0, 1));
        r = ein__ex_when(ctx, ix, random_in(1, 5), random_in(0, 3) == 0, random_body(m, depth - 1));
    } else {
        ein__fn fn = (ein__fn)random_in(EIN__EQ, EIN__GE);
        ein__ex x = random_body(m, depth - 1), y = random_body(m, 0), p = random_body(m, depth - 1);
        r = ein__ex_select(ctx, fn, x, y, p, random_body(m, depth - 1));
    }
    m->failed |= !r.i;
    return r.i ? r : ein__ex_const(ctx, 1);
}

// A replacement of iterators whose values stay in range: digits, reversal, shuffles by mod.
static void random_map(maker *m, ein__ix *map, int64_t *n, int *slots) {
    ein_ctx *ctx = m->ctx;
    *slots = 0;
    for (int k = 0; k < m->slots; k++) {
        int64_t e = m->n[k], d = random_in(1, 4);
        ein__ix i = {0};
        uint32_t s = (uint32_t)*slots;
        if (e % d == 0 && *slots < 5) {
            n[(*slots)++] = e / d;
            n[(*slots)++] = d;
            i = ein__ix_add(ctx, ein__ix_scale(ctx, ein__ix_iter(ctx, s, e / d), d),
                            ein__ix_iter(ctx, s + 1, d));
        } else {
            n[(*slots)++] = e + d;
            i = ein__ix_iter(ctx, s, e + d);
            i = random_in(0, 1) ? ein__ix_mod(ctx, i, e) : ein__ix_floordiv(ctx, i, 1 + d);
            if (ein__ix_get(ctx, i)->hi >= e) i = ein__ix_const(ctx, e - 1);
        }
        if (random_in(0, 2) == 0) i = ein__ix_addc(ctx, ein__ix_scale(ctx, i, -1), e - 1);
        map[k] = i;
    }
}
