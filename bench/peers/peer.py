#!/usr/bin/env python3
"""One peer, one model, one precision: made ready once, measured whenever asked.

usage: peer.py --system eager|compile|jax|reference --graph G.json --precision fp32|tf32|fp16
               [--weights FILE] [--reference R.npz] [--device cuda|cpu] [--mode MODE] [--sets N]

Prints a line of JSON when it is ready (variant, error, setup seconds, kernels), then one for every
line `measure MS` that it reads; ends with its input. `reference` writes the outputs in float64 to
R.npz instead. What libraries print goes to standard error. The faster of the peer's variants is
the one that is measured.
"""

import argparse
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import clock  # noqa: E402
import graph as graphs  # noqa: E402

CHOICE_MS = 5       # of a sample when variants are compared


def variants_of(args, attention):
    """What each peer tries. Products with a softmax between them: by its one call, and apart."""
    if args.system == "jax":
        base = ["calls", "loop"]
    elif args.system == "compile":
        base = ["channels_last"]
    else:
        base = ["channels_last", "nchw"]
    found = base + ([v + "+attention" for v in base] if attention else [])
    if attention and args.system == "jax" and (args.precision, args.device) == ("fp16", "cuda"):
        found += [v + "+attention+cudnn" for v in base]
    return found


def load(args, fused):
    graph = graphs.prepare(graphs.load(args.graph, args.weights))
    found = graphs.fuse_attention(graph) if fused else 0
    return graph, found


def ready(args, peer, say):
    """The faster of the variants that work, and what there is to say about it."""
    begin, best, failures = time.perf_counter(), None, []
    want = None
    if args.reference:
        with np.load(args.reference) as file:
            want = [file[k] for k in sorted(file.files, key=int)]
    plain, _ = load(args, False)
    attention = load(args, True)[1]
    inputs = [graphs.input_set(plain, i) for i in range(args.sets)]
    for variant in variants_of(args, attention):
        try:
            graph, _ = load(args, "+attention" in variant)
            system = peer.System(graph, args.precision, args.device, variant, inputs, args.mode)
            error = clock.relative_error(system.outputs(), want) if want else None
            if error is not None and not error <= args.tolerance:
                failures.append("%s: error %.2g" % (variant, error))
                continue
            count = clock.calibrate(system.replays, CHOICE_MS / 10)
            ms = sorted(system.replays(count) for _ in range(10))[5]
            if best is None or ms < best[0]:
                best = ms, system, variant, error
        except Exception as problem:    # a variant that a library refuses is no variant
            failures.append("%s: %s: %s" % (variant, type(problem).__name__,
                                            str(problem).split("\n")[0][:150]))
    if best is None:
        say({"status": "failed", "note": "; ".join(failures)})
        return None
    _, system, variant, error = best
    peer.release()
    kernels, suspicious = system.kernels()
    notes = [n for n in [system.note] + failures if n]
    if args.precision == "fp32" and suspicious:
        notes.append("%d kernels by name on tensor cores" % suspicious)
    say({"status": "ok", "variant": variant, "error": error, "kernels": kernels,
         "setup_s": round(time.perf_counter() - begin, 1), "versions": peer.versions(),
         "note": "; ".join(notes)})
    return system


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--system", required=True,
                        choices=("eager", "compile", "jax", "reference"))
    parser.add_argument("--graph", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "fp16"))
    parser.add_argument("--reference")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs")
    parser.add_argument("--sets", type=int, default=clock.SETS)
    args = parser.parse_args()
    args.tolerance = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 1e-2}[args.precision]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["EINNET_PEER_DEVICE"] = args.device
    if args.precision == "fp32":
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

    def say(what):
        out.write(json.dumps(what) + "\n")
        out.flush()

    if args.system == "reference":
        import torch_peer
        graph, _ = load(args, False)
        values = torch_peer.reference(graph, args.device, graphs.input_set(graph, 0))
        np.savez(args.reference, **{str(i): v for i, v in enumerate(values)})
        say({"status": "ok"})
        return 0
    if args.system == "jax":
        import jax_peer as peer
    else:
        import torch_peer as peer
    if args.system != "compile":
        args.mode = None
    system = ready(args, peer, say)
    for line in sys.stdin if system else ():
        word, _, ms = line.strip().partition(" ")
        if word != "measure":
            break
        say(clock.measure(system, float(ms)))
    return 0 if system else 1


if __name__ == "__main__":
    sys.exit(main())
