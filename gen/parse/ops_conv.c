// Operators that slide a window: convolutions and poolings. x is [n, c, i0, i1, ..].

// Window over up to three spatial axes: out position i reads s*i + d*r - lo for r in 0:k.
typedef struct ein__window {
    int n;
    int64_t in[3], k[3], s[3], d[3], lo[3], hi[3], out[3];
    bool outside;  // some read is outside the input
} ein__window;

// ORDER of the words of auto_pad in the table
enum { EIN__PAD_NOTSET, EIN__PAD_SAME_UPPER, EIN__PAD_SAME_LOWER, EIN__PAD_VALID };

static bool ein__window_attrs(ein__op *o, const ein__shape *x, const int64_t *k, ein__window *g,
                              int *auto_pad) {
    int got;
    int64_t pads[6] = {0};
    *g = (ein__window){.n = x->rank - 2};
    for (int i = 0; i < g->n; i++) {
        g->in[i] = x->d[i + 2];
        g->k[i] = k[i];
    }
    if (!ein__op_word(o, "auto_pad", auto_pad) ||
        !ein__op_ints(o, "strides", g->n, 3, 1, EIN__OP_LIMIT, g->s, &got) ||
        !ein__op_ints(o, "dilations", g->n, 3, 1, EIN__OP_LIMIT, g->d, &got) ||
        !ein__op_ints(o, "pads", 2 * g->n, 6, 0, EIN__OP_LIMIT, pads, &got))
        return false;
    for (int i = 0; i < g->n; i++) {
        g->lo[i] = pads[i];
        g->hi[i] = pads[i + g->n];
        if (*auto_pad != EIN__PAD_NOTSET && (pads[i] || pads[i + g->n]))
            return ein__op_fail(o, "pads", "pads and auto_pad exclude each other");
    }
    return true;
}

// Extent of a dilated kernel; false when it is absurd.
static bool ein__window_extent(ein__op *o, const ein__window *g, int i, int64_t *extent) {
    if (!ein__mul_overflows(g->k[i] - 1, g->d[i], extent) && ++*extent <= EIN__OP_LIMIT)
        return true;
    return ein__op_limit(o, "dilations", "dilation %lld is too large", (long long)g->d[i]);
}

static void ein__window_split(ein__window *g, int i, int64_t total, bool upper) {
    g->lo[i] = upper ? total / 2 : total - total / 2;
    g->hi[i] = total - g->lo[i];
}

// Reads strides, dilations, pads and auto_pad; `ceil` rounds the number of positions up, but no
// window starts beyond the input and its left padding.
static bool ein__window_read(ein__op *o, const ein__shape *x, const int64_t *k, bool ceil,
                             ein__window *g) {
    int auto_pad;
    if (!ein__window_attrs(o, x, k, g, &auto_pad)) return false;
    for (int i = 0; i < g->n; i++) {
        int64_t extent, in = g->in[i], s = g->s[i];
        if (!ein__window_extent(o, g, i, &extent)) return false;
        if (auto_pad == EIN__PAD_SAME_UPPER || auto_pad == EIN__PAD_SAME_LOWER) {
            int64_t total = (in - 1) / s * s + extent - in;
            ein__window_split(g, i, total > 0 ? total : 0, auto_pad == EIN__PAD_SAME_UPPER);
        }
        int64_t room = in + g->lo[i] + g->hi[i] - extent;
        if (room < 0)
            return ein__op_fail(o, NULL,
                                "a window of %lld does not fit into axis %d of x: %lld with pads",
                                (long long)extent, i + 2, (long long)(room + extent));
        g->out[i] = room / s + 1;
        if (ceil && room % s && g->out[i] * s < in + g->lo[i]) g->out[i]++;
        if (g->lo[i] || (g->out[i] - 1) * s + extent - 1 - g->lo[i] >= in) g->outside = true;
    }
    return true;
}

// Binds i# r# and S# D# P#, and the indices before them.
static void ein__window_bind(ein__op *o, const ein__window *g) {
    for (int i = 0; i < g->n; i++) ein__op_each(o, "i", i, g->out[i]);
    for (int i = 0; i < g->n; i++) {
        ein__op_over(o, "r", i, g->k[i]);
        ein__op_num(o, "S", i, g->s[i]);
        ein__op_num(o, "D", i, g->d[i]);
        ein__op_num(o, "P", i, g->lo[i]);
    }
}

// x and w of a convolution agree in rank, and kernel_shape, where given, with w.
static bool ein__conv_operands(ein__op *o, int64_t *group) {
    if (!ein__op_rank(o, 0, 3, 5)) return false;
    const ein__shape *x = ein__op_in(o, 0), *w = ein__op_in(o, 1);
    int64_t k[3];
    int n;
    if (!ein__op_rank(o, 1, x->rank, x->rank) ||
        !ein__op_int(o, "group", 1, EIN__OP_LIMIT, group) ||
        !ein__op_ints(o, "kernel_shape", x->rank - 2, 3, 1, EIN__OP_LIMIT, k, &n))
        return false;
    for (int i = 0; i < n; i++)
        if (k[i] != w->d[i + 2])
            return ein__op_fail(o, "kernel_shape", "kernel_shape[%d] is %lld, but w has shape %s",
                                i, (long long)k[i], ein__op_shape_text(o, w));
    return true;
}

