// onnx_walk.c - walks the nodes of a graph, of the graphs in it, and of the functions it calls.
#include "onnx.h"

enum { MAX_SCANNED = 1 << 24 };

static int64_t opset_of(const ox_scope *s, const char *domain) {
    for (size_t i = 0; i < s->n_imports; i++) {
        const char *there = ox_or_empty(s->imports[i]->domain);
        if (!strcmp(there, domain) || (ox_is_standard(there) && ox_is_standard(domain))) {
            return s->imports[i]->version;
        }
    }
    return 0;
}

static void resolve_inputs(ox *o, ox_node *n) {
    n->n_in = (int)n->p->n_input;
    n->in = ox_alloc(o, n->p->n_input * sizeof *n->in);
    for (int i = 0; i < n->n_in; i++) {
        const char *name = ox_or_empty(n->p->input[i]);
        if (!*name) {
            continue;
        }
        if (!ox_look_up(n->scope, name, &n->in[i])) {
            char shown[120];
            ox_die(o, n, "input \"%s\" is not defined before this node",
                   cli_escape(shown, sizeof shown, name));
        }
    }
}

static void name_outputs(ox *o, ox_node *n) {
    ox_scope *s = n->scope;
    n->n_out = (int)n->p->n_output;
    n->out = ox_alloc(o, n->p->n_output * sizeof *n->out);
    n->out_onnx = ox_alloc(o, n->p->n_output * sizeof *n->out_onnx);
    for (int i = 0; i < n->n_out; i++) {
        const char *name = ox_or_empty(n->p->output[i]);
        ptrdiff_t at = *name ? shgeti(s->results, name) : -1;
        n->out_onnx[i] = name;
        if (!*name) {
            n->out[i] = NULL;
        } else if (at >= 0) {
            n->out[i] = s->results[at].value;
        } else {
            n->out[i] = s->parent ? ox_fresh(o, s->prefix, name) : name;
        }
    }
}

// Outputs that are still without a value after a failure. A name that is there already cannot be
// given again; the failure is reported in any case.
static void lose_outputs(ox *o, ox_node *n, const char *why) {
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i] && shgeti(n->scope->values, n->out_onnx[i]) < 0) {
            ox_value *v = ox_new_value(o, n->out[i], CLI_F32);
            v->lost = true;
            v->why = why ? ox_format(o, "output %d of '%s' %s", i, n->op, why) : NULL;
            shput(n->scope->values, (char *)(uintptr_t)n->out_onnx[i], v);
        }
    }
}

// ---- functions ----

static const char *unknown_string(ox *o, const ProtobufCMessage *m, unsigned tag) {
    size_t at = 0, size;
    const uint8_t *data;
    return ox_unknown(m, tag, &at, &data, &size)
               ? ox_format(o, "%.*s", (int)(size < 4096 ? size : 4096), (const char *)data)
               : "";
}

static const char *function_key(ox *o, const char *domain, const char *name, const char *overload) {
    return ox_format(o, "%s\n%s\n%s", ox_is_standard(domain) ? "" : domain, name, overload);
}

// Default values (field 11) and overloads (field 13) are newer than the schema this is built with
// and stand among the unknown fields.
void ox_load_functions(ox *o) {
    enum { DEFAULTS = 11, OVERLOAD = 13 };
    for (size_t i = 0; i < o->model->n_functions; i++) {
        ox_function f = {.f = o->model->functions[i]};
        f.key = function_key(o, ox_or_empty(f.f->domain), ox_or_empty(f.f->name),
                             unknown_string(o, &f.f->base, OVERLOAD));
        size_t at = 0, size;
        const uint8_t *data;
        arrput(o->functions, f);
        ox_function *here = &o->functions[arrlen(o->functions) - 1];
        while (ox_unknown(&f.f->base, DEFAULTS, &at, &data, &size)) {
            if (!ox_scan(data, size, &onnx__attribute_proto__descriptor, &o->error)) {
                ox_die(o, NULL, "%s (in a default of a function)", o->error.text);
            }
            ox_attribute *a = onnx__attribute_proto__unpack(&ox_allocator, size, data);
            if (!a) {
                ox_die(o, NULL, "a default of a function cannot be read");
            }
            arrput(here->defaults, a);
        }
    }
}

static ox_function *find_function(ox *o, const ox_node *n) {
    enum { OVERLOAD = 8 };
    if (!arrlen(o->functions)) {
        return NULL;
    }
    const char *key = function_key(o, n->domain, n->op, unknown_string(o, &n->p->base, OVERLOAD));
    for (ptrdiff_t i = 0; i < arrlen(o->functions); i++) {
        if (!strcmp(o->functions[i].key, key)) {
            return &o->functions[i];
        }
    }
    return NULL;
}

