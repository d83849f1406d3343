// Values as equations of the language. The text does not depend on ids: terms and guards stand in
// an order made from what they say, so that reading an equation back and printing it again gives
// the same text.

typedef struct ein__print_pad {
    uint32_t val;
    double value;
    bool clause;
} ein__print_pad;

typedef struct ein__printer {
    ein_ctx *ctx;
    const ein__scope *s;
    char index[EIN__MAX_ITERS][24];  // name of each iterator
    ein__print_pad *pad;             // stb_ds array: of tensors that are read with padding
} ein__printer;

typedef enum { EIN__P_SUM, EIN__P_PRODUCT, EIN__P_FACTOR } ein__level;

static void ein__print_expr(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out);
static void ein__print_read(ein__printer *p, const ein__expr *e, bool floored, ein__buf *out);

// A tensor's name, in quotes where it is no identifier or has a meaning of its own.
static void ein__print_name(const char *name, ein__buf *out) {
    if (ein__is_identifier(name) && strcmp(name, "_") && strcmp(name, "in")) {
        ein__put(out, name);
        return;
    }
    ein__put(out, "\"");
    for (const char *c = name; *c; c++) {
        if (*c == '"' || *c == '\\') ein__putf(out, "\\%c", *c);
        else if (*c == '\n') ein__put(out, "\\n");
        else if (*c == '\t') ein__put(out, "\\t");
        else if ((unsigned char)*c < 32 || *c == 127) ein__putf(out, "\\x%02x", (unsigned char)*c);
        else ein__put_n(out, c, 1);
    }
    ein__put(out, "\"");
}

// Texts in order, for terms and guards: there are few of them.
typedef struct ein__texts {
    ein__buf *s;
} ein__texts;  // stb_ds array

static void ein__texts_add(ein__texts *t, ein__buf text) {
    ptrdiff_t at = 0;
    int order = 1;
    while (at < arrlen(t->s) && (order = strcmp(t->s[at].s, text.s)) < 0) at++;
    if (at < arrlen(t->s) && !order) ein__buf_free(&text);
    else arrins(t->s, at, text);
}

static void ein__texts_free(ein__texts *t) {
    for (ptrdiff_t i = 0; i < arrlen(t->s); i++) ein__buf_free(&t->s[i]);
    arrfree(t->s);
}

// ------------------------------------------------------------------------------------ subscripts

static void ein__print_linear(ein__printer *p, const ein__index *f, int64_t c, int sign,
                              ein__buf *out);

// True when the sum of terms needs no parentheses before `/` and `%`.
static bool ein__is_single(const ein__printer *p, const ein__index *f) {
    if (f->n == 0) return f->c >= 0;
    return f->n == 1 && !f->c && f->t[0].k == 1 &&
           ein__atom_get(p->ctx, f->t[0].atom)->kind == EIN__ITER;
}

static void ein__print_operand(ein__printer *p, ein__ix ix, ein__buf *out) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    bool single = ein__is_single(p, f);
    ein__put(out, single ? "" : "(");
    ein__print_linear(p, f, f->c, 0, out);
    ein__put(out, single ? "" : ")");
}

static void ein__print_atom(ein__printer *p, const ein__atom *a, ein__buf *out) {
    if (a->kind == EIN__ITER) {
        ein__put(out, p->index[a->slot]);
    } else if (a->kind == EIN__GATHER) {
        ein__put(out, "@");
        ein__print_read(p, ein__ex_get(p->ctx, (ein__ex){a->ex}), false, out);
    } else {
        ein__print_operand(p, (ein__ix){a->ix}, out);
        ein__putf(out, "%c%lld", a->kind == EIN__FLOOR ? '/' : '%', (long long)a->n);
    }
}

// One term of a form as it is printed; iterators stand before other atoms.
typedef struct ein__print_term {
    int64_t k;
    bool iter;
    uint32_t slot;
    ein__buf text;
} ein__print_term;

static bool ein__term_before(const ein__print_term *a, const ein__print_term *b) {
    if (a->iter != b->iter) return a->iter;
    if (a->iter) return a->slot < b->slot;
    int order = strcmp(a->text.s, b->text.s);
    return order ? order < 0 : a->k < b->k;
}

