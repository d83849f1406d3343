// cli_tensor.c - element types: names, sizes and exact conversions.
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "einnet's command line needs a little-endian machine: its file formats are little-endian"
#endif

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [CLI_NONE] = {"?", 0},    [CLI_F32] = {"f32", 4},   [CLI_F16] = {"f16", 2},
    [CLI_BF16] = {"bf16", 2}, [CLI_F64] = {"f64", 8},   [CLI_I8] = {"i8", 1},
    [CLI_U8] = {"u8", 1},     [CLI_I16] = {"i16", 2},   [CLI_U16] = {"u16", 2},
    [CLI_I32] = {"i32", 4},   [CLI_U32] = {"u32", 4},   [CLI_I64] = {"i64", 8},
    [CLI_U64] = {"u64", 8},   [CLI_BOOL] = {"bool", 1},
};

const char *cli_dtype_name(cli_dtype dtype) { return types[dtype].name; }

size_t cli_dtype_size(cli_dtype dtype) { return types[dtype].size; }

cli_dtype cli_dtype_by_name(const char *name) {
    for (cli_dtype i = CLI_F32; i <= CLI_BOOL; i++) {
        if (!strcmp(types[i].name, name)) {
            return i;
        }
    }
    return CLI_NONE;
}

void cli_tensor_free(cli_tensor *tensor) {
    free(tensor->data);
    memset(tensor, 0, sizeof *tensor);
}

bool cli_count(int rank, const int64_t *dims, int64_t *count) {
    const int64_t limit = (int64_t)1 << 62;
    bool empty = false;
    *count = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return false;
        }
        if (dims[i] == 0) {
            empty = true;
        } else if (*count > limit / dims[i]) {
            return false;
        } else {
            *count *= dims[i];
        }
    }
    if (empty) {
        *count = 0;
    }
    return true;
}

double cli_from_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double value;
    if (exponent == 31) {
        value = fraction ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        value = ldexp(fraction, -24);
    } else {
        value = ldexp(fraction + 1024, exponent - 25);
    }
    return bits >> 15 ? -value : value;
}

uint16_t cli_to_f16(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(value)) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (size >= 65520) {  // halfway to the power of two after the largest number
        return (uint16_t)(sign | 0x7c00);
    }
    int exponent = 0;
    frexp(size, &exponent);
    if (exponent < -13 || size == 0) {
        exponent = -13;  // subnormal: the step stays 2^-24
    }
    // The step of the result's binade divides the value; rint rounds to even.
    double steps = rint(ldexp(size, 11 - exponent));
    // A carry into the next binade falls out of the addition.
    return (uint16_t)(sign | (((exponent + 13) << 10) + (int)steps));
}

double cli_from_bf16(uint16_t bits) {
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return (double)value;
}

uint16_t cli_to_bf16(double value) {
    float single = (float)value;
    uint32_t word;
    memcpy(&word, &single, 4);
    if (isnan(value)) {
        return (uint16_t)(word >> 16 | 64);
    }
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

double cli_get(cli_dtype dtype, const void *data, int64_t i) {
    const uint8_t *at = (const uint8_t *)data + (size_t)i * cli_dtype_size(dtype);
    union {
        float f32;
        double f64;
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
    } v;
    memcpy(&v, at, cli_dtype_size(dtype));
    switch (dtype) {
    case CLI_NONE: return 0;
    case CLI_F32: return (double)v.f32;
    case CLI_F16: return cli_from_f16(v.u16);
    case CLI_BF16: return cli_from_bf16(v.u16);
    case CLI_F64: return v.f64;
    case CLI_I8: return v.i8;
    case CLI_U8: return v.u8;
    case CLI_I16: return v.i16;
    case CLI_U16: return v.u16;
    case CLI_I32: return v.i32;
    case CLI_U32: return v.u32;
    case CLI_I64: return (double)v.i64;
    case CLI_U64: return (double)v.u64;
    case CLI_BOOL: return v.u8 != 0;
    }
    return 0;
}

// Into a signed integer of `bits` bits: truncated toward zero, clamped, NaN becomes 0.
static int64_t to_signed(double value, int bits) {
    double edge = ldexp(1, bits - 1);
    if (isnan(value)) {
        return 0;
    }
    if (value >= edge) {
        return INT64_MAX >> (64 - bits);
    }
    return value <= -edge ? INT64_MIN >> (64 - bits) : (int64_t)value;
}

static uint64_t to_unsigned(double value, int bits) {
    if (!(value >= 1)) {
        return 0;
    }
    return value >= ldexp(1, bits) ? UINT64_MAX >> (64 - bits) : (uint64_t)value;
}

void cli_set(cli_dtype dtype, void *data, int64_t i, double value) {
    size_t size = cli_dtype_size(dtype);
    uint8_t *at = (uint8_t *)data + (size_t)i * size;
    uint64_t bits = 0;
    float single = (float)value;
    switch (dtype) {
    case CLI_NONE: return;
    case CLI_F32: memcpy(&bits, &single, 4); break;
    case CLI_F64: memcpy(&bits, &value, 8); break;
    case CLI_F16: bits = cli_to_f16(value); break;
    case CLI_BF16: bits = cli_to_bf16(value); break;
    case CLI_BOOL: bits = value != 0; break;
    case CLI_I8:
    case CLI_I16:
    case CLI_I32:
    case CLI_I64: bits = (uint64_t)to_signed(value, (int)size * 8); break;
    case CLI_U8:
    case CLI_U16:
    case CLI_U32:
    case CLI_U64: bits = to_unsigned(value, (int)size * 8); break;
    }
    memcpy(at, &bits, size);
}
