#!/usr/bin/env python3
"""The twins that bench/peers runs, their timing, and the report.

Twins of all models must agree with the oracle at small sizes: through numpy, and through torch and
jax where they are installed. Floors must be those of the published table. Rows with invented
numbers, in invented.tsv, must give the report in invented/, byte for byte.

usage: test_peers.py [--update]
"""

import contextlib
import importlib.util
import io
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
import time
import types

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BENCH = os.path.join(TOP, "bench")
EINNET = os.path.join(TOP, "build", "einnet")
sys.path[:0] = [HERE, BENCH, os.path.join(BENCH, "peers"), os.path.join(TOP, "tests", "oracle")]

import clock  # noqa: E402
import ein  # noqa: E402
import evaluate  # noqa: E402
import graph as graphs  # noqa: E402
import lower  # noqa: E402
import numpy_ops  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402
import systems  # noqa: E402
import tensors  # noqa: E402
import work  # noqa: E402
from compare import compare  # noqa: E402
from run_graph import Run  # noqa: E402

LIMIT = 1e-12       # float64 against float64
HAS = {name: importlib.util.find_spec(name) is not None for name in ("torch", "jax")}
results = []


def check(name, good, words=""):
    results.append(good)
    if not good:
        print("FAIL %s%s" % (name, ": " + str(words) if words else ""))


def model_path(name):
    return os.path.join(TOP, "models", name + ".ein")


def models():
    found = []
    for folder in ("", "cases/"):
        names = sorted(os.listdir(os.path.join(TOP, "models", folder)))
        found += [folder + n[:-4] for n in names if n.endswith(".ein")]
    return found


def read_graph(path, options, folder):
    file = os.path.join(folder, "graph.json")
    subprocess.run([EINNET, "graph", path, "--json", "-o", file] + options, check=True)
    return file


# ---------------------------------------------------------------- twins

def libraries():
    """(name, graph, inputs -> outputs) of the libraries that are here; in float64."""
    yield "numpy", lambda g, xs: numpy_ops.run(Run, g, xs)
    if HAS["torch"]:
        import torch

        import torch_ops

        def torch_run(g, xs):
            for last in (True, False):
                made = torch_ops.module(Run, g, "fp64", "cpu", last)
                with torch.inference_mode():
                    out = made(*[torch.from_numpy(np.asarray(x)) for x in xs])
            return [y.numpy() for y in out]
        yield "torch", torch_run
    if HAS["jax"]:
        import jax

        import jax_ops
        jax.config.update("jax_enable_x64", True)

        def jax_run(g, xs):
            program, constants = jax_ops.function(Run, g, "fp64")
            return [np.asarray(y) for y in jax.jit(program)(constants, xs)]
        yield "jax", jax_run


def twin(path, folder, libs):
    """Every library against the oracle; attention apart and, where there is some, as one node."""
    name = os.path.relpath(path, TOP)
    program = ein.load(path, small=True)
    positive = tensors.variance_names(program)
    want = evaluate.evaluate(program, evaluate.default_inputs(program),
                             lambda n: tensors.weight(program, n, False, {}, positive))
    file = read_graph(path, ["--small"], folder)
    found = 0
    for fused in (False, True):
        graph = graphs.prepare(graphs.load(file))
        found = graphs.fuse_attention(graph) if fused else 0
        if fused and not found:
            break
        for library, run in libs:
            try:
                got = run(graph, graphs.input_set(graph, 0))
            except Exception as problem:    # whatever a library says to a wrong call
                check("%s by %s" % (name, library), False, problem)
                continue
            for (output, w), y in zip(want.items(), got):
                said, same = compare(np.asarray(y), w, LIMIT)
                check("%s %s by %s" % (name, output, library), same, said)
    return found


EQUATIONS = ("attention", "eq_band_forms", "eq_batches", "eq_guards", "eq_phases", "eq_ranges",
             "eq_reduce", "conv_groups", "matmul_ranks", "norms", "places", "split_concat",
             "scalars")


