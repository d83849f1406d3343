// onnx_tensor.c - tensors known at import time: their types, making them, their elements.
#include "onnx.h"

#include <math.h>

static const struct {
    const char *name;
    cli_dtype dtype;
} onnx_types[] = {
    {"undefined", CLI_NONE},
    {"float", CLI_F32},
    {"uint8", CLI_U8},
    {"int8", CLI_I8},
    {"uint16", CLI_U16},
    {"int16", CLI_I16},
    {"int32", CLI_I32},
    {"int64", CLI_I64},
    {"string", CLI_NONE},
    {"bool", CLI_BOOL},
    {"float16", CLI_F16},
    {"double", CLI_F64},
    {"uint32", CLI_U32},
    {"uint64", CLI_U64},
    {"complex64", CLI_NONE},
    {"complex128", CLI_NONE},
    {"bfloat16", CLI_BF16},
    {"float8e4m3fn", CLI_NONE},
    {"float8e4m3fnuz", CLI_NONE},
    {"float8e5m2", CLI_NONE},
    {"float8e5m2fnuz", CLI_NONE},
    {"uint4", CLI_NONE},
    {"int4", CLI_NONE},
    {"float4e2m1", CLI_NONE},
    {"float8e8m0", CLI_NONE},
    {"uint2", CLI_NONE},
    {"int2", CLI_NONE},
};

cli_dtype ox_dtype(int32_t onnx_type) {
    bool inside = onnx_type >= 0 && (size_t)onnx_type < sizeof onnx_types / sizeof *onnx_types;
    return inside ? onnx_types[onnx_type].dtype : CLI_NONE;
}

cli_dtype ox_stored(int32_t onnx_type, int *bits) {
    const char *name = ox_type_name(onnx_type);
    bool is_signed = *name == 'i';
    *bits = !strcmp(name + !is_signed, "int4") ? 4 : !strcmp(name + !is_signed, "int2") ? 2 : 0;
    return !*bits ? ox_dtype(onnx_type) : is_signed ? CLI_I8 : CLI_U8;
}

const char *ox_type_name(int32_t onnx_type) {
    bool inside = onnx_type >= 0 && (size_t)onnx_type < sizeof onnx_types / sizeof *onnx_types;
    return inside ? onnx_types[onnx_type].name : "unknown";
}

bool ox_is_float(cli_dtype dtype) {
    return dtype == CLI_F32 || dtype == CLI_F16 || dtype == CLI_BF16 || dtype == CLI_F64;
}

// ---- making ----

ox_const *ox_make_upto(ox *o, cli_dtype dtype, int rank, const int64_t *dims, int64_t limit) {
    ox_const *c = ox_alloc(o, sizeof *c);
    c->dtype = dtype;
    c->rank = rank;
    if (rank) {
        memcpy(c->dims, dims, (size_t)rank * sizeof *dims);
    }
    if (!cli_count(rank, dims, &c->count) || c->count > limit) {
        ox_die(o, NULL, "a folded constant has more than %lld elements", (long long)limit);
    }
    c->data = ox_alloc(o, (size_t)c->count * cli_dtype_size(dtype));
    return c;
}

ox_const *ox_make(ox *o, cli_dtype dtype, int rank, const int64_t *dims) {
    return ox_make_upto(o, dtype, rank, dims, OX_FOLD_LIMIT);
}

const ox_const *ox_from_tensor(ox *o, const cli_tensor *t) {
    ox_const *c = ox_alloc(o, sizeof *c);
    c->dtype = t->dtype;
    c->rank = t->rank;
    memcpy(c->dims, t->dims, sizeof c->dims);
    c->count = (int64_t)(t->bytes / cli_dtype_size(t->dtype));
    c->data = t->data;
    return c;
}

// Sources of the text make finite numbers, and integers that a double has: the rest is data.
static bool has_source(const ox_const *c) {
    double value = ox_getf(c, 0);
    return ox_is_float(c->dtype) ? isfinite((float)value) : fabs(value) <= 4503599627370495;
}

