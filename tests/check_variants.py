#!/usr/bin/env python3
"""Programs that are planned beside the folded one: sums distributed over products, products with
one weight collected, operands without the zeros around them. They are found at any sizes where they
are cheaper, proved, gone without their rules, and not made where they would be wrong. Ends with
`N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, Checks

DISTRIBUTE, COLLECT = "distribution over a sum", "products with one weight collected"
TIGHTEN = "boundary tightening"

# Steps of a residual network with one weight: `inner` counts what is between its two products.
STEPS = """ein 1
model steps
input x: f32[%(n)d,%(c)d,%(h)d,%(h)d]
weight down: f32[%(a)d,%(c)d,3,3] = randn(std=0.03)
weight up: f32[%(c)d,%(a)d,%(r)d,%(r)d] = randn(std=0.1)
output y
d = Identity(x)
repeat i in 0:%(steps)d {
    a = Conv(d, down; pads=1)
    u = Tanh(a)
    f = Conv(u, up; pads=%(r)d/2)
    d = Add(d, f)
}
y = Identity(d)
"""
SIZES = [dict(n=4, c=512, a=8, h=14, steps=3), dict(n=3, c=700, a=6, h=13, steps=2),
         dict(n=9, c=320, a=5, h=20, steps=5)]

# Zeros in front of a window, laid out by an operator of its own behind an activation.
PADDED = """ein 1
model padded
input x: f32[1,%(c)d,%(h)d,%(h)d]
weight p: f32[%(c)d,%(c)d,1,1] = randn(std=0.1)
weight k: f32[%(c)d,1,3,3] = randn(std=0.1)
output y
a = Conv(x, p)
b = %(op)s(a)
c = Pad(b; pads=[0,0,%(top)d,%(left)d,0,0,%(bottom)d,%(right)d], value=0)
y = Conv(c, k; strides=2, group=%(c)d)
"""


# A picture enlarged by repetition, perhaps with something behind it, and a window over it.
ENLARGED = """ein 1
model enlarged
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
weight k: f32[%(f)d,%(c)d,%(r)d,%(r)d] = randn(std=0.1)
output y
a[n,c,i,j] = x[n,c,i/%(p)d,j/%(q)d] where i in 0:%(h)d*%(p)d, j in 0:%(w)d*%(q)d
b = %(op)s(a)
y = Conv(b, k; pads=%(r)d/2)
"""


# Features of several sizes, interpolated, side by side, projected.
PYRAMID = """ein 1
model pyramid
input a: f32[%(n)d,%(c)d,%(h)d,%(w)d]
input b: f32[%(n)d,%(d)d,%(h)d/%(p)d,%(w)d/%(p)d]
weight k: f32[%(f)d,%(c)d+%(d)d,1,1] = randn(std=0.1)
weight o: f32[%(f)d] = randn(std=0.1)
output y
e = Resize(b; scales=[1,1,%(p)d,%(p)d], mode=%(mode)s)
t = Concat(a, e; axis=1)
u = Conv(t, k, o)
y = %(op)s(u)
"""

# Enlarged features beside others, and a window over both.
DECODER = """ein 1
model decoder
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
input s: f32[%(n)d,%(d)d,%(h)d*2,%(w)d*2]
weight k: f32[%(f)d,%(c)d+%(d)d,3,3] = randn(std=0.1)
output y
a[n,c,i,j] = x[n,c,i/2,j/2] where i in 0:%(h)d*2, j in 0:%(w)d*2
t = Concat(%(order)s; axis=1)
u = Conv(t, k; pads=1)
y = Relu(u)
"""

# A decoder's stage: features enlarged in front of a convolution, and another one behind it, which
# may load what phases are put together from, and costs more then.
ENLARGING = """ein 1
model enlarging
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
weight j: f32[%(c)d,%(c)d,3,3] = randn(std=0.03)
weight k: f32[%(f)d,%(c)d,3,3] = randn(std=0.03)
weight b: f32[%(f)d] = randn(std=0.1)
weight l: f32[%(f)d,%(f)d,3,3] = randn(std=0.04)
output y
a = Conv(x, j; pads=1)
r = Relu(a)
e = Resize(r; scales=[1,1,2,2], mode=nearest, coordinate_transformation_mode=asymmetric,
    nearest_mode=floor)
