// The sections of the emitted files. Names come from the model's tensors and from content; offsets
// and sizes stand in one block, so that a new memory plan changes one place.

// ------------------------------------------------------------------------------------ sizes

EIN__FN void ein__emit_interface(ein_ctx *ctx, ein__buf *out) {
    int64_t blob;
    ein__blob_offset(ctx, -1, &blob);
    ein__key keys[] = {{"model", ein__symbol(ctx)},
                       {"MODEL", ein__symbol_upper(ctx)},
                       {"arena", ein__namef(ctx, "%lldull", (long long)ctx->plan.arena_bytes)},
                       {"weights", ein__namef(ctx, "%lldull", (long long)blob)}};
    ein__tmpl_put(out, ein__tmpl_interface, keys, EIN__COUNT(keys));
}

static void ein__put_section(ein__buf *out, const char *title) {
    ein__putf(out, "\n// ---- %s ", title);
    for (size_t n = strlen(title) + 9; n < 100; n++) ein__put(out, "-");
    ein__put(out, "\n");
}

static const char *ein__branch_suffix(ein_ctx *ctx, int b) {
    return b ? ein__namef(ctx, "_%d", b) : "";
}

// Offsets of the workspaces, by branch. One without calls has that of another: a plain run makes
// all calls as the first branch.
static const char *ein__workspace_list(ein_ctx *ctx) {
    const ein__plan *p = &ctx->plan;
    const char *s = "";
    int64_t any = 0;
    for (int b = p->branches - 1; b >= 0; b--)
        if (p->workspace_at[b] >= 0) any = p->workspace_at[b];
    for (int b = 0; b < p->branches; b++)
        s = ein__namef(ctx, "%s%s%lld", s, b ? ", " : "",
                       (long long)(p->workspace_at[b] < 0 ? any : p->workspace_at[b]));
    return s;
}

// What the lines of ein__put_places name, each behind what names it.
static void ein__put_spaces(ein__buf *out, const char *lines) {
    static const struct {
        const char *name, *line;
    } of[] = {
        {" IN(", "#define IN(type, k) ((const type *)in[k])\n"},
        {" OUT(", "#define OUT(type, k) ((type *)out[k])\n"},
        {" ARENA(", "#define ARENA(at) ARENA_OF(float, at)\n"},
        {" CONST(", "#define CONST(at) CONST_OF(float, at)\n"},
        {" INIT(", "#define INIT(at) INIT_OF(float, at)\n"},
        {" ARENA_OF(", "#define ARENA_OF(type, at) ((type *)(m->arena + at))\n"},
        {" CONST_OF(", "#define CONST_OF(type, at) ((type *)(m->constants + at))\n"},
        {" INIT_OF(", "#define INIT_OF(type, at) ((type *)(m->init + at))\n"},
    };
    size_t start = out->n;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strstr(lines, of[i].name) || (out->s && strstr(out->s + start, of[i].name)))
            ein__put(out, of[i].line);
}

// Whether a step of branch `b` names its workspace: cuBLAS is told of it once a run.
static bool ein__names_workspace(const ein_ctx *ctx, int b) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        bool conv = s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA;
        if (s->branch == b && (conv || ein__is_lt(s) || s->counters)) return true;
    }
    return false;
}

