#!/usr/bin/env python3
"""What the kernels of a program ask of a GPU, counted on the CPU; no GPU is needed.

usage: profile.py [--math M] [--libs L] [--small] [--einnet BIN] [--all] MODEL.ein...

Emits each model, translates it with nvcc, and has the judge interpret the PTX (tests/judge/ptx.h)
with JUDGE_PROFILE set: instructions, the sectors of global memory and the cycles of shared memory
that warps ask for, what an SM's first cache misses, and the path of a block that waits for nothing
but its own operands (tests/judge/ptx_profile.cpp). Of large grids two SMs' blocks are run. From
that it models a time on an H200: the longest of what the schedulers, units, caches and blocks take.

It prints, by kernel, the plan's estimate, the modelled time with the launch that estimates have in
them, their ratio, and what binds; kernels whose ratio is furthest above one first. It is a model:
its rates and latencies are assumptions, it has not been held against a GPU, and what ptxas makes of
PTX is not in it. It finds estimates that cannot be right and accesses that move more than is used.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
JUDGE = os.path.join(HERE, "..", "tests", "judge", "judgecc")

SMS, GHZ, NODE = 132, 1.98, 1.3  # of an H200: its boost clock; microseconds of a graph's node
L2_BYTES = 24.5  # that an SM gets in a cycle when all of them ask
FILL_SECTORS = 2  # ... and that its own cache takes
SHARED_KB, REGISTERS, WARPS, BLOCKS = 228, 65536, 64, 32  # of an SM

FIELDS = ("grid threads shared blocks slots lanes fma whole special matrix memory requests sectors "
          "wanted misses lines fewest local barriers path longest").split()


class Launch:
    """A line of the profile: counts, and of `blocks` blocks added up."""

    def __init__(self, line, registers):
        self.name, *counts = line.split("\t")
        self.__dict__.update(zip(FIELDS, map(int, counts)))
        self.kernel = re.search(r"k_[a-z_]+_[0-9a-f]{8}", self.name).group()
        self.registers = registers.get(self.name, 32)

    def resident(self):
        """Blocks that an SM holds."""
        warps = math.ceil(self.threads / 32)
        registers = math.ceil(self.registers / 8) * 8 * 32 * warps
        return max(1, min(BLOCKS, WARPS // warps, REGISTERS // registers,
                          SHARED_KB * 1024 // (self.shared + 1024)))

    def times(self):
        """Microseconds by what binds."""
        on_sm = math.ceil(self.grid / SMS)
        waves = math.ceil(on_sm / self.resident())

        def us(count):
            return count / self.blocks * on_sm / (GHZ * 1e3)
        whole = (self.path / self.blocks * (waves - 1) + self.longest) / (GHZ * 1e3)
        spread = us(self.misses * 32 / L2_BYTES) * self.grid / SMS / on_sm
        return {"issue": us(self.slots / 4), "integers": us(self.whole / 4) * .7,
                "arithmetic": us((self.whole + self.fma) / 8), "special": us(self.special / 4),
                "tensor": us(self.matrix / 4), "first cache": us(self.memory),
                "L2": max(us(self.misses / FILL_SECTORS), spread), "path": whole}


def run(command, env=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, **(env or {})), check=False)
    if done.returncode:
        text = done.stdout.decode(errors="replace")
        raise RuntimeError("%s: status %d\n%s" % (command[0], done.returncode, text[-2000:]))
    return done.stdout.decode()


def registers_of(ptx):
    found, name = {}, None
    for line in run(["ptxas", "-arch=sm_90", "-v", "-o", os.devnull, ptx]).splitlines():
        entry = re.search(r"Compiling entry function '(\S+)'", line)
        used = re.search(r"Used (\d+) registers", line)
        name = entry.group(1) if entry else name
        if used:
            found[name] = int(used.group(1))
    return found


def steps_of(path):
    """Estimate, step and kernel of each step of a program that is a kernel's."""
    with open(path, encoding="utf-8") as file:
        found = re.findall(r"^// +([0-9.]+) us est\. (\S+) +(k_[a-z_]+_[0-9a-f]{8})", file.read(),
                           flags=re.M)
    return [(float(us), step, kernel) for us, step, kernel in found]


def profile(einnet, model, options, small, folder):
    """(estimate, step, Launch) of each step, and the launches as they came."""
    base = os.path.join(folder, "model")
    size = ["--small"] if small else []
    run([einnet, "emit", model, "-o", base + ".cu", "--test", base + "_test.cu"] + size + options)
    run([einnet, "pack", model, "-o", base + ".weights"] + size)
    run([JUDGE, "--quick", "--light", base + "_test.cu", "-o", base, base + ".cu"])
    run(["nvcc", "-std=c++14", "-ptx", "-arch=sm_90", "-o", base + ".ptx", base + ".cu"])
    counts = base + ".counts"
    run([base, base + ".weights", "--out", folder],
        {"JUDGE_PTX": base + ".ptx", "JUDGE_CC": "90", "JUDGE_PROFILE": counts})
    registers = registers_of(base + ".ptx")
    with open(counts, encoding="utf-8") as file:
        launches = [Launch(line, registers) for line in file.read().splitlines()]
    steps, at, found = steps_of(base + ".cu"), len(launches), []
    # What is launched once, at load, comes before what a run launches.
    for us, step, kernel in reversed(steps):
        before = [k for k in range(at) if launches[k].kernel == kernel]
        if before:
            at = before[-1]
            found.append((us, step, launches[at]))
    return found[::-1]


def show(found, everything):
    rows = []
    for us, step, launch in found:
        times = launch.times()
        binds = max(times, key=times.get)
        rows.append((times[binds] + NODE - us, us, times[binds] + NODE, binds, launch, step))
    rows.sort(key=lambda r: -r[0])
    print("estimate  model  ratio  binds        sectors/used  shared/least  blocks  kernel  step")
    for _, us, model, binds, c, step in rows if everything else rows[:20]:
        print("%8.1f %6.1f %6.2f  %-12s %12.2f  %12.2f %7d  %s  %s" % (
            us, model, model / us, binds, c.sectors / max(1, c.wanted),
            c.lines / max(1, c.fewest), c.grid, c.kernel, step))
    print("%d kernels: %.1f us estimated, %.1f us modelled" % (
        len(rows), sum(r[1] for r in rows), sum(r[2] for r in rows)))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--math")
    arguments.add_argument("--libs")
    arguments.add_argument("--small", action="store_true")
    arguments.add_argument("--all", action="store_true", help="all kernels, not the first 20")
    arguments.add_argument("--einnet", default=os.path.join(HERE, "..", "build", "einnet"))
    arguments.add_argument("models", nargs="+")
    a = arguments.parse_args()
    options = (["--math", a.math] if a.math else []) + (["--libs", a.libs] if a.libs else [])
    for model in a.models:
        with tempfile.TemporaryDirectory() as folder:
            print(" ".join([model] + options))
            show(profile(a.einnet, model, options, a.small, folder), a.all)
    return 0


if __name__ == "__main__":
    sys.exit(main())
