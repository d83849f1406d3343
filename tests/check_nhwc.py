#!/usr/bin/env python3
"""Convolution calls in NHWC: that they compute what the model says, in every mode.

At small sizes hardly any call is worth a conversion, so invented tables of costs make those in NHWC
cheap: all calls of a program then have that order, with what lies between them. The emitted code
runs on the judge and is compared with the oracle. A filter order planted wrong must be noticed.
Ends with `N passed, N failed`.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
EINNET = os.environ.get("EINNET", os.path.join(ROOT, "build", "einnet"))
RUN_MODELS = [os.path.join(ROOT, ".venv", "bin", "python"), os.path.join(HERE, "run_models.py")]

# Odd sizes; channels that fill no load; a residual; groups; uneven padding; an output that is read
# on; a filter that two calls share, and one that is read as it is declared.
CHAIN = """ein 1
model chain
input x: f32[2,5,13,11]
weight k1: f32[12,5,3,3] = randn(seed=1, std=0.2)
weight b1: f32[12] = randn(seed=2, std=0.1)
weight k2: f32[12,12,3,3] = randn(seed=3, std=0.1)
weight k3: f32[24,4,3,2] = randn(seed=4, std=0.2)
weight k4: f32[7,24,3,3] = randn(seed=5, std=0.1)
weight k5: f32[7,6,3,4] = randn(seed=6, std=0.2)
output y, b
c1 = Conv(x, k1, b1; pads=1)
a = Relu(c1)
c2 = Conv(a, k2; pads=1)
s2 = Add(c2, a)
b = Relu(s2)
c3 = Conv(b, k2; pads=1)
p = MaxPool(c3; kernel_shape=3, strides=2, pads=1)
d = Conv(p, k3; pads=[1,0,1,1], group=3)
e = Conv(d, k4; pads=2, dilations=2)
y = ConvTranspose(e, k5; strides=2, pads=1)
"""

# One and three axes; one position; one channel. Chains are as long as pays for their ends.
AXES = """ein 1
model axes
input x: f32[3,4,15]
input u: f32[1,3,4,5,6]
input v: f32[2,9,3,3]
weight k: f32[6,4,5] = randn(seed=1, std=0.2)
weight l: f32[6,6,3] = randn(seed=2, std=0.2)
weight m: f32[5,3,3,3,3] = randn(seed=3, std=0.2)
weight n: f32[5,5,1,3,3] = randn(seed=4, std=0.2)
weight o: f32[7,9,3,3] = randn(seed=5, std=0.2)
weight q: f32[7,7,1,1] = randn(seed=6, std=0.2)
weight r: f32[1,7,1,1] = randn(seed=7, std=0.2)
output y, z, w
a1 = Conv(x, k; pads=2)
a2 = Conv(a1, l; pads=1)
a3 = Conv(a2, l; pads=2, dilations=2)
y = Conv(a3, l; strides=2)
b1 = Conv(u, m; pads=1)
b2 = Conv(b1, n)
b3 = Conv(b2, n; pads=1)
z = Conv(b3, n)
c1 = Conv(v, o)
c2 = Conv(c1, q)
c3 = Relu(c2)
c4 = Conv(c3, q)
w = Conv(c4, r)
"""

MODELS = [os.path.join(ROOT, ".venv", "bin", "python"), os.path.join(HERE, "run_models.py")]

# Odd sizes; channels that fill no load; a residual; groups; uneven padding; an output that is read
# on; a filter that two calls share, and one that is read as it is declared.
CHAIN = """ein 1
model chain
input x: f32[2,5,13,11]
weight k1: f32[12,5,3,3] = randn(seed=1, std=0.2)
weight b1: f32[12] = randn(seed=2, std=0.1)
weight k2: f32[12,12,3,3] = randn(seed=3, std=0.1)
weight k3: f32[24,4,3,2] = randn(seed=4, std=0.2)
weight k4: f32[7,24,3,3] = randn(seed=5, std=0.1)
weight k5: f32[7,6,3,4] = randn(seed=6, std=0.2)
output y, b
c1 = Conv(x, k1, b1; pads=1)
a = Relu(c1)
c2 = Conv(a, k2; pads=1)
s2 = Add(c2, a)
b = Relu(s2)
c3 = Conv(b, k2; pads=1)
p = MaxPool(c3; kernel_shape=3, strides=2, pads=1)
d = Conv(p, k3; pads=[1,0,1,1], group=3)
e = Conv(d, k4; pads=2, dilations=2)
y = ConvTranspose(e, k5; strides=2, pads=1)
"""

# One and three axes; one position; one channel; a batch of several dimensions.
AXES = """ein 1
model axes
input x: f32[3,4,15]
input u: f32[1,3,4,5,6]
input v: f32[2,9,3,3]
weight k: f32[6,4,5] = randn(seed=1, std=0.2)
weight l: f32[5,3,3,3,3] = randn(seed=2, std=0.2)
weight m: f32[7,9,3,3] = randn(seed=3, std=0.2)
weight o: f32[4,1,3,3] = randn(seed=4, std=0.2)
output y, z, w, q
y = Conv(x, k; pads=2)
z = Conv(u, l; pads=1)
w = Conv(v, m)
r = Reshape(v; shape=[18,1,3,3])
q = Conv(r, o; pads=1)
"""

MODELS = [("chain", CHAIN, 4), ("axes", AXES, 8)]  # name, text, least number of calls in NHWC


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return done.returncode, done.stdout.decode()


def table(path, math, to):
    """A table in which every call that planning asks for is dear, but for those in NHWC."""
    code, text = run([EINNET, "probe", path, "--math", math, "-o", "-"])
    if code:
        raise SystemExit(text)
    keys = sorted(set(re.findall(r'"((?:conv|conv_data|gemm) [^"]+)"', text)))
    with open(to, "w") as out:
        for key in keys:
            row = ("h200", key, 1 if " nhwc " in key else 10**9, 0, "cudnn 91900 cublas 130100")
            out.write("%s\t%s\t%d\t%d\t%s\n" % row)
    # Both orders of every convolution are asked for.
    orders = [{k.replace(o, " ") for k in keys if o in k} for o in (" nchw ", " nhwc ")]
    return bool(orders[0]) and orders[0] == orders[1]


def emitted(path, *options):
    code, text = run([EINNET, "emit", path, "-o", "-"] + list(options))
    if code:
        raise SystemExit(text)
    return [call for call in re.findall(r"^//.* us (?:est\.|measured) \S+ +(cuDNN .+)$", text, re.M)]


def faulty_einnet(folder):
    """The generator with the filter's order planted wrong; None: it does not build."""
    sources = os.path.join(folder, "gen")
    shutil.copytree(os.path.join(ROOT, "gen"), sources)
    path = os.path.join(sources, "match.c")
    with open(path) as file:
        text = file.read()
    planted = text.replace("if (!z->c.nhwc) n = ein__conv_slots(z, in, slot, n);",
                           "n = ein__conv_slots(z, in, slot, n);")
    planted = planted.replace("return z->c.nhwc ? ein__conv_slots(z, in, slot, n) : n;",
                              "return n;")
    if planted.count("ein__conv_slots") >= text.count("ein__conv_slots"):
        return None
    with open(path, "w") as file:
        file.write(planted)
    program = os.path.join(folder, "einnet")
    build = os.path.join(ROOT, "build")
    objects = [o for o in glob.glob(os.path.join(build, "*.o"))
               if os.path.basename(o).startswith(("cli_", "cmd_", "main."))]
    code, text = run(["gcc", "-std=c11", "-O0", "-I" + sources, "-I" + build, "-o", program,
                      os.path.join(sources, "einnet.c")] + objects +
                     glob.glob(os.path.join(build, "onnx", "*.o")) + ["-lprotobuf-c", "-lm"])
    if code:
        print(text)
    return None if code else program


