// Which contractions merge, and the pass that puts the chosen merges into the program. Groups come
// from equal forms of expressions; a merge is taken when the merged contraction and what reads it
// cost less than the members do alone.
//
//   shared input      V1 = sum(c) x k1, V2 = sum(c) x k2   =>  V = sum(c) x [k1 k2]
//   batched           V1 = sum(c) x1 k1, V2 = sum(c) x2 k2 =>  V[b] = sum(c) [x1 x2][b] [k1 k2][b]
//   sum of products   sum(c) x1 k1 + sum(d) x2 k2          =>  sum(c,d) [x1 x2] [k1 k2]
//   re-association    sum(d) (sum(c) x k1) k2              =>  sum(c) x (sum(d) k1 k2)

// ------------------------------------------------------------------------------------ sums

// Whether the contractions can be one with their data laid one behind the other along `*axis` (-1:
// they read the same data), in the traversal that they have in common.
static bool ein__sum_fits(ein_ctx *ctx, const ein__part *a, const ein__part *b, int *axis) {
    const ein__expr *x = ein__ex_get(ctx, a->x), *y = ein__ex_get(ctx, b->x);
    const ein__scope *s = ein__sc_get(ctx, a->sc), *t = ein__sc_get(ctx, b->sc);
    *axis = -1;
    if (!a->windowed || !b->windowed || x->nix != y->nix || s->nt != t->nt) return false;
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] != t->n[i]) return false;
    for (uint32_t d = 0; d < x->nix; d++) {
        const ein__shape *p = &ctx->value[x->val].shape, *q = &ctx->value[y->val].shape;
        const ein__axis *u = &a->axis[d], *v = &b->axis[d];
        uint32_t plain = 0;
        if (ein__ix_get(ctx, x->ix[d])->q != ein__ix_get(ctx, y->ix[d])->q) return false;
        for (uint32_t i = 0; i < s->nt; i++) {
            int64_t k = ein__ix_coef(ctx, x->ix[d], i);
            plain |= k != 0;
            if (k != ein__ix_coef(ctx, y->ix[d], i)) return false;
        }
        bool whole = !plain && !u->c && !v->c && u->n == p->d[d] && v->n == q->d[d] && u->k <= 1 &&
                     v->k <= 1 && !u->flip && !v->flip && ein__ix_get(ctx, x->ix[d])->q == 1 &&
                     u->n * v->n > 1;
        if (x->val != y->val && whole && *axis < 0) *axis = (int)d;
        else if (p->d[d] != q->d[d]) return false;
    }
    return x->val == y->val || *axis >= 0;
}

typedef struct ein__sum {
    ein__ex read[EIN__MERGE_GROUP];
    int n;
    ein__ex now;  // the first read becomes this, the others 0
} ein__sum;

static ein__ex ein__replace_terms(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__sum *z = user;
    for (int i = 0; i < z->n; i++)
        if (z->read[i].i == ex.i) return i ? ein__ex_const(ctx, 0) : z->now;
    return ex;
}

// The summation over `axis`, of the operands `part` one behind the other, each guarded to where it
// lies; their concatenation takes the place of the first.
static bool ein__sum_along(ein__merger *z, ein__joint *f, const ein__part *const *p, int axis,
                           ein__ix *form, ein__val *part, ein__merge *m) {
    ein_ctx *ctx = z->ctx;
    uint32_t slot = f->s.nt + f->s.ns++;
    int64_t at = 0, total = 0;
    for (int i = 0; i < f->np; i++) total += p[i]->axis[axis].n;
    ein__ix c = ein__ix_iter(ctx, slot, f->s.n[slot] = total);
    for (int i = 0; i < f->np; i++) {
        ein__ix mine = ein__ix_addc(ctx, c, -at);
        ein__add_guard(f, i, mine, p[i]->axis[axis].n);
        if (p[i]->axis[axis].slot >= 0) f->map[i][p[i]->axis[axis].slot] = mine;
        at += p[i]->axis[axis].n;
    }
    f->apart = true;
    if (!ein__joint_windows(ctx, f, p, axis, form)) return false;
    f->s.reduce = EIN__R_SUM;
    form[axis] = c;
    ein__val all = ein__concatenate(z, part, f->np, axis);
    if (all.i) ein__put_bill(&m->bill, all, ein__concat_cost(z, all, part, f->np, axis));
    part[0] = all;
    return true;
}

