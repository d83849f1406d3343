// Extraction: the cheapest definition of every class, and the values made from it.

#define EIN__NO_WAY (INT64_MAX / 8)

static int64_t ein__class_cost(ein__deriver *z, ein__val v);
static int ein__best_def(const ein__deriver *z, ein__val v);

// A copy whose addresses are those of its source under another shape costs nothing.
static bool ein__is_view_copy(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    ein__ix map[EIN__MAX_ITERS];
    const ein__scope *p = e->op == EIN__X_READ ? ein__scope_of(ctx, (ein__val){e->val}) : NULL;
    return s->reduce == EIN__R_NONE && p && ein__inside(ctx, e) && ein__ex_affine(ctx, s->body) &&
           ein__invert_read(ctx, e, s, p->n, map);
}

// Whether a definition is another definition's elements in another order, some of them twice or not
// at all, so that whatever reads it could read that instead.
static bool ein__is_reread(ein__deriver *z, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(z->ctx, s->body);
    return s->reduce == EIN__R_NONE && e->op == EIN__X_READ &&
           ein__class_at(z, (ein__val){e->val}) >= 0;
}

// What product `s` costs as a kernel of our own when the channels of its data, its filter and its
// result lie side by side, as layouts can have them: in the data what is summed and no window, in
// the result what the filter alone has. INT64_MAX: it has no filter, or no channels.
static int64_t ein__cost_turned(ein_ctx *ctx, const ein__scope *s, ein__val map, ein__ex read) {
    const ein__expr *factor[2];
    int64_t out[EIN__MAX_RANK], ps = INT64_MAX;
    int order[EIN__MAX_RANK];
    double alpha;
    if (!ein__two_factors(ctx, s, factor, &alpha)) return ps;
    bool second = ctx->value[factor[0]->val].weight_only;
    const ein__expr *x = factor[second], *w = factor[!second];
    if (ctx->value[x->val].weight_only || !ctx->value[w->val].weight_only) return ps;
    uint32_t outer = (1u << s->nt) - 1;
    uint32_t filters = ein__read_slots(ctx, w) & ~ein__read_slots(ctx, x) & outer;
    uint32_t channels = ein__turn_operand(ctx, x, ~outer, 0);
    if (channels && filters && ein__turn_operand(ctx, w, channels, 1)) {
        ein__kernel k = ein__scope_kernel(ctx, EIN__K_PRODUCT, s, map, read, out);
        ein__order_last(filters, (int)s->nt, order);
        ein__order_strides(k.s[k.n - 1]->n, (int)s->nt, order, out);
        ps = ein__cost_kernel(ctx, &k);
    }
    memset(ctx->turned, 0, sizeof ctx->turned);
    return ps;
}

// Whether copy `s` is all of what a kernel of our own makes, which may as well store it in that
// order, and fuses a map behind the copy.
static bool ein__is_stored_so(ein__deriver *z, const ein__scope *s) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, s->body);
    ein__val v = {e->val}, none = {0};
    ein__ix map[EIN__MAX_ITERS];
    ein__split split;
    int64_t ps;
    if (ein__elements(&ctx->value[v.i].shape) != ein__outputs_of(s) || !ein__inside(ctx, e) ||
        !ein__invert_read(ctx, e, s, ctx->value[v.i].shape.d, map))
        return false;
    (void)ein__class_cost(z, v);
    int best = ein__best_def(z, v);
    const ein__scope *by = best < 0 ? NULL : ein__sc_get(ctx, z->def[best].sc);
    if (!by || !by->ns) return false;
    return !ein__is_contraction(ctx, by) ||
           !ein__is_call(ein__choose_parts(ctx, by, none, (ein__ex){0}, true, &ps, &split));
}

