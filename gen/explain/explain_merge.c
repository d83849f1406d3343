// Merges of the whole program for people and for other programs: every one that was priced, or the
// chosen ones. A merge is a candidate as a contraction has them; its steps are the values that it
// makes. Where a derivation of the merged contraction is cheaper than the contraction as it stands,
// both are candidates.

// Ids of merges begin here, those of every contraction's own candidates with 0.
enum { EIN__MERGE_ID = 1000000 };

typedef struct ein__merge_form {
    const ein__merge *m;
    bool derived, only;  // by the cheapest derivation; there is no other form
    int64_t ps;
} ein__merge_form;

// Contraction `v` of a merge as a problem of its own, set to its cheapest definition (`derived`) or
// to the one it has; its cost in `*ps`. NULL when it met a limit.
static ein__problem *ein__merge_problem(ein_ctx *ctx, const ein__merge *m, ein__val v, bool derived,
                                        ein__operands *b, int64_t *ps) {
    ein__problem *p = ein__problem_of(ctx, v, b);
    ein__val map = v.i == m->wide.i ? m->map : (ein__val){0};
    *ps = EIN__NO_WAY;
    if (!p || ctx->status) return NULL;
    ein__choice c = ein__choose_def(ctx, p, map, m->map_read);
    if (c.best < 0) return NULL;
    p->z.map = map;
    p->z.map_read = m->map_read;
    p->z.best[0] = derived ? c.best : 0;
    *ps = ein__def_cost(&p->z, &p->z.def[p->z.best[0]], EIN__NO_WAY);
    return p;
}

static bool ein__runs_inner(const ein_ctx *ctx, const ein__merge *m) {
    return m->inner.i && !ctx->value[m->inner.i].weight_only;
}

// Cost of a merge with its contractions as they stand.
static int64_t ein__merge_given_cost(ein_ctx *ctx, const ein__merge *m) {
    ein__operands b = {.n = 0};
    int64_t total, inner;
    ein__merge_problem(ctx, m, m->wide, false, &b, &total);
    if (ein__runs_inner(ctx, m)) {
        b.n = 0;
        ein__merge_problem(ctx, m, m->inner, false, &b, &inner);
        total = ein__cost_sum(total, inner);
    }
    for (ptrdiff_t i = 0; i < arrlen(m->bill); i++) total = ein__cost_sum(total, m->bill[i].ps);
    return total;
}

// The candidates that merges `found` are, in the order found: an stb_ds array. A candidate's id is
// EIN__MERGE_ID and its place in it.
EIN__FN ein__merge_form *ein__merge_forms(ein_ctx *ctx, const ein__merge *found) {
    ein__merge_form *list = NULL;
    for (ptrdiff_t i = 0; i < arrlen(found) && !ctx->status; i++) {
        int64_t given = ein__merge_given_cost(ctx, &found[i]);
        bool two = found[i].ps < given;
        arrput(list, ((ein__merge_form){&found[i], false, !two, given}));
        if (two) arrput(list, ((ein__merge_form){&found[i], true, false, found[i].ps}));
    }
    return list;
}

// ------------------------------------------------------------------------------------ steps

// The values that the merge makes: those that stand for the members, and what they read that the
// program did not have.
static void ein__merge_values(ein_ctx *ctx, ein__val v, uint32_t first, ein__val **list) {
    for (ptrdiff_t i = 0; i < arrlen(*list); i++)
        if ((*list)[i].i == v.i) return;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || v.i < first) return;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        ein__merge_values(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val}, first, list);
    arrput(*list, v);
}

typedef struct ein__merge_lister {
    ein__explainer x;
    ein__realiser r;
    const ein__merge_form *f;
    int64_t best;        // cost of the best form once the merge is known: the members or the merge
    const char **names;  // of the merge's values and of what they read; stb_ds array
} ein__merge_lister;

