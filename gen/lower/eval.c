// Reference interpreter in double precision: the meaning of a scope, computed the plain way. A body
// is compiled once to a list of instructions; each works on a strip, a run of consecutive values of
// one iterator, so that the cost of interpretation is shared by the strip's lanes.

enum { EIN__LANES = 256 };                   // most lanes of a strip
#define EIN__EVAL_BYTES ((int64_t)16 << 30)  // most memory for values

typedef struct ein__ev_term {
    int64_t k;
    uint32_t i;
} ein__ev_term;

// An index form over the strip: (c + sum k * iterator + sum k * integer register + step * lane) /
// q. Iterators are taken at the strip's first lane.
typedef struct ein__ev_form {
    int64_t c, q, step;
    uint32_t nterm, natom;
    bool uniform;  // the same in every lane
    ein__ev_term term[EIN__MAX_ITERS], atom[EIN__MAX_TERMS];
} ein__ev_form;

// One axis of a read: the index is form / q, inside when in [0, extent).
typedef struct ein__ev_axis {
    uint32_t form;
    int64_t extent, stride;
} ein__ev_axis;

typedef enum { EIN__EV_FLOOR = EIN__X_SELECT + 1, EIN__EV_MOD, EIN__EV_GATHER } ein__ev_op;

// Instruction k writes register k: `v`, or `w` for the integer ones (ein__ev_op). A uniform
// instruction has one lane only.
typedef struct ein__ev_ins {
    uint32_t op, fn;
    uint32_t kid[4];
    uint32_t form;  // IDX, WHEN, FLOOR, MOD; READ when affine: the address
    bool uniform, negate;
    bool affine;  // READ: indices are affine without denominators; `axis` are those to test
    uint32_t axis, naxis;
    const double *data;  // READ
    double value;        // CONST; READ: padding
    int64_t n;           // WHEN: extent; FLOOR, MOD: divisor
    double *v;
    int64_t *w;
} ein__ev_ins;

typedef struct ein__ev_reg {
    uint32_t atom, reg;
} ein__ev_reg;

typedef struct ein__ev {
    ein_ctx *ctx;
    const ein__scope *s;
    double *const *data;
    uint32_t strip;    // the iterator that lanes run along; EIN__MAX_ITERS: none
    ein__ev_ins *ins;  // stb_ds arrays
    ein__ev_form *form;
    ein__ev_axis *axis;
    uint32_t *reg_of;    // register + 1 by expression id, 0: not compiled
    uint32_t *compiled;  // stb_ds array: expressions with an entry in reg_of
    ein__ev_reg *atom;   // stb_ds array: registers of floors, mods and gathers
    int lanes;
    double *memory;  // of the registers
    int64_t it[EIN__MAX_ITERS];
} ein__ev;

// ------------------------------------------------------------------------------------ compilation

static uint32_t ein__ev_expr(ein__ev *p, ein__ex ex);
static uint32_t ein__ev_atom(ein__ev *p, uint32_t atom);

static uint32_t ein__ev_add(ein__ev *p, const ein__ev_ins *ins) {
    arrput(p->ins, *ins);
    return (uint32_t)arrlen(p->ins) - 1;
}

static void ein__ev_put_iter(ein__ev *p, ein__ev_form *f, uint32_t slot, int64_t k) {
    if (slot == p->strip) {
        f->step = (int64_t)((uint64_t)f->step + (uint64_t)k);
        f->uniform = false;
    }
    uint32_t j = 0;
    while (j < f->nterm && f->term[j].i != slot) j++;
    if (j == f->nterm) f->term[f->nterm++] = (ein__ev_term){0, slot};
    f->term[j].k = (int64_t)((uint64_t)f->term[j].k + (uint64_t)k);
}

static uint32_t ein__ev_index(ein__ev *p, ein__ix ix) {
    const ein__index *f = ein__ix_get(p->ctx, ix);
    ein__ev_form r = {.c = f->c, .q = f->q, .uniform = true};
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(p->ctx, f->t[i].atom);
        if (a->kind == EIN__ITER) {
            ein__ev_put_iter(p, &r, a->slot, f->t[i].k);
        } else {
            uint32_t reg = ein__ev_atom(p, f->t[i].atom);
            r.atom[r.natom++] = (ein__ev_term){f->t[i].k, reg};
            r.uniform = r.uniform && p->ins[reg].uniform;
        }
    }
    arrput(p->form, r);
    return (uint32_t)arrlen(p->form) - 1;
}

