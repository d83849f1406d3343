// FP16 mode: the type that each value is stored in, decided on a program that is ready to be
// planned. Products read halves and add up in f32. Outputs keep the model's types, inputs are read
// as they are by maps and converted for products; statistics (the reductions of norms and softmax),
// what a softmax is taken of, numbers that are integers, what maps compute integers from, what the
// model stores as bf16 and what --keep-fp32 names stay f32.
// Everything is computed in f32.

// A statistic, what a maximum is taken of, what an output is a copy of, an integer as a number,
// what halves gain nothing for and may have too few exponents for, and what they have none for.
enum {
    EIN__IS_STATISTIC = 1,
    EIN__IS_SOURCE = 2,
    EIN__IS_OUTPUT = 4,
    EIN__IS_COUNT = 8,
    EIN__IS_WIDE = 16,
    EIN__IS_FAR = 32
};
enum { EIN__FEW_ELEMENTS = 64 };  // whose bytes are nothing beside a launch

typedef struct ein__storer {
    ein_ctx *ctx;
    ein__val *order;  // stb_ds array
    ein__val *now;    // by old value id: with its type
    ein__val *half;   // by old value id: a copy as f16, if one was needed; `full`: as f32
    ein__val *full;
    unsigned char *is;  // by old value id: EIN__IS_*
    bool *root;
    ein__selector with;     // attentions as one kernel
    ein__dtype operand;     // what reads are wanted as: EIN__NDTYPE any
    bool half_weights;      // those of weights as f16
    ein__val also_half[2];  // reads that are wanted as f16 whatever the others are
} ein__storer;

// ------------------------------------------------------------------------------------ statistics

// Whether `a` and `b` read a common float value that the program computes or is given.
static bool ein__reads_common(ein_ctx *ctx, const ein__ex *a, const ein__ex *b) {
    for (ptrdiff_t i = 0; i < arrlen(a); i++)
        for (ptrdiff_t j = 0; j < arrlen(b); j++) {
            uint32_t v = ein__ex_get(ctx, a[i])->val;
            if (v == ein__ex_get(ctx, b[j])->val && !ctx->value[v].weight_only) return true;
        }
    return false;
}

static bool ein__is_integer(const ein_ctx *ctx, uint32_t v) {
    return ctx->value[v].dtype == EIN__I32 || ctx->value[v].dtype == EIN__I64;
}

static bool ein__is_plain_reduction(ein_ctx *ctx, const ein__scope *s) {
    return s->reduce != EIN__R_NONE && (!ein__is_contraction(ctx, s) || ein__is_square(ctx, s));
}

// Marks reduction r a statistic where its reader v reads r's own operands too: the mean that is
// subtracted from the data, the maximum and the sum of a softmax. A pooled value is read by itself,
// and an integer says where something is read.
static void ein__mark_statistics(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    bool all = true, some = false;
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t r = ein__ex_get(ctx, reads[i])->val;
        const ein__scope *s = ein__scope_of(ctx, (ein__val){r});
        if (s && ein__is_plain_reduction(ctx, s) && !ein__is_integer(ctx, r)) {
            const ein__ex *below = ein__ex_reads(ctx, s->body);
            if (ein__reads_common(ctx, reads, below)) z->is[r] |= EIN__IS_STATISTIC;
        }
        some |= z->is[r] & EIN__IS_STATISTIC;
        all &= (z->is[r] & EIN__IS_STATISTIC) || ctx->value[r].weight_only;
    }
    // What only statistics make is one: a deviation from a variance.
    if (all && some && ein__is_map(ctx, v)) z->is[v.i] |= EIN__IS_STATISTIC;
}

// What a maximum is taken of, through copies, which have the type of what they copy: a softmax
// raises e to the difference from it, so an error of the one is a factor of the other. Sums, means
// and variances take halves and are f32 themselves.
static void ein__mark_sources(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    bool statistic = s && s->reduce == EIN__R_MAX && (z->is[v.i] & EIN__IS_STATISTIC);
    bool passes = (z->is[v.i] & EIN__IS_SOURCE) && ein__copy_of(ctx, v);
    if (!statistic && !passes) return;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++)
        z->is[ein__ex_get(ctx, reads[i])->val] |= EIN__IS_SOURCE;
}

