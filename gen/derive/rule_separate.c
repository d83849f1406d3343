// Rule `separate`: a reduction over windows on several axes is done one axis at a time, as for
// pooling and box filters,
//
//   V[i,j] = reduce(r,s) x[E(i,r), F(j,s)] = reduce(r) W[E(i,r), j],  W[p,j] = reduce(s) x[p,
//   F(j,s)]
//
// with R + S terms instead of R * S. In a sum, x may be any function of tensors that are read at
// one place, and terms may have factors that depend on one axis only; an axis that only the terms
// have, as channels, may be summed first as well:
//
//   sum(c,r,s) x[c,E(i,r),F(j,s)]^2 g[r] h[s] = sum(r,s) W[E(i,r),F(j,s)] g[r] h[s],
//   W[p,q] = sum(c) x[c,p,q]^2
//
// Outside of x both sides have its padding, which as many of its kind have to reduce to. Taken
// where both kernels are cheaper than one.

enum { EIN__NO_SLOT = EIN__MAX_ITERS };

// A reduction of windows.
typedef struct ein__windows {
    const ein__scope *s;
    ein__ex x;     // what they are over, a function of what is read at one place
    ein__expr at;  // its read there, of most dimensions
    double pad;    // what it is outside
    int n;         // factors of each term beside it
    ein__ex factor[EIN__FACTORS];
} ein__windows;

// Whether any number of `pad` reduces to itself.
static bool ein__is_neutral(const ein__scope *s, double pad) {
    return s->reduce == EIN__R_SUM    ? pad == 0
           : s->reduce == EIN__R_PROD ? pad == 0 || pad == 1
                                      : true;
}

// Whether a subscript in `ex` moves with an iterator of the result and one of the terms.
static bool ein__has_window(ein_ctx *ctx, const ein__scope *s, ein__ex ex) {
    uint32_t kept = (1u << s->nt) - 1;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < e->nix; k++) {
            uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
            if ((uses & kept) && (uses & ~kept)) return true;
        }
    }
    return false;
}

// Takes a product apart: what windows are over, and factors beside it. False: too many.
static bool ein__split_terms(ein_ctx *ctx, ein__windows *w, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__split_terms(ctx, w, e->kid[0]) && ein__split_terms(ctx, w, e->kid[1]);
    if (ein__has_window(ctx, w->s, ex)) {
        w->x = w->x.i ? ein__ex_binary(ctx, EIN__MUL, w->x, ex) : ex;
        return w->x.i != 0;
    }
    if (w->n == EIN__FACTORS) return false;
    w->factor[w->n++] = ex;
    return true;
}

// The subscript of `w->at` that subscript `k` of read `e` is, of as long a dimension; -1: none.
static int ein__same_subscript(ein_ctx *ctx, const ein__windows *w, const ein__expr *e,
                               uint32_t k) {
    const ein__shape *shape = &ctx->value[w->at.val].shape, *own = &ctx->value[e->val].shape;
    for (uint32_t d = 0; d < w->at.nix; d++)
        if (w->at.ix[d].i == e->ix[k].i && shape->d[d] == own->d[k]) return (int)d;
    return -1;
}

// Whether `e` reads where `w->at` does, but for dimensions that it has not and that one does not
// leave.
static bool ein__reads_there(ein_ctx *ctx, const ein__windows *w, const ein__expr *e) {
    uint32_t has = 0;
    for (uint32_t k = 0; k < e->nix; k++) {
        int d = ein__same_subscript(ctx, w, e, k);
        if (d < 0) return false;
        has |= 1u << d;
    }
    for (uint32_t d = 0; d < w->at.nix; d++) {
        const ein__index *f = ein__ix_get(ctx, w->at.ix[d]);
        bool inside = f->lo >= 0 && f->hi < ctx->value[w->at.val].shape.d[d];
        if (!(has >> d & 1) && !inside) return false;
    }
    return true;
}

// Whether `w->x` is a function of what it reads, all at one place; what it is outside.
static bool ein__is_at_one_place(ein_ctx *ctx, ein__windows *w) {
    const ein__ex *reads = ein__ex_reads(ctx, w->x);
    ein__computed f = {.placed = false};
    if (!arrlen(reads) || !ein__list_reads(ctx, w->x, &f) || f.placed) return false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (!i || e->nix > w->at.nix) w->at = *e;
    }
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        if (!ein__reads_there(ctx, w, ein__ex_get(ctx, reads[i]))) return false;
    ein__ex pad = ein__ex_replace_reads(ctx, w->x, ein__read_at, NULL);
    return pad.i && ein__ex_is_const(ctx, pad, &w->pad);
}

// Whether reduction `s` is one of windows.
static bool ein__match_windows(ein_ctx *ctx, const ein__scope *s, ein__windows *w) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    *w = (ein__windows){.s = s, .x = s->body};
    if (e->op == EIN__X_READ) {
        w->at = *e;
        w->pad = ein__f64_of(e->bits);
    } else {
        w->x = (ein__ex){0};
        if (s->reduce != EIN__R_SUM || ein__is_contraction(ctx, s) ||
            !ein__split_terms(ctx, w, s->body) || !w->x.i || !ein__is_at_one_place(ctx, w))
            return false;
    }
    return ein__is_neutral(s, w->pad);
}

