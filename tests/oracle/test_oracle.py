#!/usr/bin/env python3
"""Self-tests of the oracle: prints `N passed, N failed`, exits 1 when one failed.

Operators are held against onnxruntime's float32 kernels, the vectorised evaluator of equations
against a scalar interpreter of the same tree, and both against each other: operators written as
equations.
"""

import contextlib
import io
import json
import math
import os
import struct
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ein  # noqa: E402
import equations  # noqa: E402
import evaluate  # noqa: E402
import run  # noqa: E402
import tensors  # noqa: E402
import test_equations  # noqa: E402, F401
import test_operators  # noqa: E402, F401
from checks import TESTS, check, close, fails, only, results, same_results, test  # noqa: E402
from compare import compare, compare_directories  # noqa: E402

# ---------------------------------------------------------------- seeds and bytes

def scalar_mix(x):
    m = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & m
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & m
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & m
    return x ^ (x >> 31)


@test
def splitmix_vectors():
    got = tensors.splitmix(np.array([0, 1234567], np.uint64))
    check([int(x) for x in got] == [0xE220A8397B1DCDAF, 6457827717110365317])


@test
def fnv_vectors():
    check(tensors.fnv(b"") == 0xCBF29CE484222325)
    check(tensors.fnv(b"a") == 0xAF63DC4C8601EC8C)
    check(tensors.fnv(b"foobar") == 0x85944171F73967E8)


@test
def seeded_values():
    m = (1 << 64) - 1
    seed = 0x7FFFFFFF
    r = tensors.seeded("w", "f32", (5,), ("randn", {"seed": seed, "std": 0.044}))
    u = tensors.seeded("w", "f32", (5,), ("uniform", {"seed": seed, "lo": 0.5, "hi": 1.5}))
    i = tensors.seeded("w", "i32", (5,), ("uniform", {"seed": seed, "lo": -2, "hi": 9}))
    for at in range(5):
        z = scalar_mix((seed * 0x9E3779B97F4A7C15 + at) & m)
        total = sum((z >> s) & 0xFFFF for s in (0, 16, 32, 48)) - 131070
        check(r[at] == np.float32(total) * np.float32(0.044 * 2.6429e-5))
        step = np.float32((z >> 40) * 2.0 ** -24)
        check(u[at] == np.float32(0.5) + np.float32(step * np.float32(1.0)))
        check(i[at] == -2 + z % 12)
    check(r.dtype == np.float32 and i.dtype == np.int32)


@test
def seeds_in_chunks():
    whole = tensors.seeded("w", "f32", (2 * tensors.CHUNK + 3,), ("randn", {"seed": 1}))
    check(abs(whole.mean()) < 0.01 and abs(whole.std() - 1) < 0.01)
    tail = tensors.randn_chunk(1, tensors.CHUNK, 4, 1)
    check((whole[tensors.CHUNK:tensors.CHUNK + 4] == tail).all())


@test
def seed_from_name():
    a = tensors.seeded("l1.k", "f32", (3,), ("randn", {}))
    b = tensors.seeded("x", "f32", (3,), ("randn", {"seed": tensors.fnv(b"l1.k") % 2 ** 31}))
    check((a == b).all())


@test
def bf16_rounding():
    values = np.array([1.0, 1 + 2 ** -8, 1 + 3 * 2 ** -8, -1 - 2 ** -7, 3e38], np.float32)
    got = tensors.to_bf16(values)
    check(list(got[:4]) == [1.0, 1.0, 1 + 2 ** -6, -1 - 2 ** -7])
    back = tensors.from_bytes(tensors.to_bytes(got, "bf16"), "bf16", (5,))
    check((back == got).all() and len(tensors.to_bytes(got, "bf16")) == 10)


BLOB_MODEL = """
model m
input x: f32[2]
weight a: f32[2,3] = randn(seed=1)
weight s: f32[] = ones()
weight h: f16[3] = randn(std=2)
weight i: i64[4] = uniform(lo=-5, hi=5)
weight b: bool[7] = uniform(lo=0, hi=1)
output y
y[i] = x[i] * s[]
"""


