// The syntax tree, and the parser's first half: expressions and equations, by recursive descent
// over the tokens of one statement. Parse functions report what is wrong and return NULL or false.
//
// Keywords are recognised by their position only: `weight` begins a declaration when a name follows
// it, and is a tensor in `weight = Relu(x)`. So no name has to be avoided. Two exceptions: a tensor
// called `_` or, behind `pad`, `in` is written in quotes.

typedef enum {
    EIN__ST_EIN,
    EIN__ST_MODEL,
    EIN__ST_DIM,
    EIN__ST_SMALL,
    EIN__ST_BLOB,
    EIN__ST_INPUT,
    EIN__ST_WEIGHT,
    EIN__ST_OUTPUT,
    EIN__ST_OPERATOR,
    EIN__ST_EQUATION,
    EIN__ST_BLOCK,
    EIN__ST_REPEAT
} ein__stmt_kind;

typedef struct ein__ident {
    const char *name;
    ein__pos pos;
} ein__ident;  // NULL: `_`

typedef struct ein__type {
    ein__pos pos;
    ein__dtype dtype;
    bool bad;  // of an output: its sizes are wrong, and that has been said
    int rank;
    ein__ast *dim[EIN__MAX_RANK];
} ein__type;

// Statements of all kinds share one struct; what is not said below to be used is zero.
typedef struct ein__stmt {
    ein__stmt_kind kind;
    int size;          // tokens
    ein__pos pos;      // of the keyword, the operator's name or the equation's result
    int nname;         // MODEL, BLOB, INPUT, WEIGHT, BLOCK, REPEAT: its name; DIM, SMALL,
    ein__ident *name;  //   OUTPUT: each name; OPERATOR: results
    ein__ast **value;  // DIM, SMALL: per name; REPEAT: first round and end
    ein__type **type;  // INPUT, WEIGHT: its type; OUTPUT: per name, NULL where not given
    ein__ident call;   // OPERATOR: operator or block; INPUT, WEIGHT: `randn` and so on, or
                       //   the blob; NULL: no source
    const char *text;  // BLOB: path; WEIGHT: the tensor's name in the blob, or NULL
    int narg;          // OPERATOR: arguments; BLOCK: inputs
    ein__ident *arg;
    int nattr;        // OPERATOR, INPUT, WEIGHT: attributes; BLOCK: parameters, whose value
    ein__attr *attr;  //   is NULL where the call has to give it
    int nresult;      // BLOCK
    ein__ident *result;
    ein__equation *eq;  // EQUATION
    ein__ast **pad;     //   values of eq->pad, which may be parameters
    int nbody;          // BLOCK, REPEAT
    struct ein__stmt **body;
    int nlead, ntail;  // comments above and, in a body, above the `}`; "" is a blank line
    const char **lead, **tail;
    const char *trail, *end_trail;  // comments behind the statement and the `}`, or NULL
} ein__stmt;

// The model as written. `stmt[0]` is the line `ein 1`.
struct ein__tree {
    int nstmt;
    ein__stmt **stmt;
    int ntail;
    const char **tail;  // comments below the last statement
};

typedef struct ein__parser {
    ein_ctx *ctx;
    ein__lexer lex;
    int at;            // token of the statement
    int depth;         // open brackets
    int height;        // of the expression built last
    bool floats;       // numbers may be floats: attribute values
    ein__ast **stack;  // stb_ds array: children not yet in their node
    bool open_at_end;  // the text ended inside a body; that has been said
    int nstmt;
} ein__parser;

// ------------------------------------------------------------------------------------- tokens

static const ein__token *ein__peek(const ein__parser *p, int ahead) {
    ptrdiff_t i = p->at + ahead, last = arrlen(p->lex.tok) - 1;
    return &p->lex.tok[i < last ? i : last];
}

static bool ein__is_op(const ein__parser *p, int ahead, const char *op) {
    const ein__token *t = ein__peek(p, ahead);
    return t->kind == EIN__TOK_OP && !strcmp(t->text, op);
}

