// Concatenations that begin alike, as in densely connected blocks (DenseNet): each becomes a
// concatenation of the longest earlier one that it begins with, and of the rest. Then all of them
// are views of the last one's memory, and nothing is copied (layout.c).

enum { EIN__NEST_LOOKS = 64 };  // concatenations that one is compared with

// Pieces in the order in which they lie.
static void ein__sort_pieces(ein__pieces *p) {
    for (int i = 1; i < p->n; i++)
        for (int j = i; j > 0 && p->at[j - 1] > p->at[j]; j--) {
            const ein__expr *read = p->read[j];
            int64_t at = p->at[j], size = p->size[j];
            p->read[j] = p->read[j - 1];
            p->at[j] = p->at[j - 1];
            p->size[j] = p->size[j - 1];
            p->read[j - 1] = read;
            p->at[j - 1] = at;
            p->size[j - 1] = size;
        }
}

// Whether both read the same value, along the same dimensions; of `axis`, which one has more of,
// there are no digits.
static bool ein__same_piece(ein_ctx *ctx, const ein__expr *a, const ein__expr *b, int axis) {
    if (a->val != b->val) return false;
    for (uint32_t k = 0; k < a->nix; k++) {
        uint32_t uses = ein__ix_uses(ctx, a->ix[k]);
        bool same =
            uses >> axis & 1 ? uses == ein__ix_uses(ctx, b->ix[k]) : a->ix[k].i == b->ix[k].i;
        if (!same) return false;
    }
    return true;
}

// Whether concatenation `p`, of the shape of `v`, begins with `first`, a shorter one of shape `of`.
static bool ein__begins_with(ein_ctx *ctx, const ein__pieces *p, const ein__shape *shape,
                             const ein__pieces *first, const ein__shape *of) {
    if (first->n >= p->n || first->axis != p->axis || of->rank != shape->rank) return false;
    for (int k = 0; k < shape->rank; k++)
        if (k != p->axis && of->d[k] != shape->d[k]) return false;
    for (int i = 0; i < first->n; i++)
        if (!ein__same_piece(ctx, first->read[i], p->read[i], p->axis) || first->at[i] != p->at[i])
            return false;
    return true;
}

// Whether what computes the pieces can store them side by side.
static bool ein__pieces_computed(ein_ctx *ctx, const ein__pieces *p) {
    for (int i = 0; i < p->n; i++) {
        ein__val v = {p->read[i]->val};
        if (!ein__scope_of(ctx, v) || ctx->value[v.i].weight_only || ein__copy_of(ctx, v))
            return false;
    }
    return true;
}

// Concatenation `p`, value `v`, as `first` and what `p` has behind it.
static ein__ex ein__nested_body(ein_ctx *ctx, ein__val v, const ein__pieces *p, ein__val first,
                                int n) {
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix at[EIN__MAX_RANK];
    for (uint32_t k = 0; k < s->nt; k++) at[k] = ein__ix_iter(ctx, k, s->n[k]);
    ein__ex body = ein__ex_read(ctx, first, 0, at, (int)s->nt);
    for (int i = n; body.i && i < p->n; i++)
        body = ein__ex_binary(ctx, EIN__ADD, body, ein__ex_of(ctx, p->read[i]));
    return body;
}

// The longest concatenation so far that `p`, value `v`, begins with, and how many pieces it has.
static ein__val ein__longest_start(const ein__pass *z, ein__val v, const ein__pieces *p, int *n) {
    ein_ctx *ctx = z->ctx;
    const ein__shape *shape = &ctx->value[v.i].shape;
    ein__val found = {0};
    ptrdiff_t looks = arrlen(z->joined) < EIN__NEST_LOOKS ? arrlen(z->joined) : EIN__NEST_LOOKS;
    *n = 1;
    for (ptrdiff_t i = arrlen(z->joined) - looks; i < arrlen(z->joined); i++) {
        ein__pieces first;
        const ein__nested *j = &z->joined[i];
        if (ctx->value[j->flat.i].dtype != ctx->value[v.i].dtype) continue;
        if (!ein__is_concat(ctx, j->flat, &first) || first.n <= *n) continue;
        ein__sort_pieces(&first);
        if (!ein__begins_with(ctx, p, shape, &first, &ctx->value[j->flat.i].shape)) continue;
        found = j->now;
        *n = first.n;
    }
    return found;
}

// A concatenation of which pieces are neighbours in another tensor reads these as one, so that it
// may still be stored piece by piece.
static ein__val ein__rebuild_pieces(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__pieces was, is;
    z->self = v;
    if (ein__is_concat(ctx, v, &was)) {
        z->copies_only = true;
        ein__ex seen = ein__ex_replace_reads(ctx, s->body, ein__rebuild_read, z);
        z->copies_only = false;
        ein__val joined = seen.i ? ein__with_body(z, v, seen) : (ein__val){0};
        if (!joined.i || (ein__is_concat(ctx, joined, &is) && is.n < was.n)) return joined;
    }
    ein__ex body = ein__body_now(z, s);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

static ein__val ein__rebuild_nested(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__pieces p;
    z->self = v;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    v = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    if (!v.i || !ein__is_concat(ctx, v, &p) || !ein__pieces_computed(ctx, &p)) return v;
    ein__sort_pieces(&p);
    int n;
    ein__val first = ein__longest_start(z, v, &p, &n);
    ein__nested j = {v, v};
    if (first.i) {
        ctx->nests = true;
        body = ein__nested_body(ctx, v, &p, first, n);
        j.now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    }
    if (j.now.i) arrput(z->joined, j);
    return j.now;
}
