// onnx.h - the inside of the ONNX importer, shared by the onnx*.c files. Each calls only files that
// stand above its line here, and prototypes below stand in the same order:
//
//     onnx wire scalar   memory and messages; the file's bytes; arithmetic of single elements
//     tensor data        what is known at import time: elements, decoding
//     text const print   the model as .ein text
//     value              values, statements, shapes (which are asked for with the text so far)
//     node build fold    a node as its operator sees it; statements in its place, or a known value
//     math reduce ops pick window scatter nn norm resize sample fourier attention rnn quant
//     integer qlinear sequence flow ml picked
//                        operators, each file with its table
//     table              all operators, and why others are not read
//     walk graph         nodes and functions; the model. Then import.c, the command
//
// The one way up: an operator that holds graphs (flow) has their nodes walked through `ox.walk`.
//
// A value of the ONNX graph is either known at import time (an initializer, a Constant, whatever
// folds) or computed by a statement. Statements, weights and inputs are printed at the end, those
// that the outputs need. Two kinds of failure leave a node by a jump: `ox_unsupported` records a
// message, gives the node's outputs up ("lost") and goes on with the next node, so that one run
// lists everything; `ox_die` ends the import.
#ifndef CLI_ONNX_H
#define CLI_ONNX_H

#include "cli/cli.h"
#include "onnx.pb-c.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stb/stb_ds.h>

typedef Onnx__NodeProto ox_proto;
typedef Onnx__TensorProto ox_tensor;
typedef Onnx__AttributeProto ox_attribute;

enum {
    OX_MAX_DIM = INT32_MAX,   // of one axis
    OX_FOLD_LIMIT = 1 << 20,  // elements of one folded result
    OX_FOLD_TOTAL = 1 << 26,  // and of all
    OX_SYM_LIMIT = 64,        // elements up to which symbolic sizes are followed
    OX_MIN_OPSET = 1,
    OX_MAX_OPSET = 26,       // newest read without a note
    OX_MAX_CALLS = 32,       // nesting of model-local functions
    OX_MAX_STEPS = 1 << 18,  // nodes, each as often as it is visited
    OX_MAX_ARGS = 64         // operands and results of one statement
};

// A tensor known at import time. `splat`: one element stands for all. `sym[i]`, where there is one,
// is element i as an expression over the model's dims (its number under the dims' values is in
// `data`), so that a shape computed from a batch size stays right for every batch size.
typedef struct {
    cli_dtype dtype;
    int rank;
    int64_t dims[CLI_MAX_RANK];
    int64_t count;
    const uint8_t *data;
    bool splat;
    int bits;  // that its integers have in the file, where these are no whole bytes; else 0
    const char **sym;
} ox_const;

typedef struct ox_stmt ox_stmt;

// A value under the name it has in the .ein text. At most one of `known`, `initializer` (not yet
// decoded) and `maker` is set; an input has none. `rank` is -1 while nobody has asked for the
// shape.
typedef struct ox_value {
    const char *name;
    cli_dtype dtype;
    const ox_const *known;
    const ox_tensor *initializer;
    ox_stmt *maker;
    bool lost;
    const char *why;                  // of a lost value that nobody has complained about yet
    const struct ox_diagonals *mask;  // of a constant that is one, once `asked`
    bool asked;
    const struct ox_pooled *pooled;  // of indices that a MaxPool gave: of what
    struct ox_value **parts;         // of a sequence
    int n_parts;
    bool sequence;
    const char *numbers;  // name of what a mask of bools is cast from, once it has one
    // Of integers that are held as floats: their type in the file, and its bits as in ox_const.
    cli_dtype held;
    int bits;
    // Of integers where this is at hand: what they are above `zero`, as floats.
    struct ox_value *whole;
    double zero;
    bool words;  // integers of 32 bits without a sign, as i64
    bool live, declared, listed;
    int rank;
    int64_t dims[CLI_MAX_RANK];
    const char *sym[CLI_MAX_RANK];
    bool has_sym;
    bool bent;    // an axis depends on sizes in a way that `sym` does not say
    bool needed;  // by the value that ox_text is about
    // Of rows that a condition picks, and that stand along axis `along` (onnx_picked.c): which.
    const struct ox_picked *picked;
    int along;
    unsigned over;  // bit i: they depend on coordinate i of its list
} ox_value;

