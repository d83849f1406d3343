// Rule `windows`: phases (rule_point.c) whose windows begin close to each other are computed by one
// window over a few more places, with e(b) of iterators that the weights have too,
//
//   V[b,x] = sum(c,y) d[c, x + e(b) + y] w[b,c,y]
//          = Z[b, x + e(b) - least e],  Z[b,X] = sum(c,y) d[c, X + least e + y] w[b,c,y]:
//
// no library has a convolution whose window begins at another place in each channel.

enum { EIN__WINDOWS_GROWTH = 200 };  // of the result, percent

typedef struct ein__shifts {
    const ein__scope *s;
    const ein__expr *data, *filter;
    ein__scope t;  // Z
    ein__ix data_at[EIN__MAX_RANK];
    ein__ix back[EIN__MAX_RANK];  // Z's dimensions in V's iterators
} ein__shifts;

// The x of subscript `k` of the data, and e in it; false: it has none. What e has must occur in no
// other subscript, or phases remain.
static bool ein__find_shift(ein_ctx *ctx, const ein__shifts *z, uint32_t k, uint32_t *x,
                            ein__ix *e) {
    const ein__index *f = ein__ix_get(ctx, z->data->ix[k]);
    uint32_t in_filter = ein__read_slots(ctx, z->filter), beside = 0;
    int found = 0;
    *e = ein__ix_const(ctx, 0);
    for (uint32_t i = 0; i < z->data->nix; i++)
        if (i != k) beside |= ein__ix_uses(ctx, z->data->ix[i]);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__GATHER) return false;
        uint32_t uses = a->kind == EIN__ITER ? 1u << a->slot : ein__ix_uses(ctx, (ein__ix){a->ix});
        if (uses & beside) return false;
        if (uses >> z->s->nt) {
            if (a->kind != EIN__ITER) return false;
        } else if (!(uses & ~in_filter)) {
            *e = ein__ix_add(ctx, *e,
                             ein__ix_scale(ctx, ein__ix_atom(ctx, f->t[i].atom), f->t[i].k));
        } else {
            if (a->kind != EIN__ITER || f->t[i].k != 1) return false;
            *x = a->slot;
            found++;
        }
    }
    return found == 1 && f->q == 1 && ein__ix_get(ctx, *e)->n;
}

// Z's scope but for its body, and how V reads it. False: there are no phases, or they are too far
// apart.
static bool ein__shift_windows(ein_ctx *ctx, ein__shifts *z) {
    const ein__scope *s = z->s;
    bool any = false;
    z->t = *s;
    for (uint32_t i = 0; i < s->nt; i++) z->back[i] = ein__ix_iter(ctx, i, s->n[i]);
    for (uint32_t k = 0; k < z->data->nix; k++) {
        uint32_t x = 0;
        ein__ix e;
        z->data_at[k] = z->data->ix[k];
        if (!ein__find_shift(ctx, z, k, &x, &e)) continue;
        const ein__index *f = ein__ix_get(ctx, e);
        int64_t least = f->lo, n = s->n[x] + f->hi - f->lo;
        if (ein__times(n, 100) > ein__times(s->n[x], EIN__WINDOWS_GROWTH)) return false;
        z->t.n[x] = n;
        z->back[x] = ein__ix_addc(ctx, ein__ix_add(ctx, z->back[x], e), -least);
        // x + e + y + c without e and the old x.
        ein__ix rest = ein__ix_sub(ctx, z->data->ix[k], e);
        rest = ein__ix_sub(ctx, rest, ein__ix_iter(ctx, x, s->n[x]));
        z->data_at[k] = ein__ix_add(ctx, ein__ix_iter(ctx, x, n), ein__ix_addc(ctx, rest, least));
        any = true;
    }
    return any;
}

static void ein__rule_windows(ein__deriver *d, int from) {
    static const char rule[] = "windows of phases as one";
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope s = *ein__sc_get(ctx, old.sc);
    const ein__expr *read[2];
    double alpha;
    if (old.place || !ein__two_factors(ctx, &s, read, &alpha)) return;
    for (int k = 0; k < 2; k++) {
        ein__shifts z = {.s = &s, .data = read[k], .filter = read[1 - k]};
        if (!ctx->value[z.filter->val].weight_only || !ein__shift_windows(ctx, &z)) continue;
        ein__ex x = ein__ex_read(ctx, (ein__val){z.data->val}, 0, z.data_at, (int)z.data->nix);
        ein__ex w =
            ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), ein__ex_of(ctx, z.filter));
        z.t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
        ein__val v =
            z.t.body.i ? ein__class_of(d, &z.t, "window", from, rule, EIN__WHOLE) : (ein__val){0};
        ein__scope copy = {.reduce = EIN__R_NONE, .nt = s.nt};
        memcpy(copy.n, s.n, s.nt * sizeof *copy.n);
        copy.body = v.i ? ein__ex_read(ctx, v, 0, z.back, (int)s.nt) : (ein__ex){0};
        if (copy.body.i) ein__add_def(d, old.cls, &copy, from, rule, old.place);
        return;
    }
}
