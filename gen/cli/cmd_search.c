// cmd_search.c - options of the search, its progress line and its statistics.
#define _POSIX_C_SOURCE 200809L
#include "cmd.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const cmd_option cmd_search_options[] = {
    {"depth", "N", "most rules applied in a row; default 8"},
    {"states", "N", "most equivalent definitions of one contraction; default 1000"},
    {"rules", "[-]LIST", "use only these rules or, with '-', all others; 'help' lists them"},
    {"no-converge", NULL, "do not build the operands that library calls lack"},
    {"no-fingerprint", NULL, "explore known definitions again: shows what skipping them saves"},
    {"intensity", "N", "operations an element up to which a kernel is memory-bound; default 4"},
    {"stats", NULL, "print counts of the search (ein_stats) to standard error"},
    {NULL, NULL, NULL},
};

// Processor time: other programs on the machine do not count.
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct {
    double started, shown;
    double since, searched;  // the running search began then; all searches so far took this
    bool running, line;      // a progress line stands on the terminal
    int64_t proved;          // as that line says it
} state;

// One line, rewritten in place, once a search or a proof has taken longer than a person waits.
static bool show_progress(void *user, const ein_stats *stats) {
    double now = seconds();
    const bool *terminal = user;
    if (stats->searching && !state.running) {
        state.since = now;
    } else if (!stats->searching && state.running) {
        state.searched += now - state.since;
    }
    state.running = stats->searching;
    if (!*terminal || now - state.started < 0.5 || now - state.shown < 0.1) {
        return true;
    }
    bool proving = stats->proved != state.proved && stats->proved && !stats->searching;
    state.shown = now;
    state.line = true;
    state.proved = stats->proved;
    if (proving) {
        fprintf(stderr, "\r\033[Kproving: %lld million terms", (long long)stats->proved / 1000000);
    } else {
        fprintf(stderr, "\r\033[Kderiving: %lld contractions, %lld distinct, %lld definitions",
                (long long)stats->problems, (long long)stats->distinct,
                (long long)stats->definitions);
    }
    fflush(stderr);
    return true;
}

static int check_rules(const cmd_args *args, const char *names) {
    char shown[120], name[64], hint[120];
    bool without = *names == '-';
    names += *names == '-';
    do {
        size_t length = strcspn(names, ",");
        const char *best = NULL, *known = NULL;
        int distance = 3, i = 0;
        snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), names);
        for (; (known = ein_rule_name(i)) && strcmp(known, name); i++) {
            cmd_nearest(name, known, &best, &distance);
        }
        if (!known) {
            return cmd_usage(args, "unknown rule '%s' (--rules help lists them)%s",
                             cli_escape(shown, sizeof shown, name),
                             cmd_hint(hint, sizeof hint, best));
        }
        if (without && ein_rule_needed(i)) {
            return cmd_usage(args, "rule '%s' cannot be left out", known);
        }
        names += length + (names[length] == ',');
    } while (*names);
    return CLI_OK;
}

int cmd_search_desc(const cmd_args *args, ein_desc *desc) {
    enum { MOST = 999999, MOST_BRANCHES = 4 };
    desc->rules = cmd_get(args, "rules");
    desc->no_converge = cmd_get(args, "no-converge") != NULL;
    desc->no_fingerprint = cmd_get(args, "no-fingerprint") != NULL;
    int code = desc->rules ? check_rules(args, desc->rules) : CLI_OK;
    code = code ? code : cmd_number(args, "depth", 1, MOST, &desc->depth);
    code = code ? code : cmd_number(args, "states", 1, MOST, &desc->states);
    code = code ? code : cmd_number(args, "intensity", 1, MOST, &desc->intensity);
    code = code ? code : cmd_number(args, "branches", 1, MOST_BRANCHES, &desc->branches);
    static bool terminal;
    terminal = isatty(STDERR_FILENO);
    state.started = seconds();
    desc->distances = cmd_get(args, "stats") != NULL;
    if (terminal || desc->distances) {
        desc->progress = show_progress;
        desc->progress_user = &terminal;
    }
    return code;
}

void cmd_clear_line(void) {
    if (state.line) {
        fputs("\r\033[K", stderr);
        state.line = false;
    }
}

void cmd_search_done(const cmd_args *args, const ein_ctx *ctx) {
    cmd_clear_line();
    if (!cmd_get(args, "stats")) {
        return;
    }
    ein_stats s;
    ein_get_stats(ctx, &s);
    fprintf(stderr,
            "problems %lld distinct %lld definitions %lld candidates %lld lookups %lld "
            "engine_us %lld stop %s ordered %lld nearest %d",
            (long long)s.problems, (long long)s.distinct, (long long)s.definitions,
            (long long)s.candidates, (long long)s.lookups, (long long)(state.searched * 1e6),
            ein_stop_name(s.stop), (long long)s.ordered, s.nearest);
    for (int i = 0; i < EIN_DISTANCES; i++) {
        fprintf(stderr, " d%d %lld", i, (long long)s.at_distance[i]);
    }
    fprintf(stderr, " unmapped %lld\n", (long long)s.unmapped);
}
