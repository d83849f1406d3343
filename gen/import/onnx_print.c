// onnx_print.c - the model as text: dims, weights, inputs, outputs and statements.
#include "onnx.h"

static void put_dims(ox *o, char **text, int probed, int64_t value) {
    bool any = false;
    for (ptrdiff_t i = 0; i < arrlen(o->dims); i++) {
        long long shown = (long long)(i == probed ? value : o->dims[i].value);
        if (!o->dims[i].fixed) {
            ox_put(text, "%s%s = %lld", any ? OX_COMMA : "dim ", o->dims[i].name, shown);
            any = true;
        }
    }
    if (any) {
        ox_put(text, "\n");
    }
}

// Whether a value's shape is known for every size that is asked about: then it stands for what
// computes it.
static bool is_settled(const ox_value *v, int probed) {
    return v->maker && v->rank >= 0 && v->dtype != CLI_NONE &&
           (probed < 0 || (v->has_sym && !v->bent));
}

// What the shape of `want` is to be told from: without it, every question would be about the whole
// model so far.
static void mark_needed(ox *o, ox_value *want, int probed) {
    for (ptrdiff_t i = 0; i < arrlen(o->values); i++) {
        o->values[i]->needed = false;
    }
    want->needed = true;
    for (ptrdiff_t i = arrlen(o->stmts) - 1; i >= 0; i--) {
        ox_stmt *s = o->stmts[i];
        s->needed = false;
        for (ptrdiff_t k = 0; k < arrlen(s->outs); k++) {
            const ox_value *v = s->outs[k];
            s->needed |= v->needed && (v == want || !is_settled(v, probed));
        }
        for (ptrdiff_t k = 0; s->needed && k < arrlen(s->args); k++) {
            if (s->args[k]) {
                s->args[k]->needed = true;
            }
        }
    }
}

// Weights in the order of first use. True when one of them is in the weights file.
static bool put_weights(ox *o, char **text, bool all) {
    bool in_file = false;
    for (ptrdiff_t i = 0; i < arrlen(o->values); i++) {
        o->values[i]->declared = false;
    }
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        for (ptrdiff_t k = 0; (all ? s->live : s->needed) && k < arrlen(s->args); k++) {
            ox_value *v = s->args[k];
            if (v && v->known && !v->declared) {
                v->declared = true;
                in_file |= ox_put_constant(o, text, v);
            }
        }
    }
    return in_file;
}

void ox_put_statement(char **text, const ox_stmt *s) {
    for (ptrdiff_t i = 0; i < arrlen(s->outs); i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        ox_put_name(text, s->outs[i]->name);
    }
    if (!s->op) {
        ox_put(text, "%s\n", s->attrs);
        return;
    }
    ox_put(text, " = %s(", s->op);
    for (ptrdiff_t i = 0; i < arrlen(s->args); i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        if (s->args[i]) {
            ox_put_name(text, s->args[i]->name);
        } else {
            ox_put(text, "_");
        }
    }
    ox_put(text, "%s%s)\n", *s->attrs ? ";" OX_BREAK : "", s->attrs);
}

// Blocks that statements call.
static void put_routines(ox *o, char **text, bool all) {
    for (ptrdiff_t r = 0; r < arrlen(o->routines); r++) {
        bool called = false;
        for (ptrdiff_t i = 0; !called && i < arrlen(o->stmts); i++) {
            const ox_stmt *s = o->stmts[i];
            called = s->op == o->routines[r].name && (all ? s->live : s->needed);
        }
        if (called) {
            ox_put(text, "block %s%s", o->routines[r].name, o->routines[r].text);
        }
    }
}

static void put_outputs(ox *o, char **text, ox_value *want) {
    ox_put(text, "output ");
    for (ptrdiff_t i = 0; !want && i < arrlen(o->outputs); i++) {
        ox_put(text, "%s", i ? OX_COMMA : "");
        ox_put_name(text, o->outputs[i]->name);
    }
    if (want) {
        ox_put_name(text, want->name);
    }
    ox_put(text, "\n\n");
}

static void put_input(char **text, const ox_value *v) {
    ox_put(text, "input ");
    ox_put_name(text, v->name);
    ox_put_type(text, v->dtype, v->rank, v->dims, v->sym);
    ox_put(text, "\n");
}

// With `want` what that value, the output, is computed from, with dim number `probed` at `value`;
// without it the finished model.
char *ox_text(ox *o, ox_value *want, int probed, int64_t value) {
    char *text = NULL;
    ox_put(&text, "ein 1\nmodel %s\n", o->model_name);
    put_dims(o, &text, probed, value);
    char *weights = NULL;
    if (want) {
        mark_needed(o, want, probed);
    }
    if (put_weights(o, &weights, !want)) {
        ox_put(&text, "blob W = ");
        ox_put_quoted(&text, o->blob);
        ox_put(&text, "\n");
    }
    ox_put(&text, "\n");
    for (ptrdiff_t i = 0; i < arrlen(o->inputs); i++) {
        put_input(&text, o->inputs[i]);
    }
    for (ptrdiff_t i = 0; want && i < arrlen(o->values); i++) {
        const ox_value *v = o->values[i];
        if (v->needed && v->maker && !v->maker->needed) {
            put_input(&text, v);
        }
    }
    ox_put(&text, "%.*s", (int)arrlen(weights), arrlen(weights) ? weights : "");
    arrfree(weights);
    put_outputs(o, &text, want);
    put_routines(o, &text, !want);
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        if (want ? o->stmts[i]->needed : o->stmts[i]->live) {
            ox_put_statement(&text, o->stmts[i]);
        }
    }
    return ox_lay_out(text);
}