// Whether copy `v` may become a view on what it reads: then it has its type.
static bool ein__is_renaming(ein_ctx *ctx, ein__val v, const ein__expr *read) {
    int64_t stride[EIN__MAX_RANK];
    ein__factor f;
    const ein__shape *from = &ctx->value[read->val].shape;
    ein__dense_strides(from, stride);
    return ein__elements(&ctx->value[v.i].shape) <= ein__elements(from) &&
           ein__address(ctx, read, stride, &f);
}

// What an f32 output is a copy of all of, or made of side by side: stored as f32 it may be that
// output, as halves it takes a kernel to become one. Calls that read what is renamed as halves take
// a kernel too, but no more than that; what is stored in another order, or in pieces, nothing else
// must read.
static void ein__mark_outputs(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__pieces pc = {.n = 0};
    const ein__expr *read = ein__copy_of(ctx, v);
    bool output = z->root[v.i] || (z->is[v.i] & EIN__IS_OUTPUT), sole = true;
    if (!output || ctx->value[v.i].dtype != EIN__F32) return;
    if (read) pc = (ein__pieces){.n = 1, .read = {read}};
    else if (!ein__is_concat(ctx, v, &pc)) return;
    int64_t elements = 0;
    for (int i = 0; i < pc.n; i++) {
        elements += ein__elements(&ctx->value[pc.read[i]->val].shape);
        sole &= z->with.uses[pc.read[i]->val] == 1;
    }
    bool whole = elements == ein__elements(&ctx->value[v.i].shape);
    if (!whole || !(sole || (read && ein__is_renaming(ctx, v, read)))) return;
    for (int i = 0; i < pc.n; i++) z->is[pc.read[i]->val] |= EIN__IS_OUTPUT;
}

// Adds to `some` and `all` whether what `ex` is made of are integers and counts, not where these
// are positions that it reads at.
static void ein__find_counts(const ein__storer *z, ein__ex ex, bool *some, bool *all) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_READ) {
        bool counts = ein__is_integer(ctx, e->val) || (z->is[e->val] & EIN__IS_COUNT);
        *some |= counts;
        *all &= counts || ctx->value[e->val].weight_only;
    }
    for (uint32_t k = 0; k < e->nkid; k++) ein__find_counts(z, e->kid[k], some, all);
}

// Whether `r` is an extremum or a copy of one, which is marked then: as a half it would be none of
// those that it was chosen among, and what compares it with others would count too many equal ones.
static bool ein__mark_chosen(ein__storer *z, uint32_t r) {
    const ein__scope *s = ein__scope_of(z->ctx, (ein__val){r});
    if (!s) return false;
    const ein__expr *read = ein__copy_of(z->ctx, (ein__val){r});
    bool extremum = s->reduce == EIN__R_MAX || s->reduce == EIN__R_MIN;
    bool chosen = extremum || (read && ein__mark_chosen(z, read->val));
    if (chosen) z->is[r] |= EIN__IS_COUNT;
    return chosen;
}

// What only integers make, positions and counts, and what an integer is made of: halves do not hold
// all that are above 2048. What is counted is compared.
static void ein__mark_counts(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || (s->reduce != EIN__R_NONE && !ein__is_plain_reduction(ctx, s))) return;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    bool all = true, some = false;
    for (ptrdiff_t i = 0; i < arrlen(reads) && ein__is_integer(ctx, v.i); i++) {
        uint32_t r = ein__ex_get(ctx, reads[i])->val;
        if (s->reduce == EIN__R_NONE) z->is[r] |= EIN__IS_COUNT;
        else ein__mark_chosen(z, r);
    }
    ein__find_counts(z, s->body, &some, &all);
    if (all && some) z->is[v.i] |= EIN__IS_COUNT;
}

// Marks what map `v` computes an integer from, or what becomes one in a later map: what is beyond
// halves, or between two of them, is another position.
static void ein__mark_positions(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    if (!s || s->reduce != EIN__R_NONE || !(z->is[v.i] & EIN__IS_COUNT)) return;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        uint32_t r = ein__ex_get(ctx, reads[i])->val;
        if (!ctx->value[r].weight_only) z->is[r] |= EIN__IS_COUNT;
    }
}

