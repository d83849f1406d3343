"""Models that the importer must convert, refuse or reject, built with the onnx package.

Every case is a function that returns a Case. `ok` cases are imported and run beside the original;
the others state the exit code and words of the message.
"""
import re

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, I64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(7)


class Case:
    """args: of the import. dims: other values to run the imported model with. inputs: fixed ones.
    text: words of the .ein text (or of the messages, when code is not 0). reference: the model to
    compare with, when it is not the imported one. said: all that an import says that succeeds.
    steps: integers may be so far off, one in ten of them."""

    def __init__(self, model, code=0, text=(), args=(), dims=None, inputs=None, not_text=(),
                 files=None, reference=None, tolerance=1e-5, compare=True, said=None,
                 steps=0):
        self.model, self.code, self.args, self.dims = model, code, list(args), dims
        self.text = [text] if isinstance(text, str) else list(text)
        self.not_text = [not_text] if isinstance(not_text, str) else list(not_text)
        self.inputs, self.files, self.reference = inputs, files or {}, reference
        self.tolerance, self.compare, self.said = tolerance, compare, said
        self.steps = steps


def value(name, shape, dtype=F):
    return helper.make_tensor_value_info(name, dtype, shape)


def const(name, array, dtype=None):
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def ints(name, *values):
    return const(name, np.array(values, np.int64))


def weight(name, *shape):
    return const(name, RNG.normal(size=shape).astype(np.float32))


def node(op, inputs, outputs="y", **attrs):
    split = lambda s: s.split() if isinstance(s, str) else list(s)
    return helper.make_node(op, ["" if i == "_" else i for i in split(inputs)], split(outputs),
                            **attrs)


def model(nodes, inputs, outputs="y", inits=(), opset=17, functions=(), extra=()):
    """inputs: {name: shape}; outputs: names."""
    given = [v if isinstance(v, onnx.ValueInfoProto) else value(k, v) for k, v in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(n) for n in
            (outputs.split() if isinstance(outputs, str) else outputs)]
    for out in outs:
        out.type.tensor_type.elem_type = F
    graph = helper.make_graph(list(nodes), "g", given, outs, list(inits))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in extra]
    version = 10 if opset >= 18 or functions else 8 if opset > 13 else 7
    return helper.make_model(graph, opset_imports=imports, ir_version=version,
                             functions=list(functions))


CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def each(name, made):
    CASES[re.sub(r"\W+", "_", name.replace("-", "minus"))] = made


# ---- names ----

@case
def names_are_quoted():
    weird = ["input", "1", "a b", 'q"u', "back\\slash", "\u00fcber", "tab\there", "max", "a..b",
             "x.1y", "trail.", "_", "ok.name.0", "sum"]
    nodes, last = [], "weight"
    for name in weird:
        nodes.append(helper.make_node("Add", [last, "w/1"], [name]))
        last = name
    return Case(model(nodes, {"weight": [2, 3]}, ["sum"], [weight("w/1", 3)]),
                text=['"1" = Add(input, "w/1")', '"back\\\\slash"', '"q\\"u"', "ok.name.0 = ",
                      '"tab\\there"', "output sum\n", "input weight: f32[2,3]"])


@case
def name_of_model_from_output():
    return Case(model([node("Relu", "x")], {"x": [1]}), text="model name_of_model_from_output\n")


# ---- elementwise ----

@case
def elementwise_chain():
    ops = ["Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Sqrt", "Neg", "Erf", "HardSwish", "Softplus",
           "Elu", "LeakyRelu", "HardSigmoid", "Identity"]
    nodes = [node(op, f"v{i}", f"v{i + 1}") for i, op in enumerate(ops)]
    return Case(model(nodes, {"v0": [2, 5]}, f"v{len(ops)}"))


@case
def attributes_of_activations():
    return Case(model([node("LeakyRelu", "x", "a", alpha=0.3), node("Elu", "a", "b", alpha=0.7),
                       node("HardSigmoid", "b", "c", alpha=0.3, beta=0.4)], {"x": [9]}, "c"),
                text=["alpha=0.3", "beta=0.4"])


@case
def binary_broadcast():
    return Case(model([node("Add", "x w", "a"), node("Mul", "a s", "b"), node("Sub", "s b", "c"),
                       node("Div", "c w", "y")], {"x": [2, 3, 4]}, "y",
                      [weight("w", 3, 1), const("s", np.float32(0.5))]),
                text="s[] = 0.5\n", not_text="weight s:")


@case
def indices_have_names_of_their_own():
    nodes = [node("Constant", "", "h", value=const("h", np.float32([[0.25]]))),
             node("Mul", "x h", "a"), node("LRN", "a", "y", size=3)]
    made = model(nodes, {"x": ["j", 4, "i1", 2]}, "y")
    return Case(made, args=["--dim", "i1=3"], text=["h[ii0,ii1] = 0.25", "sum(jj) "],
                dims={"i1": 3, "j": 1})


@case
def numbers_are_part_of_the_program():
    """Scalars, and single elements that nobody can have trained, as numbers."""
    def made_by(name, value):
        return node("Constant", "", name, value=const(name, value))
    nodes = [made_by("h", np.float32([[0.25]])), made_by("low", np.float32(-np.inf)),
             node("Mul", "x h", "a"), node("Add", "a one", "b"), node("Less", "b s", "less"),
             node("Where", "less low b", "c"), node("Mul", "c two", "d"), node("Sub", "d two", "y")]
    return Case(model(nodes, {"x": [2, 3]}, "y",
                      [const("one", np.float32([1.5])), const("s", np.float32(-1e-30)),
                       const("two", np.float32([2]))]),
                text=["h[i0,i1] = 0.25 where i0 in 0:1, i1 in 0:1\n", "low[] = log(0)\n",
                      "s[] = -1e-30\n", 'weight one: f32[1] = W "one"',
                      "two[i0] = 2 where i0 in 0:1\n"], not_text="weight h")


@case
def many_operands():
    return Case(model([node("Sum", "a b c", "s"), node("Mean", "s a b", "m"),
                       node("Max", "m a b c", "x"), node("Min", "x s m", "i"),
                       node("Sum", "i", "one"), node("Mean", "one", "y")],
                      {"a": [2, 3], "b": [3], "c": [2, 1]}), text=["Add(a, b)", "Max("])