// A list of places that a condition picks at run time, in their order; its coordinates are axes of
// the condition with more than one place.
typedef struct ox_picked {
    ox_value *mask;  // not 0 where a place is picked
    int rank;
    int64_t dims[CLI_MAX_RANK];
    int of[CLI_MAX_RANK];  // the mask's axis that a coordinate counts; -1: its places are alike
    bool turned;           // or rather where it is 0
    const char *node;      // that made the list, for messages
    const char *end;       // the condition's name in the graph; NULL where it has none
    const char *count;     // what the number of its places is called in shapes
} ox_picked;

// An operator, or an equation: then `op` is NULL and `attrs` is all that stands behind the result's
// name.
struct ox_stmt {
    const char *op;
    ox_value **outs;  // arr
    ox_value **args;  // arr; NULL is an omitted input
    const char *attrs;
    bool live, needed;
};

typedef struct {
    const char *param;  // as in the file, or made up
    const char *name;   // in the .ein text
    int64_t value;
    bool pinned;
    bool fixed;  // as in ox_pin
    bool batch;  // first axis of an input
} ox_dim;

typedef struct {
    char *key;
    ox_value *value;
} ox_binding;

typedef struct {
    char *key;
    int value;
} ox_index;

typedef struct {
    char *key;
    const char *value;
} ox_rename;

// Attribute of a node with a function's parameter already put in.
typedef struct {
    const char *name;
    const ox_attribute *a;
    bool used;
} ox_attr;

// Names of one graph or one function body. Names inside a function get a prefix, except its
// results, which take the names of the call's outputs.
typedef struct ox_scope {
    struct ox_scope *parent;
    struct ox_scope *outer;  // whose values are seen here too: of a graph in a node, not a function
    const char *prefix;
    ox_binding *values;  // sh
    ox_rename *results;  // sh; formal result -> name at the call
    const ox_attr *attrs;
    int n_attrs;
    Onnx__OperatorSetIdProto *const *imports;
    size_t n_imports;
    int depth;
} ox_scope;

typedef struct {
    ox_scope *scope;
    const ox_proto *p;
    const char *op;
    const char *domain;  // "" is ONNX's own
    int64_t opset;
    ox_attr *attrs;
    ox_value **in;  // NULL where omitted
    int n_attrs, n_in, n_out;
    const char **out;       // names in the .ein text, NULL where omitted
    const char **out_onnx;  // names in the scope
} ox_node;

// Why something is not supported, with and without the first node that said so.
typedef struct {
    const char *reason, *text;
    int nodes;
} ox_refusal;

typedef struct {
    const char *path;
    cli_bytes bytes;
} ox_mapping;

// A list of integers that an attribute or a constant input holds.
typedef struct {
    int n;
    const int64_t *v;
    const char **sym;  // NULL, or as in ox_const
} ox_list;

typedef struct ox_block ox_block;

// A model-local function. `defaults` are values of attributes a call may leave out.
typedef struct {
    const Onnx__FunctionProto *f;
    const char *key;                  // domain, name and overload
    Onnx__AttributeProto **defaults;  // arr
    bool active;                      // being unrolled
} ox_function;

typedef struct {
    const char *name;
    int64_t value;
    bool given;  // by --dim
    bool fixed;  // the text is for this value alone and has numbers for it
    bool used;
} ox_pin;

typedef struct {
    char *name;
    const char *path;
    cli_tensor tensor;
    bool used;
} ox_given;

// A block of the text: its name, which is a number behind `kind` where that has several, and what
// stands behind the name.
typedef struct {
    const char *kind, *name, *text;
} ox_routine;

