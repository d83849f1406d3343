// The templates of an attention's kernels filled with the parts of its text (emit_attention.c).

enum { EIN__KATTENTION_TIMES = 2 };  // keys of the template that say who loads what of a part

// Which elements of a part the thread loads, written so that compilers see the distance from one to
// the next.
static void ein__kattention_times(ein__kgen *g, const ein__kload_text *l, int threads,
                                  const char *outer, const char *inner, const char *const *names,
                                  ein__key *k) {
    ein_ctx *c = g->ctx;
    ein__buf place = {0};
    long long wide = (long long)l->wide, pass = wide && threads % wide == 0 ? threads / wide : 0;
    const char *by = l->width > 1 ? ein__namef(c, " * %d", l->width) : "";
    if (pass)
        ein__putf(&place,
                  "const int %s = (int)threadIdx.x / %lld + %lld * i, %s = "
                  "(int)threadIdx.x %% %lld%s;\n",
                  outer, wide, pass, inner, wide, by);
    else
        ein__putf(&place, "const int e = (int)threadIdx.x + %d * i, %s = %s, %s = %s;\n", threads,
                  outer, l->outer, inner, l->inner);
    if (l->all % threads)
        ein__putf(&place, "if (%s >= %lld) continue;\n", pass ? outer : "e",
                  (long long)(pass ? l->rows : l->all));
    ein__key times[] = {{names[0], ein__namef(c, "%lld", (long long)ein__ceil(l->all, threads))},
                        {names[1], ein__name_n(c, place.s, place.n)}};
    memcpy(k, times, sizeof times);
    ein__buf_free(&place);
}

static const char *const ein__kkey_times[] = {"keySteps", "keyPlace"};
static const char *const ein__kvalue_times[] = {"valueSteps", "valuePlace"};

enum { EIN__KATTENTION_ALL = 28, EIN__KATTENTION_KEYS = EIN__KATTENTION_ALL + 6 };

// Keys that all templates have, in `k` from place 2 on. `step`: keys of a turn.
static void ein__kattention_all(ein__kgen *g, const ein__kattention_form *f,
                                const ein__kattention_text *x, const char *step, ein__key *k) {
    bool shared = f->t.parts > 1, late = ein__attention_is_late(&f->t);
    const char *next = ein__kattention_next(g, &f->t, step);
    const char *until = ein__namef(g->ctx, "u0 < %s", ein__kattention_until(g, &f->t));
    const char *parts = ein__namef(g->ctx, "%du", f->t.parts);
    const char *weight = f->t.math == EIN__MATH_FP32 ? "x" : "s[m][j][e]";
    const ein__key all[EIN__KATTENTION_ALL] = {
        {"parts", shared ? parts : ""},
        {"tile", shared ? ein__namef(g->ctx, "blockIdx.x / %s", parts) : "blockIdx.x"},
        {"shares", x->shares.s},
        {"first", shared ? "from"
                  : late ? "low"
                         : "0"},
        {"goes", late ? "togo > 0" : until},
        {"step", ein__namef(g->ctx, late ? "togo--, u0 = %s" : "u0 += %s", late ? next : step)},
        {"lines", ein__namef(g->ctx, "%lld", (long long)f->t.lines)},
        {"joined", x->joined},
        {"store", x->store.s},
        {"depth", ein__namef(g->ctx, "%lld", (long long)ein__up(f->t.depth, f->t.kc))},
        {"number", ein__kunsigned(g)},
        {"many", x->blocks > 1 ? "1" : ""},
        {"product", f->a.dot.i ? "1" : ""},
        {"index", x->index.s},
        {"queries", x->query.count},
        {"queryRow", x->query.outer},
        {"queryAt", x->query.inner},
        {"loadQuery", x->query.text.s},
        {"stop", x->stop},
        {"masked", x->masked.s},
        {"unit", ein__kattention_unit(g, f, "most")},
        {"loadKey", x->key.text.s},
        {"soft", f->a.soft ? "1" : ""},
        {"none", ein__kattention_none(f)},
        {"added", f->a.absolute ? ein__namef(g->ctx, "fabsf(%s)", weight) : weight},
        {"score", x->score.s},
        {"gate", x->gate.s},
        {"loadValue", x->value.text.s}};
    memcpy(k, all, sizeof all);
}

