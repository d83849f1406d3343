// Graph -> expressions. Every node, operator or equation, becomes tensor values: one reduction at
// the top of each, or none. After this module nothing knows operators' names.

typedef struct ein__bound_slot {
    const char *name;
    int64_t lo, n;
    int slot;
} ein__bound_slot;

typedef struct ein__lowerer {
    ein_ctx *ctx;
    const ein__equation *eq;
    ein__pos pos;  // of the node, for equations that have no place of their own
    const ein__operand *operand;
    const ein__ranges *ranges;
    const char *base;  // name that inner values derive theirs from
    int node, tensor;
    int nbind;
    ein__bound_slot bind[2 * EIN__MAX_ITERS];
} ein__lowerer;

static ein__pos ein__lower_pos(const ein__lowerer *l, ein__pos pos) {
    return pos.line ? pos : l->pos;
}

static ein__ix ein__lower_index(ein__lowerer *l, const ein__ast *a);
static ein__ex ein__lower_expr(ein__lowerer *l, const ein__ast *a);

// ------------------------------------------------------------------------------------ subscripts

static ein__ix ein__lower_index_name(ein__lowerer *l, const ein__ast *a) {
    for (int i = l->nbind; i-- > 0;) {
        const ein__bound_slot *b = &l->bind[i];
        if (!strcmp(b->name, a->name))
            return ein__ix_addc(l->ctx, ein__ix_iter(l->ctx, (uint32_t)b->slot, b->n), b->lo);
    }
    ein__error(l->ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos), "undefined index '%s'", a->name);
    return (ein__ix){0};
}

static ein__ix ein__lower_index_binary(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    ein__ix x = ein__lower_index(l, a->kid[0]);
    ein__ix y = x.i ? ein__lower_index(l, a->kid[1]) : x;
    int64_t c;
    if (!y.i) return y;
    if (a->kind == EIN__A_ADD) return ein__ix_add(ctx, x, y);
    if (a->kind == EIN__A_SUB) return ein__ix_sub(ctx, x, y);
    if (a->kind == EIN__A_MUL) {
        if (ein__ix_is_const(ctx, y, &c)) return ein__ix_scale(ctx, x, c);
        if (ein__ix_is_const(ctx, x, &c)) return ein__ix_scale(ctx, y, c);
        ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
                   "a subscript multiplies two indices; it must be affine");
        return (ein__ix){0};
    }
    if (!ein__ix_is_const(ctx, y, &c) || c <= 0) {
        ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
                   "the divisor of a subscript must be a positive constant");
        return (ein__ix){0};
    }
    return a->kind == EIN__A_DIV ? ein__ix_floordiv(ctx, x, c) : ein__ix_mod(ctx, x, c);
}

static ein__ix ein__lower_index(ein__lowerer *l, const ein__ast *a) {
    switch (a->kind) {
    case EIN__A_NUM:
        if (a->integral) return ein__ix_const(l->ctx, a->inum);
        break;
    case EIN__A_NAME: return ein__lower_index_name(l, a);
    case EIN__A_NEG: {
        ein__ix x = ein__lower_index(l, a->kid[0]);
        return x.i ? ein__ix_scale(l->ctx, x, -1) : x;
    }
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_MOD: return ein__lower_index_binary(l, a);
    case EIN__A_GATHER: {
        ein__ex read = ein__lower_expr(l, a->kid[0]);
        return read.i ? ein__ix_gather(l->ctx, read) : (ein__ix){0};
    }
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_CMP:
    case EIN__A_GUARD:
    case EIN__A_REDUCE:
    case EIN__A_CALL:
    case EIN__A_READ:
    case EIN__A_IDX:
    default: break;
    }
    ein__error(l->ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
               "a subscript holds something that is not an index");
    return (ein__ix){0};
}

// A whole subscript: what becomes of it while it is put into its place may meet limits too.
static ein__ix ein__lower_subscript(ein__lowerer *l, const ein__ast *a) {
    l->ctx->subscript = ein__lower_pos(l, a->pos);
    return ein__lower_index(l, a);
}

// ------------------------------------------------------------------------------------ guards

// A condition on indices as "`ix` is an integer in [0, n)", or its negation.
typedef struct ein__cond {
    ein__ix ix;
    int64_t n;
    bool negate, constant, value;
} ein__cond;

static ein__cond ein__cond_const(bool v) { return (ein__cond){{0}, 0, false, true, v}; }

// E % q == c: the lattice (E - c) / q, shifted so that its range starts at 0.
static ein__cond ein__cond_lattice(ein_ctx *ctx, ein__ix e, int64_t q, int64_t c) {
    if (c < 0 || c >= q) return ein__cond_const(false);
    const ein__index *ie = ein__ix_get(ctx, e);
    int64_t first = -ein__floordiv(-(ie->lo - c), q), last = ein__floordiv(ie->hi - c, q);
    if (last < first) return ein__cond_const(false);
    ein__ix ix = ein__ix_div(ctx, ein__ix_addc(ctx, e, -c), q);
    return (ein__cond){ein__ix_addc(ctx, ix, -first), last - first + 1, false, false, false};
}

