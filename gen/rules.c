// The rules of derivation, one row each. A rule is given one definition and adds equivalent ones of
// the same class, or classes that they read. It takes its constants from the expression: extents,
// coefficients, denominators. To add a rule: one function in a rule_*.c file, one row here, one
// case in tests/test_derive.c.

typedef struct ein__rule {
    const char *name;  // as `--rules` has it
    const char *what;  // in the papers' words
    void (*apply)(ein__deriver *z, int from);
    int quota;  // definitions that it may add to one problem
} ein__rule;

static const ein__rule ein__rules[] = {
    // sum(y,z) a b = sum(y) sum(z) a b; a product of sums where a factor is free of z
    {"split", "summation splitting", ein__rule_split, 200},
    // a[E(i)] = a'[i], a'[i] = a[E(i)]
    {"operand", "operator matching: operand re-laid", ein__rule_match_gemm, 100},
    // a[d*x + u], u = d*U + p, is a'[x + U, p], a'[i,p] = a[d*i + p]
    {"digits", "digit re-layout", ein__rule_digits, 20},
};
enum { EIN__NRULES = sizeof ein__rules / sizeof *ein__rules };
