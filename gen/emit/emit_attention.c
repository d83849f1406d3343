// A product, a softmax along one of its dimensions and the product that sums over it, in one kernel
// (attention.c). A block takes a tile of rows of one batch and goes over the keys. In a band the
// rows of a tile are of one residue modulo the dilation, m = d * (m0 + row) + rho, and u = row + j
// counts the keys from the tile's first row on, at d * (m0 + u) + rho (emit_band.c); a band that
// runs backwards is taken from its end. Elsewhere u is the key.

// One direction of a tile: slots that `at` counts, from the outermost; -1: no end to look for.
typedef struct ein__kaxes {
    int slot[EIN__MAX_ITERS], n;
    const char *from;  // what `at` adds to a place in the tile, where a part of it is loaded
    const char *at;
    int64_t end;
} ein__kaxes;

typedef struct ein__kattention_form {
    ein__attention a;
    ein__attention_tile t;
    ein__ex key, value;  // in a band with u as the key's slot
    ein__ex result;      // what is stored
    bool pairs;          // two columns at once
    int batch[EIN__MAX_ITERS], nbatch;
    ein__kaxes rows, cols, keys, depth;
    const char *base;  // band: the tile's first row
    const char *dot;   // element of the first product
    ein__attention_score s;
    ein__ex kept,
        never;  // the score of keys that no mask hides, and of the others (attention_mask.c)
    ein__kscan scan;
} ein__kattention_form;

// A factor of the band with m the tile's first row and u in the place of j.
static ein__ex ein__kattention_moved(ein_ctx *ctx, const ein__kattention_form *f, ein__ex ex) {
    const ein__attention *a = &f->a;
    ein__ix map[EIN__MAX_ITERS];
    for (uint32_t i = 0; i < EIN__MAX_ITERS; i++)
        map[i] = ein__ix_iter(ctx, i, i < a->slots ? a->box.n[i] : 1);
    ein__ix u = ein__ix_iter(ctx, (uint32_t)a->j, f->t.terms);
    if (a->d < 0) u = ein__ix_addc(ctx, ein__ix_scale(ctx, u, -1), f->t.nkey - 1);
    map[a->j] = u;
    return ein__ex_subst(ctx, ex, map, EIN__MAX_ITERS);
}

// The slots of `mask`, `first` outermost if it is one of them and the others as the result has
// them.
static int ein__kattention_order(ein__kgen *g, const ein__kattention_form *f, uint32_t mask,
                                 int first, ein__val out, int *slot) {
    int order[EIN__MAX_RANK], all = ein__korder(g, out, order), n = 0;
    if (first >= 0 && mask >> first & 1) slot[n++] = first;
    for (int i = 0; i < all; i++)
        if (mask >> order[i] & 1 && order[i] != first) slot[n++] = order[i];
    for (uint32_t i = f->a.nt; i < f->a.slots; i++)
        if (mask >> i & 1) slot[n++] = (int)i;
    return ein__kmerge(g, &f->scan, slot, n);
}

// Names of what lives in registers.
static void ein__kattention_inner(ein__kgen *g, ein__kattention_form *f) {
    static const char *const names[][4] = {{"s[i][j]", "acc[i][c]", "top[i]", "sum[i]"},
                                           {"s[m][j][e]", "acc[m][c][e]", "top[m][i]", "sum[m][i]"},
                                           {"s[row][j]", "all.acc[c]", "all.top", "all.sum"}};
    const ein__attention *a = &f->a;
    int form = f->t.lanes ? 2 : f->t.math != EIN__MATH_FP32;
    // What is stored is that of all parts.
    const char *const *last = names[f->t.parts > 1 ? 2 : form];
    if (a->soft) ein__kneed(g, EIN__NEED_SOFTMAX);
    if (f->t.lanes || f->t.parts > 1) ein__kneed(g, EIN__NEED_KEY_PARTS);
    if (f->t.parts > 1) ein__kneed(g, EIN__NEED_LAST);
    g->shared = f->t.parts > 1;
    f->dot = names[form][0];
    bool plain = f->s.factor > 0 || a->alpha == 1;
    const char *dot = plain ? f->dot : "dot", *beside = plain ? "s[m][j][e + 1]" : "beside";
    if (a->dot.i) g->inner[g->ninner++] = (ein__kinner){.v = a->dot, .text = {dot, beside}};
    g->inner[g->ninner++] = (ein__kinner){.v = a->out, .text = {last[1]}};
    // A row without weights may have a sum beside them.
    const char *sum = a->soft && !a->shift.i ? ein__namef(g->ctx, "total(%s)", last[3]) : last[3];
    if (a->sum.i) g->inner[g->ninner++] = (ein__kinner){.v = a->sum, .text = {sum}};
    if (!a->soft || !ein__ex_contains(g->ctx, a->result, a->top)) return;
    ein__kneed(g, EIN__NEED_SCORE_UNIT);
    const char *top = ein__namef(g->ctx, "(%s > 0.f ? %s / score_unit(%s) : -INFINITY)", last[3],
                                 last[2], last[2]);
    g->inner[g->ninner++] = (ein__kinner){.v = a->max, .text = {top}};
}

