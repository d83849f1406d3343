#!/usr/bin/env python3
"""What layouts must achieve, read from the emitted file: transposing copies that vanish, plain
products where a projection is split into heads, outputs that keep their declared order.

Every plan is proved by `einnet verify` at small sizes. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

import invented
from harness import EINNET, ROOT, Checks


HEADS = """ein 1
model heads
dim N = 1, M = 2048, H = 4, P = 64, E = H*P
small N = 1, M = 24, P = 8
input x: f32[N,M,E]
weight wq: f32[E,E] = randn(std=0.1)
weight wk: f32[E,E] = randn(std=0.1)
weight wv: f32[E,E] = randn(std=0.1)
%s
q[n,h,m,p] = sum(e) x[n,m,e] * wq[h*P+p,e] where h in 0:H, p in 0:P
k[n,h,m,p] = sum(e) x[n,m,e] * wk[h*P+p,e] where h in 0:H, p in 0:P
v[n,h,m,p] = sum(e) x[n,m,e] * wv[h*P+p,e] where h in 0:H, p in 0:P
"""

BAND = """s[n,h,m,j] = sum(p) q[n,h,m,p] * k[n,h,m+2*(j-5),p] where j in 0:11, pad k 0
a = Softmax(s)
o[n,h,m,p] = sum(j) a[n,h,m,j] * v[n,h,m+2*(j-5),p] where pad v 0
y[n,m,e] = o[n,e/P,m,e%P] where e in 0:E
"""

FULL = """s[n,h,i,j] = sum(p) q[n,h,i,p] * k[n,h,j,p]
a = Softmax(s)
o[n,h,m,p] = sum(j) a[n,h,m,j] * v[n,h,j,p]
t[n,m,e] = o[n,e/P,m,e%P] where e in 0:E
weight wo: f32[E,E] = randn(std=0.1)
y = MatMul(t, wo)
"""

# Two products with something between two transposes; the transposes are inverse to each other.
BETWEEN = """ein 1
model between
input x: f32[2,40,24]
weight w: f32[24,48] = randn(std=0.2)
weight u: f32[48,32] = randn(std=0.2)
output y
p = MatMul(x, w)
a = Transpose(p; perm=[0,2,1])
%s
c = Transpose(b; perm=[0,2,1])
y = MatMul(c, u)
"""

# A convolution, its pixels as rows of a product: the copy between them is a window.
PATCHES = """ein 1
model patches
input x: f32[1,3,64,64]
weight k: f32[32,3,8,8] = randn(std=0.1)
weight w: f32[32,48] = randn(std=0.2)
output y
c = Conv(x, k; strides=8)
r = Reshape(c; shape=[1,32,64])
t = Transpose(r; perm=[0,2,1])
y = MatMul(t, w)
"""

# A tensor read by a convolution and, transposed, by a product: one of them reads a window.
BOTH = """ein 1
model both
input x: f32[1,16,24,24]
weight k: f32[16,16,3,3] = randn(std=0.1)
weight w: f32[576,20] = randn(std=0.1)
output y, z
p = Relu(x)
y = Conv(p, k; pads=1)
r = Reshape(p; shape=[16,576])
z = MatMul(r, w)
"""

# A transposed output has to be made; the value itself is another output.
OUTPUTS = """ein 1
model outputs
input x: f32[64,48]
weight w: f32[48,40] = randn(std=0.2)
output y, z
y = MatMul(x, w)
z = Transpose(y; perm=[1,0])
"""


# Boxes decoded beside what stays as it is: the copy of the rest computes them as well.
DECODED = """ein 1
model decoded
input x: f32[1,24,40,40]
weight k: f32[24,24,1,1] = randn(std=0.2)
weight a: f32[2] = uniform(lo=8, hi=60)
output y
c = Conv(x, k)
s = Sigmoid(c)
t = Transpose(s; perm=[0,2,3,1])
p[n,h,w,i] = (2 * t[n,h,w,i] - 0.5 + [i == 0] * idx(w) + [i == 1] * idx(h)) * 8
    where n in 0:1, h in 0:40, w in 0:40, i in 0:2
