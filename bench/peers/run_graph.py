"""Runs a whole graph through an array library: every operator as that library's own call.

`Run(graph, ops).outputs(inputs)` gives the published outputs. Shapes are the graph's, so nothing is
asked of the arrays: they may be recorded (torch.fx) or traced (jax.jit) ones.
"""

import math

import numpy as np

from graph import Unsupported
from lower import Equation


class Run:
    def __init__(self, graph, ops):
        self.graph = graph
        self.ops = ops
        self.arrays = {}

    def array(self, name):
        if name not in self.arrays:
            self.arrays[name] = self.ops.const(self.graph.values[name])
        return self.arrays[name]

    def shape(self, name):
        return self.graph.shape(name)

    def outputs(self, inputs):
        for t, a in zip(self.graph.inputs, inputs):
            self.arrays[t.name] = self.ops.input(a, t)
        for node in self.graph.nodes:
            if node.op is None:
                self.arrays[node.outputs[0]] = Equation(self, node).result()
                continue
            function = getattr(self, "op_" + node.op, None)
            if function is None:
                raise Unsupported("operator %s" % node.op)
            result = function(node)
            for name, a in zip(node.outputs, result if isinstance(result, list) else [result]):
                self.arrays[name] = a
        return [self.ops.output(self.array(tensor), self.graph.tensors[tensor])
                for _, tensor in self.graph.outputs]

    def args(self, node):
        return [None if n is None else self.array(n) for n in node.inputs]

    # ---- convolutions and windows

    def conv(self, x, k, b, strides, pads, dilations, group, sizes):
        """Unequal or negative pads are a pad or slice before it."""
        rank = len(sizes)
        begins, ends = pads[:rank], pads[rank:]
        if begins != ends or min(pads) < 0:
            keep = [min(p, q) if min(p, q) >= 0 else 0 for p, q in zip(begins, ends)]
            x = self.padded(x, sizes, [p - k for p, k in zip(begins, keep)],
                            [q - k for q, k in zip(ends, keep)], 0.0)
            begins = keep
        return self.ops.conv(x, k, b, strides, begins, dilations, group)

    def padded(self, x, sizes, begins, ends, value):
        """Spatial axes padded, or cut where the number is negative."""
        low, high = [max(p, 0) for p in begins], [max(q, 0) for q in ends]
        if any(low + high):
            x = self.ops.pad(x, [(0, 0), (0, 0)] + list(zip(low, high)), value)
        if min(begins + ends) < 0:
            cuts = [(max(-p, 0), max(-p, 0) + n + p + q, 1)
                    for n, p, q in zip(sizes, begins, ends)]
            x = self.ops.slice(x, [None, None] + cuts)
        return x

    def window(self, node, kernel):
        """strides, pads and dilations of a node."""
        a, rank = node.attrs, len(kernel)
        if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            raise Unsupported("auto_pad %s" % a["auto_pad"])
        return (a.get("strides", [1] * rank), a.get("pads", [0] * (2 * rank)),
                a.get("dilations", [1] * rank))

    def op_Conv(self, node):
        args = self.args(node) + [None]
        strides, pads, dilations = self.window(node, self.shape(node.inputs[1])[2:])
        return self.conv(args[0], args[1], args[2], strides, pads, dilations,
                         node.attrs.get("group", 1), self.shape(node.inputs[0])[2:])

    def op_ConvTranspose(self, node):
        args = self.args(node) + [None]
        kernel = self.shape(node.inputs[1])[2:]
        strides, pads, dilations = self.window(node, kernel)
        rank = len(kernel)
        if pads[:rank] != pads[rank:] or "output_shape" in node.attrs:
            raise Unsupported("ConvTranspose with unequal pads")
        return self.ops.conv_transpose(args[0], args[1], args[2], strides, pads[:rank],
                                       node.attrs.get("output_padding", [0] * rank), dilations,
                                       node.attrs.get("group", 1))

    def pooled(self, node, kind):
        kernel = node.attrs["kernel_shape"]
        strides, pads, dilations = self.window(node, kernel)
        rank = len(kernel)
        if node.attrs.get("ceil_mode", 0) or (kind == "average" and any(pads)) or \
                any(d != 1 for d in dilations):
            raise Unsupported("%s with ceil_mode, dilations or averaged padding" % node.op)
        x, begins, ends = self.args(node)[0], pads[:rank], pads[rank:]
        if begins != ends or any(2 * p > k for p, k in zip(begins, kernel)):
            x = self.padded(x, self.shape(node.inputs[0])[2:], begins, ends, -math.inf)
            begins = [0] * rank
        return self.ops.pool(kind, x, kernel, strides, begins)

    def op_MaxPool(self, node):
        return self.pooled(node, "max")

    def op_AveragePool(self, node):
        return self.pooled(node, "average")

    def global_pool(self, node, kind):
        axes = list(range(2, len(self.shape(node.inputs[0]))))
        return self.ops.reduce(kind, self.args(node)[0], axes, True)

    def op_GlobalAveragePool(self, node):
        return self.global_pool(node, "mean")

    def op_GlobalMaxPool(self, node):
        return self.global_pool(node, "max")

    # ---- products

    def op_MatMul(self, node):
        return self.ops.matmul(*self.args(node))

    def op_Linear(self, node):
        x, w, b = node.inputs
        weight = self.ops.const(np.ascontiguousarray(self.graph.values[w].T))
        return self.ops.linear(self.array(x), weight, self.array(b))

    def op_Gemm(self, node):
        a, x = node.attrs, node.inputs
        plain = a.get("alpha", 1) == 1 and a.get("beta", 1) == 1 and not a.get("transA", 0)
        if plain and x[1] in self.graph.values and len(x) == 3 and \
                len(self.shape(x[2])) == 1 and self.shape(x[2]) == self.shape(node.outputs[0])[1:]:
            weight = self.graph.values[x[1]]
            weight = weight if a.get("transB", 0) else weight.T
            return self.ops.linear(self.array(x[0]), self.ops.const(np.ascontiguousarray(weight)),
                                   self.array(x[2]))
        left, right, *rest = self.args(node)
        left = self.ops.permute(left, [1, 0]) if a.get("transA", 0) else left
        right = self.ops.permute(right, [1, 0]) if a.get("transB", 0) else right
        y = self.ops.matmul(left, right)
        if a.get("alpha", 1) != 1:
            y = self.ops.binary("mul", y, float(a["alpha"]))
        if rest and rest[0] is not None:
            c = rest[0] if a.get("beta", 1) == 1 else \
                self.ops.binary("mul", rest[0], float(a["beta"]))
            y = self.ops.binary("add", y, c)
        return y

    def op_Attention(self, node):
        q, k, v = (self.ops.permute(self.squeezed(n, names), self.places(names, wanted))
                   for n, (names, wanted) in zip(node.inputs, node.attrs["axes"]))
        names, wanted = node.attrs["out"]
        y = self.ops.attention(q, k, v, node.attrs["scale"], len(names) - 2)
        if node.attrs["after"] != 1.0:
            y = self.ops.binary("mul", y, node.attrs["after"])
        y = self.ops.permute(y, [names.index(n) for n in wanted])
        return self.ops.reshape(y, list(self.shape(node.outputs[0])))

    def squeezed(self, name, names):
        shape = [n for n, label in zip(self.shape(name), names) if label is not None]
        a = self.array(name)
        return a if None not in names else self.ops.reshape(a, shape)

    def places(self, names, wanted):
        own = [n for n in names if n is not None]
        return [own.index(n) for n in wanted]

    # ---- elementwise

    def unary(self, node, name):
        return self.ops.unary(name, self.args(node)[0])

    def binary(self, node, name):
        return self.ops.binary(name, *self.args(node))

    def op_PRelu(self, node):
        return self.ops.prelu(*self.args(node), self.shape(node.inputs[1]))

    def op_LeakyRelu(self, node):
        x = self.args(node)[0]
        less = self.ops.compare("<", x, 0.0)
        slope = float(node.attrs.get("alpha", 0.01))
        return self.ops.where(less, self.ops.binary("mul", x, slope), x)

    def op_Clip(self, node):
        low, high = node.attrs.get("min", -math.inf), node.attrs.get("max", math.inf)
        return self.ops.clip(self.args(node)[0], float(low), float(high))

    def op_Gelu(self, node):
        return self.ops.gelu(self.args(node)[0], node.attrs.get("approximate", "none") == "tanh")

    # ---- rows

    def op_Softmax(self, node):
        rank = len(self.shape(node.inputs[0]))
        return self.ops.softmax(self.args(node)[0], node.attrs.get("axis", -1) % rank)

    def op_LayerNormalization(self, node):
        x, scale, bias = (self.args(node) + [None])[:3]
        shape = self.shape(node.inputs[0])
        axis = node.attrs.get("axis", -1) % len(shape)
        return self.ops.layer_norm(x, scale, bias, list(shape[axis:]),
                                   float(node.attrs.get("epsilon", 1e-5)))

    def reduced(self, node, kind):
        rank = len(self.shape(node.inputs[0]))
        axes = [a % rank for a in node.attrs.get("axes", range(rank))]
        return self.ops.reduce(kind, self.args(node)[0], axes, bool(node.attrs.get("keepdims", 1)))

    def place(self, node, kind):
        x = self.args(node)[0]
        shape = self.shape(node.inputs[0])
        axis = node.attrs.get("axis", 0) % len(shape)
        last = shape[axis] - 1 if node.attrs.get("select_last_index", 0) else None
        return self.ops.place(kind, x, axis, bool(node.attrs.get("keepdims", 1)), last)

    # ---- shapes

    def reshaped(self, node):
        return self.ops.reshape(self.args(node)[0], list(self.shape(node.outputs[0])))

    op_Reshape = op_Flatten = op_Squeeze = op_Unsqueeze = reshaped

    def op_Transpose(self, node):
        rank = len(self.shape(node.inputs[0]))
        return self.ops.permute(self.args(node)[0],
                                node.attrs.get("perm", list(range(rank))[::-1]))

    def op_Expand(self, node):
        return self.ops.expand(self.args(node)[0], list(self.shape(node.outputs[0])))

    def op_Concat(self, node):
        rank = len(self.shape(node.inputs[0]))
        return self.ops.concat(self.args(node), node.attrs["axis"] % rank)

    def op_Split(self, node):
        x, shape = self.args(node)[0], self.shape(node.inputs[0])
        axis, at, parts = node.attrs.get("axis", 0) % len(shape), 0, []
        for out in node.outputs:
            n = self.shape(out)[axis]
            cuts = [None] * len(shape)
            cuts[axis] = (at, at + n, 1)
            parts.append(self.ops.slice(x, cuts))
            at += n
        return parts

    def op_Slice(self, node):
        a, shape = node.attrs, self.shape(node.inputs[0])
        cuts = [None] * len(shape)
        steps = a.get("steps", [1] * len(a["starts"]))
        axes = a.get("axes", list(range(len(a["starts"]))))
        for axis, start, end, step in zip(axes, a["starts"], a["ends"], steps):
            if step < 1:
                raise Unsupported("Slice with a negative step")
            cuts[axis % len(shape)] = slice(start, end, step).indices(shape[axis])
        return self.ops.slice(self.args(node)[0], cuts)

    def op_Pad(self, node):
        pads, rank = node.attrs["pads"], len(self.shape(node.inputs[0]))
        if node.attrs.get("mode", "constant") != "constant" or min(pads) < 0 or \
                len(pads) != 2 * rank:
            raise Unsupported("Pad in another mode, of some axes, or negative")
        return self.ops.pad(self.args(node)[0], list(zip(pads[:rank], pads[rank:])),
                            float(node.attrs.get("value", 0)))

    def op_Resize(self, node):
        a = node.attrs
        sizes, out = self.shape(node.inputs[0]), self.shape(node.outputs[0])
        mode = (a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel"))
        exact = "sizes" in a or all(int(n * s) == n * s for n, s in zip(
            sizes[len(sizes) - len(as_list(a["scales"])):], as_list(a["scales"])))
        if not exact or len(sizes) != 4 or sizes[:2] != out[:2]:
            raise Unsupported("Resize by a fraction, or of other axes than two spatial ones")
        if mode == ("nearest", "asymmetric") and a.get("nearest_mode") == "floor":
            return self.ops.resize("nearest", self.args(node)[0], sizes, out)
        if mode == ("linear", "align_corners"):
            return self.ops.resize("corners", self.args(node)[0], sizes, out)
        if mode == ("linear", "half_pixel"):
            return self.ops.resize("centres", self.args(node)[0], sizes, out)
        raise Unsupported("Resize with %s, %s" % mode)


def as_list(v):
    return v if isinstance(v, list) else [v]


def define(table, method):
    """op_NAME for operators that are one call of `method` with another word."""
    for op, word in table.items():
        setattr(Run, "op_" + op, lambda self, node, word=word: getattr(self, method)(node, word))


define({"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log",
        "Sqrt": "sqrt", "Erf": "erf", "Abs": "abs", "Neg": "neg"}, "unary")
define({"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow"}, "binary")
define({"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min"},
       "reduced")
define({"ArgMax": "argmax", "ArgMin": "argmin"}, "place")