// Marks what map `v` divides by in `ex`, or takes a logarithm or a root's reciprocal of: sums,
// which nothing bounds where attention has no softmax, and what `v` reads again and again.
static void ein__mark_divisors(ein__storer *z, ein__val v, ein__ex ex, bool below) {
    ein_ctx *ctx = z->ctx;
    const ein__expr e = *ein__ex_get(ctx, ex);
    if (below && e.op == EIN__X_READ) {
        const ein__scope *s = ein__scope_of(ctx, (ein__val){e.val});
        int64_t its = ein__elements(&ctx->value[e.val].shape);
        bool small = 2 * its <= ein__elements(&ctx->value[v.i].shape);
        if (small || (s && s->reduce != EIN__R_NONE)) z->is[e.val] |= EIN__IS_WIDE;
    }
    below |= e.op == EIN__X_UNARY && (e.fn == EIN__LOG || e.fn == EIN__RSQRT);
    for (uint32_t k = 0; k < e.nkid; k++) {
        bool divisor = e.op == EIN__X_BINARY && e.fn == EIN__DIV && k == 1;
        ein__mark_divisors(z, v, e.kid[k], below || divisor);
    }
}

// Values so small that halves save nothing, unless a product multiplies them; what is divided by;
// sums of one operand that are multiplied as they are.
static void ein__mark_wide(ein__storer *z) {
    ein_ctx *ctx = z->ctx;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        if (ein__elements(&ctx->value[v.i].shape) <= EIN__FEW_ELEMENTS) z->is[v.i] |= EIN__IS_WIDE;
    }
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        ein__val v = z->order[i];
        const ein__scope *s = ein__scope_of(ctx, v);
        if (!s) continue;
        if (s->reduce == EIN__R_NONE) ein__mark_divisors(z, v, s->body, false);
        if (s->reduce == EIN__R_NONE || ein__is_plain_reduction(ctx, s)) continue;
        const ein__ex *reads = ein__ex_reads(ctx, s->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++) {
            uint32_t r = ein__ex_get(ctx, reads[k])->val;
            const ein__scope *of = ein__scope_of(ctx, (ein__val){r});
            bool sum = of && of->reduce == EIN__R_SUM && ein__is_plain_reduction(ctx, of);
            z->is[r] &= (unsigned char)~EIN__IS_WIDE;
            if (sum) z->is[r] |= EIN__IS_WIDE;
        }
    }
}

// Whether a number in `ex` that it may be, or be the sum or a multiple of, is beyond halves: -1e9
// where a mask hides a key would be -inf, and a row of which it hides all has a mean of all values.
// What bounds others from above or below is none of what they are.
static bool ein__is_far(const ein__storer *z, ein__ex ex) {
    const double most = 65504, all = 3.5e38;
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    double v = 0;
    bool number = ein__ex_is_const(z->ctx, ex, &v), bound = e->fn == EIN__MIN || e->fn == EIN__MAX;
    if (e->op == EIN__X_READ) v = ein__f64_of(e->bits);
    if ((v > most || v < -most) && v < all && v > -all) return true;
    if (number || e->op == EIN__X_READ) return !number && z->is[e->val] & EIN__IS_FAR;
    if (e->op == EIN__X_SELECT) return ein__is_far(z, e->kid[2]) || ein__is_far(z, e->kid[3]);
    if (e->op == EIN__X_WHEN) return ein__is_far(z, e->kid[0]);
    if (e->op == EIN__X_UNARY)
        return (e->fn == EIN__NEG || e->fn == EIN__ABS) && ein__is_far(z, e->kid[0]);
    if (e->op != EIN__X_BINARY) return false;
    for (int k = 0; k < 2; k++) {
        bool counts = e->fn == EIN__ADD || e->fn == EIN__SUB || e->fn == EIN__MUL ||
                      (e->fn == EIN__DIV && !k) ||
                      (bound && !ein__ex_is_const(z->ctx, e->kid[k], &v));
        if (counts && ein__is_far(z, e->kid[k])) return true;
    }
    return false;
}

static void ein__mark_far(ein__storer *z, ein__val v) {
    const ein__scope *s = ein__scope_of(z->ctx, v);
    if (s && s->reduce != EIN__R_SUM && ein__is_far(z, s->body)) z->is[v.i] |= EIN__IS_FAR;
}