static ein__cond ein__lower_cond(ein__lowerer *l, const ein__ast *cmp) {
    ein_ctx *ctx = l->ctx;
    const ein__ast *a = cmp->kid[0], *b = cmp->kid[1];
    const char *op = cmp->name;
    bool ne = !strcmp(op, "!="), eq = !strcmp(op, "==");
    ein__ix x, y = ein__lower_subscript(l, b);
    int64_t q, c;
    if (!y.i) return ein__cond_const(false);
    if ((eq || ne) && a->kind == EIN__A_MOD && ein__ix_is_const(ctx, y, &c)) {
        x = ein__lower_subscript(l, a->kid[0]);
        ein__ix m = x.i ? ein__lower_subscript(l, a->kid[1]) : x;
        if (!m.i) return ein__cond_const(false);
        if (ein__ix_is_const(ctx, m, &q) && q > 0) {
            ein__cond r = ein__cond_lattice(ctx, x, q, c);
            if (r.constant) r.value ^= ne;
            else r.negate = ne;
            return r;
        }
    }
    x = ein__lower_subscript(l, a);
    if (!x.i) return ein__cond_const(false);
    if (eq || ne) return (ein__cond){ein__ix_sub(ctx, x, y), 1, ne, false, false};
    bool less = op[0] == '<', strict = !op[1];
    ein__ix d = less ? ein__ix_sub(ctx, y, x) : ein__ix_sub(ctx, x, y);
    if (strict) d = ein__ix_addc(ctx, d, -1);
    if (!d.i) return ein__cond_const(false);
    int64_t hi = ein__ix_get(ctx, d)->hi;
    if (hi < 0) return ein__cond_const(false);
    return (ein__cond){d, hi + 1, false, false, false};
}

static ein__ex ein__apply_cond(ein_ctx *ctx, const ein__cond *c, ein__ex body) {
    if (c->constant) return c->value ? body : ein__ex_const(ctx, 0);
    if (!c->ix.i) return (ein__ex){0};
    return ein__ex_when(ctx, c->ix, c->n, c->negate, body);
}

// ------------------------------------------------------------------------------------ scalars

// Factors of a product and of its denominator; guards are taken out, since a guard means that the
// whole term is not evaluated.
typedef struct ein__product {
    const ein__ast *factor[EIN__MAX_ARGS];
    bool inverse[EIN__MAX_ARGS];
    const ein__ast *guard[EIN__MAX_ARGS];
    int nfactor, nguard;
} ein__product;

// Whether `a` is a quotient of indices and numbers, such as the weight of an interpolation. Behind
// `*` it stays one factor: what is computed once is then the quotient, not the division of each
// product.
static bool ein__is_weight(const ein__ast *a) {
    bool plain = a->kind == EIN__A_NUM || a->kind == EIN__A_IDX;
    if (plain || a->kind != EIN__A_DIV) return plain;
    return ein__is_weight(a->kid[0]) && ein__is_weight(a->kid[1]);
}

static bool ein__collect_factors(ein__lowerer *l, const ein__ast *a, ein__product *p) {
    if (p->nfactor >= EIN__MAX_ARGS || p->nguard >= EIN__MAX_ARGS) {
        ein__error(l->ctx, EIN_RESOURCES, ein__lower_pos(l, a->pos),
                   "a product has too many factors");
        return false;
    }
    if (a->kind == EIN__A_MUL) {
        if (!ein__collect_factors(l, a->kid[0], p)) return false;
        if (a->kid[1]->kind != EIN__A_DIV || !ein__is_weight(a->kid[1]))
            return ein__collect_factors(l, a->kid[1], p);
        if (p->nfactor < EIN__MAX_ARGS) p->factor[p->nfactor++] = a->kid[1];
        return true;
    }
    if (a->kind == EIN__A_DIV) {
        if (!ein__collect_factors(l, a->kid[0], p)) return false;
        if (p->nfactor >= EIN__MAX_ARGS) return true;
        p->inverse[p->nfactor] = true;
        p->factor[p->nfactor++] = a->kid[1];
        return true;
    }
    if (a->kind == EIN__A_GUARD) p->guard[p->nguard++] = a->kid[0];
    else p->factor[p->nfactor++] = a;
    return true;
}

static ein__ex ein__lower_product(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    ein__product p = {0};
    if (!ein__collect_factors(l, a, &p)) return (ein__ex){0};
    ein__ex body = {0};
    for (int i = 0; i < p.nfactor; i++) {
        ein__ex f = ein__lower_expr(l, p.factor[i]);
        if (!f.i) return f;
        if (!body.i && !p.inverse[i]) body = f;
        else
            body = ein__ex_binary(ctx, p.inverse[i] ? EIN__DIV : EIN__MUL,
                                  body.i ? body : ein__ex_const(ctx, 1), f);
        if (!body.i) return body;
    }
    if (!body.i) body = ein__ex_const(ctx, 1);
    for (int i = 0; i < p.nguard && body.i; i++) {
        ein__cond c = ein__lower_cond(l, p.guard[i]);
        if (ctx->status) return (ein__ex){0};
        body = ein__apply_cond(ctx, &c, body);
    }
    return body;
}

