// Element-wise operators, products, normalizations and reductions.

// Writes y[i0,..] = expr, where operands stand for their elements at i0 .. (stretched) and
// attributes for their values.
static bool ein__op_map(ein__op *o, const char *expr, const ein__shape *y) {
    ein__op_each_axis(o, y);
    ein__buf b = {0};
    ein__put(&b, "y[{i#,}] = ");
    while (o->text && *expr) {
        size_t n = ein__op_word_length(expr);
        const char *word = ein__name_n(o->ctx, expr, n);
        int k = 0;
        while (n && k < o->node->nin && strcmp(word, ein__op_in_name(o, k))) k++;
        if (!n) {
            ein__put_n(&b, expr++, 1);
            continue;
        }
        double v;
        if (k < o->node->nin) {
            const ein__shape *x = ein__op_in(o, k);
            ein__put(&b, word);
            ein__put(&b, "[");
            for (int i = 0; i < x->rank; i++) {
                int at = i + y->rank - x->rank;
                ein__putf(&b, x->d[i] == y->d[at] ? "%si%d" : "%s0", i ? "," : "", at);
            }
            ein__put(&b, "]");
        } else if (*ein__op_default(o, word) && ein__op_finite(o, word, &v)) {
            ein__put_f64(&b, v);
        } else {
            ein__put(&b, word);
        }
        expr += n;
    }
    if (o->text) ein__op_put(o, b.s, NULL);
    ein__buf_free(&b);
    return ein__op_result(o, 0, y);
}

// Operators whose row is their expression; numeric attributes are checked here.
static bool ein__op_elementwise(ein__op *o) {
    ein__shape y = *ein__op_in(o, 0);
    double v;
    const char *s = o->row->attr, *token;
    size_t n;
    while (ein__op_token(&s, &token, &n))
        if (!ein__op_finite(o, ein__name_n(o->ctx, token, strcspn(token, "= ")), &v)) return false;
    for (int i = 1; i < o->node->nin; i++)
        if (!ein__op_broadcast(o, &y, ein__op_in(o, i), &y)) return false;
    return ein__op_map(o, o->row->body, &y);
}

// Max and Min: body is the name of the function, applied from the right; Sum: its operator.
static bool ein__op_nary(ein__op *o) {
    ein__shape y = *ein__op_in(o, 0);
    bool infix = strlen(o->row->body) == 1;
    for (int i = 1; i < o->node->nin; i++)
        if (!ein__op_broadcast(o, &y, ein__op_in(o, i), &y)) return false;
    ein__buf b = {0};
    for (int i = 0; i + 1 < o->node->nin; i++)
        if (infix) ein__putf(&b, "x%d %s ", i, o->row->body);
        else ein__putf(&b, "%s(x%d, ", o->row->body, i);
    ein__putf(&b, "x%d", o->node->nin - 1);
    for (int i = 0; i + 1 < o->node->nin; i++) ein__put(&b, infix ? "" : ")");
    bool ok = ein__op_map(o, b.s, &y);
    ein__buf_free(&b);
    return ok;
}

// Integers' quotients are rounded to zero.
static bool ein__op_div(ein__op *o) {
    ein__shape y;
    bool real = ein__op_type(o) <= EIN__BF16;
    return ein__op_broadcast(o, ein__op_in(o, 0), ein__op_in(o, 1), &y) &&
           ein__op_map(o, real ? o->row->body : "quot(a, b)", &y);
}

// What is left has the sign of the divisor or, with fmod, of the dividend.
static bool ein__op_mod(ein__op *o) {
    ein__shape y;
    bool fmod;
    if (!ein__op_flag(o, "fmod", &fmod) ||
        !ein__op_broadcast(o, ein__op_in(o, 0), ein__op_in(o, 1), &y))
        return false;
    if (!fmod && ein__op_type(o) <= EIN__BF16) return ein__op_fail(o, NULL, "floats need fmod=1");
    return ein__op_map(o,
                       fmod ? "rem(a, b)"
                            : "rem(a, b) + select(b < 0, select(rem(a, b) > 0, b, 0),"
                              " select(rem(a, b) < 0, b, 0))",
                       &y);
}

