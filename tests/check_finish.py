#!/usr/bin/env python3
"""Maps that finish the sums of a reduction that they alone read, at several places each.

tests/unseen/gates.ein: which sums are finished and which may not be; products whose loads compute
maps give these up where that is cheaper; right to the judge, with a fault planted wrong. Tables of
costs decide where they have rows, and probes ask for these and for their parts by themselves. Ends
with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

import harness
from harness import EINNET, HERE, Checks, cost, steps

MODEL = os.path.join(HERE, "unseen", "gates.ein")

checks = Checks()


def emit(folder, *options, model=MODEL):
    return harness.emit(folder, model, *options)


def launched(text):
    """The tensors of steps that are reductions."""
    return re.findall(r"^// +[\d.]+ us (?:est\.|measured) ([\w.]+) +k_reduce_\w{8}$", text, re.M)


def choices(folder):
    """Which steps are left, whatever the libraries and the arithmetic."""
    for options in ([], ["--libs", "none"], ["--math", "fp16"], ["--math", "tf32"]):
        text = emit(folder, *options)
        names = launched(text)
        for last in ("c.1", "c", "s.1", "s", "glu", "turned"):
            checks.check("%s %s" % (last, options),
                         last in names or last + ".2" in names, names)
        for stays in ("kept", "sum"):
            checks.check("%s %s stays" % (stays, options),
                         re.search(r"us est\. %s +(?!k_reduce)" % stays, text) is not None)
        checks.check("four sums %s" % options, "acc.w +=" in text and "warp_four" in text)
        checks.check("three sums %s" % options, "float3 acc" in text)
    apart = emit(folder, "--rules=-fuse")
    checks.expect("without fusion", [], [n for n in launched(apart) if n in ("c.1", "s.1", "glu")])
    kept = emit(folder, "--inspect")
    checks.expect("with every tensor kept", [],
                  [n for n in launched(kept) if n in ("c.1", "s.1", "glu")])
    checks.check("cheaper", cost(emit(folder)) < cost(apart))
    proof = subprocess.run([EINNET, "verify", MODEL], capture_output=True, text=True)
    checks.check("proved", proof.returncode == 0, proof.stdout + proof.stderr)


def forms(folder):
    """A product read by a map at one to five places, which four sums are the most of."""
    path = os.path.join(folder, "places.ein")
    for places in range(1, 6):
        reads = " * ".join("p[n,%d*D+d]" % k for k in range(places))
        text = ("ein 1\nmodel places\ndim D = 64, K = 256\ninput x: f32[1,K]\n"
                "weight w: f32[%d*D,K] = randn()\noutput y\n"
                "p[n,e] = sum(k) x[n,k] * w[e,k]\n"
                "y[n,d] = tanh(%s) where d in 0:D\n" % (places, reads))
        with open(path, "w") as file:
            file.write(text)
        checks.expect("%d places" % places, 1 if places < 5 else 2,
                      steps(emit(folder, model=path)))


def tables(folder):
    text = harness.probed(folder, MODEL)
    keys = sorted(set(re.findall(r'"(kernel finish \w+)"', text)))
    checks.check("asked for", len(keys) >= 4, keys)
    alone = set(re.findall(r'"(kernel map \w+)"', text))
    checks.check("the maps by themselves too", len(alone) >= 4, alone)
    table = os.path.join(folder, "table")
    for ps in (90000000, 1000):
        harness.write_costs(table, keys, ps)
        names = launched(emit(folder, "--costs", table))
        taken = [n for n in ("c.1", "s.1", "glu") if n in names]
        checks.expect("where a table says %d ps" % ps, ps == 1000, len(taken) == 3)


def runs(folder):
    program = harness.Judged(folder, MODEL, "--dim", "I=24", "--dim", "D=32", "--libs", "none")
    checks.expect("right", 0, program.status())
    checks.expect("no race", 0, program.status(mode="race"))
    planted = re.sub(r"acc\.w \+= ", "acc.z += ", program.text, count=1)
    checks.notices("another gate's sum", program, planted)


def main():
    with tempfile.TemporaryDirectory() as folder:
        choices(folder)
        forms(folder)
        tables(folder)
        runs(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
