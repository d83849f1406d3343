// Fuses maps of a plan into the row kernel that reads them: a map that the passes over a row read
// only at the row's own elements, such as a sum of embeddings in front of a normalization, is
// computed by the first pass, and later passes have it in registers. This saves a launch and a
// round trip through memory; a map that others read as well is stored, too.

// Whether `read` is of one element for each term of each row of `row`, whose box is that of its
// rows and terms.
static bool ein__reads_terms(ein_ctx *ctx, const ein__expr *read, const ein__scope *row) {
    uint32_t used = 0, all = row->nt + row->ns;
    for (uint32_t k = 0; k < read->nix; k++) {
        uint32_t slot;
        int64_t n = ctx->value[read->val].shape.d[k];
        if (n == 1 && !ein__ix_get(ctx, read->ix[k])->n) continue;
        if (!ein__ix_is_iter(ctx, read->ix[k], &slot) || slot >= all || (used >> slot & 1) ||
            row->n[slot] != n)
            return false;
        used |= 1u << slot;
    }
    for (uint32_t i = 0; i < all; i++)
        if (row->n[i] > 1 && !(used >> i & 1)) return false;
    return true;
}

// The one read by which step `rows` reads map `c`, each element where it needs it; none: it reads
// it in other ways too.
static ein__ex ein__front_read(ein_ctx *ctx, const ein__step *rows, ein__val c) {
    const ein__scope *row = ein__scope_of(ctx, rows->val[0]);
    ein__ex found = {0};
    for (int k = 0; k < rows->nval; k++) {
        ein__ex body = ein__scope_of(ctx, rows->val[k])->body;
        const ein__ex *reads = ein__ex_reads(ctx, body);
        bool inside = k + 1 < rows->nval && ein__is_map(ctx, rows->val[k]);
        if (inside || ein__ex_looks_up(ctx, body, c)) return (ein__ex){0};
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            if (ein__ex_get(ctx, reads[i])->val != c.i) continue;
            if (found.i && found.i != reads[i].i) return (ein__ex){0};
            found = reads[i];
        }
    }
    bool fits = found.i && ein__reads_terms(ctx, ein__ex_get(ctx, found), row) &&
                ein__reads_itself(ctx, rows, c);
    return fits ? found : (ein__ex){0};
}

// Map `i` as the rows of step `j` may compute it; none: they may not. `*also`: others read it too.
static ein__ex ein__may_front(const ein__stitcher *s, int i, int j, bool *also) {
    ein_ctx *ctx = s->ctx;
    const ein__step *head = &s->step[i], *rows = &s->step[j];
    const ein__layout *l = &ctx->plan.layout[head->out.i];
    const int *readers = s->readers[l->buffer];
    ein__bkind kind = ctx->plan.buffer[l->buffer].kind;
    *also = kind == EIN__B_OUTPUT;
    if (s->gone[i] || head->kind != EIN__K_MAP || head->npeer || head->ahead || head->sums ||
        ctx->value[head->out.i].dtype > EIN__BF16 || arrlen(s->writers[l->buffer]) != 1 ||
        (kind != EIN__B_ARENA && kind != EIN__B_OUTPUT))
        return (ein__ex){0};
    for (ptrdiff_t k = 0; k < arrlen(readers); k++) {
        *also |= readers[k] != j;
        // It is there when the rows are over.
        if (readers[k] < j) return (ein__ex){0};
    }
    ein__ex read = ein__front_read(ctx, rows, head->out);
    return read.i ? ein__load_of(ctx, ein__ex_get(ctx, read), head->out) : read;
}

// Rows with map `c` in front of them, which they compute as `ex`.
static ein__step ein__with_front(ein_ctx *ctx, const ein__step *rows, ein__val c, ein__ex ex,
                                 bool also) {
    ein__step s = *rows;
    int at = s.load[0].i != 0;
    s.load[at] = c;
    s.loaded[at] = ex;
    if (also) s.also = c;
    ein__price_kernel(ctx, &s);
    return s;
}

// Gives rows of step `j` the maps that they read, where that is cheaper; gives whether it is.
static bool ein__front_step(ein__stitcher *s, int j, ein__val *const *all) {
    ein_ctx *ctx = s->ctx;
    int args = (int)arrlen(all[j]);
    bool any = false;
    for (ptrdiff_t k = 0; k < arrlen(all[j]); k++) {
        const ein__step *rows = &s->step[j];
        const int *w = s->writers[ctx->plan.layout[all[j][k].i].buffer];
        bool also;
        if (arrlen(w) != 1 || w[0] >= j || s->step[w[0]].out.i != all[j][k].i) continue;
        args += (int)arrlen(all[w[0]]);
        if (args >= EIN__MAX_ARGS - 3 || rows->load[EIN__ROW_LOADS - 1].i) break;
        ein__ex ex = ein__may_front(s, w[0], j, &also);
        if (!ex.i || (also && rows->also.i)) continue;
        ein__step both = ein__with_front(ctx, rows, s->step[w[0]].out, ex, also);
        if (both.ps >= ein__cost_sum(s->step[w[0]].ps, rows->ps)) continue;
        s->step[j] = both;
        s->gone[w[0]] = any = true;
        // It reads now what the map read.
        for (ptrdiff_t r = 0; r < arrlen(all[w[0]]); r++)
            arrput(s->readers[ctx->plan.layout[all[w[0]][r].i].buffer], j);
    }
    return any;
}

// The same of all rows of the plan. Gives whether some have.
static bool ein__front_plan(ein_ctx *ctx) {
    ein__val **reads = NULL;
    ein__stitcher s = ein__stitcher_look(ctx, &reads);
    bool any = false;
    for (int j = 0; j < s.n; j++)
        if (s.step[j].kind == EIN__K_ROW && !s.step[j].npeer) any |= ein__front_step(&s, j, reads);
    ein__stitcher_end(&s, reads);
    return any;
}
