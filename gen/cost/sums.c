// Maps that finish sums: behind a reduction R that they alone read, at a few places for each of
// their own, one kernel has the threads of an output add up all of these at once,
//     c[n,d] = f(R[n,d], R[n,d + D], R[n,d + 2 D], R[n,d + 3 D])
// with the gates of a recurrent cell in R, or both halves of a gated linear unit. The first values
// of such a step are R and, where there is one, the map G behind it that was stored instead; then
// come the maps (plan/finish.c).

typedef struct ein__finish {
    int n, nas;
    ein__ex sum[EIN__SUMS];   // reads of R, by iterators of the maps ...
    ein__ex term[EIN__SUMS];  // ... and what each adds up, by those and, behind them, those of R
    ein__ex from[EIN__SUMS], as[EIN__SUMS];  // reads of G, and what they come to
} ein__finish;

// Iterators of the maps, then of R's terms.
static uint32_t ein__finish_slots(ein_ctx *ctx, const ein__step *step) {
    return ein__scope_of(ctx, step->out)->nt + ein__scope_of(ctx, step->val[0])->ns;
}

// Adds what the read `ex` of R sums up; false: they are too many, or it may lie outside of R.
static bool ein__finish_sum(ein_ctx *ctx, const ein__scope *r, uint32_t nt, ein__ex ex,
                            ein__finish *f) {
    ein__expr e = *ein__ex_get(ctx, ex);
    ein__ix map[EIN__MAX_ITERS];
    for (int i = 0; i < f->n; i++)
        if (f->sum[i].i == ex.i) return true;
    if (f->n == EIN__SUMS) return false;
    for (uint32_t d = 0; d < e.nix; d++) {
        const ein__index *x = ein__ix_get(ctx, e.ix[d]);
        if (x->q != 1 || x->lo < 0 || x->hi >= r->n[d] || ein__ix_has_gather(ctx, e.ix[d]))
            return false;
        map[d] = e.ix[d];
    }
    for (uint32_t k = 0; k < r->ns; k++)
        map[r->nt + k] = ein__ix_iter(ctx, nt + k, r->n[r->nt + k]);
    f->sum[f->n] = ex;
    f->term[f->n] = ein__ex_subst(ctx, r->body, map, (int)(r->nt + r->ns));
    return f->term[f->n++].i != 0;
}

// Takes the reads of R in `body`, those in `of` for each read of G among them.
static bool ein__finish_reads(ein_ctx *ctx, const ein__step *step, ein__ex body, ein__val of,
                              ein__finish *f) {
    const ein__scope *r = ein__scope_of(ctx, step->val[0]);
    uint32_t nt = ein__scope_of(ctx, step->out)->nt;
    bool ok = true;
    const ein__ex *reads = ein__ex_reads(ctx, body);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        ein__expr e = *ein__ex_get(ctx, reads[i]);
        if (e.val == step->val[0].i) ok = ein__finish_sum(ctx, r, nt, reads[i], f);
        if (!of.i || e.val != of.i) continue;
        bool known = false;
        for (int k = 0; k < f->nas; k++) known |= f->from[k].i == reads[i].i;
        if (known) continue;
        ein__ex as = f->nas < EIN__SUMS ? ein__rule_inline(ctx, of, &e) : (ein__ex){0};
        ok = as.i && ein__finish_reads(ctx, step, as, (ein__val){0}, f);
        if (!ok) break;
        f->from[f->nas] = reads[i];
        f->as[f->nas++] = as;
    }
    return ok;
}

// The sums of step `step`, whose values are as above; false: it is none.
static bool ein__finish_of(ein_ctx *ctx, const ein__step *step, ein__finish *f) {
    ein__val of = step->nval > 2 ? step->val[1] : (ein__val){0};
    *f = (ein__finish){0};
    if (ein__finish_slots(ctx, step) > EIN__MAX_ITERS) return false;
    for (int k = 0; k <= step->npeer; k++) {
        ein__val v = k ? step->peer[k - 1].out : step->out;
        ein__ex body = ein__scope_of(ctx, v)->body;
        if (ein__ex_looks_up(ctx, body, step->val[0]) ||
            (of.i && ein__ex_looks_up(ctx, body, of)) || !ein__finish_reads(ctx, step, body, of, f))
            return false;
    }
    return f->n > 0;
}

// A reduction that adds up all of an output's sums: what such a kernel reads and computes.
static const ein__scope *ein__finish_scope(ein_ctx *ctx, const ein__step *step) {
    const ein__scope *r = ein__scope_of(ctx, step->val[0]), *m = ein__scope_of(ctx, step->out);
    ein__scope *all = EIN__NEW(&ctx->arena, ein__scope, 1);
    ein__finish f;
    bool found = ein__finish_of(ctx, step, &f);
    EIN_ASSERT(found);
    *all = (ein__scope){.reduce = r->reduce, .nt = m->nt, .ns = r->ns, .body = f.term[0]};
    for (int i = 1; found && i < f.n; i++)
        all->body = ein__ex_binary(ctx, EIN__ADD, all->body, f.term[i]);
    for (uint32_t i = 0; i < m->nt; i++) all->n[i] = m->n[i];
    for (uint32_t i = 0; i < r->ns; i++) all->n[m->nt + i] = r->n[r->nt + i];
    return all;
}
