// cmd_eval.c - `eval`: a model's outputs by the library's interpreter, as .npy files.
#define _POSIX_C_SOURCE 200809L
#include "cmd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Dense copies of the model's tensors of one kind.
typedef struct {
    int count;
    void **data;
} values;

static values make_values(const ein_ctx *ctx, char kind) {
    ein_tensor_info info;
    values v = {0, NULL};
    while (ein_describe(ctx, kind, v.count, &info)) {
        v.count++;
    }
    v.data = cli_alloc((size_t)v.count * sizeof *v.data);
    return v;
}

static void free_values(values *v) {
    for (int i = 0; i < v->count; i++) {
        free(v->data[i]);
    }
    free(v->data);
}

// Index of the input that "NAME=FILE" names; -1 after a message.
static int find_input(const cmd_args *args, const ein_ctx *ctx, const char *text,
                      const char **path) {
    ein_tensor_info info;
    const char *best = NULL;
    int distance = 3;
    size_t length;
    *path = cmd_split(args, "in", text, &length);
    if (!*path) {
        return -1;
    }
    char *name = cli_alloc(length + 1), shown[120], hint[120];
    memcpy(name, text, length);
    for (int i = 0; ein_describe(ctx, 'i', i, &info); i++) {
        if (!strcmp(info.name, name)) {
            free(name);
            return i;
        }
        cmd_nearest(name, info.name, &best, &distance);
    }
    cmd_usage(args, "--in: the model has no input '%s'%s", cli_escape(shown, sizeof shown, name),
              cmd_hint(hint, sizeof hint, best));
    free(name);
    return -1;
}

static int read_inputs(const cmd_args *args, const ein_ctx *ctx, values *inputs) {
    ein_tensor_info info;
    const char *text, *path;
    int at = 0;
    while ((text = cmd_next(args, "in", &at))) {
        cli_tensor tensor;
        int i = find_input(args, ctx, text, &path);
        if (i < 0) {
            return CLI_USAGE;
        }
        if (inputs->data[i]) {
            return cmd_usage(args, "an input is given twice");
        }
        ein_describe(ctx, 'i', i, &info);
        int code = cmd_read_values(path, &info, &tensor);
        if (code) {
            return code;
        }
        inputs->data[i] = tensor.data ? tensor.data : cli_alloc(0);
    }
    for (int i = 0; ein_describe(ctx, 'i', i, &info); i++) {
        if (!inputs->data[i]) {
            inputs->data[i] = cli_alloc(info.bytes);
            if (ein_fill(ctx, 'i', i, inputs->data[i])) {
                return cmd_failed(ctx);
            }
        }
    }
    return CLI_OK;
}

static int read_weights(const cmd_args *args, const ein_ctx *ctx, values *weights) {
    ein_tensor_info info;
    int code;
    cmd_weights *source = cmd_weights_open(args, ctx, &code);
    for (int i = 0; source && !code && ein_describe(ctx, 'w', i, &info); i++) {
        const void *data = cmd_weights_get(source, i, &code);
        if (data) {
            weights->data[i] = cli_alloc(info.bytes);
            memcpy(weights->data[i], data, info.bytes);
        }
    }
    cmd_weights_close(source);
    return code;
}

// "DIR/NAME.npy" with %XX for bytes that file names on some system cannot hold.
static char *result_path(const char *directory, const char *name) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t size = strlen(directory) + 3 * strlen(name) + sizeof "/.npy", used;
    char *path = cli_alloc(size);
    used = (size_t)snprintf(path, size, "%s/", directory);
    for (; *name; name++) {
        bool as_is = strchr(plain, *name) != NULL;
        used += (size_t)snprintf(path + used, size - used, as_is ? "%c" : "%%%02X",
                                 (unsigned char)*name);
    }
    snprintf(path + used, size - used, ".npy");
    return path;
}

// The file of one output, written but for its name; NULL after a failure.
static cli_sink *write_result(const ein_tensor_info *info, const char *directory, void *data,
                              cli_error *error) {
    cli_tensor tensor = {.dtype = CLI_F64, .rank = info->rank, .data = data};
    int64_t count = 0;
    memcpy(tensor.dims, info->dims, sizeof tensor.dims);
    cli_count(info->rank, info->dims, &count);
    tensor.bytes = (size_t)count * sizeof(double);
    char *path = result_path(directory, info->name);
    cli_sink *sink = cli_sink_open(path, error);
    free(path);
    if (sink) {
        cli_npy_put(sink, &tensor);
        if (!cli_sink_finish(sink, error)) {
            cli_sink_abort(sink);
            sink = NULL;
        }
    }
    return sink;
}

// Writes all outputs, or none and no directory if one cannot be written.
static int write_results(const ein_ctx *ctx, const char *directory, const values *outputs) {
    cli_error error;
    ein_tensor_info info;
    char shown[300];
    bool made = !mkdir(directory, 0777), good = true;
    if (!made && errno != EEXIST) {
        fprintf(stderr, "einnet: %s: %s\n", cli_escape(shown, sizeof shown, directory),
                strerror(errno));
        return CLI_IO;
    }
    cli_sink **sinks = cli_alloc((size_t)outputs->count * sizeof *sinks);
    for (int i = 0; good && ein_describe(ctx, 'o', i, &info); i++) {
        sinks[i] = write_result(&info, directory, outputs->data[i], &error);
        good = sinks[i] != NULL;
    }
    good = cli_sinks_commit(sinks, (size_t)outputs->count, good, &error);
    free(sinks);
    if (!good && made) {
        rmdir(directory);
    }
    return good ? CLI_OK : cmd_report(&error);
}

static int check_results(const cmd_args *args, const ein_ctx *ctx) {
    ein_tensor_info info;
    int code = CLI_OK;
    for (int i = 0; !code && ein_describe(ctx, 'o', i, &info); i++) {
        char *path = result_path(cmd_get(args, "out"), info.name);
        code = cmd_check_output(args, path, NULL, 0);
        code = code ? code : cmd_check_blobs(args, ctx, path);
        free(path);
    }
    return code;
}

static int evaluate(const cmd_args *args, ein_ctx *ctx, values *inputs, values *weights,
                    values *outputs) {
    int code = check_results(args, ctx);
    if (!code) {
        code = read_inputs(args, ctx, inputs);
    }
    if (!code) {
        code = read_weights(args, ctx, weights);
    }
    if (code) {
        return code;
    }
    ein_tensor_info info;
    double **results = cli_alloc((size_t)outputs->count * sizeof *results);
    for (int i = 0; ein_describe(ctx, 'o', i, &info); i++) {
        int64_t count = 0;
        cli_count(info.rank, info.dims, &count);
        outputs->data[i] = results[i] = cli_alloc((size_t)count * sizeof *results[i]);
    }
    ein_status status = ein_eval(ctx, (const void *const *)inputs->data,
                                 (const void *const *)weights->data, results);
    free(results);
    return status ? cmd_failed(ctx) : write_results(ctx, cmd_get(args, "out"), outputs);
}

int cmd_eval(const cmd_args *args) {
    int code;
    if (!cmd_get(args, "out")) {
        return cmd_usage(args, "where to? --out DIR");
    }
    ein_ctx *ctx = cmd_open(args, &code);
    if (!ctx) {
        return code;
    }
    values inputs = make_values(ctx, 'i'), weights = make_values(ctx, 'w');
    values outputs = make_values(ctx, 'o');
    code = evaluate(args, ctx, &inputs, &weights, &outputs);
    free_values(&inputs);
    free_values(&weights);
    free_values(&outputs);
    ein_close(ctx);
    return code;
}
