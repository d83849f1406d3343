#!/usr/bin/env python3
"""Plans of recurrences that an import has written out: steps launch the same kernels, states are
stored where the result lies, and maps of many operands stay within what a kernel takes. Ends with
`N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, HERE, Checks

STEP = re.compile(r"^// +[\d.]+ us est\. (\S+) +(.*)$", re.M)


def plan(path, folder, *options):
    """Steps of the plan in their order: name and what computes it."""
    out = os.path.join(folder, "m.cu")
    done = subprocess.run([EINNET, "emit", path, "-o", out, *options], capture_output=True,
                          text=True, timeout=300)
    if done.returncode:
        return None, done.stderr
    with open(out) as file:
        return STEP.findall(file.read()), ""


def concat(count):
    """So many inputs side by side, each read as it is."""
    inputs = "".join("input x%d: f32[4]\n" % i for i in range(count))
    names = ", ".join("x%d" % i for i in range(count))
    return "ein 1\nmodel m\n%soutput y\ny = Concat(%s; axis=0)\n" % (inputs, names)


def nested(count):
    """Maps that read two inputs each, side by side in groups of 16, and those again."""
    lines = ["ein 1\nmodel m\noutput y"]
    for i in range(count):
        lines.append("input a%d: f32[4]\ninput b%d: f32[4]" % (i, i))
        lines.append("c%d = Add(a%d, b%d)" % (i, i, i))
    for i in range(0, count, 16):
        lines.append("g%d = Concat(%s; axis=0)" % (i, ", ".join("c%d" % k
                                                                 for k in range(i, i + 16))))
    lines.append("y = Concat(%s; axis=0)" % ", ".join("g%d" % i for i in range(0, count, 16)))
    return "\n".join(lines) + "\n"


def check_gates(checks, folder):
    steps, why = plan(os.path.join(HERE, "unseen", "recurrent_gates.ein"), folder)
    checks.check("gates: emitted", steps, why)
    kernel = dict(steps or [])
    for group in (("lstm.t1.c", "lstm.t2.c"), ("y.forth.t1.h", "y.forth.t2.h", "y.forth.t3.h")):
        used = {kernel.get(name) for name in group}
        checks.check("gates: one kernel for " + ", ".join(group),
                     len(used) == 1 and None not in used, used)
    for name in ("y", "lstm", "lstm.states", "lstm.input.2", "lstm.t1.sum", "lstm.t1.h"):
        checks.check("gates: %s is no step" % name, name not in kernel, kernel.get(name))


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_gates(checks, folder)
        for name, text in [("concat %d" % n, concat(n)) for n in (61, 62, 63, 64)] + \
                          [("nested %d" % n, nested(n)) for n in (32, 64, 128)]:
            path = os.path.join(folder, "m.ein")
            with open(path, "w") as file:
                file.write(text)
            for options in ((), ("--libs", "none"), ("--baseline",)):
                steps, why = plan(path, folder, *options)
                checks.check("%s %s" % (name, " ".join(options)), steps, why)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
