// Row kernels: reductions over the trailing iterators, each one pass over the row, then a map of
// the row's elements, as in a softmax, or of the row, as in a sum that a softmax weights. A warp a
// row (up to 1024 elements) or a block a row. Where neighbouring rows, not neighbouring elements,
// are adjacent in memory, a block takes a column of rows: adjacent threads have adjacent rows, and
// several threads share each row; or a thread has a row of its own, if that is short. What several
// passes read, or what the first of them computes in front of the row (front.c), stays in registers
// when these are at most 32.

typedef enum { EIN__ROW_WARP, EIN__ROW_BLOCK, EIN__ROW_COLUMN, EIN__ROW_THREAD } ein__krow_form;

enum {
    EIN__ROW_REGISTERS = 32,
    EIN__ROW_WIDE_REGISTERS = EIN__ROW_LENGTH / EIN__ROW_WIDE,  // of threads that have 64 in all
    EIN__ROW_AHEAD = 64,  // registers for weights that are read ahead ...
    EIN__ROWS_MANY =
        4096  // ... of fewer rows than that, else more rows at a time hide what they take
};

typedef struct ein__krows {
    ein__kscan scan;
    ein__krow_form form;
    int nt, ns, t[EIN__MAX_ITERS], s[EIN__MAX_ITERS];
    uint32_t rest;  // the slots that make up a row
    int64_t rows, count;
    bool ends;   // one result a row: the last reduction, or a map behind it
    int turns;   // elements of a thread when they are unrolled, else 0
    int block;   // threads of a block that has a row
    int held;    // registers of a thread for what stays there
    int early;   // reads that are there before the first pass
    int kept;    // of what several passes read, in registers
    int lanes;   // rows side by side of a column
    int nfront;  // what is computed in front of the first pass that reads it, and how many do
    int first[EIN__ROW_LOADS], times[EIN__ROW_LOADS];
    ein__ex front[EIN__ROW_LOADS];  // ... and by what
    int also;  // the row of the scan that tells where one of these is stored, too
    ein__buf index, phases, ahead;
} ein__krows;

static void ein__krows_free(ein__krows *r) {
    ein__kscan_free(&r->scan);
    ein__buf_free(&r->index);
    ein__buf_free(&r->phases);
    ein__buf_free(&r->ahead);
}

// What pass `p` computes with the reads of what is in front of it replaced by what that reads, but
// where an earlier pass has it in registers (`held`).
typedef struct ein__kputs {
    const ein__krows *r;
    const ein__step *step;
    int pass;
    bool held;
} ein__kputs;

static ein__ex ein__krows_put(ein_ctx *ctx, void *user, ein__ex ex) {
    const ein__kputs *z = user;
    for (int i = 0; i < z->r->nfront; i++)
        if (z->r->front[i].i == ex.i)
            return z->held && z->r->first[i] != z->pass ? ein__ex_const(ctx, 0)
                                                        : z->step->loaded[i];
    return ex;
}

static ein__ex ein__krows_body(ein__kgen *g, const ein__step *step, const ein__krows *r, int p,
                               bool held) {
    ein__kputs z = {r, step, p, held};
    ein__ex body = ein__kbody(g, step->val[p]);
    return r->nfront ? ein__ex_replace_reads(g->ctx, body, ein__krows_put, &z) : body;
}

// What passes compute in front of them: the first one that reads it, and how many do. Where it is
// not in registers it is put in its place.
static void ein__krows_fronts(ein__kgen *g, const ein__step *step, ein__krows *r) {
    for (int i = 0; i < EIN__ROW_LOADS && step->load[i].i; i++) {
        for (int p = step->nval - 1; p >= 0; p--) {
            const ein__ex *reads = ein__ex_reads(g->ctx, ein__kbody(g, step->val[p]));
            for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
                if (ein__ex_get(g->ctx, reads[k])->val != step->load[i].i) continue;
                r->front[i] = reads[k];
                r->first[i] = p;
                r->times[i]++;
            }
        }
        g->over[g->nover].ex = r->front[i];
        g->over[g->nover++].as = step->loaded[i];
        r->nfront++;
    }
}

