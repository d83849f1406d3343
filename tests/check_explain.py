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

HERE = os.path.dirname(os.path.abspath(__file__))
COPY = re.compile(r"^[\w.]+\[[^\[\]]*\]( \* \[[^\[\]]*\])*$")
EINNET = os.environ.get("EINNET", os.path.join(HERE, "..", "build", "einnet"))


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


def equation(form, taps, size):
    return """ein 1
model equation
input x: f32[2,6,9]
weight k: f32[6,5,%d] = randn(std=0.1)
output y
y[n,f,h] = sum(c,r) x[n,c,(%s)/4] * [(%s)%%4 == 0] * k[c,f,r] where h in 0:%d, pad x 0
""" % (taps, form, form, size)


def stored(name):
    with open(os.path.join(HERE, "..", "models", name)) as f:
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
    ("a factor shared with the stride", equation("2*h-r+1", 4, 17), (10, (1,), (1,))),
    ("a coefficient of the sum", equation("h-3*r+5", 7, 30), (20, (2,), (1,))),
    ("a window that grows", equation("h+r", 7, 30), (20, (2,), (1,))),
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


def check(text, found_in, sizes, folder):
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as f:
        f.write(text)
    found = candidates(path)
    problems = []
    if sum(c["chosen"] for c in found) != 1:
        problems.append("not exactly one candidate is chosen")
    if min(c["ps"] for c in found) != [c["ps"] for c in found if c["chosen"]][0]:
        problems.append("the chosen candidate is not the cheapest")
    if not any(sizes in found_in(c) for c in found):
        problems.append("no candidate has %s" % (sizes,))
    if subprocess.run([EINNET, "verify", path], stdout=subprocess.DEVNULL).returncode:
        problems.append("the plan is not proved")
    return problems


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = [(n, t, gemm_sizes, tuple(sorted(s))) for n, t, s in CASES]
        cases += [(n, t, convolutions, s) for n, t, s in CONVOLUTIONS]
        cases += [(n, t, bands, s) for n, t, s in BANDS]
        cases += [(n, t, phases, s) for n, t, s in PHASES]
        for name, text, found_in, sizes in cases:
            problems = check(text, found_in, sizes, folder)
            passed, failed = passed + (not problems), failed + bool(problems)
            for p in problems:
                print("FAIL %s: %s" % (name, p))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
