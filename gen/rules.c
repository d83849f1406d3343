// The rules of derivation, one row each. A rule is given one definition and adds equivalent ones of
// the same class, or classes that they read. It takes its constants from the expression: extents,
// coefficients, denominators. To add a rule: one function in a rule_*.c file, one row here;
// tests/test_rules.c applies every row to random scopes and wants scopes that it fires on.

typedef struct ein__rule {
    const char *name;  // as `--rules` has it
    const char *what;  // in the papers' words
    void (*apply)(ein__deriver *z, int from);
    int quota;            // definitions that it may add to one problem
    bool converging;      // constructs what is missing of a library call (EinNet section 5.2)
    ein__target towards;  // the operator whose calls it makes
} ein__rule;

static const ein__rule ein__rules[] = {
    // sum(y,z) a b = sum(y) sum(z) a b; a product of sums where a factor is free of z
    {"split", "summation splitting", ein__rule_split, 400, false, EIN__TO_GEMM},
    // a[E(i)] = a'[i], a'[i] = a[E(i)]
    {"operand", "operator matching: operand re-laid", ein__rule_match_gemm, 200, true,
     EIN__TO_GEMM},
    // the same, for convolutions
    {"order", "operator matching: dimensions ordered", ein__rule_match_conv, 100, true,
     EIN__TO_CONV},
    // a[d*x + u], u = d*U + p, is a'[x + U, p], a'[i,p] = a[d*i + p]
    {"digits", "digit re-layout", ein__rule_digits, 20, false, EIN__TO_ANY},
    // a[(E + k*r)/q], r = q*R + p: p is a function of E, and a[u + k*R] has no denominator
    {"point", "one-point rule", ein__rule_point, 20, false, EIN__TO_CONV},
    // r = d*R + p: sum(r) is sum(R) of an inner sum over p
    {"taps", "summation splitting by digits", ein__rule_taps, 100, false, EIN__TO_CONV},
    // sum(r in 0:n) a b = sum(r in 0:n/2) a b + sum(r in n/2:n) a b
    {"parts", "expression splitting", ein__rule_parts, 20, false, EIN__TO_NONE},
    // x[g] = sum(j) [j == g] x[j]
    {"groups", "groups to block-diagonal weights", ein__rule_groups, 20, false, EIN__TO_CONV},
    // sum(y) d[x + y] g[y], x = m*X + a, is sum(i) At[a,i] (G g)[i] (Bt d)[i,X]
    {"basis", "basis change (Winograd)", ein__rule_basis, 200, false, EIN__TO_GEMM},
};
enum { EIN__NRULES = sizeof ein__rules / sizeof *ein__rules };
enum { EIN__RULE_MERGE = EIN__NRULES };  // "merge": of the whole program, see merge_find.c

// The rules that `names` lists, separated by commas; all of them without a list. Sets the context's
// error for a name that is none. A '-' in front: all but these.
EIN__FN uint32_t ein__rules_named(ein_ctx *ctx, const char *names) {
    uint32_t mask = 0;
    if (!names) return (1u << (EIN__NRULES + 1)) - 1;
    bool without = *names == '-';
    names += without;
    while (*names) {
        size_t n = strcspn(names, ",");
        int found = -1;
        for (int r = 0; r < EIN__NRULES; r++)
            if (strlen(ein__rules[r].name) == n && !strncmp(ein__rules[r].name, names, n))
                found = r;
        if (n == 5 && !strncmp("merge", names, n)) found = EIN__RULE_MERGE;
        if (found < 0) {
            ein__error(ctx, EIN_USAGE, (ein__pos){0, 0}, "unknown rule '%.*s'", (int)(n & 63),
                       names);
            return 0;
        }
        mask |= 1u << found;
        names += n + (names[n] == ',');
    }
    return without ? ~mask & ((1u << (EIN__NRULES + 1)) - 1) : mask;
}
