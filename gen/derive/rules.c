// The table of rules, one row each (EinNet section 4 and Table 1, OLLIE section 4): name, the
// papers' words, kind, law. A rule takes its constants from the expression: extents, coefficients,
// denominators. tests/test_rules.c applies every row to random scopes or programs, wants it to
// fire, and proves both sides modulo 2^61-1.
//
// To add a rule of search: a function in a rule_*.c file that is given one definition and adds
// equivalent ones of its class, or classes that they read; its id in ein_int.h; its row here.

typedef enum {
    EIN__BY_SEARCH,   // tried on every definition of a problem
    EIN__IN_FORM,     // part of the form in which other rules make inner values
    EIN__ON_PROGRAM,  // applied to every value of the program
    EIN__TO_STEPS     // makes steps of values
} ein__rule_kind;

typedef struct ein__rule {
    const char *name;  // as `--rules` has it
    const char *what;  // in the papers' words
    ein__rule_kind kind;
    void (*apply)(ein__deriver *z, int from);       // of search
    ein__val (*rewrite)(ein__pass *z, ein__val v);  // of the program, by passes
    int quota;                                      // definitions that it may add to one problem
    bool converging;      // constructs what is missing of a library call (EinNet section 5.2)
    ein__target towards;  // the operator whose calls it makes
    bool needed;          // cannot be turned off
} ein__rule;

