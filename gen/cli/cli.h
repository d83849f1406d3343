// cli.h - what the sources of the `einnet` program share beside einnet.h: whole files, tensors in
// .npy and safetensors files, and the ONNX importer. None of it is part of the header library.
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_MAX_RANK 10

// Exit codes of the program.
enum {
    CLI_OK = 0,
    CLI_DIFFERS = 1,
    CLI_USAGE = 2,
    CLI_BAD_INPUT = 3,
    CLI_UNSUPPORTED = 4,
    CLI_IO = 5
};

// A failed call fills in the exit code that fits and one line of text that begins with the file's
// name. Names out of files are printed escaped and shortened, so the text is safe on a terminal.
typedef struct {
    int code;
    char text[1024];
} cli_error;

#if defined(__GNUC__)
#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define CLI_NORETURN __attribute__((noreturn))
#else
#define CLI_PRINTF(text, first)
#define CLI_NORETURN
#endif

// Always false, for `return cli_fail(...)`.
bool cli_fail(cli_error *error, int code, const char *format, ...) CLI_PRINTF(3, 4);

// Writes `text` with control, quote, backslash and non-ASCII bytes as escapes, cut to fit `size`.
const char *cli_escape(char *buffer, size_t size, const char *text);

// Memory that is there or the program ends with exit code 5, temporaries removed. Zeroed.
void *cli_alloc(size_t size);
void *cli_realloc(void *memory, size_t size);
CLI_NORETURN void cli_out_of_memory(void);

// ---- files (cli_file.c) ----

// The bytes of a whole file: mapped where the file is regular and large, else read.
typedef struct {
    const uint8_t *data;
    size_t size;
    bool mapped;
} cli_bytes;

// "-" is the standard input. Devices and pipes are read to their end; more than `limit` bytes is an
// error, and so are 64 MiB of a device that may be endless.
bool cli_file_read(const char *path, size_t limit, cli_bytes *bytes, cli_error *error);
// As cli_file_read for a file that must be regular, without limit.
bool cli_file_read_regular(const char *path, cli_bytes *bytes, cli_error *error);
void cli_file_release(cli_bytes *bytes);
// Where `path`, which the file `model` names, lies, symbolic links resolved: in the model's
// directory or below it.
typedef enum { CLI_INSIDE, CLI_OUTSIDE, CLI_MISSING } cli_place;
cli_place cli_file_place(const char *model, const char *path);

// A file being written. A regular file grows as a temporary beside its place and takes the place at
// commit, and only if its bytes differ from those there (an unchanged file keeps its time stamp);
// "-", devices and pipes are written directly. Both ends free the sink.
typedef struct cli_sink cli_sink;
cli_sink *cli_sink_open(const char *path, cli_error *error);
bool cli_sink_write(cli_sink *sink, const void *data, size_t size);  // a failure is kept
bool cli_sink_is_direct(const cli_sink *sink);
// All is written, and commit has but the name left to do. Says what failed so far.
bool cli_sink_finish(cli_sink *sink, cli_error *error);
bool cli_sink_commit(cli_sink *sink, cli_error *error);
void cli_sink_abort(cli_sink *sink);  // NULL is fine
// Of several files (NULL: none) all take their places once each of them is written, or none where
// that or a place failed or `good` is false already. Signals come before or after it.
bool cli_sinks_commit(cli_sink *const *sinks, size_t count, bool good, cli_error *error);
bool cli_file_write(const char *path, const void *data, size_t size, cli_error *error);

// True when both paths name one file, be it there already or not; "-" names none.
bool cli_same_file(const char *a, const char *b);
// Whether writing `path` would lose what is read from `from`, which may be "-". Devices and pipes
// hold nothing.
bool cli_overwrites(const char *path, const char *from);
// SIGINT, SIGTERM and SIGHUP remove the temporaries and then end the program as they would anyway;
// SIGPIPE and SIGXFSZ become write errors. A mapped file that becomes shorter ends the program with
// exit code 5, temporaries removed. Called once, early in main.
void cli_catch_signals(void);

