#!/usr/bin/env python3
"""Checks the models against their sources, with the oracle.

Every model must have a row in models.tsv and the parameters and GFLOP it states; at its small sizes
it must be cheap, finite and neither vanish nor blow up; with --full also at its own sizes (those
below 50 GFLOP). The models in unseen/ must evaluate to finite numbers at both sizes.

usage: check_models.py [--full] [-v] [NAME...]
"""

import argparse
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(os.path.dirname(HERE), "models")
UNSEEN = os.path.join(HERE, "unseen")
sys.path.insert(0, os.path.join(HERE, "oracle"))

import ein  # noqa: E402
import evaluate  # noqa: E402
import tensors  # noqa: E402

SMALL_GFLOP = 0.1           # an emulator with sanitizers has to run the small sizes
FULL_GFLOP = 50
LINES = {"resnet18": 40}    # what the language promises to express in so many lines


class Mismatch(Exception):
    pass


def want(ok, text, *values):
    if not ok:
        raise Mismatch(text % values)


def rows():
    out = {}
    with open(os.path.join(HERE, "models.tsv"), encoding="utf-8") as f:
        for line in f:
            if not line.startswith("#"):
                name, params, gflop, _ = line.rstrip("\n").split("\t")
                out[name] = (params, gflop)
    return out


def found(directory, prefix=""):
    return sorted(prefix + n[:-4] for n in os.listdir(directory) if n.endswith(".ein"))


def agrees(value, text):
    """Whether `value` rounds to `text` at the digits that `text` has."""
    digits = len(text.partition(".")[2])
    return abs(value - float(text)) <= 0.5000001 * 10.0 ** -digits


def outputs(program):
    positive = tensors.variance_names(program)
    return evaluate.evaluate(program, evaluate.default_inputs(program),
                             lambda n: tensors.weight(program, n, False, {}, positive))


def check_text(name, path):
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    want(lines[-1] == "", "no newline at the end")
    for number, line in enumerate(lines, 1):
        want(len(line) <= 100 and line == line.rstrip() and "\t" not in line,
             "line %d is too long, or has a tab or trailing space", number)
    want(len(lines) - 1 <= LINES.get(name, 900), "has %d lines", len(lines) - 1)
    dims = [line for line in lines if line.startswith("dim ")]
    want(dims and dims[0].startswith("dim N = "), "the first dim is not N")
    want(any(line.startswith("small ") for line in lines), "no small sizes")


def check_values(program, low, high):
    """Finite values; a root mean square in [low, high] for every output; none of them constant."""
    said = []
    for name, a in outputs(program).items():
        a = a.astype(np.float64)
        want(np.isfinite(a).all(), "output %s is not finite", name)
        rms, std = float(np.sqrt((a * a).mean())), float(a.std())
        want(low <= rms <= high, "output %s has a root mean square of %.3g", name, rms)
        want(std > 0.01 * rms or a.size == 1, "output %s is constant", name)
        said.append("%s rms %.3g std %.3g" % (name, rms, std))
    return ", ".join(said)


def check_model(name, row, full):
    want(row is not None, "has no row in models.tsv")
    path = os.path.join(MODELS, name + ".ein")
    want(os.path.exists(path), "there is no such file")
    check_text(name, path)
    program = ein.load(path)
    want(program.name == os.path.basename(name), "is called %s inside", program.name)
    info = evaluate.info(program)
    want(agrees(info["parameters"] / 1e6, row[0]), "%d parameters, stated are %s M",
         info["parameters"], row[0])
    want(agrees(info["gflop"], row[1]), "%.5g GFLOP, stated are %s", info["gflop"], row[1])
    small = ein.load(path, small=True)
    cost = evaluate.info(small)["gflop"]
    want(cost <= SMALL_GFLOP, "%.3g GFLOP at small sizes", cost)
    said = "small: %.3g MFLOP, %s" % (cost * 1e3, check_values(small, 1e-3, 20))
    if full and info["gflop"] < FULL_GFLOP:
        said += "; full: " + check_values(program, 0.05, 20)
    return said


def check_unseen(name):
    path = os.path.join(UNSEEN, name + ".ein")
    for small in (True, False):
        program = ein.load(path, small=small)
        # Only small sizes are run; the others decide what is planned.
        want(evaluate.info(program)["gflop"] < (0.2 if small else 5), "is too large")
        for output, a in outputs(program).items():
            want(np.isfinite(a.astype(np.float64)).all(), "output %s is not finite", output)
    return "evaluates"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="evaluate at full sizes too")
    parser.add_argument("-v", action="store_true", help="print what was found")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    table = rows()
    names = sorted(set(table) | set(found(MODELS)) |
                   set(found(os.path.join(MODELS, "cases"), "cases/")))
    work = [(n, lambda n=n: check_model(n, table.get(n), args.full)) for n in names]
    work += [("unseen/" + n, lambda n=n: check_unseen(n)) for n in found(UNSEEN)]
    passed = failed = 0
    for name, check in work:
        if args.names and name not in args.names:
            continue
        try:
            said = check()
            passed += 1
            if args.v:
                print("ok   %s: %s" % (name, said))
        except (Mismatch, ein.EinError) as error:
            failed += 1
            print("FAIL %s: %s" % (name, error))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
