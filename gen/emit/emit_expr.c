// Scalar expressions as C text. A subexpression that is used twice, or would make a line too long,
// gets a name in the outermost loop where all its iterators are known.

enum { EIN__LONG = 60 };

static const char *const ein__klane[EIN__KLANES] = {"x", "y", "z", "w", "b.x", "b.y", "b.z", "b.w"};

static const char *ein__knum_type(const ein__kgen *g) {
    static const char *const name[] = {"float", "double", "long long"};
    return g->num == EIN__NUM_INT && g->narrow ? "int" : name[g->num];
}

static ein__ktext ein__kliteral(ein__kgen *g, double v) {
    ein__buf b = {0};
    switch (g->num) {
    case EIN__NUM_FLOAT: ein__put_f32_literal(&b, v); break;
    case EIN__NUM_INT: ein__putf(&b, g->narrow ? "%lld" : "%lldll", (long long)v); break;
    case EIN__NUM_DOUBLE:
        if (v - v != 0) {
            ein__put_f32_literal(&b, v);
        } else {
            ein__put_f64(&b, v);
            if (!strpbrk(b.s, ".e")) ein__put(&b, ".0");
        }
        break;
    }
    ein__ktext t = ein__kt(g, b.s[0] == '-' ? EIN__PREFIX : EIN__NAMED, 0, b.s);
    ein__buf_free(&b);
    return t;
}

static double ein__kbits(const ein__expr *x) {
    double v;
    memcpy(&v, &x->bits, sizeof v);
    return v;
}

static ein__ex ein__kbody(const ein__kgen *g, ein__val v) {
    return ein__sc_get(g->ctx, ein__val_get(g->ctx, v)->scope)->body;
}

// How often each expression below `ex` is used; counts the operations of one evaluation on the way.
static void ein__kcount(ein__kgen *g, ein__ex ex) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    if (ein__kmemo_of(g, ex)->uses++) return;
    for (uint32_t i = 0; i < x->nkid; i++) ein__kcount(g, x->kid[i]);
    if (x->op != EIN__X_READ) return;
    for (int i = 0; i < g->nover; i++)
        if (g->over[i].ex.i == ex.i && g->over[i].as.i) ein__kcount(g, g->over[i].as);
    // Those in subscripts, too.
    const ein__ex *reads = ein__ex_reads(g->ctx, ex);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        const ein__kinner *in = ein__kput_of(g, reads[i]);
        if (in) ein__kcount(g, ein__kbody(g, in->v));
    }
}

// Starts counting anew: the next pass over the row has its own names.
static void ein__kuncount(ein__kgen *g) {
    for (ptrdiff_t i = 0; i < arrlen(g->memo); i++) g->memo[i]->uses = 0;
}

// Converts a stored element to the type that is computed in.
static ein__ktext ein__kload(ein__kgen *g, const ein__kaccess *at, int level) {
    const char *s = ein__namef(g->ctx, "%s[%s]", at->param, at->at.s);
    int prec = EIN__PRIMARY;
    switch (at->dtype) {
    case EIN__F32:
        if (g->num == EIN__NUM_DOUBLE) s = ein__namef(g->ctx, "(double)%s", s), prec = EIN__PREFIX;
        break;
    case EIN__F16:
        ein__kneed(g, EIN__NEED_HALF);
        s = ein__namef(g->ctx, "__half2float(%s)", s);
        if (g->num == EIN__NUM_DOUBLE) s = ein__namef(g->ctx, "(double)%s", s), prec = EIN__PREFIX;
        break;
    case EIN__BF16:
        ein__kneed(g, EIN__NEED_BF16);
        s = ein__namef(g->ctx, "__bfloat162float(%s)", s);
        if (g->num == EIN__NUM_DOUBLE) s = ein__namef(g->ctx, "(double)%s", s), prec = EIN__PREFIX;
        break;
    case EIN__I8:
    case EIN__U8:
    case EIN__I32:
    case EIN__I64:
    case EIN__BOOL:
        if (g->num == EIN__NUM_INT && at->dtype == EIN__I64) break;
        s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), s);
        prec = EIN__PREFIX;
        break;
    case EIN__NDTYPE: break;
    }
    return (ein__ktext){s, prec, level};
}

