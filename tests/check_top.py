#!/usr/bin/env python3
"""TopK: what is estimated for rows of all lengths, few of many in blocks (gen/parse/ops_top.c).

No plan takes longer than it did when its equations were last changed, with some room; ranks are
counted in 32 bits, four a thread where there are many. Ends with `N passed, N failed`.
"""

import os
import sys
import tempfile

from harness import Checks, cost, emit

MODEL = """ein 1
model m
input x: f32[%d,%d]
output y, i
y, i = TopK(x; k=%d)
"""

# Rows, their length, of these so many; microseconds at most.
CASES = ((4096, 1024, 20, 95), (80, 9216, 100, 54), (8, 50257, 5, 18), (1, 300000, 1000, 50),
         (4096, 8, 2, 4))


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        for rows, size, count, most in CASES:
            path = os.path.join(folder, "m.ein")
            with open(path, "w", encoding="utf-8") as out:
                out.write(MODEL % (rows, size, count))
            text = emit(folder, path, "--libs", "none")
            name = "%d of %d x %d" % (count, rows, size)
            checks.check(name, cost(text) <= most, "%g us, at most %g" % (cost(text), most))
            checks.check(name + " in 32 bits", "long long acc" not in text, "some are in 64")
            few = rows * size < 1 << 20
            checks.check(name + ", four a thread", few or "make_int4" in text, "one")
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