// Nodes that a note names: the first ones, and how many there are.
typedef struct {
    const char *first[3];
    int count;
} ox_named;

typedef struct ox ox;
struct ox {
    // given
    const char *path;  // of the model, "-" for standard input
    const char *model_name;
    const char *blob;   // path printed in the blob statement
    ox_pin *pins;       // arr
    ox_given *givens;   // arr
    const char **ends;  // arr; tensors that are taken for outputs; none: the model's own
    cli_shape_fn shape_of;
    void *user;
    bool quiet;  // a shape that cannot be told is no error: other sizes are tried
    // model
    Onnx__ModelProto *model;
    ox_function *functions;  // arr
    ox_block *blocks;
    ox_scope *main;
    ox_scope **scopes;     // arr; the functions' and the main one
    const ox_node *node;   // being converted, for messages
    ox_index *taken;       // sh; every name in the text
    ox_index *wanted;      // sh; graph outputs
    ox_binding *shown;     // sh; those that are other values than what nodes read by their names
    ox_index *counted;     // sh; names handed out with a number, and how many
    ox_dim *dims;          // arr
    ox_value **inputs;     // arr
    ox_value **outputs;    // arr
    ox_value **values;     // arr; all, in the order made
    ox_stmt **stmts;       // arr
    ox_routine *routines;  // arr
    ox_mapping *maps;      // arr
    char *attrs;           // arr; attributes of the statement being made
    ox_value **args;       // arr
    int64_t folded;        // elements made by folding so far
    int64_t steps;         // nodes visited so far, functions unrolled
    int64_t scanned;       // nodes looked at for being needed
    ox_named lookups;      // nodes that may read at negative positions
    ox_named sums;         // nodes whose sums of products of integers may be rounded
    ox_picked **picked;    // arr; lists of places
    ox_named picks;        // nodes that made them
    ox_named numbered;     // nodes that read picked rows by their numbers
    ox_named chosen;       // nodes of which all branches, or rounds, are computed
    ox_named unrounded;    // nodes that round operands which are not rounded here
    // Converts the nodes that `wanted` needs and frees it: ox_walk.
    void (*walk)(ox *o, ox_scope *s, ox_proto *const *nodes, size_t count, ox_index *wanted);
    // messages
    const char *cut;       // tensor in front of the first refused node that another made
    const char *lacking;   // input of integers that a refused node is computed from
    ox_refusal *refusals;  // arr
    char *notes;           // arr of characters
    cli_error error;
    jmp_buf fail;
    jmp_buf *node_fail;
};

// ---- onnx.c: memory, text, messages ----
void *ox_alloc(ox *o, size_t size);  // zeroed, freed with the import
void ox_release(ox *o);              // all of it
char *ox_copy(ox *o, const char *text);
char *ox_format(ox *o, const char *format, ...) CLI_PRINTF(2, 3);
const char *ox_or_empty(const char *s);  // the file's texts may be absent
void ox_put(char **text, const char *format, ...) CLI_PRINTF(2, 3);  // appends to an arr
const char *ox_take(ox *o, char **text);  // a copy that lives as long as the import; frees the arr
CLI_NORETURN void ox_die(ox *o, const ox_node *n, const char *format, ...) CLI_PRINTF(3, 4);
CLI_NORETURN void ox_unsupported(ox *o, const ox_node *n, const char *format, ...) CLI_PRINTF(3, 4);
CLI_NORETURN void ox_lose(ox *o);  // as ox_unsupported, for a node whose input is lost already
// False when `what` met something unsupported.
bool ox_attempt(ox *o, void (*what)(ox *, void *), void *argument);
void ox_note(ox *o, const char *format, ...) CLI_PRINTF(2, 3);
const char *ox_title(ox *o, const ox_node *n);  // what messages call it
void ox_name_node(ox *o, ox_node *n, ox_named *nodes);

