// einnet.h - derivation-based tensor-program optimizer: reads a model in the .ein language, prints
// one self-contained CUDA source file. Version 0.1.0. SPDX-License-Identifier: MIT-0
//
// DO THIS
//     #define EINNET_IMPLEMENTATION
//     #include "einnet.h"
// in exactly one C11 file, and include "einnet.h" without the define wherever the API is used (C or
// C++). The one dependency beside the C library (link with -lm) is stb_ds.h (Debian: libstb-dev),
// needed by the implementing file only, as <stb/stb_ds.h>; define EIN_NO_STB_DS_IMPLEMENTATION
// there when the program has its bodies already.
//
// TL;DR
//     ein_ctx *ctx = ein_open(NULL);
//     ein_add_model(ctx, "net.ein", text, length);
//     ein_plan(ctx);
//     ein_emit(ctx, EIN_CUDA, (ein_writer){write_to_file, file});
//     if (ein_get_status(ctx)) fputs(ein_error(ctx), stderr);
//     ein_close(ctx);
// Errors are sticky: after the first one every call returns it at once and does nothing, so calls
// may be written in a row and tested once. A NULL context, as ein_open gives without memory, has
// the status EIN_RESOURCES.
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
//     input x: f32[N,3,H,H]                   a seeded source here makes the values of tests
//     weight k: f32[8,3,3,3] = W "key"        or zeros(), ones(), randn(seed, std),
//                                             uniform(seed, lo, hi); seeded values are exact
//     output y, z                             before or after y is defined
//     y = Conv(x, k; strides=2, pads=1)       ONNX operator, opset 21; `_` omits an operand
//     t[n,f,h] = sum(c) a[n,c,h-1] * b[f,c] where h in 0:H, pad a 0
// `#` starts a comment. A statement is one line; lines that are indented further than its first one
// continue it. Names are C identifiers with dots, or "quoted" with \" \\ \n \t \xNN. Types: f32 f16
// bf16 i8 u8 i32 i64 bool. Attribute values are integer expressions over dims, numbers, words,
// strings or lists; a number where ONNX wants a list holds for every spatial axis, in Pad for every
// axis. What ONNX passes as constant inputs (shape, axes, pads, scales, split, repeats, min, max)
// is an attribute; a type is a word (to=f16). Positions of Gather and GatherElements count from 0.
//   Equations. Subscripts: + - * and floored / % by constants. An index's range comes from `where`,
// else from a declared result, else from bare uses, which must agree; it may begin below 0. Reading
// outside a tensor is an error unless `pad T v` is given. A guard `[i < n]` is 1 where it holds and
// 0 elsewhere, and what it multiplies is evaluated only where it holds. sum prod max min reduce and
// bind like multiplication. Functions: relu tanh exp log sqrt rsqrt erf sin cos atan sigmoid abs
// neg floor ceil square, pow(a,b) min(a,b) max(a,b), quot(a,b), which is rounded to zero, and
// rem(a,b), what that leaves, select(a < b, p, q), idx(subscript); `T[@i[x], j]` reads T at the
// position held in i. A number is an equation too, `half[] = 0.5`, and a constant of the program; a
// weight is not.
//   Blocks. `block b(x; C, S=1) -> y { ... }` is called like an operator: `l1 = b(x; C=64)`.
// What is declared inside belongs to the first result: `l1.k`. A block sees dims, its parameters,
// inputs and own names, and calls blocks above it. A block that makes its result by a call,
// `y = c(x)`, shares the names with it: what both call k is `l1.k` of the outer and `l1.y.k` of the
// inner one; a name that only one of them has stays short. `repeat i in 0:4 { ... }` unrolls; names
// get the round's number (`w.0`); a name assigned inside and defined before is carried from round
// to round, and means the last round's value afterwards.
//   A seeded source without `seed` takes the FNV-1a hash of its tensor's full name, modulo 2^31.
// Unknown names, operators and attributes are errors that name the nearest known one.
//
// COST TABLE
// One row a line, fields separated by tabs: device, key, picoseconds, spread in 1/1000, versions.
// `#` starts a comment line; rows of other devices are skipped. ` algo=` at a key's end names the
// library's algorithm: cuDNN's number; an engine of its graph API with its settings, type=choice,
// `engine:28,2=5,13=0`; or `lt:` and what cublasLt's is set to. The fastest row of a key is used,
// those of the newest library alone, and its algorithm is pinned: the emitted create takes it where
// the library has the row's version and accepts it, else what the library chooses. An engine that
// cannot be taken is replaced by the first one in cuDNN's order that computes in FP32 or as the
// mode asks, gives the same bits on every run and is compiled already, or else by an algorithm of
// the older API.
// Two rows for one key, algorithm and version that differ are an error, but for ein_desc.prefer.
// EIN_COSTS prints all rows as one table (`einnet costs`).
// Keys are what the emitted file's steps would be measured under: `gemm f32 fma b=1 m=49 ...`,
// `conv f32 fma nchw n=1 ...` (`f32 tf32` and `f16 tensor` in the other modes, `nhwc`), and of
// generated kernels a kind and 16 hexadecimal digits, a hash of all that decides the kernel's text:
// `kernel map 1a2b3c4d5e6f7081`, `kernel product 0123456789abcdef algo=64x64x16` with its tile. A
// measured row wins over the estimate, which is a roofline model: shares of the device's peak rates
// by kind of call. ein_desc.intensity: a kernel with more operations an element (default 4) is
// priced by its arithmetic as well as by its memory traffic.
//
//   EIN_PROBE prints a CUDA program that measures the library calls which planning asked for, and
// kernels of the plans that it compared, where no table has them: `einnet probe MODEL.ein...
// --costs TABLE -o probe.cu`, then nvcc, then `./probe >> TABLE`. It replays each call from a
// graph, on random data, operands in the L2 cache where they fit, with every deterministic
// algorithm of cuDNN that the mode allows, up to 24 engines of its graph API as its heuristics set
// them (the four fastest have rows), and up to eight algorithms of cublasLt, a row each; the time
// is the median of several batches, the spread that between the quartiles. `--have TABLE` skips
// calls that are there, `--deadline SECONDS` ends it with exit code 75, `--device NAME` names the
// device, `--list` only lists. EIN_ESTIMATES prints what was measured beside the estimates (`einnet
// costs --estimates`); bench/fit.py fits their constants. With measured costs the search may ask
// for calls and kernels that it did not need before: measure again until a probe has none. A kernel
// whose text has changed since has lost its rows.
//
// THE EMITTED FILE
// Sections: summary (tensors, memory, the plan with its costs), includes, interface, sizes and
// offsets, kernels, state, create, run, destroy, info. It compiles as C++14 with nvcc, needs cudart
// and, where used, cuDNN and cuBLAS. Weights come in one blob (little-endian): "EINWGHT1", u32
// version, u32 tensors, u64 manifest hash, u64 content hash, u64 file bytes, zeros to 256, then raw
// tensors in declaration order, 256-byte aligned. The manifest is FNV-1a 64 over a line
// `name dtype[d0,d1]` a tensor. One blob serves every plan, GPU and batch size.
//   FP32 means no TF32. Tensor cores multiply what the model stores as f16 in every mode, on GPUs
// of compute capability 8.0 on: such products are exact, and their sums are f32. With
// EIN_MATH_TF32 library products round their operands to TF32; with EIN_MATH_FP16 they read
// halves, made of weights in create, and values are stored as halves but for statistics, what a
// softmax is taken of, outputs, and what ein_keep_fp32 names. No other value may exceed 65504.
// Basis changes are FP32's alone. Expect relative L2 errors below 2e-3 (2e-2 where a library
// drops bits of TF32 instead of rounding) and 1e-2: the test program of a plan with
// ein_desc.inspect tells where they arise (--errors).
//   max and min skip NaN (fmaxf, fminf), where ONNX's runtimes keep it: the functions, so Max, Min,
// Clip and HardSigmoid give their bound, reductions and pooling what else there is; relu keeps it.
// ReduceLogSumExp subtracts the row's maximum, as Softmax does: where that is infinite, it is NaN.
//   Products with padding are not evaluated, so infinite weights there give 0. Taps that a guard
// leaves out may be multiplied by 0, and infinite data there give NaN. A basis change (Winograd)
// mixes the elements of a tile: F(4,3) rounds to a relative L2 error of 2e-6 at 512 channels,
// F(2,3) to 5e-7, and an infinite or NaN input may reach neighbouring outputs; rules "-basis"
// leaves it out.
//
// OPTIONS
// EIN_REALLOC(p, n) and EIN_FREE(p), both or neither, else it does not compile (stb_ds has its own
// hooks); EIN_OUT_OF_MEMORY() must not return; EIN_ASSERT(x) sees broken invariants only.
// EIN_STATIC makes the functions static.
//
// THREADS
// One thread at a time uses a context. Contexts have nothing of ours in common, but stb_ds has one
// seed for all hash tables, the program's own too, which it reads and writes without a lock
// whenever it makes a table. No output depends on the seed, yet by the letter of C two threads that
// use two contexts at once race for it, and sanitizers say so: hold a lock around the calls, or
// give each thread a process.
//
// ERRORS
// `file:line:column: message`, the source line and a caret; several in one text. Statuses are the
// exit codes of the command line.
//
// LIMITS
// Rank 10, 16 iterators and 12 subscript terms an expression, 64 operands, 2^40 elements a tensor,
// 1000 outputs and 1000 blobs; 20000 statements after expansion, nesting 200; 64 MiB and 2^20
// words of text, names of 1000 bytes, numbers of 60. A limit met is a message and EIN_RESOURCES.
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
#define EIN_CODEGEN 1  // raised by versions that emit other bytes for unchanged input

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
    EIN_EXPLAIN_JSON,
    EIN_CALLS,      // what no cost table has: keys of library calls, one a line, then kernels, each
                    // with its text behind the key; for ein_add_calls; see ein_desc.probe
    EIN_COSTS,      // the rows of all cost tables given, as one
    EIN_ESTIMATES,  // calls that tables have for the GPU: key, measured picoseconds, spread,
                    // estimated picoseconds
    EIN_CANDIDATES,  // the same for kernels of candidate plans and for these plans, and the parts
                     // of which each estimate is made; see ein_desc.probe
    EIN_PROBE        // a CUDA program that measures EIN_CALLS and prints rows for cost tables
} ein_output;

