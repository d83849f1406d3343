// Summation splitting: part of a sum goes to an inner value (EinNet section 4.1, OLLIE section 4).
// The inner value is made in normal form, so variable substitution and boundary tightening happen
// on the way.

// The reductions of `mask` as the printer names them: "r0,r2".
static void ein__put_slots(ein__buf *b, const ein__scope *s, uint32_t mask) {
    const char *comma = "";
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(mask >> i & 1)) continue;
        ein__putf(b, "%sr%d", comma, (int)(i - s->nt));
        comma = ",";
    }
}

// Scope `s` without the reductions in `gone`.
static bool ein__without_sums(ein_ctx *ctx, const ein__scope *s, uint32_t gone, ein__ex body,
                              ein__scope *t) {
    ein__ix map[EIN__MAX_ITERS];
    *t = (ein__scope){.nt = s->nt};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (gone >> i & 1) continue;
        uint32_t slot = i < s->nt ? i : t->nt + t->ns++;
        t->n[slot] = s->n[i];
        map[i] = ein__ix_iter(ctx, slot, s->n[i]);
    }
    t->reduce = t->ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    t->body = ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
    return t->body.i != 0;
}

// Sums over r that read a[(E + k*r)/q], k = 1 or -1: of q neighbouring r one gives an integer,
// which is q*R + p with p a function of E (the one-point rule); the others read padding, which is
// 0.
typedef struct ein__gaps {
    const ein__scope *s;
    ein__scope t;
    ein__ix e[EIN__MAX_ITERS];    // by slot r: E, or none
    ein__ix map[EIN__MAX_ITERS];  // by old slot, in new iterators
} ein__gaps;

// Finds r and E in subscript `f`; the result's iterators alone may be in E. False: nothing to do.
static bool ein__gap_of(ein_ctx *ctx, ein__gaps *g, const ein__index *f, uint32_t *r) {
    ein__ix e = ein__ix_const(ctx, f->c);
    int found = 0;
    for (uint32_t i = 0; i < f->n && f->q > 1; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__ITER) return false;
        if (a->slot >= g->s->nt) {
            *r = a->slot;
            found += f->t[i].k == 1 || f->t[i].k == -1 ? 1 : 2;
        } else {
            e = ein__ix_add(ctx, e,
                            ein__ix_scale(ctx, ein__ix_iter(ctx, a->slot, a->n), f->t[i].k));
        }
    }
    if (found != 1 || !e.i) return false;
    g->e[*r] = e;
    return true;
}

// Takes the gaps of every read in a product. False: a sum has several, or with as many terms as
// the new iterators count some would be added whose r is beyond the last.
static bool ein__gaps_of(ein_ctx *ctx, ein__gaps *g, ein__ex ex, uint32_t *padded, uint32_t *gaps) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_CONST) return true;
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__gaps_of(ctx, g, e->kid[0], padded, gaps) &&
               ein__gaps_of(ctx, g, e->kid[1], padded, gaps);
    if (e->op != EIN__X_READ) return false;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        uint32_t r;
        if (f->q > 1 && !e->bits && ein__gap_of(ctx, g, f, &r)) {
            int64_t q = f->q, n = g->s->n[r];
            bool up = ein__ix_coef(ctx, e->ix[k], r) == 1;
            if (*gaps >> r & 1) return false;
            *gaps |= 1u << r;
            ein__ix phase = ein__ix_mod(ctx, ein__ix_scale(ctx, g->e[r], up ? -1 : 1), q);
            g->t.n[r] = ein__ceil(n, q);
            ein__ix turn = ein__ix_scale(ctx, ein__ix_iter(ctx, r, g->t.n[r]), q);
            g->map[r] = ein__ix_add(ctx, turn, phase);
            if (!g->map[r].i) return false;
            if (n % q == 0) *padded |= 1u << r;
        } else if (ein__ix_is_iter(ctx, e->ix[k], &r) && !e->bits &&
                   ctx->value[e->val].shape.d[k] == g->s->n[r]) {
            *padded |= 1u << r;
        }
    }
    return true;
}

