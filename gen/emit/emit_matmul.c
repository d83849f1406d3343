// Text of calls of cuBLAS, and of cublasLt: products with an epilogue, or with an algorithm that a
// table chose.

static const char *ein__matmul_epilogue(const ein__gemm *g) {
    switch (g->act) {
    case EIN__ACT_RELU: return g->bias.i ? "RELU_BIAS" : "RELU";
    case EIN__ACT_GELU: return g->bias.i ? "GELU_BIAS" : "GELU";
    case EIN__ACT_NONE:
    default: return g->bias.i ? "BIAS" : "DEFAULT";
    }
}

// What a description of a product holds. `typed`: and the types of its matrices.
EIN__FN void ein__put_gemm_size(ein__buf *line, const char *name, const ein__gemm *g, bool typed) {
    const int64_t n[] = {g->ta,  g->tb,  g->batch, g->m,  g->n,  g->k,
                         g->lda, g->ldb, g->ldc,   g->sa, g->sb, g->sc};
    ein__put_string(line, name);
    for (int k = 0; k < 12; k++) ein__putf(line, ", %lld", (long long)n[k]);
    ein__put(line, ", ");
    ein__put_f32_literal(line, g->alpha);
    if (!typed) return;
    bool half = g->math == EIN__MATH_FP16;
    ein__putf(line, ", %s, %s, %d", half ? "CUDA_R_16F" : "CUDA_R_32F",
              half && !g->wide ? "CUDA_R_16F" : "CUDA_R_32F", g->math == EIN__MATH_TF32);
}

// A row of the table of such calls. `typed`: rows tell types, `pins`: have room for an algorithm.
EIN__FN void ein__put_matmul_size(ein__buf *out, const ein__step *s, bool typed, bool pins) {
    const ein__gemm *g = &s->gemm;
    ein__buf line = {0};
    ein__put(&line, "    {");
    ein__put_gemm_size(&line, s->name, g, typed);
    ein__putf(&line, ", %lld, %lld, CUBLASLT_EPILOGUE_%s, %d, %d", (long long)g->ldz,
              (long long)g->sz, ein__matmul_epilogue(g), g->bias.i != 0, g->align);
    if (pins) {
        ein__putf(&line, ", %lld, {", s->algorithm ? (long long)s->version : 0ll);
        const char *id = s->algorithm ? s->algorithm : "0";
        for (; *id; id++) ein__putf(&line, *id == '.' ? ", " : "%c", *id);
        ein__put(&line, "}");
    }
    ein__put(&line, "},");
    ein__tmpl_line(out, line.s, line.n);
    ein__buf_free(&line);
}

// Types of such a call and of its sizes.
EIN__FN void ein__emit_matmul_types(ein__buf *out, bool typed, bool pins) {
    ein__key keys[] = {{"pins", pins ? "1" : ""}, {"typed", typed ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_matmul_types, keys, EIN__COUNT(keys));
}

// For the summary.
EIN__FN void ein__put_epilogue(ein__buf *out, bool z, bool bias, ein__act act) {
    if (z) ein__put(out, " + residual");
    if (bias) ein__put(out, " + bias");
    if (act) ein__put(out, act == EIN__ACT_RELU ? " + relu" : " + gelu");
}

// The functions that call cuBLAS itself. `tf32`: for some products that are rounded to it.
EIN__FN void ein__emit_gemm(ein__buf *out, const char *model, bool typed, bool tf32, bool steps) {
    ein__key keys[] = {{"model", model},
                       {"typed", typed ? "1" : ""},
                       {"tf32", tf32 ? "1" : ""},
                       {"scalar", typed ? "void" : "float"},
                       {"steps", steps ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_gemm, keys, EIN__COUNT(keys));
}

// The functions that make the calls, for program or probe `model`. `typed`: rows tell types.
EIN__FN void ein__emit_matmul(ein__buf *out, const char *model, const char *limit, bool typed,
                              bool pins, bool steps) {
    const char *fast = "s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F";
    ein__key keys[] = {{"model", model},
                       {"typed", typed ? "1" : ""},
                       {"type", typed ? "s->in" : "CUDA_R_32F"},
                       {"outtype", typed ? "s->out" : "CUDA_R_32F"},
                       {"compute", typed ? fast : "CUBLAS_COMPUTE_32F"},
                       {"limit", limit},
                       {"pins", pins ? "1" : "0"},
                       {"steps", steps ? "1" : "0"}};
    ein__tmpl_put(out, ein__tmpl_matmul, keys, EIN__COUNT(keys));
}
