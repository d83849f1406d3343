"""Parts of known networks as exporters write them: shapes taken apart and put together again, norms
and activations spelled out, masks as constants, index arithmetic with casts around it.
"""
import numpy as np
from onnx import TensorProto

from cases import Case, case, const, each, model, node, value, weight

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
END = 2 ** 63 - 1


class Net:
    """Nodes in order; values get names such as a tracing exporter gives."""

    def __init__(self, seed=3):
        self.nodes, self.inits, self.count = [], [], {}
        self.rng = np.random.default_rng(seed)

    def name(self, op):
        self.count[op] = self.count.get(op, -1) + 1
        return f"/{op}{'_%d' % self.count[op] if self.count[op] else ''}_output_0"

    def __call__(self, op, *inputs, outputs=1, name=None, **attrs):
        names = [i if isinstance(i, str) else self.const(i) for i in inputs]
        outs = [name] if name else [self.name(op) for _ in range(outputs)]
        self.nodes.append(node(op, names, outs, **attrs))
        return outs[0] if outputs == 1 else outs

    def const(self, array):
        """A Constant node, as tracing exporters write small ones; numbers are int64 or f32."""
        array = np.asarray(array)
        kind = {"i": np.int64, "f": np.float32, "b": np.bool_}[array.dtype.kind]
        name = self.name("Constant")
        self.nodes.append(node("Constant", [], [name], value=const("v", array.astype(kind))))
        return name

    def weight(self, *shape, std=None):
        std = std or 1 / np.sqrt(max(1, np.prod(shape[1:])))
        name = f"onnx::w_{len(self.inits)}"
        self.inits.append(const(name, (std * self.rng.normal(size=shape)).astype(np.float32)))
        return name

    def table(self, array):
        name = f"onnx::t_{len(self.inits)}"
        self.inits.append(const(name, array))
        return name

    # what exporters make of a framework's calls

    def size(self, x, axis):
        """x.size(axis) as a vector of one"""
        return self("Unsqueeze", self("Gather", self("Shape", x), axis, axis=0), [0])

    def view(self, x, *sizes):
        """Sizes are numbers or names of vectors of one."""
        parts = [s if isinstance(s, str) else self.const([s]) for s in sizes]
        return self("Reshape", x, self("Concat", *parts, axis=0))

    def conv(self, x, c, f, k=3, **attrs):
        group = attrs.get("group", 1)
        k = k if isinstance(k, tuple) else (k, k)
        attrs.setdefault("pads", [(n - 1) // 2 for n in k] * 2)
        return self("Conv", x, self.weight(f, c // group, *k), self.weight(f), kernel_shape=k,
                    **attrs)

    def norm(self, x, c):
        positive = self.table(self.rng.uniform(0.5, 1.5, c).astype(np.float32))
        return self("BatchNormalization", x, self.weight(c, std=1), self.weight(c, std=0.2),
                    self.weight(c, std=0.2), positive, epsilon=1e-3)

    def linear(self, x, n, m):
        return self("Add", self.weight(m), self("MatMul", x, self.weight(n, m)))

    def layer_norm(self, x, n):
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        variance = self("ReduceMean", self("Pow", centred, 2.0), axes=[-1])
        scaled = self("Div", centred, self("Sqrt", self("Add", variance, 1e-5)))
        return self("Add", self("Mul", scaled, self.weight(n, std=1)), self.weight(n))

    def gelu(self, x):
        erf = self("Erf", self("Div", x, 1.41421356))
        return self("Mul", self("Mul", x, self("Add", erf, 1.0)), 0.5)

    def swish(self, x):
        return self("Mul", x, self("Sigmoid", x))

    def heads(self, x, length, h, p):
        return self("Transpose", self("Reshape", x, [-1, length, h, p]), perm=[0, 2, 1, 3])

    def attention(self, x, length, h, p, bias=None):
        e = h * p
        q, k, v = (self.heads(self.linear(x, e, e), length, h, p) for _ in range(3))
        k = self("Transpose", k, perm=[0, 1, 3, 2])
        s = self("Div", self("MatMul", q, k), float(np.sqrt(p)))
        s = self("Add", s, bias) if bias else s
        o = self("MatMul", self("Softmax", s, axis=-1), v)
        return self.linear(self("Reshape", self("Transpose", o, perm=[0, 2, 1, 3]),
                                [-1, length, e]), e, e)

    def case(self, shapes, outputs, opset=17, types=None, **more):
        """types: of outputs that are not f32."""
        outputs = outputs if isinstance(outputs, list) else [outputs]
        m = model(self.nodes, shapes, outputs, self.inits, opset)
        for out in m.graph.output:
            out.type.tensor_type.elem_type = (types or {}).get(out.name, F)
        return Case(m, **more)


def network(function):
    each("net_" + function.__name__, lambda: function(Net()))
    return function


def inverted_residual(net, x, c, wide):
    t = net.norm(net.conv(x, c, wide, 1), wide)
    t = net.swish(net.norm(net.conv(net.swish(t), wide, wide, group=wide), wide))
    s = net.swish(net.conv(net("GlobalAveragePool", t), wide, 2, 1))
    t = net("Mul", t, net("Sigmoid", net.conv(s, 2, wide, 1)))
    return net("Add", x, net.norm(net.conv(t, wide, c, 1), c))


@network
def efficientnet_block(net):
    return net.case({"x": ["batch", 4, 9, 9]}, inverted_residual(net, "x", 4, 8), 13,
                    dims={"batch": 3})


@network
def mobilenet_v3_head(net):
    x = net("HardSwish", net.norm(net.conv("x", 3, 8, strides=[2, 2]), 8))
    spelled = net("Div", net("Clip", net("Add", x, 3.0), 0.0, 6.0), 6.0)
    x = net("ReduceMean", net("Mul", x, spelled), axes=[-1, -2], keepdims=0)
    return net.case({"x": [2, 3, 12, 10]}, net("Gemm", x, net.weight(5, 8), net.weight(5),
                                               transB=1), 14)


@network
def shuffle_unit(net):
    a, b = net("Split", "x", [4, 4], outputs=2, axis=1)
    b = net("Relu", net.norm(net.conv(b, 4, 4, group=4), 4))
    y = net("Concat", a, b, axis=1)
    y = net("Reshape", y, [-1, 2, 4, 5, 7])
    y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3, 4]), [-1, 8, 5, 7])
    return net.case({"x": [1, 8, 5, 7]}, y)