static void ein__merge_sum(ein__merger *z, ein__val map, const ein__part *const *p, ein__sum *sum,
                           int axis) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *t = ein__sc_get(ctx, p[0]->sc);
    const ein__expr *x = ein__ex_get(ctx, p[0]->x);
    ein__joint f;
    ein__ix form[EIN__MAX_RANK], ix[EIN__MAX_RANK];
    ein__val part[EIN__MERGE_GROUP];
    ein__ex w[EIN__MERGE_GROUP];
    ein__merge m = {.rule = "merging: sum of products"};
    ein__joint_clear(ctx, &f, sum->n);
    f.s.nt = t->nt;
    for (uint32_t i = 0; i < t->nt; i++) {
        f.s.n[i] = t->n[i];
        for (int k = 0; k < f.np; k++) f.map[k][i] = ein__ix_iter(ctx, i, t->n[i]);
    }
    for (int i = 0; i < f.np; i++) {
        part[i] = (ein__val){ein__ex_get(ctx, p[i]->x)->val};
        w[i] = ein__scaled(ctx, p[i]->alpha, p[i]->w);
    }
    bool joint = axis >= 0 ? ein__sum_along(z, &f, p, axis, form, part, &m)
                           : ein__joint_windows(ctx, &f, p, axis, form);
    if (!joint) return;
    ein__joint_subscripts(ctx, &f, p[0], 0, form, ix);
    ein__ex data = part[0].i ? ein__ex_read(ctx, part[0], 0, ix, (int)x->nix) : (ein__ex){0};
    ein__ex weights = ein__side_by_side(z, &f, w, true, p[0]->member, &m.bill);
    ein__scope s = f.s, behind = *ein__scope_of(ctx, map);
    s.body = data.i && weights.i ? ein__ex_binary(ctx, EIN__MUL, data, weights) : (ein__ex){0};
    m.wide = s.body.i ? ein__merge_value(z, p[0]->member, "merged", &s, m.rule) : (ein__val){0};
    const ein__expr *r = ein__ex_get(ctx, sum->read[0]);
    if (m.wide.i) {
        m.map_read = sum->now = ein__ex_read(ctx, m.wide, 0, r->ix, (int)r->nix);
        behind.body = ein__ex_replace_reads(ctx, behind.body, ein__replace_terms, sum);
        m.map = behind.body.i ? ein__merge_value(z, map, NULL, &behind, m.rule) : (ein__val){0};
    }
    if (!m.map.i) {
        ein__merge_free(&m);
        return;
    }
    arrput(m.old, map);
    arrput(m.now, m.map);
    arrput(m.taken, map);
    for (int i = 0; i < f.np; i++) {
        arrput(m.member, p[i]->member);
        arrput(m.taken, p[i]->member);
        m.members_ps += ein__merge_price(z, p[i]->member, i ? (ein__val){0} : map, sum->read[i]);
    }
    ein__add_merge(z, &m);
    ein__merge_free(&m);
}

static void ein__sum_terms_of(ein__merger *z, const ein__scope *s, ein__ex ex, ein__ex **term) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ein__is_sum(ctx, ex))
        for (int k = 0; k < 2; k++) ein__sum_terms_of(z, s, e->kid[k], term);
    if (e->op != EIN__X_READ || z->uses[e->val] != 1 || z->root[e->val]) return;
    const ein__value *v = &ctx->value[e->val];
    const ein__scope *c = ein__scope_of(ctx, (ein__val){e->val});
    if (c && !v->weight_only && v->dtype == EIN__F32 && ein__is_contraction(ctx, c) &&
        !ein__keeps_fp32(ctx, (ein__val){e->val}) && ein__reads_in_place(ctx, e, s))
        arrput(*term, ex);
}

