#!/usr/bin/env python3
"""Tables and plots from the rows of bench/peers/rounds.py.

usage: report.py --device h200 --graphs DIR --out DIR [--title WORDS] ROWS.tsv...

Writes DIR/DEVICE.md, and SVG plots beside it. DIR of --graphs holds MODEL_nBATCH.json, from
`einnet graph --json`, of which the floors come. Every figure is a median of what was measured; what
was not measured is a dash, and who failed is listed with the reason.
"""

import argparse
import math
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "peers"))

import plot  # noqa: E402

SYSTEMS = ("ours", "base", "eager", "compile", "jax")
PEERS = ("eager", "compile", "jax")
PRECISIONS = (("fp32", "FP32, no TF32 anywhere"), ("tf32", "TF32"), ("fp16", "FP16"))
NUMBERS = ("median_us", "p95_us", "cold_median_us", "latency_median_us")


class Case:
    """What was measured of one model, batch and precision."""

    def __init__(self, key):
        self.model, self.batch, self.precision = key
        self.rows = {}      # system -> rows that are ok
        self.failed = {}    # system -> reason
        self.same = False   # derivation makes no difference

    def value(self, system, column):
        found = [float(r[column]) for r in self.rows.get(system, ()) if r[column] != "-"]
        return statistics.median(found) if found else None

    def word(self, system, column):
        found = [r[column] for r in self.rows.get(system, ()) if r[column] != "-"]
        return found[0] if found else "-"

    def turns(self, system):
        """round -> the warm times of its two turns, where there are two."""
        out = {}
        for r in self.rows.get(system, ()):
            out.setdefault(int(r["round"]), []).append(float(r["median_us"]))
        return {k: v for k, v in out.items() if len(v) == 2}

    def ratio(self, system, to="ours"):
        """(median, least, most) of the paired ratios system / to."""
        if system == "base" and self.same:
            return (1.0, 1.0, 1.0) if self.turns(to) else None
        a, b = self.turns(system), self.turns(to)
        found = sorted(sum(a[k]) / sum(b[k]) for k in a if k in b)
        return (statistics.median(found), found[0], found[-1]) if found else None

    def spread(self):
        """How far two measurements of our own program in one round are apart, at most."""
        return max((max(v) / min(v) - 1 for v in self.turns("ours").values()), default=None)

    def best_peer(self):
        found = [(self.ratio(p)[0], p) for p in PEERS if self.ratio(p)]
        return min(found)[1] if found else None


def read_rows(paths):
    cases = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
        names = lines[0].split("\t") if lines else []
        for number, text in enumerate(lines[1:], 2):
            fields = text.split("\t")
            if len(fields) != len(names):
                sys.exit("%s:%d: %d fields, not %d" % (path, number, len(fields), len(names)))
            r = dict(zip(names, fields))
            key = (r["model"], int(r["batch"]), r["precision"])
            case = cases.setdefault(key, Case(key))
            if r["status"] == "ok":
                for column in NUMBERS:
                    if r[column] != "-" and not 0 < float(r[column]) < math.inf:
                        sys.exit("%s:%d: %s is %s" % (path, number, column, r[column]))
                case.rows.setdefault(r["system"], []).append(r)
            elif r["status"] == "same":
                case.same = True
            else:
                case.failed[r["system"]] = r["note"]
    for case in cases.values():
        for system in case.failed:      # who failed in a later round is not compared
            case.rows.pop(system, None)
    return cases


def number(v, digits=4):
    if v is None:
        return "-"
    if v >= 10 ** (digits - 1):
        return "%d" % round(v)
    return "%.*g" % (digits, v)


def ratio_text(r, spread):
    """1.52 [1.50, 1.55]; within the spread of our own figures it is "equal"."""
    if r is None:
        return "-"
    words = "%.2f [%.2f, %.2f]" % r
    same = spread is not None and 1 / (1 + spread) <= r[0] <= 1 + spread
    return words + " equal" if same else words


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