// Channel of the group of result channel f (fg a group) that has c as its number inside the group
// (cg).
static void ein__conv_bind_channel(ein__op *o, const char *name, int64_t group, int64_t fg,
                                   int64_t cg) {
    if (group == 1) ein__op_str(o, name, -1, "c");
    else ein__op_str(o, name, -1, "(f/%lld)*%lld+c", (long long)fg, (long long)cg);
}

static bool ein__op_conv(ein__op *o) {
    int64_t group;
    ein__window g;
    if (!ein__conv_operands(o, &group)) return false;
    const ein__shape *x = ein__op_in(o, 0), *w = ein__op_in(o, 1);
    int64_t f = w->d[0], c = w->d[1];
    if (x->d[1] % group || x->d[1] / group != c)
        return ein__op_fail(o, NULL, "x has %lld channels, w %s and group=%lld want %lld",
                            (long long)x->d[1], ein__op_shape_text(o, w), (long long)group,
                            (long long)(c <= EIN__OP_LIMIT / group ? c * group : -1));
    if (f % group)
        return ein__op_fail(o, "group",
                            "group %lld does not divide the %lld channels of the result",
                            (long long)group, (long long)f);
    if (!ein__op_vector(o, 2, f) || !ein__window_read(o, x, w->d + 2, false, &g)) return false;
    ein__shape y = {.rank = x->rank, .d = {x->d[0], f}};
    for (int i = 0; i < g.n; i++) y.d[i + 2] = g.out[i];
    ein__op_each(o, "n", -1, y.d[0]);
    ein__op_each(o, "f", -1, f);
    ein__op_over(o, "c", -1, c);
    ein__window_bind(o, &g);
    ein__conv_bind_channel(o, "C", group, f / group, c);
    ein__op_str(o, "BIAS", -1, "%s", ein__op_in(o, 2) ? " + b[f]" : "");
    ein__op_put(o, "y[n,f{,i#}] = sum(c{,r#}) x[n,C{,S#*i#+D#*r#-P#}] * w[f,c{,r#}]BIAS",
                g.outside ? "x 0" : NULL);
    return ein__op_result(o, 0, &y);
}

// Sizes of a transposed convolution: pads trim the full result, output_shape chooses the pads.
static bool ein__window_transposed(ein__op *o, const ein__shape *x, const int64_t *k,
                                   ein__window *g) {
    int auto_pad, n, given;
    int64_t more[3], want[3];
    if (!ein__window_attrs(o, x, k, g, &auto_pad) ||
        !ein__op_ints(o, "output_padding", g->n, 3, 0, EIN__OP_LIMIT, more, &n) ||
        !ein__op_ints(o, "output_shape", g->n, 3, 1, EIN__OP_LIMIT, want, &given))
        return false;
    bool same = auto_pad == EIN__PAD_SAME_UPPER || auto_pad == EIN__PAD_SAME_LOWER;
    for (int i = 0; i < g->n; i++) {
        int64_t extent, full;
        if (!ein__window_extent(o, g, i, &extent)) return false;
        if (ein__mul_overflows(g->s[i], g->in[i] - 1, &full) || full > EIN__OP_LIMIT)
            return ein__op_limit(o, "strides", "stride %lld is too large", (long long)g->s[i]);
        if (more[i] && more[i] >= g->s[i] && more[i] >= g->d[i])
            return ein__op_fail(o, "output_padding",
                                "output_padding[%d] is %lld: it must be less than the stride or "
                                "the dilation",
                                i, (long long)more[i]);
        full += extent + more[i];
        if (given || same) {
            int64_t total = full - (given ? want[i] : g->in[i] * g->s[i]);
            if (given && total < 0)
                return ein__op_fail(o, "output_shape", "output_shape[%d] is %lld, more than %lld",
                                    i, (long long)want[i], (long long)full);
            ein__window_split(g, i, total > 0 ? total : 0, auto_pad == EIN__PAD_SAME_UPPER);
        }
        g->out[i] = full - g->lo[i] - g->hi[i];
        // With a stride the subscript is a quotient, whose bounds need not be seen as exact.
        if (g->s[i] > 1 || g->lo[i] < extent - 1 || g->out[i] - 1 + g->lo[i] >= g->in[i])
            g->outside = true;
    }
    return true;
}