static bool ein__is_word(const ein__parser *p, int ahead, const char *word) {
    const ein__token *t = ein__peek(p, ahead);
    return t->kind == EIN__TOK_NAME && (!word || !strcmp(t->text, word));
}

static bool ein__is_name(const ein__parser *p, int ahead) {
    ein__tok_kind kind = ein__peek(p, ahead)->kind;
    return kind == EIN__TOK_NAME || kind == EIN__TOK_STRING;
}

static bool ein__accept(ein__parser *p, const char *op) {
    bool is = ein__is_op(p, 0, op);
    p->at += is;
    return is;
}

// Always false, for `return ein__expected(..)`.
static bool ein__expected(ein__parser *p, const char *what) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind == EIN__TOK_END) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "expected %s, found the end of the line", what);
    } else if (t->kind == EIN__TOK_STRING) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "expected %s, found a string", what);
    } else {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "expected %s, found '%s'", what, t->text);
    }
    return false;
}

static bool ein__expect(ein__parser *p, const char *op) {
    if (ein__accept(p, op)) return true;
    char what[8] = "'";
    strcat(strcat(what, op), "'");
    return ein__expected(p, what);
}

// A tensor's, block's or operator's name, quoted or not.
static bool ein__parse_name(ein__parser *p, const char *what, ein__ident *name) {
    if (!ein__is_name(p, 0)) return ein__expected(p, what);
    const ein__token *t = ein__peek(p, 0);
    if (!*t->text) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "a name cannot be empty");
        return false;
    }
    *name = (ein__ident){t->text, t->pos};
    p->at++;
    return true;
}

// A dim's, parameter's, index's or attribute's name: never quoted. `inf` is a number.
static bool ein__parse_word(ein__parser *p, const char *what, ein__ident *name) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind != EIN__TOK_NAME) return ein__expected(p, what);
    if (!strcmp(t->text, "inf") || !strcmp(t->text, "_")) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "'%s' cannot be the name of anything", t->text);
        return false;
    }
    *name = (ein__ident){t->text, t->pos};
    p->at++;
    return true;
}

// ------------------------------------------------------------------------------------- nodes

static ein__ast *ein__ast_new(ein__parser *p, ein__akind kind, ein__pos pos) {
    ein__ast *a = EIN__NEW(&p->ctx->arena, ein__ast, 1);
    a->kind = kind;
    a->pos = pos;
    p->height = 1;
    return a;
}

// Trees are EIN__MAX_DEPTH high at most. Their text may have a sign and brackets for every level,
// so twice that many brackets are let through.
static bool ein__too_deep(ein__parser *p, int depth, int most, ein__pos pos) {
    if (depth <= most) return false;
    ein__error(
        p->ctx, EIN_RESOURCES, pos,
        "the expression is nested too deep (a + b + ... nests, too): make parts of it tensors "
        "of their own");
    return true;
}

static bool ein__enter(ein__parser *p, ein__pos pos) {
    return !ein__too_deep(p, ++p->depth, 2 * EIN__MAX_DEPTH, pos);
}

// Takes the children pushed since `base` off the stack; `height` is the tallest one's.
static ein__ast *ein__ast_take(ein__parser *p, ein__ast *a, ptrdiff_t base, int height) {
    a->nkid = (int)(arrlen(p->stack) - base);
    a->kid = EIN__NEW(&p->ctx->arena, ein__ast *, a->nkid + !a->nkid);
    for (int i = 0; i < a->nkid; i++) a->kid[i] = p->stack[base + i];
    arrsetlen(p->stack, (size_t)base);
    p->height = height + 1;
    return ein__too_deep(p, p->height, EIN__MAX_DEPTH, a->pos) ? NULL : a;
}

static ein__ast *ein__ast_number(ein__parser *p, const ein__token *t) {
    ein__ast *a = ein__ast_new(p, EIN__A_NUM, t->pos);
    a->num = t->num;
    a->inum = t->inum;
    a->integral = t->integral;
    return a;
}

