"""torch, eager and compiled, under CUDA graphs; on a CPU plain calls and the host's clock."""

import gc
import os
import re
import tempfile
import time

import numpy as np
import torch

import clock
from run_graph import Run
from torch_ops import module

# Names that say tensor cores: they have no place where FP32 is meant.
TENSOR_CORES = ("tf32", "s1688", "gmma", "hmma", "h884", "s16816", "tensorop")


def set_precision(precision, thorough):
    tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0 if thorough else 10    # 0: every algorithm


def compiled(made, mode, freezing=True):
    """Without graphs of its own: they are recorded here, as everybody's."""
    import torch._inductor.config as config
    config.freezing = freezing
    return torch.compile(made, mode=mode, fullgraph=True, dynamic=False)


def first_call(setup, function, arguments, thorough):
    """What compiles. Compilation for max-autotune times kernels and has the GPU all the while;
    others' needs it when the kernels first run."""
    def end(_):
        setup.gpu()
    handler = None
    if not thorough:
        try:
            from torch._dynamo.callback import callback_handler as handler
            handler.register_end_callback(end)
        except (ImportError, AttributeError):
            handler = None
    if handler is None:
        setup.gpu()
    try:
        return function(*arguments)
    finally:
        if handler is not None and end in handler.end_callbacks:
            handler.remove_end_callback(end)


class System:
    def __init__(self, setup, variant, graph, device, inputs, mode, made):
        thorough = bool(mode) and mode.startswith("max-autotune")
        set_precision(setup.precision, thorough)
        network = module(Run, graph, setup.precision, device, "nchw" not in variant)
        self.cuda = device == "cuda"
        self.inputs = [[torch.from_numpy(np.asarray(a)).to(device) for a in one] for one in inputs]
        self.function = network
        if mode:
            self.function = compiled(network, mode, "unfrozen" not in variant)
        self.graphs = []
        self.next = 0
        self.note = ""
        setup.mark("load")
        with torch.inference_mode():
            if mode:
                first_call(setup, self.function, self.inputs[0], thorough)
                setup.mark("compile")
            setup.gpu()
            for one in self.inputs[:1] * 3 + self.inputs:
                self.first = self.function(*one)
            self.first = self.function(*self.inputs[0])
            if self.cuda:
                torch.cuda.synchronize()
            setup.mark("first")
            if self.cuda:
                self.record()
                setup.mark("capture")
        if self.cuda:
            self.flush = torch.empty(clock.FLUSH, dtype=torch.uint8, device=device)
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def record(self):
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()   # one arena: graphs are replayed one after another
        try:
            for one in self.inputs:
                recorded = torch.cuda.CUDAGraph()
                if not self.graphs:
                    recorded.enable_debug_mode()        # its kernels are counted
                with torch.cuda.graph(recorded, pool=pool):
                    out = self.function(*one)
                self.graphs.append((recorded, out))
        except RuntimeError as error:
            self.graphs = []
            self.note = "no CUDA graph: %s" % str(error).split("\n")[0][:100]
            torch.cuda.synchronize()

    def outputs(self):
        if self.graphs:
            self.graphs[0][0].replay()
            torch.cuda.synchronize()
            return [y.cpu().numpy() for y in self.graphs[0][1]]
        return [y.cpu().numpy() for y in self.first]

    def replay(self):
        i = self.next
        self.next = (i + 1) % len(self.inputs)
        if self.graphs:
            self.graphs[i][0].replay()
        else:
            with torch.inference_mode():
                self.function(*self.inputs[i])

    def replays(self, n):
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(n):
                self.replay()
            return (time.perf_counter() - begin) * 1e3 / n
        self.begin.record()
        for _ in range(n):
            self.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / n

    def cold(self):
        if self.cuda:
            self.flush.fill_(self.next)
        return self.replays(1)

    def single(self):
        begin = time.perf_counter()
        self.replay()
        if self.cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3

    def kernels(self):
        """(kernels of the recorded graph, those of them whose names say tensor cores); (None, None)
        where CUDA does not tell. A profiler would stay in the process, and in what it measures."""
        if not self.graphs:
            return None, None
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.dot")
            try:
                self.graphs[0][0].debug_dump(path)
                with open(path, encoding="utf-8", errors="replace") as f:
                    return kernel_names(f.read())
            except (OSError, RuntimeError):
                return None, None


def kernel_names(text):
    """Of a graph as cudaGraphDebugDotPrint has it: a kernel is a name before its launch."""
    names = re.findall(r'([^|"{}\n]*)\\<\\<\\<', text)
    return len(names) or None, sum(any(t in n.lower() for t in TENSOR_CORES) for n in names)


def warm_up(device, mode):
    """What libraries load and start when they are first used: once a process, not a contest."""
    def network(x, k):
        return torch.relu(torch.nn.functional.conv2d(x, k)).flatten(1) @ x.flatten(1).T
    x, k = torch.ones(1, 8, 8, 8, device=device), torch.ones(8, 8, 1, 1, device=device)
    with torch.inference_mode():
        network(x, k)
        if mode:
            compiled(network, None)(x, k)
    if device == "cuda":
        torch.cuda.synchronize()


def release():
    """Memory of variants that were not chosen, for the other processes."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def forget():
    """Everything of the last contest."""
    torch.compiler.reset()
    release()


def versions():
    return "torch %s, cuDNN %s" % (torch.__version__, torch.backends.cudnn.version())


def reference(graph, device, inputs):
    """The outputs in float64."""
    made = module(Run, graph, "fp64", device, False)
    with torch.inference_mode():
        out = made(*[torch.from_numpy(np.asarray(a)).to(device) for a in inputs])
    return [y.cpu().numpy() for y in out]
