// Which sums become pairs (moments.c), and the program with them.

typedef struct ein__twosome {
    ein__val first, second;
    ein__val made;  // both: made[0,..] is the first sum, made[1,..] the second
} ein__twosome;

typedef struct ein__twosomes {
    ein__twosome *list;  // stb_ds array
} ein__twosomes;

// Whether `v` is a sum that a kernel of its own computes.
static bool ein__is_own_sum(const ein__selector *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    return s && s->reduce == EIN__R_SUM && z->home[v.i].i == v.i && !z->root[v.i] &&
           z->kind[v.i] == EIN__K_REDUCE && !ctx->value[v.i].weight_only &&
           ctx->value[v.i].dtype == EIN__F32 && !ein__is_kept(ctx, v) &&
           (!ein__is_contraction(ctx, s) || ein__is_square(ctx, s));
}

// Whether all readers of `first` and `second` read inside of them and, but for `second` itself,
// come behind it in the order.
static bool ein__are_read_later(const ein__selector *z, ein__val first, ein__val second) {
    ein_ctx *ctx = z->ctx;
    bool behind = false, fine = true;
    for (ptrdiff_t i = 0; i < arrlen(z->order) && fine; i++) {
        const ein__scope *s = ein__scope_of(ctx, z->order[i]);
        const ein__ex *reads = s && z->order[i].i != second.i ? ein__ex_reads(ctx, s->body) : NULL;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            const ein__expr *e = ein__ex_get(ctx, reads[k]);
            if (e->val != first.i && e->val != second.i) continue;
            fine &= behind && !ctx->value[z->order[i].i].weight_only;
            for (uint32_t d = 0; d < e->nix; d++) {
                const ein__index *f = ein__ix_get(ctx, e->ix[d]);
                fine &= f->q == 1 && f->lo >= 0 && f->hi < ctx->value[e->val].shape.d[d];
                fine &= !ein__ix_has_gather(ctx, e->ix[d]);
            }
        }
        behind |= z->order[i].i == second.i;
    }
    return fine;
}

// Whether the two are cheaper as a pair.
static bool ein__is_better_pair(ein_ctx *ctx, ein__val first, ein__val second) {
    ein__val none = {0};
    ein__ex read = {0};
    int64_t a = ein__cost_scope(ctx, EIN__K_REDUCE, ein__scope_of(ctx, first), none, read);
    int64_t b = ein__cost_scope(ctx, EIN__K_REDUCE, ein__scope_of(ctx, second), none, read);
    return ein__cost_pair(ctx, first, second) < ein__cost_sum(a, b);
}

static void ein__find_pairs(ein__selector *z, ein__twosomes *all) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t j = 0; j < arrlen(z->order); j++) {
        ein__val second = z->order[j];
        if (!ein__is_own_sum(z, second)) continue;
        bool taken = false;
        for (ptrdiff_t i = j - 1; i >= 0 && !taken; i--) {
            ein__val first = z->order[i];
            if (!ein__is_own_sum(z, first)) continue;
            for (ptrdiff_t k = 0; k < arrlen(all->list) && !taken; k++)
                taken |= all->list[k].first.i == first.i || all->list[k].second.i == first.i;
            if (taken) continue;
            if (!ein__are_read_later(z, first, second) || !ein__is_better_pair(ctx, first, second))
                continue;
            arrput(all->list, ((ein__twosome){first, second, {0}}));
            taken = true;
        }
    }
}

typedef struct ein__pair_reads {
    const ein__twosomes *all;
    const ein__pass *pass;
} ein__pair_reads;

// A read of a sum that is one of a pair now.
static ein__ex ein__read_pair(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__pair_reads *w = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(w->all->list); i++) {
        const ein__twosome *t = &w->all->list[i];
        uint32_t first = w->pass->now[t->first.i].i, second = w->pass->now[t->second.i].i;
        if (!t->made.i || (e->val != first && e->val != second)) continue;
        ein__ix ix[EIN__MAX_RANK];
        ix[0] = ein__ix_const(ctx, e->val == second);
        for (uint32_t k = 0; k < e->nix; k++) ix[k + 1] = e->ix[k];
        return ein__ex_read(ctx, t->made, 0, ix, (int)e->nix + 1);
    }
    return ex;
}

// Value `v` in the program with the pairs.
static ein__val ein__rebuild_pairs(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__twosomes *all = z->user;
    ein__pair_reads w = {all, z};
    ein__val sums;
    ein__ex body = ein__body_now(z, ein__scope_of(ctx, v));
    if (body.i) body = ein__ex_replace_reads(ctx, body, ein__read_pair, &w);
    ein__val now = body.i ? ein__with_body(z, v, body) : (ein__val){0};
    for (ptrdiff_t i = 0; i < arrlen(all->list) && now.i; i++) {
        ein__twosome *t = &all->list[i];
        if (t->second.i == v.i) t->made = ein__rule_pair(ctx, z->now[t->first.i], now, &sums);
    }
    return now;
}

// Whether there are two sums that may be a pair: most programs have none.
static bool ein__has_sums(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *order = ein__live(ctx, root, nroot);
    int n = 0;
    for (ptrdiff_t i = 0; i < arrlen(order) && n < 2; i++) {
        const ein__scope *s = ein__scope_of(ctx, order[i]);
        if (!s || s->reduce != EIN__R_SUM || ctx->value[order[i].i].weight_only) continue;
        n += !ein__is_contraction(ctx, s) || ein__is_square(ctx, s);
    }
    arrfree(order);
    return n > 1;
}

// Takes sums together where that is cheaper; the roots are replaced then.
EIN__FN bool ein__join_sums(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__selector z = {.ctx = ctx, .free = true, .pairs = true};
    ein__twosomes all = {NULL};
    if (!ein__rule_on(ctx, EIN__RULE_NORM) || !ein__rule_on(ctx, EIN__RULE_FUSE) ||
        !ein__has_sums(ctx, root, nroot))
        return true;
    ein__select(&z, root, nroot);
    ein__find_pairs(&z, &all);
    ein__select_free(&z);
    bool ok = !arrlen(all.list) || ein__run_pass_for(ctx, root, nroot, ein__rebuild_pairs, &all);
    arrfree(all.list);
    return ok && !ctx->status;
}
