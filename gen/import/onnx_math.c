// onnx_math.c - operators element by element: arithmetic, comparisons, activations.
#include "onnx.h"

#include <float.h>
#include <math.h>

static void convert_binary(ox *o, ox_node *n) {
    ox_check_broadcast(o, n);
    ox_plain(o, n);
}

// Before opset 7 a vector of slopes meant the channels, as in later ones it means the last axis.
static void convert_prelu(ox *o, ox_node *n) {
    ox_value *slope = ox_in(o, n, 1), *x = ox_in(o, n, 0);
    const ox_const *c = n->opset < 7 ? ox_known(o, slope) : NULL;
    if (n->opset < 7 && (!c || c->rank != 1)) {
        ox_unsupported(o, n, "PRelu of opset %lld whose slope is not a known vector",
                       (long long)n->opset);
    }
    if (c && c->count > 1) {
        ox_need_shape(o, n, x);
        int64_t dims[CLI_MAX_RANK] = {c->count, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        int rank = x->rank > 1 ? x->rank - 1 : 1;
        slope = ox_constant(o, slope->name, ".column", ox_reshaped(o, c, rank, dims));
    }
    ox_end_binary(o, n, "PRelu", x, slope);
}

// Max, Min, Sum and Mean take any number of inputs; the language's operators take two.
static ox_value *chain(ox *o, ox_node *n, const char *op, const char *last) {
    ox_value *v = ox_in(o, n, 0);
    for (int i = 1; i < n->n_in; i++) {
        bool ends = i + 1 == n->n_in;
        ox_begin(o);
        ox_arg(o, v);
        ox_arg(o, ox_in(o, n, i));
        v = ox_end(o, op, ends ? last : ox_fresh(o, last, ".part"), v->dtype);
    }
    return v;
}

static void convert_many(ox *o, ox_node *n) {
    ox_bind(o, n, 0, chain(o, n, strcmp(n->op, "Sum") ? n->op : "Add", ox_first(o, n)));
}

static void convert_mean(ox *o, ox_node *n) {
    const char *name = ox_first(o, n);
    if (n->n_in == 1) {
        ox_bind(o, n, 0, ox_in(o, n, 0));
        return;
    }
    ox_value *sum = chain(o, n, "Add", ox_fresh(o, name, ".sum"));
    ox_const *count = ox_make(o, sum->dtype, 0, NULL);
    ox_seti(count, 0, n->n_in);
    ox_end_binary(o, n, "Div", sum, ox_constant(o, name, ".count", count));
}

static void convert_mod(ox *o, ox_node *n) {
    bool fmod = ox_int(o, n, "fmod", 0) != 0;
    ox_value *x = ox_in(o, n, 0);
    if (!fmod && ox_is_float(x->dtype)) {
        ox_die(o, n, "Mod of floats needs fmod=1");
    }
    ox_begin(o);
    ox_arg(o, x);
    ox_arg(o, ox_in(o, n, 1));
    ox_set_int(o, "fmod", fmod);
    ox_end_node(o, n, "Mod");
}

// An integer to a known power, by squares.
static ox_value *whole_power(ox *o, ox_node *n, ox_value *base, double power) {
    ox_value *all = NULL;
    if (!(power >= 0 && power <= 64 && power == floor(power))) {
        ox_unsupported(o, n, "Pow of %s by %g", cli_dtype_name(base->dtype), power);
    }
    for (int rest = (int)power; rest; rest /= 2) {
        if (rest % 2) {
            all = all ? ox_binary(o, n, "Mul", ".power", all, base) : base;
        }
        base = rest > 1 ? ox_binary(o, n, "Mul", ".square", base, base) : base;
    }
    return all ? all
               : ox_by_number(o, n, "Add", ".one", ox_by_number(o, n, "Mul", ".zero", base, 0), 1);
}

// The exponent may have another type than the base.
static void convert_pow(ox *o, ox_node *n) {
    ox_value *base = ox_in(o, n, 0), *exponent = ox_in(o, n, 1);
    const ox_const *c = ox_known(o, exponent);
    const char *name = ox_first(o, n);
    ox_check_broadcast(o, n);
    if (!ox_is_float(base->dtype)) {
        ox_need_shape(o, n, base);
        if (!c || c->count != 1 || c->rank > base->rank) {
            ox_unsupported(o, n, "Pow of %s by what is not a known number",
                           cli_dtype_name(base->dtype));
        }
        base = whole_power(o, n, base, ox_getf(c, 0));
        ox_bind_as(o, n, 0, "Identity", base, NULL, (ox_list){0});
        return;
    }
    if (base->dtype != exponent->dtype && c && c->count <= OX_FOLD_LIMIT) {
        exponent = ox_constant(o, name, ".exponent", ox_cast(o, c, base->dtype));
    }
    exponent = ox_cast_to(o, n, ".exponent", exponent, base->dtype);
    ox_end_binary(o, n, "Pow", base, exponent);
}

// TensorFlow's own, which its exporter leaves as they are, as those of an exact Gelu.
static void convert_from_one(ox *o, ox_node *n) {
    bool erfc = !strcmp(n->op, "Erfc");
    ox_value *x = ox_in(o, n, 0);
    ox_value *one = ox_number(o, n, ".one", x->dtype, 1);
    ox_value *v = ox_unary(o, n, erfc ? "Erf" : "Exp", ".from_one", x);
    ox_end_binary(o, n, "Sub", erfc ? one : v, erfc ? v : one);
}

// ---- activations ----

// Attributes are always printed, so that no reader needs the defaults.
static void convert_alpha(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_float(o, "alpha", ox_float(o, n, "alpha", strcmp(n->op, "LeakyRelu") ? 1 : 0.01));
    ox_end_node(o, n, n->op);
}

static void convert_selu(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_float(o, "alpha", ox_float(o, n, "alpha", n->opset < 6 ? 1.6732 : 1.6732631921768188));
    ox_set_float(o, "gamma", ox_float(o, n, "gamma", n->opset < 6 ? 1.0507 : 1.0507010221481323));
    ox_end_node(o, n, "Selu");
}

static void convert_hard_sigmoid(ox *o, ox_node *n) {
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_float(o, "alpha", ox_float(o, n, "alpha", 0.2));
    ox_set_float(o, "beta", ox_float(o, n, "beta", 0.5));
    ox_end_node(o, n, n->op);
}

static void convert_gelu(ox *o, ox_node *n) {
    const char *how = ox_string(o, n, "approximate", "none");
    if (strcmp(how, "none") && strcmp(how, "tanh")) {
        ox_die(o, n, "Gelu with an unknown approximation");
    }
    ox_begin(o);
    ox_arg(o, ox_in(o, n, 0));
    ox_set_word(o, "approximate", how);
    ox_end_node(o, n, n->op);
}

static ox_value *number(ox *o, ox_node *n, const char *suffix, const ox_value *like, double value) {
    return ox_number(o, n, suffix, like->dtype, value);
}

// x + bias below -lambd, x - bias above lambd, 0 between.
static void convert_shrink(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    double bias = ox_float(o, n, "bias", 0), lambd = ox_float(o, n, "lambd", 0.5);
    ox_value *b = number(o, n, ".bias", x, bias), *zero = number(o, n, ".zero", x, 0);
    ox_value *low = ox_truth(o, n, "Less", ".low", x, number(o, n, ".least", x, -lambd));
    ox_value *high = ox_truth(o, n, "Greater", ".high", x, number(o, n, ".most", x, lambd));
    ox_value *up = ox_where(o, n, ".up", high, ox_binary(o, n, "Sub", ".less", x, b), zero);
    ox_value *more = ox_binary(o, n, "Add", ".more", x, b);
    ox_begin(o);
    ox_arg(o, low);
    ox_arg(o, more);
    ox_arg(o, up);
    ox_end_node(o, n, "Where");
}

// The share of its input that Swish lets through.
static ox_value *swish_gate(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0), *v = x;
    double alpha = ox_float(o, n, "alpha", 1);
    if (alpha != 1) {
        v = ox_binary(o, n, "Mul", ".scaled", x, number(o, n, ".alpha", x, alpha));
    }
    return ox_unary(o, n, "Sigmoid", ".gate", v);
}

