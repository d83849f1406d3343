// The companion test program: kernels straight from the model's equations, one a value, and fixed
// host code that compares the emitted program with them, times it, reads and writes .npy files.

// Names of values and of reference functions that are unique in the file: two different ones that
// would meet are told apart by a hash.
typedef struct ein__tnames {
    struct {
        char *key;
        int value;
    } * taken;
} ein__tnames;

static const char *ein__tunique(ein_ctx *ctx, ein__tnames *names, const char *prefix,
                                const char *name) {
    const char *plain = ein__namef(ctx, "%s%s", prefix, ein__plain_name(ctx, name));
    const char *unique = plain;
    uint64_t h = ein__fnv(EIN__FNV_START, name, strlen(name));
    while (shgeti(names->taken, unique) >= 0) {
        unique = ein__namef(ctx, "%s_%08x", plain, (unsigned)(h ^ h >> 32));
        h = ein__splitmix(h);
    }
    shput(names->taken, unique, 1);
    return unique;
}

typedef struct ein__tester {
    ein_ctx *ctx;
    ein__val *order;    // values as lowered, operands first, those of a node in a row
    ein__val *output;   // by graph output
    int *last;          // by value id: position of the last reader; INT32_MAX: kept
    const char **name;  // by value id: its enumerator
    ein__tnames names;
    struct {
        char *key;
        const char *value;
    } * kernel;  // texts by name
    ein__buf kernels, steps;
    ein__stored *stored;  // ein_desc.inspect: values to compare; stb_ds array
    ein__needs needs;
} ein__tester;

static ein__dtype ein__ttype(const ein__tester *z, ein__val v) {
    const ein__value *p = ein__val_get(z->ctx, v);
    bool half = p->dtype == EIN__F16 || p->dtype == EIN__BF16;
    return half && p->kind == EIN__V_SCOPE ? EIN__F32 : p->dtype;
}

static int64_t ein__tbytes(const ein__tester *z, ein__val v) {
    return ein__elements(&ein__val_get(z->ctx, v)->shape) * ein__dtype_size(ein__ttype(z, v));
}

static bool ein__thalf(const ein_ctx *ctx) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.tensor); i++)
        if (ctx->graph.tensor[i].dtype == EIN__F16 || ctx->graph.tensor[i].dtype == EIN__BF16)
            return true;
    return false;
}

// A value reads only older ones, and lowering goes through the nodes in order: by age, operands
// come first and the values of a node stand together.
static void ein__torder(ein__tester *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.output); i++)
        arrput(z->output, ctx->tensor_value[ctx->graph.output[i].tensor]);
    ein__val *live = ein__live(ctx, z->output, (int)arrlen(z->output));
    bool *needed = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) arrput(needed, false);
    for (ptrdiff_t i = 0; i < arrlen(live); i++) needed[live[i].i] = true;
    for (ptrdiff_t i = 1; i < arrlen(ctx->value); i++)
        if (needed[i]) arrput(z->order, ((ein__val){(uint32_t)i}));
    arrfree(needed);
    arrfree(live);
}

static void ein__tlast(ein__tester *z) {
    ein_ctx *ctx = z->ctx;
    arrsetlen(z->last, arrlen(ctx->value));
    arrsetlen(z->name, arrlen(ctx->value));
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) z->last[i] = -1;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        const ein__value *p = ein__val_get(ctx, z->order[i]);
        z->name[z->order[i].i] = ein__tunique(ctx, &z->names, "v_", p->name);
        if (p->kind != EIN__V_SCOPE) {
            z->last[z->order[i].i] = INT32_MAX;
            continue;
        }
        const ein__ex *reads = ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            EIN_ASSERT(v < z->order[i].i);
            if (z->last[v] < (int)i) z->last[v] = (int)i;
        }
    }
    for (ptrdiff_t i = 0; i < arrlen(z->output); i++) z->last[z->output[i].i] = INT32_MAX;
    if (ctx->desc.inspect) z->stored = ein__stored_values(ctx);
    for (ptrdiff_t i = 0; i < arrlen(z->stored); i++) z->last[z->stored[i].own.i] = INT32_MAX;
}

