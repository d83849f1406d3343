// Norms (row operations) fused into products. A product sum(k) y[i,k] w[k,j] of weights w, with
//     y[i,k] = s[i] g[k] x[i,k] + sum(t) a[t,i] b[t,k]
// where s and a are functions of the row's sums of x and x^2, is by linearity
//     s[i] sum(k) x[i,k] (g[k] w[k,j]) + sum(t) a[t,i] sum(k) b[t,k] w[k,j]
// LayerNorm is such a y, RMSNorm, a division by a row's norm. What depends on weights alone is
// computed at load. The product's kernel reads all of its rows of x anyway: it adds up their sums
// as it loads them, and applies what is made of these behind the product. Where y is needed
// elsewhere, its blocks store it too, each a share of the columns.
//
// Where terms of a statistic would cancel (a variance), x is taken relative to the first element of
// its row, u[i,k] = x[i,k] - x[i,0], in the sums and in the product: a mean that is large beside
// the deviation then costs neither the sums nor rounded factors their digits.

enum { EIN__NORM_TERMS = 8 };

// row * col * u^degree: `row` of the rows' iterators, `col` of weights and of the others.
typedef struct ein__norm_term {
    ein__ex row, col;
    int degree;
} ein__norm_term;

typedef struct ein__norm_sum {
    bool ok;
    int n;
    ein__norm_term t[EIN__NORM_TERMS];
} ein__norm_sum;

typedef struct ein__normer {
    ein_ctx *ctx;
    ein__val map;           // y
    const ein__scope *m;    // its definition: rows first
    uint32_t rows;          // iterators that count them
    ein__ex x, first;       // the read of x; of its row's first element, or none: u is x
    bool shifted, cancels;  // `cancels`: some statistic is a sum of several terms
    ein__norm made;
    int depth;
} ein__normer;

enum { EIN__NORM_DEPTH = 8 };  // of statistics made of statistics

// ------------------------------------------------------------------------------------ values

static ein__val ein__norm_value(ein__normer *z, const char *suffix, ein__red red, int nt, int ns,
                                const int64_t *n, ein__ex body) {
    ein_ctx *ctx = z->ctx;
    const ein__value of = ctx->value[z->map.i];
    ein__scope s = {.reduce = red, .nt = (uint32_t)nt, .ns = (uint32_t)ns, .body = body};
    ein__shape shape = {.rank = nt};
    for (int i = 0; i < nt + ns; i++) s.n[i] = n[i];
    for (int i = 0; i < nt; i++) shape.d[i] = n[i];
    ein__sc sc = body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, ein__namef(ctx, "%s.%s", of.name, suffix), EIN__V_SCOPE, of.tensor, sc,
                        &shape, EIN__F32, of.node);
}

// `v` read at the first `n` iterators of the row operation.
static ein__ex ein__norm_read(ein__normer *z, ein__val v, uint32_t n) {
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t i = 0; i < n; i++) ix[i] = ein__ix_iter(z->ctx, i, z->m->n[i]);
    return v.i ? ein__ex_read(z->ctx, v, 0, ix, (int)n) : (ein__ex){0};
}

// u at the iterators of the row operation.
static ein__ex ein__norm_shifted(ein__normer *z) {
    return z->shifted ? ein__ex_binary(z->ctx, EIN__SUB, z->x, z->first) : z->x;
}

// What sums and product read of a row: x, where that has the row operation's dimensions, or a map
// that loads compute.
static ein__ex ein__norm_operand(ein__normer *z) {
    if (!z->shifted && ein__reads_in_place(z->ctx, ein__ex_get(z->ctx, z->x), z->m)) return z->x;
    if (!z->made.load.i)
        z->made.load = ein__norm_value(z, z->shifted ? "shifted" : "terms", EIN__R_NONE,
                                       (int)z->m->nt, 0, z->m->n, ein__norm_shifted(z));
    return ein__norm_read(z, z->made.load, z->m->nt);
}