// Cost of the step that computes a definition, without what it reads. The problem itself carries
// the cost of the map behind it, unless that map is fused.
static int64_t ein__def_step_cost(ein__deriver *z, ein__def *d) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, d->sc);
    bool last = d->cls.i == z->problem.i && z->map.i;
    ein__val map = last ? z->map : (ein__val){0};
    bool fuses = !last || ein__rule_on(ctx, EIN__RULE_FUSE);
    if (fuses && ein__is_reread(z, s) && ein__is_stored_so(z, s)) return 0;
    if (ctx->value[d->cls.i].weight_only || ein__is_view_copy(ctx, s))
        return last ? ein__kernel_cost(ctx, map) : 0;
    if (ein__is_reread(z, s)) {
        ctx->rereads = true;
        if (ctx->approach.rereading) return last ? ein__kernel_cost(ctx, map) : 0;
    }
    if (d->step_ps && !last) return d->step_ps - 1;
    int64_t ps;
    if (ein__is_contraction(ctx, s)) {
        // What is made on the way has no order of its own: layouts give it the one that suits.
        bool free = d->cls.i != z->problem.i;
        ein__split split;
        ein__kind kind = ein__choose_parts(ctx, s, map, z->map_read, free, &ps, &split);
        if (kind == EIN__K_PRODUCT && ctx->channels_last)
            ps = ein__least(ps, ein__cost_turned(ctx, s, map, z->map_read));
    } else {
        ps = ein__cost_scope(ctx, s->ns ? ein__kernel_kind(ctx, s) : EIN__K_MAP, s, map,
                             z->map_read);
    }
    if (!last) d->step_ps = ps + 1;
    return ps;
}

// Cost of a definition with all that it reads; any cost from `bound` on when it is not below that.
static int64_t ein__def_cost(ein__deriver *z, ein__def *d, int64_t bound) {
    ein_ctx *ctx = z->ctx;
    int64_t total = ein__def_step_cost(z, d);
    const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, d->sc)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads) && total < bound; i++)
        total =
            ein__cost_sum(total, ein__class_cost(z, (ein__val){ein__ex_get(ctx, reads[i])->val}));
    return total;
}

// Whether a plan may have the definition: none that a rule made which the plan is to do without.
static bool ein__may_choose(const ein__deriver *z, const ein__def *d) {
    return d->by < 0 || !(z->ctx->approach.without >> d->by & 1);
}

// Least cost over a class's definitions; values that are no class of this problem cost nothing.
static int64_t ein__class_cost(ein__deriver *z, ein__val v) {
    ptrdiff_t at = ein__class_at(z, v);
    if (at < 0) return 0;
    while (arrlen(z->cost) < arrlen(z->cls)) {
        arrput(z->cost, 0);
        arrput(z->best, -1);
    }
    if (z->cost[at] == -1) return EIN__NO_WAY;  // a cycle
    if (z->cost[at]) return z->cost[at] - 1;
    int64_t least = EIN__NO_WAY;
    z->cost[at] = -1;
    int best = -1;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
        if (z->def[i].cls.i != v.i || !ein__may_choose(z, &z->def[i])) continue;
        int64_t c = ein__def_cost(z, &z->def[i], least);
        if (best < 0 || c < least) {
            least = c;
            best = (int)i;
        }
    }
    z->cost[at] = least + 1;
    z->best[at] = best;
    return least;
}

// The cheapest definition of class `v`; -1 for values that are no class, or whose cost was not
// asked for.
static int ein__best_def(const ein__deriver *z, ein__val v) {
    ptrdiff_t at = ein__class_at(z, v);
    return at >= 0 && at < arrlen(z->best) ? z->best[at] : -1;
}

// The definition of class `v`, whose cost is known, with `rank` cheaper ones; the last one where
// there are fewer.
static int ein__ranked_def(ein__deriver *z, ein__val v, int rank) {
    int best = ein__best_def(z, v);
    int64_t after = best < 0 || !rank ? 0 : ein__def_cost(z, &z->def[best], EIN__NO_WAY);
    for (; rank > 0 && best >= 0; rank--) {
        int next = -1;
        int64_t least = EIN__NO_WAY;
        for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
            if (z->def[i].cls.i != v.i || !ein__may_choose(z, &z->def[i])) continue;
            int64_t c = ein__def_cost(z, &z->def[i], EIN__NO_WAY);
            bool later = c > after || (c == after && (int)i > best);
            if (!later || c >= least) continue;
            least = c;
            next = (int)i;
        }
        if (next < 0) break;
        best = next;
        after = least;
    }
    return best;
}

