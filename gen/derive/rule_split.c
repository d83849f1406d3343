// Summation splitting: part of a sum goes to an inner value (EinNet section 4.1, OLLIE section 4).
// The inner value is made in normal form, so variable substitution and boundary tightening happen
// on the way.

// The reductions of `mask` as the printer names them: "r0,r2".
static void ein__put_slots(ein__buf *b, const ein__scope *s, uint32_t mask) {
    const char *comma = "";
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(mask >> i & 1)) continue;
        ein__putf(b, "%sr%d", comma, (int)(i - s->nt));
        comma = ",";
    }
}

// Scope `s` without the reductions in `gone`.
static bool ein__without_sums(ein_ctx *ctx, const ein__scope *s, uint32_t gone, ein__ex body,
                              ein__scope *t) {
    ein__ix map[EIN__MAX_ITERS];
    *t = (ein__scope){.nt = s->nt};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (gone >> i & 1) continue;
        uint32_t slot = i < s->nt ? i : t->nt + t->ns++;
        t->n[slot] = s->n[i];
        map[i] = ein__ix_iter(ctx, slot, s->n[i]);
    }
    t->reduce = t->ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    t->body = ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
    return t->body.i != 0;
}

// Every proper subset of the summation goes to an inner value; factors free of it stay outside.
static void ein__rule_split(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (d.inner || s->ns < 2 || s->ns > EIN__MAX_SPLIT || !ein__two_factors(ctx, s, read, &alpha))
        return;
    for (uint32_t sub = 1; sub + 1 < 1u << s->ns; sub++) {
        uint32_t inner = sub << s->nt;
        ein__ex *in = NULL, outside = {0};
        for (int k = 0; k < 2; k++) {
            uint32_t uses = 0;
            for (uint32_t i = 0; i < read[k]->nix; i++) uses |= ein__ix_uses(ctx, read[k]->ix[i]);
            if (uses & inner) arrput(in, ein__ex_of(ctx, read[k]));
            else outside = ein__ex_of(ctx, read[k]);
        }
        ein__buf why = {0};
        ein__put(&why, "summation splitting (");
        ein__put_slots(&why, s, inner);
        ein__put(&why, " inside), variable substitution");
        const char *rule = ein__name(ctx, why.s);
        ein__buf_free(&why);
        // Substitution that enlarges the box is one more way, not the normal form.
        ein__ex before = {0};
        for (int64_t growth = 100; growth <= 200; growth += 100) {
            ein__ex w = ein__inner_value(z, s, in, inner, growth, "part", from, rule);
            if (!w.i || w.i == before.i) continue;
            before = w;
            ein__ex body = outside.i ? ein__ex_binary(ctx, EIN__MUL, outside, w) : w;
            if (alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
            ein__scope t;
            if (ein__without_sums(ctx, s, inner, body, &t))
                ein__add_def(z, d.cls, &t, from, "summation splitting", d.inner);
        }
        arrfree(in);
    }
}
