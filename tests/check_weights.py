#!/usr/bin/env python3
"""Two products in a row as one kernel whose weights are no softmax: any map of an element of the
first product, with masks by 0, a sum of the weights, maps in front and behind.

The models of check_attention.py, at the sizes where tiles, parts and vectors begin and end, with
other weights. Run by the judge in all its modes, compared with the oracle, proved; nvcc reports
neither spills nor local memory. What others need is stored, and much has to be gained. Ends with
`N passed, N failed`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from check_attention import (EINNET, MASKS, MODELS, ROOT, argparse_like, check_fault, check_nvcc,
                             emit, instance, kernels, longer, plan_us, run_jobs, run_models)
from harness import LONG

# Of an element of the first product.
WEIGHTS = ["sigmoid(%s - 1)", "max(%s, 0) * max(%s, 0)", "%s * sigmoid(%s)",
           "%s * exp(-0.01 * abs(idx(i) - idx(j)))", "tanh(%s) / 3", "1 / (1 + %s * %s)"]
DIVIDED = {5, 6}  # cases whose weights, all above 0, are divided by their sum
SIZED = {2, 4}  # ... of either sign, are divided by the sum of their absolute values
KINDS = {"plain", "swapped", "turned", "huge", "sums"}
# Set of models, GPU, the judge's mode, arithmetic, kernels of both products at least.
RUNS = longer([("small", "h200", "race", "tf32", 6), ("small", "h200", "san", "fp32", 6),
               ("windows", "h200", "race", "fp16", 14), ("windows", "nano", "plain", "fp32", 9),
               ("large", "orin-nx", "plain", "fp16", 6)],
              [("small", "h200", "race", "fp32", 6), ("small", "h200", "san", "fp16", 6),
               ("windows", "h200", "san", "tf32", 14), ("windows", "h200", "race", "fp32", 14),
               ("large", "h200", "plain", "tf32", 6)])
NVCC = longer([("windows", "h200", 90, "tf32"), ("small", "orin-nx", 87, "fp16")],
              [("large", "nano", 75, "fp32"), ("large", "h200", 90, "fp32"),
               ("windows", "h200", 90, "fp16")])
# heads, rows and keys, depth, arithmetic, what one kernel of causal weights takes at most of what
# two products do.
GAINS = [(8, 2048, 64, "fp32", 0.9), (8, 2048, 64, "tf32", 0.5), (8, 2048, 64, "fp16", 0.6)]
# models, kernels of both products
COUNTS = [("tests/unseen/attention_weights.ein", 7, []),
          ("tests/unseen/attention_weights.ein", 7, ["--math", "fp16"]),
          ("tests/unseen/attention_weights.ein", 0, ["--rules=-online"])]
# The judge's mode, arithmetic, what is wrong then, the text that is so, and that which makes it so.
FAULTS = [("plain", "fp32", "keys that a row does not have", "float x = 0.f;", "float x = 0.1f;"),
          ("plain", "tf32", "keys that a row does not have", ")) s[m][j][e] = 0.f;",
           ")) s[m][j][e] = 0.1f;"),
          ("plain", "fp16", "blocks stop early", "if (u0 >= m0 + ", "if (u0 + 32 >= m0 + ")]


def weighed(n, case):
    """Declarations, equations and the result of one case."""
    batch, rows, keys, depth, cols, kind = case
    mask = kind if kind in MASKS else None
    head, body, y = instance(n, batch, rows, keys, depth, cols, "plain" if mask else kind)
    weight = WEIGHTS[n % len(WEIGHTS)].replace("%s", "s%d[b,i,j]" % n)
    a = "a%d" % n
    if mask:
        weight = re.sub(r"-1e\d+|log\(0\)|-0\.5|-10\b", "0", MASKS[mask]) % weight
    lines = "%s[b,i,j] = %s\n" % (a, weight)
    if n in DIVIDED | SIZED:
        term = "abs(%s[b,i,j])" if n in SIZED else "%s[b,i,j]"
        lines += "t%d[b,i] = sum(j) %s\n" % (n, term % a)
        body = body.replace("%s[b,i,j] *" % a, "%s[b,i,j] / (t%d[b,i] + 0.01) *" % (a, n))
    return head, body.replace("%s = Softmax(s%d)\n" % (a, n), lines), y


def cases_of(name):
    return [case for case in MODELS[name] if case[5] in KINDS or isinstance(case[5], tuple) or
            case[5] in MASKS and "(%s) +" not in MASKS[case[5]]]


def model(cases):
    parts = [weighed(n, case) for n, case in enumerate(cases)]
    return "ein 1\nmodel weights\n%soutput %s\n%s" % (
        "".join(p[0] for p in parts), ", ".join(p[2] for p in parts), "".join(p[1] for p in parts))


def path_of(folder, name):
    return os.path.join(folder, name + ".ein")


def check_run(path, gpu, mode, math, least):
    options = ["--gpu", gpu, "--math", math, "--only-math"]
    text = emit(path, options)
    found, _ = kernels(text)
    if len(found) < least or "NO_KEY;" in text:
        raise run_models.Failure("only %s are one kernel" % " ".join(found))
    done = subprocess.run([EINNET, "verify", path] + options, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        raise run_models.Failure("verify: " + done.stdout.decode().strip())
    with tempfile.TemporaryDirectory() as folder:
        run_models.check_model(path, argparse_like(mode, gpu, math), folder)


def check_gain(folder, heads, rows, depth, math, most):
    path = path_of(folder, "gain")
    with open(path, "w") as out:
        out.write(model([(heads, rows, rows, depth, depth, "causal")]))
    us = [plan_us(emit(path, ["--math", math] + more)) for more in ([], ["--rules=-online"])]
    if us[0] > most * us[1]:
        raise run_models.Failure("%g us, apart %g" % tuple(us))


def check_count(path, want, options):
    found, _ = kernels(emit(os.path.join(ROOT, path), options))
    if len(found) != want:
        raise run_models.Failure("%d kernels: %s" % (len(found), " ".join(found)))


def main():
    """Arguments: only tests whose name has one of them in it."""
    jobs = [("%s %s" % (c[0], " ".join(c[2])), check_count, c) for c in COUNTS]
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted({run[0] for run in RUNS}):
            with open(path_of(folder, name), "w") as out:
                out.write(model(cases_of(name)))
        jobs += [("%s for %s, %s, %s" % run[:4], check_run, (path_of(folder, run[0]),) + run[1:])
                 for run in RUNS]
        jobs += [("gain in %s" % gain[3], check_gain, (folder,) + gain) for gain in GAINS]
        if shutil.which("nvcc"):
            jobs += [("%s for %s, sm_%d, %s" % run, check_nvcc,
                      (path_of(folder, run[0]),) + run[1:]) for run in NVCC]
        jobs += [("fault: %s, %s" % fault[1:3], check_fault,
                  (path_of(folder, "windows"), *fault[:2], *fault[3:])) for fault in FAULTS if LONG]
        return run_jobs(jobs)


if __name__ == "__main__":
    sys.exit(main())
