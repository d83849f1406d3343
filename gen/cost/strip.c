// Windowed reductions: every output adds up (or takes the largest of) what a window over one tensor
// has, the terms weighted or not, and no iterator of the result is contracted: depthwise
// convolutions, pooling, box filters. A thread takes a strip of neighbouring columns of some rows
// and keeps the part of the image under all its windows in registers, so that neighbours are read
// once instead of once a tap (templates/window.cu). A third axis, of volumes, has one place a
// thread.

// One of the axes along which windows slide: position stride * t + dilation * k + first of the
// image, for traversal iterator `t` of extent n and reduction iterator `k` of extent `taps`.
typedef struct ein__strip_axis {
    int t, k;  // slots; k -1: one tap, t -1: no such axis
    int dim;   // of the image, -1: none
    int64_t n, taps, stride, dilation, first;
} ein__strip_axis;

typedef struct ein__strip {
    ein__ex image;  // the read
    ein__strip_axis row, col, deep;
} ein__strip;

enum {
    EIN__WINDOW_TAPS = 64,       // that are unrolled
    EIN__WINDOW_REGISTERS = 96,  // elements of the image that a thread holds
    EIN__WINDOW_LEAST = 124      // threads an SM below which a thread an output is better
};

// Elements of the image that `n` neighbouring positions see along an axis.
static int64_t ein__strip_span(const ein__strip_axis *a, int64_t n) {
    return (n - 1) * a->stride + (a->taps - 1) * a->dilation + 1;
}

// Whether an expression is made of reads and arithmetic alone.
static bool ein__strip_plain(const ein_ctx *ctx, ein__ex ex) {
    const ein__expr *e = ein__ex_get(ctx, ex);
    if (e->op == EIN__X_IDX || e->op == EIN__X_WHEN || e->op == EIN__X_SELECT) return false;
    for (uint32_t i = 0; i < e->nkid; i++)
        if (!ein__strip_plain(ctx, e->kid[i])) return false;
    return true;
}

// Reads one subscript as an axis of a window. False: it is something else.
static bool ein__strip_axis_of(ein_ctx *ctx, const ein__scope *s, ein__ix ix, int dim,
                               ein__strip_axis *a) {
    const ein__index *f = ein__ix_get(ctx, ix);
    *a = (ein__strip_axis){-1, -1, dim, 1, 1, 1, 1, f->c};
    if (f->q != 1 || f->n > 2) return false;
    for (uint32_t i = 0; i < f->n; i++) {
        const ein__atom *x = ein__atom_get(ctx, f->t[i].atom);
        bool sum = x->slot >= s->nt;
        if (x->kind != EIN__ITER || f->t[i].k < 1 || f->t[i].k > EIN__WINDOW_REGISTERS)
            return false;
        if (sum ? a->k >= 0 : a->t >= 0) return false;
        if (sum) a->k = (int)x->slot, a->taps = s->n[x->slot], a->dilation = f->t[i].k;
        else a->t = (int)x->slot, a->n = s->n[x->slot], a->stride = f->t[i].k;
    }
    return a->t >= 0 && a->taps <= EIN__WINDOW_TAPS && a->first < INT32_MAX / 2 &&
           a->first > -INT32_MAX / 2;
}

static const ein__strip_axis ein__no_axis = {-1, -1, -1, 1, 1, 1, 1, 0};