static void convert_swish(ox *o, ox_node *n) {
    ox_value *gate = swish_gate(o, n);
    ox_end_binary(o, n, "Mul", ox_in(o, n, 0), gate);
}

static void convert_swiglu(ox *o, ox_node *n) {
    ox_value *gate = swish_gate(o, n);
    ox_value *x = ox_binary(o, n, "Mul", ".swish", ox_in(o, n, 0), gate);
    ox_end_binary(o, n, "Mul", x, ox_in(o, n, 1));
}

// An infinity is beyond the largest finite number.
static void convert_is_inf(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    bool up = ox_int(o, n, "detect_positive", 1) != 0;
    bool down = ox_int(o, n, "detect_negative", 1) != 0;
    double most = x->dtype == CLI_F16    ? 65504
                  : x->dtype == CLI_BF16 ? 3.3895314e38
                                         : (double)FLT_MAX;
    if (!up && !down) {
        ox_unsupported(o, n, "IsInf that detects nothing");
    }
    ox_value *v = up && down ? ox_unary(o, n, "Abs", ".size", x) : x;
    ox_end_binary(o, n, up ? "Greater" : "Less", v, number(o, n, ".most", x, up ? most : -most));
}

// ---- Clip ----

// A bound that is known, or computed (then `*v` is set), or absent or infinite (then neither).
typedef struct {
    bool known;
    double value;
    ox_value *v;
} bound;

