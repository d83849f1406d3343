// The syntax tree to a flat graph: blocks are called, repeats unrolled, dims are numbers. Names and
// equations are in bind.c.

// Attribute `name` of a seeded source as a number; `*v` keeps its default where it is not given.
static bool ein__source_number(ein__expander *x, const ein__stmt *s, const char *name,
                               bool integral, double *v, int64_t *i) {
    for (int k = 0; k < s->nattr; k++) {
        if (strcmp(s->attr[k].name, name)) continue;
        const ein__ast *a = ein__env_value(&x->env, s->attr[k].value, false);
        if (!a) return false;
        if (a->kind != EIN__A_NUM || (integral && !a->integral) || !isfinite((float)a->num)) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->attr[k].value->pos, "%s is %s", name,
                       integral ? "an integer" : "a finite number");
            return false;
        }
        if (a->floored && !integral) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->attr[k].value->pos, "%s is %s", name,
                       EIN__FLOORED);
            return false;
        }
        *v = a->num;
        *i = a->inum;
    }
    return true;
}

static bool ein__source_attrs_known(ein__expander *x, const ein__stmt *s,
                                    const char *const *known) {
    for (int i = 0; i < s->nattr; i++) {
        const char *best = NULL;
        int distance = 3;
        bool found = false;
        for (int k = 0; known[k]; k++) {
            found = found || !strcmp(known[k], s->attr[i].name);
            ein__suggest(s->attr[i].name, known[k], &best, &distance);
        }
        if (found) continue;
        ein__error(x->ctx, EIN_BAD_INPUT, s->attr[i].pos, "%s has no attribute '%s'%s",
                   s->call.name, s->attr[i].name, ein__hint(x->ctx, best));
        return false;
    }
    return true;
}

// Integers are drawn from lo..hi, both included, and those must be values of the type.
static bool ein__source_uniform(ein__expander *x, const ein__stmt *s, ein__tensor *t) {
    bool real = t->dtype == EIN__F32 || t->dtype == EIN__F16 || t->dtype == EIN__BF16;
    int64_t lo = 0, hi = 1;
    t->b = 1;
    if (!ein__source_number(x, s, "lo", !real, &t->a, &lo) ||
        !ein__source_number(x, s, "hi", !real, &t->b, &hi))
        return false;
    double limit = t->dtype == EIN__BOOL  ? 1
                   : t->dtype == EIN__I8  ? 127
                   : t->dtype == EIN__U8  ? 255
                   : t->dtype == EIN__I32 ? 2147483647
                                          : 4503599627370496;
    bool sign = t->dtype != EIN__BOOL && t->dtype != EIN__U8;
    bool fits = real || (t->b <= limit && t->a >= (sign ? -limit - 1 : 0));
    if (t->a <= t->b && fits) return true;
    ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos,
               fits ? "lo is above hi" : "lo or hi is no value of this tensor's type");
    return false;
}

static bool ein__source_blob(ein__expander *x, const ein__stmt *s, ein__tensor *t) {
    const char *best = NULL;
    int distance = 3;
    for (ptrdiff_t i = 0; i < arrlen(x->ctx->graph.blob); i++) {
        const char *name = x->ctx->graph.blob[i].name;
        if (name == s->call.name) {
            t->source = EIN__S_BLOB;
            t->blob = name;
            t->key = s->text;
            return true;
        }
        ein__suggest(s->call.name, name, &best, &distance);
    }
    ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos, "there is no blob '%s'%s", s->call.name,
               ein__hint(x->ctx, best));
    return false;
}

