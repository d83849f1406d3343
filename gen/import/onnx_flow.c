// onnx_flow.c - If, Loop and Scan: branches, and rounds whose number is known at import time. The
// body's nodes are converted once a round, in a scope of their own that sees the names around it.
// A plan has no branches: where a condition is computed at run time, both branches are, and every
// round, and it picks among their results.
#include "onnx.h"

enum { MAX_ROUNDS = 1024, MAX_OUTPUTS = 256 };

static const Onnx__GraphProto *take_graph(ox *o, ox_node *n, const char *name) {
    const ox_attr *a = ox_find(o, n, name);
    if (!a || !a->a->g) {
        ox_die(o, n, "operator '%s' without a graph '%s'", n->op, name);
    }
    return a->a->g;
}

static ox_scope *enter(ox *o, ox_node *n, const Onnx__GraphProto *g, const char *label) {
    ox_scope *s = ox_alloc(o, sizeof *s);
    ox_step(o, n);
    if (n->scope->depth == OX_MAX_CALLS) {
        ox_die(o, n, "functions and graphs are nested deeper than %d", OX_MAX_CALLS);
    }
    s->parent = s->outer = n->scope;
    s->depth = n->scope->depth + 1;
    s->prefix = ox_format(o, "%s%s/", n->scope->prefix, label);
    s->imports = n->scope->imports;
    s->n_imports = n->scope->n_imports;
    s->attrs = n->scope->attrs;
    s->n_attrs = n->scope->n_attrs;
    arrput(o->scopes, s);
    for (size_t i = 0; i < g->n_initializer; i++) {
        ox_tensor *t = g->initializer[i];
        const char *name = ox_or_empty(t->name);
        int bits;
        ox_value *v = ox_new_value(o, ox_fresh(o, s->prefix, name), ox_stored(t->data_type, &bits));
        v->initializer = t;
        if (shgeti(s->values, name) >= 0) {
            ox_die(o, n, "an initializer of '%s' is there twice", n->op);
        }
        shput(s->values, (char *)(uintptr_t)name, v);
    }
    return s;
}

static void give(ox *o, ox_node *n, ox_scope *s, const Onnx__GraphProto *g, size_t input,
                 ox_value *v) {
    const char *name = ox_or_empty(g->input[input]->name);
    if (shgeti(s->values, name) >= 0) {
        ox_die(o, n, "input \"%s\" of a graph is there twice", name);
    }
    shput(s->values, (char *)(uintptr_t)name, v);
}

static void run(ox *o, ox_scope *s, const Onnx__GraphProto *g) {
    ox_index *wanted = NULL;
    for (size_t i = 0; i < g->n_output; i++) {
        shput(wanted, (char *)(uintptr_t)ox_or_empty(g->output[i]->name), 1);
    }
    o->walk(o, s, g->node, g->n_node, wanted);
}

static ox_value *result(ox *o, ox_node *n, ox_scope *s, const Onnx__GraphProto *g, size_t output) {
    ox_value *v = NULL;
    if (!ox_look_up(s, ox_or_empty(g->output[output]->name), &v) || !v) {
        ox_die(o, n, "a graph of '%s' does not define its output %zu", n->op, output);
    }
    ox_check_lost(o, n, v);
    if (v->words) {
        ox_unsupported(o, n, "a graph of '%s' whose output is uint32 computed at run time", n->op);
    }
    return v;
}

// A state before the first round, which may be a sequence.
static ox_value *begun(ox *o, ox_node *n, int input) {
    ox_value *v = n->in[input];
    ox_check_lost(o, n, v);
    return v && v->sequence ? v : ox_in(o, n, input);
}

static int64_t number_of(ox *o, ox_node *n, const ox_const *c, const char *what) {
    if (c->count != 1) {
        ox_die(o, n, "operator '%s' with a %s that is no scalar", n->op, what);
    }
    return ox_geti(c, 0);
}