// The operator's name in lower case, so that kernels of the same text share one name.
static const char *ein__thint(ein_ctx *ctx, const ein__value *p) {
    const char *op = p->node >= 0 ? ctx->graph.node[p->node].op : NULL;
    ein__buf b = {0};
    if (!op) return "equation";
    for (; *op; op++) {
        char c = *op >= 'A' && *op <= 'Z' ? (char)(*op + 32) : *op;
        ein__put_n(&b, &c, 1);
    }
    const char *hint = ein__plain_name(ctx, b.s ? b.s : "");
    ein__buf_free(&b);
    return hint;
}

static void ein__tequation(ein__tester *z, ein__buf *out, ein__val v) {
    ein__emitter e = {.ctx = z->ctx};
    ein__put_algebra(&e, out, v, "");
}

static bool ein__tkernel(ein__tester *z, ein__val v, ein__launch *l) {
    ein_ctx *ctx = z->ctx;
    ein__buf text = {0};
    ein__emit_naive(ctx, v, ein__thint(ctx, ein__val_get(ctx, v)), &text, l);
    if (!ctx->status && !l->name)
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "%s: addresses exceed 64 bits",
                   ein__val_get(ctx, v)->name);
    if (!ctx->status) {
        const char *copy = ein__name(ctx, text.s);
        ptrdiff_t known = shgeti(z->kernel, l->name);
        if (known >= 0 && z->kernel[known].value != copy)
            ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "two kernels are called %s", l->name);
        if (known < 0) {
            shput(z->kernel, l->name, copy);
            ein__put(&z->kernels, "\n");
            ein__tequation(z, &z->kernels, v);
            ein__put(&z->kernels, copy);
        }
        z->needs |= l->needs;
    }
    ein__buf_free(&text);
    return !ctx->status;
}

// Makes value order[i] and frees what it is the last to read.
static void ein__tvalue(ein__tester *z, ein__buf *out, ptrdiff_t i) {
    ein__val v = z->order[i];
    ein__launch l;
    if (!ein__tkernel(z, v, &l)) return;
    ein__putf(out, "    TRY(r->make(%s, %lld));\n    %s<<<", z->name[v.i],
              (long long)ein__tbytes(z, v), l.name);
    EIN_ASSERT(l.grid[1] == 1 && l.grid[2] == 1 && l.block[1] == 1 && l.block[2] == 1 && !l.smem);
    ein__putf(out, "%u, %u, 0, s>>>(", l.grid[0], l.block[0]);
    for (int k = 0; k < l.narg; k++) ein__putf(out, "%sv[%s]", k ? ", " : "", z->name[l.arg[k].i]);
    ein__put(out, ");\n    TRY(r->done(");
    const char *separator = "";
    for (int k = 0; k + 1 < l.narg; k++) {
        if (z->last[l.arg[k].i] != (int)i) continue;
        ein__putf(out, "%s%s", separator, z->name[l.arg[k].i]);
        separator = ", ";
    }
    ein__put(out, "));\n");
}

enum { EIN__TLAUNCHES = 40 };

// All values in order, as functions of bounded length and one that calls them.
static void ein__tsteps(ein__tester *z) {
    ein_ctx *ctx = z->ctx;
    int n = 0;
    for (ptrdiff_t i = 0; !ctx->status && i < arrlen(z->order); i++) {
        if (ein__val_get(ctx, z->order[i])->kind != EIN__V_SCOPE) continue;
        if (n++ % EIN__TLAUNCHES == 0)
            ein__putf(&z->steps,
                      "%s\nstatic int reference_%d(reference *r) {\n"
                      "    buffer *v = r->value;\n    cudaStream_t s = r->t->stream;\n",
                      n > 1 ? "    return 0;\n}\n" : "", (n - 1) / EIN__TLAUNCHES + 1);
        ein__tvalue(z, &z->steps, i);
    }
    if (n) ein__put(&z->steps, "    return 0;\n}\n");
    ein__put(&z->steps, "\nstatic int reference_run(reference *r) {\n");
    if (!n) ein__put(&z->steps, "    (void)r;\n");
    for (int i = 0; i < n; i += EIN__TLAUNCHES)
        ein__putf(&z->steps, "    TRY(reference_%d(r));\n", i / EIN__TLAUNCHES + 1);
    ein__put(&z->steps, "    return 0;\n}\n");
}

// The position of a tensor among the model's inputs or weights.
static int ein__tposition(const int *list, int tensor) {
    int i = 0;
    while (list[i] != tensor) i++;
    return i;
}

