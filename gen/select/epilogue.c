// The epilogue of a library call, what it computes behind its product in the same launch:
// act(product + z + bias). Matched on the map that alone reads the product, whatever the order of
// its terms; which part of it a call can take depends on the result's layout.

// The map's terms beside the product. `coef`, `step`: addresses of bias and z by iterator of the
// map, under the layouts as they stand.
typedef struct ein__epilogue {
    ein__val bias, z;
    ein__act act;
    int64_t coef[EIN__MAX_ITERS], step[EIN__MAX_ITERS], at;  // at: the bias's first element
} ein__epilogue;

// Factors of a product, constants multiplied out.
typedef struct ein__product_form {
    double scale;
    ein__ex factor[4];
    int n;
} ein__product_form;

static bool ein__flatten_product(ein_ctx *ctx, ein__ex ex, ein__product_form *p) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    double c;
    if (ein__ex_is_const(ctx, ex, &c)) {
        p->scale *= c;
        return true;
    }
    int times = 1;
    if (e->op == EIN__X_BINARY && e->fn == EIN__MUL)
        return ein__flatten_product(ctx, e->kid[0], p) && ein__flatten_product(ctx, e->kid[1], p);
    if (e->op == EIN__X_UNARY && e->fn == EIN__SQUARE) times = 2;
    if (e->op == EIN__X_BINARY && e->fn == EIN__POW && ein__ex_is_const(ctx, e->kid[1], &c) &&
        (c == 2 || c == 3))
        times = (int)c;
    if (p->n + times > 4) return false;
    for (int k = 0; k < times; k++) p->factor[p->n++] = times > 1 ? e->kid[0] : ex;
    return true;
}

// To six digits, as the literature prints such numbers.
static bool ein__is_scale(double v, int64_t millionths) {
    return v > -1e6 && v < 1e6 && (int64_t)floor(v * 1e6 + 0.5) == millionths;
}

// Whether `ex` is x to a power, with a coefficient in millionths.
static bool ein__is_power(ein_ctx *ctx, ein__ex ex, ein__ex x, int power, int64_t millionths) {
    ein__product_form p = {.scale = 1};
    if (!ein__flatten_product(ctx, ex, &p) || p.n != power) return false;
    for (int k = 0; k < power; k++)
        if (p.factor[k].i != x.i) return false;
    return ein__is_scale(p.scale, millionths);
}

enum { EIN__ADDENDS = 6 };

// The terms of nested sums, in their order; false when they are more than EIN__ADDENDS.
static bool ein__addends(ein_ctx *ctx, ein__ex ex, ein__ex *term, int *n) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_BINARY && e->fn == EIN__ADD)
        return ein__addends(ctx, e->kid[0], term, n) && ein__addends(ctx, e->kid[1], term, n);
    if (*n == EIN__ADDENDS) return false;
    term[(*n)++] = ex;
    return true;
}

// What is left of sum `ex` without the terms of `part`, if that is one term.
static ein__ex ein__addend_beside(ein_ctx *ctx, ein__ex ex, ein__ex part) {
    ein__ex all[EIN__ADDENDS], out[EIN__ADDENDS];
    int n = 0, nout = 0;
    if (!ein__addends(ctx, ex, all, &n) || !ein__addends(ctx, part, out, &nout) || n != nout + 1)
        return (ein__ex){0};
    for (int i = 0; i < nout; i++) {
        int at = 0;
        while (at < n && all[at].i != out[i].i) at++;
        if (at == n) return (ein__ex){0};
        all[at] = all[--n];
    }
    return all[0];
}

// GELU's tanh form (Hendrycks and Gimpel 2016), 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))):
// its x, or none.
static ein__ex ein__gelu_operand(ein_ctx *ctx, ein__ex body) {
    ein__product_form p = {.scale = 1};
    if (!ein__flatten_product(ctx, body, &p) || p.n != 2 || p.scale != 0.5) return (ein__ex){0};
    for (int k = 0; k < 2; k++) {
        ein__ex x = p.factor[k];
        ein__ex t = ein__addend_beside(ctx, p.factor[1 - k], ein__ex_const(ctx, 1));
        const ein__expr *tanh = t.i ? ein__ex_get(ctx, t) : NULL;
        ein__product_form u = {.scale = 1};
        if (!tanh || tanh->op != EIN__X_UNARY || tanh->fn != EIN__TANH) continue;
        if (!ein__flatten_product(ctx, tanh->kid[0], &u) || u.n != 1) continue;
        if (!ein__is_scale(u.scale, 797885)) continue;
        ein__ex cubic = ein__addend_beside(ctx, u.factor[0], x);
        if (cubic.i && ein__is_power(ctx, cubic, x, 3, 44715)) return x;
    }
    return (ein__ex){0};
}