// Value `v` as type `t`, that of an element in memory.
static const char *ein__kstored(ein__kgen *g, ein__dtype t, ein__ktext v) {
    const char *s = v.s, *p = ein__kparen(g, v, EIN__PREFIX);
    if (g->num == EIN__NUM_DOUBLE && t <= EIN__BF16) s = ein__namef(g->ctx, "(float)%s", p);
    switch (t) {
    case EIN__F16:
        ein__kneed(g, EIN__NEED_HALF);
        s = ein__namef(g->ctx, "__float2half_rn(%s)", s);
        break;
    case EIN__BF16:
        ein__kneed(g, EIN__NEED_BF16);
        s = ein__namef(g->ctx, "__float2bfloat16_rn(%s)", s);
        break;
    case EIN__BOOL:
        s = ein__namef(g->ctx, "%s != %s", ein__kparen(g, v, EIN__TERM), ein__kliteral(g, 0).s);
        break;
    case EIN__I8:
    case EIN__I32: s = ein__namef(g->ctx, "(%s)%s", ein__kctype(t), p); break;
    case EIN__U8:  // a float below 0 has no value of it: by way of int its low bits
        s = ein__namef(g->ctx, "(%s)%s%s", ein__kctype(t), g->num == EIN__NUM_INT ? "" : "(int)",
                       p);
        break;
    case EIN__I64:
        if (g->num != EIN__NUM_INT) s = ein__namef(g->ctx, "(%s)%s", ein__kctype(t), p);
        break;
    case EIN__F32:
        if (g->num == EIN__NUM_INT) s = ein__namef(g->ctx, "(float)%s", p);
        break;
    case EIN__NDTYPE: break;
    }
    return s;
}

// The type of `vec` neighbours in registers; of four where the lanes are no longer set up.
static const char *ein__kvec_type(const ein__kgen *g) {
    return ein__namef(g->ctx, "float%d", g->vec > 1 ? g->vec : 4);
}

// Of truth values there are vectors of two alone.
static const char *ein__kread_type(const ein__kgen *g, ein__dtype dtype) {
    return dtype == EIN__BOOL ? "uchar2" : ein__kvec_type(g);
}

// Where element `at` is. As one index: what is added to a pointer term by term nvcc cannot show to
// be aligned, and makes four accesses of one.
static const char *ein__kpointer(ein__kgen *g, const char *param, const char *at) {
    return strcmp(at, "0") ? ein__namef(g->ctx, "&%s[%s]", param, at) : param;
}

// Neighbours at once, as a float4 or what else `vec` asks for.
static const char *ein__kload4(ein__kgen *g, const ein__kaccess *at) {
    bool half = at->dtype == EIN__F16, eight = g->vec == 8, bfloat = at->dtype == EIN__BF16;
    const char *from = ein__kpointer(g, at->param, at->at.s);
    if (half && g->vec == 2) {
        ein__kneed(g, EIN__NEED_HALF);
        return ein__namef(g->ctx, "__half22float2(*reinterpret_cast<const __half2 *>(%s))", from);
    }
    const char *load = half && eight ? "load_half8"
                       : half        ? "load_half4"
                       : bfloat      ? "load_bfloat4"
                                     : "load_float8";
    if (bfloat) ein__kneed(g, EIN__NEED_BFLOAT_LOAD4);
    else if (half || eight)
        ein__kneed(g, !eight ? EIN__NEED_LOAD4 : half ? EIN__NEED_LOAD8 : EIN__NEED_FLOAT8);
    else load = ein__namef(g->ctx, "*reinterpret_cast<const %s *>", ein__kread_type(g, at->dtype));
    return ein__namef(g->ctx, "%s(%s)", load, from);
}

