// The probe: a program that measures the library calls which planning asked for and no table of
// costs has, and prints rows for such a table. A call's key tells everything about it, so calls of
// several models are collected as keys, and the program is made from them.

typedef struct ein__call {
    const char *key;
    bool gemm, transposed;
    ein__gemm g;
    ein__conv c;
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

// What follows in the key of a product with an epilogue.
static bool ein__key_epilogue(const char **s, ein__gemm *g) {
    static const char *const act[] = {"none", "relu", "gelu"};
    int64_t bias = 0, z = 0, align = 0;
    bool ok = ein__key_number(s, " bias=", &bias, 1) && ein__key_number(s, " z=", &z, 1) &&
              !strncmp(*s, " act=", 5);
    if (!ok || g->math != EIN__MATH_FP32) return false;
    int k = 0;
    while (k < 2 && strncmp(*s + 5, act[k], 4)) k++;
    if (strncmp(*s + 5, act[k], 4)) return false;
    *s += 9;
    g->act = (ein__act)k;
    g->bias.i = bias != 0;
    g->z.i = z != 0;
    ok = ein__key_number(s, " align=", &align, 16) && (align == 4 || align == 8 || align == 16);
    if (ok && z) ok = ein__key_number(s, " ldz=", &g->ldz, INT32_MAX) && g->ldz >= g->n;
    if (ok && z && g->batch > 1) ok = ein__key_number(s, " sz=", &g->sz, EIN__MAX_ELEMENTS);
    g->align = (int)align;
    return ok;
}

static bool ein__key_gemm(const char *s, ein__gemm *g) {
    int64_t ta = 0, tb = 0, most = INT32_MAX;
    *g = (ein__gemm){.alpha = 1};
    bool ok = ein__key_word(&s, "gemm ") && ein__key_math(&s, &g->math) &&
              ein__key_number(&s, " b=", &g->batch, most) &&
              ein__key_number(&s, " m=", &g->m, most) && ein__key_number(&s, " n=", &g->n, most) &&
              ein__key_number(&s, " k=", &g->k, most) && ein__key_number(&s, " ta=", &ta, 1) &&
              ein__key_number(&s, " tb=", &tb, 1) && ein__key_number(&s, " lda=", &g->lda, most) &&
              ein__key_number(&s, " ldb=", &g->ldb, most) &&
              ein__key_number(&s, " ldc=", &g->ldc, most);
    if (ok && g->batch > 1)
        ok = ein__key_number(&s, " sa=", &g->sa, EIN__MAX_ELEMENTS) &&
             ein__key_number(&s, " sb=", &g->sb, EIN__MAX_ELEMENTS) &&
             ein__key_number(&s, " sc=", &g->sc, EIN__MAX_ELEMENTS);
    g->wide = ok && ein__key_word(&s, " out=f32");
    g->ta = ta != 0;
    g->tb = tb != 0;
    g->align = 16;
    if (ok && *s) ok = ein__key_epilogue(&s, g);
    return ok && g->batch > 0 && g->m > 0 && g->n > 0 && g->k > 0;
}

static bool ein__key_conv(const char *s, ein__conv *c, bool *transposed) {
    static const char *const names[] = {" in=", " out=", " k=", " s=", " p=", " d="};
    int64_t *const axes[] = {c->in, c->out, c->k, c->stride, c->pad, c->dilation};
    int64_t bias = 0, z = 0, relu = 0, most = INT32_MAX;
    *c = (ein__conv){0};
    *transposed = ein__key_word(&s, "conv_data ");
    bool ok = (*transposed || ein__key_word(&s, "conv ")) && ein__key_math(&s, &c->math) &&
              ein__key_number(&s, " nchw n=", &c->n, most) &&
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
    return ok && c->n > 0 && c->c > 0 && c->f > 0 && c->group > 0;
}

// The call that `key` tells; false when it is no key of a call that a library could take.
static bool ein__call_of(ein_ctx *ctx, const char *key, ein__call *call) {
    *call = (ein__call){.key = key, .gemm = !strncmp(key, "gemm", 4)};
    if (call->gemm)
        return ein__key_gemm(key, &call->g) && ein__gemm_key(ctx, &call->g) == ein__name(ctx, key);
    return ein__key_conv(key, &call->c, &call->transposed) &&
           ein__conv_key(ctx, &call->c, call->transposed) == ein__name(ctx, key);
}

EIN__FN bool ein__add_calls(ein_ctx *ctx, const char *text, size_t length) {
    const char *end = text + length;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        const char *key = ein__name_n(ctx, text, (size_t)(stop - text));
        ein__call call;
        if (*key && !ein__call_of(ctx, key, &call)) {
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "not a library call: '%s'", key);
            return false;
        }
        if (*key) ein__record_call(ctx, key);
        if (*key) ctx->more_calls = true;
        text = stop + 1;
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
    for (ptrdiff_t i = 0; i < shlen(ctx->calls); i++)
        if (!ein__measured(ctx, ctx->calls[i].key, &ps) &&
            ein__call_of(ctx, ctx->calls[i].key, &call))
            arrput(list, call);
    if (list) qsort(list, (size_t)arrlen(list), sizeof *list, ein__call_order);
    return list;
}