// ---- onnx_wire.c ----
// Checks the wire format against a message's description without recursion: lengths, wire types,
// nesting, strings, and the memory that unpacking will take.
bool ox_scan(const uint8_t *data, size_t size, const ProtobufCMessageDescriptor *type,
             cli_error *error);
extern ProtobufCAllocator ox_allocator;
// Payload of the next field `tag` of length-delimited type among a message's unknown fields, from
// field `*at` on; false when there is none left.
bool ox_unknown(const ProtobufCMessage *m, unsigned tag, size_t *at, const uint8_t **data,
                size_t *size);

// ---- onnx_scalar.c ----
// Up to DIV with sizes for operands, from NEG on of one operand, from EQ to GE of type bool.
typedef enum {
    OX_ADD,
    OX_SUB,
    OX_MUL,
    OX_DIV,
    OX_MOD,
    OX_POW,
    OX_MAX,
    OX_MIN,
    OX_EQ,
    OX_LT,
    OX_LE,
    OX_GT,
    OX_GE,
    OX_AND,
    OX_OR,
    OX_NEG,
    OX_ABS,
    OX_FLOOR,
    OX_CEIL,
    OX_ROUND,
    OX_SQRT,
    OX_RECIPROCAL,
    OX_EXP,
    OX_LOG,
    OX_SIN,
    OX_COS,
    OX_NOT
} ox_scalar;

int64_t ox_compute_int(ox *o, ox_node *n, ox_scalar op, int64_t a, int64_t b);
double ox_compute_float(ox_scalar op, double a, double b);
bool ox_is_symbolic(ox_list list);  // whether any number depends on a dim
// `a op b` as an expression, where a NULL side is a number. NULL when it gets out of hand.
const char *ox_join(ox *o, char op, const char *a, int64_t x, const char *b, int64_t y);

// ---- onnx_tensor.c ----
cli_dtype ox_dtype(int32_t onnx_type);
cli_dtype ox_stored(int32_t onnx_type, int *bits);  // of a constant: integers of 2 or 4 bits too
const char *ox_type_name(int32_t onnx_type);
bool ox_is_float(cli_dtype dtype);
ox_const *ox_make(ox *o, cli_dtype dtype, int rank, const int64_t *dims);  // dense, zero
ox_const *ox_make_upto(ox *o, cli_dtype dtype, int rank, const int64_t *dims, int64_t limit);
const ox_const *ox_from_tensor(ox *o, const cli_tensor *t);
const ox_const *ox_splat(ox *o, cli_dtype dtype, int rank, const int64_t *dims,
                         const uint8_t *element);
const ox_const *ox_reshaped(ox *o, const ox_const *c, int rank, const int64_t *dims);
const ox_const *ox_cast(ox *o, const ox_const *c, cli_dtype to);
int64_t ox_geti(const ox_const *c, int64_t i);
double ox_getf(const ox_const *c, int64_t i);
void ox_seti(ox_const *c, int64_t i, int64_t value);
void ox_setf(ox_const *c, int64_t i, double value);
const char *ox_sym(const ox_const *c, int64_t i);  // NULL when element i is a plain number
void ox_set_sym(ox *o, ox_const *c, int64_t i, const char *sym);

// ---- onnx_data.c ----
const ox_const *ox_decode(ox *o, const ox_tensor *t, const char *name);

// ---- onnx_text.c ----
// Marks in the text of a statement: spaces in the end, at which a long line may (BREAK) or will
// (BREAK_FIRST) be broken.
#define OX_BREAK "\x01"
#define OX_COMMA "," OX_BREAK
#define OX_BREAK_FIRST "\x02"

void ox_put_name(char **text, const char *name);  // bare where the language allows it, else quoted
void ox_put_quoted(char **text, const char *name);
void ox_put_type(char **text, cli_dtype dtype, int rank, const int64_t *dims,
                 const char *const *sym);