// Whether a thread's two neighbouring columns are stored as one vector.
static bool ein__kattention_pairs(ein__kgen *g, const ein__kattention_form *f, ein__val out) {
    ein__dtype type = ein__kdtype(g, out);
    if (f->t.math == EIN__MATH_FP32 || f->t.parts > 1 || !f->cols.n) return false;
    if (type != EIN__F32 && type != EIN__F16) return false;
    bool alone = true;
    const ein__ex *reads = ein__ex_reads(g->ctx, f->result);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        alone &= ein__kinner_of(g, ein__ex_get(g->ctx, reads[i])->val) != NULL;
    return alone && ein__kvector_lies(g, out, f->cols.slot[f->cols.n - 1], 2,
                                      &f->scan.row[arrlen(f->scan.row) - 1]);
}

// Whether it is elements of different rows that lie together, in some of what is read.
static bool ein__kattention_across(const ein__kgen *g, const ein__kattention_form *f, ein__ex ex,
                                   const ein__kaxes *outer, const ein__kaxes *inner) {
    bool across = false;
    for (ptrdiff_t k = 0; k + 1 < arrlen(f->scan.read) && outer->n; k++) {
        if (!ein__ex_contains(g->ctx, ex, f->scan.read[k])) continue;
        const int64_t *step = f->scan.near[k].k;
        if (inner->n && step[inner->slot[inner->n - 1]] == 1) return false;
        across |= step[outer->slot[outer->n - 1]] == 1;
    }
    return across;
}

// How parts of keys and values lie in shared memory, by the places that tensors have now.
static void ein__kattention_lay(const ein__kgen *g, ein__kattention_form *f) {
    ein__attention_tile t = f->t;
    if (t.math == EIN__MATH_FP32) return;
    t.key_across = f->a.dot.i && ein__kattention_across(g, f, f->key, &f->keys, &f->depth);
    t.value_across = ein__kattention_across(g, f, f->value, &f->keys, &f->cols);
    ein__tensor_parts(&t);
    if (ein__attention_shared(&t) <= ein__shared_room(ein__gpu_of(g->ctx), 1)) f->t = t;
}

// Slots, names and the parts of the work. False: addresses are beyond what there is.
static bool ein__kattention_make(ein__kgen *g, const ein__step *step, ein__kattention_form *f) {
    ein_ctx *ctx = g->ctx;
    if (!ein__attention_of(ctx, step, &f->a) ||
        !ein__attention_tiles(ctx, &f->a, ein__bytes_of(ctx, step->out), &f->t))
        return false;
    const ein__attention *a = &f->a;
    EIN_ASSERT(f->t.parts == step->parts);
    f->result = a->sum.i ? ein__attention_divided(ctx, a, a->result) : a->result;
    f->s = ein__attention_scores_of(ctx, a);
    f->result = ein__attention_compared(ctx, a, &f->s, f->result);
    f->kept = f->t.masked ? ein__score_as(ctx, &f->s, f->t.mask.kept) : f->s.ex;
    f->never = f->t.masked ? ein__score_as(ctx, &f->s, f->t.mask.value) : (ein__ex){0};
    f->key = a->band ? ein__kattention_moved(ctx, f, a->key) : a->key;
    f->value = a->band ? ein__kattention_moved(ctx, f, a->value) : a->value;
    if (!f->key.i || !f->value.i) return false;
    for (uint32_t i = 0; i < a->slots; i++) {
        bool t = i < a->nt;
        g->slot[i] = (ein__kslot){.n = a->box.n[i], .gone = a->box.n[i] == 1};
        g->slot[i].name = ein__namef(ctx, "%c%u", t ? 'i' : 'r', (unsigned)(t ? i : i - a->nt));
    }
    ein__kattention_inner(g, f);
    ein__ex part[] = {a->query, f->key, f->value, f->s.ex, a->gate, f->result};
    for (int i = 0; i < 6; i++) ein__kscan_expr(g, &f->scan, part[i]);
    ein__kscan_out(g, &f->scan, step->out);
    if (a->each > 1) {
        ein__krow *row[] = {&arrlast(f->scan.row), &arrlast(f->scan.near)};
        for (int i = 0; i < 2; i++) row[i]->k[a->group] = ein__kmul(g, row[i]->k[a->head], a->each);
        f->scan.used |= 1u << a->group;
    }
    int first = f->t.masked ? ein__attention_slowest(&f->t.mask) : -1;
    f->nbatch = ein__kattention_order(g, f, a->batch, -1, step->out, f->batch);
    f->rows.n = ein__kattention_order(g, f, a->rows, first, step->out, f->rows.slot);
    f->cols.n = ein__kattention_order(g, f, a->cols, -1, step->out, f->cols.slot);
    f->keys.n = ein__kattention_order(g, f, a->keys, -1, step->out, f->keys.slot);
    f->depth.n = ein__kattention_order(g, f, a->depth, -1, step->out, f->depth.slot);
    ein__kattention_lay(g, f);
    f->pairs = ein__kattention_pairs(g, f, step->out);
    for (int i = 0; i < g->ninner && f->pairs; i++)
        if (g->inner[i].v.i == a->out.i)
            g->inner[i] =
                (ein__kinner){.v = a->out, .text = {"acc[m][c][2 * i]", "acc[m][c][2 * i + 1]"}};
    return true;
}

static void ein__kattention_reset(ein__kgen *g) {
    ein__kforget(g, 0);
    ein__kuncount(g);
    ein__buf_free(&g->code[0]);
    ein__put(&g->code[0], "");
}

