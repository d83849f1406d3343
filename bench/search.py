#!/usr/bin/env python3
"""Measures the search: states, candidates, engine time and memory, by case and model.

With and without convergence and fingerprints, by depth, and by state budget: EinNet's Figures 17 to
19. Writes bench/results/search.tsv and search.md. Counts are the same on every machine; times are
CPU times of this one, medians of --runs (default 5) runs: other programs count only by the caches
that they share.
"""

import argparse
import glob
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PROGRAM = os.environ.get("EINNET", os.path.join(TOP, "build", "einnet"))
RESULTS = os.path.join(TOP, "bench", "results")
DEPTHS = range(1, 8)

SETTINGS = [
    ("default", []),
    ("no-converge", ["--no-converge"]),
    ("no-fingerprint", ["--no-fingerprint"]),
    ("neither", ["--no-converge", "--no-fingerprint"]),
]
COLUMNS = ["name", "setting", "depth", "problems", "distinct", "definitions", "lookups",
           "candidates", "engine_us", "command_ms", "peak_kb", "stop", "estimate_us", "ordered",
           "nearest", "d0", "d1", "d2", "d3", "d4", "d5", "unmapped"]

# EinNet's released engine on a 2.3 GHz Xeon: states and seconds at the least depth that finds its
# target, at depth 7 (the paper's setting), at depth 7 without fingerprints; without convergence, at
# the depth stated and whether the target is found. Its state counts equal the artifact's own logs.
EINNET = {
    "conv3x3": ("2,340 / 0.053 (4)", "157,966 / 4.1", "7,076,538 / 184", "86,738 / 2.4 (7, found)"),
    "convtranspose": ("192,079 / 6.6 (6)", "901,440 / 32", "64,045,447 / 3,834 (its log)",
                      "480,747 / 17 (7, not found)"),
    "conv5x5": ("2,227,699 / 60 (7)", "2,227,699 / 60", "76,708,383 / 3,695 (its log)",
                "1,286,009 / 36 (7, not found)"),
    "g2bmm": ("635 / 0.014 (4)", "18,286 / 0.42", "1,269,059 / 33.8", "4,544 / 0.11 (6, found)"),
}
GROWTH = {"conv3x3": "3.5 (6 to 7), 2.9 (7 to 8)", "convtranspose": "4.7, 4.1",
          "conv5x5": "4.5, 3.5", "g2bmm": "2.6 (7 to 8)"}
BUDGETS = [8, 16, 24, 32, 48, 64, 96, 128, 192]


# Peak memory comes from it: children of this interpreter count the interpreter's as their own.
TIME = "/usr/bin/time"


def run_once(path, options):
    """The statistics of one run and its CPU time in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([PROGRAM, "emit", path, "-o", "/dev/null", "--stats"] + options,
                          stderr=subprocess.PIPE)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = done.stderr.decode()
    if done.returncode:
        sys.exit("%s: %s" % (path, text))
    stats = dict(re.findall(r"(\w+) (\w+)", text.strip().splitlines()[-1]))
    return stats, (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def peak_kb(path, options):
    if not os.access(TIME, os.X_OK):
        return "-"
    done = subprocess.run([TIME, "-f", "%M", PROGRAM, "emit", path, "-o", "/dev/null"] + options,
                          stderr=subprocess.PIPE, check=True)
    return done.stderr.decode().split()[-1]


def estimate_us(path, options):
    """Estimated time of the chosen derivations of all contractions."""
    done = subprocess.run([PROGRAM, "explain", path, "--json"] + options, stdout=subprocess.PIPE,
                          check=True)
    values = json.loads(done.stdout.decode())["values"]
    return sum(c["ps"] for v in values for c in v["candidates"] if c["chosen"]) / 1e6


def measure(path, setting, options, depth, runs):
    if depth:
        options = options + ["--depth", str(depth)]
    if setting.startswith("states"):
        options = options + ["--states", setting.split()[1]]
    found = [run_once(path, options) for _ in range(runs)]
    row = dict(found[0][0])
    row.update(
        name=os.path.splitext(os.path.basename(path))[0],
        setting=setting,
        depth=depth or "default",
        engine_us=int(statistics.median(int(s["engine_us"]) for s, _ in found)),
        command_ms="%.1f" % statistics.median(ms for _, ms in found),
        peak_kb=peak_kb(path, options),
        estimate_us="%.2f" % estimate_us(path, options),
    )
    return row


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(map(str, r)) + " |" for r in rows]) + "\n"


def select(rows, **wanted):
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def cpu_name():
    try:
        with open("/proc/cpuinfo") as f:
            return re.search(r"model name\s*: (.*)", f.read()).group(1)
    except (OSError, AttributeError):
        return platform.machine()


# Why the figures differ from EinNet's. The counts it quotes are in the tables around it.
WHY = """\
What a state is. EinNet's state is a whole expression, a tree of scopes: two choices in two places
make four states, and substitution, tightening, a re-layout, the merge of two iterators are each a
step to a further state. Here a state is one definition of one value. Inner values are shared, so
choices in two places add up; substitution and tightening are part of how a value is made, digits
and re-layout are one step, and orders of dimensions are chosen after deriving, so no state differs
by them. EinNet's depth counts such small steps, ours rules that give a new definition.

