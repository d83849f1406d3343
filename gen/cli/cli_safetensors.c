// cli_safetensors.c - safetensors files: the length of a JSON header (u64), the header, the data.
// The header maps each name to {"dtype", "shape", "data_offsets": [begin, end]}; the ranges must
// cover the data without holes or overlaps, so nothing can hide in a file.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#include <jsmn.h>

enum { MAX_HEADER = 1 << 23 };

static const struct {
    const char *name;
    cli_dtype dtype;
} codes[] = {
    {"F32", CLI_F32}, {"F16", CLI_F16}, {"BF16", CLI_BF16}, {"F64", CLI_F64}, {"I8", CLI_I8},
    {"U8", CLI_U8},   {"I16", CLI_I16}, {"U16", CLI_U16},   {"I32", CLI_I32}, {"U32", CLI_U32},
    {"I64", CLI_I64}, {"U64", CLI_U64}, {"BOOL", CLI_BOOL},
};

typedef struct {
    const char *path;  // escaped
    const char *json;
    const jsmntok_t *tokens;
    int count;      // of tokens
    uint64_t room;  // bytes of data
    uint64_t (*ranges)[2];
    char *name_end;
    cli_error *error;
} reader;

static bool bad(const reader *r, const char *what, const char *name) {
    char text[200];
    return cli_fail(r->error, CLI_BAD_INPUT, "%s: tensor \"%s\": %s", r->path,
                    cli_escape(text, sizeof text, name), what);
}

static int hex4(const char *s) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        char c = (char)(s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i]);
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit) {
            return -1;
        }
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

