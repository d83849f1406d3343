// The canonical text of a model: one statement a line, fixed spacing, no needless parentheses. It
// parses to the tree it was printed from, and prints the same again.
//
// A statement is first put into a buffer with marks where it may be broken; when it is wider than
// EIN__WIDTH columns, it is broken before `where` and then wherever a line is full.

enum { EIN__WIDTH = 100, EIN__BREAK = 1, EIN__BREAK_FIRST = 2 };  // marks: both stand for a space

// Names of tensors may be replaced while an equation is printed.
typedef struct ein__formatter {
    ein__buf *out;
    const char *(*rename)(void *user, const char *name);  // or NULL
    void *user;
    bool breaks;
} ein__formatter;

// In quotes, with escapes; other characters are UTF-8 and stay.
static void ein__put_quoted(ein__buf *b, const char *s) {
    ein__put(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') ein__putf(b, "\\%c", c);
        else if (c == '\n') ein__put(b, "\\n");
        else if (c == '\t') ein__put(b, "\\t");
        else if (c < 32 || c == 127) ein__putf(b, "\\x%02x", c);
        else ein__put_n(b, s, 1);
    }
    ein__put(b, "\"");
}

static void ein__put_name(ein__buf *b, const char *name) {
    if (ein__is_identifier(name) && strcmp(name, "_")) ein__put(b, name);
    else ein__put_quoted(b, name);
}

// The shortest text that reads back as the same float: "0.5", "3.0", "1e-5".
EIN__FN void ein__put_real(ein__buf *b, double v) {
    ein__buf t = {0};
    ein__put_shortest(&t, v);
    char *e = strchr(t.s, 'e');
    if (isinf(v)) {
        ein__put(b, t.s);
    } else if (!e) {
        ein__putf(b, "%s%s", t.s, strchr(t.s, '.') ? "" : ".0");
    } else {
        const char *digits = e + 2;
        while (*digits == '0') digits++;
        ein__putf(b, "%.*s%s%s", (int)(e + 1 - t.s), t.s, e[1] == '-' ? "-" : "", digits);
    }
    ein__buf_free(&t);
}

static void ein__put_number(ein__buf *b, const ein__ast *a) {
    if (a->integral) ein__putf(b, "%lld", (long long)a->inum);
    else ein__put_real(b, a->num);
}

// How tightly a node binds: 1 sums, 2 products, 3 what can stand beside `*`.
static int ein__tightness(const ein__ast *a) {
    if (a->kind == EIN__A_ADD || a->kind == EIN__A_SUB) return 1;
    return a->kind == EIN__A_MUL || a->kind == EIN__A_DIV || a->kind == EIN__A_MOD ? 2 : 3;
}

static bool ein__is_negative(const ein__ast *a) {
    return a->kind == EIN__A_NEG || (a->kind == EIN__A_NUM && signbit(a->num));
}

// Subscripts, sizes and attribute values; `least` is the tightness its place needs, 4 behind an
// operator, where a sign is put in parentheses.
static void ein__put_value(ein__buf *b, const ein__ast *a, int least) {
    bool parens = ein__tightness(a) < least || (least == 4 && ein__is_negative(a));
    if (least == 4 && ein__tightness(a) == 3) parens = ein__is_negative(a);
    if (parens) ein__put(b, "(");
    switch (a->kind) {
    case EIN__A_NUM: ein__put_number(b, a); break;
    case EIN__A_NAME: ein__put(b, a->name); break;
    case EIN__A_STR: ein__put_quoted(b, a->name); break;
    case EIN__A_NEG:
        ein__put(b, "-");
        ein__put_value(b, a->kid[0], 4);
        break;
    case EIN__A_LIST:
        ein__put(b, "[");
        for (int i = 0; i < a->nkid; i++) {
            if (i) ein__put(b, ",");
            ein__put_value(b, a->kid[i], 1);
        }
        ein__put(b, "]");
        break;
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_MOD: {
        int own = ein__tightness(a);
        ein__put_value(b, a->kid[0], own);
        ein__putf(b, "%c", ein__arithmetic[a->kind - EIN__A_ADD]);
        bool sign = ein__is_negative(a->kid[1]);
        ein__put_value(b, a->kid[1], sign ? 4 : own + 1);
        break;
    }
    case EIN__A_CMP:
    case EIN__A_GUARD:
    case EIN__A_REDUCE:
    case EIN__A_CALL:
    case EIN__A_READ:
    case EIN__A_GATHER:
    case EIN__A_IDX:
    default: break;
    }
    if (parens) ein__put(b, ")");
}

