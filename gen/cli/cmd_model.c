// cmd_model.c - models opened through the library, and the commands that turn them into text.
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cmd_option cmd_size_options[] = {
    {"dim", "NAME=N...", "give a dim of the model another value"},
    {"small", NULL, "use the sizes of the model's `small` lines"},
    {NULL, NULL, NULL},
};

const cmd_option cmd_name_options[] = {
    {"prefix", "NAME", "prefix of the symbols; default: the model's name"},
    {"license", "SPDX", "license named in the files; default MIT-0"},
    {NULL, NULL, NULL},
};

const cmd_option cmd_plan_options[] = {
    {"gpu", "NAME", "plan for this GPU; default h200; 'help' lists them"},
    {"costs", "FILE...", "a table of measured costs (see einnet probe)"},
    {"prefer", "WHICH", "which of rows that differ counts: first, last or fastest"},
    {"libs", "NAMES", "libraries that the program may call: all (default), cublas or none"},
    {"baseline", NULL, "no derivation: one call or kernel for each operator"},
    {"branches", "N", "most steps side by side in a recorded CUDA graph, 1 to 4; default 4"},
    {"math", "MODE", "arithmetic of products: fp32 (default), tf32 or fp16"},
    {"only-math", NULL, "with --math: no more exact arithmetic, even where that is cheaper"},
    {"inspect", NULL, "keep all values in memory; the test program compares them (--errors)"},
    {"keep-fp32", "NODE,...", "tensors or blocks that stay FP32 whatever --math says"},
    {NULL, NULL, NULL},
};

int cmd_failed(const ein_ctx *ctx) {
    cmd_clear_line();
    fputs(ein_error(ctx), stderr);
    return (int)ein_get_status(ctx);  // the codes of the program are the library's
}

// ---- opening ----

// One --dim: digits only, so that the text means the same everywhere.
static int set_dim(const cmd_args *args, ein_ctx *ctx, const char *text) {
    char name[256];
    size_t length = 0;
    int64_t value = 0;
    const char *digits = cmd_split(args, "dim", text, &length);
    if (!digits) {
        return CLI_USAGE;
    }
    const char *s = digits;
    for (; *s >= '0' && *s <= '9' && value < INT64_MAX / 10 - 1; s++) {
        value = value * 10 + (*s - '0');
    }
    if (*s || s == digits || length >= sizeof name) {
        char shown[120];
        return cmd_usage(args, "--dim needs NAME=N with a number N of at most 18 digits, not '%s'",
                         cli_escape(shown, sizeof shown, text));
    }
    memcpy(name, text, length);
    name[length] = 0;
    return ein_set_dim(ctx, name, value) ? cmd_failed(ctx) : CLI_OK;
}

static int check_gpu(const cmd_args *args, const char *name) {
    char shown[120], hint[120];
    const char *best = NULL, *known;
    int distance = 3;
    for (int i = 0; (known = ein_gpu_name(i)); i++) {
        if (!strcmp(known, name)) {
            return CLI_OK;
        }
        cmd_nearest(name, known, &best, &distance);
    }
    return cmd_usage(args, "unknown GPU '%s' (--gpu help lists them)%s",
                     cli_escape(shown, sizeof shown, name), cmd_hint(hint, sizeof hint, best));
}

// The names go into emitted code: a C identifier, and an SPDX expression that cannot leave its
// line.
static int check_names(const cmd_args *args, const ein_desc *desc) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    const char *prefix = desc->prefix, *license = desc->license;
    if (prefix &&
        (prefix[strspn(prefix, word)] || strspn(prefix, word + 53) || strlen(prefix) > 64)) {
        return cmd_usage(args, "--prefix must be a C identifier of at most 64 bytes");
    }
    if (license) {
        size_t length = strspn(license, word);
        while (license[length] && strchr("-.+() ", license[length])) {
            length += 1 + strspn(license + length + 1, word);
        }
        if (license[length] || length > 80) {
            return cmd_usage(args, "--license must be an SPDX expression of at most 80 bytes");
        }
    }
    return desc->gpu ? check_gpu(args, desc->gpu) : CLI_OK;
}

