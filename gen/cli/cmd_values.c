// cmd_values.c - values of one tensor that the command line names, from a .npy file.
#include "cmd.h"

#include <stdio.h>
#include <string.h>

static void print_shape(FILE *out, const char *dtype, int rank, const int64_t *dims) {
    fprintf(out, "%s[", dtype);
    for (int d = 0; d < rank; d++) {
        fprintf(out, "%s%lld", d ? "," : "", (long long)dims[d]);
    }
    fputc(']', out);
}

int cmd_wrong_type(const ein_tensor_info *info, cli_dtype dtype, int rank, const int64_t *dims) {
    char shown[300];
    print_shape(stderr, dtype ? cli_dtype_name(dtype) : "of another type, ", rank, dims);
    fprintf(stderr, ", but '%s' is ", cli_escape(shown, sizeof shown, info->name));
    print_shape(stderr, info->dtype, info->rank, info->dims);
    fputc('\n', stderr);
    return CLI_BAD_INPUT;
}

int cmd_read_values(const char *path, const ein_tensor_info *info, cli_tensor *tensor) {
    cli_error error;
    char shown[300];
    if (!cli_npy_read(path, tensor, &error)) {
        return cmd_report(&error);
    }
    if (tensor->dtype == cli_dtype_by_name(info->dtype) && tensor->rank == info->rank &&
        !memcmp(tensor->dims, info->dims, (size_t)info->rank * sizeof *info->dims)) {
        return CLI_OK;
    }
    fprintf(stderr, "einnet: %s: ", cli_escape(shown, sizeof shown, path));
    int code = cmd_wrong_type(info, tensor->dtype, tensor->rank, tensor->dims);
    cli_tensor_free(tensor);
    return code;
}
