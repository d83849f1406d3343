#!/usr/bin/env python3
"""What a plan may use besides does not make it dearer: rounder arithmetic, and libraries.

FP16 permits f32 values and FP32 arithmetic anywhere, and TF32 permits FP32. By the estimates that
emitted files print no plan in FP16 takes longer than the one in TF32, and none of these longer than
the one in FP32, at full sizes or small ones (networks: full ones), with libraries and without.
Where that takes a plan of the more exact mode, the file is that mode's, but for a line that says
so. And by itself FP16 takes no more steps where nothing but conversions could make the difference.
With libraries no plan takes longer than without, but for what a kernel of our own must be cheaper
by. No file takes many seconds to be made. Ends with `N passed, N failed`.
"""

import glob
import os
import re
import resource
import subprocess
import sys
import tempfile

from harness import EINNET, LONG, ROOT, Checks

MODES = ("fp32", "tf32", "fp16")
UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}
PLAN = re.compile(r"^// plan +(\d+) steps?, ([\d.]+) (ns|us|ms|s) estimated", re.M)
MODE = re.compile(r"^// for .*, (FP32|TF32|FP16)", re.M)
INSTEAD = re.compile(r"^// cheaper .* (TF32|FP16), .*\n", re.M)
# EIN__OWN_MARGIN and EIN__FEWER_PERCENT; what two calls compute may be one kernel without them, so
# plans with many launches are compared as a whole.
OWN_MARGIN = 1.03 * 1.07 + 0.005  # and what is rounded
MOST_SECONDS = 45  # the CPU's, for one file; none needs a third of it on an idle core
# Outputs that are a norm's, an attention's or a convolution's result in another shape, pieces of an
# output, and sums of squares of what is stored as halves: no kernel is there to convert alone.
PLAIN = ("norms", "norms_spelled", "norms_grouped", "flat_rows", "pools", "conv_1d_3d",
         "deconv_odd", "attention_decode", "safe_softmax")
# A recurrence of a state space model: what some of its products read as halves begins at addresses
# that tensor cores do not take, so that in FP16 no call has all of them.
STATES = """ein 1
model states
dim T = 24, S = 8, C = 128
input x: f32[T,C]
weight w: f32[C,20] = randn(seed=1, std=0.1)
weight a: f32[C,S] = uniform(seed=2, lo=0.5, hi=0.9)
output y
p = MatMul(x, w)
%s
y = Concat(%s; axis=0)
"""
STEP = """b{0}[c,s] = {1}p[{0},s] * x[{0},c] where s in 0:S
h{0}[c] = sum(s) b{0}[c,s] * p[{0},s+12]
r{0} = Reshape(h{0}; shape=[1,C])
"""

GATED = """ein 1
model gated
input x: f32[512,2048]
weight g: f32[2048,5504] = randn(std=0.02)
weight u: f32[2048,5504] = randn(std=0.02)
weight d: f32[5504,2048] = randn(std=0.02)
output y
a = MatMul(x, g)
b = MatMul(x, u)
s[t,i] = a[t,i] * sigmoid(a[t,i]) * b[t,i]
y = MatMul(s, d)
"""


def states(steps):
    text = [STEP.format(t, "b%d[c,s] * a[c,s] + " % (t - 1) if t else "") for t in range(steps)]
    return STATES % ("".join(text).rstrip(), ", ".join("r%d" % t for t in range(steps)))


# The CPU's seconds that the slowest file took, and what it was.
slowest = (0.0, "")


def emit(path, *options):
    global slowest
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([EINNET, "emit", path, "-o", "-"] + list(options),
                          stdout=subprocess.PIPE, check=True)
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    slowest = max(slowest, (took, " ".join([os.path.basename(path), *options])))
    return done.stdout.decode()


def plan(text):
    steps, value, unit = PLAN.search(text).groups()
    return int(steps), float(value) * UNITS[unit]