// Keys of the templates that have parts of keys and values in shared memory.
static void ein__kattention_keys(ein__kgen *g, const ein__kattention_form *f,
                                 const ein__kattention_text *x, const char *step, ein__key *k) {
    ein__kattention_all(g, f, x, step, k);
    k += EIN__KATTENTION_ALL;
    k[0] = (ein__key){"KC", ein__namef(g->ctx, "%d", f->t.kc)};
    bool top = f->a.soft && ein__ex_contains(g->ctx, f->a.result, f->a.top);
    bool sum = f->a.sum.i || f->t.parts > 1 || top;
    k[1] = (ein__key){"sum", sum ? "1" : ""};
    int threads = 32 * f->t.warps;
    bool tensor = f->t.math != EIN__MATH_FP32, keys = tensor && f->t.key_across,
         values = tensor && f->t.value_across;
    ein__kattention_times(g, &x->key, threads, keys ? "k" : "key", keys ? "key" : "k",
                          ein__kkey_times, k + 2);
    ein__kattention_times(g, &x->value, threads, values ? "col" : "key", values ? "key" : "col",
                          ein__kvalue_times, k + 2 + EIN__KATTENTION_TIMES);
}

// Without tensor cores a thread keeps its elements in registers while threads still read the part
// before: their type, and the statement that puts one where it belongs.
static void ein__kattention_own(ein__kgen *g, const ein__kload_text *l, const char *to,
                                const char *const *names, ein__key *k) {
    const char *put =
        l->width > 1 ? "*reinterpret_cast<float4 *>(&%s) = own[i];\n" : "%s = own[i];\n";
    k[0] = (ein__key){names[0], l->width > 1 ? "float4" : "float"};
    k[1] = (ein__key){names[1], ein__namef(g->ctx, put, to)};
}

static void ein__kattention_plain(ein__kgen *g, const ein__step *step, ein__kattention_form *f,
                                  const char *hint, ein__buf *out, ein__launch *l) {
    static const char *const to[] = {"query[row][k]", NULL, NULL},
                             *const key[] = {"keyType", "putKey"},
                             *const value[] = {"valueType", "putValue"};
    enum { OWN = 14, COUNT = 2 + EIN__KATTENTION_KEYS + OWN };
    ein_ctx *c = g->ctx;
    const ein__attention_tile *t = &f->t;
    ein__kattention_text x = {0};
    int64_t part = ein__most(t->keys * (t->kc + 4), (int64_t)t->kv * t->width);
    ein__kattention_parts(g, step, f, t->kv, to, &x);
    if (!g->too_wide && !g->overflow && ein__kgrid(c, l, x.blocks * t->parts, 32 * t->warps)) {
        ein__key k[COUNT] = {{0}};
        ein__key own[OWN] = {
            {"RM", ein__namef(c, "%d", t->rm)}, {"RN", ein__namef(c, "%d", t->rn)},
            {"RC", ein__namef(c, "%d", t->rc)}, {"VC", ein__namef(c, "%d", t->vc)},
            {"KV", ein__namef(c, "%d", t->kv)}, {"part", ein__namef(c, "%lld", (long long)part)}};
        const char *keys = x.beyond[0], *values = x.beyond[1];
        own[10] = (ein__key){"absent", keys};
        own[11] = (ein__key){"keysFrom", *keys ? "absent ? depth : 0" : "0"};
        own[12] = (ein__key){
            "valuesFrom",
            *values ? ein__namef(c, "%s ? 16 * RN : 0", strcmp(keys, values) ? values : "absent")
                    : "0"};
        own[13] = (ein__key){"partTop", f->a.soft ? "top[i]" : "0.f"};
        ein__kattention_own(g, &x.key, "part[key * (KC + 4) + k]", key, own + 6);
        ein__kattention_own(g, &x.value, "part[key * 16 * RC + col]", value, own + 8);
        ein__kattention_keys(g, f, &x, "16 * RN", k + 2);
        memcpy(k + 2 + EIN__KATTENTION_KEYS, own, sizeof own);
        ein__kfinish(g, step->out, hint, ein__tmpl_attention, k, COUNT, out, l);
    }
    ein__kattention_free(&x);
}

