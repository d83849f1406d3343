// Statements: the second half of the parser. A statement with a mistake is reported and left out,
// so that one run finds the mistakes of a whole file.

static bool ein__parse_end(ein__parser *p, const char *what) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind == EIN__TOK_END) return true;
    if (t->pos.line == ein__peek(p, -1)->pos.line) return ein__expected(p, what);
    ein__error(p->ctx, EIN_BAD_INPUT, t->pos,
               "this line is indented and so continues the one "
               "above, but that is complete");
    return false;
}

static const char ein__operand_wanted[] = "a tensor's name or '_'";

// A list of names from one on; `close` is reported as missing when something else follows.
static bool ein__parse_names(ein__parser *p, const char *what, int *n, ein__ident **names) {
    ein__ident name, *list = NULL;
    bool ok;
    do {
        bool number = ein__peek(p, ein__is_op(p, 0, "-"))->kind == EIN__TOK_NUMBER;
        if (what == ein__operand_wanted && number)
            what = "a tensor's name or '_' (a constant needs an equation: y[i] = x[i] + 1)";
        ok = ein__parse_name(p, what, &name);
        if (ok) arrput(list, name);
        if (ok && arrlen(list) > EIN__MAX_ARGS) {
            ein__error(p->ctx, EIN_RESOURCES, name.pos, "more than %d in one list", EIN__MAX_ARGS);
            ok = false;
        }
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, *names, *n, list);
    return ok;
}

static bool ein__parse_one_name(ein__parser *p, const char *what, ein__stmt *s) {
    s->nname = 1;
    s->name = EIN__NEW(&p->ctx->arena, ein__ident, 1);
    return ein__parse_name(p, what, s->name);
}

// name = value, ..; in a block's head the value may be missing.
static bool ein__parse_attrs(ein__parser *p, bool params, ein__stmt *s) {
    ein__attr *list = NULL;
    ein__ident name;
    bool ok;
    do {
        ein__ast *value = NULL;
        ok = ein__parse_word(p, params ? "a parameter" : "an attribute", &name);
        if (ok && (!params || ein__is_op(p, 0, "=")))
            ok = ein__expect(p, "=") && (value = ein__parse_value(p)) != NULL;
        for (ptrdiff_t i = 0; ok && i < arrlen(list); i++)
            if (list[i].name == name.name) {
                ein__error(p->ctx, EIN_BAD_INPUT, name.pos, "'%s' is given twice", name.name);
                ok = false;
            }
        if (ok && arrlen(list) == EIN__MAX_ARGS) {
            ein__error(p->ctx, EIN_RESOURCES, name.pos, "more than %d in one list", EIN__MAX_ARGS);
            ok = false;
        }
        ein__attr attr = {name.name, name.pos, value};
        if (ok) arrput(list, attr);
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, s->attr, s->nattr, list);
    return ok;
}

EIN__FN bool ein__dtype_find(const char *name, ein__dtype *dtype) {
    for (int i = 0; i < EIN__NDTYPE; i++)
        if (!strcmp(name, ein__dtype_name((ein__dtype)i))) {
            *dtype = (ein__dtype)i;
            return true;
        }
    return false;
}

// "; types are f32, .."
static const char *ein__dtype_list(ein_ctx *ctx) {
    const char *s = "; types are";
    for (int i = 0; i < EIN__NDTYPE; i++)
        s = ein__namef(ctx, "%s%s %s", s, i ? "," : "", ein__dtype_name((ein__dtype)i));
    return s;
}

// dtype [ sizes ]
static ein__type *ein__parse_type(ein__parser *p) {
    const ein__token t = *ein__peek(p, 0);
    ein__type *type = EIN__NEW(&p->ctx->arena, ein__type, 1);
    if (t.kind != EIN__TOK_NAME) {
        ein__expected(p, "a type such as f32[2,3]");
        return NULL;
    }
    type->pos = t.pos;
    if (!ein__dtype_find(t.text, &type->dtype)) {
        const char *best = NULL;
        int distance = 3;
        for (int i = 0; i < EIN__NDTYPE; i++)
            ein__suggest(t.text, ein__dtype_name((ein__dtype)i), &best, &distance);
        ein__error(p->ctx, EIN_BAD_INPUT, t.pos, "unknown type '%s'%s", t.text,
                   best ? ein__hint(p->ctx, best) : ein__dtype_list(p->ctx));
        return NULL;
    }
    p->at++;
    ptrdiff_t base = arrlen(p->stack);
    int height;
    if (!ein__accept(p, "[")) {
        ein__expected(p, "'[' and sizes: f32[] has one element");
        return NULL;
    }
    if (!ein__parse_list(p, "]", true, EIN__MAX_RANK, "dimensions", ein__parse_sexpr, &height))
        return NULL;
    type->rank = (int)(arrlen(p->stack) - base);
    for (int i = 0; i < type->rank; i++) type->dim[i] = p->stack[base + i];
    arrsetlen(p->stack, (size_t)base);
    return type;
}

