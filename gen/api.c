// The public functions: text in, text out.

static char *ein__copy_text(ein_ctx *ctx, const char *s, size_t n) {
    char *copy = ein__alloc(&ctx->arena, n + 1);
    if (n) memcpy(copy, s, n);
    return copy;
}

static ein_status ein__misused(ein_ctx *ctx, const char *why) {
    return ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "%s", why);
}

// What would index a table or mean nothing: a message for each field.
static void ein__check_desc(ein_ctx *ctx) {
    const ein_desc *d = &ctx->desc;
    const struct {
        const char *name;
        int value, lo, hi;
    } field[] = {{"depth", d->depth, 0, INT32_MAX},
                 {"states", d->states, 0, INT32_MAX},
                 {"branches", d->branches, 0, EIN__BRANCHES},
                 {"intensity", d->intensity, 0, INT32_MAX},
                 {"libs", (int)d->libs, EIN_LIBS_ALL, EIN_LIBS_NONE},
                 {"math", (int)d->math, EIN_MATH_FP32, EIN_MATH_FP16},
                 {"form", d->form, 0, INT32_MAX},
                 {"part", d->part, d->parts > 1, d->parts > 0 ? d->parts : 1},
                 {"parts", d->parts, 0, INT32_MAX},
                 {"kernels", d->kernels, -1, INT32_MAX}};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (field[i].value < field[i].lo || field[i].value > field[i].hi)
            ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "ein_desc.%s is %d: out of range",
                       field[i].name, field[i].value);
    const char *how = d->prefer;
    if (how && strcmp(how, "first") && strcmp(how, "last") && strcmp(how, "fastest"))
        ein__error(ctx, EIN_USAGE, (ein__pos){0, 0},
                   "ein_desc.prefer is first, last or fastest, not '%s'", how);
}

EIN_DEF ein_ctx *ein_open(const ein_desc *desc) {
    ein_ctx *ctx = EIN_REALLOC(NULL, sizeof *ctx);
    if (!ctx) return NULL;
    memset(ctx, 0, sizeof *ctx);
    if (desc) ctx->desc = *desc;
    ctx->asked = ctx->desc.math;
    ctx->indices.derived = offsetof(ein__index, c);
    const char **text[] = {&ctx->desc.gpu,     &ctx->desc.prefix, &ctx->desc.license,
                           &ctx->desc.explain, &ctx->desc.rules,  &ctx->desc.prefer};
    for (int i = 0; i < 6; i++)
        if (*text[i]) *text[i] = ein__copy_text(ctx, *text[i], strlen(*text[i]));
    ein__put(&ctx->errors, "");
    ctx->gpu = ein__gpu_find(ctx->desc.gpu ? ctx->desc.gpu : "h200");
    if (!ctx->gpu) ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "unknown GPU '%s'", ctx->desc.gpu);
    ein__check_desc(ctx);
    ctx->rule_mask = ein__rules_named(ctx, ctx->desc.rules);
    if (ctx->desc.math == EIN_MATH_TF32 && !ein__gpu_of(ctx)->tf32)
        ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "%s has no TF32: plan for FP32 or FP16",
                   ein__gpu_of(ctx)->title);
    return ctx;
}

EIN_DEF void ein_close(ein_ctx *ctx) {
    if (!ctx) return;
    ein__graph *g = &ctx->graph;
    arrfree(g->tensor);
    arrfree(g->node);
    arrfree(g->input);
    arrfree(g->weight);
    arrfree(g->output);
    arrfree(g->dim);
    arrfree(g->blob);
    arrfree(ctx->value);
    arrfree(ctx->dim_override);
    arrfree(ctx->keep_fp32);
    shfree(ctx->costs);
    shfree(ctx->cost_rows);
    arrfree(ctx->cost_row);
    shfree(ctx->calls);
    ein__plan_free(&ctx->plan);
    for (ptrdiff_t i = 0; i < arrlen(ctx->passed); i++) ein__plan_free(&ctx->passed[i]);
    arrfree(ctx->norm);
    for (int i = 0; i < 2; i++) arrfree(ctx->norm_at[i]);
    arrfree(ctx->tried);
    arrfree(ctx->kept);
    arrfree(ctx->unrounded);
    arrfree(ctx->counted);
    arrfree(ctx->body);
    arrfree(ctx->passed);
    shfree(ctx->kernels);
    ein__search_free(ctx->search);
    ein__table *tables[] = {&ctx->names,  &ctx->atoms, &ctx->indices, &ctx->exprs,
                            &ctx->scopes, &ctx->cuts,  &ctx->bodies,  &ctx->priced};
    for (int i = 0; i < EIN__COUNT(tables); i++) ein__table_free(tables[i]);
    for (ptrdiff_t i = 0; i < arrlen(ctx->reads); i++) arrfree(ctx->reads[i]);
    arrfree(ctx->reads);
    ein__buf_free(&ctx->errors);
    ein__arena_free(&ctx->arena);
    ein__arena_free(&ctx->forms);
    EIN_FREE(ctx);
}

