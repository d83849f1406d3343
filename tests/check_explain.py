#!/usr/bin/env python3
"""What derivation must find, by `einnet explain --all --json`: a candidate with the stated library
call among its steps. The sizes are the papers' and others, so that no shape can be special.

`einnet verify` must prove the plan. Ends with `N passed, N failed`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks
COPY = re.compile(r"^[\w.]+\[[^\[\]]*\]( \* \[[^\[\]]*\])*$")


def convolution(c, f, h, w, r, s, p, q):
    return """ein 1
model conv
input x: f32[1,%d,%d,%d]
weight k: f32[%d,%d,%d,%d] = randn(std=0.1)
output y
y = Conv(x, k; pads=[%d,%d,%d,%d])
""" % (c, h, w, f, c, r, s, p, q, p, q)


def transposed(n, c, f, h, r, stride, pad):
    return """ein 1
model deconv
input x: f32[%d,%d,%d,%d]
weight k: f32[%d,%d,%d,%d] = randn(std=0.1)
output y
y = ConvTranspose(x, k; strides=%d, pads=%d)
""" % (n, c, h, h, c, f, r, r, stride, pad)


# name, model, sizes of a GEMM (any role) that a candidate has
CASES = [
    ("conv3x3 of the paper", convolution(512, 512, 7, 7, 3, 3, 1, 1), (49, 4608, 512)),
    ("conv3x3, other sizes", convolution(13, 17, 9, 8, 3, 3, 1, 1), (72, 153, 13)),
    ("conv3x3 by im2col", convolution(512, 512, 7, 7, 3, 3, 1, 1), (49, 512, 4608)),
    ("im2col, other sizes", convolution(6, 10, 11, 5, 3, 3, 1, 1), (55, 10, 54)),
    ("conv1x7", convolution(2048, 128, 7, 7, 1, 7, 0, 3), (49, 896, 2048)),
    ("conv7x1, other sizes", convolution(33, 12, 9, 10, 7, 1, 3, 0), (90, 84, 33)),
    ("conv5x5 to 25 taps", convolution(5, 3, 12, 10, 5, 5, 2, 2), (120, 75, 5)),
    ("transposed 4x4 s2 of the paper", transposed(16, 448, 256, 2, 4, 2, 1), (64, 4096, 448)),
    ("transposed 5x5 s3", transposed(2, 7, 6, 4, 5, 3, 1), (32, 150, 7)),
    ("transposed 9x9 s4", transposed(1, 56, 1, 32, 9, 4, 3), (1024, 81, 56)),
]


def spread(c, f, h, dilation, stride):
    return """ein 1
model spread
input x: f32[1,%d,%d,%d]
weight k: f32[%d,%d,3,3] = randn(std=0.1)
output y
y = Conv(x, k; pads=%d, dilations=%d, strides=%d)
""" % (c, h, h, f, c, dilation, dilation, stride)


# name, model, a convolution (batch, channels, filter, stride, dilation) that a candidate has
CONVOLUTIONS = [
    ("dilation 2 to four phases", spread(512, 256, 14, 2, 1), (4, 512, 3, 1, 1)),
    ("dilation 3, not dividing", spread(5, 7, 13, 3, 1), (9, 5, 3, 1, 1)),
    ("dilation 4, not dividing", spread(6, 3, 18, 4, 1), (16, 6, 3, 1, 1)),
    ("stride 2 to space-to-depth", spread(64, 128, 56, 1, 2), (1, 256, 2, 1, 1)),
    ("stride 2, odd size", spread(5, 4, 15, 1, 2), (1, 20, 2, 1, 1)),
    ("stride 3", spread(4, 6, 16, 1, 3), (1, 36, 1, 1, 1)),
]


def band(inputs, equation, m=10000, w=100, d=3, more=""):
    return """ein 1
