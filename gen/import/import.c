// import.c - the command line of `einnet import` and the two files it writes.
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700

#include "onnx.h"

#include <limits.h>

#define MODEL_LIMIT ((size_t)INT32_MAX)  // protobuf's own

typedef struct {
    const char *model, *out, *weights, *name;
} options;

static int usage(const char *what, const char *value) {
    char shown[120];
    fprintf(stderr, "einnet import: %s", what);
    if (value) {
        fprintf(stderr, "'%s'", cli_escape(shown, sizeof shown, value));
    }
    fprintf(stderr, "\ntry 'einnet import --help'\n");
    return CLI_USAGE;
}

// What has nothing to do with the model's text begins as it does in all commands.
static int file_error(const cli_error *error) {
    fprintf(stderr, "einnet: %s\n", error->text);
    return error->code;
}

// ---- arguments ----

static int add_pin(ox *o, const char *text) {
    const char *equals = strrchr(text, '=');
    long long value = 0;
    const char *s = equals ? equals + 1 : "";
    for (; *s >= '0' && *s <= '9' && value <= OX_MAX_DIM; s++) {
        value = value * 10 + (*s - '0');
    }
    if (!equals || *s || value < 1 || value > OX_MAX_DIM) {
        return usage("--dim needs NAME=N with N from 1 on, not ", text);
    }
    ox_pin pin = {.value = value, .given = true};
    pin.name = ox_format(o, "%.*s", (int)(equals - text), text);
    for (ptrdiff_t i = 0; i < arrlen(o->pins); i++) {
        if (!strcmp(o->pins[i].name, pin.name)) {
            return usage("--dim is given twice for ", pin.name);
        }
    }
    arrput(o->pins, pin);
    return CLI_OK;
}

static int add_given(ox *o, const char *text) {
    const char *equals = strchr(text, '=');
    if (!equals || !equals[1]) {
        return usage("--const needs NAME=FILE.npy, not ", text);
    }
    ox_given given = {.name = ox_format(o, "%.*s", (int)(equals - text), text), .path = equals + 1};
    for (ptrdiff_t i = 0; i < arrlen(o->givens); i++) {
        if (!strcmp(o->givens[i].name, given.name)) {
            return usage("--const is given twice for ", given.name);
        }
    }
    cli_error error;
    if (!cli_npy_read(equals + 1, &given.tensor, &error)) {
        return file_error(&error);
    }
    arrput(o->givens, given);
    return CLI_OK;
}

// What may be given several times.
static int take_lists(ox *o, const cli_import_options *given) {
    int code = CLI_OK;
    for (int i = 0; !code && given->dims[i]; i++) {
        code = add_pin(o, given->dims[i]);
    }
    for (int i = 0; !code && given->consts[i]; i++) {
        code = add_given(o, given->consts[i]);
    }
    for (int i = 0; !code && given->ends[i]; i++) {
        arrput(o->ends, ox_copy(o, given->ends[i]));
    }
    return code;
}

// ---- names of files ----

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The file's name without directory and extension, made a C identifier.
static const char *identifier(ox *o, const char *path) {
    const char *base = base_of(path);
    const char *dot = strrchr(base, '.');
    int size = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    bool digit = *base >= '0' && *base <= '9';
    char *name = ox_format(o, "%s%.*s", digit || !size ? "m_" : "", size, base);
    for (char *s = name; *s; s++) {
        bool good =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9');
        *s = good ? *s : '_';
    }
    return name;
}

static bool is_identifier(const char *name) {
    return *name && !(*name >= '0' && *name <= '9') &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")];
}

static char *real_directory(ox *o, const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = ox_format(o, "%.*s.", slash ? (int)(slash - path) + 1 : 0, path);
    char *real = realpath(dir, NULL);
    char *copy = real ? ox_copy(o, real) : NULL;
    free(real);
    return copy;
}

