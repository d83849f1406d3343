// onnx_pick.c - operators that convert types, read at positions or sum products by letters.
#include "onnx.h"

#include <ctype.h>

// Doubles are computed as f32, as their constants are. `shown` is what the file calls the type.
static void cast_to(ox *o, ox_node *n, cli_dtype to, const char *shown) {
    ox_value *v = ox_in(o, n, 0);
    ox_find(o, n, "saturate");
    to = to == CLI_F64 ? CLI_F32 : to;
    if (to == v->dtype) {
        ox_bind(o, n, 0, v);
        return;
    }
    if (to == CLI_NONE || to == CLI_U8 || to == CLI_U16 || to == CLI_I16 || to == CLI_U32 ||
        to == CLI_U64) {
        ox_unsupported(o, n, "Cast from %s to %s of a value computed at run time",
                       cli_dtype_name(v->dtype), shown);
    }
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
    ox_begin(o);
    ox_arg(o, v);
    ox_set_word(o, "to", cli_dtype_name(to));
    ox_bind(o, n, 0, ox_end(o, "Cast", n->out[0], to));
}

static void convert_cast(ox *o, ox_node *n) {
    int64_t code = ox_int(o, n, "to", 0);
    int32_t type = code >= 0 && code < 100 ? (int32_t)code : 0;
    cast_to(o, n, ox_dtype(type), ox_type_name(type));
}

static void convert_cast_like(ox *o, ox_node *n) {
    cli_dtype to = ox_in(o, n, 1)->dtype;
    cast_to(o, n, to, cli_dtype_name(to));
}

// A constant of a shape that depends on a dim: a number, spread.
static void convert_constant_of_shape(ox *o, ox_node *n) {
    ox_list shape;
    const ox_attr *a = ox_find(o, n, "value");
    const ox_const *c =
        a && a->a->t ? ox_decode(o, a->a->t, "value") : ox_make(o, CLI_F32, 0, NULL);
    if (!ox_int_input(o, n, "input", 0, &shape) || c->count != 1 || !ox_wants(n, 0)) {
        ox_die(o, n, "ConstantOfShape without a usable shape, value or output");
    }
    ox_begin(o);
    ox_arg(o, ox_constant(o, n->out[0], ".value", ox_reshaped(o, c, 0, NULL)));
    ox_set_list(o, "shape", shape);
    ox_end_node(o, n, "Expand");
}

// ---- positions ----

// Known positions with those from the end counted from 0; in range.
static ox_value *known_positions(ox *o, ox_node *n, ox_value *at, const ox_const *c, int64_t size) {
    bool negative = false;
    if (c->count > OX_FOLD_LIMIT) {
        ox_unsupported(o, n, "operator '%s' with %lld positions", n->op, (long long)c->count);
    }
    ox_const *r = ox_make(o, CLI_I64, c->rank, c->dims);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t p = ox_geti(c, i);
        if (p < -size || p >= size) {
            ox_die(o, n, "%s index outside an axis of size %lld", n->op, (long long)size);
        }
        negative = negative || p < 0;
        ox_seti(r, i, p < 0 ? p + size : p);
    }
    return negative ? ox_constant(o, n->out[0], ".positions", r) : at;
}

static void gather(ox *o, ox_node *n, int64_t axis) {
    ox_value *x = ox_in(o, n, 0), *at = ox_in(o, n, 1);
    const ox_const *c = ox_known(o, at);
    if (at->dtype != CLI_I32 && at->dtype != CLI_I64) {
        ox_die(o, n, "%s with positions of type %s", n->op, cli_dtype_name(at->dtype));
    }
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
    if (c) {
        at = known_positions(o, n, at, c, x->dims[axis]);
    } else if (!o->told_positions) {
        o->told_positions = true;
        ox_note(o, "positions that are computed at run time count from 0: a negative one gives 0");
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, at);
    ox_set_int(o, "axis", axis);
    ox_bind(o, n, 0, ox_end(o, n->op, n->out[0], x->dtype));
}