static const ein__padval *ein__find_pad(const ein__lowerer *l, const char *tensor) {
    for (int i = 0; i < l->eq->npad; i++)
        if (!strcmp(l->eq->pad[i].tensor, tensor)) return &l->eq->pad[i];
    return NULL;
}

enum { EIN__MAX_FORMULA = 24 };  // nodes of an expression that is computed where it is read

// Whether `ex`, of at most `*left` nodes, chooses between numbers by places alone, as masks do.
static bool ein__is_formula(const ein_ctx *ctx, ein__ex ex, int *left) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    bool is = e->op == EIN__X_CONST || e->op == EIN__X_IDX || e->op == EIN__X_SELECT ||
              (e->op == EIN__X_BINARY && (e->fn == EIN__ADD || e->fn == EIN__SUB ||
                                          e->fn == EIN__MUL || e->fn == EIN__MAX)) ||
              (e->op == EIN__X_UNARY && (e->fn == EIN__ABS || e->fn == EIN__NEG));
    if (!is || e->reads || --*left < 0) return false;
    for (uint32_t i = 0; i < e->nkid && is; i++) is = ein__is_formula(ctx, e->kid[i], left);
    return is;
}

// A value that is one number everywhere stands for that number, where it is read inside: scalars
// that are no weights are part of the program. As a tensor has it, with the digits of f32: products
// of two such numbers are exact, as proofs want them. So do a mask, one of truths too, which is 1
// or 0, and places for their expression.
static ein__ex ein__lower_number(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op != EIN__X_READ) return ex;
    const ein__value *v = ein__val_get(ctx, (ein__val){e->val});
    const ein__scope *s = v->kind == EIN__V_SCOPE ? ein__sc_get(ctx, v->scope) : NULL;
    double number;
    int left = EIN__MAX_FORMULA;
    if (!s || s->ns || !ein__is_formula(ctx, s->body, &left)) return ex;
    bool whole = v->dtype == EIN__I32 || v->dtype == EIN__I64;
    if (v->dtype != EIN__F32 && v->dtype != EIN__BOOL &&
        !(whole && ein__ex_get(ctx, s->body)->op == EIN__X_IDX))
        return ex;
    for (uint32_t i = 0; i < e->nix; i++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[i]);
        bool inside = f->q == 1 && f->lo >= 0 && f->hi < v->shape.d[i];
        if (!inside || ein__ix_has_gather(ctx, e->ix[i])) return ex;
    }
    if (ein__ex_is_const(ctx, s->body, &number)) return ein__ex_const(ctx, (double)(float)number);
    ein__ex formula = ein__ex_subst(ctx, s->body, e->ix, (int)s->nt);
    return formula.i ? formula : ex;
}

// Subscript i of the read `a` leaves lo..hi. One that is a number may be meant as other languages
// mean it.
static void ein__lower_outside(ein__lowerer *l, const ein__ast *a, int i, const ein__index *f,
                               int64_t lo, int64_t hi) {
    ein__pos pos = ein__lower_pos(l, a->kid[i]->pos);
    if (f->hi < 0 && lo == 0 && !f->n) {
        ein__error(l->ctx, EIN_BAD_INPUT, pos,
                   "%s axis %d: %lld is outside 0..%lld, and subscripts do not count from the end: "
                   "the last one is %lld; \"pad %s 0\" would make it read a 0",
                   a->name, i, (long long)f->lo, (long long)hi, (long long)hi, a->name);
        return;
    }
    ein__error(l->ctx, EIN_BAD_INPUT, pos,
               "%s axis %d: index spans %lld..%lld outside %lld..%lld; add \"pad %s 0\"", a->name,
               i, (long long)f->lo, (long long)f->hi, (long long)lo, (long long)hi, a->name);
}

static ein__ex ein__lower_read(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    const ein__operand *t = ein__operand_find(l->operand, a->name);
    const ein__padval *pad = ein__find_pad(l, a->name);
    ein__ix ix[EIN__MAX_RANK];
    EIN_ASSERT(t && a->nkid == t->shape.rank);
    for (int i = 0; i < a->nkid; i++) {
        ix[i] = ein__lower_subscript(l, a->kid[i]);
        if (!ix[i].i) return (ein__ex){0};
        const ein__index *f = ein__ix_get(ctx, ix[i]);
        int64_t lo = t->lo[i], hi = lo + t->shape.d[i] - 1;
        bool gather = a->kid[i]->kind == EIN__A_GATHER;
        if (!pad && !gather && (f->lo < lo || f->hi > hi)) {
            ein__lower_outside(l, a, i, f, lo, hi);
            return (ein__ex){0};
        }
        ix[i] = ein__ix_addc(ctx, ix[i], -lo);
    }
    return ein__lower_number(ctx, ein__ex_read(ctx, t->val, pad ? pad->value : 0, ix, a->nkid));
}