static uint32_t ein__ev_atom(ein__ev *p, uint32_t atom) {
    for (ptrdiff_t i = 0; i < arrlen(p->atom); i++)
        if (p->atom[i].atom == atom) return p->atom[i].reg;
    const ein__atom *a = ein__atom_get(p->ctx, atom);
    ein__ev_ins ins = {.n = a->n};
    if (a->kind == EIN__GATHER) {
        ins.op = EIN__EV_GATHER;
        ins.kid[0] = ein__ev_expr(p, (ein__ex){a->ex});
        ins.uniform = p->ins[ins.kid[0]].uniform;
    } else {
        ins.op = a->kind == EIN__FLOOR ? EIN__EV_FLOOR : EIN__EV_MOD;
        ins.form = ein__ev_index(p, (ein__ix){a->ix});
        ins.uniform = p->form[ins.form].uniform;
    }
    uint32_t reg = ein__ev_add(p, &ins);
    ein__ev_reg known = {atom, reg};
    arrput(p->atom, known);
    return reg;
}

// The address of an affine read: wrapping arithmetic, since it is used in range only.
static uint32_t ein__ev_address(ein__ev *p, const ein__expr *e, const int64_t *stride) {
    ein__ev_form r = {.q = 1, .uniform = true};
    uint64_t c = 0;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(p->ctx, e->ix[k]);
        c += (uint64_t)f->c * (uint64_t)stride[k];
        for (uint32_t i = 0; i < f->n; i++)
            ein__ev_put_iter(p, &r, ein__atom_get(p->ctx, f->t[i].atom)->slot,
                             (int64_t)((uint64_t)f->t[i].k * (uint64_t)stride[k]));
    }
    r.c = (int64_t)c;
    arrput(p->form, r);
    return (uint32_t)arrlen(p->form) - 1;
}

static void ein__ev_read(ein__ev *p, const ein__expr *e, ein__ev_ins *ins) {
    const ein__shape *s = &p->ctx->value[e->val].shape;
    int64_t stride[EIN__MAX_RANK], all = 1;
    ein__ev_axis axis[EIN__MAX_RANK];
    ins->data = p->data[e->val];
    ins->value = ein__f64_of(e->bits);
    ins->affine = ins->uniform = true;
    for (uint32_t k = e->nix; k-- > 0; all *= s->d[k]) stride[k] = all;
    for (uint32_t k = 0; k < e->nix; k++)
        ins->affine &= ein__ix_affine(p->ctx, e->ix[k]) && ein__ix_get(p->ctx, e->ix[k])->q == 1;
    for (uint32_t k = 0; k < e->nix; k++) {
        const ein__index *f = ein__ix_get(p->ctx, e->ix[k]);
        if (ins->affine && f->lo >= 0 && f->hi < s->d[k]) continue;
        axis[ins->naxis++] = (ein__ev_axis){ein__ev_index(p, e->ix[k]), s->d[k], stride[k]};
        ins->uniform = ins->uniform && p->form[axis[ins->naxis - 1].form].uniform;
    }
    if (ins->affine) {
        ins->form = ein__ev_address(p, e, stride);
        ins->uniform = ins->uniform && p->form[ins->form].uniform;
    }
    ins->axis = (uint32_t)arrlen(p->axis);
    for (uint32_t k = 0; k < ins->naxis; k++) arrput(p->axis, axis[k]);
}

// Register of an expression. Every part is computed in every lane; WHEN and SELECT choose, which is
// the same as not evaluating, since nothing has effects.
static uint32_t ein__ev_expr(ein__ev *p, ein__ex ex) {
    if (p->reg_of[ex.i]) return p->reg_of[ex.i] - 1;
    const ein__expr *e = ein__ex_get(p->ctx, ex);
    ein__ev_ins ins = {.op = e->op, .fn = e->fn, .uniform = true};
    for (uint32_t i = 0; i < e->nkid; i++) {
        ins.kid[i] = ein__ev_expr(p, e->kid[i]);
        ins.uniform = ins.uniform && p->ins[ins.kid[i]].uniform;
    }
    if (e->op == EIN__X_CONST) {
        ins.value = ein__f64_of(e->bits);
    } else if (e->op == EIN__X_READ) {
        ein__ev_read(p, e, &ins);
    } else if (e->op == EIN__X_IDX || e->op == EIN__X_WHEN) {
        ins.form = ein__ev_index(p, e->ix[0]);
        ins.uniform = ins.uniform && p->form[ins.form].uniform;
        ins.n = e->n;
        ins.negate = e->negate != 0;
    }
    uint32_t reg = ein__ev_add(p, &ins);
    p->reg_of[ex.i] = reg + 1;
    arrput(p->compiled, ex.i);
    return reg;
}