static bool ein__op_prelu(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    return ein__op_stretches(o, 1, x) && ein__op_map(o, o->row->body, x);
}

static bool ein__op_gelu(ein__op *o) {
    static const char *const body[] = {
        "0.5 * x * (1 + erf(0.7071067811865476 * x))",
        "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"};
    int which;
    return ein__op_word(o, "approximate", &which) && ein__op_map(o, body[which], ein__op_in(o, 0));
}

// The upper bound wins where the bounds cross.
static bool ein__op_clip(ein__op *o) {
    double lo, hi;
    if (!ein__op_number(o, "min", &lo) || !ein__op_number(o, "max", &hi)) return false;
    bool below = ein__op_given(o, "min") && (float)lo > (float)-EIN__F32_MAX,
         above = ein__op_given(o, "max") && (float)hi < (float)EIN__F32_MAX;
    if ((below && !ein__op_finite(o, "min", &lo)) || (above && !ein__op_finite(o, "max", &hi)))
        return false;
    ein__buf b = {0};
    ein__put(&b, above ? "min(" : "");
    ein__put(&b, below ? "max(x, " : "x");
    if (below) ein__put_f64(&b, lo);
    if (below) ein__put(&b, ")");
    if (above) ein__put(&b, ", ");
    if (above) ein__put_f64(&b, hi);
    if (above) ein__put(&b, ")");
    bool ok = ein__op_map(o, b.s, ein__op_in(o, 0));
    ein__buf_free(&b);
    return ok;
}

// numpy's rules: matrices in the last two axes, the others broadcast, a vector is a row of the left
// or a column of the right operand and its axis does not appear in the result.
static bool ein__op_matmul(ein__op *o) {
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_rank(o, 1, 1, EIN__MAX_RANK))
        return false;
    const ein__shape *a = ein__op_in(o, 0), *b = ein__op_in(o, 1);
    ein__shape ba = *a, bb = *b, y;
    ba.rank = a->rank > 2 ? a->rank - 2 : 0;
    bb.rank = b->rank > 2 ? b->rank - 2 : 0;
    int64_t k = a->d[a->rank - 1];
    if (k != b->d[b->rank > 1 ? b->rank - 2 : 0])
        return ein__op_fail(o, NULL, "inner sizes of %s and %s differ", ein__op_shape_text(o, a),
                            ein__op_shape_text(o, b));
    if (!ein__op_broadcast(o, &ba, &bb, &y)) return false;
    ein__op_each_axis(o, &y);
    ein__op_stretch(o, "A", &ba, &y);
    ein__op_stretch(o, "B", &bb, &y);
    if (a->rank > 1) {
        y.d[y.rank++] = a->d[a->rank - 2];
        ein__op_each(o, "m", -1, a->d[a->rank - 2]);
        ein__op_str(o, "M", 0, "m");
    }
    if (b->rank > 1) {
        y.d[y.rank++] = b->d[b->rank - 1];
        ein__op_each(o, "n", -1, b->d[b->rank - 1]);
        ein__op_str(o, "N", 0, "n");
    }
    ein__op_over(o, "k", -1, k);
    ein__op_put(o, "y[{i#,}{M#,}{N#,}] = sum(k) a[{A#,}{M#,}k] * b[{B#,}k,{N#,}]", NULL);
    return ein__op_result(o, 0, &y);
}