static void ein__mark(ein__storer *z) {
    ein__mark_wide(z);
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) ein__mark_far(z, z->order[i]);
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) ein__mark_counts(z, z->order[i]);
    for (ptrdiff_t i = arrlen(z->order); i-- > 0;) ein__mark_positions(z, z->order[i]);
    // Twice: a statistic may be known as one only by a map behind a later one.
    for (int pass = 0; pass < 2; pass++)
        for (ptrdiff_t i = 0; i < arrlen(z->order); i++)
            if (ein__scope_of(z->ctx, z->order[i])) ein__mark_statistics(z, z->order[i]);
    for (ptrdiff_t i = arrlen(z->order); i-- > 0;) {
        ein__mark_sources(z, z->order[i]);
        ein__mark_outputs(z, z->order[i]);
    }
}

// ------------------------------------------------------------------------------------ types

// What a reader that wants `type` reads in the place of old value `v`.
static ein__val ein__wanted(ein__storer *z, ein__val v, ein__dtype type) {
    ein_ctx *ctx = z->ctx;
    ein__val now = z->now[v.i];
    ein__dtype have = ctx->value[now.i].dtype;
    bool real = have == EIN__F32 || have == EIN__F16;
    if (type == EIN__NDTYPE || have == type || !real) return now;
    ein__val *copy = type == EIN__F16 ? &z->half[v.i] : &z->full[v.i];
    if (!copy->i) *copy = ein__converted(ctx, now, type);
    return *copy;
}

static ein__ex ein__read_stored(ein_ctx *ctx, void *user, ein__ex ex) {
    ein__storer *z = user;
    const ein__expr *e = ein__ex_get(ctx, ex);
    ein__val v = {e->val};
    // Weights are converted for nothing, so products of kernels read halves too.
    bool half = z->half_weights && ctx->value[v.i].weight_only;
    for (int k = 0; k < 2; k++) half |= z->also_half[k].i == v.i;
    half = half && !ein__is_wide(ctx, v);
    ein__val now = ein__wanted(z, v, half ? EIN__F16 : z->operand);
    if (!now.i) return (ein__ex){0};
    e = ein__ex_get(ctx, ex);
    double pad;
    memcpy(&pad, &e->bits, sizeof pad);
    return ein__ex_read(ctx, now, pad, e->ix, (int)e->nix);
}

// Whether `v` is computed by an attention's kernel; `inside`: and lives in its registers.
static bool ein__is_attended(const ein__storer *z, ein__val v, bool *inside) {
    ein__val home = z->with.home[v.i];
    *inside = home.i != v.i;
    return z->with.kind[home.i] == EIN__K_ATTENTION;
}

// Puts what attentions compute behind all that it reads, whose types are then known.
static void ein__order_attended(ein__storer *z) {
    ein__val *order = NULL;
    bool inside;
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++) {
        bool attended = ein__is_attended(z, z->order[i], &inside);
        if (attended && inside) continue;
        for (ptrdiff_t k = 0; k < i && attended; k++)
            if (z->with.home[z->order[k].i].i == z->order[i].i) arrput(order, z->order[k]);
        arrput(order, z->order[i]);
    }
    arrfree(z->order);
    z->order = order;
}

// What copies as halves of what a call for contraction reads cost, shared by all that reads them.
static int64_t ein__copies_cost(ein__storer *z, const ein__expr *const *read) {
    const ein__gpu *g = ein__gpu_of(z->ctx);
    int64_t ps = 0;
    for (int k = 0; k < 2; k++) {
        uint32_t v = read[k]->val;
        const ein__value *now = &z->ctx->value[z->now[v].i];
        if (now->weight_only || now->dtype != EIN__F32 || z->half[v].i) continue;
        ein__work w = {.bytes = {ein__times(ein__elements(&now->shape), 4 + 2)}};
        ps = ein__cost_sum(ps, ein__work_ps(g, &w) / ein__most(z->with.uses[v], 1));
    }
    return ps;
}

// Whether a library multiplies: where that costs less with copies than a kernel, which converts
// what it loads.
static bool ein__is_called(ein__storer *z, ein__val v, const ein__expr *const *read,
                           ein__kind *kind) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    int64_t ps, own, bound;
    ein__ex from = {0};
    ein__val map = ein__sole_reader(ctx, z->with.uses, &z->with.readers, v, &from);
    *kind = ein__choose(ctx, s, map, from, !z->root[v.i], &ps);
    if (!ein__is_call(*kind)) return false;
    int64_t copies = ein__copies_cost(z, read);
    ein__kind other = ein__choose_own(ctx, s, map, from, NULL, &own, &bound);
    if (!copies || ein__cost_sum(ps, copies) < bound) return true;
    *kind = other;
    return false;
}