// Where what is computed in front is stored, too.
static void ein__krows_place(ein__kgen *g, const ein__step *step, ein__krows *r) {
    ein__krow row = {{0}};
    g->also = step->also;
    for (int i = 0; i < r->nfront; i++) {
        const ein__expr *e = ein__ex_get(g->ctx, r->front[i]);
        if (step->load[i].i != step->also.i) continue;
        for (uint32_t k = 0; k < e->nix; k++) {
            uint32_t slot;
            if (ein__ix_is_iter(g->ctx, e->ix[k], &slot))
                row.k[slot] = ein__kstride(g, step->also, (int)k);
        }
    }
    r->also = (int)arrlen(r->scan.row);
    arrput(r->scan.row, row);
    arrput(r->scan.near, row);
    arrput(r->scan.read, (ein__ex){0});
}

// The iterators of the row and of the rest, ordered as the result lies in memory, or as they are
// where it has none of the row's, and merged over all definitions of the step.
static bool ein__krows_make(ein__kgen *g, const ein__step *step, ein__krows *r) {
    const ein__scope *s = NULL;
    ein__krows_fronts(g, step, r);
    for (int i = 0; i < step->nval; i++) {
        const ein__scope *x = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[i])->scope);
        bool last = i + 1 == step->nval;
        if (!s && x->reduce != EIN__R_NONE) s = x;
        if (!last)
            g->inner[g->ninner++] = (ein__kinner){.v = step->val[i],
                                                  .text = {ein__namef(g->ctx, "s%d", i)},
                                                  .put = x->reduce == EIN__R_NONE};
        if (last && s) r->ends = x->nt == s->nt;
        if (last || x->reduce != EIN__R_NONE)
            ein__kscan_expr(g, &r->scan, ein__krows_body(g, step, r, i, false));
    }
    if (step->also.i) ein__krows_place(g, step, r);
    if (!s) return false;
    ein__kscan_out(g, &r->scan, step->out);
    int order[EIN__MAX_RANK], n = ein__korder(g, step->out, order);
    for (int i = 0; i < n; i++)
        if (order[i] < (int)s->nt) r->t[r->nt++] = order[i];
        else r->s[r->ns++] = order[i];
    for (uint32_t i = s->nt; i < s->nt + s->ns && r->ends; i++) r->s[r->ns++] = (int)i;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool row = i < s->nt;
        g->slot[i].name =
            ein__namef(g->ctx, "%c%u", row ? 'i' : 'r', (unsigned)(row ? i : i - s->nt));
        g->slot[i].n = s->n[i];
        if (!row) r->rest |= 1u << i;
    }
    r->nt = ein__kmerge(g, &r->scan, r->t, r->nt);
    r->ns = ein__kmerge(g, &r->scan, r->s, r->ns);
    r->rows = ein__kcount_slots(g, r->t, r->nt);
    r->count = ein__kcount_slots(g, r->s, r->ns);
    ein__put(&r->index, "");
    ein__put(&r->phases, "");
    ein__put(&r->ahead, "");
    return true;
}

// Threads that share a row.
static int ein__krows_threads(const ein__krows *r) {
    switch (r->form) {
    case EIN__ROW_WARP: return 32;
    case EIN__ROW_BLOCK: return r->block;
    case EIN__ROW_COLUMN: return EIN__BLOCK_THREADS / r->lanes;
    case EIN__ROW_THREAD: break;
    }
    return 1;
}

// How many rows a column has side by side: as many as a warp has lanes, unless that leaves
// processors without a block or rows without registers, but a sector at least.
static int ein__krows_lanes(ein__kgen *g, const ein__krows *r, int64_t size) {
    int lanes = 32;
    while (lanes * size > EIN__SECTOR &&
           (ein__ceil(r->rows, lanes) < ein__gpu_of(g->ctx)->sms ||
            ein__ceil(r->count, EIN__BLOCK_THREADS / lanes) > EIN__ROW_REGISTERS))
        lanes /= 2;
    return lanes;
}

