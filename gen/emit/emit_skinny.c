// Skinny products; see skinny.c. Where a line of the streamed factor is one vector after the other
// the threads of a block lie along its terms, four each, and every thread has some lines; where
// neighbours belong to different lines, eight threads lie along 32 of these and the others share
// the terms. Either way the few lines of the other factor are a loop in registers, and the parts of
// a sum are added in a fixed order.

typedef struct ein__kskinny {
    ein__skinny k;
    ein__kred r;
    int order[3][EIN__MAX_ITERS], n[3];  // rows, columns, batch: slots, outermost first
    int64_t few, many;
    ein__skinny_cut cut;
    int64_t count;  // terms, or vectors of them; the last turn may have fewer
    bool ragged;
    const char *type, *zero;  // of what a load of the streamed factor gives ...
    const char *make;         // ... and the call that makes a float4 of it, or none
    ein__buf index, position, stream, terms, result, store;
} ein__kskinny;

static void ein__kskinny_free(ein__kskinny *z) {
    ein__kred_free(&z->r);
    ein__buf_free(&z->index);
    ein__buf_free(&z->position);
    ein__buf_free(&z->stream);
    ein__buf_free(&z->terms);
    ein__buf_free(&z->result);
    ein__buf_free(&z->store);
}

// Splits the traversal order into the groups, and sets the levels: terms 1, the many 2, the few 3.
// Lines are counted in fours along the vector's slot, which is innermost for that, wherever the
// result, which the traversal follows, has it.
static void ein__kskinny_slots(ein__kgen *g, ein__kskinny *z) {
    for (int i = 0; i < z->r.nt; i++)
        for (int k = 0; k < 3; k++)
            if (z->k.p.group[k] >> z->r.t[i] & 1) z->order[k][z->n[k]++] = z->r.t[i];
    int *many = z->order[z->k.many], last = z->n[z->k.many] - 1;
    for (int i = 0; i < last && !z->k.terms; i++) {
        if (many[i] != z->k.slot) continue;
        many[i] = many[i + 1];
        many[i + 1] = z->k.slot;
    }
    for (int i = 0; i < z->n[z->k.few]; i++) g->slot[z->order[z->k.few][i]].level = 3;
    for (int i = 0; i < z->n[z->k.many]; i++)
        g->slot[z->order[z->k.many][i]].level = z->k.terms ? 2 : 1;
    for (int i = 0; i < z->r.ns; i++) g->slot[z->r.s[i]].level = 1;
    z->few = ein__kcount_slots(g, z->order[z->k.few], z->n[z->k.few]);
    z->many = ein__kcount_slots(g, z->order[z->k.many], z->n[z->k.many]);
}

static void ein__kskinny_cut(ein__kgen *g, ein__kskinny *z) {
    z->cut = ein__skinny_cut_of(g->ctx, &z->k);
    z->count = z->k.terms ? z->r.count / 4 : z->r.count;
    z->ragged = z->count % (z->cut.block / z->cut.lanes * z->cut.ahead) != 0;
    z->type = "float4";
    z->zero = "make_float4(0.f, 0.f, 0.f, 0.f)";
    z->make = "";
}

// Declares an order's slots from a flat number, `from`, that lies below their count.
static void ein__kskinny_digits(ein__kgen *g, ein__buf *b, const int *order, int n,
                                const char *from) {
    int vec = g->vec_slot;
    g->vec_slot = -1;
    bool bare = !strpbrk(from, " ");
    if (n == 1 && strcmp(from, g->slot[order[0]].name))
        ein__putf(b, bare ? "const %s %s = (%s)%s;\n" : "const %s %s = (%s)(%s);\n", ein__kint(g),
                  g->slot[order[0]].name, ein__kint(g), from);
    if (n > 1 && !bare && *from != '(') from = ein__namef(g->ctx, "(%s)", from);
    if (n > 1) ein__kdecompose(g, b, order, n, ~0u, from);
    g->vec_slot = vec;
}

