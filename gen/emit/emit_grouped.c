// Text of products that one call of cuBLAS makes (group.c).

// How many products such calls have, and matrices: a batch counts as many.
typedef struct ein__group_count {
    int calls, members;
    int64_t problems;
} ein__group_count;

EIN__FN ein__group_count ein__count_groups(const ein_ctx *ctx) {
    ein__group_count c = {0};
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        for (int k = 0; ein__is_group(s) && k <= s->npeer; k++, c.members++)
            c.problems += ein__step_member(s, k)->gemm.batch;
        c.calls += ein__is_group(s);
    }
    return c;
}

// The tables of products and of calls.
EIN__FN void ein__put_group_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    ein__buf calls = {0}, names = {0};
    int first = 0;
    int64_t problem = 0;
    ein__put(out, "\nstatic const gemm_size grouped_sizes[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (!ein__is_group(s)) continue;
        ein__put(&calls, "    {");
        ein__put_string(&calls, s->name);
        ein__putf(&calls, ", %d, %d, %lld},\n", first, s->npeer + 1, (long long)problem);
        ein__putf(&names, "    GROUP_%s,\n", ein__call_name(ctx, s));
        for (int k = 0; k <= s->npeer; k++, first++) {
            const ein__step *member = ein__step_member(s, k);
            ein__buf line = {0};
            ein__put(&line, "    {");
            ein__put_gemm_size(&line, member->name, &member->gemm, ein__is_typed(ctx));
            ein__put(&line, "},");
            ein__tmpl_line(out, line.s, line.n);
            ein__buf_free(&line);
            problem += member->gemm.batch;
        }
    }
    ein__putf(out, "};\nstatic const group_size group_sizes[] = {\n%s};\nenum {\n%s};\n\n", calls.s,
              names.s);
    ein__buf_free(&calls);
    ein__buf_free(&names);
}

// The array of addresses of the products' matrices, a line each.
static const char *ein__group_rows(ein__emitter *z, int members) {
    ein_ctx *ctx = z->ctx;
    ein__buf rows = {0};
    ein__putf(&rows, "const void *const at[%d][3] = {\n", members);
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        for (int k = 0; ein__is_group(s) && k <= s->npeer; k++) {
            const ein__step *member = ein__step_member(s, k);
            ein__put(&rows, "    {");
            ein__put_pointer(z, &rows, member->gemm.a, member->gemm.oa);
            ein__put(&rows, ", ");
            ein__put_pointer(z, &rows, member->gemm.b, member->gemm.ob);
            ein__put(&rows, ", ");
            ein__put_pointer(z, &rows, member->out, 0);
            ein__put(&rows, "},\n");
        }
    }
    ein__put(&rows, "};\n");
    const char *text = ein__name(ctx, rows.s);
    ein__buf_free(&rows);
    return text;
}

// Types of such calls: of so many products, and of so many matrices.
EIN__FN void ein__emit_group_types(ein_ctx *ctx, ein__buf *out, int members, int64_t problems) {
    ein__key keys[] = {{"members", ein__namef(ctx, "%d", members)},
                       {"problems", ein__namef(ctx, "%lld", (long long)problems)}};
    ein__tmpl_put(out, ein__tmpl_grouped_types, keys, EIN__COUNT(keys));
}

EIN__FN void ein__emit_group_member(ein__buf *out) {
    ein__tmpl_put(out, ein__tmpl_grouped_member, NULL, 0);
    ein__put(out, "\n");
}

// The functions that make the calls.
EIN__FN void ein__emit_grouped(ein__emitter *z, ein__buf *out, const char *model, bool typed) {
    ein_ctx *ctx = z->ctx;
    ein__group_count c = ein__count_groups(ctx);
    ein__key keys[] = {
        {"model", model},
        {"typed", typed ? "1" : ""},
        {"scalar", typed ? "void" : "float"},
        {"members", ein__namef(ctx, "%d", c.members)},
        {"problems", ein__namef(ctx, "%lld", (long long)c.problems)},
        {"table", ein__namef(ctx, "%lld", (long long)(z->const_bytes - z->group_bytes))},
        {"addresses", ein__group_rows(z, c.members)},
        {"steps", "1"}};
    ein__put_group_sizes(z, out);
    ein__emit_group_member(out);
    ein__tmpl_put(out, ein__tmpl_grouped, keys, EIN__COUNT(keys));
}
