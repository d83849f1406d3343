// onnx_node.c - walks the nodes of a graph and of the functions it calls; attributes, inputs.
#include "onnx.h"

enum { MAX_STEPS = 1 << 18, MAX_SCANNED = 1 << 24 };

static const char *text_of(const char *s) { return s ? s : ""; }

static bool is_default_domain(const char *domain) { return !*domain || !strcmp(domain, "ai.onnx"); }

static int64_t opset_of(const ox_scope *s, const char *domain) {
    for (size_t i = 0; i < s->n_imports; i++) {
        const char *there = text_of(s->imports[i]->domain);
        if (!strcmp(there, domain) || (is_default_domain(there) && is_default_domain(domain))) {
            return s->imports[i]->version;
        }
    }
    return 0;
}

// False when `what` met something unsupported, which ends it by a jump.
static bool attempt(ox *o, void (*what)(ox *, void *), void *argument) {
    jmp_buf here;
    jmp_buf *volatile outer = o->node_fail;
    if (setjmp(here)) {
        o->node_fail = outer;
        return false;
    }
    o->node_fail = &here;
    what(o, argument);
    o->node_fail = outer;
    return true;
}

// ---- attributes ----

static const ox_attr *lookup(const ox_attr *attrs, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (!strcmp(attrs[i].name, name)) {
            return &attrs[i];
        }
    }
    return NULL;
}

bool ox_has(const ox_node *n, const char *name) {
    return lookup(n->attrs, n->n_attrs, name) != NULL;
}

const ox_attr *ox_find(ox *o, ox_node *n, const char *name) {
    for (int i = 0; i < n->n_attrs; i++) {
        if (!strcmp(n->attrs[i].name, name)) {
            if (n->attrs[i].used && i + 1 < n->n_attrs &&
                lookup(n->attrs + i + 1, n->n_attrs - i - 1, name)) {
                ox_die(o, n, "attribute '%s' is there twice", name);
            }
            n->attrs[i].used = true;
            return &n->attrs[i];
        }
    }
    return NULL;
}

static void check_type(ox *o, ox_node *n, const ox_attr *a, int type, bool there) {
    if (a->a->has_type ? (int)a->a->type != type : !there) {
        ox_die(o, n, "attribute '%s' has the wrong type", a->name);
    }
}

int64_t ox_int(ox *o, ox_node *n, const char *name, int64_t otherwise) {
    const ox_attr *a = ox_find(o, n, name);
    if (!a) {
        return otherwise;
    }
    check_type(o, n, a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, a->a->has_i);
    return a->a->has_i ? a->a->i : 0;
}

double ox_float(ox *o, ox_node *n, const char *name, double otherwise) {
    const ox_attr *a = ox_find(o, n, name);
    if (!a) {
        return otherwise;
    }
    check_type(o, n, a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, a->a->has_f);
    double value = a->a->has_f ? (double)a->a->f : 0;
    if (!(value - value == 0)) {
        ox_die(o, n, "attribute '%s' is not a finite number", name);
    }
    return value;
}

const char *ox_string(ox *o, ox_node *n, const char *name, const char *otherwise) {
    const ox_attr *a = ox_find(o, n, name);
    if (!a) {
        return otherwise;
    }
    check_type(o, n, a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, a->a->has_s);
    char *text = ox_alloc(o, a->a->s.len + 1);
    if (a->a->s.len) {
        memcpy(text, a->a->s.data, a->a->s.len);
    }
    return text;
}

bool ox_ints(ox *o, ox_node *n, const char *name, ox_list *list) {
    const ox_attr *a = ox_find(o, n, name);
    *list = (ox_list){0};
    if (!a) {
        return false;
    }
    check_type(o, n, a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, true);
    if (a->a->n_ints > OX_FOLD_LIMIT) {
        ox_die(o, n, "attribute '%s' has %zu numbers", name, a->a->n_ints);
    }
    *list = (ox_list){(int)a->a->n_ints, a->a->ints, NULL};
    return true;
}

