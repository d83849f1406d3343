// Summation splitting by digits: the taps of a window fall into blocks, r = d * R + p. The low
// digits and the channels go to an inner value, a convolution with small windows and one output
// channel per block; what is left is a sum of its parts, each read at its block's offset.

enum {
    EIN__MAX_WINDOW = 11,     // taps along an axis that is split
    EIN__MAX_TAP_GROWTH = 2,  // of the positions: windows reach over the border
    EIN__MAX_BLOCKINGS = 32   // ways to split one window
};

// One axis of a window in blocks. Position t of the inner value stands for `step` * (t + lo) - pad
// in the data.
typedef struct ein__blocks {
    int64_t d, n;  // taps of a block, blocks
    int64_t step, lo, count;
} ein__blocks;

// Whether n taps in blocks of d waste at most a quarter.
static bool ein__is_blocking(int64_t n, int64_t d) {
    return d > 1 && d < n && n <= EIN__MAX_WINDOW && (n + d - 1) / d * d * 4 <= n * 5;
}

// The inner positions: those that some block needs and whose window meets the data, and as many
// more as make both paddings one, which library calls ask for.
static bool ein__block_range(const ein_ctx *ctx, const ein__conv *c, int a, ein__blocks *b) {
    int64_t block = b->n > 1 ? c->dilation[a] * b->d : 0, stride = c->out[a] > 1 ? c->stride[a] : 0;
    int64_t reach = c->dilation[a] * (b->d - 1), last = stride * (c->out[a] - 1);
    b->step = ein__gcd(stride, block);
    if (!b->step) b->step = 1;
    ein__reach data = {b->step, c->in[a], {-c->pad[a], reach - c->pad[a]}};
    ein__places places = {0, (last + block * (b->n - 1)) / b->step};
    if (!ein__rule_tighten(ctx, &places, &data)) return false;
    ein__rule_relax(ctx, &places, &data);
    b->lo = places.lo;
    b->count = places.hi - places.lo + 1;
    return true;
}

// An inner value under construction: its scope, and for old iterators the new ones.
typedef struct ein__tapped {
    const ein__conv_form *f;
    const ein__blocks *b;
    ein__scope t;
    ein__ix map[EIN__MAX_ITERS];        // of old slots but those of windows
    ein__ix high[3], low[3], place[3];  // by axis: R, p, t
} ein__tapped;

static bool ein__new_slot(ein__scope *t, bool sum, ein_ctx *ctx, int64_t n, ein__ix *iter) {
    uint32_t slot = t->nt + t->ns;
    if (slot == EIN__MAX_ITERS || (!sum && slot == EIN__MAX_RANK)) return false;
    t->n[slot] = n;
    *iter = ein__ix_iter(ctx, slot, n);
    if (sum) t->ns++;
    else t->nt++;
    return true;
}

// Iterators of role `role`, in the scope's order.
static bool ein__role_slots(ein_ctx *ctx, ein__tapped *z, ein__crole role, bool sum) {
    const ein__scope *s = z->f->s;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (z->f->role[i] == role && !ein__new_slot(&z->t, sum, ctx, s->n[i], &z->map[i]))
            return false;
    return true;
}

static bool ein__block_slots(ein_ctx *ctx, ein__tapped *z) {
    for (int a = 0; a < z->f->c.spatial; a++) {
        z->high[a] = ein__ix_const(ctx, 0);
        if (z->b[a].n > 1 && !ein__new_slot(&z->t, false, ctx, z->b[a].n, &z->high[a]))
            return false;
    }
    return true;
}

static bool ein__tap_slots(ein_ctx *ctx, ein__tapped *z, bool sum) {
    for (int a = 0; a < z->f->c.spatial; a++) {
        z->low[a] = ein__ix_const(ctx, 0);
        if (z->b[a].d > 1 && !ein__new_slot(&z->t, sum, ctx, z->b[a].d, &z->low[a])) return false;
    }
    return true;
}

static void ein__tapped_clear(ein_ctx *ctx, ein__tapped *z, const ein__conv_form *f,
                              const ein__blocks *b) {
    *z = (ein__tapped){.f = f, .b = b};
    for (int i = 0; i < EIN__MAX_ITERS; i++) z->map[i] = ein__ix_const(ctx, 0);
}