static const ein__part *ein__whole_part(const ein__merger *z, uint32_t val) {
    for (ptrdiff_t i = 0; i < arrlen(z->part); i++)
        if (z->part[i].member.i == val && !z->part[i].outer.i) return &z->part[i];
    return NULL;
}

// Sums of contractions in map `v`, in sub-expression `ex`: each with those that fit its first term.
static void ein__find_sums(ein__merger *z, ein__val v, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__ex *term = NULL;
    if (!ein__is_sum(ctx, ex)) {
        for (uint32_t i = 0; i < e->nkid; i++) ein__find_sums(z, v, e->kid[i]);
        return;
    }
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__sum_terms_of(z, s, ex, &term);
    for (ptrdiff_t a = 0; a + 1 < arrlen(term); a++) {
        const ein__part *p[EIN__MERGE_GROUP] = {ein__whole_part(z, ein__ex_get(ctx, term[a])->val)};
        ein__sum sum = {.n = 1, .read = {term[a]}};
        int axis = -1, other;
        for (ptrdiff_t b = a + 1; p[0] && b < arrlen(term) && sum.n < EIN__MERGE_GROUP; b++) {
            p[sum.n] = ein__whole_part(z, ein__ex_get(ctx, term[b])->val);
            if (!p[sum.n] || !ein__sum_fits(ctx, p[0], p[sum.n], &other)) continue;
            if (sum.n > 1 && other != axis) continue;
            axis = other;
            sum.read[sum.n++] = term[b];
        }
        bool once = sum.n > 1;
        for (int i = 0; i < sum.n; i++) once &= ein__occurrences(ctx, s->body, sum.read[i]) == 1;
        if (once && z->tries++ < EIN__MERGE_TRIES) ein__merge_sum(z, v, p, &sum, axis);
        if (once) break;
    }
    arrfree(term);
}

// ------------------------------------------------------------------------------------ the program

static void ein__merger_look(ein__merger *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t n = arrlen(ctx->value);
    z->first = (uint32_t)n;
    ein__keep_attentions(ctx, root, nroot);
    z->order = ein__live(ctx, root, nroot);
    z->uses = ein__count_uses(ctx, z->order, root, nroot);
    z->readers = ein__find_readers(ctx, z->order);
    arrsetlen(z->level, n);
    arrsetlen(z->root, n);
    arrsetlen(z->behind, n);
    arrsetlen(z->behind_read, n);
    memset(z->level, 0, (size_t)n * sizeof *z->level);
    memset(z->root, 0, (size_t)n * sizeof *z->root);
    memset(z->behind, 0, (size_t)n * sizeof *z->behind);
    memset(z->behind_read, 0, (size_t)n * sizeof *z->behind_read);
    for (int k = 0; k < nroot; k++) z->root[root[k].i] = true;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (!s || ctx->value[v.i].weight_only) continue;
        const ein__ex *reads = ein__ex_reads(ctx, s->body);
        bool copy = ein__copy_of(ctx, v) != NULL, map = s->reduce == EIN__R_NONE && !copy;
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            const ein__expr *r = ein__ex_get(ctx, reads[k]);
            int times = 0;
            for (ptrdiff_t j = 0; j < arrlen(reads); j++)
                times += ein__ex_get(ctx, reads[j])->val == r->val;
            if (z->level[r->val] >= z->level[v.i]) z->level[v.i] = z->level[r->val] + 1;
            if (!map || times > 1 || z->uses[r->val] != 1 || z->root[r->val] ||
                !ein__reads_in_place(ctx, r, s))
                continue;
            z->behind[r->val] = v;
            z->behind_read[r->val] = reads[k];
        }
        if (ein__may_merge(ctx, v)) arrput(z->product, v);
    }
}

static void ein__merger_forget(ein__merger *z) {
    arrfree(z->order);
    arrfree(z->product);
    arrfree(z->uses);
    ein__readers_free(&z->readers);
    arrfree(z->level);
    arrfree(z->root);
    arrfree(z->behind);
    arrfree(z->behind_read);
    arrfree(z->part);
}

