// Dims, parameters and loop variables, and the values of expressions over them.

typedef struct ein__env {
    ein_ctx *ctx;
    struct {
        char *key;
        ein__ast *value;
    } * dims;  // sh map
    struct {
        char *key;
        int value;
    } * declared;      // sh map: every dim, those further down too
    ein__attr *local;  // stb_ds array: parameters of the block at hand, then loop variables;
    ptrdiff_t base;    //   those before `base` belong to its callers and are not seen
} ein__env;

static void ein__env_free(ein__env *env) {
    shfree(env->dims);
    shfree(env->declared);
    arrfree(env->local);
}

static void ein__env_push(ein__env *env, ein__ident name, ein__ast *value) {
    ein__attr local = {name.name, name.pos, value};
    arrput(env->local, local);
}

// What `name` stands for: a number, list, word or string; NULL when it is none of the constants.
static const ein__ast *ein__env_find(ein__env *env, const char *name) {
    for (ptrdiff_t i = arrlen(env->local); i-- > env->base;)
        if (env->local[i].name == name) return env->local[i].value;
    ptrdiff_t at = shgeti(env->dims, name);
    return at < 0 ? NULL : env->dims[at].value;
}

static void ein__env_suggest(ein__env *env, const char *name, const char **best, int *distance) {
    for (ptrdiff_t i = arrlen(env->local); i-- > env->base;)
        ein__suggest(name, env->local[i].name, best, distance);
    for (ptrdiff_t i = 0; i < shlen(env->dims); i++)
        ein__suggest(name, env->dims[i].key, best, distance);
}

static ein__ast *ein__env_undefined(ein__env *env, const ein__ast *a) {
    const char *best = NULL;
    int distance = 3;
    if (shgeti(env->declared, a->name) >= 0) {
        ein__error(env->ctx, EIN_BAD_INPUT, a->pos, "dim '%s' is defined further down", a->name);
        return NULL;
    }
    ein__env_suggest(env, a->name, &best, &distance);
    ein__error(env->ctx, EIN_BAD_INPUT, a->pos, "'%s' is not a dim, parameter or loop variable%s",
               a->name, ein__hint(env->ctx, best));
    return NULL;
}

static ein__ast *ein__env_int_node(ein_ctx *ctx, ein__pos pos, int64_t v) {
    ein__ast *a = EIN__NEW(&ctx->arena, ein__ast, 1);
    *a = (ein__ast){.kind = EIN__A_NUM, .pos = pos, .num = (double)v, .inum = v, .integral = true};
    return a;
}

static ein__ast *ein__env_real_node(ein_ctx *ctx, ein__pos pos, double v) {
    ein__ast *a = EIN__NEW(&ctx->arena, ein__ast, 1);
    *a = (ein__ast){.kind = EIN__A_NUM, .pos = pos, .num = v};
    return a;
}

static bool ein__env_int_op(ein__akind kind, int64_t l, int64_t r, int64_t *v) {
    if (kind == EIN__A_ADD) return !ein__add_overflows(l, r, v);
    if (kind == EIN__A_SUB) return !__builtin_sub_overflow(l, r, v);
    if (kind == EIN__A_MUL) return !ein__mul_overflows(l, r, v);
    *v = kind == EIN__A_DIV ? ein__floordiv(l, r) : ein__floormod(l, r);
    return true;
}

// l op r, both numbers: integers stay integers, and their division is floored.
static ein__ast *ein__env_binary(ein_ctx *ctx, const ein__ast *a, const ein__ast *l,
                                 const ein__ast *r) {
    bool divides = a->kind == EIN__A_DIV || a->kind == EIN__A_MOD;
    if (l->integral && r->integral) {
        int64_t v;
        if (divides && r->inum <= 0) {
            ein__error(ctx, EIN_BAD_INPUT, a->pos, "the divisor is %lld, not positive",
                       (long long)r->inum);
            return NULL;
        }
        if (ein__env_int_op(a->kind, l->inum, r->inum, &v)) {
            ein__ast *node = ein__env_int_node(ctx, a->pos, v);
            node->floored = l->floored || r->floored ||
                            (a->kind == EIN__A_DIV && ein__floormod(l->inum, r->inum));
            return node;
        }
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "the value does not fit 64 bits");
        return NULL;
    }
    double x = l->num, y = r->num;
    double v = a->kind == EIN__A_ADD   ? x + y
               : a->kind == EIN__A_SUB ? x - y
               : a->kind == EIN__A_MUL ? x * y
                                       : x / y;
    if (a->kind == EIN__A_MOD) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "'%%' needs integers");
    } else if (!isfinite(v)) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "the value is not a finite number");
    } else {
        ein__ast *node = ein__env_real_node(ctx, a->pos, v);
        node->floored = l->floored || r->floored;
        return node;
    }
    return NULL;
}