static ein__ast *ein__ast_word(ein__parser *p, ein__akind kind, const ein__token *t) {
    ein__ast *a = ein__ast_new(p, kind, t->pos);
    a->name = t->text;
    return a;
}

static ein__ast *ein__ast_unary(ein__parser *p, ein__akind kind, ein__pos pos, ein__ast *kid) {
    if (!kid) return NULL;
    int height = p->height;
    ptrdiff_t base = arrlen(p->stack);
    arrput(p->stack, kid);
    return ein__ast_take(p, ein__ast_new(p, kind, pos), base, height);
}

typedef ein__ast *ein__parse_fn(ein__parser *p);

// ORDER ein__akind, from EIN__A_ADD on
static const char ein__arithmetic[] = "+-*/%";

// One of the operators in `ops` at the cursor, or 0.
static char ein__is_one_of(const ein__parser *p, const char *ops) {
    const ein__token *t = ein__peek(p, 0);
    bool is = t->kind == EIN__TOK_OP && !t->text[1] && strchr(ops, t->text[0]);
    return is ? t->text[0] : 0;
}

// next { op next }, grouped to the left.
static ein__ast *ein__parse_chain(ein__parser *p, const char *ops, ein__parse_fn *next) {
    ein__ast *left = next(p);
    for (char op; left && (op = ein__is_one_of(p, ops)) != 0;) {
        ein__akind kind =
            (ein__akind)(EIN__A_ADD + (strchr(ein__arithmetic, op) - ein__arithmetic));
        ein__pos pos = ein__peek(p, 0)->pos;
        int height = p->height;
        ptrdiff_t base = arrlen(p->stack);
        p->at++;
        arrput(p->stack, left);
        ein__ast *right = next(p);
        if (!right) return NULL;
        arrput(p->stack, right);
        if (p->height > height) height = p->height;
        left = ein__ast_take(p, ein__ast_new(p, kind, pos), base, height);
    }
    return left;
}

// Children that `next` reads, separated by commas and ended by `close`, onto the stack: at most
// `most` of `what`. The opening bracket has been read; the list may be empty when `empty`.
static bool ein__parse_list(ein__parser *p, const char *close, bool empty, int most,
                            const char *what, ein__parse_fn *next, int *height) {
    if (!ein__enter(p, ein__peek(p, 0)->pos)) return false;
    *height = 0;
    int n = 0;
    bool more = !(empty && ein__is_op(p, 0, close));
    while (more) {
        ein__pos pos = ein__peek(p, 0)->pos;
        ein__ast *a = next(p);
        if (!a) return false;
        if (++n > most) {
            ein__error(p->ctx, EIN_RESOURCES, pos, "more than %d %s", most, what);
            return false;
        }
        arrput(p->stack, a);
        if (p->height > *height) *height = p->height;
        more = ein__accept(p, ",");
    }
    p->depth--;
    if (ein__accept(p, close)) return true;
    char wanted[] = "',' or '?'";
    wanted[8] = *close;
    return ein__expected(p, wanted);
}

// ------------------------------------------------------------------------------------- subscripts

static ein__ast *ein__parse_sexpr(ein__parser *p);

static ein__ast *ein__parse_satom(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    if (ein__is_op(p, 0, "-") || ein__is_op(p, 0, "(")) {
        ein__pos pos = t->pos;
        bool minus = ein__is_op(p, 0, "-");
        if (!ein__enter(p, pos)) return NULL;
        p->at++;
        ein__ast *a =
            minus ? ein__ast_unary(p, EIN__A_NEG, pos, ein__parse_satom(p)) : ein__parse_sexpr(p);
        p->depth--;
        return a && (minus || ein__expect(p, ")")) ? a : NULL;
    }
    if (t->kind == EIN__TOK_NUMBER) {
        if (!t->integral && !p->floats) {
            ein__expected(p, "an integer");
            return NULL;
        }
        p->at++;
        return ein__ast_number(p, t);
    }
    if (t->kind == EIN__TOK_NAME) {
        p->at++;
        return ein__ast_word(p, EIN__A_NAME, t);
    }
    ein__expected(p, p->floats ? "a value" : "an integer, a name or '('");
    return NULL;
}