static void ein__put_space(const ein__formatter *p, char mark) {
    char c = p->breaks ? mark : ' ';
    ein__put_n(p->out, &c, 1);
}

static void ein__put_tensor(const ein__formatter *p, const char *name) {
    ein__put_name(p->out, p->rename ? p->rename(p->user, name) : name);
}

static void ein__put_expr(const ein__formatter *p, const ein__ast *a, int least, bool last);

static void ein__put_list(const ein__formatter *p, const ein__ast *a, int from) {
    for (int i = from; i < a->nkid; i++) {
        if (i > from) ein__put(p->out, ",");
        if (i > from) ein__put_space(p, EIN__BREAK);
        ein__put_expr(p, a->kid[i], 1, true);
    }
}

static void ein__put_read(const ein__formatter *p, const ein__ast *a) {
    ein__put_tensor(p, a->name);
    ein__put(p->out, "[");
    for (int i = 0; i < a->nkid; i++) {
        if (i) ein__put(p->out, ",");
        if (a->kid[i]->kind == EIN__A_GATHER) {
            ein__put(p->out, "@");
            ein__put_read(p, a->kid[i]->kid[0]);
        } else {
            ein__put_value(p->out, a->kid[i], 1);
        }
    }
    ein__put(p->out, "]");
}

static void ein__put_reduce(const ein__formatter *p, const ein__ast *a) {
    ein__putf(p->out, "%s(", a->name);
    for (int i = 0; i + 1 < a->nkid; i++) ein__putf(p->out, "%s%s", i ? "," : "", a->kid[i]->name);
    ein__put(p->out, ") ");
    ein__put_expr(p, a->kid[a->nkid - 1], 2, true);
}

static void ein__put_cmp(const ein__formatter *p, const ein__ast *a, bool subscripts) {
    for (int i = 0; i < 2; i++) {
        if (i) ein__putf(p->out, " %s ", a->name);
        if (subscripts) ein__put_value(p->out, a->kid[i], 1);
        else ein__put_expr(p, a->kid[i], 1, true);
    }
}

// A reduction takes all factors that follow, so one that is not `last` in its term is put in
// parentheses.
static void ein__put_expr(const ein__formatter *p, const ein__ast *a, int least, bool last) {
    ein__buf *b = p->out;
    int own = ein__tightness(a);
    bool parens = own < least || (a->kind == EIN__A_REDUCE && !last);
    if (parens) {
        ein__put(b, "(");
        last = true;
    }
    switch (a->kind) {
    case EIN__A_NUM: ein__put_number(b, a); break;
    case EIN__A_NEG:
        ein__put(b, "-");
        ein__put_expr(p, a->kid[0], ein__is_negative(a->kid[0]) ? 4 : 3, last);
        break;
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
        ein__put_expr(p, a->kid[0], own, own == 1);
        ein__put_space(p, EIN__BREAK);
        ein__putf(b, "%c ", ein__arithmetic[a->kind - EIN__A_ADD]);
        ein__put_expr(p, a->kid[1], own + 1, last || own == 1);
        break;
    case EIN__A_GUARD:
        ein__put(b, "[");
        ein__put_cmp(p, a->kid[0], true);
        ein__put(b, "]");
        break;
    case EIN__A_REDUCE: ein__put_reduce(p, a); break;
    case EIN__A_CALL:
        ein__putf(b, "%s(", a->name);
        if (a->kid[0]->kind == EIN__A_CMP) {
            ein__put_cmp(p, a->kid[0], false);
            ein__put(b, ",");
            ein__put_space(p, EIN__BREAK);
        }
        ein__put_list(p, a, a->kid[0]->kind == EIN__A_CMP);
        ein__put(b, ")");
        break;
    case EIN__A_READ: ein__put_read(p, a); break;
    case EIN__A_IDX:
        ein__put(b, "idx(");
        ein__put_value(b, a->kid[0], 1);
        ein__put(b, ")");
        break;
    case EIN__A_NAME:
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_MOD:
    case EIN__A_CMP:
    case EIN__A_GATHER:
    default: break;
    }
    if (parens) ein__put(b, ")");
}