@network
def unet_up(net):
    """The smaller map is padded to the size of the skip connection, from their shapes."""
    x = net("ConvTranspose", "x", net.weight(4, 3, 2, 2), net.weight(3), strides=[2, 2],
            kernel_shape=[2, 2])
    pads = [net.const([0]), net.const([0])]
    for axis in (2, 3):
        more = net("Sub", net("Gather", net("Shape", "skip"), axis, axis=0),
                   net("Gather", net("Shape", x), axis, axis=0))
        pads.append(net("Unsqueeze", net("Div", more, 2), [0]))
        pads.append(net("Unsqueeze", net("Sub", more, net("Div", more, 2)), [0]))
    order = [pads[i] for i in (0, 1, 2, 4, 0, 1, 3, 5)]
    x = net("Pad", x, net("Cast", net("Concat", *order, axis=0), to=I64), 0.0, mode="constant")
    y = net("Concat", "skip", x, axis=1)
    return net.case({"x": [1, 4, 3, 4], "skip": [1, 2, 7, 9]}, net("Relu", net.conv(y, 5, 2)))


@network
def yolo_head(net):
    """Boxes from a grid of constants, in two sizes, joined."""
    parts = []
    for source, n, stride in (("x", 4, 8.0), ("z", 2, 16.0)):
        t = net.conv(source, 6, 3 * 7, 1)
        t = net("Reshape", t, [1, 3, 7, n, n])
        t = net("Sigmoid", net("Transpose", t, perm=[0, 1, 3, 4, 2]))
        grid = np.stack(np.meshgrid(np.arange(n), np.arange(n)), -1)[None, None].astype(np.float32)
        anchor = net.rng.uniform(5, 30, (1, 3, 1, 1, 2)).astype(np.float32)
        xy, wh, rest = net("Split", t, [2, 2, 3], outputs=3, axis=4)
        xy = net("Mul", net("Add", net("Sub", net("Mul", xy, 2.0), 0.5), net.table(grid)), stride)
        wh = net("Mul", net("Pow", net("Mul", wh, 2.0), 2.0), net.table(anchor))
        parts.append(net("Reshape", net("Concat", xy, wh, rest, axis=4), [1, -1, 7]))
    return net.case({"x": [1, 6, 4, 4], "z": [1, 6, 2, 2]}, net("Concat", *parts, axis=1))


