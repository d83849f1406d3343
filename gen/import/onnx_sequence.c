// onnx_sequence.c - sequences of tensors: no statement has one. How many tensors they hold, and
// which of them is meant, must be known when the model is imported; then each is a value.
#include "onnx.h"

enum { LONGEST = 4096 };  // tensors of a sequence

static const ox_value *sequence_in(ox *o, ox_node *n, int input) {
    ox_value *v = input < n->n_in ? n->in[input] : NULL;
    ox_check_lost(o, n, v);
    if (!v || !v->sequence) {
        ox_die(o, n, "input %d of '%s' is no sequence", input, n->op);
    }
    return v;
}

// A list of so many values and one more.
static ox_value **list_of(ox *o, ox_node *n, int64_t count) {
    if (count > LONGEST) {
        ox_unsupported(o, n, "a sequence of %lld tensors; %d at most are followed",
                       (long long)count, LONGEST);
    }
    return ox_alloc(o, (size_t)(count + 1) * sizeof(ox_value *));
}

static void give(ox *o, ox_node *n, ox_value **parts, int64_t count) {
    ox_value *v = ox_new_value(o, ox_first(o, n), count ? parts[0]->dtype : CLI_NONE);
    v->sequence = true;
    v->parts = parts;
    v->n_parts = (int)count;
    ox_bind(o, n, 0, v);
}

// A position among `count`, counted from the end where it is negative.
static int64_t position_in(ox *o, ox_node *n, int input, int64_t count, int64_t otherwise) {
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (v && !c) {
        ox_unsupported(o, n, "operator '%s' with a position computed at run time", n->op);
    }
    int64_t at = c && c->count == 1 ? ox_geti(c, 0) : otherwise;
    if ((c && c->count != 1) || at < -count || at >= count) {
        ox_die(o, n, "operator '%s' with a position outside its sequence", n->op);
    }
    return at < 0 ? at + count : at;
}

static void convert_construct(ox *o, ox_node *n) {
    ox_value **parts = list_of(o, n, n->n_in);
    ox_find(o, n, "dtype");  // of SequenceEmpty
    for (int i = 0; i < n->n_in; i++) {
        parts[i] = ox_in(o, n, i);
    }
    give(o, n, parts, n->n_in);
}

static void convert_insert(ox *o, ox_node *n) {
    const ox_value *s = sequence_in(o, n, 0);
    ox_value **parts = list_of(o, n, s->n_parts + 1);
    int64_t at = s->n_parts;
    if (ox_opt(o, n, 2)) {
        // Before the last one is -1; behind it there is no negative name.
        const ox_const *c = ox_known(o, ox_in(o, n, 2));
        bool behind = c && c->count == 1 && ox_geti(c, 0) == s->n_parts;
        at = behind ? at : position_in(o, n, 2, s->n_parts, 0);
    }
    for (int i = 0; i < s->n_parts; i++) {
        parts[i < at ? i : i + 1] = s->parts[i];
    }
    parts[at] = ox_in(o, n, 1);
    give(o, n, parts, s->n_parts + 1);
}

static void convert_erase(ox *o, ox_node *n) {
    const ox_value *s = sequence_in(o, n, 0);
    ox_value **parts = list_of(o, n, s->n_parts);
    int64_t at = position_in(o, n, 1, s->n_parts, -1);
    for (int i = 0; i < s->n_parts; i++) {
        if (i != at) {
            parts[i < at ? i : i - 1] = s->parts[i];
        }
    }
    give(o, n, parts, s->n_parts - 1);
}

static void convert_at(ox *o, ox_node *n) {
    const ox_value *s = sequence_in(o, n, 0);
    ox_value *v = s->parts[position_in(o, n, 1, s->n_parts, 0)];
    ox_check_lost(o, n, v);
    ox_bind(o, n, 0, v);
}

