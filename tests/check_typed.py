#!/usr/bin/env python3
"""Products of tensors that the model stores as f16 and bf16: that they are planned as those of f32
are, in every mix and mode, and that bf16 is never made a half.

Tensor cores multiply f16 by f16 in every mode. Of other mixes kernels convert what they load and
calls read copies as f32, weights' made at load; few rows stream the weights as they are. Attention
reads caches of both types in its kernel. Faults planted in conversions must be noticed by the
judge. Ends with `N passed, N failed`.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile

import harness
from harness import EINNET, HERE, Checks, cost

MODEL = os.path.join(HERE, "unseen", "typed_products.ein")
TYPES = ("f32", "f16", "bf16")
MODES = ([], ["--math", "tf32"], ["--math", "fp16"])
LIBS = ([], ["--libs", "none"])

PRODUCT = """ein 1
model product
input x: %s[512,512]
%s w: %s[512,512]%s
output y
y[i,j] = sum(k) x[i,k]*w[k,j]
"""
CONVOLUTION = """ein 1
model convolution
input x: %s[1,64,56,56]
weight k: %s[64,64,3,3] = randn(std=0.03)
output y
y[n,f,h,w] = sum(c,r,s) x[n,c,h+r-1,w+s-1]*k[f,c,r,s] where h in 0:56, w in 0:56, pad x 0
"""
VECTOR = """ein 1
model vector
input x: %s[1,4096]
weight w: %s[4096,8192] = randn(std=0.02)
output y
y[i,j] = sum(k) x[i,k]*w[k,j]
"""
ATTENTION = """ein 1
model attention
input q: %s[12,128,64]
input k: %s[12,128,64]
input v: %s[12,128,64]
output y: %s[12,128,64]
s[h,i,j] = 0.125*(sum(p) q[h,i,p]*k[h,j,p])
a = Softmax(s)
o[h,i,p] = sum(j) a[h,i,j]*v[h,j,p]
y = %s
"""
HALVES = """ein 1
model halves
dim H = 4, T = 384, D = 64
small T = 70, D = 16
input q: f16[H,T,D]
input k: f16[H,T,D]
input v: f16[H,T,D]
output y
t = Transpose(k; perm=[0,2,1])
s = MatMul(q, t)
z[h,i,j] = 0.125 * s[h,i,j]
m = Cast(z; to=f16)
%s
y = MatMul(a, v)
"""

checks = Checks()


def emit(folder, text, *options):
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as file:
        file.write(text)
    done = subprocess.run([EINNET, "emit", path, "-o", "-", *options], check=True,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout


def kinds(text):
    """What computes the steps, as the summary names it."""
    return re.findall(r"^// +[\d.]+ us est\. \S+ +(\S.*)$", text, re.M)


def product(x, w, weight):
    return PRODUCT % (x, "weight" if weight else "input", w,
                      " = randn(std=0.05)" if weight else "")


def products(folder):
    """No loops, and no more than conversions above the product of f32."""
    for math in MODES:
        for libs in LIBS:
            plain = cost(emit(folder, product("f32", "f32", False), *math, *libs))
            tf32 = cost(emit(folder, product("f32", "f32", False), "--math", "tf32", *libs))
            for x, w, weight in itertools.product(TYPES, TYPES, (False, True)):
                name = "%s x %s %s%s" % (x, w, math + libs, " weight" if weight else "")
                text = emit(folder, product(x, w, weight), *math, *libs)
                found = kinds(text)
                checks.check(name, not any("k_reduce" in k for k in found), found)
                # TF32 is what FP16 mode has for bf16.
                wide = math == ["--math", "fp16"] and "bf16" in (x, w)
                least = tf32 if wide else plain
                more = cost(text) - least
                checks.check("cost of " + name, more < 2.0 + least / 10, more)


def halves(folder):
    """Tensor cores multiply halves in every mode: as fast as in FP16's, unless it is kept."""
    text = product("f16", "f16", False).replace("512", "1024")
    for libs in LIBS:
        least = cost(emit(folder, text, "--math", "fp16", *libs))
        for math in MODES:
            name = " ".join(["halves", *math, *libs])
            found = emit(folder, text, *math, *libs)
            tensor = "f32.f16.f16" in found if libs else "gemm f16" in found
            checks.check(name, tensor and cost(found) <= least, kinds(found))
            found = emit(folder, text, *math, *libs, "--keep-fp32", "y")
            kept = "f32.f16.f16" not in found and "gemm f16" not in found
            checks.check(name + " kept", kept and "in FP32   y" in found, kinds(found))
        # What is f32 has no more than FMA, and what is f16 no TF32.
        found = emit(folder, product("f16", "f32", False), *libs)
        checks.check("f16 x f32 %s" % libs, "f32.f16.f16" not in found, kinds(found))
        found = emit(folder, text, *libs)
        checks.check("no TF32 %s" % libs, "tf32.tf32" not in found and "_TF32" not in
                     "".join(re.findall(r"^static const.*$", found, re.M)), kinds(found))
    older = emit(folder, text, "--gpu", "v100")
    checks.check("older GPUs", "f32.f16.f16" not in older and "gemm f16" not in older, kinds(older))
    layers = os.path.join(HERE, "unseen", "typed_layers.ein")
    for options in ([], ["--libs", "none"], ["--keep-fp32", "h,yq,r,plain,s"]):
        program = harness.Judged(folder, layers, "--small", *options)
        checks.check("layers %s" % options, program.status() == 0)