static bound clip_bound(ox *o, ox_node *n, const char *name, int input, double none) {
    bound b = {0};
    if (n->opset < 11) {
        b.value = ox_float(o, n, name, none);
        b.known = fabs(b.value) < (double)FLT_MAX;
        return b;
    }
    ox_value *v = ox_opt(o, n, input);
    const ox_const *c = v ? ox_known(o, v) : NULL;
    if (c && c->count != 1) {
        ox_die(o, n, "input '%s' of Clip is not a scalar", name);
    }
    // Integers are cut by Max and Min: attributes are of floats.
    if (c && ox_is_float(c->dtype)) {
        b.value = ox_getf(c, 0);
        b.known = !isinf(b.value);
        if (isnan(b.value) || (isinf(b.value) && (b.value > 0) == (none < 0))) {
            ox_unsupported(o, n, "Clip with %s = %g", name, b.value);
        }
    } else {
        b.v = v;
    }
    return b;
}

static void clip(ox *o, ox_node *n, bound low, bound high) {
    ox_value *x = ox_in(o, n, 0);
    const char *name = ox_first(o, n);
    if (low.known || high.known) {
        ox_begin(o);
        ox_arg(o, x);
        if (low.known) {
            ox_set_float(o, "min", low.value);
        }
        if (high.known) {
            ox_set_float(o, "max", high.value);
        }
        bool ends = !low.v && !high.v;
        x = ox_end(o, "Clip", ends ? name : ox_fresh(o, name, ".clip"), x->dtype);
    }
    if (low.v) {
        ox_begin(o);
        ox_arg(o, x);
        ox_arg(o, low.v);
        x = ox_end(o, "Max", high.v ? ox_fresh(o, name, ".max") : name, x->dtype);
    }
    if (high.v) {
        ox_begin(o);
        ox_arg(o, x);
        ox_arg(o, high.v);
        x = ox_end(o, "Min", name, x->dtype);
    }
    ox_bind(o, n, 0, x);
}

static void convert_clip(ox *o, ox_node *n) {
    bound low = clip_bound(o, n, "min", 1, -(double)FLT_MAX);
    bound high = clip_bound(o, n, "max", 2, (double)FLT_MAX);
    // A computed lower bound must act before a known upper one: the upper one wins in ONNX.
    if (low.v && high.known) {
        ox_const *c = ox_make(o, n->in[0]->dtype, 0, NULL);
        ox_setf(c, 0, high.value);
        high = (bound){.v = ox_constant(o, ox_first(o, n), ".high", c)};
    }
    clip(o, n, low, high);
}

static void convert_relu6(ox *o, ox_node *n) {
    clip(o, n, (bound){.known = true, .value = 0}, (bound){.known = true, .value = 6});
}

// ---- the table ----

// ---- integers by powers of two ----

static const double WORDS = 4294967296;  // numbers that 32 bits have

ox_value *ox_as_words(ox *o, ox_node *n, ox_value *v) {
    v = ox_cast_to(o, n, ".wide", v, CLI_I64);
    v = ox_by_number(o, n, "Mod", ".words", v, WORDS);
    v->words = true;
    return v;
}

ox_value *ox_from_words(ox *o, ox_node *n, ox_value *v, cli_dtype to) {
    if (to != CLI_I32) {
        return ox_unary(o, n, "Identity", ".wide", v);
    }
    ox_value *half = ox_number(o, n, ".half", CLI_I64, WORDS / 2);
    ox_value *is = ox_truth(o, n, "GreaterOrEqual", ".negative", v, half);
    is = ox_by_number(o, n, "Mul", ".above", ox_cast_to(o, n, ".is", is, CLI_I64), WORDS);
    return ox_binary(o, n, "Sub", ".signed", v, is);
}

