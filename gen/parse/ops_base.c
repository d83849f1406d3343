// What the operators share: operands, attributes, and the templates in which meanings are written.
//
// A template is an equation of the language with these additions:
//   i32 t[..] = .. what is no result may have a type: it is stored as that
//   {..#..}   repeats with # = 0, 1, .. for as long as every name with a # inside is bound
//   S P#      capital names stand for numbers or text (ein__op_num, ein__op_str)
//   c i#      small names bound by ein__op_each and ein__op_over are traversal and reduction
//   indices
// Subscripts are then put into a plain form (`1*i0+1*0-0` is `i0`), a reduction over one element is
// left out, guards that became constant vanish, and `where` gets the range of every index in use.

#define EIN__OP_LIMIT EIN__MAX_ELEMENTS  // largest integer that an attribute may hold, mostly

typedef struct ein__op ein__op;

// Types that the operands of an operator may have, all of them the same one.
typedef enum {
    EIN__FLOATS,   // f32, f16, bf16
    EIN__NUMBERS,  // these, i8, u8, i32 and i64
    EIN__ANY       // these and bool
} ein__op_types;

// One operator. `in` names the operands: `b?` may be omitted, `x...` is x0 x1 ..., `c:bool` and
// `i:int` have types of their own (int is i8, u8, i32 or i64). `attr` names the
// attributes: `a=1` has a default, `a?` may be missing, `a` must be given, `a=0!` takes no other
// value, `a=one|two|!three` takes a word, the first by default, and refuses the third as not
// supported. Without `make` the operator is element-wise and `body` is its expression over operands
// and attributes; otherwise body is whatever make expects.
typedef struct ein__op_row {
    const char *name, *in, *attr;
    ein__op_types types;
    const char *body;
    bool (*make)(ein__op *);
} ein__op_row;

typedef struct ein__op_symbol {
    char name[8];
    const char *text;  // NULL: an index
    int64_t extent;
    bool unit;  // reduction over one element
    bool used;  // by the equation being written
} ein__op_symbol;

enum { EIN__OP_SYMBOLS = 128 };

// One use of an operator, while its results' shapes are found and its equations are written.
struct ein__op {
    ein_ctx *ctx;
    const ein__node *node;
    const ein__op_row *row;
    ein__buf *text;     // NULL: only the shapes are wanted
    ein__shape *shape;  // per result
    ein__dtype *dtype;
    int nsymbol;
    ein__op_symbol symbol[EIN__OP_SYMBOLS];
};

// ------------------------------------------------------------------------------------ messages

static const ein__attr *ein__op_attr(const ein__op *o, const char *name) {
    for (int i = 0; name && i < o->node->nattr; i++)
        if (!strcmp(o->node->attr[i].name, name)) return &o->node->attr[i];
    return NULL;
}

static void ein__op_message(ein__op *o, ein_status status, const char *attr, const char *format,
                            va_list args) {
    ein__buf b = {0};
    ein__vputf(&b, format, args);
    const ein__attr *a = ein__op_attr(o, attr);
    ein__error(o->ctx, status, a ? a->pos : o->node->pos, "%s: %s", o->row->name, b.s);
    ein__buf_free(&b);
}

// Reports a mistake at attribute `attr`, or at the operator when that is NULL or not given.
EIN__PRINTF(3, 4) EIN__FN bool ein__op_fail(ein__op *o, const char *attr, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__op_message(o, EIN_BAD_INPUT, attr, format, args);
    va_end(args);
    return false;
}

// Reports what is more than the implementation takes.
EIN__PRINTF(3, 4)
EIN__FN bool ein__op_limit(ein__op *o, const char *attr, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__op_message(o, EIN_RESOURCES, attr, format, args);
    va_end(args);
    return false;
}

// Reports something that ONNX has and this table has not.
EIN__PRINTF(3, 4)
EIN__FN bool ein__op_refuse(ein__op *o, const char *attr, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__op_message(o, EIN_UNSUPPORTED, attr, format, args);
    va_end(args);
    return false;
}

EIN__FN const char *ein__op_shape_text(ein__op *o, const ein__shape *s) {
    ein__buf b = {0};
    for (int i = 0; i < s->rank; i++) ein__putf(&b, "%s%lld", i ? "," : "", (long long)s->d[i]);
    const char *text = ein__namef(o->ctx, "[%s]", b.s ? b.s : "");
    ein__buf_free(&b);
    return text;
}

// ------------------------------------------------------------------------- operands and results