// A row's sum of u, or of u^2.
static ein__ex ein__norm_reduced(ein__normer *z, bool square) {
    ein__val *v = square ? &z->made.square : &z->made.sum;
    if (!v->i) {
        ein__ex u = ein__norm_operand(z);
        if (square) u = ein__ex_unary(z->ctx, EIN__SQUARE, u);
        *v = ein__norm_value(z, square ? "squares" : "total", EIN__R_SUM, (int)z->rows,
                             (int)(z->m->nt - z->rows), z->m->n, u);
    }
    return ein__norm_read(z, *v, z->rows);
}

// ------------------------------------------------------------------------------------ recognising

static void ein__norm_add(ein__normer *z, ein__norm_sum *to, ein__norm_term t) {
    ein_ctx *ctx = z->ctx;
    to->ok &= t.row.i && t.col.i;
    for (int i = 0; i < to->n && to->ok; i++) {
        ein__norm_term *old = &to->t[i];
        if (old->col.i != t.col.i || old->degree != t.degree) continue;
        const ein__expr *e = ein__ex_get(ctx, t.row);
        bool minus = e->op == EIN__X_UNARY && e->fn == EIN__NEG;
        old->row =
            ein__ex_binary(ctx, minus ? EIN__SUB : EIN__ADD, old->row, minus ? e->kid[0] : t.row);
        to->ok = old->row.i != 0;
        return;
    }
    to->ok &= to->n < EIN__NORM_TERMS && t.degree <= 2;
    if (to->ok) to->t[to->n++] = t;
}

static ein__norm_sum ein__norm_times(ein__normer *z, const ein__norm_sum *a,
                                     const ein__norm_sum *b) {
    ein__norm_sum r = {.ok = a->ok && b->ok};
    for (int i = 0; i < a->n && r.ok; i++)
        for (int j = 0; j < b->n && r.ok; j++) {
            ein__norm_term t = {ein__ex_binary(z->ctx, EIN__MUL, a->t[i].row, b->t[j].row),
                                ein__ex_binary(z->ctx, EIN__MUL, a->t[i].col, b->t[j].col),
                                a->t[i].degree + b->t[j].degree};
            ein__norm_add(z, &r, t);
        }
    return r;
}

static ein__norm_sum ein__norm_terms(ein__normer *z, ein__ex ex);

// What a row's sum `r`, read at its own row, is in terms of the sums of u; none: it is no
// polynomial of degree 2 of x.
static ein__ex ein__norm_statistic(ein__normer *z, ein__val r) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, r);
    if (!s || s->reduce != EIN__R_SUM || s->nt != z->rows || s->nt + s->ns != z->m->nt ||
        z->depth >= EIN__NORM_DEPTH || ctx->value[r.i].weight_only)
        return (ein__ex){0};
    int64_t count = 1;
    for (uint32_t i = 0; i < z->m->nt; i++) {
        if (s->n[i] != z->m->n[i]) return (ein__ex){0};
        if (i >= z->rows) count *= s->n[i];
    }
    z->depth++;
    ein__norm_sum sum = ein__norm_terms(z, s->body);
    z->depth--;
    ein__ex all = ein__ex_const(ctx, 0);
    double one;
    for (int i = 0; i < sum.n && sum.ok && all.i; i++) {
        const ein__norm_term *t = &sum.t[i];
        if (!ein__ex_is_const(ctx, t->col, &one) || one != 1) return (ein__ex){0};
        ein__ex u =
            t->degree ? ein__norm_reduced(z, t->degree == 2) : ein__ex_const(ctx, (double)count);
        all = ein__ex_binary(ctx, EIN__ADD, all, ein__ex_binary(ctx, EIN__MUL, t->row, u));
    }
    z->cancels |= sum.n > 1;
    return sum.ok ? all : (ein__ex){0};
}

typedef struct ein__norm_reads {
    ein__normer *z;
    bool failed;
} ein__norm_reads;

static ein__ex ein__norm_replace(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__norm_reads *w = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = {e->val};
    if (ctx->value[v.i].weight_only) return ex;
    bool own = e->nix == w->z->rows && !e->bits;
    for (uint32_t k = 0; own && k < e->nix; k++)
        own = e->ix[k].i == ein__ix_iter(ctx, k, w->z->m->n[k]).i;
    ein__ex made = own ? ein__norm_statistic(w->z, v) : (ein__ex){0};
    w->failed |= !made.i;
    return made.i ? made : ex;
}

