// Maps that compute nothing: copies and concatenations. The values that they copy can mostly be
// stored where the copy is wanted, and then they cost nothing.

static const ein__scope *ein__scope_of(ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    return p->kind == EIN__V_SCOPE ? ein__sc_get(ctx, p->scope) : NULL;
}

static bool ein__is_map(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    return s && s->reduce == EIN__R_NONE;
}

// A map whose body is one read, of which its type has all.
static const ein__expr *ein__copy_of(ein_ctx *ctx, ein__val v) {
    if (!ein__is_map(ctx, v)) return NULL;
    const ein__expr *e = ein__ex_get(ctx, ein__scope_of(ctx, v)->body);
    return e->op == EIN__X_READ && !ein__narrows(ctx, v) ? e : NULL;
}

// Whether the read goes through all of its value in the order of the map's elements: at the map's
// own place, or a reshape of that.
static bool ein__reads_whole(ein_ctx *ctx, const ein__expr *x, const ein__scope *m) {
    const ein__shape *s = &ctx->value[x->val].shape;
    int64_t stride[EIN__MAX_RANK], want[EIN__MAX_RANK], n = 1;
    ein__factor f;
    ein__dense_strides(s, stride);
    ein__dense_result(m, want);
    if (!ein__address(ctx, x, stride, &f) || f.offset) return false;
    for (uint32_t k = 0; k < m->nt; k++) {
        if (m->n[k] > 1 && f.coef[k] != want[k]) return false;
        n *= m->n[k];
    }
    return n == ein__elements(s);
}

// A map whose body is one read times a constant, which is 1 for a copy.
static const ein__expr *ein__multiple_of(ein_ctx *ctx, ein__val v, double *factor) {
    const ein__expr *e = ein__copy_of(ctx, v);
    *factor = 1;
    if (e || !ein__is_map(ctx, v) || ein__narrows(ctx, v)) return e;
    e = ein__ex_get(ctx, ein__scope_of(ctx, v)->body);
    if (e->op == EIN__X_UNARY && e->fn == EIN__NEG) {
        *factor = -1;
        e = ein__ex_get(ctx, e->kid[0]);
    } else if (e->op == EIN__X_BINARY && e->fn == EIN__MUL &&
               ein__ex_is_const(ctx, e->kid[0], factor)) {
        e = ein__ex_get(ctx, e->kid[1]);
    } else if (e->op == EIN__X_BINARY && e->fn == EIN__MUL &&
               ein__ex_is_const(ctx, e->kid[1], factor)) {
        e = ein__ex_get(ctx, e->kid[0]);
    }
    return e->op == EIN__X_READ ? e : NULL;
}

// Whether a copy's read has its iterators alone and in their order: neighbours stay neighbours, or
// are one element that the copy repeats.
static bool ein__repeats(ein_ctx *ctx, const ein__expr *copy) {
    uint32_t next = 0, slot;
    for (uint32_t k = 0; k < copy->nix; k++) {
        if (!ein__ix_get(ctx, copy->ix[k])->n) continue;
        if (!ein__ix_is_iter(ctx, copy->ix[k], &slot) || slot < next) return false;
        next = slot + 1;
    }
    return true;
}

// Whether copy `read` finds lines that are looked up: the last dimension lies there as it is.
static bool ein__finds_lines(ein_ctx *ctx, const ein__expr *read, const ein__scope *m) {
    uint32_t slot;
    return read->nix && m->nt && ein__ix_is_iter(ctx, read->ix[read->nix - 1], &slot) &&
           slot + 1 == m->nt && ein__ix_has_gather(ctx, read->ix[0]);
}

// Whether map `p` is one element of what it copies along the outermost dimensions, and a window of
// it along the others: it lies there as it is, and its readers need no position. Steps of an
// unrolled recurrence then are launches of one kernel.
static bool ein__is_pick(ein_ctx *ctx, ein__val p) {
    const ein__expr *read = ein__copy_of(ctx, p);
    bool picks = false, rest = false;
    for (uint32_t k = 0; k < read->nix; k++) {
        int64_t n = ctx->value[read->val].shape.d[k];
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if (n == 1) continue;
        picks |= f->n == 0 && !rest;
        if (f->n == 0 && rest) return false;
        if (f->n == 0) continue;
        rest = true;
        const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
        if (f->n != 1 || f->q != 1 || f->t[0].k != 1 || a->kind != EIN__ITER) return false;
    }
    return picks && rest;
}

