// The probe: a program that measures the library calls which planning asked for, and the kernels of
// candidate plans, that no table of costs has, and prints rows for such a table. A call's key tells
// everything about it, so calls of several models are collected as keys; kernels come with their
// text (probe_kernels.c). The program is made from them.

typedef struct ein__call {
    const char *key;
    bool gemm, transposed;
    ein__gemm g;
    ein__conv c;
    int products;  // of different sizes, in one call; 0: it is another one
    ein__gemm *product;
} ein__call;

// `name`, then numbers with x between them, no more than `most`; gives how many, and moves `*s`
// behind them. 0: the text is something else.
static int ein__key_numbers(const char **s, const char *name, int64_t *v, int most) {
    size_t n = strlen(name);
    if (strncmp(*s, name, n)) return 0;
    *s += n;
    for (int count = 0; count < most;) {
        size_t digits = strspn(*s, "0123456789");
        if (!digits || digits > 18) return 0;
        v[count] = 0;
        for (size_t i = 0; i < digits; i++) v[count] = v[count] * 10 + (*s)[i] - '0';
        *s += digits;
        count++;
        if (**s != 'x') return count;
        ++*s;
    }
    return 0;
}

// Reads a number that has to be one.
static bool ein__key_number(const char **s, const char *name, int64_t *v, int64_t limit) {
    return ein__key_numbers(s, name, v, 1) == 1 && *v <= limit;
}

static bool ein__key_word(const char **s, const char *word) {
    size_t n = strlen(word);
    bool found = !strncmp(*s, word, n);
    if (found) *s += n;
    return found;
}

static bool ein__key_math(const char **s, ein__math *math) {
    for (int m = EIN__MATH_FP32; m <= EIN__MATH_FP16; m++) {
        *math = (ein__math)m;
        if (ein__key_word(s, ein__math_key(*math))) return true;
    }
    return false;
}

// Order of a convolution's tensors.
static bool ein__key_order(const char **s, bool *nhwc) {
    *nhwc = ein__key_word(s, " nhwc");
    return *nhwc || ein__key_word(s, " nchw");
}

// What follows in the key of a product with an epilogue.
static bool ein__key_epilogue(const char **s, ein__gemm *g) {
    static const char *const act[] = {"none", "relu", "gelu"};
    int64_t bias = 0, z = 0, align = 0;
    bool ok = ein__key_number(s, " bias=", &bias, 1) && ein__key_number(s, " z=", &z, 1) &&
              !strncmp(*s, " act=", 5);
    if (!ok) return false;
    int k = 0;
    while (k < 2 && strncmp(*s + 5, act[k], 4)) k++;
    if (strncmp(*s + 5, act[k], 4)) return false;
    *s += 9;
    g->act = (ein__act)k;
    g->bias.i = bias != 0;
    g->z.i = z != 0;
    ok = ein__key_number(s, " align=", &align, 16) && align >= ein__math_bytes(g->math) &&
         !(align & (align - 1));
    if (ok && z) ok = ein__key_number(s, " ldz=", &g->ldz, INT32_MAX) && g->ldz >= g->n;
    if (ok && z && g->batch > 1) ok = ein__key_number(s, " sz=", &g->sz, EIN__MAX_ELEMENTS);
    g->align = (int)align;
    return ok;
}

static bool ein__key_sizes(const char **s, ein__gemm *g) {
    int64_t ta = 0, tb = 0, most = INT32_MAX;
    bool ok = ein__key_number(s, " b=", &g->batch, most) &&
              ein__key_number(s, " m=", &g->m, most) && ein__key_number(s, " n=", &g->n, most) &&
              ein__key_number(s, " k=", &g->k, most) && ein__key_number(s, " ta=", &ta, 1) &&
              ein__key_number(s, " tb=", &tb, 1) && ein__key_number(s, " lda=", &g->lda, most) &&
              ein__key_number(s, " ldb=", &g->ldb, most) &&
              ein__key_number(s, " ldc=", &g->ldc, most);
    g->ta = ta != 0;
    g->tb = tb != 0;
    return ok && g->batch > 0 && g->m > 0 && g->n > 0 && g->k > 0;
}