// Cost of running along `slot`: elements on other cache lines, and more so on other pages, are
// slow.
static int ein__ev_stride_cost(const ein__ev *p, const ein__ex *reads, uint32_t slot) {
    int cost = 0;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(p->ctx, reads[i]);
        uint64_t stride = 0, all = 1;
        for (uint32_t k = e->nix; k-- > 0; all *= (uint64_t)p->ctx->value[e->val].shape.d[k]) {
            if (!(ein__ix_uses(p->ctx, e->ix[k]) >> slot & 1)) continue;
            int64_t coef = ein__ix_coef(p->ctx, e->ix[k], slot);
            stride += (coef ? (uint64_t)(coef < 0 ? -coef : coef) : 1) * all;
        }
        cost += stride == 0 ? 0 : stride == 1 ? 1 : stride < 8 ? 3 : stride < 512 ? 8 : 24;
    }
    return cost;
}

// The iterator with a long enough range and the least cost; else the longest.
static uint32_t ein__ev_choose_strip(const ein__ev *p) {
    enum { ENOUGH = 48 };
    const ein__ex *reads = ein__ex_reads(p->ctx, p->s->body);
    uint32_t best = EIN__MAX_ITERS, n = p->s->nt + p->s->ns;
    int64_t length = 1;
    int cost = 0;
    for (uint32_t k = n; k-- > 0;) {
        int64_t l = p->s->n[k] < ENOUGH ? p->s->n[k] : ENOUGH;
        if (l < length || l == 1) continue;
        int c = ein__ev_stride_cost(p, reads, k);
        if (l == length && c >= cost) continue;
        best = k;
        length = l;
        cost = c;
    }
    return best;
}

static bool ein__ev_compile(ein__ev *p) {
    p->strip = ein__ev_choose_strip(p);
    ein__ev_expr(p, p->s->body);
    int64_t n = arrlen(p->ins), vectors = 0;
    for (int64_t i = 0; i < n; i++) vectors += !p->ins[i].uniform;
    p->lanes = EIN__LANES;
    while (p->lanes > 8 && vectors * p->lanes > 1 << 22) p->lanes /= 2;
    int64_t doubles = n - vectors + vectors * p->lanes;
    p->memory = EIN_REALLOC(NULL, (size_t)doubles * sizeof *p->memory);
    if (!p->memory) return false;
    double *at = p->memory;
    for (int64_t i = 0; i < n; i++) {
        p->ins[i].v = at;
        p->ins[i].w = (int64_t *)(void *)at;
        at += p->ins[i].uniform ? 1 : p->lanes;
    }
    return true;
}

static void ein__ev_free(ein__ev *p) {
    for (ptrdiff_t i = 0; i < arrlen(p->compiled); i++) p->reg_of[p->compiled[i]] = 0;
    arrfree(p->compiled);
    arrfree(p->ins);
    arrfree(p->form);
    arrfree(p->axis);
    arrfree(p->atom);
    EIN_FREE(p->memory);
}

// ------------------------------------------------------------------------------------ functions

EIN__FN double ein__apply_unary(ein__fn fn, double x) {
    switch ((int)fn) {
    case EIN__NEG: return -x;
    case EIN__ABS: return fabs(x);
    case EIN__RELU: return x < 0 ? 0 : x;
    case EIN__TANH: return tanh(x);
    case EIN__EXP: return exp(x);
    case EIN__LOG: return log(x);
    case EIN__SQRT: return sqrt(x);
    case EIN__RSQRT: return 1 / sqrt(x);
    case EIN__ERF: return erf(x);
    case EIN__SIGMOID: return 1 / (1 + exp(-x));
    case EIN__FLOORF: return floor(x);
    case EIN__CEILF: return ceil(x);
    case EIN__SQUARE: return x * x;
    case EIN__SIN: return sin(x);
    case EIN__COS: return cos(x);
    case EIN__ATAN: return atan(x);
    default: return (double)NAN;
    }
}