typedef struct {
    bool (*func)(void *user, const char *text, size_t length);  // false stops the output
    void *user;
} ein_writer;

// The arithmetic of products. Sums are f32 in all of them, and so are the model's inputs and
// outputs unless it says otherwise.
typedef enum {
    EIN_MATH_FP32,  // FMA, but for products of f16 tensors: no TF32 anywhere
    EIN_MATH_TF32,  // f32 operands rounded to TF32
    EIN_MATH_FP16   // values between library calls are stored as f16, but for statistics (norms,
                    // softmax) and what a softmax is taken of
} ein_math;

// Why the search of one problem ended, mildest first.
typedef enum {
    EIN_STOP_SATURATED,  // no rule gives anything new
    EIN_STOP_QUOTA,      // a rule gave as much as it may
    EIN_STOP_DEPTH,
    EIN_STOP_STATES,
    EIN_STOP_CANCELLED  // by ein_desc.progress
} ein_stop;

enum { EIN_DISTANCES = 6 };

// What the search has done.
typedef struct {
    int64_t problems;     // contractions
    int64_t distinct;     // of them, up to names: each is derived once
    int64_t definitions;  // states: equivalent definitions, all distinct
    int64_t lookups;      // definitions that rules gave, known ones included
    int64_t candidates;   // definitions of the problems themselves
    int64_t ordered;      // problems that met a budget and were better explored nearest first
    ein_stop stop;        // the worst of all problems
    // With ein_desc.distances: definitions by their expression distance, the number of cells of the
    // iterator mapping table that keep them from being an operator. The last counts all beyond.
    int64_t at_distance[EIN_DISTANCES];
    int64_t unmapped;  // those that no operator is, however near: sums of parts, copies, transforms
    int nearest;       // least distance among a problem's definitions; the worst of all problems
    bool searching;    // in ein_desc.progress: false in the last call for a contraction
    int64_t proved;    // bodies of equations that proofs have evaluated
} ein_stats;

