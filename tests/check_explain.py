#!/usr/bin/env python3
"""What derivation must find, by `einnet explain --all --json`: a candidate with the stated library
call among its steps. The sizes are the papers' and others, so that no shape can be special.

`einnet verify` must prove the plan. Ends with `N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
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
        for name, text, found_in, sizes in cases:
            problems = check(text, found_in, sizes, folder)
            passed, failed = passed + (not problems), failed + bool(problems)
            for p in problems:
                print("FAIL %s: %s" % (name, p))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
