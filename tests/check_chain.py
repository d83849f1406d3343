#!/usr/bin/env python3
"""Maps behind each other, whose values are needed elsewhere too, as one kernel.

tests/unseen/chains_hidden.ein: what nobody else reads is not stored, and what integers lose on the
way they lose in registers too. tests/unseen/chains_stored.ein: which maps are one kernel and which
may not be; long chains in pieces; in one order or another of what reads them; right to the judge,
with a fault planted wrong. Tables of costs decide where they have rows, and probes ask for these
and for the maps by themselves. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

import harness
from harness import EINNET, HERE, Checks

MODEL = os.path.join(HERE, "unseen", "chains_stored.ein")
HIDDEN = os.path.join(HERE, "unseen", "chains_hidden.ein")
POSITIONS = os.path.join(HERE, "unseen", "positions_chained.ein")
MOST = 32  # maps of one kernel

checks = Checks()


def emit(folder, *options, model=MODEL):
    return harness.emit(folder, model, *options)


def chains(text):
    """What kernels store that compute several maps: the equations above, by kernel."""
    found = []
    for above, name in re.findall(r"((?:^//.*\n)+)static __global__ .*? k_(\w+?)_\w{8}\(", text,
                                  re.M):
        values = re.findall(r"^// ([\w.]+)\[.*?\] = ", above, re.M)
        if name == "map" and len(values) > 1:
            found.append(values)
    return sorted(found)


def choices(folder):
    want = [["cell", "hidden"], ["s.0", "s.1", "s.2", "s.3"], ["t2", "t3"]]
    for options in ([], ["--small"], ["--libs", "none"]):
        checks.expect("chains " + " ".join(options), want, chains(emit(folder, *options)))
    checks.expect("without fusion", [], chains(emit(folder, "--rules=-fuse")))
    checks.expect("with every tensor kept", [], chains(emit(folder, "--inspect")))


def scan(count, late, size=40):
    """A scan of as many steps, all outputs; where they are late, with what reads them behind it."""
    names = ["s%d" % t for t in range(count)]
    lines = ["ein 1", "model scan", "input x: f32[%d,%d]" % (count, size),
             "output " + ", ".join(names + ["y%d" % t for t in range(count)])]
    reads = ["y%d[i] = sum(j) s%d[j] * x[%d,j] where i in 0:3" % (t, t, t) for t in range(count)]
    for t in range(count):
        before = " + s%d[i]" % (t - 1) if t else ""
        lines.append("s%d[i] = tanh(x[%d,i])%s" % (t, t, before))
        lines += [] if late else [reads[t]]
    return "\n".join(lines + (reads if late else [])) + "\n"


def forms(folder):
    path = os.path.join(folder, "scan.ein")
    for name, text, want in (
            ("read behind all", scan(6, True), [6]), ("read step by step", scan(6, False), [6]),
            ("as many as one takes", scan(MOST, False), [MOST]),
            ("more than two take", scan(2 * MOST + 3, False), [3, MOST, MOST])):
        with open(path, "w") as file:
            file.write(text)
        checks.expect(name, want, sorted(len(c) for c in chains(emit(folder, model=path))))
        proof = subprocess.run([EINNET, "verify", path], capture_output=True, text=True)
        checks.check(name + ", proved", proof.returncode == 0, proof.stdout + proof.stderr)
    # In the way: what a sum makes of the first value is read by the third.
    between = ["ein 1", "model between", "input x: f32[30]", "input k: f32[30,9]", "output a, b, c",
               "a[i] = exp(x[i])", "m[j] = max(i) a[i] * k[i,j]", "b[i] = a[i] / (m[0] + m[8])",
               "c[i] = a[i] - b[i]"]
    with open(path, "w") as file:
        file.write("\n".join(between) + "\n")
    checks.expect("a sum between", [["b", "c"]], chains(emit(folder, model=path)))


def shared(folder):
    """Steps that are read several times each: as a tree they would be too many to look at."""
    lines, x = ["ein 1", "model shared", "input x: f32[64,100]", "output a, b"], "x"
    for k in range(40):
        lines += ["t%d = Tanh(%s)" % (k, x), "u%d = Mul(t%d, %s)" % (k, k, x),
                  "s%d = Add(u%d, t%d)" % (k, k, k)]
        x = "s%d" % k
    path = os.path.join(folder, "shared.ein")
    with open(path, "w") as file:
        file.write("\n".join(lines + ["a = Exp(%s)" % x, "b = Sub(%s, x)" % x]) + "\n")
    done = subprocess.run([EINNET, "emit", path, "-o", "-"], capture_output=True, text=True,
                          timeout=300)
    checks.check("steps that are shared", "k_map_" in done.stdout, done.stderr)


def tables(folder):
    text = harness.probed(folder, MODEL)
    keys = sorted(set(re.findall(r'"(kernel chain \w+)"', text)))
    checks.check("asked for", len(keys) >= 3, keys)
    alone = set(re.findall(r'"(kernel map \w+)"', text))
    checks.check("the maps by themselves too", len(alone) >= 6, alone)
    table = os.path.join(folder, "table")
    for ps, taken in ((90000000, 0), (1000, 3)):
        harness.write_costs(table, keys, ps)
        found = chains(emit(folder, "--costs", table))
        checks.expect("chains where a table says %d ps" % ps, taken, len(found))


def runs(folder):
    program = harness.Judged(folder, MODEL, "--small", "--libs", "none")
    checks.expect("right", 0, program.status())
    checks.expect("no race", 0, program.status(mode="race"))
    planted = re.sub(r"&y2\[", "&y1[", program.text, count=1)
    checks.notices("a store of another map", program, planted)


def hidden(folder):
    """What is read on the way alone has no place in memory; a position that is looked up elsewhere
    has."""
    for options in ([], ["--small"], ["--libs", "none"], ["--rules=-fuse"], ["--inspect"]):
        text = emit(folder, *options, model=HIDDEN)
        places = set(re.findall(r"^#define v_(\w+) ARENA", text, re.M))
        whole = options and ("fuse" in options[0] or "inspect" in options[0])
        on_the_way = {"t", "u", "a", "large", "q", "r"}
        checks.expect("on the way " + " ".join(options), on_the_way if whole else set(),
                      on_the_way & places)
        checks.check("read elsewhere " + " ".join(options), {"v", "s"} <= places, places)
    program = harness.Judged(folder, HIDDEN, "--small")
    checks.expect("hidden: right", 0, program.status())
    checks.notices("an i8 that keeps its bits", program, program.text.replace("(signed char)", ""))


def positions(folder):
    """What reads at a position goes on where that is worked out."""
    for options in ([], ["--small"], ["--libs", "none"]):
        found = chains(emit(folder, *options, model=POSITIONS))
        found = [sorted(v for v in c if v in "abcdyzqr") for c in found]
        checks.expect("positions " + " ".join(options),
                      [["a", "b", "c", "y", "z"], ["d", "q", "r"]], found)
    program = harness.Judged(folder, POSITIONS, "--small")
    checks.expect("positions: right", 0, program.status())
    planted = re.sub(r"(const int t\d+ = )\(int\)max\(", r"\1(int)(1 + max(", program.text, count=1)
    planted = re.sub(r"(\(int\)\(1 \+ max\(.*ll\));", r"\1);", planted)
    checks.notices("a position beside", program, planted)


def main():
    with tempfile.TemporaryDirectory() as folder:
        hidden(folder)
        positions(folder)
        choices(folder)
        forms(folder)
        shared(folder)
        tables(folder)
        runs(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