def test_twins(folder):
    libs = list(libraries())
    fused = {name: twin(model_path(name), folder, libs) for name in models()}
    check("attention is found in transformers alone",
          fused["bert_base"] == 2 and fused["vit_b"] == 2 and fused["longformer"] == 0 and
          fused["resnet18"] == 0, str(fused))
    for name in EQUATIONS:
        twin(os.path.join(TOP, "tests", "unseen", name + ".ein"), folder, libs[:2])
    rows, lower.BAND_ROWS = lower.BAND_ROWS, 8      # several blocks at small sizes too
    for name in ("longformer", "longformer_short", "cases/g2bmm"):
        twin(model_path(name), folder, libs)
    lower.BAND_ROWS = rows


# Text of an attention with holes: the scores, what is between, the second product; and whether it
# is one that a single call can compute.
ATTENTION = """ein 1
model m
dim N = 2, H = 3, M = 5, P = 4
input x: f32[N,H,M,P]
input k: f32[N,H,M,P]
input v: f32[N,M,H,P]
output y
%s
a = Softmax(s; axis=-1)
%s
"""
SCORES = "s[n,h,m,j] = 0.5 * sum(p) x[n,h,m,p] * k[n,h,j,p]"
VALUES = "y[n,m,h,p] = sum(j) a[n,h,m,j] * v[n,j,h,p]"
FORMS = (
    (SCORES, VALUES, 1),
    (SCORES, VALUES.replace("sum(j) a", "3 * sum(j) a"), 1),
    (SCORES.replace("x[n,h,m,p] * k[n,h,j,p]", "k[n,h,j,p] * x[n,h,m,p]"), VALUES, 1),
    (SCORES.replace("s[", "t[") + "\ns[n,h,m,j] = t[n,h,m,j] * 0.25",
     "y[h,m,n,p] = sum(j) v[n,j,h,p] * a[n,h,m,j]", 1),
    (SCORES.replace("s[", "t[") + "\ns[n,h,m,j] = t[n,h,j,m] * 0.25", VALUES, 0),
    (SCORES.replace("k[n,h,j,p]", "k[n,h,j-1,p]") + " where j in 0:5, pad k 0", VALUES, 0),
    (SCORES + " + x[n,h,m,0]", VALUES, 0),
    (SCORES, VALUES.replace("v[n,j,h,p]", "v[n,j,h,p] * [j < 4]"), 0),
    (SCORES, VALUES + "\noutput a", 0),
    (SCORES, VALUES.replace("v[n,j,h,p]", "v[n,m,h,p]"), 0),
)


def test_attention(folder):
    libs = list(libraries())
    for number, (scores, values, wanted) in enumerate(FORMS):
        path = os.path.join(folder, "attention%d.ein" % number)
        with open(path, "w", encoding="utf-8") as f:
            f.write(ATTENTION % (scores, values))
        found = twin(path, folder, libs)
        check("attention in form %d" % number, found == wanted, "%d found" % found)


def test_precisions(folder):
    """Half precision rounds: close to float64, not equal to it, and f32 at the border."""
    if not HAS["torch"]:
        return
    import torch

    import torch_ops
    file = read_graph(model_path("resnet18"), ["--small"], folder)
    graph = graphs.prepare(graphs.load(file))
    inputs = [torch.from_numpy(x) for x in graphs.input_set(graph, 0)]
    out = {}
    for precision in ("fp64", "fp32", "fp16"):
        with torch.inference_mode():
            out[precision] = torch_ops.module(Run, graph, precision, "cpu")(*inputs)[0]
    for precision, low, high in (("fp32", 1e-9, 1e-5), ("fp16", 1e-5, 1e-2)):
        error = clock.relative_error([out[precision].numpy()], [out["fp64"].numpy()])
        check("%s has the error of its width" % precision, low < error < high, str(error))
        check("%s gives f32" % precision, out[precision].dtype == torch.float32)


def test_graph(folder):
    path = model_path("cases/basic_block")
    file = read_graph(path, ["--small"], folder)
    blob = os.path.join(folder, "blob")
    subprocess.run([EINNET, "pack", path, "--small", "-o", blob], check=True)
    seeded, packed = graphs.load(file), graphs.load(file, blob)
    check("packed weights are the seeded ones", all(
        np.array_equal(seeded.values[k], packed.values[k]) for k in seeded.values))
    other = read_graph(model_path("cases/conv3x3"), ["--small"], folder)
    check("weights of another model are refused", refused(lambda: graphs.load(other, blob)))
    with open(blob, "r+b") as f:
        f.truncate(300)
    file = read_graph(path, ["--small"], folder)
    check("a cut file of weights is refused", refused(lambda: graphs.load(file, blob)))
    check("another version is refused", refused(lambda: graphs.Graph('{"einnet_graph": 2}')))
    pools = read_graph(os.path.join(TOP, "tests", "unseen", "pools.ein"), ["--small"], folder)
    graph = graphs.prepare(graphs.load(pools))
    check("what twins cannot do is said", refused(
        lambda: numpy_ops.run(Run, graph, graphs.input_set(graph, 0))))
    graph = graphs.load(file)
    one, two = graphs.input_set(graph, 0)[0], graphs.input_set(graph, 1)[0]
    check("sets of inputs differ", not np.array_equal(one, two) and one.shape == two.shape)


