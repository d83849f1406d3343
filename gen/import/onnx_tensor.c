// onnx_tensor.c - TensorProto to constants: raw and typed data, data in other files; elements.
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700

#include "onnx.h"

#include <limits.h>
#include <math.h>

static const struct {
    const char *name;
    cli_dtype dtype;
} onnx_types[] = {
    {"undefined", CLI_NONE},
    {"float", CLI_F32},
    {"uint8", CLI_U8},
    {"int8", CLI_I8},
    {"uint16", CLI_U16},
    {"int16", CLI_I16},
    {"int32", CLI_I32},
    {"int64", CLI_I64},
    {"string", CLI_NONE},
    {"bool", CLI_BOOL},
    {"float16", CLI_F16},
    {"double", CLI_F64},
    {"uint32", CLI_U32},
    {"uint64", CLI_U64},
    {"complex64", CLI_NONE},
    {"complex128", CLI_NONE},
    {"bfloat16", CLI_BF16},
    {"float8e4m3fn", CLI_NONE},
    {"float8e4m3fnuz", CLI_NONE},
    {"float8e5m2", CLI_NONE},
    {"float8e5m2fnuz", CLI_NONE},
    {"uint4", CLI_NONE},
    {"int4", CLI_NONE},
    {"float4e2m1", CLI_NONE},
    {"float8e8m0", CLI_NONE},
    {"uint2", CLI_NONE},
    {"int2", CLI_NONE},
};

cli_dtype ox_dtype(int32_t onnx_type) {
    bool inside = onnx_type >= 0 && (size_t)onnx_type < sizeof onnx_types / sizeof *onnx_types;
    return inside ? onnx_types[onnx_type].dtype : CLI_NONE;
}

const char *ox_type_name(int32_t onnx_type) {
    bool inside = onnx_type >= 0 && (size_t)onnx_type < sizeof onnx_types / sizeof *onnx_types;
    return inside ? onnx_types[onnx_type].name : "unknown";
}

bool ox_is_float(cli_dtype dtype) {
    return dtype == CLI_F32 || dtype == CLI_F16 || dtype == CLI_BF16 || dtype == CLI_F64;
}

// ---- elements ----

ox_const *ox_make(ox *o, cli_dtype dtype, int rank, const int64_t *dims) {
    ox_const *c = ox_alloc(o, sizeof *c);
    c->dtype = dtype;
    c->rank = rank;
    if (rank) {
        memcpy(c->dims, dims, (size_t)rank * sizeof *dims);
    }
    if (!cli_count(rank, dims, &c->count) || c->count > OX_FOLD_LIMIT) {
        ox_die(o, NULL, "a folded constant has more than %d elements", OX_FOLD_LIMIT);
    }
    c->data = ox_alloc(o, (size_t)c->count * cli_dtype_size(dtype));
    return c;
}

const ox_const *ox_from_tensor(ox *o, const cli_tensor *t) {
    ox_const *c = ox_alloc(o, sizeof *c);
    c->dtype = t->dtype;
    c->rank = t->rank;
    memcpy(c->dims, t->dims, sizeof c->dims);
    c->count = (int64_t)(t->bytes / cli_dtype_size(t->dtype));
    c->data = t->data;
    return c;
}

static const uint8_t *element(const ox_const *c, int64_t i) {
    return c->data + (c->splat ? 0 : (size_t)i * cli_dtype_size(c->dtype));
}

int64_t ox_geti(const ox_const *c, int64_t i) {
    if (c->dtype == CLI_I64 || c->dtype == CLI_U64) {
        int64_t value;
        memcpy(&value, element(c, i), sizeof value);
        return value;
    }
    double value = cli_get(c->dtype, element(c, i), 0);
    int64_t result;
    cli_set(CLI_I64, &result, 0, value);
    return result;
}

double ox_getf(const ox_const *c, int64_t i) { return cli_get(c->dtype, element(c, i), 0); }

// Integers wrap around, as they do in every runtime.
void ox_seti(ox_const *c, int64_t i, int64_t value) {
    size_t size = cli_dtype_size(c->dtype);
    uint8_t *at = (uint8_t *)(uintptr_t)c->data + (size_t)i * size;
    if (c->dtype == CLI_BOOL) {
        *at = value != 0;
    } else if (ox_is_float(c->dtype)) {
        cli_set(c->dtype, at, 0, (double)value);
    } else {
        memcpy(at, &value, size);
    }
}

