// What the order of the search is worth, and what expression distances say. The papers' targets
// must be found with a smaller budget best first than breadth first, and best first must come to
// the same definitions where no budget binds; a distance is 0 exactly where the matcher accepts.
// Choices among definitions are kept by the map behind the problem. Arguments: `-v` prints the
// budgets; then models. Ends with `N passed, N failed`.
#define EINNET_IMPLEMENTATION
#include "all.h"
#include "text.h"

static int passed, failed;

static void check(bool good, const char *format, ...) {
    va_list args;
    passed += good;
    failed += !good;
    if (good) return;
    va_start(args, format);
    printf("FAIL ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

// ------------------------------------------------------------------------------------ targets

typedef struct target {
    const char *name, *model;
    bool conv;
    int64_t size[4];  // GEMM: m, n, k with m and n in any order; conv: c, f, filter, stride
} target;

static const target targets[] = {
    {"conv3x3 to GEMM and offset-reduce",
     "input x: f32[1,512,7,7]\nweight k: f32[512,512,3,3] = randn()\noutput y\n"
     "y = Conv(x, k; pads=1)\n",
     false,
     {49, 4608, 512, 0}},
    {"conv3x3 of other sizes",
     "input x: f32[2,19,9,8]\nweight k: f32[13,19,3,3] = randn()\noutput y\n"
     "y = Conv(x, k; pads=1)\n",
     false,
     {144, 117, 19, 0}},
    {"conv5x5 to conv3x3 of 4 times the channels",
     "input x: f32[16,32,224,224]\nweight k: f32[1,32,5,5] = randn()\noutput y\n"
     "y = Conv(x, k; pads=2)\n",
     true,
     {32, 4, 3, 1}},
    {"transposed conv to GEMM and selective add",
     "input x: f32[16,448,2,2]\nweight k: f32[448,256,4,4] = randn()\noutput y\n"
     "y = ConvTranspose(x, k; strides=2, pads=1)\n",
     false,
     {64, 4096, 448, 0}},
    {"transposed conv to one conv",
     "input x: f32[16,448,2,2]\nweight k: f32[448,256,4,4] = randn()\noutput y\n"
     "y = ConvTranspose(x, k; strides=2, pads=1)\n",
     true,
     {448, 1024, 2, 1}},
};

static bool is_target(ein_ctx *ctx, const ein__scope *s, const target *t) {
    const int64_t *n = t->size;
    if (t->conv) {
        int64_t out[EIN__MAX_RANK];
        ein__conv_form f;
        ein__dense_result(s, out);
        return ein__find_conv(ctx, s, out, &f) && ein__conv_sizes(&f) && !f.transposed &&
               f.c.c == n[0] && f.c.f == n[1] && f.c.k[0] == n[2] && f.c.stride[0] == n[3];
    }
    ein__gemm g;
    return ein__best_gemm(ctx, s, true, &g, NULL) && g.batch == 1 && g.k == n[2] &&
           ((g.m == n[0] && g.n == n[1]) || (g.m == n[1] && g.n == n[0]));
}

// Whether value `v` is needed for some definition of the problem.
static bool is_used(ein__deriver *z, ein__val v) {
    if (v.i == z->problem.i) return true;
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
        bool reader = false;
        if (z->def[i].cls.i == v.i) continue;
        const ein__ex *reads = ein__ex_reads(z->ctx, ein__sc_get(z->ctx, z->def[i].sc)->body);
        for (ptrdiff_t k = 0; k < arrlen(reads); k++)
            reader |= ein__ex_get(z->ctx, reads[k])->val == v.i;
        if (reader && is_used(z, z->def[i].cls)) return true;
    }
    return false;
}

static bool has_target(ein__deriver *z, const target *t) {
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++)
        if (is_target(z->ctx, ein__sc_get(z->ctx, z->def[i].sc), t) && is_used(z, z->def[i].cls))
            return true;
    return false;
}

// The least budget that `explore` finds the target with; 0: none.
static int least_states(ein_ctx *ctx, const target *t, void (*explore)(ein__deriver *)) {
    enum { MOST = 300 };
    for (int n = 1; n <= MOST; n++) {
        ein__deriver z =
            ein__deriver_of(ctx, ctx->search->problem[0]->z.problem, (ein__val){0}, (ein__ex){0});
        ctx->desc.states = n;
        explore(&z);
        bool found = has_target(&z, t);
        ein__deriver_free(&z);
        if (found) return n;
    }
    return 0;
}

static ein_ctx *planned(const char *name, const char *text, size_t n) {
    ein_ctx *ctx = ein_open(NULL);
    if (ein_add_model(ctx, name, text, n) || ein_plan(ctx)) {
        check(false, "%s: %s", name, ein_error(ctx));
        ein_close(ctx);
        return NULL;
    }
    return ctx;
}

static void check_target(const target *t, bool verbose) {
    char text[400];
    int n = snprintf(text, sizeof text, "ein 1\nmodel target\n%s", t->model);
    ein_ctx *ctx = planned(t->name, text, (size_t)n);
    if (!ctx) return;
    int breadth = least_states(ctx, t, ein__explore_in_breadth);
    int best = least_states(ctx, t, ein__explore_best_first);
    ctx->desc.no_converge = true;
    int unguided = least_states(ctx, t, ein__explore_in_breadth);
    if (verbose)
        printf("%s: %d definitions best first, %d breadth first, %d without convergence\n", t->name,
               best, breadth, unguided);
    check(best && breadth && best < breadth, "%s: %d definitions best first, %d breadth first",
          t->name, best, breadth);
    ein_close(ctx);
}