EIN__FN void ein__emit_call_keys(ein_ctx *ctx, ein__buf *out) {
    ein__call *list = ein__calls_left(ctx);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) ein__putf(out, "%s\n", list[i].key);
    arrfree(list);
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
        int64_t ps = list[i].gemm ? ein__estimate_gemm(ctx, &list[i].g)
                                  : ein__estimate_conv(ctx, &list[i].c, list[i].transposed);
        ein__putf(out, "%s\t%lld\t%lld\t%lld\n", list[i].key, (long long)r->ps,
                  (long long)(r->spread < 0 ? 0 : r->spread), (long long)ps);
    }
    arrfree(list);
}

// ------------------------------------------------------------------------------------ the program

typedef struct ein__prober {
    ein_ctx *ctx;
    ein__call *call;
    int convs, gemms, spatial;
    bool typed, tf32;
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
              "%d products. Build and run:\n"
              "//     nvcc -O2 -arch=sm_%d probe.cu -o probe%s%s\n"
              "//     ./probe >> costs.tsv\n"
              "// With --help it tells what else it can do.\n",
              ein__gpu_of(ctx)->title, ein__math_title(ctx), z->convs, z->gemms,
              ein__gpu_of(ctx)->cc, z->convs ? " -lcudnn" : "",
              z->gemms ? " -lcublas -lcublasLt" : "");
    ein__put_section(out, "includes");
    ein__put(out, "#include <cuda_runtime.h>\n");
    if (z->gemms) ein__put(out, "#include <cublasLt.h>\n#include <cublas_v2.h>\n");
    if (z->convs) ein__put(out, "#include <cudnn.h>\n");
    ein__put(out,
             "#include <limits.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
             "#include <time.h>\n");
}

static void ein__put_probe_convs(ein__prober *z, ein__buf *out) {
    ein__put(out, "static const conv_size conv_sizes[] = {\n");
    for (int i = 0; i < z->convs; i++)
        ein__put_conv_size(out, z->call[i].key, &z->call[i].c, z->call[i].transposed, z->spatial,
                           z->typed, "");
    ein__put(out,
             "};\n// Whether something is added to the result beside the bias.\n"
             "static const unsigned char conv_residual[] = {");
    for (int i = 0; i < z->convs; i++)
        ein__putf(out, "%s%d,", i % 30 ? " " : "\n    ", z->call[i].c.z.i != 0);
    ein__put(out, "\n};\n");
}

static void ein__put_probe_gemms(ein__prober *z, ein__buf *out) {
    ein__put(out, "static const matmul_size matmul_sizes[] = {\n");
    for (int i = z->convs; i < z->convs + z->gemms; i++) {
        ein__step step = {.name = z->call[i].key, .gemm = z->call[i].g};
        ein__put_matmul_size(out, &step, z->typed, false);
    }
    ein__put(out, "};\n");
}