@case
def pow_with_integer_exponent():
    return Case(model([node("Pow", "x e", "a"), node("Pow", "a f", "y")], {"x": [4]}, "y",
                      [const("e", np.int64(2)), const("f", np.array([3], np.int32))]),
                text=["a.exponent[] = 2"])


@case
def prelu_and_gemm():
    return Case(model([node("Gemm", "x w c", "a", alpha=0.5, beta=2.0, transB=1),
                       node("Gemm", "a v", "b", transA=1), node("PRelu", "b s", "y")],
                      {"x": [4, 3]}, "y", [weight("w", 5, 3), weight("c", 5), weight("v", 4, 2),
                                           weight("s", 2)]),
                text=["alpha=0.5", "beta=2", "transB=1", "transA=1"])


for opset in (6, 7, 10, 11, 12, 13, 21):
    def clip(opset=opset):
        if opset < 11:
            nodes, inits = [node("Clip", "x", min=-0.5, max=0.25)], []
        else:
            nodes = [node("Clip", "x lo hi")]
            inits = [const("lo", np.float32(-0.5)), const("hi", np.float32(0.25))]
        return Case(model(nodes, {"x": [20]}, "y", inits, opset),
                    text="Clip(x; min=-0.5, max=0.25)")
    each(f"clip_opset_{opset}", clip)


@case
def clip_integers():
    """Positions that are cut where they end, one of them of constants alone."""
    nodes = [node("Clip", "at lo hi", "a"), node("Gather", "table a", "b"),
             node("Clip", "far lo hi", "c"), node("GatherElements", "table c", "d", axis=0),
             node("Add", "b d", "y")]
    far = np.array([[-3, 9, 1, 2], [7, 0, -1, 3]], np.int64)
    return Case(model(nodes, {"at": value("at", [2], I64)}, "y",
                      [weight("table", 5, 4), const("lo", np.int64(0)), const("hi", np.int64(4)),
                       const("far", far)]), text=["Max(at, lo)", "Min("], not_text="Clip(")


@case
def clip_with_one_bound():
    return Case(model([node("Clip", "x _ hi", "a"), node("Clip", "a lo", "b"), node("Clip", "b")],
                      {"x": [20]}, "y", [const("lo", np.float32(-1)), const("hi", np.float32(1))]),
                text=["Clip(x; max=1)", "Clip(a; min=-1)", "y = Identity(b)"])


@case
def clip_with_computed_bounds():
    return Case(model([node("Clip", "x l h"), node("Clip", "x l k", "z")],
                      {"x": [20], "l": [], "h": []}, "y z", [const("k", np.float32(0.1))]),
                inputs={"l": np.array(0.3, np.float32), "h": np.array(0.2, np.float32)},
                text=["Max(x, l)", "Min("])


@case
def relu6():
    return Case(model([node("Relu6", "x")], {"x": [20]}), compare=False,
                text="y = Clip(x; min=0, max=6)")


@case
def dropout_and_cast_vanish():
    return Case(model([node("Relu", "x", "a"), node("Dropout", "a r t", "b m"),
                       node("Cast", "b", "c", to=F), node("Relu", "c")], {"x": [4]}, "y",
                      [const("r", np.float32(0.5)), const("t", np.bool_(False))], 13),
                text="y = Relu(a)", not_text=["Cast", "Dropout"])


each("dropout_opset_7", lambda: Case(model([node("Dropout", "x", ratio=0.3)], {"x": [4]},
                                           opset=7), text="y = Identity(x)"))
each("dropout_training", lambda: Case(
    model([node("Dropout", "x r t")], {"x": [4]}, "y", [const("r", np.float32(0.5)),
                                                        const("t", np.bool_(True))]),
    4, "training"))
each("dropout_mask", lambda: Case(
    model([node("Dropout", "x", "a m"), node("Not", "m", "n")], {"x": [4]}, "a n", opset=13),
    4, "output 1 of 'Dropout'"))

# ---- shapes ----

for opset, axis, shape in ((7, None, [2, 3]), (9, 1, [2, 3, 4]), (11, 2, [2, 3, 4]),
                           (11, -2, [2, 3, 4]), (12, 0, [2, 3]), (11, 1, [1, 7, 1, 1]),
                           (13, None, [2, 3, 4]), (13, 1, [2, 3, 4]), (21, -2, [2, 3, 4])):
    def softmax(opset=opset, axis=axis, shape=shape):
        attrs = {} if axis is None else {"axis": axis}
        return Case(model([node("Softmax", "x", **attrs), node("LogSoftmax", "x", "z", **attrs)],
                          {"x": shape}, "y z", opset=opset))
    each(f"softmax_{opset}_{axis}_{len(shape)}", softmax)


@case
def softmax_flattened_keeps_the_batch():
    return Case(model([node("Softmax", "x", axis=1)], {"x": ["N", 3, 4]}, opset=11),
                text=["shape=[N,3,4]"], dims={"N": 5})


for opset in (8, 11, 13, 18):
    def squeezes(opset=opset):
        if opset < 13:
            nodes = [node("Unsqueeze", "x", "a", axes=[0, 3]), node("Squeeze", "a", "b", axes=[0])]
            inits = []
        else:
            nodes = [node("Unsqueeze", "x k", "a"), node("Squeeze", "a j", "b")]
            inits = [ints("k", 0, -1), ints("j", 0)]
        nodes.append(node("Squeeze", "b"))
        return Case(model(nodes, {"x": [2, 3]}, "y", inits, opset), text="Squeeze(b; axes=[2])")
    each(f"squeeze_opset_{opset}", squeezes)

for opset in (8, 10, 13):
    def slices(opset=opset):
        if opset < 10:
            nodes = [node("Slice", "x", "a", starts=[1, 0], ends=[9223372036854775807, -1]),
                     node("Slice", "a", starts=[-2], ends=[1000], axes=[2])]
            inits = []
        else:
            nodes = [node("Slice", "x s e", "a"), node("Slice", "a t f k p")]
            inits = [ints("s", 1, 0), ints("e", 2**63 - 1, -1), ints("t", -1), ints("f", -2**63),
                     ints("k", 2), ints("p", -2)]
        return Case(model(nodes, {"x": [3, 4, 7]}, "y", inits, opset), text="ends=[2147483647,-1]")
    each(f"slice_opset_{opset}", slices)