def attention(folder):
    """Of halves, weights among them, by tensor cores in every mode; not where weights are f32."""
    for math in MODES:
        name = "attention of halves %s" % math
        text = emit(folder, HALVES % "a = Softmax(m)", *math)
        found = kinds(text)
        checks.check(name, len(found) == 1 and "k_attention" in found[0] and
                     "f32.f16.f16" in text, found)
        path = os.path.join(folder, "model.ein")
        for size in ([], ["--small"]):
            program = harness.Judged(folder, path, *math, *size)
            checks.check("%s %s is right" % (name, size), program.status() == 0)
    text = emit(folder, ATTENTION % (*["f16"] * 4, "Cast(o; to=f16)"))
    checks.check("attention by f32 weights", "f32.f16.f16" not in text, kinds(text))


def others(folder):
    """Convolutions; vectors, whose weights are streamed as they are; attention."""
    for math in MODES:
        plain = cost(emit(folder, CONVOLUTION % ("f32", "f32"), *math))
        halves = cost(emit(folder, VECTOR % ("f32", "f32"), "--math", "fp16"))
        apart = cost(emit(folder, ATTENTION % (*["f32"] * 4, "Identity(o)"), *math))
        for x in ("f16", "bf16"):
            for w in TYPES:
                name = "%s x %s %s" % (x, w, " ".join(math))
                more = cost(emit(folder, CONVOLUTION % (x, w), *math)) - plain
                checks.check("convolution %s" % name, more < 2.5 + plain / 10, more)
            name = "%s %s" % (x, " ".join(math))
            typed = cost(emit(folder, VECTOR % ("f32", x), *math))
            checks.check("vector %s" % name, typed < halves * 1.1, (typed, halves))
            text = emit(folder, ATTENTION % (x, x, x, x, "Cast(o; to=%s)" % x), *math)
            found = kinds(text)
            checks.check("attention %s" % name,
                         len(found) == 1 and "k_attention" in found[0], found)
            if math != ["--math", "fp16"]:
                checks.check("cost of attention %s" % name, cost(text) <= 1.15 * apart,
                             cost(text))


def ranges(folder):
    """In FP16 mode nothing that bf16 has becomes a half, even where that mode alone is allowed."""
    text = product("bf16", "bf16", True)
    for libs in LIBS:
        found = emit(folder, text, "--math", "fp16", "--only-math", *libs)
        checks.check("no half %s" % libs, "__half" not in found and "f16 512" not in found)
    found = emit(folder, ATTENTION % (*["bf16"] * 4, "Cast(o; to=bf16)"), "--math", "fp16",
                 "--only-math")
    checks.check("no half in attention", "__half" not in found)


def runs(folder):
    """Faults in what converts are noticed."""
    program = harness.Judged(folder, MODEL, "--libs", "none", "--rules=-merge")
    text = program.text
    checks.check("right", program.status() == 0)
    for name, was, planted in (
            ("bfloat4_value", r"(bfloat4_value\(uint2 words\) \{[^}]*)v\.z", r"\1v.y"),
            ("load_bfloat4", r"(load_bfloat4\([^}]*)v\.z", r"\1v.y"),
            ("half4_value", r"(half4_value\(uint2 words\) \{[^}]*)v\.w", r"\1v.x")):
        bad = re.sub(was, planted, text, count=1)
        checks.notices("a fault in %s" % name, program, bad)


def main():
    with tempfile.TemporaryDirectory() as folder:
        products(folder)
        halves(folder)
        attention(folder)
        others(folder)
        ranges(folder)
        runs(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
