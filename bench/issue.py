#!/usr/bin/env python3
"""What binds the loops of emitted kernels, from what nvcc makes of them; no GPU is needed.

usage: issue.py [--arch sm_90] [--kernel REGEX] [--resident N,...] [--l2 CYCLES] FILE.cu

Compiles FILE.cu, disassembles it (cuobjdump), and issues each innermost loop that multiplies on a
model of one SM: four schedulers that issue one instruction a cycle each, warps in order, the stall
counts and scoreboards that ptxas wrote into the instructions, barriers of blocks, one path to
shared memory of 128 bytes a cycle, tensor cores at the rate of mma.sync. Forward branches are not
taken. It prints instructions, cycles a turn, and how busy the multipliers, the schedulers and
shared memory are. It is a model: its latencies are assumptions (below), and it has not been held
against a GPU. It finds what waits for what; it does not say how fast a kernel is.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

SCHEDULERS, WARPS, NEVER = 4, 8, 7  # of an SM; warps of a block, unless told; no scoreboard
TURNS = (8, 24)  # of a loop: between these the model is in its stride

# Cycles in which an instruction keeps its unit, and after which its result is there; assumed for
# Hopper. mma.sync: 62 % of the rate that wgmma has (512 products of halves a scheduler and cycle).
MMA = 6.4
UNITS = {
    "fma": (1, 4), "imad": (2, 5), "alu": (2, 5), "special": (8, 20), "memory": (2, 22),
    "mma": (MMA, 33), "barrier": (1, 20),
}
KINDS = {
    "FFMA": "fma", "FADD": "fma", "FMUL": "fma", "IMAD": "imad", "HMMA": "mma", "BAR": "barrier",
    "MUFU": "special", "F2F": "special", "I2F": "special", "F2I": "special",
    "LDS": "memory", "STS": "memory", "LDSM": "memory", "LDGSTS": "memory", "LDG": "memory",
    "STG": "memory", "SHFL": "memory", "ATOMS": "memory",
}
GLOBAL = ("LDG", "LDGSTS")
QUEUE = 32  # lines that may wait for shared memory until nobody issues more; assumed


class Instruction:
    """One instruction of SASS: its text, and what ptxas says about when it may issue."""

    def __init__(self, address, text, high):
        self.address, self.text = address, text
        self.stall = max(1, high >> 41 & 15)
        self.writes, self.reads = high >> 46 & 7, high >> 49 & 7
        self.waits = [k for k in range(6) if high >> 52 & 1 << k]
        self.reuse = high >> 58 & 15
        plain = re.sub(r"^@!?U?P\w+ ", "", text)
        self.op = plain.split()[0]
        self.base = self.op.split(".")[0]
        self.kind = KINDS.get(self.base, "alu")
        self.sources = []
        for word in plain[len(self.op):].split(",")[1:4]:
            register = re.search(r"\bR(\d+)\b", word)
            self.sources.append(int(register.group(1)) if register else None)
        target = re.search(r"BRA.*0x([0-9a-f]+)", text)
        self.target = int(target.group(1), 16) if target else None

    def lines(self):
        """Lines of 128 bytes of shared memory that a warp moves where no banks conflict; of factors
        that neighbouring threads share, four words a thread are two."""
        wide = 4 if ".128" in self.op else 2 if ".64" in self.op else 1
        if self.base == "LDSM":
            return 4 if ".4" in self.op else 2 if ".2" in self.op else 1
        return min(wide, 2) if self.base == "LDS" else wide


def parse(sass):
    """The instructions of each kernel in cuobjdump's listing."""
    kernels, code = {}, None
    for line in sass.splitlines():
        name = re.search(r"Function : (\S+)", line)
        first = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\* 0x[0-9a-f]+ \*/", line)
        second = re.match(r"\s+/\* 0x([0-9a-f]+) \*/", line)
        if name:
            code = kernels.setdefault(name.group(1), [])
        elif first and code is not None:
            code.append([int(first.group(1), 16), first.group(2)])
        elif second and code and isinstance(code[-1], list):
            code[-1] = Instruction(*code[-1], int(second.group(1), 16))
    return {name: [i for i in code if isinstance(i, Instruction)] for name, code in kernels.items()}


def loops(code):
    """Innermost loops that multiply."""
    back = [(i.target, i.address) for i in code if i.target is not None and i.target < i.address]
    for begin, end in back:
        if any(begin <= other[0] and other[1] < end for other in back):
            continue
        body = [i for i in code if begin <= i.address <= end]
        if sum(i.kind == "fma" for i in body) >= 32 or sum(i.kind == "mma" for i in body) >= 4:
            yield body


class Warp:
    """A warp: where it is in the loop, when it may issue, what it waits for."""

    def __init__(self, block):
        self.block, self.at, self.turn, self.ready, self.held = block, 0, 0, 0, False
        self.boards = [0] * 6
        self.kept = {}  # operand: register in the reuse cache

    def when(self, instruction, busy, memory):
        ready = [self.ready] + [self.boards[k] for k in instruction.waits]
        if instruction.kind == "memory":
            ready.append(memory - QUEUE)
        return max(ready + ([busy] if instruction.kind != "barrier" else []))