EIN__FN double ein__apply_binary(ein__fn fn, double x, double y) {
    switch ((int)fn) {
    case EIN__ADD: return x + y;
    case EIN__SUB: return x - y;
    case EIN__MUL: return x * y;
    case EIN__DIV: return x / y;
    case EIN__POW: return pow(x, y);
    case EIN__QUOT: return trunc(x / y);
    case EIN__REM: return fmod(x, y);
    case EIN__MIN: return fmin(x, y);
    case EIN__MAX: return fmax(x, y);
    default: return (double)NAN;
    }
}

EIN__FN bool ein__apply_cmp(ein__fn fn, double x, double y) {
    switch ((int)fn) {
    case EIN__EQ: return x == y;
    case EIN__NE: return x != y;
    case EIN__LT: return x < y;
    case EIN__LE: return x <= y;
    case EIN__GT: return x > y;
    default: return x >= y;
    }
}

// ------------------------------------------------------------------------------------ one strip

// Numerator of a form at lane 0, registers left out. Sums wrap: only their final values are
// bounded.
static int64_t ein__ev_base(const ein__ev *p, const ein__ev_form *f) {
    uint64_t sum = (uint64_t)f->c;
    for (uint32_t i = 0; i < f->nterm; i++)
        sum += (uint64_t)f->term[i].k * (uint64_t)p->it[f->term[i].i];
    return (int64_t)sum;
}

static int64_t ein__ev_at(const ein__ev *p, const ein__ev_form *f, int64_t base, int lane) {
    uint64_t sum = (uint64_t)base + (uint64_t)f->step * (uint64_t)lane;
    for (uint32_t i = 0; i < f->natom; i++) {
        const ein__ev_ins *a = &p->ins[f->atom[i].i];
        sum += (uint64_t)f->atom[i].k * (uint64_t)a->w[a->uniform ? 0 : lane];
    }
    return (int64_t)sum;
}

// Lanes [from, to) of m in which every tested axis of an affine read is inside.
static void ein__ev_inside(const ein__ev *p, const ein__ev_ins *r, int m, int *from, int *to) {
    int64_t lo = 0, hi = m;
    for (uint32_t k = 0; k < r->naxis; k++) {
        const ein__ev_axis *a = &p->axis[r->axis + k];
        const ein__ev_form *f = &p->form[a->form];
        int64_t base = ein__ev_base(p, f), step = f->step, last = a->extent - 1;
        if (!step) {
            if (base < 0 || base > last) hi = lo;
            continue;
        }
        int64_t first = step > 0 ? -ein__floordiv(base, step) : -ein__floordiv(base - last, step);
        int64_t end = ein__floordiv(step > 0 ? last - base : -base, step) + 1;
        if (first > lo) lo = first;
        if (end < hi) hi = end;
    }
    if (hi <= lo) hi = lo = 0;
    *from = (int)lo;
    *to = (int)hi;
}

static void ein__ev_run_affine(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    int from, to;
    ein__ev_inside(p, r, m, &from, &to);
    for (int l = 0; l < from; l++) r->v[l] = r->value;
    for (int l = to; l < m; l++) r->v[l] = r->value;
    if (from == to) return;
    const double *at = r->data + (ein__ev_base(p, f) + f->step * from);
    for (int l = from; l < to; l++, at += f->step) r->v[l] = *at;
}

static void ein__ev_run_read(const ein__ev *p, const ein__ev_ins *r, int m) {
    int64_t base[EIN__MAX_RANK];
    for (uint32_t k = 0; k < r->naxis; k++)
        base[k] = ein__ev_base(p, &p->form[p->axis[r->axis + k].form]);
    for (int l = 0; l < m; l++) {
        int64_t address = 0;
        bool inside = true;
        for (uint32_t k = 0; k < r->naxis && inside; k++) {
            const ein__ev_axis *a = &p->axis[r->axis + k];
            int64_t x = ein__ev_at(p, &p->form[a->form], base[k], l), q = p->form[a->form].q;
            inside = q == 1 || x % q == 0;
            x /= q;
            inside = inside && x >= 0 && x < a->extent;
            address += inside ? x * a->stride : 0;
        }
        r->v[l] = inside ? r->data[address] : r->value;
    }
}