// One line a buffer: where it is in the caller's lists, the arena or the constants.
static void ein__put_places(ein__emitter *z, ein__buf *out) {
    static const char *const where[] = {"IN", "OUT", "CONST", "CONST", "INIT", "ARENA"};
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const ein__buffer *b = &ctx->plan.buffer[i];
        bool listed = b->kind == EIN__B_INPUT || b->kind == EIN__B_OUTPUT;
        if (!listed && b->first < 0) continue;
        ein__putf(out, "#define %s %s", z->buffer[i], where[b->kind]);
        if (listed) ein__putf(out, "(%s, %d)\n", ein__kctype(b->dtype), b->index);
        else if (b->dtype == EIN__F32) ein__putf(out, "(%lld)\n", (long long)b->at);
        else ein__putf(out, "_OF(%s, %lld)\n", ein__kctype(b->dtype), (long long)b->at);
    }
    for (int b = 0; b < ctx->plan.branches; b++) {
        if (!ein__names_workspace(ctx, b)) continue;
        ein__putf(out, "#define v_workspace%s ARENA_OF(char, %lld)\n", ein__branch_suffix(ctx, b),
                  (long long)ctx->plan.workspace_at[b]);
    }
    if (z->const_bytes) ein__putf(out, "#define CONST_BYTES %lldull\n", (long long)z->const_bytes);
    if (ctx->plan.init_bytes)
        ein__putf(out, "#define INIT_BYTES %lldull\n", (long long)ctx->plan.init_bytes);
    if (z->gemms || z->convs || z->matmuls)
        ein__putf(out, "#define WORKSPACE_BYTES %lld\n", (long long)ctx->plan.workspace_bytes);
    if (z->gemms) ein__putf(out, "#define WORKSPACE_AT {%s}\n", ein__workspace_list(ctx));
    if (z->zeros)
        ein__putf(out, "#define v_zeros CONST_OF(const float, %lld)\n",
                  (long long)ctx->plan.const_bytes);
    if (z->counters)
        ein__putf(out, "#define v_arrived CONST_OF(unsigned, %lld)\n",
                  (long long)(ctx->plan.const_bytes + z->zeros_bytes));
}

static void ein__put_pointers(ein__emitter *z, ein__buf *out) {
    ein__buf lines = {0};
    ein__put(&lines, "");
    ein__put_places(z, &lines);
    ein__put_spaces(out, lines.s);
    ein__put(out, lines.s);
    ein__buf_free(&lines);
}

// The array of pointers that the weights are uploaded to, in their order, or nothing.
static const char *ein__upload_list(const ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t n = arrlen(ctx->graph.weight);
    const char **to = EIN__NEW(&ctx->arena, const char *, (size_t)n + 1), *text = "";
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const ein__buffer *b = &ctx->plan.buffer[i];
        bool raw = b->kind == EIN__B_WEIGHT || (b->kind == EIN__B_INIT && b->index >= 0);
        if (raw && b->first >= 0) to[b->index] = z->buffer[i];
        any |= raw && b->first >= 0;
    }
    ein__buf list = {0};
    ein__put(&list, "// Where each weight goes; NULL: nothing reads it.\nvoid *const to[] = {\n");
    for (ptrdiff_t i = 0; i < n; i++) ein__putf(&list, "    %s,\n", to[i] ? to[i] : "NULL");
    ein__put(&list, "};\n");
    if (any) text = ein__name(ctx, list.s);
    ein__buf_free(&list);
    return text;
}

// Whether two names are one as identifiers: they differ in points and underscores alone.
static bool ein__names_meet(const char *a, const char *b) {
    bool differ = false;
    for (; *a && *b; a++, b++) {
        if ((*a == '.' ? '_' : *a) != (*b == '.' ? '_' : *b)) return false;
        differ |= *a != *b;
    }
    return differ && *a == *b;
}

// The step's name as part of an identifier of its own: of names that meet, the first one in the
// alphabet is as it is; of steps of one name, as halves of a sum have, the first one.
static const char *ein__call_name(ein_ctx *ctx, const ein__step *s) {
    const ein__step *const list[] = {ctx->plan.step, ctx->plan.init};
    const char *plain = ein__plain_name(ctx, s->name);
    bool first = true;
    int same = 0;
    for (int k = 0; k < 2; k++)
        for (ptrdiff_t i = 0; i < arrlen(list[k]); i++) {
            const ein__step *other = &list[k][i];
            first &= !ein__names_meet(other->name, s->name) || strcmp(other->name, s->name) > 0;
            same += !strcmp(other->name, s->name) && other->out.i < s->out.i;
        }
    if (first && !same) return plain;
    uint64_t h = ein__fnv(EIN__FNV_START, s->name, strlen(s->name));
    if (same) h = ein__mix(h, (uint64_t)same);
    return ein__namef(ctx, "%s_%08x", plain, (unsigned)(h ^ h >> 32));
}

