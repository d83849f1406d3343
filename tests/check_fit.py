#!/usr/bin/env python3
"""Tests bench/fit.py on tables made from its own model with other constants and noise: it must give
the program's estimates, find constants that explain the held-out half, say so when the two models
differ, and refuse tables that are too small. Ends with `N passed, N failed`.
"""

import os
import random
import re
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks

sys.path.insert(0, os.path.join(ROOT, "bench"))
sys.dont_write_bytecode = True

import fit  # noqa: E402

checks = Checks()
check = checks.check


def size(draw, bits):
    return draw.randrange(1, 1 << draw.randrange(1, bits + 1))


def gemm_key(draw):
    b = draw.choice([1, 1, 1, 2, 36])
    m, n, k = size(draw, 13), size(draw, 12), size(draw, 12)
    key = "gemm f32 fma b=%d m=%d n=%d k=%d ta=0 tb=0 lda=%d ldb=%d ldc=%d" % (b, m, n, k, k, n, n)
    if b > 1:
        key += " sa=%d sb=%d sc=%d" % (m * k, draw.choice([0, k * n]), m * n)
    if draw.random() < 0.4:
        z = draw.randrange(2)
        key += " bias=1 z=%d act=%s align=16" % (z, draw.choice(["none", "relu", "gelu"]))
        key += " ldz=%d" % n if z else ""
        key += " sz=%d" % (m * n) if z and b > 1 else ""
    return key


def conv_key(draw):
    data = draw.random() < 0.3
    group = draw.choice([1, 1, 1, 2, 8])
    c, f = group * size(draw, 7), group * size(draw, 7)
    k, s = draw.choice([1, 3, 4]), draw.choice([1, 1, 2])
    side = k + size(draw, 6)
    out = (side - 1) * s + k if data else (side - k) // s + 1
    relu = 0 if data else draw.randrange(2)
    z = 0 if data else draw.randrange(2)
    return ("%s f32 fma nchw n=%d c=%d f=%d g=%d in=%dx%d out=%dx%d k=%dx%d s=%dx%d p=0x0 d=1x1 "
            "bias=%d z=%d relu=%d" %
            ("conv_data" if data else "conv", draw.choice([1, 1, 16]), c, f, group, side, side,
             out, out, k, k, s, s, relu, z, relu))


def write_table(path, keys, c, noise, draw):
    with open(path, "w", encoding="ascii") as file:
        for key in keys:
            ps = int(fit.estimate(c, key) * (1 + draw.uniform(-noise, noise))) + 1
            file.write("h200\t%s\t%d\t60\tcudnn 91900 cublas 130100\n" % (key, ps))
            file.write("l4\t%s\t%d\t60\tcudnn 91900 cublas 130100\n" % (key, 7 * ps))
        file.write("h200\tkernel map 0123456789abcdef\t5000\t1\t\n")


def figures(text, title):
    found = re.search(title + r".*?median error +([\d.]+) %.*?pairs in order +([\d.]+) %", text)
    return (float(found.group(1)), float(found.group(2))) if found else (1e9, 0)