q[n,h,w,i] = 4 * t[n,h,w,i+2] * t[n,h,w,i+2] * a[i]
    where n in 0:1, h in 0:40, w in 0:40, i in 0:2
r = Slice(t; starts=[4], ends=[24], axes=[3])
y = Concat(p, q, r; axis=3)
"""

# Gates between convolutions, and a sum over all of them: merged, that is one product of the gates
# side by side, each of which is stored in its place.
GATES = """ein 1
model gates
block gate(x; D) -> y, skip {
    weight kf: f32[64,64,2] = randn(std=0.1)
    weight kg: f32[64,64,2] = randn(std=0.1)
    weight ks: f32[128,64,1] = randn(std=0.1)
    weight kr: f32[64,64,1] = randn(std=0.1)
    f = Conv(x, kf; pads=[D,0], dilations=D)
    g = Conv(x, kg; pads=[D,0], dilations=D)
    t = Tanh(f)
    s = Sigmoid(g)
    z = Mul(t, s)
    skip = Conv(z, ks)
    r = Conv(z, kr)
    y = Add(x, r)
}
input x: f32[1,64,4096]
output y
a, s1 = gate(x; D=1)
b, s2 = gate(a; D=2)
c, s3 = gate(b; D=4)
d, s4 = gate(c; D=8)
y = Sum(s1, s2, s3, s4)
"""

# Sines beside cosines, and both directions of a recurrence: stacked, then numbered.
WAVES = """ein 1
model waves
input x: f32[20,20,8]
output y
a = Slice(x; starts=[0], ends=[8], axes=[2], steps=[2])
b = Slice(x; starts=[1], ends=[8], axes=[2], steps=[2])
s0 = Sin(a)
c0 = Cos(b)
s = Unsqueeze(s0; axes=[3])
c = Unsqueeze(c0; axes=[3])
j = Concat(s, c; axis=3)
y = Reshape(j; shape=[20,20,8])
"""

DIRECTIONS = """ein 1
model directions
input x: f32[6,2,64]
weight wf: f32[64,96] = randn(std=0.1)
weight wb: f32[64,96] = randn(std=0.1)
output y
p = MatMul(x, wf)
q = MatMul(x, wb)
s = Softmax(p; axis=-1)
t = Softmax(q; axis=-1)
f = Unsqueeze(s; axes=[1])
g = Unsqueeze(t; axes=[1])
j = Concat(f, g; axis=1)
k = Transpose(j; perm=[0,2,1,3])
y = Reshape(k; shape=[6,2,192])
"""

# A product of which the library has its weight in another order; a reduction of our own is cheaper,
# in that order or another one, but not by the weight as it is.
PROJECTED = """ein 1
model projected
input x: f32[2,65,4,24]
weight w: f32[4,24,96] = randn(std=0.1)
output y
t = Softmax(x; axis=2)
y = Einsum(t, w; equation="nihd,hde->nie")
"""

# Distances from codes, whose neighbours are not together as they are given.
CODES = """ein 1
model codes
input x: f32[333,33]
weight e: f32[512,33] = randn(seed=1)
output y
y[n,k] = sum(c) (x[n,c] - e[k,c]) * (x[n,c] - e[k,c])
"""

# A weight beside data that lies the other way round.
TURNED = """ein 1
model turned
input x: f32[1024,2048]
weight w: f32[2048,1024] = randn(seed=1)
output y
y[i,j] = tanh(x[i,j] + w[j,i])
"""

# A product of places that count, those of a mask written as a guard.
GUARDED = """ein 1
model guarded
input q: f32[4,512,64]
input k: f32[4,512,64]
input v: f32[4,512,64]
output y
s[b,i,j] = sum(d) q[b,i,d] * k[b,j,d]
y[b,i,d] = sum(j) [j <= i] * s[b,i,j] * v[b,j,d]
"""

# Four positions that are worked out for all channels together and expanded to them, as exporters
# write the corners between which an image is sampled.
CORNERS = """ein 1
model corners
input x: f32[4,32,850]
input r: i64[4,1,600]
input s: i64[4,1,600]
input u: i64[4,1,600]
input v: i64[4,1,600]
output y
block at(x, r, u) -> y {
    p = Add(r, u)
    e = Expand(p; shape=[4,32,600])
    y = GatherElements(x, e; axis=2)
}
a = at(x, r, u)
b = at(x, s, u)
c = at(x, r, v)
d = at(x, s, v)
y = Sum(a, b, c, d)
"""

# Rows of messages added up where their targets say, each target read by all of a row's channels.
SCATTERED = """ein 1
model scattered
input m: f32[1500,64]
input to: i64[1500,1]
output y
t = Expand(to; shape=[1500,64])
y[n,c] = sum(e) select(t[e,c] == idx(n), m[e,c], 0) where n in 0:400
"""

# The largest message of each node's neighbours: the table of these is the largest operand, but its
# neighbours are terms, and all of a row's channels read one element of it.
NEIGHBOURS = """ein 1
model neighbours
input m: f32[300,64]
input adjacent: bool[400,300]
output y
y[n,c] = max(e) select(adjacent[n,e] != 0, m[e,c], -1000)
"""

# A masked convolution: taps that a guard leaves out, and an activation in front of its padding.
MASKED = """ein 1
model masked
input x: f32[1,32,28,28]
weight k: f32[64,32,3,3] = randn()
output y
y[n,f,i,j] = sum(c,r,s) %s * k[f,c,r,s] * %s where n in 0:1, i in 0:28, j in 0:28, pad x 0
"""
TAPS = "x[n,c,i+r-1,j+s-1]"

# Products with what places alone, or they and weights, make.
PLACED = """ein 1
model placed
input x: f32[16,64,256]
weight g: f32[64] = randn()
output y
y[b,c,k] = sum(l) %s * x[b,c,l] where k in 0:256
"""
COSINES = """ein 1
model cosines
input x: f32[16,512,512]
output y
y[b,i,j,u,v] = sum(p,q) 0.25 * x[b,i*8+p,j*8+q] * cos((2*idx(p)+1)*idx(u)*0.19634954)
    * cos((2*idx(q)+1)*idx(v)*0.19634954)
    where i in 0:64, j in 0:64, u in 0:8, v in 0:8, p in 0:8, q in 0:8
