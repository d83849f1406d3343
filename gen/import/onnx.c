// onnx.c - `einnet import`: the command, its memory and messages, and the order of the steps.
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700

#include "onnx.h"

#include <math.h>
#include <stdarg.h>

// ---- memory: one arena an import ----

struct ox_block {
    ox_block *next;
    size_t used, room;
    // followed by `room` bytes
};

enum { BLOCK_ROOM = 1 << 16, BLOCK_HEAD = (sizeof(ox_block) + 15) & ~15 };

void *ox_alloc(ox *o, size_t size) {
    if (size > SIZE_MAX / 2) {
        cli_out_of_memory();
    }
    size = (size + 15) & ~(size_t)15;
    ox_block *block = o->blocks;
    if (!block || size > block->room - block->used) {
        size_t room = size > BLOCK_ROOM / 4 ? size : BLOCK_ROOM;
        block = cli_alloc(BLOCK_HEAD + room);
        block->room = room;
        if (o->blocks && room == size) {  // a big one: the block in use stays in front
            block->next = o->blocks->next;
            o->blocks->next = block;
        } else {
            block->next = o->blocks;
            o->blocks = block;
        }
    }
    void *memory = (char *)block + BLOCK_HEAD + block->used;
    block->used += size;
    return memory;
}

char *ox_copy(ox *o, const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(ox_alloc(o, size), text, size);
}

char *ox_format(ox *o, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int size = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = ox_alloc(o, (size_t)size + 1);
    va_start(list, format);
    vsnprintf(text, (size_t)size + 1, format, list);
    va_end(list);
    return text;
}

// ---- text ----

void ox_put(char **text, const char *format, ...) {
    char small[256];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(small, sizeof small, format, list);
    va_end(list);
    if (size < (int)sizeof small) {
        memcpy(arraddnptr(*text, size), small, (size_t)size);
        return;
    }
    char *room = arraddnptr(*text, size + 1);
    va_start(list, format);
    vsnprintf(room, (size_t)size + 1, format, list);
    va_end(list);
    arrsetlen(*text, arrlen(*text) - 1);
}

const char *ox_take(ox *o, char **text) {
    arrput(*text, 0);
    const char *copy = ox_copy(o, *text);
    arrfree(*text);
    return copy;
}

void ox_put_float(char **text, double value) {
    char number[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtof(number, NULL) == (float)value) {
            break;
        }
    }
    char *e = strchr(number, 'e');
    if (e) {  // 1e-05 becomes 1e-5
        char *digits = e + 2;
        digits += strspn(digits, "0");
        ox_put(text, "%.*s%s%s", (int)(e + 1 - number), number, e[1] == '-' ? "-" : "", digits);
        return;
    }
    ox_put(text, "%s", number);
}

// ---- messages ----

static void put_prefix(ox *o, char **text, const ox_node *n) {
    char shown[200];
    ox_put(text, "%s: ", cli_escape(shown, sizeof shown, o->path));
    if (n) {
        bool named = n->p->name && *n->p->name;
        const char *name = named ? n->p->name : n->n_out ? n->out_onnx[0] : "";
        ox_put(text, "node %s\"%s\": ", named ? "" : "of output ",
               cli_escape(shown, sizeof shown, name));
    }
}

void ox_die(ox *o, const ox_node *n, const char *format, ...) {
    char text[600];
    char *line = NULL;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    put_prefix(o, &line, n ? n : o->node);
    ox_put(&line, "%s", text);
    cli_fail(&o->error, CLI_BAD_INPUT, "%s", ox_take(o, &line));
    longjmp(o->fail, 1);
}

// A tensor of the graph that a statement made and node `n` reads; NULL when there is none.
static const char *before(const ox_node *n) {
    for (int i = 0; i < n->n_in && !n->scope->parent; i++) {
        const ox_value *v = n->in[i];
        if (v && v->maker && !v->lost) {
            return n->p->input[i];
        }
    }
    return NULL;
}

// Refusals that say the same are counted, so that a model of a thousand unknown nodes has as many
// lines as it has reasons.
static void record(ox *o, const ox_node *n, const char *reason) {
    for (ptrdiff_t i = 0; i < arrlen(o->refusals); i++) {
        if (!strcmp(o->refusals[i].reason, reason)) {
            o->refusals[i].nodes++;
            return;
        }
    }
    if (n && !o->cut) {
        o->cut = before(n);
    }
    char *line = NULL;
    put_prefix(o, &line, n);
    ox_put(&line, "%s", reason);
    ox_refusal r = {ox_copy(o, reason), ox_take(o, &line), 1};
    arrput(o->refusals, r);
}

