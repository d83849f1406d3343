// Index forms as C text: addresses, guards, and the names given to what is used more than once.
//
// A kernel's body is text at levels: level 0 is known from the thread's number, level k inside the
// k-th loop. Every piece of text carries the level from which it is valid, and a named piece is
// declared there, so whatever does not depend on a loop stands before it.
//
// Lanes: with `vec` > 1 a thread computes that many neighbours along `vec_slot`, and the slot's own
// name is the first one's position, a multiple of `vec`. `step` of a piece is what it grows by from
// one lane to the next (EIN__IRREGULAR when lanes need text of their own) and `div` divides its
// value in lane 0: together they prove that `vec` reads are one aligned vector.

// ------------------------------------------------------------------------------- text

static ein__ktext ein__kt(ein__kgen *g, int prec, int level, const char *s) {
    return (ein__ktext){ein__name(g->ctx, s), prec, level};
}

static int ein__kmax(int a, int b) { return a > b ? a : b; }

// In parentheses when it binds weaker than `prec`.
static const char *ein__kparen(ein__kgen *g, ein__ktext t, int prec) {
    return t.prec > prec ? ein__namef(g->ctx, "(%s)", t.s) : t.s;
}

static const char *ein__kint(const ein__kgen *g) { return g->wide ? "long long" : "int"; }
static const char *ein__kunsigned(const ein__kgen *g) {
    return g->wide ? "unsigned long long" : "unsigned";
}

// The block's number, as what counts all threads.
static const char *ein__kblock_id(const ein__kgen *g) {
    return g->wide ? "(unsigned long long)blockIdx.x" : "blockIdx.x";
}

// The number in the grid of one of `each` things a block; `inner`: its number in the block.
static const char *ein__kgrid_id(const ein__kgen *g, int64_t each, const char *inner) {
    if (each == 1) return "blockIdx.x";
    return ein__namef(g->ctx, "%s * %lldu + %s", ein__kblock_id(g), (long long)each, inner);
}

static const char *ein__kthread_id(const ein__kgen *g, int block) {
    return ein__kgrid_id(g, block, "threadIdx.x");
}

static const char *ein__kwarp_id(const ein__kgen *g, int warps) {
    return ein__kgrid_id(g, warps, "threadIdx.x / 32u");
}

static ein__buf *ein__kcode(ein__kgen *g, int level) { return g->post ? g->post : &g->code[level]; }

static const ein__kname *ein__kfind(const ein__kgen *g, ein__kkind kind, uint32_t id, int lane) {
    for (ptrdiff_t i = 0; i < arrlen(g->name); i++)
        if (g->name[i].kind == kind && g->name[i].id == id && g->name[i].lane == lane)
            return &g->name[i];
    return NULL;
}

// Declares `const TYPE name = text;` at the text's level and remembers it under (kind, id, lane).
static ein__kterm ein__kdeclare(ein__kgen *g, ein__kkind kind, uint32_t id, int lane,
                                const char *type, ein__kterm t) {
    bool index = kind == EIN__N_ATOM || kind == EIN__N_IX || kind == EIN__N_AT;
    const char *name =
        index ? ein__namef(g->ctx, "t%d", g->nindex++) : ein__namef(g->ctx, "v%d", g->nvalue++);
    ein__putf(ein__kcode(g, t.text.level), "const %s %s = %s;\n", type, name, t.text.s);
    t.text = (ein__ktext){name, EIN__NAMED, t.text.level};
    arrput(g->name, ((ein__kname){kind, id, lane, t}));
    return t;
}

// Forgets names that were declared inside a loop which is over.
static void ein__kforget(ein__kgen *g, int level) {
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < arrlen(g->name); i++)
        if (g->name[i].t.text.level < level) g->name[n++] = g->name[i];
    if (g->name) arrsetlen(g->name, n);
}

static int64_t ein__kmul(ein__kgen *g, int64_t a, int64_t b) {
    int64_t r = 0;
    if (ein__mul_overflows(a, b, &r)) g->overflow = true;
    return r;
}

static int64_t ein__kadd(ein__kgen *g, int64_t a, int64_t b) {
    int64_t r = 0;
    if (ein__add_overflows(a, b, &r)) g->overflow = true;
    return r;
}

// ------------------------------------------------------------------------------- linear text