// Options whose values are words.
static int set_words(const cmd_args *args, ein_desc *desc) {
    static const char *const preferences[] = {"first", "last", "fastest"};
    static const char *const libraries[] = {"all", "cublas", "none"};
    static const char *const modes[] = {"fp32", "tf32", "fp16"};
    int which = 0, libs = 0, math = 0;
    int code = cmd_choice(args, "prefer", preferences, &which);
    code = code ? code : cmd_choice(args, "libs", libraries, &libs);
    code = code ? code : cmd_choice(args, "math", modes, &math);
    desc->libs = (ein_libs)libs;
    desc->math = (ein_math)math;
    return code;
}

// Refuses options without the one that they belong to, and those that another one leaves nothing to
// say.
static int check_pairs(const cmd_args *args) {
    static const struct {
        const char *option, *other;
        bool together;
    } pairs[] = {{"only-math", "math", true},           {"prefer", "costs", true},
                 {"rules", "baseline", false},          {"depth", "baseline", false},
                 {"states", "baseline", false},         {"no-converge", "baseline", false},
                 {"no-fingerprint", "baseline", false}, {"part", "estimates", false},
                 {"kernels", "estimates", false},       {"blob", "weights", false}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *option = pairs[i].option, *other = pairs[i].other;
        if (cmd_get(args, option) && !cmd_get(args, other) == pairs[i].together) {
            return cmd_usage(args, "--%s %s --%s", option,
                             pairs[i].together ? "goes with" : "does nothing beside", other);
        }
    }
    return CLI_OK;
}

// Names of tensors that keep FP32, separated by commas; the option may be repeated.
static int keep_nodes(const cmd_args *args, ein_ctx *ctx) {
    char name[1000];
    const char *list;
    int at = 0;
    while ((list = cmd_next(args, "keep-fp32", &at))) {
        for (const char *s = list;; s++) {
            size_t n = strcspn(s, ",");
            if (!n || n >= sizeof name) {
                return cmd_usage(args, "--keep-fp32 needs names of tensors, separated by commas");
            }
            memcpy(name, s, n);
            name[n] = 0;
            if (ein_keep_fp32(ctx, name)) {
                return cmd_failed(ctx);
            }
            s += n;
            if (!*s) {
                break;
            }
        }
    }
    return CLI_OK;
}

static int set_dims(const cmd_args *args, ein_ctx *ctx) {
    const char *text;
    int at = 0, code = CLI_OK;
    while (!code && (text = cmd_next(args, "dim", &at))) {
        code = set_dim(args, ctx, text);
    }
    return code;
}

static int add_file(ein_ctx *ctx, const char *path, bool model) {
    cli_error error;
    cli_bytes bytes;
    if (!cli_file_read(path, CMD_TEXT_LIMIT, &bytes, &error)) {
        return cmd_report(&error);
    }
    const char *text = bytes.size ? (const char *)bytes.data : "";
    ein_status status = model ? ein_add_model(ctx, path, text, bytes.size)
                              : ein_add_costs(ctx, path, text, bytes.size);
    cli_file_release(&bytes);
    return status ? cmd_failed(ctx) : CLI_OK;
}

// A whole number up to `most` at `s`, and `stop` behind it; -1: something else.
static long whole_number(const char *s, char stop, long most) {
    char *end;
    if (*s < '0' || *s > '9') {
        return -1;
    }
    long n = strtol(s, &end, 10);
    return *end == stop && n <= most ? n : -1;
}

// Which kernels a probe has, which forms a program: --part, --kernels, --form.
static int set_choice(const cmd_args *args, ein_desc *desc) {
    enum { MOST_PARTS = 1000, MOST_KERNELS = 100000, MOST_FORMS = 1000 };
    const char *part = cmd_get(args, "part");
    char shown[120];
    int kernels = 0, code = cmd_number(args, "form", 1, MOST_FORMS, &desc->form);
    code = code ? code : cmd_number(args, "kernels", 0, MOST_KERNELS, &kernels);
    if (cmd_get(args, "kernels")) {
        desc->kernels = kernels ? kernels : -1;
    }
    if (!code && part) {
        const char *slash = strchr(part, '/');
        long i = slash ? whole_number(part, '/', MOST_PARTS) : -1;
        long n = slash ? whole_number(slash + 1, 0, MOST_PARTS) : -1;
        if (i < 1 || n < i) {
            return cmd_usage(args, "--part needs I/N, as 2/4 for the second of four, not '%s'",
                             cli_escape(shown, sizeof shown, part));
        }
        desc->part = (int)i;
        desc->parts = (int)n;
    }
    return code;
}