static bool ein__op_conv_transpose(ein__op *o) {
    int64_t group;
    ein__window g;
    if (!ein__conv_operands(o, &group)) return false;
    const ein__shape *x = ein__op_in(o, 0), *w = ein__op_in(o, 1);
    int64_t c = x->d[1], fg = w->d[1], f;
    if (w->d[0] != c)
        return ein__op_fail(o, NULL, "x has %lld channels, w %s wants %lld", (long long)c,
                            ein__op_shape_text(o, w), (long long)w->d[0]);
    if (c % group)
        return ein__op_fail(o, "group", "group %lld does not divide the %lld channels of x",
                            (long long)group, (long long)c);
    if (ein__mul_overflows(fg, group, &f)) f = 0;
    if (!ein__op_vector(o, 2, f) || !ein__window_transposed(o, x, w->d + 2, &g)) return false;
    ein__shape y = {.rank = x->rank, .d = {x->d[0], f}};
    for (int i = 0; i < g.n; i++) y.d[i + 2] = g.out[i];
    ein__op_each(o, "n", -1, y.d[0]);
    ein__op_each(o, "f", -1, f);
    ein__op_over(o, "c", -1, c / group);
    ein__window_bind(o, &g);
    ein__conv_bind_channel(o, "C", group, fg, c / group);
    ein__op_str(o, "F", -1, group == 1 ? "f" : "f%%%lld", (long long)fg);
    ein__op_str(o, "BIAS", -1, "%s", ein__op_in(o, 2) ? " + b[f]" : "");
    ein__op_put(o,
                "y[n,f{,i#}] = sum(c{,r#}) x[n,C{,(i#+P#-D#*r#)/S#}] * w[C,F{,r#}]"
                "{ * [(i#+P#-D#*r#)%S# == 0]}BIAS",
                g.outside ? "x 0" : NULL);
    return ein__op_result(o, 0, &y);
}

// Reads a pooling's window and binds everything that its equations use.
static bool ein__pool_read(ein__op *o, ein__window *g, ein__shape *y) {
    int64_t k[3];
    int n;
    bool ceil;
    if (!ein__op_rank(o, 0, 3, 5)) return false;
    const ein__shape *x = ein__op_in(o, 0);
    if (!ein__op_ints(o, "kernel_shape", x->rank - 2, 3, 1, EIN__OP_LIMIT, k, &n) ||
        !ein__op_flag(o, "ceil_mode", &ceil) || !ein__window_read(o, x, k, ceil, g))
        return false;
    *y = *x;
    ein__op_each(o, "n", -1, x->d[0]);
    ein__op_each(o, "c", -1, x->d[1]);
    for (int i = 0; i < g->n; i++) {
        if (g->lo[i] >= k[i] || g->hi[i] >= k[i])
            if (g->lo[i] || g->hi[i])
                return ein__op_fail(o, "pads", "pads of axis %d must be smaller than the window",
                                    i + 2);
        y->d[i + 2] = g->out[i];
    }
    ein__window_bind(o, g);
    return true;
}

static bool ein__op_max_pool(ein__op *o) {
    ein__window g;
    ein__shape y;
    if (!ein__pool_read(o, &g, &y)) return false;
    ein__op_put(o, "y[n,c{,i#}] = max({r#,}) x[n,c{,S#*i#+D#*r#-P#}]", g.outside ? "x -inf" : NULL);
    return ein__op_result(o, 0, &y);
}

// The divisor counts the window's cells in the input or, with count_include_pad, in the padded
// input. Only windows that reach beyond it need a count per position.
static bool ein__op_average_pool(ein__op *o) {
    ein__window g;
    ein__shape y;
    bool padded, uneven = false;
    int64_t cells = 1;
    if (!ein__pool_read(o, &g, &y) || !ein__op_flag(o, "count_include_pad", &padded)) return false;
    for (int i = 0; i < g.n; i++) {
        long long lo = padded ? -g.lo[i] : 0, hi = g.in[i] + (padded ? g.hi[i] : 0);
        long long first = -g.lo[i], s = g.s[i], d = g.d[i];
        bool before = first < lo, beyond = (g.out[i] - 1) * s + (g.k[i] - 1) * d + first >= hi;
        ein__buf guard = {0};
        ein__put(&guard, "");
        if (before)
            ein__putf(&guard, " * [%lld*i%d+%lld*r%d+(%lld) >= %lld]", s, i, d, i, first, lo);
        if (beyond)
            ein__putf(&guard, " * [%lld*i%d+%lld*r%d+(%lld) < %lld]", s, i, d, i, first, hi);
        ein__op_str(o, "G", i, "%s", guard.s);
        ein__buf_free(&guard);
        uneven = uneven || before || beyond;
        if (ein__mul_overflows(cells, g.k[i], &cells) || cells > EIN__OP_LIMIT)
            return ein__op_limit(o, "kernel_shape", "the window is too large");
    }
    ein__op_num(o, "N", -1, cells);
    if (uneven) ein__op_put(o, "d[{i#,}] = sum({r#,}) 1{G#}", NULL);
    ein__op_put(o,
                uneven ? "y[n,c{,i#}] = (sum({r#,}) x[n,c{,S#*i#+D#*r#-P#}]) / d[{i#,}]"
                       : "y[n,c{,i#}] = (sum({r#,}) x[n,c{,S#*i#+D#*r#-P#}]) / N",
                g.outside ? "x 0" : NULL);
    return ein__op_result(o, 0, &y);
}
