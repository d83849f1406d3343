// Internal types, in the order of the pipeline. There are no prototypes: all.h includes the modules
// bottom-up and every function shared between modules is EIN__FN (static), so the compiler itself
// refuses a call of a module further down.
//
// Words that comments of all modules use:
//   scope      iterators with their ranges and a scalar body: the definition of a tensor. Traversal
//              iterators come first, one for each dimension, then those that are reduced.
//   value      a tensor of the program with its scope, or an input or weight. Its box is where its
//              elements are; a read elsewhere gives the padding.
//   map        a value whose scope reduces nothing; contraction: one that sums products of two
//              reads, which are its factors; product: a contraction, or the kernel for one
//   slot       an iterator's number in its scope
//   subscript  the index form behind one dimension of a read: affine in atoms, which are iterators,
//              quotients and remainders of forms. A digit is (i / d) % e of iterator i.
//   place      a position in a value, one number for each dimension
//   terms      what a reduction combines: one for each place of its reduced iterators
//   taps       the places of a window; phases: places that agree modulo a stride or a factor
//   lines      of a product's tile: rows or columns, whichever factor is meant
//   parts      shares of a reduction's terms that blocks, warps or kernels have (split-K)
//   at load    once, in create: so all is computed that depends on weights alone
//   own        of kernels: generated from templates/, in contrast to calls of a library
#ifndef EIN_INT_H
#define EIN_INT_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stb/stb_ds.h>

#if defined(__GNUC__)
#define EIN__FN static __attribute__((unused))
#else
#define EIN__FN static
#endif
#define EIN__PRINTF(f, a) __attribute__((format(printf, f, a)))
#define EIN__COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#define EIN__F32_MAX 3.4028234663852886e38
#define EIN__MAX_RANK 10     // dimensions of a tensor
#define EIN__MAX_ITERS 16    // traversal and reduction iterators of one scope
#define EIN__MAX_TERMS 12    // terms of one index form
#define EIN__MAX_ARGS 64     // operands of one operator
#define EIN__MAX_PARAMS 256  // pointers that a kernel takes; CUDA has 4096 bytes
#define EIN__KNOWN_ITERS 256
#define EIN__MAX_ELEMENTS ((int64_t)1 << 40)
#define EIN__MAX_VOLUME ((int64_t)1 << 60)
enum { EIN__BRANCHES = 4 };  // of a recorded graph, at most
#define EIN__MAX_NODES 20000
#define EIN__MAX_DEPTH 200  // nesting of parentheses, blocks and lists in a model's text

// ---------------------------------------------------------------------------------------- base.c

// Memory of a context, released all at once. Blocks are zeroed and 16-byte aligned.
typedef struct ein__arena {
    struct ein__chunk *head;
} ein__arena;

// Growing text. `s` is always NUL-terminated once anything was put.
typedef struct ein__buf {
    char *s;
    size_t n, cap;
} ein__buf;

// Byte records interned to dense ids from 1 (0 is "none"). Equal bytes give the same id; records
// never move, so pointers to them stay valid.
typedef struct ein__slot {
    uint32_t id, hash;  // id 0: free
} ein__slot;

typedef struct ein__table {
    const void **rec;       // stb_ds array; rec[0] unused
    uint32_t *hash, *size;  // of the records, likewise
    ein__slot *slot;        // open addressing, power of two
    uint32_t mask;
    uint32_t derived;  // bytes that records begin with and that follow from the others
} ein__table;

typedef struct ein__pos {
    uint32_t line, col;
} ein__pos;  // 1-based; line 0: no place in the text

// ------------------------------------------------------------------------------------- syntax.c