def refused(function):
    try:
        function()
    except graphs.Unsupported as problem:
        return bool(str(problem))
    return False


# Microseconds on an H200, network / layers: the published table of floors.
FLOORS = {
    ("resnet18", 1): ((54, 55), (9.9, 15), (4.9, 7.3)),
    ("resnet18", 16): ((866, 868), (117, 129), (59, 65)),
    ("dcgan", 1): ((3.1, 4.6), (3.0, 3.2), (1.5, 1.6)),
    ("bert_base", 1): ((334, 334), (71, 96), (36, 48)),
    ("resnet50", 16): ((1953, 1954), (265, 385), (132, 193)),
    ("mobilenet_v2", 1): ((9.0, 16), (3.0, 14), (1.5, 7.1)),
    ("longformer", 1): ((1003, 1003), (136, 337), (68, 168)),
}


def test_floors(folder):
    for (name, batch), table in FLOORS.items():
        file = read_graph(model_path(name), ["--dim", "N=%d" % batch], folder)
        graph = report.shape_graph(file)
        for precision, want in zip(work.PRECISIONS, table):
            got = work.floors(graph, "h200", precision)
            close = all(abs(a - b) <= 0.035 * b for a, b in zip(got, want))
            check("floors of %s, batch %d, %s" % (name, batch, precision), close,
                  "%s, published %s" % (got, want))
    check("no floor where there are no units", work.floors(graph, "v100", "tf32") is None)


# ---------------------------------------------------------------- timing and rounds

class FakeSystem:
    """A system whose runs take known times."""

    def __init__(self):
        self.asked = []

    def replays(self, n):
        self.asked.append(n)
        return 0.5

    def cold(self):
        return 0.75

    def single(self):
        return 1.25


def test_clock():
    system = FakeSystem()
    out = clock.measure(system, 0.01)
    check("times are microseconds", (out["median_us"], out["cold_median_us"],
                                     out["latency_median_us"]) == (500, 750, 1250), str(out))
    check("median and 95th percentile", clock.figures([4, 1, 3, 2]) == (2500, 4000))
    check("of many", clock.figures(list(range(1, 101))) == (50500, 95000))
    check("NaN is no agreement", clock.relative_error([[math.nan]], [[1.0]]) == math.inf)
    check("nor another shape", clock.relative_error([[1.0, 1.0]], [[1.0]]) == math.inf)
    check("an error is relative", abs(clock.relative_error([[3.0, 4.4]], [[3.0, 4.0]]) - 0.08)
          < 1e-12)


class FakePeer:
    def __init__(self, system, log, times):
        self.system, self.log, self.due, self.ready, self.times = system, log, times, {}, {}
        self.settled, self.problem = True, None

    def load(self, args, reference):
        pass

    def drop(self):
        self.log.append("drop")

    def measure(self, ms):
        self.log.append(self.system)
        time = self.due.pop(0)
        if time is None:
            raise rounds.Failure("gone")
        if time == "late":
            raise rounds.OutOfTime("out of time")
        return {"median_us": time, "p95_us": time, "cold_median_us": time,
                "latency_median_us": time}