// Libraries that an emitted program may call; cudart it needs always.
typedef enum {
    EIN_LIBS_ALL = 0,  // cuDNN and cuBLAS
    EIN_LIBS_CUBLAS,   // no cuDNN
    EIN_LIBS_NONE      // neither: every contraction is a kernel of the program's own
} ein_libs;

// Zero means default, everywhere.
typedef struct {
    const char *gpu;      // a name of the device table ("h200"), see ein_gpu_name
    const char *prefix;   // prefix of the emitted symbols; default: the model's name
    const char *license;  // SPDX expression in the emitted files; default MIT-0
    bool small;           // use the model's `small` dims
    bool baseline;        // no derivation: one library call or kernel per contraction
    int depth;            // rules in a row; default 8
    int states;           // equivalent definitions of one contraction; default 1000
    const char *rules;    // names of the rules to use, separated by commas; "-a,b": all but these
    bool no_converge;     // no derivation towards library calls
    bool distances;       // ein_stats counts definitions by distance
    bool no_fingerprint;  // known definitions are explored again: shows what skipping them saves
    // Called during the search, which false ends with what it has, and during proofs, which false
    // makes fail.
    bool (*progress)(void *user, const ein_stats *stats);
    void *progress_user;
    const char *explain;  // EIN_EXPLAIN: the contraction of this name; NULL: all of them
    int branches;         // most parallel branches of a recorded graph, 1 to 4; default 4
    int intensity;        // operations an element above which a kernel is compute-bound; default 4
    bool explain_all;    // EIN_EXPLAIN: every candidate, not only the best two and the original one
    const char *prefer;  // where tables of costs differ: "first", "last", "fastest"; NULL: an error
    ein_libs libs;       // what the program may link
    bool probe;      // planning keeps the calls it priced and its plans, for EIN_CALLS, EIN_PROBE
    ein_math math;   // EIN_MATH_TF32 needs a GPU that has it
    bool only_math;  // no plan in more exact arithmetic, even where one is cheaper
    int form;  // 1, 2, ..: contractions by their best, second best, .. definitions, for comparison
    int part, parts;  // EIN_PROBE: which part of the kernels, from 1, of how many; 0: one part
    int kernels;      // EIN_PROBE: at most so many kernels; 0: 120; -1: none
    bool inspect;     // no value's memory is reused, so that EIN_TEST can report each one's error
} ein_desc;