static bool ein__source(ein__expander *x, const ein__stmt *s, ein__tensor *t) {
    static const struct {
        const char *name;
        ein__source_kind kind;
        const char *known[4];
    } seeded[] = {{"zeros", EIN__S_ZEROS, {NULL}},
                  {"ones", EIN__S_ONES, {NULL}},
                  {"randn", EIN__S_RANDN, {"seed", "std", NULL}},
                  {"uniform", EIN__S_UNIFORM, {"seed", "lo", "hi", NULL}}};
    if (!s->call.name) return true;
    if (s->text && s->kind == EIN__ST_INPUT) {
        ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos, "an input cannot come from a blob");
        return false;
    }
    if (s->text) return ein__source_blob(x, s, t);
    const char *best = NULL;
    int distance = 3;
    double unused = 0;
    for (size_t i = 0; i < sizeof seeded / sizeof *seeded; i++) {
        ein__suggest(s->call.name, seeded[i].name, &best, &distance);
        if (strcmp(s->call.name, seeded[i].name)) continue;
        t->source = seeded[i].kind;
        t->seed = ein__seed_of(t->name);
        if (!ein__source_attrs_known(x, s, seeded[i].known) ||
            !ein__source_number(x, s, "seed", true, &unused, &t->seed))
            return false;
        if (t->source == EIN__S_UNIFORM) return ein__source_uniform(x, s, t);
        if (t->source != EIN__S_RANDN) return true;
        int64_t none;
        t->a = 1;
        if (!ein__source_number(x, s, "std", false, &t->a, &none)) return false;
        if (t->a >= 0 && (t->dtype == EIN__F32 || t->dtype == EIN__F16 || t->dtype == EIN__BF16))
            return true;
        ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos,
                   t->a < 0 ? "std is negative" : "randn is for f32, f16 and bf16");
        return false;
    }
    ein__error(x->ctx, EIN_BAD_INPUT, s->call.pos, "unknown source '%s'%s", s->call.name,
               best ? ein__hint(x->ctx, best)
                    : "; sources are zeros(), ones(), randn(..) and uniform(..)");
    return false;
}

// How values of an input are made where none are given: as the model says or, where it says
// nothing, about normal for floats, 0 or 1 for integers.
EIN__FN ein__tensor ein__input_source(const ein_ctx *ctx, int index) {
    ein__tensor t = ctx->graph.tensor[ctx->graph.input[index]];
    bool real = t.dtype == EIN__F32 || t.dtype == EIN__F16 || t.dtype == EIN__BF16;
    if (t.source == EIN__S_RANDN || t.source == EIN__S_UNIFORM) return t;
    if (t.source == EIN__S_NONE) {
        t.source = real ? EIN__S_RANDN : EIN__S_UNIFORM;
        t.seed = 7001 + index;
        t.a = real ? 1 : 0;
        t.b = 1;
        return t;
    }
    t.a = t.b = t.source == EIN__S_ONES;
    t.source = EIN__S_UNIFORM;
    return t;
}

static bool ein__expand_tensor(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    bool input = s->kind == EIN__ST_INPUT;
    ein__graph *g = &x->ctx->graph;
    ein__tensor t = {.kind = input ? EIN__T_INPUT : EIN__T_WEIGHT,
                     .dtype = s->type[0]->dtype,
                     .node = -1,
                     .name = ein__label_of(x, f, s->name[0].name).brief};
    bool seeded = s->call.name && !s->text;
    if (!ein__assignable(x, f, s->name[0])) return false;
    if (!ein__env_type(&x->env, s->type[0], &t.shape) || !ein__source(x, s, &t)) {
        ein__poison(f, s->name, 1);
        return false;
    }
    int id = ein__add_tensor(x, f, s->name[0], t);
    for (int i = 0; i < s->nattr; i++) seeded = seeded && strcmp(s->attr[i].name, "seed") != 0;
    x->claim[id].seeded = seeded;
    if (input) {
        arrput(g->input, id);
    } else {
        arrput(g->weight, id);
    }
    return true;
}