// The program's convolutions.
static ein__conv_text ein__conv_text_of(const ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    return (ein__conv_text){.model = ein__symbol(ctx),
                            .limit = "WORKSPACE_BYTES",
                            .spatial = z->spatial,
                            .settings = z->settings,
                            .typed = ein__is_typed(ctx),
                            .tf32 = ctx->desc.math == EIN_MATH_TF32,
                            .nhwc = z->nhwc,
                            .pins = z->pins,
                            .engines = z->engines,
                            .transposed = z->transposed};
}

static const char *ein__conv_pin_text(const ein__emitter *z, const ein__step *s) {
    bool engine = ein__is_engine(s->algorithm);
    ein__buf text = {0};
    if (!z->pins) return "";
    ein__putf(&text, ", %lld, %s", s->algorithm ? (long long)s->version : 0ll,
              engine         ? "-1"
              : s->algorithm ? s->algorithm
                             : "0");
    if (z->engines) ein__put_engine(&text, &s->conv, s->algorithm);
    const char *pin = ein__name(z->ctx, text.s);
    ein__buf_free(&text);
    return pin;
}

static void ein__put_conv_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const ein__conv_text form = ein__conv_text_of(z);
    ein__put(out, "\nstatic const conv_size conv_sizes[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA)
            ein__put_conv_size(out, &form, s->name, &s->conv, s->kind == EIN__K_CONV_DATA,
                               ein__conv_pin_text(z, s));
    }
    ein__put(out, "};\nenum {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA)
            ein__putf(out, "    CONV_%s,\n", ein__call_name(ctx, s));
    }
    ein__put(out, "};\n");
}

static void ein__put_gemm_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    bool first = true;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        const ein__gemm *g = &s->gemm;
        if (s->kind != EIN__K_GEMM || ein__is_lt(s) || s->npeer) continue;
        ein__buf line = {0};
        if (first) ein__put(out, "\n");
        first = false;
        ein__putf(&line, "static const gemm_size gemm_%s = {", ein__call_name(ctx, s));
        ein__put_gemm_size(&line, s->name, g, ein__is_typed(ctx));
        ein__put(&line, "};");
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
    }
}

static void ein__put_matmul_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    ein__put(out, "\nstatic const matmul_size matmul_sizes[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (ein__is_lt(s)) ein__put_matmul_size(out, s, ein__is_typed(ctx), z->pins);
    }
    ein__put(out, "};\nenum {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (ein__is_lt(s)) ein__putf(out, "    MATMUL_%s,\n", ein__call_name(ctx, s));
    }
    ein__put(out, "};\n");
}

// ------------------------------------------------------------------------------------ steps

static void ein__put_pointer(ein__emitter *z, ein__buf *out, ein__val v, int64_t extra) {
    const ein__layout *l = &z->ctx->plan.layout[v.i];
    int64_t offset = l->offset + extra;
    const ein__buffer *b = &z->ctx->plan.buffer[l->buffer];
    z->in |= b->kind == EIN__B_INPUT;
    z->out |= b->kind == EIN__B_OUTPUT;
    ein__put(out, z->buffer[l->buffer]);
    if (offset) ein__putf(out, " + %lld", (long long)offset);
}

static void ein__put_dims(ein__buf *out, const unsigned *d) {
    if (d[2] > 1) ein__putf(out, "dim3(%u, %u, %u)", d[0], d[1], d[2]);
    else if (d[1] > 1) ein__putf(out, "dim3(%u, %u)", d[0], d[1]);
    else ein__putf(out, "%u", d[0]);
}