// One node of the syntax tree: subscripts, scalar expressions and attribute values share it.
typedef enum {
    EIN__A_NUM,   // num; integral says whether it was written without point and exponent
    EIN__A_NAME,  // name: index, dim, parameter or bare word
    EIN__A_STR,   // name holds the text
    EIN__A_LIST,  // attribute lists; kids
    EIN__A_NEG,   // kid 0
    EIN__A_ADD,
    EIN__A_SUB,
    EIN__A_MUL,
    EIN__A_DIV,
    EIN__A_MOD,     // kids 0, 1
    EIN__A_CMP,     // name is one of == != < <= > >=; kids 0, 1: guard [P] or select's condition
    EIN__A_GUARD,   // kid 0 is EIN__A_CMP over subscripts
    EIN__A_REDUCE,  // name is sum prod max min; kids: EIN__A_NAME per iterator, then the body
    EIN__A_CALL,    // name; kids are arguments
    EIN__A_READ,    // name is the tensor; kids are subscripts, or EIN__A_GATHER
    EIN__A_GATHER,  // @read; kid 0 is EIN__A_READ
    EIN__A_IDX      // idx(subscript); kid 0
} ein__akind;

typedef struct ein__ast {
    ein__akind kind;
    ein__pos pos;
    const char *name;
    double num;
    int64_t inum;
    bool integral;
    bool floored;  // a value: integers were divided on the way, and a rest was left
    int nkid;
    struct ein__ast **kid;
} ein__ast;

typedef struct ein__attr {
    const char *name;
    ein__pos pos;
    ein__ast *value;
} ein__attr;

typedef enum {
    EIN__F32,
    EIN__F16,
    EIN__BF16,
    EIN__I8,
    EIN__U8,
    EIN__I32,
    EIN__I64,
    EIN__BOOL,
    EIN__NDTYPE
} ein__dtype;

// `T[i,j] = body where i in lo:hi, pad x 0`
typedef struct ein__range {
    const char *name;
    ein__pos pos;
    ein__ast *lo, *hi;
} ein__range;
typedef struct ein__padval {
    const char *tensor;
    ein__pos pos;
    double value;
} ein__padval;
typedef struct ein__equation {
    const char *result;
    ein__pos pos;
    int rank;
    const char *index[EIN__MAX_RANK];
    ein__pos index_pos[EIN__MAX_RANK];
    ein__ast *body;
    int nrange, npad;
    ein__range *range;
    ein__padval *pad;
    ein__dtype dtype;  // of an operator's own value; EIN__NDTYPE: what the body comes to
} ein__equation;

// ------------------------------------------------------------------------------------- graph.c

typedef struct ein__shape {
    int rank;
    int64_t d[EIN__MAX_RANK];
} ein__shape;

typedef enum { EIN__T_INPUT, EIN__T_WEIGHT, EIN__T_VALUE } ein__tkind;
typedef enum {
    EIN__S_NONE,
    EIN__S_BLOB,
    EIN__S_ZEROS,
    EIN__S_ONES,
    EIN__S_RANDN,
    EIN__S_UNIFORM
} ein__source_kind;

// A tensor of the flat graph: blocks and repeats are expanded, every dim is a number.
typedef struct ein__tensor {
    const char *name;  // full name, unique
    ein__tkind kind;
    ein__dtype dtype;
    ein__shape shape;
    int64_t lo[EIN__MAX_RANK];  // first index per dimension: non-zero only for equations' results
    ein__pos pos;
    int node;                 // producing node, -1 for inputs and weights
    ein__source_kind source;  // weights
    const char *blob, *key;
    int64_t seed;
    double a, b;  // std, or lo and hi
} ein__tensor;

typedef struct ein__node {
    const char *op;  // operator's name; NULL for an equation
    ein__pos pos;
    const ein__equation *eq;  // equations: names resolved through `bind`
    int nin, nout, nattr;
    int *in;  // tensor per argument, -1 for `_`; equations: tensors read, in order of first read
    const char **in_name;  // equations: the name each of them has in the text
    int *out;
    ein__attr *attr;  // integer expressions already folded to numbers
} ein__node;

typedef struct ein__output {
    const char *name;
    int tensor;
    ein__pos pos;
} ein__output;

typedef struct ein__graph {
    const char *model;    // name
    ein__tensor *tensor;  // stb_ds arrays
    ein__node *node;      // in an order where operands come first
    int *input, *weight;  // tensors in declaration order
    ein__output *output;
    struct {
        const char *name;
        int64_t value, small;
        ein__pos pos;
    } * dim;
    struct {
        const char *name, *path;
        ein__pos pos;
    } * blob;
    uint64_t hash;  // of the canonical form without comments
} ein__graph;

