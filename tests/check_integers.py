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
# Integers that rows of other numbers read too, and reductions to integers, alone, along rows, with
# what comes behind them.
REDUCED = """ein 1
model r
input a: i64[9,40]
input b: i64[9,40]
input c: i64[9]
input e: i32[9,40]
input z: u8[9,40]
output bytes, high, apart, scaled, soft, chosen, ids, across, top, total, less, running
# an integer extremum of a row, and what several passes read as a float and as it is
m = ReduceMax(e; axes=[1], keepdims=1)
high = Sub(e, m)
af = Cast(a; to=f32)
am = ReduceMax(af; axes=[1], keepdims=1)
d = Sub(a, b)
apart = Cast(d; to=f32)
scaled = Mul(apart, am)
ef = Cast(e; to=f32)
u = Softmax(ef; axis=1)
soft[i,k] = u[i,k] + (e[i,k] - 100000000)
s[i] = sum(k) select(a[i,k] == b[i,k], 1, 0)
chosen[i,k] = s[i] + select(a[i,k] == b[i,k], 0.5, 0)
n = ReduceMin(a; axes=[0], keepdims=1)
g = Sub(a, n)
ids = Cast(g; to=f32)
zf = Cast(z; to=f32)
zm = ReduceMax(zf; axes=[1], keepdims=1)
zl = Cast(z; to=i64)
za = Add(zl, a)
zb = Sub(za, b)
bytes[i,k] = zb[i,k] + zm[i,0]
# maps behind them
o = ReduceMax(b; axes=[0], keepdims=1)
h = ReduceMin(b; axes=[0], keepdims=1)
oh = Sub(o, h)
across = Cast(oh; to=f32)
p = ReduceMax(a; axes=[1], keepdims=0)
pc = Sub(p, c)
top = Cast(pc; to=f32)
q = ReduceSum(a; axes=[1], keepdims=0)
r = ReduceSum(b; axes=[1], keepdims=0)
qr = Sub(q, r)
total = Cast(qr; to=f32)
l = ReduceMin(a; axes=[1], keepdims=0)
less[i] = select(l[i] < c[i], 0.5, idx(i))
v = CumSum(a; axis=1)
w = CumSum(b; axis=1)
vw = Sub(v, w)
running = Cast(vw; to=f32)
"""
# Running sums, which plans take in blocks, beyond what floats count; two are the same.
SUMS = """ein 1
model s
input a: i64[3,2500]
input b: i32[5,70000]
input c: i32[1025]
output back, short, first, again, ahead
back = CumSum(a; axis=1, exclusive=1, reverse=1)
short = CumSum(b; axis=1)
first = CumSum(c; axis=0)
again = CumSum(c; axis=0)
r = CumSum(a; axis=1)
d = Sub(r, a)
ahead = Cast(d; to=f32)
"""
# What is made of places, of which a product has more bits than counting them takes.
PLACES = """ein 1
model p
input x: f32[2,70000]
output square, apart
p = ArgMax(x; axis=1)
square = Mul(p, p)
q = ArgMin(x; axis=1)
r = Mul(q, q)
s = Sub(r, q)
apart = Cast(s; to=f32)
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


def reduced():
    """Inputs of REDUCED, and its outputs."""
    near = np.random.RandomState(1).randint(-50, 50, (3, 9, 40))
    a, b = near[:2] + (1 << 40)
    c, e = a[:, 0], near[2].astype(np.int32) + np.int32(100000000)
    f = np.float32
    z = (near[2] + 60).astype(np.uint8)
    weights = np.exp(e.astype(f).astype(float) - e.astype(f).max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    same = a == b
    return {"a": a, "b": b, "c": c, "e": e, "z": z}, {
        "bytes": (z + a - b + z.max(axis=1, keepdims=True)).astype(f),
        "high": e - e.max(axis=1, keepdims=True),
        "apart": (a - b).astype(f),
        "scaled": (a - b).astype(f) * a.astype(f).max(axis=1, keepdims=True),
        "soft": weights.astype(f) + near[2].astype(f),
        "chosen": same.sum(axis=1, keepdims=True).astype(f) + np.where(same, f(0.5), f(0)),
        "ids": (a - a.min(axis=0)).astype(f),
        "across": (b.max(axis=0) - b.min(axis=0)).astype(f),
        "top": (a.max(axis=1) - c).astype(f),
        "total": (a - b).sum(axis=1).astype(f),
        "less": np.where(a.min(axis=1) < c, f(0.5), np.arange(9, dtype=f)),
        "running": np.cumsum(a - b, axis=1).astype(f),
    }


def sums():
    """Inputs of SUMS, and its outputs."""
    near = np.random.RandomState(3)
    a = near.randint(0, 1 << 20, (3, 2500)) + (1 << 21)
    b = near.randint(0, 30000, (5, 70000)).astype(np.int32)
    c = near.randint(0, 100, 1025).astype(np.int32)
    run = np.cumsum(a, axis=1)
    return {"a": a, "b": b, "c": c}, {
        "back": run[:, -1:] - run, "short": np.cumsum(b, axis=1), "first": np.cumsum(c),
        "again": np.cumsum(c), "ahead": (run - a).astype(np.float32)}


def exact(folder, want):
    """Outputs that are not what numpy gives, of integers to the last digit."""
    got = {name: np.load(os.path.join(folder, name + ".npy")) for name in want}
    return ["%s: %s, not %s" % (name, got[name].ravel()[:6], want[name].ravel()[:6])
            for name in want if not np.array_equal(got[name], want[name])]


def wrong(folder, values=None):
    """Outputs that are not what numpy gives; of what eval makes the nearest float counts."""
    out = []
    for name, want in (values or expected()).items():
        got = np.load(os.path.join(folder, name + ".npy")).ravel().astype(np.float32)
        want = want.ravel()
        if not (np.allclose(got, want) if name == "soft" else np.array_equal(got, want)):
            out.append("%s: %s, not %s" % (name, got[:6], want[:6]))
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
        values, want = reduced()
        given = saved(folder, "r", REDUCED, values)
        for options in OPTIONS + (["--rules=-fuse"],):
            checks.none("reductions %s" % " ".join(options),
                        wrong(emitted(folder, "r", options, given), want))
        values, want = sums()
        given = saved(folder, "s", SUMS, values)
        for options in OPTIONS + (["--rules=-prefix"], ["--gpu", "orin-nx"]):
            checks.none("running sums %s" % " ".join(options),
                        exact(emitted(folder, "s", options, given), want))
        places = np.zeros((2, 70000), np.float32)
        places[[0, 1], [60000, 69999]] = 1
        places[[0, 1], [65000, 50001]] = -1
        given = saved(folder, "p", PLACES, {"x": places})
        want = {"square": np.float32([60000 ** 2, 69999 ** 2]),
                "apart": np.float32([65000 * 64999, 50001 * 50000])}
        checks.none("places", wrong(emitted(folder, "p", [], given), want))
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