// Values that a contraction may read: its factors, and the positions that their subscripts hold.
enum { EIN__PROBLEM_READS = 6 };

// Values made of the cheapest definitions. A problem that was derived once for all that are like it
// reads stand-ins: `actual` is what they stand for, and `self` what the problem does.
typedef struct ein__realiser {
    ein__deriver *z;
    ein__val *made;  // by class; stb_ds array
    ein__val stand_in[EIN__PROBLEM_READS], actual[EIN__PROBLEM_READS];
    int nstand;
    ein__val self;       // none: the problem's own value
    ein__val *by_scope;  // values made before, by scope id; stb_ds array, or NULL
} ein__realiser;

static ein__val ein__realise(ein__realiser *r, ein__val v);

static ein__ex ein__realise_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__realiser *r = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = ein__realise(r, (ein__val){e->val});
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return v.i ? ein__ex_read(ctx, v, pad, e->ix, (int)e->nix) : (ein__ex){0};
}

// What led to a definition, oldest rule first.
static const char *ein__trail(ein__deriver *z, int def) {
    const char *text = "";
    for (; def >= 0 && z->def[def].rule; def = z->def[def].from)
        text = *text ? ein__namef(z->ctx, "%s; %s", z->def[def].rule, text) : z->def[def].rule;
    return text;
}

// The value like class `v` that stands for it in the program, with definition `sc`.
static ein__val ein__realised(ein__realiser *r, ein__val v, ein__sc sc) {
    ein_ctx *ctx = r->z->ctx;
    const ein__value cls = ctx->value[v.i];
    const ein__value *self = r->self.i ? &ctx->value[r->self.i] : &ctx->value[r->z->problem.i];
    bool last = v.i == r->z->problem.i;
    while (arrlen(r->by_scope) <= (ptrdiff_t)sc.i) arrput(r->by_scope, (ein__val){0});
    if (!last && r->by_scope[sc.i].i) return r->by_scope[sc.i];
    const char *problem = ctx->value[r->z->problem.i].name;
    const char *name =
        last ? self->name : ein__namef(ctx, "%s%s", self->name, cls.name + strlen(problem));
    ein__val made =
        ein__val_new(ctx, name, EIN__V_SCOPE, self->tensor, sc, &cls.shape, cls.dtype, self->node);
    if (!last) r->by_scope[sc.i] = made;
    return made;
}

// The class's value by its cheapest definition.
static ein__val ein__realise(ein__realiser *r, ein__val v) {
    ein__deriver *z = r->z;
    ein_ctx *ctx = z->ctx;
    ptrdiff_t at = ein__class_at(z, v);
    for (int i = 0; i < r->nstand; i++)
        if (r->stand_in[i].i == v.i) return r->actual[i];
    if (at < 0 || at >= arrlen(z->best) || z->best[at] < 0) return v;
    while (arrlen(r->made) <= at) arrput(r->made, (ein__val){0});
    if (r->made[at].i) return r->made[at];
    const ein__def d = z->def[z->best[at]];
    ein__scope s = *ein__sc_get(ctx, d.sc);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__realise_read, r);
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    ein__val made = ein__realised(r, v, sc);
    // What happens at load is told by its last rule alone.
    if (made.i && !ctx->value[made.i].why) {
        const char *why = ctx->value[v.i].weight_only ? d.rule : ein__trail(z, z->best[at]);
        // What the program's own value was made by comes first: a merge.
        const char *before = v.i == z->problem.i && r->self.i ? ctx->value[r->self.i].why : NULL;
        ctx->value[made.i].why = before ? ein__namef(ctx, "%s; %s", before, why) : why;
    }
    r->made[at] = made;
    return made;
}