// The image's subscripts: the axes, and others that depend on none of them and stay inside.
static bool ein__strip_image(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, int lane,
                             ein__strip *w) {
    const ein__shape *shape = &ctx->value[e->val].shape;
    uint32_t sums = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1), found = 0;
    w->row = w->col = w->deep = ein__no_axis;
    for (uint32_t d = 0; d < e->nix; d++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[d]);
        uint32_t uses = ein__ix_uses(ctx, e->ix[d]);
        bool inside = f->q == 1 && f->lo >= 0 && f->hi < shape->d[d];
        ein__strip_axis a;
        if (!(uses & sums) && !(uses >> lane & 1)) {
            if (!inside || ein__ix_has_gather(ctx, e->ix[d])) return false;
            continue;
        }
        if (!ein__strip_axis_of(ctx, s, e->ix[d], (int)d, &a)) return false;
        ein__strip_axis *to = a.t == lane ? &w->col : &w->row;
        if (to->dim >= 0 && (to == &w->col || w->deep.dim >= 0)) return false;
        if (to->dim >= 0) w->deep = *to;
        *to = a;
        found |= uses;
    }
    for (uint32_t d = 0; d < e->nix; d++)
        if ((int)d != w->row.dim && (int)d != w->col.dim && (int)d != w->deep.dim &&
            (ein__ix_uses(ctx, e->ix[d]) & found))
            return false;
    return w->col.dim >= 0 && (found & sums) == sums;
}

// Windowed reduction `s` whose result has strides `out`: columns lie along its unit stride. Reads
// beside the image's are the same for all outputs of a strip.
EIN__FN bool ein__match_strip(ein_ctx *ctx, const ein__scope *s, const int64_t *out,
                              ein__strip *w) {
    int lane = -1;
    int64_t taps = 1;
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) taps = ein__times(taps, s->n[i]);
    bool ok = s->reduce != EIN__R_NONE && taps > 1 && taps <= EIN__WINDOW_TAPS &&
              ein__strip_plain(ctx, s->body);
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] > 1 && out[i] == 1) lane = (int)i;
    if (!ok || lane < 0) return false;
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    *w = (ein__strip){.row = ein__no_axis, .col = ein__no_axis, .deep = ein__no_axis};
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (!(ein__read_slots(ctx, e) >> lane & 1)) continue;
        ok = !w->image.i && ein__strip_image(ctx, s, e, lane, w);
        w->image = reads[i];
    }
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        uint32_t uses = ein__read_slots(ctx, ein__ex_get(ctx, reads[i]));
        if (reads[i].i != w->image.i && w->row.t >= 0) ok = !(uses >> w->row.t & 1);
    }
    int64_t stride[EIN__MAX_RANK];
    if (!ok || !w->image.i) return false;
    const ein__expr *e = ein__ex_get(ctx, w->image);
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    ein__dtype t = ctx->value[e->val].dtype;
    return stride[w->col.dim] == 1 && t <= EIN__BF16 &&
           w->deep.taps * ein__strip_span(&w->row, 1) * ein__strip_span(&w->col, 1) <=
               EIN__WINDOW_REGISTERS;
}

// The same with the lane's iterator in no window: channels last, each of which has windows by
// itself. A thread has four channels and a strip of columns; it goes through the rows under its
// windows, of which it keeps what the strip sees (templates/window_last.cu).

enum {
    EIN__LAST_SPAN = 16,  // elements of a row, of four channels each, that a thread holds
    EIN__LAST_COLUMNS = 4
};

// The image's subscripts: the lane at one of unit stride, up to two axes of windows, others inside.
static bool ein__last_image(ein_ctx *ctx, const ein__scope *s, const ein__expr *e, uint32_t lane,
                            ein__strip *w) {
    const ein__shape *shape = &ctx->value[e->val].shape;
    uint32_t sums = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1), found = 0;
    int64_t stride[EIN__MAX_RANK];
    bool unit = false;
    ein__strides_of(ctx, (ein__val){e->val}, stride);
    w->row = w->col = w->deep = ein__no_axis;
    for (uint32_t d = 0; d < e->nix; d++) {
        const ein__index *f = ein__ix_get(ctx, e->ix[d]);
        uint32_t uses = ein__ix_uses(ctx, e->ix[d]), t;
        if (!(uses & sums)) {
            if (f->q != 1 || f->lo < 0 || f->hi >= shape->d[d] ||
                ein__ix_has_gather(ctx, e->ix[d]) || uses & found)
                return false;
            if (!(uses >> lane & 1)) continue;
            if (unit || stride[d] != 1 || !ein__ix_is_iter(ctx, e->ix[d], &t)) return false;
            unit = true;
            continue;
        }
        ein__strip_axis a;
        if (!ein__strip_axis_of(ctx, s, e->ix[d], (int)d, &a) || uses & found) return false;
        found |= uses;
        // Of two axes the one with the shorter steps has the columns.
        if (w->col.dim < 0) w->col = a;
        else if (w->row.dim >= 0) return false;
        else if (stride[d] < stride[w->col.dim]) w->row = w->col, w->col = a;
        else w->row = a;
    }
    return unit && w->col.dim >= 0 && (found & sums) == sums;
}

