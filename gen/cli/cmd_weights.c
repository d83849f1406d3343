// cmd_weights.c - values of a model's weights, and `pack`, which writes them as one file:
//
//     0    "EINWGHT1"
//     8    u32 version, 1
//     12   u32 number of tensors
//     16   u64 manifest hash: names, types, shapes and order of the weights (ein_manifest_hash)
//     24   u64 content hash over bytes 256 to the end, see hash_words
//     32   u64 bytes of the file
//     40   zeros to 256
//
// then the tensors in declaration order, dense and row-major, each from a multiple of 256 on, zeros
// in between, the whole file a multiple of 256. Little-endian, which the machine must be too.
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed weights are little-endian, and are written as they lie in memory"
#endif

enum { ALIGN = 256, VERSION = 1 };
static const char magic[8] = {'E', 'I', 'N', 'W', 'G', 'H', 'T', '1'};

const cmd_option cmd_weight_options[] = {
    {"blob", "NAME=FILE...", "take this safetensors file for the model's blob NAME"},
    {"weight", "NAME=FILE.npy...", "take these values for weight NAME"},
    {NULL, NULL, NULL},
};

typedef struct {
    char *name, *path;
    cli_safetensors file;
    bool open;
} blob;

struct cmd_weights {
    const cmd_args *args;
    const ein_ctx *ctx;
    blob *blobs;
    int count;
    cli_bytes packed;  // data is NULL without --weights
    size_t *offset;    // of each weight in `packed`
    void *buffer;      // of the last weight that was not mapped
    size_t room;
    cli_tensor given;
};

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

// One step for each 8-byte little-endian word; `size` is a multiple of 8.
static uint64_t hash_words(uint64_t h, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 0x100000001b3u;
    }
    return h;
}

#define HASH_START 0xcbf29ce484222325u

// ---- blobs ----

static const char *blob_override(const cmd_args *args, const char *name) {
    const char *text;
    int at = 0;
    while ((text = cmd_next(args, "blob", &at))) {
        size_t length = strcspn(text, "=");
        if (strlen(name) == length && !strncmp(name, text, length)) {
            return text + length + 1;
        }
    }
    return NULL;
}

static int open_blob(cmd_weights *w, blob *b, const char *path) {
    cli_error error;
    const char *given = blob_override(w->args, b->name);
    char shown[300];
    b->path = cmd_blob_path(w->args, given, path);
    // Models may come from anywhere.
    if (!given && cli_file_place(w->args->operand[0], b->path) == CLI_OUTSIDE) {
        fprintf(stderr,
                "einnet: blob %s: the file '%s' leads out of the model's directory; use --blob\n",
                b->name, cli_escape(shown, sizeof shown, path));
        return CLI_BAD_INPUT;
    }
    b->open = cli_safetensors_open(b->path, &b->file, &error);
    return b->open ? CLI_OK : cmd_report(&error);
}

// The blob's file, opened when its first tensor is asked for.
static int find_blob(cmd_weights *w, const char *name, const blob **found) {
    for (int i = 0; i < w->count; i++) {
        if (!strcmp(w->blobs[i].name, name)) {
            *found = &w->blobs[i];
            return w->blobs[i].open ? CLI_OK : CLI_BAD_INPUT;
        }
    }
    ein_tensor_info info;
    for (int i = 0; ein_describe(w->ctx, 'b', i, &info); i++) {
        if (!strcmp(info.name, name)) {
            w->blobs = cli_realloc(w->blobs, (size_t)(w->count + 1) * sizeof *w->blobs);
            blob *b = &w->blobs[w->count++];
            memset(b, 0, sizeof *b);
            b->name = cli_alloc(strlen(name) + 1);
            memcpy(b->name, name, strlen(name) + 1);
            *found = b;
            return open_blob(w, b, info.key);
        }
    }
    fprintf(stderr, "einnet: there is no blob %s\n", name);
    return CLI_BAD_INPUT;
}

// ---- a packed file ----

static int bad_packed(const char *path, const char *why) {
    char shown[300];
    fprintf(stderr, "einnet: %s: %s\n", cli_escape(shown, sizeof shown, path), why);
    return CLI_BAD_INPUT;
}

static int count_weights(const ein_ctx *ctx) {
    ein_tensor_info info;
    int count = 0;
    while (ein_describe(ctx, 'w', count, &info)) {
        count++;
    }
    return count;
}

// Where each weight begins. Returns the size of the file.
static size_t lay_out(const ein_ctx *ctx, size_t *offset) {
    ein_tensor_info info;
    size_t at = ALIGN;
    for (int i = 0; ein_describe(ctx, 'w', i, &info); i++) {
        offset[i] = at;
        if (info.bytes > SIZE_MAX / 4 - at) {
            cli_out_of_memory();
        }
        at += round_up(info.bytes);
    }
    return at;
}