// The subscript that is iterator `slot` and all of its dimension; -1: there is none.
static int ein__bare_subscript(ein_ctx *ctx, const ein__windows *w, uint32_t slot) {
    const ein__shape *shape = &ctx->value[w->at.val].shape;
    for (uint32_t k = 0; k < w->at.nix; k++) {
        uint32_t is;
        if (ein__ix_is_iter(ctx, w->at.ix[k], &is) && is == slot && shape->d[k] == w->s->n[slot])
            return (int)k;
    }
    return -1;
}

// Whether each factor that has terms of subscript `k` has no others, and what else it has stands at
// W's places.
static bool ein__factors_part(ein_ctx *ctx, const ein__windows *w, uint32_t k, uint32_t at) {
    const ein__scope *s = w->s;
    uint32_t kept = (1u << s->nt) - 1, sums = ein__ix_uses(ctx, w->at.ix[k]) & ~kept;
    bool part = true;
    for (int i = 0; i < w->n; i++) {
        uint32_t uses = ein__ex_uses(ctx, w->factor[i]);
        if (!(uses & sums)) continue;
        part = part && !(uses & ~kept & ~sums);
        for (uint32_t slot = 0; slot < s->nt && part; slot++)
            if (uses >> slot & 1) part = slot != at && ein__bare_subscript(ctx, w, slot) >= 0;
    }
    return part;
}

// Whether windows can be taken along subscript `k` first: it has one iterator of the result, which
// no other subscript has, as none has its terms, and they overlap; or it has terms alone, beside
// windows. `*at`: that iterator, or EIN__NO_SLOT.
static bool ein__is_separate(ein_ctx *ctx, const ein__windows *w, uint32_t k, uint32_t *at) {
    const ein__scope *s = w->s;
    const ein__index *f = ein__ix_get(ctx, w->at.ix[k]);
    uint32_t uses = ein__ix_uses(ctx, w->at.ix[k]), sums = ((1u << s->ns) - 1) << s->nt, others = 0;
    if (f->q != 1 || !ein__ix_affine(ctx, w->at.ix[k])) return false;
    for (uint32_t d = 0; d < w->at.nix; d++)
        if (d != k) others |= ein__ix_uses(ctx, w->at.ix[d]);
    uint32_t along = uses & ~sums;
    if ((uses & others) || !(uses & sums) || !(sums & others) || (along & (along - 1)))
        return false;
    *at = EIN__NO_SLOT;
    for (uint32_t slot = 0; slot < s->nt; slot++)
        if (along >> slot & 1) *at = slot;
    if (!ein__factors_part(ctx, w, k, *at)) return false;
    if (!along) return true;
    int64_t step = ein__ix_coef(ctx, w->at.ix[k], *at), reach = f->hi - f->lo + 1;
    step = step < 0 ? -step : step;
    return reach - step * (s->n[*at] - 1) > step;
}

// `w->x` read at other subscripts.
typedef struct ein__elsewhere {
    const ein__windows *w;
    const ein__ix *ix;  // by subscript of w->at
} ein__elsewhere;

static ein__ex ein__read_there(ein_ctx *ctx, void *user, ein__ex read) {
    const ein__elsewhere *to = (const ein__elsewhere *)user;
    const ein__expr e = *ein__ex_get(ctx, read);
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t k = 0; k < e.nix; k++) ix[k] = to->ix[ein__same_subscript(ctx, to->w, &e, k)];
    return ein__ex_read(ctx, (ein__val){e.val}, ein__f64_of(e.bits), ix, (int)e.nix);
}

// `body` times the factors that have, or else have not, terms `sums`, at `map`.
static ein__ex ein__times_factors(ein_ctx *ctx, const ein__windows *w, uint32_t sums, bool having,
                                  const ein__ix *map, ein__ex body) {
    for (int i = 0; i < w->n && body.i; i++) {
        if (((ein__ex_uses(ctx, w->factor[i]) & sums) != 0) != having) continue;
        ein__ex f = ein__ex_subst(ctx, w->factor[i], map, (int)(w->s->nt + w->s->ns));
        body = f.i ? ein__ex_binary(ctx, EIN__MUL, body, f) : f;
    }
    return body;
}

