// Names. A tensor's full name is the name as written, behind the result that its block was called
// for (`l1.a` owns `l1.a.k`) and before the numbers of the rounds it stands in (`w.0`, `w.0.1`). A
// name assigned in a round and visible before the repeat is carried: the next round and what
// follows the repeat see the new tensor. Every other name of a round ends with it. A name with dots
// may also be the full name, inside the block at hand, of a tensor made before.
//
// Where a block makes its result by calling another one, both own names behind the same result: in
// `z = outer(x)`, with `y = inner(t)` for outer's result y, a `w` of either is `z.w`. The name is
// outer's then, and inner's is spelled out, `z.y.w`: behind every result, as written, that the
// blocks around it were called for. Which tensors are spelled out is settled when all are known, so
// that it does not depend on what is defined first; names that one tensor alone has stay short.

// Tensor of a name whose statement was wrong: its uses stay silent.
enum { EIN__POISON = -1, EIN__MAX_OUTPUTS = 1000, EIN__MAX_BLOBS = 1000, EIN__MAX_SIZE = 2 << 20 };

typedef struct ein__binding {
    int tensor;
    int stamp;
} ein__binding;

// The full names that a tensor may have.
typedef struct ein__label {
    const char *brief;    // behind the result that its block was called for
    const char *spelled;  // behind all the results that the blocks around it were called for
    int calls;            // of blocks around the statement that it has its name from
} ein__label;

// One call of a block, or the model itself.
typedef struct ein__frame {
    const char *prefix;      // brief name of the first result called for; NULL for the model
    const char *path;        // that result spelled out, and so are those around it
    int calls;               // of blocks, this one too
    const ein__stmt *block;  // NULL for the model
    ein__label *left;        // names of its results
    const char *rounds;      // ".0.1", or ""
    int stamp;               // of the round at hand: one assignment a round and name
    struct {
        char *key;
        ein__binding value;
    } * name;            // sh map: what is visible
    const char **fresh;  // stb_ds array: names that end with a round at hand
} ein__frame;

typedef struct ein__claim {
    ein__label label;
    bool seeded;   // its seed is the hash of its name
    bool spelled;  // it does not get its brief name
} ein__claim;

typedef struct ein__owner {
    int tensor;   // that gets the name
    bool shared;  // others would have it too
} ein__owner;

typedef struct ein__expander {
    ein_ctx *ctx;
    ein__env env;
    struct {
        char *key;
        ein__owner value;
    } * brief;  // sh map: tensor by brief name
    struct {
        char *key;
        int value;
    } * spelled;        // sh map: tensor by the name spelled out
    ein__claim *claim;  // stb_ds array: of each tensor
    bool shared;        // a brief name has several claims
    struct {
        char *key;
        int value;
    } * block;  // sh map: statement by block's name
    struct {
        char *key;
        ein__type *value;
    } * declared;  // sh map: types of outputs
    int current;   // blocks defined before this statement may be called
    int steps, stamps;
    int depth;     // block calls and repeats around this statement
    int64_t size;  // tokens of all statements expanded so far
} ein__expander;

// ------------------------------------------------------------------------------------- names

static const char *ein__behind(ein__expander *x, const char *owner, const char *name,
                               const char *rounds) {
    if (owner) return ein__namef(x->ctx, "%s.%s%s", owner, name, rounds);
    return *rounds ? ein__namef(x->ctx, "%s%s", name, rounds) : name;
}

static ein__label ein__label_of(ein__expander *x, const ein__frame *f, const char *name) {
    ein__label label = {.calls = f->calls};
    for (int i = 0; f->block && i < f->block->nresult; i++) {
        if (f->block->result[i].name != name) continue;
        if (!*f->rounds) return f->left[i];
        label.brief = ein__behind(x, NULL, f->left[i].brief, f->rounds);
    }
    if (!label.brief) label.brief = ein__behind(x, f->prefix, name, f->rounds);
    label.spelled = ein__behind(x, f->path, name, f->rounds);
    return label;
}

static void ein__bind(ein__frame *f, const char *name, int tensor) {
    ein__binding b = {tensor, f->stamp};
    if (*f->rounds && shgeti(f->name, name) < 0) arrput(f->fresh, name);
    shput(f->name, name, b);
}

static void ein__poison(ein__frame *f, const ein__ident *name, int n) {
    for (int i = 0; i < n; i++)
        if (shgeti(f->name, name[i].name) < 0) ein__bind(f, name[i].name, EIN__POISON);
}

