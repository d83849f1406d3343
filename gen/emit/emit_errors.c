// The companion program's report of errors (ein_desc.inspect): which stored values it compares with
// what the model's equations give, and which of them each is made of.

typedef struct ein__stored {
    ein__val planned, own;  // own: the model's value, proved to be the same
    int *sources;           // entries before; stb_ds array
} ein__stored;

// Entries that reading `v` leads back to, without passing another one.
static void ein__error_sources(ein_ctx *ctx, const int *entry, ein__val v, unsigned char *seen,
                               int **list) {
    ein__val *stack = NULL;
    arrput(stack, v);
    while (arrlen(stack)) {
        const ein__scope *s = ein__scope_of(ctx, arrpop(stack));
        const ein__ex *reads = s ? ein__ex_reads(ctx, s->body) : NULL;
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            ein__val r = {ein__ex_get(ctx, reads[i])->val};
            if (seen[r.i]) continue;
            seen[r.i] = 1;
            if (entry[r.i] >= 0) arrput(*list, entry[r.i]);
            else arrput(stack, r);
        }
    }
    arrfree(stack);
}

// Float values that steps store and that are the model's own, in the order of the steps.
static ein__stored *ein__stored_values(ein_ctx *ctx) {
    ein__stored *list = NULL;
    uint32_t *own = ein__proved_values(ctx);
    size_t n = (size_t)arrlen(ctx->value);
    int *entry = NULL;
    unsigned char *seen = EIN_REALLOC(NULL, n);
    if (!seen) EIN_OUT_OF_MEMORY();
    for (size_t i = 0; i < n; i++) arrput(entry, -1);
    ein__val *stored = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++)
        for (int m = 0; m <= ctx->plan.step[i].npeer; m++)
            arrput(stored, ein__step_member(&ctx->plan.step[i], m)->out);
    for (ptrdiff_t i = 0; i < arrlen(stored); i++) {
        ein__val v = stored[i];
        if (!own[v.i] || !ein__is_real(ctx, v)) continue;
        ein__stored s = {v, {own[v.i]}, NULL};
        memset(seen, 0, n);
        ein__error_sources(ctx, entry, v, seen, &s.sources);
        entry[v.i] = (int)arrlen(list);
        arrput(list, s);
    }
    EIN_FREE(seen);
    arrfree(stored);
    arrfree(entry);
    arrfree(own);
    return list;
}

static void ein__stored_free(ein__stored *list) {
    for (ptrdiff_t i = 0; i < arrlen(list); i++) arrfree(list[i].sources);
    arrfree(list);
}

static void ein__put_extents(ein__buf *out, const int64_t *v, int n) {
    ein__put(out, ", {");
    for (int k = 0; k < n; k++) ein__putf(out, "%s%lld", k ? ", " : "", (long long)v[k]);
    ein__put(out, n ? "}" : "0}");
}

// The table of stored values. `name`: enumerators of the reference's values; `type`: names of
// types.
EIN__FN void ein__put_stored(ein_ctx *ctx, ein__buf *out, const ein__stored *list,
                             const char *const *name, const char *const *type) {
    int first = 0;
    ein__put(out, "static const stored_value stored_values[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__value *p = &ctx->value[list[i].planned.i];
        const ein__layout *l = &ctx->plan.layout[list[i].planned.i];
        const ein__buffer *b = &ctx->plan.buffer[l->buffer];
        bool output = b->kind == EIN__B_OUTPUT;
        ein__dtype own = ctx->value[list[i].own.i].dtype;
        bool half = own == EIN__F16 || own == EIN__BF16;  // the reference keeps what it computes
        ein__buf line = {0};
        ein__put(&line, "    {");
        ein__put_string(&line, p->name);
        ein__putf(&line, ", %s, %d, %s, %s, %d, %lld", name[list[i].own.i], output ? b->index : -1,
                  type[p->dtype], type[half ? EIN__F32 : own], p->shape.rank,
                  (long long)((output ? 0 : b->at) + l->offset * ein__dtype_size(p->dtype)));
        ein__put_extents(&line, p->shape.d, p->shape.rank);
        ein__put_extents(&line, l->stride, p->shape.rank);
        ein__putf(&line, ", %d, %d},", first, (int)arrlen(list[i].sources));
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
        first += (int)arrlen(list[i].sources);
    }
    ein__put(out,
             "    {NULL, 0, -1, 0, 0, 0, 0, {0}, {0}, 0, 0}};\n"
             "static const int error_sources[] = {");
    for (ptrdiff_t i = 0, n = 0; i < arrlen(list); i++)
        for (ptrdiff_t k = 0; k < arrlen(list[i].sources); k++, n++)
            ein__putf(out, "%s%d,", n % 16 ? " " : "\n    ", list[i].sources[k]);
    ein__put(out, "\n    0};\n\n");
}