# ---------------------------------------------------------------- floors

class Graphs:
    """Work and floors of the graphs in a folder; nothing where there is no such file."""

    def __init__(self, folder, device):
        self.folder, self.device, self.cache = folder, device, {}

    def graph(self, case):
        key = (case.model, case.batch)
        if key not in self.cache:
            path = os.path.join(self.folder or "", "%s_n%d.json" % key)
            self.cache[key] = shape_graph(path) if self.folder and os.path.exists(path) else None
        return self.cache[key]

    def floors(self, case):
        import work
        graph = self.graph(case)
        return work.floors(graph, self.device, case.precision) if graph else None

    def position(self, case, microseconds):
        """(FLOP a byte, FLOP/s) of a run."""
        import work
        flop, elements = work.network(self.graph(case))
        return flop / (elements * work.WIDTH[case.precision]), flop / (microseconds * 1e-6)


def shape_graph(path):
    """The graph with weights of which only the shapes are right."""
    import numpy as np

    import graph as graphs
    with open(path, encoding="utf-8") as f:
        graph = graphs.Graph(f.read())
    for t in graph.weights:
        graph.values[t.name] = np.broadcast_to(np.float64(1), t.shape)
    return graphs.prepare(graph)


# ---------------------------------------------------------------- tables

def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)] + \
        ["| " + " | ".join(r) + " |" for r in rows] + [""]


def warm_table(cases, graphs):
    head = ["model", "batch", "einnet", "no derivation", "eager", "compile", "jax", "A-A spread",
            "best peer / einnet", "no derivation / einnet", "floor network", "floor layers",
            "einnet / floor"]
    rows = []
    for case in cases:
        times = [case.value(s, "median_us") for s in SYSTEMS]
        best, floors = case.best_peer(), graphs.floors(case)
        spread = case.spread()
        rows.append([case.model, str(case.batch)] + [number(t) for t in times] + [
            "-" if spread is None else "%.1f %%" % (spread * 100),
            ratio_text(case.ratio(best), spread) if best else "-",
            "same program" if case.same else ratio_text(case.ratio("base"), spread),
            number(floors[0], 3) if floors else "-", number(floors[1], 3) if floors else "-",
            "%.1f" % (times[0] / floors[1]) if floors and times[0] else "-"])
    return table(head, rows)


def state_table(cases):
    head = ["model", "batch"]
    for words in ("cold", "one shot", "p95"):
        head += ["%s: %s" % (words, s) for s in ("einnet", "no deriv.", "eager", "compile", "jax")]
    rows = []
    for case in cases:
        row = [case.model, str(case.batch)]
        for column in ("cold_median_us", "latency_median_us", "p95_us"):
            row += [number(case.value(s, column)) for s in SYSTEMS]
        rows.append(row)
    return table(head, rows)


def detail_table(cases):
    head = ["model", "batch", "system", "variant", "rel. L2", "kernels", "ready after s", "bytes",
            "note"]
    rows = []
    for case in cases:
        for system in SYSTEMS:
            if system in case.failed:
                rows.append([case.model, str(case.batch), system, "failed", "-", "-", "-", "-",
                             case.failed[system].replace("|", "/")])
            elif system in case.rows:
                rows.append([case.model, str(case.batch), system] + [
                    case.word(system, c).replace("|", "/") for c in
                    ("variant", "error", "kernels", "setup_s", "bytes", "note")])
    return table(head, rows)


def means(cases):
    """Lines of geometric means over the models, cases of single operators left out."""
    lines = []
    for words, ratio in (("best peer / einnet", lambda c: c.ratio(c.best_peer())
                          if c.best_peer() else None),
                         ("no derivation / einnet", lambda c: c.ratio("base"))):
        found = [(ratio(c)[0], c) for c in cases if ratio(c)]
        if found:
            least = min(found, key=lambda f: f[0])
            lines.append("- %s: geometric mean %.2f over %d, least %.2f (%s, batch %d)" % (
                words, geometric_mean([f[0] for f in found]), len(found), least[0],
                least[1].model, least[1].batch))
    return lines + [""] if lines else []