static void ein__kskinny_index(ein__kgen *g, ein__kskinny *z, int64_t *blocks) {
    int64_t lines = z->cut.columns * z->cut.lanes, below = 1;
    int64_t groups = (z->many + lines - 1) / lines;
    ein__putf(&z->index, "const %s n0 = %s;\n", ein__kunsigned(g),
              ein__kprod_first(g, &below, groups, (int)lines));
    for (int i = z->n[2] - 1; i >= 0; i--) {
        const ein__kslot *s = &g->slot[z->order[2][i]];
        ein__putf(&z->index, "const %s %s = %s;\n", ein__kint(g), s->name,
                  ein__kdigit(g, &below, s->n, 1));
    }
    *blocks = below;
}

// The lines of `text` in a loop over `name` below `n`, unrolled; without one for a single turn.
static void ein__kskinny_loop(ein__buf *b, const char *name, int64_t n, const char *text) {
    if (n == 1) {
        ein__put(b, text);
        return;
    }
    ein__putf(b, "#pragma unroll\nfor (int %s = 0; %s < %lld; %s++) {\n", name, name, (long long)n,
              name);
    ein__kindent(b, text, 4);
    ein__put(b, "}\n");
}

// A factor's element in one lane, padding included.
static const char *ein__kskinny_lane(ein__kgen *g, ein__ex read, int lane) {
    ein__kaccess at = ein__kaccess_of(g, read, lane);
    const char *s = ein__kload(g, &at, at.level).s;
    return at.guard ? ein__namef(g->ctx, "%s ? %s : %s", at.guard, s, ein__kliteral(g, 0).s) : s;
}

// Four elements of a factor along the vector's slot, as a float4.
static const char *ein__kskinny_vector(ein__kgen *g, ein__ex read) {
    ein__kaccess at = ein__kaccess_of(g, read, 0);
    const char *zero = ein__kliteral(g, 0).s;
    if (at.vector) {
        const char *s = ein__kload4(g, &at);
        return at.guard ? ein__namef(g->ctx, "%s ? %s : %s", at.guard, s, ein__kfill(g, zero)) : s;
    }
    const char *lane[4];
    for (int i = 0; i < 4; i++) lane[i] = ein__kskinny_lane(g, read, i);
    return ein__namef(g->ctx, "make_float4(%s, %s, %s, %s)", lane[0], lane[1], lane[2], lane[3]);
}

// Takes the statements of a level.
static const char *ein__kskinny_take(ein__kgen *g, int level) {
    const char *s = ein__name(g->ctx, g->code[level].s);
    g->code[level].s[g->code[level].n = 0] = 0;
    return s;
}

// The streamed factor's vector as it lies in memory, halves in words: what is made of these would
// wait for them.
static const char *ein__kskinny_words(ein__kgen *g, ein__kskinny *z, ein__ex many) {
    ein__kaccess at = ein__kaccess_of(g, many, 0);
    bool half = at.dtype == EIN__F16;
    const char *s = ein__kpointer(g, at.param, at.at.s);
    if (at.dtype == EIN__F32) {
        s = ein__kload4(g, &at);
    } else {
        s = ein__namef(g->ctx, "*reinterpret_cast<const uint2 *>(%s)", s);
        z->type = "uint2";
        z->zero = "make_uint2(0u, 0u)";
        z->make = half ? "half4_value" : "bfloat4_value";
        ein__kneed(g, half ? EIN__NEED_HALF4 : EIN__NEED_BFLOAT4);
    }
    return at.guard ? ein__namef(g->ctx, "%s ? %s : %s", at.guard, s, z->zero) : s;
}

