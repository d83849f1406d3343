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
//     text -parse-> graph -lower-> expressions -plan-> steps -emit-> .cu .h
// Operators carry ONNX names and mean tensor-algebra equations; everything after lowering sees
// equations only. Text in, text out: the library reads and writes no files, never looks at the
// clock or the locale, and gives the same bytes for the same input.
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
    EIN_EQUATIONS    // every value's expression as a legal equation
} ein_output;

typedef struct {
    bool (*func)(void *user, const char *text, size_t length);  // false stops the output
    void *user;
} ein_writer;

// Zero means default, everywhere.
typedef struct {
    const char *gpu;      // a name of the device table ("h200"), see ein_gpu_name
    const char *prefix;   // prefix of the emitted symbols; default: the model's name
    const char *license;  // SPDX expression in the emitted files; default MIT-0
    bool small;           // use the model's `small` dims
    bool baseline;        // no derivation: one library call or kernel per contraction
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
EIN_DEF ein_status ein_get_status(const ein_ctx *ctx);
EIN_DEF const char *ein_error(const ein_ctx *ctx);  // one message a line; "" when fine
EIN_DEF const char *ein_gpu_name(int index);        // NULL past the end
EIN_DEF const char *ein_operator_name(int index);   // NULL past the end

#ifdef __cplusplus
}
#endif
#endif  // EINNET_H
