#!/usr/bin/env python3
"""One peer as a process that stays: it loads one contest after another and is measured when asked.

usage: peer.py --system eager|compile|jax|reference [--device cuda|cpu] [--mode MODE] [--no-tf32]
               [--flags N]

Prints a line of JSON when its libraries are there, then one for every line that it reads, a JSON
object too:

    {"do": "load", "graph", "weights", "reference", "precision", "sets", "limit"}
                            status ok, variant, error, setup seconds, kernels, times of its parts
    {"do": "measure", "ms"} times; see clock.py
    {"do": "drop"}          status dropped: nothing of the contest is left

While it loads, more: status gpu, when what follows times kernels, and it waits for a line; status
free, when it has done so and compiles something else.
`reference` writes the outputs in float64 to its file instead, and is not measured. A process that
cannot load ends. What libraries print goes to standard error. The fastest of the peer's variants is
the one that is measured.
"""

import argparse
import copy
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import clock  # noqa: E402
import graph as graphs  # noqa: E402

# Tried where no variant is right: weights as constants, which are quicker, can give wrong outputs
# (gcn, torch 2.11 on a CPU: an error of 0.84).
UNFROZEN = "+unfrozen"
CHOICE_MS = 5       # of a sample when variants are compared
TOLERANCE = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 1e-2}


class Setup:
    """A contest while it gets ready: seconds of its parts, and its turn at the GPU."""

    def __init__(self, command, say, hear):
        self.__dict__.update(command)
        self.say, self.hear = say, hear
        self.times = {"wait": 0.0}
        self.begin = self.last = time.perf_counter()
        self.held = False

    def mark(self, part):
        """What was done since the last mark is of that part."""
        now = time.perf_counter()
        self.times[part] = self.times.get(part, 0.0) + now - self.last
        self.last = now

    def gpu(self):
        """Waits until nobody else uses the GPU; the first call does. No part has the wait."""
        if self.held:
            return
        self.held = True
        begin = time.perf_counter()
        self.say({"status": "gpu"})
        self.hear()
        wait = time.perf_counter() - begin
        self.times["wait"] += wait
        self.last += wait

    def free(self):
        """Others may use it, while this one does something else."""
        if self.held:
            self.held = False
            self.say({"status": "free"})

    def spent(self):
        return time.perf_counter() - self.begin - self.times["wait"]

    def rounded(self):
        return {k: round(v, 1) for k, v in self.times.items()}


def variants_of(system, setup, device, attention):
    """What each peer tries. Products with a softmax between them: by its one call, and apart."""
    if system == "jax":
        base = ["calls", "loop"]
    elif system == "compile":
        base = ["channels_last"]
    else:
        base = ["channels_last", "nchw"]
    found = base
    if attention:
        found = [v + "+attention" for v in base] + base
    if attention and system == "jax" and (setup.precision, device) == ("fp16", "cuda"):
        found = [v + "+attention+cudnn" for v in base] + found
    return found


def load(setup):
    """The graph, and the same with attention in one node, or None where there is none."""
    plain = graphs.prepare(graphs.load(setup.graph, setup.weights))
    fused = copy.copy(plain)
    fused.nodes = copy.deepcopy(plain.nodes)
    fused.tensors, fused.values = dict(plain.tensors), dict(plain.values)
    return plain, fused if graphs.fuse_attention(fused) else None


class Best:
    """The fastest variant so far, and why others are none."""

    def __init__(self, setup):
        self.ms = self.system = self.variant = self.error = None
        self.failures = []
        self.longest = 0.0
        self.want = None
        self.reference = setup.reference

    def error_of(self, outputs):
        if self.want is None:       # not read before: it is written while others get ready
            with np.load(self.reference) as file:
                self.want = [file[k] for k in sorted(file.files, key=int)]
        return clock.relative_error(outputs, self.want)

    def try_variant(self, peer, setup, variant, arguments, made):
        """Keeps it when it is the fastest. One that may not be ready in time is not begun when
        there is another: the process would be ended, and with it what it has."""
        begin = setup.spent()
        if self.system and setup.limit and begin + 1.2 * self.longest > setup.limit:
            self.failures.append("%s: no time to try it" % variant)
            return
        setup.free()
        try:
            system = peer.System(setup, variant, *arguments, made)
            setup.gpu()
            error = self.error_of(system.outputs())
            if not error <= TOLERANCE[setup.precision]:
                self.failures.append("%s: error %.2g" % (variant, error))
                return
            made[variant] = system
            count = clock.calibrate(system.replays, CHOICE_MS / 10)
            ms = sorted(system.replays(count) for _ in range(10))[5]
            if self.ms is None or ms < self.ms:
                self.ms, self.system, self.variant, self.error = ms, system, variant, error
        except Exception as problem:    # a variant that a library refuses is no variant
            self.failures.append("%s: %s: %s" % (variant, type(problem).__name__,
                                                 str(problem).split("\n")[0][:150]))
        setup.mark("choose")
        self.longest = max(self.longest, setup.spent() - begin)


