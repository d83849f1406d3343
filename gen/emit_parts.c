// The sections of the emitted files. Names come from the model's tensors and from content; offsets
// and sizes stand in one block, so that a new memory plan changes one place.

// ------------------------------------------------------------------------------------ names

// Names that a C, C++ or CUDA source cannot use for a type of its own.
static bool ein__is_taken(const char *name) {
    static const char words[] =
        " alignas alignof and asm auto bool break case catch char class const constexpr const_cast"
        " continue decltype default delete do double dynamic_cast else enum explicit export extern "
        "false"
        " float for friend goto if inline int long mutable namespace new noexcept not nullptr "
        "operator or"
        " private protected public register reinterpret_cast return restrict short signed sizeof "
        "static"
        " static_assert static_cast struct switch template this thread_local throw true try "
        "typedef typeid"
        " typename union unsigned using virtual void volatile wchar_t while xor main half half2"
        " nv_bfloat16 nv_bfloat162 dim3 threadIdx blockIdx blockDim gridDim warpSize int8_t "
        "int16_t int32_t"
        " int64_t uint8_t uint16_t uint32_t uint64_t size_t ptrdiff_t ssize_t FILE div_t ldiv_t "
        "lldiv_t NULL"
        " stdin stdout stderr abs exit abort malloc calloc free realloc printf puts remove rename "
        "time clock"
        " exp log sin cos tan sqrt pow floor ceil erf min max signal read write open close fail "
        "steps"
        " upload record info cudaStream_t cudaError_t cudaGraph_t cudnnHandle_t cublasHandle_t "
        "linux unix"
        // what the emitted file itself declares beside it, or names inside create
        " std m o out bytes weights network einnet_test conv conv_call conv_size conv_sizes "
        "conv_tensor"
        " conv_describe conv_choose_forward conv_choose_data conv_open conv_close conv_run gemm_run"
        " gemm_size matmul matmul_call matmul_size matmul_sizes matmul_open matmul_close matmul_run"
        " matmul_matrix matmul_describe matmul_wish matmul_pinned uploads upload_size run_on "
        "create_all open_libraries prepare_weights "
        "same_addresses"
        " check_device check_run check_weights info_inputs info_outputs info_weights cublas_reason"
        " warp_sum warp_max product_tile half4 load_half4 store_half4 cublasStatus_t "
        "cudnnTensorDescriptor_t cudaGetLastError ";
    const char *at = words;
    size_t n = strlen(name);
    while (*name && (at = strstr(at, name))) {
        if (at[-1] == ' ' && at[n] == ' ') return true;
        at++;
    }
    // char1, float4, ulonglong2, texture types and the compiler's own names
    static const char *const vector[] = {"char",     "uchar",     "short", "ushort",
                                         "int",      "uint",      "long",  "ulong",
                                         "longlong", "ulonglong", "float", "double"};
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        size_t k = strlen(vector[i]);
        if (!strncmp(name, vector[i], k) && name[k] >= '1' && name[k] <= '4') return true;
    }
    return name[0] == '_';
}

// The prefix of the program's symbols: a C identifier made of the model's name or --prefix.
EIN__FN const char *ein__symbol(ein_ctx *ctx) {
    const char *s = ctx->desc.prefix ? ctx->desc.prefix : ctx->graph.model;
    ein__buf b = {0};
    if (!s || !*s) s = "model";
    if (*s >= '0' && *s <= '9') ein__put(&b, "m");
    for (; *s; s++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        char c = word ? *s : '_';
        ein__put_n(&b, &c, 1);
    }
    // The file's own names begin so; a model called `k_x` must not meet kernel `k_x`.
    static const char *const own[] = {"_",     "v_",      "k_",      "conv_",  "CONV_",
                                      "gemm_", "matmul_", "MATMUL_", "steps_", "prepare_"};
    bool clash = false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        clash |= !strncmp(b.s, own[i], strlen(own[i]));
    if (ein__is_taken(b.s)) ein__put(&b, "_model");
    const char *name = ein__name(ctx, clash ? ein__namef(ctx, "m_%s", b.s) : b.s);
    ein__buf_free(&b);
    return name;
}

EIN__FN const char *ein__symbol_upper(ein_ctx *ctx) {
    const char *name = ein__symbol(ctx);
    ein__buf b = {0};
    for (; *name; name++) {
        char c = *name >= 'a' && *name <= 'z' ? (char)(*name - 32) : *name;
        ein__put_n(&b, &c, 1);
    }
    const char *upper = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return upper;
}

