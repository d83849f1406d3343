#!/usr/bin/env python3
"""What the search costs and what its plans promise.

No plan is estimated above the untouched program, on a server and on an embedded GPU; single
problems saturate; equal layers are derived once; the engine is quick. Times are CPU times, the
best of several runs. Ends with `N passed, N failed`.
"""

import glob
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks

GPUS = ["h200", "agx-orin"]
ANCHORS = ["conv3x3", "conv5x5", "convtranspose", "g2bmm"]
ONE = ["--libs", "none"]  # one search: with libraries there is one without as well

checks = Checks()
check = checks.check


def cpu_ms():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def run(path, *options):
    """The emitted text, the statistics, and the command's CPU time in ms."""
    before = cpu_ms()
    done = subprocess.run([EINNET, "emit", path, "-o", "-", "--stats", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    after = cpu_ms()
    words = done.stderr.decode().split()
    stats = dict(zip(words[::2], words[1::2]))
    return done.stdout.decode(), stats, after - before


def best(path, n):
    """Least engine time in us, least command time in ms."""
    runs = [run(path, *ONE) for _ in range(n)]
    return min(int(r[1]["engine_us"]) for r in runs), min(r[2] for r in runs)


def microseconds(text, pattern):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else None


def check_costs(path):
    for gpu in GPUS:
        text = run(path, "--gpu", gpu)[0]
        mine = microseconds(text, r"steps?, ([0-9.]+) us")
        without = microseconds(text, r"us estimated; ([0-9.]+) us without")
        base = microseconds(run(path, "--gpu", gpu, "--baseline")[0], r"steps?, ([0-9.]+) us")
        check("%s on %s: %s us, %s us without derivation" % (path, gpu, mine, base),
              mine is not None and mine <= base and without in (None, base))


# A case, a budget, and a library call that the search comes to within it by distances, but not
# without convergence: kind and sizes. (tests/test_search.c has those that are not cheapest.)
WITHIN = [
    ("conv3x3", 20, ("gemm", {"m": 49, "n": 4608, "k": 512})),
    ("convtranspose", 34, ("gemm", {"m": 64, "n": 4096, "k": 448})),
]


def comes_to(path, call, *options):
    """Whether some candidate has the library call; a GEMM's m and n in any order."""
    done = subprocess.run([EINNET, "explain", path, "--all", "--json", *options],
                          stdout=subprocess.PIPE, check=True)
    kind, sizes = call
    for value in json.loads(done.stdout.decode())["values"]:
        for candidate in value["candidates"]:
            for match in [m for step in candidate["steps"] for m in step["matches"]]:
                turned = dict(match, m=match.get("n"), n=match.get("m")) if kind == "gemm" else {}
                if match["kind"] == kind and any(
                        sizes.items() <= m.items() for m in (match, turned)):
                    return True
    return False


def instructions(path):
    """Instructions of the whole command by callgrind: the same on every machine of a kind."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + os.path.join(folder, "out"),
             EINNET, "emit", path, "-o", os.devnull, *ONE], stderr=subprocess.PIPE, check=True)
    return int(re.search(r"Collected : ([0-9]+)", done.stderr.decode()).group(1))


def layers(n):
    return """ein 1
model deep
input x: f32[1,24,17,15]
output y
h = Relu(x)
repeat i in 0:%d {
    weight k: f32[24,24,3,3] = randn(std=0.1)
    weight b: f32[24] = randn(std=0.1)
    c = Conv(h, k, b; pads=1)
    h = Relu(c)
}
y = Add(h, x)
""" % n


def hybrid(n):
    return """ein 1
model hybrid
dim E = 64, G = 14, T = G*G, H = 4, D = E/H
input x: f32[1,E,G,G]
output h
h = Relu(x)
repeat layer in 0:%d {
    weight d: f32[E,1,3,3] = randn(std=0.3)
    weight k: f32[4*E,E,1,1] = randn(std=0.1)
    weight b: f32[4*E] = randn(std=0.1)
    weight m: f32[E,4*E,1,1] = randn(std=0.1)
    c = Conv(h, d; pads=1, group=E)
    e = Conv(c, k, b)
    g = Gelu(e)
    f = Conv(g, m)
    u = Add(f, h)
    weight scale: f32[E] = uniform(lo=0.5, hi=1.5)
    weight bias: f32[E] = randn(std=0.1)
    weight w: f32[E,3*E] = randn(std=0.1)
    weight o: f32[E,E] = randn(std=0.1)
    r = Reshape(u; shape=[1,E,T])
    t = Transpose(r; perm=[0,2,1])
    l = LayerNormalization(t, scale, bias)
    q = MatMul(l, w)
    p = Reshape(q; shape=[T,3,H,D])
    s[a,i,j] = 0.25 * sum(k) p[i,0,a,k] * p[j,1,a,k]
    y = Softmax(s; axis=-1)
    v[i,a,k] = sum(j) y[a,i,j] * p[j,2,a,k]
    z = Reshape(v; shape=[1,T,E])
    n = MatMul(z, o)
    A = Add(n, t)
    B = Transpose(A; perm=[0,2,1])
    h = Reshape(B; shape=[1,E,G,G])
}
""" % n


def main():
    models = sorted(glob.glob(os.path.join(ROOT, "models", "*.ein")))
    cases = sorted(glob.glob(os.path.join(ROOT, "models", "cases", "*.ein")))
    total = 0
    for path in models + cases:
        check_costs(path)
        stats = run(path)[1]
        check("%s: the search saturates" % path, stats["stop"] == "saturated")
        counted = sum(int(stats[k]) for k in ("d0", "d1", "d2", "d3", "d4", "d5", "unmapped"))
        check("%s: %d distances" % (path, counted), counted == int(stats["definitions"]))
        check("%s: every problem comes to an operator" % path, stats["nearest"] == "0")
    for path in models:
        engine, _ = best(path, 3)
        total += engine
        check("%s: %d us in the engine" % (path, engine), engine < 300e3)
    check("all models: %d us in the engine" % total, total < 1e6)
    for name in ANCHORS:
        path = os.path.join(ROOT, "models", "cases", name + ".ein")
        engine, command = best(path, 15)
        definitions = int(run(path, *ONE)[1]["definitions"])
        check("%s: %d definitions" % (name, definitions), definitions < 240)
        # The aims are 1500 and 8 on an idle core; machines that run this may be slower and shared.
        check("%s: %d us in the engine" % (name, engine), engine < 7200)
        check("%s: %.1f ms for the command" % (name, command), command < 14)
        if shutil.which("valgrind"):
            count = instructions(path)
            check("%s: %d instructions" % (name, count), count < 48e6)
    for name, states, call in WITHIN:
        path = os.path.join(ROOT, "models", "cases", name + ".ein")
        budget = ["--states", str(states)]
        check("%s: %s with %d states" % (name, call, states), comes_to(path, call, *budget))
        check("%s: %s with %d states, unguided" % (name, call, states),
              not comes_to(path, call, "--no-converge", *budget))
    path, last = os.path.join(ROOT, "models", "cases", "conv3x3.ein"), 0.0
    for form in range(1, 6):
        text = run(path, "--form", str(form))[0]
        found = re.search(r"^// plan .*, ([\d.]+) us estimated; contractions by derivation (\d+), ",
                          text, re.M)
        check("derivation %d is said to be one" % form, found and found.group(2) == str(form))
        us = float(found.group(1)) if found else 0.0
        # Layouts are chosen later.
        check("derivation %d: %s us after %s" % (form, us, last), us >= 0.85 * last)
        last = us
    sums = run(os.path.join(ROOT, "tests", "unseen", "running_sums.ein"))[0]
    check("running sums are made in blocks", "by        running sums in blocks 10\n" in sums)
    lines = run(os.path.join(ROOT, "tests", "unseen", "running_lines.ein"))[0]
    check("blocks go along lines of neighbours", len(re.findall("carry = 0", lines)) >= 7)
    # The thread of a line stores what it has at each place.
    check("threads go along short ones", re.search(r"for \(int i1 = 0; i1 < 19; i1\+\+\) \{\n"
                                                   r"(?:.*\n)*? +acc \+= (?:.*\n)*? +y\[", sums))
    stored = run(os.path.join(ROOT, "tests", "unseen", "scattered.ein"))[0]
    check("warps ask once for a row what is stored in it", stored.count("__any_sync(") == 6)
    check("loops leave out what is stored elsewhere", stored.count(")) continue;") == 1)
    path = os.path.join(ROOT, "tests", "unseen", "long_windows.ein")
    for options, count in ((), 7), (("--math", "fp16"), 6), (("--small", "--math", "tf32"), 3):
        text = run(path, *options)[0]
        check("long windows are products %s" % (options,), "windows in blocks %d" % count in text)
    bands = os.path.join(ROOT, "tests", "unseen", "correlations.ein")
    for options, count in ((), 6), (("--small",), 2), (("--small", "--math", "fp16"), 3):
        text = run(bands, *options)[0]
        check("narrow bands are diagonals %s" % (options,),
              "band as diagonals of products %d" % count in text)
    volumes = run(os.path.join(ROOT, "tests", "unseen", "volumes.ein"), "--small")[0]
    check("windows of volumes are in registers", volumes.count("x[d][j][k] = ") >= 4)
    pools = run(os.path.join(ROOT, "tests", "unseen", "wide_pools.ein"))[0]
    check("wide pools go one axis at a time", re.search("windows one axis at a time [56]", pools))
    parts = run(os.path.join(ROOT, "tests", "unseen", "triangles.ein"))[0]
    for who, loop in (("a thread", r"for \(int r0 = from_r0; r0 < until_r0; r0\+\+\)"),
                      ("a warp", r"for \(unsigned k = lane; k < \(unsigned\)until_r0; k \+= 32u\)"),
                      ("a column", r"k = threadIdx.y; k < \(unsigned\)until_r0; k \+= 8u\)"),
                      ("blocks", r"k = blockIdx.x .* k < \(unsigned\)\(\(until_r0 \+ 3\) / 4\);")):
        check("the loop of %s ends with what a guard leaves" % who, re.search(loop, parts))
    with tempfile.TemporaryDirectory() as folder:
        counts = []
        for n in (6, 12):
            path = os.path.join(folder, "deep.ein")
            with open(path, "w") as f:
                f.write(layers(n))
            counts.append(int(run(path)[1]["definitions"]))
        check("twice the layers: %s definitions" % counts, counts[1] <= counts[0] * 1.05)
        took, costs = [], []
        for n in (4, 24):
            path = os.path.join(folder, "hybrid.ein")
            with open(path, "w") as f:
                f.write(hybrid(n))
            text, _, ms = run(path, "--math", "fp16", "--gpu", "h200")
            took.append(ms)
            costs.append(microseconds(text, r"steps?, ([0-9.]+) us"))
        # Of many steps few plans are made.
        check("six times the blocks: %s ms" % took, took[1] < 4 * took[0])
        check("six times the blocks: %s us" % costs, costs[1] < 6.1 * costs[0])
    # Nor where each of fewer steps may be another one: not all choices with all others.
    path = os.path.join(ROOT, "tests", "unseen", "diffusion.ein")
    problems = int(run(path, "--math", "fp16")[1]["problems"])
    check("many plans of few steps: %d problems" % problems, problems < 8000)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