model band
dim B = 2, P = 64, M = %d, W = %d, D = %d%s
%s
output y
%s
""" % (m, w, d, more, "\n".join("input %s: f32[%s]" % i for i in inputs), equation)


def g2bmm(m, w, d):
    return band([("q", "B,M,P"), ("k", "B,M,P")],
                "y[b,m,j] = sum(p) q[b,m,p] * k[b,m+D*(j-W),p] where j in 0:2*W+1, pad k 0",
                m, w, d)


def gbmm(m, w, d):
    return band([("a", "B,M,2*W+1"), ("v", "B,M,P")],
                "y[b,m,p] = sum(j) a[b,m,j] * v[b,m+D*(j-W),p] where pad v 0", m, w, d)


# name, model, a band product (kind, batch, rows, band, depth, dilation) that a candidate has
BANDS = [
    ("G2BMM as it is", g2bmm(10000, 1000, 4), ("g2bmm", 2, 10000, 2001, 64, 4)),
    ("G2BMM of the paper, dilation 4", g2bmm(10000, 1000, 4), ("g2bmm", 8, 2500, 2001, 64, 1)),
    ("G2BMM, dilation 2", g2bmm(10000, 1000, 2), ("g2bmm", 4, 5000, 2001, 64, 1)),
    ("G2BMM, dilation 3, not dividing", g2bmm(10000, 1000, 3), ("g2bmm", 6, 3334, 2001, 64, 1)),
    ("G2BMM, other sizes", g2bmm(997, 31, 7), ("g2bmm", 14, 143, 63, 64, 1)),
    ("G2BMM, wider than long", g2bmm(11, 40, 3), ("g2bmm", 6, 4, 81, 64, 1)),
    ("GBMM, dilation 4", gbmm(10000, 1000, 4), ("gbmm", 8, 2500, 2001, 64, 1)),
    ("GBMM, dilation 2", gbmm(10000, 1000, 2), ("gbmm", 4, 5000, 2001, 64, 1)),
    ("GBMM, dilation 3, not dividing", gbmm(10000, 1000, 3), ("gbmm", 6, 3334, 2001, 64, 1)),
    ("GBMM, other sizes", gbmm(101, 9, 5), ("gbmm", 10, 21, 19, 64, 1)),
    ("scaled, operands exchanged", band(
        [("q", "B,M,P"), ("k", "B,M,P")],
        "y[b,m,j] = sum(p) 0.3 * k[b,m+D*(j-W),p] * q[b,m,p] where j in 0:2*W+1, pad k 0"),
     ("g2bmm", 6, 3334, 201, 64, 1)),
    ("other orders of dimensions", band(
        [("q", "P,M,B"), ("k", "M,P,B")],
        "y[j,b,m] = sum(p) q[p,m,b] * k[m+D*(j-W),p,b] where j in 0:2*W+1, pad k 0"),
     ("g2bmm", 6, 3334, 201, 64, 1)),
    ("no batch", band(
        [("a", "M,2*W+1"), ("v", "M,P")],
        "y[m,p] = sum(j) v[m+D*(j-W),p] * a[m,j] where pad v 0"), ("gbmm", 3, 3334, 201, 64, 1)),
    ("more batches", band(
        [("q", "B,C,M,P"), ("k", "E,B,M,P")],
        "y[b,c,e,m,j] = sum(p) q[b,c,m,p] * k[e,b,m+D*(j-W),p] where j in 0:2*W+1, pad k 0",
        more=", C = 3, E = 5"), ("g2bmm", 90, 3334, 201, 64, 1)),
    ("heads beside each other", band(
        [("q", "B,M,H*P"), ("k", "B,M,H*P")],
        "y[b,h,m,j] = sum(p) q[b,m,h*P+p] * k[b,m+D*(j-W),h*P+p]"
        " where h in 0:H, p in 0:P, j in 0:2*W+1, pad k 0", more=", H = 4"),
     ("g2bmm", 24, 3334, 201, 64, 1)),
    ("backwards", band(
        [("q", "B,M,P"), ("k", "B,M,P")],
        "y[b,m,j] = sum(p) q[b,m,p] * k[b,m-D*j,p] where j in 0:W, pad k 0"),
     ("g2bmm", 6, 3334, 100, 64, -1)),
    ("rows two apart", band(
        [("q", "B,M,P"), ("k", "B,2*M,P")],
        "y[b,m,j] = sum(p) q[b,m,p] * k[b,2*m+j-W,p] where j in 0:2*W+1, pad k 0"),
     ("g2bmm", 4, 10000, 101, 64, 1)),
]


def upsampled(x, k, attributes):
    dims = [",".join(str(d) for d in shape) for shape in (x, k)]
    return """ein 1