// The rows of a table that says where values come from: in the input list or in the blob.
static void ein__tsources(ein__tester *z, ein__buf *out, ein__vkind kind) {
    const ein__graph *g = &z->ctx->graph;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        const ein__value *p = ein__val_get(z->ctx, z->order[i]);
        int64_t at, total;
        if (p->kind != kind) continue;
        if (kind == EIN__V_INPUT) at = ein__tposition(g->input, p->tensor);
        else at = ein__blob_offset(z->ctx, ein__tposition(g->weight, p->tensor), &total);
        ein__putf(out, "    {%s, %lld, %lld},\n", z->name[z->order[i].i], (long long)at,
                  (long long)ein__tbytes(z, z->order[i]));
    }
    ein__put(out, "    {VALUES, 0, 0}};\n");
}

// Text of the table from which the test program makes inputs that no file gives.
static const char *ein__tinputs(ein_ctx *ctx) {
    ein__buf b = {0};
    ein__put(&b, "static const source sources[INPUTS + 1] = {\n");
    for (int i = 0; i < (int)arrlen(ctx->graph.input); i++) {
        ein__tensor t = ein__input_source(ctx, i);
        ein__putf(&b, "    {%lluull, %s, ", (unsigned long long)t.seed,
                  t.source == EIN__S_RANDN ? "true" : "false");
        ein__put_real(&b, t.a);
        ein__put(&b, ", ");
        ein__put_real(&b, t.source == EIN__S_RANDN ? 0 : t.b);
        ein__put(&b, "},\n");
    }
    ein__put(&b, "    {0, false, 0, 0}};");
    const char *text = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return text;
}

static void ein__ttables(ein__tester *z, ein__buf *out) {
    // ORDER ein__dtype
    static const char *const type[EIN__NDTYPE] = {"F32", "F16", "BF16", "I8",
                                                  "U8",  "I32", "I64",  "BOOL"};
    size_t column = EIN__COLUMNS;
    ein__put(out, "enum {");
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        const char *name = z->name[z->order[i].i];
        bool wrap = column + strlen(name) + 2 > EIN__COLUMNS;
        ein__putf(out, "%s%s,", wrap ? "\n    " : " ", name);
        column = (wrap ? 3 : column) + strlen(name) + 2;
    }
    ein__put(out,
             "\n    VALUES\n};\n\n// Value, which input, bytes.\nstatic const struct { "
             "int value, input; size_t bytes; } reference_inputs[] = {\n");
    ein__tsources(z, out, EIN__V_INPUT);
    ein__put(out,
             "\n// Value, offset in the blob, bytes.\nstatic const struct { int value; "
             "size_t offset, bytes; } reference_weights[] = {\n");
    ein__tsources(z, out, EIN__V_WEIGHT);
    ein__put(out,
             "\n// Value, type in which the reference keeps it, elements.\nstatic const "
             "struct { int value, type; size_t count; } reference_outputs[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(z->output); i++)
        ein__putf(out, "    {%s, %s, %lld},\n", z->name[z->output[i].i],
                  type[ein__ttype(z, z->output[i])],
                  (long long)ein__elements(&ein__val_get(z->ctx, z->output[i])->shape));
    ein__put(out, "};\n\n");
    if (!z->ctx->desc.inspect) return;
    ein__tmpl_put(out, ein__tmpl_test_stored, NULL, 0);
    ein__put_stored(z->ctx, out, z->stored, z->name, type);
}

// Relative L2 error that an output may have. TF32 rounded to nearest reaches 3e-3 in deep networks;
// what a library drops instead of rounding is up to the same share of each layer. In FP32 its
// convolutions may be Winograd's or by Fourier transforms, which lose some digits.
static const char *ein__ttolerance(const ein_ctx *ctx, bool conv) {
    if (ein__thalf(ctx) || ctx->desc.math == EIN_MATH_FP16) return "1e-2";
    if (ctx->desc.math == EIN_MATH_TF32) return "2e-2";
    return conv ? "1e-4" : "1e-5";
}