c = Conv(e, k, b; pads=1)
d = Relu(c)
y = Conv(d, l; pads=1)
"""

# A decoder's step: what is enlarged by a transposed convolution lies beside what the encoder had.
JOINED = """ein 1
model joined
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
input z: f32[%(n)d,%(f)d,2*%(h)d,2*%(w)d]
weight a: f32[%(c)d,%(f)d,3,3] = randn(std=0.05)
weight b: f32[%(f)d,2*%(f)d,3,3] = randn(std=0.05)
weight d: f32[%(c)d,%(c)d,3,3] = randn(std=0.05)
weight e: f32[%(f)d,%(f)d,3,3] = randn(std=0.05)
output y
p = Conv(x, d; pads=1)
r = Relu(p)
u = ConvTranspose(r, a; strides=2, pads=[0,0,1,1])
q = Conv(z, e; pads=1)
s = %(op)s(q)
t = Concat(%(order)s; axis=1)
v = Conv(t, b; pads=1)
y = Relu(v)
"""

# Of what a layer makes of all tokens some are read.
TOKENS = """ein 1
model tokens
input x: f32[%(n)d,%(l)d,%(c)d]
weight a: f32[%(c)d,4*%(c)d] = randn(std=0.1)
weight b: f32[4*%(c)d,%(c)d] = randn(std=0.1)
output y
h = MatMul(x, a)
g = Gelu(h)
m = MatMul(g, b)
t = Slice(m; starts=[%(lo)d], ends=[%(hi)d], axes=[1])
y = Tanh(t)
"""

# A projection that is pooled.
POOLED = """ein 1
model pooled
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
weight k: f32[%(f)d,%(c)d,1,1] = randn(std=0.1)
weight o: f32[%(f)d] = randn(std=0.1)
output y
r = Relu(x)
t = Conv(r, k, o)
y = AveragePool(t; kernel_shape=%(p)d, strides=%(q)d)
"""

# Points beside what they have in common, which is the same for all: as PointNet segments them.
POINTS = """ein 1
model points
input x: f32[%(n)d,%(c)d,%(l)d]
input z: f32[%(n)d,%(d)d,%(l)d]
weight k: f32[%(f)d,%(c)d+%(d)d,1] = randn(std=0.05)
output y
a = %(op)s(x)
g = ReduceMax(z; axes=[2], keepdims=1)
e = Expand(g; shape=[%(n)d,%(d)d,%(l)d])
t = Concat(%(order)s; axis=1)
u = Conv(t, k)
y = Relu(u)
"""

# Two layers and nothing between them but a bias and, beside the first one's result, other features.
LAYERS = """ein 1
model layers
input x: f32[%(n)d,%(c)d]
input s: f32[%(n)d,%(d)d]
weight a: f32[%(c)d,%(h)d] = randn(std=0.05)
weight p: f32[%(h)d] = randn(std=0.1)
weight b: f32[%(h)d+%(e)d,%(f)d] = randn(std=0.05)
output y
t = MatMul(x, a)
u = Add(t, p)
%(beside)s
y = MatMul(v, b)
"""

# Gated units: of a product, and of a convolution.
GEGLU = """ein 1
model geglu
input x: f32[%(t)d,%(e)d]
weight g: f32[%(e)d,2*%(f)d] = randn(std=0.05)
weight b: f32[2*%(f)d] = randn(std=0.1)
output y
a = MatMul(x, g)
c = Add(a, b)
u, v = Split(c; axis=1, num_outputs=2)
s = Gelu(v)
y = Mul(s, u)
"""
WAVE = """ein 1
model wave
input x: f32[%(t)d,%(e)d,%(f)d]
weight g: f32[2*%(e)d,%(e)d,3] = randn(std=0.05)
weight b: f32[2*%(e)d] = randn(std=0.1)
output y
a = Conv(x, g, b; pads=1)
u, v = Split(a; axis=1, num_outputs=2)
s = Sigmoid(v)
t = Tanh(u)
y = Mul(s, t)
"""


def run(folder, text, *options):
    """(what the plan is made by, its kernels of maps, what went wrong) of a model; the plan is
    proved."""
    path, out = os.path.join(folder, "m.ein"), os.path.join(folder, "m.cu")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    for command in (["emit", path, "-o", out], ["verify", path]):
        done = subprocess.run([EINNET, *command, *options], capture_output=True, text=True,
                              timeout=120)
        if done.returncode:
            return "", [], done.stderr
    with open(out, encoding="utf-8") as file:
        head = file.read().split("// ---- includes")[0]
    by = re.search(r"^// by +(.*(?:\n//     [a-z].*)*)", head, re.M)
    return by.group(1).replace("\n//    ", "") if by else "", re.findall(r"k_map\w+", head), ""


def check_steps(checks, folder):
    for sizes in SIZES:
        name = "steps %s" % sorted(sizes.items())
        by, _, why = run(folder, STEPS % dict(sizes, r=1))
        checks.check(name + ": distributed", DISTRIBUTE in by, by or why)
        checks.check(name + ": collected", COLLECT in by, by or why)
        by, _, why = run(folder, STEPS % dict(sizes, r=1), "--rules=-distribute,collect")
        checks.check(name + ": not without the rules",
                     not why and DISTRIBUTE not in by and COLLECT not in by, by or why)
        # What the inner window sees beyond its border is no part of the outer one.
        by, _, why = run(folder, STEPS % dict(sizes, r=3))
        checks.check(name + ": not through two windows", not why and DISTRIBUTE not in by,
                     by or why)
    by, _, why = run(folder, STEPS % dict(SIZES[0], r=1, c=16))
    checks.check("steps of few channels stay", not why and DISTRIBUTE not in by, by or why)


def check_padded(checks, folder):
    for c, h, top, left, bottom, right in ((32, 56, 0, 0, 1, 1), (24, 31, 1, 2, 0, 0),
                                           (40, 17, 0, 1, 1, 0)):
        for op in ("HardSwish", "Relu", "Sigmoid"):
            text = PADDED % dict(c=c, h=h, op=op, top=top, left=left, bottom=bottom, right=right)
            name = "%s of %d channels" % (op, c)
            by, maps, why = run(folder, text)
            checks.check(name + ": tightened", TIGHTEN in by, by or why)
            checks.check(name + ": no kernel for the zeros", not maps, maps)
            by, _, why = run(folder, text.replace("value=0", "value=1"))
            checks.check(name + ": ones stay", not why and TIGHTEN not in by, by or why)


def took(folder, text, *options):
    """(estimated microseconds, what went wrong)"""
    why = run(folder, text, *options)[2]
    with open(os.path.join(folder, "m.cu"), encoding="utf-8") as file:
        found = re.search(r"^// plan .* ([\d.]+) us estimated", file.read(), re.M)
    return float(found.group(1)), why


def check_gain(checks, name, folder, text, rule, gain):
    """The rule makes plans cheaper, in all arithmetics and without libraries."""
    for options in ([], ["--math", "fp16"], ["--libs", "none"]):
        ps, why = took(folder, text, *options)
        without, too = took(folder, text, *options, "--rules=-" + rule)
        checks.check("%s %s" % (name, " ".join(options)),
                     not why and not too and ps < gain * without,
                     "%s, without %s: %s %s" % (ps, rule, without, why or too))


def check_fewer_terms(checks, folder):
    for sizes in (dict(n=1, c=256, f=192, h=32, w=40, r=3, p=2, q=2, op="Identity"),
                  dict(n=4, c=130, f=96, h=17, w=24, r=5, p=3, q=2, op="Tanh"),
                  dict(n=8, c=512, f=256, h=16, w=16, r=1, p=2, q=4, op="Relu")):
        check_gain(checks, "enlarged %s" % sorted(sizes.items()), folder, ENLARGED % sizes,
                   "repeats", 0.9)
    for sizes in (dict(n=1, c=256, d=512, f=128, h=64, w=96, p=4, mode="linear", op="Relu"),
                  dict(n=6, c=100, d=300, f=96, h=72, w=72, p=3, mode="nearest", op="Tanh")):
        check_gain(checks, "pyramid %s" % sorted(sizes.items()), folder, PYRAMID % sizes,
                   "linear", 0.8)
    for sizes in (dict(n=1, c=512, d=128, f=192, h=48, w=40, order="a, s"),
                  dict(n=4, c=600, d=70, f=100, h=33, w=40, order="s, a")):
        for rule in ("linear", "repeats"):
            check_gain(checks, "decoder %s" % sorted(sizes.items()), folder, DECODER % sizes,
                       rule, 0.95)
    for sizes in (dict(n=1, c=512, f=256, h=84, w=84, p=2, q=2),
                  dict(n=2, c=192, f=300, h=35, w=21, p=3, q=3)):
        check_gain(checks, "pooled %s" % sorted(sizes.items()), folder, POOLED % sizes, "linear",
                   0.9)
    for sizes in (dict(n=1, l=197, c=768, lo=0, hi=1), dict(n=3, l=480, c=300, lo=50, hi=80)):
        check_gain(checks, "tokens %s" % sorted(sizes.items()), folder, TOKENS % sizes, "needed",
                   0.6)
    for sizes in (dict(n=2, c=64, d=1024, f=256, l=1024, op="Relu", order="a, e"),
                  dict(n=5, c=48, d=700, f=200, l=900, op="Tanh", order="e, a")):
        check_gain(checks, "points %s" % sorted(sizes.items()), folder, POINTS % sizes, "linear",
                   0.9)
    for sizes in (dict(n=4096, c=256, h=256, d=1, e=0, f=128, beside="v = Identity(u)"),
                  dict(n=3000, c=160, h=320, d=27, e=27, f=96,
                       beside="q = Tanh(s)\nv = Concat(u, q; axis=1)")):
        check_gain(checks, "layers %s" % sorted(sizes.items()), folder, LAYERS % sizes, "linear",
                   0.8)
    # What else reads the first layer's result has it made.
    text = LAYERS % dict(n=4096, c=256, h=256, d=1, e=0, f=256, beside="v = Identity(u)")
    text = text.replace("output y", "output y, o").replace("y = ", "o = Relu(u)\ny = ")
    by, _, why = run(folder, text)
    checks.check("layers, of which one is an output", not why and "re-assoc" not in by, by or why)
    # What a pool reads beyond the border is no bias.
    text = POOLED % dict(n=1, c=512, f=256, h=28, w=28, p=2, q=2)
    text = text.replace("strides", "pads=1, strides")
    _, why = took(folder, text)
    checks.check("pooled, with a border", not why, why)


# A rule whose forms look cheap, and are not once tensors have their orders, does not keep others
# from the plan.
def check_dear_rule(checks, folder):
    for sizes in (dict(n=4, c=64, f=32, h=128, w=128, op="Relu", order="u, s"),
                  dict(n=2, c=96, f=40, h=160, w=112, op="Tanh", order="s, u")):
        name, text = "joined %s" % sorted(sizes.items()), JOINED % sizes
        ps, why = took(folder, text, "--math", "fp16", "--libs", "none")
        for rule in ("split", "phases", "split,phases"):
            without, too = took(folder, text, "--math", "fp16", "--libs", "none",
                                "--rules=-" + rule)
            checks.check("%s, without %s" % (name, rule),
                         not why and not too and ps < 1.03 * without,
                         "%s, without %s: %s %s" % (ps, rule, without, why or too))
    for sizes in (dict(n=1, c=128, f=64, h=128, w=128), dict(n=2, c=136, f=64, h=96, w=104)):
        name, text = "enlarging %s" % sorted(sizes.items()), ENLARGING % sizes
        for math in ("tf32", "fp16"):
            options = ["--math", math, "--libs", "none"]
            ps, why = took(folder, text, *options)
            without, too = took(folder, text, *options, "--rules=-windows")
            checks.check("%s, %s" % (name, math), not why and not too and ps < 1.03 * without,
                         "%s, without windows: %s %s" % (ps, without, why or too))


def gated(folder, text, *options):
    """Whether the plan, which is proved, has a gate's product as two."""
    why = run(folder, text, *options)[2]
    with open(os.path.join(folder, "m.cu"), encoding="utf-8") as file:
        return why or ".gate1" in file.read()