// A condition computed at run time, as a scalar.
static ox_value *condition(ox *o, ox_node *n, ox_value *v) {
    int64_t count = 1;
    ox_need_shape(o, n, v);
    for (int a = 0; a < v->rank; a++) {
        count *= v->dims[a];
    }
    if (count != 1 || v->dtype != CLI_BOOL) {
        ox_die(o, n, "operator '%s' with a condition that is no scalar of type bool", n->op);
    }
    return v->rank ? ox_with_list(o, n, "Reshape", ".is", v, "shape", (ox_list){0, NULL, NULL}) : v;
}

// Whether two values are known, and the same.
static bool are_same(ox *o, ox_value *a, ox_value *b) {
    const ox_const *x = a->sequence ? NULL : ox_known(o, a);
    const ox_const *y = b->sequence ? NULL : ox_known(o, b);
    bool same = x && y && x->dtype == y->dtype && x->rank == y->rank && !x->sym && !y->sym &&
                x->splat == y->splat && !x->bits && !y->bits;
    for (int i = 0; same && i < x->rank; i++) {
        same = x->dims[i] == y->dims[i];
    }
    return same &&
           !memcmp(x->data, y->data, (size_t)(x->splat ? 1 : x->count) * cli_dtype_size(x->dtype));
}

// A single truth that a value is known to have everywhere: 0, 1; -1: none.
static int truth_of(ox *o, ox_value *v) {
    const ox_const *c = ox_known(o, v);
    return c && (c->splat || c->count == 1) ? ox_geti(c, 0) != 0 : -1;
}

// One of two values of type bool.
static ox_value *pick_truth(ox *o, ox_node *n, ox_value *is, ox_value *a, ox_value *b) {
    int then = truth_of(o, a), otherwise = truth_of(o, b);
    ox_value *no = then == 1 || otherwise == 0 ? NULL : ox_unary(o, n, "Not", ".no", is);
    if (then >= 0) {
        return ox_truth(o, n, then ? "Or" : "And", ".picked", then ? is : no, b);
    }
    if (otherwise >= 0) {
        return ox_truth(o, n, otherwise ? "Or" : "And", ".picked", otherwise ? no : is, a);
    }
    a = ox_truth(o, n, "And", ".then", is, a);
    return ox_truth(o, n, "Or", ".picked", a, ox_truth(o, n, "And", ".else", no, b));
}

// One of two values by a scalar.
static ox_value *pick(ox *o, ox_node *n, ox_value *is, ox_value *a, ox_value *b) {
    if (a == b || are_same(o, a, b)) {
        return a;
    }
    if (a->sequence || b->sequence || a->picked || b->picked) {
        ox_unsupported(o, n,
                       "operator '%s' with a condition computed at run time that picks one "
                       "of two %s",
                       n->op, a->sequence || b->sequence ? "sequences" : "numbers of rows");
    }
    ox_need_shape(o, n, a);
    ox_need_shape(o, n, b);
    bool same = a->rank == b->rank && a->dtype == b->dtype;
    for (int i = 0; same && i < a->rank; i++) {
        same = a->dims[i] == b->dims[i];
    }
    if (!same) {
        ox_unsupported(o, n,
                       "operator '%s' with a condition computed at run time that picks one "
                       "of two shapes or types",
                       n->op);
    }
    return a->dtype == CLI_BOOL ? pick_truth(o, n, is, a, b) : ox_where(o, n, ".picked", is, a, b);
}

static ox_value *integer(ox *o, ox_node *n, cli_dtype dtype, int64_t value) {
    ox_const *c = ox_make(o, dtype, 0, NULL);
    ox_seti(c, 0, value);
    return ox_constant(o, ox_base(o, n), ".round", c);
}

static const Onnx__GraphProto *take_branch(ox *o, ox_node *n, const char *name) {
    const Onnx__GraphProto *g = take_graph(o, n, name);
    if (g->n_output < (size_t)n->n_out) {
        ox_die(o, n, "a branch of 'If' has %zu outputs, not %d", g->n_output, n->n_out);
    }
    return g;
}