static int64_t ein__seed_of(const char *name) {
    return (int64_t)(ein__fnv(EIN__FNV_START, name, strlen(name)) % 2147483648u);
}

static bool ein__second(ein__expander *x, const char *full, ein__pos pos, int first) {
    ein__error(x->ctx, EIN_BAD_INPUT, pos,
               "a second tensor with the full name '%s': the "
               "first is defined in line %u",
               full, (unsigned)x->ctx->graph.tensor[first].pos.line);
    return false;
}

static bool ein__long_name(ein__expander *x, ein__ident name) {
    ein__error(x->ctx, EIN_RESOURCES, name.pos, "the full name of '%s' is longer than %d bytes",
               name.name, EIN__MAX_NAME);
    return false;
}

// Whether `name` may be assigned here; the message says where it was before.
static bool ein__assignable(ein__expander *x, ein__frame *f, ein__ident name) {
    ein__binding *b = NULL;
    ptrdiff_t at = shgeti(f->name, name.name);
    if (at >= 0) b = &f->name[at].value;
    ein__label label = ein__label_of(x, f, name.name);
    const ein__tensor *tensor = x->ctx->graph.tensor;
    if (b && b->stamp == f->stamp) {
        if (b->tensor != EIN__POISON)
            ein__error(x->ctx, EIN_BAD_INPUT, name.pos,
                       "'%s' is assigned twice: it is defined in "
                       "line %u",
                       name.name, (unsigned)tensor[b->tensor].pos.line);
        return false;
    }
    at = shgeti(x->spelled, label.spelled);
    int first = at < 0 ? -1 : x->spelled[at].value;
    // Spelled out they would still be one.
    if (at >= 0 && x->claim[first].label.brief == label.brief)
        return ein__second(x, label.brief, name.pos, first);
    if (strlen(label.brief) <= EIN__MAX_NAME) return true;
    return ein__long_name(x, name);
}

static int ein__add_tensor(ein__expander *x, ein__frame *f, ein__ident name, ein__tensor t) {
    int id = (int)arrlen(x->ctx->graph.tensor);
    ein__claim claim = {.label = ein__label_of(x, f, name.name)};
    const ein__label *label = &claim.label;
    t.name = label->brief;
    t.pos = name.pos;
    arrput(x->ctx->graph.tensor, t);
    arrput(x->claim, claim);
    ptrdiff_t at = shgeti(x->brief, label->brief);
    ein__owner owner = {id, at >= 0};
    if (at >= 0) {
        // The name is that of the tensor which has no other one, else of the outermost.
        const ein__label *other = &x->claim[x->brief[at].value.tensor].label;
        bool yields = other->brief != other->spelled &&
                      (label->brief == label->spelled || label->calls < other->calls);
        if (!yields) owner.tensor = x->brief[at].value.tensor;
        x->shared = true;
    }
    shput(x->brief, label->brief, owner);
    shput(x->spelled, label->spelled, id);
    ein__bind(f, name.name, id);
    return id;
}

// Gives tensors whose brief name is another's, or is one that another is spelled, the name spelled
// out; false after a message.
static bool ein__settle_names(ein__expander *x) {
    ein__tensor *tensor = x->ctx->graph.tensor;
    ptrdiff_t n = x->shared ? arrlen(tensor) : 0;
    bool again = n > 0, ok = true;
    for (ptrdiff_t i = 0; i < n; i++)
        x->claim[i].spelled = shget(x->brief, x->claim[i].label.brief).tensor != i;
    while (again) {
        again = false;
        for (ptrdiff_t i = 0; i < n; i++) {
            ptrdiff_t at = x->claim[i].spelled ? shgeti(x->brief, x->claim[i].label.spelled) : -1;
            if (at < 0) continue;
            ein__claim *other = &x->claim[x->brief[at].value.tensor];
            if (other->spelled || other->label.brief == other->label.spelled) continue;
            other->spelled = again = true;
        }
    }
    struct {
        char *key;
        int value;
    } *named = NULL;
    for (ptrdiff_t i = 0; ok && i < n; i++) {
        ein__tensor *t = &tensor[i];
        if (x->claim[i].spelled) t->name = x->claim[i].label.spelled;
        if (x->claim[i].seeded) t->seed = ein__seed_of(t->name);
        ptrdiff_t at = shgeti(named, t->name);
        if (at >= 0) {
            ok = ein__second(x, t->name, t->pos, named[at].value);
        } else if (strlen(t->name) > EIN__MAX_NAME) {
            ok = ein__long_name(x, (ein__ident){t->name, t->pos});
        } else {
            shput(named, t->name, (int)i);
        }
    }
    shfree(named);
    return ok;
}