static void ein__krows_choose(ein__kgen *g, ein__krows *r) {
    ein__kruns run = ein__kruns_of(g, &r->scan, (ein__ex){0}, r->t, r->nt, r->s, r->ns);
    bool across = run.terms < ein__least(r->count, 32) && run.terms < run.outputs;
    bool alone = ein__is_threads_row(r->rows, r->count);
    if (((across || r->ends) && alone) || r->count > INT32_MAX) r->form = EIN__ROW_THREAD;
    else if (across && run.outputs * run.size >= EIN__SECTOR) r->form = EIN__ROW_COLUMN;
    else r->form = r->count <= 1024 ? EIN__ROW_WARP : EIN__ROW_BLOCK;
    if (r->form == EIN__ROW_COLUMN) r->lanes = ein__krows_lanes(g, r, run.size);
    bool wide = r->count > EIN__BLOCK_THREADS * EIN__ROW_REGISTERS;
    r->block = wide ? EIN__ROW_WIDE : EIN__BLOCK_THREADS;
    r->held = r->form == EIN__ROW_BLOCK && wide ? EIN__ROW_WIDE_REGISTERS : EIN__ROW_REGISTERS;
    int64_t turns = ein__ceil(r->count, ein__krows_threads(r) * g->vec);
    r->turns = r->form != EIN__ROW_THREAD && turns * g->vec <= r->held ? (int)turns : 0;
}

// Where the pass ends that computes definition `p`, its first one.
static int ein__krows_end(ein__kgen *g, const ein__step *step, int p) {
    const ein__scope *s[EIN__STEP_VALUES];
    for (int i = 0; i < step->nval; i++) s[i] = ein__scope_of(g->ctx, step->val[i]);
    return ein__pass_end(g->ctx, s, step->val, step->nval, p);
}

// Reads that more than one pass makes, and that step along the row: by pass, as bits.
static void ein__krows_passes(ein__kgen *g, const ein__step *step, ein__krows *r,
                              uint32_t *passes) {
    bool again = false;
    for (int i = 0; i < r->nfront; i++) again |= r->times[i] > 1;
    for (int p = 0, pass = 0, end = 0; p < step->nval; p++) {
        if (p == end) pass = p, end = ein__krows_end(g, step, p);
        if (p + 1 < step->nval && g->inner[p].put) continue;
        ein__kscan one = ein__kscan_make(g);
        ein__kscan_expr(g, &one, ein__krows_body(g, step, r, p, r->turns > 0));
        for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.read); k++)
            for (ptrdiff_t j = 0; j < arrlen(one.read); j++)
                if (one.read[j].i == r->scan.read[k].i && (ein__kmask(g, one.read[j]) & r->rest)) {
                    again |= (passes[k] & ~(1u << pass)) != 0;
                    passes[k] |= 1u << pass;
                }
        ein__kscan_free(&one);
    }
    if (!again) r->turns = 0;
}

// Whether identifier `name` occurs in a text.
static bool ein__kmentions(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *s = text; (s = strstr(s, name)); s += n) {
        bool before = s > text && (ein__tmpl_word(s[-1]) || s[-1] == '_');
        if (!before && !ein__tmpl_word(s[n]) && s[n] != '_') return true;
    }
    return false;
}

// One element's statements, with the names they need, as a loop over the row.
static void ein__krows_loop(ein__kgen *g, const ein__krows *r, const char *core, ein__buf *out) {
    ein__buf body = {0};
    if (r->form == EIN__ROW_THREAD) {
        ein__kloops(g, out, r->s, r->ns, 1, core);
        return;
    }
    const char *u = ein__kunsigned(g);
    int step = ein__krows_threads(r);
    int64_t count = r->count / g->vec;
    uint32_t used = 0;
    for (int i = 0; i < r->ns; i++) {
        const char *name = g->slot[r->s[i]].name;
        if (ein__kmentions(g->code[1].s, name) || ein__kmentions(core, name)) used |= 1u << r->s[i];
    }
    ein__kdecompose(g, &body, r->s, r->ns, used, "k");
    ein__put(&body, g->code[1].s);
    ein__put(&body, core);
    if (r->turns) {
        ein__put(out, "#pragma unroll\n");
        ein__putf(out, "for (int j = 0; j < %d; j++) {\n", r->turns);
        if (used || count % step)
            ein__putf(out, "    const %s k = lane + %du * (unsigned)j;\n", u, step);
        if (count % step) {
            ein__putf(out, "    if (k < %s) {\n", ein__knumber(g, count));
            ein__kindent(out, body.s, 8);
            ein__put(out, "    }\n");
        } else {
            ein__kindent(out, body.s, 4);
        }
    } else {
        ein__put(out, "#pragma unroll 4\n");
        ein__putf(out, "for (%s k = lane; k < %s; k += %du) {\n", u, ein__knumber(g, count), step);
        ein__kindent(out, body.s, 4);
    }
    ein__put(out, "}\n");
    ein__buf_free(&body);
}

