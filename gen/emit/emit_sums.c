// The sums that a thread of a reduction keeps: one, several whose terms have much in common
// (pair.c), or those that the maps behind the reduction finish (sums.c).

static const char *ein__kidentity(ein__kgen *g, ein__red r) {
    bool whole = g->num == EIN__NUM_INT;
    const char *least = g->narrow ? "(-2147483647 - 1)" : "(-9223372036854775807ll - 1)",
               *most = g->narrow ? "2147483647" : "9223372036854775807ll";
    switch (r) {
    case EIN__R_PROD: return ein__kliteral(g, 1).s;
    case EIN__R_MAX: return whole ? least : "-INFINITY";
    case EIN__R_MIN: return whole ? most : "INFINITY";
    case EIN__R_SUM:
    case EIN__R_NONE: break;
    }
    return ein__kliteral(g, 0).s;
}

// `acc` combined with `value`. Maximum and minimum skip NaN, as fmaxf does.
static const char *ein__kcombine(ein__kgen *g, ein__red r, const char *acc, const char *value) {
    ein_ctx *c = g->ctx;
    const char *f = g->num == EIN__NUM_FLOAT ? "f" : "";
    if (r == EIN__R_SUM) return ein__namef(c, "%s += %s;\n", acc, value);
    if (r == EIN__R_PROD) return ein__namef(c, "%s *= %s;\n", acc, value);
    bool max = r == EIN__R_MAX;
    if (g->num != EIN__NUM_INT)
        return ein__namef(c, "%s = f%s%s(%s, %s);\n", acc, max ? "max" : "min", f, acc, value);
    return ein__namef(c, "if (%s %s %s) %s = %s;\n", value, max ? ">" : "<", acc, acc, value);
}

static const char *const ein__ksums_word[] = {"pair", "three", "four"};  // from two on
static const char *const ein__ksum[EIN__SUMS] = {"acc.x", "acc.y", "acc.z", "acc.w"};

// A sum of each lane.
static const char *const ein__kacc[EIN__KLANES] = {"acc0", "acc1", "acc2", "acc3",
                                                   "acc4", "acc5", "acc6", "acc7"};

// What holds `n` sums.
static const char *ein__ksums_type(ein__kgen *g, int n) {
    return n > 1 ? ein__namef(g->ctx, "float%d", n) : ein__knum_type(g);
}