// `make_float4(v, v, v, v)`
static const char *ein__kfill(ein__kgen *g, const char *v) {
    ein__buf b = {0};
    if (g->vec == 8) {
        ein__kneed(g, EIN__NEED_FILL8);
        return ein__namef(g->ctx, "make_float8(%s)", v);
    }
    ein__putf(&b, "make_%s(%s", ein__kvec_type(g), v);
    for (int i = 1; i < g->vec; i++) ein__putf(&b, ", %s", v);
    ein__put(&b, ")");
    const char *s = ein__name(g->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

static ein__ktext ein__kvalue(ein__kgen *g, ein__ex ex, int lane);
static bool ein__kinteger(ein__kgen *g, ein__ex ex);

// The names of an expression as an integer and as a float are different ones.
static ein__kkind ein__kex_kind(const ein__kgen *g) {
    return g->num == EIN__NUM_INT ? EIN__N_INTEGER : EIN__N_EX;
}

static ein__ktext ein__kname_value(ein__kgen *g, ein__ex ex, int lane, ein__ktext t) {
    if (t.prec == EIN__NAMED) return t;
    ein__kterm named = {1, t, 0, 1, 0};
    return ein__kdeclare(g, ein__kex_kind(g), ex.i, lane, ein__knum_type(g), named).text;
}

// A value whose text may be repeated.
static ein__ktext ein__kvalue_named(ein__kgen *g, ein__ex ex, int lane) {
    ein__ktext t = ein__kvalue(g, ex, lane);
    const ein__kname *known = ein__kfind(g, ein__kex_kind(g), ex.i, lane);
    return known ? known->t.text : ein__kname_value(g, ex, lane, t);
}

// What the kernel's member `v` is computed in.
static ein__knum ein__kmember_num(ein__kgen *g, ein__val v) {
    bool whole = ein__kdtype(g, v) > EIN__BF16 && ein__kinteger(g, ein__kbody(g, v));
    return whole ? EIN__NUM_INT : g->num == EIN__NUM_INT ? EIN__NUM_FLOAT : g->num;
}

// `value`, which was computed in `from`, as what reads it from memory has it, where it is of type
// `t`: integers may be cut off there.
static ein__ktext ein__kas_stored(ein__kgen *g, ein__dtype t, ein__knum from, ein__ktext value) {
    ein__knum num = g->num;
    if (t == EIN__I64 && from == EIN__NUM_INT) {
        if (num == EIN__NUM_INT) return value;
        value.s = ein__kparen(g, value, EIN__PREFIX);
    } else {
        g->num = from;
        value.s = ein__kstored(g, t, value);
        g->num = num;
    }
    if (t == EIN__BOOL) value.s = ein__namef(g->ctx, "(%s)", value.s);
    value.s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), value.s);
    value.prec = EIN__PREFIX;
    return value;
}

// What another member of the kernel computes in numbers of its own, `from`.
static ein__ktext ein__kmember_value(ein__kgen *g, ein__val v, ein__knum from, int lane) {
    ein__knum num = g->num;
    g->num = from;
    ein__ktext value = ein__kvalue(g, ein__kbody(g, v), lane);
    g->num = num;
    return value;
}

// What another member of the kernel stores, put in place.
static ein__ktext ein__kput_value(ein__kgen *g, ein__val v, int lane) {
    ein__dtype t = ein__kdtype(g, v);
    if (t <= EIN__BF16) return ein__kvalue(g, ein__kbody(g, v), lane);
    ein__knum from = ein__kmember_num(g, v);
    return ein__kas_stored(g, t, from, ein__kmember_value(g, v, from, lane));
}

static ein__ktext ein__kput_element(ein__kgen *g, ein__val v, int lane) {
    ein__knum num = g->num, from = ein__kmember_num(g, v);
    ein__ktext value = ein__kmember_value(g, v, from, lane);
    g->num = from;
    value.s = ein__kstored(g, ein__kdtype(g, v), value);
    g->num = num;
    return value;
}

// What another member has in registers; what has no text for this lane is the same in all of them.
static ein__ktext ein__kinner_value(ein__kgen *g, const ein__kinner *in, int lane) {
    ein__ktext t = {in->text[lane] ? in->text[lane] : *in->text, EIN__NAMED, in->level};
    return in->whole ? ein__kas_stored(g, ein__kdtype(g, in->v), EIN__NUM_INT, t) : t;
}

