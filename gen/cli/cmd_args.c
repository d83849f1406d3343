// cmd_args.c - arguments of the commands: parsed by their tables, which --help prints too.
#include "cmd.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 32, HELP_COLUMN = 24 };

static const cmd_option common_options[] = {
    {"help", NULL, "print this text"},
    {NULL, NULL, NULL},
};

int cmd_usage(const cmd_args *args, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "einnet %s: ", args->command->name);
    vfprintf(stderr, format, list);
    fprintf(stderr, "\ntry 'einnet %s --help'\n", args->command->name);
    va_end(list);
    return CLI_USAGE;
}

int cmd_report(const cli_error *error) {
    fprintf(stderr, "einnet: %s\n", error->text);
    return error->code;
}

// ---- nearest names ----

// Edits between two names, `cap + 1` when there are more than `cap`.
static int edit_distance(const char *a, const char *b, int cap) {
    int row[64];
    int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > 62 || nb > 62 || abs(na - nb) > cap) {
        return cap + 1;
    }
    for (int j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int up = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            best = up + 1 < best ? up + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[nb];
}

void cmd_nearest(const char *name, const char *candidate, const char **best, int *distance) {
    int found = edit_distance(name, candidate, *distance);
    if (found < *distance && (size_t)found < strlen(name)) {
        *distance = found;
        *best = candidate;
    }
}

const char *cmd_hint(char *buffer, size_t size, const char *best) {
    buffer[0] = 0;
    if (best) {
        snprintf(buffer, size, "; did you mean '%s'?", best);
    }
    return buffer;
}

// ---- tables ----

// Option number `index` of a command over all its tables; NULL past the end.
static const cmd_option *option_at(const cmd_command *command, int index) {
    int tables = (int)(sizeof command->options / sizeof *command->options);
    for (int t = 0; t <= tables; t++) {
        const cmd_option *table = t < tables ? command->options[t] : common_options;
        for (; table && table->name; table++) {
            if (!index--) {
                return table;
            }
        }
    }
    return NULL;
}

static bool repeatable(const cmd_option *option) {
    return option->argument && strstr(option->argument, "...");
}

static void print_help(const cmd_command *command) {
    printf("usage: einnet %s %s [OPTION]...\n%s.\n", command->name, command->operands,
           command->summary);
    printf("%s%s\n", *command->detail ? "\n" : "", command->detail);
    const cmd_option *option;
    for (int i = 0; (option = option_at(command, i)); i++) {
        char left[80];
        bool output = !strcmp(option->name, "output"), help = !strcmp(option->name, "help");
        snprintf(left, sizeof left, "%s--%s%s%s",
                 output ? "-o, "
                 : help ? "-h, "
                        : "",
                 option->name, option->argument ? " " : "",
                 option->argument ? option->argument : "");
        printf("  %-*s", HELP_COLUMN, left);
        if (strlen(left) >= HELP_COLUMN) {
            printf("\n  %-*s", HELP_COLUMN, "");
        }
        printf("%s\n", option->help);
    }
}

// Prints what an option's value may be, for `help` in its place; false: there is no such list.
static bool list_values(const char *option) {
    const char *name;
    if (!strcmp(option, "gpu")) {
        for (int i = 0; (name = ein_gpu_name(i)); i++) {
            puts(name);
        }
        return true;
    }
    if (strcmp(option, "rules") != 0) {
        return false;
    }
    for (int i = 0; (name = ein_rule_name(i)); i++) {
        printf("%-10s  %-11s  %s%s\n", name, ein_rule_kind(i), ein_rule_description(i),
               ein_rule_needed(i) ? "; cannot be left out" : "");
    }
    puts(
        "A LIST chooses among the rules of the search and 'merge'; the others stay on. With -LIST "
        "any but the needed\nones are left out.");
    return true;
}

// ---- parsing ----

static int unknown_option(const cmd_args *args, const char *word) {
    char shown[120], name[80], nearest[80], hint[120];
    const char *best = NULL;
    const cmd_option *option;
    int distance = 3;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (int i = 0; (option = option_at(args->command, i)); i++) {
        char candidate[80];
        const char *nearer = NULL;
        snprintf(candidate, sizeof candidate, "--%s", option->name);
        if (!strcmp(name, candidate)) {
            return cmd_usage(args, "%s takes no value", candidate);
        }
        cmd_nearest(name, candidate, &nearer, &distance);
        if (nearer || (strlen(name) > 3 && !strncmp(name, candidate, strlen(name)))) {
            best = memcpy(nearest, candidate, sizeof nearest);
        }
    }
    return cmd_usage(args, "unknown option '%s'%s", cli_escape(shown, sizeof shown, name),
                     cmd_hint(hint, sizeof hint, best));
}

static int add_given(cmd_args *args, const cmd_option *option, const char *value) {
    if (!repeatable(option)) {
        for (int i = 0; i < args->count; i++) {
            if (args->given[i].option == option) {
                return cmd_usage(args, "--%s is given twice", option->name);
            }
        }
    }
    if (option->argument && !*value) {
        return cmd_usage(args, "--%s is empty", option->name);
    }
    args->given = cli_realloc(args->given, (size_t)(args->count + 1) * sizeof *args->given);
    args->given[args->count].option = option;
    args->given[args->count++].value = value;
    return CLI_OK;
}

static int add_operand(cmd_args *args, const char *value) {
    char shown[120];
    if (!*value) {
        return cmd_usage(args, "an argument is empty");
    }
    if (args->operands == args->command->count + args->command->more) {
        return cmd_usage(args, "unexpected argument '%s'", cli_escape(shown, sizeof shown, value));
    }
    args->operand[args->operands++] = value;
    return CLI_OK;
}