@test
def blob_round_trip():
    program = ein.loads("ein 1" + BLOB_MODEL)
    text = b"a f32[2,3]\ns f32[]\nh f16[3]\ni i64[4]\nb bool[7]\n"
    check(tensors.manifest(program) == tensors.fnv(text))
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "w")
        tensors.write_blob(program, path, lambda n: tensors.weight(program, n))
        data = open(path, "rb").read()
        check(len(data) == 256 * 6 and data[:8] == b"EINWGHT1")
        head = struct.unpack("<IIQQQ", data[8:40])
        h = tensors.FNV_BASIS
        for w in struct.unpack("<%dQ" % ((len(data) - 256) // 8), data[256:]):
            h = ((h ^ w) * tensors.FNV_PRIME) % 2 ** 64
        check(head == (1, 5, tensors.manifest(program), h, len(data)) and not any(data[40:256]))
        check(struct.unpack("<f", data[512:516])[0] == 1.0)
        blob = tensors.Blob(program, path)
        for n in program.weights:
            check((blob(n) == tensors.weight(program, n)).all(), n)
        for at in (0, 8, 17, 25, 33, 300):
            wrong = bytearray(data)
            wrong[at] ^= 1
            open(path, "wb").write(wrong)
            try:
                tensors.Blob(program, path)
            except ein.EinError:
                continue
            raise AssertionError("byte %d is not checked" % at)


@test
def safetensors_reader():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    header = {"__metadata__": {"k": "v"},
              "conv.w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
              "bad": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 20]}}
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "w.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + bytes(4) + a.tobytes())
        model = ('model m\nblob W = "w.safetensors"\ninput x: f32[3]\n'
                 'weight k: f32[2,3] = W "%s"\noutput y\ny[i] = sum(j) k[i,j] * x[j]\n')
        path = os.path.join(d, "m.ein")
        got = only(model % "conv.w", {"x": np.ones(3)}, path=path)
        check(list(got) == [3, 12])
        fails(model % "bad", "wrong offsets", path=path)
        fails(model % "none", "no tensor", path=path)


# ---------------------------------------------------------------- the language's examples

@test
def example_basic_block():
    text = """model resnet_basic_block
dim N = 1, C = 64, H = 56
small C = 6, H = 9
input  x:  f32[N,C,H,H]
weight k1: f32[C,C,3,3] = randn(seed=1, std=0.06)
weight b1: f32[C]       = randn(seed=2)
weight k2: f32[C,C,3,3] = randn(seed=3, std=0.06)
weight b2: f32[C]       = randn(seed=4)
output y, u

t1 = Conv(x, k1, b1; strides=1, pads=1)
t2 = Relu(t1)
# the same operator, written as algebra
t3[n,f,h,w] = sum(c,r,s) t2[n,c,h+r-1,w+s-1] * k2[f,c,r,s] + b2[f]
    where h in 0:H, w in 0:H, pad t2 0
y[n,f,h,w] = relu(t3[n,f,h,w] + x[n,f,h,w])
t4 = Conv(t2, k2, b2; pads=1)
t5 = Add(t4, x)
u = Relu(t5)
"""
    for options in ({}, {"small": True}, {"overrides": {"N": 3}, "small": True}):
        out = results(text, **options)
        close(out["y"], out["u"])
    check(out["y"].shape == (3, 6, 9, 9))


@test
def example_transposed():
    same_results("""model up2
input  a: f32[1,64,16,16]
weight k: f32[64,3,4,4] = randn(seed=5, std=0.06)
output y, z
y[n,f,h,w] = sum(c,r,s) a[n,c,(h+1-r)/2,(w+1-s)/2] * k[c,f,r,s]
      * [(h+1-r)%2 == 0] * [(w+1-s)%2 == 0]
    where h in 0:32, w in 0:32, pad a 0
z = ConvTranspose(a, k; strides=2, pads=1)
""")