static void ein__klin_add(ein__kgen *g, ein__klin *l, ein__kterm t) {
    if (!t.k) return;
    for (int i = 0; i < l->n; i++) {
        if (l->t[i].text.s != t.text.s) continue;
        l->t[i].k = ein__kadd(g, l->t[i].k, t.k);
        if (!l->t[i].k) l->t[i] = l->t[--l->n];
        return;
    }
    if (l->n == EIN__KLIN) g->overflow = true;
    else l->t[l->n++] = t;
}

static int64_t ein__klin_step(const ein__klin *l) {
    int64_t step = 0;
    if (l->uneven) return EIN__IRREGULAR;
    for (int i = 0; i < l->n; i++) {
        if (l->t[i].step == EIN__IRREGULAR) return EIN__IRREGULAR;
        step += l->t[i].k * l->t[i].step;
        if (step > 64 || step < -64) return EIN__IRREGULAR;
    }
    return step;
}

static int64_t ein__klin_div(const ein__klin *l) {
    int64_t d = ein__gcd(l->c, 0);
    for (int i = 0; i < l->n; i++) d = ein__gcd(d, ein__gcd(l->t[i].k, 0) * l->t[i].div);
    return d;
}

static int64_t ein__klin_max(ein__kgen *g, const ein__klin *l) {
    int64_t m = ein__gcd(l->c, 0);
    for (int i = 0; i < l->n; i++)
        m = ein__kadd(g, m, ein__kmul(g, ein__gcd(l->t[i].k, 0), l->t[i].max));
    return m;
}

static int ein__klin_level(const ein__klin *l) {
    int level = 0;
    for (int i = 0; i < l->n; i++) level = ein__kmax(level, l->t[i].text.level);
    return level;
}

// `a * 56 + b - 1` for one lane, the largest factor first, then by name.
static ein__ktext ein__klin_text(ein__kgen *g, const ein__klin *l, int lane) {
    int64_t c = l->c;
    ein__kterm t[EIN__KLIN];
    for (int i = 0; i < l->n; i++) {
        int j = i;
        int64_t k = ein__gcd(l->t[i].k, 0);
        for (; j > 0; j--) {
            int64_t other = ein__gcd(t[j - 1].k, 0);
            if (other > k || (other == k && strcmp(t[j - 1].text.s, l->t[i].text.s) < 0)) break;
            t[j] = t[j - 1];
        }
        t[j] = l->t[i];
        if (t[j].step != EIN__IRREGULAR) c += lane * t[j].k * t[j].step;
    }
    if (!g->wide && ein__klin_max(g, l) > INT32_MAX - 64) g->too_wide = true;
    ein__buf b = {0};
    int prec = EIN__PRIMARY, shown = 0;
    int named = 0;  // a slot that is one vector long has no text
    for (int i = 0; i < l->n; i++)
        if (*t[i].text.s) t[named++] = t[i];
    bool lead = named && t[0].k < 0 && c > 0;  // `55 - w` rather than `-w + 55`
    if (lead || !named) {
        ein__putf(&b, "%lld", (long long)c);
        if (c < 0) prec = EIN__PREFIX;
        shown++;
    }
    for (int i = 0; i < named; i++, shown++) {
        int64_t k = t[i].k;
        if (shown) prec = EIN__TERM;
        else prec = k == 1 ? t[i].text.prec : k == -1 ? EIN__PREFIX : EIN__PRODUCT;
        ein__put(&b, shown ? (k < 0 ? " - " : " + ") : k < 0 ? "-" : "");
        k = k < 0 ? -k : k;
        ein__put(&b, ein__kparen(g, t[i].text, EIN__PREFIX));
        if (k != 1) ein__putf(&b, " * %lld", (long long)k);
    }
    if (named && !lead && c) {
        ein__putf(&b, " %c %lld", c < 0 ? '-' : '+', (long long)(c < 0 ? -c : c));
        prec = EIN__TERM;
    }
    ein__ktext text = ein__kt(g, prec, ein__klin_level(l), b.s);
    ein__buf_free(&b);
    return text;
}

// ------------------------------------------------------------------------------- forms and atoms

static void ein__kform_put(ein__kgen *g, ein__kform *f, int64_t k, uint32_t atom) {
    for (int i = 0; i < f->n; i++) {
        if (f->t[i].atom != atom) continue;
        f->t[i].k = ein__kadd(g, f->t[i].k, k);
        if (!f->t[i].k) {
            for (; i + 1 < f->n; i++) f->t[i] = f->t[i + 1];
            f->n--;
        }
        return;
    }
    if (f->n == EIN__KLIN) g->overflow = true;
    else f->t[f->n++] = (ein__term){k, atom, 0};
}