// What makes powers of two of scores up to `most`.
static const char *ein__kattention_unit(ein__kgen *g, const ein__kattention_form *f,
                                        const char *most) {
    if (!f->a.soft) return "";
    if (f->s.factor > 0) return ein__kliteral(g, f->s.factor * 1.4426950408889634).s;
    ein__kneed(g, EIN__NEED_SCORE_UNIT);
    return ein__namef(g->ctx, "score_unit(%s)", most);
}

// Whether no row of the tile attends to a key of the turn, or "" where blocks meet all keys, and in
// `b` what gives the score that stands for those keys.
static const char *ein__kattention_stop(ein__kgen *g, const ein__kattention_form *f, ein__buf *b) {
    const ein__attention_tile *t = &f->t;
    const char *behind = ein__kattention_behind(g, t);
    bool late = ein__attention_is_late(t);
    ein__put(b, "");
    if (!*behind && !late) return "";
    if (f->a.soft) {
        ein__kcount(g, f->never);
        const char *value = ein__kvalue(g, f->never, 0).s;
        ein__putf(b, "%sconst float never = %s;\nconst float masked = never * %s;\n", g->code[0].s,
                  value, ein__kattention_unit(g, f, "never"));
        ein__kattention_reset(g);
    }
    const char *stop = *behind ? ein__namef(g->ctx, "u0 >= %s", behind) : "";
    return ein__namef(g->ctx, "%s%s%s", stop, *behind && late ? " || " : "",
                      late ? "u0 < low" : "");
}

// Where the block is: id counts tiles of rows, residues and batches, tiles fastest. Where a tile
// may be done early, they are counted slowest and from the last one on: those with most to do
// first.
static int64_t ein__kattention_index(ein__kgen *g, ein__kattention_form *f, ein__buf *b) {
    const char *type = ein__kint(g);
    const ein__attention_tile *t = &f->t;
    int64_t below = 1, d = f->a.d < 0 ? -f->a.d : f->a.d;
    bool last = ein__kattention_skips(t), first = f->rows.n > 0 || t->nrow % t->rows;
    ein__put(b, "");
    if (!last && first)
        ein__putf(b, "const %s m0 = %s;%s\n", type, ein__kdigit(g, &below, t->row_tiles, t->rows),
                  t->residues > 1 ? "" : "  // first row");
    f->base = "m0";
    f->rows.at = "m0 + row";
    f->rows.end = t->nrow % t->rows ? t->nrow : -1;
    if (f->a.band && d > 1) {
        int64_t n = g->slot[f->a.m].n;
        const char *rho = ein__kdigit(g, &below, t->residues, 1);
        ein__putf(b, "const %s base = %lld * m0 + %s;  // first row; the others stand %lld apart\n",
                  type, (long long)d, rho, (long long)d);
        if (n % d && d < n) ein__putf(b, "if (base >= %lld) return;\n", (long long)n);
        f->base = "base";
        f->rows.at = ein__namef(g->ctx, "base + %lld * row", (long long)d);
        f->rows.end = n;
    }
    for (int i = f->nbatch - 1; i >= 0; i--) {
        ein__kslot *s = &g->slot[f->batch[i]];
        ein__putf(b, "const %s %s = %s;\n", type, s->name, ein__kdigit(g, &below, s->n, 1));
    }
    if (last)
        ein__putf(b, "const %s m0 = (%lld - %s) * %d;  // first row\n", type,
                  (long long)t->row_tiles - 1, ein__kdigit(g, &below, t->row_tiles, 1), t->rows);
    return below;
}

// `text` with the slots of `x` declared in front that it mentions.
static void ein__kaxes_put(ein__kgen *g, ein__buf *b, const ein__kaxes *x, const char *text) {
    const char *type = ein__kint(g);
    uint32_t used = 0;
    for (int i = 0; i < x->n; i++)
        if (ein__kmentions(text, g->slot[x->slot[i]].name)) used |= 1u << x->slot[i];
    if (!used) return;
    if (x->n == 1) {
        if (strcmp(g->slot[x->slot[0]].name, x->at))
            ein__putf(b, "const %s %s = %s;\n", type, g->slot[x->slot[0]].name, x->at);
        return;
    }
    ein__putf(b, "const %s at%d = (%s)(%s);\n", ein__kunsigned(g), x->slot[0], ein__kunsigned(g),
              x->at);
    ein__kdecompose(g, b, x->slot, x->n, used, ein__namef(g->ctx, "at%d", x->slot[0]));
}

static const char *ein__kaxes_test(ein__kgen *g, const ein__kaxes *a, const ein__kaxes *b) {
    const char *x = a->end < 0 ? "" : ein__namef(g->ctx, "%s < %lld", a->at, (long long)a->end);
    const char *y = b->end < 0 ? "" : ein__namef(g->ctx, "%s < %lld", b->at, (long long)b->end);
    return ein__namef(g->ctx, "%s%s%s", x, *x && *y ? " && " : "", y);
}

// Whether `vec` neighbours of `read` along `slot` are one vector.
static bool ein__kattention_lies(ein__kgen *g, ein__ex read, int vec, int slot) {
    int nindex = g->nindex;
    g->vec = vec;
    g->vec_slot = slot;
    ein__kaccess at = ein__kaccess_of(g, read, 0);
    ein__kattention_reset(g);
    g->nindex = nindex;
    g->vec = 1;
    g->vec_slot = -1;
    return at.vector;
}