// One step: value `v`, by definition `def` of the explained contraction (-1: it is none of its).
// `kind`: what computes it where that is no call and no kernel, or NULL.
static void ein__put_merge_step(ein__merge_lister *l, ein__val v, const ein__def *d, int def,
                                const char *kind, int64_t ps) {
    ein_ctx *ctx = l->x.ctx;
    ein__buf *out = l->x.out, text = {0};
    const char *why = ctx->value[v.i].why ? ctx->value[v.i].why : "", *trail = "";
    if (def >= 0) {
        trail = ein__trail(l->x.z, def);
        why = *trail ? ein__namef(ctx, "%s; %s", l->f->m->rule, trail) : l->f->m->rule;
    }
    if (l->x.json || !ein__print_table(ctx, v, &text)) ein__print_value(ctx, v, &text);
    if (l->x.json) {
        ein__put(out, l->x.nstep ? ",\n         " : "\n         ");
        ein__put(out, "{\"equation\": ");
        ein__json_string(out, text.s);
        ein__put(out, ", \"call\": ");
        if (kind) ein__putf(out, "{\"kind\": \"%s\"}, \"matches\": []", kind);
        else ein__put_signature(&l->x, d);
        ein__putf(out, ", \"ps\": %lld, \"rules\": ", (long long)ps);
        ein__json_string(out, why);
        ein__put(out, ", \"trail\": [");
        if (*why) {
            ein__put(out, "{\"rule\": ");
            ein__json_string(out, def >= 0 ? l->f->m->rule : why);
            ein__putf(out, ", \"best_ps\": %lld}", (long long)l->best);
        }
        if (*trail) ein__put(out, ", ");
        if (def >= 0) ein__put_trail_json(&l->x, def);
        ein__put(out, "]}");
    } else {
        ein__put(out, "      ");
        ein__put_us(out, ps);
        ein__put(out, "  ");
        if (kind) ein__put(out, kind);
        else ein__put_signature(&l->x, d);
        if (*why) ein__putf(out, "\n                  by %s", why);
        ein__putf(out, "\n                  %s\n", text.s);
    }
    ein__buf_free(&text);
    l->x.nstep++;
}

// The steps of definition `def` of a merged contraction, operands first. The map behind it is a
// step of its own: `*map_ps` receives its share of the cost.
static void ein__put_merged_steps(ein__merge_lister *l, int def, int64_t *map_ps) {
    ein_ctx *ctx = l->x.ctx;
    ein__deriver *z = l->x.z;
    ein__def d = z->def[def];
    const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, d.sc)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t v = ein__ex_get(ctx, reads[i])->val;
        while (arrlen(l->x.listed) <= (ptrdiff_t)v) arrput(l->x.listed, false);
        int best = ein__best_def(z, (ein__val){v});
        if (best < 0 || l->x.listed[v] || v == z->problem.i) continue;
        l->x.listed[v] = true;
        ein__put_merged_steps(l, best, map_ps);
    }
    int64_t ps = ein__def_step_cost(z, &d);
    if (d.cls.i == z->problem.i && z->map.i) {
        ein__val map = z->map;
        z->map = (ein__val){0};
        int64_t alone = ein__def_step_cost(z, &d);
        z->map = map;
        *map_ps = ps > alone ? ps - alone : 0;
        ps -= *map_ps;
    }
    ein__put_merge_step(l, l->r.made[ein__class_at(z, d.cls)], &d, def, NULL, ps);
}

static bool ein__is_named(const char *const *names, const char *name) {
    for (ptrdiff_t i = 0; i < arrlen(names); i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

// Values made on the way get numbers where their names are taken, so that the equations of a merge
// can stand in one model.
static void ein__number_value(ein__merge_lister *l, ein__val v) {
    ein_ctx *ctx = l->x.ctx;
    const char *plain = ctx->value[v.i].name, *name = plain;
    for (int n = 2; ein__is_named(l->names, name); n++) name = ein__namef(ctx, "%s.%d", plain, n);
    ctx->value[v.i].name = name;
    arrput(l->names, name);
}

// What the program has, which the values of `list` read or stand for, keeps its name.
static void ein__merge_names(ein__merge_lister *l, const ein__val *list) {
    ein_ctx *ctx = l->x.ctx;
    const ein__merge *m = l->f->m;
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, list[i])->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            if (v < m->first) arrput(l->names, ctx->value[v].name);
        }
        if (list[i].i < m->first) arrput(l->names, ctx->value[list[i].i].name);
    }
    for (ptrdiff_t i = 0; i < arrlen(m->now); i++) arrput(l->names, ctx->value[m->now[i].i].name);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        bool own = list[i].i < m->first;
        for (ptrdiff_t k = 0; k < arrlen(m->now); k++) own |= m->now[k].i == list[i].i;
        if (!own) ein__number_value(l, list[i]);
    }
}

