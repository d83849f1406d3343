#!/usr/bin/env python3
"""Command line of the oracle: eval, pack, inputs, info, nodes, compare, compare-dir.

Exit codes: 0 fine, 1 differs, 2 usage, 3 bad input, 4 unsupported operator, 5 I/O or memory.
"""

import argparse
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ein  # noqa: E402
import evaluate  # noqa: E402
import tensors  # noqa: E402
from compare import compare, compare_directories  # noqa: E402


def pairs(items, what):
    out = {}
    for item in items or []:
        key, sep, value = item.partition("=")
        if not sep or not key:
            raise SystemExit2("%s wants NAME=VALUE, not '%s'" % (what, item))
        out[key] = value
    return out


class SystemExit2(Exception):
    pass


def load(args):
    overrides = {}
    for item in args.dim or []:
        for key, value in pairs(item.split(","), "--dim").items():
            if not value.isdigit():
                raise SystemExit2("--dim %s: an integer is needed" % key)
            overrides[key] = int(value)
    return ein.load(args.model, args.small, overrides)


def given_inputs(program, args):
    out = evaluate.default_inputs(program, args.ints)
    for name, path in pairs(args.input, "--in").items():
        if name not in out:
            raise ein.EinError("the model has no input '%s'" % name)
        a = np.load(path, allow_pickle=False)
        t = program.tensors[name]
        if a.shape != t.shape:
            raise ein.EinError("%s is %s, input '%s' is %s" % (
                path, list(a.shape), name, list(t.shape)))
        if (t.dtype in tensors.FLOATS) != (a.dtype.kind == "f"):
            raise ein.EinError("%s is %s, input '%s' is %s" % (path, a.dtype, name, t.dtype))
        out[name] = a
    return out


def weight_source(program, args):
    if args.weights:
        return tensors.Blob(program, args.weights)
    positive = tensors.variance_names(program)
    blobs = pairs(args.blob, "--blob")
    return lambda name: tensors.weight(program, name, args.ints, blobs, positive)


def save(directory, name, a):
    os.makedirs(directory, exist_ok=True)
    np.save(os.path.join(directory, tensors.file_name(name)), a)


def do_eval(args):
    program = load(args)
    outputs = evaluate.evaluate(program, given_inputs(program, args), weight_source(program, args))
    for name, a in outputs.items():
        save(args.out, name, a)
    return 0


def do_pack(args):
    program = load(args)
    tensors.write_blob(program, args.output, weight_source(program, args))
    return 0


def do_inputs(args):
    program = load(args)
    for name, a in evaluate.default_inputs(program, args.ints).items():
        save(args.out, name, a)
    return 0


def do_info(args):
    print(json.dumps(evaluate.info(load(args)), indent=2))
    return 0


def do_nodes(args):
    """One line a tensor: for looking at what the reader made of a model."""
    program = load(args)
    for kind, names in (("input", program.inputs), ("weight", program.weights)):
        for n in names:
            t = program.tensors[n]
            print(kind, n, "%s%s" % (t.dtype, list(t.shape)), t.source or "")
    for node in program.nodes:
        for n in node.outputs:
            t = program.tensors[n]
            what = "equation" if node.equation else node.op
            lo = " from %s" % list(t.lo) if any(t.lo) else ""
            print(what, n, "%s%s%s" % (t.dtype, list(t.shape), lo),
                  ", ".join(str(x) for x in node.inputs), node.attrs or "")
    for published, full in program.outputs:
        print("output", published, full)
    return 0


def do_compare(args):
    text, same = compare(np.load(args.a, allow_pickle=False), np.load(args.b, allow_pickle=False),
                         args.rel, args.exact)
    print(text)
    return 0 if same else 1


def do_compare_dir(args):
    lines, same = compare_directories(args.a, args.b, args.rel, args.exact)
    print("\n".join(lines))
    return 0 if same else 1


def model_arguments(p):
    p.add_argument("model")
    p.add_argument("--small", action="store_true", help="the model's small dims")
    p.add_argument("--dim", action="append", metavar="NAME=VALUE")


def parser():
    top = argparse.ArgumentParser(prog="run.py", description=__doc__.split("\n")[0])
    sub = top.add_subparsers(dest="command", required=True)

    def add(name, function, text):
        p = sub.add_parser(name, help=text)
        p.set_defaults(function=function)
        return p

    p = add("eval", do_eval, "writes every output as .npy")
    model_arguments(p)
    p.add_argument("--out", required=True)
    p.add_argument("--in", dest="input", action="append", metavar="NAME=FILE")
    p.add_argument("--weights", help="a blob")
    p.add_argument("--blob", action="append", metavar="NAME=FILE")
    p.add_argument("--ints", action="store_true", help="small integers as weights and inputs")
    p = add("pack", do_pack, "writes the weight blob")
    model_arguments(p)
    p.add_argument("-o", dest="output", required=True)
    p.add_argument("--blob", action="append", metavar="NAME=FILE")
    p.add_argument("--ints", action="store_true")
    p.set_defaults(weights=None)
    p = add("inputs", do_inputs, "writes the default inputs")
    model_arguments(p)
    p.add_argument("--out", required=True)
    p.add_argument("--ints", action="store_true")
    for name, function, text in (("info", do_info, "prints sizes as JSON"),
                                 ("nodes", do_nodes, "lists the flat program")):
        model_arguments(add(name, function, text))
    for name, function, text in (("compare", do_compare, "compares A with the reference B"),
                                 ("compare-dir", do_compare_dir, "compares all .npy files")):
        p = add(name, function, text)
        p.add_argument("a")
        p.add_argument("b")
        p.add_argument("--rel", type=float, default=1e-5)
        p.add_argument("--exact", action="store_true")
    return top


def main(argv=None):
    args = parser().parse_args(argv)
    try:
        return args.function(args)
    except SystemExit2 as error:
        print(error, file=sys.stderr)
        return 2
    except ein.EinError as error:
        print(error, file=sys.stderr)
        return 4 if error.unsupported else 3
    except (OSError, MemoryError) as error:
        print(error, file=sys.stderr)
        return 5
    except (ValueError, ArithmeticError, RecursionError) as error:
        print("%s: %s" % (getattr(args, "model", args.command), error), file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