// Shared memory of a tensor cores' tile. What is more than every block has is asked for, and there
// is no smaller form of the kernel.
static const char *ein__kattention_storage(ein__kgen *g, const ein__attention_tile *t,
                                           ein__launch *l) {
    int64_t bytes = ein__up(ein__attention_shared(t), 16);
    const char *type = ein__namef(g->ctx, "shared_words<%lld>", (long long)(bytes / 16));
    l->whole = true;
    return ein__kstorage(g, type, "words", bytes > EIN__SHARED_FREE ? (int)bytes : 0, l);
}

static void ein__kattention_tensor(ein__kgen *g, const ein__step *step, ein__kattention_form *f,
                                   const char *hint, ein__buf *out, ein__launch *l) {
    enum { OWN = 35, COUNT = 2 + EIN__KATTENTION_KEYS + OWN };
    ein_ctx *c = g->ctx;
    const ein__attention_tile *t = &f->t;
    const char *const to[] = {
        "query[row * (depth + PAD) + k]",
        t->key_across ? "keys[k * ACROSS + key]" : "keys[key * (KC + PAD) + k]",
        t->value_across ? "values[col * ACROSS + key]" : "values[key * (cols + PAD) + col]"};
    ein__kattention_text x = {0};
    bool half = t->math == EIN__MATH_FP16, late = ein__attention_is_late(t);
    const char *turn = "KW * NK", *next = ein__kattention_next(g, t, turn);
    const char *ahead = ein__kattention_started(g, t, "load_values", "");
    ein__kneed(g, half ? EIN__NEED_ATTEND_HALF : EIN__NEED_ATTEND_TF32);
    if (half) ein__kneed(g, EIN__NEED_HALF);
    if (t->value_across) ein__kneed(g, EIN__NEED_ATTEND_ACROSS);
    ein__kattention_parts(g, step, f, t->keys, to, &x);
    if (!g->too_wide && !g->overflow && ein__kgrid(c, l, x.blocks * t->parts, 32 * t->warps)) {
        ein__key k[COUNT] = {{0}};
        int64_t part = ein__ceil(t->part, 16), key_part = ein__ceil(t->key_part, 16);
        const char *zero = x.beyond[1];
        if (*zero && !strcmp(zero, x.beyond[0])) zero = "zeroKeys";
        const char *turns[3];
        for (int i = 1; i < 3; i++)
            turns[i] = ein__namef(c, "%d", ein__attention_loaded(ein__gpu_of(c), t, i));
        bool weighs = f->a.soft || f->a.sum.i || t->parts > 1;
        ein__key own[OWN] = {
            {"T", half ? "__half" : "float"},
            {"W", ein__namef(c, "%d", t->warps)},
            {"RW", ein__namef(c, "%d", t->rw)},
            {"RM", ein__namef(c, "%d", t->rm)},
            {"NK", ein__namef(c, "%d", t->nk)},
            {"cols", ein__namef(c, "%d", t->width)},
            {"deep", t->depth > t->kc ? "1" : ""},
            {"keyPart", ein__namef(c, "%lld", (long long)key_part)},
            {"room", ein__namef(c, "%lld", (long long)part)},
            {"storage", ein__kattention_storage(g, t, l)},
            {"split", t->rw < t->warps ? "1" : ""},
            {"others", t->parts > 1 ? "(warp % KW > 0 ? 0 : KW - 1)" : "KW - 1"},
            {"begin", ein__kattention_started(g, t, "load_keys", ", 0")},
            {"ahead", x.value.copy && !*x.stop ? ahead : ""},
            {"follows",
             late ? "togo > 1" : ein__namef(c, "%s < %s", next, ein__kattention_until(g, t))},
            {"next", next},
            {"both", x.both ? "1" : ""},
            {"weighs", weighs ? "1" : ""},
            {"partTop", f->a.soft ? "top[m][i]" : "0.f"},
            {"across", t->key_across || t->value_across ? "1" : ""},
            {"keyAcross", t->key_across ? "1" : ""},
            {"valueAcross", t->value_across ? "1" : ""},
            {"keyAt", to[1]},
            {"valueAt", to[2]},
            {"keyWords", x.key.copy && !half ? "1" : ""},
            {"valueWords", x.value.copy && !half ? "1" : ""},
            {"slack", ein__attention_is_quotient(c, &f->a) ? "8.f" : "0.f"},
            {"pairs", f->pairs ? "1" : ""},
            {"resident", ein__namef(c, "%d", ein__attention_resident(ein__gpu_of(c), t))},
            {"keyTurns", x.key.copy ? "16" : turns[1]},
            {"valueTurns", x.value.copy ? "16" : turns[2]},
            {"ends", x.ends ? x.ends : ""},
            {"absent", x.absent.s},
            {"zeroKeys", x.beyond[0]},
            {"zeroValues", zero}};
        ein__kattention_keys(g, f, &x, turn, k + 2);
        memcpy(k + 2 + EIN__KATTENTION_KEYS, own, sizeof own);
        ein__kfinish(g, step->out, hint, ein__tmpl_attention_mma, k, COUNT, out, l);
    }
    ein__kattention_free(&x);
}