// Consecutive known positions are a Slice.
static void convert_gather(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    const ox_const *index = ox_known(o, ox_in(o, n, 1));
    ox_need_shape(o, n, x);
    int64_t axis = ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank);
    bool follow = index && index->rank <= 1 && index->count > 0 && !ox_is_float(index->dtype) &&
                  index->count <= OX_FOLD_LIMIT;
    int64_t start = follow ? ox_geti(index, 0) : 0;
    for (int64_t i = 0; follow && i < index->count; i++) {
        follow = ox_geti(index, i) == start + i;
    }
    start += start < 0 ? x->dims[axis] : 0;
    int64_t end = start + (index ? index->count : 0);
    if (!follow || (start >= 0 && start < x->dims[axis] && end > x->dims[axis])) {
        gather(o, n, axis);
        return;
    }
    if (start < 0 || end > x->dims[axis]) {
        ox_die(o, n, "Gather index outside an axis of size %lld", (long long)x->dims[axis]);
    }
    if (!ox_wants(n, 0)) {
        ox_die(o, n, "its first output has no name");
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "starts", (ox_list){1, &start, NULL});
    ox_set_list(o, "ends", (ox_list){1, &end, NULL});
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    if (index->rank == 1) {
        ox_end_node(o, n, "Slice");
        return;
    }
    ox_value *row = ox_end(o, "Slice", ox_fresh(o, n->out[0], ".row"), x->dtype);
    ox_begin(o);
    ox_arg(o, row);
    ox_set_list(o, "axes", (ox_list){1, &axis, NULL});
    ox_end_node(o, n, "Squeeze");
}

static void convert_gather_elements(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    ox_need_shape(o, n, x);
    gather(o, n, ox_axis(o, n, ox_int(o, n, "axis", 0), x->rank));
}

static void convert_tile(ox *o, ox_node *n) {
    ox_list repeats;
    if (n->opset < 6) {
        ox_unsupported(o, n, "Tile of opset %lld, which repeats one axis", (long long)n->opset);
    }
    if (!ox_int_input(o, n, "repeats", 1, &repeats)) {
        ox_die(o, n, "Tile without repeats");
    }
    for (int i = 0; i < repeats.n; i++) {
        if (repeats.v[i] < 1) {
            ox_unsupported(o, n, "Tile with %lld repeats", (long long)repeats.v[i]);
        }
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_list(o, "repeats", repeats);
    ox_end_node(o, n, "Tile");
}

static void convert_trilu(ox *o, ox_node *n) {
    ox_list k;
    bool upper = ox_int(o, n, "upper", 1) != 0;
    bool given = ox_int_input(o, n, "k", 1, &k) && k.n == 1;
    int64_t most = OX_MAX_DIM, at = given ? k.v[0] : 0;
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "k", at > most ? most : at < -most ? -most : at);
    ox_set_int(o, "upper", upper);
    ox_end_node(o, n, "Trilu");
}