// Products of different sizes. Every result has room for its columns.
static bool ein__key_group(ein_ctx *ctx, const char *s, ein__call *call) {
    int64_t n = 0, problems = 0;
    bool ok = ein__key_word(&s, "grouped ") && ein__key_math(&s, &call->g.math) &&
              ein__key_number(&s, " products=", &n, EIN__GROUP_MEMBERS) && n > 1;
    if (!ok) return false;
    const ein__gemm *list[EIN__GROUP_MEMBERS];
    call->products = (int)n;
    call->product = EIN__NEW(&ctx->arena, ein__gemm, n);
    for (int i = 0; i < call->products && ok; i++) {
        ein__gemm *g = &call->product[i];
        *g = (ein__gemm){.alpha = 1, .math = call->g.math, .align = 16};
        list[i] = g;
        ok = ein__key_sizes(&s, g) && g->lda >= (g->ta ? g->m : g->k) &&
             g->ldb >= (g->tb ? g->k : g->n) && g->ldc >= g->n;
        problems += g->batch;
        // Matrices of a batch are told of by their addresses: all are different.
        g->sa = g->sb = g->sc = g->batch > 1;
    }
    return ok && !*s && problems <= EIN__GROUP_PROBLEMS &&
           ein__grouped_key(ctx, list, call->products) == call->key;
}

static bool ein__key_gemm(const char *s, ein__gemm *g) {
    *g = (ein__gemm){.alpha = 1};
    bool ok = ein__key_word(&s, "gemm ") && ein__key_math(&s, &g->math) && ein__key_sizes(&s, g);
    if (ok && g->batch > 1)
        ok = ein__key_number(&s, " sa=", &g->sa, EIN__MAX_ELEMENTS) &&
             ein__key_number(&s, " sb=", &g->sb, EIN__MAX_ELEMENTS) &&
             ein__key_number(&s, " sc=", &g->sc, EIN__MAX_ELEMENTS);
    g->wide = ok && ein__key_word(&s, " out=f32");
    g->align = 16;
    if (ok && *s) ok = ein__key_epilogue(&s, g);
    return ok;
}

static bool ein__key_conv(const char *s, ein__conv *c, bool *transposed) {
    static const char *const names[] = {" in=", " out=", " k=", " s=", " p=", " d="};
    int64_t *const axes[] = {c->in, c->out, c->k, c->stride, c->pad, c->dilation};
    int64_t bias = 0, z = 0, relu = 0, most = INT32_MAX;
    *c = (ein__conv){0};
    *transposed = ein__key_word(&s, "conv_data ");
    bool ok = (*transposed || ein__key_word(&s, "conv ")) && ein__key_math(&s, &c->math) &&
              ein__key_order(&s, &c->nhwc) && ein__key_number(&s, " n=", &c->n, most) &&
              ein__key_number(&s, " c=", &c->c, most) && ein__key_number(&s, " f=", &c->f, most) &&
              ein__key_number(&s, " g=", &c->group, most);
    for (int k = 0; ok && k < 6; k++) {
        int n = ein__key_numbers(&s, names[k], axes[k], 3);
        ok = n > 0 && (!k || n == c->spatial);
        c->spatial = n;
        for (int i = 0; i < n; i++) ok = ok && axes[k][i] <= most && (k == 4 || axes[k][i] > 0);
    }
    ok = ok && ein__key_number(&s, " bias=", &bias, 1) && ein__key_number(&s, " z=", &z, 1) &&
         ein__key_number(&s, " relu=", &relu, 1);
    c->bias.i = bias != 0;
    c->z.i = z != 0;
    c->relu = relu != 0;
    bool plain = !*transposed || !(bias || z || relu);  // a fused one is never transposed
    return ok && plain && c->n > 0 && c->c > 0 && c->f > 0 && c->group > 0;
}

// A kernel to be measured, as its lines tell.
typedef struct ein__pkernel {
    const char *key, *block, *name;
    int64_t grid[3], block_size[3], smem, needs[2], rank;
    int narg;
    bool half;
} ein__pkernel;

