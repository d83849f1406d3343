#!/usr/bin/env python3
"""Fits the constants of the cost model to measured costs, and judges them.

    fit.py [--gpu NAME] [--einnet PROGRAM] [--judge-only] [--models MODEL.ein...] -- TABLE...

Half of the calls, told by a hash of their keys, are fitted; the figures are of the other half:
median and 90th percentile of the relative error, and in how many pairs of calls the estimates have
the order of the measurements. Pairs whose times differ by less than their spreads do not count.

The model here is that of gen/cost/estimate_calls.c, with its constants read from there and
those of the GPU from gen/cost/cost.c; before anything else it must give the program's own estimates
(`einnet costs --estimates`), so that the two cannot drift apart. What is printed is for a person to
put into the sources. Only FP32 calls are fitted; those on tensor cores are judged as they are. Keys
of kernels do not tell what they compute: with --models the program says of these models' kernels
what their estimates are made of (`einnet probe --estimates`), and shares of bandwidth by class of
access and of arithmetic by kind of kernel are fitted as well. Candidate plans of which every step
is measured are compared in pairs of one model: whether the estimates rank them as the measurements
do.
"""

import argparse
import copy
import hashlib
import math
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 2**63 // 4
MOST_PAIRS = 2000000


class Failure(Exception):
    pass


# ---- constants ----

def estimates():
    """The sources of the cost model."""
    text = ""
    for name in ("roofline.c", "estimate_calls.c"):
        with open(os.path.join(HERE, "..", "gen", "cost", name), encoding="ascii") as file:
            text += file.read()
    return text


def constants(gpu):
    """Shares in 1/1000 by name, and the rates of the GPU, from the sources."""
    text = estimates()
    with open(os.path.join(HERE, "..", "gen", "cost", "cost.c"), encoding="ascii") as file:
        devices = file.read()
    shares = re.search(r"ein__math_share\[\] = \{(.*?)\};", text, re.S)
    c = {name.lower(): int(value)
         for name, value in re.findall(r"EIN__E_(\w+)\] = (\d+)", shares.group(1))}
    c["memory"] = int(re.search(r"ein__memory_share\[\] = \{(\d+)", text).group(1))
    tiles = re.search(r"gemm_tile\[\w+\] = \{(.*?)\};.*?gemm_tile_share\[\w+\] = \{(.*?)\};", text,
                      re.S)
    c["tiles"] = [int(v) for v in tiles.group(1).split(",")]
    for tile, value in zip(c["tiles"], tiles.group(2).split(",")):
        c["tile%d" % tile] = int(value)
    with open(os.path.join(HERE, "..", "gen", "cost", "product.c"), encoding="ascii") as file:
        text += file.read()
    for name in ("SKINNY", "CHANNELS", "SPLITS", "CONV_SPLITS", "SPLIT_DEPTH", "SPLIT_PS",
                 "CALL_STEP", "CALL_RESIDENT", "PRODUCT_STEP_PS"):
        c[name] = int(re.search(r"EIN__%s = (\d+)" % name, text).group(1))
    row = re.search(r'\{"%s", "[^"]*", (.*?)\},' % re.escape(gpu), devices, re.S)
    if not row:
        raise Failure("gen/cost/cost.c has no GPU '%s'" % gpu)
    numbers = []
    for word in row.group(1).split(","):
        value, _, shift = word.strip().partition(" << ")
        numbers.append(int(value) << int(shift or 0))
    names = ("cc", "sms", "fp32", "tf32", "fp16", "bandwidth", "l2_bytes", "l2_rate", "node_ns")
    c.update(zip(names, numbers))
    return c


# What is fitted: shares of the peaks, the sizes of tiles, and what a launch takes.
FITTED = ["gemm", "gemm_batched", "gemm_skinny", "conv", "conv_data", "conv_scatter",
          "conv_grouped", "conv_narrow", "memory", "tile64", "tile32", "node_ns", "l2_rate",
          "SPLIT_PS"]


# ---- the model: gen/cost/estimate_calls.c ----