// The status of no context is that of having had no memory for one.
EIN_DEF ein_status ein_get_status(const ein_ctx *ctx) { return ctx ? ctx->status : EIN_RESOURCES; }

EIN_DEF const char *ein_error(const ein_ctx *ctx) {
    if (!ctx) return "einnet: out of memory\n";
    return ctx->errors.s ? ctx->errors.s : "";
}

EIN_DEF ein_status ein_set_dim(ein_ctx *ctx, const char *name, int64_t value) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!name) return ein__misused(ctx, "ein_set_dim: the name is NULL");
    if (ctx->text) return ein__misused(ctx, "dims are set before the model is added");
    if (value < 0)
        return ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "dim '%s' must not be negative", name);
    for (ptrdiff_t i = 0; i < arrlen(ctx->dim_override); i++)
        if (!strcmp(ctx->dim_override[i].name, name))
            return ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "dim '%s' is given twice", name);
    ptrdiff_t at = arrlen(ctx->dim_override);
    arrsetlen(ctx->dim_override, at + 1);
    ctx->dim_override[at].name = ein__name(ctx, name);
    ctx->dim_override[at].value = value;
    return ctx->status;
}

// What is wrong with the small sizes alone would show when somebody tests the model. Beside a dim
// that the caller sets they may be wrong.
static void ein__check_small(ein_ctx *ctx) {
    const ein_desc desc = {.small = true};
    bool differs = false;
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.dim); i++)
        differs |= ctx->graph.dim[i].small != ctx->graph.dim[i].value;
    if (ctx->status || ctx->desc.small || !differs || arrlen(ctx->dim_override)) return;
    ein_ctx *small = ein_open(&desc);
    if (!small) EIN_OUT_OF_MEMORY();
    if (ein_add_model(small, ctx->file, ctx->text, ctx->length)) {
        ein__put(&ctx->errors, ein_error(small));
        ein__error(ctx, small->status, (ein__pos){0, 0},
                   "this is so with the sizes of the model's `small` lines");
    }
    ein_close(small);
}

EIN_DEF ein_status ein_add_model(ein_ctx *ctx, const char *name, const char *text, size_t length) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!text) return ein__misused(ctx, "ein_add_model: the text is NULL");
    if (ctx->text) return ein__misused(ctx, "a context holds one model");
    ctx->file = ein__name(ctx, name ? name : "model");
    ctx->text = ein__copy_text(ctx, text, length);
    ctx->length = length;
    if (ein__parse(ctx)) ein__expand(ctx);
    ein__check_small(ctx);
    return ctx->status;
}

// Whether something was planned or derived, which does not change any more.
static bool ein__is_settled(const ein_ctx *ctx) { return ctx->plan.step || ctx->search; }

EIN_DEF ein_status ein_add_costs(ein_ctx *ctx, const char *name, const char *text, size_t length) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!text) return ein__misused(ctx, "ein_add_costs: the text is NULL");
    if (ein__is_settled(ctx))
        return ein__misused(ctx, "costs are added before anything is planned");
    ein__add_costs(ctx, name ? name : "costs", text, length);
    return ctx->status;
}

EIN_DEF ein_status ein_add_calls(ein_ctx *ctx, const char *text, size_t length) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!text) return ein__misused(ctx, "ein_add_calls: the text is NULL");
    ein__add_calls(ctx, text, length);
    return ctx->status;
}