// Whether `*s` begins with type `word` and a blank, which it moves to: some types begin as others.
static bool ein__key_type(const char **s, const char *word) {
    size_t n = strlen(word);
    bool found = !strncmp(*s, word, n) && !strncmp(*s + n, " n=", 3);
    if (found) *s += n;
    return found;
}

// An operand's line behind its mark: `float n=100 at=0`. False: it is none.
static bool ein__read_argument(const char *s, const char **type, int64_t *n, int64_t *at) {
    static const char *const shared[] = {"float4", "unsigned"};
    *type = NULL;
    for (int t = 0; t < 2 && !*type; t++)
        if (ein__key_type(&s, shared[t])) *type = shared[t];
    for (int t = 0; t < EIN__NDTYPE && !*type; t++)
        if (ein__key_type(&s, ein__kctype((ein__dtype)t))) *type = ein__kctype((ein__dtype)t);
    return *type && ein__key_number(&s, " n=", n, EIN__MAX_ELEMENTS) &&
           ein__key_number(&s, " at=", at, EIN__KEY_ALIGN) && *s == '\n';
}

// The lines of kernel `key`; false when they are none.
static bool ein__read_kernel(ein_ctx *ctx, const char *key, const char *block, ein__pkernel *k) {
    const char *s = block, *type;
    *k = (ein__pkernel){.key = key, .block = block};
    if (!ein__key_word(&s, "\t#k_")) return false;
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_");
    k->name = ein__name_n(ctx, s - 2, n + 2);
    s += n;
    bool ok = n && ein__key_numbers(&s, " grid=", k->grid, 3) == 3 &&
              ein__key_numbers(&s, " block=", k->block_size, 3) == 3 &&
              ein__key_number(&s, " smem=", &k->smem, 1 << 20) &&
              ein__key_numbers(&s, " needs=", k->needs, 2) == 2 &&
              ein__key_number(&s, " rank=", &k->rank, INT32_MAX) && !strncmp(s, " size=", 6);
    for (int i = 0; ok && i < 3; i++)
        ok = k->grid[i] > 0 && k->grid[i] <= INT32_MAX && k->block_size[i] > 0 &&
             k->block_size[i] <= 1024;
    bool text = false;
    for (s = strchr(s, '\n'); ok && s && s[1]; s = strchr(s + 1, '\n')) {
        int64_t elements, at;
        ok = s[1] == '\t' && strchr("@<>|", s[2]) && s[2];
        if (!ok || s[2] != '@') text |= ok && s[2] == '|';
        else if ((ok = k->narg++ < EIN__MAX_RANK * 4 &&
                       ein__read_argument(s + 3, &type, &elements, &at)))
            k->half |= !strcmp(type, ein__kctype(EIN__F16));
    }
    return ok && text;
}

// The call that `key` tells; false when it is no key of a call that a library could take.
static bool ein__call_of(ein_ctx *ctx, const char *key, ein__call *call) {
    *call = (ein__call){.key = ein__name(ctx, key), .gemm = !strncmp(key, "gemm", 4)};
    if (!strncmp(key, "grouped", 7)) return ein__key_group(ctx, key, call);
    if (call->gemm)
        return ein__key_gemm(key, &call->g) && ein__gemm_key(ctx, &call->g) == ein__name(ctx, key);
    return ein__key_conv(key, &call->c, &call->transposed) &&
           ein__conv_key(ctx, &call->c, call->transposed) == ein__name(ctx, key);
}

// Whether `key` is one that kernels' rows have, with a tile where there has to be one.
static bool ein__is_kernel_row_key(ein_ctx *ctx, const char *key) {
    ein__cost_row r = {.key = key, .algorithm = ""};
    const char *mark = strstr(key, " algo=");
    if (!ein__is_kernel_key(key)) return false;
    if (mark) {
        r.key = ein__name_n(ctx, key, (size_t)(mark - key));
        r.algorithm = mark + 6;
        if (!ein__is_algorithm(r.key, r.algorithm)) return false;
    }
    return ein__kernel_key_fault(&r) == NULL;
}

