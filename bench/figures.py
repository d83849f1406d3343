#!/usr/bin/env python3
"""Tables from the figures that bench/gpu.sh measures beside whole models.

usage: figures.py --figures FIGURES.tsv --out FILE.md [--limits LIMITS.tsv] [--builds BUILD.tsv]
                  [--estimates FIT.txt] [--title WORDS]

Templates: bytes of inputs and outputs over the time, as a share of the measured copy bandwidth; of
those bound by arithmetic operations over the time, as a share of what the library's largest product
reaches on the same units.
Layers: our own kernels against the libraries' calls. Forms: each operator case by its derivations,
and which is fastest. Programs: seconds of the compiler, registers that did not suffice. What was
not measured is a dash; what falls short says FAIL.
"""

import argparse
import os
import re
import statistics
import sys

TEMPLATE_SHARE, TRANSPOSE_SHARE = 0.85, 0.80
# By template and units (limits.cu's names): share of their peak. Of tensor cores in other types.
ARITHMETIC_SHARE = {"t10": {"sgemm": 0.50}, "t12": {"sgemm": 0.55, "tf32": 0.40, "fp16": 0.40}}
UNITS = {"sgemm": "FMA", "tf32": "tensor cores, TF32", "fp16": "tensor cores, FP16"}
LIBRARY_SHARE = 0.80
COMPILE_SECONDS = 20
LARGE = 256 << 20       # bytes of a copy that no cache holds


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)] + \
        ["| " + " | ".join(r) + " |" for r in rows] + [""]


def read_table(path):
    """Rows of a table whose first line names its columns."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    names = lines[0].split("\t") if lines else []
    rows = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(names):
            sys.exit("%s:%d: %d fields, not %d" % (path, number, len(fields), len(names)))
        rows.append(dict(zip(names, fields)))
    return rows


def read_lines(path):
    if not path or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().splitlines()


def time_of(row):
    """Microseconds, or None: it failed or was not measured."""
    if row is None or row["status"] != "ok" or row["median_us"] == "-":
        return None
    return float(row["median_us"])


def verdict(value, wanted):
    return "not measured" if value is None else "pass" if value >= wanted else "FAIL"


def percent(value):
    return "-" if value is None else "%.0f %%" % (100 * value)


def number(value):
    return "-" if value is None else "%.4g" % value


def copy_bandwidth(lines):
    """GB/s of large copies, the median over their sizes; None: not measured."""
    found = [float(fields[2]) for fields in (line.split("\t") for line in lines)
             if len(fields) == 3 and fields[0] == "copy_gbps" and int(fields[1]) >= LARGE]
    return statistics.median(found) if found else None


def peaks(lines):
    """Units -> TFLOP/s of the library's products, the best over their sizes."""
    best = {}
    for fields in (line.split("\t") for line in lines):
        name = fields[0][:-len("_tflops")]
        if len(fields) == 3 and fields[0].endswith("_tflops") and name in UNITS:
            best[name] = max(best.get(name, 0), float(fields[2]))
    return best


def arithmetic_of(row):
    """The units that bound a template and the share of them that is wanted, or None."""
    name = row["figure"].split("/")[1]
    shares = ARITHMETIC_SHARE.get(name.split("_")[0], {})
    last = name.rsplit("_", 1)[-1]
    unit = last if last in UNITS else "sgemm"
    return (unit, shares[unit]) if unit in shares else None


def arithmetic_table(rows, peak):
    out = []
    for row in rows:
        us, flop = time_of(row), int(row["flop"]) if row["flop"] != "-" else 0
        unit, wanted = arithmetic_of(row)
        rate = flop / us / 1e6 if us and flop else None
        share = rate / peak[unit] if rate and unit in peak else None
        out.append([row["figure"].split("/")[1], number(flop / 1e9), number(us), number(rate),
                    UNITS[unit], number(peak.get(unit)), percent(share), ">= " + percent(wanted),
                    row["steps"],
                    row["status"] if row["status"] != "ok" else verdict(share, wanted)])
    return table(["template", "GFLOP", "microseconds", "TFLOP/s", "units", "their peak",
                  "of the peak", "wanted", "steps", "verdict"], out)


def template_table(rows, copy):
    out = []
    for row in rows:
        if arithmetic_of(row):
            continue
        us, size = time_of(row), int(row["bytes"]) if row["bytes"] != "-" else 0
        rate = size / us / 1e3 if us and size else None
        share = rate / copy if rate and copy else None
        name = row["figure"].split("/")[1]
        wanted = TRANSPOSE_SHARE if "transpose" in name else TEMPLATE_SHARE
        out.append([name, "%.0f" % (size / 1e6), number(us), number(rate), percent(share),
                    ">= " + percent(wanted), row["steps"],
                    row["status"] if row["status"] != "ok" else verdict(share, wanted)])
    return table(["template", "MB", "microseconds", "GB/s", "of a copy", "wanted", "steps",
                  "verdict"], out)