static void ein__print_term_text(const ein__print_term *t, bool first, ein__buf *out) {
    uint64_t k = t->k < 0 ? 0 - (uint64_t)t->k : (uint64_t)t->k;
    bool group = !t->iter && *t->text.s != '@' && (k != 1 || (first && t->k < 0));
    if (!first || t->k < 0) ein__put(out, t->k < 0 ? "-" : "+");
    if (k != 1) ein__putf(out, "%llu*", (unsigned long long)k);
    ein__put(out, group ? "(" : "");
    ein__put(out, t->text.s);
    ein__put(out, group ? ")" : "");
}

// The terms of `f` (all of them when `sign` is 0; else those with that sign, printed positive),
// then constant c.
static void ein__print_linear(ein__printer *p, const ein__index *f, int64_t c, int sign,
                              ein__buf *out) {
    ein__print_term t[EIN__MAX_TERMS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (sign && (f->t[i].k > 0) != (sign > 0)) continue;
        const ein__atom *a = ein__atom_get(p->ctx, f->t[i].atom);
        ein__print_term x = {sign < 0 ? -f->t[i].k : f->t[i].k, a->kind == EIN__ITER, a->slot, {0}};
        ein__print_atom(p, a, &x.text);
        uint32_t j = n++;
        for (; j > 0 && ein__term_before(&x, &t[j - 1]); j--) t[j] = t[j - 1];
        t[j] = x;
    }
    bool first = true;
    for (int negative = 0; negative < 2; negative++) {
        for (uint32_t i = 0; i < n; i++) {
            if ((t[i].k < 0) != (negative == 1)) continue;
            ein__print_term_text(&t[i], first, out);
            first = false;
        }
        if (!negative && first && c > 0 && n) {
            ein__putf(out, "%lld", (long long)c);
            c = 0;
            first = false;
        }
    }
    if (first) ein__putf(out, "%lld", (long long)c);
    else if (c) ein__putf(out, "%+lld", (long long)c);
    for (uint32_t i = 0; i < n; i++) ein__buf_free(&t[i].text);
}

static void ein__print_index(ein__printer *p, ein__ix ix, ein__buf *out) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    if (f->q == 1) {
        ein__print_linear(p, f, f->c, 0, out);
    } else {
        ein__print_operand(p, ix, out);
        ein__putf(out, "/%lld", (long long)f->q);
    }
}

// ------------------------------------------------------------------------------------ conditions

// `[left op right]` for (sign * terms of f) + c op 0: terms stand on the side where they are
// positive.
static void ein__add_compare(ein__printer *p, const ein__index *f, int sign, int64_t c,
                             const char *op, ein__texts *list) {
    bool left = false, right = false;
    for (uint32_t i = 0; i < f->n; i++)
        if ((f->t[i].k > 0) == (sign > 0)) left = true;
        else right = true;
    ein__buf b = {0};
    const char *swapped = !strcmp(op, ">=") ? "<=" : op;
    bool exchange = !left && right;
    ein__put(&b, "[");
    ein__print_linear(p, f, !exchange && right && c > 0 ? c : 0, exchange ? -sign : sign, &b);
    ein__putf(&b, " %s ", exchange ? swapped : op);
    if (exchange) ein__putf(&b, "%lld", (long long)c);
    else if (right) ein__print_linear(p, f, c < 0 ? -c : 0, -sign, &b);
    else ein__putf(&b, "%lld", (long long)-c);
    ein__put(&b, "]");
    ein__texts_add(list, b);
}

static void ein__add_lattice(ein__printer *p, const ein__index *f, const char *op,
                             ein__texts *list) {
    ein__buf b = {0};
    int64_t c = ein__floormod(f->c, f->q);
    bool single =
        !c && f->n == 1 && f->t[0].k == 1 && ein__atom_get(p->ctx, f->t[0].atom)->kind == EIN__ITER;
    ein__put(&b, single ? "[" : "[(");
    ein__print_linear(p, f, c, 0, &b);
    ein__putf(&b, "%s%%%lld %s 0]", single ? "" : ")", (long long)f->q, op);
    ein__texts_add(list, b);
}

