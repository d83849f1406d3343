// Every application of a derivation rule on the models given is checked: both sides modulo 2^61-1
// at random places. One check per model and size, and one that rules were applied at all. Ends with
// `N passed, N failed`.
#define EIN_CHECK_STEPS 3
#define EINNET_IMPLEMENTATION
#include "all.h"

static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    if (!f) return NULL;
    if (!fseek(f, 0, SEEK_END)) {
        long size = ftell(f);
        rewind(f);
        text = size >= 0 ? malloc((size_t)size + 1) : NULL;
        *n = text ? fread(text, 1, (size_t)size, f) : 0;
    }
    fclose(f);
    return text;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    for (int i = 1; i < argc; i++)
        for (int small = 0; small < 2; small++) {
            size_t n = 0;
            char *text = read_text(argv[i], &n);
            ein_desc desc = {.small = small};
            ein_ctx *ctx = ein_open(&desc);
            bool ok = text && !ein_add_model(ctx, argv[i], text, n) && !ein_plan(ctx);
            passed += ok;
            failed += !ok;
            if (!ok) printf("FAIL %s%s: %s", argv[i], small ? " --small" : "", ein_error(ctx));
            ein_close(ctx);
            free(text);
        }
    bool applied = ein__steps_checked > 100;
    passed += applied;
    failed += !applied;
    printf("%lld rule applications\n%d passed, %d failed\n", (long long)ein__steps_checked, passed,
           failed);
    return failed != 0;
}