def grouped(rows):
    """Rows by the middle part of their names, in order, each as last part -> row."""
    out = {}
    for row in rows:
        _, name, last = row["figure"].split("/")
        out.setdefault(name, {})[last] = row
    return out


def layer_table(rows):
    out = []
    for name, by in grouped(rows).items():
        none, calls = time_of(by.get("none")), time_of(by.get("calls"))
        library = calls if calls and by["calls"]["calls"] != "0" else None
        share = library / none if library and none else None
        out.append([name, number(none), number(time_of(by.get("all"))), number(library),
                    percent(share), ">= " + percent(LIBRARY_SHARE), verdict(share, LIBRARY_SHARE)])
    return table(["layer, FP32", "own kernels", "plan", "library", "library / own", "wanted",
                  "verdict"], out)


def form_table(rows):
    forms = sorted({row["figure"].rsplit("/", 1)[1] for row in rows} - {"0", "plan"}, key=int)
    out = []
    for name, by in grouped(rows).items():
        original = time_of(by.get("0"))
        times = {form: time_of(by.get(form)) for form in forms + ["plan"]}
        known = {form: us for form, us in times.items() if us}
        best = min(known, key=lambda form: known[form]) if known else None
        what = "the plan" if best == "plan" else "form %s" % best
        if not original or not best:
            word = "not measured"
        elif known[best] < original:
            word = "%s, %.2f times as fast" % (what, original / known[best])
        else:
            word = "the original: %s takes %.2f times as long" % (what, known[best] / original)
        out.append([name, number(original)] + [number(us) for us in times.values()] + [word])
    return table(["case", "original"] + ["form %s" % form for form in forms] + ["plan", "fastest"],
                 out)


def build_table(lines):
    """The slowest to compile, and those with spills; build.tsv has no line of names."""
    builds = []
    for line in lines:
        fields = line.split("\t")
        if len(fields) < 5 or not fields[2].isdigit():
            continue
        spill = re.search(r"\bspills (\d+)$", fields[4])
        spilled = int(spill.group(1)) if spill else None
        builds.append((int(fields[2]), fields[0], fields[1], spilled))
    if not builds:
        return []
    builds.sort(key=lambda b: (-b[0], b[1]))
    spilled = [b for b in builds if b[3]]
    told = [b for b in builds if b[3] is not None]
    rows = [["slowest to compile", "%d s (%s)" % builds[0][:2], "< %d s" % COMPILE_SECONDS,
             "pass" if builds[0][0] < COMPILE_SECONDS else "FAIL"],
            ["programs that do not build", str(sum(b[2] == "failed" for b in builds)), "0",
             "FAIL" if any(b[2] == "failed" for b in builds) else "pass"],
            ["programs with spills", str(len(spilled)) if told else "-", "0",
             "not measured" if not told else "FAIL" if spilled else "pass"]]
    return ["## Programs", ""] + table(["figure", "measured", "wanted", "verdict"], rows)


def report(rows, limits, builds, estimates, title):
    copy = copy_bandwidth(limits)
    lines = ["# Figures: %s" % title, "", "Medians of graph replays. A dash was not measured.", ""]
    for kind, heading, make in (
            ("template", "## Templates", lambda r: template_table(r, copy)),
            ("layer", "## Layers: our own kernels and the libraries' calls", layer_table),
            ("form", "## Operator cases as whole rewrites, microseconds", form_table)):
        chosen = [row for row in rows if row["figure"].startswith(kind + "/")]
        if kind == "template" and chosen:
            words = "%.0f GB/s" % copy if copy else "not measured"
            lines += [heading, "", "Bandwidth of large copies: %s." % words, ""] + make(chosen)
            bound = [row for row in chosen if arithmetic_of(row)]
            if bound:
                lines += ["## Templates bound by arithmetic", "",
                          "Operations as the equations have them, with those on padding.", ""]
                lines += arithmetic_table(bound, peaks(limits))
        elif chosen:
            lines += [heading, ""] + make(chosen)
    lines += build_table(builds)
    if estimates:
        lines += ["## Estimates", "", "```"] + estimates + ["```", ""]
    if limits:
        lines += ["## The device", "", "```"] + limits + ["```", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figures", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--limits")
    parser.add_argument("--builds")
    parser.add_argument("--estimates")
    parser.add_argument("--title", default="a GPU")
    args = parser.parse_args()
    rows = read_table(args.figures)
    text = report(rows, read_lines(args.limits), read_lines(args.builds),
                  read_lines(args.estimates), args.title)
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w", encoding="utf-8") as f:
        f.write(text)
    print("figures: %d rows in %s" % (len(rows), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