// The activation at the top of a body, and what it is applied to.
static ein__act ein__activation(ein_ctx *ctx, ein__ex body, ein__ex *sum) {
    const ein__expr *top = ein__ex_get(ctx, body);
    double zero = 1;
    *sum = top->nkid ? top->kid[0] : body;
    if (top->op == EIN__X_UNARY && top->fn == EIN__RELU) return EIN__ACT_RELU;
    for (int k = 0; top->op == EIN__X_BINARY && top->fn == EIN__MAX && k < 2; k++)
        if (ein__ex_is_const(ctx, top->kid[k], &zero) && zero == 0) {
            *sum = top->kid[1 - k];
            return EIN__ACT_RELU;
        }
    *sum = ein__gelu_operand(ctx, body);
    // CUDA 10.2, the last toolkit for GPUs before compute capability 7.0 on Jetsons, has no GELU.
    if (sum->i && ein__gpu_of(ctx)->cc >= 70) return EIN__ACT_GELU;
    *sum = body;
    return EIN__ACT_NONE;
}

// A term beside the product, and its address by iterator of the map; `whole`: a value like the
// product, read at the map's own place.
typedef struct ein__term_of_sum {
    ein__val v;
    bool whole;
    int64_t at, coef[EIN__MAX_ITERS];
} ein__term_of_sum;

typedef struct ein__sum_form {
    const ein__scope *m;
    ein__dtype type;  // of the result, and of every term
    ein__ex product;
    int products, n;
    ein__term_of_sum term[2];
} ein__sum_form;

static bool ein__flatten_sum(ein_ctx *ctx, ein__ex ex, ein__sum_form *z) {
    const ein__expr *x = ein__ex_get(ctx, ex);
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    if (ex.i == z->product.i) return ++z->products == 1;
    if (x->op == EIN__X_BINARY && x->fn == EIN__ADD)
        return ein__flatten_sum(ctx, x->kid[0], z) && ein__flatten_sum(ctx, x->kid[1], z);
    if (x->op != EIN__X_READ || ctx->value[x->val].dtype != z->type || z->n == 2) return false;
    ein__strides_of(ctx, (ein__val){x->val}, stride);
    if (!ein__address(ctx, x, stride, &f)) return false;
    ein__term_of_sum *t = &z->term[z->n++];
    *t = (ein__term_of_sum){{x->val}, ein__reads_whole(ctx, x, z->m), f.offset, {0}};
    for (uint32_t k = 0; k < z->m->nt; k++) t->coef[k] = z->m->n[k] == 1 ? 0 : f.coef[k];
    return true;
}

// Which of two terms is the bias: the one that is no whole value; of two such the constant one.
static int ein__bias_term(const ein_ctx *ctx, const ein__sum_form *z) {
    if (z->n == 1) return z->term[0].whole ? -1 : 0;
    for (int k = 0; k < 2; k++)
        if (!z->term[k].whole) return z->term[1 - k].whole ? k : -2;
    return ctx->value[z->term[0].v.i].weight_only ? 0 : 1;
}

// Whether map `v` over the product read by `product` is act(product [+ z] [+ bias]), and more than
// a copy of it, or one that is stored in another type. The product itself is not stored, so that
// its type says nothing more.
EIN__FN bool ein__epilogue_of(ein_ctx *ctx, ein__val v, ein__ex product, ein__epilogue *e) {
    const ein__scope *m = ein__scope_of(ctx, v);
    ein__sum_form z = {.m = m, .type = ctx->value[v.i].dtype, .product = product};
    ein__ex sum;
    *e = (ein__epilogue){0};
    if (m->reduce != EIN__R_NONE || !ein__reads_in_place(ctx, ein__ex_get(ctx, product), m))
        return false;
    e->act = ein__activation(ctx, m->body, &sum);
    bool converts = ctx->value[ein__ex_get(ctx, product)->val].dtype != z.type;
    if (!ein__flatten_sum(ctx, sum, &z) || !z.products || !(z.n || e->act || converts))
        return false;
    int bias = z.n ? ein__bias_term(ctx, &z) : -1;
    for (int k = 0; k < z.n; k++) {
        if (k == bias) e->bias = z.term[k].v, e->at = z.term[k].at;
        else e->z = z.term[k].v;
        memcpy(k == bias ? e->coef : e->step, z.term[k].coef, sizeof e->coef);
    }
    return bias > -2;
}