for opset in (7, 11, 13, 18):
    def pads(opset=opset):
        if opset < 11:
            nodes, inits = [node("Pad", "x", pads=[0, 1, 2, 0], value=1.5)], []
        elif opset < 18:
            nodes = [node("Pad", "x p v")]
            inits = [ints("p", 0, 1, 2, 0), const("v", np.float32(1.5))]
        else:
            nodes = [node("Pad", "x p v a")]
            inits = [ints("p", 1, 0), const("v", np.float32(1.5)), ints("a", -1)]
        return Case(model(nodes, {"x": [3, 4]}, "y", inits, opset), text="value=1.5")
    each(f"pad_opset_{opset}", pads)


@case
def pad_by_infinity():
    """What is in front of pooling without padding of its own."""
    return Case(model([node("Pad", "x p v", "a"), node("MaxPool", "a", kernel_shape=[3, 3],
                                                       strides=[2, 2])], {"x": [1, 2, 6, 7]}, "y",
                      [ints("p", 0, 0, 0, 1, 0, 0, 1, 1), const("v", np.float32(-np.inf))], 13),
                text="value=-inf")


each("pad_by_no_number", lambda: Case(
    model([node("Pad", "x p v")], {"x": [3]}, "y", [ints("p", 0, 1), const("v", np.float32("nan"))],
          13), 4, "not a known number"))
each("pad_reflect", lambda: Case(model([node("Pad", "x", pads=[1, 1], mode="reflect")], {"x": [5]},
                                       opset=7), text="Pad(x; pads=[1,1], mode=reflect)"))
each("pad_mirror", lambda: Case(model([node("Pad", "x", pads=[1, 1], mode="mirror")], {"x": [5]},
                                      opset=7), 4, "mode 'mirror'"))

for opset in (9, 13, 18, 21):
    def reduces(opset=opset):
        old = opset < 18
        nodes = [node("ReduceMean", "x" if old else "x ax", "a", keepdims=0,
                      **({"axes": [1, 2]} if old else {})),
                 node("ReduceMax", "x", "b"),
                 node("ReduceMin", "x" if old else "x ay", "c", **({"axes": [-1]} if old else {})),
                 node("ReduceSum", "x" if opset < 13 else "x ay", "d", keepdims=0,
                      **({"axes": [-1]} if opset < 13 else {}))]
        return Case(model(nodes, {"x": [2, 3, 4]}, "a b c d", [ints("ax", 1, 2), ints("ay", -1)],
                          opset), text=["axes=[1,2], keepdims=0", "axes=[0,1,2], keepdims=1"])
    each(f"reduce_opset_{opset}", reduces)

each("reduce_noop", lambda: Case(model([node("ReduceSum", "x", noop_with_empty_axes=1)],
                                       {"x": [3]}, opset=13), text="y = Identity(x)"))

for opset in (1, 11, 13, 21):
    def places(opset=opset):
        more = {"select_last_index": 1} if opset >= 12 else {}
        nodes = [node("ArgMax", "x", "a"), node("ArgMin", "x", "b", axis=-1, keepdims=0),
                 node("ArgMax", "x", "c", axis=1, **more)]
        made = model(nodes, {"x": [2, 3, 4]}, "a b c", opset=opset)
        for out in made.graph.output:
            out.type.tensor_type.elem_type = onnx.TensorProto.INT64
        return Case(made,
                    text=["ArgMax(x; axis=0, keepdims=1, select_last_index=0)",
                          "ArgMin(x; axis=-1, keepdims=0, select_last_index=0)"])
    each(f"place_opset_{opset}", places)

for opset in (8, 11, 13, 18):
    def splits(opset=opset):
        inits = [ints("s", 1, 4)]
        if opset < 13:
            nodes = [node("Split", "x", "a b", axis=1, split=[1, 4])]
        else:
            nodes = [node("Split", "x s", "a b", axis=1)]
        more = {"num_outputs": 3} if opset >= 18 else {}
        size = 7 if opset >= 18 else 6
        nodes.append(node("Split", "z", "c d e", axis=0, **more))
        return Case(model(nodes, {"x": [2, 5], "z": [size, 2]}, "a b c d e", inits, opset),
                    text=["split=[1,4]", "num_outputs=3"])
    each(f"split_opset_{opset}", splits)


@case
def data_movement():
    return Case(model([node("Transpose", "x", "a", perm=[0, 2, 3, 1]), node("Transpose", "a", "b"),
                       node("Concat", "b b", "c", axis=-1), node("Flatten", "c", "d", axis=2),
                       node("Concat", "d", "e", axis=0), node("Expand", "e s", "y"),
                       node("DepthToSpace", "x", "f", blocksize=2, mode="CRD"),
                       node("SpaceToDepth", "f", "g", blocksize=2),
                       node("DepthToSpace", "x", "h", blocksize=2)],
                      {"x": [2, 8, 3, 4]}, "y g h", [ints("s", 2, 1, 1)], 13))


@case
def reshape_with_zero_and_minus_one():
    return Case(model([node("Reshape", "x s")], {"x": [2, 3, 4]}, "y", [ints("s", 0, -1)]),
                text="shape=[0,-1]")


each("reshape_allowzero", lambda: Case(
    model([node("Reshape", "x s", allowzero=1)], {"x": [2, 3]}, "y", [ints("s", 0, 3)], 14),
    4, "allowzero"))


@case
def gather_of_a_row_is_a_slice():
    return Case(model([node("Gather", "x i", "a", axis=1), node("Gather", "x j", "b", axis=2)],
                      {"x": [2, 3, 5]}, "a b", [const("i", np.int64(-1)), ints("j", 1, 2, 3)]),
                text=["Slice(x; starts=[2], ends=[3], axes=[1])", "Squeeze("])