static ein__ex ein__lower_call(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    if (!strcmp(a->name, "select") && a->nkid == 3 && a->kid[0]->kind == EIN__A_CMP) {
        static const char *const cmp[] = {"==", "!=", "<", "<=", ">", ">="};
        ein__fn fn = EIN__EQ;
        for (int i = 0; i < 6; i++)
            if (!strcmp(a->kid[0]->name, cmp[i])) fn = (ein__fn)(EIN__EQ + i);
        ein__ex x = ein__lower_expr(l, a->kid[0]->kid[0]),
                y = ein__lower_expr(l, a->kid[0]->kid[1]);
        ein__ex p = ein__lower_expr(l, a->kid[1]), q = ein__lower_expr(l, a->kid[2]);
        if (!x.i || !y.i || !p.i || !q.i) return (ein__ex){0};
        return ein__ex_select(ctx, fn, x, y, p, q);
    }
    const char *best = NULL;
    int distance = 3;
    for (int fn = 0; fn < EIN__NFN; fn++) {
        const ein__fn_info *info = &ein__fn_table[fn];
        if (fn >= EIN__EQ && fn <= EIN__GE) continue;
        bool named = info->name[0] >= 'a' && info->name[0] <= 'z';
        if (!named) continue;
        ein__suggest(a->name, info->name, &best, &distance);
        if (strcmp(a->name, info->name)) continue;
        if (a->nkid != info->arity) {
            ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos), "%s takes %d argument%s",
                       a->name, info->arity, info->arity == 1 ? "" : "s");
            return (ein__ex){0};
        }
        ein__ex x = ein__lower_expr(l, a->kid[0]);
        if (!x.i || info->arity == 1) return x.i ? ein__ex_unary(ctx, (ein__fn)fn, x) : x;
        ein__ex y = ein__lower_expr(l, a->kid[1]);
        return y.i ? ein__ex_binary(ctx, (ein__fn)fn, x, y) : y;
    }
    ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
               best ? "unknown function '%s'; did you mean '%s'?" : "unknown function '%s'",
               a->name, best ? best : "");
    return (ein__ex){0};
}

// ------------------------------------------------------------------------------------ reductions

// Where an iterator occurs alone under floor or mod with a divisor of its extent: that divisor.
static int64_t ein__digit_of_index(ein_ctx *ctx, ein__ix ix, uint32_t slot, int64_t n) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *at = ein__atom_get(ctx, f->t[k].atom);
        if (at->kind != EIN__FLOOR && at->kind != EIN__MOD) continue;
        ein__ix inner = {at->ix};
        uint32_t s;
        if (ein__ix_is_iter(ctx, inner, &s) && s == slot && at->n < n && n % at->n == 0)
            return at->n;
        int64_t d = ein__digit_of_index(ctx, inner, slot, n);
        if (d) return d;
    }
    return 0;
}

static int64_t ein__digit_of(ein_ctx *ctx, ein__ex ex, uint32_t slot, int64_t n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nix; i++) {
        int64_t d = ein__digit_of_index(ctx, e->ix[i], slot, n);
        if (d) return d;
    }
    for (uint32_t i = 0; i < e->nkid; i++) {
        int64_t d = ein__digit_of(ctx, e->kid[i], slot, n);
        if (d) return d;
    }
    return 0;
}

// A reduction being built: its iterators by slot, and for each of the equation's iterators the form
// of the new ones that replaces it. Traversal slots come first.
typedef struct ein__digits {
    ein__scope s;
    ein__ix read[EIN__MAX_ITERS];  // of traversal slot k: form in the reader's iterators
} ein__digits;

// Splits iterator `slot` into (slot / d, slot % d), so that no floor or mod of it is left in a body
// with a reduction: what remains is affine, and the reader un-splits by a view.
static bool ein__split_digit(ein_ctx *ctx, ein__digits *g, uint32_t slot, int64_t d) {
    ein__scope *s = &g->s;
    uint32_t all = s->nt + s->ns;
    if (all + 1 > EIN__MAX_ITERS || (slot < s->nt && s->nt + 1 > EIN__MAX_RANK)) return false;
    ein__ix map[EIN__MAX_ITERS];
    int64_t n[EIN__MAX_ITERS] = {0};
    for (uint32_t i = 0, j = 0; i < all; i++, j++) {
        if (i != slot) {
            n[j] = s->n[i];
            map[i] = ein__ix_iter(ctx, j, s->n[i]);
            continue;
        }
        n[j] = s->n[i] / d;
        n[j + 1] = d;
        map[i] = ein__ix_add(ctx, ein__ix_scale(ctx, ein__ix_iter(ctx, j, n[j]), d),
                             ein__ix_iter(ctx, j + 1, d));
        j++;
    }
    s->body = ein__ex_subst(ctx, s->body, map, (int)all);
    memcpy(s->n, n, (all + 1) * sizeof *n);
    if (slot < s->nt) {
        ein__ix whole = g->read[slot];
        memmove(&g->read[slot + 2], &g->read[slot + 1], (s->nt - slot - 1) * sizeof *g->read);
        g->read[slot] = ein__ix_floordiv(ctx, whole, d);
        g->read[slot + 1] = ein__ix_mod(ctx, whole, d);
        s->nt++;
    } else {
        s->ns++;
    }
    return s->body.i != 0;
}