// f += k * numerator of ix
static void ein__kform_add(ein__kgen *g, ein__kform *f, int64_t k, ein__ix ix) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    f->c = ein__kadd(g, f->c, ein__kmul(g, k, x->c));
    for (uint32_t i = 0; i < x->n; i++)
        ein__kform_put(g, f, ein__kmul(g, k, x->t[i].k), x->t[i].atom);
}

// d * floor(E / d) + E mod d = E: what a view by reshaping leaves in an address.
static void ein__kform_recombine(ein__kgen *g, ein__kform *f) {
    for (int i = 0; i < f->n; i++) {
        const ein__atom *a = ein__atom_get(g->ctx, f->t[i].atom);
        if (a->kind != EIN__FLOOR) continue;
        for (int j = 0; j < f->n; j++) {
            const ein__atom *b = ein__atom_get(g->ctx, f->t[j].atom);
            if (b->kind != EIN__MOD || b->ix != a->ix || b->n != a->n) continue;
            int64_t k = f->t[j].k;
            if (f->t[i].k != ein__kmul(g, k, a->n)) continue;
            uint32_t floor_atom = f->t[i].atom, mod_atom = f->t[j].atom;
            ein__kform_put(g, f, -ein__kmul(g, k, a->n), floor_atom);
            ein__kform_put(g, f, -k, mod_atom);
            ein__kform_add(g, f, k, (ein__ix){a->ix});
            i = -1;
            break;
        }
    }
}

static void ein__katom(ein__kgen *g, ein__klin *l, int64_t k, uint32_t id, int lane);

// Names are numbered as they appear, so the atoms are taken in an order of their structure.
static void ein__kform_lower(ein__kgen *g, ein__klin *l, ein__kform *f, int lane) {
    for (int i = 1; i < f->n; i++)
        for (int j = i; j > 0; j--) {
            if (ein__kkey_atom(g, f->t[j - 1].atom) <= ein__kkey_atom(g, f->t[j].atom)) break;
            ein__term t = f->t[j];
            f->t[j] = f->t[j - 1];
            f->t[j - 1] = t;
        }
    l->c = ein__kadd(g, l->c, f->c);
    for (int i = 0; i < f->n; i++) ein__katom(g, l, f->t[i].k, f->t[i].atom, lane);
}

// Numerator of one index form.
static ein__klin ein__klin_of(ein__kgen *g, ein__ix ix, int lane) {
    ein__kform f = {0};
    ein__klin l;
    l.c = l.n = l.uneven = l.apart = 0;
    ein__kform_add(g, &f, 1, ix);
    ein__kform_lower(g, &l, &f, lane);
    return l;
}

// l += k * with
static void ein__klin_join(ein__kgen *g, ein__klin *l, const ein__klin *with, int64_t k) {
    l->c = ein__kadd(g, l->c, ein__kmul(g, k, with->c));
    for (int i = 0; i < with->n; i++) {
        ein__kterm t = with->t[i];
        t.k = ein__kmul(g, k, t.k);
        ein__klin_add(g, l, t);
    }
}

// What a table of terms has of a form: its constant and what the terms' slots add.
static ein__klin ein__ktap_of(ein__kgen *g, ein__ix ix) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    ein__klin l;
    l.n = l.uneven = l.apart = 0;
    l.c = x->c;
    for (uint32_t i = 0; i < x->n; i++)
        if (ein__atom_uses(g->ctx, x->t[i].atom) & g->taps)
            ein__katom(g, &l, x->t[i].k, x->t[i].atom, 0);
    return l;
}

// Puts the table's word `n` in place of that part of `l`.
static void ein__ktap(ein__kgen *g, ein__klin *l, const ein__klin *part, int n) {
    ein__ktext word = {ein__namef(g->ctx, "tap.%c", "xyzw"[n]), EIN__NAMED, 1};
    int64_t max = ein__klin_max(g, part);
    g->tap[n] = ein__klin_text(g, part, 0).s;
    if (n == 1 && max < EIN__NO_PLACE) max = EIN__NO_PLACE;
    ein__klin_join(g, l, part, -1);
    ein__klin_add(g, l, (ein__kterm){1, word, 0, ein__klin_div(part), max});
}