// Contraction `v` of the merge with everything that its definition needs.
static void ein__put_merged(ein__merge_lister *l, ein__val v, int64_t *map_ps) {
    ein_ctx *ctx = l->x.ctx;
    ein__operands b = {.n = 0};
    int64_t ps;
    ein__problem *p = ein__merge_problem(ctx, l->f->m, v, l->f->derived, &b, &ps);
    if (!p) return;
    int64_t *so_far = ein__costs_so_far(&p->z), given = so_far[0];
    int64_t rest = ein__merge_given_cost(ctx, l->f->m) - given;
    p = ein__merge_problem(ctx, l->f->m, v, l->f->derived, &b, &ps);
    for (ptrdiff_t i = 0; i < arrlen(so_far); i++) {
        so_far[i] = ein__cost_sum(so_far[i], rest);
        if (so_far[i] > l->best) so_far[i] = l->best;
    }
    l->r = (ein__realiser){.z = &p->z, .nstand = b.n, .self = v};
    memcpy(l->r.stand_in, b.stand_in, sizeof b.stand_in);
    memcpy(l->r.actual, b.actual, sizeof b.actual);
    l->x.z = &p->z;
    l->x.so_far = so_far;
    if (ein__realise(&l->r, p->z.problem).i) {
        // The first one is the contraction, whose name it keeps.
        for (ptrdiff_t i = 1; i < arrlen(l->r.made); i++)
            if (l->r.made[i].i) ein__number_value(l, l->r.made[i]);
        ein__put_merged_steps(l, p->z.best[0], map_ps);
    }
    arrfree(l->r.made);
    arrfree(l->r.by_scope);
    arrfree(so_far);
}

// Any other value of the merge: weights at load, copies, windows, the map behind the contraction.
static void ein__put_merge_value(ein__merge_lister *l, ein__val v, int64_t map_ps) {
    ein_ctx *ctx = l->x.ctx;
    const ein__merge *m = l->f->m;
    ein__deriver none = {.ctx = ctx, .first = UINT32_MAX};
    ein__def d = {.cls = v, .sc = ctx->value[v.i].scope, .from = -1};
    int64_t ps = v.i == m->map.i ? map_ps : 0;
    for (ptrdiff_t i = 0; i < arrlen(m->bill); i++)
        if (m->bill[i].v.i == v.i) ps = ein__cost_sum(ps, m->bill[i].ps);
    bool idle = !ps && !ctx->value[v.i].weight_only;
    l->x.z = &none;
    ein__put_merge_step(l, v, &d, -1, !idle ? NULL : v.i == m->map.i ? "fused" : "view", ps);
}

static void ein__put_merge_steps(ein__merge_lister *l) {
    ein_ctx *ctx = l->x.ctx;
    const ein__merge *m = l->f->m;
    ein__val *list = NULL;
    int64_t map_ps = 0;
    for (ptrdiff_t i = 0; i < arrlen(m->now); i++)
        ein__merge_values(ctx, m->now[i], m->first, &list);
    // Maps behind the members that stay steps of their own.
    for (ptrdiff_t i = 0; i < arrlen(m->bill); i++)
        if (m->bill[i].v.i < m->first) arrput(list, m->bill[i].v);
    if (m->map.i && m->map.i < m->first) arrput(list, m->map);
    ein__merge_names(l, list);
    for (ptrdiff_t i = 0; i < arrlen(list) && !ctx->status; i++) {
        bool inner = list[i].i == m->inner.i && ein__runs_inner(ctx, m);
        if (inner || list[i].i == m->wide.i) ein__put_merged(l, list[i], &map_ps);
        else ein__put_merge_value(l, list[i], map_ps);
    }
    arrfree(list);
}

// ------------------------------------------------------------------------------------ merges

// How the merged contraction is computed as it stands, and every call that it matches.
static void ein__put_merge_call(ein__merge_lister *l) {
    ein_ctx *ctx = l->x.ctx;
    ein__val v = l->f->m->wide;
    ein__deriver z = {.ctx = ctx, .first = UINT32_MAX, .problem = v};
    ein__def d = {.cls = v, .sc = ctx->value[v.i].scope, .from = -1};
    z.map = l->f->m->map;
    z.map_read = l->f->m->map_read;
    l->x.z = &z;
    ein__put_signature(&l->x, &d);
}

// Whether the plan has the merge in this form.
static bool ein__form_chosen(const ein_ctx *ctx, const ein__merge_form *f) {
    return ctx->plan.way.merging != EIN__UNMERGED && f->m->chosen && (f->derived || f->only);
}

