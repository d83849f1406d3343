"""jax.jit. A library gives no events on its stream, so that times are the host's: of N calls that
were all queued before the last one ends, and of one program that loops over the network."""

import gc
import os
import subprocess
import sys
import time

# From the strongest on: a version that does not know a flag ends at once.
FLAGS = ("--xla_gpu_autotune_level=4 --xla_gpu_graph_min_graph_size=1 "
         "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL",
         "--xla_gpu_autotune_level=4 --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN",
         "--xla_gpu_autotune_level=4")


def accepted_flags():
    """The first of FLAGS that this jax starts with."""
    for flags in FLAGS:
        done = subprocess.run(
            [sys.executable, "-c", "import jax; jax.numpy.ones(1).block_until_ready()"],
            env=dict(os.environ, XLA_FLAGS=flags, XLA_PYTHON_CLIENT_PREALLOCATE="false"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
        if done.returncode == 0:
            return flags
    return ""


if os.environ.get("EINNET_PEER_DEVICE") == "cuda" and "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = accepted_flags()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import clock  # noqa: E402
import jax_ops  # noqa: E402
from run_graph import Run  # noqa: E402

LOOP_MS = 20        # of one call of the program that loops
LOOP_MOST = 2000


class System:
    """variant "calls" or "loop", with "+cudnn" for attention by cuDNN."""

    def __init__(self, graph, precision, device, variant, inputs, mode):
        place = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        self.loop = variant.startswith("loop")
        self.note = "host clock"
        program, constants = jax_ops.function(Run, graph, precision, "+cudnn" in variant)
        self.inputs = [[jax.device_put(np.asarray(a), place) for a in one] for one in inputs]
        self.place = place
        self.constants, self.function = self.compiled(program, constants, self.inputs[0])
        self.next = 0
        self.flush = jax.device_put(jnp.zeros(clock.FLUSH // 4, jnp.float32), place) \
            if device == "cuda" else None
        self.fill = jax.jit(lambda a: a + 1, donate_argnums=0)
        jax.block_until_ready([self.function(self.constants, one) for one in self.inputs])
        self.rounds = 1
        if self.loop:
            self.make_loop(program, constants)

    def compiled(self, program, constants, arguments):
        """(constants, function), the constants in layouts that XLA chooses where this version can:
        else they would be laid out anew in every run."""
        shapes = [[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in some]
                  for some in (constants, arguments)]
        try:
            from jax.experimental.layout import Format, Layout
            jitted = jax.jit(program, in_shardings=(Format(Layout.AUTO), Format()))
            made = jitted.lower(*shapes).compile()
            formats = made.input_formats[0][0]
            held = [jax.device_put(c, f) for c, f in zip(constants, formats)]
            jax.block_until_ready(made(held, arguments))
            return held, made
        except Exception as error:     # any version's complaint: then the default layouts
            self.note = "host clock, default layouts (%s)" % type(error).__name__
        return [jax.device_put(c, self.place) for c in constants], jax.jit(program)

    def make_loop(self, program, constants):
        """Runs that lie on the device one after another; inputs rotate, the outputs are carried."""
        once = min(self.replays_of_calls(10) for _ in range(3))
        self.rounds = max(len(self.inputs), min(LOOP_MOST, int(LOOP_MS / once) + 1))
        sets = len(self.inputs)
        self.stacked = [jnp.stack(parts) for parts in zip(*self.inputs)]

        def looped(constants, stacked):
            def body(i, before):
                return program(constants, [lax.dynamic_index_in_dim(a, i % sets, 0, False)
                                           for a in stacked])
            return lax.fori_loop(1, self.rounds, body, program(constants, [a[0] for a in stacked]))
        self.loop_constants, self.looped = self.compiled(looped, constants, self.stacked)
        jax.block_until_ready(self.looped(self.loop_constants, self.stacked))

    def outputs(self):
        return [np.asarray(y) for y in self.function(self.constants, self.inputs[0])]

    def call(self):
        i = self.next
        self.next = (i + 1) % len(self.inputs)
        return self.function(self.constants, self.inputs[i])

    def replays_of_calls(self, n):
        begin = time.perf_counter()
        for _ in range(n):
            out = self.call()
        jax.block_until_ready(out)
        return (time.perf_counter() - begin) * 1e3 / n

    def replays(self, n):
        if not self.loop:
            return self.replays_of_calls(n)
        calls = -(-n // self.rounds)
        begin = time.perf_counter()
        for _ in range(calls):
            out = self.looped(self.loop_constants, self.stacked)
        jax.block_until_ready(out)
        return (time.perf_counter() - begin) * 1e3 / (calls * self.rounds)

    def cold(self):
        if self.flush is not None:
            self.flush = jax.block_until_ready(self.fill(self.flush))
        return self.replays_of_calls(1)

    def single(self):
        return self.replays_of_calls(1)

    def kernels(self):
        return None, None


def release():
    gc.collect()


def versions():
    return "jax %s %s" % (jax.__version__, os.environ.get("XLA_FLAGS", ""))