static ein__ex ein__over_gaps(ein_ctx *ctx, const ein__gaps *g, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__ix ix[EIN__MAX_RANK];
    if (e->op == EIN__X_CONST) return ex;
    if (e->op == EIN__X_BINARY) {
        ein__ex a = ein__over_gaps(ctx, g, e->kid[0]), b = ein__over_gaps(ctx, g, e->kid[1]);
        return a.i && b.i ? ein__ex_binary(ctx, EIN__MUL, a, b) : (ein__ex){0};
    }
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        ein__gaps copy = *g;
        uint32_t r;
        ix[k] = ein__ix_subst(ctx, e->ix[k], g->map, (int)(g->s->nt + g->s->ns));
        if (f->q > 1 && !e->bits && ein__gap_of(ctx, &copy, f, &r)) {
            int64_t up = ein__ix_coef(ctx, e->ix[k], r);
            ein__ix at =
                ein__ix_floordiv(ctx, ein__ix_addc(ctx, g->e[r], up == 1 ? f->q - 1 : 0), f->q);
            ein__ix turn = ein__ix_scale(ctx, ein__ix_iter(ctx, r, g->t.n[r]), up);
            ix[k] = ein__ix_add(ctx, at, turn);
        }
        if (!ix[k].i) return (ein__ex){0};
    }
    return ein__ex_read(ctx, (ein__val){e->val}, ein__f64_of(e->bits), ix, (int)e->nix);
}

// Sum `s` over the terms that are there.
static bool ein__without_gaps(ein_ctx *ctx, const ein__scope *s, ein__scope *t) {
    ein__gaps g = {.s = s, .t = *s};
    uint32_t padded = 0, gaps = 0;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) g.map[i] = ein__ix_iter(ctx, i, s->n[i]);
    if (!ein__gaps_of(ctx, &g, s->body, &padded, &gaps) || !gaps || (gaps & ~padded)) return false;
    *t = g.t;
    t->body = ein__over_gaps(ctx, &g, s->body);
    return t->body.i != 0;
}

// Every proper subset of the summation goes to an inner value; factors free of it stay outside.
static void ein__rule_split(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (d.place || s->ns < 2 || s->ns > EIN__MAX_SPLIT || !ein__two_factors(ctx, s, read, &alpha))
        return;
    for (uint32_t sub = 1; sub + 1 < 1u << s->ns; sub++) {
        uint32_t inner = sub << s->nt;
        ein__ex *in = NULL, outside = {0};
        for (int k = 0; k < 2; k++) {
            uint32_t uses = 0;
            for (uint32_t i = 0; i < read[k]->nix; i++) uses |= ein__ix_uses(ctx, read[k]->ix[i]);
            if (uses & inner) arrput(in, ein__ex_of(ctx, read[k]));
            else outside = ein__ex_of(ctx, read[k]);
        }
        ein__buf why = {0};
        ein__put(&why, "summation splitting (");
        ein__put_slots(&why, s, inner);
        ein__put(&why, " inside), variable substitution");
        const char *rule = ein__name(ctx, why.s);
        ein__buf_free(&why);
        // Substitution that enlarges the box is one more way, not the normal form.
        ein__ex before = {0};
        for (int64_t growth = 100; growth <= 200; growth += 100) {
            ein__ex w = ein__inner_value(z, s, in, inner, growth, "part", from, rule);
            if (!w.i || w.i == before.i) continue;
            before = w;
            ein__ex body = outside.i ? ein__ex_binary(ctx, EIN__MUL, outside, w) : w;
            if (alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
            ein__scope t;
            if (!ein__without_sums(ctx, s, inner, body, &t)) continue;
            ein__add_def(z, d.cls, &t, from, "summation splitting", d.place);
            ein__scope dense;
            if (ein__without_gaps(ctx, &t, &dense))
                ein__add_def(z, d.cls, &dense, from, "summation splitting, one-point rule",
                             d.place);
        }
        arrfree(in);
    }
}