void ox_lose(ox *o) { longjmp(o->node_fail ? *o->node_fail : o->fail, 1); }

void ox_unsupported(ox *o, const ox_node *n, const char *format, ...) {
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    record(o, n ? n : o->node, text);
    ox_lose(o);
}

void ox_note(ox *o, const char *format, ...) {
    char text[600], shown[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ox_put(&o->notes, "%s: note: %s\n", cli_escape(shown, sizeof shown, o->path), text);
}

// ---- conversion ----

static void check_opset(ox *o) {
    for (size_t i = 0; i < o->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = o->model->opset_import[i];
        const char *domain = set->domain ? set->domain : "";
        if (*domain && strcmp(domain, "ai.onnx")) {
            continue;
        }
        if (set->version < OX_MIN_OPSET) {
            ox_die(o, NULL, "opset %lld is older than %d, the oldest that is read",
                   (long long)set->version, OX_MIN_OPSET);
        }
        if (set->version > OX_MAX_OPSET) {
            ox_note(o, "opset %lld is newer than %d, the newest known", (long long)set->version,
                    OX_MAX_OPSET);
        }
    }
}

static void convert(ox *o) {
    const Onnx__GraphProto *g = o->model->graph;
    if (!g) {
        ox_die(o, NULL, "not an ONNX model: it has no graph");
    }
    if (g->n_sparse_initializer) {
        ox_die(o, NULL, "sparse initializers are not supported");
    }
    check_opset(o);
    o->main = ox_alloc(o, sizeof *o->main);
    o->main->prefix = "";
    o->main->imports = o->model->opset_import;
    o->main->n_imports = o->model->n_opset_import;
    arrput(o->scopes, o->main);
    ox_load_functions(o);
    ox_graph(o, g);
    ox_sweep(o);
}

bool ox_convert(ox *o, const uint8_t *data, size_t size) {
    char shown[200];
    cli_error error = {0, ""};
    cli_escape(shown, sizeof shown, o->path);
    if (!ox_scan(data, size, &onnx__model_proto__descriptor, &error)) {
        return cli_fail(&o->error, error.code, "%s: %s", shown, error.text);
    }
    o->model = onnx__model_proto__unpack(&ox_allocator, size, data);
    if (!o->model) {
        return cli_fail(&o->error, CLI_BAD_INPUT, "%s: not an ONNX model", shown);
    }
    if (setjmp(o->fail)) {
        return false;
    }
    convert(o);
    return arrlen(o->refusals) == 0;
}

static void free_functions(ox *o) {
    for (ptrdiff_t i = 0; i < arrlen(o->functions); i++) {
        for (ptrdiff_t k = 0; k < arrlen(o->functions[i].defaults); k++) {
            onnx__attribute_proto__free_unpacked(o->functions[i].defaults[k], &ox_allocator);
        }
        arrfree(o->functions[i].defaults);
    }
    arrfree(o->functions);
}

void ox_free(ox *o) {
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        arrfree(o->stmts[i]->outs);
        arrfree(o->stmts[i]->args);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->scopes); i++) {
        shfree(o->scopes[i]->values);
        shfree(o->scopes[i]->results);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->maps); i++) {
        cli_file_release(&o->maps[i].bytes);
    }
    for (ptrdiff_t i = 0; i < arrlen(o->givens); i++) {
        cli_tensor_free(&o->givens[i].tensor);
    }
    free_functions(o);
    if (o->model) {
        onnx__model_proto__free_unpacked(o->model, &ox_allocator);
    }
    shfree(o->taken);
    shfree(o->wanted);
    shfree(o->counted);
    arrfree(o->pins);
    arrfree(o->givens);
    arrfree(o->ends);
    arrfree(o->scopes);
    arrfree(o->dims);
    arrfree(o->inputs);
    arrfree(o->outputs);
    arrfree(o->values);
    arrfree(o->stmts);
    arrfree(o->maps);
    arrfree(o->attrs);
    arrfree(o->args);
    arrfree(o->refusals);
    arrfree(o->notes);
    while (o->blocks) {
        ox_block *next = o->blocks->next;
        free(o->blocks);
        o->blocks = next;
    }
    memset(o, 0, sizeof *o);
}
