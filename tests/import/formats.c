// Tests of the file formats of the command line: .npy, safetensors, element types, whole files.
// usage: formats FOLDER
#define _POSIX_C_SOURCE 200809L

#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;
static char path[512];

static void check(bool good, const char *what, int line) {
    passed += good;
    failed += !good;
    if (!good) {
        printf("FAILED formats.c:%d: %s\n", line, what);
    }
}

#define CHECK(condition) check(condition, #condition, __LINE__)

// ---- element types ----

static void test_halves(void) {
    // Every f16 and bf16 bit pattern survives the round trip; NaNs stay NaNs.
    int wrong = 0;
    for (int i = 0; i < 65536; i++) {
        double half = cli_from_f16((uint16_t)i), brain = cli_from_bf16((uint16_t)i);
        wrong += isnan(half) ? !isnan(cli_from_f16(cli_to_f16(half))) : cli_to_f16(half) != i;
        wrong += isnan(brain) ? !isnan(cli_from_bf16(cli_to_bf16(brain))) : cli_to_bf16(brain) != i;
    }
    CHECK(wrong == 0);
    CHECK(cli_to_f16(65519.99) == 0x7bff && cli_to_f16(65520) == 0x7c00);
    CHECK(cli_to_f16(ldexp(1, -25)) == 0 && cli_to_f16(ldexp(1.0001, -25)) == 1);
    CHECK(cli_to_f16(1 + ldexp(1, -11)) == 0x3c00 && cli_to_f16(1 + 3 * ldexp(1, -11)) == 0x3c02);
    CHECK(cli_to_f16(-0.0) == 0x8000 && cli_to_f16(2047.9) == 0x6800);
    CHECK(cli_from_f16(0x3555) == 0.333251953125 && cli_from_f16(1) == ldexp(1, -24));
}

static void test_elements(void) {
    int8_t i8[2];
    uint8_t u8[2];
    int64_t i64[2];
    cli_set(CLI_I8, i8, 0, -129.7);
    cli_set(CLI_I8, i8, 1, 3.9);
    CHECK(i8[0] == -128 && i8[1] == 3);
    cli_set(CLI_U8, u8, 0, -1);
    cli_set(CLI_U8, u8, 1, 300);
    CHECK(u8[0] == 0 && u8[1] == 255);
    cli_set(CLI_I64, i64, 0, 1e30);
    cli_set(CLI_I64, i64, 1, (double)NAN);
    CHECK(i64[0] == INT64_MAX && i64[1] == 0 && cli_get(CLI_I64, i64, 0) == 9223372036854775808.0);
    CHECK(cli_dtype_by_name("bf16") == CLI_BF16 && cli_dtype_by_name("?") == CLI_NONE);
    int64_t count, big[3] = {1LL << 40, 1LL << 40, 1}, none[3] = {1LL << 61, 0, 1};
    CHECK(!cli_count(3, big, &count) && cli_count(3, none, &count) && count == 0);
    CHECK(cli_count(0, NULL, &count) && count == 1);
}

// ---- .npy ----

static void test_npy(void) {
    for (cli_dtype type = CLI_F32; type <= CLI_BOOL; type++) {
        uint8_t data[64] = {0};
        cli_tensor t = {.dtype = type, .rank = 3, .dims = {1, 2, 3}, .data = data}, back;
        cli_error error = {0, ""};
        t.bytes = 6 * cli_dtype_size(type);
        for (int i = 0; i < 6; i++) {
            cli_set(type, data, i, type == CLI_BOOL ? i & 1 : i + 1);
        }
        CHECK(cli_npy_write(path, &t, &error));
        CHECK(cli_npy_read(path, &back, &error));
        CHECK(back.rank == 3 && !memcmp(back.dims, t.dims, 24));
        if (type == CLI_BF16) {
            CHECK(back.dtype == CLI_F32 && cli_get(CLI_F32, back.data, 5) == 6);
        } else {
            CHECK(back.dtype == type && back.bytes == t.bytes && !memcmp(back.data, data, t.bytes));
        }
        cli_tensor_free(&back);
    }
    float one = 2.5f;
    cli_tensor scalar = {.dtype = CLI_F32, .bytes = 4, .data = &one}, back;
    cli_tensor empty = {.dtype = CLI_F32, .rank = 1};
    cli_error error;
    CHECK(cli_npy_write(path, &scalar, &error) && cli_npy_read(path, &back, &error));
    CHECK(back.rank == 0 && cli_get(CLI_F32, back.data, 0) == 2.5);
    cli_tensor_free(&back);
    CHECK(cli_npy_write(path, &empty, &error) && cli_npy_read(path, &back, &error));
    CHECK(back.rank == 1 && back.dims[0] == 0 && back.bytes == 0);
    cli_tensor_free(&back);
}