const ox_const *ox_splat(ox *o, cli_dtype dtype, int rank, const int64_t *dims,
                         const uint8_t *element) {
    int64_t one = 1;
    size_t size = cli_dtype_size(dtype);
    ox_const *c = ox_make(o, dtype, 1, &one);
    memcpy((uint8_t *)(uintptr_t)c->data, element, size);
    if (!has_source(c)) {
        c = ox_make(o, dtype, rank, dims);
        for (int64_t i = 0; i < c->count; i++) {
            memcpy((uint8_t *)(uintptr_t)c->data + (size_t)i * size, element, size);
        }
        return c;
    }
    c->rank = rank;
    memset(c->dims, 0, sizeof c->dims);
    for (int i = 0; i < rank; i++) {
        c->dims[i] = dims[i];
    }
    c->splat = true;
    if (!cli_count(rank, dims, &c->count)) {
        ox_die(o, NULL, "a constant has too many elements");
    }
    return c;
}

const ox_const *ox_reshaped(ox *o, const ox_const *c, int rank, const int64_t *dims) {
    ox_const *r = ox_alloc(o, sizeof *r);
    *r = *c;
    r->rank = rank;
    memset(r->dims, 0, sizeof r->dims);
    if (rank) {
        memcpy(r->dims, dims, (size_t)rank * sizeof *dims);
    }
    return r;
}

// ---- elements ----

static const uint8_t *element(const ox_const *c, int64_t i) {
    return c->data + (c->splat ? 0 : (size_t)i * cli_dtype_size(c->dtype));
}

int64_t ox_geti(const ox_const *c, int64_t i) {
    if (c->dtype == CLI_I64 || c->dtype == CLI_U64) {
        int64_t value;
        memcpy(&value, element(c, i), sizeof value);
        return value;
    }
    double value = cli_get(c->dtype, element(c, i), 0);
    int64_t result;
    cli_set(CLI_I64, &result, 0, value);
    return result;
}

double ox_getf(const ox_const *c, int64_t i) { return cli_get(c->dtype, element(c, i), 0); }

// Integers wrap around, as they do in every runtime.
void ox_seti(ox_const *c, int64_t i, int64_t value) {
    size_t size = cli_dtype_size(c->dtype);
    uint8_t *at = (uint8_t *)(uintptr_t)c->data + (size_t)i * size;
    if (c->dtype == CLI_BOOL) {
        *at = value != 0;
    } else if (ox_is_float(c->dtype)) {
        cli_set(c->dtype, at, 0, (double)value);
    } else {
        memcpy(at, &value, size);
    }
}

void ox_setf(ox_const *c, int64_t i, double value) {
    cli_set(c->dtype, (uint8_t *)(uintptr_t)c->data, i, value);
}

const char *ox_sym(const ox_const *c, int64_t i) {
    return c->sym ? c->sym[c->splat ? 0 : i] : NULL;
}

void ox_set_sym(ox *o, ox_const *c, int64_t i, const char *sym) {
    if (!sym || c->count > OX_SYM_LIMIT) {
        return;
    }
    if (!c->sym) {
        c->sym = ox_alloc(o, (size_t)c->count * sizeof *c->sym);
    }
    c->sym[i] = sym;
}

const ox_const *ox_cast(ox *o, const ox_const *c, cli_dtype to) {
    int64_t one = 1;
    ox_const *r = ox_make(o, to, c->splat ? 1 : c->rank, c->splat ? &one : c->dims);
    for (int64_t i = 0; i < r->count; i++) {
        if (ox_is_float(c->dtype)) {
            double value = ox_getf(c, i);
            if (to == CLI_BOOL || ox_is_float(to)) {
                ox_setf(r, i, value);
            } else {
                ox_setf(r, i, trunc(value));
            }
        } else {
            ox_seti(r, i, ox_geti(c, i));
            ox_set_sym(o, r, i, to == CLI_I64 || to == CLI_I32 ? ox_sym(c, i) : NULL);
        }
    }
    return c->splat ? ox_splat(o, to, c->rank, c->dims, r->data) : r;
}