static int open_packed(cmd_weights *w, const char *path) {
    cli_error error;
    struct {
        char magic[8];
        uint32_t version, count;
        uint64_t manifest, content, bytes;
    } head;
    if (!cli_file_read(path, SIZE_MAX, &w->packed, &error)) {
        return cmd_report(&error);
    }
    int count = count_weights(w->ctx);
    w->offset = cli_alloc((size_t)count * sizeof *w->offset);
    size_t size = lay_out(w->ctx, w->offset);
    if (w->packed.size < ALIGN) {
        return bad_packed(path, "too short for packed weights");
    }
    memcpy(&head, w->packed.data, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) || head.version != VERSION) {
        return bad_packed(path, "not packed weights of version 1");
    }
    if (head.manifest != ein_manifest_hash(w->ctx) || head.count != (uint32_t)count) {
        return bad_packed(path, "the weights of another model, or of other sizes");
    }
    if (w->packed.size != size || head.bytes != size) {
        return bad_packed(path, "cut off, or too long");
    }
    if (head.content != hash_words(HASH_START, w->packed.data + ALIGN, size - ALIGN)) {
        return bad_packed(path, "damaged: the content's hash does not fit");
    }
    return CLI_OK;
}

// ---- values ----

// Refuses a --blob or --weight that names nothing: a silent slip of the pen would use other values.
static int check_names(const cmd_args *args, const ein_ctx *ctx, const char *option, char kind) {
    const char *text, *earlier;
    int at = 0;
    while ((text = cmd_next(args, option, &at))) {
        size_t length;
        char shown[120], hint[120];
        const char *best = NULL;
        int distance = 3;
        bool found = false;
        ein_tensor_info info;
        if (!cmd_split(args, option, text, &length)) {
            return CLI_USAGE;
        }
        for (int k = 0; (earlier = cmd_next(args, option, &k)) != text;) {
            if (!strncmp(earlier, text, length + 1)) {
                return cmd_usage(args, "--%s names one thing twice", option);
            }
        }
        char *name = cli_alloc(length + 1);
        memcpy(name, text, length);
        for (int i = 0; !found && ein_describe(ctx, kind, i, &info); i++) {
            found = !strcmp(info.name, name);
            cmd_nearest(name, info.name, &best, &distance);
        }
        if (!found) {
            cmd_usage(args, "--%s: the model has no '%s'%s", option,
                      cli_escape(shown, sizeof shown, name), cmd_hint(hint, sizeof hint, best));
        }
        free(name);
        if (!found) {
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

cmd_weights *cmd_weights_open(const cmd_args *args, const ein_ctx *ctx, int *code) {
    const char *packed = cmd_get(args, "weights");
    cmd_weights *w = cli_alloc(sizeof *w);
    w->args = args;
    w->ctx = ctx;
    *code = check_names(args, ctx, "blob", 'b');
    if (!*code) {
        *code = check_names(args, ctx, "weight", 'w');
    }
    if (!*code && packed) {
        *code = open_packed(w, packed);
    }
    if (*code) {
        cmd_weights_close(w);
        return NULL;
    }
    return w;
}

void cmd_weights_close(cmd_weights *w) {
    if (!w) {
        return;
    }
    for (int i = 0; i < w->count; i++) {
        if (w->blobs[i].open) {
            cli_safetensors_close(&w->blobs[i].file);
        }
        free(w->blobs[i].name);
        free(w->blobs[i].path);
    }
    free(w->blobs);
    cli_file_release(&w->packed);
    cli_tensor_free(&w->given);
    free(w->offset);
    free(w->buffer);
    free(w);
}

static void *room_for(cmd_weights *w, size_t bytes) {
    if (bytes > w->room || !w->buffer) {
        free(w->buffer);
        w->buffer = cli_alloc(bytes);
        w->room = bytes;
    }
    return w->buffer;
}

static bool same_shape(const ein_tensor_info *info, cli_dtype dtype, int rank,
                       const int64_t *dims) {
    return dtype == cli_dtype_by_name(info->dtype) && rank == info->rank &&
           (!rank || !memcmp(dims, info->dims, (size_t)rank * sizeof *dims));
}

static const void *get_blob(cmd_weights *w, const ein_tensor_info *info, int *code) {
    const blob *b;
    char file[300], key[300];
    *code = find_blob(w, info->blob, &b);
    if (*code) {
        return NULL;
    }
    const cli_st_tensor *t = cli_safetensors_find(&b->file, info->key);
    if (!t || !same_shape(info, t->dtype, t->rank, t->dims) || t->bytes != info->bytes) {
        fprintf(stderr, "einnet: %s: ", cli_escape(file, sizeof file, b->path));
        fprintf(stderr, t ? "tensor '%s' is " : "no tensor '%s' in it\n",
                cli_escape(key, sizeof key, info->key));
        *code = t ? cmd_wrong_type(info, t->dtype, t->rank, t->dims) : CLI_BAD_INPUT;
        return NULL;
    }
    void *copy = room_for(w, info->bytes);  // the file's alignment is anything
    if (info->bytes) {
        memcpy(copy, t->data, info->bytes);
    }
    return copy;
}

const void *cmd_weights_get(cmd_weights *w, int index, int *code) {
    ein_tensor_info info;
    const char *text;
    char shown[300];
    int at = 0;
    ein_describe(w->ctx, 'w', index, &info);
    while ((text = cmd_next(w->args, "weight", &at))) {
        size_t length = strcspn(text, "=");
        if (strlen(info.name) == length && !strncmp(info.name, text, length)) {
            cli_tensor_free(&w->given);
            *code = cmd_read_values(text + length + 1, &info, &w->given);
            return *code ? NULL : w->given.data ? w->given.data : room_for(w, 0);
        }
    }
    if (w->packed.data) {
        return w->packed.data + w->offset[index];
    }
    if (info.blob) {
        return get_blob(w, &info, code);
    }
    if (!info.seeded) {
        fprintf(stderr, "einnet: weight '%s' has no source; use --weight\n",
                cli_escape(shown, sizeof shown, info.name));
        *code = CLI_BAD_INPUT;
        return NULL;
    }
    void *data = room_for(w, info.bytes);
    if (ein_fill(w->ctx, 'w', index, data)) {
        *code = cmd_failed(w->ctx);
        return NULL;
    }
    return data;
}

// ---- pack ----

// Passes every tensor with its padding to the hash or, where there is one, to the sink.
static int each_tensor(cmd_weights *w, uint64_t *hash, cli_sink *sink) {
    static const unsigned char zeros[ALIGN];
    ein_tensor_info info;
    int code = CLI_OK;
    for (int i = 0; ein_describe(w->ctx, 'w', i, &info); i++) {
        const unsigned char *data = cmd_weights_get(w, i, &code);
        if (!data) {
            return code;
        }
        size_t whole = info.bytes / ALIGN * ALIGN, rest = info.bytes - whole;
        unsigned char last[ALIGN];
        memset(last, 0, sizeof last);
        memcpy(last, rest ? data + whole : zeros, rest);
        size_t last_size = rest ? sizeof last : 0;
        if (!sink) {
            *hash = hash_words(*hash, data, whole);
            *hash = hash_words(*hash, last, last_size);
        } else if (!cli_sink_write(sink, data, whole) || !cli_sink_write(sink, last, last_size)) {
            return CLI_OK;  // commit tells
        }
    }
    return CLI_OK;
}

// Two passes, since the hash stands before the values and the output may be a pipe: no more than
// one tensor is in memory at a time.
static int write_packed(cmd_weights *w, const char *path) {
    int count = count_weights(w->ctx);
    size_t *offset = cli_alloc((size_t)count * sizeof *offset);
    uint64_t hash = HASH_START, manifest = ein_manifest_hash(w->ctx);
    uint64_t bytes = lay_out(w->ctx, offset);
    free(offset);
    int code = each_tensor(w, &hash, NULL);
    if (code) {
        return code;
    }
    unsigned char head[ALIGN] = {0};
    uint32_t version = VERSION, tensors = (uint32_t)count;
    memcpy(head, magic, 8);
    memcpy(head + 8, &version, 4);
    memcpy(head + 12, &tensors, 4);
    memcpy(head + 16, &manifest, 8);
    memcpy(head + 24, &hash, 8);
    memcpy(head + 32, &bytes, 8);
    cli_error error;
    cli_sink *sink = cli_sink_open(path, &error);
    if (!sink) {
        return cmd_report(&error);
    }
    cli_sink_write(sink, head, sizeof head);
    code = each_tensor(w, &hash, sink);
    if (code) {
        cli_sink_abort(sink);
        return code;
    }
    return cli_sink_commit(sink, &error) ? CLI_OK : cmd_report(&error);
}

int cmd_pack(const cmd_args *args) {
    const char *path = cmd_get(args, "output");
    int code = CLI_OK;
    if (!path) {
        return cmd_usage(args, "where to? -o MODEL.weights, or -o - for standard output");
    }
    code = cmd_check_output(args, path, NULL, 0);
    ein_ctx *ctx = code ? NULL : cmd_open(args, &code);
    cmd_weights *weights = ctx ? cmd_weights_open(args, ctx, &code) : NULL;
    if (weights) {
        code = write_packed(weights, path);
    }
    cmd_weights_close(weights);
    ein_close(ctx);
    return code;
}