// f == 0 or f != 0. A remainder that is compared with a constant is a lattice to the language.
static void ein__add_equal(ein__printer *p, const ein__index *f, const char *op, ein__texts *list) {
    const ein__atom *a = f->n == 1 ? ein__atom_get(p->ctx, f->t[0].atom) : NULL;
    int64_t c = a && f->t[0].k == 1 ? -f->c : f->c;
    if (a && a->kind == EIN__MOD && (f->t[0].k == 1 || f->t[0].k == -1) && c >= 0 && c < a->n) {
        ein__index lattice = ein__ix_copy(ein__ix_get(p->ctx, (ein__ix){a->ix}));
        lattice.c -= c;
        lattice.q = a->n;
        ein__add_lattice(p, &lattice, op, list);
    } else {
        ein__add_compare(p, f, 1, f->c, op, list);
    }
}

// Guards whose product says that `ix` is an integer in [0, n); those that always hold are left out.
static void ein__add_conditions(ein__printer *p, ein__ix ix, int64_t n, ein__texts *list) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    bool below = f->lo < 0, above = f->hi >= n;
    int64_t last;
    if (f->q == 1 && n == 1 && (below || above)) {
        ein__add_equal(p, f, "==", list);
        return;
    }
    if (f->q > 1) ein__add_lattice(p, f, "==", list);
    if (below) ein__add_compare(p, f, 1, f->c, ">=", list);
    if (above && !ein__mul_overflows(n - 1, f->q, &last))
        ein__add_compare(p, f, -1, last - f->c, ">=", list);
}

// The opposite as one guard; false when it takes more.
static bool ein__add_opposite(ein__printer *p, ein__ix ix, int64_t n, ein__texts *list) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    bool below = f->lo < 0, above = f->hi >= n;
    if (f->q > 1 && (below || above)) return false;
    if (f->q > 1) ein__add_lattice(p, f, "!=", list);
    else if (n == 1) ein__add_equal(p, f, "!=", list);
    else if (below && above) return false;
    else if (below) ein__add_compare(p, f, -1, -1 - f->c, ">=", list);
    else ein__add_compare(p, f, 1, f->c - n, ">=", list);
    return true;
}

static void ein__put_guards(const ein__texts *guard, bool first, ein__buf *out) {
    for (ptrdiff_t i = 0; i < arrlen(guard->s); i++) {
        ein__put(out, first ? "" : " * ");
        ein__put(out, guard->s[i].s);
        first = false;
    }
}

// ------------------------------------------------------------------------------------ reads

// Whether padding can be met: some index is not provably an integer inside the box.
static bool ein__read_is_padded(const ein_ctx *ctx, const ein__expr *e) {
    const ein__shape *s = &ein__val_get(ctx, (ein__val){e->val})->shape;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        if (f->q > 1 || f->lo < 0 || f->hi >= s->d[k] || ein__ix_has_gather(ctx, e->ix[k]))
            return true;
    }
    return false;
}

// The index as the language reads it: an exact division becomes a floored one, unless its numbers
// would be too large.
static ein__ix ein__floored(ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    if (f->q == 1) return ix;
    ein__attempt attempt = ein__try(ctx);
    ein__index numerator = ein__ix_copy(f);
    numerator.q = 1;
    ein__ix floored = ein__ix_floordiv(ctx, ein__ix_intern(ctx, &numerator), f->q);
    return ein__tried(ctx, attempt) && floored.i ? floored : ix;
}

// Whether the language wants a `pad` clause for the read.
static bool ein__read_wants_clause(ein_ctx *ctx, const ein__expr *e) {
    const ein__shape *s = &ein__val_get(ctx, (ein__val){e->val})->shape;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, ein__floored(ctx, e->ix[k]));
        bool gather = f->n == 1 && !f->c && f->t[0].k == 1 &&
                      ein__atom_get(ctx, f->t[0].atom)->kind == EIN__GATHER;
        if (!gather && (f->lo < 0 || f->hi >= s->d[k])) return true;
    }
    return false;
}