char *cmd_blob_path(const cmd_args *args, const char *given, const char *path) {
    const char *model = args->operand[0], *slash = strrchr(model, '/');
    int directory = slash && !given ? (int)(slash - model) + 1 : 0;
    const char *rest = given ? given : path;
    size_t size = (size_t)directory + strlen(rest) + 1;
    char *whole = cli_alloc(size);
    snprintf(whole, size, "%.*s%s", directory, model, rest);
    return whole;
}

int cmd_check_blobs(const cmd_args *args, const ein_ctx *ctx, const char *path) {
    ein_tensor_info info;
    char shown[200], name[120];
    for (int i = 0; ein_describe(ctx, 'b', i, &info); i++) {
        char *file = cmd_blob_path(args, NULL, info.key);
        bool same = cli_overwrites(path, file);
        free(file);
        if (same) {
            return cmd_usage(args, "'%s' is the file of the model's blob '%s'",
                             cli_escape(shown, sizeof shown, path),
                             cli_escape(name, sizeof name, info.name));
        }
    }
    return CLI_OK;
}

// Refuses outputs that are files of the model's blobs, whether this command reads those or not.
static int check_outputs(const cmd_args *args, const ein_ctx *ctx) {
    static const char *const options[] = {"output", "header", "test"};
    int code = CLI_OK;
    if (!strcmp(args->command->name, "check")) {  // it reads them
        return CLI_OK;
    }
    for (size_t i = 0; !code && i < sizeof options / sizeof *options; i++) {
        const char *path = cmd_get(args, options[i]);
        code = path ? cmd_check_blobs(args, ctx, path) : CLI_OK;
    }
    return code;
}

ein_ctx *cmd_open(const cmd_args *args, int *code) {
    ein_desc desc = {
        .gpu = cmd_get(args, "gpu"),
        .prefix = cmd_get(args, "prefix"),
        .license = cmd_get(args, "license"),
        .small = cmd_get(args, "small") != NULL,
        .baseline = cmd_get(args, "baseline") != NULL,
        .explain =
            !strcmp(args->command->name, "explain") && args->operands > 1 ? args->operand[1] : NULL,
        .explain_all = cmd_get(args, "all") != NULL,
        .prefer = cmd_get(args, "prefer"),
        .only_math = cmd_get(args, "only-math") != NULL,
        .inspect = cmd_get(args, "inspect") != NULL,
        .probe = !strcmp(args->command->name, "probe"),
    };
    *code = check_pairs(args);
    *code = *code ? *code : check_names(args, &desc);
    *code = *code ? *code : set_words(args, &desc);
    *code = *code ? *code : set_choice(args, &desc);
    *code = *code ? *code : cmd_search_desc(args, &desc);
    if (*code) {
        return NULL;
    }
    ein_ctx *ctx = ein_open(&desc);
    if (!ctx) {
        cli_out_of_memory();
    }
    *code = set_dims(args, ctx);
    if (!*code) {
        *code = add_file(ctx, args->operand[0], true);
    }
    if (!*code) {
        *code = keep_nodes(args, ctx);
    }
    if (!*code) {
        *code = check_outputs(args, ctx);
    }
    if (!*code) {
        return ctx;
    }
    ein_close(ctx);
    return NULL;
}

ein_ctx *cmd_open_tables(const cmd_args *args, int *code) {
    ein_desc desc = {.prefer = cmd_get(args, "prefer"), .gpu = cmd_get(args, "gpu")};
    *code = set_words(args, &desc);
    if (!*code && desc.gpu) {
        *code = check_gpu(args, desc.gpu);
    }
    if (*code) {
        return NULL;
    }
    ein_ctx *ctx = ein_open(&desc);
    if (!ctx) {
        cli_out_of_memory();
    }
    for (int i = 0; i < args->operands && !*code; i++) {
        *code = add_file(ctx, args->operand[i], false);
    }
    if (!*code) {
        return ctx;
    }
    ein_close(ctx);
    return NULL;
}