// `text` for term `k` of a turn, with the slots that it needs. Behind the last term nothing is
// read.
static void ein__kskinny_term(ein__kgen *g, ein__kskinny *z, ein__buf *b, const char *k,
                              const char *text) {
    ein__buf inner = {0};
    ein__put(&inner, "");
    ein__kdecompose(g, &inner, z->r.s, z->r.ns, z->r.scan.used, "k");
    ein__put(&inner, text);
    ein__putf(b, "const %s k = %s;\n", ein__kunsigned(g), k);
    if (z->ragged) ein__putf(b, "if (k < %s) {\n", ein__knumber(g, z->count));
    ein__kindent(b, inner.s, z->ragged ? 4 : 0);
    if (z->ragged) ein__put(b, "}\n");
    ein__buf_free(&inner);
}

// Loads of the streamed factor whose terms begin at `k`, each with the statements `lines` of its
// lines.
static void ein__kskinny_stream(ein__kgen *g, ein__kskinny *z, const char *k, const char *loads) {
    ein__buf one = {0};
    int n = z->cut.ahead * (z->k.terms ? z->cut.columns : 1);
    if (z->ragged)
        ein__putf(&z->stream, "#pragma unroll\nfor (int e = 0; e < %d; e++) w[e] = %s;\n", n,
                  z->zero);
    ein__kskinny_term(g, z, &one, k, loads);
    if (z->cut.ahead == 1) {
        ein__put(&z->stream, "{\n");
        ein__kindent(&z->stream, one.s, 4);
        ein__put(&z->stream, "}\n");
    } else {
        ein__kskinny_loop(&z->stream, "u", z->cut.ahead, one.s);
    }
    ein__buf_free(&one);
}

// Threads along the terms: the lines' vectors, then each of the few against all of them.
static bool ein__kskinny_along_terms(ein__kgen *g, ein__kskinny *z, ein__ex many, ein__ex few) {
    ein_ctx *c = g->ctx;
    ein__buf load = {0}, loads = {0}, x = {0}, one = {0}, body = {0}, rows = {0};
    int columns = z->cut.columns;
    g->vec_slot = z->k.slot;
    if (!ein__kaccess_of(g, many, 0).vector) return false;
    const char *words = ein__kskinny_words(g, z, many), *i = z->few > 1 ? "i" : "0";
    const char *u = z->cut.ahead > 1 ? "u" : "0", *j = columns > 1 ? "j" : "0";
    const char *at = z->cut.ahead == 1 ? j
                     : columns == 1    ? u
                                       : ein__namef(c, "u * %d + j", columns);
    const char *k = z->cut.ahead > 1 ? ein__namef(c, "k0 + threadIdx.x + u * %du", z->cut.block)
                                     : "k0 + threadIdx.x";
    const char *n = columns > 1 ? "n0 + (unsigned)j" : "n0";
    if (z->many % columns)
        n = ein__namef(c, "(%s < %s ? %s : %s)", n, ein__knumber(g, z->many), n,
                       ein__knumber(g, z->many - 1));
    ein__kskinny_digits(g, &load, z->order[z->k.many], z->n[z->k.many], n);
    ein__putf(&load, "%sw[%s] = %s;\n", ein__kskinny_take(g, 2), at, words);
    ein__put(&loads, ein__kskinny_take(g, 1));
    ein__kskinny_loop(&loads, "j", columns, load.s);
    ein__kskinny_stream(g, z, k, loads.s);
    ein__kforget(g, 1);
    const char *v = ein__kskinny_vector(g, few);
    ein__put(&x, ein__kskinny_take(g, 1));
    if (z->few > 1) ein__kskinny_digits(g, &x, z->order[z->k.few], z->n[z->k.few], "i");
    ein__putf(&x, "%sx = %s;\n", ein__kskinny_take(g, 3), v);
    ein__putf(&body, "const float4 v = %s(w[%s]);\n", z->make, at);
    for (int lane = 0; lane < 4; lane++)
        ein__putf(&body, "acc[%s][%s] += v.%s * x.%s;\n", i, j, ein__klane[lane], ein__klane[lane]);
    ein__putf(&one, "float4 x = %s;\n", ein__kfill(g, ein__kliteral(g, 0).s));
    ein__kskinny_term(g, z, &one, k, x.s);
    ein__kskinny_loop(&one, "j", columns, body.s);
    ein__kskinny_loop(&rows, "i", z->few, one.s);
    ein__kskinny_loop(&z->terms, "u", z->cut.ahead, rows.s);
    ein__buf_free(&load);
    ein__buf_free(&loads);
    ein__buf_free(&x);
    ein__buf_free(&one);
    ein__buf_free(&body);
    ein__buf_free(&rows);
    return true;
}