// The lines of a kernel at `text`, each behind a tab; moves behind them.
static const char *ein__kernel_lines(ein_ctx *ctx, const char **text, const char *end) {
    const char *from = *text, *s = from;
    while (s < end && *s == '\t') {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        s = stop ? stop + 1 : end;
    }
    *text = s;
    return ein__name_n(ctx, from, (size_t)(s - from));
}

EIN__FN bool ein__add_calls(ein_ctx *ctx, const char *text, size_t length) {
    const char *end = text + length;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        const char *key = ein__name_n(ctx, text, (size_t)(stop - text));
        bool kernel = ein__is_kernel_row_key(ctx, key);
        ein__call call;
        ein__pkernel k;
        text = stop < end ? stop + 1 : end;
        const char *block = kernel ? ein__kernel_lines(ctx, &text, end) : "";
        bool ok = kernel ? ein__read_kernel(ctx, key, block, &k) : ein__call_of(ctx, key, &call);
        if (*key && !ok) {
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0},
                       "not a library call, nor a kernel: '%s'", key);
            return false;
        }
        if (kernel) ein__keep_block(ctx, key, block);
        else if (*key) ein__record_call(ctx, key);
        if (*key) ctx->more_calls = true;
    }
    return true;
}

static int ein__call_order(const void *a, const void *b) {
    return strcmp(((const ein__call *)a)->key, ((const ein__call *)b)->key);
}

// Calls that no table has, by key, convolutions first; an stb_ds array.
static ein__call *ein__calls_left(ein_ctx *ctx) {
    ein__call *list = NULL, call;
    int64_t ps;
    for (ptrdiff_t i = 0; i < shlen(ctx->calls); i++) {
        const char *key = ctx->calls[i].key;
        bool readable = ein__call_of(ctx, key, &call);
        EIN_ASSERT(readable);  // a call that is priced and never measured
        if (readable && !ein__measured(ctx, key, &ps)) arrput(list, call);
    }
    if (list) qsort(list, (size_t)arrlen(list), sizeof *list, ein__call_order);
    return list;
}

static int ein__kernel_order(const void *a, const void *b) {
    const ein__pkernel *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : strcmp(x->key, y->key);
}

// Kernels that no table has, those of the best plans first; an stb_ds array.
static ein__pkernel *ein__kernels_left(ein_ctx *ctx) {
    ein__pkernel *list = NULL, k;
    if (!ein__gather_kernels(ctx)) return NULL;
    for (ptrdiff_t i = 0; i < shlen(ctx->kernels); i++)
        if (ein__read_kernel(ctx, ctx->kernels[i].key, ctx->kernels[i].value, &k)) arrput(list, k);
    if (list) qsort(list, (size_t)arrlen(list), sizeof *list, ein__kernel_order);
    return list;
}

EIN__FN void ein__emit_call_keys(ein_ctx *ctx, ein__buf *out) {
    ein__pkernel *kernel = ein__kernels_left(ctx);
    ein__call *list = ein__calls_left(ctx);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) ein__putf(out, "%s\n", list[i].key);
    for (ptrdiff_t i = 0; i < arrlen(kernel); i++)
        ein__putf(out, "%s\n%s", kernel[i].key, kernel[i].block);
    arrfree(list);
    arrfree(kernel);
}

static int64_t ein__estimate_call_group(ein_ctx *ctx, const ein__call *call) {
    const ein__gemm *list[EIN__GROUP_MEMBERS];
    for (int i = 0; i < call->products; i++) list[i] = &call->product[i];
    return ein__estimate_group(ctx, list, call->products);
}

// What was measured on the context's GPU beside what would be estimated: key, picoseconds, spread,
// estimate. Kernels' keys do not tell what they compute and are left out.
EIN__FN void ein__emit_estimates(ein_ctx *ctx, ein__buf *out) {
    ein__call *list = NULL, call;
    for (ptrdiff_t i = 0; i < shlen(ctx->costs); i++)
        if (ein__call_of(ctx, ctx->costs[i].key, &call)) arrput(list, call);
    if (list) qsort(list, (size_t)arrlen(list), sizeof *list, ein__call_order);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__cost_row *r = ein__row_of(ctx, list[i].key);
        int64_t ps = list[i].products ? ein__estimate_call_group(ctx, &list[i])
                     : list[i].gemm   ? ein__estimate_gemm(ctx, &list[i].g)
                                      : ein__estimate_conv(ctx, &list[i].c, list[i].transposed);
        ein__putf(out, "%s\t%lld\t%lld\t%lld\n", list[i].key, (long long)r->ps,
                  (long long)(r->spread < 0 ? 0 : r->spread), (long long)ps);
    }
    arrfree(list);
}