model upsampled
input x: f32[%s]
weight k: f32[%s] = randn(std=0.1)
output y
y = ConvTranspose(x, k; %s)
""" % (dims[0], dims[1], attributes)


def lattice(form, taps, size):
    return """ein 1
model equation
input x: f32[2,6,9]
weight k: f32[6,5,%d] = randn(std=0.1)
output y
y[n,f,h] = sum(c,r) x[n,c,(%s)/4] * [(%s)%%4 == 0] * k[c,f,r] where h in 0:%d, pad x 0
""" % (taps, form, form, size)


def stored(name):
    with open(os.path.join(ROOT, "models", name)) as f:
        return f.read()


# name, model, the convolution (result channels, filter, stride) of a candidate that ends in a copy
PHASES = [
    ("transposed 4x4 s2 to phases", stored("cases/convtranspose.ein"), (1024, (2, 2), (1, 1))),
    ("its channels by one off", upsampled((16, 449, 3, 3), (449, 255, 4, 4), "strides=2, pads=1"),
     (1020, (2, 2), (1, 1))),
    ("transposed 9x9 s4 of FSRCNN", stored("fsrcnn.ein"), (16, (3, 3), (1, 1))),
    ("transposed 9x9 s4", upsampled((1, 56, 32, 32), (56, 1, 9, 9), "strides=4, pads=3"),
     (16, (3, 3), (1, 1))),
    ("transposed 8x8 s4, two channels",
     upsampled((1, 57, 31, 33), (57, 2, 8, 8), "strides=4, pads=2, output_padding=1"),
     (32, (2, 2), (1, 1))),
    ("transposed 5x5 s3, not dividing", transposed(2, 7, 6, 4, 5, 3, 1), (54, (2, 2), (1, 1))),
    ("strides 1 and 2", upsampled((1, 4, 5, 6), (4, 3, 3, 3), "strides=[1,2], pads=1"),
     (6, (3, 2), (1, 1))),
    ("strides 2 and 3", upsampled((1, 4, 5, 6), (4, 3, 4, 5), "strides=[2,3], pads=[1,0,0,2]"),
     (18, (2, 2), (1, 1))),
    ("transposed, dilation 3", upsampled((1, 4, 6, 5), (4, 3, 3, 3),
                                         "strides=2, pads=1, dilations=3"), (12, (2, 2), (1, 1))),
    ("transposed, groups", upsampled((1, 6, 8, 8), (6, 5, 4, 4), "strides=2, pads=1, group=2"),
     (40, (2, 2), (1, 1))),
    ("transposed in one dimension", upsampled((2, 6, 9), (6, 5, 7), "strides=5, pads=2"),
     (25, (2,), (1,))),
    ("transposed in three", upsampled((1, 3, 4, 5, 4), (3, 2, 4, 3, 4), "strides=[2,1,2], pads=1"),
     (8, (2, 3, 2), (1, 1, 1))),
    ("a filter of one tap", upsampled((1, 4, 5, 3), (4, 3, 1, 1), "strides=2"),
     (3, (1, 1), (1, 1))),
    ("a factor shared with the stride", lattice("2*h-r+1", 4, 17), (10, (1,), (1,))),
    ("a coefficient of the sum", lattice("h-3*r+5", 7, 30), (20, (2,), (1,))),
    ("a window that grows", lattice("h+r", 7, 30), (20, (2,), (1,))),
]


def grouped(n, c, f, h, r, group, stride=1):
    return """ein 1
model grouped
input x: f32[%d,%d,%d,%d]
weight k: f32[%d,%d,%d,%d] = randn(std=0.1)
output y
y = Conv(x, k; pads=%d, group=%d, strides=%d)
""" % (n, c, h, h, f, c // group, r, r, r // 2, group, stride)


def window(n, c, f, size, filter_size, attributes):
    def text(sizes):
        return ",".join(str(s) for s in sizes)

    return """ein 1