// The filter by blocks: [group, blocks, out, in, taps of a block], 0 where rounding up adds taps.
static ein__val ein__block_filter(ein__deriver *z, const ein__conv_form *f, const ein__blocks *b,
                                  int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    ein__tapped k;
    ein__tapped_clear(ctx, &k, f, b);
    k.t.reduce = EIN__R_NONE;
    if (!ein__role_slots(ctx, &k, EIN__C_GROUP, false) || !ein__block_slots(ctx, &k) ||
        !ein__role_slots(ctx, &k, EIN__C_OUT, false) ||
        !ein__role_slots(ctx, &k, EIN__C_IN, false) || !ein__tap_slots(ctx, &k, false))
        return (ein__val){0};
    for (int a = 0; a < f->c.spatial; a++)
        if (f->filter[a] >= 0)
            k.map[f->filter[a]] = ein__ix_add(ctx, ein__ix_scale(ctx, k.high[a], b[a].d), k.low[a]);
    k.t.body = ein__ex_subst(ctx, ein__ex_of(ctx, f->w), k.map, (int)(f->s->nt + f->s->ns));
    for (int a = 0; a < f->c.spatial; a++)
        if (f->filter[a] >= 0)
            k.t.body = ein__ex_when(ctx, k.map[f->filter[a]], f->c.k[a], false, k.t.body);
    return k.t.body.i ? ein__class_of(z, &k.t, "blocks", from, rule, EIN__INNER) : (ein__val){0};
}

// The inner convolution: [batch, group, blocks, out, positions].
static ein__val ein__block_conv(ein__deriver *z, const ein__conv_form *f, const ein__blocks *b,
                                int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    ein__val filter = ein__block_filter(z, f, b, from, rule);
    ein__ix xi[EIN__MAX_RANK], wi[EIN__MAX_RANK];
    int n = 0;
    ein__tapped c;
    ein__tapped_clear(ctx, &c, f, b);
    if (!filter.i || !ein__role_slots(ctx, &c, EIN__C_BATCH, false) ||
        !ein__role_slots(ctx, &c, EIN__C_GROUP, false) || !ein__block_slots(ctx, &c) ||
        !ein__role_slots(ctx, &c, EIN__C_OUT, false))
        return (ein__val){0};
    for (int a = 0; a < f->c.spatial; a++)
        if (!ein__new_slot(&c.t, false, ctx, b[a].count, &c.place[a])) return (ein__val){0};
    if (!ein__role_slots(ctx, &c, EIN__C_IN, true) || !ein__tap_slots(ctx, &c, true))
        return (ein__val){0};
    for (uint32_t k = 0; k < f->x->nix; k++)
        xi[k] = ein__ix_subst(ctx, f->x->ix[k], c.map, (int)(f->s->nt + f->s->ns));
    for (int a = 0; a < f->c.spatial; a++)
        xi[f->axis[a]] = ein__ix_addc(ctx,
                                      ein__ix_add(ctx, ein__ix_scale(ctx, c.place[a], b[a].step),
                                                  ein__ix_scale(ctx, c.low[a], f->c.dilation[a])),
                                      b[a].step * b[a].lo - f->c.pad[a]);
    static const ein__crole order[] = {EIN__C_GROUP, EIN__C_OUT, EIN__C_IN};
    for (int k = 0; k < 3; k++) {
        for (int a = 0; k == 1 && a < f->c.spatial; a++)
            if (b[a].n > 1) wi[n++] = c.high[a];
        for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++)
            if (f->role[i] == order[k]) wi[n++] = c.map[i];
    }
    for (int a = 0; a < f->c.spatial; a++)
        if (b[a].d > 1) wi[n++] = c.low[a];
    c.t.reduce = c.t.ns ? EIN__R_SUM : EIN__R_NONE;
    c.t.body = ein__ex_binary(ctx, EIN__MUL,
                              ein__ex_read(ctx, (ein__val){f->x->val}, 0, xi, (int)f->x->nix),
                              ein__ex_read(ctx, filter, 0, wi, n));
    return c.t.body.i ? ein__class_of(z, &c.t, "part", from, rule, EIN__INNER) : (ein__val){0};
}

