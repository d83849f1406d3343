// onnx_block.c - statements that come again and again, as the steps of a recurrence do, as a block
// of the language: written once, with short names, and called.
#include "onnx.h"

enum { WIDTH = 100, INDENT = 4 };  // of a line of the language; inside a block

// Operands in the order in which the statements from `from` on read what they do not make.
static ox_value **outer_values(ox *o, ptrdiff_t from) {
    ox_value **found = NULL;
    for (ptrdiff_t i = from; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        for (ptrdiff_t k = 0; k < arrlen(s->args); k++) {
            bool known = !s->args[k];
            for (ptrdiff_t j = from; !known && j < i; j++) {
                known = s->args[k]->maker == o->stmts[j];
            }
            for (ptrdiff_t j = 0; !known && j < arrlen(found); j++) {
                known = s->args[k] == found[j];
            }
            if (!known) {
                arrput(found, s->args[k]);
            }
        }
    }
    return found;
}

// The last part of a name that is no number, and a number where `used` has it.
static const char *short_name(ox *o, ox_index **used, const char *name) {
    const char *end = name + strlen(name), *last = name;
    for (const char *at = end; at > name; at--) {
        if (at[-1] == '.' && at[strspn(at, "0123456789")]) {
            last = at;
            break;
        }
    }
    const char *dot = strchr(last, '.');
    const char *base = ox_format(o, "%.*s", (int)((dot ? dot : end) - last), last), *made = base;
    for (int i = 2; shgeti(*used, made) >= 0; i++) {
        made = ox_format(o, "%s%d", base, i);
    }
    shput(*used, (char *)(uintptr_t)made, 1);
    return made;
}

// What values are called inside the block, and back again.
typedef struct {
    ox_value *value;
    const char *name;
} renamed;

static void exchange_names(renamed *list) {
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const char *name = list[i].value->name;
        list[i].value->name = list[i].name;
        list[i].name = name;
    }
}

static void give_name(ox *o, renamed **list, ox_index **used, ox_value *v, const char *like) {
    renamed one = {v, short_name(o, used, like)};
    arrput(*list, one);
}

// Names in the block: of operands what they are to it, of values that it makes their own last part.
static renamed *short_names(ox *o, ptrdiff_t from, ox_value **operands, const ox_role *roles,
                            int n_roles) {
    renamed *list = NULL;
    ox_index *used = NULL;
    for (ptrdiff_t i = 0; i < arrlen(operands); i++) {
        const char *role = operands[i]->known ? operands[i]->name : "k";
        for (int r = 0; r < n_roles; r++) {
            role = roles[r].value == operands[i] ? roles[r].name : role;
        }
        give_name(o, &list, &used, operands[i], role);
    }
    for (ptrdiff_t i = from; i < arrlen(o->stmts); i++) {
        for (ptrdiff_t k = 0; k < arrlen(o->stmts[i]->outs); k++) {
            ox_value *v = o->stmts[i]->outs[k];
            give_name(o, &list, &used, v, v->name);
        }
    }
    shfree(used);
    return list;
}

static void put_names(char **text, ox_value *const *values, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        ox_put_name(text, values[i]->name);
    }
}

// The block behind its name; NULL where a line of it is too long.
static const char *block_text(ox *o, ptrdiff_t from, ox_value **operands, ox_value **results,
                              int n) {
    char *text = NULL;
    bool fits = true;
    ox_put(&text, "(");
    put_names(&text, operands, arrlen(operands));
    ox_put(&text, ") -> ");
    put_names(&text, results, n);
    ox_put(&text, " {\n");
    for (ptrdiff_t i = from; i < arrlen(o->stmts); i++) {
        ptrdiff_t begin = arrlen(text);
        ox_put(&text, "%*s", INDENT, "");
        ox_put_statement(&text, o->stmts[i]);
        fits = fits && arrlen(text) - begin <= WIDTH;
        for (ptrdiff_t k = begin; k < arrlen(text); k++) {
            text[k] = text[k] == *OX_BREAK || text[k] == *OX_BREAK_FIRST ? ' ' : text[k];
        }
    }
    ox_put(&text, "}\n");
    const char *made = ox_take(o, &text);
    return fits ? made : NULL;
}

// A block of this text; one that is there already has the same for its name.
static const char *block_named(ox *o, const char *name, const char *text) {
    const char *own = name;
    for (ptrdiff_t i = 0, like = 1; i < arrlen(o->routines); i++) {
        if (!strcmp(o->routines[i].text, text)) {
            return o->routines[i].name;
        }
        if (!strcmp(o->routines[i].kind, name)) {
            own = ox_format(o, "%s.%d", name, (int)++like);
        }
    }
    ox_routine made = {name, own, text};
    arrput(o->routines, made);
    return own;
}

// The statements are gone: a call makes the results.
static void drop_statements(ox *o, ptrdiff_t from) {
    for (ptrdiff_t i = from; i < arrlen(o->stmts); i++) {
        for (ptrdiff_t k = 0; k < arrlen(o->stmts[i]->outs); k++) {
            o->stmts[i]->outs[k]->maker = NULL;
        }
        arrfree(o->stmts[i]->outs);
        arrfree(o->stmts[i]->args);
    }
    arrsetlen(o->stmts, from);
}

bool ox_make_block(ox *o, ox_call *c, const char *name, ptrdiff_t from, const ox_role *roles,
                   int n_roles, ox_value **results, int n) {
    bool plain = arrlen(o->stmts) > from;
    for (ptrdiff_t i = from; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        plain = plain && s->op;
        for (ptrdiff_t k = 0; k < arrlen(s->args); k++) {
            plain = plain && s->args[k];
        }
    }
    ox_value **operands = plain ? outer_values(o, from) : NULL;
    if (!plain || arrlen(operands) > OX_MAX_ARGS) {
        arrfree(operands);
        return false;
    }
    renamed *names = short_names(o, from, operands, roles, n_roles);
    exchange_names(names);
    const char *text = block_text(o, from, operands, results, n);
    exchange_names(names);
    arrfree(names);
    if (text) {
        c->name = block_named(o, name, text);
        c->count = (int)arrlen(operands);
        c->operands = ox_alloc(o, (size_t)c->count * sizeof *c->operands);
        memcpy(c->operands, operands, (size_t)c->count * sizeof *c->operands);
        drop_statements(o, from);
        ox_call_block(o, c, NULL, NULL, 0, results, n);
    }
    arrfree(operands);
    return text != NULL;
}

void ox_call_block(ox *o, const ox_call *c, const ox_role *roles, ox_value *const *instead,
                   int n_roles, ox_value **results, int n) {
    ox_begin(o);
    for (int i = 0; i < c->count; i++) {
        ox_value *v = c->operands[i];
        for (int r = 0; r < n_roles; r++) {
            v = roles[r].value == c->operands[i] ? instead[r] : v;
        }
        ox_arg(o, v);
    }
    ox_finish(o, c->name, results, n);
}