// Path of the weights as the model states it: relative to the model's directory. Where the weights
// lie elsewhere only their name is stated, and whoever reads the model has to say --blob.
static void name_blob(ox *o, const options *p) {
    o->blob = base_of(p->weights);
    if (!strcmp(p->out, "-")) {
        return;
    }
    char *model = real_directory(o, p->out), *weights = real_directory(o, p->weights);
    size_t size = model ? strlen(model) : 0;
    size = size == 1 ? 0 : size;
    if (!model || !weights) {
        return;
    }
    bool inside = !strncmp(model, weights, size) && (weights[size] == '/' || !weights[size]);
    if (!inside) {
        ox_note(o, "the weights are not below the model's directory: read them with --blob W=FILE");
    } else if (weights[size] && weights[size + 1]) {
        o->blob = ox_format(o, "%s/%s", weights + size + 1, o->blob);
    }
}

// Whether an output would take the place of a file that is read.
static bool overwrites(const options *p, const char *from) {
    return cli_overwrites(p->out, from) || cli_overwrites(p->weights, from);
}

// The data files of the model are known once it is read.
static int check_data(const ox *o, const options *p) {
    for (ptrdiff_t i = 0; i < arrlen(o->maps); i++) {
        if (overwrites(p, o->maps[i].path)) {
            return usage("this file holds data of the model and cannot be an output: ",
                         o->maps[i].path);
        }
    }
    return CLI_OK;
}

static int settle_names(ox *o, options *p) {
    if (!p->out) {
        p->out = "-";
    }
    bool piped = !strcmp(p->out, "-");
    const char *stem = piped ? p->model : p->out;
    if (!p->weights) {
        const char *dot = strrchr(base_of(stem), '.');
        int size = dot && dot > base_of(stem) ? (int)(dot - stem) : (int)strlen(stem);
        if (piped) {
            return usage("--weights is needed where the model goes to the standard output", NULL);
        }
        p->weights = ox_format(o, "%.*s.safetensors", size, stem);
    }
    bool same =
        !strcmp(p->out, p->weights) || cli_same_file(p->out, p->weights) || overwrites(p, p->model);
    if (same && strcmp(p->out, "/dev/null")) {
        return usage("model, output and weights must be different files", NULL);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->givens); i++) {
        if (overwrites(p, o->givens[i].path)) {
            return usage("this file is read by --const and cannot be an output: ",
                         o->givens[i].path);
        }
    }
    if (p->name && !is_identifier(p->name)) {
        return usage("--name needs a C identifier, not ", p->name);
    }
    o->path = p->model;
    o->model_name = p->name ? p->name : identifier(o, strcmp(stem, "-") ? stem : "model");
    name_blob(o, p);
    return CLI_OK;
}

// ---- results ----

static const void *as_f32(ox *o, const ox_const *c) {
    float *data = ox_alloc(o, (size_t)c->count * sizeof *data);
    for (int64_t i = 0; i < c->count; i++) {
        data[i] = (float)ox_getf(c, i);
    }
    return data;
}

// The dense weights in the order in which the text declares them.
static cli_st_tensor *list_weights(ox *o) {
    cli_st_tensor *list = NULL;
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        for (ptrdiff_t k = 0; s->live && k < arrlen(s->args); k++) {
            ox_value *v = s->args[k];
            if (!v || !v->known || v->known->splat || v->listed) {
                continue;
            }
            const ox_const *c = v->known;
            v->listed = true;
            cli_st_tensor item = {
                .name = v->name, .dtype = c->dtype, .rank = c->rank, .data = c->data};
            memcpy(item.dims, c->dims, sizeof item.dims);
            if (c->dtype == CLI_F64) {
                item.dtype = CLI_F32;
                item.data = as_f32(o, c);
            }
            item.bytes = (size_t)c->count * cli_dtype_size(item.dtype);
            arrput(list, item);
        }
    }
    return list;
}

// False: the file could not be made. `*sink` stays NULL where there are no weights.
static bool write_weights(const cli_st_tensor *list, const char *path, cli_sink **sink,
                          cli_error *error) {
    *sink = arrlen(list) ? cli_sink_open(path, error) : NULL;
    bool good = !arrlen(list) || *sink;
    if (*sink) {
        cli_safetensors_put(*sink, list, (size_t)arrlen(list));
    }
    return good;
}

