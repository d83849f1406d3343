// main.c - the `einnet` program: the table of its commands.
#include "cmd.h"

#include <stdio.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define NO_OPTION \
    { NULL, NULL, NULL }

static const cmd_option output_option[] = {
    {"output", "FILE", "write there; standard output without it"},
    NO_OPTION,
};

static const cmd_option emit_options[] = {
    {"output", "OUT.cu", "the CUDA source; '-' is standard output"},
    {"header", "OUT.h", "the declarations of OUT.cu, for programs that call it"},
    {"test", "OUT_test.cu", "a program that compares OUT.cu with naive kernels, and times it"},
    {"form", "N", "each contraction by its N-th best derivation, to compare these"},
    NO_OPTION,
};

static const cmd_option check_options[] = {
    {"header", "OUT.h", "compare this file too"},
    {"test", "OUT_test.cu", "compare this file too"},
    {"form", "N", "as emit was given it"},
    NO_OPTION,
};

static const cmd_option fmt_options[] = {
    {"output", "FILE", "write there, which may be the model itself; standard output without it"},
    {"check", NULL, "print what would change; exit code 1 if something would"},
    NO_OPTION,
};

static const cmd_option pack_options[] = {
    {"output", "FILE", "the packed weights; '-' is standard output"},
    NO_OPTION,
};

static const cmd_option eval_options[] = {
    {"out", "DIR", "directory for the results: a file NAME.npy for each output"},
    {"in", "NAME=FILE.npy...",
     "values of an input; without it, those of its source, else random ones"},
    {"weights", "FILE", "weights from a file that einnet pack wrote"},
    NO_OPTION,
};

static const cmd_option import_options[] = {
    {"output", "MODEL.ein", "the model; default: standard output, which needs --weights"},
    {"weights", "FILE", "safetensors file for the weights; default: beside MODEL.ein"},
    {"name", "NAME", "the model's name"},
    {"dim", "NAME=N...", "the size of a symbolic dimension"},
    {"const", "NAME=FILE.npy...", "make an input a constant of these values"},
    {"end", "TENSOR...", "make this tensor an output, and leave out what is behind it"},
    NO_OPTION,
};

static const cmd_option graph_options[] = {
    {"json", NULL, "print operators, shapes, attributes and equations as JSON"},
    {"output", "FILE", "write there; standard output without it"},
    NO_OPTION,
};

static const cmd_option explain_options[] = {
    {"all", NULL, "every candidate; else the best two and the original one"},
    {"json", NULL, "print JSON"},
    {"output", "FILE", "write there; standard output without it"},
    NO_OPTION,
};

static const cmd_option verify_options[] = {
    {"candidate", "ID", "prove only this candidate, by its number in explain --all"},
    {"form", "N", "each contraction by its N-th best derivation, to compare these"},
    NO_OPTION,
};

static const cmd_option probe_options[] = {
    {"output", "PROBE.cu", "the CUDA source; '-' is standard output"},
    {"part", "I/N", "the I-th of N programs that share the kernels; the first has the calls"},
    {"estimates", NULL, "no program: measured kernels and plans, each beside its estimate"},
    {"kernels", "COUNT", "at most COUNT kernels, those of the cheapest plans; default 120"},
    NO_OPTION,
};

static const cmd_option costs_options[] = {
    {"prefer", "WHICH", "which of rows that differ is kept: first, last or fastest"},
    {"estimates", NULL, "no table: key, measured ps, spread and estimated ps of each call"},
    {"gpu", "NAME", "the GPU whose rows --estimates takes; default h200"},
    NO_OPTION,
};