// The file of weights lies in the model's directory or below it.
static bool ein__expand_blob(ein__expander *x, const ein__stmt *s) {
    ein__graph *g = &x->ctx->graph;
    const char *path = s->text;
    bool outside = !*path || *path == '/' || strchr(path, '\\') || strchr(path, ':');
    for (const char *p = path; *p && !outside; p += strcspn(p, "/"), p += *p == '/')
        outside = !strncmp(p, "..", 2) && (p[2] == '/' || !p[2]);
    for (const char *p = path; *p; p++) outside |= (unsigned char)*p < 32 || *p == 127;
    if (outside) {
        ein__error(x->ctx, EIN_BAD_INPUT, s->pos,
                   "the file of blob '%s' is not a relative path "
                   "without '..'",
                   s->name[0].name);
        return false;
    }
    for (ptrdiff_t i = 0; i < arrlen(g->blob); i++)
        if (g->blob[i].name == s->name[0].name) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->name[0].pos, "blob '%s' is given twice",
                       s->name[0].name);
            return false;
        }
    if (arrlen(g->blob) == EIN__MAX_BLOBS) {
        ein__error(x->ctx, EIN_RESOURCES, s->pos, "more than %d blobs", EIN__MAX_BLOBS);
        return false;
    }
    ptrdiff_t at = arraddnindex(g->blob, 1);
    g->blob[at].name = s->name[0].name;
    g->blob[at].path = path;
    g->blob[at].pos = s->name[0].pos;
    return true;
}

// ------------------------------------------------------------------------------------- operators

static bool ein__expand_body(ein__expander *x, ein__frame *f, ein__stmt *const *stmt, int n);

static bool ein__operator_node(ein__expander *x, ein__frame *f, const ein__stmt *s, ein__node *node,
                               bool *poisoned) {
    ein_ctx *ctx = x->ctx;
    *node = (ein__node){
        .op = s->call.name, .pos = s->pos, .nin = s->narg, .nout = s->nname, .nattr = s->nattr};
    node->in = EIN__NEW(&ctx->arena, int, s->narg + 1);
    node->attr = EIN__NEW(&ctx->arena, ein__attr, s->nattr + 1);
    *poisoned = false;
    for (int i = 0; i < s->narg; i++) {
        node->in[i] = -1;
        if (!s->arg[i].name) continue;
        node->in[i] = ein__look_up(x, f, s->arg[i].name, s->arg[i].pos);
        if (node->in[i] < EIN__POISON) return false;
        *poisoned = *poisoned || node->in[i] == EIN__POISON;
    }
    for (int i = 0; i < s->nattr; i++) {
        node->attr[i] = s->attr[i];
        node->attr[i].value = ein__env_value(&x->env, s->attr[i].value, true);
        if (!node->attr[i].value) return false;
    }
    return true;
}

static bool ein__results_assignable(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    for (int i = 0; i < s->nname; i++) {
        if (!ein__assignable(x, f, s->name[i])) return false;
        for (int k = 0; k < i; k++)
            if (s->name[k].name == s->name[i].name) {
                ein__error(x->ctx, EIN_BAD_INPUT, s->name[i].pos, "'%s' is assigned twice",
                           s->name[i].name);
                return false;
            }
    }
    return true;
}

static bool ein__expand_operator(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ein_ctx *ctx = x->ctx;
    ein__node node;
    ein__shape shape[EIN__MAX_ARGS] = {{0, {0}}};
    ein__dtype dtype[EIN__MAX_ARGS] = {EIN__F32};
    bool poisoned = false;
    bool ok = ein__results_assignable(x, f, s) && ein__operator_node(x, f, s, &node, &poisoned);
    if (ok && !poisoned) {
        node.out = EIN__NEW(&ctx->arena, int, node.nout);
        ok = ein__op_infer(ctx, &node, shape, dtype);
        for (int i = 0; ok && i < node.nout; i++) ok = !ein__too_large(x, s->name[i], &shape[i]);
    }
    if (!ok || poisoned) {
        ein__poison(f, s->name, s->nname);
        return ok;
    }
    for (int i = 0; i < node.nout; i++) {
        ein__tensor t = {.kind = EIN__T_VALUE,
                         .dtype = dtype[i],
                         .shape = shape[i],
                         .node = (int)arrlen(ctx->graph.node)};
        node.out[i] = ein__add_tensor(x, f, s->name[i], t);
    }
    arrput(ctx->graph.node, node);
    return true;
}

