#!/usr/bin/env python3
"""Programs that are planned beside the folded one: sums distributed over products, products with
one weight collected, operands without the zeros around them. They are found at any sizes where they
are cheaper, proved, gone without their rules, and not made where they would be wrong. Ends with
`N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, Checks

DISTRIBUTE, COLLECT = "distribution over a sum", "products with one weight collected"
TIGHTEN = "boundary tightening"

# Steps of a residual network with one weight: `inner` counts what is between its two products.
STEPS = """ein 1
model steps
input x: f32[%(n)d,%(c)d,%(h)d,%(h)d]
weight down: f32[%(a)d,%(c)d,3,3] = randn(std=0.03)
weight up: f32[%(c)d,%(a)d,%(r)d,%(r)d] = randn(std=0.1)
output y
d = Identity(x)
repeat i in 0:%(steps)d {
    a = Conv(d, down; pads=1)
    u = Tanh(a)
    f = Conv(u, up; pads=%(r)d/2)
    d = Add(d, f)
}
y = Identity(d)
"""
SIZES = [dict(n=4, c=512, a=8, h=14, steps=3), dict(n=3, c=700, a=6, h=13, steps=2),
         dict(n=9, c=320, a=5, h=20, steps=5)]

# Zeros in front of a window, laid out by an operator of its own behind an activation.
PADDED = """ein 1
model padded
input x: f32[1,%(c)d,%(h)d,%(h)d]
weight p: f32[%(c)d,%(c)d,1,1] = randn(std=0.1)
weight k: f32[%(c)d,1,3,3] = randn(std=0.1)
output y
a = Conv(x, p)
b = %(op)s(a)
c = Pad(b; pads=[0,0,%(top)d,%(left)d,0,0,%(bottom)d,%(right)d], value=0)
y = Conv(c, k; strides=2, group=%(c)d)
"""


# A picture enlarged by repetition, perhaps with something behind it, and a window over it.
ENLARGED = """ein 1
model enlarged
input x: f32[%(n)d,%(c)d,%(h)d,%(w)d]
weight k: f32[%(f)d,%(c)d,%(r)d,%(r)d] = randn(std=0.1)
output y
a[n,c,i,j] = x[n,c,i/%(p)d,j/%(q)d] where i in 0:%(h)d*%(p)d, j in 0:%(w)d*%(q)d
b = %(op)s(a)
y = Conv(b, k; pads=%(r)d/2)
"""


def run(folder, text, *options):
    """(what the plan is made by, its kernels of maps, what went wrong) of a model; the plan is
    proved."""
    path, out = os.path.join(folder, "m.ein"), os.path.join(folder, "m.cu")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    for command in (["emit", path, "-o", out], ["verify", path]):
        done = subprocess.run([EINNET, *command, *options], capture_output=True, text=True,
                              timeout=120)
        if done.returncode:
            return "", [], done.stderr
    with open(out, encoding="utf-8") as file:
        head = file.read().split("// ---- includes")[0]
    by = re.search(r"^// by +(.*(?:\n//     [a-z].*)*)", head, re.M)
    return by.group(1).replace("\n//    ", "") if by else "", re.findall(r"k_map\w+", head), ""


def check_steps(checks, folder):
    for sizes in SIZES:
        name = "steps %s" % sorted(sizes.items())
        by, _, why = run(folder, STEPS % dict(sizes, r=1))
        checks.check(name + ": distributed", DISTRIBUTE in by, by or why)
        checks.check(name + ": collected", COLLECT in by, by or why)
        by, _, why = run(folder, STEPS % dict(sizes, r=1), "--rules=-distribute,collect")
        checks.check(name + ": not without the rules",
                     not why and DISTRIBUTE not in by and COLLECT not in by, by or why)
        # What the inner window sees beyond its border is no part of the outer one.
        by, _, why = run(folder, STEPS % dict(sizes, r=3))
        checks.check(name + ": not through two windows", not why and DISTRIBUTE not in by,
                     by or why)
    by, _, why = run(folder, STEPS % dict(SIZES[0], r=1, c=16))
    checks.check("steps of few channels stay", not why and DISTRIBUTE not in by, by or why)


def check_padded(checks, folder):
    for c, h, top, left, bottom, right in ((32, 56, 0, 0, 1, 1), (24, 31, 1, 2, 0, 0),
                                           (40, 17, 0, 1, 1, 0)):
        for op in ("HardSwish", "Relu", "Sigmoid"):
            text = PADDED % dict(c=c, h=h, op=op, top=top, left=left, bottom=bottom, right=right)
            name = "%s of %d channels" % (op, c)
            by, maps, why = run(folder, text)
            checks.check(name + ": tightened", TIGHTEN in by, by or why)
            checks.check(name + ": no kernel for the zeros", not maps, maps)
            by, _, why = run(folder, text.replace("value=0", "value=1"))
            checks.check(name + ": ones stay", not why and TIGHTEN not in by, by or why)


def check_enlarged(checks, folder):
    for sizes in (dict(n=1, c=256, f=192, h=32, w=40, r=3, p=2, q=2, op="Identity"),
                  dict(n=4, c=130, f=96, h=17, w=24, r=5, p=3, q=2, op="Tanh"),
                  dict(n=8, c=512, f=256, h=16, w=16, r=1, p=2, q=4, op="Relu")):
        for options in ([], ["--math", "fp16"], ["--libs", "none"]):
            took = []
            for rules in ([], ["--rules=-repeats"]):
                why = run(folder, ENLARGED % sizes, *options, *rules)[2]
                with open(os.path.join(folder, "m.cu"), encoding="utf-8") as file:
                    found = re.search(r"^// plan .* ([\d.]+) us estimated", file.read(), re.M)
                took.append(float(found.group(1)))
            name = "enlarged %s %s" % (sorted(sizes.items()), " ".join(options))
            checks.check(name, not why and took[0] < 0.9 * took[1], "%s %s" % (took, why))


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_steps(checks, folder)
        check_padded(checks, folder)
        check_enlarged(checks, folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