// What a kernel takes for contraction `s` of old values, the weights among them as halves or not;
// INT64_MAX: a call is cheaper.
static int64_t ein__stored_cost(ein__storer *z, const ein__scope *s, bool halves) {
    ein_ctx *ctx = z->ctx;
    ein__scope now = *s;
    int64_t ps = 0;
    z->half_weights = halves;
    now.body = ein__ex_replace_reads(ctx, s->body, ein__read_stored, z);
    if (!now.body.i) return INT64_MAX;
    ctx->typed = true;
    bool called = ein__is_call(ein__choose(ctx, &now, (ein__val){0}, (ein__ex){0}, true, &ps));
    ctx->typed = false;
    return called ? INT64_MAX : ps;
}

// Whether what a kernel for contraction `s` reads as f32 is better copied as halves than converted
// by every load: such loads are waited for, those of halves are on their way while others are used.
// A copy that another product reads costs nothing more.
static bool ein__copies_pay(ein__storer *z, const ein__scope *s, const ein__expr *const *read) {
    ein__val had[2];
    int64_t copies = ein__copies_cost(z, read), copied, halves;
    bool floats = false;
    for (int k = 0; k < 2; k++) {
        const ein__value *was = &z->ctx->value[z->now[read[k]->val].i];
        floats |= !was->weight_only && was->dtype == EIN__F32;
        had[k] = z->half[read[k]->val];
    }
    if (!floats) return false;
    z->operand = EIN__NDTYPE;
    halves = ein__stored_cost(z, s, true);
    int64_t now = ein__least(halves, ein__stored_cost(z, s, false));
    z->operand = EIN__F16;
    copied = ein__stored_cost(z, s, true);
    bool pay = copied < now && ein__cost_sum(copied, copies) < now;
    for (int k = 0; k < 2 && !pay; k++) z->half[read[k]->val] = had[k];
    return pay;
}

// The attention whose kernel computes `last`.
static bool ein__attention_ending(ein__storer *z, ein__val last, ein__attention *a) {
    ein_ctx *ctx = z->ctx;
    bool found = !ein__is_map(ctx, last) && ein__match_attention(ctx, last, (ein__val){0}, a);
    for (ptrdiff_t i = 0; i < arrlen(z->order) && !found && ein__is_map(ctx, last); i++)
        if (z->with.home[z->order[i].i].i == last.i)
            found = ein__match_attention(ctx, z->order[i], last, a);
    return found;
}

// What product `v` of an attention reads that is f32, and better halves: keys, or values. None:
// nothing is, or copies are not to be made of it.
static ein__val ein__attended_half(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    ein__val last = z->with.home[v.i], none = {0};
    ein__attention a;
    if (!ein__attention_ending(z, last, &a) || (v.i != a.dot.i && v.i != a.out.i)) return none;
    const ein__expr *read = ein__attention_factor(ctx, &a, v.i == a.dot.i ? 1 : 2);
    if (!read) return none;
    v.i = read->val;
    int64_t bytes = ein__bytes_of(ctx, last);
    for (int part = 0; part < EIN__ATTENTION_PARTS; part++) {
        ein__ex *ex = ein__attention_part(&a, part);
        *ex = ein__ex_replace_reads(ctx, *ex, ein__read_stored, z);
        if (!ex->i) return none;
    }
    ctx->typed = true;
    bool pays = ein__cost_attention_halves(ctx, &a, bytes) < ein__cost_attention(ctx, &a, bytes);
    ctx->typed = false;
    ctx->halves |= pays;
    return pays && ctx->halving ? v : none;
}

// Where halves have too few exponents for an operand: a kernel converts what it loads.
static ein__dtype ein__wide_type(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    int64_t ps;
    ein__ex from = {0};
    ein__val map = ein__sole_reader(ctx, z->with.uses, &z->with.readers, v, &from);
    ein__kind kind = ein__choose(ctx, ein__scope_of(ctx, v), map, from, !z->root[v.i], &ps);
    return ein__is_call(kind) ? EIN__F32 : EIN__NDTYPE;
}