static ein__ktext ein__kread(ein__kgen *g, ein__ex ex, int lane) {
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    for (int i = 0; i < g->nover; i++)
        if (g->over[i].ex.i == ex.i) {
            ein__ktext t = g->over[i].text;
            if (g->over[i].as.i) return ein__kvalue(g, g->over[i].as, lane);
            if (g->over[i].lane[lane]) t.s = g->over[i].lane[lane];
            // Registers are floats, of integers too.
            if (g->num == EIN__NUM_INT) t.s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), t.s);
            return t;
        }
    const ein__kinner *in = ein__kinner_of(g, x->val);
    if (in && in->put) return ein__kput_value(g, in->v, lane);
    if (in) return ein__kinner_value(g, in, lane);
    ein__ktext pad = ein__kliteral(g, ein__kbits(x));
    const ein__kname *known = ein__kfind(g, EIN__N_VECTOR, ex.i, 0);
    if (!known && g->vec > 1) {
        ein__kaccess at = ein__kaccess_of(g, ex, 0);
        if (at.vector) {
            const char *s;
            if (!at.guard) s = ein__kload4(g, &at);
            else
                s = ein__namef(g->ctx, "%s ? %s : %s", at.guard, ein__kload4(g, &at),
                               ein__kfill(g, pad.s));
            ein__kterm t = {1, {s, EIN__COND, at.level}, 0, 1, 0};
            ein__kdeclare(g, EIN__N_VECTOR, ex.i, 0, ein__kread_type(g, at.dtype), t);
            known = ein__kfind(g, EIN__N_VECTOR, ex.i, 0);
        } else if (at.step) {
            // Lanes that are constants apart (digits of the position) may be read one by one:
            // neighbouring threads still read neighbours.
            g->scattered += !at.near;
        } else if (lane) {
            return ein__kvalue_named(g, ex, 0);
        }
    }
    if (known) {
        ein__ktext v = known->t.text;
        v.s = ein__namef(g->ctx, "%s.%s", v.s, ein__klane[lane]);
        if (ein__kdtype(g, (ein__val){x->val}) != EIN__BOOL) return v;
        v.s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), v.s);
        v.prec = EIN__PREFIX;
        return v;
    }
    ein__kaccess at = ein__kaccess_of(g, ex, lane);
    ein__ktext t = ein__kload(g, &at, at.level);
    if (!at.guard) return t;
    return (ein__ktext){ein__namef(g->ctx, "%s ? %s : %s", at.guard, t.s, pad.s), EIN__COND,
                        at.level};
}

static ein__ktext ein__kcall(ein__kgen *g, const char *name, ein__ktext a) {
    const char *suffix = g->num == EIN__NUM_FLOAT ? "f" : "";
    return (ein__ktext){ein__namef(g->ctx, "%s%s(%s)", name, suffix, a.s), EIN__PRIMARY, a.level};
}

static ein__ktext ein__kinfix(ein__kgen *g, const char *op, ein__ktext a, ein__ktext b, int prec) {
    const char *s =
        ein__namef(g->ctx, "%s %s %s", ein__kparen(g, a, prec), op, ein__kparen(g, b, prec - 1));
    return (ein__ktext){s, prec, ein__kmax(a.level, b.level)};
}

// What a unary function is taken of. A division whose rounding it does not tell is a
// multiplication.
static ein__ktext ein__kargument(ein__kgen *g, const ein__expr *x, int lane) {
    double factor;
    ein__ex ex = x->kid[0];
    if (g->num != EIN__NUM_FLOAT || ein__kmemo_of(g, ex)->uses > 1 ||
        !ein__is_scaled(g->ctx, x, &factor))
        return ein__kvalue(g, ex, lane);
    ein__ktext a = ein__kvalue(g, ein__ex_get(g->ctx, ex)->kid[0], lane);
    return ein__kinfix(g, "*", a, ein__kliteral(g, factor), EIN__PRODUCT);
}

// A function whose result halves hold the digits of: from the special function unit, as far as that
// has it, which keeps infinities and what is no number. False: it is as it always is.
static bool ein__khalf_unary(ein__kgen *g, const ein__expr *x, ein__ktext a, ein__ktext *to) {
    ein_ctx *c = g->ctx;
    const char *p = ein__kparen(g, a, EIN__PRIMARY);
    if (!g->halves || g->num != EIN__NUM_FLOAT) return false;
    *to = (ein__ktext){.prec = EIN__PRIMARY, .level = a.level};
    switch ((int)x->fn) {
    case EIN__ERF:
        ein__kneed(g, EIN__NEED_HALF_ERF);
        to->s = ein__namef(c, "half_erf(%s)", a.s);
        return true;
    case EIN__EXP: to->s = ein__namef(c, "__expf(%s)", a.s); return true;
    case EIN__SIGMOID: to->s = ein__namef(c, "__fdividef(1.f, 1.f + __expf(-%s))", p); return true;
    case EIN__TANH:
        to->s = ein__namef(c, "1.f - __fdividef(2.f, 1.f + __expf(2.f * %s))", p);
        to->prec = EIN__TERM;
        return true;
    default: return false;
    }
}