// ------------------------------------------------------------------------------------ the program

enum { EIN__PROBE_KERNELS = 120 };  // in a program: nvcc takes about a third of a second for each

typedef struct ein__prober {
    ein_ctx *ctx;
    ein__call *call;
    ein__pkernel *kernel;  // of this part
    int convs, gemms, groups, spatial, kernels, known;
    ein__needs needs;
    bool typed, tf32, half, nhwc;
} ein__prober;

// Axes of the convolutions' descriptors. A program gives all of its own as many as the largest has,
// and the library may take other kernels then; programs of several models cannot.
static bool ein__probe_axes(ein__prober *z) {
    bool flat = false;
    z->spatial = 2;
    for (int i = 0; i < z->convs; i++) {
        if (z->call[i].c.spatial > 2) z->spatial = 3;
        else flat = true;
    }
    if (!flat || z->spatial == 2 || !z->ctx->more_calls) return true;
    ein__error(z->ctx, EIN_USAGE, (ein__pos){0, 0},
               "a model with three spatial axes needs a probe of its own");
    return false;
}

static void ein__put_probe_head(ein__prober *z, ein__buf *out) {
    const ein_ctx *ctx = z->ctx;
    const char *license = ctx->desc.license ? ctx->desc.license : "MIT-0";
    ein__putf(out,
              "// Code generated by einnet. DO NOT EDIT.\n// einnet-codegen: %d\n"
              "// SPDX-License-Identifier: ",
              EIN_CODEGEN);
    ein__put_comment(out, license, strlen(license));
    ein__putf(out,
              "\n// clang-format off\n//\n// Measures library calls for %s, %s: %d convolutions, "
              "%d products;\n// and %d kernels of %d that candidate plans have. Build and run:\n"
              "//     nvcc -O2 -arch=sm_%d probe.cu -o probe%s%s\n"
              "//     ./probe >> costs.tsv\n"
              "// With --help it tells what else it can do. Every kernel begins when the one "
              "before it is\n"
              "// over: what programs gain from early launches is in no row.\n",
              ein__gpu_of(ctx)->title, ein__math_title(ctx), z->convs, z->gemms + z->groups,
              z->kernels, z->known, ein__gpu_of(ctx)->cc, z->convs ? " -lcudnn" : "",
              z->gemms + z->groups ? " -lcublas -lcublasLt" : "");
    ein__put_section(out, "includes");
    ein__put(out, "#include <cuda_runtime.h>\n");
    if (z->gemms + z->groups) ein__put(out, "#include <cublasLt.h>\n#include <cublas_v2.h>\n");
    if (z->convs) ein__put(out, "#include <cudnn.h>\n");
    ein__put(out,
             "#include <limits.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
             "#include <time.h>\n");
    ein__emit_includes(out, z->needs | (ein__needs)z->half << EIN__NEED_HALF);
}

// The text of a block's lines with this mark; those of functions that were not put before.
static void ein__put_lines(ein_ctx *ctx, ein__buf *out, const char *block, const char *marks,
                           const char ***seen) {
    ein__buf text = {0};
    for (const char *s = block; *s;) {
        size_t n = strcspn(s, "\n");
        if (n > 1 && strchr(marks, s[1])) {
            ein__put_n(&text, s + 2, n - 2);
            ein__put(&text, "\n");
        }
        s += n + (s[n] != 0);
        bool ends = !*s || s[1] == '<' || s[1] == '|';
        if (!text.n || (s[0] && !ends)) continue;
        if (*marks == '|' && *s) continue;
        if (ein__is_new(seen, ein__name(ctx, text.s))) ein__putf(out, "%s\n", text.s);
        text.n = 0;
        text.s[0] = 0;
    }
    ein__buf_free(&text);
}

