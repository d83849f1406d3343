// The emitted files, section after section in their fixed order.

static const char *ein__number_text(ein_ctx *ctx, int64_t v) {
    return ein__namef(ctx, "%lld", (long long)v);
}

// Bytes for an allocation; 0, which switches template lines off, stays 0.
static const char *ein__bytes_text(ein_ctx *ctx, int64_t v) {
    return v ? ein__namef(ctx, "%lldull", (long long)v) : "0";
}

// Number of branches; empty for one, which switches template lines off.
static const char *ein__branches_text(ein_ctx *ctx) {
    return ctx->plan.branches > 1 ? ein__number_text(ctx, ctx->plan.branches) : "";
}

// The array of kernels that have to ask for their shared memory, or nothing.
static const char *ein__large_list(const ein__emitter *z) {
    if (!z->large.n) return "";
    return ein__namef(z->ctx, "static const kernel_size large[] = {\n%s};\n", z->large.s);
}

static void ein__put_program(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *model = ein__symbol(ctx), *upper = ein__symbol_upper(ctx);
    const char *conv = z->convs ? "1" : "0", *gemm = z->gemms ? "1" : "0";
    const char *convs = ein__number_text(ctx, z->convs), *branches = ein__branches_text(ctx);
    const char *matmuls = ein__number_text(ctx, z->matmuls);
    ptrdiff_t nin = arrlen(ctx->graph.input);
    ein__put_section(out, "create");
    bool prepare = ein__put_steps(z, out, true);
    const char *libraries = z->convs + z->gemms + z->matmuls ? "1" : "";
    ein__key create[] = {
        {"model", model},
        {"MODEL", upper},
        {"conv", conv},
        {"convs", convs},
        {"gemm", gemm},
        {"typed", ein__conv_text_of(z).typed ? "1" : ""},
        {"grouped", z->group_bytes ? "1" : ""},
        {"zeros", ein__bytes_text(ctx, z->zeros_bytes + z->counters + z->group_bytes)},
        {"consts", z->const_bytes ? "CONST_BYTES" : ""},
        {"init", ctx->plan.init_bytes ? "INIT_BYTES" : ""},
        {"uploads", ein__upload_list(z)},
        {"manifest", ein__namef(ctx, "0x%016llxull", (unsigned long long)ein__manifest(ctx))},
        {"tf32", ctx->desc.math == EIN_MATH_TF32 ? "1" : ""},
        {"kernel", z->first_kernel ? z->first_kernel : ""},
        {"branches", branches},
        {"matmuls", matmuls},
        {"alike", z->convs + z->matmuls ? "1" : ""},
        {"libraries", libraries},
        {"prepare", prepare ? "1" : ""},
        {"early", z->early ? "1" : ""},
        {"large", ein__large_list(z)}};
    ein__tmpl_put(out, ein__tmpl_create, create, EIN__COUNT(create));
    ein__put_section(out, "run");
    ein__put_steps(z, out, false);
    ein__key run[] = {{"model", model},
                      {"nin", ein__number_text(ctx, nin)},
                      {"nout", ein__number_text(ctx, arrlen(ctx->graph.output))},
                      {"branches", branches},
                      {"libraries", libraries},
                      {"early", z->early ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_run, run, EIN__COUNT(run));
    ein__put_section(out, "destroy");
    ein__key destroy[] = {{"model", model},
                          {"conv", conv},
                          {"convs", convs},
                          {"gemm", gemm},
                          {"branches", branches},
                          {"matmuls", matmuls},
                          {"init", ctx->plan.init_bytes ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_destroy, destroy, EIN__COUNT(destroy));
    ein__put_section(out, "info");
    ein__put_info(z, out);
}

// How the program's functions report failed calls.
EIN__FN void ein__emit_call_macros(ein__buf *out, const char *model, bool conv, bool gemm,
                                   bool steps, bool launches) {
    ein__key keys[] = {{"model", model},
                       {"conv", conv ? "1" : "0"},
                       {"gemm", gemm ? "1" : "0"},
                       {"steps", steps ? "1" : "0"},
                       {"launches", launches ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_calls, keys, EIN__COUNT(keys));
}

// Which stream and workspace steps use.
static void ein__put_branches(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *model = ein__symbol(ctx);
    bool aside = false;  // whether calls leave the first branch
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        aside |= ein__is_library(&ctx->plan.step[i]) && ctx->plan.step[i].branch;
    ein__key calls[] = {{"model", model},
                        {"conv", z->convs ? "1" : "0"},
                        {"gemm", z->gemms ? "1" : "0"},
                        {"matmuls", z->matmuls ? "1" : "0"}};
    ein__key branch[] = {
        {"model", model}, {"branches", ein__branches_text(ctx)}, {"libraries", aside ? "1" : "0"}};
    if (z->convs + z->gemms + z->matmuls) {
        ein__put(out, "\n");
        ein__tmpl_put(out, ein__tmpl_libraries, calls, EIN__COUNT(calls));
    }
    if (ctx->plan.branches > 1) {
        ein__put(out, "\n");
        ein__tmpl_put(out, ein__tmpl_branch, branch, EIN__COUNT(branch));
    }
}

static void ein__put_sizes_and_kernels(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const ein__conv_text form = ein__conv_text_of(z);
    ein__put_section(out, "sizes and offsets");
    ein__put_pointers(z, out);
    if (z->convs) {
        ein__put(out, "\n");
        ein__emit_conv_types(ctx, out, &form);
        ein__put_conv_sizes(z, out);
    }
    if (z->matmuls) {
        ein__put(out, "\n");
        ein__emit_matmul_types(out, form.typed, z->pins);
        ein__put_matmul_sizes(z, out);
    }
    if (z->group_bytes) {
        ein__put(out, "\n");
        const ein__group_count c = ein__count_groups(ctx);
        ein__emit_group_types(ctx, out, c.members, c.problems);
    }
    ein__put_section(out, "kernels");
    ein__emit_helpers(ctx, out, z->needs);
    size_t n = z->kernels.n;  // without the blank line behind the last one
    ein__put_n(out, z->kernels.s, n ? n - 1 : 0);
    if (!n) ein__put(out, "// (none)\n");
}

// The handle, and how it calls libraries.
static void ein__put_state(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t nin = arrlen(ctx->graph.input);
    const char *model = ein__symbol(ctx);
    const ein__conv_text form = ein__conv_text_of(z);
    ein__put_section(out, "state");
    ein__key state[] = {{"model", model},
                        {"conv", z->convs ? "1" : "0"},
                        {"convs", ein__number_text(ctx, z->convs)},
                        {"gemm", z->gemms ? "1" : "0"},
                        {"matmuls", ein__number_text(ctx, z->matmuls)},
                        {"nin", ein__number_text(ctx, nin ? nin : 1)},
                        {"nout", ein__number_text(ctx, arrlen(ctx->graph.output))},
                        {"branches", ein__branches_text(ctx)},
                        {"events", ein__number_text(ctx, ctx->plan.events)},
                        {"init", ctx->plan.init_bytes ? "1" : ""},
                        {"early", z->early ? "1" : ""},
                        {"large", z->large.n ? "1" : ""},
                        {"grouped", z->group_bytes ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_state, state, EIN__COUNT(state));
    ein__put(out, "\n");
    ein__emit_call_macros(out, model, z->convs > 0, z->gemms + z->matmuls > 0, true,
                          z->first_kernel || z->nhwc);
    if (z->convs) {
        ein__put(out, "\n");
        ein__emit_conv(ctx, out, &form);
    }
    if (z->gemms) {
        ein__put(out, "\n");
        ein__emit_gemm(out, model, form.typed, form.tf32, true);
        ein__put_gemm_sizes(z, out);
        if (z->group_bytes) ein__emit_grouped(z, out, model, form.typed);
    }
    if (z->matmuls) {
        ein__put(out, "\n");
        ein__emit_matmul(out, model, form.limit, form.typed, z->pins, true);
    }
    ein__put_branches(z, out);
    if (!z->first_kernel) return;
    const bool large = z->large.n > 0;
    ein__key launch[] = {{"model", model},
                         {"early", z->early ? "1" : ""},
                         {"large", large ? "1" : ""},
                         {"more", large ? ", int shared" : ""},
                         {"bytes", large ? "shared_of(m, shared)" : "0"}};
    ein__put(out, "\n");
    ein__tmpl_put(out, ein__tmpl_launch, launch, EIN__COUNT(launch));
}

EIN__FN void ein__emit_cuda(ein_ctx *ctx, ein__buf *out) {
    ein__emitter z = {.ctx = ctx};
    ein__collect(&z);
    if (!ctx->status) {
        ein__emit_banner(ctx, out);
        ein__put_summary(&z, out);
        ein__put_section(out, "includes");
        ein__put(out, "#include <cuda_runtime.h>\n");
        if (z.matmuls) ein__put(out, "#include <cublasLt.h>\n");
        if (z.gemms) ein__put(out, "#include <cublas_v2.h>\n");
        if (z.convs) ein__put(out, "#include <cudnn.h>\n");
        ein__put(
            out,
            "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        ein__emit_includes(out, z.needs);
        ein__put_section(out, "interface");
        ein__emit_interface(ctx, out);
        ein__put_sizes_and_kernels(&z, out);
        ein__put_state(&z, out);
        ein__put_program(&z, out);
    }
    ein__emitter_free(&z);
}

EIN__FN void ein__emit_header(ein_ctx *ctx, ein__buf *out) {
    const char *upper = ein__symbol_upper(ctx);
    ein__emit_banner(ctx, out);
    ein__putf(out, "#ifndef EINNET_GEN_%s_H\n#define EINNET_GEN_%s_H\n\n", upper, upper);
    ein__put(out, "#include <cuda_runtime_api.h>\n#include <stddef.h>\n\n");
    ein__emit_interface(ctx, out);
    ein__putf(out, "\n#endif  // EINNET_GEN_%s_H\n", upper);
}