By depth. EinNet's states grow by the factors in the last column of its table with every level, and
no level ends it. Ours are all there at depth 2 to 4: the inner half of a split is not split again
(what it would give a direct split gives), an operand that was written out once is not written out
again, and no rule can be applied to its own results for ever. So the search ends by itself, time
stays flat behind that depth, and no budget is part of the result.

Fingerprints. EinNet's prune 97 to 99 %% at depth 7, because the same steps in another order come to
the same expression. Here most of such orders do not exist, and what is left over are operands
written out alike for several definitions: without fingerprints there are at most twice the states,
and the search still ends.

Convergence. Without it EinNet needs 7 to 37 times the states, or does not find its targets within
depth 7. Here fewer states are made without it, because its rules add definitions instead of
replacing a search for them; but what they add is then missing. The GEMMs of conv3x3 and of the
transposed convolution are not found at all without it (below), and some plans cost more (the two
columns of estimates above). Where both estimates are equal, the best plan needs no re-layout that
convergence constructs: Winograd's products, an offset-add of plain convolutions, a band as it is.

Order. A budget that binds is where distances order the search. They lead to library calls, and a
call is not always cheapest: with few states the tables by budget show problems for which breadth
first was kept (ein_stats.ordered counts the others). The budgets with which targets are found:

%s
Seconds. EinNet's engine takes 23 to 40 us a state, ours some 5 us on this machine, which is another
one: nearly all of the difference is in how many states there are. Neither time has a GPU in it.
"""


def least_budgets():
    """Least state budgets of tests/test_search.c by target: best first, breadth first, unguided."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "test_search")
        subprocess.run(["gcc", "-std=c11", "-O1", "-I" + os.path.join(TOP, "gen"),
                        "-I" + os.path.join(TOP, "build"),
                        os.path.join(TOP, "tests", "test_search.c"), "-o", program, "-lm"],
                       check=True)
        text = subprocess.run([program, "-v"], stdout=subprocess.PIPE, check=True).stdout.decode()
    found = re.findall(r"(.*): (\d+) definitions best first, (\d+) breadth first, (\d+) without",
                       text)
    return table(["least --states", "best first", "breadth first", "without convergence"],
                 [[name, best, breadth, "never" if none == "0" else none]
                  for name, best, breadth, none in found])


