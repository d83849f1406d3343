// cli_npy.c - NumPy's array files. Layout: "\x93NUMPY", version (two bytes), header length (two
// bytes in version 1, four after), the header (a Python dict literal), then the elements.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 1 << 16 };

static const struct {
    const char *code;  // without the byte order
    cli_dtype dtype;
} codes[] = {
    {"f4", CLI_F32}, {"f8", CLI_F64}, {"f2", CLI_F16}, {"i1", CLI_I8},
    {"i2", CLI_I16}, {"i4", CLI_I32}, {"i8", CLI_I64}, {"u1", CLI_U8},
    {"u2", CLI_U16}, {"u4", CLI_U32}, {"u8", CLI_U64}, {"b1", CLI_BOOL},
};

typedef struct {
    const char *at, *end;
    char descr[16];
    bool fortran, swapped;
    bool has_descr, has_order, has_shape;
    cli_tensor *tensor;
} header;

static void skip_space(header *h) {
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) {
        h->at++;
    }
}

static bool take(header *h, const char *text) {
    size_t size = strlen(text);
    skip_space(h);
    if ((size_t)(h->end - h->at) < size || memcmp(h->at, text, size)) {
        return false;
    }
    h->at += size;
    return true;
}

// A quoted word without escapes or control characters, as the three keys and every plain type code
// are.
static bool take_word(header *h, char *word, size_t size) {
    skip_space(h);
    if (h->at >= h->end || (*h->at != '\'' && *h->at != '"')) {
        return false;
    }
    char quote = *h->at++;
    size_t used = 0;
    while (h->at < h->end && *h->at != quote && *h->at != '\\' && (unsigned char)*h->at >= 32 &&
           used + 1 < size) {
        word[used++] = *h->at++;
    }
    word[used] = 0;
    return h->at < h->end && *h->at++ == quote;
}

static bool take_dim(header *h, int64_t *dim) {
    skip_space(h);
    const char *start = h->at;
    *dim = 0;
    while (h->at < h->end && *h->at >= '0' && *h->at <= '9' && *dim < INT64_MAX / 16) {
        *dim = *dim * 10 + (*h->at++ - '0');
    }
    if (h->at < h->end && *h->at == 'L') {
        h->at++;  // written by Python 2
    }
    return h->at > start && !(h->at < h->end && *h->at >= '0' && *h->at <= '9');
}

static bool take_shape(header *h) {
    cli_tensor *t = h->tensor;
    if (!take(h, "(")) {
        return false;
    }
    t->rank = 0;
    while (!take(h, ")")) {
        if (t->rank == CLI_MAX_RANK || !take_dim(h, &t->dims[t->rank])) {
            return false;
        }
        t->rank++;
        if (!take(h, ",")) {
            return take(h, ")");
        }
    }
    return true;
}

static bool take_item(header *h) {
    char key[16];
    if (!take_word(h, key, sizeof key) || !take(h, ":")) {
        return false;
    }
    if (!strcmp(key, "descr") && !h->has_descr) {
        h->has_descr = true;
        return take_word(h, h->descr, sizeof h->descr);
    }
    if (!strcmp(key, "fortran_order") && !h->has_order) {
        h->has_order = true;
        h->fortran = take(h, "True");
        return h->fortran || take(h, "False");
    }
    if (!strcmp(key, "shape") && !h->has_shape) {
        h->has_shape = true;
        return take_shape(h);
    }
    return false;
}

static bool parse_header(header *h) {
    if (!take(h, "{")) {
        return false;
    }
    while (!take(h, "}")) {
        if (!take_item(h)) {
            return false;
        }
        if (!take(h, ",")) {
            if (!take(h, "}")) {
                return false;
            }
            break;
        }
    }
    skip_space(h);
    return h->at == h->end && h->has_descr && h->has_order && h->has_shape;
}

static bool find_type(header *h) {
    char order = h->descr[0];
    if (!order || !strchr("<>|=", order)) {
        return false;
    }
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (!strcmp(codes[i].code, h->descr + 1)) {
            h->tensor->dtype = codes[i].dtype;
            h->swapped = order == '>';
            return order != '|' || cli_dtype_size(codes[i].dtype) == 1;
        }
    }
    return false;
}