// Whether four neighbours of what loads compute read vectors.
static bool ein__kattention_four(ein__kgen *g, const ein__kattention_form *f, ein__ex ex,
                                 int slot) {
    bool four = g->slot[slot].n % 4 == 0;
    for (ptrdiff_t k = 0; k < arrlen(f->scan.read) && four; k++) {
        ein__ex read = f->scan.read[k];
        if (!read.i || !ein__ex_contains(g->ctx, ex, read)) continue;
        if (ein__ex_uses(g->ctx, read) >> slot & 1) four = ein__kattention_lies(g, read, 4, slot);
    }
    return four;
}

// How many neighbours along `inner` `read` gives at once, `most` or fewer: as they are (eight
// halves), converted (4) or one.
static int ein__kattention_vector(ein__kgen *g, const ein__kattention_form *f, ein__ex read,
                                  const ein__kaxes *inner, int most) {
    if (inner->n != 1 || most < 4) return 1;
    const ein__expr *e = ein__ex_get(g->ctx, read);
    if (e->op != EIN__X_READ) return ein__kattention_four(g, f, read, inner->slot[0]) ? 4 : 1;
    bool halves = (f->t.math == EIN__MATH_FP16 || f->t.lanes) && !e->bits &&
                  ein__kdtype(g, (ein__val){e->val}) == EIN__F16;
    for (int vec = halves ? most : 4; vec >= 4; vec /= 2)
        if (g->slot[inner->slot[0]].n % vec == 0 &&
            ein__kattention_lies(g, read, vec, inner->slot[0]))
            return vec;
    return 1;
}

// A load into shared memory, one element e a time or several: who takes which, and the statements.
typedef struct ein__kload_text {
    const char *count, *outer, *inner;
    int64_t all, rows, wide;  // loads; rows; loads a row, or 0: neighbours are of different rows
    int width;                // elements of a load
    bool copy;                // it is one from memory to shared memory, of 16 bytes
    ein__buf text;
} ein__kload_text;

// Whether `vec` neighbours of `read` are 16 bytes that tensor cores get as they are, or rounded.
static bool ein__kattention_copies(ein__kgen *g, const ein__kattention_form *f, ein__ex read,
                                   int vec) {
    const ein__expr *e = ein__ex_get(g->ctx, read);
    if (e->op != EIN__X_READ || e->bits) return false;
    ein__dtype type = ein__kdtype(g, (ein__val){e->val});
    return f->t.math == EIN__MATH_FP16   ? vec == 8 && type == EIN__F16
           : f->t.math == EIN__MATH_TF32 ? vec == 4 && type == EIN__F32
                                         : false;
}

// The value of `read` with `vec` neighbours along `slot`. `test`: what else must hold for a copy,
// of which the text says where it is from; `apart`: bytes from the place that is written to that of
// a thread's element i, for each element.
static const char *ein__kattention_value(ein__kgen *g, ein__ex read, int vec, int slot, bool copy,
                                         const char *test, int64_t apart) {
    ein__kcount(g, read);
    if (vec == 1) return ein__kvalue(g, read, 0).s;
    const char *value;
    g->vec = vec;
    g->vec_slot = slot;
    if (ein__ex_get(g->ctx, read)->op != EIN__X_READ) {
        const char *of[4];
        for (int i = 0; i < 4; i++) of[i] = ein__kvalue(g, read, i).s;
        value = ein__namef(g->ctx, "make_float4(%s, %s, %s, %s)", of[0], of[1], of[2], of[3]);
    } else if (vec == 8 || copy) {
        ein__kaccess at = ein__kaccess_of(g, read, 0);
        const char *from = ein__kpointer(g, at.param, at.at.s);
        if (apart) {
            ein__kneed(g, EIN__NEED_MOVED);
            from = ein__namef(g->ctx, "moved(%s, size_t(i) * %lldu)", from, (long long)apart);
        }
        const char *guard = at.guard ? at.guard : "";
        const char *both = ein__namef(g->ctx, "%s%s%s", test, *test && *guard ? " && " : "", guard);
        if (copy) value = ein__namef(g->ctx, "fetch<uint4>(%s%s%s)", from, *both ? ", " : "", both);
        else value = ein__namef(g->ctx, "*reinterpret_cast<const uint4 *>(%s)", from);
        if (!copy && *guard)
            value = ein__namef(g->ctx, "%s ? %s : make_uint4(0u, 0u, 0u, 0u)", guard, value);
    } else {
        value = ein__kvalue(g, read, 0).s;
        for (int i = 1; i < vec; i++) (void)ein__kvalue(g, read, i);
        value = ein__name_n(g->ctx, value, strlen(value) - 2);  // all lanes of it, without ".x"
    }
    g->vec = 1;
    g->vec_slot = -1;
    return value;
}

// Bytes that lie between what `read` gives for one place of `slot` and for the next; 0: it varies.
static int64_t ein__kattention_apart(ein__kgen *g, ein__ex read, int slot, int bytes) {
    ein__kscan scan = ein__kscan_make(g);
    ein__kscan_expr(g, &scan, read);
    int64_t k = scan.pinned >> slot & 1 || arrlen(scan.row) != 1 ? 0 : scan.row[0].k[slot] * bytes;
    ein__kscan_free(&scan);
    return k > 0 && k < INT16_MAX ? k : 0;
}