// --------------------------------------------------------------------------- index.c and expr.c

// Handles of interned objects; 0 is "none". One-field structs keep the kinds apart.
typedef struct {
    uint32_t i;
} ein__ix;  // index form
typedef struct {
    uint32_t i;
} ein__ex;  // scalar expression
typedef struct {
    uint32_t i;
} ein__sc;  // scope
typedef struct {
    uint32_t i;
} ein__val;  // tensor value

// An atom of an index form. All iterators run over [0, n); `n` is part of the identity, so bounds
// are a property of the form alone. Slots 0..nt-1 of a scope are traversal, nt..nt+ns-1 reduction.
typedef enum { EIN__ITER, EIN__FLOOR, EIN__MOD, EIN__GATHER } ein__atom_kind;
typedef struct ein__atom {
    uint32_t kind;
    uint32_t slot;  // ITER
    int64_t n;      // ITER: extent; FLOOR, MOD: divisor > 1; GATHER: 0
    uint32_t ix;    // FLOOR, MOD: operand (an integer form, q == 1)
    uint32_t ex;    // GATHER: a READ of an integer tensor
} ein__atom;

// (c + sum k_j * atom_j) / q, gcd-reduced, atoms ascending by id, no zero k, q >= 1. When q > 1 the
// form is an index only where the division is exact; a read elsewhere gives padding.
typedef struct ein__term {
    int64_t k;
    uint32_t atom;
    uint32_t unused;
} ein__term;
typedef struct ein__index {
    int64_t lo, hi;  // bounds of the value, rounded inwards to integers; derived
    int64_t c, q;
    uint32_t n, unused;
    ein__term t[EIN__MAX_TERMS];  // records are interned at their used length
} ein__index;

typedef enum {
    EIN__X_CONST,   // bits: the double
    EIN__X_IDX,     // ix[0] as a value
    EIN__X_READ,    // val[ix...]; bits: padding (0 when the read is provably inside)
    EIN__X_UNARY,   // fn, kid 0
    EIN__X_BINARY,  // fn, kids 0, 1
    EIN__X_WHEN,    // kid 0 where ix[0] is an integer in [0, n) (negate: is not), else 0, not
                    // evaluated
    EIN__X_SELECT   // kid 0 cmp kid 1 ? kid 2 : kid 3
} ein__xop;

// ORDER fn: ein__fn_info in expr.c
typedef enum {
    EIN__ADD,
    EIN__SUB,
    EIN__MUL,
    EIN__DIV,
    EIN__POW,
    EIN__MIN,
    EIN__MAX,
    EIN__EQ,
    EIN__NE,
    EIN__LT,
    EIN__LE,
    EIN__GT,
    EIN__GE,  // SELECT only
    EIN__NEG,
    EIN__ABS,
    EIN__RELU,
    EIN__TANH,
    EIN__EXP,
    EIN__LOG,
    EIN__SQRT,
    EIN__RSQRT,
    EIN__ERF,
    EIN__SIGMOID,
    EIN__FLOORF,
    EIN__CEILF,
    EIN__SQUARE,
    EIN__SIN,
    EIN__COS,
    EIN__ATAN,
    EIN__QUOT,  // of integers as of floats: rounded to zero
    EIN__REM,   // what that leaves
    EIN__NFN
} ein__fn;

typedef struct ein__expr {
    uint32_t op, fn;
    uint32_t val;
    uint16_t negate;
    uint16_t reads;  // derived: whether there is any READ in it
    uint64_t bits;
    int64_t n;
    uint32_t nkid, nix;
    ein__ex kid[4];
    ein__ix ix[EIN__MAX_RANK];
} ein__expr;

typedef struct ein__fn_info {
    const char *name;
    int arity;
} ein__fn_info;

typedef enum { EIN__R_NONE, EIN__R_SUM, EIN__R_PROD, EIN__R_MAX, EIN__R_MIN } ein__red;

