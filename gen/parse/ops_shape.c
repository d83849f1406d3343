// Operators that move elements: pure copies, whatever the type.

static bool ein__op_identity(ein__op *o) { return ein__op_map(o, o->row->body, ein__op_in(o, 0)); }

static bool ein__op_concat(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = *x;
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis))
        return false;
    for (int k = 1; k < o->node->nin; k++) {
        const ein__shape *p = ein__op_in(o, k);
        bool fits = p->rank == x->rank;
        for (int i = 0; fits && i < x->rank; i++) fits = i == axis || p->d[i] == x->d[i];
        if (!fits)
            return ein__op_fail(o, NULL, "x%d %s does not continue x0 %s along axis %d", k,
                                ein__op_shape_text(o, p), ein__op_shape_text(o, x), axis);
        y.d[axis] += p->d[axis];
    }
    ein__op_each_axis(o, &y);
    ein__buf body = {0}, pads = {0};
    ein__put(&body, "y[{i#,}] = ");
    long long at = 0;
    for (int k = 0; k < o->node->nin; k++) {
        ein__putf(&body, k ? " + x%d[" : "x%d[", k);
        for (int i = 0; i < x->rank; i++) ein__putf(&body, "i%d-%lld,", i, i == axis ? at : 0);
        ein__put(&body, "]");
        ein__putf(&pads, k ? ", pad x%d 0" : "x%d 0", k);
        at += ein__op_in(o, k)->d[axis];
    }
    ein__op_put(o, body.s, o->node->nin > 1 ? pads.s : NULL);
    ein__buf_free(&body);
    ein__buf_free(&pads);
    return ein__op_result(o, 0, &y);
}

// Sizes of the pieces: `split`, or num_outputs equal ones of which the last may be smaller.
static bool ein__split_sizes(ein__op *o, int64_t whole, int64_t *size) {
    int n, pieces = o->node->nout;
    int64_t count, sum = 0;
    if (!ein__op_ints(o, "split", -1, EIN__MAX_ARGS, 1, EIN__OP_LIMIT, size, &n)) return false;
    if (n && ein__op_given(o, "num_outputs"))
        return ein__op_fail(o, "num_outputs", "split and num_outputs exclude each other");
    if (ein__op_given(o, "num_outputs")) {
        if (!ein__op_int(o, "num_outputs", 1, EIN__MAX_ARGS, &count)) return false;
        if (count != pieces)
            return ein__op_fail(o, "num_outputs", "num_outputs is %lld for %d results",
                                (long long)count, pieces);
    }
    if (n && n != pieces)
        return ein__op_fail(o, "split", "split has %d sizes for %d results", n, pieces);
    if (!n)
        for (int i = 0; i < pieces; i++) size[i] = (whole - 1) / pieces + 1;
    if (!n) size[pieces - 1] = whole - (pieces - 1) * size[0];
    for (int i = 0; i < pieces; i++) sum += size[i];
    if (sum != whole || size[pieces - 1] < 1)
        return ein__op_fail(o, "split", "%d pieces do not make up the axis of size %lld", pieces,
                            (long long)whole);
    return true;
}

static bool ein__op_split(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t size[EIN__MAX_ARGS], at = 0;
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__split_sizes(o, x->d[axis], size))
        return false;
    for (int k = 0; k < o->node->nout; k++) {
        ein__shape y = *x;
        y.d[axis] = size[k];
        o->nsymbol = 0;
        ein__op_each_axis(o, &y);
        for (int i = 0; i < x->rank; i++)
            ein__op_str(o, "X", i, i == axis ? "i%d+%lld" : "i%d", i, (long long)at);
        ein__op_str(o, "Y", -1, o->node->nout == 1 ? "y" : "y%d", k);
        ein__op_put(o, "Y[{i#,}] = x[{X#,}]", NULL);
        if (!ein__op_result(o, k, &y)) return false;
        at += size[k];
    }
    return true;
}

