// Small constant transforms: a reduction whose factors are small constant matrices, one per
// summation iterator, and one read, V[i..] = sum(u,v) A[i,u] B[j,v] x[.., u, v]. It is separable: a
// tile of x in registers, transformed along one axis after the other. One is recognised by its
// expression alone.

enum {
    EIN__TABLE_EXTENT = 8,  // rows and columns of a constant matrix
    EIN__BASIS_TILE = 64    // elements of a tile, all in registers
};

// One axis: sum over `sum` of table[row, sum]. The row is a traversal iterator of its own, or digit
// slot mod `rows` of one whose other digit, slot / rows, is the tile's place (`digit`).
typedef struct ein__basis_axis {
    uint32_t sum, slot;
    bool digit;
    ein__val table;
    int64_t rows, cols;
} ein__basis_axis;

typedef struct ein__basis {
    int n;
    ein__basis_axis axis[3];
    ein__ex read;
} ein__basis;

// A matrix of constants: a small map that reads nothing.
static bool ein__is_table(const ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    if (p->kind != EIN__V_SCOPE || p->shape.rank != 2 || p->dtype != EIN__F32) return false;
    if (p->shape.d[0] > EIN__TABLE_EXTENT || p->shape.d[1] > EIN__TABLE_EXTENT) return false;
    const ein__scope *s = ein__sc_get(ctx, p->scope);
    return s->reduce == EIN__R_NONE && !ein__ex_get(ctx, s->body)->reads;
}

// A matrix's entries, row after row. False when they cannot be computed.
static bool ein__table_entries(ein_ctx *ctx, ein__val v, double *entry) {
    const ein__shape *s = &ctx->value[v.i].shape;
    double **data = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) arrput(data, NULL);
    bool ok = ein__eval_values(ctx, &v, 1, data);
    if (ok) memcpy(entry, data[v.i], (size_t)(s->d[0] * s->d[1]) * sizeof *entry);
    EIN_FREE(data[v.i]);
    arrfree(data);
    return ok;
}

// A number as the fraction with the least denominator that is exactly it, else as it is.
static void ein__put_fraction(ein__buf *out, double v) {
    enum { LARGEST = 1000 };
    for (int64_t d = 2; d < LARGEST && v > -1e9 && v < 1e9 && v != (double)(int64_t)v; d++) {
        int64_t n = (int64_t)floor(v * (double)d + 0.5);
        if ((double)n / (double)d != v) continue;
        ein__putf(out, "%lld/%lld", (long long)n, (long long)d);
        return;
    }
    ein__put_f64(out, v);
}

// `T[i0,i1] = [[1, 0], [1/2, -1]]`: easier to read than the guarded terms that define a table.
// False when `v` is no table.
EIN__FN bool ein__print_table(ein_ctx *ctx, ein__val v, ein__buf *out) {
    double entry[EIN__TABLE_EXTENT * EIN__TABLE_EXTENT];
    const ein__shape s = ctx->value[v.i].shape;
    if (!ein__is_table(ctx, v) || !ein__table_entries(ctx, v, entry)) return false;
    ein__putf(out, "%s[i0,i1] = [", ctx->value[v.i].name);
    for (int64_t i = 0; i < s.d[0]; i++) {
        ein__put(out, i ? ", [" : "[");
        for (int64_t j = 0; j < s.d[1]; j++) {
            if (j) ein__put(out, ", ");
            ein__put_fraction(out, entry[i * s.d[1] + j]);
        }
        ein__put(out, "]");
    }
    ein__put(out, "]");
    return true;
}

// Factor table[row, sum]: fills an axis.
static bool ein__basis_factor(const ein_ctx *ctx, const ein__scope *s, const ein__expr *e,
                              ein__basis_axis *a) {
    const ein__shape *shape = &ctx->value[e->val].shape;
    uint32_t slot;
    *a = (ein__basis_axis){.table = {e->val}, .rows = shape->d[0], .cols = shape->d[1]};
    if (e->bits || !ein__ix_is_iter(ctx, e->ix[1], &a->sum) || a->sum < s->nt) return false;
    if (s->n[a->sum] != a->cols) return false;
    const ein__index *f = ein__ix_get(ctx, e->ix[0]);
    if (f->n != 1 || f->c || f->q != 1 || f->t[0].k != 1) return false;
    const ein__atom *atom = ein__atom_get(ctx, f->t[0].atom);
    a->digit = atom->kind == EIN__MOD;
    if (a->digit && (atom->n != a->rows || !ein__ix_is_iter(ctx, (ein__ix){atom->ix}, &slot)))
        return false;
    if (!a->digit && (atom->kind != EIN__ITER || s->n[atom->slot] > a->rows)) return false;
    a->slot = a->digit ? slot : atom->slot;
    return a->slot < s->nt;
}

