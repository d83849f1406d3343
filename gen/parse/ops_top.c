// TopK: the largest or smallest elements along an axis, in order, and where they stand.
//
// An element's place in the order is the number of elements that come before it, so a short row is
// sorted by comparing all pairs. Of a long row, the first few are found in blocks: the first k
// elements are in the k blocks whose own first elements come first, because these come before all
// elements of every other block. So blocks are compared by their extrema, then parts of the blocks
// that are kept, at last elements. Or sorted pieces are merged in pairs, where every place of the
// merged piece finds by bisection how many elements of the left piece come before it (Odeh et al.,
// "Merge Path - Parallel Merging Made Simple", IPDPSW 2012). All of it is written as equations.
// Equal elements keep their order; NaN has no place.

// What is assumed, in pairs of elements that are compared in the same time: of a kernel's launch
// and its ends, of a step of a bisection, of an element that is read for an extremum. Blocks are
// shorter than two to the power of LOGS.
enum { EIN__TOP_KERNEL = 1 << 22, EIN__TOP_STEP = 3, EIN__TOP_READ = 2, EIN__TOP_LOGS = 31 };
#define EIN__TOP_PAIRS 2147483648.0  // that are worth comparing

// The elements at hand, local value[i0,..,e,..] or, of sorted pieces, value[i0,..,p,e,..]; at first
// x itself.
typedef struct ein__top {
    ein__op *o;
    int axis, level;
    int64_t count, size, length;  // of the result's axis, of all at hand, of a piece
    double rows;
    const char *value, *from;  // names of what is at hand, and of its places in x; NULL: as it is
    const char *type;          // of values
    const char *beyond;        // what comes behind every element; NULL: the type has no such number
    const char *before, *extremum;
    const char *none;  // a place beyond all
} ein__top;

// ---- what takes how long ----

static int64_t ein__top_least(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows of `size`: every pair is compared, and every element asked for every place.
static double ein__top_ranks(const ein__top *t, double rows, int64_t size) {
    double places = (double)ein__top_least(size, t->count);
    return t->rows * rows * (double)size * ((double)size + 2 * places) + 2.0 * EIN__TOP_KERNEL;
}

// The largest power of two that is not above `limit`.
static int64_t ein__top_power(int64_t limit) {
    int64_t s = 1;
    while (s <= limit / 2) s *= 2;
    return s;
}

static double ein__top_merges(const ein__top *t, int64_t pieces, int64_t length) {
    double time = 0;
    while (pieces > 1) {
        double steps = 1 + log2((double)ein__top_power(length));
        pieces = (pieces + 1) / 2;
        length = ein__top_least(2 * length, t->count);
        time += t->rows * (double)pieces * (double)length * steps * EIN__TOP_STEP;
        time += EIN__TOP_KERNEL;
    }
    return time;
}

// Blocks of `size` elements are compared by their extrema.
static double ein__top_blocks(const ein__top *t, double blocks, double size) {
    double pairs = blocks * (blocks + (double)t->count) + blocks * size * EIN__TOP_READ;
    return t->rows * pairs + 4.0 * EIN__TOP_KERNEL;
}

// time[i]: the least that it takes to find the elements in as many blocks of 2^i as there are
// results; part[i]: the logarithm of what these are cut into, shorter ones.
static void ein__top_parts(const ein__top *t, double *time, int *part) {
    time[0] = 0;
    for (int i = 1; i < EIN__TOP_LOGS; i++) {
        time[i] = HUGE_VAL;
        for (int j = 0; j < i; j++) {
            double all = ein__top_blocks(t, ldexp((double)t->count, i - j), ldexp(1, j)) + time[j];
            if (all < time[i]) time[i] = all, part[i] = j;
        }
    }
}

// How elements are found.
typedef struct ein__top_way {
    int64_t piece;            // so long are the pieces that are merged; 0: none are
    int log;                  // of the length of blocks that are compared first; 0: none are
    int part[EIN__TOP_LOGS];  // into what blocks are cut (ein__top_parts)
    double time;
} ein__top_way;

// The fastest way; but by comparing all pairs only where there is an axis more and `beyond`.
static ein__top_way ein__top_fastest(const ein__top *t, bool more) {
    ein__top_way w = {.time = ein__top_ranks(t, 1, t->size)};
    double parts[EIN__TOP_LOGS];
    ein__top_parts(t, parts, w.part);
    if (!more || !t->beyond) return w;
    for (int64_t m = 8; m <= t->size / 2; m *= 2) {
        int64_t pieces = (t->size + m - 1) / m, kept = ein__top_least(m, t->count);
        double time = ein__top_ranks(t, (double)pieces, m) + ein__top_merges(t, pieces, kept);
        if (time < w.time) w.time = time, w.piece = m;
    }
    for (int i = 1; i < EIN__TOP_LOGS && t->size >> i >= t->count; i++) {
        double blocks = (double)((t->size + (1ll << i) - 1) >> i);
        double time = ein__top_blocks(t, blocks, ldexp(1, i)) + parts[i];
        if (time < w.time) w.time = time, w.piece = 0, w.log = i;
    }
    return w;
}

// ---- the text ----

// name[i0,..,AT,..] with `at` along the axis.
static const char *ein__top_at(const ein__top *t, const char *name, const char *at) {
    ein__buf b = {0};
    ein__putf(&b, "%s[", name);
    for (int i = 0; i < ein__op_in(t->o, 0)->rank; i++) {
        if (i) ein__put(&b, ",");
        if (i == t->axis) ein__put(&b, at);
        else ein__putf(&b, "i%d", i);
    }
    ein__put(&b, "]");
    const char *s = ein__name(t->o->ctx, b.s);
    ein__buf_free(&b);
    return s;
}

// The name of what the level gives: values or places, the results where it is the last one.
static const char *ein__top_name(const ein__top *t, bool last, bool places) {
    if (last) return t->o->node->nout == 1 ? "y" : places ? "y1" : "y0";
    return ein__namef(t->o->ctx, "%s%d", places ? "from" : "best", t->level);
}

// Equation `left` = body, of type `type` unless it is a result: for p in 0:`pieces`, e in 0:`size`;
// the sum or extremum in it is over r of `over`.
static void ein__top_put(const ein__top *t, const char *type, const char *left, int64_t pieces,
                         int64_t size, int64_t over, const char *body, const char *pad) {
    ein__op *o = t->o;
    const ein__shape *x = ein__op_in(o, 0);
    o->nsymbol = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != t->axis) ein__op_each(o, "i", i, x->d[i]);
    ein__op_each(o, "p", -1, pieces);
    ein__op_each(o, "e", -1, size);
    if (over) ein__op_over(o, "r", -1, over);
    if (*left != 'y') left = ein__namef(o->ctx, "%s %s", type, left);
    ein__op_put(o, ein__namef(o->ctx, "%s = %s", left, body), pad);
}

