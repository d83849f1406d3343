#!/usr/bin/env python3
"""What is stored rather than computed again where it is read: maps (gen/prepare/fold.c), by how
often that would be and how much there is to compute, functions of places and factors, what weights
add (gen/prepare/hoist.c, factors.c). Ends with `N passed, N failed`.
"""

import os
import re
import sys
import tempfile

import harness
from harness import Checks, cost, steps

MODEL = """ein 1
model stored
dim N = %d
input x: f32[N,N]
output y
%s
"""
STEP = "%s[i,j] = %s[i,j] + 0.2 * (%s[i-1,j] + %s[i+1,j] + %s[i,j-1] + %s[i,j+1] - 4 * %s[i,j])"
BOX = " where i in 0:N, j in 0:N, pad %s 0"


def stencil(result, of):
    return STEP % ((result,) + 6 * (of,)) + BOX % of


TWO = stencil("a", "x") + "\n" + stencil("y", "a")
LONG = "a[i,j] = exp(-x[i,j] * x[i,j]) * tanh(x[i,j])\n"
# What is tested, N, equations, steps.
CASES = (
    ("two steps of a stencil", 1000, TWO, 2),
    ("four", 1000, "\n".join(stencil(*pair) for pair in ("ax", "ba", "cb", "yc")), 4),
    ("two of a small one", 100, TWO, 1),
    ("functions at three places", 1000, LONG + "y[i,j] = a[i,j] + a[(i+1)%N,j] + a[(i+2)%N,j]"
     " where i in 0:N", 2),
    ("little at two places", 1000, "a[i,j] = 2 * x[i,j] + 1\ny[i,j] = a[i,j] * a[i,(j+1)%N]"
     " where j in 0:N", 1),
    ("functions at one place", 1000, LONG + "y[i,j] = a[i,j] + x[j,i]", 1),
    ("a sum of few terms in one of many", 300, "r[i,j] = sum(d) (x[i,d] - x[j,d]) *"
     " (x[i,d] - x[j,d]) where i in 0:N, j in 0:N, d in 0:3\n"
     "y[i,c] = sum(j) (x[j,c] - x[i,c]) / (0.1 + r[i,j] * sqrt(r[i,j])) where c in 0:3", 1),
    ("through a map", 300, "r[i,j] = sum(d) abs(x[i,d] - x[j,d]) where d in 0:4\n"
     "w[i,j] = exp(-r[i,j])\ny[i] = max(j) w[i,j] * x[i,j]", 1),
    ("a sum of more terms", 200, "r[i,j] = sum(d) abs(x[i,d] - x[j,d])\n"
     "y[i] = max(j) r[i,j] * x[i,j]", 2),
    ("weights of a window", 300, "g[i,j,r,s] = exp(-(x[i+r-2,j+s-2] - x[i,j]) * (x[i+r-2,j+s-2]"
     " - x[i,j])) where r in 0:5, s in 0:5, pad x 0\nw[i,j] = sum(r,s) g[i,j,r,s]\n"
     "y[i,j] = sum(r,s) g[i,j,r,s] * x[i+r-2,j+s-2] / w[i,j] where pad x 0", 2),
    ("each element once", 1000, LONG + "y[i,j] = a[2*i,j] + a[2*i+1,j] where i in 0:N/2", 1),
)

# What is tested, declarations, the equation, what the last step's kernel is and must not have.
ONCE = (
    ("factors of places", "x: f32[512,256]", "y[n,k] = sum(t) x[n,(k+64*t)%256]"
     " * cos(0.02 * idx(k) * idx(t)) where k in 0:256, t in 0:4", "reduce", "cosf"),
    ("in a map", "x: f32[512,256]", "y[n,k] = sin(x[n,k] * pow(0.9, idx(k)))", "map", "powf"),
    ("of integers not", "x: i32[512,256]", "y[n,k] = x[n,k] + floor(10 * sin(idx(k)))", "map", ""),
    ("decays of two places", "x: f32[64,32,128]\ninput z: f32[64,32]",
     "y[h,c,v] = sum(e) [e < c] * exp(select(idx(e) < idx(c), z[h,c-1] - z[h,e], 0)) * x[h,e,v]"
     " where c in 0:32, pad z 0", "product", ""),
    ("weights beside distances", "x: f32[512,64]\nweight w: f32[256,64] = ones()\n"
     "weight c: f32[256,64] = ones()", "y[n,k] = sum(d) (w[k,d] + (x[n,d] - c[k,d])"
     " * (x[n,d] - c[k,d]) * exp(-w[k,d]))", "product", "expf"),
)


