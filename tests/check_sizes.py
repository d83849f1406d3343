#!/usr/bin/env python3
"""No size is special: every case of models/cases derives alike when its sizes change by one.

The rules in the candidates' trails must be the same, and their number nearly so: all dims larger by
one, each by itself, and each smaller by one where that is possible. A dim that is 1 makes a
dimension that is none, so it alone may change the number. Planning a network takes
no more than so much memory for each of its layers, and times as long with times as many, of which
the last ones cost what the first ones do. Ends with `N passed, N failed`.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks, cost, emit

LAYER = 6500000  # bytes that planning may take for a layer of a transformer: some 5000 values
GROWTH = 9  # times as long that four times as many layers may take to plan; squares take 16

# Sums that are read where the next layer's are made, none of which may be one with another.
GRAPH = """ein 1
model graph
dim V = 64, D = 8, C = 16, Y = 4
input x: f32[V,C]
input n: i32[V,D]
output y
a = Identity(x)
repeat i in 0:Y {
  weight w: f32[C,C] = randn(seed=1, std=0.2)
  weight u: f32[C,C] = randn(seed=2, std=0.2)
  m[v,c] = 0.125 * sum(d) a[@n[v,d],c] where d in 0:D
  t[v,e] = sum(c) m[v,c] * w[c,e]
  r[v,e] = sum(c) a[v,c] * u[c,e]
  a[v,e] = relu(t[v,e] + r[v,e])
}
y = Identity(a)
"""
# Weights made of weights, each read several times by the next.
MADE = """ein 1
model made
dim N = 16, Y = 4
input x: f32[N,N]
weight s: f32[N,N] = randn(seed=1, std=0.3)
output y
w = Identity(s)
repeat k in 0:Y {
  w[i,j] = 0.5 * tanh(w[i,j]) + 0.2 * w[j,i] + 0.1 * tanh(w[N-1-i,j])
}
y = MatMul(x, w)
"""


def rule_name(text):
    """Without what it was applied to."""
    return re.sub(r" *\([^)]*\)", "", text).strip()


def derivations(path, dims):
    """By contraction: the number of candidates, and the rules that led to them."""
    command = [EINNET, "explain", path, "--all", "--json"]
    for name, value in dims.items():
        command += ["--dim", "%s=%d" % (name, value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = {}
    for value in json.loads(done.stdout.decode())["values"]:
        rules = {rule_name(r) for c in value["candidates"] for s in c["steps"]
                 for r in s["rules"].split("; ") if r}
        found[value["value"]] = (len(value["candidates"]), rules)
    return found


def model_dims(path):
    with open(path) as f:
        line = re.search(r"^dim (.*)$", f.read(), re.M).group(1)
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)(?=,|$)", line)}


def compare(old, new):
    if old.keys() != new.keys():
        return ["other contractions: %s and %s" % (sorted(old), sorted(new))]
    problems = []
    for name, (count, rules) in old.items():
        # A second image may need an operand written out where one image is a product as it stands.
        if rules - new[name][1]:
            problems.append("%s: rules %s" % (name, sorted(rules - new[name][1])))
        if new[name][0] < count - max(2, count // 4):
            problems.append("%s: %d candidates, %d before" % (name, new[name][0], count))
    return problems


def used_by_emit(path, *options):
    """What emit takes."""
    command = [EINNET, "emit", path, "-o", os.devnull, *options]
    emit = subprocess.Popen(command)
    _, status, used = os.wait4(emit.pid, 0)
    emit.returncode = os.waitstatus_to_exitcode(status)
    if emit.returncode:
        raise subprocess.CalledProcessError(emit.returncode, command)
    return used


def check_memory(checks):
    """Tables by value are filled in for a plan's own values: there are many times as many."""
    path = os.path.join(ROOT, "models", "bert_base.ein")
    few, many = (used_by_emit(path, "--math", "fp16", "--dim", "Y=%d" % n).ru_maxrss * 1024
                 for n in (12, 36))
    layer = (many - few) // 24
    checks.none("memory", ["%d bytes for a layer of bert_base" % layer] if layer > LAYER else [])


def check_growth(checks, folder, text, few):
    """Seconds of a processor, of which a tenth more is a start's."""
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as file:
        file.write(text)
    less, more = (used_by_emit(path, "--math", "fp16", "--dim", "Y=%d" % n).ru_utime
                  for n in (few, 4 * few))
    bad = ["%.2f s, and %.2f s for 4 times the layers" % (less, more)]
    checks.none("growth of %s" % text.split()[3], bad if more > GROWTH * less + 0.1 else [])


def check_last_layers(checks, folder):
    """Kernels of the same layers become one wherever these are in a long plan."""
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as file:
        file.write(GRAPH)
    some, more = (cost(emit(folder, path, "--dim", "Y=%d" % n)) for n in (128, 192))
    bad = ["%g us, and %g us for half as many layers more" % (some, more)]
    checks.none("last layers", bad if more > 1.52 * some else [])


def main():
    checks = Checks()
    check_memory(checks)
    with tempfile.TemporaryDirectory() as folder:
        check_growth(checks, folder, GRAPH, 128)
        check_growth(checks, folder, MADE, 6)
        check_last_layers(checks, folder)
    for path in sorted(glob.glob(os.path.join(ROOT, "models", "cases", "*.ein"))):
        dims = model_dims(path)
        base = derivations(path, {})
        changes = [{n: v + 1 for n, v in dims.items()}]
        changes += [{n: v + 1 for n, v in dims.items() if v > 1}]
        changes += [{n: v + 1} for n, v in dims.items()]
        changes += [{n: v - 1} for n, v in dims.items() if v > 4]
        for change in changes:
            problems = compare(base, derivations(path, change))
            checks.none("%s with %s" % (os.path.basename(path), change), problems)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