// Letters, digits and underscores of `name`; what had to be changed is told apart by a hash of the
// full name, so that two names never meet and none depends on its neighbours.
EIN__FN const char *ein__plain_name(ein_ctx *ctx, const char *name) {
    ein__buf b = {0};
    bool exact = true;
    size_t n = 0;
    for (const char *s = name; *s && n < 48; s++, n++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        char c = word || *s == '_' ? *s : '_';
        exact &= word || *s == '_' || *s == '.';
        ein__put_n(&b, &c, 1);
    }
    if (name[n]) exact = false;
    if (!exact || !n) {
        uint64_t h = ein__fnv(EIN__FNV_START, name, strlen(name));
        ein__putf(&b, "_%08x", (unsigned)(h ^ h >> 32));
    }
    const char *plain = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return plain;
}

// Comment text: printable ASCII only, nothing that ends a comment or continues a line.
static void ein__put_comment(ein__buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i] >= 32 && s[i] < 127 ? s[i] : '?';
        if (c == '\\' || (c == '/' && i && s[i - 1] == '*')) c = '_';
        ein__put_n(out, &c, 1);
    }
}

static const char *ein__ctype(ein__dtype t) {
    static const char *const name[EIN__NDTYPE] = {
        "float", "__half", "__nv_bfloat16", "signed char", "int", "long long", "unsigned char"};
    return name[t];
}

static void ein__put_shape(ein__buf *out, const ein__tensor *t) {
    ein__putf(out, "%s[", ein__dtype_name(t->dtype));
    for (int i = 0; i < t->shape.rank; i++)
        ein__putf(out, "%s%lld", i ? "," : "", (long long)t->shape.d[i]);
    ein__put(out, "]");
}

// ------------------------------------------------------------------------------------ the emitter

typedef struct ein__emitter {
    ein_ctx *ctx;
    ein__launch *run, *init;  // by step; library calls have an empty entry
    ein__buf kernels;
    const char **buffer;  // by plan buffer: the name of its pointer
    const char *first_kernel;
    unsigned needs;
    int convs, gemms, matmuls;
    int spatial;   // axes of convolution descriptors
    int calls_on;  // branch of the last library call put
    bool pins;     // a table of costs has chosen algorithms
    bool zeros;    // some fused convolution has no bias
    int64_t zeros_bytes, blob_bytes, const_bytes;
} ein__emitter;

// Bytes of the weight blob, and the offset of weight `index` in it.
EIN__FN int64_t ein__blob_offset(const ein_ctx *ctx, int index, int64_t *total) {
    int64_t at = 256, mine = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++) {
        const ein__tensor *t = &ctx->graph.tensor[ctx->graph.weight[i]];
        if (i == index) mine = at;
        at = (at + ein__elements(&t->shape) * ein__dtype_size(t->dtype) + 255) & ~(int64_t)255;
    }
    *total = at;
    return mine;
}

EIN__FN uint64_t ein__manifest(const ein_ctx *ctx) {
    ein__buf b = {0};
    ein__put(&b, "");
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++) {
        const ein__tensor *t = &ctx->graph.tensor[ctx->graph.weight[i]];
        ein__putf(&b, "%s ", t->name);
        ein__put_shape(&b, t);
        ein__put(&b, "\n");
    }
    uint64_t h = ein__fnv(EIN__FNV_START, b.s, b.n);
    ein__buf_free(&b);
    return h;
}

static bool ein__is_library(const ein__step *s) { return ein__is_call(s->kind); }

// A product that is cublasLt's: it has an epilogue, or a table chose one of that library's
// algorithms.
static bool ein__is_lt(const ein__step *s) {
    return s->kind == EIN__K_GEMM && (ein__is_matmul(&s->gemm) || s->algorithm);
}

// Pointer names by buffer: `v_` and the value's name, unique.
static void ein__name_buffers(ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    struct {
        char *key;
        int value;
    } *taken = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const char *plain = ein__plain_name(ctx, ctx->plan.buffer[i].name);
        const char *name = ein__namef(ctx, "v_%s", plain);
        for (int k = 2; shgeti(taken, name) >= 0; k++) name = ein__namef(ctx, "v_%s_%d", plain, k);
        shput(taken, name, 1);
        arrput(z->buffer, name);
    }
    shfree(taken);
}

static const char *ein__kernel_hint(const ein__step *s) {
    switch (s->kind) {
    case EIN__K_TRANSPOSE: return "transpose";
    case EIN__K_REDUCE: return "reduce";
    case EIN__K_ROW: return "row";
    case EIN__K_BAND: return "band";
    case EIN__K_BASIS: return "basis";
    case EIN__K_ATTENTION: return "attention";
    case EIN__K_PRODUCT: return "product";
    case EIN__K_MAP:
    case EIN__K_CONV:
    case EIN__K_CONV_DATA:
    case EIN__K_GEMM:
    default: return "map";
    }
}