static ein__ktext ein__kunary(ein__kgen *g, const ein__expr *x, int lane) {
    bool twice = x->fn == EIN__SQUARE || (x->fn == EIN__ABS && g->num == EIN__NUM_INT) ||
                 (x->fn == EIN__RELU && g->num != EIN__NUM_FLOAT);
    ein__ktext a = twice ? ein__kvalue_named(g, x->kid[0], lane) : ein__kargument(g, x, lane);
    ein__ktext zero = ein__kliteral(g, 0), one = ein__kliteral(g, 1);
    const char *p = ein__kparen(g, a, EIN__PRIMARY);
    ein_ctx *c = g->ctx;
    ein__ktext half;
    if (ein__khalf_unary(g, x, a, &half)) return half;
    switch ((ein__fn)x->fn) {
    case EIN__NEG: return (ein__ktext){ein__namef(c, "-%s", p), EIN__PREFIX, a.level};
    case EIN__RELU:  // not fmax: NaN stays NaN
        if (g->num != EIN__NUM_FLOAT)
            return (ein__ktext){ein__namef(c, "%s < %s ? %s : %s", p, zero.s, zero.s, p), EIN__COND,
                                a.level};
        ein__kneed(g, EIN__NEED_RELU);
        return (ein__ktext){ein__namef(c, "relu(%s)", a.s), EIN__PRIMARY, a.level};
    case EIN__SQUARE: return (ein__ktext){ein__namef(c, "%s * %s", p, p), EIN__PRODUCT, a.level};
    case EIN__ABS:
        if (g->num != EIN__NUM_INT) return ein__kcall(g, "fabs", a);
        return (ein__ktext){ein__namef(c, "%s < 0 ? -%s : %s", p, p, p), EIN__COND, a.level};
    case EIN__TANH: return ein__kcall(g, "tanh", a);
    case EIN__EXP: return ein__kcall(g, "exp", a);
    case EIN__LOG: return ein__kcall(g, "log", a);
    case EIN__SQRT: return ein__kcall(g, "sqrt", a);
    case EIN__ERF: return ein__kcall(g, "erf", a);
    case EIN__FLOORF: return ein__kcall(g, "floor", a);
    case EIN__CEILF: return ein__kcall(g, "ceil", a);
    case EIN__SIN: return ein__kcall(g, "sin", a);
    case EIN__COS: return ein__kcall(g, "cos", a);
    case EIN__ATAN: return ein__kcall(g, "atan", a);
    case EIN__RSQRT:
        a = ein__kcall(g, "sqrt", a);
        return (ein__ktext){ein__namef(c, "%s / %s", one.s, a.s), EIN__PRODUCT, a.level};
    case EIN__SIGMOID:
        a = ein__kcall(g, "exp", (ein__ktext){ein__namef(c, "-%s", p), EIN__PREFIX, a.level});
        return (ein__ktext){ein__namef(c, "%s / (%s + %s)", one.s, one.s, a.s), EIN__PRODUCT,
                            a.level};
    case EIN__ADD:
    case EIN__SUB:
    case EIN__MUL:
    case EIN__DIV:
    case EIN__POW:
    case EIN__QUOT:
    case EIN__REM:
    case EIN__MIN:
    case EIN__MAX:
    case EIN__EQ:
    case EIN__NE:
    case EIN__LT:
    case EIN__LE:
    case EIN__GT:
    case EIN__GE:
    case EIN__NFN: break;
    }
    EIN_ASSERT(0 && "unary function");
    return a;
}

// A quotient or a remainder; `b` may be repeated where it is an integer. Nothing comes of a
// division by 0, which would end a program on a CPU.
static ein__ktext ein__kquotient(ein__kgen *g, const ein__expr *x, ein__ktext a, ein__ktext b) {
    bool rem = x->fn == EIN__REM;
    if (g->num == EIN__NUM_INT) {
        ein__ktext part = ein__kinfix(g, rem ? "%" : "/", a, b, EIN__PRODUCT);
        const char *zero = ein__kparen(g, b, EIN__TERM);
        part.s = ein__namef(g->ctx, "%s == 0 ? 0 : %s", zero, part.s);
        part.prec = EIN__COND;
        return part;
    }
    if (!rem) return ein__kcall(g, "trunc", ein__kinfix(g, "/", a, b, EIN__PRODUCT));
    const char *f = g->num == EIN__NUM_FLOAT ? "f" : "";
    return (ein__ktext){ein__namef(g->ctx, "fmod%s(%s, %s)", f, a.s, b.s), EIN__PRIMARY,
                        ein__kmax(a.level, b.level)};
}