// Positions held by a tensor. What is no position at all becomes one outside of everything.
static void ein__ev_run_gather(const ein__ev *p, const ein__ev_ins *r, int m) {
    const double *x = p->ins[r->kid[0]].v;
    int64_t limit = EIN__INDEX_LIMIT >> 8;
    for (int l = 0; l < m; l++) {
        double v = trunc(x[l]);
        if (!(v >= -(double)limit && v <= (double)limit)) v = -(double)limit;
        r->w[l] = (int64_t)v;
    }
}

static void ein__ev_run_index(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    int64_t base = ein__ev_base(p, f);
    for (int l = 0; l < m; l++) {
        int64_t x = ein__ev_at(p, f, base, l);
        if (r->op == EIN__EV_FLOOR) r->w[l] = ein__floordiv(x, r->n);
        else if (r->op == EIN__EV_MOD) r->w[l] = ein__floormod(x, r->n);
        else r->v[l] = f->q == 1 ? (double)x : (double)x / (double)f->q;
    }
}

static void ein__ev_run_when(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    const ein__ev_ins *a = &p->ins[r->kid[0]];
    int64_t base = ein__ev_base(p, f);
    for (int l = 0; l < m; l++) {
        int64_t x = ein__ev_at(p, f, base, l);
        bool is = x % f->q == 0 && x >= 0 && x / f->q < r->n;
        r->v[l] = is != r->negate ? a->v[a->uniform ? 0 : l] : 0;
    }
}

static void ein__ev_run_binary(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_ins *a = &p->ins[r->kid[0]], *b = &p->ins[r->kid[1]];
    const double *x = a->v, *y = b->v;
    double *v = r->v;
    int sx = a->uniform ? 0 : 1, sy = b->uniform ? 0 : 1;
    switch ((int)r->fn) {
    case EIN__ADD:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] + y[l * sy];
        break;
    case EIN__SUB:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] - y[l * sy];
        break;
    case EIN__MUL:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] * y[l * sy];
        break;
    case EIN__DIV:
        for (int l = 0; l < m; l++) v[l] = x[l * sx] / y[l * sy];
        break;
    default:
        for (int l = 0; l < m; l++) v[l] = ein__apply_binary((ein__fn)r->fn, x[l * sx], y[l * sy]);
    }
}

static void ein__ev_run_select(const ein__ev *p, const ein__ev_ins *r, int m) {
    const double *k[4];
    int step[4];
    for (int i = 0; i < 4; i++) {
        k[i] = p->ins[r->kid[i]].v;
        step[i] = p->ins[r->kid[i]].uniform ? 0 : 1;
    }
    for (int l = 0; l < m; l++) {
        bool is = ein__apply_cmp((ein__fn)r->fn, k[0][l * step[0]], k[1][l * step[1]]);
        r->v[l] = is ? k[2][l * step[2]] : k[3][l * step[3]];
    }
}

// Runs the program for the m lanes that begin at p->it.
static void ein__ev_run(const ein__ev *p, int lanes) {
    ptrdiff_t n = arrlen(p->ins);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ein__ev_ins *r = &p->ins[i];
        int m = r->uniform ? 1 : lanes;
        switch (r->op) {
        case EIN__X_CONST: r->v[0] = r->value; break;
        case EIN__X_READ:
            if (r->affine) ein__ev_run_affine(p, r, m);
            else ein__ev_run_read(p, r, m);
            break;
        case EIN__X_UNARY: {
            const double *x = p->ins[r->kid[0]].v;
            for (int l = 0; l < m; l++) r->v[l] = ein__apply_unary((ein__fn)r->fn, x[l]);
            break;
        }
        case EIN__X_BINARY: ein__ev_run_binary(p, r, m); break;
        case EIN__X_WHEN: ein__ev_run_when(p, r, m); break;
        case EIN__X_SELECT: ein__ev_run_select(p, r, m); break;
        case EIN__EV_GATHER: ein__ev_run_gather(p, r, m); break;
        default: ein__ev_run_index(p, r, m);
        }
    }
}