// floor(E / d) and E mod d where all of E but its constant is a multiple of d, as a vector's first
// position is of 2 and 4: the lanes differ by constants. False: it is not so.
static bool ein__katom_lanes(ein__kgen *g, ein__klin *out, int64_t k, uint32_t id, ein__klin *l,
                             int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    int64_t d = a->n, step = ein__klin_step(l), rest;
    if (g->vec == 1 || step == 0 || step == EIN__IRREGULAR) return false;
    for (int i = 0; i < l->n; i++)
        if (ein__kmul(g, l->t[i].k, l->t[i].div) % d) return false;
    rest = ein__kadd(g, l->c, lane * step);
    out->uneven = true;
    if (a->kind == EIN__MOD) {
        out->c = ein__kadd(g, out->c, ein__kmul(g, k, ein__floormod(rest, d)));
        return true;
    }
    out->c = ein__kadd(g, out->c, ein__kmul(g, k, ein__floordiv(rest, d)));
    l->c = 0;
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, 0);
    ein__ktext e = ein__klin_text(g, l, 0);
    const char *s = ein__namef(g->ctx, "%s / %lld", ein__kparen(g, e, EIN__PREFIX), (long long)d);
    ein__kterm t = {k, {s, EIN__PRODUCT, e.level}, 0, 1, ein__klin_max(g, l) / d};
    t = known ? known->t : ein__kdeclare(g, EIN__N_ATOM, id, 0, ein__kint(g), t);
    t.k = k;
    ein__klin_add(g, out, t);
    return true;
}

// What the first lane's text is at most where the lanes' slot is all that E has beside its
// constant; -1: it has more.
static int64_t ein__klane_end(const ein__kgen *g, const ein__klin *l) {
    const ein__kterm *t = &l->t[0];
    bool slot = l->n == 1 && t->step == 1 && t->k > 0 && g->vec_slot >= 0;
    if (!slot || t->text.s != g->slot[g->vec_slot].name) return -1;
    return t->k * (t->max + 1 - g->vec);
}

// floor(E / d) where all of E but its constant is a multiple of m, as is d: lanes whose constants
// have one floor(c / m) have one value. So of (i + 2) / 112 in lanes i to i + 3, i a multiple of 4,
// there are two. With m = 1 each lane has its own, near the others' where E grows slowly. False: it
// is not so.
static bool ein__katom_near(ein__kgen *g, ein__klin *out, int64_t k, uint32_t id, ein__klin *l,
                            int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    int64_t d = a->n, step = ein__klin_step(l), m = d, first = l->c, end;
    if (g->vec == 1 || a->kind != EIN__FLOOR || step == 0 || step == EIN__IRREGULAR) return false;
    for (int i = 0; i < l->n; i++) m = ein__gcd(ein__kmul(g, l->t[i].k, l->t[i].div), m);
    if (m < 2 && ein__kmul(g, step < 0 ? -step : step, g->vec - 1) >= d) return false;
    int64_t part = ein__floordiv(ein__kadd(g, first, lane * step), m);
    int same = 0;
    while (ein__floordiv(first + same * step, m) != part) same++;
    out->uneven = out->apart = true;
    end = ein__klane_end(g, l);
    l->c = ein__kmul(g, m, part);
    if (end >= 0 && l->c >= 0 && end + l->c < d) return true;
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, same);
    ein__ktext e = ein__klin_text(g, l, 0);
    const char *s = ein__namef(g->ctx, "%s / %lld", ein__kparen(g, e, EIN__PREFIX), (long long)d);
    ein__kterm t = {k, {s, EIN__PRODUCT, e.level}, 0, 1, ein__klin_max(g, l) / d};
    t = known ? known->t : ein__kdeclare(g, EIN__N_ATOM, id, same, ein__kint(g), t);
    t.k = k;
    ein__klin_add(g, out, t);
    return true;
}