// Both branches, and of each output the one that the condition names.
static void convert_both(ox *o, ox_node *n, ox_value *is) {
    static const char *const names[] = {"then_branch", "else_branch"};
    const Onnx__GraphProto *g[2];
    ox_scope *s[2];
    is = condition(o, n, is);
    ox_name_node(o, n, &o->chosen);
    for (int k = 0; k < 2; k++) {
        g[k] = take_branch(o, n, names[k]);
        s[k] = enter(o, n, g[k], ox_format(o, "%s.%s", ox_base(o, n), k ? "else" : "then"));
        run(o, s[k], g[k]);
    }
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]) {
            ox_value *then = result(o, n, s[0], g[0], (size_t)i);
            ox_bind(o, n, i, pick(o, n, is, then, result(o, n, s[1], g[1], (size_t)i)));
        }
    }
}

static void convert_if(ox *o, ox_node *n) {
    const ox_const *is = ox_known(o, ox_in(o, n, 0));
    if (!is) {
        convert_both(o, n, ox_in(o, n, 0));
        return;
    }
    bool then = number_of(o, n, is, "condition") != 0;
    const Onnx__GraphProto *g = take_branch(o, n, then ? "then_branch" : "else_branch");
    ox_find(o, n, then ? "else_branch" : "then_branch");
    ox_scope *s = enter(o, n, g, ox_base(o, n));
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]) {
            shput(s->results, (char *)(uintptr_t)ox_or_empty(g->output[i]->name), n->out[i]);
        }
    }
    run(o, s, g);
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]) {
            ox_bind(o, n, i, result(o, n, s, g, (size_t)i));
        }
    }
}

// ---- rounds ----

typedef struct {
    const Onnx__GraphProto *g;
    int states, stacked;    // outputs that are carried on, and outputs of all rounds as one
    int count;              // rounds so far
    ox_value **state;       // by number, of rounds that all count
    ox_value **kept;        // what stays of them where the last ones do not
    ox_value ***outs;       // by round, by number of what is stacked
    const int64_t *axes;    // of what is stacked; NULL: 0
    const int64_t *turned;  // whether the last round comes first; NULL: no
    ox_value *going;        // computed at run time: whether rounds still count; NULL: they do
} rounds;

static void begin(ox *o, ox_node *n, rounds *r, int64_t states, int64_t stacked) {
    if (states < 0 || stacked < 0 || states + stacked > MAX_OUTPUTS ||
        n->n_out > states + stacked) {
        ox_die(o, n, "operator '%s' whose graph does not fit its inputs and outputs", n->op);
    }
    r->states = (int)states;
    r->stacked = (int)stacked;
    r->state = ox_alloc(o, (size_t)(states + 1) * sizeof *r->state);
    r->kept = ox_alloc(o, (size_t)(states + 1) * sizeof *r->kept);
    r->outs = ox_alloc(o, MAX_ROUNDS * sizeof *r->outs);
}

// States and outputs of one round; the graph's outputs from `first` on.
static void take_round(ox *o, ox_node *n, rounds *r, ox_scope *s, size_t first) {
    ox_value **outs = ox_alloc(o, (size_t)(r->stacked + 1) * sizeof *outs);
    for (int i = 0; i < r->states; i++) {
        r->state[i] = result(o, n, s, r->g, first + (size_t)i);
        r->kept[i] = r->going ? pick(o, n, r->going, r->state[i], r->kept[i]) : r->state[i];
    }
    for (int k = 0; k < r->stacked; k++) {
        outs[k] = result(o, n, s, r->g, first + (size_t)(r->states + k));
    }
    r->outs[r->count++] = outs;
}