// Opens the model and adds the tables of costs.
static ein_ctx *open_costs(const cmd_args *args, int *code) {
    ein_ctx *ctx = cmd_open(args, code);
    const char *costs;
    int at = 0;
    while (ctx && !*code && (costs = cmd_next(args, "costs", &at))) {
        *code = add_file(ctx, costs, false);
    }
    if (ctx && *code) {
        ein_close(ctx);
        return NULL;
    }
    return ctx;
}

ein_ctx *cmd_plan(const cmd_args *args, int *code) {
    ein_ctx *ctx = open_costs(args, code);
    if (ctx && ein_plan(ctx)) {
        *code = cmd_failed(ctx);
        ein_close(ctx);
        return NULL;
    }
    return ctx;
}

// ---- text ----

static bool collect(void *user, const char *text, size_t length) {
    cmd_text *to = user;
    if (length > SIZE_MAX / 2 - to->size) {
        return false;
    }
    size_t need = to->size + length + 1, room = 4096;
    while (room < to->size + 1) {
        room *= 2;
    }
    if (!to->data || need > room) {
        while (room < need) {
            room *= 2;
        }
        to->data = cli_realloc(to->data, room);
    }
    memcpy(to->data + to->size, text, length);
    to->size += length;
    to->data[to->size] = 0;
    return true;
}

int cmd_render(ein_ctx *ctx, ein_output what, cmd_text *text) {
    *text = (cmd_text){NULL, 0};
    if (ein_emit(ctx, what, (ein_writer){collect, text})) {
        cmd_text_free(text);
        return cmd_failed(ctx);
    }
    return CLI_OK;
}

void cmd_text_free(cmd_text *text) {
    free(text->data);
    *text = (cmd_text){NULL, 0};
}

int cmd_write_text(const char *path, const cmd_text *text) {
    cli_error error;
    bool good = cli_file_write(path, text->data ? text->data : "", text->size, &error);
    return good ? CLI_OK : cmd_report(&error);
}

// The option whose file `path` is, of those whose files are read; NULL: it is none.
static const char *read_by(const cmd_args *args, const char *path) {
    static const struct {
        const char *option;
        bool named;  // NAME=FILE
    } readers[] = {
        {"costs", false}, {"weights", false}, {"weight", true}, {"blob", true}, {"in", true}};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const char *given;
        int at = 0;
        while ((given = cmd_next(args, readers[i].option, &at))) {
            const char *equals = readers[i].named ? strchr(given, '=') : NULL;
            if (cli_overwrites(path, equals ? equals + 1 : given)) {
                return readers[i].option;
            }
        }
    }
    return NULL;
}

int cmd_check_output(const cmd_args *args, const char *path, const char *const *others, int count) {
    char shown[200];
    const char *option;
    if (cli_overwrites(path, args->operand[0])) {
        bool table = !strcmp(args->command->name, "costs");
        return cmd_usage(args, "'%s' is %s", cli_escape(shown, sizeof shown, path),
                         table ? "one of the tables that are read" : "the model itself");
    }
    if ((option = read_by(args, path))) {
        return cmd_usage(args, "'%s' is read by --%s", cli_escape(shown, sizeof shown, path),
                         option);
    }
    for (int i = 0; i < count && strcmp(path, "/dev/null") != 0; i++) {
        if (others[i] && (!strcmp(path, others[i]) || cli_same_file(path, others[i]))) {
            return cmd_usage(args, "'%s' is given for two files",
                             cli_escape(shown, sizeof shown, path));
        }
    }
    return CLI_OK;
}

// ---- emit and check ----

enum { FILES = 3 };
static const ein_output file_kind[FILES] = {EIN_CUDA, EIN_HEADER, EIN_TEST};

static void free_texts(cmd_text text[FILES]) {
    for (int i = 0; i < FILES; i++) {
        cmd_text_free(&text[i]);
    }
}