// Values that a map lays side by side along dimension `axis`: piece i begins at at[i], and one in
// its dimension k is scale[i][k] in the map's slot[i][k] (-1: k is one of a single element that the
// map does not have). A dimension may be a digit of the map's, as phases of what is enlarged are.
typedef struct ein__pieces {
    int n, axis;
    const ein__expr *read[EIN__MAX_ARGS];
    int64_t at[EIN__MAX_ARGS], size[EIN__MAX_ARGS], scale[EIN__MAX_ARGS][EIN__MAX_RANK];
    int8_t slot[EIN__MAX_ARGS][EIN__MAX_RANK];
} ein__pieces;

static bool ein__collect_pieces(ein_ctx *ctx, ein__ex ex, ein__pieces *p) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__ADD)
        return ein__collect_pieces(ctx, e->kid[0], p) && ein__collect_pieces(ctx, e->kid[1], p);
    if (e->op != EIN__X_READ || e->bits || p->n >= EIN__MAX_ARGS) return false;
    p->read[p->n++] = e;
    return true;
}

// Whether subscript `f` of piece i, in its dimension k, is an iterator of the map that is moved
// along `axis`, which piece i begins at then.
static bool ein__is_moved_along(const ein__scope *s, ein__pieces *p, int i, int k,
                                const ein__index *f, int64_t extent) {
    int slot = p->slot[i][k];
    if (f->c == 0 && extent == s->n[slot]) return true;
    if (p->axis >= 0 && p->axis != slot) return false;
    p->axis = slot;
    p->at[i] = -f->c;
    p->size[i] = extent;
    return true;
}

// Whether piece i is read at the map's own iterators, moved along `axis` alone, or at digits of the
// others.
static bool ein__is_piece(ein_ctx *ctx, const ein__scope *s, ein__pieces *p, int i) {
    const ein__shape *part = &ctx->value[p->read[i]->val].shape;
    ein__digits_read found[EIN__MAX_RANK];
    uint32_t covered = 0;
    memset(found, 0, s->nt * sizeof *found);
    for (int k = 0; k < part->rank; k++) {
        const ein__index *f = ein__ix_get(ctx, p->read[i]->ix[k]);
        uint32_t slot;
        int64_t size;
        p->slot[i][k] = -1;
        p->scale[i][k] = 1;
        if (f->n == 0 && f->c == 0 && part->d[k] == 1) continue;
        if (f->n != 1 || f->q != 1 || f->t[0].k != 1) return false;
        const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
        if (a->kind != EIN__ITER) {
            if (f->c || !ein__take_digit(ctx, s, a, found, &slot, &p->scale[i][k], &size) ||
                size != part->d[k])
                return false;
            p->slot[i][k] = (int8_t)slot;
            continue;
        }
        if (a->slot >= s->nt || (covered >> a->slot & 1)) return false;
        covered |= 1u << a->slot;
        p->slot[i][k] = (int8_t)a->slot;
        if (!ein__is_moved_along(s, p, i, k, f, part->d[k])) return false;
    }
    for (uint32_t t = 0; t < s->nt; t++) {
        bool whole = covered >> t & 1 ? !found[t].n : ein__digits_whole(&found[t], s->n[t]);
        if (!whole && (s->n[t] > 1 || found[t].n)) return false;
    }
    return p->axis >= 0 && p->size[i] > 0;
}

// Whether map `v` lays other values side by side along one dimension, filling it exactly.
EIN__FN bool ein__is_concat(ein_ctx *ctx, ein__val v, ein__pieces *p) {
    const ein__scope *s = ein__scope_of(ctx, v);
    memset(p, 0, sizeof *p);
    p->axis = -1;
    if (!s || s->reduce != EIN__R_NONE || !ein__collect_pieces(ctx, s->body, p) || p->n < 2)
        return false;
    int64_t total = 0;
    for (int i = 0; i < p->n; i++) {
        if (!ein__is_piece(ctx, s, p, i)) return false;
        total += p->size[i];
        if (p->at[i] < 0 || p->at[i] + p->size[i] > s->n[p->axis]) return false;
        for (int j = 0; j < i; j++) {
            if (p->read[j]->val == p->read[i]->val) return false;
            if (p->at[i] < p->at[j] + p->size[j] && p->at[j] < p->at[i] + p->size[i]) return false;
        }
    }
    return total == s->n[p->axis];
}

EIN__FN bool ein__joins(ein_ctx *ctx, ein__val v) {
    ein__pieces p;
    return ein__is_concat(ctx, v, &p);
}
