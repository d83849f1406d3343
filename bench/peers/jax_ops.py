"""The array library of jax.numpy. Convolutions are channels-last programs: between two of them the
logical transposes cancel when XLA assigns layouts."""

import jax
import jax.numpy as jnp
from jax import lax

from array_ops import ArrayOps, transposed_pads
from graph import NUMPY

DTYPES = {"fp64": jnp.float64, "fp32": jnp.float32, "tf32": jnp.float32, "fp16": jnp.float16}
MATMUL = {"fp64": "highest", "fp32": "highest", "tf32": "default", "fp16": "default"}
FLOATS = ("f32", "f16", "bf16")
SPACE = {1: "W", 2: "HW", 3: "DHW"}


class JaxOps(ArrayOps):
    """`values` collects constants when it is None, else gives the traced ones, in the same
    order."""

    xp = jnp

    def __init__(self, precision, values=None, cudnn=False):
        self.cudnn = "cudnn" if cudnn else None
        self.dtype = DTYPES[precision]
        self.half = precision == "fp16"
        self.collected = []
        self.values = values
        self.count = 0

    def const(self, a):
        if self.values is None:
            kind = self.dtype if a.dtype.kind == "f" else a.dtype
            self.collected.append(a.astype(kind))
            return jnp.asarray(a, kind)
        self.count += 1
        return self.values[self.count - 1]

    def input(self, a, tensor):
        return a.astype(self.dtype) if tensor.dtype in FLOATS else a

    def output(self, a, tensor):
        return a.astype(jnp.float32) if self.half and tensor.dtype == "f32" else a

    def unary(self, name, a):
        if name == "erf":
            return lax.erf(jnp.asarray(a, self.dtype))
        if name == "sigmoid":
            return jax.nn.sigmoid(a)
        if name == "relu":
            return jax.nn.relu(a)
        return super().unary(name, a)

    def gelu(self, a, tanh):
        return jax.nn.gelu(a, approximate=tanh)

    def softmax(self, a, axis):
        return jax.nn.softmax(a, axis)

    def layer_norm(self, x, scale, bias, shape, epsilon):
        wide = x.astype(jnp.float32) if self.half else x
        y = super().layer_norm(wide, scale, bias, shape, epsilon)
        return y.astype(self.dtype)

    def attention(self, q, k, v, scale, batch):
        if batch != 2 or self.dtype == jnp.float64:     # that call has a softmax in float32
            return super().attention(q, k, v, scale, batch)
        q, k, v = (jnp.transpose(a, (0, 2, 1, 3)) for a in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, scale=scale, implementation=self.cudnn)
        return jnp.transpose(y, (0, 2, 1, 3))

    def last(self, a):
        return jnp.moveaxis(a, 1, -1)

    def first(self, a):
        return jnp.moveaxis(a, -1, 1)

    def general_conv(self, x, k, b, strides, pads, spread, dilations, group):
        space = SPACE[len(strides)]
        names = ("N" + space + "C", space + "IO", "N" + space + "C")
        kernel = jnp.transpose(k, list(range(2, k.ndim)) + [1, 0])
        y = lax.conv_general_dilated(self.last(x), kernel, strides, pads, spread, dilations, names,
                                     feature_group_count=group)
        return self.first(y if b is None else y + b)

    def conv(self, x, k, b, strides, pads, dilations, group):
        return self.general_conv(x, k, b, strides, [(p, p) for p in pads], None, dilations, group)

    def conv_transpose(self, x, k, b, strides, pads, extra, dilations, group):
        spatial = tuple(range(2, k.ndim))
        c, f = k.shape[0] // group, k.shape[1]
        kernel = jnp.reshape(k, (group, c, f) + k.shape[2:])
        kernel = jnp.moveaxis(kernel, 2, 1).reshape((group * f, c) + k.shape[2:])
        around = transposed_pads(k.shape[2:], pads, extra, dilations)
        return self.general_conv(x, jnp.flip(kernel, spatial), b, [1] * len(strides), around,
                                 strides, dilations, group)

    def pool(self, kind, x, kernel, strides, pads):
        window = (1,) + tuple(kernel) + (1,)
        steps = (1,) + tuple(strides) + (1,)
        around = [(0, 0)] + [(p, p) for p in pads] + [(0, 0)]
        x = self.last(x)
        if kind == "max":
            low = jnp.array(-jnp.inf, x.dtype)
            return self.first(lax.reduce_window(x, low, lax.max, window, steps, around))
        total = lax.reduce_window(x, jnp.array(0, x.dtype), lax.add, window, steps, around)
        count = 1
        for k in kernel:
            count *= k
        return self.first(total / count)


def function(run_class, graph, precision, cudnn=False):
    """(f, constants): f(constants, inputs) gives the outputs, ready for jax.jit."""
    ops = JaxOps(precision)
    shapes = [jax.ShapeDtypeStruct(t.shape, NUMPY[t.dtype]) for t in graph.inputs]
    jax.eval_shape(lambda *x: run_class(graph, ops).outputs(x), *shapes)

    def program(constants, inputs):
        with jax.default_matmul_precision(MATMUL[precision]):
            return run_class(graph, JaxOps(precision, constants, cudnn)).outputs(inputs)
    return program, ops.collected
