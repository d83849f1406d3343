// Chooses which sums become pairs (moments.c), and rewrites the program accordingly.

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

// Whether all that `v` reads of sum `of` is inside of it.
static bool ein__reads_inside(ein_ctx *ctx, ein__val v, ein__val of) {
    bool inside = true;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
        const ein__expr *e = ein__ex_get(ctx, reads[k]);
        for (uint32_t d = 0; d < e->nix && e->val == of.i; d++) {
            const ein__index *f = ein__ix_get(ctx, e->ix[d]);
            inside &= f->q == 1 && f->lo >= 0 && f->hi < ctx->value[of.i].shape.d[d];
            inside &= !ein__ix_has_gather(ctx, e->ix[d]);
        }
    }
    return inside;
}

// Whether all readers of `first` and `second` read inside of them and, but for `second` itself,
// come behind it in the order, in which `at` has the values' places.
static bool ein__are_read_later(const ein__selector *z, const int *at, ein__val first,
                                ein__val second) {
    const ein__val sum[2] = {first, second};
    bool fine = true;
    for (int k = 0; k < 2; k++) {
        const int *of = &z->readers.first[sum[k].i];
        for (int i = of[0]; i < of[1] && fine; i++) {
            ein__val r = z->readers.all[i];
            if (r.i == second.i) continue;
            fine = at[r.i] > at[second.i] && !z->ctx->value[r.i].weight_only &&
                   ein__reads_inside(z->ctx, r, sum[k]);
        }
    }
    return fine;
}

// Whether the two are cheaper as a pair.
static bool ein__is_better_pair(ein_ctx *ctx, ein__val first, ein__val second) {
    ein__val none = {0};
    ein__ex read = {0};
    int64_t pair = ein__cost_pair(ctx, first, second);
    if (pair >= EIN__PS_LIMIT) return false;
    int64_t a = ein__cost_scope(ctx, EIN__K_REDUCE, ein__scope_of(ctx, first), none, read);
    int64_t b = ein__cost_scope(ctx, EIN__K_REDUCE, ein__scope_of(ctx, second), none, read);
    return pair < ein__cost_sum(a, b);
}

// The pair that `second` is part of with one of `open`, sums before it that are in no pair, the
// nearest one first. Those that something before `second` reads leave `open`.
static bool ein__find_pair(const ein__selector *z, const int *at, ein__val second, ein__val **open,
                           ein__twosomes *all) {
    ptrdiff_t kept = 0;
    for (ptrdiff_t k = 0; k < arrlen(*open); k++) {
        const int *of = &z->readers.first[(*open)[k].i];
        bool early = of[0] < of[1] && at[z->readers.all[of[0]].i] < at[second.i];
        if (!early) (*open)[kept++] = (*open)[k];
    }
    if (*open) arrsetlen(*open, kept);
    for (ptrdiff_t k = kept; k-- > 0;) {
        ein__val first = (*open)[k];
        if (!ein__are_read_later(z, at, first, second) ||
            !ein__is_better_pair(z->ctx, first, second))
            continue;
        arrput(all->list, ((ein__twosome){first, second, {0}}));
        arrdel(*open, k);
        return true;
    }
    return false;
}

static void ein__find_pairs(const ein__selector *z, ein__twosomes *all) {
    int *at = NULL;
    ein__val *open = NULL;
    arrsetlen(at, arrlen(z->ctx->value));
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) at[z->order[i].i] = (int)i;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        if (ein__is_own_sum(z, v) && !ein__find_pair(z, at, v, &open, all)) arrput(open, v);
    }
    arrfree(at);
    arrfree(open);
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
