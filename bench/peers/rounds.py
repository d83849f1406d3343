#!/usr/bin/env python3
"""Our programs against the peers: contests of one model, one batch size and one precision each.

usage: rounds.py --list CONTESTS.tsv [--peers eager,compile,jax] [--rounds 5] [--bench-ms 20]
                 [--device cuda|cpu] [--compile-mode MODE] [--setup SECONDS] [--deadline SECONDS]
                 [--work DIR] [--sets N] [--lanes N]
       rounds.py --columns

A line of the list is a contest, these fields between tabs, "-" where there is none:

    id  model  batch  precision  graph  weights  ours  base  winograd  again  note  out

graph: `einnet graph --json`; weights: `einnet pack`; ours, base: executables of emitted test
programs; winograd: yes where ours may lose what basis changes lose; again: yes where an earlier run
has a part of it; note: words about our program; out: where its rows go.

Every peer is one process that stays for all contests; ours are started anew, as they start quickly.
With --lanes N, N contests get ready side by side, with processes of their own, as compilers have
more to do than the GPU. While contests get ready, everyone's output is compared with the outputs in
float64; who is not ready after --setup seconds, its turn at the GPU not waited for, is left out and
starts anew in the next one. Then nothing but rounds goes on, of one contest after another: a round
measures everybody once in order and once in reverse (A B B A for each pair), each time at least a
second busy before the first sample. A peer for which the others left no memory meets our program
alone, in rounds of its own. One row for each measurement; who fails or is out of tolerance has one
row that says so. Rows are written after each round.

Where there is a deadline, contests share the time: after its first round, one with more than its
part is cut short (not those that are done again, which come last). After the deadline no round
begins. The exit code is 75 where something is left to do. Standard output has lines for who started
this:

    begin ID
    time ID SYSTEM SECONDS...   as TIMES names them; "wait" is for a turn at the GPU
    end ID CODE WORDS           0, 1 (failed: WORDS) or 75 (a part of it)
"""

import argparse
import math
import os
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import clock  # noqa: E402
import graph as graphs  # noqa: E402
from systems import Failure, OutOfTime, Peer, Program, Same, settle  # noqa: E402

COLUMNS = ["model", "batch", "precision", "system", "variant", "status", "round", "turn",
           "median_us", "p95_us", "cold_median_us", "latency_median_us", "kernels", "error",
           "setup_s", "bytes", "versions", "note"]
FIELDS = ["id", "model", "batch", "precision", "graph", "weights", "ours", "base", "winograd",
          "again", "note", "out"]
TIMES = ["import", "context", "load", "wait", "compile", "first", "capture", "choose", "rounds"]
# Relative L2 error against float64. Four points a tile of a basis change cost a digit. TF32 that is
# rounded to nearest reaches 3e-3 in deep networks; units that drop the low bits, as some calls have
# it, lose a fixed share a layer. The report says how far each system was off.
TOLERANCE = {"fp32": 1e-5, "tf32": 2e-2, "fp16": 1e-2}
WINOGRAD = 1e-4
STOPPED = 75
READY = 0.7             # of the time until the deadline, at most, until everybody is ready
ROUND = 20              # seconds of a round, before one was measured
LEAST = 10              # seconds beside a round without which no contest but the first begins
CROWDED = ("out of memory", "RESOURCE_EXHAUSTED")


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


def tell(*words):
    print(*words, flush=True)


def reference_path(args):
    """The file of the outputs in float64: what torch makes of the same graph. Precisions share
    it."""
    path = os.path.join(args.work, "reference.%s.npz" % args.id.replace("/", "_"))
    return args.references.setdefault((args.graph, args.weights), path)


def start_programs(args, want, rows):
    """Our programs that run and agree with the reference."""
    running = []
    for name, path in (("ours", args.ours), ("base", args.base)):
        if not path:
            continue
        system = Program(args, name, path)
        wide = args.winograd and args.precision == "fp32"
        try:
            system.start(want, WINOGRAD if wide else TOLERANCE[args.precision])
            running.append(system)
        except (Failure, OSError, ValueError) as problem:
            system.ready["note"] = str(problem)
            rows.append(row(args, system, "failed", {}))
    if not args.base:
        rows.append(row(args, Same(), "same", {}))
    return running