// One padding per tensor: 0 where any read has it. Reads with another one are written with select.
static void ein__collect_pads(ein__printer *p, ein__ex body) {
    const ein__ex *reads = ein__ex_reads(p->ctx, body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(p->ctx, reads[i]);
        if (!ein__read_is_padded(p->ctx, e)) continue;
        ein__print_pad pad = {e->val, ein__f64_of(e->bits),
                              e->bits || ein__read_wants_clause(p->ctx, e)};
        ptrdiff_t j = 0;
        while (j < arrlen(p->pad) && p->pad[j].val != pad.val) j++;
        if (j == arrlen(p->pad)) {
            arrput(p->pad, pad);
            continue;
        }
        p->pad[j].clause |= pad.clause;
        uint64_t old = ein__bits_of(p->pad[j].value);
        if (old && (!e->bits || e->bits < old)) p->pad[j].value = pad.value;
    }
}

static uint64_t ein__clause_bits(const ein__printer *p, uint32_t val) {
    for (ptrdiff_t i = 0; i < arrlen(p->pad); i++)
        if (p->pad[i].val == val) return ein__bits_of(p->pad[i].value);
    return 0;
}

static void ein__print_read(ein__printer *p, const ein__expr *e, bool floored, ein__buf *out) {
    ein__print_name(ein__val_get(p->ctx, (ein__val){e->val})->name, out);
    ein__put(out, "[");
    for (uint32_t k = 0; k < e->nix; k++) {
        if (k) ein__put(out, ",");
        ein__print_index(p, floored ? ein__floored(p->ctx, e->ix[k]) : e->ix[k], out);
    }
    ein__put(out, "]");
}

// How a read can be written: as it is; times a guard that says where its indices are integers; or
// as a select, when its padding is not what the clause gives.
typedef enum { EIN__RD_PLAIN, EIN__RD_GUARDED, EIN__RD_SELECT } ein__read_form;

static ein__read_form ein__read_form_of(const ein__printer *p, const ein__expr *e) {
    bool exact = false;
    for (uint32_t k = 0; k < e->nix; k++) exact |= ein__ix_get(p->ctx, e->ix[k])->q > 1;
    if (!ein__read_is_padded(p->ctx, e)) return EIN__RD_PLAIN;
    if (e->bits != ein__clause_bits(p, e->val) || (exact && e->bits)) return EIN__RD_SELECT;
    return exact ? EIN__RD_GUARDED : EIN__RD_PLAIN;
}

static void ein__print_number(double v, ein__buf *out) {
    if (v != v) ein__put(out, "(inf - inf)");
    else ein__put_f64(out, v);
}

static void ein__print_select_read(ein__printer *p, const ein__expr *e, ein__buf *out) {
    const ein__shape *s = &ein__val_get(p->ctx, (ein__val){e->val})->shape;
    ein__texts guard = {0};
    for (uint32_t k = 0; k < e->nix; k++)
        if (!ein__ix_has_gather(p->ctx, e->ix[k]))
            ein__add_conditions(p, e->ix[k], s->d[k], &guard);
    bool any = arrlen(guard.s) > 0;
    if (any) {
        ein__put(out, "select(");
        ein__put_guards(&guard, true, out);
        ein__put(out, " == 1, ");
    }
    ein__print_read(p, e, true, out);
    if (any) {
        ein__put(out, ", ");
        ein__print_number(ein__f64_of(e->bits), out);
        ein__put(out, ")");
    }
    ein__texts_free(&guard);
}

// ------------------------------------------------------------------------------------ products

// A product as text: its factors, and the guards of all of them, which stand at its end.
typedef struct ein__product_text {
    ein__buf factors;
    int n;
    ein__texts guard;
} ein__product_text;

static bool ein__operands_swap(ein__printer *p, ein__ex ex);

static void ein__product_factor(ein__printer *p, ein__ex ex, const char *op, ein__product_text *t) {
    if (t->n++) ein__put(&t->factors, op);
    ein__print_expr(p, ex, EIN__P_FACTOR, &t->factors);
}

static void ein__print_opposite(ein__printer *p, const ein__expr *e, ein__buf *out) {
    ein__texts guard = {0};
    ein__add_conditions(p, e->ix[0], e->n, &guard);
    ein__put(out, "select(");
    ein__put_guards(&guard, true, out);
    ein__put(out, " == 0, ");
    ein__print_expr(p, e->kid[0], EIN__P_SUM, out);
    ein__put(out, ", 0)");
    ein__texts_free(&guard);
}