def summary(rows, cases, models, runs):
    base = {r["name"]: r for r in select(rows, setting="default", depth="default")}
    distances = ["d0", "d1", "d2", "d3", "d4", "d5", "unmapped"]

    def counts(names):
        return [[n, base[n]["problems"], base[n]["distinct"], base[n]["definitions"],
                 base[n]["candidates"], base[n]["engine_us"], base[n]["command_ms"],
                 base[n]["peak_kb"], base[n]["stop"]] for n in names]

    def by_setting(names):
        return [[n] + ["%s / %s" % (r["definitions"], r["engine_us"]) for s, _ in SETTINGS
                       for r in select(rows, name=n, setting=s, depth="default")] +
                [r["estimate_us"] for s in ("default", "no-converge")
                 for r in select(rows, name=n, setting=s, depth="default")] for n in names]

    def by_depth(setting, *keys):
        return [[n] + [" / ".join(str(select(rows, name=n, setting=setting, depth=d)[0][k])
                                  for k in keys) for d in DEPTHS] for n in cases]

    def by_budget(converge):
        found = []
        for n in cases:
            line = [n]
            for b in BUDGETS:
                name = "states %d" % b + ("" if converge else " no-converge")
                line.append(select(rows, name=n, setting=name, depth="default")[0]["estimate_us"])
            found.append(line)
        return found

    head = ["", "problems", "distinct", "states", "candidates", "engine us", "command ms",
            "peak KB", "stop"]
    settings = ([""] + [s for s, _ in SETTINGS] +
                ["estimate us", "without convergence"])
    depths = [""] + ["depth %d" % d for d in DEPTHS]
    budgets = [""] + [str(b) for b in BUDGETS]
    theirs = [[n] + list(EINNET[n]) + [GROWTH[n]] for n in cases if n in EINNET]
    ours = [[n] + ["%s / %.5f" % (r["definitions"], r["engine_us"] / 1e6)
                   for s, _ in SETTINGS for r in select(rows, name=n, setting=s, depth="default")]
            for n in cases if n in EINNET]
    return """# The search

Written by bench/search.sh. States are equivalent definitions created, distinct up to renaming
(without fingerprints: created again whenever a rule gives them); candidates those of the layers
themselves. Times are CPU times, medians of %d runs, one thread, on a machine that others share
(%s; load average %.1f at the end): waiting does not count, but others' use of caches
and of the other thread of a core does, so times differ by some tens of percent from run to
run. Peak memory is the whole command's. Estimates are the cost model's for the h200, not
measurements.

## Cases

%s
## Models

%s
## Definitions by expression distance

From the nearest operator (GEMM, convolution, band product), in cells of the iterator mapping table
that do not fit; 5 stands for all beyond. No operator: sums of parts, copies, constant transforms.

%s
## Without convergence and fingerprints: states / engine us (EinNet, Figures 18 and 19)

%s
%s
## By depth: states / engine us

%s
## By depth without fingerprints: states / engine us

%s
## By depth without convergence: states / engine us

%s
## Estimated us of the best candidate by depth (EinNet, Figure 17)

%s
## Estimated us of the best candidate by state budget

With --states as given; a problem that meets it is explored again best first, by distance, and the
cheaper of the two explorations is kept.

%s
The same without convergence, breadth first.

%s
## Beside EinNet

%s
EinNet's released engine, states / seconds:

%s
Ours, states / seconds to saturation:

%s""" % (runs, cpu_name(), os.getloadavg()[0], table(head, counts(cases)),
         table(head, counts(models)),
         table([""] + ["0", "1", "2", "3", "4", "5", "no operator"],
               [[n] + [base[n][d] for d in distances] for n in cases + models]),
         table(settings, by_setting(cases)), table(settings, by_setting(models)),
         table(depths, by_depth("default", "definitions", "engine_us")),
         table(depths, by_depth("no-fingerprint", "definitions", "engine_us")),
         table(depths, by_depth("no-converge", "definitions", "engine_us")),
         table(depths, by_depth("default", "estimate_us")),
         table(budgets, by_budget(True)), table(budgets, by_budget(False)),
         WHY % least_budgets(),
         table(["", "least depth that finds the target", "depth 7", "depth 7, no fingerprint",
                "no convergence (depth)", "growth by level"], theirs),
         table([""] + [s for s, _ in SETTINGS], ours))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--out", default=RESULTS)
    args = options.parse_args()
    cases = sorted(glob.glob(os.path.join(TOP, "models", "cases", "*.ein")))
    models = sorted(glob.glob(os.path.join(TOP, "models", "*.ein")))
    rows = [measure(path, name, flags, None, args.runs)
            for path in cases + models for name, flags in SETTINGS]
    rows += [measure(path, name, flags, depth, args.runs)
             for path in cases for name, flags in SETTINGS for depth in DEPTHS]
    rows += [measure(path, "states %d%s" % (b, " " + flag[2:] if flag else ""),
                     [flag] if flag else [], None, 1)
             for path in cases for flag in ("", "--no-converge") for b in BUDGETS]
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "search.tsv"), "w") as f:
        f.write("\t".join(COLUMNS) + "\n")
        for row in rows:
            f.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
    names = [[os.path.splitext(os.path.basename(p))[0] for p in part] for part in (cases, models)]
    text = summary(rows, names[0], names[1], args.runs)
    with open(os.path.join(args.out, "search.md"), "w") as f:
        f.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