// `make_float2(f(acc.x), f(acc.y))` with what stands around the parts of `of`, two or more; without
// `of` that alone.
static const char *ein__ksums_each(ein__kgen *g, int n, const char *of, const char *before,
                                   const char *behind) {
    ein__buf b = {0};
    ein__putf(&b, "make_float%d(", n);
    for (int i = 0; i < n; i++) {
        ein__putf(&b, "%s%s", i ? ", " : "", before);
        if (*of) ein__putf(&b, "%s.%s", of, ein__klane[i]);
        ein__put(&b, behind);
    }
    ein__put(&b, ")");
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

// `n` sums `acc`, each combined with its part of `value`, which names as many.
static const char *ein__kcombine_sums(ein__kgen *g, int n, ein__red r, const char *acc,
                                      const char *value) {
    const char *s = "";
    if (n == 1) return ein__kcombine(g, r, acc, value);
    for (int i = 0; i < n; i++)
        s = ein__namef(g->ctx, "%s%s.%s += %s.%s;\n", s, acc, ein__klane[i], value, ein__klane[i]);
    return s;
}

// Needs of the helpers that add up two sums, or more.
static const unsigned char ein__kwarp_sums[] = {EIN__NEED_WARP_PAIR, EIN__NEED_WARP_THREE,
                                                EIN__NEED_WARP_FOUR},
                           ein__kblock_sums[] = {EIN__NEED_BLOCK_PAIR, EIN__NEED_BLOCK_THREE,
                                                 EIN__NEED_BLOCK_FOUR};

static const char *ein__kred_name(ein__red r) {
    static const char *const name[] = {"", "sum", "prod", "max", "min"};
    return name[r];
}

// `acc` of `n` sums combined over the threads of a warp or of a block.
static const char *ein__kwhole(ein__kgen *g, ein__red r, bool warp, int n) {
    static const char *const join[] = {"", "a + b", "a * b", "a > b ? a : b", "a < b ? a : b"};
    ein_ctx *c = g->ctx;
    const char *who = warp ? "warp" : "block", *part = warp ? "" : ", part";
    if (g->num == EIN__NUM_INT) {
        ein__kneed(g, EIN__NEED_INTEGER);
        const char *type = ein__knum_type(g);
        return ein__namef(c, "%s_join(acc%s, [](%s a, %s b) { return %s; })", who, part, type, type,
                          join[r]);
    }
    ein__kneed(g, (ein__need)(EIN__NEED_WARP + r));
    if (n > 1) ein__kneed(g, (ein__need)((warp ? ein__kwarp_sums : ein__kblock_sums)[n - 2]));
    else if (!warp) ein__kneed(g, (ein__need)(EIN__NEED_BLOCK + r));
    return ein__namef(c, "%s_%s(acc%s)", who, n > 1 ? ein__ksums_word[n - 2] : ein__kred_name(r),
                      part);
}

// A reduction being emitted: the scope, the orders of its traversal and reduction slots, the parts.
typedef struct ein__kred {
    ein__val acc, out;
    ein__red reduce;
    int sums;                     // of an output, 1: one; of several ...
    ein__ex term[EIN__SUMS];      // ... the terms of each
    uint32_t slot;                // the iterator that tells them apart (pair.c), or none
    ein__ex last[EIN__SUMS];      // then: what is stored of each
    ptrdiff_t row[EIN__CHAINED];  // of the scan: where maps that finish sums are stored
    int nt, ns, t[EIN__MAX_ITERS], s[EIN__MAX_ITERS];
    int own;      // of the last of `s` a thread that shares terms has loops of its own
    bool floats;  // terms are computed in floats although what they come to is an integer
    int64_t outputs, count;
    ein__kscan scan;
    ein__buf index, init, core, post, store;
} ein__kred;

static void ein__kred_free(ein__kred *r) {
    ein__kscan_free(&r->scan);
    ein__buf_free(&r->index);
    ein__buf_free(&r->init);
    ein__buf_free(&r->core);
    ein__buf_free(&r->post);
    ein__buf_free(&r->store);
}

// The reduction slots by falling stride, so that neighbouring lanes read neighbours.
static void ein__ksort_reduction(ein__kred *r) {
    for (int i = 1; i < r->ns; i++) {
        for (int j = i; j > 0; j--) {
            int64_t a = 0, b = 0;
            for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.row); k++) {
                int64_t x = r->scan.near[k].k[r->s[j - 1]], y = r->scan.near[k].k[r->s[j]];
                a = x > a ? x : a;
                b = y > b ? y : b;
            }
            if (a >= b) break;
            int t = r->s[j - 1];
            r->s[j - 1] = r->s[j];
            r->s[j] = t;
        }
    }
}

// Takes from a reduction to sums that threads have together the iterator that says which: the
// epilogue reads them by name. Before anything is counted.
static void ein__kred_together(ein__kgen *g, ein__kred *r, const ein__scope *s) {
    ein_ctx *ctx = g->ctx;
    ein__ix ix[EIN__MAX_RANK];
    int n = 0;
    r->sums = g->naive ? 1 : ein__adds_together(ctx, r->acc, r->out, &r->slot);
    if (r->sums == 1) return;
    for (int i = 0; i < r->nt; i++)
        if (r->t[i] != (int)r->slot) r->t[n++] = r->t[i];
    r->nt = n;
    g->slot[r->slot].gone = true;
    ein__ex term = ein__common_term(ctx, s, r->slot);
    for (uint32_t k = 0; k < s->nt; k++) ix[k] = ein__ix_iter(ctx, k, s->n[k]);
    for (int j = 0; j < r->sums; j++) {
        ix[r->slot] = ein__ix_const(ctx, j);
        ein__ex read = ein__ex_read(ctx, r->acc, 0, ix, (int)s->nt);
        g->over[g->nover].ex = read;
        g->over[g->nover++].text = (ein__ktext){ein__ksum[j], EIN__PRIMARY, 0};
        r->term[j] = ein__ex_at(ctx, s, term, r->slot, j);
        bool map = r->out.i != r->acc.i;
        r->last[j] = map ? ein__ex_at(ctx, s, ein__kbody(g, r->out), r->slot, j) : read;
    }
}