"""

# Windows with a weight for each axis, and channels' squares before windows.
WEIGHED = """ein 1
model weighed
input x: f32[2,16,256,256]
input m: f32[2,256,256]
weight g: f32[11] = uniform(lo=0, hi=0.1)
weight w: f32[11,11] = uniform(lo=0, hi=0.1)
output y
y[n%s,i,j] = sum(%sr,s) %s where i in 0:256, j in 0:256, pad x 0%s
"""
CENTRED = "(x[n,c,i+r-5,j+s-5] - m[n,i+r-5,j+s-5])"

# A product with a function of what is laid across, and of places.
ACROSS = """ein 1
model across
input x: f32[1024]
input b: f32[256]
weight w: f32[256,256] = randn()
output y
y[i,n] = sum(k) [k <= i] * sigmoid(x[i] - 0.1 * idx(i-k) * b[k]) * w[k,n]
"""

# A product of complex numbers.
COMPLEX = """ein 1
model complex
input a: f32[256,256]
input b: f32[256,256]
weight v: f32[256,256] = randn()
weight w: f32[256,256] = randn()
output y, z
y[m,n] = sum(k) (a[m,k]*v[k,n] - b[m,k]*w[k,n])
z[m,n] = sum(k) (a[m,k]*w[k,n] + b[m,k]*v[k,n])
"""

# A chain of convolutions with what networks have between them. Where calls in NHWC are cheap (an
# invented table says so), the input is converted once and the output once.
CHAIN = """ein 1
model chain
input x: f32[1,3,112,112]
weight k: f32[64,3,3,3] = randn(std=0.1)
weight l: f32[64,64,3,3] = randn(std=0.1)
weight m: f32[128,64,3,3] = randn(std=0.1)
weight n: f32[128,128,3,3] = randn(std=0.1)
weight b: f32[64] = randn(std=0.1)
output y
c1 = Conv(x, k, b; pads=1)
r1 = Relu(c1)
c2 = Conv(r1, l, b; pads=1)
s2 = Add(c2, r1)
r2 = Relu(s2)
p = MaxPool(r2; kernel_shape=3, strides=2, pads=1)
t = Tanh(p)
c3 = Conv(t, m; pads=1)
r3 = Relu(c3)
y = Conv(r3, n; pads=1)
"""

# Kernels of ours read channels innermost, store halves of a value that another one reads, and an
# output in declared order.
SKIP = """ein 1
model skip
dim H = 56
small H = 8
input x: f32[1,64,H,H]
weight k: f32[64,64,3,3] = randn(std=0.05)
weight l: f32[64,64,3,3] = randn(std=0.05)
weight m: f32[96,128,3,3] = randn(std=0.03)
output y
c1 = Conv(x, k; pads=1)
r1 = Relu(c1)
c2 = Conv(r1, l; pads=1)
r2 = Relu(c2)
j = Concat(r1, r2; axis=1)
c3 = Conv(j, m; pads=1)
y = Tanh(c3)
"""

# What a transposed convolution enlarges, beside features of the same size.
BESIDE = """ein 1
model beside
dim H = 128
small H = 6
input x: f32[1,64,H,H]
input s: f32[1,32,2*H,2*H]
weight k: f32[64,32,2,2] = randn(std=0.1)
weight b: f32[32] = randn(std=0.1)
weight l: f32[32,32,3,3] = randn(std=0.05)
weight m: f32[32,64,3,3] = randn(std=0.05)
output y
c = Conv(s, l; pads=1)
r = Relu(c)
u = ConvTranspose(x, k, b; strides=2)
j = Concat(%s; axis=1)
y = Conv(j, m; pads=1)
"""

# Two concatenations with a part in common, at different places of them.
SHARED = """ein 1
model shared
dim H = 128
small H = 6
input x: f32[1,32,H,H]
weight k: f32[32,32,3,3] = randn(std=0.06)
weight l: f32[64,64,3,3] = randn(std=0.04)
weight m: f32[32,96,3,3] = randn(std=0.03)
output y
c = Conv(x, k; pads=1)
r = Relu(c)
d = Conv(r, k; pads=1)
s = Relu(d)
i = Concat(r, s; axis=1)
e = Conv(i, l; pads=1)
t = Relu(e)
j = Concat(t, r; axis=1)
y = Conv(j, m; pads=1)
"""


class Plan:
    """Steps of an emitted file: (name, call), and which of them only copy."""

    def __init__(self, text):
        self.text = text
        lines = text.splitlines()
        self.steps = re.findall(r"^// +[\d.]+ us (?:est\.|measured) (\S+) +(.+)$", text, re.M)
        self.stored = dict(re.findall(r"^ +// (\S+) stored as \[(.*)\]$", text, re.M))
        equation, kernels = "", {}
        for line in lines:
            found = re.search(r"(k_\w+_[0-9a-f]{8})\(", line)
            if line.startswith("// ") and not line.startswith("// ----"):
                equation += "" if line.startswith("// by ") else " " + line[2:].strip()
            elif found and "__global__" in line:
                kernels[found.group(1)] = equation
            elif not line:
                equation = ""
        copy = re.compile(r"^ ?[^=]*\] = [\w.]+\[([^\[\]@]*)\](?: where .*)?$")
        found = [(name, copy.match(kernels[call])) for name, call in self.steps if call in kernels]
        self.copies = [name for name, match in found if match]
        # Not a window, a gather or a padded edge, but the same elements in another order.
        self.permuted = [name for name, match in found
                         if match and re.match(r"^((i\d+|0)(,|$))*$", match.group(1))]

    def call(self, name):
        return dict(self.steps).get(name, "")

    def kernel(self, name):
        """The text of the step's kernel."""
        found = re.search(r"^static __global__[^;{]* %s\(.*?^}" % re.escape(self.call(name)),
                          self.text, re.M | re.S)
        return found.group(0) if found else ""


