// Text of convolutions that cuDNN's graph API makes, and of those that have their channels last.

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

// `settings`: the most that an engine has.
EIN__FN void ein__emit_engine_types(ein_ctx *ctx, ein__buf *out, int settings) {
    ein__key keys[] = {{"settings", ein__namef(ctx, "%d", settings ? settings : 1)}};
    ein__tmpl_put(out, ein__tmpl_engine_types, keys, 1);
    ein__put(out, "\n");
}

// The functions that make the calls, for program or probe `model`; `orders`: their tensors differ
// in that; `pinned`: with engines that a table of costs has chosen.
EIN__FN void ein__emit_engine(ein_ctx *ctx, ein__buf *out, const char *model, int spatial,
                              const char *limit, bool typed, bool orders, int settings,
                              bool pinned) {
    ein__key keys[] = {{"model", model},
                       {"spatial", ein__namef(ctx, "%d", spatial)},
                       {"rank", ein__namef(ctx, "%d", spatial + 2)},
                       {"limit", limit},
                       {"typed", typed ? "1" : ""},
                       {"half", typed ? "s->half" : "false"},
                       {"tensorop", typed ? "(s->half || s->tf32)" : "false"},
                       {"settings", ein__namef(ctx, "%d", settings ? settings : 1)},
                       {"pinned", pinned ? "1" : ""},
                       {"nhwc", orders ? "1" : ""},
                       {"steps", pinned ? "1" : ""}};
    ein__tmpl_put(out, ein__tmpl_engine, keys, 11);
    ein__put(out, "\n");
}

// The functions that copy what such convolutions read and store where cuDNN refuses the order.
EIN__FN void ein__emit_conv_order(ein__buf *out, const char *model, const char *scalar,
                                  const char *typed) {
    ein__key keys[] = {{"model", model}, {"scalar", scalar}, {"typed", typed}};
    ein__tmpl_put(out, ein__tmpl_conv_order, keys, 3);
    ein__put(out, "\n");
}

// What the copies leave of `limit` bytes.
EIN__FN const char *ein__conv_room(ein_ctx *ctx, const char *limit) {
    return ein__namef(ctx, "%s - conv_copies(s, c->copies)", limit);
}