// The end of pass p: what the threads of a row have is combined.
static void ein__krows_join(ein__kgen *g, ein__krows *r, int p, const char *name, ein__red red) {
    const char *op = ein__kred_name(red);
    if (r->form == EIN__ROW_THREAD) return;
    if (r->form != EIN__ROW_COLUMN) ein__kneed(g, (ein__need)(EIN__NEED_WARP + red));
    if (r->form == EIN__ROW_WARP) {
        ein__putf(&r->phases, "%s = warp_%s(%s);\n", name, op, name);
        return;
    }
    bool block = r->form == EIN__ROW_BLOCK;
    ein__kneed(g, (ein__need)((block ? EIN__NEED_BLOCK : EIN__NEED_COLUMN) + red));
    ein__putf(&r->phases, "%s = %s_%s(%s, part[%d]);\n", name, block ? "block" : "column", op, name,
              p);
}

// Threads of a column that have no row of their own store nothing.
static void ein__krows_leave(ein__kgen *g, ein__krows *r) {
    if (r->form == EIN__ROW_COLUMN && r->rows % r->lanes)
        ein__putf(&r->phases, "if (column >= %s) return;\n", ein__knumber(g, r->rows));
}

// What is done once a row, by the first of the threads that share it.
static void ein__krows_once(ein__krows *r, const char *core) {
    if (r->form == EIN__ROW_THREAD) {
        ein__put(&r->phases, core);
        return;
    }
    ein__put(&r->phases, "if (lane == 0) {\n");
    ein__kindent(&r->phases, core, 4);
    ein__put(&r->phases, "}\n");
}

// Whether there are registers for one more of what several passes read.
static bool ein__krows_fits(const ein__kgen *g, const ein__krows *r) {
    return r->turns && (r->kept + 1) * r->turns * g->vec <= r->held && g->nover < EIN__KOVER;
}

// Loads `read` into registers of its own, which `out` declares, in the loop that is being made;
// what follows reads these. Nothing where only some of its neighbours are a vector, nor of integers
// for which a float has no digits.
static void ein__krows_hold(ein__kgen *g, const ein__krows *r, ein__ex read, const char *name,
                            ein__buf *out) {
    if (ein__kinteger(g, read) && !ein__fits_float(g->ctx, read)) return;
    ein__ktext load = ein__kread(g, read, 0);
    const ein__kname *all = ein__kfind(g, EIN__N_VECTOR, read.i, 0);
    if (g->vec > 1 && !all) return;
    const char *held = ein__namef(g->ctx, "%s[j]", name);
    ein__putf(out, "%s %s[%d];\n", all ? ein__kvec_type(g) : "float", name, r->turns);
    ein__putf(&g->code[1], "%s = %s;\n", held, all ? all->t.text.s : load.s);
    for (int i = 0; i < EIN__KLANES; i++)
        g->over[g->nover].lane[i] = all ? ein__namef(g->ctx, "%s.%s", held, ein__klane[i]) : NULL;
    g->over[g->nover].ex = read;
    g->over[g->nover++].text = (ein__ktext){held, EIN__NAMED, 1};
}

// Keeps the value of what is computed in front in registers, which `value` names then.
static void ein__krows_keep(ein__kgen *g, ein__krows *r, int front, ein__ktext *value) {
    const char *name = ein__namef(g->ctx, "c%d", r->kept++);
    const char *to = ein__namef(g->ctx, "%s[j]", name);
    ein__putf(&r->phases, "%s %s[%d];\n", g->vec > 1 ? ein__kvec_type(g) : "float", name, r->turns);
    for (int i = 0; i < g->vec; i++) {
        const char *at = g->vec > 1 ? ein__namef(g->ctx, "%s.%s", to, ein__klane[i]) : to;
        ein__putf(&g->code[1], "%s = %s;\n", at, value[i].s);
        value[i] = (ein__ktext){at, EIN__PRIMARY, 1};
        g->over[front].lane[i] = at;
    }
    g->over[front].text = (ein__ktext){to, EIN__NAMED, 1};
    g->over[front].as = (ein__ex){0};
}