typedef struct {
    const char *name;
    const char *dtype;  // "f32" ...
    int rank;
    int64_t dims[10];
    size_t bytes;      // dense, row-major
    const char *blob;  // weights from a file: name of the blob statement and ...
    const char *key;   // ... of the tensor in it; NULL for seeded ones
    bool seeded;       // ein_fill can make the values
} ein_tensor_info;

typedef struct ein_ctx ein_ctx;

// Texts of `desc` (NULL: all defaults) are copied. NULL back: no memory.
EIN_DEF ein_ctx *ein_open(const ein_desc *desc);
// Frees all that the context holds, texts that other functions gave included; NULL is fine.
EIN_DEF void ein_close(ein_ctx *ctx);
// Gives a dim another value than the model's own; before ein_add_model.
EIN_DEF ein_status ein_set_dim(ein_ctx *ctx, const char *name, int64_t value);
// `name` is used in messages only, and to call a model that says none; NULL: "model", "costs". The
// text is copied. Costs are added before anything is planned or derived.
EIN_DEF ein_status ein_add_model(ein_ctx *ctx, const char *name, const char *text, size_t length);
EIN_DEF ein_status ein_add_costs(ein_ctx *ctx, const char *name, const char *text, size_t length);
// Adds the EIN_CALLS of another context, so that one EIN_PROBE serves several models.
EIN_DEF ein_status ein_add_calls(ein_ctx *ctx, const char *text, size_t length);
// In the other modes, and in FP32 where its factors are f16, `node` (a tensor that the model
// computes, or a block: all in it) keeps FP32; before anything is planned or derived.
EIN_DEF ein_status ein_keep_fp32(ein_ctx *ctx, const char *node);
// Derives and chooses what the program does. Outputs and proofs that need a plan make one.
EIN_DEF ein_status ein_plan(ein_ctx *ctx);
// Hands the whole text to the writer in one call, once it is complete.
EIN_DEF ein_status ein_emit(ein_ctx *ctx, ein_output what, ein_writer writer);
// Tensors of the model in declaration order: kind 'i' inputs, 'w' weights, 'o' outputs, 'b' blobs
// (name and, as key, the file's path). False when `index` is past the end. Texts in `info` stay
// until ein_close.
EIN_DEF bool ein_describe(const ein_ctx *ctx, char kind, int index, ein_tensor_info *info);
// Shape of any tensor of the model; used by importers that fold shape computations.
EIN_DEF bool ein_shape(const ein_ctx *ctx, const char *tensor, int *rank, int64_t dims[10]);
// Writes the values of a seeded weight ('w') or those of an input ('i') where none are given, dense
// row-major: from its source, or by default about normal for floats, 0 or 1 for integers.
// EIN_USAGE, which is not kept: there is no such tensor, or its values are not seeded.
EIN_DEF ein_status ein_fill(const ein_ctx *ctx, char kind, int index, void *data);
// Of the weights' names, types and shapes, as a blob has it in bytes 16 to 23.
EIN_DEF uint64_t ein_manifest_hash(const ein_ctx *ctx);
// Reference interpreter in double: tensors in declaration order and their own dtypes, results as
// doubles (dense, row-major) into the caller's arrays.
EIN_DEF ein_status ein_eval(ein_ctx *ctx, const void *const *inputs, const void *const *weights,
                            double *const *outputs);
