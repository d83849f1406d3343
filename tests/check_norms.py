#!/usr/bin/env python3
"""Row operations in front of products as part of their kernels: which are taken and which are not,
how many steps that leaves of the models it is for, and that `einnet verify` proves the small plans.
Ends with `N passed, N failed`."""

import os
import re
import subprocess
import sys
import tempfile

import harness
from harness import EINNET, ROOT, Checks

# model, options, products that take one (None: any), steps at most (None: any)
MODELS = [
    ("models/bert_base.ein", [], None, 75),
    ("models/bert_base.ein", ["--math", "tf32"], None, 75),
    ("models/bert_base.ein", ["--math", "fp16"], None, 75),
    ("models/bert_base.ein", ["--math", "fp16", "--libs", "none"], None, 75),
    ("models/bert_base.ein", ["--math", "tf32", "--libs", "none"], 23, None),
    ("models/bert_base.ein", ["--math", "tf32", "--rules=-norm"], 0, None),
    ("models/bert_base.ein", ["--math", "tf32", "--baseline"], 0, None),
    ("models/vit_b.ein", ["--math", "fp16", "--gpu", "l4"], 25, 66),
    ("tests/unseen/norm_products.ein", ["--gpu", "l4"], 5, None),
    ("tests/unseen/norm_products.ein", ["--math", "tf32", "--libs", "none", "--gpu", "l4"], 5,
     None),
    ("tests/unseen/norm_means.ein", ["--math", "fp16", "--gpu", "l4"], 2, None),
    ("tests/unseen/norm_flat.ein", [], 3, 5),
    ("tests/unseen/norm_flat.ein", ["--math", "tf32"], 3, 5),
    ("tests/unseen/norm_flat.ein", ["--math", "fp16"], 3, 5),
    ("tests/unseen/flat_rows.ein", ["--math", "tf32"], 2, 4),
    ("tests/unseen/norm_batches.ein", ["--gpu", "l4"], 2, 6),
    ("tests/unseen/norm_batches.ein", ["--math", "fp16", "--gpu", "l4"], 2, 8),
    ("tests/unseen/windows_padded.ein", [], None, 4),
    ("tests/unseen/windows_padded.ein", ["--math", "fp16"], None, 4),
]

HEAD = """ein 1
model m
dim M = 33, K = 40, J = 24
input x: f32[M,K]
weight g: f32[K] = randn(seed=1)
weight w: f32[K,J] = randn(seed=2)
output y
"""
# equations, products that take a row operation
FORMS = {
    "deviation": ("""a[m] = sum(k) x[m,k]
b[m] = sum(k) (x[m,k] - a[m] / 40) * (x[m,k] - a[m] / 40)
n[m,k] = (x[m,k] - a[m] / 40) / sqrt(b[m] / 40 + 0.1) * g[k]
""", 1),
    "both": ("""a[m] = sum(k) x[m,k] * x[m,k]
n[m,k] = 2 * x[m,k] / sqrt(a[m] + 1) * g[k] - g[k] * a[m] + 1
""", 1),
    "negative": ("""a[m] = sum(k) x[m,k]
n[m,k] = -(a[m] / 40 - x[m,k])
""", 1),
    "softmax": ("n = Softmax(x; axis=-1)\n", 0),
    "cubes": ("""a[m] = sum(k) x[m,k] * x[m,k] * x[m,k]
n[m,k] = x[m,k] / (a[m] * a[m] + 1)
""", 0),
    "columns weighted": ("""a[m] = sum(k) x[m,k] * x[m,k] * g[k]
n[m,k] = x[m,k] / (a[m] * a[m] + 1)
""", 0),
    "not affine": ("""a[m] = sum(k) x[m,k] * x[m,k]
n[m,k] = x[m,k] * x[m,k] / (a[m] + 1)
""", 0),
    "an activation": ("""a[m] = sum(k) x[m,k] * x[m,k]
n[m,k] = tanh(x[m,k]) / sqrt(a[m] + 1)
""", 0),
    "largest": ("""a[m] = max(k) x[m,k]
n[m,k] = x[m,k] - a[m]
""", 0),
}
PRODUCT = "p[m,j] = sum(k) n[m,k] * w[k,j]\ny = Relu(p)\n"

# Parts of a row are multiplied, which is normed as a whole.
GROUPS = """ein 1
model m
dim M = 1024, H = 8, K = 64, J = 128
input x: f32[M,H*K]
weight g: f32[H*K] = randn(seed=1)
weight b: f32[H*K] = randn(seed=2)
weight w: f32[K,J] = randn(seed=3, std=0.1)
output y
n = LayerNormalization(x, g, b; axis=-1)
y[m,h,j] = sum(k) n[m,h*K+k] * w[k,j] where m in 0:M, h in 0:H
"""
# Rows and columns of weights numbered by so many iterators that these are no value's dimensions.
DIGITS = """ein 1
model m
input x: f32[64,64]
weight g: f32[64] = randn(seed=1)
weight w: f32[64,64] = randn(seed=2, std=0.1)
output y
a[m] = sum(k) x[m,k] * x[m,k]
n[m,k] = x[m,k] / sqrt(a[m] + 1) * g[k]
y[m,o,p,q,r,s,t] = sum(a,b,c,d,e,f) n[m,32*a+16*b+8*c+4*d+2*e+f]
    * w[32*a+16*b+8*c+4*d+2*e+f,32*o+16*p+8*q+4*r+2*s+t]
    where m in 0:64, a in 0:2, b in 0:2, c in 0:2, d in 0:2, e in 0:2, f in 0:2,
          o in 0:2, p in 0:2, q in 0:2, r in 0:2, s in 0:2, t in 0:2
"""

checks = Checks()
check = checks.check


def plan(name, options, want, most):
    out = subprocess.run([EINNET, "emit", name, "-o", "-"] + options, cwd=ROOT,
                         capture_output=True, text=True)
    title = " ".join([os.path.basename(name)] + options)
    if out.returncode:
        check(title, False, out.stderr)
        return
    found = re.search(r"norm taken into the product (\d+)", out.stdout)
    taken = int(found.group(1)) if found else 0
    steps = harness.steps(out.stdout)
    check(title, want is None or taken == want, "%d are taken, not %s" % (taken, want))
    check(title, most is None or steps <= most, "%d steps" % steps)
    if name.startswith("models/"):
        return  # their plans are proved by other parts
    proof = subprocess.run([EINNET, "verify", name] + options, cwd=ROOT, capture_output=True,
                           text=True)
    check(title, proof.returncode == 0, proof.stdout + proof.stderr)


def main():
    for name, options, want, most in MODELS:
        plan(name, options, want, most)
    with tempfile.TemporaryDirectory() as work:
        for form, (text, want) in FORMS.items():
            path = os.path.join(work, form.replace(" ", "_") + ".ein")
            with open(path, "w") as f:
                f.write(HEAD + text + PRODUCT)
            plan(path, [], want, None)
        # Factors that are no weights are multiplied as they are.
        path = os.path.join(work, "input.ein")
        with open(path, "w") as f:
            text = HEAD.replace("weight w: f32[K,J] = randn(seed=2)", "input w: f32[K,J]")
            f.write(text + FORMS["both"][0] + PRODUCT)
        plan(path, [], 0, None)
        for name, text in (("groups", GROUPS), ("digits", DIGITS)):
            path = os.path.join(work, name + ".ein")
            with open(path, "w") as f:
                f.write(text)
            for options in ([], ["--math", "fp16", "--libs", "none"]):
                plan(path, options, 0, None)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