// `a` over `b`, which is `divisor`. A compiler warns of a zero; times infinity is the same.
static ein__ktext ein__kdivision(ein__kgen *g, ein__ex divisor, ein__ktext a, ein__ktext b) {
    const ein__expr *e = ein__ex_get(g->ctx, divisor);
    double c = e->op == EIN__X_CONST ? ein__f64_of(e->bits) : 1;
    if (c != 0 || g->num == EIN__NUM_INT) return ein__kinfix(g, "/", a, b, EIN__PRODUCT);
    ein__ktext infinity = {signbit(c) ? "-INFINITY" : "INFINITY", EIN__PREFIX, 0};
    return ein__kinfix(g, "*", a, infinity, EIN__PRODUCT);
}

static ein__ktext ein__kbinary(ein__kgen *g, const ein__expr *x, int lane) {
    bool pick = g->num == EIN__NUM_INT && (x->fn == EIN__MIN || x->fn == EIN__MAX);
    ein__ex kid[4];
    ein__kkids(g, x, kid);
    ein__ktext a = pick ? ein__kvalue_named(g, kid[0], lane) : ein__kvalue(g, kid[0], lane);
    bool part = g->num == EIN__NUM_INT && (x->fn == EIN__QUOT || x->fn == EIN__REM);
    ein__ktext b = pick || part ? ein__kvalue_named(g, kid[1], lane) : ein__kvalue(g, kid[1], lane);
    const char *f = g->num == EIN__NUM_FLOAT ? "f" : "", *call = "pow";
    switch ((ein__fn)x->fn) {
    case EIN__ADD: return ein__kinfix(g, "+", a, b, EIN__TERM);
    case EIN__SUB: return ein__kinfix(g, "-", a, b, EIN__TERM);
    case EIN__MUL: return ein__kinfix(g, "*", a, b, EIN__PRODUCT);
    case EIN__DIV: return ein__kdivision(g, kid[1], a, b);
    case EIN__MIN: call = "fmin"; break;
    case EIN__MAX: call = "fmax"; break;
    case EIN__POW: break;
    case EIN__QUOT:
    case EIN__REM: return ein__kquotient(g, x, a, b);
    case EIN__EQ:
    case EIN__NE:
    case EIN__LT:
    case EIN__LE:
    case EIN__GT:
    case EIN__GE:
    case EIN__NEG:
    case EIN__ABS:
    case EIN__RELU:
    case EIN__TANH:
    case EIN__EXP:
    case EIN__LOG:
    case EIN__SQRT:
    case EIN__RSQRT:
    case EIN__ERF:
    case EIN__SIGMOID:
    case EIN__FLOORF:
    case EIN__CEILF:
    case EIN__SQUARE:
    case EIN__SIN:
    case EIN__COS:
    case EIN__ATAN:
    case EIN__NFN: EIN_ASSERT(0 && "binary function");
    }
    int level = ein__kmax(a.level, b.level);
    if (pick)
        return (ein__ktext){ein__namef(g->ctx, "%s %s %s ? %s : %s", a.s,
                                       x->fn == EIN__MIN ? "<" : ">", b.s, a.s, b.s),
                            EIN__COND, level};
    return (ein__ktext){ein__namef(g->ctx, "%s%s(%s, %s)", call, f, a.s, b.s), EIN__PRIMARY, level};
}

// Both sides of a comparison of an index with another one, or with an integer, as they are.
static bool ein__kcounts(ein__kgen *g, const ein__expr *x, int lane, ein__ktext *v) {
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const ein__expr *e = ein__ex_get(g->ctx, x->kid[i]);
        double c = e->op == EIN__X_CONST ? ein__kbits(e) : 0.5;
        if (e->op == EIN__X_IDX && ein__ix_get(g->ctx, e->ix[0])->q == 1) {
            ein__klin l = ein__klin_of(g, e->ix[0], lane);
            v[i] = ein__klin_text(g, &l, lane);
            n++;
        } else if (c > INT32_MIN && c < INT32_MAX && c == (double)(int32_t)c) {
            v[i] =
                ein__kt(g, c < 0 ? EIN__PREFIX : EIN__NAMED, 0, ein__namef(g->ctx, "%d", (int)c));
        } else {
            return false;
        }
    }
    return n > 0;
}