// Drops the traversal iterators of which the body has nothing left once it has their digits apart.
static bool ein__drop_digits(ein_ctx *ctx, ein__digits *g) {
    ein__scope *s = &g->s;
    uint32_t used = ein__ex_uses(ctx, s->body), all = s->nt + s->ns, nt = 0, j = 0;
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < all; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (i < s->nt && s->n[i] > 1 && !(used >> i & 1)) continue;
        map[i] = ein__ix_iter(ctx, j, s->n[i]);
        s->n[j] = s->n[i];
        if (i < s->nt) g->read[nt++] = g->read[i];
        j++;
    }
    s->nt = nt;
    if (j < all) s->body = ein__ex_subst(ctx, s->body, map, (int)all);
    return s->body.i != 0;
}

// Narrows `part`, values of reduction iterator `i`, to those for which guard `e` can hold.
static void ein__narrow_part(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, uint32_t i,
                             int64_t part[2]) {
    int64_t k = ein__ix_coef(ctx, e->ix[0], i);
    if (k == 0 || ein__ix_get(ctx, e->ix[0])->q != 1 || ein__ix_has_gather(ctx, e->ix[0])) return;
    ein__ix rest =
        ein__ix_add(ctx, e->ix[0], ein__ix_scale(ctx, ein__ix_iter(ctx, i, s->n[i]), -k));
    if (!rest.i || (ein__ix_uses(ctx, rest) >> i & 1)) return;
    const ein__index *r = ein__ix_get(ctx, rest);
    int64_t lo = -r->hi, hi = e->n - 1 - r->lo;  // of k * i
    int64_t least = k > 0 ? -ein__floordiv(-lo, k) : -ein__floordiv(hi, -k);
    int64_t most = k > 0 ? ein__floordiv(hi, k) : ein__floordiv(-lo, -k);
    if (part[0] < least) part[0] = least;
    if (part[1] > most) part[1] = most;
}

// Sums over the terms alone that guards of the whole term can leave: of sum(r in 0:3) [r < 2] f the
// sum(r in 0:2) f. What has no guard left is a contraction. Where these are most, as before the
// last place of a triangle, sizes that were chosen for vectors stay. False: an error.
static bool ein__drop_terms(ein_ctx *ctx, ein__scope *s) {
    enum { MOST = 75 };  // percent
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = s->nt; i < s->nt + s->ns && s->reduce == EIN__R_SUM; i++) {
        int64_t part[2] = {0, s->n[i] - 1};
        const ein__expr *e = ein__ex_get(ctx, s->body);
        for (; e->op == EIN__X_WHEN; e = ein__ex_get(ctx, e->kid[0]))
            if (!e->negate) ein__narrow_part(ctx, s, e, i, part);
        int64_t left = part[1] - part[0] + 1;
        uint32_t all = s->nt + s->ns, n = 0;
        if (left < 1 || left > ein__muldiv(s->n[i], MOST, 100)) continue;
        for (uint32_t k = 0; k < all; k++) {
            s->n[n] = k == i ? left : s->n[k];
            map[k] = ein__ix_iter(ctx, n, s->n[n]);
            if (k != i || left > 1) n++;
        }
        map[i] = ein__ix_addc(ctx, map[i], part[0]);
        s->body = ein__ex_subst(ctx, s->body, map, (int)all);
        if (!s->body.i) return false;
        if (left == 1) s->ns--, i--;
    }
    return true;
}

static const char *ein__inner_name(ein__lowerer *l, const char *suffix) {
    const char *name = ein__namef(l->ctx, "%s.%s", l->base, suffix);
    int taken = 1;
    for (ptrdiff_t i = arrlen(l->ctx->value); i-- > 1 && l->ctx->value[i].node == l->node;)
        if (!strcmp(l->ctx->value[i].name, name)) {
            name = ein__namef(l->ctx, "%s.%s%d", l->base, suffix, ++taken);
            i = arrlen(l->ctx->value);
        }
    return name;
}

// The type of a reduction's value inside an equation. Extrema of integers are compared with what
// they are of, so they must stay what they are.
static ein__dtype ein__inner_type(const ein_ctx *ctx, ein__red red, ein__ex body) {
    const ein__expr *e = ein__ex_get(ctx, body);
    if ((red != EIN__R_MAX && red != EIN__R_MIN) || !ein__ex_integral(ctx, body)) return EIN__F32;
    return e->op == EIN__X_READ ? ctx->value[e->val].dtype : EIN__I64;
}

