// Running sums (prefix sums),
//     V[i] = sum(r in 0:n) [r <= k(i)] F[r],  k = i + c or n - 1 - i + c (sums from the other end):
// a thread that goes along i keeps the sum so far, or the threads of a block do, some places each
// (emit_running.c): n terms in all instead of n for every result. rule_prefix.c splits long ones
// into blocks.

enum {
    EIN__RUNNING_AHEAD = 16,  // words that a thread loads before it adds the first one
    EIN__LINE_LEAST = 256,    // places of a line that a block goes along
    EIN__LINE_EACH = 4,       // places of a thread in a turn, where they are vectors
    // A turn beside its loads: ten exchanges in a warp, two barriers, the warps' sums. Assumed.
    EIN__LINE_TURN_PS = 300000,
    EIN__LINE_OPERATIONS = 80,  // instructions of a thread in a turn; assumed
    EIN__LINE_RESIDENT = 6      // blocks of an SM; assumed
};

typedef struct ein__running {
    uint32_t slot;  // the traversal iterator i; the sum over r is the only one
    ein__ex terms;  // F, in the slots of the scope
    ein__ix place;  // k
    bool reversed;  // F is counted from its end
} ein__running;

// The guarded factor of `ex`, which is it or a product with it; `rest` is the other factor.
static const ein__expr *ein__running_guard(ein_ctx *ctx, ein__ex ex, ein__ex *rest) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    *rest = (ein__ex){0};
    if (e->op == EIN__X_WHEN) return e;
    if (e->op != EIN__X_BINARY || e->fn != EIN__MUL) return NULL;
    for (int k = 0; k < 2; k++) {
        const ein__expr *kid = ein__ex_get(ctx, e->kid[k]);
        if (kid->op != EIN__X_WHEN) continue;
        *rest = e->kid[1 - k];
        return kid;
    }
    return NULL;
}

EIN__FN bool ein__match_running(ein_ctx *ctx, const ein__scope *s, ein__running *p) {
    ein__ex rest;
    if (!s || s->reduce != EIN__R_SUM || s->ns != 1 || s->nt == EIN__MAX_RANK) return false;
    const ein__expr *e = ein__running_guard(ctx, s->body, &rest);
    if (!e || e->negate) return false;
    const ein__index *g = ein__ix_get(ctx, e->ix[0]);
    int64_t n = s->n[s->nt], kr = ein__ix_coef(ctx, e->ix[0], s->nt);
    if (g->q != 1 || g->n != 2 || (kr != 1 && kr != -1) || g->hi >= e->n) return false;
    if (!ein__ix_affine(ctx, e->ix[0])) return false;
    for (p->slot = 0; p->slot < s->nt; p->slot++)
        if (ein__ix_coef(ctx, e->ix[0], p->slot) == -kr) break;
    if (p->slot == s->nt) return false;
    ein__ix i = ein__ix_iter(ctx, p->slot, s->n[p->slot]);
    p->reversed = kr == 1;
    p->place = kr == -1 ? ein__ix_addc(ctx, i, g->c)
                        : ein__ix_addc(ctx, ein__ix_scale(ctx, i, -1), n - 1 + g->c);
    p->terms = rest.i ? ein__ex_binary(ctx, EIN__MUL, rest, e->kid[0]) : e->kid[0];
    const ein__index *k = ein__ix_get(ctx, p->place);
    return k->hi < n && k->lo < n - 1 && !(ein__ex_uses(ctx, p->terms) >> p->slot & 1);
}

// What is added at each place, in the slots of `s` without the sum's; false: it cannot be written.
static bool ein__running_term(ein_ctx *ctx, const ein__scope *s, const ein__running *p,
                              ein__ex *term) {
    ein__ix at[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < s->nt; i++) at[i] = ein__ix_iter(ctx, i, s->n[i]);
    at[s->nt] = p->place;
    *term = ein__ex_subst(ctx, p->terms, at, (int)s->nt + 1);
    if (term->i) *term = ein__ex_when(ctx, p->place, s->n[s->nt], false, *term);
    return term->i != 0;
}

// Whether blocks go along the places of running sum `s`, whose neighbours lie side by side in the
// result of strides `out`; as ein__runs_along.
EIN__FN bool ein__runs_lines(ein_ctx *ctx, const ein__scope *s, const int64_t *out, ein__running *p,
                             ein__ex *term) {
    if (!ein__match_running(ctx, s, p) || p->reversed || s->n[p->slot] < EIN__LINE_LEAST)
        return false;
    return ein__ix_get(ctx, p->place)->lo <= 0 && out[p->slot] == 1 &&
           ein__running_term(ctx, s, p, term);
}

// Whether threads go along the places of running sum `s`, whose result has strides `out`, and in
// `*term` what each of them adds, in the slots of `s` without the sum's. Neighbouring threads have
// neighbouring results, and there are none that share a result's terms. Sums that begin behind the
// first place (c > 0) do not go along: what a thread adds first is one term.
EIN__FN bool ein__runs_along(ein_ctx *ctx, const ein__scope *s, const int64_t *out, ein__running *p,
                             ein__ex *term) {
    if (!ein__match_running(ctx, s, p) || p->reversed || s->n[p->slot] < 2) return false;
    const ein__index *k = ein__ix_get(ctx, p->place);
    int64_t nearest = INT64_MAX;
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] > 1) nearest = ein__least(nearest, out[i]);
    if (k->lo > 0 || out[p->slot] == nearest || ein__terms_beside(ctx, s, false) >= 0) return false;
    if (ein__results_of(ctx, s) <= EIN__SHARED_OUTPUTS && s->n[s->nt] >= 32) return false;
    return ein__running_term(ctx, s, p, term);
}
