// onnx_sym.c - arithmetic on sizes that are expressions over the model's dims.
#include "onnx.h"

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