// Gives the sums of maps that finish them their terms, and the maps the sums by name; scans both.
static void ein__kred_finish(ein__kgen *g, ein__kred *r, const ein__step *step) {
    ein_ctx *ctx = g->ctx;
    const ein__scope *s = ein__scope_of(ctx, r->acc);
    int nt = (int)ein__scope_of(ctx, r->out)->nt;
    ein__finish f;
    bool found = ein__finish_of(ctx, step, &f);
    EIN_ASSERT(found);
    r->sums = found ? f.n : 1;
    for (int k = 0; k + 1 < step->nval; k++)
        g->inner[g->ninner++] = (ein__kinner){.v = step->val[k], .text = {"acc"}};
    for (uint32_t i = 0; i < s->ns; i++) {
        ein__kslot *slot = &g->slot[nt + (int)i];
        slot->name = ein__namef(ctx, "r%u", (unsigned)i);
        slot->n = s->n[s->nt + i];
        r->s[r->ns++] = nt + (int)i;
    }
    for (int i = 0; i < f.n; i++) {
        const char *name = f.n > 1 ? ein__ksum[i] : "acc";
        g->over[g->nover].ex = f.sum[i];
        g->over[g->nover++].text = (ein__ktext){name, EIN__PRIMARY, 0};
        r->term[i] = f.term[i];
        ein__kscan_expr(g, &r->scan, f.term[i]);
    }
    for (int i = 0; i < f.nas; i++) {
        g->over[g->nover].ex = f.from[i];
        g->over[g->nover++].as = f.as[i];
        ein__kscan_expr(g, &r->scan, f.as[i]);
    }
    ein__kmap_scan(g, step, &r->scan, r->row);
}

// Whether 32 bits hold each number on the way to what reduction `s` of integers comes to.
static bool ein__knarrow(ein_ctx *ctx, const ein__scope *s) {
    enum { DEPTH = 8 };
    ein__numbers r;
    if (s->reduce == EIN__R_PROD || !ein__fits_int(ctx, s->body, DEPTH)) return false;
    if (s->reduce != EIN__R_SUM) return true;
    return ein__int_numbers(ctx, s->body, &r) &&
           fmax(-r.lo, r.hi) * (double)ein__terms_of(s) <= INT32_MAX;
}

// What the reduction of terms `body`, the first of the members, is computed in.
static void ein__kred_number(ein__kgen *g, ein__kred *r, ein__ex body) {
    if (ein__kdtype(g, r->acc) <= EIN__BF16) return;
    r->floats = !g->narrow && !ein__kinteger(g, body);
    g->num = EIN__NUM_INT;
    g->inner[0].whole = true;
}

// Term `ex` as what is added up: an integer, be it one of a float, by a name.
static ein__ktext ein__kred_term(ein__kgen *g, const ein__kred *r, ein__ex ex, int lane) {
    if (g->num != EIN__NUM_INT) return ein__kvalue(g, ex, lane);
    if (r->floats) g->num = EIN__NUM_FLOAT;
    ein__ktext v = ein__kvalue(g, ex, lane);
    if (r->floats)
        v = (ein__ktext){ein__namef(g->ctx, "(long long)%s", ein__kparen(g, v, EIN__PREFIX)),
                         EIN__PREFIX, v.level};
    g->num = EIN__NUM_INT;
    return ein__kname_value(g, ex, lane, v);
}

