// Merges of the whole program for people and for other programs: every one that was priced, or the
// chosen ones.

static void ein__put_merge_sizes(ein__buf *out, bool json, const char *name, const int64_t *v,
                                 int n) {
    ein__putf(out, json ? ", \"%s\": [" : ", %s ", name);
    for (int i = 0; i < n; i++)
        ein__putf(out, json ? "%s%lld" : "%s%lld", i ? json ? ", " : "x" : "", (long long)v[i]);
    if (json) ein__put(out, "]");
}

// The library call for contraction `s`: the convolution when `want` says so, else the GEMM. False
// when there is none.
static bool ein__put_merge_call(ein_ctx *ctx, const ein__scope *s, bool want, bool json,
                                ein__buf *out) {
    int64_t dense[EIN__MAX_RANK];
    ein__conv_form f;
    ein__gemm g;
    ein__dense_result(s, dense);
    if (want) {
        if (!ein__find_conv(ctx, s, dense, &f) || !ein__conv_sizes(&f)) return false;
        ein__putf(out,
                  json ? "{\"kind\": \"%s\", \"n\": %lld, \"c\": %lld, \"f\": %lld, "
                         "\"group\": %lld"
                       : "%s n %lld, c %lld, f %lld, groups %lld",
                  f.transposed ? "conv_backward_data" : "conv", (long long)f.c.n, (long long)f.c.c,
                  (long long)f.c.f, (long long)f.c.group);
        ein__put_merge_sizes(out, json, "filter", f.c.k, f.c.spatial);
        if (!json) return true;
        ein__put_merge_sizes(out, json, "stride", f.c.stride, f.c.spatial);
        ein__put_merge_sizes(out, json, "dilation", f.c.dilation, f.c.spatial);
        ein__put(out, "}");
        return true;
    }
    if (!ein__match_gemm(ctx, s, dense, &g)) return false;
    ein__putf(out,
              json ? "{\"kind\": \"gemm\", \"batch\": %lld, \"m\": %lld, \"n\": %lld, \"k\": %lld}"
                   : "GEMM batch %lld, m %lld, n %lld, k %lld",
              (long long)g.batch, (long long)g.m, (long long)g.n, (long long)g.k);
    return true;
}

// The cheapest way to compute the merged contraction, and (in JSON) every call that matches.
static void ein__put_merge_calls(ein_ctx *ctx, const ein__merge *m, bool json, ein__buf *out) {
    const ein__scope *s = ein__scope_of(ctx, m->wide);
    int64_t ps;
    ein__skind2 kind = ein__choose(ctx, s, m->map, m->map_read, true, &ps);
    bool conv = kind == EIN__K_CONV || kind == EIN__K_CONV_DATA;
    if (json) ein__put(out, ", \"call\": ");
    if ((!conv && kind != EIN__K_GEMM) || !ein__put_merge_call(ctx, s, conv, json, out))
        ein__put(out, json ? "{\"kind\": \"kernel\"}" : "kernel");
    if (!json) return;
    ein__buf other = {0};
    ein__put(out, ", \"matches\": [");
    bool gemm = ein__put_merge_call(ctx, s, false, json, out);
    if (ein__put_merge_call(ctx, s, true, json, &other))
        ein__putf(out, "%s%s", gemm ? ", " : "", other.s);
    ein__put(out, "]");
    ein__buf_free(&other);
}

// The values that the merge makes: those that stand for the members, and what they read that the
// program did not have.
static void ein__merge_values(ein_ctx *ctx, ein__val v, uint32_t first, ein__val **list) {
    for (ptrdiff_t i = 0; i < arrlen(*list); i++)
        if ((*list)[i].i == v.i) return;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || v.i < first) return;
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, s->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        ein__merge_values(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val}, first, list);
    arrfree(reads);
    arrput(*list, v);
}

static void ein__put_merge(ein_ctx *ctx, const ein__merge *m, int id, bool json, ein__buf *out) {
    ein__val *list = NULL;
    for (ptrdiff_t i = 0; i < arrlen(m->now); i++)
        ein__merge_values(ctx, m->now[i], m->first, &list);
    if (json) {
        ein__putf(out, "%s\n  {\"id\": %d, \"rule\": \"%s\", \"members\": [", id ? "," : "", id,
                  m->rule);
        for (ptrdiff_t i = 0; i < arrlen(m->member); i++) {
            ein__put(out, i ? ", " : "");
            ein__json_string(out, ctx->value[m->member[i].i].name);
        }
        ein__put(out, "]");
    } else {
        ein__putf(out, "  %s %d%s:", m->rule, id, m->chosen ? ", chosen" : "");
        ein__put_us(out, m->ps);
        ein__put(out, ", alone");
        ein__put_us(out, m->members_ps);
        for (ptrdiff_t i = 0; i < arrlen(m->member); i++)
            ein__putf(out, "%s%s", i ? ", " : "\n      ", ctx->value[m->member[i].i].name);
        ein__put(out, "\n      ");
    }
    ein__put_merge_calls(ctx, m, json, out);
    if (json)
        ein__putf(out, ", \"ps\": %lld, \"members_ps\": %lld, \"chosen\": %s, \"equations\": [",
                  (long long)m->ps, (long long)m->members_ps, m->chosen ? "true" : "false");
    else ein__put(out, "\n");
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        ein__buf text = {0};
        ein__print_value(ctx, list[i], &text);
        ein__put(out, json ? i ? ",\n      " : "\n      " : "      ");
        if (json) ein__json_string(out, text.s);
        else ein__putf(out, "%s\n", text.s);
        ein__buf_free(&text);
    }
    if (json) ein__put(out, "]}");
    arrfree(list);
}

// Rounds meet the same merge again when what it reads was replaced.
static bool ein__same_merge(ein_ctx *ctx, const ein__merge *a, const ein__merge *b) {
    bool same = a->rule == b->rule && a->ps == b->ps && arrlen(a->member) == arrlen(b->member) &&
                a->first != b->first && !a->chosen && !b->chosen;
    for (ptrdiff_t k = 0; same && k < arrlen(a->member); k++)
        same = ctx->value[a->member[k].i].name == ctx->value[b->member[k].i].name;
    return same;
}

// Merges that have a member called `name` (NULL: all); all that were priced, or the chosen ones.
EIN__FN void ein__explain_merges(ein_ctx *ctx, const ein__val *root, int nroot, const char *name,
                                 bool all, bool json, ein__buf *out) {
    ein__val *merged = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ein__merge *found = NULL;
    int n = 0;
    memcpy(merged, root, (size_t)nroot * sizeof *root);
    ein__merge_program(ctx, merged, nroot, &found);
    if (json) ein__put(out, ", \"merges\": [");
    for (ptrdiff_t i = 0; i < arrlen(found) && !ctx->status; i++) {
        bool named = !name;
        for (ptrdiff_t k = 0; !named && k < arrlen(found[i].member); k++) {
            const char *mine = ctx->value[found[i].member[k].i].name;
            size_t length = strlen(name);
            named = !strncmp(mine, name, length) && (!mine[length] || mine[length] == '.');
        }
        for (ptrdiff_t k = 0; named && k < i; k++)
            named = !ein__same_merge(ctx, &found[i], &found[k]);
        if (!named || (!all && !found[i].chosen)) continue;
        if (!json && !n) ein__put(out, "\nmerges\n");
        ein__put_merge(ctx, &found[i], n++, json, out);
    }
    if (json) ein__put(out, "]");
    ein__merges_free(found);
}