// Columns of a strip: the most that leave an SM threads enough; 0: a thread four outputs is better.
static int ein__last_columns(const ein_ctx *ctx, const ein__strip *w, int64_t outputs) {
    int64_t least = ein__gpu_of(ctx)->sms * EIN__WINDOW_LEAST;
    for (int n = EIN__LAST_COLUMNS; n > 1; n /= 2)
        if (w->col.n >= n && ein__strip_span(&w->col, n) <= EIN__LAST_SPAN &&
            outputs / 4 / w->col.n * ein__ceil(w->col.n, n) >= least)
            return n;
    return 0;
}

// Whether neighbours along `lane` lie together where `e` reads, or may be laid so at load.
static bool ein__last_beside(ein_ctx *ctx, const ein__expr *e, uint32_t lane) {
    const ein__value *v = &ctx->value[e->val];
    int64_t step = ein__read_step(ctx, e, lane);
    return step == 0 || step == 1 ||
           (v->weight_only && v->kind == EIN__V_SCOPE && v->shape.rank > 1);
}

// Windowed reduction `s`, channels last, whose result has strides `out`. Reads beside the image's
// are the same for all columns.
EIN__FN bool ein__match_last(ein_ctx *ctx, const ein__scope *s, const int64_t *out, ein__strip *w,
                             int *lane) {
    const ein__ex *reads = ein__ex_reads(ctx, s->body);
    uint32_t sums = ((1u << (s->nt + s->ns)) - 1) & ~((1u << s->nt) - 1);
    int64_t taps = 1;
    *lane = -1;
    *w = (ein__strip){.row = ein__no_axis, .col = ein__no_axis, .deep = ein__no_axis};
    for (uint32_t i = s->nt; i < s->nt + s->ns; i++) taps = ein__times(taps, s->n[i]);
    for (uint32_t i = 0; i < s->nt; i++)
        if (s->n[i] > 1 && out[i] == 1) *lane = (int)i;
    bool ok = s->reduce != EIN__R_NONE && taps > 1 && taps <= EIN__WINDOW_TAPS && *lane >= 0 &&
              s->n[*lane] % 4 == 0 && ein__strip_plain(ctx, s->body);
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        uint32_t uses = ein__read_slots(ctx, e);
        if (!(uses & sums) || !(uses & ~sums & ~(1u << *lane))) continue;
        ok = !w->image.i && ein__last_image(ctx, s, e, (uint32_t)*lane, w);
        w->image = reads[i];
    }
    ok = ok && w->image.i && ein__strip_span(&w->col, 1) <= EIN__LAST_SPAN;
    for (ptrdiff_t i = 0; ok && i < arrlen(reads); i++) {
        const ein__expr *e = ein__ex_get(ctx, reads[i]);
        if (reads[i].i == w->image.i) continue;
        ok =
            !(ein__read_slots(ctx, e) >> w->col.t & 1) && ein__last_beside(ctx, e, (uint32_t)*lane);
    }
    if (!ok) return false;
    ein__dtype t = ctx->value[ein__ex_get(ctx, w->image)->val].dtype;
    return t == EIN__F32 || t == EIN__F16;
}