static bool ein__parse_dims(ein__parser *p, ein__stmt *s) {
    ein__ident name, *names = NULL;
    ein__ast **values = NULL;
    bool ok;
    do {
        ein__ast *value = NULL;
        ok = ein__parse_word(p, "a dim's name", &name) && ein__expect(p, "=") &&
             (value = ein__parse_sexpr(p)) != NULL;
        if (ok) arrput(names, name);
        if (ok) arrput(values, value);
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, s->name, s->nname, names);
    EIN__KEEP(p, s->value, s->nname, values);
    return ok;
}

// "text"
static bool ein__parse_text(ein__parser *p, const char *what, const char **text) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind != EIN__TOK_STRING) return ein__expected(p, what);
    *text = t->text;
    p->at++;
    return true;
}

static bool ein__parse_blob(ein__parser *p, ein__stmt *s) {
    return ein__parse_one_name(p, "the blob's name", s) && ein__expect(p, "=") &&
           ein__parse_text(p, "a file's name in quotes", &s->text);
}

// name : type [ = source ]
static bool ein__parse_tensor(ein__parser *p, ein__stmt *s) {
    s->type = EIN__NEW(&p->ctx->arena, ein__type *, 1);
    if (!ein__parse_one_name(p, "a tensor's name", s) || !ein__expect(p, ":")) return false;
    s->type[0] = ein__parse_type(p);
    if (!s->type[0]) return false;
    if (!ein__accept(p, "=")) return true;
    if (!ein__parse_name(p, "a source: zeros(), ones(), randn(..), uniform(..) or BLOB \"name\"",
                         &s->call))
        return false;
    if (!ein__is_op(p, 0, "("))
        return ein__parse_text(p, "'(' or the tensor's name in the blob, in quotes", &s->text);
    p->at++;
    return ein__accept(p, ")") || (ein__parse_attrs(p, false, s) && ein__expect(p, ")"));
}

// name [ : type ], ..
static bool ein__parse_output(ein__parser *p, ein__stmt *s) {
    ein__ident name, *names = NULL;
    ein__type **types = NULL;
    bool ok;
    do {
        ein__type *type = NULL;
        ok = ein__parse_name(p, "a tensor's name", &name);
        if (ok && ein__accept(p, ":")) ok = (type = ein__parse_type(p)) != NULL;
        if (ok) arrput(names, name);
        if (ok) arrput(types, type);
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, s->name, s->nname, names);
    EIN__KEEP(p, s->type, s->nname, types);
    return ok;
}

// names = name ( [ args ] [ ; attrs ] )
static bool ein__parse_operator(ein__parser *p, ein__stmt *s) {
    s->kind = EIN__ST_OPERATOR;
    if (!ein__parse_names(p, "a tensor's name", &s->nname, &s->name) || !ein__expect(p, "=") ||
        !ein__parse_name(p, "an operator", &s->call))
        return false;
    s->pos = s->call.pos;
    if (!ein__accept(p, "("))
        return ein__expected(p, "'(' behind the operator (a copy is Identity(..))");
    if (!ein__is_op(p, 0, ")") && !ein__is_op(p, 0, ";")) {
        int first = p->at;
        if (!ein__parse_names(p, ein__operand_wanted, &s->narg, &s->arg)) return false;
        for (int i = 0; i < s->narg; i++) {
            const ein__token *t = &p->lex.tok[first + 2 * i];
            if (t->kind == EIN__TOK_NAME && !strcmp(t->text, "_")) s->arg[i].name = NULL;
        }
    }
    if (ein__accept(p, ";") && !ein__is_op(p, 0, ")") && !ein__parse_attrs(p, false, s))
        return false;
    if (s->narg && !s->nattr && ein__is_op(p, 0, "="))
        return ein__expected(p, "',', ';' or ')' (attributes stand behind a ';')");
    if (s->narg && !s->nattr && ein__is_op(p, 0, "("))
        return ein__expected(p,
                             "',', ';' or ')' (calls do not nest: give the inner one a "
                             "name in a line of its own)");
    return ein__accept(p, ")") || ein__expected(p, s->nattr ? "',' or ')'" : "',', ';' or ')'");
}

static bool ein__parse_body(ein__parser *p, ein__stmt *s);