class Machine:
    """One SM that runs a loop by `resident` blocks of `warps`."""

    def __init__(self, body, resident, l2, warps):
        self.body, self.l2, self.now, self.memory = body, l2, 0, 0
        self.warps = [Warp(w // warps) for w in range(warps * resident)]
        self.units = [dict.fromkeys(UNITS, 0) for _ in range(SCHEDULERS)]
        self.last = [None] * SCHEDULERS
        self.issued = self.lines = 0

    def conflicts(self, warp, instruction, again):
        """Cycles more where three registers come from one of the two banks."""
        banks = {0: set(), 1: set()}
        for k, register in enumerate(instruction.sources):
            if register is not None and not (again and warp.kept.get(k) == register):
                banks[register & 1].add(register)
        return int(max(len(b) for b in banks.values()) > 2)

    def issue(self, s, warp, turns):
        i = self.body[warp.at]
        unit, latency = UNITS[i.kind]
        more = self.conflicts(warp, i, self.last[s] is warp) if i.kind == "fma" else 0
        warp.kept = {k: r for k, r in enumerate(i.sources) if i.reuse >> k & 1}
        self.last[s] = warp
        self.units[s][i.kind] = self.now + unit + more
        warp.ready = self.now + i.stall + more
        done = read = self.now + latency
        if i.kind == "memory":
            self.memory = max(self.memory, self.now) + i.lines()
            self.lines += i.lines()
            read = self.memory + 8
            done = self.memory + (self.l2 if i.base in GLOBAL else latency)
        if i.writes != NEVER:
            warp.boards[i.writes] = max(warp.boards[i.writes], done)
        if i.reads != NEVER:
            warp.boards[i.reads] = max(warp.boards[i.reads], read)
        self.issued += 1
        warp.held = i.base == "BAR"
        warp.at += 1
        if warp.at == len(self.body):
            warp.at, warp.turn = 0, warp.turn + 1
        if warp.held:
            self.meet(warp.block, turns)

    def meet(self, block, turns):
        mates = [w for w in self.warps if w.block == block and w.turn < turns]
        if all(w.held for w in mates):
            for w in mates:
                w.held, w.ready = False, max(w.ready, self.now + UNITS["barrier"][1])

    def run(self, turns):
        """Cycles until every warp has gone through the loop so often."""
        while any(w.turn < turns for w in self.warps):
            soon = float("inf")
            for s in range(SCHEDULERS):
                own = [w for w in self.warps[s::SCHEDULERS] if w.turn < turns and not w.held]
                own.sort(key=lambda w: w is not self.last[s])
                for w in own:
                    i = self.body[w.at]
                    when = w.when(i, self.units[s][i.kind], self.memory)
                    if when <= self.now:
                        self.issue(s, w, turns)
                        soon = self.now + 1
                        break
                    soon = min(soon, when)
            self.now = max(self.now + 1, soon)
        return self.now


def measure(body, resident, l2, warps=WARPS):
    """Cycles a turn of all blocks; shares of the multipliers, the schedulers, shared memory."""
    runs = []
    for turns in TURNS:
        machine = Machine(body, resident, l2, warps)
        runs.append((machine.run(turns), machine.issued, machine.lines))
    turns = TURNS[1] - TURNS[0]
    cycles, issued, lines = ((b - a) / turns for a, b in zip(*runs))
    each = resident * warps / SCHEDULERS
    fma = each * sum(i.base == "FFMA" for i in body) / cycles
    mma = each * sum(i.kind == "mma" for i in body) * MMA / cycles
    return cycles, fma, mma, issued / SCHEDULERS / cycles, lines / cycles


def disassembled(path, arch):
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "code.cubin")
        subprocess.run(["nvcc", "-O3", "-arch=" + arch, "-cubin", path, "-o", cubin], check=True)
        done = subprocess.run(["cuobjdump", "-sass", cubin], check=True, capture_output=True,
                              text=True)
    return done.stdout


def block_warps(source):
    """By kernel of an emitted program the warps of its blocks, as it tells the compiler."""
    bounds = r"__global__ void __launch_bounds__\((\d+)[^)]*\) (k_\w+)\("
    return {name: int(threads) // 32 for threads, name in re.findall(bounds, source)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--arch", default="sm_90")
    arguments.add_argument("--kernel", default=".")
    arguments.add_argument("--resident", default="1,2", help="blocks that an SM holds")
    arguments.add_argument("--l2", type=int, default=500, help="cycles of a load from the L2 cache")
    arguments.add_argument("file", help="an emitted .cu, or what cuobjdump -sass made of it")
    a = arguments.parse_args()
    with open(a.file, encoding="utf-8") as file:
        text = file.read()
    warps = block_warps(text)
    sass = disassembled(a.file, a.arch) if a.file.endswith(".cu") else text
    print("kernel\tinstructions\tffma\tmma\tblocks\tcycles\tffma%\tmma%\tissue%\tshared%")
    for name, code in sorted(parse(sass).items()):
        if not re.search(a.kernel, name):
            continue
        short = re.sub(r"^_Z\d+(k_[a-z]+_[0-9a-f]{8}).*", r"\1", name)
        for body in loops(code):
            counts = (len(body), sum(i.base == "FFMA" for i in body),
                      sum(i.kind == "mma" for i in body))
            for resident in map(int, a.resident.split(",")):
                cycles, *shares = measure(body, resident, a.l2, warps.get(short, WARPS))
                print(short, *counts, resident, "%.0f" % cycles, *("%.0f" % (100 * s)
                      for s in shares), sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
