// A program that knows of emitted code what its header says: two models, several handles, streams
// and graphs, and calls that a first program gets wrong. What must fail does, with a reason, and
// what follows it works. test_program.sh emits the models, m.ein by the prefix `net`.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "other.h"

static int passed, failed;

#define CHECK(what)                                        \
    do {                                                   \
        if (what) {                                        \
            passed++;                                      \
        } else {                                           \
            failed++;                                      \
            printf("FAIL line %d: %s\n", __LINE__, #what); \
        }                                                  \
    } while (0)

static void *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        printf("%s cannot be read\n", path);
        exit(5);
    }
    *size = (size_t)ftell(file);
    void *data = malloc(*size);
    rewind(file);
    if (!data || fread(data, 1, *size, file) != *size) exit(5);
    fclose(file);
    return data;
}

// The handle of a create that has to fail refuses all calls with that reason.
static void refused(const void *weights, size_t size, const net_options *o, const char *why) {
    net *m = NULL;
    CHECK(net_create(&m, weights, size, o) != 0);
    CHECK(m && strstr(net_error(m), why));
    CHECK(net_run(m, NULL, NULL, 0) != 0 && strstr(net_error(m), why));
    CHECK(net_capture(m, NULL, NULL) != 0 && strstr(net_error(m), why));
    net_destroy(m);
}

static void wrong_creates(const void *weights, size_t size, const void *others, size_t bytes) {
    net_options options = {};
    options.arena = (void *)8;
    refused(NULL, size, NULL, "NULL");
    refused(weights, 0, NULL, "size");
    refused(weights, size - 1, NULL, "size");
    refused(weights, size + 256, NULL, "size");
    refused(others, bytes, NULL, "size");
    refused(weights, size, &options, "256-byte aligned");
    CHECK(net_create(NULL, weights, size, NULL) != 0);
    CHECK(net_run(NULL, NULL, NULL, 0) != 0 && net_capture(NULL, NULL, NULL) != 0);
    CHECK(strstr(net_error(NULL), "no handle"));
    net_destroy(NULL);
}

static int same(const void *a, const void *b, size_t bytes) {
    char *x = (char *)malloc(bytes), *y = (char *)malloc(bytes);
    cudaDeviceSynchronize();
    cudaMemcpy(x, a, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(y, b, bytes, cudaMemcpyDeviceToHost);
    int equal = !memcmp(x, y, bytes);
    free(x);
    free(y);
    return equal;
}

static void wrong_runs(net *m, char *x, char *y) {
    const void *in[] = {x}, *none[] = {NULL}, *odd[] = {x + 4};
    void *out[] = {y}, *nowhere[] = {NULL};
    CHECK(net_run(m, NULL, out, 0) != 0 && strstr(net_error(m), "no list"));
    CHECK(net_run(m, in, NULL, 0) != 0 && strstr(net_error(m), "no list"));
    CHECK(net_run(m, none, out, 0) != 0 && strstr(net_error(m), "x: "));
    CHECK(net_run(m, odd, out, 0) != 0 && strstr(net_error(m), "16-byte aligned"));
    CHECK(net_run(m, in, nowhere, 0) != 0 && strstr(net_error(m), "y: "));
    CHECK(net_capture(m, none, out) != 0 && strstr(net_error(m), "x: "));
}

int main(void) {
    size_t size, bytes;
    void *weights = read_all("net.weights", &size), *others = read_all("other.weights", &bytes);
    const net_info *info = net_describe();
    CHECK(info->inputs == 1 && info->outputs == 1 && size == info->weight_bytes);
    wrong_creates(weights, size, others, bytes);

    net *a = NULL, *b = NULL;
    other *c = NULL;
    CHECK(!net_create(&a, weights, size, NULL) && !net_create(&b, weights, size, NULL));
    CHECK(!other_create(&c, others, bytes, NULL) && !*other_error(c));
    free(weights);
    free(others);
    float values[64] = {1, -2, 3, -4};
    char *x, *y[3];
    cudaStream_t stream[2];
    cudaMalloc((void **)&x, info->input->bytes);
    cudaMemcpy(x, values, info->input->bytes, cudaMemcpyHostToDevice);
    for (int i = 0; i < 3; i++) cudaMalloc((void **)&y[i], info->output->bytes);
    for (int i = 0; i < 2; i++) cudaStreamCreate(&stream[i]);
    const void *in[] = {x};
    void *first[] = {y[0]}, *second[] = {y[1]}, *third[] = {y[2]};
    CHECK(!net_run(a, in, first, stream[0]) && !net_run(b, in, second, stream[1]));
    CHECK(same(y[0], y[1], info->output->bytes));
    wrong_runs(a, x, y[0]);
    // A graph, a run beside it, another graph in its place that a wrong call leaves.
    CHECK(!net_capture(a, in, second) && !net_run(a, in, second, stream[1]));
    CHECK(!net_run(a, in, third, stream[1]) && same(y[0], y[2], info->output->bytes));
    CHECK(!net_capture(a, in, third) && same(y[0], y[1], info->output->bytes));
    wrong_runs(a, x, y[0]);
    CHECK(!net_run(a, in, third, stream[0]) && !*net_error(a));
    CHECK(same(y[0], y[2], info->output->bytes));

    net_destroy(b);
    net_destroy(a);
    other_destroy(c);
    cudaFree(x);
    for (int i = 0; i < 3; i++) cudaFree(y[i]);
    for (int i = 0; i < 2; i++) cudaStreamDestroy(stream[i]);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