model window
input x: f32[%d,%d,%s]
weight k: f32[%d,%d,%s] = randn(std=0.1)
output y
y = Conv(x, k; %s)
""" % (n, c, text(size), f, c, text(filter_size), attributes)


def equation(data, weights, left, right, ranges):
    return """ein 1
model equation
input x: f32[%s]
weight k: f32[%s] = randn(std=0.1)
output y
y[%s] = %s
    where %s
""" % (data, weights, left, right, ranges)


def nhwc(n, h, w, c, f, r):
    return equation("%d,%d,%d,%d" % (n, h, w, c), "%d,%d,%d,%d" % (r, r, c, f), "n,h,w,f",
                    "sum(r,s,c) x[n,h+r-%d,w+s-%d,c] * k[r,s,c,f]" % (r // 2, r // 2),
                    "h in 0:%d, w in 0:%d, pad x 0" % (h, w))


def batched(b, n, c, f, h):
    return equation("%d,%d,%d,%d,%d" % (b, n, c, h, h), "%d,%d,%d,3,3" % (b, f, c), "b,n,f,h,w",
                    "sum(c,r,s) x[b,n,c,h+r-1,w+s-1] * k[b,f,c,r,s]",
                    "h in 0:%d, w in 0:%d, pad x 0" % (h, h))


def products(b, m, n, k):
    return equation("%d,%d,%d" % (b, m, k), "%d,%d,%d" % (b, k, n), "b,m,n",
                    "sum(k1) x[b,m,k1] * k[b,k1,n]", "m in 0:%d" % m)


# name, model, a convolution (batch, channels, outputs, groups, filter, stride) that a candidate has
FILTERS = [
    ("conv5x5 of the paper to 3x3", window(16, 32, 1, [224, 224], [5, 5], "pads=2"),
     (16, 32, 4, 1, (3, 3), (1, 1))),
    ("conv5x5, sizes changed by one", window(15, 33, 2, [223, 225], [5, 5], "pads=2"),
     (15, 33, 8, 1, (3, 3), (1, 1))),
    ("conv5x5 without padding", window(2, 3, 4, [19, 20], [5, 5], "pads=0"),
     (2, 3, 16, 1, (3, 3), (1, 1))),
    ("conv5x5 stride 2", window(1, 3, 4, [33, 32], [5, 5], "pads=2, strides=2"),
     (1, 3, 36, 1, (2, 2), (2, 2))),
    ("conv5x5 along one axis", window(2, 3, 4, [13, 12], [5, 5], "pads=2"),
     (2, 3, 8, 1, (3, 5), (1, 1))),
    ("conv5x5 in groups", window(2, 2, 6, [13, 12], [5, 5], "pads=2, group=2")
     .replace("x: f32[2,2,", "x: f32[2,4,"), (2, 4, 24, 2, (3, 3), (1, 1))),
    ("conv6x6 to 3x3", window(1, 3, 2, [12, 11], [6, 6], "pads=[2,2,3,3]"),
     (1, 3, 8, 1, (3, 3), (1, 1))),
    ("conv9x9 to 3x3", window(1, 1, 56, [64, 64], [9, 9], "pads=4"),
     (1, 1, 504, 1, (3, 3), (1, 1))),
    ("conv9x9, sizes changed by one", window(1, 2, 55, [65, 63], [9, 9], "pads=4"),
     (1, 2, 495, 1, (3, 3), (1, 1))),
    ("conv1d of 7 taps as 4 and 3", window(2, 3, 5, [30], [7], "pads=0"),
     (2, 3, 5, 1, (4,), (1,))),
    ("conv5x4 as 3x4 and 2x4", window(1, 3, 4, [12, 13], [5, 4], "pads=0"),
     (1, 3, 4, 1, (3, 4), (1, 1))),
    ("conv1d of 7 taps", window(2, 3, 5, [30], [7], "pads=3"), (2, 3, 10, 1, (4,), (1,))),
    ("conv3d of 5x3x5", window(1, 2, 3, [7, 8, 6], [5, 3, 5], "pads=[2,1,2,2,1,2]"),
     (1, 2, 12, 1, (3, 3, 3), (1, 1, 1))),
    ("conv5x5 written in NHWC", nhwc(2, 9, 8, 3, 6, 5), (2, 3, 24, 1, (3, 3), (1, 1))),
    ("conv3x3 of the paper to 1x1", convolution(512, 512, 7, 7, 3, 3, 1, 1),
     (1, 512, 4608, 1, (1, 1), (1, 1))),
    ("conv3x3 to 1x1, a batch", window(3, 13, 17, [9, 8], [3, 3], "pads=1"),
     (3, 13, 153, 1, (1, 1), (1, 1))),
    ("conv3x3 to 1x1 without padding", window(2, 13, 17, [9, 8], [3, 3], "pads=0"),
     (2, 13, 153, 1, (1, 1), (1, 1))),
    ("conv4x3 to 1x1", window(2, 5, 6, [9, 8], [4, 3], "pads=[1,1,2,1]"),
     (2, 5, 72, 1, (1, 1), (1, 1))),
    ("two groups to one", grouped(2, 12, 8, 9, 3, 2), (2, 12, 8, 1, (3, 3), (1, 1))),
    ("three groups to one", grouped(1, 9, 6, 7, 3, 3), (1, 9, 6, 1, (3, 3), (1, 1))),
    ("four groups to one, stride 2", grouped(2, 8, 12, 8, 3, 4, 2), (2, 8, 12, 1, (3, 3), (2, 2))),
    ("groups of conv1x1 to one", grouped(2, 8, 10, 7, 1, 2), (2, 8, 10, 1, (1, 1), (1, 1))),
    ("depthwise to one", grouped(1, 13, 13, 9, 3, 13), (1, 13, 13, 1, (3, 3), (1, 1))),
    ("wide depthwise to a few groups", grouped(1, 40, 40, 9, 3, 40),
     (1, 40, 40, 4, (3, 3), (1, 1))),
    ("batch of convolutions to groups", batched(3, 2, 5, 6, 9), (2, 15, 18, 3, (3, 3), (1, 1))),
    ("batch of convolutions, other sizes", batched(4, 1, 6, 7, 8), (1, 24, 28, 4, (3, 3), (1, 1))),
    ("batched product to groups", products(3, 7, 4, 5), (1, 15, 12, 3, (1,), (1,))),
    ("batched product, other sizes", products(8, 64, 65, 33), (1, 264, 520, 8, (1,), (1,))),
    ("conv3x3 written in NHWC", nhwc(2, 9, 8, 5, 6, 3), (2, 5, 6, 1, (3, 3), (1, 1))),
    ("NHWC, one image", nhwc(1, 14, 15, 33, 12, 3), (1, 33, 12, 1, (3, 3), (1, 1))),
    ("conv3x3 written in CHWN", equation(
        "5,9,8,2", "5,3,3,6", "f,h,w,n", "sum(c,r,s) x[c,h+r-1,w+s-1,n] * k[c,r,s,f]",
        "h in 0:9, w in 0:8, pad x 0"), (2, 5, 6, 1, (3, 3), (1, 1))),
    ("strided, written in NHWC", equation(
        "2,9,8,5", "3,3,5,6", "n,h,w,f", "sum(r,s,c) x[n,2*h+r-1,2*w+s-1,c] * k[r,s,c,f]",
        "h in 0:5, w in 0:4, pad x 0"), (2, 5, 6, 1, (3, 3), (2, 2))),
    ("uneven padding in NHWC", equation(
        "2,9,8,5", "3,3,5,6", "n,h,w,f", "sum(r,s,c) x[n,h+r-2,w+s,c] * k[r,s,c,f]",
        "h in 0:9, w in 0:8, pad x 0"), (2, 5, 6, 1, (3, 3), (1, 1))),
]

def picked(rows, weights, f, c):
    return """ein 1
