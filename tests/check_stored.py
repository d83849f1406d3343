#!/usr/bin/env python3
"""Which maps are stored rather than computed again where they are read (gen/prepare/fold.c): by how
often that would be, and how much there is to compute. Ends with `N passed, N failed`.
"""

import os
import sys
import tempfile

import harness
from harness import Checks, cost, steps

MODEL = """ein 1
model stored
dim N = %d
input x: f32[N,N]
output y
%s
"""
STEP = "%s[i,j] = %s[i,j] + 0.2 * (%s[i-1,j] + %s[i+1,j] + %s[i,j-1] + %s[i,j+1] - 4 * %s[i,j])"
BOX = " where i in 0:N, j in 0:N, pad %s 0"


def stencil(result, of):
    return STEP % ((result,) + 6 * (of,)) + BOX % of


TWO = stencil("a", "x") + "\n" + stencil("y", "a")
LONG = "a[i,j] = exp(-x[i,j] * x[i,j]) * tanh(x[i,j])\n"
# What is tested, N, equations, steps.
CASES = (
    ("two steps of a stencil", 1000, TWO, 2),
    ("four", 1000, "\n".join(stencil(*pair) for pair in ("ax", "ba", "cb", "yc")), 4),
    ("two of a small one", 100, TWO, 1),
    ("functions at three places", 1000, LONG + "y[i,j] = a[i,j] + a[(i+1)%N,j] + a[(i+2)%N,j]"
     " where i in 0:N", 2),
    ("little at two places", 1000, "a[i,j] = 2 * x[i,j] + 1\ny[i,j] = a[i,j] * a[i,(j+1)%N]"
     " where j in 0:N", 1),
    ("functions at one place", 1000, LONG + "y[i,j] = a[i,j] + x[j,i]", 1),
    ("each element once", 1000, LONG + "y[i,j] = a[2*i,j] + a[2*i+1,j] where i in 0:N/2", 1),
)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.ein")
        for name, n, equations, want in CASES:
            with open(path, "w") as file:
                file.write(MODEL % (n, equations))
            text = harness.emit(folder, path)
            checks.expect(name, want, steps(text))
            if want > 1:
                checks.check(name + ": cheap", cost(text) < 4 * want, cost(text))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