static bool ein__need_model(ein_ctx *ctx) {
    if (!ctx->status && !ctx->text) ein__misused(ctx, "no model was added");
    return !ctx->status;
}

static bool ein__need_values(ein_ctx *ctx) {
    ein__seed_kernels(ctx);
    return ein__need_model(ctx) && (ctx->tensor_value || ein__lower(ctx));
}

EIN_DEF ein_status ein_keep_fp32(ein_ctx *ctx, const char *node) {
    const char *best = NULL;
    int distance = 3, found = 0;
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!node) return ein__misused(ctx, "ein_keep_fp32: the name is NULL");
    if (ein__is_settled(ctx))
        return ein__misused(ctx, "what keeps FP32 is named before anything is planned");
    if (!ein__need_model(ctx)) return ctx->status;
    size_t n = strlen(node);
    while (arrlen(ctx->keep_fp32) < arrlen(ctx->graph.tensor)) arrput(ctx->keep_fp32, false);
    for (ptrdiff_t i = 0; i < arrlen(ctx->graph.tensor); i++) {
        const ein__tensor *t = &ctx->graph.tensor[i];
        if (t->kind != EIN__T_VALUE) continue;
        ein__suggest(node, t->name, &best, &distance);
        if (strncmp(t->name, node, n) || (t->name[n] && t->name[n] != '.')) continue;
        ctx->keep_fp32[i] = true;
        found++;
    }
    if (!n || !found)
        ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "the model computes no tensor '%.100s'%s%s%s",
                   node, best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
    return ctx->status;
}

EIN_DEF ein_status ein_plan(ein_ctx *ctx) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (ein__need_values(ctx) && !ctx->plan.step) ein__make_plan(ctx);
    // What is emitted has its types; what is derived (explain.c) has not.
    ctx->typed = ctx->desc.math == EIN_MATH_FP16;
    return ctx->status;
}

static void ein__emit_equations(ein_ctx *ctx, ein__buf *out) {
    int n = (int)arrlen(ctx->graph.output);
    ein__val *root = NULL;
    for (int i = 0; i < n; i++) arrput(root, ctx->tensor_value[ctx->graph.output[i].tensor]);
    ein__val *order = ein__live(ctx, root, n);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        if (ctx->value[order[i].i].kind != EIN__V_SCOPE) continue;
        ein__print_value(ctx, order[i], out);
        if (out->n && out->s[out->n - 1] != '\n') ein__put(out, "\n");
    }
    arrfree(root);
    arrfree(order);
}

EIN_DEF ein_status ein_emit(ein_ctx *ctx, ein_output what, ein_writer writer) {
    ein__buf out = {0};
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!writer.func) return ein__misused(ctx, "ein_emit: the writer has no function");
    ein__put(&out, "");
    bool ready = what == EIN_FORMAT || what == EIN_GRAPH_JSON ? ein__need_model(ctx)
                 : what == EIN_COSTS || what == EIN_ESTIMATES ? !ctx->status
                 : what == EIN_EQUATIONS || what == EIN_EXPLAIN || what == EIN_EXPLAIN_JSON
                     ? ein__need_values(ctx)
                     : !ein_plan(ctx);
    if (ready) switch (what) {
        case EIN_CUDA: ein__emit_cuda(ctx, &out); break;
        case EIN_HEADER: ein__emit_header(ctx, &out); break;
        case EIN_TEST: ein__emit_test(ctx, &out); break;
        case EIN_CALLS: ein__emit_call_keys(ctx, &out); break;
        case EIN_COSTS: ein__emit_costs(ctx, &out); break;
        case EIN_ESTIMATES: ein__emit_estimates(ctx, &out); break;
        case EIN_CANDIDATES: ein__emit_candidates(ctx, &out); break;
        case EIN_PROBE: ein__emit_probe(ctx, &out); break;
        case EIN_FORMAT: ein__format(ctx, &out, true); break;
        case EIN_GRAPH_JSON: ein__graph_json(ctx, &out); break;
        case EIN_EQUATIONS: ein__emit_equations(ctx, &out); break;
        case EIN_EXPLAIN:
        case EIN_EXPLAIN_JSON:
            ein__explain(ctx, ctx->desc.explain, ctx->desc.explain_all, what == EIN_EXPLAIN_JSON,
                         &out);
            break;
        default: ein__misused(ctx, "unknown output"); break;
        }
    if (!ctx->status && !writer.func(writer.user, out.s, out.n))
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "the output could not be written");
    ein__buf_free(&out);
    return ctx->status;
}