def check_gates(checks, folder):
    for text, sizes, gaining, gain in (
            (GEGLU, dict(t=1024, e=640, f=2560), ("--math", "tf32"), 0.95),
            (GEGLU, dict(t=4000, e=1000, f=4096), ("--libs", "none"), 0.99),
            (WAVE, dict(t=1, e=64, f=30000), (), 0.95),
            (WAVE, dict(t=3000, e=96, f=160), ("--math", "fp16"), 0.95)):
        name = "gate %s" % sorted(sizes.items())
        ps, why = took(folder, text % sizes, *gaining)
        without, too = took(folder, text % sizes, *gaining, "--rules=-gate")
        checks.check(name, not why and not too and ps < gain * without,
                     "%s, without: %s %s" % (ps, without, why or too))
        checks.check(name + ": is two", gated(folder, text % sizes, *gaining) is True)
        for what, was, now in (
                # Its halves are read elsewhere as well, or are no halves.
                ("another reader", "output y", "output y, a"),
                ("one half alone", "(s, u)" if "(s, u)" in text else "(s, t)", "(s, s)")):
            checks.check("%s: %s" % (name, what),
                         not gated(folder, (text % sizes).replace(was, now), *gaining))


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_steps(checks, folder)
        check_padded(checks, folder)
        check_fewer_terms(checks, folder)
        check_dear_rule(checks, folder)
        check_gates(checks, folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