ox_list ox_list_of(ox *o, ox_node *n, const char *name, const ox_const *c) {
    if ((c->dtype != CLI_I64 && c->dtype != CLI_I32) || c->rank > 1 || c->count > OX_FOLD_LIMIT) {
        ox_die(o, n, "input '%s' is not a list of int64", name);
    }
    int64_t *v = ox_alloc(o, (size_t)c->count * sizeof *v);
    for (int64_t i = 0; i < c->count; i++) {
        v[i] = ox_geti(c, i);
    }
    ox_list list = {(int)c->count, v, NULL};
    if (c->sym) {
        const char **sym = ox_alloc(o, (size_t)c->count * sizeof *sym);
        for (int64_t i = 0; i < c->count; i++) {
            sym[i] = ox_sym(c, i);
        }
        list.sym = sym;
    }
    return list;
}

bool ox_int_input(ox *o, ox_node *n, const char *name, int input, ox_list *list) {
    if (ox_ints(o, n, name, list)) {
        return true;
    }
    ox_value *v = ox_opt(o, n, input);
    if (!v) {
        return false;
    }
    const ox_const *c = ox_known(o, v);
    if (!c) {
        ox_unsupported(o, n, "input '%s' of '%s' is computed at run time", name, n->op);
    }
    *list = ox_list_of(o, n, name, c);
    return true;
}

// ---- inputs and outputs ----

static void check_lost(ox *o, ox_node *n, ox_value *v) {
    if (v && v->lost) {
        if (v->why) {
            ox_unsupported(o, n, "%s", v->why);
        }
        ox_lose(o);
    }
}

ox_value *ox_opt(ox *o, ox_node *n, int input) {
    ox_value *v = input < n->n_in ? n->in[input] : NULL;
    check_lost(o, n, v);
    return v;
}

ox_value *ox_in(ox *o, ox_node *n, int input) {
    ox_value *v = ox_opt(o, n, input);
    if (!v) {
        ox_die(o, n, "input %d is missing", input);
    }
    return v;
}

bool ox_wants(const ox_node *n, int output) { return output < n->n_out && n->out[output]; }

int64_t ox_axis(ox *o, ox_node *n, int64_t axis, int rank) {
    if (axis < -rank || axis >= rank) {
        ox_die(o, n, "axis %lld is outside a tensor of %d axes", (long long)axis, rank);
    }
    return axis < 0 ? axis + rank : axis;
}

// The value of a name, here or in a graph around this one: NULL for an omitted input of a function.
bool ox_look_up(ox_scope *s, const char *name, ox_value **v) {
    for (; s; s = s->outer) {
        ptrdiff_t at = shgeti(s->values, name);
        if (at >= 0) {
            *v = s->values[at].value;
            return true;
        }
    }
    return false;
}

