// Every row of the rule table on models (models.h), or on random scopes and programs (scopes.h).
// There each definition that a rule of search adds is evaluated on both sides modulo 2^61-1, at
// every place of a small result, and the cheapest derivation as a whole; the other rows by their
// laws (laws.h), on the scope and on some of the definitions that the rules made. Seeds are fixed.
// Arguments: how many scopes, the first seed, and `stop` to end with the first wrong scope; or
// `models` and their files. Ends with `N passed, N failed`.
static int checked_places = 48;
#define EIN_CHECK_STEPS checked_places
#define EINNET_IMPLEMENTATION
#include "all.h"
#include "algebra.h"
#include "scopes.h"
#include "laws.h"
#include "text.h"
#include "models.h"

enum {
    SCOPES = 4000,
    DEPTH = 4,     // rules in a row
    STATES = 200,  // definitions of one scope
    ENOUGH = 80,   // applications that every rule must have in SCOPES of them
    FEW = 1000,    // scopes, of which that is not asked
    SPREAD = 8     // of so many definitions one is tried with the laws
};

// ------------------------------------------------------------------------------------ rules

static int64_t applied[EIN__NRULES], in_scopes[EIN__NRULES], limits;

// The smallest scope that a rule got wrong, as text.
typedef struct wrong {
    int64_t volume;
    char text[4000];
} wrong;
static wrong smallest[EIN__NRULES + 1];

// Two values that should be one, with all that they read; `b` may be none.
static void keep_smallest(ein_ctx *ctx, ein__val a, ein__val b, wrong *w) {
    ein__buf text = {0};
    int64_t volume = ein__extent_of(ein__scope_of(ctx, a), ~0u);
    if (w->volume && w->volume <= volume) return;
    w->volume = volume;
    ein__val *order = ein__live(ctx, (ein__val[]){a, b}, b.i ? 2 : 1);
    for (ptrdiff_t i = 0; i < arrlen(order); i++) {
        ein__print_value(ctx, order[i], &text);
        ein__put(&text, "\n");
    }
    arrfree(order);
    snprintf(w->text, sizeof w->text, "%s%s", text.s, ein_error(ctx));
    ein__buf_free(&text);
}

// The rules by turns on every definition, as the search does, so that each is charged with what it
// adds and no budget of the search hides one.
static int explore(ein__deriver *z) {
    arrput(z->cls, z->problem);
    ein__add_def(z, z->problem, ein__scope_of(z->ctx, z->problem), -1, NULL, false);
    for (ptrdiff_t i = 0; i < arrlen(z->def); i++) {
        if (z->def[i].depth >= DEPTH) continue;
        for (int r = 0; r < EIN__NRULES; r++) {
            int64_t before = ein__steps_checked;
            if (!ein__rules[r].apply) continue;
            ein__attempt attempt = ein__try(z->ctx);
            ein__rules[r].apply(z, (int)i);
            limits += !ein__tried(z->ctx, attempt);
            applied[r] += ein__steps_checked - before;
            in_scopes[r] += ein__steps_checked > before;
            if (z->ctx->status) return r;
        }
    }
    return -1;
}

// One law on contraction `v`.
static void one_law(ein_ctx *ctx, ein__val v, const law *l, uint64_t seed) {
    const char *name = ein__rules[l->rule].name;
    ein__attempt attempt = ein__try(ctx);
    sides z = l->of(ctx, v);
    bool met = !ctx->status, tried = ein__tried(ctx, attempt);
    limits += !tried || !met;
    if (!met || !z.a.i || ctx->status) {
        if (ctx->status) keep_smallest(ctx, v, (ein__val){0}, &smallest[l->rule]);
        CHECK(!ctx->status, "scope %llu: rule '%s': %s", (unsigned long long)seed, name,
              ein_error(ctx));
        return;
    }
    bool equal = z.b.i && ein__evalp_equal(ctx, z.a, z.b, EIN_CHECK_STEPS, seed);
    if (!equal) keep_smallest(ctx, z.a, z.b, &smallest[l->rule]);
    CHECK(equal, "scope %llu: rule '%s' changes the value %s", (unsigned long long)seed, name,
          ein_error(ctx));
    applied[l->rule]++;
    in_scopes[l->rule]++;
}