// Pushes the parameters of a call: given ones are evaluated where the call stands, defaults among
// the dims and the parameters before them.
static bool ein__call_params(ein__expander *x, const ein__stmt *s, const ein__stmt *block,
                             ptrdiff_t base) {
    ein_ctx *ctx = x->ctx;
    ein__ast **given = EIN__NEW(&ctx->arena, ein__ast *, block->nattr + 1);
    for (int i = 0; i < s->nattr; i++) {
        const char *best = NULL;
        int distance = 3, at = -1;
        for (int k = 0; k < block->nattr; k++) {
            if (block->attr[k].name == s->attr[i].name) at = k;
            ein__suggest(s->attr[i].name, block->attr[k].name, &best, &distance);
        }
        if (at < 0) {
            ein__error(ctx, EIN_BAD_INPUT, s->attr[i].pos, "block '%s' has no parameter '%s'%s",
                       s->call.name, s->attr[i].name, ein__hint(ctx, best));
            return false;
        }
        given[at] = ein__env_value(&x->env, s->attr[i].value, true);
        if (!given[at]) return false;
    }
    x->env.base = base;
    for (int k = 0; k < block->nattr; k++) {
        ein__ident name = {block->attr[k].name, block->attr[k].pos};
        if (!given[k] && !block->attr[k].value) {
            ein__error(ctx, EIN_BAD_INPUT, s->pos, "block '%s' needs parameter '%s'", s->call.name,
                       name.name);
            return false;
        }
        if (!given[k]) given[k] = ein__env_value(&x->env, block->attr[k].value, true);
        if (!given[k]) return false;
        ein__env_push(&x->env, name, given[k]);
    }
    return true;
}

static bool ein__call_inputs(ein__expander *x, ein__frame *f, const ein__stmt *s,
                             const ein__stmt *block, ein__frame *inner, bool *poisoned) {
    ein_ctx *ctx = x->ctx;
    *poisoned = false;
    if (s->narg != block->narg || s->nname != block->nresult) {
        bool in = s->narg != block->narg;
        int n = in ? block->narg : block->nresult;
        ein__error(ctx, EIN_BAD_INPUT, s->pos, "block '%s' has %d %s%s, %d given", s->call.name, n,
                   in ? "input" : "result", n == 1 ? "" : "s", in ? s->narg : s->nname);
        return false;
    }
    for (int i = 0; i < s->narg; i++) {
        if (!s->arg[i].name) {
            ein__error(ctx, EIN_BAD_INPUT, s->arg[i].pos, "an input of a block cannot be omitted");
            return false;
        }
        int tensor = ein__look_up(x, f, s->arg[i].name, s->arg[i].pos);
        if (tensor < EIN__POISON) return false;
        *poisoned = *poisoned || tensor == EIN__POISON;
        ein__bind(inner, block->arg[i].name, tensor);
    }
    return true;
}

// Runs the body in a frame of its own; its results get the names on the call's left side.
static bool ein__call_block(ein__expander *x, ein__frame *f, const ein__stmt *s, int at) {
    ein_ctx *ctx = x->ctx;
    const ein__stmt *block = ctx->tree->stmt[at];
    ein__frame inner = {.block = block, .rounds = "", .stamp = ++x->stamps, .calls = f->calls + 1};
    bool poisoned = false;
    if (!ein__results_assignable(x, f, s)) {
        ein__poison(f, s->name, s->nname);
        return false;
    }
    inner.left = EIN__NEW(&ctx->arena, ein__label, block->nresult + s->nname);
    for (int i = 0; i < s->nname; i++) inner.left[i] = ein__label_of(x, f, s->name[i].name);
    inner.prefix = inner.left[0].brief;
    // What is too long for a name already grows no further.
    inner.path = f->path && strlen(f->path) > EIN__MAX_NAME
                     ? f->path
                     : ein__behind(x, f->path, s->name[0].name, f->rounds);
    ptrdiff_t base = x->env.base, locals = arrlen(x->env.local);
    int current = x->current;
    bool ok = ein__call_inputs(x, f, s, block, &inner, &poisoned) &&
              ein__call_params(x, s, block, locals);
    if (ok && !poisoned) {
        int depth = x->depth;
        x->current = at;
        x->size += block->size;
        ok = ein__expand_body(x, &inner, block->body, block->nbody);
        x->depth = depth;
        if (!ok) ein__error(ctx, EIN_BAD_INPUT, s->pos, "in block '%s', called here", s->call.name);
    }
    x->current = current;
    x->env.base = base;
    arrsetlen(x->env.local, (size_t)locals);
    for (int i = 0; ok && !poisoned && i < s->nname; i++) {
        ptrdiff_t k = shgeti(inner.name, block->result[i].name);
        if (k >= 0) {
            ein__bind(f, s->name[i].name, inner.name[k].value.tensor);
            continue;
        }
        ein__error(ctx, EIN_BAD_INPUT, block->result[i].pos,
                   "block '%s' never assigns its result "
                   "'%s'",
                   s->call.name, block->result[i].name);
        ok = false;
    }
    if (!ok || poisoned) ein__poison(f, s->name, s->nname);
    shfree(inner.name);
    arrfree(inner.fresh);
    return ok;
}