// A result of integers, or of words.
static void bind_bits(ox *o, ox_node *n, ox_value *v, bool words) {
    v->words = words;
    v->name = ox_first(o, n);
    ox_bind(o, n, 0, v);
}

// A shift by what is known: a product or, of what lies below, a quotient; integers have values
// here, no bits, and the sign is that of a quotient that is rounded down.
static void convert_shift(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    const ox_const *by = ox_known(o, ox_in(o, n, 1));
    const char *way = ox_string(o, n, "direction", "");
    bool right = !strcmp(way, "RIGHT"), words = x->words;
    if (!right && strcmp(way, "LEFT")) {
        ox_die(o, n, "BitShift without a direction");
    }
    if (!by || by->count > OX_FOLD_LIMIT || (x->dtype != CLI_I32 && x->dtype != CLI_I64)) {
        ox_unsupported(o, n, "BitShift of %s%s: integers have no bits here, only values",
                       cli_dtype_name(x->dtype), by ? "" : " by what is computed at run time");
    }
    ox_const *c = ox_make(o, x->dtype, by->rank, by->dims);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t bits = ox_geti(by, i);
        if (bits < 0 || bits >= (x->words ? 32 : x->dtype == CLI_I32 ? 31 : 63)) {
            ox_unsupported(o, n, "BitShift by %lld bits", (long long)bits);
        }
        ox_seti(c, i, (int64_t)1 << bits);
    }
    ox_value *power = ox_constant(o, ox_base(o, n), ".power", c);
    if (right) {
        ox_value *rest = ox_binary(o, n, "Mod", ".rest", x, power);
        x = ox_binary(o, n, "Sub", ".whole", x, rest);
    }
    x = ox_binary(o, n, right ? "Div" : "Mul", ".shifted", x, power);
    bind_bits(o, n, words && !right ? ox_by_number(o, n, "Mod", ".words", x, WORDS) : x, words);
}

// ---- bits by arithmetic ----

// The known operand of one of the bitwise operators, and in *x the other.
static const ox_const *mask_of(ox *o, ox_node *n, ox_value **x) {
    const ox_const *mask = NULL;
    for (int k = 1; k >= 0 && !mask; k--) {
        mask = ox_known(o, ox_in(o, n, k));
        *x = ox_in(o, n, 1 - k);
    }
    if (!mask || mask->count > OX_FOLD_LIMIT ||
        ((*x)->dtype != CLI_I32 && (*x)->dtype != CLI_I64)) {
        ox_unsupported(o, n, "%s of %s%s: integers have no bits here, only values", n->op,
                       cli_dtype_name((*x)->dtype),
                       mask ? "" : ", both of which are computed at run time");
    }
    return mask;
}

// Takes the lowest run of ones off `mask`, a number without a sign: bits *from .. *to, none: 0, 0.
static uint64_t next_run(uint64_t mask, int *from, int *to) {
    *from = *to = 0;
    if (!mask) {
        return 0;
    }
    while (!(mask >> *from & 1)) {
        ++*from;
    }
    for (*to = *from; mask >> *to & 1; ++*to) {
        mask ^= (uint64_t)1 << *to;
    }
    return mask;
}

// What x has below bits that are known, as 2^bit says: the rest of a division.
static ox_value *bits_below(ox *o, ox_node *n, ox_value *x, const ox_const *power) {
    return ox_binary(o, n, "Mod", ".below", x, ox_constant(o, ox_base(o, n), ".power", power));
}

// x and a mask: every run of ones in it is the difference of what x has below its ends. Of masks
// below zero, whose complement says what is left out: x less that.
static ox_value *kept_bits(ox *o, ox_node *n, ox_value *x, const ox_const *mask) {
    ox_const *left = ox_make(o, CLI_I64, mask->rank, mask->dims);
    bool negative = mask->count && ox_geti(mask, 0) < 0, more = true;
    for (int64_t i = 0; i < mask->count; i++) {
        int64_t m = ox_geti(mask, i);
        int64_t bits = negative ? ~m : m;
        if (bits < 0 || bits >= (int64_t)1 << (x->dtype == CLI_I32 ? 30 : 62)) {
            ox_unsupported(o, n, "%s with %lld%s", n->op, (long long)m,
                           bits < 0 ? " beside numbers of the other sign" : "");
        }
        ox_seti(left, i, bits);
    }
    ox_value *kept = NULL;
    while (more) {
        ox_const *high = ox_make(o, x->dtype, mask->rank, mask->dims);
        ox_const *low = ox_make(o, x->dtype, mask->rank, mask->dims);
        bool ones = true;
        more = false;
        for (int64_t i = 0; i < mask->count; i++) {
            int from, to;
            uint64_t rest = next_run((uint64_t)ox_geti(left, i), &from, &to);
            ox_seti(high, i, (int64_t)1 << to);
            ox_seti(low, i, (int64_t)1 << from);
            ox_seti(left, i, (int64_t)rest);
            ones = ones && from == 0;
            more = more || rest;
        }
        ox_value *run = bits_below(o, n, x, high);
        if (!ones) {
            run = ox_binary(o, n, "Sub", ".run", run, bits_below(o, n, x, low));
        }
        kept = kept ? ox_binary(o, n, "Add", ".kept", kept, run) : run;
    }
    return negative ? ox_binary(o, n, "Sub", ".kept", x, kept) : kept;
}