// V[i0..] = reduce over the sum iterators of body. Either a pure map (R_NONE, ns == 0) or one
// reduction at the top: bodies hold no reductions.
typedef struct ein__scope {
    uint32_t reduce, nt, ns;
    ein__ex body;
    int64_t n[EIN__MAX_ITERS];  // extents by slot
} ein__scope;

typedef enum { EIN__V_INPUT, EIN__V_WEIGHT, EIN__V_SCOPE } ein__vkind;

typedef struct ein__value {
    const char *name;  // of the model's tensor, or derived from one (`conv1.sum`)
    ein__vkind kind;
    int tensor;  // graph tensor of inputs and weights, else the tensor it belongs to (or -1)
    ein__sc scope;
    ein__shape shape;  // equals the scope's traversal extents
    ein__dtype dtype;
    bool weight_only;  // no input is needed: computed once, at load
    bool wide;         // copies or, known at load, is made of what is (ein__is_wide)
    bool made;         // stands in for what is no input (search.c)
    int node;          // graph node it came from, -1: none
    const char *why;   // the rules that led to this definition; NULL: it is the model's own
    ein__val was;      // what a pass over the program made it of, or none
} ein__value;

// ------------------------------------------------------------------------------------- plan.c

// Address of element (i0, i1, ..) of a value: buffer + offset + sum stride_d * i_d, in elements.
typedef struct ein__layout {
    int buffer;  // index into plan.buffer
    int64_t offset;
    int64_t stride[EIN__MAX_RANK];
} ein__layout;

typedef enum {
    EIN__B_INPUT,
    EIN__B_OUTPUT,
    EIN__B_WEIGHT,  // in the blob, kept on the device as it is
    EIN__B_CONST,   // computed in create, kept
    EIN__B_INIT,    // only needed in create: raw weights (index >= 0) and temporaries
    EIN__B_ARENA
} ein__bkind;
typedef struct ein__buffer {
    ein__bkind kind;
    const char *name;  // content-derived, a C identifier
    int64_t bytes;
    ein__dtype dtype;
    int64_t at;    // byte offset in the arena (ARENA), the constants (CONST, WEIGHT) or INIT
    int index;     // which input, output or weight
    int first;     // step that defines it, -1: none uses it
    bool rounded;  // of constants: products in TF32 alone read it, so create may round it
    // By branch: the last step that uses it, and the last one that is over before any of its uses.
    int last_on[EIN__BRANCHES], known[EIN__BRANCHES];
} ein__buffer;

typedef enum {
    EIN__K_CONV,       // cuDNN convolution forward
    EIN__K_CONV_DATA,  // cuDNN backward-data: transposed convolution
    EIN__K_GEMM,       // cuBLAS strided-batched GEMM
    EIN__K_MAP,        // one output element a thread (or a vector of them)
    EIN__K_TRANSPOSE,  // a permutation whose innermost dimension changes: tiles through shared
                       // memory
    EIN__K_REDUCE,     // one output element a thread, the reduction in a loop, epilogue fused
    EIN__K_PLACE,      // where rows are largest or smallest: values and places reduced as pairs
    EIN__K_ROW,        // one row a warp or block: reductions over the row in phases, then maps
    EIN__K_BAND,       // product whose second operand moves with the row (G2BMM, GBMM): tiled
    EIN__K_BASIS,      // small constant transform: tiles in registers
    EIN__K_ATTENTION,  // product, softmax and product in tiles, the scores never stored
    EIN__K_PRODUCT     // contraction of any form: tiles through shared memory, epilogue fused
} ein__kind;

// Where the hashes of templates stand that kernels made of several have beside those of kinds.
enum { EIN__SEED_STITCH = 15, EIN__SEED_SIBLINGS, EIN__SEED_CHAIN, EIN__SEED_CROSS, EIN__SEEDS };

// The arithmetic of a library call; see precision.c.
typedef enum { EIN__MATH_FP32, EIN__MATH_TF32, EIN__MATH_FP16 } ein__math;

typedef struct ein__conv {
    int spatial;             // 1..3
    int64_t n, c, f, group;  // f output channels in all
    int64_t in[3], out[3], k[3], pad[3], stride[3], dilation[3];
    bool nhwc;         // channels lie innermost in data, result and filter [f, k..., c/group]
    ein__val x, w;     // data, weights [f, c/group, k...]
    ein__val bias, z;  // or none: fused
    bool relu;
    ein__math math;
} ein__conv;

