// onnx_graph.c - values, statements and the .ein text they make.
#include "onnx.h"

#include <math.h>

// Limits of the language.
enum { MAX_NAME = 1000 };

// ---- names ----

// What the language takes without quotes: dots may join parts of letters, digits and `_`.
static bool is_plain(const char *name) {
    static const char parts[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    if (!strcmp(name, "_") || (*name >= '0' && *name <= '9')) {
        return false;
    }
    for (const char *s = name;; s++) {
        size_t size = strspn(s, parts);
        s += size;
        if (!size || !*s) {
            return size > 0;
        }
        if (*s != '.') {
            return false;
        }
    }
}

void ox_put_quoted(char **text, const char *name) {
    arrput(*text, '"');
    for (const char *s = name; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            arrput(*text, '\\');
            arrput(*text, (char)c);
        } else if (c == '\n' || c == '\t') {
            ox_put(text, c == '\n' ? "\\n" : "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            ox_put(text, "\\x%02x", (unsigned)c);
        } else {
            arrput(*text, (char)c);
        }
    }
    arrput(*text, '"');
}

void ox_put_name(char **text, const char *name) {
    if (is_plain(name)) {
        size_t size = strlen(name);
        memcpy(arraddnptr(*text, size), name, size);
    } else {
        ox_put_quoted(text, name);
    }
}

// The counter is kept per base, so that a thousand collisions cost a thousand look-ups.
const char *ox_fresh(ox *o, const char *base, const char *suffix) {
    char *name = ox_format(o, "%s%s", base, suffix);
    ptrdiff_t known = shgeti(o->counted, name);
    int number = known >= 0 ? o->counted[known].value : 1;
    char *tried = name;
    while (shgeti(o->taken, tried) >= 0) {
        tried = ox_format(o, "%s.%d", name, ++number);
    }
    shput(o->counted, name, number);
    shput(o->taken, tried, 1);
    return tried;
}

// ---- values ----

static bool is_utf8(const char *s) {
    while (*s) {
        unsigned char c = (unsigned char)*s++;
        int more = c < 0x80                ? 0
                   : c >= 0xc2 && c < 0xe0 ? 1
                   : c >= 0xe0 && c < 0xf0 ? 2
                   : c >= 0xf0 && c < 0xf5 ? 3
                                           : -1;
        unsigned char next = (unsigned char)*s;
        if (more < 0 || (c == 0xe0 && next < 0xa0) || (c == 0xed && next >= 0xa0) ||
            (c == 0xf0 && next < 0x90) || (c == 0xf4 && next >= 0x90)) {
            return false;
        }
        for (; more; more--, s++) {
            if (((unsigned char)*s & 0xc0) != 0x80) {
                return false;
            }
        }
    }
    return true;
}

ox_value *ox_new_value(ox *o, const char *name, cli_dtype dtype) {
    char shown[80];
    if (strlen(name) > MAX_NAME) {
        ox_die(o, NULL, "the name \"%s\" is longer than %d bytes",
               cli_escape(shown, sizeof shown, name), MAX_NAME);
    }
    if (!*name || !is_utf8(name)) {
        ox_die(o, NULL, "the name \"%s\" is %s", cli_escape(shown, sizeof shown, name),
               *name ? "not UTF-8" : "empty");
    }
    ox_value *v = ox_alloc(o, sizeof *v);
    v->name = name;
    v->dtype = dtype;
    v->rank = -1;
    arrput(o->values, v);
    return v;
}

static const char *output_name(ox_node *n, int output) {
    const char *name = output < n->n_out ? n->out[output] : NULL;
    return name ? name : "";
}

static void bind_name(ox *o, ox_node *n, const char *onnx_name, ox_value *v) {
    if (shgeti(n->scope->values, onnx_name) >= 0) {
        char shown[120];
        ox_die(o, n, "output \"%s\" is defined twice", cli_escape(shown, sizeof shown, onnx_name));
    }
    shput(n->scope->values, (char *)(uintptr_t)onnx_name, v);
}

// A graph output must be there under its own name: a value that has another one already (the node
// is an identity) is copied by a statement, which costs nothing at run time.
void ox_bind(ox *o, ox_node *n, int output, ox_value *v) {
    const char *name = output_name(n, output);
    if (!*name) {
        return;
    }
    if (!v->lost && strcmp(name, v->name) && shgeti(o->wanted, name) >= 0) {
        ox_begin(o);
        ox_arg(o, v);
        v = ox_end(o, "Identity", name, v->dtype);
    }
    bind_name(o, n, n->out_onnx[output], v);
}

void ox_bind_known(ox *o, ox_node *n, int output, const ox_const *c) {
    const char *name = output_name(n, output);
    if (*name) {
        ox_value *v = ox_new_value(o, name, c->dtype);
        v->known = c;
        bind_name(o, n, n->out_onnx[output], v);
    }
}

const ox_const *ox_known(ox *o, ox_value *v) {
    if (!v->known && v->initializer) {
        v->known = ox_decode(o, v->initializer, v->name);
    }
    return v->known;
}

ox_value *ox_constant(ox *o, const char *base, const char *suffix, const ox_const *c) {
    ox_value *v = ox_new_value(o, ox_fresh(o, base, suffix), c->dtype);
    v->known = c;
    return v;
}

// ---- statements ----

void ox_begin(ox *o) {
    arrsetlen(o->attrs, 0);
    arrsetlen(o->args, 0);
}

// The types the language has; f64 constants become f32.
static bool has_type(cli_dtype dtype) {
    return dtype == CLI_F32 || dtype == CLI_F16 || dtype == CLI_BF16 || dtype == CLI_I8 ||
           dtype == CLI_I32 || dtype == CLI_I64 || dtype == CLI_BOOL || dtype == CLI_F64;
}

void ox_arg(ox *o, ox_value *v) {
    if (v) {
        char shown[120];
        const ox_const *c = ox_known(o, v);
        if (c && !has_type(c->dtype)) {
            ox_unsupported(o, NULL, "constant \"%s\" has the unsupported element type %s",
                           cli_escape(shown, sizeof shown, v->name), cli_dtype_name(c->dtype));
        }
        if (c && c->count == 0) {
            ox_unsupported(o, NULL, "constant \"%s\" has no elements",
                           cli_escape(shown, sizeof shown, v->name));
        }
    }
    arrput(o->args, v);
}

static void set_name(ox *o, const char *name) {
    ox_put(&o->attrs, "%s%s=", arrlen(o->attrs) ? OX_COMMA : "", name);
}

void ox_set_int(ox *o, const char *name, int64_t value) {
    set_name(o, name);
    ox_put(&o->attrs, "%lld", (long long)value);
}

void ox_set_float(ox *o, const char *name, double value) {
    set_name(o, name);
    ox_put_float(&o->attrs, value);
}

void ox_set_word(ox *o, const char *name, const char *word) {
    set_name(o, name);
    ox_put(&o->attrs, "%s", word);
}

void ox_set_list(ox *o, const char *name, ox_list list) {
    set_name(o, name);
    ox_put(&o->attrs, "[");
    for (int i = 0; i < list.n; i++) {
        const char *sym = list.sym ? list.sym[i] : NULL;
        ox_put(&o->attrs, "%s", i ? "," : "");
        if (sym) {
            ox_put(&o->attrs, "%s", sym);
        } else {
            ox_put(&o->attrs, "%lld", (long long)list.v[i]);
        }
    }
    ox_put(&o->attrs, "]");
}

void ox_set_floats(ox *o, const char *name, const double *v, int n) {
    set_name(o, name);
    ox_put(&o->attrs, "[");
    for (int i = 0; i < n; i++) {
        ox_put(&o->attrs, "%s", i ? "," : "");
        ox_put_float(&o->attrs, v[i]);
    }
    ox_put(&o->attrs, "]");
}

// Types that operators take beside floats; those without a row take none.
typedef enum { FLOATS, NUMBERS, ANY } types;

static const struct {
    const char *op;
    types takes;
    bool truth;  // the result is bool
} typed[] = {
    {"Identity", ANY, false},
    {"Concat", ANY, false},
    {"Split", ANY, false},
    {"Slice", ANY, false},
    {"Pad", ANY, false},
    {"Transpose", ANY, false},
    {"Reshape", ANY, false},
    {"Flatten", ANY, false},
    {"Squeeze", ANY, false},
    {"Unsqueeze", ANY, false},
    {"Expand", ANY, false},
    {"DepthToSpace", ANY, false},
    {"SpaceToDepth", ANY, false},
    {"Tile", ANY, false},
    {"Trilu", ANY, false},
    {"Gather", ANY, false},
    {"GatherElements", ANY, false},
    {"Where", ANY, false},
    {"Cast", ANY, false},
    {"Equal", ANY, true},
    {"And", ANY, true},
    {"Or", ANY, true},
    {"Xor", ANY, true},
    {"Not", ANY, true},
    {"IsNaN", FLOATS, true},
    {"Less", NUMBERS, true},
    {"LessOrEqual", NUMBERS, true},
    {"Greater", NUMBERS, true},
    {"GreaterOrEqual", NUMBERS, true},
    {"Add", NUMBERS, false},
    {"Sub", NUMBERS, false},
    {"Mul", NUMBERS, false},
    {"Max", NUMBERS, false},
    {"Min", NUMBERS, false},
    {"Neg", NUMBERS, false},
    {"Abs", NUMBERS, false},
    {"Sign", NUMBERS, false},
    {"CumSum", NUMBERS, false},
    {"ReduceSum", NUMBERS, false},
    {"ReduceMax", NUMBERS, false},
    {"ReduceMin", NUMBERS, false},
    {"ReduceProd", NUMBERS, false},
    {"ArgMax", NUMBERS, false},
    {"ArgMin", NUMBERS, false},
};

// Number of an operator's row; -1 when it has none.
static int type_row(const char *op) {
    for (int i = 0; op && i < (int)(sizeof typed / sizeof *typed); i++) {
        if (!strcmp(typed[i].op, op)) {
            return i;
        }
    }
    return -1;
}

static void check_statement(ox *o, const char *op, int outs) {
    if (arrlen(o->args) > OX_MAX_ARGS || outs > OX_MAX_ARGS) {
        ox_unsupported(o, NULL, "operator '%s' with more than %d inputs or outputs", op ? op : "=",
                       OX_MAX_ARGS);
    }
    const ox_value *v = arrlen(o->args) ? o->args[0] : NULL;
    int row = type_row(op);
    types takes = row < 0 ? FLOATS : typed[row].takes;
    if (v && takes != ANY && !ox_is_float(v->dtype) && (takes == FLOATS || v->dtype == CLI_BOOL)) {
        ox_unsupported(o, NULL, "operator '%s' on values of type %s", op ? op : "=",
                       cli_dtype_name(v->dtype));
    }
}

void ox_finish(ox *o, const char *op, ox_value **outs, int n) {
    check_statement(o, op, n);
    ox_stmt *s = ox_alloc(o, sizeof *s);
    ptrdiff_t args = arrlen(o->args);
    while (args && !o->args[args - 1]) {
        args--;
    }
    s->op = op;
    arrput(o->attrs, 0);
    s->attrs = ox_copy(o, o->attrs);
    arrput(o->stmts, s);  // from here on the lists are freed with it
    for (ptrdiff_t i = 0; i < args; i++) {
        arrput(s->args, o->args[i]);
    }
    for (int i = 0; i < n; i++) {
        outs[i]->maker = s;
        arrput(s->outs, outs[i]);
    }
}

ox_value *ox_end(ox *o, const char *op, const char *name, cli_dtype dtype) {
    ox_value *v = ox_new_value(o, name, dtype);
    ox_finish(o, op, &v, 1);
    return v;
}

void ox_end_node(ox *o, ox_node *n, const char *op) {
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
    int row = type_row(op), first = op && !strcmp(op, "Where");
    cli_dtype dtype = arrlen(o->args) > first && o->args[first] ? o->args[first]->dtype : CLI_F32;
    dtype = row >= 0 && typed[row].truth ? CLI_BOOL : dtype;
    ox_bind(o, n, 0, ox_end(o, op, n->out[0], dtype));
}

// ---- the text ----

// Characters from `at` up to one of `stops` or `size`; `*end` is the place reached.
static int columns(const char *s, ptrdiff_t at, ptrdiff_t size, const char *stops, ptrdiff_t *end) {
    int count = 0;
    for (; at < size && !strchr(stops, s[at]); at++) {
        count += ((unsigned char)s[at] & 0xc0) != 0x80;
    }
    *end = at;
    return count;
}

static void put_dims(ox *o, char **text, int probed, int64_t value) {
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        long long shown = (long long)(i == probed ? value : o->dims[i].value);
        ox_put(text, "%s%s = %lld", i ? OX_COMMA : "dim ", o->dims[i].name, shown);
    }
    if (arrlen(o->dims)) {
        ox_put(text, "\n");
    }
}

