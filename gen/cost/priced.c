// Memoised estimates. A network's blocks are alike, plans are made in many ways, and each is priced
// under many layouts: nearly every kernel that is to be priced differs from an earlier one in names
// alone. The key of an estimate is all that it depends on, as bytes; expressions are written by
// structure, since their ids differ from plan to plan and are forgotten with a plan (unmake.c).

enum {
    EIN__PRICED_BYTES = 1024,  // that tell a kernel, or a body; longer ones are not remembered
    EIN__PRICED_VALUES = 64,   // of a kernel
    EIN__PRICED_NOT = 1 << 30  // number of a body that is not remembered
};

typedef struct ein__priced {
    ein__work work;
    int64_t parts;
    unsigned char by[EIN__PRICED_BYTES];  // what tells the kernel; records end behind it
} ein__priced;

// What a kernel, or a body, is written to.
typedef struct ein__telling {
    ein_ctx *ctx;
    const ein__kernel *k;
    unsigned char *by;
    int n;
    bool full;             // it has no room
    const ein__ex *reads;  // of the body: its values go by their first place among these
    uint32_t val[EIN__PRICED_VALUES];  // of the kernel, told so far
    int nval;
} ein__telling;

// Numbers, most of which are small, by seven bits a byte.
static void ein__tell(ein__telling *z, uint64_t v) {
    enum { BITS = 7, LONGEST = 10 };
    z->full |= z->n + LONGEST > EIN__PRICED_BYTES;
    if (z->full) return;
    for (; v >> BITS; v >>= BITS) z->by[z->n++] = (unsigned char)(v | 1 << BITS);
    z->by[z->n++] = (unsigned char)v;
}

static void ein__tell_signed(ein__telling *z, int64_t v) {
    ein__tell(z, v < 0 ? ~(uint64_t)v << 1 | 1 : (uint64_t)v << 1);
}

// ------------------------------------------------------------------------------------ bodies

static void ein__tell_ex(ein__telling *z, ein__ex ex);

static void ein__tell_ix(ein__telling *z, ein__ix ix) {
    const ein__index *f = ein__ix_get(z->ctx, ix);
    ein__tell(z, f->n);
    ein__tell_signed(z, f->c);
    ein__tell_signed(z, f->q);
    for (uint32_t i = 0; i < f->n && !z->full; i++) {
        const ein__atom *a = ein__atom_get(z->ctx, f->t[i].atom);
        ein__tell(z, a->kind | (uint64_t)a->slot << 2);
        ein__tell_signed(z, f->t[i].k);
        ein__tell_signed(z, a->n);
        if (a->kind == EIN__GATHER) ein__tell_ex(z, (ein__ex){a->ex});
        else if (a->kind != EIN__ITER) ein__tell_ix(z, (ein__ix){a->ix});
    }
}

// As a tree: what is written ends it.
static void ein__tell_ex(ein__telling *z, ein__ex ex) {
    const ein__expr *e = ein__ex_get(z->ctx, ex);
    ein__tell(z, e->op);
    ein__tell(z, e->fn);
    ein__tell(z, e->negate);
    ein__tell_signed(z, e->n);
    ein__tell(z, e->bits);
    ein__tell(z, e->nkid);
    ein__tell(z, e->nix);
    int at = 0;
    while (e->op == EIN__X_READ && ein__ex_get(z->ctx, z->reads[at])->val != e->val) at++;
    ein__tell(z, (uint64_t)at);
    for (uint32_t i = 0; i < e->nix && !z->full; i++) ein__tell_ix(z, e->ix[i]);
    for (uint32_t i = 0; i < e->nkid && !z->full; i++) ein__tell_ex(z, e->kid[i]);
}

// A number that is the same for bodies that are the same but for the values that they read.
static uint32_t ein__body_number(ein_ctx *ctx, ein__ex body) {
    unsigned char by[EIN__PRICED_BYTES];
    ptrdiff_t had = arrlen(ctx->body), n = arrlen(ctx->exprs.rec);
    if (had <= (ptrdiff_t)body.i) {
        arrsetlen(ctx->body, n);
        memset(ctx->body + had, 0, (size_t)(n - had) * sizeof *ctx->body);
    }
    if (ctx->body[body.i]) return ctx->body[body.i];
    ein__telling z = {.ctx = ctx, .by = by, .reads = ein__ex_reads(ctx, body)};
    ein__tell_ex(&z, body);
    uint32_t number = EIN__PRICED_NOT;
    if (!z.full) number = ein__intern(&ctx->arena, &ctx->bodies, by, (size_t)z.n);
    return ctx->body[body.i] = number;
}

