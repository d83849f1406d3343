// onnx_data.c - TensorProto to constants: raw and typed data, data in other files.
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700

#include "onnx.h"

#include <limits.h>

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

// Integers of fewer bits than a byte, the first in the lowest, each in a byte of its own.
static const uint8_t *unpacked(ox *o, const ox_const *c, const uint8_t *from) {
    int per_byte = 8 / c->bits, high = 1 << (c->bits - 1), most = (1 << c->bits) - 1;
    uint8_t *data = ox_alloc(o, (size_t)c->count);
    for (int64_t i = 0; i < c->count; i++) {
        int byte = from[i / per_byte];
        int value = byte >> (int)(i % per_byte) * c->bits & most;
        bool negative = c->dtype == CLI_I8 && value >= high;
        data[i] = (uint8_t)(negative ? value - most - 1 : value);
    }
    return data;
}

// ---- other files ----

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
    char *path = ox_format(o, "%.*s%s", size, o->path, location);
    for (ptrdiff_t i = 0; i < arrlen(o->maps); i++) {
        if (!strcmp(o->maps[i].path, path)) {
            return &o->maps[i].bytes;
        }
    }
    cli_place place = cli_file_place(o->path, path);
    if (place == CLI_MISSING) {
        ox_die(o, NULL, "tensor \"%s\": there is no data file \"%s\"", name, shown);
    }
    if (place == CLI_OUTSIDE) {
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

// ---- decoding ----

// The type and the axes of what a tensor holds.
static ox_const *head_of(ox *o, const ox_tensor *t, const char *name) {
    ox_const *c = ox_alloc(o, sizeof *c);
    c->dtype = t->has_data_type ? ox_stored(t->data_type, &c->bits) : CLI_NONE;
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
    int64_t size = (int64_t)cli_dtype_size(c->dtype);
    if (!cli_count(c->rank, c->dims, &c->count) || c->count > ((int64_t)1 << 40) / size) {
        ox_die(o, NULL, "tensor \"%s\" is too big", name);
    }
    return c;
}

const ox_const *ox_decode(ox *o, const ox_tensor *t, const char *full_name) {
    char name[120];
    cli_escape(name, sizeof name, full_name);
    ox_const *c = head_of(o, t, name);
    int64_t per_byte = c->bits ? 8 / c->bits : 1;
    int64_t stored = c->count / per_byte + (c->count % per_byte != 0);
    size_t need = (size_t)stored * cli_dtype_size(c->dtype), typed = typed_elements(t);
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
        if (fits_in(t, c->dtype) != stored || typed != (size_t)stored) {
            ox_die(o, NULL, "tensor \"%s\": %zu elements of data, but the shape needs %lld", name,
                   typed, (long long)stored);
        }
        c->data = typed_data(o, t, c->dtype, stored);
    }
    if (c->bits) {
        c->data = unpacked(o, c, c->data);
    }
    return c;
}