static const char *ein__kattention_type(int width) {
    return width == 8 ? "uint4" : width == 4 ? "float4" : "float";
}

static void ein__kattention_few(ein__kgen *g, const ein__step *step, ein__kattention_form *f,
                                const char *hint, ein__buf *out, ein__launch *l) {
    static const char *const to[] = {"query[row][k]", "keys[i]", "values[i]"};
    enum { OWN = 11, COUNT = 2 + EIN__KATTENTION_ALL + OWN };
    ein_ctx *c = g->ctx;
    const ein__attention_tile *t = &f->t;
    ein__kattention_text x = {0};
    ein__kattention_parts(g, step, f, t->keys, to, &x);
    ein__kneed(g, EIN__NEED_KEYS_FEW);
    if (t->kw == 8 || t->vw == 8) ein__kneed(g, EIN__NEED_KEYS_HALF);
    if (!g->too_wide && !g->overflow &&
        ein__kgrid(c, l, x.blocks * t->parts, EIN__ATTENTION_THREADS)) {
        ein__key k[COUNT] = {{0}};
        ein__key own[OWN] = {
            {"ROWS", ein__namef(c, "%d", t->rows)},   {"L", ein__namef(c, "%d", t->lanes)},
            {"J", ein__namef(c, "%d", t->ahead)},     {"KE", ein__namef(c, "%d", t->ke)},
            {"KW", ein__namef(c, "%d", t->kw)},       {"VE", ein__namef(c, "%d", t->ve)},
            {"VW", ein__namef(c, "%d", t->vw)},       {"cols", ein__namef(c, "%d", t->width)},
            {"keyType", ein__kattention_type(t->kw)}, {"valueType", ein__kattention_type(t->vw)},
            {"start", f->a.soft ? "NO_KEY" : "0.f"}};
        ein__kattention_all(g, f, &x, "GROUPS * J", k + 2);
        memcpy(k + 2 + EIN__KATTENTION_ALL, own, sizeof own);
        ein__kfinish(g, step->out, hint, ein__tmpl_attention_few, k, COUNT, out, l);
    }
    ein__kattention_free(&x);
}

// One attempt; false: try again with 64-bit indices.
static bool ein__kattention(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                            ein__launch *l) {
    ein__kattention_form f = {.scan = ein__kscan_make(g)};
    bool ok = ein__kattention_make(g, step, &f);
    if (!ok) g->overflow = true;
    else if (f.t.lanes) ein__kattention_few(g, step, &f, hint, out, l);
    else if (f.t.math == EIN__MATH_FP32) ein__kattention_plain(g, step, &f, hint, out, l);
    else ein__kattention_tensor(g, step, &f, hint, out, l);
    ein__kscan_free(&f.scan);
    return ok && !g->too_wide;
}