def emit(path, *options):
    done = subprocess.run([EINNET, "emit", path, "-o", "-"] + list(options),
                          stdout=subprocess.PIPE, check=True)
    return Plan(done.stdout.decode())


def heads(text, output="output y"):
    return HEADS % output + text


def projections(plan):
    """Whether q, k and v are plain products, or parts of one, of a library or our own."""
    calls = [c for n, c in plan.steps if c.startswith(("cuBLAS", "k_product"))]
    return calls and not any("batch" in c for c in calls)


# name, model, number of copies that may stay, further condition
CASES = [
    ("heads before a band", heads(BAND), 0, projections),
    ("heads before products", heads(FULL), 0,
     lambda p: all("batch" not in p.call(n) for n in "qkv")),
    # Or, of one product with the others, copied.
    ("a head split that is an output", heads(BAND, "output y, q"), 1,
     lambda p: "q" not in p.stored and p.copies in ([], ["q"])),
    ("element-wise between transposes", BETWEEN % "b = Tanh(a)", 0, None),
    ("softmax between transposes", BETWEEN % "b = Softmax(a; axis=1)", 0, None),
    ("softmax along what was rows", BETWEEN % "b = Softmax(a; axis=2)", 0, None),
    ("two maps between transposes", BETWEEN % "d = Sigmoid(a)\nb = Mul(d, a)", 0, None),
    ("pixels as rows of a product", PATCHES, 0, None),
    ("read by a convolution and a product", BOTH, 0, None),
    ("an output and its transpose", OUTPUTS, 1, lambda p: not p.stored),
    ("boxes beside the rest", DECODED, 0, lambda p: len(p.steps) <= 2),
    ("stacked innermost", WAVES, 0, lambda p: len(p.steps) == 1),
    ("stacked outermost", DIRECTIONS, 0, lambda p: "y" not in dict(p.steps)),
    ("codes as neighbours have them", CODES, 0, lambda p: "float4" in p.kernel("y")),
    ("a weight the other way round", TURNED, 0, lambda p: "float4" in p.kernel("y")),
    ("a product under a guard", GUARDED, 0,
     lambda p: p.call("y").startswith(("cuBLAS", "k_product"))),
    # One kernel for the positions, one that reads there.
    ("expanded positions", CORNERS, 0,
     lambda p: len(p.steps) == 2 and p.call("y").startswith("k_map")),
    ("expanded targets", SCATTERED, 0, lambda p: len(p.steps) == 1),
    ("a table along the terms", NEIGHBOURS, 0, lambda p: "warp_max(acc)" not in p.kernel("y")),
    ("taps that end at a guard", MASKED % (TAPS, "[r < 2]"), 0,
     lambda p: p.call("y").startswith("k_product")),
    ("taps that a guard leaves out", MASKED % (TAPS, "[3*r+s <= 4]"), 0,
     lambda p: p.call("y").startswith("k_product")),
    ("terms divided by a number", MASKED % (TAPS + " / 9", "[r < 2]"), 0,
     lambda p: any(c.startswith("k_product") for _, c in p.steps)),
    ("what is computed in front of padding", MASKED % ("tanh(%s)" % TAPS, "1"), 0,
     lambda p: p.call("y").startswith("k_product")),
    ("taps of what is computed", MASKED % ("tanh(%s)" % TAPS, "[2*r+s > 1]"), 0,
     lambda p: p.call("y").startswith("k_product")),
    ("waves", PLACED % "cos(6.2831853*idx(k)*idx(l)/256)", 0,
     lambda p: p.call("y").startswith("k_product")),
    ("decays below a diagonal", PLACED % "[l <= k] * pow(abs(g[c]), idx(k-l))", 0,
     lambda p: p.call("y").startswith("k_product")),
    ("cosines in blocks", COSINES, 0, lambda p: p.call("y").startswith("k_basis")),
    ("what is laid across", ACROSS, 0, lambda p: p.call("y").startswith("k_product")),
    ("windows weighed by axis",
     WEIGHED % (",c", "", "x[n,c,i+r-5,j+s-5] * g[r] * g[s]", ""), 0,
     lambda p: any(n.endswith(".line") for n, _ in p.steps) or "k_stitch" in p.call("y")),
    ("channels in front of windows",
     WEIGHED % ("", "c,", "w[r,s] * %s * %s" % (CENTRED, CENTRED), ", pad m 0"), 0,
     lambda p: any(n.endswith(".line") for n, _ in p.steps)),
    ("terms that are sums", COMPLEX, 1,
     lambda p: any(".term" in n for n, _ in p.steps)),
    ("gates side by side", GATES, 0, lambda p: not any("joined" in n for n, _ in p.steps)),
]