// floor(E / d) and E mod d: E is shifted by a multiple of d to be non-negative, so C's operators
// will do. Only a gathered operand has no bounds; it takes the general form.
static void ein__katom_divide(ein__kgen *g, ein__klin *out, int64_t k, uint32_t id, int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    ein__ix ix = {a->ix};
    const ein__index *x = ein__ix_get(g->ctx, ix);
    int64_t d = a->n, shift = 0, grow;
    bool mod = a->kind == EIN__MOD, bounded = !ein__ix_has_gather(g->ctx, ix);
    ein__klin l = ein__klin_of(g, ix, lane);
    if (ein__katom_lanes(g, out, k, id, &l, lane)) return;
    if (bounded && x->lo < 0) shift = (-x->lo + d - 1) / d;
    l.c = ein__kadd(g, l.c, ein__kmul(g, shift, d));
    if (!mod) out->c = ein__kadd(g, out->c, -ein__kmul(g, k, shift));

    int64_t step = ein__klin_step(&l), div = ein__gcd(ein__klin_div(&l), d);
    if (bounded && ein__katom_near(g, out, k, id, &l, lane)) return;
    grow = step == EIN__IRREGULAR ? d : (g->vec - 1) * (step < 0 ? d : step);
    ein__kterm t = {k, {0}, 0, 1, 0};
    bool shared = step == 0 || grow < div;  // the lanes stay in one period
    if (!shared) t.step = EIN__IRREGULAR;
    else if (mod) t.step = step, t.div = div;
    t.max = mod ? d - 1 : (ein__klin_max(g, &l) / d);
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, shared ? 0 : lane);
    if (!known) {
        ein__ktext e = ein__klin_text(g, &l, shared ? 0 : lane);
        const char *s = ein__kparen(g, e, EIN__PREFIX);
        char c = mod ? '%' : '/';
        long long n = (long long)d;
        if (bounded) s = ein__namef(g->ctx, "%s %c %lld", s, c, n);
        else if (mod) s = ein__namef(g->ctx, "(%s %% %lld + %lld) %% %lld", s, n, n, n);
        else s = ein__namef(g->ctx, "%s >= 0 ? %s / %lld : -1 - (-1 - %s) / %lld", s, s, n, s, n);
        t.text = (ein__ktext){s, EIN__PRODUCT, e.level};
        t = ein__kdeclare(g, EIN__N_ATOM, id, shared ? 0 : lane, ein__kint(g), t);
    } else {
        t = known->t;
    }
    t.k = k;
    ein__klin_add(g, out, t);
}

// Where a read looks: address, guard (NULL: always inside), and whether four lanes are one vector.
typedef struct ein__kaccess {
    const char *param, *guard;
    ein__ktext at;
    int level;
    int64_t step;
    bool vector;
    bool near;  // the lanes are constants apart
    ein__dtype dtype;
} ein__kaccess;

static ein__kaccess ein__kaccess_of(ein__kgen *g, ein__ex read, int lane);

static const char *ein__kctype(ein__dtype t) {
    static const char *const name[EIN__NDTYPE] = {"float",       "__half",        "__nv_bfloat16",
                                                  "signed char", "unsigned char", "int",
                                                  "long long",   "unsigned char"};
    return name[t];
}

static ein__dtype ein__kdtype(const ein__kgen *g, ein__val v) {
    const ein__value *x = ein__val_get(g->ctx, v);
    // The companion program computes in double and keeps what it computed as float.
    if (g->naive && x->kind == EIN__V_SCOPE && (x->dtype == EIN__F16 || x->dtype == EIN__BF16))
        return EIN__F32;
    return x->dtype;
}

enum { EIN__GATHERED = INT32_MAX / 2 };  // positions beyond are in nobody's range, in 32 bits

// Positions are values and values are read at positions: what the kernel would store of its value
// `v` (emit_expr.c).
static ein__ktext ein__kput_element(ein__kgen *g, ein__val v, int lane);

// Element `s` of type `t` as a position: what has more bits must not come back into range without
// them.
static const char *ein__kposition(ein__kgen *g, ein__dtype t, const char *s) {
    if (t != EIN__I64 || g->wide) return s;
    return ein__namef(g->ctx, "(int)max(min(%s, %dll), -%dll)", s, EIN__GATHERED, EIN__GATHERED);
}

// A position that the kernel computes at the place where it reads with it: each lane has its own.
static ein__kterm ein__kmade_position(ein__kgen *g, uint32_t id, ein__val v, int lane) {
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, lane);
    if (known) return known->t;
    ein__ktext made = ein__kput_element(g, v, lane);
    ein__kterm t = {1, {0}, EIN__IRREGULAR, 1, EIN__GATHERED};
    t.text = (ein__ktext){ein__kposition(g, ein__kdtype(g, v), made.s), EIN__COND, made.level};
    return ein__kdeclare(g, EIN__N_ATOM, id, lane, ein__kint(g), t);
}