// The contractions that contraction `v` has inside by summation splitting.
static void ein__split_parts(ein__merger *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__deriver d = ein__deriver_of(ctx, v, (ein__val){0}, (ein__ex){0});
    ein__attempt attempt = ein__try(ctx);
    arrput(d.cls, v);
    ein__add_def(&d, v, ein__scope_of(ctx, v), -1, NULL, EIN__WHOLE);
    ein__rule_split(&d, 0);
    bool ok = ein__tried(ctx, attempt) && !ctx->status;
    for (ptrdiff_t i = 1; ok && i < arrlen(d.def); i++) {
        const ein__expr *e = ein__ex_get(ctx, ein__sc_get(ctx, d.def[i].sc)->body);
        if (d.def[i].cls.i != v.i || e->op != EIN__X_READ || e->val < d.first) continue;
        ein__val inner = {e->val};
        ein__add_part(z, v, ctx->value[inner.i].scope, inner, d.def[i].sc);
    }
    ein__deriver_free(&d);
}

static void ein__find_parts(ein__merger *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->product); i++) {
        ein__val v = z->product[i];
        ein__add_part(z, v, ctx->value[v.i].scope, v, (ein__sc){0});
    }
    // Products inside matter where another contraction is as far from the inputs.
    for (ptrdiff_t i = 0; i < arrlen(z->product); i++) {
        ein__val v = z->product[i];
        bool peer = false;
        for (ptrdiff_t k = 0; k < arrlen(z->product); k++)
            peer |= k != i && z->level[z->product[k].i] == z->level[v.i];
        if (peer && ein__scope_of(ctx, v)->ns > 1) ein__split_parts(z, v);
    }
}

// Merges are looked for among values that the last round made, or that read such; in the first
// round everywhere.
static bool ein__is_news(const ein__merger *z, const ein__part *const *p, int n) {
    for (int i = 0; i < n; i++)
        if (p[i]->member.i >= z->changed) return true;
    return false;
}

static bool ein__spread(const ein__merger *z, const ein__part *const *p, int n) {
    int flat = 0;
    for (int i = 0; i < n; i++) {
        const ein__scope *s = ein__sc_get(z->ctx, p[i]->sc);
        int mine = 0;
        for (uint32_t t = 0; t < s->nt; t++) mine += s->n[t] > 1 && !(p[i]->in_x >> t & 1);
        if (mine > flat && !p[i]->outer.i) flat = mine;
    }
    return flat > 1;
}

typedef enum { EIN__BY_SAME, EIN__BY_NEAR, EIN__BY_LIKE } ein__group_key;

static const char *ein__part_key(const ein__part *p, ein__group_key by) {
    return by == EIN__BY_SAME ? p->same : by == EIN__BY_NEAR ? p->near : p->like;
}

static void ein__try_group(ein__merger *z, const ein__part *const *p, int n, ein__group_key by) {
    bool alike = true, whole = true;
    for (int i = 0; i < n; i++) {
        alike &= p[i]->same == p[0]->same;
        whole &= !p[i]->outer.i;
    }
    if (n < 2 || !ein__is_news(z, p, n) || (by == EIN__BY_NEAR && alike)) return;
    int variants = by == EIN__BY_LIKE ? 1 + whole : 1 + ein__spread(z, p, n);
    for (int k = 0; k < variants && z->tries++ < EIN__MERGE_TRIES; k++) {
        ein__attempt attempt = ein__try(z->ctx);
        if (by == EIN__BY_LIKE) ein__merge_batched(z, p, n, k);
        else ein__merge_shared(z, p, n, k == 0);
        ein__tried(z->ctx, attempt);
        if (z->ctx->status) return;
    }
}

// The most that a merge saves of those found from `from` on; none saves less than nothing.
static int64_t ein__best_saving(const ein__merger *z, ptrdiff_t from) {
    int64_t best = 0;
    for (ptrdiff_t i = from; i < arrlen(z->found); i++)
        if (z->found[i].members_ps - z->found[i].ps > best)
            best = z->found[i].members_ps - z->found[i].ps;
    return best;
}

