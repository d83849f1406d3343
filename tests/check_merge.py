#!/usr/bin/env python3
"""What merging must find, by `einnet explain --all --json`: a merge of the stated members with the
stated library call. The sizes are the papers' and others, so that no shape can be special.

`einnet verify` must prove each plan, and `--candidate` each merge that is listed; its steps must
cost what it costs, and its trail must be its rules. Ends with `N passed, N failed`.
"""

import array
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks

MODELS = os.path.join(ROOT, "models")


def matmuls(m, k, widths):
    weights = "".join("weight w%d: f32[%d,%d] = randn(std=0.1)\n" % (i, k, n)
                      for i, n in enumerate(widths))
    body = "".join("a%d = MatMul(x, w%d)\nr%d = Tanh(a%d)\n" % (i, i, i, i)
                   for i in range(len(widths)))
    names = ", ".join("r%d" % i for i in range(len(widths)))
    return """ein 1
model matmuls
input x: f32[%d,%d]
%soutput y
%sy = Concat(%s; axis=1)
""" % (m, k, weights, body, names)


def independent(m, k, n):
    return """ein 1
model independent
input x1: f32[%d,%d]
input x2: f32[%d,%d]
input k1: f32[%d,%d]
input k2: f32[%d,%d]
output y
a1 = Relu(x1)
a2 = Tanh(x2)
p1 = MatMul(a1, k1)
p2 = MatMul(a2, k2)
y = Sub(p1, p2)
""" % (m, k, m, k, k, n, k, n)


