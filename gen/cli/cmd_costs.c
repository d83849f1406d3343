// cmd_costs.c - the `einnet costs` command: tables of measured costs as one.
#include "cmd.h"

#include <string.h>

int cmd_costs(const cmd_args *args) {
    const char *path = cmd_get(args, "output");
    cmd_text text = {NULL, 0};
    int code = CLI_OK;
    if (cmd_get(args, "gpu") && !cmd_get(args, "estimates")) {
        return cmd_usage(args, "--gpu goes with --estimates");
    }
    for (int i = 0; i < args->operands && path && !code; i++) {
        cmd_args one = *args;
        one.operand[0] = args->operand[i];
        code = cmd_check_output(&one, path, NULL, 0);
    }
    ein_ctx *ctx = code ? NULL : cmd_open_tables(args, &code);
    if (!ctx) {
        return code;
    }
    code = cmd_render(ctx, cmd_get(args, "estimates") ? EIN_ESTIMATES : EIN_COSTS, &text);
    ein_close(ctx);
    if (!code) {
        code = cmd_write_text(path ? path : "-", &text);
    }
    cmd_text_free(&text);
    return code;
}