def test_rounds(folder):
    args = types.SimpleNamespace(model="m", batch=1, precision="fp32", rounds=2, bench_ms=1,
                                 out=os.path.join(folder, "written.tsv"), fair=math.inf, seen=[],
                                 stopped=False, end=math.inf)
    log, rows = [], []
    who = [FakePeer("ours", log, [10.0, 10.5, 10.0, 10.0]),
           FakePeer("eager", log, [20.0, 21.0, 20.0, 20.0]),
           FakePeer("jax", log, [5.0, None])]
    rounds.rounds(args, who, rows)
    check("order is A B C C B A", log[:6] == ["ours", "eager", "jax", "jax", "eager", "ours"])
    check("who fails is left out", log[6:] == ["ours", "eager", "eager", "ours"], str(log))
    late, kept = FakePeer("ours", [], [1.0, 1.0, 1.0, "late"]), []
    rounds.rounds(args, [late], kept)
    check("half a round is dropped", len(kept) == 2 and not late.ready, kept)
    args.fair, ours, kept = 0, FakePeer("ours", [], [1.0] * 4), []
    rounds.rounds(args, [ours], kept)
    check("one round, then the others' time", len(kept) == 2 and args.stopped, kept)
    args.fair, args.stopped = math.inf, False
    late, kept = FakePeer("ours", [], [1.0, math.nan]), []
    rounds.rounds(args, [late], kept)
    check("a time that is none fails", [r.split("\t")[5] for r in kept] == ["ok", "failed"], kept)
    alone = FakePeer("compile", log, [9.0, 9.0, 9.0, 9.0])
    who[0].due = [10.0, 10.0, 10.0, 10.0]
    rounds.alone(args, who[0], alone, "R", 3, rows)
    check("who found no memory has rounds of its own", log[10:] ==
          ["ours", "compile", "compile", "ours"] * 2 + ["drop"], log[10:])
    file = os.path.join(folder, "rows.tsv")
    with open(file, "w", encoding="utf-8") as f:
        f.write("\n".join(["\t".join(rounds.COLUMNS)] + rows) + "\n")
    case = report.read_rows([file])[("m", 1, "fp32")]
    check("a ratio is of paired rounds", case.ratio("eager")[1:] == (2.0, 2.0), case.ratio("eager"))
    check("the spread is of our own", abs(case.spread() - 0.05) < 1e-12)
    check("rounds pair with their own", case.ratio("compile") == (0.9, 0.9, 0.9),
          case.ratio("compile"))
    check("who failed is not compared", case.ratio("jax") is None and
          case.best_peer() == "compile" and case.failed == {"jax": "gone"}, case.failed)


def test_program(folder):
    """An emitted program that fails, answers wrongly or hangs is a failure with its reason."""
    args = types.SimpleNamespace(weights="W", outputs=["y"], setup=1, note="",
                                 end=math.inf, stopped=False)

    def program(text):
        path = os.path.join(folder, "program.sh")
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return rounds.Program(args, "ours", path)

    def problem(function):
        try:
            function()
        except (rounds.Failure, OSError, ValueError) as error:
            return str(error)
        return None
    values = np.array([1.0, 2.0])
    good = os.path.join(folder, "good.npy")
    np.save(good, values)
    copy = '[ "$2" = --bench ] || cp "%s" "$3/y.npy"\n' % good
    check("a program's outputs are compared", problem(
        lambda: program(copy).start([values], 1e-5)) is None)
    check("and refused when they differ", problem(
        lambda: program(copy).start([values + 1], 1e-5)) == "out of tolerance")
    said = problem(lambda: program("echo 'run: it broke' >&2; exit 5\n").measure(1))
    check("its last words are kept", said == "exit code 5: run: it broke", said)
    check("it may not hang", problem(
        lambda: program("exec sleep 5\n").start([values], 1)) == "more than 1 seconds")
    check("what it prints is JSON", problem(lambda: program("echo no\n").measure(1)) is not None)


# A peer whose contests are named by what happens in them: each word of "graph" in turn.
FAKE_PEER = """import json, os, sys, time
def say(status, **more):
    print(json.dumps({"status": status, **more}), flush=True)
flags = sys.argv[sys.argv.index("--flags") + 1]
system = sys.argv[sys.argv.index("--system") + 1]
log = open(__file__ + ".log", "a", buffering=1)
log.write("start %s %s\\n" % (system, "strict" if "--no-tf32" in sys.argv else "free"))
if system == "jax" and flags == "0":
    sys.exit("unknown flag")
if system == "absent":
    sys.exit("no module")
say("hello", times={"import": 1.5})
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] != "load":
        say("dropped") if command["do"] == "drop" else say("ok", median_us=command["ms"])
        continue
    if system == "reference":
        import numpy
        numpy.savez(command["reference"], **{"0": numpy.array([1.0, 2.0])})
    words = command["graph"]
    if os.path.exists(words):
        with open(words + "." + system, encoding="ascii") as f:
            words = f.read()
    for word in words.split():
        log.write("%s %s\\n" % (system, word))
        if word == "gpu":
            say("gpu")
            sys.stdin.readline()
            log.write("%s has\\n" % system)
        elif word == "free":
            say("free")
        elif word == "sleep":
            time.sleep(0.3)
        elif word == "hang":
            time.sleep(60)
        elif word == "crash":
            sys.exit("it broke")
        elif word in ("refuse", "full"):
            say("failed", note="a reason" if word == "refuse" else "CUDA out of memory")
            sys.exit(1)
    say("ok", variant=system, times={"load": 0.5})
"""


