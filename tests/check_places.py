#!/usr/bin/env python3
"""Which programs find places of extrema in one pass over the terms (gen/prepare/place.c), and
which must not: by the comparison, what it compares with, the places and what stands for none. Ends
with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, Checks

MODEL = """ein 1
model m
dim N = 6, K = 500
input x: f32[N,K]
input z: f32[N,K]
input q: i32[N,K]
output %s
%s
"""
MAX = "s[n] = max(k) x[n,k]\n"
EQUATION = MAX + "y[n] = min(k) select(%s)"
FOUND = "x[n,k] == s[n], idx(k), %d" % 499

# What is tested, equations, outputs, the kernels of the plan in order.
CASES = (
    ("the operator", "y = ArgMax(x; axis=1)", "y", ["place"]),
    ("the other one, behind a map", "a = Mul(x, z)\ny = ArgMin(a; axis=1, select_last_index=1)",
     "y", ["place"]),
    ("a map that is stored anyway", "a = Mul(x, z)\ny = ArgMin(a; axis=1)", "a, y",
     ["map", "place"]),
    ("along the other axis", "y = ArgMax(x; axis=0, keepdims=0)", "y", ["place"]),
    ("of integers", "y = ArgMin(q; axis=1)", "y", ["place"]),
    ("spelled out", EQUATION % FOUND, "y", ["place"]),
    ("the sides exchanged", EQUATION % "s[n] == x[n,k], idx(k), idx(K)", "y", ["place"]),
    ("what is not equal", EQUATION % "x[n,k] != s[n], idx(K), idx(k)", "y", ["place"]),
    ("what is no smaller", EQUATION % "s[n] <= x[n,k], idx(k), idx(K)", "y", ["place"]),
    ("places in steps", EQUATION % "x[n,k] == s[n], idx(3*k+n), idx(4*K)", "y", ["place"]),
    ("a map behind", EQUATION % FOUND + "\nv[n] = 2 * y[n] + 1", "v", ["place"]),
    ("a map behind, which is a position", "a = Mul(x, z)\nb = ArgMax(a; axis=1, keepdims=0)\n"
     "i = Mul(b, b)\ny[n] = x[0,@i[n]]", "y", ["place", "map"]),
    ("the maximum too", EQUATION % FOUND, "s, y", ["reduce", "place"]),
    ("beside a softmax", "p = Softmax(x; axis=1)\ny = ArgMax(x; axis=1)", "p, y",
     ["row", "place"]),
    ("behind a softmax", "p = Softmax(x; axis=1)\ny = ArgMax(p; axis=1)", "y", ["row", "place"]),
    ("integers that are smaller", "s[n] = max(k) q[n,k]\n"
     "y[n] = min(k) select(q[n,k] < s[n], idx(K), idx(k))", "y", ["place"]),
    # What is no place: two reductions, those of one row in one kernel.
    # NaN is not smaller either
    ("floats that are smaller", EQUATION % "x[n,k] < s[n], idx(K), idx(k)", "y",
     ["row"]),
    ("what is larger", EQUATION % "x[n,k] > s[n], idx(k), idx(K)", "y", ["row"]),
    ("another tensor's maximum", EQUATION % "z[n,k] == s[n], idx(k), idx(K)", "y",
     ["row"]),
    ("another row's maximum", EQUATION % "x[n,k] == s[5-n], idx(k), idx(K)", "y",
     ["reduce", "reduce"]),
    ("a place beyond none", EQUATION % "x[n,k] == s[n], idx(k), 498", "y", ["row"]),
    ("no place", EQUATION % "x[n,k] == s[n], z[n,k], idx(K)", "y", ["row"]),
    ("a sum of places", (EQUATION % FOUND).replace("min(k)", "sum(k)"), "y",
     ["row"]),
    ("a sum of terms", (EQUATION % FOUND).replace("max(k)", "sum(k)"), "y",
     ["row"]),
    ("a part of the terms", "s[n] = max(k) x[n,k] where k in 0:499\n"
     "y[n] = min(k) select(%s)" % FOUND, "y", ["reduce", "reduce"]),
)


def kernels(model, options, folder):
    file = os.path.join(folder, "m")
    with open(file + ".ein", "w", encoding="utf-8") as out:
        out.write(model)
    subprocess.run([EINNET, "emit", file + ".ein", "-o", file + ".cu"] + options, check=True)
    with open(file + ".cu", encoding="utf-8") as text:
        return re.findall(r"^// .* us est\. .* k_([a-z]+)_", text.read(), re.M)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        for name, text, outputs, wanted in CASES:
            for options in ([], ["--math", "fp16"], ["--baseline"]):
                got = kernels(MODEL % (outputs, text), options, folder)
                checks.check(" ".join([name] + options), got == wanted,
                             "%s, not %s" % (got, wanted))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
