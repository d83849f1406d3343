#!/usr/bin/env python3
"""Random models made of pieces that a rule looks for, or just misses; emitted, run on the judge and
compared with the oracle.

    fuzz_pieces.py [--count N] [--seed S] [--kinds KIND,...] [--options NAME,...] [--pieces N]
                   [--mode plain|san|race] [--priced N] [--einnet FILE] [--keep DIR] [--print] [-v]

What fuzz_models.py leaves out: wholes are what it is for; these are aimed at the conditions of
gen/select and gen/plan, and at what kernels do at the borders of tiles. A model has several pieces
that have nothing to do with each other, so that one compilation pays for all of them, and is
emitted with each of the options, or with those that its seed says, for GPUs of several sizes. With
--priced N of ten models are planned by a table of costs that are drawn, too: then what is chosen
does not depend on sizes (that takes as long as ten others). Pieces that are wrong by themselves are
kept apart. Ends with `N passed, N failed`.

A further kind is a function of fuzz_rows.py, fuzz_heads.py, fuzz_long.py, fuzz_linear.py or
fuzz_types.py, and its entry in that file's table.
"""

import argparse
import os
import random
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "oracle")]

import fuzz_heads  # noqa: E402
import fuzz_linear  # noqa: E402
import fuzz_long  # noqa: E402
import fuzz_rows  # noqa: E402
import fuzz_types  # noqa: E402
import run_models  # noqa: E402
from fuzz_base import Piece  # noqa: E402

# Those of the second table have wider tolerances, and models of their own.
KINDS = {**fuzz_rows.KINDS, **fuzz_heads.KINDS, **fuzz_linear.KINDS, **fuzz_types.KINDS,
         **fuzz_long.KINDS}
TYPED = {**fuzz_types.TYPED, **fuzz_long.TYPED}
OPTIONS = {"plain": [], "tf32": ["--math", "tf32"], "fp16": ["--math", "fp16"],
           "own": ["--libs", "none"], "own16": ["--math", "fp16", "--libs", "none"]}
RULES = ["operand", "order", "digits", "point", "phases", "windows", "taps", "parts", "border",
         "groups", "single", "pad", "basis", "toeplitz", "skew", "factors", "scale", "turn",
         "rounds", "apart", "prefix", "linear", "repeats", "distribute", "collect", "gate", "merge",
         "match", "fuse", "online", "norm", "short", "sorted",
         "onehot"]
GPUS = ["h200", "h200", "l4", "orin-nano", "a100", "agx-orin"]


def piece(rng, kind, number):
    calm = rng.choice([0, 0.6, 0.85, 0.95])
    made = Piece(rng, "%s%d" % (kind.replace("-", "_"), number), calm, rng.random() < 0.4,
                 rng.random() < 0.3)
    {**KINDS, **TYPED}[kind](made)
    return made


def written(pieces):
    """The model of these pieces."""
    outputs = [name for p in pieces for name in p.outputs]
    return "ein 1\nmodel pieces\noutput %s\n%s\n" % (
        ", ".join(outputs), "\n".join(line for p in pieces for line in p.lines))


def drawn(seed, kinds, count):
    """Pieces, options' name, and what else to emit with."""
    rng = random.Random(seed)
    typed = [k for k in kinds if k in TYPED]
    plain = [k for k in kinds if k not in TYPED]
    some = typed if typed and (not plain or seed % 4 == 0) else plain
    start = rng.randrange(len(some))
    pieces = [piece(rng, some[(start + i) % len(some)], i) for i in range(count)]
    left_out = ["--rules=-" + ",".join(rng.sample(RULES, rng.choice([1, 3, 8])))]
    more = rng.choice([[], [], ["--branches", "1"], ["--form", str(rng.randrange(1, 4))],
                       ["--baseline"], left_out])
    return pieces, rng.choice(list(OPTIONS)), ["--gpu", rng.choice(GPUS)] + more


def table(path, text, options, more, args):
    """Writes costs of all that planning the model asks for, the same for the same keys."""
    with tempfile.TemporaryDirectory() as folder:
        model, probe = os.path.join(folder, "pieces.ein"), os.path.join(folder, "probe.cu")
        with open(model, "w") as file:
            file.write(text)
        run_models.run([args.einnet, "probe", model, "-o", probe, "--kernels", "400"] + more[:2] +
                       options)
        with open(probe) as file:
            found = file.read()
    keys = sorted(set(re.findall(r'^    \{"((?:kernel|gemm|conv) [^"]*)"', found, re.M)))
    with open(path, "w") as file:
        for key in keys:
            ps = int(10 ** random.Random(key).uniform(3, 7))
            file.write("%s\t%s\t%d\t1\teinnet 1\n" % (more[1], key, ps))


def wrong(text, options, more, args):
    """What is wrong with a model; nothing: all is right."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pieces.ein")
        with open(path, "w") as file:
            file.write(text)
        given = run_models.arguments(
            ["--einnet", args.einnet, "--full", "--quick", "--once", "--mode", args.mode] + options)
        given.options = more
        return run_models.what_is_wrong(path, given)


def report(seed, pieces, options, more, args):
    """Says which pieces are wrong, and how; keeps them."""
    found = False
    for p in pieces:
        why = wrong(written([p]), options, more, args)
        found |= bool(why)
        if why:
            show(seed, options + more, why, args, p.prefix, written([p]))
    if not found:
        why = wrong(written(pieces), options, more, args)
        show(seed, options + more, why, args, "all", written(pieces))


def show(seed, options, why, args, what, text):
    print("FAIL seed %d, %s, %s: %s" % (seed, what, " ".join(options), why[:400]), flush=True)
    if args.keep:
        with open(os.path.join(args.keep, "pieces%d_%s.ein" % (seed, what)), "w") as file:
            file.write(text)


def check(seed, pieces, options, more, args):
    """Whether a model is all right."""
    with tempfile.TemporaryDirectory() as folder:
        if seed % 10 < args.priced:
            name = "pieces%d%s.costs" % (seed, "".join(options).replace("-", "_"))
            costs = os.path.join(args.keep or folder, name)
            table(costs, written(pieces), options, more, args)
            more = more[:2] + ["--costs", costs]
        why = wrong(written(pieces), options, more, args)
        if why:
            report(seed, pieces, options, more, args)
        elif more[-2] == "--costs":
            os.remove(costs)
        if args.verbose and not why:
            print("ok   seed %d, %s" % (seed, " ".join(options + more)), flush=True)
    return not why


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join([*KINDS, *TYPED]))
    parser.add_argument("--options", help="of %s; one of them" % ", ".join(OPTIONS))
    parser.add_argument("--pieces", type=int, default=12)
    parser.add_argument("--einnet", default=os.path.join(HERE, "..", "build", "einnet"))
    parser.add_argument("--keep", help="folder for pieces that fail")
    parser.add_argument("--mode", default="plain", choices=("plain", "san", "race"))
    parser.add_argument("--priced", type=int, default=0, help="so many of ten by drawn costs")
    parser.add_argument("--print", action="store_true", help="only the models' text")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    passed = failed = 0
    for seed in range(args.seed, args.seed + args.count):
        pieces, own, more = drawn(seed, args.kinds.split(","), args.pieces)
        if args.print:
            print(written(pieces), end="")
            continue
        for name in args.options.split(",") if args.options else [own]:
            right = check(seed, pieces, OPTIONS[name], more, args)
            passed += right
            failed += not right
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