static void ein__put_gemm_call(ein__emitter *z, ein__buf *out, const ein__step *s,
                               const char *name) {
    const ein__gemm *g = &s->gemm;
    bool lt = ein__is_lt(s);
    ein__putf(out, lt ? "    CALL(matmul_run(m, MATMUL_%s, " : "    CALL(gemm_run(m, &gemm_%s, ",
              name);
    ein__put_pointer(z, out, s->gemm.a, s->gemm.oa);
    ein__put(out, ", ");
    ein__put_pointer(z, out, s->gemm.b, s->gemm.ob);
    ein__put(out, ", ");
    if (g->bias.i) ein__put_pointer(z, out, g->bias, g->obias);
    else if (lt) ein__put(out, "NULL");
    if (lt) ein__put(out, ", ");
    if (g->z.i) ein__put_pointer(z, out, g->z, 0);
    else if (lt) ein__put(out, "NULL");
    if (lt) ein__put(out, ", ");
    ein__put_pointer(z, out, s->out, 0);
    if (lt) ein__putf(out, ", v_workspace%s", ein__branch_suffix(z->ctx, s->branch));
    ein__put(out, "));");
}

static void ein__put_conv_call(ein__emitter *z, ein__buf *out, const ein__step *s,
                               const char *name) {
    const ein__conv *c = &s->conv;
    ein__putf(out, "    CALL(conv_run(m, CONV_%s, ", name);
    ein__put_pointer(z, out, c->x, 0);
    ein__put(out, ", ");
    ein__put_pointer(z, out, c->w, 0);
    ein__put(out, ", ");
    if (c->bias.i) ein__put_pointer(z, out, c->bias, 0);
    else ein__put(out, c->z.i || c->relu ? "v_zeros" : "NULL");
    ein__put(out, ", ");
    if (c->z.i) ein__put_pointer(z, out, c->z, 0);
    else ein__put(out, "NULL");
    ein__put(out, ", ");
    ein__put_pointer(z, out, s->out, 0);
    ein__putf(out, ", v_workspace%s));", ein__branch_suffix(z->ctx, s->branch));
}

// Says so when a result lies in memory in another order than its dimensions have.
static void ein__put_order(ein_ctx *ctx, ein__buf *out, ein__val v) {
    const ein__shape *s = &ctx->value[v.i].shape;
    int order[EIN__MAX_RANK];
    if (!ein__stored_order(s, ctx->plan.layout[v.i].stride, order)) return;
    ein__put(out, "    // ");
    ein__put_comment(out, ctx->value[v.i].name, strlen(ctx->value[v.i].name));
    ein__put(out, " stored as [");
    for (int k = 0; k < s->rank; k++) ein__putf(out, "%si%d", k ? "," : "", order[k]);
    ein__put(out, "]\n");
}

// What the step waits for on other branches; which stream the libraries work on.
static void ein__put_waits(ein__emitter *z, ein__buf *out, const ein__step *s) {
    const ein__plan *p = &z->ctx->plan;
    bool first = s->branch && s->known[s->branch] < 0;
    if (first && !s->nwait) ein__putf(out, "    CALL(await_event(m, %d, 0));\n", s->branch);
    for (int k = 0; k < s->nwait; k++)
        ein__putf(out, "    CALL(await_event(m, %d, %d));  // %s\n", s->branch,
                  p->step[s->wait[k]].event, ein__call_name(z->ctx, &p->step[s->wait[k]]));
    if (p->branches == 1 || !ein__is_library(s) || z->calls_on == s->branch) return;
    z->calls_on = s->branch;
    ein__putf(out, "    CALL(calls_on(m, %d));\n", s->branch);
}

static void ein__put_record(ein__buf *out, const ein__step *s) {
    if (s->event) ein__putf(out, "    CALL(record_event(m, %d, %d));\n", s->branch, s->event);
}

// A launch of our own.
static void ein__put_launch(ein__emitter *z, ein__buf *to, const ein__step *s, const ein__launch *l,
                            const char *place) {
    ein__buf line = {0}, *out = &line;
    ein__putf(out, "    CALL(launch(m, %s, %s, ", place, l->name);
    ein__put_string(out, s->name);
    ein__put(out, ", ");
    ein__put_dims(out, l->grid);
    ein__put(out, ", ");
    ein__put_dims(out, l->block);
    if (l->smem) ein__putf(out, ", %d", l->smem);
    if (s->branch) ein__putf(out, ", m->on[%d]", s->branch);
    else ein__put(out, ", stream");
    if (l->extra) ein__putf(out, ", %s", l->extra);
    for (int i = 0; i < l->narg; i++) {
        ein__put(out, ", ");
        ein__put_pointer(z, out, l->arg[i], 0);
    }
    if (l->shared)
        ein__putf(out, ", (float4 *)v_workspace%s, v_arrived + %lld",
                  ein__branch_suffix(z->ctx, s->branch), (long long)s->counter);
    ein__put(out, "));");
    ein__tmpl_line(to, line.s, line.n);
    ein__buf_free(&line);
}