// -v; false for what is no number.
static ein__ast *ein__env_negate(ein_ctx *ctx, const ein__ast *a, const ein__ast *kid) {
    int64_t v;
    if (!kid->integral) return ein__env_real_node(ctx, a->pos, -kid->num);
    if (!ein__mul_overflows(kid->inum, -1, &v)) {
        ein__ast *node = ein__env_int_node(ctx, a->pos, v);
        node->floored = kid->floored;
        return node;
    }
    ein__error(ctx, EIN_BAD_INPUT, a->pos, "the value does not fit 64 bits");
    return NULL;
}

static ein__ast *ein__env_copy(ein_ctx *ctx, const ein__ast *value, ein__pos pos) {
    ein__ast *copy = EIN__NEW(&ctx->arena, ein__ast, 1);
    *copy = *value;
    copy->pos = pos;
    return copy;
}

// The value of `a`: a number, a string, a list of values or, where `words` are allowed, a word that
// names no constant. NULL after a message.
static ein__ast *ein__env_value(ein__env *env, const ein__ast *a, bool words) {
    ein_ctx *ctx = env->ctx;
    if (a->kind == EIN__A_NUM || a->kind == EIN__A_STR) return ein__env_copy(ctx, a, a->pos);
    if (a->kind == EIN__A_NAME) {
        const ein__ast *value = ein__env_find(env, a->name);
        if (value) return ein__env_copy(ctx, value, a->pos);
        if (!strcmp(a->name, "inf")) return ein__env_real_node(ctx, a->pos, (double)INFINITY);
        return words ? ein__env_copy(ctx, a, a->pos) : ein__env_undefined(env, a);
    }
    bool list = a->kind == EIN__A_LIST;
    ein__ast **kid = EIN__NEW(&ctx->arena, ein__ast *, a->nkid + 1);
    for (int i = 0; i < a->nkid; i++) {
        kid[i] = ein__env_value(env, a->kid[i], words && list);
        if (!kid[i]) return NULL;
        if (list || kid[i]->kind == EIN__A_NUM) continue;
        ein__error(ctx, EIN_BAD_INPUT, a->kid[i]->pos, "a number is needed here");
        return NULL;
    }
    if (a->kind == EIN__A_NEG) return ein__env_negate(ctx, a, kid[0]);
    if (!list) return ein__env_binary(ctx, a, kid[0], kid[1]);
    ein__ast *copy = ein__env_copy(ctx, a, a->pos);
    copy->kid = kid;
    return copy;
}

static bool ein__env_int(ein__env *env, const ein__ast *a, int64_t *v) {
    const ein__ast *value = ein__env_value(env, a, false);
    if (!value) return false;
    if (value->kind != EIN__A_NUM || !value->integral) {
        ein__error(env->ctx, EIN_BAD_INPUT, a->pos, "an integer is needed here");
        return false;
    }
    *v = value->inum;
    return true;
}

// Sizes of a type as written in the model.
static bool ein__env_type(ein__env *env, const ein__type *type, ein__shape *shape) {
    shape->rank = type->rank;
    for (int i = 0; i < type->rank; i++) {
        if (!ein__env_int(env, type->dim[i], &shape->d[i])) return false;
        if (shape->d[i] < 1 || shape->d[i] > EIN__MAX_ELEMENTS) {
            ein__error(env->ctx, shape->d[i] < 1 ? EIN_BAD_INPUT : EIN_RESOURCES, type->dim[i]->pos,
                       "a size of %lld: sizes are 1 to "
                       "%lld",
                       (long long)shape->d[i], (long long)EIN__MAX_ELEMENTS);
            return false;
        }
    }
    if (ein__elements(shape) <= EIN__MAX_ELEMENTS) return true;
    ein__error(env->ctx, EIN_RESOURCES, type->pos, "the tensor has more than %lld elements",
               (long long)EIN__MAX_ELEMENTS);
    return false;
}

// ------------------------------------------------------------------------------------- dims

typedef struct ein__dim_def {
    ein__ident name;
    const ein__ast *value, *small;
} ein__dim_def;