// The line of the model's own statements from this one on that defines `name`, or 0.
static uint32_t ein__defined_from(const ein__expander *x, int first, const char *name) {
    const struct ein__tree *tree = x->ctx->tree;
    for (int i = first; i < tree->nstmt; i++) {
        const ein__stmt *s = tree->stmt[i];
        bool makes = s->kind == EIN__ST_OPERATOR || s->kind == EIN__ST_EQUATION ||
                     s->kind == EIN__ST_INPUT || s->kind == EIN__ST_WEIGHT;
        for (int k = 0; makes && k < s->nname; k++)
            if (s->name[k].name == name) return s->name[k].pos.line;
    }
    return 0;
}

// Tensor whose full name inside the block at hand is `name`, or EIN__POISON - 1.
static int ein__look_up_full(ein__expander *x, const ein__frame *f, const char *name) {
    ptrdiff_t at = shgeti(x->brief, ein__behind(x, f->prefix, name, ""));
    ptrdiff_t spelled = -1;
    if (!f->path || strlen(f->path) <= EIN__MAX_NAME)
        spelled = shgeti(x->spelled, ein__behind(x, f->path, name, ""));
    bool sure = at >= 0 && !x->brief[at].value.shared;
    if (spelled >= 0) {
        int tensor = x->spelled[spelled].value;
        if (!sure || shget(x->brief, x->claim[tensor].label.brief).shared) return tensor;
    }
    return sure ? x->brief[at].value.tensor : EIN__POISON - 1;
}

// Tensor that `name` means, or EIN__POISON; EIN__POISON - 1 after a message.
static int ein__look_up(ein__expander *x, ein__frame *f, const char *name, ein__pos pos) {
    ptrdiff_t at = shgeti(f->name, name);
    if (at >= 0) return f->name[at].value.tensor;
    int tensor = strchr(name, '.') ? ein__look_up_full(x, f, name) : EIN__POISON - 1;
    if (tensor >= 0) return tensor;
    const char *best = NULL;
    int distance = 3;
    for (ptrdiff_t i = 0; i < shlen(f->name); i++)
        ein__suggest(name, f->name[i].key, &best, &distance);
    uint32_t line = ein__defined_from(x, f->block ? 0 : x->current, name);
    const char *where = f->block ? " in this block: line %u has it, outside; make it an operand"
                                 : " here: it is defined in line %u";
    ein__error(x->ctx, EIN_BAD_INPUT, pos, "undefined tensor '%s'%s", name,
               line ? ein__namef(x->ctx, where, line) : ein__hint(x->ctx, best));
    return EIN__POISON - 1;
}

// ------------------------------------------------------------------------------------- equations

// An equation being copied: constants become numbers, names of tensors are looked up.
typedef struct ein__eq_copy {
    ein__expander *x;
    ein__frame *f;
    const char **index;  // stb_ds array: indices in scope
    int *in;             // stb_ds arrays: tensors read and their names in the text
    const char **in_name;
    bool poisoned;
} ein__eq_copy;

static bool ein__eq_is_index(const ein__eq_copy *c, const char *name) {
    for (ptrdiff_t i = arrlen(c->index); i-- > 0;)
        if (c->index[i] == name) return true;
    return false;
}

static bool ein__eq_bind_index(ein__eq_copy *c, const char *name, ein__pos pos) {
    if (ein__env_find(&c->x->env, name)) {
        ein__error(c->x->ctx, EIN_BAD_INPUT, pos,
                   "index '%s' has the name of a dim, parameter or "
                   "loop variable",
                   name);
        return false;
    }
    arrput(c->index, name);
    return true;
}

static ein__ast *ein__eq_unknown_index(ein__eq_copy *c, const ein__ast *a) {
    const char *best = NULL;
    int distance = 3;
    for (ptrdiff_t i = 0; i < arrlen(c->index); i++)
        ein__suggest(a->name, c->index[i], &best, &distance);
    ein__env_suggest(&c->x->env, a->name, &best, &distance);
    ein__error(c->x->ctx, EIN_BAD_INPUT, a->pos, "'%s' is no index here and no dim%s", a->name,
               best ? ein__hint(c->x->ctx, best)
                    : ein__namef(c->x->ctx, ": indices stand on the left or in sum(%s)", a->name));
    return NULL;
}