# ---- convolution, pooling, normalisation, resizing ----

@case
def convolutions():
    return Case(model([node("Conv", "x w b", "a", strides=[2, 2], pads=[1, 1, 1, 1],
                            kernel_shape=[3, 3]),
                       node("Conv", "a v", "c", group=4, dilations=[2, 1], pads=[2, 1, 2, 1]),
                       node("ConvTranspose", "c t", "y", strides=[2, 2], output_padding=[1, 0])],
                      {"x": [1, 3, 9, 8]}, "y",
                      [weight("w", 4, 3, 3, 3), weight("b", 4), weight("v", 4, 1, 3, 3),
                       weight("t", 4, 2, 2, 3)]),
                text=["Conv(x, w, b; strides=2, pads=1)",
                      "pads=[2,1,2,1], dilations=[2,1], group=4",
                      "output_padding=[1,0]"])


@case
def convolutions_1d_3d():
    return Case(model([node("Conv", "x w", "a", pads=[1, 0], strides=[2]),
                       node("Conv", "z v", "b", pads=[1] * 6)],
                      {"x": [2, 3, 9], "z": [1, 2, 4, 4, 4]}, "a b",
                      [weight("w", 4, 3, 3), weight("v", 2, 2, 3, 3, 3)]))


for mode in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
    def auto(mode=mode):
        return Case(model([node("Conv", "x w", "a", strides=[2, 3], auto_pad=mode,
                                dilations=[1, 1 if mode[0] == "S" else 2]),
                           node("MaxPool", "x", "b", kernel_shape=[2, 3], strides=[2, 2],
                                auto_pad=mode),
                           node("AveragePool", "x", "c", kernel_shape=[4, 4], strides=[3, 3],
                                auto_pad=mode)],
                          {"x": [1, 2, 11, 12]}, "a b c", [weight("w", 3, 2, 4, 3)]),
                    not_text="auto_pad=")
    each(f"auto_pad_{mode}", auto)

for attrs in ({"output_shape": [10, 9]}, {"auto_pad": "SAME_UPPER", "output_shape": [8, 9]},
              {"output_shape": [8, 7], "output_padding": [1, 1]}):
    def transposed(attrs=attrs):
        return Case(model([node("ConvTranspose", "x w", strides=[2, 2], **attrs)],
                          {"x": [1, 2, 4, 4]}, "y", [weight("w", 2, 3, 3, 3)]),
                    not_text="output_shape=")
    each("conv_transpose_" + "_".join(f"{k}_{v}" for k, v in attrs.items()), transposed)