static void resolve_inputs(ox *o, ox_node *n) {
    n->n_in = (int)n->p->n_input;
    n->in = ox_alloc(o, n->p->n_input * sizeof *n->in);
    for (int i = 0; i < n->n_in; i++) {
        const char *name = text_of(n->p->input[i]);
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
        const char *name = text_of(n->p->output[i]);
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
    return ox_format(o, "%s\n%s\n%s", is_default_domain(domain) ? "" : domain, name, overload);
}

// Default values (field 11) and overloads (field 13) are newer than the schema this is built with
// and stand among the unknown fields.
void ox_load_functions(ox *o) {
    enum { DEFAULTS = 11, OVERLOAD = 13 };
    for (size_t i = 0; i < o->model->n_functions; i++) {
        ox_function f = {.f = o->model->functions[i]};
        f.key = function_key(o, text_of(f.f->domain), text_of(f.f->name),
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
        const char *name = text_of(f->defaults[i]->name);
        if (!lookup(n->attrs, n->n_attrs, name)) {
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
        const char *name = text_of(a->name);
        const char *ref = text_of(a->ref_attr_name);
        if (*ref) {
            const ox_attr *given = lookup(n->scope->attrs, n->scope->n_attrs, ref);
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
    const char *why = is_default_domain(n->domain) ? ox_reason(n->op) : NULL;
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

static void convert_operator(ox *o, ox_node *n) {
    const ox_row *row = is_default_domain(n->domain) ? ox_row_of(n->op) : NULL;
    bool folds = is_default_domain(n->domain) && ox_folds(n->op);
    if (!row && !folds) {
        refuse_operator(o, n, NULL);
    }
    if (!n->opset) {
        ox_die(o, n, "the model imports no operator set of domain '%s'", n->domain);
    }
    for (int i = 0; i < n->n_in; i++) {
        check_lost(o, n, n->in[i]);
    }
    if (ox_fold(o, n)) {
        check_attributes(o, n);
        return;
    }
    if (!row) {
        refuse_operator(o, n, " on values computed at run time");
    }
    if (n->n_in < row->min_in || (row->max_in >= 0 && n->n_in > row->max_in)) {
        ox_die(o, n, "operator '%s' with %d inputs", n->op, n->n_in);
    }
    row->convert(o, n);
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

void ox_step(ox *o, ox_node *n) {
    if (++o->steps > MAX_STEPS) {
        ox_die(o, n, "the model has more than %d nodes", MAX_STEPS);
    }
}

static void visit(ox *o, ox_node *n) {
    ox_step(o, n);
    const ox_node *outer = o->node;
    o->node = n;
    if (!attempt(o, convert_node, n)) {
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
            shput(*wanted, g->output[i]->name, 1);
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
        ox_die(o, NULL, "the functions and rounds unroll to more than %d nodes", MAX_STEPS);
    }
    for (size_t i = count; i-- > 0;) {
        for (size_t k = 0; k < nodes[i]->n_output; k++) {
            const char *name = text_of(nodes[i]->output[k]);
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
            n->op = text_of(nodes[i]->op_type);
            n->domain = text_of(nodes[i]->domain);
            n->opset = opset_of(s, n->domain);
            name_outputs(o, n);
            visit(o, n);
        }
    }
}

// ---- the graph ----

// `?` and sizes below 1 say nothing, not even that two axes agree.
static bool has_param(const Onnx__TensorShapeProto__Dimension *d) {
    return d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && d->dim_param &&
           d->dim_param[strspn(d->dim_param, "?-* 0123456789")];
}

static const char *dim_name(ox *o, const char *param) {
    char *name = ox_format(o, "%s%s", *param >= '0' && *param <= '9' ? "d" : "", param);
    for (char *s = name; *s; s++) {
        bool good = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                    (*s >= '0' && *s <= '9') || *s == '_';
        *s = good ? *s : '_';
    }
    for (;;) {
        char *text = NULL;
        ox_put_name(&text, name);
        bool quoted = text[0] == '"';
        arrfree(text);
        if (!quoted && shgeti(o->taken, name) < 0) {
            shput(o->taken, name, 1);
            return name;
        }
        name = ox_format(o, "%s_", name);
    }
}

static ox_dim *find_dim(ox *o, const char *param) {
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        if (!strcmp(o->dims[i].param, param)) {
            return &o->dims[i];
        }
    }
    ox_dim d = {.param = param, .name = dim_name(o, param), .value = 1};
    for (ptrdiff_t i = 0; i < arrlen(o->pins); i++) {
        if (!strcmp(o->pins[i].name, param) || !strcmp(o->pins[i].name, d.name)) {
            o->pins[i].used = d.pinned = true;
            d.value = o->pins[i].value;
        }
    }
    arrput(o->dims, d);
    return &o->dims[arrlen(o->dims) - 1];
}

static void declare_input(ox *o, void *declaration) {
    const Onnx__ValueInfoProto *info = declaration;
    const char *name = text_of(info->name);
    char shown[120];
    cli_escape(shown, sizeof shown, name);
    const Onnx__TypeProto *type = info->type;
    ox_value *v = ox_new_value(o, name, CLI_F32);
    v->lost = true;  // until all of it is known to be good
    shput(o->main->values, (char *)(uintptr_t)name, v);
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type) {
        ox_unsupported(o, NULL, "input \"%s\" is not a tensor", shown);
    }
    const Onnx__TypeProto__Tensor *t = type->tensor_type;
    cli_dtype dtype = ox_dtype(t->elem_type);
    v->dtype = dtype;
    arrput(o->inputs, v);
    if (dtype == CLI_NONE || dtype == CLI_F64 || dtype == CLI_U8 || dtype == CLI_U16 ||
        dtype == CLI_I16 || dtype == CLI_U32 || dtype == CLI_U64) {
        ox_unsupported(o, NULL, "input \"%s\" has the unsupported element type %s", shown,
                       ox_type_name(t->elem_type));
    }
    if (!t->shape || t->shape->n_dim > CLI_MAX_RANK) {
        ox_unsupported(o, NULL, "input \"%s\" has %s", shown,
                       t->shape ? "too many axes" : "no shape");
    }
    v->rank = (int)t->shape->n_dim;
    v->has_sym = true;
    for (int a = 0; a < v->rank; a++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[a];
        if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            d->dim_value >= 0) {  // -1 is one exporter's word for unknown
            v->dims[a] = d->dim_value;
            if (d->dim_value < 1 || d->dim_value > OX_MAX_DIM) {
                ox_unsupported(o, NULL, "input \"%s\": axis %d has size %lld", shown, a,
                               (long long)d->dim_value);
            }
            continue;
        }
        ox_dim *dim = find_dim(o, has_param(d) ? d->dim_param : ox_format(o, "%s_%d", name, a));
        dim->batch = dim->batch || a == 0;
        v->dims[a] = dim->value;
        v->sym[a] = dim->name;
    }
    v->lost = false;
}

static void declare_inputs(ox *o, const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_input; i++) {
        // Otherwise it is an initializer with a declaration, or given by --const.
        if (shgeti(o->main->values, text_of(g->input[i]->name)) < 0) {
            attempt(o, declare_input, g->input[i]);
        }
    }
}

static void check_dims(ox *o) {
    char *missing = NULL;
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        const ox_dim *d = &o->dims[i];
        if (!d->pinned && !d->batch) {
            ox_put(&missing, " --dim %s=N", d->name);
        } else if (!d->pinned) {
            ox_note(o, "dimension %s has no value: 1 is taken; --dim %s=N sets it", d->name,
                    d->name);
        }
    }
    if (missing) {
        ox_die(o, NULL, "sizes are not fixed: give%s", ox_take(o, &missing));
    }
}

static void declare_initializers(ox *o, const Onnx__GraphProto *g) {
    for (ptrdiff_t i = 0; i < arrlen(o->givens); i++) {
        ox_value *v = ox_new_value(o, o->givens[i].name, o->givens[i].tensor.dtype);
        v->known = ox_from_tensor(o, &o->givens[i].tensor);
        shput(o->main->values, o->givens[i].name, v);
    }
    for (size_t i = 0; i < g->n_initializer; i++) {
        const ox_tensor *t = g->initializer[i];
        ptrdiff_t at = shgeti(o->main->values, text_of(t->name));
        if (at >= 0 && o->main->values[at].value->initializer) {
            char shown[120];
            ox_die(o, NULL, "initializer \"%s\" is there twice",
                   cli_escape(shown, sizeof shown, text_of(t->name)));
        }
        if (at < 0) {
            ox_value *v = ox_new_value(o, text_of(t->name), ox_dtype(t->data_type));
            v->initializer = t;
            shput(o->main->values, (char *)(uintptr_t)v->name, v);
        }
    }
}

// Every name of the graph, so that names made up here are new. --const must name one from outside.
static void reserve_names(ox *o, const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_input; i++) {
        shput(o->taken, (char *)(uintptr_t)text_of(g->input[i]->name), 1);
    }
    for (size_t i = 0; i < g->n_initializer; i++) {
        shput(o->taken, (char *)(uintptr_t)text_of(g->initializer[i]->name), 1);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->givens); i++) {
        if (shgeti(o->taken, o->givens[i].name) < 0) {
            char shown[120];
            ox_die(o, NULL, "--const: the model has no input or initializer \"%s\"",
                   cli_escape(shown, sizeof shown, o->givens[i].name));
        }
    }
    for (size_t i = 0; i < g->n_node; i++) {
        for (size_t k = 0; k < g->node[i]->n_output; k++) {
            shput(o->taken, g->node[i]->output[k], 1);
        }
    }
}

