// onnx_const.c - constants as text: weights, and numbers and masks that are part of the program.
#include "onnx.h"

#include <math.h>
#include <stdlib.h>

enum { PLACES = 1 << 24 };  // places are below, and their distances: f32 has all of them

static void put_splat(char **text, const ox_const *c) {
    double value = ox_getf(c, 0);
    if (value == 0 && !signbit(value)) {
        ox_put(text, "zeros()");
    } else if (value == 1) {
        ox_put(text, "ones()");
    } else if (ox_is_float(c->dtype)) {
        ox_put(text, "uniform(seed=0" OX_COMMA "lo=");
        ox_put_float(text, value);
        ox_put(text, OX_COMMA "hi=");
        ox_put_float(text, value);
        ox_put(text, ")");
    } else {
        long long number = (long long)ox_geti(c, 0);
        ox_put(text, "uniform(seed=0" OX_COMMA "lo=%lld" OX_COMMA "hi=%lld)", number, number);
    }
}

static void put_weight(char **text, const ox_value *v) {
    const ox_const *c = v->known;
    ox_put(text, "weight ");
    ox_put_name(text, v->name);
    ox_put_type(text, c->dtype, c->rank, c->dims, NULL);
    if (c->splat) {
        ox_put(text, " = ");
        put_splat(text, c);
    } else {
        ox_put(text, " = W ");
        ox_put_quoted(text, v->name);
    }
    ox_put(text, "\n");
}

// Whether several statements read a value.
static bool is_shared(const ox *o, const ox_value *v) {
    int readers = 0;
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        bool reads = false;
        for (ptrdiff_t k = 0; k < arrlen(s->args); k++) {
            reads |= s->args[k] == v;
        }
        readers += reads;
    }
    return readers > 1;
}

// Whether a constant is written as a number, which is part of the program: a scalar, or one element
// that cannot have been trained, since it is no initializer or, as factors and bounds that
// exporters keep once, has several readers.
static bool is_number(const ox *o, const ox_value *v) {
    const ox_const *c = v->known;
    if ((c->dtype != CLI_F32 && c->dtype != CLI_F64) || isnan(ox_getf(c, 0))) {
        return false;
    }
    for (int a = 0; a < c->rank; a++) {
        if (c->dims[a] != 1) {
            return false;
        }
    }
    return !c->rank || !v->initializer || is_shared(o, v);
}

// A matrix whose elements depend on how far right of the diagonal they stand alone, of at most
// three values: value[0] up to diagonal end[0], value[1] up to end[1], then value[2].
typedef struct ox_diagonals {
    int n;
    double value[3];
    int64_t end[2];
} diagonals;

// Whether all of the matrix is that. Elements of a row follow those of the row above.
static bool find_diagonals(const ox_const *c, diagonals *d) {
    int64_t rows = c->dims[c->rank - 2], cols = c->dims[c->rank - 1];
    *d = (diagonals){.n = 0};
    if (c->splat) {
        *d = (diagonals){.n = 1, .value = {ox_getf(c, 0)}};
        return true;
    }
    for (int64_t k = 1 - rows; k < cols; k++) {
        int64_t row = k < 0 ? -k : 0, col = k < 0 ? 0 : k;
        double value = ox_getf(c, row * cols + col);
        for (int64_t i = row + 1, j = col + 1; i < rows && j < cols; i++, j++) {
            if (ox_getf(c, i * cols + j) != value) {
                return false;
            }
        }
        if (d->n && value == d->value[d->n - 1]) {
            continue;
        }
        if (d->n == 3 || isnan(value)) {
            return false;
        }
        if (d->n) {
            d->end[d->n - 1] = k - 1;
        }
        d->value[d->n++] = value;
    }
    return d->n > 0;
}

// Whether every matrix of a constant is the first one.
static bool repeats(const ox_const *c) {
    size_t size = cli_dtype_size(c->dtype);
    if (c->splat) {
        return true;
    }
    for (int a = c->rank - 2; a < c->rank; a++) {
        size *= (size_t)c->dims[a];
    }
    for (size_t at = size; at < (size_t)c->count * cli_dtype_size(c->dtype); at += size) {
        if (memcmp(c->data + at, c->data, size)) {
            return false;
        }
    }
    return true;
}

// Whether elements are those of a mask that is added to scores (0 and others so low that nothing is
// left of what they are added to) or, of what was not read from the file, multiplied with (0 and
// 1).
static bool masks_scores(const ox_value *v) {
    enum { LOW = -10000 };
    const ox_const *c = v->known;
    bool added = true, factor = !v->initializer;
    for (int64_t i = 0; i < c->count; i++) {
        double value = ox_getf(c, i);
        added = added && (value == 0 || value <= LOW);
        factor = factor && (value == 0 || value == 1);
    }
    return added || factor;
}

// Whether a constant is a mask, the same for all batches and heads, that an expression can be.
// Bools cannot have been trained. Zeros alone may be embeddings of positions before training, but
// not with two dimensions of one element.
static bool is_mask(const ox_value *v, diagonals *d) {
    const ox_const *c = v->known;
    bool truth = c->dtype == CLI_BOOL;
    if ((c->dtype != CLI_F32 && !truth) || c->rank < 2 || (c->splat && !truth) ||
        (!truth && c->dims[c->rank - 2] < 2) || !repeats(c) || !find_diagonals(c, d)) {
        return false;
    }
    bool batched = false;
    for (int a = 0; a < c->rank - 2; a++) {
        batched = batched || c->dims[a] != 1;
    }
    return truth || (masks_scores(v) && (d->n > 1 || (c->rank > 3 && !batched)));
}