def channels_last(checks, path, math):
    """Every convolution is a call in NHWC; nothing is converted but the input and the output."""
    costs = path + ".tsv"
    invented.write(costs, invented.calls(EINNET, path, ["--math", math]), " nhwc ")
    plan = emit(path, "--math", math, "--costs", costs)
    convs = [c for n, c in plan.steps if c.startswith("cuDNN")]
    between = [n for n, c in plan.steps[1:-1] if c not in convs]
    right = len(convs) == 4 and all("nhwc" in c for c in convs) and between in (["t"], ["p", "t"])
    checks.check("a chain in " + math, right, "; ".join("%s: %s" % s for s in plan.steps))


def skip(checks, path):
    """Neither values side by side nor an output take a step of their own."""
    with open(path, "w") as out:
        out.write(SKIP)
    options = ["--math", "fp16", "--libs", "none"]
    plan = emit(path, *options)
    right = len(plan.steps) == 3 and all(c.startswith("k_product") for _, c in plan.steps)
    checks.check("channels innermost in kernels", right,
                 "; ".join("%s: %s" % s for s in plan.steps))
    done = subprocess.run([EINNET, "verify", "--small", path] + options, stdout=subprocess.DEVNULL)
    checks.check("channels innermost in kernels: verify", not done.returncode)