static ein__ast *ein__eq_name(ein__eq_copy *c, const ein__ast *a) {
    ein_ctx *ctx = c->x->ctx;
    if (ein__eq_is_index(c, a->name)) return ein__env_copy(ctx, a, a->pos);
    const ein__ast *value = ein__env_find(&c->x->env, a->name);
    if (!value) return ein__eq_unknown_index(c, a);
    if (value->kind == EIN__A_NUM && value->integral) return ein__env_copy(ctx, value, a->pos);
    ein__error(ctx, EIN_BAD_INPUT, a->pos, "'%s' is not an integer", a->name);
    return NULL;
}

// A subscript or a side of a guard: affine in the indices but for `/` and `%` by constants.
static ein__ast *ein__eq_subscript(ein__eq_copy *c, const ein__ast *a) {
    ein_ctx *ctx = c->x->ctx;
    if (a->kind == EIN__A_NUM) return ein__env_copy(ctx, a, a->pos);
    if (a->kind == EIN__A_NAME) return ein__eq_name(c, a);
    ein__ast **kid = EIN__NEW(&ctx->arena, ein__ast *, a->nkid);
    bool constant = true;
    for (int i = 0; i < a->nkid; i++) {
        kid[i] = ein__eq_subscript(c, a->kid[i]);
        if (!kid[i]) return NULL;
        constant = constant && kid[i]->kind == EIN__A_NUM;
    }
    if (constant)
        return a->kind == EIN__A_NEG ? ein__env_negate(ctx, a, kid[0])
                                     : ein__env_binary(ctx, a, kid[0], kid[1]);
    const char *why = NULL;
    if (a->kind == EIN__A_MUL && kid[0]->kind != EIN__A_NUM && kid[1]->kind != EIN__A_NUM)
        why = "a product of two indices is not affine";
    if ((a->kind == EIN__A_DIV || a->kind == EIN__A_MOD) &&
        (kid[1]->kind != EIN__A_NUM || kid[1]->inum <= 0))
        why = "an index is divided by positive constants only";
    if (why) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "%s", why);
        return NULL;
    }
    ein__ast *copy = ein__env_copy(ctx, a, a->pos);
    copy->kid = kid;
    return copy;
}

// Notes that the equation reads `name`.
static bool ein__eq_use(ein__eq_copy *c, const char *name, ein__pos pos) {
    for (ptrdiff_t i = 0; i < arrlen(c->in); i++)
        if (c->in_name[i] == name) return true;
    int tensor = ein__look_up(c->x, c->f, name, pos);
    if (tensor < EIN__POISON) return false;
    if (tensor == EIN__POISON) c->poisoned = true;
    if (arrlen(c->in) == EIN__MAX_ARGS) {
        ein__error(c->x->ctx, EIN_RESOURCES, pos, "an equation reads more than %d tensors",
                   EIN__MAX_ARGS);
        return false;
    }
    arrput(c->in, tensor);
    arrput(c->in_name, name);
    return true;
}

static ein__ast *ein__eq_expr(ein__eq_copy *c, const ein__ast *a);

// @i[..]: the tensor in the place of an index holds integers.
static ein__ast *ein__eq_gather(ein__eq_copy *c, const ein__ast *a) {
    ein__ast *read = ein__eq_expr(c, a->kid[0]);
    if (!read) return NULL;
    for (ptrdiff_t i = 0; i < arrlen(c->in); i++) {
        if (c->in_name[i] != read->name || c->in[i] == EIN__POISON) continue;
        ein__dtype dtype = c->x->ctx->graph.tensor[c->in[i]].dtype;
        if (dtype > EIN__BF16 && dtype != EIN__BOOL) continue;
        ein__error(c->x->ctx, EIN_BAD_INPUT, a->pos, "'%s' is %s: '@' needs a tensor of integers",
                   read->name, ein__dtype_name(dtype));
        return NULL;
    }
    ein__ast *copy = ein__env_copy(c->x->ctx, a, a->pos);
    copy->kid = EIN__NEW(&c->x->ctx->arena, ein__ast *, 1);
    copy->kid[0] = read;
    return copy;
}

// Whether f32, in which programs compute, has a finite number like `v`, or `v` is infinite.
static bool ein__eq_number(ein__eq_copy *c, ein__pos pos, double v) {
    if (isfinite((float)v) || isinf(v)) return true;
    ein__error(c->x->ctx, EIN_BAD_INPUT, pos, "a number beyond f32's range");
    return false;
}