static bool ein__expand_call(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ptrdiff_t i = shgeti(x->block, s->call.name);
    if (i < 0) return ein__expand_operator(x, f, s);
    int at = x->block[i].value;
    if (at < x->current) return ein__call_block(x, f, s, at);
    ein__error(x->ctx, EIN_BAD_INPUT, s->pos,
               "block '%s' is defined further down: a block is "
               "called below its definition",
               s->call.name);
    ein__poison(f, s->name, s->nname);
    return false;
}

// ------------------------------------------------------------------------------------- repeats

static bool ein__repeat_range(ein__expander *x, const ein__stmt *s, int64_t *lo, int64_t *hi) {
    ein_ctx *ctx = x->ctx;
    if (!ein__env_int(&x->env, s->value[0], lo) || !ein__env_int(&x->env, s->value[1], hi))
        return false;
    if (ein__env_find(&x->env, s->name[0].name)) {
        ein__error(ctx, EIN_BAD_INPUT, s->name[0].pos,
                   "'%s' is a dim, parameter or loop variable "
                   "already",
                   s->name[0].name);
        return false;
    }
    if (*lo < 0 || *hi < *lo) {
        ein__error(ctx, EIN_BAD_INPUT, s->value[0]->pos,
                   "rounds %lld:%lld: they count up from 0 "
                   "or more",
                   (long long)*lo, (long long)*hi);
        return false;
    }
    int64_t rounds = *hi - *lo, each = s->nbody + 1;
    if (rounds <= (EIN__MAX_NODES - x->steps) / each) return true;
    ein__error(ctx, EIN_RESOURCES, s->pos,
               "%lld rounds: the model expands to more than %d "
               "statements",
               (long long)rounds, EIN__MAX_NODES);
    return false;
}

static bool ein__expand_repeat(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    int64_t lo, hi;
    if (!ein__repeat_range(x, s, &lo, &hi)) return false;
    const char *rounds = f->rounds;
    int stamp = f->stamp;
    ptrdiff_t fresh = arrlen(f->fresh), locals = arrlen(x->env.local);
    bool ok = true;
    for (int64_t i = lo; i < hi && ok; i++) {
        x->steps++;
        f->rounds = ein__namef(x->ctx, "%s.%lld", rounds, (long long)i);
        f->stamp = ++x->stamps;
        ein__env_push(&x->env, s->name[0], ein__env_int_node(x->ctx, s->name[0].pos, i));
        ok = ein__expand_body(x, f, s->body, s->nbody);
        arrsetlen(x->env.local, (size_t)locals);
        while (arrlen(f->fresh) > fresh) {
            const char *name = arrpop(f->fresh);
            (void)shdel(f->name, name);
        }
    }
    f->rounds = rounds;
    f->stamp = stamp;
    return ok;
}

// ------------------------------------------------------------------------------------- the model