// x itself: the one read that depends on rows and columns and is no weight.
static ein__norm_sum ein__norm_leaf(ein__normer *z, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    ein__norm_sum r = {.ok = true};
    ein__ex one = ein__ex_const(ctx, 1);
    const ein__expr *e = ein__ex_get(ctx, ex);
    bool fits = e->op == EIN__X_READ && !ctx->value[e->val].weight_only && !e->bits &&
                ein__is_real(ctx, (ein__val){e->val}) && ein__reads_whole(ctx, e, z->m);
    if (!fits || (z->x.i && z->x.i != ex.i)) return (ein__norm_sum){.ok = false};
    if (!z->x.i) {
        ein__ix map[EIN__MAX_ITERS];
        for (uint32_t i = 0; i < z->m->nt; i++)
            map[i] = i < z->rows ? ein__ix_iter(ctx, i, z->m->n[i]) : ein__ix_const(ctx, 0);
        z->x = ex;
        z->first = ein__ex_subst(ctx, ex, map, (int)z->m->nt);
    }
    ein__norm_add(z, &r, (ein__norm_term){one, one, 1});
    if (z->shifted) ein__norm_add(z, &r, (ein__norm_term){z->first, one, 0});
    return r;
}

static ein__norm_sum ein__norm_quotient(ein__normer *z, ein__norm_sum a, ein__norm_sum b) {
    ein_ctx *ctx = z->ctx;
    a.ok &= b.ok && b.n == 1 && b.t[0].degree == 0;
    for (int i = 0; i < a.n && a.ok; i++) {
        a.t[i].row = ein__ex_binary(ctx, EIN__DIV, a.t[i].row, b.t[0].row);
        a.t[i].col = ein__ex_binary(ctx, EIN__DIV, a.t[i].col, b.t[0].col);
        a.ok = a.t[i].row.i && a.t[i].col.i;
    }
    return a;
}

// `ex` as a polynomial of u.
static ein__norm_sum ein__norm_terms(ein__normer *z, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__norm_sum r = {.ok = true}, b;
    ein__ex one = ein__ex_const(ctx, 1);
    uint32_t uses = ein__ex_uses(ctx, ex), rows = (1u << z->rows) - 1;
    if (!(uses & ~rows)) {
        ein__norm_reads w = {z, false};
        ein__ex row = ein__ex_replace_reads(ctx, ex, ein__norm_replace, &w);
        r.ok = !w.failed;
        ein__norm_add(z, &r, (ein__norm_term){row, one, 0});
        return r;
    }
    if (!(uses & rows) && ein__ex_weight_only(ctx, ex)) {
        ein__norm_add(z, &r, (ein__norm_term){one, ex, 0});
        return r;
    }
    if (e->op == EIN__X_UNARY && (e->fn == EIN__NEG || e->fn == EIN__SQUARE)) {
        r = ein__norm_terms(z, e->kid[0]);
        if (e->fn == EIN__SQUARE) return ein__norm_times(z, &r, &r);
        for (int i = 0; i < r.n; i++) r.t[i].row = ein__ex_unary(ctx, EIN__NEG, r.t[i].row);
        return r;
    }
    if (e->op != EIN__X_BINARY) return ein__norm_leaf(z, ex);
    uint32_t fn = e->fn;
    ein__ex right = e->kid[1];
    r = ein__norm_terms(z, e->kid[0]);
    if (!r.ok) return r;
    b = ein__norm_terms(z, right);
    if (fn == EIN__MUL) return ein__norm_times(z, &r, &b);
    if (fn == EIN__DIV) return ein__norm_quotient(z, r, b);
    r.ok &= b.ok && (fn == EIN__ADD || fn == EIN__SUB);
    for (int i = 0; i < b.n && r.ok; i++) {
        if (fn == EIN__SUB) b.t[i].row = ein__ex_unary(ctx, EIN__NEG, b.t[i].row);
        ein__norm_add(z, &r, b.t[i]);
    }
    return r;
}