static void convert_length(ox *o, ox_node *n) {
    ox_const *c = ox_make(o, CLI_I64, 0, NULL);
    ox_seti(c, 0, sequence_in(o, n, 0)->n_parts);
    ox_bind_known(o, n, 0, c);
}

// Sizes of the pieces that an axis of `whole` is cut into: those that are listed, or equal ones of
// which the last may be smaller.
static ox_list pieces(ox *o, ox_node *n, int64_t whole) {
    ox_value *v = ox_opt(o, n, 1);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (v && !c) {
        ox_unsupported(o, n, "SplitToSequence with sizes computed at run time");
    }
    int64_t each = c && !c->rank ? ox_geti(c, 0) : 1, sum = 0;
    bool listed = c && c->rank == 1;
    if (each < 1 || (c && c->rank > 1)) {
        ox_die(o, n, "SplitToSequence without usable sizes");
    }
    int64_t count = listed ? c->count : whole / each + (whole % each != 0);
    (void)list_of(o, n, count);
    int64_t *size = ox_alloc(o, (size_t)(count + 1) * sizeof *size);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = whole - sum;
        size[i] = listed ? ox_geti(c, i) : rest < each ? rest : each;
        if (size[i] < 0 || size[i] > rest) {
            ox_die(o, n, "SplitToSequence with sizes that do not add up to %lld", (long long)whole);
        }
        sum += size[i];
    }
    if (sum != whole) {
        ox_die(o, n, "SplitToSequence with sizes that do not add up to %lld", (long long)whole);
    }
    return (ox_list){(int)count, size, NULL};
}

static void convert_split(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    bool keeps = ox_int(o, n, "keepdims", 1) != 0 || ox_opt(o, n, 1);
    int64_t axis = ox_int(o, n, "axis", 0), at = 0;
    ox_need_sym(o, n, x);
    axis = ox_axis(o, n, axis, x->rank);
    if (x->sym[axis]) {
        ox_unsupported(o, n, "SplitToSequence along an axis whose size the model leaves open");
    }
    ox_list size = pieces(o, n, x->dims[axis]);
    ox_value **parts = list_of(o, n, size.n);
    for (int i = 0; i < size.n; i++) {
        ox_step(o, n);
        parts[i] = ox_slice_of(o, n, ".part", x, axis, at, at + size.v[i]);
        if (!keeps) {
            parts[i] = ox_with_int(o, n, "Squeeze", ".one", parts[i], "axes", axis);
        }
        at += size.v[i];
    }
    give(o, n, parts, size.n);
}

static void convert_concat(ox *o, ox_node *n) {
    const ox_value *s = sequence_in(o, n, 0);
    bool stacks = ox_int(o, n, "new_axis", 0) != 0;
    ox_value **parts = list_of(o, n, s->n_parts);
    if (!s->n_parts || !ox_has(n, "axis")) {
        ox_die(o, n, "ConcatFromSequence without an axis, or of no tensors");
    }
    ox_need_shape(o, n, s->parts[0]);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), s->parts[0]->rank + stacks);
    for (int i = 0; i < s->n_parts; i++) {
        ox_check_lost(o, n, s->parts[i]);
        parts[i] = stacks ? ox_with_int(o, n, "Unsqueeze", ".one", s->parts[i], "axes", axis)
                          : s->parts[i];
    }
    ox_concat_node(o, n, parts, s->n_parts, axis);
}

const ox_row ox_sequence_rows[] = {
    {"SequenceEmpty", 0, 0, convert_construct},
    {"SequenceConstruct", 1, -1, convert_construct},
    {"SequenceInsert", 2, 3, convert_insert},
    {"SequenceErase", 1, 2, convert_erase},
    {"SequenceAt", 2, 2, convert_at},
    {"SequenceLength", 1, 1, convert_length},
    {"SplitToSequence", 1, 2, convert_split},
    {"ConcatFromSequence", 1, 1, convert_concat},
    {NULL, 0, 0, NULL},
};