// A comment; long ones continue on the next line, broken at spaces.
static void ein__put_wrapped(ein__buf *out, const ein__buf *text, const char *indent) {
    size_t width = 96 - strlen(indent), at = 0, end = text->n;
    while (end && (text->s[end - 1] == '\n' || text->s[end - 1] == ' ')) end--;
    while (at < end) {
        size_t n = end - at, room = at ? width - 4 : width;
        if (n > room) {
            n = room;
            while (n > 20 && text->s[at + n] != ' ' && text->s[at + n] != '\n') n--;
        }
        ein__putf(out, "%s// %s", indent, at ? "    " : "");
        ein__put_comment(out, text->s + at, n);
        ein__put(out, "\n");
        at += n;
        while (at < end && (text->s[at] == ' ' || text->s[at] == '\n')) at++;
    }
}

static void ein__put_algebra(ein__emitter *z, ein__buf *out, ein__val v, const char *indent) {
    ein__buf text = {0}, by = {0};
    const char *why = z->ctx->value[v.i].why;
    bool table = ein__print_table(z->ctx, v, &text);
    if (why && *why && !table) ein__putf(&by, "by %s", why);
    if (!table) ein__print_brief(z->ctx, v, &text);
    ein__put_wrapped(out, &by, indent);
    ein__put_wrapped(out, &text, indent);
    ein__buf_free(&by);
    ein__buf_free(&text);
}

static bool ein__is_new(const char ***seen, const char *name) {
    for (ptrdiff_t k = 0; k < arrlen(*seen); k++)
        if ((*seen)[k] == name) return false;
    arrput(*seen, name);
    return true;
}

// The functions that a kernel calls, each under the matrix that it applies.
static void ein__put_device(ein__emitter *z, const ein__launch *l, const char ***seen) {
    for (int k = 0; k < l->ndevice; k++) {
        if (!ein__is_new(seen, l->device[k])) continue;
        ein__put_algebra(z, &z->kernels, l->table[k], "");
        ein__putf(&z->kernels, "%s\n", l->device[k]);
    }
}

// Emits the kernels of `steps`, each distinct text once.
static void ein__collect_kernels(ein__emitter *z, ein__step *steps, ein__launch **launches,
                                 const char ***seen) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(steps) && !ctx->status; i++) {
        ein__launch l = {0};
        ein__step *step = &steps[i];
        if (!ein__is_library(&steps[i])) {
            ein__buf text = {0};
            ein__emit_kernel(ctx, &steps[i], ein__kernel_hint(&steps[i]), &text, &l);
            if (ctx->status) return;
            if (ein__is_new(seen, l.name)) {
                ein__put_device(z, &l, seen);
                if (step->kind == EIN__K_ATTENTION) ein__put(&z->kernels, "// by online softmax\n");
                for (int v = 0; v < steps[i].nval && !l.extra; v++)
                    ein__put_algebra(z, &z->kernels, steps[i].val[v], "");
                ein__put_n(&z->kernels, text.s, text.n);
                ein__put(&z->kernels, "\n");
                if (!z->first_kernel) z->first_kernel = l.name;
            }
            z->needs |= l.needs;
            step->measured = ein__measured(ctx, ein__namef(ctx, "kernel %s", l.name), &step->ps);
            ein__buf_free(&text);
        }
        arrput(*launches, l);
    }
}

static void ein__collect(ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    const char **seen = NULL;
    ein__name_buffers(z);
    ein__put(&z->kernels, "");
    ein__collect_kernels(z, ctx->plan.init, &z->init, &seen);
    ein__collect_kernels(z, ctx->plan.step, &z->run, &seen);
    arrfree(seen);
    z->spatial = 2;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (ein__is_lt(s)) z->matmuls++;
        else if (s->kind == EIN__K_GEMM) z->gemms++;
        z->pins |= s->algorithm != NULL;
        if (s->kind != EIN__K_CONV && s->kind != EIN__K_CONV_DATA) continue;
        z->convs++;
        if (s->conv.spatial > z->spatial) z->spatial = s->conv.spatial;
        bool fused = s->conv.z.i || s->conv.relu;
        if (fused && !s->conv.bias.i) {
            z->zeros = true;
            if (s->conv.f * 4 > z->zeros_bytes) z->zeros_bytes = s->conv.f * 4;
        }
    }
    z->zeros_bytes = (z->zeros_bytes + 255) & ~(int64_t)255;
    z->const_bytes = ctx->plan.const_bytes + z->zeros_bytes;
    ein__blob_offset(ctx, -1, &z->blob_bytes);
}