// ------------------------------------------------------------------------------------ one scope

static double ein__reduce_start(uint32_t reduce) {
    return reduce == EIN__R_PROD  ? 1
           : reduce == EIN__R_MAX ? -(double)INFINITY
           : reduce == EIN__R_MIN ? (double)INFINITY
                                  : 0;
}

// Adds m lanes of the body to the accumulators: lane by lane, or all to the first one.
static void ein__ev_accumulate(const ein__ev *p, int m, double *acc) {
    const ein__ev_ins *r = &arrlast(p->ins);
    int sv = r->uniform ? 0 : 1, sa = p->strip < p->s->nt ? 1 : 0;
    const double *v = r->v;
    switch (p->s->reduce) {
    case EIN__R_SUM:
        for (int l = 0; l < m; l++) acc[l * sa] += v[l * sv];
        break;
    case EIN__R_PROD:
        for (int l = 0; l < m; l++) acc[l * sa] *= v[l * sv];
        break;
    case EIN__R_MAX:
        for (int l = 0; l < m; l++) acc[l * sa] = fmax(acc[l * sa], v[l * sv]);
        break;
    case EIN__R_MIN:
        for (int l = 0; l < m; l++) acc[l * sa] = fmin(acc[l * sa], v[l * sv]);
        break;
    default:
        for (int l = 0; l < m; l++) acc[l * sa] = v[l * sv];
    }
}

// A sum of products of two affine reads, the body of every contraction.
static bool ein__ev_is_product(const ein__ev *p) {
    const ein__ev_ins *r = p->ins;
    return arrlen(p->ins) == 3 && p->s->reduce == EIN__R_SUM && r[2].op == EIN__X_BINARY &&
           r[2].fn == EIN__MUL && r[0].op == EIN__X_READ && r[0].affine && r[1].op == EIN__X_READ &&
           r[1].affine && !r[2].uniform;
}

// One operand of such a product: lane l is at[(l - from) * step] for l in [from, to), else `pad`.
typedef struct ein__ev_factor {
    const double *at;
    int64_t step;
    int from, to;
    double pad;
} ein__ev_factor;

static ein__ev_factor ein__ev_factor_of(const ein__ev *p, const ein__ev_ins *r, int m) {
    const ein__ev_form *f = &p->form[r->form];
    ein__ev_factor x = {.at = r->data, .step = f->step, .pad = r->value};
    ein__ev_inside(p, r, m, &x.from, &x.to);
    if (x.from < x.to) x.at = r->data + (ein__ev_base(p, f) + f->step * x.from);
    return x;
}

static double ein__ev_factor_at(const ein__ev_factor *x, int l) {
    return l >= x->from && l < x->to ? x->at[(l - x->from) * x->step] : x->pad;
}

// ein__ev_run and ein__ev_accumulate for such a body.
static void ein__ev_multiply(const ein__ev *p, int m, double *acc) {
    const ein__ev_factor a = ein__ev_factor_of(p, &p->ins[0], m);
    const ein__ev_factor b = ein__ev_factor_of(p, &p->ins[1], m);
    int from = a.from > b.from ? a.from : b.from, to = a.to < b.to ? a.to : b.to;
    int sum = p->strip < p->s->nt ? 0 : 1;
    if (to <= from) from = to = 0;
    for (int l = 0; l < from; l++)
        acc[sum ? 0 : l] += ein__ev_factor_at(&a, l) * ein__ev_factor_at(&b, l);
    for (int l = to; l < m; l++)
        acc[sum ? 0 : l] += ein__ev_factor_at(&a, l) * ein__ev_factor_at(&b, l);
    if (from == to) return;
    int64_t sx = a.step, sy = b.step;
    const double *x = a.at + sx * (from - a.from), *y = b.at + sy * (from - b.from);
    double total = 0, *out = acc + (sum ? 0 : from);
    m = to - from;
    if (sum) {
        for (int l = 0; l < m; l++) total += x[l * sx] * y[l * sy];
        *acc += total;
    } else if (sx == 1 && sy == 0) {
        for (int l = 0; l < m; l++) out[l] += x[l] * *y;
    } else if (sx == 0 && sy == 1) {
        for (int l = 0; l < m; l++) out[l] += *x * y[l];
    } else {
        for (int l = 0; l < m; l++) out[l] += x[l * sx] * y[l * sy];
    }
}