// The model takes its place last, so that it never names weights that are not there.
static bool write_results(ox *o, const cli_st_tensor *list, const options *p, cli_error *error) {
    enum { WEIGHTS, MODEL, FILES };
    cli_sink *sink[FILES] = {[MODEL] = cli_sink_open(p->out, error)};
    bool good = sink[MODEL] && write_weights(list, p->weights, &sink[WEIGHTS], error);
    if (good) {
        char *text = ox_text(o, NULL, -1, 0);
        cli_sink_write(sink[MODEL], text, (size_t)arrlen(text));
        arrfree(text);
    }
    return cli_sinks_commit(sink, FILES, good, error);
}

static int report(ox *o) {
    fprintf(stderr, "%.*s", (int)arrlen(o->notes), arrlen(o->notes) ? o->notes : "");
    for (ptrdiff_t i = 0; i < arrlen(o->refusals); i++) {
        int others = o->refusals[i].nodes - 1;
        fprintf(stderr, "%s", o->refusals[i].text);
        if (others) {
            fprintf(stderr, " (and %d more node%s)", others, others > 1 ? "s" : "");
        }
        fprintf(stderr, "\n");
    }
    if (o->cut) {
        char shown[200];
        fprintf(stderr, "einnet import: --end TENSOR leaves out what follows, as --end \"%s\"\n",
                cli_escape(shown, sizeof shown, o->cut));
    }
    if (o->lacking) {
        char shown[200];
        fprintf(stderr, "einnet import: --const makes an input known, as --const \"%s=FILE.npy\"\n",
                cli_escape(shown, sizeof shown, o->lacking));
    }
    if (o->error.code) {
        fprintf(stderr, "%s\n", o->error.text);
        return o->error.code;
    }
    return arrlen(o->refusals) ? CLI_UNSUPPORTED : CLI_OK;
}

// Writes the results, frees `list` and says what there is to say.
static int end(ox *o, cli_st_tensor *list, const options *p) {
    cli_error error;
    bool good = write_results(o, list, p, &error);
    int code = report(o);
    arrfree(list);
    return good ? code : file_error(&error);
}