// The n bytes at *s up to a space, and *s past them; false at the end.
static bool ein__op_token(const char **s, const char **token, size_t *n) {
    while (**s == ' ') ++*s;
    *token = *s;
    *n = strcspn(*s, " ");
    *s += *n;
    return *n > 0;
}

EIN__FN const char *ein__op_in_name(ein__op *o, int k) {
    const char *s = o->row->in, *token = "";
    size_t n = 0;
    for (int i = 0; i <= k && ein__op_token(&s, &token, &n); i++)
        if (n > 3 && !strncmp(token + n - 3, "...", 3))
            return ein__namef(o->ctx, "%.*s%d", (int)n - 3, token, k);
    const char *colon = memchr(token, ':', n);
    if (colon) n = (size_t)(colon - token);
    return ein__name_n(o->ctx, token, n && token[n - 1] == '?' ? n - 1 : n);
}

// Operand k's own type, "bool" or "int"; "" when it has that of the others.
static const char *ein__op_own_type(ein__op *o, int k) {
    const char *s = o->row->in, *token = "", *colon = NULL;
    size_t n = 0;
    for (int i = 0; i <= k && ein__op_token(&s, &token, &n); i++) colon = memchr(token, ':', n);
    return colon ? ein__name_n(o->ctx, colon + 1, n - 1 - (size_t)(colon - token)) : "";
}

static const ein__tensor *ein__op_tensor(const ein__op *o, int k) {
    return k < o->node->nin && o->node->in[k] >= 0 ? &o->ctx->graph.tensor[o->node->in[k]] : NULL;
}

// Shape of operand k; NULL when it is omitted.
EIN__FN const ein__shape *ein__op_in(const ein__op *o, int k) {
    const ein__tensor *t = ein__op_tensor(o, k);
    return t ? &t->shape : NULL;
}

EIN__FN bool ein__op_rank(ein__op *o, int k, int lo, int hi) {
    int rank = ein__op_in(o, k)->rank;
    if (rank >= lo && rank <= hi) return true;
    const char *name = ein__op_in_name(o, k);
    if (lo == hi) return ein__op_fail(o, NULL, "%s has rank %d, expected %d", name, rank, lo);
    if (hi >= EIN__MAX_RANK)
        return ein__op_fail(o, NULL, "%s has rank %d, expected at least %d", name, rank, lo);
    return ein__op_fail(o, NULL, "%s has rank %d, expected %d to %d", name, rank, lo, hi);
}

// Operand k is omitted, or a vector of n elements.
EIN__FN bool ein__op_vector(ein__op *o, int k, int64_t n) {
    const ein__shape *s = ein__op_in(o, k);
    if (!s || (s->rank == 1 && s->d[0] == n)) return true;
    return ein__op_fail(o, NULL, "%s has shape %s, expected [%lld]", ein__op_in_name(o, k),
                        ein__op_shape_text(o, s), (long long)n);
}

// Type of the operands that have none of their own.
static ein__dtype ein__op_type(ein__op *o) {
    for (int k = 0; k < o->node->nin; k++)
        if (ein__op_tensor(o, k) && !*ein__op_own_type(o, k)) return ein__op_tensor(o, k)->dtype;
    return ein__op_tensor(o, 0)->dtype;
}

EIN__FN bool ein__op_result(ein__op *o, int k, const ein__shape *s) {
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] < 1)
            return ein__op_fail(o, NULL, "axis %d of the result would have size %lld", i,
                                (long long)s->d[i]);
    if (ein__elements(s) > EIN__MAX_ELEMENTS)
        return ein__op_limit(o, NULL, "the result would have more than 2^40 elements");
    o->shape[k] = *s;
    o->dtype[k] = ein__op_type(o);
    return true;
}

// Two-way broadcasting: axes count from the last one, and size 1 stretches.
EIN__FN bool ein__op_broadcast(ein__op *o, const ein__shape *a, const ein__shape *b,
                               ein__shape *r) {
    ein__shape out = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 0; i < out.rank; i++) {
        int ia = i - (out.rank - a->rank), ib = i - (out.rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->d[ia], db = ib < 0 ? 1 : b->d[ib];
        if (da != db && da != 1 && db != 1)
            return ein__op_fail(o, NULL, "shapes %s and %s do not broadcast",
                                ein__op_shape_text(o, a), ein__op_shape_text(o, b));
        out.d[i] = da > db ? da : db;
    }
    *r = out;
    return true;
}