// `to`: where the element goes; NULL: it stays in the thread's register own[i]. `most`: elements of
// a load. `later`: of a key or a value, whose copies may still be on their way when the kernel goes
// on.
static ein__kload_text ein__kattention_load(ein__kgen *g, ein__ex read, const char *to,
                                            const ein__kattention_form *f, const ein__kaxes *outer,
                                            const ein__kaxes *inner, int64_t no, int64_t ni,
                                            int most, bool later) {
    ein_ctx *ctx = g->ctx;
    ein__kload_text l = {0};
    int vec = ein__kattention_vector(g, f, read, inner, most);
    bool across = vec == 1 && ein__kattention_across(g, f, read, outer, inner);
    const char *test = ein__kaxes_test(g, outer, inner);
    l.copy = later && ein__kattention_copies(g, f, read, vec);
    long long step = vec, n = across ? no : ni / step, threads = 32 * f->t.warps;
    int64_t apart = 0;
    ein__kaxes first = *outer;
    // Places that are constants apart have one address.
    if (l.copy && outer->n == 1 && threads % n == 0)
        apart = ein__kattention_apart(g, read, outer->slot[0], 16 / vec) * (threads / n);
    if (apart) first.at = ein__namef(ctx, "%s(int)threadIdx.x / %lld", outer->from, n);
    g->reached = l.copy ? test : NULL;
    g->reached_level = 0;
    const char *value =
        ein__kattention_value(g, read, vec, vec > 1 ? inner->slot[0] : -1, l.copy, test, apart);
    g->reached = NULL;
    const char *all = ein__namef(ctx, "%s%s", g->code[0].s, value);
    ein__buf body = {0};
    ein__kaxes_put(g, &body, &first, all);
    ein__kaxes_put(g, &body, inner, all);
    ein__put(&body, g->code[0].s);
    if (*test && !l.copy) {
        ein__putf(&body, "t = %s;\n", value);
        ein__putf(&l.text, "%s;\nif (%s) {\n",
                  vec == 8   ? "uint4 t = make_uint4(0u, 0u, 0u, 0u)"
                  : vec == 4 ? "float4 t = make_float4(0.f, 0.f, 0.f, 0.f)"
                             : "float t = 0.f",
                  test);
        ein__kindent(&l.text, body.s, 4);
        ein__put(&l.text, "}\n");
        value = "t";
    } else {
        ein__put(&l.text, body.s);
    }
    if (l.copy) ein__putf(&l.text, "copy_async(&%s, %s);\n", to, value);
    else if (f->t.math != EIN__MATH_FP32) ein__putf(&l.text, "attend_put(&%s, %s);\n", to, value);
    else if (!to || (f->t.lanes && later))
        ein__putf(&l.text, "%s = %s;\n", to ? to : "own[i]", value);
    else if (vec > 1) ein__putf(&l.text, "*reinterpret_cast<float4 *>(&%s) = %s;\n", to, value);
    else ein__putf(&l.text, "%s = %s;\n", to, value);
    ein__buf_free(&body);
    ein__kattention_reset(g);
    l.all = no * ni / step;
    l.rows = no;
    l.wide = across ? 0 : n;
    l.width = vec;
    l.count = ein__namef(ctx, "%lld", (long long)l.all);
    l.outer = ein__namef(ctx, across ? "e %% %lld" : "e / %lld", n);
    l.inner = ein__namef(ctx, across ? "e / %lld" : "e %% %lld", n);
    if (vec > 1) l.inner = ein__namef(ctx, "%s * %d", l.inner, vec);
    if (n == 1 && !across) l.outer = "e", l.inner = "0";
    return l;
}

// Whether all keys of a turn are beyond the ends of what `ex` reads, where it is 0 and so are its
// products, or "" where no keys are.
static const char *ein__kattention_beyond(ein__kgen *g, const ein__kattention_form *f, ein__ex ex) {
    ein_ctx *ctx = g->ctx;
    const ein__attention *a = &f->a;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (!a->band || e->op != EIN__X_READ || e->bits) return "";
    uint32_t known = a->batch | 1u << a->m | 1u << a->j;
    const char *at[] = {"u0", ein__namef(ctx, "(u0 + %d)", f->t.keys - 1)}, *test = "", *text[2];
    const char *name = g->slot[a->j].name;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *x = ein__ix_get(ctx, e->ix[k]);
        int64_t n = ctx->value[e->val].shape.d[k], by = ein__ix_coef(ctx, e->ix[k], (uint32_t)a->j);
        bool low = x->lo < 0, high = x->hi >= n;
        bool plain = ein__attention_near(x, 1, by) && ein__ix_affine(ctx, e->ix[k]);
        if (!plain || ein__ix_uses(ctx, e->ix[k]) & ~known) continue;
        for (int i = 0; i < 2; i++) {  // the turn's lowest place, and its highest one
            g->slot[a->j].name = at[by > 0 ? i : 1 - i];
            ein__klin l = ein__klin_of(g, e->ix[k], 0);
            text[i] = ein__klin_text(g, &l, 0).s;
        }
        g->slot[a->j].name = name;
        if (low) test = ein__namef(ctx, "%s%s%s < 0", test, *test ? " || " : "", text[1]);
        if (high)
            test =
                ein__namef(ctx, "%s%s%s >= %lld", test, *test ? " || " : "", text[0], (long long)n);
    }
    ein__kattention_reset(g);
    return test;
}