// The texts of those files that have a path. CLI_OK, or an exit code and no texts.
static int render_files(const cmd_args *args, const char *const path[FILES], cmd_text text[FILES]) {
    int code;
    ein_ctx *ctx = cmd_plan(args, &code);
    memset(text, 0, FILES * sizeof *text);
    for (int i = 0; ctx && !code && i < FILES; i++) {
        if (path[i]) {
            code = cmd_render(ctx, file_kind[i], &text[i]);
        }
    }
    if (ctx) {
        cmd_search_done(args, ctx);
    }
    ein_close(ctx);
    if (code) {
        free_texts(text);
    }
    return code;
}

// Writes those files that have a path: all of them, or none if one cannot be written. What is no
// regular file, as standard output, comes when all others have been written, but for their names.
static int write_files(const char *const path[FILES], const cmd_text text[FILES]) {
    cli_sink *sink[FILES] = {NULL};
    cli_error error;
    bool good = true;
    for (int i = 0; good && i < FILES; i++) {
        sink[i] = path[i] ? cli_sink_open(path[i], &error) : NULL;
        good = !path[i] || sink[i];
    }
    for (int direct = 0; direct < 2; direct++) {
        for (int i = 0; good && i < FILES; i++) {
            if (sink[i] && cli_sink_is_direct(sink[i]) == (bool)direct) {
                cli_sink_write(sink[i], text[i].data ? text[i].data : "", text[i].size);
                good = cli_sink_finish(sink[i], &error);
            }
        }
    }
    return cli_sinks_commit(sink, FILES, good, &error) ? CLI_OK : cmd_report(&error);
}

int cmd_emit(const cmd_args *args) {
    const char *path[FILES] = {cmd_get(args, "output"), cmd_get(args, "header"),
                               cmd_get(args, "test")};
    cmd_text text[FILES];
    int code = CLI_OK;
    if (!path[0] && !path[1] && !path[2]) {
        return cmd_usage(args, "where to? -o OUT.cu, or -o - for standard output");
    }
    for (int i = 0; i < FILES; i++) {
        if (path[i] && (code = cmd_check_output(args, path[i], path, i))) {
            return code;
        }
    }
    code = render_files(args, path, text);
    if (!code) {
        code = write_files(path, text);
    }
    free_texts(text);
    return code;
}

// Compares one file with what it should hold.
static int compare_file(const char *path, const cmd_text *text, const char *with) {
    cli_error error;
    cli_bytes bytes;
    char old_name[400], new_name[420];
    if (!cli_file_read(path, CMD_TEXT_LIMIT, &bytes, &error)) {
        return cmd_report(&error);
    }
    cli_escape(old_name, sizeof old_name, path);
    snprintf(new_name, sizeof new_name, "%s (%s)", old_name, with);
    bool differs = cmd_diff(stdout, old_name, bytes.size ? (const char *)bytes.data : "",
                            bytes.size, new_name, text->data ? text->data : "", text->size);
    cli_file_release(&bytes);
    return differs ? CLI_DIFFERS : CLI_OK;
}

int cmd_check(const cmd_args *args) {
    const char *path[FILES] = {args->operand[1], cmd_get(args, "header"), cmd_get(args, "test")};
    cmd_text text[FILES];
    int code = render_files(args, path, text);
    for (int i = 0; code <= CLI_DIFFERS && i < FILES; i++) {
        if (path[i] && text[i].data) {
            int found = compare_file(path[i], &text[i], "regenerated");
            code = found > code ? found : code;
        }
    }
    free_texts(text);
    return code;
}

// ---- fmt, graph, equations ----

// Prints one output of the library to -o or standard output.
static int print_output(const cmd_args *args, ein_output what, bool over_model) {
    const char *path = cmd_get(args, "output");
    cmd_text text = {NULL, 0};
    int code = path && !over_model ? cmd_check_output(args, path, NULL, 0) : CLI_OK;
    if (code) {
        return code;
    }
    ein_ctx *ctx = open_costs(args, &code);
    if (!ctx) {
        return code;
    }
    code = cmd_render(ctx, what, &text);
    cmd_search_done(args, ctx);
    ein_close(ctx);
    if (!code) {
        code = cmd_write_text(path ? path : "-", &text);
    }
    cmd_text_free(&text);
    return code;
}