// The sum of the parts, each at its block's offset.
static bool ein__offset_add(ein_ctx *ctx, const ein__conv_form *f, const ein__blocks *b,
                            ein__val part, ein__scope *t) {
    const ein__scope *s = f->s;
    const ein__crole before[] = {EIN__C_BATCH, EIN__C_GROUP}, out[] = {EIN__C_OUT};
    ein__ix ix[EIN__MAX_RANK], high[3];
    int n = 0;
    *t = (ein__scope){.reduce = EIN__R_SUM, .nt = s->nt};
    memcpy(t->n, s->n, s->nt * sizeof *t->n);
    for (int a = 0; a < f->c.spatial; a++) {
        high[a] = ein__ix_const(ctx, 0);
        if (b[a].n > 1 && !ein__new_slot(t, true, ctx, b[a].n, &high[a])) return false;
    }
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < s->nt; i++)
            if (f->role[i] == before[k]) ix[n++] = ein__ix_iter(ctx, i, s->n[i]);
    for (int a = 0; a < f->c.spatial; a++)
        if (b[a].n > 1) ix[n++] = high[a];
    for (uint32_t i = 0; i < s->nt; i++)
        if (f->role[i] == out[0]) ix[n++] = ein__ix_iter(ctx, i, s->n[i]);
    for (int a = 0; a < f->c.spatial; a++) {
        ein__ix at = ein__ix_scale(ctx, high[a], f->c.dilation[a] * b[a].d / b[a].step);
        if (f->space[a] >= 0)
            at = ein__ix_add(
                ctx, at,
                ein__ix_scale(ctx, ein__ix_iter(ctx, (uint32_t)f->space[a], s->n[f->space[a]]),
                              f->c.stride[a] / b[a].step));
        ix[n++] = ein__ix_addc(ctx, at, -b[a].lo);
    }
    t->body = ein__ex_read(ctx, part, 0, ix, n);
    return t->body.i != 0;
}

static void ein__split_taps(ein__deriver *z, const ein__conv_form *f, ein__blocks *b, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    int64_t had = 1, now = 1;
    ein__scope t;
    ein__buf why = {0};
    ein__put(&why, "summation splitting (blocks of ");
    for (int a = 0; a < f->c.spatial; a++) {
        bool ok = ein__block_range(ctx, &f->c, a, &b[a]);
        had = ein__times(had, f->c.out[a]);
        now = ok ? ein__times(now, b[a].count) : INT64_MAX;
        ein__putf(&why, "%s%lld", a ? "x" : "", (long long)b[a].d);
    }
    ein__put(&why, " taps inside), variable substitution");
    const char *rule = ein__name(ctx, why.s);
    ein__buf_free(&why);
    if (now / EIN__MAX_TAP_GROWTH > had) return;
    ein__val part = ein__block_conv(z, f, b, from, rule);
    if (part.i && ein__offset_add(ctx, f, b, part, &t))
        ein__add_def(z, d.cls, &t, from, "summation splitting by digits", d.place);
}

// The inner half of a split stays whole. What was only put in order is as good as what it came
// from.
static bool ein__may_split_taps(const ein__deriver *z, const ein__def *d) {
    return !d->place || (d->rule == ein__in_conv_order && d->from >= 0 && !z->def[d->from].place);
}

// Every way to split the windows of a convolution into blocks; an axis may stay whole. Blocks that
// are the same along every axis come first.
static void ein__rule_taps(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    int64_t out[EIN__MAX_RANK], choice[3][EIN__MAX_WINDOW + 1];
    int n[3] = {1, 1, 1}, tried = 0;
    ein__conv_form f;
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    ein__dense_result(s, out);
    if (!ein__may_split_taps(z, &d) || !ein__find_conv(ctx, s, out, &f) || f.transposed) return;
    for (int a = 0; a < 3; a++) {
        int64_t taps = a < f.c.spatial ? f.c.k[a] : 1;
        n[a] = 0;
        for (int64_t k = 2; k < taps && k <= EIN__MAX_WINDOW; k++)
            if (ein__is_blocking(taps, k)) choice[a][n[a]++] = k;
        choice[a][n[a]++] = taps;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n[0] * n[1] * n[2] && tried < EIN__MAX_BLOCKINGS; i++) {
            int at[3] = {i % n[0], i / n[0] % n[1], i / n[0] / n[1]};
            bool split = false, uneven = false;
            ein__blocks b[3] = {{0}};
            int64_t first = 0;
            for (int a = 0; a < f.c.spatial; a++) {
                int64_t taps = f.c.k[a];
                b[a].d = choice[a][at[a]];
                b[a].n = (taps + b[a].d - 1) / b[a].d;
                split |= b[a].n > 1;
                if (taps > 1 && !first) first = b[a].d;
                uneven |= taps > 1 && b[a].d != first;
            }
            if (!split || uneven != pass) continue;
            ein__split_taps(z, &f, b, from);
            tried++;
        }
}