# What an issue of the project asks for: ratios to reach, and steps that a run may have at most.
PEER_MEAN = {"fp32": 1.5, "tf32": 1.2, "fp16": 1.2}
TWICE = ("dcgan", "infogan", "gcn", "longformer")
DERIVED_MEAN = 1.2
STEPS = (("resnet18", ("tf32", "fp16"), 24), ("bert_base", ("fp32", "tf32", "fp16"), 75),
         ("dcgan", ("fp32", "tf32", "fp16"), 10), ("infogan", ("fp32", "tf32", "fp16"), 10),
         ("fsrcnn", ("fp32", "tf32", "fp16"), 10), ("longformer", ("fp32", "tf32", "fp16"), 6))


def gate(what, batch, wanted, value, good):
    """A row of the table of gates; `value` None: nothing was measured."""
    if value is None:
        return [what, str(batch), wanted, "-", "not measured"]
    return [what, str(batch), wanted, value, "pass" if good else "FAIL"]


def least(found):
    value, case = min(found, key=lambda f: f[0])
    return "%.2f (%s)" % (value, case.model)


def peer_gates(cases, precision, batch):
    found = [(c.ratio(c.best_peer())[0], c) for c in cases if c.best_peer()]
    wanted = PEER_MEAN[precision]
    mean = geometric_mean([f[0] for f in found])
    missing = sum(1 for c in cases if not c.best_peer())
    note = "; %d models without a peer" % missing if missing and found else ""
    yield gate("never slower than the best peer", batch, "least >= 1",
               least(found) + note if found else None, found and min(f[0] for f in found) >= 1)
    yield gate("best peer / einnet, geometric mean", batch, ">= %.1f" % wanted,
               "%.2f over %d" % (mean, len(found)) if found else None, found and mean >= wanted)
    for model in TWICE if batch == 1 else ():
        one = [f for f in found if f[1].model == model]
        yield gate("best peer / einnet, %s" % model, batch, ">= 2",
                   "%.2f" % one[0][0] if one else None, one and one[0][0] >= 2)


def derivation_gates(cases, batch):
    found = [(c.ratio("base")[0], c) for c in cases if c.ratio("base")]
    mean = geometric_mean([f[0] for f in found])
    yield gate("no derivation / einnet, geometric mean", batch, ">= %.1f" % DERIVED_MEAN,
               "%.2f over %d" % (mean, len(found)) if found else None,
               found and mean >= DERIVED_MEAN)
    yield gate("derivation never slower", batch, "least >= 1", least(found) if found else None,
               found and min(f[0] for f in found) >= 1)


def step_gates(cases, precision):
    for model, precisions, most in STEPS:
        if precision not in precisions:
            continue
        found = [c.word("ours", "kernels") for c in cases if c.model == model and c.batch == 1]
        known = found and found[0].isdigit()
        yield gate("kernels of a run, %s" % model, 1, "<= %d" % most, found[0] if known else None,
                   known and int(found[0]) <= most)


def gates(cases, precision):
    """Whether what was asked for is reached, models alone: single operators stand in a table."""
    chosen = [c for c in cases if not c.model.startswith("cases/")]
    rows = []
    for batch in sorted({c.batch for c in chosen} & {1, 16}):
        group = [c for c in chosen if c.batch == batch]
        rows += peer_gates(group, precision, batch)
        if precision == "fp32":
            rows += derivation_gates(group, batch)
    rows += step_gates(chosen, precision)
    return table(["gate", "batch", "wanted", "measured", "verdict"], rows) if chosen else []