def windows(c, f, g, h, w, r, s):
    return """ein 1
model windows
input x: f32[1,%d,%d,%d]
weight k1: f32[%d,%d,%d,%d] = randn(std=0.1)
weight k2: f32[%d,%d,1,1] = randn(std=0.1)
output y, z
a = Conv(x, k1; pads=[%d,%d,%d,%d])
b = Conv(x, k2)
y = Relu(a)
z = Tanh(b)
""" % (c, h, w, f, c, r, s, g, c, r // 2, s // 2, r // 2, s // 2)


def separable(c, a, h, w, r):
    return """ein 1
model separable
input x: f32[1,%d,%d,%d]
weight k1: f32[%d,%d,%d,1] = randn(std=0.1)
weight k2: f32[%d,%d,1,%d] = randn(std=0.1)
weight k3: f32[%d,%d,1,%d] = randn(std=0.1)
weight k4: f32[%d,%d,%d,1] = randn(std=0.1)
weight b1: f32[%d] = randn(std=0.1)
weight b2: f32[%d] = randn(std=0.1)
output y
dim P = %d
c1 = Conv(x, k1, b1; pads=[P,0,P,0])
t1 = Relu(c1)
c2 = Conv(t1, k2, b2; pads=[0,P,0,P])
t2 = Relu(c2)
c3 = Conv(x, k3, b2; pads=[0,P,0,P])
t3 = Relu(c3)
c4 = Conv(t3, k4, b1; pads=[P,0,P,0])
t4 = Relu(c4)
y = Add(t2, t4)
""" % (c, h, w, a, c, r, a, a, r, a, c, r, a, a, r, a, a, r // 2)


def summed(c, d, f, h, r):
    return """ein 1
model summed
input a: f32[1,%d,%d,%d]
input b: f32[1,%d,%d,%d]
weight k1: f32[%d,%d,%d,%d] = randn(std=0.1)
weight k2: f32[%d,%d,1,1] = randn(std=0.1)
output y
p = Conv(a, k1; pads=%d)
q = Conv(b, k2)
y = Add(p, q)
""" % (c, h, h, d, h, h, f, c, r, r, f, d, r // 2)


def model(declarations, equations):
    """A model of `name: type` inputs and weights (in that order, a blank line between) and
    equations; the last value of each line behind a '!' is an output."""
    inputs, weights = declarations
    outputs = [e[1:].split(" = ")[0].split("[")[0] for e in equations if e[0] == "!"]
    return "\n".join(["ein 1", "model m"] + ["input " + i for i in inputs] +
                     ["weight %s = randn(std=0.1)" % w for w in weights] +
                     ["output " + ", ".join(outputs)] + [e.lstrip("!") for e in equations]) + "\n"


def left(k, n, rows):
    """Weights on the left of one input."""
    return model((["x: f32[%d,%d]" % (k, n)],
                  ["w%d: f32[%d,%d]" % (i, m, k) for i, m in enumerate(rows)]),
                 ["!y%d = MatMul(w%d, x)" % (i, i) for i in range(len(rows))])


def turned(m, k, widths):
    """Weights stored the other way round, each second one."""
    dims = [(n, k) if i % 2 else (k, n) for i, n in enumerate(widths)]
    return model((["x: f32[%d,%d]" % (m, k)],
                  ["w%d: f32[%d,%d]" % ((i,) + d) for i, d in enumerate(dims)]),
                 ["!y%d = Gemm(x, w%d; transB=%d)" % (i, i, i % 2) for i in range(len(widths))])


def stacked(b, m, k, widths, act):
    """An input with a batch; biases and an activation behind each product."""
    return model((["x: f32[%d,%d,%d]" % (b, m, k)],
                  ["w%d: f32[%d,%d]" % (i, k, n) for i, n in enumerate(widths)] +
                  ["b%d: f32[%d]" % (i, n) for i, n in enumerate(widths)]),
                 sum((["p%d = MatMul(x, w%d)" % (i, i), "q%d = Add(p%d, b%d)" % (i, i, i),
                       "!y%d = %s(q%d)" % (i, act, i)] for i in range(len(widths))), []))


def batches(b, m, k, n, count):
    """Batched products of two inputs each, none of them a weight."""
    return model((["a%d: f32[%d,%d,%d]" % (i, b, m, k) for i in range(count)] +
                  ["b%d: f32[%d,%d,%d]" % (i, b, k, n) for i in range(count)], []),
                 ["!y%d = MatMul(a%d, b%d)" % (i, i, i) for i in range(count)])


def shared_activation(m, k, widths, side):
    """Products of one activation with several; `side`: where it stands."""
    other = ["[%d,%d]" % ((k, n) if side else (n, k)) for n in widths]
    x = "[%d,%d]" % ((m, k) if side else (k, m))
    return model((["x: f32" + x] + ["a%d: f32%s" % (i, d) for i, d in enumerate(other)], []),
                 ["t = Tanh(x)"] + ["s%d = Relu(a%d)" % (i, i) for i in range(len(widths))] +
                 ["!y%d = MatMul(%s)" % (i, "t, s%d" % i if side else "s%d, t" % i)
                  for i in range(len(widths))])


def branches(c, size, kernels, act):
    """Convolutions of one input with unequal channels and windows, each padded to keep its size,
    with a bias and an activation. `kernels`: channels and window of each."""
    weights, equations = [], []
    for i, (f, k) in enumerate(kernels):
        weights.append("k%d: f32[%d,%d,%s]" % (i, f, c, ",".join(map(str, k))))
        weights.append("b%d: f32[%d]" % (i, f))
        pads = [(n - 1) // 2 for n in k] + [n // 2 for n in k]
        equations += ["c%d = Conv(x, k%d, b%d; pads=%s)" % (i, i, i, str(pads).replace(" ", "")),
                      "!y%d = %s(c%d)" % (i, act, i)]
    return model((["x: f32[2,%d,%s]" % (c, ",".join(map(str, size)))], weights), equations)


def chain(sizes, tail):
    """((x w0) w1) ... with a map behind; `sizes`: rows of x, then the widths."""
    n = len(sizes) - 2
    return model((["x: f32[%d,%d]" % tuple(sizes[:2])],
                  ["w%d: f32[%d,%d]" % (i, sizes[i + 1], sizes[i + 2]) for i in range(n)]),
                 ["p%d = MatMul(%s, w%d)" % (i, "p%d" % (i - 1) if i else "x", i)
                  for i in range(n)] + ["!y = %s(p%d)" % (tail, n - 1)])


def attention(b, t, d):
    """Attention without a softmax: (q k) v."""
    return model((["q: f32[%d,%d,%d]" % (b, t, d), "k: f32[%d,%d,%d]" % (b, d, t),
                   "v: f32[%d,%d,%d]" % (b, t, d)], []), ["s = MatMul(q, k)", "!y = MatMul(s, v)"])


def two_convolutions(c, d, f, h, first, second):
    """A convolution behind a convolution; one of them is 1x1."""
    return model((["x: f32[1,%d,%d,%d]" % (c, h, h)],
                  ["k1: f32[%d,%d,%d,%d]" % (d, c, first, first),
                   "k2: f32[%d,%d,%d,%d]" % (f, d, second, second)]),
                 ["u = Conv(x, k1; pads=%d)" % (first // 2),
                  "!y = Conv(u, k2; pads=%d)" % (second // 2)])


def gemm(batch, *sizes):
    return ("gemm", batch) + tuple(sorted(sizes))


def conv(c, f, group, *window):
    return ("conv", c, f, group) + window


RE = "re-association"

# name, model, rule, members, call that the merge matches
CASES = [
    ("unequal widths", matmuls(512, 768, [768, 768, 768]), "shared input", 3,
     gemm(1, 512, 768, 2304)),
    ("unequal widths, other sizes", matmuls(33, 20, [7, 40, 12, 5]), "shared input", 4,
     gemm(1, 33, 20, 64)),
    ("equal widths as a batch", matmuls(512, 768, [768, 768, 768]), "batched", 3,
     gemm(3, 512, 768, 768)),
    ("independent products", independent(64, 32, 48), "batched", 2, gemm(2, 64, 32, 48)),
    ("independent, other sizes", independent(9, 31, 5), "batched", 2, gemm(2, 9, 31, 5)),
    ("conv3x3 and conv1x1 as one product", windows(64, 64, 128, 28, 28, 3, 3), "shared input", 2,
     gemm(1, 64 * 9 + 128, 784, 64)),
    ("the same, other sizes", windows(10, 6, 9, 7, 12, 3, 3), "shared input", 2,
     gemm(1, 63, 84, 10)),
    ("conv3x3 and conv1x1 by padding", windows(64, 64, 128, 28, 28, 3, 3), "shared input", 2,
     conv(64, 192, 1, 3, 3)),
    ("conv5x3 and conv1x1 by padding", windows(5, 8, 4, 11, 9, 5, 3), "shared input", 2,
     conv(5, 12, 1, 5, 3)),
    ("separable, first layer", separable(1024, 85, 14, 14, 5), "shared input", 2,
     gemm(1, 850, 196, 1024)),
    ("separable, second layer", separable(1024, 85, 14, 14, 5), "batched", 2,
     gemm(2, 425, 196, 85)),
    ("separable, other sizes", separable(11, 6, 9, 13, 7), "shared input", 2,
     gemm(1, 84, 117, 11)),
    ("separable, second, other sizes", separable(11, 6, 9, 13, 7), "batched", 2,
     gemm(2, 42, 117, 6)),
    ("sum of convolutions", summed(16, 24, 32, 14, 3), "sum of products", 2,
     conv(40, 32, 1, 3, 3)),
    ("sum, other sizes", summed(5, 3, 7, 10, 1), "sum of products", 2, conv(8, 7, 1, 1, 1)),
    ("weights on the left", left(24, 40, [16, 7]), "shared input", 2, gemm(1, 23, 40, 24)),
    ("five on the left", left(13, 9, [3, 8, 5, 1, 6]), "shared input", 5, gemm(1, 23, 9, 13)),
    ("turned weights", turned(20, 12, [9, 14, 5]), "shared input", 3, gemm(1, 20, 28, 12)),
    ("turned weights as a batch", turned(20, 12, [9, 9]), "batched", 2, gemm(2, 20, 9, 12)),
    ("an input with a batch", stacked(3, 10, 16, [8, 24], "Relu"), "shared input", 2,
     gemm(1, 30, 32, 16)),
    ("five with biases", stacked(2, 7, 5, [4, 9, 2, 6, 3], "Sigmoid"), "shared input", 5,
     gemm(1, 14, 24, 5)),
    ("batched products as one", batches(4, 9, 16, 7, 3), "batched", 3, gemm(12, 9, 7, 16)),
    ("two products of inputs", batches(1, 33, 8, 20, 2), "batched", 2, gemm(2, 33, 20, 8)),
    ("five products of inputs", batches(1, 6, 11, 4, 5), "batched", 5, gemm(5, 6, 4, 11)),
    ("a shared activation", shared_activation(32, 24, [10, 17, 6], True), "shared input", 3,
     gemm(1, 32, 33, 24)),
    ("a shared activation on the right", shared_activation(9, 14, [21, 5], False), "shared input",
     2, gemm(1, 26, 9, 14)),
    ("branches of unequal windows", branches(7, [9, 11], [(4, [3, 3]), (6, [5, 5]), (3, [1, 1])],
                                             "Relu"), "shared input", 3, conv(7, 13, 1, 5, 5)),
    ("1x7, 7x1 and 3x3", branches(4, [10, 8], [(5, [1, 7]), (2, [7, 1]), (3, [3, 3])], "Tanh"),
     "shared input", 3, gemm(2, 35 + 14 + 27, 80, 4)),
    ("1-D branches", branches(6, [30], [(5, [3]), (9, [5])], "Relu"), "shared input", 2,
     conv(6, 14, 1, 5)),
    ("3-D branches", branches(3, [5, 6, 4], [(4, [3, 1, 3]), (2, [1, 1, 1])], "Sigmoid"),
     "shared input", 2, conv(3, 6, 1, 3, 1, 3)),
    ("a narrow middle", chain([60, 40, 30, 20], "Relu"), RE, 2, gemm(1, 60, 20, 40)),
    ("three in a row", chain([9, 5, 11, 6, 7], "Tanh"), RE, 2, gemm(1, 9, 7, 5)),
    ("attention without softmax", attention(3, 200, 16), RE, 2, gemm(3, 200, 16, 16)),
    ("conv1x1, conv3x3", two_convolutions(6, 20, 9, 12, 1, 3), RE, 2, conv(6, 9, 1, 3, 3)),
    ("conv5x5, conv1x1", two_convolutions(3, 11, 4, 10, 5, 1), RE, 2, conv(3, 4, 1, 5, 5)),
]

# name, file, members, call
FILES = [
    ("three matmuls", "cases/three_matmuls.ein", {"q", "k", "v"}, gemm(1, 512, 2304, 768)),
    ("four 1x1 convolutions", "cases/four_conv1x1.ein", {"a", "b", "c", "d"},
     conv(768, 704, 1, 1, 1)),
    ("projections of longformer", "longformer.ein", {"q", "k", "v"}, gemm(1, 10000, 1536, 512)),
    ("large kernels of gcn", "gcn.ein", {"l3.c1.0.sum", "l3.c3.0.sum"}, gemm(1, 850, 196, 1024)),
    ("their second layer", "gcn.ein", {"l3.c2.0.sum", "l3.c4.0.sum"}, gemm(2, 425, 196, 85)),
]


def merges(path):
    done = subprocess.run([EINNET, "explain", path, "--all", "--json"], stdout=subprocess.PIPE,
                          check=True)
    return json.loads(done.stdout.decode())["merges"]


def calls(merge):
    for call in merge["matches"]:
        if call["kind"] == "gemm":
            yield gemm(call["batch"], call["m"], call["n"], call["k"])
        else:
            yield ("conv", call["c"], call["f"], call["group"]) + tuple(call["filter"])


def check_found(found, rule, members, call):
    if any(m["rule"] == rule and members(m["members"]) and call in calls(m) for m in found):
        return []
    return ["no merge by %s matches %s" % (rule, call)]


def check_merge(m):
    """What must hold of every merge, whatever it is."""
    problems = []
    if m["chosen"] and m["ps"] >= m["members_ps"]:
        problems.append("is chosen and saves nothing")
    if sum(s["ps"] for s in m["steps"]) != m["ps"]:
        problems.append("costs %d, its steps %s" % (m["ps"], [s["ps"] for s in m["steps"]]))
    if len(m["steps"]) < 2:
        problems.append("has fewer than two steps")
    for step in m["steps"]:
        costs = [t["best_ps"] for t in step["trail"]]
        if costs != sorted(costs, reverse=True) or any(c > m["members_ps"] for c in costs):
            problems.append("costs so far %s" % costs)
        if "; ".join(t["rule"] for t in step["trail"]) != step["rules"]:
            problems.append("a trail is not its rules")
    if not any(t["rule"] == m["rule"] for s in m["steps"] for t in s["trail"]):
        problems.append("no trail has its rule")
    return ["merge %d %s" % (m["id"], p) for p in problems]


def proved(path, found):
    """Problems of the plan and of every merge of a model, each proved by the command."""
    problems = [p for m in found for p in check_merge(m)]
    for what in [[]] + [["--candidate", str(m["id"])] for m in found]:
        done = subprocess.run([EINNET, "verify", path] + what, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            problems.append("verify %s: %s" % (" ".join(what), done.stdout.decode().strip()))
    return problems


def values(text, outputs, folder):
    """What a model's values are, by name, or the message."""
    path, out = os.path.join(folder, "fed.ein"), tempfile.mkdtemp(dir=folder)
    with open(path, "w") as f:
        f.write(re.sub(r"^output .*", "output " + ", ".join(outputs), text, flags=re.M))
    done = subprocess.run([EINNET, "eval", path, "--out", out], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        return done.stdout.decode()
    found = {}
    for name in outputs:
        with open(os.path.join(out, name + ".npy"), "rb") as f:
            data = f.read()
        found[name] = array.array("d" if b"<f8" in data[:80] else "f",
                                  data[10 + int.from_bytes(data[8:10], "little"):])
    return found


def fed_back(text, m, folder):
    """The merge's equations in the place of the model's own must give the same values. Merges of
    sums that the model has inside an operator, and those of values that merges of earlier rounds
    made, have no place in the model's text."""
    steps = [s["equation"] for s in m["steps"]]
    defined = {e.split("[", 1)[0] for e in steps}
    kept = [e for e in text.splitlines() if re.split(r"[\[ ]", e, maxsplit=1)[0] not in defined]
    at = len([e for e in kept if re.match("(ein|model|dim|small|input|weight|output) ", e)])
    names = sorted(set(re.findall(r"^([\w.]+)(?:\[.*?\])? = ", text, re.M)) & defined)
    if not names:
        return []
    given = values(text, names, folder)
    for end in range(len(kept), at - 1, -1):
        fed = values("\n".join(kept[:end] + steps + kept[end:]) + "\n", names, folder)
        if not isinstance(fed, str):
            break
    if isinstance(fed, str):
        return [] if "undefined tensor" in fed else ["merge %d fed back: %s" % (m["id"], fed)]
    bad = [n for n in names if len(given[n]) != len(fed[n]) or
           any(abs(x - y) > 1e-4 * max(map(abs, given[n])) for x, y in zip(given[n], fed[n]))]
    return ["merge %d fed back gives another %s" % (m["id"], n) for n in bad]


def check(text, rule, count, call, folder):
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as f:
        f.write(text)
    found = merges(path)
    # Evaluation goes element by element.
    small = max(map(int, re.findall(r"\d+", text))) <= 64
    rule = rule if rule == RE else "merging: " + rule
    return (check_found(found, rule, lambda m: len(m) == count, call) + proved(path, found) +
            sum((fed_back(text, m, folder) for m in found if small), []))


def main():
    checks = Checks()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text, rule, count, call in CASES:
            results.append((name, check(text, rule, count, call, folder)))
    for name, path, members, call in FILES:
        found = merges(os.path.join(MODELS, path))
        kinds = ("merging: shared input", "merging: batched")
        tries = [check_found(found, k, lambda m: set(m) == members, call) for k in kinds]
        results.append((name, min(tries, key=len)))
    for name, problems in results:
        checks.none(name, problems)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