// Stores what is computed in front of the rows, of which a column has the last one several times.
static void ein__krows_also(ein__kgen *g, const ein__krows *r, const ein__ktext *value,
                            ein__buf *core) {
    ein__buf store = {0};
    bool again = r->form == EIN__ROW_COLUMN && r->rows % r->lanes;
    g->to = "also";
    ein__kstore_row(g, &store, g->also, &r->scan.row[r->also], value);
    g->to = NULL;
    if (again) ein__putf(core, "if (column < %s) ", ein__knumber(g, r->rows));
    ein__put(core, store.s);
    ein__buf_free(&store);
}

// Computes what is in front of pass `p`, into registers that those behind it read where there are
// such; stores what others read too by `core`, the loop's last statements.
static void ein__krows_compute(ein__kgen *g, const ein__step *step, ein__krows *r, int p,
                               ein__buf *core) {
    for (int i = 0; i < r->nfront; i++) {
        bool keep = r->times[i] > 1 && ein__krows_fits(g, r);
        bool also = step->also.i == step->load[i].i;
        ein__ktext value[EIN__KLANES];
        if (r->first[i] != p || (!keep && !also)) continue;
        for (int k = 0; k < g->vec; k++) value[k] = ein__kvalue(g, step->loaded[i], k);
        if (keep) ein__krows_keep(g, r, i, value);
        if (also) ein__krows_also(g, r, value, core);
    }
}

// What loops have made is done with: the next one has its own names.
static void ein__krows_next(ein__kgen *g) {
    ein__kforget(g, 1);
    for (int i = 0; i < EIN__KLEVELS; i++) {
        ein__buf_free(&g->code[i]);
        ein__put(&g->code[i], "");
    }
}

// Weights that the last pass alone reads, the same for all rows, are asked for before the kernel
// before is over: behind the reductions each row would wait for them once more.
static void ein__krows_early(ein__kgen *g, const ein__step *step, ein__krows *r,
                             const uint32_t *passes) {
    bool fits = r->form == EIN__ROW_WARP || r->form == EIN__ROW_BLOCK;
    if (!fits || !r->turns || r->ends || r->rows >= EIN__ROWS_MANY) return;
    for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.read); k++) {
        ein__ex read = r->scan.read[k];
        if (!read.i) continue;
        ein__val v = {ein__ex_get(g->ctx, read)->val};
        uint32_t slots = ein__kmask(g, read) & ~(1u << 31);
        bool same = (slots & r->rest) && !(slots & ~r->rest);
        if (passes[k] != 1u << (step->nval - 1) || !same || !ein__kconstant(g->ctx, v)) continue;
        if ((r->early + 1) * r->turns * g->vec > EIN__ROW_AHEAD) continue;
        if (g->nover + 2 > EIN__KOVER) break;  // one is for what several passes read
        int had = g->nover;
        ein__krows_hold(g, r, read, ein__namef(g->ctx, "w%d", r->early), &r->ahead);
        r->early += g->nover - had;
    }
    if (r->early) {
        ein__put(&r->ahead, g->code[0].s);
        ein__krows_loop(g, r, "", &r->ahead);
    }
    ein__krows_next(g);
}

// Declares the registers of what several passes read, pass `p` first, and loads them there.
static void ein__krows_load(ein__kgen *g, ein__krows *r, int p, const uint32_t *passes) {
    for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.read) && r->turns; k++) {
        bool first = passes[k] >> p & 1 && !(passes[k] & ((1u << p) - 1));
        if (!first || !(passes[k] & (passes[k] - 1))) continue;
        if (!ein__krows_fits(g, r)) continue;
        int had = g->nover;
        ein__krows_hold(g, r, r->scan.read[k], ein__namef(g->ctx, "c%d", r->kept), &r->phases);
        r->kept += g->nover - had;
    }
}

