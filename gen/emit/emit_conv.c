// Text of calls of cuDNN: convolutions, some by its graph API, some with their channels last.

// What the functions that make the calls depend on.
typedef struct ein__conv_text {
    const char *model, *limit;  // prefix of the program's symbols; bytes of workspace for a call
    int spatial;                // axes of descriptors
    int settings;               // the most that an engine of the graph API has
    bool typed, tf32, nhwc;     // not all are FP32; some are TF32; some have their channels last
    bool pins, engines;         // a table of costs has chosen algorithms, and engines
    bool transposed;            // some are transposed
    bool probe;                 // calls that are measured: of all engines, with nothing around them
} ein__conv_text;

// Axes of a descriptor: those that the convolution lacks are 1, in front.
static void ein__put_axes(ein__buf *out, const int64_t *v, int n, int axes, int64_t fill) {
    ein__put(out, "{");
    for (int i = 0; i < axes; i++)
        ein__putf(out, "%s%lld", i ? ", " : "",
                  (long long)(i < axes - n ? fill : v[i - (axes - n)]));
    ein__put(out, "}");
}

// A row of the table of convolutions. `pin`: what follows where tables choose algorithms.
EIN__FN void ein__put_conv_size(ein__buf *out, const ein__conv_text *f, const char *name,
                                const ein__conv *c, bool transposed, const char *pin) {
    ein__buf line = {0};
    ein__put(&line, "    {");
    ein__put_string(&line, name);
    ein__putf(&line, ", %d, %lld, %lld, %lld, %lld, ", transposed, (long long)c->n, (long long)c->c,
              (long long)c->f, (long long)c->group);
    const int64_t *axes[] = {c->in, c->out, c->k, c->pad, c->stride, c->dilation};
    for (int k = 0; k < 6; k++) {
        ein__put_axes(&line, axes[k], c->spatial, f->spatial, k == 3 ? 0 : 1);
        ein__put(&line, ", ");
    }
    bool fused = c->bias.i || c->z.i || c->relu;
    ein__putf(&line, "%d, %d", fused, c->relu);
    if (f->typed)
        ein__putf(&line, ", %d, %d", c->math == EIN__MATH_FP16, c->math == EIN__MATH_TF32);
    if (f->nhwc) ein__putf(&line, ", %d", c->nhwc);
    ein__putf(&line, "%s},", pin);
    ein__tmpl_line(out, line.s, line.n);
    ein__buf_free(&line);
}

// What follows in the table of convolutions: whether something is added beside the bias, and the
// engine of a table of costs, if there is one.
EIN__FN void ein__put_engine(ein__buf *line, const ein__conv *c, const char *algorithm) {
    ein__engine e = {.number = -1};
    if (ein__is_engine(algorithm)) ein__read_engine(algorithm, &e);
    ein__putf(line, ", %d, {%d, %d, {", c->z.i != 0, e.number, e.settings);
    for (int i = 0; i < e.settings; i++)
        ein__putf(line, "%s{%d, %d}", i ? ", " : "", e.setting[i][0], e.setting[i][1]);
    ein__put(line, "}}");
}

// Types of a convolution's sizes and of its call.
EIN__FN void ein__emit_conv_types(ein_ctx *ctx, ein__buf *out, const ein__conv_text *f) {
    ein__key engine[] = {{"settings", ein__namef(ctx, "%d", f->settings ? f->settings : 1)}};
    ein__key keys[] = {{"spatial", ein__namef(ctx, "%d", f->spatial)},
                       {"pins", f->pins ? "1" : ""},
                       {"typed", f->typed ? "1" : ""},
                       {"engines", f->engines ? "1" : ""},
                       {"pinned", f->engines && !f->probe ? "1" : ""},
                       {"nhwc", f->nhwc ? "1" : ""},
                       {"copied", f->nhwc && !f->probe ? "1" : ""}};
    if (f->engines) {
        ein__tmpl_put(out, ein__tmpl_engine_types, engine, EIN__COUNT(engine));
        ein__put(out, "\n");
    }
    ein__tmpl_put(out, ein__tmpl_conv_types, keys, EIN__COUNT(keys));
}

// Calls by the graph API.
static void ein__emit_engine(ein_ctx *ctx, ein__buf *out, const ein__conv_text *f) {
    ein__key keys[] = {{"model", f->model},
                       {"spatial", ein__namef(ctx, "%d", f->spatial)},
                       {"rank", ein__namef(ctx, "%d", f->spatial + 2)},
                       {"limit", f->limit},
                       {"typed", f->typed ? "1" : ""},
                       {"half", f->typed ? "s->half" : "false"},
                       {"tensorop", f->typed ? "(s->half || s->tf32)" : "false"},
                       {"settings", ein__namef(ctx, "%d", f->settings ? f->settings : 1)},
                       {"pinned", f->probe ? "" : "1"},
                       {"nhwc", f->nhwc ? "1" : ""},
                       {"steps", f->probe ? "" : "1"}};
    ein__tmpl_put(out, ein__tmpl_engine, keys, EIN__COUNT(keys));
    ein__put(out, "\n");
}

// What the helper that describes tensors is given beside their sizes, where they differ in type or
// in order: its parameters, or the arguments for them.
static const char *ein__conv_params(const ein__conv_text *f, bool params) {
    static const char *const names[] = {"", ", last", ", type", ", type, last"};
    static const char *const types[] = {"", ", int last", ", cudnnDataType_t type",
                                        ", cudnnDataType_t type, int last"};
    return (params ? types : names)[2 * f->typed + f->nhwc];
}

// The functions that make the calls.
EIN__FN void ein__emit_conv(ein_ctx *ctx, ein__buf *out, const ein__conv_text *f) {
    const char *scalar = f->typed ? "void" : "float", *typed = f->typed ? "1" : "";
    bool copied = f->nhwc && !f->probe;  // where cuDNN refuses the order
    bool pinned = f->engines && !f->probe;
    ein__key order[] = {{"model", f->model}, {"scalar", scalar}, {"typed", typed}};
    // What the copies leave of the workspace.
    const char *room = ein__namef(ctx, "%s - conv_copies(s, c->copies)", f->limit);
    ein__key keys[] = {{"model", f->model},
                       {"spatial", ein__namef(ctx, "%d", f->spatial)},
                       {"rank", ein__namef(ctx, "%d", f->spatial + 2)},
                       {"limit", f->limit},
                       {"room", copied ? room : f->limit},
                       {"pins", f->pins ? "1" : ""},
                       {"typed", typed},
                       {"tf32", f->tf32 ? "1" : ""},
                       {"elementdatatype", f->typed ? "type" : "CUDNN_DATA_FLOAT"},
                       {"param", ein__conv_params(f, true)},
                       {"arg", ein__conv_params(f, false)},
                       {"scalar", scalar},
                       {"steps", f->probe ? "" : "1"},
                       {"engines", f->engines ? "1" : ""},
                       {"pinned", pinned ? "1" : ""},
                       {"nhwc", f->nhwc ? "1" : ""},
                       {"copied", copied ? "1" : ""},
                       {"transposed", f->transposed ? "1" : ""},
                       {"choose", pinned || copied ? "conv_choose" : "conv_open"},
                       {"wrapped", pinned || copied ? "1" : ""}};
    if (f->engines) ein__emit_engine(ctx, out, f);
    if (copied) {
        ein__tmpl_put(out, ein__tmpl_conv_order, order, EIN__COUNT(order));
        ein__put(out, "\n");
    }
    ein__tmpl_put(out, ein__tmpl_conv, keys, EIN__COUNT(keys));
}
