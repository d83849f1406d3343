#!/usr/bin/env python3
"""Normalizations spelled in single operators are as few kernels as those with an operator of their
own; a map that its product's call computes stays with it. Ends with `N passed, N failed`."""

import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, Checks

HEAD = """ein 1
model spelled
input x: f32[%s]
weight w: f32[64] = uniform(lo=0.5, hi=1.5)
weight k: f32[64,64,3,3] = randn(std=0.04)
weight u: f32[64,64] = randn(std=0.1)
weight one: f32[8] = ones()
weight zero: f32[8] = zeros()
output y
"""

LAYER = """m = ReduceMean(x; axes=-1)
d = Sub(x, m)
p[n,t,c] = pow(d[n,t,c], 2)
v = ReduceMean(p; axes=-1)
e[n,t,c] = v[n,t,c] + 1e-5
s = Sqrt(e)
q = Div(d, s)
y = Mul(q, w)
"""

RMS = """p = Mul(x, x)
v = ReduceMean(p; axes=-1)
e[n,t,c] = v[n,t,c] + 1e-5
s = Sqrt(e)
r = Reciprocal(s)
q = Mul(x, r)
y = Mul(q, w)
"""

INSTANCE = """m = ReduceMean(x; axes=[2,3])
d = Sub(x, m)
p = Mul(d, d)
v = ReduceMean(p; axes=[2,3])
y[n,c,h,w] = d[n,c,h,w] / sqrt(v[n,c,0,0] + 1e-5)
"""

# The mean of what the convolution's call can store with ReLU.
POOLED = """c = Conv(x, k; pads=1)
r = Relu(c)
y = GlobalAveragePool(r)
"""

# Rows too long for a block each: the sums of a norm take one pass over them.
GLOBAL = """m = ReduceMean(x; axes=[1,2])
d = Sub(x, m)
p = Mul(d, d)
v = ReduceMean(p; axes=[1,2])
y[n,c,t] = d[n,c,t] / sqrt(v[n,0,0] + 1e-5)
"""

GROUP = """c = Conv(x, k; pads=1)
t = GroupNormalization(c, w, w; num_groups=8)
r = Relu(t)
y = Conv(r, k; pads=1)
"""

# Groups as exporters flatten them, and what is behind the norm for each channel.
FLAT_GROUP = """f = Reshape(x; shape=[2,8,-1])
t = InstanceNormalization(f, one, zero)
s = Reshape(t; shape=[2,64,28,28])
y[n,c,i,j] = relu(s[n,c,i,j] * w[c] + w[c])
"""

# Sums that do not depend on each other.
BOTH = """a = ReduceL1(x; axes=[1,2])
b = ReduceSumSquare(x; axes=[1,2])
y = Add(a, b)
"""

# Neither is a product, although it sums up products.
DOT = """s = Sigmoid(x)
p = Mul(x, s)
y = ReduceSum(p; axes=-1)
"""

# A sum of products of two tensors, along another dimension than the last one.
CORRELATION = """input v: f32[1,64,64,16]
p = Mul(x, v)
y = ReduceMean(p; axes=[1])
"""

# Rows read with another number of dimensions of one element, and where those stand elsewhere.
FLAT = """q = LayerNormalization(x, w, w; axis=-1)
y = Reshape(q; shape=[197,64])
"""

MOVED = """q = LayerNormalization(x, w, w; axis=-1)
y = Transpose(q; perm=[1,0,2])
"""

# A sum behind a product that is read so.
BEHIND = """f = Reshape(x; shape=[197,64])
g = Gemm(f, u)
h = Reshape(g; shape=[1,197,64])
y = Add(h, x)
"""

# Behind a product a sum that others of its elements share, which is no statistic of its rows.
ADDED = """s[n,c] = sum(d) x[n,0,d] * u[d,c]
g[n,c,e] = sum(d) x[n,0,d] * k[c,e,d%3,d/32]
p[n,t,c] = sum(e) x[n,t,e] * g[n,c,e]
y[n,t,c] = tanh(p[n,t,c] + s[n,c])
"""

# A division that the function behind it does not tell from a multiplication.
GELU = """root[] = 1.4142135
d = Div(x, root)
e = Erf(d)
y[n,t,c] = 0.5 * x[n,t,c] * (1 + e[n,t,c])
"""

# One result a row: a map of its sums, or another sum that what the others give is in.
LOGARITHM = """y = ReduceLogSumExp(x; axes=[1], keepdims=0)
"""

EXPECTED = """p = Softmax(x; axis=1)
y[n,c] = sum(k) p[n,k,c] * idx(k)
"""