// Operand k is omitted or stretches to `r`.
EIN__FN bool ein__op_stretches(ein__op *o, int k, const ein__shape *r) {
    const ein__shape *s = ein__op_in(o, k);
    for (int i = 0; s && i < s->rank; i++) {
        int at = i + r->rank - s->rank;
        if (at >= 0 && (s->d[i] == 1 || s->d[i] == r->d[at])) continue;
        return ein__op_fail(o, NULL, "%s %s does not broadcast to %s", ein__op_in_name(o, k),
                            ein__op_shape_text(o, s), ein__op_shape_text(o, r));
    }
    return true;
}

// ---------------------------------------------------------------------------------- attributes

// The row's default of an attribute, "" when it has none.
static const char *ein__op_default(const ein__op *o, const char *name) {
    const char *s = o->row->attr, *token;
    size_t n, length = strlen(name);
    while (ein__op_token(&s, &token, &n))
        if (n > length && !strncmp(token, name, length) && token[length] == '=')
            return token + length + 1;
    return "";
}

EIN__FN bool ein__op_given(const ein__op *o, const char *name) {
    return ein__op_attr(o, name) != NULL;
}

static bool ein__op_ast_int(const ein__ast *a, int64_t *v) {
    bool negative = a->kind == EIN__A_NEG;
    if (negative) a = a->kid[0];
    if (a->kind != EIN__A_NUM || !a->integral) return false;
    *v = a->inum;
    return !negative || !ein__mul_overflows(a->inum, -1, v);
}

static bool ein__op_ast_f64(const ein__ast *a, double *v) {
    bool negative = a->kind == EIN__A_NEG;
    if (negative) a = a->kid[0];
    if (a->kind == EIN__A_NAME && !strcmp(a->name, "inf")) *v = (double)INFINITY;
    else if (a->kind == EIN__A_NUM) *v = a->integral ? (double)a->inum : a->num;
    else return false;
    if (negative) *v = -*v;
    return true;
}

static bool ein__op_int_range(ein__op *o, const char *name, int64_t v, int64_t lo, int64_t hi) {
    if (v >= lo && v <= hi) return true;
    if (v < lo && hi >= EIN__OP_LIMIT)
        return ein__op_fail(o, name, "%s is %lld, expected at least %lld", name, (long long)v,
                            (long long)lo);
    if (v > hi && hi >= EIN__OP_LIMIT)
        return ein__op_limit(o, name, "%s is %lld, more than %lld", name, (long long)v,
                             (long long)hi);
    return ein__op_fail(o, name, "%s is %lld, expected %lld to %lld", name, (long long)v,
                        (long long)lo, (long long)hi);
}

EIN__FN bool ein__op_int(ein__op *o, const char *name, int64_t lo, int64_t hi, int64_t *v) {
    const ein__attr *a = ein__op_attr(o, name);
    if (!a) *v = strtoll(ein__op_default(o, name), NULL, 10);
    else if (!ein__op_ast_int(a->value, v))
        return ein__op_fail(o, name, "%s must be an integer", name);
    return ein__op_int_range(o, name, *v, lo, hi);
}

EIN__FN bool ein__op_flag(ein__op *o, const char *name, bool *v) {
    int64_t n;
    if (!ein__op_int(o, name, 0, 1, &n)) return false;
    *v = n != 0;
    return true;
}

// What is said of a real number that is `floored`.
#define EIN__FLOORED "a quotient of integers, which is rounded down: write 1.0/2 for 0.5"

// A number; infinite ones are written `inf` and `-inf`.
EIN__FN bool ein__op_number(ein__op *o, const char *name, double *v) {
    const ein__attr *a = ein__op_attr(o, name);
    const char *end, *s = ein__op_default(o, name);
    if (!a) *v = *s == '-' ? -ein__read_f64(s + 1, &end) : ein__read_f64(s, &end);
    else if (!ein__op_ast_f64(a->value, v) || *v != *v)
        return ein__op_fail(o, name, "%s must be a number", name);
    else if (a->value->floored) return ein__op_fail(o, name, "%s is %s", name, EIN__FLOORED);
    return true;
}

EIN__FN bool ein__op_finite(ein__op *o, const char *name, double *v) {
    if (!ein__op_number(o, name, v)) return false;
    if (fabs(*v) <= EIN__F32_MAX) return true;
    return ein__op_fail(o, name, "%s must be a number in f32's range", name);
}