static bool ein__op_gemm(ein__op *o) {
    double alpha, beta;
    bool ta, tb;
    if (!ein__op_rank(o, 0, 2, 2) || !ein__op_rank(o, 1, 2, 2) ||
        !ein__op_finite(o, "alpha", &alpha) || !ein__op_finite(o, "beta", &beta) ||
        !ein__op_flag(o, "transA", &ta) || !ein__op_flag(o, "transB", &tb))
        return false;
    const ein__shape *a = ein__op_in(o, 0), *b = ein__op_in(o, 1), *c = ein__op_in(o, 2);
    ein__shape y = {.rank = 2, .d = {a->d[ta], b->d[!tb]}};
    if (a->d[!ta] != b->d[tb])
        return ein__op_fail(o, NULL, "inner sizes of %s and %s differ (transA=%d, transB=%d)",
                            ein__op_shape_text(o, a), ein__op_shape_text(o, b), ta, tb);
    if (!ein__op_stretches(o, 2, &y)) return false;
    ein__op_each_axis(o, &y);
    ein__op_over(o, "k", -1, a->d[!ta]);
    ein__op_str(o, "A", -1, ta ? "k,i0" : "i0,k");
    ein__op_str(o, "B", -1, tb ? "i1,k" : "k,i1");
    ein__op_stretch(o, "C", c, &y);
    ein__op_real(o, "ALPHA", alpha);
    ein__op_real(o, "BETA", beta);
    const char *product =
        alpha == 1 ? "y[{i#,}] = sum(k) a[A] * b[B]" : "y[{i#,}] = ALPHA * sum(k) a[A] * b[B]";
    const char *sum = !c || beta == 0 ? "" : beta == 1 ? " + c[{C#,}]" : " + BETA * c[{C#,}]";
    ein__op_put(o, ein__namef(o->ctx, "%s%s", product, sum), NULL);
    return ein__op_result(o, 0, &y);
}

// Reads the subscripts of an Einsum's operands, in letters with `,` between them, and `->`: *s is
// then at those of the result, and size has every letter's.
static bool ein__einsum_sizes(ein__op *o, const char **s, int64_t size[26]) {
    for (int k = 0; k < o->node->nin; k++, ++*s) {
        const ein__shape *x = ein__op_in(o, k);
        bool last = k + 1 == o->node->nin;
        int at = 0;
        for (; **s && !strchr(",-", **s); ++*s) {
            if (**s == ' ') continue;
            if (**s < 'a' || **s > 'z')
                return ein__op_refuse(o, "equation", "'%c' is not supported, only a to z are", **s);
            if (at == x->rank) break;
            int64_t *n = &size[**s - 'a'];
            if (*n && *n != x->d[at])
                return ein__op_fail(o, "equation", "'%c' has the sizes %lld and %lld", **s,
                                    (long long)*n, (long long)x->d[at]);
            *n = x->d[at++];
        }
        if (at != x->rank || **s != (last ? '-' : ',') || (last && *++*s != '>'))
            return ein__op_fail(o, "equation",
                                "the subscripts of x%d are not those of %s with `%s` "
                                "behind them",
                                k, ein__op_shape_text(o, x), last ? "->" : ",");
    }
    return true;
}