// Whether four of the few lie side by side: the slot along which they do, or -1. Nothing else has
// been named yet.
static int ein__kskinny_fours(ein__kgen *g, const ein__kskinny *z, ein__ex few) {
    int n = z->n[z->k.few], slot = n ? z->order[z->k.few][n - 1] : -1, nindex = g->nindex;
    if (slot < 0 || g->slot[slot].n % 4) return -1;
    g->vec_slot = slot;
    bool vector = ein__kaccess_of(g, few, 0).vector;
    ein__kforget(g, 0);
    for (int level = 0; level < 4; level++) (void)ein__kskinny_take(g, level);
    g->nindex = nindex;
    return vector ? slot : -1;
}

// What a lane fetches of the few for its warp: of one term four of them at a time, or one.
static void ein__kskinny_share(ein__kgen *g, ein__kskinny *z, ein__ex few, int fours) {
    ein__buf one = {0}, all = {0};
    int vec = g->vec;
    if (fours < 0) g->vec = 1;
    g->vec_slot = fours;
    const char *x = fours < 0 ? ein__kskinny_lane(g, few, 0) : ein__kskinny_vector(g, few);
    ein__put(&all, ein__kskinny_take(g, 1));
    g->vec = 1;
    g->vec_slot = -1;
    if (z->few > 1) ein__kskinny_digits(g, &one, z->order[z->k.few], z->n[z->k.few], "i");
    ein__put(&one, ein__kskinny_take(g, 3));
    if (fours < 0) {
        ein__putf(&one, "own[s][%s] = %s;\n", z->few > 1 ? "i" : "0", x);
        ein__kskinny_loop(&all, "i", z->few, one.s);
    } else {
        ein__putf(&one, "const float4 four = %s;\n", x);
        for (int i = 0; i < 4; i++)
            ein__putf(&one, "own[s][i + %d] = four.%s;\n", i, ein__klane[i]);
        ein__putf(&all, "#pragma unroll\nfor (int i = 0; i < %lld; i += 4) {\n", (long long)z->few);
        ein__kindent(&all, one.s, 4);
        ein__put(&all, "}\n");
    }
    int terms = z->cut.ahead * 32 / z->cut.lanes;
    ein__kskinny_term(g, z, &z->terms,
                      ein__namef(g->ctx, "k0 + threadIdx.x / 32u * %du + t", terms), all.s);
    g->vec = vec;
    ein__buf_free(&one);
    ein__buf_free(&all);
}

// Threads along the lines: a vector of four lines, and of each of the few the term that they share.
static bool ein__kskinny_along_lines(ein__kgen *g, ein__kskinny *z, ein__ex many, ein__ex few) {
    ein_ctx *c = g->ctx;
    (void)ein__kparam(g, (ein__val){ein__ex_get(c, many)->val});  // the first parameter
    int fours = ein__kskinny_fours(g, z, few), vec = g->vec;
    g->vec_slot = z->k.slot;
    if (!ein__kaccess_of(g, many, 0).vector) return false;
    const char *words = ein__kskinny_words(g, z, many), *n = "n0 + lane * 4u";
    if (z->many % (4 * z->cut.lanes))
        n = ein__namef(c, "(%s < %s ? %s : %s)", n, ein__knumber(g, z->many), n,
                       ein__knumber(g, z->many - 4));
    ein__kskinny_digits(g, &z->position, z->order[z->k.many], z->n[z->k.many], n);
    const char *loads = ein__namef(c, "%sw[%s] = %s;\n", ein__kskinny_take(g, 1),
                                   z->cut.ahead > 1 ? "u" : "0", words);
    ein__kforget(g, 1);
    g->vec = 1;
    g->vec_slot = -1;
    ein__kskinny_stream(
        g, z,
        z->cut.ahead > 1 ? ein__namef(c, "k0 + first + u * %du", 32 / z->cut.lanes) : "k0 + first",
        loads);
    g->vec = vec;
    ein__kskinny_share(g, z, few, fours);
    return true;
}