@case
def pools():
    return Case(model([node("MaxPool", "x", "a", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
                       node("AveragePool", "x", "b", kernel_shape=[3, 2], pads=[1, 0, 1, 1],
                            count_include_pad=1),
                       node("AveragePool", "x", "c", kernel_shape=[3, 3], strides=[2, 2],
                            pads=[1, 1, 1, 1]),
                       node("GlobalAveragePool", "x", "d"), node("GlobalMaxPool", "x", "e")],
                      {"x": [1, 2, 8, 8]}, "a b c d e", opset=12),
                text=["ceil_mode=1", "count_include_pad=1"])


for opset in (7, 9, 14, 15):
    def norm(opset=opset):
        inits = [weight(n, 3) for n in "sbm"] + [const("v", np.float32([1, 2, 0.5]))]
        attrs = {"spatial": 1} if opset == 7 else {}
        return Case(model([node("BatchNormalization", "x s b m v", epsilon=1e-3, momentum=0.8,
                                **attrs)], {"x": [2, 3, 4, 4]}, "y", inits, opset),
                    text="epsilon=0.001")
    each(f"batch_norm_opset_{opset}", norm)


@case
def lrn():
    return Case(model([node("LRN", "x", "i1", size=5, alpha=0.3, beta=0.6, bias=1.5),
                       node("LRN", "i1", "y", size=3, alpha=2.0)], {"x": [2, 7, 3, 4]}),
                text=["where j in -2:3, pad x 0", "where j in -1:2, pad i1 0", "sum(j) square(x["])


@case
def layer_norm_and_gelu():
    return Case(model([node("LayerNormalization", "x s b", "a", axis=-2, epsilon=1e-6),
                       node("LayerNormalization", "a t", "e"), node("Gelu", "e", "c"),
                       node("Gelu", "e", "d", approximate="tanh")], {"x": [2, 3, 4]}, "c d",
                      [weight("s", 3, 4), weight("b", 3, 4), weight("t", 4)], 20),
                text=["epsilon=1e-6", "approximate=tanh"])


@case
def layer_norm_statistics():
    return Case(model([node("LayerNormalization", "x s", "y mean inv", axis=1, epsilon=1e-3)],
                      {"x": [2, 3, 4]}, "y mean inv", [weight("s", 3, 4)], 17),
                text=["mean = ", "inv = Reciprocal("])


RESIZES = {
    "upsample_7": (7, node("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0]), []),
    "upsample_9": (9, node("Upsample", "x s", mode="linear"),
                   [const("s", np.float32([1, 1, 2, 2]))]),
    "resize_10": (10, node("Resize", "x s"), [const("s", np.float32([1, 1, 2, 2]))]),
    "resize_10_down": (10, node("Resize", "x s"), [const("s", np.float32([1, 1, 0.6, 0.6]))]),
    "resize_11": (11, node("Resize", "x r s", mode="linear",
                           coordinate_transformation_mode="align_corners"),
                  [const("r", np.float32([])), const("s", np.float32([1, 1, 1.5, 2.5]))]),
    "resize_13_sizes": (13, node("Resize", "x _ _ z", nearest_mode="ceil",
                                 coordinate_transformation_mode="asymmetric"),
                        [ints("z", 1, 2, 9, 7)]),
    "resize_18_axes": (18, node("Resize", "x _ s", axes=[3, 2], mode="linear"),
                       [const("s", np.float32([2, 1.5]))]),
    "resize_19_sizes_axes": (19, node("Resize", "x _ _ z", axes=[2, 3]), [ints("z", 8, 9)]),
    "resize_19_pytorch": (19, node("Resize", "x _ s", mode="linear",
                                   coordinate_transformation_mode="pytorch_half_pixel"),
                          [const("s", np.float32([1, 1, 2, 0.5]))]),
}
for key, (opset, made, inits) in RESIZES.items():
    each(key, lambda opset=opset, made=made, inits=inits: Case(
        model([made], {"x": [1, 2, 5, 4]}, "y", inits, opset)))
# ---- constants and folding ----

@case
def constants_in_every_form():
    tensor = const("t", np.float32([[1, 2], [3, 4]]))
    nodes = [node("Constant", "", "a", value=tensor), node("Constant", "", "b", value_float=0.5),
             node("Constant", "", "c", value_floats=[1.0, 2.0]),
             node("Constant", "", "i", value_int=2), node("Constant", "", "j", value_ints=[2, 2]),
             node("ConstantOfShape", "j", "z", value=const("v", np.float32([0.25]))),
             node("ConstantOfShape", "j", "one", value=const("v", np.float32([1]))),
             node("ConstantOfShape", "j", "zero"),
             node("Add", "x a", "d"), node("Mul", "d b", "e"), node("Add", "e c", "f"),
             node("Mul", "f z", "g"), node("Add", "g one", "h"), node("Add", "h zero", "k"),
             node("Reshape", "k j", "y")]
    return Case(model(nodes, {"x": [2, 2]}, opset=13),
                text=["= uniform(seed=0, lo=0.25, hi=0.25)", "= ones()", "= zeros()",
                      "shape=[2,2]"])


@case
def initializers_in_every_form():
    def typed(name, kind, field, values):
        t = TensorProto(name=name, data_type=kind, dims=[len(values)])
        getattr(t, field).extend(values)
        return t
    inits = [typed("f", F, "float_data", [1.5, -2]), typed("h", TensorProto.FLOAT16, "int32_data",
                                                           [0x3c00, 0xc100]),
             typed("d", TensorProto.DOUBLE, "double_data", [0.1, 3.0]),
             typed("s", I64, "int64_data", [2, 1]), typed("t", TensorProto.INT32, "int32_data",
                                                          [1, 2]),
             typed("b", TensorProto.BOOL, "int32_data", [1, 0])]
    nodes = [node("Add", "x f", "a"), node("Cast", "h", "hh", to=F), node("Mul", "a hh", "b2"),
             node("Cast", "d", "dd", to=F), node("Add", "b2 dd", "c"), node("Reshape", "c s", "e"),
             node("Cast", "t", "tt", to=I64), node("Reshape", "e tt", "g"),
             node("Where", "b f dd", "w"), node("Add", "g w", "y")]
    return Case(model(nodes, {"x": [2]}, "y", inits, 13))


@case
def double_initializer_becomes_f32():
    made = model([node("Add", "x d")], {"x": [2]}, "y", [const("d", np.array([0.1, 3.0]))])
    reference = model([node("Add", "x d")], {"x": [2]}, "y",
                      [const("d", np.float32([0.1, 3.0]))])
    return Case(made, text="weight d: f32[2]", reference=reference)


@case
def shape_of_an_input_keeps_the_batch():
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n k", "u"),
             node("Concat", "u m", "t", axis=0), node("Reshape", "x t", "y")]
    return Case(model(nodes, {"x": ["batch", 3, 4]}, "y",
                      [const("zero", np.int64(0)), ints("k", 0), ints("m", -1)], 13),
                text=["shape=[batch,-1]", "dim batch = 1"], dims={"batch": 4})


@case
def shape_of_a_computed_value_keeps_the_batch():
    nodes = [node("Conv", "x w", "c", strides=[2, 2]), node("Shape", "c", "s"),
             node("Slice", "s b e", "h"), node("Concat", "h m", "t", axis=0),
             node("Reshape", "c t", "y"),
             node("Gather", "s b0", "n"), node("Mul", "n four", "n4"), node("Div", "n4 two", "n2"),
             node("Unsqueeze", "n2 b", "u"), node("Concat", "u m", "v", axis=0),
             node("Reshape", "c v", "z")]
    return Case(model(nodes, {"x": ["N", 3, 9, 9]}, "y z",
                      [weight("w", 4, 3, 3, 3), ints("b", 0), ints("e", 1), ints("m", -1),
                       const("b0", np.int64(0)), const("four", np.int64(4)),
                       const("two", np.int64(2))], 13),
                text=["shape=[N,-1]", "N*4"], dims={"N": 3})


@case
def expand_by_where_and_equal():
    nodes = [node("Shape", "x", "s"), node("ConstantOfShape", "r", "o",
                                           value=const("v", np.int64([1]))),
             node("Equal", "t minus", "q"), node("Where", "q o t", "d"),
             node("Concat", "n d", "e", axis=0), node("Expand", "w e", "a"), node("Add", "x a")]
    inits = [ints("r", 2), ints("t", 3, -1), ints("minus", -1), weight("w", 1, 3, 1),
             ints("n", 2)]
    return Case(model(nodes, {"x": [2, 3, 4]}, "y", inits, 13))


@case
def arithmetic_of_constants():
    nodes = [node("Range", "a b c", "r"), node("Cast", "r", "f", to=F), node("Mul", "f h", "g"),
             node("Floor", "g", "k"), node("Sqrt", "k", "l"), node("Add", "x l", "m"),
             node("ReduceProd", "s", "p", keepdims=1), node("Reshape", "m p", "n"),
             node("Size", "x", "z"), node("Mod", "z three", "zz"), node("Cast", "zz", "zf", to=F),
             node("Add", "n zf", "y")]
    inits = [const("a", np.int64(0)), const("b", np.int64(6)), const("c", np.int64(1)),
             const("h", np.float32(1.5)), ints("s", 2, 3), const("three", np.int64(4))]
    return Case(model(nodes, {"x": [6]}, "y", inits, 13))


@case
def movement_of_constants():
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), node("Slice", "t s e a p", "u"),
             node("Concat", "u u", "c", axis=1), node("Split", "c", "d f", axis=0),
             node("Gather", "d g", "h", axis=1), node("Expand", "h k", "i"),
             node("Squeeze", "i z", "j"), node("Add", "x j", "l"), node("Add", "l f2", "y"),
             node("Flatten", "f", "f1", axis=0), node("ReduceMax", "q", "q1", keepdims=0),
             node("Slice", "f1 zero q2 one", "f2"), node("Unsqueeze", "q1 zero", "q2")]
    order = [0, 1, 2, 3, 9, 10, 12, 11, 4, 5, 6, 7, 8]
    inits = [weight("w", 4, 6), ints("s", -1), ints("e", -2**63), ints("a", 0), ints("p", -1),
             ints("g", 3, 0, -1, 1), ints("k", 1, 3, 4), ints("z", 0), ints("q", 1, 4, 2),
             ints("zero", 0), ints("one", 1)]
    return Case(model([nodes[i] for i in order], {"x": [3, 4]}, "y", inits, 13))