static void bind_stacked(ox *o, ox_node *n, const rounds *r, int k) {
    int output = r->states + k;
    if (!ox_wants(n, output)) {
        return;
    }
    if (!r->count) {
        ox_unsupported(o, n, "operator '%s' of no rounds, whose output %d is empty", n->op, output);
    }
    for (int i = 0; i < r->count; i++) {
        if (r->outs[i][k]->sequence || r->outs[i][k]->picked) {
            ox_unsupported(o, n, "operator '%s' that stacks %s", n->op,
                           r->outs[i][k]->sequence ? "sequences" : "rows picked at run time");
        }
    }
    ox_value **parts = ox_alloc(o, (size_t)r->count * sizeof(ox_value *));
    ox_need_shape(o, n, r->outs[0][k]);
    int64_t axis = r->axes ? ox_axis(o, n, r->axes[k], r->outs[0][k]->rank + 1) : 0;
    for (int i = 0; i < r->count; i++) {
        int at = r->turned && r->turned[k] ? r->count - 1 - i : i;
        parts[at] = ox_with_int(o, n, "Unsqueeze", ".one", r->outs[i][k], "axes", axis);
    }
    ox_bind(o, n, output, ox_concat(o, n, ".rounds", parts, r->count, axis));
}

static void bind_rounds(ox *o, ox_node *n, const rounds *r) {
    for (int i = 0; i < r->states && i < n->n_out; i++) {
        ox_bind(o, n, i, r->kept[i]);
    }
    for (int k = 0; k < r->stacked; k++) {
        bind_stacked(o, n, r, k);
    }
}

static void refuse_rounds(ox *o, ox_node *n, int64_t count) {
    ox_unsupported(o, n, "operator '%s' of %lld rounds: they are written out, %d at most", n->op,
                   (long long)count, MAX_ROUNDS);
}

// Whether there is another round; one that is computed at run time counts as long as all before do.
static bool goes_on(ox *o, ox_node *n, rounds *r, ox_value *v) {
    const ox_const *c = ox_known(o, v);
    if (c) {
        return number_of(o, n, c, "condition") != 0;
    }
    if (r->stacked || r->count == MAX_ROUNDS) {
        ox_unsupported(o, n, "operator '%s' with a condition computed at run time and %s", n->op,
                       r->stacked ? "an output of as many rows as rounds"
                                  : "no number of rounds that could be written out");
    }
    v = condition(o, n, v);
    ox_name_node(o, n, &o->chosen);
    r->going = r->going ? ox_binary(o, n, "And", ".going", r->going, v) : v;
    return true;
}

// The number of rounds, INT64_MAX where none is given.
static int64_t most_rounds(ox *o, ox_node *n) {
    ox_value *most = ox_opt(o, n, 0);
    const ox_const *c = most ? ox_known(o, most) : NULL;
    if (most && !c) {
        ox_unsupported(o, n,
                       "operator '%s' with a number of rounds computed at run time: they are "
                       "written out",
                       n->op);
    }
    return c ? number_of(o, n, c, "number of rounds") : INT64_MAX;
}

// Inputs: the number of rounds, whether to begin, the states. The graph's: the round, whether it
// goes on, the states; its outputs: whether it goes on, the states, what is stacked.
static void convert_loop(ox *o, ox_node *n) {
    rounds r = {.g = take_graph(o, n, "body")};
    ox_value *first = ox_opt(o, n, 1);
    int64_t count = most_rounds(o, n);
    begin(o, n, &r, n->n_in - 2, (int64_t)r.g->n_output - 1 - (n->n_in - 2));
    bool on = !first || goes_on(o, n, &r, first);
    if (r.g->n_input != (size_t)r.states + 2) {
        ox_die(o, n, "operator 'Loop' whose graph has not %d inputs", r.states + 2);
    }
    for (int i = 0; i < r.states; i++) {
        r.kept[i] = r.state[i] = begun(o, n, i + 2);
    }
    while (on && r.count < count) {
        if (r.count == MAX_ROUNDS) {
            refuse_rounds(o, n, count < INT64_MAX ? count : r.count + 1);
        }
        ox_scope *s = enter(o, n, r.g, ox_format(o, "%s.%d", ox_base(o, n), r.count));
        give(o, n, s, r.g, 0, integer(o, n, CLI_I64, r.count));
        give(o, n, s, r.g, 1, integer(o, n, CLI_BOOL, 1));
        for (int i = 0; i < r.states; i++) {
            give(o, n, s, r.g, (size_t)i + 2, r.state[i]);
        }
        run(o, s, r.g);
        take_round(o, n, &r, s, 1);
        on = r.count == count || goes_on(o, n, &r, result(o, n, s, r.g, 0));
    }
    bind_rounds(o, n, &r);
}

