// Text to tokens, one statement at a time.
//
// A statement is one line and the lines that continue it: those that begin further right than the
// statements around them. At the top level that means with white space; inside braces the first
// statement sets the column. A line that ends with `{` opens a body, a line that begins with `}`
// closes one. Comments and blank lines are kept beside the statements for the formatter.

enum {
    EIN__MAX_TEXT = 64 << 20,   // bytes of a model's text
    EIN__MAX_TOKENS = 1 << 20,  // of a model; comments count too
    EIN__MAX_NAME = 1000,       // bytes of a name or string
    EIN__MAX_DIGITS = 60        // bytes of a number
};

typedef enum {
    EIN__TOK_END,   // of the statement
    EIN__TOK_NAME,  // identifier; keywords are names
    EIN__TOK_STRING,
    EIN__TOK_NUMBER,
    EIN__TOK_OP
} ein__tok_kind;

typedef struct ein__token {
    ein__tok_kind kind;
    bool integral;  // numbers: written without point and exponent
    ein__pos pos;
    const char *text;  // interned: name, decoded string, operator or number as written
    double num;
    int64_t inum;
} ein__token;

typedef struct ein__lexer {
    ein_ctx *ctx;
    const char *at, *end, *line_start;
    uint32_t line;
    bool no_pos;           // definitions of operators have no place in the model's text
    bool bad;              // the statement at hand has a lexical error: it is not worth parsing
    bool opens, closes;    // the statement ends with `{`; it begins with `}`. Never both
    ein__pos stop;         // behind the last token
    bool stopped;          // a limit was met: what follows is not read
    ein__token *tok;       // stb_ds array: the statement, then EIN__TOK_END
    const char **lead;     // stb_ds array: comments above the statement, "" for a blank line
    const char **pending;  // stb_ds array: those found after it, which belong to the next one
    const char *trail;     // comment behind its last line, or NULL
    int64_t ntoken;
    int depth;                         // open braces
    int64_t base[EIN__MAX_DEPTH + 1];  // column of the statements inside each; -1: none seen yet
} ein__lexer;

static ein__pos ein__lex_pos(const ein__lexer *z, const char *at) {
    if (z->no_pos) return (ein__pos){0, 0};
    return (ein__pos){z->line, (uint32_t)(at - z->line_start) + 1};
}

EIN__PRINTF(3, 4)
static void ein__lex_error(ein__lexer *z, const char *at, const char *format, ...) {
    ein__buf b = {0};
    va_list args;
    va_start(args, format);
    ein__vputf(&b, format, args);
    va_end(args);
    ein__error(z->ctx, EIN_BAD_INPUT, ein__lex_pos(z, at), "%s", b.s);
    ein__buf_free(&b);
    z->bad = true;
}

// `format` has one place, for `most`.
static void ein__lex_limit(ein__lexer *z, const char *at, const char *format, int most) {
    ein__error(z->ctx, EIN_RESOURCES, ein__lex_pos(z, at), format, most);
    z->bad = true;
}

static void ein__lex_long_name(ein__lexer *z, const char *at) {
    ein__lex_limit(z, at, "a name or string is longer than %d bytes", EIN__MAX_NAME);
}

// The end of a message about an unknown name: the known one that is meant, or nothing.
static const char *ein__hint(ein_ctx *ctx, const char *best) {
    return best ? ein__namef(ctx, "; did you mean '%s'?", best) : "";
}

// Length of the UTF-8 sequence at `s`, 0 when it is malformed, overlong or a surrogate. `*code` is
// its code point.
EIN__FN int ein__utf8(const char *s, const char *end, uint32_t *code) {
    unsigned char c = (unsigned char)*s;
    int n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (!n || end - s < n) return 0;
    uint32_t v = n == 1 ? c : c & (0xFFu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xC0) != 0x80) return 0;
        v = v << 6 | ((unsigned char)s[i] & 0x3F);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (v < least[n] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return 0;
    *code = v;
    return n;
}

static bool ein__is_digit(char c) { return c >= '0' && c <= '9'; }

