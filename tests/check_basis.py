#!/usr/bin/env python3
"""Where a basis change (Winograd's minimal filtering) must be found, and where not, by `einnet
explain --all --json`: a candidate with the stated batched GEMM between the transforms.

`einnet verify` must prove the plan. Ends with `N passed, N failed`.
"""

import sys
import tempfile

from check_explain import check, convolution, spread
from harness import Checks


def padded(n, c, f, h, w, r, s, pads, group=1):
    return """ein 1
model padded
input x: f32[%d,%d,%d,%d]
weight k: f32[%d,%d,%d,%d] = randn(std=0.1)
output y
y = Conv(x, k; pads=[%s], group=%d)
""" % (n, c, h, w, f, c // group, r, s, ",".join(map(str, pads)), group)


def volume(n, c, f, h):
    return """ein 1
model volume
input x: f32[%d,%d,%d,%d,%d]
weight k: f32[%d,%d,3,3,3] = randn(std=0.1)
output y
y = Conv(x, k; pads=1)
""" % (n, c, h, h, h, f, c)


STAGE1 = convolution(64, 64, 56, 56, 3, 3, 1, 1)
# name, model, a batched GEMM (batch, then m, n, k in any role) behind a basis change
PRODUCTS = [
    ("F(2x2,3x3) of the paper", convolution(512, 512, 7, 7, 3, 3, 1, 1), (16, 512, 16, 512)),
    ("F(4x4,3x3) of the paper", convolution(512, 512, 7, 7, 3, 3, 1, 1), (36, 512, 4, 512)),
    ("F(2x2,3x3) of ResNet", STAGE1, (16, 64, 784, 64)),
    ("F(4x4,3x3) of ResNet", STAGE1, (36, 64, 196, 64)),
    ("F(2x2,3x3), odd sizes", convolution(6, 10, 11, 5, 3, 3, 1, 1), (16, 10, 18, 6)),
    ("F(4x4,3x3), odd sizes", convolution(6, 10, 11, 5, 3, 3, 1, 1), (36, 10, 6, 6)),
    ("F(2,3) of 1x3", convolution(12, 20, 9, 14, 1, 3, 0, 1), (4, 20, 63, 12)),
    ("F(4,3) of 3x1", convolution(12, 20, 13, 8, 3, 1, 1, 0), (6, 20, 32, 12)),
    ("F(2x2,2x2)", convolution(5, 7, 9, 10, 2, 2, 0, 0), (9, 7, 20, 5)),
    ("F(2x2,5x5)", convolution(5, 7, 12, 10, 5, 5, 2, 2), (36, 7, 30, 5)),
    ("F(2x2,3x5)", convolution(5, 7, 12, 10, 3, 5, 1, 2), (24, 7, 30, 5)),
    ("batch, uneven padding", padded(3, 5, 7, 9, 10, 3, 3, (2, 0, 1, 3)), (16, 7, 90, 5)),
    ("two groups", padded(2, 8, 12, 11, 10, 3, 3, (1, 1, 1, 1), 2), (72, 6, 18, 4)),
    ("three axes", volume(2, 6, 5, 7), (64, 5, 128, 6)),
    ("dilation 2, phase by phase", spread(512, 256, 14, 2, 1), (16, 256, 64, 512)),
]
# Models that a basis change has nothing to gain from, or is not defined for.
PLAIN = [
    ("1x1", convolution(16, 16, 8, 8, 1, 1, 0, 0)),
    ("stride 3, one tap a phase", spread(4, 6, 16, 1, 3)),
]


def batched_sizes(candidate):
    for step in candidate["steps"]:
        for call in step["matches"] if "basis change" in step["rules"] else []:
            if call["kind"] == "gemm":
                yield (call["batch"],) + tuple(sorted((call["m"], call["n"], call["k"])))


def changes(candidate):
    yield any("basis change" in step["rules"] for step in candidate["steps"])


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        cases = [(n, t, batched_sizes, s[:1] + tuple(sorted(s[1:]))) for n, t, s in PRODUCTS]
        cases += [(n, t, changes, False) for n, t in PLAIN]
        for name, text, found_in, sizes in cases:
            problems = check(text, found_in, sizes, folder, never=found_in is changes)
            checks.none(name, problems)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
