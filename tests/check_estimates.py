#!/usr/bin/env python3
"""What may be called does not make a plan dearer, and neither does derivation.

By the estimates that emitted files print: with all libraries no plan takes longer than with cuBLAS
alone, with cuBLAS none longer than with none, but for what a kernel of our own must be cheaper by
to be taken instead of a call; and derived none longer than without derivation, or than without
splitting: its definitions are the cheapest by themselves where others end in a re-ordering that the
next step reads through. In any arithmetic, on devices of all sizes. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys

from harness import EINNET, ROOT, Checks

MODELS = ("models/dcgan", "models/infogan", "models/srcnn", "models/longformer_short",
          "models/cases/dilated_conv", "tests/unseen/tensor_tiles")
DEVICES = ("h200", "v100", "l4", "agx-orin", "orin-nano")
MARGIN = 1.1  # EIN__OWN_MARGIN
# Known to be missed, and by how much: with cuDNN the 5x5 convolution is split in declared order,
# while channels last, which no call asks for there, would be cheaper for it and the one before it.
MISSED = {("models/srcnn", "l4", "fp16"): 1.12}
# Models whose derived results are phases, which maps put in order. Plans without splits are tried
# as a whole where the best one has some, and have to gain 2 %, a sixty-fourth more where they
# reread, too (plan.c): these gain 2.4 and 2.3 %.
PHASES = ("models/dcgan", "models/infogan")
UNSPLIT = {("models/dcgan", "h200", "fp32"): 1.03, ("models/infogan", "l4", "fp16"): 1.03}
UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}
PLAN = re.compile(r"^// plan .*?([\d.]+) (ns|us|ms|s) estimated", re.M)


def estimate(model, options):
    path = os.path.join(ROOT, model + ".ein")
    done = subprocess.run([EINNET, "emit", path, "-o", "-"] + options, stdout=subprocess.PIPE,
                          check=True)
    value, unit = PLAN.search(done.stdout.decode()).groups()
    return float(value) * UNITS[unit]


def main():
    checks = Checks()
    for model in MODELS:
        for device in DEVICES:
            for math in ("fp32", "tf32", "fp16"):
                if math == "tf32" and device == "v100":
                    continue  # has none
                base = ["--gpu", device, "--math", math]
                none, cublas, every = (estimate(model, base + ["--libs", libs])
                                       for libs in ("none", "cublas", "all"))
                plain = estimate(model, base + ["--baseline"])
                margin = MISSED.get((model, device, math), MARGIN)
                checks.check("%s %s %s" % (model, device, math),
                             every <= cublas * margin and
                             cublas <= none * MARGIN and
                             every <= plain,
                             "%g us with all libraries, %g with cuBLAS, %g with none, %g without "
                             "derivation" % (every, cublas, none, plain))
                if model not in PHASES:
                    continue
                unsplit = estimate(model, base + ["--rules=-split"])
                checks.check("%s %s %s without splitting" % (model, device, math),
                             every <= unsplit * UNSPLIT.get((model, device, math), 1.02),
                             "%g us, %g without" % (every, unsplit))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