// Position of output e of the block, the epilogue and the store.
static void ein__kskinny_store(ein__kgen *g, const ein__step *step, ein__kskinny *z) {
    int64_t lines = z->cut.columns * z->cut.lanes;
    g->vec = 1;
    g->vec_slot = -1;
    ein__kforget(g, 1);
    const char *width = ein__namef(g->ctx, "%lldu", (long long)lines);
    if (z->few > 1)
        ein__kskinny_digits(g, &z->result, z->order[z->k.few], z->n[z->k.few],
                            ein__namef(g->ctx, "e / %s", width));
    ein__putf(&z->result, z->few > 1 ? "const %s n = n0 + e %% %s;\n" : "const %s n = n0 + e;\n",
              ein__kunsigned(g), width);
    ein__kskinny_digits(g, &z->result, z->order[z->k.many], z->n[z->k.many], "n");
    ein__ktext value = {"v", EIN__NAMED, 0};
    if (z->k.p.alpha != 1) ein__putf(&z->store, "v *= %s;\n", ein__kliteral(g, z->k.p.alpha).s);
    g->inner[0].text[0] = "v";
    g->post = &z->store;
    if (step->nval > 1) {
        ein__ex body = ein__kbody(g, step->out);
        ein__kcount(g, body);
        value = ein__kvalue(g, body, 0);
    }
    ein__kstore(g, &z->store, step->out, &z->r.scan, &value);
    g->post = NULL;
}

// Whether the streamed factor is read before the kernel before is over: it is a weight, and nothing
// else is read for it.
static bool ein__kskinny_early(ein__kgen *g, const ein__kskinny *z) {
    ein__val many = {ein__ex_get(g->ctx, ein__ex_of(g->ctx, z->k.p.read[z->k.many]))->val};
    const char *place[] = {z->index.s, g->code[0].s, z->position.s};
    for (int i = 0; i < 3; i++)
        if (place[i] && strchr(place[i], '[')) return false;
    return ein__kconstant(g->ctx, many);
}

