"""jax.jit. A library gives no events on its stream, so that times are the host's: of N calls that
were all queued before the last one ends, and of one program that loops over the network."""

import gc
import os
import time

# From the strongest on: a version that does not know a flag ends at once, or fails at its first
# program, and is started again with the next ones.
FLAGS = ("--xla_gpu_autotune_level=4 --xla_gpu_graph_min_graph_size=1 --xla_gpu_enable_command_"
         "buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CONVOLUTION,CUSTOM_CALL,DYNAMIC_SLICE_FUSION",
         "--xla_gpu_autotune_level=4 --xla_gpu_graph_min_graph_size=1 "
         "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL",
         "--xla_gpu_autotune_level=4 --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN",
         "--xla_gpu_autotune_level=4", "")

if os.environ.get("EINNET_PEER_DEVICE") == "cuda" and "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = FLAGS[min(int(os.environ.get("EINNET_PEER_FLAGS", "0")),
                                        len(FLAGS) - 1)]
# Others need memory of the GPU too.
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
    """variant "calls" or "loop", with "+cudnn" for attention by cuDNN. A loop is around the program
    of the calls that was made before it."""

    def __init__(self, setup, variant, graph, device, inputs, mode, made):
        self.setup = setup
        self.loop = variant.startswith("loop")
        self.place = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        self.next, self.rounds = 0, 1
        if self.loop:
            calls = made.get(variant.replace("loop", "calls"))
            if calls is None:
                raise ValueError("the calls did not work")
            self.note, self.inputs, self.program = calls.note, calls.inputs, calls.program
            self.constants, self.function = calls.constants, calls.function
            self.flush, self.fill = calls.flush, calls.fill
            self.make_loop()
        else:
            self.make_calls(graph, device, variant, inputs)
        self.setup = None

    def make_calls(self, graph, device, variant, inputs):
        self.note = "host clock"
        self.program, constants = jax_ops.function(Run, graph, self.setup.precision,
                                                   "+cudnn" in variant)
        self.inputs = [[jax.device_put(np.asarray(a), self.place) for a in one] for one in inputs]
        self.setup.mark("load")
        self.constants, self.function = self.compiled(self.program, constants, self.inputs[0])
        self.flush = jax.device_put(jnp.zeros(clock.FLUSH // 4, jnp.float32), self.place) \
            if device == "cuda" else None
        self.fill = jax.jit(lambda a: a + 1, donate_argnums=0)
        jax.block_until_ready([self.function(self.constants, one) for one in self.inputs])
        self.setup.mark("first")

    def compiled(self, program, constants, arguments):
        """(constants, function), the constants in layouts that XLA chooses where this version can:
        else they would be laid out anew in every run. XLA times kernels while it compiles."""
        shapes = [[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in some]
                  for some in (constants, arguments)]
        try:
            from jax.experimental.layout import Format, Layout
            jitted = jax.jit(program, in_shardings=(Format(Layout.AUTO), Format()))
            lowered = jitted.lower(*shapes)
            self.setup.gpu()
            made = lowered.compile()
            self.setup.mark("compile")
            formats = made.input_formats[0][0]
            held = [jax.device_put(c, f) for c, f in zip(constants, formats)]
            jax.block_until_ready(made(held, arguments))
            return held, made
        except Exception as error:     # any version's complaint: then the default layouts
            self.note = "host clock, default layouts (%s)" % type(error).__name__
        self.setup.gpu()
        made = jax.jit(program).lower(*shapes).compile()
        self.setup.mark("compile")
        return [jax.device_put(c, self.place) for c in constants], made

    def make_loop(self):
        """Runs that lie on the device one after another; inputs rotate, the outputs are carried."""
        once = min(self.replays_of_calls(10) for _ in range(3))
        self.rounds = max(len(self.inputs), min(LOOP_MOST, int(LOOP_MS / once) + 1))
        sets = len(self.inputs)
        self.stacked = [jnp.stack(parts) for parts in zip(*self.inputs)]
        program = self.program
        outputs = jax.eval_shape(program, self.constants, self.inputs[0])

        def looped(constants, stacked):
            def body(i, before):
                return program(constants, [lax.dynamic_index_in_dim(a, i % sets, 0, False)
                                           for a in stacked])
            return lax.fori_loop(0, self.rounds, body,
                                 [jnp.zeros(y.shape, y.dtype) for y in outputs])
        self.setup.mark("first")
        self.loop_constants, self.looped = self.compiled(looped, self.constants, self.stacked)
        jax.block_until_ready(self.looped(self.loop_constants, self.stacked))
        self.setup.mark("first")

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


def warm_up(device, mode):
    """What is loaded at the first use: once a process, not a contest. Flags that are accepted but
    do not work end the process here."""
    x = jnp.ones((1, 8, 8, 8))

    def network(x):
        y = lax.conv_general_dilated(x, jnp.ones((3, 3, 8, 8)), (1, 1), "SAME",
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu(y).reshape(8, 64) @ x.reshape(64, 8)
    jitted = jax.jit(network)
    for _ in range(3):
        jax.block_until_ready(jitted(x))


def release():
    gc.collect()


def forget():
    """Everything of the last contest."""
    gc.collect()
    jax.clear_caches()
    gc.collect()


def versions():
    return "jax %s %s" % (jax.__version__, os.environ.get("XLA_FLAGS", ""))