// Map `v` as such a row operation whose first `rows` iterators count rows.
static bool ein__norm_match(ein_ctx *ctx, ein__val v, uint32_t rows, ein__normer *z,
                            ein__norm_sum *sum) {
    for (int shifted = 0; shifted < 2; shifted++) {
        *z = (ein__normer){
            .ctx = ctx, .map = v, .m = ein__scope_of(ctx, v), .rows = rows, .shifted = shifted};
        *sum = ein__norm_terms(z, z->m->body);
        int products = 0;
        for (int i = 0; i < sum->n; i++) products += sum->t[i].degree;
        if (!sum->ok || products != 1 || (!z->made.sum.i && !z->made.square.i)) return false;
        if (shifted || (sum->n == 1 && !z->cancels)) return true;
    }
    return false;
}

// ------------------------------------------------------------------------------------ rewriting

// A product and its factors, as the row operation's iterators meet its own.
typedef struct ein__norm_product {
    const ein__scope *s;
    const ein__expr *y, *w;
    ein__val read;  // what is read as y: itself, or a copy of it
    double alpha;
    ein__ix map[EIN__MAX_ITERS];  // by iterator of the row operation
    uint32_t rows;
} ein__norm_product;

// Whether `read` reads all of its value at iterators of its own, each once, or numbers of these;
// `*used` gets them.
static bool ein__norm_bare(ein_ctx *ctx, const ein__scope *s, const ein__expr *read,
                           uint32_t *used) {
    ein__digits_read found[EIN__MAX_ITERS] = {{0}};
    ein__ix map[EIN__MAX_ITERS];
    ein__scope all = *s;
    all.nt += all.ns;
    for (uint32_t i = 0; i < all.nt; i++) map[i] = ein__ix_const(ctx, 0);
    for (uint32_t k = 0; k < read->nix; k++) {
        int64_t n = ctx->value[read->val].shape.d[k];
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if (!ein__invert_subscript(ctx, &all, f, ein__ix_iter(ctx, k, n), n, found, map))
            return false;
    }
    *used = 0;
    for (uint32_t i = 0; i < all.nt; i++) {
        if (found[i].n && (found[i].n > 1 || found[i].size[0] != all.n[i])) return false;
        if (found[i].n) *used |= 1u << i;
    }
    return true;
}

// `read`, or what it reads by way of copies that have the type of what they copy.
static const ein__expr *ein__norm_source(ein_ctx *ctx, const ein__expr *read) {
    for (const ein__expr *of = ein__copy_of(ctx, (ein__val){read->val}); of;
         of = ein__copy_of(ctx, (ein__val){read->val})) {
        if (ctx->value[of->val].dtype != ctx->value[read->val].dtype) break;
        ein__ex ex = ein__rule_inline(ctx, (ein__val){read->val}, read);
        if (!ex.i || ein__ex_get(ctx, ex)->op != EIN__X_READ) break;
        read = ein__ex_get(ctx, ex);
    }
    return read;
}

// Product `v` whose first factor is a map of rows, all of which it sums over.
static bool ein__norm_product_of(ein_ctx *ctx, ein__val v, ein__norm_product *p) {
    const ein__expr *read[2];
    ein__tiled tiled;
    int64_t out[EIN__MAX_RANK];
    uint32_t used[2];
    p->s = ein__scope_of(ctx, v);
    if (!p->s || ctx->value[v.i].weight_only || !ein__two_factors(ctx, p->s, read, &p->alpha))
        return false;
    ein__dense_result(p->s, out);
    if (read[0]->val == read[1]->val || !ein__match_tiles(ctx, p->s, out, &tiled)) return false;
    p->read = (ein__val){tiled.read[0]->val};
    p->y = ein__norm_source(ctx, tiled.read[0]);
    p->w = tiled.read[1];
    uint32_t sums = ((1u << (p->s->nt + p->s->ns)) - 1) & ~((1u << p->s->nt) - 1);
    if (ctx->value[p->y->val].weight_only || !ctx->value[p->w->val].weight_only ||
        !ein__is_map(ctx, (ein__val){p->y->val}) || !ein__norm_bare(ctx, p->s, p->y, &used[0]) ||
        !ein__norm_bare(ctx, p->s, p->w, &used[1]) || (used[0] & sums) != sums ||
        (used[1] & sums) != sums || (used[0] & used[1] & ~sums))
        return false;
    p->rows = 0;
    for (uint32_t k = 0; k < p->y->nix; k++) {
        uint32_t uses = ein__ix_uses(ctx, p->y->ix[k]);
        bool sum = uses & sums;
        p->map[k] = p->y->ix[k];
        // A row is all that the product sums over, or its statistics are not the product's.
        if (sum && uses & ~sums) return false;
        if (!sum && p->rows == k) p->rows = k + 1;
        else if (!sum) return false;
    }
    return p->rows && p->rows < p->y->nix;
}