static ein__ast *ein__eq_expr(ein__eq_copy *c, const ein__ast *a) {
    ein_ctx *ctx = c->x->ctx;
    if (a->kind == EIN__A_NUM && !ein__eq_number(c, a->pos, a->num)) return NULL;
    ptrdiff_t scope = arrlen(c->index);
    if (a->kind == EIN__A_READ && !ein__eq_use(c, a->name, a->pos)) return NULL;
    bool subscripts = a->kind == EIN__A_READ || a->kind == EIN__A_GUARD || a->kind == EIN__A_IDX;
    ein__ast *copy = ein__env_copy(ctx, a, a->pos);
    copy->kid = EIN__NEW(&ctx->arena, ein__ast *, a->nkid + 1);
    for (int i = 0; i < a->nkid; i++) {
        const ein__ast *kid = a->kid[i];
        if (a->kind == EIN__A_REDUCE && i + 1 < a->nkid) {
            if (!ein__eq_bind_index(c, kid->name, kid->pos)) return NULL;
            copy->kid[i] = ein__env_copy(ctx, kid, kid->pos);
        } else if (kid->kind == EIN__A_GATHER) {
            copy->kid[i] = ein__eq_gather(c, kid);
        } else if (a->kind == EIN__A_GUARD) {
            copy->kid[i] = ein__env_copy(ctx, kid, kid->pos);
            copy->kid[i]->kid = EIN__NEW(&ctx->arena, ein__ast *, 2);
            for (int k = 0; k < 2; k++)
                if (!(copy->kid[i]->kid[k] = ein__eq_subscript(c, kid->kid[k]))) return NULL;
        } else {
            copy->kid[i] = subscripts ? ein__eq_subscript(c, kid) : ein__eq_expr(c, kid);
        }
        if (!copy->kid[i]) return NULL;
    }
    arrsetlen(c->index, (size_t)scope);
    return copy;
}

static bool ein__eq_pad(ein__eq_copy *c, const ein__ast *a, ein__padval *pad) {
    ein_ctx *ctx = c->x->ctx;
    const char *best = NULL;
    int distance = 3;
    bool read = false;
    for (ptrdiff_t i = 0; i < arrlen(c->in); i++) {
        read = read || c->in_name[i] == pad->tensor;
        ein__suggest(pad->tensor, c->in_name[i], &best, &distance);
    }
    if (!read) {
        ein__error(ctx, EIN_BAD_INPUT, pad->pos, "'%s' is not read by this equation%s", pad->tensor,
                   ein__hint(ctx, best));
        return false;
    }
    const ein__ast *value = ein__env_value(&c->x->env, a, false);
    if (!value) return false;
    if (value->kind != EIN__A_NUM) {
        ein__error(ctx, EIN_BAD_INPUT, a->pos, "padding is a number");
        return false;
    }
    pad->value = value->num;
    return ein__eq_number(c, a->pos, value->num);
}

// A tensor that is read by two names has one padding.
static bool ein__eq_one_padding(ein__eq_copy *c, const ein__equation *eq) {
    int tensor[2 * EIN__MAX_ARGS];
    for (int i = 0; i < eq->npad; i++) {
        for (ptrdiff_t k = 0; k < arrlen(c->in); k++)
            if (c->in_name[k] == eq->pad[i].tensor) tensor[i] = c->in[k];
        for (int k = 0; k < i; k++) {
            if (tensor[k] != tensor[i] || eq->pad[k].value == eq->pad[i].value) continue;
            ein__error(c->x->ctx, EIN_BAD_INPUT, eq->pad[i].pos,
                       "'%s' and '%s' are one tensor, "
                       "with two paddings",
                       eq->pad[k].tensor, eq->pad[i].tensor);
            return false;
        }
    }
    return true;
}

// Adds the ranges that a declared type gives to the result's indices, where `where` says nothing.
static void ein__eq_declared(ein_ctx *ctx, ein__equation *eq, const ein__shape *declared) {
    int given = eq->nrange;
    for (int i = 0; declared && declared->rank == eq->rank && i < eq->rank; i++) {
        ein__range r = {.name = eq->index[i], .pos = eq->index_pos[i]};
        bool known = false;
        for (int k = 0; k < given; k++) known = known || eq->range[k].name == r.name;
        if (known) continue;
        r.lo = ein__env_int_node(ctx, r.pos, 0);
        r.hi = ein__env_int_node(ctx, r.pos, declared->d[i]);
        eq->range[eq->nrange++] = r;
    }
}

