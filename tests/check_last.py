#!/usr/bin/env python3
"""Windows that every channel has by itself, channels last: four channels and a strip of columns a
thread.

Convolutions in either order of the tensors as exporters write them: which kernel computes them,
that filters lie as they are read, that nothing is copied for it; right to the judge, also for
races, with a fault planted wrong. Ends with `N passed, N failed`.
"""

import os
import re
import sys
import tempfile

import harness
from harness import Checks

# A depthwise convolution between transposes, or of channels last by an equation; what follows wants
# channels last.
HEAD = """ein 1
model last
dim N = 1, C = %d, H = %d, W = %d
input x: f32[N,H,W,C]
weight k: f32[C,1,%d,%d] = randn(seed=1, std=0.2)
weight b: f32[C] = randn(seed=2, std=0.2)
weight s: f32[C] = uniform(seed=3, lo=0.5, hi=1.5)
weight w: f32[C,C] = randn(seed=4, std=0.1)
output y
"""
CONV = """t = Transpose(x; perm=[0,3,1,2])
d = Conv(t, k, b; pads=[%d,%d,%d,%d], strides=[%d,%d], dilations=[%d,%d], group=C)
e = Transpose(d; perm=[0,2,3,1])
n = LayerNormalization(e, s, b)
y = MatMul(n, w)
"""
#         C    H   W  taps  stride, dilation, columns a thread
FORMS = [(96, 21, 23, 3, 3, 1, 1, 4), (64, 33, 31, 5, 3, 2, 1, 4),
         (128, 20, 22, 3, 3, 1, 2, 4), (64, 1, 400, 1, 5, 1, 1, 4), (60, 18, 18, 3, 3, 1, 1, 4)]
GPU = ["--gpu", "orin-nano", "--libs", "none"]

# Blocks as those of ConvNeXt, where no order of a tensor is left to choose but the filters'.
BLOCKS = """ein 1
model blocks
dim N = 1, C = 96, H = 56
input x: f32[N,C,H,H]
output h
block blk(x) -> y {
    weight k: f32[C,1,7,7] = randn(std=0.14)
    weight s: f32[C] = uniform(lo=0.5, hi=1.5)
    weight b: f32[C] = randn(std=0.1)
    weight w: f32[C,C] = randn(std=0.1)
    d = Conv(x, k, b; pads=3, group=C)
    t = Transpose(d; perm=[0,2,3,1])
    n = LayerNormalization(t, s, b)
    m = MatMul(n, w)
    u = Transpose(m; perm=[0,3,1,2])
    y = Add(x, u)
}
h = Identity(x)
repeat i in 0:3 {
    h = blk(h)
}
"""

checks = Checks()


def write(folder, form):
    c, h, w, r, s, stride, dilation, _ = form
    path = os.path.join(folder, "last.ein")
    up, left = dilation * (r - 1) // 2, dilation * (s - 1) // 2
    with open(path, "w") as file:
        file.write(HEAD % (c, h, w, r, s) +
                   CONV % (up, left, up, left, stride, stride, dilation, dilation))
    return path


def form_of(folder, form):
    path, name = write(folder, form), "x".join(map(str, form[:5]))
    program = harness.Judged(folder, path, *GPU)
    text = program.text
    bodies = re.findall(r"^static __global__ .*? k_reduce_\w+\(.*?^\}", text, re.M | re.S)
    kernel = next((b for b in bodies if "float acc[%d][4]" % form[7] in b), "")
    checks.check(name + ": a strip of columns", kernel, text[:1500])
    if not kernel:
        return program
    loads = re.findall(r"reinterpret_cast<const float4 \*>\(&?p\d", kernel)
    checks.check(name + ": data, filter and bias by vectors", len(loads) >= 3, kernel)
    steps = re.findall(r"us est\. (\S+) +k_(\w+)_", text)
    checks.check(name + ": nothing is transposed", len(steps) <= 3 and
                 not [s for s in steps if s[1] == "transpose"], steps)
    checks.check(name + ": right", program.status() == 0)
    return program


def blocks(folder):
    path = os.path.join(folder, "blocks.ein")
    with open(path, "w") as file:
        file.write(BLOCKS)
    text = harness.emit(folder, path, "--libs", "none")
    last = {name for name, body in re.findall(r"^static __global__ .*? (k_reduce_\w+)\((.*?)^\}",
                                              text, re.M | re.S) if "x[o + r1].x" in body}
    used = re.findall(r"us est\. h\.\d\.\S+ +(k_reduce_\w+)", text)
    # The first block's input has channels first.
    checks.check("blocks' windows have channels last", len(used) == 3 and last >= set(used[1:]),
                 "%s of %s" % (sorted(last), used))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMS:
            program = form_of(folder, form)
        blocks(folder)
        checks.check("no race", program.status(mode="race") == 0)
        planted = re.sub(r"\+= x\[o \+ r1\]\.y", "+= x[o + r1].z", program.text, count=1)
        checks.notices("another channel", program, planted)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