static void ein__emitter_free(ein__emitter *z) {
    arrfree(z->run);
    arrfree(z->init);
    arrfree(z->buffer);
    ein__buf_free(&z->kernels);
}

// ------------------------------------------------------------------------------------ summary

EIN__FN void ein__emit_banner(ein_ctx *ctx, ein__buf *out) {
    const char *license = ctx->desc.license ? ctx->desc.license : "MIT-0";
    ein__put(out, "// Code generated by einnet from ");
    ein__put_comment(out, ctx->graph.model, strlen(ctx->graph.model));
    ein__putf(
        out,
        ".ein. DO NOT EDIT.\n// einnet-codegen: %d  model: %016llx  costs: %s  weights: %016llx\n",
        EIN_CODEGEN, (unsigned long long)ctx->graph.hash,
        ctx->cost_hash ? ein__namef(ctx, "%016llx", (unsigned long long)ctx->cost_hash) : "none",
        (unsigned long long)ein__manifest(ctx));
    ein__put(out, "// SPDX-License-Identifier: ");
    ein__put_comment(out, license, strlen(license));
    ein__put(out, "\n// clang-format off\n");
}

static void ein__put_amount(ein__buf *out, int64_t bytes) {
    if (bytes < 10 * 1024) ein__putf(out, "%lld B", (long long)bytes);
    else if (bytes < 10 * 1024 * 1024) ein__putf(out, "%lld kB", (long long)((bytes + 512) / 1024));
    else ein__putf(out, "%lld MB", (long long)((bytes + (1 << 19)) >> 20));
}

// Microseconds with one digit behind the point, from picoseconds.
static void ein__put_us(ein__buf *out, int64_t ps) {
    int64_t tenth = (ps + 50000) / 100000;
    ein__putf(out, "%5lld.%lld us", (long long)(tenth / 10), (long long)(tenth % 10));
}

static void ein__put_sizes(ein__buf *out, const int64_t *d, int n) {
    for (int i = 0; i < n; i++) ein__putf(out, "%s%lld", i ? "x" : "", (long long)d[i]);
}

static void ein__put_call(ein__buf *out, const ein__step *s, const ein__launch *l) {
    if (s->kind == EIN__K_GEMM) {
        const ein__gemm *g = &s->gemm;
        static const char *const names[] = {"sgemm", "gemm tf32", "gemm f16"};
        ein__putf(out, "%s %s %lld x %lld x %lld", ein__is_lt(s) ? "cublasLt" : "cuBLAS",
                  ein__is_lt(s) ? "matmul" : names[g->math], (long long)g->m, (long long)g->n,
                  (long long)g->k);
        if (g->batch > 1) ein__putf(out, ", batch %lld", (long long)g->batch);
        ein__put_epilogue(out, g->z.i != 0, g->bias.i != 0, g->act);
    } else if (ein__is_library(s)) {
        const ein__conv *c = &s->conv;
        static const char *const names[] = {"", "tf32 ", "f16 "};
        ein__put(out, s->kind == EIN__K_CONV ? "cuDNN conv " : "cuDNN conv backward-data ");
        ein__put(out, names[c->math]);
        ein__put_sizes(out, c->k, c->spatial);
        ein__putf(out, ", %lld to %lld", (long long)c->c, (long long)c->f);
        if (c->group > 1) ein__putf(out, " in %lld groups", (long long)c->group);
        ein__put_epilogue(out, c->z.i != 0, c->bias.i != 0,
                          c->relu ? EIN__ACT_RELU : EIN__ACT_NONE);
    } else {
        ein__put(out, l->name);
    }
}

// The rule that a step as a whole comes from, or what its first value does; NULL: none.
static const char *ein__step_rule(const ein_ctx *ctx, const ein__step *step) {
    return step->kind == EIN__K_ATTENTION ? "online softmax" : ctx->value[step->val[0].i].why;
}