// Products of elements, summed over every letter that the result has not.
static bool ein__op_einsum(ein__op *o) {
    const ein__attr *a = ein__op_attr(o, "equation");
    int64_t size[26] = {0};
    int place[26], summed = 0;
    if (a->value->kind != EIN__A_STR)
        return ein__op_fail(o, "equation", "equation must be a text such as \"ij,jk->ik\"");
    const char *s = a->value->name, *out = s;
    ein__shape y = {.rank = 0};
    if (!ein__einsum_sizes(o, &out, size)) return false;
    for (int i = 0; i < 26; i++) place[i] = -1;
    for (; *out; out++) {
        int letter = *out - 'a';
        if (*out == ' ') continue;
        if (letter < 0 || letter > 25 || !size[letter] || place[letter] >= 0 ||
            y.rank == EIN__MAX_RANK)
            return ein__op_fail(o, "equation",
                                "the result's '%c' is not one letter of the operands", *out);
        place[letter] = y.rank;
        ein__op_each(o, "i", y.rank, size[letter]);
        y.d[y.rank++] = size[letter];
    }
    for (int i = 0; i < 26; i++) summed += size[i] && place[i] < 0;
    if (summed + y.rank > EIN__MAX_ITERS || summed > 9)
        return ein__op_limit(o, "equation", "more letters than an expression may have indices");
    for (int i = 0, r = 0; i < 26; i++) {
        if (!size[i] || place[i] >= 0) continue;
        ein__op_over(o, "r", r, size[i]);
        place[i] = -2 - r++;
    }
    ein__buf t = {0};
    ein__put(&t, summed ? "y[{i#,}] = sum({r#,})" : "y[{i#,}] =");
    for (int k = 0; k < o->node->nin; k++) {
        ein__putf(&t, k ? " * x%d[" : " x%d[", k);
        for (; *s && !strchr(",-", *s); s++) {
            int at = *s == ' ' ? 0 : place[*s - 'a'];
            if (*s != ' ') ein__putf(&t, at < 0 ? "r%d," : "i%d,", at < 0 ? -2 - at : at);
        }
        s++;
        ein__put(&t, "]");
    }
    ein__op_put(o, t.s, NULL);
    ein__buf_free(&t);
    return ein__op_result(o, 0, &y);
}

// ------------------------------------------------------------------------------- normalizations

// With scale and shift per channel as values of their own, which a load-time pass computes.
static bool ein__op_batch_normalization(ein__op *o) {
    double epsilon;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) || !ein__op_finite(o, "epsilon", &epsilon))
        return false;
    const ein__shape *x = ein__op_in(o, 0);
    for (int k = 1; k < 5; k++)
        if (!ein__op_vector(o, k, x->d[1])) return false;
    ein__op_each_axis(o, x);
    ein__op_real(o, "EPS", epsilon);
    ein__op_put(o, "s[i1] = scale[i1] * rsqrt(var[i1] + EPS)", NULL);
    ein__op_put(o, "t[i1] = b[i1] - mean[i1] * s[i1]", NULL);
    ein__op_put(o, "y[{i#,}] = x[{i#,}] * s[i1] + t[i1]", NULL);
    return ein__op_result(o, 0, x);
}

// Mean and variance over the axes from `axis` on.
static bool ein__op_layer_normalization(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis = 0;
    double epsilon;
    int64_t count = 1;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__op_finite(o, "epsilon", &epsilon) || !ein__op_stretches(o, 1, x) ||
        !ein__op_stretches(o, 2, x))
        return false;
    ein__op_each_axis(o, x);
    for (int i = 0; i < x->rank; i++) {
        if (i < axis) ein__op_str(o, "K", i, "i%d", i);
        if (i < axis) ein__op_str(o, "R", i, "i%d", i);
        if (i < axis) continue;
        ein__op_over(o, "r", i - axis, x->d[i]);
        ein__op_str(o, "R", i, "r%d", i - axis);
        count *= x->d[i];
    }
    ein__op_num(o, "COUNT", -1, count);
    ein__op_real(o, "EPS", epsilon);
    ein__op_stretch(o, "S", ein__op_in(o, 1), x);
    ein__op_stretch(o, "B", ein__op_in(o, 2), x);
    ein__op_put(o, "m[{K#,}] = (sum({r#,}) x[{R#,}]) / COUNT", NULL);
    ein__op_put(o, "v[{K#,}] = (sum({r#,}) square(x[{R#,}] - m[{K#,}])) / COUNT", NULL);
    const char *y = "y[{i#,}] = (x[{i#,}] - m[{K#,}]) * rsqrt(v[{K#,}] + EPS) * scale[{S#,}]";
    ein__op_put(o, ein__op_in(o, 2) ? ein__namef(o->ctx, "%s + b[{B#,}]", y) : y, NULL);
    return ein__op_result(o, 0, x);
}