void ox_put_type(char **text, cli_dtype dtype, int rank, const int64_t *dims,
                 const char *const *sym) {
    ox_put(text, ": %s[", cli_dtype_name(dtype == CLI_F64 ? CLI_F32 : dtype));
    for (int a = 0; a < rank; a++) {
        ox_put(text, "%s", a ? "," : "");
        if (sym && sym[a]) {
            ox_put(text, "%s", sym[a]);
        } else {
            ox_put(text, "%lld", (long long)dims[a]);
        }
    }
    ox_put(text, "]");
}

const char *ox_free_name(ox *o, const char *letter) {
    const char *name = letter;
    for (int digit = -1; digit < CLI_MAX_RANK; digit++) {
        const char *each = digit < 0 ? name : ox_format(o, "%s%d", name, digit);
        if (shgeti(o->taken, each) >= 0) {
            name = ox_format(o, "%s%s", name, letter);
            digit = -2;
        }
    }
    return name;
}

// Weights in the order of first use: at the end only those of live statements are asked for. True
// when one of them is in the weights file.
static bool put_weights(ox *o, char **text, bool live_only) {
    bool in_file = false;
    for (ptrdiff_t i = 0; i < arrlen(o->values); i++) {
        o->values[i]->declared = false;
    }
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        for (ptrdiff_t k = 0; (s->live || !live_only) && k < arrlen(s->args); k++) {
            ox_value *v = s->args[k];
            if (v && v->known && !v->declared) {
                v->declared = true;
                in_file |= ox_put_constant(o, text, v);
            }
        }
    }
    return in_file;
}