static bool ein__expand_statement(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ein_ctx *ctx = x->ctx;
    x->size += s->size;
    if (++x->steps > EIN__MAX_NODES || x->size > EIN__MAX_SIZE) {
        bool steps = x->steps > EIN__MAX_NODES;
        x->steps = EIN__MAX_NODES + 1;
        ein__error(ctx, EIN_RESOURCES, s->pos, "the model expands to more than %d %s",
                   steps ? EIN__MAX_NODES : (int)EIN__MAX_SIZE, steps ? "statements" : "words");
        return false;
    }
    switch (s->kind) {
    case EIN__ST_OPERATOR: return ein__expand_call(x, f, s);
    case EIN__ST_EQUATION: return ein__expand_equation(x, f, s);
    case EIN__ST_WEIGHT: return ein__expand_tensor(x, f, s);
    case EIN__ST_REPEAT: return ein__expand_repeat(x, f, s);
    case EIN__ST_INPUT:
    case EIN__ST_MODEL:
    case EIN__ST_BLOCK:
    case EIN__ST_BLOB:
    case EIN__ST_EIN:
    case EIN__ST_DIM:
    case EIN__ST_SMALL:
    case EIN__ST_OUTPUT:
    default: break;
    }
    if (f->block || *f->rounds) {
        ein__error(ctx, EIN_BAD_INPUT, s->pos, "'%s' stands outside of blocks and repeats",
                   ein__keyword[s->kind]);
        return false;
    }
    if (s->kind == EIN__ST_INPUT) return ein__expand_tensor(x, f, s);
    if (s->kind == EIN__ST_MODEL && ctx->graph.model) {
        ein__error(ctx, EIN_BAD_INPUT, s->pos, "the model has a name already");
        return false;
    }
    if (s->kind == EIN__ST_MODEL) ctx->graph.model = s->name[0].name;
    return true;
}

// A body's first mistake is its last: the next round or call would only say it again.
static bool ein__expand_body(ein__expander *x, ein__frame *f, ein__stmt *const *stmt, int n) {
    if (n && ++x->depth > EIN__MAX_DEPTH) {
        ein__error(x->ctx, EIN_RESOURCES, stmt[0]->pos, "blocks and repeats are nested too deep");
        return false;
    }
    for (int i = 0; i < n; i++)
        if (!ein__expand_statement(x, f, stmt[i])) return false;
    x->depth -= n > 0;
    return true;
}

// Blobs and outputs may stand anywhere; of blocks the place is kept, since a block calls only those
// above it.
static bool ein__expand_prepare(ein__expander *x) {
    bool ok = true;
    for (int i = 0; i < x->ctx->tree->nstmt; i++) {
        const ein__stmt *s = x->ctx->tree->stmt[i];
        if (s->kind == EIN__ST_BLOB) ok = ein__expand_blob(x, s) && ok;
        for (int k = 0; s->kind == EIN__ST_OUTPUT && k < s->nname; k++)
            if (s->type[k]) shput(x->declared, s->name[k].name, s->type[k]);
        if (s->kind != EIN__ST_BLOCK) continue;
        if (shgeti(x->block, s->name[0].name) >= 0) {
            ein__error(x->ctx, EIN_BAD_INPUT, s->name[0].pos, "block '%s' is defined twice",
                       s->name[0].name);
            ok = false;
        }
        shput(x->block, s->name[0].name, i);
    }
    return ok;
}

static bool ein__same_shape(const ein__shape *a, const ein__shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->d[i] != b->d[i]) return false;
    return true;
}

static void ein__put_type(ein__buf *b, ein__dtype dtype, const ein__shape *shape) {
    ein__put(b, ein__dtype_name(dtype));
    for (int i = 0; i < shape->rank; i++)
        ein__putf(b, "%c%lld", i ? ',' : '[', (long long)shape->d[i]);
    ein__put(b, shape->rank ? "]" : "[]");
}

static bool ein__output_type(ein__expander *x, ein__ident name, const ein__type *type,
                             const ein__tensor *t) {
    ein__shape shape;
    if (type->bad || !ein__env_type(&x->env, type, &shape)) return false;
    if (type->dtype == t->dtype && ein__same_shape(&shape, &t->shape)) return true;
    ein__buf is = {0}, said = {0};
    ein__put_type(&is, t->dtype, &t->shape);
    ein__put_type(&said, type->dtype, &shape);
    ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "output '%s' is %s, not %s", name.name, is.s,
               said.s);
    ein__buf_free(&is);
    ein__buf_free(&said);
    return false;
}