// The epilogue that map `m` is to the product `v` that it reads.
static bool ein__product_epilogue(ein_ctx *ctx, ein__val v, ein__val m, ein__epilogue *e) {
    const ein__scope *s = ein__scope_of(ctx, m);
    ein__ex product = {0};
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        if (ein__ex_get(ctx, reads[i])->val == v.i) product = reads[i];
    return product.i && ein__epilogue_of(ctx, m, product, e);
}

// ------------------------------------------------------------------------------------ convolution

// cuDNN's fused form is relu?(conv + z + bias) with a bias a channel: `f` is the convolution that
// it follows. Terms come in any order; where only z or relu is there, zeros stand for the bias.
static bool ein__conv_takes(ein_ctx *ctx, const ein__conv_form *f, ein__epilogue *e) {
    const ein__scope *s = f->s;
    int64_t space = 1, all = 1;
    if (e->act == EIN__ACT_GELU || f->transposed) return false;
    if (!e->bias.i) return true;
    for (uint32_t t = 0; t < s->nt; t++)
        if (f->role[t] == EIN__C_OUT || f->role[t] == EIN__C_GROUP) all *= s->n[t];
    for (int a = 0; a < f->c.spatial; a++) space *= f->c.out[a];
    int64_t want[EIN__MAX_RANK];
    ein__dense_result(s, want);
    bool fits = ctx->value[e->bias.i].weight_only && !e->at &&
                ein__elements(&ctx->value[e->bias.i].shape) == all;
    for (uint32_t t = 0; t < s->nt && fits; t++) {
        bool channel = f->role[t] == EIN__C_OUT || f->role[t] == EIN__C_GROUP;
        fits = s->n[t] == 1 || e->coef[t] == (channel ? want[t] / space : 0);
    }
    return fits;
}

// ------------------------------------------------------------------------------------ products

// The greatest power of two up to `most` that divides all of `n` elements of `size` bytes.
static int ein__aligned(int most, int64_t size, const int64_t *n, int count) {
    for (int i = 0; i < count; i++)
        while (most > size && n[i] * size % most) most /= 2;
    return most;
}

// cublasLt adds a vector over the rows of its column-major result, which are the columns of ours,
// and a matrix with a leading dimension of its own, one for each product of a batch. `out`: strides
// of the result of `s`, from which `g` was made. Fills the call's epilogue. What the caller gives
// is 16-byte aligned, and a bias that begins elsewhere would slow the whole product down.
static bool ein__gemm_takes(const ein__scope *s, const int64_t *out, const ein__epilogue *e,
                            ein__gemm *g) {
    int64_t ldz = 0, sz = 0;
    if (e->bias.i && e->at * ein__math_bytes(g->math) % 16) return false;
    for (uint32_t t = 0; t < s->nt; t++) {
        bool column = g->columns >> t & 1, row = g->rows >> t & 1;
        if (s->n[t] == 1) continue;
        if (e->bias.i && e->coef[t] != (column ? out[t] : 0)) return false;
        if (!e->z.i || (column && e->step[t] == out[t])) continue;
        // A row's iterator moves by as many rows of z as of the result; so does one of the batch.
        int64_t unit = row ? g->ldc : g->sc, count = unit ? out[t] / unit : 0;
        int64_t *each = row ? &ldz : &sz;
        if (column || !count || e->step[t] % count || e->step[t] <= 0) return false;
        if (*each && *each != e->step[t] / count) return false;
        *each = e->step[t] / count;
    }
    if (e->z.i && g->m > 1 && (ldz < g->n || ldz > INT32_MAX)) return false;
    g->bias = e->bias;
    g->z = e->z;
    g->act = e->act;
    g->ldz = e->z.i ? (ldz ? ldz : g->n) : 0;
    g->sz = sz;
    int64_t places[] = {g->oa, g->ob};
    g->align = ein__aligned(16, ein__math_bytes(g->math), places, 2);
    return true;
}

// ------------------------------------------------------------------------------------ choice

EIN__FN int64_t ein__kernel_cost(ein_ctx *ctx, ein__val v) {
    return ein__cost_scope(ctx, EIN__K_MAP, ein__scope_of(ctx, v), (ein__val){0}, (ein__ex){0});
}