static ein__ast *ein__parse_sterm(ein__parser *p) {
    return ein__parse_chain(p, "*/%", ein__parse_satom);
}

static ein__ast *ein__parse_sexpr(ein__parser *p) {
    return ein__parse_chain(p, "+-", ein__parse_sterm);
}

// An attribute's value: expression, word, string or list of them.
static ein__ast *ein__parse_value(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind == EIN__TOK_STRING) {
        p->at++;
        return ein__ast_word(p, EIN__A_STR, t);
    }
    if (ein__is_op(p, 0, "[")) {
        ein__pos pos = t->pos;
        ptrdiff_t base = arrlen(p->stack);
        int height;
        p->at++;
        if (!ein__parse_list(p, "]", true, EIN__MAX_TOKENS, "values", ein__parse_value, &height))
            return NULL;
        return ein__ast_take(p, ein__ast_new(p, EIN__A_LIST, pos), base, height);
    }
    bool floats = p->floats;
    p->floats = true;
    ein__ast *a = ein__parse_sexpr(p);
    p->floats = floats;
    return a;
}

static const char *ein__parse_cmp(ein__parser *p) {
    static const char *const op[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < sizeof op / sizeof *op; i++)
        if (ein__accept(p, op[i])) return op[i];
    ein__expected(p, "a comparison");
    return NULL;
}

// ------------------------------------------------------------------------------------- expressions

static ein__ast *ein__parse_expr(ein__parser *p);
static ein__ast *ein__parse_term(ein__parser *p);

// side cmp side
static ein__ast *ein__parse_comparison(ein__parser *p, ein__parse_fn *side) {
    ein__pos pos = ein__peek(p, 0)->pos;
    ptrdiff_t base = arrlen(p->stack);
    ein__ast *left = side(p);
    int height = p->height;
    const char *op = left ? ein__parse_cmp(p) : NULL;
    if (!op) return NULL;
    arrput(p->stack, left);
    ein__ast *right = side(p);
    if (!right) return NULL;
    arrput(p->stack, right);
    if (p->height > height) height = p->height;
    ein__ast *a = ein__ast_new(p, EIN__A_CMP, pos);
    a->name = op;
    return ein__ast_take(p, a, base, height);
}

static ein__ast *ein__parse_subscript(ein__parser *p);

// name [ subscripts ]
static ein__ast *ein__parse_read(ein__parser *p) {
    ein__ident name = {0};
    if (!ein__parse_name(p, "a tensor's name", &name) || !ein__expect(p, "[")) return NULL;
    ptrdiff_t base = arrlen(p->stack);
    int height;
    if (!ein__parse_list(p, "]", true, EIN__MAX_RANK, "subscripts", ein__parse_subscript, &height))
        return NULL;
    ein__ast *a = ein__ast_new(p, EIN__A_READ, name.pos);
    a->name = name.name;
    return ein__ast_take(p, a, base, height);
}

static ein__ast *ein__parse_subscript(ein__parser *p) {
    ein__pos pos = ein__peek(p, 0)->pos;
    if (!ein__accept(p, "@")) return ein__parse_sexpr(p);
    return ein__ast_unary(p, EIN__A_GATHER, pos, ein__parse_read(p));
}