// The name of what pass `p` adds up.
static const char *ein__krows_sum(ein__kgen *g, const ein__step *step, int p) {
    return p + 1 == step->nval ? ein__namef(g->ctx, "s%d", p) : g->inner[p].text[0];
}

// What definition `p` does with an element; what it adds up begins in `lines`.
static void ein__krows_element(ein__kgen *g, const ein__step *step, ein__krows *r, int p,
                               ein__buf *core, ein__buf *lines) {
    const ein__scope *s = ein__scope_of(g->ctx, step->val[p]);
    ein__red red = (ein__red)s->reduce;
    ein__ktext value[EIN__KLANES];
    for (int i = 0; i < g->vec; i++) value[i] = ein__kvalue(g, s->body, i);
    if (red == EIN__R_NONE) {
        ein__kstore(g, core, step->out, &r->scan, value);
        return;
    }
    const char *name = ein__krows_sum(g, step, p);
    for (int i = 0; i < g->vec; i++) ein__put(core, ein__kcombine(g, red, name, value[i].s));
    ein__putf(lines, "float %s = %s;\n", name, ein__kidentity(g, red));
}

// One pass: reductions from `p` up to `end`, or the final map.
static void ein__krows_phase(ein__kgen *g, const ein__step *step, ein__krows *r, int p, int end,
                             const uint32_t *passes) {
    bool reduces = ein__scope_of(g->ctx, step->val[p])->reduce != EIN__R_NONE;
    bool last = end == step->nval;
    ein__buf core = {0}, lines = {0};
    ein__krows_load(g, r, p, passes);
    ein__kuncount(g);
    for (int q = p; q < end; q++) ein__kcount(g, ein__scope_of(g->ctx, step->val[q])->body);
    for (int q = p; q < end; q++) {
        ein__krows_compute(g, step, r, q, &core);
        ein__krows_element(g, step, r, q, &core, &lines);
    }
    if (last && !reduces) ein__krows_leave(g, r);
    ein__put(&r->phases, g->code[0].s);
    if (lines.n) ein__put(&r->phases, lines.s);
    if (last && r->ends && !reduces) ein__krows_once(r, core.s);
    else ein__krows_loop(g, r, core.s, &r->phases);
    for (int q = p; q < end && reduces; q++)
        ein__krows_join(g, r, q, ein__krows_sum(g, step, q),
                        (ein__red)ein__scope_of(g->ctx, step->val[q])->reduce);
    if (last && reduces) {
        ein__ktext sum = {ein__krows_sum(g, step, end - 1), EIN__NAMED, 1};
        ein__buf store = {0};
        ein__krows_leave(g, r);
        ein__kstore(g, &store, step->out, &r->scan, &sum);
        ein__krows_once(r, store.s);
        ein__buf_free(&store);
    }
    ein__krows_next(g);
    ein__buf_free(&core);
    ein__buf_free(&lines);
}