// Makes the value of a reduction over `all` bound slots (the last `ns` of them reduced) and gives
// the read of it by the surrounding expression.
static ein__ex ein__lower_scope(ein__lowerer *l, ein__red red, ein__ex body, int nouter, int ns,
                                const char *suffix) {
    ein_ctx *ctx = l->ctx;
    uint32_t used = ein__ex_uses(ctx, body);
    ein__digits g = {.s = {.reduce = red}};
    ein__ix map[2 * EIN__MAX_ITERS];
    uint32_t slot = 0;
    for (int i = 0; i < nouter + ns; i++) {
        const ein__bound_slot *b = &l->bind[i];
        bool reduced = i >= nouter;
        map[b->slot] = ein__ix_const(ctx, 0);
        // Unit dimensions of the result are kept, so that the result can be this value itself.
        if (reduced ? b->n == 1 : b->n > 1 && !(used >> b->slot & 1)) continue;
        if (slot >= EIN__MAX_ITERS || (!reduced && slot >= EIN__MAX_RANK)) {
            ein__error(ctx, EIN_RESOURCES, l->pos, "an equation has too many indices");
            return (ein__ex){0};
        }
        if (!reduced) g.read[slot] = ein__ix_iter(ctx, (uint32_t)b->slot, b->n);
        map[b->slot] = ein__ix_iter(ctx, slot, b->n);
        g.s.n[slot++] = b->n;
        if (reduced) g.s.ns++;
        else g.s.nt++;
    }
    g.s.body = ein__ex_subst(ctx, body, map, nouter + ns);
    if (!g.s.body.i) return (ein__ex){0};
    if (ein__extent_of(&g.s, ~0u) > EIN__MAX_VOLUME) {
        ein__error(ctx, EIN_RESOURCES, l->pos, "a reduction has more than 2^60 terms in all");
        return (ein__ex){0};
    }
    if (!ein__drop_terms(ctx, &g.s)) return (ein__ex){0};
    for (uint32_t i = 0; i < g.s.nt + g.s.ns; i++) {
        int64_t d = ein__digit_of(ctx, g.s.body, i, g.s.n[i]);
        if (d && ein__split_digit(ctx, &g, i, d)) i = UINT32_MAX;
        else if (!g.s.body.i) return (ein__ex){0};
    }
    if (!ein__drop_digits(ctx, &g)) return (ein__ex){0};
    if (!g.s.ns) g.s.reduce = EIN__R_NONE;
    ein__shape shape = {.rank = (int)g.s.nt};
    for (uint32_t i = 0; i < g.s.nt; i++) shape.d[i] = g.s.n[i];
    ein__sc sc = ein__sc_make(ctx, &g.s);
    if (!sc.i) return (ein__ex){0};
    ein__val v = ein__val_new(ctx, ein__inner_name(l, suffix), EIN__V_SCOPE, l->tensor, sc, &shape,
                              ein__inner_type(ctx, red, g.s.body), l->node);
    return ein__lower_number(ctx, ein__ex_read(ctx, v, 0, g.read, (int)g.s.nt));
}

// A term without the constant that it is divided by, which goes to `*divisor`; as it is, and none,
// where there is no such factor.
static ein__ex ein__undivided(ein_ctx *ctx, ein__ex term, ein__ex *divisor) {
    const ein__expr e = *ein__ex_get(ctx, term);
    double c;
    ein__ex kid[2] = {{0}, {0}};
    if (e.op == EIN__X_WHEN) {
        kid[0] = ein__undivided(ctx, e.kid[0], divisor);
        return divisor->i ? ein__ex_when(ctx, e.ix[0], e.n, e.negate != 0, kid[0]) : term;
    }
    if (e.op != EIN__X_BINARY) return term;
    if (e.fn == EIN__DIV && ein__ex_is_const(ctx, e.kid[1], &c) && c != 0) {
        *divisor = e.kid[1];
        return e.kid[0];
    }
    for (int i = 0; i < 2 && e.fn == EIN__MUL && !divisor->i; i++) {
        kid[1 - i] = e.kid[1 - i];
        kid[i] = ein__undivided(ctx, e.kid[i], divisor);
    }
    return divisor->i ? ein__ex_binary(ctx, EIN__MUL, kid[0], kid[1]) : term;
}

