// onnx_graph.c - the import of a model: its inputs and weights, its nodes, its outputs, and what
// these need.
#include "onnx.h"

// ---- declarations ----

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
    ox_pin *pin = NULL;
    for (ptrdiff_t i = 0; i < arrlen(o->pins); i++) {
        bool exact = !strcmp(o->pins[i].name, param);
        pin = exact || (!pin && !strcmp(o->pins[i].name, d.name)) ? &o->pins[i] : pin;
        if (exact) {
            break;
        }
    }
    if (pin) {
        pin->used = true;
        d.pinned = pin->given;
        d.fixed = pin->fixed;
        d.value = pin->value;
    }
    arrput(o->dims, d);
    return &o->dims[arrlen(o->dims) - 1];
}

static void declare_input(ox *o, void *declaration) {
    const Onnx__ValueInfoProto *info = declaration;
    const char *name = ox_or_empty(info->name);
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
    if (dtype == CLI_NONE || dtype == CLI_F64 || dtype == CLI_U16 || dtype == CLI_I16 ||
        dtype == CLI_U32 || dtype == CLI_U64) {
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
        v->sym[a] = dim->fixed ? NULL : dim->name;
    }
    v->lost = false;
}

// --const's values have the rank of the input, and those of its sizes that are numbers.
static void check_given(ox *o, const Onnx__ValueInfoProto *info, const ox_given *given) {
    const Onnx__TypeProto *type = info->type;
    bool tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    const Onnx__TensorShapeProto *shape =
        tensor && type->tensor_type ? type->tensor_type->shape : NULL;
    char shown[120];
    cli_escape(shown, sizeof shown, given->name);
    if (shape && shape->n_dim != (size_t)given->tensor.rank) {
        ox_die(o, NULL, "--const \"%s\": the values have rank %d, the input has %zu", shown,
               given->tensor.rank, shape->n_dim);
    }
    for (size_t a = 0; shape && a < shape->n_dim; a++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[a];
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (number && d->dim_value > 0 && d->dim_value != given->tensor.dims[a]) {
            ox_die(o, NULL,
                   "--const \"%s\": axis %zu of the values has size %lld, of the input %lld", shown,
                   a, (long long)given->tensor.dims[a], (long long)d->dim_value);
        }
    }
}

static void declare_inputs(ox *o, const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_input; i++) {
        for (ptrdiff_t k = 0; k < arrlen(o->givens); k++) {
            if (!strcmp(o->givens[k].name, ox_or_empty(g->input[i]->name))) {
                check_given(o, g->input[i], &o->givens[k]);
            }
        }
        // Otherwise it is an initializer with a declaration, or given by --const.
        if (shgeti(o->main->values, ox_or_empty(g->input[i]->name)) < 0) {
            ox_attempt(o, declare_input, g->input[i]);
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
        ptrdiff_t at = shgeti(o->main->values, ox_or_empty(t->name));
        if (at >= 0 && o->main->values[at].value->initializer) {
            char shown[120];
            ox_die(o, NULL, "initializer \"%s\" is there twice",
                   cli_escape(shown, sizeof shown, ox_or_empty(t->name)));
        }
        if (at < 0) {
            int bits;
            ox_value *v = ox_new_value(o, ox_or_empty(t->name), ox_stored(t->data_type, &bits));
            v->initializer = t;
            shput(o->main->values, (char *)(uintptr_t)v->name, v);
        }
    }
}

