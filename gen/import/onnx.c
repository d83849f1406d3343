// onnx.c - what every file of the import stands on: its memory, text that grows, and messages, with
// the jumps that leave a node or the import.
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700

#include "onnx.h"

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

void ox_release(ox *o) {
    while (o->blocks) {
        ox_block *next = o->blocks->next;
        free(o->blocks);
        o->blocks = next;
    }
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

const char *ox_or_empty(const char *s) { return s ? s : ""; }

// ---- text ----

void ox_put(char **text, const char *format, ...) {
    char small[256];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(small, sizeof small, format, list);
    va_end(list);
    if (size <= 0) {
        return;  // an empty list has no memory yet
    }
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

// ---- messages ----

const char *ox_title(ox *o, const ox_node *n) {
    char shown[200];
    bool named = n->p->name && *n->p->name;
    const char *name = named ? n->p->name : n->n_out ? n->out_onnx[0] : "";
    return ox_format(o, "node %s\"%s\"", named ? "" : "of output ",
                     cli_escape(shown, sizeof shown, name));
}

static void put_prefix(ox *o, char **text, const ox_node *n) {
    char shown[200];
    ox_put(text, "%s: ", cli_escape(shown, sizeof shown, o->path));
    if (n) {
        ox_put(text, "%s: ", ox_title(o, n));
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

// A tensor of the graph that a statement made and node `n` reads, or by which rows that it reads
// are picked; NULL when there is none.
static const char *before(const ox_node *n) {
    for (int i = 0; i < n->n_in && !n->scope->parent; i++) {
        const ox_value *v = n->in[i];
        if (v && v->picked && v->picked->end) {
            return v->picked->end;
        }
        if (v && v->maker && !v->lost && !v->picked) {
            return n->p->input[i];
        }
    }
    return NULL;
}

// Whether a value is computed from nothing but inputs of integers, of which *first is one; `left`
// values are looked at.
static bool from_integers(const ox_value *v, int *left, const char **first) {
    if (!v || v->known || v->initializer) {
        return true;
    }
    if (v->lost || v->sequence || --*left < 0) {
        return false;
    }
    if (!v->maker) {
        *first = *first ? *first : v->name;
        return v->dtype == CLI_I64 || v->dtype == CLI_I32;
    }
    for (ptrdiff_t i = 0; i < arrlen(v->maker->args); i++) {
        if (!from_integers(v->maker->args[i], left, first)) {
            return false;
        }
    }
    return true;
}

// An input, as a number of frames, that an operand is computed from, of which nothing else is
// asked; NULL when there is none. Sizes and positions stand behind what they are of.
static const char *lacking(const ox_node *n) {
    enum { LOOKED_AT = 100 };
    for (int i = n->n_in - 1; i >= 0; i--) {
        const char *first = NULL;
        int left = LOOKED_AT;
        if (from_integers(n->in[i], &left, &first) && first) {
            return first;
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
    if (n && !o->lacking) {
        o->lacking = lacking(n);
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

// For a note at the end. A node that is visited again and again is named once.
void ox_name_node(ox *o, ox_node *n, ox_named *nodes) {
    enum { NAMED = sizeof nodes->first / sizeof *nodes->first };
    const char *title = ox_title(o, n);
    for (int i = 0; i < nodes->count && i < NAMED; i++) {
        if (!strcmp(nodes->first[i], title)) {
            return;
        }
    }
    if (nodes->count < NAMED) {
        nodes->first[nodes->count] = title;
    }
    nodes->count++;
}

// False when `what` met something unsupported, which ends it by a jump.
bool ox_attempt(ox *o, void (*what)(ox *, void *), void *argument) {
    jmp_buf here;
    jmp_buf *volatile outer = o->node_fail;
    if (setjmp(here)) {
        o->node_fail = outer;
        return false;
    }
    o->node_fail = &here;
    what(o, argument);
    o->node_fail = outer;
    return true;
}