int cmd_fmt(const cmd_args *args) {
    if (!cmd_get(args, "check")) {
        return print_output(args, EIN_FORMAT, true);
    }
    if (cmd_get(args, "output") || !strcmp(args->operand[0], "-")) {
        return cmd_usage(args, "--check compares a file and writes none");
    }
    int code;
    cmd_text text;
    ein_ctx *ctx = cmd_open(args, &code);
    if (!ctx) {
        return code;
    }
    code = cmd_render(ctx, EIN_FORMAT, &text);
    ein_close(ctx);
    if (!code) {
        code = compare_file(args->operand[0], &text, "formatted");
    }
    cmd_text_free(&text);
    return code;
}

int cmd_equations(const cmd_args *args) { return print_output(args, EIN_EQUATIONS, false); }

int cmd_explain(const cmd_args *args) {
    return print_output(args, cmd_get(args, "json") ? EIN_EXPLAIN_JSON : EIN_EXPLAIN, false);
}

// The id of --candidate in `*id`, -1 without one.
static int candidate_id(const cmd_args *args, int *id) {
    enum { MOST_ID = 999999999 };
    *id = -1;
    if (args->operands > 1 && !cmd_get(args, "candidate")) {
        return cmd_usage(args, "VALUE goes with --candidate");
    }
    return cmd_number(args, "candidate", 0, MOST_ID, id);
}

int cmd_verify(const cmd_args *args) {
    enum { SAMPLES = 4, CANDIDATE_SAMPLES = 64 };
    int id, code = candidate_id(args, &id);
    ein_ctx *ctx = code ? NULL : open_costs(args, &code);
    if (!ctx) {
        return code;
    }
    if (id < 0) {
        code = ein_verify(ctx, SAMPLES) ? cmd_failed(ctx) : CLI_OK;
    } else {
        const char *value = args->operands > 1 ? args->operand[1] : NULL;
        code = ein_verify_candidate(ctx, value, id, CANDIDATE_SAMPLES) ? cmd_failed(ctx) : CLI_OK;
    }
    cmd_search_done(args, ctx);
    if (!code && id < 0) {
        printf("the plan computes what the model says (%d places an output, modulo 2^61-1)\n",
               SAMPLES);
    } else if (!code) {
        printf("candidate %d computes what the model says (%d places, modulo 2^61-1)\n", id,
               CANDIDATE_SAMPLES);
    }
    ein_close(ctx);
    return code;
}

static void put_tensor(cmd_text *to, const char *kind, const ein_tensor_info *t) {
    char line[700], name[300], key[200];
    int used = snprintf(line, sizeof line, "%-7s %-24s %s[", kind,
                        cli_escape(name, sizeof name, t->name), t->dtype);
    for (int d = 0; d < t->rank; d++) {
        used += snprintf(line + used, sizeof line - (size_t)used, "%s%lld", d ? "," : "",
                         (long long)t->dims[d]);
    }
    used += snprintf(line + used, sizeof line - (size_t)used, "]  %zu bytes", t->bytes);
    if (t->blob) {
        snprintf(line + used, sizeof line - (size_t)used, "  %.60s \"%s\"", t->blob,
                 cli_escape(key, sizeof key, t->key ? t->key : ""));
    }
    collect(to, line, strlen(line));
    collect(to, "\n", 1);
}

int cmd_graph(const cmd_args *args) {
    static const struct {
        char kind;
        const char *name;
    } kinds[] = {{'i', "input"}, {'o', "output"}, {'w', "weight"}};
    if (cmd_get(args, "json")) {
        return print_output(args, EIN_GRAPH_JSON, false);
    }
    const char *path = cmd_get(args, "output");
    int code = path ? cmd_check_output(args, path, NULL, 0) : CLI_OK;
    ein_ctx *ctx = code ? NULL : cmd_open(args, &code);
    if (!ctx) {
        return code;
    }
    cmd_text text = {NULL, 0};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ein_tensor_info info;
        for (int i = 0; ein_describe(ctx, kinds[k].kind, i, &info); i++) {
            put_tensor(&text, kinds[k].name, &info);
        }
    }
    code = cmd_write_text(path ? path : "-", &text);
    cmd_text_free(&text);
    ein_close(ctx);
    return code;
}