// ------------------------------------------------------------------------------------ models

// Distance 0 is what the matcher accepts, EIN__FAR what has an iterator too many or is no product.
static void check_distances(ein__deriver *z, const char *name) {
    for (int i = 0; i < (int)arrlen(z->def); i++) {
        const ein__scope *s = ein__sc_get(z->ctx, z->def[i].sc);
        int64_t out[EIN__MAX_RANK];
        ein__conv_form f;
        ein__band b;
        ein__gemm g;
        ein__dense_result(s, out);
        bool conv = ein__find_conv(z->ctx, s, out, &f) && ein__conv_sizes(&f);
        bool gemm = ein__best_gemm(z->ctx, s, z->def[i].cls.i != z->problem.i, &g, NULL);
        int to_gemm = ein__def_distance(z, i, EIN__TO_GEMM);
        int to_conv = ein__def_distance(z, i, EIN__TO_CONV);
        int to_band = ein__def_distance(z, i, EIN__TO_BAND);
        bool product = ein__is_contraction(z->ctx, s);
        check((to_conv == 0) == conv, "%s: definition %d, convolution", name, i);
        check(to_gemm ? !gemm || g.batch > 1 : gemm, "%s: definition %d, GEMM", name, i);
        check((to_band == 0) == ein__match_band(z->ctx, s, &b), "%s: definition %d, band", name, i);
        check(product || (to_gemm & to_conv & to_band) == EIN__FAR, "%s: definition %d", name, i);
    }
}

static int unsaturated;  // problems that a limit of the search ends

// Where nothing binds, both orders come to as many definitions and to the same cost.
static void check_orders(ein_ctx *ctx, const ein__problem *p, const char *name) {
    ptrdiff_t n[2];
    int64_t ps[2];
    bool saturated = true;
    for (int k = 0; k < 2; k++) {
        ein__deriver z = ein__deriver_of(ctx, p->z.problem, (ein__val){0}, (ein__ex){0});
        (k ? ein__explore_best_first : ein__explore_in_breadth)(&z);
        n[k] = arrlen(z.def);
        ps[k] = ein__class_cost(&z, z.problem);
        saturated &= z.stop == EIN_STOP_SATURATED;
        ein__deriver_free(&z);
    }
    unsaturated += !saturated;
    check(n[0] == n[1] && ps[0] == ps[1],
          "%s: %d definitions, %lld ps breadth first, %d, %lld ps best first", name, (int)n[0],
          (long long)ps[0], (int)n[1], (long long)ps[1]);
}

static void check_model(const char *path) {
    size_t n = 0;
    char *text = read_text(path, &n);
    ein_ctx *ctx = text ? planned(path, text, n) : NULL;
    check(text != NULL, "%s: cannot be read", path);
    free(text);
    if (!ctx) return;
    for (ptrdiff_t i = 0; i < arrlen(ctx->search->problem); i++) {
        check_distances(&ctx->search->problem[i]->z, path);
        check_orders(ctx, ctx->search->problem[i], path);
    }
    ein_close(ctx);
}

// A choice is shared by maps that differ in names alone, and by no others of the same cost.
static void check_choices(void) {
    static const char text[] =
        "ein 1\nmodel maps\ninput x: f32[1,8,9,9]\noutput a, b, c\n"
        "weight k: f32[8,8,3,3] = randn()\nweight l: f32[8,8,3,3] = randn()\n"
        "weight m: f32[8,8,3,3] = randn()\nweight u: f32[1,8,9,9] = randn()\n"
        "weight v: f32[1,8,9,9] = randn()\nweight w: f32[1,8,9,9] = randn()\n"
        "p = Conv(x, k; pads=1)\nq = Conv(x, l; pads=1)\nr = Conv(x, m; pads=1)\n"
        "a[n,f,h,j] = p[n,f,h,j] * u[n,f,h,j]\nb[n,f,h,j] = q[n,f,h,j] * v[n,f,h,j]\n"
        "c[n,f,h,j] = r[n,f,h,j] - w[n,f,h,j]\n";
    ein_desc desc = {.rules = "-merge"};
    ein_ctx *ctx = ein_open(&desc);
    check(!ein_add_model(ctx, "maps", text, sizeof text - 1) && !ein_plan(ctx), "%s",
          ein_error(ctx));
    const ein__search *z = ctx->search;
    check(z && arrlen(z->problem) == 1 && arrlen(z->problem[0]->choice) == 2,
          "%d choices for two different maps",
          z && arrlen(z->problem) ? (int)arrlen(z->problem[0]->choice) : 0);
    ein_close(ctx);
}

int main(int argc, char **argv) {
    int first = 1;
    bool verbose = argc > 1 && !strcmp(argv[1], "-v");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        check_target(&targets[i], verbose);
    check_choices();
    for (first += verbose; first < argc; first++) check_model(argv[first]);
    check(unsaturated <= 2, "%d problems are not searched to their end", unsaturated);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