def beside(checks, path):
    """Phases are stored beside what they are beside, each where it belongs."""
    for parts in ("r, u", "u, r"):
        with open(path, "w") as out:
            out.write(BESIDE % parts)
        for math in ("fp32", "tf32", "fp16"):
            options = ["--math", math, "--libs", "none"]
            plan, name = emit(path, *options), "phases beside features: %s, %s" % (parts, math)
            right = "u.split" in dict(plan.steps) and "j" not in dict(plan.steps)
            checks.check(name, right, "; ".join("%s: %s" % s for s in plan.steps))
            done = subprocess.run([EINNET, "verify", "--small", path] + options,
                                  stdout=subprocess.DEVNULL)
            checks.check(name + ": verify", not done.returncode)


def shared(checks, path):
    """What lies in one concatenation is copied to the other one, which stores the rest in place."""
    with open(path, "w") as out:
        out.write(SHARED)
    for math in ("fp32", "tf32", "fp16"):
        options = ["--math", math, "--libs", "none"]
        plan, name = emit(path, *options), "a part of two concatenations, " + math
        names = [n for n, _ in plan.steps]
        right = any(n.endswith(".laid") for n in names) and not {"i", "j"} & set(names)
        checks.check(name, right, "; ".join("%s: %s" % s for s in plan.steps))
        done = subprocess.run([EINNET, "verify", "--small", path] + options,
                              stdout=subprocess.DEVNULL)
        checks.check(name + ": verify", not done.returncode)