static char *put_utf8(char *to, unsigned code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

// A \u escape, with its second half where it is a surrogate. Returns the characters read after the
// backslash, 0 for a bad one.
static int take_unicode(const char *s, const char *end, unsigned *code) {
    int high = end - s >= 5 ? hex4(s + 1) : -1;
    if (high <= 0 || (high >= 0xdc00 && high < 0xe000)) {
        return 0;
    }
    *code = (unsigned)high;
    if (high < 0xd800 || high >= 0xe000) {
        return 5;
    }
    int low = end - s >= 11 && s[5] == '\\' && s[6] == 'u' ? hex4(s + 7) : -1;
    if (low < 0xdc00 || low >= 0xe000) {
        return 0;
    }
    *code = 0x10000 + (((unsigned)high - 0xd800) << 10) + ((unsigned)low - 0xdc00);
    return 11;
}

// The text of a string token without its escapes. It is never longer than the token.
static bool unescape(const reader *r, const jsmntok_t *token, char *to, char **end) {
    static const char plain[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *s = r->json + token->start;
    const char *stop = r->json + token->end;
    while (s < stop) {
        if (!*s) {
            return false;
        }
        if (*s != '\\') {
            *to++ = *s++;
            continue;
        }
        s++;
        unsigned code = 0;
        const char *found = s < stop && *s ? strchr(plain, *s) : NULL;
        int used = s < stop && *s == 'u' ? take_unicode(s, stop, &code) : 0;
        if (found) {
            *to++ = meant[found - plain];
            s++;
        } else if (used) {
            to = put_utf8(to, code);
            s += used;
        } else {
            return false;
        }
    }
    *to++ = 0;
    *end = to;
    return true;
}

static bool token_is(const reader *r, int i, const char *text) {
    const jsmntok_t *t = &r->tokens[i];
    size_t size = (size_t)(t->end - t->start);
    return t->type == JSMN_STRING && size == strlen(text) &&
           !memcmp(r->json + t->start, text, size);
}

static bool take_number(const reader *r, int i, uint64_t *value) {
    const jsmntok_t *t = &r->tokens[i];
    *value = 0;
    if (t->type != JSMN_PRIMITIVE || t->end - t->start > 18 || t->end == t->start) {
        return false;
    }
    for (int k = t->start; k < t->end; k++) {
        if (r->json[k] < '0' || r->json[k] > '9') {
            return false;
        }
        *value = *value * 10 + (uint64_t)(r->json[k] - '0');
    }
    return true;
}

// Numbers of an array token; -1 when it is not one or holds more than `room`.
static int take_array(const reader *r, int i, uint64_t *values, int room) {
    const jsmntok_t *t = &r->tokens[i];
    if (t->type != JSMN_ARRAY || t->size > room || i + t->size >= r->count) {
        return -1;
    }
    for (int k = 0; k < t->size; k++) {
        if (!take_number(r, i + 1 + k, &values[k])) {
            return -1;
        }
    }
    return t->size;
}

static int skip_value(const reader *r, int i) {
    int end = r->tokens[i].end;
    for (i++; i < r->count && r->tokens[i].start < end; i++) {
    }
    return i;
}

static cli_dtype type_of(const reader *r, int i) {
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
        if (token_is(r, i, codes[k].name)) {
            return codes[k].dtype;
        }
    }
    return CLI_NONE;
}

static bool check_tensor(const reader *r, cli_st_tensor *t, const uint64_t range[2]) {
    int64_t count = 0;
    if (!cli_count(t->rank, t->dims, &count)) {
        return bad(r, "shape is too big", t->name);
    }
    if (range[0] > range[1] || range[1] > r->room) {
        return bad(r, "data_offsets lie outside the file", t->name);
    }
    t->bytes = (size_t)(range[1] - range[0]);
    size_t size = cli_dtype_size(t->dtype);
    if (size && (t->bytes % size || t->bytes / size != (uint64_t)count)) {
        return bad(r, "shape and data_offsets disagree", t->name);
    }
    return true;
}

// One entry of the header: `i` is the token of its value, which must hold the three keys once each.
static bool take_tensor(reader *r, int i, cli_st_tensor *t, uint64_t range[2]) {
    int seen = 0;
    if (r->tokens[i].type != JSMN_OBJECT || r->tokens[i].size != 3) {
        return bad(r, "is not described by dtype, shape and data_offsets", t->name);
    }
    int end = skip_value(r, i);
    for (int k = i + 1; k + 1 < end; k = skip_value(r, k + 1)) {
        uint64_t dims[CLI_MAX_RANK];
        if (r->tokens[k].size != 1) {
            return bad(r, "has a key without a value", t->name);
        }
        if (token_is(r, k, "dtype") && r->tokens[k + 1].type == JSMN_STRING) {
            t->dtype = type_of(r, k + 1);
            seen |= 1;
        } else if (token_is(r, k, "shape")) {
            t->rank = take_array(r, k + 1, dims, CLI_MAX_RANK);
            for (int a = 0; a < t->rank; a++) {
                t->dims[a] = (int64_t)dims[a];
            }
            seen |= t->rank >= 0 ? 2 : 0;
        } else if (token_is(r, k, "data_offsets")) {
            seen |= take_array(r, k + 1, range, 2) == 2 ? 4 : 0;
        }
    }
    return seen == 7 ? check_tensor(r, t, range)
                     : bad(r, "has a wrong dtype, shape or data_offsets", t->name);
}

static bool take_header(reader *r, cli_safetensors *file, const uint8_t *data) {
    int used = 0;
    if (r->count < 1 || r->tokens[0].type != JSMN_OBJECT || skip_value(r, 0) != r->count) {
        return cli_fail(r->error, CLI_BAD_INPUT, "%s: header is not a JSON object", r->path);
    }
    for (int i = 1; i < r->count; i = skip_value(r, i + 1)) {
        cli_st_tensor *t = &file->items[used];
        t->name = r->name_end;
        if (r->tokens[i].type != JSMN_STRING || r->tokens[i].size != 1 || i + 1 == r->count ||
            !unescape(r, &r->tokens[i], r->name_end, &r->name_end)) {
            return cli_fail(r->error, CLI_BAD_INPUT, "%s: header has a bad name", r->path);
        }
        if (!strcmp(t->name, "__metadata__")) {
            continue;
        }
        if (!take_tensor(r, i + 1, t, r->ranges[used])) {
            return false;
        }
        t->data = data + r->ranges[used][0];
        used++;
    }
    file->count = (size_t)used;
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const cli_st_tensor *)a)->name, ((const cli_st_tensor *)b)->name);
}