def run(*arguments):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "fit.py")] + list(arguments),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def kernel_lines(folder, figures):
    """What the program tells of one model's kernels when a table has `figures` (key -> ps)."""
    model = os.path.join(ROOT, "models", "infogan.ein")
    probe, table = os.path.join(folder, "probe.cu"), os.path.join(folder, "kernels")
    einnet = [EINNET, "probe", model, "--libs", "none"]
    if not figures:
        subprocess.run(einnet + ["--kernels", "10000", "-o", probe], check=True)
        with open(probe, encoding="ascii") as file:
            figures = {key: 5000000 for key in re.findall(r'\{"(kernel [^"]*)"', file.read())}
    with open(table, "w", encoding="ascii") as file:
        for key, ps in figures.items():
            file.write("h200\t%s\t%d\t10\teinnet 1\n" % (key, ps))
    text = subprocess.run(einnet + ["--estimates", "--costs", table, "-o", "-"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [line for line in text.splitlines() if line.startswith("kernel ")]


def check_kernels(folder, base, draw):
    """Kernels with invented times: those that the model has with other constants, and noise."""
    rows = [fit.Kernel(line) for line in kernel_lines(folder, None)]
    check("there are kernels", len(rows) > 20, len(rows))
    own = fit.kernel_constants(base)
    fit.check_kernels(base, own, rows)
    try:
        fit.check_kernels(base, dict(own, unit=500, node_ns=3000), rows)
        check("another model of kernels", False)
    except fit.Failure:
        check("another model of kernels", True)
    other = dict(own, unit=300, window=280, stride=250)
    other["times product"] = 1900
    for row in rows:
        row.ps = int(fit.estimate_kernel(base, other, row) * (1 + draw.uniform(-0.04, 0.04))) + 1
    fitted = [row for row in rows if not row.held_out]
    held_out = [row for row in rows if row.held_out]
    new = fit.fit_kernels(base, own, fitted)
    median = sorted(abs(fit.estimate_kernel(base, new, row) / row.ps - 1) for row in held_out)
    check("kernels of the other half are explained", median[len(median) // 2] < 0.08, median)
    right, pairs = fit.in_order([(row.ps, 40, fit.estimate_kernel(base, new, row))
                                 for row in held_out])
    check("and in order", right >= 0.9 * pairs, (right, pairs))


def with_rates(base, call, **changes):
    return dict(base, **{call: dict(base[call], **changes)})


def check_tensor(args, base, keys):
    """Calls on tensor cores that take twice as long as estimated: an error of a half."""
    keys = [key.replace(" fma ", " tf32 ") for key in keys]
    with open(args.tables[0], "w", encoding="ascii") as file:
        for key in keys:
            file.write("h200\t%s\t%d\t60\tcudnn 91900 cublas 130100\n" %
                       (key, 2 * fit.estimate(base, key)))
    code, text = run("--judge-only", args.tables[0])
    check("tensor cores are judged", figures(text, "TF32 as they are") == (50, 100), text)
    check("where there are such calls", code == 0 and "FP16" not in text, text)


def main():
    draw = random.Random(5)
    base = fit.constants("h200")
    other = with_rates(base, "gemm FP32", start_ps=3000000, term_ps=30000,
                       tiles=[(128, 128, 770), (64, 64, 600), (32, 32, 700)])
    other = with_rates(other, "conv FP32", start_ps=4000000, term_ps=15000,
                       tiles=[(128, 128, 750), (64, 32, 250)])
    keys = sorted({gemm_key(draw) for _ in range(160)} | {conv_key(draw) for _ in range(160)})
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table")
        write_table(table, keys, other, 0.05, draw)
        code, text = run(table)
        check("it runs", code == 0, text)
        before = figures(text, "as they are, held-out half")
        after = figures(text, "fitted, held-out half")
        check("constants that are not the device's show", before[0] > 15, text)
        check("fitted ones explain the other half", after[0] < 8 and after[1] > 90, text)
        check("it is the same again", run(table)[1] == text)
        code, text = run("--gpu", "l4", "--judge-only", table)
        check("another device", code == 0 and "held-out" in text and "->" not in text, text)
        code, text = run("--gpu", "tx2", table)
        check("a device without rows", code == 1 and "too few" in text, text)
        code, text = run("--gpu", "none", table)
        check("no device", code == 1 and "no GPU" in text, text)
        with open(table, "a", encoding="ascii") as file:
            file.write("h200\tgemm\tx\n")
        code, text = run(table)
        check("a row that is none", code == 1 and ": a key begins with" in text, text)

        class Args:
            gpu, tables = "h200", [os.path.join(folder, "good")]
            einnet = EINNET
        write_table(Args.tables[0], keys, base, 0, draw)
        rows = fit.read_rows(Args)
        check("every call is a row", [row.key for row in rows] == keys)
        fit.check_model(base, rows)
        for wrong in (with_rates(base, "gemm FP32", start_ps=1), dict(base, node_ns=2),
                      with_rates(base, "gemm FP32", splits=1),
                      with_rates(base, "conv FP32", term_ps=1)):
            try:
                fit.check_model(wrong, rows)
                check("a model that differs", False)
            except fit.Failure:
                check("a model that differs", True)
        check_tensor(Args, base, keys)
        check_kernels(folder, base, draw)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