def last_kernel(text):
    """The last step's kernel: its kind and its body."""
    kind, name = re.findall(r"^// +[\d.]+ us est\. +\S+ +k_(\w+)_(\w{8})", text, re.M)[-1]
    return kind, re.search(r"k_%s_%s\([^;{]*{(.*?)^}" % (kind, name), text, re.M | re.S).group(1)


# What is tested, columns of the result, its terms, and how many exponentials the kernel has.
TOGETHER = (
    ("of three columns", 3, "exp(x[i,j]) * (u[j,c] - u[i,c])", 1),
    ("in a divisor", 2, "u[j,c] * u[i,c] / (1 + exp(x[i,j]))", 1),
    ("with what is of one", 4, "exp(x[i,j]) * exp(u[j,c])", 5),
    ("of many columns", 5, "exp(x[i,j]) * (u[j,c] - u[i,c])", 1),
)

# Two sums with a function in common, of a row and of a tile's rows and columns.
BOTH = """ein 1
model both
input x: f32[600,600]
input u: f32[600,600]
output y
%s
"""
ROWS = "n[i] = sum(j) exp(x[i,j]) * u[i,j]\nd[i] = sum(j) exp(x[i,j])\ny[i] = n[i] / d[i]"
CROSSED = (
    ("two sums", "n[i,d] = sum(j) exp(x[i,j] + u[j,d]) * u[j,d]\n"
     "m[i,d] = sum(j) exp(x[i,j] + u[j,d])\ny[i,d] = n[i,d] / m[i,d]", 1, 1),
    ("three", "n[i,d] = sum(j) exp(x[i,j] + u[j,d]) * u[j,d]\n"
     "m[i,d] = sum(j) exp(x[i,j] + u[j,d])\nt[i,d] = sum(j) exp(x[i,j] + u[j,d]) * x[i,j]\n"
     "y[i,d] = (n[i,d] + t[i,d]) / m[i,d]", 1, 1),
    ("one of them another's too", "n[i,d] = sum(j) exp(x[i,j] + u[j,d]) * u[j,d]\n"
     "m[i,d] = sum(j) exp(x[i,j] + u[j,d])\ny[i,d] = n[i,d] / m[i,d] + m[d,i]", 2, 1),
)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.ein")
        for name, n, equations, want in CASES:
            with open(path, "w") as file:
                file.write(MODEL % (n, equations))
            text = harness.emit(folder, path)
            checks.expect(name, want, steps(text))
            if want > 1:
                checks.check(name + ": cheap", cost(text) < 4 * want, cost(text))
        for name, declared, equations, want, never in ONCE:
            with open(path, "w") as file:
                file.write("ein 1\nmodel once\ninput %s\noutput y\n%s\n" % (declared, equations))
            kind, body = last_kernel(harness.emit(folder, path))
            checks.expect(name + ": kernel", want, kind)
            checks.check(name + ": not computed", not never or never not in body, body)
        for name, columns, terms, want in TOGETHER:
            with open(path, "w") as file:
                file.write("ein 1\nmodel together\ninput x: f32[300,300]\ninput u: f32[300,%d]\n"
                           "output y\ny[i,c] = sum(j) %s\n" % (columns, terms))
            _, body = last_kernel(harness.emit(folder, path))
            checks.expect(name + ": once a thread", want, body.count("expf("))
            checks.expect(name + ": together", columns < 5, "float%d acc" % columns in body)
        with open(path, "w") as file:
            file.write(BOTH % ROWS)
        kind, body = last_kernel(harness.emit(folder, path))
        checks.expect("rows: kernel", "row", kind)
        checks.expect("rows: once for both sums", 1, body.count("expf("))
        for name, equations, want, times in CROSSED:
            with open(path, "w") as file:
                file.write(BOTH % equations)
            text = harness.emit(folder, path)
            kind, body = last_kernel(text)
            checks.expect(name + ": steps", want, steps(text))
            checks.expect(name + ": kernel", "product", kind)
            checks.expect(name + ": exponentials", times, body.count("expf("))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