// What is read beyond the elements at hand, or beyond their places.
static const char *ein__top_pad(const ein__top *t, bool places) {
    return places ? ein__namef(t->o->ctx, "%s %s", t->from, t->none)
                  : ein__namef(t->o->ctx, "%s %s", t->value, t->beyond);
}

// The level has given pieces of `length`.
static void ein__top_go_on(ein__top *t, int64_t pieces, int64_t length) {
    bool last = pieces == 1, places = t->o->node->nout > 1;
    t->value = ein__top_name(t, last, false);
    if (places) t->from = ein__top_name(t, last, true);
    t->size = pieces * length;
    t->length = length;
}

// ---- pieces ----

// Keeps the first ones of every piece of `m` elements, in order: an element goes where the number
// of those before it says.
static void ein__top_cut(ein__top *t, int64_t m) {
    ein_ctx *c = t->o->ctx;
    int64_t pieces = (t->size + m - 1) / m, kept = ein__top_least(m, t->count);
    bool more = pieces > 1, beyond = pieces * m > t->size;
    const char *pad = beyond ? ein__top_pad(t, false) : NULL, *left = more ? "p,e" : "e";
    const char *in = more ? ein__namef(c, "%lld*p+r", (long long)m) : "r";
    t->level++;
    const char *rank = ein__namef(c, "rank%d", t->level);
    const char *other = ein__top_at(t, t->value, in);
    const char *own =
        ein__top_at(t, t->value, more ? ein__namef(c, "%lld*p+e", (long long)m) : "e");
    ein__top_put(t, "i32", ein__top_at(t, rank, left), pieces, m, m,
                 ein__namef(c, "sum(r) select(%s %s %s, 1, [r < e] * select(%s == %s, 1, 0))",
                            other, t->before, own, other, own),
                 pad);
    const char *is = ein__top_at(t, rank, more ? "p,r" : "r");
    for (int k = 0; k < t->o->node->nout; k++) {
        const char *of = k ? ein__namef(c, "idx(%s)", in) : other;
        const char *none = k ? t->none : t->beyond ? t->beyond : "0";
        const char *of_all = k ? "min" : t->beyond ? t->extremum : "sum";
        ein__top_put(t, k ? "i32" : t->type, ein__top_at(t, ein__top_name(t, !more, k), left),
                     pieces, kept, m,
                     ein__namef(c, "%s(r) select(%s == idx(e), %s, %s)", of_all, is, of, none),
                     k ? NULL : pad);
    }
    ein__top_go_on(t, pieces, kept);
}