static void ein__put_merge(ein_ctx *ctx, const ein__merge_form *f, int id, bool first, bool json,
                           ein__buf *out) {
    const ein__merge *m = f->m;
    ein__merge_lister l = {.x = {.ctx = ctx, .out = out, .json = json}, .f = f};
    int64_t given = ein__merge_given_cost(ctx, m);
    bool chosen = ein__form_chosen(ctx, f);
    l.best = given < m->members_ps ? given : m->members_ps;
    if (json) ein__putf(out, "%s\n  {\"id\": %d, \"rule\": \"%s\"", first ? "" : ",", id, m->rule);
    else ein__putf(out, "  candidate %d, %s%s:", id, m->rule, chosen ? ", chosen" : "");
    if (!json) {
        ein__put_us(out, f->ps);
        ein__put(out, ", alone");
        ein__put_us(out, m->members_ps);
        ein__put(out, "\n      of ");
    }
    ein__put(out, json ? ", \"members\": [" : "");
    for (ptrdiff_t i = 0; i < arrlen(m->member); i++) {
        const char *name = ctx->value[m->member[i].i].name;
        ein__put(out, i ? ", " : "");
        if (json) ein__json_string(out, name);
        else ein__put(out, name);
    }
    if (json) {
        ein__put(out, "], \"call\": ");
        ein__put_merge_call(&l);
        ein__putf(out, ", \"ps\": %lld, \"members_ps\": %lld, \"chosen\": %s, \"steps\": [",
                  (long long)f->ps, (long long)m->members_ps, chosen ? "true" : "false");
    } else {
        ein__put(out, "\n");
    }
    ein__put_merge_steps(&l);
    ein__put(out, json ? "]}" : "");
    arrfree(l.x.listed);
    arrfree(l.names);
}

// Rounds meet the same merge again when what it reads was replaced.
static bool ein__same_merge(ein_ctx *ctx, const ein__merge_form *f, const ein__merge_form *g) {
    const ein__merge *a = f->m, *b = g->m;
    bool same = a->rule == b->rule && f->ps == g->ps && f->derived == g->derived &&
                arrlen(a->member) == arrlen(b->member) && a->first != b->first && !a->chosen &&
                !b->chosen;
    for (ptrdiff_t k = 0; same && k < arrlen(a->member); k++)
        same = ctx->value[a->member[k].i].name == ctx->value[b->member[k].i].name;
    return same;
}

// Whether contraction or map `name` takes part in merge `m`.
static bool ein__merge_has(const ein_ctx *ctx, const ein__merge *m, const char *name) {
    bool has = false;
    for (ptrdiff_t k = 0; !has && k < arrlen(m->taken); k++) {
        const char *mine = ctx->value[m->taken[k].i].name;
        size_t length = strlen(name);
        has = !strncmp(mine, name, length) && (!mine[length] || mine[length] == '.');
    }
    return has;
}

// All merges of the program under `root`, as the plan takes them: those that are chosen are in it.
EIN__FN ein__merge *ein__planned_merges(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *merged = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ein__merge *found = NULL;
    memcpy(merged, root, (size_t)nroot * sizeof *root);
    ein__merge_program(ctx, merged, nroot, false, &found);
    if (!found || ctx->status || (!ctx->plan.step && !ein__make_plan(ctx)) ||
        ctx->plan.way.merging != EIN__TOGGLED)
        return found;
    ein__merges_free(found);
    memcpy(merged, root, (size_t)nroot * sizeof *root);
    ein__merge_program(ctx, merged, nroot, true, &found);
    return found;
}

// Merges that `name` takes part in (NULL: all); all that were priced, or the chosen ones.
EIN__FN void ein__explain_merges(ein_ctx *ctx, const ein__val *root, int nroot, const char *name,
                                 bool all, bool json, ein__buf *out) {
    ein__merge *found = ein__planned_merges(ctx, root, nroot);
    int n = 0;
    ein__merge_form *list = ein__merge_forms(ctx, found);
    if (json) ein__put(out, ", \"merges\": [");
    for (ptrdiff_t i = 0; i < arrlen(list) && !ctx->status; i++) {
        bool listed = !name || ein__merge_has(ctx, list[i].m, name);
        for (ptrdiff_t k = 0; listed && k < i; k++)
            listed = !ein__same_merge(ctx, &list[i], &list[k]);
        if (!listed || (!all && !ein__form_chosen(ctx, &list[i]))) continue;
        if (!json && !n) ein__put(out, "\nmerges\n");
        ein__put_merge(ctx, &list[i], EIN__MERGE_ID + (int)i, !n++, json, out);
    }
    if (json) ein__put(out, "]");
    arrfree(list);
    ein__merges_free(found);
}