static bool ein__expand_output(ein__expander *x, ein__frame *f, ein__ident name,
                               const ein__type *type) {
    ein__graph *g = &x->ctx->graph;
    int tensor = ein__look_up(x, f, name.name, name.pos);
    if (tensor < 0) return tensor == EIN__POISON;
    const ein__tensor *t = &g->tensor[tensor];
    if (t->kind != EIN__T_VALUE) {
        ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "output '%s' is %s: write y = Identity(%s)",
                   name.name, t->kind == EIN__T_INPUT ? "an input" : "a weight", name.name);
        return false;
    }
    for (ptrdiff_t i = 0; i < arrlen(g->output); i++)
        if (g->output[i].name == name.name || g->output[i].tensor == tensor) {
            ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "output '%s' is given twice", name.name);
            return false;
        }
    if (type && !ein__output_type(x, name, type, t)) return false;
    ein__output o = {name.name, tensor, name.pos};
    arrput(g->output, o);
    return true;
}

static void ein__expand_outputs(ein__expander *x, ein__frame *f) {
    ein_ctx *ctx = x->ctx;
    bool any = false;
    for (int i = 0; i < ctx->tree->nstmt; i++) {
        const ein__stmt *s = ctx->tree->stmt[i];
        if (s->kind != EIN__ST_OUTPUT) continue;
        any = true;
        if (arrlen(ctx->graph.output) + s->nname > EIN__MAX_OUTPUTS) {
            ein__error(ctx, EIN_RESOURCES, s->pos, "more than %d outputs", EIN__MAX_OUTPUTS);
            return;
        }
        for (int k = 0; k < s->nname; k++) ein__expand_output(x, f, s->name[k], s->type[k]);
    }
    if (!any)
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){1, 1},
                   "the model has no output: a line 'output NAME' is missing");
}

// A model without a name is called after its file.
static const char *ein__model_name(ein_ctx *ctx) {
    const char *file = ctx->file ? ctx->file : "", *stem = file;
    for (const char *p = file; *p; p++)
        if (*p == '/' || *p == '\\') stem = p + 1;
    const char *dot = strrchr(stem, '.');
    size_t n = dot && dot > stem ? (size_t)(dot - stem) : strlen(stem);
    ein__buf b = {0};
    for (size_t i = 0; i < n && i < EIN__MAX_NAME; i++)
        ein__putf(&b, "%c", ein__is_alnum(stem[i]) ? stem[i] : '_');
    const char *name = ein__name(ctx, b.n && strspn(b.s, "_") < b.n ? b.s : "model");
    ein__buf_free(&b);
    return name;
}

// Fills ctx->graph from ctx->tree. Statements of the model go on after a mistake in one of them;
// whatever reads its result stays silent.
EIN__FN bool ein__expand(ein_ctx *ctx) {
    ein__expander x = {.ctx = ctx, .env = {.ctx = ctx}};
    ein__frame f = {.rounds = ""};
    bool go = ein__env_dims(&x.env);
    go = ein__expand_prepare(&x) && go;
    for (int i = 0; go && i < ctx->tree->nstmt; i++) {
        const ein__stmt *s = ctx->tree->stmt[i];
        x.current = i;
        bool ok = ein__expand_statement(&x, &f, s);
        go = ctx->nerror <= EIN__MAX_ERRORS && (ok || s->kind != EIN__ST_REPEAT) &&
             x.steps <= EIN__MAX_NODES;
    }
    if (go && (ctx->status || ein__settle_names(&x))) ein__expand_outputs(&x, &f);
    if (!ctx->graph.model) ctx->graph.model = ein__model_name(ctx);
    if (!ctx->status) {
        ein__buf text = {0};
        ein__format(ctx, &text, false);
        ctx->graph.hash = ein__fnv(EIN__FNV_START, text.s, text.n);
        ein__buf_free(&text);
    }
    shfree(f.name);
    arrfree(f.fresh);
    shfree(x.brief);
    shfree(x.spelled);
    arrfree(x.claim);
    shfree(x.block);
    shfree(x.declared);
    ein__env_free(&x.env);
    return !ctx->status;
}