// Proves the plan: every output as planned against the model's own equations, modulo 2^61-1, at
// this many random places, 1 or more (Schwartz-Zippel; functions without field meaning are
// uninterpreted).
EIN_DEF ein_status ein_verify(ein_ctx *ctx, int samples);
// Proves one candidate that EIN_EXPLAIN lists for contraction `value` (NULL: the model has only
// one), in the same way, for all values of what the contraction reads. An id is the candidate's
// place in the list of all, cheapest first: the same for the same model, sizes, costs and search
// options. Ids from 1000000 on are merges of the whole program, each listed once for the model:
// they are proved step by step, and `value` (or NULL) must take part in the merge.
EIN_DEF ein_status ein_verify_candidate(ein_ctx *ctx, const char *value, int id, int samples);
// All zeros before anything was derived.
EIN_DEF void ein_get_stats(const ein_ctx *ctx, ein_stats *stats);
EIN_DEF const char *ein_rule_name(int index);         // NULL past the end
EIN_DEF const char *ein_rule_description(int index);  // NULL past the end
EIN_DEF const char *ein_rule_kind(int index);         // NULL past the end
EIN_DEF bool ein_rule_needed(int index);              // cannot be left out
EIN_DEF const char *ein_stop_name(ein_stop stop);
EIN_DEF ein_status ein_get_status(const ein_ctx *ctx);
// All messages so far, as ERRORS has them; "" when fine. The text stays until the next call.
EIN_DEF const char *ein_error(const ein_ctx *ctx);
EIN_DEF const char *ein_gpu_name(int index);       // NULL past the end
EIN_DEF const char *ein_operator_name(int index);  // NULL past the end

#ifdef __cplusplus
}
#endif
#endif  // EINNET_H