// W along subscript `k`, which it has at iterator `at` if at all.
static ein__scope ein__separate_first(ein_ctx *ctx, const ein__windows *w, uint32_t k,
                                      uint32_t at) {
    const ein__scope *s = w->s;
    const ein__shape *shape = &ctx->value[w->at.val].shape;
    ein__scope t = {.reduce = s->reduce};
    ein__ix map[EIN__MAX_ITERS], ix[EIN__MAX_RANK];
    uint32_t uses = ein__ix_uses(ctx, w->at.ix[k]), kept = (1u << s->nt) - 1;
    for (uint32_t d = 0; d < w->at.nix; d++) {
        if (d == k && at == EIN__NO_SLOT) continue;
        t.n[t.nt] = d == k ? s->n[at] : shape->d[d];
        ix[d] = ein__ix_iter(ctx, t.nt, t.n[t.nt]);
        t.nt++;
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        int d = i < s->nt && i != at ? ein__bare_subscript(ctx, w, i) : -1;
        map[i] = d >= 0 && d != (int)k ? ix[d] : ein__ix_const(ctx, 0);
    }
    if (at != EIN__NO_SLOT) map[at] = ix[k];
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(uses >> i & 1) || t.nt + t.ns == EIN__MAX_ITERS) continue;
        t.n[t.nt + t.ns] = s->n[i];
        map[i] = ein__ix_iter(ctx, t.nt + t.ns++, s->n[i]);
    }
    ix[k] = ein__ix_subst(ctx, w->at.ix[k], map, (int)(s->nt + s->ns));
    ein__elsewhere to = {w, ix};
    t.body = ein__ex_replace_reads(ctx, w->x, ein__read_there, &to);
    t.body = ein__times_factors(ctx, w, uses & ~kept, true, map, t.body);
    return t;
}

// V of W, a value like what is read.
static ein__scope ein__separate_rest(ein_ctx *ctx, const ein__windows *w, uint32_t k, uint32_t at,
                                     ein__val line) {
    const ein__scope *s = w->s;
    ein__scope t = {.reduce = s->reduce, .nt = s->nt};
    ein__ix map[EIN__MAX_ITERS], ix[EIN__MAX_RANK];
    uint32_t uses = ein__ix_uses(ctx, w->at.ix[k]), kept = (1u << s->nt) - 1, n = 0;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool sum = i >= s->nt;
        uint32_t to = sum ? t.nt + t.ns : i;
        map[i] = ein__ix_const(ctx, 0);
        if (sum && (uses >> i & 1)) continue;
        t.n[to] = s->n[i];
        map[i] = ein__ix_iter(ctx, to, s->n[i]);
        t.ns += sum;
    }
    for (uint32_t d = 0; d < w->at.nix; d++) {
        if (d == k && at == EIN__NO_SLOT) continue;
        ix[n++] = d == k ? map[at] : ein__ix_subst(ctx, w->at.ix[d], map, (int)(s->nt + s->ns));
    }
    t.body = ein__ex_read(ctx, line, w->pad, ix, (int)n);
    t.body = ein__times_factors(ctx, w, uses & ~kept, false, map, t.body);
    return t;
}

// Windows `v` along subscript `k` first, `*line`; none: it cannot be written.
static ein__val ein__rule_separate(ein__pass *z, ein__val v, const ein__windows *of, uint32_t k,
                                   uint32_t at, ein__val *line) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    ein__scope first = ein__separate_first(ctx, of, k, at);
    bool floats = old.dtype <= EIN__BF16 && of->s->reduce == EIN__R_SUM;
    *line = first.body.i ? ein__pass_value(z, ein__namef(ctx, "%s.line", old.name), v,
                                           floats ? EIN__F32 : old.dtype, &first)
                         : (ein__val){0};
    if (!line->i) return *line;
    ein__scope rest = ein__separate_rest(ctx, of, k, at, *line);
    if (!rest.body.i) return (ein__val){0};
    ein__val w = ein__pass_value(z, old.name, v, old.dtype, &rest);
    if (w.i) ctx->value[w.i].why = ein__rules[EIN__RULE_SEPARATE].what;
    return w;
}

// Windows `v` in the cheapest order of axes, or as they are. W has the type and shape of what it
// stands for in the price of the rest.
static ein__val ein__cheapest_separate(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope s = *ein__scope_of(ctx, v);
    ein__windows w;
    if (ctx->value[v.i].weight_only || s.reduce == EIN__R_NONE || s.ns < 2 ||
        !ein__match_windows(ctx, &s, &w))
        return v;
    int64_t least = ein__prefix_cost(ctx, &s);
    ein__val best = v;
    for (uint32_t k = 0; k < w.at.nix; k++) {
        uint32_t at;
        ein__val line;
        if (!ein__is_separate(ctx, &w, k, &at)) continue;
        ein__val made = ein__rule_separate(z, v, &w, k, at, &line);
        if (!made.i) continue;
        const ein__scope *rest = ein__scope_of(ctx, made), *first = ein__scope_of(ctx, line);
        int64_t ps = ein__cost_sum(ein__prefix_cost(ctx, first), ein__prefix_cost(ctx, rest));
        if (ps >= least) continue;
        least = ps;
        best = made;
    }
    return best.i == v.i ? v : ein__cheapest_separate(z, best);
}

static ein__val ein__rebuild_separate(ein__pass *z, ein__val v) {
    ein__ex body = ein__body_now(z, ein__scope_of(z->ctx, v));
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    return now.i ? ein__cheapest_separate(z, now) : now;
}

// Takes windows of the program under `root` one axis at a time where that is cheaper.
EIN__FN bool ein__separate_windows(ein_ctx *ctx, ein__val *root, int nroot) {
    bool changed;
    return !ein__rule_on(ctx, EIN__RULE_SEPARATE) ||
           ein__rewrite_program(ctx, root, nroot, ein__rebuild_separate, NULL, &changed);
}