// What the group saves without member `out`; the merges are not kept.
static int64_t ein__saving_without(ein__merger *z, const ein__part *const *p, int n, int out,
                                   ein__group_key by) {
    const ein__part *rest[EIN__MERGE_GROUP];
    ptrdiff_t before = arrlen(z->found);
    int tries = z->tries, m = 0;
    for (int i = 0; i < n; i++)
        if (i != out) rest[m++] = p[i];
    ein__try_group(z, rest, m, by);
    int64_t saving = ein__best_saving(z, before);
    while (arrlen(z->found) > before) {
        ein__merge_free(&arrlast(z->found));
        (void)arrpop(z->found);
    }
    z->tries = tries;
    return saving;
}

// Members are left out of a group one by one, each time the one without which the rest saves most,
// as long as it saves more so. What is left of the group is merged, and so are those left out.
static void ein__toggle_members(ein__merger *z, const ein__part *const *p, int n, ein__group_key by,
                                ptrdiff_t from) {
    const ein__part *in[EIN__MERGE_GROUP], *left[EIN__MERGE_GROUP];
    int64_t best = ein__best_saving(z, from);
    int nleft = 0, nin = n;
    memcpy(in, p, (size_t)n * sizeof *in);
    for (bool better = true; better && nin > 2 && !z->ctx->status;) {
        int out = -1;
        for (int i = 0; i < nin && z->toggles < EIN__MERGE_TOGGLES; i++, z->toggles++) {
            int64_t saving = ein__saving_without(z, in, nin, i, by);
            if (saving <= best) continue;
            best = saving;
            out = i;
        }
        better = out >= 0;
        if (!better) break;
        left[nleft++] = in[out];
        memmove(&in[out], &in[out + 1], (size_t)(--nin - out) * sizeof *in);
    }
    if (nin == n) return;
    z->toggling = true;
    ein__try_group(z, in, nin, by);
    ein__try_group(z, left, nleft, by);
    z->toggling = false;
}

// A group of parts with one key: all of it, and what of it is better left out.
static void ein__merge_group(ein__merger *z, const ein__part *const *p, int n, ein__group_key by) {
    ptrdiff_t from = arrlen(z->found);
    ein__try_group(z, p, n, by);
    if (n > 2) ein__toggle_members(z, p, n, by, from);
}

// Parts with one key, one of each member, in the program's order.
static void ein__find_groups(ein__merger *z, ein__group_key by) {
    bool *done = NULL;
    arrsetlen(done, arrlen(z->part) + 1);
    memset(done, 0, (size_t)arrlen(done));
    for (ptrdiff_t a = 0; a < arrlen(z->part) && !z->ctx->status; a++) {
        const ein__part *p[EIN__MERGE_GROUP];
        const char *key = ein__part_key(&z->part[a], by);
        int n = 0;
        if (!key || done[a]) continue;
        for (ptrdiff_t b = a; b < arrlen(z->part); b++) {
            if (ein__part_key(&z->part[b], by) != key || done[b]) continue;
            bool known = false;
            for (int i = 0; i < n; i++) known |= p[i]->member.i == z->part[b].member.i;
            done[b] = true;
            if (!known) p[n++] = &z->part[b];
            if (n < EIN__MERGE_GROUP) continue;
            ein__merge_group(z, p, n, by);
            n = 0;
        }
        ein__merge_group(z, p, n, by);
    }
    arrfree(done);
}

// The cheapest merges that have no value in common, in the order of what they save. `toggle`:
// groups without some of their members as well.
static bool ein__choose_merges(ein__merger *z, bool toggle, ptrdiff_t from) {
    bool *taken = NULL, any = false;  // by value
    arrsetlen(taken, arrlen(z->ctx->value));
    memset(taken, 0, (size_t)arrlen(taken) * sizeof *taken);
    for (;;) {
        ein__merge *best = NULL;
        for (ptrdiff_t i = from; i < arrlen(z->found); i++) {
            ein__merge *m = &z->found[i];
            bool free = !m->chosen && m->ps < m->members_ps && (toggle || !m->toggled);
            for (ptrdiff_t k = 0; free && k < arrlen(m->taken); k++) free = !taken[m->taken[k].i];
            if (free && (!best || m->members_ps - m->ps > best->members_ps - best->ps)) best = m;
        }
        if (!best) break;
        best->chosen = any = true;
        for (ptrdiff_t k = 0; k < arrlen(best->taken); k++) taken[best->taken[k].i] = true;
    }
    arrfree(taken);
    return any;
}

