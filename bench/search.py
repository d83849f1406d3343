#!/usr/bin/env python3
"""Measures the search: states, candidates, engine time and memory, by case and model.

With and without convergence and fingerprints, and by depth: EinNet's Figures 17 to 19. Writes
bench/results/search.tsv and search.md. Counts are the same on every machine; times are CPU times of
this one, medians of --runs (default 5) runs.
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

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
EINNET = os.environ.get("EINNET", os.path.join(TOP, "build", "einnet"))
RESULTS = os.path.join(TOP, "bench", "results")
DEPTHS = range(1, 8)

SETTINGS = [
    ("default", []),
    ("no-converge", ["--no-converge"]),
    ("no-fingerprint", ["--no-fingerprint"]),
    ("neither", ["--no-converge", "--no-fingerprint"]),
]
COLUMNS = ["name", "setting", "depth", "problems", "distinct", "definitions", "lookups",
           "candidates", "engine_us", "command_ms", "peak_kb", "stop", "estimate_us"]

# EinNet, OSDI'23: states at depth 7 and seconds on the authors' machine.
EINNET_PAPER = {"conv3x3": ("158 k", "4.1"), "convtranspose": ("901 k", "32"),
                "conv5x5": ("2.23 M", "60"), "g2bmm": ("18 k", "0.42")}


# Peak memory comes from it: children of this interpreter count the interpreter's as their own.
TIME = "/usr/bin/time"


def run_once(path, options):
    """The statistics of one run and its CPU time in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([EINNET, "emit", path, "-o", "/dev/null", "--stats"] + options,
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
    done = subprocess.run([TIME, "-f", "%M", EINNET, "emit", path, "-o", "/dev/null"] + options,
                          stderr=subprocess.PIPE, check=True)
    return done.stderr.decode().split()[-1]


def estimate_us(path, options):
    """Estimated time of the chosen derivations of all contractions."""
    done = subprocess.run([EINNET, "explain", path, "--json"] + options, stdout=subprocess.PIPE,
                          check=True)
    values = json.loads(done.stdout.decode())["values"]
    return sum(c["ps"] for v in values for c in v["candidates"] if c["chosen"]) / 1e6


def measure(path, setting, options, depth, runs):
    if depth:
        options = options + ["--depth", str(depth)]
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


def summary(rows, cases, models, runs):
    base = {r["name"]: r for r in select(rows, setting="default", depth="default")}

    def counts(names):
        return [[n, base[n]["problems"], base[n]["distinct"], base[n]["definitions"],
                 base[n]["candidates"], base[n]["engine_us"], base[n]["command_ms"],
                 base[n]["peak_kb"], base[n]["stop"]] for n in names]

    def by_setting(names):
        return [[n] + ["%s / %s" % (r["definitions"], r["engine_us"]) for s, _ in SETTINGS
                       for r in select(rows, name=n, setting=s, depth="default")] +
                [r["estimate_us"] for s in ("default", "no-converge")
                 for r in select(rows, name=n, setting=s, depth="default")] for n in names]

    def by_depth(setting, key):
        return [[n] + [select(rows, name=n, setting=setting, depth=d)[0][key] for d in DEPTHS]
                for n in cases]

    head = ["", "problems", "distinct", "states", "candidates", "engine us", "command ms",
            "peak KB", "stop"]
    settings = ([""] + [s for s, _ in SETTINGS] +
                ["estimate us", "without convergence"])
    depths = [""] + ["depth %d" % d for d in DEPTHS]
    paper = [[n, EINNET_PAPER[n][0], EINNET_PAPER[n][1], base[n]["definitions"],
              "%.5f" % (base[n]["engine_us"] / 1e6)] for n in cases if n in EINNET_PAPER]
    return """# The search

Written by bench/search.sh. States are equivalent definitions created, distinct up to renaming
(without fingerprints: created again whenever a rule gives them); candidates those of the layers
themselves. Times are CPU times, medians of %d runs, one thread, on a machine that others share
(%s); peak memory is the whole command's. Estimates are the cost model's for the h200, not
measurements.

## Cases

%s
## Models

%s
## Without convergence and fingerprints: states / engine us (EinNet, Figures 18 and 19)

%s
%s
## States by depth

%s
## States by depth without fingerprints

%s
## Estimated us of the best candidate by depth (EinNet, Figure 17)

%s
## Beside EinNet

Its figures are the paper's, at depth 7 with fingerprints, on another machine; ours saturate before
that depth.

%s""" % (runs, cpu_name(), table(head, counts(cases)), table(head, counts(models)),
         table(settings, by_setting(cases)), table(settings, by_setting(models)),
         table(depths, by_depth("default", "definitions")),
         table(depths, by_depth("no-fingerprint", "definitions")),
         table(depths, by_depth("default", "estimate_us")),
         table(["", "EinNet, states", "EinNet, s", "states", "s"], paper))


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
