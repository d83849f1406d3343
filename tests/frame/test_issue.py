#!/usr/bin/env python3
"""The model of bench/issue.py on loops whose cycles can be counted by hand."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

import issue  # noqa: E402

COUNT = {"passed": 0, "failed": 0}


def line(address, text, stall=1, writes=7, reads=7, waits=0):
    high = stall << 41 | writes << 46 | reads << 49 | waits << 52
    return "        /*%04x*/  %s ;  /* 0x0000000000000000 */\n  /* 0x%016x */\n" % (
        address, text, high)


def listing(instructions):
    """A loop of (text, control) and the branch back to its begin."""
    lines = ["\t\tFunction : k\n"]
    for n, (text, control) in enumerate(instructions):
        lines.append(line(16 * n, text, **control))
    lines.append(line(16 * len(instructions), "@P0 BRA 0x0"))
    return "".join(lines)


def fma(n, registers=(1, 2, 3), **control):
    return [("FFMA R%d, R%d, R%d, R%d" % (8 + n, *registers), control)]


def expect(name, instructions, resident, column, value, warps=8):
    bodies = list(issue.loops(issue.parse(listing(instructions))["k"]))
    got = issue.measure(bodies[0], resident, 500, warps)[column] if len(bodies) == 1 else None
    good = got is not None and abs(got - value) < 1e-9 * max(1, value)
    COUNT["passed" if good else "failed"] += 1
    if not good:
        print("%s: %s, not %s" % (name, got, value))


def main():
    plain = [i for n in range(40) for i in fma(n)]
    # Two warps a scheduler and block, an instruction a cycle, the branch included.
    expect("issue", plain, 1, 0, 2 * 41)
    expect("two blocks", plain, 2, 0, 4 * 41)
    expect("blocks of four warps", plain, 1, 0, 41, warps=4)
    kernels = ("static __global__ void __launch_bounds__(128, 1) k_some_01234567(float *y) {}\n"
               "static __global__ void CLUSTER(2) k_other_01234567(float *y) {}\n")
    good = issue.block_warps(kernels) == {"k_some_01234567": 4}
    COUNT["passed" if good else "failed"] += 1
    expect("share of the multipliers", plain, 1, 1, 80 / 82)
    # Three registers of one bank take a cycle more.
    banks = [i for n in range(40) for i in fma(n, (2, 4, 6))]
    expect("banks", banks, 1, 0, 2 * 81)
    # Dependent instructions: two warps fill half of what four cycles would hold.
    chain = [i for n in range(40) for i in fma(n, stall=4)]
    expect("stalls", chain, 1, 0, 40 * 4 + 1)
    # Eight warps that load 20 times four words, two lines each.
    loads = [("LDS.128 R20, [R1]", {}) for _ in range(20)]
    expect("shared memory", plain + loads, 1, 0, 8 * 20 * 2)
    expect("shared memory's share", plain + loads, 1, 4, 1)
    # Whoever waits for a load from afar has it when it is there: one turn at a time.
    far = [("LDG.E R4, [R2]", {"writes": 0})] + fma(0, waits=1) + plain
    slow = issue.measure(next(issue.loops(issue.parse(listing(far))["k"])), 1, 2000)[0]
    good = 2000 <= slow <= 2000 + 2 * 42
    COUNT["passed" if good else "failed"] += 1
    if not good:
        print("latency: %s" % slow)
    # Not a loop that multiplies.
    COUNT["failed" if list(issue.loops(issue.parse(listing(plain[:4]))["k"])) else "passed"] += 1
    print("%(passed)d passed, %(failed)d failed" % COUNT)
    return COUNT["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