// The rules that the plan's steps come from, each with the number of its steps: a trail's last rule
// without what it was applied to.
static void ein__put_rules(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    struct {
        const char *name;
        int steps;
    } rule[EIN__NRULES];
    int n = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const char *why = ein__step_rule(ctx, &ctx->plan.step[i]), *last;
        if (!why || !*why) continue;
        while ((last = strstr(why, "; "))) why = last + 2;
        size_t length = strcspn(why, "(,:;");
        last = strstr(why, " F(");
        if (last && (size_t)(last - why) < length) length = (size_t)(last - why);
        while (length && why[length - 1] == ' ') length--;
        const char *name = ein__name_n(ctx, why, length);
        int at = 0;
        while (at < n && rule[at].name != name) at++;
        if (at == EIN__NRULES) continue;
        if (at == n) rule[n++].name = name, rule[at].steps = 0;
        rule[at].steps++;
    }
    ein__buf text = {0};
    for (int i = 0; i < n; i++)
        ein__putf(&text, "%s%s %d", i ? ", " : "by        ", rule[i].name, rule[i].steps);
    ein__put_wrapped(out, &text, "");
    ein__buf_free(&text);
}

static void ein__put_tensors(ein_ctx *ctx, ein__buf *out, const char *title, const int *list,
                             const ein__output *named) {
    ptrdiff_t n = named ? arrlen(named) : arrlen(list);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ein__tensor *t = &ctx->graph.tensor[named ? named[i].tensor : list[i]];
        const char *name = named ? named[i].name : t->name;
        ein__putf(out, "// %-9s ", i ? "" : title);
        ein__put_comment(out, name, strlen(name));
        ein__put(out, ": ");
        ein__put_shape(out, t);
        ein__put(out, "\n");
    }
}

// What the step would cost as kernels of the program's own, laid out as it is.
static int64_t ein__own_cost(ein_ctx *ctx, const ein__step *step) {
    const ein__scope *s = ein__scope_of(ctx, step->val[0]);
    ein__step own = *step;
    ein__split split;
    own.kind = ein__kernel_kind(ctx, s);
    int64_t best = ein__cost_step(ctx, &own);
    own.kind = EIN__K_PRODUCT;
    best = ein__least(best, ein__cost_step(ctx, &own));
    ein__val map = step->nval > 1 ? step->val[1] : (ein__val){0};
    return ein__least(best, ein__cost_split(ctx, s, map, &split));
}

// The libraries that the program needs: what they weigh (shared objects of cuDNN 9.19 and CUDA 13:
// cuDNN's precompiled engines, heuristics and adv; cuBLAS and cuBLASLt), and what the plan would
// cost at most without them, its derivation kept.
static void ein__put_libraries(ein__emitter *z, ein__buf *out) {
    enum { CUDNN_MB = 415, CUBLAS_MB = 596 };
    ein_ctx *ctx = z->ctx;
    int64_t more[2] = {0, 0};  // by library: cuDNN, cuBLAS
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (!ein__is_library(s)) continue;
        int64_t own = ein__own_cost(ctx, s), *to = &more[s->kind == EIN__K_GEMM];
        if (own > s->ps) *to = ein__cost_sum(*to, own - s->ps);
    }
    ein__put(out, "// libraries ");
    if (!z->convs && !z->gemms) ein__put(out, "none");
    for (int k = 0; k < 2; k++) {
        int n = k ? z->gemms : z->convs;
        ein__buf us = {0};
        if (!n) continue;
        ein__put_us(&us, more[k]);
        ein__putf(out, "%s%s (%d MB) %d step%s, without it up to %s more",
                  k && z->convs ? "\n//           " : "", k ? "cuBLAS" : "cuDNN",
                  k ? CUBLAS_MB : CUDNN_MB, n, n == 1 ? "" : "s", us.s + strspn(us.s, " "));
        ein__buf_free(&us);
    }
    ein__put(out, "\n");
}

// What keeps FP32, as the options say it.
static void ein__put_kept(ein_ctx *ctx, ein__buf *out) {
    ein__buf text = {0};
    if (ctx->desc.math == EIN_MATH_FP32) return;
    for (ptrdiff_t i = 0; i < arrlen(ctx->keep_fp32); i++)
        if (ctx->keep_fp32[i])
            ein__putf(&text, "%s%s", text.n ? " " : "in FP32   ", ctx->graph.tensor[i].name);
    if (text.n) ein__put_wrapped(out, &text, "");
    ein__buf_free(&text);
}