// Scans both definitions, orders and merges the slots; those of a window's axes (or NULL) stay
// apart.
static ein__kred ein__kred_make(ein__kgen *g, const ein__step *step, const ein__strip *w) {
    ein__kred r = {.acc = step->val[0], .out = step->out, .sums = 1, .scan = ein__kscan_make(g)};
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, r.acc)->scope);
    r.reduce = (ein__red)s->reduce;
    if (step->sums) {
        ein__kred_finish(g, &r, step);
    } else {
        g->inner[g->ninner++] = (ein__kinner){.v = r.acc, .text = {"acc"}};
        for (int k = 1; k + 1 < step->nval; k++)
            g->inner[g->ninner++] = (ein__kinner){.v = step->val[k], .put = true};
        ein__kscan_expr(g, &r.scan, s->body);
        if (step->nval > 1) ein__kscan_expr(g, &r.scan, ein__kbody(g, r.out));
        ein__kscan_out(g, &r.scan, r.out);
        for (uint32_t i = 0; i < s->ns; i++) r.s[r.ns++] = (int)(s->nt + i);
    }
    for (int i = 0; w && i < 3; i++) {
        const ein__strip_axis *a = i == 0 ? &w->row : i == 1 ? &w->col : &w->deep;
        uint32_t slots = a->t >= 0 ? 1u << a->t : 0;
        if (a->k >= 0) slots |= 1u << a->k;
        r.scan.pinned |= slots;
        r.scan.used |= slots;
    }
    r.nt = ein__korder(g, r.out, r.t);
    if (!w && !step->sums) ein__kred_together(g, &r, s);
    ein__ksort_reduction(&r);
    r.nt = ein__kmerge(g, &r.scan, r.t, r.nt);
    ein__kslices_first(g, r.t, r.nt);
    r.ns = ein__kmerge(g, &r.scan, r.s, r.ns);
    r.outputs = ein__kcount_slots(g, r.t, r.nt);
    r.count = ein__kcount_slots(g, r.s, r.ns);
    if (!step->sums) {
        bool whole = ein__kdtype(g, r.acc) > EIN__BF16;
        g->narrow = whole && step->nval == 1 && !step->nhidden && ein__knarrow(g->ctx, s);
        ein__kred_number(g, &r, s->body);
    }
    ein__put(&r.index, "");
    ein__put(&r.post, "");
    return r;
}

// What all sums begin with.
static const char *ein__kred_zero(ein__kgen *g, const ein__kred *r) {
    return r->sums > 1 ? ein__ksums_each(g, r->sums, "", "0.f", "") : ein__kidentity(g, r->reduce);
}

// Fills the loop of a reduction to several sums, whose levels are set: lanes are terms.
static void ein__kred_terms(ein__kgen *g, ein__kred *r) {
    for (int j = 0; j < r->sums; j++) ein__kcount(g, r->term[j]);
    for (int i = 0; i < g->vec; i++)
        for (int j = 0; j < r->sums; j++)
            ein__put(&r->core, ein__kcombine(g, r->reduce, r->sums > 1 ? ein__ksum[j] : "acc",
                                             ein__kvalue(g, r->term[j], i).s));
    ein__putf(&r->init, "%s acc = %s;\n", ein__ksums_type(g, r->sums), ein__kred_zero(g, r));
}

// Fills the parts of a reduction whose sums maps finish. What these load does not wait for the
// sums.
static void ein__kred_finish_parts(ein__kgen *g, ein__kred *r, const ein__step *step) {
    int vec = g->vec, members = step->chained ? step->npeer + 1 : 1;
    ein__ktext value[EIN__CHAINED];
    ein__kred_terms(g, r);
    g->vec_slot = -1;
    g->vec = 1;
    for (int k = 0; k < members; k++) ein__kcount(g, ein__kbody(g, ein__step_member(step, k)->out));
    for (ptrdiff_t i = 0; i < arrlen(r->scan.read); i++) {
        ein__ex ex = r->scan.read[i];
        uint32_t uses = ex.i ? ein__kmask(g, ex) & ~(1u << 31) : ~0u;
        if (!(uses >> ein__scope_of(g->ctx, r->out)->nt)) (void)ein__kvalue_named(g, ex, 0);
    }
    g->post = &r->post;
    for (int k = 0; k < members; k++)
        value[k] = ein__kvalue(g, ein__kbody(g, ein__step_member(step, k)->out), 0);
    for (int k = 0; k < members; k++) {
        g->to = k ? ein__namef(g->ctx, "y%d", k) : NULL;
        ein__kstore_row(g, &r->store, ein__step_member(step, k)->out, &r->scan.row[r->row[k]],
                        &value[k]);
    }
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    g->vec = vec;
}

