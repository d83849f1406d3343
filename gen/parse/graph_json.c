// The flat graph as JSON for other tools. Schema, version 1:
//
//   einnet_graph 1, model, hash (16 hex digits of the canonical form)
//   dims     [{name, value, small}]
//   inputs   [{name, dtype, shape, source?}]
//   outputs  [{name, tensor, dtype, shape}]    name: as published, tensor: the one behind it
//   weights  [{name, dtype, shape, source}]    source: {kind: none|zeros|ones},
//            {kind: randn, seed, std}, {kind: uniform, seed, lo, hi}, {kind: blob, file, key}
//   nodes    in an order where operands come first; line: in the model's text
//            {line, op, inputs: [name or null], outputs: [{name, dtype, shape}], attributes}
//            {line, equation, inputs, outputs, ranges: [{index, lo, hi}], pads: {tensor: value}}
//
// Names are full names, in an equation's text too; its ranges list the result's indices, then those
// of reductions as they stand in the text. Infinite numbers are the strings "inf" and "-inf".

// ASCII: everything else is escaped, above U+FFFF as a surrogate pair.
EIN__FN void ein__json_string(ein__buf *b, const char *s) {
    const char *end = s + strlen(s);
    ein__put(b, "\"");
    while (s < end) {
        uint32_t code = '?';
        int n = ein__utf8(s, end, &code);
        s += n ? n : 1;
        if (code == '"' || code == '\\') ein__putf(b, "\\%c", (int)code);
        else if (code >= 32 && code < 127) ein__putf(b, "%c", (int)code);
        else if (code < 0x10000) ein__putf(b, "\\u%04x", (unsigned)code);
        else
            ein__putf(b, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                      (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
    }
    ein__put(b, "\"");
}

static void ein__json_key(ein__buf *b, const char *key, const char *value) {
    ein__putf(b, ", \"%s\": ", key);
    ein__json_string(b, value);
}

static void ein__json_real(ein__buf *b, double v) {
    if (isinf(v)) ein__put(b, v < 0 ? "\"-inf\"" : "\"inf\"");
    else ein__put_real(b, v);
}

static void ein__json_type(ein__buf *b, const ein__tensor *t) {
    ein__putf(b, ", \"dtype\": \"%s\", \"shape\": [", ein__dtype_name(t->dtype));
    for (int i = 0; i < t->shape.rank; i++)
        ein__putf(b, "%s%lld", i ? ", " : "", (long long)t->shape.d[i]);
    ein__put(b, "]");
}

static void ein__json_value(ein__buf *b, const ein__ast *a) {
    if (a->kind == EIN__A_NUM && a->integral) {
        ein__putf(b, "%lld", (long long)a->inum);
    } else if (a->kind == EIN__A_NUM) {
        ein__json_real(b, a->num);
    } else if (a->kind == EIN__A_LIST) {
        ein__put(b, "[");
        for (int i = 0; i < a->nkid; i++) {
            if (i) ein__put(b, ", ");
            ein__json_value(b, a->kid[i]);
        }
        ein__put(b, "]");
    } else {
        ein__json_string(b, a->name);
    }
}

static void ein__json_source(ein_ctx *ctx, ein__buf *b, const ein__tensor *t) {
    // ORDER ein__source_kind
    static const char *const kind[] = {"none", "blob", "zeros", "ones", "randn", "uniform"};
    ein__putf(b, ", \"source\": {\"kind\": \"%s\"", kind[t->source]);
    if (t->source == EIN__S_BLOB) {
        for (ptrdiff_t i = 0; i < arrlen(ctx->graph.blob); i++)
            if (ctx->graph.blob[i].name == t->blob)
                ein__json_key(b, "file", ctx->graph.blob[i].path);
        ein__json_key(b, "key", t->key);
    }
    bool randn = t->source == EIN__S_RANDN;
    if (randn || t->source == EIN__S_UNIFORM) {
        ein__putf(b, ", \"seed\": %lld, \"%s\": ", (long long)t->seed, randn ? "std" : "lo");
        ein__put_real(b, t->a);
    }
    if (t->source == EIN__S_UNIFORM) {
        ein__put(b, ", \"hi\": ");
        ein__put_real(b, t->b);
    }
    ein__put(b, "}");
}

// Begins entry `i` of a list that stands one entry a line.
static void ein__json_entry(ein__buf *b, ptrdiff_t i) { ein__put(b, i ? ",\n    " : "\n    "); }

static void ein__json_open(ein__buf *b, const char *key) { ein__putf(b, ",\n  \"%s\": [", key); }

static void ein__json_close(ein__buf *b, ptrdiff_t n) { ein__put(b, n ? "\n  ]" : "]"); }

static void ein__json_tensors(ein_ctx *ctx, ein__buf *b, const char *key, const int *list) {
    ein__json_open(b, key);
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__tensor *t = &ctx->graph.tensor[list[i]];
        ein__json_entry(b, i);
        ein__put(b, "{\"name\": ");
        ein__json_string(b, t->name);
        ein__json_type(b, t);
        if (t->kind == EIN__T_WEIGHT || t->source != EIN__S_NONE) ein__json_source(ctx, b, t);
        ein__put(b, "}");
    }
    ein__json_close(b, arrlen(list));
}

// ------------------------------------------------------------------------------------- nodes

typedef struct ein__json_names {
    const ein_ctx *ctx;
    const ein__node *node;
} ein__json_names;

// The full name of what an equation calls `name`.
static const char *ein__json_rename(void *user, const char *name) {
    const ein__json_names *n = user;
    for (int i = 0; i < n->node->nin; i++)
        if (!strcmp(n->node->in_name[i], name)) return n->ctx->graph.tensor[n->node->in[i]].name;
    return name;
}

static void ein__json_ranges(ein_ctx *ctx, ein__buf *b, const ein__node *node) {
    ein__ranges ranges = {0};
    ein__operand *operand = ein__node_operands(ctx, node);
    ein__put(b, ", \"ranges\": [");
    if (ein__resolve(ctx, node->eq, operand, NULL, &ranges)) {
        for (int i = 0; i < (int)arrlen(ranges.bound); i++) {
            const ein__bound *r = &ranges.bound[i];
            ein__putf(b, "%s{\"index\": \"%s\", \"lo\": %lld, \"hi\": %lld}", i ? ", " : "",
                      r->name, (long long)r->lo, (long long)r->hi);
        }
    }
    ein__put(b, "]");
    arrfree(ranges.bound);
    arrfree(operand);
}

// The node's equation under full names of tensors, each padded once however many names it is read
// by.
static ein__equation ein__json_own(ein_ctx *ctx, const ein__node *node) {
    ein__json_names names = {ctx, node};
    ein__equation eq = *node->eq;
    eq.result = ctx->graph.tensor[node->out[0]].name;
    eq.pad = EIN__NEW(&ctx->arena, ein__padval, eq.npad + 1);
    eq.npad = 0;
    for (int i = 0; i < node->eq->npad; i++) {
        const char *tensor = ein__json_rename(&names, node->eq->pad[i].tensor);
        bool again = false;
        for (int k = 0; k < i; k++)
            again = again || ein__json_rename(&names, node->eq->pad[k].tensor) == tensor;
        if (!again) eq.pad[eq.npad++] = node->eq->pad[i];
    }
    return eq;
}

static void ein__json_equation(ein_ctx *ctx, ein__buf *b, const ein__node *node,
                               const ein__equation *eq) {
    ein__json_names names = {ctx, node};
    ein__buf text = {0};
    ein__formatter p = {.out = &text, .rename = ein__json_rename, .user = &names};
    ein__put_equation(&p, eq, NULL);
    ein__json_string(b, text.s);
    ein__buf_free(&text);
}

static void ein__json_attributes(ein__buf *b, const ein__node *node) {
    ein__put(b, ", \"attributes\": {");
    for (int i = 0; i < node->nattr; i++) {
        if (i) ein__put(b, ", ");
        ein__json_string(b, node->attr[i].name);
        ein__put(b, ": ");
        ein__json_value(b, node->attr[i].value);
    }
    ein__put(b, "}");
}

static void ein__json_pads(ein_ctx *ctx, ein__buf *b, const ein__node *node,
                           const ein__equation *eq) {
    ein__json_names names = {ctx, node};
    ein__put(b, ", \"pads\": {");
    for (int i = 0; i < eq->npad; i++) {
        if (i) ein__put(b, ", ");
        ein__json_string(b, ein__json_rename(&names, eq->pad[i].tensor));
        ein__put(b, ": ");
        ein__json_real(b, eq->pad[i].value);
    }
    ein__put(b, "}");
}

static void ein__json_node(ein_ctx *ctx, ein__buf *b, const ein__node *node) {
    ein__equation eq = {0};
    ein__putf(b, "{\"line\": %u, \"%s\": ", (unsigned)node->pos.line, node->op ? "op" : "equation");
    if (node->op) {
        ein__json_string(b, node->op);
    } else {
        eq = ein__json_own(ctx, node);
        ein__json_equation(ctx, b, node, &eq);
    }
    ein__put(b, ", \"inputs\": [");
    for (int i = 0; i < node->nin; i++) {
        if (i) ein__put(b, ", ");
        if (node->in[i] < 0) ein__put(b, "null");
        else ein__json_string(b, ctx->graph.tensor[node->in[i]].name);
    }
    ein__put(b, "], \"outputs\": [");
    for (int i = 0; i < node->nout; i++) {
        const ein__tensor *t = &ctx->graph.tensor[node->out[i]];
        ein__put(b, i ? ", {\"name\": " : "{\"name\": ");
        ein__json_string(b, t->name);
        ein__json_type(b, t);
        ein__put(b, "}");
    }
    ein__put(b, "]");
    if (node->op) {
        ein__json_attributes(b, node);
    } else {
        ein__json_ranges(ctx, b, node);
        ein__json_pads(ctx, b, node, &eq);
    }
    ein__put(b, "}");
}

EIN__FN void ein__graph_json(ein_ctx *ctx, ein__buf *out) {
    const ein__graph *g = &ctx->graph;
    ein__put(out, "{\n  \"einnet_graph\": 1,\n  \"model\": ");
    ein__json_string(out, g->model);
    ein__putf(out, ",\n  \"hash\": \"%016llx\"", (unsigned long long)g->hash);
    ein__json_open(out, "dims");
    for (ptrdiff_t i = 0; i < arrlen(g->dim); i++) {
        ein__json_entry(out, i);
        ein__put(out, "{\"name\": ");
        ein__json_string(out, g->dim[i].name);
        ein__putf(out, ", \"value\": %lld, \"small\": %lld}", (long long)g->dim[i].value,
                  (long long)g->dim[i].small);
    }
    ein__json_close(out, arrlen(g->dim));
    ein__json_tensors(ctx, out, "inputs", g->input);
    ein__json_open(out, "outputs");
    for (ptrdiff_t i = 0; i < arrlen(g->output); i++) {
        const ein__tensor *t = &g->tensor[g->output[i].tensor];
        ein__json_entry(out, i);
        ein__put(out, "{\"name\": ");
        ein__json_string(out, g->output[i].name);
        ein__json_key(out, "tensor", t->name);
        ein__json_type(out, t);
        ein__put(out, "}");
    }
    ein__json_close(out, arrlen(g->output));
    ein__json_tensors(ctx, out, "weights", g->weight);
    ein__json_open(out, "nodes");
    for (ptrdiff_t i = 0; i < arrlen(g->node); i++) {
        ein__json_entry(out, i);
        ein__json_node(ctx, out, &g->node[i]);
    }
    ein__json_close(out, arrlen(g->node));
    ein__put(out, "\n}\n");
}
