#!/usr/bin/env python3
"""Products that one kernel adds up.

tests/unseen/two_products.ein: which sums are one kernel's and which may not be, what a map may be
of them; right to the judge, with faults planted wrong. Tables of costs decide where they have rows,
and probes ask for both forms. Ends with `N passed, N failed`.
"""

import os
import re
import sys
import tempfile

import harness
from harness import HERE, Checks, cost, steps

MODEL = os.path.join(HERE, "unseen", "two_products.ein")
APART = "--rules=-merge"
SECOND = "// The second product's terms"

checks = Checks()


def emit(folder, *options, model=MODEL):
    return harness.emit(folder, model, "--libs", "none", *options)


def adding(text):
    """The kernels of two products."""
    return {name for name, body in
            re.findall(r"^static __global__ .*?\bk_product_(\w{8})\((.*?)^}$", text, re.M | re.S)
            if SECOND in body}


def added(text):
    """The tensors that they store."""
    kernels = adding(text)
    lines = re.findall(r"^// +[\d.]+ us (?:est\.|measured) ([\w.]+) +k_product_(\w{8})", text, re.M)
    return {tensor for tensor, kernel in lines if kernel in kernels}


def choices(folder):
    """Which sums are one kernel's."""
    for options in ([], ["--math", "tf32"], ["--math", "fp16"]):
        text = emit(folder, APART, *options)
        names = added(text)
        for name in ("block", "strips", "cell", "gate", "batches", "last_batch"):
            if name == "block" and "fp16" in options:
                continue  # a window split in phases is faster
            checks.check("%s %s" % (name, options), name in names, names)
        for name in ("both", "twice", "seen"):
            checks.check("%s %s stays" % (name, options), name not in names, names)
        fewer = emit(folder, "--rules=-merge,fuse", *options)
        checks.expect("without fusion %s" % options, set(), added(fewer))
        checks.check("cheaper %s" % options, cost(text) < cost(fewer))
    strict = added(emit(folder, APART, "--math", "tf32", "--keep-fp32", "first"))
    checks.check("of one arithmetic", "block" not in strict and "cell" in strict, strict)


def forms(folder):
    """What a map may be of two products."""
    path = os.path.join(folder, "form.ein")
    for body, sums in (("p + q", True), ("q + c[n] + p", True), ("relu(p + c[n] + q)", True),
                       ("(p + q) * (q + p)", True), ("max(p + q, c[n])", True),
                       ("2 * (p + q) + c[n] * tanh(q + p)", True), ("p - q", True),
                       ("p * q", False), ("2 * p + q", True), ("p + q + q", False),
                       ("relu(p) + q", False), ("(p + q) * p", False), ("max(p, c[n]) + q", False)):
        body = re.sub(r"\b([pq])\b", r"\1[m,n]", body)
        text = ("ein 1\nmodel form\ndim M = 256, K = 256, L = 96, N = 192\ninput x: f32[M,K]\n"
                "input u: f32[M,L]\nweight w: f32[K,N] = randn(seed=1)\n"
                "weight v: f32[L,N] = randn(seed=2)\nweight c: f32[N] = randn(seed=3)\noutput y\n"
                "p[m,n] = sum(k) x[m,k] * w[k,n]\nq[m,n] = sum(l) u[m,l] * v[l,n]\n"
                "y[m,n] = %s\n" % body)
        with open(path, "w") as file:
            file.write(text)
        emitted = emit(folder, "--rules=-merge,distribute", model=path)
        checks.expect("%s as one kernel" % body, sums, steps(emitted) == 1 and
                      added(emitted) == {"y"})


def tables(folder):
    text = harness.probed(folder, MODEL, "--libs", "none", APART, "--kernels", "1000")
    rows = re.findall(r'"(kernel product \w+ algo=[\w.]+)", "(\w{8})"', text)
    summing = adding(text)
    keys = sorted({key for key, kernel in rows if kernel in summing})
    checks.check("kernels that add", len({key.split()[2] for key in keys}) >= 6, keys)
    checks.check("others", len({key.split()[2] for key, kernel in rows}) >= 11,
                 {key.split()[2] for key, kernel in rows})
    table = os.path.join(folder, "table")
    for ps in (90000000, 1000):
        harness.write_costs(table, keys, ps)
        names = added(emit(folder, APART, "--costs", table))
        checks.expect("where a table says %d ps" % ps, ps == 1000, len(names) == 6)


def runs(folder):
    program = harness.Judged(folder, MODEL, "--libs", "none", APART, "--math", "tf32")
    checks.expect("right", 0, program.status())
    checks.expect("no race", 0, program.status(mode="race"))
    checks.check("a part without terms", "if (from < " in program.text)
    shared = re.sub(r"(?<=\n) {8}__syncthreads\(\);\n(?= {8}(const unsigned from|tile))", "",
                    program.text)
    checks.notices("a tile that is not free", program, shared, mode="race")
    less = re.sub(r"(tile\.multiply<.*?, 0>\()", r"if (id) \1", program.text)
    checks.notices("terms left out", program, less)


def main():
    with tempfile.TemporaryDirectory() as folder:
        choices(folder)
        forms(folder)
        tables(folder)
        runs(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