def ready(args, peer, setup):
    """(the fastest of the variants that work, what there is to say about it)."""
    plain, fused = load(setup)
    inputs = [graphs.input_set(plain, i) for i in range(setup.sets)]
    setup.mark("load")
    best, made = Best(setup), {}
    variants = variants_of(args.system, setup, args.device, fused is not None)
    for variant in variants + [v + UNFROZEN for v in variants if args.system == "compile"]:
        if best.system and UNFROZEN in variant:
            break
        graph = fused if "+attention" in variant else plain
        best.try_variant(peer, setup, variant, (graph, args.device, inputs, args.mode), made)
        if args.system != "jax":
            made.clear()            # there, one variant is made of another
    made.clear()
    system, failures = best.system, best.failures
    if system is None:
        return None, {"status": "failed", "note": "; ".join(failures), "times": setup.rounded()}
    peer.release()
    kernels, suspicious = system.kernels()
    notes = [n for n in [system.note] + failures if n]
    if setup.precision == "fp32" and suspicious:
        notes.append("%d kernels by name on tensor cores" % suspicious)
    variant = best.variant + (" " + args.mode if args.mode else "")
    setup.mark("choose")
    return system, {"status": "ok", "variant": variant, "error": best.error, "kernels": kernels,
                    "setup_s": round(setup.spent(), 1), "versions": peer.versions(),
                    "note": "; ".join(notes), "times": setup.rounded()}


def write_reference(peer, args, setup):
    graph, _ = load(setup)
    inputs = graphs.input_set(graph, 0)
    setup.mark("load")
    setup.gpu()
    values = peer.reference(graph, args.device, inputs)
    np.savez(setup.reference, **{str(i): v for i, v in enumerate(values)})
    peer.forget()
    setup.mark("first")
    return {"status": "ok", "times": setup.rounded()}


def serve(args, peer, say, hear):
    """Answers line after line, until there is none; the exit code."""
    system = None
    while True:
        command = hear()
        if command["do"] == "measure":
            say(clock.measure(system, command["ms"]))
            continue
        system = None
        peer.forget()
        if command["do"] == "drop":
            say({"status": "dropped"})
            continue
        setup = Setup(command, say, hear)
        if args.system == "reference":
            say(write_reference(peer, args, setup))
            continue
        system, said = ready(args, peer, setup)
        say(said)
        if system is None:
            return 1


def start(args, say):
    """The peer's module, once its libraries are loaded and have done something."""
    begin = time.perf_counter()
    if args.system == "jax":
        import jax_peer as peer
    else:
        import torch_peer as peer
    imported = time.perf_counter()
    peer.warm_up(args.device, args.mode)
    say({"status": "hello", "times": {
        "import": round(imported - begin, 1),
        "context": round(time.perf_counter() - imported, 1)}})
    return peer


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--system", required=True,
                        choices=("eager", "compile", "jax", "reference"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs")
    parser.add_argument("--no-tf32", action="store_true", help="in no library, whoever asks for it")
    parser.add_argument("--flags", type=int, default=0, help="which of jax_peer's FLAGS")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["EINNET_PEER_DEVICE"] = args.device
    os.environ["EINNET_PEER_FLAGS"] = str(args.flags)
    if args.no_tf32:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    if args.system != "compile":
        args.mode = None

    def say(what):
        out.write(json.dumps(what) + "\n")
        out.flush()

    def hear():
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)
    return serve(args, start(args, say), say, hear)


if __name__ == "__main__":
    sys.exit(main())
