"""numpy as an array library of bench/peers, with the oracle's windows: it tests the reader of
graphs where neither torch nor jax is installed."""

import numpy as np

import operators
from array_ops import ArrayOps
from equations import erf


class NumpyOps(ArrayOps):
    def const(self, a):
        return a

    def input(self, a, tensor):
        return a.astype(np.float64) if a.dtype.kind == "f" else a

    def unary(self, name, a):
        return erf(a) if name == "erf" else super().unary(name, a)

    def gelu(self, a, tanh):
        return operators.gelu({"approximate": "tanh" if tanh else "none"}, a)

    def conv(self, x, k, b, strides, pads, dilations, group):
        attrs = {"strides": list(strides), "pads": list(pads) * 2, "dilations": list(dilations),
                 "group": group}
        return operators.conv(attrs, x, k, b)

    def conv_transpose(self, x, k, b, strides, pads, extra, dilations, group):
        attrs = {"strides": list(strides), "pads": list(pads) * 2, "dilations": list(dilations),
                 "group": group, "output_padding": list(extra)}
        return operators.conv_transpose(attrs, x, k, b)

    def pool(self, kind, x, kernel, strides, pads):
        attrs = {"kernel_shape": list(kernel), "strides": list(strides), "pads": list(pads) * 2}
        return (operators.max_pool if kind == "max" else operators.average_pool)(attrs, x)


def run(run_class, graph, inputs):
    return run_class(graph, NumpyOps()).outputs(inputs)
