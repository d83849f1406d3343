// Exploration of one problem: rules applied to its definitions until nothing is new.
//
// Breadth first, which keeps the shortest trails. Where that meets a budget before it is through,
// what the budget buys depends on the order, so the problem is explored once more best first: by
// expression distance. That comes to library calls sooner, but a call is not always what is
// cheapest; the exploration with the cheaper plan is kept.

enum { EIN__PROGRESS_STEP = 64 };  // definitions between two calls of ein_desc.progress

// Whether rule `r` is none of search, or the options leave it out.
static bool ein__rule_is_off(const ein_ctx *ctx, int r) {
    if (!ein__rules[r].apply || !ein__rule_on(ctx, (ein__rule_id)r)) return true;
    return ein__rules[r].converging && ctx->desc.no_converge;
}

// Rule `r` on definition `def`. A rule that meets a limit of the implementation gives nothing.
static void ein__apply_rule(ein__deriver *z, int def, int r) {
    ptrdiff_t before = arrlen(z->def);
    if (z->added[r] >= ein__rules[r].quota) {
        ein__stopped(z, EIN_STOP_QUOTA);
        return;
    }
    ein__attempt attempt = ein__try(z->ctx);
    ein__rules[r].apply(z, def);
    ein__tried(z->ctx, attempt);
    z->added[r] += (int)(arrlen(z->def) - before);
    for (ptrdiff_t i = before; i < arrlen(z->def); i++) z->def[i].by = r;
}

static int ein__depth_limit(const ein_ctx *ctx) {
    return ctx->desc.depth ? ctx->desc.depth : EIN__DERIVE_DEPTH;
}

// Makes the problem's own definition the only one.
static void ein__explore_from_start(ein__deriver *z) {
    arrsetlen(z->def, 0);
    arrsetlen(z->cls, 0);
    memset(z->added, 0, sizeof z->added);
    z->ntransform = 0;
    z->stop = EIN_STOP_SATURATED;
    z->first = (uint32_t)arrlen(z->ctx->value);
    arrput(z->cls, z->problem);
    ein__add_def(z, z->problem, ein__scope_of(z->ctx, z->problem), -1, NULL, EIN__WHOLE);
}

static bool ein__explore_cancelled(ein__deriver *z) {
    if (ein__progress(z->ctx)) return false;
    ein__stopped(z, EIN_STOP_CANCELLED);
    return true;
}

static void ein__explore_in_breadth(ein__deriver *z) {
    int depth = ein__depth_limit(z->ctx);
    ein__explore_from_start(z);
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !z->ctx->status; i++) {
        if (i % EIN__PROGRESS_STEP == 0 && ein__explore_cancelled(z)) return;
        if (z->def[i].depth >= depth) ein__stopped(z, EIN_STOP_DEPTH);
        for (int r = 0; r < EIN__NRULES && z->def[i].depth < depth; r++)
            if (!ein__rule_is_off(z->ctx, r)) ein__apply_rule(z, (int)i, r);
    }
}

// ---------------------------------------------------------------------------------- best first

// A rule still to be applied to a definition. `rank` says how far behind it an operator is at
// least: rules applied so far and cells that do not fit. A level of exploration counts twice,
// because it multiplies the definitions, where converging adds one or two.
typedef struct ein__todo {
    int rank, depth, distance, def, rule;
    bool exploring;
} ein__todo;

// Equal ranks: construct before exploring, then the shorter trail, the nearer operator, the older
// definition, the order of the table.
static bool ein__todo_before(const ein__todo *a, const ein__todo *b) {
    if (a->rank != b->rank) return a->rank < b->rank;
    if (a->exploring != b->exploring) return b->exploring;
    if (a->depth != b->depth) return a->depth < b->depth;
    if (a->distance != b->distance) return a->distance < b->distance;
    return a->def != b->def ? a->def < b->def : a->rule < b->rule;
}

