#!/usr/bin/env python3
"""Kernels whose last block finishes the work of the others.

tests/unseen/tail.ein, emitted without libraries, counts blocks in several steps; so do the
reductions of tests/unseen/long_rows.ein. Every step has counters and, on every branch, memory of
its own; whatever the order of blocks, the outputs are the same to the bit, in a first run, a second
one and a replayed graph; no mode of the judge complains.
Where such blocks are clusters (tests/unseen/clusters.ein), what nvcc makes of them computes the
same to the bit as without clusters.
What a table of costs says of shared tiles is taken; probes measure them. In a long run faults
planted in the emitted text are caught. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

import harness
from harness import EINNET, HERE, JUDGE, LONG, Checks

MODEL = os.path.join(HERE, "unseen", "tail.ein")
CLUSTERS = os.path.join(HERE, "unseen", "clusters.ein")
FAULT, RACE = 86, 88  # the judge's status for one

checks = Checks()


def expect(name, want, got):
    checks.check(name, want == got, "got %s, want %s" % (got, want))


def run(command, order="", ptx=None):
    env = dict(os.environ, JUDGE_ORDER=order, JUDGE_LEAKCHECK="1", OPENBLAS_NUM_THREADS="1")
    if ptx:
        env["JUDGE_PTX"] = ptx
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          env=env).returncode


def clashes(text):
    """Pairs of launches that share counters, or memory on different branches."""
    text = re.sub(r"\s+", " ", text)
    launch = re.compile(r'launch\(m, \w+, (k_\w+), "[^"]*", (\d+), (?:\d+|dim3\(.*?\)), '
                        r"(stream|m->on\[\d\]),[^;]*"
                        r"\(float4 \*\)(v_workspace\w*), v_arrived \+ (\d+)\)")
    parts = {name: int(n) for name, n in
             re.findall(r"(k_\w+)\((?:(?!__global__).)*?"
                        r"(?:arrived \+ blockIdx\.x / |parts_in_\w+<)(\d+)", text, re.S)}
    found = []
    for name, blocks, stream, memory, first in launch.findall(text):
        found.append((stream, memory, int(first), int(first) + int(blocks) // parts[name]))
    bad = 0
    for i, a in enumerate(found):
        for b in found[:i]:
            bad += a[2] < b[3] and b[2] < a[3]
            bad += a[0] != b[0] and a[1] == b[1]
    return len(found), bad


def replaced(text, old, new):
    if text.count(old) != 1:
        raise SystemExit("'%s' is %d times in the program" % (old, text.count(old)))
    return text.replace(old, new)


def measured(folder, build, outputs, how):
    """Rows of a probe with shared tiles: whether they are taken, and the program is right."""
    text = harness.probed(folder, MODEL, "--libs", "none")
    keys = set(re.findall(r'"(kernel product \w+ algo=[\w.]+)"', text))
    shared = {key.split(" algo=")[0]: key for key in sorted(keys) if how in key}
    expect("products that are shared in a probe", True, len(shared) >= 2)
    table = os.path.join(folder, "table")
    harness.write_costs(table, shared.values(), 1000)
    path = os.path.join(folder, "measured.cu")
    subprocess.run([EINNET, "emit", MODEL, "--libs", "none", "--costs", table, "-o", path],
                   check=True)
    with open(path) as file:
        text = file.read()
    want = sorted(re.search(r"\.[pc](\d+)$", key).group(1) for key in shared.values())
    found = re.findall(r"^// .* us measured .*, in (\d+) parts$", text, re.M)
    expect("parts of measured products", True, len(found) >= 2 and set(found) <= set(want))
    kind = "parts_in_cluster<" if how == ".c" else "parts_in_memory<"
    expect("how they share", len(found), len(re.findall(kind + r"[0-9].*> shares\(", text)))
    expect("measured products", 0, outputs(build("measured", "plain", text), "rand1")[0])


def clusters(folder):
    """What nvcc makes of clusters, by the judge's interpreter."""
    base = os.path.join(folder, "clusters")
    subprocess.run([EINNET, "emit", CLUSTERS, "--libs", "none", "-o", base + ".cu", "--test",
                    base + "_test.cu"], check=True)
    subprocess.run([EINNET, "pack", CLUSTERS, "-o", base + ".weights"], check=True)
    subprocess.run([JUDGE, "--quick", "-o", base, "--light", base + "_test.cu", base + ".cu"],
                   check=True)
    with open(base + ".cu") as file:
        text = file.read()
    expect("clusters", True, len(re.findall(r"parts_in_cluster<\d", text)) >= 1)

    def translate(source, *options):
        subprocess.run(["nvcc", "-std=c++14", "-ptx", "-arch=sm_90", "-o", source + ".ptx", source,
                        *options], check=True)

    def outputs(source, *options):
        with open(base + ".now.cu", "w") as file:
            file.write(source)
        translate(base + ".now.cu", *options)
        return interpreted("")

    def interpreted(order):
        out = base + ".out"
        os.makedirs(out, exist_ok=True)
        status = run([base, base + ".weights", "--check", "--out", out], order,
                     base + ".now.cu.ptx:" + base + "_test.cu.ptx")
        values = b""
        for name in sorted(os.listdir(out)):
            with open(os.path.join(out, name), "rb") as file:
                values += file.read()
        return status, values

    translate(base + "_test.cu")
    status, values = outputs(text, "-DNO_CLUSTERS")
    with open(base + ".now.cu.ptx") as file:
        expect("without clusters", (0, 0), (status, file.read().count("cluster")))
    for old, new, want in (
            ("void begin() const { __syncthreads(); }", "void begin() const {}", 1),
            ("tile) + N * 1024", "tile)", 1), ("    shares.leave(sum);\n", "", FAULT),
            ("arrive.aligned", "arrive.relaxed.aligned", FAULT)):
        faulty = text.replace(old, new)
        expect("'%s' is planted" % old, True, faulty != text)
        if LONG:
            expect("'%s' is '%s'" % (old, new), want, outputs(faulty)[0])
    for order, got in (("", outputs(text)), ("rev", interpreted("rev"))):
        expect("clusters " + order, (0, True), (got[0], got[1] == values))