static void ein__collect_product(ein__printer *p, ein__ex ex, ein__product_text *t) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    double one;
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL) {
        bool swap = ein__operands_swap(p, ex);
        ein__collect_product(p, e->kid[swap ? 1 : 0], t);
        ein__collect_product(p, e->kid[swap ? 0 : 1], t);
    } else if (e->op == EIN__X_BINARY && e->fn == EIN__DIV) {
        ein__collect_product(p, e->kid[0], t);
        if (!t->n++) ein__put(&t->factors, "1");
        ein__put(&t->factors, " / ");
        ein__print_expr(p, e->kid[1], EIN__P_FACTOR, &t->factors);
        t->n++;
    } else if (e->op == EIN__X_WHEN) {
        if (!e->negate) {
            ein__add_conditions(p, e->ix[0], e->n, &t->guard);
        } else if (!ein__add_opposite(p, e->ix[0], e->n, &t->guard)) {
            if (t->n++) ein__put(&t->factors, " * ");
            ein__print_opposite(p, e, &t->factors);
            return;
        }
        if (!ein__ex_is_const(p->ctx, e->kid[0], &one) || one != 1)
            ein__collect_product(p, e->kid[0], t);
    } else if (e->op == EIN__X_READ && ein__read_form_of(p, e) == EIN__RD_GUARDED) {
        if (t->n++) ein__put(&t->factors, " * ");
        ein__print_read(p, e, false, &t->factors);
        for (uint32_t k = 0; k < e->nix; k++) {
            const ein__index *f = ein__ix_get(p->ctx, e->ix[k]);
            if (f->q > 1) ein__add_lattice(p, f, "==", &t->guard);
        }
    } else {
        ein__product_factor(p, ex, " * ", t);
    }
}

static bool ein__is_product(const ein__printer *p, const ein__expr *e) {
    if (e->op == EIN__X_BINARY) return e->fn == EIN__MUL || e->fn == EIN__DIV;
    if (e->op == EIN__X_READ) return ein__read_form_of(p, e) == EIN__RD_GUARDED;
    return e->op == EIN__X_WHEN;
}

static void ein__print_product(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out) {
    ein__product_text t = {0};
    ein__collect_product(p, ex, &t);
    bool group = level == EIN__P_FACTOR && t.n + arrlen(t.guard.s) > 1;
    ein__put(out, group ? "(" : "");
    if (t.n) ein__put(out, t.factors.s);
    ein__put_guards(&t.guard, !t.n, out);
    ein__put(out, group ? ")" : "");
    ein__buf_free(&t.factors);
    ein__texts_free(&t.guard);
}

// ------------------------------------------------------------------------------------ expressions

// Chains group to the left, so an operand that is one itself stands first.
static bool ein__is_chain(const ein_ctx *ctx, ein__ex ex, bool sum) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_WHEN && !sum) return ein__is_chain(ctx, e->kid[0], sum);
    if (e->op != EIN__X_BINARY) return false;
    return sum ? e->fn == EIN__ADD || e->fn == EIN__SUB : e->fn == EIN__MUL || e->fn == EIN__DIV;
}

// Constants lead products and end sums; what only weights decide comes after the rest.
static int ein__operand_rank(const ein_ctx *ctx, ein__ex ex, bool product) {
    double c;
    if (ein__ex_is_const(ctx, ex, &c)) return product ? 0 : 3;
    const ein__ex *reads = ein__ex_reads(ctx, ex);
    bool weights = arrlen(reads) > 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        weights &= ein__val_get(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val})->weight_only;
    return weights ? 2 : 1;
}

// Whether the second operand of a commuting function is printed first. Operands that the
// constructor does not tell apart stay as they are; others may be exchanged, since it puts them in
// order again.
static bool ein__operands_swap(ein__printer *p, ein__ex ex) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    bool sum = e->fn == EIN__ADD, product = e->fn == EIN__MUL;
    if (!ein__commutes((ein__fn)e->fn) || !ein__ex_compare(p->ctx, e->kid[0], e->kid[1]))
        return false;
    if (sum || product) {
        bool a = ein__is_chain(p->ctx, e->kid[0], sum), b = ein__is_chain(p->ctx, e->kid[1], sum);
        if (a != b) return b;
    }
    return ein__operand_rank(p->ctx, e->kid[1], product) <
           ein__operand_rank(p->ctx, e->kid[0], product);
}