typedef enum { EIN__ACT_NONE, EIN__ACT_RELU, EIN__ACT_GELU } ein__act;  // GELU: its tanh form

// row-major C[m,n] = act(alpha A[m,k] B[k,n] + Z[m,n] + bias[n]), `batch` times
typedef struct ein__gemm {
    int64_t batch, m, n, k;
    bool ta, tb;                        // operand stored transposed
    int64_t lda, ldb, ldc, sa, sb, sc;  // leading dimensions, batch strides; elements
    int64_t oa, ob;                     // offsets from the values' first elements
    uint32_t rows, columns;             // iterators of the result that m and n stand for
    ein__val a, b;
    double alpha;
    ein__val bias, z;  // or none: fused, as `act` is; a call with any of them is cublasLt's
    ein__act act;
    int64_t ldz, sz, obias;
    int align;  // bytes: of every operand's address, where it is cublasLt's
    ein__math math;
    bool wide;  // of halves, with an f32 result
} ein__gemm;

// What of a kernel's work belongs to one slice of value `v`, which is in shared memory: dimensions
// `dims` of it number the slices, and so do iterators at[0..n-1] of the kernel's first value, the
// outermost one first.
typedef struct ein__slice {
    ein__val v;
    uint32_t dims;
    int n;
    uint8_t at[EIN__MAX_RANK];
} ein__slice;

enum { EIN__STEP_VALUES = 16 };  // that one kernel computes
enum { EIN__PART_VALUES = 3 };   // or a part of one
enum { EIN__ROW_LOADS = 2 };     // maps that a row's kernel computes in front of it

// One launch or library call. Kernels compute vals[0..nval-1]: the earlier ones live in registers
// (reductions), the last one is stored; a ROW step may have several reductions.
typedef struct ein__step {
    ein__kind kind;
    const char *name;  // unique, content-derived, a C identifier
    ein__val out;
    int nval;
    ein__val val[EIN__STEP_VALUES];
    ein__val load[2];   // PRODUCT, ROW: maps that its loads compute, or none ...
    ein__ex loaded[2];  // ... and the factors of a product as they are then
    ein__conv conv;
    ein__gemm gemm;
    int nrow;         // PRODUCT: of the values behind the first, those of its rows (norm.c) ...
    ein__val also;    // ... and what it stores beside its result, or none
    ein__val addend;  // PRODUCT: the second of its values, a product that is added to it, or none
    int joint;        // PRODUCT: how many reductions its first values are, whose terms a tile
                      // computes together (joint.c), 0: one
    int tile;         // PRODUCT: its place in the table of tiles, from 1; 0: what is estimated best
    int parts;        // ... and how many blocks share the terms of a tile (tail.c), 0: one
    bool cluster;     // ... and that these are a cluster
    int64_t counters, counter;  // of blocks that have arrived: how many, the first one's place
    int64_t ps;                 // cost, picoseconds
    bool measured;
    const char *key;        // cost key
    const char *algorithm;  // what its measured row says of a library's algorithm, or NULL ...
    int64_t version;        // ... of this version
    int64_t workspace;      // bytes that the step may use of the shared workspace
    // Side by side with other branches in a recorded graph: after steps wait[0..nwait-1] of others;
    // `known`: by branch, the last step that is over before this one; -1: none.
    int branch, nwait, wait[EIN__BRANCHES], known[EIN__BRANCHES];
    int event;  // recorded after the step for those that wait for it, 0: none
    struct ein__step
        *peer;  // other products of its call (group.c), kernels that are one (siblings.c)
    int npeer;
    bool chained;      // ... of which each thread computes one behind the other (chain.c)
    ein__val *hidden;  // CHAINED: what threads compute on the way and nobody else reads
    int nhidden;
    bool again;  // it computes another one's sum once more, or is that one (recompute.c)
    struct ein__step *sums;   // the step whose sums this one's threads add up, or NULL (sums.c)
    struct ein__step *ahead;  // a kernel that the same blocks run before, or NULL (stitch.c) ...
    int groups;               // ... with so many slices of its result a block
    int64_t slices;           // and in all
    ein__slice cut[2];        // how those number the slices, the kernel ahead first
} ein__step;