def long_rows(folder):
    """Few long rows: the terms are shared, no block does a row alone; with many rows one does."""
    model = os.path.join(HERE, "unseen", "long_rows.ein")
    path = os.path.join(folder, "rows")
    for size in ([], ["--small"]):
        subprocess.run([EINNET, "emit", model, "--libs", "none", "-o", path] + size, check=True)
        with open(path) as file:
            text = file.read()
        steps = re.findall(r"^// .* us est\. .* k_(\w+?)_\w{8}(, in \d+ parts)?$", text, re.M)
        alone = [kind for kind, parts in steps if kind == "reduce" and not parts]
        expect("reductions that one block does", [], alone)
        expect("steps", {"map", "reduce"}, {s[0].replace("siblings", "map") for s in steps})
        expect("what they share", (True, 0), (clashes(text)[0] >= 7, clashes(text)[1]))
    with open(model) as file:
        many = file.read().replace("P = 8", "P = 1024").replace("Q = 65536", "Q = 4096")
    with open(path + ".ein", "w") as file:
        file.write(many)
    subprocess.run([EINNET, "emit", path + ".ein", "--libs", "none", "-o", path], check=True)
    with open(path) as file:
        text = file.read()
    with open(path + ".ein", "w") as file:
        file.write("ein 1\nmodel far\ninput x: f32[3000000000]\noutput y\ny = ReduceSum(x)\n")
    subprocess.run([EINNET, "emit", path + ".ein", "--libs", "none", "-o", path + ".far"],
                   check=True)
    with open(path + ".far") as file:
        expect("a row beyond 32 bits", 1, len(re.findall(r", in \d+ parts$", file.read(), re.M)))
    expect("kernels of whole rows", 2, len(re.findall(r"^// .* us est\..* k_row_", text, re.M)))


FENCES = re.compile(r"__threadfence\(\);")
ORDERS = ("", "rev", "rand1", "rand2")


def faults(text, build, outputs):
    """What is planted in the program is noticed."""
    program = build("kept", "plain", replaced(text, "atomicInc(arrived, n - 1u)",
                                              "atomicAdd(arrived, 1u)"))
    expect("counters that are not reset", 1, outputs(program, "")[0])
    first, second = (m.start() for m in FENCES.finditer(text))
    for name, at in (("before", first), ("after", second)):
        program = build(name, "race", text[:at] + text[at + len("__threadfence();"):])
        expect("no fence %s the count" % name, RACE, outputs(program, "rand1")[0])
    early = replaced(text, "int last = 0;\n    __syncthreads();", "int last = 0;")
    expect("no barrier before the count", RACE,
           outputs(build("early", "race", early), "")[0])
    own = replaced(text, "for (int p = 0; p < S::COUNT; p++) {",
                   "for (int q = 0; q < S::COUNT; q++) {\n"
                   "            const int p = (S::part() + q) % S::COUNT;")
    program = build("own", "plain", own)
    expect("parts in another order", True,
           len({outputs(program, order)[1] for order in ORDERS}) > 1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        long_rows(folder)
        clusters(folder)
        base = os.path.join(folder, "tail")
        subprocess.run([EINNET, "emit", MODEL, "--libs", "none", "-o", base + ".cu", "--test",
                        base + "_test.cu"], check=True)
        subprocess.run([EINNET, "pack", MODEL, "-o", base + ".weights"], check=True)
        with open(base + ".cu") as file:
            text = file.read()
        count, bad = clashes(text)
        expect("steps that count blocks", True, count >= 2)
        expect("steps side by side", True, "m->on[1]" in text)
        expect("what steps share", 0, bad)
        offset = re.findall(r"v_arrived \+ (\d+)", text)[-1]
        expect("counters that two steps share", 1,
               clashes(replaced(text, "v_arrived + " + offset, "v_arrived + 0"))[1])

        def build(name, mode, source):
            path = os.path.join(folder, name)
            with open(path + ".cu", "w") as file:
                file.write(source)
            subprocess.run([JUDGE, "--mode", mode, "-o", path, "--light", base + "_test.cu",
                            path + ".cu"], check=True)
            return path

        def outputs(program, order):
            out = os.path.join(folder, "out")
            os.makedirs(out, exist_ok=True)
            status = run([program, base + ".weights", "--check", "--out", out], order)
            values = b""
            for name in sorted(os.listdir(out)):
                with open(os.path.join(out, name), "rb") as file:
                    values += file.read()
            return status, values

        plain = build("plain", "plain", text)
        results = [outputs(plain, order) for order in ORDERS]
        expect("status in all orders", [0] * len(ORDERS), [r[0] for r in results])
        expect("different outputs", 1, len({r[1] for r in results}))
        for mode in ("race", "san"):
            expect(mode, 0, outputs(build(mode, mode, text), "rand3")[0])

        measured(folder, build, outputs, ".p")
        measured(folder, build, outputs, ".c")

        if LONG:
            faults(text, build, outputs)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