// ------------------------------------------------------------------------------------ kernels

// Value `v` of the kernel: what estimates ask of it (the size of its elements, which follows, too)
// when it comes first, else its place.
static void ein__tell_value(ein__telling *z, ein__val v) {
    ein_ctx *ctx = z->ctx;
    const ein__value *p = &ctx->value[v.i];
    int64_t stride[EIN__MAX_RANK], dense[EIN__MAX_RANK];
    int at = 0, rank = p->shape.rank;
    while (at < z->nval && z->val[at] != v.i) at++;
    z->full |= at == EIN__PRICED_VALUES;
    if (z->full) return;
    ein__tell(z, (uint64_t)at);
    if (at < z->nval) return;
    z->val[z->nval++] = v.i;
    bool inner = false, flag[] = {p->made, p->weight_only, ein__is_table(ctx, v),
                                  ein__stays_wide(ctx, v), ein__may_round(ctx, v)};
    for (int i = 0; i < EIN__STEP_VALUES; i++) inner |= z->k->inner[i].i == v.i;
    uint64_t flags = inner;
    for (int i = 0; i < EIN__COUNT(flag); i++) flags = flags << 1 | flag[i];
    ein__tell(z, flags);
    ein__tell(z, p->kind);
    ein__tell(z, p->dtype);
    ein__tell(z, (uint64_t)rank);
    for (int i = 0; i < rank; i++) ein__tell_signed(z, p->shape.d[i]);
    ein__strides_of(ctx, v, stride);
    ein__dense_strides(&p->shape, dense);
    bool lies = memcmp(stride, dense, (size_t)rank * sizeof *stride) != 0;
    ein__tell(z, lies);
    for (int i = 0; lies && i < rank; i++) ein__tell_signed(z, stride[i]);
}

static void ein__tell_scope(ein__telling *z, const ein__scope *s) {
    uint32_t number = ein__body_number(z->ctx, s->body);
    const ein__ex *reads = ein__ex_reads(z->ctx, s->body);
    z->full |= number == EIN__PRICED_NOT;
    ein__tell(z, s->reduce);
    ein__tell(z, s->nt);
    ein__tell(z, s->ns);
    for (uint32_t i = 0; i < s->nt + s->ns; i++) ein__tell_signed(z, s->n[i]);
    ein__tell(z, number);
    for (ptrdiff_t i = 0; i < arrlen(reads) && !z->full; i++)
        ein__tell_value(z, (ein__val){ein__ex_get(z->ctx, reads[i])->val});
}

// All that ein__kernel_work asks of a kernel and of the context, but the GPU and
// ein_desc.intensity, which stay as they are. Gives the bytes in `by`; 0: they are too many.
static int ein__tell_kernel(ein_ctx *ctx, const ein__kernel *k, unsigned char *by) {
    ein__telling z = {.ctx = ctx, .k = k, .by = by};
    const ein__val beside[] = {k->load[0], k->load[1], k->also};
    uint32_t nt = k->s[0]->nt;
    ein__tell(&z, k->kind);
    ein__tell(&z, (uint64_t)k->n);
    ein__tell(&z, (uint64_t)k->nrow);
    ein__tell(&z, (uint64_t)k->addend | (uint64_t)k->fma << 1 | (uint64_t)k->finished << 2 |
                      (uint64_t)k->joint << 3);
    ein__tell_signed(&z, k->size);
    ein__tell(&z, (uint64_t)ctx->desc.math << 1 | ctx->typed);
    for (int i = 0; i < k->n && !z.full; i++) ein__tell_scope(&z, k->s[i]);
    for (int i = 0; i < EIN__COUNT(beside) && !z.full; i++) {
        ein__tell(&z, beside[i].i != 0);
        if (!beside[i].i) continue;
        ein__tell_value(&z, beside[i]);
        ein__tell_scope(&z, ein__scope_of(ctx, beside[i]));
    }
    ein__tell(&z, k->out != NULL);
    if (k->s[k->n - 1]->nt > nt) nt = k->s[k->n - 1]->nt;
    for (uint32_t i = 0; k->out && i < nt; i++) ein__tell_signed(&z, k->out[i]);
    return z.full ? 0 : z.n;
}