enum { EIN__NORM_ROWS = 4 };

// A row operation that is part of a product's kernel; see norm.c.
typedef struct ein__norm {
    ein__val out, dot;             // what is stored; the product
    ein__val load;                 // what it loads instead of a read, or none
    ein__val sum, square;          // of the rows, or none
    ein__val row[EIN__NORM_ROWS];  // made of these
    int nrow;
    ein__val also;  // the row operation's own result where it is needed elsewhere, or none
} ein__norm;

// Dimensions that number two others: as they are, taken apart, those of sums too, what is read at
// numbers of digits too (apart.c).
typedef enum {
    EIN__NUMBERED,
    EIN__APART,
    EIN__APART_SUMS,
    EIN__APART_NUMBERS,
    EIN__APARTS
} ein__apartness;

// What is derived: the folded program as it is, with tightened operands (rule_tighten.c), with
// products of fewer terms (rule_linear.c, rule_beside.c, rule_repeats.c), with products of sums as
// sums of products (rule_distribute.c), with gates' products as two (rule_gate.c), with sums over
// one-hot places as look-ups (rule_onehot.c).
typedef enum {
    EIN__AS_FOLDED,
    EIN__TIGHTENED,
    EIN__FEWER_TERMS,
    EIN__DISTRIBUTED,
    EIN__GATED,
    EIN__LOOKED_UP,
    EIN__VARIANTS
} ein__variant;

// What a plan is derived from, and how. Plans are tried with several; what is explained, proved or
// measured later is derived as the plan was that was taken.
typedef struct ein__approach {
    bool rereading;        // what reads a result in another order may read its source
    uint64_t without;      // bits of rules of search by which nothing may be chosen
    bool nesting;          // concatenations begin with others (nest.c)
    ein__apartness apart;  // whether dimensions are taken apart
    bool entire;           // what nothing reads is computed too, as others may share it
    ein__variant variant;  // what is derived
} ein__approach;

// Merges of contractions that a plan has: none, whole groups, or groups without some members too.
typedef enum { EIN__UNMERGED, EIN__MERGED, EIN__TOGGLED } ein__merging;

// A way to plan a program.
typedef struct ein__planning {
    ein__approach approach;
    ein__merging merging;
    bool online;         // softmax between products is computed with them
    bool channels_last;  // convolutions may take their tensors in NHWC
} ein__planning;

// A derived program and what its plan costs.
typedef struct ein__derived {
    ein__val *root;  // by output of the model
    int64_t ps;
    uint64_t uses;  // by ein__rule_id: of those that may be left out
} ein__derived;

typedef struct ein__plan {
    ein__step *step;  // run, in order; stb_ds arrays
    ein__step *init;  // weight-only steps, once in create
    ein__buffer *buffer;
    bool *placed;         // by value id: whether it has a layout; those of others are not set
    ein__layout *layout;  // by value id
    ein__val *root;       // by output of the model: the value as planned
    int64_t arena_bytes;  // activations and workspaces
    int64_t workspace_at[EIN__BRANCHES],
        workspace_bytes;      // one for each branch with calls, -1: none
    int64_t const_bytes;      // kept weights and constants
    int64_t counters;         // that steps count blocks with: 0 between runs
    int64_t init_bytes;       // while create runs
    int64_t baseline_ps;      // cost without derivation; 0: this is the baseline
    int branches, events;     // of a recorded graph; one branch: no events
    int join[EIN__BRANCHES];  // by branch, the step to wait for at the end, -1: none
    int64_t branched_ps;      // estimate with branches side by side
    ein__planning way;
    bool numbering;  // made with ein_ctx.numbering
    bool unended;    // ... with ein_ctx.unended
} ein__plan;

// ------------------------------------------------------------------------------------- rules.c