// starts, ends and steps count like Python's slices: negative ones from the end, excess is cut off.
static bool ein__op_slice(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t start[EIN__MAX_RANK], end[EIN__MAX_RANK], step[EIN__MAX_RANK];
    int n, ne, na, axis[EIN__MAX_RANK];
    bool steps = ein__op_given(o, "steps");
    if (!ein__op_ints(o, "starts", -1, x->rank, INT64_MIN, INT64_MAX, start, &n) ||
        !ein__op_ints(o, "ends", n, x->rank, INT64_MIN, INT64_MAX, end, &ne) ||
        !ein__op_axes(o, "axes", x->rank, axis, &na) ||
        (steps && !ein__op_ints(o, "steps", n, x->rank, -EIN__OP_LIMIT, EIN__OP_LIMIT, step, &ne)))
        return false;
    if (na && na != n) return ein__op_fail(o, "axes", "axes has %d values, expected %d", na, n);
    ein__shape y = *x;
    int64_t from[EIN__MAX_RANK] = {0}, by[EIN__MAX_RANK];
    for (int i = 0; i < x->rank; i++) by[i] = 1;
    for (int i = 0; i < n; i++) {
        int at = na ? axis[i] : i;
        int64_t d = x->d[at], s = steps ? step[i] : 1;
        if (!s) return ein__op_fail(o, "steps", "a step of 0");
        int64_t lo = s > 0 ? 0 : -1, hi = s > 0 ? d : d - 1;
        int64_t a = start[i] < 0 ? start[i] + d : start[i], b = end[i] < 0 ? end[i] + d : end[i];
        a = a < lo + (s < 0) ? lo + (s < 0) : a > hi ? hi : a;
        b = b < lo ? lo : b > hi ? hi : b;
        int64_t length = s > 0 ? (b - a + s - 1) / s : (a - b - s - 1) / -s;
        if ((s > 0 ? b - a : a - b) <= 0)
            return ein__op_fail(o, "starts", "the slice of axis %d is empty", at);
        y.d[at] = length;
        from[at] = a;
        by[at] = s;
    }
    ein__op_each_axis(o, &y);
    for (int i = 0; i < x->rank; i++)
        ein__op_str(o, "X", i, "%lld*i%d+%lld", (long long)by[i], i, (long long)from[i]);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return ein__op_result(o, 0, &y);
}

// A padding must be a value of the operand's type.
static bool ein__pad_value(ein__op *o, double *value) {
    static const double most[EIN__NDTYPE] = {0, 0, 0, 127, 255, 2147483647, 9007199254740992, 1};
    ein__dtype t = ein__op_tensor(o, 0)->dtype;
    if (!ein__op_number(o, "value", value)) return false;
    if (most[t] == 0) return true;
    double least = t == EIN__BOOL || t == EIN__U8 ? 0 : -most[t] - (t != EIN__I64);
    if (*value == floor(*value) && *value >= least && *value <= most[t]) return true;
    return ein__op_fail(o, "value", "value is not one of %s", ein__dtype_name(t));
}

// ORDER of words in the table
enum { EIN__PAD_CONSTANT, EIN__PAD_REFLECT, EIN__PAD_EDGE, EIN__PAD_WRAP };

// Writes to = from, of shape x but for `axis`, which has y's size: `lo` elements in front of it and
// those behind it mirror the others, or repeat the first and last, or go around.
static void ein__pad_axis(ein__op *o, const char *from, const char *to, const ein__shape *y,
                          int axis, int64_t n, int64_t lo, int mode) {
    long long last = (long long)n - 1, begin = (long long)lo, end = (long long)(n + lo);
    o->nsymbol = 0;
    ein__op_each_axis(o, y);
    ein__op_str(o, "S", -1, "%s", from);
    ein__op_str(o, "T", -1, "%s", to);
    ein__op_str(o, "I", -1, "i%d", axis);
    ein__op_num(o, "LO", -1, begin);
    ein__op_num(o, "END", -1, end);
    for (int i = 0; i < y->rank; i++) {
        bool at = i == axis, reflect = mode == EIN__PAD_REFLECT;
        const char *low = ein__namef(o->ctx, "i%d", i), *high = low;
        if (at) low = reflect ? ein__namef(o->ctx, "%lld-i%d", begin, i) : "0";
        if (at && reflect) high = ein__namef(o->ctx, "%lld-i%d", 2 * last + begin, i);
        else if (at) high = ein__namef(o->ctx, "%lld", last);
        ein__op_str(o, "L", i, "%s", low);
        ein__op_str(o, "H", i, "%s", high);
        if (at && mode == EIN__PAD_WRAP)
            ein__op_str(o, "X", i, "(i%d-(%lld))%%%lld", i, begin, last + 1);
        else ein__op_str(o, "X", i, "i%d-(%lld)", i, at ? begin : 0);
    }
    const char *below = mode != EIN__PAD_WRAP && lo > 0 ? " + S[{L#,}] * [I < LO]" : "";
    const char *above = mode != EIN__PAD_WRAP && y->d[axis] > end ? " + S[{H#,}] * [I >= END]" : "";
    bool outside = *below || *above;
    ein__op_put(o, ein__namef(o->ctx, "T[{i#,}] = S[{X#,}]%s%s", below, above),
                outside ? ein__namef(o->ctx, "%s 0", from) : NULL);
}

