#!/usr/bin/env python3
"""Emits models, runs the emitted code on the CPU judge, and compares with the oracle.

    run_models.py [--mode plain|san|race] [--full [--quick]] [--ints] [--baseline] [--libs none]
                  [--order rev] [--costs TABLE] [--math tf32|fp16] [--keep-fp32 NODE,...] [--new]
                  [--ptx ARCHITECTURE] [--once]
                  MODEL.ein...

Per model: emit (.cu and test program), build with the judge, `pack`, then the test program with
--check (its own naive kernels, two runs, a captured run) and --out; every output must agree with
the oracle's: relative L2 error <= 1e-5 (2e-3 in TF32; 1e-2 in FP16 or where the model has f16 or
bf16 tensors), or to the bit with --ints (integer-valued weights and inputs; without basis changes).
--libs also checks that the program names no library that it must not call. With --new a program
that, but for comments, is the one without any option is not run again: run and run-san do that.
With --ptx what nvcc makes of all kernels for sm_ARCHITECTURE is run by the judge's interpreter.
With --once and --full the program runs once, without --check.
Small sizes unless --full. Ends with `N passed, N failed`.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "oracle"))

import ein  # noqa: E402
import evaluate  # noqa: E402
import tensors  # noqa: E402
from compare import compare  # noqa: E402


class Failure(Exception):
    pass


def run(command, env=None, limit=600):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                          env=dict(os.environ, **(env or {})))
    if done.returncode:
        text = done.stdout.decode(errors="replace").strip().splitlines()
        raise Failure("%s: status %d: %s" % (os.path.basename(command[0]), done.returncode,
                                             " | ".join(text[-6:])))


def oracle_values(program, weights, ints, folder):
    """The oracle's inputs, written for the program, and its outputs."""
    inputs = evaluate.default_inputs(program, ints)
    for name, value in inputs.items():
        kind = program.tensors[name].dtype
        value = value if kind not in ("f16", "bf16") else value.astype(np.float32)
        np.save(os.path.join(folder, tensors.file_name(name)), value)
    return evaluate.evaluate(program, inputs, tensors.Blob(program, weights))


def without_libraries(path, libs):
    """The program has no trace of what it must not call."""
    with open(path) as file:
        text = file.read().lower()
    for name in ("cudnn", "cublas") if libs == "none" else ("cudnn",):
        lines = [line for line in text.splitlines() if name in line and line[:2] != "//"]
        if lines:
            raise Failure("--libs %s: %s" % (libs, lines[0].strip()))


def code(path):
    """The lines of a program without its comments."""
    with open(path) as file:
        lines = [line.split(" //")[0].rstrip() for line in file]
    return [line for line in lines if not line.lstrip().startswith("//")]


def is_plain(path, args, base):
    """The program emitted with options is the one without them."""
    run([args.einnet, "emit", path, "-o", base + "_plain.cu", "--small"])
    return code(base + ".cu") == code(base + "_plain.cu")


def translated(architecture, sources):
    """What has the judge run the PTX of these, beside them."""
    nvcc = ["nvcc", "-std=c++14", "-ptx", "-arch=sm_" + architecture, "-o"]
    for source in sources:
        run(nvcc + [source + ".ptx", source])
    return {"JUDGE_PTX": ":".join(source + ".ptx" for source in sources), "JUDGE_CC": architecture}