static const cmd_command commands[] = {
    {
        .name = "emit",
        .operands = "MODEL.ein",
        .count = 1,
        .summary = "Writes a model as one self-contained CUDA source file",
        .detail =
            "Example: einnet emit net.ein -o net.cu --header net.h --math tf32 --gpu orin-nx\n"
            "No file is written unless all could be made.\n",
        .options = {emit_options, cmd_name_options, cmd_plan_options, cmd_size_options,
                    cmd_search_options},
        .run = cmd_emit,
    },
    {
        .name = "check",
        .operands = "MODEL.ein OUT.cu",
        .count = 2,
        .summary = "Tells whether emitted files are what emit makes now",
        .detail =
            "Give it the options that emit was given. Differences are printed; exit code 1.\n",
        .options = {check_options, cmd_name_options, cmd_plan_options, cmd_size_options,
                    cmd_search_options},
        .run = cmd_check,
    },
    {
        .name = "fmt",
        .operands = "MODEL.ein",
        .count = 1,
        .summary = "Prints a model in its canonical form, comments kept",
        .detail = "",
        .options = {fmt_options, NULL, NULL},
        .run = cmd_fmt,
    },
    {
        .name = "pack",
        .operands = "MODEL.ein",
        .count = 1,
        .summary = "Writes a model's weights as one file for the emitted code",
        .detail = "One file serves every plan, GPU and batch size of the model.\n",
        .options = {pack_options, cmd_weight_options, cmd_size_options},
        .run = cmd_pack,
    },
    {
        .name = "eval",
        .operands = "MODEL.ein",
        .count = 1,
        .summary = "Computes a model on the CPU, straight from its equations",
        .detail = "Results are float64. In the file's name, bytes of an output's name outside\n"
                  "A-Z a-z 0-9 _ . - become %XX.\n",
        .options = {eval_options, cmd_weight_options, cmd_size_options},
        .run = cmd_eval,
    },
    {
        .name = "import",
        .operands = "MODEL.onnx",
        .count = 1,
        .summary = "Turns an ONNX model into a .ein model and its weights",
        .detail = "",
        .options = {import_options, NULL, NULL},
        .run = cmd_import,
    },
    {
        .name = "graph",
        .operands = "MODEL.ein",
        .count = 1,
        .summary = "Lists a model's inputs, outputs and weights",
        .detail = "",
        .options = {graph_options, cmd_size_options, NULL},
        .run = cmd_graph,
    },
    {
        .name = "equations",
        .operands = "MODEL.ein",
        .count = 1,
        .summary = "Prints every value of a model as a legal equation",
        .detail = "",
        .options = {output_option, cmd_size_options, NULL},
        .run = cmd_equations,
    },
    {
        .name = "explain",
        .operands = "MODEL.ein [VALUE]",
        .count = 1,
        .more = 1,
        .summary = "Tells how contractions are derived: steps, rules, costs",
        .detail =
            "VALUE is a contraction, a map that one kernel computes with a contraction (an "
            "emitted\n"
            "file names its steps so) or a block. Without it: all contractions of the model.\n",
        .options = {explain_options, cmd_plan_options, cmd_size_options, cmd_search_options},
        .run = cmd_explain,
    },
    {
        .name = "verify",
        .operands = "MODEL.ein [VALUE]",
        .count = 1,
        .more = 1,
        .summary = "Proves that the plan computes what the model says",
        .detail =
            "Both are evaluated modulo 2^61-1 at random places of every output. Where full sizes\n"
            "take too long, give --small. With --candidate, VALUE says of which contraction,\n"
            "unless there is one only or ID is a merge (1000000 and above); give the options\n"
            "that explain was given.\n",
        .options = {verify_options, cmd_plan_options, cmd_size_options, cmd_search_options},
        .run = cmd_verify,
    },
    {
        .name = "probe",
        .operands = "MODEL.ein...",
        .count = 1,
        .more = CMD_OPERANDS - 1,
        .summary = "Writes a program that measures calls and kernels for --costs",
        .detail =
            "It runs on the GPU and measures what no --costs table has: the library calls that\n"
            "planning these models asked for, and kernels of the plans that were compared.\n"
            "Add the rows that it prints to a table: ./probe >> TABLE. See also ./probe --help.\n",
        .options = {probe_options, cmd_name_options, cmd_plan_options, cmd_size_options,
                    cmd_search_options},
        .run = cmd_probe,
    },
    {
        .name = "costs",
        .operands = "TABLE...",
        .count = 1,
        .more = CMD_OPERANDS - 1,
        .summary = "Merges tables of measured costs into one, sorted",
        .detail =
            "Rows that give one call, algorithm and library version different costs are an error\n"
            "without --prefer. Comments are dropped.\n",
        .options = {output_option, costs_options, NULL, NULL},
        .run = cmd_costs,
    },
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *out) {
    fputs("usage: einnet COMMAND ...\n\n", out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fputs(
        "\nFrom ONNX to CUDA:\n"
        "  einnet import net.onnx -o net.ein --weights net.safetensors\n"
        "  einnet emit net.ein -o net.cu --header net.h --test net_test.cu\n"
        "  einnet pack net.ein -o net.weights\n"
        "\neinnet COMMAND --help tells more; einnet --version prints the version. '-' as MODEL is\n"
        "standard input. An option with '...' behind its value may be repeated.\n"
        "Exit codes: 0 fine, 1 differs, 2 usage, 3 bad input, 4 unsupported operator,\n"
        "5 input/output, memory, or beyond a limit.\n",
        out);
}

static int unknown_command(const char *name) {
    static const char *const switches[] = {"--help", "--version"};
    char shown[120], hint[120];
    const char *best = NULL;
    int distance = 3;
    for (int i = 0; i < COMMANDS; i++) {
        cmd_nearest(name, commands[i].name, &best, &distance);
    }
    for (int i = 0; i < 2; i++) {
        cmd_nearest(name, switches[i], &best, &distance);
        if (!strcmp(name + strspn(name, "-"), switches[i] + 2)) {
            best = switches[i];
        }
    }
    fprintf(stderr, "einnet: unknown command '%s'%s\ntry 'einnet --help'\n",
            cli_escape(shown, sizeof shown, name), cmd_hint(hint, sizeof hint, best));
    return CLI_USAGE;
}

// `einnet help COMMAND` is `einnet COMMAND --help`.
static int run_command(int argc, char **argv) {
    char option[] = "--help", *asked[] = {argv[0], argc == 3 ? argv[2] : NULL, option, NULL};
    bool help = argc > 1 && !strcmp(argv[1], "help");
    if (help && argc == 3) {
        argv = asked;
    } else if (help && argc > 3) {
        fputs("einnet: help takes one command\n", stderr);
        return CLI_USAGE;
    }
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("einnet %s\n", EIN_VERSION);
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || (help && argc == 2)) {
        print_overview(stdout);
        return CLI_OK;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (!strcmp(argv[1], commands[i].name)) {
            cmd_args args;
            int code = cmd_args_parse(&args, &commands[i], argc - 1, argv + 1);
            if (!code) {
                code = commands[i].run(&args);
            }
            cmd_args_free(&args);
            return code < 0 ? CLI_OK : code;
        }
    }
    return unknown_command(argv[1]);
}

// Planning asks again and again for large arrays: memory that it has given back stays at hand, or
// the system would clear pages for a fifth of the time.
static void keep_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

int main(int argc, char **argv) {
    cli_catch_signals();
    keep_memory();
    int code = run_command(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && code <= CLI_DIFFERS) {
        fputs("einnet: standard output cannot be written\n", stderr);
        code = CLI_IO;
    }
    return code;
}
