// Rule `needed` (dead elements): a value of which only a part is read is computed for that part
// only. With V read at i in lo..hi only, V'[i] = V[i + lo] over 0..hi - lo, and V[i] is V'[i - lo].
// It removes the products, norms and queries of all other tokens in the last layer of a transformer
// that classifies by one token.
//
// The part that is left out of a dimension must be a large one: sizes that suit vectors and tiles
// are not given up for a border.

enum { EIN__NEEDED_PERCENT = 75 };  // of a dimension, at most

// By value id: the box that is read of it; empty until something reads it.
typedef struct ein__part_read {
    bool any, less;
    int64_t lo[EIN__MAX_RANK], hi[EIN__MAX_RANK];
} ein__part_read;

// Adds what `read` reads of its value.
static void ein__need_read(ein_ctx *ctx, ein__part_read *all, const ein__expr *read) {
    ein__part_read *need = &all[read->val];
    const ein__shape *s = &ctx->value[read->val].shape;
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        bool known = f->q == 1 && !ein__ix_has_gather(ctx, read->ix[k]);
        int64_t lo = known ? ein__most(f->lo, 0) : 0, hi = known ? f->hi : s->d[k] - 1;
        if (hi >= s->d[k]) hi = s->d[k] - 1;
        if (lo > hi) lo = hi = 0;  // nothing is read but its padding
        need->lo[k] = need->any ? ein__least(need->lo[k], lo) : lo;
        need->hi[k] = need->any ? ein__most(need->hi[k], hi) : hi;
    }
    need->any = true;
}

// Settles what is computed of `v`: dimensions of which most is needed are whole.
static void ein__need_settle(const ein_ctx *ctx, ein__val v, ein__part_read *need) {
    const ein__value *p = &ctx->value[v.i];
    for (int k = 0; k < p->shape.rank; k++) {
        int64_t n = p->shape.d[k], part = need->hi[k] - need->lo[k] + 1;
        bool whole = !need->any || p->weight_only ||
                     ein__times(part, 100) > ein__times(n, EIN__NEEDED_PERCENT);
        if (whole) need->lo[k] = 0, need->hi[k] = n - 1;
        need->less |= !whole;
    }
}

// The definition of `v` where it is needed, reading what it did.
static bool ein__needed_scope(ein_ctx *ctx, ein__val v, const ein__part_read *need, ein__scope *t) {
    ein__ix map[EIN__MAX_ITERS];
    *t = *ein__scope_of(ctx, v);
    if (!need->less) return true;
    for (uint32_t k = 0; k < t->nt + t->ns; k++) {
        if (k < t->nt) t->n[k] = need->hi[k] - need->lo[k] + 1;
        map[k] = ein__ix_iter(ctx, k, t->n[k]);
        if (k < t->nt) map[k] = ein__ix_addc(ctx, map[k], need->lo[k]);
    }
    t->body = ein__ex_subst(ctx, t->body, map, (int)(t->nt + t->ns));
    return t->body.i != 0;
}

// What is needed of every value of the program under `root`, from its outputs back; whether any of
// it is less than all.
static bool ein__find_needs(ein_ctx *ctx, const ein__val *root, int nroot, ein__part_read *need) {
    ein__val *order = ein__live(ctx, root, nroot);
    bool less = false;
    for (ptrdiff_t i = 0; i < arrlen(order); i++) need[order[i].i] = (ein__part_read){.any = false};
    for (ptrdiff_t i = arrlen(order); i-- > 0 && !ctx->status;) {
        ein__val v = order[i];
        ein__scope t;
        if (ctx->value[v.i].kind != EIN__V_SCOPE) continue;
        for (int k = 0; k < nroot; k++)
            if (root[k].i == v.i) need[v.i].any = false;
        ein__need_settle(ctx, v, &need[v.i]);
        less |= need[v.i].less;
        if (!ein__needed_scope(ctx, v, &need[v.i], &t)) break;
        const ein__ex *reads = ein__ex_reads(ctx, t.body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            ein__need_read(ctx, need, ein__ex_get(ctx, reads[k]));
    }
    arrfree(order);
    return less && !ctx->status;
}

static ein__ex ein__needed_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__pass *z = user;
    const ein__part_read *all = z->user;
    const ein__expr e = *ein__ex_get(ctx, ex);
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t k = 0; k < e.nix; k++)
        ix[k] = all[e.val].less ? ein__ix_addc(ctx, e.ix[k], -all[e.val].lo[k]) : e.ix[k];
    return ein__ex_read(ctx, z->now[e.val], ein__f64_of(e.bits), ix, (int)e.nix);
}

static ein__val ein__rebuild_needed(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__part_read *need = (const ein__part_read *)z->user + v.i;
    ein__scope t;
    if (!ein__needed_scope(ctx, v, need, &t)) return (ein__val){0};
    t.body = ein__ex_replace_reads(ctx, t.body, ein__needed_read, z);
    if (!t.body.i || !need->less) return t.body.i ? ein__with_body(z, v, t.body) : (ein__val){0};
    const char *name = ein__namef(ctx, "%s.needed", ctx->value[v.i].name);
    ein__val now = ein__pass_value(z, name, v, ctx->value[v.i].dtype, &t);
    if (now.i) ctx->value[now.i].why = ein__rules[EIN__RULE_NEEDED].what;
    return now;
}

// Leaves out what nothing reads of values of the program under `root`; `*less` when there is any.
EIN__FN bool ein__leave_out(ein_ctx *ctx, ein__val *root, int nroot, bool *less) {
    *less = false;
    if (!ein__rule_on(ctx, EIN__RULE_NEEDED)) return true;
    ein__part_read *need = NULL;
    arrsetlen(need, arrlen(ctx->value));
    *less = ein__find_needs(ctx, root, nroot, need);
    bool ok = !ctx->status;
    if (*less)
        ok = ein__run_pass_for(ctx, root, nroot, ein__rebuild_needed, need) &&
             ein__run_pass(ctx, root, nroot, ein__rebuild_inline);
    arrfree(need);
    return ok;
}
