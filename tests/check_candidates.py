#!/usr/bin/env python3
"""Candidates as `einnet explain --all --json` lists them, at small sizes.

Each is proved by `einnet verify --candidate`. Its equations, put into a model of their own with the
declarations of the original, must parse and give the original's values. Ids are places in a list
that is sorted by cost, and the trails' best costs never rise. Ends with `N passed, N failed`.
"""

import array
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks

HEAD = "ein 1\nmodel m\n"

# Layers that models/cases has not: name, text. The contraction is `y`.
MODELS = [
    ("conv1x7", HEAD + """input x: f32[1,5,4,9]
weight k: f32[3,5,1,7] = randn(std=0.1)
output y
y = Conv(x, k; pads=[0,3,0,3])
"""),
    ("no padding, one position", HEAD + """input x: f32[2,3,1,1]
weight k: f32[3,4,2,2] = randn(std=0.1)
output y
y = ConvTranspose(x, k; strides=2)
"""),
    ("transposed 5x5 s3", HEAD + """input x: f32[1,3,4,3]
weight k: f32[3,2,5,5] = randn(std=0.1)
output y
y = ConvTranspose(x, k; strides=3, pads=1)
"""),
    ("stride 2, dilation 3", HEAD + """input x: f32[1,3,12,11]
weight k: f32[4,3,3,3] = randn(std=0.1)
output y
y = Conv(x, k; strides=2, dilations=3, pads=2)
"""),
    ("groups", HEAD + """input x: f32[1,6,5,5]
weight k: f32[4,3,3,3] = randn(std=0.1)
output y
y = Conv(x, k; group=2, pads=1)
"""),
    ("one pixel", HEAD + """input x: f32[2,5,1,1]
weight k: f32[5,3,4,4] = randn(std=0.1)
weight l: f32[4,5,3,3] = randn(std=0.1)
output y, z
y = ConvTranspose(x, k)
z = Conv(x, l; pads=1)
"""),
    ("band", HEAD + """input a: f32[2,17,7]
input v: f32[2,17,5]
output y
y = GBMM(a, v; dilation=2)
"""),
    ("band of two axes", HEAD + """input x: f32[3,5,13]
input k: f32[3,5,13]
output y
y[i,j,h,w] = sum(c) x[c,h,w] * k[c,h+i-1,w-2*j+3] where i in 0:3, j in 0:4, pad k 0
"""),
    ("windows in both factors", HEAD + """input x: f32[9]
input k: f32[8]
output y
y[i] = sum(r,s) x[i+r-2] * k[i-r+s] where i in 0:9, r in 0:4, s in 0:3, pad x 0, pad k 0
"""),
    ("a name that clashes", HEAD + """input y.part: f32[2,3,6,6]
weight y.columns: f32[4,3,3,3] = randn(std=0.1)
output y
y = Conv(y.part, y.columns; pads=1)
"""),
]


def run(*args):
    return subprocess.run([EINNET] + list(args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def values(path, folder, small):
    """Outputs by name as lists, or the message."""
    done = run("eval", path, "--out", folder, *small)
    if done.returncode:
        return done.stdout.decode()
    found = {}
    for npy in glob.glob(os.path.join(folder, "*.npy")):
        with open(npy, "rb") as f:
            data = f.read()
        start = 10 + int.from_bytes(data[8:10], "little")
        kind = "d" if b"<f8" in data[:start] else "f"
        found[os.path.basename(npy)] = list(array.array(kind, data[start:]))
    return found


def near(a, b):
    scale = max(map(abs, a)) + 1e-30
    return len(a) == len(b) and all(abs(x - y) <= 1e-5 * scale for x, y in zip(a, b))


def fed_back(declarations, value, candidate, folder, small):
    """What the candidate's equations evaluate to, or the message."""
    path = os.path.join(folder, "fed.ein")
    with open(path, "w") as f:
        f.write(declarations + "output %s\n" % value)
        for step in candidate["steps"]:
            f.write(step["equation"] + "\n")
    found = values(path, os.path.join(folder, "fed"), small)
    return found if isinstance(found, str) else found[value + ".npy"]


def reads_declared(declarations, candidates):
    """Whether the contraction reads nothing that other equations of the model would define."""
    given = next(c for c in candidates if c["given"])["steps"][-1]["equation"]
    names = re.findall(r'("[^"]*"|[A-Za-z_][\w.]*)\[', given.split(" = ", 1)[1])
    return all(re.search(r"^(input|weight) %s:" % re.escape(n), declarations, re.M) for n in names)


def check_list(candidates):
    problems = []
    if [c["id"] for c in candidates] != list(range(len(candidates))):
        problems.append("ids are not places in the list")
    if [c["ps"] for c in candidates] != sorted(c["ps"] for c in candidates):
        problems.append("the list is not sorted by cost")
    for role in "chosen", "given":
        if sum(c[role] for c in candidates) != 1:
            problems.append("not one candidate is " + role)
    if sum(c["runner_up"] for c in candidates) != (len(candidates) > 1):
        problems.append("not one candidate is the runner-up")
    best = next(c for c in candidates if c["chosen"])["ps"]
    for c in candidates:
        for step in c["steps"]:
            costs = [t["best_ps"] for t in step["trail"]]
            if costs != sorted(costs, reverse=True) or any(ps < best for ps in costs):
                problems.append("candidate %d: costs so far %s" % (c["id"], costs))
            if "; ".join(t["rule"] for t in step["trail"]) != step["rules"]:
                problems.append("candidate %d: a trail is not its rules" % c["id"])
    return problems


def check_model(path, small, folder):
    """Problems, and how many candidates were proved and fed back."""
    done = run("explain", path, "--all", "--json", *small)
    if done.returncode:
        return [done.stdout.decode()], 0
    with open(path) as f:
        text = f.read()
    declarations = "".join(re.findall(r"^(?:ein|model|dim|small|input|weight) .*\n", text, re.M))
    original, problems, count = values(path, os.path.join(folder, "model"), small), [], 0
    for value in json.loads(done.stdout.decode())["values"]:
        name, candidates = value["value"], value["candidates"]
        problems += check_list(candidates)
        expected = original.get(name + ".npy")
        feed = reads_declared(declarations, candidates)
        candidates.sort(key=lambda c: not c["given"])
        for c in candidates:
            proof = run("verify", path, name, "--candidate", str(c["id"]), *small)
            if proof.returncode:
                problems.append("%s %d: %s" % (name, c["id"], proof.stdout.decode()))
            if not feed:
                continue
            found = fed_back(declarations, name, c, folder, small)
            expected = expected or found
            if isinstance(found, str) or not near(expected, found):
                problems.append("%s %d fed back: %s" % (name, c["id"], str(found)[:200]))
            count += 1
    return problems, count


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for i, (name, text) in enumerate(MODELS):
            path = os.path.join(folder, "m%d.ein" % i)
            with open(path, "w") as f:
                f.write(text)
            jobs.append((name, path, []))
        cases = glob.glob(os.path.join(ROOT, "models", "cases", "*.ein"))
        jobs += [(os.path.basename(c), c, ["--small"]) for c in sorted(cases)]
        for i, (name, path, small) in enumerate(jobs):
            work = os.path.join(folder, "w%d" % i)
            os.mkdir(work)
            problems, count = check_model(path, small, work)
            if not count:
                problems.append("no candidate was fed back")
            checks.passed += count
            for problem in problems:
                checks.check(name, False, problem)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