// `pad` holds the values as written, or is NULL for those of the equation. The result's name is not
// replaced: it may be that of a tensor which the equation reads.
static void ein__put_equation(const ein__formatter *p, const ein__equation *eq,
                              ein__ast *const *pad) {
    ein__buf *b = p->out;
    ein__put_name(b, eq->result);
    ein__put(b, "[");
    for (int i = 0; i < eq->rank; i++) ein__putf(b, "%s%s", i ? "," : "", eq->index[i]);
    ein__put(b, "] = ");
    ein__put_expr(p, eq->body, 1, true);
    for (int i = 0; i < eq->nrange + eq->npad; i++) {
        if (!i) {
            ein__put_space(p, EIN__BREAK_FIRST);
            ein__put(b, "where ");
        } else {
            ein__put(b, ",");
            ein__put_space(p, EIN__BREAK);
        }
        if (i < eq->nrange) {
            ein__putf(b, "%s in ", eq->range[i].name);
            ein__put_value(b, eq->range[i].lo, 1);
            ein__put(b, ":");
            ein__put_value(b, eq->range[i].hi, 1);
            continue;
        }
        const ein__padval *v = &eq->pad[i - eq->nrange];
        const char *name = p->rename ? p->rename(p->user, v->tensor) : v->tensor;
        ein__put(b, "pad ");
        if (strcmp(name, "in")) ein__put_name(b, name);
        else ein__put_quoted(b, name);
        ein__put(b, " ");
        if (pad) ein__put_value(b, pad[i - eq->nrange], 1);
        else if (fabs(v->value) < 1e15 && floor(v->value) == v->value)
            ein__putf(b, "%lld", (long long)v->value);
        else ein__put_real(b, v->value);
    }
}

// ------------------------------------------------------------------------------------- statements

static void ein__put_comma(const ein__formatter *p, int i) {
    if (!i) return;
    ein__put(p->out, ",");
    ein__put_space(p, EIN__BREAK);
}

static void ein__put_names(const ein__formatter *p, const ein__ident *name, int n) {
    for (int i = 0; i < n; i++) {
        ein__put_comma(p, i);
        if (name[i].name) ein__put_name(p->out, name[i].name);
        else ein__put(p->out, "_");
    }
}

static void ein__put_attrs(const ein__formatter *p, const ein__stmt *s, bool semicolon) {
    for (int i = 0; i < s->nattr; i++) {
        if (!i && semicolon) {
            ein__put(p->out, ";");
            ein__put_space(p, EIN__BREAK);
        }
        ein__put_comma(p, i);
        ein__put(p->out, s->attr[i].name);
        if (!s->attr[i].value) continue;
        ein__put(p->out, "=");
        ein__put_value(p->out, s->attr[i].value, 1);
    }
}

static void ein__put_declared(const ein__formatter *p, const ein__type *type) {
    if (!type) return;
    ein__putf(p->out, ": %s[", ein__dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) {
        if (i) ein__put(p->out, ",");
        ein__put_value(p->out, type->dim[i], 1);
    }
    ein__put(p->out, "]");
}

static void ein__put_source(const ein__formatter *p, const ein__stmt *s) {
    if (!s->call.name) return;
    ein__put(p->out, " = ");
    ein__put_name(p->out, s->call.name);
    if (s->text) {
        ein__put(p->out, " ");
        ein__put_quoted(p->out, s->text);
        return;
    }
    ein__put(p->out, "(");
    ein__put_attrs(p, s, false);
    ein__put(p->out, ")");
}

// Of dims, small sizes and outputs.
static void ein__put_bindings(const ein__formatter *p, const ein__stmt *s) {
    for (int i = 0; i < s->nname; i++) {
        ein__put_comma(p, i);
        ein__put_name(p->out, s->name[i].name);
        if (s->kind == EIN__ST_OUTPUT) {
            ein__put_declared(p, s->type[i]);
        } else {
            ein__put(p->out, " = ");
            ein__put_value(p->out, s->value[i], 1);
        }
    }
}

