"""Who takes part in a contest: emitted test programs, and peers as processes that stay.

What a contest is (`args` below): the options of rounds.py, the fields of one line of its list, and
`end` and `stopped`, by which everybody knows how much time is left.
"""

import glob
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time

import numpy as np

import clock
import tensors

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
MEASURE_LIMIT = 300     # seconds of one measurement
IMPORT_LIMIT = 240      # from a cold disk
REFERENCE_LIMIT = 300   # seconds, at least; without it there is no contest
STARTS = {"jax": 5}     # how often a process that ends before it says hello is started


class Failure(Exception):
    pass


class OutOfTime(Failure):
    pass


def left(args, limit):
    """Seconds of a limit that remain before the end."""
    seconds = min(limit, args.end - time.monotonic())
    if seconds <= 0:
        args.stopped = True
        raise OutOfTime("out of time")
    return seconds


class Program:
    """An emitted test program. It is started anew each time, as it starts quickly."""

    def __init__(self, args, system, path):
        self.system = system
        self.command = [path, args.weights]
        self.args = args
        self.times = {}
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
            self.ready["setup_s"] = self.times["first"] = round(time.perf_counter() - begin, 1)
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


def own_libraries():
    """The environment, where LD_LIBRARY_PATH has no cuDNN: peers bring the one they are built for,
    and torch refuses to start with another."""
    env = dict(os.environ)
    folders = env.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    kept = [folder for folder in folders if folder and not glob.glob(
        os.path.join(glob.escape(folder), "libcudnn*.so*"))]
    env["LD_LIBRARY_PATH"] = os.pathsep.join(kept)
    return env