// Values of all dims in the order of their definitions, into `env->dims`. With `small` the model's
// small values stand in for the dims they name, and the others follow by their expressions.
static bool ein__env_eval_dims(ein__env *env, const ein__dim_def *def, bool small) {
    shfree(env->dims);
    bool ok = true;
    for (ptrdiff_t i = 0; i < arrlen(def); i++) {
        ein_ctx *ctx = env->ctx;
        const ein__ast *a = small && def[i].small ? def[i].small : def[i].value;
        int64_t v = 0;
        bool given = false;
        for (ptrdiff_t k = 0; k < arrlen(ctx->dim_override); k++) {
            if (strcmp(ctx->dim_override[k].name, def[i].name.name)) continue;
            given = true;
            v = ctx->dim_override[k].value;
        }
        bool good = given || ein__env_int(env, a, &v);
        if (good && (v < 0 || v > EIN__MAX_ELEMENTS)) {
            ein__error(ctx, v < 0 ? EIN_BAD_INPUT : EIN_RESOURCES, given ? def[i].name.pos : a->pos,
                       "dim '%s' is %lld: dims are 0 to %lld", def[i].name.name, (long long)v,
                       (long long)EIN__MAX_ELEMENTS);
            good = false;
        }
        ok = ok && good;
        shput(env->dims, def[i].name.name, ein__env_int_node(ctx, def[i].name.pos, good ? v : 1));
        if (small) {
            ctx->graph.dim[i].small = v;
        } else {
            ctx->graph.dim[i].value = v;
        }
    }
    return ok;
}

// Gathers `dim` and `small` statements; false after a message.
static bool ein__env_collect(ein__env *env, ein__dim_def **def) {
    ein_ctx *ctx = env->ctx;
    bool ok = true;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < ctx->tree->nstmt; i++) {
            const ein__stmt *s = ctx->tree->stmt[i];
            if (s->kind != (pass ? EIN__ST_SMALL : EIN__ST_DIM)) continue;
            for (int k = 0; k < s->nname; k++) {
                const char *name = s->name[k].name, *best = NULL;
                ptrdiff_t at = shgeti(env->declared, name);
                int known = at < 0 ? -1 : env->declared[at].value, distance = 3;
                if (known < 0 && pass) {
                    for (ptrdiff_t d = 0; d < arrlen(*def); d++)
                        ein__suggest(name, (*def)[d].name.name, &best, &distance);
                    ein__error(ctx, EIN_BAD_INPUT, s->name[k].pos, "there is no dim '%s'%s", name,
                               ein__hint(ctx, best));
                    ok = false;
                } else if (known >= 0 && (!pass || (*def)[known].small)) {
                    ein__error(ctx, EIN_BAD_INPUT, s->name[k].pos, "%s '%s' is given twice",
                               pass ? "the small value of" : "dim", name);
                    ok = false;
                } else if (pass) {
                    (*def)[known].small = s->value[k];
                } else {
                    ein__dim_def d = {s->name[k], s->value[k], NULL};
                    shput(env->declared, name, (int)arrlen(*def));
                    arrput(*def, d);
                }
            }
        }
    }
    return ok;
}

static bool ein__env_overrides(ein__env *env, const ein__dim_def *def) {
    ein_ctx *ctx = env->ctx;
    bool ok = true;
    for (ptrdiff_t k = 0; k < arrlen(ctx->dim_override); k++) {
        const char *name = ctx->dim_override[k].name, *best = NULL;
        int distance = 3;
        if (shgeti(env->declared, name) >= 0) continue;
        for (ptrdiff_t i = 0; i < arrlen(def); i++)
            ein__suggest(name, def[i].name.name, &best, &distance);
        ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "the model has no dim '%s'%s", name,
                   ein__hint(ctx, best));
        ok = false;
    }
    return ok;
}

// Fills ctx->graph.dim and env->dims. In the graph, `value` is the one in use and `small` the one
// in the small set, which equals the full one where the model names no small set.
static bool ein__env_dims(ein__env *env) {
    ein_ctx *ctx = env->ctx;
    ein__dim_def *def = NULL;
    bool ok = ein__env_collect(env, &def) && ein__env_overrides(env, def);
    for (ptrdiff_t i = 0; ok && i < arrlen(def); i++) {
        ptrdiff_t at = arraddnindex(ctx->graph.dim, 1);
        ctx->graph.dim[at].name = def[i].name.name;
        ctx->graph.dim[at].pos = def[i].name.pos;
        ctx->graph.dim[at].value = ctx->graph.dim[at].small = 0;
    }
    bool small = ctx->desc.small;
    ok = ok && ein__env_eval_dims(env, def, !small) && ein__env_eval_dims(env, def, small);
    for (ptrdiff_t i = 0; small && ok && i < arrlen(def); i++)
        ctx->graph.dim[i].value = ctx->graph.dim[i].small;
    arrfree(def);
    return ok;
}