static void bind_call(ox *o, ox_node *n, const Onnx__FunctionProto *f, ox_scope *s) {
    if (n->p->n_input > f->n_input || n->p->n_output > f->n_output) {
        ox_die(o, n, "calls a function of %zu inputs and %zu outputs with %zu and %zu", f->n_input,
               f->n_output, n->p->n_input, n->p->n_output);
    }
    for (size_t i = 0; i < f->n_input; i++) {
        ox_value *v = (int)i < n->n_in ? n->in[i] : NULL;
        shput(s->values, f->input[i], v);
    }
    for (size_t i = 0; i < f->n_output; i++) {
        const char *name = ox_wants(n, (int)i) ? n->out[i] : NULL;
        if (name) {
            shput(s->results, f->output[i], name);
        }
    }
}

static void bind_attributes(ox *o, ox_node *n, ox_function *f, ox_scope *s) {
    int defaults = (int)arrlen(f->defaults);
    ox_attr *attrs = ox_alloc(o, (size_t)(n->n_attrs + defaults) * sizeof *attrs);
    for (int i = 0; i < n->n_attrs; i++) {
        n->attrs[i].used = true;
        attrs[s->n_attrs++] = n->attrs[i];
    }
    for (int i = 0; i < defaults; i++) {
        const char *name = ox_or_empty(f->defaults[i]->name);
        if (!ox_attr_of(n->attrs, n->n_attrs, name)) {
            attrs[s->n_attrs++] = (ox_attr){name, f->defaults[i], true};
        }
    }
    s->attrs = attrs;
}

static void call_function(ox *o, ox_node *n, ox_function *f) {
    if (f->active) {
        ox_die(o, n, "function '%s' calls itself", n->op);
    }
    if (n->scope->depth == OX_MAX_CALLS) {
        ox_die(o, n, "functions are nested deeper than %d", OX_MAX_CALLS);
    }
    ox_scope *s = ox_alloc(o, sizeof *s);
    const char *label = n->p->name && *n->p->name ? n->p->name : n->n_out ? n->out_onnx[0] : n->op;
    s->parent = n->scope;
    s->depth = n->scope->depth + 1;
    s->prefix = ox_format(o, "%s%s/", n->scope->prefix, label);
    s->imports = f->f->n_opset_import ? f->f->opset_import : n->scope->imports;
    s->n_imports = f->f->n_opset_import ? f->f->n_opset_import : n->scope->n_imports;
    arrput(o->scopes, s);
    bind_call(o, n, f->f, s);
    bind_attributes(o, n, f, s);
    ox_index *wanted = NULL;
    for (ptrdiff_t i = 0; i < shlen(s->results); i++) {
        shput(wanted, s->results[i].key, 1);
    }
    f->active = true;
    ox_walk(o, s, f->f->node, f->f->n_node, wanted);
    f->active = false;
    for (size_t i = 0; i < n->p->n_output; i++) {
        ptrdiff_t at = ox_wants(n, (int)i) ? shgeti(s->values, f->f->output[i]) : 0;
        if (at < 0 || (ox_wants(n, (int)i) && !s->values[at].value)) {
            ox_die(o, n, "the function does not define its output %zu", i);
        }
        if (ox_wants(n, (int)i)) {
            ox_bind(o, n, (int)i, s->values[at].value);
        }
    }
}

// ---- nodes ----

static void resolve_attributes(ox *o, ox_node *n) {
    n->attrs = ox_alloc(o, n->p->n_attribute * sizeof *n->attrs);
    for (size_t i = 0; i < n->p->n_attribute; i++) {
        const ox_attribute *a = n->p->attribute[i];
        const char *name = ox_or_empty(a->name);
        const char *ref = ox_or_empty(a->ref_attr_name);
        if (*ref) {
            const ox_attr *given = ox_attr_of(n->scope->attrs, n->scope->n_attrs, ref);
            if (!given) {
                continue;
            }
            a = given->a;
        }
        if (a->n_graphs || (a->g && !ox_has_graph(n->op))) {
            ox_unsupported(o, n,
                           "unsupported operator '%s' (domain '%s', opset %lld): it has a "
                           "subgraph",
                           n->op, n->domain, (long long)n->opset);
        }
        n->attrs[n->n_attrs++] = (ox_attr){name, a, false};
    }
}

static void refuse_operator(ox *o, ox_node *n, const char *reason) {
    bool own = ox_is_standard(n->domain) || ox_is_learning(n->domain);
    const char *why = own ? ox_reason(n->op)
                      : ox_is_runtime(n->domain)
                          ? "of onnxruntime's own operators those of quantised models are read; "
                            "export without its optimizations"
                          : "only ONNX's own operators are read; export without a "
                            "runtime's optimizations";
    const char *near = reason || why ? NULL : ox_nearest(n->op);
    char op[80], domain[80];
    ox_unsupported(o, n, "unsupported operator '%s' (domain '%s', opset %lld)%s%s%s%s%s%s",
                   cli_escape(op, sizeof op, n->op), cli_escape(domain, sizeof domain, n->domain),
                   (long long)n->opset, reason ? reason : "", why ? ": " : "", why ? why : "",
                   near ? "; nearest is '" : "", near ? near : "", near ? "'" : "");
}

