// Generated from gen/all.h by `make header`. DO NOT EDIT.
// The root: the public part, then every module bottom-up. This order is the architecture; einnet.h
// is this file with its local includes pasted in.
/* ---- ein.h ---- */
// einnet.h - derivation-based tensor-program optimizer: reads a model in the .ein language, prints
// one self-contained CUDA source file. Version 0.1.0. SPDX-License-Identifier: MIT-0
//
// DO THIS
//     #define EINNET_IMPLEMENTATION
//     #include "einnet.h"
// in exactly one C11 file, and include "einnet.h" without the define wherever the API is used (C or
// C++). The one dependency is stb_ds.h (Debian: libstb-dev), needed by the implementing file only;
// define EIN_NO_STB_DS_IMPLEMENTATION there when the program has its bodies already.
//
// TL;DR
//     ein_ctx *ctx = ein_open(NULL);
//     ein_add_model(ctx, "net.ein", text, length);
//     ein_plan(ctx);
//     ein_emit(ctx, EIN_CUDA, (ein_writer){write_to_file, file});
//     if (ein_get_status(ctx)) fputs(ein_error(ctx), stderr);
//     ein_close(ctx);
// Errors are sticky: after the first one every call returns it at once and does nothing, so calls
// may be written in a row and tested once.
//
// WHAT IT DOES
//     text -parse-> graph -lower-> expressions -derive, plan-> steps -emit-> .cu .h
// Operators carry ONNX names and mean tensor-algebra equations; everything after lowering sees
// equations only. Text in, text out: the library reads and writes no files, never looks at the
// clock or the locale, and gives the same bytes for the same input.
//
// MODEL TEXT
//     ein 1                                   first line
//     model NAME
//     dim N = 1, H = 2*N                      sizes; later ones may use earlier ones
//     small H = 7                             the shrunken set that tests use (ein_desc.small)
//     blob W = "file.safetensors"             relative, inside the model's directory
//     input x: f32[N,3,H,H]
//     weight k: f32[8,3,3,3] = W "key"        or zeros(), ones(), randn(seed, std),
//                                             uniform(seed, lo, hi); seeded values are exact
//     output y, z                             before or after y is defined
//     y = Conv(x, k; strides=2, pads=1)       ONNX operator, opset 21; `_` omits an operand
//     t[n,f,h] = sum(c) a[n,c,h-1] * b[f,c] where h in 0:H, pad a 0
// `#` starts a comment. A statement is a line; lines indented further than it continue it. Names
// are C identifiers with dots, or "quoted" with \" \\ \n \t \xNN. Types: f32 f16 bf16 i8 i32 i64
// bool. Attribute values are integer expressions over dims, numbers, words, strings or lists; a
// number where ONNX wants a list holds for every spatial axis. What ONNX passes as constant inputs
// (shape, axes, pads, scales, split, min, max) is an attribute.
//   Equations. Subscripts: + - * and floored / % by constants. An index's range comes from `where`,
// else from a declared result, else from bare uses, which must agree; it may begin below 0. Reading
// outside a tensor is an error unless `pad T v` is given. `[i < n]` multiplies as "evaluated only
// where it holds". sum prod max min reduce and bind like multiplication. Functions: relu tanh exp
// log sqrt rsqrt erf sigmoid abs neg floor ceil square, pow(a,b) min(a,b) max(a,b),
// select(a < b, p, q), idx(subscript); `T[@i[x], j]` reads T at the position held in i.
//   Blocks. `block b(x; C, S=1) -> y { ... }` is called like an operator: `l1 = b(x; C=64)`. What
//   is
// declared inside belongs to the first result: `l1.k`. A block sees dims, its parameters, inputs
// and own names, and calls blocks above it. `repeat i in 0:4 { ... }` unrolls; names get the
// round's number (`w.0`); a name assigned inside and defined before is carried from round to round,
// and means the last round's value afterwards.
//   A seeded source without `seed` takes the FNV-1a hash of its tensor's full name, modulo 2^31.
// Unknown names, operators and attributes are errors that name the nearest known one.
//
// COST TABLE
// One row a line, fields separated by tabs: device, key, picoseconds, spread in 1/1000, versions.
// `#` starts a comment line; rows of other devices are skipped, two costs for one key are an error.
// Keys are what the emitted file's steps would be measured under: `gemm f32 fma b=1 m=49 ...`,
// `conv f32 fma nchw n=1 ...`, `kernel k_map_1a2b3c4d`. A measured row wins over the estimate,
// which takes shares of the device's peak rates by kind of call. ein_desc.intensity: a kernel with
// more operations an element (default 4) is priced by its arithmetic as well as by its memory
// traffic.
//
// THE EMITTED FILE
// Sections: summary (tensors, memory, the plan with its costs), includes, interface, sizes and
// offsets, kernels, state, create, run, destroy, info. It compiles as C++14 with nvcc, needs cudart
// and, where used, cuDNN and cuBLAS. Weights come in one blob (little-endian): "EINWGHT1", u32
// version, u32 tensors, u64 manifest hash, u64 content hash, u64 file bytes, zeros to 256, then raw
// tensors in declaration order, 256-byte aligned. The manifest is FNV-1a 64 over a line
// `name dtype[d0,d1]` a tensor. One blob serves every plan, GPU and batch size.
//   FP32 means no TF32. max and min reductions and pooling skip NaN (fmaxf); relu keeps it.
//   Products
// with padding are not evaluated, so infinite weights there give 0.
//
// OPTIONS
// EIN_REALLOC(p, n) and EIN_FREE(p), both or neither (stb_ds has its own hooks);
// EIN_OUT_OF_MEMORY() must not return; EIN_ASSERT(x) sees broken invariants only. EIN_STATIC makes
// the functions static.
//
// ERRORS
// `file:line:column: message`, the source line and a caret; several in one text. Statuses are the
// exit codes of the command line.
//
// LIMITS
// Rank 10, 16 iterators and 12 subscript terms an expression, 64 operands, 2^40 elements a tensor,
// 20000 statements after expansion, nesting 200, 64 MB of text. A limit met is a message.
//
// LICENSE: MIT No Attribution
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction,
// including without limitation the rights to use, copy, modify, merge, publish, distribute,
// sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
// furnished to do so.
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
// NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
// NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
// DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
#ifndef EINNET_H
#define EINNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EIN_VERSION "0.1.0"
#define EIN_CODEGEN 1  // raised whenever the emitted bytes change for unchanged input

#ifndef EIN_DEF
#ifdef EIN_STATIC
#define EIN_DEF static
#else
#define EIN_DEF extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    EIN_OK = 0,
    EIN_DIFFERS = 1,      // a comparison found a difference
    EIN_USAGE = 2,        // the caller broke a rule of this API
    EIN_BAD_INPUT = 3,    // the model, weights or cost table are wrong; see ein_error
    EIN_UNSUPPORTED = 4,  // the model uses an operator that is not there
    EIN_RESOURCES = 5     // a limit of the implementation was met
} ein_status;

typedef enum {
    EIN_CUDA,        // the .cu
    EIN_HEADER,      // the .h
    EIN_TEST,        // the companion test program
    EIN_FORMAT,      // the model in canonical form, comments kept
    EIN_GRAPH_JSON,  // operators, shapes, attributes, equations
    EIN_EQUATIONS,   // every value's expression as a legal equation
    EIN_EXPLAIN,     // the derivations of contractions, with costs; see ein_desc.explain
    EIN_EXPLAIN_JSON
} ein_output;

typedef struct {
    bool (*func)(void *user, const char *text, size_t length);  // false stops the output
    void *user;
} ein_writer;

// Why the search of one problem ended, mildest first.
typedef enum {
    EIN_STOP_SATURATED,  // no rule gives anything new
    EIN_STOP_QUOTA,      // a rule gave as much as it may
    EIN_STOP_DEPTH,
    EIN_STOP_STATES,
    EIN_STOP_CANCELLED  // by ein_desc.progress
} ein_stop;

// What the search has done.
typedef struct {
    int64_t problems;     // contractions
    int64_t distinct;     // of them, up to names: each is derived once
    int64_t definitions;  // states: equivalent definitions, all distinct
    int64_t lookups;      // definitions that rules gave, known ones included
    int64_t candidates;   // definitions of the problems themselves
    ein_stop stop;        // the worst of all problems
    bool searching;       // in ein_desc.progress: false in the last call for a contraction
} ein_stats;

// Zero means default, everywhere.
typedef struct {
    const char *gpu;      // a name of the device table ("h200"), see ein_gpu_name
    const char *prefix;   // prefix of the emitted symbols; default: the model's name
    const char *license;  // SPDX expression in the emitted files; default MIT-0
    bool small;           // use the model's `small` dims
    bool baseline;        // no derivation: one library call or kernel per contraction
    int depth;            // rules in a row; default 8
    int states;           // definitions of one problem; default 1000
    const char *rules;    // names of the rules to use, separated by commas; NULL: all
    bool no_converge;     // no derivation towards library calls
    bool no_fingerprint;  // states that are known already are queued again: for measurements
    bool (*progress)(void *user, const ein_stats *stats);  // called during the search; false stops
    void *progress_user;
    const char *explain;  // EIN_EXPLAIN: the contraction of this name; NULL: all of them
    int intensity;        // operations an element above which a kernel is compute-bound; default 4
    bool explain_all;     // EIN_EXPLAIN: every candidate, not only the chosen and the original one
} ein_desc;

typedef struct {
    const char *name;
    const char *dtype;  // "f32" ...
    int rank;
    int64_t dims[10];
    size_t bytes;      // dense, row-major
    const char *blob;  // weights from a file: name of the blob statement and ...
    const char *key;   // ... of the tensor in it; NULL for seeded ones
    bool seeded;       // ein_fill_weight can make the values
} ein_tensor_info;

typedef struct ein_ctx ein_ctx;

EIN_DEF ein_ctx *ein_open(const ein_desc *desc);  // NULL: all defaults; NULL back: no memory
EIN_DEF void ein_close(ein_ctx *ctx);
// Gives a dim another value than the model's own; before ein_add_model.
EIN_DEF ein_status ein_set_dim(ein_ctx *ctx, const char *name, int64_t value);
// `name` is used in messages only. The text is copied.
EIN_DEF ein_status ein_add_model(ein_ctx *ctx, const char *name, const char *text, size_t length);
EIN_DEF ein_status ein_add_costs(ein_ctx *ctx, const char *name, const char *text, size_t length);
EIN_DEF ein_status ein_plan(ein_ctx *ctx);
EIN_DEF ein_status ein_emit(ein_ctx *ctx, ein_output what, ein_writer writer);
// Tensors of the model in declaration order: kind 'i' inputs, 'w' weights, 'o' outputs, 'b' blobs
// (name and, as key, the file's path). False when `index` is past the end.
EIN_DEF bool ein_describe(const ein_ctx *ctx, char kind, int index, ein_tensor_info *info);
// Shape of any tensor of the model; used by importers that fold shape computations.
EIN_DEF bool ein_shape(const ein_ctx *ctx, const char *tensor, int *rank, int64_t dims[10]);
// Writes the values of a seeded weight ('w') or the default test input ('i'), dense row-major.
EIN_DEF ein_status ein_fill(const ein_ctx *ctx, char kind, int index, void *data);
EIN_DEF uint64_t ein_manifest_hash(const ein_ctx *ctx);
// Reference interpreter in double: tensors in declaration order and their own dtypes, results as
// doubles (dense, row-major) into the caller's arrays.
EIN_DEF ein_status ein_eval(ein_ctx *ctx, const void *const *inputs, const void *const *weights,
                            double *const *outputs);
// Proves the plan: every output as planned against the model's own equations, modulo 2^61-1, at
// this many random places (Schwartz-Zippel; functions without field meaning are uninterpreted).
EIN_DEF ein_status ein_verify(ein_ctx *ctx, int samples);
EIN_DEF void ein_get_stats(const ein_ctx *ctx, ein_stats *stats);
EIN_DEF const char *ein_rule_name(int index);         // NULL past the end
EIN_DEF const char *ein_rule_description(int index);  // NULL past the end
EIN_DEF const char *ein_stop_name(ein_stop stop);
EIN_DEF ein_status ein_get_status(const ein_ctx *ctx);
EIN_DEF const char *ein_error(const ein_ctx *ctx);  // one message a line; "" when fine
EIN_DEF const char *ein_gpu_name(int index);        // NULL past the end
EIN_DEF const char *ein_operator_name(int index);   // NULL past the end

#ifdef __cplusplus
}
#endif
#endif  // EINNET_H

#ifdef EINNET_IMPLEMENTATION
#if defined(__cplusplus) || !defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L
#error "the implementation of einnet.h is C11: compile the file with EINNET_IMPLEMENTATION as C"
#endif
#ifndef EIN_NO_STB_DS_IMPLEMENTATION
#define STB_DS_IMPLEMENTATION
#endif
/* ---- ein_int.h ---- */
// Internal types, in the order of the pipeline. There are no prototypes: all.h includes the modules
// bottom-up and every function shared between modules is EIN__FN (static), so the compiler itself
// refuses a call of a module further down.
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

#define EIN__MAX_RANK 10   // dimensions of a tensor
#define EIN__MAX_ITERS 16  // traversal and reduction iterators of one scope
#define EIN__MAX_TERMS 12  // terms of one index form
#define EIN__MAX_ARGS 64   // operands of one operator
#define EIN__MAX_ELEMENTS ((int64_t)1 << 40)
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
typedef struct ein__table {
    const void **rec;  // stb_ds array; rec[0] unused
    uint32_t *size;    // stb_ds arrays
    uint32_t *hash;
    uint32_t *slot;  // open addressing, power of two
    uint32_t mask;
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
    bool integral, quoted;
    int nkid;
    struct ein__ast **kid;
} ein__ast;

typedef struct ein__attr {
    const char *name;
    ein__pos pos;
    ein__ast *value;
} ein__attr;

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
} ein__equation;

// ------------------------------------------------------------------------------------- graph.c

typedef enum {
    EIN__F32,
    EIN__F16,
    EIN__BF16,
    EIN__I8,
    EIN__I32,
    EIN__I64,
    EIN__BOOL,
    EIN__NDTYPE
} ein__dtype;

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
} ein__skind;

// A tensor of the flat graph: blocks and repeats are expanded, every dim is a number.
typedef struct ein__tensor {
    const char *name;  // full name, unique
    ein__tkind kind;
    ein__dtype dtype;
    ein__shape shape;
    int64_t lo[EIN__MAX_RANK];  // first index per dimension: non-zero only for equations' results
    ein__pos pos;
    int node;           // producing node, -1 for inputs and weights
    ein__skind source;  // weights
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
        bool has_small;
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
    int64_t n;    // ITER: extent; FLOOR, MOD: divisor > 1; GATHER: extent of the values held, or 0
    uint32_t ix;  // FLOOR, MOD: operand (an integer form, q == 1)
    uint32_t ex;  // GATHER: a READ of an integer tensor
} ein__atom;

// (c + sum k_j * atom_j) / q, gcd-reduced, atoms ascending by id, no zero k, q >= 1. When q > 1 the
// form is an index only where the division is exact; a read elsewhere gives padding.
typedef struct ein__term {
    int64_t k;
    uint32_t atom;
    uint32_t unused;
} ein__term;
typedef struct ein__index {
    int64_t c, q;
    int64_t lo, hi;  // bounds of the value, rounded inwards to integers; derived
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
    EIN__NFN
} ein__fn;

typedef struct ein__expr {
    uint32_t op, fn;
    uint32_t val;
    uint32_t negate;
    uint64_t bits;
    int64_t n;
    uint32_t nkid, nix;
    ein__ex kid[4];
    ein__ix ix[EIN__MAX_RANK];
} ein__expr;

typedef struct ein__fn_info {
    const char *name;
    int arity;
    const char *c_float;
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
    int node;          // graph node it came from, -1: none
    const char *why;   // the rules that led to this definition; NULL: it is the model's own
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
    int64_t at;       // byte offset in the arena (ARENA), the constants (CONST, WEIGHT) or INIT
    int index;        // which input, output or weight
    int first, last;  // steps that define and last read it
} ein__buffer;

typedef enum {
    EIN__K_CONV,       // cuDNN convolution forward
    EIN__K_CONV_DATA,  // cuDNN backward-data: transposed convolution
    EIN__K_GEMM,       // cuBLAS strided-batched GEMM
    EIN__K_MAP,        // one output element a thread (or a vector of them)
    EIN__K_TRANSPOSE,  // a permutation whose innermost dimension changes: tiles through shared
                       // memory
    EIN__K_REDUCE,     // one output element a thread, the reduction in a loop, epilogue fused
    EIN__K_ROW,        // one row a warp or block: reductions over the row in phases, then maps
    EIN__K_BAND        // product whose second operand moves with the row (G2BMM, GBMM): tiled
} ein__skind2;

typedef struct ein__conv {
    int spatial;             // 1..3
    int64_t n, c, f, group;  // f output channels in all
    int64_t in[3], out[3], k[3], pad[3], stride[3], dilation[3];
    bool nhwc;
    ein__val x, w;     // data, weights [f, c/group, k...]
    ein__val bias, z;  // or none: fused
    bool relu;
} ein__conv;

// row-major C[m,n] = alpha A[m,k] B[k,n], `batch` times
typedef struct ein__gemm {
    int64_t batch, m, n, k;
    bool ta, tb;                        // operand stored transposed
    int64_t lda, ldb, ldc, sa, sb, sc;  // leading dimensions, batch strides; elements
    int64_t oa, ob, oc;                 // offsets from the values' first elements
    bool swap;                          // result is stored column-major: operands exchanged
    ein__val a, b;
    double alpha;
} ein__gemm;

// One launch or library call. Kernels compute vals[0..nval-1]: the earlier ones live in registers
// (reductions), the last one is stored; a ROW step may have several reductions.
typedef struct ein__step {
    ein__skind2 kind;
    const char *name;  // unique, content-derived, a C identifier
    ein__val out;
    int nval;
    ein__val val[8];
    ein__conv conv;
    ein__gemm gemm;
    int64_t ps;  // cost, picoseconds
    bool measured;
    const char *key;    // cost key
    int64_t workspace;  // bytes that a library call may use of the shared workspace
} ein__step;

typedef struct ein__plan {
    ein__step *step;  // run, in order; stb_ds arrays
    ein__step *init;  // weight-only steps, once in create
    ein__buffer *buffer;
    ein__layout *layout;  // by value id
    ein__val *root;       // by output of the model: the value as planned
    int64_t arena_bytes;  // activations, then the workspace
    int64_t workspace_at, workspace_bytes;
    int64_t const_bytes;  // kept weights and constants
    int64_t init_bytes;   // while create runs
    int64_t baseline_ps;  // cost without derivation; 0: this is the baseline
} ein__plan;

// ---------------------------------------------------------------------------------- the context

struct ein_ctx {
    ein_desc desc;
    ein__arena arena;
    ein_status status;
    ein__buf errors;
    int nerror;
    const char *file;  // model's name in messages
    const char *text;  // model's text, NUL-terminated
    size_t length;
    struct {
        const char *name;
        int64_t value;
        bool used;
    } * dim_override;        // stb_ds array
    ein__table names;        // interned strings
    struct ein__tree *tree;  // syntax tree of the model (syntax.c)
    ein__graph graph;
    ein__table atoms, indices, exprs, scopes;
    ein__value *value;       // stb_ds array; [0] unused
    ein__val *tensor_value;  // by graph tensor: the value as lowered
    ein__plan plan;
    struct {
        char *key;
        int64_t value;
    } * costs;                   // sh map: measured picoseconds by key
    uint64_t cost_hash;          // of the tables given, 0: none
    struct ein__search *search;  // problems derived so far (search.c)
    uint32_t rule_mask;          // rules of the table to use
    ein_stats stats;
};

#endif  // EIN_INT_H
/* ---- base.c ---- */
// Memory, text, interning and messages.

#ifndef EIN_REALLOC
#define EIN_REALLOC(p, n) realloc(p, n)
#define EIN_FREE(p) free(p)
#endif
#ifndef EIN_OUT_OF_MEMORY
#define EIN_OUT_OF_MEMORY() (fputs("einnet: out of memory\n", stderr), exit(5))
#endif

// Only broken invariants reach an assertion; no input does.
#ifndef EIN_ASSERT
#include <assert.h>
#define EIN_ASSERT(x) assert(x)
#endif

struct ein__chunk {
    struct ein__chunk *next;
    size_t used, cap;
};

enum { EIN__CHUNK = 64 * 1024, EIN__MAX_ERRORS = 20 };

EIN__FN void *ein__alloc(ein__arena *a, size_t size) {
    size = (size + 15) & ~(size_t)15;
    struct ein__chunk *c = a->head;
    if (!c || c->cap - c->used < size) {
        size_t head = (sizeof *c + 15) & ~(size_t)15;
        size_t cap = size > EIN__CHUNK ? size : EIN__CHUNK;
        c = EIN_REALLOC(NULL, head + cap);
        if (!c) EIN_OUT_OF_MEMORY();
        memset(c, 0, head + cap);
        c->cap = cap;
        c->next = a->head;
        a->head = c;
    }
    size_t head = (sizeof *c + 15) & ~(size_t)15;
    void *p = (char *)c + head + c->used;
    c->used += size;
    return p;
}

EIN__FN void ein__arena_free(ein__arena *a) {
    while (a->head) {
        struct ein__chunk *next = a->head->next;
        EIN_FREE(a->head);
        a->head = next;
    }
}

#define EIN__NEW(arena, T, n) ((T *)ein__alloc(arena, (size_t)(n) * sizeof(T)))

// -------------------------------------------------------------------------------------- text

EIN__FN void ein__put_n(ein__buf *b, const char *s, size_t n) {
    if (b->cap - b->n < n + 1) {
        size_t cap = b->cap ? b->cap : 256;
        while (cap - b->n < n + 1) cap *= 2;
        b->s = EIN_REALLOC(b->s, cap);
        if (!b->s) EIN_OUT_OF_MEMORY();
        b->cap = cap;
    }
    if (n) memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = 0;
}

EIN__FN void ein__put(ein__buf *b, const char *s) { ein__put_n(b, s, strlen(s)); }

EIN__FN void ein__vputf(ein__buf *b, const char *format, va_list args) {
    char small[512];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && (size_t)n < sizeof small) {
        ein__put_n(b, small, (size_t)n);
    } else if (n >= 0) {
        char *big = EIN_REALLOC(NULL, (size_t)n + 1);
        if (!big) EIN_OUT_OF_MEMORY();
        vsnprintf(big, (size_t)n + 1, format, again);
        ein__put_n(b, big, (size_t)n);
        EIN_FREE(big);
    }
    va_end(again);
}

// For integers and strings only: printf's floating-point forms depend on the locale.
EIN__PRINTF(2, 3) EIN__FN void ein__putf(ein__buf *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__vputf(b, format, args);
    va_end(args);
}

EIN__FN void ein__buf_free(ein__buf *b) {
    EIN_FREE(b->s);
    *b = (ein__buf){0};
}

// Replaces whatever the locale uses as decimal point, so that "1,5" cannot appear.
static void ein__fix_point(char *s) {
    for (; *s; s++)
        if (!strchr("0123456789+-eEinfa", *s)) *s = '.';
}

// The shortest decimal text that reads back as the same double: "0.125", "1e-05", "3", "inf".
EIN__FN void ein__put_f64(ein__buf *b, double v) {
    char s[40];
    if (v != v) {
        ein__put(b, "nan");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v) break;
    }
    ein__fix_point(s);
    ein__put(b, s);
}

// A C literal of type float: "0.125f", "3.f", "INFINITY" with its sign.
EIN__FN void ein__put_f32_literal(ein__buf *b, double v) {
    float f = (float)v;
    if (f != f) {
        ein__put(b, "NAN");
        return;
    }
    if (f - f != 0) {
        ein__put(b, f < 0 ? "-INFINITY" : "INFINITY");
        return;
    }
    char s[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)f);
        if ((float)strtod(s, NULL) == f) break;
    }
    ein__fix_point(s);
    ein__put(b, s);
    ein__put(b, strpbrk(s, ".e") ? "f" : ".f");
}

// Reads digits [. digits] [e [+-] digits] at `s` without the locale; `*end` is past it. Values
// beyond a double's range become infinite; the caller refuses those.
EIN__FN double ein__read_f64(const char *s, const char **end) {
    char copy[64], clean[64];
    size_t n = 0, i = 0;
    while (i < sizeof copy - 1 && s[i] &&
           (strchr("0123456789.", s[i]) || ((s[i] == 'e' || s[i] == 'E') && i) ||
            ((s[i] == '+' || s[i] == '-') && i && (s[i - 1] == 'e' || s[i - 1] == 'E')))) {
        copy[n++] = s[i++];
    }
    copy[n] = 0;
    // strtod wants the locale's own point: try the point as written, then put the locale's there.
    memcpy(clean, copy, sizeof clean);
    char *stop, *dot = strchr(clean, '.');
    double v = strtod(clean, &stop);
    if (dot && stop == dot) {
        char probe[8];
        snprintf(probe, sizeof probe, "%.1f", 0.5);
        *dot = probe[1];
        v = strtod(clean, &stop);
    }
    *end = s + (stop - clean);
    return v;
}

// -------------------------------------------------------------------------------------- hashes

#define EIN__FNV_START 0xcbf29ce484222325ull

EIN__FN uint64_t ein__fnv(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

EIN__FN uint64_t ein__splitmix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// -------------------------------------------------------------------------------------- interning

// Eight bytes at a time: interning is most of what deriving does. The order of ids does not depend
// on it.
static uint32_t ein__record_hash(const void *rec, size_t size) {
    const unsigned char *p = rec;
    uint64_t h = EIN__FNV_START ^ size;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 29;
    }
    for (; size; p++, size--) h = (h ^ *p) * 0x100000001b3ull;
    return (uint32_t)(h ^ h >> 32);
}

static void ein__table_grow(ein__table *t) {
    uint32_t old = t->slot ? t->mask + 1 : 0, size = old ? old * 2 : 256;
    uint32_t *slot = EIN_REALLOC(NULL, size * sizeof *slot);
    if (!slot) EIN_OUT_OF_MEMORY();
    memset(slot, 0, size * sizeof *slot);
    for (uint32_t id = 1; id < (uint32_t)arrlen(t->rec); id++) {
        uint32_t at = t->hash[id] & (size - 1);
        while (slot[at]) at = (at + 1) & (size - 1);
        slot[at] = id;
    }
    EIN_FREE(t->slot);
    t->slot = slot;
    t->mask = size - 1;
}

// Id of the record with these bytes (padding included: records are zeroed before they are filled).
EIN__FN uint32_t ein__intern(ein__arena *a, ein__table *t, const void *rec, size_t size) {
    if (!t->rec) {
        arrput(t->rec, NULL);
        arrput(t->size, 0);
        arrput(t->hash, 0);
    }
    if (!t->slot || (uint32_t)arrlen(t->rec) * 2 > t->mask) ein__table_grow(t);
    uint32_t hash = ein__record_hash(rec, size), at = hash & t->mask;
    for (; t->slot[at]; at = (at + 1) & t->mask) {
        uint32_t id = t->slot[at];
        if (t->hash[id] == hash && t->size[id] == size && !memcmp(t->rec[id], rec, size)) return id;
    }
    void *copy = ein__alloc(a, size);
    memcpy(copy, rec, size);
    uint32_t id = (uint32_t)arrlen(t->rec);
    arrput(t->rec, copy);
    arrput(t->size, (uint32_t)size);
    arrput(t->hash, hash);
    t->slot[at] = id;
    return id;
}

EIN__FN void ein__table_free(ein__table *t) {
    arrfree(t->rec);
    arrfree(t->size);
    arrfree(t->hash);
    EIN_FREE(t->slot);
    *t = (ein__table){0};
}

// One NUL-terminated copy per distinct text: names are equal when their pointers are.
EIN__FN const char *ein__name_n(ein_ctx *ctx, const char *s, size_t n) {
    char *copy = EIN_REALLOC(NULL, n + 1);
    if (!copy) EIN_OUT_OF_MEMORY();
    memcpy(copy, s, n);
    copy[n] = 0;
    uint32_t id = ein__intern(&ctx->arena, &ctx->names, copy, n + 1);
    EIN_FREE(copy);
    return ctx->names.rec[id];
}

EIN__FN const char *ein__name(ein_ctx *ctx, const char *s) {
    return ein__name_n(ctx, s, strlen(s));
}

EIN__PRINTF(2, 3) EIN__FN const char *ein__namef(ein_ctx *ctx, const char *format, ...) {
    ein__buf b = {0};
    va_list args;
    va_start(args, format);
    ein__vputf(&b, format, args);
    va_end(args);
    const char *name = ein__name_n(ctx, b.s ? b.s : "", b.n);
    ein__buf_free(&b);
    return name;
}

// -------------------------------------------------------------------------------------- messages

// Prints the source line and a caret below column `pos.col`; long lines are cut around it.
static void ein__put_caret(ein_ctx *ctx, ein__pos pos) {
    if (!ctx->text || !pos.line) return;
    const char *s = ctx->text, *end = ctx->text + ctx->length;
    for (uint32_t line = 1; line < pos.line && s < end; line++) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        if (!nl) return;
        s = nl + 1;
    }
    const char *nl = memchr(s, '\n', (size_t)(end - s));
    size_t n = (size_t)((nl ? nl : end) - s), col = pos.col ? pos.col - 1 : 0, from = 0;
    if (col > n) col = n;
    if (col > 80) from = col - 60;
    if (n - from > 100) n = from + 100;
    ein__put(&ctx->errors, "    ");
    for (size_t i = from; i < n; i++) {
        char c = s[i] == '\t' ? ' ' : s[i];
        if ((unsigned char)c < 32 || c == 127) c = '?';
        ein__put_n(&ctx->errors, &c, 1);
    }
    ein__put(&ctx->errors, "\n    ");
    for (size_t i = from; i < col; i++) ein__put(&ctx->errors, " ");
    ein__put(&ctx->errors, "^\n");
}

// Reports `file:line:col: message` with source line and caret. The first error's status stays; more
// messages are added until the list is long enough.
EIN__PRINTF(4, 5)
EIN__FN ein_status ein__error(ein_ctx *ctx, ein_status status, ein__pos pos, const char *format,
                              ...) {
    if (ctx->status == EIN_OK) ctx->status = status;
    if (ctx->nerror++ >= EIN__MAX_ERRORS) return ctx->status;
    ein__put(&ctx->errors, ctx->file ? ctx->file : "einnet");
    if (pos.line) ein__putf(&ctx->errors, ":%u:%u", (unsigned)pos.line, (unsigned)pos.col);
    ein__put(&ctx->errors, ": ");
    size_t from = ctx->errors.n;
    va_list args;
    va_start(args, format);
    ein__vputf(&ctx->errors, format, args);
    va_end(args);
    // Names of the model may hold anything; a message is one line of text.
    for (size_t i = from; i < ctx->errors.n; i++)
        if ((unsigned char)ctx->errors.s[i] < 32 || ctx->errors.s[i] == 127) ctx->errors.s[i] = '?';
    ein__put(&ctx->errors, "\n");
    ein__put_caret(ctx, pos);
    return ctx->status;
}

// An attempt that may run into a limit of the implementation and is then simply not made.
typedef struct ein__attempt {
    ein_status status;
    size_t text;
    int nerror;
} ein__attempt;

EIN__FN ein__attempt ein__try(const ein_ctx *ctx) {
    return (ein__attempt){ctx->status, ctx->errors.n, ctx->nerror};
}

// Takes back the messages since ein__try when a limit was met; false when it was.
EIN__FN bool ein__tried(ein_ctx *ctx, ein__attempt a) {
    if (ctx->status != EIN_RESOURCES || a.status == EIN_RESOURCES) return true;
    ctx->status = a.status;
    ctx->nerror = a.nerror;
    ctx->errors.n = a.text;
    if (ctx->errors.s) ctx->errors.s[a.text] = 0;
    return false;
}

// Edit distance, capped: names further apart than `cap` are not worth suggesting.
static int ein__distance(const char *a, const char *b, int cap) {
    int row[64];
    int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > 62 || nb > 62 || abs(na - nb) > cap) return cap + 1;
    for (int j = 0; j <= nb; j++) row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int up = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[nb];
}

// Keeps in `*best` whichever of it and `candidate` is closer to `name`; `*distance` starts at 3.
EIN__FN void ein__suggest(const char *name, const char *candidate, const char **best,
                          int *distance) {
    int d = ein__distance(name, candidate, *distance);
    if (d < *distance && (size_t)d < strlen(name)) {
        *distance = d;
        *best = candidate;
    }
}

// -------------------------------------------------------------------------------------- integers

EIN__FN bool ein__mul_overflows(int64_t a, int64_t b, int64_t *r) {
    return __builtin_mul_overflow(a, b, r);
}

EIN__FN bool ein__add_overflows(int64_t a, int64_t b, int64_t *r) {
    return __builtin_add_overflow(a, b, r);
}

EIN__FN int64_t ein__floordiv(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

EIN__FN int64_t ein__floormod(int64_t a, int64_t b) { return a - ein__floordiv(a, b) * b; }

EIN__FN int64_t ein__gcd(int64_t a, int64_t b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

// Elements of a shape; EIN__MAX_ELEMENTS + 1 when there are more than that.
EIN__FN int64_t ein__elements(const ein__shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        if (ein__mul_overflows(n, s->d[i], &n) || n > EIN__MAX_ELEMENTS)
            return EIN__MAX_ELEMENTS + 1;
    return n;
}

EIN__FN int ein__dtype_size(ein__dtype t) {
    static const int size[EIN__NDTYPE] = {4, 2, 2, 1, 4, 8, 1};
    return size[t];
}

EIN__FN const char *ein__dtype_name(ein__dtype t) {
    static const char *const name[EIN__NDTYPE] = {"f32", "f16", "bf16", "i8", "i32", "i64", "bool"};
    return name[t];
}
// text -> graph
/* ---- lex.c ---- */
// Text to tokens, one statement at a time.
//
// A statement is one line and the lines that continue it: those that begin further right than the
// statements around them. At the top level that means with white space; inside braces the first
// statement sets the column. A line that ends with `{` opens a body, a line that begins with `}`
// closes one. Comments and blank lines are kept beside the statements for the formatter.

enum {
    EIN__MAX_TEXT = 64 << 20,   // bytes of a model's text
    EIN__MAX_TOKENS = 1 << 20,  // of a model; comments count too
    EIN__MAX_NAME = 1000,       // bytes of a name or string
    EIN__MAX_DIGITS = 60        // bytes of a number
};

typedef enum {
    EIN__TOK_END,   // of the statement
    EIN__TOK_NAME,  // identifier; keywords are names
    EIN__TOK_STRING,
    EIN__TOK_NUMBER,
    EIN__TOK_OP
} ein__tok_kind;

typedef struct ein__token {
    ein__tok_kind kind;
    bool integral;  // numbers: written without point and exponent
    ein__pos pos;
    const char *text;  // interned: name, decoded string, operator or number as written
    double num;
    int64_t inum;
} ein__token;

typedef struct ein__lexer {
    ein_ctx *ctx;
    const char *at, *end, *line_start;
    uint32_t line;
    bool no_pos;           // definitions of operators have no place in the model's text
    bool bad;              // the statement at hand has a lexical error: it is not worth parsing
    bool opens, closes;    // the statement ends with `{`; it begins with `}`. Never both
    ein__pos stop;         // behind the last token
    bool stopped;          // a limit was met: what follows is not read
    ein__token *tok;       // stb_ds array: the statement, then EIN__TOK_END
    const char **lead;     // stb_ds array: comments above the statement, "" for a blank line
    const char **pending;  // stb_ds array: those found after it, which belong to the next one
    const char *trail;     // comment behind its last line, or NULL
    int64_t ntoken;
    int depth;                         // open braces
    int64_t base[EIN__MAX_DEPTH + 1];  // column of the statements inside each; -1: none seen yet
} ein__lexer;

static ein__pos ein__lex_pos(const ein__lexer *z, const char *at) {
    if (z->no_pos) return (ein__pos){0, 0};
    return (ein__pos){z->line, (uint32_t)(at - z->line_start) + 1};
}

EIN__PRINTF(3, 4)
static void ein__lex_error(ein__lexer *z, const char *at, const char *format, ...) {
    ein__buf b = {0};
    va_list args;
    va_start(args, format);
    ein__vputf(&b, format, args);
    va_end(args);
    ein__error(z->ctx, EIN_BAD_INPUT, ein__lex_pos(z, at), "%s", b.s);
    ein__buf_free(&b);
    z->bad = true;
}

// The end of a message about an unknown name: the known one that is meant, or nothing.
static const char *ein__hint(ein_ctx *ctx, const char *best) {
    return best ? ein__namef(ctx, "; did you mean '%s'?", best) : "";
}

// Length of the UTF-8 sequence at `s`, 0 when it is malformed, overlong or a surrogate. `*code` is
// its code point.
EIN__FN int ein__utf8(const char *s, const char *end, uint32_t *code) {
    unsigned char c = (unsigned char)*s;
    int n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (!n || end - s < n) return 0;
    uint32_t v = n == 1 ? c : c & (0xFFu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xC0) != 0x80) return 0;
        v = v << 6 | ((unsigned char)s[i] & 0x3F);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (v < least[n] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return 0;
    *code = v;
    return n;
}

static bool ein__is_digit(char c) { return c >= '0' && c <= '9'; }

static bool ein__is_alpha(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool ein__is_alnum(char c) { return ein__is_alpha(c) || ein__is_digit(c); }

// True when `s` can stand in a model without quotes: an identifier, dots and digits allowed inside.
EIN__FN bool ein__is_identifier(const char *s) {
    if (!ein__is_alpha(*s)) return false;
    for (; *s; s++) {
        if (*s == '.' && !ein__is_alnum(s[1])) return false;
        if (*s != '.' && !ein__is_alnum(*s)) return false;
    }
    return true;
}

// Bytes that stand for themselves in comments and strings; the others are reported. Returns how
// many bytes to step over.
static int ein__lex_text_byte(ein__lexer *z, const char *where) {
    unsigned char c = (unsigned char)*z->at;
    uint32_t code;
    int n = ein__utf8(z->at, z->end, &code);
    if (!n) {
        ein__lex_error(z, z->at, "byte 0x%02x in %s is not UTF-8", c, where);
    } else if ((c < 32 && c != '\t') || c == 127) {
        ein__lex_error(z, z->at, "control byte 0x%02x in %s", c, where);
    }
    return n ? n : 1;
}

// At a CR that ends the line with the LF behind it, or the text.
static bool ein__lex_at_cr(const ein__lexer *z) {
    return *z->at == '\r' && (z->at + 1 == z->end || z->at[1] == '\n');
}

static bool ein__lex_at_eol(const ein__lexer *z) {
    return z->at >= z->end || *z->at == '\n' || ein__lex_at_cr(z);
}

static void ein__lex_next_line(ein__lexer *z) {
    while (z->at < z->end && *z->at != '\n') z->at++;
    if (z->at < z->end) z->at++;
    z->line_start = z->at;
    z->line++;
}

// The comment at `#`, without white space at its end. What is wrong in it leaves its statement
// good.
static const char *ein__lex_comment(ein__lexer *z) {
    const char *start = z->at;
    bool was_bad = z->bad;
    z->bad = false;
    while (!ein__lex_at_eol(z) && !z->bad) z->at += ein__lex_text_byte(z, "a comment");
    while (!ein__lex_at_eol(z)) z->at++;
    z->bad = was_bad;
    const char *stop = z->at;
    while (stop > start && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
    return ein__name_n(z->ctx, start, (size_t)(stop - start));
}

static int ein__hex(char c) {
    if (ein__is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// The byte an escape stands for, or 0 when it was refused; `z->at` is at the backslash.
static char ein__lex_escape(ein__lexer *z) {
    const char *s = z->at;
    char c = s + 1 < z->end ? s[1] : '\n';
    z->at = s + 1;
    if (c == '\n' || c == '\r') {
        ein__lex_error(z, s, "the string is not closed on its line");
        return 0;
    }
    z->at = s + 2;
    if (c == '"' || c == '\\') return c;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    if (c == 'x' && z->end - s >= 4 && ein__hex(s[2]) >= 0 && ein__hex(s[3]) >= 0) {
        z->at = s + 4;
        int v = ein__hex(s[2]) * 16 + ein__hex(s[3]);
        if (!v) ein__lex_error(z, s, "a name or string cannot hold a NUL byte");
        return (char)v;
    }
    ein__lex_error(z, s, "unknown escape: \\\" \\\\ \\n \\t and \\xNN are there");
    return 0;
}

static void ein__lex_string(ein__lexer *z, ein__token *t) {
    const char *start = z->at++;
    ein__buf b = {0};
    ein__put_n(&b, "", 0);
    bool closed = false, was_bad = z->bad;
    z->bad = false;
    while (!closed && !z->bad && !ein__lex_at_eol(z)) {
        if (*z->at == '"') {
            closed = true;
            z->at++;
        } else if (*z->at == '\\') {
            char c = ein__lex_escape(z);
            ein__put_n(&b, &c, 1);
        } else {
            int n = ein__lex_text_byte(z, "a string");
            ein__put_n(&b, z->at, (size_t)n);
            z->at += n;
        }
    }
    if (!z->bad && !closed) ein__lex_error(z, start, "the string is not closed on its line");
    if (!z->bad && b.n > EIN__MAX_NAME)
        ein__lex_error(z, start, "a name or string is longer than %d bytes", EIN__MAX_NAME);
    uint32_t code;
    for (size_t i = 0; !z->bad && i < b.n;) {
        int n = ein__utf8(b.s + i, b.s + b.n, &code);
        if (!n) ein__lex_error(z, start, "the escapes of this string do not give UTF-8");
        i += (size_t)n;
    }
    while (z->bad && !ein__lex_at_eol(z)) z->at++;
    t->kind = EIN__TOK_STRING;
    t->text = z->bad ? ein__name(z->ctx, "") : ein__name_n(z->ctx, b.s, b.n);
    z->bad |= was_bad;
    ein__buf_free(&b);
}

static void ein__lex_number(ein__lexer *z, ein__token *t) {
    const char *s = z->at, *p = s;
    bool integral = true, wrong = *p == '0' && ein__is_digit(p[1]);
    while (p < z->end && ein__is_digit(*p)) p++;
    if (p < z->end && *p == '.') {
        integral = false;
        p++;
        wrong |= !ein__is_digit(*p);
        while (p < z->end && ein__is_digit(*p)) p++;
    }
    if (p < z->end && (*p == 'e' || *p == 'E')) {
        integral = false;
        p++;
        if (p < z->end && (*p == '+' || *p == '-')) p++;
        wrong |= !ein__is_digit(*p);
        while (p < z->end && ein__is_digit(*p)) p++;
    }
    for (; p < z->end && (ein__is_alnum(*p) || *p == '.'); p++) wrong = true;
    z->at = p;
    t->kind = EIN__TOK_NUMBER;
    t->integral = integral;
    t->text = "0";
    if (p - s > EIN__MAX_DIGITS) {
        ein__lex_error(z, s, "a number has more than %d digits", EIN__MAX_DIGITS);
        return;
    }
    t->text = ein__name_n(z->ctx, s, (size_t)(p - s));
    if (wrong) {
        ein__lex_error(z, s, "malformed number '%s': write 10, 0.5 or 1e-5", t->text);
        return;
    }
    bool nonzero = false;
    const char *stop;
    t->num = ein__read_f64(t->text, &stop);
    for (const char *c = s; c < p && *c != 'e' && *c != 'E'; c++) {
        if (*c >= '1' && *c <= '9') nonzero = true;
        if (integral && (ein__mul_overflows(t->inum, 10, &t->inum) ||
                         ein__add_overflows(t->inum, *c - '0', &t->inum))) {
            ein__lex_error(z, s, "%s does not fit 64 bits", t->text);
            return;
        }
    }
    if (isinf(t->num) || (t->num == 0 && nonzero))
        ein__lex_error(z, s, "%s is outside the range of numbers", t->text);
}

static void ein__lex_op(ein__lexer *z, ein__token *t) {
    static const char *const op[] = {"->", "==", "!=", "<=", ">=", "+", "-", "*",
                                     "/",  "%",  "(",  ")",  "[",  "]", "{", "}",
                                     ",",  ";",  ":",  "=",  "<",  ">", "@"};
    t->kind = EIN__TOK_OP;
    for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
        size_t n = strlen(op[i]);
        if ((size_t)(z->end - z->at) < n || memcmp(z->at, op[i], n)) continue;
        t->text = op[i];
        z->at += n;
        return;
    }
    unsigned char c = (unsigned char)*z->at;
    if (c == '.') {
        ein__lex_error(z, z->at, "a number needs a digit before its point, a name a letter");
    } else if (c > 32 && c < 127) {
        ein__lex_error(z, z->at, "unexpected character '%c'", c);
    } else {
        uint32_t code;
        int n = ein__utf8(z->at, z->end, &code);
        if (n > 1) {
            ein__lex_error(z, z->at, "'%.*s' can only stand in quotes or a comment", n, z->at);
            z->at += n - 1;
        } else {
            ein__lex_error(z, z->at, "unexpected byte 0x%02x", c);
        }
    }
    z->at++;
    t->text = "?";
}

static void ein__lex_token(ein__lexer *z) {
    ein__token t = {.pos = ein__lex_pos(z, z->at)};
    if (ein__is_alpha(*z->at)) {
        const char *s = z->at;
        while (z->at < z->end && (ein__is_alnum(*z->at) ||
                                  (*z->at == '.' && z->at + 1 < z->end && ein__is_alnum(z->at[1]))))
            z->at++;
        t.kind = EIN__TOK_NAME;
        size_t n = (size_t)(z->at - s);
        if (n > EIN__MAX_NAME) {
            ein__lex_error(z, s, "a name or string is longer than %d bytes", EIN__MAX_NAME);
            n = 1;
        }
        t.text = ein__name_n(z->ctx, s, n);
    } else if (ein__is_digit(*z->at)) {
        ein__lex_number(z, &t);
    } else if (*z->at == '"') {
        ein__lex_string(z, &t);
    } else {
        ein__lex_op(z, &t);
    }
    arrput(z->tok, t);
    z->stop = ein__lex_pos(z, z->at);
}

static void ein__lex_stop(ein__lexer *z) {
    z->at = z->end;
    z->stopped = true;
}

// Bounds the memory that hostile text can claim, and the number of messages.
static bool ein__lex_count(ein__lexer *z) {
    if (++z->ntoken > EIN__MAX_TOKENS)
        ein__lex_error(z, z->at, "the text has more than %d words", EIN__MAX_TOKENS);
    if (z->ntoken > EIN__MAX_TOKENS || z->ctx->nerror > EIN__MAX_ERRORS) ein__lex_stop(z);
    return z->at < z->end;
}

// The rest of a line that has tokens.
static void ein__lex_line(ein__lexer *z) {
    z->trail = NULL;
    while (!ein__lex_at_eol(z)) {
        if (*z->at == ' ' || *z->at == '\t') {
            z->at++;
        } else if (*z->at == '#') {
            z->trail = ein__lex_comment(z);
        } else if (ein__lex_count(z)) {
            ein__lex_token(z);
        }
    }
}

// A line that ends with `{` begins a body, whose first statement sets the column.
static void ein__lex_open_body(ein__lexer *z) {
    if (z->depth == EIN__MAX_DEPTH) {
        ein__lex_error(z, z->at, "blocks are nested deeper than %d", EIN__MAX_DEPTH);
        ein__lex_stop(z);
        z->opens = false;
        return;
    }
    z->base[++z->depth] = -1;
}

static bool ein__lex_last_is(const ein__lexer *z, const char *op) {
    const ein__token *last = &arrlast(z->tok);
    return last->kind == EIN__TOK_OP && !strcmp(last->text, op);
}

// Comments inside a statement move above it.
static void ein__lex_lift(ein__lexer *z) {
    if (z->trail) arrput(z->lead, z->trail);
    for (ptrdiff_t i = 0; i < arrlen(z->pending); i++)
        if (*z->pending[i]) arrput(z->lead, z->pending[i]);
    arrsetlen(z->pending, 0);
}

// What was found above a statement becomes its own.
static void ein__lex_begin(ein__lexer *z, int64_t column) {
    for (ptrdiff_t i = 0; i < arrlen(z->pending); i++) arrput(z->lead, z->pending[i]);
    arrsetlen(z->pending, 0);
    z->closes = *z->at == '}';
    if (z->closes && z->depth > 0) {
        z->depth--;
    } else if (z->base[z->depth] < 0) {
        z->base[z->depth] = column;
    }
}

// Reads the next statement into `tok`; false at the end of the text, whose last comments are then
// in `pending`.
static bool ein__lex_statement(ein__lexer *z) {
    arrsetlen(z->tok, 0);
    arrsetlen(z->lead, 0);
    z->bad = z->opens = z->closes = false;
    z->trail = NULL;
    while (z->at < z->end && !z->opens) {
        const char *start = z->at;
        while (z->at < z->end && (*z->at == ' ' || *z->at == '\t')) z->at++;
        if (ein__lex_at_eol(z)) {
            if (arrlen(z->pending) && *arrlast(z->pending)) arrput(z->pending, "");
            if (!arrlen(z->pending)) arrput(z->pending, "");
        } else if (*z->at == '#') {
            const char *comment = ein__lex_comment(z);
            arrput(z->pending, comment);
            ein__lex_count(z);
        } else {
            if (arrlen(z->tok) && (*z->at == '}' || z->at - start <= z->base[z->depth])) {
                z->at = start;
                break;
            }
            if (arrlen(z->tok)) {
                ein__lex_lift(z);
            } else {
                ein__lex_begin(z, z->at - start);
            }
            ein__lex_line(z);
            z->opens = arrlen(z->tok) && !z->closes && ein__lex_last_is(z, "{");
        }
        ein__lex_next_line(z);
        if (z->opens) ein__lex_open_body(z);
    }
    if (!arrlen(z->tok)) return false;
    ein__token stop = {.kind = EIN__TOK_END, .pos = z->stop, .text = ""};
    arrput(z->tok, stop);
    return true;
}

static void ein__lex_open(ein__lexer *z, ein_ctx *ctx, const char *text, size_t length) {
    *z = (ein__lexer){.ctx = ctx, .at = text, .end = text + length, .line = 1};
    if (length >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) z->at += 3;
    z->line_start = z->at;
}

// Whether the first line that says anything begins with the word `ein`: what does not is no model,
// and not worth a message a byte.
static bool ein__lex_is_model(const ein__lexer *z) {
    for (const char *s = z->at; s < z->end;) {
        while (s < z->end && (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n')) s++;
        if (s < z->end && *s == '#') {
            while (s < z->end && *s != '\n') s++;
        } else if (s < z->end) {
            return z->end - s > 3 && !memcmp(s, "ein", 3) && !ein__is_alnum(s[3]);
        }
    }
    return true;
}

static void ein__lex_close(ein__lexer *z) {
    arrfree(z->tok);
    arrfree(z->lead);
    arrfree(z->pending);
}
/* ---- syntax.c ---- */
// The syntax tree, and the parser's first half: expressions and equations, by recursive descent
// over the tokens of one statement. Parse functions report what is wrong and return NULL or false.
//
// Keywords are names that mean something in their place only. `weight` begins a declaration when a
// name follows it and is a tensor in `weight = Relu(x)`; so no name has to be avoided. Two corners:
// a tensor called `_` or, behind `pad`, `in` is written in quotes.

typedef enum {
    EIN__ST_EIN,
    EIN__ST_MODEL,
    EIN__ST_DIM,
    EIN__ST_SMALL,
    EIN__ST_BLOB,
    EIN__ST_INPUT,
    EIN__ST_WEIGHT,
    EIN__ST_OUTPUT,
    EIN__ST_OPERATOR,
    EIN__ST_EQUATION,
    EIN__ST_BLOCK,
    EIN__ST_REPEAT
} ein__stmt_kind;

typedef struct ein__ident {
    const char *name;
    ein__pos pos;
} ein__ident;  // NULL: `_`

typedef struct ein__type {
    ein__pos pos;
    ein__dtype dtype;
    bool bad;  // of an output: its sizes are wrong, and that has been said
    int rank;
    ein__ast *dim[EIN__MAX_RANK];
} ein__type;

// Statements of all kinds share one struct; what is not said below to be used is zero.
typedef struct ein__stmt {
    ein__stmt_kind kind;
    int size;          // tokens
    ein__pos pos;      // of the keyword, the operator's name or the equation's result
    int nname;         // MODEL, BLOB, INPUT, WEIGHT, BLOCK, REPEAT: its name; DIM, SMALL,
    ein__ident *name;  //   OUTPUT: each name; OPERATOR: results
    ein__ast **value;  // DIM, SMALL: per name; REPEAT: first round and end
    ein__type **type;  // INPUT, WEIGHT: its type; OUTPUT: per name, NULL where not given
    ein__ident call;   // OPERATOR: operator or block; INPUT, WEIGHT: `randn` and so on, or
                       //   the blob; NULL: no source
    const char *text;  // BLOB: path; WEIGHT: the tensor's name in the blob, or NULL
    int narg;          // OPERATOR: arguments; BLOCK: inputs
    ein__ident *arg;
    int nattr;        // OPERATOR, INPUT, WEIGHT: attributes; BLOCK: parameters, whose value
    ein__attr *attr;  //   is NULL where the call has to give it
    int nresult;      // BLOCK
    ein__ident *result;
    ein__equation *eq;  // EQUATION
    ein__ast **pad;     //   values of eq->pad, which may be parameters
    int nbody;          // BLOCK, REPEAT
    struct ein__stmt **body;
    int nlead, ntail;  // comments above and, in a body, above the `}`; "" is a blank line
    const char **lead, **tail;
    const char *trail, *end_trail;  // comments behind the statement and the `}`, or NULL
} ein__stmt;

// The model as written. `stmt[0]` is the line `ein 1`.
struct ein__tree {
    int nstmt;
    ein__stmt **stmt;
    int ntail;
    const char **tail;  // comments below the last statement
};

typedef struct ein__parser {
    ein_ctx *ctx;
    ein__lexer lex;
    int at;            // token of the statement
    int depth;         // open brackets
    int height;        // of the expression built last
    bool floats;       // numbers may be floats: attribute values
    ein__ast **stack;  // stb_ds array: children not yet in their node
    bool open_at_end;  // the text ended inside a body; that has been said
    int nstmt;
} ein__parser;

// ------------------------------------------------------------------------------------- tokens

static const ein__token *ein__peek(const ein__parser *p, int ahead) {
    ptrdiff_t i = p->at + ahead, last = arrlen(p->lex.tok) - 1;
    return &p->lex.tok[i < last ? i : last];
}

static bool ein__is_op(const ein__parser *p, int ahead, const char *op) {
    const ein__token *t = ein__peek(p, ahead);
    return t->kind == EIN__TOK_OP && !strcmp(t->text, op);
}

static bool ein__is_word(const ein__parser *p, int ahead, const char *word) {
    const ein__token *t = ein__peek(p, ahead);
    return t->kind == EIN__TOK_NAME && (!word || !strcmp(t->text, word));
}

static bool ein__is_name(const ein__parser *p, int ahead) {
    ein__tok_kind kind = ein__peek(p, ahead)->kind;
    return kind == EIN__TOK_NAME || kind == EIN__TOK_STRING;
}

static bool ein__accept(ein__parser *p, const char *op) {
    bool is = ein__is_op(p, 0, op);
    p->at += is;
    return is;
}

// Always false, for `return ein__expected(..)`.
static bool ein__expected(ein__parser *p, const char *what) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind == EIN__TOK_END) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "expected %s, found the end of the line", what);
    } else if (t->kind == EIN__TOK_STRING) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "expected %s, found a string", what);
    } else {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "expected %s, found '%s'", what, t->text);
    }
    return false;
}

static bool ein__expect(ein__parser *p, const char *op) {
    if (ein__accept(p, op)) return true;
    char what[8] = "'";
    strcat(strcat(what, op), "'");
    return ein__expected(p, what);
}

// A tensor's, block's or operator's name, quoted or not.
static bool ein__parse_name(ein__parser *p, const char *what, ein__ident *name) {
    if (!ein__is_name(p, 0)) return ein__expected(p, what);
    const ein__token *t = ein__peek(p, 0);
    if (!*t->text) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "a name cannot be empty");
        return false;
    }
    *name = (ein__ident){t->text, t->pos};
    p->at++;
    return true;
}

// A dim's, parameter's, index's or attribute's name: never quoted. `inf` is a number.
static bool ein__parse_word(ein__parser *p, const char *what, ein__ident *name) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind != EIN__TOK_NAME) return ein__expected(p, what);
    if (!strcmp(t->text, "inf") || !strcmp(t->text, "_")) {
        ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "'%s' cannot be the name of anything", t->text);
        return false;
    }
    *name = (ein__ident){t->text, t->pos};
    p->at++;
    return true;
}

// ------------------------------------------------------------------------------------- nodes

static ein__ast *ein__ast_new(ein__parser *p, ein__akind kind, ein__pos pos) {
    ein__ast *a = EIN__NEW(&p->ctx->arena, ein__ast, 1);
    a->kind = kind;
    a->pos = pos;
    p->height = 1;
    return a;
}

// Trees are EIN__MAX_DEPTH high at most. Their text may have a sign and brackets for every level,
// so twice that many brackets are let through.
static bool ein__too_deep(ein__parser *p, int depth, int most, ein__pos pos) {
    if (depth <= most) return false;
    ein__error(p->ctx, EIN_RESOURCES, pos, "the expression is nested too deep");
    return true;
}

static bool ein__enter(ein__parser *p, ein__pos pos) {
    return !ein__too_deep(p, ++p->depth, 2 * EIN__MAX_DEPTH, pos);
}

// Takes the children pushed since `base` off the stack; `height` is the tallest one's.
static ein__ast *ein__ast_take(ein__parser *p, ein__ast *a, ptrdiff_t base, int height) {
    a->nkid = (int)(arrlen(p->stack) - base);
    a->kid = EIN__NEW(&p->ctx->arena, ein__ast *, a->nkid + !a->nkid);
    for (int i = 0; i < a->nkid; i++) a->kid[i] = p->stack[base + i];
    arrsetlen(p->stack, (size_t)base);
    p->height = height + 1;
    return ein__too_deep(p, p->height, EIN__MAX_DEPTH, a->pos) ? NULL : a;
}

static ein__ast *ein__ast_number(ein__parser *p, const ein__token *t) {
    ein__ast *a = ein__ast_new(p, EIN__A_NUM, t->pos);
    a->num = t->num;
    a->inum = t->inum;
    a->integral = t->integral;
    return a;
}

static ein__ast *ein__ast_word(ein__parser *p, ein__akind kind, const ein__token *t) {
    ein__ast *a = ein__ast_new(p, kind, t->pos);
    a->name = t->text;
    a->quoted = t->kind == EIN__TOK_STRING;
    return a;
}

static ein__ast *ein__ast_unary(ein__parser *p, ein__akind kind, ein__pos pos, ein__ast *kid) {
    if (!kid) return NULL;
    int height = p->height;
    ptrdiff_t base = arrlen(p->stack);
    arrput(p->stack, kid);
    return ein__ast_take(p, ein__ast_new(p, kind, pos), base, height);
}

typedef ein__ast *ein__parse_fn(ein__parser *p);

// ORDER ein__akind, from EIN__A_ADD on
static const char ein__arithmetic[] = "+-*/%";

// One of the operators in `ops` at the cursor, or 0.
static char ein__is_one_of(const ein__parser *p, const char *ops) {
    const ein__token *t = ein__peek(p, 0);
    bool is = t->kind == EIN__TOK_OP && !t->text[1] && strchr(ops, t->text[0]);
    return is ? t->text[0] : 0;
}

// next { op next }, grouped to the left.
static ein__ast *ein__parse_chain(ein__parser *p, const char *ops, ein__parse_fn *next) {
    ein__ast *left = next(p);
    for (char op; left && (op = ein__is_one_of(p, ops)) != 0;) {
        ein__akind kind =
            (ein__akind)(EIN__A_ADD + (strchr(ein__arithmetic, op) - ein__arithmetic));
        ein__pos pos = ein__peek(p, 0)->pos;
        int height = p->height;
        ptrdiff_t base = arrlen(p->stack);
        p->at++;
        arrput(p->stack, left);
        ein__ast *right = next(p);
        if (!right) return NULL;
        arrput(p->stack, right);
        if (p->height > height) height = p->height;
        left = ein__ast_take(p, ein__ast_new(p, kind, pos), base, height);
    }
    return left;
}

// Children that `next` reads, separated by commas and ended by `close`, onto the stack: at most
// `most` of `what`. The opening bracket has been read; the list may be empty when `empty`.
static bool ein__parse_list(ein__parser *p, const char *close, bool empty, int most,
                            const char *what, ein__parse_fn *next, int *height) {
    if (!ein__enter(p, ein__peek(p, 0)->pos)) return false;
    *height = 0;
    int n = 0;
    bool more = !(empty && ein__is_op(p, 0, close));
    while (more) {
        ein__pos pos = ein__peek(p, 0)->pos;
        ein__ast *a = next(p);
        if (!a) return false;
        if (++n > most) {
            ein__error(p->ctx, EIN_RESOURCES, pos, "more than %d %s", most, what);
            return false;
        }
        arrput(p->stack, a);
        if (p->height > *height) *height = p->height;
        more = ein__accept(p, ",");
    }
    p->depth--;
    if (ein__accept(p, close)) return true;
    char wanted[] = "',' or '?'";
    wanted[8] = *close;
    return ein__expected(p, wanted);
}

// ------------------------------------------------------------------------------------- subscripts

static ein__ast *ein__parse_sexpr(ein__parser *p);

static ein__ast *ein__parse_satom(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    if (ein__is_op(p, 0, "-") || ein__is_op(p, 0, "(")) {
        ein__pos pos = t->pos;
        bool minus = ein__is_op(p, 0, "-");
        if (!ein__enter(p, pos)) return NULL;
        p->at++;
        ein__ast *a =
            minus ? ein__ast_unary(p, EIN__A_NEG, pos, ein__parse_satom(p)) : ein__parse_sexpr(p);
        p->depth--;
        return a && (minus || ein__expect(p, ")")) ? a : NULL;
    }
    if (t->kind == EIN__TOK_NUMBER) {
        if (!t->integral && !p->floats) {
            ein__expected(p, "an integer");
            return NULL;
        }
        p->at++;
        return ein__ast_number(p, t);
    }
    if (t->kind == EIN__TOK_NAME) {
        p->at++;
        return ein__ast_word(p, EIN__A_NAME, t);
    }
    ein__expected(p, p->floats ? "a value" : "an integer, a name or '('");
    return NULL;
}

static ein__ast *ein__parse_sterm(ein__parser *p) {
    return ein__parse_chain(p, "*/%", ein__parse_satom);
}

static ein__ast *ein__parse_sexpr(ein__parser *p) {
    return ein__parse_chain(p, "+-", ein__parse_sterm);
}

// An attribute's value: expression, word, string or list of them.
static ein__ast *ein__parse_value(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind == EIN__TOK_STRING) {
        p->at++;
        return ein__ast_word(p, EIN__A_STR, t);
    }
    if (ein__is_op(p, 0, "[")) {
        ein__pos pos = t->pos;
        ptrdiff_t base = arrlen(p->stack);
        int height;
        p->at++;
        if (!ein__parse_list(p, "]", true, EIN__MAX_TOKENS, "values", ein__parse_value, &height))
            return NULL;
        return ein__ast_take(p, ein__ast_new(p, EIN__A_LIST, pos), base, height);
    }
    bool floats = p->floats;
    p->floats = true;
    ein__ast *a = ein__parse_sexpr(p);
    p->floats = floats;
    return a;
}

static const char *ein__parse_cmp(ein__parser *p) {
    static const char *const op[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < sizeof op / sizeof *op; i++)
        if (ein__accept(p, op[i])) return op[i];
    ein__expected(p, "a comparison");
    return NULL;
}

// ------------------------------------------------------------------------------------- expressions

static ein__ast *ein__parse_expr(ein__parser *p);
static ein__ast *ein__parse_term(ein__parser *p);

// side cmp side
static ein__ast *ein__parse_comparison(ein__parser *p, ein__parse_fn *side) {
    ein__pos pos = ein__peek(p, 0)->pos;
    ptrdiff_t base = arrlen(p->stack);
    ein__ast *left = side(p);
    int height = p->height;
    const char *op = left ? ein__parse_cmp(p) : NULL;
    if (!op) return NULL;
    arrput(p->stack, left);
    ein__ast *right = side(p);
    if (!right) return NULL;
    arrput(p->stack, right);
    if (p->height > height) height = p->height;
    ein__ast *a = ein__ast_new(p, EIN__A_CMP, pos);
    a->name = op;
    return ein__ast_take(p, a, base, height);
}

static ein__ast *ein__parse_subscript(ein__parser *p);

// name [ subscripts ]
static ein__ast *ein__parse_read(ein__parser *p) {
    ein__ident name = {0};
    if (!ein__parse_name(p, "a tensor's name", &name) || !ein__expect(p, "[")) return NULL;
    bool quoted = ein__peek(p, -2)->kind == EIN__TOK_STRING;
    ptrdiff_t base = arrlen(p->stack);
    int height;
    if (!ein__parse_list(p, "]", true, EIN__MAX_RANK, "subscripts", ein__parse_subscript, &height))
        return NULL;
    ein__ast *a = ein__ast_new(p, EIN__A_READ, name.pos);
    a->name = name.name;
    a->quoted = quoted;
    return ein__ast_take(p, a, base, height);
}

static ein__ast *ein__parse_subscript(ein__parser *p) {
    ein__pos pos = ein__peek(p, 0)->pos;
    if (!ein__accept(p, "@")) return ein__parse_sexpr(p);
    return ein__ast_unary(p, EIN__A_GATHER, pos, ein__parse_read(p));
}

// Functions of values; reductions are told apart by what stands in the parentheses.
static const struct {
    const char *name;
    int arity;
} ein__callable[] = {
    {"abs", 1},    {"ceil", 1},    {"erf", 1},  {"exp", 1},    {"floor", 1}, {"log", 1},
    {"max", 2},    {"min", 2},     {"neg", 1},  {"pow", 2},    {"relu", 1},  {"rsqrt", 1},
    {"select", 3}, {"sigmoid", 1}, {"sqrt", 1}, {"square", 1}, {"tanh", 1},
};
static const char *const ein__reduction[] = {"sum", "prod", "max", "min"};

static bool ein__is_reduction(const char *name) {
    for (size_t i = 0; i < sizeof ein__reduction / sizeof *ein__reduction; i++)
        if (!strcmp(name, ein__reduction[i])) return true;
    return false;
}

static void ein__unknown_function(ein__parser *p, const ein__token *t) {
    const char *best = NULL;
    int distance = 3;
    ein__suggest(t->text, "idx", &best, &distance);
    for (size_t i = 0; i < sizeof ein__reduction / sizeof *ein__reduction; i++)
        ein__suggest(t->text, ein__reduction[i], &best, &distance);
    for (size_t i = 0; i < sizeof ein__callable / sizeof *ein__callable; i++)
        ein__suggest(t->text, ein__callable[i].name, &best, &distance);
    ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "unknown function '%s'%s", t->text,
               ein__hint(p->ctx, best));
}

// name ( expr, .. ); select begins with a comparison.
static ein__ast *ein__parse_call(ein__parser *p) {
    const ein__token t = *ein__peek(p, 0);
    int arity = 0, height = 0;
    for (size_t i = 0; i < sizeof ein__callable / sizeof *ein__callable; i++)
        if (!strcmp(t.text, ein__callable[i].name)) arity = ein__callable[i].arity;
    if (!arity && !ein__is_reduction(t.text)) {
        ein__unknown_function(p, &t);
        return NULL;
    }
    if (!arity) {
        p->at += 2;
        ein__expected(p, "names of indices");
        return NULL;
    }
    p->at += 2;
    ptrdiff_t base = arrlen(p->stack);
    bool select = !strcmp(t.text, "select");
    if (select) {
        ein__ast *condition = ein__parse_comparison(p, ein__parse_expr);
        if (!condition || !ein__expect(p, ",")) return NULL;
        arrput(p->stack, condition);
        height = p->height;
    }
    int h;
    if (!ein__parse_list(p, ")", false, EIN__MAX_ARGS, "arguments", ein__parse_expr, &h))
        return NULL;
    if (h > height) height = h;
    ein__ast *a = ein__ast_new(p, EIN__A_CALL, t.pos);
    a->name = t.text;
    a = ein__ast_take(p, a, base, height);
    if (a && a->nkid != arity) {
        ein__error(p->ctx, EIN_BAD_INPUT, t.pos, "%s takes %d argument%s, %d given", t.text, arity,
                   arity == 1 ? "" : "s", a->nkid);
        return NULL;
    }
    return a;
}

static ein__ast *ein__parse_index(ein__parser *p) {
    ein__ident name;
    const ein__token t = *ein__peek(p, 0);
    return ein__parse_word(p, "an index", &name) ? ein__ast_word(p, EIN__A_NAME, &t) : NULL;
}

// sum ( names ) term
static ein__ast *ein__parse_reduce(ein__parser *p) {
    const ein__token t = *ein__peek(p, 0);
    ptrdiff_t base = arrlen(p->stack);
    int height;
    p->at += 2;
    if (!ein__parse_list(p, ")", false, EIN__MAX_ITERS, "indices", ein__parse_index, &height))
        return NULL;
    if (!ein__enter(p, t.pos)) return NULL;
    ein__ast *body = ein__parse_term(p);
    if (!body) return NULL;
    p->depth--;
    arrput(p->stack, body);
    height = p->height;
    ein__ast *a = ein__ast_new(p, EIN__A_REDUCE, t.pos);
    a->name = t.text;
    return ein__ast_take(p, a, base, height);
}

// At `name (`: bare names alone in the parentheses.
static bool ein__names_in_parens(const ein__parser *p) {
    for (int i = 2; ein__is_word(p, i, NULL); i += 2) {
        if (ein__is_op(p, i + 1, ")")) return true;
        if (!ein__is_op(p, i + 1, ",")) return false;
    }
    return false;
}

// A name that begins a factor.
static ein__ast *ein__parse_named(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    ein__pos pos = t->pos;
    if (ein__is_op(p, 1, "[")) return ein__parse_read(p);
    if (t->kind == EIN__TOK_NAME && ein__is_op(p, 1, "(")) {
        if (!strcmp(t->text, "idx")) {
            p->at += 2;
            ein__ast *a = ein__ast_unary(p, EIN__A_IDX, pos, ein__parse_sexpr(p));
            return a && ein__expect(p, ")") ? a : NULL;
        }
        bool reduce = ein__is_reduction(t->text) && ein__names_in_parens(p);
        return reduce ? ein__parse_reduce(p) : ein__parse_call(p);
    }
    if (ein__is_word(p, 0, "inf")) {
        p->at++;
        ein__ast *a = ein__ast_new(p, EIN__A_NUM, pos);
        a->num = (double)INFINITY;
        return a;
    }
    ein__error(p->ctx, EIN_BAD_INPUT, pos,
               "'%s' alone is not a value: write %s[..] for a tensor "
               "or idx(%s) for an index or dim",
               t->text, t->text, t->text);
    return NULL;
}

static ein__ast *ein__parse_factor(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    ein__pos pos = t->pos;
    if (t->kind == EIN__TOK_NUMBER) {
        p->at++;
        return ein__ast_number(p, t);
    }
    if (ein__is_name(p, 0)) return ein__parse_named(p);
    if (!ein__enter(p, pos)) return NULL;
    ein__ast *a = NULL;
    if (ein__accept(p, "-")) {
        a = ein__ast_unary(p, EIN__A_NEG, pos, ein__parse_factor(p));
    } else if (ein__accept(p, "(")) {
        a = ein__parse_expr(p);
        if (a && !ein__expect(p, ")")) return NULL;
    } else if (ein__accept(p, "[")) {
        a = ein__ast_unary(p, EIN__A_GUARD, pos, ein__parse_comparison(p, ein__parse_sexpr));
        if (a && !ein__expect(p, "]")) return NULL;
    } else {
        ein__expected(p, "an expression");
    }
    p->depth--;
    return a;
}

static ein__ast *ein__parse_term(ein__parser *p) {
    return ein__parse_chain(p, "*/", ein__parse_factor);
}

static ein__ast *ein__parse_expr(ein__parser *p) {
    return ein__parse_chain(p, "+-", ein__parse_term);
}

// ------------------------------------------------------------------------------------- equations

// Copies an stb_ds array into the arena and frees it.
#define EIN__KEEP(p, list, count, array)                                                    \
    do {                                                                                    \
        (count) = (int)arrlen(array);                                                       \
        (list) = ein__alloc(&(p)->ctx->arena, (arrlenu(array) + !array) * sizeof *(array)); \
        if (array) memcpy((list), (array), arrlenu(array) * sizeof *(array));               \
        arrfree(array);                                                                     \
    } while (0)

// The value of a padding that is a plain number.
static bool ein__literal(const ein__ast *a, double *v) {
    if (a->kind == EIN__A_NEG && ein__literal(a->kid[0], v)) {
        *v = -*v;
        return true;
    }
    if (a->kind == EIN__A_NAME && !strcmp(a->name, "inf")) *v = (double)INFINITY;
    else if (a->kind == EIN__A_NUM) *v = a->num;
    else return false;
    return true;
}

typedef struct ein__clauses {
    ein__range *range;
    ein__padval *pad;
    ein__ast **value;
} ein__clauses;

// name in lo : hi | pad name value
static bool ein__parse_clause(ein__parser *p, ein__clauses *c) {
    if (ein__is_word(p, 0, "pad") && ein__is_name(p, 1) && !ein__is_word(p, 1, "in")) {
        p->at++;
        ein__ident name;
        if (!ein__parse_name(p, "a tensor's name", &name)) return false;
        ein__ast *value = ein__parse_value(p);
        if (!value) return false;
        ein__padval pad = {name.name, name.pos, 0};
        ein__literal(value, &pad.value);
        for (ptrdiff_t i = 0; i < arrlen(c->pad); i++)
            if (c->pad[i].tensor == name.name) {
                ein__error(p->ctx, EIN_BAD_INPUT, name.pos, "padding of '%s' is given twice",
                           name.name);
                return false;
            }
        arrput(c->pad, pad);
        arrput(c->value, value);
        return true;
    }
    ein__ident name;
    if (!ein__parse_word(p, "an index or 'pad'", &name)) return false;
    if (!ein__is_word(p, 0, "in")) return ein__expected(p, "'in'");
    p->at++;
    ein__range range = {.name = name.name, .pos = name.pos};
    range.lo = ein__parse_sexpr(p);
    if (!range.lo || !ein__expect(p, ":")) return false;
    range.hi = ein__parse_sexpr(p);
    if (!range.hi) return false;
    for (ptrdiff_t i = 0; i < arrlen(c->range); i++)
        if (c->range[i].name == name.name) {
            ein__error(p->ctx, EIN_BAD_INPUT, name.pos, "range of '%s' is given twice", name.name);
            return false;
        }
    arrput(c->range, range);
    return true;
}

static bool ein__parse_where(ein__parser *p, ein__stmt *s) {
    ein__clauses c = {0};
    bool ok = true;
    if (ein__is_word(p, 0, "where")) {
        p->at++;
        do {
            ok = ein__parse_clause(p, &c);
            if (ok && arrlen(c.range) + arrlen(c.pad) > 2 * EIN__MAX_ARGS) {
                ein__error(p->ctx, EIN_RESOURCES, s->pos, "more than %d clauses",
                           2 * EIN__MAX_ARGS);
                ok = false;
            }
        } while (ok && ein__accept(p, ","));
    }
    EIN__KEEP(p, s->eq->range, s->eq->nrange, c.range);
    EIN__KEEP(p, s->eq->pad, s->eq->npad, c.pad);
    EIN__KEEP(p, s->pad, s->eq->npad, c.value);
    return ok;
}

// name [ names ] = expr [ where .. ]
static bool ein__parse_equation(ein__parser *p, ein__stmt *s) {
    ein__ident name, index;
    s->kind = EIN__ST_EQUATION;
    if (!ein__parse_name(p, "a tensor's name", &name) || !ein__expect(p, "[")) return false;
    ein__equation *eq = s->eq = EIN__NEW(&p->ctx->arena, ein__equation, 1);
    eq->result = name.name;
    eq->pos = s->pos = name.pos;
    if (!ein__is_op(p, 0, "]")) {
        do {
            if (!ein__parse_word(p, "an index", &index)) return false;
            if (eq->rank == EIN__MAX_RANK) {
                ein__error(p->ctx, EIN_RESOURCES, index.pos, "more than %d dimensions",
                           EIN__MAX_RANK);
                return false;
            }
            eq->index[eq->rank] = index.name;
            eq->index_pos[eq->rank++] = index.pos;
        } while (ein__accept(p, ","));
    }
    if (!ein__expect(p, "]") || !ein__expect(p, "=")) return false;
    eq->body = ein__parse_expr(p);
    return eq->body && ein__parse_where(p, s);
}
/* ---- parse.c ---- */
// Statements: the second half of the parser. A statement with a mistake is reported and left out,
// so that one run finds the mistakes of a whole file.

static bool ein__parse_end(ein__parser *p, const char *what) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind == EIN__TOK_END) return true;
    if (t->pos.line == ein__peek(p, -1)->pos.line) return ein__expected(p, what);
    ein__error(p->ctx, EIN_BAD_INPUT, t->pos,
               "this line is indented and so continues the one "
               "above, but that is complete");
    return false;
}

// A list of names from one on; `close` is reported as missing when something else follows.
static bool ein__parse_names(ein__parser *p, const char *what, int *n, ein__ident **names) {
    ein__ident name, *list = NULL;
    bool ok;
    do {
        ok = ein__parse_name(p, what, &name);
        if (ok) arrput(list, name);
        if (ok && arrlen(list) > EIN__MAX_ARGS) {
            ein__error(p->ctx, EIN_RESOURCES, name.pos, "more than %d in one list", EIN__MAX_ARGS);
            ok = false;
        }
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, *names, *n, list);
    return ok;
}

static bool ein__parse_one_name(ein__parser *p, const char *what, ein__stmt *s) {
    s->nname = 1;
    s->name = EIN__NEW(&p->ctx->arena, ein__ident, 1);
    return ein__parse_name(p, what, s->name);
}

// name = value, ..; in a block's head the value may be missing.
static bool ein__parse_attrs(ein__parser *p, bool params, ein__stmt *s) {
    ein__attr *list = NULL;
    ein__ident name;
    bool ok;
    do {
        ein__ast *value = NULL;
        ok = ein__parse_word(p, params ? "a parameter" : "an attribute", &name);
        if (ok && (!params || ein__is_op(p, 0, "=")))
            ok = ein__expect(p, "=") && (value = ein__parse_value(p)) != NULL;
        for (ptrdiff_t i = 0; ok && i < arrlen(list); i++)
            if (list[i].name == name.name) {
                ein__error(p->ctx, EIN_BAD_INPUT, name.pos, "'%s' is given twice", name.name);
                ok = false;
            }
        if (ok && arrlen(list) == EIN__MAX_ARGS) {
            ein__error(p->ctx, EIN_RESOURCES, name.pos, "more than %d in one list", EIN__MAX_ARGS);
            ok = false;
        }
        ein__attr attr = {name.name, name.pos, value};
        if (ok) arrput(list, attr);
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, s->attr, s->nattr, list);
    return ok;
}

EIN__FN bool ein__dtype_find(const char *name, ein__dtype *dtype) {
    for (int i = 0; i < EIN__NDTYPE; i++)
        if (!strcmp(name, ein__dtype_name((ein__dtype)i))) {
            *dtype = (ein__dtype)i;
            return true;
        }
    return false;
}

// dtype [ sizes ]
static ein__type *ein__parse_type(ein__parser *p) {
    const ein__token t = *ein__peek(p, 0);
    ein__type *type = EIN__NEW(&p->ctx->arena, ein__type, 1);
    if (t.kind != EIN__TOK_NAME) {
        ein__expected(p, "a type such as f32[2,3]");
        return NULL;
    }
    type->pos = t.pos;
    if (!ein__dtype_find(t.text, &type->dtype)) {
        const char *best = NULL;
        int distance = 3;
        for (int i = 0; i < EIN__NDTYPE; i++)
            ein__suggest(t.text, ein__dtype_name((ein__dtype)i), &best, &distance);
        ein__error(p->ctx, EIN_BAD_INPUT, t.pos, "unknown type '%s'%s", t.text,
                   ein__hint(p->ctx, best));
        return NULL;
    }
    p->at++;
    ptrdiff_t base = arrlen(p->stack);
    int height;
    if (!ein__expect(p, "[") ||
        !ein__parse_list(p, "]", true, EIN__MAX_RANK, "dimensions", ein__parse_sexpr, &height))
        return NULL;
    type->rank = (int)(arrlen(p->stack) - base);
    for (int i = 0; i < type->rank; i++) type->dim[i] = p->stack[base + i];
    arrsetlen(p->stack, (size_t)base);
    return type;
}

static bool ein__parse_dims(ein__parser *p, ein__stmt *s) {
    ein__ident name, *names = NULL;
    ein__ast **values = NULL;
    bool ok;
    do {
        ein__ast *value = NULL;
        ok = ein__parse_word(p, "a dim's name", &name) && ein__expect(p, "=") &&
             (value = ein__parse_sexpr(p)) != NULL;
        if (ok) arrput(names, name);
        if (ok) arrput(values, value);
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, s->name, s->nname, names);
    EIN__KEEP(p, s->value, s->nname, values);
    return ok;
}

// "text"
static bool ein__parse_text(ein__parser *p, const char *what, const char **text) {
    const ein__token *t = ein__peek(p, 0);
    if (t->kind != EIN__TOK_STRING) return ein__expected(p, what);
    *text = t->text;
    p->at++;
    return true;
}

static bool ein__parse_blob(ein__parser *p, ein__stmt *s) {
    return ein__parse_one_name(p, "the blob's name", s) && ein__expect(p, "=") &&
           ein__parse_text(p, "a file's name in quotes", &s->text);
}

// name : type [ = source ]
static bool ein__parse_tensor(ein__parser *p, ein__stmt *s) {
    s->type = EIN__NEW(&p->ctx->arena, ein__type *, 1);
    if (!ein__parse_one_name(p, "a tensor's name", s) || !ein__expect(p, ":")) return false;
    s->type[0] = ein__parse_type(p);
    if (!s->type[0]) return false;
    if (!ein__accept(p, "=")) return true;
    if (!ein__parse_name(p, "a source: zeros(), ones(), randn(..), uniform(..) or BLOB \"name\"",
                         &s->call))
        return false;
    if (!ein__is_op(p, 0, "("))
        return ein__parse_text(p, "'(' or the tensor's name in the blob, in quotes", &s->text);
    p->at++;
    return ein__accept(p, ")") || (ein__parse_attrs(p, false, s) && ein__expect(p, ")"));
}

// name [ : type ], ..
static bool ein__parse_output(ein__parser *p, ein__stmt *s) {
    ein__ident name, *names = NULL;
    ein__type **types = NULL;
    bool ok;
    do {
        ein__type *type = NULL;
        ok = ein__parse_name(p, "a tensor's name", &name);
        if (ok && ein__accept(p, ":")) ok = (type = ein__parse_type(p)) != NULL;
        if (ok) arrput(names, name);
        if (ok) arrput(types, type);
    } while (ok && ein__accept(p, ","));
    EIN__KEEP(p, s->name, s->nname, names);
    EIN__KEEP(p, s->type, s->nname, types);
    return ok;
}

// names = name ( [ args ] [ ; attrs ] )
static bool ein__parse_operator(ein__parser *p, ein__stmt *s) {
    s->kind = EIN__ST_OPERATOR;
    if (!ein__parse_names(p, "a tensor's name", &s->nname, &s->name) || !ein__expect(p, "=") ||
        !ein__parse_name(p, "an operator", &s->call))
        return false;
    s->pos = s->call.pos;
    if (!ein__expect(p, "(")) return false;
    if (!ein__is_op(p, 0, ")") && !ein__is_op(p, 0, ";")) {
        int first = p->at;
        if (!ein__parse_names(p, "a tensor's name or '_'", &s->narg, &s->arg)) return false;
        for (int i = 0; i < s->narg; i++) {
            const ein__token *t = &p->lex.tok[first + 2 * i];
            if (t->kind == EIN__TOK_NAME && !strcmp(t->text, "_")) s->arg[i].name = NULL;
        }
    }
    if (ein__accept(p, ";") && !ein__is_op(p, 0, ")") && !ein__parse_attrs(p, false, s))
        return false;
    return ein__accept(p, ")") || ein__expected(p, s->nattr ? "',' or ')'" : "',', ';' or ')'");
}

static bool ein__parse_body(ein__parser *p, ein__stmt *s);

// Names that a block's head may not have twice.
static bool ein__distinct(ein__parser *p, const ein__stmt *s) {
    for (int i = 0; i < s->narg + s->nresult + s->nattr; i++)
        for (int j = 0; j < i; j++) {
            ein__ident two[2];
            for (int k = 0; k < 2; k++) {
                int m = k ? i : j;
                if (m < s->narg) two[k] = s->arg[m];
                else if (m < s->narg + s->nattr)
                    two[k] = (ein__ident){s->attr[m - s->narg].name, s->attr[m - s->narg].pos};
                else two[k] = s->result[m - s->narg - s->nattr];
            }
            if (two[0].name != two[1].name) continue;
            ein__error(p->ctx, EIN_BAD_INPUT, two[1].pos,
                       "'%s' stands twice in the head of block "
                       "'%s'",
                       two[1].name, s->name[0].name);
            return false;
        }
    return true;
}

// name ( [ inputs ] [ ; params ] ) -> results {
static bool ein__parse_block(ein__parser *p, ein__stmt *s) {
    if (!ein__parse_one_name(p, "the block's name", s) || !ein__expect(p, "(")) return false;
    if (!ein__is_op(p, 0, ")") && !ein__is_op(p, 0, ";") &&
        !ein__parse_names(p, "an input's name", &s->narg, &s->arg))
        return false;
    if (ein__accept(p, ";") && !ein__is_op(p, 0, ")") && !ein__parse_attrs(p, true, s))
        return false;
    if (!ein__accept(p, ")")) return ein__expected(p, s->nattr ? "',' or ')'" : "',', ';' or ')'");
    return ein__expect(p, "->") &&
           ein__parse_names(p, "a result's name", &s->nresult, &s->result) && ein__expect(p, "{") &&
           ein__distinct(p, s);
}

// name in lo : hi {
static bool ein__parse_repeat(ein__parser *p, ein__stmt *s) {
    s->nname = 1;
    s->name = EIN__NEW(&p->ctx->arena, ein__ident, 1);
    s->value = EIN__NEW(&p->ctx->arena, ein__ast *, 2);
    if (!ein__parse_word(p, "the loop variable's name", s->name)) return false;
    if (!ein__is_word(p, 0, "in")) return ein__expected(p, "'in'");
    p->at++;
    if (!(s->value[0] = ein__parse_sexpr(p)) || !ein__expect(p, ":")) return false;
    return (s->value[1] = ein__parse_sexpr(p)) != NULL && ein__expect(p, "{");
}

// ORDER ein__stmt_kind
static const char *const ein__keyword[] = {"ein",    "model",  "dim", "small", "blob",  "input",
                                           "weight", "output", NULL,  NULL,    "block", "repeat"};

static bool ein__no_statement(ein__parser *p) {
    const ein__token *t = ein__peek(p, 0);
    for (int k = 0; k <= EIN__ST_REPEAT; k++)
        if (ein__keyword[k] && ein__is_word(p, 0, ein__keyword[k])) {
            p->at++;
            return ein__expected(p, "a name");
        }
    if (!ein__is_name(p, 1)) {
        p->at++;
        return ein__expected(p, "'=', ',' or '['");
    }
    const char *best = NULL;
    int distance = 3;
    for (int k = EIN__ST_MODEL; k <= EIN__ST_REPEAT; k++)
        if (ein__keyword[k]) ein__suggest(t->text, ein__keyword[k], &best, &distance);
    ein__error(p->ctx, EIN_BAD_INPUT, t->pos, "unknown statement '%s'%s", t->text,
               ein__hint(p->ctx, best));
    return false;
}

static bool ein__parse_keyword(ein__parser *p, ein__stmt *s) {
    s->pos = ein__peek(p, 0)->pos;
    p->at++;
    switch (s->kind) {
    case EIN__ST_MODEL: return ein__parse_one_name(p, "the model's name", s);
    case EIN__ST_DIM:
    case EIN__ST_SMALL: return ein__parse_dims(p, s);
    case EIN__ST_BLOB: return ein__parse_blob(p, s);
    case EIN__ST_INPUT:
    case EIN__ST_WEIGHT: return ein__parse_tensor(p, s);
    case EIN__ST_OUTPUT: return ein__parse_output(p, s);
    case EIN__ST_BLOCK: return ein__parse_block(p, s);
    case EIN__ST_REPEAT: return ein__parse_repeat(p, s);
    case EIN__ST_EIN:
    case EIN__ST_OPERATOR:
    case EIN__ST_EQUATION:
    default: break;
    }
    ein__error(p->ctx, EIN_BAD_INPUT, s->pos, "'ein 1' stands once, in the first line");
    return false;
}

// The statement in the tokens at hand.
static bool ein__parse_statement(ein__parser *p, ein__stmt *s) {
    p->at = p->depth = 0;
    p->floats = false;
    arrsetlen(p->stack, 0);
    if (!ein__is_name(p, 0)) return ein__expected(p, "a statement");
    if (ein__is_op(p, 1, "[")) {
        const char *what = "the end of the line";
        if (!ein__parse_equation(p, s)) return false;
        if (!s->eq->nrange && !s->eq->npad) what = "an operator, 'where' or the end of the line";
        return ein__parse_end(p, what);
    }
    if (ein__is_op(p, 1, "=") || ein__is_op(p, 1, ","))
        return ein__parse_operator(p, s) && ein__parse_end(p, "the end of the line");
    bool ein = ein__is_word(p, 0, "ein") && ein__peek(p, 1)->kind == EIN__TOK_NUMBER;
    for (int k = 0; k <= EIN__ST_REPEAT; k++)
        if (ein__keyword[k] && ein__is_word(p, 0, ein__keyword[k]) && (ein__is_name(p, 1) || ein)) {
            s->kind = (ein__stmt_kind)k;
            return ein__parse_keyword(p, s) && ein__parse_end(p, "the end of the line");
        }
    return ein__no_statement(p);
}

// Copies comments into the arena, without blank lines at the ends where `trim` says so (bit 0:
// first, bit 1: last).
static const char **ein__keep_notes(ein__parser *p, const char **note, int trim, int *n) {
    ptrdiff_t from = 0, to = arrlen(note);
    while ((trim & 1) && from < to && !*note[from]) from++;
    while ((trim & 2) && from < to && !*note[to - 1]) to--;
    *n = (int)(to - from);
    const char **kept = EIN__NEW(&p->ctx->arena, const char *, *n + 1);
    for (ptrdiff_t i = from; i < to; i++) kept[i - from] = note[i];
    return kept;
}

// Reads the next statement with its body; NULL when the text or the body around it ends. A
// statement that is wrong is reported and comes back with `*ok` false.
static ein__stmt *ein__next_statement(ein__parser *p, bool first, bool *ok) {
    if (!ein__lex_statement(&p->lex)) return NULL;
    if (p->lex.closes) {
        p->at = 1;
        if (!p->lex.bad) ein__parse_end(p, "the end of the line");
        return NULL;
    }
    ein__stmt *s = EIN__NEW(&p->ctx->arena, ein__stmt, 1);
    s->pos = p->lex.tok[0].pos;
    s->lead = ein__keep_notes(p, p->lex.lead, first, &s->nlead);
    s->trail = p->lex.trail;
    s->size = (int)arrlen(p->lex.tok);
    bool opens = p->lex.opens;
    *ok = !p->lex.bad;
    if (*ok && ++p->nstmt > EIN__MAX_NODES) {
        ein__error(p->ctx, EIN_RESOURCES, s->pos, "the text has more than %d statements",
                   EIN__MAX_NODES);
        ein__lex_stop(&p->lex);
        *ok = false;
    }
    *ok = *ok && ein__parse_statement(p, s);
    if (opens && !ein__parse_body(p, s)) *ok = false;
    return s;
}

// Statements up to the `}`.
static bool ein__parse_body(ein__parser *p, ein__stmt *s) {
    ein__stmt **list = NULL;
    ein__pos pos = s->pos;
    bool all = true, ok = true;
    ein__stmt *next;
    while ((next = ein__next_statement(p, !arrlen(list), &ok)) != NULL) {
        if (ok) arrput(list, next);
        all = all && ok;
    }
    EIN__KEEP(p, s->body, s->nbody, list);
    if (!p->lex.closes) {
        if (!p->open_at_end && !p->lex.stopped)
            ein__error(p->ctx, EIN_BAD_INPUT, pos,
                       "this '{' is not closed: a line with '}' is "
                       "missing");
        p->open_at_end = true;
        return false;
    }
    p->lex.closes = false;
    s->tail = ein__keep_notes(p, p->lex.lead, 2 | !s->nbody, &s->ntail);
    s->end_trail = p->lex.trail;
    return all;
}

static void ein__parser_close(ein__parser *p) {
    arrfree(p->stack);
    ein__lex_close(&p->lex);
}

// `ein 1`
static ein__stmt *ein__parse_header(ein__parser *p) {
    ein__stmt *s = EIN__NEW(&p->ctx->arena, ein__stmt, 1);
    p->at = 0;
    if (!ein__lex_is_model(&p->lex)) {
        ein__error(p->ctx, EIN_BAD_INPUT, (ein__pos){1, 1},
                   "this is no model: the first line of "
                   "one is 'ein 1'");
        return NULL;
    }
    if (!ein__lex_statement(&p->lex)) {
        if (!p->ctx->status)
            ein__error(p->ctx, EIN_BAD_INPUT, (ein__pos){1, 1},
                       "the model is empty: its first "
                       "line is 'ein 1'");
        return NULL;
    }
    s->pos = p->lex.tok[0].pos;
    s->lead = ein__keep_notes(p, p->lex.lead, 1, &s->nlead);
    s->trail = p->lex.trail;
    const ein__token *version = ein__peek(p, 1);
    if (!ein__is_word(p, 0, "ein") || version->kind != EIN__TOK_NUMBER) {
        ein__error(p->ctx, EIN_BAD_INPUT, s->pos, "the first line of a model is 'ein 1'");
        return NULL;
    }
    if (!version->integral || version->inum != 1) {
        ein__error(p->ctx, EIN_BAD_INPUT, version->pos,
                   "version %s of the language is not known: "
                   "this is version 1",
                   version->text);
        return NULL;
    }
    p->at = 2;
    return ein__parse_end(p, "the end of the line") ? s : NULL;
}

// Parses ctx->text into ctx->tree, which stays NULL when the text has a mistake.
EIN__FN bool ein__parse(ein_ctx *ctx) {
    if (ctx->length > EIN__MAX_TEXT) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "the text is longer than %d bytes",
                   EIN__MAX_TEXT);
        return false;
    }
    ein__parser p = {.ctx = ctx};
    ein__lex_open(&p.lex, ctx, ctx->text, ctx->length);
    ein__stmt **list = NULL, *s = ein__parse_header(&p);
    if (s) {
        bool ok;
        arrput(list, s);
        while ((s = ein__next_statement(&p, false, &ok)) != NULL || p.lex.closes) {
            if (s && ok) arrput(list, s);
            if (!s) ein__error(ctx, EIN_BAD_INPUT, p.lex.tok[0].pos, "no '{' is open here");
        }
        ctx->tree = EIN__NEW(&ctx->arena, struct ein__tree, 1);
        ctx->tree->tail = ein__keep_notes(&p, p.lex.pending, 2, &ctx->tree->ntail);
        EIN__KEEP(&p, ctx->tree->stmt, ctx->tree->nstmt, list);
    }
    ein__parser_close(&p);
    if (ctx->status) ctx->tree = NULL;
    return !ctx->status;
}

// Parses `text`, one equation a line, into an stb_ds array of equations that the arena holds; NULL
// after a mistake. Every position is zero: the text is not the model's.
EIN__FN ein__equation **ein__parse_equations(ein_ctx *ctx, const char *text) {
    ein__parser p = {.ctx = ctx};
    ein__lex_open(&p.lex, ctx, text, strlen(text));
    p.lex.no_pos = true;
    ein__equation **list = NULL;
    bool all = true;
    while (all && ein__lex_statement(&p.lex)) {
        ein__stmt s = {0};
        all = !p.lex.bad && ein__parse_statement(&p, &s);
        if (all && s.kind != EIN__ST_EQUATION) {
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "an equation was expected: %s", text);
            all = false;
        }
        if (all) arrput(list, s.eq);
    }
    ein__parser_close(&p);
    if (!all) arrfree(list);
    return list;
}
/* ---- format.c ---- */
// The canonical text of a model: one statement a line, fixed spacing, no needless parentheses. It
// parses to the tree it was printed from, and prints the same again.
//
// A statement is first put into a buffer with marks where it may be broken; when it is wider than
// EIN__WIDTH columns, it is broken before `where` and then wherever a line is full.

enum { EIN__WIDTH = 100, EIN__BREAK = 1, EIN__BREAK_FIRST = 2 };  // marks: both stand for a space

// Names of tensors may be replaced while an equation is printed.
typedef struct ein__formatter {
    ein__buf *out;
    const char *(*rename)(void *user, const char *name);  // or NULL
    void *user;
    bool breaks;
} ein__formatter;

// In quotes, with escapes; other characters are UTF-8 and stay.
static void ein__put_quoted(ein__buf *b, const char *s) {
    ein__put(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') ein__putf(b, "\\%c", c);
        else if (c == '\n') ein__put(b, "\\n");
        else if (c == '\t') ein__put(b, "\\t");
        else if (c < 32 || c == 127) ein__putf(b, "\\x%02x", c);
        else ein__put_n(b, s, 1);
    }
    ein__put(b, "\"");
}

static void ein__put_name(ein__buf *b, const char *name) {
    if (ein__is_identifier(name) && strcmp(name, "_")) ein__put(b, name);
    else ein__put_quoted(b, name);
}

// The shortest text that reads back as the same float: "0.5", "3.0", "1e-5".
EIN__FN void ein__put_real(ein__buf *b, double v) {
    ein__buf t = {0};
    ein__put_f64(&t, v);
    char *e = strchr(t.s, 'e');
    if (isinf(v)) {
        ein__put(b, t.s);
    } else if (!e) {
        ein__putf(b, "%s%s", t.s, strchr(t.s, '.') ? "" : ".0");
    } else {
        const char *digits = e + 2;
        while (*digits == '0') digits++;
        ein__putf(b, "%.*s%s%s", (int)(e + 1 - t.s), t.s, e[1] == '-' ? "-" : "", digits);
    }
    ein__buf_free(&t);
}

static void ein__put_number(ein__buf *b, const ein__ast *a) {
    if (a->integral) ein__putf(b, "%lld", (long long)a->inum);
    else ein__put_real(b, a->num);
}

// How tightly a node binds: 1 sums, 2 products, 3 what can stand beside `*`.
static int ein__tightness(const ein__ast *a) {
    if (a->kind == EIN__A_ADD || a->kind == EIN__A_SUB) return 1;
    return a->kind == EIN__A_MUL || a->kind == EIN__A_DIV || a->kind == EIN__A_MOD ? 2 : 3;
}

static bool ein__is_negative(const ein__ast *a) {
    return a->kind == EIN__A_NEG || (a->kind == EIN__A_NUM && signbit(a->num));
}

// Subscripts, sizes and attribute values; `least` is the tightness its place needs, 4 behind an
// operator, where a sign is put in parentheses.
static void ein__put_value(ein__buf *b, const ein__ast *a, int least) {
    bool parens = ein__tightness(a) < least || (least == 4 && ein__is_negative(a));
    if (least == 4 && ein__tightness(a) == 3) parens = ein__is_negative(a);
    if (parens) ein__put(b, "(");
    switch (a->kind) {
    case EIN__A_NUM: ein__put_number(b, a); break;
    case EIN__A_NAME: ein__put(b, a->name); break;
    case EIN__A_STR: ein__put_quoted(b, a->name); break;
    case EIN__A_NEG:
        ein__put(b, "-");
        ein__put_value(b, a->kid[0], 4);
        break;
    case EIN__A_LIST:
        ein__put(b, "[");
        for (int i = 0; i < a->nkid; i++) {
            if (i) ein__put(b, ",");
            ein__put_value(b, a->kid[i], 1);
        }
        ein__put(b, "]");
        break;
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_MOD: {
        int own = ein__tightness(a);
        ein__put_value(b, a->kid[0], own);
        ein__putf(b, "%c", ein__arithmetic[a->kind - EIN__A_ADD]);
        bool sign = ein__is_negative(a->kid[1]);
        ein__put_value(b, a->kid[1], sign ? 4 : own + 1);
        break;
    }
    case EIN__A_CMP:
    case EIN__A_GUARD:
    case EIN__A_REDUCE:
    case EIN__A_CALL:
    case EIN__A_READ:
    case EIN__A_GATHER:
    case EIN__A_IDX:
    default: break;
    }
    if (parens) ein__put(b, ")");
}

static void ein__put_space(const ein__formatter *p, char mark) {
    char c = p->breaks ? mark : ' ';
    ein__put_n(p->out, &c, 1);
}

static void ein__put_tensor(const ein__formatter *p, const char *name) {
    ein__put_name(p->out, p->rename ? p->rename(p->user, name) : name);
}

static void ein__put_expr(const ein__formatter *p, const ein__ast *a, int least, bool last);

static void ein__put_list(const ein__formatter *p, const ein__ast *a, int from) {
    for (int i = from; i < a->nkid; i++) {
        if (i > from) ein__put(p->out, ",");
        if (i > from) ein__put_space(p, EIN__BREAK);
        ein__put_expr(p, a->kid[i], 1, true);
    }
}

static void ein__put_read(const ein__formatter *p, const ein__ast *a) {
    ein__put_tensor(p, a->name);
    ein__put(p->out, "[");
    for (int i = 0; i < a->nkid; i++) {
        if (i) ein__put(p->out, ",");
        if (a->kid[i]->kind == EIN__A_GATHER) {
            ein__put(p->out, "@");
            ein__put_read(p, a->kid[i]->kid[0]);
        } else {
            ein__put_value(p->out, a->kid[i], 1);
        }
    }
    ein__put(p->out, "]");
}

static void ein__put_reduce(const ein__formatter *p, const ein__ast *a) {
    ein__putf(p->out, "%s(", a->name);
    for (int i = 0; i + 1 < a->nkid; i++) ein__putf(p->out, "%s%s", i ? "," : "", a->kid[i]->name);
    ein__put(p->out, ") ");
    ein__put_expr(p, a->kid[a->nkid - 1], 2, true);
}

static void ein__put_cmp(const ein__formatter *p, const ein__ast *a, bool subscripts) {
    for (int i = 0; i < 2; i++) {
        if (i) ein__putf(p->out, " %s ", a->name);
        if (subscripts) ein__put_value(p->out, a->kid[i], 1);
        else ein__put_expr(p, a->kid[i], 1, true);
    }
}

// A reduction takes all factors that follow, so one that is not `last` in its term is put in
// parentheses.
static void ein__put_expr(const ein__formatter *p, const ein__ast *a, int least, bool last) {
    ein__buf *b = p->out;
    int own = ein__tightness(a);
    bool parens = own < least || (a->kind == EIN__A_REDUCE && !last);
    if (parens) {
        ein__put(b, "(");
        last = true;
    }
    switch (a->kind) {
    case EIN__A_NUM: ein__put_number(b, a); break;
    case EIN__A_NEG:
        ein__put(b, "-");
        ein__put_expr(p, a->kid[0], ein__is_negative(a->kid[0]) ? 4 : 3, last);
        break;
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
        ein__put_expr(p, a->kid[0], own, own == 1);
        ein__put_space(p, EIN__BREAK);
        ein__putf(b, "%c ", ein__arithmetic[a->kind - EIN__A_ADD]);
        ein__put_expr(p, a->kid[1], own + 1, last || own == 1);
        break;
    case EIN__A_GUARD:
        ein__put(b, "[");
        ein__put_cmp(p, a->kid[0], true);
        ein__put(b, "]");
        break;
    case EIN__A_REDUCE: ein__put_reduce(p, a); break;
    case EIN__A_CALL:
        ein__putf(b, "%s(", a->name);
        if (a->kid[0]->kind == EIN__A_CMP) {
            ein__put_cmp(p, a->kid[0], false);
            ein__put(b, ",");
            ein__put_space(p, EIN__BREAK);
        }
        ein__put_list(p, a, a->kid[0]->kind == EIN__A_CMP);
        ein__put(b, ")");
        break;
    case EIN__A_READ: ein__put_read(p, a); break;
    case EIN__A_IDX:
        ein__put(b, "idx(");
        ein__put_value(b, a->kid[0], 1);
        ein__put(b, ")");
        break;
    case EIN__A_NAME:
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_MOD:
    case EIN__A_CMP:
    case EIN__A_GATHER:
    default: break;
    }
    if (parens) ein__put(b, ")");
}

// `pad` holds the values as written, or is NULL for those of the equation. The result's name is not
// replaced: it may be that of a tensor which the equation reads.
static void ein__put_equation(const ein__formatter *p, const ein__equation *eq,
                              ein__ast *const *pad) {
    ein__buf *b = p->out;
    ein__put_name(b, eq->result);
    ein__put(b, "[");
    for (int i = 0; i < eq->rank; i++) ein__putf(b, "%s%s", i ? "," : "", eq->index[i]);
    ein__put(b, "] = ");
    ein__put_expr(p, eq->body, 1, true);
    for (int i = 0; i < eq->nrange + eq->npad; i++) {
        if (!i) {
            ein__put_space(p, EIN__BREAK_FIRST);
            ein__put(b, "where ");
        } else {
            ein__put(b, ",");
            ein__put_space(p, EIN__BREAK);
        }
        if (i < eq->nrange) {
            ein__putf(b, "%s in ", eq->range[i].name);
            ein__put_value(b, eq->range[i].lo, 1);
            ein__put(b, ":");
            ein__put_value(b, eq->range[i].hi, 1);
            continue;
        }
        const ein__padval *v = &eq->pad[i - eq->nrange];
        const char *name = p->rename ? p->rename(p->user, v->tensor) : v->tensor;
        ein__put(b, "pad ");
        if (strcmp(name, "in")) ein__put_name(b, name);
        else ein__put_quoted(b, name);
        ein__put(b, " ");
        if (pad) ein__put_value(b, pad[i - eq->nrange], 1);
        else if (fabs(v->value) < 1e15 && floor(v->value) == v->value)
            ein__putf(b, "%lld", (long long)v->value);
        else ein__put_real(b, v->value);
    }
}

// ------------------------------------------------------------------------------------- statements

static void ein__put_comma(const ein__formatter *p, int i) {
    if (!i) return;
    ein__put(p->out, ",");
    ein__put_space(p, EIN__BREAK);
}

static void ein__put_names(const ein__formatter *p, const ein__ident *name, int n) {
    for (int i = 0; i < n; i++) {
        ein__put_comma(p, i);
        if (name[i].name) ein__put_name(p->out, name[i].name);
        else ein__put(p->out, "_");
    }
}

static void ein__put_attrs(const ein__formatter *p, const ein__stmt *s, bool semicolon) {
    for (int i = 0; i < s->nattr; i++) {
        if (!i && semicolon) {
            ein__put(p->out, ";");
            ein__put_space(p, EIN__BREAK);
        }
        ein__put_comma(p, i);
        ein__put(p->out, s->attr[i].name);
        if (!s->attr[i].value) continue;
        ein__put(p->out, "=");
        ein__put_value(p->out, s->attr[i].value, 1);
    }
}

static void ein__put_declared(const ein__formatter *p, const ein__type *type) {
    if (!type) return;
    ein__putf(p->out, ": %s[", ein__dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) {
        if (i) ein__put(p->out, ",");
        ein__put_value(p->out, type->dim[i], 1);
    }
    ein__put(p->out, "]");
}

static void ein__put_source(const ein__formatter *p, const ein__stmt *s) {
    if (!s->call.name) return;
    ein__put(p->out, " = ");
    ein__put_name(p->out, s->call.name);
    if (s->text) {
        ein__put(p->out, " ");
        ein__put_quoted(p->out, s->text);
        return;
    }
    ein__put(p->out, "(");
    ein__put_attrs(p, s, false);
    ein__put(p->out, ")");
}

static void ein__put_head(const ein__formatter *p, const ein__stmt *s) {
    ein__buf *b = p->out;
    if (s->kind != EIN__ST_OPERATOR && s->kind != EIN__ST_EQUATION && s->kind != EIN__ST_EIN)
        ein__putf(b, "%s ", ein__keyword[s->kind]);
    switch (s->kind) {
    case EIN__ST_EIN: ein__put(b, "ein 1"); break;
    case EIN__ST_MODEL: ein__put_names(p, s->name, 1); break;
    case EIN__ST_DIM:
    case EIN__ST_SMALL:
    case EIN__ST_OUTPUT:
        for (int i = 0; i < s->nname; i++) {
            ein__put_comma(p, i);
            ein__put_name(b, s->name[i].name);
            if (s->kind == EIN__ST_OUTPUT) {
                ein__put_declared(p, s->type[i]);
            } else {
                ein__put(b, " = ");
                ein__put_value(b, s->value[i], 1);
            }
        }
        break;
    case EIN__ST_BLOB:
        ein__put_names(p, s->name, 1);
        ein__put(b, " = ");
        ein__put_quoted(b, s->text);
        break;
    case EIN__ST_INPUT:
    case EIN__ST_WEIGHT:
        ein__put_names(p, s->name, 1);
        ein__put_declared(p, s->type[0]);
        ein__put_source(p, s);
        break;
    case EIN__ST_OPERATOR:
        ein__put_names(p, s->name, s->nname);
        ein__put(b, " = ");
        ein__put_name(b, s->call.name);
        ein__put(b, "(");
        ein__put_names(p, s->arg, s->narg);
        ein__put_attrs(p, s, true);
        ein__put(b, ")");
        break;
    case EIN__ST_EQUATION: ein__put_equation(p, s->eq, s->pad); break;
    case EIN__ST_BLOCK:
        ein__put_names(p, s->name, 1);
        ein__put(b, "(");
        ein__put_names(p, s->arg, s->narg);
        ein__put_attrs(p, s, true);
        ein__put(b, ") -> ");
        ein__put_names(p, s->result, s->nresult);
        ein__put(b, " {");
        break;
    case EIN__ST_REPEAT:
        ein__putf(b, "%s in ", s->name[0].name);
        ein__put_value(b, s->value[0], 1);
        ein__put(b, ":");
        ein__put_value(b, s->value[1], 1);
        ein__put(b, " {");
        break;
    default: break;
    }
}

static int ein__columns(const char *s, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)s[i] & 0xC0) != 0x80;
    return columns;
}

static void ein__put_indent(ein__buf *out, int n) {
    for (int i = 0; i < n; i++) ein__put(out, " ");
}

// Lays out a statement with its marks.
static void ein__put_broken(ein__buf *out, const ein__buf *line, int indent) {
    bool fits = indent + ein__columns(line->s, line->n) <= EIN__WIDTH;
    int column = indent;
    ein__put_indent(out, indent);
    for (size_t at = 0; at < line->n;) {
        size_t n = 0;
        while (at + n < line->n && line->s[at + n] != EIN__BREAK &&
               line->s[at + n] != EIN__BREAK_FIRST)
            n++;
        char mark = at ? line->s[at - 1] : 0;
        int width = ein__columns(line->s + at, n);
        if (mark && !fits && (mark == EIN__BREAK_FIRST || column + 1 + width > EIN__WIDTH)) {
            ein__put(out, "\n");
            ein__put_indent(out, indent + 4);
            column = indent + 4;
        } else if (mark) {
            ein__put(out, " ");
            column++;
        }
        ein__put_n(out, line->s + at, n);
        column += width;
        at += n + 1;
    }
}

static void ein__put_notes(ein__buf *out, const char *const *note, int n, int indent) {
    for (int i = 0; i < n; i++) {
        if (*note[i]) ein__put_indent(out, indent);
        ein__put(out, note[i]);
        ein__put(out, "\n");
    }
}

static void ein__put_trail(ein__buf *out, const char *trail, bool comments) {
    if (trail && comments) {
        ein__put(out, "  ");
        ein__put(out, trail);
    }
    ein__put(out, "\n");
}

static void ein__put_statement(ein__buf *out, const ein__stmt *s, bool comments, int indent) {
    ein__buf line = {0};
    ein__formatter p = {.out = &line, .breaks = true};
    if (comments) ein__put_notes(out, s->lead, s->nlead, indent);
    ein__put_head(&p, s);
    ein__put_broken(out, &line, indent);
    ein__put_trail(out, s->trail, comments);
    ein__buf_free(&line);
    if (s->kind != EIN__ST_BLOCK && s->kind != EIN__ST_REPEAT) return;
    for (int i = 0; i < s->nbody; i++) ein__put_statement(out, s->body[i], comments, indent + 4);
    if (comments) ein__put_notes(out, s->tail, s->ntail, indent + 4);
    ein__put_indent(out, indent);
    ein__put(out, "}");
    ein__put_trail(out, s->end_trail, comments);
}

// The model in canonical form, with its comments and blank lines or without.
EIN__FN void ein__format(ein_ctx *ctx, ein__buf *out, bool comments) {
    const struct ein__tree *tree = ctx->tree;
    for (int i = 0; i < tree->nstmt; i++) ein__put_statement(out, tree->stmt[i], comments, 0);
    if (comments) ein__put_notes(out, tree->tail, tree->ntail, 0);
}
/* ---- ops_base.c ---- */
// What the operators share: operands, attributes, and the templates in which meanings are written.
//
// A template is an equation of the language with three additions:
//   {..#..}   repeats with # = 0, 1, .. for as long as every name with a # inside is bound
//   S P#      capital names stand for numbers or text (ein__op_num, ein__op_str)
//   c i#      small names bound by ein__op_each and ein__op_over are traversal and reduction
//   indices
// Subscripts are then put into a plain form (`1*i0+1*0-0` is `i0`), a reduction over one element is
// left out, guards that became constant vanish, and `where` gets the range of every index in use.

#define EIN__OP_LIMIT EIN__MAX_ELEMENTS  // largest integer that an attribute may hold, mostly

typedef struct ein__op ein__op;

// One operator. `in` names the operands: `b?` may be omitted, `x...` is x0 x1 ... `attr` names the
// attributes: `a=1` has a default, `a?` may be missing, `a` must be given, `a=0!` takes no other
// value, `a=one|two|!three` takes a word, the first by default, and refuses the third as not
// supported. Without `make` the operator is element-wise and `body` is its expression over operands
// and attributes; otherwise body is whatever make expects.
typedef struct ein__op_row {
    const char *name, *in, *attr;
    bool any;  // operands of any one type, else f32, f16 or bf16
    const char *body;
    bool (*make)(ein__op *);
} ein__op_row;

typedef struct ein__op_symbol {
    char name[8];
    const char *text;  // NULL: an index
    int64_t extent;
    bool unit;  // reduction over one element
    bool used;  // by the equation being written
} ein__op_symbol;

enum { EIN__OP_SYMBOLS = 128 };

// One use of an operator, while its results' shapes are found and its equations are written.
struct ein__op {
    ein_ctx *ctx;
    const ein__node *node;
    const ein__op_row *row;
    ein__buf *text;     // NULL: only the shapes are wanted
    ein__shape *shape;  // per result
    ein__dtype *dtype;
    int nsymbol;
    ein__op_symbol symbol[EIN__OP_SYMBOLS];
};

// ------------------------------------------------------------------------------------ messages

static const ein__attr *ein__op_attr(const ein__op *o, const char *name) {
    for (int i = 0; name && i < o->node->nattr; i++)
        if (!strcmp(o->node->attr[i].name, name)) return &o->node->attr[i];
    return NULL;
}

static void ein__op_message(ein__op *o, ein_status status, const char *attr, const char *format,
                            va_list args) {
    ein__buf b = {0};
    ein__vputf(&b, format, args);
    const ein__attr *a = ein__op_attr(o, attr);
    ein__error(o->ctx, status, a ? a->pos : o->node->pos, "%s: %s", o->row->name, b.s);
    ein__buf_free(&b);
}

// Reports a mistake at attribute `attr`, or at the operator when that is NULL or not given.
EIN__PRINTF(3, 4) EIN__FN bool ein__op_fail(ein__op *o, const char *attr, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__op_message(o, EIN_BAD_INPUT, attr, format, args);
    va_end(args);
    return false;
}

// Reports something that ONNX has and this table has not.
EIN__PRINTF(3, 4)
EIN__FN bool ein__op_refuse(ein__op *o, const char *attr, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ein__op_message(o, EIN_UNSUPPORTED, attr, format, args);
    va_end(args);
    return false;
}

EIN__FN const char *ein__op_shape_text(ein__op *o, const ein__shape *s) {
    ein__buf b = {0};
    for (int i = 0; i < s->rank; i++) ein__putf(&b, "%s%lld", i ? "," : "", (long long)s->d[i]);
    const char *text = ein__namef(o->ctx, "[%s]", b.s ? b.s : "");
    ein__buf_free(&b);
    return text;
}

// ------------------------------------------------------------------------- operands and results

// The n bytes at *s up to a space, and *s past them; false at the end.
static bool ein__op_token(const char **s, const char **token, size_t *n) {
    while (**s == ' ') ++*s;
    *token = *s;
    *n = strcspn(*s, " ");
    *s += *n;
    return *n > 0;
}

EIN__FN const char *ein__op_in_name(ein__op *o, int k) {
    const char *s = o->row->in, *token = "";
    size_t n = 0;
    for (int i = 0; i <= k && ein__op_token(&s, &token, &n); i++)
        if (n > 3 && !strncmp(token + n - 3, "...", 3))
            return ein__namef(o->ctx, "%.*s%d", (int)n - 3, token, k);
    return ein__name_n(o->ctx, token, n && token[n - 1] == '?' ? n - 1 : n);
}

static const ein__tensor *ein__op_tensor(const ein__op *o, int k) {
    return k < o->node->nin && o->node->in[k] >= 0 ? &o->ctx->graph.tensor[o->node->in[k]] : NULL;
}

// Shape of operand k; NULL when it is omitted.
EIN__FN const ein__shape *ein__op_in(const ein__op *o, int k) {
    const ein__tensor *t = ein__op_tensor(o, k);
    return t ? &t->shape : NULL;
}

EIN__FN bool ein__op_rank(ein__op *o, int k, int lo, int hi) {
    int rank = ein__op_in(o, k)->rank;
    if (rank >= lo && rank <= hi) return true;
    const char *name = ein__op_in_name(o, k);
    if (lo == hi) return ein__op_fail(o, NULL, "%s has rank %d, expected %d", name, rank, lo);
    if (hi >= EIN__MAX_RANK)
        return ein__op_fail(o, NULL, "%s has rank %d, expected at least %d", name, rank, lo);
    return ein__op_fail(o, NULL, "%s has rank %d, expected %d to %d", name, rank, lo, hi);
}

// Operand k is omitted, or a vector of n elements.
EIN__FN bool ein__op_vector(ein__op *o, int k, int64_t n) {
    const ein__shape *s = ein__op_in(o, k);
    if (!s || (s->rank == 1 && s->d[0] == n)) return true;
    return ein__op_fail(o, NULL, "%s has shape %s, expected [%lld]", ein__op_in_name(o, k),
                        ein__op_shape_text(o, s), (long long)n);
}

EIN__FN bool ein__op_result(ein__op *o, int k, const ein__shape *s) {
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] < 1)
            return ein__op_fail(o, NULL, "axis %d of the result would have size %lld", i,
                                (long long)s->d[i]);
    if (ein__elements(s) > EIN__MAX_ELEMENTS)
        return ein__op_fail(o, NULL, "the result would have more than 2^40 elements");
    o->shape[k] = *s;
    o->dtype[k] = ein__op_tensor(o, 0)->dtype;
    return true;
}

// Two-way broadcasting: axes count from the last one, and size 1 stretches.
EIN__FN bool ein__op_broadcast(ein__op *o, const ein__shape *a, const ein__shape *b,
                               ein__shape *r) {
    ein__shape out = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 0; i < out.rank; i++) {
        int ia = i - (out.rank - a->rank), ib = i - (out.rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->d[ia], db = ib < 0 ? 1 : b->d[ib];
        if (da != db && da != 1 && db != 1)
            return ein__op_fail(o, NULL, "shapes %s and %s do not broadcast",
                                ein__op_shape_text(o, a), ein__op_shape_text(o, b));
        out.d[i] = da > db ? da : db;
    }
    *r = out;
    return true;
}

// Operand k is omitted or stretches to `r`.
EIN__FN bool ein__op_stretches(ein__op *o, int k, const ein__shape *r) {
    const ein__shape *s = ein__op_in(o, k);
    for (int i = 0; s && i < s->rank; i++) {
        int at = i + r->rank - s->rank;
        if (at >= 0 && (s->d[i] == 1 || s->d[i] == r->d[at])) continue;
        return ein__op_fail(o, NULL, "%s %s does not broadcast to %s", ein__op_in_name(o, k),
                            ein__op_shape_text(o, s), ein__op_shape_text(o, r));
    }
    return true;
}

// ---------------------------------------------------------------------------------- attributes

// The row's default of an attribute, "" when it has none.
static const char *ein__op_default(const ein__op *o, const char *name) {
    const char *s = o->row->attr, *token;
    size_t n, length = strlen(name);
    while (ein__op_token(&s, &token, &n))
        if (n > length && !strncmp(token, name, length) && token[length] == '=')
            return token + length + 1;
    return "";
}

EIN__FN bool ein__op_given(const ein__op *o, const char *name) {
    return ein__op_attr(o, name) != NULL;
}

static bool ein__op_ast_int(const ein__ast *a, int64_t *v) {
    bool negative = a->kind == EIN__A_NEG;
    if (negative) a = a->kid[0];
    if (a->kind != EIN__A_NUM || !a->integral) return false;
    *v = a->inum;
    return !negative || !ein__mul_overflows(a->inum, -1, v);
}

static bool ein__op_ast_f64(const ein__ast *a, double *v) {
    bool negative = a->kind == EIN__A_NEG;
    if (negative) a = a->kid[0];
    if (a->kind == EIN__A_NAME && !strcmp(a->name, "inf")) *v = (double)INFINITY;
    else if (a->kind == EIN__A_NUM) *v = a->integral ? (double)a->inum : a->num;
    else return false;
    if (negative) *v = -*v;
    return true;
}

static bool ein__op_int_range(ein__op *o, const char *name, int64_t v, int64_t lo, int64_t hi) {
    if (v >= lo && v <= hi) return true;
    if (v < lo && hi >= EIN__OP_LIMIT)
        return ein__op_fail(o, name, "%s is %lld, expected at least %lld", name, (long long)v,
                            (long long)lo);
    return ein__op_fail(o, name, "%s is %lld, expected %lld to %lld", name, (long long)v,
                        (long long)lo, (long long)hi);
}

EIN__FN bool ein__op_int(ein__op *o, const char *name, int64_t lo, int64_t hi, int64_t *v) {
    const ein__attr *a = ein__op_attr(o, name);
    if (!a) *v = strtoll(ein__op_default(o, name), NULL, 10);
    else if (!ein__op_ast_int(a->value, v))
        return ein__op_fail(o, name, "%s must be an integer", name);
    return ein__op_int_range(o, name, *v, lo, hi);
}

EIN__FN bool ein__op_flag(ein__op *o, const char *name, bool *v) {
    int64_t n;
    if (!ein__op_int(o, name, 0, 1, &n)) return false;
    *v = n != 0;
    return true;
}

// A number; infinite ones are written `inf` and `-inf`.
EIN__FN bool ein__op_number(ein__op *o, const char *name, double *v) {
    const ein__attr *a = ein__op_attr(o, name);
    const char *end, *s = ein__op_default(o, name);
    if (!a) *v = *s == '-' ? -ein__read_f64(s + 1, &end) : ein__read_f64(s, &end);
    else if (!ein__op_ast_f64(a->value, v) || *v != *v)
        return ein__op_fail(o, name, "%s must be a number", name);
    return true;
}

EIN__FN bool ein__op_finite(ein__op *o, const char *name, double *v) {
    if (!ein__op_number(o, name, v)) return false;
    if (fabs(*v) <= 3.4028234663852886e38) return true;
    return ein__op_fail(o, name, "%s must be a number in f32's range", name);
}

// Which of the words of the row's `name=one|two|!three` was chosen.
EIN__FN bool ein__op_word(ein__op *o, const char *name, int *which) {
    *which = 0;
    const ein__attr *a = ein__op_attr(o, name);
    if (!a) return true;
    const ein__ast *v = a->value;
    if (v->kind != EIN__A_NAME && v->kind != EIN__A_STR)
        return ein__op_fail(o, name, "%s must be a word", name);
    const char *s = ein__op_default(o, name), *best = NULL;
    int distance = 3;
    for (int i = 0;; i++) {
        bool refused = *s == '!';
        s += refused;
        size_t n = strcspn(s, "| ");
        const char *word = ein__name_n(o->ctx, s, n);
        if (!strcmp(v->name, word) && refused)
            return ein__op_refuse(o, name, "%s=%s is not supported", name, word);
        *which = i;
        if (!strcmp(v->name, word)) return true;
        ein__suggest(v->name, word, &best, &distance);
        s += n;
        if (*s++ != '|') break;
    }
    if (best)
        return ein__op_fail(o, name, "%s cannot be '%s'; did you mean '%s'?", name, v->name, best);
    s = ein__op_default(o, name);
    return ein__op_fail(o, name, "%s cannot be '%s'; known are %.*s", name, v->name,
                        (int)strcspn(s, " "), s);
}

// A list of integers in [lo, hi], at most `cap` of them. With count >= 0 there must be that many,
// and one number stands for a list of equal ones, which is also how the row's default is read.
// Without default, an attribute that is not given has n = 0.
EIN__FN bool ein__op_ints(ein__op *o, const char *name, int count, int cap, int64_t lo, int64_t hi,
                          int64_t *v, int *n) {
    const ein__attr *a = ein__op_attr(o, name);
    const char *text = ein__op_default(o, name);
    *n = 0;
    if (!a && !*text) return true;
    bool list = a && a->value->kind == EIN__A_LIST;
    int given = list ? a->value->nkid : count < 0 ? 1 : count;
    if (count >= 0 && given != count)
        return ein__op_fail(o, name, "%s has %d values, expected %d", name, given, count);
    if (given > cap)
        return ein__op_fail(o, name, "%s has %d values, expected at most %d", name, given, cap);
    for (int i = 0; i < given; i++) {
        if (!a) v[i] = strtoll(text, NULL, 10);
        else if (!ein__op_ast_int(list ? a->value->kid[i] : a->value, &v[i]))
            return ein__op_fail(o, name, "%s must be an integer or a list of them", name);
        if (!ein__op_int_range(o, name, v[i], lo, hi)) return false;
    }
    *n = given;
    return true;
}

// Normalizes an axis in [-rank, rank); the end `rank` itself is allowed with `end`.
EIN__FN bool ein__op_axis_range(ein__op *o, const char *name, int64_t axis, int rank, int *at) {
    if (axis < -rank || axis >= rank)
        return ein__op_fail(o, name, "%s is %lld, expected %d to %d", name, (long long)axis, -rank,
                            rank - 1);
    *at = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

EIN__FN bool ein__op_axis(ein__op *o, const char *name, int rank, int *at) {
    int64_t axis;
    return ein__op_int(o, name, -EIN__OP_LIMIT, EIN__OP_LIMIT, &axis) &&
           ein__op_axis_range(o, name, axis, rank, at);
}

// Axes in the order given, each once.
EIN__FN bool ein__op_axes(ein__op *o, const char *name, int rank, int at[EIN__MAX_RANK], int *n) {
    int64_t v[EIN__MAX_RANK];
    bool seen[EIN__MAX_RANK] = {0};
    if (!ein__op_ints(o, name, -1, EIN__MAX_RANK, -EIN__OP_LIMIT, EIN__OP_LIMIT, v, n))
        return false;
    for (int i = 0; i < *n; i++) {
        if (!ein__op_axis_range(o, name, v[i], rank, &at[i])) return false;
        if (seen[at[i]]) return ein__op_fail(o, name, "%s names axis %d twice", name, at[i]);
        seen[at[i]] = true;
    }
    return true;
}

// Names are known, given once, present where required, and fixed ones have their value.
static bool ein__op_check_attrs(ein__op *o) {
    for (int i = 0; i < o->node->nattr; i++) {
        const char *name = o->node->attr[i].name, *s = o->row->attr, *token, *best = NULL;
        size_t n;
        int distance = 3;
        bool known = false;
        while (!known && ein__op_token(&s, &token, &n)) {
            size_t length = strcspn(token, "=?! ");
            const char *word = ein__name_n(o->ctx, token, length);
            known = !strcmp(name, word);
            ein__suggest(name, word, &best, &distance);
            int64_t v;
            if (known && token[n - 1] == '!' &&
                (!ein__op_ast_int(o->node->attr[i].value, &v) ||
                 v != strtoll(token + length + 1, NULL, 10)))
                return ein__op_refuse(o, name, "only %.*s is supported", (int)n - 1, token);
        }
        if (!known && best)
            return ein__op_fail(o, name, "unknown attribute '%s'; did you mean '%s'?", name, best);
        if (!known) return ein__op_fail(o, name, "unknown attribute '%s'", name);
        if (ein__op_attr(o, name) != &o->node->attr[i]) {
            ein__error(o->ctx, EIN_BAD_INPUT, o->node->attr[i].pos,
                       "%s: attribute '%s' given twice", o->row->name, name);
            return false;
        }
    }
    const char *s = o->row->attr, *token;
    size_t n;
    while (ein__op_token(&s, &token, &n)) {
        if (memchr(token, '=', n) || token[n - 1] == '?') continue;
        const char *name = ein__name_n(o->ctx, token, n);
        if (!ein__op_given(o, name))
            return ein__op_fail(o, NULL, "attribute '%s' is missing", name);
    }
    return true;
}

// ----------------------------------------------------------------------------------- subscripts

// c + sum k * atom, where an atom is an index or the text of a division or remainder. Atoms are
// interned, so equal text is equal pointers. Magnitudes are bounded by the checks of the operators.
typedef struct ein__lin {
    int64_t c;
    int n;
    struct {
        int64_t k;
        const char *atom;
    } t[24];
} ein__lin;

static void ein__lin_add(ein__lin *a, int64_t k, const ein__lin *b) {
    a->c += k * b->c;
    for (int i = 0; i < b->n; i++) {
        int j = 0;
        while (j < a->n && a->t[j].atom != b->t[i].atom) j++;
        if (j == a->n) {
            EIN_ASSERT(a->n < 24);
            a->t[a->n++].atom = b->t[i].atom;
            a->t[j].k = 0;
        }
        a->t[j].k += k * b->t[i].k;
        if (a->t[j].k) continue;
        memmove(&a->t[j], &a->t[j + 1], (size_t)(a->n - j - 1) * sizeof a->t[0]);
        a->n--;
    }
}

static void ein__lin_put(ein__buf *b, const ein__lin *a) {
    for (int i = 0; i < a->n; i++) {
        int64_t k = a->t[i].k;
        bool paren = k != 1 && (k != -1 || !i) && strpbrk(a->t[i].atom, "/%");
        ein__put(b, k < 0 ? "-" : i ? "+" : "");
        if (k != 1 && k != -1) ein__putf(b, "%lld*", (long long)(k < 0 ? -k : k));
        ein__putf(b, paren ? "(%s)" : "%s", a->t[i].atom);
    }
    if (!a->n || a->c) ein__putf(b, a->n ? "%+lld" : "%lld", (long long)a->c);
}

static ein__lin ein__lin_atom(ein_ctx *ctx, const ein__lin *a, char op, int64_t d) {
    ein__buf b = {0};
    bool plain = a->n == 1 && a->t[0].k == 1 && !a->c && !strpbrk(a->t[0].atom, "/%");
    if (!plain) ein__put(&b, "(");
    ein__lin_put(&b, a);
    ein__putf(&b, plain ? "%c%lld" : ")%c%lld", op, (long long)d);
    ein__lin r = {.n = 1};
    r.t[0].k = 1;
    r.t[0].atom = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return r;
}

// floor(a / d): multiples of d leave the division, common factors cancel.
static ein__lin ein__lin_div(ein_ctx *ctx, const ein__lin *a, int64_t d) {
    ein__lin out = {0}, rest = {.c = a->c};
    int64_t g = d;
    for (int i = 0; i < a->n; i++) {
        ein__lin *to = a->t[i].k % d ? &rest : &out;
        to->t[to->n] = a->t[i];
        if (to == &out) out.t[out.n].k /= d;
        else g = ein__gcd(g, a->t[i].k);
        to->n++;
    }
    if (!rest.n) {
        out.c = ein__floordiv(a->c, d);
        return out;
    }
    for (int i = 0; i < rest.n; i++) rest.t[i].k /= g;
    rest.c = ein__floordiv(rest.c, g);
    ein__lin q = ein__lin_atom(ctx, &rest, '/', d / g);
    ein__lin_add(&out, 1, &q);
    return out;
}

static ein__lin ein__lin_mod(ein_ctx *ctx, const ein__lin *a, int64_t d) {
    ein__lin rest = {.c = ein__floormod(a->c, d)};
    for (int i = 0; i < a->n; i++)
        if (a->t[i].k % d) rest.t[rest.n++] = a->t[i];
    return rest.n ? ein__lin_atom(ctx, &rest, '%', d) : rest;
}

static ein__op_symbol *ein__op_symbol_at(ein__op *o, const char *name, size_t n) {
    for (int i = 0; i < o->nsymbol; i++)
        if (!strncmp(o->symbol[i].name, name, n) && !o->symbol[i].name[n]) return &o->symbol[i];
    return NULL;
}

static size_t ein__op_word_length(const char *s) {
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_' ||
           (n && s[n] >= '0' && s[n] <= '9'))
        n++;
    return n;
}

// Subscripts of templates are nested at most four deep.
static ein__lin ein__lin_sum(ein__op *o, const char **s);

static ein__lin ein__lin_factor(ein__op *o, const char **s) {
    while (**s == ' ') ++*s;
    ein__lin r = {0};
    size_t n = ein__op_word_length(*s);
    if (n) {
        ein__op_symbol *index = ein__op_symbol_at(o, *s, n);
        EIN_ASSERT(index && !index->text);
        index->used = true;
        if (!index->unit) {
            r.n = 1;
            r.t[0].k = 1;
            r.t[0].atom = ein__name_n(o->ctx, *s, n);
        }
        *s += n;
    } else if (**s == '(') {
        ++*s;
        r = ein__lin_sum(o, s);
        EIN_ASSERT(**s == ')');
        ++*s;
    } else if (**s == '-') {
        ++*s;
        ein__lin a = ein__lin_factor(o, s);
        ein__lin_add(&r, -1, &a);
    } else {
        char *end;
        r.c = strtoll(*s, &end, 10);
        EIN_ASSERT(end != *s);
        *s = end;
    }
    return r;
}

static ein__lin ein__lin_product(ein__op *o, const char **s) {
    ein__lin a = ein__lin_factor(o, s);
    for (;;) {
        while (**s == ' ') ++*s;
        char op = **s;
        if (op != '*' && op != '/' && op != '%') return a;
        ++*s;
        ein__lin b = ein__lin_factor(o, s), r = {0};
        if (op != '*') {
            EIN_ASSERT(!b.n && b.c > 0);
            r = op == '/' ? ein__lin_div(o->ctx, &a, b.c) : ein__lin_mod(o->ctx, &a, b.c);
        } else if (b.n) {
            EIN_ASSERT(!a.n);
            if (a.c) ein__lin_add(&r, a.c, &b);
        } else if (b.c) {
            ein__lin_add(&r, b.c, &a);
        }
        a = r;
    }
}

static ein__lin ein__lin_sum(ein__op *o, const char **s) {
    ein__lin a = ein__lin_product(o, s);
    for (;;) {
        while (**s == ' ') ++*s;
        char op = **s;
        if (op != '+' && op != '-') return a;
        ++*s;
        ein__lin b = ein__lin_product(o, s);
        ein__lin_add(&a, op == '+' ? 1 : -1, &b);
    }
}

// ------------------------------------------------------------------------------------ templates

static ein__op_symbol *ein__op_bind(ein__op *o, const char *name, int k) {
    EIN_ASSERT(o->nsymbol < EIN__OP_SYMBOLS && strlen(name) < 7);
    ein__op_symbol *s = &o->symbol[o->nsymbol++];
    *s = (ein__op_symbol){.extent = 0};
    size_t n = strlen(name);
    memcpy(s->name, name, n);
    if (k >= 0) s->name[n] = (char)('0' + k);
    return s;
}

// These bind a name of templates; with k >= 0 the name is followed by that digit (`#`).
EIN__PRINTF(4, 5)
EIN__FN void ein__op_str(ein__op *o, const char *name, int k, const char *format, ...) {
    if (!o->text) return;
    ein__buf b = {0};
    va_list args;
    va_start(args, format);
    ein__vputf(&b, format, args);
    va_end(args);
    ein__op_bind(o, name, k)->text = ein__name(o->ctx, b.s ? b.s : "");
    ein__buf_free(&b);
}

EIN__FN void ein__op_num(ein__op *o, const char *name, int k, int64_t v) {
    ein__op_str(o, name, k, v < 0 ? "(%lld)" : "%lld", (long long)v);
}

EIN__FN void ein__op_real(ein__op *o, const char *name, double v) {
    ein__buf b = {0};
    ein__put_f64(&b, v);
    ein__op_str(o, name, -1, "%s", b.s);
    ein__buf_free(&b);
}

EIN__FN void ein__op_each(ein__op *o, const char *name, int k, int64_t extent) {
    if (o->text) ein__op_bind(o, name, k)->extent = extent;
}

EIN__FN void ein__op_over(ein__op *o, const char *name, int k, int64_t extent) {
    if (!o->text) return;
    ein__op_symbol *s = ein__op_bind(o, name, k);
    s->extent = extent;
    s->unit = extent == 1;
}

// Binds i0 i1 .. to the axes of a shape.
EIN__FN void ein__op_each_axis(ein__op *o, const ein__shape *s) {
    for (int i = 0; i < s->rank; i++) ein__op_each(o, "i", i, s->d[i]);
}

// Subscripts of an operand that stretches to the result over i0 i1 .. (aligned at the last axis).
EIN__FN void ein__op_stretch(ein__op *o, const char *name, const ein__shape *s,
                             const ein__shape *r) {
    for (int i = 0; s && i < s->rank; i++) {
        int at = i + r->rank - s->rank;
        if (s->d[i] == r->d[at]) ein__op_str(o, name, i, "i%d", at);
        else ein__op_str(o, name, i, "0");
    }
}

// Puts text [s, end) with # = k and capital names replaced; false when a name with # is not bound.
static bool ein__op_expand(ein__op *o, ein__buf *b, const char *s, const char *end, int k) {
    while (s < end) {
        size_t n = ein__op_word_length(s);
        if (!n && *s == '{') {
            const char *close = strchr(s, '}');
            EIN_ASSERT(close && k < 0);
            for (int i = 0;; i++) {
                size_t mark = b->n;
                if (ein__op_expand(o, b, s + 1, close, i)) continue;
                b->n = mark;
                break;
            }
            s = close + 1;
        } else if (!n) {
            ein__put_n(b, s++, 1);
        } else {
            char name[16] = "";
            bool axis = s[n] == '#';
            EIN_ASSERT(n < sizeof name - 1);
            memcpy(name, s, n);
            if (axis) name[n] = (char)('0' + k);
            const ein__op_symbol *y = k > 9 ? NULL : ein__op_symbol_at(o, name, strlen(name));
            if (axis && !y) return false;
            EIN_ASSERT(y || *s < 'A' || *s > 'Z');
            ein__put(b, y && y->text ? y->text : name);
            s += n + axis;
        }
    }
    return true;
}

static const char *ein__op_put_list(ein__op *o, ein__buf *b, const char *s) {
    bool first = true;
    for (;;) {
        while (*s == ',' || *s == ' ') s++;
        if (*s == ']') return s + 1;
        ein__lin a = ein__lin_sum(o, &s);
        if (!first) ein__put(b, ",");
        ein__lin_put(b, &a);
        first = false;
    }
}

// `[a == b]` after ` * `; both disappear when the condition holds whatever the indices are.
static const char *ein__op_put_guard(ein__op *o, ein__buf *b, const char *s) {
    ein__lin left = ein__lin_sum(o, &s);
    size_t n = strspn(s, "=<>!");
    const char *op = s;
    s += n;
    ein__lin right = ein__lin_sum(o, &s);
    EIN_ASSERT(*s == ']');
    bool holds = !left.n && !right.n && n == 2 && *op == '=' && left.c == right.c;
    if (holds && b->n > 3 && !strcmp(b->s + b->n - 3, " * ")) {
        b->s[b->n -= 3] = 0;
        return s + 1;
    }
    ein__put(b, "[");
    ein__lin_put(b, &left);
    ein__putf(b, " %.*s ", (int)n, op);
    ein__lin_put(b, &right);
    ein__put(b, "]");
    return s + 1;
}

// After `sum(`: the bare indices of a reduction. NULL when the parentheses hold anything else.
static const char *ein__op_put_reduce(ein__op *o, ein__buf *b, const char *word, size_t n,
                                      const char *s) {
    ein__buf list = {0};
    for (;;) {
        s += strspn(s, ", ");
        if (*s == ')') break;
        size_t length = ein__op_word_length(s);
        ein__op_symbol *index = length ? ein__op_symbol_at(o, s, length) : NULL;
        if (!index || index->text || !strchr(",)", s[length])) {
            ein__buf_free(&list);
            return NULL;
        }
        index->used = true;
        if (!index->unit) ein__putf(&list, "%s%.*s", list.n ? "," : "", (int)length, s);
        s += length;
    }
    s++;
    if (list.n) ein__putf(b, "%.*s(%s)", (int)n, word, list.s);
    else s += strspn(s, " ");
    ein__buf_free(&list);
    return s;
}

static bool ein__op_reduces(const char *s, size_t n) {
    return n >= 3 && n <= 4 && s[n] == '(' &&
           (!strncmp(s, "sum(", 4) || !strncmp(s, "max(", 4) || !strncmp(s, "min(", 4) ||
            !strncmp(s, "prod(", 5));
}

static void ein__op_tidy(ein__op *o, ein__buf *b, const char *s) {
    while (*s) {
        size_t n = ein__op_word_length(s);
        const char *next = NULL;
        if (n && ein__op_reduces(s, n) &&
            (next = ein__op_put_reduce(o, b, s, n, s + n + 1)) != NULL) {
            s = next;
        } else if (n && s[n] == '[') {
            ein__put_n(b, s, n + 1);
            s = ein__op_put_list(o, b, s + n + 1);
            ein__put(b, "]");
        } else if (n == 3 && !strncmp(s, "idx(", 4)) {
            s += 4;
            ein__lin a = ein__lin_sum(o, &s);
            ein__put(b, "idx(");
            ein__lin_put(b, &a);
            ein__put(b, ")");
            s++;
        } else if (n) {
            ein__put_n(b, s, n);
            s += n;
        } else if (*s == '[') {
            s = ein__op_put_guard(o, b, s + 1);
        } else {
            ein__put_n(b, s++, 1);
        }
    }
}

// Writes one equation. `pad` is what follows the word in `where` ("x 0"), NULL when nothing is read
// outside its range.
EIN__FN void ein__op_put(ein__op *o, const char *template, const char *pad) {
    if (!o->text) return;
    ein__buf plain = {0};
    for (int i = 0; i < o->nsymbol; i++) o->symbol[i].used = false;
    ein__op_expand(o, &plain, template, template + strlen(template), -1);
    ein__op_tidy(o, o->text, plain.s);
    ein__buf_free(&plain);
    bool first = true;
    for (int i = 0; i < o->nsymbol; i++) {
        const ein__op_symbol *s = &o->symbol[i];
        if (s->text || s->unit || !s->used) continue;
        ein__putf(o->text, "%s%s in 0:%lld", first ? " where " : ", ", s->name,
                  (long long)s->extent);
        first = false;
    }
    if (pad) ein__putf(o->text, "%spad %s", first ? " where " : ", ", pad);
    ein__put(o->text, "\n");
}
/* ---- ops_math.c ---- */
// Element-wise operators, products, normalizations and reductions.

// Writes y[i0,..] = expr, where operands stand for their elements at i0 .. (stretched) and
// attributes for their values.
static bool ein__op_map(ein__op *o, const char *expr, const ein__shape *y) {
    ein__op_each_axis(o, y);
    ein__buf b = {0};
    ein__put(&b, "y[{i#,}] = ");
    while (o->text && *expr) {
        size_t n = ein__op_word_length(expr);
        const char *word = ein__name_n(o->ctx, expr, n);
        int k = 0;
        while (n && k < o->node->nin && strcmp(word, ein__op_in_name(o, k))) k++;
        if (!n) {
            ein__put_n(&b, expr++, 1);
            continue;
        }
        double v;
        if (k < o->node->nin) {
            const ein__shape *x = ein__op_in(o, k);
            ein__put(&b, word);
            ein__put(&b, "[");
            for (int i = 0; i < x->rank; i++) {
                int at = i + y->rank - x->rank;
                ein__putf(&b, x->d[i] == y->d[at] ? "%si%d" : "%s0", i ? "," : "", at);
            }
            ein__put(&b, "]");
        } else if (*ein__op_default(o, word) && ein__op_finite(o, word, &v)) {
            ein__put_f64(&b, v);
        } else {
            ein__put(&b, word);
        }
        expr += n;
    }
    if (o->text) ein__op_put(o, b.s, NULL);
    ein__buf_free(&b);
    return ein__op_result(o, 0, y);
}

// Operators whose row is their expression; numeric attributes are checked here.
static bool ein__op_elementwise(ein__op *o) {
    ein__shape y = *ein__op_in(o, 0);
    double v;
    const char *s = o->row->attr, *token;
    size_t n;
    while (ein__op_token(&s, &token, &n))
        if (!ein__op_finite(o, ein__name_n(o->ctx, token, strcspn(token, "= ")), &v)) return false;
    for (int i = 1; i < o->node->nin; i++)
        if (!ein__op_broadcast(o, &y, ein__op_in(o, i), &y)) return false;
    return ein__op_map(o, o->row->body, &y);
}

// Max and Min: body is the name of the function, applied from the right; Sum: its operator.
static bool ein__op_nary(ein__op *o) {
    ein__shape y = *ein__op_in(o, 0);
    bool infix = strlen(o->row->body) == 1;
    for (int i = 1; i < o->node->nin; i++)
        if (!ein__op_broadcast(o, &y, ein__op_in(o, i), &y)) return false;
    ein__buf b = {0};
    for (int i = 0; i + 1 < o->node->nin; i++)
        if (infix) ein__putf(&b, "x%d %s ", i, o->row->body);
        else ein__putf(&b, "%s(x%d, ", o->row->body, i);
    ein__putf(&b, "x%d", o->node->nin - 1);
    for (int i = 0; i + 1 < o->node->nin; i++) ein__put(&b, infix ? "" : ")");
    bool ok = ein__op_map(o, b.s, &y);
    ein__buf_free(&b);
    return ok;
}

static bool ein__op_prelu(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    return ein__op_stretches(o, 1, x) && ein__op_map(o, o->row->body, x);
}

static bool ein__op_gelu(ein__op *o) {
    static const char *const body[] = {
        "0.5 * x * (1 + erf(0.7071067811865476 * x))",
        "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"};
    int which;
    return ein__op_word(o, "approximate", &which) && ein__op_map(o, body[which], ein__op_in(o, 0));
}

// The upper bound wins where the bounds cross.
static bool ein__op_clip(ein__op *o) {
    double lo, hi;
    if (!ein__op_number(o, "min", &lo) || !ein__op_number(o, "max", &hi)) return false;
    bool below = ein__op_given(o, "min") && lo > -3.4e38,
         above = ein__op_given(o, "max") && hi < 3.4e38;
    if ((below && !ein__op_finite(o, "min", &lo)) || (above && !ein__op_finite(o, "max", &hi)))
        return false;
    ein__buf b = {0};
    ein__put(&b, above ? "min(" : "");
    ein__put(&b, below ? "max(x, " : "x");
    if (below) ein__put_f64(&b, lo);
    if (below) ein__put(&b, ")");
    if (above) ein__put(&b, ", ");
    if (above) ein__put_f64(&b, hi);
    if (above) ein__put(&b, ")");
    bool ok = ein__op_map(o, b.s, ein__op_in(o, 0));
    ein__buf_free(&b);
    return ok;
}

// numpy's rules: matrices in the last two axes, the others broadcast, a vector is a row of the left
// or a column of the right operand and its axis does not appear in the result.
static bool ein__op_matmul(ein__op *o) {
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_rank(o, 1, 1, EIN__MAX_RANK))
        return false;
    const ein__shape *a = ein__op_in(o, 0), *b = ein__op_in(o, 1);
    ein__shape ba = *a, bb = *b, y;
    ba.rank = a->rank > 2 ? a->rank - 2 : 0;
    bb.rank = b->rank > 2 ? b->rank - 2 : 0;
    int64_t k = a->d[a->rank - 1];
    if (k != b->d[b->rank > 1 ? b->rank - 2 : 0])
        return ein__op_fail(o, NULL, "inner sizes of %s and %s differ", ein__op_shape_text(o, a),
                            ein__op_shape_text(o, b));
    if (!ein__op_broadcast(o, &ba, &bb, &y)) return false;
    ein__op_each_axis(o, &y);
    ein__op_stretch(o, "A", &ba, &y);
    ein__op_stretch(o, "B", &bb, &y);
    if (a->rank > 1) {
        y.d[y.rank++] = a->d[a->rank - 2];
        ein__op_each(o, "m", -1, a->d[a->rank - 2]);
        ein__op_str(o, "M", 0, "m");
    }
    if (b->rank > 1) {
        y.d[y.rank++] = b->d[b->rank - 1];
        ein__op_each(o, "n", -1, b->d[b->rank - 1]);
        ein__op_str(o, "N", 0, "n");
    }
    ein__op_over(o, "k", -1, k);
    ein__op_put(o, "y[{i#,}{M#,}{N#,}] = sum(k) a[{A#,}{M#,}k] * b[{B#,}k,{N#,}]", NULL);
    return ein__op_result(o, 0, &y);
}

static bool ein__op_gemm(ein__op *o) {
    double alpha, beta;
    bool ta, tb;
    if (!ein__op_rank(o, 0, 2, 2) || !ein__op_rank(o, 1, 2, 2) ||
        !ein__op_finite(o, "alpha", &alpha) || !ein__op_finite(o, "beta", &beta) ||
        !ein__op_flag(o, "transA", &ta) || !ein__op_flag(o, "transB", &tb))
        return false;
    const ein__shape *a = ein__op_in(o, 0), *b = ein__op_in(o, 1), *c = ein__op_in(o, 2);
    ein__shape y = {.rank = 2, .d = {a->d[ta], b->d[!tb]}};
    if (a->d[!ta] != b->d[tb])
        return ein__op_fail(o, NULL, "inner sizes of %s and %s differ (transA=%d, transB=%d)",
                            ein__op_shape_text(o, a), ein__op_shape_text(o, b), ta, tb);
    if (!ein__op_stretches(o, 2, &y)) return false;
    ein__op_each_axis(o, &y);
    ein__op_over(o, "k", -1, a->d[!ta]);
    ein__op_str(o, "A", -1, ta ? "k,i0" : "i0,k");
    ein__op_str(o, "B", -1, tb ? "i1,k" : "k,i1");
    ein__op_stretch(o, "C", c, &y);
    ein__op_real(o, "ALPHA", alpha);
    ein__op_real(o, "BETA", beta);
    const char *product =
        alpha == 1 ? "y[{i#,}] = sum(k) a[A] * b[B]" : "y[{i#,}] = ALPHA * sum(k) a[A] * b[B]";
    const char *sum = !c || beta == 0 ? "" : beta == 1 ? " + c[{C#,}]" : " + BETA * c[{C#,}]";
    ein__op_put(o, ein__namef(o->ctx, "%s%s", product, sum), NULL);
    return ein__op_result(o, 0, &y);
}

// ------------------------------------------------------------------------------- normalizations

// With scale and shift per channel as values of their own, which a load-time pass computes.
static bool ein__op_batch_normalization(ein__op *o) {
    double epsilon;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) || !ein__op_finite(o, "epsilon", &epsilon))
        return false;
    const ein__shape *x = ein__op_in(o, 0);
    for (int k = 1; k < 5; k++)
        if (!ein__op_vector(o, k, x->d[1])) return false;
    ein__op_each_axis(o, x);
    ein__op_real(o, "EPS", epsilon);
    ein__op_put(o, "s[i1] = scale[i1] * rsqrt(var[i1] + EPS)", NULL);
    ein__op_put(o, "t[i1] = b[i1] - mean[i1] * s[i1]", NULL);
    ein__op_put(o, "y[{i#,}] = x[{i#,}] * s[i1] + t[i1]", NULL);
    return ein__op_result(o, 0, x);
}

// Mean and variance over the axes from `axis` on.
static bool ein__op_layer_normalization(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis = 0;
    double epsilon;
    int64_t count = 1;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__op_finite(o, "epsilon", &epsilon) || !ein__op_stretches(o, 1, x) ||
        !ein__op_stretches(o, 2, x))
        return false;
    ein__op_each_axis(o, x);
    for (int i = 0; i < x->rank; i++) {
        if (i < axis) ein__op_str(o, "K", i, "i%d", i);
        if (i < axis) ein__op_str(o, "R", i, "i%d", i);
        if (i < axis) continue;
        ein__op_over(o, "r", i - axis, x->d[i]);
        ein__op_str(o, "R", i, "r%d", i - axis);
        count *= x->d[i];
    }
    ein__op_num(o, "COUNT", -1, count);
    ein__op_real(o, "EPS", epsilon);
    ein__op_stretch(o, "S", ein__op_in(o, 1), x);
    ein__op_stretch(o, "B", ein__op_in(o, 2), x);
    ein__op_put(o, "m[{K#,}] = (sum({r#,}) x[{R#,}]) / COUNT", NULL);
    ein__op_put(o, "v[{K#,}] = (sum({r#,}) square(x[{R#,}] - m[{K#,}])) / COUNT", NULL);
    const char *y = "y[{i#,}] = (x[{i#,}] - m[{K#,}]) * rsqrt(v[{K#,}] + EPS) * scale[{S#,}]";
    ein__op_put(o, ein__op_in(o, 2) ? ein__namef(o->ctx, "%s + b[{B#,}]", y) : y, NULL);
    return ein__op_result(o, 0, x);
}

// Softmax and LogSoftmax: body is the last equation.
static bool ein__op_softmax(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis))
        return false;
    ein__op_each_axis(o, x);
    ein__op_over(o, "r", -1, x->d[axis]);
    for (int i = 0; i < x->rank; i++) {
        if (i == axis) ein__op_str(o, "R", i, "r");
        else ein__op_str(o, "R", i, "i%d", i);
        if (i != axis) ein__op_str(o, "K", i - (i > axis), "i%d", i);
    }
    ein__op_put(o, "m[{K#,}] = max(r) x[{R#,}]", NULL);
    ein__op_put(o, "s[{K#,}] = sum(r) exp(x[{R#,}] - m[{K#,}])", NULL);
    ein__op_put(o, o->row->body, NULL);
    return ein__op_result(o, 0, x);
}

// ----------------------------------------------------------------------------------- reductions

// y[Y] = body, where x[{X#,}] with r# inside are the elements reduced and N is their number.
static bool ein__reduce_write(ein__op *o, const bool *reduced, bool keep) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    int64_t count = 1;
    int nr = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!reduced[i] || keep) {
            ein__op_each(o, "i", y.rank, reduced[i] ? 1 : x->d[i]);
            y.d[y.rank++] = reduced[i] ? 1 : x->d[i];
        }
        if (reduced[i]) ein__op_str(o, "X", i, "r%d", nr);
        else ein__op_str(o, "X", i, "i%d", y.rank - 1);
        if (reduced[i]) ein__op_over(o, "r", nr++, x->d[i]);
        if (reduced[i]) count *= x->d[i];
    }
    ein__op_num(o, "N", -1, count);
    ein__op_put(o, ein__namef(o->ctx, "y[{i#,}] = %s", o->row->body), NULL);
    return ein__op_result(o, 0, &y);
}

static bool ein__op_reduce(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int at[EIN__MAX_RANK], n;
    bool keep, noop, reduced[EIN__MAX_RANK] = {0};
    if (!ein__op_axes(o, "axes", x->rank, at, &n) || !ein__op_flag(o, "keepdims", &keep) ||
        !ein__op_flag(o, "noop_with_empty_axes", &noop))
        return false;
    for (int i = 0; i < n; i++) reduced[at[i]] = true;
    for (int i = 0; i < x->rank; i++) reduced[i] = reduced[i] || (!n && !noop);
    return ein__reduce_write(o, reduced, keep);
}

static bool ein__op_global_pool(ein__op *o) {
    bool reduced[EIN__MAX_RANK];
    for (int i = 0; i < EIN__MAX_RANK; i++) reduced[i] = i >= 2;
    return ein__op_rank(o, 0, 3, EIN__MAX_RANK) && ein__reduce_write(o, reduced, true);
}

// ------------------------------------------------------------------------------- banded products

// q, k [.., M, P] -> y[.., m, j]: row m of q times row m + d*(j-w) of k, for j in 0:2w+1.
static bool ein__op_g2bmm(ein__op *o) {
    const ein__shape *q = ein__op_in(o, 0), *k = ein__op_in(o, 1);
    int64_t w, d;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) || !ein__op_int(o, "w", 0, (int64_t)1 << 30, &w) ||
        !ein__op_int(o, "dilation", 1, (int64_t)1 << 30, &d))
        return false;
    if (q->rank != k->rank || memcmp(q->d, k->d, (size_t)q->rank * sizeof q->d[0]))
        return ein__op_fail(o, NULL, "q %s and k %s differ", ein__op_shape_text(o, q),
                            ein__op_shape_text(o, k));
    ein__shape y = *q, batch = *q;
    y.d[y.rank - 1] = 2 * w + 1;
    batch.rank -= 2;
    ein__op_each_axis(o, &batch);
    ein__op_each(o, "m", -1, q->d[q->rank - 2]);
    ein__op_each(o, "j", -1, 2 * w + 1);
    ein__op_over(o, "p", -1, q->d[q->rank - 1]);
    ein__op_num(o, "D", -1, d);
    ein__op_num(o, "W", -1, w);
    ein__op_put(o, "y[{i#,}m,j] = sum(p) q[{i#,}m,p] * k[{i#,}m+D*(j-W),p]", w ? "k 0" : NULL);
    return ein__op_result(o, 0, &y);
}

// a [.., M, 2w+1], v [.., M, P] -> y[.., m, p]: the sum over j of a[.., m, j] times row m + d*(j-w)
// of v.
static bool ein__op_gbmm(ein__op *o) {
    const ein__shape *a = ein__op_in(o, 0), *v = ein__op_in(o, 1);
    int64_t d;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) ||
        !ein__op_int(o, "dilation", 1, (int64_t)1 << 20, &d))
        return false;
    int64_t band = a->d[a->rank - 1];
    if (a->rank != v->rank || memcmp(a->d, v->d, (size_t)(a->rank - 1) * sizeof a->d[0]))
        return ein__op_fail(o, NULL, "a %s and v %s differ before their last axis",
                            ein__op_shape_text(o, a), ein__op_shape_text(o, v));
    if (band % 2 == 0)
        return ein__op_fail(o, NULL, "the last axis of a has size %lld, expected an odd one",
                            (long long)band);
    ein__shape batch = *v;
    batch.rank -= 2;
    ein__op_each_axis(o, &batch);
    ein__op_each(o, "m", -1, v->d[v->rank - 2]);
    ein__op_each(o, "p", -1, v->d[v->rank - 1]);
    ein__op_over(o, "j", -1, band);
    ein__op_num(o, "D", -1, d);
    ein__op_num(o, "W", -1, band / 2);
    ein__op_put(o, "y[{i#,}m,p] = sum(j) a[{i#,}m,j] * v[{i#,}m+D*(j-W),p]",
                band > 1 ? "v 0" : NULL);
    return ein__op_result(o, 0, v);
}
/* ---- ops_conv.c ---- */
// Operators that slide a window: convolutions and poolings. x is [n, c, i0, i1, ..].

// Window over up to three spatial axes: out position i reads s*i + d*r - lo for r in 0:k.
typedef struct ein__window {
    int n;
    int64_t in[3], k[3], s[3], d[3], lo[3], hi[3], out[3];
    bool outside;  // some read is outside the input
} ein__window;

// ORDER of the words of auto_pad in the table
enum { EIN__PAD_NOTSET, EIN__PAD_SAME_UPPER, EIN__PAD_SAME_LOWER, EIN__PAD_VALID };

static bool ein__window_attrs(ein__op *o, const ein__shape *x, const int64_t *k, ein__window *g,
                              int *auto_pad) {
    int got;
    int64_t pads[6] = {0};
    *g = (ein__window){.n = x->rank - 2};
    for (int i = 0; i < g->n; i++) {
        g->in[i] = x->d[i + 2];
        g->k[i] = k[i];
    }
    if (!ein__op_word(o, "auto_pad", auto_pad) ||
        !ein__op_ints(o, "strides", g->n, 3, 1, EIN__OP_LIMIT, g->s, &got) ||
        !ein__op_ints(o, "dilations", g->n, 3, 1, EIN__OP_LIMIT, g->d, &got) ||
        !ein__op_ints(o, "pads", 2 * g->n, 6, 0, EIN__OP_LIMIT, pads, &got))
        return false;
    for (int i = 0; i < g->n; i++) {
        g->lo[i] = pads[i];
        g->hi[i] = pads[i + g->n];
        if (*auto_pad != EIN__PAD_NOTSET && (pads[i] || pads[i + g->n]))
            return ein__op_fail(o, "pads", "pads and auto_pad exclude each other");
    }
    return true;
}

// Extent of a dilated kernel; false when it is absurd.
static bool ein__window_extent(ein__op *o, const ein__window *g, int i, int64_t *extent) {
    if (!ein__mul_overflows(g->k[i] - 1, g->d[i], extent) && ++*extent <= EIN__OP_LIMIT)
        return true;
    return ein__op_fail(o, "dilations", "dilation %lld is too large", (long long)g->d[i]);
}

static void ein__window_split(ein__window *g, int i, int64_t total, bool upper) {
    g->lo[i] = upper ? total / 2 : total - total / 2;
    g->hi[i] = total - g->lo[i];
}

// Reads strides, dilations, pads and auto_pad; `ceil` rounds the number of positions up, but no
// window starts beyond the input and its left padding.
static bool ein__window_read(ein__op *o, const ein__shape *x, const int64_t *k, bool ceil,
                             ein__window *g) {
    int auto_pad;
    if (!ein__window_attrs(o, x, k, g, &auto_pad)) return false;
    for (int i = 0; i < g->n; i++) {
        int64_t extent, in = g->in[i], s = g->s[i];
        if (!ein__window_extent(o, g, i, &extent)) return false;
        if (auto_pad == EIN__PAD_SAME_UPPER || auto_pad == EIN__PAD_SAME_LOWER) {
            int64_t total = (in - 1) / s * s + extent - in;
            ein__window_split(g, i, total > 0 ? total : 0, auto_pad == EIN__PAD_SAME_UPPER);
        }
        int64_t room = in + g->lo[i] + g->hi[i] - extent;
        if (room < 0)
            return ein__op_fail(o, NULL,
                                "a window of %lld does not fit into axis %d of x: %lld with pads",
                                (long long)extent, i + 2, (long long)(room + extent));
        g->out[i] = room / s + 1;
        if (ceil && room % s && g->out[i] * s < in + g->lo[i]) g->out[i]++;
        if (g->lo[i] || (g->out[i] - 1) * s + extent - 1 - g->lo[i] >= in) g->outside = true;
    }
    return true;
}

// Binds i# r# and S# D# P#, and the indices before them.
static void ein__window_bind(ein__op *o, const ein__window *g) {
    for (int i = 0; i < g->n; i++) ein__op_each(o, "i", i, g->out[i]);
    for (int i = 0; i < g->n; i++) {
        ein__op_over(o, "r", i, g->k[i]);
        ein__op_num(o, "S", i, g->s[i]);
        ein__op_num(o, "D", i, g->d[i]);
        ein__op_num(o, "P", i, g->lo[i]);
    }
}

// x and w of a convolution agree in rank, and kernel_shape, where given, with w.
static bool ein__conv_operands(ein__op *o, int64_t *group) {
    if (!ein__op_rank(o, 0, 3, 5)) return false;
    const ein__shape *x = ein__op_in(o, 0), *w = ein__op_in(o, 1);
    int64_t k[3];
    int n;
    if (!ein__op_rank(o, 1, x->rank, x->rank) ||
        !ein__op_int(o, "group", 1, EIN__OP_LIMIT, group) ||
        !ein__op_ints(o, "kernel_shape", x->rank - 2, 3, 1, EIN__OP_LIMIT, k, &n))
        return false;
    for (int i = 0; i < n; i++)
        if (k[i] != w->d[i + 2])
            return ein__op_fail(o, "kernel_shape", "kernel_shape[%d] is %lld, but w has shape %s",
                                i, (long long)k[i], ein__op_shape_text(o, w));
    return true;
}

// Channel of the group of result channel f (fg a group) that has c as its number inside the group
// (cg).
static void ein__conv_bind_channel(ein__op *o, const char *name, int64_t group, int64_t fg,
                                   int64_t cg) {
    if (group == 1) ein__op_str(o, name, -1, "c");
    else ein__op_str(o, name, -1, "(f/%lld)*%lld+c", (long long)fg, (long long)cg);
}

static bool ein__op_conv(ein__op *o) {
    int64_t group;
    ein__window g;
    if (!ein__conv_operands(o, &group)) return false;
    const ein__shape *x = ein__op_in(o, 0), *w = ein__op_in(o, 1);
    int64_t f = w->d[0], c = w->d[1];
    if (x->d[1] % group || x->d[1] / group != c)
        return ein__op_fail(o, NULL, "x has %lld channels, w %s and group=%lld want %lld",
                            (long long)x->d[1], ein__op_shape_text(o, w), (long long)group,
                            (long long)(c <= EIN__OP_LIMIT / group ? c * group : -1));
    if (f % group)
        return ein__op_fail(o, "group",
                            "group %lld does not divide the %lld channels of the result",
                            (long long)group, (long long)f);
    if (!ein__op_vector(o, 2, f) || !ein__window_read(o, x, w->d + 2, false, &g)) return false;
    ein__shape y = {.rank = x->rank, .d = {x->d[0], f}};
    for (int i = 0; i < g.n; i++) y.d[i + 2] = g.out[i];
    ein__op_each(o, "n", -1, y.d[0]);
    ein__op_each(o, "f", -1, f);
    ein__op_over(o, "c", -1, c);
    ein__window_bind(o, &g);
    ein__conv_bind_channel(o, "C", group, f / group, c);
    ein__op_str(o, "BIAS", -1, "%s", ein__op_in(o, 2) ? " + b[f]" : "");
    ein__op_put(o, "y[n,f{,i#}] = sum(c{,r#}) x[n,C{,S#*i#+D#*r#-P#}] * w[f,c{,r#}]BIAS",
                g.outside ? "x 0" : NULL);
    return ein__op_result(o, 0, &y);
}

// Sizes of a transposed convolution: pads trim the full result, output_shape chooses the pads.
static bool ein__window_transposed(ein__op *o, const ein__shape *x, const int64_t *k,
                                   ein__window *g) {
    int auto_pad, n, given;
    int64_t more[3], want[3];
    if (!ein__window_attrs(o, x, k, g, &auto_pad) ||
        !ein__op_ints(o, "output_padding", g->n, 3, 0, EIN__OP_LIMIT, more, &n) ||
        !ein__op_ints(o, "output_shape", g->n, 3, 1, EIN__OP_LIMIT, want, &given))
        return false;
    bool same = auto_pad == EIN__PAD_SAME_UPPER || auto_pad == EIN__PAD_SAME_LOWER;
    for (int i = 0; i < g->n; i++) {
        int64_t extent, full;
        if (!ein__window_extent(o, g, i, &extent)) return false;
        if (ein__mul_overflows(g->s[i], g->in[i] - 1, &full) || full > EIN__OP_LIMIT)
            return ein__op_fail(o, "strides", "stride %lld is too large", (long long)g->s[i]);
        full += extent + more[i];
        if (given || same) {
            int64_t total = full - (given ? want[i] : g->in[i] * g->s[i]);
            if (given && total < 0)
                return ein__op_fail(o, "output_shape", "output_shape[%d] is %lld, more than %lld",
                                    i, (long long)want[i], (long long)full);
            ein__window_split(g, i, total > 0 ? total : 0, auto_pad == EIN__PAD_SAME_UPPER);
        }
        g->out[i] = full - g->lo[i] - g->hi[i];
        // With a stride the subscript is a quotient, whose bounds need not be seen as exact.
        if (g->s[i] > 1 || g->lo[i] < extent - 1 || g->out[i] - 1 + g->lo[i] >= g->in[i])
            g->outside = true;
    }
    return true;
}

static bool ein__op_conv_transpose(ein__op *o) {
    int64_t group;
    ein__window g;
    if (!ein__conv_operands(o, &group)) return false;
    const ein__shape *x = ein__op_in(o, 0), *w = ein__op_in(o, 1);
    int64_t c = x->d[1], fg = w->d[1], f;
    if (w->d[0] != c)
        return ein__op_fail(o, NULL, "x has %lld channels, w %s wants %lld", (long long)c,
                            ein__op_shape_text(o, w), (long long)w->d[0]);
    if (c % group)
        return ein__op_fail(o, "group", "group %lld does not divide the %lld channels of x",
                            (long long)group, (long long)c);
    if (ein__mul_overflows(fg, group, &f)) f = 0;
    if (!ein__op_vector(o, 2, f) || !ein__window_transposed(o, x, w->d + 2, &g)) return false;
    ein__shape y = {.rank = x->rank, .d = {x->d[0], f}};
    for (int i = 0; i < g.n; i++) y.d[i + 2] = g.out[i];
    ein__op_each(o, "n", -1, y.d[0]);
    ein__op_each(o, "f", -1, f);
    ein__op_over(o, "c", -1, c / group);
    ein__window_bind(o, &g);
    ein__conv_bind_channel(o, "C", group, fg, c / group);
    ein__op_str(o, "F", -1, group == 1 ? "f" : "f%%%lld", (long long)fg);
    ein__op_str(o, "BIAS", -1, "%s", ein__op_in(o, 2) ? " + b[f]" : "");
    ein__op_put(o,
                "y[n,f{,i#}] = sum(c{,r#}) x[n,C{,(i#+P#-D#*r#)/S#}] * w[C,F{,r#}]"
                "{ * [(i#+P#-D#*r#)%S# == 0]}BIAS",
                g.outside ? "x 0" : NULL);
    return ein__op_result(o, 0, &y);
}

// Reads a pooling's window and binds everything that its equations use.
static bool ein__pool_read(ein__op *o, ein__window *g, ein__shape *y) {
    int64_t k[3];
    int n;
    bool ceil;
    if (!ein__op_rank(o, 0, 3, 5)) return false;
    const ein__shape *x = ein__op_in(o, 0);
    if (!ein__op_ints(o, "kernel_shape", x->rank - 2, 3, 1, EIN__OP_LIMIT, k, &n) ||
        !ein__op_flag(o, "ceil_mode", &ceil) || !ein__window_read(o, x, k, ceil, g))
        return false;
    *y = *x;
    ein__op_each(o, "n", -1, x->d[0]);
    ein__op_each(o, "c", -1, x->d[1]);
    for (int i = 0; i < g->n; i++) {
        if (g->lo[i] >= k[i] || g->hi[i] >= k[i])
            if (g->lo[i] || g->hi[i])
                return ein__op_fail(o, "pads", "pads of axis %d must be smaller than the window",
                                    i + 2);
        y->d[i + 2] = g->out[i];
    }
    ein__window_bind(o, g);
    return true;
}

static bool ein__op_max_pool(ein__op *o) {
    ein__window g;
    ein__shape y;
    if (!ein__pool_read(o, &g, &y)) return false;
    ein__op_put(o, "y[n,c{,i#}] = max({r#,}) x[n,c{,S#*i#+D#*r#-P#}]", g.outside ? "x -inf" : NULL);
    return ein__op_result(o, 0, &y);
}

// The divisor counts the window's cells in the input or, with count_include_pad, in the padded
// input. Only windows that reach beyond it need a count per position.
static bool ein__op_average_pool(ein__op *o) {
    ein__window g;
    ein__shape y;
    bool padded, uneven = false;
    int64_t cells = 1;
    if (!ein__pool_read(o, &g, &y) || !ein__op_flag(o, "count_include_pad", &padded)) return false;
    for (int i = 0; i < g.n; i++) {
        long long lo = padded ? -g.lo[i] : 0, hi = g.in[i] + (padded ? g.hi[i] : 0);
        long long first = -g.lo[i], s = g.s[i], d = g.d[i];
        bool before = first < lo, beyond = (g.out[i] - 1) * s + (g.k[i] - 1) * d + first >= hi;
        ein__buf guard = {0};
        ein__put(&guard, "");
        if (before)
            ein__putf(&guard, " * [%lld*i%d+%lld*r%d+(%lld) >= %lld]", s, i, d, i, first, lo);
        if (beyond)
            ein__putf(&guard, " * [%lld*i%d+%lld*r%d+(%lld) < %lld]", s, i, d, i, first, hi);
        ein__op_str(o, "G", i, "%s", guard.s);
        ein__buf_free(&guard);
        uneven = uneven || before || beyond;
        if (ein__mul_overflows(cells, g.k[i], &cells) || cells > EIN__OP_LIMIT)
            return ein__op_fail(o, "kernel_shape", "the window is too large");
    }
    ein__op_num(o, "N", -1, cells);
    if (uneven) ein__op_put(o, "d[{i#,}] = sum({r#,}) 1{G#}", NULL);
    ein__op_put(o,
                uneven ? "y[n,c{,i#}] = (sum({r#,}) x[n,c{,S#*i#+D#*r#-P#}]) / d[{i#,}]"
                       : "y[n,c{,i#}] = (sum({r#,}) x[n,c{,S#*i#+D#*r#-P#}]) / N",
                g.outside ? "x 0" : NULL);
    return ein__op_result(o, 0, &y);
}
/* ---- ops_shape.c ---- */
// Operators that move elements: pure copies, whatever the type.

static bool ein__op_identity(ein__op *o) { return ein__op_map(o, o->row->body, ein__op_in(o, 0)); }

static bool ein__op_concat(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = *x;
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis))
        return false;
    for (int k = 1; k < o->node->nin; k++) {
        const ein__shape *p = ein__op_in(o, k);
        bool fits = p->rank == x->rank;
        for (int i = 0; fits && i < x->rank; i++) fits = i == axis || p->d[i] == x->d[i];
        if (!fits)
            return ein__op_fail(o, NULL, "x%d %s does not continue x0 %s along axis %d", k,
                                ein__op_shape_text(o, p), ein__op_shape_text(o, x), axis);
        y.d[axis] += p->d[axis];
    }
    ein__op_each_axis(o, &y);
    ein__buf body = {0}, pads = {0};
    ein__put(&body, "y[{i#,}] = ");
    long long at = 0;
    for (int k = 0; k < o->node->nin; k++) {
        ein__putf(&body, k ? " + x%d[" : "x%d[", k);
        for (int i = 0; i < x->rank; i++) ein__putf(&body, "i%d-%lld,", i, i == axis ? at : 0);
        ein__put(&body, "]");
        ein__putf(&pads, k ? ", pad x%d 0" : "x%d 0", k);
        at += ein__op_in(o, k)->d[axis];
    }
    ein__op_put(o, body.s, o->node->nin > 1 ? pads.s : NULL);
    ein__buf_free(&body);
    ein__buf_free(&pads);
    return ein__op_result(o, 0, &y);
}

// Sizes of the pieces: `split`, or num_outputs equal ones of which the last may be smaller.
static bool ein__split_sizes(ein__op *o, int64_t whole, int64_t *size) {
    int n, pieces = o->node->nout;
    int64_t count, sum = 0;
    if (!ein__op_ints(o, "split", -1, EIN__MAX_ARGS, 1, EIN__OP_LIMIT, size, &n)) return false;
    if (n && ein__op_given(o, "num_outputs"))
        return ein__op_fail(o, "num_outputs", "split and num_outputs exclude each other");
    if (ein__op_given(o, "num_outputs")) {
        if (!ein__op_int(o, "num_outputs", 1, EIN__MAX_ARGS, &count)) return false;
        if (count != pieces)
            return ein__op_fail(o, "num_outputs", "num_outputs is %lld for %d results",
                                (long long)count, pieces);
    }
    if (n && n != pieces)
        return ein__op_fail(o, "split", "split has %d sizes for %d results", n, pieces);
    if (!n)
        for (int i = 0; i < pieces; i++) size[i] = (whole - 1) / pieces + 1;
    if (!n) size[pieces - 1] = whole - (pieces - 1) * size[0];
    for (int i = 0; i < pieces; i++) sum += size[i];
    if (sum != whole || size[pieces - 1] < 1)
        return ein__op_fail(o, "split", "%d pieces do not make up the axis of size %lld", pieces,
                            (long long)whole);
    return true;
}

static bool ein__op_split(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t size[EIN__MAX_ARGS], at = 0;
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__split_sizes(o, x->d[axis], size))
        return false;
    for (int k = 0; k < o->node->nout; k++) {
        ein__shape y = *x;
        y.d[axis] = size[k];
        o->nsymbol = 0;
        ein__op_each_axis(o, &y);
        for (int i = 0; i < x->rank; i++)
            ein__op_str(o, "X", i, i == axis ? "i%d+%lld" : "i%d", i, (long long)at);
        ein__op_str(o, "Y", -1, o->node->nout == 1 ? "y" : "y%d", k);
        ein__op_put(o, "Y[{i#,}] = x[{X#,}]", NULL);
        if (!ein__op_result(o, k, &y)) return false;
        at += size[k];
    }
    return true;
}

// starts, ends and steps count like Python's slices: negative ones from the end, excess is cut off.
static bool ein__op_slice(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t start[EIN__MAX_RANK], end[EIN__MAX_RANK], step[EIN__MAX_RANK];
    int n, ne, na, axis[EIN__MAX_RANK];
    bool steps = ein__op_given(o, "steps");
    if (!ein__op_ints(o, "starts", -1, x->rank, INT64_MIN, INT64_MAX, start, &n) ||
        !ein__op_ints(o, "ends", n, x->rank, INT64_MIN, INT64_MAX, end, &ne) ||
        !ein__op_axes(o, "axes", x->rank, axis, &na) ||
        (steps && !ein__op_ints(o, "steps", n, x->rank, -EIN__OP_LIMIT, EIN__OP_LIMIT, step, &ne)))
        return false;
    if (na && na != n) return ein__op_fail(o, "axes", "axes has %d values, expected %d", na, n);
    ein__shape y = *x;
    int64_t from[EIN__MAX_RANK] = {0}, by[EIN__MAX_RANK];
    for (int i = 0; i < x->rank; i++) by[i] = 1;
    for (int i = 0; i < n; i++) {
        int at = na ? axis[i] : i;
        int64_t d = x->d[at], s = steps ? step[i] : 1;
        if (!s) return ein__op_fail(o, "steps", "a step of 0");
        int64_t lo = s > 0 ? 0 : -1, hi = s > 0 ? d : d - 1;
        int64_t a = start[i] < 0 ? start[i] + d : start[i], b = end[i] < 0 ? end[i] + d : end[i];
        a = a < lo + (s < 0) ? lo + (s < 0) : a > hi ? hi : a;
        b = b < lo ? lo : b > hi ? hi : b;
        int64_t length = s > 0 ? (b - a + s - 1) / s : (a - b - s - 1) / -s;
        if ((s > 0 ? b - a : a - b) <= 0)
            return ein__op_fail(o, "starts", "the slice of axis %d is empty", at);
        y.d[at] = length;
        from[at] = a;
        by[at] = s;
    }
    ein__op_each_axis(o, &y);
    for (int i = 0; i < x->rank; i++)
        ein__op_str(o, "X", i, "%lld*i%d+%lld", (long long)by[i], i, (long long)from[i]);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return ein__op_result(o, 0, &y);
}

// A padding must be a value of the operand's type.
static bool ein__pad_value(ein__op *o, double *value) {
    static const double most[EIN__NDTYPE] = {0, 0, 0, 127, 2147483647, 9007199254740992, 1};
    ein__dtype t = ein__op_tensor(o, 0)->dtype;
    if (!ein__op_number(o, "value", value)) return false;
    if (most[t] == 0) return true;
    double least = t == EIN__BOOL ? 0 : -most[t] - (t != EIN__I64);
    if (*value == floor(*value) && *value >= least && *value <= most[t]) return true;
    return ein__op_fail(o, "value", "value is not one of %s", ein__dtype_name(t));
}

static bool ein__op_pad(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis[EIN__MAX_RANK], n, na, mode;
    int64_t pads[2 * EIN__MAX_RANK], lo[EIN__MAX_RANK] = {0};
    double value;
    bool outside = false;
    if (!ein__op_axes(o, "axes", x->rank, axis, &na) || !ein__op_word(o, "mode", &mode))
        return false;
    if (!ein__op_given(o, "axes"))
        while (na < x->rank) axis[na] = na, na++;
    if (!ein__op_ints(o, "pads", 2 * na, 2 * EIN__MAX_RANK, -EIN__OP_LIMIT, EIN__OP_LIMIT, pads,
                      &n) ||
        !ein__pad_value(o, &value))
        return false;
    ein__shape y = *x;
    for (int i = 0; i < na; i++) {
        lo[axis[i]] = pads[i];
        y.d[axis[i]] += pads[i] + pads[i + na];
        outside = outside || pads[i] > 0 || pads[i + na] > 0;
    }
    ein__op_each_axis(o, &y);
    for (int i = 0; i < x->rank; i++) ein__op_str(o, "X", i, "i%d-(%lld)", i, (long long)lo[i]);
    ein__buf pad = {0};
    ein__put(&pad, "x ");
    ein__put_f64(&pad, value);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", outside ? pad.s : NULL);
    ein__buf_free(&pad);
    return ein__op_result(o, 0, &y);
}

static bool ein__op_transpose(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int perm[EIN__MAX_RANK], n;
    if (!ein__op_axes(o, "perm", x->rank, perm, &n)) return false;
    if (ein__op_given(o, "perm") && n != x->rank)
        return ein__op_fail(o, "perm", "perm has %d values, expected %d", n, x->rank);
    ein__shape y = *x;
    for (int i = 0; i < x->rank; i++) {
        int from = n ? perm[i] : x->rank - 1 - i;
        y.d[i] = x->d[from];
        ein__op_str(o, "X", from, "i%d", i);
    }
    ein__op_each_axis(o, &y);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return ein__op_result(o, 0, &y);
}

// ------------------------------------------------------------------------------------ reshaping

// Subscripts of axes [a, ae) of x whose elements are, in order, those of axes [b, be) of y.
static void ein__reflow_group(ein__op *o, const ein__shape *x, int a, int ae, const ein__shape *y,
                              int b, int be) {
    ein__buf address = {0};
    ein__put(&address, "0");
    int64_t whole = 1;
    int many = 0;
    for (int i = a; i < ae; i++) {
        many += x->d[i] > 1;
        whole *= x->d[i];
    }
    int64_t stride = whole, rest = whole;
    for (int i = b; i < be; i++) {
        stride /= y->d[i];
        if (y->d[i] > 1) ein__putf(&address, "+%lld*i%d", (long long)stride, i);
    }
    for (int i = a; i < ae; i++) {
        rest /= x->d[i];
        long long s = rest, d = x->d[i];
        if (d == 1) ein__op_str(o, "X", i, "0");
        else if (many == 1) ein__op_str(o, "X", i, "%s", address.s);
        else if (rest * d == whole) ein__op_str(o, "X", i, "(%s)/%lld", address.s, s);
        else ein__op_str(o, "X", i, "(%s)/%lld%%%lld", address.s, s, d);
    }
    ein__buf_free(&address);
}

// y holds x's elements in the same order. The axes fall into the smallest groups that hold equally
// many elements, so that what does not change stays a bare index.
static bool ein__op_reflow(ein__op *o, const ein__shape *y) {
    const ein__shape *x = ein__op_in(o, 0);
    if (ein__elements(x) != ein__elements(y))
        return ein__op_fail(o, "shape", "%s cannot become %s", ein__op_shape_text(o, x),
                            ein__op_shape_text(o, y));
    if (!ein__op_result(o, 0, y)) return false;
    ein__op_each_axis(o, y);
    for (int a = 0, b = 0; a < x->rank || b < y->rank;) {
        int a0 = a, b0 = b;
        int64_t na = a < x->rank ? x->d[a++] : 1, nb = b < y->rank ? y->d[b++] : 1;
        while (na != nb) {
            if (na < nb) na *= x->d[a++];
            else nb *= y->d[b++];
        }
        ein__reflow_group(o, x, a0, a, y, b0, b);
    }
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return true;
}

static bool ein__op_reshape(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    int open = -1;
    if (!ein__op_ints(o, "shape", -1, EIN__MAX_RANK, -1, EIN__OP_LIMIT, y.d, &y.rank)) return false;
    for (int i = 0; i < y.rank; i++) {
        if (y.d[i] == 0 && i >= x->rank)
            return ein__op_fail(o, "shape", "shape[%d] is 0, but x has rank %d", i, x->rank);
        if (y.d[i] == 0) y.d[i] = x->d[i];
        if (y.d[i] > 0) continue;
        if (open >= 0) return ein__op_fail(o, "shape", "shape has more than one -1");
        open = i;
        y.d[i] = 1;
    }
    if (open >= 0 && ein__elements(&y) <= ein__elements(x))
        y.d[open] = ein__elements(x) / ein__elements(&y);
    return ein__op_reflow(o, &y);
}

static bool ein__op_flatten(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t axis;
    if (!ein__op_int(o, "axis", -x->rank, x->rank, &axis)) return false;
    if (axis < 0) axis += x->rank;
    ein__shape y = {.rank = 2, .d = {1, 1}};
    for (int i = 0; i < x->rank; i++) y.d[i >= axis] *= x->d[i];
    return ein__op_reflow(o, &y);
}

static bool ein__op_squeeze(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int at[EIN__MAX_RANK], n;
    bool drop[EIN__MAX_RANK] = {0};
    ein__shape y = {.rank = 0};
    if (!ein__op_axes(o, "axes", x->rank, at, &n)) return false;
    for (int i = 0; i < n; i++) {
        if (x->d[at[i]] != 1)
            return ein__op_fail(o, "axes", "axis %d of x has size %lld, expected 1", at[i],
                                (long long)x->d[at[i]]);
        drop[at[i]] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (!drop[i] && (n || x->d[i] != 1)) y.d[y.rank++] = x->d[i];
    return ein__op_reflow(o, &y);
}

static bool ein__op_unsqueeze(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    const ein__attr *axes = ein__op_attr(o, "axes");
    int at[EIN__MAX_RANK], n = axes->value->kind == EIN__A_LIST ? axes->value->nkid : 1;
    bool added[EIN__MAX_RANK] = {0};
    ein__shape y = {.rank = x->rank + n};
    if (y.rank > EIN__MAX_RANK)
        return ein__op_fail(o, "axes", "the result would have rank %d", y.rank);
    if (!ein__op_axes(o, "axes", y.rank, at, &n)) return false;
    for (int i = 0; i < n; i++) added[at[i]] = true;
    for (int i = 0, from = 0; i < y.rank; i++) y.d[i] = added[i] ? 1 : x->d[from++];
    return ein__op_reflow(o, &y);
}

static bool ein__op_expand_to(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    if (!ein__op_ints(o, "shape", -1, EIN__MAX_RANK, 1, EIN__OP_LIMIT, y.d, &y.rank) ||
        !ein__op_broadcast(o, x, &y, &y))
        return false;
    return ein__op_map(o, "x", &y);
}

// body: the subscripts of x for the words of `mode`, separated by `;`.
static bool ein__op_blocks(ein__op *o) {
    if (!ein__op_rank(o, 0, 4, 4)) return false;
    const ein__shape *x = ein__op_in(o, 0);
    bool to_depth = *o->row->name == 'S';
    int64_t b;
    int mode;
    if (!ein__op_int(o, "blocksize", 1, 1 << 20, &b) || !ein__op_word(o, "mode", &mode))
        return false;
    ein__shape y = *x;
    if (to_depth && (x->d[2] % b || x->d[3] % b))
        return ein__op_fail(o, "blocksize", "blocksize %lld does not divide %s", (long long)b,
                            ein__op_shape_text(o, x));
    if (!to_depth && x->d[1] % (b * b))
        return ein__op_fail(o, "blocksize", "%lld channels are not a multiple of %lld",
                            (long long)x->d[1], (long long)(b * b));
    for (int i = 1; i < 4; i++) {
        int64_t n = i == 1 ? b * b : b;
        y.d[i] = to_depth == (i == 1) ? x->d[i] * n : x->d[i] / n;
    }
    ein__op_each(o, "n", -1, y.d[0]);
    ein__op_each(o, "c", -1, y.d[1]);
    ein__op_each(o, "h", -1, y.d[2]);
    ein__op_each(o, "w", -1, y.d[3]);
    ein__op_num(o, "B", -1, b);
    ein__op_num(o, "BB", -1, b * b);
    ein__op_num(o, "C", -1, to_depth ? x->d[1] : y.d[1]);
    const char *body = o->row->body;
    if (mode) body = strchr(body, ';') + 1;
    ein__op_put(o, ein__namef(o->ctx, "y[n,c,h,w] = x[n,%.*s]", (int)strcspn(body, ";"), body),
                NULL);
    return ein__op_result(o, 0, &y);
}

// ------------------------------------------------------------------------------------- resizing

// ORDER of the words in the table
enum { EIN__NEAREST, EIN__LINEAR };
enum { EIN__HALF_PIXEL, EIN__PYTORCH_HALF_PIXEL, EIN__ASYMMETRIC, EIN__ALIGN_CORNERS };
enum { EIN__ROUND_DOWN, EIN__ROUND_UP, EIN__TO_FLOOR, EIN__TO_CEIL };

// One axis of Resize: result position i lies at (a*i + b) / d of the source.
typedef struct ein__resample {
    int64_t in, out, a, b, d;
} ein__resample;

// The fraction with the smallest denominator that rounds to the same f32, which is what a file
// holds.
static bool ein__ratio(ein__op *o, double scale, int64_t *num, int64_t *den) {
    float f = (float)scale;
    for (*den = 1; f > 0 && f <= 1048576.0f && *den <= 4096; ++*den) {
        *num = (int64_t)floor((double)f * (double)*den + 0.5);
        if (*num > 0 && (float)((double)*num / (double)*den) == f) return true;
    }
    return ein__op_fail(o, "scales",
                        "a scale must be a ratio of integers with a denominator up to 4096");
}

// Which source axes the lists name, in order.
static bool ein__resize_axes(ein__op *o, const char *name, int rank, int *axis, int *n) {
    const ein__ast *v = ein__op_attr(o, name)->value;
    int length = v->kind == EIN__A_LIST ? v->nkid : -1;
    if (!ein__op_axes(o, "axes", rank, axis, n)) return false;
    if (!ein__op_given(o, "axes")) {
        int first = length == rank ? 0 : 2;
        for (*n = 0; first + *n < rank; ++*n) axis[*n] = first + *n;
    }
    if (length < 0 || length == *n) return true;
    return ein__op_fail(o, name, "%s has %d values for %d axes", name, length, *n);
}

// Sets out and the source position for a scale of num / den.
static bool ein__resample_set(ein__op *o, ein__resample *r, int mode, int64_t num, int64_t den) {
    int64_t big;
    bool one = r->out == 1 && (mode == EIN__PYTORCH_HALF_PIXEL || mode == EIN__ALIGN_CORNERS);
    if (one) *r = (ein__resample){r->in, r->out, 0, 0, 1};
    else if (mode == EIN__ALIGN_CORNERS)
        *r = (ein__resample){r->in, r->out, r->in - 1, 0, r->out - 1};
    else if (mode == EIN__ASYMMETRIC) *r = (ein__resample){r->in, r->out, den, 0, num};
    else *r = (ein__resample){r->in, r->out, 2 * den, den - num, 2 * num};
    int64_t g = ein__gcd(ein__gcd(r->a, r->b), r->d);
    r->a /= g;
    r->b /= g;
    r->d /= g;
    // All that is written later stays below a * out and d * in.
    if (ein__mul_overflows(r->a, r->out, &big) || big > (int64_t)1 << 58 ||
        ein__mul_overflows(r->d, r->in, &big) || big > (int64_t)1 << 58)
        return ein__op_fail(o, NULL, "sizes %lld and %lld are too large to resample",
                            (long long)r->in, (long long)r->out);
    return true;
}

static bool ein__resize_read(ein__op *o, ein__resample *r) {
    const ein__shape *x = ein__op_in(o, 0);
    bool scales = ein__op_given(o, "scales");
    const char *name = scales ? "scales" : "sizes";
    int mode, axis[EIN__MAX_RANK], n, got;
    int64_t size[EIN__MAX_RANK];
    if (scales == ein__op_given(o, "sizes"))
        return ein__op_fail(o, name, "exactly one of scales and sizes is needed");
    if (!ein__op_word(o, "coordinate_transformation_mode", &mode) ||
        !ein__resize_axes(o, name, x->rank, axis, &n) ||
        (!scales && !ein__op_ints(o, "sizes", n, EIN__MAX_RANK, 1, EIN__OP_LIMIT, size, &got)))
        return false;
    for (int i = 0; i < x->rank; i++) r[i] = (ein__resample){x->d[i], x->d[i], 1, 0, 1};
    for (int i = 0; i < n; i++) {
        ein__resample *t = &r[axis[i]];
        const ein__ast *v = ein__op_attr(o, name)->value;
        int64_t num = scales ? 0 : size[i], den = t->in;
        double scale = 0;
        if (scales && !ein__op_ast_f64(v->kind == EIN__A_LIST ? v->kid[i] : v, &scale))
            return ein__op_fail(o, name, "scales must be numbers");
        if (scales && !ein__ratio(o, scale, &num, &den)) return false;
        int64_t g = ein__gcd(num, den);
        if (scales && ein__mul_overflows(t->in, num, &t->out))
            return ein__op_fail(o, name, "the scale of axis %d is too large", axis[i]);
        t->out = scales ? t->out / den : num;
        if (t->out < 1)
            return ein__op_fail(o, name, "axis %d of size %lld would vanish", axis[i],
                                (long long)t->in);
        if (!ein__resample_set(o, t, mode, num / g, den / g)) return false;
    }
    return true;
}

// Binds name k to floor((a*i + b) / d), moved to the nearest position of the source. It is outside
// by one position at most, and p - floor(p / n) brings -1 and n back to 0 and n - 1. True where
// that is needed.
static bool ein__resample_bind(ein__op *o, const char *name, int k, const ein__resample *r,
                               int64_t a, int64_t b, int64_t d) {
    int64_t first = ein__floordiv(b, d), last = ein__floordiv(a * (r->out - 1) + b, d);
    bool clamp = first < 0 || last >= r->in;
    EIN_ASSERT(first >= -1 && last <= r->in);
    const char *p = ein__namef(o->ctx, "(%lld*i%d+(%lld))", (long long)a, k, (long long)b);
    if (clamp)
        ein__op_str(o, name, k, "%s/%lld-%s/%lld", p, (long long)d, p, (long long)(d * r->in));
    else ein__op_str(o, name, k, "%s/%lld", p, (long long)d);
    return clamp;
}

// Puts the interpolation over axes [k, rank): low neighbour times 1-f plus high neighbour times f,
// where there is a fraction (d > 1).
static void ein__resize_linear(ein__buf *b, const ein__resample *r, int rank, int k,
                               unsigned high) {
    while (k < rank && r[k].d == 1) k++;
    if (k == rank) {
        ein__put(b, "x[");
        for (int i = 0; i < rank; i++) ein__putf(b, high >> i & 1 ? "H%d," : "L%d,", i);
        ein__put(b, "]");
        return;
    }
    bool inner = false;
    for (int i = k + 1; i < rank; i++) inner = inner || r[i].d > 1;
    ein__put(b, inner ? "(" : "");
    ein__resize_linear(b, r, rank, k + 1, high);
    ein__putf(b, inner ? ") * (1 - F%d) + (" : " * (1 - F%d) + ", k);
    ein__resize_linear(b, r, rank, k + 1, high | 1u << k);
    ein__putf(b, inner ? ") * F%d" : " * F%d", k);
}

static bool ein__op_resize(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__resample r[EIN__MAX_RANK];
    int mode, round, axes = 0;
    bool clamp = false;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_word(o, "mode", &mode) ||
        !ein__op_word(o, "nearest_mode", &round) || !ein__resize_read(o, r))
        return false;
    ein__shape y = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t a = r[i].a, b = r[i].b, d = r[i].d;
        y.d[i] = r[i].out;
        ein__op_each(o, "i", i, y.d[i]);
        axes += d > 1;
        if (mode == EIN__LINEAR) {
            clamp |= ein__resample_bind(o, "L", i, &r[i], a, b, d);
            if (d == 1) continue;
            clamp |= ein__resample_bind(o, "H", i, &r[i], a, b + d, d);
            ein__op_str(o, "F", i, "idx((%lld*i%d+(%lld))%%%lld) / %lld", (long long)a, i,
                        (long long)b, (long long)d, (long long)d);
        } else {
            if (round == EIN__TO_CEIL) b += d - 1;
            if (round == EIN__ROUND_DOWN || round == EIN__ROUND_UP) {
                b = 2 * b + d - (round == EIN__ROUND_DOWN);
                a *= 2;
                d *= 2;
            }
            clamp |= ein__resample_bind(o, "L", i, &r[i], a, b, d);
            r[i].d = 1;
        }
    }
    if (mode == EIN__LINEAR && axes > 3)
        return ein__op_refuse(o, "mode", "mode=linear over %d axes is not supported", axes);
    ein__buf t = {0};
    ein__put(&t, "y[{i#,}] = ");
    ein__resize_linear(&t, r, x->rank, 0, 0);
    ein__op_put(o, t.s, clamp ? "x 0" : NULL);
    ein__buf_free(&t);
    return ein__op_result(o, 0, &y);
}
/* ---- ops.c ---- */
// The operators: one row each, and the functions through which the rest of the generator sees them.

#define EIN__WINDOW "strides=1 pads=0 dilations=1 auto_pad=NOTSET|SAME_UPPER|SAME_LOWER|VALID "
#define EIN__REDUCE "axes? keepdims=1 noop_with_empty_axes=0"

// ORDER of words: auto_pad in ops_conv.c, Resize in ops_shape.c, approximate in ein__op_gelu
static const ein__op_row ein__op_table[] = {
    // name, operands, attributes, any type, body, function
    {"Conv", "x w b?", EIN__WINDOW "group=1 kernel_shape?", false, NULL, ein__op_conv},
    {"ConvTranspose", "x w b?", EIN__WINDOW "group=1 kernel_shape? output_padding=0 output_shape?",
     false, NULL, ein__op_conv_transpose},
    {"MatMul", "a b", "", false, NULL, ein__op_matmul},
    {"Gemm", "a b c?", "alpha=1 beta=1 transA=0 transB=0", false, NULL, ein__op_gemm},
    {"G2BMM", "q k", "w dilation=1", false, NULL, ein__op_g2bmm},
    {"GBMM", "a v", "dilation=1", false, NULL, ein__op_gbmm},

    {"Add", "a b", "", false, "a + b", NULL},
    {"Sub", "a b", "", false, "a - b", NULL},
    {"Mul", "a b", "", false, "a * b", NULL},
    {"Div", "a b", "", false, "a / b", NULL},
    {"Pow", "a b", "", false, "pow(a, b)", NULL},
    {"Max", "x...", "", false, "max", ein__op_nary},
    {"Min", "x...", "", false, "min", ein__op_nary},
    {"Sum", "x...", "", false, "+", ein__op_nary},
    {"Neg", "x", "", false, "-x", NULL},
    {"Abs", "x", "", false, "abs(x)", NULL},
    {"Exp", "x", "", false, "exp(x)", NULL},
    {"Log", "x", "", false, "log(x)", NULL},
    {"Sqrt", "x", "", false, "sqrt(x)", NULL},
    {"Reciprocal", "x", "", false, "1 / x", NULL},
    {"Erf", "x", "", false, "erf(x)", NULL},
    {"Floor", "x", "", false, "floor(x)", NULL},
    {"Ceil", "x", "", false, "ceil(x)", NULL},
    {"Tanh", "x", "", false, "tanh(x)", NULL},
    {"Sigmoid", "x", "", false, "sigmoid(x)", NULL},
    {"Relu", "x", "", false, "relu(x)", NULL},
    {"LeakyRelu", "x", "alpha=0.01", false, "select(x < 0, alpha * x, x)", NULL},
    {"PRelu", "x slope", "", false, "select(x < 0, slope * x, x)", ein__op_prelu},
    {"Elu", "x", "alpha=1", false, "select(x < 0, alpha * (exp(x) - 1), x)", NULL},
    {"Softplus", "x", "", false, "relu(x) + log(1 + exp(-abs(x)))", NULL},
    {"HardSigmoid", "x", "alpha=0.2 beta=0.5", false, "max(0, min(1, alpha * x + beta))", NULL},
    {"HardSwish", "x", "", false, "x * max(0, min(1, x / 6 + 0.5))", NULL},
    {"Gelu", "x", "approximate=none|tanh", false, NULL, ein__op_gelu},
    {"Clip", "x", "min? max?", false, NULL, ein__op_clip},
    {"Identity", "x", "", true, "x", ein__op_identity},

    {"MaxPool", "x", EIN__WINDOW "kernel_shape ceil_mode=0 storage_order=0!", false, NULL,
     ein__op_max_pool},
    {"AveragePool", "x", EIN__WINDOW "kernel_shape ceil_mode=0 count_include_pad=0", false, NULL,
     ein__op_average_pool},
    {"GlobalMaxPool", "x", "", false, "max({r#,}) x[{X#,}]", ein__op_global_pool},
    {"GlobalAveragePool", "x", "", false, "(sum({r#,}) x[{X#,}]) / N", ein__op_global_pool},
    {"ReduceMean", "x", EIN__REDUCE, false, "(sum({r#,}) x[{X#,}]) / N", ein__op_reduce},
    {"ReduceSum", "x", EIN__REDUCE, false, "sum({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceMax", "x", EIN__REDUCE, false, "max({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceMin", "x", EIN__REDUCE, false, "min({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceProd", "x", EIN__REDUCE, false, "prod({r#,}) x[{X#,}]", ein__op_reduce},
    {"ReduceSumSquare", "x", EIN__REDUCE, false, "sum({r#,}) square(x[{X#,}])", ein__op_reduce},
    {"ReduceL2", "x", EIN__REDUCE, false, "sqrt(sum({r#,}) square(x[{X#,}]))", ein__op_reduce},
    {"BatchNormalization", "x scale b mean var", "epsilon=1e-05 momentum=0.9 training_mode=0!",
     false, NULL, ein__op_batch_normalization},
    {"LayerNormalization", "x scale b?", "axis=-1 epsilon=1e-05 stash_type=1!", false, NULL,
     ein__op_layer_normalization},
    {"Softmax", "x", "axis=-1", false, "y[{i#,}] = exp(x[{i#,}] - m[{K#,}]) / s[{K#,}]",
     ein__op_softmax},
    {"LogSoftmax", "x", "axis=-1", false, "y[{i#,}] = x[{i#,}] - m[{K#,}] - log(s[{K#,}])",
     ein__op_softmax},

    {"Concat", "x...", "axis", true, NULL, ein__op_concat},
    {"Split", "x", "axis=0 split? num_outputs?", true, NULL, ein__op_split},
    {"Slice", "x", "starts ends axes? steps?", true, NULL, ein__op_slice},
    {"Pad", "x", "pads value=0 axes? mode=constant|!reflect|!edge|!wrap", true, NULL, ein__op_pad},
    {"Transpose", "x", "perm?", true, NULL, ein__op_transpose},
    {"Reshape", "x", "shape allowzero=0!", true, NULL, ein__op_reshape},
    {"Flatten", "x", "axis=1", true, NULL, ein__op_flatten},
    {"Squeeze", "x", "axes?", true, NULL, ein__op_squeeze},
    {"Unsqueeze", "x", "axes", true, NULL, ein__op_unsqueeze},
    {"Expand", "x", "shape", true, NULL, ein__op_expand_to},
    {"DepthToSpace", "x", "blocksize mode=DCR|CRD", true,
     "(h%B*B+w%B)*C+c,h/B,w/B;c*BB+h%B*B+w%B,h/B,w/B", ein__op_blocks},
    {"SpaceToDepth", "x", "blocksize mode=DCR|CRD", true,
     "c%C,h*B+c/C/B,w*B+c/C%B;c/BB,h*B+c/B%B,w*B+c%B", ein__op_blocks},
    {"Resize", "x",
     "scales? sizes? axes? mode=nearest|linear|!cubic "
     "nearest_mode=round_prefer_floor|round_prefer_ceil|floor|ceil "
     "coordinate_transformation_mode=half_pixel|pytorch_half_pixel|asymmetric|align_corners|"
     "!half_pixel_symmetric|!tf_crop_and_resize antialias=0! exclude_outside=0!",
     false, NULL, ein__op_resize},
};

enum { EIN__NOPS = sizeof ein__op_table / sizeof ein__op_table[0] };

// Name of an operator by number; NULL past the end.
EIN__FN const char *ein__op_name(int index) {
    return index >= 0 && index < EIN__NOPS ? ein__op_table[index].name : NULL;
}

static const ein__op_row *ein__op_row_of(const char *name) {
    for (int i = 0; i < EIN__NOPS; i++)
        if (!strcmp(ein__op_table[i].name, name)) return &ein__op_table[i];
    return NULL;
}

// Number and types of operands and results.
static bool ein__op_check_operands(ein__op *o) {
    const char *s = o->row->in, *token;
    size_t n;
    int most = 0, least = 0, nin = o->node->nin;
    while (ein__op_token(&s, &token, &n)) {
        bool many = n > 3 && token[n - 1] == '.', optional = token[n - 1] == '?';
        most += many ? EIN__MAX_ARGS : 1;
        least += !optional;
    }
    if (nin < least || nin > most)
        return ein__op_fail(o, NULL, "%d operands, expected %s", nin, o->row->in);
    if (o->node->nout < 1 || o->node->nout > EIN__MAX_ARGS ||
        (o->node->nout > 1 && o->row->make != ein__op_split))
        return ein__op_fail(o, NULL, "%d results, expected one", o->node->nout);
    const ein__tensor *first = ein__op_tensor(o, 0);
    for (int k = 0; k < nin; k++) {
        const ein__tensor *t = ein__op_tensor(o, k);
        if (!t && (k < least || most >= EIN__MAX_ARGS))
            return ein__op_fail(o, NULL, "operand %s is missing", ein__op_in_name(o, k));
        if (!t) continue;
        if (ein__elements(&t->shape) > EIN__MAX_ELEMENTS)
            return ein__op_fail(o, NULL, "%s has more than 2^40 elements", ein__op_in_name(o, k));
        if (!o->row->any && t->dtype != EIN__F32 && t->dtype != EIN__F16 && t->dtype != EIN__BF16)
            return ein__op_fail(o, NULL, "%s has type %s, expected f32, f16 or bf16",
                                ein__op_in_name(o, k), ein__dtype_name(t->dtype));
        if (t->dtype != first->dtype)
            return ein__op_fail(o, NULL, "%s has type %s, %s has %s", ein__op_in_name(o, 0),
                                ein__dtype_name(first->dtype), ein__op_in_name(o, k),
                                ein__dtype_name(t->dtype));
    }
    return true;
}

// Checks a use of an operator, fills shape and type per result; with `text`, puts the equations.
static bool ein__op_make(ein_ctx *ctx, const ein__node *node, ein__buf *text, ein__shape *shape,
                         ein__dtype *dtype) {
    ein__op o = {.ctx = ctx, .node = node, .text = text, .shape = shape, .dtype = dtype};
    o.row = ein__op_row_of(node->op);
    if (!o.row) {
        const char *best = NULL;
        int distance = 3;
        for (int i = 0; i < EIN__NOPS; i++)
            ein__suggest(node->op, ein__op_table[i].name, &best, &distance);
        ein__error(ctx, EIN_UNSUPPORTED, node->pos, "unknown operator '%s'%s%s%s", node->op,
                   best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
        return false;
    }
    if (!ein__op_check_operands(&o) || !ein__op_check_attrs(&o)) return false;
    return o.row->make ? o.row->make(&o) : ein__op_elementwise(&o);
}

// Fills one shape and type per result of an operator.
EIN__FN bool ein__op_infer(ein_ctx *ctx, ein__node *node, ein__shape *shape, ein__dtype *dtype) {
    return ein__op_make(ctx, node, NULL, shape, dtype);
}

// Puts an operator's meaning as equations of the language, one a line, in formal names: operands as
// in its row, results y or y0 y1 .., everything else a value of its own.
EIN__FN bool ein__op_equations(ein_ctx *ctx, const ein__node *node, ein__buf *text) {
    ein__shape shape[EIN__MAX_ARGS];
    ein__dtype dtype[EIN__MAX_ARGS];
    return ein__op_make(ctx, node, text, shape, dtype);
}

// Formal name of operand or result k.
EIN__FN const char *ein__op_formal(ein_ctx *ctx, const ein__node *node, bool output, int k) {
    if (output) return node->nout == 1 ? ein__name(ctx, "y") : ein__namef(ctx, "y%d", k);
    ein__op o = {.ctx = ctx, .node = node, .row = ein__op_row_of(node->op)};
    return o.row ? ein__op_in_name(&o, k) : ein__name(ctx, "");
}
/* ---- resolve.c ---- */
// Ranges of an equation's indices, from `where`, the declared result, or bare uses.

// One bound index: of the result (reduce == NULL) or of a reduction. It runs over [lo, hi).
typedef struct ein__bound {
    const ein__ast *reduce;
    const char *name;
    ein__pos pos;
    int64_t lo, hi;
    bool known;
} ein__bound;

typedef struct ein__ranges {
    ein__bound *bound;  // stb_ds array: result indices first, then reductions in text order
} ein__ranges;

// What a name that is read stands for: the extents and first indices of its dimensions.
typedef struct ein__operand {
    const char *name;
    ein__shape shape;
    int64_t lo[EIN__MAX_RANK];
    ein__val val;  // lowering only
} ein__operand;

static const ein__operand *ein__operand_find(const ein__operand *list, const char *name) {
    for (ptrdiff_t i = arrlen(list); i-- > 0;)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

// Value of an integer expression without names; false when it overflows or holds a name.
static bool ein__const_index(const ein__ast *a, int64_t *v) {
    int64_t l, r;
    switch (a->kind) {
    case EIN__A_NUM: *v = a->inum; return a->integral;
    case EIN__A_NEG: return ein__const_index(a->kid[0], &l) && !ein__mul_overflows(l, -1, v);
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_MOD: break;
    case EIN__A_NAME:
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_CMP:
    case EIN__A_GUARD:
    case EIN__A_REDUCE:
    case EIN__A_CALL:
    case EIN__A_READ:
    case EIN__A_GATHER:
    case EIN__A_IDX:
    default: return false;
    }
    if (!ein__const_index(a->kid[0], &l) || !ein__const_index(a->kid[1], &r)) return false;
    if (a->kind == EIN__A_ADD) return !ein__add_overflows(l, r, v);
    if (a->kind == EIN__A_SUB) return !__builtin_sub_overflow(l, r, v);
    if (a->kind == EIN__A_MUL) return !ein__mul_overflows(l, r, v);
    if (r <= 0) return false;
    *v = a->kind == EIN__A_DIV ? ein__floordiv(l, r) : ein__floormod(l, r);
    return true;
}

// The innermost binding of `name`: a reduction of the chain `inside`, else the result's index.
static ein__bound *ein__bound_find(ein__ranges *r, const ein__ast **inside, int depth,
                                   const char *name) {
    for (int d = depth; d-- > 0;)
        for (ptrdiff_t i = 0; i < arrlen(r->bound); i++)
            if (r->bound[i].reduce == inside[d] && !strcmp(r->bound[i].name, name))
                return &r->bound[i];
    for (ptrdiff_t i = 0; i < arrlen(r->bound); i++)
        if (!r->bound[i].reduce && !strcmp(r->bound[i].name, name)) return &r->bound[i];
    return NULL;
}

typedef struct ein__resolver {
    ein_ctx *ctx;
    const ein__equation *eq;
    const ein__operand *operand;
    ein__ranges *ranges;
    bool use_bare;  // second walk: bare uses fill what is unknown
    int depth;
    const ein__ast *inside[EIN__MAX_ITERS];
} ein__resolver;

static void ein__resolve_bare(ein__resolver *z, const ein__ast *sub, int64_t lo, int64_t n) {
    if (sub->kind != EIN__A_NAME) return;
    ein__bound *b = ein__bound_find(z->ranges, z->inside, z->depth, sub->name);
    if (!b || b->known) return;
    b->lo = lo;
    b->hi = lo + n;
    b->known = true;
}

static bool ein__resolve_walk(ein__resolver *z, const ein__ast *a);

static bool ein__resolve_reduce(ein__resolver *z, const ein__ast *a) {
    if (z->depth >= EIN__MAX_ITERS) {
        ein__error(z->ctx, EIN_RESOURCES, a->pos, "reductions are nested too deep");
        return false;
    }
    if (!z->use_bare) {
        for (int i = 0; i + 1 < a->nkid; i++) {
            const char *name = a->kid[i]->name;
            if (ein__bound_find(z->ranges, z->inside, z->depth, name)) {
                ein__error(z->ctx, EIN_BAD_INPUT, a->kid[i]->pos, "index '%s' is bound twice",
                           name);
                return false;
            }
            for (int j = 0; j < i; j++)
                if (!strcmp(a->kid[j]->name, name)) {
                    ein__error(z->ctx, EIN_BAD_INPUT, a->kid[i]->pos, "index '%s' is bound twice",
                               name);
                    return false;
                }
            ein__bound b = {a, name, a->kid[i]->pos, 0, 0, false};
            arrput(z->ranges->bound, b);
        }
    }
    z->inside[z->depth++] = a;
    bool ok = ein__resolve_walk(z, a->kid[a->nkid - 1]);
    z->depth--;
    return ok;
}

// First walk: collects the reductions' indices. Second: gives bare uses to those without a range.
static bool ein__resolve_walk(ein__resolver *z, const ein__ast *a) {
    if (a->kind == EIN__A_REDUCE) return ein__resolve_reduce(z, a);
    if (a->kind == EIN__A_READ) {
        const ein__operand *t = ein__operand_find(z->operand, a->name);
        if (!t) {
            ein__error(z->ctx, EIN_BAD_INPUT, a->pos, "undefined tensor '%s'", a->name);
            return false;
        }
        if (a->nkid != t->shape.rank) {
            ein__error(z->ctx, EIN_BAD_INPUT, a->pos, "'%s' has %d dimensions, %d subscripts given",
                       a->name, t->shape.rank, a->nkid);
            return false;
        }
        if (z->use_bare)
            for (int i = 0; i < a->nkid; i++)
                ein__resolve_bare(z, a->kid[i], t->lo[i], t->shape.d[i]);
    }
    for (int i = 0; i < a->nkid; i++)
        if (!ein__resolve_walk(z, a->kid[i])) return false;
    return true;
}

// `where` clauses; each must name an index of the equation.
static bool ein__resolve_where(ein__resolver *z) {
    for (int k = 0; k < z->eq->nrange; k++) {
        const ein__range *w = &z->eq->range[k];
        int64_t lo, hi;
        if (!ein__const_index(w->lo, &lo) || !ein__const_index(w->hi, &hi) || hi <= lo ||
            lo < -EIN__MAX_ELEMENTS || hi > EIN__MAX_ELEMENTS) {
            ein__error(z->ctx, EIN_BAD_INPUT, w->pos,
                       "range of index '%s' is empty or not a number", w->name);
            return false;
        }
        bool found = false;
        for (ptrdiff_t i = 0; i < arrlen(z->ranges->bound); i++) {
            ein__bound *b = &z->ranges->bound[i];
            if (strcmp(b->name, w->name)) continue;
            if (b->known && (b->lo != lo || b->hi != hi)) {
                ein__error(z->ctx, EIN_BAD_INPUT, w->pos,
                           "index '%s' has range %lld:%lld here and %lld:%lld elsewhere", w->name,
                           (long long)lo, (long long)hi, (long long)b->lo, (long long)b->hi);
                return false;
            }
            b->lo = lo;
            b->hi = hi;
            b->known = found = true;
        }
        if (!found) {
            ein__error(z->ctx, EIN_BAD_INPUT, w->pos, "'%s' is not an index of this equation",
                       w->name);
            return false;
        }
    }
    return true;
}

// Two bare uses of one index must agree when nothing else gives its range.
static bool ein__resolve_agree(ein__resolver *z, const ein__ast *a, const bool *fixed) {
    bool reduce = a->kind == EIN__A_REDUCE;
    if (reduce) z->inside[z->depth++] = a;
    bool ok = true;
    const ein__operand *t = a->kind == EIN__A_READ ? ein__operand_find(z->operand, a->name) : NULL;
    for (int i = 0; ok && i < a->nkid; i++) {
        const ein__ast *sub = a->kid[i];
        if (t && sub->kind == EIN__A_NAME) {
            ein__bound *b = ein__bound_find(z->ranges, z->inside, z->depth, sub->name);
            if (b && !fixed[b - z->ranges->bound] &&
                (b->lo != t->lo[i] || b->hi != t->lo[i] + t->shape.d[i])) {
                ein__error(z->ctx, EIN_BAD_INPUT, sub->pos,
                           "index '%s' runs over %lld:%lld here and %lld:%lld elsewhere: add "
                           "\"where %s in ...\"",
                           sub->name, (long long)t->lo[i], (long long)(t->lo[i] + t->shape.d[i]),
                           (long long)b->lo, (long long)b->hi, sub->name);
                ok = false;
            }
        }
        ok = ok && ein__resolve_agree(z, sub, fixed);
    }
    if (reduce) z->depth--;
    return ok;
}

static bool ein__resolve_known(ein__resolver *z) {
    for (ptrdiff_t i = 0; i < arrlen(z->ranges->bound); i++) {
        const ein__bound *b = &z->ranges->bound[i];
        if (b->known) continue;
        ein__error(z->ctx, EIN_BAD_INPUT, b->pos,
                   "range of index '%s' is not determined: add \"where %s in 0:N\"", b->name,
                   b->name);
        return false;
    }
    return true;
}

// Fills `ranges` for equation `eq` whose reads are `operand`s. `declared` is the result's shape
// when the model states it, else NULL. A `where` wins over bare uses (it may be smaller, or larger
// with `pad`); without one, all bare uses must agree.
EIN__FN bool ein__resolve(ein_ctx *ctx, const ein__equation *eq, const ein__operand *operand,
                          const ein__shape *declared, ein__ranges *ranges) {
    ein__resolver z = {.ctx = ctx, .eq = eq, .operand = operand, .ranges = ranges};
    for (int i = 0; i < eq->rank; i++) {
        for (int j = 0; j < i; j++)
            if (!strcmp(eq->index[i], eq->index[j])) {
                ein__error(ctx, EIN_BAD_INPUT, eq->index_pos[i], "index '%s' is bound twice",
                           eq->index[i]);
                return false;
            }
        ein__bound b = {NULL, eq->index[i], eq->index_pos[i], 0, 0, false};
        arrput(ranges->bound, b);
    }
    if (!ein__resolve_walk(&z, eq->body) || !ein__resolve_where(&z)) return false;
    if (declared && declared->rank == eq->rank)
        for (int i = 0; i < eq->rank; i++)
            if (!ranges->bound[i].known) {
                ranges->bound[i].hi = declared->d[i];
                ranges->bound[i].known = true;
            }
    bool *fixed = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ranges->bound); i++) arrput(fixed, ranges->bound[i].known);
    z.use_bare = true;
    bool ok = ein__resolve_walk(&z, eq->body) && ein__resolve_known(&z) &&
              ein__resolve_agree(&z, eq->body, fixed);
    arrfree(fixed);
    return ok;
}

// Operands of a graph node that is an equation, from its tensors.
static ein__operand *ein__node_operands(ein_ctx *ctx, const ein__node *node) {
    ein__operand *list = NULL;
    for (int i = 0; i < node->nin; i++) {
        const ein__tensor *t = &ctx->graph.tensor[node->in[i]];
        ein__operand o = {.name = node->in_name[i], .shape = t->shape};
        memcpy(o.lo, t->lo, sizeof o.lo);
        arrput(list, o);
    }
    return list;
}

// Shape and first indices of the result of an equation node.
EIN__FN bool ein__resolve_equation(ein_ctx *ctx, const ein__node *node, ein__shape *shape,
                                   int64_t *lo) {
    ein__ranges ranges = {0};
    ein__operand *operand = ein__node_operands(ctx, node);
    bool ok = ein__resolve(ctx, node->eq, operand, NULL, &ranges);
    shape->rank = node->eq->rank;
    for (int i = 0; ok && i < node->eq->rank; i++) {
        shape->d[i] = ranges.bound[i].hi - ranges.bound[i].lo;
        lo[i] = ranges.bound[i].lo;
    }
    arrfree(ranges.bound);
    arrfree(operand);
    return ok;
}
/* ---- env.c ---- */
// Dims, parameters and loop variables, and the values of expressions over them.

typedef struct ein__env {
    ein_ctx *ctx;
    struct {
        char *key;
        ein__ast *value;
    } * dims;  // sh map
    struct {
        char *key;
        int value;
    } * declared;      // sh map: every dim, those further down too
    ein__attr *local;  // stb_ds array: parameters of the block at hand, then loop variables;
    ptrdiff_t base;    //   those before `base` belong to its callers and are not seen
} ein__env;

static void ein__env_free(ein__env *env) {
    shfree(env->dims);
    shfree(env->declared);
    arrfree(env->local);
}

static void ein__env_push(ein__env *env, ein__ident name, ein__ast *value) {
    ein__attr local = {name.name, name.pos, value};
    arrput(env->local, local);
}

// What `name` stands for: a number, list, word or string; NULL when it is none of the constants.
static const ein__ast *ein__env_find(ein__env *env, const char *name) {
    for (ptrdiff_t i = arrlen(env->local); i-- > env->base;)
        if (env->local[i].name == name) return env->local[i].value;
    ptrdiff_t at = shgeti(env->dims, name);
    return at < 0 ? NULL : env->dims[at].value;
}

static void ein__env_suggest(ein__env *env, const char *name, const char **best, int *distance) {
    for (ptrdiff_t i = arrlen(env->local); i-- > env->base;)
        ein__suggest(name, env->local[i].name, best, distance);
    for (ptrdiff_t i = 0; i < shlen(env->dims); i++)
        ein__suggest(name, env->dims[i].key, best, distance);
}

static ein__ast *ein__env_undefined(ein__env *env, const ein__ast *a) {
    const char *best = NULL;
    int distance = 3;
    if (shgeti(env->declared, a->name) >= 0) {
        ein__error(env->ctx, EIN_BAD_INPUT, a->pos, "dim '%s' is defined further down", a->name);
        return NULL;
    }
    ein__env_suggest(env, a->name, &best, &distance);
    ein__error(env->ctx, EIN_BAD_INPUT, a->pos, "'%s' is not a dim, parameter or loop variable%s",
               a->name, ein__hint(env->ctx, best));
    return NULL;
}

static ein__ast *ein__env_int_node(ein_ctx *ctx, ein__pos pos, int64_t v) {
    ein__ast *a = EIN__NEW(&ctx->arena, ein__ast, 1);
    *a = (ein__ast){.kind = EIN__A_NUM, .pos = pos, .num = (double)v, .inum = v, .integral = true};
    return a;
}

static ein__ast *ein__env_real_node(ein_ctx *ctx, ein__pos pos, double v) {
    ein__ast *a = EIN__NEW(&ctx->arena, ein__ast, 1);
    *a = (ein__ast){.kind = EIN__A_NUM, .pos = pos, .num = v};
    return a;
}

static bool ein__env_int_op(ein__akind kind, int64_t l, int64_t r, int64_t *v) {
    if (kind == EIN__A_ADD) return !ein__add_overflows(l, r, v);
    if (kind == EIN__A_SUB) return !__builtin_sub_overflow(l, r, v);
    if (kind == EIN__A_MUL) return !ein__mul_overflows(l, r, v);
    *v = kind == EIN__A_DIV ? ein__floordiv(l, r) : ein__floormod(l, r);
    return true;
}

// l op r, both numbers: integers stay integers, and their division is floored.
static ein__ast *ein__env_binary(ein_ctx *ctx, const ein__ast *a, const ein__ast *l,
                                 const ein__ast *r) {
    bool divides = a->kind == EIN__A_DIV || a->kind == EIN__A_MOD;
    if (l->integral && r->integral) {
        int64_t v;
        if (divides && r->inum <= 0) {
            ein__error(ctx, EIN_BAD_INPUT, a->pos, "the divisor is %lld, not positive",
                       (long long)r->inum);
            return NULL;
        }
        if (ein__env_int_op(a->kind, l->inum, r->inum, &v))
            return ein__env_int_node(ctx, a->pos, v);
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "the value does not fit 64 bits");
        return NULL;
    }
    double x = l->num, y = r->num;
    double v = a->kind == EIN__A_ADD   ? x + y
               : a->kind == EIN__A_SUB ? x - y
               : a->kind == EIN__A_MUL ? x * y
                                       : x / y;
    if (a->kind == EIN__A_MOD) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "'%%' needs integers");
    } else if (!isfinite(v)) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "the value is not a finite number");
    } else {
        return ein__env_real_node(ctx, a->pos, v);
    }
    return NULL;
}

// -v; false for what is no number.
static ein__ast *ein__env_negate(ein_ctx *ctx, const ein__ast *a, const ein__ast *kid) {
    int64_t v;
    if (!kid->integral) return ein__env_real_node(ctx, a->pos, -kid->num);
    if (!ein__mul_overflows(kid->inum, -1, &v)) return ein__env_int_node(ctx, a->pos, v);
    ein__error(ctx, EIN_BAD_INPUT, a->pos, "the value does not fit 64 bits");
    return NULL;
}

static ein__ast *ein__env_copy(ein_ctx *ctx, const ein__ast *value, ein__pos pos) {
    ein__ast *copy = EIN__NEW(&ctx->arena, ein__ast, 1);
    *copy = *value;
    copy->pos = pos;
    return copy;
}

// The value of `a`: a number, a string, a list of values or, where `words` are allowed, a word that
// names no constant. NULL after a message.
static ein__ast *ein__env_value(ein__env *env, const ein__ast *a, bool words) {
    ein_ctx *ctx = env->ctx;
    if (a->kind == EIN__A_NUM || a->kind == EIN__A_STR) return ein__env_copy(ctx, a, a->pos);
    if (a->kind == EIN__A_NAME) {
        const ein__ast *value = ein__env_find(env, a->name);
        if (value) return ein__env_copy(ctx, value, a->pos);
        if (!strcmp(a->name, "inf")) return ein__env_real_node(ctx, a->pos, (double)INFINITY);
        return words ? ein__env_copy(ctx, a, a->pos) : ein__env_undefined(env, a);
    }
    bool list = a->kind == EIN__A_LIST;
    ein__ast **kid = EIN__NEW(&ctx->arena, ein__ast *, a->nkid + 1);
    for (int i = 0; i < a->nkid; i++) {
        kid[i] = ein__env_value(env, a->kid[i], words && list);
        if (!kid[i]) return NULL;
        if (list || kid[i]->kind == EIN__A_NUM) continue;
        ein__error(ctx, EIN_BAD_INPUT, a->kid[i]->pos, "a number is needed here");
        return NULL;
    }
    if (a->kind == EIN__A_NEG) return ein__env_negate(ctx, a, kid[0]);
    if (!list) return ein__env_binary(ctx, a, kid[0], kid[1]);
    ein__ast *copy = ein__env_copy(ctx, a, a->pos);
    copy->kid = kid;
    return copy;
}

static bool ein__env_int(ein__env *env, const ein__ast *a, int64_t *v) {
    const ein__ast *value = ein__env_value(env, a, false);
    if (!value) return false;
    if (value->kind != EIN__A_NUM || !value->integral) {
        ein__error(env->ctx, EIN_BAD_INPUT, a->pos, "an integer is needed here");
        return false;
    }
    *v = value->inum;
    return true;
}

// Sizes of a type as written in the model.
static bool ein__env_type(ein__env *env, const ein__type *type, ein__shape *shape) {
    shape->rank = type->rank;
    for (int i = 0; i < type->rank; i++) {
        if (!ein__env_int(env, type->dim[i], &shape->d[i])) return false;
        if (shape->d[i] < 1 || shape->d[i] > EIN__MAX_ELEMENTS) {
            ein__error(env->ctx, EIN_BAD_INPUT, type->dim[i]->pos,
                       "a size of %lld: sizes are 1 to "
                       "%lld",
                       (long long)shape->d[i], (long long)EIN__MAX_ELEMENTS);
            return false;
        }
    }
    if (ein__elements(shape) <= EIN__MAX_ELEMENTS) return true;
    ein__error(env->ctx, EIN_RESOURCES, type->pos, "the tensor has more than %lld elements",
               (long long)EIN__MAX_ELEMENTS);
    return false;
}

// ------------------------------------------------------------------------------------- dims

typedef struct ein__dim_def {
    ein__ident name;
    const ein__ast *value, *small;
} ein__dim_def;

// Values of all dims in the order of their definitions, into `env->dims`. With `small` the model's
// small values stand in for the dims they name, and the others follow by their expressions.
static bool ein__env_eval_dims(ein__env *env, const ein__dim_def *def, bool small) {
    shfree(env->dims);
    bool ok = true;
    for (ptrdiff_t i = 0; i < arrlen(def); i++) {
        ein_ctx *ctx = env->ctx;
        const ein__ast *a = small && def[i].small ? def[i].small : def[i].value;
        int64_t v = 0;
        bool given = false;
        for (ptrdiff_t k = 0; k < arrlen(ctx->dim_override); k++) {
            if (strcmp(ctx->dim_override[k].name, def[i].name.name)) continue;
            ctx->dim_override[k].used = given = true;
            v = ctx->dim_override[k].value;
        }
        bool good = given || ein__env_int(env, a, &v);
        if (good && (v < 0 || v > EIN__MAX_ELEMENTS)) {
            ein__error(ctx, EIN_BAD_INPUT, given ? def[i].name.pos : a->pos,
                       "dim '%s' is %lld: dims are 0 to %lld", def[i].name.name, (long long)v,
                       (long long)EIN__MAX_ELEMENTS);
            good = false;
        }
        ok = ok && good;
        shput(env->dims, def[i].name.name, ein__env_int_node(ctx, def[i].name.pos, good ? v : 1));
        if (small) {
            ctx->graph.dim[i].small = v;
        } else {
            ctx->graph.dim[i].value = v;
        }
    }
    return ok;
}

// Gathers `dim` and `small` statements; false after a message.
static bool ein__env_collect(ein__env *env, ein__dim_def **def) {
    ein_ctx *ctx = env->ctx;
    bool ok = true;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < ctx->tree->nstmt; i++) {
            const ein__stmt *s = ctx->tree->stmt[i];
            if (s->kind != (pass ? EIN__ST_SMALL : EIN__ST_DIM)) continue;
            for (int k = 0; k < s->nname; k++) {
                const char *name = s->name[k].name, *best = NULL;
                ptrdiff_t at = shgeti(env->declared, name);
                int known = at < 0 ? -1 : env->declared[at].value, distance = 3;
                if (known < 0 && pass) {
                    for (ptrdiff_t d = 0; d < arrlen(*def); d++)
                        ein__suggest(name, (*def)[d].name.name, &best, &distance);
                    ein__error(ctx, EIN_BAD_INPUT, s->name[k].pos, "there is no dim '%s'%s", name,
                               ein__hint(ctx, best));
                    ok = false;
                } else if (known >= 0 && (!pass || (*def)[known].small)) {
                    ein__error(ctx, EIN_BAD_INPUT, s->name[k].pos, "%s '%s' is given twice",
                               pass ? "the small value of" : "dim", name);
                    ok = false;
                } else if (pass) {
                    (*def)[known].small = s->value[k];
                } else {
                    ein__dim_def d = {s->name[k], s->value[k], NULL};
                    shput(env->declared, name, (int)arrlen(*def));
                    arrput(*def, d);
                }
            }
        }
    }
    return ok;
}

static bool ein__env_overrides(ein__env *env, const ein__dim_def *def) {
    ein_ctx *ctx = env->ctx;
    bool ok = true;
    for (ptrdiff_t k = 0; k < arrlen(ctx->dim_override); k++) {
        const char *name = ctx->dim_override[k].name, *best = NULL;
        int distance = 3;
        if (shgeti(env->declared, name) >= 0) continue;
        for (ptrdiff_t i = 0; i < arrlen(def); i++)
            ein__suggest(name, def[i].name.name, &best, &distance);
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "the model has no dim '%s'%s", name,
                   ein__hint(ctx, best));
        ok = false;
    }
    return ok;
}

// Fills ctx->graph.dim and env->dims. In the graph, `value` is the one in use and `small` the one
// in the small set, which equals the full one where the model names no small set.
static bool ein__env_dims(ein__env *env) {
    ein_ctx *ctx = env->ctx;
    ein__dim_def *def = NULL;
    bool ok = ein__env_collect(env, &def) && ein__env_overrides(env, def);
    for (ptrdiff_t i = 0; ok && i < arrlen(def); i++) {
        ptrdiff_t at = arraddnindex(ctx->graph.dim, 1);
        ctx->graph.dim[at].name = def[i].name.name;
        ctx->graph.dim[at].pos = def[i].name.pos;
        ctx->graph.dim[at].value = ctx->graph.dim[at].small = 0;
        ctx->graph.dim[at].has_small = def[i].small != NULL;
    }
    bool small = ctx->desc.small;
    ok = ok && ein__env_eval_dims(env, def, !small) && ein__env_eval_dims(env, def, small);
    for (ptrdiff_t i = 0; small && ok && i < arrlen(def); i++)
        ctx->graph.dim[i].value = ctx->graph.dim[i].small;
    arrfree(def);
    return ok;
}
/* ---- bind.c ---- */
// Names. A tensor's full name is the name as written, behind the result that its block was called
// for (`l1.a` owns `l1.a.k`) and before the numbers of the rounds it stands in (`w.0`, `w.0.1`). A
// name assigned in a round and visible before the repeat is carried: the next round and what
// follows the repeat see the new tensor. Every other name of a round ends with it. A name with dots
// may also be the full name, inside the block at hand, of a tensor made before.

// Tensor of a name whose statement was wrong: its uses stay silent.
enum { EIN__POISON = -1, EIN__MAX_OUTPUTS = 1000, EIN__MAX_BLOBS = 1000, EIN__MAX_SIZE = 2 << 20 };

typedef struct ein__binding {
    int tensor;
    int stamp;
} ein__binding;

// One call of a block, or the model itself.
typedef struct ein__frame {
    const char *prefix;      // full name of the first result called for; NULL for the model
    const ein__stmt *block;  // NULL for the model
    const char **left;       // full names of its results
    const char *rounds;      // ".0.1", or ""
    int stamp;               // of the round at hand: one assignment a round and name
    struct {
        char *key;
        ein__binding value;
    } * name;            // sh map: what is visible
    const char **fresh;  // stb_ds array: names that end with a round at hand
} ein__frame;

typedef struct ein__expander {
    ein_ctx *ctx;
    ein__env env;
    struct {
        char *key;
        int value;
    } * full;  // sh map: tensor by full name
    struct {
        char *key;
        int value;
    } * block;  // sh map: statement by block's name
    struct {
        char *key;
        ein__type *value;
    } * declared;  // sh map: types of outputs
    int current;   // blocks defined before this statement may be called
    int steps, stamps;
    int depth;     // block calls and repeats around this statement
    int64_t size;  // tokens of all statements expanded so far
} ein__expander;

// ------------------------------------------------------------------------------------- names

static const char *ein__full_name(ein__expander *x, const ein__frame *f, const char *name) {
    const char *base = name;
    bool result = false;
    for (int i = 0; f->block && i < f->block->nresult; i++)
        if (f->block->result[i].name == name) {
            base = f->left[i];
            result = true;
        }
    if (f->prefix && !result) return ein__namef(x->ctx, "%s.%s%s", f->prefix, name, f->rounds);
    return *f->rounds ? ein__namef(x->ctx, "%s%s", base, f->rounds) : base;
}

static void ein__bind(ein__frame *f, const char *name, int tensor) {
    ein__binding b = {tensor, f->stamp};
    if (*f->rounds && shgeti(f->name, name) < 0) arrput(f->fresh, name);
    shput(f->name, name, b);
}

static void ein__poison(ein__frame *f, const ein__ident *name, int n) {
    for (int i = 0; i < n; i++)
        if (shgeti(f->name, name[i].name) < 0) ein__bind(f, name[i].name, EIN__POISON);
}

// Whether `name` may be assigned here; the message says where it was before.
static bool ein__assignable(ein__expander *x, ein__frame *f, ein__ident name) {
    ein__binding *b = NULL;
    ptrdiff_t at = shgeti(f->name, name.name);
    if (at >= 0) b = &f->name[at].value;
    const char *full = ein__full_name(x, f, name.name);
    const ein__tensor *tensor = x->ctx->graph.tensor;
    if (b && b->stamp == f->stamp) {
        if (b->tensor != EIN__POISON)
            ein__error(x->ctx, EIN_BAD_INPUT, name.pos,
                       "'%s' is assigned twice: it is defined in "
                       "line %u",
                       name.name, (unsigned)tensor[b->tensor].pos.line);
        return false;
    }
    at = shgeti(x->full, full);
    if (at >= 0) {
        ein__error(x->ctx, EIN_BAD_INPUT, name.pos,
                   "a second tensor with the full name '%s': the "
                   "first is defined in line %u",
                   full, (unsigned)tensor[x->full[at].value].pos.line);
        return false;
    }
    if (strlen(full) <= EIN__MAX_NAME) return true;
    ein__error(x->ctx, EIN_RESOURCES, name.pos, "the full name of '%s' is longer than %d bytes",
               name.name, EIN__MAX_NAME);
    return false;
}

static int ein__add_tensor(ein__expander *x, ein__frame *f, ein__ident name, ein__tensor t) {
    int id = (int)arrlen(x->ctx->graph.tensor);
    t.name = ein__full_name(x, f, name.name);
    t.pos = name.pos;
    arrput(x->ctx->graph.tensor, t);
    shput(x->full, t.name, id);
    ein__bind(f, name.name, id);
    return id;
}

// Tensor that `name` means, or EIN__POISON; EIN__POISON - 1 after a message.
static int ein__look_up(ein__expander *x, ein__frame *f, const char *name, ein__pos pos) {
    ptrdiff_t at = shgeti(f->name, name);
    if (at >= 0) return f->name[at].value.tensor;
    if (strchr(name, '.')) {
        const char *full = f->prefix ? ein__namef(x->ctx, "%s.%s", f->prefix, name) : name;
        at = shgeti(x->full, full);
        if (at >= 0) return x->full[at].value;
    }
    const char *best = NULL;
    int distance = 3;
    for (ptrdiff_t i = 0; i < shlen(f->name); i++)
        ein__suggest(name, f->name[i].key, &best, &distance);
    ein__error(x->ctx, EIN_BAD_INPUT, pos, "undefined tensor '%s'%s", name,
               ein__hint(x->ctx, best));
    return EIN__POISON - 1;
}

// ------------------------------------------------------------------------------------- equations

// An equation being copied: constants become numbers, names of tensors are looked up.
typedef struct ein__eq_copy {
    ein__expander *x;
    ein__frame *f;
    const char **index;  // stb_ds array: indices in scope
    int *in;             // stb_ds arrays: tensors read and their names in the text
    const char **in_name;
    bool poisoned;
} ein__eq_copy;

static bool ein__eq_is_index(const ein__eq_copy *c, const char *name) {
    for (ptrdiff_t i = arrlen(c->index); i-- > 0;)
        if (c->index[i] == name) return true;
    return false;
}

static bool ein__eq_bind_index(ein__eq_copy *c, const char *name, ein__pos pos) {
    if (ein__env_find(&c->x->env, name)) {
        ein__error(c->x->ctx, EIN_BAD_INPUT, pos,
                   "index '%s' has the name of a dim, parameter or "
                   "loop variable",
                   name);
        return false;
    }
    arrput(c->index, name);
    return true;
}

static ein__ast *ein__eq_unknown_index(ein__eq_copy *c, const ein__ast *a) {
    const char *best = NULL;
    int distance = 3;
    for (ptrdiff_t i = 0; i < arrlen(c->index); i++)
        ein__suggest(a->name, c->index[i], &best, &distance);
    ein__env_suggest(&c->x->env, a->name, &best, &distance);
    ein__error(c->x->ctx, EIN_BAD_INPUT, a->pos, "'%s' is no index here and no dim%s", a->name,
               ein__hint(c->x->ctx, best));
    return NULL;
}

static ein__ast *ein__eq_name(ein__eq_copy *c, const ein__ast *a) {
    ein_ctx *ctx = c->x->ctx;
    if (ein__eq_is_index(c, a->name)) return ein__env_copy(ctx, a, a->pos);
    const ein__ast *value = ein__env_find(&c->x->env, a->name);
    if (!value) return ein__eq_unknown_index(c, a);
    if (value->kind == EIN__A_NUM && value->integral) return ein__env_copy(ctx, value, a->pos);
    ein__error(ctx, EIN_BAD_INPUT, a->pos, "'%s' is not an integer", a->name);
    return NULL;
}

// A subscript or a side of a guard: affine in the indices but for `/` and `%` by constants.
static ein__ast *ein__eq_subscript(ein__eq_copy *c, const ein__ast *a) {
    ein_ctx *ctx = c->x->ctx;
    if (a->kind == EIN__A_NUM) return ein__env_copy(ctx, a, a->pos);
    if (a->kind == EIN__A_NAME) return ein__eq_name(c, a);
    ein__ast **kid = EIN__NEW(&ctx->arena, ein__ast *, a->nkid);
    bool constant = true;
    for (int i = 0; i < a->nkid; i++) {
        kid[i] = ein__eq_subscript(c, a->kid[i]);
        if (!kid[i]) return NULL;
        constant = constant && kid[i]->kind == EIN__A_NUM;
    }
    if (constant)
        return a->kind == EIN__A_NEG ? ein__env_negate(ctx, a, kid[0])
                                     : ein__env_binary(ctx, a, kid[0], kid[1]);
    const char *why = NULL;
    if (a->kind == EIN__A_MUL && kid[0]->kind != EIN__A_NUM && kid[1]->kind != EIN__A_NUM)
        why = "a product of two indices is not affine";
    if ((a->kind == EIN__A_DIV || a->kind == EIN__A_MOD) &&
        (kid[1]->kind != EIN__A_NUM || kid[1]->inum <= 0))
        why = "an index is divided by positive constants only";
    if (why) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "%s", why);
        return NULL;
    }
    ein__ast *copy = ein__env_copy(ctx, a, a->pos);
    copy->kid = kid;
    return copy;
}

// Notes that the equation reads `name`.
static bool ein__eq_use(ein__eq_copy *c, const char *name, ein__pos pos) {
    for (ptrdiff_t i = 0; i < arrlen(c->in); i++)
        if (c->in_name[i] == name) return true;
    int tensor = ein__look_up(c->x, c->f, name, pos);
    if (tensor < EIN__POISON) return false;
    if (tensor == EIN__POISON) c->poisoned = true;
    if (arrlen(c->in) == EIN__MAX_ARGS) {
        ein__error(c->x->ctx, EIN_RESOURCES, pos, "an equation reads more than %d tensors",
                   EIN__MAX_ARGS);
        return false;
    }
    arrput(c->in, tensor);
    arrput(c->in_name, name);
    return true;
}

static ein__ast *ein__eq_expr(ein__eq_copy *c, const ein__ast *a);

// @i[..]: the tensor in the place of an index holds integers.
static ein__ast *ein__eq_gather(ein__eq_copy *c, const ein__ast *a) {
    ein__ast *read = ein__eq_expr(c, a->kid[0]);
    if (!read) return NULL;
    for (ptrdiff_t i = 0; i < arrlen(c->in); i++) {
        if (c->in_name[i] != read->name || c->in[i] == EIN__POISON) continue;
        ein__dtype dtype = c->x->ctx->graph.tensor[c->in[i]].dtype;
        if (dtype == EIN__I8 || dtype == EIN__I32 || dtype == EIN__I64) continue;
        ein__error(c->x->ctx, EIN_BAD_INPUT, a->pos, "'%s' is %s: '@' needs a tensor of integers",
                   read->name, ein__dtype_name(dtype));
        return NULL;
    }
    ein__ast *copy = ein__env_copy(c->x->ctx, a, a->pos);
    copy->kid = EIN__NEW(&c->x->ctx->arena, ein__ast *, 1);
    copy->kid[0] = read;
    return copy;
}

static ein__ast *ein__eq_expr(ein__eq_copy *c, const ein__ast *a) {
    ein_ctx *ctx = c->x->ctx;
    ptrdiff_t scope = arrlen(c->index);
    if (a->kind == EIN__A_READ && !ein__eq_use(c, a->name, a->pos)) return NULL;
    bool subscripts = a->kind == EIN__A_READ || a->kind == EIN__A_GUARD || a->kind == EIN__A_IDX;
    ein__ast *copy = ein__env_copy(ctx, a, a->pos);
    copy->kid = EIN__NEW(&ctx->arena, ein__ast *, a->nkid + 1);
    for (int i = 0; i < a->nkid; i++) {
        const ein__ast *kid = a->kid[i];
        if (a->kind == EIN__A_REDUCE && i + 1 < a->nkid) {
            if (!ein__eq_bind_index(c, kid->name, kid->pos)) return NULL;
            copy->kid[i] = ein__env_copy(ctx, kid, kid->pos);
        } else if (kid->kind == EIN__A_GATHER) {
            copy->kid[i] = ein__eq_gather(c, kid);
        } else if (a->kind == EIN__A_GUARD) {
            copy->kid[i] = ein__env_copy(ctx, kid, kid->pos);
            copy->kid[i]->kid = EIN__NEW(&ctx->arena, ein__ast *, 2);
            for (int k = 0; k < 2; k++)
                if (!(copy->kid[i]->kid[k] = ein__eq_subscript(c, kid->kid[k]))) return NULL;
        } else {
            copy->kid[i] = subscripts ? ein__eq_subscript(c, kid) : ein__eq_expr(c, kid);
        }
        if (!copy->kid[i]) return NULL;
    }
    arrsetlen(c->index, (size_t)scope);
    return copy;
}

static bool ein__eq_pad(ein__eq_copy *c, const ein__ast *a, ein__padval *pad) {
    ein_ctx *ctx = c->x->ctx;
    const char *best = NULL;
    int distance = 3;
    bool read = false;
    for (ptrdiff_t i = 0; i < arrlen(c->in); i++) {
        read = read || c->in_name[i] == pad->tensor;
        ein__suggest(pad->tensor, c->in_name[i], &best, &distance);
    }
    if (!read) {
        ein__error(ctx, EIN_BAD_INPUT, pad->pos, "'%s' is not read by this equation%s", pad->tensor,
                   ein__hint(ctx, best));
        return false;
    }
    const ein__ast *value = ein__env_value(&c->x->env, a, false);
    if (!value) return false;
    if (value->kind != EIN__A_NUM) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "padding is a number");
        return false;
    }
    pad->value = value->num;
    return true;
}

// A tensor that is read by two names has one padding.
static bool ein__eq_one_padding(ein__eq_copy *c, const ein__equation *eq) {
    int tensor[2 * EIN__MAX_ARGS];
    for (int i = 0; i < eq->npad; i++) {
        for (ptrdiff_t k = 0; k < arrlen(c->in); k++)
            if (c->in_name[k] == eq->pad[i].tensor) tensor[i] = c->in[k];
        for (int k = 0; k < i; k++) {
            if (tensor[k] != tensor[i] || eq->pad[k].value == eq->pad[i].value) continue;
            ein__error(c->x->ctx, EIN_BAD_INPUT, eq->pad[i].pos,
                       "'%s' and '%s' are one tensor, "
                       "with two paddings",
                       eq->pad[k].tensor, eq->pad[i].tensor);
            return false;
        }
    }
    return true;
}

// Adds the ranges that a declared type gives to the result's indices, where `where` says nothing.
static void ein__eq_declared(ein_ctx *ctx, ein__equation *eq, const ein__shape *declared) {
    int given = eq->nrange;
    for (int i = 0; declared && declared->rank == eq->rank && i < eq->rank; i++) {
        ein__range r = {.name = eq->index[i], .pos = eq->index_pos[i]};
        bool known = false;
        for (int k = 0; k < given; k++) known = known || eq->range[k].name == r.name;
        if (known) continue;
        r.lo = ein__env_int_node(ctx, r.pos, 0);
        r.hi = ein__env_int_node(ctx, r.pos, declared->d[i]);
        eq->range[eq->nrange++] = r;
    }
}

// The equation of statement `s` with all constants replaced; NULL after a message.
static ein__equation *ein__eq_copy_all(ein__eq_copy *c, const ein__stmt *s,
                                       const ein__shape *declared) {
    ein_ctx *ctx = c->x->ctx;
    ein__equation *eq = EIN__NEW(&ctx->arena, ein__equation, 1);
    *eq = *s->eq;
    eq->range = EIN__NEW(&ctx->arena, ein__range, eq->nrange + eq->rank + 1);
    eq->pad = EIN__NEW(&ctx->arena, ein__padval, eq->npad + 1);
    for (int i = 0; i < eq->rank; i++)
        if (!ein__eq_bind_index(c, eq->index[i], eq->index_pos[i])) return NULL;
    eq->body = ein__eq_expr(c, s->eq->body);
    if (!eq->body) return NULL;
    for (int i = 0; i < eq->nrange; i++) {
        const ein__range *from = &s->eq->range[i];
        int64_t lo, hi;
        if (!ein__env_int(&c->x->env, from->lo, &lo) || !ein__env_int(&c->x->env, from->hi, &hi))
            return NULL;
        eq->range[i] = *from;
        eq->range[i].lo = ein__env_int_node(ctx, from->lo->pos, lo);
        eq->range[i].hi = ein__env_int_node(ctx, from->hi->pos, hi);
    }
    ein__eq_declared(ctx, eq, declared);
    for (int i = 0; i < eq->npad; i++) {
        eq->pad[i] = s->eq->pad[i];
        if (!ein__eq_pad(c, s->pad[i], &eq->pad[i])) return NULL;
    }
    return ein__eq_one_padding(c, eq) ? eq : NULL;
}

static bool ein__too_large(ein__expander *x, ein__ident name, const ein__shape *shape) {
    for (int i = 0; i < shape->rank; i++)
        if (shape->d[i] < 1) {
            ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "'%s' has size %lld in dimension %d",
                       name.name, (long long)shape->d[i], i);
            return true;
        }
    if (ein__elements(shape) <= EIN__MAX_ELEMENTS) return false;
    ein__error(x->ctx, EIN_RESOURCES, name.pos, "'%s' has more than %lld elements", name.name,
               (long long)EIN__MAX_ELEMENTS);
    return true;
}

// The shape an output statement declares for tensor `name` of the model, or NULL.
static const ein__shape *ein__declared(ein__expander *x, const ein__frame *f, const char *name,
                                       ein__shape *shape) {
    ptrdiff_t at = f->block || *f->rounds ? -1 : shgeti(x->declared, name);
    ein__type *type = at < 0 ? NULL : x->declared[at].value;
    if (!type || type->bad) return NULL;
    type->bad = !ein__env_type(&x->env, type, shape);
    return type->bad ? NULL : shape;
}

static bool ein__expand_equation(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ein__eq_copy c = {.x = x, .f = f};
    ein__ident name = {s->eq->result, s->eq->pos};
    ein__node node = {.pos = s->pos, .nout = 1};
    ein__tensor t = {
        .kind = EIN__T_VALUE, .dtype = EIN__F32, .node = (int)arrlen(x->ctx->graph.node)};
    ein__shape shape;
    const ein__shape *declared = ein__declared(x, f, name.name, &shape);
    bool ok = (node.eq = ein__eq_copy_all(&c, s, declared)) != NULL;
    bool poisoned = c.poisoned;
    arrfree(c.index);
    EIN__KEEP(x, node.in, node.nin, c.in);
    EIN__KEEP(x, node.in_name, node.nin, c.in_name);
    ok = ok && ein__assignable(x, f, name);
    if (ok && !poisoned)
        ok = ein__resolve_equation(x->ctx, &node, &t.shape, t.lo) &&
             !ein__too_large(x, name, &t.shape);
    if (!ok || poisoned) {
        ein__poison(f, &name, 1);
        return ok;
    }
    node.out = EIN__NEW(&x->ctx->arena, int, 1);
    node.out[0] = ein__add_tensor(x, f, name, t);
    arrput(x->ctx->graph.node, node);
    return true;
}
/* ---- graph.c ---- */
// The syntax tree to a flat graph: blocks are called, repeats unrolled, dims are numbers. Names and
// equations are in bind.c.

// Attribute `name` of a seeded source as a number; `*v` keeps its default where it is not given.
static bool ein__source_number(ein__expander *x, const ein__stmt *s, const char *name,
                               bool integral, double *v, int64_t *i) {
    for (int k = 0; k < s->nattr; k++) {
        if (strcmp(s->attr[k].name, name)) continue;
        const ein__ast *a = ein__env_value(&x->env, s->attr[k].value, false);
        if (!a) return false;
        if (a->kind != EIN__A_NUM || (integral && !a->integral) || !(fabs(a->num) <= 3.4e38)) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->attr[k].value->pos, "%s is %s", name,
                       integral ? "an integer" : "a finite number");
            return false;
        }
        *v = a->num;
        *i = a->inum;
    }
    return true;
}

static bool ein__source_attrs_known(ein__expander *x, const ein__stmt *s,
                                    const char *const *known) {
    for (int i = 0; i < s->nattr; i++) {
        const char *best = NULL;
        int distance = 3;
        bool found = false;
        for (int k = 0; known[k]; k++) {
            found = found || !strcmp(known[k], s->attr[i].name);
            ein__suggest(s->attr[i].name, known[k], &best, &distance);
        }
        if (found) continue;
        ein__error(x->ctx, EIN_BAD_INPUT, s->attr[i].pos, "%s has no attribute '%s'%s",
                   s->call.name, s->attr[i].name, ein__hint(x->ctx, best));
        return false;
    }
    return true;
}

// Integers are drawn from lo..hi, both included, and those must be values of the type.
static bool ein__source_uniform(ein__expander *x, const ein__stmt *s, ein__tensor *t) {
    bool real = t->dtype == EIN__F32 || t->dtype == EIN__F16 || t->dtype == EIN__BF16;
    int64_t lo = 0, hi = 1;
    t->b = 1;
    if (!ein__source_number(x, s, "lo", !real, &t->a, &lo) ||
        !ein__source_number(x, s, "hi", !real, &t->b, &hi))
        return false;
    double limit = t->dtype == EIN__BOOL  ? 1
                   : t->dtype == EIN__I8  ? 127
                   : t->dtype == EIN__I32 ? 2147483647
                                          : 4503599627370496;
    bool fits = real || (t->b <= limit && t->a >= (t->dtype == EIN__BOOL ? 0 : -limit - 1));
    if (t->a <= t->b && fits) return true;
    ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos,
               fits ? "lo is above hi" : "lo or hi is no value of this tensor's type");
    return false;
}

static bool ein__source_blob(ein__expander *x, const ein__stmt *s, ein__tensor *t) {
    const char *best = NULL;
    int distance = 3;
    for (ptrdiff_t i = 0; i < arrlen(x->ctx->graph.blob); i++) {
        const char *name = x->ctx->graph.blob[i].name;
        if (name == s->call.name) {
            t->source = EIN__S_BLOB;
            t->blob = name;
            t->key = s->text;
            return true;
        }
        ein__suggest(s->call.name, name, &best, &distance);
    }
    ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos, "there is no blob '%s'%s", s->call.name,
               ein__hint(x->ctx, best));
    return false;
}

static bool ein__source(ein__expander *x, const ein__stmt *s, ein__tensor *t) {
    static const struct {
        const char *name;
        ein__skind kind;
        const char *known[4];
    } seeded[] = {{"zeros", EIN__S_ZEROS, {NULL}},
                  {"ones", EIN__S_ONES, {NULL}},
                  {"randn", EIN__S_RANDN, {"seed", "std", NULL}},
                  {"uniform", EIN__S_UNIFORM, {"seed", "lo", "hi", NULL}}};
    if (!s->call.name) return true;
    if (s->text && s->kind == EIN__ST_INPUT) {
        ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos, "an input cannot come from a blob");
        return false;
    }
    if (s->text) return ein__source_blob(x, s, t);
    const char *best = NULL;
    int distance = 3;
    double unused = 0;
    for (size_t i = 0; i < sizeof seeded / sizeof *seeded; i++) {
        ein__suggest(s->call.name, seeded[i].name, &best, &distance);
        if (strcmp(s->call.name, seeded[i].name)) continue;
        t->source = seeded[i].kind;
        t->seed = (int64_t)(ein__fnv(EIN__FNV_START, t->name, strlen(t->name)) % 2147483648u);
        if (!ein__source_attrs_known(x, s, seeded[i].known) ||
            !ein__source_number(x, s, "seed", true, &unused, &t->seed))
            return false;
        if (t->source == EIN__S_UNIFORM) return ein__source_uniform(x, s, t);
        if (t->source != EIN__S_RANDN) return true;
        int64_t none;
        t->a = 1;
        if (!ein__source_number(x, s, "std", false, &t->a, &none)) return false;
        if (t->a >= 0 && (t->dtype == EIN__F32 || t->dtype == EIN__F16 || t->dtype == EIN__BF16))
            return true;
        ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos,
                   t->a < 0 ? "std is negative" : "randn is for f32, f16 and bf16");
        return false;
    }
    ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos, "unknown source '%s'%s", s->call.name,
               ein__hint(x->ctx, best));
    return false;
}

static bool ein__expand_tensor(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    bool input = s->kind == EIN__ST_INPUT;
    ein__graph *g = &x->ctx->graph;
    ein__tensor t = {.kind = input ? EIN__T_INPUT : EIN__T_WEIGHT,
                     .dtype = s->type[0]->dtype,
                     .node = -1,
                     .name = ein__full_name(x, f, s->name[0].name)};
    if (!ein__assignable(x, f, s->name[0])) return false;
    if (!ein__env_type(&x->env, s->type[0], &t.shape) || !ein__source(x, s, &t)) {
        ein__poison(f, s->name, 1);
        return false;
    }
    int id = ein__add_tensor(x, f, s->name[0], t);
    if (input) {
        arrput(g->input, id);
    } else {
        arrput(g->weight, id);
    }
    return true;
}

// The file of weights lies in the model's directory or below it.
static bool ein__expand_blob(ein__expander *x, const ein__stmt *s) {
    ein__graph *g = &x->ctx->graph;
    const char *path = s->text;
    bool outside = !*path || *path == '/' || strchr(path, '\\') || strchr(path, ':');
    for (const char *p = path; *p && !outside; p += strcspn(p, "/"), p += *p == '/')
        outside = !strncmp(p, "..", 2) && (p[2] == '/' || !p[2]);
    for (const char *p = path; *p; p++) outside |= (unsigned char)*p < 32 || *p == 127;
    if (outside) {
        ein__error(x->ctx, EIN_BAD_INPUT, s->pos,
                   "the file of blob '%s' is not a relative path "
                   "without '..'",
                   s->name[0].name);
        return false;
    }
    for (ptrdiff_t i = 0; i < arrlen(g->blob); i++)
        if (g->blob[i].name == s->name[0].name) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->name[0].pos, "blob '%s' is given twice",
                       s->name[0].name);
            return false;
        }
    if (arrlen(g->blob) == EIN__MAX_BLOBS) {
        ein__error(x->ctx, EIN_RESOURCES, s->pos, "more than %d blobs", EIN__MAX_BLOBS);
        return false;
    }
    ptrdiff_t at = arraddnindex(g->blob, 1);
    g->blob[at].name = s->name[0].name;
    g->blob[at].path = path;
    g->blob[at].pos = s->name[0].pos;
    return true;
}

// ------------------------------------------------------------------------------------- operators

static bool ein__expand_body(ein__expander *x, ein__frame *f, ein__stmt *const *stmt, int n);

static bool ein__operator_node(ein__expander *x, ein__frame *f, const ein__stmt *s, ein__node *node,
                               bool *poisoned) {
    ein_ctx *ctx = x->ctx;
    *node = (ein__node){
        .op = s->call.name, .pos = s->pos, .nin = s->narg, .nout = s->nname, .nattr = s->nattr};
    node->in = EIN__NEW(&ctx->arena, int, s->narg + 1);
    node->attr = EIN__NEW(&ctx->arena, ein__attr, s->nattr + 1);
    *poisoned = false;
    for (int i = 0; i < s->narg; i++) {
        node->in[i] = -1;
        if (!s->arg[i].name) continue;
        node->in[i] = ein__look_up(x, f, s->arg[i].name, s->arg[i].pos);
        if (node->in[i] < EIN__POISON) return false;
        *poisoned = *poisoned || node->in[i] == EIN__POISON;
    }
    for (int i = 0; i < s->nattr; i++) {
        node->attr[i] = s->attr[i];
        node->attr[i].value = ein__env_value(&x->env, s->attr[i].value, true);
        if (!node->attr[i].value) return false;
    }
    return true;
}

static bool ein__results_assignable(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    for (int i = 0; i < s->nname; i++) {
        if (!ein__assignable(x, f, s->name[i])) return false;
        for (int k = 0; k < i; k++)
            if (s->name[k].name == s->name[i].name) {
                ein__error(x->ctx, EIN_BAD_INPUT, s->name[i].pos, "'%s' is assigned twice",
                           s->name[i].name);
                return false;
            }
    }
    return true;
}

static bool ein__expand_operator(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ein_ctx *ctx = x->ctx;
    ein__node node;
    ein__shape shape[EIN__MAX_ARGS] = {{0, {0}}};
    ein__dtype dtype[EIN__MAX_ARGS] = {EIN__F32};
    bool poisoned = false;
    bool ok = ein__results_assignable(x, f, s) && ein__operator_node(x, f, s, &node, &poisoned);
    if (ok && !poisoned) {
        node.out = EIN__NEW(&ctx->arena, int, node.nout);
        ok = ein__op_infer(ctx, &node, shape, dtype);
        for (int i = 0; ok && i < node.nout; i++) ok = !ein__too_large(x, s->name[i], &shape[i]);
    }
    if (!ok || poisoned) {
        ein__poison(f, s->name, s->nname);
        return ok;
    }
    for (int i = 0; i < node.nout; i++) {
        ein__tensor t = {.kind = EIN__T_VALUE,
                         .dtype = dtype[i],
                         .shape = shape[i],
                         .node = (int)arrlen(ctx->graph.node)};
        node.out[i] = ein__add_tensor(x, f, s->name[i], t);
    }
    arrput(ctx->graph.node, node);
    return true;
}

// Pushes the parameters of a call: given ones are evaluated where the call stands, defaults among
// the dims and the parameters before them.
static bool ein__call_params(ein__expander *x, const ein__stmt *s, const ein__stmt *block,
                             ptrdiff_t base) {
    ein_ctx *ctx = x->ctx;
    ein__ast **given = EIN__NEW(&ctx->arena, ein__ast *, block->nattr + 1);
    for (int i = 0; i < s->nattr; i++) {
        const char *best = NULL;
        int distance = 3, at = -1;
        for (int k = 0; k < block->nattr; k++) {
            if (block->attr[k].name == s->attr[i].name) at = k;
            ein__suggest(s->attr[i].name, block->attr[k].name, &best, &distance);
        }
        if (at < 0) {
            ein__error(ctx, EIN_BAD_INPUT, s->attr[i].pos, "block '%s' has no parameter '%s'%s",
                       s->call.name, s->attr[i].name, ein__hint(ctx, best));
            return false;
        }
        given[at] = ein__env_value(&x->env, s->attr[i].value, true);
        if (!given[at]) return false;
    }
    x->env.base = base;
    for (int k = 0; k < block->nattr; k++) {
        ein__ident name = {block->attr[k].name, block->attr[k].pos};
        if (!given[k] && !block->attr[k].value) {
            ein__error(ctx, EIN_BAD_INPUT, s->pos, "block '%s' needs parameter '%s'", s->call.name,
                       name.name);
            return false;
        }
        if (!given[k]) given[k] = ein__env_value(&x->env, block->attr[k].value, true);
        if (!given[k]) return false;
        ein__env_push(&x->env, name, given[k]);
    }
    return true;
}

static bool ein__call_inputs(ein__expander *x, ein__frame *f, const ein__stmt *s,
                             const ein__stmt *block, ein__frame *inner, bool *poisoned) {
    ein_ctx *ctx = x->ctx;
    *poisoned = false;
    if (s->narg != block->narg || s->nname != block->nresult) {
        bool in = s->narg != block->narg;
        int n = in ? block->narg : block->nresult;
        ein__error(ctx, EIN_BAD_INPUT, s->pos, "block '%s' has %d %s%s, %d given", s->call.name, n,
                   in ? "input" : "result", n == 1 ? "" : "s", in ? s->narg : s->nname);
        return false;
    }
    for (int i = 0; i < s->narg; i++) {
        if (!s->arg[i].name) {
            ein__error(ctx, EIN_BAD_INPUT, s->arg[i].pos, "an input of a block cannot be omitted");
            return false;
        }
        int tensor = ein__look_up(x, f, s->arg[i].name, s->arg[i].pos);
        if (tensor < EIN__POISON) return false;
        *poisoned = *poisoned || tensor == EIN__POISON;
        ein__bind(inner, block->arg[i].name, tensor);
    }
    return true;
}

// Runs the body in a frame of its own; its results get the names on the call's left side.
static bool ein__call_block(ein__expander *x, ein__frame *f, const ein__stmt *s, int at) {
    ein_ctx *ctx = x->ctx;
    const ein__stmt *block = ctx->tree->stmt[at];
    ein__frame inner = {.block = block, .rounds = "", .stamp = ++x->stamps};
    bool poisoned = false;
    if (!ein__results_assignable(x, f, s)) {
        ein__poison(f, s->name, s->nname);
        return false;
    }
    inner.left = EIN__NEW(&ctx->arena, const char *, block->nresult + s->nname);
    for (int i = 0; i < s->nname; i++) inner.left[i] = ein__full_name(x, f, s->name[i].name);
    inner.prefix = inner.left[0];
    ptrdiff_t base = x->env.base, locals = arrlen(x->env.local);
    int current = x->current;
    bool ok = ein__call_inputs(x, f, s, block, &inner, &poisoned) &&
              ein__call_params(x, s, block, locals);
    if (ok && !poisoned) {
        int depth = x->depth;
        x->current = at;
        x->size += block->size;
        ok = ein__expand_body(x, &inner, block->body, block->nbody);
        x->depth = depth;
        if (!ok) ein__error(ctx, EIN_BAD_INPUT, s->pos, "in block '%s', called here", s->call.name);
    }
    x->current = current;
    x->env.base = base;
    arrsetlen(x->env.local, (size_t)locals);
    for (int i = 0; ok && !poisoned && i < s->nname; i++) {
        ptrdiff_t k = shgeti(inner.name, block->result[i].name);
        if (k >= 0) {
            ein__bind(f, s->name[i].name, inner.name[k].value.tensor);
            continue;
        }
        ein__error(ctx, EIN_BAD_INPUT, block->result[i].pos,
                   "block '%s' never assigns its result "
                   "'%s'",
                   s->call.name, block->result[i].name);
        ok = false;
    }
    if (!ok || poisoned) ein__poison(f, s->name, s->nname);
    shfree(inner.name);
    arrfree(inner.fresh);
    return ok;
}

static bool ein__expand_call(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ptrdiff_t i = shgeti(x->block, s->call.name);
    if (i < 0) return ein__expand_operator(x, f, s);
    int at = x->block[i].value;
    if (at < x->current) return ein__call_block(x, f, s, at);
    ein__error(x->ctx, EIN_BAD_INPUT, s->pos,
               "block '%s' is defined further down: a block is "
               "called below its definition",
               s->call.name);
    ein__poison(f, s->name, s->nname);
    return false;
}

// ------------------------------------------------------------------------------------- repeats

static bool ein__repeat_range(ein__expander *x, const ein__stmt *s, int64_t *lo, int64_t *hi) {
    ein_ctx *ctx = x->ctx;
    if (!ein__env_int(&x->env, s->value[0], lo) || !ein__env_int(&x->env, s->value[1], hi))
        return false;
    if (ein__env_find(&x->env, s->name[0].name)) {
        ein__error(ctx, EIN_BAD_INPUT, s->name[0].pos,
                   "'%s' is a dim, parameter or loop variable "
                   "already",
                   s->name[0].name);
        return false;
    }
    if (*lo < 0 || *hi < *lo) {
        ein__error(ctx, EIN_BAD_INPUT, s->value[0]->pos,
                   "rounds %lld:%lld: they count up from 0 "
                   "or more",
                   (long long)*lo, (long long)*hi);
        return false;
    }
    int64_t rounds = *hi - *lo, each = s->nbody + 1;
    if (rounds <= (EIN__MAX_NODES - x->steps) / each) return true;
    ein__error(ctx, EIN_RESOURCES, s->pos,
               "%lld rounds: the model expands to more than %d "
               "statements",
               (long long)rounds, EIN__MAX_NODES);
    return false;
}

static bool ein__expand_repeat(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    int64_t lo, hi;
    if (!ein__repeat_range(x, s, &lo, &hi)) return false;
    const char *rounds = f->rounds;
    int stamp = f->stamp;
    ptrdiff_t fresh = arrlen(f->fresh), locals = arrlen(x->env.local);
    bool ok = true;
    for (int64_t i = lo; i < hi && ok; i++) {
        x->steps++;
        f->rounds = ein__namef(x->ctx, "%s.%lld", rounds, (long long)i);
        f->stamp = ++x->stamps;
        ein__env_push(&x->env, s->name[0], ein__env_int_node(x->ctx, s->name[0].pos, i));
        ok = ein__expand_body(x, f, s->body, s->nbody);
        arrsetlen(x->env.local, (size_t)locals);
        while (arrlen(f->fresh) > fresh) {
            const char *name = arrpop(f->fresh);
            (void)shdel(f->name, name);
        }
    }
    f->rounds = rounds;
    f->stamp = stamp;
    return ok;
}

// ------------------------------------------------------------------------------------- the model

static bool ein__expand_statement(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ein_ctx *ctx = x->ctx;
    x->size += s->size;
    if (++x->steps > EIN__MAX_NODES || x->size > EIN__MAX_SIZE) {
        bool steps = x->steps > EIN__MAX_NODES;
        x->steps = EIN__MAX_NODES + 1;
        ein__error(ctx, EIN_RESOURCES, s->pos, "the model expands to more than %d %s",
                   steps ? EIN__MAX_NODES : (int)EIN__MAX_SIZE, steps ? "statements" : "words");
        return false;
    }
    switch (s->kind) {
    case EIN__ST_OPERATOR: return ein__expand_call(x, f, s);
    case EIN__ST_EQUATION: return ein__expand_equation(x, f, s);
    case EIN__ST_WEIGHT: return ein__expand_tensor(x, f, s);
    case EIN__ST_REPEAT: return ein__expand_repeat(x, f, s);
    case EIN__ST_INPUT:
    case EIN__ST_MODEL:
    case EIN__ST_BLOCK:
    case EIN__ST_BLOB:
    case EIN__ST_EIN:
    case EIN__ST_DIM:
    case EIN__ST_SMALL:
    case EIN__ST_OUTPUT:
    default: break;
    }
    if (f->block || *f->rounds) {
        ein__error(ctx, EIN_BAD_INPUT, s->pos, "'%s' stands outside of blocks and repeats",
                   ein__keyword[s->kind]);
        return false;
    }
    if (s->kind == EIN__ST_INPUT) return ein__expand_tensor(x, f, s);
    if (s->kind == EIN__ST_MODEL && ctx->graph.model) {
        ein__error(ctx, EIN_BAD_INPUT, s->pos, "the model has a name already");
        return false;
    }
    if (s->kind == EIN__ST_MODEL) ctx->graph.model = s->name[0].name;
    return true;
}

// A body's first mistake is its last: the next round or call would only say it again.
static bool ein__expand_body(ein__expander *x, ein__frame *f, ein__stmt *const *stmt, int n) {
    if (n && ++x->depth > EIN__MAX_DEPTH) {
        ein__error(x->ctx, EIN_RESOURCES, stmt[0]->pos, "blocks and repeats are nested too deep");
        return false;
    }
    for (int i = 0; i < n; i++)
        if (!ein__expand_statement(x, f, stmt[i])) return false;
    x->depth -= n > 0;
    return true;
}

// Blobs and outputs may stand anywhere; of blocks the place is kept, since a block calls only those
// above it.
static bool ein__expand_prepare(ein__expander *x) {
    bool ok = true;
    for (int i = 0; i < x->ctx->tree->nstmt; i++) {
        const ein__stmt *s = x->ctx->tree->stmt[i];
        if (s->kind == EIN__ST_BLOB) ok = ein__expand_blob(x, s) && ok;
        for (int k = 0; s->kind == EIN__ST_OUTPUT && k < s->nname; k++)
            if (s->type[k]) shput(x->declared, s->name[k].name, s->type[k]);
        if (s->kind != EIN__ST_BLOCK) continue;
        if (shgeti(x->block, s->name[0].name) >= 0) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->name[0].pos, "block '%s' is defined twice",
                       s->name[0].name);
            ok = false;
        }
        shput(x->block, s->name[0].name, i);
    }
    return ok;
}

static bool ein__same_shape(const ein__shape *a, const ein__shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->d[i] != b->d[i]) return false;
    return true;
}

static void ein__put_type(ein__buf *b, ein__dtype dtype, const ein__shape *shape) {
    ein__put(b, ein__dtype_name(dtype));
    for (int i = 0; i < shape->rank; i++)
        ein__putf(b, "%c%lld", i ? ',' : '[', (long long)shape->d[i]);
    ein__put(b, shape->rank ? "]" : "[]");
}

static bool ein__output_type(ein__expander *x, ein__ident name, const ein__type *type,
                             const ein__tensor *t) {
    ein__shape shape;
    if (type->bad || !ein__env_type(&x->env, type, &shape)) return false;
    if (type->dtype == t->dtype && ein__same_shape(&shape, &t->shape)) return true;
    ein__buf is = {0}, said = {0};
    ein__put_type(&is, t->dtype, &t->shape);
    ein__put_type(&said, type->dtype, &shape);
    ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "output '%s' is %s, not %s", name.name, is.s,
               said.s);
    ein__buf_free(&is);
    ein__buf_free(&said);
    return false;
}

static bool ein__expand_output(ein__expander *x, ein__frame *f, ein__ident name,
                               const ein__type *type) {
    ein__graph *g = &x->ctx->graph;
    int tensor = ein__look_up(x, f, name.name, name.pos);
    if (tensor < 0) return tensor == EIN__POISON;
    const ein__tensor *t = &g->tensor[tensor];
    if (t->kind != EIN__T_VALUE) {
        ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "output '%s' is %s: write y = Identity(%s)",
                   name.name, t->kind == EIN__T_INPUT ? "an input" : "a weight", name.name);
        return false;
    }
    for (ptrdiff_t i = 0; i < arrlen(g->output); i++)
        if (g->output[i].name == name.name || g->output[i].tensor == tensor) {
            ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "output '%s' is given twice", name.name);
            return false;
        }
    if (type && !ein__output_type(x, name, type, t)) return false;
    ein__output o = {name.name, tensor, name.pos};
    arrput(g->output, o);
    return true;
}

static void ein__expand_outputs(ein__expander *x, ein__frame *f) {
    ein_ctx *ctx = x->ctx;
    bool any = false;
    for (int i = 0; i < ctx->tree->nstmt; i++) {
        const ein__stmt *s = ctx->tree->stmt[i];
        if (s->kind != EIN__ST_OUTPUT) continue;
        any = true;
        if (arrlen(ctx->graph.output) + s->nname > EIN__MAX_OUTPUTS) {
            ein__error(ctx, EIN_RESOURCES, s->pos, "more than %d outputs", EIN__MAX_OUTPUTS);
            return;
        }
        for (int k = 0; k < s->nname; k++) ein__expand_output(x, f, s->name[k], s->type[k]);
    }
    if (!any) ein__error(ctx, EIN_BAD_INPUT, (ein__pos){1, 1}, "the model has no output");
}

// A model without a name is called after its file.
static const char *ein__model_name(ein_ctx *ctx) {
    const char *file = ctx->file ? ctx->file : "", *stem = file;
    for (const char *p = file; *p; p++)
        if (*p == '/' || *p == '\\') stem = p + 1;
    const char *dot = strrchr(stem, '.');
    size_t n = dot && dot > stem ? (size_t)(dot - stem) : strlen(stem);
    ein__buf b = {0};
    for (size_t i = 0; i < n && i < EIN__MAX_NAME; i++)
        ein__putf(&b, "%c", ein__is_alnum(stem[i]) ? stem[i] : '_');
    const char *name = ein__name(ctx, b.n && strspn(b.s, "_") < b.n ? b.s : "model");
    ein__buf_free(&b);
    return name;
}

// Fills ctx->graph from ctx->tree. Statements of the model go on after a mistake in one of them;
// whatever reads its result stays silent.
EIN__FN bool ein__expand(ein_ctx *ctx) {
    ein__expander x = {.ctx = ctx, .env = {.ctx = ctx}};
    ein__frame f = {.rounds = ""};
    bool go = ein__env_dims(&x.env);
    go = ein__expand_prepare(&x) && go;
    for (int i = 0; go && i < ctx->tree->nstmt; i++) {
        const ein__stmt *s = ctx->tree->stmt[i];
        x.current = i;
        bool ok = ein__expand_statement(&x, &f, s);
        go = ctx->nerror <= EIN__MAX_ERRORS && (ok || s->kind != EIN__ST_REPEAT) &&
             x.steps <= EIN__MAX_NODES;
    }
    if (go) ein__expand_outputs(&x, &f);
    if (!ctx->graph.model) ctx->graph.model = ein__model_name(ctx);
    if (!ctx->status) {
        ein__buf text = {0};
        ein__format(ctx, &text, false);
        ctx->graph.hash = ein__fnv(EIN__FNV_START, text.s, text.n);
        ein__buf_free(&text);
    }
    shfree(f.name);
    arrfree(f.fresh);
    shfree(x.full);
    shfree(x.block);
    shfree(x.declared);
    ein__env_free(&x.env);
    return !ctx->status;
}
/* ---- graph_json.c ---- */
// The flat graph as JSON for other tools. Schema, version 1:
//
//   einnet_graph 1, model, hash (16 hex digits of the canonical form)
//   dims     [{name, value, small}]
//   inputs   [{name, dtype, shape, source?}]
//   outputs  [{name, tensor, dtype, shape}]    name: as published, tensor: the one behind it
//   weights  [{name, dtype, shape, source}]    source: {kind: none|zeros|ones},
//            {kind: randn, seed, std}, {kind: uniform, seed, lo, hi}, {kind: blob, file, key}
//   nodes    in an order where operands come first; line: in the model's text
//            {line, op, inputs: [name or null], outputs: [{name, dtype, shape}], attributes}
//            {line, equation, inputs, outputs, ranges: [{index, lo, hi}], pads: {tensor: value}}
//
// Names are full names, in an equation's text too; its ranges list the result's indices, then those
// of reductions as they stand in the text. Infinite numbers are the strings "inf" and "-inf".

// ASCII: everything else is escaped, above U+FFFF as a surrogate pair.
EIN__FN void ein__json_string(ein__buf *b, const char *s) {
    const char *end = s + strlen(s);
    ein__put(b, "\"");
    while (s < end) {
        uint32_t code = '?';
        int n = ein__utf8(s, end, &code);
        s += n ? n : 1;
        if (code == '"' || code == '\\') ein__putf(b, "\\%c", (int)code);
        else if (code >= 32 && code < 127) ein__putf(b, "%c", (int)code);
        else if (code < 0x10000) ein__putf(b, "\\u%04x", (unsigned)code);
        else
            ein__putf(b, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                      (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
    }
    ein__put(b, "\"");
}

static void ein__json_key(ein__buf *b, const char *key, const char *value) {
    ein__putf(b, ", \"%s\": ", key);
    ein__json_string(b, value);
}

static void ein__json_real(ein__buf *b, double v) {
    if (isinf(v)) ein__put(b, v < 0 ? "\"-inf\"" : "\"inf\"");
    else ein__put_real(b, v);
}

static void ein__json_type(ein__buf *b, const ein__tensor *t) {
    ein__putf(b, ", \"dtype\": \"%s\", \"shape\": [", ein__dtype_name(t->dtype));
    for (int i = 0; i < t->shape.rank; i++)
        ein__putf(b, "%s%lld", i ? ", " : "", (long long)t->shape.d[i]);
    ein__put(b, "]");
}

static void ein__json_value(ein__buf *b, const ein__ast *a) {
    if (a->kind == EIN__A_NUM && a->integral) {
        ein__putf(b, "%lld", (long long)a->inum);
    } else if (a->kind == EIN__A_NUM) {
        ein__json_real(b, a->num);
    } else if (a->kind == EIN__A_LIST) {
        ein__put(b, "[");
        for (int i = 0; i < a->nkid; i++) {
            if (i) ein__put(b, ", ");
            ein__json_value(b, a->kid[i]);
        }
        ein__put(b, "]");
    } else {
        ein__json_string(b, a->name);
    }
}

static void ein__json_source(ein_ctx *ctx, ein__buf *b, const ein__tensor *t) {
    // ORDER ein__skind
    static const char *const kind[] = {"none", "blob", "zeros", "ones", "randn", "uniform"};
    ein__putf(b, ", \"source\": {\"kind\": \"%s\"", kind[t->source]);
    if (t->source == EIN__S_BLOB) {
        for (ptrdiff_t i = 0; i < arrlen(ctx->graph.blob); i++)
            if (ctx->graph.blob[i].name == t->blob)
                ein__json_key(b, "file", ctx->graph.blob[i].path);
        ein__json_key(b, "key", t->key);
    }
    bool randn = t->source == EIN__S_RANDN;
    if (randn || t->source == EIN__S_UNIFORM) {
        ein__putf(b, ", \"seed\": %lld, \"%s\": ", (long long)t->seed, randn ? "std" : "lo");
        ein__put_real(b, t->a);
    }
    if (t->source == EIN__S_UNIFORM) {
        ein__put(b, ", \"hi\": ");
        ein__put_real(b, t->b);
    }
    ein__put(b, "}");
}

// Begins entry `i` of a list that stands one entry a line.
static void ein__json_entry(ein__buf *b, ptrdiff_t i) { ein__put(b, i ? ",\n    " : "\n    "); }

static void ein__json_open(ein__buf *b, const char *key) { ein__putf(b, ",\n  \"%s\": [", key); }

static void ein__json_close(ein__buf *b, ptrdiff_t n) { ein__put(b, n ? "\n  ]" : "]"); }

static void ein__json_tensors(ein_ctx *ctx, ein__buf *b, const char *key, const int *list) {
    ein__json_open(b, key);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__tensor *t = &ctx->graph.tensor[list[i]];
        ein__json_entry(b, i);
        ein__put(b, "{\"name\": ");
        ein__json_string(b, t->name);
        ein__json_type(b, t);
        if (t->kind == EIN__T_WEIGHT || t->source != EIN__S_NONE) ein__json_source(ctx, b, t);
        ein__put(b, "}");
    }
    ein__json_close(b, arrlen(list));
}

// ------------------------------------------------------------------------------------- nodes

typedef struct ein__json_names {
    const ein_ctx *ctx;
    const ein__node *node;
} ein__json_names;

// The full name of what an equation calls `name`.
static const char *ein__json_rename(void *user, const char *name) {
    const ein__json_names *n = user;
    for (int i = 0; i < n->node->nin; i++)
        if (!strcmp(n->node->in_name[i], name)) return n->ctx->graph.tensor[n->node->in[i]].name;
    return name;
}

static void ein__json_ranges(ein_ctx *ctx, ein__buf *b, const ein__node *node) {
    ein__ranges ranges = {0};
    ein__operand *operand = ein__node_operands(ctx, node);
    ein__put(b, ", \"ranges\": [");
    if (ein__resolve(ctx, node->eq, operand, NULL, &ranges)) {
        for (int i = 0; i < (int)arrlen(ranges.bound); i++) {
            const ein__bound *r = &ranges.bound[i];
            ein__putf(b, "%s{\"index\": \"%s\", \"lo\": %lld, \"hi\": %lld}", i ? ", " : "",
                      r->name, (long long)r->lo, (long long)r->hi);
        }
    }
    ein__put(b, "]");
    arrfree(ranges.bound);
    arrfree(operand);
}

// The node's equation under full names of tensors, each padded once however many names it is read
// by.
static ein__equation ein__json_own(ein_ctx *ctx, const ein__node *node) {
    ein__json_names names = {ctx, node};
    ein__equation eq = *node->eq;
    eq.result = ctx->graph.tensor[node->out[0]].name;
    eq.pad = EIN__NEW(&ctx->arena, ein__padval, eq.npad + 1);
    eq.npad = 0;
    for (int i = 0; i < node->eq->npad; i++) {
        const char *tensor = ein__json_rename(&names, node->eq->pad[i].tensor);
        bool again = false;
        for (int k = 0; k < i; k++)
            again = again || ein__json_rename(&names, node->eq->pad[k].tensor) == tensor;
        if (!again) eq.pad[eq.npad++] = node->eq->pad[i];
    }
    return eq;
}

static void ein__json_equation(ein_ctx *ctx, ein__buf *b, const ein__node *node,
                               const ein__equation *eq) {
    ein__json_names names = {ctx, node};
    ein__buf text = {0};
    ein__formatter p = {.out = &text, .rename = ein__json_rename, .user = &names};
    ein__put_equation(&p, eq, NULL);
    ein__json_string(b, text.s);
    ein__buf_free(&text);
}

static void ein__json_attributes(ein__buf *b, const ein__node *node) {
    ein__put(b, ", \"attributes\": {");
    for (int i = 0; i < node->nattr; i++) {
        if (i) ein__put(b, ", ");
        ein__json_string(b, node->attr[i].name);
        ein__put(b, ": ");
        ein__json_value(b, node->attr[i].value);
    }
    ein__put(b, "}");
}

static void ein__json_pads(ein_ctx *ctx, ein__buf *b, const ein__node *node,
                           const ein__equation *eq) {
    ein__json_names names = {ctx, node};
    ein__put(b, ", \"pads\": {");
    for (int i = 0; i < eq->npad; i++) {
        if (i) ein__put(b, ", ");
        ein__json_string(b, ein__json_rename(&names, eq->pad[i].tensor));
        ein__put(b, ": ");
        ein__json_real(b, eq->pad[i].value);
    }
    ein__put(b, "}");
}

static void ein__json_node(ein_ctx *ctx, ein__buf *b, const ein__node *node) {
    ein__equation eq = {0};
    ein__putf(b, "{\"line\": %u, \"%s\": ", (unsigned)node->pos.line, node->op ? "op" : "equation");
    if (node->op) {
        ein__json_string(b, node->op);
    } else {
        eq = ein__json_own(ctx, node);
        ein__json_equation(ctx, b, node, &eq);
    }
    ein__put(b, ", \"inputs\": [");
    for (int i = 0; i < node->nin; i++) {
        if (i) ein__put(b, ", ");
        if (node->in[i] < 0) ein__put(b, "null");
        else ein__json_string(b, ctx->graph.tensor[node->in[i]].name);
    }
    ein__put(b, "], \"outputs\": [");
    for (int i = 0; i < node->nout; i++) {
        const ein__tensor *t = &ctx->graph.tensor[node->out[i]];
        ein__put(b, i ? ", {\"name\": " : "{\"name\": ");
        ein__json_string(b, t->name);
        ein__json_type(b, t);
        ein__put(b, "}");
    }
    ein__put(b, "]");
    if (node->op) {
        ein__json_attributes(b, node);
    } else {
        ein__json_ranges(ctx, b, node);
        ein__json_pads(ctx, b, node, &eq);
    }
    ein__put(b, "}");
}

EIN__FN void ein__graph_json(ein_ctx *ctx, ein__buf *out) {
    const ein__graph *g = &ctx->graph;
    ein__put(out, "{\n  \"einnet_graph\": 1,\n  \"model\": ");
    ein__json_string(out, g->model);
    ein__putf(out, ",\n  \"hash\": \"%016llx\"", (unsigned long long)g->hash);
    ein__json_open(out, "dims");
    for (ptrdiff_t i = 0; i < arrlen(g->dim); i++) {
        ein__json_entry(out, i);
        ein__put(out, "{\"name\": ");
        ein__json_string(out, g->dim[i].name);
        ein__putf(out, ", \"value\": %lld, \"small\": %lld}", (long long)g->dim[i].value,
                  (long long)g->dim[i].small);
    }
    ein__json_close(out, arrlen(g->dim));
    ein__json_tensors(ctx, out, "inputs", g->input);
    ein__json_open(out, "outputs");
    for (ptrdiff_t i = 0; i < arrlen(g->output); i++) {
        const ein__tensor *t = &g->tensor[g->output[i].tensor];
        ein__json_entry(out, i);
        ein__put(out, "{\"name\": ");
        ein__json_string(out, g->output[i].name);
        ein__json_key(out, "tensor", t->name);
        ein__json_type(out, t);
        ein__put(out, "}");
    }
    ein__json_close(out, arrlen(g->output));
    ein__json_tensors(ctx, out, "weights", g->weight);
    ein__json_open(out, "nodes");
    for (ptrdiff_t i = 0; i < arrlen(g->node); i++) {
        ein__json_entry(out, i);
        ein__json_node(ctx, out, &g->node[i]);
    }
    ein__json_close(out, arrlen(g->node));
    ein__put(out, "\n}\n");
}
// graph -> expressions
/* ---- index.c ---- */
// Index forms: affine in atoms, over a denominator. Every form goes through these constructors,
// which keep it in normal form; two forms that print alike are the same id. The normal form is not
// unique (derivation rules only lose a duplicate by that), but it never changes a value.

EIN__FN const ein__index *ein__ix_get(const ein_ctx *ctx, ein__ix ix) {
    return ctx->indices.rec[ix.i];
}

// A copy to change: records are as long as their terms, so the struct must not be assigned.
static ein__index ein__ix_copy(const ein__index *f) {
    ein__index r = {0};
    memcpy(&r, f, offsetof(ein__index, t) + f->n * sizeof(ein__term));
    return r;
}

EIN__FN const ein__atom *ein__atom_get(const ein_ctx *ctx, uint32_t atom) {
    return ctx->atoms.rec[atom];
}

static ein__ix ein__ix_overflow(ein_ctx *ctx) {
    ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0},
               "a subscript has too many terms or too large numbers");
    return (ein__ix){0};
}

// ------------------------------------------------------------------------------------ bounds

// Numbers this large would overflow somewhere further on; sizes are far below.
#define EIN__INDEX_LIMIT ((int64_t)1 << 56)

static void ein__atom_bounds(ein_ctx *ctx, uint32_t atom, int64_t *lo, int64_t *hi) {
    const ein__atom *a = ein__atom_get(ctx, atom);
    *lo = 0;
    *hi = a->n - 1;
    if (a->kind == EIN__FLOOR) {
        const ein__index *f = ein__ix_get(ctx, (ein__ix){a->ix});
        *lo = ein__floordiv(f->lo, a->n);
        *hi = ein__floordiv(f->hi, a->n);
    } else if (a->kind == EIN__GATHER && !a->n) {
        *lo = -(EIN__INDEX_LIMIT >> 8);
        *hi = EIN__INDEX_LIMIT >> 8;
    }
}

// Bounds of c + sum k * atom before division. False when they leave the safe range.
static bool ein__sum_bounds(ein_ctx *ctx, const ein__index *f, int64_t *lo, int64_t *hi) {
    *lo = *hi = f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t l, h, a, b;
        ein__atom_bounds(ctx, f->t[i].atom, &l, &h);
        if (ein__mul_overflows(f->t[i].k, f->t[i].k > 0 ? l : h, &a) ||
            ein__mul_overflows(f->t[i].k, f->t[i].k > 0 ? h : l, &b) ||
            ein__add_overflows(*lo, a, lo) || ein__add_overflows(*hi, b, hi))
            return false;
    }
    return *lo >= -EIN__INDEX_LIMIT && *hi <= EIN__INDEX_LIMIT;
}

// r + k * a, denominators aside; false on overflow.
static bool ein__ix_append(ein__index *r, const ein__index *a, int64_t k) {
    int64_t c;
    if (ein__mul_overflows(a->c, k, &c) || ein__add_overflows(r->c, c, &r->c)) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        int64_t t;
        if (ein__mul_overflows(a->t[i].k, k, &t)) return false;
        uint32_t j = 0;
        while (j < r->n && r->t[j].atom != a->t[i].atom) j++;
        if (j < r->n) {
            if (ein__add_overflows(r->t[j].k, t, &r->t[j].k)) return false;
        } else {
            if (r->n == EIN__MAX_TERMS) return false;
            r->t[r->n++] = (ein__term){t, a->t[i].atom, 0};
        }
    }
    return true;
}

// floor(E / d) moves with the atoms of E: where one of them stands beside it in the form, as in
// -h + floor(h / 2), bounds follow from d * floor(E / d) = E - m, 0 <= m < d. Coefficients of that
// form times `scale`, joined by atom; the last ones are the m. False when it is no use or too
// large.
static bool ein__expand_floors(ein_ctx *ctx, const ein__index *f, ein__index *sum, int64_t *scale,
                               int64_t *lo, int64_t *hi) {
    bool expand[EIN__MAX_TERMS] = {false}, any = false;
    *scale = 1;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__FLOOR) continue;
        const ein__index *e = ein__ix_get(ctx, (ein__ix){a->ix});
        for (uint32_t j = 0; j < e->n; j++)
            for (uint32_t k = 0; k < f->n; k++) expand[i] |= e->t[j].atom == f->t[k].atom;
        if (!expand[i]) continue;
        any = true;
        if (ein__mul_overflows(*scale, a->n / ein__gcd(*scale, a->n), scale)) return false;
    }
    *sum = (ein__index){.q = 1};
    *lo = *hi = 0;
    for (uint32_t i = 0; any && i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        ein__index one = {.q = 1, .n = 1};
        one.t[0] = (ein__term){1, f->t[i].atom, 0};
        const ein__index *e = expand[i] ? ein__ix_get(ctx, (ein__ix){a->ix}) : &one;
        int64_t k, m;
        if (ein__mul_overflows(f->t[i].k, expand[i] ? *scale / a->n : *scale, &k) ||
            !ein__ix_append(sum, e, k))
            return false;
        if (!expand[i]) continue;
        if (ein__mul_overflows(k, a->n - 1, &m) ||
            ein__add_overflows(k > 0 ? *lo : *hi, -m, k > 0 ? lo : hi))
            return false;
    }
    int64_t c;
    return any && !ein__mul_overflows(f->c, *scale, &c) && !ein__add_overflows(sum->c, c, &sum->c);
}

static void ein__tighten_bounds(ein_ctx *ctx, const ein__index *f, int64_t *lo, int64_t *hi) {
    ein__index sum;
    int64_t scale, l, h, ml, mh;
    if (!ein__expand_floors(ctx, f, &sum, &scale, &ml, &mh) ||
        !ein__sum_bounds(ctx, &sum, &l, &h) || ein__add_overflows(l, ml, &l) ||
        ein__add_overflows(h, mh, &h))
        return;
    l = -ein__floordiv(-l, scale);
    h = ein__floordiv(h, scale);
    if (l > *lo) *lo = l;
    if (h < *hi) *hi = h;
}

// Sorts the terms, joins equal atoms, drops zeros, reduces by the gcd, adds bounds, interns.
static ein__ix ein__ix_intern(ein_ctx *ctx, ein__index *f) {
    for (uint32_t i = 1; i < f->n; i++)
        for (uint32_t j = i; j > 0 && f->t[j].atom < f->t[j - 1].atom; j--) {
            ein__term swap = f->t[j];
            f->t[j] = f->t[j - 1];
            f->t[j - 1] = swap;
        }
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (n && f->t[n - 1].atom == f->t[i].atom) {
            if (ein__add_overflows(f->t[n - 1].k, f->t[i].k, &f->t[n - 1].k))
                return ein__ix_overflow(ctx);
        } else {
            f->t[n++] = f->t[i];
        }
        if (!f->t[n - 1].k) n--;
    }
    f->n = n;
    if (f->q > 1) {
        int64_t g = ein__gcd(f->c, f->q);
        for (uint32_t i = 0; i < n; i++) g = ein__gcd(f->t[i].k, g);
        f->c /= g;
        f->q /= g;
        for (uint32_t i = 0; i < n; i++) f->t[i].k /= g;
    }
    int64_t lo, hi;
    if (!ein__sum_bounds(ctx, f, &lo, &hi)) return ein__ix_overflow(ctx);
    ein__tighten_bounds(ctx, f, &lo, &hi);
    f->lo = -ein__floordiv(-lo, f->q);
    f->hi = ein__floordiv(hi, f->q);
    // What q shares with every coefficient it does not share with c: no value is an integer.
    int64_t common = f->q;
    for (uint32_t i = 0; i < n; i++) common = ein__gcd(f->t[i].k, common);
    if (common > 1) {
        f->lo = 1;
        f->hi = 0;
    }
    ein__index clean;
    memset(&clean, 0, sizeof clean);
    clean.c = f->c;
    clean.q = f->q;
    clean.lo = f->lo;
    clean.hi = f->hi;
    clean.n = n;
    for (uint32_t i = 0; i < n; i++) {
        clean.t[i].k = f->t[i].k;
        clean.t[i].atom = f->t[i].atom;
    }
    size_t size = offsetof(ein__index, t) + n * sizeof(ein__term);
    return (ein__ix){ein__intern(&ctx->arena, &ctx->indices, &clean, size)};
}

static uint32_t ein__atom_intern(ein_ctx *ctx, ein__atom_kind kind, uint32_t slot, int64_t n,
                                 uint32_t ix, uint32_t ex) {
    ein__atom a;
    memset(&a, 0, sizeof a);
    a.kind = (uint32_t)kind;
    a.slot = slot;
    a.n = n;
    a.ix = ix;
    a.ex = ex;
    return ein__intern(&ctx->arena, &ctx->atoms, &a, sizeof a);
}

// ------------------------------------------------------------------------------------ linear forms

EIN__FN ein__ix ein__ix_const(ein_ctx *ctx, int64_t c) {
    ein__index f = {.c = c, .q = 1};
    return ein__ix_intern(ctx, &f);
}

static ein__ix ein__ix_atom(ein_ctx *ctx, uint32_t atom) {
    ein__index f = {.q = 1, .n = 1};
    f.t[0] = (ein__term){1, atom, 0};
    return ein__ix_intern(ctx, &f);
}

// The iterator of a slot, running over [0, n). One of extent 1 is the constant 0.
EIN__FN ein__ix ein__ix_iter(ein_ctx *ctx, uint32_t slot, int64_t n) {
    if (n == 1) return ein__ix_const(ctx, 0);
    return ein__ix_atom(ctx, ein__atom_intern(ctx, EIN__ITER, slot, n, 0, 0));
}

// The value of read `ex` of an integer tensor as an index; `n` > 0 promises 0 <= value < n.
EIN__FN ein__ix ein__ix_gather(ein_ctx *ctx, ein__ex ex, int64_t n) {
    if (!ex.i) return (ein__ix){0};
    return ein__ix_atom(ctx, ein__atom_intern(ctx, EIN__GATHER, 0, n, 0, ex.i));
}

static ein__ix ein__ix_recombine(ein_ctx *ctx, ein__index *f);

static ein__ix ein__ix_combine(ein_ctx *ctx, ein__ix a, int64_t ka, ein__ix b, int64_t kb) {
    if (!a.i || !b.i) return (ein__ix){0};
    const ein__index *x = ein__ix_get(ctx, a), *y = ein__ix_get(ctx, b);
    int64_t g = ein__gcd(x->q, y->q), q, mx = y->q / g, my = x->q / g;
    ein__index r = {0};
    if (ein__mul_overflows(x->q, mx, &q) || ein__mul_overflows(ka, mx, &mx) ||
        ein__mul_overflows(kb, my, &my))
        return ein__ix_overflow(ctx);
    r.q = q;
    if (!ein__ix_append(&r, x, mx) || !ein__ix_append(&r, y, my)) return ein__ix_overflow(ctx);
    return ein__ix_recombine(ctx, &r);
}

EIN__FN ein__ix ein__ix_add(ein_ctx *ctx, ein__ix a, ein__ix b) {
    return ein__ix_combine(ctx, a, 1, b, 1);
}

EIN__FN ein__ix ein__ix_sub(ein_ctx *ctx, ein__ix a, ein__ix b) {
    return ein__ix_combine(ctx, a, 1, b, -1);
}

EIN__FN ein__ix ein__ix_scale(ein_ctx *ctx, ein__ix a, int64_t k) {
    return ein__ix_combine(ctx, a, k, ein__ix_const(ctx, 0), 0);
}

EIN__FN ein__ix ein__ix_addc(ein_ctx *ctx, ein__ix a, int64_t c) {
    return ein__ix_add(ctx, a, ein__ix_const(ctx, c));
}

// Exact division: an index only where q divides; reads elsewhere give their padding.
EIN__FN ein__ix ein__ix_div(ein_ctx *ctx, ein__ix a, int64_t q) {
    if (!a.i) return a;
    ein__index r = ein__ix_copy(ein__ix_get(ctx, a));
    if (ein__mul_overflows(r.q, q, &r.q)) return ein__ix_overflow(ctx);
    return ein__ix_intern(ctx, &r);
}

// ------------------------------------------------------------------------------------ floor and
// mod

static int64_t ein__ix_value(ein_ctx *ctx, ein__ix ix, uint32_t slot, int64_t v);

static int64_t ein__atom_value(ein_ctx *ctx, const ein__atom *a, uint32_t slot, int64_t v) {
    if (a->kind == EIN__ITER) return a->slot == slot ? v : 0;
    int64_t x = ein__ix_value(ctx, (ein__ix){a->ix}, slot, v);
    return a->kind == EIN__FLOOR ? ein__floordiv(x, a->n) : ein__floormod(x, a->n);
}

// Numerator of a form of the single iterator `slot` at value v; no gathers inside.
static int64_t ein__ix_value(ein_ctx *ctx, ein__ix ix, uint32_t slot, int64_t v) {
    const ein__index *f = ein__ix_get(ctx, ix);
    int64_t sum = f->c;
    for (uint32_t i = 0; i < f->n; i++)
        sum += f->t[i].k * ein__atom_value(ctx, ein__atom_get(ctx, f->t[i].atom), slot, v);
    return sum;
}

EIN__FN uint32_t ein__ix_uses(const ein_ctx *ctx, ein__ix ix);

static uint32_t ein__gather_uses(const ein_ctx *ctx, uint32_t ex);

static uint32_t ein__atom_uses(const ein_ctx *ctx, uint32_t atom) {
    const ein__atom *a = ein__atom_get(ctx, atom);
    if (a->kind == EIN__ITER) return 1u << a->slot;
    if (a->kind == EIN__GATHER) return ein__gather_uses(ctx, a->ex);
    return ein__ix_uses(ctx, (ein__ix){a->ix});
}

// Slots that occur anywhere in the form, as a bit mask.
EIN__FN uint32_t ein__ix_uses(const ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < f->n; i++) mask |= ein__atom_uses(ctx, f->t[i].atom);
    return mask;
}

static bool ein__ix_has_gather(const ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__GATHER) return true;
        if (a->kind != EIN__ITER && ein__ix_has_gather(ctx, (ein__ix){a->ix})) return true;
    }
    return false;
}

// The iterator atom of `slot` inside the form.
static const ein__atom *ein__find_iter(const ein_ctx *ctx, ein__ix ix, uint32_t slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER && a->slot == slot) return a;
        if (a->kind == EIN__FLOOR || a->kind == EIN__MOD) {
            const ein__atom *inner = ein__find_iter(ctx, (ein__ix){a->ix}, slot);
            if (inner) return inner;
        }
    }
    return NULL;
}

enum { EIN__TABULATE = 64 };  // extents up to this are tried value by value

// floor or mod of a form of one short iterator: its values, when they are affine, as that affine
// form.
static bool ein__tabulate(ein_ctx *ctx, uint32_t atom, ein__ix *r) {
    uint32_t mask = ein__atom_uses(ctx, atom), slot = 0;
    const ein__atom *a = ein__atom_get(ctx, atom);
    if (!mask || (mask & (mask - 1)) || ein__ix_has_gather(ctx, (ein__ix){a->ix})) return false;
    while (!(mask >> slot & 1)) slot++;
    const ein__atom *it = ein__find_iter(ctx, (ein__ix){a->ix}, slot);
    if (!it || it->n > EIN__TABULATE) return false;
    int64_t first = ein__atom_value(ctx, a, slot, 0);
    int64_t step = ein__atom_value(ctx, a, slot, 1) - first;
    for (int64_t v = 2; v < it->n; v++)
        if (ein__atom_value(ctx, a, slot, v) != first + step * v) return false;
    ein__ix x = ein__ix_scale(ctx, ein__ix_iter(ctx, slot, it->n), step);
    *r = ein__ix_addc(ctx, x, first);
    return true;
}

static ein__ix ein__ix_floor_or_mod(ein_ctx *ctx, ein__atom_kind kind, const ein__index *f,
                                    int64_t d);

// Takes multiples of d out of the integer form `f`: f = d * whole + rest. Coefficients of rest are
// in [0, d), or keep their sign.
static void ein__split_multiples(const ein__index *f, int64_t d, bool keep_sign, ein__index *whole,
                                 ein__index *rest) {
    *whole = (ein__index){.q = 1};
    *rest = (ein__index){.q = 1};
    whole->c = ein__floordiv(f->c, d);
    rest->c = ein__floormod(f->c, d);
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t k = f->t[i].k, up = keep_sign ? k / d : ein__floordiv(k, d), down = k - up * d;
        if (up) whole->t[whole->n++] = (ein__term){up, f->t[i].atom, 0};
        if (down) rest->t[rest->n++] = (ein__term){down, f->t[i].atom, 0};
    }
}

// floor((F + floor(E / a)) / d) = floor((a F + E) / (a d)): gives a F + E and a d. False when no
// floor stands in `f` by itself, or the numbers get large.
static bool ein__unnest(ein_ctx *ctx, const ein__index *f, int64_t d, ein__ix *nested,
                        int64_t *divisor) {
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind != EIN__FLOOR || f->t[i].k != 1) continue;
        ein__index sum = {.q = 1}, other = ein__ix_copy(f);
        other.t[i] = other.t[--other.n];
        if (ein__mul_overflows(a->n, d, divisor) || *divisor > EIN__INDEX_LIMIT >> 16 ||
            !ein__ix_append(&sum, &other, a->n) ||
            !ein__ix_append(&sum, ein__ix_get(ctx, (ein__ix){a->ix}), 1))
            return false;
        int64_t lo, hi;
        if (!ein__sum_bounds(ctx, &sum, &lo, &hi)) return false;
        *nested = ein__ix_recombine(ctx, &sum);
        return nested->i != 0;
    }
    return false;
}

EIN__FN ein__ix ein__ix_floordiv(ein_ctx *ctx, ein__ix a, int64_t d);

// floor(rest / d) or rest mod d, where rest's coefficients are in [0, d).
static ein__ix ein__ix_small(ein_ctx *ctx, ein__atom_kind kind, ein__index *rest, int64_t d) {
    int64_t lo, hi;
    if (!ein__sum_bounds(ctx, rest, &lo, &hi)) return ein__ix_overflow(ctx);
    int64_t at = ein__floordiv(lo, d);
    if (at == ein__floordiv(hi, d)) {
        if (kind == EIN__FLOOR) return ein__ix_const(ctx, at);
        rest->c -= at * d;
        return ein__ix_recombine(ctx, rest);
    }
    int64_t g = d;
    for (uint32_t i = 0; i < rest->n; i++) g = ein__gcd(rest->t[i].k, g);
    if (g > 1) {
        // A common factor: floor((g x + c) / (g d')) = floor((x + floor(c / g)) / d'), and the
        // remainder keeps c mod g.
        int64_t low = ein__floormod(rest->c, g);
        rest->c = ein__floordiv(rest->c, g);
        for (uint32_t i = 0; i < rest->n; i++) rest->t[i].k /= g;
        ein__ix x = ein__ix_floor_or_mod(ctx, kind, rest, d / g);
        return kind == EIN__FLOOR ? x : ein__ix_addc(ctx, ein__ix_scale(ctx, x, g), low);
    }
    ein__ix inner = ein__ix_recombine(ctx, rest);
    if (!inner.i) return inner;
    const ein__index *f = ein__ix_get(ctx, inner);
    int64_t divisor;
    ein__ix nested;
    if (kind == EIN__FLOOR && ein__unnest(ctx, f, d, &nested, &divisor))
        return ein__ix_floordiv(ctx, nested, divisor);
    if (f->n == 1 && f->c == 0 && f->t[0].k == 1) {
        const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
        if (kind == EIN__MOD && a->kind == EIN__MOD && a->n % d == 0)
            return ein__ix_floor_or_mod(ctx, EIN__MOD, ein__ix_get(ctx, (ein__ix){a->ix}), d);
        // floor((E mod ab) / b) = floor(E / b) mod a: the second form is the normal one.
        if (kind == EIN__FLOOR && a->kind == EIN__MOD && a->n % d == 0) {
            ein__ix e =
                ein__ix_floor_or_mod(ctx, EIN__FLOOR, ein__ix_get(ctx, (ein__ix){a->ix}), d);
            return e.i ? ein__ix_floor_or_mod(ctx, EIN__MOD, ein__ix_get(ctx, e), a->n / d) : e;
        }
    }
    uint32_t atom = ein__atom_intern(ctx, kind, 0, d, inner.i, 0);
    ein__ix table;
    if (ein__tabulate(ctx, atom, &table)) return table;
    return ein__ix_atom(ctx, atom);
}

static ein__ix ein__ix_floor_or_mod(ein_ctx *ctx, ein__atom_kind kind, const ein__index *f,
                                    int64_t d) {
    ein__index whole, rest, copy = ein__ix_copy(f);
    if (d == 1) return kind == EIN__FLOOR ? ein__ix_recombine(ctx, &copy) : ein__ix_const(ctx, 0);
    // 99 - h under h < 100 is one digit, which 99 h + 99 does not show.
    int64_t lo, hi;
    ein__split_multiples(&copy, d, true, &whole, &rest);
    if (ein__sum_bounds(ctx, &rest, &lo, &hi) && ein__floordiv(lo, d) == ein__floordiv(hi, d)) {
        whole.c += ein__floordiv(lo, d);
        rest.c -= ein__floordiv(lo, d) * d;
        return ein__ix_recombine(ctx, kind == EIN__FLOOR ? &whole : &rest);
    }
    ein__split_multiples(&copy, d, false, &whole, &rest);
    ein__ix small = ein__ix_small(ctx, kind, &rest, d);
    if (kind == EIN__MOD || !small.i) return small;
    ein__ix w = ein__ix_recombine(ctx, &whole);
    return ein__ix_add(ctx, w, small);
}

// Floored division by d > 0 of an integer form.
EIN__FN ein__ix ein__ix_floordiv(ein_ctx *ctx, ein__ix a, int64_t d) {
    if (!a.i) return a;
    const ein__index *f = ein__ix_get(ctx, a);
    if (f->q != 1) return ein__ix_overflow(ctx);
    return ein__ix_floor_or_mod(ctx, EIN__FLOOR, f, d);
}

// Floored remainder in [0, d) of an integer form.
EIN__FN ein__ix ein__ix_mod(ein_ctx *ctx, ein__ix a, int64_t d) {
    if (!a.i) return a;
    const ein__index *f = ein__ix_get(ctx, a);
    if (f->q != 1) return ein__ix_overflow(ctx);
    return ein__ix_floor_or_mod(ctx, EIN__MOD, f, d);
}

// ------------------------------------------------------------------------------------
// recombination

// Finds terms kf * floor(E / d) and km * (E mod d) with kf == d * km: together km * E. Digits of a
// longer chain meet the same way, since floor(E / b) mod a is the normal form of every middle
// digit: with F = floor(E / b), b * a * floor(F / a) + b * (F mod a) = b * F.
static bool ein__join_digits(ein_ctx *ctx, ein__index *f, uint32_t *floor_at, uint32_t *mod_at,
                             ein__ix *whole) {
    for (uint32_t j = 0; j < f->n; j++) {
        const ein__atom *m = ein__atom_get(ctx, f->t[j].atom);
        int64_t k;
        if (m->kind != EIN__MOD || ein__mul_overflows(f->t[j].k, m->n, &k)) continue;
        ein__ix e = {m->ix};
        ein__ix high = ein__ix_floor_or_mod(ctx, EIN__FLOOR, ein__ix_get(ctx, e), m->n);
        if (!high.i) return false;
        const ein__index *h = ein__ix_get(ctx, high);
        if (h->n != 1 || h->c || h->t[0].k != 1) continue;
        for (uint32_t i = 0; i < f->n; i++)
            if (i != j && f->t[i].atom == h->t[0].atom && f->t[i].k == k) {
                *floor_at = i;
                *mod_at = j;
                *whole = e;
                return true;
            }
    }
    return false;
}

static ein__ix ein__ix_recombine(ein_ctx *ctx, ein__index *f) {
    uint32_t i = 0, j = 0;
    ein__ix whole;
    while (ein__join_digits(ctx, f, &i, &j, &whole)) {
        int64_t k = f->t[j].k;
        uint32_t n = 0;
        for (uint32_t t = 0; t < f->n; t++)
            if (t != i && t != j) f->t[n++] = f->t[t];
        f->n = n;
        if (!ein__ix_append(f, ein__ix_get(ctx, whole), k)) return ein__ix_overflow(ctx);
    }
    if (ctx->status == EIN_RESOURCES) return (ein__ix){0};
    return ein__ix_intern(ctx, f);
}

// ------------------------------------------------------------------------------------ questions

EIN__FN bool ein__ix_is_const(const ein_ctx *ctx, ein__ix ix, int64_t *c) {
    const ein__index *f = ein__ix_get(ctx, ix);
    if (f->n || f->q != 1) return false;
    *c = f->c;
    return true;
}

// Exactly one iterator: coefficient 1, nothing added, nothing divided.
EIN__FN bool ein__ix_is_iter(const ein_ctx *ctx, ein__ix ix, uint32_t *slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    if (f->n != 1 || f->c || f->q != 1 || f->t[0].k != 1) return false;
    const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
    *slot = a->slot;
    return a->kind == EIN__ITER;
}

// Coefficient (of the numerator) of the bare iterator of `slot`.
EIN__FN int64_t ein__ix_coef(const ein_ctx *ctx, ein__ix ix, uint32_t slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER && a->slot == slot) return f->t[i].k;
    }
    return 0;
}

EIN__FN bool ein__ix_affine(const ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++)
        if (ein__atom_get(ctx, f->t[i].atom)->kind != EIN__ITER) return false;
    return true;
}

// ------------------------------------------------------------------------------------ substitution

static ein__ex ein__gather_subst(ein_ctx *ctx, ein__ex ex, const ein__ix *map, int nslot);

// The form with iterator of slot s replaced by map[s], for s < nslot; other slots must not occur. A
// replacement with a denominator may stand in linear places only.
EIN__FN ein__ix ein__ix_subst(ein_ctx *ctx, ein__ix ix, const ein__ix *map, int nslot) {
    if (!ix.i) return ix;
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__ix sum = ein__ix_const(ctx, f->c);
    for (uint32_t i = 0; i < f->n && sum.i; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        ein__ix x = {0};
        if (a->kind == EIN__ITER) {
            if ((int)a->slot < nslot) x = map[a->slot];
        } else if (a->kind == EIN__GATHER) {
            x = ein__ix_gather(ctx, ein__gather_subst(ctx, (ein__ex){a->ex}, map, nslot), a->n);
        } else {
            x = ein__ix_subst(ctx, (ein__ix){a->ix}, map, nslot);
            if (x.i && ein__ix_get(ctx, x)->q != 1) return (ein__ix){0};
            x = a->kind == EIN__FLOOR ? ein__ix_floordiv(ctx, x, a->n) : ein__ix_mod(ctx, x, a->n);
        }
        sum = ein__ix_combine(ctx, sum, 1, x, f->t[i].k);
    }
    return sum.i ? ein__ix_div(ctx, sum, f->q) : sum;
}
/* ---- expr.c ---- */
// Scalar expressions, scopes and values. Bodies are interned trees that go through constructors;
// scopes are interned, so equal definitions have one id; values are named definitions.

// ORDER fn
static const ein__fn_info ein__fn_table[EIN__NFN] = {
    {"+", 2, "+"},
    {"-", 2, "-"},
    {"*", 2, "*"},
    {"/", 2, "/"},
    {"pow", 2, "powf"},
    {"min", 2, "fminf"},
    {"max", 2, "fmaxf"},
    {"==", 2, "=="},
    {"!=", 2, "!="},
    {"<", 2, "<"},
    {"<=", 2, "<="},
    {">", 2, ">"},
    {">=", 2, ">="},
    {"neg", 1, "-"},
    {"abs", 1, "fabsf"},
    {"relu", 1, "relu"},
    {"tanh", 1, "tanhf"},
    {"exp", 1, "expf"},
    {"log", 1, "logf"},
    {"sqrt", 1, "sqrtf"},
    {"rsqrt", 1, "rsqrtf"},
    {"erf", 1, "erff"},
    {"sigmoid", 1, "sigmoid"},
    {"floor", 1, "floorf"},
    {"ceil", 1, "ceilf"},
    {"square", 1, "square"},
};

EIN__FN const ein__expr *ein__ex_get(const ein_ctx *ctx, ein__ex ex) {
    return ctx->exprs.rec[ex.i];
}

EIN__FN const ein__scope *ein__sc_get(const ein_ctx *ctx, ein__sc sc) {
    return ctx->scopes.rec[sc.i];
}

EIN__FN const ein__value *ein__val_get(const ein_ctx *ctx, ein__val v) { return &ctx->value[v.i]; }

static uint64_t ein__bits_of(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static double ein__f64_of(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static ein__ex ein__ex_intern(ein_ctx *ctx, const ein__expr *e) {
    ein__expr clean;
    memset(&clean, 0, sizeof clean);
    clean.op = e->op;
    clean.fn = e->fn;
    clean.val = e->val;
    clean.negate = e->negate;
    clean.bits = e->bits;
    clean.n = e->n;
    clean.nkid = e->nkid;
    clean.nix = e->nix;
    for (uint32_t i = 0; i < e->nkid; i++) clean.kid[i] = e->kid[i];
    for (uint32_t i = 0; i < e->nix; i++) clean.ix[i] = e->ix[i];
    return (ein__ex){ein__intern(&ctx->arena, &ctx->exprs, &clean, sizeof clean)};
}

// ------------------------------------------------------------------------------------ leaves

EIN__FN ein__ex ein__ex_const(ein_ctx *ctx, double v) {
    ein__expr e = {.op = EIN__X_CONST, .bits = ein__bits_of(v)};
    return ein__ex_intern(ctx, &e);
}

EIN__FN bool ein__ex_is_const(const ein_ctx *ctx, ein__ex ex, double *v) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op != EIN__X_CONST) return false;
    *v = ein__f64_of(e->bits);
    return true;
}

EIN__FN ein__ex ein__ex_idx(ein_ctx *ctx, ein__ix ix) {
    int64_t c;
    if (!ix.i) return (ein__ex){0};
    if (ein__ix_is_const(ctx, ix, &c)) return ein__ex_const(ctx, (double)c);
    ein__expr e = {.op = EIN__X_IDX, .nix = 1, .ix = {ix}};
    return ein__ex_intern(ctx, &e);
}

// v[ix...]; outside the value's box, and where an index is not an integer, it is `pad`.
EIN__FN ein__ex ein__ex_read(ein_ctx *ctx, ein__val v, double pad, const ein__ix *ix, int n) {
    const ein__shape *s = &ctx->value[v.i].shape;
    ein__expr e = {.op = EIN__X_READ, .val = v.i, .bits = ein__bits_of(pad), .nix = (uint32_t)n};
    bool inside = true;
    EIN_ASSERT(n == s->rank);
    for (int i = 0; i < n; i++) {
        if (!ix[i].i) return (ein__ex){0};
        const ein__index *f = ein__ix_get(ctx, ix[i]);
        // lo > hi: no value of the form is an integer.
        if (f->hi < 0 || f->lo >= s->d[i] || f->lo > f->hi) return ein__ex_const(ctx, pad);
        inside &= f->q == 1 && f->lo >= 0 && f->hi < s->d[i] && !ein__ix_has_gather(ctx, ix[i]);
        e.ix[i] = ix[i];
    }
    if (inside) e.bits = 0;
    return ein__ex_intern(ctx, &e);
}

// ------------------------------------------------------------------------------------ functions

static double ein__fold_unary(ein__fn fn, double x, bool *known) {
    *known = true;
    switch ((int)fn) {
    case EIN__NEG: return -x;
    case EIN__ABS: return fabs(x);
    case EIN__RELU: return x < 0 ? 0 : x;
    case EIN__SQRT: return sqrt(x);
    case EIN__FLOORF: return floor(x);
    case EIN__CEILF: return ceil(x);
    case EIN__SQUARE: return x * x;
    default: break;  // the others depend on the machine's libm: left to run time
    }
    *known = false;
    return 0;
}

EIN__FN ein__ex ein__ex_unary(ein_ctx *ctx, ein__fn fn, ein__ex x) {
    double c;
    bool known;
    if (!x.i) return x;
    if (ein__ex_is_const(ctx, x, &c)) {
        c = ein__fold_unary(fn, c, &known);
        if (known) return ein__ex_const(ctx, c);
    }
    const ein__expr *e = ein__ex_get(ctx, x);
    if (fn == EIN__NEG && e->op == EIN__X_UNARY && e->fn == EIN__NEG) return e->kid[0];
    if (fn == EIN__RELU && e->op == EIN__X_UNARY && e->fn == EIN__RELU) return x;
    ein__expr r = {.op = EIN__X_UNARY, .fn = (uint32_t)fn, .nkid = 1, .kid = {x}};
    return ein__ex_intern(ctx, &r);
}

static bool ein__fold_binary(ein__fn fn, double x, double y, double *r) {
    switch ((int)fn) {
    case EIN__ADD: *r = x + y; return true;
    case EIN__SUB: *r = x - y; return true;
    case EIN__MUL: *r = x * y; return true;
    case EIN__DIV: *r = x / y; return y != 0;
    case EIN__MIN: *r = fmin(x, y); return true;
    case EIN__MAX: *r = fmax(x, y); return true;
    default: return false;
    }
}

static int ein__compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int ein__ix_compare(const ein_ctx *ctx, ein__ix a, ein__ix b) {
    if (a.i == b.i) return 0;
    const ein__index *x = ein__ix_get(ctx, a), *y = ein__ix_get(ctx, b);
    int r = ein__compare(x->n, y->n);
    if (!r) r = ein__compare(x->q, y->q);
    if (!r) r = ein__compare(x->c, y->c);
    for (uint32_t i = 0; !r && i < x->n; i++) {
        const ein__atom *p = ein__atom_get(ctx, x->t[i].atom),
                        *q = ein__atom_get(ctx, y->t[i].atom);
        r = ein__compare(p->kind, q->kind);
        if (!r) r = ein__compare(p->slot, q->slot);
        if (!r) r = ein__compare(x->t[i].k, y->t[i].k);
        if (!r) r = ein__compare(p->n, q->n);
        if (!r && p->ix && q->ix) r = ein__ix_compare(ctx, (ein__ix){p->ix}, (ein__ix){q->ix});
    }
    return r;
}

// Order by structure alone. Ids depend on what was interned before, and an order by them would let
// a change in one layer turn around operands in another.
static int ein__ex_compare(const ein_ctx *ctx, ein__ex a, ein__ex b) {
    if (a.i == b.i) return 0;
    const ein__expr *x = ein__ex_get(ctx, a), *y = ein__ex_get(ctx, b);
    int r = ein__compare(x->op == EIN__X_CONST, y->op == EIN__X_CONST);
    if (!r) r = ein__compare(x->op, y->op);
    if (!r) r = ein__compare(x->fn, y->fn);
    if (!r) r = ein__compare(x->nix, y->nix);
    if (!r) r = ein__compare((int64_t)(x->bits >> 1), (int64_t)(y->bits >> 1));
    for (uint32_t i = 0; !r && i < x->nkid; i++) r = ein__ex_compare(ctx, x->kid[i], y->kid[i]);
    for (uint32_t i = 0; !r && i < x->nix; i++) r = ein__ix_compare(ctx, x->ix[i], y->ix[i]);
    return r;
}

static bool ein__commutes(ein__fn fn) {
    return fn == EIN__ADD || fn == EIN__MUL || fn == EIN__MIN || fn == EIN__MAX;
}

// x + 0 and x * 1 are x for every x, infinities and NaN included (but -0 + 0, which is 0); x * 0 is
// not 0 for all x and stays.
EIN__FN ein__ex ein__ex_binary(ein_ctx *ctx, ein__fn fn, ein__ex x, ein__ex y) {
    double a = 0, b = 0, r;
    if (!x.i || !y.i) return (ein__ex){0};
    bool ca = ein__ex_is_const(ctx, x, &a), cb = ein__ex_is_const(ctx, y, &b);
    if (ca && cb && ein__fold_binary(fn, a, b, &r)) return ein__ex_const(ctx, r);
    if (fn == EIN__ADD && cb && b == 0) return x;
    if (fn == EIN__ADD && ca && a == 0) return y;
    if (fn == EIN__SUB && cb && b == 0) return x;
    if (fn == EIN__SUB && ca && a == 0) return ein__ex_unary(ctx, EIN__NEG, y);
    if (fn == EIN__MUL && cb && b == 1) return x;
    if (fn == EIN__MUL && ca && a == 1) return y;
    if (fn == EIN__DIV && cb && b == 1) return x;
    if (ein__commutes(fn) && ein__ex_compare(ctx, x, y) > 0) {
        ein__ex swap = x;
        x = y;
        y = swap;
    }
    ein__expr e = {.op = EIN__X_BINARY, .fn = (uint32_t)fn, .nkid = 2, .kid = {x, y}};
    return ein__ex_intern(ctx, &e);
}

// x cmp y ? p : q
EIN__FN ein__ex ein__ex_select(ein_ctx *ctx, ein__fn cmp, ein__ex x, ein__ex y, ein__ex p,
                               ein__ex q) {
    double a, b;
    if (!x.i || !y.i || !p.i || !q.i) return (ein__ex){0};
    if (p.i == q.i) return p;
    if (ein__ex_is_const(ctx, x, &a) && ein__ex_is_const(ctx, y, &b)) {
        bool r = cmp == EIN__EQ   ? a == b
                 : cmp == EIN__NE ? a != b
                 : cmp == EIN__LT ? a < b
                 : cmp == EIN__LE ? a <= b
                 : cmp == EIN__GT ? a > b
                                  : a >= b;
        return r ? p : q;
    }
    ein__expr e = {.op = EIN__X_SELECT, .fn = (uint32_t)cmp, .nkid = 4, .kid = {x, y, p, q}};
    return ein__ex_intern(ctx, &e);
}

// ------------------------------------------------------------------------------------ guards

// a and b have equal linear part over one denominator: a = b + *shift.
static bool ein__same_lattice(ein_ctx *ctx, ein__ix a, ein__ix b, int64_t *shift) {
    const ein__index *x = ein__ix_get(ctx, a), *y = ein__ix_get(ctx, b);
    if (x->q != y->q || x->n != y->n) return false;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->t[i].atom != y->t[i].atom || x->t[i].k != y->t[i].k) return false;
    int64_t d = x->c - y->c;
    if (d % x->q) return false;
    *shift = d / x->q;
    return true;
}

// Whether pad-0 read `e`, a factor of the guarded product, is 0 wherever the guard is false: one of
// its indices is the guard's form, shifted, and its box lies within the guard's range.
static bool ein__read_implies(ein_ctx *ctx, const ein__expr *e, ein__ix ix, int64_t n) {
    const ein__shape *s = &ctx->value[e->val].shape;
    const ein__index *g = ein__ix_get(ctx, ix);
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t shift;
        // read index = guard form + shift: box [0, d) is guard values [-shift, d - shift), of which
        // those in the form's own range count
        if (!ein__same_lattice(ctx, e->ix[k], ix, &shift)) continue;
        int64_t lo = -shift > g->lo ? -shift : g->lo;
        int64_t hi = s->d[k] - shift < g->hi + 1 ? s->d[k] - shift : g->hi + 1;
        if (lo >= 0 && hi <= n) return true;
    }
    return false;
}

static bool ein__product_implies(ein_ctx *ctx, ein__ex ex, ein__ix ix, int64_t n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ) return !e->bits && ein__read_implies(ctx, e, ix, n);
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__product_implies(ctx, e->kid[0], ix, n) ||
               ein__product_implies(ctx, e->kid[1], ix, n);
    if (e->op == EIN__X_WHEN) return ein__product_implies(ctx, e->kid[0], ix, n);
    return false;
}

// Under the guard "E - c divisible by q", floor(E / q) is (E - c) / q. Gives the read with every
// such index replaced; `ix` is the guard's form (E - c) / q + shift.
static ein__ex ein__absorb_read(ein_ctx *ctx, const ein__expr *e, ein__ix ix) {
    const ein__index *g = ein__ix_get(ctx, ix);
    ein__ix sub[EIN__MAX_RANK], exact = {0};
    bool changed = false;
    for (uint32_t k = 0; k < e->nix; k++) {
        sub[k] = e->ix[k];
        if (ein__ix_get(ctx, e->ix[k])->q != 1 || g->q == 1) continue;
        // floor of the guard's own numerator, taken at a point of the lattice: (num) / q exactly
        // when floor(num / q) and the index agree up to a constant.
        ein__index num = ein__ix_copy(g);
        num.q = 1;
        ein__ix whole = ein__ix_intern(ctx, &num);
        // The index may have been written floor((num + r) / q), which is num / q on the lattice.
        for (int64_t r = 0; r < g->q && r < EIN__TABULATE && !changed; r++) {
            ein__ix floored = ein__ix_floordiv(ctx, ein__ix_addc(ctx, whole, r), g->q);
            int64_t shift;
            if (!floored.i || !ein__same_lattice(ctx, e->ix[k], floored, &shift)) continue;
            exact = ein__ix_addc(ctx, ix, shift);
            sub[k] = exact;
            changed = true;
        }
    }
    if (!changed) return (ein__ex){0};
    return ein__ex_read(ctx, (ein__val){e->val}, ein__f64_of(e->bits), sub, (int)e->nix);
}

// Guard `when` around another body.
static ein__ex ein__rewrap(ein_ctx *ctx, const ein__expr *when, ein__ex body) {
    double c;
    ein__expr e = *when;
    if (!body.i || (ein__ex_is_const(ctx, body, &c) && c == 0)) return body;
    e.kid[0] = body;
    return ein__ex_intern(ctx, &e);
}

static ein__ex ein__absorb(ein_ctx *ctx, ein__ex ex, ein__ix ix) {
    ein__expr e = *ein__ex_get(ctx, ex);
    if (e.op == EIN__X_READ && !e.bits) {
        ein__ex r = ein__absorb_read(ctx, &e, ix);
        return r.i ? r : ex;
    }
    if (e.op == EIN__X_BINARY && e.fn == EIN__MUL) {
        ein__ex x = ein__absorb(ctx, e.kid[0], ix), y = ein__absorb(ctx, e.kid[1], ix);
        return ein__ex_binary(ctx, EIN__MUL, x, y);
    }
    if (e.op == EIN__X_WHEN) return ein__rewrap(ctx, &e, ein__absorb(ctx, e.kid[0], ix));
    return ex;
}

// `body` where `ix` is an integer in [0, n) (negate: where it is not), else 0 without evaluating
// it. A guard that a factor's padding implies is dropped; "divisible" guards turn floored reads
// into exact ones first, which then imply them.
EIN__FN ein__ex ein__ex_when(ein_ctx *ctx, ein__ix ix, int64_t n, bool negate, ein__ex body) {
    double c;
    if (!ix.i || !body.i) return (ein__ex){0};
    const ein__index *f = ein__ix_get(ctx, ix);
    bool always = f->q == 1 && f->lo >= 0 && f->hi < n && !ein__ix_has_gather(ctx, ix);
    bool never = f->hi < 0 || f->lo >= n || f->lo > f->hi;
    if (always || never) return (always != negate) ? body : ein__ex_const(ctx, 0);
    if (!negate && f->q > 1) body = ein__absorb(ctx, body, ix);
    if (!body.i || (ein__ex_is_const(ctx, body, &c) && c == 0)) return body;
    if (!negate && ein__product_implies(ctx, body, ix, n)) return body;
    const ein__expr *b = ein__ex_get(ctx, body);
    if (b->op == EIN__X_WHEN) {
        if (b->ix[0].i == ix.i && b->n == n && b->negate == (uint32_t)negate) return body;
        // guards stand in one order, outermost the largest id
        if (b->ix[0].i > ix.i)
            return ein__rewrap(ctx, b, ein__ex_when(ctx, ix, n, negate, b->kid[0]));
    }
    ein__expr e = {.op = EIN__X_WHEN,
                   .negate = negate,
                   .n = n,
                   .nkid = 1,
                   .nix = 1,
                   .kid = {body},
                   .ix = {ix}};
    return ein__ex_intern(ctx, &e);
}

// ------------------------------------------------------------------------------------ traversal

// Rebuilds an expression of the same kind with other children.
EIN__FN ein__ex ein__ex_make(ein_ctx *ctx, const ein__expr *e) {
    switch ((ein__xop)e->op) {
    case EIN__X_CONST: return ein__ex_const(ctx, ein__f64_of(e->bits));
    case EIN__X_IDX: return ein__ex_idx(ctx, e->ix[0]);
    case EIN__X_READ:
        return ein__ex_read(ctx, (ein__val){e->val}, ein__f64_of(e->bits), e->ix, (int)e->nix);
    case EIN__X_UNARY: return ein__ex_unary(ctx, (ein__fn)e->fn, e->kid[0]);
    case EIN__X_BINARY: return ein__ex_binary(ctx, (ein__fn)e->fn, e->kid[0], e->kid[1]);
    case EIN__X_WHEN: return ein__ex_when(ctx, e->ix[0], e->n, e->negate != 0, e->kid[0]);
    case EIN__X_SELECT:
        return ein__ex_select(ctx, (ein__fn)e->fn, e->kid[0], e->kid[1], e->kid[2], e->kid[3]);
    default: return (ein__ex){0};
    }
}

EIN__FN uint32_t ein__ex_uses(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < e->nix; i++) mask |= ein__ix_uses(ctx, e->ix[i]);
    for (uint32_t i = 0; i < e->nkid; i++) mask |= ein__ex_uses(ctx, e->kid[i]);
    return mask;
}

static uint32_t ein__gather_uses(const ein_ctx *ctx, uint32_t ex) {
    return ein__ex_uses(ctx, (ein__ex){ex});
}

// Iterators replaced by forms, see ein__ix_subst. None when a replacement does not fit.
EIN__FN ein__ex ein__ex_subst(ein_ctx *ctx, ein__ex ex, const ein__ix *map, int nslot) {
    if (!ex.i) return ex;
    ein__expr e = *ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e.nix; i++) {
        e.ix[i] = ein__ix_subst(ctx, e.ix[i], map, nslot);
        if (!e.ix[i].i) return (ein__ex){0};
    }
    for (uint32_t i = 0; i < e.nkid; i++) {
        e.kid[i] = ein__ex_subst(ctx, e.kid[i], map, nslot);
        if (!e.kid[i].i) return (ein__ex){0};
    }
    return ein__ex_make(ctx, &e);
}

static ein__ex ein__gather_subst(ein_ctx *ctx, ein__ex ex, const ein__ix *map, int nslot) {
    return ein__ex_subst(ctx, ex, map, nslot);
}

typedef ein__ex ein__read_fn(ein_ctx *ctx, void *user, ein__ex read);

static ein__ix ein__replace_gathers(ein_ctx *ctx, ein__ix ix, ein__read_fn *fn, void *user);

// Every READ replaced by what `fn` gives for it. A read inside a subscript (a gather) is handed
// over as well; its replacement must be a read.
EIN__FN ein__ex ein__ex_replace_reads(ein_ctx *ctx, ein__ex ex, ein__read_fn *fn, void *user) {
    ein__expr e = *ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e.nix; i++) {
        e.ix[i] = ein__replace_gathers(ctx, e.ix[i], fn, user);
        if (!e.ix[i].i) return (ein__ex){0};
    }
    if (e.op == EIN__X_READ) {
        ein__ex same = ein__ex_intern(ctx, &e);
        return fn(ctx, user, same);
    }
    for (uint32_t i = 0; i < e.nkid; i++) {
        e.kid[i] = ein__ex_replace_reads(ctx, e.kid[i], fn, user);
        if (!e.kid[i].i) return (ein__ex){0};
    }
    return ein__ex_make(ctx, &e);
}

static ein__ix ein__replace_gathers(ein_ctx *ctx, ein__ix ix, ein__read_fn *fn, void *user) {
    if (!ein__ix_has_gather(ctx, ix)) return ix;
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__ix sum = ein__ix_const(ctx, f->c);
    for (uint32_t i = 0; i < f->n && sum.i; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        ein__ix x;
        if (a->kind == EIN__GATHER) {
            ein__ex r = ein__ex_replace_reads(ctx, (ein__ex){a->ex}, fn, user);
            bool read = r.i && ein__ex_get(ctx, r)->op == EIN__X_READ;
            x = ein__ix_gather(ctx, read ? r : (ein__ex){a->ex}, a->n);
        } else if (a->kind == EIN__ITER) {
            x = ein__ix_iter(ctx, a->slot, a->n);
        } else {
            x = ein__replace_gathers(ctx, (ein__ix){a->ix}, fn, user);
            x = a->kind == EIN__FLOOR ? ein__ix_floordiv(ctx, x, a->n) : ein__ix_mod(ctx, x, a->n);
        }
        sum = ein__ix_combine(ctx, sum, 1, x, f->t[i].k);
    }
    return sum.i ? ein__ix_div(ctx, sum, f->q) : sum;
}

static void ein__reads_of_index(const ein_ctx *ctx, ein__ix ix, ein__ex **list);

// Appends every READ of the expression, those inside subscripts included, each once.
EIN__FN void ein__ex_reads(const ein_ctx *ctx, ein__ex ex, ein__ex **list) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ) {
        bool known = false;
        for (ptrdiff_t i = 0; i < arrlen(*list); i++) known |= (*list)[i].i == ex.i;
        if (!known) arrput(*list, ex);
    }
    for (uint32_t i = 0; i < e->nix; i++) ein__reads_of_index(ctx, e->ix[i], list);
    for (uint32_t i = 0; i < e->nkid; i++) ein__ex_reads(ctx, e->kid[i], list);
}

static void ein__reads_of_index(const ein_ctx *ctx, ein__ix ix, ein__ex **list) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__GATHER) ein__ex_reads(ctx, (ein__ex){a->ex}, list);
        else if (a->kind != EIN__ITER) ein__reads_of_index(ctx, (ein__ix){a->ix}, list);
    }
}

EIN__FN bool ein__ex_contains(const ein_ctx *ctx, ein__ex ex, ein__ex part) {
    if (ex.i == part.i) return true;
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nkid; i++)
        if (ein__ex_contains(ctx, e->kid[i], part)) return true;
    return false;
}

// Nodes of the expression as a tree, saturating.
EIN__FN int ein__ex_size(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    int n = 1;
    for (uint32_t i = 0; i < e->nkid; i++) {
        n += ein__ex_size(ctx, e->kid[i]);
        if (n > 1000000) return 1000000;
    }
    return n;
}

// ------------------------------------------------------------------------------------ scopes,
// values

static bool ein__verify_index(const ein_ctx *ctx, ein__ix ix, const ein__scope *s) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        if (a->kind == EIN__ITER) {
            if (a->slot >= s->nt + s->ns || a->n != s->n[a->slot]) return false;
        } else if (a->kind != EIN__GATHER && !ein__verify_index(ctx, (ein__ix){a->ix}, s)) {
            return false;
        }
    }
    return true;
}

static bool ein__verify_expr(const ein_ctx *ctx, ein__ex ex, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ && (int)e->nix != ctx->value[e->val].shape.rank) return false;
    for (uint32_t i = 0; i < e->nix; i++)
        if (!ein__verify_index(ctx, e->ix[i], s)) return false;
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__verify_expr(ctx, e->kid[i], s)) return false;
    return true;
}

// Every iterator of the body belongs to the scope with the scope's extent; ranks of reads match.
EIN__FN bool ein__sc_verify(const ein_ctx *ctx, ein__sc sc) {
    const ein__scope *s = ein__sc_get(ctx, sc);
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) return false;
    if ((s->reduce == EIN__R_NONE) != (s->ns == 0)) return false;
    return ein__verify_expr(ctx, s->body, s);
}

EIN__FN ein__sc ein__sc_make(ein_ctx *ctx, const ein__scope *s) {
    if (!s->body.i) return (ein__sc){0};
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "an expression has too many iterators");
        return (ein__sc){0};
    }
    ein__scope clean;
    memset(&clean, 0, sizeof clean);
    clean.reduce = s->reduce;
    clean.nt = s->nt;
    clean.ns = s->ns;
    clean.body = s->body;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) clean.n[i] = s->n[i];
    ein__sc sc = {ein__intern(&ctx->arena, &ctx->scopes, &clean, sizeof clean)};
    EIN_ASSERT(ein__sc_verify(ctx, sc));
    return sc;
}

// A new value. `tensor` and `node` say what of the model it belongs to (-1: nothing).
EIN__FN ein__val ein__val_new(ein_ctx *ctx, const char *name, ein__vkind kind, int tensor,
                              ein__sc sc, const ein__shape *shape, ein__dtype dtype, int node) {
    ein__value v = {.name = name,
                    .kind = kind,
                    .tensor = tensor,
                    .scope = sc,
                    .shape = *shape,
                    .dtype = dtype,
                    .node = node,
                    .weight_only = kind == EIN__V_WEIGHT};
    if (!arrlen(ctx->value)) arrput(ctx->value, (ein__value){0});
    if (kind == EIN__V_SCOPE) {
        ein__ex *reads = NULL;
        v.weight_only = true;
        ein__ex_reads(ctx, ein__sc_get(ctx, sc)->body, &reads);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++)
            v.weight_only &= ctx->value[ein__ex_get(ctx, reads[i])->val].weight_only;
        arrfree(reads);
    }
    arrput(ctx->value, v);
    return (ein__val){(uint32_t)arrlen(ctx->value) - 1};
}
/* ---- print.c ---- */
// Values as equations of the language. The text does not depend on ids: terms and guards stand in
// an order made from what they say, so that reading an equation back and printing it again gives
// the same text.

typedef struct ein__print_pad {
    uint32_t val;
    double value;
    bool clause;
} ein__print_pad;

typedef struct ein__printer {
    ein_ctx *ctx;
    const ein__scope *s;
    char index[EIN__MAX_ITERS][24];  // name of each iterator
    ein__print_pad *pad;             // stb_ds array: of tensors that are read with padding
} ein__printer;

typedef enum { EIN__P_SUM, EIN__P_PRODUCT, EIN__P_FACTOR } ein__level;

static void ein__print_expr(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out);
static void ein__print_read(ein__printer *p, const ein__expr *e, bool floored, ein__buf *out);

// A tensor's name, in quotes where it is no identifier or has a meaning of its own.
static void ein__print_name(const char *name, ein__buf *out) {
    if (ein__is_identifier(name) && strcmp(name, "_") && strcmp(name, "in")) {
        ein__put(out, name);
        return;
    }
    ein__put(out, "\"");
    for (const char *c = name; *c; c++) {
        if (*c == '"' || *c == '\\') ein__putf(out, "\\%c", *c);
        else if (*c == '\n') ein__put(out, "\\n");
        else if (*c == '\t') ein__put(out, "\\t");
        else if ((unsigned char)*c < 32 || *c == 127) ein__putf(out, "\\x%02x", (unsigned char)*c);
        else ein__put_n(out, c, 1);
    }
    ein__put(out, "\"");
}

// Texts in order, for terms and guards: there are few of them.
typedef struct ein__texts {
    ein__buf *s;
} ein__texts;  // stb_ds array

static void ein__texts_add(ein__texts *t, ein__buf text) {
    ptrdiff_t at = 0;
    int order = 1;
    while (at < arrlen(t->s) && (order = strcmp(t->s[at].s, text.s)) < 0) at++;
    if (at < arrlen(t->s) && !order) ein__buf_free(&text);
    else arrins(t->s, at, text);
}

static void ein__texts_free(ein__texts *t) {
    for (ptrdiff_t i = 0; i < arrlen(t->s); i++) ein__buf_free(&t->s[i]);
    arrfree(t->s);
}

// ------------------------------------------------------------------------------------ subscripts

static void ein__print_linear(ein__printer *p, const ein__index *f, int64_t c, int sign,
                              ein__buf *out);

// True when the sum of terms needs no parentheses before `/` and `%`.
static bool ein__is_single(const ein__printer *p, const ein__index *f) {
    if (f->n == 0) return f->c >= 0;
    return f->n == 1 && !f->c && f->t[0].k == 1 &&
           ein__atom_get(p->ctx, f->t[0].atom)->kind == EIN__ITER;
}

static void ein__print_operand(ein__printer *p, ein__ix ix, ein__buf *out) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    bool single = ein__is_single(p, f);
    ein__put(out, single ? "" : "(");
    ein__print_linear(p, f, f->c, 0, out);
    ein__put(out, single ? "" : ")");
}

static void ein__print_atom(ein__printer *p, const ein__atom *a, ein__buf *out) {
    if (a->kind == EIN__ITER) {
        ein__put(out, p->index[a->slot]);
    } else if (a->kind == EIN__GATHER) {
        ein__put(out, "@");
        ein__print_read(p, ein__ex_get(p->ctx, (ein__ex){a->ex}), false, out);
    } else {
        ein__print_operand(p, (ein__ix){a->ix}, out);
        ein__putf(out, "%c%lld", a->kind == EIN__FLOOR ? '/' : '%', (long long)a->n);
    }
}

// One term of a form as it is printed; iterators stand before other atoms.
typedef struct ein__print_term {
    int64_t k;
    bool iter;
    uint32_t slot;
    ein__buf text;
} ein__print_term;

static bool ein__term_before(const ein__print_term *a, const ein__print_term *b) {
    if (a->iter != b->iter) return a->iter;
    if (a->iter) return a->slot < b->slot;
    int order = strcmp(a->text.s, b->text.s);
    return order ? order < 0 : a->k < b->k;
}

static void ein__print_term_text(const ein__print_term *t, bool first, ein__buf *out) {
    uint64_t k = t->k < 0 ? 0 - (uint64_t)t->k : (uint64_t)t->k;
    bool group = !t->iter && *t->text.s != '@' && (k != 1 || (first && t->k < 0));
    if (!first || t->k < 0) ein__put(out, t->k < 0 ? "-" : "+");
    if (k != 1) ein__putf(out, "%llu*", (unsigned long long)k);
    ein__put(out, group ? "(" : "");
    ein__put(out, t->text.s);
    ein__put(out, group ? ")" : "");
}

// The terms of `f` (all of them when `sign` is 0; else those with that sign, printed positive),
// then constant c.
static void ein__print_linear(ein__printer *p, const ein__index *f, int64_t c, int sign,
                              ein__buf *out) {
    ein__print_term t[EIN__MAX_TERMS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (sign && (f->t[i].k > 0) != (sign > 0)) continue;
        const ein__atom *a = ein__atom_get(p->ctx, f->t[i].atom);
        ein__print_term x = {sign < 0 ? -f->t[i].k : f->t[i].k, a->kind == EIN__ITER, a->slot, {0}};
        ein__print_atom(p, a, &x.text);
        uint32_t j = n++;
        for (; j > 0 && ein__term_before(&x, &t[j - 1]); j--) t[j] = t[j - 1];
        t[j] = x;
    }
    bool first = true;
    for (int negative = 0; negative < 2; negative++) {
        for (uint32_t i = 0; i < n; i++) {
            if ((t[i].k < 0) != (negative == 1)) continue;
            ein__print_term_text(&t[i], first, out);
            first = false;
        }
        if (!negative && first && c > 0 && n) {
            ein__putf(out, "%lld", (long long)c);
            c = 0;
            first = false;
        }
    }
    if (first) ein__putf(out, "%lld", (long long)c);
    else if (c) ein__putf(out, "%+lld", (long long)c);
    for (uint32_t i = 0; i < n; i++) ein__buf_free(&t[i].text);
}

static void ein__print_index(ein__printer *p, ein__ix ix, ein__buf *out) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    if (f->q == 1) {
        ein__print_linear(p, f, f->c, 0, out);
    } else {
        ein__print_operand(p, ix, out);
        ein__putf(out, "/%lld", (long long)f->q);
    }
}

// ------------------------------------------------------------------------------------ conditions

// `[left op right]` for (sign * terms of f) + c op 0: terms stand on the side where they are
// positive.
static void ein__add_compare(ein__printer *p, const ein__index *f, int sign, int64_t c,
                             const char *op, ein__texts *list) {
    bool left = false, right = false;
    for (uint32_t i = 0; i < f->n; i++)
        if ((f->t[i].k > 0) == (sign > 0)) left = true;
        else right = true;
    ein__buf b = {0};
    const char *swapped = !strcmp(op, ">=") ? "<=" : op;
    bool exchange = !left && right;
    ein__put(&b, "[");
    ein__print_linear(p, f, !exchange && right && c > 0 ? c : 0, exchange ? -sign : sign, &b);
    ein__putf(&b, " %s ", exchange ? swapped : op);
    if (exchange) ein__putf(&b, "%lld", (long long)c);
    else if (right) ein__print_linear(p, f, c < 0 ? -c : 0, -sign, &b);
    else ein__putf(&b, "%lld", (long long)-c);
    ein__put(&b, "]");
    ein__texts_add(list, b);
}

static void ein__add_lattice(ein__printer *p, const ein__index *f, const char *op,
                             ein__texts *list) {
    ein__buf b = {0};
    int64_t c = ein__floormod(f->c, f->q);
    bool single =
        !c && f->n == 1 && f->t[0].k == 1 && ein__atom_get(p->ctx, f->t[0].atom)->kind == EIN__ITER;
    ein__put(&b, single ? "[" : "[(");
    ein__print_linear(p, f, c, 0, &b);
    ein__putf(&b, "%s%%%lld %s 0]", single ? "" : ")", (long long)f->q, op);
    ein__texts_add(list, b);
}

// f == 0 or f != 0. A remainder that is compared with a constant is a lattice to the language.
static void ein__add_equal(ein__printer *p, const ein__index *f, const char *op, ein__texts *list) {
    const ein__atom *a = f->n == 1 ? ein__atom_get(p->ctx, f->t[0].atom) : NULL;
    int64_t c = a && f->t[0].k == 1 ? -f->c : f->c;
    if (a && a->kind == EIN__MOD && (f->t[0].k == 1 || f->t[0].k == -1) && c >= 0 && c < a->n) {
        ein__index lattice = ein__ix_copy(ein__ix_get(p->ctx, (ein__ix){a->ix}));
        lattice.c -= c;
        lattice.q = a->n;
        ein__add_lattice(p, &lattice, op, list);
    } else {
        ein__add_compare(p, f, 1, f->c, op, list);
    }
}

// Guards whose product says that `ix` is an integer in [0, n); those that always hold are left out.
static void ein__add_conditions(ein__printer *p, ein__ix ix, int64_t n, ein__texts *list) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    bool below = f->lo < 0, above = f->hi >= n;
    int64_t last;
    if (f->q == 1 && n == 1 && (below || above)) {
        ein__add_equal(p, f, "==", list);
        return;
    }
    if (f->q > 1) ein__add_lattice(p, f, "==", list);
    if (below) ein__add_compare(p, f, 1, f->c, ">=", list);
    if (above && !ein__mul_overflows(n - 1, f->q, &last))
        ein__add_compare(p, f, -1, last - f->c, ">=", list);
}

// The opposite as one guard; false when it takes more.
static bool ein__add_opposite(ein__printer *p, ein__ix ix, int64_t n, ein__texts *list) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    bool below = f->lo < 0, above = f->hi >= n;
    if (f->q > 1 && (below || above)) return false;
    if (f->q > 1) ein__add_lattice(p, f, "!=", list);
    else if (n == 1) ein__add_equal(p, f, "!=", list);
    else if (below && above) return false;
    else if (below) ein__add_compare(p, f, -1, -1 - f->c, ">=", list);
    else ein__add_compare(p, f, 1, f->c - n, ">=", list);
    return true;
}

static void ein__put_guards(const ein__texts *guard, bool first, ein__buf *out) {
    for (ptrdiff_t i = 0; i < arrlen(guard->s); i++) {
        ein__put(out, first ? "" : " * ");
        ein__put(out, guard->s[i].s);
        first = false;
    }
}

// ------------------------------------------------------------------------------------ reads

// Whether padding can be met: some index is not provably an integer inside the box.
static bool ein__read_is_padded(const ein_ctx *ctx, const ein__expr *e) {
    const ein__shape *s = &ein__val_get(ctx, (ein__val){e->val})->shape;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        if (f->q > 1 || f->lo < 0 || f->hi >= s->d[k] || ein__ix_has_gather(ctx, e->ix[k]))
            return true;
    }
    return false;
}

// The index as the language reads it: an exact division becomes a floored one.
static ein__ix ein__floored(ein_ctx *ctx, ein__ix ix) {
    const ein__index *f = ein__ix_get(ctx, ix);
    return f->q == 1 ? ix : ein__ix_floordiv(ctx, ein__ix_scale(ctx, ix, f->q), f->q);
}

// Whether the language wants a `pad` clause for the read.
static bool ein__read_wants_clause(ein_ctx *ctx, const ein__expr *e) {
    const ein__shape *s = &ein__val_get(ctx, (ein__val){e->val})->shape;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, ein__floored(ctx, e->ix[k]));
        bool gather = f->n == 1 && !f->c && f->t[0].k == 1 &&
                      ein__atom_get(ctx, f->t[0].atom)->kind == EIN__GATHER;
        if (!gather && (f->lo < 0 || f->hi >= s->d[k])) return true;
    }
    return false;
}

// One padding per tensor: 0 where any read has it. Reads with another one are written with select.
static void ein__collect_pads(ein__printer *p, ein__ex body) {
    ein__ex *reads = NULL;
    ein__ex_reads(p->ctx, body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(p->ctx, reads[i]);
        if (!ein__read_is_padded(p->ctx, e)) continue;
        ein__print_pad pad = {e->val, ein__f64_of(e->bits),
                              e->bits || ein__read_wants_clause(p->ctx, e)};
        ptrdiff_t j = 0;
        while (j < arrlen(p->pad) && p->pad[j].val != pad.val) j++;
        if (j == arrlen(p->pad)) {
            arrput(p->pad, pad);
            continue;
        }
        p->pad[j].clause |= pad.clause;
        uint64_t old = ein__bits_of(p->pad[j].value);
        if (old && (!e->bits || e->bits < old)) p->pad[j].value = pad.value;
    }
    arrfree(reads);
}

static uint64_t ein__clause_bits(const ein__printer *p, uint32_t val) {
    for (ptrdiff_t i = 0; i < arrlen(p->pad); i++)
        if (p->pad[i].val == val) return ein__bits_of(p->pad[i].value);
    return 0;
}

static void ein__print_read(ein__printer *p, const ein__expr *e, bool floored, ein__buf *out) {
    ein__print_name(ein__val_get(p->ctx, (ein__val){e->val})->name, out);
    ein__put(out, "[");
    for (uint32_t k = 0; k < e->nix; k++) {
        if (k) ein__put(out, ",");
        ein__print_index(p, floored ? ein__floored(p->ctx, e->ix[k]) : e->ix[k], out);
    }
    ein__put(out, "]");
}

// How a read can be written: as it is; times a guard that says where its indices are integers; or
// as a select, when its padding is not what the clause gives.
typedef enum { EIN__RD_PLAIN, EIN__RD_GUARDED, EIN__RD_SELECT } ein__read_form;

static ein__read_form ein__read_form_of(const ein__printer *p, const ein__expr *e) {
    bool exact = false;
    for (uint32_t k = 0; k < e->nix; k++) exact |= ein__ix_get(p->ctx, e->ix[k])->q > 1;
    if (!ein__read_is_padded(p->ctx, e)) return EIN__RD_PLAIN;
    if (e->bits != ein__clause_bits(p, e->val) || (exact && e->bits)) return EIN__RD_SELECT;
    return exact ? EIN__RD_GUARDED : EIN__RD_PLAIN;
}

static void ein__print_number(double v, ein__buf *out) {
    if (v != v) ein__put(out, "(inf - inf)");
    else ein__put_f64(out, v);
}

static void ein__print_select_read(ein__printer *p, const ein__expr *e, ein__buf *out) {
    const ein__shape *s = &ein__val_get(p->ctx, (ein__val){e->val})->shape;
    ein__texts guard = {0};
    for (uint32_t k = 0; k < e->nix; k++)
        if (!ein__ix_has_gather(p->ctx, e->ix[k]))
            ein__add_conditions(p, e->ix[k], s->d[k], &guard);
    bool any = arrlen(guard.s) > 0;
    if (any) {
        ein__put(out, "select(");
        ein__put_guards(&guard, true, out);
        ein__put(out, " == 1, ");
    }
    ein__print_read(p, e, true, out);
    if (any) {
        ein__put(out, ", ");
        ein__print_number(ein__f64_of(e->bits), out);
        ein__put(out, ")");
    }
    ein__texts_free(&guard);
}

// ------------------------------------------------------------------------------------ products

// A product as text: its factors, and the guards of all of them, which stand at its end.
typedef struct ein__product_text {
    ein__buf factors;
    int n;
    ein__texts guard;
} ein__product_text;

static bool ein__operands_swap(ein__printer *p, ein__ex ex);

static void ein__product_factor(ein__printer *p, ein__ex ex, const char *op, ein__product_text *t) {
    if (t->n++) ein__put(&t->factors, op);
    ein__print_expr(p, ex, EIN__P_FACTOR, &t->factors);
}

static void ein__print_opposite(ein__printer *p, const ein__expr *e, ein__buf *out) {
    ein__texts guard = {0};
    ein__add_conditions(p, e->ix[0], e->n, &guard);
    ein__put(out, "select(");
    ein__put_guards(&guard, true, out);
    ein__put(out, " == 0, ");
    ein__print_expr(p, e->kid[0], EIN__P_SUM, out);
    ein__put(out, ", 0)");
    ein__texts_free(&guard);
}

static void ein__collect_product(ein__printer *p, ein__ex ex, ein__product_text *t) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    double one;
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL) {
        bool swap = ein__operands_swap(p, ex);
        ein__collect_product(p, e->kid[swap ? 1 : 0], t);
        ein__collect_product(p, e->kid[swap ? 0 : 1], t);
    } else if (e->op == EIN__X_BINARY && e->fn == EIN__DIV) {
        ein__collect_product(p, e->kid[0], t);
        if (!t->n++) ein__put(&t->factors, "1");
        ein__put(&t->factors, " / ");
        ein__print_expr(p, e->kid[1], EIN__P_FACTOR, &t->factors);
        t->n++;
    } else if (e->op == EIN__X_WHEN) {
        if (!e->negate) {
            ein__add_conditions(p, e->ix[0], e->n, &t->guard);
        } else if (!ein__add_opposite(p, e->ix[0], e->n, &t->guard)) {
            if (t->n++) ein__put(&t->factors, " * ");
            ein__print_opposite(p, e, &t->factors);
            return;
        }
        if (!ein__ex_is_const(p->ctx, e->kid[0], &one) || one != 1)
            ein__collect_product(p, e->kid[0], t);
    } else if (e->op == EIN__X_READ && ein__read_form_of(p, e) == EIN__RD_GUARDED) {
        if (t->n++) ein__put(&t->factors, " * ");
        ein__print_read(p, e, false, &t->factors);
        for (uint32_t k = 0; k < e->nix; k++) {
            const ein__index *f = ein__ix_get(p->ctx, e->ix[k]);
            if (f->q > 1) ein__add_lattice(p, f, "==", &t->guard);
        }
    } else {
        ein__product_factor(p, ex, " * ", t);
    }
}

static bool ein__is_product(const ein__printer *p, const ein__expr *e) {
    if (e->op == EIN__X_BINARY) return e->fn == EIN__MUL || e->fn == EIN__DIV;
    if (e->op == EIN__X_READ) return ein__read_form_of(p, e) == EIN__RD_GUARDED;
    return e->op == EIN__X_WHEN;
}

static void ein__print_product(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out) {
    ein__product_text t = {0};
    ein__collect_product(p, ex, &t);
    bool group = level == EIN__P_FACTOR && t.n + arrlen(t.guard.s) > 1;
    ein__put(out, group ? "(" : "");
    if (t.n) ein__put(out, t.factors.s);
    ein__put_guards(&t.guard, !t.n, out);
    ein__put(out, group ? ")" : "");
    ein__buf_free(&t.factors);
    ein__texts_free(&t.guard);
}

// ------------------------------------------------------------------------------------ expressions

// Chains group to the left, so an operand that is one itself stands first.
static bool ein__is_chain(const ein_ctx *ctx, ein__ex ex, bool sum) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_WHEN && !sum) return ein__is_chain(ctx, e->kid[0], sum);
    if (e->op != EIN__X_BINARY) return false;
    return sum ? e->fn == EIN__ADD || e->fn == EIN__SUB : e->fn == EIN__MUL || e->fn == EIN__DIV;
}

// Constants lead products and end sums; what only weights decide comes after the rest.
static int ein__operand_rank(const ein_ctx *ctx, ein__ex ex, bool product) {
    double c;
    if (ein__ex_is_const(ctx, ex, &c)) return product ? 0 : 3;
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ex, &reads);
    bool weights = arrlen(reads) > 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        weights &= ein__val_get(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val})->weight_only;
    arrfree(reads);
    return weights ? 2 : 1;
}

// Whether the second operand of a commuting function is printed first. Operands that the
// constructor does not tell apart stay as they are; others may be exchanged, since it puts them in
// order again.
static bool ein__operands_swap(ein__printer *p, ein__ex ex) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    bool sum = e->fn == EIN__ADD, product = e->fn == EIN__MUL;
    if (!ein__commutes((ein__fn)e->fn) || !ein__ex_compare(p->ctx, e->kid[0], e->kid[1]))
        return false;
    if (sum || product) {
        bool a = ein__is_chain(p->ctx, e->kid[0], sum), b = ein__is_chain(p->ctx, e->kid[1], sum);
        if (a != b) return b;
    }
    return ein__operand_rank(p->ctx, e->kid[1], product) <
           ein__operand_rank(p->ctx, e->kid[0], product);
}

static void ein__print_binary(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    const char *name = ein__fn_table[e->fn].name;
    bool sum = e->fn == EIN__ADD || e->fn == EIN__SUB, swap = ein__operands_swap(p, ex);
    bool group = sum && level != EIN__P_SUM;
    if (!sum) ein__put(out, name);
    ein__put(out, group || !sum ? "(" : "");
    ein__print_expr(p, e->kid[swap ? 1 : 0], EIN__P_SUM, out);
    ein__putf(out, sum ? " %s " : ", ", name);
    ein__print_expr(p, e->kid[swap ? 0 : 1], sum ? EIN__P_PRODUCT : EIN__P_SUM, out);
    ein__put(out, group || !sum ? ")" : "");
}

static void ein__print_select(ein__printer *p, const ein__expr *e, ein__buf *out) {
    ein__put(out, "select(");
    ein__print_expr(p, e->kid[0], EIN__P_SUM, out);
    ein__putf(out, " %s ", ein__fn_table[e->fn].name);
    for (int i = 1; i < 4; i++) {
        ein__print_expr(p, e->kid[i], EIN__P_SUM, out);
        ein__put(out, i < 3 ? ", " : ")");
    }
}

static void ein__print_expr(ein__printer *p, ein__ex ex, ein__level level, ein__buf *out) {
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    if (ein__is_product(p, e)) {
        ein__print_product(p, ex, level, out);
    } else if (e->op == EIN__X_CONST) {
        ein__print_number(ein__f64_of(e->bits), out);
    } else if (e->op == EIN__X_IDX) {
        const ein__index *f = ein__ix_get(p->ctx, e->ix[0]);
        bool group = f->q > 1 && level == EIN__P_FACTOR;
        ein__put(out, group ? "(idx(" : "idx(");
        ein__print_linear(p, f, f->c, 0, out);
        if (f->q > 1) ein__putf(out, ") / %lld", (long long)f->q);
        ein__put(out, group || f->q == 1 ? ")" : "");
    } else if (e->op == EIN__X_READ) {
        if (ein__read_form_of(p, e) == EIN__RD_PLAIN) ein__print_read(p, e, false, out);
        else ein__print_select_read(p, e, out);
    } else if (e->op == EIN__X_UNARY) {
        bool minus = e->fn == EIN__NEG;
        ein__put(out, minus ? "-" : ein__fn_table[e->fn].name);
        ein__put(out, minus ? "" : "(");
        ein__print_expr(p, e->kid[0], minus ? EIN__P_FACTOR : EIN__P_SUM, out);
        ein__put(out, minus ? "" : ")");
    } else if (e->op == EIN__X_BINARY) {
        ein__print_binary(p, ex, level, out);
    } else {
        ein__print_select(p, e, out);
    }
}

// ------------------------------------------------------------------------------------ equations

// i0, i1, .. for traversal and r0, r1, .. for reductions, made longer while something else in reach
// of the equation has that name.
static void ein__name_iterators(ein__printer *p, const char *result, ein__ex *reads) {
    const ein__scope *s = p->s;
    for (uint32_t k = 0; k < s->nt + s->ns; k++) {
        char *name = p->index[k];
        snprintf(name, sizeof p->index[k], "%c%u", k < s->nt ? 'i' : 'r',
                 (unsigned)(k < s->nt ? k : k - s->nt));
        bool clash = true;
        while (clash && strlen(name) + 2 < sizeof p->index[k]) {
            clash = !strcmp(name, result);
            for (ptrdiff_t i = 0; i < arrlen(reads); i++)
                clash |= !strcmp(name, p->ctx->value[ein__ex_get(p->ctx, reads[i])->val].name);
            for (ptrdiff_t i = 0; i < arrlen(p->ctx->graph.dim); i++)
                clash |= !strcmp(name, p->ctx->graph.dim[i].name);
            if (clash) strcat(name, "_");
        }
    }
}

static int ein__by_name(const void *a, const void *b) {
    return strcmp(((const ein__buf *)a)->s, ((const ein__buf *)b)->s);
}

// Whether bare uses give the range of iterator `k`: there are some, and all agree with it.
static bool ein__range_implied(ein__printer *p, const ein__ex *reads, uint32_t k) {
    int64_t n = p->s->n[k];
    bool used = false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(p->ctx, reads[i]);
        for (uint32_t d = 0; d < e->nix; d++) {
            uint32_t slot;
            if (!ein__ix_is_iter(p->ctx, e->ix[d], &slot) || slot != k) continue;
            if (p->ctx->value[e->val].shape.d[d] != n) return false;
            used = true;
        }
    }
    return used;
}

static void ein__print_where(ein__printer *p, const ein__ex *reads, ein__buf *out) {
    const ein__scope *s = p->s;
    const char *start = " where ";
    for (uint32_t k = 0; k < s->nt + s->ns; k++) {
        if (ein__range_implied(p, reads, k)) continue;
        ein__putf(out, "%s%s in 0:%lld", start, p->index[k], (long long)s->n[k]);
        start = ", ";
    }
    ein__buf *pads = NULL;
    for (ptrdiff_t i = 0; i < arrlen(p->pad); i++) {
        if (!p->pad[i].clause) continue;
        ein__buf b = {0};
        ein__print_name(ein__val_get(p->ctx, (ein__val){p->pad[i].val})->name, &b);
        ein__put(&b, " ");
        ein__print_number(p->pad[i].value, &b);
        arrput(pads, b);
    }
    if (pads) qsort(pads, arrlenu(pads), sizeof *pads, ein__by_name);
    for (ptrdiff_t i = 0; i < arrlen(pads); i++) {
        ein__putf(out, "%spad %s", start, pads[i].s);
        ein__buf_free(&pads[i]);
        start = ", ";
    }
    arrfree(pads);
}

// The value's definition as an equation, without a line's end; inputs and weights as declarations.
EIN__FN void ein__print_value(ein_ctx *ctx, ein__val v, ein__buf *out) {
    static const char *const reduce[] = {"", "sum", "prod", "max", "min"};
    const ein__value *x = ein__val_get(ctx, v);
    if (x->kind != EIN__V_SCOPE) {
        ein__put(out, x->kind == EIN__V_INPUT ? "input " : "weight ");
        ein__print_name(x->name, out);
        ein__putf(out, ": %s[", ein__dtype_name(x->dtype));
        for (int k = 0; k < x->shape.rank; k++)
            ein__putf(out, "%s%lld", k ? "," : "", (long long)x->shape.d[k]);
        ein__put(out, "]");
        return;
    }
    ein__printer p = {.ctx = ctx, .s = ein__sc_get(ctx, x->scope)};
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, p.s->body, &reads);
    ein__name_iterators(&p, x->name, reads);
    ein__collect_pads(&p, p.s->body);
    ein__print_name(x->name, out);
    ein__put(out, "[");
    for (uint32_t k = 0; k < p.s->nt; k++) ein__putf(out, "%s%s", k ? "," : "", p.index[k]);
    ein__put(out, "] = ");
    if (p.s->reduce != EIN__R_NONE) {
        ein__putf(out, "%s(", reduce[p.s->reduce]);
        for (uint32_t k = p.s->nt; k < p.s->nt + p.s->ns; k++)
            ein__putf(out, "%s%s", k > p.s->nt ? "," : "", p.index[k]);
        ein__put(out, ") ");
        ein__print_expr(&p, p.s->body, EIN__P_PRODUCT, out);
    } else {
        ein__print_expr(&p, p.s->body, EIN__P_SUM, out);
    }
    ein__print_where(&p, reads, out);
    arrfree(p.pad);
    arrfree(reads);
}
/* ---- eval.c ---- */
// Reference interpreter in double precision: the meaning of a scope, computed the plain way. A body
// is compiled once to a list of instructions; each works on a strip, a run of consecutive values of
// one iterator, so that the cost of interpretation is shared by the strip's lanes.

enum { EIN__LANES = 256 };                   // most lanes of a strip
#define EIN__EVAL_BYTES ((int64_t)16 << 30)  // most memory for values

typedef struct ein__ev_term {
    int64_t k;
    uint32_t i;
} ein__ev_term;

// An index form over the strip: (c + sum k * iterator + sum k * integer register + step * lane) /
// q. Iterators are taken at the strip's first lane.
typedef struct ein__ev_form {
    int64_t c, q, step;
    uint32_t nterm, natom;
    bool uniform;  // the same in every lane
    ein__ev_term term[EIN__MAX_ITERS], atom[EIN__MAX_TERMS];
} ein__ev_form;

// One axis of a read: the index is form / q, inside when in [0, extent).
typedef struct ein__ev_axis {
    uint32_t form;
    int64_t extent, stride;
} ein__ev_axis;

typedef enum { EIN__EV_FLOOR = EIN__X_SELECT + 1, EIN__EV_MOD, EIN__EV_GATHER } ein__ev_op;

// Instruction k writes register k: `v`, or `w` for the integer ones (ein__ev_op). A uniform
// instruction has one lane only.
typedef struct ein__ev_ins {
    uint32_t op, fn;
    uint32_t kid[4];
    uint32_t form;  // IDX, WHEN, FLOOR, MOD; READ when affine: the address
    bool uniform, negate;
    bool affine;  // READ: indices are affine without denominators; `axis` are those to test
    uint32_t axis, naxis;
    const double *data;  // READ
    double value;        // CONST; READ: padding
    int64_t n;           // WHEN: extent; FLOOR, MOD: divisor; GATHER: extent of the values, or 0
    double *v;
    int64_t *w;
} ein__ev_ins;

typedef struct ein__ev_reg {
    uint32_t atom, reg;
} ein__ev_reg;

typedef struct ein__ev {
    ein_ctx *ctx;
    const ein__scope *s;
    double *const *data;
    uint32_t strip;    // the iterator that lanes run along; EIN__MAX_ITERS: none
    ein__ev_ins *ins;  // stb_ds arrays
    ein__ev_form *form;
    ein__ev_axis *axis;
    uint32_t *reg_of;    // register + 1 by expression id, 0: not compiled
    uint32_t *compiled;  // stb_ds array: expressions with an entry in reg_of
    ein__ev_reg *atom;   // stb_ds array: registers of floors, mods and gathers
    int lanes;
    double *memory;  // of the registers
    int64_t it[EIN__MAX_ITERS];
} ein__ev;

// ------------------------------------------------------------------------------------ compilation

static uint32_t ein__ev_expr(ein__ev *p, ein__ex ex);
static uint32_t ein__ev_atom(ein__ev *p, uint32_t atom);

static uint32_t ein__ev_add(ein__ev *p, const ein__ev_ins *ins) {
    arrput(p->ins, *ins);
    return (uint32_t)arrlen(p->ins) - 1;
}

static void ein__ev_put_iter(ein__ev *p, ein__ev_form *f, uint32_t slot, int64_t k) {
    if (slot == p->strip) {
        f->step = (int64_t)((uint64_t)f->step + (uint64_t)k);
        f->uniform = false;
    }
    uint32_t j = 0;
    while (j < f->nterm && f->term[j].i != slot) j++;
    if (j == f->nterm) f->term[f->nterm++] = (ein__ev_term){0, slot};
    f->term[j].k = (int64_t)((uint64_t)f->term[j].k + (uint64_t)k);
}

static uint32_t ein__ev_index(ein__ev *p, ein__ix ix) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    ein__ev_form r = {.c = f->c, .q = f->q, .uniform = true};
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(p->ctx, f->t[i].atom);
        if (a->kind == EIN__ITER) {
            ein__ev_put_iter(p, &r, a->slot, f->t[i].k);
        } else {
            uint32_t reg = ein__ev_atom(p, f->t[i].atom);
            r.atom[r.natom++] = (ein__ev_term){f->t[i].k, reg};
            r.uniform = r.uniform && p->ins[reg].uniform;
        }
    }
    arrput(p->form, r);
    return (uint32_t)arrlen(p->form) - 1;
}

static uint32_t ein__ev_atom(ein__ev *p, uint32_t atom) {
    for (ptrdiff_t i = 0; i < arrlen(p->atom); i++)
        if (p->atom[i].atom == atom) return p->atom[i].reg;
    const ein__atom *a = ein__atom_get(p->ctx, atom);
    ein__ev_ins ins = {.n = a->n};
    if (a->kind == EIN__GATHER) {
        ins.op = EIN__EV_GATHER;
        ins.kid[0] = ein__ev_expr(p, (ein__ex){a->ex});
        ins.uniform = p->ins[ins.kid[0]].uniform;
    } else {
        ins.op = a->kind == EIN__FLOOR ? EIN__EV_FLOOR : EIN__EV_MOD;
        ins.form = ein__ev_index(p, (ein__ix){a->ix});
        ins.uniform = p->form[ins.form].uniform;
    }
    uint32_t reg = ein__ev_add(p, &ins);
    ein__ev_reg known = {atom, reg};
    arrput(p->atom, known);
    return reg;
}

// The address of an affine read: wrapping arithmetic, since it is used in range only.
static uint32_t ein__ev_address(ein__ev *p, const ein__expr *e, const int64_t *stride) {
    ein__ev_form r = {.q = 1, .uniform = true};
    uint64_t c = 0;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(p->ctx, e->ix[k]);
        c += (uint64_t)f->c * (uint64_t)stride[k];
        for (uint32_t i = 0; i < f->n; i++)
            ein__ev_put_iter(p, &r, ein__atom_get(p->ctx, f->t[i].atom)->slot,
                             (int64_t)((uint64_t)f->t[i].k * (uint64_t)stride[k]));
    }
    r.c = (int64_t)c;
    arrput(p->form, r);
    return (uint32_t)arrlen(p->form) - 1;
}

static void ein__ev_read(ein__ev *p, const ein__expr *e, ein__ev_ins *ins) {
    const ein__shape *s = &p->ctx->value[e->val].shape;
    int64_t stride[EIN__MAX_RANK], all = 1;
    ein__ev_axis axis[EIN__MAX_RANK];
    ins->data = p->data[e->val];
    ins->value = ein__f64_of(e->bits);
    ins->affine = ins->uniform = true;
    for (uint32_t k = e->nix; k-- > 0; all *= s->d[k]) stride[k] = all;
    for (uint32_t k = 0; k < e->nix; k++)
        ins->affine &= ein__ix_affine(p->ctx, e->ix[k]) && ein__ix_get(p->ctx, e->ix[k])->q == 1;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(p->ctx, e->ix[k]);
        if (ins->affine && f->lo >= 0 && f->hi < s->d[k]) continue;
        axis[ins->naxis++] = (ein__ev_axis){ein__ev_index(p, e->ix[k]), s->d[k], stride[k]};
        ins->uniform = ins->uniform && p->form[axis[ins->naxis - 1].form].uniform;
    }
    if (ins->affine) {
        ins->form = ein__ev_address(p, e, stride);
        ins->uniform = ins->uniform && p->form[ins->form].uniform;
    }
    ins->axis = (uint32_t)arrlen(p->axis);
    for (uint32_t k = 0; k < ins->naxis; k++) arrput(p->axis, axis[k]);
}

// Register of an expression. Every part is computed in every lane; WHEN and SELECT choose, which is
// the same as not evaluating, since nothing has effects.
static uint32_t ein__ev_expr(ein__ev *p, ein__ex ex) {
    if (p->reg_of[ex.i]) return p->reg_of[ex.i] - 1;
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    ein__ev_ins ins = {.op = e->op, .fn = e->fn, .uniform = true};
    for (uint32_t i = 0; i < e->nkid; i++) {
        ins.kid[i] = ein__ev_expr(p, e->kid[i]);
        ins.uniform = ins.uniform && p->ins[ins.kid[i]].uniform;
    }
    if (e->op == EIN__X_CONST) {
        ins.value = ein__f64_of(e->bits);
    } else if (e->op == EIN__X_READ) {
        ein__ev_read(p, e, &ins);
    } else if (e->op == EIN__X_IDX || e->op == EIN__X_WHEN) {
        ins.form = ein__ev_index(p, e->ix[0]);
        ins.uniform = ins.uniform && p->form[ins.form].uniform;
        ins.n = e->n;
        ins.negate = e->negate != 0;
    }
    uint32_t reg = ein__ev_add(p, &ins);
    p->reg_of[ex.i] = reg + 1;
    arrput(p->compiled, ex.i);
    return reg;
}

// Cost of running along `slot`: elements on other cache lines, and more so on other pages, are
// slow.
static int ein__ev_stride_cost(const ein__ev *p, ein__ex *reads, uint32_t slot) {
    int cost = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(p->ctx, reads[i]);
        uint64_t stride = 0, all = 1;
        for (uint32_t k = e->nix; k-- > 0; all *= (uint64_t)p->ctx->value[e->val].shape.d[k]) {
            if (!(ein__ix_uses(p->ctx, e->ix[k]) >> slot & 1)) continue;
            int64_t coef = ein__ix_coef(p->ctx, e->ix[k], slot);
            stride += (coef ? (uint64_t)(coef < 0 ? -coef : coef) : 1) * all;
        }
        cost += stride == 0 ? 0 : stride == 1 ? 1 : stride < 8 ? 3 : stride < 512 ? 8 : 24;
    }
    return cost;
}

// The iterator with a long enough range and the least cost; else the longest.
static uint32_t ein__ev_choose_strip(const ein__ev *p) {
    enum { ENOUGH = 48 };
    ein__ex *reads = NULL;
    ein__ex_reads(p->ctx, p->s->body, &reads);
    uint32_t best = EIN__MAX_ITERS, n = p->s->nt + p->s->ns;
    int64_t length = 1;
    int cost = 0;
    for (uint32_t k = n; k-- > 0;) {
        int64_t l = p->s->n[k] < ENOUGH ? p->s->n[k] : ENOUGH;
        if (l < length || l == 1) continue;
        int c = ein__ev_stride_cost(p, reads, k);
        if (l == length && c >= cost) continue;
        best = k;
        length = l;
        cost = c;
    }
    arrfree(reads);
    return best;
}

static bool ein__ev_compile(ein__ev *p) {
    p->strip = ein__ev_choose_strip(p);
    ein__ev_expr(p, p->s->body);
    int64_t n = arrlen(p->ins), vectors = 0;
    for (int64_t i = 0; i < n; i++) vectors += !p->ins[i].uniform;
    p->lanes = EIN__LANES;
    while (p->lanes > 8 && vectors * p->lanes > 1 << 22) p->lanes /= 2;
    int64_t doubles = n - vectors + vectors * p->lanes;
    p->memory = EIN_REALLOC(NULL, (size_t)doubles * sizeof *p->memory);
    if (!p->memory) return false;
    double *at = p->memory;
    for (int64_t i = 0; i < n; i++) {
        p->ins[i].v = at;
        p->ins[i].w = (int64_t *)(void *)at;
        at += p->ins[i].uniform ? 1 : p->lanes;
    }
    return true;
}

static void ein__ev_free(ein__ev *p) {
    for (ptrdiff_t i = 0; i < arrlen(p->compiled); i++) p->reg_of[p->compiled[i]] = 0;
    arrfree(p->compiled);
    arrfree(p->ins);
    arrfree(p->form);
    arrfree(p->axis);
    arrfree(p->atom);
    EIN_FREE(p->memory);
}

// ------------------------------------------------------------------------------------ functions

EIN__FN double ein__apply_unary(ein__fn fn, double x) {
    switch ((int)fn) {
    case EIN__NEG: return -x;
    case EIN__ABS: return fabs(x);
    case EIN__RELU: return x < 0 ? 0 : x;
    case EIN__TANH: return tanh(x);
    case EIN__EXP: return exp(x);
    case EIN__LOG: return log(x);
    case EIN__SQRT: return sqrt(x);
    case EIN__RSQRT: return 1 / sqrt(x);
    case EIN__ERF: return erf(x);
    case EIN__SIGMOID: return 1 / (1 + exp(-x));
    case EIN__FLOORF: return floor(x);
    case EIN__CEILF: return ceil(x);
    case EIN__SQUARE: return x * x;
    default: return (double)NAN;
    }
}

EIN__FN double ein__apply_binary(ein__fn fn, double x, double y) {
    switch ((int)fn) {
    case EIN__ADD: return x + y;
    case EIN__SUB: return x - y;
    case EIN__MUL: return x * y;
    case EIN__DIV: return x / y;
    case EIN__POW: return pow(x, y);
    case EIN__MIN: return fmin(x, y);
    case EIN__MAX: return fmax(x, y);
    default: return (double)NAN;
    }
}

EIN__FN bool ein__apply_cmp(ein__fn fn, double x, double y) {
    switch ((int)fn) {
    case EIN__EQ: return x == y;
    case EIN__NE: return x != y;
    case EIN__LT: return x < y;
    case EIN__LE: return x <= y;
    case EIN__GT: return x > y;
    default: return x >= y;
    }
}

// ------------------------------------------------------------------------------------ one strip

// Numerator of a form at lane 0, registers left out. Sums wrap: only their final values are
// bounded.
static int64_t ein__ev_base(const ein__ev *p, const ein__ev_form *f) {
    uint64_t sum = (uint64_t)f->c;
    for (uint32_t i = 0; i < f->nterm; i++)
        sum += (uint64_t)f->term[i].k * (uint64_t)p->it[f->term[i].i];
    return (int64_t)sum;
}

static int64_t ein__ev_at(const ein__ev *p, const ein__ev_form *f, int64_t base, int lane) {
    uint64_t sum = (uint64_t)base + (uint64_t)f->step * (uint64_t)lane;
    for (uint32_t i = 0; i < f->natom; i++) {
        const ein__ev_ins *a = &p->ins[f->atom[i].i];
        sum += (uint64_t)f->atom[i].k * (uint64_t)a->w[a->uniform ? 0 : lane];
    }
    return (int64_t)sum;
}

// Lanes [from, to) of m in which every tested axis of an affine read is inside.
static void ein__ev_inside(const ein__ev *p, const ein__ev_ins *r, int m, int *from, int *to) {
    int64_t lo = 0, hi = m;
    for (uint32_t k = 0; k < r->naxis; k++) {
        const ein__ev_axis *a = &p->axis[r->axis + k];
        const ein__ev_form *f = &p->form[a->form];
        int64_t base = ein__ev_base(p, f), step = f->step, last = a->extent - 1;
        if (!step) {
            if (base < 0 || base > last) hi = lo;
            continue;
        }
        int64_t first = step > 0 ? -ein__floordiv(base, step) : -ein__floordiv(base - last, step);
        int64_t end = ein__floordiv(step > 0 ? last - base : -base, step) + 1;
        if (first > lo) lo = first;
        if (end < hi) hi = end;
    }
    if (hi <= lo) hi = lo = 0;
    *from = (int)lo;
    *to = (int)hi;
}

static void ein__ev_run_affine(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    int from, to;
    ein__ev_inside(p, r, m, &from, &to);
    for (int l = 0; l < from; l++) r->v[l] = r->value;
    for (int l = to; l < m; l++) r->v[l] = r->value;
    if (from == to) return;
    const double *at = r->data + (ein__ev_base(p, f) + f->step * from);
    for (int l = from; l < to; l++, at += f->step) r->v[l] = *at;
}

static void ein__ev_run_read(const ein__ev *p, const ein__ev_ins *r, int m) {
    int64_t base[EIN__MAX_RANK];
    for (uint32_t k = 0; k < r->naxis; k++)
        base[k] = ein__ev_base(p, &p->form[p->axis[r->axis + k].form]);
    for (int l = 0; l < m; l++) {
        int64_t address = 0;
        bool inside = true;
        for (uint32_t k = 0; k < r->naxis && inside; k++) {
            const ein__ev_axis *a = &p->axis[r->axis + k];
            int64_t x = ein__ev_at(p, &p->form[a->form], base[k], l), q = p->form[a->form].q;
            inside = q == 1 || x % q == 0;
            x /= q;
            inside = inside && x >= 0 && x < a->extent;
            address += inside ? x * a->stride : 0;
        }
        r->v[l] = inside ? r->data[address] : r->value;
    }
}

// Positions held by a tensor. What is no position at all becomes one outside of everything.
static void ein__ev_run_gather(const ein__ev *p, const ein__ev_ins *r, int m) {
    const double *x = p->ins[r->kid[0]].v;
    int64_t limit = EIN__INDEX_LIMIT >> 8;
    for (int l = 0; l < m; l++) {
        double v = trunc(x[l]);
        if (!(v >= -(double)limit && v <= (double)limit)) v = -(double)limit;
        if (r->n && v < 0) v = -1;
        if (r->n && v > (double)r->n) v = (double)r->n;
        r->w[l] = (int64_t)v;
    }
}

static void ein__ev_run_index(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    int64_t base = ein__ev_base(p, f);
    for (int l = 0; l < m; l++) {
        int64_t x = ein__ev_at(p, f, base, l);
        if (r->op == EIN__EV_FLOOR) r->w[l] = ein__floordiv(x, r->n);
        else if (r->op == EIN__EV_MOD) r->w[l] = ein__floormod(x, r->n);
        else r->v[l] = f->q == 1 ? (double)x : (double)x / (double)f->q;
    }
}

static void ein__ev_run_when(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    const ein__ev_ins *a = &p->ins[r->kid[0]];
    int64_t base = ein__ev_base(p, f);
    for (int l = 0; l < m; l++) {
        int64_t x = ein__ev_at(p, f, base, l);
        bool is = x % f->q == 0 && x >= 0 && x / f->q < r->n;
        r->v[l] = is != r->negate ? a->v[a->uniform ? 0 : l] : 0;
    }
}

static void ein__ev_run_binary(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_ins *a = &p->ins[r->kid[0]], *b = &p->ins[r->kid[1]];
    const double *x = a->v, *y = b->v;
    double *v = r->v;
    int sx = a->uniform ? 0 : 1, sy = b->uniform ? 0 : 1;
    switch ((int)r->fn) {
    case EIN__ADD:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] + y[l * sy];
        break;
    case EIN__SUB:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] - y[l * sy];
        break;
    case EIN__MUL:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] * y[l * sy];
        break;
    case EIN__DIV:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] / y[l * sy];
        break;
    default:
        for (int l = 0; l < m; l++) v[l] = ein__apply_binary((ein__fn)r->fn, x[l * sx], y[l * sy]);
    }
}

static void ein__ev_run_select(const ein__ev *p, const ein__ev_ins *r, int m) {
    const double *k[4];
    int step[4];
    for (int i = 0; i < 4; i++) {
        k[i] = p->ins[r->kid[i]].v;
        step[i] = p->ins[r->kid[i]].uniform ? 0 : 1;
    }
    for (int l = 0; l < m; l++) {
        bool is = ein__apply_cmp((ein__fn)r->fn, k[0][l * step[0]], k[1][l * step[1]]);
        r->v[l] = is ? k[2][l * step[2]] : k[3][l * step[3]];
    }
}

// Runs the program for the m lanes that begin at p->it.
static void ein__ev_run(const ein__ev *p, int lanes) {
    ptrdiff_t n = arrlen(p->ins);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ein__ev_ins *r = &p->ins[i];
        int m = r->uniform ? 1 : lanes;
        switch (r->op) {
        case EIN__X_CONST: r->v[0] = r->value; break;
        case EIN__X_READ:
            if (r->affine) ein__ev_run_affine(p, r, m);
            else ein__ev_run_read(p, r, m);
            break;
        case EIN__X_UNARY: {
            const double *x = p->ins[r->kid[0]].v;
            for (int l = 0; l < m; l++) r->v[l] = ein__apply_unary((ein__fn)r->fn, x[l]);
            break;
        }
        case EIN__X_BINARY: ein__ev_run_binary(p, r, m); break;
        case EIN__X_WHEN: ein__ev_run_when(p, r, m); break;
        case EIN__X_SELECT: ein__ev_run_select(p, r, m); break;
        case EIN__EV_GATHER: ein__ev_run_gather(p, r, m); break;
        default: ein__ev_run_index(p, r, m);
        }
    }
}

// ------------------------------------------------------------------------------------ one scope

static double ein__reduce_start(uint32_t reduce) {
    return reduce == EIN__R_PROD  ? 1
           : reduce == EIN__R_MAX ? -(double)INFINITY
           : reduce == EIN__R_MIN ? (double)INFINITY
                                  : 0;
}

// Adds m lanes of the body to the accumulators: lane by lane, or all to the first one.
static void ein__ev_accumulate(const ein__ev *p, int m, double *acc) {
    const ein__ev_ins *r = &arrlast(p->ins);
    int sv = r->uniform ? 0 : 1, sa = p->strip < p->s->nt ? 1 : 0;
    const double *v = r->v;
    switch (p->s->reduce) {
    case EIN__R_SUM:
        for (int l = 0; l < m; l++) acc[l * sa] += v[l * sv];
        break;
    case EIN__R_PROD:
        for (int l = 0; l < m; l++) acc[l * sa] *= v[l * sv];
        break;
    case EIN__R_MAX:
        for (int l = 0; l < m; l++) acc[l * sa] = fmax(acc[l * sa], v[l * sv]);
        break;
    case EIN__R_MIN:
        for (int l = 0; l < m; l++) acc[l * sa] = fmin(acc[l * sa], v[l * sv]);
        break;
    default:
        for (int l = 0; l < m; l++) acc[l * sa] = v[l * sv];
    }
}

// A sum of products of two affine reads, the body of every contraction.
static bool ein__ev_is_product(const ein__ev *p) {
    const ein__ev_ins *r = p->ins;
    return arrlen(p->ins) == 3 && p->s->reduce == EIN__R_SUM && r[2].op == EIN__X_BINARY &&
           r[2].fn == EIN__MUL && r[0].op == EIN__X_READ && r[0].affine && r[1].op == EIN__X_READ &&
           r[1].affine && !r[2].uniform;
}

// One operand of such a product: lane l is at[(l - from) * step] for l in [from, to), else `pad`.
typedef struct ein__ev_factor {
    const double *at;
    int64_t step;
    int from, to;
    double pad;
} ein__ev_factor;

static ein__ev_factor ein__ev_factor_of(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    ein__ev_factor x = {.at = r->data, .step = f->step, .pad = r->value};
    ein__ev_inside(p, r, m, &x.from, &x.to);
    if (x.from < x.to) x.at = r->data + (ein__ev_base(p, f) + f->step * x.from);
    return x;
}

static double ein__ev_factor_at(const ein__ev_factor *x, int l) {
    return l >= x->from && l < x->to ? x->at[(l - x->from) * x->step] : x->pad;
}

// ein__ev_run and ein__ev_accumulate for such a body.
static void ein__ev_multiply(const ein__ev *p, int m, double *acc) {
    const ein__ev_factor a = ein__ev_factor_of(p, &p->ins[0], m);
    const ein__ev_factor b = ein__ev_factor_of(p, &p->ins[1], m);
    int from = a.from > b.from ? a.from : b.from, to = a.to < b.to ? a.to : b.to;
    int sum = p->strip < p->s->nt ? 0 : 1;
    if (to <= from) from = to = 0;
    for (int l = 0; l < from; l++)
        acc[sum ? 0 : l] += ein__ev_factor_at(&a, l) * ein__ev_factor_at(&b, l);
    for (int l = to; l < m; l++)
        acc[sum ? 0 : l] += ein__ev_factor_at(&a, l) * ein__ev_factor_at(&b, l);
    if (from == to) return;
    int64_t sx = a.step, sy = b.step;
    const double *x = a.at + sx * (from - a.from), *y = b.at + sy * (from - b.from);
    double total = 0, *out = acc + (sum ? 0 : from);
    m = to - from;
    if (sum) {
        for (int l = 0; l < m; l++) total += x[l * sx] * y[l * sy];
        *acc += total;
    } else if (sx == 1 && sy == 0) {
        for (int l = 0; l < m; l++) out[l] += x[l] * *y;
    } else if (sx == 0 && sy == 1) {
        for (int l = 0; l < m; l++) out[l] += *x * y[l];
    } else {
        for (int l = 0; l < m; l++) out[l] += x[l * sx] * y[l * sy];
    }
}

// Steps p->it through slots [from, to) except the strip's, the last one fastest; false at the end.
static bool ein__ev_next(ein__ev *p, uint32_t from, uint32_t to) {
    for (uint32_t k = to; k-- > from;) {
        if (k == p->strip) continue;
        if (++p->it[k] < p->s->n[k]) return true;
        p->it[k] = 0;
    }
    return false;
}

// The whole reduction for m lanes of results from p->it on (one result when the strip is reduced).
static void ein__ev_reduce(ein__ev *p, int m, bool product, double *acc) {
    const ein__scope *s = p->s;
    uint32_t all = s->nt + s->ns;
    bool reduced = p->strip >= s->nt && p->strip < all;
    int lanes = m;
    for (int l = 0; l < m; l++) acc[l] = ein__reduce_start(s->reduce);
    do {
        int64_t end = reduced ? s->n[p->strip] : 1;
        for (int64_t at = 0; at < end; at += p->lanes) {
            if (reduced) {
                p->it[p->strip] = at;
                lanes = end - at < p->lanes ? (int)(end - at) : p->lanes;
            }
            if (product) {
                ein__ev_multiply(p, lanes, acc);
            } else {
                ein__ev_run(p, lanes);
                ein__ev_accumulate(p, lanes, acc);
            }
        }
        if (reduced) p->it[p->strip] = 0;
    } while (ein__ev_next(p, s->nt, all));
}

static bool ein__ev_scope(ein__ev *p, double *out) {
    const ein__scope *s = p->s;
    double acc[EIN__LANES];
    int64_t stride[EIN__MAX_ITERS] = {0}, all = 1;
    if (!ein__ev_compile(p)) return false;
    bool product = ein__ev_is_product(p), lanes = p->strip < s->nt;
    for (uint32_t k = s->nt; k-- > 0; all *= s->n[k]) stride[k] = all;
    int64_t end = lanes ? s->n[p->strip] : 1, step = lanes ? stride[p->strip] : 0;
    do {
        for (int64_t at = 0; at < end; at += p->lanes) {
            int m = end - at < p->lanes ? (int)(end - at) : p->lanes;
            if (lanes) p->it[p->strip] = at;
            ein__ev_reduce(p, m, product, acc);
            int64_t address = 0;
            for (uint32_t k = 0; k < s->nt; k++) address += stride[k] * p->it[k];
            for (int l = 0; l < m; l++) out[address + step * l] = acc[l];
        }
        if (lanes) p->it[p->strip] = 0;
    } while (ein__ev_next(p, 0, s->nt));
    return true;
}

// ------------------------------------------------------------------------------------ values

typedef struct ein__evaluator {
    ein_ctx *ctx;
    double **data;
    ein__val *order;    // stb_ds array: values to compute, operands first
    uint32_t *readers;  // by value: definitions in `order` that still read it
    bool *keep;         // by value: wanted, or given by the caller
    char *mark;         // by value: 1 on the stack, 2 in `order`
    uint32_t *reg_of;   // by expression: see ein__ev
    int64_t bytes;      // of the arrays alive
} ein__evaluator;

static ein__ex *ein__reads_of_value(ein_ctx *ctx, ein__val v) {
    ein__ex *reads = NULL;
    const ein__value *p = ein__val_get(ctx, v);
    if (p->kind == EIN__V_SCOPE) ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body, &reads);
    return reads;
}

// Appends what `want` needs to the order. Depth first with a stack of its own: chains of values are
// as long as models are.
static bool ein__order_values(ein__evaluator *z, ein__val want) {
    ein_ctx *ctx = z->ctx;
    ein__val *stack = NULL;
    bool ok = true;
    arrput(stack, want);
    while (ok && arrlen(stack)) {
        ein__val v = arrlast(stack);
        if (z->data[v.i] || z->mark[v.i] == 2) {
            (void)arrpop(stack);
            continue;
        }
        if (ein__val_get(ctx, v)->kind != EIN__V_SCOPE) {
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "'%s' has no values",
                       ein__val_get(ctx, v)->name);
            ok = false;
            continue;
        }
        ein__ex *reads = ein__reads_of_value(ctx, v);
        if (z->mark[v.i] == 1) {
            (void)arrpop(stack);
            z->mark[v.i] = 2;
            arrput(z->order, v);
            for (ptrdiff_t i = 0; i < arrlen(reads); i++)
                z->readers[ein__ex_get(ctx, reads[i])->val]++;
        } else {
            z->mark[v.i] = 1;
            for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
                ein__val r = {ein__ex_get(ctx, reads[i])->val};
                if (!z->mark[r.i]) arrput(stack, r);
            }
        }
        arrfree(reads);
    }
    arrfree(stack);
    return ok;
}

static int64_t ein__value_bytes(const ein_ctx *ctx, ein__val v) {
    return ein__elements(&ein__val_get(ctx, v)->shape) * (int64_t)sizeof(double);
}

static bool ein__compute_value(ein__evaluator *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    int64_t bytes = ein__value_bytes(ctx, v);
    double *out = NULL;
    z->bytes += bytes;
    if (z->bytes <= EIN__EVAL_BYTES) out = EIN_REALLOC(NULL, (size_t)(bytes ? bytes : 1));
    if (!out) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0},
                   "evaluating '%s' takes too much memory: "
                   "%lld bytes for all values",
                   ein__val_get(ctx, v)->name, (long long)z->bytes);
        return false;
    }
    z->data[v.i] = out;
    ein__ev p = {.ctx = ctx,
                 .s = ein__sc_get(ctx, ein__val_get(ctx, v)->scope),
                 .data = z->data,
                 .reg_of = z->reg_of};
    bool ok = ein__ev_scope(&p, out);
    ein__ev_free(&p);
    if (!ok) ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "out of memory");
    ein__ex *reads = ein__reads_of_value(ctx, v);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        uint32_t r = ein__ex_get(ctx, reads[i])->val;
        if (--z->readers[r] || z->keep[r]) continue;
        EIN_FREE(z->data[r]);
        z->data[r] = NULL;
        z->bytes -= ein__value_bytes(ctx, (ein__val){r});
    }
    arrfree(reads);
    return ok;
}

// Computes the wanted values into data[id]. The caller's own arrays (of inputs and weights at
// least) are in `data` already and stay; other entries are NULL. Results are dense, row-major, and
// the caller frees them with EIN_FREE. After a failure nothing new is left in `data`.
EIN__FN bool ein__eval_values(ein_ctx *ctx, const ein__val *want, int nwant, double **data) {
    size_t n = arrlenu(ctx->value), nex = arrlenu(ctx->exprs.rec);
    ein__evaluator z = {.ctx = ctx, .data = data};
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        arrput(z.readers, 0);
        arrput(z.keep, data[i] != NULL);
        arrput(z.mark, 0);
    }
    for (size_t i = 0; i < nex + !nex; i++) arrput(z.reg_of, 0);
    for (int i = 0; ok && i < nwant; i++) ok = ein__order_values(&z, want[i]);
    for (int i = 0; i < nwant; i++) z.keep[want[i].i] = true;
    ptrdiff_t done = 0;
    for (; ok && done < arrlen(z.order); done++) ok = ein__compute_value(&z, z.order[done]);
    for (ptrdiff_t i = 0; !ok && i < done; i++) {
        EIN_FREE(data[z.order[i].i]);
        data[z.order[i].i] = NULL;
    }
    arrfree(z.order);
    arrfree(z.readers);
    arrfree(z.keep);
    arrfree(z.mark);
    arrfree(z.reg_of);
    return ok;
}
/* ---- evalp.c ---- */
// Proof by evaluation: expressions over the field of 2^61 - 1 elements. Inputs are random elements,
// so two polynomials that agree at random positions are equal but for a chance of degree / 2^61.
//
// What has no meaning in the field is interpreted so that the laws that rules rely on hold and no
// others do: exp, sqrt and so on are keyed hashes of their argument. max and min take the larger
// and smaller element of a random total order (-inf first, inf last, small integers among
// themselves as usual), and comparisons use the same order: a lattice, for which max(max(a,b),c), a
// maximum split in two or padded by -inf, relu(x) = max(x, 0) come out equal, and max(a,b) + c does
// not meet max(a+c,b+c).

#define EIN__PRIME (((uint64_t)1 << 61) - 1)
#define EIN__PROOF_STEPS ((int64_t)1 << 32)  // most bodies evaluated: beyond, a proof takes hours
enum { EIN__PROOF_DEPTH = 2000 };            // longest chain of values: each takes the C stack

typedef uint64_t ein__fp;  // in [0, EIN__PRIME)
__extension__ typedef unsigned __int128 ein__u128;

static ein__fp ein__fp_add(ein__fp a, ein__fp b) {
    uint64_t s = a + b;
    return s >= EIN__PRIME ? s - EIN__PRIME : s;
}

static ein__fp ein__fp_neg(ein__fp a) { return a ? EIN__PRIME - a : 0; }

static ein__fp ein__fp_mul(ein__fp a, ein__fp b) {
    ein__u128 p = (ein__u128)a * b;
    return ein__fp_add((uint64_t)p & EIN__PRIME, (uint64_t)(p >> 61));
}

static ein__fp ein__fp_power(ein__fp a, uint64_t n) {
    ein__fp r = 1;
    for (; n; n >>= 1, a = ein__fp_mul(a, a))
        if (n & 1) r = ein__fp_mul(r, a);
    return r;
}

static ein__fp ein__fp_int(int64_t v) {
    uint64_t m = (v < 0 ? 0 - (uint64_t)v : (uint64_t)v) % EIN__PRIME;
    return v < 0 ? ein__fp_neg(m) : m;
}

// ------------------------------------------------------------------------------------ memory

typedef struct ein__memo_slot {
    uint64_t position;
    uint32_t val;
    uint32_t used;
    ein__fp value;
} ein__memo_slot;

typedef struct ein__proof {
    ein_ctx *ctx;
    uint64_t key;
    const bool *fresh;     // by value: random elements whatever its definition; or NULL
    ein__memo_slot *slot;  // elements known: open addressing, at most half full
    uint32_t mask, used;
    int64_t steps;
    int depth;
    bool failed;
    bool ordered;  // two elements were compared
} ein__proof;

enum { EIN__MEMO_FIRST = 1 << 10, EIN__MEMO_LAST = 1 << 22 };

static ein__memo_slot *ein__memo_find(ein__proof *z, uint32_t val, uint64_t position) {
    uint64_t h = ein__splitmix(position * 0x9E3779B97F4A7C15ull + val);
    uint32_t at = (uint32_t)h & z->mask;
    while (z->slot[at].used && (z->slot[at].val != val || z->slot[at].position != position))
        at = (at + 1) & z->mask;
    return &z->slot[at];
}

static void ein__memo_resize(ein__proof *z, uint32_t size) {
    ein__memo_slot *old = z->slot;
    uint32_t n = old ? z->mask + 1 : 0;
    z->slot = EIN_REALLOC(NULL, size * sizeof *z->slot);
    if (!z->slot) EIN_OUT_OF_MEMORY();
    memset(z->slot, 0, size * sizeof *z->slot);
    z->mask = size - 1;
    for (uint32_t i = 0; i < n; i++)
        if (old[i].used) *ein__memo_find(z, old[i].val, old[i].position) = old[i];
    EIN_FREE(old);
}

// Once the table is as large as it gets, it starts anew.
static void ein__memo_put(ein__proof *z, uint32_t val, uint64_t position, ein__fp value) {
    if (z->used * 2 > z->mask) {
        if (z->mask + 1 < EIN__MEMO_LAST) {
            ein__memo_resize(z, (z->mask + 1) * 2);
        } else {
            memset(z->slot, 0, (z->mask + 1) * sizeof *z->slot);
            z->used = 0;
        }
    }
    ein__memo_slot *s = ein__memo_find(z, val, position);
    z->used += !s->used;
    *s = (ein__memo_slot){position, val, 1, value};
}

// ------------------------------------------------------------------------------------ functions

static ein__fp ein__fp_hash(const ein__proof *z, uint64_t what, ein__fp a, ein__fp b) {
    uint64_t h = ein__splitmix(z->key ^ (what * 0xD6E8FEB86659FD93ull));
    h = ein__splitmix(h ^ a);
    return ein__splitmix(h + 0x632BE59BD9B4E019ull * b) % EIN__PRIME;
}

enum { EIN__HASH_INF = 1000, EIN__HASH_RANK, EIN__HASH_INPUT, EIN__HASH_NUMBER };

static ein__fp ein__fp_inf(const ein__proof *z) { return ein__fp_hash(z, EIN__HASH_INF, 0, 0); }

static ein__fp ein__fp_inverse(const ein__proof *z, ein__fp a) {
    return a ? ein__fp_power(a, EIN__PRIME - 2) : ein__fp_hash(z, EIN__DIV, 0, 0);
}

// Doubles are integers times powers of two, and 2^61 = 1.
static ein__fp ein__fp_number(const ein__proof *z, double v) {
    if (v - v != 0) {
        if (v != v) return ein__fp_hash(z, EIN__HASH_NUMBER, 0, 0);
        return v > 0 ? ein__fp_inf(z) : ein__fp_neg(ein__fp_inf(z));
    }
    int e;
    int64_t m = (int64_t)ldexp(frexp(v, &e), 53);
    return ein__fp_mul(ein__fp_int(m), ein__fp_power(2, (uint64_t)ein__floormod(e - 53, 61)));
}

// The integer that an element stands for, when it is a small one.
static bool ein__fp_small(ein__fp a, int64_t *v) {
    const uint64_t limit = (uint64_t)1 << 40;
    *v = a < limit ? (int64_t)a : -(int64_t)(EIN__PRIME - a);
    return a < limit || EIN__PRIME - a < limit;
}

static bool ein__fp_less(ein__proof *z, ein__fp a, ein__fp b) {
    ein__fp inf = ein__fp_inf(z);
    int64_t x, y;
    z->ordered = true;
    if (a == b) return false;
    if (a == inf || b == ein__fp_neg(inf)) return false;
    if (b == inf || a == ein__fp_neg(inf)) return true;
    bool sa = ein__fp_small(a, &x), sb = ein__fp_small(b, &y);
    if (sa && sb) return x < y;
    ein__fp ra = sa ? EIN__PRIME / 2 : ein__fp_hash(z, EIN__HASH_RANK, a, 0);
    ein__fp rb = sb ? EIN__PRIME / 2 : ein__fp_hash(z, EIN__HASH_RANK, b, 0);
    return ra != rb ? ra < rb : a < b;
}

static ein__fp ein__fp_max(ein__proof *z, ein__fp a, ein__fp b) {
    return ein__fp_less(z, a, b) ? b : a;
}

static ein__fp ein__fp_min(ein__proof *z, ein__fp a, ein__fp b) {
    return ein__fp_less(z, a, b) ? a : b;
}

static ein__fp ein__fp_unary(ein__proof *z, ein__fn fn, ein__fp x) {
    int64_t small;
    switch ((int)fn) {
    case EIN__NEG: return ein__fp_neg(x);
    case EIN__SQUARE: return ein__fp_mul(x, x);
    case EIN__RELU: return ein__fp_max(z, x, 0);
    case EIN__ABS: return ein__fp_max(z, x, ein__fp_neg(x));
    case EIN__FLOORF:
    case EIN__CEILF:
        if (ein__fp_small(x, &small)) return x;
        break;
    case EIN__RSQRT: return ein__fp_inverse(z, ein__fp_hash(z, EIN__SQRT, x, 0));
    case EIN__SIGMOID:
        return ein__fp_inverse(z, ein__fp_add(1, ein__fp_hash(z, EIN__EXP, ein__fp_neg(x), 0)));
    default: break;
    }
    return ein__fp_hash(z, (uint64_t)fn, x, 0);
}

static ein__fp ein__fp_binary(ein__proof *z, ein__fn fn, ein__fp x, ein__fp y) {
    switch ((int)fn) {
    case EIN__ADD: return ein__fp_add(x, y);
    case EIN__SUB: return ein__fp_add(x, ein__fp_neg(y));
    case EIN__MUL: return ein__fp_mul(x, y);
    case EIN__DIV: return ein__fp_mul(x, ein__fp_inverse(z, y));
    case EIN__MIN: return ein__fp_min(z, x, y);
    case EIN__MAX: return ein__fp_max(z, x, y);
    case EIN__POW:
        if (y <= 64) return ein__fp_power(x, y);
        break;
    default: break;
    }
    return ein__fp_hash(z, (uint64_t)fn, x, y);
}

static bool ein__fp_compare(ein__proof *z, ein__fn fn, ein__fp x, ein__fp y) {
    switch ((int)fn) {
    case EIN__EQ: return x == y;
    case EIN__NE: return x != y;
    case EIN__LT: return ein__fp_less(z, x, y);
    case EIN__LE: return !ein__fp_less(z, y, x);
    case EIN__GT: return ein__fp_less(z, y, x);
    default: return !ein__fp_less(z, x, y);
    }
}

// ------------------------------------------------------------------------------------ evaluation

static ein__fp ein__proof_expr(ein__proof *z, ein__ex ex, const int64_t *it);

// Numerator of a form. What is no position at all is one outside of everything.
static int64_t ein__proof_index(ein__proof *z, ein__ix ix, const int64_t *it) {
    const ein__index *f = ein__ix_get(z->ctx, ix);
    uint64_t sum = (uint64_t)f->c;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(z->ctx, f->t[i].atom);
        int64_t v;
        if (a->kind == EIN__ITER) {
            v = it[a->slot];
        } else if (a->kind == EIN__GATHER) {
            if (!ein__fp_small(ein__proof_expr(z, (ein__ex){a->ex}, it), &v))
                v = -(EIN__INDEX_LIMIT >> 8);
            if (a->n && (v < 0 || v >= a->n)) v = v < 0 ? -1 : a->n;
        } else {
            v = ein__proof_index(z, (ein__ix){a->ix}, it);
            v = a->kind == EIN__FLOOR ? ein__floordiv(v, a->n) : ein__floormod(v, a->n);
        }
        sum += (uint64_t)f->t[i].k * (uint64_t)v;
    }
    return (int64_t)sum;
}

static ein__fp ein__proof_value(ein__proof *z, uint32_t val, const int64_t *at);

static ein__fp ein__proof_read(ein__proof *z, const ein__expr *e, const int64_t *it) {
    const ein__shape *s = &z->ctx->value[e->val].shape;
    int64_t at[EIN__MAX_RANK];
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t x = ein__proof_index(z, e->ix[k], it), q = ein__ix_get(z->ctx, e->ix[k])->q;
        at[k] = x / q;
        if (x % q || at[k] < 0 || at[k] >= s->d[k]) return ein__fp_number(z, ein__f64_of(e->bits));
    }
    return ein__proof_value(z, e->val, at);
}

static ein__fp ein__proof_expr(ein__proof *z, ein__ex ex, const int64_t *it) {
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    switch ((ein__xop)e->op) {
    case EIN__X_CONST: return ein__fp_number(z, ein__f64_of(e->bits));
    case EIN__X_IDX: {
        ein__fp x = ein__fp_int(ein__proof_index(z, e->ix[0], it));
        int64_t q = ein__ix_get(z->ctx, e->ix[0])->q;
        return q == 1 ? x : ein__fp_mul(x, ein__fp_inverse(z, ein__fp_int(q)));
    }
    case EIN__X_READ: return ein__proof_read(z, e, it);
    case EIN__X_UNARY: return ein__fp_unary(z, (ein__fn)e->fn, ein__proof_expr(z, e->kid[0], it));
    case EIN__X_BINARY: {
        ein__fp x = ein__proof_expr(z, e->kid[0], it);
        return ein__fp_binary(z, (ein__fn)e->fn, x, ein__proof_expr(z, e->kid[1], it));
    }
    case EIN__X_WHEN: {
        int64_t x = ein__proof_index(z, e->ix[0], it), q = ein__ix_get(z->ctx, e->ix[0])->q;
        bool is = x % q == 0 && x >= 0 && x / q < e->n;
        return is != (e->negate != 0) ? ein__proof_expr(z, e->kid[0], it) : 0;
    }
    case EIN__X_SELECT: {
        ein__fp x = ein__proof_expr(z, e->kid[0], it), y = ein__proof_expr(z, e->kid[1], it);
        return ein__proof_expr(z, e->kid[ein__fp_compare(z, (ein__fn)e->fn, x, y) ? 2 : 3], it);
    }
    default: return 0;
    }
}

static ein__fp ein__proof_scope(ein__proof *z, const ein__scope *s, const int64_t *at) {
    int64_t it[EIN__MAX_ITERS] = {0};
    for (uint32_t k = 0; k < s->nt; k++) it[k] = at[k];
    ein__fp inf = ein__fp_inf(z), acc = s->reduce == EIN__R_PROD  ? 1
                                        : s->reduce == EIN__R_MAX ? ein__fp_neg(inf)
                                        : s->reduce == EIN__R_MIN ? inf
                                                                  : 0;
    bool more = true;
    while (more && !z->failed) {
        if (++z->steps > EIN__PROOF_STEPS) {
            ein__error(z->ctx, EIN_RESOURCES, (ein__pos){0, 0}, "the proof takes too long");
            z->failed = true;
        }
        ein__fp x = ein__proof_expr(z, s->body, it);
        acc = s->reduce == EIN__R_PROD  ? ein__fp_mul(acc, x)
              : s->reduce == EIN__R_MAX ? ein__fp_max(z, acc, x)
              : s->reduce == EIN__R_MIN ? ein__fp_min(z, acc, x)
                                        : ein__fp_add(acc, x);
        more = false;
        for (uint32_t k = s->nt + s->ns; !more && k-- > s->nt;) {
            more = ++it[k] < s->n[k];
            if (!more) it[k] = 0;
        }
    }
    return acc;
}

// Elements of integer tensors are small integers, since they may serve as positions.
static ein__fp ein__proof_input(const ein__proof *z, uint32_t val, uint64_t position) {
    ein__dtype t = z->ctx->value[val].dtype;
    ein__fp x = ein__fp_hash(z, EIN__HASH_INPUT, val, position);
    bool integer = t == EIN__I8 || t == EIN__I32 || t == EIN__I64;
    return t == EIN__BOOL ? x & 1 : integer ? x & 15 : x;
}

// Element `at` of a value, inside its box.
static ein__fp ein__proof_value(ein__proof *z, uint32_t val, const int64_t *at) {
    const ein__value *v = &z->ctx->value[val];
    uint64_t position = 0;
    for (int k = 0; k < v->shape.rank; k++)
        position = position * (uint64_t)v->shape.d[k] + (uint64_t)at[k];
    if (v->kind != EIN__V_SCOPE || (z->fresh && z->fresh[val]))
        return ein__proof_input(z, val, position);
    const ein__scope *s = ein__sc_get(z->ctx, v->scope);
    // A copy costs less than finding it.
    bool keep = s->reduce != EIN__R_NONE || ein__ex_get(z->ctx, s->body)->op != EIN__X_READ;
    if (keep) {
        const ein__memo_slot *known = ein__memo_find(z, val, position);
        if (known->used) return known->value;
    }
    if (z->failed || ++z->depth > EIN__PROOF_DEPTH) {
        if (!z->failed)
            ein__error(z->ctx, EIN_RESOURCES, (ein__pos){0, 0},
                       "the proof of '%s' goes back over too "
                       "many values",
                       v->name);
        z->failed = true;
        return 0;
    }
    ein__fp x = ein__proof_scope(z, s, at);
    z->depth--;
    if (keep && !z->failed) ein__memo_put(z, val, position, x);
    return x;
}

// Compares `n` elements of a and b, all of them or samples, under one key.
static bool ein__proof_round(ein__proof *z, ein__val a, ein__val b, int64_t n, bool all,
                             uint64_t key) {
    const ein__shape *s = &z->ctx->value[a.i].shape;
    z->key = ein__splitmix(key);
    memset(z->slot, 0, (z->mask + 1) * sizeof *z->slot);
    z->used = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at[EIN__MAX_RANK] = {0};
        uint64_t position = (uint64_t)i;
        for (int k = s->rank; k-- > 0;) {
            uint64_t d = (uint64_t)s->d[k];
            if (!all) position = ein__splitmix(z->key + (uint64_t)(i * EIN__MAX_RANK + k));
            at[k] = (int64_t)(position % d);
            position /= d;
        }
        ein__fp x = ein__proof_value(z, a.i, at);
        if (z->failed || x != ein__proof_value(z, b.i, at) || z->failed) return false;
    }
    return true;
}

// Whether values a and b, of one shape, are the same function of inputs and weights: compared at
// `samples` random positions, or at all of them when samples <= 0. `fresh` (by value id, or NULL)
// makes values inputs of the proof, which then covers what lies between. False also after an error.
// An order of elements is one bit where polynomials have 61: proofs that need it take more rounds.
EIN__FN bool ein__evalp_equal_from(ein_ctx *ctx, ein__val a, ein__val b, int samples, uint64_t seed,
                                   const bool *fresh) {
    enum { ORDERS = 16 };
    const ein__shape *s = &ctx->value[a.i].shape, *t = &ctx->value[b.i].shape;
    int64_t n = ein__elements(s);
    if (s->rank != t->rank || n > EIN__MAX_ELEMENTS) return false;
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] != t->d[k]) return false;
    ein__proof z = {.ctx = ctx, .fresh = fresh};
    ein__memo_resize(&z, EIN__MEMO_FIRST);
    bool all = samples <= 0 || samples >= n, equal = true;
    for (int round = 0; equal && round < (z.ordered ? ORDERS : 1); round++)
        equal = ein__proof_round(&z, a, b, all ? n : samples, all,
                                 ein__splitmix(seed) + (uint64_t)round);
    EIN_FREE(z.slot);
    return equal;
}

EIN__FN bool ein__evalp_equal(ein_ctx *ctx, ein__val a, ein__val b, int samples, uint64_t seed) {
    return ein__evalp_equal_from(ctx, a, b, samples, seed, NULL);
}
/* ---- lower.c ---- */
// Graph -> expressions. Every node, operator or equation, becomes tensor values: one reduction at
// the top of each, or none. After this module nothing knows operators' names.

typedef struct ein__bound_slot {
    const char *name;
    int64_t lo, n;
    int slot;
} ein__bound_slot;

typedef struct ein__lowerer {
    ein_ctx *ctx;
    const ein__equation *eq;
    ein__pos pos;  // of the node, for equations that have no place of their own
    const ein__operand *operand;
    const ein__ranges *ranges;
    const char *base;  // name that inner values derive theirs from
    int node, tensor;
    int nbind;
    ein__bound_slot bind[2 * EIN__MAX_ITERS];
} ein__lowerer;

static ein__pos ein__lower_pos(const ein__lowerer *l, ein__pos pos) {
    return pos.line ? pos : l->pos;
}

static ein__ix ein__lower_index(ein__lowerer *l, const ein__ast *a);
static ein__ex ein__lower_expr(ein__lowerer *l, const ein__ast *a);

// ------------------------------------------------------------------------------------ subscripts

static ein__ix ein__lower_index_name(ein__lowerer *l, const ein__ast *a) {
    for (int i = l->nbind; i-- > 0;) {
        const ein__bound_slot *b = &l->bind[i];
        if (!strcmp(b->name, a->name))
            return ein__ix_addc(l->ctx, ein__ix_iter(l->ctx, (uint32_t)b->slot, b->n), b->lo);
    }
    ein__error(l->ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos), "undefined index '%s'", a->name);
    return (ein__ix){0};
}

static ein__ix ein__lower_index_binary(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    ein__ix x = ein__lower_index(l, a->kid[0]), y = ein__lower_index(l, a->kid[1]);
    int64_t c;
    if (!x.i || !y.i) return (ein__ix){0};
    if (a->kind == EIN__A_ADD) return ein__ix_add(ctx, x, y);
    if (a->kind == EIN__A_SUB) return ein__ix_sub(ctx, x, y);
    if (a->kind == EIN__A_MUL) {
        if (ein__ix_is_const(ctx, y, &c)) return ein__ix_scale(ctx, x, c);
        if (ein__ix_is_const(ctx, x, &c)) return ein__ix_scale(ctx, y, c);
        ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
                   "a subscript multiplies two indices; it must be affine");
        return (ein__ix){0};
    }
    if (!ein__ix_is_const(ctx, y, &c) || c <= 0) {
        ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
                   "the divisor of a subscript must be a positive constant");
        return (ein__ix){0};
    }
    return a->kind == EIN__A_DIV ? ein__ix_floordiv(ctx, x, c) : ein__ix_mod(ctx, x, c);
}

static ein__ix ein__lower_index(ein__lowerer *l, const ein__ast *a) {
    switch (a->kind) {
    case EIN__A_NUM:
        if (a->integral) return ein__ix_const(l->ctx, a->inum);
        break;
    case EIN__A_NAME: return ein__lower_index_name(l, a);
    case EIN__A_NEG: {
        ein__ix x = ein__lower_index(l, a->kid[0]);
        return x.i ? ein__ix_scale(l->ctx, x, -1) : x;
    }
    case EIN__A_ADD:
    case EIN__A_SUB:
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_MOD: return ein__lower_index_binary(l, a);
    case EIN__A_GATHER: {
        ein__ex read = ein__lower_expr(l, a->kid[0]);
        return read.i ? ein__ix_gather(l->ctx, read, 0) : (ein__ix){0};
    }
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_CMP:
    case EIN__A_GUARD:
    case EIN__A_REDUCE:
    case EIN__A_CALL:
    case EIN__A_READ:
    case EIN__A_IDX:
    default: break;
    }
    ein__error(l->ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
               "a subscript holds something that is not an index");
    return (ein__ix){0};
}

// ------------------------------------------------------------------------------------ guards

// A condition on indices as "`ix` is an integer in [0, n)", or its negation.
typedef struct ein__cond {
    ein__ix ix;
    int64_t n;
    bool negate, constant, value;
} ein__cond;

static ein__cond ein__cond_const(bool v) { return (ein__cond){{0}, 0, false, true, v}; }

// E % q == c: the lattice (E - c) / q, shifted so that its range starts at 0.
static ein__cond ein__cond_lattice(ein_ctx *ctx, ein__ix e, int64_t q, int64_t c) {
    if (c < 0 || c >= q) return ein__cond_const(false);
    const ein__index *ie = ein__ix_get(ctx, e);
    int64_t first = -ein__floordiv(-(ie->lo - c), q), last = ein__floordiv(ie->hi - c, q);
    if (last < first) return ein__cond_const(false);
    ein__ix ix = ein__ix_div(ctx, ein__ix_addc(ctx, e, -c), q);
    return (ein__cond){ein__ix_addc(ctx, ix, -first), last - first + 1, false, false, false};
}

static ein__cond ein__lower_cond(ein__lowerer *l, const ein__ast *cmp) {
    ein_ctx *ctx = l->ctx;
    const ein__ast *a = cmp->kid[0], *b = cmp->kid[1];
    const char *op = cmp->name;
    bool ne = !strcmp(op, "!="), eq = !strcmp(op, "==");
    ein__ix x, y = ein__lower_index(l, b);
    int64_t q, c;
    if (!y.i) return ein__cond_const(false);
    if ((eq || ne) && a->kind == EIN__A_MOD && ein__ix_is_const(ctx, y, &c)) {
        x = ein__lower_index(l, a->kid[0]);
        ein__ix m = ein__lower_index(l, a->kid[1]);
        if (x.i && m.i && ein__ix_is_const(ctx, m, &q) && q > 0) {
            ein__cond r = ein__cond_lattice(ctx, x, q, c);
            if (r.constant) r.value ^= ne;
            else r.negate = ne;
            return r;
        }
    }
    x = ein__lower_index(l, a);
    if (!x.i) return ein__cond_const(false);
    if (eq || ne) return (ein__cond){ein__ix_sub(ctx, x, y), 1, ne, false, false};
    bool less = op[0] == '<', strict = !op[1];
    ein__ix d = less ? ein__ix_sub(ctx, y, x) : ein__ix_sub(ctx, x, y);
    if (strict) d = ein__ix_addc(ctx, d, -1);
    if (!d.i) return ein__cond_const(false);
    int64_t hi = ein__ix_get(ctx, d)->hi;
    if (hi < 0) return ein__cond_const(false);
    return (ein__cond){d, hi + 1, false, false, false};
}

static ein__ex ein__apply_cond(ein_ctx *ctx, const ein__cond *c, ein__ex body) {
    if (c->constant) return c->value ? body : ein__ex_const(ctx, 0);
    if (!c->ix.i) return (ein__ex){0};
    return ein__ex_when(ctx, c->ix, c->n, c->negate, body);
}

// ------------------------------------------------------------------------------------ scalars

// Factors of a product and of its denominator; guards are taken out, since a guard means that the
// whole term is not evaluated.
typedef struct ein__product {
    const ein__ast *factor[EIN__MAX_ARGS];
    bool inverse[EIN__MAX_ARGS];
    const ein__ast *guard[EIN__MAX_ARGS];
    int nfactor, nguard;
} ein__product;

static bool ein__collect_factors(ein__lowerer *l, const ein__ast *a, ein__product *p) {
    if (p->nfactor >= EIN__MAX_ARGS || p->nguard >= EIN__MAX_ARGS) {
        ein__error(l->ctx, EIN_RESOURCES, ein__lower_pos(l, a->pos),
                   "a product has too many factors");
        return false;
    }
    if (a->kind == EIN__A_MUL)
        return ein__collect_factors(l, a->kid[0], p) && ein__collect_factors(l, a->kid[1], p);
    if (a->kind == EIN__A_DIV) {
        if (!ein__collect_factors(l, a->kid[0], p)) return false;
        if (p->nfactor >= EIN__MAX_ARGS) return true;
        p->inverse[p->nfactor] = true;
        p->factor[p->nfactor++] = a->kid[1];
        return true;
    }
    if (a->kind == EIN__A_GUARD) p->guard[p->nguard++] = a->kid[0];
    else p->factor[p->nfactor++] = a;
    return true;
}

static ein__ex ein__lower_product(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    ein__product p = {0};
    if (!ein__collect_factors(l, a, &p)) return (ein__ex){0};
    ein__ex body = {0};
    for (int i = 0; i < p.nfactor; i++) {
        ein__ex f = ein__lower_expr(l, p.factor[i]);
        if (!f.i) return f;
        if (!body.i && !p.inverse[i]) body = f;
        else
            body = ein__ex_binary(ctx, p.inverse[i] ? EIN__DIV : EIN__MUL,
                                  body.i ? body : ein__ex_const(ctx, 1), f);
        if (!body.i) return body;
    }
    if (!body.i) body = ein__ex_const(ctx, 1);
    for (int i = 0; i < p.nguard && body.i; i++) {
        ein__cond c = ein__lower_cond(l, p.guard[i]);
        if (ctx->status) return (ein__ex){0};
        body = ein__apply_cond(ctx, &c, body);
    }
    return body;
}

static const ein__padval *ein__find_pad(const ein__lowerer *l, const char *tensor) {
    for (int i = 0; i < l->eq->npad; i++)
        if (!strcmp(l->eq->pad[i].tensor, tensor)) return &l->eq->pad[i];
    return NULL;
}

static ein__ex ein__lower_read(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    const ein__operand *t = ein__operand_find(l->operand, a->name);
    const ein__padval *pad = ein__find_pad(l, a->name);
    ein__ix ix[EIN__MAX_RANK];
    EIN_ASSERT(t && a->nkid == t->shape.rank);
    for (int i = 0; i < a->nkid; i++) {
        ix[i] = ein__lower_index(l, a->kid[i]);
        if (!ix[i].i) return (ein__ex){0};
        const ein__index *f = ein__ix_get(ctx, ix[i]);
        int64_t lo = t->lo[i], hi = lo + t->shape.d[i] - 1;
        bool gather = a->kid[i]->kind == EIN__A_GATHER;
        if (!pad && !gather && (f->lo < lo || f->hi > hi)) {
            ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->kid[i]->pos),
                       "%s axis %d: index spans %lld..%lld outside %lld..%lld; add \"pad %s 0\"",
                       a->name, i, (long long)f->lo, (long long)f->hi, (long long)lo, (long long)hi,
                       a->name);
            return (ein__ex){0};
        }
        ix[i] = ein__ix_addc(ctx, ix[i], -lo);
    }
    return ein__ex_read(ctx, t->val, pad ? pad->value : 0, ix, a->nkid);
}

static ein__ex ein__lower_call(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    if (!strcmp(a->name, "select") && a->nkid == 3 && a->kid[0]->kind == EIN__A_CMP) {
        static const char *const cmp[] = {"==", "!=", "<", "<=", ">", ">="};
        ein__fn fn = EIN__EQ;
        for (int i = 0; i < 6; i++)
            if (!strcmp(a->kid[0]->name, cmp[i])) fn = (ein__fn)(EIN__EQ + i);
        ein__ex x = ein__lower_expr(l, a->kid[0]->kid[0]),
                y = ein__lower_expr(l, a->kid[0]->kid[1]);
        ein__ex p = ein__lower_expr(l, a->kid[1]), q = ein__lower_expr(l, a->kid[2]);
        if (!x.i || !y.i || !p.i || !q.i) return (ein__ex){0};
        return ein__ex_select(ctx, fn, x, y, p, q);
    }
    const char *best = NULL;
    int distance = 3;
    for (int fn = 0; fn < EIN__NFN; fn++) {
        const ein__fn_info *info = &ein__fn_table[fn];
        if (fn >= EIN__EQ && fn <= EIN__GE) continue;
        bool named = info->name[0] >= 'a' && info->name[0] <= 'z';
        if (!named) continue;
        ein__suggest(a->name, info->name, &best, &distance);
        if (strcmp(a->name, info->name)) continue;
        if (a->nkid != info->arity) {
            ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos), "%s takes %d argument%s",
                       a->name, info->arity, info->arity == 1 ? "" : "s");
            return (ein__ex){0};
        }
        ein__ex x = ein__lower_expr(l, a->kid[0]);
        if (!x.i || info->arity == 1) return x.i ? ein__ex_unary(ctx, (ein__fn)fn, x) : x;
        ein__ex y = ein__lower_expr(l, a->kid[1]);
        return y.i ? ein__ex_binary(ctx, (ein__fn)fn, x, y) : y;
    }
    ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
               best ? "unknown function '%s'; did you mean '%s'?" : "unknown function '%s'",
               a->name, best ? best : "");
    return (ein__ex){0};
}

// ------------------------------------------------------------------------------------ reductions

// Where an iterator occurs alone under floor or mod with a divisor of its extent: that divisor.
static int64_t ein__digit_of_index(ein_ctx *ctx, ein__ix ix, uint32_t slot, int64_t n) {
    const ein__index *f = ein__ix_get(ctx, ix);
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *at = ein__atom_get(ctx, f->t[k].atom);
        if (at->kind != EIN__FLOOR && at->kind != EIN__MOD) continue;
        ein__ix inner = {at->ix};
        uint32_t s;
        if (ein__ix_is_iter(ctx, inner, &s) && s == slot && at->n < n && n % at->n == 0)
            return at->n;
        int64_t d = ein__digit_of_index(ctx, inner, slot, n);
        if (d) return d;
    }
    return 0;
}

static int64_t ein__digit_of(ein_ctx *ctx, ein__ex ex, uint32_t slot, int64_t n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nix; i++) {
        int64_t d = ein__digit_of_index(ctx, e->ix[i], slot, n);
        if (d) return d;
    }
    for (uint32_t i = 0; i < e->nkid; i++) {
        int64_t d = ein__digit_of(ctx, e->kid[i], slot, n);
        if (d) return d;
    }
    return 0;
}

// A reduction being built: its iterators by slot, and for each of the equation's iterators the form
// of the new ones that replaces it. Traversal slots come first.
typedef struct ein__digits {
    ein__scope s;
    ein__ix read[EIN__MAX_ITERS];  // of traversal slot k: form in the reader's iterators
} ein__digits;

// Splits iterator `slot` into (slot / d, slot % d), so that no floor or mod of it is left in a body
// with a reduction: what remains is affine, and the reader un-splits by a view.
static bool ein__split_digit(ein_ctx *ctx, ein__digits *g, uint32_t slot, int64_t d) {
    ein__scope *s = &g->s;
    uint32_t all = s->nt + s->ns;
    if (all + 1 > EIN__MAX_ITERS || (slot < s->nt && s->nt + 1 > EIN__MAX_RANK)) return false;
    ein__ix map[EIN__MAX_ITERS];
    int64_t n[EIN__MAX_ITERS] = {0};
    for (uint32_t i = 0, j = 0; i < all; i++, j++) {
        if (i != slot) {
            n[j] = s->n[i];
            map[i] = ein__ix_iter(ctx, j, s->n[i]);
            continue;
        }
        n[j] = s->n[i] / d;
        n[j + 1] = d;
        map[i] = ein__ix_add(ctx, ein__ix_scale(ctx, ein__ix_iter(ctx, j, n[j]), d),
                             ein__ix_iter(ctx, j + 1, d));
        j++;
    }
    s->body = ein__ex_subst(ctx, s->body, map, (int)all);
    memcpy(s->n, n, (all + 1) * sizeof *n);
    if (slot < s->nt) {
        ein__ix whole = g->read[slot];
        memmove(&g->read[slot + 2], &g->read[slot + 1], (s->nt - slot - 1) * sizeof *g->read);
        g->read[slot] = ein__ix_floordiv(ctx, whole, d);
        g->read[slot + 1] = ein__ix_mod(ctx, whole, d);
        s->nt++;
    } else {
        s->ns++;
    }
    return s->body.i != 0;
}

static const char *ein__inner_name(ein__lowerer *l, const char *suffix) {
    const char *name = ein__namef(l->ctx, "%s.%s", l->base, suffix);
    int taken = 1;
    for (ptrdiff_t i = arrlen(l->ctx->value); i-- > 1 && l->ctx->value[i].node == l->node;)
        if (!strcmp(l->ctx->value[i].name, name)) {
            name = ein__namef(l->ctx, "%s.%s%d", l->base, suffix, ++taken);
            i = arrlen(l->ctx->value);
        }
    return name;
}

// Makes the value of a reduction over `all` bound slots (the last `ns` of them reduced) and gives
// the read of it by the surrounding expression.
static ein__ex ein__lower_scope(ein__lowerer *l, ein__red red, ein__ex body, int nouter, int ns,
                                const char *suffix) {
    ein_ctx *ctx = l->ctx;
    uint32_t used = ein__ex_uses(ctx, body);
    ein__digits g = {.s = {.reduce = red}};
    ein__ix map[2 * EIN__MAX_ITERS];
    uint32_t slot = 0;
    for (int i = 0; i < nouter + ns; i++) {
        const ein__bound_slot *b = &l->bind[i];
        bool reduced = i >= nouter;
        map[b->slot] = ein__ix_const(ctx, 0);
        // Unit dimensions of the result are kept, so that the result can be this value itself.
        if (reduced ? b->n == 1 : b->n > 1 && !(used >> b->slot & 1)) continue;
        if (slot >= EIN__MAX_ITERS || (!reduced && slot >= EIN__MAX_RANK)) {
            ein__error(ctx, EIN_RESOURCES, l->pos, "an equation has too many indices");
            return (ein__ex){0};
        }
        if (!reduced) g.read[slot] = ein__ix_iter(ctx, (uint32_t)b->slot, b->n);
        map[b->slot] = ein__ix_iter(ctx, slot, b->n);
        g.s.n[slot++] = b->n;
        if (reduced) g.s.ns++;
        else g.s.nt++;
    }
    g.s.body = ein__ex_subst(ctx, body, map, nouter + ns);
    if (!g.s.body.i) return (ein__ex){0};
    for (uint32_t i = 0; i < g.s.nt + g.s.ns; i++) {
        int64_t d = ein__digit_of(ctx, g.s.body, i, g.s.n[i]);
        if (d && ein__split_digit(ctx, &g, i, d)) i = UINT32_MAX;
        else if (!g.s.body.i) return (ein__ex){0};
    }
    if (!g.s.ns) g.s.reduce = EIN__R_NONE;
    ein__shape shape = {.rank = (int)g.s.nt};
    for (uint32_t i = 0; i < g.s.nt; i++) shape.d[i] = g.s.n[i];
    ein__sc sc = ein__sc_make(ctx, &g.s);
    if (!sc.i) return (ein__ex){0};
    ein__val v = ein__val_new(ctx, ein__inner_name(l, suffix), EIN__V_SCOPE, l->tensor, sc, &shape,
                              EIN__F32, l->node);
    return ein__ex_read(ctx, v, 0, g.read, (int)g.s.nt);
}

static ein__ex ein__lower_reduce(ein__lowerer *l, const ein__ast *a) {
    static const char *const names[] = {"", "sum", "prod", "max", "min"};
    ein_ctx *ctx = l->ctx;
    int outer = l->nbind, ns = a->nkid - 1, red = 1;
    while (red < EIN__R_MIN && strcmp(names[red], a->name)) red++;
    if (outer + ns > 2 * EIN__MAX_ITERS) {
        ein__error(ctx, EIN_RESOURCES, ein__lower_pos(l, a->pos),
                   "an equation has too many indices");
        return (ein__ex){0};
    }
    for (ptrdiff_t i = 0; i < arrlen(l->ranges->bound); i++) {
        const ein__bound *b = &l->ranges->bound[i];
        if (b->reduce != a) continue;
        l->bind[l->nbind] = (ein__bound_slot){b->name, b->lo, b->hi - b->lo, l->nbind};
        l->nbind++;
    }
    ein__ex body = ein__lower_expr(l, a->kid[ns]);
    if (!body.i) return body;
    // A reduction whose body does not use an index still repeats the body; a sum counts.
    ein__ex r = ein__lower_scope(l, (ein__red)red, body, outer, ns, names[red]);
    l->nbind = outer;
    return r;
}

static ein__ex ein__lower_expr(ein__lowerer *l, const ein__ast *a) {
    ein_ctx *ctx = l->ctx;
    switch (a->kind) {
    case EIN__A_NUM: return ein__ex_const(ctx, a->num);
    case EIN__A_NEG: {
        ein__ex x = ein__lower_expr(l, a->kid[0]);
        return x.i ? ein__ex_unary(ctx, EIN__NEG, x) : x;
    }
    case EIN__A_ADD:
    case EIN__A_SUB: {
        ein__ex x = ein__lower_expr(l, a->kid[0]);
        if (!x.i) return x;
        ein__ex y = ein__lower_expr(l, a->kid[1]);
        if (!y.i) return y;
        return ein__ex_binary(ctx, a->kind == EIN__A_ADD ? EIN__ADD : EIN__SUB, x, y);
    }
    case EIN__A_MUL:
    case EIN__A_DIV:
    case EIN__A_GUARD: return ein__lower_product(l, a);
    case EIN__A_REDUCE: return ein__lower_reduce(l, a);
    case EIN__A_CALL: return ein__lower_call(l, a);
    case EIN__A_READ: return ein__lower_read(l, a);
    case EIN__A_IDX: {
        ein__ix x = ein__lower_index(l, a->kid[0]);
        return x.i ? ein__ex_idx(ctx, x) : (ein__ex){0};
    }
    case EIN__A_NAME:
    case EIN__A_STR:
    case EIN__A_LIST:
    case EIN__A_MOD:
    case EIN__A_CMP:
    case EIN__A_GATHER:
    default: break;
    }
    ein__error(ctx, EIN_BAD_INPUT, ein__lower_pos(l, a->pos),
               "this is not a value; write idx(...) for an index, T[] for a scalar tensor");
    return (ein__ex){0};
}

// ------------------------------------------------------------------------------------ equations

// True when `ex` reads value `v` at exactly the bare iterators 0, 1, ..: the value is the result.
static bool ein__is_whole_read(ein_ctx *ctx, ein__ex ex, const ein__scope *s, ein__val *v) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op != EIN__X_READ) return false;
    const ein__value *p = &ctx->value[e->val];
    if (p->kind != EIN__V_SCOPE || p->shape.rank != (int)s->nt) return false;
    for (uint32_t i = 0; i < s->nt; i++)
        if (e->ix[i].i != ein__ix_iter(ctx, i, s->n[i]).i || p->shape.d[i] != s->n[i]) return false;
    *v = (ein__val){e->val};
    return true;
}

// The value of one equation. Inner reductions become values of their own; the result is a map over
// them, or the reduction itself when the equation is nothing else.
static ein__val ein__lower_equation(ein__lowerer *l, const char *name, ein__dtype dtype) {
    ein_ctx *ctx = l->ctx;
    ptrdiff_t before = arrlen(ctx->value);
    ein__scope s = {.nt = (uint32_t)l->eq->rank};
    ein__shape shape = {.rank = l->eq->rank};
    l->nbind = 0;
    for (int i = 0; i < l->eq->rank; i++) {
        const ein__bound *b = &l->ranges->bound[i];
        l->bind[l->nbind] = (ein__bound_slot){b->name, b->lo, b->hi - b->lo, i};
        l->nbind++;
        s.n[i] = shape.d[i] = b->hi - b->lo;
    }
    s.body = ein__lower_expr(l, l->eq->body);
    if (!s.body.i || ctx->status) return (ein__val){0};
    ein__val v;
    if (ein__is_whole_read(ctx, s.body, &s, &v) && (ptrdiff_t)v.i >= before &&
        ctx->value[v.i].dtype == dtype) {
        ctx->value[v.i].name = name;
        return v;
    }
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    return ein__val_new(ctx, name, EIN__V_SCOPE, l->tensor, sc, &shape, dtype, l->node);
}

static bool ein__lower_user_equation(ein_ctx *ctx, int node) {
    const ein__node *n = &ctx->graph.node[node];
    ein__operand *operand = ein__node_operands(ctx, n);
    for (int i = 0; i < n->nin; i++) operand[i].val = ctx->tensor_value[n->in[i]];
    ein__ranges ranges = {0};
    const ein__tensor *t = &ctx->graph.tensor[n->out[0]];
    ein__lowerer l = {.ctx = ctx,
                      .eq = n->eq,
                      .pos = n->pos,
                      .operand = operand,
                      .ranges = &ranges,
                      .base = t->name,
                      .node = node,
                      .tensor = n->out[0]};
    ein__val v = {0};
    if (ein__resolve(ctx, n->eq, operand, NULL, &ranges))
        v = ein__lower_equation(&l, t->name, t->dtype);
    ctx->tensor_value[n->out[0]] = v;
    arrfree(ranges.bound);
    arrfree(operand);
    return v.i != 0;
}

// Which output of operator node `n` the formal name stands for, or -1 for a local of its
// definition.
static int ein__formal_output(ein_ctx *ctx, const ein__node *n, const char *name) {
    for (int k = 0; k < n->nout; k++)
        if (!strcmp(ein__op_formal(ctx, n, true, k), name)) return k;
    return -1;
}

static bool ein__lower_op_equation(ein_ctx *ctx, int node, const ein__equation *eq,
                                   ein__operand **operand) {
    const ein__node *n = &ctx->graph.node[node];
    int k = ein__formal_output(ctx, n, eq->result);
    const ein__tensor *t = &ctx->graph.tensor[n->out[k < 0 ? 0 : k]];
    ein__ranges ranges = {0};
    ein__lowerer l = {.ctx = ctx,
                      .eq = eq,
                      .pos = n->pos,
                      .operand = *operand,
                      .ranges = &ranges,
                      .base = t->name,
                      .node = node,
                      .tensor = n->out[k < 0 ? 0 : k]};
    ein__val v = {0};
    if (ein__resolve(ctx, eq, *operand, k < 0 ? NULL : &t->shape, &ranges))
        v = ein__lower_equation(&l, k < 0 ? ein__inner_name(&l, eq->result) : t->name,
                                k < 0 ? EIN__F32 : t->dtype);
    arrfree(ranges.bound);
    if (!v.i) return false;
    if (k >= 0) ctx->tensor_value[n->out[k]] = v;
    ein__operand o = {.name = eq->result, .shape = ctx->value[v.i].shape, .val = v};
    arrput(*operand, o);
    return true;
}

static bool ein__lower_operator(ein_ctx *ctx, int node) {
    const ein__node *n = &ctx->graph.node[node];
    ein__buf text = {0};
    ein__operand *operand = NULL;
    bool ok = ein__op_equations(ctx, n, &text);
    for (int i = 0; ok && i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        ein__val v = ctx->tensor_value[n->in[i]];
        ein__operand o = {
            .name = ein__op_formal(ctx, n, false, i), .val = v, .shape = ctx->value[v.i].shape};
        arrput(operand, o);
    }
    ein__equation **eq = ok ? ein__parse_equations(ctx, text.s) : NULL;
    ok = ok && !ctx->status;
    for (ptrdiff_t i = 0; ok && i < arrlen(eq); i++)
        ok = ein__lower_op_equation(ctx, node, eq[i], &operand);
    arrfree(eq);
    arrfree(operand);
    ein__buf_free(&text);
    return ok;
}

// Values for every tensor of the graph, in ctx->tensor_value.
EIN__FN bool ein__lower(ein_ctx *ctx) {
    const ein__graph *g = &ctx->graph;
    ctx->tensor_value = EIN__NEW(&ctx->arena, ein__val, arrlen(g->tensor) + 1);
    for (ptrdiff_t i = 0; i < arrlen(g->tensor); i++) {
        const ein__tensor *t = &g->tensor[i];
        if (t->kind == EIN__T_VALUE) continue;
        ctx->tensor_value[i] =
            ein__val_new(ctx, t->name, t->kind == EIN__T_INPUT ? EIN__V_INPUT : EIN__V_WEIGHT,
                         (int)i, (ein__sc){0}, &t->shape, t->dtype, -1);
    }
    for (ptrdiff_t i = 0; i < arrlen(g->node); i++) {
        bool ok = g->node[i].op ? ein__lower_operator(ctx, (int)i)
                                : ein__lower_user_equation(ctx, (int)i);
        if (!ok) return false;
    }
    return !ctx->status;
}
// expressions -> plan
/* ---- match.c ---- */
// Operator matching: which library call computes a contraction. An iterator's group is the set of
// operands and result it occurs in (EinNet section 5.1, Table 2); attributes come from flattened
// strides. Nothing here knows what operator of the model a contraction came from.

// A factor of a contraction as a linear address: offset + sum coef[slot] * iterator, in elements.
typedef struct ein__factor {
    const ein__expr *read;
    int64_t offset, coef[EIN__MAX_ITERS];
} ein__factor;

EIN__FN void ein__dense_strides(const ein__shape *s, int64_t *stride) {
    int64_t step = 1;
    for (int i = s->rank; i-- > 0;) {
        stride[i] = step;
        step *= s->d[i];
    }
}

// Strides of value `v`: the planned ones, or dense ones while nothing is planned.
static void ein__strides_of(ein_ctx *ctx, ein__val v, int64_t *stride) {
    const ein__layout *l = ctx->plan.layout;
    if ((ptrdiff_t)v.i < arrlen(l) && l[v.i].buffer >= 0)
        memcpy(stride, l[v.i].stride, sizeof l->stride);
    else ein__dense_strides(&ctx->value[v.i].shape, stride);
}

// Whether a read stays inside its box in every dimension but `skip` (-1: in all).
static bool ein__inside_but(ein_ctx *ctx, const ein__expr *read, int skip) {
    const ein__shape *s = &ctx->value[read->val].shape;
    for (uint32_t k = 0; k < read->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if ((int)k != skip && (f->q != 1 || f->lo < 0 || f->hi >= s->d[k])) return false;
    }
    return true;
}

static bool ein__inside(ein_ctx *ctx, const ein__expr *read) {
    return ein__inside_but(ctx, read, -1);
}

// The address of a read that is inside its box, without dimension `skip` (-1: of all), when it is
// affine (div and mod that recombine, as a reshape's do, are).
static bool ein__address_but(ein_ctx *ctx, const ein__expr *read, const int64_t *stride, int skip,
                             ein__factor *f) {
    ein__ix sum = ein__ix_const(ctx, 0);
    if (!ein__inside_but(ctx, read, skip)) return false;
    for (uint32_t k = 0; k < read->nix; k++)
        if ((int)k != skip) sum = ein__ix_add(ctx, sum, ein__ix_scale(ctx, read->ix[k], stride[k]));
    if (!sum.i || !ein__ix_affine(ctx, sum)) return false;
    const ein__index *ix = ein__ix_get(ctx, sum);
    *f = (ein__factor){.read = read, .offset = ix->c};
    for (uint32_t k = 0; k < ix->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, ix->t[k].atom);
        f->coef[a->slot] = ix->t[k].k;
    }
    return true;
}

static bool ein__address(ein_ctx *ctx, const ein__expr *read, const int64_t *stride,
                         ein__factor *f) {
    return ein__address_but(ctx, read, stride, -1, f);
}

// Splits a sum of products into constant factor and exactly two reads with padding 0.
static bool ein__two_factors(ein_ctx *ctx, const ein__scope *s, const ein__expr *read[2],
                             double *alpha) {
    ein__ex stack[16];
    int top = 0, n = 0;
    if (s->reduce != EIN__R_SUM || !s->ns) return false;
    *alpha = 1;
    stack[top++] = s->body;
    while (top) {
        const ein__expr *e = ein__ex_get(ctx, stack[--top]);
        if (e->op == EIN__X_BINARY && e->fn == EIN__MUL && top + 2 <= 16) {
            stack[top++] = e->kid[1];
            stack[top++] = e->kid[0];
        } else if (e->op == EIN__X_CONST) {
            double c;
            memcpy(&c, &e->bits, sizeof c);
            *alpha *= c;
        } else if (e->op == EIN__X_READ && !e->bits && n < 2 &&
                   ctx->value[e->val].dtype == EIN__F32) {
            read[n++] = e;
        } else {
            return false;
        }
    }
    return n == 2;
}

EIN__FN bool ein__is_contraction(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *read[2];
    double alpha;
    return ein__two_factors(ctx, s, read, &alpha);
}

// ------------------------------------------------------------------------------------ GEMM

// Iterators that one dimension of a matrix stands for: extent, and stride per operand (A, B, C).
typedef struct ein__chain {
    int64_t n, stride[3];
} ein__chain;

typedef struct ein__groups {
    ein__chain m[EIN__MAX_ITERS], n[EIN__MAX_ITERS], k[EIN__MAX_ITERS], b[EIN__MAX_ITERS];
    int nm, nn, nk, nb;
} ein__groups;

// Joins iterators into maximal chains: i is followed by j when stride_i = stride_j * extent_j in
// every operand, so the two address one longer dimension.
static int ein__join_chains(ein__chain *c, int n) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < n && !again; i++)
            for (int j = 0; j < n && !again; j++) {
                bool follows = i != j;
                for (int x = 0; x < 3; x++) follows &= c[i].stride[x] == c[j].stride[x] * c[j].n;
                if (!follows) continue;
                c[j].n *= c[i].n;
                c[i] = c[--n];
                again = true;
            }
    }
    return n;
}

static bool ein__group_iterators(const ein__scope *s, const ein__factor *a, const ein__factor *b,
                                 const int64_t *out, ein__groups *g) {
    *g = (ein__groups){0};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (s->n[i] == 1) continue;
        bool in_a = a->coef[i] != 0, in_b = b->coef[i] != 0, reduced = i >= s->nt;
        ein__chain c = {s->n[i], {a->coef[i], b->coef[i], reduced ? 0 : out[i]}};
        if (reduced && in_a && in_b) g->k[g->nk++] = c;
        else if (reduced) return false;
        else if (in_a && in_b) g->b[g->nb++] = c;
        else if (in_a) g->m[g->nm++] = c;
        else if (in_b) g->n[g->nn++] = c;
        else return false;
    }
    g->nm = ein__join_chains(g->m, g->nm);
    g->nn = ein__join_chains(g->n, g->nn);
    g->nk = ein__join_chains(g->k, g->nk);
    return g->nk == 1;
}

// Leading dimension of a row-major matrix [rows, cols] with these strides; `*t` when it is stored
// transposed. 0: neither stride is 1, or rows overlap.
static int64_t ein__leading(int64_t rows, int64_t rs, int64_t cols, int64_t cs, bool *t) {
    *t = false;
    if (cols == 1 || cs == 1) {
        int64_t ld = rows == 1 ? cols : rs;
        if (ld >= cols) return ld;
    }
    *t = true;
    if (rows == 1 || rs == 1) {
        int64_t ld = cols == 1 ? rows : cs;
        if (ld >= rows) return ld;
    }
    return 0;
}

// One choice of the chains that stay as m and n (-1: none, extent 1); the others become batch.
static bool ein__gemm_choice(const ein__groups *g, int im, int in, ein__gemm *r) {
    ein__chain batch[3 * EIN__MAX_ITERS], one = {1, {0, 0, 0}};
    int nb = 0;
    for (int i = 0; i < g->nb; i++) batch[nb++] = g->b[i];
    for (int i = 0; i < g->nm; i++)
        if (i != im) batch[nb++] = g->m[i];
    for (int i = 0; i < g->nn; i++)
        if (i != in) batch[nb++] = g->n[i];
    nb = ein__join_chains(batch, nb);
    if (nb > 1) return false;
    ein__chain b = nb ? batch[0] : one, k = g->k[0];
    ein__chain m = im >= 0 ? g->m[im] : one, n = in >= 0 ? g->n[in] : one;
    bool tc;
    r->ldc = ein__leading(m.n, m.stride[2], n.n, n.stride[2], &tc);
    r->lda = ein__leading(m.n, m.stride[0], k.n, k.stride[0], &r->ta);
    r->ldb = ein__leading(k.n, k.stride[1], n.n, n.stride[1], &r->tb);
    if (!r->ldc || !r->lda || !r->ldb || tc) return false;
    if (b.stride[0] < 0 || b.stride[1] < 0 || b.stride[2] < 0) return false;
    r->batch = b.n;
    r->m = m.n;
    r->n = n.n;
    r->k = k.n;
    r->sa = b.stride[0];
    r->sb = b.stride[1];
    r->sc = b.stride[2];
    int64_t limit = INT32_MAX;
    return m.n <= limit && n.n <= limit && k.n <= limit && b.n <= limit && r->lda <= limit &&
           r->ldb <= limit && r->ldc <= limit;
}

// Strided-batched GEMM for contraction `s` whose result has strides `out`; both orders of the
// operands are tried, and every choice of m and n chains: largest m * n wins.
EIN__FN bool ein__match_gemm(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                             ein__gemm *best) {
    const ein__expr *read[2];
    int64_t stride[EIN__MAX_RANK];
    ein__factor f[2];
    double alpha;
    bool found = false;
    if (!ein__two_factors(ctx, s, read, &alpha)) return false;
    for (int i = 0; i < 2; i++) {
        ein__strides_of(ctx, (ein__val){read[i]->val}, stride);
        if (!ein__address(ctx, read[i], stride, &f[i])) return false;
    }
    for (int swap = 0; swap < 2; swap++) {
        const ein__factor *a = &f[swap], *b = &f[1 - swap];
        ein__groups g;
        if (!ein__group_iterators(s, a, b, out, &g)) continue;
        for (int im = g.nm - 1; im >= -1; im--)
            for (int in = g.nn - 1; in >= -1; in--) {
                ein__gemm r = {.a = {a->read->val},
                               .b = {b->read->val},
                               .alpha = alpha,
                               .oa = a->offset,
                               .ob = b->offset};
                if (!ein__gemm_choice(&g, im, in, &r)) continue;
                if (found && r.m * r.n <= best->m * best->n) continue;
                *best = r;
                found = true;
            }
    }
    return found;
}

// ------------------------------------------------------------------------------------ convolution

// Roles of iterators, from the operands they occur in.
typedef enum {
    EIN__C_NONE,
    EIN__C_BATCH,
    EIN__C_OUT,
    EIN__C_GROUP,
    EIN__C_IN,
    EIN__C_FILTER,
    EIN__C_SPACE
} ein__crole;

typedef struct ein__conv_form {
    const ein__scope *s;
    const ein__expr *x, *w;
    ein__crole role[EIN__MAX_ITERS];
    int space[3], filter[3];  // slot of the output position and of the filter tap per axis, or -1
    int axis[3];              // dimension of x per axis
    int plain[2];             // dimensions of x before which batch and channels end
    bool transposed;          // backward-data
    ein__conv c;
} ein__conv_form;

static bool ein__conv_roles(ein_ctx *ctx, ein__conv_form *z) {
    uint32_t in_x = 0, in_w = 0;
    for (uint32_t k = 0; k < z->x->nix; k++) in_x |= ein__ix_uses(ctx, z->x->ix[k]);
    for (uint32_t k = 0; k < z->w->nix; k++) in_w |= ein__ix_uses(ctx, z->w->ix[k]);
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++) {
        bool a = in_x >> i & 1, b = in_w >> i & 1;
        z->role[i] = EIN__C_NONE;
        if (z->s->n[i] == 1) continue;
        if (i >= z->s->nt) {
            if (!a || !b) return false;
            z->role[i] = EIN__C_IN;  // filter taps are told apart by the dimension they stand in
        } else if (a && b) {
            z->role[i] = EIN__C_GROUP;
        } else if (a) {
            z->role[i] = EIN__C_BATCH;
        } else if (b) {
            z->role[i] = EIN__C_OUT;
        } else {
            return false;
        }
    }
    return true;
}

// One dimension of x: the bare iterators of a batch or channel dimension, or a window
// (stride * o + dilation * r - pad) / q.
static bool ein__conv_dim(ein_ctx *ctx, ein__conv_form *z, int dim, bool window) {
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    int64_t extent = ctx->value[z->x->val].shape.d[dim];
    int o = -1, r = -1;
    int64_t ko = 0, kr = 0;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        if (a->kind != EIN__ITER) return false;
        if (z->role[a->slot] == EIN__C_BATCH && o < 0) {
            o = (int)a->slot;
            ko = f->t[t].k;
        } else if (z->role[a->slot] == EIN__C_IN && r < 0) {
            r = (int)a->slot;
            kr = f->t[t].k;
        } else {
            return false;
        }
    }
    int axis = z->c.spatial;
    if (!window || axis == 3) return false;
    ein__conv *c = &z->c;
    z->space[axis] = o;
    z->filter[axis] = r;
    z->axis[axis] = dim;
    c->in[axis] = extent;
    c->out[axis] = o >= 0 ? z->s->n[o] : 1;
    c->k[axis] = r >= 0 ? z->s->n[r] : 1;
    if (z->transposed) {
        // input position (o + pad - dilation * r) / stride
        if ((o >= 0 && ko != 1) || (r >= 0 && kr >= 0)) return false;
        c->stride[axis] = f->q;
        c->dilation[axis] = r >= 0 ? -kr : 1;
        c->pad[axis] = f->c;
    } else {
        if (f->q != 1 || (o >= 0 && ko <= 0) || (r >= 0 && kr <= 0)) return false;
        c->stride[axis] = o >= 0 ? ko : 1;
        c->dilation[axis] = r >= 0 ? kr : 1;
        c->pad[axis] = -f->c;
    }
    if (o >= 0) z->role[o] = EIN__C_SPACE;
    if (r >= 0) z->role[r] = EIN__C_FILTER;
    c->spatial++;
    return true;
}

// Whether dimension `dim` of x is made of iterators of one role only, inside, and which.
static ein__crole ein__conv_plain_role(ein_ctx *ctx, const ein__conv_form *z, int dim) {
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    int64_t extent = ctx->value[z->x->val].shape.d[dim];
    ein__crole role = EIN__C_NONE;
    if (f->q != 1 || f->lo < 0 || f->hi >= extent) return EIN__C_NONE;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        if (a->kind != EIN__ITER) return EIN__C_NONE;
        ein__crole r = z->role[a->slot];
        if (r == EIN__C_GROUP) r = EIN__C_IN;
        if (role != EIN__C_NONE && r != role) return EIN__C_NONE;
        role = r;
    }
    return role;
}

static int64_t ein__conv_out_size(const ein__conv *c, int axis, int64_t in) {
    int64_t span = c->dilation[axis] * (c->k[axis] - 1) + 1;
    return ein__floordiv(in + 2 * c->pad[axis] - span, c->stride[axis]) + 1;
}

// Sizes that cuDNN computes itself must come out as the expression has them: padding is symmetric.
static bool ein__conv_sizes(const ein__conv_form *z) {
    const ein__conv *c = &z->c;
    for (int a = 0; a < c->spatial; a++) {
        int64_t in = z->transposed ? c->out[a] : c->in[a],
                out = z->transposed ? c->in[a] : c->out[a];
        if (c->pad[a] < 0 || ein__conv_out_size(c, a, in) != out) return false;
    }
    return true;
}

// Rank-order of x's dimensions: batch, channels, axes; several may stand for the batch and for the
// channels. Dimensions of extent 1 without iterators stand for whichever is missing.
static bool ein__conv_dims(ein_ctx *ctx, ein__conv_form *z) {
    int rank = (int)z->x->nix, dim = 0;
    const ein__shape *s = &ctx->value[z->x->val].shape;
    uint32_t used[2] = {0, 0};
    z->c.n = z->c.c = 1;
    for (int part = 0; part < 2; part++) {
        ein__crole want = part ? EIN__C_IN : EIN__C_BATCH;
        for (int taken = 0; dim < rank - 1; dim++, taken++) {
            ein__crole role = ein__conv_plain_role(ctx, z, dim);
            bool unit = role == EIN__C_NONE && s->d[dim] == 1 && !taken;
            if (role != want && !unit) break;
            used[part] |= ein__ix_uses(ctx, z->x->ix[dim]);
            *(part ? &z->c.c : &z->c.n) *= s->d[dim];
        }
        z->plain[part] = dim;
    }
    if (!z->plain[0] || z->plain[1] == z->plain[0] || rank - dim > 3) return false;
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++)
        if (used[0] >> i & 1) z->role[i] = EIN__C_NONE;
    for (; dim < rank; dim++)
        if (!ein__conv_dim(ctx, z, dim, true)) return false;
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++) {
        bool channel = used[1] >> i & 1;
        if (used[0] >> i & 1) z->role[i] = EIN__C_BATCH;
        else if (z->role[i] == EIN__C_BATCH) return false;
        if (z->role[i] == EIN__C_FILTER && channel) return false;
        if ((z->role[i] == EIN__C_IN || z->role[i] == EIN__C_GROUP) && !channel) return false;
    }
    return true;
}

// Slots in the order a dense filter has: [group, out, in, taps] or, transposed, [group, in, out,
// taps].
static int ein__conv_filter_order(const ein__conv_form *z, int *slot) {
    int n = 0;
    ein__crole order[] = {EIN__C_GROUP, EIN__C_OUT, EIN__C_IN};
    if (z->transposed) {
        order[1] = EIN__C_IN;
        order[2] = EIN__C_OUT;
    }
    for (int k = 0; k < 3; k++)
        for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++)
            if (z->role[i] == order[k]) slot[n++] = (int)i;
    for (int a = 0; a < z->c.spatial; a++)
        if (z->filter[a] >= 0) slot[n++] = z->filter[a];
    return n;
}

// Whether the addresses of `coef` are those of a dense tensor with `slot`s as its dimensions.
static bool ein__dense_in_order(const ein__scope *s, const int64_t *coef, const int *slot, int n) {
    int64_t step = 1;
    for (int k = n; k-- > 0;) {
        if (coef[slot[k]] != step) return false;
        step *= s->n[slot[k]];
    }
    return true;
}

// Dimensions [from, to) of x as one: the product of extents of the iterators with roles `role[]`
// (innermost role first), when the combined index counts them in the scope's order; 0 otherwise.
static int64_t ein__plain_extent(ein_ctx *ctx, const ein__conv_form *z, int from, int to,
                                 const ein__crole *role, int nrole) {
    const ein__shape *s = &ctx->value[z->x->val].shape;
    ein__ix all = ein__ix_const(ctx, 0);
    int64_t step = 1;
    for (int k = from; k < to; k++)
        all = ein__ix_add(ctx, ein__ix_scale(ctx, all, s->d[k]), z->x->ix[k]);
    if (!all.i || ein__ix_get(ctx, all)->c) return 0;
    for (int r = 0; r < nrole; r++)
        for (uint32_t i = z->s->nt + z->s->ns; i-- > 0;) {
            if (z->role[i] != role[r]) continue;
            if (ein__ix_coef(ctx, all, i) != step) return 0;
            step *= z->s->n[i];
        }
    return step;
}

// The result must be dense [batch, group, out, axes]; x dense as it is declared, its channel
// dimension ordered group-major.
static bool ein__conv_layouts(ein_ctx *ctx, ein__conv_form *z, const int64_t *out) {
    int slot[EIN__MAX_ITERS], n = 0;
    ein__crole order[] = {EIN__C_BATCH, EIN__C_GROUP, EIN__C_OUT};
    for (int k = 0; k < 3; k++)
        for (uint32_t i = 0; i < z->s->nt; i++)
            if (z->role[i] == order[k]) slot[n++] = (int)i;
    for (int a = 0; a < z->c.spatial; a++)
        if (z->space[a] >= 0) slot[n++] = z->space[a];
    if (!ein__dense_in_order(z->s, out, slot, n)) return false;
    int64_t have[EIN__MAX_RANK], want[EIN__MAX_RANK];
    const ein__shape *s = &ctx->value[z->x->val].shape;
    ein__strides_of(ctx, (ein__val){z->x->val}, have);
    ein__dense_strides(s, want);
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] > 1 && have[k] != want[k]) return false;
    // batch: its iterators in the result's order; channel = group * (c / group) + c
    static const ein__crole batch[] = {EIN__C_BATCH}, channel[] = {EIN__C_IN, EIN__C_GROUP};
    if (ein__plain_extent(ctx, z, 0, z->plain[0], batch, 1) != z->c.n) return false;
    if (ein__plain_extent(ctx, z, z->plain[0], z->plain[1], channel, 2) != z->c.c) return false;
    int64_t groups = 1;
    for (uint32_t i = 0; i < z->s->nt; i++)
        if (z->role[i] == EIN__C_GROUP) groups *= z->s->n[i];
    int64_t f = groups;
    for (uint32_t i = 0; i < z->s->nt; i++)
        if (z->role[i] == EIN__C_OUT) f *= z->s->n[i];
    z->c.group = groups;
    z->c.f = f;
    return true;
}

static bool ein__match_conv_form(ein_ctx *ctx, ein__conv_form *z, const int64_t *out) {
    if (!ein__conv_roles(ctx, z) || !ein__conv_dims(ctx, z)) return false;
    z->c.x = (ein__val){z->x->val};
    z->c.w = (ein__val){z->w->val};
    return ein__conv_layouts(ctx, z, out);
}

// Convolution forward or backward-data for contraction `s`. The form may still need its filter
// re-laid (ein__conv_filter) and its window checked (ein__conv_sizes).
static bool ein__find_conv(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                           ein__conv_form *z) {
    const ein__expr *read[2];
    double alpha;
    if (!ein__two_factors(ctx, s, read, &alpha) || alpha != 1) return false;
    for (int transposed = 0; transposed < 2; transposed++)
        for (int k = 0; k < 2; k++) {
            *z = (ein__conv_form){.s = s, .x = read[k], .w = read[1 - k], .transposed = transposed};
            if (!ein__inside(ctx, z->w)) continue;
            if (ctx->value[z->x->val].weight_only && !ctx->value[z->w->val].weight_only) continue;
            if (ein__match_conv_form(ctx, z, out)) return true;
        }
    return false;
}

// Strides of the result of `s` by slot, dense.
static void ein__dense_result(const ein__scope *s, int64_t *out) {
    ein__shape shape = {.rank = (int)s->nt};
    for (uint32_t i = 0; i < s->nt; i++) shape.d[i] = s->n[i];
    ein__dense_strides(&shape, out);
}

// Whether a library computes `s` when all its operands are dense.
EIN__FN bool ein__is_library_form(ein_ctx *ctx, const ein__scope *s) {
    int64_t out[EIN__MAX_RANK];
    ein__conv_form z;
    ein__gemm g;
    ein__dense_result(s, out);
    if (ein__find_conv(ctx, s, out, &z) && ein__conv_sizes(&z)) return true;
    return ein__match_gemm(ctx, s, out, &g);
}

// ------------------------------------------------------------------------------------ bands

// A product whose second operand moves with the row: b is read at m + d * j + c along one dimension
// and nowhere else at m or j. m is a traversal iterator that a has too. G2BMM: j is a dimension of
// the result, the depth p is summed. GBMM: j is summed, and a's, p a dimension of the result that a
// has not. Every other iterator counts batches. Addresses may be any affine ones.
typedef struct ein__band {
    const ein__expr *a, *b;
    double alpha;
    int m, j, p, axis;  // slots; the moving dimension of b
    int64_t d, c;       // d < 0: the band runs backwards
    bool reduced;       // GBMM
    int64_t batch, rows, width, depth;
    ein__factor x, y;  // addresses of a, and of b without the moving dimension, when all is dense
} ein__band;

// Whether dimension `axis` of b is m + d * j + c.
static bool ein__band_axis(ein_ctx *ctx, const ein__scope *s, ein__band *g, int axis) {
    const ein__index *f = ein__ix_get(ctx, g->b->ix[axis]);
    int64_t dense[EIN__MAX_RANK];
    if (f->n != 2 || f->q != 1 || !ein__ix_affine(ctx, g->b->ix[axis])) return false;
    ein__dense_strides(&ctx->value[g->b->val].shape, dense);
    if (!ein__address_but(ctx, g->b, dense, axis, &g->y)) return false;
    for (int k = 0; k < 2; k++) {
        uint32_t m = ein__atom_get(ctx, f->t[k].atom)->slot,
                 j = ein__atom_get(ctx, f->t[1 - k].atom)->slot;
        int64_t d = f->t[1 - k].k;
        if (f->t[k].k != 1 || d > INT32_MAX || d < -INT32_MAX || m >= s->nt || !g->x.coef[m] ||
            g->y.coef[m] || g->y.coef[j])
            continue;
        g->reduced = j >= s->nt;
        if (g->reduced != (g->x.coef[j] != 0)) continue;
        g->m = (int)m;
        g->j = (int)j;
        g->d = d;
        g->c = f->c;
        g->axis = axis;
        return true;
    }
    return false;
}

// GBMM's column is a traversal iterator of b alone, the last such one.
static bool ein__band_sizes(const ein__scope *s, ein__band *g) {
    g->p = g->reduced ? -1 : (int)s->nt;
    for (uint32_t i = 0; g->reduced && i < s->nt; i++)
        if (g->y.coef[i] && !g->x.coef[i]) g->p = (int)i;
    if (g->p < 0) return false;
    g->rows = s->n[g->m];
    g->width = s->n[g->j];
    g->depth = s->n[g->p];
    g->batch = 1;
    for (uint32_t i = 0; i < s->nt; i++)
        if ((int)i != g->m && (int)i != g->j && (int)i != g->p) g->batch *= s->n[i];
    return true;
}

EIN__FN bool ein__match_band(ein_ctx *ctx, const ein__scope *s, ein__band *g) {
    const ein__expr *read[2];
    int64_t dense[EIN__MAX_RANK];
    double alpha;
    if (!ein__two_factors(ctx, s, read, &alpha) || s->ns != 1) return false;
    for (int k = 0; k < 2; k++) {
        *g = (ein__band){.a = read[k], .b = read[1 - k], .alpha = alpha};
        ein__dense_strides(&ctx->value[g->a->val].shape, dense);
        if (!ein__address(ctx, g->a, dense, &g->x)) continue;
        for (uint32_t i = 0; i < g->b->nix; i++)
            if (ein__band_axis(ctx, s, g, (int)i) && ein__band_sizes(s, g)) return true;
    }
    return false;
}

// How the kernel for a band (templates/band.cu) cuts it up: 16 x 16 threads of rm x rn elements,
// kc terms at a time. A tile takes rows of one residue modulo the dilation, which meet only rows of
// b of one residue, so between the rows of a tile and the `span` places that they reach the product
// is dense, whatever the dilation.
typedef struct ein__band_tile {
    int rm, rn, kc;
    int64_t residues, row_tiles, columns, span, terms;  // columns: tiles across
} ein__band_tile;

EIN__FN ein__band_tile ein__band_tiles(const ein__band *g) {
    ein__band_tile t;
    int64_t d = g->d < 0 ? -g->d : g->d, rows = (g->rows + d - 1) / d;
    bool large = rows >= 256 && g->width >= 256;
    t.rm = large ? 8 : 4;
    t.rn = large && (!g->reduced || g->depth > 64) ? 8 : 4;
    t.kc = large ? 8 : 16;
    t.residues = d < g->rows ? d : g->rows;
    t.row_tiles = (rows + 16 * t.rm - 1) / (16 * t.rm);
    t.span = g->width + 16 * t.rm - 1;
    t.columns = ((g->reduced ? g->depth : t.span) + 16 * t.rn - 1) / (16 * t.rn);
    t.terms = g->reduced ? t.span : g->depth;
    return t;
}
/* ---- fold.c ---- */
// Rewrites of the value program that need no search: maps inlined into maps, weight-only factors of
// a linear epilogue folded into the weights (batch normalisation is the common case), weight-only
// sub-expressions made values of their own. Each pass rebuilds the program bottom-up.

typedef struct ein__pass {
    ein_ctx *ctx;
    ein__val *order;  // live values, operands first; stb_ds array
    ein__val *now;    // by old value id: what it has become
    int *uses;        // by old value id: values that read it (outputs count as one more)
    size_t nold;
    ein__val *by_scope;  // by scope id: the value with this definition, so that equal ones are one
    ein__val self;       // value being rebuilt
    bool reduction;      // ... is a reduction
    bool copies_only;    // inline nothing but copies
    bool keep;           // a contraction that a library computes as it stands keeps its operands
    bool nothing;        // inline nothing
} ein__pass;

// ------------------------------------------------------------------------------------ the program

// Reads ordered by where in the model their values come from, so that the program keeps the model's
// order.
static void ein__by_node(const ein_ctx *ctx, ein__ex *reads) {
    for (ptrdiff_t i = 1; i < arrlen(reads); i++)
        for (ptrdiff_t j = i; j > 0; j--) {
            const ein__value *a = &ctx->value[ein__ex_get(ctx, reads[j - 1])->val];
            const ein__value *b = &ctx->value[ein__ex_get(ctx, reads[j])->val];
            if (a->node <= b->node) break;
            ein__ex swap = reads[j];
            reads[j] = reads[j - 1];
            reads[j - 1] = swap;
        }
}

static void ein__live_visit(ein_ctx *ctx, ein__val v, unsigned char *seen, ein__val **order) {
    // Depth is a model's longest chain; an explicit stack keeps long chains off the C stack.
    ein__val *stack = NULL;
    arrput(stack, v);
    while (arrlen(stack)) {
        ein__val top = arrlast(stack);
        if (seen[top.i] == 2) {
            (void)arrpop(stack);
            continue;
        }
        const ein__value *p = &ctx->value[top.i];
        ein__ex *reads = NULL;
        if (seen[top.i] == 0 && p->kind == EIN__V_SCOPE)
            ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body, &reads);
        ein__by_node(ctx, reads);
        if (seen[top.i] == 1 || !arrlen(reads)) {
            seen[top.i] = 2;
            arrput(*order, top);
            (void)arrpop(stack);
        } else {
            seen[top.i] = 1;
            for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
                ein__val r = {ein__ex_get(ctx, reads[i])->val};
                if (!seen[r.i]) arrput(stack, r);
            }
        }
        arrfree(reads);
    }
    arrfree(stack);
}

// Values that `root`s need, operands first.
EIN__FN ein__val *ein__live(ein_ctx *ctx, const ein__val *root, int nroot) {
    ein__val *order = NULL;
    unsigned char *seen = EIN_REALLOC(NULL, (size_t)arrlen(ctx->value) + 1);
    if (!seen) EIN_OUT_OF_MEMORY();
    memset(seen, 0, (size_t)arrlen(ctx->value) + 1);
    for (int i = 0; i < nroot; i++)
        if (!seen[root[i].i]) ein__live_visit(ctx, root[i], seen, &order);
    EIN_FREE(seen);
    return order;
}

// How many values read each value; a root has one use more.
EIN__FN int *ein__count_uses(ein_ctx *ctx, const ein__val *order, const ein__val *root, int nroot) {
    int *uses = NULL;
    arrsetlen(uses, arrlen(ctx->value));
    memset(uses, 0, (size_t)arrlen(uses) * sizeof *uses);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        const ein__value *p = &ctx->value[order[i].i];
        if (p->kind != EIN__V_SCOPE) continue;
        ein__ex *reads = NULL;
        ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body, &reads);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            bool first = true;
            for (ptrdiff_t j = 0; j < k; j++) first &= ein__ex_get(ctx, reads[j])->val != v;
            uses[v] += first;
        }
        arrfree(reads);
    }
    for (int i = 0; i < nroot; i++) uses[root[i].i]++;
    return uses;
}

static const ein__scope *ein__scope_of(ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    return p->kind == EIN__V_SCOPE ? ein__sc_get(ctx, p->scope) : NULL;
}

static bool ein__is_map(ein_ctx *ctx, ein__val v) {
    const ein__scope *s = ein__scope_of(ctx, v);
    return s && s->reduce == EIN__R_NONE;
}

// A map whose body is one read.
static const ein__expr *ein__copy_of(ein_ctx *ctx, ein__val v) {
    if (!ein__is_map(ctx, v)) return NULL;
    const ein__expr *e = ein__ex_get(ctx, ein__scope_of(ctx, v)->body);
    return e->op == EIN__X_READ ? e : NULL;
}

static bool ein__ex_affine(ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < e->nix; i++)
        if (!ein__ix_affine(ctx, e->ix[i])) return false;
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__ex_affine(ctx, e->kid[i])) return false;
    return true;
}

static bool ein__ex_reads_reduction(ein_ctx *ctx, ein__ex ex) {
    ein__ex *reads = NULL;
    bool found = false;
    ein__ex_reads(ctx, ex, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__scope *s = ein__scope_of(ctx, (ein__val){ein__ex_get(ctx, reads[i])->val});
        found |= s && s->reduce != EIN__R_NONE;
    }
    arrfree(reads);
    return found;
}

// ------------------------------------------------------------------------------------ inlining

// The body of map `p` at the subscripts of `read`; none when reading it so cannot be written as an
// expression (a padding other than 0, an index that need not be an integer).
static ein__ex ein__inline_body(ein_ctx *ctx, ein__val p, const ein__expr *read) {
    const ein__scope *s = ein__scope_of(ctx, p);
    for (uint32_t i = 0; i < read->nix; i++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[i]);
        bool inside = f->lo >= 0 && f->hi < s->n[i];
        if (f->q != 1 || (!inside && read->bits)) return (ein__ex){0};
    }
    ein__ex body = ein__ex_subst(ctx, s->body, read->ix, (int)s->nt);
    for (uint32_t i = 0; body.i && i < read->nix; i++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[i]);
        if (f->lo < 0 || f->hi >= s->n[i])
            body = ein__ex_when(ctx, read->ix[i], s->n[i], false, body);
    }
    return body;
}

enum { EIN__MAX_INLINE = 160 };  // nodes of an inlined body, counted as a tree

// Whether the reader may compute `p` itself instead of reading it from memory.
static bool ein__may_inline(ein__pass *z, ein__val old, ein__val p, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    const ein__value *value = &ctx->value[p.i], *self = &ctx->value[z->self.i];
    if (z->nothing || !ein__is_map(ctx, p)) return false;
    if (value->weight_only && !self->weight_only) return false;
    const ein__scope *s = ein__scope_of(ctx, p);
    bool copy = ein__copy_of(ctx, p) != NULL;
    if (z->copies_only) {
        if (!copy || !ein__ex_affine(ctx, s->body)) return false;
        for (uint32_t i = 0; i < read->nix; i++)
            if (!ein__ix_affine(ctx, read->ix[i])) return false;
        return true;
    }
    if (z->reduction) {
        // A statistic of the row, such as a mean: cheaper to finish here than to store.
        const ein__scope *r = ein__scope_of(ctx, z->self);
        int64_t volume = 1;
        for (uint32_t i = 0; i < r->nt + r->ns; i++) volume *= r->n[i];
        return ein__ex_size(ctx, s->body) <= 5 && ein__elements(&value->shape) * 8 <= volume &&
               ein__ex_reads_reduction(ctx, s->body);
    }
    if (copy) return z->uses[old.i] == 1 || ein__ex_affine(ctx, s->body);
    int64_t mine = ein__elements(&self->shape), its = ein__elements(&value->shape);
    bool small = ein__ex_size(ctx, s->body) <= 5 && its * 8 <= mine;
    return small || (z->uses[old.i] == 1 && its * 2 > mine);
}

static ein__ex ein__rebuild_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__pass *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val old = {e->val}, p = z->now[e->val];
    if (ein__may_inline(z, old, p, e)) {
        ein__attempt attempt = ein__try(ctx);
        ein__ex body = ein__inline_body(ctx, p, e);
        if (ein__tried(ctx, attempt) && body.i && ein__ex_size(ctx, body) <= EIN__MAX_INLINE)
            return body;
        if (ctx->status) return (ein__ex){0};
    }
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return ein__ex_read(ctx, p, pad, e->ix, (int)e->nix);
}

// A value like `v` with another body; `v` itself when the body is the same.
static ein__val ein__with_body(ein__pass *z, ein__val v, ein__ex body) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    ein__scope s = *ein__scope_of(ctx, v);
    if (s.body.i == body.i) return v;
    s.body = body;
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    ein__val w =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    ctx->value[w.i].why = old.why;
    return w;
}

// A contraction keeps its operands as they are unless copies seen through still leave a library
// call.
static ein__ex ein__rebuild_body(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    bool contraction = ein__is_contraction(ctx, s);
    z->self = v;
    z->reduction = s->reduce != EIN__R_NONE;
    if (contraction && !(z->keep && ein__is_library_form(ctx, s))) {
        z->copies_only = true;
        ein__ex seen = ein__ex_replace_reads(ctx, s->body, ein__rebuild_read, z);
        z->copies_only = false;
        if (!seen.i) return seen;
        ein__scope t = *s;
        t.body = seen;
        if (ein__is_library_form(ctx, &t)) return seen;
    }
    z->nothing = contraction;
    ein__ex body = ein__ex_replace_reads(ctx, s->body, ein__rebuild_read, z);
    z->nothing = false;
    return body;
}

static ein__val ein__rebuild_inline(ein__pass *z, ein__val v) {
    ein__ex body = ein__rebuild_body(z, v);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// ------------------------------------------------------------------------------------ linear
// folding

// `ex` as alpha * V + rest, where V is read by `read` and nowhere in alpha or rest. False: not
// linear.
static bool ein__linear_in(ein_ctx *ctx, ein__ex ex, ein__ex read, ein__ex *alpha, ein__ex *rest) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ex.i == read.i) {
        *alpha = ein__ex_const(ctx, 1);
        *rest = ein__ex_const(ctx, 0);
        return true;
    }
    if (!ein__ex_contains(ctx, ex, read)) return false;
    ein__ex a, r;
    if (e->op == EIN__X_UNARY && e->fn == EIN__NEG) {
        if (!ein__linear_in(ctx, e->kid[0], read, &a, &r)) return false;
        *alpha = ein__ex_unary(ctx, EIN__NEG, a);
        *rest = ein__ex_unary(ctx, EIN__NEG, r);
        return true;
    }
    if (e->op != EIN__X_BINARY) return false;
    bool left = ein__ex_contains(ctx, e->kid[0], read),
         right = ein__ex_contains(ctx, e->kid[1], read);
    ein__ex with = e->kid[left ? 0 : 1], other = e->kid[left ? 1 : 0];
    if ((left && right) || !ein__linear_in(ctx, with, read, &a, &r)) return false;
    switch (e->fn) {
    case EIN__ADD:
        *alpha = a;
        *rest = ein__ex_binary(ctx, EIN__ADD, r, other);
        return true;
    case EIN__SUB:
        *alpha = left ? a : ein__ex_unary(ctx, EIN__NEG, a);
        *rest = left ? ein__ex_binary(ctx, EIN__SUB, r, other)
                     : ein__ex_binary(ctx, EIN__SUB, other, r);
        return true;
    case EIN__MUL:
        *alpha = ein__ex_binary(ctx, EIN__MUL, a, other);
        *rest = ein__ex_binary(ctx, EIN__MUL, r, other);
        return true;
    case EIN__DIV:
        if (!left) return false;
        *alpha = ein__ex_binary(ctx, EIN__DIV, a, other);
        *rest = ein__ex_binary(ctx, EIN__DIV, r, other);
        return true;
    default: return false;
    }
}

static bool ein__ex_weight_only(ein_ctx *ctx, ein__ex ex) {
    ein__ex *reads = NULL;
    bool all = true;
    ein__ex_reads(ctx, ex, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        all &= ctx->value[ein__ex_get(ctx, reads[i])->val].weight_only;
    arrfree(reads);
    return all;
}

// The iterators of the reader in terms of those of the value it reads: `map[t]` for every traversal
// slot t of the reader, from subscripts that are t, t / d or t % d. False when some t is not
// covered.
static bool ein__invert_read(ein_ctx *ctx, const ein__expr *read, const ein__scope *reader,
                             const ein__scope *value, ein__ix *map) {
    for (uint32_t t = 0; t < reader->nt; t++) map[t] = ein__ix_const(ctx, 0);
    uint64_t covered[EIN__MAX_ITERS];
    for (uint32_t t = 0; t < reader->nt; t++) covered[t] = 1;
    for (uint32_t k = 0; k < read->nix; k++) {
        ein__ix it = ein__ix_iter(ctx, k, value->n[k]);
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        uint32_t slot;
        if (f->n == 0) continue;
        if (f->n != 1 || f->c || f->q != 1 || f->t[0].k != 1) return false;
        int64_t scale = 1;
        const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
        if (a->kind == EIN__ITER) {
            slot = a->slot;
        } else if (a->kind == EIN__FLOOR || a->kind == EIN__MOD) {
            if (!ein__ix_is_iter(ctx, (ein__ix){a->ix}, &slot)) return false;
            if (a->kind == EIN__FLOOR) scale = a->n;
        } else {
            return false;
        }
        if (slot >= reader->nt) return false;
        map[slot] = ein__ix_add(ctx, map[slot], ein__ix_scale(ctx, it, scale));
        covered[slot] *= (uint64_t)value->n[k];
    }
    for (uint32_t t = 0; t < reader->nt; t++)
        if (covered[t] != (uint64_t)reader->n[t]) return false;
    return true;
}

// New weight-only value with the iterators that `ex` uses as its dimensions; gives the read of it.
static ein__ex ein__hoist(ein__pass *z, const ein__scope *s, ein__ex ex, const char *suffix) {
    ein_ctx *ctx = z->ctx;
    uint32_t used = ein__ex_uses(ctx, ex);
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    ein__shape shape = {0};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (!(used >> i & 1)) continue;
        if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
        map[i] = ein__ix_iter(ctx, t.nt, s->n[i]);
        back[t.nt] = ein__ix_iter(ctx, i, s->n[i]);
        shape.d[shape.rank++] = t.n[t.nt++] = s->n[i];
    }
    t.body = ein__ex_subst(ctx, ex, map, (int)(s->nt + s->ns));
    if (!t.body.i) return t.body;
    ein__sc sc = ein__sc_make(ctx, &t);
    if (!sc.i) return (ein__ex){0};
    const ein__value self = ctx->value[z->self.i];
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc.i) arrput(z->by_scope, (ein__val){0});
    ein__val v = z->by_scope[sc.i];
    if (!v.i) {
        v = ein__val_new(ctx, ein__namef(ctx, "%s.%s", self.name, suffix), EIN__V_SCOPE,
                         self.tensor, sc, &shape, EIN__F32, self.node);
        z->by_scope[sc.i] = v;
    }
    return ein__ex_read(ctx, v, 0, back, (int)t.nt);
}

// Multiplies the weight factor of contraction `v` by alpha (already in v's iterators). None when no
// weight-only factor carries all of alpha's iterators.
static ein__val ein__scale_contraction(ein__pass *z, ein__val v, ein__ex alpha) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *e = ein__ex_get(ctx, s->body);
    if (s->reduce != EIN__R_SUM || e->op != EIN__X_BINARY || e->fn != EIN__MUL)
        return (ein__val){0};
    uint32_t used = ein__ex_uses(ctx, alpha);
    for (int k = 0; k < 2; k++) {
        ein__ex w = e->kid[k], x = e->kid[1 - k];
        if (!ein__ex_weight_only(ctx, w) || ein__ex_weight_only(ctx, x)) continue;
        if (used & ~ein__ex_uses(ctx, w)) continue;
        z->self = v;
        ein__ex scaled = ein__hoist(z, s, ein__ex_binary(ctx, EIN__MUL, w, alpha), "scaled");
        if (!scaled.i) return (ein__val){0};
        return ein__with_body(z, v, ein__ex_binary(ctx, EIN__MUL, x, scaled));
    }
    return (ein__val){0};
}

// In `ex`: the largest sub-expression linear in `read`, rewritten so that the contraction carries
// the factor. `scaled` receives the new contraction; none when nothing was to be done.
static ein__ex ein__fold_linear(ein__pass *z, const ein__scope *s, ein__ex ex, ein__ex read,
                                const ein__ix *map, ein__val *scaled) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *r = ein__ex_get(ctx, read);
    ein__ex alpha, rest;
    double one;
    if (ein__linear_in(ctx, ex, read, &alpha, &rest)) {
        if (!alpha.i || !rest.i || (ein__ex_is_const(ctx, alpha, &one) && one == 1)) return ex;
        if (!ein__ex_weight_only(ctx, alpha)) return ex;
        ein__ex inner = ein__ex_subst(ctx, alpha, map, (int)s->nt);
        if (!inner.i) return ex;
        *scaled = ein__scale_contraction(z, (ein__val){r->val}, inner);
        if (!scaled->i) return ex;
        ein__ex again = ein__ex_read(ctx, *scaled, 0, r->ix, (int)r->nix);
        double zero;
        if (ein__ex_is_const(ctx, rest, &zero) && zero == 0) return again;
        return ein__ex_binary(ctx, EIN__ADD, again, rest);
    }
    ein__expr copy = *ein__ex_get(ctx, ex);
    for (uint32_t i = 0; i < copy.nkid; i++) {
        if (!ein__ex_contains(ctx, copy.kid[i], read)) continue;
        ein__ex kid = ein__fold_linear(z, s, copy.kid[i], read, map, scaled);
        if (!kid.i || kid.i == copy.kid[i].i) return kid.i ? ex : kid;
        copy.kid[i] = kid;
        return ein__ex_make(ctx, &copy);
    }
    return ex;
}

// How often `read` stands in the tree of `ex`, up to 2.
static int ein__occurrences(ein_ctx *ctx, ein__ex ex, ein__ex read) {
    if (ex.i == read.i) return 1;
    const ein__expr *e = ein__ex_get(ctx, ex);
    int n = 0;
    for (uint32_t i = 0; i < e->nkid && n < 2; i++) n += ein__occurrences(ctx, e->kid[i], read);
    return n > 2 ? 2 : n;
}

// Folds the factor of one contraction that map `v` reads; gives the new map, or `v` when none is
// left.
static ein__val ein__fold_one_scale(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ex *reads = NULL;
    ein__val result = v;
    ein__ex_reads(ctx, s->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads) && result.i == v.i; i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        const ein__scope *p = ein__scope_of(ctx, (ein__val){r->val});
        ein__ix map[EIN__MAX_ITERS];
        ein__val scaled = {0};
        if (!p || p->reduce != EIN__R_SUM || ctx->value[r->val].weight_only) continue;
        if (r->val >= (uint32_t)arrlen(z->uses) || z->uses[r->val] != 1) continue;
        if (ein__occurrences(ctx, s->body, reads[i]) != 1) continue;
        if (!ein__invert_read(ctx, r, s, p, map)) continue;
        ein__ex body = ein__fold_linear(z, s, s->body, reads[i], map, &scaled);
        if (body.i && scaled.i) result = ein__with_body(z, v, body);
    }
    arrfree(reads);
    return result;
}

static ein__val ein__rebuild_scales(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || !ein__is_map(ctx, v) || ctx->value[v.i].weight_only) return v;
    for (ein__val next = ein__fold_one_scale(z, v); next.i != v.i;
         next = ein__fold_one_scale(z, v)) {
        if (!next.i) return next;
        v = next;
    }
    return v;
}

// ------------------------------------------------------------------------------------ hoisting

static bool ein__is_sum(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    return e->op == EIN__X_BINARY && e->fn == EIN__ADD;
}

// Adds the weight-only terms of a sum (or the others) up.
static ein__ex ein__sum_terms(ein_ctx *ctx, ein__ex ex, bool weights) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (ein__is_sum(ctx, ex))
        return ein__ex_binary(ctx, EIN__ADD, ein__sum_terms(ctx, e->kid[0], weights),
                              ein__sum_terms(ctx, e->kid[1], weights));
    return ein__ex_weight_only(ctx, ex) == weights ? ex : ein__ex_const(ctx, 0);
}

// a + (w + b) + v, with w and v known at load, as (a + b) + (w + v): one constant instead of two.
static ein__ex ein__group_terms(ein_ctx *ctx, ein__ex ex) {
    if (!ein__is_sum(ctx, ex)) return ex;
    return ein__ex_binary(ctx, EIN__ADD, ein__sum_terms(ctx, ex, false),
                          ein__sum_terms(ctx, ex, true));
}

// Replaces maximal weight-only sub-expressions that compute something by reads of values made once.
static ein__ex ein__hoist_weights(ein__pass *z, const ein__scope *s, ein__ex ex) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (!e->nkid) return ex;
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ex, &reads);
    bool any = arrlen(reads) > 0;
    arrfree(reads);
    if (!any) return ex;
    if (ein__ex_weight_only(ctx, ex)) {
        uint32_t used = ein__ex_uses(ctx, ex);
        int64_t mine = 1, all = 1;
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            if (used >> i & 1) mine *= s->n[i];
            all *= s->n[i];
        }
        // A table as large as the result would trade arithmetic for memory traffic.
        if (mine * 4 <= all || mine <= 4096) return ein__hoist(z, s, ex, "const");
        return ex;
    }
    ein__expr copy = *e;
    bool changed = false;
    ein__ex sum = ein__group_terms(ctx, ex);
    if (!sum.i || sum.i != ex.i) return sum.i ? ein__hoist_weights(z, s, sum) : sum;
    for (uint32_t i = 0; i < copy.nkid; i++) {
        ein__ex kid = ein__hoist_weights(z, s, copy.kid[i]);
        if (!kid.i) return kid;
        changed |= kid.i != copy.kid[i].i;
        copy.kid[i] = kid;
    }
    return changed ? ein__ex_make(ctx, &copy) : ex;
}

static ein__val ein__rebuild_hoist(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    if (!v.i || ctx->value[v.i].weight_only) return v;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (ein__is_contraction(ctx, s)) return v;
    z->self = v;
    body = ein__hoist_weights(z, s, s->body);
    return body.i ? ein__with_body(z, v, body) : (ein__val){0};
}

// ------------------------------------------------------------------------------------ passes

// Rebuilds the program under `root` with one rewrite; the roots are replaced.
static bool ein__run_pass(ein_ctx *ctx, ein__val *root, int nroot,
                          ein__val (*rewrite)(ein__pass *, ein__val)) {
    ein__pass z = {.ctx = ctx};
    z.order = ein__live(ctx, root, nroot);
    z.uses = ein__count_uses(ctx, z.order, root, nroot);
    z.nold = (size_t)arrlen(ctx->value);
    arrsetlen(z.now, (ptrdiff_t)z.nold);
    memset(z.now, 0, z.nold * sizeof *z.now);
    for (ptrdiff_t i = 0; i < arrlen(z.order) && !ctx->status; i++) {
        ein__val v = z.order[i];
        const ein__value old = ctx->value[v.i];
        ein__val now = old.kind == EIN__V_SCOPE ? rewrite(&z, v) : v;
        if (!now.i) break;
        z.now[v.i] = now;
        while (arrlen(z.uses) < arrlen(ctx->value)) arrput(z.uses, 0);
        if (now.i != v.i) z.uses[now.i] += z.uses[v.i];
        if (old.kind != EIN__V_SCOPE) continue;
        // Two values with one definition are one.
        uint32_t sc = ctx->value[now.i].scope.i;
        while (arrlen(z.by_scope) <= (ptrdiff_t)sc) arrput(z.by_scope, (ein__val){0});
        ein__val twin = z.by_scope[sc];
        bool is_root = false;
        for (int k = 0; k < nroot; k++) is_root |= root[k].i == v.i;
        if (!twin.i) z.by_scope[sc] = now;
        else if (!is_root && ctx->value[twin.i].dtype == ctx->value[now.i].dtype) z.now[v.i] = twin;
    }
    bool ok = !ctx->status;
    for (int k = 0; ok && k < nroot; k++) {
        root[k] = z.now[root[k].i];
        ok = root[k].i != 0;
    }
    arrfree(z.order);
    arrfree(z.uses);
    arrfree(z.now);
    arrfree(z.by_scope);
    return ok;
}

EIN__FN bool ein__fold(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_inline) &&
           ein__run_pass(ctx, root, nroot, ein__rebuild_scales) &&
           ein__run_pass(ctx, root, nroot, ein__rebuild_hoist);
}
/* ---- prepare.c ---- */
// Rewrites that give contractions and row statistics the form that a library call or a kernel
// needs: filters re-laid at load, uneven padding made explicit, maps reordered to run along what
// they read.

// A map value with `n` dimensions; gives it, or none.
static ein__val ein__new_map(ein__pass *z, const char *name, int n, const int64_t *extent,
                             ein__ex body) {
    ein_ctx *ctx = z->ctx;
    const ein__value self = ctx->value[z->self.i];
    ein__scope s = {.reduce = EIN__R_NONE, .nt = (uint32_t)n, .body = body};
    ein__shape shape = {.rank = n};
    if (!body.i) return (ein__val){0};
    for (int i = 0; i < n; i++) s.n[i] = shape.d[i] = extent[i];
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    while (arrlen(z->by_scope) <= (ptrdiff_t)sc.i) arrput(z->by_scope, (ein__val){0});
    if (z->by_scope[sc.i].i) return z->by_scope[sc.i];
    ein__val v =
        ein__val_new(ctx, name, EIN__V_SCOPE, self.tensor, sc, &shape, EIN__F32, self.node);
    z->by_scope[sc.i] = v;
    return v;
}

static ein__val ein__with_product(ein__pass *z, ein__val v, ein__ex x, ein__ex w) {
    if (!x.i || !w.i) return (ein__val){0};
    return ein__with_body(z, v, ein__ex_binary(z->ctx, EIN__MUL, x, w));
}

static ein__ex ein__ex_of(ein_ctx *ctx, const ein__expr *read) {
    double pad;
    memcpy(&pad, &read->bits, sizeof pad);
    return ein__ex_read(ctx, (ein__val){read->val}, pad, read->ix, (int)read->nix);
}

// The filter as a dense value in the library's order; its own read when it is that already.
static ein__ex ein__relay_filter(ein__pass *z, const ein__conv_form *f) {
    ein_ctx *ctx = z->ctx;
    int slot[EIN__MAX_ITERS], n = ein__conv_filter_order(f, slot);
    int64_t stride[EIN__MAX_RANK], extent[EIN__MAX_ITERS];
    ein__factor w;
    ein__strides_of(ctx, (ein__val){f->w->val}, stride);
    if (ein__address(ctx, f->w, stride, &w) && !w.offset &&
        ein__dense_in_order(f->s, w.coef, slot, n))
        return ein__ex_of(ctx, f->w);
    if (n > EIN__MAX_RANK) return (ein__ex){0};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int k = 0; k < n; k++) {
        extent[k] = f->s->n[slot[k]];
        map[slot[k]] = ein__ix_iter(ctx, (uint32_t)k, extent[k]);
        back[k] = ein__ix_iter(ctx, (uint32_t)slot[k], extent[k]);
    }
    ein__ex body = ein__ex_subst(ctx, ein__ex_of(ctx, f->w), map, (int)(f->s->nt + f->s->ns));
    const char *name = ein__namef(ctx, "%s.filter", ctx->value[z->self.i].name);
    ein__val v = ein__new_map(z, name, n, extent, body);
    return v.i ? ein__ex_read(ctx, v, 0, back, n) : (ein__ex){0};
}

// x with its padding written out, so that the window starts at 0 and ends with the data. The window
// along every axis becomes stride * o + dilation * r.
static ein__ex ein__pad_data(ein__pass *z, const ein__conv_form *f) {
    ein_ctx *ctx = z->ctx;
    const ein__conv *c = &f->c;
    int rank = (int)f->x->nix;
    int64_t extent[EIN__MAX_RANK];
    ein__ix from[EIN__MAX_RANK], to[EIN__MAX_RANK];
    for (int k = 0; k < rank; k++) {
        extent[k] = ctx->value[f->x->val].shape.d[k];
        to[k] = f->x->ix[k];
        from[k] = ein__ix_iter(ctx, (uint32_t)k, extent[k]);
    }
    for (int a = 0; a < c->spatial; a++) {
        int k = f->axis[a];
        extent[k] = (c->out[a] - 1) * c->stride[a] + (c->k[a] - 1) * c->dilation[a] + 1;
        from[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, (uint32_t)k, extent[k]), -c->pad[a]);
        to[k] = ein__ix_addc(ctx, to[k], c->pad[a]);
    }
    ein__ex body = ein__ex_read(ctx, (ein__val){f->x->val}, 0, from, rank);
    const char *name = ein__namef(ctx, "%s.padded", ctx->value[z->self.i].name);
    ein__val v = ein__new_map(z, name, rank, extent, body);
    return v.i ? ein__ex_read(ctx, v, 0, to, rank) : (ein__ex){0};
}

// A transposed convolution with uneven padding: computed without padding, then cut (and, where
// output padding reaches beyond, filled with 0) by a map.
static ein__val ein__crop_transposed(ein__pass *z, ein__val v, const ein__conv_form *f, ein__ex w) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    ein__scope s = *f->s;
    ein__ix map[EIN__MAX_ITERS], cut[EIN__MAX_RANK];
    ein__shape shape = old.shape;
    for (uint32_t i = 0; i < s.nt + s.ns; i++) map[i] = ein__ix_iter(ctx, i, s.n[i]);
    for (uint32_t i = 0; i < s.nt; i++) cut[i] = map[i];
    for (int a = 0; a < f->c.spatial; a++) {
        if (f->space[a] < 0) return v;  // a single position: left to a kernel
        uint32_t o = (uint32_t)f->space[a];
        s.n[o] = shape.d[o] =
            (f->c.in[a] - 1) * f->c.stride[a] + (f->c.k[a] - 1) * f->c.dilation[a] + 1;
        map[o] = ein__ix_addc(ctx, ein__ix_iter(ctx, o, s.n[o]), -f->c.pad[a]);
        cut[o] = ein__ix_addc(ctx, cut[o], f->c.pad[a]);
    }
    ein__ex product = ein__ex_binary(ctx, EIN__MUL, ein__ex_of(ctx, f->x), w);
    s.body = product.i ? ein__ex_subst(ctx, product, map, (int)(s.nt + s.ns)) : product;
    if (!s.body.i) return (ein__val){0};
    ein__sc sc = ein__sc_make(ctx, &s);
    ein__val full = sc.i ? ein__val_new(ctx, ein__namef(ctx, "%s.full", old.name), EIN__V_SCOPE,
                                        old.tensor, sc, &shape, EIN__F32, old.node)
                         : (ein__val){0};
    if (!full.i) return full;
    return ein__new_map(z, old.name, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, full, 0, cut, old.shape.rank));
}

static ein__val ein__rebuild_convolution(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    z->keep = true;  // derivation may have chosen the copy
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || !ein__is_contraction(ctx, s)) return v;
    int64_t out[EIN__MAX_RANK];
    ein__conv_form f;
    ein__dense_result(s, out);
    z->self = v;
    if (!ein__find_conv(ctx, s, out, &f)) return v;
    ein__ex w = ein__relay_filter(z, &f);
    if (!w.i) return ctx->status ? (ein__val){0} : v;
    if (ein__conv_sizes(&f)) return ein__with_product(z, v, ein__ex_of(ctx, f.x), w);
    if (f.transposed) return ein__crop_transposed(z, v, &f, w);
    return ein__with_product(z, v, ein__pad_data(z, &f), w);
}

// ------------------------------------------------------------------------------------ maps

// Rewrites map `v` so that its traversal order is `slot[]`, and gives the copy that puts the
// dimensions back; layouts make that copy a view.
static ein__val ein__reorder_map(ein__pass *z, ein__val v, const int *slot) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    const ein__scope *s = ein__scope_of(ctx, v);
    ein__ix map[EIN__MAX_RANK], back[EIN__MAX_RANK];
    int64_t extent[EIN__MAX_RANK];
    for (uint32_t k = 0; k < s->nt; k++) {
        extent[k] = s->n[slot[k]];
        map[slot[k]] = ein__ix_iter(ctx, k, extent[k]);
        back[k] = ein__ix_iter(ctx, (uint32_t)slot[k], extent[k]);
    }
    z->self = v;
    ein__val w = ein__new_map(z, ein__namef(ctx, "%s.rows", old.name), (int)s->nt, extent,
                              ein__ex_subst(ctx, s->body, map, (int)s->nt));
    if (!w.i) return w;
    return ein__new_map(z, old.name, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, w, 0, back, (int)s->nt));
}

// Map `v` over the box of the reduction that `read` reads, when the two differ by digits or order
// only; `v` becomes a copy of it.
static ein__val ein__follow_reduction(ein__pass *z, ein__val v, const ein__expr *read) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    const ein__scope *s = ein__scope_of(ctx, v), *p = ein__scope_of(ctx, (ein__val){read->val});
    ein__ix map[EIN__MAX_ITERS];
    if (!ein__invert_read(ctx, read, s, p, map)) return v;
    z->self = v;
    ein__ex body = ein__ex_subst(ctx, s->body, map, (int)s->nt);
    ein__val w = ein__new_map(z, ein__namef(ctx, "%s.split", old.name), (int)p->nt, p->n, body);
    if (!w.i) return w;
    return ein__new_map(z, old.name, old.shape.rank, old.shape.d,
                        ein__ex_read(ctx, w, 0, read->ix, (int)read->nix));
}

static bool ein__reads_in_place(ein_ctx *ctx, const ein__expr *read, const ein__scope *reader) {
    if (read->nix != reader->nt) return false;
    for (uint32_t k = 0; k < read->nix; k++)
        if (read->ix[k].i != ein__ix_iter(ctx, k, reader->n[k]).i ||
            ctx->value[read->val].shape.d[k] != reader->n[k])
            return false;
    return true;
}

// Traversal slots at which `read` reads a row statistic: bare, distinct and fewer than the reader
// has. Dimensions of extent 1 have no iterator and count as rows.
static bool ein__row_slots(ein_ctx *ctx, const ein__expr *read, const ein__scope *reader,
                           uint32_t *mask) {
    *mask = 0;
    for (uint32_t k = 0; k < reader->nt; k++)
        if (reader->n[k] == 1) *mask |= 1u << k;
    for (uint32_t k = 0; k < read->nix; k++) {
        uint32_t slot;
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        if (f->n == 0) continue;
        if (!ein__ix_is_iter(ctx, read->ix[k], &slot) || (*mask >> slot & 1)) return false;
        if (ctx->value[read->val].shape.d[k] != reader->n[slot]) return false;
        *mask |= 1u << slot;
    }
    return true;
}

// Gives maps over reductions the traversal that lets one kernel compute both.
static ein__val ein__rebuild_map_order(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    z->keep = true;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || s->reduce != EIN__R_NONE || s->nt == 0) return v;
    if (ein__ex_get(ctx, s->body)->op == EIN__X_READ) return v;
    ein__ex *reads = NULL;
    ein__val result = v;
    ein__ex_reads(ctx, s->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads) && result.i == v.i; i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        const ein__scope *p = ein__scope_of(ctx, (ein__val){r->val});
        uint32_t rows;
        if (!p || p->reduce == EIN__R_NONE || ein__reads_in_place(ctx, r, s)) continue;
        if (!ein__row_slots(ctx, r, s, &rows)) {
            if (z->uses[r->val] == 1) result = ein__follow_reduction(z, v, r);
            continue;
        }
        int slot[EIN__MAX_RANK], n = 0;
        bool ordered = true;
        for (int pass = 1; pass >= 0; pass--)
            for (uint32_t k = 0; k < s->nt; k++)
                if ((int)(rows >> k & 1) == pass) {
                    ordered &= n == (int)k;
                    slot[n++] = (int)k;
                }
        if (!ordered) result = ein__reorder_map(z, v, slot);
    }
    arrfree(reads);
    return result;
}

EIN__FN bool ein__prepare(ein_ctx *ctx, ein__val *root, int nroot) {
    return ein__run_pass(ctx, root, nroot, ein__rebuild_convolution) &&
           ein__run_pass(ctx, root, nroot, ein__rebuild_map_order);
}
/* ---- cost.c ---- */
// Devices, and the table of measured costs. Costs are picoseconds, as integers: a table's measured
// row where there is one, else an estimate (estimate.c). The emitted file says of every cost which
// it is.

// Rates are dense, at boost clock: GFLOP/s and MB/s. `l2_rate` is the rate of the L2 cache in
// percent of the memory's. `node` is the cost of one CUDA-graph node, ns.
typedef struct ein__gpu {
    const char *name, *title;
    int cc, sms;
    int64_t fp32, bandwidth, l2_bytes, l2_rate, node_ns;
} ein__gpu;

// Sources: vendors' datasheets and whitepapers; launch costs are starting values until measured. No
// datasheet states a rate for the L2: V100's is 2.2 TB/s as microbenchmarks have it, which is 0.28
// of 64 bytes a clock and SM; the others are estimates between 0.3 and 0.6 of that.
static const ein__gpu ein__gpu_table[] = {
    {"h200", "H200 SXM", 90, 132, 67000, 4800000, 60 << 20, 140, 1300},
    {"h100", "H100 SXM", 90, 132, 67000, 3350000, 50 << 20, 200, 1300},
    {"a100", "A100 SXM 80GB", 80, 108, 19500, 2039000, 40 << 20, 220, 1500},
    {"a100-40", "A100 SXM 40GB", 80, 108, 19500, 1555000, 40 << 20, 288, 1500},
    {"v100", "V100 SXM2", 70, 80, 15700, 900000, 6 << 20, 240, 1500},
    {"l4", "L4", 89, 58, 30300, 300000, 48 << 20, 500, 1500},
    {"rtx4090", "RTX 4090", 89, 128, 82600, 1008000, 72 << 20, 450, 1500},
    {"nano", "Jetson Nano", 53, 1, 236, 25600, 256 << 10, 140, 8000},
    {"tx2", "Jetson TX2", 62, 2, 670, 59700, 512 << 10, 140, 8000},
    {"xavier-nx", "Jetson Xavier NX", 72, 6, 850, 59700, 512 << 10, 250, 8000},
    {"agx-xavier", "Jetson AGX Xavier", 72, 8, 1410, 137000, 512 << 10, 200, 8000},
    {"orin-nano", "Jetson Orin Nano 8GB", 87, 8, 1280, 68000, 2 << 20, 250, 4000},
    {"orin-nx", "Jetson Orin NX 16GB", 87, 8, 1880, 102000, 4 << 20, 250, 4000},
    {"agx-orin", "Jetson AGX Orin 64GB", 87, 16, 5300, 204800, 4 << 20, 300, 4000},
    {"agx-thor", "Jetson AGX Thor T5000", 110, 20, 8100, 273000, 32 << 20, 400, 4000},
};

EIN__FN const ein__gpu *ein__gpu_at(int index) {
    int n = (int)(sizeof ein__gpu_table / sizeof *ein__gpu_table);
    return index >= 0 && index < n ? &ein__gpu_table[index] : NULL;
}

EIN__FN const ein__gpu *ein__gpu_find(const char *name) {
    for (int i = 0; ein__gpu_at(i); i++)
        if (!strcmp(ein__gpu_table[i].name, name)) return &ein__gpu_table[i];
    return NULL;
}

static const ein__gpu *ein__gpu_of(const ein_ctx *ctx) {
    const ein__gpu *g = ein__gpu_find(ctx->desc.gpu ? ctx->desc.gpu : "h200");
    return g ? g : &ein__gpu_table[0];
}

// a * b / c without overflow, saturating; no operand is negative.
static int64_t ein__muldiv(int64_t a, int64_t b, int64_t c) {
    __extension__ typedef unsigned __int128 wide;
    wide v = (wide)a * (wide)b / (wide)c;
    return v > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)v;
}

// ------------------------------------------------------------------------------------ the table

// Canonical text of a library call: what a measured row is found by.
EIN__FN const char *ein__gemm_key(ein_ctx *ctx, const ein__gemm *g) {
    return ein__namef(
        ctx, "gemm f32 fma b=%lld m=%lld n=%lld k=%lld ta=%d tb=%d lda=%lld ldb=%lld ldc=%lld",
        (long long)g->batch, (long long)g->m, (long long)g->n, (long long)g->k, g->ta, g->tb,
        (long long)g->lda, (long long)g->ldb, (long long)g->ldc);
}

static void ein__put_axes_key(ein__buf *b, const char *name, const int64_t *v, int n) {
    ein__putf(b, " %s=", name);
    for (int i = 0; i < n; i++) ein__putf(b, "%s%lld", i ? "x" : "", (long long)v[i]);
}

EIN__FN const char *ein__conv_key(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    ein__buf b = {0};
    ein__putf(&b, "%s f32 fma nchw n=%lld c=%lld f=%lld g=%lld", transposed ? "conv_data" : "conv",
              (long long)c->n, (long long)c->c, (long long)c->f, (long long)c->group);
    ein__put_axes_key(&b, "in", c->in, c->spatial);
    ein__put_axes_key(&b, "out", c->out, c->spatial);
    ein__put_axes_key(&b, "k", c->k, c->spatial);
    ein__put_axes_key(&b, "s", c->stride, c->spatial);
    ein__put_axes_key(&b, "p", c->pad, c->spatial);
    ein__put_axes_key(&b, "d", c->dilation, c->spatial);
    ein__putf(&b, " bias=%d z=%d relu=%d", c->bias.i != 0, c->z.i != 0, c->relu);
    const char *key = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return key;
}

// The measured cost of `key` on the context's GPU; false when no table has it.
EIN__FN bool ein__measured(ein_ctx *ctx, const char *key, int64_t *ps) {
    if (!shlen(ctx->costs)) return false;
    ptrdiff_t at = shgeti(ctx->costs, key);
    if (at >= 0) *ps = ctx->costs[at].value;
    return at >= 0;
}

// One field up to a tab or the line's end; `*s` moves behind it.
static const char *ein__cost_field(ein_ctx *ctx, const char **s, const char *end) {
    const char *from = *s;
    while (*s < end && **s != '\t') ++*s;
    const char *field = ein__name_n(ctx, from, (size_t)(*s - from));
    if (*s < end) ++*s;
    return field;
}

static bool ein__cost_number(const char *s, int64_t *v) {
    *v = 0;
    if (!*s || strlen(s) > 18) return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9') return false;
        *v = *v * 10 + (*s - '0');
    }
    return true;
}

// One row: device, key, picoseconds, spread (per mille), library versions.
static bool ein__cost_row(ein_ctx *ctx, const char *name, uint32_t line, const char *s,
                          const char *end) {
    const char *gpu = ein__cost_field(ctx, &s, end), *key = ein__cost_field(ctx, &s, end);
    const char *ps = ein__cost_field(ctx, &s, end);
    int64_t v, old;
    if (!ein__cost_number(ps, &v) || !*gpu || !*key) {
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0},
                   "%s:%u: not a cost row: device, key, picoseconds, "
                   "spread, versions, separated by tabs",
                   name, (unsigned)line);
        return false;
    }
    if (strcmp(gpu, ein__gpu_of(ctx)->name)) return true;
    if (ein__measured(ctx, key, &old) && old != v) {
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0},
                   "%s:%u: another cost for '%s' was given before", name, (unsigned)line, key);
        return false;
    }
    shput(ctx->costs, key, v);
    return true;
}

EIN__FN bool ein__add_costs(ein_ctx *ctx, const char *name, const char *text, size_t length) {
    uint32_t line = 1;
    const char *end = text + length;
    ctx->cost_hash = ein__fnv(ctx->cost_hash ? ctx->cost_hash : EIN__FNV_START, text, length);
    for (const char *s = text; s < end; line++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        const char *last = stop > s && stop[-1] == '\r' ? stop - 1 : stop;
        if (last > s && *s != '#' && !ein__cost_row(ctx, name, line, s, last)) return false;
        s = stop + 1;
    }
    return true;
}
/* ---- estimate.c ---- */
// Estimates: how long a library call or a kernel takes that no table knows. A roofline with shares
// of the peaks by kind of call, the machine's fill by tiles, bytes by class of access, and the L2
// cache. It orders candidates; shares that no published figure supports are round numbers. Integers
// only: every product saturates, and no estimate shrinks when a size grows.

static const int64_t EIN__PS_LIMIT = (int64_t)1 << 48;  // 20000 steps of it add up without overflow

// What runs. Math is FP32 without tensor cores: cuDNN then takes NCHW as it is, and no conversion
// kernels come with a call.
typedef enum {
    EIN__E_GEMM,
    EIN__E_GEMM_BATCHED,
    EIN__E_GEMM_SKINNY,   // m or n at most 8: the matrix streams through
    EIN__E_CONV,          // implicit GEMM
    EIN__E_CONV_DATA,     // backward-data
    EIN__E_CONV_SCATTER,  // ... with strides: every position has taps of its own
    EIN__E_CONV_GROUPED,  // one small product a group
    EIN__E_CONV_NARROW,   // depthwise and nearly so: no product to tile
    EIN__E_BAND,          // tiled kernel, without double buffering
    EIN__E_LOOPS,  // plain loops: two loads a multiply-add, and an SM loads 1/4 of what it adds
    EIN__E_ROW,    // rows: as loops, with exchanges between the lanes
    EIN__E_MAP     // an instruction a node; the peak counts two operations an instruction
} ein__ekind;

// e_c: share of peak arithmetic once the machine is filled, in 1/1000.
static const int64_t ein__math_share[] = {
    [EIN__E_GEMM] = 750,         [EIN__E_GEMM_BATCHED] = 700, [EIN__E_GEMM_SKINNY] = 300,
    [EIN__E_CONV] = 700,         [EIN__E_CONV_DATA] = 550,    [EIN__E_CONV_SCATTER] = 350,
    [EIN__E_CONV_GROUPED] = 500, [EIN__E_CONV_NARROW] = 50,   [EIN__E_BAND] = 450,
    [EIN__E_LOOPS] = 90,         [EIN__E_ROW] = 90,           [EIN__E_MAP] = 300,
};

typedef enum {
    EIN__BY_UNIT,
    EIN__BY_STRIDE,
    EIN__BY_WINDOW,
    EIN__BY_GATHER,
    EIN__NACCESS
} ein__access;

// e_m: share of peak bandwidth, in 1/1000. Unit stride is a measured copy; windows are read again
// from the caches.
static const int64_t ein__memory_share[] = {880, 800, 800, 600};

enum {
    EIN__SECTOR = 32,           // bytes: the least that memory moves
    EIN__INTENSITY = 4,         // operations an element, see ein_desc.intensity
    EIN__LOOP_TURN_PS = 10000,  // a turn of a loop whose loads hit a cache, some in flight
    EIN__ROW_LENGTH = 8192,     // elements of a row that fit a block's registers
    EIN__ROW_THREADS = 32,
    EIN__SKINNY = 8,
    EIN__CHANNELS = 8,     // below this many input channels a convolution computes with padded ones
    EIN__SPLIT_DEPTH = 64  // terms that a part of a split product has at least
};

// Traffic and arithmetic of one call.
typedef struct ein__work {
    int64_t math_ps, chain_ps;    // arithmetic; what one thread does in sequence
    int64_t bytes[EIN__NACCESS];  // of activations
    int64_t weights;              // bytes: from memory, whatever the L2 cache holds
} ein__work;

static int64_t ein__times(int64_t a, int64_t b) { return ein__muldiv(a, b, 1); }

static int64_t ein__plus(int64_t a, int64_t b) {
    return a > INT64_MAX / 4 - b ? INT64_MAX / 4 : a + b;
}

static int64_t ein__ceil(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int64_t ein__least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t ein__most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t ein__bytes_of(ein_ctx *ctx, ein__val v) {
    const ein__value *p = &ctx->value[v.i];
    return ein__elements(&p->shape) * ein__dtype_size(p->dtype);
}

// `share`: of the peak, in 1/1000.
static int64_t ein__math_ps(const ein__gpu *g, int64_t flop, int64_t share) {
    return ein__muldiv(flop, 1000 * 1000, g->fp32 * share);
}

// Time of `bytes` at e_m `share`, from memory or from the L2 cache.
static int64_t ein__memory_ps(const ein__gpu *g, int64_t bytes, int64_t share, bool cached) {
    int64_t rate = cached ? ein__most(g->bandwidth * g->l2_rate / 100, g->bandwidth) : g->bandwidth;
    return ein__muldiv(bytes, 1000 * 1000 * 1000, rate * share);
}

// What the step before wrote is in the L2 cache while all that this one touches fits half of it.
static int64_t ein__work_ps(const ein__gpu *g, const ein__work *w) {
    int64_t set = w->weights, memory = ein__memory_ps(g, w->weights, ein__memory_share[0], false);
    for (int k = 0; k < EIN__NACCESS; k++) set = ein__plus(set, w->bytes[k]);
    for (int k = 0; k < EIN__NACCESS; k++)
        memory = ein__plus(
            memory, ein__memory_ps(g, w->bytes[k], ein__memory_share[k], set <= g->l2_bytes / 2));
    int64_t ps =
        ein__most(ein__most(w->math_ps, w->chain_ps), ein__most(memory, g->node_ns * 1000));
    return ein__least(ps, EIN__PS_LIMIT);
}

static void ein__add_operand(ein_ctx *ctx, ein__work *w, ein__val v, ein__access access,
                             int64_t bytes) {
    bool weight = v.i && ctx->value[v.i].weight_only;
    int64_t *to = weight ? &w->weights : &w->bytes[access];
    // The memory's share is that of unit stride.
    if (weight) bytes = ein__muldiv(bytes, ein__memory_share[0], ein__memory_share[access]);
    *to = ein__plus(*to, bytes);
}

// ------------------------------------------------------------------------------- library calls

// A tiled product: the least over square tiles and, where the library has it, split-K. A wave of
// blocks takes as long as a full one; the parts of a split are added up in the L2 cache.
static int64_t ein__tiled_ps(const ein__gpu *g, int64_t m, int64_t n, int64_t k, int64_t batch,
                             int64_t share, int most_split) {
    static const int64_t tile[] = {128, 64, 32}, relative[] = {1000, 850, 600};
    int64_t best = INT64_MAX;
    for (int t = 0; t < 3; t++)
        for (int split = 1; split <= most_split; split *= 2) {
            int64_t blocks = ein__times(ein__ceil(m, tile[t]), ein__ceil(n, tile[t]));
            blocks = ein__times(ein__times(blocks, batch), split);
            int64_t depth = ein__most(ein__ceil(k, split), split > 1 ? EIN__SPLIT_DEPTH : 1);
            int64_t slots = ein__times(ein__ceil(blocks, g->sms), g->sms);
            int64_t flop = ein__times(slots, ein__times(2 * tile[t] * tile[t], depth));
            int64_t ps = ein__math_ps(g, flop, share * relative[t] / 1000);
            int64_t parts = ein__times(ein__times(m, n), ein__times(batch, 2 * 4 * split));
            if (split > 1) ps = ein__plus(ps, ein__memory_ps(g, parts, ein__memory_share[0], true));
            best = ein__least(best, ps);
        }
    return best;
}

EIN__FN int64_t ein__cost_gemm(ein_ctx *ctx, const ein__gemm *p) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t ps, mn = ein__times(p->m, p->n);
    if (ein__measured(ctx, ein__gemm_key(ctx, p), &ps)) return ps;
    ein__ekind kind = p->batch > 1 ? EIN__E_GEMM_BATCHED : EIN__E_GEMM;
    ein__work w = {0};
    w.math_ps = ein__tiled_ps(g, p->m, p->n, p->k, p->batch, ein__math_share[kind], 8);
    if (p->m <= EIN__SKINNY || p->n <= EIN__SKINNY) {
        int64_t flop = ein__times(ein__times(2 * p->batch, mn), p->k);
        w.math_ps =
            ein__least(w.math_ps, ein__math_ps(g, flop, ein__math_share[EIN__E_GEMM_SKINNY]));
    }
    int64_t copies_a = p->sa ? p->batch : 1, copies_b = p->sb ? p->batch : 1;
    ein__add_operand(ctx, &w, p->a, EIN__BY_UNIT, ein__times(ein__times(p->m, p->k), 4 * copies_a));
    ein__add_operand(ctx, &w, p->b, EIN__BY_UNIT, ein__times(ein__times(p->k, p->n), 4 * copies_b));
    ein__add_operand(ctx, &w, (ein__val){0}, EIN__BY_UNIT, ein__times(mn, 4 * p->batch));
    return ein__work_ps(g, &w);
}

// Arithmetic of a convolution. Its implicit GEMM has no split-K (EinNet's Table 3 has 126 us for
// [1,512,7,7] 3x3 on an A100: 32 of 108 SMs busy), except a 1x1 one, which is a plain product.
static int64_t ein__conv_math_ps(const ein__gpu *g, const ein__conv *c, bool transposed) {
    int64_t out = c->n, in = c->n, taps = 1, strides = 1;
    bool point = !transposed;
    for (int i = 0; i < c->spatial; i++) {
        out = ein__times(out, c->out[i]);
        in = ein__times(in, c->in[i]);
        taps = ein__times(taps, c->k[i]);
        strides = ein__times(strides, c->stride[i]);
        point &= c->k[i] == 1 && c->stride[i] == 1 && !c->pad[i];
    }
    int64_t channels = ein__ceil(c->c, c->group), filters = ein__ceil(c->f, c->group);
    if (c->group > 1 && (channels < 4 || filters < 4)) {
        int64_t flop = ein__times(2 * (transposed ? in : out), ein__times(taps, channels));
        return ein__math_ps(g, ein__times(flop, c->f), ein__math_share[EIN__E_CONV_NARROW]);
    }
    ein__ekind kind = c->group > 1 ? EIN__E_CONV_GROUPED : point ? EIN__E_GEMM : EIN__E_CONV;
    if (transposed && c->group == 1) kind = strides > 1 ? EIN__E_CONV_SCATTER : EIN__E_CONV_DATA;
    if (transposed) taps = ein__ceil(taps, strides);
    if (!point) channels = ein__most(channels, EIN__CHANNELS);
    return ein__tiled_ps(g, out, filters, ein__times(channels, taps), c->group,
                         ein__math_share[kind], point ? 8 : 1);
}

EIN__FN int64_t ein__cost_conv(ein_ctx *ctx, const ein__conv *c, bool transposed) {
    const ein__gpu *g = ein__gpu_of(ctx);
    int64_t out = c->n, in = c->n, taps = 4, ps;
    if (ein__measured(ctx, ein__conv_key(ctx, c, transposed), &ps)) return ps;
    for (int i = 0; i < c->spatial; i++) {
        out = ein__times(out, c->out[i]);
        in = ein__times(in, c->in[i]);
        taps = ein__times(taps, c->k[i]);
    }
    ein__work w = {.math_ps = ein__conv_math_ps(g, c, transposed)};
    int64_t result = ein__times(4 * c->f, out);
    ein__add_operand(ctx, &w, c->x, EIN__BY_UNIT, ein__times(4 * c->c, in));
    ein__add_operand(ctx, &w, c->w, EIN__BY_UNIT,
                     ein__times(taps, ein__times(c->f, ein__ceil(c->c, c->group))));
    ein__add_operand(ctx, &w, (ein__val){0}, EIN__BY_UNIT, result);
    if (c->z.i) ein__add_operand(ctx, &w, c->z, EIN__BY_UNIT, result);
    return ein__work_ps(g, &w);
}

// ------------------------------------------------------------------------------------- kernels

// Operations of an expression as a tree, saturating: divisions and simple functions are some
// instructions each, the others some tens.
static int64_t ein__ex_operations(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    int64_t n = e->op == EIN__X_READ || e->op == EIN__X_CONST ? 0 : 1;
    if (e->op == EIN__X_UNARY || e->op == EIN__X_BINARY) {
        bool slow = e->fn == EIN__POW || e->fn == EIN__TANH || e->fn == EIN__ERF;
        bool middle = e->fn == EIN__DIV || e->fn == EIN__EXP || e->fn == EIN__LOG ||
                      e->fn == EIN__SQRT || e->fn == EIN__RSQRT || e->fn == EIN__SIGMOID;
        n = slow ? 20 : middle ? 8 : 1;
    }
    for (uint32_t i = 0; i < e->nkid && n < 1000000; i++) n += ein__ex_operations(ctx, e->kid[i]);
    return ein__least(n, 1000000);
}

// How far, in elements, a subscript moves when iterator `slot` does by one: rounded up, -1 where
// the data decide. Inside floor and mod it is the step between two wraps.
static int64_t ein__ix_step(const ein_ctx *ctx, ein__ix ix, uint32_t slot) {
    const ein__index *f = ein__ix_get(ctx, ix);
    int64_t step = 0;
    for (uint32_t t = 0; t < f->n; t++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[t].atom);
        int64_t k = f->t[t].k < 0 ? -f->t[t].k : f->t[t].k, inner = a->slot == slot;
        if (a->kind == EIN__GATHER) {
            if (ein__atom_uses(ctx, f->t[t].atom) >> slot & 1) return -1;
            continue;
        }
        if (a->kind != EIN__ITER) {
            inner = ein__ix_step(ctx, (ein__ix){a->ix}, slot);
            if (inner < 0) return -1;
            if (a->kind == EIN__FLOOR) inner = inner < a->n ? 0 : inner / a->n;
        }
        step = ein__plus(step, ein__times(k, inner));
    }
    return ein__ceil(step, f->q);
}

// The same for a read's address.
static int64_t ein__read_step(ein_ctx *ctx, const ein__expr *e, uint32_t slot) {
    int64_t stride[EIN__MAX_RANK], step = 0;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    for (uint32_t k = 0; k < e->nix; k++) {
        int64_t by = ein__ix_step(ctx, e->ix[k], slot);
        if (by < 0) return -1;
        step = ein__plus(step, ein__times(by, stride[k] < 0 ? -stride[k] : stride[k]));
    }
    return step;
}

// Product of the extents of some iterators; at least 1.
static int64_t ein__extent_of(const ein__scope *s, uint32_t slots) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (slots >> i & 1) n = ein__times(n, ein__most(s->n[i], 1));
    return n;
}

static int64_t ein__outputs_of(const ein__scope *s) { return ein__extent_of(s, (1u << s->nt) - 1); }

static int64_t ein__terms_of(const ein__scope *s) { return ein__extent_of(s, ~0u << s->nt); }

// Different elements that a read touches: the box of its subscripts' ranges, and no more than there
// are combinations of the iterators.
static int64_t ein__read_distinct(ein_ctx *ctx, const ein__scope *s, const ein__expr *e,
                                  uint32_t *used) {
    const ein__shape *shape = &ctx->value[e->val].shape;
    int64_t n = 1;
    *used = 0;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[k]);
        uint32_t uses = ein__ix_uses(ctx, e->ix[k]);
        int64_t lo = ein__most(f->lo, 0), hi = ein__least(f->hi, shape->d[k] - 1);
        int64_t range = hi < lo ? 1 : hi - lo + 1;
        n = ein__times(n, ein__least(range, ein__extent_of(s, uses)));
        *used |= uses;
    }
    return ein__least(n, ein__extent_of(s, *used));
}

// One read: its class, and the elements it moves, counted by the sectors they lie in. `lane` is the
// iterator along which neighbouring threads run. Where other iterators come by the rest of a
// sector, the caches keep two thirds of it for them.
static int64_t ein__read_elements(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, int lane,
                                  ein__access *access) {
    const ein__value *v = &ctx->value[e->val];
    uint32_t used;
    int64_t n = ein__read_distinct(ctx, s, e, &used), all = ein__most(ein__elements(&v->shape), 1);
    int64_t sector = EIN__SECTOR / ein__dtype_size(v->dtype);
    int64_t step = lane < 0 ? 1 : ein__read_step(ctx, e, (uint32_t)lane);
    *access = EIN__BY_UNIT;
    if (step < 0) {
        *access = EIN__BY_GATHER;
        return ein__least(ein__times(n, sector), all);
    }
    if (step <= 1) {
        if (ein__extent_of(s, used) / n >= 2) *access = EIN__BY_WINDOW;
        return n;
    }
    bool filled = false;
    *access = EIN__BY_STRIDE;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        int64_t other = (int)i == lane || s->n[i] == 1 ? 0 : ein__read_step(ctx, e, i);
        filled |= other > 0 && other < ein__least(step, sector);
    }
    int64_t wide = ein__times(n, ein__least(step, sector));
    return filled ? ein__plus(n, (wide - n) / 3) : ein__least(wide, all);
}

// A permutation whose innermost dimension changes, where both sides are worth a tile. `out`:
// strides of the result.
static bool ein__is_transpose(ein_ctx *ctx, const ein__scope *s, const int64_t *out) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    int inner = -1, out_inner = -1;
    if (s->reduce != EIN__R_NONE || e->op != EIN__X_READ || s->nt < 2) return false;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    if (!ein__address(ctx, e, stride, &f)) return false;
    for (uint32_t t = 0; t < s->nt; t++) {
        if (s->n[t] > 1 && f.coef[t] == 1) inner = (int)t;
        if (s->n[t] > 1 && out[t] == 1) out_inner = (int)t;
        if (s->n[t] > 1 && f.coef[t] <= 0) return false;
    }
    return inner >= 0 && out_inner >= 0 && inner != out_inner && s->n[inner] >= 8 &&
           s->n[out_inner] >= 8;
}

// A kernel to be estimated: the definitions that it computes, operands first. What `inner` names is
// no memory traffic.
typedef struct ein__kernel {
    ein__skind2 kind;
    int n;
    const ein__scope *s[8];
    ein__val inner[8];
    const int64_t *out;  // strides of the result; NULL: dense
    int64_t size;        // bytes of an element of the result
} ein__kernel;

// The iterator along which neighbouring threads run: that of the result's neighbours, or the terms
// of a reduction when its largest operand has them adjacent and threads share an output.
static int ein__kernel_lane(ein_ctx *ctx, const ein__kernel *k, bool *terms) {
    const ein__scope *first = k->s[0], *last = k->s[k->n - 1];
    int lane = -1, along = -1;
    *terms = false;
    for (uint32_t i = 0; i < last->nt; i++)
        if (last->n[i] > 1 && (!k->out || k->out[i] == 1)) lane = (int)i;
    if (k->kind != EIN__K_REDUCE) return lane;
    int64_t outputs = ein__outputs_of(first), most = 0;
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, first->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        uint32_t used;
        int64_t n = ein__read_distinct(ctx, first, e, &used);
        if (n <= most) continue;
        most = n;
        along = -1;
        for (uint32_t t = first->nt; t < first->nt + first->ns; t++)
            if (first->n[t] >= 32 && ein__read_step(ctx, e, t) == 1) along = (int)t;
    }
    arrfree(reads);
    if (along < 0 || outputs > 16384) return lane;
    *terms = true;
    return along;
}

// Turns that one thread's loop makes: all the terms, or its part of them where there are few
// outputs.
static int64_t ein__loop_turns(const ein__scope *s, bool terms) {
    int64_t outputs = ein__outputs_of(s), count = ein__terms_of(s);
    int64_t turns = count;
    if (outputs > 16384) return turns;
    turns = ein__least(turns, ein__most(ein__ceil(count, terms ? 32 : 8), 32));
    if (terms && outputs <= 528) turns = ein__least(turns, ein__most(ein__ceil(count, 256), 64));
    return turns;
}

// Elements read by value, so that several reads of one value do not count more than it has.
typedef struct ein__traffic {
    ein__ex *seen;
    struct ein__traffic_of {
        ein__val v;
        ein__access access;
        int64_t n;
    } * of;
} ein__traffic;

static void ein__add_traffic(ein_ctx *ctx, ein__traffic *z, const ein__kernel *k,
                             const ein__scope *s, int lane) {
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, s->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        bool skip = false;
        for (ptrdiff_t j = 0; j < arrlen(z->seen); j++) skip |= z->seen[j].i == reads[i].i;
        for (int j = 0; j < 8; j++) skip |= k->inner[j].i == e->val;
        arrput(z->seen, reads[i]);
        if (skip) continue;
        ein__access access;
        int64_t n = ein__read_elements(ctx, s, e, lane, &access);
        // Tiles through shared memory: whole sectors on both sides.
        if (k->kind == EIN__K_TRANSPOSE) n = ein__extent_of(s, ~0u);
        ptrdiff_t at = 0;
        while (at < arrlen(z->of) && z->of[at].v.i != e->val) at++;
        if (at == arrlen(z->of))
            arrput(z->of, ((struct ein__traffic_of){{e->val}, EIN__BY_UNIT, 0}));
        struct ein__traffic_of *o = &z->of[at];
        int64_t all = ein__elements(&ctx->value[e->val].shape);
        // Sectors fetched again stay; neighbouring reads of a value share its elements.
        o->n = ein__most(ein__most(o->n, n), ein__least(ein__plus(o->n, n), all));
        if (access > o->access) o->access = access;
    }
    arrfree(reads);
}

// Elements that the kernel reads and writes; the traffic goes to `w`. Rows too long for registers
// are read by every pass.
static int64_t ein__kernel_traffic(ein_ctx *ctx, const ein__kernel *k, ein__work *w, bool *terms) {
    const ein__scope *last = k->s[k->n - 1];
    ein__traffic z = {0};
    int64_t outputs = ein__outputs_of(last), elements = outputs;
    int lane = ein__kernel_lane(ctx, k, terms);
    bool again = k->kind == EIN__K_ROW && outputs / ein__outputs_of(k->s[0]) > EIN__ROW_LENGTH;
    for (int i = 0; i < k->n; i++)
        // A map behind shared reductions runs once an output.
        if (!i || !*terms) ein__add_traffic(ctx, &z, k, k->s[i], lane);
        else ein__add_traffic(ctx, &z, k, k->s[i], (int)last->nt - 1);
    for (ptrdiff_t i = 0; i < arrlen(z.of); i++) {
        const ein__value *v = &ctx->value[z.of[i].v.i];
        int64_t n = again ? ein__times(z.of[i].n, k->n) : z.of[i].n;
        elements = ein__plus(elements, n);
        ein__add_operand(ctx, w, z.of[i].v, z.of[i].access,
                         ein__times(n, ein__dtype_size(v->dtype)));
    }
    ein__access access = k->kind == EIN__K_TRANSPOSE ? EIN__BY_STRIDE : EIN__BY_UNIT;
    w->bytes[access] = ein__plus(w->bytes[access], ein__times(outputs, k->size));
    arrfree(z.seen);
    arrfree(z.of);
    return elements;
}

// A band kernel is a tiled product: its arithmetic is that of the tiles, their waste at the band's
// edges included, which the machine takes in waves; what a tile shares it loads once. Dilation
// costs nothing by itself, since tiles take rows of one residue; it does where neighbours in memory
// are rows, because then only every d-th element of a sector is used. So where rows are contiguous
// a re-layout by the dilation cannot pay; it is found, and costs its copies.
static void ein__band_work(ein_ctx *ctx, const ein__scope *s, ein__work *w) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__band b;
    if (!ein__match_band(ctx, s, &b)) return;
    ein__band_tile t = ein__band_tiles(&b);
    int64_t tiles = ein__times(ein__times(t.row_tiles, t.columns), ein__times(b.batch, t.residues));
    int64_t slots = ein__times(ein__ceil(tiles, g->sms), g->sms);
    int64_t flop = ein__times(slots, ein__times(2 * 16 * t.rm * 16 * t.rn, t.terms));
    int64_t unused = ein__least(t.residues, 8) - 1;
    const ein__expr *strided[2] = {b.x.coef[b.m] == 1 ? b.a : NULL,
                                   b.axis + 1 == (int)b.b->nix ? b.b : NULL};
    for (int k = 0; k < 2; k++)
        if (strided[k])
            ein__add_operand(ctx, w, (ein__val){strided[k]->val}, EIN__BY_UNIT,
                             ein__times(unused, ein__bytes_of(ctx, (ein__val){strided[k]->val})));
    w->math_ps = ein__math_ps(g, flop, ein__math_share[EIN__E_BAND]);
}

// A generated kernel. Arithmetic that stays below the intensity threshold (operations an element
// read or written, EinNet's test of what may be an eOperator) hides behind the memory; a product
// above it runs at the rate of plain loops.
static int64_t ein__cost_kernel(ein_ctx *ctx, const ein__kernel *k) {
    const ein__gpu *g = ein__gpu_of(ctx);
    ein__work w = {0};
    bool terms = false;
    int64_t elements = ein__kernel_traffic(ctx, k, &w, &terms), flop = 0;
    int64_t threshold = ctx->desc.intensity > 0 ? ctx->desc.intensity : EIN__INTENSITY;
    ein__ekind kind = k->kind == EIN__K_ROW      ? EIN__E_ROW
                      : k->kind == EIN__K_REDUCE ? EIN__E_LOOPS
                                                 : EIN__E_MAP;
    for (int i = 0; i < k->n; i++) {
        const ein__scope *s = k->s[i];
        int64_t each = ein__ex_operations(ctx, s->body) + (s->reduce != EIN__R_NONE);
        if (k->kind == EIN__K_BAND && s->reduce != EIN__R_NONE) ein__band_work(ctx, s, &w);
        else flop = ein__plus(flop, ein__times(ein__extent_of(s, ~0u), each));
        if (k->kind == EIN__K_REDUCE && s->reduce != EIN__R_NONE)
            w.chain_ps = ein__times(ein__loop_turns(s, terms), EIN__LOOP_TURN_PS);
        if (k->kind == EIN__K_ROW && s->reduce != EIN__R_NONE)
            w.chain_ps = ein__plus(
                w.chain_ps,
                ein__times(ein__ceil(ein__terms_of(s), EIN__ROW_THREADS), EIN__LOOP_TURN_PS));
    }
    if (flop > ein__times(elements, threshold))
        w.math_ps = ein__plus(w.math_ps, ein__math_ps(g, flop, ein__math_share[kind]));
    return ein__work_ps(g, &w);
}

// A kernel of its own for definition `s`, with map `m` (or none) fused that reads it by `read`.
// Dense, but for values that a plan has placed.
static int64_t ein__cost_scope(ein_ctx *ctx, ein__skind2 kind, const ein__scope *s, ein__val m,
                               ein__ex read) {
    ein__kernel k = {.kind = kind, .n = 1, .s = {s}, .size = 4};
    int64_t out[EIN__MAX_RANK];
    if (m.i) {
        k.s[k.n++] = ein__scope_of(ctx, m);
        k.inner[0] = (ein__val){ein__ex_get(ctx, read)->val};
        k.size = ein__dtype_size(ctx->value[m.i].dtype);
    }
    ein__dense_result(k.s[k.n - 1], out);
    k.out = out;
    if (kind == EIN__K_MAP && !m.i && ein__is_transpose(ctx, s, out)) k.kind = EIN__K_TRANSPOSE;
    return ein__cost_kernel(ctx, &k);
}

// A kernel of the plan, its values placed.
EIN__FN int64_t ein__cost_step(ein_ctx *ctx, const ein__step *step) {
    ein__kernel k = {.kind = step->kind, .n = step->nval};
    for (int i = 0; i < step->nval; i++) {
        k.s[i] = ein__scope_of(ctx, step->val[i]);
        if (i + 1 < step->nval) k.inner[i] = step->val[i];
    }
    k.out = ctx->plan.layout[step->out.i].stride;
    k.size = ein__dtype_size(ctx->value[step->out.i].dtype);
    return ein__cost_kernel(ctx, &k);
}

// Of two costs that are spent one after the other.
static int64_t ein__cost_sum(int64_t a, int64_t b) {
    return ein__least(ein__plus(a, b), INT64_MAX / 8);
}
/* ---- select.c ---- */
// Which step computes which values: library call or kernel, and what is fused into it.

typedef struct ein__selector {
    ein_ctx *ctx;
    ein__val *order;    // live values, operands first; stb_ds arrays
    int *uses;          // by value
    ein__val *home;     // by value: the value whose step computes it (itself, or a later one)
    ein__skind2 *kind;  // by value: how a reduction is computed
    bool *root;         // by value: is a model output
} ein__selector;

EIN__FN int64_t ein__kernel_cost(ein_ctx *ctx, ein__val v) {
    return ein__cost_scope(ctx, EIN__K_MAP, ein__scope_of(ctx, v), (ein__val){0}, (ein__ex){0});
}

// ------------------------------------------------------------------------------------ epilogues

// relu?(sum of reads) as cuDNN's fused form has it: act(conv + z + bias).
typedef struct ein__epilogue {
    ein__val bias, z;
    bool relu;
} ein__epilogue;

static bool ein__is_bias(ein_ctx *ctx, const ein__expr *e, const ein__scope *m) {
    if (e->op != EIN__X_READ || m->nt < 2 || !ein__inside(ctx, e)) return false;
    if (!ctx->value[e->val].weight_only || ctx->value[e->val].dtype != EIN__F32) return false;
    if (ein__elements(&ctx->value[e->val].shape) != m->n[1]) return false;
    uint32_t used = 0;
    for (uint32_t k = 0; k < e->nix; k++) used |= ein__ix_uses(ctx, e->ix[k]);
    int64_t coef = 0, stride[EIN__MAX_RANK];
    ein__factor f;
    ein__dense_strides(&ctx->value[e->val].shape, stride);
    if (ein__address(ctx, e, stride, &f)) coef = f.coef[1];
    return (used == 2u && coef == 1) || (m->n[1] == 1 && !used);
}

static bool ein__add_term(ein_ctx *ctx, const ein__scope *m, ein__ex ex, ein__ex conv,
                          ein__epilogue *e, bool *seen) {
    const ein__expr *x = ein__ex_get(ctx, ex);
    if (ex.i == conv.i) {
        if (*seen) return false;
        return *seen = true;
    }
    if (x->op == EIN__X_BINARY && x->fn == EIN__ADD)
        return ein__add_term(ctx, m, x->kid[0], conv, e, seen) &&
               ein__add_term(ctx, m, x->kid[1], conv, e, seen);
    if (x->op != EIN__X_READ) return false;
    if (!e->bias.i && ein__is_bias(ctx, x, m)) {
        e->bias = (ein__val){x->val};
        return true;
    }
    if (!e->z.i && ein__reads_in_place(ctx, x, m) && ctx->value[x->val].dtype == EIN__F32) {
        e->z = (ein__val){x->val};
        return true;
    }
    return false;
}

// Whether map `m` over the convolution read by `conv` is relu?(conv [+ z] [+ bias]). The result has
// rank >= 3 with channels second, as the convolution's has.
static bool ein__conv_epilogue(ein_ctx *ctx, const ein__scope *m, ein__ex conv, ein__epilogue *e) {
    bool seen = false;
    const ein__expr *top = ein__ex_get(ctx, m->body);
    *e = (ein__epilogue){0};
    ein__ex sum = m->body;
    if (top->op == EIN__X_UNARY && top->fn == EIN__RELU) {
        e->relu = true;
        sum = top->kid[0];
    } else if (top->op == EIN__X_BINARY && top->fn == EIN__MAX) {
        double zero = 1;
        for (int k = 0; k < 2; k++)
            if (ein__ex_is_const(ctx, top->kid[k], &zero) && zero == 0) {
                e->relu = true;
                sum = top->kid[1 - k];
            }
        if (!e->relu) return false;
    }
    return ein__add_term(ctx, m, sum, conv, e, &seen) && seen;
}

// ------------------------------------------------------------------------------------ reductions

static ein__skind2 ein__kernel_kind(ein_ctx *ctx, const ein__scope *s) {
    ein__band b;
    return ein__match_band(ctx, s, &b) ? EIN__K_BAND : EIN__K_REDUCE;
}

// The cheapest way to compute contraction `s`, and in `*ps` what it costs together with map `m`,
// which alone reads it by `read` (or none): a library call, with the map fused where the library
// can, or a kernel, which fuses any. Equal costs go to the library.
static ein__skind2 ein__choose(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read,
                               int64_t *ps) {
    int64_t out[EIN__MAX_RANK];
    ein__conv_form f;
    ein__gemm g;
    ein__epilogue e;
    ein__dense_result(s, out);
    bool conv = ein__find_conv(ctx, s, out, &f) && ein__conv_sizes(&f);
    bool gemm = ein__match_gemm(ctx, s, out, &g);
    int64_t map = m.i ? ein__kernel_cost(ctx, m) : 0;
    ein__skind2 kind = ein__kernel_kind(ctx, s);
    *ps = ein__cost_scope(ctx, kind, s, m, read);
    if (gemm) {
        int64_t gemm_ps = ein__cost_sum(ein__cost_gemm(ctx, &g), map);
        if (gemm_ps <= *ps) {
            *ps = gemm_ps;
            kind = EIN__K_GEMM;
        }
    }
    if (conv) {
        bool fused =
            m.i && !f.transposed && ein__conv_epilogue(ctx, ein__scope_of(ctx, m), read, &e);
        if (fused) {
            f.c.bias = e.bias;
            f.c.z = e.z;
            f.c.relu = e.relu;
        }
        int64_t conv_ps = ein__cost_sum(ein__cost_conv(ctx, &f.c, f.transposed), fused ? 0 : map);
        if (conv_ps <= *ps) {
            *ps = conv_ps;
            kind = f.transposed ? EIN__K_CONV_DATA : EIN__K_CONV;
        }
    }
    return kind;
}

// The map that alone reads reduction `v`, at its own index, and that read; none otherwise. `order`
// is searched from place `from`.
EIN__FN ein__val ein__sole_reader(ein_ctx *ctx, const ein__val *order, const int *uses, ein__val v,
                                  ptrdiff_t from, ein__ex *read) {
    if (uses[v.i] != 1) return (ein__val){0};
    for (ptrdiff_t i = from; i < arrlen(order); i++) {
        ein__val m = order[i];
        const ein__scope *s = ein__scope_of(ctx, m);
        if (!s) continue;
        ein__ex *reads = NULL;
        ein__val found = {0};
        int times = 0;
        ein__ex_reads(ctx, s->body, &reads);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            const ein__expr *r = ein__ex_get(ctx, reads[k]);
            if (r->val != v.i) continue;
            times++;
            *read = reads[k];
            if (s->reduce == EIN__R_NONE && ein__reads_in_place(ctx, r, s)) found = m;
        }
        arrfree(reads);
        if (times) return times == 1 ? found : (ein__val){0};
    }
    return (ein__val){0};
}

// ------------------------------------------------------------------------------------ rows

enum { EIN__MAX_ROW_VALS = 8 };

// Whether reduction `r` runs over the dimensions of map `m` behind the first `rows`, with the rows'
// iterators in front, and nobody outside the step needs it.
static bool ein__row_member(ein__selector *z, ein__val r, const ein__scope *m, uint32_t rows) {
    const ein__scope *s = ein__scope_of(z->ctx, r);
    if (!s || s->reduce == EIN__R_NONE || z->root[r.i] || s->nt != rows || s->nt + s->ns != m->nt)
        return false;
    if (z->ctx->value[r.i].weight_only) return false;
    for (uint32_t i = 0; i < m->nt; i++)
        if (s->n[i] != m->n[i]) return false;
    return !ein__is_contraction(z->ctx, s);
}

// Adds to `list` the reductions that `v` reads and that run over the same rows, operands first.
static bool ein__row_collect(ein__selector *z, ein__val v, const ein__scope *m, uint32_t rows,
                             ein__val *list, int *n) {
    ein_ctx *ctx = z->ctx;
    ein__ex *reads = NULL;
    bool ok = true;
    ein__ex_reads(ctx, ein__scope_of(ctx, v)->body, &reads);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        ein__val r = {e->val};
        bool known = false, bare = e->nix == rows;
        for (int k = 0; k < *n; k++) known |= list[k].i == r.i;
        if (known || !ein__row_member(z, r, m, rows)) continue;
        for (uint32_t k = 0; bare && k < rows; k++)
            bare = e->ix[k].i == ein__ix_iter(ctx, k, m->n[k]).i;
        if (!bare) continue;
        ok = ein__row_collect(z, r, m, rows, list, n) && *n < EIN__MAX_ROW_VALS - 1;
        if (ok) list[(*n)++] = r;
    }
    arrfree(reads);
    return ok;
}

// Uses of `r` by the members and by `m` itself must be all there are.
static bool ein__row_closed(ein__selector *z, ein__val m, const ein__val *list, int n) {
    ein_ctx *ctx = z->ctx;
    for (int k = 0; k < n; k++) {
        int inside = 0;
        for (int j = 0; j <= n; j++) {
            ein__ex *reads = NULL;
            bool does = false;
            ein__ex_reads(ctx, ein__scope_of(ctx, j < n ? list[j] : m)->body, &reads);
            for (ptrdiff_t i = 0; i < arrlen(reads); i++)
                does |= ein__ex_get(ctx, reads[i])->val == list[k].i;
            arrfree(reads);
            inside += does;
        }
        if (inside != z->uses[list[k].i]) return false;
    }
    return true;
}

// The reductions that map `m` can compute along its own rows; 0 when there are none.
static int ein__row_members(ein__selector *z, ein__val m, ein__val *list) {
    const ein__scope *s = ein__scope_of(z->ctx, m);
    for (uint32_t rows = s->nt; rows-- > 0;) {
        int n = 0;
        if (s->n[rows] == 1 && rows + 1 == s->nt) continue;
        if (ein__row_collect(z, m, s, rows, list, &n) && n && ein__row_closed(z, m, list, n))
            return n;
    }
    return 0;
}

// ------------------------------------------------------------------------------------ selection

static void ein__select_rows(ein__selector *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val m = z->order[i], list[EIN__MAX_ROW_VALS];
        if (!ein__is_map(ctx, m) || ctx->value[m.i].weight_only || ein__copy_of(ctx, m)) continue;
        int n = ein__row_members(z, m, list);
        for (int k = 0; k < n; k++) z->home[list[k].i] = m;
        if (n) z->kind[m.i] = EIN__K_ROW;
    }
}

static void ein__select_reductions(ein__selector *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (!s || s->reduce == EIN__R_NONE || z->home[v.i].i != v.i) continue;
        ein__ex read = {0};
        ein__epilogue e;
        ein__val m = {0};
        if (!z->root[v.i]) m = ein__sole_reader(ctx, z->order, z->uses, v, i + 1, &read);
        if (m.i &&
            (z->kind[m.i] == EIN__K_ROW ||
             ctx->value[m.i].weight_only != ctx->value[v.i].weight_only || ein__copy_of(ctx, m)))
            m = (ein__val){0};
        int64_t ps;
        if (!ein__is_contraction(ctx, s) || ctx->value[v.i].weight_only)
            z->kind[v.i] = ein__kernel_kind(ctx, s);
        else z->kind[v.i] = ein__choose(ctx, s, m, read, &ps);
        bool fuse = m.i && (z->kind[v.i] == EIN__K_BAND || z->kind[v.i] == EIN__K_REDUCE);
        if (m.i && z->kind[v.i] == EIN__K_CONV)
            fuse = ein__conv_epilogue(ctx, ein__scope_of(ctx, m), read, &e);
        // A map fuses with one reduction only.
        for (ptrdiff_t k = 0; fuse && k < i; k++)
            fuse = z->home[z->order[k].i].i != m.i || z->order[k].i == m.i;
        if (!fuse) continue;
        z->home[v.i] = m;
        z->kind[m.i] = z->kind[v.i];
    }
}

EIN__FN void ein__select(ein__selector *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t n = arrlen(ctx->value);
    z->order = ein__live(ctx, root, nroot);
    z->uses = ein__count_uses(ctx, z->order, root, nroot);
    arrsetlen(z->home, n);
    arrsetlen(z->kind, n);
    arrsetlen(z->root, n);
    for (ptrdiff_t i = 0; i < n; i++) {
        z->home[i] = (ein__val){(uint32_t)i};
        z->kind[i] = EIN__K_MAP;
        z->root[i] = false;
    }
    for (int k = 0; k < nroot; k++) z->root[root[k].i] = true;
    ein__select_rows(z);
    ein__select_reductions(z);
}

EIN__FN void ein__select_free(ein__selector *z) {
    arrfree(z->order);
    arrfree(z->uses);
    arrfree(z->home);
    arrfree(z->kind);
    arrfree(z->root);
}
/* ---- derive.c ---- */
// Derivation: other definitions of a contraction, found by rules on its expression alone (EinNet
// section 4, OLLIE section 4). A class is a tensor value, its members are equivalent definitions; a
// definition reads other classes, so alternatives add up instead of multiplying. Layouts are no
// part of it: they are chosen afterwards.
//
//   summation splitting     V = sum(y,z) a b        =>  V = sum(y) W,  W = sum(z) a b
//   variable substitution   W depends on x, y only through E(x,y)  =>  W[x,y] = W'[E(x,y)], with
//   the
//                           range of E tightened to where the reads are inside (boundary
//                           tightening)
//   operator matching       a read that a library cannot address is written out as a tensor first
//   digit re-layout         a[d*x + u], u = d*U + p  =>  a'[x + U, p], a'[i,p] = a[d*i + p]

enum {
    EIN__DERIVE_STATES = 1000,  // definitions of one problem; ein_desc.states
    EIN__DERIVE_DEPTH = 8,      // rules in a row; ein_desc.depth
    EIN__MAX_RULES = 16,
    EIN__MAX_GROWTH = 16,  // of an activation written out for a library call
    EIN__MAX_SPLIT = 6     // summation iterators whose subsets are enumerated
};

typedef struct ein__def {
    ein__val cls;
    ein__sc sc;
    int from;  // definition it was made from, -1 for a class's first
    int depth;
    const char *rule;  // name of the rule and what it was applied to
    bool inner;        // the inner half of a split: not split again, a direct split gives the same
} ein__def;

typedef struct ein__deriver {
    ein_ctx *ctx;
    ein__def *def;          // stb_ds arrays
    ein__val *cls;          // classes made, each by its first definition
    int64_t *cost;          // by class: of the cheapest definition; 0 not known, -1 being found
    int *best;              // by class: that definition
    ein__val problem, map;  // what is derived, and the map that alone reads it (or none)
    ein__ex map_read;
    uint32_t first;             // values from here on were made for this problem
    int added[EIN__MAX_RULES];  // definitions by rule
    int64_t lookups;            // definitions that rules gave, known ones included
    ein_stop stop;
} ein__deriver;

#ifdef EIN_CHECK_STEPS
static int64_t ein__steps_checked;

// Both sides of a rule's application, modulo 2^61-1, at random places, with what the problem reads
// as free inputs. Test builds only: this costs far more than the rule.
static void ein__check_step(ein__deriver *z, ein__val cls, ein__sc sc, const char *rule) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[cls.i];
    if (old.scope.i == sc.i) return;
    ein__val other =
        ein__val_new(ctx, old.name, EIN__V_SCOPE, old.tensor, sc, &old.shape, old.dtype, old.node);
    bool *fresh = NULL;
    for (uint32_t i = 0; i < (uint32_t)arrlen(ctx->value); i++)
        arrput(fresh, i < z->first && i != z->problem.i);
    if (!ein__evalp_equal_from(ctx, cls, other, EIN_CHECK_STEPS, 1, fresh))
        ein__error(ctx, EIN_DIFFERS, (ein__pos){0, 0}, "%s: %s changes the value", old.name, rule);
    arrfree(fresh);
    ein__steps_checked++;
}
#endif

static void ein__stopped(ein__deriver *z, ein_stop why) {
    if (z->stop < why) z->stop = why;
}

static bool ein__add_def(ein__deriver *z, ein__val cls, const ein__scope *s, int from,
                         const char *rule, bool inner) {
    const ein_desc *limit = &z->ctx->desc;
    ein__sc sc = ein__sc_make(z->ctx, s);
    if (!sc.i) return false;
    z->lookups++;
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !limit->no_fingerprint; i++)
        if (z->def[i].sc.i == sc.i && z->def[i].cls.i == cls.i) return false;
    if (arrlen(z->def) >= (limit->states ? limit->states : EIN__DERIVE_STATES)) {
        ein__stopped(z, EIN_STOP_STATES);
        return false;
    }
#ifdef EIN_CHECK_STEPS
    ein__check_step(z, cls, sc, rule);
#endif
    ein__def d = {cls, sc, from, from < 0 ? 0 : z->def[from].depth + 1, rule, inner};
    arrput(z->def, d);
    return true;
}

// Place of a class in `cls`; -1 for other values.
static ptrdiff_t ein__class_at(const ein__deriver *z, ein__val v) {
    if (v.i < z->first && v.i != z->problem.i) return -1;
    for (ptrdiff_t i = 0; i < arrlen(z->cls); i++)
        if (z->cls[i].i == v.i) return i;
    return -1;
}

// The class whose definition is `s`, made when there is none.
static ein__val ein__class_of(ein__deriver *z, const ein__scope *s, const char *suffix, int from,
                              const char *rule, bool inner) {
    ein_ctx *ctx = z->ctx;
    const ein__value base = ctx->value[z->problem.i];
    ein__shape shape = {.rank = (int)s->nt};
    if (s->nt > EIN__MAX_RANK || s->nt + s->ns > EIN__MAX_ITERS) return (ein__val){0};
    ein__sc sc = ein__sc_make(ctx, s);
    if (!sc.i) return (ein__val){0};
    for (ptrdiff_t i = 0; i < arrlen(z->cls); i++)
        if (ctx->value[z->cls[i].i].scope.i == sc.i && !ctx->desc.no_fingerprint) return z->cls[i];
    for (uint32_t i = 0; i < s->nt; i++) shape.d[i] = s->n[i];
    if (ein__elements(&shape) > EIN__MAX_ELEMENTS) return (ein__val){0};
    ein__val v = ein__val_new(ctx, ein__namef(ctx, "%s.%s", base.name, suffix), EIN__V_SCOPE,
                              base.tensor, sc, &shape, EIN__F32, base.node);
    if (!ein__add_def(z, v, s, from, rule, inner)) return (ein__val){0};
    arrput(z->cls, v);
    return v;
}

static int64_t ein__slots_volume(const ein__scope *s, uint32_t mask) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (mask >> i & 1) n = ein__muldiv(n, s->n[i], 1);
    return n;
}

// ------------------------------------------------------------------------------------ substitution

// The part of a subscript in the `outer` iterators: E. The subscript is E + *rest + inner terms.
// None when the two cannot be told apart.
static ein__ix ein__outer_part(ein_ctx *ctx, ein__ix ix, uint32_t outer, int64_t *rest) {
    const ein__index *f = ein__ix_get(ctx, ix);
    ein__ix e = ein__ix_const(ctx, 0);
    bool mixed = false;
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[k].atom);
        if (a->kind != EIN__ITER) return (ein__ix){0};
        if (outer >> a->slot & 1)
            e = ein__ix_add(ctx, e,
                            ein__ix_scale(ctx, ein__ix_iter(ctx, a->slot, a->n), f->t[k].k));
        else mixed = true;
    }
    *rest = f->c;
    if (f->q == 1) return e;
    if (mixed) return (ein__ix){0};
    int64_t low = ein__floormod(f->c, f->q);
    *rest = (f->c - low) / f->q;
    return ein__ix_div(ctx, ein__ix_addc(ctx, e, low), f->q);
}

// A dimension of an inner value: a bare iterator, or a form E of several.
typedef struct ein__dim {
    ein__ix form;    // in the outer scope's iterators
    int64_t lo, n;   // range of the form that matters
    uint32_t reads;  // which factors it occurs in
    bool composite;
} ein__dim;

typedef struct ein__dims {
    ein__dim d[EIN__MAX_ITERS];
    int n;
} ein__dims;

static bool ein__is_composite(ein_ctx *ctx, ein__ix e) {
    const ein__index *f = ein__ix_get(ctx, e);
    return f->n > 1 || (f->n == 1 && f->q > 1);
}

static ein__dim *ein__dim_of(ein__dims *z, ein__ix form) {
    for (int i = 0; i < z->n; i++)
        if (z->d[i].form.i == form.i) return &z->d[i];
    return NULL;
}

// Iterators that must stay themselves: those that stand alone in some subscript, or where a form
// cannot be separated.
static uint32_t ein__bare_slots(ein_ctx *ctx, const ein__ex *reads, uint32_t outer) {
    uint32_t bare = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < r->nix; k++) {
            int64_t rest;
            uint32_t used = ein__ix_uses(ctx, r->ix[k]) & outer;
            ein__ix e = used ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
            if (used && (!e.i || !ein__is_composite(ctx, e))) bare |= used;
        }
    }
    return bare;
}

// Adds form `e`; its range shrinks to where reads that are nothing but it (no inner terms, padding
// 0) are inside: elsewhere the product is 0, and so is reading outside.
static bool ein__add_composite(ein_ctx *ctx, ein__dims *z, ein__ix e, const ein__expr *r,
                               uint32_t k, int64_t rest, uint32_t factor) {
    ein__dim *d = ein__dim_of(z, e);
    const ein__index *f = ein__ix_get(ctx, e);
    if (!d) {
        if (z->n == EIN__MAX_ITERS) return false;
        d = &z->d[z->n++];
        *d = (ein__dim){.form = e, .lo = f->lo, .n = f->hi - f->lo + 1, .composite = true};
    }
    d->reads |= factor;
    if (ein__ix_get(ctx, r->ix[k])->n != f->n || r->bits) return true;
    int64_t lo = -rest, hi = ctx->value[r->val].shape.d[k] - 1 - rest, end = d->lo + d->n - 1;
    if (lo > d->lo) d->lo = lo;
    if (hi < end) end = hi;
    d->n = end - d->lo + 1;
    return d->n > 0;
}

// The dimensions of the value that `reads` depend on, substituted where that does not enlarge the
// box by more than `growth` / 100.
static bool ein__inner_dims(ein_ctx *ctx, const ein__scope *s, const ein__ex *reads, uint32_t outer,
                            int64_t growth, ein__dims *z) {
    uint32_t bare = ein__bare_slots(ctx, reads, outer), used = 0;
    z->n = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *r = ein__ex_get(ctx, reads[i]);
        for (uint32_t k = 0; k < r->nix; k++) {
            int64_t rest;
            uint32_t in = ein__ix_uses(ctx, r->ix[k]) & outer;
            used |= in;
            ein__ix e = in ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
            // A form whose iterators are all needed themselves would only add a dimension.
            if (!e.i || !ein__is_composite(ctx, e) || !(in & ~bare)) continue;
            if (!ein__add_composite(ctx, z, e, r, k, rest, 1u << i)) return false;
        }
    }
    int64_t volume = 1;
    for (int i = 0; i < z->n; i++) volume = ein__muldiv(volume, z->d[i].n, 1);
    volume = ein__muldiv(volume, ein__slots_volume(s, bare), 1);
    if (ein__muldiv(volume, 100, 1) > ein__muldiv(ein__slots_volume(s, used), growth, 1)) {
        z->n = 0;
        bare = used;
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(bare >> i & 1) || s->n[i] == 1) continue;
        if (z->n == EIN__MAX_ITERS) return false;
        z->d[z->n++] = (ein__dim){.form = ein__ix_iter(ctx, i, s->n[i]), .n = s->n[i]};
    }
    for (ptrdiff_t r = 0; r < arrlen(reads); r++) {
        const ein__expr *e = ein__ex_get(ctx, reads[r]);
        for (uint32_t k = 0; k < e->nix; k++) {
            int64_t rest;
            uint32_t in = ein__ix_uses(ctx, e->ix[k]) & outer;
            ein__ix form = in ? ein__outer_part(ctx, e->ix[k], outer, &rest) : (ein__ix){0};
            if (form.i && ein__is_composite(ctx, form) && ein__dim_of(z, form)) continue;
            for (int i = 0; i < z->n; i++)
                if (!z->d[i].composite && (in & ein__ix_uses(ctx, z->d[i].form)))
                    z->d[i].reads |= 1u << r;
        }
    }
    return true;
}

// Canonical order of dimensions: those of both factors, those of the factor without windows (the
// filter), plain ones of the other, windows last: neighbouring results then stand side by side.
static int ein__dim_rank(const ein__dim *d, uint32_t windowed) {
    return d->reads == 3 ? 0 : d->composite ? 3 : (d->reads & windowed) ? 2 : 1;
}

static void ein__order_dims(ein__dims *z) {
    uint32_t windowed = 0;
    for (int i = 0; i < z->n; i++)
        if (z->d[i].composite) windowed |= z->d[i].reads;
    for (int i = 1; i < z->n; i++)
        for (int j = i; j > 0; j--) {
            ein__dim *a = &z->d[j - 1], *b = &z->d[j];
            if (ein__dim_rank(a, windowed) <= ein__dim_rank(b, windowed)) break;
            ein__dim swap = *a;
            *a = *b;
            *b = swap;
        }
}

// One subscript of a read, rewritten to the new value's iterators.
static ein__ex ein__inner_read(ein_ctx *ctx, const ein__expr *r, uint32_t outer, const ein__dims *z,
                               const ein__ix *map, int nmap) {
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t k = 0; k < r->nix; k++) {
        int64_t rest = 0;
        uint32_t in = ein__ix_uses(ctx, r->ix[k]) & outer;
        ein__ix e = in ? ein__outer_part(ctx, r->ix[k], outer, &rest) : (ein__ix){0};
        int at = -1;
        for (int i = 0; e.i && i < z->n; i++)
            if (z->d[i].composite && z->d[i].form.i == e.i) at = i;
        if (at < 0) {
            ix[k] = ein__ix_subst(ctx, r->ix[k], map, nmap);
            continue;
        }
        ix[k] = ein__ix_addc(ctx, ein__ix_iter(ctx, (uint32_t)at, z->d[at].n), z->d[at].lo + rest);
        const ein__index *f = ein__ix_get(ctx, r->ix[k]);
        for (uint32_t t = 0; t < f->n; t++) {
            uint32_t slot = ein__atom_get(ctx, f->t[t].atom)->slot;
            if (!(outer >> slot & 1))
                ix[k] = ein__ix_add(ctx, ix[k], ein__ix_scale(ctx, map[slot], f->t[t].k));
        }
    }
    double pad;
    memcpy(&pad, &r->bits, sizeof pad);
    return ein__ex_read(ctx, (ein__val){r->val}, pad, ix, (int)r->nix);
}

// The value sum(inner) of the product of `reads`, as a class in normal form, and how the rest of
// the definition reads it. None when it cannot be made.
static ein__ex ein__inner_value(ein__deriver *z, const ein__scope *s, const ein__ex *reads,
                                uint32_t inner, int64_t growth, const char *suffix, int from,
                                const char *rule) {
    ein_ctx *ctx = z->ctx;
    uint32_t all = (1u << (s->nt + s->ns)) - 1, outer = all & ~inner;
    ein__dims dims;
    if (!ein__inner_dims(ctx, s, reads, outer, growth, &dims) || dims.n > EIN__MAX_RANK)
        return (ein__ex){0};
    ein__order_dims(&dims);
    ein__scope t = {.reduce = inner ? EIN__R_SUM : EIN__R_NONE, .nt = (uint32_t)dims.n};
    ein__ix map[EIN__MAX_ITERS] = {{0}}, back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int i = 0; i < dims.n; i++) {
        uint32_t slot;
        t.n[i] = dims.d[i].n;
        back[i] = ein__ix_addc(ctx, dims.d[i].form, -dims.d[i].lo);
        if (!dims.d[i].composite && ein__ix_is_iter(ctx, dims.d[i].form, &slot))
            map[slot] = ein__ix_iter(ctx, (uint32_t)i, t.n[i]);
    }
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        if (!(inner >> i & 1) || s->n[i] == 1) continue;
        if (t.nt + t.ns == EIN__MAX_ITERS) return (ein__ex){0};
        t.n[t.nt + t.ns] = s->n[i];
        map[i] = ein__ix_iter(ctx, t.nt + t.ns++, s->n[i]);
    }
    if (!t.ns) t.reduce = EIN__R_NONE;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__ex r = ein__inner_read(ctx, ein__ex_get(ctx, reads[i]), outer, &dims, map,
                                    (int)(s->nt + s->ns));
        t.body = t.body.i ? ein__ex_binary(ctx, EIN__MUL, t.body, r) : r;
        if (!t.body.i) return t.body;
    }
    ein__val w = ein__class_of(z, &t, suffix, from, rule, true);
    return w.i ? ein__ex_read(ctx, w, 0, back, dims.n) : (ein__ex){0};
}
/* ---- rule_split.c ---- */
// Summation splitting: part of a sum goes to an inner value (EinNet section 4.1, OLLIE section 4).
// The inner value is made in normal form, so variable substitution and boundary tightening happen
// on the way.

// The reductions of `mask` as the printer names them: "r0,r2".
static void ein__put_slots(ein__buf *b, const ein__scope *s, uint32_t mask) {
    const char *comma = "";
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) {
        if (!(mask >> i & 1)) continue;
        ein__putf(b, "%sr%d", comma, (int)(i - s->nt));
        comma = ",";
    }
}

// Scope `s` without the reductions in `gone`.
static bool ein__without_sums(ein_ctx *ctx, const ein__scope *s, uint32_t gone, ein__ex body,
                              ein__scope *t) {
    ein__ix map[EIN__MAX_ITERS];
    *t = (ein__scope){.nt = s->nt};
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (gone >> i & 1) continue;
        uint32_t slot = i < s->nt ? i : t->nt + t->ns++;
        t->n[slot] = s->n[i];
        map[i] = ein__ix_iter(ctx, slot, s->n[i]);
    }
    t->reduce = t->ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    t->body = ein__ex_subst(ctx, body, map, (int)(s->nt + s->ns));
    return t->body.i != 0;
}

// Every proper subset of the summation goes to an inner value; factors free of it stay outside.
static void ein__rule_split(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    double alpha;
    if (d.inner || s->ns < 2 || s->ns > EIN__MAX_SPLIT || !ein__two_factors(ctx, s, read, &alpha))
        return;
    for (uint32_t sub = 1; sub + 1 < 1u << s->ns; sub++) {
        uint32_t inner = sub << s->nt;
        ein__ex *in = NULL, outside = {0};
        for (int k = 0; k < 2; k++) {
            uint32_t uses = 0;
            for (uint32_t i = 0; i < read[k]->nix; i++) uses |= ein__ix_uses(ctx, read[k]->ix[i]);
            if (uses & inner) arrput(in, ein__ex_of(ctx, read[k]));
            else outside = ein__ex_of(ctx, read[k]);
        }
        ein__buf why = {0};
        ein__put(&why, "summation splitting (");
        ein__put_slots(&why, s, inner);
        ein__put(&why, " inside), variable substitution");
        ein__ex w = ein__inner_value(z, s, in, inner, 100, "part", from, ein__name(ctx, why.s));
        ein__buf_free(&why);
        arrfree(in);
        if (!w.i) continue;
        ein__ex body = outside.i ? ein__ex_binary(ctx, EIN__MUL, outside, w) : w;
        if (alpha != 1) body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), body);
        ein__scope t;
        if (ein__without_sums(ctx, s, inner, body, &t))
            ein__add_def(z, d.cls, &t, from, "summation splitting", d.inner);
    }
}
/* ---- rule_match.c ---- */
// Converging derivation: what keeps a definition from being a library call is the form of an
// operand, so the operand is written out as a tensor that has the form (EinNet section 5.2).

// Read `r` written out as a tensor whose dimensions are the iterators it uses: group iterators
// first, the summation last (or first for the second factor). None when that is no gain or grows
// too much.
static ein__ex ein__written_out(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                                const ein__expr *other, int from) {
    ein_ctx *ctx = z->ctx;
    uint32_t mine = 0, theirs = 0;
    for (uint32_t k = 0; k < r->nix; k++) mine |= ein__ix_uses(ctx, r->ix[k]);
    for (uint32_t k = 0; k < other->nix; k++) theirs |= ein__ix_uses(ctx, other->ix[k]);
    // What was written out once is in the right order already.
    if (r->val >= z->first && ein__copy_of(ctx, (ein__val){r->val})) return (ein__ex){0};
    bool weight = ctx->value[r->val].weight_only;
    int64_t volume = ein__slots_volume(s, mine), had = ein__elements(&ctx->value[r->val].shape);
    if (!weight && volume > had * EIN__MAX_GROWTH) return (ein__ex){0};
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    for (uint32_t i = 0; i < s->nt + s->ns; i++) map[i] = ein__ix_const(ctx, 0);
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            int group = i >= s->nt ? 2 : theirs >> i & 1 ? 0 : 1;
            if (group != pass || !(mine >> i & 1) || s->n[i] == 1) continue;
            if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
            back[t.nt] = ein__ix_iter(ctx, i, s->n[i]);
            map[i] = ein__ix_iter(ctx, t.nt, s->n[i]);
            t.n[t.nt++] = s->n[i];
        }
    t.body = ein__ex_subst(ctx, ein__ex_of(ctx, r), map, (int)(s->nt + s->ns));
    if (!t.body.i) return t.body;
    ein__val v = ein__class_of(z, &t, weight ? "relaid" : "columns", from, "operand re-laid", true);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

// Converging derivation: what keeps a contraction from being a GEMM is the address of an operand,
// so that operand is written out (im2col is this, applied to a convolution's data).
static void ein__rule_match_gemm(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    int64_t out[EIN__MAX_RANK];
    double alpha;
    ein__gemm g;
    if (!ein__two_factors(ctx, s, read, &alpha)) return;
    ein__dense_result(s, out);
    for (int which = 1; which < 4; which++) {
        ein__ex x[2];
        bool made = true;
        for (int k = 0; k < 2; k++) {
            x[k] = ein__ex_of(ctx, read[k]);
            if (which >> k & 1) x[k] = ein__written_out(z, s, read[k], read[1 - k], from);
            made = made && x[k].i;
        }
        if (!made) continue;
        ein__scope t = *s;
        t.body = ein__ex_binary(ctx, EIN__MUL, x[0], x[1]);
        if (alpha != 1) t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), t.body);
        if (!t.body.i || !ein__match_gemm(ctx, &t, out, &g)) continue;
        ein__add_def(z, d.cls, &t, from, "operand re-laid for matching", d.inner);
    }
}
/* ---- rule_taps.c ---- */
// Summation splitting by digits: the taps of a window fall into blocks, r = d * R + p. The low
// digits and the channels go to an inner value, a convolution with small windows and one output
// channel per block; what is left is a sum of its parts, each read at its block's offset.

enum {
    EIN__MAX_WINDOW = 11,     // taps along an axis that is split
    EIN__MAX_TAP_GROWTH = 2,  // of the positions: windows reach over the border
    EIN__MAX_BLOCKINGS = 32   // ways to split one window
};

// One axis of a window in blocks. Position t of the inner value stands for `step` * (t + lo) - pad
// in the data.
typedef struct ein__blocks {
    int64_t d, n;  // taps of a block, blocks
    int64_t step, lo, count;
} ein__blocks;

// Whether n taps in blocks of d waste at most a quarter.
static bool ein__is_blocking(int64_t n, int64_t d) {
    return d > 1 && d < n && n <= EIN__MAX_WINDOW && (n + d - 1) / d * d * 4 <= n * 5;
}

static int64_t ein__ceildiv(int64_t a, int64_t b) { return -ein__floordiv(-a, b); }

// The inner positions: those that some block needs and whose window meets the data, and as many
// more as make both paddings one, which library calls ask for.
static bool ein__block_range(const ein__conv *c, int a, ein__blocks *b) {
    int64_t block = b->n > 1 ? c->dilation[a] * b->d : 0, stride = c->out[a] > 1 ? c->stride[a] : 0;
    int64_t reach = c->dilation[a] * (b->d - 1), last = stride * (c->out[a] - 1);
    b->step = ein__gcd(stride, block);
    if (!b->step) b->step = 1;
    int64_t lo = ein__ceildiv(c->pad[a] - reach, b->step);
    int64_t hi = (last + block * (b->n - 1)) / b->step;
    int64_t inside = ein__floordiv(c->in[a] - 1 + c->pad[a], b->step);
    if (lo < 0) lo = 0;
    if (hi > inside) hi = inside;
    if (lo > hi) return false;
    int64_t before = c->pad[a] - b->step * lo;
    int64_t after = b->step * hi - c->pad[a] + reach - c->in[a] + 1, need = after > 0 ? after : 0;
    int64_t more = before < need ? ein__ceildiv(need - before, b->step) : 0;
    lo -= more;
    before += more * b->step;
    hi += ein__floordiv(before - after, b->step);
    b->lo = lo;
    b->count = hi - lo + 1;
    return true;
}

// An inner value under construction: its scope, and for old iterators the new ones.
typedef struct ein__tapped {
    const ein__conv_form *f;
    const ein__blocks *b;
    ein__scope t;
    ein__ix map[EIN__MAX_ITERS];        // of old slots but those of windows
    ein__ix high[3], low[3], place[3];  // by axis: R, p, t
} ein__tapped;

static bool ein__new_slot(ein__scope *t, bool sum, ein_ctx *ctx, int64_t n, ein__ix *iter) {
    uint32_t slot = t->nt + t->ns;
    if (slot == EIN__MAX_ITERS || (!sum && slot == EIN__MAX_RANK)) return false;
    t->n[slot] = n;
    *iter = ein__ix_iter(ctx, slot, n);
    if (sum) t->ns++;
    else t->nt++;
    return true;
}

// Iterators of role `role`, in the scope's order.
static bool ein__role_slots(ein_ctx *ctx, ein__tapped *z, ein__crole role, bool sum) {
    const ein__scope *s = z->f->s;
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (z->f->role[i] == role && !ein__new_slot(&z->t, sum, ctx, s->n[i], &z->map[i]))
            return false;
    return true;
}

static bool ein__block_slots(ein_ctx *ctx, ein__tapped *z) {
    for (int a = 0; a < z->f->c.spatial; a++) {
        z->high[a] = ein__ix_const(ctx, 0);
        if (z->b[a].n > 1 && !ein__new_slot(&z->t, false, ctx, z->b[a].n, &z->high[a]))
            return false;
    }
    return true;
}

static bool ein__tap_slots(ein_ctx *ctx, ein__tapped *z, bool sum) {
    for (int a = 0; a < z->f->c.spatial; a++) {
        z->low[a] = ein__ix_const(ctx, 0);
        if (z->b[a].d > 1 && !ein__new_slot(&z->t, sum, ctx, z->b[a].d, &z->low[a])) return false;
    }
    return true;
}

static void ein__tapped_clear(ein_ctx *ctx, ein__tapped *z, const ein__conv_form *f,
                              const ein__blocks *b) {
    *z = (ein__tapped){.f = f, .b = b};
    for (int i = 0; i < EIN__MAX_ITERS; i++) z->map[i] = ein__ix_const(ctx, 0);
}

// The filter by blocks: [group, blocks, out, in, taps of a block], 0 where rounding up adds taps.
static ein__val ein__block_filter(ein__deriver *z, const ein__conv_form *f, const ein__blocks *b,
                                  int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    ein__tapped k;
    ein__tapped_clear(ctx, &k, f, b);
    k.t.reduce = EIN__R_NONE;
    if (!ein__role_slots(ctx, &k, EIN__C_GROUP, false) || !ein__block_slots(ctx, &k) ||
        !ein__role_slots(ctx, &k, EIN__C_OUT, false) ||
        !ein__role_slots(ctx, &k, EIN__C_IN, false) || !ein__tap_slots(ctx, &k, false))
        return (ein__val){0};
    for (int a = 0; a < f->c.spatial; a++)
        if (f->filter[a] >= 0)
            k.map[f->filter[a]] = ein__ix_add(ctx, ein__ix_scale(ctx, k.high[a], b[a].d), k.low[a]);
    k.t.body = ein__ex_subst(ctx, ein__ex_of(ctx, f->w), k.map, (int)(f->s->nt + f->s->ns));
    for (int a = 0; a < f->c.spatial; a++)
        if (f->filter[a] >= 0)
            k.t.body = ein__ex_when(ctx, k.map[f->filter[a]], f->c.k[a], false, k.t.body);
    return k.t.body.i ? ein__class_of(z, &k.t, "blocks", from, rule, true) : (ein__val){0};
}

// The inner convolution: [batch, group, blocks, out, positions].
static ein__val ein__block_conv(ein__deriver *z, const ein__conv_form *f, const ein__blocks *b,
                                int from, const char *rule) {
    ein_ctx *ctx = z->ctx;
    ein__val filter = ein__block_filter(z, f, b, from, rule);
    ein__ix xi[EIN__MAX_RANK], wi[EIN__MAX_RANK];
    int n = 0;
    ein__tapped c;
    ein__tapped_clear(ctx, &c, f, b);
    if (!filter.i || !ein__role_slots(ctx, &c, EIN__C_BATCH, false) ||
        !ein__role_slots(ctx, &c, EIN__C_GROUP, false) || !ein__block_slots(ctx, &c) ||
        !ein__role_slots(ctx, &c, EIN__C_OUT, false))
        return (ein__val){0};
    for (int a = 0; a < f->c.spatial; a++)
        if (!ein__new_slot(&c.t, false, ctx, b[a].count, &c.place[a])) return (ein__val){0};
    if (!ein__role_slots(ctx, &c, EIN__C_IN, true) || !ein__tap_slots(ctx, &c, true))
        return (ein__val){0};
    for (uint32_t k = 0; k < f->x->nix; k++)
        xi[k] = ein__ix_subst(ctx, f->x->ix[k], c.map, (int)(f->s->nt + f->s->ns));
    for (int a = 0; a < f->c.spatial; a++)
        xi[f->axis[a]] = ein__ix_addc(ctx,
                                      ein__ix_add(ctx, ein__ix_scale(ctx, c.place[a], b[a].step),
                                                  ein__ix_scale(ctx, c.low[a], f->c.dilation[a])),
                                      b[a].step * b[a].lo - f->c.pad[a]);
    static const ein__crole order[] = {EIN__C_GROUP, EIN__C_OUT, EIN__C_IN};
    for (int k = 0; k < 3; k++) {
        for (int a = 0; k == 1 && a < f->c.spatial; a++)
            if (b[a].n > 1) wi[n++] = c.high[a];
        for (uint32_t i = 0; i < f->s->nt + f->s->ns; i++)
            if (f->role[i] == order[k]) wi[n++] = c.map[i];
    }
    for (int a = 0; a < f->c.spatial; a++)
        if (b[a].d > 1) wi[n++] = c.low[a];
    c.t.reduce = c.t.ns ? EIN__R_SUM : EIN__R_NONE;
    c.t.body = ein__ex_binary(ctx, EIN__MUL,
                              ein__ex_read(ctx, (ein__val){f->x->val}, 0, xi, (int)f->x->nix),
                              ein__ex_read(ctx, filter, 0, wi, n));
    return c.t.body.i ? ein__class_of(z, &c.t, "part", from, rule, true) : (ein__val){0};
}

// The sum of the parts, each at its block's offset.
static bool ein__offset_add(ein_ctx *ctx, const ein__conv_form *f, const ein__blocks *b,
                            ein__val part, ein__scope *t) {
    const ein__scope *s = f->s;
    const ein__crole before[] = {EIN__C_BATCH, EIN__C_GROUP}, out[] = {EIN__C_OUT};
    ein__ix ix[EIN__MAX_RANK], high[3];
    int n = 0;
    *t = (ein__scope){.reduce = EIN__R_SUM, .nt = s->nt};
    memcpy(t->n, s->n, s->nt * sizeof *t->n);
    for (int a = 0; a < f->c.spatial; a++) {
        high[a] = ein__ix_const(ctx, 0);
        if (b[a].n > 1 && !ein__new_slot(t, true, ctx, b[a].n, &high[a])) return false;
    }
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < s->nt; i++)
            if (f->role[i] == before[k]) ix[n++] = ein__ix_iter(ctx, i, s->n[i]);
    for (int a = 0; a < f->c.spatial; a++)
        if (b[a].n > 1) ix[n++] = high[a];
    for (uint32_t i = 0; i < s->nt; i++)
        if (f->role[i] == out[0]) ix[n++] = ein__ix_iter(ctx, i, s->n[i]);
    for (int a = 0; a < f->c.spatial; a++) {
        ein__ix at = ein__ix_scale(ctx, high[a], f->c.dilation[a] * b[a].d / b[a].step);
        if (f->space[a] >= 0)
            at = ein__ix_add(
                ctx, at,
                ein__ix_scale(ctx, ein__ix_iter(ctx, (uint32_t)f->space[a], s->n[f->space[a]]),
                              f->c.stride[a] / b[a].step));
        ix[n++] = ein__ix_addc(ctx, at, -b[a].lo);
    }
    t->body = ein__ex_read(ctx, part, 0, ix, n);
    return t->body.i != 0;
}

static void ein__split_taps(ein__deriver *z, const ein__conv_form *f, ein__blocks *b, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    int64_t had = 1, now = 1;
    ein__scope t;
    ein__buf why = {0};
    ein__put(&why, "summation splitting (blocks of ");
    for (int a = 0; a < f->c.spatial; a++) {
        bool ok = ein__block_range(&f->c, a, &b[a]);
        had = ein__muldiv(had, f->c.out[a], 1);
        now = ok ? ein__muldiv(now, b[a].count, 1) : INT64_MAX;
        ein__putf(&why, "%s%lld", a ? "x" : "", (long long)b[a].d);
    }
    ein__put(&why, " taps inside), variable substitution");
    const char *rule = ein__name(ctx, why.s);
    ein__buf_free(&why);
    if (now / EIN__MAX_TAP_GROWTH > had) return;
    ein__val part = ein__block_conv(z, f, b, from, rule);
    if (part.i && ein__offset_add(ctx, f, b, part, &t))
        ein__add_def(z, d.cls, &t, from, "summation splitting", d.inner);
}

// Every way to split the windows of a convolution into blocks; an axis may stay whole. Blocks that
// are the same along every axis come first.
static void ein__rule_taps(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    int64_t out[EIN__MAX_RANK], choice[3][EIN__MAX_WINDOW + 1];
    int n[3] = {1, 1, 1}, tried = 0;
    ein__conv_form f;
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    ein__dense_result(s, out);
    if (d.inner || !ein__find_conv(ctx, s, out, &f) || f.transposed) return;
    for (int a = 0; a < 3; a++) {
        int64_t taps = a < f.c.spatial ? f.c.k[a] : 1;
        n[a] = 0;
        for (int64_t k = 2; k < taps && k <= EIN__MAX_WINDOW; k++)
            if (ein__is_blocking(taps, k)) choice[a][n[a]++] = k;
        choice[a][n[a]++] = taps;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n[0] * n[1] * n[2] && tried < EIN__MAX_BLOCKINGS; i++) {
            int at[3] = {i % n[0], i / n[0] % n[1], i / n[0] / n[1]};
            bool split = false, uneven = false;
            ein__blocks b[3] = {{0}};
            int64_t first = 0;
            for (int a = 0; a < f.c.spatial; a++) {
                int64_t taps = f.c.k[a];
                b[a].d = choice[a][at[a]];
                b[a].n = (taps + b[a].d - 1) / b[a].d;
                split |= b[a].n > 1;
                if (taps > 1 && !first) first = b[a].d;
                uneven |= taps > 1 && b[a].d != first;
            }
            if (!split || uneven != pass) continue;
            ein__split_taps(z, &f, b, from);
            tried++;
        }
}
/* ---- rule_digits.c ---- */
// Digit re-layout: iterators beside multiples of a coefficient d fall into two digits each, and
// every tensor read there is re-laid. Dilated convolutions and bands become batches of plain ones,
// strided ones become space-to-depth and stride 1.

// Digit re-layout by `d`: iterators that stand with coefficient 1 beside multiples of d become two
// digits, u = d * U + p, and every tensor read there is re-laid, a'[i, p] = a[d * i + p].
typedef struct ein__digit {
    int64_t d;
    uint32_t unit;  // slots that are split
    bool in_place;  // digits stay where their iterator was
    ein__scope t;   // the new scope; body last
    ein__ix whole[EIN__MAX_ITERS], high[EIN__MAX_ITERS], low[EIN__MAX_ITERS];  // by old slot
    ein__ix back[EIN__MAX_RANK];  // of new traversal slot: its form in the old iterators
} ein__digit;

// Whether form `f` is (multiples of d) + one bare iterator + c; that iterator in `*slot`.
static bool ein__beside(ein_ctx *ctx, const ein__index *f, int64_t d, uint32_t *slot,
                        bool *multiple) {
    int ones = 0;
    *multiple = false;
    if (f->q != 1) return false;
    for (uint32_t k = 0; k < f->n; k++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[k].atom);
        if (a->kind != EIN__ITER) return false;
        if (f->t[k].k % d == 0) {
            *multiple = true;
        } else if (f->t[k].k == 1) {
            *slot = a->slot;
            ones++;
        } else {
            return false;
        }
    }
    return ones == 1;
}

static bool ein__find_units(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                            ein__digit *g) {
    uint32_t slot = 0, padded = 0;
    bool multiple;
    uint32_t both = ~0u;
    g->unit = 0;
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++)
            if (ein__beside(ctx, ein__ix_get(ctx, read[r]->ix[k]), g->d, &slot, &multiple) &&
                multiple)
                g->unit |= 1u << slot;
    // Every other use of such an iterator must be splittable too, and terms that a sum gains by
    // rounding up must meet a read outside its box.
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
            if (!(ein__ix_uses(ctx, read[r]->ix[k]) & g->unit)) continue;
            if (!ein__beside(ctx, f, g->d, &slot, &multiple) || !(g->unit >> slot & 1))
                return false;
            if (!multiple && !f->c && ctx->value[read[r]->val].shape.d[k] == s->n[slot])
                padded |= 1u << slot;
        }
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++)
        if ((g->unit >> i & 1) && s->n[i] > g->d && s->n[i] % g->d && !(padded >> i & 1))
            return false;
    // A row that both factors have is a batch to every library call, so its windows need no place
    // of their own: in the operand's order the copy is cheapest.
    for (int r = 0; r < 2; r++) {
        uint32_t uses = 0;
        for (uint32_t k = 0; k < read[r]->nix; k++) uses |= ein__ix_uses(ctx, read[r]->ix[k]);
        both &= uses;
    }
    g->in_place = (g->unit & both & ((1u << s->nt) - 1)) != 0;
    return g->unit != 0;
}

// Rank of an iterator in the result: batch, filter, window.
static int ein__digit_rank(ein_ctx *ctx, const ein__expr *const *read, uint32_t slot) {
    bool windowed = false, in[2] = {false, false};
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            if (!(ein__ix_uses(ctx, read[r]->ix[k]) >> slot & 1)) continue;
            in[r] = true;
            windowed |= ein__ix_get(ctx, read[r]->ix[k])->n > 1;
        }
    bool data[2] = {false, false};
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++)
            data[r] |= ein__ix_get(ctx, read[r]->ix[k])->n > 1;
    return windowed ? 3 : (in[0] && data[0]) || (in[1] && data[1]) ? 0 : 2;
}

static bool ein__digit_slots(ein_ctx *ctx, const ein__scope *s, const ein__expr *const *read,
                             ein__digit *g) {
    bool split = (g->unit & ((1u << s->nt) - 1)) != 0;
    g->t = (ein__scope){.reduce = s->reduce};
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        g->whole[i] = g->high[i] = g->low[i] = ein__ix_const(ctx, 0);
    for (int rank = 0; rank < 5; rank++)
        for (uint32_t i = 0; i < s->nt + s->ns; i++) {
            bool sum = i >= s->nt, unit = g->unit >> i & 1;
            ein__ix old = ein__ix_iter(ctx, i, s->n[i]);
            int mine = sum ? 4 : split && !g->in_place ? ein__digit_rank(ctx, read, i) : 0;
            for (int k = 0; k < 1 + unit; k++) {
                // The low digit of a window is one more batch dimension.
                int part = !unit ? 0 : g->in_place && !sum ? 2 - k : 1 + k;
                if ((part == 2 && !sum ? 0 : mine) != rank) continue;
                uint32_t slot = g->t.nt + g->t.ns;
                int64_t low = s->n[i] < g->d ? s->n[i] : g->d, n = part == 0 ? s->n[i]
                                                                   : part == 1
                                                                       ? (s->n[i] + g->d - 1) / g->d
                                                                       : low;
                if (slot == EIN__MAX_ITERS || (!sum && slot == EIN__MAX_RANK)) return false;
                g->t.n[slot] = n;
                *(part == 0   ? &g->whole[i]
                  : part == 1 ? &g->high[i]
                              : &g->low[i]) = ein__ix_iter(ctx, slot, n);
                if (!sum)
                    g->back[slot] = part == 0   ? old
                                    : part == 1 ? ein__ix_floordiv(ctx, old, g->d)
                                                : ein__ix_mod(ctx, old, g->d);
                if (sum) g->t.ns++;
                else g->t.nt++;
            }
        }
    // Multiples of one such iterator may stand beside another one.
    for (uint32_t i = 0; i < s->nt + s->ns; i++)
        if (g->unit >> i & 1)
            g->whole[i] = ein__ix_add(ctx, ein__ix_scale(ctx, g->high[i], g->d), g->low[i]);
    return true;
}

// A tensor being re-laid: the copy, its subscripts, and the subscripts that it is read at.
typedef struct ein__relaid {
    ein__scope t;
    ein__ix body[EIN__MAX_RANK], index[EIN__MAX_RANK];
} ein__relaid;

static bool ein__relaid_dim(ein__relaid *c, ein__ix index, int64_t n) {
    if (c->t.nt == EIN__MAX_RANK) return false;
    c->index[c->t.nt] = index;
    c->t.n[c->t.nt++] = n;
    return true;
}

// The dimension of the copy that a low digit stands for; -1: none yet.
static int ein__relaid_low(const ein__relaid *c, ein__ix low) {
    for (uint32_t q = 0; q < c->t.nt; q++)
        if (c->index[q].i == low.i) return (int)q;
    return -1;
}

// Subscript `k` of `r`, d * (high + ...) + low + c, becomes one more dimension of the copy: what
// stands beside the low digit, in the range that is both read and inside.
static bool ein__relaid_high(ein_ctx *ctx, const ein__expr *r, uint32_t k, const ein__digit *g,
                             uint32_t slot, ein__relaid *c) {
    const ein__index *f = ein__ix_get(ctx, r->ix[k]);
    int64_t c0 = ein__floormod(f->c, g->d), extent = ctx->value[r->val].shape.d[k];
    int64_t lo = c0 ? -1 : 0, hi = ein__floordiv(extent - 1 - c0, g->d);
    ein__ix i = ein__ix_addc(ctx, g->high[slot], ein__floordiv(f->c, g->d));
    int low = ein__relaid_low(c, g->low[slot]);
    for (uint32_t q = 0; q < f->n; q++) {
        uint32_t other = ein__atom_get(ctx, f->t[q].atom)->slot;
        if (other != slot)
            i = ein__ix_add(ctx, i, ein__ix_scale(ctx, g->whole[other], f->t[q].k / g->d));
    }
    if (!i.i || low < 0) return false;
    const ein__index *range = ein__ix_get(ctx, i);
    int64_t from = range->lo, to = range->hi;
    if (from > lo) lo = from;
    if (to < hi) hi = to;
    if (lo > hi) return false;
    // Zeros are written out on one side until both are padded alike: library calls take one padding
    // for both.
    int64_t before = lo - from, after = to - hi;
    if (!g->in_place && before > after) lo = from + after;
    if (!g->in_place && after > before) hi = to - before;
    // d * (i + lo) + p + c0, with p the low digit placed before
    ein__ix at = ein__ix_scale(ctx, ein__ix_iter(ctx, c->t.nt, hi - lo + 1), g->d);
    at = ein__ix_add(ctx, at, ein__ix_iter(ctx, (uint32_t)low, c->t.n[low]));
    c->body[k] = ein__ix_addc(ctx, at, lo * g->d + c0);
    return ein__relaid_dim(c, ein__ix_addc(ctx, i, -lo), hi - lo + 1);
}

// Subscript `k` of `r` in the copy, if its dimensions belong to `group`: batch, low digits of
// windows, channels, low digits of sums, windows; or all where they were.
static bool ein__relaid_group(ein_ctx *ctx, const ein__scope *s, const ein__expr *r, uint32_t k,
                              const ein__digit *g, int group, ein__relaid *c) {
    const ein__index *f = ein__ix_get(ctx, r->ix[k]);
    uint32_t uses = ein__ix_uses(ctx, r->ix[k]), slot = 0;
    int64_t extent = ctx->value[r->val].shape.d[k];
    bool multiple = false, unit = (uses & g->unit) && ein__beside(ctx, f, g->d, &slot, &multiple);
    if (!unit) {
        int mine = g->in_place ? 0 : f->n > 1 ? 4 : uses >> s->nt ? 2 : 0;
        if (mine != group) return true;
        c->body[k] = ein__ix_iter(ctx, c->t.nt, extent);
        ein__ix whole = ein__ix_subst(ctx, r->ix[k], g->whole, (int)(s->nt + s->ns));
        return ein__relaid_dim(c, whole, extent);
    }
    int low = g->in_place ? 0 : slot >= s->nt ? 3 : 1, high = g->in_place ? 0 : 4;
    int64_t digits = s->n[slot] < g->d ? s->n[slot] : g->d;
    if (group == low && ein__relaid_low(c, g->low[slot]) < 0 &&
        !ein__relaid_dim(c, g->low[slot], digits))
        return false;
    return group != high || ein__relaid_high(ctx, r, k, g, slot, c);
}

// Read `r` of the re-laid tensor.
static ein__ex ein__digit_read(ein__deriver *z, const ein__scope *s, const ein__expr *r,
                               const ein__digit *g, int from) {
    ein_ctx *ctx = z->ctx;
    ein__relaid c = {.t.reduce = EIN__R_NONE};
    if (r->bits) return (ein__ex){0};
    for (int group = 0; group < 5; group++)
        for (uint32_t k = 0; k < r->nix; k++)
            if (!ein__relaid_group(ctx, s, r, k, g, group, &c)) return (ein__ex){0};
    c.t.body = ein__ex_read(ctx, (ein__val){r->val}, 0, c.body, (int)r->nix);
    ein__val v = c.t.body.i ? ein__class_of(z, &c.t, "digits", from, "digit re-layout", true)
                            : (ein__val){0};
    return v.i ? ein__ex_read(ctx, v, 0, c.index, (int)c.t.nt) : (ein__ex){0};
}

static void ein__rule_digits(ein__deriver *z, int from) {
    ein_ctx *ctx = z->ctx;
    const ein__def d = z->def[from];
    const ein__scope *s = ein__sc_get(ctx, d.sc);
    const ein__expr *read[2];
    int64_t tried[8];
    int ntried = 0;
    double alpha;
    if (d.inner || d.depth || !ein__two_factors(ctx, s, read, &alpha)) return;
    for (int r = 0; r < 2; r++)
        for (uint32_t k = 0; k < read[r]->nix; k++) {
            const ein__index *f = ein__ix_get(ctx, read[r]->ix[k]);
            for (uint32_t q = 0; q < f->n; q++) {
                int64_t step = f->t[q].k;
                ein__digit g = {.d = step < 0 ? -step : step};
                bool again = false;
                for (int i = 0; i < ntried; i++) again |= tried[i] == g.d;
                if (g.d < 2 || f->n < 2 || again || ntried == 8) continue;
                tried[ntried++] = g.d;
                if (!ein__find_units(ctx, s, read, &g) || !ein__digit_slots(ctx, s, read, &g))
                    continue;
                ein__ex x = ein__digit_read(z, s, read[0], &g, from),
                        w = ein__digit_read(z, s, read[1], &g, from);
                if (!x.i || !w.i) continue;
                g.t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
                if (alpha != 1)
                    g.t.body = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), g.t.body);
                if (!(g.unit & ((1u << s->nt) - 1))) {
                    ein__add_def(z, d.cls, &g.t, from, "digit re-layout", d.inner);
                    continue;
                }
                ein__val v = ein__class_of(z, &g.t, "phases", from, "digit re-layout", true);
                ein__scope copy = {.reduce = EIN__R_NONE, .nt = s->nt};
                memcpy(copy.n, s->n, s->nt * sizeof *copy.n);
                copy.body = v.i ? ein__ex_read(ctx, v, 0, g.back, (int)g.t.nt) : (ein__ex){0};
                if (copy.body.i) ein__add_def(z, d.cls, &copy, from, "digit re-layout", d.inner);
            }
        }
}
/* ---- rule_point.c ---- */
// One-point rule. A subscript (E + k*r) / q, E in the traversal and r summed, is an integer for one
// value of r modulo q only: the low digit of r is a function of E, and its sum drops out. With
// r = q*R + p and u = (E + k*p) / q the subscript is u + k*R, without a denominator, so
//
//   V[x] = sum(c,r) a[c, (E + k*r)/q] w[c,r]
//        = Z[p(E), u(E)],  Z[p,u] = sum(c,R) a[c, u + k*R] w[c, q*R + p]:
//
// a transposed convolution is one convolution of stride 1 with q times the channels per axis, and a
// pixel shuffle.

// Growth of the result, percent: a halo of 1 around a result of 2 x 2 is 225.
enum { EIN__POINT_GROWTH = 250 };

// A subscript of the data with a denominator, and what becomes of it.
typedef struct ein__point {
    bool active;
    int sum;                  // slot of r; -1: none, E itself must be a multiple of q
    int64_t k, q;             // coefficient of r, denominator
    int64_t step, phases;     // r = q*R + step*p + first, p in 0:phases
    int64_t first, taps;      // R in 0:taps
    uint32_t outer;           // slots of E
    ein__ix phase, at;        // p and u in the old iterators
    int64_t lo, n;            // range of u
    uint32_t p_slot, u_slot;  // in the new scope
} ein__point;

typedef struct ein__points {
    const ein__scope *s;
    const ein__expr *x, *w;
    uint32_t in_x, in_w;          // slots that the operands use
    uint32_t outer;               // slots of all E
    ein__point p[EIN__MAX_RANK];  // by dimension of x
    ein__scope t;                 // the new scope
    ein__ix map[EIN__MAX_ITERS];  // old slots in the new iterators
    ein__ix back[EIN__MAX_RANK];  // new traversal slots in the old iterators
} ein__points;

// The y in 0:q with k*y = 1 modulo q, for k and q without a common factor.
static int64_t ein__inverse_mod(int64_t k, int64_t q) {
    int64_t a = ein__floormod(k, q), b = q, x = 1, y = 0;
    while (b) {
        int64_t d = a / b, swap = a - d * b;
        a = b;
        b = swap;
        swap = x - d * y;
        x = y;
        y = swap;
    }
    return ein__floormod(x, q);
}

// Whether slot `i` occurs in a subscript other than dimension `dim` of x.
static bool ein__used_beside(ein_ctx *ctx, const ein__points *z, uint32_t i, uint32_t dim) {
    for (uint32_t k = 0; k < z->x->nix; k++)
        if (k != dim && (ein__ix_uses(ctx, z->x->ix[k]) >> i & 1)) return true;
    return z->in_w >> i & 1;
}

// Tells E, r and multiples of q apart in dimension `dim` of x; `e` receives E. False: there is more
// than one r, or E is needed elsewhere as well.
static bool ein__point_parts(ein_ctx *ctx, ein__points *z, uint32_t dim, ein__ix *e) {
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]);
    ein__point *p = &z->p[dim];
    *p = (ein__point){.active = true, .sum = -1, .k = 1, .q = f->q, .taps = 1};
    *e = ein__ix_const(ctx, f->c);
    p->step = f->q;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(ctx, f->t[i].atom);
        int64_t k = f->t[i].k;
        if (a->kind != EIN__ITER) return false;
        bool sum = a->slot >= z->s->nt, beside = ein__used_beside(ctx, z, a->slot, dim);
        if (k % p->q == 0 && (sum || beside)) continue;
        if (sum) {
            if (p->sum >= 0 || ein__gcd(k, p->q) != 1) return false;
            p->sum = (int)a->slot;
            p->k = k;
            continue;
        }
        if (beside) return false;
        p->outer |= 1u << a->slot;
        p->step = ein__gcd(p->step, k);
        *e = ein__ix_add(ctx, *e, ein__ix_scale(ctx, ein__ix_iter(ctx, a->slot, a->n), k));
    }
    return e->i != 0;
}

// p and u as functions of E; r's digits.
static bool ein__point_digits(ein_ctx *ctx, ein__points *z, ein__point *p, ein__ix e) {
    p->phase = ein__ix_const(ctx, 0);
    if (p->sum < 0) {
        p->at = ein__ix_div(ctx, e, p->q);
        p->phases = 1;
        return p->at.i != 0;
    }
    // Modulo the factor that E shares with q, r is a constant; what is left of q has phases.
    int64_t c = ein__floormod(ein__ix_get(ctx, e)->c, p->step);
    int64_t inverse = ein__inverse_mod(p->k, p->q), extent = z->s->n[p->sum];
    if (inverse > EIN__INDEX_LIMIT / p->q) return false;
    p->first = ein__floormod(-c * (inverse % p->step), p->step);
    p->phases = p->q / p->step;
    if (p->first >= extent || p->k < -EIN__INDEX_LIMIT / p->q || p->k > EIN__INDEX_LIMIT / p->q)
        return false;
    p->taps = (extent - p->first + p->q - 1) / p->q;
    e = ein__ix_div(ctx, ein__ix_addc(ctx, e, p->k * p->first), p->step);
    p->phase =
        ein__ix_mod(ctx, ein__ix_scale(ctx, e, ein__floormod(-inverse, p->phases)), p->phases);
    // For k = -1 and 1, u is E / q rounded down or up: one form, not a form of p.
    if (p->k == -1) p->at = ein__ix_floordiv(ctx, e, p->phases);
    else if (p->k == 1)
        p->at = ein__ix_floordiv(ctx, ein__ix_addc(ctx, e, p->phases - 1), p->phases);
    else
        p->at = ein__ix_floordiv(ctx, ein__ix_add(ctx, e, ein__ix_scale(ctx, p->phase, p->k)),
                                 p->phases);
    return p->phase.i && p->at.i;
}

// The range of u: where some read is inside; enlarged until both ends are padded alike, since
// library calls take one padding for both. False: no read is inside.
static bool ein__point_range(ein_ctx *ctx, const ein__points *z, uint32_t dim) {
    ein__point *p = (ein__point *)&z->p[dim];
    const ein__index *f = ein__ix_get(ctx, z->x->ix[dim]), *u = ein__ix_get(ctx, p->at);
    int64_t low = 0, high = 0, extent = ctx->value[z->x->val].shape.d[dim];
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t slot = ein__atom_get(ctx, f->t[i].atom)->slot;
        if (p->outer >> slot & 1) continue;
        int64_t k = (int)slot == p->sum ? p->k : f->t[i].k / p->q;
        int64_t n = (int)slot == p->sum ? p->taps : z->s->n[slot];
        *(k < 0 ? &low : &high) += k * (n - 1);
    }
    int64_t before = u->lo + high, after = extent - 1 - low - u->hi;
    int64_t spare = before < after ? before : after;
    if (spare > high - low) spare = high - low;
    if (spare < 0) spare = 0;
    p->lo = spare - high;
    p->n = extent - low - spare - p->lo;
    return p->n > 0;
}

static bool ein__find_points(ein_ctx *ctx, ein__points *z) {
    bool any = false;
    uint32_t sums = 0;
    for (uint32_t k = 0; k < z->x->nix; k++) {
        ein__point *p = &z->p[k];
        ein__ix e;
        *p = (ein__point){0};
        if (ein__ix_get(ctx, z->x->ix[k])->q == 1) continue;
        if (!ein__point_parts(ctx, z, k, &e) || !ein__point_digits(ctx, z, p, e) ||
            !ein__point_range(ctx, z, k))
            return false;
        if (p->sum >= 0 && (sums >> p->sum & 1)) return false;
        if (p->sum >= 0) sums |= 1u << p->sum;
        z->outer |= p->outer;
        any = true;
    }
    return any;
}

// ------------------------------------------------------------------------------------ the scope

static bool ein__point_slot(ein__points *z, int64_t n, ein__ix back, uint32_t *slot) {
    if (z->t.nt == EIN__MAX_RANK) return false;
    z->back[z->t.nt] = back;
    z->t.n[z->t.nt] = n;
    *slot = z->t.nt++;
    return true;
}

static bool ein__point_keep(ein_ctx *ctx, ein__points *z, uint32_t i) {
    uint32_t slot;
    ein__ix it = ein__ix_iter(ctx, i, z->s->n[i]);
    if (!ein__point_slot(z, z->s->n[i], it, &slot)) return false;
    z->map[i] = ein__ix_iter(ctx, slot, z->s->n[i]);
    return true;
}

// The first dimension of x that is no batch: it stands for channels, or for a window.
static uint32_t ein__point_batch_end(ein_ctx *ctx, const ein__points *z) {
    uint32_t k = 0, slot;
    for (; k < z->x->nix; k++)
        if (!ein__ix_is_iter(ctx, z->x->ix[k], &slot) || slot >= z->s->nt || (z->in_w >> slot & 1))
            break;
    return k;
}

// Traversal of the new scope in the order a convolution has: batch, groups, channels and then the
// phases, which are channels, and windows. Dimensions of extent 1 have no iterator.
static bool ein__point_traversal(ein_ctx *ctx, ein__points *z) {
    uint32_t nt = z->s->nt, placed = z->outer, first = ein__point_batch_end(ctx, z), only_x;
    only_x = z->in_x & ~z->in_w & ((1u << nt) - 1);
    for (int group = 0; group < 3; group++) {
        uint32_t want = group == 0 ? 0 : group == 1 ? z->in_x & z->in_w : z->in_w & ~z->in_x;
        for (uint32_t k = 0; group == 0 && k < first; k++)
            want |= ein__ix_uses(ctx, z->x->ix[k]) & only_x;
        for (uint32_t i = 0; i < nt; i++) {
            if (!(want >> i & 1) || (placed >> i & 1) || z->s->n[i] == 1) continue;
            if (!ein__point_keep(ctx, z, i)) return false;
            placed |= 1u << i;
        }
    }
    for (uint32_t k = 0; k < z->x->nix; k++) {
        ein__point *p = &z->p[k];
        if (p->active && p->phases > 1 && !ein__point_slot(z, p->phases, p->phase, &p->p_slot))
            return false;
    }
    for (uint32_t k = 0; k < z->x->nix; k++) {
        ein__point *p = &z->p[k];
        uint32_t rest = ein__ix_uses(ctx, z->x->ix[k]) & only_x & ~placed;
        for (uint32_t i = 0; i < nt; i++) {
            if (!(rest >> i & 1) || z->s->n[i] == 1) continue;
            if (!ein__point_keep(ctx, z, i)) return false;
            placed |= 1u << i;
        }
        if (p->active && p->outer &&
            !ein__point_slot(z, p->n, ein__ix_addc(ctx, p->at, -p->lo), &p->u_slot))
            return false;
    }
    return true;
}

// Sums keep their order; r is q*R + step*p + first, R counted so that the data is read forwards.
static bool ein__point_sums(ein_ctx *ctx, ein__points *z) {
    for (uint32_t i = z->s->nt; i < z->s->nt + z->s->ns; i++) {
        const ein__point *p = NULL;
        for (uint32_t k = 0; k < z->x->nix; k++)
            if (z->p[k].active && z->p[k].sum == (int)i) p = &z->p[k];
        int64_t n = p ? p->taps : z->s->n[i];
        ein__ix it = ein__ix_const(ctx, 0);
        if (n > 1) {
            if (z->t.nt + z->t.ns == EIN__MAX_ITERS) return false;
            it = ein__ix_iter(ctx, z->t.nt + z->t.ns, n);
            z->t.n[z->t.nt + z->t.ns++] = n;
        }
        if (p) {
            if (p->k < 0) it = ein__ix_addc(ctx, ein__ix_scale(ctx, it, -1), n - 1);
            it = ein__ix_addc(ctx, ein__ix_scale(ctx, it, p->q), p->first);
            if (p->phases > 1)
                it = ein__ix_add(
                    ctx, it, ein__ix_scale(ctx, ein__ix_iter(ctx, p->p_slot, p->phases), p->step));
        }
        z->map[i] = it;
    }
    z->t.reduce = z->t.ns ? (uint32_t)EIN__R_SUM : (uint32_t)EIN__R_NONE;
    return true;
}

// ------------------------------------------------------------------------------------ operands

static ein__ex ein__point_data(ein_ctx *ctx, const ein__points *z) {
    ein__ix ix[EIN__MAX_RANK];
    for (uint32_t k = 0; k < z->x->nix; k++) {
        const ein__point *p = &z->p[k];
        const ein__index *f = ein__ix_get(ctx, z->x->ix[k]);
        if (!p->active) {
            ix[k] = ein__ix_subst(ctx, z->x->ix[k], z->map, (int)(z->s->nt + z->s->ns));
            continue;
        }
        ix[k] = p->outer ? ein__ix_addc(ctx, ein__ix_iter(ctx, p->u_slot, p->n), p->lo) : p->at;
        for (uint32_t i = 0; i < f->n; i++) {
            uint32_t slot = ein__atom_get(ctx, f->t[i].atom)->slot;
            ein__ix term;
            if (p->outer >> slot & 1) continue;
            if ((int)slot == p->sum) {
                // r without its low digit, over q
                term = ein__ix_addc(ctx, z->map[slot], -p->first);
                if (p->phases > 1)
                    term = ein__ix_sub(
                        ctx, term,
                        ein__ix_scale(ctx, ein__ix_iter(ctx, p->p_slot, p->phases), p->step));
                term = ein__ix_scale(ctx, ein__ix_div(ctx, term, p->q), p->k);
            } else {
                term = ein__ix_scale(ctx, z->map[slot], f->t[i].k / p->q);
            }
            ix[k] = ein__ix_add(ctx, ix[k], term);
        }
    }
    return ein__ex_read(ctx, (ein__val){z->x->val}, 0, ix, (int)z->x->nix);
}

// The other operand at the new iterators, and 0 where r is beyond its extent. False: it has no such
// iterator, so the data alone would have to be cut.
static bool ein__point_filter(ein_ctx *ctx, const ein__points *z, ein__ex *filter) {
    int n = (int)(z->s->nt + z->s->ns);
    ein__ex w = ein__ex_subst(ctx, ein__ex_of(ctx, z->w), z->map, n);
    for (uint32_t k = 0; k < z->x->nix && w.i; k++) {
        const ein__point *p = &z->p[k];
        if (!p->active || p->sum < 0) continue;
        int64_t extent = z->s->n[p->sum];
        if (ein__ix_get(ctx, z->map[p->sum])->hi < extent) continue;
        if (!(z->in_w >> p->sum & 1)) return false;
        w = ein__ex_when(ctx, z->map[p->sum], extent, false, w);
    }
    *filter = w;
    return w.i != 0;
}

// The filter written out, its dimensions in the order a convolution's has.
static ein__ex ein__point_relay(ein__deriver *d, const ein__points *z, ein__ex w, int from) {
    ein_ctx *ctx = d->ctx;
    uint32_t used = ein__ex_uses(ctx, w);
    ein__scope t = {.reduce = EIN__R_NONE};
    ein__ix map[EIN__MAX_ITERS], back[EIN__MAX_RANK];
    int64_t volume = ein__slots_volume(&z->t, used);
    bool load = ctx->value[z->w->val].weight_only;
    if (!load && volume > ein__elements(&ctx->value[z->w->val].shape) * EIN__MAX_GROWTH)
        return (ein__ex){0};
    for (uint32_t i = 0; i < z->t.nt + z->t.ns; i++) {
        map[i] = ein__ix_const(ctx, 0);
        if (!(used >> i & 1)) continue;
        if (t.nt == EIN__MAX_RANK) return (ein__ex){0};
        back[t.nt] = ein__ix_iter(ctx, i, z->t.n[i]);
        map[i] = ein__ix_iter(ctx, t.nt, z->t.n[i]);
        t.n[t.nt++] = z->t.n[i];
    }
    t.body = ein__ex_subst(ctx, w, map, (int)(z->t.nt + z->t.ns));
    if (!t.body.i) return t.body;
    ein__val v = ein__class_of(d, &t, "taps", from, "one-point rule", true);
    return v.i ? ein__ex_read(ctx, v, 0, back, (int)t.nt) : (ein__ex){0};
}

static void ein__point_apply(ein__deriver *d, int from, ein__points *z, double alpha) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    ein__ex x, w;
    for (uint32_t i = 0; i < z->s->nt + z->s->ns; i++) z->map[i] = ein__ix_const(ctx, 0);
    if (!ein__point_traversal(ctx, z) || !ein__point_sums(ctx, z)) return;
    int64_t volume = ein__slots_volume(&z->t, (1u << z->t.nt) - 1),
            had = ein__slots_volume(z->s, (1u << z->s->nt) - 1);
    if (ein__muldiv(volume, 100, 1) > ein__muldiv(had, EIN__POINT_GROWTH, 1)) return;
    x = ein__point_data(ctx, z);
    if (!x.i || !ein__point_filter(ctx, z, &w)) return;
    if (ein__ex_get(ctx, w)->op == EIN__X_CONST || ein__ex_get(ctx, x)->op == EIN__X_CONST) return;
    w = ein__ex_binary(ctx, EIN__MUL, ein__ex_const(ctx, alpha), w);
    if (w.i) w = ein__point_relay(d, z, w, from);
    z->t.body = ein__ex_binary(ctx, EIN__MUL, x, w);
    ein__val v = z->t.body.i ? ein__class_of(d, &z->t, "phases", from, "one-point rule", false)
                             : (ein__val){0};
    ein__scope copy = {.reduce = EIN__R_NONE, .nt = z->s->nt};
    memcpy(copy.n, z->s->n, z->s->nt * sizeof *copy.n);
    copy.body = v.i ? ein__ex_read(ctx, v, 0, z->back, (int)z->t.nt) : (ein__ex){0};
    if (copy.body.i) ein__add_def(d, old.cls, &copy, from, "one-point rule", old.inner);
}

static void ein__rule_point(ein__deriver *d, int from) {
    ein_ctx *ctx = d->ctx;
    const ein__def old = d->def[from];
    const ein__scope *s = ein__sc_get(ctx, old.sc);
    const ein__expr *read[2];
    double alpha;
    if (old.inner || old.depth || !ein__two_factors(ctx, s, read, &alpha)) return;
    for (int k = 0; k < 2; k++) {
        ein__points z = {.s = s, .x = read[k], .w = read[1 - k]};
        for (uint32_t i = 0; i < z.x->nix; i++) z.in_x |= ein__ix_uses(ctx, z.x->ix[i]);
        for (uint32_t i = 0; i < z.w->nix; i++) z.in_w |= ein__ix_uses(ctx, z.w->ix[i]);
        ein__attempt attempt = ein__try(ctx);
        if (ein__find_points(ctx, &z)) ein__point_apply(d, from, &z, alpha);
        if (!ein__tried(ctx, attempt)) return;
    }
}
/* ---- rules.c ---- */
// The rules of derivation, one row each. A rule is given one definition and adds equivalent ones of
// the same class, or classes that they read. It takes its constants from the expression: extents,
// coefficients, denominators. To add a rule: one function in a rule_*.c file, one row here;
// tests/test_rules.c applies every row to random scopes and wants scopes that it fires on.

typedef struct ein__rule {
    const char *name;  // as `--rules` has it
    const char *what;  // in the papers' words
    void (*apply)(ein__deriver *z, int from);
    int quota;        // definitions that it may add to one problem
    bool converging;  // towards a library call (EinNet section 5.2)
} ein__rule;

static const ein__rule ein__rules[] = {
    // sum(y,z) a b = sum(y) sum(z) a b; a product of sums where a factor is free of z
    {"split", "summation splitting", ein__rule_split, 400, false},
    // a[E(i)] = a'[i], a'[i] = a[E(i)]
    {"operand", "operator matching: operand re-laid", ein__rule_match_gemm, 200, true},
    // a[d*x + u], u = d*U + p, is a'[x + U, p], a'[i,p] = a[d*i + p]
    {"digits", "digit re-layout", ein__rule_digits, 20, false},
    // a[(E + k*r)/q], r = q*R + p: p is a function of E, and a[u + k*R] has no denominator
    {"point", "one-point rule", ein__rule_point, 20, false},
    // r = d*R + p: sum(r) is sum(R) of an inner sum over p
    {"taps", "summation splitting by digits", ein__rule_taps, 100, false},
};
enum { EIN__NRULES = sizeof ein__rules / sizeof *ein__rules };

// The rules that `names` lists, separated by commas; all of them without a list. Sets the context's
// error for a name that is none.
EIN__FN uint32_t ein__rules_named(ein_ctx *ctx, const char *names) {
    uint32_t mask = 0;
    if (!names) return (1u << EIN__NRULES) - 1;
    while (*names) {
        size_t n = strcspn(names, ",");
        int found = -1;
        for (int r = 0; r < EIN__NRULES; r++)
            if (strlen(ein__rules[r].name) == n && !strncmp(ein__rules[r].name, names, n))
                found = r;
        if (found < 0) {
            ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "unknown rule '%.*s'", (int)(n & 63),
                       names);
            return 0;
        }
        mask |= 1u << found;
        names += n + (names[n] == ',');
    }
    return mask;
}
/* ---- extract.c ---- */
// Choice: the cheapest definition of every class, and the values made from it.

#define EIN__NO_WAY (INT64_MAX / 8)

static int64_t ein__class_cost(ein__deriver *z, ein__val v);

// A copy whose addresses are those of its source under another shape costs nothing.
static bool ein__is_view_copy(ein_ctx *ctx, const ein__scope *s) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    ein__ix map[EIN__MAX_ITERS];
    const ein__scope *p = e->op == EIN__X_READ ? ein__scope_of(ctx, (ein__val){e->val}) : NULL;
    return s->reduce == EIN__R_NONE && p && ein__inside(ctx, e) && ein__ex_affine(ctx, s->body) &&
           ein__invert_read(ctx, e, s, p, map);
}

// Cost of the step that computes a definition, without what it reads. The problem itself carries
// the cost of the map behind it, unless that map is fused.
static int64_t ein__def_step_cost(ein__deriver *z, const ein__def *d) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__sc_get(ctx, d->sc);
    bool last = d->cls.i == z->problem.i && z->map.i;
    ein__val map = last ? z->map : (ein__val){0};
    if (ctx->value[d->cls.i].weight_only || ein__is_view_copy(ctx, s))
        return last ? ein__kernel_cost(ctx, map) : 0;
    if (!ein__is_contraction(ctx, s))
        return ein__cost_scope(ctx, s->ns ? EIN__K_REDUCE : EIN__K_MAP, s, map, z->map_read);
    int64_t ps;
    ein__choose(ctx, s, map, z->map_read, &ps);
    return ps;
}

// Cost of a definition with all that it reads; any cost from `bound` on when it is not below that.
static int64_t ein__def_cost(ein__deriver *z, const ein__def *d, int64_t bound) {
    ein_ctx *ctx = z->ctx;
    int64_t total = ein__def_step_cost(z, d);
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, d->sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads) && total < bound; i++)
        total =
            ein__cost_sum(total, ein__class_cost(z, (ein__val){ein__ex_get(ctx, reads[i])->val}));
    arrfree(reads);
    return total;
}

// Least cost over a class's definitions; values that are no class of this problem cost nothing.
static int64_t ein__class_cost(ein__deriver *z, ein__val v) {
    ptrdiff_t at = ein__class_at(z, v);
    if (at < 0) return 0;
    while (arrlen(z->cost) < arrlen(z->cls)) {
        arrput(z->cost, 0);
        arrput(z->best, -1);
    }
    if (z->cost[at] == -1) return EIN__NO_WAY;  // a cycle
    if (z->cost[at]) return z->cost[at] - 1;
    int64_t least = EIN__NO_WAY;
    z->cost[at] = -1;
    int best = -1;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
        if (z->def[i].cls.i != v.i) continue;
        int64_t c = ein__def_cost(z, &z->def[i], least);
        if (best < 0 || c < least) {
            least = c;
            best = (int)i;
        }
    }
    z->cost[at] = least + 1;
    z->best[at] = best;
    return least;
}

// The cheapest definition of class `v`; -1 for values that are no class, or whose cost was not
// asked for.
static int ein__best_def(const ein__deriver *z, ein__val v) {
    ptrdiff_t at = ein__class_at(z, v);
    return at >= 0 && at < arrlen(z->best) ? z->best[at] : -1;
}

// Values made of the cheapest definitions. A problem that was derived once for all that are like it
// reads stand-ins: `actual` is what they stand for, and `self` what the problem does.
typedef struct ein__realiser {
    ein__deriver *z;
    ein__val *made;  // by class; stb_ds array
    ein__val stand_in[2], actual[2];
    int nstand;
    ein__val self;       // none: the problem's own value
    ein__val *by_scope;  // values made before, by scope id; stb_ds array, or NULL
} ein__realiser;

static ein__val ein__realise(ein__realiser *r, ein__val v);

static ein__ex ein__realise_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__realiser *r = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = ein__realise(r, (ein__val){e->val});
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return v.i ? ein__ex_read(ctx, v, pad, e->ix, (int)e->nix) : (ein__ex){0};
}

// What led to a definition, oldest rule first.
static const char *ein__trail(ein__deriver *z, int def) {
    const char *text = "";
    for (; def >= 0 && z->def[def].rule; def = z->def[def].from)
        text = *text ? ein__namef(z->ctx, "%s; %s", z->def[def].rule, text) : z->def[def].rule;
    return text;
}

// The value like class `v` that stands for it in the program, with definition `sc`.
static ein__val ein__realised(ein__realiser *r, ein__val v, ein__sc sc) {
    ein_ctx *ctx = r->z->ctx;
    const ein__value cls = ctx->value[v.i];
    const ein__value *self = r->self.i ? &ctx->value[r->self.i] : &ctx->value[r->z->problem.i];
    bool last = v.i == r->z->problem.i;
    while (arrlen(r->by_scope) <= (ptrdiff_t)sc.i) arrput(r->by_scope, (ein__val){0});
    if (!last && r->by_scope[sc.i].i) return r->by_scope[sc.i];
    const char *problem = ctx->value[r->z->problem.i].name;
    const char *name =
        last ? self->name : ein__namef(ctx, "%s%s", self->name, cls.name + strlen(problem));
    ein__val made =
        ein__val_new(ctx, name, EIN__V_SCOPE, self->tensor, sc, &cls.shape, cls.dtype, self->node);
    if (!last) r->by_scope[sc.i] = made;
    return made;
}

// The class's value by its cheapest definition.
static ein__val ein__realise(ein__realiser *r, ein__val v) {
    ein__deriver *z = r->z;
    ein_ctx *ctx = z->ctx;
    ptrdiff_t at = ein__class_at(z, v);
    for (int i = 0; i < r->nstand; i++)
        if (r->stand_in[i].i == v.i) return r->actual[i];
    if (at < 0 || at >= arrlen(z->best) || z->best[at] < 0) return v;
    while (arrlen(r->made) <= at) arrput(r->made, (ein__val){0});
    if (r->made[at].i) return r->made[at];
    const ein__def d = z->def[z->best[at]];
    ein__scope s = *ein__sc_get(ctx, d.sc);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__realise_read, r);
    ein__sc sc = ein__sc_make(ctx, &s);
    if (!sc.i) return (ein__val){0};
    ein__val made = ein__realised(r, v, sc);
    // What happens at load is told by its last rule alone.
    if (made.i && !ctx->value[made.i].why)
        ctx->value[made.i].why = ctx->value[v.i].weight_only ? d.rule : ein__trail(z, z->best[at]);
    r->made[at] = made;
    return made;
}
/* ---- search.c ---- */
// The search: rules applied breadth first to the definitions of one problem, each distinct problem
// once, and the pass that replaces every contraction of a program by its cheapest derivation.

enum { EIN__PROGRESS_STEP = 64 };  // definitions between two calls of ein_desc.progress

static bool ein__progress(ein_ctx *ctx) {
    const ein_desc *d = &ctx->desc;
    return !d->progress || d->progress(d->progress_user, &ctx->stats);
}

// All rules on definition `def`. A rule that meets a limit of the implementation gives nothing.
static void ein__apply_rules(ein__deriver *z, int def) {
    for (int r = 0; r < EIN__NRULES; r++) {
        ptrdiff_t before = arrlen(z->def);
        if (!(z->ctx->rule_mask >> r & 1)) continue;
        if (ein__rules[r].converging && z->ctx->desc.no_converge) continue;
        if (z->added[r] >= ein__rules[r].quota) {
            ein__stopped(z, EIN_STOP_QUOTA);
            continue;
        }
        ein__attempt attempt = ein__try(z->ctx);
        ein__rules[r].apply(z, def);
        ein__tried(z->ctx, attempt);
        z->added[r] += (int)(arrlen(z->def) - before);
    }
}

static void ein__explore(ein__deriver *z) {
    const ein_desc *limit = &z->ctx->desc;
    int depth = limit->depth ? limit->depth : EIN__DERIVE_DEPTH;
    arrput(z->cls, z->problem);
    ein__add_def(z, z->problem, ein__scope_of(z->ctx, z->problem), -1, NULL, false);
    for (ptrdiff_t i = 0; i < arrlen(z->def) && !z->ctx->status; i++) {
        if (i % EIN__PROGRESS_STEP == 0 && !ein__progress(z->ctx)) {
            ein__stopped(z, EIN_STOP_CANCELLED);
            break;
        }
        if (z->def[i].depth < depth) ein__apply_rules(z, (int)i);
        else ein__stopped(z, EIN_STOP_DEPTH);
    }
    ein_stats *stats = &z->ctx->stats;
    stats->distinct++;
    stats->definitions += arrlen(z->def);
    stats->lookups += z->lookups;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++)
        stats->candidates += z->def[i].cls.i == z->problem.i;
    if (stats->stop < z->stop) stats->stop = z->stop;
}

static ein__deriver ein__deriver_of(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    return (ein__deriver){.ctx = ctx,
                          .problem = v,
                          .map = map,
                          .map_read = read,
                          .first = (uint32_t)arrlen(ctx->value)};
}

static void ein__deriver_free(ein__deriver *z) {
    arrfree(z->def);
    arrfree(z->cls);
    arrfree(z->cost);
    arrfree(z->best);
}

// ------------------------------------------------------------------------------------ problems

// What the choice among a problem's definitions depends on beside the problem: the map behind it.
typedef struct ein__choice {
    int64_t map_ps;
    bool fusable;
    int best;
} ein__choice;

// A contraction up to the names of its operands, for which values of the same shapes stand in.
typedef struct ein__problem {
    ein__sc key;
    ein__val stand_in[2];
    int nstand;
    ein__deriver z;
    ein__choice *choice;  // stb_ds array
} ein__problem;

typedef struct ein__search {
    ein__problem **problem;  // stb_ds arrays
    int *by_key;             // by scope id: number of the problem, from 1
    ein__val *stand_in;
    ein__val *by_scope;    // inner values made, by scope id
    ptrdiff_t *reader_at;  // by value: place in the program of the first value that reads it
} ein__search;

EIN__FN ein__search *ein__search_of(ein_ctx *ctx) {
    if (!ctx->search) ctx->search = EIN__NEW(&ctx->arena, ein__search, 1);
    return ctx->search;
}

EIN__FN void ein__search_free(ein__search *z) {
    if (!z) return;
    for (ptrdiff_t i = 0; i < arrlen(z->problem); i++) {
        ein__deriver_free(&z->problem[i]->z);
        arrfree(z->problem[i]->choice);
    }
    arrfree(z->problem);
    arrfree(z->by_key);
    arrfree(z->stand_in);
    arrfree(z->by_scope);
    arrfree(z->reader_at);
}

// The stand-in for values like `v` that is none of the `taken` ones.
static ein__val ein__stand_in(ein_ctx *ctx, ein__val v, const ein__val *taken, int ntaken) {
    ein__search *z = ein__search_of(ctx);
    const ein__value like = ctx->value[v.i];
    for (ptrdiff_t i = 0; i < arrlen(z->stand_in); i++) {
        const ein__value *p = &ctx->value[z->stand_in[i].i];
        bool fits = p->dtype == like.dtype && p->weight_only == like.weight_only &&
                    p->shape.rank == like.shape.rank;
        for (int k = 0; fits && k < like.shape.rank; k++) fits = p->shape.d[k] == like.shape.d[k];
        for (int k = 0; fits && k < ntaken; k++) fits = taken[k].i != z->stand_in[i].i;
        if (fits) return z->stand_in[i];
    }
    ein__val made =
        ein__val_new(ctx, "operand", EIN__V_INPUT, -1, (ein__sc){0}, &like.shape, like.dtype, -1);
    ctx->value[made.i].weight_only = like.weight_only;
    arrput(z->stand_in, made);
    return made;
}

// A problem's own operands and what stands in for them.
typedef struct ein__operands {
    ein__val stand_in[2], actual[2];
    int n;
} ein__operands;

static ein__ex ein__bind_read(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__operands *b = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = {e->val}, to = {0};
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    for (int i = 0; i < b->n; i++)
        if (b->actual[i].i == v.i) to = b->stand_in[i];
    if (!to.i) {
        EIN_ASSERT(b->n < 2);
        to = ein__stand_in(ctx, v, b->stand_in, b->n);
        b->actual[b->n] = v;
        b->stand_in[b->n++] = to;
    }
    return ein__ex_read(ctx, to, pad, e->ix, (int)e->nix);
}

// The problem that contraction `v` is, derived when it is new.
static ein__problem *ein__problem_of(ein_ctx *ctx, ein__val v, ein__operands *b) {
    ein__search *z = ein__search_of(ctx);
    ein__scope s = *ein__scope_of(ctx, v);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__bind_read, b);
    ein__sc key = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    ctx->stats.problems++;
    if (!key.i) return NULL;
    while (arrlen(z->by_key) <= (ptrdiff_t)key.i) arrput(z->by_key, 0);
    if (z->by_key[key.i]) return z->problem[z->by_key[key.i] - 1];
    ein__problem *p = EIN__NEW(&ctx->arena, ein__problem, 1);
    ein__val self = ein__val_new(ctx, "", EIN__V_SCOPE, -1, key, &ctx->value[v.i].shape,
                                 ctx->value[v.i].dtype, -1);
    p->key = key;
    p->nstand = b->n;
    memcpy(p->stand_in, b->stand_in, sizeof p->stand_in);
    p->z = ein__deriver_of(ctx, self, (ein__val){0}, (ein__ex){0});
    arrput(z->problem, p);
    z->by_key[key.i] = (int)arrlen(z->problem);
    ein__explore(&p->z);
    return p;
}

// The cheapest definition of the problem when `map`, which reads it by `read`, is all that reads
// it (or none is).
static int ein__choose_def(ein_ctx *ctx, ein__problem *p, ein__val map, ein__ex read) {
    ein__epilogue e;
    ein__choice c = {.best = -1};
    if (map.i) {
        c.map_ps = ein__kernel_cost(ctx, map);
        c.fusable = ein__conv_epilogue(ctx, ein__scope_of(ctx, map), read, &e);
    }
    for (ptrdiff_t i = 0; i < arrlen(p->choice); i++)
        if (p->choice[i].map_ps == c.map_ps && p->choice[i].fusable == c.fusable)
            return p->choice[i].best;
    p->z.map = map;
    p->z.map_read = read;
    if (arrlen(p->z.cost)) p->z.cost[0] = 0;
    ein__class_cost(&p->z, p->z.problem);
    c.best = ein__best_def(&p->z, p->z.problem);
    arrput(p->choice, c);
    return c.best;
}

// ------------------------------------------------------------------------------------ the pass

// The cheapest derivation of contraction `v`, or `v` itself. `map`, `read`: the map that alone
// reads it.
static ein__val ein__derive_value(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read) {
    ein__operands b = {.n = 0};
    ein__attempt attempt = ein__try(ctx);
    ein__val result = v;
    ctx->stats.searching = true;
    ein__progress(ctx);
    ein__problem *p = ein__problem_of(ctx, v, &b);
    int best = p && !ctx->status ? ein__choose_def(ctx, p, map, read) : -1;
    if (best > 0) {
        ein__search *z = ein__search_of(ctx);
        ein__realiser r = {.z = &p->z, .nstand = b.n, .self = v, .by_scope = z->by_scope};
        memcpy(r.stand_in, b.stand_in, sizeof r.stand_in);
        memcpy(r.actual, b.actual, sizeof r.actual);
        p->z.best[0] = best;
        result = ein__realise(&r, p->z.problem);
        z->by_scope = r.by_scope;
        arrfree(r.made);
    }
    ctx->stats.searching = false;
    ein__progress(ctx);
    return ein__tried(ctx, attempt) ? result : v;
}

static ein__val ein__rebuild_derived(ein__pass *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__search *search = ein__search_of(ctx);
    ein__val old = v;
    ein__ex body = ein__rebuild_body(z, v);
    if (!body.i) return (ein__val){0};
    v = ein__with_body(z, v, body);
    const ein__scope *s = v.i ? ein__scope_of(ctx, v) : NULL;
    if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) return v;
    ein__ex read = {0};
    ein__val map = ein__sole_reader(ctx, z->order, z->uses, old, search->reader_at[old.i], &read);
    return ein__derive_value(ctx, v, map, read);
}

// Where in `order` each value is first read.
static void ein__find_readers(ein_ctx *ctx, ein__search *z, const ein__val *order) {
    arrsetlen(z->reader_at, arrlen(ctx->value));
    for (ptrdiff_t i = 0; i < arrlen(z->reader_at); i++) z->reader_at[i] = arrlen(order);
    for (ptrdiff_t i = arrlen(order); i-- > 0;) {
        const ein__scope *s = ein__scope_of(ctx, order[i]);
        ein__ex *reads = NULL;
        if (s) ein__ex_reads(ctx, s->body, &reads);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            z->reader_at[ein__ex_get(ctx, reads[k])->val] = i;
        arrfree(reads);
    }
}

EIN__FN bool ein__derive(ein_ctx *ctx, ein__val *root, int nroot) {
    ein__val *order = ein__live(ctx, root, nroot);
    ein__find_readers(ctx, ein__search_of(ctx), order);
    arrfree(order);
    return ein__run_pass(ctx, root, nroot, ein__rebuild_derived);
}
/* ---- layout.c ---- */
// Where every value lives: buffers, and an affine address map per value. Copies that only rename
// addresses (reshape, slice, split, concatenation, un-split digits) become views and cost nothing.

enum { EIN__NO_BUFFER = -1 };

// The slot-wise strides of a copy's source when the copy has layout `l`: the source is written
// straight to where the copy lives. False when some element of the source has no place there, or
// two.
static bool ein__inverse_view(ein_ctx *ctx, ein__val copy, const ein__expr *read,
                              const ein__layout *l, ein__layout *source) {
    const ein__scope *s = ein__scope_of(ctx, copy);
    const ein__shape *p = &ctx->value[read->val].shape;
    int64_t covered[EIN__MAX_RANK];
    *source = *l;
    for (uint32_t t = 0; t < s->nt; t++) covered[t] = 1;
    for (int k = 0; k < p->rank; k++) {
        const ein__index *f = ein__ix_get(ctx, read->ix[k]);
        source->stride[k] = 0;
        if (p->d[k] == 1 && f->n == 0 && f->c == 0) continue;
        if (f->n != 1 || f->c || f->q != 1 || f->t[0].k != 1) return false;
        const ein__atom *a = ein__atom_get(ctx, f->t[0].atom);
        uint32_t slot = a->slot;
        int64_t scale = 1;
        if (a->kind == EIN__FLOOR || a->kind == EIN__MOD) {
            if (!ein__ix_is_iter(ctx, (ein__ix){a->ix}, &slot)) return false;
            if (a->kind == EIN__FLOOR) scale = a->n;
        } else if (a->kind != EIN__ITER) {
            return false;
        }
        source->stride[k] = l->stride[slot] * scale;
        covered[slot] *= p->d[k];
    }
    for (uint32_t t = 0; t < s->nt; t++)
        if (covered[t] != s->n[t]) return false;
    return true;
}

// The general case: the source is dense in an order that the copy reads linearly (a reshape).
static bool ein__inverse_reshape(ein_ctx *ctx, ein__val copy, const ein__expr *read,
                                 const ein__layout *l, ein__layout *source) {
    const ein__shape *p = &ctx->value[read->val].shape, *c = &ctx->value[copy.i].shape;
    int64_t dense[EIN__MAX_RANK], mine[EIN__MAX_RANK];
    ein__factor f;
    ein__dense_strides(p, dense);
    ein__dense_strides(c, mine);
    if (ein__elements(p) != ein__elements(c) || !ein__address(ctx, read, dense, &f) || f.offset)
        return false;
    for (int k = 0; k < c->rank; k++)
        if (c->d[k] > 1 && (f.coef[k] != mine[k] || l->stride[k] != mine[k])) return false;
    *source = *l;
    memcpy(source->stride, dense, sizeof dense);
    return true;
}

// The layout of a copy of something that has a layout already: a strided window on it.
static bool ein__forward_view(ein_ctx *ctx, ein__val copy, const ein__expr *read,
                              const ein__layout *source, ein__layout *l) {
    ein__factor f;
    const ein__scope *s = ein__scope_of(ctx, copy);
    if (!ein__address(ctx, read, source->stride, &f)) return false;
    *l = *source;
    l->offset += f.offset;
    for (uint32_t t = 0; t < s->nt; t++) {
        l->stride[t] = f.coef[t];
        if (f.coef[t] < 0) return false;
    }
    return true;
}

static bool ein__is_dense(const ein__shape *s, const ein__layout *l) {
    int64_t want[EIN__MAX_RANK];
    ein__dense_strides(s, want);
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] > 1 && l->stride[k] != want[k]) return false;
    return true;
}

// ------------------------------------------------------------------------------------
// concatenation

typedef struct ein__pieces {
    int n, axis;
    const ein__expr *read[EIN__MAX_ARGS];
    int64_t at[EIN__MAX_ARGS];
} ein__pieces;

static bool ein__collect_pieces(ein_ctx *ctx, ein__ex ex, ein__pieces *p) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__ADD)
        return ein__collect_pieces(ctx, e->kid[0], p) && ein__collect_pieces(ctx, e->kid[1], p);
    if (e->op != EIN__X_READ || e->bits || p->n >= EIN__MAX_ARGS) return false;
    p->read[p->n++] = e;
    return true;
}

// Whether map `v` lays other values side by side along one dimension, filling it exactly.
static bool ein__is_concat(ein_ctx *ctx, ein__val v, ein__pieces *p) {
    const ein__scope *s = ein__scope_of(ctx, v);
    *p = (ein__pieces){.axis = -1};
    if (!s || s->reduce != EIN__R_NONE || !ein__collect_pieces(ctx, s->body, p) || p->n < 2)
        return false;
    int64_t total = 0;
    for (int i = 0; i < p->n; i++) {
        const ein__shape *part = &ctx->value[p->read[i]->val].shape;
        if (part->rank != (int)s->nt) return false;
        for (int k = 0; k < part->rank; k++) {
            if (p->read[i]->ix[k].i == ein__ix_iter(ctx, (uint32_t)k, s->n[k]).i &&
                part->d[k] == s->n[k])
                continue;
            const ein__index *f = ein__ix_get(ctx, p->read[i]->ix[k]);
            bool shift =
                f->n == 1 && f->q == 1 && ein__ix_coef(ctx, p->read[i]->ix[k], (uint32_t)k) == 1;
            if (!shift || (p->axis >= 0 && p->axis != k)) return false;
            p->axis = k;
            p->at[i] = -f->c;
        }
        if (p->axis < 0) return false;
        total += part->d[p->axis];
        if (p->at[i] < 0 || p->at[i] + part->d[p->axis] > s->n[p->axis]) return false;
        for (int j = 0; j < i; j++) {
            int64_t other = ctx->value[p->read[j]->val].shape.d[p->axis];
            if (p->read[j]->val == p->read[i]->val) return false;
            if (p->at[i] < p->at[j] + other && p->at[j] < p->at[i] + part->d[p->axis]) return false;
        }
    }
    return total == s->n[p->axis];
}

// ------------------------------------------------------------------------------------ placement

typedef struct ein__placer {
    ein_ctx *ctx;
    const ein__selector *sel;
    bool *view;  // by value: it has no step of its own
} ein__placer;

static int ein__new_buffer(ein_ctx *ctx, ein__bkind kind, ein__val v, int index) {
    ein__buffer b = {.kind = kind,
                     .name = ctx->value[v.i].name,
                     .index = index,
                     .first = -1,
                     .last = -1,
                     .bytes = ein__bytes_of(ctx, v),
                     .dtype = ctx->value[v.i].dtype};
    arrput(ctx->plan.buffer, b);
    return (int)arrlen(ctx->plan.buffer) - 1;
}

static void ein__place_dense(ein_ctx *ctx, ein__val v, ein__bkind kind, int index) {
    ein__layout *l = &ctx->plan.layout[v.i];
    *l = (ein__layout){.buffer = ein__new_buffer(ctx, kind, v, index)};
    ein__dense_strides(&ctx->value[v.i].shape, l->stride);
}

static bool ein__placed(const ein_ctx *ctx, ein__val v) {
    return ctx->plan.layout[v.i].buffer != EIN__NO_BUFFER;
}

// The contraction whose library call stores `v` (v itself, or fused into it); none for kernels.
static ein__val ein__library_of(const ein__placer *z, ein__val v) {
    const ein__selector *sel = z->sel;
    ein__skind2 k = sel->kind[v.i];
    if (k != EIN__K_CONV && k != EIN__K_CONV_DATA && k != EIN__K_GEMM) return (ein__val){0};
    for (ptrdiff_t i = 0; i < arrlen(sel->order); i++)
        if (sel->home[sel->order[i].i].i == v.i && sel->order[i].i != v.i) return sel->order[i];
    return v;
}

// Whether the step that computes `p` can store it with layout `l`.
static bool ein__can_store(const ein__placer *z, ein__val p, const ein__layout *l) {
    ein_ctx *ctx = z->ctx;
    const ein__value *v = &ctx->value[p.i];
    if (v->kind != EIN__V_SCOPE || ein__placed(ctx, p) || z->sel->root[p.i]) return false;
    if (z->sel->home[p.i].i != p.i) return false;
    if (v->weight_only != (ctx->plan.buffer[l->buffer].kind == EIN__B_CONST)) return false;
    ein__val lib = ein__library_of(z, p);
    if (!lib.i) return true;
    if (z->sel->kind[p.i] != EIN__K_GEMM) return ein__is_dense(&v->shape, l) && l->offset % 4 == 0;
    ein__gemm g;
    return ein__match_gemm(ctx, ein__scope_of(ctx, lib), l->stride, &g);
}

static void ein__place_sources(ein__placer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__layout l = ctx->plan.layout[v.i];
    const ein__expr *read = ein__copy_of(ctx, v);
    ein__layout source;
    if (z->sel->home[v.i].i != v.i) return;
    if (read && ctx->value[read->val].dtype == ctx->value[v.i].dtype) {
        ein__val p = {read->val};
        if ((ein__inverse_view(ctx, v, read, &l, &source) ||
             ein__inverse_reshape(ctx, v, read, &l, &source)) &&
            ein__can_store(z, p, &source)) {
            ctx->plan.layout[p.i] = source;
            z->view[v.i] = true;
        }
        return;
    }
    ein__pieces pc;
    if (!ein__is_concat(ctx, v, &pc)) return;
    ein__layout part[EIN__MAX_ARGS];
    for (int i = 0; i < pc.n; i++) {
        part[i] = l;
        part[i].offset += pc.at[i] * l.stride[pc.axis];
        if (ctx->value[pc.read[i]->val].dtype != ctx->value[v.i].dtype) return;
        if (!ein__can_store(z, (ein__val){pc.read[i]->val}, &part[i])) return;
    }
    for (int i = 0; i < pc.n; i++) ctx->plan.layout[pc.read[i]->val] = part[i];
    z->view[v.i] = true;
}

// A contraction that reads `v` must still match its library call when `v` is a view.
static bool ein__readers_accept(const ein__placer *z, ein__val v, const ein__layout *l) {
    ein_ctx *ctx = z->ctx;
    const ein__selector *sel = z->sel;
    if (ein__is_dense(&ctx->value[v.i].shape, l)) return true;
    for (ptrdiff_t i = 0; i < arrlen(sel->order); i++) {
        const ein__scope *s = ein__scope_of(ctx, sel->order[i]);
        ein__skind2 k = sel->kind[sel->order[i].i];
        if (!s || (k != EIN__K_CONV && k != EIN__K_CONV_DATA && k != EIN__K_GEMM)) continue;
        ein__ex *reads = NULL;
        bool does = false;
        ein__ex_reads(ctx, s->body, &reads);
        for (ptrdiff_t r = 0; r < arrlen(reads); r++)
            does |= ein__ex_get(ctx, reads[r])->val == v.i;
        arrfree(reads);
        if (does) return false;
    }
    return true;
}

static void ein__place_forward(ein__placer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read = ein__copy_of(ctx, v);
    ein__layout l;
    if (!read || ein__placed(ctx, v) || z->sel->root[v.i] || z->sel->home[v.i].i != v.i) return;
    ein__val p = {read->val};
    if (!ein__placed(ctx, p) || ctx->value[p.i].dtype != ctx->value[v.i].dtype) return;
    if (ein__elements(&ctx->value[v.i].shape) > ein__elements(&ctx->value[p.i].shape)) return;
    if (!ein__forward_view(ctx, v, read, &ctx->plan.layout[p.i], &l)) return;
    if (!ein__readers_accept(z, v, &l)) return;
    ctx->plan.layout[v.i] = l;
    z->view[v.i] = true;
}

// Buffers and layouts for all values of the selection; `root` in the order of the model's outputs.
EIN__FN void ein__place(ein__placer *z, const ein__val *root, int nroot) {
    ein_ctx *ctx = z->ctx;
    const ein__selector *sel = z->sel;
    ptrdiff_t n = arrlen(ctx->value);
    arrsetlen(ctx->plan.layout, n);
    arrsetlen(z->view, n);
    for (ptrdiff_t i = 0; i < n; i++) {
        ctx->plan.layout[i] = (ein__layout){.buffer = EIN__NO_BUFFER};
        z->view[i] = false;
    }
    for (int k = 0; k < nroot; k++) ein__place_dense(ctx, root[k], EIN__B_OUTPUT, k);
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.input); i++)
        ein__place_dense(ctx, ctx->tensor_value[ctx->graph.input[i]], EIN__B_INPUT, (int)i);
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++)
        ein__place_dense(ctx, ctx->tensor_value[ctx->graph.weight[i]], EIN__B_WEIGHT, (int)i);
    // From the outputs back: copies hand their place to what they copy.
    for (ptrdiff_t i = arrlen(sel->order); i-- > 0;) {
        ein__val v = sel->order[i];
        const ein__expr *read = ein__copy_of(ctx, v);
        ein__pieces pc;
        if (ctx->value[v.i].kind != EIN__V_SCOPE || sel->home[v.i].i != v.i) continue;
        ein__bkind kind = ctx->value[v.i].weight_only ? EIN__B_CONST : EIN__B_ARENA;
        bool fresh = !ein__placed(ctx, v);
        if (fresh && !read && !ein__is_concat(ctx, v, &pc)) continue;
        if (fresh) ein__place_dense(ctx, v, kind, -1);
        ein__place_sources(z, v);
        if (fresh && !z->view[v.i]) {
            // Nobody writes there for it: it may still become a window on its source.
            (void)arrpop(ctx->plan.buffer);
            ctx->plan.layout[v.i].buffer = EIN__NO_BUFFER;
        }
    }
    for (ptrdiff_t i = 0; i < arrlen(sel->order); i++) {
        ein__val v = sel->order[i];
        if (ctx->value[v.i].kind != EIN__V_SCOPE || sel->home[v.i].i != v.i) continue;
        ein__place_forward(z, v);
        if (!ein__placed(ctx, v))
            ein__place_dense(ctx, v, ctx->value[v.i].weight_only ? EIN__B_CONST : EIN__B_ARENA, -1);
    }
}
/* ---- plan.c ---- */
// The plan: steps in order, weight-only work split off, memory by liveness.

// A value that is an output as it stands (an input, a weight, or another output's value) gets a
// copy, so that every output has a step that writes it.
static bool ein__own_outputs(ein_ctx *ctx, ein__val *root, int nroot) {
    for (int k = 0; k < nroot; k++) {
        bool shared = ctx->value[root[k].i].kind != EIN__V_SCOPE;
        for (int j = 0; j < k; j++) shared |= root[j].i == root[k].i;
        if (!shared) continue;
        const ein__value old = ctx->value[root[k].i];
        ein__scope s = {.reduce = EIN__R_NONE, .nt = (uint32_t)old.shape.rank};
        ein__ix ix[EIN__MAX_RANK];
        for (int i = 0; i < old.shape.rank; i++) {
            s.n[i] = old.shape.d[i];
            ix[i] = ein__ix_iter(ctx, (uint32_t)i, s.n[i]);
        }
        s.body = ein__ex_read(ctx, root[k], 0, ix, old.shape.rank);
        ein__sc sc = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
        if (!sc.i) return false;
        root[k] = ein__val_new(ctx, ctx->graph.output[k].name, EIN__V_SCOPE, old.tensor, sc,
                               &old.shape, old.dtype, old.node);
    }
    return true;
}

// Values that a step reads from memory: all reads of the values it computes but those themselves.
EIN__FN ein__val *ein__step_reads(ein_ctx *ctx, const ein__step *step) {
    ein__val *list = NULL;
    for (int k = 0; k < step->nval; k++) {
        ein__ex *reads = NULL;
        ein__ex_reads(ctx, ein__scope_of(ctx, step->val[k])->body, &reads);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
            ein__val r = {ein__ex_get(ctx, reads[i])->val};
            bool known = false;
            for (int j = 0; j < step->nval; j++) known |= step->val[j].i == r.i;
            for (ptrdiff_t j = 0; j < arrlen(list); j++) known |= list[j].i == r.i;
            if (!known) arrput(list, r);
        }
        arrfree(reads);
    }
    return list;
}

static int64_t ein__conv_workspace(ein_ctx *ctx, const ein__conv *c, ein__val out) {
    int64_t bytes =
        ein__bytes_of(ctx, c->x) + ein__bytes_of(ctx, c->w) + ein__bytes_of(ctx, out) + (1 << 20);
    int64_t cap = (int64_t)256 << 20;
    return (bytes < cap ? bytes : cap) & ~(int64_t)255;
}

// Fills the library parameters of a step whose first value is contraction `s`. False: the layouts
// do not allow the call after all, and a kernel takes over.
static bool ein__library_step(ein_ctx *ctx, ein__step *step) {
    const ein__scope *s = ein__scope_of(ctx, step->val[0]);
    const ein__layout *out = &ctx->plan.layout[step->out.i];
    if (step->kind == EIN__K_GEMM) {
        if (!ein__match_gemm(ctx, s, out->stride, &step->gemm)) return false;
        step->ps = ein__cost_gemm(ctx, &step->gemm);
        step->key = ein__gemm_key(ctx, &step->gemm);
        step->workspace = ein__gpu_of(ctx)->cc >= 90 ? 32 << 20 : 4 << 20;
        return true;
    }
    ein__conv_form f;
    if (!ein__find_conv(ctx, s, out->stride, &f) || !ein__conv_sizes(&f)) return false;
    int slot[EIN__MAX_ITERS], n = ein__conv_filter_order(&f, slot);
    int64_t stride[EIN__MAX_RANK];
    ein__factor w;
    ein__strides_of(ctx, f.c.w, stride);
    if (!ein__address(ctx, f.w, stride, &w) || w.offset || !ein__dense_in_order(s, w.coef, slot, n))
        return false;
    step->conv = f.c;
    if (step->nval == 2) {
        const ein__scope *m = ein__scope_of(ctx, step->val[1]);
        ein__ex *reads = NULL, conv = {0};
        ein__epilogue e;
        ein__ex_reads(ctx, m->body, &reads);
        for (ptrdiff_t i = 0; i < arrlen(reads); i++)
            if (ein__ex_get(ctx, reads[i])->val == step->val[0].i) conv = reads[i];
        arrfree(reads);
        if (!ein__conv_epilogue(ctx, m, conv, &e)) return false;
        if (e.z.i && !ein__is_dense(&ctx->value[e.z.i].shape, &ctx->plan.layout[e.z.i]))
            return false;
        step->conv.bias = e.bias;
        step->conv.z = e.z;
        step->conv.relu = e.relu;
    }
    step->ps = ein__cost_conv(ctx, &step->conv, step->kind == EIN__K_CONV_DATA);
    step->key = ein__conv_key(ctx, &step->conv, step->kind == EIN__K_CONV_DATA);
    step->workspace = ein__conv_workspace(ctx, &step->conv, step->out);
    return true;
}

static void ein__make_step(ein_ctx *ctx, const ein__selector *sel, ein__val v) {
    ein__step step = {.kind = sel->kind[v.i], .out = v, .name = ctx->value[v.i].name};
    for (ptrdiff_t i = 0; i < arrlen(sel->order); i++)
        if (sel->home[sel->order[i].i].i == v.i && step.nval < 8)
            step.val[step.nval++] = sel->order[i];
    bool library =
        step.kind == EIN__K_CONV || step.kind == EIN__K_CONV_DATA || step.kind == EIN__K_GEMM;
    if (library && !ein__library_step(ctx, &step)) {
        step.kind = ein__kernel_kind(ctx, ein__scope_of(ctx, step.val[0]));
        step.workspace = 0;
        library = false;
    }
    if (step.kind == EIN__K_MAP &&
        ein__is_transpose(ctx, ein__scope_of(ctx, v), ctx->plan.layout[v.i].stride))
        step.kind = EIN__K_TRANSPOSE;
    int64_t ps;
    if (!library) step.ps = ein__cost_step(ctx, &step);
    else step.measured = ein__measured(ctx, step.key, &ps);
    if (ctx->value[v.i].weight_only &&
        ctx->plan.buffer[ctx->plan.layout[v.i].buffer].kind == EIN__B_CONST) {
        arrput(ctx->plan.init, step);
    } else {
        arrput(ctx->plan.step, step);
    }
}

// ------------------------------------------------------------------------------------ memory

static void ein__touch(ein_ctx *ctx, ein__val v, int at) {
    ein__buffer *b = &ctx->plan.buffer[ctx->plan.layout[v.i].buffer];
    if (b->first < 0) b->first = at;
    b->last = at;
}

static void ein__liveness(ein_ctx *ctx, const ein__step *steps) {
    for (ptrdiff_t i = 0; i < arrlen(steps); i++) {
        ein__val *reads = ein__step_reads(ctx, &steps[i]);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) ein__touch(ctx, reads[k], (int)i);
        arrfree(reads);
        ein__touch(ctx, steps[i].out, (int)i);
    }
}

static int64_t ein__align(int64_t n) { return (n + 255) & ~(int64_t)255; }

// Lowest offset where `b` overlaps no placed buffer that is alive at the same time. `placed` is
// ordered by offset.
static int64_t ein__fit(const ein__buffer *all, const int *placed, const ein__buffer *b) {
    int64_t at = 0;
    for (ptrdiff_t i = 0; i < arrlen(placed); i++) {
        const ein__buffer *p = &all[placed[i]];
        if (p->last < b->first || b->last < p->first) continue;
        if (at + ein__align(b->bytes) <= p->at) break;
        if (p->at + ein__align(p->bytes) > at) at = p->at + ein__align(p->bytes);
    }
    return at;
}

// Offsets in one arena: largest first, each at the lowest place free during its whole life.
static int64_t ein__arena_offsets(ein_ctx *ctx) {
    ein__buffer *all = ctx->plan.buffer;
    int *todo = NULL, *placed = NULL;
    int64_t total = 0;
    for (ptrdiff_t i = 0; i < arrlen(all); i++)
        if (all[i].kind == EIN__B_ARENA && all[i].first >= 0) arrput(todo, (int)i);
    while (arrlen(todo)) {
        ptrdiff_t best = 0;
        for (ptrdiff_t i = 1; i < arrlen(todo); i++)
            if (all[todo[i]].bytes > all[todo[best]].bytes) best = i;
        int k = todo[best];
        arrdel(todo, best);
        all[k].at = ein__fit(all, placed, &all[k]);
        ptrdiff_t at = 0;
        while (at < arrlen(placed) && all[placed[at]].at <= all[k].at) at++;
        arrins(placed, at, k);
        if (all[k].at + ein__align(all[k].bytes) > total)
            total = all[k].at + ein__align(all[k].bytes);
    }
    arrfree(todo);
    arrfree(placed);
    return total;
}

// Constants that run needs stay; weights that only create reads, and its intermediates, do not.
static void ein__constant_offsets(ein_ctx *ctx, const bool *kept) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        ein__buffer *b = &ctx->plan.buffer[i];
        if (b->kind != EIN__B_WEIGHT && b->kind != EIN__B_CONST) continue;
        if (!kept[i]) b->kind = EIN__B_INIT;
        if (!kept[i] && b->first < 0) continue;
        int64_t *total = kept[i] ? &ctx->plan.const_bytes : &ctx->plan.init_bytes;
        b->at = *total;
        *total += ein__align(b->bytes);
    }
}

static void ein__plan_memory(ein_ctx *ctx) {
    ein__plan *p = &ctx->plan;
    bool *kept = NULL;
    arrsetlen(kept, arrlen(p->buffer) + 1);
    ein__liveness(ctx, p->step);
    for (ptrdiff_t i = 0; i < arrlen(p->buffer); i++) kept[i] = p->buffer[i].first >= 0;
    p->arena_bytes = ein__arena_offsets(ctx);
    ein__liveness(ctx, p->init);
    ein__constant_offsets(ctx, kept);
    arrfree(kept);
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++)
        if (p->step[i].workspace > p->workspace_bytes) p->workspace_bytes = p->step[i].workspace;
    p->workspace_at = p->arena_bytes;
    p->arena_bytes += ein__align(p->workspace_bytes);
}

static void ein__plan_free(ein__plan *p) {
    arrfree(p->step);
    arrfree(p->init);
    arrfree(p->buffer);
    arrfree(p->layout);
    *p = (ein__plan){0};
}

static int64_t ein__plan_cost(const ein__plan *p) {
    int64_t ps = 0;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) ps = ein__cost_sum(ps, p->step[i].ps);
    return ps;
}

// Steps, layouts and memory for the values under `root`, in ctx->plan.
static bool ein__build_plan(ein_ctx *ctx, ein__val *root, int nroot) {
    if (!ein__prepare(ctx, root, nroot)) return false;
    ein__selector sel = {.ctx = ctx};
    ein__select(&sel, root, nroot);
    ein__placer placer = {.ctx = ctx, .sel = &sel};
    ein__place(&placer, root, nroot);
    for (ptrdiff_t i = 0; i < arrlen(sel.order); i++) {
        ein__val v = sel.order[i];
        if (ctx->value[v.i].kind != EIN__V_SCOPE || sel.home[v.i].i != v.i || placer.view[v.i])
            continue;
        ein__make_step(ctx, &sel, v);
    }
    ein__plan_memory(ctx);
    ctx->plan.root = root;
    arrfree(placer.view);
    ein__select_free(&sel);
    return !ctx->status;
}

// The plan of a lowered model: as it stands (the baseline), and derived. The derived one is taken
// when it is cheaper as a whole, so it never costs more under the same table.
EIN__FN bool ein__make_plan(ein_ctx *ctx) {
    int nroot = (int)arrlen(ctx->graph.output);
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    ein__val *derived = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    for (int k = 0; k < nroot; k++) root[k] = ctx->tensor_value[ctx->graph.output[k].tensor];
    if (!ein__own_outputs(ctx, root, nroot) || !ein__fold(ctx, root, nroot)) return false;
    memcpy(derived, root, (size_t)nroot * sizeof *root);
    if (!ein__build_plan(ctx, root, nroot)) return false;
    if (ctx->desc.baseline) return true;
    ein__plan baseline = ctx->plan;
    ctx->plan = (ein__plan){0};
    bool ok = ein__derive(ctx, derived, nroot) && ein__build_plan(ctx, derived, nroot);
    if (ok && ein__plan_cost(&ctx->plan) >= ein__plan_cost(&baseline)) {
        ein__plan_free(&ctx->plan);
        ctx->plan = baseline;
    } else {
        ctx->plan.baseline_ps = ein__plan_cost(&baseline);
        ein__plan_free(&baseline);
    }
    return ok;
}
// plan -> text
/* ---- tmpl.c ---- */
// Template engine. A template is CUDA that compiles as it stands (with sample definitions of its
// placeholders); a placeholder is an identifier `$name`, ended by anything but a letter or digit.
//
//     //@key NAME  meaning      head: declares a placeholder; head lines are not emitted
//     //@if NAME / //@else / //@end   keeps lines when NAME's text is neither empty nor "0"
//     $name;                    alone on its line: any number of lines, at this line's indentation
//
// Logic stays in C: there are no loops and no expressions here.

/* ---- templates.inc ---- */
static const char *const ein__tmpl_band[] = {
    "//@key name    the kernel's name",
    "//@key params  its parameters",
    "//@key RM      rows a thread",
    "//@key RN      columns a thread",
    "//@key KC      terms a step",
    "//@key number  unsigned type that counts blocks",
    "//@key many    whether there is more than one block",
    "//@key index   the batch's position, first row m0 and first column c0 of the tile, from id",
    "//@key terms   terms of the reduction, for one tile",
    "//@key rowA    row of the first operand's element e",
    "//@key termA   term of the first operand's element e",
    "//@key loadA   statements, then as[k][row] = its value",
    "//@key colB    column of the second operand's element e",
    "//@key termB   term of the second operand's element e",
    "//@key loadB   statements, then bs[k][col] = its value",
    "//@key inside  whether (row, col) is an element of the result",
    "//@key store   the result's position, the epilogue, the store",
    "static __global__ void __launch_bounds__(256) $name($params) {",
    "    const int RM = $RM, RN = $RN, KC = $KC;",
    "    __shared__ __align__(16) float as[KC][16 * RM + 4];",
    "    __shared__ __align__(16) float bs[KC][16 * RN + 4];",
    "    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;",
    "    //@if many",
    "    const $number id = blockIdx.x;",
    "    //@end",
    "    $index;",
    "    float acc[RM][RN];",
    "#pragma unroll",
    "    for (int i = 0; i < RM; i++) {",
    "#pragma unroll",
    "        for (int j = 0; j < RN; j++) acc[i][j] = 0.f;",
    "    }",
    "    for (int k0 = 0; k0 < $terms; k0 += KC) {",
    "#pragma unroll",
    "        for (int e = (int)threadIdx.x; e < 16 * RM * KC; e += 256) {",
    "            const int row = $rowA, k = $termA;",
    "            $loadA;",
    "        }",
    "#pragma unroll",
    "        for (int e = (int)threadIdx.x; e < 16 * RN * KC; e += 256) {",
    "            const int col = $colB, k = $termB;",
    "            $loadB;",
    "        }",
    "        __syncthreads();",
    "#pragma unroll",
    "        for (int k = 0; k < KC; k++) {",
    "            float a[RM], b[RN];",
    "#pragma unroll",
    "            for (int i = 0; i < RM; i++) a[i] = as[k][ty * RM + i];",
    "#pragma unroll",
    "            for (int j = 0; j < RN; j++) b[j] = bs[k][tx + 16 * j];",
    "#pragma unroll",
    "            for (int i = 0; i < RM; i++) {",
    "#pragma unroll",
    "                for (int j = 0; j < RN; j++) acc[i][j] += a[i] * b[j];",
    "            }",
    "        }",
    "        __syncthreads();",
    "    }",
    "#pragma unroll",
    "    for (int i = 0; i < RM; i++) {",
    "#pragma unroll",
    "        for (int j = 0; j < RN; j++) {",
    "            const int row = ty * RM + i, col = tx + 16 * j;",
    "            if ($inside) {",
    "                $store;",
    "            }",
    "        }",
    "    }",
    "}",
    0};
static const char *const ein__tmpl_conv[] = {
    "//@key model    prefix of the program's symbols",
    "//@key spatial  spatial axes that descriptors have",
    "//@key rank     $spatial + 2",
    "//@key limit    bytes of workspace a convolution may use",
    "static int conv_tensor($model *m, const char *name, cudnnTensorDescriptor_t *t, int n, int c,",
    "                       const int *axes) {",
    "    int dim[$rank] = {n, c}, stride[$rank];",
    "    for (int i = 0; i < $spatial; i++) dim[2 + i] = axes[i];",
    "    stride[$rank - 1] = 1;",
    "    for (int i = $rank - 1; i > 0; i--) stride[i - 1] = stride[i] * dim[i];",
    "    CUDNN_CALL(m, name, cudnnCreateTensorDescriptor(t));",
    "    CUDNN_CALL(m, name, cudnnSetTensorNdDescriptor(*t, CUDNN_DATA_FLOAT, $rank, dim, stride));",
    "    return 0;",
    "}",
    "",
    "// Descriptors of one convolution. FP32 means FMA arithmetic: no TF32.",
    "static int conv_describe($model *m, conv_call *c, const conv_size *s) {",
    "    const int one[$spatial + 1] = {1, 1, 1};",
    "    int filter[$rank] = {s->transposed \? s->c : s->f, (s->transposed \? s->f : s->c) / s->group};",
    "    for (int i = 0; i < $spatial; i++) filter[2 + i] = s->filter[i];",
    "    int r = conv_tensor(m, s->name, &c->x, s->n, s->c, s->in);",
    "    if (!r) r = conv_tensor(m, s->name, &c->y, s->n, s->f, s->out);",
    "    if (!r && s->fused) r = conv_tensor(m, s->name, &c->bias, 1, s->f, one);",
    "    if (r) return r;",
    "    CUDNN_CALL(m, s->name, cudnnCreateFilterDescriptor(&c->w));",
    "    CUDNN_CALL(",
    "        m, s->name,",
    "        cudnnSetFilterNdDescriptor(c->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, $rank, filter));",
    "    CUDNN_CALL(m, s->name, cudnnCreateConvolutionDescriptor(&c->conv));",
    "    CUDNN_CALL(m, s->name,",
    "               cudnnSetConvolutionNdDescriptor(c->conv, $spatial, s->pad, s->stride, s->dilation,",
    "                                               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));",
    "    CUDNN_CALL(m, s->name, cudnnSetConvolutionGroupCount(c->conv, s->group));",
    "    CUDNN_CALL(m, s->name, cudnnSetConvolutionMathType(c->conv, CUDNN_FMA_MATH));",
    "    if (!s->fused) return 0;",
    "    CUDNN_CALL(m, s->name, cudnnCreateActivationDescriptor(&c->act));",
    "    CUDNN_CALL(m, s->name,",
    "               cudnnSetActivationDescriptor(",
    "                   c->act, s->relu \? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,",
    "                   CUDNN_NOT_PROPAGATE_NAN, 0));",
    "    return 0;",
    "}",
    "",
    "// The library's first choice that fits the workspace and gives the same bits on every run.",
    "static int conv_choose_forward($model *m, conv_call *c, const conv_size *s) {",
    "    cudnnConvolutionFwdAlgoPerf_t p[8];",
    "    int n = 0;",
    "    // An identity activation is only supported with this algorithm.",
    "    int any = !s->fused || s->relu;",
    "    CUDNN_CALL(",
    "        m, s->name,",
    "        cudnnGetConvolutionForwardAlgorithm_v7(m->cudnn, c->x, c->w, c->conv, c->y, 8, &n, p));",
    "    for (int i = 0; i < n; i++) {",
    "        if (p[i].status != CUDNN_STATUS_SUCCESS || p[i].memory > $limit) continue;",
    "        if (p[i].determinism != CUDNN_DETERMINISTIC) continue;",
    "        if (p[i].mathType != CUDNN_FMA_MATH && p[i].mathType != CUDNN_DEFAULT_MATH) continue;",
    "        if (!any && p[i].algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) continue;",
    "        c->algorithm = (int)p[i].algo;",
    "        c->workspace = p[i].memory;",
    "        return 0;",
    "    }",
    "    return fail(m, BAD_CALL, s->name, \"cuDNN has no algorithm for this convolution\");",
    "}",
    "",
    "static int conv_choose_data($model *m, conv_call *c, const conv_size *s) {",
    "    cudnnConvolutionBwdDataAlgoPerf_t p[6];",
    "    int n = 0;",
    "    CUDNN_CALL(",
    "        m, s->name,",
    "        cudnnGetConvolutionBackwardDataAlgorithm_v7(m->cudnn, c->w, c->x, c->conv, c->y, 6, &n, p));",
    "    for (int i = 0; i < n; i++) {",
    "        if (p[i].status != CUDNN_STATUS_SUCCESS || p[i].memory > $limit) continue;",
    "        if (p[i].determinism != CUDNN_DETERMINISTIC) continue;",
    "        if (p[i].mathType != CUDNN_FMA_MATH && p[i].mathType != CUDNN_DEFAULT_MATH) continue;",
    "        c->algorithm = (int)p[i].algo;",
    "        c->workspace = p[i].memory;",
    "        return 0;",
    "    }",
    "    return fail(m, BAD_CALL, s->name, \"cuDNN has no algorithm for this transposed convolution\");",
    "}",
    "",
    "static int conv_open($model *m, conv_call *c, const conv_size *s) {",
    "    int r = conv_describe(m, c, s);",
    "    if (r) return r;",
    "    return s->transposed \? conv_choose_data(m, c, s) : conv_choose_forward(m, c, s);",
    "}",
    "",
    "static void conv_close(conv_call *c) {",
    "    if (c->x) cudnnDestroyTensorDescriptor(c->x);",
    "    if (c->y) cudnnDestroyTensorDescriptor(c->y);",
    "    if (c->bias) cudnnDestroyTensorDescriptor(c->bias);",
    "    if (c->w) cudnnDestroyFilterDescriptor(c->w);",
    "    if (c->conv) cudnnDestroyConvolutionDescriptor(c->conv);",
    "    if (c->act) cudnnDestroyActivationDescriptor(c->act);",
    "}",
    "",
    "// y = x * w, or y = act(x * w + z + bias) when the call is fused; `z` may be NULL.",
    "static int conv_run($model *m, int k, const float *x, const float *w, const float *bias,",
    "                    const float *z, float *y, void *workspace) {",
    "    const float one = 1.f, zero = 0.f;",
    "    const conv_size *s = &conv_sizes[k];",
    "    const conv_call *c = &m->conv[k];",
    "    if (s->transposed)",
    "        CUDNN_CALL(m, s->name,",
    "                   cudnnConvolutionBackwardData(m->cudnn, &one, c->w, w, c->x, x, c->conv,",
    "                                                (cudnnConvolutionBwdDataAlgo_t)c->algorithm,",
    "                                                workspace, c->workspace, &zero, c->y, y));",
    "    else if (s->fused)",
    "        CUDNN_CALL(m, s->name,",
    "                   cudnnConvolutionBiasActivationForward(",
    "                       m->cudnn, &one, c->x, x, c->w, w, c->conv,",
    "                       (cudnnConvolutionFwdAlgo_t)c->algorithm, workspace, c->workspace,",
    "                       z \? &one : &zero, c->y, z \? z : y, c->bias, bias, c->act, c->y, y));",
    "    else",
    "        CUDNN_CALL(m, s->name,",
    "                   cudnnConvolutionForward(m->cudnn, &one, c->x, x, c->w, w, c->conv,",
    "                                           (cudnnConvolutionFwdAlgo_t)c->algorithm, workspace,",
    "                                           c->workspace, &zero, c->y, y));",
    "    return 0;",
    "}",
    0};
static const char *const ein__tmpl_conv_types[] = {
    "//@key spatial  the most spatial axes of any convolution, at least 2",
    "// One convolution: sizes, and what cuDNN needs to run it. Axes are padded with 1 in front.",
    "typedef struct conv_size {",
    "    const char *name;",
    "    int transposed, n, c, f, group;",
    "    int in[$spatial], out[$spatial], filter[$spatial];",
    "    int pad[$spatial], stride[$spatial], dilation[$spatial];",
    "    int fused, relu;  // bias (and residual) added, then relu, by the library",
    "} conv_size;",
    "",
    "typedef struct conv_call {",
    "    cudnnTensorDescriptor_t x, y, bias;",
    "    cudnnFilterDescriptor_t w;",
    "    cudnnConvolutionDescriptor_t conv;",
    "    cudnnActivationDescriptor_t act;",
    "    int algorithm;",
    "    size_t workspace;",
    "} conv_call;",
    0};
static const char *const ein__tmpl_create[] = {
    "//@key model     prefix of the program's symbols",
    "//@key MODEL     the same in upper case",
    "//@key conv      the program calls cuDNN",
    "//@key convs     how many convolutions",
    "//@key gemm      the program calls cuBLAS",
    "//@key zeros     bytes of zeros at the end of the constants, 0: none",
    "//@key consts    bytes of the constants, 0: none",
    "//@key init      bytes that only create needs, 0: none",
    "//@key uploads   there are weights",
    "//@key manifest  hash of their names, types and shapes",
    "//@key kernel    a kernel of the program, to ask what it was compiled for; empty: none",
    "static int check_weights($model *m, const void *weights, size_t bytes) {",
    "    const unsigned char *p = (const unsigned char *)weights;",
    "    unsigned long long manifest = 0;",
    "    if (!weights) return fail(m, BAD_WEIGHTS, \"weights\", \"NULL was given\");",
    "    if (bytes != $MODEL_WEIGHT_BYTES)",
    "        return fail(m, BAD_WEIGHTS, \"weights\", \"the blob has another size than this model's\");",
    "    if (memcmp(p, \"EINWGHT1\", 8))",
    "        return fail(m, BAD_WEIGHTS, \"weights\", \"this is not a weight blob (einnet pack makes one)\");",
    "    for (int i = 7; i >= 0; i--) manifest = manifest << 8 | p[16 + i];",
    "    if (p[8] != 1) return fail(m, BAD_WEIGHTS, \"weights\", \"the blob has another format version\");",
    "    if (manifest != $manifest)",
    "        return fail(m, BAD_WEIGHTS, \"weights\", \"the blob belongs to another model (manifest hash)\");",
    "    return 0;",
    "}",
    "",
    "static int check_device($model *m) {",
    "    int count = 0, device = 0;",
    "    cudaError_t e = cudaGetDeviceCount(&count);",
    "    if (e != cudaSuccess || count < 1)",
    "        return fail(m, BAD_DEVICE, \"no CUDA device\",",
    "                    e != cudaSuccess \? cudaGetErrorString(e) : \"none is visible\");",
    "    CUDA_CALL(m, \"cudaGetDevice\", cudaGetDevice(&device));",
    "    //@if kernel",
    "    cudaFuncAttributes a;",
    "    e = cudaFuncGetAttributes(&a, (const void *)$kernel);",
    "    if (e != cudaSuccess) {",
    "        (void)cudaGetLastError();",
    "        return fail(m, BAD_DEVICE, \"the kernels were compiled for another GPU (nvcc -arch=...)\",",
    "                    cudaGetErrorString(e));",
    "    }",
    "    //@end",
    "    //@if conv",
    "    size_t version = cudnnGetVersion(), major = version >= 90000 \? version / 10000 : version / 1000;",
    "    if (major != CUDNN_MAJOR)",
    "        return fail(m, BAD_DEVICE, \"cuDNN\",",
    "                    \"the library's major version is not the one compiled against\");",
    "    //@end",
    "    return 0;",
    "}",
    "",
    "static int upload($model *m, const unsigned char *blob, cudaStream_t stream) {",
    "    //@if consts",
    "    CUDA_CALL(m, \"constants\", cudaMalloc((void **)&m->constants, $consts));",
    "    //@end",
    "    //@if init",
    "    CUDA_CALL(m, \"weights\", cudaMalloc((void **)&m->init, $init));",
    "    //@end",
    "    //@if zeros",
    "    CUDA_CALL(m, \"zeros\", cudaMemsetAsync(m->constants + $consts - $zeros, 0, $zeros, stream));",
    "    //@end",
    "    //@if uploads",
    "    for (size_t i = 0; i < sizeof uploads / sizeof *uploads; i++) {",
    "        char *to = uploads[i].kept \? m->constants : m->init;",
    "        CUDA_CALL(m, \"weights\",",
    "                  cudaMemcpyAsync(to + uploads[i].to, blob + uploads[i].from, uploads[i].bytes,",
    "                                  cudaMemcpyHostToDevice, stream));",
    "    }",
    "    //@end",
    "    (void)m;",
    "    (void)blob;",
    "    (void)stream;",
    "    return 0;",
    "}",
    "",
    "static int open_libraries($model *m) {",
    "    //@if conv",
    "    CUDNN_CALL(m, \"cudnnCreate\", cudnnCreate(&m->cudnn));",
    "    for (int i = 0; i < $convs; i++) {",
    "        int r = conv_open(m, &m->conv[i], &conv_sizes[i]);",
    "        if (r) return r;",
    "    }",
    "    //@end",
    "    //@if gemm",
    "    CUBLAS_CALL(m, \"cublasCreate\", cublasCreate(&m->cublas));",
    "    //@end",
    "    (void)m;",
    "    return 0;",
    "}",
    "",
    "static int create_all($model *m, const void *weights, const $model_options *o) {",
    "    cudaStream_t stream = NULL;",
    "    int r = open_libraries(m);",
    "    if (r) return r;",
    "    if (o && o->arena) {",
    "        m->arena = (char *)o->arena;",
    "        if ((size_t)m->arena % 256)",
    "            return fail(m, BAD_ARGUMENT, \"arena\", \"it is not 256-byte aligned\");",
    "    } else if ($MODEL_ARENA_BYTES) {",
    "        CUDA_CALL(m, \"arena\", cudaMalloc((void **)&m->arena, $MODEL_ARENA_BYTES));",
    "        m->own_arena = 1;",
    "    }",
    "    CUDA_CALL(m, \"stream\", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));",
    "    r = upload(m, (const unsigned char *)weights, stream);",
    "    if (!r) r = prepare_weights(m, stream);",
    "    cudaError_t e = cudaStreamSynchronize(stream);",
    "    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, \"weights\", cudaGetErrorString(e));",
    "    e = cudaStreamDestroy(stream);",
    "    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, \"stream\", cudaGetErrorString(e));",
    "    if (m->init) {",
    "        e = cudaFree(m->init);",
    "        m->init = NULL;",
    "        if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, \"weights\", cudaGetErrorString(e));",
    "    }",
    "    return r;",
    "}",
    "",
    "int $model_create($model **out, const void *weights, size_t bytes, const $model_options *o) {",
    "    if (!out) return BAD_ARGUMENT;",
    "    $model *m = *out = ($model *)calloc(1, sizeof *m);",
    "    if (!m) return BAD_CALL;",
    "    int r = check_weights(m, weights, bytes);",
    "    if (!r) r = check_device(m);",
    "    if (!r) r = create_all(m, weights, o);",
    "    m->ready = !r;",
    "    return r;",
    "}",
    0};
static const char *const ein__tmpl_destroy[] = {
    "//@key model  prefix of the program's symbols",
    "//@key conv   the program calls cuDNN",
    "//@key convs  how many convolutions",
    "//@key gemm   the program calls cuBLAS",
    "void $model_destroy($model *m) {",
    "    if (!m) return;",
    "    if (m->graph) cudaGraphExecDestroy(m->graph);",
    "    //@if conv",
    "    for (int i = 0; i < $convs; i++) conv_close(&m->conv[i]);",
    "    if (m->cudnn) cudnnDestroy(m->cudnn);",
    "    //@end",
    "    //@if gemm",
    "    if (m->cublas) cublasDestroy(m->cublas);",
    "    //@end",
    "    if (m->init) cudaFree(m->init);",
    "    if (m->constants) cudaFree(m->constants);",
    "    if (m->own_arena) cudaFree(m->arena);",
    "    free(m);",
    "}",
    "",
    "const char *$model_error(const $model *m) {",
    "    return m \? m->error : \"there is no handle: host memory is exhausted\";",
    "}",
    0};
static const char *const ein__tmpl_gemm[] = {
    "//@key model  prefix of the program's symbols",
    "// `batch` times c[m,n] = alpha * a[m,k] * b[k,n], row-major; ta, tb: the operand is stored",
    "// transposed. The library is column-major and computes the transposed product. s*: strides between",
    "// matrices.",
    "typedef struct gemm_size {",
    "    const char *name;",
    "    int ta, tb, batch, m, n, k, lda, ldb, ldc;",
    "    long long sa, sb, sc;",
    "    float alpha;",
    "} gemm_size;",
    "",
    "static int gemm_run($model *h, const gemm_size *g, const float *a, const float *b, float *c) {",
    "    const float zero = 0.f;",
    "    cublasOperation_t ta = g->ta \? CUBLAS_OP_T : CUBLAS_OP_N,",
    "                      tb = g->tb \? CUBLAS_OP_T : CUBLAS_OP_N;",
    "    if (g->batch == 1)",
    "        CUBLAS_CALL(h, g->name,",
    "                    cublasSgemm(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->ldb, a,",
    "                                g->lda, &zero, c, g->ldc));",
    "    else",
    "        CUBLAS_CALL(",
    "            h, g->name,",
    "            cublasSgemmStridedBatched(h->cublas, tb, ta, g->n, g->m, g->k, &g->alpha, b, g->ldb,",
    "                                      g->sb, a, g->lda, g->sa, &zero, c, g->ldc, g->sc, g->batch));",
    "    return 0;",
    "}",
    0};
static const char *const ein__tmpl_interface[] = {
    "//@key model  prefix of the program's symbols",
    "//@key MODEL  the same in upper case",
    "//@key arena  bytes of the arena",
    "//@key weights  bytes of the weight blob",
    "#define $MODEL_ARENA_BYTES $arena",
    "#define $MODEL_WEIGHT_BYTES $weights",
    "",
    "#ifdef __cplusplus",
    "extern \"C\" {",
    "#endif",
    "",
    "typedef struct $model $model;",
    "",
    "typedef struct $model_options {",
    "    // Device memory of $MODEL_ARENA_BYTES, 256-byte aligned. NULL: create allocates it.",
    "    void *arena;",
    "} $model_options;",
    "",
    "typedef struct $model_tensor {",
    "    const char *name, *dtype;",
    "    int rank;",
    "    long long dims[10];",
    "    size_t bytes;   // dense, row-major",
    "    size_t offset;  // weights: in the blob",
    "} $model_tensor;",
    "",
    "typedef struct $model_info {",
    "    const char *model;",
    "    int inputs, outputs, weights;",
    "    const $model_tensor *input, *output, *weight;",
    "    size_t arena_bytes, weight_bytes, const_bytes, peak_bytes;",
    "    unsigned long long manifest;  // hash of the weights' names, types and shapes",
    "} $model_info;",
    "",
    "// All return 0, or another number with the reason in $model_error.",
    "// `weights` is the blob written by `einnet pack`, in host memory, and is not kept; `o` may be NULL.",
    "// A failed create leaves a handle that only error and destroy accept (NULL: no host memory).",
    "int $model_create($model **m, const void *weights, size_t bytes, const $model_options *o);",
    "// `in` and `out`: device pointers in declared order, 16-byte aligned. Runs on `stream`, allocates",
    "// nothing, never synchronises. One thread at a time per handle.",
    "int $model_run($model *m, const void *const *in, void *const *out, cudaStream_t stream);",
    "// Records a CUDA graph; run replays it whenever it is given the same addresses. Writes to `out`.",
    "int $model_capture($model *m, const void *const *in, void *const *out);",
    "void $model_destroy($model *m);",
    "const char *$model_error(const $model *m);",
    "const $model_info *$model_describe(void);",
    "",
    "#ifdef __cplusplus",
    "}",
    "#endif",
    0};
static const char *const ein__tmpl_map[] = {
    "//@key name     the kernel's name",
    "//@key params   its parameters",
    "//@key block    threads a block",
    "//@key number   unsigned type that counts all threads",
    "//@key threads  threads with work",
    "//@key index    this thread's position",
    "//@key body     loads, the expression, the store",
    "static __global__ void __launch_bounds__($block) $name($params) {",
    "    const $number id = ($number)blockIdx.x * $block + threadIdx.x;",
    "    if (id >= $threads) return;",
    "    $index;",
    "    $body;",
    "}",
    0};
static const char *const ein__tmpl_naive[] = {
    "//@key name     the kernel's name",
    "//@key params   its parameters",
    "//@key number   type of positions",
    "//@key threads  output elements",
    "//@key index    this thread's position",
    "//@key body     loads, loops, the store",
    "static __global__ void __launch_bounds__(256) $name($params) {",
    "    const $number id = ($number)blockIdx.x * 256 + threadIdx.x;",
    "    if (id >= $threads) return;",
    "    $index;",
    "    $body;",
    "}",
    0};
static const char *const ein__tmpl_reduce_block[] = {
    "//@key name      the kernel's name",
    "//@key params    its parameters",
    "//@key number    unsigned type that counts everything",
    "//@key outputs   output elements: blocks",
    "//@key index     the output's position, from id",
    "//@key before    statements that need no term",
    "//@key identity  of the reduction",
    "//@key count     terms of the reduction",
    "//@key terms     one term, from k: the position, loads, acc",
    "//@key after     statements of the epilogue",
    "//@key store     the store",
    "//@key op        the reduction",
    "static __global__ void __launch_bounds__(256) $name($params) {  // $outputs blocks",
    "    __shared__ float part[8];",
    "    //@if index",
    "    const $number id = blockIdx.x;",
    "    $index;",
    "    //@end",
    "    $before;",
    "    float acc = $identity;",
    "#pragma unroll 4",
    "    for ($number k = threadIdx.x; k < $count; k += 256u) {",
    "        $terms;",
    "    }",
    "    acc = block_$op(acc, part);",
    "    if (threadIdx.x == 0u) {",
    "        $after;",
    "        $store;",
    "    }",
    "}",
    0};
static const char *const ein__tmpl_reduce_column[] = {
    "//@key name      the kernel's name",
    "//@key params    its parameters",
    "//@key number    unsigned type that counts everything",
    "//@key outputs   output elements",
    "//@key index     the output's position, from id",
    "//@key before    statements that need no term",
    "//@key identity  of the reduction",
    "//@key count     terms of the reduction",
    "//@key terms     one term, from k: the position, loads, acc",
    "//@key after     statements of the epilogue",
    "//@key store     the store",
    "//@key join      acc combined with row j's",
    "static __global__ void __launch_bounds__(256) $name($params) {",
    "    __shared__ float part[8][32];",
    "    const $number column = ($number)blockIdx.x * 32u + threadIdx.x;",
    "    //@if index",
    "    const $number id = column < $outputs \? column : $outputs - 1u;  // all load, some do not store",
    "    $index;",
    "    //@end",
    "    $before;",
    "    float acc = $identity;",
    "#pragma unroll 4",
    "    for ($number k = threadIdx.y; k < $count; k += 8u) {",
    "        $terms;",
    "    }",
    "    part[threadIdx.y][threadIdx.x] = acc;",
    "    __syncthreads();",
    "    if (threadIdx.y == 0u && column < $outputs) {",
    "#pragma unroll",
    "        for (int j = 1; j < 8; j++) {",
    "            $join;",
    "        }",
    "        $after;",
    "        $store;",
    "    }",
    "}",
    0};
static const char *const ein__tmpl_reduce_warp[] = {
    "//@key name      the kernel's name",
    "//@key params    its parameters",
    "//@key number    unsigned type that counts everything",
    "//@key outputs   output elements",
    "//@key block     threads a block",
    "//@key index     the output's position, from id",
    "//@key before    statements that need no term",
    "//@key identity  of the reduction",
    "//@key count     terms of the reduction",
    "//@key terms     one term, from k: the position, loads, acc",
    "//@key after     statements of the epilogue",
    "//@key store     the store",
    "//@key op        the reduction",
    "//@key warps     warps a block, each for one output",
    "static __global__ void __launch_bounds__($block) $name($params) {",
    "    const unsigned lane = threadIdx.x % 32u;",
    "    const $number id = ($number)blockIdx.x * $warps + threadIdx.x / 32u;",
    "    if (id >= $outputs) return;",
    "    $index;",
    "    $before;",
    "    float acc = $identity;",
    "#pragma unroll 4",
    "    for ($number k = lane; k < $count; k += 32u) {",
    "        $terms;",
    "    }",
    "    acc = warp_$op(acc);",
    "    if (lane == 0u) {",
    "        $after;",
    "        $store;",
    "    }",
    "}",
    0};
static const char *const ein__tmpl_relay[] = {
    "//@key name    the kernel's name",
    "//@key params  its parameters",
    "// A tensor known at load, in another order: element (i0, i1, ..) goes from base + sum from[k] * ik",
    "// to sum to[k] * ik.",
    "struct relay {",
    "    int rank;",
    "    long long base, n[6], from[6], to[6];",
    "};",
    "",
    "static __global__ void __launch_bounds__(256) $name($params, const relay r) {",
    "    long long id = (long long)blockIdx.x * 256 + threadIdx.x, from = r.base, to = 0;",
    "    for (int k = r.rank - 1; k >= 0; k--) {",
    "        from += id % r.n[k] * r.from[k];",
    "        to += id % r.n[k] * r.to[k];",
    "        id /= r.n[k];",
    "    }",
    "    if (id == 0) y[to] = p0[from];",
    "}",
    0};
static const char *const ein__tmpl_row_block[] = {
    "//@key name    the kernel's name",
    "//@key params  its parameters",
    "//@key number  unsigned type that counts everything",
    "//@key rows    rows: blocks",
    "//@key parts   reductions",
    "//@key index   the row's position, from id",
    "//@key phases  one pass over the row for each reduction, then the maps",
    "static __global__ void __launch_bounds__(256) $name($params) {  // $rows blocks",
    "    __shared__ float part[$parts][8];",
    "    const unsigned lane = threadIdx.x;",
    "    //@if index",
    "    const $number id = blockIdx.x;",
    "    $index;",
    "    //@end",
    "    $phases;",
    "}",
    0};
static const char *const ein__tmpl_row_warp[] = {
    "//@key name    the kernel's name",
    "//@key params  its parameters",
    "//@key number  unsigned type that counts everything",
    "//@key rows    rows",
    "//@key warps   warps a block, each for one row",
    "//@key block   threads a block",
    "//@key index   the row's position, from id",
    "//@key phases  one pass over the row for each reduction, then the maps",
    "static __global__ void __launch_bounds__($block) $name($params) {",
    "    const unsigned lane = threadIdx.x % 32u;",
    "    const $number id = ($number)blockIdx.x * $warps + threadIdx.x / 32u;",
    "    if (id >= $rows) return;",
    "    $index;",
    "    $phases;",
    "}",
    0};
static const char *const ein__tmpl_run[] = {
    "//@key model  prefix of the program's symbols",
    "//@key conv   the program calls cuDNN",
    "//@key gemm   the program calls cuBLAS",
    "//@key nin    inputs",
    "//@key nout   outputs",
    "//@key workspace       bytes of the workspace",
    "//@key workspaceat     where it is in the arena",
    "static int check_run($model *m, const void *const *in, void *const *out) {",
    "    if (!m) return BAD_ARGUMENT;",
    "    if (!m->ready) return fail(m, BAD_ARGUMENT, \"run\", \"create did not succeed\");",
    "    m->error[0] = 0;",
    "    if (!in || !out) return fail(m, BAD_ARGUMENT, \"run\", \"no list of tensors was given\");",
    "    for (int i = 0; i < $nin; i++)",
    "        if (!in[i] || (size_t)in[i] % 16)",
    "            return fail(m, BAD_ARGUMENT, $model_describe()->input[i].name,",
    "                        \"the pointer is NULL or not 16-byte aligned\");",
    "    for (int i = 0; i < $nout; i++)",
    "        if (!out[i] || (size_t)out[i] % 16)",
    "            return fail(m, BAD_ARGUMENT, $model_describe()->output[i].name,",
    "                        \"the pointer is NULL or not 16-byte aligned\");",
    "    return 0;",
    "}",
    "",
    "static int run_on($model *m, const void *const *in, void *const *out, cudaStream_t stream) {",
    "    //@if conv",
    "    CUDNN_CALL(m, \"cudnnSetStream\", cudnnSetStream(m->cudnn, stream));",
    "    //@end",
    "    //@if gemm",
    "    // Setting the stream takes the workspace away, so it is given again.",
    "    CUBLAS_CALL(m, \"cublasSetStream\", cublasSetStream(m->cublas, stream));",
    "    CUBLAS_CALL(m, \"cublasSetWorkspace\",",
    "                cublasSetWorkspace(m->cublas, m->arena + $workspaceat, $workspace));",
    "    //@end",
    "    return steps(m, in, out, stream);",
    "}",
    "",
    "static int same_addresses(const $model *m, const void *const *in, void *const *out) {",
    "    for (int i = 0; i < $nin; i++)",
    "        if (m->graph_in[i] != in[i]) return 0;",
    "    for (int i = 0; i < $nout; i++)",
    "        if (m->graph_out[i] != out[i]) return 0;",
    "    return 1;",
    "}",
    "",
    "int $model_run($model *m, const void *const *in, void *const *out, cudaStream_t stream) {",
    "    int r = check_run(m, in, out);",
    "    if (r) return r;",
    "    if (m->graph && same_addresses(m, in, out)) {",
    "        cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;",
    "        CUDA_CALL(m, \"run\", cudaStreamIsCapturing(stream, &capturing));",
    "        if (capturing == cudaStreamCaptureStatusNone) {",
    "            CUDA_CALL(m, \"run\", cudaGraphLaunch(m->graph, stream));",
    "            return 0;",
    "        }",
    "    }",
    "    return run_on(m, in, out, stream);",
    "}",
    "",
    "static int record($model *m, const void *const *in, void *const *out, cudaStream_t stream) {",
    "    cudaGraph_t graph = NULL;",
    "    // Once before recording: libraries load their code at the first call.",
    "    int r = run_on(m, in, out, stream);",
    "    if (r) return r;",
    "    CUDA_CALL(m, \"capture\", cudaStreamSynchronize(stream));",
    "    CUDA_CALL(m, \"capture\", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));",
    "    r = run_on(m, in, out, stream);",
    "    cudaError_t e = cudaStreamEndCapture(stream, &graph);",
    "    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, \"capture\", cudaGetErrorString(e));",
    "    if (!r) {",
    "#if CUDART_VERSION >= 12000",
    "        e = cudaGraphInstantiate(&m->graph, graph, 0);",
    "#else",
    "        e = cudaGraphInstantiate(&m->graph, graph, NULL, NULL, 0);",
    "#endif",
    "        if (e != cudaSuccess) {",
    "            m->graph = NULL;",
    "            r = fail(m, BAD_CALL, \"capture\", cudaGetErrorString(e));",
    "        }",
    "    }",
    "    if (graph) cudaGraphDestroy(graph);",
    "    return r;",
    "}",
    "",
    "int $model_capture($model *m, const void *const *in, void *const *out) {",
    "    cudaStream_t stream = NULL;",
    "    int r = check_run(m, in, out);",
    "    if (r) return r;",
    "    if (m->graph) {",
    "        cudaGraphExec_t old = m->graph;",
    "        m->graph = NULL;",
    "        CUDA_CALL(m, \"capture\", cudaGraphExecDestroy(old));",
    "    }",
    "    CUDA_CALL(m, \"capture\", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));",
    "    r = record(m, in, out, stream);",
    "    cudaError_t e = cudaStreamDestroy(stream);",
    "    if (!r && e != cudaSuccess) r = fail(m, BAD_CALL, \"capture\", cudaGetErrorString(e));",
    "    for (int i = 0; i < $nin; i++) m->graph_in[i] = in[i];",
    "    for (int i = 0; i < $nout; i++) m->graph_out[i] = out[i];",
    "    return r;",
    "}",
    0};
static const char *const ein__tmpl_state[] = {
    "//@key model  prefix of the program's symbols",
    "//@key conv   the program calls cuDNN",
    "//@key convs  how many convolutions",
    "//@key gemm   the program calls cuBLAS",
    "//@key nin    inputs",
    "//@key nout   outputs",
    "struct $model {",
    "    int ready;  // create went through",
    "    char error[256];",
    "    char *arena;  // activations and workspace",
    "    int own_arena;",
    "    char *constants;        // weights that run reads, and what create made of them",
    "    char *init;             // only while create runs",
    "    cudaGraphExec_t graph;  // recorded by capture for these addresses",
    "    const void *graph_in[$nin];",
    "    void *graph_out[$nout];",
    "    //@if conv",
    "    cudnnHandle_t cudnn;",
    "    conv_call conv[$convs];",
    "    //@end",
    "    //@if gemm",
    "    cublasHandle_t cublas;",
    "    //@end",
    "};",
    "",
    "enum { BAD_ARGUMENT = 1, BAD_WEIGHTS = 2, BAD_DEVICE = 3, BAD_CALL = 4 };",
    "",
    "static int fail($model *m, int code, const char *where, const char *why) {",
    "    // The first reason is the one that counts.",
    "    if (!m->error[0]) snprintf(m->error, sizeof m->error, \"%s: %s\", where, why);",
    "    return code;",
    "}",
    "",
    "#define CUDA_CALL(m, where, call)                                                       \\",
    "    do {                                                                                \\",
    "        cudaError_t e_ = (call);                                                        \\",
    "        if (e_ != cudaSuccess) return fail(m, BAD_CALL, where, cudaGetErrorString(e_)); \\",
    "    } while (0)",
    "#define CALL(call)         \\",
    "    do {                   \\",
    "        int r_ = (call);   \\",
    "        if (r_) return r_; \\",
    "    } while (0)",
    "#define LAUNCHED(m, where) CUDA_CALL(m, where, cudaGetLastError())",
    "//@if conv",
    "",
    "#define CUDNN_CALL(m, where, call)                                                                \\",
    "    do {                                                                                          \\",
    "        cudnnStatus_t e_ = (call);                                                                \\",
    "        if (e_ != CUDNN_STATUS_SUCCESS) return fail(m, BAD_CALL, where, cudnnGetErrorString(e_)); \\",
    "    } while (0)",
    "//@end",
    "//@if gemm",
    "",
    "static const char *cublas_reason(cublasStatus_t s) {",
    "    switch (s) {",
    "    case CUBLAS_STATUS_NOT_INITIALIZED: return \"cuBLAS is not initialised\";",
    "    case CUBLAS_STATUS_ALLOC_FAILED: return \"cuBLAS could not allocate\";",
    "    case CUBLAS_STATUS_INVALID_VALUE: return \"cuBLAS refused an argument\";",
    "    case CUBLAS_STATUS_ARCH_MISMATCH: return \"cuBLAS does not support this device\";",
    "    case CUBLAS_STATUS_EXECUTION_FAILED: return \"cuBLAS could not launch\";",
    "    default: return \"cuBLAS failed\";",
    "    }",
    "}",
    "",
    "#define CUBLAS_CALL(m, where, call)                                                          \\",
    "    do {                                                                                     \\",
    "        cublasStatus_t e_ = (call);                                                          \\",
    "        if (e_ != CUBLAS_STATUS_SUCCESS) return fail(m, BAD_CALL, where, cublas_reason(e_)); \\",
    "    } while (0)",
    "//@end",
    0};
static const char *const ein__tmpl_test_base[] = {
    "//@key model      prefix of the program's symbols",
    "//@key inputs     how many there are",
    "//@key outputs    how many there are",
    "//@key tolerance  relative L2 error allowed",
    "//@key conv       the program calls cuDNN",
    "//@key gemm       the program calls cuBLAS",
    "// The program under test, under names that do not change from model to model.",
    "typedef ::$model network;",
    "typedef ::$model_tensor tensor;",
    "typedef ::$model_info network_info;",
    "typedef ::$model_options network_options;",
    "",
    "static int network_create(network **m, const void *weights, size_t n, const network_options *o) {",
    "    return ::$model_create(m, weights, n, o);",
    "}",
    "static int network_run(network *m, const void *const *in, void *const *out, cudaStream_t stream) {",
    "    return ::$model_run(m, in, out, stream);",
    "}",
    "static int network_capture(network *m, const void *const *in, void *const *out) {",
    "    return ::$model_capture(m, in, out);",
    "}",
    "static void network_destroy(network *m) { ::$model_destroy(m); }",
    "static const char *network_error(const network *m) { return ::$model_error(m); }",
    "static const network_info *network_describe() { return ::$model_describe(); }",
    "",
    "// Library versions, 0 where the program does not use the library.",
    "static size_t cudnn_version() {",
    "    //@if conv",
    "    return cudnnGetVersion();",
    "    //@else",
    "    return 0;",
    "    //@end",
    "}",
    "",
    "static int cublas_version() {",
    "    int version = 0;",
    "    //@if gemm",
    "    cublasHandle_t handle;",
    "    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return -1;",
    "    cublasStatus_t status = cublasGetVersion(handle, &version);",
    "    if (cublasDestroy(handle) != CUBLAS_STATUS_SUCCESS) status = CUBLAS_STATUS_INTERNAL_ERROR;",
    "    if (status != CUBLAS_STATUS_SUCCESS) return -1;",
    "    //@end",
    "    return version;",
    "}",
    "",
    "enum { INPUTS = $inputs, OUTPUTS = $outputs };",
    "enum { MATCHES = 0, DIFFERS = 1, USAGE = 2, BAD_FILE = 3, FAILED = 5, NO_DEVICE = 77 };",
    "static const double TOLERANCE = $tolerance;",
    "",
    "static int fail(int code, const char *what, const char *why) {",
    "    fprintf(stderr, \"%s: %s: %s\\n\", network_describe()->model, what, why);",
    "    return code;",
    "}",
    "",
    "#define CALL(call)                                                                 \\",
    "    do {                                                                           \\",
    "        cudaError_t e_ = (call);                                                   \\",
    "        if (e_ != cudaSuccess) return fail(FAILED, #call, cudaGetErrorString(e_)); \\",
    "    } while (0)",
    "",
    "#define TRY(call)                \\",
    "    do {                         \\",
    "        int code_ = (call);      \\",
    "        if (code_) return code_; \\",
    "    } while (0)",
    "",
    "// Everything a run of this program owns; `release` gives it back whatever was reached.",
    "struct test {",
    "    const char *weights_file, *out_dir, *in_file[INPUTS + 1];",
    "    bool check, bench;",
    "    double bench_ms, tolerance;",
    "    const network_info *info;",
    "    FILE *report;  // stdout, unless that is for the figures of --bench",
    "    unsigned char *weights;",
    "    size_t weight_bytes;",
    "    network *model;",
    "    cudaStream_t stream;",
    "    void *arena;",
    "    void *in[INPUTS + 1], *out[OUTPUTS + 1];  // on the device",
    "    void *result[OUTPUTS + 1];                // of the first run, on the host",
    "    double error;                             // the largest relative L2 error seen",
    "};",
    "",
    "static int device_alloc(void **p, size_t bytes) {",
    "    char what[64];",
    "    cudaError_t e = cudaMalloc(p, bytes);",
    "    if (e == cudaSuccess) return 0;",
    "    *p = NULL;",
    "    snprintf(what, sizeof what, \"%zu bytes of device memory\", bytes);",
    "    return fail(FAILED, what, cudaGetErrorString(e));",
    "}",
    "",
    "static int device_free(void **p) {",
    "    void *old = *p;",
    "    *p = NULL;",
    "    if (old) CALL(cudaFree(old));",
    "    return 0;",
    "}",
    "",
    "static int host_alloc(void **p, size_t bytes) {",
    "    *p = malloc(bytes \? bytes : 1);",
    "    return *p \? 0 : fail(FAILED, \"host memory\", \"exhausted\");",
    "}",
    "",
    "static int to_device(const test *t, void *to, const void *from, size_t bytes) {",
    "    CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, t->stream));",
    "    CALL(cudaStreamSynchronize(t->stream));",
    "    return 0;",
    "}",
    "",
    "static int to_host(const test *t, void *to, const void *from, size_t bytes) {",
    "    CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, t->stream));",
    "    CALL(cudaStreamSynchronize(t->stream));",
    "    return 0;",
    "}",
    0};
static const char *const ein__tmpl_test_bench[] = {
    "enum { SETS = 8, SAMPLES = 50, FLUSH = 256 << 20 };",
    "",
    "// What --bench owns; `bench_release` gives it back whatever was reached. Each set of inputs has a",
    "// graph of its own, so that rotating them costs nothing on the device.",
    "struct bench {",
    "    int sets, samples, next;",
    "    void *in[SETS][INPUTS + 1];",
    "    cudaGraphExec_t graph[SETS];",
    "    cudaEvent_t start, stop;",
    "    void *flush;     // written between cold replays: larger than any cache",
    "    size_t nodes;    // of a graph; 0: not known",
    "    int replays;     // between two events, warm",
    "    double busy_ms;  // before the first sample",
    "    double sample[SAMPLES];",
    "    char gpu[256];",
    "    int driver, runtime;",
    "};",
    "",
    "struct figures {",
    "    double median, p95, least;",
    "};",
    "",
    "static double now_ms() {",
    "    static time_t first;  // small numbers keep their digits",
    "    timespec t;",
    "    timespec_get(&t, TIME_UTC);",
    "    if (!first) first = t.tv_sec;",
    "    return (double)(t.tv_sec - first) * 1e3 + (double)t.tv_nsec * 1e-6;",
    "}",
    "",
    "static int by_size(const void *a, const void *b) {",
    "    double x = *(const double *)a, y = *(const double *)b;",
    "    return (x > y) - (x < y);",
    "}",
    "",
    "// In microseconds, from samples in milliseconds.",
    "static figures figures_of(bench *b) {",
    "    int n = b->samples;",
    "    qsort(b->sample, (size_t)n, sizeof *b->sample, by_size);",
    "    double middle = (b->sample[(n - 1) / 2] + b->sample[n / 2]) / 2;",
    "    figures f = {middle * 1e3, b->sample[(n * 95 + 99) / 100 - 1] * 1e3, b->sample[0] * 1e3};",
    "    return f;",
    "}",
    "",
    "// As many sets of inputs as fit into half of what is free, the first being the ones already there.",
    "static int bench_inputs(const test *t, bench *b) {",
    "    size_t free_bytes, all, bytes = 0;",
    "    CALL(cudaMemGetInfo(&free_bytes, &all));",
    "    for (int j = 0; j < INPUTS; j++) bytes += t->info->input[j].bytes + 512;",
    "    free_bytes = free_bytes > FLUSH \? (free_bytes - FLUSH) / 2 : 0;",
    "    b->sets = 1;",
    "    while (bytes && b->sets < SETS && (size_t)b->sets * bytes < free_bytes) b->sets++;",
    "    for (int s = 0; s < b->sets; s++) {",
    "        for (int j = 0; j < INPUTS; j++) {",
    "            const tensor *in = &t->info->input[j];",
    "            void *host;",
    "            b->in[s][j] = t->in[j];",
    "            if (!s) continue;",
    "            b->in[s][j] = NULL;",
    "            TRY(device_alloc(&b->in[s][j], in->bytes));",
    "            TRY(host_alloc(&host, in->bytes));",
    "            seeded(in, 7001 + (unsigned long long)j + 1000 * (unsigned long long)s, host);",
    "            int code = to_device(t, b->in[s][j], host, in->bytes);",
    "            free(host);",
    "            if (code) return code;",
    "        }",
    "    }",
    "    return 0;",
    "}",
    "",
    "static int bench_graph(const test *t, bench *b, int s) {",
    "    cudaGraph_t graph = NULL;",
    "    CALL(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));",
    "    int code = network_run(t->model, b->in[s], t->out, t->stream);",
    "    if (code) code = fail(FAILED, \"run\", network_error(t->model));",
    "    cudaError_t e = cudaStreamEndCapture(t->stream, &graph);",
    "    if (!code && e == cudaSuccess) {",
    "#ifndef EIN_JUDGE",
    "        e = cudaGraphGetNodes(graph, NULL, &b->nodes);",
    "#endif",
    "    }",
    "    if (!code && e == cudaSuccess) {",
    "#if CUDART_VERSION >= 12000",
    "        e = cudaGraphInstantiate(&b->graph[s], graph, 0);",
    "#else",
    "        e = cudaGraphInstantiate(&b->graph[s], graph, NULL, NULL, 0);",
    "#endif",
    "        if (e != cudaSuccess) b->graph[s] = NULL;",
    "    }",
    "    if (graph) {",
    "        cudaError_t destroyed = cudaGraphDestroy(graph);",
    "        if (e == cudaSuccess) e = destroyed;",
    "    }",
    "    if (code) return code;",
    "    return e == cudaSuccess \? 0 : fail(FAILED, \"recording a graph\", cudaGetErrorString(e));",
    "}",
    "",
    "static int bench_open(const test *t, bench *b) {",
    "    cudaDeviceProp prop;",
    "    int device = 0, code = bench_inputs(t, b);",
    "    if (code) return code;",
    "    CALL(cudaGetDevice(&device));",
    "    CALL(cudaGetDeviceProperties(&prop, device));",
    "    snprintf(b->gpu, sizeof b->gpu, \"%s\", prop.name);",
    "    CALL(cudaDriverGetVersion(&b->driver));",
    "    CALL(cudaRuntimeGetVersion(&b->runtime));",
    "    CALL(cudaEventCreate(&b->start));",
    "    CALL(cudaEventCreate(&b->stop));",
    "    for (int s = 0; s < b->sets && !code; s++) code = bench_graph(t, b, s);",
    "    return code \? code : device_alloc(&b->flush, FLUSH);",
    "}",
    "",
    "static int bench_release(bench *b) {",
    "    cudaError_t e = cudaSuccess;",
    "    int code = device_free(&b->flush);",
    "    for (int s = 0; s < SETS; s++) {",
    "        if (b->graph[s] && e == cudaSuccess) e = cudaGraphExecDestroy(b->graph[s]);",
    "        else if (b->graph[s]) cudaGraphExecDestroy(b->graph[s]);",
    "        for (int j = 0; s && j < INPUTS; j++)",
    "            if (device_free(&b->in[s][j])) code = FAILED;",
    "    }",
    "    if (b->start && e == cudaSuccess) e = cudaEventDestroy(b->start);",
    "    else if (b->start) cudaEventDestroy(b->start);",
    "    if (b->stop && e == cudaSuccess) e = cudaEventDestroy(b->stop);",
    "    else if (b->stop) cudaEventDestroy(b->stop);",
    "    if (e != cudaSuccess) code = fail(FAILED, \"release\", cudaGetErrorString(e));",
    "    return code;",
    "}",
    "",
    "static int replay(const test *t, bench *b) {",
    "    CALL(cudaGraphLaunch(b->graph[b->next], t->stream));",
    "    b->next = (b->next + 1) % b->sets;",
    "    return 0;",
    "}",
    "",
    "// Milliseconds a replay, between two events around `n` of them.",
    "static int time_replays(const test *t, bench *b, int n, double *ms) {",
    "    float elapsed = 0;",
    "    CALL(cudaEventRecord(b->start, t->stream));",
    "    for (int i = 0; i < n; i++) TRY(replay(t, b));",
    "    CALL(cudaEventRecord(b->stop, t->stream));",
    "    CALL(cudaEventSynchronize(b->stop));",
    "    CALL(cudaEventElapsedTime(&elapsed, b->start, b->stop));",
    "    *ms = elapsed / n;",
    "    return 0;",
    "}",
    "",
    "// Keeps the device busy until its clocks are up, and finds how many replays last long enough.",
    "static int bench_busy(const test *t, bench *b) {",
    "    double begin = now_ms(), ms;",
    "    bool enough = false;",
    "    b->replays = 1;",
    "    while (!enough || now_ms() - begin < 50 * t->bench_ms) {",
    "        TRY(time_replays(t, b, b->replays, &ms));",
    "        enough = ms * b->replays >= t->bench_ms || b->replays >= 1 << 20;",
    "        if (enough) continue;",
    "        double more = ms > 0 \? t->bench_ms / ms * 1.1 + 1 : 8.0 * b->replays;",
    "        b->replays = more > 8.0 * b->replays \? 8 * b->replays : (int)more;",
    "    }",
    "    b->busy_ms = now_ms() - begin;",
    "    return 0;",
    "}",
    "",
    "static int bench_warm(const test *t, bench *b, figures *f) {",
    "    for (int i = 0; i < b->samples; i++) TRY(time_replays(t, b, b->replays, &b->sample[i]));",
    "    *f = figures_of(b);",
    "    return 0;",
    "}",
    "",
    "static int bench_cold(const test *t, bench *b, figures *f) {",
    "    for (int i = 0; i < b->samples; i++) {",
    "        CALL(cudaMemsetAsync(b->flush, i & 255, FLUSH, t->stream));",
    "        TRY(time_replays(t, b, 1, &b->sample[i]));",
    "    }",
    "    *f = figures_of(b);",
    "    return 0;",
    "}",
    "",
    "// Host time from launch to completion of one run: as a graph, or by its plain calls.",
    "static int bench_latency(const test *t, bench *b, bool graph, figures *f) {",
    "    for (int i = 0; i < b->samples; i++) {",
    "        double begin = now_ms();",
    "        if (graph) TRY(replay(t, b));",
    "        if (!graph && network_run(t->model, b->in[i % b->sets], t->out, t->stream))",
    "            return fail(FAILED, \"run\", network_error(t->model));",
    "        CALL(cudaStreamSynchronize(t->stream));",
    "        b->sample[i] = now_ms() - begin;",
    "    }",
    "    *f = figures_of(b);",
    "    return 0;",
    "}",
    "",
    "static void put_string(const char *name, const char *s) {",
    "    printf(\"\\\"%s\\\": \\\"\", name);",
    "    for (; *s; s++) {",
    "        unsigned char c = (unsigned char)*s;",
    "        if (c < 32 || c == '\"' || c == '\\\\') printf(\"\\\\u%04x\", c);",
    "        else putchar(c);",
    "    }",
    "    printf(\"\\\", \");",
    "}",
    "",
    "static void put_figures(const char *name, const figures *f) {",
    "    printf(\"\\\"%smedian_us\\\": %.3f, \", name, f->median);",
    "    printf(\"\\\"%sp95_us\\\": %.3f, \", name, f->p95);",
    "    printf(\"\\\"%smin_us\\\": %.3f,\\n\", name, f->least);",
    "}",
    "",
    "static int bench_all(const test *t, bench *b) {",
    "    figures warm, cold, latency, plain;",
    "    b->samples = t->bench_ms >= 20 \? SAMPLES : 3 + (int)(t->bench_ms * (SAMPLES - 3) / 20);",
    "    int code = bench_open(t, b);",
    "    if (!code) code = bench_busy(t, b);",
    "    if (!code) code = bench_warm(t, b, &warm);",
    "    if (!code) code = bench_cold(t, b, &cold);",
    "    if (!code) code = bench_latency(t, b, true, &latency);",
    "    if (!code) code = bench_latency(t, b, false, &plain);",
    "    int cublas = code \? 0 : cublas_version();",
    "    if (cublas < 0) code = fail(FAILED, \"cublasGetVersion\", \"the library refused\");",
    "    if (code) return code;",
    "    const network_info *info = t->info;",
    "    printf(\"{\");",
    "    put_string(\"model\", info->model);",
    "    put_string(\"gpu\", b->gpu);",
    "    printf(\"\\\"driver\\\": %d, \\\"runtime\\\": %d, \", b->driver, b->runtime);",
    "    printf(\"\\\"cudnn\\\": %zu, \\\"cublas\\\": %d,\\n\", cudnn_version(), cublas);",
    "    put_figures(\"\", &warm);",
    "    put_figures(\"cold_\", &cold);",
    "    put_figures(\"latency_\", &latency);",
    "    put_figures(\"plain_latency_\", &plain);",
    "    printf(\"\\\"samples\\\": %d, \\\"replays\\\": %d, \\\"input_sets\\\": %d, \\\"busy_ms\\\": %.0f,\\n\", b->samples,",
    "           b->replays, b->sets, b->busy_ms);",
    "    if (b->nodes) printf(\"\\\"kernels\\\": %zu, \", b->nodes);",
    "    if (t->check) printf(\"\\\"error\\\": %.3g, \", t->error);",
    "    printf(\"\\\"arena_bytes\\\": %zu, \\\"weight_bytes\\\": %zu, \", info->arena_bytes, info->weight_bytes);",
    "    printf(\"\\\"const_bytes\\\": %zu, \\\"peak_bytes\\\": %zu}\\n\", info->const_bytes, info->peak_bytes);",
    "    return 0;",
    "}",
    "",
    "// Prints one JSON object; all times are microseconds.",
    "static int run_bench(const test *t) {",
    "    bench *b;",
    "    TRY(host_alloc((void **)&b, sizeof *b));",
    "    memset(b, 0, sizeof *b);",
    "    int code = bench_all(t, b), released = bench_release(b);",
    "    free(b);",
    "    return code \? code : released;",
    "}",
    0};
static const char *const ein__tmpl_test_check[] = {
    "// One output against the reference's, which is f32 where the output is f16 or bf16. `error` is the",
    "// relative L2 error over the finite elements, or the share of unequal integers; `misplaced` counts",
    "// NaN and infinities that the other side does not have.",
    "struct difference {",
    "    double error;",
    "    size_t misplaced, worst;",
    "};",
    "",
    "static difference compare(dtype type, const void *data, dtype ref_type, const void *ref, size_t n) {",
    "    difference d = {0, 0, 0};",
    "    double norm = 0, largest = -1;",
    "    for (size_t i = 0; i < n; i++) {",
    "        if (!is_float(type)) {",
    "            bool same = get_int(type, data, i) == get_int(ref_type, ref, i);",
    "            if (!same && d.error == 0) d.worst = i;",
    "            d.error += !same;",
    "            continue;",
    "        }",
    "        double x = get_float(type, data, i), y = get_float(ref_type, ref, i);",
    "        if (x - x != 0 || y - y != 0) {",
    "            if (!(x == y || (x != x && y != y)) && !d.misplaced++) d.worst = i;",
    "            continue;",
    "        }",
    "        norm += y * y;",
    "        d.error += (x - y) * (x - y);",
    "        if (!d.misplaced && fabs(x - y) > largest) {",
    "            largest = fabs(x - y);",
    "            d.worst = i;",
    "        }",
    "    }",
    "    if (!is_float(type)) d.error /= (double)n;",
    "    else d.error = norm > 0 \? sqrt(d.error / norm) : sqrt(d.error);",
    "    return d;",
    "}",
    "",
    "static int compare_output(test *t, const reference *r, int i) {",
    "    const tensor *o = &t->info->output[i];",
    "    dtype type = dtype_of(o->dtype), ref_type = (dtype)reference_outputs[i].type;",
    "    size_t n = count_of(o);",
    "    void *ref;",
    "    if (n != reference_outputs[i].count || is_float(type) != is_float(ref_type))",
    "        return fail(FAILED, o->name, \"the two files are of different models\");",
    "    TRY(host_alloc(&ref, n * dtypes[ref_type].size));",
    "    int code = to_host(t, ref, r->value[reference_outputs[i].value].p, n * dtypes[ref_type].size);",
    "    if (!code) {",
    "        difference d = compare(type, t->result[i], ref_type, ref, n);",
    "        double allowed = is_float(type) \? t->tolerance : 0;",
    "        bool good = !d.misplaced && d.error <= allowed;",
    "        fprintf(t->report, \"check %s: error %.3g, allowed %.3g\", o->name, d.error, allowed);",
    "        if (d.misplaced) fprintf(t->report, \", %zu misplaced NaN or infinity\", d.misplaced);",
    "        if (!good) fprintf(t->report, \", worst at element %zu\", d.worst);",
    "        fprintf(t->report, \": %s\\n\", good \? \"ok\" : \"WRONG\");",
    "        if (!(d.error <= t->error)) t->error = d.error;",
    "        if (!good) code = DIFFERS;",
    "    }",
    "    free(ref);",
    "    return code;",
    "}",
    "",
    "// Runs the model's equations and compares every output of the first run with what they give.",
    "static int check_values(test *t) {",
    "    reference r;",
    "    memset(&r, 0, sizeof r);",
    "    r.t = t;",
    "    int code = reference_open(&r);",
    "    if (!code) code = reference_run(&r);",
    "    cudaError_t e = code \? cudaSuccess : cudaStreamSynchronize(t->stream);",
    "    if (e != cudaSuccess) code = fail(FAILED, \"reference\", cudaGetErrorString(e));",
    "    bool differs = false;",
    "    for (int i = 0; i < OUTPUTS && !code; i++) {",
    "        code = compare_output(t, &r, i);",
    "        differs = differs || code == DIFFERS;",
    "        if (code == DIFFERS) code = 0;",
    "    }",
    "    for (int i = 0; i < VALUES; i++)",
    "        if (!r.lent[i] && device_free(&r.value[i].p) && !code) code = FAILED;",
    "    return code \? code : differs \? DIFFERS : 0;",
    "}",
    "",
    "// ---- runs",
    "",
    "// Outputs and arena are filled with `poison` first: nothing may depend on what they held.",
    "static int run_once(test *t, int poison) {",
    "    if (t->arena) CALL(cudaMemsetAsync(t->arena, poison, t->info->arena_bytes, t->stream));",
    "    for (int i = 0; i < OUTPUTS; i++)",
    "        CALL(cudaMemsetAsync(t->out[i], poison, t->info->output[i].bytes, t->stream));",
    "    if (network_run(t->model, t->in, t->out, t->stream))",
    "        return fail(FAILED, \"run\", network_error(t->model));",
    "    CALL(cudaStreamSynchronize(t->stream));",
    "    return 0;",
    "}",
    "",
    "static int first_run(test *t) {",
    "    int code = run_once(t, 0xff);",
    "    for (int i = 0; i < OUTPUTS && !code; i++) {",
    "        size_t bytes = t->info->output[i].bytes;",
    "        code = host_alloc(&t->result[i], bytes);",
    "        if (!code) code = to_host(t, t->result[i], t->out[i], bytes);",
    "    }",
    "    return code;",
    "}",
    "",
    "// One more run must give the same bits.",
    "static int same_again(test *t, const char *how, int poison) {",
    "    bool differs = false;",
    "    int code = run_once(t, poison);",
    "    for (int i = 0; i < OUTPUTS && !code; i++) {",
    "        const tensor *o = &t->info->output[i];",
    "        void *again;",
    "        TRY(host_alloc(&again, o->bytes));",
    "        code = to_host(t, again, t->out[i], o->bytes);",
    "        if (!code && memcmp(again, t->result[i], o->bytes)) {",
    "            fprintf(t->report, \"check %s: %s gives other bits: WRONG\\n\", o->name, how);",
    "            differs = true;",
    "        }",
    "        free(again);",
    "    }",
    "    return code \? code : differs \? DIFFERS : 0;",
    "}",
    "",
    "static int check_repeats(test *t) {",
    "    int again = same_again(t, \"a second run\", 0x3e);",
    "    if (again > DIFFERS) return again;",
    "    if (network_capture(t->model, t->in, t->out))",
    "        return fail(FAILED, \"capture\", network_error(t->model));",
    "    int replay = same_again(t, \"a replayed graph\", 0xc1);",
    "    if (!again && !replay) fprintf(t->report, \"check: two runs and a replayed graph agree: ok\\n\");",
    "    return replay > again \? replay : again;",
    "}",
    0};
static const char *const ein__tmpl_test_data[] = {
    "// ---- elements",
    "",
    "enum dtype { F32, F16, BF16, I8, I32, I64, BOOL, DTYPES };",
    "",
    "static const struct {",
    "    const char *name, *npy;",
    "    size_t size;",
    "} dtypes[DTYPES] = {{\"f32\", \"<f4\", 4}, {\"f16\", \"<f2\", 2}, {\"bf16\", \"\", 2},   {\"i8\", \"|i1\", 1},",
    "                    {\"i32\", \"<i4\", 4}, {\"i64\", \"<i8\", 8}, {\"bool\", \"|b1\", 1}};",
    "",
    "static dtype dtype_of(const char *name) {",
    "    int i = 0;",
    "    while (i < BOOL && strcmp(dtypes[i].name, name)) i++;",
    "    return (dtype)i;",
    "}",
    "",
    "static bool is_float(dtype type) { return type <= BF16; }",
    "",
    "static size_t count_of(const tensor *t) {",
    "    size_t n = 1;",
    "    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];",
    "    return n;",
    "}",
    "",
    "static float from_f16(unsigned bits) {",
    "    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);",
    "    float v = ldexpf((float)fraction, -24);",
    "    if (exponent) v = ldexpf((float)(fraction + 1024), exponent - 25);",
    "    if (exponent == 31) v = fraction \? NAN : INFINITY;",
    "    return bits >> 15 \? -v : v;",
    "}",
    "",
    "// Rounds to the nearest, ties to even.",
    "static unsigned to_f16(float v) {",
    "    unsigned sign = signbit(v) \? 0x8000 : 0;",
    "    float size = fabsf(v);",
    "    int exponent = 0;",
    "    if (v != v) return sign | 0x7e00;",
    "    if (size >= 65520.f) return sign | 0x7c00;",
    "    frexpf(size, &exponent);",
    "    if (exponent < -13 || size == 0) exponent = -13;  // subnormal: the step stays 2^-24",
    "    return sign + ((unsigned)(exponent + 13) << 10) + (unsigned)rintf(ldexpf(size, 11 - exponent));",
    "}",
    "",
    "static float from_bf16(unsigned bits) {",
    "    unsigned word = bits << 16;",
    "    float v;",
    "    memcpy(&v, &word, 4);",
    "    return v;",
    "}",
    "",
    "static unsigned to_bf16(float v) {",
    "    unsigned word;",
    "    memcpy(&word, &v, 4);",
    "    if (v != v) return word >> 16 | 64;",
    "    return (word + 0x7fff + (word >> 16 & 1)) >> 16;",
    "}",
    "",
    "static float get_float(dtype type, const void *data, size_t i) {",
    "    if (type == F32) return ((const float *)data)[i];",
    "    unsigned bits = ((const unsigned short *)data)[i];",
    "    return type == F16 \? from_f16(bits) : from_bf16(bits);",
    "}",
    "",
    "static void put_float(dtype type, void *data, size_t i, float v) {",
    "    if (type == F32) ((float *)data)[i] = v;",
    "    else ((unsigned short *)data)[i] = (unsigned short)(type == F16 \? to_f16(v) : to_bf16(v));",
    "}",
    "",
    "static long long get_int(dtype type, const void *data, size_t i) {",
    "    switch (dtypes[type].size) {",
    "    case 8: return ((const long long *)data)[i];",
    "    case 4: return ((const int *)data)[i];",
    "    default: break;",
    "    }",
    "    unsigned char byte = ((const unsigned char *)data)[i];",
    "    return type == BOOL \? byte : (signed char)byte;",
    "}",
    "",
    "static void put_int(dtype type, void *data, size_t i, int v) {",
    "    switch (dtypes[type].size) {",
    "    case 8: ((long long *)data)[i] = v; break;",
    "    case 4: ((int *)data)[i] = v; break;",
    "    default: ((signed char *)data)[i] = (signed char)v;",
    "    }",
    "}",
    "",
    "// Values that every implementation reproduces bit for bit: about normal for floats, 0 or 1 for",
    "// integers. Element i is drawn from a hash of the seed and i.",
    "static void seeded(const tensor *t, unsigned long long seed, void *data) {",
    "    const unsigned long long golden = 0x9E3779B97F4A7C15ull;",
    "    dtype type = dtype_of(t->dtype);",
    "    size_t n = count_of(t);",
    "    for (size_t i = 0; i < n; i++) {",
    "        unsigned long long z = seed * golden + i + golden;",
    "        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;",
    "        z = (z ^ z >> 27) * 0x94D049BB133111EBull;",
    "        z ^= z >> 31;",
    "        if (!is_float(type)) {",
    "            put_int(type, data, i, (int)(z & 1));",
    "            continue;",
    "        }",
    "        int sum = (int)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));",
    "        put_float(type, data, i, (float)(sum - 131070) * (float)2.6429e-5);",
    "    }",
    "}",
    "",
    "// ---- files",
    "",
    "// A whole file in memory that the caller frees.",
    "static int read_file(const char *path, unsigned char **data, size_t *bytes) {",
    "    *data = NULL;",
    "    FILE *f = fopen(path, \"rb\");",
    "    if (!f) return fail(BAD_FILE, path, strerror(errno));",
    "    size_t cap = 1 << 16, n = 0, got = 1;",
    "    int code = 0;",
    "    if (!fseek(f, 0, SEEK_END)) {",
    "        long size = ftell(f);",
    "        if (size >= 0 && size < LONG_MAX) cap = (size_t)size + 1;",
    "        rewind(f);",
    "    }",
    "    while (!code && got) {",
    "        if (!*data || n == cap) {",
    "            cap = *data \? cap * 2 : cap;",
    "            void *more = realloc(*data, cap);",
    "            if (!more) code = fail(FAILED, path, \"host memory is exhausted\");",
    "            else *data = (unsigned char *)more;",
    "        }",
    "        if (!code) n += got = fread(*data + n, 1, cap - n, f);",
    "    }",
    "    if (!code && ferror(f)) code = fail(BAD_FILE, path, \"cannot be read\");",
    "    fclose(f);",
    "    *bytes = n;",
    "    if (!code) return 0;",
    "    free(*data);",
    "    *data = NULL;",
    "    return code;",
    "}",
    "",
    "// What is left of a .npy header.",
    "struct header {",
    "    const char *at, *end;",
    "};",
    "",
    "static bool take(header *h, const char *word) {",
    "    size_t n = strlen(word);",
    "    while (h->at < h->end && (*h->at == ' ' || *h->at == '\\n' || *h->at == '\\t')) h->at++;",
    "    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n)) return false;",
    "    h->at += n;",
    "    return true;",
    "}",
    "",
    "// A quoted word without escapes.",
    "static bool take_word(header *h, char *word, size_t size) {",
    "    size_t n = 0;",
    "    char quote = take(h, \"'\") \? '\\'' : '\"';",
    "    if (quote == '\"' && !take(h, \"\\\"\")) return false;",
    "    while (h->at < h->end && *h->at != quote && *h->at != '\\\\' && n + 1 < size)",
    "        word[n++] = *h->at++;",
    "    word[n] = 0;",
    "    return h->at < h->end && *h->at++ == quote;",
    "}",
    "",
    "static bool take_shape(header *h, int *rank, long long *dims) {",
    "    if (!take(h, \"(\")) return false;",
    "    for (*rank = 0; !take(h, \")\"); ++*rank) {",
    "        if (*rank == 10) return false;",
    "        long long d = 0;",
    "        const char *start = h->at;",
    "        while (h->at < h->end && *h->at >= '0' && *h->at <= '9' && d < LLONG_MAX / 16)",
    "            d = d * 10 + (*h->at++ - '0');",
    "        if (h->at == start) return false;",
    "        dims[*rank] = d;",
    "        if (take(h, \",\")) continue;",
    "        ++*rank;",
    "        return take(h, \")\");",
    "    }",
    "    return true;",
    "}",
    "",
    "// {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 4), }, keys in any order.",
    "static bool parse_header(header *h, char *descr, size_t size, int *rank, long long *dims) {",
    "    int seen = 0;",
    "    if (!take(h, \"{\")) return false;",
    "    while (!take(h, \"}\")) {",
    "        char key[16];",
    "        int which;",
    "        if (!take_word(h, key, sizeof key) || !take(h, \":\")) return false;",
    "        if (!strcmp(key, \"descr\") && take_word(h, descr, size)) which = 1;",
    "        else if (!strcmp(key, \"fortran_order\") && take(h, \"False\")) which = 2;",
    "        else if (!strcmp(key, \"shape\") && take_shape(h, rank, dims)) which = 4;",
    "        else return false;",
    "        if (seen & which) return false;",
    "        seen |= which;",
    "        if (take(h, \",\")) continue;",
    "        if (!take(h, \"}\")) return false;",
    "        break;",
    "    }",
    "    take(h, \"\");",
    "    return seen == 7 && h->at == h->end;",
    "}",
    "",
    "// Copies the elements of a .npy file into `data`, refusing everything that is not this tensor.",
    "// Half-precision inputs may come as f4: .npy has no bfloat16.",
    "static int parse_npy(const char *path, const unsigned char *p, size_t n, const tensor *t,",
    "                     void *data) {",
    "    dtype type = dtype_of(t->dtype);",
    "    if (n < 12 || memcmp(p, \"\\x93NUMPY\", 6) || p[6] < 1 || p[6] > 3 || p[7])",
    "        return fail(BAD_FILE, path, \"not a .npy file of version 1, 2 or 3\");",
    "    size_t start = p[6] == 1 \? 10 : 12, length = p[8] | (size_t)p[9] << 8;",
    "    if (p[6] > 1) length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;",
    "    if (length > n - start) return fail(BAD_FILE, path, \"the file ends inside its header\");",
    "    header h = {(const char *)p + start, (const char *)p + start + length};",
    "    char descr[8] = \"\";",
    "    int rank = 0;",
    "    long long dims[10] = {0};",
    "    if (!parse_header(&h, descr, sizeof descr, &rank, dims))",
    "        return fail(BAD_FILE, path, \"the header does not describe a plain array in C order\");",
    "    bool same = rank == t->rank, wide = is_float(type) && !strcmp(descr, \"<f4\");",
    "    for (int i = 0; same && i < rank; i++) same = dims[i] == t->dims[i];",
    "    if (!same) return fail(BAD_FILE, path, \"the shape is not the input's\");",
    "    if (!wide && strcmp(descr, dtypes[type].npy))",
    "        return fail(BAD_FILE, path, \"the element type is not the input's\");",
    "    const unsigned char *from = p + start + length;",
    "    size_t count = count_of(t), size = wide \? 4 : dtypes[type].size;",
    "    if (n - start - length != count * size)",
    "        return fail(BAD_FILE, path, \"the data is shorter or longer than the header says\");",
    "    if (!wide || type == F32) memcpy(data, from, count * size);",
    "    for (size_t i = 0; wide && type != F32 && i < count; i++) {",
    "        float v;",
    "        memcpy(&v, from + 4 * i, 4);",
    "        put_float(type, data, i, v);",
    "    }",
    "    return 0;",
    "}",
    "",
    "// NAME.npy in `dir`; bytes of the name that a file name should not have become %XX.",
    "static int open_output(const char *dir, const char *name, FILE **f) {",
    "    size_t room = strlen(dir) + 3 * strlen(name) + 8, n;",
    "    char *path;",
    "    TRY(host_alloc((void **)&path, room));",
    "    n = (size_t)snprintf(path, room, \"%s/\", dir);",
    "    for (; *name; name++) {",
    "        unsigned char c = (unsigned char)*name;",
    "        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');",
    "        plain = plain || c == '_' || c == '.' || c == '-';",
    "        n += (size_t)snprintf(path + n, room - n, plain \? \"%c\" : \"%%%02X\", c);",
    "    }",
    "    memcpy(path + n, \".npy\", 5);",
    "    *f = fopen(path, \"wb\");",
    "    int code = *f \? 0 : fail(FAILED, path, strerror(errno));",
    "    free(path);",
    "    return code;",
    "}",
    "",
    "static int write_npy(const char *dir, const tensor *t, const void *data) {",
    "    char head[512];",
    "    FILE *f;",
    "    dtype type = dtype_of(t->dtype);",
    "    const char *descr = is_float(type) \? \"<f4\" : dtypes[type].npy;",
    "    int n = snprintf(head, sizeof head, \"{'descr': '%s', \", descr);",
    "    n += snprintf(head + n, sizeof head - (size_t)n, \"'fortran_order': False, 'shape': (\");",
    "    for (int i = 0; i < t->rank; i++)",
    "        n += snprintf(head + n, sizeof head - (size_t)n, \"%lld,\", t->dims[i]);",
    "    n += snprintf(head + n, sizeof head - (size_t)n, \"), }\");",
    "    while ((10 + n + 1) % 64) head[n++] = ' ';",
    "    head[n++] = '\\n';",
    "    TRY(open_output(dir, t->name, &f));",
    "    unsigned char magic[10] = {",
    "        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, (unsigned char)(n >> 8)};",
    "    size_t count = count_of(t);",
    "    bool ok = fwrite(magic, 1, 10, f) == 10 && fwrite(head, 1, (size_t)n, f) == (size_t)n;",
    "    if (type == F16 || type == BF16) {",
    "        for (size_t i = 0; ok && i < count; i++) {",
    "            float v = get_float(type, data, i);",
    "            ok = fwrite(&v, 4, 1, f) == 1;",
    "        }",
    "    } else if (ok) {",
    "        ok = fwrite(data, dtypes[type].size, count, f) == count;",
    "    }",
    "    if (fclose(f)) ok = false;",
    "    return ok \? 0 : fail(FAILED, t->name, \"the output could not be written\");",
    "}",
    0};
static const char *const ein__tmpl_test_main[] = {
    "static const char usage_text[] =",
    "    \"usage: %s W.weights [--in X.npy | --in NAME=X.npy ...] [--out DIR] [--check] [--bench]\\n\"",
    "    \"  --in X.npy        values of the next input in declaration order, or of the one named;\\n\"",
    "    \"                    the others get seeded values\\n\"",
    "    \"  --out DIR         write every output to DIR/NAME.npy\\n\"",
    "    \"  --check           compare with kernels straight from the model's equations, two runs with\\n\"",
    "    \"                    each other, and a replayed graph with both\\n\"",
    "    \"  --tolerance X     relative L2 error allowed by --check, %g by default\\n\"",
    "    \"  --bench           time it; one JSON object on standard output\\n\"",
    "    \"  --bench-ms N      least milliseconds of a timed sample, 20 by default; less also means\\n\"",
    "    \"                    fewer samples and a shorter run before the first\\n\"",
    "    \"exit status: 0 well, 1 wrong results, 2 usage, 3 bad file, 5 failed call, 77 no device\\n\";",
    "",
    "static int usage(const char *program, const char *what, const char *why) {",
    "    if (what) fprintf(stderr, \"%s: %s\\n\", what, why);",
    "    fprintf(stderr, usage_text, program, TOLERANCE);",
    "    return USAGE;",
    "}",
    "",
    "// X.npy goes to the first input without a file, NAME=X.npy to that input.",
    "static bool add_input(test *t, const char *arg) {",
    "    const char *path = strchr(arg, '=');",
    "    for (int i = 0; path && i < INPUTS; i++) {",
    "        const char *name = t->info->input[i].name;",
    "        size_t n = (size_t)(path - arg);",
    "        if (strlen(name) != n || memcmp(name, arg, n)) continue;",
    "        if (t->in_file[i]) return false;",
    "        t->in_file[i] = path + 1;",
    "        return true;",
    "    }",
    "    for (int i = 0; i < INPUTS; i++) {",
    "        if (t->in_file[i]) continue;",
    "        t->in_file[i] = arg;",
    "        return true;",
    "    }",
    "    return false;",
    "}",
    "",
    "static bool positive(const char *text, double *v) {",
    "    char *end;",
    "    *v = strtod(text, &end);",
    "    return end != text && !*end && *v > 0 && *v < 1e6;",
    "}",
    "",
    "static int read_options(test *t, int argc, char **argv) {",
    "    for (int i = 1; i < argc; i++) {",
    "        const char *a = argv[i], *next = i + 1 < argc \? argv[i + 1] : NULL;",
    "        bool in = !strcmp(a, \"--in\"), out = !strcmp(a, \"--out\"), ms = !strcmp(a, \"--bench-ms\");",
    "        bool tolerance = !strcmp(a, \"--tolerance\");",
    "        if (!strcmp(a, \"--check\")) t->check = true;",
    "        else if (!strcmp(a, \"--bench\")) t->bench = true;",
    "        else if (in || out || ms || tolerance) {",
    "            if (!next) return usage(argv[0], a, \"a value is missing\");",
    "            if (in && !add_input(t, next)) return usage(argv[0], next, \"no input is left for this\");",
    "            if (out) t->out_dir = next;",
    "            if (ms && !positive(next, &t->bench_ms)) return usage(argv[0], next, \"not a number\");",
    "            if (tolerance && !positive(next, &t->tolerance))",
    "                return usage(argv[0], next, \"not a number\");",
    "            i++;",
    "        } else if (a[0] == '-' && a[1]) return usage(argv[0], a, \"unknown option\");",
    "        else if (t->weights_file) return usage(argv[0], a, \"one file of weights is enough\");",
    "        else t->weights_file = a;",
    "    }",
    "    return t->weights_file \? 0 : usage(argv[0], NULL, NULL);",
    "}",
    "",
    "static int find_device() {",
    "    int count = 0;",
    "    cudaError_t e = cudaGetDeviceCount(&count);",
    "    if (e == cudaSuccess && count > 0) return 0;",
    "    const char *why = e == cudaSuccess \? \"none is visible\" : cudaGetErrorString(e);",
    "    fprintf(stderr, \"no CUDA device: %s\\n\", why);",
    "    return NO_DEVICE;",
    "}",
    "",
    "static int load_input(test *t, int i) {",
    "    const tensor *in = &t->info->input[i];",
    "    unsigned char *file = NULL;",
    "    size_t bytes = 0;",
    "    void *host;",
    "    TRY(host_alloc(&host, in->bytes));",
    "    int code = 0;",
    "    if (!t->in_file[i]) seeded(in, 7001 + (unsigned long long)i, host);",
    "    else code = read_file(t->in_file[i], &file, &bytes);",
    "    if (!code && t->in_file[i]) code = parse_npy(t->in_file[i], file, bytes, in, host);",
    "    free(file);",
    "    if (!code) code = device_alloc(&t->in[i], in->bytes);",
    "    if (!code) code = to_device(t, t->in[i], host, in->bytes);",
    "    free(host);",
    "    return code;",
    "}",
    "",
    "static int open_all(test *t) {",
    "    int code = read_file(t->weights_file, &t->weights, &t->weight_bytes);",
    "    if (code) return code;",
    "    CALL(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));",
    "    for (int i = 0; i < INPUTS && !code; i++) code = load_input(t, i);",
    "    for (int i = 0; i < OUTPUTS && !code; i++)",
    "        code = device_alloc(&t->out[i], t->info->output[i].bytes);",
    "    // An arena of our own can be filled with rubbish between runs.",
    "    if (!code && t->check && t->info->arena_bytes)",
    "        code = device_alloc(&t->arena, t->info->arena_bytes);",
    "    if (code) return code;",
    "    network_options options = {t->arena};",
    "    if (!network_create(&t->model, t->weights, t->weight_bytes, &options)) return 0;",
    "    bool ours = t->weight_bytes == t->info->weight_bytes && !memcmp(t->weights, \"EINWGHT1\", 8);",
    "    return fail(ours \? FAILED : BAD_FILE, \"create\", network_error(t->model));",
    "}",
    "",
    "static int release(test *t) {",
    "    int code = 0;",
    "    network_destroy(t->model);",
    "    for (int i = 0; i < INPUTS; i++)",
    "        if (device_free(&t->in[i])) code = FAILED;",
    "    for (int i = 0; i < OUTPUTS; i++) {",
    "        if (device_free(&t->out[i])) code = FAILED;",
    "        free(t->result[i]);",
    "    }",
    "    if (device_free(&t->arena)) code = FAILED;",
    "    if (t->stream) {",
    "        cudaError_t e = cudaStreamDestroy(t->stream);",
    "        if (e != cudaSuccess) code = fail(FAILED, \"release\", cudaGetErrorString(e));",
    "    }",
    "    free(t->weights);",
    "    return code;",
    "}",
    "",
    "static void report_output(const test *t, int i) {",
    "    const tensor *o = &t->info->output[i];",
    "    dtype type = dtype_of(o->dtype);",
    "    size_t n = count_of(o);",
    "    double sum = 0, squares = 0;",
    "    for (size_t k = 0; k < n; k++) {",
    "        double v = is_float(type) \? get_float(type, t->result[i], k)",
    "                                  : (double)get_int(type, t->result[i], k);",
    "        sum += v;",
    "        squares += v * v;",
    "    }",
    "    fprintf(t->report, \"output %s: %s[\", o->name, o->dtype);",
    "    for (int k = 0; k < o->rank; k++) fprintf(t->report, \"%s%lld\", k \? \",\" : \"\", o->dims[k]);",
    "    fprintf(t->report, \"], mean %.6g, rms %.6g\\n\", sum / (double)n, sqrt(squares / (double)n));",
    "}",
    "",
    "static int run_all(test *t) {",
    "    int code = open_all(t);",
    "    if (!code) code = first_run(t);",
    "    for (int i = 0; i < OUTPUTS && !code; i++) {",
    "        report_output(t, i);",
    "        if (t->out_dir) code = write_npy(t->out_dir, &t->info->output[i], t->result[i]);",
    "    }",
    "    if (code) return code;",
    "    int repeats = t->check \? check_repeats(t) : 0;",
    "    if (repeats > DIFFERS) return repeats;",
    "    int values = t->check \? check_values(t) : 0;",
    "    if (values > DIFFERS) return values;",
    "    if (t->bench) code = run_bench(t);",
    "    return code \? code : values \? values : repeats;",
    "}",
    "",
    "static int run(int argc, char **argv) {",
    "    test t;",
    "    memset(&t, 0, sizeof t);",
    "    t.info = network_describe();",
    "    t.tolerance = TOLERANCE;",
    "    t.bench_ms = 20;",
    "    int code = read_options(&t, argc, argv);",
    "    if (!code) code = find_device();",
    "    if (code) return code;",
    "    t.report = t.bench \? stderr : stdout;",
    "    code = run_all(&t);",
    "    int released = release(&t);",
    "    if (fflush(stdout) || ferror(stdout))",
    "        released = fail(FAILED, \"standard output\", \"cannot be written\");",
    "    return code > DIFFERS \? code : released \? released : code;",
    "}",
    0};
static const char *const ein__tmpl_test_reference[] = {
    "// A computed value lives in a buffer of its own from the kernel that makes it to the last reader;",
    "// kernels take the buffer as a pointer of the type they want.",
    "struct buffer {",
    "    void *p;",
    "    template <typename T>",
    "    operator T *() const {",
    "        return (T *)p;",
    "    }",
    "};",
    "",
    "struct reference {",
    "    const test *t;",
    "    buffer value[VALUES];",
    "    bool lent[VALUES];  // an input: not the reference's to free",
    "",
    "    int make(int v, size_t bytes) { return device_alloc(&value[v].p, bytes); }",
    "    // After a launch: its error, then the buffers that nobody reads any more.",
    "    int done() {",
    "        CALL(cudaGetLastError());",
    "        return 0;",
    "    }",
    "    template <typename... More>",
    "    int done(int v, More... more) {",
    "        TRY(done(more...));",
    "        CALL(cudaStreamSynchronize(t->stream));",
    "        return device_free(&value[v].p);",
    "    }",
    "};",
    "",
    "static int reference_open(reference *r) {",
    "    const test *t = r->t;",
    "    for (int i = 0; reference_inputs[i].value < VALUES; i++) {",
    "        int v = reference_inputs[i].value, j = reference_inputs[i].input;",
    "        if (t->info->input[j].bytes != reference_inputs[i].bytes)",
    "            return fail(FAILED, t->info->input[j].name, \"the input has another size\");",
    "        r->value[v].p = t->in[j];",
    "        r->lent[v] = true;",
    "    }",
    "    for (int i = 0; reference_weights[i].value < VALUES; i++) {",
    "        int v = reference_weights[i].value;",
    "        size_t offset = reference_weights[i].offset, bytes = reference_weights[i].bytes;",
    "        if (offset > t->weight_bytes || bytes > t->weight_bytes - offset)",
    "            return fail(BAD_FILE, t->weights_file, \"the blob is too short\");",
    "        TRY(r->make(v, bytes));",
    "        TRY(to_device(t, r->value[v].p, t->weights + offset, bytes));",
    "    }",
    "    return 0;",
    "}",
    0};
static const char *const ein__tmpl_transpose[] = {
    "//@key name    the kernel's name",
    "//@key params  its parameters",
    "//@key T       type of a tile's element",
    "//@key number  unsigned type that counts tiles",
    "//@key many    whether there is more than one tile",
    "//@key int     type of positions",
    "//@key index   positions of the dimensions that are not tiled, first positions fa and fb, from id",
    "//@key a       position along the operand's innermost dimension",
    "//@key b       position along the result's innermost dimension",
    "//@key na      its extent",
    "//@key nb      its extent",
    "//@key before  statements that need no position in the tile",
    "//@key load    statements for the operand's element",
    "//@key value   the element",
    "//@key middle  statements that need no position in the tile",
    "//@key store   loads, the expression, the store",
    "static __global__ void __launch_bounds__(256) $name($params) {",
    "    __shared__ $T tile[32][33];",
    "    //@if many",
    "    const $number id = blockIdx.x;",
    "    //@end",
    "    $index;",
    "    $before;",
    "#pragma unroll",
    "    for (int j = 0; j < 32; j += 8) {",
    "        const $int $b = fb + j + (int)threadIdx.y, $a = fa + (int)threadIdx.x;",
    "        if ($b < $nb && $a < $na) {",
    "            $load;",
    "            tile[j + threadIdx.y][threadIdx.x] = $value;",
    "        }",
    "    }",
    "    __syncthreads();",
    "    $middle;",
    "#pragma unroll",
    "    for (int j = 0; j < 32; j += 8) {",
    "        const $int $a = fa + j + (int)threadIdx.y, $b = fb + (int)threadIdx.x;",
    "        if ($a < $na && $b < $nb) {",
    "            $store;",
    "        }",
    "    }",
    "}",
    0};
static const char *const ein__tmpl_warp[] = {
    "//@key op     sum, prod, max or min",
    "//@key join   v combined with other",
    "//@key block  whether the block's form is wanted too",
    "static __device__ __forceinline__ float warp_$op(float v) {  // every lane gets the result",
    "#pragma unroll",
    "    for (int d = 16; d > 0; d /= 2) {",
    "        const float other = __shfl_xor_sync(0xffffffffu, v, d);",
    "        $join;",
    "    }",
    "    return v;",
    "}",
    "//@if block",
    "",
    "static __device__ __forceinline__ float block_$op(float v, float *part) {  // 256 threads, 8 words",
    "    v = warp_$op(v);",
    "    if (threadIdx.x % 32u == 0u) part[threadIdx.x / 32u] = v;",
    "    __syncthreads();",
    "    v = part[0];",
    "#pragma unroll",
    "    for (int j = 1; j < 8; j++) {",
    "        const float other = part[j];",
    "        $join;",
    "    }",
    "    return v;",
    "}",
    "//@end",
    0};

typedef struct ein__key {
    const char *name, *text;
} ein__key;

enum { EIN__TMPL_DEPTH = 8, EIN__COLUMNS = 100 };

static bool ein__tmpl_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Length of the placeholder's name after the `$` at s, 0 if there is none.
static size_t ein__tmpl_name(const char *s) {
    size_t n = 0;
    while (ein__tmpl_word(s[n])) n++;
    return n;
}

static int ein__tmpl_find(const ein__key *keys, int nkey, const char *s, size_t n) {
    for (int i = 0; i < nkey; i++)
        if (strlen(keys[i].name) == n && !memcmp(keys[i].name, s, n)) return i;
    return -1;
}

// The line's word after `tag`, or NULL when the line is not this directive.
static const char *ein__tmpl_directive(const char *line, const char *tag, size_t *n) {
    while (*line == ' ') line++;
    size_t len = strlen(tag);
    if (strncmp(line, tag, len)) return NULL;
    line += len;
    while (*line == ' ') line++;
    *n = ein__tmpl_name(line);
    return line;
}

// Whether the space at s[at] stands outside of string literals and not next to or behind the start
// of a comment.
static bool ein__tmpl_legal(const char *s, size_t at) {
    bool quoted = false;
    for (size_t i = 0; i < at; i++) {
        if (s[i] == '\\' && quoted) i++;
        else if (s[i] == '"') quoted = !quoted;
        else if (!quoted && s[i] == '/' && s[i + 1] == '/') return false;
    }
    return !quoted && !(s[at + 1] == '/' && s[at + 2] == '/');
}

// Where to break a line of which `most` characters fit: after a comma or semicolon in the second
// half, else before an operator, else at any space. 0: nowhere.
static size_t ein__tmpl_cut(const char *s, size_t least, size_t most) {
    size_t any = 0, before = 0;
    for (size_t i = most; i > least; i--) {
        if (s[i] != ' ' || s[i + 1] == '*' || !ein__tmpl_legal(s, i)) continue;
        if ((s[i - 1] == ',' || s[i - 1] == ';') && i > (least + most) / 2) return i;
        if (!before && strchr("?:&+", s[i + 1])) before = i;
        if (!any) any = i;
    }
    return before > (least + most) / 2 ? before : any;
}

// Breaks lines that got too long at the last space that fits.
static void ein__tmpl_line(ein__buf *out, const char *s, size_t n) {
    size_t indent = 0;
    while (n && s[n - 1] == ' ') n--;
    while (indent < n && s[indent] == ' ') indent++;
    bool first = true;
    bool fixed = indent < n && (s[indent] == '#' || !strncmp(s + indent, "//", 2));
    while (!fixed && n > EIN__COLUMNS - (first ? 0 : indent + 4)) {
        size_t room = EIN__COLUMNS - (first ? 0 : indent + 4);
        size_t cut = ein__tmpl_cut(s, first ? indent : 0, room);
        if (!cut) break;
        if (!first) ein__putf(out, "%*s", (int)indent + 4, "");
        ein__put_n(out, s, cut);
        ein__put(out, "\n");
        s += cut + 1;
        n -= cut + 1;
        first = false;
    }
    if (!first) ein__putf(out, "%*s", (int)indent + 4, "");
    ein__put_n(out, s, n);
    ein__put(out, "\n");
}

// Each line of `text` at `indent`; preprocessor lines stand at the margin.
static void ein__tmpl_block(ein__buf *out, const char *text, size_t indent) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        ein__buf line = {0};
        if (n && *text != '#') ein__putf(&line, "%*s", (int)indent, "");
        ein__put_n(&line, text, n);
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
        text += n + (text[n] != 0);
    }
}

// Writes one template line with its placeholders replaced.
static void ein__tmpl_expand(ein__buf *out, const char *line, const ein__key *keys, int nkey) {
    size_t indent = strspn(line, " "), n = 0;
    if (line[indent] == '$') n = ein__tmpl_name(line + indent + 1);
    if (n && !strcmp(line + indent + 1 + n, ";")) {
        int k = ein__tmpl_find(keys, nkey, line + indent + 1, n);
        EIN_ASSERT(k >= 0 && keys[k].text);
        ein__tmpl_block(out, keys[k].text, indent);
        return;
    }
    ein__buf text = {0};
    ein__put(&text, "");
    for (const char *s = line; *s; s++) {
        n = *s == '$' ? ein__tmpl_name(s + 1) : 0;
        if (!n) {
            ein__put_n(&text, s, 1);
            continue;
        }
        int k = ein__tmpl_find(keys, nkey, s + 1, n);
        EIN_ASSERT(k >= 0 && keys[k].text);
        ein__put(&text, keys[k].text);
        s += n;
    }
    ein__tmpl_line(out, text.s, text.n);
    ein__buf_free(&text);
}

// Both lists must be the same set, and every declared placeholder must occur below the head.
static int ein__tmpl_head(const char *const *lines, const ein__key *keys, int nkey) {
    int head = 0;
    size_t n, m;
    for (const char *s; lines[head]; head++) {
        if (!(s = ein__tmpl_directive(lines[head], "//@key ", &n))) break;
        EIN_ASSERT(ein__tmpl_find(keys, nkey, s, n) >= 0);
        bool used = false;
        for (int i = head + 1; lines[i] && !used; i++) {
            const char *c = ein__tmpl_directive(lines[i], "//@if ", &m);
            if (c && m == n && !memcmp(c, s, n)) used = true;
            for (const char *p = lines[i]; !c && !used && (p = strchr(p, '$')); p++)
                used = ein__tmpl_name(p + 1) == n && !memcmp(p + 1, s, n);
        }
        EIN_ASSERT(used);
        (void)used;
    }
    EIN_ASSERT(head == nkey);
    return head;
}

// Expands a template. A key that is undeclared, missing or never used is an internal error, as is
// an unbalanced directive. A NULL text may be given for a key whose lines are all switched off.
EIN__FN void ein__tmpl_put(ein__buf *out, const char *const *lines, const ein__key *keys,
                           int nkey) {
    bool on[EIN__TMPL_DEPTH] = {true};
    int depth = 0;
    size_t n;
    for (int i = ein__tmpl_head(lines, keys, nkey); lines[i]; i++) {
        const char *s;
        if ((s = ein__tmpl_directive(lines[i], "//@if ", &n))) {
            int k = ein__tmpl_find(keys, nkey, s, n);
            EIN_ASSERT(k >= 0 && depth + 1 < EIN__TMPL_DEPTH);
            const char *text = keys[k].text;
            on[++depth] = text && *text && strcmp(text, "0");
        } else if (ein__tmpl_directive(lines[i], "//@else", &n)) {
            EIN_ASSERT(depth > 0);
            on[depth] = !on[depth];
        } else if (ein__tmpl_directive(lines[i], "//@end", &n)) {
            EIN_ASSERT(depth > 0);
            depth--;
        } else {
            bool all = true;
            for (int d = 1; d <= depth; d++) all = all && on[d];
            if (all) ein__tmpl_expand(out, lines[i], keys, nkey);
        }
    }
    EIN_ASSERT(depth == 0);
}
/* ---- emit_index.c ---- */
// Index forms as C text: addresses, guards, and the names given to what is used more than once.
//
// A kernel's body is text at levels: level 0 is known from the thread's number, level k inside the
// k-th loop. Every piece of text carries the level from which it is valid, and a named piece is
// declared there, so whatever does not depend on a loop stands before it.
//
// Lanes: with `vec` > 1 a thread computes that many neighbours along `vec_slot`, and the slot's own
// name is the first one's position, a multiple of `vec`. `step` of a piece is what it grows by from
// one lane to the next (EIN__IRREGULAR when lanes need text of their own) and `div` divides its
// value in lane 0: together they prove that four reads are one aligned vector.

enum {
    EIN__NAMED,
    EIN__PRIMARY,
    EIN__PREFIX,
    EIN__PRODUCT,
    EIN__TERM,
    EIN__COMPARE,
    EIN__AND,
    EIN__COND
};
enum { EIN__IRREGULAR = 1 << 20, EIN__KLIN = 144, EIN__KLEVELS = EIN__MAX_ITERS + 2 };

typedef enum { EIN__NUM_FLOAT, EIN__NUM_DOUBLE, EIN__NUM_INT } ein__knum;

typedef struct ein__ktext {
    const char *s;  // interned: equal texts are equal pointers
    int prec, level;
} ein__ktext;

typedef struct ein__kterm {
    int64_t k;
    ein__ktext text;
    int64_t step, div, max;  // max: of the absolute value
} ein__kterm;

// c + sum k * text
typedef struct ein__klin {
    int64_t c;
    int n;
    ein__kterm t[EIN__KLIN];
} ein__klin;

// c + sum k * atom, over several index forms
typedef struct ein__kform {
    int64_t c;
    int n;
    ein__term t[EIN__KLIN];
} ein__kform;

typedef enum { EIN__N_ATOM, EIN__N_IX, EIN__N_EX, EIN__N_VECTOR } ein__kkind;
typedef struct ein__kname {
    ein__kkind kind;
    uint32_t id;
    int lane;
    ein__kterm t;
} ein__kname;

typedef struct ein__kslot {
    const char *name;
    int64_t n;
    int level;
    bool gone;  // extent 1, or part of the slot it was merged with
} ein__kslot;

// Values of the step that later ones read: text by lane, or none: their definition is put in place.
typedef struct ein__kinner {
    ein__val v;
    const char *text[4];
    bool put;
} ein__kinner;

// What is known of an expression; 0 is "not yet".
typedef struct ein__kmemo {
    uint64_t key;      // hash of the structure
    uint32_t mask;     // slots that occur, and bit 31
    unsigned uses;     // by other expressions
    unsigned scanned;  // the last scan that saw it
    int integer;       // 1: computed in integers, 2: not
} ein__kmemo;

typedef struct ein__kgen {
    ein_ctx *ctx;
    bool naive;     // dense layouts
    bool wide;      // 64-bit index arithmetic
    bool too_wide;  // 32 bits turned out not to be enough
    bool overflow;  // nor 64
    ein__knum num;
    int narg;
    ein__val arg[EIN__MAX_ARGS];
    ein__kslot slot[EIN__MAX_ITERS];
    int vec, vec_slot;
    int ninner, nover;
    ein__kinner inner[8];
    struct {
        ein__ex ex;
        ein__ktext text;
    } over[4];         // reads replaced by registers or tiles
    ein__kname *name;  // stb_ds array
    ein__kmemo *memo;  // by expression
    unsigned passes;   // scans made so far
    int nindex, nvalue, scattered;
    ein__buf code[EIN__KLEVELS];
    ein__buf *post;  // where statements go once the loops are over
    unsigned needs;
    int flops;
} ein__kgen;

// ------------------------------------------------------------------------------- structure

// Ids of atoms and expressions depend on the rest of the model; what is printed must not. These
// keys hash the structure alone: operands that differ only in which tensor they read have equal
// keys.
static uint64_t ein__kkey_ex(ein__kgen *g, ein__ex ex);

static uint64_t ein__kkey_join(uint64_t h, uint64_t v) {
    return ein__splitmix(h ^ ein__splitmix(v));
}

static uint64_t ein__kkey_ix(ein__kgen *g, ein__ix ix);

static uint64_t ein__kkey_atom(ein__kgen *g, uint32_t id) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    uint64_t h = ein__kkey_join(a->kind, (uint64_t)a->n);
    if (a->kind == EIN__ITER) return ein__kkey_join(h, a->slot);
    if (a->kind == EIN__GATHER) return ein__kkey_join(h, ein__kkey_ex(g, (ein__ex){a->ex}));
    return ein__kkey_join(h, ein__kkey_ix(g, (ein__ix){a->ix}));
}

static uint64_t ein__kkey_ix(ein__kgen *g, ein__ix ix) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    uint64_t h = ein__kkey_join((uint64_t)x->c, (uint64_t)x->q), terms = 0;
    for (uint32_t i = 0; i < x->n; i++)
        terms += ein__kkey_join(ein__kkey_atom(g, x->t[i].atom), (uint64_t)x->t[i].k);
    return ein__kkey_join(h, terms);
}

static int64_t ein__kstride(const ein__kgen *g, ein__val v, int dim) {
    const ein__shape *s = &ein__val_get(g->ctx, v)->shape;
    int64_t stride = 1;
    if (!g->naive) return g->ctx->plan.layout[v.i].stride[dim];
    for (int i = s->rank - 1; i > dim; i--) stride *= s->d[i];
    return stride;
}

static const ein__kinner *ein__kinner_of(const ein__kgen *g, uint32_t val) {
    for (int i = 0; i < g->ninner; i++)
        if (g->inner[i].v.i == val) return &g->inner[i];
    return NULL;
}

// Slots that occur in an expression.
static uint32_t ein__kmask(ein__kgen *g, ein__ex ex) {
    uint32_t *mask = &g->memo[ex.i].mask;
    if (*mask) return *mask;
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    *mask = 1u << 31;
    for (uint32_t i = 0; i < x->nix; i++) *mask |= ein__ix_uses(g->ctx, x->ix[i]);
    for (uint32_t i = 0; i < x->nkid; i++) *mask |= ein__kmask(g, x->kid[i]);
    return *mask;
}

static bool ein__kcommutes(const ein__expr *x) {
    return x->op == EIN__X_BINARY &&
           (x->fn == EIN__ADD || x->fn == EIN__MUL || x->fn == EIN__MIN || x->fn == EIN__MAX);
}

static uint64_t ein__kkey_ex(ein__kgen *g, ein__ex ex) {
    if (g->memo[ex.i].key) return g->memo[ex.i].key;
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    uint64_t h = ein__kkey_join((uint64_t)x->op << 32 | x->fn, x->bits), kids = 0;
    h = ein__kkey_join(h, (uint64_t)x->n * 2 + x->negate);
    for (uint32_t i = 0; i < x->nix; i++) h = ein__kkey_join(h, ein__kkey_ix(g, x->ix[i]));
    for (uint32_t i = 0; i < x->nkid; i++) {
        uint64_t k = ein__kkey_ex(g, x->kid[i]);
        kids = ein__kcommutes(x) ? kids + ein__splitmix(k) : ein__kkey_join(kids, k);
    }
    if (x->op == EIN__X_READ) {
        const ein__value *v = ein__val_get(g->ctx, (ein__val){x->val});
        const ein__kinner *in = ein__kinner_of(g, x->val);
        h = ein__kkey_join(h, in ? (uint64_t)(in - g->inner) + 100 : (uint64_t)v->dtype);
        for (int d = 0; d < v->shape.rank && !in; d++)
            h = ein__kkey_join(ein__kkey_join(h, (uint64_t)v->shape.d[d]),
                               (uint64_t)ein__kstride(g, (ein__val){x->val}, d));
    }
    h = ein__kkey_join(h, kids);
    return g->memo[ex.i].key = h ? h : 1;
}

// Rank of an operand in a commutative pair: what the step computed first, constants last.
static int ein__kplace(ein__kgen *g, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    if (x->op == EIN__X_CONST) return 40;
    if (x->op == EIN__X_READ && ein__kinner_of(g, x->val)) return 0;
    int used = 0;
    for (uint32_t m = ein__kmask(g, ex); m; m &= m - 1) used++;
    return 32 - used;
}

// The children in the order in which they are printed.
static void ein__kkids(ein__kgen *g, const ein__expr *x, ein__ex *kid) {
    memcpy(kid, x->kid, sizeof x->kid);
    if (!ein__kcommutes(x)) return;
    int a = ein__kplace(g, kid[0]), b = ein__kplace(g, kid[1]);
    if (a < b || (a == b && ein__kkey_ex(g, kid[0]) <= ein__kkey_ex(g, kid[1]))) return;
    kid[0] = x->kid[1];
    kid[1] = x->kid[0];
}

// ------------------------------------------------------------------------------- text

static ein__ktext ein__kt(ein__kgen *g, int prec, int level, const char *s) {
    return (ein__ktext){ein__name(g->ctx, s), prec, level};
}

static int ein__kmax(int a, int b) { return a > b ? a : b; }

// In parentheses when it binds weaker than `prec`.
static const char *ein__kparen(ein__kgen *g, ein__ktext t, int prec) {
    return t.prec > prec ? ein__namef(g->ctx, "(%s)", t.s) : t.s;
}

static const char *ein__kint(const ein__kgen *g) { return g->wide ? "long long" : "int"; }
static const char *ein__kunsigned(const ein__kgen *g) {
    return g->wide ? "unsigned long long" : "unsigned";
}

static ein__buf *ein__kcode(ein__kgen *g, int level) { return g->post ? g->post : &g->code[level]; }

static const ein__kname *ein__kfind(const ein__kgen *g, ein__kkind kind, uint32_t id, int lane) {
    for (ptrdiff_t i = 0; i < arrlen(g->name); i++)
        if (g->name[i].kind == kind && g->name[i].id == id && g->name[i].lane == lane)
            return &g->name[i];
    return NULL;
}

// Declares `const TYPE name = text;` at the text's level and remembers it under (kind, id, lane).
static ein__kterm ein__kdeclare(ein__kgen *g, ein__kkind kind, uint32_t id, int lane,
                                const char *type, ein__kterm t) {
    bool index = kind == EIN__N_ATOM || kind == EIN__N_IX;
    const char *name =
        index ? ein__namef(g->ctx, "t%d", g->nindex++) : ein__namef(g->ctx, "v%d", g->nvalue++);
    ein__putf(ein__kcode(g, t.text.level), "const %s %s = %s;\n", type, name, t.text.s);
    t.text = (ein__ktext){name, EIN__NAMED, t.text.level};
    arrput(g->name, ((ein__kname){kind, id, lane, t}));
    return t;
}

// Forgets names that were declared inside a loop which is over.
static void ein__kforget(ein__kgen *g, int level) {
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < arrlen(g->name); i++)
        if (g->name[i].t.text.level < level) g->name[n++] = g->name[i];
    if (g->name) arrsetlen(g->name, n);
}

static int64_t ein__kmul(ein__kgen *g, int64_t a, int64_t b) {
    int64_t r = 0;
    if (ein__mul_overflows(a, b, &r)) g->overflow = true;
    return r;
}

static int64_t ein__kadd(ein__kgen *g, int64_t a, int64_t b) {
    int64_t r = 0;
    if (ein__add_overflows(a, b, &r)) g->overflow = true;
    return r;
}

// ------------------------------------------------------------------------------- linear text

static void ein__klin_add(ein__kgen *g, ein__klin *l, ein__kterm t) {
    if (!t.k) return;
    for (int i = 0; i < l->n; i++) {
        if (l->t[i].text.s != t.text.s) continue;
        l->t[i].k = ein__kadd(g, l->t[i].k, t.k);
        if (!l->t[i].k) l->t[i] = l->t[--l->n];
        return;
    }
    if (l->n == EIN__KLIN) g->overflow = true;
    else l->t[l->n++] = t;
}

static int64_t ein__klin_step(const ein__klin *l) {
    int64_t step = 0;
    for (int i = 0; i < l->n; i++) {
        if (l->t[i].step == EIN__IRREGULAR) return EIN__IRREGULAR;
        step += l->t[i].k * l->t[i].step;
        if (step > 64 || step < -64) return EIN__IRREGULAR;
    }
    return step;
}

static int64_t ein__klin_div(const ein__klin *l) {
    int64_t d = ein__gcd(l->c, 0);
    for (int i = 0; i < l->n; i++) d = ein__gcd(d, ein__gcd(l->t[i].k, 0) * l->t[i].div);
    return d;
}

static int64_t ein__klin_max(ein__kgen *g, const ein__klin *l) {
    int64_t m = ein__gcd(l->c, 0);
    for (int i = 0; i < l->n; i++)
        m = ein__kadd(g, m, ein__kmul(g, ein__gcd(l->t[i].k, 0), l->t[i].max));
    return m;
}

static int ein__klin_level(const ein__klin *l) {
    int level = 0;
    for (int i = 0; i < l->n; i++) level = ein__kmax(level, l->t[i].text.level);
    return level;
}

// `a * 56 + b - 1` for one lane, the largest factor first, then by name.
static ein__ktext ein__klin_text(ein__kgen *g, const ein__klin *l, int lane) {
    int64_t c = l->c;
    ein__kterm t[EIN__KLIN];
    for (int i = 0; i < l->n; i++) {
        int j = i;
        int64_t k = ein__gcd(l->t[i].k, 0);
        for (; j > 0; j--) {
            int64_t other = ein__gcd(t[j - 1].k, 0);
            if (other > k || (other == k && strcmp(t[j - 1].text.s, l->t[i].text.s) < 0)) break;
            t[j] = t[j - 1];
        }
        t[j] = l->t[i];
        if (t[j].step != EIN__IRREGULAR) c += lane * t[j].k * t[j].step;
    }
    if (!g->wide && ein__klin_max(g, l) > INT32_MAX - 64) g->too_wide = true;
    ein__buf b = {0};
    int prec = EIN__PRIMARY, shown = 0;
    bool lead = l->n && t[0].k < 0 && c > 0;  // `55 - w` rather than `-w + 55`
    if (lead || !l->n) {
        ein__putf(&b, "%lld", (long long)c);
        if (c < 0) prec = EIN__PREFIX;
        shown++;
    }
    for (int i = 0; i < l->n; i++, shown++) {
        int64_t k = t[i].k;
        if (shown) prec = EIN__TERM;
        else prec = k == 1 ? t[i].text.prec : k == -1 ? EIN__PREFIX : EIN__PRODUCT;
        ein__put(&b, shown ? (k < 0 ? " - " : " + ") : k < 0 ? "-" : "");
        k = k < 0 ? -k : k;
        ein__put(&b, ein__kparen(g, t[i].text, EIN__PREFIX));
        if (k != 1) ein__putf(&b, " * %lld", (long long)k);
    }
    if (l->n && !lead && c) {
        ein__putf(&b, " %c %lld", c < 0 ? '-' : '+', (long long)(c < 0 ? -c : c));
        prec = EIN__TERM;
    }
    ein__ktext text = ein__kt(g, prec, ein__klin_level(l), b.s);
    ein__buf_free(&b);
    return text;
}

// ------------------------------------------------------------------------------- forms and atoms

static void ein__kform_put(ein__kgen *g, ein__kform *f, int64_t k, uint32_t atom) {
    for (int i = 0; i < f->n; i++) {
        if (f->t[i].atom != atom) continue;
        f->t[i].k = ein__kadd(g, f->t[i].k, k);
        if (!f->t[i].k) {
            for (; i + 1 < f->n; i++) f->t[i] = f->t[i + 1];
            f->n--;
        }
        return;
    }
    if (f->n == EIN__KLIN) g->overflow = true;
    else f->t[f->n++] = (ein__term){k, atom, 0};
}

// f += k * numerator of ix
static void ein__kform_add(ein__kgen *g, ein__kform *f, int64_t k, ein__ix ix) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    f->c = ein__kadd(g, f->c, ein__kmul(g, k, x->c));
    for (uint32_t i = 0; i < x->n; i++)
        ein__kform_put(g, f, ein__kmul(g, k, x->t[i].k), x->t[i].atom);
}

// d * floor(E / d) + E mod d = E: what a view by reshaping leaves in an address.
static void ein__kform_recombine(ein__kgen *g, ein__kform *f) {
    for (int i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(g->ctx, f->t[i].atom);
        if (a->kind != EIN__FLOOR) continue;
        for (int j = 0; j < f->n; j++) {
            const ein__atom *b = ein__atom_get(g->ctx, f->t[j].atom);
            if (b->kind != EIN__MOD || b->ix != a->ix || b->n != a->n) continue;
            int64_t k = f->t[j].k;
            if (f->t[i].k != ein__kmul(g, k, a->n)) continue;
            uint32_t floor_atom = f->t[i].atom, mod_atom = f->t[j].atom;
            ein__kform_put(g, f, -ein__kmul(g, k, a->n), floor_atom);
            ein__kform_put(g, f, -k, mod_atom);
            ein__kform_add(g, f, k, (ein__ix){a->ix});
            i = -1;
            break;
        }
    }
}

static void ein__katom(ein__kgen *g, ein__klin *l, int64_t k, uint32_t id, int lane);

// Names are numbered as they appear, so the atoms are taken in an order of their structure.
static void ein__kform_lower(ein__kgen *g, ein__klin *l, ein__kform *f, int lane) {
    for (int i = 1; i < f->n; i++)
        for (int j = i; j > 0; j--) {
            if (ein__kkey_atom(g, f->t[j - 1].atom) <= ein__kkey_atom(g, f->t[j].atom)) break;
            ein__term t = f->t[j];
            f->t[j] = f->t[j - 1];
            f->t[j - 1] = t;
        }
    l->c = ein__kadd(g, l->c, f->c);
    for (int i = 0; i < f->n; i++) ein__katom(g, l, f->t[i].k, f->t[i].atom, lane);
}

// Numerator of one index form.
static ein__klin ein__klin_of(ein__kgen *g, ein__ix ix, int lane) {
    ein__kform f = {0};
    ein__klin l;
    l.c = l.n = 0;
    ein__kform_add(g, &f, 1, ix);
    ein__kform_lower(g, &l, &f, lane);
    return l;
}

// floor(E / d) and E mod d: E is shifted by a multiple of d to be non-negative, so C's operators
// will do. Only a gathered operand has no bounds; it takes the general form.
static void ein__katom_divide(ein__kgen *g, ein__klin *out, int64_t k, uint32_t id, int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    ein__ix ix = {a->ix};
    const ein__index *x = ein__ix_get(g->ctx, ix);
    int64_t d = a->n, shift = 0, grow;
    bool mod = a->kind == EIN__MOD, bounded = !ein__ix_has_gather(g->ctx, ix);
    ein__klin l = ein__klin_of(g, ix, lane);
    if (bounded && x->lo < 0) shift = (-x->lo + d - 1) / d;
    l.c = ein__kadd(g, l.c, ein__kmul(g, shift, d));
    if (!mod) out->c = ein__kadd(g, out->c, -ein__kmul(g, k, shift));

    int64_t step = ein__klin_step(&l), div = ein__gcd(ein__klin_div(&l), d);
    grow = step == EIN__IRREGULAR ? d : (g->vec - 1) * (step < 0 ? d : step);
    ein__kterm t = {k, {0}, 0, 1, 0};
    bool shared = step == 0 || grow < div;  // the lanes stay in one period
    if (!shared) t.step = EIN__IRREGULAR;
    else if (mod) t.step = step, t.div = div;
    t.max = mod ? d - 1 : (ein__klin_max(g, &l) / d);
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, shared ? 0 : lane);
    if (!known) {
        ein__ktext e = ein__klin_text(g, &l, shared ? 0 : lane);
        const char *s = ein__kparen(g, e, EIN__PREFIX);
        char c = mod ? '%' : '/';
        long long n = (long long)d;
        if (bounded) s = ein__namef(g->ctx, "%s %c %lld", s, c, n);
        else if (mod) s = ein__namef(g->ctx, "(%s %% %lld + %lld) %% %lld", s, n, n, n);
        else s = ein__namef(g->ctx, "%s >= 0 ? %s / %lld : -1 - (-1 - %s) / %lld", s, s, n, s, n);
        t.text = (ein__ktext){s, EIN__PRODUCT, e.level};
        t = ein__kdeclare(g, EIN__N_ATOM, id, shared ? 0 : lane, ein__kint(g), t);
    } else {
        t = known->t;
    }
    t.k = k;
    ein__klin_add(g, out, t);
}

// Where a read looks: address, guard (NULL: always inside), and whether four lanes are one vector.
typedef struct ein__kaccess {
    const char *param, *guard;
    ein__ktext at;
    int level;
    int64_t step;
    bool vector;
    ein__dtype dtype;
} ein__kaccess;

static ein__kaccess ein__kaccess_of(ein__kgen *g, ein__ex read, int lane);

static const char *ein__kctype(ein__dtype t) {
    static const char *const name[EIN__NDTYPE] = {
        "float", "__half", "__nv_bfloat16", "signed char", "int", "long long", "unsigned char"};
    return name[t];
}

// A position held in an integer tensor. Whatever it holds, the read made with it is guarded.
static void ein__katom_gather(ein__kgen *g, ein__klin *out, int64_t k, uint32_t id, int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    ein__ex read = {a->ex};
    const ein__expr *x = ein__ex_get(g->ctx, read);
    ein__kaccess at = ein__kaccess_of(g, read, lane);
    int use = at.step ? lane : 0;
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, use);
    ein__kterm t = {k, {0}, at.step ? EIN__IRREGULAR : 0, 1, a->n ? a->n : INT32_MAX / 2};
    if (!known) {
        double pad;
        memcpy(&pad, &x->bits, sizeof pad);
        const char *s = ein__namef(g->ctx, "%s[%s]", at.param, at.at.s);
        if (at.dtype != EIN__I32 || g->wide) s = ein__namef(g->ctx, "(%s)%s", ein__kint(g), s);
        if (at.guard) s = ein__namef(g->ctx, "%s ? %s : %lld", at.guard, s, (long long)pad);
        t.text = (ein__ktext){s, EIN__COND, at.level};
        t = ein__kdeclare(g, EIN__N_ATOM, id, use, ein__kint(g), t);
    } else {
        t = known->t;
    }
    t.k = k;
    ein__klin_add(g, out, t);
}

static void ein__katom(ein__kgen *g, ein__klin *l, int64_t k, uint32_t id, int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    switch ((ein__atom_kind)a->kind) {
    case EIN__ITER: {
        const ein__kslot *s = &g->slot[a->slot];
        bool v = (int)a->slot == g->vec_slot;
        if (s->gone) return;
        ein__klin_add(
            g, l, (ein__kterm){k, {s->name, EIN__NAMED, s->level}, v, v ? g->vec : 1, s->n - 1});
        return;
    }
    case EIN__FLOOR:
    case EIN__MOD: ein__katom_divide(g, l, k, id, lane); return;
    case EIN__GATHER: ein__katom_gather(g, l, k, id, lane); return;
    }
}

// ------------------------------------------------------------------------------- guards

typedef struct ein__kaxis {
    const char *guard;  // NULL: always inside
    bool uniform;       // the same for all lanes
    bool named;         // `term` stands for the axis's position
    ein__kterm term;
    int level;
} ein__kaxis;

// `lo <= x < hi` of a linear text, as the shortest test that suffices.
static const char *ein__kwithin(ein__kgen *g, ein__klin l, int lane, int64_t n, bool low,
                                bool high) {
    if (low && high) {
        ein__ktext t = ein__klin_text(g, &l, lane);
        return ein__namef(g->ctx, "(%s)%s < %lld%s", ein__kunsigned(g),
                          ein__kparen(g, t, EIN__PRIMARY), (long long)n, g->wide ? "ull" : "u");
    }
    int64_t c = l.c;
    l.c = 0;
    for (int i = 0; i < l.n; i++)
        if (l.t[i].step != EIN__IRREGULAR) c += lane * l.t[i].k * l.t[i].step;
    ein__ktext t = ein__klin_text(g, &l, 0);
    return ein__namef(g->ctx, "%s %s %lld", ein__kparen(g, t, EIN__TERM), low ? ">=" : "<",
                      low ? -(long long)c : (long long)(n - c));
}

// An exact quotient: inside where the numerator is a multiple of q within [0, n * q).
static void ein__kaxis_quotient(ein__kgen *g, ein__kaxis *a, ein__ix ix, int64_t n, int lane) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    ein__klin l = ein__klin_of(g, ix, lane);
    bool shared = ein__klin_step(&l) == 0;
    a->uniform = shared;
    a->level = ein__klin_level(&l);
    a->named = true;
    if (shared) lane = 0;
    const ein__kname *known = ein__kfind(g, EIN__N_IX, ix.i, lane);
    ein__kterm t = {1, ein__klin_text(g, &l, lane), shared ? 0 : EIN__IRREGULAR, 1,
                    ein__klin_max(g, &l)};
    t = known ? known->t : ein__kdeclare(g, EIN__N_IX, ix.i, lane, ein__kint(g), t);
    ein__buf b = {0};
    int64_t end = ein__kmul(g, n, x->q);
    bool low = x->lo < 0, high = x->hi >= n;
    if (low && high)
        ein__putf(&b, "(%s)%s < %lld%s && ", ein__kunsigned(g), t.text.s, (long long)end,
                  g->wide ? "ull" : "u");
    else if (low) ein__putf(&b, "%s >= 0 && ", t.text.s);
    else if (high) ein__putf(&b, "%s < %lld && ", t.text.s, (long long)end);
    ein__putf(&b, "%s %% %lld == 0", t.text.s, (long long)x->q);
    a->guard = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    a->term = t;
    a->term.max = n - 1;
    a->term.text.s = ein__namef(g->ctx, "%s / %lld", t.text.s, (long long)x->q);
    a->term.text.prec = EIN__PRODUCT;
}

// Position along one axis of extent n.
static ein__kaxis ein__kaxis_of(ein__kgen *g, ein__ix ix, int64_t n, int lane) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    ein__kaxis a = {NULL, true, false, {0}, 0};
    bool gather = ein__ix_has_gather(g->ctx, ix);
    bool low = x->lo < 0 || gather, high = x->hi >= n || gather;
    if (x->q > 1) {
        ein__kaxis_quotient(g, &a, ix, n, lane);
        return a;
    }
    if (!low && !high) return a;
    ein__klin l = ein__klin_of(g, ix, lane);
    int64_t step = ein__klin_step(&l), div = ein__klin_div(&l);
    a.uniform = step == 0 || (step == 1 && div % g->vec == 0 && n % g->vec == 0);
    a.level = ein__klin_level(&l);
    int at = a.uniform ? 0 : lane;
    bool plain = l.n == 1 && l.t[0].k == 1 && !l.c;
    if (plain) {
        a.term = l.t[0];
    } else if (low && high) {
        bool own = step == EIN__IRREGULAR;
        const ein__kname *known = ein__kfind(g, EIN__N_IX, ix.i, own ? lane : 0);
        ein__kterm t = {1, ein__klin_text(g, &l, own ? lane : 0), step, div, ein__klin_max(g, &l)};
        t = known ? known->t : ein__kdeclare(g, EIN__N_IX, ix.i, own ? lane : 0, ein__kint(g), t);
        a.term = t;
        l.c = 0;
        l.n = 1;
        l.t[0] = t;
    }
    a.named = plain || (low && high);
    a.term.max = n - 1;
    a.guard = ein__kwithin(g, l, at, n, low, high);
    return a;
}

// Name of a value's parameter, in order of first use.
static const char *ein__kparam(ein__kgen *g, ein__val v) {
    int i = 0;
    while (i < g->narg && g->arg[i].i != v.i) i++;
    if (i == g->narg) {
        EIN_ASSERT(g->narg < EIN__MAX_ARGS - 1);
        g->arg[g->narg++] = v;
    }
    return ein__namef(g->ctx, "p%d", i);
}

static ein__dtype ein__kdtype(const ein__kgen *g, ein__val v) {
    const ein__value *x = ein__val_get(g->ctx, v);
    // The companion program computes in double and keeps what it computed as float.
    if (g->naive && x->kind == EIN__V_SCOPE && (x->dtype == EIN__F16 || x->dtype == EIN__BF16))
        return EIN__F32;
    return x->dtype;
}

static ein__kaccess ein__kaccess_of(ein__kgen *g, ein__ex read, int lane) {
    const ein__expr *x = ein__ex_get(g->ctx, read);
    ein__val v = {x->val};
    const ein__shape *s = &ein__val_get(g->ctx, v)->shape;
    ein__kaccess r = {ein__kparam(g, v), NULL, {0}, 0, 0, false, ein__kdtype(g, v)};
    ein__kform f = {0};
    ein__klin l;
    ein__buf guard = {0};
    bool uniform = true;
    l.c = l.n = 0;
    for (int d = 0; d < s->rank; d++) {
        ein__kaxis a = ein__kaxis_of(g, x->ix[d], s->d[d], lane);
        int64_t stride = ein__kstride(g, v, d);
        if (a.guard) ein__putf(&guard, "%s%s", guard.n ? " && " : "", a.guard);
        uniform = uniform && a.uniform;
        r.level = ein__kmax(r.level, a.level);
        if (a.named) {
            a.term.k = stride;
            ein__klin_add(g, &l, a.term);
        } else {
            ein__kform_add(g, &f, stride, x->ix[d]);
        }
    }
    ein__kform_recombine(g, &f);
    ein__kform_lower(g, &l, &f, lane);
    r.at = ein__klin_text(g, &l, lane);
    r.level = ein__kmax(r.level, r.at.level);
    r.step = uniform ? ein__klin_step(&l) : EIN__IRREGULAR;
    int64_t offset = g->naive ? 0 : g->ctx->plan.layout[v.i].offset;
    r.vector = r.step == 1 && r.dtype == EIN__F32 && ein__klin_div(&l) % g->vec == 0 &&
               offset % g->vec == 0;
    if (guard.n) r.guard = ein__name(g->ctx, guard.s);
    ein__buf_free(&guard);
    return r;
}
/* ---- emit_expr.c ---- */
// Scalar expressions as C text. Whatever is used twice, or would make a line long, gets a name
// where its last iterator is known.

// What a kernel's text asks of the emitted file: headers, and helpers shifted by the ein__red.
enum { EIN__NEED_HALF = 1, EIN__NEED_BF16 = 2, EIN__NEED_WARP = 4, EIN__NEED_BLOCK = 256 };
enum { EIN__LONG = 60 };

static const char *const ein__klane[4] = {"x", "y", "z", "w"};

static const char *ein__knum_type(const ein__kgen *g) {
    static const char *const name[] = {"float", "double", "long long"};
    return name[g->num];
}

static ein__ktext ein__kliteral(ein__kgen *g, double v) {
    ein__buf b = {0};
    switch (g->num) {
    case EIN__NUM_FLOAT: ein__put_f32_literal(&b, v); break;
    case EIN__NUM_INT: ein__putf(&b, "%lldll", (long long)v); break;
    case EIN__NUM_DOUBLE:
        if (v - v != 0) {
            ein__put_f32_literal(&b, v);
        } else {
            ein__put_f64(&b, v);
            if (!strpbrk(b.s, ".e")) ein__put(&b, ".0");
        }
        break;
    }
    ein__ktext t = ein__kt(g, b.s[0] == '-' ? EIN__PREFIX : EIN__NAMED, 0, b.s);
    ein__buf_free(&b);
    return t;
}

static double ein__kbits(const ein__expr *x) {
    double v;
    memcpy(&v, &x->bits, sizeof v);
    return v;
}

static ein__ex ein__kbody(const ein__kgen *g, ein__val v) {
    return ein__sc_get(g->ctx, ein__val_get(g->ctx, v)->scope)->body;
}

// How often each expression below `ex` is used; counts the operations of one evaluation on the way.
static void ein__kcount(ein__kgen *g, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    if (g->memo[ex.i].uses++) return;
    if (x->op == EIN__X_UNARY || x->op == EIN__X_BINARY || x->op == EIN__X_SELECT) g->flops++;
    for (uint32_t i = 0; i < x->nkid; i++) ein__kcount(g, x->kid[i]);
    if (x->op != EIN__X_READ) return;
    const ein__kinner *in = ein__kinner_of(g, x->val);
    if (in && in->put) ein__kcount(g, ein__kbody(g, in->v));
}

// Starts counting anew: the next pass over the row has its own names.
static void ein__kuncount(ein__kgen *g) {
    for (ptrdiff_t i = 0; i < arrlen(g->ctx->exprs.rec); i++) g->memo[i].uses = 0;
}

// Converts a stored element to the type that is computed in.
static ein__ktext ein__kload(ein__kgen *g, const ein__kaccess *at, int level) {
    const char *s = ein__namef(g->ctx, "%s[%s]", at->param, at->at.s);
    int prec = EIN__PRIMARY;
    switch (at->dtype) {
    case EIN__F32:
        if (g->num == EIN__NUM_DOUBLE) s = ein__namef(g->ctx, "(double)%s", s), prec = EIN__PREFIX;
        break;
    case EIN__F16:
        g->needs |= EIN__NEED_HALF;
        s = ein__namef(g->ctx, "__half2float(%s)", s);
        break;
    case EIN__BF16:
        g->needs |= EIN__NEED_BF16;
        s = ein__namef(g->ctx, "__bfloat162float(%s)", s);
        break;
    case EIN__I8:
    case EIN__I32:
    case EIN__I64:
    case EIN__BOOL:
        if (g->num == EIN__NUM_INT && at->dtype == EIN__I64) break;
        s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), s);
        prec = EIN__PREFIX;
        break;
    case EIN__NDTYPE: break;
    }
    return (ein__ktext){s, prec, level};
}

static ein__ktext ein__kvalue(ein__kgen *g, ein__ex ex, int lane);

static ein__ktext ein__kname_value(ein__kgen *g, ein__ex ex, int lane, ein__ktext t) {
    if (t.prec == EIN__NAMED) return t;
    ein__kterm named = {1, t, 0, 1, 0};
    return ein__kdeclare(g, EIN__N_EX, ex.i, lane, ein__knum_type(g), named).text;
}

// A value whose text may be repeated.
static ein__ktext ein__kvalue_named(ein__kgen *g, ein__ex ex, int lane) {
    ein__ktext t = ein__kvalue(g, ex, lane);
    const ein__kname *known = ein__kfind(g, EIN__N_EX, ex.i, lane);
    return known ? known->t.text : ein__kname_value(g, ex, lane, t);
}

static ein__ktext ein__kread(ein__kgen *g, ein__ex ex, int lane) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    for (int i = 0; i < g->nover; i++)
        if (g->over[i].ex.i == ex.i) return g->over[i].text;
    const ein__kinner *in = ein__kinner_of(g, x->val);
    if (in && in->put) return ein__kvalue(g, ein__kbody(g, in->v), lane);
    if (in) return (ein__ktext){in->text[lane], EIN__NAMED, 0};
    ein__ktext pad = ein__kliteral(g, ein__kbits(x));
    const ein__kname *known = ein__kfind(g, EIN__N_VECTOR, ex.i, 0);
    if (!known && g->vec > 1) {
        ein__kaccess at = ein__kaccess_of(g, ex, 0);
        if (at.vector) {
            const char *s = ein__namef(g->ctx, "*reinterpret_cast<const float4 *>(%s + %s)",
                                       at.param, ein__kparen(g, at.at, EIN__TERM));
            if (at.guard)
                s = ein__namef(g->ctx, "%s ? %s : make_float4(%s, %s, %s, %s)", at.guard, s, pad.s,
                               pad.s, pad.s, pad.s);
            ein__kterm t = {1, {s, EIN__COND, at.level}, 0, 1, 0};
            ein__kdeclare(g, EIN__N_VECTOR, ex.i, 0, "float4", t);
            known = ein__kfind(g, EIN__N_VECTOR, ex.i, 0);
        } else if (at.step) {
            g->scattered++;
        } else if (lane) {
            return ein__kvalue_named(g, ex, 0);
        }
    }
    if (known) {
        ein__ktext v = known->t.text;
        v.s = ein__namef(g->ctx, "%s.%s", v.s, ein__klane[lane]);
        return v;
    }
    ein__kaccess at = ein__kaccess_of(g, ex, lane);
    ein__ktext t = ein__kload(g, &at, at.level);
    if (!at.guard) return t;
    return (ein__ktext){ein__namef(g->ctx, "%s ? %s : %s", at.guard, t.s, pad.s), EIN__COND,
                        at.level};
}

static ein__ktext ein__kcall(ein__kgen *g, const char *name, ein__ktext a) {
    const char *suffix = g->num == EIN__NUM_FLOAT ? "f" : "";
    return (ein__ktext){ein__namef(g->ctx, "%s%s(%s)", name, suffix, a.s), EIN__PRIMARY, a.level};
}

static ein__ktext ein__kunary(ein__kgen *g, const ein__expr *x, int lane) {
    bool twice =
        x->fn == EIN__RELU || x->fn == EIN__SQUARE || (x->fn == EIN__ABS && g->num == EIN__NUM_INT);
    ein__ktext a = twice ? ein__kvalue_named(g, x->kid[0], lane) : ein__kvalue(g, x->kid[0], lane);
    ein__ktext zero = ein__kliteral(g, 0), one = ein__kliteral(g, 1);
    const char *p = ein__kparen(g, a, EIN__PRIMARY);
    ein_ctx *c = g->ctx;
    switch ((ein__fn)x->fn) {
    case EIN__NEG: return (ein__ktext){ein__namef(c, "-%s", p), EIN__PREFIX, a.level};
    case EIN__RELU:  // not fmax: NaN stays NaN
        return (ein__ktext){ein__namef(c, "%s < %s ? %s : %s", p, zero.s, zero.s, p), EIN__COND,
                            a.level};
    case EIN__SQUARE: return (ein__ktext){ein__namef(c, "%s * %s", p, p), EIN__PRODUCT, a.level};
    case EIN__ABS:
        if (g->num != EIN__NUM_INT) return ein__kcall(g, "fabs", a);
        return (ein__ktext){ein__namef(c, "%s < 0 ? -%s : %s", p, p, p), EIN__COND, a.level};
    case EIN__TANH: return ein__kcall(g, "tanh", a);
    case EIN__EXP: return ein__kcall(g, "exp", a);
    case EIN__LOG: return ein__kcall(g, "log", a);
    case EIN__SQRT: return ein__kcall(g, "sqrt", a);
    case EIN__ERF: return ein__kcall(g, "erf", a);
    case EIN__FLOORF: return ein__kcall(g, "floor", a);
    case EIN__CEILF: return ein__kcall(g, "ceil", a);
    case EIN__RSQRT:
        a = ein__kcall(g, "sqrt", a);
        return (ein__ktext){ein__namef(c, "%s / %s", one.s, a.s), EIN__PRODUCT, a.level};
    case EIN__SIGMOID:
        a = ein__kcall(g, "exp", (ein__ktext){ein__namef(c, "-%s", p), EIN__PREFIX, a.level});
        return (ein__ktext){ein__namef(c, "%s / (%s + %s)", one.s, one.s, a.s), EIN__PRODUCT,
                            a.level};
    case EIN__ADD:
    case EIN__SUB:
    case EIN__MUL:
    case EIN__DIV:
    case EIN__POW:
    case EIN__MIN:
    case EIN__MAX:
    case EIN__EQ:
    case EIN__NE:
    case EIN__LT:
    case EIN__LE:
    case EIN__GT:
    case EIN__GE:
    case EIN__NFN: break;
    }
    EIN_ASSERT(0 && "unary function");
    return a;
}

static ein__ktext ein__kinfix(ein__kgen *g, const char *op, ein__ktext a, ein__ktext b, int prec) {
    const char *s =
        ein__namef(g->ctx, "%s %s %s", ein__kparen(g, a, prec), op, ein__kparen(g, b, prec - 1));
    return (ein__ktext){s, prec, ein__kmax(a.level, b.level)};
}

static ein__ktext ein__kbinary(ein__kgen *g, const ein__expr *x, int lane) {
    bool pick = g->num == EIN__NUM_INT && (x->fn == EIN__MIN || x->fn == EIN__MAX);
    ein__ex kid[4];
    ein__kkids(g, x, kid);
    ein__ktext a = pick ? ein__kvalue_named(g, kid[0], lane) : ein__kvalue(g, kid[0], lane);
    ein__ktext b = pick ? ein__kvalue_named(g, kid[1], lane) : ein__kvalue(g, kid[1], lane);
    const char *f = g->num == EIN__NUM_FLOAT ? "f" : "", *call = "pow";
    switch ((ein__fn)x->fn) {
    case EIN__ADD: return ein__kinfix(g, "+", a, b, EIN__TERM);
    case EIN__SUB: return ein__kinfix(g, "-", a, b, EIN__TERM);
    case EIN__MUL: return ein__kinfix(g, "*", a, b, EIN__PRODUCT);
    case EIN__DIV: return ein__kinfix(g, "/", a, b, EIN__PRODUCT);
    case EIN__MIN: call = "fmin"; break;
    case EIN__MAX: call = "fmax"; break;
    case EIN__POW: break;
    case EIN__EQ:
    case EIN__NE:
    case EIN__LT:
    case EIN__LE:
    case EIN__GT:
    case EIN__GE:
    case EIN__NEG:
    case EIN__ABS:
    case EIN__RELU:
    case EIN__TANH:
    case EIN__EXP:
    case EIN__LOG:
    case EIN__SQRT:
    case EIN__RSQRT:
    case EIN__ERF:
    case EIN__SIGMOID:
    case EIN__FLOORF:
    case EIN__CEILF:
    case EIN__SQUARE:
    case EIN__NFN: EIN_ASSERT(0 && "binary function");
    }
    int level = ein__kmax(a.level, b.level);
    if (pick)
        return (ein__ktext){ein__namef(g->ctx, "%s %s %s ? %s : %s", a.s,
                                       x->fn == EIN__MIN ? "<" : ">", b.s, a.s, b.s),
                            EIN__COND, level};
    return (ein__ktext){ein__namef(g->ctx, "%s%s(%s, %s)", call, f, a.s, b.s), EIN__PRIMARY, level};
}

static ein__ktext ein__kselect(ein__kgen *g, const ein__expr *x, int lane) {
    static const char *const cmp[] = {"==", "!=", "<", "<=", ">", ">="};
    ein__ktext v[4];
    int level = 0;
    for (int i = 0; i < 4; i++) {
        v[i] = ein__kvalue(g, x->kid[i], lane);
        level = ein__kmax(level, v[i].level);
    }
    EIN_ASSERT(x->fn >= EIN__EQ && x->fn <= EIN__GE);
    const char *s = ein__namef(g->ctx, "%s %s %s ? %s : %s", ein__kparen(g, v[0], EIN__TERM),
                               cmp[x->fn - EIN__EQ], ein__kparen(g, v[1], EIN__TERM),
                               ein__kparen(g, v[2], EIN__AND), ein__kparen(g, v[3], EIN__AND));
    return (ein__ktext){s, EIN__COND, level};
}

static ein__ktext ein__kwhen(ein__kgen *g, const ein__expr *x, int lane) {
    ein__kaxis a = ein__kaxis_of(g, x->ix[0], x->n, lane);
    ein__ktext zero = ein__kliteral(g, 0);
    if (!a.guard) return x->negate ? zero : ein__kvalue(g, x->kid[0], lane);
    ein__ktext v = ein__kvalue(g, x->kid[0], lane);
    const char *p = ein__kparen(g, v, EIN__AND);
    const char *s =
        ein__namef(g->ctx, "%s ? %s : %s", a.guard, x->negate ? zero.s : p, x->negate ? p : zero.s);
    return (ein__ktext){s, EIN__COND, ein__kmax(a.level, v.level)};
}

static ein__ktext ein__kidx(ein__kgen *g, const ein__expr *x, int lane) {
    ein__klin l = ein__klin_of(g, x->ix[0], lane);
    const ein__index *f = ein__ix_get(g->ctx, x->ix[0]);
    ein__ktext t = ein__klin_text(g, &l, lane);
    t.s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), ein__kparen(g, t, EIN__PRIMARY));
    t.prec = EIN__PREFIX;
    return f->q > 1 ? ein__kinfix(g, "/", t, ein__kliteral(g, (double)f->q), EIN__PRODUCT) : t;
}

// The value of an expression in one lane. The text may stand anywhere from its level on.
static ein__ktext ein__kvalue(ein__kgen *g, ein__ex ex, int lane) {
    bool shared = g->vec > 1 && !(ein__kmask(g, ex) & 1u << g->vec_slot);
    if (shared) lane = 0;
    const ein__kname *known = ein__kfind(g, EIN__N_EX, ex.i, lane);
    if (known) return known->t.text;
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    ein__ktext t = {0};
    switch ((ein__xop)x->op) {
    case EIN__X_CONST: return ein__kliteral(g, ein__kbits(x));
    case EIN__X_IDX: t = ein__kidx(g, x, lane); break;
    case EIN__X_READ: t = ein__kread(g, ex, lane); break;
    case EIN__X_UNARY: t = ein__kunary(g, x, lane); break;
    case EIN__X_BINARY: t = ein__kbinary(g, x, lane); break;
    case EIN__X_WHEN: t = ein__kwhen(g, x, lane); break;
    case EIN__X_SELECT: t = ein__kselect(g, x, lane); break;
    }
    if (shared || g->memo[ex.i].uses > 1 || strlen(t.s) > EIN__LONG)
        return ein__kname_value(g, ex, lane, t);
    return t;
}

static bool ein__kinteger(ein__kgen *g, ein__ex ex);

static bool ein__kinteger_of(ein__kgen *g, const ein__expr *x) {
    switch ((ein__xop)x->op) {
    case EIN__X_CONST: {
        double v = ein__kbits(x);
        return v > -9e15 && v < 9e15 && v == (double)(int64_t)v;
    }
    case EIN__X_IDX: return ein__ix_get(g->ctx, x->ix[0])->q == 1;
    case EIN__X_READ: {
        ein__dtype t = ein__val_get(g->ctx, (ein__val){x->val})->dtype;
        double v = ein__kbits(x);
        return t != EIN__F32 && t != EIN__F16 && t != EIN__BF16 && v > -9e15 && v < 9e15;
    }
    case EIN__X_UNARY:
        if (x->fn != EIN__NEG && x->fn != EIN__ABS && x->fn != EIN__RELU && x->fn != EIN__SQUARE)
            return false;
        break;
    case EIN__X_BINARY:
        if (x->fn == EIN__DIV || x->fn == EIN__POW) return false;
        break;
    case EIN__X_WHEN:
    case EIN__X_SELECT: break;
    }
    for (uint32_t i = 0; i < x->nkid; i++)
        if (!ein__kinteger(g, x->kid[i])) return false;
    return true;
}

// Integers are computed as integers where nothing else takes part.
static bool ein__kinteger(ein__kgen *g, ein__ex ex) {
    ein__kmemo *m = &g->memo[ex.i];
    if (!m->integer) m->integer = ein__kinteger_of(g, ein__ex_get(g->ctx, ex)) ? 1 : 2;
    return m->integer == 1;
}
/* ---- emit_map.c ---- */
// What all kernels share (which iterators exist, their order, parameters, the kernel's name), and
// the kernels that are maps: one output element, or four neighbours, a thread; transposes through
// tiles.

// How to launch a kernel, and what it moves and computes. The parameters are pointers to the first
// elements of `arg`, in that order; the last one is the output.
typedef struct ein__launch {
    unsigned grid[3], block[3];
    int smem;  // dynamic shared memory, bytes
    int narg;
    ein__val arg[EIN__MAX_ARGS];
    int flops_per_out;
    int64_t bytes_read, bytes_written;
    const char *name;   // "k_" hint "_" and 8 hex digits that identify the text
    unsigned needs;     // EIN__NEED_*: ein__emit_includes, ein__emit_helpers
    const char *extra;  // an argument behind the pointers, or NULL
} ein__launch;

// ------------------------------------------------------------------------------- scanning

typedef struct ein__krow {
    int64_t k[EIN__MAX_ITERS];
} ein__krow;

// How the slots occur: linear in the addresses (one row a read, the last row is the output's), or
// in places where an iterator must keep its identity. `near` has the guarded axes' coefficients as
// well: it says what is adjacent in memory, not what may be merged.
typedef struct ein__kscan {
    uint32_t pinned, used;
    ein__krow *row, *near;  // stb_ds arrays
    ein__ex *read;          // by row; none for the output
    unsigned pass;
} ein__kscan;

static ein__kscan ein__kscan_make(ein__kgen *g) { return (ein__kscan){.pass = ++g->passes}; }

static void ein__kscan_free(ein__kscan *s) {
    arrfree(s->row);
    arrfree(s->near);
    arrfree(s->read);
}

static bool ein__kaxis_free(const ein__kgen *g, ein__ix ix, int64_t n) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    return x->q == 1 && x->lo >= 0 && x->hi < n && !ein__ix_has_gather(g->ctx, ix);
}

static void ein__kscan_row(ein__kgen *g, ein__kscan *s, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    const ein__shape *shape = &ein__val_get(g->ctx, (ein__val){x->val})->shape;
    ein__kform f = {0};
    ein__krow row = {{0}}, near;
    for (int d = 0; d < shape->rank; d++) {
        int64_t stride = ein__kstride(g, (ein__val){x->val}, d);
        if (ein__kaxis_free(g, x->ix[d], shape->d[d])) {
            ein__kform_add(g, &f, stride, x->ix[d]);
            continue;
        }
        const ein__index *i = ein__ix_get(g->ctx, x->ix[d]);
        s->pinned |= ein__ix_uses(g->ctx, x->ix[d]);
        for (uint32_t t = 0; t < i->n; t++) {
            const ein__atom *a = ein__atom_get(g->ctx, i->t[t].atom);
            if (a->kind == EIN__ITER && i->q == 1)
                row.k[a->slot] += ein__kmul(g, stride, i->t[t].k);
        }
    }
    near = row;
    memset(&row, 0, sizeof row);
    ein__kform_recombine(g, &f);
    for (int i = 0; i < f.n; i++) {
        const ein__atom *a = ein__atom_get(g->ctx, f.t[i].atom);
        if (a->kind == EIN__ITER) row.k[a->slot] += f.t[i].k, near.k[a->slot] += f.t[i].k;
        else if (a->kind == EIN__GATHER) s->pinned |= ein__kmask(g, (ein__ex){a->ex});
        else s->pinned |= ein__ix_uses(g->ctx, (ein__ix){a->ix});
    }
    arrput(s->row, row);
    arrput(s->near, near);
    arrput(s->read, ex);
}

static void ein__kscan_expr(ein__kgen *g, ein__kscan *s, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    if (g->memo[ex.i].scanned == s->pass) return;
    g->memo[ex.i].scanned = s->pass;
    if (x->op == EIN__X_READ) {
        const ein__kinner *in = ein__kinner_of(g, x->val);
        if (in && in->put) ein__kscan_expr(g, s, ein__kbody(g, in->v));
        if (!in) ein__kscan_row(g, s, ex);
        return;
    }
    if (x->op == EIN__X_IDX || x->op == EIN__X_WHEN) s->pinned |= ein__ix_uses(g->ctx, x->ix[0]);
    ein__ex kid[4];
    ein__kkids(g, x, kid);
    for (uint32_t i = 0; i < x->nkid; i++) ein__kscan_expr(g, s, kid[i]);
}

static void ein__kscan_out(ein__kgen *g, ein__kscan *s, ein__val out) {
    ein__krow row = {{0}};
    int rank = ein__val_get(g->ctx, out)->shape.rank;
    for (int d = 0; d < rank; d++) row.k[d] = ein__kstride(g, out, d);
    arrput(s->row, row);
    arrput(s->near, row);
    arrput(s->read, (ein__ex){0});
    s->used = s->pinned;
    for (ptrdiff_t r = 0; r < arrlen(s->row); r++)
        for (int i = 0; i < EIN__MAX_ITERS; i++)
            if (s->row[r].k[i]) s->used |= 1u << i;
}

// Merges neighbours of an order that every address steps through as one: fewer divisions, longer
// vectors, plainer text. The inner slot stands for both.
static int ein__kmerge(ein__kgen *g, const ein__kscan *s, int *order, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (g->slot[order[i]].n == 1) g->slot[order[i]].gone = true;
        else order[kept++] = order[i];
    }
    n = kept;
    for (int i = n - 2; i >= 0; i--) {
        int a = order[i], b = order[i + 1];
        bool same = !(s->pinned & (1u << a | 1u << b));
        for (ptrdiff_t r = 0; same && r < arrlen(s->row); r++)
            same = s->row[r].k[a] == ein__kmul(g, s->row[r].k[b], g->slot[b].n);
        if (!same) continue;
        g->slot[b].n *= g->slot[a].n;
        g->slot[a].gone = true;
        for (int j = i; j + 1 < n; j++) order[j] = order[j + 1];
        n--;
    }
    return n;
}

// The output's slots, the one with the largest stride first.
static int ein__korder(const ein__kgen *g, ein__val out, int *order) {
    int n = ein__val_get(g->ctx, out)->shape.rank;
    for (int i = 0; i < n; i++) {
        int j = i;
        int64_t k = ein__kstride(g, out, i);
        for (; j > 0 && ein__kstride(g, out, order[j - 1]) < k; j--) order[j] = order[j - 1];
        order[j] = i;
    }
    return n;
}

// ------------------------------------------------------------------------------- set-up, parts

static void ein__kgen_free(ein__kgen *g) {
    arrfree(g->name);
    EIN_FREE(g->memo);
    for (int i = 0; i < EIN__KLEVELS; i++) ein__buf_free(&g->code[i]);
}

// Starts a kernel whose slots are those of `v`'s scope: traversal i0.., reduction r0...
static ein__kgen ein__kgen_make(ein_ctx *ctx, ein__val v, bool wide, int vec) {
    ein__kgen g = {.ctx = ctx, .wide = wide, .vec = vec, .vec_slot = -1};
    const ein__scope *s = ein__sc_get(ctx, ein__val_get(ctx, v)->scope);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool t = i < s->nt;
        g.slot[i].name = ein__namef(ctx, "%c%u", t ? 'i' : 'r', (unsigned)(t ? i : i - s->nt));
        g.slot[i].n = s->n[i];
    }
    size_t n = (size_t)arrlen(ctx->exprs.rec);
    g.memo = EIN_REALLOC(NULL, n * sizeof *g.memo);
    if (!g.memo) EIN_OUT_OF_MEMORY();
    memset(g.memo, 0, n * sizeof *g.memo);
    for (int i = 0; i < EIN__KLEVELS; i++) ein__put(&g.code[i], "");
    return g;
}

static int64_t ein__kcount_slots(const ein__kgen *g, const int *order, int n) {
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= g->slot[order[i]].n;
    return count;
}

// Declares the slots of an order from one number `from` that runs over all of them (an expression
// of unsigned type); slots nobody reads are left out.
static void ein__kdecompose(ein__kgen *g, ein__buf *b, const int *order, int n, uint32_t used,
                            const char *from) {
    int64_t below = 1;
    const char *type = ein__kint(g), *u = g->wide ? "ull" : "u";
    for (int i = n - 1; i >= 0; i--) {
        int s = order[i];
        int64_t size = g->slot[s].n / (s == g->vec_slot ? g->vec : 1);
        ein__buf e = {0};
        ein__put(&e, from);
        if (below > 1) ein__putf(&e, " / %lld%s", (long long)below, u);
        if (i > 0) ein__putf(&e, " %% %lld%s", (long long)size, u);
        const char *open = below > 1 || i > 0 ? "(" : "", *close = *open ? ")" : "";
        if (used & 1u << s) {
            ein__putf(b, "const %s %s = (%s)%s%s%s", type, g->slot[s].name, type, open, e.s, close);
            if (s == g->vec_slot && g->vec > 1) ein__putf(b, " * %d", g->vec);
            ein__put(b, ";\n");
        }
        ein__buf_free(&e);
        below *= size;
    }
}

// `y[at] = value;` or a vector of lanes; converts to the stored type.
static void ein__kstore(ein__kgen *g, ein__buf *b, ein__val out, const ein__kscan *scan,
                        const ein__ktext *value) {
    ein__klin l;
    const ein__krow *row = &scan->row[arrlen(scan->row) - 1];
    l.c = l.n = 0;
    for (int d = 0; d < ein__val_get(g->ctx, out)->shape.rank; d++) {
        const ein__kslot *s = &g->slot[d];
        ein__kterm t = {row->k[d], {s->name, EIN__PRIMARY, s->level}, d == g->vec_slot, 1, s->n};
        if (!s->gone) ein__klin_add(g, &l, t);
    }
    ein__ktext at = ein__klin_text(g, &l, 0);
    if (g->vec > 1) {
        ein__putf(b, "*reinterpret_cast<float4 *>(y%s%s) = make_float4(%s, %s, %s, %s);\n",
                  strcmp(at.s, "0") ? " + " : "", strcmp(at.s, "0") ? at.s : "", value[0].s,
                  value[1].s, value[2].s, value[3].s);
        return;
    }
    const char *s = value[0].s, *p = ein__kparen(g, value[0], EIN__PREFIX);
    ein__dtype t = ein__kdtype(g, out);
    if (g->num == EIN__NUM_DOUBLE && t <= EIN__BF16) s = ein__namef(g->ctx, "(float)%s", p);
    switch (t) {
    case EIN__F16:
        g->needs |= EIN__NEED_HALF;
        s = ein__namef(g->ctx, "__float2half_rn(%s)", s);
        break;
    case EIN__BF16:
        g->needs |= EIN__NEED_BF16;
        s = ein__namef(g->ctx, "__float2bfloat16_rn(%s)", s);
        break;
    case EIN__BOOL:
        s = ein__namef(g->ctx, "%s != %s", ein__kparen(g, value[0], EIN__TERM),
                       ein__kliteral(g, 0).s);
        break;
    case EIN__I8:
    case EIN__I32: s = ein__namef(g->ctx, "(%s)%s", ein__kctype(t), p); break;
    case EIN__I64:
        if (g->num != EIN__NUM_INT) s = ein__namef(g->ctx, "(%s)%s", ein__kctype(t), p);
        break;
    case EIN__F32:
        if (g->num == EIN__NUM_INT) s = ein__namef(g->ctx, "(float)%s", p);
        break;
    case EIN__NDTYPE: break;
    }
    ein__putf(b, "y[%s] = %s;\n", at.s, s);
}

static const char *ein__kparams(ein__kgen *g, ein__val out) {
    ein__buf b = {0};
    for (int i = 0; i < g->narg; i++) {
        ein__dtype t = ein__kdtype(g, g->arg[i]);
        g->needs |= t == EIN__F16 ? EIN__NEED_HALF : t == EIN__BF16 ? EIN__NEED_BF16 : 0u;
        ein__putf(&b, "const %s *__restrict__ p%d, ", ein__kctype(t), i);
    }
    ein__putf(&b, "%s *__restrict__ y", ein__kctype(ein__kdtype(g, out)));
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

// Elements of each parameter, but no more than the kernel's reads can touch.
static void ein__kbytes(ein__kgen *g, const ein__kscan *s, int64_t reads, ein__launch *l) {
    for (int i = 0; i < g->narg; i++) {
        const ein__value *v = ein__val_get(g->ctx, g->arg[i]);
        int64_t size = ein__elements(&v->shape), touch = 0;
        for (ptrdiff_t r = 0; r + 1 < arrlen(s->row); r++)
            if (ein__ex_get(g->ctx, s->read[r])->val == g->arg[i].i) touch += reads;
        if (touch && touch < size) size = touch;
        l->bytes_read += size * ein__dtype_size(ein__kdtype(g, g->arg[i]));
    }
}

// Expands the template twice: the name carries a hash of the text without it. The first two keys
// are the name and the parameters.
static void ein__kfinish(ein__kgen *g, ein__val out, const char *hint, const char *const *lines,
                         ein__key *keys, int nkey, ein__buf *text, ein__launch *l) {
    ein__buf draft = {0};
    keys[0] = (ein__key){"name", ""};
    keys[1] = (ein__key){"params", ein__kparams(g, out)};
    ein__tmpl_put(&draft, lines, keys, nkey);
    uint64_t h = ein__fnv(EIN__FNV_START, draft.s, draft.n);
    ein__buf_free(&draft);
    l->name = ein__namef(g->ctx, "k_%s_%08x", hint, (unsigned)((h ^ h >> 32) & 0xffffffffu));
    keys[0].text = l->name;
    ein__tmpl_put(text, lines, keys, nkey);
    memcpy(l->arg, g->arg, sizeof *g->arg * (size_t)g->narg);
    l->arg[g->narg] = out;
    l->narg = g->narg + 1;
    l->needs = g->needs;
    const ein__value *v = ein__val_get(g->ctx, out);
    l->bytes_written = ein__elements(&v->shape) * ein__dtype_size(v->dtype);
}

// Blocks of 256 once they fill a large device twice, smaller ones before.
static int ein__kblock(int64_t threads) {
    return threads >= 256 * 264 ? 256 : threads >= 128 * 264 ? 128 : 64;
}

static bool ein__kgrid(ein_ctx *ctx, ein__launch *l, int64_t blocks, int threads) {
    if (blocks > INT32_MAX) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "a kernel would need %lld blocks",
                   (long long)blocks);
        return false;
    }
    l->grid[0] = (unsigned)blocks;
    l->block[0] = (unsigned)threads;
    l->grid[1] = l->grid[2] = l->block[1] = l->block[2] = 1;
    return true;
}

static const char *ein__knumber(const ein__kgen *g, int64_t v) {
    return ein__namef(g->ctx, "%lld%s", (long long)v, g->wide ? "ull" : "u");
}

// Whether four lanes along the last slot of the order can be stored as one vector.
static bool ein__kvector_out(const ein__kgen *g, ein__val out, const int *order, int n,
                             const ein__kscan *s) {
    const ein__krow *row = &s->row[arrlen(s->row) - 1];
    if (g->naive || !n || ein__kdtype(g, out) != EIN__F32) return false;
    int v = order[n - 1];
    if (row->k[v] != 1 || g->slot[v].n % 4 || g->ctx->plan.layout[out.i].offset % 4) return false;
    for (int i = 0; i < n - 1; i++)
        if (row->k[order[i]] % 4) return false;
    return true;
}

// ------------------------------------------------------------------------------- map

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kmap(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                      ein__launch *l) {
    ein__val v = step->out;
    ein__ex body = ein__kbody(g, v);
    ein__kscan scan = ein__kscan_make(g);
    int order[EIN__MAX_RANK];
    ein__kscan_expr(g, &scan, body);
    ein__kscan_out(g, &scan, v);
    int n = ein__korder(g, v, order);
    n = ein__kmerge(g, &scan, order, n);
    bool ok = true;
    if (g->vec > 1) {
        ok = ein__kvector_out(g, v, order, n, &scan);
        if (ok) g->vec_slot = order[n - 1];
    }
    if (ok) {
        ein__kcount(g, body);
        if (ein__kdtype(g, v) > EIN__BF16 && ein__kinteger(g, body)) g->num = EIN__NUM_INT;
        ein__ktext value[4];
        for (int lane = 0; lane < g->vec; lane++) value[lane] = ein__kvalue(g, body, lane);
        ein__kstore(g, &g->code[0], v, &scan, value);
        ok = !g->scattered && !g->too_wide;
    }
    int64_t threads = ein__kcount_slots(g, order, n) / g->vec;
    int block = ein__kblock(threads);
    if (threads > INT32_MAX && !g->wide) ok = false;
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, (threads + block - 1) / block, block)) {
        ein__buf index = {0};
        ein__put(&index, "");
        ein__kdecompose(g, &index, order, n, scan.used, "id");
        ein__key keys[] = {{0},
                           {0},
                           {"block", ein__namef(g->ctx, "%d", block)},
                           {"number", ein__kunsigned(g)},
                           {"threads", ein__knumber(g, threads)},
                           {"index", index.s},
                           {"body", g->code[0].s}};
        ein__kbytes(g, &scan, threads * g->vec, l);
        l->flops_per_out = g->flops;
        ein__kfinish(g, v, hint, ein__tmpl_map, keys, 7, out, l);
        ein__buf_free(&index);
    }
    ein__kscan_free(&scan);
    return ok;
}

// ------------------------------------------------------------------------------- transpose

// The read to go through tiles: its unit stride lies along a slot that is not the output's. Gives
// that slot; -1: none.
static int ein__ktile_read(const ein__kgen *g, const ein__kscan *s, const int *order, int n,
                           ein__ex *read) {
    for (ptrdiff_t k = 0; n > 1 && k + 1 < arrlen(s->row); k++)
        for (int i = 0; i < n - 1; i++) {
            int a = order[i];
            if (s->row[k].k[a] != 1 || s->row[k].k[order[n - 1]] == 1) continue;
            if (s->pinned & (1u << a | 1u << order[n - 1]) || g->slot[a].n < 2) continue;
            *read = s->read[k];
            return a;
        }
    return -1;
}

// `(int)(id / below % n) * size`, with what does nothing left out; `*below` grows.
static const char *ein__kdigit(ein__kgen *g, int64_t *below, int64_t n, int size) {
    const char *s = "id", *u = g->wide ? "ull" : "u";
    if (n == 1) return "0";
    if (*below > 1) s = ein__namef(g->ctx, "%s / %lld%s", s, (long long)*below, u);
    s = ein__namef(g->ctx, "(%s)(%s %% %lld%s)", ein__kint(g), s, (long long)n, u);
    *below *= n;
    if (size > 1) s = ein__namef(g->ctx, "%s * %d", s, size);
    return s;
}

static void ein__ktile_index(ein__kgen *g, ein__buf *b, const int *rest, int n, int a, int last) {
    int64_t ta = (g->slot[a].n + 31) / 32, tb = (g->slot[last].n + 31) / 32, below = 1;
    const char *t = ein__kint(g);
    ein__putf(b, "const %s fa = %s;\n", t, ein__kdigit(g, &below, ta, 32));
    ein__putf(b, "const %s fb = %s;\n", t, ein__kdigit(g, &below, tb, 32));
    for (int i = n - 1; i >= 0; i--)
        ein__putf(b, "const %s %s = %s;\n", t, g->slot[rest[i]].name,
                  ein__kdigit(g, &below, g->slot[rest[i]].n, 1));
}

// 32 x 32 tiles: read along the operand's innermost dimension, written along the result's.
static bool ein__ktranspose(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                            ein__launch *l) {
    ein__val v = step->out;
    ein__ex body = ein__kbody(g, v), read = {0};
    ein__kscan scan = ein__kscan_make(g);
    int order[EIN__MAX_RANK], rest[EIN__MAX_RANK], nrest = 0;
    ein__kscan_expr(g, &scan, body);
    ein__kscan_out(g, &scan, v);
    int n = ein__kmerge(g, &scan, order, ein__korder(g, v, order));
    int a = ein__ktile_read(g, &scan, order, n, &read);
    if (a < 0 || g->vec > 1) {
        ein__kscan_free(&scan);
        if (a >= 0) return false;
        for (int i = 0; i < EIN__MAX_ITERS; i++) g->slot[i].gone = false;
        const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, v)->scope);
        for (uint32_t i = 0; i < s->nt; i++) g->slot[i].n = s->n[i];
        return ein__kmap(g, step, hint, out, l);
    }
    int b = order[n - 1];
    for (int i = 0; i < n - 1; i++)
        if (order[i] != a) rest[nrest++] = order[i];
    g->slot[a].level = g->slot[b].level = 1;
    if (ein__kdtype(g, v) > EIN__BF16 && ein__kinteger(g, body)) g->num = EIN__NUM_INT;
    ein__ktext element = ein__kread(g, read, 0);
    ein__buf index = {0}, before = g->code[0], load = g->code[1];
    g->code[0] = g->code[1] = (ein__buf){0};
    ein__put(&g->code[0], "");
    ein__put(&g->code[1], "");
    ein__kforget(g, 1);
    g->over[g->nover].ex = read;
    g->over[g->nover++].text = ein__kt(g, EIN__PRIMARY, 1, "tile[threadIdx.x][j + threadIdx.y]");
    ein__kcount(g, body);
    ein__ktext value = ein__kvalue(g, body, 0);
    ein__kstore(g, &g->code[1], v, &scan, &value);
    int64_t tiles = (g->slot[a].n + 31) / 32 * ((g->slot[b].n + 31) / 32);
    tiles *= ein__kcount_slots(g, rest, nrest);
    bool ok = !g->too_wide;
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, tiles, 32)) {
        l->block[1] = 8;
        ein__ktile_index(g, &index, rest, nrest, a, b);
        ein_ctx *c = g->ctx;
        ein__key keys[] = {{0},
                           {0},
                           {"T", ein__knum_type(g)},
                           {"number", ein__kunsigned(g)},
                           {"many", tiles > 1 ? "1" : ""},
                           {"int", ein__kint(g)},
                           {"index", index.s},
                           {"a", g->slot[a].name},
                           {"b", g->slot[b].name},
                           {"na", ein__namef(c, "%lld", (long long)g->slot[a].n)},
                           {"nb", ein__namef(c, "%lld", (long long)g->slot[b].n)},
                           {"before", before.s},
                           {"load", load.s},
                           {"value", element.s},
                           {"middle", g->code[0].s},
                           {"store", g->code[1].s}};
        int64_t count = ein__kcount_slots(g, order, n);
        ein__kbytes(g, &scan, count, l);
        l->flops_per_out = g->flops;
        ein__kfinish(g, v, hint, ein__tmpl_transpose, keys, 16, out, l);
    }
    ein__buf_free(&index);
    ein__buf_free(&before);
    ein__buf_free(&load);
    ein__kscan_free(&scan);
    return ok;
}
/* ---- emit_reduce.c ---- */
// Reductions: one output element (or four neighbours) a thread with the reduction in loops; for few
// outputs and long reductions a warp, a block, or a column of threads shares one output. The order
// of additions is fixed in every form.

static const char *ein__kidentity(ein__kgen *g, ein__red r) {
    switch (r) {
    case EIN__R_PROD: return ein__kliteral(g, 1).s;
    case EIN__R_MAX: return g->num == EIN__NUM_INT ? "(-9223372036854775807ll - 1)" : "-INFINITY";
    case EIN__R_MIN: return g->num == EIN__NUM_INT ? "9223372036854775807ll" : "INFINITY";
    case EIN__R_SUM:
    case EIN__R_NONE: break;
    }
    return ein__kliteral(g, 0).s;
}

// `acc` combined with `value`. Maximum and minimum skip NaN, as fmaxf does.
static const char *ein__kcombine(ein__kgen *g, ein__red r, const char *acc, const char *value) {
    ein_ctx *c = g->ctx;
    const char *f = g->num == EIN__NUM_FLOAT ? "f" : "";
    if (r == EIN__R_SUM) return ein__namef(c, "%s += %s;\n", acc, value);
    if (r == EIN__R_PROD) return ein__namef(c, "%s *= %s;\n", acc, value);
    bool max = r == EIN__R_MAX;
    if (g->num != EIN__NUM_INT)
        return ein__namef(c, "%s = f%s%s(%s, %s);\n", acc, max ? "max" : "min", f, acc, value);
    return ein__namef(c, "if (%s %s %s) %s = %s;\n", value, max ? ">" : "<", acc, acc, value);
}

static const char *ein__kred_name(ein__red r) {
    static const char *const name[] = {"", "sum", "prod", "max", "min"};
    return name[r];
}

static void ein__kindent(ein__buf *out, const char *text, int by) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n && *text != '#') ein__putf(out, "%*s", by, "");
        ein__put_n(out, text, n);
        ein__put(out, "\n");
        text += n + (text[n] != 0);
    }
}

// The loops over an order's slots around `core`, each level's own statements first. Small loops are
// unrolled from the inside while at most 64 bodies result.
static void ein__kloops(ein__kgen *g, ein__buf *out, const int *order, int n, const char *core) {
    ein__buf text = {0};
    int64_t bodies = 1;
    ein__put(&text, core);
    for (int i = n - 1; i >= 0; i--) {
        const ein__kslot *s = &g->slot[order[i]];
        ein__buf loop = {0};
        bodies = s->n <= 16 && bodies ? bodies * s->n : 0;
        if (bodies > 64) bodies = 0;
        if (bodies && !g->naive) ein__put(&loop, "#pragma unroll\n");
        ein__putf(&loop, "for (%s %s = 0; %s < %lld; %s++) {\n", ein__kint(g), s->name, s->name,
                  (long long)s->n, s->name);
        ein__kindent(&loop, g->code[i + 1].s, 4);
        ein__kindent(&loop, text.s, 4);
        ein__put(&loop, "}\n");
        ein__buf_free(&text);
        text = loop;
    }
    ein__put(out, text.s);
    ein__buf_free(&text);
}

// A reduction being emitted: the scope, the orders of its traversal and reduction slots, the parts.
typedef struct ein__kred {
    ein__val acc, out;
    ein__red reduce;
    int nt, ns, t[EIN__MAX_ITERS], s[EIN__MAX_ITERS];
    int64_t outputs, count;
    ein__kscan scan;
    ein__buf index, init, core, post, store;
} ein__kred;

static void ein__kred_free(ein__kred *r) {
    ein__kscan_free(&r->scan);
    ein__buf_free(&r->index);
    ein__buf_free(&r->init);
    ein__buf_free(&r->core);
    ein__buf_free(&r->post);
    ein__buf_free(&r->store);
}

// The reduction slots by falling stride, so that neighbouring lanes read neighbours.
static void ein__ksort_reduction(ein__kred *r) {
    for (int i = 1; i < r->ns; i++) {
        for (int j = i; j > 0; j--) {
            int64_t a = 0, b = 0;
            for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.row); k++) {
                int64_t x = r->scan.near[k].k[r->s[j - 1]], y = r->scan.near[k].k[r->s[j]];
                a = x > a ? x : a;
                b = y > b ? y : b;
            }
            if (a >= b) break;
            int t = r->s[j - 1];
            r->s[j - 1] = r->s[j];
            r->s[j] = t;
        }
    }
}

// Scans both definitions, orders and merges the slots.
static ein__kred ein__kred_make(ein__kgen *g, const ein__step *step) {
    ein__kred r = {.acc = step->val[0], .out = step->out, .scan = ein__kscan_make(g)};
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, r.acc)->scope);
    r.reduce = (ein__red)s->reduce;
    g->inner[g->ninner++] = (ein__kinner){r.acc, {"acc"}, false};
    ein__kscan_expr(g, &r.scan, s->body);
    if (step->nval > 1) ein__kscan_expr(g, &r.scan, ein__kbody(g, r.out));
    ein__kscan_out(g, &r.scan, r.out);
    r.nt = ein__korder(g, r.out, r.t);
    for (uint32_t i = 0; i < s->ns; i++) r.s[r.ns++] = (int)(s->nt + i);
    ein__ksort_reduction(&r);
    r.nt = ein__kmerge(g, &r.scan, r.t, r.nt);
    r.ns = ein__kmerge(g, &r.scan, r.s, r.ns);
    r.outputs = ein__kcount_slots(g, r.t, r.nt);
    r.count = ein__kcount_slots(g, r.s, r.ns);
    if (ein__kdtype(g, r.out) > EIN__BF16 && ein__kinteger(g, s->body)) {
        g->num = EIN__NUM_INT;
        if (step->nval > 1 && !ein__kinteger(g, ein__kbody(g, r.out))) g->num = EIN__NUM_FLOAT;
    }
    ein__put(&r.index, "");
    ein__put(&r.post, "");
    return r;
}

// Fills the parts: `levels` says that each reduction slot has a loop of its own; otherwise one loop
// over `k` declares them all.
static void ein__kred_parts(ein__kgen *g, ein__kred *r, const ein__step *step, bool levels,
                            ein__launch *l) {
    static const char *const acc[4] = {"acc0", "acc1", "acc2", "acc3"};
    for (int i = 0; i < r->ns; i++) g->slot[r->s[i]].level = levels ? i + 1 : 1;
    ein__ex body = ein__kbody(g, r->acc);
    ein__kcount(g, body);
    int64_t flops = (g->flops + 1) * r->count;
    g->flops = 0;
    for (int i = 0; i < g->vec; i++) {
        const char *a = g->vec > 1 ? acc[i] : "acc";
        ein__ktext v = ein__kvalue(g, body, i);
        if (g->num == EIN__NUM_INT) v = ein__kname_value(g, body, i, v);
        g->inner[0].text[i] = a;
        ein__put(&r->core, ein__kcombine(g, r->reduce, a, v.s));
        ein__putf(&r->init, "%s %s = %s;\n", ein__knum_type(g), a, ein__kidentity(g, r->reduce));
    }
    g->post = &r->post;
    ein__ktext value[4];
    if (step->nval > 1) {
        body = ein__kbody(g, r->out);
        ein__kcount(g, body);
    }
    for (int i = 0; i < g->vec; i++) {
        value[i] = (ein__ktext){g->inner[0].text[i], EIN__PRIMARY, 0};
        if (step->nval > 1) value[i] = ein__kvalue(g, body, i);
    }
    ein__kstore(g, &r->store, r->out, &r->scan, value);
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    flops += g->flops;
    l->flops_per_out = flops > INT32_MAX ? INT32_MAX : (int)flops;
    ein__kbytes(g, &r->scan, r->outputs * r->count, l);
}

static bool ein__kreduce_thread(ein__kgen *g, ein__kred *r, const ein__step *step, const char *hint,
                                ein__buf *out, ein__launch *l) {
    if (g->vec > 1) {
        if (r->outputs / 4 < 16384 || !ein__kvector_out(g, r->out, r->t, r->nt, &r->scan))
            return false;
        g->vec_slot = r->t[r->nt - 1];
    }
    ein__kred_parts(g, r, step, true, l);
    int64_t threads = r->outputs / g->vec;
    if (g->too_wide || (threads > INT32_MAX && !g->wide)) return false;
    int block = ein__kblock(threads);
    if (g->overflow || !ein__kgrid(g->ctx, l, (threads + block - 1) / block, block)) return true;
    ein__buf loops = {0};
    ein__put(&loops, g->code[0].s);
    ein__put(&loops, r->init.s);
    ein__kloops(g, &loops, r->s, r->ns, r->core.s);
    ein__put(&loops, r->post.s);
    ein__put(&loops, r->store.s);
    ein__key keys[] = {{0},
                       {0},
                       {"block", ein__namef(g->ctx, "%d", block)},
                       {"number", ein__kunsigned(g)},
                       {"threads", ein__knumber(g, threads)},
                       {"index", r->index.s},
                       {"body", loops.s}};
    ein__kfinish(g, r->out, hint, ein__tmpl_map, keys, 7, out, l);
    ein__buf_free(&loops);
    return true;
}

typedef enum { EIN__SHARE_NONE, EIN__SHARE_WARP, EIN__SHARE_BLOCK, EIN__SHARE_COLUMN } ein__kshare;

// Who works on one output. The read with the most elements decides: where neighbouring terms are
// adjacent in memory over a warp's length, lanes take terms; where neighbouring outputs are, lanes
// take outputs and the terms are split over the rows of a block.
static ein__kshare ein__kshare_of(const ein__kgen *g, const ein__kred *r) {
    if (r->outputs > 16384 || r->count < 32 || r->count > INT32_MAX) return EIN__SHARE_NONE;
    int64_t most = 0, terms = 0, outputs = 0;
    for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.near); k++) {
        const ein__krow *row = &r->scan.near[k];
        int64_t size = 1, t = 0, o = 0;
        for (int i = 0; i < r->ns + r->nt; i++) {
            int s = i < r->ns ? r->s[i] : r->t[i - r->ns];
            int64_t *run = i < r->ns ? &t : &o;
            if (row->k[s]) size *= g->slot[s].n;
            if (row->k[s] == 1) *run = g->slot[s].n;
        }
        if (size > most) most = size, terms = t, outputs = o;
    }
    if (terms < 32 && outputs >= 8) return EIN__SHARE_COLUMN;
    return r->outputs <= 528 && r->count >= 2048 ? EIN__SHARE_BLOCK : EIN__SHARE_WARP;
}

static bool ein__kreduce_shared(ein__kgen *g, ein__kred *r, ein__kshare how, const ein__step *step,
                                const char *hint, ein__buf *out, ein__launch *l) {
    if (g->vec > 1) return false;
    ein__kred_parts(g, r, step, false, l);
    if (g->too_wide) return false;
    bool column = how == EIN__SHARE_COLUMN, warp = how == EIN__SHARE_WARP;
    bool block = how == EIN__SHARE_BLOCK;
    int warps = !warp ? 8 : r->outputs >= 4096 ? 4 : 1;
    int64_t each = column ? 32 : warp ? warps : 1;
    if (g->overflow || !ein__kgrid(g->ctx, l, (r->outputs + each - 1) / each, warps * 32))
        return true;
    if (column) l->block[0] = 32, l->block[1] = 8;
    ein__buf terms = {0};
    ein__kdecompose(g, &terms, r->s, r->ns, r->scan.used, "k");
    ein__put(&terms, g->code[1].s);
    ein__put(&terms, r->core.s);
    ein__key keys[] = {{0},
                       {0},
                       {"number", ein__kunsigned(g)},
                       {"outputs", block ? ein__namef(g->ctx, "%lld", (long long)r->outputs)
                                         : ein__knumber(g, r->outputs)},
                       {"index", r->index.s},
                       {"before", g->code[0].s},
                       {"identity", ein__kidentity(g, r->reduce)},
                       {"count", ein__knumber(g, r->count)},
                       {"terms", terms.s},
                       {"after", r->post.s},
                       {"store", r->store.s},
                       {"op", ein__kred_name(r->reduce)},
                       {"warps", ein__namef(g->ctx, "%d", warps)},
                       {"block", ein__namef(g->ctx, "%d", 32 * warps)}};
    if (column) {
        keys[11] = (ein__key){"join", ein__kcombine(g, r->reduce, "acc", "part[j][threadIdx.x]")};
        ein__kfinish(g, r->out, hint, ein__tmpl_reduce_column, keys, 12, out, l);
    } else {
        g->needs |= (unsigned)EIN__NEED_WARP << r->reduce;
        if (!warp) g->needs |= (unsigned)EIN__NEED_BLOCK << r->reduce;
        ein__kfinish(g, r->out, hint, warp ? ein__tmpl_reduce_warp : ein__tmpl_reduce_block, keys,
                     warp ? 14 : 12, out, l);
    }
    ein__buf_free(&terms);
    return true;
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kreduce(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                         ein__launch *l) {
    ein__kred r = ein__kred_make(g, step);
    ein__kshare how = g->num == EIN__NUM_FLOAT ? ein__kshare_of(g, &r) : EIN__SHARE_NONE;
    bool ok = how == EIN__SHARE_NONE ? ein__kreduce_thread(g, &r, step, hint, out, l)
                                     : ein__kreduce_shared(g, &r, how, step, hint, out, l);
    ein__kred_free(&r);
    return ok;
}
/* ---- emit_row.c ---- */
// Rows: reductions over the trailing iterators, each one pass over the row, then a map that stores.
// A warp a row (up to 1024 elements) or a block a row; a thread a row where neighbouring rows, not
// neighbouring elements, are adjacent in memory. What several passes read stays in registers when
// that is at most 32 of them.

typedef enum { EIN__ROW_WARP, EIN__ROW_BLOCK, EIN__ROW_THREAD } ein__krow_form;

enum { EIN__ROW_REGISTERS = 32 };

typedef struct ein__krows {
    ein__kscan scan;
    ein__krow_form form;
    int nt, ns, t[EIN__MAX_ITERS], s[EIN__MAX_ITERS];
    uint32_t rest;  // the slots that make up a row
    int64_t rows, count;
    int turns;  // elements of a thread when they are unrolled, else 0
    ein__buf index, phases;
} ein__krows;

static void ein__krows_free(ein__krows *r) {
    ein__kscan_free(&r->scan);
    ein__buf_free(&r->index);
    ein__buf_free(&r->phases);
}

// The iterators of the row and of the rest, ordered and merged over all definitions of the step.
static bool ein__krows_make(ein__kgen *g, const ein__step *step, ein__krows *r) {
    const ein__scope *s = NULL;
    for (int i = 0; i < step->nval; i++) {
        const ein__scope *x = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[i])->scope);
        bool last = i + 1 == step->nval;
        if (!s && x->reduce != EIN__R_NONE) s = x;
        if (!last)
            g->inner[g->ninner++] = (ein__kinner){
                step->val[i], {ein__namef(g->ctx, "s%d", i)}, x->reduce == EIN__R_NONE};
        if (last && x->reduce != EIN__R_NONE) return false;
        if (!(last || x->reduce == EIN__R_NONE)) ein__kscan_expr(g, &r->scan, x->body);
        if (last) ein__kscan_expr(g, &r->scan, x->body);
    }
    if (!s) return false;
    ein__kscan_out(g, &r->scan, step->out);
    int order[EIN__MAX_RANK], n = ein__korder(g, step->out, order);
    for (int i = 0; i < n; i++)
        if (order[i] < (int)s->nt) r->t[r->nt++] = order[i];
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) r->s[r->ns++] = (int)i;
    for (uint32_t i = 0; i < s->nt + s->ns; i++) {
        bool row = i < s->nt;
        g->slot[i].name =
            ein__namef(g->ctx, "%c%u", row ? 'i' : 'r', (unsigned)(row ? i : i - s->nt));
        g->slot[i].n = s->n[i];
        if (!row) r->rest |= 1u << i;
    }
    r->nt = ein__kmerge(g, &r->scan, r->t, r->nt);
    r->ns = ein__kmerge(g, &r->scan, r->s, r->ns);
    r->rows = ein__kcount_slots(g, r->t, r->nt);
    r->count = ein__kcount_slots(g, r->s, r->ns);
    ein__put(&r->index, "");
    ein__put(&r->phases, "");
    return true;
}

static void ein__krows_choose(ein__krows *r) {
    bool along_rows = false, along_row = false;
    for (ptrdiff_t k = 0; k < arrlen(r->scan.row); k++) {
        for (int i = 0; i < r->nt; i++) along_rows |= r->scan.near[k].k[r->t[i]] == 1;
        for (int i = 0; i < r->ns; i++) along_row |= r->scan.near[k].k[r->s[i]] == 1;
    }
    bool many = r->rows >= 2048 || r->count <= 64;
    if ((along_rows && !along_row && many) || r->count > INT32_MAX) r->form = EIN__ROW_THREAD;
    else r->form = r->count <= 1024 ? EIN__ROW_WARP : EIN__ROW_BLOCK;
    int step = r->form == EIN__ROW_WARP ? 32 : 256;
    int64_t turns = (r->count + step - 1) / step;
    r->turns = r->form != EIN__ROW_THREAD && turns <= EIN__ROW_REGISTERS ? (int)turns : 0;
}

// Reads that more than one pass makes, and that step along the row: by pass, as bits.
static void ein__krows_passes(ein__kgen *g, const ein__step *step, ein__krows *r,
                              uint32_t *passes) {
    bool again = false;
    for (int p = 0; p < step->nval; p++) {
        if (p + 1 < step->nval && g->inner[p].put) continue;
        ein__kscan one = ein__kscan_make(g);
        ein__kscan_expr(g, &one, ein__kbody(g, step->val[p]));
        for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.read); k++)
            for (ptrdiff_t j = 0; j < arrlen(one.read); j++)
                if (one.read[j].i == r->scan.read[k].i && (ein__kmask(g, one.read[j]) & r->rest)) {
                    again |= passes[k] != 0;
                    passes[k] |= 1u << p;
                }
        ein__kscan_free(&one);
    }
    if (!again) r->turns = 0;
}

// Whether identifier `name` occurs in a text.
static bool ein__kmentions(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *s = text; (s = strstr(s, name)); s += n) {
        bool before = s > text && (ein__tmpl_word(s[-1]) || s[-1] == '_');
        if (!before && !ein__tmpl_word(s[n]) && s[n] != '_') return true;
    }
    return false;
}

// One element's statements, with the names they need, as a loop over the row.
static void ein__krows_loop(ein__kgen *g, ein__krows *r, const char *core) {
    ein__buf *out = &r->phases, body = {0};
    if (r->form == EIN__ROW_THREAD) {
        ein__kloops(g, out, r->s, r->ns, core);
        return;
    }
    const char *u = ein__kunsigned(g);
    int step = r->form == EIN__ROW_WARP ? 32 : 256;
    uint32_t used = 0;
    for (int i = 0; i < r->ns; i++) {
        const char *name = g->slot[r->s[i]].name;
        if (ein__kmentions(g->code[1].s, name) || ein__kmentions(core, name)) used |= 1u << r->s[i];
    }
    ein__kdecompose(g, &body, r->s, r->ns, used, "k");
    ein__put(&body, g->code[1].s);
    ein__put(&body, core);
    if (r->turns) {
        ein__put(out, "#pragma unroll\n");
        ein__putf(out, "for (int j = 0; j < %d; j++) {\n", r->turns);
        if (used || r->count % step)
            ein__putf(out, "    const %s k = lane + %du * (unsigned)j;\n", u, step);
        if (r->count % step) {
            ein__putf(out, "    if (k < %s) {\n", ein__knumber(g, r->count));
            ein__kindent(out, body.s, 8);
            ein__put(out, "    }\n");
        } else {
            ein__kindent(out, body.s, 4);
        }
    } else {
        ein__put(out, "#pragma unroll 4\n");
        ein__putf(out, "for (%s k = lane; k < %s; k += %du) {\n", u, ein__knumber(g, r->count),
                  step);
        ein__kindent(out, body.s, 4);
    }
    ein__put(out, "}\n");
    ein__buf_free(&body);
}

// One pass: reduction number p, or the final map.
static void ein__krows_phase(ein__kgen *g, const ein__step *step, ein__krows *r, int p,
                             const uint32_t *passes) {
    ein__val v = step->val[p];
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, v)->scope);
    bool last = p + 1 == step->nval;
    ein__buf core = {0}, lines = {0};
    for (ptrdiff_t k = 0; k + 1 < arrlen(r->scan.read) && r->turns; k++) {
        bool first = passes[k] >> p & 1 && !(passes[k] & ((1u << p) - 1));
        if (!first || !(passes[k] & (passes[k] - 1))) continue;
        if ((g->nover + 1) * r->turns > EIN__ROW_REGISTERS || g->nover == 4) continue;
        ein__ktext load = ein__kread(g, r->scan.read[k], 0);
        const char *name = ein__namef(g->ctx, "c%d[j]", g->nover);
        ein__putf(&r->phases, "float c%d[%d];\n", g->nover, r->turns);
        ein__putf(&g->code[1], "%s = %s;\n", name, load.s);
        g->over[g->nover].ex = r->scan.read[k];
        g->over[g->nover++].text = (ein__ktext){name, EIN__NAMED, 1};
    }
    ein__kuncount(g);
    ein__kcount(g, s->body);
    ein__ktext value = ein__kvalue(g, s->body, 0);
    if (last) {
        ein__kstore(g, &core, step->out, &r->scan, &value);
    } else {
        const char *name = g->inner[p].text[0];
        ein__red red = (ein__red)s->reduce;
        ein__put(&core, ein__kcombine(g, red, name, value.s));
        ein__putf(&lines, "float %s = %s;\n", name, ein__kidentity(g, red));
    }
    ein__put(&r->phases, g->code[0].s);
    if (lines.n) ein__put(&r->phases, lines.s);
    ein__krows_loop(g, r, core.s);
    if (!last && r->form != EIN__ROW_THREAD) {
        bool warp = r->form == EIN__ROW_WARP;
        const char *name = g->inner[p].text[0], *op = ein__kred_name((ein__red)s->reduce);
        g->needs |= (unsigned)EIN__NEED_WARP << s->reduce;
        if (!warp) g->needs |= (unsigned)EIN__NEED_BLOCK << s->reduce;
        if (warp) ein__putf(&r->phases, "%s = warp_%s(%s);\n", name, op, name);
        else ein__putf(&r->phases, "%s = block_%s(%s, part[%d]);\n", name, op, name, p);
    }
    ein__kforget(g, 1);
    for (int i = 0; i < EIN__KLEVELS; i++) {
        ein__buf_free(&g->code[i]);
        ein__put(&g->code[i], "");
    }
    ein__buf_free(&core);
    ein__buf_free(&lines);
}

static void ein__krows_finish(ein__kgen *g, const ein__step *step, ein__krows *r, const char *hint,
                              ein__buf *out, ein__launch *l) {
    bool block = r->form == EIN__ROW_BLOCK, warp = r->form == EIN__ROW_WARP;
    int warps = r->rows >= 4096 ? 8 : r->rows >= 1024 ? 4 : 1;
    int threads = block ? 256 : warp ? 32 * warps : ein__kblock(r->rows);
    int64_t each = block ? 1 : warp ? warps : threads;
    if (!ein__kgrid(g->ctx, l, (r->rows + each - 1) / each, threads)) return;
    const char *n = ein__namef(g->ctx, "%d", block ? step->nval - 1 : warp ? warps : threads);
    ein__kdecompose(g, &r->index, r->t, r->nt, r->scan.used, "id");
    ein__kbytes(g, &r->scan, r->rows * r->count, l);
    l->flops_per_out = g->flops + step->nval;
    ein__key keys[] = {
        {0},
        {0},
        {"number", ein__kunsigned(g)},
        {warp || block ? "rows" : "threads",
         block ? ein__namef(g->ctx, "%lld", (long long)r->rows) : ein__knumber(g, r->rows)},
        {block  ? "parts"
         : warp ? "warps"
                : "block",
         n},
        {"index", r->index.s},
        {warp || block ? "phases" : "body", r->phases.s},
        {"block", ein__namef(g->ctx, "%d", threads)}};
    ein__kfinish(g, step->out, hint,
                 block  ? ein__tmpl_row_block
                 : warp ? ein__tmpl_row_warp
                        : ein__tmpl_map,
                 keys, warp ? 8 : 7, out, l);
}

// One attempt; false: try again with 64-bit indices.
static bool ein__krow_kernel(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                             ein__launch *l) {
    ein__krows r = {.scan = ein__kscan_make(g)};
    if (g->vec > 1) return false;
    bool ok = ein__krows_make(g, step, &r);
    EIN_ASSERT(ok);
    if (ok) {
        ein__krows_choose(&r);
        for (int i = 0; i < r.ns; i++)
            g->slot[r.s[i]].level = r.form == EIN__ROW_THREAD ? i + 1 : 1;
        uint32_t *passes = EIN_REALLOC(NULL, (size_t)arrlen(r.scan.read) * sizeof *passes);
        if (!passes) EIN_OUT_OF_MEMORY();
        memset(passes, 0, (size_t)arrlen(r.scan.read) * sizeof *passes);
        ein__krows_passes(g, step, &r, passes);
        for (int p = 0; p < step->nval; p++)
            if (p + 1 == step->nval || !g->inner[p].put) ein__krows_phase(g, step, &r, p, passes);
        ok = !g->too_wide && (r.rows <= INT32_MAX || g->wide);
        if (ok && !g->overflow) ein__krows_finish(g, step, &r, hint, out, l);
        EIN_FREE(passes);
    }
    ein__krows_free(&r);
    return ok;
}
/* ---- emit_band.c ---- */
// Products whose second operand moves with the row: G2BMM, out[m,j] = sum p a[m,p] b[m + d j + c,
// p], and GBMM, out[m,p] = sum j a[m,j] b[m + d j + c, p], with any batch iterators around. Rows m
// of one residue modulo d meet only rows of b of one residue, and within a residue the band is
// dense: with m = d (m0 + row) + rho and u = row + j, b's position is d (m0 + u) + rho + c. So a
// tile of rows and a tile of u's is an ordinary tiled product, of which G2BMM stores the band and
// for which GBMM takes 0 outside of it. A band that runs backwards (d < 0) is taken from its end.

typedef struct ein__kband_form {
    const ein__expr *a, *b;
    int m, j, p, axis;  // slots; the moving dimension of b
    int64_t d, c;       // its form m + d j + c; m + d (extent of j - 1 - j) + c when `back`
    bool scores, back;  // scores: G2BMM, j is a traversal iterator, p is summed
    double alpha;
    int nbatch, batch[EIN__MAX_ITERS];
} ein__kband_form;

// Coefficients of a read's address, the moving axis left out. False when it is not linear.
static bool ein__kband_row(ein__kgen *g, const ein__expr *x, int skip, ein__krow *row,
                           int64_t *base) {
    const ein__shape *s = &ein__val_get(g->ctx, (ein__val){x->val})->shape;
    ein__kform f = {0};
    for (int d = 0; d < s->rank; d++) {
        if (d == skip) continue;
        if (!ein__kaxis_free(g, x->ix[d], s->d[d])) return false;
        ein__kform_add(g, &f, ein__kstride(g, (ein__val){x->val}, d), x->ix[d]);
    }
    ein__kform_recombine(g, &f);
    *base = f.c;
    for (int i = 0; i < f.n; i++) {
        const ein__atom *a = ein__atom_get(g->ctx, f.t[i].atom);
        if (a->kind != EIN__ITER) return false;
        row->k[a->slot] += f.t[i].k;
    }
    return true;
}

static bool ein__kband_parse(ein__kgen *g, const ein__scope *s, ein__kband_form *f, ein__krow *a,
                             ein__krow *b, int64_t *base_a, int64_t *base_b, ein__band_tile *t) {
    ein__band k;
    memset(a, 0, sizeof *a);
    memset(b, 0, sizeof *b);
    if (!ein__match_band(g->ctx, s, &k)) return false;
    *f = (ein__kband_form){.a = k.a,
                           .b = k.b,
                           .m = k.m,
                           .j = k.j,
                           .p = k.p,
                           .axis = k.axis,
                           .d = k.d < 0 ? -k.d : k.d,
                           .c = ein__ix_get(g->ctx, k.b->ix[k.axis])->lo,
                           .scores = !k.reduced,
                           .back = k.d < 0,
                           .alpha = k.alpha};
    *t = ein__band_tiles(&k);
    for (uint32_t i = 0; i < s->nt; i++)
        if ((int)i != f->m && (int)i != f->j && (int)i != f->p) f->batch[f->nbatch++] = (int)i;
    return ein__kband_row(g, f->a, -1, a, base_a) && ein__kband_row(g, f->b, f->axis, b, base_b);
}

// The place in the band that has place `at` from where the tile's product starts.
static const char *ein__kband_place(ein__kgen *g, const ein__kband_form *f, const char *at) {
    if (!f->back) return at;
    return ein__namef(g->ctx, "%lld - (%s)", (long long)g->slot[f->j].n - 1, at);
}

// `base + k0 * t0 + ...` over the batch iterators and some texts.
static const char *ein__kband_at(ein__kgen *g, const ein__kband_form *f, const ein__krow *row,
                                 int64_t base, const ein__kterm *more, int nmore) {
    ein__klin l;
    l.c = base;
    l.n = 0;
    for (int i = 0; i < f->nbatch; i++) {
        const ein__kslot *s = &g->slot[f->batch[i]];
        if (s->n > 1)
            ein__klin_add(g, &l, (ein__kterm){row->k[f->batch[i]], {s->name, 0, 0}, 0, 1, s->n});
    }
    for (int i = 0; i < nmore; i++) ein__klin_add(g, &l, more[i]);
    return ein__klin_text(g, &l, 0).s;
}

static ein__kterm ein__kband_term(ein__kgen *g, int64_t k, const char *name, int64_t n) {
    return (ein__kterm){k, {ein__name(g->ctx, name), EIN__PRIMARY, 0}, 0, 1, n};
}

// Batch, residue, row tile and column tile of a block: id counts them, the column tile fastest.
static int64_t ein__kband_index(ein__kgen *g, const ein__kband_form *f, const ein__band_tile *t,
                                ein__buf *b) {
    const char *type = ein__kint(g);
    int64_t below = 1;
    ein__putf(b, "const %s c0 = %s;  // first column\n", type,
              ein__kdigit(g, &below, t->columns, 16 * t->rn));
    ein__putf(b, "const %s m0 = %s;  // first row, in its residue\n", type,
              ein__kdigit(g, &below, t->row_tiles, 16 * t->rm));
    if (f->d > 1)
        ein__putf(b, "const %s rho = %s;  // residue\n", type,
                  ein__kdigit(g, &below, t->residues, 1));
    for (int i = f->nbatch - 1; i >= 0; i--) {
        ein__kslot *s = &g->slot[f->batch[i]];
        s->gone = s->n == 1;
        if (!s->gone)
            ein__putf(b, "const %s %s = %s;\n", type, s->name, ein__kdigit(g, &below, s->n, 1));
    }
    return below;
}

// Texts of the two loads: what is outside of the tile's part of the band, or of the operand, is 0.
static void ein__kband_loads(ein__kgen *g, const ein__kband_form *f, const ein__krow *ra,
                             const ein__krow *rb, int64_t base_a, int64_t base_b, ein__buf *a,
                             ein__buf *b) {
    ein_ctx *c = g->ctx;
    const char *type = ein__kint(g), *u = ein__kunsigned(g), *su = g->wide ? "ull" : "u";
    ein__val va = {f->a->val}, vb = {f->b->val};
    int64_t nm = g->slot[f->m].n, nj = g->slot[f->j].n, np = g->slot[f->p].n;
    int64_t nb = ein__val_get(c, vb)->shape.d[f->axis];
    long long d = (long long)f->d;
    const char *pa = ein__kparam(g, va), *pb = ein__kparam(g, vb);
    if (d > 1) ein__putf(a, "const %s m = %lld * (m0 + row) + rho;\n", type, d);
    else ein__putf(a, "const %s m = m0 + row;\n", type);
    const char *term = f->scores ? "p" : "j";
    if (f->scores) {
        ein__putf(a, "const %s p = k0 + k;\nconst bool in = m < %lld && p < %lld;\n", type,
                  (long long)nm, (long long)np);
    } else {
        ein__putf(a, "const %s j = %s;\nconst bool in = m < %lld && (%s)j < %lld%s;\n", type,
                  ein__kband_place(g, f, "k0 + k - row"), (long long)nm, u, (long long)nj, su);
    }
    ein__kterm ta[] = {
        ein__kband_term(g, ra->k[f->m], "m", nm),
        ein__kband_term(g, ra->k[f->scores ? f->p : f->j], term, f->scores ? np : nj)};
    ein__kaccess xa = {.param = pa, .dtype = ein__kdtype(g, va)};
    xa.at.s = ein__kband_at(g, f, ra, base_a, ta, 2);
    ein__putf(a, "as[k][row] = in ? %s : 0.f;\n", ein__kload(g, &xa, 0).s);

    const char *along = f->scores ? "c0 + col" : "k0 + k",
               *column = f->scores ? "k0 + k" : "c0 + col";
    if (d > 1) ein__putf(b, "const %s at = %lld * (m0 + %s) + rho", type, d, along);
    else ein__putf(b, "const %s at = m0 + %s", type, along);
    if (f->c) ein__putf(b, " %c %lld", f->c < 0 ? '-' : '+', (long long)(f->c < 0 ? -f->c : f->c));
    ein__putf(b, ", p = %s;\n", column);
    const char *inside = ein__namef(c, "(%s)at < %lld%s", u, (long long)nb, su);
    ein__kterm tb[] = {ein__kband_term(g, ein__kstride(g, vb, f->axis), "at", nb),
                       ein__kband_term(g, rb->k[f->p], "p", np)};
    ein__kaccess xb = {.param = pb, .dtype = ein__kdtype(g, vb)};
    xb.at.s = ein__kband_at(g, f, rb, base_b, tb, 2);
    const char *value = ein__kload(g, &xb, 0).s;
    ein__putf(b, "const bool in = %s && p < %lld;\nbs[k][col] = in ? %s : 0.f;\n", inside,
              (long long)np, value);
}

// The loops of a tile's product, then epilogue and store at (m, j) or (m, p).
static void ein__kband_store(ein__kgen *g, const ein__step *step, const ein__kband_form *f,
                             const ein__kscan *scan, ein__buf *b, const char **inside) {
    ein_ctx *c = g->ctx;
    const char *type = ein__kint(g), *su = g->wide ? "ull" : "u";
    const char *m = "m0 + row";
    if (f->d > 1) m = ein__namef(c, "%lld * (m0 + row) + rho", (long long)f->d);
    int column = f->scores ? f->j : f->p;
    const char *at = f->scores ? ein__kband_place(g, f, "c0 + col - row") : "c0 + col";
    *inside = ein__namef(c, "%s < %lld && (%s)(%s) < %lld%s", m, (long long)g->slot[f->m].n,
                         ein__kunsigned(g), at, (long long)g->slot[column].n, su);
    const ein__krow *row = &scan->row[arrlen(scan->row) - 1];
    bool uses_m = row->k[f->m], uses_c = row->k[column];
    g->slot[f->m].gone = g->slot[f->m].n == 1;
    g->slot[column].gone = g->slot[column].n == 1;
    if (f->alpha != 1) ein__putf(b, "acc[i][j] *= %s;\n", ein__kliteral(g, f->alpha).s);
    if (uses_m && !g->slot[f->m].gone)
        ein__putf(b, "const %s %s = %s;\n", type, g->slot[f->m].name, m);
    if (uses_c && !g->slot[column].gone)
        ein__putf(b, "const %s %s = %s;\n", type, g->slot[column].name, at);
    ein__ktext value = {"acc[i][j]", EIN__PRIMARY, 0};
    if (step->nval > 1) {
        ein__ex body = ein__kbody(g, step->out);
        g->inner[g->ninner++] = (ein__kinner){step->val[0], {"acc[i][j]"}, false};
        ein__kcount(g, body);
        g->post = b;
        value = ein__kvalue(g, body, 0);
        g->post = NULL;
    }
    ein__kstore(g, b, step->out, scan, &value);
}

// The furthest place of b that a tile computes, inside or not.
static int64_t ein__kband_reach(const ein__kband_form *f, const ein__band_tile *t) {
    int64_t places = t->row_tiles * 16 * t->rm + t->span + 16 * (t->rn + t->kc);
    int64_t start = f->c < 0 ? -(f->c + 1) : f->c;
    return start > INT64_MAX / 8 ? start : start + ein__muldiv(f->d, places, 1);
}

// One attempt; false: try again without vectors or with 64-bit indices.
static bool ein__kband(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                       ein__launch *l) {
    const ein__scope *s = ein__sc_get(g->ctx, ein__val_get(g->ctx, step->val[0])->scope);
    ein__kband_form f;
    ein__krow ra, rb;
    int64_t base_a = 0, base_b = 0;
    ein__band_tile t;
    bool found = ein__kband_parse(g, s, &f, &ra, &rb, &base_a, &base_b, &t);
    int64_t reach = found ? ein__kband_reach(&f, &t) : 0;
    if (!found || reach >= INT64_MAX / 8) return ein__kreduce(g, step, hint, out, l);
    if (g->vec > 1) return false;
    ein__kscan scan = ein__kscan_make(g);
    ein__kscan_out(g, &scan, step->out);
    ein__buf index = {0}, load_a = {0}, load_b = {0}, store = {0};
    const char *inside = NULL;
    int64_t blocks = ein__kband_index(g, &f, &t, &index);
    ein__kband_loads(g, &f, &ra, &rb, base_a, base_b, &load_a, &load_b);
    ein__kband_store(g, step, &f, &scan, &store, &inside);
    bool ok = !g->too_wide && (g->wide || reach <= INT32_MAX);
    if (ok && !g->overflow && ein__kgrid(g->ctx, l, blocks, 256)) {
        ein_ctx *c = g->ctx;
        // Neighbouring threads load neighbours in memory.
        bool a_rows = ra.k[f.scores ? f.p : f.j] != 1 && ra.k[f.m] == 1 && f.d == 1;
        bool b_columns = f.scores ? rb.k[f.p] != 1 : rb.k[f.p] == 1;
        int nr = 16 * t.rm, nc = 16 * t.rn;
        ein__key keys[] = {
            {0},
            {0},
            {"RM", ein__namef(c, "%d", t.rm)},
            {"RN", ein__namef(c, "%d", t.rn)},
            {"KC", ein__namef(c, "%d", t.kc)},
            {"number", ein__kunsigned(g)},
            {"many", blocks > 1 ? "1" : ""},
            {"index", index.s},
            {"terms", ein__namef(c, "%lld", (long long)t.terms)},
            {"rowA", ein__namef(c, a_rows ? "e %% %d" : "e / %d", a_rows ? nr : t.kc)},
            {"termA", ein__namef(c, a_rows ? "e / %d" : "e %% %d", a_rows ? nr : t.kc)},
            {"loadA", load_a.s},
            {"colB", ein__namef(c, b_columns ? "e %% %d" : "e / %d", b_columns ? nc : t.kc)},
            {"termB", ein__namef(c, b_columns ? "e / %d" : "e %% %d", b_columns ? nc : t.kc)},
            {"loadB", load_b.s},
            {"inside", inside},
            {"store", store.s}};
        const ein__value *a = ein__val_get(c, (ein__val){f.a->val}),
                         *b = ein__val_get(c, (ein__val){f.b->val});
        l->bytes_read = ein__elements(&a->shape) * ein__dtype_size(a->dtype) +
                        ein__elements(&b->shape) * ein__dtype_size(b->dtype);
        l->flops_per_out = (int)(2 * (f.scores ? g->slot[f.p].n : g->slot[f.j].n)) + g->flops;
        ein__kfinish(g, step->out, hint, ein__tmpl_band, keys, 17, out, l);
    }
    ein__buf_free(&index);
    ein__buf_free(&load_a);
    ein__buf_free(&load_b);
    ein__buf_free(&store);
    ein__kscan_free(&scan);
    return ok;
}
/* ---- emit_relay.c ---- */
// Weights re-laid at load: one kernel with sizes and strides as arguments serves them all. It runs
// once, so its rate does not matter; the size of the emitted file does.

enum { EIN__RELAY_RANK = 6 };

// One launch for a step that only moves weights; false when it is something else.
static bool ein__emit_relay(ein_ctx *ctx, const ein__step *step, ein__buf *out, ein__launch *l) {
    const ein__expr *e = ein__copy_of(ctx, step->out);
    const ein__value *v = &ctx->value[step->out.i];
    bool moves = step->nval == 1 && (step->kind == EIN__K_MAP || step->kind == EIN__K_TRANSPOSE);
    ein__factor f;
    if (!moves || !e || !v->weight_only || v->dtype != EIN__F32) return false;
    if (ctx->value[e->val].dtype != EIN__F32) return false;
    if (!ein__address(ctx, e, ctx->plan.layout[e->val].stride, &f)) return false;
    ein__chain dim[EIN__MAX_RANK];
    int n = 0;
    const int64_t *to = ctx->plan.layout[step->out.i].stride;
    for (int k = 0; k < v->shape.rank; k++)
        if (v->shape.d[k] > 1) dim[n++] = (ein__chain){v->shape.d[k], {f.coef[k], to[k], to[k]}};
    n = ein__join_chains(dim, n);
    if (n > EIN__RELAY_RANK) return false;
    ein__kgen g = ein__kgen_make(ctx, step->out, true, 1);
    (void)ein__kparam(&g, (ein__val){e->val});
    ein__key keys[2];
    bool fits = ein__kgrid(ctx, l, (ein__elements(&v->shape) + 255) / 256, 256);
    if (fits) ein__kfinish(&g, step->out, "relay", ein__tmpl_relay, keys, 2, out, l);
    ein__kgen_free(&g);
    ein__buf extra = {0};
    ein__putf(&extra, "relay{%d, %lld", n, (long long)f.offset);
    for (int part = 0; n && part < 3; part++) {
        ein__put(&extra, ", {");
        for (int k = 0; k < n; k++)
            ein__putf(&extra, "%s%lld", k ? ", " : "",
                      (long long)(part ? dim[k].stride[part - 1] : dim[k].n));
        ein__put(&extra, "}");
    }
    ein__put(&extra, "}");
    l->extra = ein__name(ctx, extra.s);
    l->bytes_read = l->bytes_written;
    ein__buf_free(&extra);
    return fits;
}
/* ---- emit_kernel.c ---- */
// A step of a plan as one __global__ function with its launch, and the naive form of any value.

typedef bool ein__kfamily(ein__kgen *g, const ein__step *step, const char *hint, ein__buf *out,
                          ein__launch *l);

static ein__kfamily *ein__kfamily_of(ein_ctx *ctx, const ein__step *step) {
    bool reduce = ein__sc_get(ctx, ein__val_get(ctx, step->val[0])->scope)->reduce != EIN__R_NONE;
    switch (step->kind) {
    case EIN__K_TRANSPOSE: return ein__ktranspose;
    case EIN__K_ROW: return ein__krow_kernel;
    case EIN__K_BAND: return ein__kband;
    case EIN__K_REDUCE:
    case EIN__K_MAP: break;
    case EIN__K_CONV:
    case EIN__K_CONV_DATA:
    case EIN__K_GEMM: EIN_ASSERT(0 && "a library call");
    }
    return reduce ? ein__kreduce : ein__kmap;
}

// Appends the kernel's text and says how to launch it. Equal shapes, layouts and expressions give
// equal text whatever the tensors are called: equal names mean the same kernel. The widest form is
// tried first.
EIN__FN void ein__emit_kernel(ein_ctx *ctx, const ein__step *step, const char *hint, ein__buf *out,
                              ein__launch *launch) {
    ein__kfamily *family = ein__kfamily_of(ctx, step);
    if (ein__emit_relay(ctx, step, out, launch) || ctx->status) return;
    for (int wide = 0; wide < 2; wide++) {
        for (int vec = 4; vec > 0; vec -= 3) {
            ein__kgen g = ein__kgen_make(ctx, step->val[0], wide, vec);
            size_t start = out->n;
            *launch = (ein__launch){0};
            bool done = family(&g, step, hint, out, launch);
            bool too_wide = g.too_wide, overflow = g.overflow;
            ein__kgen_free(&g);
            if (overflow) {
                ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "%s: addresses exceed 64 bits",
                           step->name);
                return;
            }
            if (done) return;
            if (out->s) out->s[out->n = start] = 0;
            if (too_wide) break;
        }
    }
    EIN_ASSERT(0 && "no form of a kernel applies");
}

// One thread an output element, plain loops, double accumulators; operands and result dense. Inputs
// and weights have their own types; what was computed is float unless it is integer.
static bool ein__knaive(ein_ctx *ctx, ein__val v, const char *hint, bool wide, ein__buf *out,
                        ein__launch *launch) {
    const ein__scope *s = ein__sc_get(ctx, ein__val_get(ctx, v)->scope);
    ein__kgen g = ein__kgen_make(ctx, v, wide, 1);
    ein__kscan scan = ein__kscan_make(&g);
    ein__buf index = {0}, body = {0}, store = {0}, core = {0};
    int order[EIN__MAX_ITERS], sums[EIN__MAX_ITERS], n = 0, ns = 0;
    g.naive = true;
    g.num = EIN__NUM_DOUBLE;
    if (ein__kdtype(&g, v) > EIN__BF16 && ein__kinteger(&g, s->body)) g.num = EIN__NUM_INT;
    ein__kscan_expr(&g, &scan, s->body);
    ein__kscan_out(&g, &scan, v);
    scan.pinned = ~0u;
    for (uint32_t i = 0; i < s->nt; i++) order[n++] = (int)i;
    for (uint32_t i = 0; i < s->ns; i++) sums[ns++] = (int)(s->nt + i);
    n = ein__kmerge(&g, &scan, order, n);
    ns = ein__kmerge(&g, &scan, sums, ns);
    for (int i = 0; i < ns; i++) g.slot[sums[i]].level = i + 1;
    ein__kcount(&g, s->body);
    ein__ktext value = ein__kvalue(&g, s->body, 0);
    *launch = (ein__launch){0};
    ein__put(&body, g.code[0].s);
    if (s->reduce != EIN__R_NONE) {
        ein__red r = (ein__red)s->reduce;
        if (g.num == EIN__NUM_INT) value = ein__kname_value(&g, s->body, 0, value);
        ein__buf_free(&g.code[0]);
        ein__put(&g.code[0], "");
        ein__putf(&body, "%s acc = %s;\n", ein__knum_type(&g), ein__kidentity(&g, r));
        ein__put(&core, ein__kcombine(&g, r, "acc", value.s));
        ein__kloops(&g, &body, sums, ns, core.s);
        value = (ein__ktext){"acc", EIN__PRIMARY, 0};
    }
    ein__kstore(&g, &store, v, &scan, &value);
    ein__put(&body, store.s);
    int64_t threads = ein__kcount_slots(&g, order, n);
    bool fits = wide || (!g.too_wide && threads <= INT32_MAX);
    if (fits && !g.overflow && ein__kgrid(ctx, launch, (threads + 255) / 256, 256)) {
        ein__kdecompose(&g, &index, order, n, scan.used, "id");
        ein__put(&index, "");
        ein__key keys[] = {{0},
                           {0},
                           {"number", ein__kunsigned(&g)},
                           {"threads", ein__knumber(&g, threads)},
                           {"index", index.s},
                           {"body", body.s}};
        ein__kfinish(&g, v, hint, ein__tmpl_naive, keys, 6, out, launch);
    }
    ein__buf_free(&index);
    ein__buf_free(&body);
    ein__buf_free(&store);
    ein__buf_free(&core);
    ein__kscan_free(&scan);
    ein__kgen_free(&g);
    return fits;
}

EIN__FN void ein__emit_naive(ein_ctx *ctx, ein__val v, const char *hint, ein__buf *out,
                             ein__launch *launch) {
    if (!ein__knaive(ctx, v, hint, false, out, launch))
        ein__knaive(ctx, v, hint, true, out, launch);
}

// Headers that the kernels' texts rely on; `needs` is the union over the launches.
EIN__FN void ein__emit_includes(ein__buf *out, unsigned needs) {
    if (needs & EIN__NEED_HALF) ein__put(out, "#include <cuda_fp16.h>\n");
    if (needs & EIN__NEED_BF16) ein__put(out, "#include <cuda_bf16.h>\n");
}

// Device functions that they call; to stand before the first kernel.
EIN__FN void ein__emit_helpers(ein_ctx *ctx, ein__buf *out, unsigned needs) {
    ein__kgen g = {.ctx = ctx};
    for (int r = EIN__R_SUM; r <= EIN__R_MIN; r++) {
        if (!(needs & (unsigned)EIN__NEED_WARP << r)) continue;
        bool block = needs & (unsigned)EIN__NEED_BLOCK << r;
        ein__key keys[] = {{"op", ein__kred_name((ein__red)r)},
                           {"join", ein__kcombine(&g, (ein__red)r, "v", "other")},
                           {"block", block ? "1" : ""}};
        ein__tmpl_put(out, ein__tmpl_warp, keys, 3);
        ein__put(out, "\n");
    }
}
/* ---- emit.c ---- */
// The emitted file: fixed sections in a fixed order. Names come from the model's tensors and from
// content; offsets and sizes stand in one block, so that a new memory plan changes one place.

// ------------------------------------------------------------------------------------ names

// Names that a C, C++ or CUDA source cannot use for a type of its own.
static bool ein__is_taken(const char *name) {
    static const char words[] =
        " alignas alignof and asm auto bool break case catch char class const constexpr const_cast"
        " continue decltype default delete do double dynamic_cast else enum explicit export extern "
        "false"
        " float for friend goto if inline int long mutable namespace new noexcept not nullptr "
        "operator or"
        " private protected public register reinterpret_cast return restrict short signed sizeof "
        "static"
        " static_assert static_cast struct switch template this thread_local throw true try "
        "typedef typeid"
        " typename union unsigned using virtual void volatile wchar_t while xor main half half2"
        " nv_bfloat16 nv_bfloat162 dim3 threadIdx blockIdx blockDim gridDim warpSize int8_t "
        "int16_t int32_t"
        " int64_t uint8_t uint16_t uint32_t uint64_t size_t ptrdiff_t ssize_t FILE div_t ldiv_t "
        "lldiv_t NULL"
        " stdin stdout stderr abs exit abort malloc calloc free realloc printf puts remove rename "
        "time clock"
        " exp log sin cos tan sqrt pow floor ceil erf min max signal read write open close fail "
        "steps"
        " upload record info cudaStream_t cudaError_t cudaGraph_t cudnnHandle_t cublasHandle_t "
        "linux unix"
        // what the emitted file itself declares beside it, or names inside create
        " std m o out bytes weights network einnet_test conv conv_call conv_size conv_sizes "
        "conv_tensor"
        " conv_describe conv_choose_forward conv_choose_data conv_open conv_close conv_run gemm_run"
        " gemm_size uploads upload_size run_on create_all open_libraries prepare_weights "
        "same_addresses"
        " check_device check_run check_weights info_inputs info_outputs info_weights cublas_reason"
        " warp_sum warp_max cublasStatus_t cudnnTensorDescriptor_t cudaGetLastError ";
    const char *at = words;
    size_t n = strlen(name);
    while (*name && (at = strstr(at, name))) {
        if (at[-1] == ' ' && at[n] == ' ') return true;
        at++;
    }
    // char1, float4, ulonglong2, texture types and the compiler's own names
    static const char *const vector[] = {"char",     "uchar",     "short", "ushort",
                                         "int",      "uint",      "long",  "ulong",
                                         "longlong", "ulonglong", "float", "double"};
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        size_t k = strlen(vector[i]);
        if (!strncmp(name, vector[i], k) && name[k] >= '1' && name[k] <= '4') return true;
    }
    return name[0] == '_';
}

// The prefix of the program's symbols: a C identifier made of the model's name or --prefix.
EIN__FN const char *ein__symbol(ein_ctx *ctx) {
    const char *s = ctx->desc.prefix ? ctx->desc.prefix : ctx->graph.model;
    ein__buf b = {0};
    if (!s || !*s) s = "model";
    if (*s >= '0' && *s <= '9') ein__put(&b, "m");
    for (; *s; s++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        char c = word ? *s : '_';
        ein__put_n(&b, &c, 1);
    }
    // The file's own names begin so; a model called `k_x` must not meet kernel `k_x`.
    static const char *const own[] = {"_",     "v_",    "k_",     "conv_",
                                      "CONV_", "gemm_", "steps_", "prepare_"};
    bool clash = false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        clash |= !strncmp(b.s, own[i], strlen(own[i]));
    if (ein__is_taken(b.s)) ein__put(&b, "_model");
    const char *name = ein__name(ctx, clash ? ein__namef(ctx, "m_%s", b.s) : b.s);
    ein__buf_free(&b);
    return name;
}

EIN__FN const char *ein__symbol_upper(ein_ctx *ctx) {
    const char *name = ein__symbol(ctx);
    ein__buf b = {0};
    for (; *name; name++) {
        char c = *name >= 'a' && *name <= 'z' ? (char)(*name - 32) : *name;
        ein__put_n(&b, &c, 1);
    }
    const char *upper = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return upper;
}

// Letters, digits and underscores of `name`; what had to be changed is told apart by a hash of the
// full name, so that two names never meet and none depends on its neighbours.
EIN__FN const char *ein__plain_name(ein_ctx *ctx, const char *name) {
    ein__buf b = {0};
    bool exact = true;
    size_t n = 0;
    for (const char *s = name; *s && n < 48; s++, n++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        char c = word || *s == '_' ? *s : '_';
        exact &= word || *s == '_' || *s == '.';
        ein__put_n(&b, &c, 1);
    }
    if (name[n]) exact = false;
    if (!exact || !n) {
        uint64_t h = ein__fnv(EIN__FNV_START, name, strlen(name));
        ein__putf(&b, "_%08x", (unsigned)(h ^ h >> 32));
    }
    const char *plain = ein__name(ctx, b.s);
    ein__buf_free(&b);
    return plain;
}

// Comment text: printable ASCII only, nothing that ends a comment or continues a line.
static void ein__put_comment(ein__buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i] >= 32 && s[i] < 127 ? s[i] : '?';
        if (c == '\\' || (c == '/' && i && s[i - 1] == '*')) c = '_';
        ein__put_n(out, &c, 1);
    }
}

static void ein__put_string(ein__buf *out, const char *s) {
    ein__put(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '?') ein__putf(out, "\\%c", c);
        else if (c < 32 || c > 126) ein__putf(out, "\\%03o", c);
        else ein__put_n(out, s, 1);
    }
    ein__put(out, "\"");
}

static const char *ein__ctype(ein__dtype t) {
    static const char *const name[EIN__NDTYPE] = {
        "float", "__half", "__nv_bfloat16", "signed char", "int", "long long", "unsigned char"};
    return name[t];
}

static void ein__put_shape(ein__buf *out, const ein__tensor *t) {
    ein__putf(out, "%s[", ein__dtype_name(t->dtype));
    for (int i = 0; i < t->shape.rank; i++)
        ein__putf(out, "%s%lld", i ? "," : "", (long long)t->shape.d[i]);
    ein__put(out, "]");
}

// ------------------------------------------------------------------------------------ the emitter

typedef struct ein__emitter {
    ein_ctx *ctx;
    ein__launch *run, *init;  // by step; library calls have an empty entry
    ein__buf kernels;
    const char **buffer;  // by plan buffer: the name of its pointer
    const char *first_kernel;
    unsigned needs;
    int convs, gemms;
    int spatial;  // axes of convolution descriptors
    bool zeros;   // some fused convolution has no bias
    int64_t zeros_bytes, blob_bytes, const_bytes;
} ein__emitter;

// Bytes of the weight blob, and the offset of weight `index` in it.
EIN__FN int64_t ein__blob_offset(const ein_ctx *ctx, int index, int64_t *total) {
    int64_t at = 256, mine = 0;
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++) {
        const ein__tensor *t = &ctx->graph.tensor[ctx->graph.weight[i]];
        if (i == index) mine = at;
        at = (at + ein__elements(&t->shape) * ein__dtype_size(t->dtype) + 255) & ~(int64_t)255;
    }
    *total = at;
    return mine;
}

EIN__FN uint64_t ein__manifest(const ein_ctx *ctx) {
    ein__buf b = {0};
    ein__put(&b, "");
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.weight); i++) {
        const ein__tensor *t = &ctx->graph.tensor[ctx->graph.weight[i]];
        ein__putf(&b, "%s ", t->name);
        ein__put_shape(&b, t);
        ein__put(&b, "\n");
    }
    uint64_t h = ein__fnv(EIN__FNV_START, b.s, b.n);
    ein__buf_free(&b);
    return h;
}

static bool ein__is_library(const ein__step *s) {
    return s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA || s->kind == EIN__K_GEMM;
}

// Pointer names by buffer: `v_` and the value's name, unique.
static void ein__name_buffers(ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    struct {
        char *key;
        int value;
    } *taken = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const char *plain = ein__plain_name(ctx, ctx->plan.buffer[i].name);
        const char *name = ein__namef(ctx, "v_%s", plain);
        for (int k = 2; shgeti(taken, name) >= 0; k++) name = ein__namef(ctx, "v_%s_%d", plain, k);
        shput(taken, name, 1);
        arrput(z->buffer, name);
    }
    shfree(taken);
}

static const char *ein__kernel_hint(const ein__step *s) {
    switch (s->kind) {
    case EIN__K_TRANSPOSE: return "transpose";
    case EIN__K_REDUCE: return "reduce";
    case EIN__K_ROW: return "row";
    case EIN__K_BAND: return "band";
    case EIN__K_MAP:
    case EIN__K_CONV:
    case EIN__K_CONV_DATA:
    case EIN__K_GEMM:
    default: return "map";
    }
}

static void ein__put_algebra(ein__emitter *z, ein__buf *out, ein__val v, const char *indent) {
    ein__buf text = {0};
    const char *why = z->ctx->value[v.i].why;
    if (why && *why) ein__putf(out, "%s// by %s\n", indent, why);
    ein__print_value(z->ctx, v, &text);
    // Long equations continue on the next line, broken at spaces.
    size_t width = 96 - strlen(indent), at = 0;
    while (text.n && (text.s[text.n - 1] == '\n' || text.s[text.n - 1] == ' ')) text.n--;
    while (at < text.n) {
        size_t n = text.n - at, room = at ? width - 4 : width;
        if (n > room) {
            n = room;
            while (n > 20 && text.s[at + n] != ' ' && text.s[at + n] != '\n') n--;
        }
        ein__putf(out, "%s// %s", indent, at ? "    " : "");
        ein__put_comment(out, text.s + at, n);
        ein__put(out, "\n");
        at += n;
        while (at < text.n && (text.s[at] == ' ' || text.s[at] == '\n')) at++;
    }
    ein__buf_free(&text);
}

// Emits the kernels of `steps`, each distinct text once.
static void ein__collect_kernels(ein__emitter *z, ein__step *steps, ein__launch **launches,
                                 const char ***seen) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(steps) && !ctx->status; i++) {
        ein__launch l = {0};
        ein__step *step = &steps[i];
        if (!ein__is_library(&steps[i])) {
            ein__buf text = {0};
            ein__emit_kernel(ctx, &steps[i], ein__kernel_hint(&steps[i]), &text, &l);
            if (ctx->status) return;
            bool known = false;
            for (ptrdiff_t k = 0; k < arrlen(*seen); k++) known |= (*seen)[k] == l.name;
            if (!known) {
                arrput(*seen, l.name);
                for (int v = 0; v < steps[i].nval && !l.extra; v++)
                    ein__put_algebra(z, &z->kernels, steps[i].val[v], "");
                ein__put_n(&z->kernels, text.s, text.n);
                ein__put(&z->kernels, "\n");
                if (!z->first_kernel) z->first_kernel = l.name;
            }
            z->needs |= l.needs;
            step->measured = ein__measured(ctx, ein__namef(ctx, "kernel %s", l.name), &step->ps);
            ein__buf_free(&text);
        }
        arrput(*launches, l);
    }
}

static void ein__collect(ein__emitter *z) {
    ein_ctx *ctx = z->ctx;
    const char **seen = NULL;
    ein__name_buffers(z);
    ein__put(&z->kernels, "");
    ein__collect_kernels(z, ctx->plan.init, &z->init, &seen);
    ein__collect_kernels(z, ctx->plan.step, &z->run, &seen);
    arrfree(seen);
    z->spatial = 2;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (s->kind == EIN__K_GEMM) z->gemms++;
        if (s->kind != EIN__K_CONV && s->kind != EIN__K_CONV_DATA) continue;
        z->convs++;
        if (s->conv.spatial > z->spatial) z->spatial = s->conv.spatial;
        bool fused = s->conv.z.i || s->conv.relu;
        if (fused && !s->conv.bias.i) {
            z->zeros = true;
            if (s->conv.f * 4 > z->zeros_bytes) z->zeros_bytes = s->conv.f * 4;
        }
    }
    z->zeros_bytes = (z->zeros_bytes + 255) & ~(int64_t)255;
    z->const_bytes = ctx->plan.const_bytes + z->zeros_bytes;
    ein__blob_offset(ctx, -1, &z->blob_bytes);
}

static void ein__emitter_free(ein__emitter *z) {
    arrfree(z->run);
    arrfree(z->init);
    arrfree(z->buffer);
    ein__buf_free(&z->kernels);
}

// ------------------------------------------------------------------------------------ summary

EIN__FN void ein__emit_banner(ein_ctx *ctx, ein__buf *out) {
    const char *license = ctx->desc.license ? ctx->desc.license : "MIT-0";
    ein__put(out, "// Code generated by einnet from ");
    ein__put_comment(out, ctx->graph.model, strlen(ctx->graph.model));
    ein__putf(
        out,
        ".ein. DO NOT EDIT.\n// einnet-codegen: %d  model: %016llx  costs: %s  weights: %016llx\n",
        EIN_CODEGEN, (unsigned long long)ctx->graph.hash,
        ctx->cost_hash ? ein__namef(ctx, "%016llx", (unsigned long long)ctx->cost_hash) : "none",
        (unsigned long long)ein__manifest(ctx));
    ein__put(out, "// SPDX-License-Identifier: ");
    ein__put_comment(out, license, strlen(license));
    ein__put(out, "\n// clang-format off\n");
}

static void ein__put_amount(ein__buf *out, int64_t bytes) {
    if (bytes < 10 * 1024) ein__putf(out, "%lld B", (long long)bytes);
    else if (bytes < 10 * 1024 * 1024) ein__putf(out, "%lld kB", (long long)((bytes + 512) / 1024));
    else ein__putf(out, "%lld MB", (long long)((bytes + (1 << 19)) >> 20));
}

// Microseconds with one digit behind the point, from picoseconds.
static void ein__put_us(ein__buf *out, int64_t ps) {
    int64_t tenth = (ps + 50000) / 100000;
    ein__putf(out, "%5lld.%lld us", (long long)(tenth / 10), (long long)(tenth % 10));
}

static void ein__put_sizes(ein__buf *out, const int64_t *d, int n) {
    for (int i = 0; i < n; i++) ein__putf(out, "%s%lld", i ? "x" : "", (long long)d[i]);
}

static void ein__put_call(ein__buf *out, const ein__step *s, const ein__launch *l) {
    if (s->kind == EIN__K_GEMM) {
        const ein__gemm *g = &s->gemm;
        ein__putf(out, "cuBLAS sgemm %lld x %lld x %lld", (long long)g->m, (long long)g->n,
                  (long long)g->k);
        if (g->batch > 1) ein__putf(out, ", batch %lld", (long long)g->batch);
    } else if (ein__is_library(s)) {
        const ein__conv *c = &s->conv;
        ein__put(out, s->kind == EIN__K_CONV ? "cuDNN conv " : "cuDNN conv backward-data ");
        ein__put_sizes(out, c->k, c->spatial);
        ein__putf(out, ", %lld to %lld", (long long)c->c, (long long)c->f);
        if (c->group > 1) ein__putf(out, " in %lld groups", (long long)c->group);
        if (c->z.i) ein__put(out, " + residual");
        if (c->bias.i) ein__put(out, " + bias");
        if (c->relu) ein__put(out, " + relu");
    } else {
        ein__put(out, l->name);
    }
}

static void ein__put_tensors(ein_ctx *ctx, ein__buf *out, const char *title, const int *list,
                             const ein__output *named) {
    ptrdiff_t n = named ? arrlen(named) : arrlen(list);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ein__tensor *t = &ctx->graph.tensor[named ? named[i].tensor : list[i]];
        const char *name = named ? named[i].name : t->name;
        ein__putf(out, "// %-9s ", i ? "" : title);
        ein__put_comment(out, name, strlen(name));
        ein__put(out, ": ");
        ein__put_shape(out, t);
        ein__put(out, "\n");
    }
}

static void ein__put_summary(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const ein__plan *p = &ctx->plan;
    ein__putf(out, "//\n// for %s, FP32\n", ein__gpu_of(ctx)->title);
    ein__put_tensors(ctx, out, "inputs", ctx->graph.input, NULL);
    ein__put_tensors(ctx, out, "outputs", NULL, ctx->graph.output);
    ein__putf(out, "// weights   %d tensors, blob of ", (int)arrlen(ctx->graph.weight));
    ein__put_amount(out, z->blob_bytes);
    ein__put(out, "\n// memory    arena ");
    ein__put_amount(out, p->arena_bytes);
    ein__put(out, " (workspace ");
    ein__put_amount(out, p->workspace_bytes);
    ein__put(out, " of it), constants ");
    ein__put_amount(out, z->const_bytes);
    ein__put(out, ", peak in create ");
    ein__put_amount(out, p->arena_bytes + z->const_bytes + p->init_bytes);
    ein__putf(out, "\n// plan      %d step%s, ", (int)arrlen(p->step),
              arrlen(p->step) == 1 ? "" : "s");
    ein__buf us = {0};
    int64_t total = 0;
    bool measured = true;
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        total += p->step[i].ps;
        measured &= p->step[i].measured;
    }
    ein__put_us(&us, total);
    ein__putf(out, "%s %s", us.s + strspn(us.s, " "), measured ? "measured" : "estimated");
    if (p->baseline_ps) {
        us.n = 0;
        ein__put_us(&us, p->baseline_ps);
        ein__putf(out, "; %s without derivation", us.s + strspn(us.s, " "));
    }
    ein__put(out, "\n");
    ein__buf_free(&us);
    for (ptrdiff_t i = 0; i < arrlen(p->step); i++) {
        ein__put(out, "// ");
        ein__put_us(out, p->step[i].ps);
        ein__put(out, p->step[i].measured ? " measured " : " est. ");
        ein__buf name = {0};
        ein__put_comment(&name, p->step[i].name, strlen(p->step[i].name));
        ein__putf(out, "%-16s ", name.s ? name.s : "");
        ein__buf_free(&name);
        ein__put_call(out, &p->step[i], &z->run[i]);
        ein__put(out, "\n");
    }
}

// ------------------------------------------------------------------------------------ sizes

EIN__FN void ein__emit_interface(ein_ctx *ctx, ein__buf *out) {
    int64_t blob;
    ein__blob_offset(ctx, -1, &blob);
    ein__key keys[] = {{"model", ein__symbol(ctx)},
                       {"MODEL", ein__symbol_upper(ctx)},
                       {"arena", ein__namef(ctx, "%lldull", (long long)ctx->plan.arena_bytes)},
                       {"weights", ein__namef(ctx, "%lldull", (long long)blob)}};
    ein__tmpl_put(out, ein__tmpl_interface, keys, 4);
}

static void ein__put_section(ein__buf *out, const char *title) {
    ein__putf(out, "\n// ---- %s ", title);
    for (size_t n = strlen(title) + 9; n < 100; n++) ein__put(out, "-");
    ein__put(out, "\n");
}

// One line a buffer: where it is in the caller's lists, the arena or the constants.
static void ein__put_pointers(ein__emitter *z, ein__buf *out) {
    static const char *const where[] = {"IN", "OUT", "CONST", "CONST", "INIT", "ARENA"};
    ein_ctx *ctx = z->ctx;
    ein__put(out,
             "#define IN(type, k) ((const type *)in[k])\n"
             "#define OUT(type, k) ((type *)out[k])\n"
             "#define ARENA(type, at) ((type *)(m->arena + at))\n"
             "#define CONST(type, at) ((type *)(m->constants + at))\n"
             "#define INIT(type, at) ((type *)(m->init + at))\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const ein__buffer *b = &ctx->plan.buffer[i];
        bool listed = b->kind == EIN__B_INPUT || b->kind == EIN__B_OUTPUT;
        if (!listed && b->first < 0) continue;
        ein__putf(out, "#define %s %s(%s, %lld)\n", z->buffer[i], where[b->kind],
                  ein__ctype(b->dtype), listed ? (long long)b->index : (long long)b->at);
    }
    if (z->convs)
        ein__putf(out, "#define v_workspace ARENA(char, %lld)\n",
                  (long long)ctx->plan.workspace_at);
    if (z->zeros)
        ein__putf(out, "#define v_zeros CONST(const float, %lld)\n",
                  (long long)ctx->plan.const_bytes);
}

static void ein__put_uploads(ein__emitter *z, ein__buf *out, bool *any) {
    ein_ctx *ctx = z->ctx;
    *any = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.buffer); i++) {
        const ein__buffer *b = &ctx->plan.buffer[i];
        bool raw = b->kind == EIN__B_WEIGHT || (b->kind == EIN__B_INIT && b->index >= 0);
        if (!raw || b->first < 0) continue;
        if (!*any)
            ein__put(
                out,
                "\n// Weights: from the blob to the constants (kept) or to create's own memory.\n"
                "typedef struct upload_size { size_t from, to, bytes; int kept; } upload_size;\n"
                "static const upload_size uploads[] = {\n");
        *any = true;
        int64_t total;
        ein__putf(out, "    {%lld, %lld, %lld, %d},  // ",
                  (long long)ein__blob_offset(ctx, b->index, &total), (long long)b->at,
                  (long long)b->bytes, b->kind == EIN__B_WEIGHT);
        ein__put_comment(out, b->name, strlen(b->name));
        ein__put(out, "\n");
    }
    if (*any) ein__put(out, "};\n");
}

// Axes of a descriptor: those that the convolution lacks are 1, in front.
static void ein__put_axes(ein__buf *out, const int64_t *v, int n, int axes, int64_t fill) {
    ein__put(out, "{");
    for (int i = 0; i < axes; i++)
        ein__putf(out, "%s%lld", i ? ", " : "",
                  (long long)(i < axes - n ? fill : v[i - (axes - n)]));
    ein__put(out, "}");
}

static const char *ein__call_name(ein_ctx *ctx, const ein__step *s) {
    return ein__plain_name(ctx, s->name);
}

static void ein__put_conv_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    ein__put(out, "\nstatic const conv_size conv_sizes[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        const ein__conv *c = &s->conv;
        if (s->kind != EIN__K_CONV && s->kind != EIN__K_CONV_DATA) continue;
        ein__buf line = {0};
        ein__put(&line, "    {");
        ein__put_string(&line, s->name);
        ein__putf(&line, ", %d, %lld, %lld, %lld, %lld, ", s->kind == EIN__K_CONV_DATA,
                  (long long)c->n, (long long)c->c, (long long)c->f, (long long)c->group);
        const int64_t *axes[] = {c->in, c->out, c->k, c->pad, c->stride, c->dilation};
        for (int k = 0; k < 6; k++) {
            ein__put_axes(&line, axes[k], c->spatial, z->spatial, k == 3 ? 0 : 1);
            ein__put(&line, ", ");
        }
        bool fused = c->bias.i || c->z.i || c->relu;
        ein__putf(&line, "%d, %d},", fused, c->relu);
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
    }
    ein__put(out, "};\nenum {\n");
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        if (s->kind == EIN__K_CONV || s->kind == EIN__K_CONV_DATA)
            ein__putf(out, "    CONV_%s,\n", ein__call_name(ctx, s));
    }
    ein__put(out, "};\n");
}

static void ein__put_gemm_sizes(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        const ein__step *s = &ctx->plan.step[i];
        const ein__gemm *g = &s->gemm;
        if (s->kind != EIN__K_GEMM) continue;
        ein__buf line = {0};
        ein__putf(&line, "static const gemm_size gemm_%s = {", ein__call_name(ctx, s));
        ein__put_string(&line, s->name);
        const int64_t n[] = {g->ta,  g->tb,  g->batch, g->m,  g->n,  g->k,
                             g->lda, g->ldb, g->ldc,   g->sa, g->sb, g->sc};
        for (int k = 0; k < 12; k++) ein__putf(&line, ", %lld", (long long)n[k]);
        ein__put(&line, ", ");
        ein__put_f32_literal(&line, g->alpha);
        ein__put(&line, "};");
        ein__tmpl_line(out, line.s, line.n);
        ein__buf_free(&line);
    }
}

// ------------------------------------------------------------------------------------ steps

static void ein__put_pointer(ein__emitter *z, ein__buf *out, ein__val v, int64_t extra) {
    const ein__layout *l = &z->ctx->plan.layout[v.i];
    int64_t offset = l->offset + extra;
    ein__put(out, z->buffer[l->buffer]);
    if (offset) ein__putf(out, " + %lld", (long long)offset);
}

static void ein__put_dims(ein__buf *out, const unsigned *d) {
    if (d[2] > 1) ein__putf(out, "dim3(%u, %u, %u)", d[0], d[1], d[2]);
    else if (d[1] > 1) ein__putf(out, "dim3(%u, %u)", d[0], d[1]);
    else ein__putf(out, "dim3(%u)", d[0]);
}

static void ein__put_gemm_call(ein__emitter *z, ein__buf *out, const ein__step *s,
                               const char *name) {
    ein__putf(out, "    CALL(gemm_run(m, &gemm_%s, ", name);
    ein__put_pointer(z, out, s->gemm.a, s->gemm.oa);
    ein__put(out, ", ");
    ein__put_pointer(z, out, s->gemm.b, s->gemm.ob);
    ein__put(out, ", ");
    ein__put_pointer(z, out, s->out, 0);
    ein__put(out, "));");
}

static void ein__put_conv_call(ein__emitter *z, ein__buf *out, const ein__step *s,
                               const char *name) {
    const ein__conv *c = &s->conv;
    ein__putf(out, "    CALL(conv_run(m, CONV_%s, ", name);
    ein__put_pointer(z, out, c->x, 0);
    ein__put(out, ", ");
    ein__put_pointer(z, out, c->w, 0);
    ein__put(out, ", ");
    if (c->bias.i) ein__put_pointer(z, out, c->bias, 0);
    else ein__put(out, c->z.i || c->relu ? "v_zeros" : "NULL");
    ein__put(out, ", ");
    if (c->z.i) ein__put_pointer(z, out, c->z, 0);
    else ein__put(out, "NULL");
    ein__put(out, ", ");
    ein__put_pointer(z, out, s->out, 0);
    ein__put(out, ", v_workspace));");
}

static void ein__put_step(ein__emitter *z, ein__buf *out, const ein__step *s,
                          const ein__launch *l) {
    ein_ctx *ctx = z->ctx;
    const char *name = ein__call_name(ctx, s);
    if (ein__is_library(s) || l->extra)
        for (int k = 0; k < s->nval; k++) ein__put_algebra(z, out, s->val[k], "    ");
    if (ein__is_library(s)) {
        ein__buf call = {0};
        if (s->kind == EIN__K_GEMM) ein__put_gemm_call(z, &call, s, name);
        else ein__put_conv_call(z, &call, s, name);
        ein__tmpl_line(out, call.s, call.n);
        ein__buf_free(&call);
        return;
    }
    ein__putf(out, "    %s<<<", l->name);
    ein__put_dims(out, l->grid);
    ein__put(out, ", ");
    ein__put_dims(out, l->block);
    ein__putf(out, ", %d, stream>>>(", l->smem);
    for (int i = 0; i < l->narg; i++) {
        if (i) ein__put(out, ", ");
        ein__put_pointer(z, out, l->arg[i], 0);
    }
    if (l->extra) ein__putf(out, ", %s", l->extra);
    ein__put(out, ");\n    LAUNCHED(m, ");
    ein__put_string(out, s->name);
    ein__put(out, ");\n");
}

enum { EIN__STEPS_PER_FUNCTION = 40 };

// The steps as functions of bounded length: `name` calls them in order.
static void ein__put_steps(ein__emitter *z, ein__buf *out, bool init) {
    ein_ctx *ctx = z->ctx;
    const ein__step *steps = init ? ctx->plan.init : ctx->plan.step;
    const ein__launch *launches = init ? z->init : z->run;
    const char *symbol = ein__symbol(ctx);
    const char *params = init ? "cudaStream_t stream"
                              : "const void *const *in, void *const *out,\n    cudaStream_t stream";
    const char *name = init ? "prepare_weights" : "steps";
    ptrdiff_t n = arrlen(steps),
              parts = (n + EIN__STEPS_PER_FUNCTION - 1) / EIN__STEPS_PER_FUNCTION;
    if (parts < 1) parts = 1;
    for (ptrdiff_t p = 0; p < parts; p++) {
        ptrdiff_t from = p * EIN__STEPS_PER_FUNCTION, to = from + EIN__STEPS_PER_FUNCTION;
        if (to > n) to = n;
        if (parts == 1) ein__putf(out, "static int %s(%s *m, %s) {\n", name, symbol, params);
        else ein__putf(out, "static int %s_%d(%s *m, %s) {\n", name, (int)p + 1, symbol, params);
        ein__put(out, init ? "    (void)stream;\n"
                           : "    (void)in;\n    (void)out;\n    (void)stream;\n");
        if (n == 0) ein__put(out, "    (void)m;\n");
        for (ptrdiff_t i = from; i < to; i++) ein__put_step(z, out, &steps[i], &launches[i]);
        ein__put(out, "    return 0;\n}\n\n");
    }
    if (parts == 1) return;
    const char *args = init ? "stream" : "in, out, stream";
    ein__putf(out, "static int %s(%s *m, %s) {\n    int r = %s_1(m, %s);\n", name, symbol, params,
              name, args);
    for (ptrdiff_t p = 1; p < parts; p++)
        ein__putf(out, "    if (!r) r = %s_%d(m, %s);\n", name, (int)p + 1, args);
    ein__put(out, "    return r;\n}\n\n");
}

static void ein__put_info_list(ein_ctx *ctx, ein__buf *out, const char *title, const int *list,
                               const ein__output *named) {
    ptrdiff_t n = named ? arrlen(named) : arrlen(list);
    if (!n) return;
    ein__putf(out, "static const %s_tensor %s[] = {\n", ein__symbol(ctx), title);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ein__tensor *t = &ctx->graph.tensor[named ? named[i].tensor : list[i]];
        bool weight = list == ctx->graph.weight;
        int64_t total;
        ein__put(out, "    {");
        ein__put_string(out, named ? named[i].name : t->name);
        ein__putf(out, ", \"%s\", %d, {", ein__dtype_name(t->dtype), t->shape.rank);
        for (int k = 0; k < t->shape.rank; k++)
            ein__putf(out, "%s%lld", k ? ", " : "", (long long)t->shape.d[k]);
        if (!t->shape.rank) ein__put(out, "0");
        ein__putf(out, "}, %lld, %lld},\n",
                  (long long)(ein__elements(&t->shape) * ein__dtype_size(t->dtype)),
                  weight ? (long long)ein__blob_offset(ctx, (int)i, &total) : 0ll);
    }
    ein__put(out, "};\n");
}

static void ein__put_info(ein__emitter *z, ein__buf *out) {
    ein_ctx *ctx = z->ctx;
    const char *symbol = ein__symbol(ctx), *upper = ein__symbol_upper(ctx);
    bool in = arrlen(ctx->graph.input) > 0, w = arrlen(ctx->graph.weight) > 0;
    ein__put_info_list(ctx, out, "info_inputs", ctx->graph.input, NULL);
    ein__put_info_list(ctx, out, "info_outputs", NULL, ctx->graph.output);
    ein__put_info_list(ctx, out, "info_weights", ctx->graph.weight, NULL);
    ein__putf(out, "static const %s_info info = {\n    ", symbol);
    ein__put_string(out, ctx->graph.model);
    ein__putf(out,
              ", %d, %d, %d, %s, info_outputs, %s,\n    %s_ARENA_BYTES, %s_WEIGHT_BYTES,\n    "
              "%lldull, %lldull, 0x%016llxull};\n\n",
              (int)arrlen(ctx->graph.input), (int)arrlen(ctx->graph.output),
              (int)arrlen(ctx->graph.weight), in ? "info_inputs" : "NULL",
              w ? "info_weights" : "NULL", upper, upper, (long long)z->const_bytes,
              (long long)(ctx->plan.arena_bytes + z->const_bytes + ctx->plan.init_bytes),
              (unsigned long long)ein__manifest(ctx));
    ein__putf(out, "const %s_info *%s_describe(void) { return &info; }\n", symbol, symbol);
}

// ------------------------------------------------------------------------------------ the file

static const char *ein__number_text(ein_ctx *ctx, int64_t v) {
    return ein__namef(ctx, "%lld", (long long)v);
}

// Bytes for an allocation; 0, which switches template lines off, stays 0.
static const char *ein__bytes_text(ein_ctx *ctx, int64_t v) {
    return v ? ein__namef(ctx, "%lldull", (long long)v) : "0";
}

static void ein__put_program(ein__emitter *z, ein__buf *out, bool uploads) {
    ein_ctx *ctx = z->ctx;
    const char *model = ein__symbol(ctx), *upper = ein__symbol_upper(ctx);
    const char *conv = z->convs ? "1" : "0", *gemm = z->gemms ? "1" : "0";
    const char *convs = ein__number_text(ctx, z->convs);
    ptrdiff_t nin = arrlen(ctx->graph.input);
    ein__put_section(out, "create");
    ein__put_steps(z, out, true);
    ein__key create[] = {
        {"model", model},
        {"MODEL", upper},
        {"conv", conv},
        {"convs", convs},
        {"gemm", gemm},
        {"zeros", ein__bytes_text(ctx, z->zeros_bytes)},
        {"consts", ein__bytes_text(ctx, z->const_bytes)},
        {"init", ein__bytes_text(ctx, ctx->plan.init_bytes)},
        {"uploads", uploads ? "1" : "0"},
        {"manifest", ein__namef(ctx, "0x%016llxull", (unsigned long long)ein__manifest(ctx))},
        {"kernel", z->first_kernel ? z->first_kernel : ""}};
    ein__tmpl_put(out, ein__tmpl_create, create, 11);
    ein__put_section(out, "run");
    ein__put_steps(z, out, false);
    ein__key run[] = {{"model", model},
                      {"conv", conv},
                      {"gemm", gemm},
                      {"nin", ein__number_text(ctx, nin)},
                      {"nout", ein__number_text(ctx, arrlen(ctx->graph.output))},
                      {"workspace", ein__number_text(ctx, ctx->plan.workspace_bytes)},
                      {"workspaceat", ein__number_text(ctx, ctx->plan.workspace_at)}};
    ein__tmpl_put(out, ein__tmpl_run, run, 7);
    ein__put_section(out, "destroy");
    ein__key destroy[] = {{"model", model}, {"conv", conv}, {"convs", convs}, {"gemm", gemm}};
    ein__tmpl_put(out, ein__tmpl_destroy, destroy, 4);
    ein__put_section(out, "info");
    ein__put_info(z, out);
}

static void ein__put_state(ein__emitter *z, ein__buf *out, bool *uploads) {
    ein_ctx *ctx = z->ctx;
    ptrdiff_t nin = arrlen(ctx->graph.input);
    const char *model = ein__symbol(ctx), *spatial = ein__number_text(ctx, z->spatial);
    ein__put_section(out, "sizes and offsets");
    ein__put_pointers(z, out);
    ein__put_uploads(z, out, uploads);
    if (z->convs) {
        ein__put(out, "\n");
        ein__key types[] = {{"spatial", spatial}};
        ein__tmpl_put(out, ein__tmpl_conv_types, types, 1);
        ein__put_conv_sizes(z, out);
    }
    ein__put_section(out, "kernels");
    ein__emit_helpers(ctx, out, z->needs);
    ein__put_n(out, z->kernels.s, z->kernels.n);
    if (!z->kernels.n) ein__put(out, "// (none)\n");
    ein__put_section(out, "state");
    ein__key state[] = {{"model", model},
                        {"conv", z->convs ? "1" : "0"},
                        {"convs", ein__number_text(ctx, z->convs)},
                        {"gemm", z->gemms ? "1" : "0"},
                        {"nin", ein__number_text(ctx, nin ? nin : 1)},
                        {"nout", ein__number_text(ctx, arrlen(ctx->graph.output))}};
    ein__tmpl_put(out, ein__tmpl_state, state, 6);
    if (z->convs) {
        ein__put(out, "\n");
        ein__key conv[] = {{"model", model},
                           {"spatial", spatial},
                           {"rank", ein__number_text(ctx, z->spatial + 2)},
                           {"limit", ein__number_text(ctx, ctx->plan.workspace_bytes)}};
        ein__tmpl_put(out, ein__tmpl_conv, conv, 4);
    }
    if (z->gemms) {
        ein__put(out, "\n");
        ein__key gemm[] = {{"model", model}};
        ein__tmpl_put(out, ein__tmpl_gemm, gemm, 1);
        ein__put_gemm_sizes(z, out);
    }
}

EIN__FN void ein__emit_cuda(ein_ctx *ctx, ein__buf *out) {
    ein__emitter z = {.ctx = ctx};
    bool uploads = false;
    ein__collect(&z);
    if (!ctx->status) {
        ein__emit_banner(ctx, out);
        ein__put_summary(&z, out);
        ein__put_section(out, "includes");
        ein__put(out, "#include <cuda_runtime.h>\n");
        if (z.gemms) ein__put(out, "#include <cublas_v2.h>\n");
        if (z.convs) ein__put(out, "#include <cudnn.h>\n");
        ein__put(
            out,
            "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        ein__emit_includes(out, z.needs);
        ein__put_section(out, "interface");
        ein__emit_interface(ctx, out);
        ein__put_state(&z, out, &uploads);
        ein__put_program(&z, out, uploads);
    }
    ein__emitter_free(&z);
}

EIN__FN void ein__emit_header(ein_ctx *ctx, ein__buf *out) {
    const char *upper = ein__symbol_upper(ctx);
    ein__emit_banner(ctx, out);
    ein__putf(out, "#ifndef EINNET_GEN_%s_H\n#define EINNET_GEN_%s_H\n\n", upper, upper);
    ein__put(out, "#include <cuda_runtime_api.h>\n#include <stddef.h>\n\n");
    ein__emit_interface(ctx, out);
    ein__putf(out, "\n#endif  // EINNET_GEN_%s_H\n", upper);
}
/* ---- emit_test.c ---- */
// The companion test program: kernels straight from the model's equations, one a value, and fixed
// host code that compares the emitted program with them, times it, reads and writes .npy files.

// Names of values and of reference functions that are unique in the file: two different ones that
// would meet are told apart by a hash.
typedef struct ein__tnames {
    struct {
        char *key;
        int value;
    } * taken;
} ein__tnames;

static const char *ein__tunique(ein_ctx *ctx, ein__tnames *names, const char *prefix,
                                const char *name) {
    const char *plain = ein__namef(ctx, "%s%s", prefix, ein__plain_name(ctx, name));
    const char *unique = plain;
    uint64_t h = ein__fnv(EIN__FNV_START, name, strlen(name));
    while (shgeti(names->taken, unique) >= 0) {
        unique = ein__namef(ctx, "%s_%08x", plain, (unsigned)(h ^ h >> 32));
        h = ein__splitmix(h);
    }
    shput(names->taken, unique, 1);
    return unique;
}

typedef struct ein__tester {
    ein_ctx *ctx;
    ein__val *order;    // values as lowered, operands first, those of a node in a row
    ein__val *output;   // by graph output
    int *last;          // by value id: position of the last reader; INT32_MAX: kept
    const char **name;  // by value id: its enumerator
    ein__tnames names;
    struct {
        char *key;
        const char *value;
    } * kernel;  // texts by name
    ein__buf kernels, steps;
    unsigned needs;
} ein__tester;

static ein__dtype ein__ttype(const ein__tester *z, ein__val v) {
    const ein__value *p = ein__val_get(z->ctx, v);
    bool half = p->dtype == EIN__F16 || p->dtype == EIN__BF16;
    return half && p->kind == EIN__V_SCOPE ? EIN__F32 : p->dtype;
}

static int64_t ein__tbytes(const ein__tester *z, ein__val v) {
    return ein__elements(&ein__val_get(z->ctx, v)->shape) * ein__dtype_size(ein__ttype(z, v));
}

static bool ein__thalf(const ein_ctx *ctx) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.tensor); i++)
        if (ctx->graph.tensor[i].dtype == EIN__F16 || ctx->graph.tensor[i].dtype == EIN__BF16)
            return true;
    return false;
}

// A value reads only older ones, and lowering goes through the nodes in order: by age, operands
// come first and the values of a node stand together.
static void ein__torder(ein__tester *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.output); i++)
        arrput(z->output, ctx->tensor_value[ctx->graph.output[i].tensor]);
    ein__val *live = ein__live(ctx, z->output, (int)arrlen(z->output));
    bool *needed = NULL;
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) arrput(needed, false);
    for (ptrdiff_t i = 0; i < arrlen(live); i++) needed[live[i].i] = true;
    for (ptrdiff_t i = 1; i < arrlen(ctx->value); i++)
        if (needed[i]) arrput(z->order, ((ein__val){(uint32_t)i}));
    arrfree(needed);
    arrfree(live);
}

static void ein__tlast(ein__tester *z) {
    ein_ctx *ctx = z->ctx;
    arrsetlen(z->last, arrlen(ctx->value));
    arrsetlen(z->name, arrlen(ctx->value));
    for (ptrdiff_t i = 0; i < arrlen(ctx->value); i++) z->last[i] = -1;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        const ein__value *p = ein__val_get(ctx, z->order[i]);
        z->name[z->order[i].i] = ein__tunique(ctx, &z->names, "v_", p->name);
        if (p->kind != EIN__V_SCOPE) {
            z->last[z->order[i].i] = INT32_MAX;
            continue;
        }
        ein__ex *reads = NULL;
        ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body, &reads);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t v = ein__ex_get(ctx, reads[k])->val;
            EIN_ASSERT(v < z->order[i].i);
            if (z->last[v] < (int)i) z->last[v] = (int)i;
        }
        arrfree(reads);
    }
    for (ptrdiff_t i = 0; i < arrlen(z->output); i++) z->last[z->output[i].i] = INT32_MAX;
}

// The operator's name in lower case, so that kernels of the same text share one name.
static const char *ein__thint(ein_ctx *ctx, const ein__value *p) {
    const char *op = p->node >= 0 ? ctx->graph.node[p->node].op : NULL;
    ein__buf b = {0};
    if (!op) return "equation";
    for (; *op; op++) {
        char c = *op >= 'A' && *op <= 'Z' ? (char)(*op + 32) : *op;
        ein__put_n(&b, &c, 1);
    }
    const char *hint = ein__plain_name(ctx, b.s ? b.s : "");
    ein__buf_free(&b);
    return hint;
}

static void ein__tequation(ein__tester *z, ein__buf *out, ein__val v) {
    ein__emitter e = {.ctx = z->ctx};
    ein__put_algebra(&e, out, v, "");
}

static bool ein__tkernel(ein__tester *z, ein__val v, ein__launch *l) {
    ein_ctx *ctx = z->ctx;
    ein__buf text = {0};
    ein__emit_naive(ctx, v, ein__thint(ctx, ein__val_get(ctx, v)), &text, l);
    if (!ctx->status && !l->name)
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "%s: addresses exceed 64 bits",
                   ein__val_get(ctx, v)->name);
    if (!ctx->status) {
        const char *copy = ein__name(ctx, text.s);
        ptrdiff_t known = shgeti(z->kernel, l->name);
        if (known >= 0 && z->kernel[known].value != copy)
            ein__error(ctx, EIN_RESOURCES, (ein__pos){0}, "two kernels are called %s", l->name);
        if (known < 0) {
            shput(z->kernel, l->name, copy);
            ein__put(&z->kernels, "\n");
            ein__tequation(z, &z->kernels, v);
            ein__put(&z->kernels, copy);
        }
        z->needs |= l->needs;
    }
    ein__buf_free(&text);
    return !ctx->status;
}

// Makes value order[i] and frees what it is the last to read.
static void ein__tvalue(ein__tester *z, ein__buf *out, ptrdiff_t i) {
    ein__val v = z->order[i];
    ein__launch l;
    if (!ein__tkernel(z, v, &l)) return;
    ein__putf(out, "    TRY(r->make(%s, %lld));\n    %s<<<", z->name[v.i],
              (long long)ein__tbytes(z, v), l.name);
    EIN_ASSERT(l.grid[1] == 1 && l.grid[2] == 1 && l.block[1] == 1 && l.block[2] == 1 && !l.smem);
    ein__putf(out, "%u, %u, 0, s>>>(", l.grid[0], l.block[0]);
    for (int k = 0; k < l.narg; k++) ein__putf(out, "%sv[%s]", k ? ", " : "", z->name[l.arg[k].i]);
    ein__put(out, ");\n    TRY(r->done(");
    const char *separator = "";
    for (int k = 0; k + 1 < l.narg; k++) {
        if (z->last[l.arg[k].i] != (int)i) continue;
        ein__putf(out, "%s%s", separator, z->name[l.arg[k].i]);
        separator = ", ";
    }
    ein__put(out, "));\n");
}

enum { EIN__TLAUNCHES = 40 };

// All values in order, as functions of bounded length and one that calls them.
static void ein__tsteps(ein__tester *z) {
    ein_ctx *ctx = z->ctx;
    int n = 0;
    for (ptrdiff_t i = 0; !ctx->status && i < arrlen(z->order); i++) {
        if (ein__val_get(ctx, z->order[i])->kind != EIN__V_SCOPE) continue;
        if (n++ % EIN__TLAUNCHES == 0)
            ein__putf(&z->steps,
                      "%s\nstatic int reference_%d(reference *r) {\n"
                      "    buffer *v = r->value;\n    cudaStream_t s = r->t->stream;\n",
                      n > 1 ? "    return 0;\n}\n" : "", (n - 1) / EIN__TLAUNCHES + 1);
        ein__tvalue(z, &z->steps, i);
    }
    if (n) ein__put(&z->steps, "    return 0;\n}\n");
    ein__put(&z->steps, "\nstatic int reference_run(reference *r) {\n");
    if (!n) ein__put(&z->steps, "    (void)r;\n");
    for (int i = 0; i < n; i += EIN__TLAUNCHES)
        ein__putf(&z->steps, "    TRY(reference_%d(r));\n", i / EIN__TLAUNCHES + 1);
    ein__put(&z->steps, "    return 0;\n}\n");
}

// The position of a tensor among the model's inputs or weights.
static int ein__tposition(const int *list, int tensor) {
    int i = 0;
    while (list[i] != tensor) i++;
    return i;
}

// The rows of a table that says where values come from: in the input list or in the blob.
static void ein__tsources(ein__tester *z, ein__buf *out, ein__vkind kind) {
    const ein__graph *g = &z->ctx->graph;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        const ein__value *p = ein__val_get(z->ctx, z->order[i]);
        int64_t at, total;
        if (p->kind != kind) continue;
        if (kind == EIN__V_INPUT) at = ein__tposition(g->input, p->tensor);
        else at = ein__blob_offset(z->ctx, ein__tposition(g->weight, p->tensor), &total);
        ein__putf(out, "    {%s, %lld, %lld},\n", z->name[z->order[i].i], (long long)at,
                  (long long)ein__tbytes(z, z->order[i]));
    }
    ein__put(out, "    {VALUES, 0, 0}};\n");
}

static void ein__ttables(ein__tester *z, ein__buf *out) {
    // ORDER ein__dtype
    static const char *const type[EIN__NDTYPE] = {"F32", "F16", "BF16", "I8", "I32", "I64", "BOOL"};
    size_t column = EIN__COLUMNS;
    ein__put(out, "enum {");
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        const char *name = z->name[z->order[i].i];
        bool wrap = column + strlen(name) + 2 > EIN__COLUMNS;
        ein__putf(out, "%s%s,", wrap ? "\n    " : " ", name);
        column = (wrap ? 3 : column) + strlen(name) + 2;
    }
    ein__put(out,
             "\n    VALUES\n};\n\n// Value, which input, bytes.\nstatic const struct { "
             "int value, input; size_t bytes; } reference_inputs[] = {\n");
    ein__tsources(z, out, EIN__V_INPUT);
    ein__put(out,
             "\n// Value, offset in the blob, bytes.\nstatic const struct { int value; "
             "size_t offset, bytes; } reference_weights[] = {\n");
    ein__tsources(z, out, EIN__V_WEIGHT);
    ein__put(out,
             "\n// Value, type in which the reference keeps it, elements.\nstatic const "
             "struct { int value, type; size_t count; } reference_outputs[] = {\n");
    for (ptrdiff_t i = 0; i < arrlen(z->output); i++)
        ein__putf(out, "    {%s, %s, %lld},\n", z->name[z->output[i].i],
                  type[ein__ttype(z, z->output[i])],
                  (long long)ein__elements(&ein__val_get(z->ctx, z->output[i])->shape));
    ein__put(out, "};\n\n");
}

static void ein__tbase(ein__tester *z, ein__buf *out, bool conv, bool gemm) {
    ein_ctx *ctx = z->ctx;
    ein__key keys[] = {{"model", ein__symbol(ctx)},
                       {"inputs", ein__namef(ctx, "%d", (int)arrlen(ctx->graph.input))},
                       {"outputs", ein__namef(ctx, "%d", (int)arrlen(ctx->graph.output))},
                       {"tolerance", ein__thalf(ctx) ? "1e-2" : "1e-5"},
                       {"conv", conv ? "1" : "0"},
                       {"gemm", gemm ? "1" : "0"}};
    ein__tmpl_put(out, ein__tmpl_test_base, keys, 6);
}

static void ein__tfree(ein__tester *z) {
    arrfree(z->order);
    arrfree(z->output);
    arrfree(z->last);
    arrfree(z->name);
    shfree(z->names.taken);
    shfree(z->kernel);
    ein__buf_free(&z->kernels);
    ein__buf_free(&z->steps);
}

static void ein__thead(ein__tester *z, ein__buf *out, bool conv, bool gemm) {
    static const char *const header[] = {"errno", "limits", "math",   "stddef",
                                         "stdio", "stdlib", "string", "time"};
    const char *name = ein__symbol(z->ctx);
    ein__emit_banner(z->ctx, out);
    ein__putf(out,
              "//\n// Checks and times the program in %s.cu. Build and run:\n"
              "//     nvcc -O2 %s_test.cu %s.cu -lcudnn -lcublas\n"
              "//     ./a.out WEIGHTS --check --bench\n"
              "// Without arguments it prints what else it can do.\n",
              name, name, name);
    ein__put_section(out, "includes");
    ein__put(out, "#include <cuda_runtime.h>\n");
    if (gemm) ein__put(out, "#include <cublas_v2.h>\n");
    if (conv) ein__put(out, "#include <cudnn.h>\n");
    for (size_t i = 0; i < sizeof header / sizeof *header; i++)
        ein__putf(out, "#include <%s.h>\n", header[i]);
    ein__emit_includes(out, z->needs);
    ein__put_section(out, "interface");
    ein__emit_interface(z->ctx, out);
}

EIN__FN void ein__emit_test(ein_ctx *ctx, ein__buf *out) {
    ein__tester z = {.ctx = ctx};
    bool conv = false, gemm = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->plan.step); i++) {
        gemm |= ctx->plan.step[i].kind == EIN__K_GEMM;
        conv |= ctx->plan.step[i].kind == EIN__K_CONV || ctx->plan.step[i].kind == EIN__K_CONV_DATA;
    }
    ein__torder(&z);
    ein__tlast(&z);
    ein__put(&z.kernels, "");
    ein__tsteps(&z);
    if (!ctx->status) {
        ein__thead(&z, out, conv, gemm);
        ein__put(out, "\nnamespace einnet_test {\n");
        ein__put_section(out, "basics");
        ein__tbase(&z, out, conv, gemm);
        ein__put_section(out, "elements and files");
        ein__tmpl_put(out, ein__tmpl_test_data, NULL, 0);
        ein__put_section(out, "the reference: the model's equations, one kernel a value");
        ein__ttables(&z, out);
        ein__tmpl_put(out, ein__tmpl_test_reference, NULL, 0);
        ein__put_n(out, z.kernels.s, z.kernels.n);
        ein__put_n(out, z.steps.s, z.steps.n);
        ein__put_section(out, "comparison");
        ein__tmpl_put(out, ein__tmpl_test_check, NULL, 0);
        ein__put_section(out, "figures");
        ein__tmpl_put(out, ein__tmpl_test_bench, NULL, 0);
        ein__put_section(out, "the program");
        ein__tmpl_put(out, ein__tmpl_test_main, NULL, 0);
        ein__put(out,
                 "\n}  // namespace einnet_test\n\n"
                 "int main(int argc, char **argv) { return einnet_test::run(argc, argv); }\n");
    }
    ein__tfree(&z);
}
/* ---- explain.c ---- */
// What the derivation found, for people and for other programs: every definition of a contraction
// with its steps, the rules that led to it and its cost.

typedef struct ein__explainer {
    ein_ctx *ctx;
    ein__deriver *z;
    ein__buf *out;
    bool json;
    bool *listed;    // by value id: its step is printed already
    ein__val other;  // a class that the candidate takes by definition `by`, not by its cheapest
    int by;
    int nstep;
} ein__explainer;

static void ein__put_sizes_json(ein__buf *out, const char *name, const int64_t *v, int n) {
    ein__putf(out, ", \"%s\": [", name);
    for (int i = 0; i < n; i++) ein__putf(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    ein__put(out, "]");
}

static void ein__put_gemm_match(ein__explainer *x, const ein__gemm *g) {
    ein__putf(x->out,
              x->json
                  ? "{\"kind\": \"gemm\", \"batch\": %lld, \"m\": %lld, \"n\": %lld, \"k\": %lld}"
                  : "GEMM batch %lld, m %lld, n %lld, k %lld",
              (long long)g->batch, (long long)g->m, (long long)g->n, (long long)g->k);
}

static void ein__put_band_match(ein__explainer *x, const ein__band *g) {
    ein__putf(x->out,
              x->json ? "{\"kind\": \"%s\", \"batch\": %lld, \"m\": %lld, \"n\": %lld, "
                        "\"k\": %lld, \"dilation\": %lld}"
                      : "%s kernel, batch %lld, rows %lld, band %lld, depth %lld, dilation %lld",
              g->reduced ? (x->json ? "gbmm" : "GBMM") : (x->json ? "g2bmm" : "G2BMM"),
              (long long)g->batch, (long long)g->rows, (long long)g->width, (long long)g->depth,
              (long long)g->d);
}

static void ein__put_conv_match(ein__explainer *x, const ein__conv_form *f) {
    const ein__conv *c = &f->c;
    ein__putf(x->out,
              x->json ? "{\"kind\": \"%s\", \"n\": %lld, \"c\": %lld, \"f\": %lld, \"group\": %lld"
                      : "%s n %lld, c %lld, f %lld, groups %lld, filter ",
              f->transposed ? "conv_backward_data" : "conv", (long long)c->n, (long long)c->c,
              (long long)c->f, (long long)c->group);
    if (!x->json) {
        ein__put_sizes(x->out, c->k, c->spatial);
        return;
    }
    ein__put_sizes_json(x->out, "filter", c->k, c->spatial);
    ein__put_sizes_json(x->out, "stride", c->stride, c->spatial);
    ein__put_sizes_json(x->out, "dilation", c->dilation, c->spatial);
    ein__put(x->out, "}");
}

// How a definition is computed: the library call that is cheapest, or a kernel. In JSON also every
// call that matches, cheapest or not.
static void ein__put_signature(ein__explainer *x, const ein__def *d) {
    ein_ctx *ctx = x->ctx;
    const ein__scope *s = ein__sc_get(ctx, d->sc);
    int64_t dense[EIN__MAX_RANK], ps;
    ein__conv_form f;
    ein__gemm g;
    ein__band b;
    bool product = ein__is_contraction(ctx, s), last = d->cls.i == x->z->problem.i;
    ein__dense_result(s, dense);
    bool gemm = product && ein__match_gemm(ctx, s, dense, &g);
    bool conv = product && ein__find_conv(ctx, s, dense, &f) && ein__conv_sizes(&f);
    bool band = product && ein__match_band(ctx, s, &b);
    ein__skind2 kind = s->ns ? EIN__K_REDUCE : EIN__K_MAP;
    if (product) kind = ein__choose(ctx, s, last ? x->z->map : (ein__val){0}, x->z->map_read, &ps);
    bool load = ctx->value[d->cls.i].weight_only;
    const char *name = s->ns ? "reduction kernel" : "map kernel";
    if (kind == EIN__K_GEMM && gemm) ein__put_gemm_match(x, &g);
    else if ((kind == EIN__K_CONV || kind == EIN__K_CONV_DATA) && conv) ein__put_conv_match(x, &f);
    else if (kind == EIN__K_BAND && band) ein__put_band_match(x, &b);
    else ein__putf(x->out, x->json ? "{\"kind\": \"%s%s\"}" : "%s%s", name, load ? " at load" : "");
    if (!x->json) return;
    ein__put(x->out, ", \"matches\": [");
    if (gemm) ein__put_gemm_match(x, &g);
    if (gemm && conv) ein__put(x->out, ", ");
    if (conv) ein__put_conv_match(x, &f);
    if ((gemm || conv) && band) ein__put(x->out, ", ");
    if (band) ein__put_band_match(x, &b);
    ein__put(x->out, "]");
}

static void ein__put_step_line(ein__explainer *x, int def) {
    ein_ctx *ctx = x->ctx;
    const ein__def *d = &x->z->def[def];
    ein__buf *out = x->out, text = {0};
    ein__sc keep = ctx->value[d->cls.i].scope;
    // The class is printed by this definition, not by its first.
    ctx->value[d->cls.i].scope = d->sc;
    ein__print_value(ctx, d->cls, &text);
    ctx->value[d->cls.i].scope = keep;
    int64_t ps = ein__def_step_cost(x->z, d);
    const char *why = ein__trail(x->z, def);
    if (x->json) {
        ein__put(out, x->nstep ? ",\n         " : "\n         ");
        ein__put(out, "{\"equation\": ");
        ein__json_string(out, text.s);
        ein__put(out, ", \"call\": ");
        ein__put_signature(x, d);
        ein__putf(out, ", \"ps\": %lld, \"rules\": ", (long long)ps);
        ein__json_string(out, why);
        ein__put(out, "}");
    } else {
        ein__put(out, "      ");
        ein__put_us(out, ps);
        ein__put(out, "  ");
        ein__put_signature(x, d);
        if (*why) ein__putf(out, "\n                  by %s", why);
        ein__putf(out, "\n                  %s\n", text.s);
    }
    ein__buf_free(&text);
    x->nstep++;
}

// The steps of a definition, operands first; other classes by their cheapest definition.
static void ein__put_steps_of(ein__explainer *x, int def) {
    ein_ctx *ctx = x->ctx;
    ein__ex *reads = NULL;
    ein__ex_reads(ctx, ein__sc_get(ctx, x->z->def[def].sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t v = ein__ex_get(ctx, reads[i])->val;
        while (arrlen(x->listed) <= (ptrdiff_t)v) arrput(x->listed, false);
        int best = ein__best_def(x->z, (ein__val){v});
        bool made = best >= 0;
        if (!made || x->listed[v] || v == x->z->problem.i) continue;
        x->listed[v] = true;
        ein__put_steps_of(x, v == x->other.i ? x->by : best);
    }
    arrfree(reads);
    ein__put_step_line(x, def);
}

typedef struct ein__candidate {
    int def;         // of the problem
    ein__val other;  // none, or a class it reads that is taken by definition `by`
    int by;
    int64_t ps;
} ein__candidate;

static void ein__put_candidate(ein__explainer *x, const ein__candidate *c, int id, bool chosen) {
    for (ptrdiff_t i = 0; i < arrlen(x->listed); i++) x->listed[i] = false;
    x->nstep = 0;
    x->other = c->other;
    x->by = c->by;
    if (x->json) {
        ein__putf(x->out, "%s\n      {\"id\": %d, \"ps\": %lld, \"chosen\": %s, \"steps\": [",
                  id ? "," : "", id, (long long)c->ps, chosen ? "true" : "false");
        ein__put_steps_of(x, c->def);
        ein__put(x->out, "]}");
        return;
    }
    ein__putf(x->out, "  candidate %d%s:", id, chosen ? ", chosen" : "");
    ein__put_us(x->out, c->ps);
    ein__put(x->out, "\n");
    ein__put_steps_of(x, c->def);
}

static void ein__add_candidate(ein__candidate **list, ein__candidate c) {
    ptrdiff_t at = arrlen(*list);
    while (at > 0 && (*list)[at - 1].ps > c.ps) at--;
    arrins(*list, at, c);
}

// Definition `def` of the problem with everything it reads at its cheapest, and once for every
// other definition of a class that it reads.
static void ein__add_candidates(ein__deriver *z, int def, ein__candidate **list) {
    ein_ctx *ctx = z->ctx;
    ein__ex *reads = NULL;
    int64_t ps = ein__def_cost(z, &z->def[def], EIN__NO_WAY);
    ein__add_candidate(list, (ein__candidate){.def = def, .ps = ps});
    ein__ex_reads(ctx, ein__sc_get(ctx, z->def[def].sc)->body, &reads);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__val v = {ein__ex_get(ctx, reads[i])->val};
        int best = ein__best_def(z, v);
        if (best < 0 || v.i == z->problem.i) continue;
        for (ptrdiff_t k = 0; k < arrlen(z->def); k++) {
            if (z->def[k].cls.i != v.i || k == best) continue;
            int64_t other = ps - ein__class_cost(z, v) + ein__def_cost(z, &z->def[k], EIN__NO_WAY);
            ein__add_candidate(list, (ein__candidate){def, v, (int)k, other});
        }
    }
    arrfree(reads);
}

// Candidates for the problem, cheapest first; all of them, or the chosen one and the one it started
// from.
static void ein__explain_value(ein_ctx *ctx, ein__val v, ein__val map, ein__ex read, bool all,
                               bool json, ein__buf *out) {
    ein__deriver z = ein__deriver_of(ctx, v, map, read);
    ein__explainer x = {.ctx = ctx, .z = &z, .out = out, .json = json};
    ein__candidate *list = NULL;
    ein__explore(&z);
    if (!ctx->status) ein__class_cost(&z, v);
    for (ptrdiff_t i = 0; i < arrlen(z.def) && !ctx->status; i++)
        if (z.def[i].cls.i == v.i) ein__add_candidates(&z, (int)i, &list);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        bool chosen = list[i].def == ein__best_def(&z, v) && !list[i].other.i;
        if (all || chosen || (list[i].def == 0 && !list[i].other.i))
            ein__put_candidate(&x, &list[i], (int)i, chosen);
    }
    arrfree(list);
    arrfree(x.listed);
    ein__deriver_free(&z);
}

// Every contraction of the model, or the one called `name`.
EIN__FN bool ein__explain(ein_ctx *ctx, const char *name, bool all, bool json, ein__buf *out) {
    int nroot = (int)arrlen(ctx->graph.output), found = 0;
    ein__val *root = EIN__NEW(&ctx->arena, ein__val, nroot + 1);
    for (int k = 0; k < nroot; k++) root[k] = ctx->tensor_value[ctx->graph.output[k].tensor];
    if (!ein__own_outputs(ctx, root, nroot) || !ein__fold(ctx, root, nroot)) return false;
    ein__val *order = ein__live(ctx, root, nroot);
    int *uses = ein__count_uses(ctx, order, root, nroot);
    if (json) ein__put(out, "{\"einnet_explain\": 1, \"values\": [");
    for (ptrdiff_t i = 0; i < arrlen(order) && !ctx->status; i++) {
        ein__val v = order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        const char *mine = ctx->value[v.i].name;
        if (!s || ctx->value[v.i].weight_only || !ein__is_contraction(ctx, s)) continue;
        size_t n = name ? strlen(name) : 0;
        if (name && strcmp(mine, name) && (strncmp(mine, name, n) || mine[n] != '.')) continue;
        ein__ex read = {0};
        ein__val map = ein__sole_reader(ctx, order, uses, v, i + 1, &read);
        if (json) {
            ein__putf(out, "%s\n  {\"value\": ", found ? "," : "");
            ein__json_string(out, mine);
            ein__put(out, ", \"candidates\": [");
        } else {
            ein__putf(out, "%s%s\n", found ? "\n" : "", mine);
        }
        ein__explain_value(ctx, v, map, read, all, json, out);
        if (json) ein__put(out, "]}");
        found++;
    }
    if (json) ein__put(out, "]}\n");
    arrfree(order);
    arrfree(uses);
    if (name && !found)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "no contraction is called '%s'", name);
    return !ctx->status;
}

// Whether the plan computes what the model says: every output, the value as lowered against the
// value as planned, modulo 2^61-1 at `samples` random places. `name` receives the output that
// differs.
EIN__FN bool ein__verify(ein_ctx *ctx, int samples, const char **name) {
    for (ptrdiff_t k = 0; k < arrlen(ctx->graph.output); k++) {
        *name = ctx->graph.output[k].name;
        ein__val a = ctx->tensor_value[ctx->graph.output[k].tensor], b = ctx->plan.root[k];
        if (!ein__evalp_equal(ctx, a, b, samples, 1)) return false;
    }
    return true;
}
/* ---- api.c ---- */
// The public functions: text in, text out.

static char *ein__copy_text(ein_ctx *ctx, const char *s, size_t n) {
    char *copy = ein__alloc(&ctx->arena, n + 1);
    if (n) memcpy(copy, s, n);
    return copy;
}

EIN_DEF ein_ctx *ein_open(const ein_desc *desc) {
    ein_ctx *ctx = EIN_REALLOC(NULL, sizeof *ctx);
    if (!ctx) return NULL;
    memset(ctx, 0, sizeof *ctx);
    if (desc) ctx->desc = *desc;
    const char **text[] = {&ctx->desc.gpu, &ctx->desc.prefix, &ctx->desc.license,
                           &ctx->desc.explain, &ctx->desc.rules};
    for (int i = 0; i < 5; i++)
        if (*text[i]) *text[i] = ein__copy_text(ctx, *text[i], strlen(*text[i]));
    ein__put(&ctx->errors, "");
    if (ctx->desc.gpu && !ein__gpu_find(ctx->desc.gpu))
        ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "unknown GPU '%s'", ctx->desc.gpu);
    ctx->rule_mask = ein__rules_named(ctx, ctx->desc.rules);
    return ctx;
}

EIN_DEF void ein_close(ein_ctx *ctx) {
    if (!ctx) return;
    ein__graph *g = &ctx->graph;
    arrfree(g->tensor);
    arrfree(g->node);
    arrfree(g->input);
    arrfree(g->weight);
    arrfree(g->output);
    arrfree(g->dim);
    arrfree(g->blob);
    arrfree(ctx->value);
    arrfree(ctx->dim_override);
    shfree(ctx->costs);
    ein__plan_free(&ctx->plan);
    ein__search_free(ctx->search);
    ein__table *tables[] = {&ctx->names, &ctx->atoms, &ctx->indices, &ctx->exprs, &ctx->scopes};
    for (int i = 0; i < 5; i++) ein__table_free(tables[i]);
    ein__buf_free(&ctx->errors);
    ein__arena_free(&ctx->arena);
    EIN_FREE(ctx);
}

EIN_DEF ein_status ein_set_dim(ein_ctx *ctx, const char *name, int64_t value) {
    if (ctx->status) return ctx->status;
    if (value < 1)
        return ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "dim '%s' must be at least 1", name);
    for (ptrdiff_t i = 0; i < arrlen(ctx->dim_override); i++)
        if (!strcmp(ctx->dim_override[i].name, name))
            return ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "dim '%s' is given twice", name);
    ptrdiff_t at = arrlen(ctx->dim_override);
    arrsetlen(ctx->dim_override, at + 1);
    ctx->dim_override[at].name = ein__name(ctx, name);
    ctx->dim_override[at].value = value;
    ctx->dim_override[at].used = false;
    return ctx->status;
}

EIN_DEF ein_status ein_add_model(ein_ctx *ctx, const char *name, const char *text, size_t length) {
    if (ctx->status) return ctx->status;
    if (ctx->text) return ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "a context holds one model");
    ctx->file = ein__name(ctx, name);
    ctx->text = ein__copy_text(ctx, text, length);
    ctx->length = length;
    if (ein__parse(ctx)) ein__expand(ctx);
    return ctx->status;
}

EIN_DEF ein_status ein_add_costs(ein_ctx *ctx, const char *name, const char *text, size_t length) {
    if (!ctx->status) ein__add_costs(ctx, name, text, length);
    return ctx->status;
}

static bool ein__need_model(ein_ctx *ctx) {
    if (!ctx->status && !ctx->text)
        ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "no model was added");
    return !ctx->status;
}

static bool ein__need_values(ein_ctx *ctx) {
    return ein__need_model(ctx) && (ctx->tensor_value || ein__lower(ctx));
}

EIN_DEF ein_status ein_plan(ein_ctx *ctx) {
    if (ein__need_values(ctx) && !ctx->plan.step) ein__make_plan(ctx);
    return ctx->status;
}

static void ein__emit_equations(ein_ctx *ctx, ein__buf *out) {
    int n = (int)arrlen(ctx->graph.output);
    ein__val *root = NULL;
    for (int i = 0; i < n; i++) arrput(root, ctx->tensor_value[ctx->graph.output[i].tensor]);
    ein__val *order = ein__live(ctx, root, n);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        if (ctx->value[order[i].i].kind != EIN__V_SCOPE) continue;
        ein__print_value(ctx, order[i], out);
        if (out->n && out->s[out->n - 1] != '\n') ein__put(out, "\n");
    }
    arrfree(root);
    arrfree(order);
}

EIN_DEF ein_status ein_emit(ein_ctx *ctx, ein_output what, ein_writer writer) {
    ein__buf out = {0};
    ein__put(&out, "");
    bool ready = what == EIN_FORMAT || what == EIN_GRAPH_JSON ? ein__need_model(ctx)
                 : what == EIN_EQUATIONS || what == EIN_EXPLAIN || what == EIN_EXPLAIN_JSON
                     ? ein__need_values(ctx)
                     : !ein_plan(ctx);
    if (ready) switch (what) {
        case EIN_CUDA: ein__emit_cuda(ctx, &out); break;
        case EIN_HEADER: ein__emit_header(ctx, &out); break;
        case EIN_TEST: ein__emit_test(ctx, &out); break;
        case EIN_FORMAT: ein__format(ctx, &out, true); break;
        case EIN_GRAPH_JSON: ein__graph_json(ctx, &out); break;
        case EIN_EQUATIONS: ein__emit_equations(ctx, &out); break;
        case EIN_EXPLAIN:
        case EIN_EXPLAIN_JSON:
            ein__explain(ctx, ctx->desc.explain, ctx->desc.explain_all, what == EIN_EXPLAIN_JSON,
                         &out);
            break;
        default: ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "unknown output"); break;
        }
    if (!ctx->status && !writer.func(writer.user, out.s, out.n))
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "the output could not be written");
    ein__buf_free(&out);
    return ctx->status;
}

EIN_DEF ein_status ein_verify(ein_ctx *ctx, int samples) {
    const char *name = "";
    if (ein_plan(ctx)) return ctx->status;
    if (!ein__verify(ctx, samples, &name) && !ctx->status)
        ein__error(ctx, EIN_DIFFERS, (ein__pos){0, 0},
                   "output '%s': the plan computes something else", name);
    return ctx->status;
}

// ------------------------------------------------------------------------------------ description

static void ein__describe_tensor(const ein_ctx *ctx, int tensor, const char *name,
                                 ein_tensor_info *r) {
    const ein__tensor *t = &ctx->graph.tensor[tensor];
    r->name = name ? name : t->name;
    r->dtype = ein__dtype_name(t->dtype);
    r->rank = t->shape.rank;
    for (int i = 0; i < t->shape.rank; i++) r->dims[i] = t->shape.d[i];
    r->bytes = (size_t)(ein__elements(&t->shape) * ein__dtype_size(t->dtype));
    if (t->source == EIN__S_BLOB) {
        r->blob = t->blob;
        r->key = t->key;
    }
    r->seeded = t->source != EIN__S_BLOB && t->source != EIN__S_NONE;
}

EIN_DEF bool ein_describe(const ein_ctx *ctx, char kind, int index, ein_tensor_info *info) {
    const ein__graph *g = &ctx->graph;
    memset(info, 0, sizeof *info);
    if (index < 0) return false;
    if (kind == 'i' && index < (int)arrlen(g->input))
        ein__describe_tensor(ctx, g->input[index], NULL, info);
    else if (kind == 'w' && index < (int)arrlen(g->weight))
        ein__describe_tensor(ctx, g->weight[index], NULL, info);
    else if (kind == 'o' && index < (int)arrlen(g->output))
        ein__describe_tensor(ctx, g->output[index].tensor, g->output[index].name, info);
    else if (kind == 'b' && index < (int)arrlen(g->blob)) {
        info->name = g->blob[index].name;
        info->key = g->blob[index].path;
    } else {
        return false;
    }
    return true;
}

EIN_DEF bool ein_shape(const ein_ctx *ctx, const char *tensor, int *rank, int64_t dims[10]) {
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.tensor); i++) {
        const ein__tensor *t = &ctx->graph.tensor[i];
        if (strcmp(t->name, tensor)) continue;
        *rank = t->shape.rank;
        for (int k = 0; k < t->shape.rank; k++) dims[k] = t->shape.d[k];
        return true;
    }
    return false;
}

EIN_DEF uint64_t ein_manifest_hash(const ein_ctx *ctx) { return ein__manifest(ctx); }

EIN_DEF void ein_get_stats(const ein_ctx *ctx, ein_stats *stats) { *stats = ctx->stats; }

EIN_DEF const char *ein_rule_name(int index) {
    return index >= 0 && index < EIN__NRULES ? ein__rules[index].name : NULL;
}

EIN_DEF const char *ein_rule_description(int index) {
    return index >= 0 && index < EIN__NRULES ? ein__rules[index].what : NULL;
}

EIN_DEF const char *ein_stop_name(ein_stop stop) {
    static const char *const names[] = {"saturated", "quota", "depth", "states", "cancelled"};
    return stop >= EIN_STOP_SATURATED && stop <= EIN_STOP_CANCELLED ? names[stop] : NULL;
}

EIN_DEF ein_status ein_get_status(const ein_ctx *ctx) { return ctx->status; }

EIN_DEF const char *ein_error(const ein_ctx *ctx) { return ctx->errors.s ? ctx->errors.s : ""; }

EIN_DEF const char *ein_gpu_name(int index) {
    const ein__gpu *g = ein__gpu_at(index);
    return g ? g->name : NULL;
}

EIN_DEF const char *ein_operator_name(int index) { return ein__op_name(index); }

// ------------------------------------------------------------------------------------ values

// Nearest f16 or bf16 of a float, ties to even, as its bits.
static uint16_t ein__half_bits(float v, bool bf16) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    if (bf16) {
        if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
        return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
    }
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    double a = fabs((double)v);
    if (v != v) return (uint16_t)(sign | 0x7e00u);
    if (a >= 65520) return (uint16_t)(sign | 0x7c00u);
    // Units of the last place: 2^-24 below 2^-14, else 2^(exponent - 10); rint is exact on halves.
    int exponent = 0;
    frexp(a, &exponent);
    if (exponent < -13) exponent = -13;
    double scaled = ldexp(a, 11 - exponent), whole = floor(scaled), rest = scaled - whole;
    if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    uint32_t mantissa = (uint32_t)whole, biased = (uint32_t)(exponent + 13);
    // A mantissa of 2048 carries into the exponent by itself.
    return (uint16_t)(sign | (mantissa < 1024 ? mantissa : (biased << 10) + mantissa));
}

static double ein__half_value(uint16_t h, bool bf16) {
    if (bf16) {
        uint32_t u = (uint32_t)h << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        return (double)f;
    }
    int e = h >> 10 & 31, m = h & 1023;
    double a = e == 31 ? (m ? (double)NAN : (double)INFINITY)
               : e     ? ldexp(1024 + m, e - 25)
                       : ldexp(m, -24);
    return h & 0x8000 ? -a : a;
}

// Element i of a seeded source, as LANGUAGE.md defines it: exact, the same everywhere.
static double ein__seeded_value(const ein__tensor *t, ein__skind source, int64_t i) {
    uint64_t z = ein__splitmix((uint64_t)t->seed * 0x9E3779B97F4A7C15ull + (uint64_t)i);
    if (source == EIN__S_ZEROS) return 0;
    if (source == EIN__S_ONES) return 1;
    if (source == EIN__S_RANDN) {
        int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        float scale = (float)(t->a * 2.6429e-5);
        return (double)((float)(sum - 131070) * scale);
    }
    if (t->dtype != EIN__F32 && t->dtype != EIN__F16 && t->dtype != EIN__BF16) {
        uint64_t span = (uint64_t)(int64_t)t->b - (uint64_t)(int64_t)t->a + 1;
        return (double)((int64_t)t->a + (int64_t)(span ? z % span : z));
    }
    float u = (float)(z >> 40) * 0x1p-24f, lo = (float)t->a, hi = (float)t->b;
    float width = hi - lo, part = u * width;
    return (double)(lo + part);
}

static void ein__store(void *data, ein__dtype type, int64_t i, double v) {
    switch (type) {
    case EIN__F32: ((float *)data)[i] = (float)v; break;
    case EIN__F16:
    case EIN__BF16: ((uint16_t *)data)[i] = ein__half_bits((float)v, type == EIN__BF16); break;
    case EIN__I8: ((int8_t *)data)[i] = (int8_t)v; break;
    case EIN__I32: ((int32_t *)data)[i] = (int32_t)v; break;
    case EIN__I64: ((int64_t *)data)[i] = (int64_t)v; break;
    case EIN__BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case EIN__NDTYPE:
    default: break;
    }
}

static double ein__load(const void *data, ein__dtype type, int64_t i) {
    switch (type) {
    case EIN__F32: return (double)((const float *)data)[i];
    case EIN__F16:
    case EIN__BF16: return ein__half_value(((const uint16_t *)data)[i], type == EIN__BF16);
    case EIN__I8: return ((const int8_t *)data)[i];
    case EIN__I32: return ((const int32_t *)data)[i];
    case EIN__I64: return (double)((const int64_t *)data)[i];
    case EIN__BOOL: return ((const uint8_t *)data)[i] != 0;
    case EIN__NDTYPE:
    default: return 0;
    }
}

EIN_DEF ein_status ein_fill(const ein_ctx *ctx, char kind, int index, void *data) {
    const ein__graph *g = &ctx->graph;
    if (kind == 'w' && index >= 0 && index < (int)arrlen(g->weight)) {
        const ein__tensor *t = &g->tensor[g->weight[index]];
        if (t->source == EIN__S_NONE || t->source == EIN__S_BLOB) return EIN_USAGE;
        int64_t n = ein__elements(&t->shape);
        for (int64_t i = 0; i < n; i++)
            ein__store(data, t->dtype, i, ein__seeded_value(t, t->source, i));
        return EIN_OK;
    }
    if (kind == 'i' && index >= 0 && index < (int)arrlen(g->input)) {
        ein__tensor t = g->tensor[g->input[index]];
        bool real = t.dtype == EIN__F32 || t.dtype == EIN__F16 || t.dtype == EIN__BF16;
        t.seed = 7001 + index;
        t.a = real ? 1 : 0;
        t.b = 1;
        int64_t n = ein__elements(&t.shape);
        for (int64_t i = 0; i < n; i++)
            ein__store(data, t.dtype, i,
                       ein__seeded_value(&t, real ? EIN__S_RANDN : EIN__S_UNIFORM, i));
        return EIN_OK;
    }
    return EIN_USAGE;
}

static bool ein__load_tensors(ein_ctx *ctx, const int *list, const void *const *from,
                              double **data) {
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__tensor *t = &ctx->graph.tensor[list[i]];
        int64_t n = ein__elements(&t->shape);
        double *d = EIN_REALLOC(NULL, (size_t)n * sizeof *d);
        if (!d) EIN_OUT_OF_MEMORY();
        for (int64_t k = 0; k < n; k++) d[k] = ein__load(from[i], t->dtype, k);
        data[ctx->tensor_value[list[i]].i] = d;
    }
    return true;
}

EIN_DEF ein_status ein_eval(ein_ctx *ctx, const void *const *inputs, const void *const *weights,
                            double *const *outputs) {
    if (!ein__need_values(ctx)) return ctx->status;
    size_t n = (size_t)arrlen(ctx->value), nout = (size_t)arrlen(ctx->graph.output);
    double **data = EIN_REALLOC(NULL, n * sizeof *data);
    ein__val *want = NULL;
    if (!data) EIN_OUT_OF_MEMORY();
    memset(data, 0, n * sizeof *data);
    for (size_t i = 0; i < nout; i++) arrput(want, ctx->tensor_value[ctx->graph.output[i].tensor]);
    ein__load_tensors(ctx, ctx->graph.input, inputs, data);
    ein__load_tensors(ctx, ctx->graph.weight, weights, data);
    if (ein__eval_values(ctx, want, (int)nout, data))
        for (size_t i = 0; i < nout; i++)
            memcpy(outputs[i], data[want[i].i],
                   (size_t)ein__elements(&ctx->value[want[i].i].shape) * sizeof(double));
    for (size_t i = 0; i < n; i++) EIN_FREE(data[i]);
    EIN_FREE(data);
    arrfree(want);
    return ctx->status;
}
#endif
