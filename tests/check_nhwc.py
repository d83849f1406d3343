#!/usr/bin/env python3
"""Convolution calls in NHWC: that they compute what the model says, in every mode.

At small sizes hardly any call is worth a conversion, so invented tables of costs make those in NHWC
cheap: all calls of a program then have that order, with what lies between them. The emitted code
runs on the judge and is compared with the oracle. A filter order planted wrong must be noticed.
Where cuDNN refuses the order, a program must do without: with copies of tensors, or of filters.
Ends with `N passed, N failed`.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import invented
import run_models
from harness import EINNET, JUDGE, LONG, ROOT, Checks


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

# Few channels, and so much arithmetic for a slow GPU that padding them pays.
PADDED = """ein 1
model padded
input x: f32[1,5,96,91]
weight k: f32[128,5,15,15] = randn(seed=1, std=0.05)
weight b: f32[128] = randn(seed=2, std=0.1)
output y
c = Conv(x, k, b; pads=7, strides=2)
y = Relu(c)
"""
SLOW = ["--gpu", "orin-nano"]

MODELS = [("chain", CHAIN, 4), ("axes", AXES, 7)]  # name, text, least number of calls in NHWC


def emitted(path, *options):
    """The calls of cuDNN in a model's plan."""
    done = subprocess.run([EINNET, "emit", path, "-o", "-"] + list(options),
                          stdout=subprocess.PIPE, check=True)
    return re.findall(r"^//.* us (?:est\.|measured) \S+ +(cuDNN .+)$", done.stdout.decode(), re.M)


def faulty_einnet(folder):
    """The generator with the filter's order planted wrong; None: it does not build."""
    sources, build = os.path.join(folder, "gen"), os.path.join(ROOT, "build")
    shutil.copytree(os.path.join(ROOT, "gen"), sources)
    path = os.path.join(sources, "prepare", "match.c")
    with open(path) as file:
        text = file.read()
    planted = text.replace("if (!z->c.nhwc) n = ein__conv_slots(z, in, slot, n);",
                           "n = ein__conv_slots(z, in, slot, n);")
    planted = planted.replace("return z->c.nhwc ? ein__conv_slots(z, in, slot, n) : n;",
                              "return n;")
    if len(planted) >= len(text) - 40:
        return None
    with open(path, "w") as file:
        file.write(planted)
    program = os.path.join(folder, "einnet")
    objects = glob.glob(os.path.join(build, "onnx", "*.o"))
    for part in ("cli", "import"):
        objects += glob.glob(os.path.join(build, part, "*.o"))
    done = subprocess.run(["clang", "-std=c11", "-O0", "-w", "-I" + sources, "-I" + build, "-o",
                           program, os.path.join(sources, "einnet.c")] + objects +
                          ["-lprotobuf-c", "-lm"])
    return None if done.returncode else program


