// onnx_value.c - values, the statements that make them, and the shapes that these have.
#include "onnx.h"

// Limits of the language.
enum { MAX_NAME = 1000 };

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
           dtype == CLI_U8 || dtype == CLI_I32 || dtype == CLI_I64 || dtype == CLI_BOOL ||
           dtype == CLI_F64;
}

// A number of a shape that counts rows picked at run time has a name that no text may have.
static void check_sym(ox *o, const char *sym) {
    if (sym && strchr(sym, '?')) {
        ox_unsupported(o, NULL, "a size computed from how many rows are picked at run time");
    }
}

void ox_arg(ox *o, ox_value *v) {
    if (v) {
        char shown[120];
        const ox_const *c = ox_known(o, v);
        for (int64_t i = 0; c && c->sym && i < (c->splat ? 1 : c->count); i++) {
            check_sym(o, c->sym[i]);
        }
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
        check_sym(o, sym);
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
    {"Div", NUMBERS, false},
    {"Mod", NUMBERS, false},
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
    {"TopK", NUMBERS, false},
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

bool ox_is_truth(const char *op) {
    int row = type_row(op);
    return row >= 0 && typed[row].truth;
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

// What is computed from doubles is f32, as their constants are then.
ox_value *ox_end(ox *o, const char *op, const char *name, cli_dtype dtype) {
    ox_value *v = ox_new_value(o, name, dtype == CLI_F64 ? CLI_F32 : dtype);
    ox_finish(o, op, &v, 1);
    return v;
}

// ---- shapes ----

static bool ask(ox *o, ox_value *v, int probed, int64_t value, int *rank, int64_t *dims) {
    if (!o->shape_of) {
        return false;
    }
    char *text = ox_text(o, v, probed, value);
    arrput(text, 0);
    bool good = o->shape_of(o->user, text, v->name, probed >= 0 || o->quiet, dims, rank);
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
            v->bent = true;
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
            moved[a] = v->bent = true;
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
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        if (o->dims[i].batch && !o->dims[i].fixed) {
            probe(o, v, (int)i, moved);
        }
    }
    v->has_sym = true;
}
