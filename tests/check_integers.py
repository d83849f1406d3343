#!/usr/bin/env python3
"""Integers that floats have no digits for, and that types have no bits for: what `eval` and the
emitted program, run by the judge, make of them is what numpy does, whether plans fuse what is
computed or not. Ends with `N passed, N failed`.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np

from harness import EINNET, JUDGE, Checks

MODEL = """ein 1
model m
input a: i32[6]
input b: i32[6]
input c: i64[6]
input d: i64[6]
input e: i64[6]
input f: f32[6]
output same, less, difference, offset, square, low, scaled, mixed, quotient, rest, parts
t = Equal(a, b)
u = Neg(f)
same = Where(t, f, u)
l = Less(c, d)
less = Where(l, f, u)
s = Sub(a, b)
difference = Cast(s; to=f32)
o = Sub(c, d)
of = Cast(o; to=f32)
offset = Mul(of, f)
m = Mul(a, a)
square = Cast(m; to=f32)
n = Cast(a; to=i8)
nf = Cast(n; to=f32)
low = Add(nf, f)
# the same integers as a difference and one by one
mf = Cast(a; to=f32)
mixed[i] = select(a[i] - b[i] == 1, mf[i], f[i])
scaled[i] = 0.5 * (a[i] - b[i])
# parts of what no float holds
q = Div(c, e)
r = Mod(c, e)
k = Mod(c, e; fmod=1)
qe = Mul(q, e)
back = Add(qe, k)
whole = Equal(back, c)
quotient = Cast(q; to=f32)
rf = Cast(r; to=f32)
rest = Where(whole, rf, u)
qf = Cast(q; to=f32)
kf = Cast(k; to=f32)
pf = Mul(qf, f)
parts = Add(pf, kf)
"""
A = np.array([100000001, 2000000003, 16777217, 65536, 200, -5], np.int32)
B = np.array([100000000, 2000000000, 16777216, 65536, 7, 3], np.int32)
C = np.array([1 << 40, (1 << 53) + 1, -(1 << 60), 5, 7, 1 << 33], np.int64)
D = np.array([(1 << 40) + 1, 1 << 53, 1 - (1 << 60), 5, 6, (1 << 33) + 2], np.int64)
E = np.array([3, -7, 1000003, -3, 7, 1 << 20], np.int64)
F = np.array([1, 2, 3, 4, 5, 6], np.float32)
OPTIONS = ([], ["--baseline"], ["--libs", "none"], ["--math", "fp16"], ["--rules=-inline"])


def expected():
    quotient = (C - np.fmod(C, E)) // E
    with np.errstate(over="ignore"):
        return {
            "same": np.where(A == B, F, -F),
            "less": np.where(C < D, F, -F),
            "difference": (A - B).astype(np.float32),
            "offset": (C - D).astype(np.float32) * F,
            "square": (A * A).astype(np.float32),
            "low": A.astype(np.int8).astype(np.float32) + F,
            "mixed": np.where(A - B == 1, A.astype(np.float32), F),
            "quotient": quotient.astype(np.float32),
            "rest": np.mod(C, E).astype(np.float32),
            "parts": quotient.astype(np.float32) * F + np.fmod(C, E).astype(np.float32),
            "scaled": np.float32(0.5) * (A - B).astype(np.float32),
        }


def wrong(folder):
    """Outputs that are not what numpy gives; of what eval makes the nearest float counts."""
    out = []
    for name, want in expected().items():
        got = np.load(os.path.join(folder, name + ".npy")).ravel().astype(np.float32)
        if not np.array_equal(got, want):
            out.append("%s: %s, not %s" % (name, got, want))
    return out


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        model, given = os.path.join(folder, "m.ein"), os.path.join(folder, "in")
        with open(model, "w") as file:
            file.write(MODEL)
        os.mkdir(given)
        for name, value in zip("abcdef", (A, B, C, D, E, F)):
            np.save(os.path.join(given, name + ".npy"), value)
        inputs = ["--in=%s=%s/%s.npy" % (name, given, name) for name in "abcdef"]
        out = os.path.join(folder, "eval")
        subprocess.run([EINNET, "eval", model, "--out", out] + inputs, check=True)
        # eval computes in float64, which has 53 digits
        wide = ("less", "offset", "square", "quotient", "rest", "parts")
        checks.none("eval", [words for words in wrong(out) if words.split(":")[0] not in wide])
        for options in OPTIONS:
            if options == []:
                subprocess.run([EINNET, "pack", model, "-o", os.path.join(folder, "w")],
                               check=True)
            source, program = os.path.join(folder, "m.cu"), os.path.join(folder, "m")
            subprocess.run([EINNET, "emit", model, "-o", source, "--test",
                            os.path.join(folder, "m_test.cu")] + options, check=True)
            subprocess.run([JUDGE, "--quick", "-o", program, os.path.join(folder, "m_test.cu"),
                            source], check=True)
            out = os.path.join(folder, "run")
            os.makedirs(out, exist_ok=True)
            subprocess.run([program, os.path.join(folder, "w"), "--out", out] +
                           [word for name in "abcdef" for word in
                            ("--in", "%s=%s/%s.npy" % (name, given, name))], check=True,
                           stdout=subprocess.DEVNULL)
            checks.none("emitted %s" % " ".join(options), wrong(out))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