// The parts of a kernel's text.
typedef struct ein__kattention_text {
    ein__buf index, shares, masked, score, gate, absent, store;
    const char *stop, *joined;
    const char *beyond[2];  // whether a turn's keys, or its values, are all 0; empty: no turn's are
    const char *ends;       // whether elements may be absent; NULL: never
    bool both;              // scores of two keys are made at once
    ein__kload_text query, key, value;
    int64_t blocks;
} ein__kattention_text;

// Which keys a row has, and which rows there are.
typedef struct ein__kattention_keyed {
    ein__kaxes keys, rows;
    const char *test;  // whether the row has the key; empty: it has
    const char *ends;  // whether some row of the tile may not
} ein__kattention_keyed;

// `reads`: there must be no reading at places of rows beyond the last.
static ein__kattention_keyed ein__kattention_keyed_by(ein__kgen *g, const ein__kattention_form *f,
                                                      bool reads) {
    ein_ctx *ctx = g->ctx;
    const ein__attention_tile *t = &f->t;
    const char *u = ein__kunsigned(g), *su = g->wide ? "ull" : "u";
    long long n = (long long)t->nkey;
    ein__kattention_keyed k = {
        .keys = {.n = f->keys.n, .at = "u0 + key", .end = -1}, .rows = f->rows, .ends = ""};
    memcpy(k.keys.slot, f->keys.slot, sizeof k.keys.slot);
    if (!reads && !ein__kattention_blind(t)) k.rows.end = -1;
    // Blocks that look whether rows have met a key go on for a row that never does: what is beyond
    // the last row is as that one.
    if (k.rows.end >= 0 && (ein__kattention_skips(t) || ein__attention_is_late(t))) {
        k.rows.at = ein__namef(ctx, "m0 + row < %lld ? m0 + row : %lld", (long long)k.rows.end,
                               (long long)k.rows.end - 1);
        k.rows.end = -1;
    }
    if (f->a.band) {
        k.keys.at =
            f->a.d < 0 ? ein__namef(ctx, "%lld - (u0 + key - row)", n - 1) : "u0 + key - row";
        k.ends = ein__namef(ctx, "u0 < %d || u0 > %lld", t->rows - 1, n - t->keys);
    } else if (t->nkey % t->keys) {
        k.keys.end = t->nkey;
        k.ends = ein__namef(ctx, "u0 > %lld", n - t->keys);
    }
    k.test = ein__kaxes_test(g, &k.rows, &k.keys);
    if (f->a.band)
        k.test = ein__namef(ctx, "(%s)(u0 + key - row) < %lld%s%s%s", u, n, su,
                            *k.test ? " && " : "", k.test);
    return k;
}

// The row and the key of the product's element, where `text` mentions them.
static void ein__kattention_place(const ein__kattention_form *f, const char *text, const char *test,
                                  ein__buf *b) {
    bool tensor = f->t.math != EIN__MATH_FP32;
    if (tensor && (ein__kmentions(text, "row") || ein__kmentions(test, "row")))
        ein__put(b, "const int row = own + 16 * m + lane / 4 + e / 2 * 8;\n");
    if (ein__kmentions(text, "key") || ein__kmentions(test, "key"))
        ein__put(b, tensor       ? "const int key = first + 8 * j + lane % 4 * 2 + e % 2;\n"
                    : f->t.lanes ? "const int key = group + GROUPS * j;\n"
                                 : "const int key = tx + 16 * j;\n");
}

// The score of a key that a row does not have.
static const char *ein__kattention_none(const ein__kattention_form *f) {
    return f->a.soft ? "-INFINITY" : "0.f";
}

// On tensor cores that is put where a row has no such key, and the mask's value where it hides one,
// in a pass of its own, `absent`, of the tiles that have such places.
static void ein__kattention_absent(ein__kgen *g, const ein__kattention_form *f,
                                   const ein__kattention_keyed *k, ein__kattention_text *x) {
    const ein__attention_tile *t = &f->t;
    const char *ends = k->ends;
    ein__buf *b = &x->absent;
    if (t->masked) {
        ends = ein__namef(g->ctx, "%s%s%s", ein__kattention_hides(g, t), *ends ? " || " : "", ends);
        ein__kcount(g, f->never);
        const char *value = ein__kvalue(g, f->never, 0).s;
        ein__kattention_hidden(g, t, value, b);
        ein__kattention_reset(g);
    }
    x->ends = *ends ? ends : NULL;
    if (!*k->test) return;
    ein__kattention_place(f, "", k->test, b);
    ein__putf(b, "if (!(%s)) s[m][j][e] = %s;\n", k->test, ein__kattention_none(f));
}