// Every name of the graph, so that names made up here are new. --const must name one from outside.
static void reserve_names(ox *o, const Onnx__GraphProto *g) {
    for (size_t i = 0; i < g->n_input; i++) {
        shput(o->taken, (char *)(uintptr_t)ox_or_empty(g->input[i]->name), 1);
    }
    for (size_t i = 0; i < g->n_initializer; i++) {
        shput(o->taken, (char *)(uintptr_t)ox_or_empty(g->initializer[i]->name), 1);
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

// ---- outputs ----

// An output that is a constant becomes a statement over a weight of another name.
static void take_output(ox *o, void *output_name) {
    const char *name = output_name;
    char shown[120];
    cli_escape(shown, sizeof shown, name);
    ptrdiff_t at = shgeti(o->main->values, name);
    if (at < 0) {
        ox_die(o, NULL, "output \"%s\" is not defined", shown);
    }
    ptrdiff_t shown_at = shgeti(o->shown, name);
    ox_value *v = shown_at >= 0 ? o->shown[shown_at].value : o->main->values[at].value;
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
        if (!strcmp(ox_or_empty(g->output[i]->name), v->name) && type &&
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

static void import_graph(ox *o, const Onnx__GraphProto *g) {
    reserve_names(o, g);
    declare_initializers(o, g);
    declare_inputs(o, g);
    check_dims(o);
    ox_index *wanted = NULL;
    size_t ends = (size_t)arrlen(o->ends);
    for (size_t i = 0; i < (ends ? ends : g->n_output); i++) {
        const char *name = ends ? o->ends[i] : ox_or_empty(g->output[i]->name);
        if (shgeti(o->wanted, name) < 0) {
            shput(o->wanted, (char *)(uintptr_t)name, 1);
            shput(wanted, (char *)(uintptr_t)name, 1);
        }
    }
    ox_walk(o, o->main, g->node, g->n_node, wanted);
    o->node = NULL;
    for (ptrdiff_t i = 0; i < shlen(o->wanted); i++) {
        ox_attempt(o, take_output, o->wanted[i].key);
    }
    if (!shlen(o->wanted)) {
        ox_die(o, NULL, "the graph has no outputs");
    }
    for (ptrdiff_t i = 0; o->shape_of && !arrlen(o->refusals) && i < arrlen(o->outputs); i++) {
        ox_attempt(o, check_output, o->outputs[i]);
    }
}

// Once for all nodes, of which the first are named.
static void note_nodes(ox *o, const ox_named *nodes, const char *what) {
    enum { NAMED = sizeof nodes->first / sizeof *nodes->first };
    char *text = NULL;
    for (int i = 0; i < nodes->count && i < NAMED; i++) {
        ox_put(&text, "%s%s", i ? ", " : "", nodes->first[i]);
    }
    if (nodes->count > NAMED) {
        ox_put(&text, " and %d more", nodes->count - NAMED);
    }
    if (text) {
        ox_note(o, "%s: %s", what, ox_take(o, &text));
    }
}

// Statements stand in an order in which every value is made before it is used.
static void sweep(ox *o) {
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

// ---- the model ----

static void check_opset(ox *o) {
    for (size_t i = 0; i < o->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = o->model->opset_import[i];
        if (!ox_is_standard(ox_or_empty(set->domain))) {
            continue;
        }
        if (set->version < OX_MIN_OPSET) {
            ox_die(o, NULL, "opset %lld is older than %d, the oldest that is read",
                   (long long)set->version, OX_MIN_OPSET);
        }
        if (set->version > OX_MAX_OPSET) {
            ox_note(o, "opset %lld is newer than %d, the newest known", (long long)set->version,
                    OX_MAX_OPSET);
        }
    }
}

static void convert(ox *o) {
    const Onnx__GraphProto *g = o->model->graph;
    if (!g) {
        ox_die(o, NULL, "not an ONNX model: it has no graph");
    }
    if (g->n_sparse_initializer) {
        ox_die(o, NULL, "sparse initializers are not supported");
    }
    check_opset(o);
    o->main = ox_alloc(o, sizeof *o->main);
    o->main->prefix = "";
    o->main->imports = o->model->opset_import;
    o->main->n_imports = o->model->n_opset_import;
    arrput(o->scopes, o->main);
    o->walk = ox_walk;
    ox_load_functions(o);
    import_graph(o, g);
    note_nodes(o, &o->lookups,
               "what is read at a negative position is 0, where ONNX counts from the end");
    note_nodes(o, &o->chosen,
               "what a condition computed at run time leaves out is computed, too, and not taken");
    note_nodes(o, &o->picks,
               "all rows are computed where a condition picks some, which are selected after it");
    note_nodes(o, &o->numbered,
               "as many rows are taken to be picked as when it was exported, and onnxruntime fails "
               "where they are others");
    note_nodes(o, &o->unrounded,
               "inputs and state are multiplied as they are, where onnxruntime rounds them to 8 "
               "bits");
    note_nodes(o, &o->sums,
               "sums of products of 8-bit integers are exact up to 2^24, and may pass it");
    sweep(o);
}

bool ox_convert(ox *o, const uint8_t *data, size_t size) {
    char shown[200];
    cli_error error = {0, ""};
    cli_escape(shown, sizeof shown, o->path);
    if (!ox_scan(data, size, &onnx__model_proto__descriptor, &error)) {
        return cli_fail(&o->error, error.code, "%s: %s", shown, error.text);
    }
    o->model = onnx__model_proto__unpack(&ox_allocator, size, data);
    if (!o->model) {
        return cli_fail(&o->error, CLI_BAD_INPUT, "%s: not an ONNX model", shown);
    }
    if (setjmp(o->fail)) {
        return false;
    }
    convert(o);
    return arrlen(o->refusals) == 0;
}

static void free_functions(ox *o) {
    for (ptrdiff_t i = 0; i < arrlen(o->functions); i++) {
        for (ptrdiff_t k = 0; k < arrlen(o->functions[i].defaults); k++) {
            onnx__attribute_proto__free_unpacked(o->functions[i].defaults[k], &ox_allocator);
        }
        arrfree(o->functions[i].defaults);
    }
    arrfree(o->functions);
}

void ox_free(ox *o) {
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        arrfree(o->stmts[i]->outs);
        arrfree(o->stmts[i]->args);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->scopes); i++) {
        shfree(o->scopes[i]->values);
        shfree(o->scopes[i]->results);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->maps); i++) {
        cli_file_release(&o->maps[i].bytes);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->givens); i++) {
        cli_tensor_free(&o->givens[i].tensor);
    }
    free_functions(o);
    if (o->model) {
        onnx__model_proto__free_unpacked(o->model, &ox_allocator);
    }
    shfree(o->taken);
    shfree(o->wanted);
    shfree(o->shown);
    shfree(o->counted);
    arrfree(o->pins);
    arrfree(o->givens);
    arrfree(o->ends);
    arrfree(o->scopes);
    arrfree(o->dims);
    arrfree(o->inputs);
    arrfree(o->outputs);
    arrfree(o->values);
    arrfree(o->stmts);
    arrfree(o->routines);
    arrfree(o->picked);
    arrfree(o->maps);
    arrfree(o->attrs);
    arrfree(o->args);
    arrfree(o->refusals);
    arrfree(o->notes);
    ox_release(o);
    memset(o, 0, sizeof *o);
}