class PeersBeside:
    """Peers played by FAKE_PEER, and what happened, in order."""

    def __init__(self, folder, names):
        systems.PEER = os.path.join(folder, "fake_peer.py")
        self.log = systems.PEER + ".log"
        with open(systems.PEER, "w", encoding="utf-8") as f:
            f.write(FAKE_PEER)
        options = self.contest("", folder=folder)
        self.options = options
        self.peers = [systems.Peer(options, name) for name in names]

    def contest(self, words, precision="fp32", setup=30, end=math.inf, folder=None):
        return types.SimpleNamespace(
            work=folder or self.options.work, device="cpu", compile_mode="default", setup=setup,
            end=end, stopped=False, precision=precision, graph=words, weights="W", sets=1, lanes=1)

    def settle(self, words, **more):
        """One contest; words of all peers, or of each. Gives what happened, and the problems."""
        with open(self.log, "w", encoding="utf-8"):
            pass
        words = [words] * len(self.peers) if isinstance(words, str) else words
        contests = [self.contest(one, **more) for one in words]
        for peer, args in zip(self.peers, contests):
            peer.load(args, "R")
        systems.settle(contests[0], self.peers)
        with open(self.log, encoding="utf-8") as f:
            return f.read().split("\n")[:-1], [peer.problem for peer in self.peers]

    def stop(self):
        for peer in self.peers:
            peer.stop()


def test_settle(folder):
    """Peers stay, have the GPU one at a time, and lose only the contest that they fail."""
    path, both = systems.PEER, None
    try:
        both = PeersBeside(folder, ["eager", "compile"])
        happened, problems = both.settle("gpu sleep")
        check("both are ready", problems == [None, None] and "start eager strict" in happened,
              happened)
        has = [line.split()[0] for line in happened if line.endswith(("has", "sleep"))]
        check("one at a time has the GPU", has[0] == has[1] != has[2] == has[3], happened)
        check("times are kept", both.peers[0].times == {"import": 1.5, "load": 0.5})
        happened, problems = both.settle(["gpu free sleep sleep", "sleep gpu"])
        check("who frees it does not keep others waiting", problems == [None, None] and
              happened[-1] == "compile has" or happened.index("compile has") >
              happened.index("eager has"), happened)
        check("nobody starts again", not any("start" in line for line in happened), happened)
        check("it is measured", both.peers[1].measure(7) == {"status": "ok", "median_us": 7})
        happened, problems = both.settle(["gpu hang", "gpu"], setup=1)
        check("who takes too long is left out", problems == ["out of time", None] and
              not both.peers[0].args.stopped, problems)
        happened, problems = both.settle(["gpu sleep sleep sleep sleep sleep", "gpu"], setup=1.7)
        check("a wait for the GPU is not its own time", problems == [None, None] and
              "start eager strict" in happened, problems)
        happened, problems = both.settle(["crash", "refuse"])
        check("who fails says why", problems == ["ended: it broke", "a reason"], problems)
        happened, problems = both.settle("gpu", precision="tf32")
        check("TF32 needs another process", problems == [None, None] and
              sorted(happened)[-2:] == ["start compile free", "start eager free"], happened)
        check("FP16 does not", not any("start" in line for line in
                                       both.settle("gpu", precision="fp16")[0]))
        happened, problems = both.settle("hang", end=time.monotonic() + 0.5)
        check("the end ends all", problems == ["out of time"] * 2 and both.peers[0].args.stopped)
        both.stop()
        both = PeersBeside(folder, ["jax", "absent"])
        happened, problems = both.settle("gpu")
        check("other flags are tried", problems == [None, "ended: no module"], problems)
        happened, problems = both.settle("gpu")
        check("who cannot start is not started again", happened == ["jax gpu", "jax has"] and
              problems == [None, "ended: no module"], happened)
    finally:
        systems.PEER = path
        if both:
            both.stop()