BEHIND_IT = EXPECTED.replace("y[", "t[") + """y[n,c] = tanh(t[n,c] + w[c])
"""

# What a softmax weighs: values of its own rows, of rows that share the weights, neighbourhoods.
WEIGHTED = """p = Softmax(x; axis=1)
y[n,c] = sum(k) p[n,k,c] * x[n,(k+1)%12,c]
"""

SHARED = """p = Softmax(x; axis=1)
y[n,c,i,j] = sum(k) p[n,k,c] * k[(c+k)%64,c,i,j]
"""

FINER = """p = Softmax(x; axis=1)
q = Reshape(p; shape=[2,3,3,4,64,80])
y[n,c,i,j] = sum(a,b) q[n,a,b,c,i,j] * x[n,0,c,i+a-1,j+b-1] where i in 0:64, j in 0:80, pad x 0
"""

# Independent ones are siblings.
TWO = """input t: f32[8,6,64]
output z
y = ReduceLogSumExp(x; axes=[1], keepdims=0)
p = Softmax(t; axis=1)
z[n,c] = sum(k) p[n,k,c] * idx(k)
"""

# name, extents, model, pattern of each step
CASES = [
    ("layer", "8,197,64", LAYER, ["k_row"]),
    ("RMS", "8,197,64", RMS, ["k_row"]),
    ("instance", "2,64,28,28", INSTANCE, ["k_row"]),
    ("pooled", "1,64,56,56", POOLED, ["cuDNN.*relu|k_basis|k_product"]),
    ("dot", "8,197,64", DOT, ["k_reduce"]),
    ("correlation", "1,64,64,16", CORRELATION, ["k_reduce"]),
    ("flat", "1,197,64", FLAT, ["k_row"]),
    ("moved", "1,197,64", MOVED, ["k_row"]),
    ("behind", "1,197,64", BEHIND, ["cublas|k_"]),
    ("added", "4,50,64", ADDED, ["k_"]),
    ("gelu", "8,197,64", GELU, ["k_map"]),
    ("global", "1,512,2000", GLOBAL, ["k_reduce", "k_map"]),
    ("both", "1,512,2000", BOTH, ["k_reduce", "k_map"]),
    # Rows enough, of which each pass would read all from memory.
    ("long", "512,8192,16", GLOBAL, ["k_reduce", "k_map"]),
    ("group", "1,64,56,56", GROUP, ["k_row"]),
    ("flat group", "2,64,28,28", FLAT_GROUP, ["k_row"]),
    ("logarithm", "8,19,64", LOGARITHM, ["k_row"]),
    ("whole logarithm", "1,512,2000", LOGARITHM.replace("[1]", "[1,2]"), ["k_", "k_"]),
    ("expected", "8,16,64", EXPECTED, ["k_row"]),
    ("weighted", "8,12,64", WEIGHTED, ["k_row"]),
    ("shared", "8,2,64", SHARED, ["k_row"]),
    ("finer", "2,9,4,64,80", FINER, ["k_row"]),
    ("two", "8,6,64", TWO, ["k_siblings"]),
    ("behind the last", "8,16,64", BEHIND_IT, ["k_row"]),
    # A block or less for each row would leave a machine idle.
    ("one group", "1,64,56,56", GROUP.replace("groups=8", "groups=1"), ["k_reduce"]),
]


def emitted(path):
    done = subprocess.run([EINNET, "emit", path, "-o", "-"], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def steps(text):
    return re.findall(r"^// +[\d.]+ us (?:est\.|measured) (\S+) +(.+)$", text, re.M)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "spelled.ein")
        for name, extents, text, wanted in CASES:
            with open(path, "w") as out:
                out.write(HEAD % extents + text)
            program = emitted(path)
            made = steps(program)
            if name == "pooled":  # what computes the convolution stores it after ReLU, or pools it
                apart = len(made) > 1 and made[-2][0] == "r" and re.match(wanted[0], made[-2][1])
                joined = made[-1][1].startswith("k_stitch") and "\n// r by slices" in program
                right = apart or joined
            elif name == "group":
                right = len([k for _, k in made if k.startswith(wanted[0])]) == 1
                right = right and not [n for n, _ in made if "sum" in n and "t." in n]
            elif name == "one group":
                right = [n for n, _ in made if "sum" in n and "t." in n] == ["t.sum2.both"]
            elif name == "added":
                right = made[-1][0] == "y" and not [n for n, _ in made if n.startswith("p")]
            elif name == "gelu":
                right = len(made) == 1 and re.search(r"erff\([^/]*\* 0\.707106", program)
            else:
                right = len(made) == len(wanted) and re.match(wanted[0], made[0][1])
            checks.check(name, right, made)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