// ORDER rule: the rows of ein__rules in rules.c
typedef enum {
    EIN__RULE_SPLIT,
    EIN__RULE_OPERAND,
    EIN__RULE_ORDER,
    EIN__RULE_DIGITS,
    EIN__RULE_POINT,
    EIN__RULE_PHASES,
    EIN__RULE_WINDOWS,
    EIN__RULE_TAPS,
    EIN__RULE_PARTS,
    EIN__RULE_BORDER,
    EIN__RULE_GROUPS,
    EIN__RULE_SINGLE,
    EIN__RULE_PAD,
    EIN__RULE_BASIS,
    EIN__RULE_TOEPLITZ,
    EIN__RULE_SKEW,
    EIN__RULE_SUBSTITUTE,
    EIN__RULE_TIGHTEN,
    EIN__RULE_RELAX,
    EIN__RULE_NEST,
    EIN__RULE_FACTORS,
    EIN__RULE_INLINE,
    EIN__RULE_SHORT,
    EIN__RULE_SCALE,
    EIN__RULE_TURN,
    EIN__RULE_ROUNDS,
    EIN__RULE_APART,
    EIN__RULE_HOIST,
    EIN__RULE_PREFIX,
    EIN__RULE_ONEHOT,
    EIN__RULE_SORTED,
    EIN__RULE_SEPARATE,
    EIN__RULE_NEEDED,
    EIN__RULE_LINEAR,
    EIN__RULE_REPEATS,
    EIN__RULE_DISTRIBUTE,
    EIN__RULE_COLLECT,
    EIN__RULE_GATE,
    EIN__RULE_MERGE,
    EIN__RULE_MATCH,
    EIN__RULE_FUSE,
    EIN__RULE_ONLINE,
    EIN__RULE_NORM,
    EIN__RULE_KERNEL,
    EIN__NRULES
} ein__rule_id;

// ---------------------------------------------------------------------------------- the context

struct ein_ctx {
    ein_desc desc;
    ein_math asked;              // desc.math as it was; now it is what the plan is in
    const struct ein__gpu *gpu;  // desc.gpu's, NULL: it has no such name
    ein__arena arena, forms;     // forms: of expressions and what they are made of
    ein__table names;            // interned strings

    // Messages (base.c).
    ein_status status;
    ein__buf errors;
    int nerror;
    const char *file;  // model's name in messages
    const char *text;  // model's text, NUL-terminated
    size_t length;
    ein__pos subscript;  // being lowered, for messages; no line: none is (lower.c)

    // The model (parse/), and what is asked of it before it is planned.
    struct {
        const char *name;
        int64_t value;
    } * dim_override;        // stb_ds array
    struct ein__tree *tree;  // syntax tree of the model (syntax.c)
    ein__graph graph;
    bool *keep_fp32;  // by graph tensor: computed in FP32; stb_ds array

    // Expressions and values (lower/), which only grow, and what is remembered of them.
    ein__table atoms, indices, exprs, scopes;
    ein__value *value;       // stb_ds array; [0] unused
    ein__val *tensor_value;  // by graph tensor: the value as lowered
    struct ein__known_iter {
        int64_t n;
        uint32_t slot, ix;
    } known_iter[EIN__KNOWN_ITERS];  // iterators asked for before, as forms (index.c)
    ein__ex **reads;  // by expression: what it reads, once it was asked for (expr.c); stb_ds arrays
    unsigned *counted;    // by expression: the last count that met it (operations.c); stb_ds array
    unsigned counts;      // of operations, made so far
    int64_t proof_steps;  // that proofs may take together (evalp.c), 0: each as it likes

    // Costs (cost/): tables, and for what kernels are priced.
    struct ein__cost_row *cost_row;  // stb_ds array: of all tables and devices
    struct {
        char *key;
        int value;
    } * cost_rows, *costs;  // sh maps to rows: every measurement's; the best of this GPU by key
    uint64_t cost_hash;     // of the tables given, 0: none
    int kernel_rows;        // of them are of kernels of our own, for this GPU
    uint64_t kernel_seed[EIN__SEEDS];  // by ein__kind, EIN__SEED_X: hash of the templates
    ein__table cuts;                   // of products that were priced (tail.c)
    ein__table bodies, priced;         // of kernels that were, and these (priced.c)
    uint32_t *body;       // by expression: its number among bodies, 0: not asked for; stb_ds array
    bool strict;          // the value that is computed keeps FP32
    struct ein__turned {  // values as if their dimensions lay in another order
        ein__val v;
        int64_t stride[EIN__MAX_RANK];
    } turned[2];