// Axis by axis, each a value of its own: corners are pads of pads.
static bool ein__pad_repeated(ein__op *o, const int64_t *lo, const ein__shape *y, int mode) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape now = *x;
    const char *from = "x";
    int left = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t hi = y->d[i] - x->d[i] - lo[i], most = lo[i] > hi ? lo[i] : hi;
        left += lo[i] || hi;
        if (mode == EIN__PAD_REFLECT && most >= x->d[i])
            return ein__op_fail(o, "pads", "mode=reflect: axis %d of size %lld has no %lld others",
                                i, (long long)x->d[i], (long long)most);
    }
    if (!ein__op_result(o, 0, y)) return false;
    if (!left) return ein__op_map(o, "x", x);
    for (int i = 0; i < x->rank; i++) {
        if (!lo[i] && y->d[i] == x->d[i]) continue;
        const char *to = --left ? ein__namef(o->ctx, "t%d", i) : "y";
        now.d[i] = y->d[i];
        ein__pad_axis(o, from, to, &now, i, x->d[i], lo[i], mode);
        from = to;
    }
    return true;
}

static bool ein__op_pad(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis[EIN__MAX_RANK], n, na, mode;
    int64_t pads[2 * EIN__MAX_RANK], lo[EIN__MAX_RANK] = {0};
    double value;
    bool outside = false;
    if (!ein__op_axes(o, "axes", x->rank, axis, &na) || !ein__op_word(o, "mode", &mode))
        return false;
    if (!ein__op_given(o, "axes"))
        while (na < x->rank) axis[na] = na, na++;
    if (!ein__op_ints(o, "pads", 2 * na, 2 * EIN__MAX_RANK, -EIN__OP_LIMIT, EIN__OP_LIMIT, pads,
                      &n) ||
        !ein__pad_value(o, &value))
        return false;
    ein__shape y = *x;
    for (int i = 0; i < na; i++) {
        lo[axis[i]] = pads[i];
        y.d[axis[i]] += pads[i] + pads[i + na];
        outside = outside || pads[i] > 0 || pads[i + na] > 0;
    }
    if (mode != EIN__PAD_CONSTANT) return ein__pad_repeated(o, lo, &y, mode);
    ein__op_each_axis(o, &y);
    for (int i = 0; i < x->rank; i++) ein__op_str(o, "X", i, "i%d-(%lld)", i, (long long)lo[i]);
    ein__buf pad = {0};
    ein__put(&pad, "x ");
    ein__put_f64(&pad, value);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", outside ? pad.s : NULL);
    ein__buf_free(&pad);
    return ein__op_result(o, 0, &y);
}

static bool ein__op_transpose(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int perm[EIN__MAX_RANK], n;
    if (!ein__op_axes(o, "perm", x->rank, perm, &n)) return false;
    if (ein__op_given(o, "perm") && n != x->rank)
        return ein__op_fail(o, "perm", "perm has %d values, expected %d", n, x->rank);
    ein__shape y = *x;
    for (int i = 0; i < x->rank; i++) {
        int from = n ? perm[i] : x->rank - 1 - i;
        y.d[i] = x->d[from];
        ein__op_str(o, "X", from, "i%d", i);
    }
    ein__op_each_axis(o, &y);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return ein__op_result(o, 0, &y);
}