// The type that the operands of contraction `v` are wanted as: halves where a library multiplies,
// or where a kernel gains by it.
static ein__dtype ein__operand_type(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *read[2];
    double alpha;
    ein__kind kind;
    bool inside;
    if (!ein__two_factors(ctx, s, read, &alpha) || ctx->value[v.i].weight_only) return EIN__NDTYPE;
    if (ein__is_attended(z, v, &inside)) return EIN__NDTYPE;
    if (ein__keeps_fp32(ctx, v)) return EIN__F32;
    // A sum of squares is a statistic: it reads what is there.
    if (ein__is_square(ctx, s)) return EIN__NDTYPE;
    if (ein__is_wide(ctx, (ein__val){read[0]->val}) || ein__is_wide(ctx, (ein__val){read[1]->val}))
        return ein__wide_type(z, v);
    if (ein__is_called(z, v, read, &kind)) return EIN__F16;
    // A kernel may convert what it loads, but bands are told by equal types.
    if (kind != EIN__K_BAND) return ein__copies_pay(z, s, read) ? EIN__F16 : EIN__NDTYPE;
    ein__dtype a = ctx->value[z->now[read[0]->val].i].dtype;
    return a == ctx->value[z->now[read[1]->val].i].dtype ? a : EIN__F16;
}

// What is added to a product or convolution that map `v`, stored as f16, may be fused with has the
// result's type: the bias, and another value if a copy of it is there anyway.
static void ein__mark_addends(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    if (!ein__is_map(ctx, v)) return;
    const ein__ex *reads = ein__ex_reads(ctx, ein__scope_of(ctx, v)->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        ein__epilogue e;
        uint32_t p = ein__ex_get(ctx, reads[i])->val;
        const ein__scope *s = ein__scope_of(ctx, (ein__val){p});
        if (!s || ctx->value[z->now[p].i].dtype != EIN__F16 || !ein__is_contraction(ctx, s))
            continue;
        if (!ein__product_epilogue(ctx, (ein__val){p}, v, &e)) continue;
        z->also_half[0] = e.bias;
        if (e.z.i && z->half[e.z.i].i) z->also_half[1] = e.z;
    }
}

// The type of old value `v`, whose operands have theirs.
static ein__dtype ein__stored_type(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__value *p = &ctx->value[v.i];
    const ein__scope *s = ein__scope_of(ctx, v);
    const ein__expr *copy = ein__copy_of(ctx, v);
    ein__basis b;
    ein__gemm g;
    bool inside;
    int64_t ps;
    if (p->dtype != EIN__F32 || p->weight_only || ein__keeps_fp32(ctx, v)) return p->dtype;
    if (ein__is_wide(ctx, v)) return p->dtype;
    if (ein__match_basis(ctx, s, &b)) return EIN__F32;
    if (ein__is_attended(z, v, &inside))
        return inside || z->root[v.i] || z->is[v.i] ? EIN__F32 : EIN__F16;
    if (s->reduce != EIN__R_NONE && ein__is_contraction(ctx, s) && !ein__is_square(ctx, s)) {
        bool wide = z->root[v.i] || z->is[v.i], free = !z->root[v.i];
        if (!wide) return EIN__F16;
        ein__kind kind = ein__choose(ctx, s, (ein__val){0}, (ein__ex){0}, free, &ps);
        // No convolution has an f32 result.
        bool any = !ein__is_call(kind) || ein__best_gemm(ctx, s, free, &g, NULL);
        return any ? EIN__F32 : EIN__F16;
    }
    if (z->root[v.i] || z->is[v.i]) return EIN__F32;
    if (copy && ein__is_renaming(ctx, v, copy)) return ctx->value[z->now[copy->val].i].dtype;
    return EIN__F16;
}

// Whether a kernel is to read the weights of contraction `s` as halves: they are converted for
// nothing, but where the other factor is f32 tiles that hold f32 may load both as they are.
static bool ein__halves_weights(ein__storer *z, const ein__scope *s) {
    ein_ctx *ctx = z->ctx;
    const ein__expr *read[2];
    double alpha;
    bool floats = false, weight = false;
    if (z->operand != EIN__NDTYPE || !ein__is_contraction(ctx, s)) return false;
    if (!ein__two_factors(ctx, s, read, &alpha)) return true;
    for (int k = 0; k < 2; k++) {
        const ein__value *now = &ctx->value[z->now[read[k]->val].i];
        weight |= now->weight_only;
        floats |= !now->weight_only && now->dtype == EIN__F32;
    }
    if (!floats || !weight) return true;
    int64_t halves = ein__stored_cost(z, s, true);
    return ein__stored_cost(z, s, false) >= halves;
}