// ---- blocks ----

// The extremum of each of `n` blocks of `size` elements, whose numbers are in `start`, NULL: all.
static const char *ein__top_extrema(ein__top *t, int64_t n, int64_t size, const char *start) {
    ein_ctx *c = t->o->ctx;
    int64_t blocks = (t->size + size - 1) / size;
    const char *most = ein__namef(c, "most%d", t->level), *pad = ein__namef(c, "x %s", t->beyond);
    const char *at = start ? ein__namef(c, "@%s", ein__top_at(t, start, "e")) : "", *from = "x";
    if (!start) {
        at = ein__namef(c, "%lld*e+r", (long long)size);
        if (blocks * size == t->size) pad = NULL;
    } else if (size > 1) {
        const char *each = ein__namef(c, "%lld*p+e", (long long)size);
        from = ein__namef(c, "block%d", t->level);
        ein__top_put(t, t->type, ein__top_at(t, from, "p,e"), blocks, size, 0,
                     ein__top_at(t, "x", each), blocks * size == t->size ? NULL : pad);
        at = ein__namef(c, "%s,r", at);
        pad = ein__namef(c, "%s %s", from, t->beyond);
    }
    const char *over = size > 1 ? ein__namef(c, "%s(r) ", t->extremum) : "";
    ein__top_put(t, t->type, ein__top_at(t, most, "e"), 1, n, size > 1 ? size : 0,
                 ein__namef(c, "%s%s", over, ein__top_at(t, from, at)), pad);
    return most;
}

// Keeps the first ones of `n` blocks of `size` elements; what this returns has their numbers.
// `start` as above.
static const char *ein__top_keep(ein__top *t, int64_t n, int64_t size, const char *start) {
    ein_ctx *c = t->o->ctx;
    const char *most = ein__top_extrema(t, n, size, start);
    const char *other = ein__top_at(t, most, "r"), *own = ein__top_at(t, most, "e");
    const char *number = start ? ein__top_at(t, start, "r") : "idx(r)";
    const char *rank = ein__namef(c, "rank%d", t->level);
    const char *kept = size > 1 ? ein__namef(c, "kept%d", t->level) : ein__top_name(t, true, true);
    const char *none = ein__namef(c, "%lld", (long long)((t->size + size - 1) / size));
    const char *equal = ein__namef(c, "select(%s == %s, 1, 0)", other, own);
    if (size == 1 && t->o->node->nout == 1) kept = "from";
    if (start)
        equal = ein__namef(c, "select(%s < %s, %s, 0)", number, ein__top_at(t, start, "e"), equal);
    else equal = ein__namef(c, "[r < e] * %s", equal);
    ein__top_put(t, "i32", ein__top_at(t, rank, "e"), 1, n, n,
                 ein__namef(c, "sum(r) select(%s %s %s, 1, %s)", other, t->before, own, equal),
                 NULL);
    ein__top_put(t, "i32", ein__top_at(t, kept, "e"), 1, t->count, n,
                 ein__namef(c, "min(r) select(%s == idx(e), %s, %s)", ein__top_at(t, rank, "r"),
                            number, none),
                 NULL);
    return kept;
}

// The first ones, found in blocks of 2^log elements.
static void ein__top_narrow(ein__top *t, int log, const int *part) {
    ein_ctx *c = t->o->ctx;
    const char *kept = ein__top_keep(t, (t->size + (1ll << log) - 1) >> log, 1ll << log, NULL);
    while (log) {
        int below = part[log];
        long long parts = 1ll << (log - below);
        const char *start = ein__namef(c, "start%d", ++t->level);
        const char *of = ein__top_at(t, kept, ein__namef(c, "e/%lld", parts));
        ein__top_put(t, "i32", ein__top_at(t, start, "e"), 1, t->count * parts, 0,
                     ein__namef(c, "%lld * %s + idx(e%%%lld)", parts, of, parts), NULL);
        kept = ein__top_keep(t, t->count * parts, 1ll << below, start);
        log = below;
    }
    const char *at = ein__namef(c, "@%s", ein__top_at(t, kept, "e"));
    ein__top_put(t, t->type, ein__top_at(t, ein__top_name(t, true, false), "e"), 1, t->count, 0,
                 ein__top_at(t, "x", at), ein__namef(c, "x %s", t->beyond));
}