INTRO = """Times are microseconds. Warm: graph replays back to back, medians; cold: after a 256 MB
fill outside the timed events; one shot: launch to completion on the host's clock. A ratio is the
median of paired rounds (A B B A) with the least and the most; it is "equal" where it is below the
spread of two measurements of the same program. jax gives no events of its stream: its times are
the host's. Floors: max(FLOP / peak, bytes / bandwidth) by data sheets, of the network as one kernel
and as one perfect kernel a layer, for the multiply-adds as the model writes them: derived forms may
need fewer. Who failed or was out of tolerance is not compared; the last table says why.
"""


def versions(cases):
    """Lines that name the libraries of each system, as far as rows tell."""
    lines = []
    for system in SYSTEMS:
        found = {r["versions"] for c in cases for r in c.rows.get(system, ())} - {"-"}
        lines += ["- %s: %s" % (system, "; ".join(sorted(found)))] if found else []
    return lines + [""] if lines else []


def gate_lines(cases, precision):
    found = gates(cases, precision)
    return ["### Gates", ""] + found if found else []


def report(cases, graphs, device, title):
    lines = ["# %s" % title, "", INTRO] + versions(cases.values())
    plots = {}
    for precision, words in PRECISIONS:
        chosen = sorted((c for c in cases.values() if c.precision == precision),
                        key=lambda c: (c.model.startswith("cases/"), c.model, c.batch))
        if not chosen:
            continue
        lines += ["## %s" % words, ""]
        for part, heading in ((False, "Models"), (True, "Operator cases: whole rewrites")):
            group = [c for c in chosen if c.model.startswith("cases/") == part]
            if group:
                lines += ["### " + heading, ""] + warm_table(group, graphs)
                lines += means(group) if not part else []
                lines += state_table(group)
        for name, words in draw(chosen, graphs, device, precision, words):
            plots[name] = words
            lines += ["![%s](%s)" % (name.rsplit(".", 1)[0], name), ""]
        lines += gate_lines(chosen, precision)
        lines += ["### Errors, kernels, time until ready", ""] + detail_table(chosen)
    return "\n".join(lines), plots


def draw(cases, graphs, device, precision, words):
    """(file name, SVG) of the plots that have something to show."""
    import work
    for batch in sorted({c.batch for c in cases}):
        groups = [(c.model.replace("cases/", ""), [(s, c.value(s, "median_us")) for s in SYSTEMS])
                  for c in cases if c.batch == batch]
        svg = plot.bars("%s, %s, batch %d: warm time" % (device, words, batch), "microseconds",
                        groups)
        if svg:
            yield "%s_%s_n%d.svg" % (device, precision, batch), svg
    points = []
    for c in cases:
        for system in ("ours", c.best_peer()):
            us = c.value(system, "median_us") if system else None
            if us and graphs.graph(c):
                intensity, rate = graphs.position(c, us)
                if rate > 0 and intensity > 0:
                    label = "%s/%d" % (c.model.replace("cases/", ""), c.batch)
                    points.append((label, system, intensity, rate))
    rates = work.peak(device, precision)
    svg = plot.roofline("%s, %s: einnet and the best peer under the roof" % (device, words),
                        *rates, points) if rates[0] else None
    if svg:
        yield "%s_%s_roofline.svg" % (device, precision), svg


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--device", required=True)
    parser.add_argument("--graphs")
    parser.add_argument("--out", required=True)
    parser.add_argument("--title")
    args = parser.parse_args()
    import work
    if args.device not in work.DEVICES:
        sys.exit("report.py: no data sheet of '%s'; there are %s" % (
            args.device, ", ".join(sorted(work.DEVICES))))
    cases = read_rows(args.rows)
    if not cases:
        sys.exit("report.py: no rows")
    text, plots = report(cases, Graphs(args.graphs, args.device), args.device,
                         args.title or "Measured on %s" % args.device)
    os.makedirs(args.out, exist_ok=True)
    for name, content in [(args.device + ".md", text)] + sorted(plots.items()):
        with open(os.path.join(args.out, name), "w", encoding="utf-8") as f:
            f.write(content)
    print("report: %d cases, %d plots in %s" % (len(cases), len(plots), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