static void ein__put_head(const ein__formatter *p, const ein__stmt *s) {
    ein__buf *b = p->out;
    if (s->kind != EIN__ST_OPERATOR && s->kind != EIN__ST_EQUATION && s->kind != EIN__ST_EIN)
        ein__putf(b, "%s ", ein__keyword[s->kind]);
    switch (s->kind) {
    case EIN__ST_EIN: ein__put(b, "ein 1"); break;
    case EIN__ST_MODEL: ein__put_names(p, s->name, 1); break;
    case EIN__ST_DIM:
    case EIN__ST_SMALL:
    case EIN__ST_OUTPUT: ein__put_bindings(p, s); break;
    case EIN__ST_BLOB:
        ein__put_names(p, s->name, 1);
        ein__put(b, " = ");
        ein__put_quoted(b, s->text);
        break;
    case EIN__ST_INPUT:
    case EIN__ST_WEIGHT:
        ein__put_names(p, s->name, 1);
        ein__put_declared(p, s->type[0]);
        ein__put_source(p, s);
        break;
    case EIN__ST_OPERATOR:
        ein__put_names(p, s->name, s->nname);
        ein__put(b, " = ");
        ein__put_name(b, s->call.name);
        ein__put(b, "(");
        ein__put_names(p, s->arg, s->narg);
        ein__put_attrs(p, s, true);
        ein__put(b, ")");
        break;
    case EIN__ST_EQUATION: ein__put_equation(p, s->eq, s->pad); break;
    case EIN__ST_BLOCK:
        ein__put_names(p, s->name, 1);
        ein__put(b, "(");
        ein__put_names(p, s->arg, s->narg);
        ein__put_attrs(p, s, true);
        ein__put(b, ") -> ");
        ein__put_names(p, s->result, s->nresult);
        ein__put(b, " {");
        break;
    case EIN__ST_REPEAT:
        ein__putf(b, "%s in ", s->name[0].name);
        ein__put_value(b, s->value[0], 1);
        ein__put(b, ":");
        ein__put_value(b, s->value[1], 1);
        ein__put(b, " {");
        break;
    default: break;
    }
}

static int ein__columns(const char *s, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)s[i] & 0xC0) != 0x80;
    return columns;
}

static void ein__put_indent(ein__buf *out, int n) {
    for (int i = 0; i < n; i++) ein__put(out, " ");
}

// Lays out a statement with its marks.
static void ein__put_broken(ein__buf *out, const ein__buf *line, int indent) {
    bool fits = indent + ein__columns(line->s, line->n) <= EIN__WIDTH;
    int column = indent;
    ein__put_indent(out, indent);
    for (size_t at = 0; at < line->n;) {
        size_t n = 0;
        while (at + n < line->n && line->s[at + n] != EIN__BREAK &&
               line->s[at + n] != EIN__BREAK_FIRST)
            n++;
        char mark = at ? line->s[at - 1] : 0;
        int width = ein__columns(line->s + at, n);
        if (mark && !fits && (mark == EIN__BREAK_FIRST || column + 1 + width > EIN__WIDTH)) {
            ein__put(out, "\n");
            ein__put_indent(out, indent + 4);
            column = indent + 4;
        } else if (mark) {
            ein__put(out, " ");
            column++;
        }
        ein__put_n(out, line->s + at, n);
        column += width;
        at += n + 1;
    }
}

static void ein__put_notes(ein__buf *out, const char *const *note, int n, int indent) {
    for (int i = 0; i < n; i++) {
        if (*note[i]) ein__put_indent(out, indent);
        ein__put(out, note[i]);
        ein__put(out, "\n");
    }
}

static void ein__put_trail(ein__buf *out, const char *trail, bool comments) {
    if (trail && comments) {
        ein__put(out, "  ");
        ein__put(out, trail);
    }
    ein__put(out, "\n");
}

static void ein__put_statement(ein__buf *out, const ein__stmt *s, bool comments, int indent) {
    ein__buf line = {0};
    ein__formatter p = {.out = &line, .breaks = true};
    if (comments) ein__put_notes(out, s->lead, s->nlead, indent);
    ein__put_head(&p, s);
    ein__put_broken(out, &line, indent);
    ein__put_trail(out, s->trail, comments);
    ein__buf_free(&line);
    if (s->kind != EIN__ST_BLOCK && s->kind != EIN__ST_REPEAT) return;
    for (int i = 0; i < s->nbody; i++) ein__put_statement(out, s->body[i], comments, indent + 4);
    if (comments) ein__put_notes(out, s->tail, s->ntail, indent + 4);
    ein__put_indent(out, indent);
    ein__put(out, "}");
    ein__put_trail(out, s->end_trail, comments);
}

// The model in canonical form, with its comments and blank lines or without.
EIN__FN void ein__format(ein_ctx *ctx, ein__buf *out, bool comments) {
    const struct ein__tree *tree = ctx->tree;
    for (int i = 0; i < tree->nstmt; i++) ein__put_statement(out, tree->stmt[i], comments, 0);
    if (comments) ein__put_notes(out, tree->tail, tree->ntail, 0);
}