EIN_DEF ein_status ein_verify(ein_ctx *ctx, int samples) {
    const char *name = "";
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (samples < 1) return ein__misused(ctx, "a proof needs at least one sample");
    if (ein_plan(ctx)) return ctx->status;
    if (!ein__verify(ctx, samples, &name) && !ctx->status)
        ein__error(ctx, EIN_DIFFERS, (ein__pos){0, 0},
                   "output '%s': the plan computes something else", name);
    return ctx->status;
}

EIN_DEF ein_status ein_verify_candidate(ein_ctx *ctx, const char *value, int id, int samples) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (samples < 1) return ein__misused(ctx, "a proof needs at least one sample");
    if (!ein__need_values(ctx)) return ctx->status;
    // Its number is one of those in the plan's arithmetic.
    if (ctx->asked != EIN_MATH_FP32 && ein_plan(ctx)) return ctx->status;
    ctx->typed = false;
    if (id < 0) return ein__misused(ctx, "ids of candidates begin with 0");
    bool equal = id < EIN__MERGE_ID ? ein__verify_candidate(ctx, value, id, samples)
                                    : ein__verify_merge(ctx, value, id, samples);
    if (!equal && !ctx->status)
        ein__error(ctx, EIN_DIFFERS, (ein__pos){0, 0}, "candidate %d computes something else", id);
    return ctx->status;
}

// ------------------------------------------------------------------------------------ description

static void ein__describe_tensor(const ein_ctx *ctx, int tensor, const char *name,
                                 ein_tensor_info *r) {
    const ein__tensor *t = &ctx->graph.tensor[tensor];
    r->name = name ? name : t->name;
    r->dtype = ein__dtype_name(t->dtype);
    r->rank = t->shape.rank;
    for (int i = 0; i < t->shape.rank; i++) r->dims[i] = t->shape.d[i];
    r->bytes = (size_t)(ein__elements(&t->shape) * ein__dtype_size(t->dtype));
    if (t->source == EIN__S_BLOB) {
        r->blob = t->blob;
        r->key = t->key;
    }
    r->seeded = t->source != EIN__S_BLOB && t->source != EIN__S_NONE;
}

EIN_DEF bool ein_describe(const ein_ctx *ctx, char kind, int index, ein_tensor_info *info) {
    memset(info, 0, sizeof *info);
    if (!ctx || index < 0) return false;
    const ein__graph *g = &ctx->graph;
    if (kind == 'i' && index < (int)arrlen(g->input))
        ein__describe_tensor(ctx, g->input[index], NULL, info);
    else if (kind == 'w' && index < (int)arrlen(g->weight))
        ein__describe_tensor(ctx, g->weight[index], NULL, info);
    else if (kind == 'o' && index < (int)arrlen(g->output))
        ein__describe_tensor(ctx, g->output[index].tensor, g->output[index].name, info);
    else if (kind == 'b' && index < (int)arrlen(g->blob)) {
        info->name = g->blob[index].name;
        info->key = g->blob[index].path;
    } else {
        return false;
    }
    return true;
}

EIN_DEF bool ein_shape(const ein_ctx *ctx, const char *tensor, int *rank, int64_t dims[10]) {
    for (ptrdiff_t i = 0; ctx && tensor && i < arrlen(ctx->graph.tensor); i++) {
        const ein__tensor *t = &ctx->graph.tensor[i];
        if (strcmp(t->name, tensor)) continue;
        *rank = t->shape.rank;
        for (int k = 0; k < t->shape.rank; k++) dims[k] = t->shape.d[k];
        return true;
    }
    return false;
}

EIN_DEF uint64_t ein_manifest_hash(const ein_ctx *ctx) { return ctx ? ein__manifest(ctx) : 0; }

EIN_DEF void ein_get_stats(const ein_ctx *ctx, ein_stats *stats) {
    *stats = ctx ? ctx->stats : (ein_stats){0};
}

EIN_DEF const char *ein_rule_name(int index) {
    return index >= 0 && index < EIN__NRULES ? ein__rules[index].name : NULL;
}