// ------------------------------------------------------------------------------------ reshaping

// Subscripts of axes [a, ae) of x whose elements are, in order, those of axes [b, be) of y.
static void ein__reflow_group(ein__op *o, const ein__shape *x, int a, int ae, const ein__shape *y,
                              int b, int be) {
    ein__buf address = {0};
    ein__put(&address, "0");
    int64_t whole = 1;
    int many = 0;
    for (int i = a; i < ae; i++) {
        many += x->d[i] > 1;
        whole *= x->d[i];
    }
    int64_t stride = whole, rest = whole;
    for (int i = b; i < be; i++) {
        stride /= y->d[i];
        if (y->d[i] > 1) ein__putf(&address, "+%lld*i%d", (long long)stride, i);
    }
    for (int i = a; i < ae; i++) {
        rest /= x->d[i];
        long long s = rest, d = x->d[i];
        if (d == 1) ein__op_str(o, "X", i, "0");
        else if (many == 1) ein__op_str(o, "X", i, "%s", address.s);
        else if (rest * d == whole) ein__op_str(o, "X", i, "(%s)/%lld", address.s, s);
        else ein__op_str(o, "X", i, "(%s)/%lld%%%lld", address.s, s, d);
    }
    ein__buf_free(&address);
}

// y holds x's elements in the same order. The axes fall into the smallest groups that hold equally
// many elements, so that what does not change stays a bare index.
static bool ein__op_reflow(ein__op *o, const ein__shape *y) {
    const ein__shape *x = ein__op_in(o, 0);
    if (ein__elements(x) != ein__elements(y))
        return ein__op_fail(o, "shape", "%s cannot become %s", ein__op_shape_text(o, x),
                            ein__op_shape_text(o, y));
    if (!ein__op_result(o, 0, y)) return false;
    ein__op_each_axis(o, y);
    for (int a = 0, b = 0; a < x->rank || b < y->rank;) {
        int a0 = a, b0 = b;
        int64_t na = a < x->rank ? x->d[a++] : 1, nb = b < y->rank ? y->d[b++] : 1;
        while (na != nb) {
            if (na < nb) na *= x->d[a++];
            else nb *= y->d[b++];
        }
        ein__reflow_group(o, x, a0, a, y, b0, b);
    }
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return true;
}

static bool ein__op_reshape(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    int open = -1;
    if (!ein__op_ints(o, "shape", -1, EIN__MAX_RANK, -1, EIN__OP_LIMIT, y.d, &y.rank)) return false;
    for (int i = 0; i < y.rank; i++) {
        if (y.d[i] == 0 && i >= x->rank)
            return ein__op_fail(o, "shape", "shape[%d] is 0, but x has rank %d", i, x->rank);
        if (y.d[i] == 0) y.d[i] = x->d[i];
        if (y.d[i] > 0) continue;
        if (open >= 0) return ein__op_fail(o, "shape", "shape has more than one -1");
        open = i;
        y.d[i] = 1;
    }
    if (open >= 0 && ein__elements(&y) <= ein__elements(x))
        y.d[open] = ein__elements(x) / ein__elements(&y);
    return ein__op_reflow(o, &y);
}

static bool ein__op_flatten(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t axis;
    if (!ein__op_int(o, "axis", -x->rank, x->rank, &axis)) return false;
    if (axis < 0) axis += x->rank;
    ein__shape y = {.rank = 2, .d = {1, 1}};
    for (int i = 0; i < x->rank; i++) y.d[i >= axis] *= x->d[i];
    return ein__op_reflow(o, &y);
}