static int by_range(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : x[1] != y[1] ? (x[1] < y[1] ? -1 : 1) : 0;
}

// Duplicate names, overlaps and holes: all show between neighbours once sorted.
static bool check_all(const reader *r, cli_safetensors *file) {
    uint64_t at = 0;
    qsort(r->ranges, file->count, sizeof *r->ranges, by_range);
    for (size_t i = 0; i < file->count; i++) {
        if (r->ranges[i][0] != at) {
            return cli_fail(r->error, CLI_BAD_INPUT, "%s: tensors overlap or leave a hole at %llu",
                            r->path, (unsigned long long)at);
        }
        at = r->ranges[i][1];
    }
    if (at != r->room) {
        return cli_fail(r->error, CLI_BAD_INPUT, "%s: %llu bytes of data, %llu described", r->path,
                        (unsigned long long)r->room, (unsigned long long)at);
    }
    qsort(file->items, file->count, sizeof *file->items, by_name);
    for (size_t i = 1; i < file->count; i++) {
        if (!by_name(&file->items[i - 1], &file->items[i])) {
            return bad(r, "is there twice", file->items[i].name);
        }
    }
    return true;
}

// Whether brackets nest as deep as a header's, and not much more: jsmn closes one in as many steps
// as there were open.
static bool is_shallow(const char *json, size_t length) {
    enum { DEPTH = 8 };
    int depth = 0;
    bool text = false;
    for (size_t i = 0; i < length && depth <= DEPTH; i++) {
        char c = json[i];
        if (text && c == '\\') {
            i++;
        } else if (c == '"') {
            text = !text;
        } else if (!text) {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        }
    }
    return depth <= DEPTH;
}

static bool parse_file(cli_safetensors *file, reader *r) {
    uint64_t length = 0;
    const uint8_t *bytes = file->file.data;
    if (file->file.size >= 8) {
        memcpy(&length, bytes, 8);
    }
    if (file->file.size < 8 || length > file->file.size - 8 || length > MAX_HEADER || length < 2) {
        return cli_fail(r->error, CLI_BAD_INPUT,
                        "%s: not a safetensors file (header of %llu bytes)", r->path,
                        (unsigned long long)length);
    }
    r->json = (const char *)bytes + 8;
    r->room = file->file.size - 8 - length;
    if (!is_shallow(r->json, (size_t)length)) {
        return cli_fail(r->error, CLI_BAD_INPUT, "%s: header is nested too deep", r->path);
    }
    jsmn_parser parser;
    jsmn_init(&parser);
    int count = jsmn_parse(&parser, r->json, (size_t)length, NULL, 0);
    if (count < 1) {
        return cli_fail(r->error, CLI_BAD_INPUT, "%s: header is not JSON", r->path);
    }
    jsmntok_t *tokens = cli_alloc((size_t)count * sizeof *tokens);
    size_t most = (size_t)count / 10 + 1;  // tokens of one whole entry; a bad entry is the last
    file->items = cli_alloc(most * sizeof *file->items);
    file->names = r->name_end = cli_alloc((size_t)length);
    r->ranges = cli_alloc(most * sizeof *r->ranges);
    r->tokens = tokens;
    jsmn_init(&parser);
    r->count = jsmn_parse(&parser, r->json, (size_t)length, tokens, (unsigned)count);
    bool good = r->count == count;
    if (!good) {
        cli_fail(r->error, CLI_BAD_INPUT, "%s: header is not JSON", r->path);
    }
    good = good && take_header(r, file, bytes + 8 + length) && check_all(r, file);
    free(tokens);
    free(r->ranges);
    return good;
}