// Whether `value` is one of the command's options itself: the one before has lost its value.
static bool is_option(const cmd_args *args, const char *value) {
    const cmd_option *option;
    bool found = !strcmp(value, "-h") || !strcmp(value, "-o");
    for (int i = 0; !strncmp(value, "--", 2) && (option = option_at(args->command, i)); i++) {
        found = found || !strcmp(value + 2, option->name);
    }
    return found;
}

// getopt_long takes "--out" for "--output"; scripts that rely on it would break with the next
// option.
static bool abbreviated(const char *word, const char *name) {
    return strcspn(word + 2, "=") != strlen(name);
}

static int take(cmd_args *args, int code, int index, const char *word) {
    char shown[120];
    const cmd_option *option = NULL;
    if (code == 1) {
        return add_operand(args, optarg);
    }
    // A value of its own is the word behind the option.
    bool behind = optarg && optarg == args->argv[optind - 1];
    if (code == ':' || (code != 1 && behind && is_option(args, optarg))) {
        return cmd_usage(args, "no value for '%s'", cli_escape(shown, sizeof shown, word));
    }
    const char *letter = code == 'o' ? "output" : "help";
    for (int i = 0; code != '?' && (option = option_at(args->command, i)); i++) {
        if (code ? !strcmp(option->name, letter) : i == index) {
            break;
        }
    }
    if (!option || (!code && abbreviated(word, option->name))) {
        return unknown_option(args, word);
    }
    if (!strcmp(option->name, "help")) {
        print_help(args->command);
        return -1;
    }
    if (optarg && !strcmp(optarg, "help") && list_values(option->name)) {
        return -1;
    }
    return add_given(args, option, optarg ? optarg : "");
}

int cmd_args_parse(cmd_args *args, const cmd_command *command, int argc, char **argv) {
    struct option table[MAX_OPTIONS + 1];
    bool output = false;
    *args = (cmd_args){.command = command, .argv = argv};
    memset(table, 0, sizeof table);
    const cmd_option *option;
    for (int i = 0; i < MAX_OPTIONS && (option = option_at(command, i)); i++) {
        table[i].name = option->name;
        table[i].has_arg = option->argument ? required_argument : no_argument;
        output = output || !strcmp(option->name, "output");
    }
    opterr = 0;
    for (;;) {
        int index = 0;
        const char *word = optind < argc ? argv[optind] : "";
        // The leading '-' keeps arguments in their order whatever the environment says.
        optarg = NULL;
        int code = getopt_long(argc, argv, output ? "-:ho:" : "-:h", table, &index);
        if (code == -1) {
            break;
        }
        int failure = take(args, code, index, word);
        if (failure) {
            return failure;
        }
    }
    for (; optind < argc; optind++) {
        if (add_operand(args, argv[optind])) {
            return CLI_USAGE;
        }
    }
    if (args->operands < command->count) {
        return cmd_usage(args, "too few arguments: %s", command->operands);
    }
    return CLI_OK;
}

void cmd_args_free(cmd_args *args) {
    free(args->given);
    args->given = NULL;
}

const char *cmd_next(const cmd_args *args, const char *option, int *at) {
    while (*at < args->count) {
        int i = (*at)++;
        if (!strcmp(args->given[i].option->name, option)) {
            return args->given[i].value;
        }
    }
    return NULL;
}

const char *cmd_get(const cmd_args *args, const char *option) {
    int at = 0;
    return cmd_next(args, option, &at);
}

int cmd_number(const cmd_args *args, const char *option, int least, int most, int *value) {
    char shown[120];
    const char *text = cmd_get(args, option);
    if (!text) {
        return CLI_OK;
    }
    size_t digits = strspn(text, "0123456789");
    int n = digits && digits <= 9 ? atoi(text) : -1;
    if (text[digits] || n < least || n > most) {
        return cmd_usage(args, "--%s needs a number from %d to %d, not '%s'", option, least, most,
                         cli_escape(shown, sizeof shown, text));
    }
    *value = n;
    return CLI_OK;
}

int cmd_choice(const cmd_args *args, const char *option, const char *const names[3], int *which) {
    char shown[120], hint[120];
    const char *text = cmd_get(args, option), *best = NULL;
    int distance = 3;
    for (int i = 0; text && i < 3; i++) {
        if (!strcmp(text, names[i])) {
            *which = i;
            return CLI_OK;
        }
        cmd_nearest(text, names[i], &best, &distance);
    }
    return text ? cmd_usage(args, "--%s is %s, %s or %s, not '%s'%s", option, names[0], names[1],
                            names[2], cli_escape(shown, sizeof shown, text),
                            cmd_hint(hint, sizeof hint, best))
                : CLI_OK;
}

const char *cmd_split(const cmd_args *args, const char *option, const char *text, size_t *length) {
    char shown[120];
    const char *equals = strchr(text, '='), *form = "";
    if (!equals || equals == text || !equals[1]) {
        for (int i = 0; i < args->count; i++) {
            form = strcmp(args->given[i].option->name, option) ? form
                                                               : args->given[i].option->argument;
        }
        cmd_usage(args, "--%s needs %.*s, not '%s'", option, (int)strlen(form) - 3, form,
                  cli_escape(shown, sizeof shown, text));
        return NULL;
    }
    *length = (size_t)(equals - text);
    return equals + 1;
}