// Weights w times `col` (at the row operation's iterators) in the order of w's dimensions: as they
// are (a read at the product's iterators), or summed over the terms.
static ein__ex ein__norm_weights(ein__normer *z, const ein__norm_product *p, ein__ex col, bool sum,
                                 const char *name) {
    ein_ctx *ctx = z->ctx;
    ein__ex w = ein__ex_of(ctx, p->w);
    ein__val of = {p->w->val};
    const ein__scope *s = p->s;
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    int64_t n[EIN__MAX_ITERS];
    int nt = 0, ns = 0;
    double one;
    if (!sum && p->alpha == 1 && ein__ex_is_const(ctx, col, &one) && one == 1) return w;
    // What only converts is not to round twice.
    if (ein__copy_of(ctx, of)) w = ein__rule_inline(ctx, of, p->w);
    w = ein__ex_binary(ctx, EIN__MUL, ein__ex_subst(ctx, col, p->map, (int)z->m->nt), w);
    if (p->alpha != 1) w = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, p->alpha), w);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t k = 0; k < p->w->nix; k++) {
            uint32_t used = ein__ix_uses(ctx, p->w->ix[k]);
            for (uint32_t slot = 0; used >> slot; slot++) {
                if (!(used >> slot & 1) || (sum && slot >= s->nt) != (pass == 1)) continue;
                if (!pass && nt == EIN__MAX_RANK) return (ein__ex){0};
                n[nt + ns] = s->n[slot];
                map[slot] = ein__ix_iter(ctx, (uint32_t)(nt + ns), s->n[slot]);
                if (pass) ns++;
                else back[nt++] = ein__ix_iter(ctx, slot, s->n[slot]);
            }
        }
    w = w.i ? ein__ex_subst(ctx, w, map, (int)(s->nt + s->ns)) : w;
    ein__val v = ein__norm_value(z, name, sum ? EIN__R_SUM : EIN__R_NONE, nt, ns, n, w);
    if (v.i && !sum) ctx->value[v.i].dtype = ctx->value[of.i].dtype;
    return v.i ? ein__ex_read(ctx, v, 0, back, nt) : (ein__ex){0};
}

// The factor of a row as a read of one value: of those that are equal the same one.
static ein__ex ein__norm_row(ein__normer *z, ein__ex row) {
    ein_ctx *ctx = z->ctx;
    double c;
    if (ein__ex_is_const(ctx, row, &c)) return row;
    for (int i = 0; i < z->made.nrow; i++)
        if (ein__scope_of(ctx, z->made.row[i])->body.i == row.i)
            return ein__norm_read(z, z->made.row[i], z->rows);
    if (z->made.nrow == EIN__NORM_ROWS) return (ein__ex){0};
    const char *name = ein__namef(ctx, z->made.nrow ? "factor%d" : "factor", z->made.nrow + 1);
    ein__val v = ein__norm_value(z, name, EIN__R_NONE, (int)z->rows, 0, z->m->n, row);
    if (!v.i) return (ein__ex){0};
    z->made.row[z->made.nrow++] = v;
    return ein__norm_read(z, v, z->rows);
}

// The row operation's own result, from what the product's kernel knows of its rows.
static ein__val ein__norm_also(ein__normer *z, const ein__norm_sum *sum) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[z->map.i];
    ein__scope s = *z->m;
    s.body = ein__ex_const(ctx, 0);
    for (int i = 0; i < sum->n; i++) {
        ein__ex t = ein__norm_row(z, sum->t[i].row);
        if (sum->t[i].degree) t = ein__ex_binary(ctx, EIN__MUL, t, ein__norm_shifted(z));
        t = ein__ex_binary(ctx, EIN__MUL, t, sum->t[i].col);
        s.body = ein__ex_binary(ctx, EIN__ADD, s.body, t);
    }
    ein__sc sc = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype,
                        old.node);
}