// Whether `s` only moves what is stored as halves, or multiplies weights that it looks up: these
// may as well be halves first, at load.
static bool ein__finds_weights(ein_ctx *ctx, const ein__scope *s, ein__dtype type) {
    const ein__expr *e = ein__ex_get(ctx, s->body);
    if (s->reduce == EIN__R_NONE) return type == EIN__F16 && e->op == EIN__X_READ;
    if (s->reduce != EIN__R_SUM || e->op != EIN__X_BINARY || e->fn != EIN__MUL) return false;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    for (ptrdiff_t i = 0; i < arrlen(reads); i++) {
        e = ein__ex_get(ctx, reads[i]);
        if (ctx->value[e->val].weight_only && e->nix && ein__ix_has_gather(ctx, e->ix[0]))
            return true;
    }
    return false;
}

// Old value `v` with its type; a convolution that is an output is stored as f16 and copied.
static ein__val ein__store_value(ein__storer *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__value old = ctx->value[v.i];
    if (old.kind != EIN__V_SCOPE || old.weight_only) return v;
    ein__dtype type = ein__stored_type(z, v);
    ein__scope s = *ein__scope_of(ctx, v);
    z->operand = ein__operand_type(z, v);
    memset(z->also_half, 0, sizeof z->also_half);
    z->half_weights = ein__finds_weights(ctx, &s, type) || ein__halves_weights(z, &s);
    if (type == EIN__F16) ein__mark_addends(z, v);
    bool inside;
    if (s.reduce == EIN__R_SUM && ein__is_attended(z, v, &inside))
        z->also_half[0] = ein__attended_half(z, v);
    s.body = ein__ex_replace_reads(ctx, s.body, ein__read_stored, z);
    ein__sc sc = s.body.i ? ein__sc_make(ctx, &s) : (ein__sc){0};
    if (!sc.i) return (ein__val){0};
    const char *name = old.name;
    bool output = z->root[v.i] && type != old.dtype;
    if (output) name = ein__namef(ctx, "%s.half", old.name);
    ein__val now =
        ein__val_new(ctx, name, EIN__V_SCOPE, old.tensor, sc, &old.shape, type, old.node);
    ctx->value[now.i].why = old.why;
    return now;
}

// Marks in ctx->kept the values of attentions by what they have become.
static void ein__keep_attended(ein__storer *z) {
    ein_ctx *ctx = z->ctx;
    bool inside;
    arrsetlen(ctx->kept, arrlen(ctx->value));
    memset(ctx->kept, 0, (size_t)arrlen(ctx->kept) * sizeof *ctx->kept);
    for (ptrdiff_t i = 0; i < arrlen(z->order); i++)
        if (ein__is_attended(z, z->order[i], &inside)) ctx->kept[z->now[z->order[i].i].i] = true;
}

// Gives every value under `root` its type; the roots are replaced.
EIN__FN bool ein__store_types(ein_ctx *ctx, ein__val *root, int nroot) {
    size_t n = (size_t)arrlen(ctx->value);
    ein__storer z = {.ctx = ctx, .order = ein__live(ctx, root, nroot)};
    for (size_t i = 0; i < n; i++) {
        arrput(z.now, (ein__val){0});
        arrput(z.half, (ein__val){0});
        arrput(z.full, (ein__val){0});
        arrput(z.is, 0);
        arrput(z.root, false);
    }
    for (int k = 0; k < nroot; k++) z.root[root[k].i] = true;
    z.with = (ein__selector){.ctx = ctx, .free = true};
    ein__select_begin(&z.with, root, nroot);
    ein__order_attended(&z);
    ein__mark(&z);
    for (ptrdiff_t i = 0; i < arrlen(z.order) && !ctx->status; i++) {
        ein__val now = ein__store_value(&z, z.order[i]);
        if (!now.i) break;
        z.now[z.order[i].i] = now;
    }
    ein__keep_attended(&z);
    bool ok = !ctx->status;
    for (int k = 0; ok && k < nroot; k++) {
        ein__dtype type = ctx->value[root[k].i].dtype;
        root[k] = ein__wanted(&z, root[k], type);
        ok = root[k].i != 0;
        if (ok) ctx->value[root[k].i].name = ctx->graph.output[k].name;
    }
    arrfree(z.order);
    arrfree(z.now);
    arrfree(z.half);
    arrfree(z.full);
    arrfree(z.is);
    arrfree(z.root);
    ein__select_free(&z.with);
    return ok;
}