// Mean and variance of every `group` channels of x[n, c, ..] by themselves; scale and b are per
// channel.
static bool ein__grouped_normalization(ein__op *o, int64_t group) {
    const ein__shape *x = ein__op_in(o, 0);
    double epsilon;
    if (!ein__op_finite(o, "epsilon", &epsilon) || !ein__op_vector(o, 1, x->d[1]) ||
        !ein__op_vector(o, 2, x->d[1]))
        return false;
    int64_t count = group;
    ein__op_each_axis(o, x);
    ein__op_each(o, "g", -1, x->d[1] / group);
    ein__op_over(o, "r", 0, group);
    for (int i = 2; i < x->rank; i++) {
        ein__op_over(o, "r", i - 1, x->d[i]);
        ein__op_str(o, "R", i - 2, "r%d", i - 1);
        count *= x->d[i];
    }
    ein__op_num(o, "G", -1, group);
    ein__op_num(o, "COUNT", -1, count);
    ein__op_real(o, "EPS", epsilon);
    ein__op_put(o, "m[i0,g] = (sum({r#,}) x[i0,g*G+r0,{R#,}]) / COUNT", NULL);
    ein__op_put(o, "v[i0,g] = (sum({r#,}) square(x[i0,g*G+r0,{R#,}] - m[i0,g])) / COUNT", NULL);
    ein__op_put(o,
                "y[{i#,}] = (x[{i#,}] - m[i0,i1/G]) * rsqrt(v[i0,i1/G] + EPS) * scale[i1] + b[i1]",
                NULL);
    return ein__op_result(o, 0, x);
}

static bool ein__op_instance_normalization(ein__op *o) {
    return ein__op_rank(o, 0, 3, EIN__MAX_RANK) && ein__grouped_normalization(o, 1);
}

static bool ein__op_group_normalization(ein__op *o) {
    int64_t groups;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) ||
        !ein__op_int(o, "num_groups", 1, EIN__OP_LIMIT, &groups))
        return false;
    int64_t channels = ein__op_in(o, 0)->d[1];
    if (channels % groups)
        return ein__op_fail(o, "num_groups", "%lld groups do not divide %lld channels",
                            (long long)groups, (long long)channels);
    return ein__grouped_normalization(o, channels / groups);
}

// Vectors along `axis` over their norm p, 1 or 2; of zeros they stay zeros.
static bool ein__op_lp_normalization(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis = 0;
    int64_t p;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__op_int(o, "p", 1, 2, &p))
        return false;
    ein__op_each_axis(o, x);
    ein__op_over(o, "r", -1, x->d[axis]);
    for (int i = 0; i < x->rank; i++) {
        ein__op_str(o, "R", i, i == axis ? "r" : "i%d", i);
        if (i != axis) ein__op_str(o, "K", i - (i > axis), "i%d", i);
    }
    ein__op_put(
        o, p == 1 ? "s[{K#,}] = sum(r) abs(x[{R#,}])" : "s[{K#,}] = sum(r) square(x[{R#,}])", NULL);
    const char *norm = p == 1 ? "s[{K#,}]" : "sqrt(s[{K#,}])";
    ein__op_put(o, ein__namef(o->ctx, "y[{i#,}] = select(s[{K#,}] == 0, 0, x[{i#,}] / %s)", norm),
                NULL);
    return ein__op_result(o, 0, x);
}

// Softmax and LogSoftmax: body is the last equation.
static bool ein__op_softmax(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    int axis = 0;
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis))
        return false;
    ein__op_each_axis(o, x);
    ein__op_over(o, "r", -1, x->d[axis]);
    for (int i = 0; i < x->rank; i++) {
        if (i == axis) ein__op_str(o, "R", i, "r");
        else ein__op_str(o, "R", i, "i%d", i);
        if (i != axis) ein__op_str(o, "K", i - (i > axis), "i%d", i);
    }
    ein__op_put(o, "m[{K#,}] = max(r) x[{R#,}]", NULL);
    ein__op_put(o, "s[{K#,}] = sum(r) exp(x[{R#,}] - m[{K#,}])", NULL);
    ein__op_put(o, o->row->body, NULL);
    return ein__op_result(o, 0, x);
}