// x & m, x | m = x + (m - (x & m)) and x ^ m = (x - (x & m)) + (m - (x & m)), none of which leaves
// the range.
static void convert_bits(ox *o, ox_node *n) {
    ox_value *x;
    const ox_const *mask = mask_of(o, n, &x);
    bool words = x->words;
    mask = words ? ox_cast(o, mask, CLI_I64) : mask;
    ox_value *kept = kept_bits(o, n, x, mask);
    if (!strcmp(n->op, "BitwiseAnd")) {
        bind_bits(o, n, kept, words);
        return;
    }
    ox_value *m = ox_constant(o, ox_base(o, n), ".mask", mask);
    m = ox_binary(o, n, "Sub", ".added", m, kept);
    if (!strcmp(n->op, "BitwiseXor")) {
        x = ox_binary(o, n, "Sub", ".left", x, kept);
    }
    bind_bits(o, n, ox_binary(o, n, "Add", ".bits", x, m), words);
}

// ~x = -1 - x
static void convert_bitwise_not(ox *o, ox_node *n) {
    ox_value *x = ox_in(o, n, 0);
    if (x->dtype != CLI_I32 && x->dtype != CLI_I64) {
        ox_unsupported(o, n, "BitwiseNot of %s: integers have no bits here, only values",
                       cli_dtype_name(x->dtype));
    }
    ox_end_binary(o, n, "Sub", ox_number(o, n, ".ones", x->dtype, -1), x);
}

// ---- determinants ----

enum { DET_SIZE = 3 };  // of matrices up to which they are written out: 9 products

// Element (i, j) of the matrices, as matrices of one.
static ox_value *entry(ox *o, ox_node *n, ox_value *x, int64_t i, int64_t j) {
    int64_t starts[2] = {i, j}, ends[2] = {i + 1, j + 1}, axes[2] = {x->rank - 2, x->rank - 1};
    ox_begin(o);
    ox_arg(o, x);
    ox_set_list(o, "starts", (ox_list){2, starts, NULL});
    ox_set_list(o, "ends", (ox_list){2, ends, NULL});
    ox_set_list(o, "axes", (ox_list){2, axes, NULL});
    return ox_end(o, "Slice", ox_fresh(o, ox_base(o, n), ".entry"), x->dtype);
}

// Determinant of the last `size` rows in the columns `column`, by the first of these rows.
static ox_value *minor(ox *o, ox_node *n, ox_value *x, int64_t rows, int size, const int *column) {
    ox_value *all = NULL;
    for (int k = 0; k < size; k++) {
        int rest[DET_SIZE];
        for (int j = 0, at = 0; j < size; j++) {
            if (j != k) {
                rest[at++] = column[j];
            }
        }
        ox_value *v = entry(o, n, x, rows - size, column[k]);
        if (size > 1) {
            v = ox_binary(o, n, "Mul", ".product", v, minor(o, n, x, rows, size - 1, rest));
        }
        all = all ? ox_binary(o, n, k % 2 ? "Sub" : "Add", ".sum", all, v) : v;
    }
    return all;
}