def shuffled(checks):
    """Channels that were shuffled for others as well are shuffled in a convolution's loads."""
    path = os.path.join(ROOT, "tests", "unseen", "shuffled.ein")
    plan = emit(path)
    names = [n for n, c in plan.steps if c.startswith("k_map")]
    checks.check("shuffled channels", names == ["h3"] and len(plan.steps) <= 13,
                 "; ".join("%s: %s" % s for s in plan.steps))
    # Without calls the arithmetic that was asked for is the cheaper one, with calls it is not.
    plan = emit(path, "--math", "tf32")
    checks.check("shuffled channels in TF32", "for H200 SXM, TF32" in plan.text)


# A norm, a product whose results are pixels of patches, and the patches put back in place.
PATCHES = """ein 1
model patches
input x: f32[%(n)d,%(h)d*%(w)d,%(c)d]
weight k: f32[%(c)d,%(p)d*%(q)d*%(f)d] = randn(std=0.1)
weight b: f32[%(p)d*%(q)d*%(f)d] = randn(std=0.1)
weight g: f32[%(c)d] = randn(std=0.1)
output y
n = LayerNormalization(x, g)
m = MatMul(n, k)
t = Add(m, b)
r = Reshape(t; shape=[%(n)d,%(h)d,%(w)d,%(p)d,%(q)d,%(f)d])
s = Transpose(r; perm=[0,5,1,3,2,4])
y = Reshape(s; shape=[%(n)d,%(f)d,%(h)d*%(p)d,%(w)d*%(q)d])
"""

# A convolution whose channels are pixels.
PIXELS = """ein 1
model pixels
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
weight k: f32[%(q)d*%(q)d*%(f)d,%(c)d,3,3] = randn(std=0.1)
output y
t = Conv(x, k; pads=1)
s = DepthToSpace(t; blocksize=%(q)d, mode=%(mode)s)
y = Relu(s)
"""


def put_back(checks, path):
    """Pixels are stored where they belong by the kernel that computes them."""
    for sizes in (dict(n=1, h=16, w=16, c=384, p=2, q=2, f=8),
                  dict(n=3, h=7, w=5, c=200, p=4, q=3, f=3),
                  dict(n=2, h=14, w=9, c=96, p=1, q=5, f=2)):
        for text in (PATCHES, PIXELS):
            for mode in ("CRD", "DCR") if text == PIXELS else ("",):
                with open(path, "w") as out:
                    out.write(text % dict(sizes, mode=mode))
                for options in ([], ["--math", "fp16", "--libs", "none"]):
                    plan = emit(path, *options)
                    done = subprocess.run([EINNET, "verify", path] + options,
                                          stdout=subprocess.DEVNULL)
                    name = "pixels put back: %s %s %s" % (text.split()[3], mode, " ".join(options))
                    checks.check(name, not done.returncode and
                                 not any(call.startswith("k_map") for _, call in plan.steps),
                                 "; ".join("%s: %s" % s for s in plan.steps))


def windows(checks):
    """Windows of an input are read where they lie, by the product that multiplies them."""
    plan = emit(os.path.join(ROOT, "tests", "unseen", "attention_windows.ein"))
    checks.check("windows of an input", "v" not in dict(plan.steps) and len(plan.steps) == 3,
                 "; ".join("%s: %s" % s for s in plan.steps))


def crossed(checks):
    """Terms of rows and columns that are no products are tiles, whatever they are reduced by."""
    path = os.path.join(ROOT, "tests", "unseen", "pairwise.ein")
    plan = emit(path)
    tiled = {n for n, c in plan.steps if c.startswith("k_product")}
    wanted = {"city", "far", "tried", "turned", "near", "own", "kernel"}
    checks.check("rows against columns", wanted <= tiled and "cross_tile<1, 2, 2," in plan.text,
                 "; ".join("%s: %s" % s for s in plan.steps))