// Steps p->it through slots [from, to) except the strip's, the last one fastest; false at the end.
static bool ein__ev_next(ein__ev *p, uint32_t from, uint32_t to) {
    for (uint32_t k = to; k-- > from;) {
        if (k == p->strip) continue;
        if (++p->it[k] < p->s->n[k]) return true;
        p->it[k] = 0;
    }
    return false;
}

// The whole reduction for m lanes of results from p->it on (one result when the strip is reduced).
static void ein__ev_reduce(ein__ev *p, int m, bool product, double *acc) {
    const ein__scope *s = p->s;
    uint32_t all = s->nt + s->ns;
    bool reduced = p->strip >= s->nt && p->strip < all;
    int lanes = m;
    for (int l = 0; l < m; l++) acc[l] = ein__reduce_start(s->reduce);
    do {
        int64_t end = reduced ? s->n[p->strip] : 1;
        for (int64_t at = 0; at < end; at += p->lanes) {
            if (reduced) {
                p->it[p->strip] = at;
                lanes = end - at < p->lanes ? (int)(end - at) : p->lanes;
            }
            if (product) {
                ein__ev_multiply(p, lanes, acc);
            } else {
                ein__ev_run(p, lanes);
                ein__ev_accumulate(p, lanes, acc);
            }
        }
        if (reduced) p->it[p->strip] = 0;
    } while (ein__ev_next(p, s->nt, all));
}

static bool ein__ev_scope(ein__ev *p, double *out) {
    const ein__scope *s = p->s;
    double acc[EIN__LANES];
    int64_t stride[EIN__MAX_ITERS] = {0}, all = 1;
    if (!ein__ev_compile(p)) return false;
    bool product = ein__ev_is_product(p), lanes = p->strip < s->nt;
    for (uint32_t k = s->nt; k-- > 0; all *= s->n[k]) stride[k] = all;
    int64_t end = lanes ? s->n[p->strip] : 1, step = lanes ? stride[p->strip] : 0;
    do {
        for (int64_t at = 0; at < end; at += p->lanes) {
            int m = end - at < p->lanes ? (int)(end - at) : p->lanes;
            if (lanes) p->it[p->strip] = at;
            ein__ev_reduce(p, m, product, acc);
            int64_t address = 0;
            for (uint32_t k = 0; k < s->nt; k++) address += stride[k] * p->it[k];
            for (int l = 0; l < m; l++) out[address + step * l] = acc[l];
        }
        if (lanes) p->it[p->strip] = 0;
    } while (ein__ev_next(p, 0, s->nt));
    return true;
}

// ------------------------------------------------------------------------------------ values

typedef struct ein__evaluator {
    ein_ctx *ctx;
    double **data;
    ein__val *order;    // stb_ds array: values to compute, operands first
    uint32_t *readers;  // by value: definitions in `order` that still read it
    bool *keep;         // by value: wanted, or given by the caller
    char *mark;         // by value: 1 on the stack, 2 in `order`
    uint32_t *reg_of;   // by expression: see ein__ev
    int64_t bytes;      // of the arrays alive
} ein__evaluator;

static const ein__ex *ein__reads_of_value(ein_ctx *ctx, ein__val v) {
    const ein__value *p = ein__val_get(ctx, v);
    return p->kind == EIN__V_SCOPE ? ein__ex_reads(ctx, ein__sc_get(ctx, p->scope)->body) : NULL;
}

// Appends what `want` needs to the order. Depth first with a stack of its own: chains of values are
// as long as models are.
static bool ein__order_values(ein__evaluator *z, ein__val want) {
    ein_ctx *ctx = z->ctx;
    ein__val *stack = NULL;
    bool ok = true;
    arrput(stack, want);
    while (ok && arrlen(stack)) {
        ein__val v = arrlast(stack);
        if (z->data[v.i] || z->mark[v.i] == 2) {
            (void)arrpop(stack);
            continue;
        }
        if (ein__val_get(ctx, v)->kind != EIN__V_SCOPE) {
            ein__error(ctx, EIN_BAD_INPUT, (ein__pos){0, 0}, "'%s' has no values",
                       ein__val_get(ctx, v)->name);
            ok = false;
            continue;
        }
        const ein__ex *reads = ein__reads_of_value(ctx, v);
        if (z->mark[v.i] == 1) {
            (void)arrpop(stack);
            z->mark[v.i] = 2;
            arrput(z->order, v);
            for (ptrdiff_t i = 0; i < arrlen(reads); i++)
                z->readers[ein__ex_get(ctx, reads[i])->val]++;
        } else {
            z->mark[v.i] = 1;
            for (ptrdiff_t i = arrlen(reads); i-- > 0;) {
                ein__val r = {ein__ex_get(ctx, reads[i])->val};
                if (!z->mark[r.i]) arrput(stack, r);
            }
        }
    }
    arrfree(stack);
    return ok;
}