static void ein__krows_finish(ein__kgen *g, const ein__step *step, ein__krows *r, const char *hint,
                              ein__buf *out, ein__launch *l) {
    static const char *const *const lines[] = {ein__tmpl_row_warp, ein__tmpl_row_block,
                                               ein__tmpl_row_column, ein__tmpl_map};
    ein_ctx *c = g->ctx;
    bool block = r->form == EIN__ROW_BLOCK, warp = r->form == EIN__ROW_WARP,
         column = r->form == EIN__ROW_COLUMN;
    int warps = r->rows >= EIN__ROWS_MANY ? 8 : r->rows >= 1024 ? 4 : 1;
    int threads = column  ? EIN__BLOCK_THREADS
                  : block ? r->block
                  : warp  ? 32 * warps
                          : ein__kblock(r->rows);
    int64_t each = threads / ein__krows_threads(r);
    if (!ein__kgrid(c, l, ein__ceil(r->rows, each), threads)) return;
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    int reductions = step->nval - ein__is_map(c, step->out);
    const char *rows = ein__knumber(g, r->rows), *parts = ein__namef(c, "%d", reductions);
    ein__key keys[12] = {{0}, {0}, {"number", ein__kunsigned(g)}, {"index", r->index.s}};
    int n = 4;
    keys[n++] = (ein__key){r->form == EIN__ROW_THREAD ? "body" : "phases", r->phases.s};
    if (block || warp) keys[n++] = (ein__key){"ahead", r->ahead.s};
    if (block) {
        keys[n++] = (ein__key){"rows", ein__namef(c, "%lld", (long long)r->rows)};
        keys[n++] = (ein__key){"parts", parts};
        keys[n++] = (ein__key){"block", ein__namef(c, "%d", threads)};
        keys[n++] = (ein__key){"warps", ein__namef(c, "%d", threads / 32)};
    } else if (column) {
        const char *inner = ein__namef(c, "threadIdx.x %% %du", r->lanes);
        keys[n++] = (ein__key){"parts", parts};
        keys[n++] = (ein__key){"lanes", ein__namef(c, "%du", r->lanes)};
        keys[n++] = (ein__key){"column", ein__kgrid_id(g, each, inner)};
        keys[n++] = (ein__key){"row", "column"};
        if (r->rows % each)
            keys[n - 1].text = ein__namef(c, "column < %s ? column : %s - 1u", rows, rows);
    } else if (warp) {
        keys[n++] = (ein__key){"rows", rows};
        keys[n++] = (ein__key){"warp", ein__kwarp_id(g, warps)};
        keys[n++] = (ein__key){"block", ein__namef(c, "%d", threads)};
    } else {
        l->threads = r->rows;
        keys[n++] = (ein__key){"threads", rows};
        keys[n++] = (ein__key){"thread", ein__kthread_id(g, threads)};
        keys[n++] = (ein__key){"alone", ein__kalone(g)};
        keys[n++] = (ein__key){"kind", ein__kfunction(g, threads)};
    }
    EIN_ASSERT(n <= EIN__COUNT(keys));
    ein__kfinish(g, step->out, hint, lines[r->form], keys, n, out, l);
}

// Lanes along the row, where its elements lie side by side and are enough for a warp.
static bool ein__krows_vector(ein__kgen *g, ein__val out, const ein__krows *r) {
    int order[2 * EIN__MAX_ITERS], n = 0;
    bool across = r->form == EIN__ROW_THREAD || r->form == EIN__ROW_COLUMN;
    if (across || !r->ns || r->count / g->vec < 32) return false;
    for (int i = 0; i < r->nt; i++) order[n++] = r->t[i];
    for (int i = 0; i < r->ns; i++) order[n++] = r->s[i];
    if (!ein__kvector_out(g, out, order, n, &r->scan)) return false;
    if (g->also.i && !ein__kvector_at(g, g->also, order[n - 1], &r->scan.row[r->also]))
        return false;
    g->vec_slot = r->s[r->ns - 1];
    return true;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__krow_kernel(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                             ein__launch *l) {
    ein__krows r = {.scan = ein__kscan_make(g)};
    bool ok = ein__krows_make(g, step, &r);
    EIN_ASSERT(ok);
    if (ok) ein__krows_choose(g, &r);
    if (ok && g->vec > 1) ok = ein__krows_vector(g, step->out, &r);
    if (ok) {
        for (int i = 0; i < r.ns; i++)
            g->slot[r.s[i]].level = r.form == EIN__ROW_THREAD ? i + 1 : 1;
        uint32_t *passes = EIN_REALLOC(NULL, (size_t)arrlen(r.scan.read) * sizeof *passes);
        if (!passes) EIN_OUT_OF_MEMORY();
        memset(passes, 0, (size_t)arrlen(r.scan.read) * sizeof *passes);
        ein__krows_passes(g, step, &r, passes);
        ein__krows_early(g, step, &r, passes);
        for (int p = 0, end; p < step->nval; p = end) {
            end = ein__krows_end(g, step, p);
            if (p + 1 == step->nval || !g->inner[p].put)
                ein__krows_phase(g, step, &r, p, end, passes);
        }
        ok = !g->too_wide && !g->scattered && (r.rows <= INT32_MAX || g->wide);
        if (ok && !g->overflow) ein__krows_finish(g, step, &r, hint, out, l);
        EIN_FREE(passes);
    }
    ein__krows_free(&r);
    return ok;
}