// ---- merging ----

// Two pieces that become one.
typedef struct ein__top_pair {
    int64_t pieces, kept;       // that there are then, and their elements
    const char *at;             // subscripts of a new one's element
    const char *left, *right;   // the old ones: subscripts
    const char *taken, *after;  // locals: how many of the left piece come before the element, and
                                // what is left for the right one
} ein__top_pair;

static const char *ein__top_old(const ein__top *t, const char *piece, const char *at) {
    return ein__top_at(t, t->value, ein__namef(t->o->ctx, "%s,%s", piece, at));
}

// Bisection: an element of the left piece is before all of the right one's but those beyond it.
static void ein__top_split(const ein__top *t, ein__top_pair *z) {
    ein_ctx *c = t->o->ctx;
    int64_t step = ein__top_power(ein__top_least(t->length, z->kept - 1));
    const char *most = "idx(e)", *pad = ein__top_pad(t, false);
    if (z->kept > t->length) most = ein__namef(c, "min(idx(e), %lld)", (long long)t->length);
    const char *at = ein__namef(c, "%lld", (long long)step - 1);
    const char *one = ein__top_old(t, z->left, at);
    const char *two = ein__top_old(t, z->right, ein__namef(c, "e-%lld", (long long)step));
    for (int k = 0; step; k++, step /= 2) {
        const char *yes = step > 1 ? ein__namef(c, "%lld", (long long)step / 2) : "1";
        const char *no = step > 1 ? ein__namef(c, "-%lld", (long long)step / 2) : "0";
        const char *taken = ein__namef(c, "taken%d_%d", t->level, k);
        const char *after = ein__namef(c, "after%d_%d", t->level, k);
        z->taken = ein__top_at(t, taken, z->at);
        z->after = ein__top_at(t, after, z->at);
        ein__top_put(t, "i32", z->taken, z->pieces, z->kept, 0,
                     ein__namef(c, "%s + select(%s < %s, select(%s %s %s, %s, %s), %s)", at, at,
                                most, two, t->before, one, no, yes, no),
                     pad);
        ein__top_put(t, "i32", z->after, z->pieces, z->kept, 0,
                     ein__namef(c, "idx(e%s) - %s", step > 1 ? "-1" : "", z->taken), NULL);
        at = z->taken;
        one = ein__top_old(t, z->left, ein__namef(c, "@%s", z->taken));
        two = ein__top_old(t, z->right, ein__namef(c, "@%s", z->after));
    }
}

// The first ones of every two pieces as one.
static void ein__top_merge(ein__top *t) {
    ein_ctx *c = t->o->ctx;
    int64_t n = t->length, old = t->size / n, kept = ein__top_least(2 * n, t->count);
    bool last = old == 2;
    ein__top_pair z = {.pieces = (old + 1) / 2, .kept = kept};
    z.at = last ? "e" : "p,e";
    z.left = last ? "0" : "2*p";
    z.right = last ? "1" : "2*p+1";
    t->level++;
    ein__top_split(t, &z);
    const char *is = ein__top_at(t, ein__namef(c, "is%d", t->level), z.at);
    const char *run = ein__top_at(t, ein__namef(c, "run%d", t->level), z.at);
    const char *at = ein__top_at(t, ein__namef(c, "at%d", t->level), z.at);
    const char *body = ein__namef(
        c, "select(%s %s %s, 0, 1)", ein__top_old(t, z.right, ein__namef(c, "@%s", z.after)),
        t->before, ein__top_old(t, z.left, ein__namef(c, "@%s", z.taken)));
    if (kept > n) body = ein__namef(c, "select(%s < %lld, %s, 0)", z.taken, (long long)n, body);
    ein__top_put(t, "i32", is, z.pieces, kept, 0, body, ein__top_pad(t, false));
    body = ein__namef(c, "idx(%s) - %s", z.right, is);
    ein__top_put(t, "i32", run, z.pieces, kept, 0, body, NULL);
    body = ein__namef(c, "select(%s > 0, %s, %s)", is, z.taken, z.after);
    ein__top_put(t, "i32", at, z.pieces, kept, 0, body, NULL);
    bool places = t->o->node->nout > 1;
    const char *held = ein__namef(c, "@%s,@%s", run, at), *value = t->value,
               *pad = ein__top_pad(t, false);
    // Places first: nothing but they need be kept until the next level.
    if (places) {
        const char *from = ein__top_at(t, ein__top_name(t, last, true), z.at);
        ein__top_put(t, "i32", from, z.pieces, kept, 0, ein__top_at(t, t->from, held),
                     ein__top_pad(t, true));
        held = ein__namef(c, "@%s", from);
        value = "x";
        pad = ein__namef(c, "x %s", t->beyond);
    }
    ein__top_put(t, t->type, ein__top_at(t, ein__top_name(t, last, false), z.at), z.pieces, kept, 0,
                 ein__top_at(t, value, held), pad);
    ein__top_go_on(t, z.pieces, kept);
}