static void ein__put_summary(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const ein__plan *p = &ctx->plan;
    ein__putf(out, "//\n// for %s, %s\n", ein__gpu_of(ctx)->title, ein__math_title(ctx));
    ein__put_kept(ctx, out);
    ein__put_tensors(ctx, out, "inputs", ctx->graph.input, NULL);
    ein__put_tensors(ctx, out, "outputs", NULL, ctx->graph.output);
    ein__putf(out, "// weights   %d tensors, blob of ", (int)arrlen(ctx->graph.weight));
    ein__put_amount(out, z->blob_bytes);
    ein__put(out, "\n// memory    arena ");
    ein__put_amount(out, p->arena_bytes);
    int workspaces = 0;
    for (int b = 0; b < p->branches; b++) workspaces += p->workspace_at[b] >= 0;
    if (workspaces > 1) ein__putf(out, " (workspaces %d x ", workspaces);
    else ein__put(out, " (workspace ");
    ein__put_amount(out, p->workspace_bytes);
    ein__put(out, " of it), constants ");
    ein__put_amount(out, z->const_bytes);
    ein__put(out, ", peak in create ");
    ein__put_amount(out, p->arena_bytes + z->const_bytes + p->init_bytes);
    ein__putf(out, "\n// plan      %d step%s, ", (int)arrlen(p->step),
              arrlen(p->step) == 1 ? "" : "s");
    ein__buf us = {0};
    int64_t total = 0;
    bool measured = true;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        total += p->step[i].ps;
        measured &= p->step[i].measured;
    }
    ein__put_us(&us, total);
    ein__putf(out, "%s %s", us.s + strspn(us.s, " "), measured ? "measured" : "estimated");
    if (p->baseline_ps) {
        us.n = 0;
        ein__put_us(&us, p->baseline_ps);
        ein__putf(out, "; %s without derivation", us.s + strspn(us.s, " "));
    } else if (!z->ctx->desc.baseline) {
        ein__put(out, "; nothing derived is cheaper");
    }
    ein__put(out, "\n");
    if (p->branches > 1) {
        us.n = 0;
        ein__put_us(&us, p->branched_ps);
        ein__putf(out, "// branches  %d in a recorded graph, %s estimated\n", p->branches,
                  us.s + strspn(us.s, " "));
    }
    ein__buf_free(&us);
    ein__put_libraries(z, out);
    ein__put_rules(z, out);
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        ein__put(out, "// ");
        ein__put_us(out, p->step[i].ps);
        ein__put(out, p->step[i].measured ? " measured " : " est. ");
        ein__buf name = {0};
        ein__put_comment(&name, p->step[i].name, strlen(p->step[i].name));
        ein__putf(out, "%-16s ", name.s ? name.s : "");
        ein__buf_free(&name);
        ein__put_call(out, &p->step[i], &z->run[i]);
        ein__put(out, "\n");
    }
}

// ------------------------------------------------------------------------------------ sizes

EIN__FN void ein__emit_interface(ein_ctx *ctx, ein__buf *out) {
    int64_t blob;
    ein__blob_offset(ctx, -1, &blob);
    ein__key keys[] = {{"model", ein__symbol(ctx)},
                       {"MODEL", ein__symbol_upper(ctx)},
                       {"arena", ein__namef(ctx, "%lldull", (long long)ctx->plan.arena_bytes)},
                       {"weights", ein__namef(ctx, "%lldull", (long long)blob)}};
    ein__tmpl_put(out, ein__tmpl_interface, keys, 4);
}

static void ein__put_section(ein__buf *out, const char *title) {
    ein__putf(out, "\n// ---- %s ", title);
    for (size_t n = strlen(title) + 9; n < 100; n++) ein__put(out, "-");
    ein__put(out, "\n");
}

static const char *ein__branch_suffix(ein_ctx *ctx, int b) {
    return b ? ein__namef(ctx, "_%d", b) : "";
}

// One line a buffer: where it is in the caller's lists, the arena or the constants.
static void ein__put_pointers(ein__emitter *z, ein__buf *out) {
    static const char *const where[] = {"IN", "OUT", "CONST", "CONST", "INIT", "ARENA"};
    ein_ctx *ctx = z->ctx;
    ein__put(out,
             "#define IN(type, k) ((const type *)in[k])\n"
             "#define OUT(type, k) ((type *)out[k])\n"
             "#define ARENA_OF(type, at) ((type *)(m->arena + at))\n"
             "#define CONST_OF(type, at) ((type *)(m->constants + at))\n"
             "#define INIT_OF(type, at) ((type *)(m->init + at))\n"
             "#define ARENA(at) ARENA_OF(float, at)\n"
             "#define CONST(at) CONST_OF(float, at)\n"
             "#define INIT(at) INIT_OF(float, at)\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const ein__buffer *b = &ctx->plan.buffer[i];
        bool listed = b->kind == EIN__B_INPUT || b->kind == EIN__B_OUTPUT;
        if (!listed && b->first < 0) continue;
        ein__putf(out, "#define %s %s", z->buffer[i], where[b->kind]);
        if (listed) ein__putf(out, "(%s, %d)\n", ein__ctype(b->dtype), b->index);
        else if (b->dtype == EIN__F32) ein__putf(out, "(%lld)\n", (long long)b->at);
        else ein__putf(out, "_OF(%s, %lld)\n", ein__ctype(b->dtype), (long long)b->at);
    }
    for (int b = 0; (z->convs || z->matmuls) && b < ctx->plan.branches; b++) {
        if (ctx->plan.workspace_at[b] < 0) continue;
        ein__putf(out, "#define v_workspace%s ARENA_OF(char, %lld)\n", ein__branch_suffix(ctx, b),
                  (long long)ctx->plan.workspace_at[b]);
    }
    if (z->zeros)
        ein__putf(out, "#define v_zeros CONST_OF(const float, %lld)\n",
                  (long long)ctx->plan.const_bytes);
}