LONGFORMER = """model longformer_layer
dim B = 1, M = 10000, H = 8, P = 64, E = H*P
dim W = 1000, D = 4
small M = 200, H = 2, P = 8, W = 16
input  x:  f32[B,M,E]
weight wq: f32[E,E] = randn(seed=1, std=0.044)
weight wk: f32[E,E] = randn(seed=2, std=0.044)
weight wv: f32[E,E] = randn(seed=3, std=0.044)
weight w1: f32[E,E] = randn(seed=4, std=0.044)
weight b1: f32[E]   = zeros()
output y

q[b,h,m,p] = sum(e) x[b,m,e] * wq[h*P+p,e] where h in 0:H, p in 0:P
k[b,h,m,p] = sum(e) x[b,m,e] * wk[h*P+p,e] where h in 0:H, p in 0:P
v[b,h,m,p] = sum(e) x[b,m,e] * wv[h*P+p,e] where h in 0:H, p in 0:P
# general-to-band product (G2BMM), then band-to-general (GBMM)
s[b,h,m,j] = 0.125 * sum(p) q[b,h,m,p] * k[b,h,m+D*(j-W),p]
    where j in 0:2*W+1, pad k 0
a = Softmax(s; axis=-1)
o[b,h,m,p] = sum(j) a[b,h,m,j] * v[b,h,m+D*(j-W),p]
    where pad v 0
t[b,m,e] = o[b,e/P,m,e%P] where e in 0:E
y[b,m,u] = x[b,m,u] + relu(sum(e) t[b,m,e] * w1[u,e] + b1[u])
"""


@test
def example_longformer():
    got = only(LONGFORMER, small=True)
    program = ein.loads("ein 1\n" + LONGFORMER, small=True)
    x = evaluate.default_inputs(program)["x"].astype(np.float64)[0]
    wq, wk, wv, w1 = (tensors.weight(program, n).astype(np.float64) for n in program.weights[:4])
    m, h, p, w, d = 200, 2, 8, 16, 4
    q, k, v = ((x @ m_.T).reshape(m, h, p).transpose(1, 0, 2) for m_ in (wq, wk, wv))
    o = np.zeros((h, m, p))
    for i in range(m):
        rows = i + d * (np.arange(2 * w + 1) - w)
        inside = (rows >= 0) & (rows < m)
        kk = np.where(inside[:, None], k[:, np.clip(rows, 0, m - 1)], 0)
        vv = np.where(inside[:, None], v[:, np.clip(rows, 0, m - 1)], 0)
        s = 0.125 * np.einsum("hp,hjp->hj", q[:, i], kk)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        o[:, i] = np.einsum("hj,hjp->hp", e / e.sum(axis=1, keepdims=True), vv)
    t = o.transpose(1, 0, 2).reshape(m, h * p)
    close(got[0], x + np.maximum(t @ w1.T, 0))


# ---------------------------------------------------------------- blocks, repeats, names

@test
def blocks_and_names():
    text = """model m
dim C = 2
block inner(x; K, std=0.05) -> y {
weight k: f32[K] = randn(std=2*std)
y = Mul(x, k)
}
block outer(x; S=3) -> y, z {
    a = inner(x; K=C)
    repeat i in 0:2 {
        weight b: f32[C] = randn(seed=S+i)
        a = Add(a,
            b)
    }
    y = Relu(a)
    z = Neg(a)
}
input x: f32[C]
l1.a, "odd name" = outer(x)
repeat i in 0:2 {
h = outer_one(x)
repeat j in 0:2 {
weight w: f32[C] = ones()
}
}
output l1.a, "odd name"
""".replace("h = outer_one(x)\n", "h, g = outer(x; S=i)\n")
    program = ein.loads("ein 1\n" + text)
    check(program.weights == [
        "l1.a.a.k", "l1.a.b.0", "l1.a.b.1", "h.0.a.k", "h.0.b.0", "h.0.b.1", "w.0.0", "w.0.1",
        "h.1.a.k", "h.1.b.0", "h.1.b.1", "w.1.0", "w.1.1"], program.weights)
    check(program.tensors["h.1.b.1"].source == ("randn", {"seed": 2}))
    check(program.tensors["l1.a.a.k"].source == ("randn", {"std": 0.1}))
    check(program.outputs == [("l1.a", "l1.a"), ("odd name", "odd name")])
    check([n for n in program.tensors if n.startswith("l1.a.a")] ==
          ["l1.a.a.k", "l1.a.a", "l1.a.a.0", "l1.a.a.1"])