@case
def non_zero_folds():
    nodes = [node("ConstantOfShape", "n", "o", value=const("v", np.int64([1]))),
             node("NonZero", "o", "z"), node("Transpose", "z", "t", perm=[1, 0]),
             node("Squeeze", "t k", "i"), node("Cast", "i", "f", to=F), node("Add", "x f")]
    return Case(model(nodes, {"x": [5]}, "y", [ints("n", 5), ints("k", 1)], 13))


@case
def constant_output():
    return Case(model([node("Relu", "x", "y"), node("Add", "w w", "c")], {"x": [3]}, "y c w",
                      [weight("w", 3)], 13), text=["w = Identity(w.value)", "c = Identity("])


@case
def output_that_is_an_input():
    return Case(model([node("Relu", "x", "y")], {"x": [3]}, "y x"), 4,
                'output "x" is an input: nothing computes it')


@case
def output_that_is_used_and_aliased():
    return Case(model([node("Relu", "x", "a"), node("Identity", "a", "b"), node("Neg", "b", "c")],
                      {"x": [3]}, "a b c"), text=["b = Identity(a)", "c = Neg(b)"])


@case
def what_is_not_used_is_dropped():
    nodes = [node("Relu", "x"), node("Mul", "x big", "unused"), node("Frobnicate", "x", "worse")]
    return Case(model(nodes, {"x": [3]}, "y", [weight("big", 3)]), not_text=["big", "unused"],
                compare=False)


@case
def initializer_declared_as_input():
    made = model([node("Add", "x w")], {"x": [3], "w": [3]}, "y", [weight("w", 3)])
    return Case(made, text="weight w")


@case
def const_option():
    made = model([node("Reshape", "x s", "a"), node("Add", "a w")],
                 {"x": [6], "s": value("s", [2], I64), "w": [3]})
    return Case(made, args=["--const", "s=s.npy", "--const", "w=w.npy"],
                files={"s.npy": np.array([2, 3]), "w.npy": np.float32([1, 2, 3])},
                inputs={"s": np.array([2, 3]), "w": np.float32([1, 2, 3])}, text="shape=[2,3]")


each("const_option_without_target", lambda: Case(
    model([node("Relu", "x")], {"x": [1]}), 3, 'no input or initializer "zz"',
    args=["--const", "zz=s.npy"], files={"s.npy": np.array([2, 3])}))

for _name, _shape, _words in (
        ("rank", [1, 6], 'the values have rank 1, the input has 2'),
        ("size", [5], 'axis 0 of the values has size 6, of the input 5')):
    each("const_option_" + _name, lambda shape=_shape, words=_words: Case(
        model([node("Add", "x w")], {"x": [6], "w": shape}), 3, '--const "w": ' + words,
        args=["--const", "w=w.npy"], files={"w.npy": np.float32([1, 2, 3, 4, 5, 6])}))

# ---- dims ----

each("dim_pinned", lambda: Case(model([node("Relu", "x")], {"x": ["N", "seq len", 4]}),
                                args=["--dim", "seq len=7", "--dim=N=2"],
                                text=["dim N = 2, seq_len = 7", "f32[N,seq_len,4]"]))
each("dim_missing", lambda: Case(model([node("Relu", "x")], {"x": ["N", "H", None]}), 3,
                                 "give --dim H=N --dim x_2=N"))
each("dim_unknown", lambda: Case(model([node("Relu", "x")], {"x": ["N", 3]}), 2, "it has N",
                                 args=["--dim", "M=3"]))
each("dim_of_none", lambda: Case(model([node("Relu", "x")], {"x": [2, 3]}), 2,
                                 "no such dimension: all its sizes are numbers",
                                 args=["--dim", "M=3"]))
each("dim_anonymous", lambda: Case(model([node("Relu", "x")], {"x": ["?", "?"]}),
                                   args=["--dim", "x_1=5"], text="f32[x_0,x_1]"))
each("dim_that_is_a_tensor_too", lambda: Case(
    model([node("Relu", "N", "where")], {"N": ["N", "where"]}, "where"),
    args=["--dim", "where=3"], text=["f32[N_,where_]"]))

# ---- functions ----

def function(name, inputs, outputs, nodes, attrs=(), defaults=(), opset=17, domain="local"):
    return helper.make_function(domain, name, inputs.split(), outputs.split(), nodes,
                                [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)],
                                attributes=list(attrs), attribute_protos=list(defaults))


def ref(attr, name, kind):
    made = onnx.AttributeProto(name=attr, ref_attr_name=name, type=kind)
    return made


@case
def functions_are_inlined():
    leaky = node("LeakyRelu", "t", "u")
    leaky.attribute.append(ref("alpha", "slope", onnx.AttributeProto.FLOAT))
    inner = function("Inner", "a b", "u", [node("Add", "a b", "t"), leaky], ["slope"])
    outer = function("Outer", "p q r", "v w",
                     [helper.make_node("Inner", ["p", "q"], ["t"], domain="local", slope=0.5),
                      node("Relu", "t", "v"), node("Neg", "t", "w")])
    nodes = [helper.make_node("Outer", ["x", "k"], ["t", "y"], "first", domain="local"),
             helper.make_node("Outer", ["t", "y"], ["u", ""], "second", domain="local"),
             helper.make_node("Inner", ["u", "k"], ["z"], domain="local", slope=0.25)]
    return Case(model(nodes, {"x": [3]}, "y z", [weight("k", 3)], functions=[inner, outer],
                      extra=["local"]), text=['"first/t/t"', "alpha=0.25"])