// Which of the words of the row's `name=one|two|!three` was chosen.
EIN__FN bool ein__op_word(ein__op *o, const char *name, int *which) {
    *which = 0;
    const ein__attr *a = ein__op_attr(o, name);
    if (!a) return true;
    const ein__ast *v = a->value;
    if (v->kind != EIN__A_NAME && v->kind != EIN__A_STR)
        return ein__op_fail(o, name, "%s must be a word", name);
    const char *s = ein__op_default(o, name), *best = NULL;
    int distance = 3;
    for (int i = 0;; i++) {
        bool refused = *s == '!';
        s += refused;
        size_t n = strcspn(s, "| ");
        const char *word = ein__name_n(o->ctx, s, n);
        if (!strcmp(v->name, word) && refused)
            return ein__op_refuse(o, name, "%s=%s is not supported", name, word);
        *which = i;
        if (!strcmp(v->name, word)) return true;
        ein__suggest(v->name, word, &best, &distance);
        s += n;
        if (*s++ != '|') break;
    }
    if (best)
        return ein__op_fail(o, name, "%s cannot be '%s'; did you mean '%s'?", name, v->name, best);
    s = ein__op_default(o, name);
    return ein__op_fail(o, name, "%s cannot be '%s'; known are %.*s", name, v->name,
                        (int)strcspn(s, " "), s);
}

// A list of integers in [lo, hi], at most `cap` of them. With count >= 0 there must be that many,
// and one number stands for a list of equal ones, which is also how the row's default is read.
// Without default, an attribute that is not given has n = 0.
EIN__FN bool ein__op_ints(ein__op *o, const char *name, int count, int cap, int64_t lo, int64_t hi,
                          int64_t *v, int *n) {
    const ein__attr *a = ein__op_attr(o, name);
    const char *text = ein__op_default(o, name);
    *n = 0;
    if (!a && !*text) return true;
    bool list = a && a->value->kind == EIN__A_LIST;
    int given = list ? a->value->nkid : count < 0 ? 1 : count;
    if (count >= 0 && given != count)
        return ein__op_fail(o, name, "%s has %d values, expected %d", name, given, count);
    if (given > cap)
        return ein__op_fail(o, name, "%s has %d values, expected at most %d", name, given, cap);
    for (int i = 0; i < given; i++) {
        if (!a) v[i] = strtoll(text, NULL, 10);
        else if (!ein__op_ast_int(list ? a->value->kid[i] : a->value, &v[i]))
            return ein__op_fail(o, name, "%s must be an integer or a list of them", name);
        if (!ein__op_int_range(o, name, v[i], lo, hi)) return false;
    }
    *n = given;
    return true;
}