@test
def names_that_blocks_share():
    program = ein.loads("""ein 1
model m
block third(x) -> q {
weight w: f32[2] = randn()
weight v: f32[2] = randn()
t = Mul(x, w)
q = Mul(t, v)
}
block second(x) -> r {
r = third(x)
weight w: f32[2] = randn()
repeat i in 0:2 {
r = Mul(r, w)
}
}
block first(x) -> y {
y = second(x)
weight w: f32[2] = randn(seed=3)
repeat i in 0:2 {
y = third(y)
}
}
input x: f32[2]
z = first(x)
output z, z.u
z.u = Mul(z.w, z.y.r.w)
""")
    check(program.weights == ["z.y.r.w", "z.v", "z.y.w", "z.w", "z.0.w", "z.0.v", "z.1.w",
                              "z.1.v"], program.weights)
    check(program.tensors["z.w"].source == ("randn", {"seed": 3}))
    check([n.outputs[0] for n in program.nodes] ==
          ["z.t", "z", "z.y.r.0", "z.y.r.1", "z.0.t", "z.0", "z.1.t", "z.1", "z.u"])
    check(program.nodes[-1].inputs == ["z.w", "z.y.r.w"])


@test
def repeat_carries():
    program = ein.loads("""ein 1
model m
input x: f32[2]
output h
h = Relu(x)
repeat i in 0:4 {
t = Neg(h)
weight w: f32[2] = randn(std=0.1*(i+1))
h = Add(t, w)
}
""")
    check(program.outputs == [("h", "h.3")])
    check(program.nodes[-2].inputs == ["h.2"])
    check(program.tensors["w.2"].source[1]["std"] == 0.1 * 3)
    check(ein.loads("ein 1\nmodel m\ninput h: f32[2]\noutput h\nrepeat i in 0:0 {\nh = Neg(h)\n}\n")
          .outputs == [("h", "h")])


@test
def name_errors():
    head = "model m\ninput x: f32[2]\noutput y\n"
    fails(head + "y = Relu(x)\ny = Relu(x)\n", "assigned twice")
    fails(head + "y = Relu(z)\n", "unknown tensor 'z'")
    fails(head + "x = Relu(x)\n", "assigned twice")
    fails(head, "unknown tensor 'y'")
    fails(head + "repeat i in 0:2 {\nt = Neg(x)\n}\ny = Relu(t)\n", "unknown tensor 't'")
    fails(head + "repeat i in 0:2 {\ny = Neg(y)\n}\n", "unknown tensor 'y'")
    fails(head + "block f(a; K) -> b {\nb = Relu(a)\n}\ny = f(x)\n", "needs K")
    fails(head + "block f(a) -> b {\nb = Relu(a)\n}\ny = f(x; K=2)\n", "no parameter 'K'")
    fails(head + "block f(a) -> b {\nb = Add(a, x)\n}\ny = f(x)\n", "unknown tensor 'x'")
    fails(head + "block f(a) -> b {\nc = Relu(a)\n}\ny = f(x)\n", "never assigns 'b'")
    fails(head + "block f(a) -> b {\na = Neg(a)\nb = Relu(a)\n}\ny = f(x)\n", "assigned twice")
    fails(head + "y = f(x)\nblock f(a) -> b {\nb = Relu(a)\n}\n", "unknown operator 'f'")
    fails(head + "repeat i in 0:2 {\ny = Neg(x)\n", "never closed")
    fails(head + "y = Relu(x)\n}\n", "unexpected '}'")
    fails(head + "y = Relu(x; a=1)\n", "no attribute 'a'")
    fails("model m\ninput x: f32[Q]\noutput x\n", "'Q' is not a dim")
    fails("model m\nsmall N = 2\ninput x: f32[2]\noutput x\n", "unknown dim 'N'")
    fails("model m\ndim N = 2\ninput x: f32[N]\noutput x\n", "no dim 'M'", overrides={"M": 1})
    fails("model m\nweight x: f32[2]\noutput x\n", "has no source")