void ox_put_float(char **text, double value);  // shortest text that reads back as the same f32
const char *ox_fresh(ox *o, const char *base, const char *suffix);  // a name nobody has
// Nobody's name, with and without a digit behind.
const char *ox_free_name(ox *o, const char *letter);
char *ox_lay_out(char *marked);  // breaks lines; frees the arr and gives another

// ---- onnx_const.c ----
// A constant that statements read; true when it stands in the file of weights.
bool ox_put_constant(ox *o, char **text, ox_value *v);

// ---- onnx_print.c ----
void ox_put_statement(char **text, const ox_stmt *s);
char *ox_text(ox *o, ox_value *want, int probed, int64_t value);  // arr; the model so far

// ---- onnx_value.c: values, statements, shapes ----
ox_value *ox_new_value(ox *o, const char *name, cli_dtype dtype);
const ox_const *ox_known(ox *o, ox_value *v);  // NULL when computed
ox_value *ox_constant(ox *o, const char *base, const char *suffix, const ox_const *c);
void ox_begin(ox *o);  // a statement: ox_arg and ox_set_* calls, then ox_end
void ox_arg(ox *o, ox_value *v);
void ox_set_int(ox *o, const char *name, int64_t value);
void ox_set_float(ox *o, const char *name, double value);
void ox_set_word(ox *o, const char *name, const char *word);
void ox_set_list(ox *o, const char *name, ox_list list);
void ox_set_floats(ox *o, const char *name, const double *v, int n);
ox_value *ox_end(ox *o, const char *op, const char *name, cli_dtype dtype);
void ox_finish(ox *o, const char *op, ox_value **outs, int n);
bool ox_is_truth(const char *op);   // whether the results of an operator are bool
bool ox_shape(ox *o, ox_value *v);  // fills v->rank and v->dims
void ox_need_shape(ox *o, ox_node *n, ox_value *v);
void ox_need_sym(ox *o, ox_node *n, ox_value *v);  // and v->sym

// ---- onnx_node.c: attributes, inputs, outputs of a node ----
void ox_step(ox *o, ox_node *n);  // counts a node, or a round; there are not too many
void ox_check_lost(ox *o, ox_node *n, ox_value *v);            // leaves the node when it is
bool ox_look_up(ox_scope *s, const char *name, ox_value **v);  // false: it is not defined
ox_value *ox_opt(ox *o, ox_node *n, int input);                // NULL when omitted
ox_value *ox_in(ox *o, ox_node *n, int input);                 // must be there
int64_t ox_axis(ox *o, ox_node *n, int64_t axis, int rank);
const ox_attr *ox_attr_of(const ox_attr *attrs, int n, const char *name);
bool ox_has(const ox_node *n, const char *name);
const ox_attr *ox_find(ox *o, ox_node *n, const char *name);  // marks it as used
int64_t ox_int(ox *o, ox_node *n, const char *name, int64_t otherwise);
double ox_float(ox *o, ox_node *n, const char *name, double otherwise);
const char *ox_string(ox *o, ox_node *n, const char *name, const char *otherwise);
bool ox_ints(ox *o, ox_node *n, const char *name, ox_list *list);
ox_list ox_list_of(ox *o, ox_node *n, const char *name, const ox_const *c);
// An attribute in old opsets, a constant input in new ones. False when absent.
bool ox_int_input(ox *o, ox_node *n, const char *name, int input, ox_list *list);
// Starts, ends, axes and steps of a Slice; the last two may be empty.
void ox_slice_lists(ox *o, ox_node *n, ox_list lists[4]);
void ox_check_broadcast(ox *o, ox_node *n);
bool ox_wants(const ox_node *n, int output);
const char *ox_first(ox *o, ox_node *n);                   // name of the first output
const char *ox_base(ox *o, ox_node *n);                    // of the first that is used
void ox_bind(ox *o, ox_node *n, int output, ox_value *v);  // output of a node is this value
void ox_bind_known(ox *o, ox_node *n, int output, const ox_const *c);
void ox_end_node(ox *o, ox_node *n, const char *op);  // ox_end for the node's only output