void ox_setf(ox_const *c, int64_t i, double value) {
    cli_set(c->dtype, (uint8_t *)(uintptr_t)c->data, i, value);
}

const char *ox_sym(const ox_const *c, int64_t i) {
    return c->sym ? c->sym[c->splat ? 0 : i] : NULL;
}

void ox_set_sym(ox *o, ox_const *c, int64_t i, const char *sym) {
    if (!sym || c->count > OX_SYM_LIMIT) {
        return;
    }
    if (!c->sym) {
        c->sym = ox_alloc(o, (size_t)c->count * sizeof *c->sym);
    }
    c->sym[i] = sym;
}

// ---- decoding ----

static int64_t fits_in(const ox_tensor *t, cli_dtype dtype) {
    switch (dtype) {
    case CLI_F32: return (int64_t)t->n_float_data;
    case CLI_F64: return (int64_t)t->n_double_data;
    case CLI_I64: return (int64_t)t->n_int64_data;
    case CLI_U32:
    case CLI_U64: return (int64_t)t->n_uint64_data;
    case CLI_F16:
    case CLI_BF16:
    case CLI_I8:
    case CLI_U8:
    case CLI_I16:
    case CLI_U16:
    case CLI_I32:
    case CLI_BOOL: return (int64_t)t->n_int32_data;
    case CLI_NONE: break;
    }
    return 0;
}

static size_t typed_elements(const ox_tensor *t) {
    return t->n_float_data + t->n_double_data + t->n_int64_data + t->n_uint64_data +
           t->n_int32_data;
}

// Typed data is wider than the element for the small types: f16 and bf16 are bits in an int32.
static const uint8_t *typed_data(ox *o, const ox_tensor *t, cli_dtype dtype, int64_t count) {
    size_t size = cli_dtype_size(dtype);
    switch (dtype) {
    case CLI_F32: return (const uint8_t *)t->float_data;
    case CLI_F64: return (const uint8_t *)t->double_data;
    case CLI_I64: return (const uint8_t *)t->int64_data;
    case CLI_U64: return (const uint8_t *)t->uint64_data;
    case CLI_I32: return (const uint8_t *)t->int32_data;
    case CLI_U32:
    case CLI_F16:
    case CLI_BF16:
    case CLI_I8:
    case CLI_U8:
    case CLI_I16:
    case CLI_U16:
    case CLI_BOOL: break;
    case CLI_NONE: return NULL;
    }
    uint8_t *data = ox_alloc(o, (size_t)count * size);
    for (int64_t i = 0; i < count; i++) {
        uint64_t wide = dtype == CLI_U32 ? t->uint64_data[i] : (uint64_t)t->int32_data[i];
        memcpy(data + (size_t)i * size, &wide, size);
    }
    return data;
}

static bool parse_size(const char *text, uint64_t *value) {
    *value = 0;
    for (const char *s = text; *s; s++) {
        if (*s < '0' || *s > '9' || s - text > 17) {
            return false;
        }
        *value = *value * 10 + (uint64_t)(*s - '0');
    }
    return *text != 0;
}

// A relative path whose parts are all plain names.
static bool is_inside(const char *path) {
    if (!*path || *path == '/' || strlen(path) > 1000) {
        return false;
    }
    for (const char *s = path; *s; s += strcspn(s, "/"), s += *s == '/') {
        size_t size = strcspn(s, "/");
        if ((size == 2 && s[0] == '.' && s[1] == '.') || memchr(s, '\\', size)) {
            return false;
        }
    }
    return true;
}

// Opens a data file beside the model. Symbolic links are resolved and must not lead out of the
// model's directory. Each file is mapped once.
static const cli_bytes *open_data(ox *o, const char *name, const char *location) {
    char shown[200];
    cli_escape(shown, sizeof shown, location);
    if (!strcmp(o->path, "-") || !is_inside(location)) {
        ox_die(o, NULL, "tensor \"%s\": data file \"%s\" is not inside the model's directory", name,
               shown);
    }
    const char *slash = strrchr(o->path, '/');
    int size = slash ? (int)(slash - o->path) + 1 : 0;
    char *dir = ox_format(o, "%.*s.", size, o->path);
    char *path = ox_format(o, "%.*s%s", size, o->path, location);
    for (ptrdiff_t i = 0; i < arrlen(o->maps); i++) {
        if (!strcmp(o->maps[i].path, path)) {
            return &o->maps[i].bytes;
        }
    }
    char *real_dir = realpath(dir, NULL);
    char *real = realpath(path, NULL);
    size_t length = real_dir ? strlen(real_dir) : 0;
    bool missing = !real_dir || !real;
    bool inside = !missing && !strncmp(real, real_dir, length) &&
                  (real[length] == '/' || !strcmp(real_dir, "/"));
    free(real_dir);
    free(real);
    if (missing) {
        ox_die(o, NULL, "tensor \"%s\": there is no data file \"%s\"", name, shown);
    }
    if (!inside) {
        ox_die(o, NULL, "tensor \"%s\": data file \"%s\" leads out of the model's directory", name,
               shown);
    }
    ox_mapping map = {path, {0}};
    cli_error error;
    if (!cli_file_read_regular(path, &map.bytes, &error)) {
        ox_die(o, NULL, "tensor \"%s\": data file %s", name, error.text);
    }
    arrput(o->maps, map);
    return &o->maps[arrlen(o->maps) - 1].bytes;
}