// Whether `ix` knows of iterator `slot` more than floor(slot / d); d is 0 where it must not occur.
static bool ein__knows_more(const ein_ctx *ctx, ein__ix ix, uint32_t slot, int64_t d) {
    const ein__index *f = ein__ix_get(ctx, ix);
    if (ein__ix_has_gather(ctx, ix)) return true;
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[k].atom);
        uint32_t bare;
        bool high = d && a->kind == EIN__FLOOR && a->n == d &&
                    ein__ix_is_iter(ctx, (ein__ix){a->ix}, &bare);
        if (a->kind == EIN__ITER ? a->slot == slot
                                 : !high && (ein__ix_uses(ctx, (ein__ix){a->ix}) >> slot & 1))
            return true;
    }
    return false;
}

static bool ein__basis_factors(const ein_ctx *ctx, const ein__scope *s, ein__ex ex, ein__basis *b) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__basis_factors(ctx, s, e->kid[0], b) && ein__basis_factors(ctx, s, e->kid[1], b);
    if (e->op != EIN__X_READ) return false;
    if (!ein__is_table(ctx, (ein__val){e->val})) {
        bool first = !b->read.i;
        b->read = ex;
        return first;
    }
    return b->n < 3 && ein__basis_factor(ctx, s, e, &b->axis[b->n++]);
}

// Recognises a small constant transform; its axes in the order of the summation iterators.
EIN__FN bool ein__match_basis(const ein_ctx *ctx, const ein__scope *s, ein__basis *b) {
    int64_t tile = 1;
    uint32_t sums = 0, slots = 0;
    *b = (ein__basis){0};
    if (s->reduce != EIN__R_SUM || !s->ns || s->ns > 3 || !ein__basis_factors(ctx, s, s->body, b) ||
        b->n != (int)s->ns || !b->read.i)
        return false;
    const ein__expr *x = ein__ex_get(ctx, b->read);
    for (int k = 0; k < b->n; k++) {
        const ein__basis_axis a = b->axis[k];
        if (sums >> a.sum & 1 || slots >> a.slot & 1) return false;
        sums |= 1u << a.sum;
        slots |= 1u << a.slot;
        tile *= a.rows > a.cols ? a.rows : a.cols;
        for (uint32_t i = 0; i < x->nix; i++)
            if (ein__knows_more(ctx, x->ix[i], a.slot, a.digit ? a.rows : 0)) return false;
    }
    for (int k = 1; k < b->n; k++)
        for (int j = k; j > 0 && b->axis[j].sum < b->axis[j - 1].sum; j--) {
            ein__basis_axis swap = b->axis[j];
            b->axis[j] = b->axis[j - 1];
            b->axis[j - 1] = swap;
        }
    return tile <= EIN__BASIS_TILE && ctx->value[x->val].dtype == EIN__F32;
}

// Arithmetic of a definition: of a transform, what its kernel does (axis after axis), else every
// node of the body at every place. `volume` is that of the scope.
EIN__FN int64_t ein__scope_flop(const ein_ctx *ctx, const ein__scope *s) {
    ein__basis b;
    bool basis = ein__match_basis(ctx, s, &b);
    int64_t flop = basis ? 0 : ein__ex_size(ctx, s->body), part[EIN__MAX_ITERS];
    uint32_t n = s->nt + s->ns;
    memcpy(part, s->n, sizeof part);
    if (basis) {
        int64_t cols[3] = {1, 1, 1}, rows[3] = {1, 1, 1};
        n = s->nt;
        for (int k = 0; k < b.n; k++) {
            const ein__basis_axis *a = &b.axis[k];
            cols[k] = a->cols;
            rows[k] = a->rows;
            part[a->slot] = a->digit ? (s->n[a->slot] + a->rows - 1) / a->rows : 1;
        }
        for (int k = 0; k < b.n; k++) {
            int64_t line = 2 * rows[k] * cols[k];
            for (int j = 0; j < b.n; j++) line *= j < k ? rows[j] : j > k ? cols[j] : 1;
            flop += line;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (ein__mul_overflows(flop, part[i], &flop)) return INT64_MAX / 16;
    return flop < INT64_MAX / 16 ? flop : INT64_MAX / 16;
}