// Normalizes an axis in [-rank, rank); the end `rank` itself is allowed with `end`.
EIN__FN bool ein__op_axis_range(ein__op *o, const char *name, int64_t axis, int rank, int *at) {
    if (axis < -rank || axis >= rank)
        return ein__op_fail(o, name, "%s is %lld, expected %d to %d", name, (long long)axis, -rank,
                            rank - 1);
    *at = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

EIN__FN bool ein__op_axis(ein__op *o, const char *name, int rank, int *at) {
    int64_t axis;
    return ein__op_int(o, name, -EIN__OP_LIMIT, EIN__OP_LIMIT, &axis) &&
           ein__op_axis_range(o, name, axis, rank, at);
}

// Axes in the order given, each once.
EIN__FN bool ein__op_axes(ein__op *o, const char *name, int rank, int at[EIN__MAX_RANK], int *n) {
    int64_t v[EIN__MAX_RANK];
    bool seen[EIN__MAX_RANK] = {0};
    if (!ein__op_ints(o, name, -1, EIN__MAX_RANK, -EIN__OP_LIMIT, EIN__OP_LIMIT, v, n))
        return false;
    for (int i = 0; i < *n; i++) {
        if (!ein__op_axis_range(o, name, v[i], rank, &at[i])) return false;
        if (seen[at[i]]) return ein__op_fail(o, name, "%s names axis %d twice", name, at[i]);
        seen[at[i]] = true;
    }
    return true;
}

static bool ein__op_has_attr(const ein__op *o, const char *name) {
    const char *s = o->row->attr, *token;
    size_t n, length = strlen(name);
    while (ein__op_token(&s, &token, &n))
        if (strcspn(token, "=?! ") == length && !strncmp(token, name, length)) return true;
    return false;
}

// What to give instead of attribute `name`: what another framework's name means, the name that is
// `best` by its letters, or one of all that there are.
static const char *ein__op_attr_hint(ein__op *o, const char *name, const char *best) {
    char folded[EIN__FOLDED];
    ein__fold_name(folded, name);
    for (size_t i = 0; i < sizeof ein__foreign_attr / sizeof *ein__foreign_attr; i++) {
        const ein__foreign *row = &ein__foreign_attr[i];
        if (ein__among(row->names, folded) && ein__op_has_attr(o, row->meant))
            return ein__hint(o->ctx, row->meant);
    }
    if (best) return ein__hint(o->ctx, best);
    const char *s = o->row->attr, *token, *list = "";
    size_t n;
    while (ein__op_token(&s, &token, &n))
        if (token[n - 1] != '!')
            list = ein__namef(o->ctx, "%s%s%.*s", list, *list ? ", " : "",
                              (int)strcspn(token, "=?! "), token);
    return *list ? ein__namef(o->ctx, "; it has %s", list) : "; it takes none";
}

// Names are known, given once, present where required, and fixed ones have their value.
static bool ein__op_check_attrs(ein__op *o) {
    for (int i = 0; i < o->node->nattr; i++) {
        const char *name = o->node->attr[i].name, *s = o->row->attr, *token, *best = NULL;
        size_t n;
        int distance = 3;
        bool known = false;
        while (!known && ein__op_token(&s, &token, &n)) {
            size_t length = strcspn(token, "=?! ");
            const char *word = ein__name_n(o->ctx, token, length);
            known = !strcmp(name, word);
            ein__suggest(name, word, &best, &distance);
            int64_t v;
            if (known && token[n - 1] == '!' &&
                (!ein__op_ast_int(o->node->attr[i].value, &v) ||
                 v != strtoll(token + length + 1, NULL, 10)))
                return ein__op_refuse(o, name, "only %.*s is supported", (int)n - 1, token);
        }
        if (!known)
            return ein__op_fail(o, name, "unknown attribute '%s'%s", name,
                                ein__op_attr_hint(o, name, best));
        if (ein__op_attr(o, name) != &o->node->attr[i]) {
            ein__error(o->ctx, EIN_BAD_INPUT, o->node->attr[i].pos,
                       "%s: attribute '%s' given twice", o->row->name, name);
            return false;
        }
    }
    const char *s = o->row->attr, *token;
    size_t n;
    while (ein__op_token(&s, &token, &n)) {
        if (memchr(token, '=', n) || token[n - 1] == '?') continue;
        const char *name = ein__name_n(o->ctx, token, n);
        if (!ein__op_given(o, name))
            return ein__op_fail(o, NULL, "attribute '%s' is missing", name);
    }
    return true;
}

// ----------------------------------------------------------------------------------- subscripts

// c + sum k * atom, where an atom is an index or the text of a division or remainder. Atoms are
// interned, so equal text is equal pointers. Magnitudes are bounded by the checks of the operators.
typedef struct ein__lin {
    int64_t c;
    int n;
    struct {
        int64_t k;
        const char *atom;
    } t[24];
} ein__lin;

static void ein__lin_add(ein__lin *a, int64_t k, const ein__lin *b) {
    a->c += k * b->c;
    for (int i = 0; i < b->n; i++) {
        int j = 0;
        while (j < a->n && a->t[j].atom != b->t[i].atom) j++;
        if (j == a->n) {
            EIN_ASSERT(a->n < 24);
            a->t[a->n++].atom = b->t[i].atom;
            a->t[j].k = 0;
        }
        a->t[j].k += k * b->t[i].k;
        if (a->t[j].k) continue;
        memmove(&a->t[j], &a->t[j + 1], (size_t)(a->n - j - 1) * sizeof a->t[0]);
        a->n--;
    }
}

static void ein__lin_put(ein__buf *b, const ein__lin *a) {
    for (int i = 0; i < a->n; i++) {
        int64_t k = a->t[i].k;
        bool paren = k != 1 && (k != -1 || !i) && strpbrk(a->t[i].atom, "/%");
        ein__put(b, k < 0 ? "-" : i ? "+" : "");
        if (k != 1 && k != -1) ein__putf(b, "%lld*", (long long)(k < 0 ? -k : k));
        ein__putf(b, paren ? "(%s)" : "%s", a->t[i].atom);
    }
    if (!a->n || a->c) ein__putf(b, a->n ? "%+lld" : "%lld", (long long)a->c);
}

static ein__lin ein__lin_atom(ein_ctx *ctx, const ein__lin *a, char op, int64_t d) {
    ein__buf b = {0};
    bool plain = a->n == 1 && a->t[0].k == 1 && !a->c && !strpbrk(a->t[0].atom, "/%");
    if (!plain) ein__put(&b, "(");
    ein__lin_put(&b, a);
    ein__putf(&b, plain ? "%c%lld" : ")%c%lld", op, (long long)d);
    ein__lin r = {.n = 1};
    r.t[0].k = 1;
    r.t[0].atom = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return r;
}

// floor(a / d): multiples of d leave the division, common factors cancel.
static ein__lin ein__lin_div(ein_ctx *ctx, const ein__lin *a, int64_t d) {
    ein__lin out = {0}, rest = {.c = a->c};
    int64_t g = d;
    for (int i = 0; i < a->n; i++) {
        ein__lin *to = a->t[i].k % d ? &rest : &out;
        to->t[to->n] = a->t[i];
        if (to == &out) out.t[out.n].k /= d;
        else g = ein__gcd(g, a->t[i].k);
        to->n++;
    }
    if (!rest.n) {
        out.c = ein__floordiv(a->c, d);
        return out;
    }
    for (int i = 0; i < rest.n; i++) rest.t[i].k /= g;
    rest.c = ein__floordiv(rest.c, g);
    ein__lin q = ein__lin_atom(ctx, &rest, '/', d / g);
    ein__lin_add(&out, 1, &q);
    return out;
}

static ein__lin ein__lin_mod(ein_ctx *ctx, const ein__lin *a, int64_t d) {
    ein__lin rest = {.c = ein__floormod(a->c, d)};
    for (int i = 0; i < a->n; i++)
        if (a->t[i].k % d) rest.t[rest.n++] = a->t[i];
    return rest.n ? ein__lin_atom(ctx, &rest, '%', d) : rest;
}

static ein__op_symbol *ein__op_symbol_at(ein__op *o, const char *name, size_t n) {
    for (int i = 0; i < o->nsymbol; i++)
        if (!strncmp(o->symbol[i].name, name, n) && !o->symbol[i].name[n]) return &o->symbol[i];
    return NULL;
}

static size_t ein__op_word_length(const char *s) {
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_' ||
           (n && s[n] >= '0' && s[n] <= '9'))
        n++;
    return n;
}