def ceil(a, b):
    return -(-a // b)


def math_ps(c, flop, share):
    return min(flop * 1000000 // (c["fp32"] * share), LIMIT)


def memory_ps(c, count, cached):
    rate = max(c["bandwidth"] * c["l2_rate"] // 100, c["bandwidth"]) if cached else c["bandwidth"]
    return min(count * 1000000000 // (rate * c["memory"]), LIMIT)


def tiled_ps(c, m, n, k, batch, share, most_split):
    best = LIMIT
    for tile in c["tiles"]:
        for split in range(1, most_split + 1):
            blocks = ceil(m, tile) * ceil(n, tile) * batch * split
            depth = max(ceil(k, split), c["SPLIT_DEPTH"] if split > 1 else 1)
            slots = ceil(blocks, c["sms"]) * c["sms"]
            ps = math_ps(c, slots * 2 * tile * tile * depth,
                         max(share * c["tile%d" % tile] // 1000, 1))
            turns = (ceil(depth, c["CALL_STEP"] // 4) + 1) * c["PRODUCT_STEP_PS"]
            ps = max(ps, turns * ceil(blocks, c["sms"] * c["CALL_RESIDENT"]))
            if split > 1:
                ps += c["SPLIT_PS"] + memory_ps(c, m * n * batch * 2 * 4 * split, True)
            best = min(best, ps)
    return best


def work_ps(c, arithmetic, count):
    memory = memory_ps(c, count, count <= c["l2_bytes"] // 2)
    return max(arithmetic, memory) + c["node_ns"] * 1000


def fields(key):
    return {name: [int(v) for v in text.split("x")]
            for name, text in re.findall(r" (\w+)=([0-9x]+)", key)}


def product(values):
    return math.prod(values)


def estimate_gemm(c, f):
    batch, m, n, k = (f[name][0] for name in ("b", "m", "n", "k"))
    arithmetic = tiled_ps(c, m, n, k, batch, c["gemm_batched" if batch > 1 else "gemm"],
                          c["SPLITS"])
    if m <= c["SKINNY"] or n <= c["SKINNY"]:
        arithmetic = min(arithmetic, math_ps(c, 2 * batch * m * n * k, c["gemm_skinny"]))
    left = m * k * 4 * (batch if f.get("sa", [0])[0] else 1)
    right = k * n * 4 * (batch if f.get("sb", [0])[0] else 1)
    result = m * n * 4 * batch * (1 + f.get("z", [0])[0])
    return work_ps(c, arithmetic, left + right + result)


def estimate_conv(c, f, transposed):
    n, channels, filters, groups = (f[name][0] for name in ("n", "c", "f", "g"))
    out, taps, strides = n * product(f["out"]), product(f["k"]), product(f["s"])
    point = not transposed and taps == 1 and strides == 1 and not any(f["p"])
    each, of = ceil(channels, groups), ceil(filters, groups)
    kind = "conv_grouped" if groups > 1 else "gemm" if point else "conv"
    if transposed and groups == 1:
        kind = "conv_scatter" if strides > 1 else "conv_data"
    window = ceil(taps, strides) if transposed else taps
    depth = window * (each if point else max(each, c["CHANNELS"]))
    arithmetic = tiled_ps(c, out, of, depth, groups, c[kind],
                          c["SPLITS" if point else "CONV_SPLITS"])
    if groups > 1:
        arithmetic = min(arithmetic,
                         math_ps(c, 2 * out * window * each * filters, c["conv_narrow"]))
    result = 4 * filters * out * (1 + f["z"][0])
    count = 4 * channels * n * product(f["in"]) + 4 * taps * filters * each + result
    return work_ps(c, arithmetic, count)


def estimate(c, key):
    f = fields(key)
    if key.startswith("gemm "):
        return estimate_gemm(c, f)
    return estimate_conv(c, f, key.startswith("conv_data "))


# ---- rows ----

class Row:
    def __init__(self, line):
        key, ps, spread, estimated = line.split("\t")
        self.key, self.ps, self.spread = key, max(int(ps), 1), int(spread)
        self.estimated = int(estimated)
        self.fields = fields(key)
        self.held_out = hashlib.sha256(key.encode()).digest()[0] & 1


def read_rows(args):
    command = [args.einnet, "costs", "--estimates", "--gpu", args.gpu] + args.tables
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip() or "%s failed" % args.einnet)
    # Calls of several products have no constant of their own.
    rows = [Row(line) for line in done.stdout.splitlines() if not line.startswith("grouped ")]
    return ([row for row in rows if " f32 fma " in row.key],
            {name: [row for row in rows if words in row.key]
             for name, words in (("TF32", " f32 tf32 "), ("FP16", " f16 tensor "))})


def check_model(c, rows):
    for row in rows:
        mine = estimate(c, row.key)
        # What is added up in another order may round otherwise.
        if abs(mine - row.estimated) > 2:
            raise Failure("%s: the program estimates %d ps and fit.py %d: one of the two models "
                          "was changed alone" % (row.key, row.estimated, mine))


# ---- kernels: gen/cost/roofline.c, their parts as the program gives them ----

ACCESS = ("unit", "stride", "window", "gather")


class Kernel:
    def __init__(self, line):
        key, ps, spread, estimated, features = line.split("\t")
        self.key, self.ps, self.spread = key, max(int(ps), 1), int(spread)
        self.estimated, self.features = int(estimated), features
        f = dict(word.split("=") for word in features.split())
        self.kind = f["kind"]
        self.plain = "math" in f        # else its estimate is of no such parts
        self.math, self.chain = int(f.get("math", 0)), int(f.get("chain", 0))
        self.bytes = [int(v) for v in f.get("bytes", "0/0/0/0").split("/")]
        self.weights = int(f.get("weights", 0))
        self.held_out = hashlib.sha256(key.encode()).digest()[0] & 1


def kernel_constants(c):
    """Shares of the bandwidth as they are, and what arithmetic is multiplied with, in 1/1000."""
    with open(os.path.join(HERE, "..", "gen", "cost", "roofline.c"), encoding="ascii") as file:
        shares = re.search(r"ein__memory_share\[\] = \{(.*?)\}", file.read()).group(1)
    k = dict(zip(ACCESS, (int(v) for v in shares.split(","))))
    k["node_ns"] = c["node_ns"]
    for kind in ("product", "band", "row", "reduce", "map", "basis", "transpose"):
        k["times " + kind] = 1000
    return k


def estimate_kernel(c, k, row):
    total = row.weights + sum(row.bytes)
    cached = total <= c["l2_bytes"] // 2
    memory = memory_ps(dict(c, memory=k["unit"]), row.weights, False)
    for name, count in zip(ACCESS, row.bytes):
        memory += memory_ps(dict(c, memory=k[name]), count, cached)
    arithmetic = row.math * k.get("times " + row.kind, 1000) // 1000
    return max(arithmetic, row.chain, memory) + k["node_ns"] * 1000


def read_candidates(args):
    """Kernels that are measured, and plans: model -> {(measured, estimate)}."""
    command = [args.einnet, "probe"] + args.models + ["--estimates", "--gpu", args.gpu, "-o", "-"]
    for table in args.tables:
        command += ["--costs", table]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip() or "%s failed" % args.einnet)
    kernels, plans = {}, {}
    for line in done.stdout.splitlines():
        if line.startswith("plan "):
            name, ps, _, estimated, _ = line.split("\t")
            plans.setdefault(name.split()[1], set()).add((int(ps), int(estimated)))
        else:
            row = Kernel(line)
            kernels[row.key] = row
    return sorted(kernels.values(), key=lambda row: row.key), plans


def check_kernels(c, k, rows):
    for row in rows:
        if row.plain and abs(estimate_kernel(c, k, row) - row.estimated) > 8:
            raise Failure("%s: the program estimates %d ps and fit.py %d: one of the two models "
                          "was changed alone" % (row.key, row.estimated,
                                                 estimate_kernel(c, k, row)))


def in_order(timed):
    """Pairs of (measured, spread, estimate) in the right order, and pairs; ties are half right."""
    right = pairs = number = 0
    step = max(1, len(timed) ** 2 // 2 // MOST_PAIRS)
    for i, (a, spread_a, mine_a) in enumerate(timed):
        for b, spread_b, mine_b in timed[:i]:
            number += 1
            if number % step or abs(a - b) * 1000 <= a * spread_a + b * spread_b or a == b:
                continue
            pairs += 1
            right += 0.5 if mine_a == mine_b else (mine_a < mine_b) == (a < b)
    return right, pairs


def put_line(title, what, ratios, right, pairs):
    e = sorted(ratios)
    print("%-33s %4d %s  median error %5.1f %%  90th %6.1f %%  pairs in order %5.1f %% of %d" %
          (title, len(e), what, 100 * e[len(e) // 2], 100 * e[len(e) * 9 // 10],
           100 * right / pairs if pairs else 100, pairs))


def report_kernels(title, c, k, rows):
    mine = [(row, estimate_kernel(c, k, row) if row.plain else row.estimated) for row in rows]
    if mine:
        put_line(title, "kernels", [abs(ps - row.ps) / row.ps for row, ps in mine],
                 *in_order([(row.ps, row.spread, ps) for row, ps in mine]))


def report_plans(plans):
    found = [p for of in plans.values() for p in of]
    right = pairs = 0
    for of in plans.values():
        r, n = in_order([(ps, 0, mine) for ps, mine in sorted(of)])
        right, pairs = right + r, pairs + n
    if found:
        put_line("candidate plans, as they are", "plans  ", [abs(m - ps) / ps for ps, m in found],
                 right, pairs)


def fit_kernels(c, k, rows):
    """As `fit`, of the kernels' constants."""
    rows = [row for row in rows if row.plain]
    return descend(k, [name for name in k if name != "node_ns"],
                   lambda now: sum(abs(math.log(estimate_kernel(c, now, row) / row.ps))
                                   for row in rows),
                   lambda name: 1000000 if name.startswith("times") else 1000)


def judge_kernels(args, c):
    rows, plans = read_candidates(args)
    k = kernel_constants(c)
    check_kernels(c, k, rows)
    fitted = [row for row in rows if not row.held_out]
    held_out = [row for row in rows if row.held_out]
    report_kernels("as they are, held-out half", c, k, held_out)
    report_plans(plans)
    if args.judge_only or len(fitted) < len(k):
        return
    new = fit_kernels(c, k, fitted)
    report_kernels("fitted, its own half", c, new, fitted)
    report_kernels("fitted, held-out half", c, new, held_out)
    for name in k:
        print("%-16s %6d -> %6d" % (name, k[name], new[name]))


# ---- figures ----

def errors(c, rows):
    return sorted(abs(estimate(c, row.key) - row.ps) / row.ps for row in rows)


def report(title, c, rows):
    if rows:
        put_line(title, "calls", errors(c, rows),
                 *in_order([(row.ps, row.spread, estimate(c, row.key)) for row in rows]))


def report_tensor(tensor):
    """Calls on tensor cores, whose constants are not fitted: by the program's own estimates."""
    for name, rows in tensor.items():
        rows = [row for row in rows if row.held_out]
        if rows:
            put_line("%s as they are, held-out half" % name, "calls",
                     [abs(row.estimated - row.ps) / row.ps for row in rows],
                     *in_order([(row.ps, row.spread, row.estimated) for row in rows]))


# ---- the fit ----

def loss(c, rows):
    return sum(abs(math.log(estimate(c, row.key) / row.ps)) for row in rows)


def descend(c, names, loss_of, most):
    """Coordinate descent over the logarithms of the constants, with steps that shrink."""
    c = copy.deepcopy(c)
    best = loss_of(c)
    step = 1.5
    while step > 1.01:
        moved = False
        for name in names:
            for factor in (step, 1 / step):
                old, new = c[name], max(1, round(c[name] * factor))
                new = min(new, most(name))
                if new == old:
                    continue
                c[name] = new
                now = loss_of(c)
                if now < best * (1 - 1e-9):
                    best, moved = now, True
                    break
                c[name] = old
        if not moved:
            step = math.sqrt(step)
    return c


def fit(c, rows):
    return descend(c, FITTED, lambda now: loss(now, rows),
                   lambda name: LIMIT if name in ("node_ns", "l2_rate", "SPLIT_PS") else 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--models", nargs="+", help="whose kernels and plans are judged too")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--einnet", default=os.path.join(HERE, "..", "build", "einnet"))
    parser.add_argument("--judge-only", action="store_true", help="the constants as they are")
    args = parser.parse_args()
    try:
        c = constants(args.gpu)
        rows, tensor = read_rows(args)
        check_model(c, rows)
        report_tensor(tensor)
        if args.models:
            judge_kernels(args, c)
    except (Failure, OSError, ValueError) as error:
        print("fit.py: %s" % error, file=sys.stderr)
        return 1
    fitted = [row for row in rows if not row.held_out]
    held_out = [row for row in rows if row.held_out]
    if len(fitted) < len(FITTED) or len(held_out) < 2:
        print("fit.py: %d rows for library calls on %s are too few" % (len(rows), args.gpu),
              file=sys.stderr)
        return 1
    report("as they are, held-out half", c, held_out)
    if args.judge_only:
        return 0
    new = fit(c, fitted)
    report("fitted, its own half", new, fitted)
    report("fitted, held-out half", new, held_out)
    for name in FITTED:
        print("%-14s %6d -> %6d" % (name, c[name], new[name]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