static void ein__put_uploads(ein__emitter *z, ein__buf *out, bool *any) {
    ein_ctx *ctx = z->ctx;
    *any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const ein__buffer *b = &ctx->plan.buffer[i];
        bool raw = b->kind == EIN__B_WEIGHT || (b->kind == EIN__B_INIT && b->index >= 0);
        if (!raw || b->first < 0) continue;
        if (!*any)
            ein__put(
                out,
                "\n// Weights: from the blob to the constants (kept) or to create's own memory.\n"
                "typedef struct upload_size { size_t from, to, bytes; int kept; } upload_size;\n"
                "static const upload_size uploads[] = {\n");
        *any = true;
        int64_t total;
        ein__putf(out, "    {%lld, %lld, %lld, %d},  // ",
                  (long long)ein__blob_offset(ctx, b->index, &total), (long long)b->at,
                  (long long)b->bytes, b->kind == EIN__B_WEIGHT);
        ein__put_comment(out, b->name, strlen(b->name));
        ein__put(out, "\n");
    }
    if (*any) ein__put(out, "};\n");
}

// Axes of a descriptor: those that the convolution lacks are 1, in front.
static void ein__put_axes(ein__buf *out, const int64_t *v, int n, int axes, int64_t fill) {
    ein__put(out, "{");
    for (int i = 0; i < axes; i++)
        ein__putf(out, "%s%lld", i ? ", " : "",
                  (long long)(i < axes - n ? fill : v[i - (axes - n)]));
    ein__put(out, "}");
}

static const char *ein__call_name(ein_ctx *ctx, const ein__step *s) {
    return ein__plain_name(ctx, s->name);
}

// A row of the table of convolutions; `pin`: what follows where algorithms are chosen by tables.
EIN__FN void ein__put_conv_size(ein__buf *out, const char *name, const ein__conv *c,
                                bool transposed, int spatial, bool typed, const char *pin) {
    ein__buf line = {0};
    ein__put(&line, "    {");
    ein__put_string(&line, name);
    ein__putf(&line, ", %d, %lld, %lld, %lld, %lld, ", transposed, (long long)c->n, (long long)c->c,
              (long long)c->f, (long long)c->group);
    const int64_t *axes[] = {c->in, c->out, c->k, c->pad, c->stride, c->dilation};
    for (int k = 0; k < 6; k++) {
        ein__put_axes(&line, axes[k], c->spatial, spatial, k == 3 ? 0 : 1);
        ein__put(&line, ", ");
    }
    bool fused = c->bias.i || c->z.i || c->relu;
    ein__putf(&line, "%d, %d", fused, c->relu);
    if (typed) ein__putf(&line, ", %d, %d", c->math == EIN__MATH_FP16, c->math == EIN__MATH_TF32);
    ein__putf(&line, "%s},", pin);
    ein__tmpl_line(out, line.s, line.n);
    ein__buf_free(&line);
}

static const char *ein__conv_pin_text(const ein__emitter *z, const ein__step *s) {
    if (!z->pins) return "";
    if (!s->algorithm) return ", 0, 0";
    return ein__namef(z->ctx, ", %lld, %s", (long long)s->version, s->algorithm);
}

static void ein__put_conv_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    ein__put(out, "\nstatic const conv_size conv_sizes[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA)
            ein__put_conv_size(out, s->name, &s->conv, s->kind == EIN__K_CONV_DATA, z->spatial,
                               ein__is_typed(ctx), ein__conv_pin_text(z, s));
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
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        const ein__gemm *g = &s->gemm;
        if (s->kind != EIN__K_GEMM || ein__is_lt(s)) continue;
        ein__buf line = {0};
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
        if (ein__is_lt(s)) ein__put_matmul_size(out, s, false, z->pins);
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
    ein__put(out, z->buffer[l->buffer]);
    if (offset) ein__putf(out, " + %lld", (long long)offset);
}