// Fills the parts of a reduction to sums that threads have together, whose levels are set.
static void ein__kred_together_parts(ein__kgen *g, ein__kred *r) {
    int vec = g->vec;
    ein__ktext value[EIN__SUMS];
    ein__kred_terms(g, r);
    g->vec_slot = -1;
    g->vec = 1;
    g->post = &r->post;
    for (int j = 0; j < r->sums; j++) ein__kcount(g, r->last[j]);
    for (int j = 0; j < r->sums; j++) value[j] = ein__kvalue(g, r->last[j], 0);
    for (int j = 0; j < r->sums; j++) {
        g->plane = j * ein__kstride(g, r->out, r->slot);
        ein__kstore(g, &r->store, r->out, &r->scan, &value[j]);
    }
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    g->vec = vec;
}

// What is left of a term behind the question whether it is nothing; where it is, a loop goes on.
static ein__ex ein__kpick_terms(ein__kgen *g, const ein__kred *r, ein__ex body) {
    int level = 0;
    if (g->naive || r->floats || !ein__picks_terms(g->ctx, ein__scope_of(g->ctx, r->acc)))
        return body;
    const ein__expr x = *ein__ex_get(g->ctx, body);
    if (x.op != EIN__X_SELECT || x.fn != EIN__EQ) return body;
    const char *is = ein__kcondition(g, &x, 0, &level);
    if (level == 0) return body;
    ein__putf(&g->code[level], "if (!(%s)) continue;\n", is);
    return x.kid[2];
}

// Fills what a thread does with the sum of each lane: the map behind it, if there is one, the
// store.
static void ein__kred_store(ein__kgen *g, ein__kred *r, const ein__step *step) {
    ein__ktext value[EIN__KLANES];
    ein__ex body = ein__kbody(g, r->out);
    ein__knum num = g->num;
    g->post = &r->post;
    if (step->nval > 1) {
        g->num = ein__kmember_num(g, r->out);
        ein__kcount(g, body);
    }
    for (int i = 0; i < g->vec; i++)
        value[i] = step->nval > 1 ? ein__kvalue(g, body, i)
                                  : (ein__ktext){g->inner[0].text[i], EIN__PRIMARY, 0};
    ein__kstore(g, &r->store, r->out, &r->scan, value);
    g->num = num;
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
}

// Fills the parts: `levels` says that each reduction slot has a loop of its own; otherwise one loop
// over `k` declares those that have none. Lanes along a reduction slot add to one sum.
static void ein__kred_parts(ein__kgen *g, ein__kred *r, const ein__step *step, bool levels) {
    for (int i = 0; i < r->ns; i++)
        g->slot[r->s[i]].level = levels ? i + 1 : 1 + (int)ein__most(i + 1 + r->own - r->ns, 0);
    if (step->sums) ein__kred_finish_parts(g, r, step);
    else if (r->sums > 1) ein__kred_together_parts(g, r);
    if (step->sums || r->sums > 1) return;
    ein__ex body = ein__kbody(g, r->acc);
    ein__kcount(g, body);
    bool terms = false;
    for (int i = 0; i < r->ns; i++) terms |= r->s[i] == g->vec_slot;
    if (!terms) body = ein__kpick_terms(g, r, body);
    for (int i = 0; i < g->vec; i++) {
        const char *a = g->vec > 1 && !terms ? ein__kacc[i] : "acc";
        g->inner[0].text[i] = a;
        ein__put(&r->core, ein__kcombine(g, r->reduce, a, ein__kred_term(g, r, body, i).s));
        if (i && terms) continue;
        ein__put(&r->init, i ? ", " : ein__knum_type(g));
        ein__putf(&r->init, "%s%s = %s", i ? "" : " ", a, ein__kidentity(g, r->reduce));
    }
    ein__put(&r->init, ";\n");
    if (terms) g->vec_slot = -1;
    int vec = g->vec;
    if (terms) g->vec = 1;
    ein__kred_store(g, r, step);
    g->vec = vec;
}