// A position held in an integer tensor. Whatever it holds, the read made with it is guarded.
static ein__kterm ein__kheld_position(ein__kgen *g, uint32_t id, ein__ex read, int lane) {
    const ein__expr *x = ein__ex_get(g->ctx, read);
    ein__kaccess at = ein__kaccess_of(g, read, lane);
    int use = at.step ? lane : 0;
    const ein__kname *known = ein__kfind(g, EIN__N_ATOM, id, use);
    if (known) return known->t;
    ein__kterm t = {1, {0}, at.step ? EIN__IRREGULAR : 0, 1, EIN__GATHERED};
    double pad;
    memcpy(&pad, &x->bits, sizeof pad);
    const char *s = ein__kposition(g, at.dtype, ein__namef(g->ctx, "%s[%s]", at.param, at.at.s));
    if (at.dtype != EIN__I64 && (at.dtype != EIN__I32 || g->wide))
        s = ein__namef(g->ctx, "(%s)%s", ein__kint(g), s);
    const char *guard = at.guard;
    if (g->reached && *g->reached && at.level >= g->reached_level)
        guard = guard ? ein__namef(g->ctx, "%s && %s", g->reached, guard) : g->reached;
    if (guard) s = ein__namef(g->ctx, "%s ? %s : %lld", guard, s, (long long)pad);
    t.text = (ein__ktext){s, EIN__COND, at.level};
    return ein__kdeclare(g, EIN__N_ATOM, id, use, ein__kint(g), t);
}

static void ein__katom_gather(ein__kgen *g, ein__klin *out, int64_t k, uint32_t id, int lane) {
    ein__ex read = {ein__atom_get(g->ctx, id)->ex};
    const ein__kinner *in = ein__kput_of(g, read);
    ein__kterm t =
        in ? ein__kmade_position(g, id, in->v, lane) : ein__kheld_position(g, id, read, lane);
    t.k = k;
    ein__klin_add(g, out, t);
}

static void ein__katom(ein__kgen *g, ein__klin *l, int64_t k, uint32_t id, int lane) {
    const ein__atom *a = ein__atom_get(g->ctx, id);
    switch ((ein__atom_kind)a->kind) {
    case EIN__ITER: {
        const ein__kslot *s = &g->slot[a->slot];
        bool v = (int)a->slot == g->vec_slot;
        if (s->gone && !v) return;
        ein__ktext name = {s->gone ? ein__name(g->ctx, "") : s->name, EIN__NAMED, s->level};
        int64_t div = !v ? 1 : s->gone ? 0 : g->vec;
        ein__klin_add(g, l, (ein__kterm){k, name, v, div, s->n - 1});
        return;
    }
    case EIN__FLOOR:
    case EIN__MOD: ein__katom_divide(g, l, k, id, lane); return;
    case EIN__GATHER: ein__katom_gather(g, l, k, id, lane); return;
    }
}

// ------------------------------------------------------------------------------- guards

typedef struct ein__kaxis {
    const char *guard;  // NULL: always inside
    bool uniform;       // the same for all lanes
    bool named;         // `term` stands for the axis's position
    ein__kterm term;
    int level;
} ein__kaxis;

// `lo <= x < hi` of a linear text, as the shortest test that suffices.
static const char *ein__kwithin(ein__kgen *g, ein__klin l, int lane, int64_t n, bool low,
                                bool high) {
    if (low && high) {
        ein__ktext t = ein__klin_text(g, &l, lane);
        return ein__namef(g->ctx, "(%s)%s < %lld%s", ein__kunsigned(g),
                          ein__kparen(g, t, EIN__PRIMARY), (long long)n, g->wide ? "ull" : "u");
    }
    int64_t c = l.c;
    l.c = 0;
    for (int i = 0; i < l.n; i++)
        if (l.t[i].step != EIN__IRREGULAR) c += lane * l.t[i].k * l.t[i].step;
    ein__ktext t = ein__klin_text(g, &l, 0);
    return ein__namef(g->ctx, "%s %s %lld", ein__kparen(g, t, EIN__TERM), low ? ">=" : "<",
                      low ? -(long long)c : (long long)(n - c));
}