static ein__ex ein__lower_reduce(ein__lowerer *l, const ein__ast *a) {
    static const char *const names[] = {"", "sum", "prod", "max", "min"};
    ein_ctx *ctx = l->ctx;
    int outer = l->nbind, ns = a->nkid - 1, red = 1;
    while (red < EIN__R_MIN && strcmp(names[red], a->name)) red++;
    if (outer + ns > 2 * EIN__MAX_ITERS) {
        ein__error(ctx, EIN_RESOURCES, ein__lower_pos(l, a->pos),
                   "an equation has too many indices");
        return (ein__ex){0};
    }
    for (ptrdiff_t i = 0; i < arrlen(l->ranges->bound); i++) {
        const ein__bound *b = &l->ranges->bound[i];
        if (b->reduce != a) continue;
        l->bind[l->nbind] = (ein__bound_slot){b->name, b->lo, b->hi - b->lo, l->nbind};
        l->nbind++;
    }
    ein__ex body = ein__lower_expr(l, a->kid[ns]);
    if (!body.i) return body;
    // What divides all terms divides their sum: what is left of them may be a contraction's.
    ein__ex divisor = {0};
    if (red == EIN__R_SUM) body = ein__undivided(ctx, body, &divisor);
    // A reduction whose body does not use an index still repeats the body; a sum counts.
    ein__ex r = ein__lower_scope(l, (ein__red)red, body, outer, ns, names[red]);
    l->nbind = outer;
    return r.i && divisor.i ? ein__ex_binary(ctx, EIN__DIV, r, divisor) : r;
}

static ein__ex ein__lower_expr(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    switch (a->kind) {
    case EIN__A_NUM: return ein__ex_const(ctx, a->num);
    case EIN__A_NEG: {
        ein__ex x = ein__lower_expr(l, a->kid[0]);
        return x.i ? ein__ex_unary(ctx, EIN__NEG, x) : x;
    }
    case EIN__A_ADD:
    case EIN__A_SUB: {
        ein__ex x = ein__lower_expr(l, a->kid[0]);
        if (!x.i) return x;
        ein__ex y = ein__lower_expr(l, a->kid[1]);
        if (!y.i) return y;
        return ein__ex_binary(ctx, a->kind == EIN__A_ADD ? EIN__ADD : EIN__SUB, x, y);
    }
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_GUARD: return ein__lower_product(l, a);
    case EIN__A_REDUCE: return ein__lower_reduce(l, a);
    case EIN__A_CALL: return ein__lower_call(l, a);
    case EIN__A_READ: return ein__lower_read(l, a);
    case EIN__A_IDX: {
        ein__ix x = ein__lower_subscript(l, a->kid[0]);
        return x.i ? ein__ex_idx(ctx, x) : (ein__ex){0};
    }
    case EIN__A_NAME:
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_MOD:
    case EIN__A_CMP:
    case EIN__A_GATHER:
    default: break;
    }
    ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
               "this is not a value; write idx(...) for an index, T[] for a scalar tensor");
    return (ein__ex){0};
}

// ------------------------------------------------------------------------------------ equations

// True when `ex` reads value `v` at exactly the bare iterators 0, 1, ..: the value is the result.
static bool ein__is_whole_read(ein_ctx *ctx, ein__ex ex, const ein__scope *s, ein__val *v) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op != EIN__X_READ) return false;
    const ein__value *p = &ctx->value[e->val];
    if (p->kind != EIN__V_SCOPE || p->shape.rank != (int)s->nt) return false;
    for (uint32_t i = 0; i < s->nt; i++)
        if (e->ix[i].i != ein__ix_iter(ctx, i, s->n[i]).i || p->shape.d[i] != s->n[i]) return false;
    *v = (ein__val){e->val};
    return true;
}

// Whether value `v`, which is made for an equation, can be its result of type `dtype` as it is. The
// integers that a reduction gives are stored as what they are: f32 on the way would round them.
static bool ein__has_type(const ein_ctx *ctx, ein__val v, ein__dtype dtype) {
    const ein__scope *s = ein__sc_get(ctx, ctx->value[v.i].scope);
    bool whole = dtype == EIN__F32 || (dtype > EIN__BF16 && dtype != EIN__BOOL);
    if (ctx->value[v.i].dtype == dtype) return true;
    return whole && s->reduce != EIN__R_NONE && ein__ex_integral(ctx, s->body);
}

// The value of one equation, of any type with EIN__NDTYPE. Inner reductions become values of their
// own; the result is a map over them, or the reduction itself when the equation is nothing else.
static ein__val ein__lower_equation(ein__lowerer *l, const char *name, ein__dtype dtype) {
    ein_ctx *ctx = l->ctx;
    ptrdiff_t before = arrlen(ctx->value);
    ein__scope s = {.nt = (uint32_t)l->eq->rank};
    ein__shape shape = {.rank = l->eq->rank};
    l->nbind = 0;
    for (int i = 0; i < l->eq->rank; i++) {
        const ein__bound *b = &l->ranges->bound[i];
        l->bind[l->nbind] = (ein__bound_slot){b->name, b->lo, b->hi - b->lo, i};
        l->nbind++;
        s.n[i] = shape.d[i] = b->hi - b->lo;
    }
    s.body = ein__lower_expr(l, l->eq->body);
    if (!s.body.i || ctx->status) return (ein__val){0};
    ein__val v;
    if (ein__is_whole_read(ctx, s.body, &s, &v) && (ptrdiff_t)v.i >= before &&
        (dtype == EIN__NDTYPE || ein__has_type(ctx, v, dtype))) {
        ctx->value[v.i].name = name;
        if (dtype != EIN__NDTYPE) ctx->value[v.i].dtype = dtype;
        return v;
    }
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    if (dtype == EIN__NDTYPE) dtype = EIN__F32;
    return ein__val_new(ctx, name, EIN__V_SCOPE, l->tensor, sc, &shape, dtype, l->node);
}