// ---- onnx_build.c: statements that an operator is written out with ----
ox_value *ox_unary(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x);
ox_value *ox_binary(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *a,
                    ox_value *b);
ox_value *ox_truth(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *a,
                   ox_value *b);  // as ox_binary; the result is bool
ox_value *ox_where(ox *o, ox_node *n, const char *suffix, ox_value *p, ox_value *a, ox_value *b);
ox_value *ox_with_list(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x,
                       const char *attr, ox_list list);
ox_value *ox_with_int(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *x,
                      const char *attr, int64_t value);  // a list of one
ox_value *ox_slice_of(ox *o, ox_node *n, const char *suffix, ox_value *x, int64_t axis,
                      int64_t start, int64_t end_at);
ox_value *ox_clip_to(ox *o, ox_node *n, const char *suffix, ox_value *x, double low, double high);
ox_value *ox_cast_to(ox *o, ox_node *n, const char *suffix, ox_value *x, cli_dtype to);
ox_value *ox_number(ox *o, ox_node *n, const char *suffix, cli_dtype dtype, double value);
ox_value *ox_by_number(ox *o, ox_node *n, const char *op, const char *suffix, ox_value *v,
                       double number);
ox_value *ox_places(ox *o, ox_node *n, int rank, int64_t axis, int64_t count);
ox_value *ox_concat(ox *o, ox_node *n, const char *suffix, ox_value **parts, int count,
                    int64_t axis);  // overwrites `parts`
void ox_concat_node(ox *o, ox_node *n, ox_value **parts, int count, int64_t axis);
void ox_split_into(ox *o, ox_node *n, const char *suffix, ox_value *x, int64_t axis, int64_t size,
                   int count, ox_value **parts);
void ox_bind_as(ox *o, ox_node *n, int output, const char *op, ox_value *x, const char *attr,
                ox_list list);        // `attr` may be NULL
bool ox_is_zero(ox *o, ox_value *v);  // known to be 0 everywhere
// The node's only output:
void ox_plain(ox *o, ox_node *n);  // by the operator of its name, every input an argument
void ox_end_binary(ox *o, ox_node *n, const char *op, ox_value *a, ox_value *b);
void ox_end_list(ox *o, ox_node *n, const char *op, ox_value *x, const char *attr, ox_list list);

// ---- onnx_block.c: statements that come again and again ----
typedef struct {
    const char *name;     // of the block
    ox_value **operands;  // of its first call
    int count;
} ox_call;

// What an operand is to the block.
typedef struct {
    ox_value *value;
    const char *name;
} ox_role;

// Has the statements from number `from` on, which make `results` for others, stand in a block that
// is called. False leaves them as they are.
bool ox_make_block(ox *o, ox_call *c, const char *name, ptrdiff_t from, const ox_role *roles,
                   int n_roles, ox_value **results, int n);
// Calls it again, with others instead of the first call's operands in these roles.
void ox_call_block(ox *o, const ox_call *c, const ox_role *roles, ox_value *const *instead,
                   int n_roles, ox_value **results, int n);

// ---- onnx_fold.c ----
bool ox_fold(ox *o, ox_node *n);  // true when the outputs are bound to known values
bool ox_folds(const char *op);    // an operator of ONNX that only folding knows

// What is folded: by a function of its own, or by one that several scalar operators share.
typedef struct {
    const char *op;
    int min_in;
    bool (*fold)(ox *o, ox_node *n);
    bool (*compute)(ox *o, ox_node *n, ox_scalar by);
    ox_scalar by;
} ox_folding;

extern const ox_folding ox_fold_moves[];  // onnx_fold_move.c; ends with a NULL op