// ----------------------------------------------------------------------------------- reductions

// y[Y] = body, where x[{X#,}] with r# inside are the elements reduced, N is their number and m the
// largest of them.
static bool ein__reduce_write(ein__op *o, const bool *reduced, bool keep) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    int64_t count = 1;
    int nr = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!reduced[i] || keep) {
            ein__op_each(o, "i", y.rank, reduced[i] ? 1 : x->d[i]);
            y.d[y.rank++] = reduced[i] ? 1 : x->d[i];
        }
        if (reduced[i]) ein__op_str(o, "X", i, "r%d", nr);
        else ein__op_str(o, "X", i, "i%d", y.rank - 1);
        if (reduced[i]) ein__op_over(o, "r", nr++, x->d[i]);
        if (reduced[i]) count *= x->d[i];
    }
    ein__op_num(o, "N", -1, count);
    if (strstr(o->row->body, "m[")) ein__op_put(o, "m[{i#,}] = max({r#,}) x[{X#,}]", NULL);
    ein__op_put(o, ein__namef(o->ctx, "y[{i#,}] = %s", o->row->body), NULL);
    return ein__op_result(o, 0, &y);
}

// Integers of 32 and 64 bits stay what they are; smaller ones would not hold a sum.
static bool ein__op_reduce(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__dtype type = ein__op_tensor(o, 0)->dtype;
    if (type == EIN__I8 || type == EIN__U8 || type == EIN__BOOL)
        return ein__op_fail(o, NULL, "x has type %s, expected f32, f16, bf16, i32 or i64",
                            ein__dtype_name(type));
    int at[EIN__MAX_RANK], n;
    bool keep, noop, reduced[EIN__MAX_RANK] = {0};
    if (!ein__op_axes(o, "axes", x->rank, at, &n) || !ein__op_flag(o, "keepdims", &keep) ||
        !ein__op_flag(o, "noop_with_empty_axes", &noop))
        return false;
    for (int i = 0; i < n; i++) reduced[at[i]] = true;
    for (int i = 0; i < x->rank; i++) reduced[i] = reduced[i] || (!n && !noop);
    return ein__reduce_write(o, reduced, keep);
}

static bool ein__op_global_pool(ein__op *o) {
    bool reduced[EIN__MAX_RANK];
    for (int i = 0; i < EIN__MAX_RANK; i++) reduced[i] = i >= 2;
    return ein__op_rank(o, 0, 3, EIN__MAX_RANK) && ein__reduce_write(o, reduced, true);
}

// ArgMax and ArgMin: the rows' extrema, whose reduction is the body, then the first or the last
// place that has it. NaN is no extremum, as in the other reductions; a row of nothing else gives
// the place that loses against all others, so that every result is a place.
static bool ein__op_place(ein__op *o) {
    const ein__shape *x = ein__op_in(o, 0);
    ein__shape y = {.rank = 0};
    int axis = 0;
    bool keep, last;
    if (ein__op_tensor(o, 0)->dtype == EIN__BOOL)
        return ein__op_fail(o, NULL, "x has type bool, expected numbers");
    if (!ein__op_rank(o, 0, 1, EIN__MAX_RANK) || !ein__op_axis(o, "axis", x->rank, &axis) ||
        !ein__op_flag(o, "keepdims", &keep) || !ein__op_flag(o, "select_last_index", &last))
        return false;
    for (int i = 0, rows = 0; i < x->rank; i++) {
        ein__op_str(o, "X", i, i == axis ? "r" : "i%d", y.rank);
        if (i != axis) ein__op_str(o, "K", rows++, "i%d", y.rank);
        if (i == axis && !keep) continue;
        ein__op_each(o, "i", y.rank, i == axis ? 1 : x->d[i]);
        y.d[y.rank++] = i == axis ? 1 : x->d[i];
    }
    ein__op_over(o, "r", -1, x->d[axis]);
    ein__op_num(o, "NONE", -1, last ? 0 : x->d[axis] - 1);
    ein__op_put(o, ein__namef(o->ctx, "m[{K#,}] = %s(r) x[{X#,}]", o->row->body), NULL);
    ein__op_put(o,
                ein__namef(o->ctx, "y[{i#,}] = %s(r) select(x[{X#,}] == m[{K#,}], idx(r), NONE)",
                           last ? "max" : "min"),
                NULL);
    if (!ein__op_result(o, 0, &y)) return false;
    o->dtype[0] = EIN__I64;
    return true;
}