// The product's value at its own iterators.
static ein__ex ein__norm_result(ein__normer *z, const ein__norm_product *p, ein__val v,
                                const ein__norm_sum *sum) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    ein__scope s = *p->s;
    ein__ex all = ein__ex_const(ctx, 0);
    ein__ix own[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s.nt; i++) own[i] = ein__ix_iter(ctx, i, s.n[i]);
    for (int i = 0; i < sum->n && all.i; i++) {
        const ein__norm_term *t = &sum->t[i];
        ein__ex row = ein__ex_subst(ctx, ein__norm_row(z, t->row), p->map, (int)z->m->nt);
        const char *name = ein__namef(ctx, t->degree ? "weights" : i ? "offset%d" : "offset", i);
        ein__ex w = ein__norm_weights(z, p, t->col, !t->degree, name);
        if (t->degree && w.i) {
            ein__ex u = ein__ex_subst(ctx, ein__norm_operand(z), p->map, (int)z->m->nt);
            s.body = ein__ex_binary(ctx, EIN__MUL, u, w);
            ein__sc sc = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
            if (!sc.i) return (ein__ex){0};
            z->made.dot = ein__val_new(ctx, ein__namef(ctx, "%s.rows", old.name), EIN__V_SCOPE,
                                       old.tensor, sc, &old.shape, old.dtype, old.node);
            const char *why = "norm taken into the product";
            if (old.why && *old.why) why = ein__namef(ctx, "%s; %s", old.why, why);
            ctx->value[z->made.dot.i].why = why;
            w = ein__ex_read(ctx, z->made.dot, 0, own, (int)s.nt);
        }
        all = ein__ex_binary(ctx, EIN__ADD, all, ein__ex_binary(ctx, EIN__MUL, row, w));
    }
    return z->made.dot.i ? all : (ein__ex){0};
}

// Product `v`, with map `m` behind it (or none), as one kernel with the row operation `z` in front
// of it. False: that cannot be written.
static bool ein__norm_finish(ein__normer *z, const ein__norm_sum *sum, ein__val v, ein__val m) {
    ein_ctx *ctx = z->ctx;
    ein__norm_product p;
    if (!ein__norm_product_of(ctx, v, &p) || p.rows != z->rows) return false;
    ein__ex body = ein__norm_result(z, &p, v, sum);
    ein__val as = m.i ? m : v;
    const ein__value old = ctx->value[as.i];
    ein__scope s = {.reduce = EIN__R_NONE, .nt = ein__scope_of(ctx, as)->nt};
    memcpy(s.n, ein__scope_of(ctx, as)->n, sizeof s.n);
    if (m.i && body.i) body = ein__ex_put(ctx, ein__scope_of(ctx, m)->body, v, body);
    s.body = body;
    ein__sc sc = body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (!sc.i) return false;
    z->made.out =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    ctx->value[z->made.out.i].why = old.why;
    return true;
}

// Whether there is a row operation in front of product `v`.
EIN__FN bool ein__norm_ahead(ein_ctx *ctx, ein__val v) {
    ein__norm_product p;
    ein__normer z;
    ein__norm_sum sum;
    return ein__rule_on(ctx, EIN__RULE_NORM) && ein__norm_product_of(ctx, v, &p) &&
           ein__norm_match(ctx, (ein__val){p.y->val}, p.rows, &z, &sum);
}

// The law as a whole: product `v` with all that its kernel computes. `also`: the row operation's
// result too. False: there is no row operation in front of it.
EIN__FN bool ein__rule_norm(ein_ctx *ctx, ein__val v, ein__val m, bool also, ein__norm *made) {
    ein__norm_product p;
    ein__normer z;
    ein__norm_sum sum;
    if (!ein__rule_on(ctx, EIN__RULE_NORM) || !ein__norm_product_of(ctx, v, &p)) return false;
    if (!ein__norm_match(ctx, (ein__val){p.y->val}, p.rows, &z, &sum)) return false;
    if (also) z.made.also = ein__norm_also(&z, &sum);
    if ((also && !z.made.also.i) || !ein__norm_finish(&z, &sum, v, m)) return false;
    *made = z.made;
    return true;
}