// Subscripts of templates are nested at most four deep.
static ein__lin ein__lin_sum(ein__op *o, const char **s);

static ein__lin ein__lin_factor(ein__op *o, const char **s) {
    while (**s == ' ') ++*s;
    ein__lin r = {0};
    size_t n = ein__op_word_length(*s);
    if (n) {
        ein__op_symbol *index = ein__op_symbol_at(o, *s, n);
        EIN_ASSERT(index && !index->text);
        index->used = true;
        if (!index->unit) {
            r.n = 1;
            r.t[0].k = 1;
            r.t[0].atom = ein__name_n(o->ctx, *s, n);
        }
        *s += n;
    } else if (**s == '(') {
        ++*s;
        r = ein__lin_sum(o, s);
        EIN_ASSERT(**s == ')');
        ++*s;
    } else if (**s == '-') {
        ++*s;
        ein__lin a = ein__lin_factor(o, s);
        ein__lin_add(&r, -1, &a);
    } else {
        char *end;
        r.c = strtoll(*s, &end, 10);
        EIN_ASSERT(end != *s);
        *s = end;
    }
    return r;
}

static ein__lin ein__lin_product(ein__op *o, const char **s) {
    ein__lin a = ein__lin_factor(o, s);
    for (;;) {
        while (**s == ' ') ++*s;
        char op = **s;
        if (op != '*' && op != '/' && op != '%') return a;
        ++*s;
        ein__lin b = ein__lin_factor(o, s), r = {0};
        if (op != '*') {
            EIN_ASSERT(!b.n && b.c > 0);
            r = op == '/' ? ein__lin_div(o->ctx, &a, b.c) : ein__lin_mod(o->ctx, &a, b.c);
        } else if (b.n) {
            EIN_ASSERT(!a.n);
            if (a.c) ein__lin_add(&r, a.c, &b);
        } else if (b.c) {
            ein__lin_add(&r, b.c, &a);
        }
        a = r;
    }
}