// Integer expression `ex` as an integer, in a kernel that computes in floats.
static ein__ktext ein__kvalue_integer(ein__kgen *g, ein__ex ex, int lane) {
    ein__knum num = g->num;
    g->num = EIN__NUM_INT;
    ein__ktext t = ein__kvalue(g, ex, lane);
    g->num = num;
    return t;
}

// Whether arithmetic `x` on integers comes to more than a float has digits for, so that it must not
// be rounded before its end.
static bool ein__kexact(ein__kgen *g, ein__ex ex, const ein__expr *x) {
    bool sum =
        x->op == EIN__X_BINARY && (x->fn == EIN__ADD || x->fn == EIN__SUB || x->fn == EIN__MUL);
    bool square = x->op == EIN__X_UNARY && x->fn == EIN__SQUARE;
    bool part = x->op == EIN__X_BINARY && (x->fn == EIN__QUOT || x->fn == EIN__REM);
    return (sum || square || part) && g->num != EIN__NUM_INT && ein__kinteger(g, ex) &&
           (part || !ein__fits_float(g->ctx, ex));
}

// Whether a comparison must see integers as they are. Rounded to floats they compare with a small
// one as before.
static bool ein__kcompares(ein__kgen *g, const ein__expr *x) {
    int wide = 0;
    bool sum = false;
    for (int i = 0; i < 2; i++) {
        if (g->num == EIN__NUM_INT || !ein__kinteger(g, x->kid[i])) return false;
        if (ein__fits_float(g->ctx, x->kid[i])) continue;
        wide++;
        sum |= ein__ex_get(g->ctx, x->kid[i])->op != EIN__X_READ;
    }
    return wide > 1 || sum;
}

// What choice `x` asks; in a kernel that computes in integers, of floats as such.
static const char *ein__kcondition(ein__kgen *g, const ein__expr *x, int lane, int *level) {
    static const char *const cmp[] = {"==", "!=", "<", "<=", ">", ">="};
    ein__ktext v[2];
    bool counts = ein__kcounts(g, x, lane, v);
    bool integer = !counts && ein__kcompares(g, x);
    ein__knum num = g->num;
    if (num == EIN__NUM_INT && !(ein__kinteger(g, x->kid[0]) && ein__kinteger(g, x->kid[1])))
        g->num = EIN__NUM_FLOAT;
    for (int i = 0; i < 2; i++) {
        if (integer) v[i] = ein__kvalue_integer(g, x->kid[i], lane);
        else if (!counts) v[i] = ein__kvalue(g, x->kid[i], lane);
        *level = ein__kmax(*level, v[i].level);
    }
    g->num = num;
    EIN_ASSERT(x->fn >= EIN__EQ && x->fn <= EIN__GE);
    return ein__namef(g->ctx, "%s %s %s", ein__kparen(g, v[0], EIN__TERM), cmp[x->fn - EIN__EQ],
                      ein__kparen(g, v[1], EIN__TERM));
}

static ein__ktext ein__kselect(ein__kgen *g, const ein__expr *x, int lane) {
    ein__ktext v[2];
    int level = 0;
    const char *is = ein__kcondition(g, x, lane, &level);
    for (int i = 0; i < 2; i++) {
        v[i] = ein__kvalue(g, x->kid[2 + i], lane);
        level = ein__kmax(level, v[i].level);
    }
    const char *s = ein__namef(g->ctx, "%s ? %s : %s", is, ein__kparen(g, v[0], EIN__AND),
                               ein__kparen(g, v[1], EIN__AND));
    return (ein__ktext){s, EIN__COND, level};
}

static ein__ktext ein__kwhen(ein__kgen *g, const ein__expr *x, int lane) {
    ein__kaxis a = ein__kaxis_of(g, x->ix[0], x->n, lane);
    ein__ktext zero = ein__kliteral(g, 0);
    if (!a.guard) return x->negate ? zero : ein__kvalue(g, x->kid[0], lane);
    ein__ktext v = ein__kvalue(g, x->kid[0], lane);
    const char *p = ein__kparen(g, v, EIN__AND);
    const char *s =
        ein__namef(g->ctx, "%s ? %s : %s", a.guard, x->negate ? zero.s : p, x->negate ? p : zero.s);
    return (ein__ktext){s, EIN__COND, ein__kmax(a.level, v.level)};
}