static void ein__print_binary(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    const char *name = ein__fn_table[e->fn].name;
    bool sum = e->fn == EIN__ADD || e->fn == EIN__SUB, swap = ein__operands_swap(p, ex);
    bool group = sum && level != EIN__P_SUM;
    if (!sum) ein__put(out, name);
    ein__put(out, group || !sum ? "(" : "");
    ein__print_expr(p, e->kid[swap ? 1 : 0], EIN__P_SUM, out);
    ein__putf(out, sum ? " %s " : ", ", name);
    ein__print_expr(p, e->kid[swap ? 0 : 1], sum ? EIN__P_PRODUCT : EIN__P_SUM, out);
    ein__put(out, group || !sum ? ")" : "");
}

static void ein__print_select(ein__printer *p, const ein__expr *e, ein__buf *out) {
    ein__put(out, "select(");
    ein__print_expr(p, e->kid[0], EIN__P_SUM, out);
    ein__putf(out, " %s ", ein__fn_table[e->fn].name);
    for (int i = 1; i < 4; i++) {
        ein__print_expr(p, e->kid[i], EIN__P_SUM, out);
        ein__put(out, i < 3 ? ", " : ")");
    }
}

static void ein__print_expr(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    if (ein__is_product(p, e)) {
        ein__print_product(p, ex, level, out);
    } else if (e->op == EIN__X_CONST) {
        ein__print_number(ein__f64_of(e->bits), out);
    } else if (e->op == EIN__X_IDX) {
        const ein__index *f = ein__ix_get(p->ctx, e->ix[0]);
        bool group = f->q > 1 && level == EIN__P_FACTOR;
        ein__put(out, group ? "(idx(" : "idx(");
        ein__print_linear(p, f, f->c, 0, out);
        if (f->q > 1) ein__putf(out, ") / %lld", (long long)f->q);
        ein__put(out, group || f->q == 1 ? ")" : "");
    } else if (e->op == EIN__X_READ) {
        if (ein__read_form_of(p, e) == EIN__RD_PLAIN) ein__print_read(p, e, false, out);
        else ein__print_select_read(p, e, out);
    } else if (e->op == EIN__X_UNARY) {
        bool minus = e->fn == EIN__NEG;
        ein__put(out, minus ? "-" : ein__fn_table[e->fn].name);
        ein__put(out, minus ? "" : "(");
        ein__print_expr(p, e->kid[0], minus ? EIN__P_FACTOR : EIN__P_SUM, out);
        ein__put(out, minus ? "" : ")");
    } else if (e->op == EIN__X_BINARY) {
        ein__print_binary(p, ex, level, out);
    } else {
        ein__print_select(p, e, out);
    }
}

// ------------------------------------------------------------------------------------ equations

// i0, i1, .. for traversal and r0, r1, .. for reductions, made longer while something else in reach
// of the equation has that name.
static void ein__name_iterators(ein__printer *p, const char *result, const ein__ex *reads) {
    const ein__scope *s = p->s;
    for (uint32_t k = 0; k < s->nt + s->ns; k++) {
        char *name = p->index[k];
        snprintf(name, sizeof p->index[k], "%c%u", k < s->nt ? 'i' : 'r',
                 (unsigned)(k < s->nt ? k : k - s->nt));
        bool clash = true;
        while (clash && strlen(name) + 2 < sizeof p->index[k]) {
            clash = !strcmp(name, result);
            for (ptrdiff_t i = 0; i < arrlen(reads); i++)
                clash |= !strcmp(name, p->ctx->value[ein__ex_get(p->ctx, reads[i])->val].name);
            for (ptrdiff_t i = 0; i < arrlen(p->ctx->graph.dim); i++)
                clash |= !strcmp(name, p->ctx->graph.dim[i].name);
            if (clash) strcat(name, "_");
        }
    }
}

static int ein__by_name(const void *a, const void *b) {
    return strcmp(((const ein__buf *)a)->s, ((const ein__buf *)b)->s);
}