static void ein__tbase(ein__tester *z, ein__buf *out, bool conv, bool gemm) {
    ein_ctx *ctx = z->ctx;
    ein__key keys[] = {{"model", ein__symbol(ctx)},
                       {"inputs", ein__namef(ctx, "%d", (int)arrlen(ctx->graph.input))},
                       {"outputs", ein__namef(ctx, "%d", (int)arrlen(ctx->graph.output))},
                       {"tolerance", ein__ttolerance(ctx, conv)},
                       {"conv", conv ? "1" : "0"},
                       {"gemm", gemm ? "1" : "0"},
                       {"errors", ctx->desc.inspect ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_test_base, keys, EIN__COUNT(keys));
}

static void ein__tfree(ein__tester *z) {
    arrfree(z->order);
    arrfree(z->output);
    arrfree(z->last);
    ein__stored_free(z->stored);
    arrfree(z->name);
    shfree(z->names.taken);
    shfree(z->kernel);
    ein__buf_free(&z->kernels);
    ein__buf_free(&z->steps);
}

static void ein__thead(ein__tester *z, ein__buf *out, bool conv, bool gemm) {
    static const char *const header[] = {"errno", "limits", "math",   "stddef",
                                         "stdio", "stdlib", "string", "time"};
    const char *name = ein__symbol(z->ctx);
    ein__emit_banner(z->ctx, out);
    ein__putf(out,
              "//\n// Checks and times the program in %s.cu. Build and run:\n"
              "//     nvcc -O2 %s_test.cu %s.cu%s%s\n"
              "//     ./a.out WEIGHTS --check --bench\n"
              "// Without arguments it prints what else it can do.\n",
              name, name, name, conv ? " -lcudnn" : "", gemm ? " -lcublasLt -lcublas" : "");
    ein__put_section(out, "includes");
    ein__put(out, "#include <cuda_runtime.h>\n");
    if (gemm) ein__put(out, "#include <cublas_v2.h>\n");
    if (conv) ein__put(out, "#include <cudnn.h>\n");
    for (size_t i = 0; i < sizeof header / sizeof *header; i++)
        ein__putf(out, "#include <%s.h>\n", header[i]);
    ein__emit_includes(out, z->needs);
    ein__put(out, "#ifdef NVTX\n#include <nvtx3/nvToolsExt.h>\n#endif\n");
    ein__put_section(out, "interface");
    ein__emit_interface(z->ctx, out);
}

EIN__FN void ein__emit_test(ein_ctx *ctx, ein__buf *out) {
    ein__tester z = {.ctx = ctx};
    bool conv = false, gemm = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        gemm |= ctx->plan.step[i].kind == EIN__K_GEMM;
        conv |= ctx->plan.step[i].kind == EIN__K_CONV || ctx->plan.step[i].kind == EIN__K_CONV_DATA;
    }
    ein__torder(&z);
    ein__tlast(&z);
    ein__put(&z.kernels, "");
    ein__tsteps(&z);
    if (!ctx->status) {
        ein__thead(&z, out, conv, gemm);
        ein__put(out, "\nnamespace einnet_test {\n");
        ein__put_section(out, "basics");
        ein__tbase(&z, out, conv, gemm);
        ein__put_section(out, "elements and files");
        ein__key sources = {"sources", ein__tinputs(ctx)};
        ein__tmpl_put(out, ein__tmpl_test_data, &sources, 1);
        ein__put_section(out, "the reference: the model's equations, one kernel a value");
        ein__ttables(&z, out);
        ein__tmpl_put(out, ein__tmpl_test_reference, NULL, 0);
        ein__put_n(out, z.kernels.s, z.kernels.n);
        ein__put_n(out, z.steps.s, z.steps.n);
        ein__put_section(out, "comparison");
        ein__key errors[] = {{"errors", ctx->desc.inspect ? "1" : ""}};
        if (ctx->desc.inspect) {
            ein__tmpl_put(out, ein__tmpl_test_errors, NULL, 0);
            ein__put(out, "\n");
        }
        ein__tmpl_put(out, ein__tmpl_test_check, errors, EIN__COUNT(errors));
        ein__put_section(out, "figures");
        ein__tmpl_put(out, ein__tmpl_test_bench, NULL, 0);
        ein__put_section(out, "times of steps");
        ein__tmpl_put(out, ein__tmpl_test_steps, NULL, 0);
        ein__put_section(out, "the program");
        ein__tmpl_put(out, ein__tmpl_test_main, errors, EIN__COUNT(errors));
        ein__put(out,
                 "\n}  // namespace einnet_test\n\n"
                 "int main(int argc, char **argv) { return einnet_test::run(argc, argv); }\n");
    }
    ein__tfree(&z);
}