def open_one(args, everybody):
    """The reference and our programs, while peers load and compile."""
    with open(args.graph, encoding="utf-8") as f:
        args.outputs = [name for name, _ in graphs.Graph(f.read()).outputs]
    path, source = reference_path(args), args.source
    source.times, source.problem = {}, None
    if path not in args.made:       # a file of that name may be an earlier run's
        source.load(args, path)
        settle(args, [source] + everybody, source)
    if source.problem:
        raise Failure("no reference: %s" % source.problem)
    args.made.add(path)
    with np.load(path) as file:
        want = [file[k] for k in sorted(file.files, key=int)]
    begin = time.monotonic()
    args.running = start_programs(args, want, args.rows)
    for peer in everybody:
        peer.until += time.monotonic() - begin      # nobody else had the GPU


def open_systems(group):
    """Who runs and agrees with the reference, of contests side by side: `running` of each, and
    `crowded`, the peers that found no memory; a row for each of the others. `failure` says why a
    contest has nobody."""
    everybody = [peer for args in group for peer in args.peers]
    for args in group:
        args.rows, args.running, args.crowded, args.failure, args.times = [], [], [], None, []
        for peer in args.peers:
            peer.load(args, reference_path(args))
    for args in group:
        try:
            open_one(args, everybody)
        except (Failure, graphs.Unsupported, OSError, ValueError) as problem:
            args.failure = str(problem)
            for peer in args.peers:
                if not peer.settled:        # it would answer in the middle of the next one
                    peer.fail(problem)
        args.times = [("reference", args.source.times)]
    settle(group[0], everybody)
    for args in group:
        if args.failure is None:
            sort_peers(args)


def sort_peers(args):
    for peer in args.peers:
        if peer.problem is None:
            args.running.append(peer)
        elif len(args.running) > 1 and any(words in peer.problem for words in CROWDED):
            args.crowded.append(peer)
        else:
            args.rows.append(row(args, peer, "failed", {}))
    for system in args.running + args.crowded:
        print("%s %s: %s" % (args.id, system.system, system.ready), file=sys.stderr, flush=True)


def alone(args, ours, peer, path, first, rows):
    """Rounds of our program and one peer."""
    try:
        peer.load(args, path)
        settle(args, [peer])
        if peer.problem is not None:
            raise Failure(peer.problem)
        rounds(args, [ours, peer], rows, first)
    except (Failure, OSError, ValueError) as problem:
        peer.ready["note"] = str(problem)
        rows.append(row(args, peer, "failed", {}))
    finally:
        peer.drop()


def rounds(args, running, rows, first=1):
    longest = 0
    for number in range(first, first + args.rounds):
        whole, begin = len(rows), time.monotonic()
        if number > first and begin + longest > args.fair:
            args.stopped = True         # the other contests' time
            return
        for turn, system in enumerate(running + running[::-1]):
            if system.ready.get("gone"):
                continue
            one = time.monotonic()
            try:
                rows.append(row(args, system, "ok", {**sound(system.measure(args.bench_ms)),
                                                     "round": number, "turn": turn}))
            except OutOfTime:
                del rows[whole:]        # half a round compares nobody
                return
            except (Failure, OSError, ValueError) as problem:
                system.ready.update(gone=True, note=str(problem))
                rows.append(row(args, system, "failed", {}))
            system.times["rounds"] = system.times.get("rounds", 0) + time.monotonic() - one
        longest = max(longest, time.monotonic() - begin)
        args.seen.append(longest)
        write(args, rows)


def round_seconds(args):
    """What a round takes, of what was measured before."""
    return max(args.seen[-3:], default=ROUND)


def start_seconds(group):
    """What the slowest process took to start, if one was started for these contests."""
    return max((s.times.get("import", 0) + s.times.get("context", 0)
                for args in group for s in args.running), default=0)