// ---- tensors (cli_tensor.c) ----

typedef enum {
    CLI_NONE,
    CLI_F32,
    CLI_F16,
    CLI_BF16,
    CLI_F64,
    CLI_I8,
    CLI_U8,
    CLI_I16,
    CLI_U16,
    CLI_I32,
    CLI_U32,
    CLI_I64,
    CLI_U64,
    CLI_BOOL
} cli_dtype;

const char *cli_dtype_name(cli_dtype dtype);  // "f32"; the model language has a subset of them
size_t cli_dtype_size(cli_dtype dtype);       // bytes; 0 for CLI_NONE
cli_dtype cli_dtype_by_name(const char *name);

// Dense, row-major, in the byte order of the machine. `data` is from cli_alloc and may be NULL when
// `bytes` is 0.
typedef struct {
    cli_dtype dtype;
    int rank;
    int64_t dims[CLI_MAX_RANK];
    size_t bytes;
    void *data;
} cli_tensor;

void cli_tensor_free(cli_tensor *tensor);
// Elements of a shape; false when a dim is negative or the product needs more than 62 bits.
bool cli_count(int rank, const int64_t *dims, int64_t *count);

// Conversions between f16 / bf16 bits and numbers, round to nearest even.
double cli_from_f16(uint16_t bits);
uint16_t cli_to_f16(double value);
double cli_from_bf16(uint16_t bits);
uint16_t cli_to_bf16(double value);
// Element i of dense data as a number, and back (rounded or, for integers, truncated and clamped).
double cli_get(cli_dtype dtype, const void *data, int64_t i);
void cli_set(cli_dtype dtype, void *data, int64_t i, double value);

// ---- .npy (cli_npy.c) ----

// Versions 1 to 3, either byte order, C or Fortran order (converted); plain numeric types only.
bool cli_npy_read(const char *path, cli_tensor *tensor, cli_error *error);
// Version 1; bf16 has no code in the format and is written as f32. Errors surface at commit.
void cli_npy_put(cli_sink *sink, const cli_tensor *tensor);
bool cli_npy_write(const char *path, const cli_tensor *tensor, cli_error *error);

// ---- safetensors (cli_safetensors.c) ----

// `data` may be misaligned for the type: use memcpy or cli_get. A type that has no cli_dtype is
// CLI_NONE. The name is UTF-8.
typedef struct {
    const char *name;
    cli_dtype dtype;
    int rank;
    int64_t dims[CLI_MAX_RANK];
    size_t bytes;
    const void *data;
} cli_st_tensor;

typedef struct {
    cli_bytes file;
    cli_st_tensor *items;  // sorted by name
    size_t count;
    char *names;
} cli_safetensors;

bool cli_safetensors_open(const char *path, cli_safetensors *file, cli_error *error);
const cli_st_tensor *cli_safetensors_find(const cli_safetensors *file, const char *name);
void cli_safetensors_close(cli_safetensors *file);
// Writes the tensors in the given order; names must be unique. Errors surface at commit.
void cli_safetensors_put(cli_sink *sink, const cli_st_tensor *items, size_t count);
bool cli_safetensors_write(const char *path, const cli_st_tensor *items, size_t count,
                           cli_error *error);

// ---- ONNX (onnx*.c) ----

// Shape of `tensor` in the model `text` (complete and NUL-terminated; the tensor is its output).
// False when it has none; why is printed, unless it is `only_tried`.
typedef bool (*cli_shape_fn)(void *user, const char *text, const char *tensor, bool only_tried,
                             int64_t dims[CLI_MAX_RANK], int *rank);

typedef struct {
    const char *model;
    const char *output, *weights, *name;  // or NULL
    const char *const *dims, *const *consts,
                                 *const *ends;  // NAME=N, NAME=FILE.npy, tensors; to NULL
} cli_import_options;

// Writes the model and its weights. Prints messages to stderr, returns the exit code.
int cli_import(const cli_import_options *given, cli_shape_fn shape_of, void *user);

#endif  // CLI_H
