// cmd.h - what the commands of the `einnet` program share: their table, their arguments, and models
// opened through the library. The program is the library's first user and sees its public part
// only.
#ifndef CMD_H
#define CMD_H

#include "cli.h"

#include <stdio.h>

// Development builds read the modules where they are, so that messages name the right file and
// line; with EINNET_RELEASE the program is built from the one generated header.
#ifdef EINNET_RELEASE
#include "../../einnet.h"
#else
#include "all.h"
#endif

#define CMD_TEXT_LIMIT ((size_t)64 << 20)  // bytes of a model, a cost table or an emitted file

// ---- arguments (cmd_args.c) ----

enum { CMD_OPERANDS = 256 };  // that a command may have

// `argument` is NULL for a switch; it ends in "..." where the option may be given more than once.
// The one-letter form of "output" is -o, of "help" -h; no other option has one.
typedef struct {
    const char *name, *argument, *help;
} cmd_option;

typedef struct cmd_args cmd_args;

typedef struct {
    const char *name;
    const char *operands;          // as printed in the usage line
    int count;                     // of them, all needed ...
    int more;                      // ... and this many more that may be given
    const char *summary;           // one line
    const char *detail;            // a paragraph for --help, lines ended, or ""
    const cmd_option *options[5];  // tables ended by a NULL name; unused places are NULL
    int (*run)(const cmd_args *args);
} cmd_command;

typedef struct {
    const cmd_option *option;
    const char *value;  // "" for switches
} cmd_given;

struct cmd_args {
    const cmd_command *command;
    char **argv;  // as the command was called: argv[0] is its name
    const char *operand[CMD_OPERANDS];
    int operands;
    cmd_given *given;
    int count;
};

// CLI_OK, or the exit code after a message. -1: help was asked for and printed.
int cmd_args_parse(cmd_args *args, const cmd_command *command, int argc, char **argv);
void cmd_args_free(cmd_args *args);
// The option's value, or NULL where it was not given.
const char *cmd_get(const cmd_args *args, const char *option);
// Values of an option that may be repeated: `*at` starts at 0; NULL after the last one.
const char *cmd_next(const cmd_args *args, const char *option, int *at);
// An option's value as a whole number or as one of three names. Without the option nothing changes.
// CLI_OK, or the exit code after a message.
int cmd_number(const cmd_args *args, const char *option, int least, int most, int *value);
int cmd_choice(const cmd_args *args, const char *option, const char *const names[3], int *which);
// Splits "NAME=VALUE" of an option that may be repeated: the value, and the name's length; NULL
// after a message.
const char *cmd_split(const cmd_args *args, const char *option, const char *text, size_t *length);

// A message about the command line, with a hint at --help. The exit code for it.
int cmd_usage(const cmd_args *args, const char *format, ...) CLI_PRINTF(2, 3);
// Prints the message of a failed cli_ call; its exit code.
int cmd_report(const cli_error *error);

// Whichever of `*best` and `candidate` is nearer to `name` stays in `*best`; `*distance` starts at
// 3.
void cmd_nearest(const char *name, const char *candidate, const char **best, int *distance);
// "; did you mean 'NAME'?" or "", in `buffer`.
const char *cmd_hint(char *buffer, size_t size, const char *best);

// ---- models (cmd_model.c) ----

extern const cmd_option cmd_size_options[];  // --dim, --small: taken by cmd_open
extern const cmd_option cmd_name_options[];  // --prefix, --license: taken by cmd_plan
extern const cmd_option cmd_plan_options[];  // --gpu, --costs, ...: taken by cmd_plan

// ---- the search (cmd_search.c) ----

extern const cmd_option cmd_search_options[];  // --depth, --states, ...: taken by cmd_open
// CLI_OK, or an exit code after a message.
int cmd_search_desc(const cmd_args *args, ein_desc *desc);
// Takes the line of progress off the terminal, before something else is said there.
void cmd_clear_line(void);
// The same; prints the statistics where --stats is given.
void cmd_search_done(const cmd_args *args, const ein_ctx *ctx);

// Text that the library wrote.
typedef struct {
    char *data;  // NUL-terminated; NULL while empty
    size_t size;
} cmd_text;

// Reads the model, the command's first operand, with the sizes asked for. NULL after a message,
// with the exit code in `*code`.
ein_ctx *cmd_open(const cmd_args *args, int *code);
// As cmd_open, and plans with the options of cmd_plan_options.
ein_ctx *cmd_plan(const cmd_args *args, int *code);
// One output of the library. CLI_OK, or the exit code after a message.
int cmd_render(ein_ctx *ctx, ein_output what, cmd_text *text);
void cmd_text_free(cmd_text *text);
// Prints the library's messages; the exit code for them.
int cmd_failed(const ein_ctx *ctx);
// Refuses an output that is the model itself, a file that an option has the command read, or equal
// to another output. CLI_OK or an exit code.
int cmd_check_output(const cmd_args *args, const char *path, const char *const *others, int count);

// Path of a blob's file: `given` or, where that is NULL, `path` from the model's directory on. The
// caller frees it.
char *cmd_blob_path(const cmd_args *args, const char *given, const char *path);

// Refuses an output that is the file of one of the model's blobs. CLI_OK or an exit code.
int cmd_check_blobs(const cmd_args *args, const ein_ctx *ctx, const char *path);

// A context without a model that holds the tables of costs among the operands.
ein_ctx *cmd_open_tables(const cmd_args *args, int *code);
// Writes a text to a file, "-" being standard output. CLI_OK, or the exit code after a message.
int cmd_write_text(const char *path, const cmd_text *text);

int cmd_emit(const cmd_args *args);
int cmd_check(const cmd_args *args);
int cmd_fmt(const cmd_args *args);
int cmd_graph(const cmd_args *args);
int cmd_equations(const cmd_args *args);
int cmd_explain(const cmd_args *args);
int cmd_verify(const cmd_args *args);
int cmd_import(const cmd_args *args);
int cmd_probe(const cmd_args *args);

// ---- tables of costs (cmd_costs.c) ----

int cmd_costs(const cmd_args *args);

// ---- differences (cmd_diff.c) ----

// Prints a unified difference with three lines of context; false when the texts are equal.
bool cmd_diff(FILE *out, const char *old_name, const char *old, size_t old_size,
              const char *new_name, const char *new, size_t new_size);

// ---- weights (cmd_weights.c) ----

extern const cmd_option cmd_weight_options[];  // --blob, --weight

// Where the values of a model's weights come from: a packed file, .npy files, the model's
// safetensors blobs, or the model's own seeded sources.
typedef struct cmd_weights cmd_weights;
cmd_weights *cmd_weights_open(const cmd_args *args, const ein_ctx *ctx, int *code);
void cmd_weights_close(cmd_weights *weights);
// Values of one weight, dense and row-major; valid until the next call. NULL after a message, with
// the exit code in `*code`.
const void *cmd_weights_get(cmd_weights *weights, int index, int *code);

int cmd_pack(const cmd_args *args);

// ---- values (cmd_values.c) ----

// Ends a line that names a file with the type in it and the one that the model gives the tensor.
// The exit code.
int cmd_wrong_type(const ein_tensor_info *info, cli_dtype dtype, int rank, const int64_t *dims);
// Reads a .npy file that must have the type and the shape of `info`. CLI_OK or an exit code.
int cmd_read_values(const char *path, const ein_tensor_info *info, cli_tensor *tensor);

// ---- eval (cmd_eval.c) ----

int cmd_eval(const cmd_args *args);

#endif  // CMD_H
