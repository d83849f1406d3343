"""torch, eager and compiled, under CUDA graphs; on a CPU plain calls and the host's clock."""

import gc
import time

import numpy as np
import torch

import clock
from run_graph import Run
from torch_ops import module

# Names that say tensor cores: they have no place where FP32 is meant.
TENSOR_CORES = ("tf32", "s1688", "gmma", "hmma", "h884", "s16816", "tensorop")


def set_precision(precision):
    tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0


def compiled(made, mode):
    """max-autotune without its own graphs: they are recorded here, as everybody's."""
    import torch._inductor.config as config
    config.freezing = True
    config.coordinate_descent_tuning = True
    return torch.compile(made, mode=mode, fullgraph=True, dynamic=False)


class System:
    def __init__(self, graph, precision, device, variant, inputs, mode):
        set_precision(precision)
        made = module(Run, graph, precision, device, "nchw" not in variant)
        self.cuda = device == "cuda"
        self.inputs = [[torch.from_numpy(np.asarray(a)).to(device) for a in one] for one in inputs]
        self.function = compiled(made, mode) if mode else made
        self.graphs = []
        self.next = 0
        self.note = ""
        with torch.inference_mode():
            for one in self.inputs[:1] * 3 + self.inputs:
                self.first = self.function(*one)
            self.first = self.function(*self.inputs[0])
            if self.cuda:
                self.record()
        if self.cuda:
            self.flush = torch.empty(clock.FLUSH, dtype=torch.uint8, device=device)
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def record(self):
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()   # one arena: graphs are replayed one after another
        try:
            for one in self.inputs:
                recorded = torch.cuda.CUDAGraph()
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
        """(kernels of a run, those of them whose names say tensor cores); (None, None) where the
        profiler does not tell."""
        if not self.cuda:
            return None, None
        try:
            activity = torch.profiler.ProfilerActivity.CUDA
            with torch.profiler.profile(activities=[activity]) as profile:
                self.replay()
                torch.cuda.synchronize()
            names = [e.name for e in profile.events()
                     if e.device_type == torch.autograd.DeviceType.CUDA]
        except Exception:       # a profiler that this machine does not allow
            return None, None
        return len(names) or None, sum(any(t in n.lower() for t in TENSOR_CORES) for n in names)


def release():
    """Memory of variants that were not chosen, for the other processes."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def versions():
    return "torch %s, cuDNN %s" % (torch.__version__, torch.backends.cudnn.version())


def reference(graph, device, inputs):
    """The outputs in float64."""
    made = module(Run, graph, "fp64", device, False)
    with torch.inference_mode():
        out = made(*[torch.from_numpy(np.asarray(a)).to(device) for a in inputs])
    return [y.cpu().numpy() for y in out]
