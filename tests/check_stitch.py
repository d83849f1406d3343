#!/usr/bin/env python3
"""Two kernels as one, a slice of the tensor between them in shared memory.

tests/unseen/stitched.ein with sizes where Winograd's transforms follow each other: which kernels
are stitched and which may not be; right to the judge in several orders, also for races; a barrier
taken away is noticed. Sums by warps as parts of kernels. Tables of costs decide where they have
rows, and probes ask for these.
Ends with `N passed, N failed`.
"""

import os
import re
import sys
import tempfile

import harness
from harness import HERE, LONG, Checks, cost

MODEL = os.path.join(HERE, "unseen", "stitched.ein")
RACE = 88  # the judge's status for one
SIZES = ["--dim", "C=64", "--dim", "H=24", "--dim", "W=24", "--dim", "K=300"]

checks = Checks()


def emit(folder, *options, model=MODEL):
    return harness.emit(folder, model, *options)


def stitched(text):
    """The tensors that stitched kernels compute, in order."""
    return re.findall(r"^// +[\d.]+ us \w+\.? +(\S+) +k_stitch_", text, re.M)


def choices(folder):
    """What is stitched, where that is off, and that a plan with it is the cheaper one."""
    text = emit(folder, *SIZES)
    checks.expect("stitched", ["bc.data", "yc.data", "z", "c"], stitched(text))
    # Others read b too, so that its kernel stores it, and r, a short sum that u has once more; a
    # and q are nowhere in memory.
    places = re.findall(r"^#define v_([abqr]) ", text, re.M)
    checks.expect("stored", ["b", "r"], sorted(places))
    whole = emit(folder, "--inspect", *SIZES)
    checks.expect("with every tensor kept", [], stitched(whole))
    checks.expect("without fusion", [], stitched(emit(folder, "--rules=-fuse", *SIZES)))
    checks.expect("cheaper", True, cost(text) < cost(whole))
    types = os.path.join(HERE, "unseen", "stitched_types.ein")
    checks.expect("integers", ["y", "u", "s"], stitched(emit(folder, model=types)))
    wide = emit(folder, *[size.replace("24", "128") for size in SIZES])
    checks.expect("maps too large for shared memory", [],
                  [n for n in stitched(wide) if "data" in n])


def pools(count):
    """Two poolings of as many maps of 32 x 32."""
    return """ein 1
model pools
input x: f32[%d,1,34,34]
output y
p = MaxPool(x; kernel_shape=3, strides=1)
y = AveragePool(p; kernel_shape=2, strides=1)
""" % count


def concats(count):
    """A pooling of as many tensors, and a product of that with as many others."""
    names = [["%s%d" % (letter, i) for i in range(count)] for letter in "ab"]
    lines = ["ein 1", "model concats"]
    lines += ["input %s: f32[1,1,%d,%d]" % (n, 9 - k, 9 - k) for k in (0, 1) for n in names[k]]
    lines += ["output y", "c = Concat(%s; axis=1)" % ", ".join(names[0]),
              "p = MaxPool(c; kernel_shape=2, strides=1)",
              "d = Concat(%s; axis=1)" % ", ".join(names[1]), "e = Mul(p, d)",
              "y = AveragePool(e; kernel_shape=2, strides=1)"]
    return "\n".join(lines) + "\n"


def limits(folder):
    """What one kernel cannot count stays two: beyond 2^31 elements, and too many parameters."""
    path = os.path.join(folder, "limits.ein")
    for name, text, want in (("few maps", pools(2300), ["y"]),
                             ("as many as an int numbers", pools(0x7fffffff // 1024), ["y"]),
                             ("one more", pools(0x7fffffff // 1024 + 1), []),
                             ("as many operands as parameters", concats(29), ["e"]),
                             ("one more of each", concats(30), ["y"]),
                             ("as many as an operator has", concats(56), ["y"])):
        with open(path, "w") as file:
            file.write(text)
        checks.expect(name, want, stitched(emit(folder, model=path)))


def warps(folder):
    """A sum over what a block has is a warp's, as part of a stitched kernel or beside others."""
    text = emit(folder, model=os.path.join(HERE, "unseen", "squeeze.ein"))
    checks.expect("pooled by slices", ["p"], stitched(text))
    part = re.search(r"void part_reduce_\w+\([^)]*unsigned id\) \{\n"
                     r"    const unsigned lane = id % 32u;", text)
    checks.check("by warps", part is not None and "warp_sum" in text)
    path = os.path.join(folder, "beside.ein")
    with open(path, "w") as file:
        file.write("ein 1\nmodel beside\ninput a: f32[40,100]\ninput b: f32[70,36]\noutput s, t\n"
                   "s[i] = sum(k) a[i,k]\nt[i] = max(k) b[i,k]\n")
    text = emit(folder, model=path)
    checks.check("two by warps side by side", "// side by side: s, t" in text and
                 len(re.findall(r"void part_reduce_\w+\(", text)) == 2, text[:1500])


def tables(folder):
    """Rows of a table decide instead of estimates."""
    text = harness.probed(folder, MODEL, *SIZES)
    keys = sorted(set(re.findall(r'"(kernel stitch \w+)"', text)))
    table = os.path.join(folder, "table")
    for ps, taken in ((9000000, False), (1000, True)):
        harness.write_costs(table, keys, ps)
        text = emit(folder, "--costs", table, *SIZES)
        found = re.findall(r"^// .* us measured .* k_stitch_", text, re.M)
        checks.expect("stitched where a table says %d ps" % ps, 4 if taken else 0, len(found))


def runs(folder):
    """Right in all orders, no race; and a race without the barrier between the two."""
    program = harness.Judged(folder, MODEL, *SIZES)
    text = program.text
    checks.expect("right", 0, program.status(order="rand1"))
    checks.expect("no race", 0, program.status(mode="race"))
    kernels = text.split("static __global__ ")
    bare = "static __global__ ".join(
        kernel.replace("    __syncthreads();\n", "", 1) if " k_stitch_" in kernel[:200] else kernel
        for kernel in kernels)
    barrier = "__syncthreads();"
    checks.expect("barriers to take away", 4, text.count(barrier) - bare.count(barrier))
    if LONG:
        checks.expect("a race without them", RACE, program.status(bare, "race", ""))


def main():
    with tempfile.TemporaryDirectory() as folder:
        choices(folder)
        tables(folder)
        limits(folder)
        warps(folder)
        runs(folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