// Functions of values; reductions are told apart by what stands in the parentheses.
static const struct {
    const char *name;
    int arity;
} ein__callable[] = {
    {"abs", 1},   {"atan", 1}, {"ceil", 1},   {"cos", 1},   {"erf", 1},    {"exp", 1},
    {"floor", 1}, {"log", 1},  {"max", 2},    {"min", 2},   {"neg", 1},    {"pow", 2},
    {"quot", 2},  {"relu", 1}, {"rem", 2},    {"rsqrt", 1}, {"select", 3}, {"sigmoid", 1},
    {"sin", 1},   {"sqrt", 1}, {"square", 1}, {"tanh", 1},
};
static const char *const ein__reduction[] = {"sum", "prod", "max", "min"};

static bool ein__is_reduction(const char *name) {
    for (size_t i = 0; i < sizeof ein__reduction / sizeof *ein__reduction; i++)
        if (!strcmp(name, ein__reduction[i])) return true;
    return false;
}

static void ein__unknown_function(ein__parser *p, const ein__token *t) {
    char name[EIN__FOLDED];
    ein__fold_name(name, t->text);
    const char *best = NULL, *meant = ein__foreign_meant(EIN__FOREIGN(ein__foreign_function), name);
    if (meant) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "unknown function '%s'%s%s", t->text,
                   *meant ? "; write " : "", meant);
        return;
    }
    int distance = 3;
    ein__suggest(t->text, "idx", &best, &distance);
    for (size_t i = 0; i < sizeof ein__reduction / sizeof *ein__reduction; i++)
        ein__suggest(t->text, ein__reduction[i], &best, &distance);
    for (size_t i = 0; i < sizeof ein__callable / sizeof *ein__callable; i++)
        ein__suggest(t->text, ein__callable[i].name, &best, &distance);
    ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "unknown function '%s'%s", t->text,
               ein__hint(p->ctx, best));
}

// name ( expr, .. ); select begins with a comparison.
static ein__ast *ein__parse_call(ein__parser *p) {
    const ein__token t = *ein__peek(p, 0);
    int arity = 0, height = 0;
    for (size_t i = 0; i < sizeof ein__callable / sizeof *ein__callable; i++)
        if (!strcmp(t.text, ein__callable[i].name)) arity = ein__callable[i].arity;
    if (!arity && !ein__is_reduction(t.text)) {
        ein__unknown_function(p, &t);
        return NULL;
    }
    if (!arity) {
        p->at += 2;
        ein__expected(p, "names of indices");
        return NULL;
    }
    p->at += 2;
    ptrdiff_t base = arrlen(p->stack);
    bool select = !strcmp(t.text, "select");
    if (select) {
        ein__ast *condition = ein__parse_comparison(p, ein__parse_expr);
        if (!condition || !ein__expect(p, ",")) return NULL;
        arrput(p->stack, condition);
        height = p->height;
    }
    int h;
    if (!ein__parse_list(p, ")", false, EIN__MAX_ARGS, "arguments", ein__parse_expr, &h))
        return NULL;
    if (h > height) height = h;
    ein__ast *a = ein__ast_new(p, EIN__A_CALL, t.pos);
    a->name = t.text;
    a = ein__ast_take(p, a, base, height);
    if (a && a->nkid != arity) {
        ein__error(p->ctx, EIN_BAD_INPUT, t.pos, "%s takes %d argument%s, %d given", t.text, arity,
                   arity == 1 ? "" : "s", a->nkid);
        return NULL;
    }
    return a;
}

static ein__ast *ein__parse_index(ein__parser *p) {
    ein__ident name;
    const ein__token t = *ein__peek(p, 0);
    return ein__parse_word(p, "an index", &name) ? ein__ast_word(p, EIN__A_NAME, &t) : NULL;
}

// sum ( names ) term
static ein__ast *ein__parse_reduce(ein__parser *p) {
    const ein__token t = *ein__peek(p, 0);
    ptrdiff_t base = arrlen(p->stack);
    int height;
    p->at += 2;
    if (!ein__parse_list(p, ")", false, EIN__MAX_ITERS, "indices", ein__parse_index, &height))
        return NULL;
    if (!ein__enter(p, t.pos)) return NULL;
    ein__ast *body = ein__parse_term(p);
    if (!body) return NULL;
    p->depth--;
    arrput(p->stack, body);
    height = p->height;
    ein__ast *a = ein__ast_new(p, EIN__A_REDUCE, t.pos);
    a->name = t.text;
    return ein__ast_take(p, a, base, height);
}