def main():
    failures, count = [], 0

    def check(name, right, why=""):
        nonlocal count
        count += 1
        if not right:
            failures.append(name)
            print("FAIL %s%s" % (name, ": " + str(why) if why else ""))

    with tempfile.TemporaryDirectory() as folder:
        for name, text, calls in MODELS:
            path, costs = os.path.join(folder, name + ".ein"), os.path.join(folder, name + ".tsv")
            with open(path, "w") as out:
                out.write(text)
            for math in ("fp32", "tf32", "fp16"):
                case = "%s in %s" % (name, math)
                check(case + ": both orders are asked for", table(path, math, costs))
                options = ["--math", math, "--costs", costs]
                made = emitted(path, *options)
                check(case + ": calls in NHWC",
                      len(made) >= calls and all("nhwc" in call for call in made), made)
                code, told = run(RUN_MODELS + ["--einnet", EINNET, path] + options)
                check(case + ": the oracle's values", code == 0, told)
                code, told = run([EINNET, "verify", path] + options)
                check(case + ": the plan is proved", code == 0, told)
            check(name + ": no NHWC in FP32 without a table",
                  not any("nhwc" in call for call in emitted(path)))
        # The chain in TF32, its last table still there.
        path, costs = os.path.join(folder, "chain.ein"), os.path.join(folder, "chain.tsv")
        table(path, "tf32", costs)
        faulty = faulty_einnet(folder)
        check("a wrong filter order is planted", faulty)
        if faulty:
            code, told = run(RUN_MODELS + ["--einnet", faulty, path, "--math", "tf32", "--costs",
                                           costs])
            check("a wrong filter order is noticed", code == 1 and "WRONG" in told, told)
    print("%d passed, %d failed" % (count - len(failures), len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