// Equations with numbers for the names of tensors, which stand in front of [ or behind `pad`, in
// the order of their appearance: alike for steps that differ in names alone.
static const char *ein__equation_form(ein_ctx *ctx, const char *s) {
    ein__buf form = {0};
    const char **names = NULL;
    for (bool pad = false; *s;) {
        size_t n = 0;
        while (ein__tmpl_word(s[n]) || s[n] == '_' || s[n] == '.') n++;
        if (s[n] == '[' || (n && pad)) {
            const char *name = ein__name_n(ctx, s, n);
            ptrdiff_t k = 0;
            while (k < arrlen(names) && names[k] != name) k++;
            if (k == arrlen(names)) arrput(names, name);
            ein__putf(&form, "#%d", (int)k);
        } else if (n) {
            ein__put_n(&form, s, n);
        } else {
            ein__put_n(&form, *s == '\n' ? " " : s, 1);
        }
        if (n) pad = n == 3 && !memcmp(s, "pad", 3);
        s += n ? n : 1;
    }
    const char *text = ein__name(ctx, form.s);
    ein__buf_free(&form);
    arrfree(names);
    return text;
}

// What a step computes, above it; of steps that differ in names alone once.
static void ein__put_step_algebra(ein__emitter *z, ein__buf *out, const ein__step *s) {
    ein_ctx *ctx = z->ctx;
    ein__buf text = {0}, all = {0};
    for (int k = 0; k < s->nval; k++) {
        const char *why = ctx->value[s->val[k].i].why;
        ein__put_algebra(z, &text, s->val[k], "    ");
        ein__putf(&all, "%s: ", why ? why : "");
        ein__print_brief(ctx, s->val[k], &all);
    }
    ein__said said = {ein__equation_form(ctx, all.s), s->name};
    ptrdiff_t k = 0;
    while (k < arrlen(z->said) && z->said[k].form != said.form) k++;
    if (k < arrlen(z->said)) {
        ein__put(out, "    // as ");
        ein__put_comment(out, z->said[k].name, strlen(z->said[k].name));
        ein__put(out, "\n");
    } else {
        arrput(z->said, said);
        ein__put_n(out, text.s, text.n);
    }
    ein__buf_free(&text);
    ein__buf_free(&all);
}

static void ein__put_step(ein__emitter *z, ein__buf *out, const ein__step *s, const ein__launch *l,
                          const char *place) {
    ein_ctx *ctx = z->ctx;
    const char *name = ein__call_name(ctx, s);
    if (ein__is_library(s) || l->extra) ein__put_step_algebra(z, out, s);
    ein__put_order(ctx, out, s->out);
    for (int i = 0; i < s->npeer; i++) {
        if (ein__is_library(s)) ein__put_algebra(z, out, s->peer[i].val[0], "    ");
        ein__put_order(ctx, out, s->peer[i].out);
    }
    ein__put_waits(z, out, s);
    if (ein__is_library(s)) {
        ein__buf call = {0};
        if (s->npeer) ein__putf(&call, "    CALL(grouped_run(m, &group_sizes[GROUP_%s]));", name);
        else if (s->kind == EIN__K_GEMM) ein__put_gemm_call(z, &call, s, name);
        else ein__put_conv_call(z, &call, s, name);
        ein__tmpl_line(out, call.s, call.n);
        ein__buf_free(&call);
        ein__put_record(out, s);
        return;
    }
    ein__put_launch(z, out, s, l, place);
    ein__put_record(out, s);
}