static void test_npy_fortran(void) {
    // numpy's file of [[1, 2, 3], [4, 5, 6]] in Fortran order, big-endian int16
    static const char head[] = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n";
    static const uint8_t data[] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6};
    uint8_t file[200] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, sizeof head - 1, 0};
    memcpy(file + 10, head, sizeof head - 1);
    memcpy(file + 10 + sizeof head - 1, data, sizeof data);
    cli_error error;
    cli_tensor t;
    CHECK(cli_file_write(path, file, 10 + sizeof head - 1 + sizeof data, &error));
    bool good = cli_npy_read(path, &t, &error);
    CHECK(good);
    for (int i = 0; good && i < 6; i++) {
        CHECK(cli_get(CLI_I16, t.data, i) == i + 1);
    }
    cli_tensor_free(&t);
}

// ---- safetensors ----

static void test_safetensors(void) {
    float a[6] = {1, 2, 3, 4, 5, 6};
    uint8_t b[3] = {1, 0, 1};
    uint16_t h = 0x3c00;
    cli_st_tensor items[] = {
        {.name = "z", .dtype = CLI_F32, .rank = 2, .dims = {2, 3}, .bytes = 24, .data = a},
        {.name = "q\"\\\n\x7f\xc3\xbc",
         .dtype = CLI_BOOL,
         .rank = 1,
         .dims = {3},
         .bytes = 3,
         .data = b},
        {.name = "", .dtype = CLI_BF16, .rank = 0, .bytes = 2, .data = &h},
        {.name = "none", .dtype = CLI_I64, .rank = 2, .dims = {0, 5}},
    };
    cli_error error = {0, ""};
    cli_safetensors file;
    CHECK(cli_safetensors_write(path, items, 4, &error));
    CHECK(cli_safetensors_open(path, &file, &error));
    CHECK(file.count == 4);
    for (int i = 0; i < 4; i++) {
        const cli_st_tensor *t = cli_safetensors_find(&file, items[i].name);
        CHECK(t && t->dtype == items[i].dtype && t->rank == items[i].rank &&
              t->bytes == items[i].bytes && !memcmp(t->dims, items[i].dims, sizeof t->dims) &&
              (!t->bytes || !memcmp(t->data, items[i].data, t->bytes)));
    }
    CHECK(!cli_safetensors_find(&file, "nothing"));
    cli_safetensors_close(&file);
    CHECK(cli_safetensors_write(path, NULL, 0, &error));
    CHECK(cli_safetensors_open(path, &file, &error));
    CHECK(file.count == 0 && !cli_safetensors_find(&file, "z"));
    cli_safetensors_close(&file);
}

static bool opens(const char *json, uint64_t length, size_t room) {
    uint8_t *bytes = cli_alloc(8 + strlen(json) + room);
    cli_safetensors file;
    cli_error error = {0, ""};
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json, strlen(json));
    bool written = cli_file_write(path, bytes, 8 + strlen(json) + room, &error);
    bool good = written && cli_safetensors_open(path, &file, &error);
    if (good) {
        cli_safetensors_close(&file);
    } else if (!written || error.code != CLI_BAD_INPUT || strncmp(error.text, path, strlen(path))) {
        check(false, "a refusal names the file", __LINE__);
    }
    free(bytes);
    return good;
}

#define T(dtype, shape, range) \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}"
#define F32_2 T("\"F32\"", "[2]", "[0,8]")

