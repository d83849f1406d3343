// The tests that see the library's inside, as one program: the algebra, the estimates, the API,
// what plans leave. `test_units table` prints estimates of well-known calls; `test_units MODEL...`
// also checks the algebra of these models. Ends with `N passed, N failed`.
#include <stdlib.h>

static int allocations_left = -1;  // of test_api.c; below 0: any number

static void *limited_realloc(void *p, size_t n) {
    if (!allocations_left) return NULL;
    return realloc(p, n);
}

#define EIN_REALLOC(p, n) limited_realloc(p, n)
#define EIN_FREE(p) free(p)
#define EINNET_IMPLEMENTATION
#include "all.h"

#include "algebra.h"
#include "test_algebra.c"
#include "test_api.c"
#include "test_cost.c"
#include "test_unmake.c"

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "table")) {
        test_cost(true);
        return 0;
    }
    test_algebra();
    test_api();
    test_cost(false);
    test_unmake();
    for (int i = 1; i < argc; i++) check_model(argv[i]);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || !passed;
}