static void put_statement(char **text, const ox_stmt *s) {
    for (ptrdiff_t i = 0; i < arrlen(s->outs); i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        ox_put_name(text, s->outs[i]->name);
    }
    if (!s->op) {
        ox_put(text, "%s\n", s->attrs);
        return;
    }
    ox_put(text, " = %s(", s->op);
    for (ptrdiff_t i = 0; i < arrlen(s->args); i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        if (s->args[i]) {
            ox_put_name(text, s->args[i]->name);
        } else {
            ox_put(text, "_");
        }
    }
    ox_put(text, "%s%s)\n", *s->attrs ? ";" OX_BREAK : "", s->attrs);
}

static void put_outputs(ox *o, char **text, ox_value *want) {
    ox_put(text, "output ");
    for (ptrdiff_t i = 0; !want && i < arrlen(o->outputs); i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        ox_put_name(text, o->outputs[i]->name);
    }
    if (want) {
        ox_put_name(text, want->name);
    }
    ox_put(text, "\n\n");
}

// Lines that are too long are broken where they may be, as the formatter does it.
static char *lay_out(char *marked) {
    enum { WIDTH = 100 };
    char *text = NULL;
    ptrdiff_t size = arrlen(marked);
    for (ptrdiff_t line = 0, end; line < size; line = end + 1) {
        int width = columns(marked, line, size, "\n", &end), column = 0;
        for (ptrdiff_t at = line, stop; at <= end; at = stop + 1) {
            int part = columns(marked, at, end, OX_BREAK OX_BREAK_FIRST, &stop);
            bool first = at > line && marked[at - 1] == *OX_BREAK_FIRST;
            bool breaks = at > line && width > WIDTH && (first || column + 1 + part > WIDTH);
            if (at > line) {
                ox_put(&text, breaks ? "\n    " : " ");
                column = breaks ? 4 : column + 1;
            }
            if (stop > at) {
                memcpy(arraddnptr(text, stop - at), marked + at, (size_t)(stop - at));
            }
            column += part;
        }
        arrput(text, '\n');
    }
    arrfree(marked);
    return text;
}