// At `name (`: bare names alone in the parentheses.
static bool ein__names_in_parens(const ein__parser *p) {
    for (int i = 2; ein__is_word(p, i, NULL); i += 2) {
        if (ein__is_op(p, i + 1, ")")) return true;
        if (!ein__is_op(p, i + 1, ",")) return false;
    }
    return false;
}

// A name that begins a factor.
static ein__ast *ein__parse_named(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    ein__pos pos = t->pos;
    if (ein__is_op(p, 1, "[")) return ein__parse_read(p);
    if (t->kind == EIN__TOK_NAME && ein__is_op(p, 1, "(")) {
        if (!strcmp(t->text, "idx")) {
            p->at += 2;
            ein__ast *a = ein__ast_unary(p, EIN__A_IDX, pos, ein__parse_sexpr(p));
            return a && ein__expect(p, ")") ? a : NULL;
        }
        bool reduce = ein__is_reduction(t->text) && ein__names_in_parens(p);
        return reduce ? ein__parse_reduce(p) : ein__parse_call(p);
    }
    if (ein__is_word(p, 0, "inf")) {
        p->at++;
        ein__ast *a = ein__ast_new(p, EIN__A_NUM, pos);
        a->num = (double)INFINITY;
        return a;
    }
    ein__error(p->ctx, EIN_BAD_INPUT, pos,
               "'%s' alone is not a value: write %s[..] for a tensor "
               "or idx(%s) for an index or dim",
               t->text, t->text, t->text);
    return NULL;
}

static ein__ast *ein__parse_factor(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    ein__pos pos = t->pos;
    if (t->kind == EIN__TOK_NUMBER) {
        p->at++;
        return ein__ast_number(p, t);
    }
    if (ein__is_name(p, 0)) return ein__parse_named(p);
    if (!ein__enter(p, pos)) return NULL;
    ein__ast *a = NULL;
    if (ein__accept(p, "-")) {
        a = ein__ast_unary(p, EIN__A_NEG, pos, ein__parse_factor(p));
    } else if (ein__accept(p, "(")) {
        a = ein__parse_expr(p);
        if (a && !ein__expect(p, ")")) return NULL;
    } else if (ein__accept(p, "[")) {
        a = ein__ast_unary(p, EIN__A_GUARD, pos, ein__parse_comparison(p, ein__parse_sexpr));
        if (a && !ein__expect(p, "]")) return NULL;
    } else {
        ein__expected(p, "an expression");
    }
    p->depth--;
    return a;
}

static ein__ast *ein__parse_term(ein__parser *p) {
    return ein__parse_chain(p, "*/", ein__parse_factor);
}

static ein__ast *ein__parse_expr(ein__parser *p) {
    return ein__parse_chain(p, "+-", ein__parse_term);
}

// ------------------------------------------------------------------------------------- equations

// Copies an stb_ds array into the arena and frees it.
#define EIN__KEEP(p, list, count, array)                                                    \
    do {                                                                                    \
        (count) = (int)arrlen(array);                                                       \
        (list) = ein__alloc(&(p)->ctx->arena, (arrlenu(array) + !array) * sizeof *(array)); \
        if (array) memcpy((list), (array), arrlenu(array) * sizeof *(array));               \
        arrfree(array);                                                                     \
    } while (0)

// The value of a padding that is a plain number.
static bool ein__literal(const ein__ast *a, double *v) {
    if (a->kind == EIN__A_NEG && ein__literal(a->kid[0], v)) {
        *v = -*v;
        return true;
    }
    if (a->kind == EIN__A_NAME && !strcmp(a->name, "inf")) *v = (double)INFINITY;
    else if (a->kind == EIN__A_NUM) *v = a->num;
    else return false;
    return true;
}