def streamed(checks):
    """Filters lie so that neighbouring ones stream by vectors and meet all pixels."""
    path = os.path.join(ROOT, "tests", "unseen", "few_positions.ein")
    plan = emit(path, "--libs", "none")
    loads = re.findall(r"w\[u\] = \*reinterpret_cast<const float4 \*>\(&p0\[i0 \* \d+ \+ "
                       r"i1 \* \d+\s*\+ r0 \* \d+\s*\+ r1 \* \d+\s*\+ r2 \* 96 \+ i2\]", plan.text)
    checks.check("filters that stream", len(plan.steps) == 1 and len(loads) == 1,
                 "%s %d" % (plan.steps, len(loads)))


def dense(checks, options):
    """What a densely connected block puts together is stored in place and read in one piece."""
    path = os.path.join(ROOT, "tests", "unseen", "dense_block.ein")
    plan, apart = emit(path, *options), emit(path, "--rules=-nest", *options)
    read = [set(re.findall(r"^// p\d.*: (c\d)$", p.text, re.M)) for p in (plan, apart)]
    checks.check("a dense block, " + (" ".join(options) or "FP32"),
                 not plan.copies and read[0] and not read[1], str(read))


def relaid(checks, path):
    """What is known at load is read in the order that a reduction was chosen for."""
    with open(path, "w") as out:
        out.write(PROJECTED)
    took = []
    for options in ([], ["--libs", "none"]):
        found = re.search(r"^// plan .* ([\d.]+) us estimated", emit(path, *options).text, re.M)
        took.append(float(found.group(1)))
    checks.check("a weight re-laid for a reduction", took[0] <= took[1], str(took))


# Models of which no value may be stored twice in different orders.
MODELS = ["longformer", "longformer_short", "gcn", "resnet18", "dcgan", "infogan", "csrnet"]


def filters(checks):
    """Products of halves read their filters, which are made at load, by vectors."""
    path = os.path.join(ROOT, "models", "csrnet_backend.ein")
    text = emit(path, "--math", "fp16", "--libs", "none").text
    kernels = re.findall(r"k_product_\w+\(const __half.*?\n}\n", text, re.S)
    single = [k.split("(")[0] for k in kernels if re.search(r"fetch<__half>", k)]
    checks.check("filters by vectors", len(kernels) >= 4 and not single, str(single))


def check(checks, name, path, copies, condition):
    plan = emit(path)
    wrong = []
    made = plan.permuted if copies is None else plan.copies
    if len(made) > (copies or 0):
        wrong.append("copies %s" % " ".join(made))
    if condition and not condition(plan):
        wrong.append("; ".join("%s: %s" % s for s in plan.steps))
    checks.none(name, wrong)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.ein")
        for name, text, copies, condition in CASES:
            with open(path, "w") as out:
                out.write(text)
            check(checks, name, path, copies, condition)
            done = subprocess.run([EINNET, "verify", "--small", path], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            checks.check(name + ": verify", not done.returncode, done.stdout.decode().strip())
        with open(path, "w") as out:
            out.write(CHAIN)
        relaid(checks, os.path.join(folder, "projected.ein"))
        filters(checks)
        put_back(checks, os.path.join(folder, "pixels.ein"))
        skip(checks, os.path.join(folder, "skip.ein"))
        beside(checks, os.path.join(folder, "beside.ein"))
        shared(checks, os.path.join(folder, "shared.ein"))
        for math in ("tf32", "fp16"):
            channels_last(checks, path, math)
    shuffled(checks)
    windows(checks)
    streamed(checks)
    crossed(checks)
    for options in ([], ["--libs", "none"], ["--math", "tf32"]):
        dense(checks, options)
    for name in MODELS:
        check(checks, name, os.path.join(ROOT, "models", name + ".ein"), None, None)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