static int64_t ein__value_bytes(const ein_ctx *ctx, ein__val v) {
    return ein__elements(&ein__val_get(ctx, v)->shape) * (int64_t)sizeof(double);
}

// Integers beyond the 8 or 32 bits of their type, as memory has them.
static void ein__cut_integers(ein__dtype type, double *x, int64_t n) {
    double size = exp2(type == EIN__I32 ? 32 : 8), least = type == EIN__U8 ? 0 : -size / 2;
    if (type != EIN__I8 && type != EIN__U8 && type != EIN__I32) return;
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] >= least && x[i] < least + size) && x[i] - x[i] == 0)
            x[i] -= size * floor((x[i] - least) / size);
}

static bool ein__compute_value(ein__evaluator *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    int64_t bytes = ein__value_bytes(ctx, v);
    double *out = NULL;
    z->bytes += bytes;
    if (z->bytes <= EIN__EVAL_BYTES) out = EIN_REALLOC(NULL, (size_t)(bytes ? bytes : 1));
    if (!out) {
        ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0},
                   "evaluating '%s' takes too much memory: "
                   "%lld bytes for all values",
                   ein__val_get(ctx, v)->name, (long long)z->bytes);
        return false;
    }
    z->data[v.i] = out;
    ein__ev p = {.ctx = ctx,
                 .s = ein__sc_get(ctx, ein__val_get(ctx, v)->scope),
                 .data = z->data,
                 .reg_of = z->reg_of};
    bool ok = ein__ev_scope(&p, out);
    ein__ev_free(&p);
    if (ok) ein__cut_integers(ein__val_get(ctx, v)->dtype, out, bytes / (int64_t)sizeof *out);
    if (!ok) ein__error(ctx, EIN_RESOURCES, (ein__pos){0, 0}, "out of memory");
    const ein__ex *reads = ein__reads_of_value(ctx, v);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        uint32_t r = ein__ex_get(ctx, reads[i])->val;
        if (--z->readers[r] || z->keep[r]) continue;
        EIN_FREE(z->data[r]);
        z->data[r] = NULL;
        z->bytes -= ein__value_bytes(ctx, (ein__val){r});
    }
    return ok;
}

// Computes the wanted values into data[id]. The caller's own arrays (of inputs and weights at
// least) are in `data` already and stay; other entries are NULL. Results are dense, row-major, and
// the caller frees them with EIN_FREE. After a failure nothing new is left in `data`.
EIN__FN bool ein__eval_values(ein_ctx *ctx, const ein__val *want, int nwant, double **data) {
    size_t n = arrlenu(ctx->value), nex = arrlenu(ctx->exprs.rec);
    ein__evaluator z = {.ctx = ctx, .data = data};
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        arrput(z.readers, 0);
        arrput(z.keep, data[i] != NULL);
        arrput(z.mark, 0);
    }
    for (size_t i = 0; i < nex + !nex; i++) arrput(z.reg_of, 0);
    for (int i = 0; ok && i < nwant; i++) ok = ein__order_values(&z, want[i]);
    for (int i = 0; i < nwant; i++) z.keep[want[i].i] = true;
    ptrdiff_t done = 0;
    for (; ok && done < arrlen(z.order); done++) ok = ein__compute_value(&z, z.order[done]);
    for (ptrdiff_t i = 0; !ok && i < done; i++) {
        EIN_FREE(data[z.order[i].i]);
        data[z.order[i].i] = NULL;
    }
    arrfree(z.order);
    arrfree(z.readers);
    arrfree(z.keep);
    arrfree(z.mark);
    arrfree(z.reg_of);
    return ok;
}