static ein__lin ein__lin_sum(ein__op *o, const char **s) {
    ein__lin a = ein__lin_product(o, s);
    for (;;) {
        while (**s == ' ') ++*s;
        char op = **s;
        if (op != '+' && op != '-') return a;
        ++*s;
        ein__lin b = ein__lin_product(o, s);
        ein__lin_add(&a, op == '+' ? 1 : -1, &b);
    }
}

// ------------------------------------------------------------------------------------ templates

static ein__op_symbol *ein__op_bind(ein__op *o, const char *name, int k) {
    EIN_ASSERT(o->nsymbol < EIN__OP_SYMBOLS && strlen(name) < 7);
    ein__op_symbol *s = &o->symbol[o->nsymbol++];
    *s = (ein__op_symbol){.extent = 0};
    size_t n = strlen(name);
    memcpy(s->name, name, n);
    if (k >= 0) s->name[n] = (char)('0' + k);
    return s;
}

// These bind a name of templates; with k >= 0 the name is followed by that digit (`#`).
EIN__PRINTF(4, 5)
EIN__FN void ein__op_str(ein__op *o, const char *name, int k, const char *format, ...) {
    if (!o->text) return;
    ein__buf b = {0};
    va_list args;
    va_start(args, format);
    ein__vputf(&b, format, args);
    va_end(args);
    ein__op_bind(o, name, k)->text = ein__name(o->ctx, b.s ? b.s : "");
    ein__buf_free(&b);
}

EIN__FN void ein__op_num(ein__op *o, const char *name, int k, int64_t v) {
    ein__op_str(o, name, k, v < 0 ? "(%lld)" : "%lld", (long long)v);
}

EIN__FN void ein__op_real(ein__op *o, const char *name, double v) {
    ein__buf b = {0};
    ein__put_f64(&b, v);
    ein__op_str(o, name, -1, "%s", b.s);
    ein__buf_free(&b);
}

EIN__FN void ein__op_each(ein__op *o, const char *name, int k, int64_t extent) {
    if (o->text) ein__op_bind(o, name, k)->extent = extent;
}

EIN__FN void ein__op_over(ein__op *o, const char *name, int k, int64_t extent) {
    if (!o->text) return;
    ein__op_symbol *s = ein__op_bind(o, name, k);
    s->extent = extent;
    s->unit = extent == 1;
}

// Binds i0 i1 .. to the axes of a shape.
EIN__FN void ein__op_each_axis(ein__op *o, const ein__shape *s) {
    for (int i = 0; i < s->rank; i++) ein__op_each(o, "i", i, s->d[i]);
}

// Subscripts of an operand that stretches to the result over i0 i1 .. (aligned at the last axis).
EIN__FN void ein__op_stretch(ein__op *o, const char *name, const ein__shape *s,
                             const ein__shape *r) {
    for (int i = 0; s && i < s->rank; i++) {
        int at = i + r->rank - s->rank;
        if (s->d[i] == r->d[at]) ein__op_str(o, name, i, "i%d", at);
        else ein__op_str(o, name, i, "0");
    }
}

// Puts text [s, end) with # = k and capital names replaced; false when a name with # is not bound.
static bool ein__op_expand(ein__op *o, ein__buf *b, const char *s, const char *end, int k) {
    while (s < end) {
        size_t n = ein__op_word_length(s);
        if (!n && *s == '{') {
            const char *close = strchr(s, '}');
            EIN_ASSERT(close && k < 0);
            for (int i = 0;; i++) {
                size_t mark = b->n;
                if (ein__op_expand(o, b, s + 1, close, i)) continue;
                b->n = mark;
                break;
            }
            s = close + 1;
        } else if (!n) {
            ein__put_n(b, s++, 1);
        } else {
            char name[16] = "";
            bool axis = s[n] == '#';
            EIN_ASSERT(n < sizeof name - 1);
            memcpy(name, s, n);
            if (axis) name[n] = (char)('0' + k);
            const ein__op_symbol *y = k > 9 ? NULL : ein__op_symbol_at(o, name, strlen(name));
            if (axis && !y) return false;
            EIN_ASSERT(y || *s < 'A' || *s > 'Z');
            ein__put(b, y && y->text ? y->text : name);
            s += n + axis;
        }
    }
    return true;
}

static const char *ein__op_put_list(ein__op *o, ein__buf *b, const char *s) {
    bool first = true;
    for (;;) {
        while (*s == ',' || *s == ' ') s++;
        if (*s == ']') return s + 1;
        if (!first) ein__put(b, ",");
        first = false;
        if (*s == '@') {  // a position held in a tensor
            size_t n = strcspn(s, "[") + 1;
            ein__put_n(b, s, n);
            s = ein__op_put_list(o, b, s + n);
            ein__put(b, "]");
            continue;
        }
        ein__lin a = ein__lin_sum(o, &s);
        ein__lin_put(b, &a);
    }
}