// The laws on the scope, and those of steps and ranges on some definitions of its derivation.
static void all_laws(ein_ctx *ctx, ein__deriver *z, ein__val v, uint64_t seed) {
    for (int l = 0; l < NLAWS && !ctx->status; l++) one_law(ctx, v, &laws[l], seed);
    ptrdiff_t n = arrlen(z->def), first = random_in(1, SPREAD);
    for (ptrdiff_t i = first; i < n && !ctx->status; i += SPREAD) {
        const ein__scope *s = ein__sc_get(ctx, z->def[i].sc);
        const ein__expr *read[2];
        double alpha;
        bool product = ein__two_factors(ctx, s, read, &alpha);
        ein__val other = scope_value(ctx, "d", s);
        for (int l = 0; l < NLAWS && other.i && !ctx->status; l++)
            if (laws[l].rule == EIN__RULE_KERNEL || (product && laws[l].rule == EIN__RULE_MATCH))
                one_law(ctx, other, &laws[l], seed);
    }
}

// One scope with all rules, then the cheapest derivation of it as a whole.
static void one_scope(uint64_t seed) {
    // Channels are padded for tensor cores alone.
    ein_math math = seed % 4 ? EIN_MATH_FP32 : EIN_MATH_TF32;
    ein_ctx *ctx = ein_open(&(ein_desc){.states = STATES, .math = math});
    if (!ctx) exit(5);
    random_state = seed * 1000003;
    ein__val v = random_contraction(ctx);
    ein__deriver z = ein__deriver_of(ctx, v, (ein__val){0}, (ein__ex){0});
    ein__realiser realiser = {.z = &z};
    if (v.i) {
        int rule = explore(&z);
        if (rule >= 0) keep_smallest(ctx, v, (ein__val){0}, &smallest[rule]);
        CHECK(rule < 0, "scope %llu: rule '%s': %s", (unsigned long long)seed,
              rule < 0 ? "" : ein__rules[rule].name, ein_error(ctx));
    }
    if (v.i && !ctx->status) {
        ein__class_cost(&z, v);
        ein__val best = ein__realise(&realiser, v);
        bool equal = best.i && ein__evalp_equal(ctx, v, best, EIN_CHECK_STEPS, seed);
        if (!equal) keep_smallest(ctx, v, best, &smallest[EIN__NRULES]);
        CHECK(equal, "scope %llu: the cheapest derivation differs: %s", (unsigned long long)seed,
              ein_error(ctx));
    }
    if (v.i && !ctx->status) all_laws(ctx, &z, v, seed);
    arrfree(realiser.made);
    arrfree(realiser.by_scope);
    ein__deriver_free(&z);
    ein_close(ctx);
}

static void check_scopes(int argc, char **argv) {
    uint64_t count = argc > 1 ? (uint64_t)strtoull(argv[1], NULL, 10) : SCOPES;
    uint64_t first = argc > 2 ? (uint64_t)strtoull(argv[2], NULL, 10) : 1;
    bool stop = argc > 3;
    for (uint64_t seed = first; seed < first + count && !(stop && failed); seed++) one_scope(seed);
    for (int r = 0; r < EIN__NRULES; r++) {
        printf("%-10s %8lld applications in %6lld definitions\n", ein__rules[r].name,
               (long long)applied[r], (long long)in_scopes[r]);
        if (count > FEW && !stop)
            CHECK(applied[r] * SCOPES >= ENOUGH * (int64_t)count,
                  "rule '%s' was applied %lld times", ein__rules[r].name, (long long)applied[r]);
    }
    printf("%lld attempts met a limit\n", (long long)limits);
    for (int r = 0; r <= EIN__NRULES; r++)
        if (smallest[r].volume)
            printf("smallest scope that %s gets wrong:\n%s\n",
                   r < EIN__NRULES ? ein__rules[r].name : "the choice", smallest[r].text);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "models")) {
        checked_places = 2;
        check_models(argc - 2, argv + 2);
    } else {
        check_scopes(argc, argv);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