static void ein__kskinny_finish(ein__kgen *g, const ein__step *step, ein__kskinny *z,
                                int64_t blocks, const char *hint, ein__buf *out, ein__launch *l) {
    ein_ctx *c = g->ctx;
    const ein__skinny_cut *t = &z->cut;
    int lines = t->columns * t->lanes, terms = t->ahead * 32 / t->lanes,
        shared = t->block / t->lanes;
    bool guard = z->many % lines != 0;
    ein__buf index = {0};
    ein__putf(&index, "%s%s", z->index.s, g->code[0].s);
    ein__key keys[] = {
        {0},
        {0},
        {"block", ein__namef(c, "%d", t->block)},
        {"warps", ein__namef(c, "%d", t->block / 32)},
        {"rows", ein__namef(c, "%lld", (long long)z->few)},
        {"columns", ein__namef(c, "%d", t->columns)},
        {"lanes", ein__namef(c, "%du", t->lanes)},
        {"along", t->lanes > 1 ? "1" : ""},
        {"each", ein__namef(c, "%lld", (long long)(z->few * lines))},
        {"number", ein__kunsigned(g)},
        {"many", blocks > 1 ? "1" : ""},
        {"index", index.s},
        {"early", ein__kskinny_early(g, z) ? "1" : ""},
        {"count", ein__knumber(g, z->count)},
        {"turn", ein__namef(c, "%du", shared * t->ahead)},
        {"turns", t->turns > 1 ? "1" : ""},
        {"position", z->position.s ? z->position.s : ""},
        {"type", z->type},
        {"ahead", ein__namef(c, "%d", t->ahead)},
        {"loads", ein__namef(c, "%d", t->ahead * (z->k.terms ? t->columns : 1))},
        {"stream", z->stream.s},
        {"shares", ein__namef(c, "%d", (terms + 31) / 32)},
        {"taken", ein__namef(c, "%d", terms)},
        {"some", terms % 32 ? "1" : ""},
        {"held", ein__namef(c, "%d", t->held)},
        {"pitch", ein__namef(c, "%d", t->pitch)},
        {"groups", ein__namef(c, "%d", 32 / t->lanes)},
        {"value", ein__namef(c, *z->make ? "%s(w[u])" : "%sw[u]", z->make)},
        {"share", z->terms.s},
        {"terms", z->terms.s},
        {"sums", ein__namef(c, "%lld", (long long)(z->few * t->columns))},
        {"first", ein__namef(c, "%d", t->lanes)},
        {"one", ein__namef(c, "threadIdx.x %% 32u < %du", t->lanes)},
        {"output",
         t->lanes > 1 ? ein__namef(c, "e / 4 * %d + (int)lane * 4 + e %% 4", lines) : "e"},
        {"result", z->result.s},
        {"inside", guard ? ein__namef(c, "n >= %s", ein__knumber(g, z->many)) : ""},
        {"store", z->store.s}};
    ein__kfinish(g, step->out, hint, ein__tmpl_skinny, keys, (int)(sizeof keys / sizeof *keys), out,
                 l);
    ein__buf_free(&index);
}

// One attempt; false: not with these vectors or indices.
static bool ein__kskinny_put(ein__kgen *g, const ein__step *step, ein__kskinny *z, const char *hint,
                             ein__buf *out, ein__launch *l) {
    ein__ex many = ein__ex_of(g->ctx, z->k.p.read[z->k.many]),
            few = ein__ex_of(g->ctx, z->k.p.read[z->k.few]);
    int64_t blocks;
    g->ordered = true;
    ein__kskinny_slots(g, z);
    ein__kskinny_cut(g, z);
    ein__kskinny_index(g, z, &blocks);
    bool ok = z->k.terms ? ein__kskinny_along_terms(g, z, many, few)
                         : ein__kskinny_along_lines(g, z, many, few);
    if (!ok) return false;
    ein__kskinny_store(g, step, z);
    // A block's last lines may lie beyond the end.
    if (g->too_wide || (z->many > INT32_MAX - EIN__SKINNY_BLOCK && !g->wide)) return false;
    if (!g->overflow && ein__kgrid(g->ctx, l, blocks, z->cut.block))
        ein__kskinny_finish(g, step, z, blocks, hint, out, l);
    return true;
}

// One attempt at a reduction, as a skinny product where it is one; false: try again without vectors
// or with 64-bit indices.
static bool ein__kreduction(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                            ein__launch *l) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    int64_t stride[EIN__MAX_RANK];
    ein__kskinny z = {.many = 0};
    ein__dtype t = ein__kdtype(g, step->out);
    for (uint32_t i = 0; i < s->nt; i++) stride[i] = ein__kstride(g, step->out, (int)i);
    if (g->vec != 4 || t > EIN__BF16 || !ein__match_skinny(g->ctx, s, stride, &z.k))
        return ein__kwindow(g, step, hint, out, l);
    bool wide = g->wide;
    z.r = ein__kred_make(g, step, NULL);
    bool ok = ein__kskinny_put(g, step, &z, hint, out, l);
    ein__kskinny_free(&z);
    if (ok) return true;
    ein__krestart(g, step->val[0], wide, 4);
    return ein__kwindow(g, step, hint, out, l);
}
