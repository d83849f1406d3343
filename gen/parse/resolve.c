// Ranges of an equation's indices, from `where`, the declared result, or bare uses.

// One bound index: of the result (reduce == NULL) or of a reduction. It runs over [lo, hi).
typedef struct ein__bound {
    const ein__ast *reduce;
    const char *name;
    ein__pos pos;
    int64_t lo, hi;
    bool known;
} ein__bound;

typedef struct ein__ranges {
    ein__bound *bound;  // stb_ds array: result indices first, then reductions in text order
} ein__ranges;

// What a name that is read stands for: the extents and first indices of its dimensions.
typedef struct ein__operand {
    const char *name;
    ein__shape shape;
    int64_t lo[EIN__MAX_RANK];
    ein__val val;  // lowering only
} ein__operand;

static const ein__operand *ein__operand_find(const ein__operand *list, const char *name) {
    for (ptrdiff_t i = arrlen(list); i-- > 0;)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

// Value of an integer expression without names; false when it overflows or holds a name.
static bool ein__const_index(const ein__ast *a, int64_t *v) {
    int64_t l, r;
    switch (a->kind) {
    case EIN__A_NUM: *v = a->inum; return a->integral;
    case EIN__A_NEG: return ein__const_index(a->kid[0], &l) && !ein__mul_overflows(l, -1, v);
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_MOD: break;
    case EIN__A_NAME:
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_CMP:
    case EIN__A_GUARD:
    case EIN__A_REDUCE:
    case EIN__A_CALL:
    case EIN__A_READ:
    case EIN__A_GATHER:
    case EIN__A_IDX:
    default: return false;
    }
    if (!ein__const_index(a->kid[0], &l) || !ein__const_index(a->kid[1], &r)) return false;
    if (a->kind == EIN__A_ADD) return !ein__add_overflows(l, r, v);
    if (a->kind == EIN__A_SUB) return !__builtin_sub_overflow(l, r, v);
    if (a->kind == EIN__A_MUL) return !ein__mul_overflows(l, r, v);
    if (r <= 0) return false;
    *v = a->kind == EIN__A_DIV ? ein__floordiv(l, r) : ein__floormod(l, r);
    return true;
}

// The innermost binding of `name`: a reduction of the chain `inside`, else the result's index.
static ein__bound *ein__bound_find(ein__ranges *r, const ein__ast **inside, int depth,
                                   const char *name) {
    for (int d = depth; d-- > 0;)
        for (ptrdiff_t i = 0; i < arrlen(r->bound); i++)
            if (r->bound[i].reduce == inside[d] && !strcmp(r->bound[i].name, name))
                return &r->bound[i];
    for (ptrdiff_t i = 0; i < arrlen(r->bound); i++)
        if (!r->bound[i].reduce && !strcmp(r->bound[i].name, name)) return &r->bound[i];
    return NULL;
}

typedef struct ein__resolver {
    ein_ctx *ctx;
    const ein__equation *eq;
    const ein__operand *operand;
    ein__ranges *ranges;
    bool use_bare;  // second walk: bare uses fill what is unknown
    int depth;
    const ein__ast *inside[EIN__MAX_ITERS];
} ein__resolver;

static void ein__resolve_bare(ein__resolver *z, const ein__ast *sub, int64_t lo, int64_t n) {
    if (sub->kind != EIN__A_NAME) return;
    ein__bound *b = ein__bound_find(z->ranges, z->inside, z->depth, sub->name);
    if (!b || b->known) return;
    b->lo = lo;
    b->hi = lo + n;
    b->known = true;
}

static bool ein__resolve_walk(ein__resolver *z, const ein__ast *a);

static bool ein__resolve_reduce(ein__resolver *z, const ein__ast *a) {
    if (z->depth >= EIN__MAX_ITERS) {
        ein__error(z->ctx, EIN_RESOURCES, a->pos, "reductions are nested too deep");
        return false;
    }
    if (!z->use_bare) {
        for (int i = 0; i + 1 < a->nkid; i++) {
            const char *name = a->kid[i]->name;
            if (ein__bound_find(z->ranges, z->inside, z->depth, name)) {
                ein__error(z->ctx, EIN_BAD_INPUT, a->kid[i]->pos, "index '%s' is bound twice",
                           name);
                return false;
            }
            for (int j = 0; j < i; j++)
                if (!strcmp(a->kid[j]->name, name)) {
                    ein__error(z->ctx, EIN_BAD_INPUT, a->kid[i]->pos, "index '%s' is bound twice",
                               name);
                    return false;
                }
            ein__bound b = {a, name, a->kid[i]->pos, 0, 0, false};
            arrput(z->ranges->bound, b);
        }
    }
    z->inside[z->depth++] = a;
    bool ok = ein__resolve_walk(z, a->kid[a->nkid - 1]);
    z->depth--;
    return ok;
}

// First walk: collects the reductions' indices. Second: gives bare uses to those without a range.
static bool ein__resolve_walk(ein__resolver *z, const ein__ast *a) {
    if (a->kind == EIN__A_REDUCE) return ein__resolve_reduce(z, a);
    if (a->kind == EIN__A_READ) {
        const ein__operand *t = ein__operand_find(z->operand, a->name);
        if (!t) {
            ein__error(z->ctx, EIN_BAD_INPUT, a->pos, "undefined tensor '%s'", a->name);
            return false;
        }
        if (a->nkid != t->shape.rank) {
            ein__error(z->ctx, EIN_BAD_INPUT, a->pos, "'%s' has %d dimensions, %d subscripts given",
                       a->name, t->shape.rank, a->nkid);
            return false;
        }
        if (z->use_bare)
            for (int i = 0; i < a->nkid; i++)
                ein__resolve_bare(z, a->kid[i], t->lo[i], t->shape.d[i]);
    }
    for (int i = 0; i < a->nkid; i++)
        if (!ein__resolve_walk(z, a->kid[i])) return false;
    return true;
}

// `where` clauses; each must name an index of the equation.
static bool ein__resolve_where(ein__resolver *z) {
    for (int k = 0; k < z->eq->nrange; k++) {
        const ein__range *w = &z->eq->range[k];
        int64_t lo, hi;
        if (!ein__const_index(w->lo, &lo) || !ein__const_index(w->hi, &hi) || hi <= lo) {
            ein__error(z->ctx, EIN_BAD_INPUT, w->pos,
                       "range of index '%s' is empty or not a number", w->name);
            return false;
        }
        if (lo < -EIN__MAX_ELEMENTS || hi > EIN__MAX_ELEMENTS) {
            ein__error(z->ctx, EIN_RESOURCES, w->pos,
                       "range %lld:%lld of index '%s' leaves %lld:%lld", (long long)lo,
                       (long long)hi, w->name, -(long long)EIN__MAX_ELEMENTS,
                       (long long)EIN__MAX_ELEMENTS);
            return false;
        }
        bool found = false;
        for (ptrdiff_t i = 0; i < arrlen(z->ranges->bound); i++) {
            ein__bound *b = &z->ranges->bound[i];
            if (strcmp(b->name, w->name)) continue;
            if (b->known && (b->lo != lo || b->hi != hi)) {
                ein__error(z->ctx, EIN_BAD_INPUT, w->pos,
                           "index '%s' has range %lld:%lld here and %lld:%lld elsewhere", w->name,
                           (long long)lo, (long long)hi, (long long)b->lo, (long long)b->hi);
                return false;
            }
            b->lo = lo;
            b->hi = hi;
            b->known = found = true;
        }
        if (!found) {
            ein__error(z->ctx, EIN_BAD_INPUT, w->pos, "'%s' is not an index of this equation",
                       w->name);
            return false;
        }
    }
    return true;
}

// Two bare uses of one index must agree when nothing else gives its range.
static bool ein__resolve_agree(ein__resolver *z, const ein__ast *a, const bool *fixed) {
    bool reduce = a->kind == EIN__A_REDUCE;
    if (reduce) z->inside[z->depth++] = a;
    bool ok = true;
    const ein__operand *t = a->kind == EIN__A_READ ? ein__operand_find(z->operand, a->name) : NULL;
    for (int i = 0; ok && i < a->nkid; i++) {
        const ein__ast *sub = a->kid[i];
        if (t && sub->kind == EIN__A_NAME) {
            ein__bound *b = ein__bound_find(z->ranges, z->inside, z->depth, sub->name);
            if (b && !fixed[b - z->ranges->bound] &&
                (b->lo != t->lo[i] || b->hi != t->lo[i] + t->shape.d[i])) {
                ein__error(z->ctx, EIN_BAD_INPUT, sub->pos,
                           "index '%s' runs over %lld:%lld here and %lld:%lld elsewhere: add "
                           "\"where %s in ...\"",
                           sub->name, (long long)t->lo[i], (long long)(t->lo[i] + t->shape.d[i]),
                           (long long)b->lo, (long long)b->hi, sub->name);
                ok = false;
            }
        }
        ok = ok && ein__resolve_agree(z, sub, fixed);
    }
    if (reduce) z->depth--;
    return ok;
}

static bool ein__resolve_known(ein__resolver *z) {
    for (ptrdiff_t i = 0; i < arrlen(z->ranges->bound); i++) {
        const ein__bound *b = &z->ranges->bound[i];
        if (b->known) continue;
        ein__error(z->ctx, EIN_BAD_INPUT, b->pos,
                   "range of index '%s' is not determined: add \"where %s in 0:N\"", b->name,
                   b->name);
        return false;
    }
    return true;
}

// Fills `ranges` for equation `eq` whose reads are `operand`s. `declared` is the result's shape
// when the model states it, else NULL. A `where` wins over bare uses (it may be smaller, or larger
// with `pad`); without one, all bare uses must agree.
EIN__FN bool ein__resolve(ein_ctx *ctx, const ein__equation *eq, const ein__operand *operand,
                          const ein__shape *declared, ein__ranges *ranges) {
    ein__resolver z = {.ctx = ctx, .eq = eq, .operand = operand, .ranges = ranges};
    for (int i = 0; i < eq->rank; i++) {
        for (int j = 0; j < i; j++)
            if (!strcmp(eq->index[i], eq->index[j])) {
                ein__error(ctx, EIN_BAD_INPUT, eq->index_pos[i], "index '%s' is bound twice",
                           eq->index[i]);
                return false;
            }
        ein__bound b = {NULL, eq->index[i], eq->index_pos[i], 0, 0, false};
        arrput(ranges->bound, b);
    }
    if (!ein__resolve_walk(&z, eq->body) || !ein__resolve_where(&z)) return false;
    if (declared && declared->rank == eq->rank)
        for (int i = 0; i < eq->rank; i++)
            if (!ranges->bound[i].known) {
                ranges->bound[i].hi = declared->d[i];
                ranges->bound[i].known = true;
            }
    bool *fixed = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ranges->bound); i++) arrput(fixed, ranges->bound[i].known);
    z.use_bare = true;
    bool ok = ein__resolve_walk(&z, eq->body) && ein__resolve_known(&z) &&
              ein__resolve_agree(&z, eq->body, fixed);
    arrfree(fixed);
    return ok;
}

// Operands of a graph node that is an equation, from its tensors.
static ein__operand *ein__node_operands(ein_ctx *ctx, const ein__node *node) {
    ein__operand *list = NULL;
    for (int i = 0; i < node->nin; i++) {
        const ein__tensor *t = &ctx->graph.tensor[node->in[i]];
        ein__operand o = {.name = node->in_name[i], .shape = t->shape};
        memcpy(o.lo, t->lo, sizeof o.lo);
        arrput(list, o);
    }
    return list;
}

// Shape and first indices of the result of an equation node.
EIN__FN bool ein__resolve_equation(ein_ctx *ctx, const ein__node *node, ein__shape *shape,
                                   int64_t *lo) {
    ein__ranges ranges = {0};
    ein__operand *operand = ein__node_operands(ctx, node);
    bool ok = ein__resolve(ctx, node->eq, operand, NULL, &ranges);
    shape->rank = node->eq->rank;
    for (int i = 0; ok && i < node->eq->rank; i++) {
        shape->d[i] = ranges.bound[i].hi - ranges.bound[i].lo;
        lo[i] = ranges.bound[i].lo;
    }
    arrfree(ranges.bound);
    arrfree(operand);
    return ok;
}