def check_model(path, args, folder):
    base = os.path.join(folder, "model")
    size = ([] if args.full else ["--small"]) + (["--baseline"] if args.baseline else [])
    size += ["--libs", args.libs] if args.libs else []
    # The filter's transform of a basis change has fractions.
    size += ["--rules=-basis"] if args.ints else []
    size += ["--costs", args.costs] if args.costs else []
    size += args.options
    # Where a plan in more exact arithmetic is cheaper, that is what the runs without --math are of.
    size += ["--math", args.math, "--only-math"] if args.math else []
    size += ["--keep-fp32", args.keep_fp32] if args.keep_fp32 else []
    program = ein.load(path, not args.full, {})
    run([args.einnet, "emit", path, "-o", base + ".cu", "--test", base + "_test.cu"] + size)
    if args.libs:
        without_libraries(base + ".cu", args.libs)
    if args.new and is_plain(path, args, base):
        return "the program of no options"
    weights = base + ".weights"
    run([args.einnet, "pack", path, "-o", weights] + ([] if args.full else ["--small"]))
    if args.ints:
        variance = tensors.variance_names(program)
        tensors.write_blob(program, weights,
                           lambda name: tensors.weight(program, name, True, {}, variance))
    # At full size the naive kernels of the test program take longer than their compilation.
    quick = [] if args.full and not args.quick else ["--quick", "--light"]
    run([os.path.join(HERE, "judge", "judgecc"), "--mode", args.mode, "-o", base] + quick +
        [base + "_test.cu", base + ".cu"] + ([] if quick else ["-O2"]))
    want = oracle_values(program, weights, args.ints, folder)
    given = []
    if args.ints:
        for name in program.inputs:
            given += ["--in", "%s=%s" % (name, os.path.join(folder, tensors.file_name(name)))]
    out = os.path.join(folder, "out")
    os.makedirs(out, exist_ok=True)
    check = [] if args.full or args.once else ["--check"]
    env = {"JUDGE_LEAKCHECK": "1", "OPENBLAS_NUM_THREADS": "1"}
    if args.order:
        env["JUDGE_ORDER"] = args.order
    if args.ptx:
        env.update(translated(args.ptx, [base + "_test.cu"] * len(check) + [base + ".cu"]))
    run([base, weights] + given + ["--out", out] + check, env)
    narrow = any(t.dtype in ("f16", "bf16") for t in program.tensors.values())
    limit = 1e-2 if narrow or args.math == "fp16" else 2e-3 if args.math == "tf32" else 1e-5
    limit *= args.slack
    worst = ""
    for name, value in want.items():
        got = np.load(os.path.join(out, tensors.file_name(name)), allow_pickle=False)
        exact = args.ints or value.dtype.kind in "iub"
        text, same = compare(got, value, limit, exact)
        if not same:
            raise Failure("output %s: %s" % (name, text))
        worst = text
    return worst


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--einnet", default=os.path.join(HERE, "..", "build", "einnet"))
    parser.add_argument("--mode", default="plain", choices=("plain", "san", "race"))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quick", action="store_true", help="full sizes are small, too")
    parser.add_argument("--ints", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--libs", choices=("cublas", "none"))
    parser.add_argument("--order")
    parser.add_argument("--costs", help="table of costs to emit with")
    parser.add_argument("--math", choices=("fp32", "tf32", "fp16"))
    parser.add_argument("--keep-fp32")
    parser.add_argument("--ptx", metavar="ARCHITECTURE", help="run PTX instead of C++")
    parser.add_argument("--once", action="store_true", help="the program does not check itself")
    parser.add_argument("--new", action="store_true", help="only what options make different")
    parser.add_argument("-v", "--verbose", action="store_true")
    # For tests that call this one: options of emit, how much more of an error they take.
    parser.set_defaults(options=[], slack=1)
    return parser.parse_args(given)


def what_is_wrong(path, args):
    """What check_model finds, for tests that go on; nothing: all is right."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_model(path, args, folder)
        except (Failure, subprocess.TimeoutExpired, OSError) as error:
            return str(error)
    return ""


def main():
    args = arguments()
    passed = failed = 0
    for path in args.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                text = check_model(path, args, folder)
                passed += 1
                if args.verbose:
                    print("ok   %s: %s" % (os.path.basename(path), text), flush=True)
            except (Failure, ein.EinError, subprocess.TimeoutExpired, OSError, ValueError) as error:
                failed += 1
                print("FAIL %s: %s" % (os.path.basename(path), error), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
