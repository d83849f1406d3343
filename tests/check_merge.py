#!/usr/bin/env python3
"""What merging must find, by `einnet explain --all --json`: a merge of the stated members with the
stated library call. The sizes are the papers' and others, so that no shape can be special.

`einnet verify` must prove each plan, and `--candidate` each merge that is listed; its steps must cost
what it costs, and its trail must be its rules. Ends with `N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EINNET = os.environ.get("EINNET", os.path.join(HERE, "..", "build", "einnet"))
MODELS = os.path.join(HERE, "..", "models")


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


def gemm(batch, *sizes):
    return ("gemm", batch) + tuple(sorted(sizes))


def conv(c, f, group, r, s):
    return ("conv", c, f, group, r, s)


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


def check(text, rule, count, call, folder):
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as f:
        f.write(text)
    found = merges(path)
    return (check_found(found, "merging: " + rule, lambda m: len(m) == count, call) +
            proved(path, found))


def main():
    passed = failed = 0
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
        passed, failed = passed + (not problems), failed + bool(problems)
        for p in problems:
            print("FAIL %s: %s" % (name, p))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