typedef struct ein__clauses {
    ein__range *range;
    ein__padval *pad;
    ein__ast **value;
} ein__clauses;

// name in lo : hi | pad name value
static bool ein__parse_clause(ein__parser *p, ein__clauses *c) {
    if (ein__is_word(p, 0, "pad") && ein__is_name(p, 1) && !ein__is_word(p, 1, "in")) {
        p->at++;
        ein__ident name;
        if (!ein__parse_name(p, "a tensor's name", &name)) return false;
        ein__ast *value = ein__parse_value(p);
        if (!value) return false;
        ein__padval pad = {name.name, name.pos, 0};
        ein__literal(value, &pad.value);
        for (ptrdiff_t i = 0; i < arrlen(c->pad); i++)
            if (c->pad[i].tensor == name.name) {
                ein__error(p->ctx, EIN_BAD_INPUT, name.pos, "padding of '%s' is given twice",
                           name.name);
                return false;
            }
        arrput(c->pad, pad);
        arrput(c->value, value);
        return true;
    }
    ein__ident name;
    if (!ein__parse_word(p, "an index or 'pad'", &name)) return false;
    if (!ein__is_word(p, 0, "in")) return ein__expected(p, "'in'");
    p->at++;
    ein__range range = {.name = name.name, .pos = name.pos};
    range.lo = ein__parse_sexpr(p);
    if (!range.lo || !ein__expect(p, ":")) return false;
    range.hi = ein__parse_sexpr(p);
    if (!range.hi) return false;
    for (ptrdiff_t i = 0; i < arrlen(c->range); i++)
        if (c->range[i].name == name.name) {
            ein__error(p->ctx, EIN_BAD_INPUT, name.pos, "range of '%s' is given twice", name.name);
            return false;
        }
    arrput(c->range, range);
    return true;
}

static bool ein__parse_where(ein__parser *p, ein__stmt *s) {
    ein__clauses c = {0};
    bool ok = true;
    if (ein__is_word(p, 0, "where")) {
        p->at++;
        do {
            ok = ein__parse_clause(p, &c);
            if (ok && arrlen(c.range) + arrlen(c.pad) > 2 * EIN__MAX_ARGS) {
                ein__error(p->ctx, EIN_RESOURCES, s->pos, "more than %d clauses",
                           2 * EIN__MAX_ARGS);
                ok = false;
            }
        } while (ok && ein__accept(p, ","));
    }
    EIN__KEEP(p, s->eq->range, s->eq->nrange, c.range);
    EIN__KEEP(p, s->eq->pad, s->eq->npad, c.pad);
    EIN__KEEP(p, s->pad, s->eq->npad, c.value);
    return ok;
}

// name [ names ] = expr [ where .. ]
static bool ein__parse_equation(ein__parser *p, ein__stmt *s) {
    ein__ident name, index;
    s->kind = EIN__ST_EQUATION;
    if (!ein__parse_name(p, "a tensor's name", &name) || !ein__expect(p, "[")) return false;
    ein__equation *eq = s->eq = EIN__NEW(&p->ctx->arena, ein__equation, 1);
    eq->result = name.name;
    eq->pos = s->pos = name.pos;
    if (!ein__is_op(p, 0, "]")) {
        do {
            if (!ein__parse_word(p, "an index", &index)) return false;
            if (eq->rank == EIN__MAX_RANK) {
                ein__error(p->ctx, EIN_RESOURCES, index.pos, "more than %d dimensions",
                           EIN__MAX_RANK);
                return false;
            }
            eq->index[eq->rank] = index.name;
            eq->index_pos[eq->rank++] = index.pos;
        } while (ein__accept(p, ","));
    }
    if (!ein__expect(p, "]") || !ein__expect(p, "=")) return false;
    eq->body = ein__parse_expr(p);
    return eq->body && ein__parse_where(p, s);
}