static bool ein__is_alpha(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool ein__is_alnum(char c) { return ein__is_alpha(c) || ein__is_digit(c); }

// True when `s` can stand in a model without quotes: an identifier, dots and digits allowed inside.
EIN__FN bool ein__is_identifier(const char *s) {
    if (!ein__is_alpha(*s)) return false;
    for (; *s; s++) {
        if (*s == '.' && !ein__is_alnum(s[1])) return false;
        if (*s != '.' && !ein__is_alnum(*s)) return false;
    }
    return true;
}

// Bytes that stand for themselves in comments and strings; the others are reported. Returns how
// many bytes to step over.
static int ein__lex_text_byte(ein__lexer *z, const char *where) {
    unsigned char c = (unsigned char)*z->at;
    uint32_t code;
    int n = ein__utf8(z->at, z->end, &code);
    if (!n) {
        ein__lex_error(z, z->at, "byte 0x%02x in %s is not UTF-8", c, where);
    } else if ((c < 32 && c != '\t') || c == 127) {
        ein__lex_error(z, z->at, "control byte 0x%02x in %s", c, where);
    }
    return n ? n : 1;
}

// At a CR that ends the line with the LF behind it, or the text.
static bool ein__lex_at_cr(const ein__lexer *z) {
    return *z->at == '\r' && (z->at + 1 == z->end || z->at[1] == '\n');
}

static bool ein__lex_at_eol(const ein__lexer *z) {
    return z->at >= z->end || *z->at == '\n' || ein__lex_at_cr(z);
}

static void ein__lex_next_line(ein__lexer *z) {
    while (z->at < z->end && *z->at != '\n') z->at++;
    if (z->at < z->end) z->at++;
    z->line_start = z->at;
    z->line++;
}

// The comment at `#`, without white space at its end. What is wrong in it leaves its statement
// good.
static const char *ein__lex_comment(ein__lexer *z) {
    const char *start = z->at;
    bool was_bad = z->bad;
    z->bad = false;
    while (!ein__lex_at_eol(z) && !z->bad) z->at += ein__lex_text_byte(z, "a comment");
    while (!ein__lex_at_eol(z)) z->at++;
    z->bad = was_bad;
    const char *stop = z->at;
    while (stop > start && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
    return ein__name_n(z->ctx, start, (size_t)(stop - start));
}

static int ein__hex(char c) {
    if (ein__is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// The byte an escape stands for, or 0 when it was refused; `z->at` is at the backslash.
static char ein__lex_escape(ein__lexer *z) {
    const char *s = z->at;
    char c = s + 1 < z->end ? s[1] : '\n';
    z->at = s + 1;
    if (c == '\n' || c == '\r') {
        ein__lex_error(z, s, "the string is not closed on its line");
        return 0;
    }
    z->at = s + 2;
    if (c == '"' || c == '\\') return c;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    if (c == 'x' && z->end - s >= 4 && ein__hex(s[2]) >= 0 && ein__hex(s[3]) >= 0) {
        z->at = s + 4;
        int v = ein__hex(s[2]) * 16 + ein__hex(s[3]);
        if (!v) ein__lex_error(z, s, "a name or string cannot hold a NUL byte");
        return (char)v;
    }
    ein__lex_error(z, s, "unknown escape: \\\" \\\\ \\n \\t and \\xNN are there");
    return 0;
}

static void ein__lex_string(ein__lexer *z, ein__token *t) {
    const char *start = z->at++;
    ein__buf b = {0};
    ein__put_n(&b, "", 0);
    bool closed = false, was_bad = z->bad;
    z->bad = false;
    while (!closed && !z->bad && !ein__lex_at_eol(z)) {
        if (*z->at == '"') {
            closed = true;
            z->at++;
        } else if (*z->at == '\\') {
            char c = ein__lex_escape(z);
            ein__put_n(&b, &c, 1);
        } else {
            int n = ein__lex_text_byte(z, "a string");
            ein__put_n(&b, z->at, (size_t)n);
            z->at += n;
        }
    }
    if (!z->bad && !closed) ein__lex_error(z, start, "the string is not closed on its line");
    if (!z->bad && b.n > EIN__MAX_NAME) ein__lex_long_name(z, start);
    uint32_t code;
    for (size_t i = 0; !z->bad && i < b.n;) {
        int n = ein__utf8(b.s + i, b.s + b.n, &code);
        if (!n) ein__lex_error(z, start, "the escapes of this string do not give UTF-8");
        i += (size_t)n;
    }
    while (z->bad && !ein__lex_at_eol(z)) z->at++;
    t->kind = EIN__TOK_STRING;
    t->text = z->bad ? ein__name(z->ctx, "") : ein__name_n(z->ctx, b.s, b.n);
    z->bad |= was_bad;
    ein__buf_free(&b);
}

static void ein__lex_number(ein__lexer *z, ein__token *t) {
    const char *s = z->at, *p = s;
    bool integral = true, wrong = *p == '0' && ein__is_digit(p[1]);
    while (p < z->end && ein__is_digit(*p)) p++;
    if (p < z->end && *p == '.') {
        integral = false;
        p++;
        wrong |= !ein__is_digit(*p);
        while (p < z->end && ein__is_digit(*p)) p++;
    }
    if (p < z->end && (*p == 'e' || *p == 'E')) {
        integral = false;
        p++;
        if (p < z->end && (*p == '+' || *p == '-')) p++;
        wrong |= !ein__is_digit(*p);
        while (p < z->end && ein__is_digit(*p)) p++;
    }
    for (; p < z->end && (ein__is_alnum(*p) || *p == '.'); p++) wrong = true;
    z->at = p;
    t->kind = EIN__TOK_NUMBER;
    t->integral = integral;
    t->text = "0";
    if (p - s > EIN__MAX_DIGITS) {
        ein__lex_limit(z, s, "a number has more than %d digits", EIN__MAX_DIGITS);
        return;
    }
    t->text = ein__name_n(z->ctx, s, (size_t)(p - s));
    if (wrong) {
        ein__lex_error(z, s, "malformed number '%s': write 10, 0.5 or 1e-5", t->text);
        return;
    }
    bool nonzero = false;
    const char *stop;
    t->num = ein__read_f64(t->text, &stop);
    for (const char *c = s; c < p && *c != 'e' && *c != 'E'; c++) {
        if (*c >= '1' && *c <= '9') nonzero = true;
        if (integral && (ein__mul_overflows(t->inum, 10, &t->inum) ||
                         ein__add_overflows(t->inum, *c - '0', &t->inum))) {
            ein__lex_error(z, s, "%s does not fit 64 bits", t->text);
            return;
        }
    }
    if (isinf(t->num) || (t->num == 0 && nonzero))
        ein__lex_error(z, s, "%s is outside the range of numbers", t->text);
}

static void ein__lex_op(ein__lexer *z, ein__token *t) {
    static const char *const op[] = {"->", "==", "!=", "<=", ">=", "+", "-", "*",
                                     "/",  "%",  "(",  ")",  "[",  "]", "{", "}",
                                     ",",  ";",  ":",  "=",  "<",  ">", "@"};
    t->kind = EIN__TOK_OP;
    for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
        size_t n = strlen(op[i]);
        if ((size_t)(z->end - z->at) < n || memcmp(z->at, op[i], n)) continue;
        t->text = op[i];
        z->at += n;
        return;
    }
    unsigned char c = (unsigned char)*z->at;
    if (c == '.') {
        ein__lex_error(z, z->at, "a number needs a digit before its point, a name a letter");
    } else if (c > 32 && c < 127) {
        ein__lex_error(z, z->at, "unexpected character '%c'", c);
    } else {
        uint32_t code;
        int n = ein__utf8(z->at, z->end, &code);
        if (n > 1) {
            ein__lex_error(z, z->at, "'%.*s' can only stand in quotes or a comment", n, z->at);
            z->at += n - 1;
        } else {
            ein__lex_error(z, z->at, "unexpected byte 0x%02x", c);
        }
    }
    z->at++;
    t->text = "?";
}

static void ein__lex_token(ein__lexer *z) {
    ein__token t = {.pos = ein__lex_pos(z, z->at)};
    if (ein__is_alpha(*z->at)) {
        const char *s = z->at;
        while (z->at < z->end && (ein__is_alnum(*z->at) ||
                                  (*z->at == '.' && z->at + 1 < z->end && ein__is_alnum(z->at[1]))))
            z->at++;
        t.kind = EIN__TOK_NAME;
        size_t n = (size_t)(z->at - s);
        if (n > EIN__MAX_NAME) {
            ein__lex_long_name(z, s);
            n = 1;
        }
        t.text = ein__name_n(z->ctx, s, n);
    } else if (ein__is_digit(*z->at)) {
        ein__lex_number(z, &t);
    } else if (*z->at == '"') {
        ein__lex_string(z, &t);
    } else {
        ein__lex_op(z, &t);
    }
    arrput(z->tok, t);
    z->stop = ein__lex_pos(z, z->at);
}

static void ein__lex_stop(ein__lexer *z) {
    z->at = z->end;
    z->stopped = true;
}

// Bounds the memory that hostile text can claim, and the number of messages.
static bool ein__lex_count(ein__lexer *z) {
    if (++z->ntoken > EIN__MAX_TOKENS)
        ein__lex_limit(z, z->at, "the text has more than %d words", EIN__MAX_TOKENS);
    if (z->ntoken > EIN__MAX_TOKENS || z->ctx->nerror > EIN__MAX_ERRORS) ein__lex_stop(z);
    return z->at < z->end;
}

// The rest of a line that has tokens.
static void ein__lex_line(ein__lexer *z) {
    z->trail = NULL;
    while (!ein__lex_at_eol(z)) {
        if (*z->at == ' ' || *z->at == '\t') {
            z->at++;
        } else if (*z->at == '#') {
            z->trail = ein__lex_comment(z);
        } else if (ein__lex_count(z)) {
            ein__lex_token(z);
        }
    }
}

// A line that ends with `{` begins a body, whose first statement sets the column.
static void ein__lex_open_body(ein__lexer *z) {
    if (z->depth == EIN__MAX_DEPTH) {
        ein__lex_limit(z, z->at, "blocks are nested deeper than %d", EIN__MAX_DEPTH);
        ein__lex_stop(z);
        z->opens = false;
        return;
    }
    z->base[++z->depth] = -1;
}

static bool ein__lex_last_is(const ein__lexer *z, const char *op) {
    const ein__token *last = &arrlast(z->tok);
    return last->kind == EIN__TOK_OP && !strcmp(last->text, op);
}

// Comments inside a statement move above it.
static void ein__lex_lift(ein__lexer *z) {
    if (z->trail) arrput(z->lead, z->trail);
    for (ptrdiff_t i = 0; i < arrlen(z->pending); i++)
        if (*z->pending[i]) arrput(z->lead, z->pending[i]);
    arrsetlen(z->pending, 0);
}

// What was found above a statement becomes its own.
static void ein__lex_begin(ein__lexer *z, int64_t column) {
    for (ptrdiff_t i = 0; i < arrlen(z->pending); i++) arrput(z->lead, z->pending[i]);
    arrsetlen(z->pending, 0);
    z->closes = *z->at == '}';
    if (z->closes && z->depth > 0) {
        z->depth--;
    } else if (z->base[z->depth] < 0) {
        z->base[z->depth] = column;
    }
}

// Reads the next statement into `tok`; false at the end of the text, whose last comments are then
// in `pending`.
static bool ein__lex_statement(ein__lexer *z) {
    arrsetlen(z->tok, 0);
    arrsetlen(z->lead, 0);
    z->bad = z->opens = z->closes = false;
    z->trail = NULL;
    while (z->at < z->end && !z->opens) {
        const char *start = z->at;
        while (z->at < z->end && (*z->at == ' ' || *z->at == '\t')) z->at++;
        if (ein__lex_at_eol(z)) {
            if (arrlen(z->pending) && *arrlast(z->pending)) arrput(z->pending, "");
            if (!arrlen(z->pending)) arrput(z->pending, "");
        } else if (*z->at == '#') {
            const char *comment = ein__lex_comment(z);
            arrput(z->pending, comment);
            ein__lex_count(z);
        } else {
            if (arrlen(z->tok) && (*z->at == '}' || z->at - start <= z->base[z->depth])) {
                z->at = start;
                break;
            }
            if (arrlen(z->tok)) {
                ein__lex_lift(z);
            } else {
                ein__lex_begin(z, z->at - start);
            }
            ein__lex_line(z);
            z->opens = arrlen(z->tok) && !z->closes && ein__lex_last_is(z, "{");
        }
        ein__lex_next_line(z);
        if (z->opens) ein__lex_open_body(z);
    }
    if (!arrlen(z->tok)) return false;
    ein__token stop = {.kind = EIN__TOK_END, .pos = z->stop, .text = ""};
    arrput(z->tok, stop);
    return true;
}

static void ein__lex_open(ein__lexer *z, ein_ctx *ctx, const char *text, size_t length) {
    *z = (ein__lexer){.ctx = ctx, .at = text, .end = text + length, .line = 1};
    if (length >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) z->at += 3;
    z->line_start = z->at;
}

// Whether the first line that says anything begins with the word `ein`: what does not is no model,
// and not worth a message a byte.
static bool ein__lex_is_model(const ein__lexer *z) {
    for (const char *s = z->at; s < z->end;) {
        while (s < z->end && (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n')) s++;
        if (s < z->end && *s == '#') {
            while (s < z->end && *s != '\n') s++;
        } else if (s < z->end) {
            return z->end - s > 3 && !memcmp(s, "ein", 3) && !ein__is_alnum(s[3]);
        }
    }
    return true;
}

static void ein__lex_close(ein__lexer *z) {
    arrfree(z->tok);
    arrfree(z->lead);
    arrfree(z->pending);
}