// ---- the operator ----

// The only one is an extremum.
static void ein__top_one(const ein__top *t) {
    ein_ctx *c = t->o->ctx;
    const char *best = ein__top_name(t, true, false), *x = ein__top_at(t, t->value, "r");
    best = ein__top_at(t, best, "e");
    ein__top_put(t, t->type, best, 1, 1, t->size, ein__namef(c, "%s(r) %s", t->extremum, x), NULL);
    if (t->o->node->nout > 1)
        ein__top_put(t, "i32", ein__top_at(t, "y1", "e"), 1, 1, t->size,
                     ein__namef(c, "min(r) select(%s == %s, idx(r), %s)", x, best, t->none), NULL);
}

// What no element of the type comes behind; NULL: f32 has no such number.
static const char *ein__top_beyond(ein__dtype type, bool largest) {
    switch (type) {
    case EIN__F32:
    case EIN__F16:
    case EIN__BF16: return largest ? "-inf" : "inf";
    case EIN__I8: return largest ? "-128" : "127";
    case EIN__U8: return largest ? "0" : "255";
    case EIN__I32: return largest ? "-2147483648" : "2147483647";
    case EIN__I64:
    case EIN__BOOL:
    case EIN__NDTYPE: break;
    }
    return NULL;
}

static bool ein__top_write(ein__top *t) {
    if (t->count == 1) {
        ein__top_one(t);
        return true;
    }
    bool more = ein__op_in(t->o, 0)->rank < EIN__MAX_RANK;  // pieces and blocks are an axis more
    ein__top_way w = ein__top_fastest(t, more);
    if (w.time > EIN__TOP_PAIRS || t->size > INT32_MAX)
        return ein__op_limit(t->o, "k", "%lld from an axis of size %lld: too much to compare",
                             (long long)t->count, (long long)t->size);
    if (w.log) {
        ein__top_narrow(t, w.log, w.part);
        return true;
    }
    int64_t pieces = w.piece ? (t->size + w.piece - 1) / w.piece : 1;
    ein__top_cut(t, (t->size + pieces - 1) / pieces);
    while (t->size > t->length) ein__top_merge(t);
    return true;
}

static bool ein__op_top_k(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__top t = {.o = o, .value = "x", .rows = 1, .length = 1};
    ein__dtype type = ein__op_type(o);
    bool largest, sorted;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &t.axis) ||
        !ein__op_int(o, "k", 1, EIN__OP_LIMIT, &t.count) || !ein__op_flag(o, "largest", &largest) ||
        !ein__op_flag(o, "sorted", &sorted))
        return false;
    t.size = x->d[t.axis];
    if (t.count > t.size)
        return ein__op_fail(o, "k", "k is %lld, of an axis of size %lld", (long long)t.count,
                            (long long)t.size);
    if (o->node->nout > 2) return ein__op_fail(o, NULL, "%d results, expected two", o->node->nout);
    ein__shape y = *x;
    y.d[t.axis] = t.count;
    for (int k = 0; k < o->node->nout; k++)
        if (!ein__op_result(o, k, &y)) return false;
    if (o->node->nout > 1) o->dtype[1] = EIN__I64;
    t.type = ein__dtype_name(type);
    t.beyond = ein__top_beyond(type, largest);
    t.before = largest ? ">" : "<";
    t.extremum = largest ? "max" : "min";
    t.none = ein__namef(o->ctx, "%lld", (long long)t.size);
    for (int i = 0; i < x->rank; i++) t.rows *= i == t.axis ? 1 : (double)x->d[i];
    return ein__top_write(&t);
}