// An exact quotient: inside where the numerator is a multiple of q within [0, n * q).
static void ein__kaxis_quotient(ein__kgen *g, ein__kaxis *a, ein__ix ix, int64_t n, int lane) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    ein__klin l = ein__klin_of(g, ix, lane);
    bool shared = ein__klin_step(&l) == 0;
    a->uniform = shared;
    a->level = ein__klin_level(&l);
    a->named = true;
    if (shared) lane = 0;
    const ein__kname *known = ein__kfind(g, EIN__N_IX, ix.i, lane);
    ein__kterm t = {1, ein__klin_text(g, &l, lane), shared ? 0 : EIN__IRREGULAR, 1,
                    ein__klin_max(g, &l)};
    t = known ? known->t : ein__kdeclare(g, EIN__N_IX, ix.i, lane, ein__kint(g), t);
    ein__buf b = {0};
    int64_t end = ein__kmul(g, n, x->q);
    bool low = x->lo < 0, high = x->hi >= n;
    if (low && high)
        ein__putf(&b, "(%s)%s < %lld%s && ", ein__kunsigned(g), t.text.s, (long long)end,
                  g->wide ? "ull" : "u");
    else if (low) ein__putf(&b, "%s >= 0 && ", t.text.s);
    else if (high) ein__putf(&b, "%s < %lld && ", t.text.s, (long long)end);
    ein__putf(&b, "%s %% %lld == 0", t.text.s, (long long)x->q);
    a->guard = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    a->term = t;
    a->term.max = n - 1;
    a->term.text.s = ein__namef(g->ctx, "%s / %lld", t.text.s, (long long)x->q);
    a->term.text.prec = EIN__PRODUCT;
}

// Whether one of two positions is below its end `n`: of the first, the table's word has what the
// terms add in the upper half and anything in the lower one, which then has what they add to the
// second. What is out of either range stays so modulo 1 << 16 (ein__tap_is_short).
static const char *ein__kaxis_packed(ein__kgen *g, const ein__klin *others, int which, int lane,
                                     int64_t n) {
    ein__ktext t = ein__klin_text(g, others, lane);
    return ein__namef(g->ctx, "((unsigned)%s << 16) + %s < %lldu", ein__kparen(g, t, EIN__PRIMARY),
                      which == 1 ? "(unsigned)tap.y" : "((unsigned)tap.y << 16)",
                      (long long)n << 16);
}

// Position along one axis of extent n.
static ein__kaxis ein__kaxis_of(ein__kgen *g, ein__ix ix, int64_t n, int lane) {
    const ein__index *x = ein__ix_get(g->ctx, ix);
    ein__kaxis a = {NULL, true, false, {0}, 0};
    bool gather = ein__ix_has_gather(g->ctx, ix);
    bool low = x->lo < 0 || gather, high = x->hi >= n || gather;
    if (x->q > 1) {
        ein__kaxis_quotient(g, &a, ix, n, lane);
        return a;
    }
    if (!low && !high) return a;
    ein__klin l = ein__klin_of(g, ix, lane), others = l;
    bool tap = g->taps & ein__ix_uses(g->ctx, ix);
    if (tap) {
        ein__klin part = ein__ktap_of(g, ix);
        if (++g->ntap == 1) g->tap_low = low;
        ein__klin_join(g, &others, &part, -1);
        ein__ktap(g, &l, &part, g->ntap);
    }
    int64_t step = ein__klin_step(&l), div = ein__klin_div(&l);
    a.uniform = step == 0 || (step == 1 && div % g->vec == 0 && n % g->vec == 0);
    a.level = ein__klin_level(&l);
    int at = a.uniform ? 0 : lane;
    if (tap && g->tap_packed) {
        a.guard = ein__kaxis_packed(g, &others, g->ntap, at, n);
        return a;
    }
    bool plain = l.n == 1 && l.t[0].k == 1 && !l.c;
    if (plain) {
        a.term = l.t[0];
    } else if (low && high) {
        bool own = step == EIN__IRREGULAR;
        const ein__kname *known = ein__kfind(g, EIN__N_IX, ix.i, own ? lane : 0);
        ein__kterm t = {1, ein__klin_text(g, &l, own ? lane : 0), step, div, ein__klin_max(g, &l)};
        t = known ? known->t : ein__kdeclare(g, EIN__N_IX, ix.i, own ? lane : 0, ein__kint(g), t);
        a.term = t;
        l.c = 0;
        l.n = 1;
        l.t[0] = t;
    }
    a.named = plain || (low && high);
    a.term.max = n - 1;
    a.guard = ein__kwithin(g, l, at, n, low, high);
    return a;
}