// ---- probe ----

// Plans operand `index` alone, adds the calls in `text` to its own, and puts there what it prints.
static int probe_model(const cmd_args *args, int index, cmd_text *text) {
    cmd_args one = *args;
    one.operand[0] = args->operand[index];
    one.operands = 1;
    int code;
    ein_ctx *ctx = cmd_plan(&one, &code);
    if (!ctx) {
        return code;
    }
    code = text->size && ein_add_calls(ctx, text->data, text->size) ? cmd_failed(ctx) : CLI_OK;
    cmd_text_free(text);
    if (!code) {
        code = cmd_render(ctx, index + 1 < args->operands ? EIN_CALLS : EIN_PROBE, text);
    }
    cmd_search_done(args, ctx);
    ein_close(ctx);
    return code;
}

// What tables have of every model's candidates, one model after the other.
static int probe_estimates(const cmd_args *args, const char *path) {
    cmd_text all = {NULL, 0};
    int code = CLI_OK;
    for (int i = 0; i < args->operands && !code; i++) {
        cmd_args one = *args;
        cmd_text text = {NULL, 0};
        one.operand[0] = args->operand[i];
        one.operands = 1;
        ein_ctx *ctx = cmd_plan(&one, &code);
        if (!ctx) {
            break;
        }
        code = cmd_render(ctx, EIN_CANDIDATES, &text);
        if (!code && text.size && !collect(&all, text.data, text.size)) {
            cli_out_of_memory();
        }
        cmd_text_free(&text);
        cmd_search_done(args, ctx);
        ein_close(ctx);
    }
    if (!code) {
        code = cmd_write_text(path, &all);
    }
    cmd_text_free(&all);
    return code;
}

int cmd_probe(const cmd_args *args) {
    const char *path = cmd_get(args, "output");
    cmd_text text = {NULL, 0};
    cmd_args one = *args;
    int code = CLI_OK;
    if (!path) {
        return cmd_usage(args, "where to? -o PROBE.cu, or -o - for standard output");
    }
    for (int i = 0; i < args->operands && !code; i++) {
        one.operand[0] = args->operand[i];
        code = cmd_check_output(&one, path, NULL, 0);
    }
    if (!code && cmd_get(args, "estimates")) {
        return probe_estimates(args, path);
    }
    for (int i = 0; i < args->operands && !code; i++) {
        code = probe_model(args, i, &text);
    }
    if (!code) {
        code = cmd_write_text(path, &text);
    }
    cmd_text_free(&text);
    return code;
}

// ---- import ----

static bool shape_of(void *user, const char *text, const char *tensor, bool only_tried,
                     int64_t dims[CLI_MAX_RANK], int *rank) {
    (void)user;
    ein_ctx *ctx = ein_open(NULL);
    if (!ctx) {
        cli_out_of_memory();
    }
    bool known =
        !ein_add_model(ctx, "import", text, strlen(text)) && ein_shape(ctx, tensor, rank, dims);
    if (!known && !only_tried) {
        fputs(ein_error(ctx), stderr);
    }
    ein_close(ctx);
    return known;
}

// The values of an option that may be given several times, NULL behind them.
static const char **all_of(const cmd_args *args, const char *option) {
    const char **list = cli_alloc((size_t)(args->count + 1) * sizeof *list);
    int at = 0, n = 0;
    while ((list[n] = cmd_next(args, option, &at))) {
        n++;
    }
    return list;
}

int cmd_import(const cmd_args *args) {
    const char **dims = all_of(args, "dim"), **consts = all_of(args, "const");
    const char **ends = all_of(args, "end");
    cli_import_options given = {.model = args->operand[0],
                                .output = cmd_get(args, "output"),
                                .weights = cmd_get(args, "weights"),
                                .name = cmd_get(args, "name"),
                                .dims = dims,
                                .consts = consts,
                                .ends = ends};
    int code = cli_import(&given, shape_of, NULL);
    free(dims);
    free(consts);
    free(ends);
    return code;
}