EIN_DEF const char *ein_rule_description(int index) {
    return index >= 0 && index < EIN__NRULES ? ein__rules[index].what : NULL;
}

EIN_DEF const char *ein_rule_kind(int index) {
    return index >= 0 && index < EIN__NRULES ? ein__rule_kind_name(ein__rules[index].kind) : NULL;
}

EIN_DEF bool ein_rule_needed(int index) {
    return index >= 0 && index < EIN__NRULES && ein__rules[index].needed;
}

EIN_DEF const char *ein_stop_name(ein_stop stop) {
    static const char *const names[] = {"saturated", "quota", "depth", "states", "cancelled"};
    return stop >= EIN_STOP_SATURATED && stop <= EIN_STOP_CANCELLED ? names[stop] : NULL;
}

EIN_DEF const char *ein_gpu_name(int index) {
    const ein__gpu *g = ein__gpu_at(index);
    return g ? g->name : NULL;
}

EIN_DEF const char *ein_operator_name(int index) { return ein__op_name(index); }

// ------------------------------------------------------------------------------------ values

// Nearest f16 or bf16 of a float, ties to even, as its bits.
static uint16_t ein__half_bits(float v, bool bf16) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    if (bf16) {
        if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
        return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
    }
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    double a = fabs((double)v);
    if (v != v) return (uint16_t)(sign | 0x7e00u);
    if (a >= 65520) return (uint16_t)(sign | 0x7c00u);
    // Units of the last place: 2^-24 below 2^-14, else 2^(exponent - 10); rint is exact on halves.
    int exponent = 0;
    frexp(a, &exponent);
    if (exponent < -13) exponent = -13;
    double scaled = ldexp(a, 11 - exponent), whole = floor(scaled), rest = scaled - whole;
    if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    uint32_t mantissa = (uint32_t)whole, biased = (uint32_t)(exponent + 13);
    // A mantissa of 2048 carries into the exponent by itself.
    return (uint16_t)(sign | (mantissa < 1024 ? mantissa : (biased << 10) + mantissa));
}

static double ein__half_value(uint16_t h, bool bf16) {
    if (bf16) {
        uint32_t u = (uint32_t)h << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        return (double)f;
    }
    int e = h >> 10 & 31, m = h & 1023;
    double a = e == 31 ? (m ? (double)NAN : (double)INFINITY)
               : e     ? ldexp(1024 + m, e - 25)
                       : ldexp(m, -24);
    return h & 0x8000 ? -a : a;
}

// Element i of a seeded source, as ein.h defines it: exact, the same everywhere.
static double ein__seeded_value(const ein__tensor *t, int64_t i) {
    uint64_t z = ein__splitmix((uint64_t)t->seed * 0x9E3779B97F4A7C15ull + (uint64_t)i);
    if (t->source == EIN__S_ZEROS) return 0;
    if (t->source == EIN__S_ONES) return 1;
    if (t->source == EIN__S_RANDN) {
        int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        float scale = (float)(t->a * 2.6429e-5);
        return (double)((float)(sum - 131070) * scale);
    }
    if (t->dtype != EIN__F32 && t->dtype != EIN__F16 && t->dtype != EIN__BF16) {
        uint64_t span = (uint64_t)(int64_t)t->b - (uint64_t)(int64_t)t->a + 1;
        return (double)((int64_t)t->a + (int64_t)(span ? z % span : z));
    }
    float u = (float)(z >> 40) * 0x1p-24f, lo = (float)t->a, hi = (float)t->b;
    float width = hi - lo, part = u * width;
    return (double)(lo + part);
}

static void ein__store(void *data, ein__dtype type, int64_t i, double v) {
    switch (type) {
    case EIN__F32: ((float *)data)[i] = (float)v; break;
    case EIN__F16:
    case EIN__BF16: ((uint16_t *)data)[i] = ein__half_bits((float)v, type == EIN__BF16); break;
    case EIN__I8: ((int8_t *)data)[i] = (int8_t)v; break;
    case EIN__U8: ((uint8_t *)data)[i] = (uint8_t)v; break;
    case EIN__I32: ((int32_t *)data)[i] = (int32_t)v; break;
    case EIN__I64: ((int64_t *)data)[i] = (int64_t)v; break;
    case EIN__BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case EIN__NDTYPE:
    default: break;
    }
}