// `[a == b]` after ` * `; both disappear when the condition holds whatever the indices are.
static const char *ein__op_put_guard(ein__op *o, ein__buf *b, const char *s) {
    ein__lin left = ein__lin_sum(o, &s);
    size_t n = strspn(s, "=<>!");
    const char *op = s;
    s += n;
    ein__lin right = ein__lin_sum(o, &s);
    EIN_ASSERT(*s == ']');
    bool holds = !left.n && !right.n && n == 2 && *op == '=' && left.c == right.c;
    if (holds && b->n > 3 && !strcmp(b->s + b->n - 3, " * ")) {
        b->s[b->n -= 3] = 0;
        return s + 1;
    }
    ein__put(b, "[");
    ein__lin_put(b, &left);
    ein__putf(b, " %.*s ", (int)n, op);
    ein__lin_put(b, &right);
    ein__put(b, "]");
    return s + 1;
}

// After `sum(`: the bare indices of a reduction. NULL when the parentheses hold anything else.
static const char *ein__op_put_reduce(ein__op *o, ein__buf *b, const char *word, size_t n,
                                      const char *s) {
    ein__buf list = {0};
    for (;;) {
        s += strspn(s, ", ");
        if (*s == ')') break;
        size_t length = ein__op_word_length(s);
        ein__op_symbol *index = length ? ein__op_symbol_at(o, s, length) : NULL;
        if (!index || index->text || !strchr(",)", s[length])) {
            ein__buf_free(&list);
            return NULL;
        }
        index->used = true;
        if (!index->unit) ein__putf(&list, "%s%.*s", list.n ? "," : "", (int)length, s);
        s += length;
    }
    s++;
    if (list.n) ein__putf(b, "%.*s(%s)", (int)n, word, list.s);
    else s += strspn(s, " ");
    ein__buf_free(&list);
    return s;
}

static bool ein__op_reduces(const char *s, size_t n) {
    return n >= 3 && n <= 4 && s[n] == '(' &&
           (!strncmp(s, "sum(", 4) || !strncmp(s, "max(", 4) || !strncmp(s, "min(", 4) ||
            !strncmp(s, "prod(", 5));
}

static void ein__op_tidy(ein__op *o, ein__buf *b, const char *s) {
    while (*s) {
        size_t n = ein__op_word_length(s);
        const char *next = NULL;
        if (n && ein__op_reduces(s, n) &&
            (next = ein__op_put_reduce(o, b, s, n, s + n + 1)) != NULL) {
            s = next;
        } else if (n && s[n] == '[') {
            ein__put_n(b, s, n + 1);
            s = ein__op_put_list(o, b, s + n + 1);
            ein__put(b, "]");
        } else if (n == 3 && !strncmp(s, "idx(", 4)) {
            s += 4;
            ein__lin a = ein__lin_sum(o, &s);
            ein__put(b, "idx(");
            ein__lin_put(b, &a);
            ein__put(b, ")");
            s++;
        } else if (n) {
            ein__put_n(b, s, n);
            s += n;
        } else if (*s == '[') {
            s = ein__op_put_guard(o, b, s + 1);
        } else {
            ein__put_n(b, s++, 1);
        }
    }
}

// Writes one equation. `pad` is what follows the word in `where` ("x 0"), NULL when nothing is read
// outside its range.
EIN__FN void ein__op_put(ein__op *o, const char *template, const char *pad) {
    if (!o->text) return;
    ein__buf plain = {0};
    for (int i = 0; i < o->nsymbol; i++) o->symbol[i].used = false;
    ein__op_expand(o, &plain, template, template + strlen(template), -1);
    ein__op_tidy(o, o->text, plain.s);
    ein__buf_free(&plain);
    bool first = true;
    for (int i = 0; i < o->nsymbol; i++) {
        const ein__op_symbol *s = &o->symbol[i];
        if (s->text || s->unit || !s->used) continue;
        ein__putf(o->text, "%s%s in 0:%lld", first ? " where " : ", ", s->name,
                  (long long)s->extent);
        first = false;
    }
    if (pad) ein__putf(o->text, "%spad %s", first ? " where " : ", ", pad);
    ein__put(o->text, "\n");
}