// Copies the elements, reversing bytes and the order of axes where the file has them the other way:
// in Fortran order the first axis runs fastest.
static void copy_elements(const header *h, cli_tensor *t, const uint8_t *from, int64_t count) {
    size_t size = cli_dtype_size(t->dtype);
    int64_t index[CLI_MAX_RANK] = {0};
    uint8_t *to = t->data;
    if (!h->swapped && (!h->fortran || t->rank < 2)) {
        if (t->bytes) {
            memcpy(to, from, t->bytes);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t place = i;
        if (h->fortran) {
            place = 0;
            for (int a = t->rank - 1; a >= 0; a--) {
                place = place * t->dims[a] + index[a];
            }
            for (int a = t->rank - 1; a >= 0 && ++index[a] == t->dims[a]; a--) {
                index[a] = 0;
            }
        }
        for (size_t b = 0; b < size; b++) {
            to[(size_t)i * size + b] = from[(size_t)place * size + (h->swapped ? size - 1 - b : b)];
        }
    }
}

static bool read_bytes(const char *path, const cli_bytes *file, cli_tensor *t, cli_error *error) {
    static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    const uint8_t *p = file->data;
    char name[400];
    cli_escape(name, sizeof name, path);
    if (file->size < 10 || memcmp(p, magic, 6) || p[6] < 1 || p[6] > 3 || p[7]) {
        return cli_fail(error, CLI_BAD_INPUT, "%s: not a .npy file of version 1 to 3", name);
    }
    size_t start = p[6] == 1 ? 10 : 12;
    size_t length = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1 && file->size >= 12) {
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    }
    if (file->size < start || length > file->size - start || length > MAX_HEADER) {
        return cli_fail(error, CLI_BAD_INPUT, "%s: header length %zu is outside the file", name,
                        length);
    }
    header h = {.at = (const char *)p + start, .tensor = t};
    h.end = h.at + length;
    if (!parse_header(&h)) {
        return cli_fail(error, CLI_BAD_INPUT,
                        "%s: header is not {'descr', 'fortran_order', 'shape'} of a plain array "
                        "with at most %d axes",
                        name, CLI_MAX_RANK);
    }
    if (!find_type(&h)) {
        char code[64];
        return cli_fail(error, CLI_BAD_INPUT, "%s: unsupported element type \"%s\"", name,
                        cli_escape(code, sizeof code, h.descr));
    }
    int64_t count = 0;
    size_t left = file->size - start - length;
    size_t size = cli_dtype_size(t->dtype);
    bool fits = cli_count(t->rank, t->dims, &count) && (uint64_t)count <= left / size;
    if (!fits || (size_t)count * size != left) {
        return cli_fail(error, CLI_BAD_INPUT, "%s: shape does not match the %zu bytes of data",
                        name, left);
    }
    t->bytes = left;
    t->data = cli_alloc(left);
    copy_elements(&h, t, p + start + length, count);
    return true;
}

bool cli_npy_read(const char *path, cli_tensor *tensor, cli_error *error) {
    cli_bytes file;
    memset(tensor, 0, sizeof *tensor);
    if (!cli_file_read(path, (size_t)1 << 40, &file, error)) {
        return false;
    }
    bool good = read_bytes(path, &file, tensor, error);
    if (!good) {
        cli_tensor_free(tensor);
    }
    cli_file_release(&file);
    return good;
}

// Writes the head for `dtype`; the elements follow. numpy pads it to a multiple of 64 bytes.
static void put_header(cli_sink *sink, const cli_tensor *t, cli_dtype dtype) {
    char text[512];
    const char *code = "";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].dtype == dtype) {
            code = codes[i].code;
        }
    }
    int used = snprintf(text, sizeof text, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                        cli_dtype_size(dtype) == 1 ? '|' : '<', code);
    for (int i = 0; i < t->rank; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, "%lld%s", (long long)t->dims[i],
                         t->rank == 1      ? ","
                         : i + 1 < t->rank ? ", "
                                           : "");
    }
    used += snprintf(text + used, sizeof text - (size_t)used, "), }");
    while ((used + 11) % 64) {
        text[used++] = ' ';
    }
    text[used++] = '\n';
    uint8_t head[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)(used & 255), (uint8_t)(used >> 8)};
    cli_sink_write(sink, head, sizeof head);
    cli_sink_write(sink, text, (size_t)used);
}

void cli_npy_put(cli_sink *sink, const cli_tensor *tensor) {
    if (tensor->dtype == CLI_BF16) {
        put_header(sink, tensor, CLI_F32);
        for (size_t i = 0; i < tensor->bytes / 2; i++) {
            float value = (float)cli_get(CLI_BF16, tensor->data, (int64_t)i);
            cli_sink_write(sink, &value, sizeof value);
        }
    } else {
        put_header(sink, tensor, tensor->dtype);
        cli_sink_write(sink, tensor->data, tensor->bytes);
    }
}

bool cli_npy_write(const char *path, const cli_tensor *tensor, cli_error *error) {
    cli_sink *sink = cli_sink_open(path, error);
    if (!sink) {
        return false;
    }
    cli_npy_put(sink, tensor);
    return cli_sink_commit(sink, error);
}
