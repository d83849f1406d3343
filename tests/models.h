// Every application of a derivation rule on the models given is checked: both sides modulo 2^61-1
// at random places. Models at both sizes, those behind "--" at the small one. One check per model
// and size, one that rules were applied at all, and one that the matrices of basis changes are
// right, exactly.

// F(m, r): sum(k) d[a + k] g[k] for a < m, as At ((G g) (Bt d)), for unit vectors d and g: both
// sides are bilinear. In integers, over the least common multiple of the denominators.
static bool filters(int m, int r) {
    ein__toom z;
    int64_t all = 1;
    if (!ein__toom_cook(m, r, &z)) return false;
    for (int i = 0; i < z.t; i++) all *= z.den[i] / ein__gcd(all, z.den[i]);
    for (int u = 0; u < z.t; u++)
        for (int k = 0; k < r; k++)
            for (int a = 0; a < m; a++) {
                int64_t sum = 0;
                for (int i = 0; i < z.t; i++)
                    sum += z.at[a][i] * z.g[i][k] * (all / z.den[i]) * z.bt[i][u];
                if (sum != (u == a + k ? all : 0)) return false;
            }
    return true;
}

static bool all_filters(void) {
    bool ok = !ein__toom_cook(4, 4, &(ein__toom){0}) && !ein__toom_cook(0, 3, &(ein__toom){0});
    for (int m = 1; m <= EIN__POINTS; m++)
        for (int r = 1; m + r - 1 <= EIN__POINTS; r++) ok &= m + r == 2 || filters(m, r);
    return ok;
}

static void applied_right(const char *path, int small) {
    size_t n = 0;
    char *text = read_text(path, &n);
    ein_desc desc = {.small = small};
    ein_ctx *ctx = ein_open(&desc);
    bool ok = text && !ein_add_model(ctx, path, text, n) && !ein_plan(ctx);
    CHECK(ok, "%s%s: %s", path, small ? " --small" : "", ein_error(ctx));
    ein_close(ctx);
    free(text);
}

static void check_models(int n, char **paths) {
    bool both = true;
    CHECK(all_filters(), "the matrices of a basis change");
    for (int i = 0; i < n; i++) {
        both &= strcmp(paths[i], "--") != 0;
        for (int small = !both; small < 2 && strcmp(paths[i], "--"); small++)
            applied_right(paths[i], small);
    }
    CHECK(ein__steps_checked > 100, "%lld rule applications", (long long)ein__steps_checked);
    printf("%lld rule applications\n", (long long)ein__steps_checked);
}
