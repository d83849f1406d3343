#!/usr/bin/env python3
"""Our programs against the peers, on one model, one batch size and one precision.

usage: rounds.py --out ROWS.tsv --model NAME --batch N --precision fp32|tf32|fp16 --graph G.json
                 --weights W.weights --ours PROGRAM [--base PROGRAM] [--peers eager,compile,jax]
                 [--rounds 5] [--bench-ms 20] [--device cuda|cpu] [--work DIR] [--setup SECONDS]
                 [--winograd] [--note WORDS] [--deadline SECONDS]
       rounds.py --columns

Every peer is one process that stays; ours are started anew, as they start quickly. A round measures
everybody once in order and once in reverse (A B B A for each pair), each time at least a second
busy before the first sample. A peer for which the others left no memory meets our program alone,
in rounds of its own. Before the rounds everyone's output is compared with the outputs in
float64. One row for each measurement; who fails or is out of tolerance has one row that says so.
Rows are written after each round. After the deadline no round begins, and the exit code is 75.
"""

import argparse
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import clock  # noqa: E402
import graph as graphs  # noqa: E402
import tensors  # noqa: E402

COLUMNS = ["model", "batch", "precision", "system", "variant", "status", "round", "turn",
           "median_us", "p95_us", "cold_median_us", "latency_median_us", "kernels", "error",
           "setup_s", "bytes", "versions", "note"]
# Relative L2 error against float64. Four points a tile of a basis change cost a digit. TF32 that is
# rounded to nearest reaches 3e-3 in deep networks; units that drop the low bits, as some calls have
# it, lose a fixed share a layer. The report says how far each system was off.
TOLERANCE = {"fp32": 1e-5, "tf32": 2e-2, "fp16": 1e-2}
WINOGRAD = 1e-4
MEASURE_LIMIT = 300     # seconds of one measurement


STOPPED = 75
READY = 0.7             # of the time until the deadline, at most, until everybody is ready


class Failure(Exception):
    pass


class OutOfTime(Failure):
    pass


def left(args, limit):
    """Seconds of a limit that remain before the deadline; who gets ready leaves some for rounds."""
    end = args.begin + args.deadline * (READY if args.opening else 1)
    seconds = min(limit, end - time.monotonic())
    if seconds <= 0:
        args.stopped = True
        raise OutOfTime("out of time")
    return seconds


def write(args, rows):
    with open(args.out + ".new", "w", encoding="utf-8") as f:
        f.write("\n".join(rows) + "\n")
    os.replace(args.out + ".new", args.out)


def sound(figures):
    """The figures, when all that are there are times."""
    for name, value in figures.items():
        if name.endswith("_us") and not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise Failure("%s is %s" % (name, value))
    return figures