// A binary heap, least first.
static void ein__todo_push(ein__todo **heap, ein__todo t) {
    arrput(*heap, t);
    ein__todo *h = *heap;
    for (ptrdiff_t i = arrlen(h) - 1; i > 0 && ein__todo_before(&h[i], &h[(i - 1) / 2]);) {
        ein__todo swap = h[i];
        h[i] = h[(i - 1) / 2];
        h[i = (i - 1) / 2] = swap;
    }
}

static ein__todo ein__todo_pop(ein__todo **heap) {
    ein__todo *h = *heap, top = h[0], last = arrpop(h);
    ptrdiff_t n = arrlen(h), i = 0;
    for (ptrdiff_t k = 1; k < n; k = 2 * i + 1) {
        if (k + 1 < n && ein__todo_before(&h[k + 1], &h[k])) k++;
        if (!ein__todo_before(&h[k], &last)) break;
        h[i] = h[k];
        i = k;
    }
    if (n) h[i] = last;
    return top;
}

// Queues the rules for definition `def`. A rule that leads to no operator of the table comes last.
static void ein__todo_add(ein__deriver *z, int def, ein__todo **heap) {
    for (int r = 0; r < EIN__NRULES; r++) {
        const ein__rule *rule = &ein__rules[r];
        if (ein__rule_is_off(z->ctx, r)) continue;
        if (rule->converging && !ein__may_converge(z, def, rule->towards)) continue;
        int far = ein__def_distance(z, def, rule->towards), depth = z->def[def].depth;
        ein__todo t = {.depth = depth, .distance = far, .def = def, .rule = r};
        t.exploring = !rule->converging;
        t.rank = t.exploring ? 2 * depth + far + 1 : depth + far;
        ein__todo_push(heap, t);
    }
}

static void ein__explore_best_first(ein__deriver *z) {
    int depth = ein__depth_limit(z->ctx), queued = 0;
    ein__todo *heap = NULL;
    ein__explore_from_start(z);
    for (int64_t turn = 0; !z->ctx->status; turn++) {
        for (; queued < (int)arrlen(z->def); queued++) {
            if (z->def[queued].depth < depth) ein__todo_add(z, queued, &heap);
            else ein__stopped(z, EIN_STOP_DEPTH);
        }
        if (!arrlen(heap)) break;
        if (turn % EIN__PROGRESS_STEP == 0 && ein__explore_cancelled(z)) break;
        ein__todo t = ein__todo_pop(&heap);
        ein__apply_rule(z, t.def, t.rule);
    }
    arrfree(heap);
}

static void ein__deriver_free(ein__deriver *z) {
    arrfree(z->def);
    arrfree(z->cls);
    arrfree(z->cost);
    arrfree(z->best);
}

// Explores the problem of `z` again, best first, and keeps what is cheaper.
static void ein__explore_again(ein__deriver *z) {
    ein__deriver other = {
        .ctx = z->ctx, .problem = z->problem, .map = z->map, .map_read = z->map_read};
    ein__explore_best_first(&other);
    int64_t lookups = z->lookups + other.lookups;
    if (!z->ctx->status && ein__class_cost(&other, z->problem) <= ein__class_cost(z, z->problem)) {
        ein__deriver swap = *z;
        *z = other;
        other = swap;
        z->ctx->stats.ordered++;
    }
    z->lookups = lookups;
    ein__deriver_free(&other);
}

// All definitions of the problem, as far as the budgets go.
static void ein__explore(ein__deriver *z) {
    ein_stats *stats = &z->ctx->stats;
    ein__explore_in_breadth(z);
    bool bound = z->stop == EIN_STOP_STATES || z->stop == EIN_STOP_QUOTA;
    if (bound && !z->ctx->desc.no_converge) ein__explore_again(z);
    stats->distinct++;
    stats->definitions += arrlen(z->def);
    stats->lookups += z->lookups;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++)
        stats->candidates += z->def[i].cls.i == z->problem.i;
    if (stats->stop < z->stop) stats->stop = z->stop;
}
