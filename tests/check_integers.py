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
input g: i64[6]
output found, twice
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
# positions beyond what 32 bits hold are outside, too
found[i] = f[@g[i]] where pad f 9
odd[i] = f[2*i+1] where i in 0:3
twice[i] = odd[@g[i]] where pad odd 9
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
# The sums of a product meet in shared memory, and what is added to them is loaded before.
ENDED = """ein 1
model e
input x: f32[256,1024]
input a: i32[256,256]
input b: i32[256,256]
weight w: f32[1024,256] = randn(std=0.1)
output y
p = MatMul(x, w)
y[i,j] = p[i,j] + 0.5 * (a[i,j] - b[i,j])
"""
A = np.array([100000001, 2000000003, 16777217, 65536, 200, -5], np.int32)
B = np.array([100000000, 2000000000, 16777216, 65536, 7, 3], np.int32)
C = np.array([1 << 40, (1 << 53) + 1, -(1 << 60), 5, 7, 1 << 33], np.int64)
D = np.array([(1 << 40) + 1, 1 << 53, 1 - (1 << 60), 5, 6, (1 << 33) + 2], np.int64)
E = np.array([3, -7, 1000003, -3, 7, 1 << 20], np.int64)
F = np.array([1, 2, 3, 4, 5, 6], np.float32)
G = np.array([2, (1 << 32) + 3, -(1 << 63), (1 << 63) - 1, 2 - (1 << 32), 1 << 31], np.int64)
OPTIONS = ([], ["--baseline"], ["--libs", "none"], ["--math", "fp16"], ["--rules=-inline"])


def expected():
    quotient = (C - np.fmod(C, E)) // E
    with np.errstate(over="ignore"):
        return {
            "found": np.array([3, 9, 9, 9, 9, 9], np.float32),
            "twice": np.array([6, 9, 9, 9, 9, 9], np.float32),
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


def emitted(folder, model, options, given):
    """Emits a model, builds it, runs it with the inputs of folder `given`; gives its outputs'."""
    path = os.path.join(folder, model)
    if not os.path.exists(path + ".weights"):
        subprocess.run([EINNET, "pack", path + ".ein", "-o", path + ".weights"], check=True)
    subprocess.run([EINNET, "emit", path + ".ein", "-o", path + ".cu", "--test",
                    path + "_test.cu"] + options, check=True)
    subprocess.run([JUDGE, "--quick", "-o", path, path + "_test.cu", path + ".cu"], check=True)
    out = path + ".out"
    os.makedirs(out, exist_ok=True)
    subprocess.run([path, path + ".weights", "--out", out] + inputs_of(given), check=True,
                   stdout=subprocess.DEVNULL)
    return out


def inputs_of(given):
    return [word for name in sorted(os.listdir(given)) for word in
            ("--in", "%s=%s" % (name.partition(".")[0], os.path.join(given, name)))]


def saved(folder, model, text, values):
    """Writes a model and its inputs; gives their folder."""
    given = os.path.join(folder, model + ".in")
    with open(os.path.join(folder, model + ".ein"), "w") as file:
        file.write(text)
    os.mkdir(given)
    for name, value in values.items():
        np.save(os.path.join(given, name + ".npy"), value)
    return given


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        given = saved(folder, "m", MODEL, dict(zip("abcdefg", (A, B, C, D, E, F, G))))
        out = os.path.join(folder, "eval")
        subprocess.run([EINNET, "eval", os.path.join(folder, "m.ein"), "--out", out] +
                       inputs_of(given), check=True)
        # eval computes in float64, which has 53 digits
        wide = ("less", "offset", "square", "quotient", "rest", "parts")
        checks.none("eval", [words for words in wrong(out) if words.split(":")[0] not in wide])
        for options in OPTIONS:
            checks.none("emitted %s" % " ".join(options),
                        wrong(emitted(folder, "m", options, given)))
        a, b = np.resize(A, (256, 256)), np.resize(B, (256, 256))
        given = saved(folder, "e", ENDED, {"x": np.zeros((256, 1024), np.float32), "a": a, "b": b})
        out = emitted(folder, "e", ["--libs", "none"], given)
        with open(os.path.join(folder, "e.cu")) as file:
            checks.check("the differences are a product's epilogue", " k_product_" in file.read())
        got = np.load(os.path.join(out, "y.npy"))
        checks.check("and integers there", np.array_equal(got, np.float32(0.5) * (a - b)), str(got))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