static const ein__rule ein__rules[] = {
    // sum(y,z) a b = sum(y) sum(z) a b; a product of sums where a factor is free of z
    [EIN__RULE_SPLIT] = {"split", "summation splitting", EIN__BY_SEARCH, ein__rule_split,
                         .quota = 400, .towards = EIN__TO_GEMM},
    // a[E(i)] = a'[i], a'[i] = a[E(i)]
    [EIN__RULE_OPERAND] = {"operand", "operator matching: operand re-laid", EIN__BY_SEARCH,
                           ein__rule_match_gemm, .quota = 200, .converging = true,
                           .towards = EIN__TO_GEMM},
    // the same, for convolutions
    [EIN__RULE_ORDER] = {"order", "operator matching: dimensions ordered", EIN__BY_SEARCH,
                         ein__rule_match_conv, .quota = 100, .converging = true,
                         .towards = EIN__TO_CONV},
    // a[d*x + u], u = d*U + p, is a'[x + U, p], a'[i,p] = a[d*i + p]
    [EIN__RULE_DIGITS] = {"digits", "digit re-layout", EIN__BY_SEARCH, ein__rule_digits,
                          .quota = 20, .towards = EIN__TO_ANY},
    // a[(E + k*r)/q], r = q*R + p: p is a function of E, and a[u + k*R] has no denominator
    [EIN__RULE_POINT] = {"point", "one-point rule", EIN__BY_SEARCH, ein__rule_point, .quota = 20,
                         .towards = EIN__TO_CONV},
    // the same, E = L + q*a + b: p is a function of b
    [EIN__RULE_PHASES] = {"phases", "one-point rule by phases", EIN__BY_SEARCH, ein__rule_phases,
                          .quota = 20, .towards = EIN__TO_NONE},
    // V[b,x] = sum(y) a[x + e(b) + y] w[b,y] is Z[b, x + e(b)], Z[b,X] = sum(y) a[X + y] w[b,y]
    [EIN__RULE_WINDOWS] = {"windows", "windows of phases as one", EIN__BY_SEARCH, ein__rule_windows,
                           .quota = 20, .towards = EIN__TO_CONV},
    // r = d*R + p: sum(r) is sum(R) of an inner sum over p
    [EIN__RULE_TAPS] = {"taps", "summation splitting by digits", EIN__BY_SEARCH, ein__rule_taps,
                        .quota = 100, .towards = EIN__TO_CONV},
    // sum(r in 0:n) a b = sum(r in 0:n/2) a b + sum(r in n/2:n) a b
    [EIN__RULE_PARTS] = {"parts", "expression splitting: halves", EIN__BY_SEARCH, ein__rule_parts,
                         .quota = 20, .towards = EIN__TO_NONE},
    // V over 0:n is V over lo..hi, where every read is inside, + V over 0:lo + V over hi+1:n
    [EIN__RULE_BORDER] = {"border", "expression splitting: interior and border", EIN__BY_SEARCH,
                          ein__rule_border, .quota = 60, .towards = EIN__TO_NONE},
    // x[g] = sum(j) [j == g] x[j]
    [EIN__RULE_GROUPS] = {"groups", "groups to block-diagonal weights", EIN__BY_SEARCH,
                          ein__rule_groups, .quota = 20, .towards = EIN__TO_CONV},
    // sum(y,r) a[y, E + k*r] w[y,r] is sum(y) a[y,0] w[y,-k*E], a one element there, zeros around
    // it
    [EIN__RULE_SINGLE] = {"single", "sums of one term", EIN__BY_SEARCH, ein__rule_single,
                          .quota = 20, .towards = EIN__TO_GEMM},
    // sum(c in 0:C) a[c] b[c] is sum(c in 0:C') a'[c] b'[c], zeros from C on
    [EIN__RULE_PAD] = {"pad", "channels padded (boundary relaxing)", EIN__BY_SEARCH, ein__rule_pad,
                       .quota = 20, .towards = EIN__TO_CONV},
    // sum(y) d[x + y] g[y], x = m*X + a, is sum(i) At[a,i] (G g)[i] (Bt d)[i,X]
    [EIN__RULE_BASIS] = {"basis", "basis change (Winograd)", EIN__BY_SEARCH, ein__rule_basis,
                         .quota = 200, .towards = EIN__TO_GEMM},
    // V[x] = sum(y) d[a*x + y] w[y], x = B*X + t, is Z[X,t] = sum(m) d[a*B*X + m] w[m - a*t]
    [EIN__RULE_TOEPLITZ] = {"toeplitz", "windows as products with Toeplitz matrices",
                            EIN__BY_SEARCH, ein__rule_toeplitz, .quota = 20,
                            .towards = EIN__TO_NONE},
    // V[m,j] = sum(k) q[m,k] w[m + j, k], m = B*M + r, is P[M, r, r + j], P[M,r,u] = sum(k) q w
    [EIN__RULE_SKEW] = {"skew", "bands as diagonals of products (iterator skewing)", EIN__BY_SEARCH,
                        ein__rule_skew, .quota = 20, .towards = EIN__TO_NONE},
    // V[x] = W[E(x)] where V depends on x through E alone: ein__rule_substitute in derive.c
    [EIN__RULE_SUBSTITUTE] = {"substitute", "variable substitution", EIN__IN_FORM, .apply = NULL},
    // V over 0:n is V over lo..hi where a factor is outside its box elsewhere: ein__rule_tighten
    [EIN__RULE_TIGHTEN] = {"tighten", "boundary tightening", EIN__IN_FORM,
                           ein__rule_tighten_problem, .quota = 20, .towards = EIN__TO_NONE},
    // V over 0:n is read from V over more places; a[i] from a' with zeros around a:
    // ein__rule_relax,
    // ein__rule_relax_operand
    [EIN__RULE_RELAX] = {"relax", "boundary relaxing", EIN__IN_FORM, .apply = NULL},
    // x ++ y ++ z is (x ++ y) ++ z where there is x ++ y: ein__rebuild_nested, where that is
    // cheaper
    [EIN__RULE_NEST] = {"nest", "concatenations that begin alike", EIN__ON_PROGRAM, .apply = NULL},
    // sum(y) f(x[E(y)]) w is sum(y) x'[E(y)] w, x'[i] = f(x[i])
    [EIN__RULE_FACTORS] = {"factors", "factors of a product computed apart", EIN__ON_PROGRAM,
                           .rewrite = ein__rebuild_factors},
    // f(W[E(x)]), W[i] = g(i), is f(g(E(x))): ein__rule_inline
    [EIN__RULE_INLINE] = {"inline", "traversal merging", EIN__ON_PROGRAM,
                          .rewrite = ein__rebuild_inline},
    // sum(y) f(V[y]), V[i] = sum(r in 0:3) g(i,r), is sum(y) f(g(y,0) + g(y,1) + g(y,2))
    [EIN__RULE_SHORT] = {"short", "short sums written out where they are read", EIN__ON_PROGRAM,
                         .rewrite = ein__rebuild_short},
    // alpha[f] * sum(y) x[y] w[f,y] is sum(y) x[y] (alpha[f] * w[f,y])
    [EIN__RULE_SCALE] = {"scale", "factors folded into weights", EIN__ON_PROGRAM,
                         .rewrite = ein__rebuild_scales},
    // f(x, V[E(x)]) is f(x, V'[x]), V'[x] = V[E(x)]
    [EIN__RULE_TURN] = {"turn", "products and statistics where they are read", EIN__ON_PROGRAM,
                        .rewrite = ein__rebuild_turned},
    // sum(y) x[t,y] w[y] at several t is V[t], V[s] = sum(y) x[s,y] w[y]
    [EIN__RULE_ROUNDS] = {"rounds", "products with one weight at several places", EIN__ON_PROGRAM,
                          .rewrite = ein__rebuild_rounds},
    // V[i], i = d * x + y, is V'[x,y]: ein__take_apart
    [EIN__RULE_APART] = {"apart", "dimensions taken apart", EIN__ON_PROGRAM, .apply = NULL},
    // f(x, w(x)) is f(x, c[x]), c[x] = w(x) of weights alone, made at load
    [EIN__RULE_HOIST] = {"hoist", "parts of weights alone computed at load", EIN__ON_PROGRAM,
                         .rewrite = ein__rebuild_hoist},
    // sum(r) [r <= i] F[r] is a sum inside i's block and one of the blocks before it:
    // ein__block_prefixes
    [EIN__RULE_PREFIX] = {"prefix", "running sums in blocks", EIN__ON_PROGRAM, .apply = NULL},
    // sum(e) (sum(k) [i(k) = e] p[k]) D[e] is sum(k) p[k] D[i(k)]: ein__look_up_places
    [EIN__RULE_ONEHOT] = {"onehot", "sums over one-hot places as look-ups", EIN__ON_PROGRAM,
                          .apply = NULL},
    // sum(k) x[p,k] W[e(p),k] is Z[tile(p),line(p)], Z[t,i] = sum(k) x[o(t,i),k] W[E(t),k]:
    // ein__sort_rows
    [EIN__RULE_SORTED] = {"sorted", "rows sorted by the weights they pick", EIN__ON_PROGRAM,
                          .apply = NULL},
    // max(r,s) x[i+r,j+s] is max(r) W[i+r,j], W[p,j] = max(s) x[p,j+s]: ein__separate_windows
    [EIN__RULE_SEPARATE] = {"separate", "windows one axis at a time", EIN__ON_PROGRAM,
                            .apply = NULL},
    // V read at lo..hi alone is V', V'[i] = V[i + lo]: ein__leave_out
    [EIN__RULE_NEEDED] = {"needed", "what nothing reads left out", EIN__ON_PROGRAM, .apply = NULL},
    // sum(c) w[c] sum(k) a(k,h) x[c,i(k,h)] is sum(k) a(k,h) sum(c) w[c] x[c,i(k,h)], and sum(r)
    // sum(c) w[c] x[c,r] is sum(c) w[c] sum(r) x[c,r]: ein__move_linear
    [EIN__RULE_LINEAR] = {"linear", "products and linear maps in the other order", EIN__ON_PROGRAM,
                          .apply = NULL},
    // sum(y) q[(x + y) / d] w[y] at x = P * X + t is sum(u) q[X + u] w'[t,u]: ein__share_repeats
    [EIN__RULE_REPEATS] = {"repeats", "operands that repeat, by phases", EIN__ON_PROGRAM,
                           .apply = NULL},
    // sum(y) P (X + F) is sum(y) P X + sum(y) P F: ein__distribute
    [EIN__RULE_DISTRIBUTE] = {"distribute", "distribution over a sum", EIN__ON_PROGRAM,
                              .apply = NULL},
    // sum(k) W U + sum(k) W V is sum(k) W (U + V): ein__distribute
    [EIN__RULE_COLLECT] = {"collect", "products with one weight collected", EIN__ON_PROGRAM,
                           .apply = NULL},
    // f(V[i], V[i + n]) is f(V0[i], V1[i]), halves of a product as two: ein__part_gates
    [EIN__RULE_GATE] = {"gate", "halves of a gate as products", EIN__ON_PROGRAM, .apply = NULL},
    // contractions that share an operand, or are alike, are windows on one: ein__merge_program
    [EIN__RULE_MERGE] = {"merge", "expression merging", EIN__ON_PROGRAM, .apply = NULL},
    // a contraction is the call whose groups and strides its iterators have: ein__choose
    [EIN__RULE_MATCH] = {"match", "operator matching: library calls", EIN__TO_STEPS, .apply = NULL},
    // M[x] = f(x, V[x]) over V[x] = reduce(y) g(x,y) is one step: ein__rule_fuse
    [EIN__RULE_FUSE] = {"fuse", "expression fusion", EIN__TO_STEPS, .apply = NULL},
    // product, softmax along one of its dimensions or another map, product over it: attention.c has
    // the law
    [EIN__RULE_ONLINE] = {"online", "online softmax", EIN__TO_STEPS, .apply = NULL},
    // sum(k) y[i,k] w[k,j], y affine in x with factors of rows and columns, is a product of x, its
    // rows' sums and constants: norm.c has the law
    [EIN__RULE_NORM] = {"norm", "norms taken into products", EIN__TO_STEPS, .apply = NULL},
    // what no call computes is a kernel of its own: ein__kernel_kind
    [EIN__RULE_KERNEL] = {"kernel", "eOperator generation", EIN__TO_STEPS, .needed = true},
};
_Static_assert(sizeof ein__rules / sizeof *ein__rules == EIN__NRULES, "a row for every rule");