// Name of a value's parameter, in order of first use.
static const char *ein__kparam(ein__kgen *g, ein__val v) {
    int i = 0;
    while (i < g->narg && g->arg[i].i != v.i) i++;
    if (i == g->narg) {
        // Room for two results; more operands come from several expressions fused alone.
        if (g->narg >= EIN__MAX_PARAMS - 2) {
            ein__error(g->ctx, EIN_RESOURCES, (ein__pos){0, 0}, "a kernel of more than %d operands",
                       EIN__MAX_PARAMS - 2);
            return ein__name(g->ctx, "p");
        }
        g->arg[g->narg++] = v;
    }
    return ein__namef(g->ctx, "p%d", i);
}

// The address of one lane of a read whose lanes are constants apart, but no vector: what they share
// gets a name.
static ein__ktext ein__kaddress(ein__kgen *g, ein__ex read, ein__klin *l, int lane) {
    const ein__kname *known = ein__kfind(g, EIN__N_AT, read.i, 0);
    int64_t c = l->c;
    for (int i = 0; i < l->n; i++) c += lane * l->t[i].k * l->t[i].step;
    l->c = 0;
    ein__kterm t = {1, ein__klin_text(g, l, 0), 0, 1, ein__klin_max(g, l)};
    t = known ? known->t : ein__kdeclare(g, EIN__N_AT, read.i, 0, ein__kint(g), t);
    *l = (ein__klin){.c = c, .n = 1, .t[0] = t};
    return ein__klin_text(g, l, 0);
}

static ein__kaccess ein__kaccess_of(ein__kgen *g, ein__ex read, int lane) {
    const ein__expr *x = ein__ex_get(g->ctx, read);
    ein__val v = {x->val};
    const ein__shape *s = &ein__val_get(g->ctx, v)->shape;
    ein__kaccess r = {.param = ein__kparam(g, v), .dtype = ein__kdtype(g, v)};
    ein__kform f = {0};
    ein__klin l, terms;
    ein__buf guard = {0};
    bool uniform = true;
    l.c = l.n = l.uneven = l.apart = 0;
    terms = l;
    g->ntap = 0;
    for (int d = 0; d < s->rank; d++) {
        ein__kaxis a = ein__kaxis_of(g, x->ix[d], s->d[d], lane);
        int64_t stride = ein__kstride(g, v, d);
        if (g->taps & ein__ix_uses(g->ctx, x->ix[d])) {
            ein__klin part = ein__ktap_of(g, x->ix[d]);
            ein__klin_join(g, &terms, &part, stride);
            a.named = false;
        }
        if (a.guard) ein__putf(&guard, "%s%s", guard.n ? " && " : "", a.guard);
        uniform = uniform && a.uniform;
        r.level = ein__kmax(r.level, a.level);
        if (a.named) {
            a.term.k = stride;
            ein__klin_add(g, &l, a.term);
        } else {
            ein__kform_add(g, &f, stride, x->ix[d]);
        }
    }
    ein__kform_recombine(g, &f);
    ein__kform_lower(g, &l, &f, lane);
    if (g->taps) ein__ktap(g, &l, &terms, 0);
    int64_t step = ein__klin_step(&l);
    r.at = ein__klin_text(g, &l, lane);
    r.level = ein__kmax(r.level, r.at.level);
    r.step = uniform ? step : EIN__IRREGULAR;
    r.near = l.uneven;
    for (int i = 0; i < l.n; i++) r.near &= l.t[i].step == 0;
    int64_t offset = g->naive ? 0 : g->ctx->plan.layout[v.i].offset;
    bool vectors = r.dtype == EIN__F32 || r.dtype == EIN__F16 ||
                   (r.dtype == EIN__BF16 && g->vec == 4) ||
                   (r.dtype == EIN__BOOL && g->vec == 2 && !guard.n);
    r.vector = r.step == 1 && vectors && ein__klin_div(&l) % g->vec == 0 && offset % g->vec == 0;
    bool regular = (step && step != EIN__IRREGULAR) || (r.near && !l.apart);
    if (g->vec > 1 && !r.vector && regular && l.n > 1) r.at = ein__kaddress(g, read, &l, lane);
    if (g->inside && *g->inside && r.level)
        ein__putf(&guard, "%s%s", guard.n ? " && " : "", g->inside);
    if (guard.n) r.guard = ein__name(g->ctx, guard.s);
    ein__buf_free(&guard);
    return r;
}