static void convert_det(ox *o, ox_node *n) {
    static const int columns[DET_SIZE] = {0, 1, 2};
    ox_value *x = ox_in(o, n, 0);
    ox_need_sym(o, n, x);
    int64_t rows = x->rank > 1 ? x->dims[x->rank - 1] : 0;
    if (x->rank < 2 || x->dims[x->rank - 2] != rows) {
        ox_die(o, n, "Det of what are no square matrices");
    }
    if (rows < 1 || rows > DET_SIZE || x->sym[x->rank - 1] || x->sym[x->rank - 2]) {
        ox_unsupported(o, n, "Det of %lld x %lld; it is written out for sizes up to %d",
                       (long long)rows, (long long)rows, DET_SIZE);
    }
    int64_t axes[2] = {x->rank - 2, x->rank - 1};
    ox_value *v = minor(o, n, x, rows, (int)rows, columns);
    ox_end_list(o, n, "Squeeze", v, "axes", (ox_list){2, axes, NULL});
}

const ox_row ox_math_rows[] = {
    {"Add", 2, 2, convert_binary},
    {"Sub", 2, 2, convert_binary},
    {"Mul", 2, 2, convert_binary},
    {"Div", 2, 2, convert_binary},
    {"Mod", 2, 2, convert_mod},
    {"Max", 1, -1, convert_many},
    {"Min", 1, -1, convert_many},
    {"Sum", 1, -1, convert_many},
    {"Mean", 1, -1, convert_mean},
    {"Pow", 2, 2, convert_pow},
    {"Neg", 1, 1, ox_plain},
    {"Abs", 1, 1, ox_plain},
    {"Relu", 1, 1, ox_plain},
    {"LeakyRelu", 1, 1, convert_alpha},
    {"Elu", 1, 1, convert_alpha},
    {"Celu", 1, 1, convert_alpha},
    {"Selu", 1, 1, convert_selu},
    {"ThresholdedRelu", 1, 1, convert_alpha},
    {"Softplus", 1, 1, ox_plain},
    {"Softsign", 1, 1, ox_plain},
    {"Mish", 1, 1, ox_plain},
    {"Sign", 1, 1, ox_plain},
    {"Round", 1, 1, ox_plain},
    {"Sin", 1, 1, ox_plain},
    {"Cos", 1, 1, ox_plain},
    {"Tan", 1, 1, ox_plain},
    {"Asin", 1, 1, ox_plain},
    {"Acos", 1, 1, ox_plain},
    {"Atan", 1, 1, ox_plain},
    {"Sinh", 1, 1, ox_plain},
    {"Cosh", 1, 1, ox_plain},
    {"Asinh", 1, 1, ox_plain},
    {"Acosh", 1, 1, ox_plain},
    {"Atanh", 1, 1, ox_plain},
    {"IsNaN", 1, 1, ox_plain},
    {"IsInf", 1, 1, convert_is_inf},
    {"Equal", 2, 2, convert_binary},
    {"Less", 2, 2, convert_binary},
    {"LessOrEqual", 2, 2, ox_plain},
    {"Greater", 2, 2, convert_binary},
    {"GreaterOrEqual", 2, 2, ox_plain},
    {"Not", 1, 1, ox_plain},
    {"And", 2, 2, convert_binary},
    {"Or", 2, 2, convert_binary},
    {"Xor", 2, 2, convert_binary},
    {"Where", 3, 3, ox_plain},
    {"PRelu", 2, 2, convert_prelu},
    {"Clip", 1, 3, convert_clip},
    {"Relu6", 1, 1, convert_relu6},
    {"Sigmoid", 1, 1, ox_plain},
    {"HardSigmoid", 1, 1, convert_hard_sigmoid},
    {"HardSwish", 1, 1, ox_plain},
    {"Swish", 1, 1, convert_swish},
    {"SwiGLU", 2, 2, convert_swiglu},
    {"Shrink", 1, 1, convert_shrink},
    {"Tanh", 1, 1, ox_plain},
    {"Exp", 1, 1, ox_plain},
    {"Log", 1, 1, ox_plain},
    {"Sqrt", 1, 1, ox_plain},
    {"Reciprocal", 1, 1, ox_plain},
    {"Floor", 1, 1, ox_plain},
    {"Ceil", 1, 1, ox_plain},
    {"Erf", 1, 1, ox_plain},
    {"Erfc", 1, 1, convert_from_one},
    {"Expm1", 1, 1, convert_from_one},
    {"Gelu", 1, 1, convert_gelu},
    {"BitShift", 2, 2, convert_shift},
    {"BitwiseAnd", 2, 2, convert_bits},
    {"BitwiseOr", 2, 2, convert_bits},
    {"BitwiseXor", 2, 2, convert_bits},
    {"BitwiseNot", 1, 1, convert_bitwise_not},
    {"Det", 1, 1, convert_det},
    {NULL, 0, 0, NULL},
};