// NULL where it is none. The text is asked for again and again, so it is found out once.
static const diagonals *mask_of(ox *o, ox_value *v) {
    diagonals d;
    if (!v->asked && is_mask(v, &d)) {
        diagonals *kept = ox_alloc(o, sizeof *kept);
        *kept = d;
        v->mask = kept;
    }
    v->asked = true;
    return v->mask;
}

static void put_value(char **text, double value) {
    if (isinf((float)value)) {
        ox_put(text, "%slog(0)", value > 0 ? "-" : "");
    } else {
        ox_put_float(text, value);
    }
}

// The head of an equation, all of whose indices are `index` and a number.
static void put_head(char **text, const char *name, int rank, const char *index) {
    ox_put_name(text, name);
    ox_put(text, "[");
    for (int a = 0; a < rank; a++) {
        ox_put(text, "%s%s%d", a ? "," : "", index, a);
    }
    ox_put(text, "] = ");
}

static void put_ranges(char **text, const ox_const *c, const char *index) {
    for (int a = 0; a < c->rank; a++) {
        ox_put(text, "%s%s%d in 0:%lld", a ? OX_COMMA : OX_BREAK_FIRST "where ", index, a,
               (long long)c->dims[a]);
    }
    ox_put(text, "\n");
}

// Equations are of numbers: what is not is cast from one. The name of its left side.
static const char *head_of(ox *o, ox_value *v) {
    if (v->known->dtype != CLI_F32 && !v->numbers) {
        v->numbers = ox_fresh(o, v->name, ".numbers");
    }
    return v->known->dtype == CLI_F32 ? v->name : v->numbers;
}

static void put_cast(char **text, const ox_value *v, const char *type) {
    ox_put_name(text, v->name);
    ox_put(text, " = Cast(");
    ox_put_name(text, v->numbers);
    ox_put(text, ";" OX_BREAK "to=%s)\n", type);
}

// Whether all that is done with a value is that it is compared.
static bool is_compared(const ox *o, const ox_value *v) {
    static const char *const ops[] = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
    bool is = true;
    for (ptrdiff_t i = 0; i < arrlen(o->stmts); i++) {
        const ox_stmt *s = o->stmts[i];
        bool reads = false, compares = false;
        for (ptrdiff_t k = 0; k < arrlen(s->args); k++) {
            reads |= s->args[k] == v;
        }
        for (int k = 0; k < 4; k++) {
            compares |= s->op && !strcmp(s->op, ops[k]);
        }
        is &= !reads || compares;
    }
    return is;
}

// Places along one axis, as those of rows and keys from which masks are made where these are too
// large to be folded: integers with one distance between neighbours.
static bool is_places(const ox *o, const ox_value *v, int *axis, int64_t *step) {
    const ox_const *c = v->known;
    if ((c->dtype != CLI_I64 && c->dtype != CLI_I32) || c->rank < 2 || c->splat || v->initializer ||
        c->count < 2 || !is_compared(o, v)) {
        return false;
    }
    for (*axis = 0; c->dims[*axis] == 1; ++*axis) {
    }
    int64_t first = ox_geti(c, 0);
    *step = ox_geti(c, 1) - first;
    bool is = c->dims[*axis] == c->count && *step && llabs(first) < PLACES &&
              llabs(*step) < PLACES && llabs(ox_geti(c, c->count - 1)) < PLACES;
    for (int64_t i = 1; i < c->count && is; i++) {
        is = ox_geti(c, i) == first + i * *step;
    }
    return is;
}

static void put_places(ox *o, char **text, ox_value *v, int axis, int64_t step) {
    const char *index = ox_free_name(o, "i");
    long long first = ox_geti(v->known, 0);
    put_head(text, head_of(o, v), v->known->rank, index);
    ox_put(text, "idx(");
    if (step != 1) {
        ox_put(text, "%lld*", (long long)step);
    }
    ox_put(text, "%s%d", index, axis);
    if (first) {
        ox_put(text, "%c%lld", first < 0 ? '-' : '+', llabs(first));
    }
    ox_put(text, ")");
    put_ranges(text, v->known, index);
    put_cast(text, v, v->known->dtype == CLI_I64 ? "i64" : "i32");
}

static void put_mask(ox *o, char **text, ox_value *v, const diagonals *d) {
    const char *index = ox_free_name(o, "i");
    int row = v->known->rank - 2, col = row + 1;
    put_head(text, head_of(o, v), v->known->rank, index);
    for (int k = 0; k < d->n; k++) {
        if (k + 1 < d->n) {
            ox_put(text, "select(idx(%s%d) <= idx(%s%d)", index, col, index, row);
            if (d->end[k]) {
                ox_put(text, " %c %lld", d->end[k] < 0 ? '-' : '+', (long long)llabs(d->end[k]));
            }
            ox_put(text, "," OX_BREAK);
        }
        put_value(text, d->value[k]);
        ox_put(text, k + 1 < d->n ? "," OX_BREAK : "");
    }
    for (int k = 1; k < d->n; k++) {
        ox_put(text, ")");
    }
    put_ranges(text, v->known, index);
    if (v->known->dtype == CLI_BOOL) {
        put_cast(text, v, "bool");
    }
}

bool ox_put_constant(ox *o, char **text, ox_value *v) {
    if (is_number(o, v)) {
        const char *index = v->known->rank ? ox_free_name(o, "i") : "";
        put_head(text, v->name, v->known->rank, index);
        put_value(text, ox_getf(v->known, 0));
        put_ranges(text, v->known, index);
        return false;
    }
    const diagonals *d = mask_of(o, v);
    if (d) {
        put_mask(o, text, v, d);
        return false;
    }
    int axis;
    int64_t step;
    if (is_places(o, v, &axis, &step)) {
        put_places(o, text, v, axis, step);
        return false;
    }
    put_weight(text, v);
    return !v->known->splat;
}