static void ein__put_probe(ein__prober *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *convs = ein__number_text(ctx, z->convs), *gemms = ein__number_text(ctx, z->gemms);
    const char *spatial = ein__number_text(ctx, z->spatial);
    ein__put_probe_head(z, out);
    ein__put_section(out, "calls");
    const char *typed = z->typed ? "1" : "", *tf32 = z->tf32 ? "1" : "";
    ein__key types[] = {{"spatial", spatial}, {"pins", "0"}, {"typed", typed}};
    if (z->convs) {
        ein__tmpl_put(out, ein__tmpl_conv_types, types, 3);
        ein__put_probe_convs(z, out);
        ein__put(out, "\n");
    }
    if (z->gemms) {
        ein__tmpl_put(out, ein__tmpl_matmul_types, types + 1, 2);
        ein__put_probe_gemms(z, out);
        ein__put(out, "\n");
    }
    ein__key state[] = {{"conv", convs},      {"gemm", gemms},
                        {"convs", convs},     {"gemms", gemms},
                        {"spatial", spatial}, {"size", z->typed ? "(s->half ? 2u : 4u)" : "4"}};
    ein__tmpl_put(out, ein__tmpl_probe_state, state, 6);
    ein__put(out, "\n");
    ein__emit_call_macros(out, "probe", z->convs > 0, z->gemms > 0, false);
    ein__key conv[] = {{"model", "probe"},
                       {"spatial", spatial},
                       {"rank", ein__number_text(ctx, z->spatial + 2)},
                       {"limit", "conv_limit(s)"},
                       {"pins", "0"},
                       {"typed", typed},
                       {"tf32", tf32},
                       {"elementdatatype", *typed ? "type" : "CUDNN_DATA_FLOAT"},
                       {"param", *typed ? ", cudnnDataType_t type" : ""},
                       {"arg", *typed ? ", type" : ""},
                       {"scalar", *typed ? "void" : "float"},
                       {"steps", "0"}};
    if (z->convs) {
        ein__put(out, "\n");
        ein__tmpl_put(out, ein__tmpl_conv, conv, 12);
    }
    ein__key gemm[] = {{"model", "probe"},
                       {"typed", typed},
                       {"tf32", tf32},
                       {"scalar", *typed ? "void" : "float"},
                       {"steps", "0"}};
    if (z->gemms) {
        ein__put(out, "\n");
        ein__tmpl_put(out, ein__tmpl_gemm, gemm, 5);
        ein__put(out, "\n");
        ein__emit_matmul(out, "probe", "m->cublas_workspace", z->typed, false, false);
    }
    ein__put_section(out, "measuring");
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__key probe[] = {{"conv", convs}, {"gemm", gemms}, {"gpu", g->name}, {"typed", typed}};
    ein__tmpl_put(out, ein__tmpl_probe, probe, 4);
}

EIN__FN void ein__emit_probe(ein_ctx *ctx, ein__buf *out) {
    ein__prober z = {.ctx = ctx, .call = ein__calls_left(ctx)};
    for (ptrdiff_t i = 0; i < arrlen(z.call); i++) {
        ein__math math = z.call[i].gemm ? z.call[i].g.math : z.call[i].c.math;
        if (z.call[i].gemm) z.gemms++;
        else z.convs++;
        z.typed |= math != EIN__MATH_FP32;
        z.tf32 |= math == EIN__MATH_TF32;
    }
    if (!ctx->status && ein__probe_axes(&z)) {
        if (z.convs + z.gemms) {
            ein__put_probe(&z, out);
        } else {
            ein__put_probe_head(&z, out);
            ein__put(out, "\n// The tables have every call.\nint main() { return 0; }\n");
        }
    }
    arrfree(z.call);
}