// An output that is a constant becomes a statement over a weight of another name.
static void take_output(ox *o, void *output_name) {
    const char *name = output_name;
    char shown[120];
    cli_escape(shown, sizeof shown, name);
    ptrdiff_t at = shgeti(o->main->values, name);
    if (at < 0) {
        ox_die(o, NULL, "output \"%s\" is not defined", shown);
    }
    ox_value *v = o->main->values[at].value;
    if (v->lost) {
        if (v->why) {
            ox_unsupported(o, NULL, "output \"%s\": %s", shown, v->why);
        }
        return;
    }
    for (ptrdiff_t i = 0; i < arrlen(o->inputs); i++) {
        if (o->inputs[i] == v) {
            ox_unsupported(o, NULL, "output \"%s\" is an input: nothing computes it", shown);
        }
    }
    if (ox_known(o, v)) {
        v->name = ox_fresh(o, name, ".value");
        ox_begin(o);
        ox_arg(o, v);
        v = ox_end(o, "Identity", name, v->dtype);
        o->main->values[at].value = v;
    }
    arrput(o->outputs, v);
}

// Asks for the shape of an output, which checks the whole way to it, and compares it with what the
// file says. Files are often wrong there, so that is no error.
static void check_output(ox *o, void *output) {
    ox_value *v = output;
    const Onnx__GraphProto *g = o->model->graph;
    const Onnx__TensorShapeProto *said = NULL;
    ox_need_shape(o, NULL, v);
    for (size_t i = 0; i < g->n_output; i++) {
        const Onnx__TypeProto *type = g->output[i]->type;
        if (!strcmp(text_of(g->output[i]->name), v->name) && type &&
            type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && type->tensor_type) {
            said = type->tensor_type->shape;
        }
    }
    bool differs = said && said->n_dim != (size_t)v->rank;
    for (int a = 0; said && !differs && a < v->rank; a++) {
        const Onnx__TensorShapeProto__Dimension *d = said->dim[a];
        differs = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                  d->dim_value > 0 && d->dim_value != v->dims[a];
    }
    if (differs) {
        char shown[120];
        ox_note(o, "output \"%s\" does not have the shape that the file declares",
                cli_escape(shown, sizeof shown, v->name));
    }
}

void ox_graph(ox *o, const Onnx__GraphProto *g) {
    reserve_names(o, g);
    declare_initializers(o, g);
    declare_inputs(o, g);
    check_dims(o);
    ox_index *wanted = NULL;
    size_t ends = (size_t)arrlen(o->ends);
    for (size_t i = 0; i < (ends ? ends : g->n_output); i++) {
        const char *name = ends ? o->ends[i] : text_of(g->output[i]->name);
        if (shgeti(o->wanted, name) < 0) {
            shput(o->wanted, (char *)(uintptr_t)name, 1);
            shput(wanted, (char *)(uintptr_t)name, 1);
        }
    }
    ox_walk(o, o->main, g->node, g->n_node, wanted);
    o->node = NULL;
    for (ptrdiff_t i = 0; i < shlen(o->wanted); i++) {
        attempt(o, take_output, o->wanted[i].key);
    }
    if (!shlen(o->wanted)) {
        ox_die(o, NULL, "the graph has no outputs");
    }
    for (ptrdiff_t i = 0; o->shape_of && !arrlen(o->refusals) && i < arrlen(o->outputs); i++) {
        attempt(o, check_output, o->outputs[i]);
    }
}