@test
def lines_and_positions():
    error = fails(" \n\nmodel m\ninput x: f32[2]\noutput y\ny = Relu(\n   zz)  # comment\n",
                  "unknown tensor 'zz'")
    check(error.pos == (8, 4), error.pos)
    for text in ("", "ein 2\n", "model m\n", "ein 1 x\n", "# c\n"):
        try:
            ein.loads(text)
        except ein.EinError:
            continue
        raise AssertionError("accepted %r" % text)
    for line in ("y = Relu(x", "y[i = x[i]", "y = Relu(x))", "y[i] = x[i] +", "y[i] = $", "y",
                 "input x: f33[2]", "dim = 3", "y[i] = x[i] where", "y[i] = (((x[i]))",
                 "weight w: f32[2] = randn(foo=1)", "y = Relu(x; a=[1,2)", "y[i] = 3x[i]",
                 'y = Relu("x)', "y[i] = x[i] < 2", "y[i] = " + "(" * 5000,
                 "y[i] = x[" + "-" * 5000 + "i]", "y = Relu(x; a=" + "[" * 5000):
        fails("model m\ninput x: f32[2]\noutput y\n" + line + "\n", "")


@test
def dims_and_small():
    text = """model m
dim N = 1, H = 8
dim G = (H+1)/2, K = N*G%3
small H = 4, N = 2
input x: f32[N,H,G,K+1]
output x
"""
    def dims(**options):
        return list(ein.loads("ein 1\n" + text, **options).dims.values())
    check(dims() == [1, 8, 4, 1])
    check(dims(small=True) == [2, 4, 2, 1])
    check(dims(small=True, overrides={"N": 16}) == [16, 4, 2, 2])


# ---------------------------------------------------------------- comparison and command line

@test
def compare_is_nan_safe():
    nan, inf = math.nan, math.inf
    def same(a, b, **options):
        return compare(np.array(a), np.array(b), **options)[1]
    check(same([1.0, 2.0], [1.0, 2.0]) and same([1.0, 2.0], [1.0, 2.0], exact=True))
    check(not same([1.0, 2.1], [1.0, 2.0]) and not same([nan, 1.0], [1.0, 1.0]))
    check(not same([1.0, 1.0], [nan, 1.0]) and same([nan, 1.0], [nan, 1.0]))
    check(same([nan, 1.0], [nan, 1.0], exact=True) and not same([nan, 1.0], [1.0, nan]))
    check(same([inf, -inf], [inf, -inf]) and not same([inf, inf], [inf, -inf]))
    check(not same([inf, 1.0], [1e308, 1.0]) and not same([1.0], [1.0, 1.0]))
    check(not same([1.0], [1.0], rel=nan) and not same([1e-3], [0.0]) and same([0.0], [0.0]))
    check(not same([1.0], [1.0 + 1e-15], exact=True))
    check(not same([2 ** 60], [2 ** 60 + 1], exact=True))
    check(same(np.zeros((0, 3)), np.zeros((0, 3))) and not same(np.zeros((0, 3)), np.zeros((3, 0))))


def command(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run.main(list(args))
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), err.getvalue()