class Program:
    """An emitted test program."""

    def __init__(self, args, system, path):
        self.system = system
        self.command = [path, args.weights]
        self.args = args
        self.ready = {"status": "ok", "variant": os.path.basename(path),
                      "note": args.note if system == "ours" else ""}
        self.ready["bytes"] = os.path.getsize(path)

    def run(self, more, limit):
        limit = left(self.args, limit)
        try:
            done = subprocess.run(self.command + more, stdin=subprocess.DEVNULL, timeout=limit,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except subprocess.TimeoutExpired:
            left(self.args, limit)
            raise Failure("more than %d seconds" % limit) from None
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().split("\n")
            raise Failure("exit code %d: %s" % (done.returncode, words[-1][:150]))
        return done.stdout.decode()

    def start(self, want, tolerance):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            self.run(["--out", folder], self.args.setup)
            self.ready["setup_s"] = round(time.perf_counter() - begin, 1)
            got = [np.load(os.path.join(folder, tensors.file_name(name)), allow_pickle=False)
                   for name in self.args.outputs]
        self.ready["error"] = clock.relative_error(got, want)
        if not self.ready["error"] <= tolerance:
            raise Failure("out of tolerance")

    def measure(self, ms):
        out = json.loads(self.run(["--bench", "--bench-ms", str(ms)], MEASURE_LIMIT))
        self.ready.setdefault("kernels", out.get("kernels"))
        self.ready["versions"] = "runtime %s, cuDNN %s, cuBLAS %s, driver %s" % tuple(
            out.get(k, "-") for k in ("runtime", "cudnn", "cublas", "driver"))
        return out

    def stop(self):
        pass


class Same:
    """Derivation makes no difference: there is no second program to measure."""

    system = "base"
    ready = {"note": "the same program"}


class Peer:
    def __init__(self, args, system):
        self.system = system
        self.args = args
        self.ready = {}
        self.process = None

    def start(self, reference, tolerance):
        left(self.args, self.args.setup)
        command = [sys.executable, os.path.join(HERE, "peer.py"), "--system", self.system,
                   "--graph", self.args.graph, "--weights", self.args.weights, "--reference",
                   reference, "--precision", self.args.precision, "--device", self.args.device,
                   "--sets", str(self.args.sets)]
        if self.args.device == "cpu":
            command += ["--mode", "default"]
        log = open(os.path.join(self.args.work, self.system + ".log"), "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log)
        log.close()
        self.ready = self.answer(self.args.setup)
        if self.ready["status"] != "ok":
            raise Failure(self.ready["note"])

    def answer(self, limit):
        """The next line; the process prints each in one piece."""
        if not select.select([self.process.stdout], [], [], left(self.args, limit))[0]:
            left(self.args, limit)
            raise Failure("more than %d seconds" % limit)
        line = self.process.stdout.readline()
        if not line:
            with open(os.path.join(self.args.work, self.system + ".log"), "rb") as f:
                words = f.read().decode(errors="replace").strip().split("\n")
            raise Failure("ended: %s" % words[-1][:150])
        return json.loads(line)

    def measure(self, ms):
        self.process.stdin.write(b"measure %g\n" % ms)
        self.process.stdin.flush()
        return self.answer(MEASURE_LIMIT)

    def stop(self):
        if self.process is None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def field(v):
    if v is None or v == "":
        return "-"
    if isinstance(v, float):
        return "%.6g" % v
    return str(v).replace("\t", " ").replace("\n", " ")


def row(args, system, status, values):
    fixed = {"model": args.model, "batch": args.batch, "precision": args.precision,
             "system": system.system, "status": status}
    return "\t".join(field({**system.ready, **values, **fixed}.get(c)) for c in COLUMNS)


def reference(args):
    """The file of the outputs in float64: what torch makes of the same graph."""
    path = os.path.join(args.work, "reference.npz")
    command = [sys.executable, os.path.join(HERE, "peer.py"), "--system", "reference", "--graph",
               args.graph, "--weights", args.weights, "--reference", path, "--device", args.device]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              timeout=left(args, args.setup))
    except subprocess.TimeoutExpired:
        left(args, args.setup)
        raise Failure("no reference: more than %d seconds" % args.setup) from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().split("\n")
        raise Failure("no reference: %s" % words[-1][:200])
    return path


CROWDED = ("out of memory", "RESOURCE_EXHAUSTED")


def open_systems(args, path, rows):
    """(systems that run and agree with the reference, names of peers that found no memory); a row
    for each of the others."""
    with np.load(path) as file:
        want = [file[k] for k in sorted(file.files, key=int)]
    systems = [Program(args, "ours", args.ours)]
    systems += [Program(args, "base", args.base)] if args.base else []
    systems += [Peer(args, name) for name in args.peers.split(",") if name]
    running, crowded = [], []
    if not args.base:
        rows.append(row(args, Same(), "same", {}))
    for system in systems:
        try:
            own = isinstance(system, Program)
            wide = own and args.winograd and args.precision == "fp32"
            tolerance = WINOGRAD if wide else TOLERANCE[args.precision]
            system.start(want if own else path, tolerance)
            running.append(system)
        except (Failure, OSError, ValueError) as problem:
            system.stop()
            system.ready["note"] = str(problem)
            if len(running) > 1 and any(words in str(problem) for words in CROWDED):
                crowded.append(system.system)
            else:
                rows.append(row(args, system, "failed", {}))
        print("%s %s: %s" % (args.model, system.system, system.ready), flush=True)
    return running, crowded


def alone(args, ours, peer, path, first, rows):
    """Rounds of our program and one peer."""
    try:
        # Its convolutions may be Winograd's too.
        peer.start(path, WINOGRAD if args.precision == "fp32" else TOLERANCE[args.precision])
        rounds(args, [ours, peer], rows, first)
    except (Failure, OSError, ValueError) as problem:
        peer.ready["note"] = str(problem)
        rows.append(row(args, peer, "failed", {}))
    finally:
        peer.stop()


def rounds(args, running, rows, first=1):
    for number in range(first, first + args.rounds):
        whole = len(rows)
        for turn, system in enumerate(running + running[::-1]):
            if system.ready.get("gone"):
                continue
            try:
                rows.append(row(args, system, "ok", {**sound(system.measure(args.bench_ms)),
                                                     "round": number, "turn": turn}))
            except OutOfTime:
                del rows[whole:]        # half a round compares nobody
                return
            except (Failure, OSError, ValueError) as problem:
                system.ready.update(gone=True, note=str(problem))
                rows.append(row(args, system, "failed", {}))
        write(args, rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("out", "model", "graph", "weights", "ours"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--base")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="fp32", choices=sorted(TOLERANCE))
    parser.add_argument("--peers", default="eager,compile,jax")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bench-ms", type=float, default=20)
    parser.add_argument("--sets", type=int, default=clock.SETS)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--work")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds")
    parser.add_argument("--setup", type=float, default=1800, help="seconds until a system is ready")
    parser.add_argument("--winograd", action="store_true",
                        help="ours has basis changes with four points a tile")
    parser.add_argument("--note", default="", help="words about our program, for its rows")
    return parser.parse_args()


def main():
    if sys.argv[1:] == ["--columns"]:
        print("\t".join(COLUMNS))
        return 0
    args = parse()
    with open(args.graph, encoding="utf-8") as f:
        args.outputs = [name for name, _ in graphs.Graph(f.read()).outputs]
    args.begin, args.opening, args.stopped = time.monotonic(), True, False
    rows, running = [], []
    with tempfile.TemporaryDirectory() as folder:
        args.work = args.work or folder
        os.makedirs(args.work, exist_ok=True)
        try:
            path = reference(args)
            running, crowded = open_systems(args, path, rows)
            args.opening = False
            rounds(args, running, rows)
            ours = [system for system in running if system.system == "ours"]
            while running:
                running.pop().stop()
            for number, name in enumerate(crowded if ours else (), 1):
                alone(args, ours[0], Peer(args, name), path, 1 + number * args.rounds, rows)
        except (Failure, graphs.Unsupported) as problem:
            print("%s: %s" % (args.model, problem), file=sys.stderr)
            return STOPPED if args.stopped else 1
        finally:
            for system in running:
                system.stop()
    write(args, rows)
    if args.stopped:
        return STOPPED
    return 0 if any("\tours\t" in r and "\tok\t" in r for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