model picked
input x: f32[%d,%d]
input at: i32[%d]
weight w: f32[%d,%d,%d] = randn(std=0.1)
output y
each = Gather(w, at; axis=0)
y[r,f] = sum(c) x[r,c] * each[r,f,c]
""" % (rows, c, rows, weights, f, c)


# name, model, a batched GEMM (batch, sizes in any role) that a candidate has
BATCHED = [
    ("two groups to a batch", grouped(1, 12, 8, 9, 3, 2), (2, 36, 81, 6)),
    ("three groups to a batch", grouped(1, 9, 6, 7, 3, 3), (3, 18, 49, 3)),
    ("four groups of conv1x1 to a batch", grouped(1, 8, 12, 7, 1, 4), (4, 3, 49, 2)),
    ("rows sorted by the weights they pick", picked(900, 7, 200, 160), (13, 128, 160, 200)),
    ("the same, few rows for each", picked(400, 40, 96, 512), (62, 16, 96, 512)),
]


def candidates(path):
    done = subprocess.run([EINNET, "explain", path, "y", "--all", "--json"],
                          stdout=subprocess.PIPE, check=True)
    values = json.loads(done.stdout.decode())["values"]
    return [c for v in values for c in v["candidates"]]


def gemm_sizes(candidate):
    for step in candidate["steps"]:
        for call in step["matches"]:
            if call["kind"] == "gemm" and call["batch"] == 1:
                yield tuple(sorted((call["m"], call["n"], call["k"])))


def convolutions(candidate):
    for step in candidate["steps"]:
        for call in step["matches"]:
            if call["kind"] == "conv" and len(call["filter"]) == 2:
                yield (call["n"], call["c"], call["filter"][0], call["stride"][0],
                       call["dilation"][0])


def bands(candidate):
    for step in candidate["steps"]:
        for call in step["matches"]:
            if call["kind"] in ("g2bmm", "gbmm"):
                yield (call["kind"], call["batch"], call["m"], call["n"], call["k"],
                       call["dilation"])


def phases(candidate):
    """Convolutions of a candidate whose last step is a copy of another value."""
    last = candidate["steps"][-1]
    body = last["equation"].split(" = ", 1)[1].split(" where ")[0]
    if last["call"]["kind"] != "map kernel" or not COPY.match(body):
        return
    for step in candidate["steps"]:
        for call in step["matches"]:
            if call["kind"] == "conv":
                yield call["f"], tuple(call["filter"]), tuple(call["stride"])


def batched_sizes(candidate):
    for step in candidate["steps"]:
        for call in step["matches"]:
            if call["kind"] == "gemm":
                yield (call["batch"],) + tuple(sorted((call["m"], call["n"], call["k"])))


def filters(candidate):
    for step in candidate["steps"]:
        for call in step["matches"]:
            if call["kind"] == "conv":
                yield (call["n"], call["c"], call["f"], call["group"], tuple(call["filter"]),
                       tuple(call["stride"]))


def splits(candidate):
    return any(re.search(r"summation splitting( \(|$)", s["rules"])
               for s in candidate["steps"] if s.get("rules"))


def check(text, found_in, sizes, folder, never=False):
    """What is wrong; `never`: every candidate must have `sizes`."""
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as f:
        f.write(text)
    found = candidates(path)
    problems = []
    if sum(c["chosen"] for c in found) != 1:
        problems.append("not exactly one candidate is chosen")
    chosen = [c for c in found if c["chosen"]][0]
    # The plan as a whole may be cheaper without splits, or by one that leaves a map less to do.
    least = min(c["ps"] for c in found)
    if chosen["ps"] != min(c["ps"] for c in found if splits(chosen) or not splits(c)) and \
            chosen["ps"] > 1.03 * least:
        problems.append("the chosen candidate is not the cheapest")
    has = [sizes in found_in(c) for c in found]
    if not (all(has) if never else any(has)):
        problems.append("no candidate has %s" % (sizes,))
    if subprocess.run([EINNET, "verify", path], stdout=subprocess.DEVNULL).returncode:
        problems.append("the plan is not proved")
    return problems


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        cases = [(n, t, gemm_sizes, tuple(sorted(s))) for n, t, s in CASES]
        cases += [(n, t, convolutions, s) for n, t, s in CONVOLUTIONS]
        cases += [(n, t, bands, s) for n, t, s in BANDS]
        cases += [(n, t, phases, s) for n, t, s in PHASES]
        cases += [(n, t, filters, s) for n, t, s in FILTERS]
        cases += [(n, t, batched_sizes, (s[0],) + tuple(sorted(s[1:]))) for n, t, s in BATCHED]
        for name, text, found_in, sizes in cases:
            problems = check(text, found_in, sizes, folder)
            checks.none(name, problems)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