@test
def command_line():
    text = ("ein 1\nmodel m\ndim N = 2\nsmall N = 1\ninput x: f32[N,3]\n"
            "weight w: f32[3,4] = randn(seed=1)\noutput \"y/1\"\n\"y/1\" = MatMul(x, w)\n")
    with tempfile.TemporaryDirectory() as d:
        def p(name):
            return os.path.join(d, name)
        open(p("m.ein"), "w").write(text)
        check(command("eval", p("m.ein"), "--out", p("a"))[0] == 0)
        check(os.listdir(p("a")) == ["y%2F1.npy"], os.listdir(p("a")))
        check(command("pack", p("m.ein"), "-o", p("w"))[0] == 0)
        check(command("inputs", p("m.ein"), "--out", p("in"))[0] == 0)
        check(command("eval", p("m.ein"), "--out", p("b"), "--weights", p("w"),
                      "--in", "x=" + p("in/x.npy"))[0] == 0)
        check(command("compare-dir", p("a"), p("b"), "--exact")[0] == 0)
        y = np.load(p("b/y%2F1.npy"))
        np.save(p("b/y%2F1.npy"), y + 1e-3)
        check(command("compare-dir", p("a"), p("b"))[0] == 1)
        check(command("compare", p("a/y%2F1.npy"), p("b/y%2F1.npy"))[0] == 1)
        check(command("compare", p("a/y%2F1.npy"), p("b/y%2F1.npy"), "--rel", "1e-1")[0] == 0)
        np.save(p("b/z.npy"), y)
        check(not compare_directories(p("a"), p("b"), 1.0)[1])
        code, said, _ = command("info", p("m.ein"), "--dim", "N=16")
        said = json.loads(said)
        check(code == 0 and said["parameters"] == 12 and said["gflop"] == 2 * 16 * 12 / 1e9)
        check(command("eval", p("m.ein"), "--dim", "Q=1", "--out", p("c"))[0] == 3)
        check(command("eval", p("m.ein"), "--dim", "N", "--out", p("c"))[0] == 2)
        check(command("eval", p("none.ein"), "--out", p("c"))[0] == 5)
        check(command("eval", p("m.ein"), "--weights", p("m.ein"), "--out", p("c"))[0] == 3)
        check(command("eval", p("m.ein"), "--in", "x=" + p("a/y%2F1.npy"), "--out", p("c"))[0] == 3)
        check(command("frob")[0] == 2)
        open(p("m.ein"), "w").write(text.replace("MatMul", "MatMull"))
        code, _, said = command("info", p("m.ein"))
        check(code == 4 and "m.ein:8:9: unknown operator 'MatMull'" in said, said)


@test
def integer_weights():
    program = ein.loads("""ein 1
model m
input x: f32[1,3,4,4]
weight s: f32[3] = randn()
weight v: f32[3] = uniform(lo=0.5, hi=1.5)
output y
y = BatchNormalization(x, s, s, s, v)
""")
    positive = tensors.variance_names(program)
    v = tensors.weight(program, "v", True, None, positive)
    s = tensors.small_integers("s", "f32", (1000,))
    check(positive == {"v"} and v.min() >= 1 and v.max() <= 3 and v.dtype == np.float32)
    check(set(s.tolist()) == {-3, -2, -1, 0, 1, 2, 3})
    x = evaluate.default_inputs(program, True)["x"]
    check((x == np.rint(x)).all() and abs(x).max() <= 3)


@test
def erf_is_accurate():
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, 1e-300, 1e-8, np.inf, -np.inf]])
    wanted = np.array([math.erf(v) for v in x])
    check(np.abs(equations.erf(x) - wanted).max() < 1e-15)
    small = np.array([1e-12, 1e-5, 0.01])
    check(np.abs(equations.erf(small) / [math.erf(v) for v in small] - 1).max() < 1e-13)
    check(np.isnan(equations.erf(np.array([np.nan])))[0])


@test
def work_counts():
    def gflop(text):
        return evaluate.info(ein.loads("ein 1\nmodel m\n" + text))["gflop"] * 1e9
    head = "input x: f32[1,4,8,8]\nweight k: f32[6,4,3,3] = randn()\noutput y\n"
    check(round(gflop(head + "y = Conv(x, k; pads=1)\n")) == 2 * 64 * 6 * 36)
    check(round(gflop(head + "y[n,f,h,w] = 2 * sum(c,r,s) x[n,c,h+r-1,w+s-1] * k[f,c,r,s] where "
                      "h in 0:8, w in 0:8, pad x 0\n")) == 2 * 64 * 6 * 36)
    check(round(gflop(head + "y[n] = sum(c,h,w) x[n,c,h,w]\n")) == 0)


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for function in TESTS:
        if wanted and not any(w in function.__name__ for w in wanted):
            continue
        try:
            function()
            passed += 1
        except Exception as error:     # one test's mistake must not hide the others
            failed += 1
            print("FAIL %s: %s: %s" % (function.__name__, type(error).__name__, error))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