bool ox_fold_fits(ox *o, int rank, const int64_t *dims);  // few enough elements; counts them
bool ox_fold_to(ox *o, ox_node *n, const ox_const *c);    // binds the only output, unless NULL
const ox_const *ox_known_in(ox *o, ox_node *n, int input);
void ox_dense_strides(const ox_const *c, int64_t *strides);
void ox_copy_element(ox *o, ox_const *to, int64_t at, const ox_const *from, int64_t i);
// Offset of element i of a box in a tensor with the given strides.
int64_t ox_offset_of(int64_t i, int rank, const int64_t *dims, const int64_t *strides);
// Copy of the elements base + sum index * stride. NULL when there are too many.
const ox_const *ox_view(ox *o, const ox_const *c, int rank, const int64_t *dims,
                        const int64_t *strides, int64_t base);

// ---- operators with which others are written out; they read their attributes of the node ----
ox_value *ox_softmax(ox *o, ox_node *n, const char *op, ox_value *x, int64_t opset,
                     const char *name);
ox_value *ox_conv(ox *o, ox_node *n, ox_value *x, ox_value *weight, ox_value *bias,
                  const char *name);
ox_value *ox_average(ox *o, ox_node *n, ox_value *x, const char *name);
void ox_recurrent(ox *o, ox_node *n);  // LSTM, GRU, RNN: the whole node
// The node as reads of x at places of an axis that follow a rule; false where they follow none.
bool ox_read_in_place(ox *o, ox_node *n, ox_value *x, const ox_const *c, int axis);

// ---- onnx_math.c ----
// Integers as words: the rest that division by 2^32 leaves, which is never below 0. And as integers
// again: of i32, words of 2^31 and more are below 0.
ox_value *ox_as_words(ox *o, ox_node *n, ox_value *v);
ox_value *ox_from_words(ox *o, ox_node *n, ox_value *v, cli_dtype to);

// ---- onnx_window.c: rows of positions that are the places of a window ----
// Places of one axis that a number of the rows goes through: begin, begin + step, .. along axis
// `axis` of the rows (-1: one place).
typedef struct {
    int axis;
    int64_t begin, step, count;
} ox_range;

// Whether rows of k numbers `at` [..,k] are the places of a window of x's first k axes, each once.
bool ox_window(ox *o, ox_node *n, ox_value *at, const ox_value *x, int k, ox_range *w);
bool ox_is_whole(const ox_value *x, int axis, const ox_range *w);  // all of an axis
ox_value *ox_window_along(ox *o, ox_node *n, ox_value *x, int64_t axis, const ox_range *w);
// The window of x with the axes of the rows, `rows` of them, for its own; and what has those with
// the axes of x.
ox_value *ox_window_of(ox *o, ox_node *n, ox_value *x, int k, const ox_range *w, int rows);
ox_value *ox_window_updates(ox *o, ox_node *n, ox_value *u, int k, const ox_range *w, int rows);

// ---- onnx_quant.c: integers that are held as floats ----
// Where the numbers of a scale or a zero point stand: one for all or, of `size` places of an axis
// that `behind` others follow, one for each; `full`: or with as many axes as the tensor.
typedef struct {
    int64_t size;
    int behind;
    bool full;
} ox_along;

// Input `input` as a factor of type `dtype` that broadcasts; `divides`: what is divided by.
ox_value *ox_scale(ox *o, ox_node *n, int input, ox_along by, cli_dtype dtype, bool divides);
// The same of a zero point of `q`; NULL where it is absent or 0.
ox_value *ox_zero(ox *o, ox_node *n, int input, ox_along by, cli_dtype dtype, ox_value *q);
ox_value *ox_times(ox *o, ox_node *n, ox_value *a, ox_value *b);  // folded where both are known
ox_value *ox_over(ox *o, ox_node *n, ox_value *a, ox_value *b);
ox_value *ox_scaled(ox *o, ox_node *n, ox_value *x, ox_value *by);  // x * by
// What the integers of `q` are above `zero`, as floats of type `dtype`.
ox_value *ox_whole(ox *o, ox_node *n, ox_value *q, ox_value *zero, cli_dtype dtype);
// Output `output` is `x` in steps, rounded, moved by `zero` and cut to integers of `type`.
void ox_bind_rounded(ox *o, ox_node *n, int output, ox_value *x, ox_value *zero, cli_dtype type,
                     int bits);