static void convert_cum_sum(ox *o, ox_node *n) {
    ox_list axis;
    bool exclusive = ox_int(o, n, "exclusive", 0) != 0, reverse = ox_int(o, n, "reverse", 0) != 0;
    if (!ox_int_input(o, n, "axis", 1, &axis) || axis.n != 1) {
        ox_die(o, n, "CumSum without a usable axis");
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_int(o, "axis", axis.v[0]);
    ox_set_int(o, "exclusive", exclusive);
    ox_set_int(o, "reverse", reverse);
    ox_end_node(o, n, "CumSum");
}

// ---- Einsum ----

typedef struct {
    char of[128];   // letter in the text of a letter in the file; 0 where it has none yet
    char dots[10];  // letters of `...`, the last axis first
    bool taken[26];
    int uses[128];
    int broadcast;  // axes that `...` stands for, at most
} letters;

static char free_letter(ox *o, ox_node *n, letters *l) {
    for (int i = 0; i < 26; i++) {
        if (!l->taken[i]) {
            l->taken[i] = true;
            return (char)('a' + i);
        }
    }
    ox_unsupported(o, n, "Einsum of more than 26 letters");
}

// Puts one operand's subscripts, or the result's (rank -1), up to `,`, `-` or the end.
static const char *put_letters(ox *o, ox_node *n, letters *l, char **text, const char *s,
                               int rank) {
    int count = 0;
    for (const char *c = s; *c && *c != ',' && *c != '-'; c++) {
        count += isalpha((unsigned char)*c) != 0;
    }
    for (; *s && *s != ',' && *s != '-'; s++) {
        if (!strncmp(s, "...", 3)) {
            int axes = rank < 0 ? l->broadcast : rank - count;
            l->broadcast = axes > l->broadcast ? axes : l->broadcast;
            for (int a = axes; a-- > 0 && axes <= CLI_MAX_RANK;) {
                l->dots[a] = l->dots[a] ? l->dots[a] : free_letter(o, n, l);
                ox_put(text, "%c", l->dots[a]);
            }
            s += 2;
        } else if (isalpha((unsigned char)*s)) {
            char *letter = &l->of[(unsigned char)*s];
            *letter = *letter ? *letter : free_letter(o, n, l);
            l->uses[(unsigned char)*s] += rank >= 0;
            ox_put(text, "%c", *letter);
        } else if (*s != ' ') {
            char shown[20], bad[2] = {*s, 0};
            ox_die(o, n, "Einsum with '%s' in its equation", cli_escape(shown, sizeof shown, bad));
        }
    }
    return s;
}

// The language's has small letters alone, and always a result.
static void convert_einsum(ox *o, ox_node *n) {
    const char *s = ox_string(o, n, "equation", "");
    letters l = {.broadcast = 0};
    char *text = NULL, *implied = NULL;
    ox_put(&text, "\"");
    for (const char *c = s; *c; c++) {  // small ones keep their names
        if (*c >= 'a' && *c <= 'z') {
            l.of[(unsigned char)*c] = *c;
            l.taken[*c - 'a'] = true;
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        ox_value *x = ox_in(o, n, i);
        ox_need_shape(o, n, x);
        s = put_letters(o, n, &l, &text, s, x->rank);
        s += *s == ',';
        ox_put(&text, i + 1 < n->n_in ? "," : "->");
    }
    if (!strncmp(s, "->", 2)) {
        put_letters(o, n, &l, &text, s + 2, -1);
    } else {  // letters that stand once, in the order of the alphabet
        ox_put(&implied, "...");
        for (int c = 'A'; c <= 'z'; c++) {
            if (l.uses[c] == 1) {
                ox_put(&implied, "%c", c);
            }
        }
        put_letters(o, n, &l, &text, ox_take(o, &implied), -1);
    }
    ox_put(&text, "\"");
    const char *equation = ox_take(o, &text);
    ox_begin(o);
    for (int i = 0; i < n->n_in; i++) {
        ox_arg(o, ox_in(o, n, i));
    }
    ox_set_word(o, "equation", equation);
    ox_end_node(o, n, "Einsum");
}

const ox_row ox_pick_rows[] = {
    {"Cast", 1, 1, convert_cast},
    {"CastLike", 2, 2, convert_cast_like},
    {"Gather", 2, 2, convert_gather},
    {"GatherElements", 2, 2, convert_gather_elements},
    {"ConstantOfShape", 1, 1, convert_constant_of_shape},
    {"Tile", 2, 2, convert_tile},
    {"Trilu", 1, 2, convert_trilu},
    {"CumSum", 2, 2, convert_cum_sum},
    {"Einsum", 1, -1, convert_einsum},
    {NULL, 0, 0, NULL},
};