// Whether scores of two neighbouring keys are made at once: both keys are there, and something is
// read as a vector.
static bool ein__kattention_both(ein__kgen *g, const ein__kattention_form *f) {
    const ein__attention *a = &f->a;
    if (f->t.math == EIN__MATH_FP32 || a->band || f->keys.n != 1) return false;
    int key = f->keys.slot[0];
    bool both = false;
    const ein__ex *reads = ein__ex_reads(g->ctx, f->s.ex);
    for (ptrdiff_t i = 0; i < arrlen(reads) && g->slot[key].n % 2 == 0; i++)
        if (ein__ex_get(g->ctx, reads[i])->val != a->dot.i &&
            ein__ex_uses(g->ctx, reads[i]) >> key & 1)
            both |= ein__kattention_lies(g, reads[i], 2, key);
    return both;
}

// What scores call the product's element, or two neighbours'.
static void ein__kattention_dots(ein__kgen *g, const ein__kattention_form *f, bool both,
                                 const char *all, ein__buf *b) {
    static const char *const names[] = {"dot", "beside"};
    const ein__attention *a = &f->a;
    bool scaled = f->s.factor == 0 && a->alpha != 1;
    const char *element[] = {f->dot, "s[m][j][e + 1]"};
    for (int i = 0; i <= (int)both && scaled; i++)
        if (ein__kmentions(all, names[i]))
            ein__putf(b, "const float %s = %s * %s;\n", names[i], ein__kliteral(g, a->alpha).s,
                      element[i]);
}

// x from the product's element, where the row has the key. On tensor cores all rows have all keys
// for the time being, unless a score must not be made there.
static void ein__kattention_score(ein__kgen *g, const ein__kattention_form *f,
                                  ein__kattention_text *x) {
    ein_ctx *ctx = g->ctx;
    const ein__attention *a = &f->a;
    ein__buf *b = &x->score;
    bool reads_row = false;
    const ein__ex *reads = ein__ex_reads(ctx, a->score);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        if (ein__ex_get(ctx, reads[i])->val != a->dot.i)
            reads_row |= (ein__ex_uses(ctx, reads[i]) & (a->rows | a->keys)) != 0;
    bool apart = f->t.math != EIN__MATH_FP32 && !reads_row;
    ein__ex ex = apart ? f->kept : f->s.ex;
    x->both = ein__kattention_both(g, f);
    ein__kcount(g, ex);
    if (x->both) g->vec = 2, g->vec_slot = f->keys.slot[0];
    const char *value = ein__kvalue(g, ex, 0).s;
    if (x->both) value = ein__namef(ctx, "%s;\nnext = %s", value, ein__kvalue(g, ex, 1).s);
    g->vec = 1;
    g->vec_slot = -1;
    const char *all = ein__namef(ctx, "%s%s", g->code[0].s, value);
    ein__kattention_keyed k = ein__kattention_keyed_by(g, f, reads_row);
    ein__buf body = {0};
    ein__kaxes_put(g, &body, &k.rows, all);
    ein__kaxes_put(g, &body, &k.keys, all);
    ein__kattention_dots(g, f, x->both, all, &body);
    ein__put(&body, g->code[0].s);
    ein__putf(&body, "x = %s;\n", value);
    const char *test = apart ? "" : k.test;
    ein__kattention_place(f, body.s, test, b);
    if (*test) ein__putf(b, "if (%s) {\n", test);
    ein__kindent(b, body.s, *test ? 4 : 0);
    if (*test) ein__put(b, "}\n");
    ein__buf_free(&body);
    ein__kattention_reset(g);
    ein__put(&x->absent, "");
    if (apart) ein__kattention_absent(g, f, &k, x);
}

// Weights that the second product leaves out, which their sum has: 0 instead.
static void ein__kattention_gate(ein__kgen *g, const ein__kattention_form *f,
                                 ein__kattention_text *x) {
    const char *weight = f->t.lanes                    ? "s[row][j]"
                         : f->t.math != EIN__MATH_FP32 ? "s[m][j][e]"
                                                       : "weight[row][tx + 16 * j]";
    ein__put(&x->gate, "");
    if (!ein__attention_is_gated(g->ctx, &f->a)) return;
    ein__kcount(g, f->a.gate);
    const char *open = ein__kparen(g, ein__kvalue(g, f->a.gate, 0), EIN__TERM);
    const char *all = ein__namef(g->ctx, "%s%s", g->code[0].s, open);
    ein__kattention_keyed k = ein__kattention_keyed_by(g, f, true);
    ein__buf body = {0};
    ein__kaxes_put(g, &body, &k.rows, all);
    ein__kaxes_put(g, &body, &k.keys, all);
    ein__putf(&body, "%sif (%s == 0.f) %s = 0.f;\n", g->code[0].s, open, weight);
    ein__kattention_place(f, body.s, k.test, &x->gate);
    if (*k.test) ein__putf(&x->gate, "if (%s) {\n", k.test);
    ein__kindent(&x->gate, body.s, *k.test ? 4 : 0);
    if (*k.test) ein__put(&x->gate, "}\n");
    ein__buf_free(&body);
    ein__kattention_reset(g);
}