    // The search (derive/).
    uint64_t rule_mask;          // by ein__rule_id: rules that are on
    struct ein__search *search;  // problems derived so far (search.c)
    int rank;                    // which definition of a problem is taken: 0 is the cheapest
    ein_stats stats;

    // The way to plan that is tried, or that the plan has (ways.c, cheapest.c).
    ein__approach approach;
    bool online;              // softmax between two products is computed with them (attention.c)
    bool channels_last;       // convolutions may take their tensors in NHWC
    bool taking;              // row operations may be taken into products (norm.c)
    bool typed;               // values have the types they are stored in (storage.c)
    int64_t least_ps;         // what the cheapest plan so far costs; 0: there is none
    int64_t tried_ps;         // what the last one costs
    uint64_t tried_uses;      // and its ein__derived.uses
    ein__derived *tried;      // derived programs that were planned in one way; stb_ds array
    ptrdiff_t values_before;  // the first plan was made
    ptrdiff_t unmade;         // values that plans which were not taken had made (unmake.c)
    bool many;                // plans take so long to make that few are looked at ...
    bool led;                 // ... those alone that do as `lead` does
    ein__planning lead;

    // Set while a program is planned once more, in another way (plan.c, finish.c) ...
    bool whole;         // products behind row operations do not have their terms parted (split.c)
    bool reloading;     // products have copies of what they may load (reload.c)
    bool laying;        // concatenations have copies of what may lie elsewhere (laid.c)
    bool halving;       // attentions have copies as halves (attention_halves.c)
    bool unloaded;      // products load what was stored, no maps (finish.c)
    bool unadded;       // no kernel adds two products (addend.c)
    bool unended;       // no rows end in one result each (ended.c)
    bool weighing;      // ... or they compute maps as large as their terms, too
    bool numbering;     // what is read at numbers of digits is taken apart for its kernel (apart.c)
    bool threads_only;  // kernels whose warps have results are no part of others (stitch.c)
    // ... or derived once more (ways.c), and set by what finds that there is something to try.
    bool parted;   // products that could be `whole`
    bool reloads;  // copies, for `reloading`
    bool halves;   // what attentions could gain by, for `halving`
    bool ends;     // rows, for `unended`
    bool weighs;   // maps, for `weighing`
    bool numbers;  // reads, for `numbering`
    bool rereads;  // definitions that approach.rereading takes
    bool nests;    // concatenations that approach.nesting does
    bool parts;    // dimensions that approach.apart does

    // The program that is planned, and its plan (select/, plan/).
    ein__norm *norm;  // row operations that are part of products (norm.c); stb_ds array
    int *norm_at[2];  // by value: the number, from 1, of that which stores it as its result, or
                      // beside that, 0: none; stb_ds arrays
    // By value: a call for it was not to be had under the layouts, so a kernel is chosen; stb_ds
    // array.
    bool *fallen;
    bool *kept;       // by value: part of an attention, so other rules leave it alone; stb_ds array
    bool *unrounded;  // by value: not to be rounded to TF32 in create (program.c); stb_ds array
    ein__plan plan;

    // What is to be measured, where ein_desc.probe asks for it (probe_kernels.c, emit_probe.c).
    ein__plan *passed;  // plans that were not taken; stb_ds array
    struct {
        char *key;
        const char *value;
    } * kernels;  // sh map: kernels to be measured, as emit_probe.c writes them
    struct {
        char *key;
        bool value;
    } * calls;        // sh map: library calls priced
    bool more_calls;  // some of them are other contexts'
    bool probed;      // `kernels` has those of all plans
    bool quiet;       // what is priced is not remembered

    ein__slice slice;  // what is emitted is a part of a kernel (stitch.c, siblings.c)
};

#endif  // EIN_INT_H