// ------------------------------------------------------------------------------------ choosing

// A product whose kernel is to compute the map `y` in front of it.
typedef struct ein__norm_choice {
    ein__val y, product, map;
    bool also, begun, done;
    ein__normer z;
    ein__norm_sum sum;
} ein__norm_choice;

// The kernel as it is priced, its result dense.
static ein__kernel ein__norm_kernel(ein_ctx *ctx, const ein__norm *n, int64_t *out) {
    ein__kernel k = {
        .kind = EIN__K_PRODUCT, .load = {n->load}, .size = ein__element_size(ctx, n->out)};
    ein__val v[8];
    int count = 0;
    v[count++] = n->dot;
    if (n->sum.i) v[count++] = n->sum;
    if (n->square.i) v[count++] = n->square;
    for (int i = 0; i < n->nrow; i++) v[count++] = n->row[i];
    v[count++] = n->out;
    for (int i = 0; i < count; i++) {
        k.s[k.n++] = ein__scope_of(ctx, v[i]);
        if (i + 1 < count) k.inner[i] = v[i];
    }
    k.nrow = count - 2;
    k.also = n->also;
    ein__dense_result(k.s[k.n - 1], out);
    k.out = out;
    return k;
}

// What the steps of `c` count as calls and kernels of their own.
static int64_t ein__norm_apart(ein__selector *z, const ein__norm_choice *c, ein__ex read) {
    ein_ctx *ctx = z->ctx;
    ein__kernel row = {.kind = z->kind[c->y.i], .size = ein__element_size(ctx, c->y)};
    const ein__scope *s = ein__scope_of(ctx, c->product);
    int64_t ps;
    bool fused = true;
    for (ptrdiff_t i = 0; i < arrlen(z->order) && row.n < EIN__MAX_ROW_VALS; i++) {
        if (z->home[z->order[i].i].i != c->y.i) continue;
        if (z->order[i].i != c->y.i) row.inner[row.n] = z->order[i];
        row.s[row.n++] = ein__scope_of(ctx, z->order[i]);
    }
    int64_t all = ein__cost_kernel(ctx, &row);
    ein__kind kind = ein__choose(ctx, s, c->map, read, !z->root[c->product.i], &ps);
    if (ein__is_call(kind) && c->map.i) fused = z->home[c->product.i].i == c->map.i;
    if (fused) return ein__cost_sum(all, ps);
    int64_t map = ein__kernel_cost(ctx, c->map);
    ps = ps > map ? ps - map : 0;
    all = ein__cost_sum(all, map);
    return ein__cost_sum(all, ps);
}

// Whether all that map `m` behind product `p` reads is there when `y` is wanted: weights, and what
// `y` reads itself.
static bool ein__norm_reads_early(ein_ctx *ctx, ein__val m, ein__val p, ein__val y) {
    bool all = true;
    const ein__ex *mine = ein__ex_reads(ctx, ein__scope_of(ctx, m)->body);
    const ein__ex *its = ein__ex_reads(ctx, ein__scope_of(ctx, y)->body);
    for (ptrdiff_t i = 0; i < arrlen(mine); i++) {
        uint32_t v = ein__ex_get(ctx, mine[i])->val;
        bool known = v == p.i || ctx->value[v].weight_only;
        for (ptrdiff_t k = 0; k < arrlen(its); k++) known |= ein__ex_get(ctx, its[k])->val == v;
        all &= known;
    }
    return all;
}

// The map that product `v` may compute behind itself.
static ein__val ein__norm_map(ein__selector *z, ein__val v, ein__ex *read) {
    ein_ctx *ctx = z->ctx;
    ein__val m = {0};
    if (!z->root[v.i]) m = ein__sole_reader(ctx, z->uses, &z->readers, v, read);
    if (!m.i || z->kind[m.i] == EIN__K_ROW || z->kind[m.i] == EIN__K_ATTENTION ||
        ein__copy_of(ctx, m))
        return (ein__val){0};
    for (ein__val other = z->first[m.i]; other.i; other = z->next[other.i])
        if (other.i != m.i && other.i != v.i) return (ein__val){0};
    return m;
}