// The kernels, each distinct text once, and the functions that they call.
static void ein__put_probe_texts(ein__prober *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char **seen = NULL;
    ein__put_section(out, "kernels");
    ein__emit_helpers(ctx, out, z->needs);
    for (int i = 0; i < z->kernels; i++) {
        ein__put_lines(ctx, out, z->kernel[i].block, "<>", &seen);
        ein__put_lines(ctx, out, z->kernel[i].block, "|", &seen);
    }
    arrfree(seen);
}

// A kernel's ID and tile as part of a name.
static const char *ein__launch_name(ein_ctx *ctx, const char *key) {
    const char *id = strchr(key + 7, ' ') + 1, *tile = strstr(key, " algo=");
    ein__buf b = {0};
    ein__put(&b, "launch_");
    ein__put_n(&b, id, 16);
    if (tile) ein__put(&b, "_");
    for (const char *s = tile ? tile + 6 : ""; *s; s++) ein__put_n(&b, *s == '.' ? "_" : s, 1);
    const char *name = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return name;
}

// A function that launches a kernel on buffers, and its line in the list.
static void ein__put_probe_launch(ein__prober *z, ein__buf *out, ein__buf *list,
                                  const ein__pkernel *k) {
    const char *name = ein__launch_name(z->ctx, k->key), *type;
    int64_t n, at;
    int arg = 0;
    ein__putf(out, "static void %s(char *const *v, cudaStream_t stream) {\n", name);
    // One line, as launches are in emitted files.
    ein__putf(out, "    %s<<<dim3(%lld, %lld, %lld), dim3(%lld, %lld, %lld), %lld, stream>>>(",
              k->name, (long long)k->grid[0], (long long)k->grid[1], (long long)k->grid[2],
              (long long)k->block_size[0], (long long)k->block_size[1], (long long)k->block_size[2],
              (long long)k->smem);
    ein__putf(list, "    {\"%s\", \"%s\", %s, (const void *)%s, %lld, %d, {", k->key,
              strrchr(k->name, '_') + 1, name, k->name, (long long)k->smem, k->narg);
    for (const char *s = strstr(k->block, "\n\t@"); s; s = strstr(s + 1, "\n\t@"), arg++) {
        if (!ein__read_argument(s + 3, &type, &n, &at)) continue;
        ein__putf(out, "%s(%s *)v[%d]", arg ? ", " : "", type, arg);
        if (at) ein__putf(out, " + %lld", (long long)at);
        bool real = !strcmp(type, ein__kctype(EIN__F32)) || !strcmp(type, ein__kctype(EIN__F16)) ||
                    !strcmp(type, ein__kctype(EIN__BF16));
        ein__putf(list, "%s{%lldull * sizeof(%s), %d}", arg ? ", " : "", (long long)(n + at), type,
                  real);
    }
    ein__put(out, ", false);\n}\n\n");
    ein__put(list, "}},\n");
}

static void ein__put_probe_launches(ein__prober *z, ein__buf *out) {
    ein__buf list = {0};
    int most = 1;
    ein__put(&list, "static const kernel_case kernel_cases[] = {\n");
    ein__put(out, "\n");
    for (int i = 0; i < z->kernels; i++) {
        if (z->kernel[i].narg > most) most = z->kernel[i].narg;
        ein__put_probe_launch(z, out, &list, &z->kernel[i]);
    }
    ein__put(&list, "};\n");
    ein__key types[] = {{"operands", ein__number_text(z->ctx, most)}, {"list", list.s}};
    ein__tmpl_put(out, ein__tmpl_probe_types, types, EIN__COUNT(types));
    ein__buf_free(&list);
}

// The convolutions that are measured.
static ein__conv_text ein__probe_form(const ein__prober *z) {
    return (ein__conv_text){.model = "probe",
                            .limit = "conv_limit(s)",
                            .spatial = z->spatial,
                            .settings = EIN__SETTINGS,
                            .typed = z->typed,
                            .tf32 = z->tf32,
                            .nhwc = z->nhwc,
                            .engines = true,
                            .transposed = true,
                            .probe = true};
}