// Whether bare uses give the range of iterator `k`: there are some, and all agree with it.
static bool ein__range_implied(ein__printer *p, const ein__ex *reads, uint32_t k) {
    int64_t n = p->s->n[k];
    bool used = false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(p->ctx, reads[i]);
        for (uint32_t d = 0; d < e->nix; d++) {
            uint32_t slot;
            if (!ein__ix_is_iter(p->ctx, e->ix[d], &slot) || slot != k) continue;
            if (p->ctx->value[e->val].shape.d[d] != n) return false;
            used = true;
        }
    }
    return used;
}

static void ein__print_where(ein__printer *p, const ein__ex *reads, bool brief, ein__buf *out) {
    const ein__scope *s = p->s;
    const char *start = " where ";
    for (uint32_t k = 0; k < s->nt + s->ns; k++) {
        if (ein__range_implied(p, reads, k) || (brief && s->n[k] == 1)) continue;
        ein__putf(out, "%s%s in 0:%lld", start, p->index[k], (long long)s->n[k]);
        start = ", ";
    }
    ein__buf *pads = NULL;
    for (ptrdiff_t i = 0; i < arrlen(p->pad); i++) {
        if (!p->pad[i].clause) continue;
        ein__buf b = {0};
        ein__print_name(ein__val_get(p->ctx, (ein__val){p->pad[i].val})->name, &b);
        ein__put(&b, " ");
        ein__print_number(p->pad[i].value, &b);
        arrput(pads, b);
    }
    if (pads) qsort(pads, arrlenu(pads), sizeof *pads, ein__by_name);
    for (ptrdiff_t i = 0; i < arrlen(pads); i++) {
        ein__putf(out, "%spad %s", start, pads[i].s);
        ein__buf_free(&pads[i]);
        start = ", ";
    }
    arrfree(pads);
}

static void ein__print_definition(ein_ctx *ctx, ein__val v, bool brief, ein__buf *out) {
    static const char *const reduce[] = {"", "sum", "prod", "max", "min"};
    const ein__value *x = ein__val_get(ctx, v);
    if (x->kind != EIN__V_SCOPE) {
        ein__put(out, x->kind == EIN__V_INPUT ? "input " : "weight ");
        ein__print_name(x->name, out);
        ein__putf(out, ": %s[", ein__dtype_name(x->dtype));
        for (int k = 0; k < x->shape.rank; k++)
            ein__putf(out, "%s%lld", k ? "," : "", (long long)x->shape.d[k]);
        ein__put(out, "]");
        return;
    }
    ein__printer p = {.ctx = ctx, .s = ein__sc_get(ctx, x->scope)};
    const ein__ex *reads = ein__ex_reads(ctx, p.s->body);
    ein__name_iterators(&p, x->name, reads);
    ein__collect_pads(&p, p.s->body);
    ein__print_name(x->name, out);
    ein__put(out, "[");
    for (uint32_t k = 0; k < p.s->nt; k++)
        ein__putf(out, "%s%s", k ? "," : "", brief && p.s->n[k] == 1 ? "0" : p.index[k]);
    ein__put(out, "] = ");
    if (p.s->reduce != EIN__R_NONE) {
        ein__putf(out, "%s(", reduce[p.s->reduce]);
        for (uint32_t k = p.s->nt; k < p.s->nt + p.s->ns; k++)
            ein__putf(out, "%s%s", k > p.s->nt ? "," : "", p.index[k]);
        ein__put(out, ") ");
        ein__print_expr(&p, p.s->body, EIN__P_PRODUCT, out);
    } else {
        ein__print_expr(&p, p.s->body, EIN__P_SUM, out);
    }
    ein__print_where(&p, reads, brief, out);
    arrfree(p.pad);
}

// The value's definition as an equation, without a line's end; inputs and weights as declarations.
EIN__FN void ein__print_value(ein_ctx *ctx, ein__val v, ein__buf *out) {
    ein__print_definition(ctx, v, false, out);
}

// For comments: dimensions of extent 1 have the subscript 0 and no range.
EIN__FN void ein__print_brief(ein_ctx *ctx, ein__val v, ein__buf *out) {
    ein__print_definition(ctx, v, true, out);
}
