#!/usr/bin/env python3
"""Fits the constants of the cost model to measured costs, and judges them.

    fit.py [--gpu NAME] [--einnet PROGRAM] [--judge-only] [--models MODEL.ein...] -- TABLE...

Half of the calls, told by a hash of their keys, are fitted; the figures are of the other half:
median and 90th percentile of the relative error, and in how many pairs of calls the estimates have
the order of the measurements. Pairs whose times differ by less than their spreads do not count.

The model here is that of gen/cost/estimate_calls.c, with its constants read from there and
those of the GPU from gen/cost/cost.c; before anything else it must give the program's own estimates
(`einnet costs --estimates`), so that the two cannot drift apart. What is printed is for a person to
put into the sources. Keys of kernels do not tell what they compute: with --models the program says
of these models' kernels what their estimates are made of (`einnet probe --estimates`), and shares
of bandwidth by class of access and of arithmetic by kind of kernel are fitted as well. Candidate
plans of which every step is measured are compared in pairs of one model: whether the estimates rank
them as the measurements do.
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
FEWEST = 6      # rows that constants are fitted to
MOST_SHARE = {"CALL_ALONG": 2000}  # of a tile's, which others get less of; of others 1000


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


def call_rates(text, kind):
    """What the program says of a library's kernels of one kind: arithmetic -> constants."""
    table = re.search(r"ein__%s_rates\[\] = \{(.*?)\};" % kind, text, re.S).group(1)
    rates = {}
    for math_name, tiles, rest in re.findall(
            r"\[EIN__MATH_(\w+)\] =\s*\{\s*\{(.*?\})\},\s*([^{}]*)\}", table, re.S):
        start, term, split, splits = (word.strip() for word in rest.split(","))
        rates[math_name] = {
            "tiles": [tuple(int(v) for v in t.split(","))
                      for t in re.findall(r"\{(\d+, \d+, \d+)\}", tiles)],
            "start_ps": int(start), "term_ps": int(term), "split_ps": int(split), "splits": splits}
    return rates


def constants(gpu):
    """Shares in 1/1000 by name, and the rates of the GPU, from the sources."""
    text = estimates()
    with open(os.path.join(HERE, "..", "gen", "cost", "cost.c"), encoding="ascii") as file:
        devices = file.read()
    shares = re.search(r"ein__math_share\[\] = \{(.*?)\};", text, re.S)
    c = {name.lower(): int(value)
         for name, value in re.findall(r"EIN__E_(\w+)\] = (\d+)", shares.group(1))}
    c["memory"] = int(re.search(r"ein__memory_share\[\] = \{(\d+)", text).group(1))
    for name in ("SKINNY", "CHANNELS", "SPLITS", "SPLIT_DEPTH", "CALL_RESIDENT", "CALL_APART",
                 "CALL_APART_TF32", "CALL_ACROSS", "CALL_ALONG",
                 "CONVERSION_SHARE", "CONV_POINT_PS", "CONV_DATA_PS", "MATMUL_END_PS",
                 "HALVES_BEGIN_PS"):
        c[name] = int(re.search(r"EIN__%s = (\d+)" % name, text).group(1))
    for kind in ("gemm", "conv"):
        for name, r in call_rates(text, kind).items():
            splits = c["SPLITS"] if r.pop("splits") == "EIN__SPLITS" else 1
            c["%s %s" % (kind, name)] = dict(r, splits=splits)
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


# ---- the model: gen/cost/estimate_calls.c ----