def contests_side_by_side(group, end):
    """Contests that get ready side by side and are measured one after another, each told when it
    is over: (exit codes, those for which the others left no memory). `end` is the deadline, which
    other contests may have a part of."""
    now = time.monotonic()
    for args in group:
        args.end = min(now + READY * (end - now),
                       max(now + LEAST, end - 1.2 * len(group) * round_seconds(args)))
    open_systems(group)
    fresh = [args for args in group if not args.again]
    part = len(fresh) / group[0].fresh
    group_end = now + (end - now) * part + (1 - part) * start_seconds(group)    # all contests' time
    codes, crowded = [], [args for args in group if args.crowded and len(group) > 1]
    for args in [args for args in group if args not in crowded]:
        tell("begin", args.id)
        now, args.end, args.fair = time.monotonic(), end, math.inf
        if not args.again:
            args.fair = now + (group_end - now) / len(fresh)
            fresh = fresh[1:]
        code, words = contest(args)
        for system in args.running + [p for p in args.peers if p not in args.running]:
            args.times.append((system.system, system.times))
        for name, times in args.times:
            tell("time", args.id, name, *["%.1f" % times.get(t, 0) for t in TIMES])
        tell("end", args.id, code, words)
        codes.append(code)
    return codes, crowded


def contest(args):
    """Rounds of a contest that is ready: (exit code, words)."""
    if args.failure is not None:
        return (STOPPED if args.stopped else 1), args.failure
    try:
        rounds(args, args.running, args.rows)
        ours = [system for system in args.running if system.system == "ours"]
        if args.crowded and ours:
            for peer in args.peers:
                peer.drop()
            for number, peer in enumerate(args.crowded, 1):
                first = 1 + number * args.rounds
                alone(args, ours[0], peer, reference_path(args), first, args.rows)
    except (Failure, OSError, ValueError) as problem:
        return (STOPPED if args.stopped else 1), str(problem)
    write(args, args.rows)
    if args.stopped:
        return STOPPED, "out of time"
    good = any("\tours\t" in r and "\tok\t" in r for r in args.rows)
    return (0, "") if good else (1, "ours was not measured")


def read_list(options):
    """The contests of the list, each with the run's options."""
    found = []
    with open(options.list, encoding="utf-8") as f:
        for line in f:
            values = line.rstrip("\n").split("\t")
            if len(values) != len(FIELDS):
                raise SystemExit("%s: a line with %d fields, not %d" %
                                 (options.list, len(values), len(FIELDS)))
            fields = {k: "" if v == "-" else v for k, v in zip(FIELDS, values)}
            if fields["precision"] not in TOLERANCE:
                raise SystemExit("%s: no precision '%s'" % (options.list, fields["precision"]))
            found.append(types.SimpleNamespace(**{**vars(options), **fields}))
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", required=True)
    parser.add_argument("--peers", default="eager,compile,jax")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bench-ms", type=float, default=20)
    parser.add_argument("--sets", type=int, default=clock.SETS)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--compile-mode", default="max-autotune-no-cudagraphs",
                        help="of torch.compile; default compiles much quicker")
    parser.add_argument("--work")
    parser.add_argument("--lanes", type=int, default=1, help="contests that get ready together")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds")
    parser.add_argument("--setup", type=float, default=1800, help="seconds until a system is ready")
    return parser.parse_args()


def run(options, folder):
    options.work = options.work or folder
    os.makedirs(options.work, exist_ok=True)
    contests = read_list(options)
    end = time.monotonic() + options.deadline
    options.end, options.stopped = end, False
    lanes = [[Peer(options, name, lane) for name in options.peers.split(",") if name]
             for lane in range(min(options.lanes, len(contests)))]
    source, references, made, seen = Peer(options, "reference"), {}, set(), []
    codes, left = [], list(contests)
    groups = [contests[k:k + options.lanes] for k in range(0, len(contests), options.lanes)]
    try:
        while groups:
            if codes and end - time.monotonic() < LEAST + round_seconds(contests[0]):
                codes.append(STOPPED)
                break
            group = groups.pop(0)
            fresh = max(1, sum(not args.again for args in left))
            for args, peers in zip(group, lanes):
                args.fresh, args.stopped, args.peers = fresh, False, peers
                args.source, args.references, args.made, args.seen = source, references, made, seen
            done, crowded = contests_side_by_side(group, end)
            codes += done
            left = [args for args in left if args not in group or args in crowded]
            groups += [[args] for args in crowded]
            if crowded:
                for peer in sum(lanes, []):
                    peer.drop()
    finally:
        for peer in sum(lanes, [source]):
            peer.stop()
    return STOPPED if STOPPED in codes else max(codes, default=0)


def main():
    if sys.argv[1:] == ["--columns"]:
        print("\t".join(COLUMNS))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return run(parse(), folder)


if __name__ == "__main__":
    sys.exit(main())