static void ein__put_dims(ein__buf *out, const unsigned *d) {
    if (d[2] > 1) ein__putf(out, "dim3(%u, %u, %u)", d[0], d[1], d[2]);
    else if (d[1] > 1) ein__putf(out, "dim3(%u, %u)", d[0], d[1]);
    else ein__putf(out, "dim3(%u)", d[0]);
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

static void ein__put_step(ein__emitter *z, ein__buf *out, const ein__step *s,
                          const ein__launch *l) {
    ein_ctx *ctx = z->ctx;
    const char *name = ein__call_name(ctx, s);
    if (ein__is_library(s) || l->extra)
        for (int k = 0; k < s->nval; k++) ein__put_algebra(z, out, s->val[k], "    ");
    ein__put_order(ctx, out, s->out);
    ein__put_waits(z, out, s);
    if (ein__is_library(s)) {
        ein__buf call = {0};
        if (s->kind == EIN__K_GEMM) ein__put_gemm_call(z, &call, s, name);
        else ein__put_conv_call(z, &call, s, name);
        ein__tmpl_line(out, call.s, call.n);
        ein__buf_free(&call);
        ein__put_record(out, s);
        return;
    }
    ein__putf(out, "    %s<<<", l->name);
    ein__put_dims(out, l->grid);
    ein__put(out, ", ");
    ein__put_dims(out, l->block);
    ein__putf(out, s->branch ? ", %d, m->on[%d]>>>(" : ", %d, stream>>>(", l->smem, s->branch);
    for (int i = 0; i < l->narg; i++) {
        if (i) ein__put(out, ", ");
        ein__put_pointer(z, out, l->arg[i], 0);
    }
    if (l->extra) ein__putf(out, ", %s", l->extra);
    ein__put(out, ");\n    LAUNCHED(m, ");
    ein__put_string(out, s->name);
    ein__put(out, ");\n");
    ein__put_record(out, s);
}

enum { EIN__STEPS_PER_FUNCTION = 40 };

// The steps as functions of bounded length: `name` calls them in order.
static void ein__put_steps(ein__emitter *z, ein__buf *out, bool init) {
    ein_ctx *ctx = z->ctx;
    const ein__step *steps = init ? ctx->plan.init : ctx->plan.step;
    const ein__launch *launches = init ? z->init : z->run;
    const char *symbol = ein__symbol(ctx);
    const char *params = init ? "cudaStream_t stream"
                              : "const void *const *in, void *const *out,\n    cudaStream_t stream";
    const char *name = init ? "prepare_weights" : "steps";
    ptrdiff_t n = arrlen(steps),
              parts = (n + EIN__STEPS_PER_FUNCTION - 1) / EIN__STEPS_PER_FUNCTION;
    if (parts < 1) parts = 1;
    for (ptrdiff_t p = 0; p < parts; p++) {
        ptrdiff_t from = p * EIN__STEPS_PER_FUNCTION, to = from + EIN__STEPS_PER_FUNCTION;
        if (to > n) to = n;
        if (parts == 1) ein__putf(out, "static int %s(%s *m, %s) {\n", name, symbol, params);
        else ein__putf(out, "static int %s_%d(%s *m, %s) {\n", name, (int)p + 1, symbol, params);
        ein__put(out, init ? "    (void)stream;\n"
                           : "    (void)in;\n    (void)out;\n    (void)stream;\n");
        if (n == 0) ein__put(out, "    (void)m;\n");
        for (ptrdiff_t i = from; i < to; i++) ein__put_step(z, out, &steps[i], &launches[i]);
        for (int b = 1; b < ctx->plan.branches && !init && p == parts - 1; b++)
            if (ctx->plan.join[b] >= 0)
                ein__putf(out, "    CALL(await_event(m, 0, %d));  // branch %d\n",
                          steps[ctx->plan.join[b]].event, b);
        ein__put(out, "    return 0;\n}\n\n");
    }
    if (parts == 1) return;
    const char *args = init ? "stream" : "in, out, stream";
    ein__putf(out, "static int %s(%s *m, %s) {\n    int r = %s_1(m, %s);\n", name, symbol, params,
              name, args);
    for (ptrdiff_t p = 1; p < parts; p++)
        ein__putf(out, "    if (!r) r = %s_%d(m, %s);\n", name, (int)p + 1, args);
    ein__put(out, "    return r;\n}\n\n");
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
