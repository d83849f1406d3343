// Which rules are enabled, and the two laws about ranges that rules and passes share: boundary
// tightening and boundary relaxing (EinNet section 4.1). They hold because reading outside a
// value's box gives its padding: whether a place is in the box or not, it is 0 there. rules.c is
// the whole table.

static bool ein__rule_on(const ein_ctx *ctx, ein__rule_id rule) {
    return ctx->rule_mask >> rule & 1;
}

// Places lo..hi of a dimension.
typedef struct ein__places {
    int64_t lo, hi;
} ein__places;

// What place p of a dimension reads: step * p + w, w in `window`, step > 0, of a box 0:extent that
// gives 0 outside. `window` is what the iterators beside p add, or 0..0.
typedef struct ein__reach {
    int64_t step, extent;
    ein__places window;
} ein__reach;

// Boundary tightening: V over lo..hi is V over the places whose window meets the box; at the others
// a factor of the product is 0, and so is reading outside V. False: no place is left.
static bool ein__rule_tighten(const ein_ctx *ctx, ein__places *r, const ein__reach *z) {
    if (!ein__rule_on(ctx, EIN__RULE_TIGHTEN)) return r->lo <= r->hi;
    int64_t lo = -ein__floordiv(z->window.hi, z->step);
    int64_t hi = ein__floordiv(z->extent - 1 - z->window.lo, z->step);
    if (r->lo < lo) r->lo = lo;
    if (r->hi > hi) r->hi = hi;
    return r->lo <= r->hi;
}

// Boundary relaxing of a result: V over lo..hi is a window on V over more places, as many as make
// what is read before the box equal to what is read behind it: library calls take one padding for
// both. Precondition: nothing reads V at the new places, or it is 0 there.
static void ein__rule_relax(const ein_ctx *ctx, ein__places *r, const ein__reach *z) {
    if (!ein__rule_on(ctx, EIN__RULE_RELAX)) return;
    int64_t before = -(z->step * r->lo + z->window.lo);
    int64_t after = z->step * r->hi + z->window.hi - (z->extent - 1), need = after > 0 ? after : 0;
    if (before < need) {
        int64_t more = -ein__floordiv(before - need, z->step);
        r->lo -= more;
        before += more * z->step;
    }
    r->hi += ein__floordiv(before - after, z->step);
}

// Boundary relaxing of an operand that is read at `reads`: a[i] is a'[i - lo'], a' over a larger
// box with zeros in it. The box grows to all that is read, or on one side only, until both are
// padded alike. Precondition: the padding of the read is 0, and the box meets what is read.
static void ein__rule_relax_operand(const ein_ctx *ctx, ein__places *box, ein__places reads,
                                    bool whole) {
    if (!ein__rule_on(ctx, EIN__RULE_RELAX)) return;
    int64_t before = box->lo - reads.lo, after = reads.hi - box->hi;
    if (whole) *box = reads;
    else if (before > after) box->lo = reads.lo + after;
    else box->hi = reads.hi - before;
}