static void ein__put_probe_convs(ein__prober *z, ein__buf *out) {
    const ein__conv_text form = ein__probe_form(z);
    ein__put(out, "static const conv_size conv_sizes[] = {\n");
    for (int i = 0; i < z->convs; i++)
        ein__put_conv_size(out, &form, z->call[i].key, &z->call[i].c, z->call[i].transposed,
                           z->call[i].c.z.i ? ", 1" : ", 0");
    ein__put(out, "};\n");
}

static void ein__put_probe_gemms(ein__prober *z, ein__buf *out) {
    ein__put(out, "static const matmul_size matmul_sizes[] = {\n");
    for (int i = z->convs; i < z->convs + z->gemms; i++) {
        ein__step step = {.name = z->call[i].key, .gemm = z->call[i].g};
        ein__put_matmul_size(out, &step, z->typed, false);
    }
    ein__put(out, z->gemms ? "};\n" : "    {},\n};\n");
}

// Calls of several products, and how they are made.
static void ein__put_probe_groups(ein__prober *z, ein__buf *out) {
    ein__buf rows = {0}, calls = {0};
    int first = 0;
    ein__put(&rows, "static const gemm_size grouped_sizes[] = {\n");
    ein__put(&calls, "};\nstatic const group_size group_sizes[] = {\n");
    for (int i = z->convs + z->gemms; i < z->convs + z->gemms + z->groups; i++) {
        const ein__call *call = &z->call[i];
        ein__put(&calls, "    {");
        ein__put_string(&calls, call->key);
        ein__putf(&calls, ", %d, %d, 0},\n", first, call->products);
        first += call->products;
        for (int k = 0; k < call->products; k++) {
            ein__put(&rows, "    {");
            ein__put_gemm_size(&rows, "", &call->product[k], z->typed);
            ein__put(&rows, "},\n");
        }
    }
    ein__putf(&rows, "%s};\n", calls.s);
    ein__key keys[] = {{"typed", z->typed ? "1" : ""}, {"tables", rows.s}};
    ein__tmpl_put(out, ein__tmpl_probe_grouped, keys, EIN__COUNT(keys));
    ein__put(out, "\n");
    ein__buf_free(&rows);
    ein__buf_free(&calls);
}

// What is to be measured: tables of calls, launches of kernels.
static void ein__put_probe_tables(ein__prober *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const ein__conv_text form = ein__probe_form(z);
    if (z->convs) {
        ein__emit_conv_types(ctx, out, &form);
        ein__put_probe_convs(z, out);
        ein__put(out, "\n");
    }
    if (z->gemms + z->groups) {
        ein__emit_matmul_types(out, z->typed, false);
        ein__put_probe_gemms(z, out);
        ein__put(out, "\n");
    }
    if (z->groups) {
        ein__emit_group_types(ctx, out, EIN__GROUP_MEMBERS, EIN__GROUP_PROBLEMS);
        ein__put(out, "\n");
    }
    if (z->kernels) {
        ein__put_probe_launches(z, out);
        ein__put(out, "\n");
    }
}

// The probe's state, and the functions that make calls.
static void ein__put_probe_calls(ein__prober *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *convs = ein__number_text(ctx, z->convs), *gemms = ein__number_text(ctx, z->gemms);
    const char *blas = ein__number_text(ctx, z->gemms + z->groups);
    const ein__conv_text form = ein__probe_form(z);
    ein__key state[] = {{"kernels", ein__number_text(ctx, z->kernels)},
                        {"conv", convs},
                        {"gemm", blas},
                        {"convs", convs},
                        {"gemms", gemms},
                        {"groups", ein__number_text(ctx, z->groups)},
                        {"spatial", ein__number_text(ctx, z->spatial)},
                        {"size", z->typed ? "(s->half ? 2u : 4u)" : "4"}};
    ein__tmpl_put(out, ein__tmpl_probe_state, state, EIN__COUNT(state));
    ein__put(out, "\n");
    ein__emit_call_macros(out, "probe", z->convs > 0, z->gemms + z->groups > 0, false, false);
    if (z->convs) {
        ein__put(out, "\n");
        ein__emit_conv(ctx, out, &form);
    }
    if (z->gemms + z->groups) {
        ein__put(out, "\n");
        ein__emit_gemm(out, "probe", z->typed, z->tf32, false);
        ein__put(out, "\n");
        ein__emit_matmul(out, "probe", "m->cublas_workspace", z->typed, false, false);
    }
    if (z->groups) {
        ein__put(out, "\n");
        ein__emit_group_member(out);
        ein__put_probe_groups(z, out);
    }
}

