#!/usr/bin/env python3
"""Maps in front of rows, as one kernel with them.

What passes of a row's kernel read at its own elements is computed by the first of them, in all
forms that such kernels have, stored where others read it too, and in another order than the rows
have it. Right to the judge, with faults planted wrong. Tables of costs decide where they have rows,
and probes ask for these. Ends with `N passed, N failed`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import harness
from harness import Checks

checks = Checks()

HEAD = """ein 1
model fronts
input x: f32[%(shape)s]
input z: f32[%(shape)s]
"""

# A normalization of what two inputs make; a softmax of it along a dimension before the last; one
# number for each of its rows.
NORM = HEAD + """weight g: f32[%(last)d] = uniform(seed=3, lo=0.5, hi=1.5)
output y%(also)s
a[i,k] = tanh(x[i,k]) + z[i,k] * 0.5
y = LayerNormalization(a, g, g; axis=-1)
"""
ACROSS = HEAD + """output y%(also)s
a[i,k,h] = tanh(x[i,k,h]) + z[i,k,h] * 0.5
y = Softmax(a; axis=%(axis)d)
"""

ENDED = HEAD + """output y%(also)s
a[i,k] = tanh(x[i,k]) + z[i,k] * 0.5
y = ReduceLogSumExp(a; axes=[1])
"""

# A sum of embeddings, normalized.
EMBEDDED = """ein 1
model embedded
input ids: i64[3,20]
weight word: f32[70,64] = randn(seed=1)
weight place: f32[20,64] = randn(seed=2)
weight g: f32[64] = uniform(seed=3, lo=0.5, hi=1.5)
weight b: f32[64] = randn(seed=4)
output o, a
e = Gather(word, ids; axis=0)
a = Add(e, place)
n = LayerNormalization(a, g, b; axis=-1)
o = Tanh(n)
"""

CASES = {
    "a warp": NORM % dict(shape="9,100", last=100, also=""),
    "a warp, an output": NORM % dict(shape="9,100", last=100, also=", a"),
    "a warp, no vectors, an output": NORM % dict(shape="9,101", last=101, also=", a"),
    "a block": NORM % dict(shape="5,3000", last=3000, also=""),
    "a block, an output": NORM % dict(shape="5,3000", last=3000, also=", a"),
    "a column": ACROSS % dict(shape="3,50,77", axis=1, also=""),
    "a column, an output": ACROSS % dict(shape="3,50,77", axis=1, also=", a"),
    "a long column, an output": ACROSS % dict(shape="2,900,41", axis=1, also=", a"),
    "a thread": ACROSS % dict(shape="20,6,90", axis=1, also=""),
    "a thread, an output": ACROSS % dict(shape="20,6,90", axis=1, also=", a"),
    "rows' sums": ENDED % dict(shape="9,130", also=""),
    "rows' sums, an output": ENDED % dict(shape="9,130", also=", a"),
    "embeddings, an output": EMBEDDED,
}


def written(folder, text):
    path = os.path.join(folder, "model.ein")
    with open(path, "w") as file:
        file.write(text)
    return path


def stores(text):
    """Whether a row's kernel stores what is in front of it, too."""
    return re.search(r" k_row_\w{8}\([^)]*\balso\b", text) is not None


def keeps(text):
    """Whether it has that in registers behind the first pass."""
    return re.search(r"^ +c\d\[j\](\.\w)? = .*(tanhf|v\d|p\d)", text, re.M) is not None


def forms(folder):
    for name, model in CASES.items():
        path = written(folder, model)
        for options in ([], ["--libs", "none", "--math", "fp16"]):
            text = harness.emit(folder, path, *options)
            said = "%s %s" % (name, " ".join(options))
            checks.expect(said, 1, harness.steps(text))
            checks.expect(said + ", stored", "output" in name, stores(text))
            checks.expect(said + ", kept", "thread" not in name, keeps(text))
        checks.check(name + ", without fusion",
                     harness.steps(harness.emit(folder, path, "--rules=-fuse")) > 1)


def runs(folder):
    for name, model in CASES.items():
        program = harness.Judged(folder, written(folder, model), "--libs", "none")
        for mode in ("plain", "race"):
            checks.expect("%s is right, %s" % (name, mode), 0, program.status(mode=mode))


def compiled(folder):
    """Long rows, and what they are made of in registers: none of it in memory, says nvcc."""
    for name in ("a block, an output", "a long column, an output"):
        harness.emit(folder, written(folder, CASES[name]))
        done = subprocess.run(["nvcc", "-std=c++14", "-arch=sm_87", "-cubin", "-Werror",
                               "all-warnings", "-Xptxas", "-warn-spills,-warn-lmem-usage",
                               "-Xptxas", "-Werror", "-o", os.path.join(folder, "out.cubin"),
                               os.path.join(folder, "out.cu")], capture_output=True, text=True)
        checks.check("%s is compiled" % name, done.returncode == 0, done.stdout + done.stderr)


def planted(folder):
    program = harness.Judged(folder, written(folder, CASES["a warp, an output"]))
    for name, what, instead in (("what is kept", r"(c0\[j\]) = tanhf", r"\1 = -tanhf"),
                                ("what is stored", r"also\[", "also[4 + ")):
        text = re.sub(what, instead, program.text, count=1)
        checks.notices(name + " wrong", program, text)


def tables(folder):
    path = written(folder, CASES["a warp, an output"])
    keys = set(re.findall(r'"(kernel row \w+)"', harness.probed(folder, path)))
    checks.check("asked for", len(keys) >= 2, keys)
    table = os.path.join(folder, "table")
    for name, ps, which in (("cheap", 1000, min), ("dear", 90000000, max)):
        found = []
        for key in sorted(keys):
            harness.write_costs(table, [key], ps)
            found.append(harness.steps(harness.emit(folder, path, "--costs", table)))
        checks.check("steps where a table says %s" % name, (which(found) > 1) == (ps > 1000), found)


def main():
    with tempfile.TemporaryDirectory() as folder:
        forms(folder)
        runs(folder)
        planted(folder)
        if shutil.which("nvcc"):
            compiled(folder)
        tables(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