static bool ein__lower_user_equation(ein_ctx *ctx, int node) {
    const ein__node *n = &ctx->graph.node[node];
    ein__operand *operand = ein__node_operands(ctx, n);
    for (int i = 0; i < n->nin; i++) operand[i].val = ctx->tensor_value[n->in[i]];
    ein__ranges ranges = {0};
    const ein__tensor *t = &ctx->graph.tensor[n->out[0]];
    ein__lowerer l = {.ctx = ctx,
                      .eq = n->eq,
                      .pos = n->pos,
                      .operand = operand,
                      .ranges = &ranges,
                      .base = t->name,
                      .node = node,
                      .tensor = n->out[0]};
    ein__val v = {0};
    if (ein__resolve(ctx, n->eq, operand, NULL, &ranges))
        v = ein__lower_equation(&l, t->name, t->dtype);
    ctx->tensor_value[n->out[0]] = v;
    arrfree(ranges.bound);
    arrfree(operand);
    return v.i != 0;
}

// Which output of operator node `n` the formal name stands for, or -1 for a local of its
// definition.
static int ein__formal_output(ein_ctx *ctx, const ein__node *n, const char *name) {
    for (int k = 0; k < n->nout; k++)
        if (!strcmp(ein__op_formal(ctx, n, true, k), name)) return k;
    return -1;
}

static bool ein__lower_op_equation(ein_ctx *ctx, int node, const ein__equation *eq,
                                   ein__operand **operand) {
    const ein__node *n = &ctx->graph.node[node];
    int k = ein__formal_output(ctx, n, eq->result);
    const ein__tensor *t = &ctx->graph.tensor[n->out[k < 0 ? 0 : k]];
    ein__ranges ranges = {0};
    ein__lowerer l = {.ctx = ctx,
                      .eq = eq,
                      .pos = n->pos,
                      .operand = *operand,
                      .ranges = &ranges,
                      .base = t->name,
                      .node = node,
                      .tensor = n->out[k < 0 ? 0 : k]};
    ein__val v = {0};
    if (ein__resolve(ctx, eq, *operand, k < 0 ? NULL : &t->shape, &ranges))
        v = ein__lower_equation(&l, k < 0 ? ein__inner_name(&l, eq->result) : t->name,
                                k < 0 ? eq->dtype : t->dtype);
    arrfree(ranges.bound);
    if (!v.i) return false;
    if (k >= 0) ctx->tensor_value[n->out[k]] = v;
    ein__operand o = {.name = eq->result, .shape = ctx->value[v.i].shape, .val = v};
    arrput(*operand, o);
    return true;
}

static bool ein__lower_operator(ein_ctx *ctx, int node) {
    const ein__node *n = &ctx->graph.node[node];
    ein__buf text = {0};
    ein__operand *operand = NULL;
    bool ok = ein__op_equations(ctx, n, &text);
    for (int i = 0; ok && i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        ein__val v = ctx->tensor_value[n->in[i]];
        ein__operand o = {
            .name = ein__op_formal(ctx, n, false, i), .val = v, .shape = ctx->value[v.i].shape};
        arrput(operand, o);
    }
    ein__equation **eq = ok ? ein__parse_equations(ctx, text.s) : NULL;
    ok = ok && !ctx->status;
    for (ptrdiff_t i = 0; ok && i < arrlen(eq); i++)
        ok = ein__lower_op_equation(ctx, node, eq[i], &operand);
    arrfree(eq);
    arrfree(operand);
    ein__buf_free(&text);
    return ok;
}

// Values for every tensor of the graph, in ctx->tensor_value.
EIN__FN bool ein__lower(ein_ctx *ctx) {
    const ein__graph *g = &ctx->graph;
    ctx->tensor_value = EIN__NEW(&ctx->arena, ein__val, arrlen(g->tensor) + 1);
    for (ptrdiff_t i = 0; i < arrlen(g->tensor); i++) {
        const ein__tensor *t = &g->tensor[i];
        if (t->kind == EIN__T_VALUE) continue;
        ctx->tensor_value[i] =
            ein__val_new(ctx, t->name, t->kind == EIN__T_INPUT ? EIN__V_INPUT : EIN__V_WEIGHT,
                         (int)i, (ein__sc){0}, &t->shape, t->dtype, -1);
    }
    for (ptrdiff_t i = 0; i < arrlen(g->node); i++) {
        bool ok = g->node[i].op ? ein__lower_operator(ctx, (int)i)
                                : ein__lower_user_equation(ctx, (int)i);
        ctx->subscript = (ein__pos){0, 0};
        if (!ok) return false;
    }
    return !ctx->status;
}