// The equation of statement `s` with all constants replaced; NULL after a message.
static ein__equation *ein__eq_copy_all(ein__eq_copy *c, const ein__stmt *s,
                                       const ein__shape *declared) {
    ein_ctx *ctx = c->x->ctx;
    ein__equation *eq = EIN__NEW(&ctx->arena, ein__equation, 1);
    *eq = *s->eq;
    eq->range = EIN__NEW(&ctx->arena, ein__range, eq->nrange + eq->rank + 1);
    eq->pad = EIN__NEW(&ctx->arena, ein__padval, eq->npad + 1);
    for (int i = 0; i < eq->rank; i++)
        if (!ein__eq_bind_index(c, eq->index[i], eq->index_pos[i])) return NULL;
    eq->body = ein__eq_expr(c, s->eq->body);
    if (!eq->body) return NULL;
    for (int i = 0; i < eq->nrange; i++) {
        const ein__range *from = &s->eq->range[i];
        int64_t lo, hi;
        if (!ein__env_int(&c->x->env, from->lo, &lo) || !ein__env_int(&c->x->env, from->hi, &hi))
            return NULL;
        eq->range[i] = *from;
        eq->range[i].lo = ein__env_int_node(ctx, from->lo->pos, lo);
        eq->range[i].hi = ein__env_int_node(ctx, from->hi->pos, hi);
    }
    ein__eq_declared(ctx, eq, declared);
    for (int i = 0; i < eq->npad; i++) {
        eq->pad[i] = s->eq->pad[i];
        if (!ein__eq_pad(c, s->pad[i], &eq->pad[i])) return NULL;
    }
    return ein__eq_one_padding(c, eq) ? eq : NULL;
}

static bool ein__too_large(ein__expander *x, ein__ident name, const ein__shape *shape) {
    for (int i = 0; i < shape->rank; i++)
        if (shape->d[i] < 1) {
            ein__error(x->ctx, EIN_BAD_INPUT, name.pos, "'%s' has size %lld in dimension %d",
                       name.name, (long long)shape->d[i], i);
            return true;
        }
    if (ein__elements(shape) <= EIN__MAX_ELEMENTS) return false;
    ein__error(x->ctx, EIN_RESOURCES, name.pos, "'%s' has more than %lld elements", name.name,
               (long long)EIN__MAX_ELEMENTS);
    return true;
}

// The shape an output statement declares for tensor `name` of the model, or NULL.
static const ein__shape *ein__declared(ein__expander *x, const ein__frame *f, const char *name,
                                       ein__shape *shape) {
    ptrdiff_t at = f->block || *f->rounds ? -1 : shgeti(x->declared, name);
    ein__type *type = at < 0 ? NULL : x->declared[at].value;
    if (!type || type->bad) return NULL;
    type->bad = !ein__env_type(&x->env, type, shape);
    return type->bad ? NULL : shape;
}

static bool ein__expand_equation(ein__expander *x, ein__frame *f, const ein__stmt *s) {
    ein__eq_copy c = {.x = x, .f = f};
    ein__ident name = {s->eq->result, s->eq->pos};
    ein__node node = {.pos = s->pos, .nout = 1};
    ein__tensor t = {
        .kind = EIN__T_VALUE, .dtype = EIN__F32, .node = (int)arrlen(x->ctx->graph.node)};
    ein__shape shape;
    const ein__shape *declared = ein__declared(x, f, name.name, &shape);
    bool ok = (node.eq = ein__eq_copy_all(&c, s, declared)) != NULL;
    bool poisoned = c.poisoned;
    arrfree(c.index);
    EIN__KEEP(x, node.in, node.nin, c.in);
    EIN__KEEP(x, node.in_name, node.nin, c.in_name);
    ok = ok && ein__assignable(x, f, name);
    if (ok && !poisoned)
        ok = ein__resolve_equation(x->ctx, &node, &t.shape, t.lo) &&
             !ein__too_large(x, name, &t.shape);
    if (!ok || poisoned) {
        ein__poison(f, &name, 1);
        return ok;
    }
    node.out = EIN__NEW(&x->ctx->arena, int, 1);
    node.out[0] = ein__add_tensor(x, f, name, t);
    arrput(x->ctx->graph.node, node);
    return true;
}