def environment(args):
    """Of a peer; processes that compile side by side share the cores."""
    env = own_libraries()
    if args.lanes > 1:
        threads = max(1, (os.cpu_count() or 1) // args.lanes)
        env.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    return env


class Same:
    """Derivation makes no difference: there is no second program to measure."""

    system = "base"
    ready = {"note": "the same program"}


class Peer:
    """peer.py as a process that takes one contest after another.

    `load` asks for one, `settle` below follows it until `settled`: `problem` is then None, or why
    it does not take part. The time that it waits for the GPU, which the others have, is not its
    own. A process that fails ends, or is ended, and the next contest gets a new one.
    """

    def __init__(self, args, system, lane=0):
        self.system = system
        self.args = args
        self.lane = lane
        self.process = None
        self.starts = 0
        self.gone = None        # why no process of it starts
        self.strict = None      # whether the process may not use TF32
        self.settled = True
        self.hello = self.wants = self.holds = False
        self.ready, self.times, self.problem = {}, {}, None
        self.until = math.inf

    def launch(self):
        args = self.args
        command = [sys.executable, PEER, "--system", self.system,
                   "--device", args.device, "--mode", args.compile_mode, "--flags",
                   str(self.starts)]
        if self.strict:
            command.append("--no-tf32")
        with open(self.log(), "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            env=environment(args), stderr=log)
        self.hello, self.text = False, b""
        self.until = time.monotonic() + IMPORT_LIMIT
        self.send(self.command)

    def log(self):
        lane = ".%d" % self.lane if self.lane else ""
        return os.path.join(self.args.work, self.system + lane + ".log")

    def load(self, args, reference):
        self.limit = max(args.setup, REFERENCE_LIMIT) if self.system == "reference" else args.setup
        self.args, self.ready, self.times, self.problem = args, {}, {}, None
        self.settled = self.wants = self.holds = False
        if self.gone:
            self.settled, self.problem, self.ready = True, self.gone, {"note": self.gone}
            return
        strict = args.precision == "fp32"
        if strict != self.strict or (self.process and self.process.poll() is not None):
            self.stop()
        self.strict = strict
        self.command = {"do": "load", "graph": args.graph, "weights": args.weights,
                        "reference": reference, "precision": args.precision, "sets": args.sets,
                        "limit": self.limit}
        if self.process is None:
            self.launch()
        else:
            self.until = time.monotonic() + self.limit
            self.send(self.command)

    def send(self, command):
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass        # it has ended: its output says so

    def grant(self):
        """The GPU is its own until it is ready."""
        self.wants, self.holds = False, True
        self.until = time.monotonic() + self.remaining
        self.send({"do": "go"})

    def next_line(self):
        """A line that is there; None where it is not whole yet."""
        if b"\n" not in self.text:
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failure("ended: %s" % self.last_words())
            self.text += more
        line, found, rest = self.text.partition(b"\n")
        if not found:
            return None
        self.text = rest
        return json.loads(line)

    def last_words(self):
        with open(self.log(), "rb") as f:
            return f.read().decode(errors="replace").strip().split("\n")[-1][:150]

    def hear(self):
        """Takes what a process says that gets ready."""
        try:
            said = self.next_line()
            while said is not None:
                self.take(said)
                said = None if self.settled or b"\n" not in self.text else self.next_line()
        except Failure as problem:
            self.fail(problem)
        except ValueError as problem:
            self.fail("no answer: %s" % problem)

    def take(self, said):
        if said["status"] == "hello":
            self.hello = True
            self.times.update(said["times"])
            self.until = time.monotonic() + self.limit
        elif said["status"] == "gpu":
            self.wants = True
            self.remaining = max(1, self.until - time.monotonic())
            self.until = math.inf
        elif said["status"] == "free":
            self.holds = False
        elif said["status"] != "dropped":
            self.times.update(said.pop("times", {}))
            self.ready = said
            self.settled, self.holds = True, False
            if said["status"] != "ok":
                self.fail(said["note"])

    def fail(self, problem):
        """It does not take part; a process that ended before it said hello has another start."""
        self.stop()
        if not self.hello and not isinstance(problem, OutOfTime):
            self.starts += 1
            if self.starts < STARTS.get(self.system, 1):
                self.launch()
                return
            self.gone = str(problem)
        self.settled, self.wants, self.holds = True, False, False
        self.problem = str(problem)
        self.ready["note"] = self.problem

    def give_up(self):
        if time.monotonic() < self.until:
            self.args.stopped = True        # the end, not its own limit
        self.fail(OutOfTime("out of time"))

    def answer(self, limit):
        """What it says next."""
        until = time.monotonic() + left(self.args, limit)
        said = None
        while said is None:
            rest = max(0, until - time.monotonic())
            if b"\n" not in self.text and \
                    not select.select([self.process.stdout], [], [], rest)[0]:
                left(self.args, limit)
                raise Failure("more than %d seconds" % limit)
            said = self.next_line()
        return said

    def measure(self, ms):
        self.send({"do": "measure", "ms": ms})
        try:
            return self.answer(MEASURE_LIMIT)
        except Failure:
            self.stop()     # it has ended, or would answer too late
            raise

    def drop(self):
        """Its memory is the others' when this returns."""
        if self.process:
            self.send({"do": "drop"})
            try:
                self.answer(60)
            except Failure:
                self.stop()

    def stop(self):
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        self.process = None


def settle(args, peers, first=None):
    """Until each peer is ready or does not take part; with `first`, until that one is, and no other
    has the GPU before. One at a time has it, so that times by which libraries choose their kernels
    are good; what needs no GPU goes on beside it."""
    queue = []
    while True:
        busy = [p for p in peers if not p.settled]
        if not busy or (first and first.settled):
            return
        queue = [p for p in queue if p.wants] + [p for p in busy if p.wants and p not in queue]
        queue = [p for p in queue if first in (None, p)]
        if queue and not any(p.holds for p in busy):
            queue.pop(0).grant()
        until = min([p.until for p in busy] + [args.end]) - time.monotonic()
        heard = select.select([p.process.stdout for p in busy], [], [],
                              None if until == math.inf else max(0, until))[0]
        for peer in busy:
            if peer.process.stdout in heard:
                peer.hear()
            elif time.monotonic() >= min(peer.until, args.end):
                peer.give_up()