// Names that a block's head may not have twice.
static bool ein__distinct(ein__parser *p, const ein__stmt *s) {
    for (int i = 0; i < s->narg + s->nresult + s->nattr; i++)
        for (int j = 0; j < i; j++) {
            ein__ident two[2];
            for (int k = 0; k < 2; k++) {
                int m = k ? i : j;
                if (m < s->narg) two[k] = s->arg[m];
                else if (m < s->narg + s->nattr)
                    two[k] = (ein__ident){s->attr[m - s->narg].name, s->attr[m - s->narg].pos};
                else two[k] = s->result[m - s->narg - s->nattr];
            }
            if (two[0].name != two[1].name) continue;
            ein__error(p->ctx, EIN_BAD_INPUT, two[1].pos,
                       "'%s' stands twice in the head of block "
                       "'%s'",
                       two[1].name, s->name[0].name);
            return false;
        }
    return true;
}

// name ( [ inputs ] [ ; params ] ) -> results {
static bool ein__parse_block(ein__parser *p, ein__stmt *s) {
    if (!ein__parse_one_name(p, "the block's name", s) || !ein__expect(p, "(")) return false;
    if (!ein__is_op(p, 0, ")") && !ein__is_op(p, 0, ";") &&
        !ein__parse_names(p, "an input's name", &s->narg, &s->arg))
        return false;
    if (ein__accept(p, ";") && !ein__is_op(p, 0, ")") && !ein__parse_attrs(p, true, s))
        return false;
    if (!ein__accept(p, ")")) return ein__expected(p, s->nattr ? "',' or ')'" : "',', ';' or ')'");
    if (!ein__accept(p, "->")) return ein__expected(p, "'->' and the names of the block's results");
    return ein__parse_names(p, "a result's name", &s->nresult, &s->result) && ein__expect(p, "{") &&
           ein__distinct(p, s);
}

// name in lo : hi {
static bool ein__parse_repeat(ein__parser *p, ein__stmt *s) {
    s->nname = 1;
    s->name = EIN__NEW(&p->ctx->arena, ein__ident, 1);
    s->value = EIN__NEW(&p->ctx->arena, ein__ast *, 2);
    if (!ein__parse_word(p, "the loop variable's name", s->name)) return false;
    if (!ein__is_word(p, 0, "in")) return ein__expected(p, "'in'");
    p->at++;
    if (!(s->value[0] = ein__parse_sexpr(p)) || !ein__expect(p, ":")) return false;
    return (s->value[1] = ein__parse_sexpr(p)) != NULL && ein__expect(p, "{");
}

// ORDER ein__stmt_kind
static const char *const ein__keyword[] = {"ein",    "model",  "dim", "small", "blob",  "input",
                                           "weight", "output", NULL,  NULL,    "block", "repeat"};

static bool ein__no_statement(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    for (int k = 0; k <= EIN__ST_REPEAT; k++)
        if (ein__keyword[k] && ein__is_word(p, 0, ein__keyword[k])) {
            p->at++;
            return ein__expected(
                p, k == EIN__ST_REPEAT ? "a loop, as in 'repeat i in 0:3 {'" : "a name");
        }
    if (!ein__is_name(p, 1)) {
        p->at++;
        return ein__expected(p, "'=', ',' or '['");
    }
    const char *best = NULL;
    int distance = 3;
    for (int k = EIN__ST_MODEL; k <= EIN__ST_REPEAT; k++)
        if (ein__keyword[k]) ein__suggest(t->text, ein__keyword[k], &best, &distance);
    ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "unknown statement '%s'%s", t->text,
               ein__hint(p->ctx, best));
    return false;
}

static bool ein__parse_keyword(ein__parser *p, ein__stmt *s) {
    s->pos = ein__peek(p, 0)->pos;
    p->at++;
    switch (s->kind) {
    case EIN__ST_MODEL: return ein__parse_one_name(p, "the model's name", s);
    case EIN__ST_DIM:
    case EIN__ST_SMALL: return ein__parse_dims(p, s);
    case EIN__ST_BLOB: return ein__parse_blob(p, s);
    case EIN__ST_INPUT:
    case EIN__ST_WEIGHT: return ein__parse_tensor(p, s);
    case EIN__ST_OUTPUT: return ein__parse_output(p, s);
    case EIN__ST_BLOCK: return ein__parse_block(p, s);
    case EIN__ST_REPEAT: return ein__parse_repeat(p, s);
    case EIN__ST_EIN:
    case EIN__ST_OPERATOR:
    case EIN__ST_EQUATION:
    default: break;
    }
    ein__error(p->ctx, EIN_BAD_INPUT, s->pos, "'ein 1' stands once, in the first line");
    return false;
}