class Modes(Checks):
    def __init__(self):
        super().__init__()
        self.instead = 0

    def no_dearer(self, case, path, *options):
        text = {mode: emit(path, "--math", mode, *options) for mode in MODES}
        us = [plan(text[mode])[1] for mode in MODES]
        self.check(case, us[2] <= us[1] <= us[0], "%g us in FP32, %g in TF32, %g in FP16" %
                   tuple(us))
        for mode in MODES[1:]:
            taken = MODE.search(text[mode]).group(1).lower()
            if taken == mode:
                continue
            self.instead += 1
            own = emit(path, "--math", taken, "--only-math", *options)
            self.check("%s: %s instead of %s" % (case, taken, mode),
                       INSTEAD.sub("", text[mode]) == own, "not what --math %s gives" % taken)
        return us

    def models(self):
        for folder in ("models", "models/cases", "tests/unseen"):
            paths = sorted(glob.glob(os.path.join(ROOT, folder, "*.ein")))
            if folder == "tests/unseen" and not LONG:
                paths = paths[::5]
            for turn, path in enumerate(paths):
                name = os.path.relpath(path, ROOT)[:-len(".ein")]
                # Networks take seconds each, and tell little more at small sizes; of the others
                # every third one is planned at small sizes, in turn.
                for size in [[] if folder == "models" or turn % 3 else ["--small"]]:
                    every, none = (self.no_dearer(" ".join([name, libs] + size), path, "--libs",
                                                  libs, *size) for libs in ("all", "none"))
                    self.check(" ".join([name, "with libraries"] + size),
                               all(a <= b * OWN_MARGIN for a, b in zip(every, none)),
                               "%s us, without %s" % (every, none))
        self.check("there are plans of other modes", self.instead > 0, "none")

    def recurrence(self):
        with tempfile.TemporaryDirectory() as folder:
            for steps in (4, 12):
                path = os.path.join(folder, "states.ein")
                with open(path, "w") as out:
                    out.write(states(steps))
                self.no_dearer("a recurrence of %d steps" % steps, path)

    def devices(self):
        """One without TF32, one without wgmma, a slow one."""
        for name in ("models/mobilenet_v2", "tests/unseen/conv_groups", "tests/unseen/stitched"):
            path = os.path.join(ROOT, name + ".ein")
            for gpu in ("v100", "l4", "orin-nano"):
                half, full = (plan(emit(path, "--math", mode, "--gpu", gpu))[1]
                              for mode in ("fp16", "fp32"))
                self.check("%s on %s" % (name, gpu), half <= full, "%g us, %g" % (half, full))

    def shared_copies(self):
        """What one product has a copy of as halves the others read as well."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gated.ein")
            with open(path, "w") as out:
                out.write(GATED)
            options = (path, "--math", "fp16", "--gpu", "h200")
            own, most = plan(emit(*options, "--libs", "none"))[1], plan(emit(*options))[1]
            self.check("products of one input", own < 1.2 * most,
                       "%g us, %g with libraries" % (own, most))

    def conversions(self):
        for name in PLAIN:
            path = os.path.join(ROOT, "tests/unseen", name + ".ein")
            for size in ([], ["--small"]):
                text = emit(path, "--math", "fp16", "--only-math", *size)
                steps, most = plan(text)[0], plan(emit(path, *size))[0]
                self.check(" ".join([name, "by itself"] + size), steps <= most,
                           "%d steps, %d in FP32" % (steps, most))
                lone = re.findall(r"est\. (\S+[.](?:float|half)) +k_", text)
                self.check(" ".join([name, "has no conversions"] + size), not lone, lone)

    def kept(self):
        """What is to keep FP32 does so in a plan of another mode as well."""
        path = os.path.join(ROOT, "tests/unseen/tail.ein")
        text = emit(path, "--math", "fp16", "--keep-fp32", "s")
        name = re.search(r"^// .* est\. s +(k_product_\w+)", text, re.M)
        kernel = text[text.index(" %s(" % name.group(1)):] if name else ""
        tile = re.search(r"__shared__ \w+", kernel)
        self.check("what keeps FP32", tile and tile.group() == "__shared__ product_tile" and
                   "tensor_tile" in text, text)


def main():
    checks = Modes()
    checks.models()
    checks.recurrence()
    checks.devices()
    checks.shared_copies()
    checks.conversions()
    checks.kept()
    checks.check("all are made in seconds", slowest[0] < MOST_SECONDS, "%.1f s for %s" % slowest)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