// The cheapest GEMM for contraction `s` whose result is dense in declared order or, when its order
// is free, in any that makes it fewer calls; one that takes epilogue `e`, where there is one.
// Without `ps` nothing is priced: the least batch wins.
static bool ein__best_product(ein_ctx *ctx, const ein__scope *s, bool free, const ein__epilogue *e,
                              ein__gemm *g, int64_t *ps) {
    int64_t out[EIN__MAX_RANK];
    int order[EIN__GEMM_ORDERS][EIN__MAX_RANK];
    ein__factors p;
    if (ps) *ps = INT64_MAX;
    if (!ein__product_of(ctx, s, &p)) return false;
    ein__dense_result(s, out);
    bool found = ein__match_product(ctx, s, &p, out, g) && (!e || ein__gemm_takes(s, out, e, g));
    if (found && ps) *ps = ein__cost_gemm(ctx, g);
    if (!free || (found && g->batch == 1)) return found;
    int n = ein__gemm_orders(s, &p, order);
    for (int k = 0; k < n; k++) {
        ein__gemm other;
        ein__order_strides(s->n, (int)s->nt, order[k], out);
        if (!ein__match_product(ctx, s, &p, out, &other)) continue;
        if (e && !ein__gemm_takes(s, out, e, &other)) continue;
        int64_t cost = ps ? ein__cost_gemm(ctx, &other) : 0;
        if (ps ? cost >= *ps : found && other.batch >= g->batch) continue;
        *g = other;
        if (ps) *ps = cost;
        found = true;
    }
    return found;
}

EIN__FN bool ein__best_gemm(ein_ctx *ctx, const ein__scope *s, bool free, ein__gemm *g,
                            int64_t *ps) {
    return ein__best_product(ctx, s, free, NULL, g, ps);
}

// GEMM for `s` with map `m` behind it, which reads it by `read` (or none): what both cost, and
// whether the map is part of the call.
static bool ein__gemm_and_map(ein_ctx *ctx, const ein__scope *s, ein__val m, ein__ex read,
                              bool free, int64_t *ps, bool *fused) {
    ein__gemm g;
    ein__epilogue e;
    int64_t both;
    *fused = false;
    if (!ein__best_product(ctx, s, free, NULL, &g, ps)) return false;
    if (!m.i) return true;
    *ps = ein__cost_sum(*ps, ein__kernel_cost(ctx, m));
    // The map's result may be an output, so it stays in declared order.
    ein__dtype type = ctx->value[m.i].dtype;
    *fused = ein__epilogue_of(ctx, m, read, &e) &&
             ein__best_product(ctx, s, false, &e, &g, &both) &&
             (type == EIN__F32 || (type == EIN__F16 && g.math == EIN__MATH_FP16)) && both <= *ps;
    if (*fused) *ps = both;
    return true;
}

// The cost of convolution `f` with map `m`, which alone reads it by `read` (or none): one call, if
// it can store the map too, in the convolution's type, and that is cheaper; else a call and a
// kernel. Gives whether it is one. Without measured rows one call is always cheaper.
static bool ein__conv_and_map(ein_ctx *ctx, const ein__conv_form *f, ein__val m, ein__ex read,
                              int64_t *ps) {
    ein__conv both = f->c;
    ein__epilogue e;
    *ps = ein__cost_conv_any(ctx, &f->c, f->transposed);
    if (!m.i) return false;
    *ps = ein__cost_sum(*ps, ein__kernel_cost(ctx, m));
    ein__dtype type = ctx->value[f->c.x.i].dtype;
    if (ctx->value[m.i].dtype != type || !ein__epilogue_of(ctx, m, read, &e) ||
        !ein__conv_takes(ctx, f, &e))
        return false;
    both.bias = e.bias;
    both.z = e.z;
    both.relu = e.act == EIN__ACT_RELU;
    int64_t one = ein__cost_conv_any(ctx, &both, f->transposed);
    if (one > *ps) return false;
    *ps = one;
    return true;
}

// Whether the value that `read` reads, if it is a convolution, and map `m` are one call.
static bool ein__conv_fuses(ein_ctx *ctx, ein__val m, ein__ex read) {
    const ein__scope *s = ein__scope_of(ctx, (ein__val){ein__ex_get(ctx, read)->val});
    int64_t out[EIN__MAX_RANK], ps;
    ein__conv_form f;
    ein__dense_result(s, out);
    return ein__find_conv(ctx, s, out, &f) && ein__conv_sizes(&f) &&
           ein__conv_and_map(ctx, &f, m, read, &ps);
}