@network
def yolo_dfl(net):
    """Distances as expectations over 16 places, by a convolution of one channel."""
    t = net("Transpose", net("Reshape", "x", [1, 4, 16, 10]), perm=[0, 2, 1, 3])
    places = net.table(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    d = net("Reshape", net("Conv", net("Softmax", t, axis=1), places), [1, 4, 10])
    lo = net("Slice", d, [0], [2], [1])
    hi = net("Slice", d, [2], [END], [1])
    anchors = net.table(net.rng.uniform(0, 9, (1, 2, 10)).astype(np.float32))
    a, b = net("Sub", anchors, lo), net("Add", anchors, hi)
    middle = net("Div", net("Add", a, b), 2.0)
    return net.case({"x": [1, 64, 10]}, net("Concat", middle, net("Sub", b, a), axis=1), 19)


@network
def convnext_block(net):
    t = net("Transpose", net.conv("x", 6, 6, 7, group=6), perm=[0, 2, 3, 1])
    t = net.linear(net.gelu(net.linear(net.layer_norm(t, 6), 6, 12)), 12, 6)
    t = net("Transpose", net("Mul", net.weight(6, std=1), t), perm=[0, 3, 1, 2])
    return net.case({"x": [1, 6, 8, 8]}, net("Add", "x", t))


@network
def swin_block(net):
    """Windows of 4 by 4 shifted by 2; the bias is looked up by constant positions."""
    c, h, p, w = 8, 2, 4, 4
    x = net("Reshape", net.layer_norm("x", c), [1, 8, 8, c])
    for axis in (1, 2):
        x = net("Concat", net("Slice", x, [2], [END], [axis]), net("Slice", x, [0], [2], [axis]),
                axis=axis)
    x = net("Reshape", x, [1, 2, w, 2, w, c])
    x = net("Reshape", net("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), [-1, w * w, c])
    at = np.stack(np.meshgrid(np.arange(w), np.arange(w), indexing="ij")).reshape(2, -1)
    apart = at[:, :, None] - at[:, None, :] + w - 1
    index = (apart[0] * (2 * w - 1) + apart[1]).reshape(-1)
    bias = net("Gather", net.weight((2 * w - 1) ** 2, h, std=1), net.table(index), axis=0)
    bias = net("Transpose", net("Reshape", bias, [w * w, w * w, -1]), perm=[2, 0, 1])
    mask = np.where(net.rng.random((4, 1, w * w, w * w)) < 0.3, -100, 0).astype(np.float32)
    bias = net("Add", net("Unsqueeze", bias, [0]), net.table(mask))
    y = net.attention(x, w * w, h, p, bias)
    y = net("Transpose", net("Reshape", y, [1, 2, 2, w, w, c]), perm=[0, 1, 3, 2, 4, 5])
    y = net("Reshape", y, [1, 8, 8, c])
    for axis in (1, 2):
        y = net("Concat", net("Slice", y, [-2], [END], [axis]), net("Slice", y, [0], [-2], [axis]),
                axis=axis)
    return net.case({"x": [1, 64, c]}, net("Add", "x", net("Reshape", y, [1, 64, c])))


@network
def mobilevit_unfold(net):
    b, c = net.size("x", 0), 6
    t = net("Reshape", "x", [-1, 2, 2, 2])
    t = net("Reshape", net("Transpose", net("Reshape", t, [c * 2, 2, 2, 2]), perm=[0, 2, 1, 3]),
            [1, c, 4, 4])
    t = net("Reshape", net("Transpose", t, perm=[0, 3, 2, 1]), [4, 4, c])
    t = net("Add", t, net.attention(net.layer_norm(t, c), 4, 2, 3))
    t = net("Transpose", net.view(t, b, 4, 4, c), perm=[0, 3, 2, 1])
    return net.case({"x": [1, c, 4, 4]}, net.conv(net("Concat", "x", t, axis=1), 2 * c, c))


@network
def deit_tokens(net):
    """expand(B, -1, -1) of the class token, as exporters guard it with Where."""
    x = net("Conv", "x", net.weight(8, 3, 4, 4), net.weight(8), strides=[4, 4])
    x = net("Reshape", x, net("Concat", net("Slice", net("Shape", x), [0], [2]), [-1], axis=0))
    x = net("Transpose", x, perm=[0, 2, 1])
    shape = net("Concat", net.size(x, 0), [-1], [-1], axis=0)
    ones = net("ConstantOfShape", [3], value=const("v", np.array([1], np.int64)))
    same = net("Equal", shape, net("Mul", ones, -1))
    token = net("Expand", net.weight(1, 1, 8, std=1), net("Where", same, ones, shape))
    x = net("Add", net("Concat", token, x, axis=1), net.weight(1, 10, 8))
    x = net("Add", x, net.attention(net.layer_norm(x, 8), 10, 2, 4))
    return net.case({"x": ["N", 3, 12, 12]}, net("Gather", x, 0, axis=1), dims={"N": 2})


@network
def segformer_stage(net):
    """Attention over keys that a strided convolution makes fewer."""
    t = net("Transpose", net("Reshape", net.conv("x", 3, 8, 7, strides=[4, 4]), [1, 8, 16]),
            perm=[0, 2, 1])
    n = net.layer_norm(t, 8)
    small = net("Reshape", net("Transpose", n, perm=[0, 2, 1]), [1, 8, 4, 4])
    small = net("Conv", small, net.weight(8, 8, 2, 2), strides=[2, 2])
    small = net("Transpose", net("Reshape", small, [1, 8, -1]), perm=[0, 2, 1])
    q = net.heads(net.linear(n, 8, 8), 16, 2, 4)
    k = net("Transpose", net.heads(net.linear(small, 8, 8), 4, 2, 4), perm=[0, 1, 3, 2])
    o = net("MatMul", net("Softmax", net("Mul", net("MatMul", q, k), 0.5), axis=-1),
            net.heads(net.linear(small, 8, 8), 4, 2, 4))
    t = net("Add", t, net("Reshape", net("Transpose", o, perm=[0, 2, 1, 3]), [1, 16, 8]))
    y = net("Reshape", net("Transpose", t, perm=[0, 2, 1]), [1, 8, 4, 4])
    y = net("Resize", y, "", "", net("Concat", net("Slice", net("Shape", y), [0], [2]), [16, 16],
                                     axis=0), mode="linear", cubic_coeff_a=-0.75)
    return net.case({"x": [1, 3, 16, 16]}, net("ArgMax", y, axis=1, keepdims=0, name="labels"),
                    13, {"labels": I64})


@network
def deeplab_aspp(net):
    parts = [net("Relu", net.norm(net.conv("x", 4, 3, 1), 3))]
    for d in (2, 4):
        parts.append(net("Relu", net.norm(net.conv("x", 4, 3, dilations=[d, d],
                                                   pads=[d] * 4), 3)))
    pooled = net("Relu", net.conv(net("GlobalAveragePool", "x"), 4, 3, 1))
    shape = net("Shape", "x")
    sizes = net("Concat", net("Slice", net("Shape", pooled), [0], [2], [0]),
                net("Slice", shape, [2], [4], [0]), axis=0)
    parts.append(net("Resize", pooled, "", "", sizes, mode="linear",
                     coordinate_transformation_mode="pytorch_half_pixel"))
    y = net("Concat", *parts, axis=1)
    h, w = (net("Mul", net("Cast", net("Gather", shape, i, axis=0), to=F), 4.0) for i in (2, 3))
    to = [net("Unsqueeze", net("Cast", net("Floor", v), to=I64), [0]) for v in (h, w)]
    y = net("Resize", net.conv(y, 12, 2, 1), "", "", net(
        "Concat", net.const([1]), net.const([2]), *to, axis=0), mode="linear",
        coordinate_transformation_mode="align_corners")
    return net.case({"x": [1, 4, 9, 7]}, y, 13)


@network
def retina_neck(net):
    up = net.conv("c5", 6, 4, 1)
    side = net.conv("c4", 3, 4, 1)
    sizes = net("Concat", net("Slice", net("Shape", up), [0], [2], [0]),
                net("Cast", net("Slice", net("Shape", side), [2], [4], [0]), to=I64), axis=0)
    up = net("Resize", up, "", "", sizes, mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")
    p4 = net.conv(net("Add", side, up), 4, 4)
    y = net("Reshape", net("Transpose", p4, perm=[0, 2, 3, 1]), [1, -1, 2])
    return net.case({"c4": [1, 3, 8, 6], "c5": [1, 6, 4, 3]}, [net("Sigmoid", y), p4], 13)


@network
def bert_embeddings(net):
    """Token, position and type tables; a mask of integers that becomes a bias."""
    n = 7
    words = net("Gather", net.weight(20, 8, std=1), "input_ids")
    places = net("Slice", net.table(np.arange(16)[None]), [0], net.size("input_ids", 1), [1])
    x = net("Add", words, net("Gather", net.weight(2, 8, std=1), "token_type_ids"))
    x = net.layer_norm(net("Add", x, net("Gather", net.weight(16, 8, std=1), places)), 8)
    mask = net("Unsqueeze", net("Unsqueeze", "attention_mask", [1]), [2])
    mask = net("Mul", net("Sub", 1.0, net("Cast", mask, to=F)), -10000.0)
    x = net("Add", x, net.attention(x, n, 2, 4, mask))
    pooled = net("Tanh", net("Gemm", net("Gather", x, 0, axis=1), net.weight(8, 8),
                             net.weight(8), transB=1))
    ids = {k: value(k, ["batch", n], I64)
           for k in ("input_ids", "token_type_ids", "attention_mask")}
    return net.case(ids, [x, pooled], inputs={
        "token_type_ids": np.array([[0, 0, 0, 1, 1, 1, 1]]),
        "attention_mask": np.array([[1, 1, 1, 1, 1, 0, 0]])})


@network
def roberta_positions(net):
    keep = net("Cast", net("Not", net("Equal", "input_ids", 1)), to=TensorProto.INT32)
    at = net("Mul", net("CumSum", keep, 1), keep)
    at = net("Add", net("Cast", at, to=I64), 1)
    x = net("Add", net("Gather", net.weight(9, 6, std=1), "input_ids"),
            net("Gather", net.weight(12, 6, std=1), at))
    return net.case({"input_ids": value("input_ids", [2, 6], I64)}, x, 14)


@network
def gpt2_block(net):
    """A causal mask cut out of a table of bools, tanh's GELU, weights tied to the embedding."""
    n, h, p = 6, 2, 4
    table = net.weight(15, 8, std=1)
    x = net("Add", net("Gather", table, "ids"),
            net("Gather", net.weight(10, 8, std=1), net("Unsqueeze", net("Range", 0, n, 1), [0])))
    t = net("Gemm", net("Reshape", net.layer_norm(x, 8), [-1, 8]), net.weight(8, 24),
            net.weight(24))
    q, k, v = net("Split", net("Reshape", t, [1, n, 24]), [8, 8, 8], outputs=3, axis=2)
    q, k, v = (net.heads(i, n, h, p) for i in (q, k, v))
    s = net("Div", net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2])), 2.0)
    all_ = net.table(np.tril(np.ones((10, 10), bool))[None, None])
    mask = net("Slice", net("Slice", all_, [0], [n], [2]), [0], [n], [3])
    s = net("Where", mask, s, -3.4028234663852886e38)
    o = net("Transpose", net("MatMul", net("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])
    x = net("Add", x, net.linear(net("Reshape", o, [1, n, 8]), 8, 8))
    u = net.linear(net.layer_norm(x, 8), 8, 16)
    cube = net("Mul", net("Add", u, net("Mul", net("Pow", u, 3.0), 0.044715)), 0.7978845608)
    u = net("Mul", net("Mul", u, 0.5), net("Add", net("Tanh", cube), 1.0))
    x = net("Add", x, net.linear(u, 16, 8))
    y = net("MatMul", x, net("Transpose", table, perm=[1, 0]))
    return net.case({"ids": value("ids", [1, n], I64)}, y)


@network
def t5_encoder(net):
    """Root mean square norm and buckets of distances, which are arithmetic on constants."""
    n, h, p = 7, 2, 4
    at = net("Range", 0, n, 1)
    apart = net("Sub", net("Unsqueeze", at, [0]), net("Unsqueeze", at, [1]))
    side = net("Mul", net("Cast", net("Greater", apart, 0), to=I64), 4)
    apart = net("Abs", apart)
    far = net("Log", net("Div", net("Cast", apart, to=F), 2.0))
    far = net("Add", net("Cast", net("Mul", net("Div", far, 2.0794415), 2.0), to=I64), 2)
    limit = net("ConstantOfShape", net("Shape", far), value=const("v", np.array([3])))
    bucket = net("Add", side, net("Where", net("Less", apart, 2), apart, net("Min", far, limit)))
    bias = net("Transpose", net("Gather", net.weight(8, h, std=1), bucket), perm=[2, 0, 1])
    x = net("Gather", net.weight(15, 8, std=1), "ids")
    square = net("ReduceMean", net("Pow", x, 2.0), axes=[-1])
    norm = net("Mul", x, net("Reciprocal", net("Sqrt", net("Add", square, 1e-6))))
    y = net.attention(net("Mul", net.weight(8, std=1), norm), n, h, p, net("Unsqueeze", bias, [0]))
    return net.case({"ids": value("ids", [1, n], I64)}, net("Add", x, y))


@network
def rotary(net):
    """Angles from positions that are inputs; halves turned and joined."""
    places = net("Unsqueeze", net("Cast", "position_ids", to=F), [2])
    rates = net.table((1 / 100 ** (np.arange(4) / 4)).astype(np.float32)[None, None])
    angle = net("Mul", places, rates)
    angle = net("Concat", angle, angle, axis=-1)
    half = net("Concat", net("Neg", net("Slice", "q", [4], [END], [2])),
               net("Slice", "q", [0], [4], [2]), axis=-1)
    y = net("Add", net("Mul", "q", net("Cos", angle)), net("Mul", half, net("Sin", angle)))
    return net.case({"q": [2, 5, 8], "position_ids": value("position_ids", [2, 5], I64)}, y)


@network
def conformer_conv(net):
    t = net("Transpose", net.layer_norm("x", 6), perm=[0, 2, 1])
    t = net("Conv", t, net.weight(12, 6, 1), net.weight(12))
    a, b = net("Split", t, [6, 6], outputs=2, axis=1)
    t = net("Mul", a, net("Sigmoid", b))
    t = net("Conv", t, net.weight(6, 1, 5), pads=[2, 2], group=6)
    t = net("Conv", net.swish(net.norm(t, 6)), net.weight(6, 6, 1))
    return net.case({"x": [1, 9, 6]}, net("Add", "x", net("Transpose", t, perm=[0, 2, 1])))


@network
def relative_shift(net):
    """Transformer-XL's trick: a column of zeros, the same numbers in other rows."""
    n = 5
    s = net("MatMul", "q", net("Transpose", "r", perm=[0, 1, 3, 2]))
    zero = net("ConstantOfShape", [1, 2, n, 1], value=const("v", np.zeros(1, np.float32)))
    s = net("Concat", zero, s, axis=3)
    s = net("Slice", net("Reshape", s, [1, 2, n + 1, n]), [1], [END], [2])
    return net.case({"q": [1, 2, n, 3], "r": [1, 2, n, 3]},
                    net("Softmax", net("Reshape", s, [1, 2, n, n]), axis=-1))


@network
def hifi_gan(net):
    x = net("ConvTranspose", net("LeakyRelu", "x", alpha=0.1), net.weight(6, 4, 4), net.weight(4),
            strides=[2], pads=[1, 1], kernel_shape=[4])
    parts = []
    for k in (3, 5):
        y = x
        for d in (1, 3):
            t = net("Conv", net("LeakyRelu", y, alpha=0.1), net.weight(4, 4, k), net.weight(4),
                    dilations=[d], pads=[d * (k - 1) // 2] * 2)
            y = net("Add", net("Conv", net("LeakyRelu", t, alpha=0.1), net.weight(4, 4, k),
                               net.weight(4), pads=[(k - 1) // 2] * 2), y)
        parts.append(y)
    x = net("LeakyRelu", net("Div", net("Add", *parts), 2.0), alpha=0.01)
    return net.case({"x": [1, 6, 11]}, net("Tanh", net("Conv", x, net.weight(1, 4, 7),
                                                       pads=[3, 3])))


@network
def style_mapping(net):
    """Pixel norm, layers, and a convolution whose kernels the style scales."""
    z = net("Sqrt", net("Add", net("ReduceMean", net("Mul", "z", "z"), axes=[1]), 1e-8))
    w = net("Div", "z", z)
    for _ in range(2):
        w = net("LeakyRelu", net("Gemm", w, net.weight(6, 6), net.weight(6), transB=1), alpha=0.2)
    style = net("Gemm", w, net.weight(4, 6), net.weight(4), transB=1)
    style = net("Reshape", style, [1, 1, 4, 1, 1])
    k = net("Mul", net("Unsqueeze", net.weight(5, 4, 3, 3), [0]), style)
    small = net("ReduceSum", net("Mul", k, k), [2, 3, 4], keepdims=1)
    k = net("Mul", k, net("Reciprocal", net("Sqrt", net("Add", small, 1e-8))))
    y = net("Conv", "x", net("Reshape", k, [5, 4, 3, 3]), pads=[1] * 4)
    noise = net("Mul", net.weight(1, 1, 6, 6, std=1), 0.1)
    return net.case({"z": [1, 6], "x": [1, 4, 6, 6]}, net("LeakyRelu", net("Add", y, noise),
                                                          alpha=0.2))


@network
def pointnet(net):
    t = net("Relu", net.norm(net("Conv", "x", net.weight(8, 3, 1), net.weight(8)), 8))
    t = net("ReduceMax", t, axes=[2], keepdims=0)
    t = net("Add", net("Gemm", t, net.weight(9, 8), transB=1), np.eye(3).reshape(1, 9))
    t = net("Reshape", t, [-1, 3, 3])
    x = net("Transpose", net("MatMul", net("Transpose", "x", perm=[0, 2, 1]), t), perm=[0, 2, 1])
    x = net("Relu", net("Conv", x, net.weight(6, 3, 1)))
    y = net("ReduceMax", x, axes=[2], keepdims=1)
    wide = net("Expand", y, net("Concat", [1], [1], net.size("x", 2), axis=0))
    return net.case({"x": [2, 3, 20]}, net("LogSoftmax", net("Concat", wide, x, axis=1), axis=1))


@network
def wav2vec_features(net):
    """Group norm as exporters write it: instance norm of other rows, scale and shift."""
    x = net("Conv", net("Unsqueeze", "x", [1]), net.weight(8, 1, 10), strides=[5])
    t = net("Reshape", x, [0, 4, -1])
    t = net("InstanceNormalization", t, net.table(np.ones(4, np.float32)),
            net.table(np.zeros(4, np.float32)), epsilon=1e-5)
    t = net("Reshape", t, net("Shape", x))
    t = net("Add", net("Mul", t, net("Unsqueeze", net.weight(8, std=1), [1])),
            net("Unsqueeze", net.weight(8), [1]))
    t = net("Conv", net.gelu(t), net.weight(8, 8, 3), strides=[2])
    p = net("Conv", t, net.weight(8, 4, 4), net.weight(8), pads=[2, 2], group=2)
    return net.case({"x": [1, 120]}, net("Add", t, net.gelu(net("Slice", p, [0], [-1], [2]))))


@network
def style_transfer(net):
    x = net("Pad", "x", [0, 0, 2, 2, 0, 0, 2, 2], mode="reflect")
    x = net("Conv", x, net.weight(4, 3, 5, 5), net.weight(4))
    x = net("Relu", net("InstanceNormalization", x, net.weight(4, std=1), net.weight(4)))
    x = net("Resize", x, "", [1.0, 1.0, 2.0, 2.0], mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric")
    x = net("Pad", x, [0, 0, 1, 1, 0, 0, 1, 1], mode="edge")
    return net.case({"x": [1, 3, 9, 8]}, net("Conv", x, net.weight(3, 4, 3, 3)), 13)


@network
def espcn(net):
    x = net("Tanh", net.conv("x", 1, 4, 5))
    x = net("Reshape", net.conv(x, 4, 9), [1, 1, 3, 3, 6, 5])
    a = net("Reshape", net("Transpose", x, perm=[0, 1, 4, 2, 5, 3]), [1, 1, 18, 15])
    b = net("DepthToSpace", net.conv("x", 1, 9), blocksize=3, mode="CRD")
    return net.case({"x": [1, 1, 6, 5]}, net("Clip", net("Add", a, b), 0.0, 1.0))


@network
def focus_and_pools(net):
    """Space to depth by strided slices, pools of pools, nearest upsampling, Mish."""
    parts = [net("Slice", net("Slice", "x", [i], [END], [2], [2]), [j], [END], [3], [2])
             for j in (0, 1) for i in (0, 1)]
    x = net("Mish", net.conv(net("Concat", *parts, axis=1), 12, 4))
    y = [x]
    for _ in range(2):
        y.append(net("MaxPool", y[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    x = net("Resize", net.conv(net("Concat", *y, axis=1), 12, 3, 1), "", [1.0, 1.0, 2.0, 2.0],
            mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    return net.case({"x": [1, 3, 8, 12]}, x, 18)


@network
def flips(net):
    """Test-time augmentation: slices with negative steps up to the smallest int64."""
    flip = net("Slice", "x", [-1], [-END], [3], [-1])
    both = net("Concat", net.conv("x", 2, 2), net.conv(flip, 2, 2), axis=0)
    a, b = net("Split", both, [1, 1], outputs=2, axis=0)
    back = net("Slice", b, [END], [-END - 1], [-1], [-1])
    return net.case({"x": [1, 2, 5, 6]}, net("Mean", a, back))


@network
def segmentation_labels(net):
    """Places of maxima as numbers, a threshold as a mask, choices by it."""
    s = net("Softmax", "x", axis=1)
    best = net("ArgMax", s, axis=1, keepdims=1)
    sure = net("Greater", net("ReduceMax", s, axes=[1]), 0.4)
    wide = net("Cast", best, to=F)
    labels = net("Where", sure, wide, -1.0)
    count = net("ReduceSum", net("Cast", sure, to=I64), [2, 3], keepdims=0)
    maybe = net("And", sure, net("LessOrEqual", wide, 2.0))
    return net.case({"x": [2, 4, 5, 6]}, [labels, net("Cast", maybe, to=F)] + [
        net("Cast", count, to=F)])


@network
def linear_attention(net):
    """Einsum as exporters keep it, ELU + 1, sums by letters."""
    q, k = (net("Add", net("Elu", v), 1.0) for v in ("q", "k"))
    kv = net("Einsum", k, "v", equation="nshd,nshm->nhmd")
    z = net("Einsum", q, net("ReduceSum", k, [1], keepdims=0), equation="nlhd,nhd->nlh")
    z = net("Reciprocal", net("Add", z, 1e-6))
    y = net("Einsum", q, kv, z, equation="nlhd,nhmd,nlh->nlhm")
    other = net("Einsum", "q", "k", equation="...hd, ...gd")
    return net.case({"q": [1, 6, 2, 4], "k": [1, 6, 2, 4], "v": [1, 6, 2, 3]}, [y, other])


@network
def group_norm_block(net):
    x = net("GroupNormalization", "x", net.weight(2, std=1), net.weight(2), num_groups=2)
    x = net.conv(net.swish(x), 6, 6)
    x = net("LpNormalization", x, axis=1)
    return net.case({"x": [1, 6, 5, 5]}, net("ReduceLogSumExp", x, [1]), 18, tolerance=2e-5)


def detector():
    """Boxes that only their number on an image decides end what can be planned."""
    net = Net()
    x = net("Relu", net.conv("x", 3, 6))
    best = net("ReduceMax", x, axes=[1], keepdims=0)
    scores = net("Reshape", best, [1, 1, 20])
    boxes = net("Reshape", net("Slice", x, [0], [4], [1]), [1, 20, 4])
    return net, {"x": [1, 3, 4, 5]}, [net("NonMaxSuppression", boxes, scores)]


@network
def ends_before_what_is_refused(_):
    net, shapes, outputs = detector()
    before = net.case(shapes, ["/ReduceMax_output_0", "/Relu_output_0"])
    return net.case(shapes, outputs, args=["--end", "/ReduceMax_output_0", "--end=/Relu_output_0"],
                    reference=before.model, text='output "/ReduceMax_output_0"')


@network
def refusal_names_where_to_end(_):
    net, shapes, outputs = detector()
    return net.case(shapes, outputs, code=4, text=[
        'node of output "/NonMaxSuppression_output_0": unsupported operator', "depends on values",
        '--end "/Reshape_1_output_0"'])


@network
def end_that_is_not_there(_):
    net, shapes, outputs = detector()
    return net.case(shapes, outputs, args=["--end", "nope"], code=3,
                    text='output "nope" is not defined')


def standardised(batch):
    """A convolution whose weights are normalised by a BatchNormalization that is training."""
    net = Net()
    w = net("Reshape", net.const(np.random.default_rng(1).normal(size=(6, 4, 3, 3))),
            [batch, 6, -1])
    inits = [const(n, np.full(6, v, np.float32)) for n, v in
             (("one", 1.5), ("none", 0.25), ("mean", 9), ("var", 9))]
    w = net("BatchNormalization", w, "one", "none", "mean", "var", outputs=3, training_mode=1,
            epsilon=1e-6)[0]
    net("Conv", "x", net("Reshape", w, [6, 4, 3, 3] if batch == 1 else [12, 2, 3, 3]), name="y")
    return net.nodes, inits


@case
def weights_standardised():
    nodes, inits = standardised(1)
    return Case(model(nodes, {"x": [2, 4, 7, 7]}, "y", inits), text="InstanceNormalization(",
                tolerance=1e-4)


@case
def statistics_of_a_batch():
    nodes, inits = standardised(2)
    return Case(model(nodes, {"x": [2, 2, 7, 7]}, "y", inits), text="ReduceMean(", tolerance=1e-4)


def layer_of_batches(outputs, **attrs):
    """A layer that keeps no statistics of its own, as torch exports it, on two shapes."""
    nodes = [node("BatchNormalization", f"{x} by to none one", f"{y} {outputs.format(y)}",
                  training_mode=1, **attrs) for x, y in (("x", "y"), ("flat", "z"))]
    inits = [weight("by", 3), weight("to", 3), const("none", np.zeros(3, np.float32)),
             const("one", np.ones(3, np.float32))]
    return nodes, {"x": value("x", ["N", 3, 5, 4]), "flat": value("flat", ["N", 3])}, inits


@case
def statistics_of_batches():
    nodes, inputs, inits = layer_of_batches("{0}_mean {0}_var", epsilon=1e-3)
    return Case(model(nodes, inputs, "y z", inits), args=["--dim", "N=4"], dims={"N": 6},
                text="axes=[0,2,3]", tolerance=1e-4)


@case
def statistics_of_batches_that_are_kept():
    nodes, inputs, inits = layer_of_batches("{0}_mean {0}_var")
    return Case(model(nodes, inputs, "y z_mean", inits), args=["--dim", "N=4"], code=4,
                text="output 1 of 'BatchNormalization' is not supported")