static void check_attributes(ox *o, ox_node *n) {
    for (int i = 0; i < n->n_attrs; i++) {
        if (!n->attrs[i].used) {
            char shown[80];
            ox_unsupported(o, n, "unsupported attribute '%s' of operator '%s' (opset %lld)",
                           cli_escape(shown, sizeof shown, n->attrs[i].name), n->op,
                           (long long)n->opset);
        }
    }
}

// Few operators are exact on words: the others would leave their range.
static void check_words(ox *o, ox_node *n) {
    static const char *const exact[] = {"Cast",       "CastLike",  "Identity",  "BitShift",
                                        "BitwiseAnd", "BitwiseOr", "BitwiseXor"};
    bool any = false;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        any = any || !strcmp(n->op, exact[i]);
    }
    for (int i = 0; !any && i < n->n_in; i++) {
        if (n->in[i] && n->in[i]->words) {
            ox_unsupported(o, n, "operator '%s' on uint32 computed at run time", n->op);
        }
    }
}

static void check_inputs(ox *o, ox_node *n, const ox_row *row) {
    if (n->n_in < row->min_in || (row->max_in >= 0 && n->n_in > row->max_in)) {
        ox_die(o, n, "operator '%s' with %d inputs", n->op, n->n_in);
    }
}

// What is known folds; everything else is its operator's.
static void convert_by_table(ox *o, ox_node *n) {
    const ox_row *row = ox_row_of(n->domain, n->op);
    if (ox_fold(o, n)) {
        return;
    }
    if (!row) {
        refuse_operator(o, n, " on values computed at run time");
    }
    check_inputs(o, n, row);
    row->convert(o, n);
}

static void convert_operator(ox *o, ox_node *n) {
    const ox_row *row = ox_row_of(n->domain, n->op);
    bool folds = ox_is_standard(n->domain) && ox_folds(n->op);
    if (!row && !folds) {
        refuse_operator(o, n, NULL);
    }
    if (!n->opset) {
        ox_die(o, n, "the model imports no operator set of domain '%s'", n->domain);
    }
    for (int i = 0; i < n->n_in; i++) {
        ox_check_lost(o, n, n->in[i]);
    }
    check_words(o, n);
    if (ox_is_picked(n)) {
        check_inputs(o, n, row ? row : &(ox_row){n->op, 1, -1, NULL});
        ox_convert_picked(o, n, convert_by_table);
    } else {
        convert_by_table(o, n);
    }
    check_attributes(o, n);
    lose_outputs(o, n, "is not supported");
}

static void convert_node(ox *o, void *node) {
    ox_node *n = node;
    resolve_attributes(o, n);
    resolve_inputs(o, n);
    ox_function *f = find_function(o, n);
    if (f) {
        call_function(o, n, f);
    } else {
        convert_operator(o, n);
    }
}

static void visit(ox *o, ox_node *n) {
    ox_step(o, n);
    const ox_node *outer = o->node;
    o->node = n;
    if (!ox_attempt(o, convert_node, n)) {
        lose_outputs(o, n, NULL);
    }
    o->node = outer;
}

// What a node reads, its graphs among it: any name in there may be one from outside.
static void want_inputs(ox *o, const ox_proto *p, ox_index **wanted) {
    for (size_t k = 0; k < p->n_input; k++) {
        shput(*wanted, p->input[k], 1);
    }
    for (size_t a = 0; a < p->n_attribute; a++) {
        const Onnx__GraphProto *g = p->attribute[a]->g;
        for (size_t i = 0; g && i < g->n_output; i++) {
            shput(*wanted, (char *)(uintptr_t)ox_or_empty(g->output[i]->name), 1);
        }
        for (size_t i = 0; g && i < g->n_node; i++) {
            o->scanned++;
            want_inputs(o, g->node[i], wanted);
        }
    }
}

// Visits the nodes that `wanted` needs (nodes are sorted, so one pass from the end finds them) and
// frees `wanted`.
void ox_walk(ox *o, ox_scope *s, ox_proto *const *nodes, size_t count, ox_index *wanted) {
    bool *needed = ox_alloc(o, count);
    o->scanned += (int64_t)count;
    if (o->scanned > MAX_SCANNED) {
        ox_die(o, NULL, "the functions and rounds unroll to more than %d nodes", OX_MAX_STEPS);
    }
    for (size_t i = count; i-- > 0;) {
        for (size_t k = 0; k < nodes[i]->n_output; k++) {
            const char *name = ox_or_empty(nodes[i]->output[k]);
            needed[i] = needed[i] || (*name && shgeti(wanted, name) >= 0);
        }
        if (needed[i]) {
            want_inputs(o, nodes[i], &wanted);
        }
    }
    shfree(wanted);
    for (size_t i = 0; i < count; i++) {
        if (needed[i]) {
            ox_node *n = ox_alloc(o, sizeof *n);
            n->scope = s;
            n->p = nodes[i];
            n->op = ox_or_empty(nodes[i]->op_type);
            n->domain = ox_or_empty(nodes[i]->domain);
            n->opset = opset_of(s, n->domain);
            name_outputs(o, n);
            visit(o, n);
        }
    }
}