class Calls(Checks):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.costs = os.path.join(folder, "costs.tsv")

    def write(self, name, text):
        path = os.path.join(self.folder, name + ".ein")
        with open(path, "w") as out:
            out.write(text)
        return path

    def runs(self, name, path, math, options, einnet=EINNET):
        """Whether the emitted code gives the oracle's values; else what is wrong."""
        args = run_models.arguments(["--einnet", einnet, "--math", math, "--costs", self.costs])
        args.options = options
        return run_models.what_is_wrong(path, args)

    def model(self, name, path, math, least):
        case, options = "%s in %s" % (name, math), ["--math", math, "--costs", self.costs]
        keys = invented.calls(EINNET, path, ["--math", math])
        orders = [{k.replace(o, " ") for k in keys if o in k} for o in (" nchw ", " nhwc ")]
        self.check(case + ": both orders are asked for", orders[0] and orders[0] == orders[1])
        invented.write(self.costs, keys, " nhwc ")
        made = emitted(path, *options)
        self.check(case + ": calls in NHWC",
                   len(made) >= least and all("nhwc" in call for call in made), made)
        wrong = self.runs(case, path, math, [])
        self.check(case + ": the oracle's values", not wrong, wrong)
        done = subprocess.run([EINNET, "verify", path] + options, stdout=subprocess.DEVNULL)
        self.check(case + ": the plan is proved", not done.returncode)

    def built(self, name, path, math, planted=("", "")):
        """The judge's program of a model with its calls in NHWC; None: it cannot be made."""
        base = os.path.join(self.folder, "refused_" + name)
        options = ["--math", math, "--costs", self.costs]
        try:
            invented.write(self.costs, invented.calls(EINNET, path, ["--math", math]), " nhwc ")
            run_models.run([EINNET, "emit", path, "-o", base + ".cu", "--test",
                            base + "_test.cu"] + options)
            run_models.run([EINNET, "pack", path, "-o", base + ".weights"])
            with open(base + ".cu") as file:
                text = file.read()
            if planted[0] not in text:
                return None
            with open(base + ".cu", "w") as file:
                file.write(text.replace(*planted))
            run_models.run([JUDGE, "--quick", "-o", base, base + "_test.cu", base + ".cu"])
        except run_models.Failure as error:
            print(error)
            return None
        return base

    def refused(self, name, base, what, status=0):
        """A program with a cuDNN that refuses `what` ends with `status`; what it printed."""
        env = dict(os.environ, JUDGE_CUDNN_REFUSES=what, JUDGE_REPORT="launch", JUDGE_LEAKCHECK="1")
        done = subprocess.run([base, base + ".weights", "--check"], env=env, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        self.check("%s: status %d" % (name, status), done.returncode == status, text[-300:])
        self.check(name + ": copies are made", status or "k_move_channels" in text)
        return text

    def refusals(self, chain, axes):
        for name, path, math in (("chain", chain, "fp16"), ("axes", axes, "tf32")):
            base = self.built(name, path, math)
            self.check("%s, refused: it is built" % name, base)
            for what in ("last", "order") if base else ():
                self.refused("%s in %s, %s refused" % (name, math, what), base, what)
        if base:
            text = self.refused("nothing is taken", base, "all", 5)
            self.check("it says what was tried", "; refused in NHWC and, with copies of its "
                       "tensors (" in text, text)
        base = self.built("filter", chain, "tf32",
                          ("copies = COPIES_ALL; copies", "copies = COPIES_FILTER; copies"))
        self.check("copies of filters alone: it is built", base)
        if base:
            self.refused("copies of filters alone", base, "last")
            self.refused("copies of filters alone, order refused", base, "order", 5)
        base = self.built("before", chain, "fp16",
                          ("    return steps(m, in, out, stream);",
                           "    (void)cudaSetDevice(99);\n"
                           "    const int r = steps(m, in, out, stream);\n"
                           "    (void)cudaGetLastError();\n    return r;"))
        self.check("an error that came before is planted", base)
        if base:
            self.refused("an error that came before is no copy's", base, "last")
        base = self.built("fault", chain, "tf32",
                          ("* channels + c;", "* channels + (channels - 1 - c);"))
        self.check("a wrong copy is planted", base)
        if base:
            self.refused("a wrong copy is noticed", base, "last", 1)

    def padded(self, path, math, channels):
        options = ["--math", math, "--costs", self.costs] + SLOW
        keys = invented.calls(EINNET, path, ["--math", math] + SLOW)
        invented.write(self.costs, keys, " nhwc n=1 c=%d " % channels, SLOW[1])
        made = emitted(path, *options)
        self.check("padded channels in " + math,
                   any("%d to 128" % channels in call for call in made), made)
        wrong = self.runs("padded", path, math, SLOW)
        self.check("padded channels in %s: the oracle's values" % math, not wrong, wrong)
        done = subprocess.run([EINNET, "verify", path] + options, stdout=subprocess.DEVNULL)
        self.check("padded channels in %s: the plan is proved" % math, not done.returncode)

    def fault(self, path):
        invented.write(self.costs, invented.calls(EINNET, path, ["--math", "tf32"]), " nhwc ")
        einnet = faulty_einnet(self.folder)
        self.check("a wrong filter order is planted", einnet)
        wrong = self.runs("fault", path, "tf32", [], einnet) if einnet else ""
        self.check("a wrong filter order is noticed", "WRONG" in wrong, wrong)


def main():
    with tempfile.TemporaryDirectory() as folder:
        z = Calls(folder)
        for name, text, least in MODELS:
            path = z.write(name, text)
            for math in ("fp32", "tf32", "fp16"):
                z.model(name, path, math, least)
            z.check(name + ": no NHWC in FP32 without a table",
                    not any("nhwc" in call for call in emitted(path)))
        z.refusals(os.path.join(folder, "chain.ein"), os.path.join(folder, "axes.ein"))
        path = os.path.join(ROOT, "models", "resnet18.ein")
        for gpu, wanted in (("h200", True), ("tx2", False)):
            made = emitted(path, "--math", "fp16", "--gpu", gpu, "--dim", "N=16")
            z.check("NHWC where there are tensor cores: " + gpu,
                    any("nhwc" in call for call in made) == wanted, made)
        text = subprocess.run([EINNET, "emit", path, "--baseline", "-o", "-"],
                              stdout=subprocess.PIPE, check=True).stdout.decode()
        z.check("a plan without derivation is compared with nothing",
                "without derivation" not in text)
        path = z.write("padded", PADDED)
        z.padded(path, "tf32", 8)
        z.padded(path, "fp16", 8)
        if LONG:
            z.fault(z.write("chain", CHAIN))
    return z.finish()


if __name__ == "__main__":
    sys.exit(main())
