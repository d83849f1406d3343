#!/usr/bin/env python3
"""What kernels ask of a GPU, counted (bench/profile.py), where it is known: sectors, conflicts of
banks, multiply-adds; and that estimates of loops are near what the counted instructions take.

    check_profile.py        ends with `N passed, N failed`
"""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))

import profile as counts  # noqa: E402

EINNET = os.path.join(ROOT, "build", "einnet")
# Kernels that have nothing to do with each other, by what they make.
FP32 = """input x: f32[256,1024]
input t: f32[320,256]
input p: f32[256,256]
input q: f32[256,256]
input c: f32[1,12,32,32]
weight c1: f32[12,12,3,3] = randn(std=0.1)
input d: f32[1,21,14,14]
weight d1: f32[21,21,3,3] = randn(std=0.1)
input e: f32[81,32,32]
input n: f32[48,40,40]
weight n1: f32[48] = randn(std=0.1)
input l: f32[1,24,64,320]
weight l1: f32[24] = randn(std=0.1)
output copy, turned, product, few, odd, fractions, across, long
copy = Relu(x)
turned = Transpose(t; perm=[1,0])
product = MatMul(p, q)
few = Conv(c, c1; pads=1)
odd = Conv(d, d1; pads=1)
fractions[i,j] = sum(r,s) e[9*r+s,(i-r+3)/4,(j-s+3)/4]
    where i in 0:128, j in 0:128, r in 0:9, s in 0:9, pad e 0
n2 = Transpose(n; perm=[1,2,0])
n3 = LayerNormalization(n2, n1)
across = Transpose(n3; perm=[2,0,1])
long = InstanceNormalization(l, l1, l1)
"""
HALVES = """input p: f16[256,256]
input q: f16[256,256]
input a: f32[65536]
input r: f16[4,64,64]
input k: f16[4,64,256]
input v: f16[4,64,256]
input s: f16[8,12,197,64]
input u: f16[8,12,197,64]
input w: f16[8,12,197,64]
input b: f32[12,197,197]
output product, apart, attention, biased
product = MatMul(p, q)
apart[i] = a[8*i] where i in 0:8192
score[h,i,j] = 0.125 * (sum(d) r[h,i,d] * k[h,d,j])
weights = Softmax(score; axis=-1)
attention[h,i,d] = sum(j) weights[h,i,j] * v[h,d,j]
score1[n,h,i,j] = 0.125 * (sum(d) s[n,h,i,d] * u[n,h,j,d]) + b[h,i,j]
weights1 = Softmax(score1; axis=-1)
biased[n,h,i,d] = sum(j) weights1[n,h,i,j] * w[n,h,j,d]
"""
# A map with nine reads, which loads of a product would compute on three processors.
MIRRORED = """input x: f32[2,12,9,9]
weight w: f32[4,12,3,3] = randn(std=0.1)
output mirrored
m = Pad(x; pads=[1,1,1,1], axes=[2,3], mode=reflect)
mirrored = Conv(m, w)
"""


def profiled(text, options=()):
    """Estimate and counts by step."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.ein")
        with open(path, "w", encoding="utf-8") as file:
            file.write("ein 1\nmodel m\n" + text)
        found = counts.profile(EINNET, path, ["--libs", "none"] + list(options), False, folder)
        return {step: (us, launch) for us, step, launch in found}


def checks():
    steps = profiled(FP32)
    copy, turned, product = (steps[name][1] for name in ("copy", "turned", "product"))
    elements = 256 * 1024
    yield "a copy uses all that it moves", copy.sectors == copy.wanted
    moved = copy.misses * 32 * copy.grid / copy.blocks
    yield "a copy fetches and stores all once, %d" % moved, moved == 2 * 4 * elements
    yield "a copy is a few instructions", copy.lanes < 40 * elements / 4
    yield "a transposition uses all that it moves", turned.sectors == turned.wanted
    yield "a transposition has no bank conflicts", turned.lines == turned.fewest > 0
    across = steps["across.rows"][1]
    yield "a norm over channels uses what it moves", across.sectors <= across.wanted
    long = steps["long"][1]
    yield "a long row is read once", long.sectors <= 1.01 * 2 * 24 * 20480 / 8
    yield "a product multiplies and adds", product.fma * 32 >= 256 ** 3
    yield "a product's loads use what they move", product.sectors <= 1.1 * product.wanted
    yield "a product has few bank conflicts", product.lines <= 2 * product.fewest
    steps_fp16 = profiled(HALVES, ["--math", "fp16"])
    halves, apart, attention = (steps_fp16[name][1]
                                for name in ("product.sum", "apart", "attention"))
    yield "what lies apart moves a sector an element", apart.sectors == 8192 + 8192 // 8
    yield "tensor cores multiply", halves.matrix >= 256 ** 3 / 2048 * 6
    yield "matrices have no bank conflicts", halves.lines <= 1.05 * halves.fewest
    yield ("keys and values that lie across have few: %d of %d" % (attention.lines,
                                                                 attention.fewest),
           attention.lines <= 1.05 * attention.fewest)
    steps.update(profiled(MIRRORED))
    for name in ("few", "odd", "fractions", "mirrored", "biased"):
        us, launch = steps[name] if name in steps else steps_fp16[name]
        ratio = (max(launch.times().values()) + counts.NODE) / us
        yield "%s: the estimate is near what is counted: %.2f" % (name, ratio), .5 < ratio < 1.6


def main():
    passed = failed = 0
    for name, right in checks():
        passed += right
        failed += not right
        if not right:
            print("FAIL %s" % name)
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