// An option that fits nothing in the model is a slip that should not pass.
static int check_pins(ox *o) {
    for (ptrdiff_t i = 0; i < arrlen(o->pins); i++) {
        if (!o->pins[i].used) {
            char shown[120];
            char *names = NULL;
            for (ptrdiff_t k = 0; k < arrlen(o->dims); k++) {
                ox_put(&names, " %s", o->dims[k].name);
            }
            bool none = !arrlen(o->dims);
            fprintf(stderr, "einnet import: --dim %s: the model has no such dimension%s%s\n",
                    cli_escape(shown, sizeof shown, o->pins[i].name),
                    none ? ": all its sizes are numbers" : "; it has",
                    none ? "" : ox_take(o, &names));
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

// ---- sizes that the text has as numbers ----

// An import of the same model with `pins`. It has what it is asked by in common with `o`.
static ox other_import(const ox *o, ox_pin *pins) {
    return (ox){.path = o->path,
                .model_name = o->model_name,
                .blob = o->blob,
                .pins = pins,
                .givens = o->givens,
                .ends = o->ends,
                .shape_of = o->shape_of,
                .user = o->user};
}

static void end_other(ox *other) {
    other->givens = NULL;
    other->ends = NULL;
    ox_free(other);
}

static bool same_weights(const cli_st_tensor *a, const cli_st_tensor *b) {
    bool same = arrlen(a) == arrlen(b);
    for (ptrdiff_t i = 0; same && i < arrlen(a); i++) {
        same = !strcmp(a[i].name, b[i].name) && a[i].dtype == b[i].dtype &&
               a[i].rank == b[i].rank && a[i].bytes == b[i].bytes &&
               !memcmp(a[i].dims, b[i].dims, (size_t)a[i].rank * sizeof *a[i].dims) &&
               !memcmp(a[i].data, b[i].data, a[i].bytes);
    }
    return same;
}

// Sizes that are tried instead of `at`; below 1: none.
enum { OTHER_SIZES = 4, ALL_DIMS = -1, MAX_TRIED_DIMS = 8 };

static int64_t other_size(int64_t at, int which) {
    const int64_t sizes[OTHER_SIZES] = {at + 1, 2 * at, at - 1, at / 2};
    return sizes[which] > OX_MAX_DIM ? 0 : sizes[which];
}

// Whether the model with another size for dimension `dim`, or for all of them, gives the text and
// the weights `list` that it gives with those that it was imported with.
static bool same_with(ox *o, const cli_st_tensor *list, const cli_bytes *file, ptrdiff_t dim,
                      int which) {
    ox_pin *pins = NULL;
    bool same = true;
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        ox_pin pin = {.name = o->dims[i].param, .value = o->dims[i].value, .given = true};
        if (dim == i || dim == ALL_DIMS) {
            pin.value = other_size(pin.value, which);
        }
        same = same && pin.value > 0;
        arrput(pins, pin);
    }
    ox other = other_import(o, pins);
    other.quiet = true;
    same =
        same && ox_convert(&other, file->data, file->size) && arrlen(other.dims) == arrlen(o->dims);
    if (same) {
        for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
            other.dims[i].value = o->dims[i].value;
        }
        char *mine = ox_text(o, NULL, -1, 0), *text = ox_text(&other, NULL, -1, 0);
        cli_st_tensor *weights = list_weights(&other);
        same = arrlen(mine) == arrlen(text) && !memcmp(mine, text, (size_t)arrlen(text)) &&
               same_weights(list, weights);
        arrfree(mine);
        arrfree(text);
        arrfree(weights);
    }
    end_other(&other);
    return same;
}

// Whether a dimension, or all together, may have other sizes in the text: some near one that the
// model can have gives the same. Otherwise a mask was made for this size, or a tensor cut to it.
static bool may_change(ox *o, const cli_st_tensor *list, const cli_bytes *file, ptrdiff_t dim) {
    for (int i = 0; i < OTHER_SIZES; i++) {
        if (same_with(o, list, file, dim, i)) {
            return true;
        }
    }
    return false;
}

// Writes the model, with numbers for dimensions that the text holds for one value of alone.
static int finish(ox *o, const options *p, const cli_bytes *file) {
    cli_st_tensor *list = list_weights(o);
    ox_pin *pins = NULL;
    ptrdiff_t dims = arrlen(o->dims);
    bool any = false, open = !dims || may_change(o, list, file, ALL_DIMS);
    // Each asked for by itself takes its time: of many it is not known.
    for (ptrdiff_t i = 0; !open && i < dims && dims <= MAX_TRIED_DIMS; i++) {
        const ox_dim *d = &o->dims[i];
        ox_pin pin = {.name = d->param, .value = d->value, .given = d->pinned};
        pin.fixed = !may_change(o, list, file, i);
        any |= pin.fixed;
        arrput(pins, pin);
    }
    if (!any) {
        int code = end(o, list, p);
        arrfree(pins);
        return code;
    }
    arrfree(list);
    ox other = other_import(o, pins);
    bool good = ox_convert(&other, file->data, file->size);
    if (good) {
        for (ptrdiff_t i = 0; i < arrlen(other.dims); i++) {
            const ox_dim *d = &other.dims[i];
            if (d->fixed) {
                ox_note(&other,
                        "the model is imported for %s=%lld alone, as tensors are made for it: "
                        "import it again for another size",
                        d->name, (long long)d->value);
            }
        }
    }
    int code = good ? end(&other, list_weights(&other), p) : report(&other);
    end_other(&other);
    return code;
}

static int run(ox *o, const cli_import_options *given) {
    options p = {given->model, given->output, given->weights, given->name};
    cli_bytes file;
    cli_error error;
    int code = take_lists(o, given);
    code = code ? code : settle_names(o, &p);
    if (code) {
        return code;
    }
    if (!cli_file_read(p.model, MODEL_LIMIT, &file, &error)) {
        return file_error(&error);
    }
    bool good = ox_convert(o, file.data, file.size);
    code = good ? check_pins(o) : CLI_OK;
    code = good && !code ? check_data(o, &p) : code;
    if (!good || code) {
        int reported = report(o);
        code = code ? code : reported;
    } else {
        code = finish(o, &p, &file);
    }
    cli_file_release(&file);
    return code;
}

int cli_import(const cli_import_options *given, cli_shape_fn shape_of, void *user) {
    ox o;
    memset(&o, 0, sizeof o);
    o.shape_of = shape_of;
    o.user = user;
    int code = run(&o, given);
    ox_free(&o);
    return code;
}