static const uint8_t *external_data(ox *o, const ox_tensor *t, const char *name, size_t need) {
    const char *location = NULL;
    uint64_t offset = 0, length = need;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *key = t->external_data[i]->key ? t->external_data[i]->key : "";
        const char *value = t->external_data[i]->value ? t->external_data[i]->value : "";
        bool good = true;
        if (!strcmp(key, "location")) {
            location = value;
        } else if (!strcmp(key, "offset")) {
            good = parse_size(value, &offset);
        } else if (!strcmp(key, "length")) {
            good = parse_size(value, &length);
        }
        if (!good) {
            ox_die(o, NULL, "tensor \"%s\": external data has a bad %s", name, key);
        }
    }
    if (!location) {
        ox_die(o, NULL, "tensor \"%s\": external data without location", name);
    }
    const cli_bytes *file = open_data(o, name, location);
    if (length != need) {
        ox_die(o, NULL, "tensor \"%s\": external length %llu, but the shape needs %zu bytes", name,
               (unsigned long long)length, need);
    }
    if (offset > file->size || need > file->size - offset) {
        ox_die(o, NULL, "tensor \"%s\": external data ends behind its file of %zu bytes", name,
               file->size);
    }
    return file->data + offset;
}

const ox_const *ox_decode(ox *o, const ox_tensor *t, const char *full_name) {
    char name[120];
    cli_escape(name, sizeof name, full_name);
    ox_const *c = ox_alloc(o, sizeof *c);
    c->dtype = t->has_data_type ? ox_dtype(t->data_type) : CLI_NONE;
    if (c->dtype == CLI_NONE) {
        ox_unsupported(o, NULL, "tensor \"%s\" has the unsupported element type %s", name,
                       ox_type_name(t->data_type));
    }
    if (t->n_dims > CLI_MAX_RANK || t->segment) {
        ox_unsupported(o, NULL, "tensor \"%s\" has %zu axes%s", name, t->n_dims,
                       t->segment ? " and comes in segments" : "");
    }
    c->rank = (int)t->n_dims;
    for (int i = 0; i < c->rank; i++) {
        c->dims[i] = t->dims[i];
        if (t->dims[i] < 0 || t->dims[i] > OX_MAX_DIM) {
            ox_die(o, NULL, "tensor \"%s\": axis %d has size %lld", name, i, (long long)t->dims[i]);
        }
    }
    size_t size = cli_dtype_size(c->dtype);
    if (!cli_count(c->rank, c->dims, &c->count) || c->count > ((int64_t)1 << 40) / (int64_t)size) {
        ox_die(o, NULL, "tensor \"%s\" is too big", name);
    }
    size_t need = (size_t)c->count * size;
    size_t typed = typed_elements(t);
    bool external =
        t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    if ((t->has_raw_data && t->raw_data.len) + (typed != 0) + external > 1) {
        ox_die(o, NULL, "tensor \"%s\" has its data twice", name);
    }
    if (external) {
        c->data = external_data(o, t, name, need);
    } else if (t->has_raw_data && !typed) {
        if (t->raw_data.len != need) {
            ox_die(o, NULL, "tensor \"%s\": %zu bytes of raw data, but the shape needs %zu", name,
                   t->raw_data.len, need);
        }
        c->data = t->raw_data.data;
    } else {
        if (fits_in(t, c->dtype) != c->count || typed != (size_t)c->count) {
            ox_die(o, NULL, "tensor \"%s\": %zu elements of data, but the shape needs %lld", name,
                   typed, (long long)c->count);
        }
        c->data = typed_data(o, t, c->dtype, c->count);
    }
    return c;
}