static double ein__load(const void *data, ein__dtype type, int64_t i) {
    switch (type) {
    case EIN__F32: return (double)((const float *)data)[i];
    case EIN__F16:
    case EIN__BF16: return ein__half_value(((const uint16_t *)data)[i], type == EIN__BF16);
    case EIN__I8: return ((const int8_t *)data)[i];
    case EIN__U8: return ((const uint8_t *)data)[i];
    case EIN__I32: return ((const int32_t *)data)[i];
    case EIN__I64: return (double)((const int64_t *)data)[i];
    case EIN__BOOL: return ((const uint8_t *)data)[i] != 0;
    case EIN__NDTYPE:
    default: return 0;
    }
}

EIN_DEF ein_status ein_fill(const ein_ctx *ctx, char kind, int index, void *data) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (!data) return EIN_USAGE;
    const ein__graph *g = &ctx->graph;
    ein__tensor t;
    if (kind == 'w' && index >= 0 && index < (int)arrlen(g->weight))
        t = g->tensor[g->weight[index]];
    else if (kind == 'i' && index >= 0 && index < (int)arrlen(g->input))
        t = ein__input_source(ctx, index);
    else return EIN_USAGE;
    if (t.source == EIN__S_NONE || t.source == EIN__S_BLOB) return EIN_USAGE;
    int64_t n = ein__elements(&t.shape);
    for (int64_t i = 0; i < n; i++) ein__store(data, t.dtype, i, ein__seeded_value(&t, i));
    return EIN_OK;
}

static void ein__load_tensors(ein_ctx *ctx, const int *list, const void *const *from,
                              double **data) {
    for (ptrdiff_t i = 0; i < arrlen(list); i++) {
        const ein__tensor *t = &ctx->graph.tensor[list[i]];
        int64_t n = ein__elements(&t->shape);
        double *d = EIN_REALLOC(NULL, (size_t)n * sizeof *d);
        if (!d) EIN_OUT_OF_MEMORY();
        for (int64_t k = 0; k < n; k++) d[k] = ein__load(from[i], t->dtype, k);
        data[ctx->tensor_value[list[i]].i] = d;
    }
}

// Whether one of the `n` arrays that the caller gives is missing.
static bool ein__lacks_array(const void *const *array, ptrdiff_t n) {
    if (n && !array) return true;
    for (ptrdiff_t i = 0; i < n; i++)
        if (!array[i]) return true;
    return false;
}

EIN_DEF ein_status ein_eval(ein_ctx *ctx, const void *const *inputs, const void *const *weights,
                            double *const *outputs) {
    if (ein_get_status(ctx)) return ein_get_status(ctx);
    if (ein__lacks_array(inputs, arrlen(ctx->graph.input)) ||
        ein__lacks_array(weights, arrlen(ctx->graph.weight)) ||
        ein__lacks_array((const void *const *)outputs, arrlen(ctx->graph.output)))
        return ein__misused(ctx, "ein_eval: an array of values is NULL");
    if (!ein__need_values(ctx)) return ctx->status;
    size_t n = (size_t)arrlen(ctx->value), nout = (size_t)arrlen(ctx->graph.output);
    double **data = EIN_REALLOC(NULL, n * sizeof *data);
    ein__val *want = NULL;
    if (!data) EIN_OUT_OF_MEMORY();
    memset(data, 0, n * sizeof *data);
    for (size_t i = 0; i < nout; i++) arrput(want, ctx->tensor_value[ctx->graph.output[i].tensor]);
    ein__load_tensors(ctx, ctx->graph.input, inputs, data);
    ein__load_tensors(ctx, ctx->graph.weight, weights, data);
    if (ein__eval_values(ctx, want, (int)nout, data))
        for (size_t i = 0; i < nout; i++)
            memcpy(outputs[i], data[want[i].i],
                   (size_t)ein__elements(&ctx->value[want[i].i].shape) * sizeof(double));
    for (size_t i = 0; i < n; i++) EIN_FREE(data[i]);
    EIN_FREE(data);
    arrfree(want);
    return ctx->status;
}
