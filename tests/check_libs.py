#!/usr/bin/env python3
"""What a library's call costs beyond itself: plans with more libraries are no dearer.

A call that the layouts turn out not to allow must leave the step to the cheaper kernel, and padding
that no call takes is written out by a copy only where call and copy are cheaper than a kernel that
reads what is there. With invented costs they are: such programs run on the judge and are compared
with the oracle. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

import invented
import run_models
from harness import EINNET, Checks


# Few pixels and many terms, which are parted: that looks like a convolution with groups, but the
# filter lies as the kernel for parts wants it.
PARTS = """ein 1
model parts
input x: f32[1,128,8,8]
weight k: f32[256,128,3,3] = randn(std=0.03)
weight b: f32[256] = randn(std=0.1)
output y
c = Conv(x, k, b; pads=1)
y = Relu(c)
"""

# Causal convolutions along one axis, as in WaveNet.
CAUSAL = """ein 1
model causal
input x: f32[1,64,4000]
weight k: f32[64,64,2] = randn(std=0.1)
weight l: f32[64,64,2] = randn(std=0.1)
output y
a = Conv(x, k; dilations=4, pads=[4,0])
b = Conv(x, l; dilations=4, pads=[4,0])
y[n,c,t] = tanh(a[n,c,t]) * sigmoid(b[n,c,t])
"""

# Padding that differs from side to side, and so much arithmetic for a slow GPU that copies pay.
UNEVEN = """ein 1
model uneven
input x: f32[1,24,20,19]
weight k: f32[32,24,3,4] = randn(seed=1, std=0.06)
weight b: f32[32] = randn(seed=2, std=0.1)
weight l: f32[32,16,3,3] = randn(seed=3, std=0.06)
output y, z
c = Conv(x, k, b; pads=[2,0,1,3], dilations=[2,1])
y = Relu(c)
z = ConvTranspose(y, l; strides=2, pads=[0,1,2,2])
"""
SLOW = ["--gpu", "nano"]

# A bias that begins between 16-byte addresses would lower what the whole product may be told.
BIAS = """ein 1
model shifted
input x: f32[4096,1024]
weight k: f32[1024,2048] = randn(seed=1, std=0.03)
weight l: f32[1024,2048] = randn(seed=2, std=0.03)
weight b: f32[2056] = randn(seed=3)
output y, z
t = MatMul(x, k)
y[i,j] = relu(t[i,j] + b[j+3])
u = MatMul(x, l)
z[i,j] = relu(u[i,j] + b[j+8])
"""

# Halves of channels, one of which passes two convolutions: how these lie allows a call for the
# second one alone, beside which a kernel for the first one computes what is behind it.
FALLEN = """ein 1
model fallen
dim N = 16, C = 128, H = 40
block conv(x; I, O, K=3) -> y {
    weight k: f32[O,I,K,K] = randn(std=0.04)
    weight b: f32[O] = randn(std=0.1)
    c = Conv(x, k, b; pads=K/2)
    s = Sigmoid(c)
    y = Mul(c, s)
}
input x: f32[N,6*C,H,H]
output y
a = conv(x; I=6*C, O=2*C, K=1)
l, r = Split(a; axis=1, num_outputs=2)
b = conv(r; I=C, O=C)
c = conv(b; I=C, O=C)
d = Add(r, c)
e = Concat(l, r, d; axis=1)
y = conv(e; I=3*C, O=2*C, K=1)
"""

LIBS = ("none", "cublas", "all")


def plan(path, *options):
    """The plan's estimate in us, and the names and kinds of its steps."""
    done = subprocess.run([EINNET, "emit", path, "-o", "-"] + list(options),
                          stdout=subprocess.PIPE, check=True)
    text = done.stdout.decode()
    steps = re.findall(r"^// +[\d.]+ us (?:est\.|measured) (\S+) +(.+)$", text, re.M)
    return float(re.search(r"^// plan .*?([\d.]+) us estimated", text, re.M).group(1)), steps


class Libraries(Checks):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def no_dearer(self, name, text):
        path = os.path.join(self.folder, name + ".ein")
        with open(path, "w") as out:
            out.write(text)
        for way in ([], ["--baseline"]):
            made = [plan(path, "--libs", libs, *way) for libs in LIBS]
            for k in (1, 2):
                case = "%s with %s%s" % (name, LIBS[k], " underived" if way else "")
                self.check(case, made[k][0] <= made[k - 1][0], made)

    def copies(self):
        """Padding and what is cut off as copies, when every call costs nothing."""
        path = os.path.join(self.folder, "uneven.ein")
        costs = os.path.join(self.folder, "costs.tsv")
        with open(path, "w") as out:
            out.write(UNEVEN)
        invented.write(costs, invented.calls(EINNET, path, SLOW), "conv", SLOW[1])
        steps = plan(path, "--costs", costs, *SLOW)[1]
        calls = [kind for _, kind in steps if kind.startswith("cuDNN")]
        copies = [name for name, _ in steps if name.endswith((".padded", ".full"))]
        self.check("calls for nothing", len(calls) == 2 and len(copies) == 2, steps)
        args = run_models.arguments(["--einnet", EINNET, "--costs", costs, "--full"])
        args.options = SLOW
        wrong = run_models.what_is_wrong(path, args)
        self.check("calls for nothing: the oracle's values", not wrong, wrong)

    def fallen(self):
        path = os.path.join(self.folder, "fallen.ein")
        with open(path, "w") as out:
            out.write(FALLEN)
        steps = plan(path, "--math", "tf32", "--gpu", "a100", "--dim", "H=20")[1]
        calls = [kind for _, kind in steps if kind.startswith("cuDNN")]
        maps = [kind for _, kind in steps if kind.startswith("k_map")]
        self.check("a kernel in a call's place has its map", (len(calls), len(maps)) == (1, 1),
                   steps)

    def shifted_bias(self):
        path = os.path.join(self.folder, "shifted.ein")
        with open(path, "w") as out:
            out.write(BIAS)
        for math in ("fp32", "fp16"):
            kinds = dict(plan(path, "--baseline", "--math", math)[1])
            self.check("%s: a bias at 12 bytes is no call's" % math,
                       "bias" not in kinds["y"], kinds)
            self.check("%s: a bias at 32 bytes is one's" % math,
                       kinds["z"].endswith("+ bias + relu"), kinds)


def main():
    with tempfile.TemporaryDirectory() as folder:
        z = Libraries(folder)
        z.no_dearer("parts", PARTS)
        z.no_dearer("causal", CAUSAL)
        z.copies()
        z.fallen()
        z.shifted_bias()
    return z.finish()


if __name__ == "__main__":
    sys.exit(main())
