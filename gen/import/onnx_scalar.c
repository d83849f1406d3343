// onnx_scalar.c - arithmetic of single elements that are known at import time: numbers, and sizes
// that are expressions over the model's dims.
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
    case OX_RECIPROCAL:
    case OX_EXP:
    case OX_LOG:
    case OX_SIN:
    case OX_COS: break;  // of floats alone
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
    case OX_EXP: return exp(a);
    case OX_LOG: return log(a);
    case OX_SIN: return sin(a);
    case OX_COS: return cos(a);
    case OX_NOT: return a == 0;
    }
    return 0;
}

// ---- sizes ----

enum { SYM_LENGTH = 160 };

bool ox_is_symbolic(ox_list list) {
    for (int i = 0; list.sym && i < list.n; i++) {
        if (list.sym[i]) {
            return true;
        }
    }
    return false;
}

// How tightly an expression binds: 1 a sum, 2 a product, 3 what can stand beside `*`.
static int tightness(const char *s) {
    int depth = 0, least = 3;
    for (const char *c = s; *c; c++) {
        depth += (*c == '(') - (*c == ')');
        if (!depth && c > s && strchr("+-*/%", *c)) {
            int own = *c == '+' || *c == '-' ? 1 : 2;
            least = own < least ? own : least;
        }
    }
    return least;
}

static const char *operand(ox *o, const char *sym, int64_t number, int least) {
    if (!sym) {
        return ox_format(o, number < 0 && least > 1 ? "(%lld)" : "%lld", (long long)number);
    }
    return tightness(sym) >= least ? sym : ox_format(o, "(%s)", sym);
}

// `a op b` as an expression, where a NULL side is a number. NULL when it gets out of hand.
const char *ox_join(ox *o, char op, const char *a, int64_t x, const char *b, int64_t y) {
    bool one = op == '*' || op == '/';
    if (!b && y == one) {
        return a;
    }
    if (!a && x == one && (op == '*' || op == '+')) {
        return b;
    }
    if (op == '/' && (x < 0 || y <= 0)) {
        return NULL;  // ONNX rounds to zero, an expression down
    }
    int own = op == '+' || op == '-' ? 1 : 2;
    const char *left = operand(o, a, x, own), *right = operand(o, b, y, own + 1);
    const char *text = ox_format(o, "%s%c%s", left, op, right);
    return strlen(text) <= SYM_LENGTH ? text : NULL;
}