@case
def function_with_default_attribute_and_own_opset():
    leaky = node("LeakyRelu", "a", "t")
    leaky.attribute.append(ref("alpha", "slope", onnx.AttributeProto.FLOAT))
    f = function("F", "a", "y", [leaky, node("Clip", "t", "y", max=0.5)], [],
                 [helper.make_attribute("slope", 0.125)], opset=10)
    nodes = [helper.make_node("F", ["x"], ["a"], domain="local"),
             helper.make_node("F", ["a"], ["y"], domain="local", slope=2.0)]
    return Case(model(nodes, {"x": [9]}, "y", functions=[f], extra=["local"]),
                text=["alpha=0.125", "alpha=2"], compare=False)


@case
def function_with_omitted_input():
    f = function("F", "a lo hi", "y", [node("Clip", "a lo hi", "y")])
    nodes = [helper.make_node("F", ["x", "", "h"], ["y"], domain="local")]
    return Case(model(nodes, {"x": [9]}, "y", [const("h", np.float32(0.2))], functions=[f],
                      extra=["local"]), text="Clip(x; max=0.2)", compare=False)


@case
def recursive_function():
    f = function("F", "a", "y", [helper.make_node("F", ["a"], ["y"], domain="local")])
    return Case(model([helper.make_node("F", ["x"], ["y"], domain="local")], {"x": [1]},
                      functions=[f], extra=["local"]), 3, "calls itself")


@case
def functions_that_double():
    """Forty functions that call the next one twice: 2^40 nodes when unrolled."""
    made = []
    for i in range(30):
        body = [helper.make_node(f"F{i + 1}", ["a"], ["t"], domain="local"),
                helper.make_node(f"F{i + 1}", ["t"], ["y"], domain="local")]
        made.append(function(f"F{i}", "a", "y", body if i < 29 else [node("Neg", "a")]))
    return Case(model([helper.make_node("F0", ["x"], ["y"], domain="local")], {"x": [1]},
                      functions=made, extra=["local"]), 3, "more than")


# ---- refusals ----

@case
def all_unsupported_are_listed():
    nodes = [node("Bernoulli", "x", "a", name="one"), node("Seluu", "a", "b", name="two"),
             node("Relu", "b", "c"), node("BitCast", "c", "d", name="three"),
             node("BitCast", "x", "e", name="four"), node("Reluu", "x", "f", name="five"),
             helper.make_node("Gelu", ["f"], ["y"], "six", domain="com.microsoft")]
    nodes += [node("Add", "d e", "g"), node("Add", "g y", "z")]
    return Case(model(nodes, {"x": [2, 2]}, "z", extra=["com.microsoft"]), 4,
                ["node \"one\": unsupported operator 'Bernoulli' (domain '', opset 17): it makes "
                 "random numbers",
                 "unsupported operator 'Seluu'", "node \"three\"", "(and 1 more node)",
                 "unsupported operator 'Reluu' (domain '', opset 17); nearest is 'Relu'",
                 "unsupported operator 'Gelu' (domain 'com.microsoft', opset 1): of "
                 "onnxruntime's own operators those of quantised"],
                not_text=['"four"', "Traceback"])


each("unknown_attribute", lambda: Case(model([node("Relu", "x", blur=3)], {"x": [1]}), 4,
                                       "unsupported attribute 'blur' of operator 'Relu'"))
each("attribute_of_wrong_type", lambda: Case(
    model([node("LeakyRelu", "x", alpha=[1, 2])], {"x": [1]}), 3, "'alpha' has the wrong type"))
each("gather_at_run_time", lambda: Case(
    model([node("Gather", "w x")], {"x": value("x", [2], I64)}, "y", [weight("w", 4, 3)]),
    inputs={"x": np.array([3, 0])}, text="y = Gather(w, x; axis=0)"))
each("gather_of_known", lambda: Case(
    model([node("Gather", "x i", "a", axis=1), node("GatherElements", "x k", "b", axis=-1)],
          {"x": [4, 3]}, "a b", [const("i", np.array([[2, -1], [-3, 0]])),
                                 const("k", np.array([[-1, 0], [1, -2]], np.int32))]),
    text=["x[ii0,-2*ii1+2]", "GatherElements(x, b.positions; axis=1)"]))
each("gather_beyond", lambda: Case(
    model([node("Gather", "x i")], {"x": [4, 3]}, "y", [ints("i", 1, 4)]), 3, "axis of size 4"))
each("constant_of_shape_of_a_batch", lambda: Case(
    model([node("Shape", "x", "s"), node("Gather", "s z", "n"),
           node("Concat", "n two", "t", axis=0),
           node("ConstantOfShape", "t", "o", value=const("v", [0.5], np.float32)),
           node("Expand", "w t", "u"), node("Concat", "o x u", "y", axis=1)],
          {"x": ["N", 3]}, "y", [ints("z", 0), ints("two", 2), const("w", [[1.5, 2]], np.float32)]),
    text=["o = Expand(o.value; shape=[N,2])", "u = Expand(w; shape=[N,2])"], dims={"N": 4}))
each("computed_shape", lambda: Case(
    model([node("Reshape", "x s")], {"x": [6], "s": value("s", [2], I64)}), 4,
    "input 'shape' of 'Reshape' is computed at run time"))
each("integer_arithmetic", lambda: Case(
    model([node("Add", "x x", "a"), node("Mul", "a x", "b"), node("Sub", "b a", "c"),
           node("Cast", "c", "y", to=F)], {"x": value("x", [2], I64)}), text="a = Add(x, x)"))
each("integers_in_a_function", lambda: Case(
    model([node("Exp", "x")], {"x": value("x", [2], I64)}), 4, "values of type i64"))
each("cast_to_uint16", lambda: Case(
    model([node("Cast", "x", to=TensorProto.UINT16)], {"x": [2]}), 4, "Cast from f32 to uint16"))
