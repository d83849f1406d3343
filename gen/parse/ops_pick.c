// Operators that compare and choose, change the type, or read at positions that a tensor holds.

// Comparisons and logic: the body is 1 or 0.
static bool ein__op_truth(ein__op *o) {
    if (!ein__op_elementwise(o)) return false;
    o->dtype[0] = EIN__BOOL;
    return true;
}

// Integers are cut off towards zero; a bool is whether it is not 0.
static bool ein__op_cast(ein__op *o) {
    // ORDER of words in the table
    static const ein__dtype types[] = {EIN__F32, EIN__F16, EIN__BF16, EIN__I8,
                                       EIN__U8,  EIN__I32, EIN__I64,  EIN__BOOL};
    ein__dtype from = ein__op_type(o);
    int to;
    if (!ein__op_given(o, "to")) return ein__op_fail(o, NULL, "attribute 'to' is missing");
    if (!ein__op_word(o, "to", &to)) return false;
    bool real = from <= EIN__BF16, whole = types[to] > EIN__BF16 && types[to] != EIN__BOOL;
    const char *body = real && whole ? "select(x < 0, ceil(x), floor(x))" : "x";
    if (types[to] == EIN__BOOL) body = "select(x != 0, 1, 0)";
    if (!ein__op_map(o, body, ein__op_in(o, 0))) return false;
    o->dtype[0] = types[to];
    return true;
}

// The elements along `axis` at the positions that `indices` hold, in whose place a position outside
// the axis gives 0. ONNX counts negative ones from the end: an import writes known ones as they
// are meant.
static bool ein__op_gather(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0), *at = ein__op_in(o, 1);
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis))
        return false;
    ein__shape y = {.rank = x->rank - 1 + at->rank};
    if (y.rank > EIN__MAX_RANK)
        return ein__op_limit(o, NULL, "the result would have rank %d", y.rank);
    for (int i = 0; i < y.rank; i++) {
        int from = i < axis + at->rank ? i : i - at->rank + 1;
        bool index = i >= axis && i < axis + at->rank;
        y.d[i] = index ? at->d[i - axis] : x->d[from];
        if (index) ein__op_str(o, "I", i - axis, "i%d", i);
        else ein__op_str(o, "X", from, "i%d", i);
    }
    ein__op_each_axis(o, &y);
    // The position is written when its subscripts are: {I#,} does not nest in {X#,}.
    ein__buf t = {0};
    ein__put(&t, "y[{i#,}] = x[");
    for (int i = 0; i < x->rank; i++) ein__putf(&t, i == axis ? "@indices[{I#,}]," : "X%d,", i);
    ein__put(&t, "]");
    ein__op_put(o, t.s, NULL);
    ein__buf_free(&t);
    return ein__op_result(o, 0, &y);
}

// As Gather, with a position of its own for every element of the result.
static bool ein__op_gather_elements(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0), *y = ein__op_in(o, 1);
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_rank(o, 1, x->rank, x->rank) ||
        !ein__op_axis(o, "axis", x->rank, &axis))
        return false;
    ein__buf t = {0};
    ein__put(&t, "y[{i#,}] = x[");
    for (int i = 0; i < x->rank; i++) {
        if (i != axis && y->d[i] > x->d[i]) {
            ein__buf_free(&t);
            return ein__op_fail(o, NULL, "indices %s reach beyond x %s in axis %d",
                                ein__op_shape_text(o, y), ein__op_shape_text(o, x), i);
        }
        ein__putf(&t, i == axis ? "@indices[{i#,}]," : "i%d,", i);
    }
    ein__put(&t, "]");
    ein__op_each_axis(o, y);
    ein__op_put(o, t.s, NULL);
    ein__buf_free(&t);
    return ein__op_result(o, 0, y);
}

// The part of the last two axes on and above (or below) the k-th diagonal; 0 elsewhere.
static bool ein__op_trilu(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t k;
    bool upper;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) ||
        !ein__op_int(o, "k", -EIN__OP_LIMIT, EIN__OP_LIMIT, &k) ||
        !ein__op_flag(o, "upper", &upper))
        return false;
    ein__op_each_axis(o, x);
    ein__op_num(o, "K", -1, k);
    ein__op_str(o, "M", -1, "i%d", x->rank - 2);
    ein__op_str(o, "N", -1, "i%d", x->rank - 1);
    ein__op_put(o, upper ? "y[{i#,}] = x[{i#,}] * [N-M >= K]" : "y[{i#,}] = x[{i#,}] * [N-M <= K]",
                NULL);
    return ein__op_result(o, 0, x);
}

// Sums of the elements up to each one along `axis`, or from it on.
static bool ein__op_cum_sum(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis = 0;
    bool exclusive, reverse;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__op_flag(o, "exclusive", &exclusive) || !ein__op_flag(o, "reverse", &reverse))
        return false;
    ein__op_each_axis(o, x);
    ein__op_over(o, "r", -1, x->d[axis]);
    for (int i = 0; i < x->rank; i++) ein__op_str(o, "X", i, i == axis ? "r" : "i%d", i);
    ein__op_str(o, "A", -1, "i%d", axis);
    const char *compare = exclusive ? reverse ? ">" : "<" : reverse ? ">=" : "<=";
    ein__op_put(o, ein__namef(o->ctx, "y[{i#,}] = sum(r) x[{X#,}] * [r %s A]", compare), NULL);
    return ein__op_result(o, 0, x);
}

static bool ein__op_tile(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int64_t times[EIN__MAX_RANK], size;
    int n;
    if (!ein__op_ints(o, "repeats", -1, EIN__MAX_RANK, 1, EIN__OP_LIMIT, times, &n)) return false;
    if (n != x->rank)
        return ein__op_fail(o, "repeats", "repeats has %d values, expected %d", n, x->rank);
    ein__shape y = *x;
    for (int i = 0; i < x->rank; i++) {
        y.d[i] = ein__mul_overflows(x->d[i], times[i], &size) ? EIN__OP_LIMIT + 1 : size;
        ein__op_str(o, "X", i, times[i] > 1 ? "i%d%%%lld" : "i%d", i, (long long)x->d[i]);
    }
    if (!ein__op_result(o, 0, &y)) return false;
    ein__op_each_axis(o, &y);
    ein__op_put(o, "y[{i#,}] = x[{X#,}]", NULL);
    return true;
}
