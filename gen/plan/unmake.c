// Discards plans that are not taken: the values and expressions that were made for them are removed
// from the tables, since they would slow down whatever goes through all values or looks up an
// expression.

// What a context has made.
typedef struct ein__made {
    ptrdiff_t value, form[4];
    struct ein__chunk *chunk;
    size_t used;
} ein__made;

static void ein__form_tables(ein_ctx *ctx, ein__table *table[4]) {
    table[0] = &ctx->atoms;
    table[1] = &ctx->indices;
    table[2] = &ctx->exprs;
    table[3] = &ctx->scopes;
}

static ein__made ein__made_now(ein_ctx *ctx) {
    ein__made m = {.value = arrlen(ctx->value), .chunk = ctx->forms.head};
    ein__table *table[4];
    ein__form_tables(ctx, table);
    for (int i = 0; i < 4; i++) m.form[i] = arrlen(table[i]->rec);
    m.used = m.chunk ? m.chunk->used : 0;
    return m;
}

// Forgets what was made since, of which nobody may know any more. Plans whose kernels are to be
// measured are all kept.
static void ein__unmake(ein_ctx *ctx, const ein__made *m) {
    ein__table *table[4];
    if (ctx->desc.probe) return;
    ein__form_tables(ctx, table);
    ctx->unmade += arrlen(ctx->value) - m->value;
    arrsetlen(ctx->value, m->value);
    for (int i = 0; i < 4; i++) ein__table_cut(table[i], m->form[i]);
    ein__arena_cut(&ctx->forms, m->chunk, m->used);
    for (int i = 0; i < EIN__KNOWN_ITERS; i++)
        if (ctx->known_iter[i].ix >= (uint32_t)m->form[1])
            ctx->known_iter[i] = (struct ein__known_iter){0};
    for (ptrdiff_t i = m->form[2]; i < arrlen(ctx->reads); i++) arrfree(ctx->reads[i]);
    if (arrlen(ctx->reads) > m->form[2]) arrsetlen(ctx->reads, m->form[2]);
    if (arrlen(ctx->counted) > m->form[2]) arrsetlen(ctx->counted, m->form[2]);
    if (arrlen(ctx->body) > m->form[2]) arrsetlen(ctx->body, m->form[2]);
    if (arrlen(ctx->kept) > m->value) arrsetlen(ctx->kept, m->value);
    if (arrlen(ctx->unrounded) > m->value) arrsetlen(ctx->unrounded, m->value);
}