// ------------------------------------------------------------------------------------ the pass

typedef struct ein__redirect {
    ein__val *to;        // by value: what stands in its place, or none
    ein__val *now;       // by value: what it has become
    bool *output;        // by value: stands for an output, of which every one is a value of its own
    ein__val *by_scope;  // so that equal definitions are one value
} ein__redirect;

static ein__ex ein__redirect_read(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__redirect *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = z->now[e->val];
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return ein__ex_read(ctx, v.i ? v : (ein__val){e->val}, pad, e->ix, (int)e->nix);
}

static ein__val ein__redirected(ein_ctx *ctx, ein__redirect *z, ein__val v) {
    if (z->to[v.i].i) return z->now[z->to[v.i].i];
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s) return v;
    const ein__value old = ctx->value[v.i];
    ein__scope t = *s;
    t.body = ein__ex_replace_reads(ctx, s->body, ein__redirect_read, z);
    ein__sc sc = t.body.i ? ein__sc_make(ctx, &t) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc.i) arrput(z->by_scope, (ein__val){0});
    ein__val twin = z->by_scope[sc.i];
    bool own = z->output[v.i];
    if (twin.i && !own && ctx->value[twin.i].dtype == old.dtype) return twin;
    if (sc.i != old.scope.i) {
        v = ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype,
                         old.node);
        ctx->value[v.i].why = old.why;
    }
    if (!twin.i && !own) z->by_scope[sc.i] = v;
    return v;
}

// Rebuilds the program with the chosen merges, in an order that an explicit stack finds. `*cycle`:
// there is none, because two merges each take what the other one gives.
static bool ein__apply_merges(ein__merger *z, ein__val *root, int nroot, ptrdiff_t from,
                              bool *cycle) {
    ein_ctx *ctx = z->ctx;
    ein__redirect r = {0};
    ein__val *stack = NULL;
    bool *open = NULL;  // by value: what it reads has been put on the stack
    ptrdiff_t n = arrlen(ctx->value);
    *cycle = false;
    arrsetlen(open, n);
    memset(open, 0, (size_t)n * sizeof *open);
    arrsetlen(r.to, n);
    arrsetlen(r.now, n);
    arrsetlen(r.output, n);
    memset(r.to, 0, (size_t)n * sizeof *r.to);
    memset(r.now, 0, (size_t)n * sizeof *r.now);
    memset(r.output, 0, (size_t)n * sizeof *r.output);
    for (ptrdiff_t i = from; i < arrlen(z->found); i++)
        for (ptrdiff_t k = 0; z->found[i].chosen && k < arrlen(z->found[i].old); k++)
            r.to[z->found[i].old[k].i] = z->found[i].now[k];
    for (int k = nroot; k-- > 0;) {
        arrput(stack, root[k]);
        r.output[root[k].i] = true;
        r.output[r.to[root[k].i].i] = true;
    }
    while (arrlen(stack) && !ctx->status) {
        ein__val v = arrlast(stack);
        const ein__scope *s = ein__scope_of(ctx, v);
        const ein__ex *reads = NULL;
        ptrdiff_t before = arrlen(stack);
        if (!r.now[v.i].i && r.to[v.i].i && !r.now[r.to[v.i].i].i) arrput(stack, r.to[v.i]);
        if (!r.now[v.i].i && !r.to[v.i].i && s) reads = ein__ex_reads(ctx, s->body);
        for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
            ein__val x = {ein__ex_get(ctx, reads[i])->val};
            if (!r.now[x.i].i) arrput(stack, x);
        }
        *cycle = arrlen(stack) > before && open[v.i];
        if (*cycle) break;
        open[v.i] = true;
        if (arrlen(stack) > before) continue;
        if (!r.now[v.i].i) r.now[v.i] = ein__redirected(ctx, &r, v);
        if (!r.now[v.i].i) break;
        (void)arrpop(stack);
    }
    bool ok = !ctx->status && !arrlen(stack);
    for (int k = 0; ok && k < nroot; k++) root[k] = r.now[root[k].i];
    arrfree(stack);
    arrfree(open);
    arrfree(r.to);
    arrfree(r.now);
    arrfree(r.output);
    arrfree(r.by_scope);
    return ok;
}