// With `want` all statements so far and that value as the output, with dim number `probed` at
// `value`; without it the finished model.
char *ox_text(ox *o, ox_value *want, int probed, int64_t value) {
    char *text = NULL;
    ox_put(&text, "ein 1\nmodel %s\n", o->model_name);
    put_dims(o, &text, probed, value);
    char *weights = NULL;
    if (put_weights(o, &weights, !want)) {
        ox_put(&text, "blob W = ");
        ox_put_quoted(&text, o->blob);
        ox_put(&text, "\n");
    }
    ox_put(&text, "\n");
    for (ptrdiff_t i = 0; i < arrlen(o->inputs); i++) {
        const ox_value *v = o->inputs[i];
        ox_put(&text, "input ");
        ox_put_name(&text, v->name);
        ox_put_type(&text, v->dtype, v->rank, v->dims, v->sym);
        ox_put(&text, "\n");
    }
    ox_put(&text, "%.*s", (int)arrlen(weights), arrlen(weights) ? weights : "");
    arrfree(weights);
    put_outputs(o, &text, want);
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        if (want || o->stmts[i]->live) {
            put_statement(&text, o->stmts[i]);
        }
    }
    return lay_out(text);
}

// Statements stand in an order in which every value is made before it is used.
void ox_sweep(ox *o) {
    for (ptrdiff_t i = 0; i < arrlen(o->outputs); i++) {
        o->outputs[i]->live = true;
    }
    for (ptrdiff_t i = arrlen(o->stmts) - 1; i >= 0; i--) {
        ox_stmt *s = o->stmts[i];
        for (ptrdiff_t k = 0; k < arrlen(s->outs); k++) {
            s->live = s->live || s->outs[k]->live;
        }
        for (ptrdiff_t k = 0; s->live && k < arrlen(s->args); k++) {
            if (s->args[k]) {
                s->args[k]->live = true;
            }
        }
    }
}