bool cli_safetensors_open(const char *path, cli_safetensors *file, cli_error *error) {
    char name[400];
    memset(file, 0, sizeof *file);
    if (!cli_file_read(path, (size_t)1 << 40, &file->file, error)) {
        return false;
    }
    reader r = {.path = cli_escape(name, sizeof name, path), .error = error};
    if (!parse_file(file, &r)) {
        cli_safetensors_close(file);
        return false;
    }
    return true;
}

const cli_st_tensor *cli_safetensors_find(const cli_safetensors *file, const char *name) {
    cli_st_tensor key = {.name = name};
    return file->count ? bsearch(&key, file->items, file->count, sizeof key, by_name) : NULL;
}

void cli_safetensors_close(cli_safetensors *file) {
    free(file->items);
    free(file->names);
    cli_file_release(&file->file);
    memset(file, 0, sizeof *file);
}

// ---- writing ----

typedef struct {
    char *data;
    size_t size, room;
} text;

static void put(text *t, const char *s, size_t size) {
    if (t->size + size > t->room) {
        t->room = (t->size + size) * 2;
        t->data = cli_realloc(t->data, t->room);
    }
    memcpy(t->data + t->size, s, size);
    t->size += size;
}

static void put_number(text *t, uint64_t value) {
    char number[24];
    put(t, number, (size_t)snprintf(number, sizeof number, "%llu", (unsigned long long)value));
}

static void put_name(text *t, const char *name) {
    put(t, "\"", 1);
    for (const char *s = name; *s; s++) {
        unsigned char c = (unsigned char)*s;
        char escape[8];
        if (c == '"' || c == '\\') {
            put(t, "\\", 1);
            put(t, s, 1);
        } else if (c < 0x20 || c == 0x7f) {
            put(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c));
        } else {
            put(t, s, 1);
        }
    }
    put(t, "\"", 1);
}

static void put_entry(text *t, const cli_st_tensor *item, uint64_t offset) {
    const char *code = "F32";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].dtype == item->dtype) {
            code = codes[i].name;
        }
    }
    put_name(t, item->name);
    put(t, ":{\"dtype\":\"", 11);
    put(t, code, strlen(code));
    put(t, "\",\"shape\":[", 11);
    for (int a = 0; a < item->rank; a++) {
        put(t, ",", a ? 1 : 0);
        put_number(t, (uint64_t)item->dims[a]);
    }
    put(t, "],\"data_offsets\":[", 18);
    put_number(t, offset);
    put(t, ",", 1);
    put_number(t, offset + item->bytes);
    put(t, "]}", 2);
}

void cli_safetensors_put(cli_sink *sink, const cli_st_tensor *items, size_t count) {
    text t = {0};
    uint64_t offset = 0;
    put(&t, "{", 1);
    for (size_t i = 0; i < count; i++) {
        put(&t, ",", i ? 1 : 0);
        put_entry(&t, &items[i], offset);
        offset += items[i].bytes;
    }
    put(&t, "}", 1);
    while (t.size % 8) {
        put(&t, " ", 1);
    }
    uint64_t length = t.size;
    cli_sink_write(sink, &length, sizeof length);
    cli_sink_write(sink, t.data, t.size);
    free(t.data);
    for (size_t i = 0; i < count; i++) {
        cli_sink_write(sink, items[i].data, items[i].bytes);
    }
}

bool cli_safetensors_write(const char *path, const cli_st_tensor *items, size_t count,
                           cli_error *error) {
    cli_sink *sink = cli_sink_open(path, error);
    if (!sink) {
        return false;
    }
    cli_safetensors_put(sink, items, count);
    return cli_sink_commit(sink, error);
}
