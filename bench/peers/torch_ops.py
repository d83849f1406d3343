"""The array library that records a torch.fx graph, and the modules made of it."""

import math

import torch
import torch.nn.functional as F
from torch import fx

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32,
          "fp16": torch.float16}
FLOATS = ("f32", "f16", "bf16")
UNARY = {"relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp,
         "log": torch.log, "sqrt": torch.sqrt, "erf": torch.erf, "abs": torch.abs,
         "neg": torch.neg, "floor": torch.floor, "ceil": torch.ceil, "rsqrt": torch.rsqrt,
         "square": torch.square}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
          "pow": torch.pow, "max": torch.maximum, "min": torch.minimum}
COMPARE = {"==": torch.eq, "!=": torch.ne, "<": torch.lt, "<=": torch.le, ">": torch.gt,
           ">=": torch.ge}
REDUCE = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class TorchOps:
    """Records calls; constants become buffers of `root`, in `dtype` and on `device`."""

    def __init__(self, precision, device, channels_last):
        self.dtype = DTYPES[precision]
        self.device = device
        self.channels_last = channels_last
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.known = {}

    def call(self, function, *args, **kwargs):
        return self.graph.call_function(function, args, kwargs)

    def const(self, a):
        key = id(a)
        if key not in self.known:
            t = torch.from_numpy(a.copy() if not a.flags.writeable or
                                 not a.flags.c_contiguous else a)
            t = t.to(self.device, self.dtype if t.is_floating_point() else t.dtype)
            if self.channels_last and t.dim() == 4:
                t = t.contiguous(memory_format=torch.channels_last)
            name = "c%d" % len(self.known)
            self.root.register_buffer(name, t)
            self.known[key] = self.graph.get_attr(name), a
        return self.known[key][0]

    def input(self, a, tensor):
        """At the border everybody has rows of NCHW; what a system wants instead, it makes."""
        if tensor.dtype in FLOATS:
            a = self.call(torch.Tensor.to, a, self.dtype)
        if self.channels_last and len(tensor.shape) == 4:
            a = self.call(torch.Tensor.contiguous, a, memory_format=torch.channels_last)
        return a

    def output(self, a, tensor):
        if self.dtype == torch.float16 and tensor.dtype == "f32":
            a = self.call(torch.Tensor.to, a, torch.float32)
        return self.call(torch.Tensor.contiguous, a)

    # ---- shapes

    def reshape(self, a, shape):
        return self.call(torch.reshape, a, tuple(shape))

    def permute(self, a, axes):
        if list(axes) == sorted(axes):
            return a
        return self.call(torch.permute, a, tuple(axes))

    def slice(self, a, cuts):
        at = tuple(slice(None) if c is None else slice(*c) for c in cuts)
        return self.call(torch.Tensor.__getitem__, a, at)

    def pad(self, a, pads, value):
        flat = [n for p in reversed(pads) for n in p]
        while flat[-2:] == [0, 0]:
            flat = flat[:-2]
        return self.call(F.pad, a, tuple(flat), value=value) if flat else a

    def expand(self, a, shape):
        if isinstance(a, float):
            return self.call(torch.full, tuple(shape), a, dtype=self.dtype, device=self.device)
        return self.call(torch.Tensor.expand, a, tuple(shape))

    def concat(self, parts, axis):
        return self.call(torch.cat, parts, axis)

    def stack(self, parts, axis):
        return self.call(torch.stack, parts, axis)

    def diagonals(self, a, many, rows, wide, count):
        """[many, rows, count] of [many, rows, wide]: (i, t) is (i, i + t). A view."""
        return self.call(torch.as_strided, self.call(torch.Tensor.contiguous, a),
                         (many, rows, count), (rows * wide, wide + 1, 1))

    def take(self, flat, positions):
        return self.call(torch.take, flat, self.const(positions))

    # ---- arithmetic

    def unary(self, name, a):
        if isinstance(a, float):
            return float(UNARY[name](torch.tensor(a, dtype=torch.float64)))
        return self.call(UNARY[name], a)

    def array(self, v):
        return self.call(torch.full, (), v, dtype=self.dtype, device=self.device)

    def binary(self, name, a, b):
        if isinstance(a, float) and isinstance(b, float):
            return float(BINARY[name](torch.tensor(a, dtype=torch.float64),
                                      torch.tensor(b, dtype=torch.float64)))
        if name in ("max", "min"):
            number, other = (a, b) if isinstance(a, float) else (b, a)
            if isinstance(number, float):
                limit = {"min": number} if name == "max" else {"max": number}
                return self.call(torch.clamp, other, **limit)
        if isinstance(a, float) and name in ("add", "mul"):
            a, b = b, a
        if isinstance(a, float) and name in ("sub", "div"):
            a = self.array(a)
        return self.call(BINARY[name], a, b)

    def compare(self, op, a, b):
        if isinstance(a, float):
            a = self.array(a)
        return self.call(COMPARE[op], a, b)

    def where(self, mask, a, b):
        return self.call(torch.where, mask, a, b)

    def reduce(self, kind, a, axes, keep):
        if kind == "prod":
            for axis in sorted(axes, reverse=True):
                a = self.call(torch.prod, a, axis, keepdim=keep)
            return a
        return self.call(REDUCE[kind], a, dim=tuple(axes), keepdim=keep)

    def place(self, kind, a, axis, keep, last):
        a = a if last is None else self.call(torch.flip, a, (axis,))
        at = self.call(getattr(torch, kind), a, dim=axis, keepdim=keep)
        return at if last is None else self.call(torch.add, self.call(torch.neg, at), last)

    def clip(self, a, low, high):
        if (low, high) == (0.0, 6.0):
            return self.call(F.relu6, a)
        return self.call(torch.clamp, a, None if math.isinf(low) else low,
                         None if math.isinf(high) else high)

    def prelu(self, a, slope, shape):
        count = math.prod(shape)
        channels = len(shape) > 0 and shape[0] == count
        if count == 1 or channels:
            return self.call(F.prelu, a, self.reshape(slope, [count]))
        return self.where(self.compare("<", a, 0.0), self.binary("mul", a, slope), a)

    def gelu(self, a, tanh):
        return self.call(F.gelu, a, approximate="tanh" if tanh else "none")

    # ---- layers

    def einsum(self, text, arrays):
        return self.call(torch.einsum, text, *arrays)

    def matmul(self, a, b):
        return self.call(torch.matmul, a, b)

    def linear(self, x, weight, bias):
        return self.call(F.linear, x, weight, bias)

    def conv(self, x, k, b, strides, pads, dilations, group):
        return self.call(CONV[len(strides)], x, k, b, tuple(strides), tuple(pads),
                         tuple(dilations), group)

    def conv_transpose(self, x, k, b, strides, pads, extra, dilations, group):
        return self.call(CONV_TRANSPOSE[len(strides)], x, k, b, tuple(strides), tuple(pads),
                         tuple(extra), group, tuple(dilations))

    def pool(self, kind, x, kernel, strides, pads):
        function = (MAX_POOL if kind == "max" else AVG_POOL)[len(kernel)]
        return self.call(function, x, tuple(kernel), tuple(strides), tuple(pads))

    def softmax(self, a, axis):
        return self.call(F.softmax, a, axis)

    def layer_norm(self, x, scale, bias, shape, epsilon):
        return self.call(F.layer_norm, x, tuple(shape), scale, bias, epsilon)

    def attention(self, q, k, v, scale, batch):
        return self.call(F.scaled_dot_product_attention, q, k, v, scale=scale)

    def resize(self, mode, x, sizes, out):
        if mode == "nearest":
            return self.call(F.interpolate, x, tuple(out[2:]), mode="nearest")
        return self.call(F.interpolate, x, tuple(out[2:]), mode="bilinear",
                         align_corners=mode == "corners")


def module(run_class, graph, precision, device, channels_last=True):
    """A torch.fx.GraphModule of the whole graph: tensors in, a tuple of tensors out."""
    ops = TorchOps(precision, device, channels_last)
    places = [ops.graph.placeholder("x%d" % i) for i in range(len(graph.inputs))]
    ops.graph.output(tuple(run_class(graph, ops).outputs(places)))
    return fx.GraphModule(ops.root, ops.graph).eval()