// ---- shapes ----

static bool ask(ox *o, ox_value *v, int probed, int64_t value, int *rank, int64_t *dims) {
    if (!o->shape_of) {
        return false;
    }
    char *text = ox_text(o, v, probed, value);
    arrput(text, 0);
    bool good = o->shape_of(o->user, text, v->name, dims, rank);
    arrfree(text);
    return good && *rank >= 0 && *rank <= CLI_MAX_RANK;
}

bool ox_shape(ox *o, ox_value *v) {
    const ox_const *c = v->rank < 0 ? ox_known(o, v) : NULL;
    if (c) {
        v->rank = c->rank;
        memcpy(v->dims, c->dims, sizeof v->dims);
    } else if (v->rank < 0) {
        int rank = 0;
        if (!ask(o, v, -1, 0, &rank, v->dims)) {
            return false;
        }
        v->rank = rank;
    }
    return true;
}

void ox_need_shape(ox *o, ox_node *n, ox_value *v) {
    if (!ox_shape(o, v)) {
        char shown[120];
        ox_unsupported(o, n, "the shape of \"%s\" cannot be determined",
                       cli_escape(shown, sizeof shown, v->name));
    }
}

// How the shape of a computed value depends on a batch size is found by asking for it at three more
// values: an axis that grows along a line through all four is that line.
// An axis that two of them move has no such line.
static void probe(ox *o, ox_value *v, int dim, bool *moved) {
    static const int64_t steps[3] = {1, 2, 7};
    int64_t at = o->dims[dim].value, seen[3][CLI_MAX_RANK];
    for (int i = 0; i < 3; i++) {
        int rank = 0;
        if (!ask(o, v, dim, at + steps[i], &rank, seen[i]) || rank != v->rank) {
            return;
        }
    }
    for (int a = 0; a < v->rank; a++) {
        int64_t slope = seen[0][a] - v->dims[a];
        int64_t rest = v->dims[a] - slope * at;
        bool line = seen[1][a] - v->dims[a] == 2 * slope && seen[2][a] - v->dims[a] == 7 * slope;
        bool same = seen[1][a] == v->dims[a] && seen[2][a] == v->dims[a];
        if (!slope && same) {
            continue;
        }
        if (!line || moved[a]) {
            moved[a] = true;
            v->sym[a] = NULL;
            continue;
        }
        moved[a] = true;
        const char *name = o->dims[dim].name;
        const char *factor = slope == 1 ? "" : ox_format(o, "%lld*", (long long)slope);
        v->sym[a] = rest ? ox_format(o, "%s%s%+lld", factor, name, (long long)rest)
                         : ox_format(o, "%s%s", factor, name);
    }
}

void ox_need_sym(ox *o, ox_node *n, ox_value *v) {
    ox_need_shape(o, n, v);
    if (v->has_sym || v->known || !v->maker) {
        return;
    }
    bool moved[CLI_MAX_RANK] = {false};
    v->has_sym = true;
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        if (o->dims[i].batch) {
            probe(o, v, (int)i, moved);
        }
    }
}