// Whether `product` is better with the map in front of it: compared as plans are, since launches
// are what is saved, and so without the margin that a kernel has to keep against a call in its
// place.
static bool ein__norm_choose(ein__selector *z, ein__val product, ein__norm_choice *c) {
    ein_ctx *ctx = z->ctx;
    ein__norm_product p;
    ein__norm made;
    ein__ex read = {0};
    int64_t out[EIN__MAX_RANK];
    *c = (ein__norm_choice){.product = product};
    const ein__scope *s = ein__scope_of(ctx, c->product);
    if (!s || !ein__is_contraction(ctx, s) || !ein__norm_product_of(ctx, c->product, &p))
        return false;
    c->y = (ein__val){p.y->val};
    ein__kind kind = z->kind[z->home[c->product.i].i];
    if (kind == EIN__K_ATTENTION || z->home[c->y.i].i != c->y.i || z->kind[c->y.i] != EIN__K_ROW)
        return false;
    c->map = ein__norm_map(z, c->product, &read);
    c->also = z->root[c->y.i] || z->uses[c->y.i] > 1;
    for (ein__val v = p.read; v.i != c->y.i; v.i = ein__copy_of(ctx, v)->val)
        c->also |= z->root[v.i] || z->uses[v.i] > 1;
    if (c->also && c->map.i && !ein__norm_reads_early(ctx, c->map, c->product, c->y)) return false;
    if (!ein__rule_norm(ctx, c->product, c->map, c->also, &made)) return false;
    ein__kernel k = ein__norm_kernel(ctx, &made, out);
    return ein__cost_kernel(ctx, &k) < ein__norm_apart(z, c, read);
}

typedef struct ein__norm_choices {
    ein__norm_choice *list;  // stb_ds array
} ein__norm_choices;

// Value `v` in the program with the choices made.
static ein__val ein__rebuild_norms(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__norm_choices *all = z->user;
    ein__val old = v;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    v = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    for (ptrdiff_t i = 0; i < arrlen(all->list) && v.i; i++) {
        ein__norm_choice *c = &all->list[i];
        ein__norm_product p;
        if (c->y.i == old.i && !c->begun) {
            c->begun = ein__norm_match(ctx, v, c->z.rows, &c->z, &c->sum);
            if (c->begun && c->also) c->z.made.also = ein__norm_also(&c->z, &c->sum);
            if (c->z.made.also.i) return c->z.made.also;
        }
        ein__val last = c->map.i ? c->map : c->product;
        if (last.i != old.i || !c->begun) continue;
        ein__val product = c->map.i ? z->now[c->product.i] : v;
        if (!ein__norm_product_of(ctx, product, &p)) continue;
        c->done = ein__norm_finish(&c->z, &c->sum, product, c->map.i ? v : c->map);
        if (c->done) return c->z.made.out;
    }
    return v;
}

// Takes row operations into products where that is cheaper. Gives whether there are any: ctx->norm
// tells which; the roots are replaced then.
EIN__FN bool ein__take_norms(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__selector z = {.ctx = ctx, .free = true};
    ein__norm_choices all = {NULL};
    bool ok = true;
    ein__forget_norms(ctx);
    if (!ein__rule_on(ctx, EIN__RULE_NORM) || !ein__rule_on(ctx, EIN__RULE_FUSE)) return false;
    ein__select(&z, root, nroot);
    for (ptrdiff_t i = 0; i < arrlen(z.order); i++) {
        ein__norm_choice c;
        ein__norm_product p;
        if (!ein__norm_choose(&z, z.order[i], &c)) continue;
        for (ptrdiff_t k = 0; k < arrlen(all.list); k++) ok &= all.list[k].y.i != c.y.i;
        if (ok && ein__norm_product_of(ctx, c.product, &p)) {
            c.z.rows = p.rows;
            arrput(all.list, c);
        }
        ok = true;
    }
    ein__select_free(&z);
    bool any = arrlen(all.list) > 0;
    if (any) any = ein__run_pass_for(ctx, root, nroot, ein__rebuild_norms, &all);
    for (ptrdiff_t i = 0; i < arrlen(all.list); i++)
        if (all.list[i].done) ein__add_norm(ctx, all.list[i].z.made);
        else any = false;
    arrfree(all.list);
    return any && !ctx->status;
}