def lanes_program(folder, name, outputs):
    """What stands for an emitted program: the outputs of the fake reference."""
    np.save(os.path.join(folder, "lane.npy"), np.array([1.0, 2.0]))
    path = os.path.join(folder, name)
    copies = "".join('cp "%s/lane.npy" "$3/%s.npy"; ' % (folder, y) for y in outputs)
    with open(path, "w", encoding="ascii") as f:
        f.write('#!/bin/sh\n[ "$2" = --bench ] || { %sexit; }\necho \'%s\'\n' % (copies, json.dumps(
            {"median_us": 5, "p95_us": 5, "cold_median_us": 5, "latency_median_us": 5})))
    os.chmod(path, 0o755)
    return path


def run_lanes(folder, words, lanes, peers="compile"):
    """Contests of one model each, with what its peers do, the last of the first one's graph: (exit
    code, lines printed, statuses of the rows of each)."""
    graph = read_graph(model_path("dcgan"), [], folder)
    with open(graph, encoding="utf-8") as f:
        text = f.read()
    outputs = [name for name, _ in graphs.Graph(text).outputs]
    program = lanes_program(folder, "lane.sh", outputs)
    rows = []
    with open(os.path.join(folder, "list"), "w", encoding="ascii") as f:
        for number, word in enumerate(words):
            last = number > 0 and number == len(words) - 1
            own = os.path.join(folder, "graph%d" % (0 if last else number))
            for name, what in (("", text), (".compile", word), (".eager", "gpu"),
                               (".reference", "gpu")):
                with open(own + name, "w", encoding="utf-8") as g:
                    g.write(what)
            rows.append(os.path.join(folder, "rows%d" % number))
            f.write("\t".join(["c%d" % number, "m", "1", "fp32", own, "W", program, "-", "-", "-",
                               "-", rows[-1]]) + "\n")
    options = types.SimpleNamespace(
        list=os.path.join(folder, "list"), peers=peers, rounds=1, bench_ms=1.0, sets=1,
        device="cpu", compile_mode="default", work=folder, lanes=lanes, deadline=60.0, setup=20.0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = rounds.run(options, folder)
    found = []
    for path in rows:
        with open(path, encoding="utf-8") as f:
            found.append([line.split("\t")[3:6:2] for line in f.read().split("\n")[:-1]])
    return code, said.getvalue().split("\n"), found


def test_lanes(folder):
    """Contests side by side are those one after another, with a process for each."""
    path = systems.PEER
    systems.PEER = os.path.join(folder, "lane_peer.py")
    log = systems.PEER + ".log"
    try:
        with open(systems.PEER, "w", encoding="utf-8") as f:
            times = ["median_us", "p95_us", "cold_median_us", "latency_median_us"]
            f.write(FAKE_PEER.replace(
                'say("ok", median_us=command["ms"])',
                'say("ok", **dict.fromkeys(%s, 7)); log.write("measures\\n")' % times).replace(
                    'log.write("%s has\\n" % system)',
                    'system == "reference" or open(command["reference"]).close()'))
        both = [["ours", "ok"], ["compile", "ok"], ["compile", "ok"], ["ours", "ok"]]
        same = ["base", "same"]
        for lanes in (1, 3):
            open(log, "w", encoding="ascii").close()
            code, said, rows = run_lanes(folder, ["gpu", "sleep gpu", "refuse", "gpu"], lanes)
            check("%d lanes: contests are whole" % lanes, code == 0 and rows[:2] + rows[3:] ==
                  [[same] + both] * 3, rows)
            check("%d lanes: who fails is left out" % lanes, rows[2] ==
                  [same, ["compile", "failed"], ["ours", "ok"], ["ours", "ok"]], rows[2])
            check("%d lanes: each is told in turn" % lanes,
                  [line for line in said if line.startswith(("begin", "end"))] ==
                  [w % n for n in range(4) for w in ("begin c%d", "end c%d 0 ")], said)
            with open(log, encoding="utf-8") as f:
                happened = f.read().split("\n")
            starts = happened.count("start compile strict")
            check("%d lanes: processes stay" % lanes, starts == (2 if lanes == 1 else 3), happened)
            group = happened[:happened.index("measures")]
            check("%d lanes: all get ready before one is measured" % lanes,
                  group.count("compile gpu") == (1 if lanes == 1 else 2), group)
        code, said, rows = run_lanes(folder, ["full", "gpu", "full"], 3, "eager,compile")
        last = [line for line in said if line.startswith("end")]
        check("who finds no memory comes last, and others lose nothing", code == 0 and
              last == ["end c1 0 ", "end c0 0 ", "end c2 0 "] and
              all(r.count(["compile", "failed"]) == 1 for r in rows[::2]) and
              all(r.count([who, "ok"]) == 2 for r in rows for who in ("ours", "eager")) and
              rows[1].count(["compile", "ok"]) == 2, (last, rows))
    finally:
        systems.PEER = path


# ---------------------------------------------------------------- report

def test_report(folder, update):
    kit = os.path.join(folder, "kit", "cases")
    os.makedirs(kit)
    for name, batch in (("dcgan", 1), ("resnet18", 1), ("cases/conv3x3", 1)):
        file = read_graph(model_path(name), [], folder)
        os.replace(file, os.path.join(folder, "kit", "%s_n%d.json" % (name, batch)))
    out = os.path.join(folder, "report")
    command = [sys.executable, os.path.join(BENCH, "report.py"), "--device", "h200", "--graphs",
               os.path.join(folder, "kit"), "--out", out, "--title", "Invented numbers: a test"]
    done = subprocess.run(command + [os.path.join(HERE, "invented.tsv")], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    check("the report is made", done.returncode == 0, done.stdout.decode())
    expected = os.path.join(HERE, "invented")
    made = contents(out)
    if update:
        os.makedirs(expected, exist_ok=True)
        for name, text in made.items():
            with open(os.path.join(expected, name), "w", encoding="utf-8") as f:
                f.write(text)
    wanted = contents(expected)
    check("the report has the expected files", sorted(made) == sorted(wanted),
          "%s, not %s" % (sorted(made), sorted(wanted)))
    for name in sorted(set(made) & set(wanted)):
        check("%s is as expected (--update writes it)" % name, made[name] == wanted[name])
    for words, line in BAD_ROWS:
        file = os.path.join(folder, "bad.tsv")
        with open(file, "w", encoding="utf-8") as f:
            f.write("\t".join(rounds.COLUMNS) + "\n" + line + "\n")
        done = subprocess.run(command + [file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(words + " is refused", done.returncode == 1 and b"bad.tsv:2" in done.stdout,
              done.stdout.decode())


GOOD_ROW = "m\t1\tfp32\tours\tm\tok\t1\t0\t10\t11\t12\t13\t5\t1e-7\t1\t9\t-\t-"
BAD_ROWS = [("a row with a field too few", GOOD_ROW.rsplit("\t", 1)[0]),
            ("a time of 0", GOOD_ROW.replace("\t10\t", "\t0\t")),
            ("a time that is no number", GOOD_ROW.replace("\t10\t", "\tnan\t"))]


def test_libraries(folder):
    """A cuDNN in the library path is not for the peers."""
    other, own = (os.path.join(folder, name) for name in ("other", "own"))
    for at in (other, own):
        os.mkdir(at)
    open(os.path.join(own, "libcudnn_ops.so.9"), "w", encoding="ascii").close()
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([own, other])
    check("a library path without cuDNN", systems.own_libraries()["LD_LIBRARY_PATH"] == other)
    del os.environ["LD_LIBRARY_PATH"]
    check("or none", systems.own_libraries()["LD_LIBRARY_PATH"] == "")
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before


def contents(folder):
    out = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            out[name] = f.read()
    return out


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_twins(folder)
        test_attention(folder)
        test_precisions(folder)
        test_graph(folder)
        test_floors(folder)
        test_clock()
        test_rounds(folder)
        test_program(folder)
        test_settle(folder)
        test_lanes(folder)
        test_libraries(folder)
        test_report(folder, "--update" in sys.argv[1:])
    absent = [name for name, here in HAS.items() if not here]
    if absent:
        print("skipped: twins by %s, not installed" % " and ".join(absent))
    print("%d passed, %d failed" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