// The type of a quantised result: of its zero point, input `input`, or else of `q`.
cli_dtype ox_result_type(ox *o, ox_node *n, int input, ox_value *q, int *bits);

void ox_quantize(ox *o, ox_node *n);
void ox_dequantize(ox *o, ox_node *n);

// ---- onnx_integer.c ----
void ox_check_channels(ox *o, ox_node *n);  // refuses those that are last
void ox_qlinear_conv(ox *o, ox_node *n);
// Integers, as floats, that bytes are multiplied with and summed, each place of the first axis or
// (by_first false) each column: in units, a power of two, in which sums are within f16. Says so
// where sums may be rounded.
ox_value *ox_in_reach(ox *o, ox_node *n, ox_value *b, bool by_first, double *unit);
ox_value *ox_in_units(ox *o, ox_node *n, ox_value *v, double unit);  // v / unit
// x over the scale of 255 steps from its least element to its largest, 0 among them; *zero is the
// step that 0 is.
ox_value *ox_in_steps(ox *o, ox_node *n, ox_value *x, ox_value **scale, ox_value **zero);

// ---- operators: tables that end with a NULL op ----
typedef struct {
    const char *op;
    int min_in, max_in;  // max_in -1: any number
    void (*convert)(ox *o, ox_node *n);
} ox_row;

extern const ox_row ox_math_rows[];
extern const ox_row ox_reduce_rows[];
extern const ox_row ox_shape_rows[];  // onnx_ops.c
extern const ox_row ox_pick_rows[];
extern const ox_row ox_scatter_rows[];
extern const ox_row ox_nn_rows[];
extern const ox_row ox_norm_rows[];
extern const ox_row ox_resize_rows[];
extern const ox_row ox_sample_rows[];
extern const ox_row ox_fourier_rows[];
extern const ox_row ox_attention_rows[];
extern const ox_row ox_rnn_rows[];
extern const ox_row ox_quant_rows[];
extern const ox_row ox_integer_rows[];
extern const ox_row ox_runtime_rows[];  // of domain com.microsoft; onnx_qlinear.c
extern const ox_row ox_sequence_rows[];
extern const ox_row ox_flow_rows[];
extern const ox_row ox_ml_rows[];  // of domain ai.onnx.ml
extern const ox_row ox_picked_rows[];
bool ox_has_graph(const char *op);  // among ox_flow_rows

// ---- onnx_picked.c: rows that are picked at run time ----
bool ox_is_picked(const ox_node *n);  // whether an input has such rows, or counts them
// Converts such a node by `convert`, with all rows for those that are picked.
void ox_convert_picked(ox *o, ox_node *n, void (*convert)(ox *o, ox_node *n));

// ---- onnx_table.c ----
bool ox_is_standard(const char *domain);  // ONNX's own
bool ox_is_learning(const char *domain);  // its second one, ai.onnx.ml
bool ox_is_runtime(const char *domain);   // onnxruntime's, com.microsoft
const ox_row *ox_row_of(const char *domain, const char *op);
const char *ox_nearest(const char *op);  // NULL when nothing is near
const char *ox_reason(const char *op);   // why one is not imported; NULL: no such operator is known

// ---- onnx_walk.c ----
void ox_load_functions(ox *o);
void ox_walk(ox *o, ox_scope *s, ox_proto *const *nodes, size_t count, ox_index *wanted);

// ---- onnx_graph.c ----
// Reads a model and fills in statements, inputs and outputs; false leaves o->error and o->refusals.
bool ox_convert(ox *o, const uint8_t *data, size_t size);
void ox_free(ox *o);

#endif  // CLI_ONNX_H