def ceil(a, b):
    return -(-a // b)


def math_ps(c, flop, share):
    return min(flop * 1000000 // (c["fp32"] * share), LIMIT)


def memory_ps(c, count, share, cached):
    rate = max(c["bandwidth"] * c["l2_rate"] // 100, c["bandwidth"]) if cached else c["bandwidth"]
    return min(count * 1000000000 // (rate * share), LIMIT)


def has_tensor_cores(c, arithmetic):
    return c["tf32"] > 0 if arithmetic == "TF32" else (
        arithmetic == "FP16" and c["fp16"] > c["fp32"])


def tiled_ps(c, arithmetic, r, size, share):
    m, n, k, batch = size
    peak = c[arithmetic.lower()] if has_tensor_cores(c, arithmetic) else c["fp32"]
    best = LIMIT
    for rows, columns, of in r["tiles"]:
        for split in range(1, (1 if batch > 1 else r["splits"]) + 1):
            each = ceil(ceil(m, rows) * ceil(n, columns) * batch * split, c["sms"])
            depth = max(ceil(k, split), c["SPLIT_DEPTH"] if split > 1 else 1)
            flop = each * c["sms"] * 2 * rows * columns * depth
            ps = flop * 1000000 // max(peak * (of * share // 1000), 1)
            ps += (r["start_ps"] + depth * r["term_ps"]) * ceil(each, c["CALL_RESIDENT"])
            if split > 1:
                ps += r["split_ps"] + memory_ps(c, m * n * 2 * 4 * split, c["memory"], True)
            best = min(best, ps)
    return best


def call_ps(c, kind, arithmetic, size, share):
    fma = tiled_ps(c, "FP32", c[kind + " FP32"], size, 1000)
    if not has_tensor_cores(c, arithmetic):
        return fma
    return min(fma, tiled_ps(c, arithmetic, c["%s %s" % (kind, arithmetic)], size, share))


def work_ps(c, arithmetic, count):
    memory = memory_ps(c, count, c["memory"], count <= c["l2_bytes"] // 2)
    return memory + arithmetic + c["node_ns"] * 1000


def fields(key):
    return {name: [int(v) for v in text.split("x")]
            for name, text in re.findall(r" (\w+)=([0-9x]+)", key)}


def product(values):
    return math.prod(values)


def arithmetic_of(key):
    return next(name for name, words in (("FP32", " f32 fma "), ("TF32", " f32 tf32 "),
                                         ("FP16", " f16 tensor ")) if words in key)


def estimate_gemm(c, f, key, arithmetic):
    batch, m, n, k = (f[name][0] for name in ("b", "m", "n", "k"))
    size = 2 if arithmetic == "FP16" else 4
    apart = any(f[name][0] * size % 16 for name in ("lda", "ldb", "ldc"))
    share = 1000
    if apart:
        share = c["CALL_APART_TF32" if arithmetic == "TF32" else "CALL_APART"]
    if arithmetic == "TF32" and f["ta"][0] != f["tb"][0]:
        share = share * c["CALL_ACROSS" if f["ta"][0] else "CALL_ALONG"] // 1000
    ps = call_ps(c, "gemm", arithmetic, (m, n, k, batch), share)
    if batch == 1 and arithmetic != "FP16" and (m <= c["SKINNY"] or n <= c["SKINNY"]):
        ps = min(ps, math_ps(c, 2 * m * n * k, c["gemm_skinny"]))
    ps += c["HALVES_BEGIN_PS"] if arithmetic == "FP16" else 0
    ps += c["MATMUL_END_PS"] * sum(f.get(name, [0])[0] for name in ("bias", "z"))
    left = m * k * size * (batch if f.get("sa", [0])[0] else 1)
    right = k * n * size * (batch if f.get("sb", [0])[0] else 1)
    out = 4 if " out=f32 " in key else size
    result = m * n * out * batch * (1 + f.get("z", [0])[0])
    return work_ps(c, ps, left + right + result)


def estimate_conv(c, f, key, arithmetic):
    n, channels, filters, groups = (f[name][0] for name in ("n", "c", "f", "g"))
    out, taps, strides = n * product(f["out"]), product(f["k"]), product(f["s"])
    size, nhwc = 2 if arithmetic == "FP16" else 4, " nhwc " in key
    each, of = ceil(channels, groups), ceil(filters, groups)
    result = size * filters * out
    count = size * channels * n * product(f["in"]) + size * taps * filters * each + result
    step, asked = 1 if arithmetic == "FP32" else 16 // size, arithmetic
    if nhwc and (channels % (step * groups) or filters % (step * groups)):
        arithmetic = "FP32"
    if key.startswith("conv_data "):
        size = (ceil(out, strides), of, ceil(taps, strides) * each, groups * strides)
        begin = c["CONV_DATA_PS"] if has_tensor_cores(c, asked) else 0
        return work_ps(c, call_ps(c, "gemm", arithmetic, size, 1000) + begin, count)
    size = (out, of, taps * (each if taps == 1 else max(each, c["CHANNELS"])), groups)
    ps = tiled_ps(c, "FP32", c["conv FP32"], size, 1000)
    if has_tensor_cores(c, arithmetic):
        plain = arithmetic == "FP16" and taps == 1 and strides == 1
        other = tiled_ps(c, arithmetic, c["%s %s" % ("gemm" if plain else "conv", arithmetic)],
                         size, 1000)
        if not nhwc:
            other += memory_ps(c, 2 * count, c["CONVERSION_SHARE"], False) + 3000 * c["node_ns"]
        ps = min(ps, other)
    if groups > 1:
        ps = min(ps, math_ps(c, 2 * out * taps * each * filters, c["conv_narrow"]))
    if taps == 1 and asked == "FP16" and has_tensor_cores(c, asked):
        ps += c["CONV_POINT_PS"]
    return work_ps(c, ps, count + result * f["z"][0])


def estimate(c, key):
    f = fields(key)
    if key.startswith("gemm "):
        return estimate_gemm(c, f, key, arithmetic_of(key))
    return estimate_conv(c, f, key, arithmetic_of(key))


# ---- rows ----

class Row:
    def __init__(self, line):
        key, ps, spread, estimated = line.split("\t")
        self.key, self.ps, self.spread = key, max(int(ps), 1), int(spread)
        self.estimated = int(estimated)
        self.arithmetic = arithmetic_of(key)
        self.held_out = hashlib.sha256(key.encode()).digest()[0] & 1


def read_rows(args):
    command = [args.einnet, "costs", "--estimates", "--gpu", args.gpu] + args.tables
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip() or "%s failed" % args.einnet)
    # Calls of several products have no constant of their own. FP32 in NHWC is not estimated: it is
    # taken only where a table says what it costs.
    return [Row(line) for line in done.stdout.splitlines()
            if not line.startswith("grouped ") and " f32 fma nhwc " not in line]


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
    memory = memory_ps(c, row.weights, k["unit"], False)
    for name, count in zip(ACCESS, row.bytes):
        memory += memory_ps(c, count, k[name], cached)
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
    for name in ("FP32", "TF32", "FP16"):
        of = [row for row in rows if row.arithmetic == name]
        if of:
            put_line("%s %s" % (name, title), "calls", errors(c, of),
                     *in_order([(row.ps, row.spread, estimate(c, row.key)) for row in of]))


# ---- the fit ----

def loss(c, rows):
    return sum(abs(math.log(estimate(c, row.key) / row.ps)) for row in rows)


def kind_of(row):
    return "gemm" if row.key.startswith("gemm ") else "conv"


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


def fit_rates(c, kind, arithmetic, rows):
    """The largest tile stays: few rows are so large that they tell its share."""
    rates = c["%s %s" % (kind, arithmetic)]
    flat = {"%dx%d" % tile[:2]: tile[2] for tile in rates["tiles"]}
    flat.update({name: rates[name] for name in ("start_ps", "term_ps", "split_ps")})
    more = {("gemm", "FP32"): ["gemm_skinny"], ("conv", "FP32"): ["conv_narrow"],
            ("gemm", "TF32"): ["CALL_APART_TF32", "CALL_ACROSS", "CALL_ALONG"],
            ("gemm", "FP16"): ["CALL_APART"]}.get((kind, arithmetic), [])
    if (kind, arithmetic) in (("conv", "TF32"), ("conv", "FP16")):
        more = ["CONVERSION_SHARE"]
    flat.update({name: c[name] for name in more})

    def with_these(now):
        tiles = [(m, n, now["%dx%d" % (m, n)]) for m, n, _ in rates["tiles"]]
        return dict(c, **{"%s %s" % (kind, arithmetic): dict(
            rates, tiles=tiles, **{name: now[name] for name in
                                   ("start_ps", "term_ps", "split_ps")})},
                    **{name: now[name] for name in more})

    names = [name for name in flat if flat[name] > 0 and name != "%dx%d" % rates["tiles"][0][:2]]
    new = descend(flat, names, lambda now: loss(with_these(now), rows),
                  lambda name: LIMIT if name.endswith("_ps") else MOST_SHARE.get(name, 1000))
    for name in names:
        print("%s %s %-16s %8d -> %8d" % (kind, arithmetic, name, flat[name], new[name]))
    return with_these(new)


def fit(c, rows):
    """FMA first: it is what the others fall back to."""
    for arithmetic in ("FP32", "TF32", "FP16"):
        for kind in ("gemm", "conv"):
            of = [row for row in rows if row.arithmetic == arithmetic and kind_of(row) == kind]
            if len(of) >= FEWEST:
                c = fit_rates(c, kind, arithmetic, of)
    return c


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
        rows = read_rows(args)
        check_model(c, rows)
        if args.models:
            judge_kernels(args, c)
    except (Failure, OSError, ValueError) as error:
        print("fit.py: %s" % error, file=sys.stderr)
        return 1
    fitted = [row for row in rows if not row.held_out]
    held_out = [row for row in rows if row.held_out]
    if len(fitted) < FEWEST or len(held_out) < FEWEST:
        print("fit.py: %d rows for library calls on %s are too few" % (len(rows), args.gpu),
              file=sys.stderr)
        return 1
    report("as they are, held-out half", c, held_out)
    if args.judge_only:
        return 0
    new = fit(c, fitted)
    report("fitted, its own half", new, fitted)
    report("fitted, held-out half", new, held_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