static bool ein__op_squeeze(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int at[EIN__MAX_RANK], n;
    bool drop[EIN__MAX_RANK] = {0};
    ein__shape y = {.rank = 0};
    if (!ein__op_axes(o, "axes", x->rank, at, &n)) return false;
    for (int i = 0; i < n; i++) {
        if (x->d[at[i]] != 1)
            return ein__op_fail(o, "axes", "axis %d of x has size %lld, expected 1", at[i],
                                (long long)x->d[at[i]]);
        drop[at[i]] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (!drop[i] && (n || x->d[i] != 1)) y.d[y.rank++] = x->d[i];
    return ein__op_reflow(o, &y);
}

static bool ein__op_unsqueeze(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    const ein__attr *axes = ein__op_attr(o, "axes");
    int at[EIN__MAX_RANK], n = axes->value->kind == EIN__A_LIST ? axes->value->nkid : 1;
    bool added[EIN__MAX_RANK] = {0};
    ein__shape y = {.rank = x->rank + n};
    if (y.rank > EIN__MAX_RANK)
        return ein__op_limit(o, "axes", "the result would have rank %d", y.rank);
    if (!ein__op_axes(o, "axes", y.rank, at, &n)) return false;
    for (int i = 0; i < n; i++) added[at[i]] = true;
    for (int i = 0, from = 0; i < y.rank; i++) y.d[i] = added[i] ? 1 : x->d[from++];
    return ein__op_reflow(o, &y);
}

static bool ein__op_expand_to(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    if (!ein__op_ints(o, "shape", -1, EIN__MAX_RANK, 1, EIN__OP_LIMIT, y.d, &y.rank) ||
        !ein__op_broadcast(o, x, &y, &y))
        return false;
    return ein__op_map(o, "x", &y);
}

// body: the subscripts of x for the words of `mode`, separated by `;`.
static bool ein__op_blocks(ein__op *o) {
    if (!ein__op_rank(o, 0, 4, 4)) return false;
    const ein__shape *x = ein__op_in(o, 0);
    bool to_depth = *o->row->name == 'S';
    int64_t b;
    int mode;
    if (!ein__op_int(o, "blocksize", 1, 1 << 20, &b) || !ein__op_word(o, "mode", &mode))
        return false;
    ein__shape y = *x;
    if (to_depth && (x->d[2] % b || x->d[3] % b))
        return ein__op_fail(o, "blocksize", "blocksize %lld does not divide %s", (long long)b,
                            ein__op_shape_text(o, x));
    if (!to_depth && x->d[1] % (b * b))
        return ein__op_fail(o, "blocksize", "%lld channels are not a multiple of %lld",
                            (long long)x->d[1], (long long)(b * b));
    for (int i = 1; i < 4; i++) {
        int64_t n = i == 1 ? b * b : b;
        y.d[i] = to_depth == (i == 1) ? x->d[i] * n : x->d[i] / n;
    }
    ein__op_each(o, "n", -1, y.d[0]);
    ein__op_each(o, "c", -1, y.d[1]);
    ein__op_each(o, "h", -1, y.d[2]);
    ein__op_each(o, "w", -1, y.d[3]);
    ein__op_num(o, "B", -1, b);
    ein__op_num(o, "BB", -1, b * b);
    ein__op_num(o, "C", -1, to_depth ? x->d[1] : y.d[1]);
    const char *body = o->row->body;
    if (mode) body = strchr(body, ';') + 1;
    ein__op_put(o, ein__namef(o->ctx, "y[n,c,h,w] = x[n,%.*s]", (int)strcspn(body, ";"), body),
                NULL);
    return ein__op_result(o, 0, &y);
}

// ------------------------------------------------------------------------------------- resizing

// ORDER of the words in the table
enum { EIN__NEAREST, EIN__LINEAR };
enum { EIN__HALF_PIXEL, EIN__PYTORCH_HALF_PIXEL, EIN__ASYMMETRIC, EIN__ALIGN_CORNERS };
enum { EIN__ROUND_DOWN, EIN__ROUND_UP, EIN__TO_FLOOR, EIN__TO_CEIL };

// One axis of Resize: result position i lies at (a*i + b) / d of the source.
typedef struct ein__resample {
    int64_t in, out, a, b, d;
} ein__resample;

// The fraction with the smallest denominator that rounds to the same f32, which is what a file
// holds.
static bool ein__ratio(ein__op *o, double scale, int64_t *num, int64_t *den) {
    float f = (float)scale;
    for (*den = 1; f > 0 && f <= 1048576.0f && *den <= 4096; ++*den) {
        *num = (int64_t)floor((double)f * (double)*den + 0.5);
        if (*num > 0 && (float)((double)*num / (double)*den) == f) return true;
    }
    return ein__op_fail(o, "scales",
                        "a scale must be a ratio of integers with a denominator up to 4096");
}

// Which source axes the lists name, in order.
static bool ein__resize_axes(ein__op *o, const char *name, int rank, int *axis, int *n) {
    const ein__ast *v = ein__op_attr(o, name)->value;
    int length = v->kind == EIN__A_LIST ? v->nkid : -1;
    if (!ein__op_axes(o, "axes", rank, axis, n)) return false;
    if (!ein__op_given(o, "axes")) {
        int first = length == rank ? 0 : 2;
        for (*n = 0; first + *n < rank; ++*n) axis[*n] = first + *n;
    }
    if (length < 0 || length == *n) return true;
    return ein__op_fail(o, name, "%s has %d values for %d axes", name, length, *n);
}

// Sets out and the source position for a scale of num / den.
static bool ein__resample_set(ein__op *o, ein__resample *r, int mode, int64_t num, int64_t den) {
    int64_t big;
    bool one = r->out == 1 && (mode == EIN__PYTORCH_HALF_PIXEL || mode == EIN__ALIGN_CORNERS);
    if (one) *r = (ein__resample){r->in, r->out, 0, 0, 1};
    else if (mode == EIN__ALIGN_CORNERS)
        *r = (ein__resample){r->in, r->out, r->in - 1, 0, r->out - 1};
    else if (mode == EIN__ASYMMETRIC) *r = (ein__resample){r->in, r->out, den, 0, num};
    else *r = (ein__resample){r->in, r->out, 2 * den, den - num, 2 * num};
    int64_t g = ein__gcd(ein__gcd(r->a, r->b), r->d);
    r->a /= g;
    r->b /= g;
    r->d /= g;
    // All that is written later stays below a * out and d * in.
    if (ein__mul_overflows(r->a, r->out, &big) || big > (int64_t)1 << 58 ||
        ein__mul_overflows(r->d, r->in, &big) || big > (int64_t)1 << 58)
        return ein__op_limit(o, NULL, "sizes %lld and %lld are too large to resample",
                             (long long)r->in, (long long)r->out);
    return true;
}

static bool ein__resize_read(ein__op *o, ein__resample *r) {
    const ein__shape *x = ein__op_in(o, 0);
    bool scales = ein__op_given(o, "scales");
    const char *name = scales ? "scales" : "sizes";
    int mode, axis[EIN__MAX_RANK], n, got;
    int64_t size[EIN__MAX_RANK];
    if (scales == ein__op_given(o, "sizes"))
        return ein__op_fail(o, name, "exactly one of scales and sizes is needed");
    if (!ein__op_word(o, "coordinate_transformation_mode", &mode) ||
        !ein__resize_axes(o, name, x->rank, axis, &n) ||
        (!scales && !ein__op_ints(o, "sizes", n, EIN__MAX_RANK, 1, EIN__OP_LIMIT, size, &got)))
        return false;
    for (int i = 0; i < x->rank; i++) r[i] = (ein__resample){x->d[i], x->d[i], 1, 0, 1};
    for (int i = 0; i < n; i++) {
        ein__resample *t = &r[axis[i]];
        const ein__ast *v = ein__op_attr(o, name)->value;
        int64_t num = scales ? 0 : size[i], den = t->in;
        double scale = 0;
        if (scales && !ein__op_ast_f64(v->kind == EIN__A_LIST ? v->kid[i] : v, &scale))
            return ein__op_fail(o, name, "scales must be numbers");
        if (scales && !ein__ratio(o, scale, &num, &den)) return false;
        int64_t g = ein__gcd(num, den);
        if (scales && ein__mul_overflows(t->in, num, &t->out))
            return ein__op_limit(o, name, "the scale of axis %d is too large", axis[i]);
        t->out = scales ? t->out / den : num;
        if (t->out < 1)
            return ein__op_fail(o, name, "axis %d of size %lld would vanish", axis[i],
                                (long long)t->in);
        if (!ein__resample_set(o, t, mode, num / g, den / g)) return false;
    }
    return true;
}

// Binds name k to floor((a*i + b) / d), moved to the nearest position of the source. It is outside
// by one position at most, and p - floor(p / n) brings -1 and n back to 0 and n - 1. True where
// that is needed.
static bool ein__resample_bind(ein__op *o, const char *name, int k, const ein__resample *r,
                               int64_t a, int64_t b, int64_t d) {
    int64_t first = ein__floordiv(b, d), last = ein__floordiv(a * (r->out - 1) + b, d);
    bool clamp = first < 0 || last >= r->in;
    EIN_ASSERT(first >= -1 && last <= r->in);
    const char *p = ein__namef(o->ctx, "(%lld*i%d+(%lld))", (long long)a, k, (long long)b);
    if (clamp)
        ein__op_str(o, name, k, "%s/%lld-%s/%lld", p, (long long)d, p, (long long)(d * r->in));
    else ein__op_str(o, name, k, "%s/%lld", p, (long long)d);
    return clamp;
}

// Puts the interpolation over axes [k, rank): low neighbour times 1-f plus high neighbour times f,
// where there is a fraction (d > 1).
static void ein__resize_linear(ein__buf *b, const ein__resample *r, int rank, int k,
                               unsigned high) {
    while (k < rank && r[k].d == 1) k++;
    if (k == rank) {
        ein__put(b, "x[");
        for (int i = 0; i < rank; i++) ein__putf(b, high >> i & 1 ? "H%d," : "L%d,", i);
        ein__put(b, "]");
        return;
    }
    bool inner = false;
    for (int i = k + 1; i < rank; i++) inner = inner || r[i].d > 1;
    ein__put(b, inner ? "(" : "");
    ein__resize_linear(b, r, rank, k + 1, high);
    ein__putf(b, inner ? ") * (1 - F%d) + (" : " * (1 - F%d) + ", k);
    ein__resize_linear(b, r, rank, k + 1, high | 1u << k);
    ein__putf(b, inner ? ") * F%d" : " * F%d", k);
}

static bool ein__op_resize(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__resample r[EIN__MAX_RANK];
    int mode, round, axes = 0;
    bool clamp = false;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_word(o, "mode", &mode) ||
        !ein__op_word(o, "nearest_mode", &round) || !ein__resize_read(o, r))
        return false;
    ein__shape y = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t a = r[i].a, b = r[i].b, d = r[i].d;
        y.d[i] = r[i].out;
        ein__op_each(o, "i", i, y.d[i]);
        axes += d > 1;
        if (mode == EIN__LINEAR) {
            clamp |= ein__resample_bind(o, "L", i, &r[i], a, b, d);
            if (d == 1) continue;
            clamp |= ein__resample_bind(o, "H", i, &r[i], a, b + d, d);
            ein__op_str(o, "F", i, "(idx((%lld*i%d+(%lld))%%%lld) / %lld)", (long long)a, i,
                        (long long)b, (long long)d, (long long)d);
        } else {
            if (round == EIN__TO_CEIL) b += d - 1;
            if (round == EIN__ROUND_DOWN || round == EIN__ROUND_UP) {
                b = 2 * b + d - (round == EIN__ROUND_DOWN);
                a *= 2;
                d *= 2;
            }
            clamp |= ein__resample_bind(o, "L", i, &r[i], a, b, d);
            r[i].d = 1;
        }
    }
    if (mode == EIN__LINEAR && axes > 3)
        return ein__op_refuse(o, "mode", "mode=linear over %d axes is not supported", axes);
    ein__buf t = {0};
    ein__put(&t, "y[{i#,}] = ");
    ein__resize_linear(&t, r, x->rank, 0, 0);
    ein__op_put(o, t.s, clamp ? "x 0" : NULL);
    ein__buf_free(&t);
    return ein__op_result(o, 0, &y);
}
