// onnx_node.c - access to one node while it is converted: its attributes, its inputs, and its
// outputs, which are bound to values.
#include "onnx.h"

void ox_step(ox *o, ox_node *n) {
    if (++o->steps > OX_MAX_STEPS) {
        ox_die(o, n, "the model has more than %d nodes", OX_MAX_STEPS);
    }
}

// ---- inputs ----

void ox_check_lost(ox *o, ox_node *n, ox_value *v) {
    if (v && v->lost) {
        if (v->why) {
            ox_unsupported(o, n, "%s", v->why);
        }
        ox_lose(o);
    }
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

ox_value *ox_opt(ox *o, ox_node *n, int input) {
    ox_value *v = input < n->n_in ? n->in[input] : NULL;
    ox_check_lost(o, n, v);
    if (v && v->sequence) {
        ox_unsupported(o, n, "operator '%s' on a sequence, where it is read on tensors alone",
                       n->op);
    }
    return v;
}

ox_value *ox_in(ox *o, ox_node *n, int input) {
    ox_value *v = ox_opt(o, n, input);
    if (!v) {
        ox_die(o, n, "input %d is missing", input);
    }
    return v;
}

int64_t ox_axis(ox *o, ox_node *n, int64_t axis, int rank) {
    if (axis < -rank || axis >= rank) {
        ox_die(o, n, "axis %lld is outside a tensor of %d axes", (long long)axis, rank);
    }
    return axis < 0 ? axis + rank : axis;
}

// ---- attributes ----

const ox_attr *ox_attr_of(const ox_attr *attrs, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (!strcmp(attrs[i].name, name)) {
            return &attrs[i];
        }
    }
    return NULL;
}

bool ox_has(const ox_node *n, const char *name) {
    return ox_attr_of(n->attrs, n->n_attrs, name) != NULL;
}

const ox_attr *ox_find(ox *o, ox_node *n, const char *name) {
    for (int i = 0; i < n->n_attrs; i++) {
        if (!strcmp(n->attrs[i].name, name)) {
            if (n->attrs[i].used && i + 1 < n->n_attrs &&
                ox_attr_of(n->attrs + i + 1, n->n_attrs - i - 1, name)) {
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

void ox_slice_lists(ox *o, ox_node *n, ox_list lists[4]) {
    static const char *const names[] = {"starts", "ends", "axes", "steps"};
    for (int i = 0; i < 4; i++) {
        lists[i] = (ox_list){0};
        bool given = n->opset < 10 ? i < 3 && ox_ints(o, n, names[i], &lists[i])
                                   : ox_int_input(o, n, names[i], i + 1, &lists[i]);
        if (i < 2 && !given) {
            ox_die(o, n, "Slice without %s", names[i]);
        }
        if (given && lists[i].n != lists[0].n) {
            ox_die(o, n, "Slice with lists of different lengths");
        }
    }
}

// Before opset 7 a node had to ask for broadcasting. Without an axis it meant what it means now.
void ox_check_broadcast(ox *o, ox_node *n) {
    if (n->opset < 7 && ox_int(o, n, "broadcast", 0) && ox_has(n, "axis")) {
        ox_unsupported(o, n, "operator '%s' of opset %lld with an axis to broadcast along", n->op,
                       (long long)n->opset);
    }
}

// ---- outputs ----

bool ox_wants(const ox_node *n, int output) { return output < n->n_out && n->out[output]; }

const char *ox_first(ox *o, ox_node *n) {
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
    return n->out[0];
}

const char *ox_base(ox *o, ox_node *n) {
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]) {
            return n->out[i];
        }
    }
    ox_die(o, n, "none of its outputs has a name");
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

// An output of the model whose integers are held as floats; nodes go on with these.
static void show_integers(ox *o, ox_node *n, const char *name, ox_value *v) {
    if (v->bits || (v->held != CLI_I8 && v->held != CLI_U8)) {
        ox_unsupported(o, n,
                       "integers of %d bits as an output of the model: take what is behind "
                       "their DequantizeLinear",
                       v->bits ? v->bits : 16);
    }
    if (!strcmp(v->name, name)) {  // made just now: no text has its name
        v->name = ox_fresh(o, name, ".floats");
    }
    ox_begin(o);
    ox_arg(o, v);
    ox_set_word(o, "to", cli_dtype_name(v->held));
    shput(o->shown, (char *)(uintptr_t)name, ox_end(o, "Cast", name, v->held));
}

// A graph output must be there under its own name: a value that has another one already (the node
// is an identity) is copied by a statement, which costs nothing at run time.
void ox_bind(ox *o, ox_node *n, int output, ox_value *v) {
    const char *name = output_name(n, output);
    if (!*name) {
        return;
    }
    if (v->sequence && shgeti(o->wanted, name) >= 0) {
        ox_unsupported(o, n, "a sequence as an output of the model: take its tensors");
    }
    if (!v->lost && v->words && shgeti(o->wanted, name) >= 0) {
        ox_unsupported(o, n, "uint32 computed at run time as an output of the model");
    }
    if (v->picked && shgeti(o->wanted, name) >= 0) {
        ox_unsupported(o, n,
                       "rows that %s picks at run time as an output of the model: its sizes "
                       "are known",
                       v->picked->node);
    }
    if (!v->lost && v->held && shgeti(o->wanted, name) >= 0) {
        show_integers(o, n, name, v);
    } else if (!v->lost && strcmp(name, v->name) && shgeti(o->wanted, name) >= 0) {
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

void ox_end_node(ox *o, ox_node *n, const char *op) {
    const char *name = ox_first(o, n);
    int first = op && !strcmp(op, "Where");
    const ox_value *like = arrlen(o->args) > first ? o->args[first] : NULL;
    ox_value *v = ox_end(o, op, name, like ? like->dtype : CLI_F32);
    if (ox_is_truth(op)) {
        v->dtype = CLI_BOOL;
    } else if (like) {
        v->held = like->held;
        v->bits = like->bits;
    }
    ox_bind(o, n, 0, v);
}
