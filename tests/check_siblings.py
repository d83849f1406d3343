#!/usr/bin/env python3
"""Kernels that do not need each other as one.

tests/unseen/siblings.ein: which kernels are joined and which may not be; right to the judge in
several orders, also for races; faults planted in what tells blocks apart are noticed. Tables of
costs decide where they have rows, and probes ask for these and for the kernels by themselves.
Ends with `N passed, N failed`.
"""

import os
import re
import sys
import tempfile

import harness
from harness import HERE, Checks, cost, steps

MODEL = os.path.join(HERE, "unseen", "siblings.ein")
SIZES = ["--dim", "H=24", "--dim", "W=24", "--libs", "none", "--branches", "1"]
MOST = 16  # kernels of one

checks = Checks()


def emit(folder, *options, model=MODEL):
    return harness.emit(folder, model, *options)


def joined(text):
    """The tensors of kernels that are one, by kernel."""
    return [line.split(", ") for line in re.findall(r"^// side by side: (.*)$", text, re.M)]


def choices(folder):
    """What is joined, where that is off, and that a plan with it is the cheaper one."""
    text = emit(folder, *SIZES)
    found = joined(text)
    checks.expect("joined", [["p", "q", "v", "y.data", "z.data"], ["u", "y", "z"]], found)
    apart = emit(folder, *SIZES, "--rules=-fuse")
    checks.expect("without fusion", [], joined(apart))
    checks.expect("with every tensor kept", [], joined(emit(folder, *SIZES, "--inspect")))
    checks.expect("cheaper", True, cost(text) < cost(apart))
    types = os.path.join(HERE, "unseen", "stitched_types.ein")
    checks.expect("of any type", [["z", "v"]], joined(emit(folder, model=types)))
    checks.expect("two joined kernels, a softmax, two products", 5, steps(text))
    # Larger ones run side by side in a recorded graph: those alone stay apart.
    checks.expect("apart from branches", found[:1], joined(emit(folder, "--libs", "none")))


def maps(count, operands=1, size=64):
    """Maps of as many tensors each, which need nothing of each other."""
    lines = ["ein 1", "model maps"]
    names = [["x%d_%d" % (i, k) for k in range(operands)] for i in range(count)]
    for i in range(count):
        lines += ["input %s: f32[%d]" % (name, size + i) for name in names[i]]
    lines += ["output " + ", ".join("y%d" % i for i in range(count))]
    for i in range(count):
        body = " + ".join("%s[i]" % name for name in names[i])
        lines += ["y%d[i] = exp(%s) where i in 0:%d" % (i, body, size + i)]
    return "\n".join(lines) + "\n"


def limits(folder):
    """What one kernel cannot take is left to the next one."""
    path = os.path.join(folder, "maps.ein")
    for name, text, want in (
            ("as many as one takes", maps(MOST), [MOST]),
            ("one more", maps(MOST + 1), [MOST]),
            ("two more", maps(MOST + 2), [MOST, 2]),
            ("as many operands as one takes", maps(4, 15), [4]),
            ("one more of each", maps(4, 16), [3]),
            ("as many threads as an unsigned numbers", maps(3, 1, 0x7ffffff0 // 3), [3]),
            ("more", maps(3, 1, 0x7ffffff0 // 3 + 8), [2])):
        with open(path, "w") as file:
            file.write(text)
        checks.expect(name, want, [len(names) for names in joined(emit(folder, model=path))])


def sums(terms):
    """Two sums over windows, as long ones, and a map of each; all four are stored."""
    lines = ["ein 1", "model sums", "input x: f32[40,12,14]", "weight b: f32[40] = randn(seed=1)",
             "output s, t, u, v"]
    for name, of, at in (("s", "t", "i+r-2,j"), ("u", "v", "i,j+r-2")):
        lines += ["%s[c,i,j] = sum(r) x[c,%s] where i in 0:12, j in 0:14, r in 0:%d, pad x 0" %
                  (name, at, terms), "%s[c,i,j] = max(%s[c,i,j] + b[c], 0)" % (of, name)]
    return "\n".join(lines) + "\n"


def recomputed(folder):
    """A map of a short sum that is stored too has the sum once more, and does not wait for it."""
    path = os.path.join(folder, "sums.ein")
    for terms, want in ((5, [["s", "t", "u", "v"]]), (17, [])):
        with open(path, "w") as file:
            file.write(sums(terms))
        text = emit(folder, model=path)
        checks.expect("one kernel of two sums of %d terms and their maps" % terms, want,
                      joined(text))
        if want:
            checks.expect("and right", 0, harness.Judged(folder, path).status())


def waits(folder):
    """Threads of two long loops wait for their loads at the same time: one takes what both do."""
    path = os.path.join(folder, "waits.ein")
    took = []
    for inputs in ("xy", "x"):
        with open(path, "w") as file:
            file.write("ein 1\nmodel waits\noutput %s\n" % ", ".join("s" + n for n in inputs))
            for n in inputs:
                file.write("input %s: f32[300,64]\ns%s = CumSum(%s; axis=0)\n" % (n, n, n))
        took.append(cost(emit(folder, "--branches", "1", "--rules=-prefix", model=path)))
    checks.check("two wait as long as one", took[0] < took[1] + 0.2, took)


def tables(folder):
    """Rows of a table decide instead of estimates; a probe asks for both sides."""
    text = harness.probed(folder, MODEL, *SIZES)
    keys = sorted(set(re.findall(r'"(kernel siblings \w+)"', text)))
    checks.check("asked for", len(keys) >= 2, keys)
    alone = set(re.findall(r'"(kernel (?:map|reduce|basis) \w+)"', text))
    checks.check("the kernels by themselves too", len(alone) >= 8, alone)
    table = os.path.join(folder, "table")
    for ps, taken in ((9000000, 0), (1000, 2)):
        harness.write_costs(table, keys, ps)
        text = emit(folder, "--costs", table, *SIZES)
        whole = re.findall(r"^// .* us measured .* k_siblings_", text, re.M)
        checks.expect("joined where a table says %d ps" % ps, taken, len(whole))


def runs(folder):
    """Right in all orders, no race; wrong with a fault in what tells blocks apart."""
    program = harness.Judged(folder, MODEL, *SIZES)
    checks.expect("right", 0, program.status(order="rand1"))
    checks.expect("no race", 0, program.status(mode="race"))
    for name, what, to in (("blocks of the second for the first", r"(if \(id < \d+u)\) {",
                            r"\1 + 256u) {"),
                           ("the second's threads miscounted", r"(id -= \d+u);", r"\1 - 256u;")):
        planted = re.sub(what, to, program.text, count=1)
        checks.notices(name, program, planted, order="")


def main():
    with tempfile.TemporaryDirectory() as folder:
        choices(folder)
        tables(folder)
        limits(folder)
        recomputed(folder)
        waits(folder)
        runs(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