static void ein__kattention_store(ein__kgen *g, const ein__kattention_form *f,
                                  const ein__step *step, ein__buf *b) {
    ein__ktext value[2];
    ein__buf store = {0}, body = {0};
    ein__kcount(g, f->result);
    if (f->pairs) g->vec = 2, g->vec_slot = f->cols.slot[f->cols.n - 1];
    for (int i = 0; i < g->vec; i++) value[i] = ein__kvalue(g, f->result, i);
    ein__kstore(g, &store, step->out, &f->scan, value);
    g->vec = 1;
    g->vec_slot = -1;
    const char *all = ein__namef(g->ctx, "%s%s", g->code[0].s, store.s);
    ein__kaxes cols = f->cols;
    cols.at = "col";
    cols.end = f->t.cols < f->t.width ? f->t.cols : -1;
    const char *test = ein__kaxes_test(g, &f->rows, &cols);
    ein__kaxes_put(g, &body, &f->rows, all);
    ein__kaxes_put(g, &body, &cols, all);
    ein__put(&body, g->code[0].s);
    ein__put(&body, store.s);
    if (*test) ein__putf(b, "if (%s) {\n", test);
    ein__kindent(b, body.s, *test ? 4 : 0);
    if (*test) ein__put(b, "}\n");
    ein__buf_free(&store);
    ein__buf_free(&body);
    ein__kattention_reset(g);
}

// `kv`: keys of a part of the values. `to`: where elements of queries, keys and values go.
static void ein__kattention_parts(ein__kgen *g, const ein__step *step, ein__kattention_form *f,
                                  int64_t kv, const char *const *to, ein__kattention_text *x) {
    const ein__attention_tile *t = &f->t;
    // Elements of a load, at most: of queries, keys, values. The plan has room for lanes that load
    // as much as it counts with, or less.
    int most[] = {t->lanes ? 4 : 8, t->lanes ? t->kw : 8, t->lanes ? t->vw : 8};
    for (int i = 0; i < 3; i++)
        if (g->vec == 1) most[i] = 1;
    g->vec = 1;
    x->blocks = ein__kattention_index(g, f, &x->index);
    ein__kaxes keys = {.n = f->keys.n, .from = "u0 + ", .at = "u0 + key"}, cols = f->cols,
               at = {.from = "k0 + ", .at = "k"};
    memcpy(keys.slot, f->keys.slot, sizeof keys.slot);
    memcpy(at.slot, f->depth.slot, sizeof at.slot);
    at.n = f->depth.n;
    if (t->lanes) {
        f->t.kw = ein__kattention_vector(g, f, f->key, &at, most[1]);
        f->t.vw = ein__kattention_vector(g, f, f->value, &cols, most[2]);
        ein__few_lanes(&f->a, &f->t);
    }
    int64_t depth = ein__up(t->depth, t->kc);
    at.end = depth > t->depth ? t->depth : -1;
    const ein__kload_text none = {.count = "0", .outer = "0", .inner = "0"};
    bool product = f->a.dot.i != 0;
    x->query = x->key = none;
    if (product)
        x->query = ein__kattention_load(g, f->a.query, to[0], f, &f->rows, &at, t->rows, depth,
                                        most[0], false);
    if (!t->lanes) at.at = "k0 + k";
    keys.end = t->terms % t->keys ? t->terms : -1;
    const char *name = f->a.band ? g->slot[f->a.m].name : NULL;
    if (name) g->slot[f->a.m].name = f->base;
    if (product)
        x->key = t->key_across ? ein__kattention_load(g, f->key, to[1], f, &at, &keys, t->kc,
                                                      t->keys, most[1], true)
                               : ein__kattention_load(g, f->key, to[1], f, &keys, &at, t->keys,
                                                      t->kc, most[1], true);
    x->beyond[0] = product ? ein__kattention_beyond(g, f, f->key) : "";
    x->beyond[1] = ein__kattention_beyond(g, f, f->value);
    keys.at = t->math == EIN__MATH_FP32 && !t->lanes ? "u0 + k0 + key" : "u0 + key";
    cols.from = "";
    cols.at = "col";
    cols.end = t->cols < t->width ? t->cols : -1;
    x->value = t->value_across ? ein__kattention_load(g, f->value, to[2], f, &cols, &keys, t->width,
                                                      kv, most[2], true)
                               : ein__kattention_load(g, f->value, to[2], f, &keys, &cols, kv,
                                                      t->width, most[2], true);
    if (name) g->slot[f->a.m].name = name;
    if (!product) {
        ein__put(&x->query.text, "");
        ein__put(&x->key.text, "");
    }
    x->stop = ein__kattention_stop(g, f, &x->masked);
    ein__put(&x->shares, "");
    const char *behind = ein__kattention_behind(g, t);
    if (ein__attention_is_late(t)) ein__kattention_turns(g, t, behind, &x->shares);
    else ein__kattention_shares(g, t, behind, &x->shares);
    if (t->parts > 1)
        x->joined =
            ein__namef(g->ctx, "join_keys<%d, false>(left + blockIdx.x / %du * %du, row, at)",
                       t->parts, t->parts, t->parts);
    else x->joined = t->lanes ? "join_keys<8, true>(warps, row, at)" : "";
    ein__kattention_score(g, f, x);
    ein__kattention_gate(g, f, x);
    ein__kattention_store(g, f, step, &x->store);
}

static void ein__kattention_free(ein__kattention_text *x) {
    ein__buf *used[] = {&x->index,  &x->shares, &x->masked,     &x->score,    &x->gate,
                        &x->absent, &x->store,  &x->query.text, &x->key.text, &x->value.text};
    for (int i = 0; i < 10; i++) ein__buf_free(used[i]);
}