static const struct {
    const char *json;
    size_t room;
    bool good;
} files[] = {
    {"{}", 0, true},
    {"{\"a\":" F32_2 "}   ", 8, true},
    {" {\"__metadata__\":{\"format\":\"pt\"},\"a\":" F32_2 "}", 8, true},
    {"{\"\\u00fc\\ud83d\\ude00\\n\":" F32_2 "}", 8, true},
    {"{\"b\":" T("\"F8_E4M3\"", "[3]", "[0,3]") "}", 3, true},
    {"{\"a\":" F32_2 ",\"b\":" T("\"F32\"", "[1]", "[8,12]") "}", 12, true},
    {"{\"a\":{\"data_offsets\":[0,8],\"shape\":[2],\"dtype\":\"F32\"}}", 8, true},
    {"{}", 1, false},
    {"[]", 0, false},
    {"", 0, false},
    {"{", 0, false},
    {"{\"a\"}", 0, false},
    {"{\"a\":1}", 0, false},
    {"{\"a\":" F32_2 "}", 9, false},
    {"{\"a\":" F32_2 "}", 7, false},
    {"{\"a\":" F32_2 ",\"a\":" T("\"F32\"", "[1]", "[8,12]") "}", 12, false},
    {"{\"a\":" F32_2 ",\"b\":" F32_2 "}", 8, false},
    {"{\"a\":" F32_2 ",\"b\":" T("\"F32\"", "[1]", "[4,8]") "}", 8, false},
    {"{\"a\":" F32_2 ",\"b\":" T("\"F32\"", "[1]", "[12,16]") "}", 16, false},
    {"{\"a\":" T("\"F32\"", "[3]", "[0,8]") "}", 8, false},
    {"{\"a\":" T("\"F16\"", "[2]", "[0,8]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[2]", "[8,0]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[-2]", "[0,8]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[2.0]", "[0,8]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "2", "[0,8]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[[2]]", "[0,8]") "}", 8, false},
    {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[2]", "[0,8,9]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[2]", "[0,18446744073709551616]") "}", 8, false},
    {"{\"a\":" T("\"F32\"", "[4611686018427387904,4]", "[0,0]") "}", 0, false},
    {"{\"a\":" T("\"F32\"", "[1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2]}}", 8, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, false},
    {"{\"a\\u0000\":" F32_2 "}", 8, false},
    {"{\"a\\ud800\":" F32_2 "}", 8, false},
    {"{\"a\\x\":" F32_2 "}", 8, false},
    {"{\"a\":" F32_2 "}{}", 8, false},
    {"{\"a\":" F32_2 ",}", 8, true},  // jsmn lets this pass, and it can do no harm
};

static void test_bad_safetensors(void) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bool good = opens(files[i].json, strlen(files[i].json), files[i].room);
        check(good == files[i].good, files[i].json, __LINE__);
    }
    const char *json = "{\"a\":" F32_2 "}";
    CHECK(!opens(json, UINT64_MAX, 8) && !opens(json, UINT64_MAX - 7, 8) && !opens(json, 1, 8));
    CHECK(!opens(json, 1u << 30, 8) && !opens(json, 0, 8));
    for (size_t i = 1; i < strlen(json); i++) {
        CHECK(!opens(json, i, 8));
    }
    char *deep = cli_alloc(100001);
    memset(deep, '[', 100000);
    CHECK(!opens(deep, 100000, 0));
    memset(deep, '{', 100000);
    CHECK(!opens(deep, 100000, 0));
    free(deep);
}

// ---- files ----

static void test_files(void) {
    cli_bytes bytes;
    cli_error error = {0, ""};
    CHECK(cli_file_write(path, "hello", 5, &error) && cli_file_read(path, 5, &bytes, &error));
    CHECK(bytes.size == 5 && !memcmp(bytes.data, "hello", 5));
    cli_file_release(&bytes);
    CHECK(!cli_file_read(path, 4, &bytes, &error) && error.code == CLI_BAD_INPUT);
    CHECK(cli_file_write(path, "", 0, &error) && cli_file_read(path, 0, &bytes, &error));
    CHECK(bytes.size == 0);
    cli_file_release(&bytes);
    CHECK(!cli_file_read("/dev/zero", 100000, &bytes, &error) && error.code == CLI_BAD_INPUT);
    CHECK(!cli_file_read("/", 100, &bytes, &error) && error.code == CLI_IO);
    CHECK(!cli_file_read("/nowhere/x", 100, &bytes, &error) && error.code == CLI_IO);
    CHECK(!cli_file_read_regular("/dev/null", &bytes, &error));
    CHECK(!cli_file_write("/nowhere/x", "a", 1, &error) && error.code == CLI_IO);
    CHECK(!cli_file_write("/dev/full", "a", 1, &error) && error.code == CLI_IO);
    CHECK(cli_same_file(path, path) && !cli_same_file(path, "/dev/null"));
    char shown[20];
    CHECK(!strcmp(cli_escape(shown, sizeof shown, "a\"b\\\n\xff"), "a\\\"b\\\\\\x0a\\xff"));
    CHECK(!strcmp(cli_escape(shown, sizeof shown, "01234567890123456789"), "0123456789012345..."));
}

int main(int argc, char **argv) {
    if (argc != 2) {
        return 2;
    }
    snprintf(path, sizeof path, "%s/formats_test", argv[1]);
    test_halves();
    test_elements();
    test_npy();
    test_npy_fortran();
    test_safetensors();
    test_bad_safetensors();
    test_files();
    remove(path);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
