#!/usr/bin/env python3
"""No size is special: every case of models/cases derives alike when its sizes change by one.

The rules in the candidates' trails must be the same, and their number nearly so: all dims larger by
one, each by itself, and each smaller by one where that is possible. A dim that is 1 makes a
dimension that is none, so it alone may change the number. Planning a network takes
no more than so much memory for each of its layers. Ends with `N passed, N failed`.
"""

import glob
import json
import os
import re
import subprocess
import sys

from harness import EINNET, ROOT, Checks

LAYER = 6500000  # bytes that planning may take for a layer of a transformer: some 5000 values


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


def peak_memory(path, *options):
    """Of emit, in bytes."""
    command = [EINNET, "emit", path, "-o", os.devnull, *options]
    emit = subprocess.Popen(command)
    _, status, used = os.wait4(emit.pid, 0)
    emit.returncode = os.waitstatus_to_exitcode(status)
    if emit.returncode:
        raise subprocess.CalledProcessError(emit.returncode, command)
    return used.ru_maxrss * 1024


def check_memory(checks):
    """Tables by value are filled in for a plan's own values: there are many times as many."""
    path = os.path.join(ROOT, "models", "bert_base.ein")
    few, many = (peak_memory(path, "--math", "fp16", "--dim", "Y=%d" % n) for n in (12, 36))
    layer = (many - few) // 24
    checks.none("memory", ["%d bytes for a layer of bert_base" % layer] if layer > LAYER else [])


def main():
    checks = Checks()
    check_memory(checks)
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