// The statement in the tokens at hand.
static bool ein__parse_statement(ein__parser *p, ein__stmt *s) {
    p->at = p->depth = 0;
    p->floats = false;
    arrsetlen(p->stack, 0);
    if (ein__is_op(p, 0, "/")) return ein__expected(p, "a statement or a comment, '# ..'");
    if (!ein__is_name(p, 0)) return ein__expected(p, "a statement");
    if (ein__is_op(p, 1, "[")) {
        const char *what = "the end of the line";
        if (!ein__parse_equation(p, s)) return false;
        if (!s->eq->nrange && !s->eq->npad) what = "an operator, 'where' or the end of the line";
        return ein__parse_end(p, what);
    }
    if (ein__is_op(p, 1, "=") || ein__is_op(p, 1, ",")) {
        if (!ein__parse_operator(p, s)) return false;
        bool sum = ein__is_op(p, 0, "+") || ein__is_op(p, 0, "-") || ein__is_op(p, 0, "*") ||
                   ein__is_op(p, 0, "/");
        return ein__parse_end(p, sum ? "the end of the line (or an equation: y[i] = a[i] + b[i])"
                                     : "the end of the line");
    }
    bool ein = ein__is_word(p, 0, "ein") && ein__peek(p, 1)->kind == EIN__TOK_NUMBER;
    for (int k = 0; k <= EIN__ST_REPEAT; k++)
        if (ein__keyword[k] && ein__is_word(p, 0, ein__keyword[k]) && (ein__is_name(p, 1) || ein)) {
            s->kind = (ein__stmt_kind)k;
            return ein__parse_keyword(p, s) && ein__parse_end(p, "the end of the line");
        }
    return ein__no_statement(p);
}

// Copies comments into the arena, without blank lines at the ends where `trim` says so (bit 0:
// first, bit 1: last).
static const char **ein__keep_notes(ein__parser *p, const char **note, int trim, int *n) {
    ptrdiff_t from = 0, to = arrlen(note);
    while ((trim & 1) && from < to && !*note[from]) from++;
    while ((trim & 2) && from < to && !*note[to - 1]) to--;
    *n = (int)(to - from);
    const char **kept = EIN__NEW(&p->ctx->arena, const char *, *n + 1);
    for (ptrdiff_t i = from; i < to; i++) kept[i - from] = note[i];
    return kept;
}

// Reads the next statement with its body; NULL when the text or the body around it ends. A
// statement that is wrong is reported and comes back with `*ok` false.
static ein__stmt *ein__next_statement(ein__parser *p, bool first, bool *ok) {
    if (!ein__lex_statement(&p->lex)) return NULL;
    if (p->lex.closes) {
        p->at = 1;
        if (!p->lex.bad) ein__parse_end(p, "the end of the line");
        return NULL;
    }
    ein__stmt *s = EIN__NEW(&p->ctx->arena, ein__stmt, 1);
    s->pos = p->lex.tok[0].pos;
    s->lead = ein__keep_notes(p, p->lex.lead, first, &s->nlead);
    s->trail = p->lex.trail;
    s->size = (int)arrlen(p->lex.tok);
    bool opens = p->lex.opens;
    *ok = !p->lex.bad;
    if (*ok && ++p->nstmt > EIN__MAX_NODES) {
        ein__error(p->ctx, EIN_RESOURCES, s->pos, "the text has more than %d statements",
                   EIN__MAX_NODES);
        ein__lex_stop(&p->lex);
        *ok = false;
    }
    *ok = *ok && ein__parse_statement(p, s);
    if (opens && !ein__parse_body(p, s)) *ok = false;
    return s;
}

// Statements up to the `}`.
static bool ein__parse_body(ein__parser *p, ein__stmt *s) {
    ein__stmt **list = NULL;
    ein__pos pos = s->pos;
    bool all = true, ok = true;
    ein__stmt *next;
    while ((next = ein__next_statement(p, !arrlen(list), &ok)) != NULL) {
        if (ok) arrput(list, next);
        all = all && ok;
    }
    EIN__KEEP(p, s->body, s->nbody, list);
    if (!p->lex.closes) {
        if (!p->open_at_end && !p->lex.stopped)
            ein__error(p->ctx, EIN_BAD_INPUT, pos,
                       "this '{' is not closed: a line with '}' is "
                       "missing");
        p->open_at_end = true;
        return false;
    }
    p->lex.closes = false;
    s->tail = ein__keep_notes(p, p->lex.lead, 2 | !s->nbody, &s->ntail);
    s->end_trail = p->lex.trail;
    return all;
}