static ein__ktext ein__kidx(ein__kgen *g, const ein__expr *x, int lane) {
    ein__klin l = ein__klin_of(g, x->ix[0], lane);
    const ein__index *f = ein__ix_get(g->ctx, x->ix[0]);
    if (!l.n && f->q == 1) return ein__kliteral(g, (double)l.c);
    ein__ktext t = ein__klin_text(g, &l, lane);
    t.s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), ein__kparen(g, t, EIN__PRIMARY));
    t.prec = EIN__PREFIX;
    return f->q > 1 ? ein__kinfix(g, "/", t, ein__kliteral(g, (double)f->q), EIN__PRODUCT) : t;
}

// The value of an expression in one lane. The text may stand anywhere from its level on.
static ein__ktext ein__kvalue(ein__kgen *g, ein__ex ex, int lane) {
    bool shared = g->vec > 1 && g->vec_slot >= 0 && !(ein__kmask(g, ex) & 1u << g->vec_slot);
    if (shared) lane = 0;
    const ein__kname *known = ein__kfind(g, ein__kex_kind(g), ex.i, lane);
    if (known) return known->t.text;
    const ein__expr *x = ein__ex_get(g->ctx, ex);
    ein__ktext t = {0};
    if (ein__kexact(g, ex, x)) {
        t = ein__kvalue_integer(g, ex, lane);
        t.s = ein__namef(g->ctx, "(%s)%s", ein__knum_type(g), ein__kparen(g, t, EIN__PRIMARY));
        t.prec = EIN__PREFIX;
        return t;
    }
    switch ((ein__xop)x->op) {
    case EIN__X_CONST: return ein__kliteral(g, ein__kbits(x));
    case EIN__X_IDX: t = ein__kidx(g, x, lane); break;
    case EIN__X_READ: t = ein__kread(g, ex, lane); break;
    case EIN__X_UNARY: t = ein__kunary(g, x, lane); break;
    case EIN__X_BINARY: t = ein__kbinary(g, x, lane); break;
    case EIN__X_WHEN: t = ein__kwhen(g, x, lane); break;
    case EIN__X_SELECT: t = ein__kselect(g, x, lane); break;
    }
    // Behind a question a load would stay in a loop that does not move it.
    bool ahead = g->narrow && x->op == EIN__X_READ && !t.level;
    if (shared || ahead || ein__kmemo_of(g, ex)->uses > 1 || strlen(t.s) > EIN__LONG)
        return ein__kname_value(g, ex, lane, t);
    return t;
}

static bool ein__kinteger_of(ein__kgen *g, const ein__expr *x) {
    switch ((ein__xop)x->op) {
    case EIN__X_CONST: {
        double v = ein__kbits(x);
        return v > -9e15 && v < 9e15 && v == (double)(int64_t)v;
    }
    case EIN__X_IDX: return ein__ix_get(g->ctx, x->ix[0])->q == 1;
    case EIN__X_READ: {
        ein__dtype t = ein__val_get(g->ctx, (ein__val){x->val})->dtype;
        double v = ein__kbits(x);
        return t != EIN__F32 && t != EIN__F16 && t != EIN__BF16 && v > -9e15 && v < 9e15;
    }
    case EIN__X_UNARY:
        if (x->fn != EIN__NEG && x->fn != EIN__ABS && x->fn != EIN__RELU && x->fn != EIN__SQUARE)
            return false;
        break;
    case EIN__X_BINARY:
        if (x->fn == EIN__DIV || x->fn == EIN__POW) return false;
        break;
    case EIN__X_WHEN:
    case EIN__X_SELECT: break;
    }
    for (uint32_t i = 0; i < x->nkid; i++)
        if (!ein__kinteger(g, x->kid[i])) return false;
    return true;
}

// Integers are computed as integers where nothing else takes part.
static bool ein__kinteger(ein__kgen *g, ein__ex ex) {
    ein__kmemo *m = ein__kmemo_of(g, ex);
    if (!m->integer) m->integer = ein__kinteger_of(g, ein__ex_get(g->ctx, ex)) ? 1 : 2;
    return m->integer == 1;
}