// As above; merges that stand in each other's way are given up, the last one first.
static bool ein__apply_possible(ein__merger *z, ein__val *root, int nroot, ptrdiff_t from) {
    bool cycle;
    while (!ein__apply_merges(z, root, nroot, from, &cycle)) {
        ptrdiff_t last = arrlen(z->found) - 1;
        while (last >= from && !z->found[last].chosen) last--;
        if (!cycle || last < from) return false;
        z->found[last].chosen = false;
    }
    for (ptrdiff_t i = from; i < arrlen(z->found); i++)
        if (z->found[i].chosen) return true;
    return false;
}

// Finds and prices the merges of the program under `root`.
static void ein__find_merges(ein__merger *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    ein__merger_look(z, root, nroot);
    ein__find_parts(z);
    ein__find_groups(z, EIN__BY_SAME);
    ein__find_groups(z, EIN__BY_NEAR);
    ein__find_groups(z, EIN__BY_LIKE);
    ein__find_chains(z);
    for (ptrdiff_t i = 0; i < arrlen(z->order) && !ctx->status; i++) {
        ein__val v = z->order[i];
        if (v.i >= z->changed && ein__is_map(ctx, v) && !ctx->value[v.i].weight_only)
            ein__find_sums(z, v, ein__scope_of(ctx, v)->body);
    }
    ein__merger_forget(z);
}

// The merges of the first round, none of them chosen; found, unless they have been.
static void ein__first_merges(ein__merger *z, const ein__val *root, int nroot) {
    if (!z->first_values) {
        ein__find_merges(z, root, nroot);
        z->first_found = arrlen(z->found);
        z->first_values = arrlen(z->ctx->value);
        z->first_tries = z->tries;
        z->first_toggles = z->toggles;
    }
    while (arrlen(z->found) > z->first_found) {
        ein__merge_free(&arrlast(z->found));
        (void)arrpop(z->found);
    }
    for (ptrdiff_t i = 0; i < arrlen(z->found); i++) z->found[i].chosen = false;
    z->tries = z->first_tries;
    z->toggles = z->first_toggles;
}

// Merges in the program under `root`, round by round; the roots are replaced. `toggle`: whether
// groups may be chosen without some of their members. `z`: empty, or what merged that program the
// other way. All merges that were priced are z->found, to be freed by ein__merges_free. False when
// none was worth it.
EIN__FN bool ein__merge_rounds(ein__merger *z, ein__val *root, int nroot, bool toggle) {
    ein_ctx *ctx = z->ctx;
    bool any = false;
    int rounds = ein__rule_on(ctx, EIN__RULE_MERGE) ? EIN__MERGE_ROUNDS : 0;
    for (int round = 0; round < rounds && !ctx->status; round++) {
        ptrdiff_t from = round ? arrlen(z->found) : 0;
        if (round) ein__find_merges(z, root, nroot);
        else ein__first_merges(z, root, nroot);
        z->changed = (uint32_t)arrlen(ctx->value);
        if (!ein__choose_merges(z, toggle, from) || !ein__apply_possible(z, root, nroot, from))
            break;
        any = true;
    }
    return any;
}

// The same once.
EIN__FN bool ein__merge_program(ein_ctx *ctx, ein__val *root, int nroot, bool toggle,
                                ein__merge **found) {
    ein__merger z = {.ctx = ctx};
    bool any = ein__merge_rounds(&z, root, nroot, toggle);
    *found = z.found;
    return any;
}