// One of a Scan's lists; NULL where it is not given.
static const int64_t *take_list(ox *o, ox_node *n, const char *name, int count) {
    ox_list list;
    if (!ox_ints(o, n, name, &list)) {
        return NULL;
    }
    if (list.n != count) {
        ox_die(o, n, "attribute '%s' has %d numbers, not %d", name, list.n, count);
    }
    return list.v;
}

// Inputs: the states, then what a round sees one slice of.
static void convert_scan(ox *o, ox_node *n) {
    rounds r = {.g = take_graph(o, n, "body")};
    int64_t seen = ox_int(o, n, "num_scan_inputs", 0), count = 0;
    if (n->opset < 9) {
        ox_unsupported(o, n, "Scan of opset %lld, which has an axis of sequences",
                       (long long)n->opset);
    }
    if (seen < 1 || seen > n->n_in || r.g->n_input != (size_t)n->n_in) {
        ox_die(o, n, "operator 'Scan' without a usable num_scan_inputs or graph");
    }
    begin(o, n, &r, n->n_in - seen, (int64_t)r.g->n_output - (n->n_in - seen));
    const int64_t *axes = take_list(o, n, "scan_input_axes", (int)seen);
    const int64_t *turned = take_list(o, n, "scan_input_directions", (int)seen);
    r.axes = take_list(o, n, "scan_output_axes", r.stacked);
    r.turned = take_list(o, n, "scan_output_directions", r.stacked);
    int64_t *axis = ox_alloc(o, (size_t)seen * sizeof *axis);
    for (int i = 0; i < n->n_in; i++) {
        ox_value *v = ox_in(o, n, i);
        if (i < r.states) {
            r.kept[i] = r.state[i] = v;
            continue;
        }
        int k = i - r.states;
        ox_need_shape(o, n, v);
        axis[k] = ox_axis(o, n, axes ? axes[k] : 0, v->rank);
        if (k && v->dims[axis[k]] != count) {
            ox_die(o, n, "operator 'Scan' over inputs of different lengths");
        }
        count = v->dims[axis[k]];
    }
    if (count > MAX_ROUNDS) {
        refuse_rounds(o, n, count);
    }
    while (r.count < count) {
        ox_scope *s = enter(o, n, r.g, ox_format(o, "%s.%d", ox_base(o, n), r.count));
        for (int i = 0; i < n->n_in; i++) {
            int k = i - r.states;
            if (k < 0) {
                give(o, n, s, r.g, (size_t)i, r.state[i]);
                continue;
            }
            int64_t at = turned && turned[k] ? count - 1 - r.count : r.count;
            ox_value *v = ox_slice_of(o, n, ".slice", ox_in(o, n, i), axis[k], at, at + 1);
            v = ox_with_int(o, n, "Squeeze", ".seen", v, "axes", axis[k]);
            give(o, n, s, r.g, (size_t)i, v);
        }
        run(o, s, r.g);
        take_round(o, n, &r, s, 0);
    }
    bind_rounds(o, n, &r);
}

const ox_row ox_flow_rows[] = {
    {"If", 1, 1, convert_if},
    {"Loop", 2, -1, convert_loop},
    {"Scan", 1, -1, convert_scan},
    {NULL, 0, 0, NULL},
};

bool ox_has_graph(const char *op) {
    for (const ox_row *row = ox_flow_rows; row->op; row++) {
        if (!strcmp(row->op, op)) {
            return true;
        }
    }
    return false;
}
