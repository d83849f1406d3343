#!/usr/bin/env python3
"""Weights that warpgroups multiply as TF32 are rounded once, by create, and those alone that
nothing but such products reads.

Where everything is positive, errors of rounded weights cancel each other, and those of weights
whose last bits are cut off add up. Ends with `N passed, N failed`.
"""

import os
import re
import tempfile

import harness
import run_models
from harness import EINNET, HERE, Checks

MODEL = os.path.join(HERE, "unseen", "rounded_weights.ein")
LIMIT = 0.05  # of what TF32 may be off by: a third of what cut off weights are off by

checks = Checks()


def rounded(text):
    """The buffers that create rounds."""
    return sorted(re.findall(r'round_weights,\s+"([^"]+)"', text))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for libs in ([], ["--libs", "none"]):
            text = harness.emit(folder, MODEL, "--math", "tf32", *libs)
            # The one is read as it is given, the other in another order.
            found = rounded(text)
            checks.check("the right ones %s" % libs,
                         found == ["b", "h.lines"], found)
        # Without such instructions loads round what they multiply.
        for gpu in ("a100", "orin-nx"):
            text = harness.emit(folder, MODEL, "--math", "tf32", "--gpu", gpu)
            checks.check("none on %s" % gpu, not rounded(text))
        # What is measured is what plans have.
        text = harness.probed(folder, MODEL, "--math", "tf32", "--libs", "none", "--kernels", "8")
        checks.check("measured", ".tf32.w" in text and "warpgroup_tile<float" in text)
        checks.check("none in FP16", not rounded(harness.emit(folder, MODEL, "--math", "fp16")))
    for ptx in ([], ["--ptx", "90a"]):
        args = run_models.arguments(["--einnet", EINNET, "--math", "tf32", "--libs", "none",
                                     "--full", "--quick", *ptx])
        args.slack = LIMIT
        wrong = run_models.what_is_wrong(MODEL, args)
        checks.check("accurate %s" % ptx, not wrong, wrong)
    checks.finish()


if __name__ == "__main__":
    main()