static const char *ein__rule_kind_name(ein__rule_kind kind) {
    static const char *const names[] = {"search", "normal form", "program", "steps"};
    return names[kind];
}

static int ein__rule_named(const char *name, size_t n) {
    for (int r = 0; r < EIN__NRULES; r++)
        if (strlen(ein__rules[r].name) == n && !strncmp(ein__rules[r].name, name, n)) return r;
    return -1;
}

enum { EIN__NAME_SHOWN = 60 };  // characters of an unknown rule's name

// The rules that are on. `names`, separated by commas: of the rules of search and of merging just
// these, and all of the other kinds; with a '-' in front all but these; NULL: all. Sets the
// context's error for a name that is none, and for one that cannot be left out.
EIN__FN uint64_t ein__rules_named(ein_ctx *ctx, const char *names) {
    const uint64_t one = 1, all = (one << EIN__NRULES) - 1;
    uint64_t mask = 0, kept = 0;
    if (!names) return all;
    bool without = *names == '-';
    names += without;
    for (int r = 0; r < EIN__NRULES; r++)
        if (ein__rules[r].kind != EIN__BY_SEARCH && r != EIN__RULE_MERGE) kept |= one << r;
    while (*names) {
        size_t n = strcspn(names, ",");
        int found = ein__rule_named(names, n);
        if (found < 0 || (without && ein__rules[found].needed)) {
            ein__error(ctx, EIN_USAGE, (ein__pos){0, 0},
                       found < 0 ? "unknown rule '%.*s'" : "rule '%.*s' cannot be left out",
                       (int)(n < EIN__NAME_SHOWN ? n : EIN__NAME_SHOWN), names);
            return 0;
        }
        mask |= one << found;
        names += n + (names[n] == ',');
    }
    return without ? all & ~mask : mask | kept;
}

// The rewrites of the program that need no search, by the rules that are on.
EIN__FN bool ein__fold(ein_ctx *ctx, ein__val *root, int nroot) {
    bool ok = !ctx->status && ein__widen_factors(ctx, root, nroot);
    if (ctx->approach.apart) ok = ok && ein__take_apart(ctx, root, nroot, ctx->approach.apart);
    if (ok && ein__rule_on(ctx, EIN__RULE_INLINE))
        ok = ein__run_pass(ctx, root, nroot, ein__rebuild_pieces);
    if (ctx->approach.nesting) ok = ok && ein__run_pass(ctx, root, nroot, ein__rebuild_nested);
    for (int r = 0; r < EIN__NRULES && ok; r++)
        if (ein__rules[r].rewrite && ein__rule_on(ctx, (ein__rule_id)r))
            ok = ein__run_pass(ctx, root, nroot, ein__rules[r].rewrite);
    return ok && ein__widen_factors(ctx, root, nroot);
}