enum { EIN__STEPS_LEAST = 20, EIN__STEPS_MOST = 40 };  // of a function that others follow

// Where the function of the steps from `from` on ends: a name decides it, so that a step more or
// less in front of it moves one function's end and no more.
static ptrdiff_t ein__steps_end(const ein__step *steps, ptrdiff_t from, ptrdiff_t n) {
    ptrdiff_t end = n;
    uint64_t least = UINT64_MAX;
    for (ptrdiff_t i = from + EIN__STEPS_LEAST; n - from > EIN__STEPS_MOST; i++) {
        if (i > from + EIN__STEPS_MOST) break;
        uint64_t h = ein__fnv(EIN__FNV_START, steps[i].name, strlen(steps[i].name));
        if (h >= least) continue;
        least = h;
        end = i;
    }
    return end;
}

enum { EIN__ROUNDING_BLOCKS = 1024 };  // of 256 threads, at most

// What create rounds of the weights, where a product of the run wants that. Gives whether there are
// such.
static bool ein__put_rounding(ein__emitter *z, ein__buf *out) {
    const ein__plan *plan = &z->ctx->plan;
    bool any = false;
    for (ptrdiff_t b = 0; b < arrlen(plan->buffer); b++) {
        int64_t n = plan->buffer[b].bytes / 4;
        bool wanted = false;
        for (ptrdiff_t i = 0; i < arrlen(z->run); i++)
            wanted |= z->run[i].rounded.i && plan->layout[z->run[i].rounded.i].buffer == b;
        // What shares memory with something else is multiplied as it is, but for its last bits.
        if (!wanted || !plan->buffer[b].rounded) continue;
        ein__buf line = {0};
        if (!any) ein__put(out, "    // As products of warpgroups read them.\n");
        any = true;
        ein__put(&line, "    CALL(launch(m, ALONE, round_weights, ");
        ein__put_string(&line, plan->buffer[b].name);
        ein__putf(&line, ", %lld, 256, stream, %s, %lldull));",
                  (long long)ein__least(ein__ceil(n, 256), EIN__ROUNDING_BLOCKS), z->buffer[b],
                  (long long)n);
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
    }
    return any;
}

// Steps from..to - 1 as function `name`.
// False: create has nothing to do there, and no function is put.
static bool ein__put_steps_function(ein__emitter *z, ein__buf *out, const char *name, bool init,
                                    ptrdiff_t from, ptrdiff_t to) {
    ein_ctx *ctx = z->ctx;
    const ein__step *steps = init ? ctx->plan.init : ctx->plan.step;
    const ein__launch *launches = init ? z->init : z->run;
    const char *list = init ? "" : "const void *const *in, void *const *out, ";
    ein__buf body = {0}, head = {0};
    bool stream = false;
    z->in = z->out = false;
    ein__put(&body, "");
    for (ptrdiff_t i = from; i < to; i++) {
        ein__put_step(z, &body, &steps[i], &launches[i], init ? "ALONE" : ein__chain_place(z, i));
        stream |= launches[i].name && !steps[i].branch;
    }
    if (init && to == arrlen(steps)) stream |= ein__put_rounding(z, &body);
    for (int b = 1; b < ctx->plan.branches && !init && to == arrlen(steps); b++)
        if (ctx->plan.join[b] >= 0)
            ein__putf(&body, "    CALL(await_event(m, 0, %d));  // branch %d\n",
                      steps[ctx->plan.join[b]].event, b);
    bool any = !init || body.n;
    if (any) {
        ein__putf(&head, "static int %s(%s *m, %scudaStream_t stream) {", name, ein__symbol(ctx),
                  list);
        ein__tmpl_line(out, head.s, head.n);
        if (!body.n) ein__put(out, "    (void)m;\n");
        if (!init && !z->in) ein__put(out, "    (void)in;\n");
        if (!init && !z->out) ein__put(out, "    (void)out;\n");
        if (!stream) ein__put(out, "    (void)stream;\n");
        ein__put_n(out, body.s, body.n);
        ein__put(out, "    return 0;\n}\n\n");
    }
    ein__buf_free(&body);
    ein__buf_free(&head);
    return any;
}