// ------------------------------------------------------------------------------- banded products

// q, k [.., M, P] -> y[.., m, j]: row m of q times row m + d*(j-w) of k, for j in 0:2w+1.
static bool ein__op_g2bmm(ein__op *o) {
    const ein__shape *q = ein__op_in(o, 0), *k = ein__op_in(o, 1);
    int64_t w, d;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) || !ein__op_int(o, "w", 0, (int64_t)1 << 30, &w) ||
        !ein__op_int(o, "dilation", 1, (int64_t)1 << 30, &d))
        return false;
    if (q->rank != k->rank || memcmp(q->d, k->d, (size_t)q->rank * sizeof q->d[0]))
        return ein__op_fail(o, NULL, "q %s and k %s differ", ein__op_shape_text(o, q),
                            ein__op_shape_text(o, k));
    ein__shape y = *q, batch = *q;
    y.d[y.rank - 1] = 2 * w + 1;
    batch.rank -= 2;
    ein__op_each_axis(o, &batch);
    ein__op_each(o, "m", -1, q->d[q->rank - 2]);
    ein__op_each(o, "j", -1, 2 * w + 1);
    ein__op_over(o, "p", -1, q->d[q->rank - 1]);
    ein__op_num(o, "D", -1, d);
    ein__op_num(o, "W", -1, w);
    ein__op_put(o, "y[{i#,}m,j] = sum(p) q[{i#,}m,p] * k[{i#,}m+D*(j-W),p]", w ? "k 0" : NULL);
    return ein__op_result(o, 0, &y);
}

// a [.., M, 2w+1], v [.., M, P] -> y[.., m, p]: the sum over j of a[.., m, j] times row m + d*(j-w)
// of v.
static bool ein__op_gbmm(ein__op *o) {
    const ein__shape *a = ein__op_in(o, 0), *v = ein__op_in(o, 1);
    int64_t d;
    if (!ein__op_rank(o, 0, 2, EIN__MAX_RANK) ||
        !ein__op_int(o, "dilation", 1, (int64_t)1 << 20, &d))
        return false;
    int64_t band = a->d[a->rank - 1];
    if (a->rank != v->rank || memcmp(a->d, v->d, (size_t)(a->rank - 1) * sizeof a->d[0]))
        return ein__op_fail(o, NULL, "a %s and v %s differ before their last axis",
                            ein__op_shape_text(o, a), ein__op_shape_text(o, v));
    if (band % 2 == 0)
        return ein__op_fail(o, NULL, "the last axis of a has size %lld, expected an odd one",
                            (long long)band);
    ein__shape batch = *v;
    batch.rank -= 2;
    ein__op_each_axis(o, &batch);
    ein__op_each(o, "m", -1, v->d[v->rank - 2]);
    ein__op_each(o, "p", -1, v->d[v->rank - 1]);
    ein__op_over(o, "j", -1, band);
    ein__op_num(o, "D", -1, d);
    ein__op_num(o, "W", -1, band / 2);
    ein__op_put(o, "y[{i#,}m,p] = sum(j) a[{i#,}m,j] * v[{i#,}m+D*(j-W),p]",
                band > 1 ? "v 0" : NULL);
    return ein__op_result(o, 0, v);
}
