// onnx_scalar.c - arithmetic of single elements that are known at import time.
#include "onnx.h"

#include <math.h>

int64_t ox_compute_int(ox *o, ox_node *n, ox_scalar op, int64_t a, int64_t b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case OX_ADD: return (int64_t)(x + y);
    case OX_SUB: return (int64_t)(x - y);
    case OX_MUL: return (int64_t)(x * y);
    case OX_DIV:
    case OX_MOD:
        if (b == 0) {
            ox_die(o, n, "division by zero in a constant");
        }
        if (b == -1) {
            return op == OX_DIV ? (int64_t)(0 - x) : 0;
        }
        return op == OX_DIV ? a / b : a % b + (a % b && (a < 0) != (b < 0) ? b : 0);
    case OX_MAX: return a > b ? a : b;
    case OX_MIN: return a < b ? a : b;
    case OX_EQ: return a == b;
    case OX_LT: return a < b;
    case OX_LE: return a <= b;
    case OX_GT: return a > b;
    case OX_GE: return a >= b;
    case OX_AND: return a && b;
    case OX_OR: return a || b;
    case OX_NEG: return (int64_t)(0 - x);
    case OX_ABS: return a < 0 ? (int64_t)(0 - x) : a;
    case OX_NOT: return !a;
    case OX_FLOOR:
    case OX_CEIL:
    case OX_ROUND: return a;
    case OX_POW:
    case OX_SQRT:
    case OX_RECIPROCAL: break;  // of floats alone
    }
    return 0;
}

double ox_compute_float(ox_scalar op, double a, double b) {
    switch (op) {
    case OX_ADD: return a + b;
    case OX_SUB: return a - b;
    case OX_MUL: return a * b;
    case OX_DIV: return a / b;
    case OX_MOD: return fmod(a, b);
    case OX_POW: return pow(a, b);
    case OX_MAX: return isnan(a) || a > b ? a : b;
    case OX_MIN: return isnan(a) || a < b ? a : b;
    case OX_EQ: return a == b;
    case OX_LT: return a < b;
    case OX_LE: return a <= b;
    case OX_GT: return a > b;
    case OX_GE: return a >= b;
    case OX_AND: return a != 0 && b != 0;
    case OX_OR: return a != 0 || b != 0;
    case OX_NEG: return -a;
    case OX_ABS: return fabs(a);
    case OX_FLOOR: return floor(a);
    case OX_CEIL: return ceil(a);
    case OX_ROUND: return rint(a);
    case OX_SQRT: return sqrt(a);
    case OX_RECIPROCAL: return 1 / a;
    case OX_NOT: return a == 0;
    }
    return 0;
}