// The steps as functions of bounded length, and one that calls them in order.
static bool ein__put_steps(ein__emitter *z, ein__buf *out, bool init) {
    ein_ctx *ctx = z->ctx;
    const ein__step *steps = init ? ctx->plan.init : ctx->plan.step;
    const char *whole = init ? "prepare_weights" : "steps";
    const char *args = init ? "stream" : "in, out, stream";
    ptrdiff_t n = arrlen(steps), from = 0, to = ein__steps_end(steps, 0, n);
    ein__buf calls = {0};
    arrsetlen(z->said, 0);
    if (to == n) return ein__put_steps_function(z, out, whole, init, 0, n);
    for (; from < n; from = to) {
        to = ein__steps_end(steps, from, n);
        const char *name = ein__namef(ctx, "%s_from_%s", whole, ein__call_name(ctx, &steps[from]));
        ein__put_steps_function(z, out, name, init, from, to);
        ein__putf(&calls, "    CALL(%s(m, %s));\n", name, args);
    }
    ein__putf(out, "static int %s(%s *m, %scudaStream_t stream) {\n%s    return 0;\n}\n\n", whole,
              ein__symbol(ctx), init ? "" : "const void *const *in, void *const *out, ", calls.s);
    ein__buf_free(&calls);
    return true;
}

static void ein__put_info_list(ein_ctx *ctx, ein__buf *out, const char *title, const int *list,
                               const ein__output *named) {
    ptrdiff_t n = named ? arrlen(named) : arrlen(list);
    if (!n) return;
    ein__putf(out, "static const %s_tensor %s[] = {\n", ein__symbol(ctx), title);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ein__tensor *t = &ctx->graph.tensor[named ? named[i].tensor : list[i]];
        bool weight = list == ctx->graph.weight;
        int64_t total;
        ein__put(out, "    {");
        ein__put_string(out, named ? named[i].name : t->name);
        ein__putf(out, ", \"%s\", %d, {", ein__dtype_name(t->dtype), t->shape.rank);
        for (int k = 0; k < t->shape.rank; k++)
            ein__putf(out, "%s%lld", k ? ", " : "", (long long)t->shape.d[k]);
        if (!t->shape.rank) ein__put(out, "0");
        ein__putf(out, "}, %lld, %lld},\n",
                  (long long)(ein__elements(&t->shape) * ein__dtype_size(t->dtype)),
                  weight ? (long long)ein__blob_offset(ctx, (int)i, &total) : 0ll);
    }
    ein__put(out, "};\n");
}

static void ein__put_info(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *symbol = ein__symbol(ctx), *upper = ein__symbol_upper(ctx);
    bool in = arrlen(ctx->graph.input) > 0, w = arrlen(ctx->graph.weight) > 0;
    ein__put_info_list(ctx, out, "info_inputs", ctx->graph.input, NULL);
    ein__put_info_list(ctx, out, "info_outputs", NULL, ctx->graph.output);
    ein__put_info_list(ctx, out, "info_weights", ctx->graph.weight, NULL);
    ein__putf(out, "static const %s_info info = {\n    ", symbol);
    ein__put_string(out, ctx->graph.model);
    ein__putf(out,
              ", %d, %d, %d, %s, info_outputs, %s,\n    %s_ARENA_BYTES, %s_WEIGHT_BYTES,\n    "
              "%lldull, %lldull, 0x%016llxull};\n\n",
              (int)arrlen(ctx->graph.input), (int)arrlen(ctx->graph.output),
              (int)arrlen(ctx->graph.weight), in ? "info_inputs" : "NULL",
              w ? "info_weights" : "NULL", upper, upper, (long long)z->const_bytes,
              (long long)(ctx->plan.arena_bytes + z->const_bytes + ctx->plan.init_bytes),
              (unsigned long long)ein__manifest(ctx));
    ein__putf(out, "const %s_info *%s_describe(void) { return &info; }\n", symbol, symbol);
}