static void ein__put_probe(ein__prober *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *convs = ein__number_text(ctx, z->convs);
    const char *blas = ein__number_text(ctx, z->gemms + z->groups);
    const char *kernels = ein__number_text(ctx, z->kernels);
    ein__put_probe_head(z, out);
    if (z->kernels) ein__put_probe_texts(z, out);
    ein__put_section(out, "calls");
    ein__put_probe_tables(z, out);
    ein__put_probe_calls(z, out);
    ein__put_section(out, "measuring");
    if (z->convs) {
        ein__key engine[] = {{"settings", ein__number_text(ctx, EIN__SETTINGS)}};
        ein__tmpl_put(out, ein__tmpl_probe_engine, engine, EIN__COUNT(engine));
        ein__put(out, "\n");
    }
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__key probe[] = {{"conv", convs},
                        {"gemm", blas},
                        {"grouped", ein__number_text(ctx, z->groups)},
                        {"gpu", g->name},
                        {"typed", z->typed ? "1" : ""},
                        {"half", z->typed || z->half ? "1" : ""},
                        {"kernels", kernels},
                        {"calls", ein__number_text(ctx, z->convs + z->gemms + z->groups)},
                        {"codegen", ein__number_text(ctx, EIN_CODEGEN)}};
    ein__tmpl_put(out, ein__tmpl_probe, probe, EIN__COUNT(probe));
}

// Of the calls and kernels left those of this part: calls are the first one's.
static void ein__probe_part(ein__prober *z, ein__pkernel *kernel) {
    const ein_desc *d = &z->ctx->desc;
    int parts = d->parts > 1 ? d->parts : 1, part = d->parts > 1 ? d->part : 1;
    int most = d->kernels ? d->kernels : EIN__PROBE_KERNELS;
    z->known = (int)arrlen(kernel);
    for (int i = part - 1; i < z->known && z->kernels < most && d->kernels >= 0; i += parts) {
        arrput(z->kernel, kernel[i]);
        z->kernels++;
        for (int k = 0; k < 2; k++) z->needs |= (ein__needs)kernel[i].needs[k] << 32 * k;
        z->half |= kernel[i].half;
    }
    if (part > 1) arrsetlen(z->call, 0);
}

EIN__FN void ein__emit_probe(ein_ctx *ctx, ein__buf *out) {
    ein__pkernel *kernel = ein__kernels_left(ctx);
    ein__prober z = {.ctx = ctx, .call = ein__calls_left(ctx)};
    ein__probe_part(&z, kernel);
    for (ptrdiff_t i = 0; i < arrlen(z.call); i++) {
        bool group = z.call[i].products > 0, gemm = z.call[i].gemm;
        ein__math math = group || gemm ? z.call[i].g.math : z.call[i].c.math;
        z.groups += group;
        z.gemms += gemm;
        z.convs += !group && !gemm;
        z.typed |= math != EIN__MATH_FP32;
        z.tf32 |= math == EIN__MATH_TF32;
        z.nhwc |= z.call[i].c.nhwc;
    }
    if (!ctx->status && ein__probe_axes(&z)) {
        if (z.convs + z.gemms + z.groups + z.kernels) {
            ein__put_probe(&z, out);
        } else {
            ein__put_probe_head(&z, out);
            ein__put(out, "\n// The tables have every call.\nint main() { return 0; }\n");
        }
    }
    arrfree(z.call);
    arrfree(z.kernel);
    arrfree(kernel);
}