each("cast_like", lambda: Case(
    model([node("Cast", "x", "i", to=I64), node("CastLike", "i x", "a"), node("Add", "a x")],
          {"x": [2]}), inputs={"x": np.array([2.5, -3.5], np.float32)},
    text="a = Cast(i; to=f32)"))
each("cast_to_double", lambda: Case(
    model([node("Cast", "x", "a", to=TensorProto.DOUBLE), node("Sqrt", "a", "b"),
           node("Cast", "b", to=F)], {"x": [2]}), inputs={"x": np.array([2, 3], np.float32)},
    text="b = Sqrt(x)"))
each("computed_from_doubles", lambda: Case(
    model([node("Pow", "two i", "a"), node("Pow", "a j", "b"), node("Cast", "b", to=F)],
          {"i": value("i", [2], I64), "j": value("j", [1], I64)},
          inits=[const("two", np.float64([2, 3]))]),
    inputs={"i": np.array([2, 3]), "j": np.array([2])}, text=["to=f32", "b = Pow("]))
each("string_input", lambda: Case(
    model([node("Identity", "x")], {"x": value("x", [2], TensorProto.STRING)}), 4, "string"))
each("cycle", lambda: Case(
    model([node("Add", "x b", "a"), node("Relu", "a", "b")], {"x": [1]}, "b"), 3,
    'input "b" is not defined'))
each("undefined_input", lambda: Case(model([node("Add", "x nope")], {"x": [1]}), 3, '"nope"'))
each("undefined_output", lambda: Case(model([node("Relu", "x", "a")], {"x": [1]}), 3,
                                      'output "y" is not defined'))
each("duplicate_value", lambda: Case(
    model([node("Relu", "x"), node("Neg", "x"), node("Abs", "y", "z")], {"x": [1]}, "z"), 3,
    "defined twice"))
each("too_few_inputs", lambda: Case(model([node("Add", "x")], {"x": [1]}), 3, "with 1 inputs"))
each("no_outputs", lambda: Case(model([node("Relu", "x")], {"x": [1]}, ""), 3, "no outputs"))
each("huge_dim", lambda: Case(model([node("Relu", "x")], {"x": [2**40]}), 4, "has size"))
each("empty_input", lambda: Case(model([node("Relu", "x")], {"x": [0, 3]}), 4, "has size 0"))
each("rank_11", lambda: Case(model([node("Relu", "x")], {"x": [1] * 11}), 4, "too many axes"))
each("huge_fold", lambda: Case(
    model([node("Range", "a b c", "r"), node("Cast", "r", "f", to=F), node("Add", "x f")],
          {"x": [1]}, "y", [const("a", np.int64(0)), const("b", np.int64(2**40)),
                            const("c", np.int64(1))]), 3, "too many elements"))
each("long_name", lambda: Case(model([node("Relu", "x", "y" * 2000)], {"x": [1]}, "y" * 2000), 3,
                               "longer than 1000 bytes"))


# ---- initializers that lie ----

def lying(change, opset=13):
    w = weight("w", 2, 3)
    change(w)
    return model([node("Add", "x w")], {"x": [2, 3]}, "y", [w], opset)


def set_dims(*dims):
    def change(w):
        del w.dims[:]
        w.dims.extend(dims)
    return change


each("raw_data_too_short", lambda: Case(lying(set_dims(2, 4)), 3, "24 bytes of raw data"))
each("dims_overflow", lambda: Case(lying(set_dims(2**31 - 1, 2**31 - 1, 2**31 - 1)), 3, "too big"))
each("dims_negative", lambda: Case(lying(set_dims(-2, -3)), 3, "size -2"))
each("data_twice", lambda: Case(lying(lambda w: w.float_data.extend([1.0] * 6)), 3, "twice"))


def no_data(w):
    w.ClearField("raw_data")


each("no_data", lambda: Case(lying(no_data), 3, "0 elements of data"))


def external(**entries):
    def change(w):
        w.ClearField("raw_data")
        w.data_location = TensorProto.EXTERNAL
        for key, text in entries.items():
            w.external_data.add(key=key, value=text)
    return change


DATA = np.arange(12, dtype=np.float32)
each("external_data", lambda: Case(lying(external(location="d.bin", offset="16", length="24")),
                                   files={"d.bin": DATA.tobytes()}, text="weight w"))
each("external_data_in_folder", lambda: Case(lying(external(location="./sub/d.bin")),
                                             files={"sub/d.bin": DATA.tobytes()}))
# An output may not take the place of a data file or of a --const's values.
for path in "./d.bin", "sub/../d.bin", "link.bin":
    each("external_overwritten_" + path, lambda path=path: Case(
        lying(external(location="d.bin", offset="16", length="24")), 2, "holds data of the model",
        args=["--weights", path],
        files={"d.bin": DATA.tobytes(), "sub/e.bin": b"", "link.bin": ("link", "d.bin")}))
each("const_overwritten", lambda: Case(lying(lambda w: None), 2, "is read by --const",
                                       args=["--const", "x=x.npy", "--weights", "./x.npy"],
                                       files={"x.npy": DATA}))
TRAPS = {
    "up": ("../d.bin", {}, "not inside"), "absolute": ("/etc/passwd", {}, "not inside"),
    "inner_up": ("sub/../../d.bin", {}, "not inside"), "empty": ("", {}, "not inside"),
    "missing": ("nothing.bin", {}, "no data file"), "directory": ("sub", {}, "not a regular"),
    "link_out": ("link.bin", {}, "leads out"), "short": ("d.bin", {"offset": "40"}, "ends behind"),
    "wrong_length": ("d.bin", {"length": "23"}, "external length 23"),
    "overflow": ("d.bin", {"offset": "18446744073709551615"}, "bad offset"),
    "big_offset": ("d.bin", {"offset": "99999999999999999"}, "ends behind"),
    "negative": ("d.bin", {"offset": "-4"}, "bad offset"),
}
for key, (location, more, words) in TRAPS.items():
    each("external_" + key, lambda location=location, more=more, words=words: Case(
        lying(external(location=location, **more)), 3, words,
        files={"d.bin": DATA.tobytes(), "sub/e.bin": b"", "link.bin": ("link", "/etc/passwd")}))