static void ein__parser_close(ein__parser *p) {
    arrfree(p->stack);
    ein__lex_close(&p->lex);
}

// `ein 1`
static ein__stmt *ein__parse_header(ein__parser *p) {
    ein__stmt *s = EIN__NEW(&p->ctx->arena, ein__stmt, 1);
    p->at = 0;
    if (!ein__lex_is_model(&p->lex)) {
        size_t n = strlen(p->ctx->file);
        bool onnx = n > 5 && !strcmp(p->ctx->file + n - 5, ".onnx");
        ein__error(p->ctx, EIN_BAD_INPUT, (ein__pos){1, 1},
                   "this is no model: the first line of one is 'ein 1'%s",
                   onnx ? " ('einnet import' makes one of an ONNX model)" : "");
        return NULL;
    }
    if (!ein__lex_statement(&p->lex)) {
        if (!p->ctx->status)
            ein__error(p->ctx, EIN_BAD_INPUT, (ein__pos){1, 1},
                       "the model is empty: its first "
                       "line is 'ein 1'");
        return NULL;
    }
    s->pos = p->lex.tok[0].pos;
    s->lead = ein__keep_notes(p, p->lex.lead, 1, &s->nlead);
    s->trail = p->lex.trail;
    const ein__token *version = ein__peek(p, 1);
    if (!ein__is_word(p, 0, "ein") || version->kind != EIN__TOK_NUMBER) {
        ein__error(p->ctx, EIN_BAD_INPUT, s->pos, "the first line of a model is 'ein 1'");
        return NULL;
    }
    if (!version->integral || version->inum != 1) {
        ein__error(p->ctx, EIN_BAD_INPUT, version->pos,
                   "version %s of the language is not known: "
                   "this is version 1",
                   version->text);
        return NULL;
    }
    p->at = 2;
    return ein__parse_end(p, "the end of the line") ? s : NULL;
}

// Parses ctx->text into ctx->tree, which stays NULL when the text has a mistake.
EIN__FN bool ein__parse(ein_ctx *ctx) {
    if (ctx->length > EIN__MAX_TEXT) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "the text is longer than %d bytes",
                   EIN__MAX_TEXT);
        return false;
    }
    ein__parser p = {.ctx = ctx};
    ein__lex_open(&p.lex, ctx, ctx->text, ctx->length);
    ein__stmt **list = NULL, *s = ein__parse_header(&p);
    if (s) {
        bool ok;
        arrput(list, s);
        while ((s = ein__next_statement(&p, false, &ok)) != NULL || p.lex.closes) {
            if (s && ok) arrput(list, s);
            if (!s) ein__error(ctx, EIN_BAD_INPUT, p.lex.tok[0].pos, "no '{' is open here");
        }
        ctx->tree = EIN__NEW(&ctx->arena, struct ein__tree, 1);
        ctx->tree->tail = ein__keep_notes(&p, p.lex.pending, 2, &ctx->tree->ntail);
        EIN__KEEP(&p, ctx->tree->stmt, ctx->tree->nstmt, list);
    }
    ein__parser_close(&p);
    if (ctx->status) ctx->tree = NULL;
    return !ctx->status;
}

// Parses `text`, one equation a line, into an stb_ds array of equations that the arena holds; NULL
// after a mistake. A type may stand in front of one. Every position is zero: the text is not the
// model's.
EIN__FN ein__equation **ein__parse_equations(ein_ctx *ctx, const char *text) {
    ein__parser p = {.ctx = ctx};
    ein__lex_open(&p.lex, ctx, text, strlen(text));
    p.lex.no_pos = true;
    ein__equation **list = NULL;
    bool all = true;
    while (all && ein__lex_statement(&p.lex)) {
        ein__stmt s = {0};
        ein__dtype dtype = EIN__NDTYPE;
        bool typed = arrlen(p.lex.tok) > 1 && p.lex.tok[0].kind == EIN__TOK_NAME &&
                     p.lex.tok[1].kind == EIN__TOK_NAME &&
                     ein__dtype_find(p.lex.tok[0].text, &dtype);
        if (typed) arrdel(p.lex.tok, 0);
        all = !p.lex.bad && ein__parse_statement(&p, &s);
        if (all && s.kind != EIN__ST_EQUATION) {
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "an equation was expected: %s", text);
            all = false;
        }
        if (!all) break;
        s.eq->dtype = dtype;
        arrput(list, s.eq);
    }
    ein__parser_close(&p);
    if (!all) arrfree(list);
    return list;
}
