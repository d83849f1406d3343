"""Cases of quantised exports whose operators work on integers: those of the standard and those of
onnxruntime's own domain. Results are a step beside its where the case allows it."""
import numpy as np
from onnx import TensorProto, numpy_helper

from cases import RNG, Case, case, const, each, model, node, value
from quantised import numbers

MS = "com.microsoft"
U8, I8, I32, F = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32, TensorProto.FLOAT
DTYPES = {U8: np.uint8, I8: np.int8}


def made(nodes, inputs, outputs, inits, kinds, **more):
    """outputs: names; kinds: their types."""
    m = model(nodes, inputs, outputs, inits, extra=[MS], **more)
    for out, kind in zip(m.graph.output, kinds):
        out.type.tensor_type.elem_type = kind
    return m


def all_of(shape, kind, name="x"):
    """An input of integers of the whole range."""
    info = np.iinfo(DTYPES[kind])
    return {name: RNG.integers(info.min, info.max + 1, shape).astype(DTYPES[kind])}


def grid(name, kind=U8, scale=.02, zero=3):
    return [const(name + "s", np.float32(scale)), const(name + "z", np.array(zero, DTYPES[kind]))]


def of(kind, *names):
    return {n: value(n, s, kind) for n, s in names}


# ---- products ----

def matmul_integer(a=U8, b=I8, zeros="", inits=(), shape=(3, 20), weight=(20, 5)):
    return Case(made([node("MatMulInteger", "x w " + zeros, "y")], of(a, ("x", shape)), "y",
                     [numbers("w", weight, DTYPES[b]), *inits], [I32]),
                inputs=all_of(shape, a), tolerance=0)


for kinds in ((U8, U8), (U8, I8), (I8, I8), (I8, U8)):
    each("integers_matmul_%d_%d" % kinds, lambda k=kinds: matmul_integer(*k))
    each("integers_matmul_zeros_%d_%d" % kinds, lambda k=kinds: matmul_integer(
        *k, "az bz", [const("az", np.array(77, DTYPES[k[0]])),
                      const("bz", np.array([9], DTYPES[k[1]]))]))
each("integers_matmul_of_columns", lambda: matmul_integer(zeros="_ bz", inits=[
    const("bz", np.int8([3, -1, 0, 5, 7]))]))
each("integers_matmul_of_batches", lambda: matmul_integer(
    shape=(2, 3, 20), weight=(2, 20, 5), zeros="az bz", inits=[
        const("az", np.uint8(3)), numbers("bz", (2, 1, 5), np.int8)]))
each("integers_matmul_vector", lambda: matmul_integer(shape=(20,), zeros="az",
                                                      inits=[const("az", np.uint8(128))]))


@case
def integers_matmul_as_floats():
    """What exporters write behind: no integers are made on the way."""
    return Case(made([node("MatMulInteger", "x w", "i"), node("Cast", "i", "f", to=F),
                      node("Mul", "f s", "m"), node("Add", "m b", "y")], of(U8, ("x", [3, 20])),
                     "y", [numbers("w", (20, 5), np.int8), const("s", np.float32(.01)),
                           const("b", np.float32([1, 2, 3, 4, 5]))], [F]),
                inputs=all_of([3, 20], U8), not_text=["Round", "to=i32"])


@case
def integers_matmul_of_inputs():
    x = {**all_of([2, 3, 7], U8, "a"), "b": RNG.integers(-64, 64, [7, 4]).astype(np.int8)}
    return Case(made([node("MatMulInteger", "a b az bz", "i"), node("Add", "i c", "y")], {
        **of(U8, ("a", [2, 3, 7]), ("az", [])), **of(I8, ("b", [7, 4]), ("bz", [4]))}, "y",
        [const("c", np.int32([1, 2, 3, 4]))], [I32]), tolerance=0,
        inputs={**x, "az": np.array(131, np.uint8), "bz": np.int8([1, -5, 0, 90])})


@case
def integers_matmul_beyond():
    """Sums that f32 may round are said."""
    return Case(made([node("MatMulInteger", "x w", "y", name="long")], of(U8, ("x", [1, 900])), "y",
                     [const("w", np.full((900, 2), 127, np.int8))], [I32]),
                inputs={"x": np.full((1, 900), 2, np.uint8)}, tolerance=0,
                said="note: sums of products of 8-bit integers are exact up to 2^24, and may pass "
                     "it: node \"long\"")


def qlinear_matmul(a, b, y, bs=np.float32(.01), bz=None, weight=(20, 5), shape=(3, 20), **more):
    bz = np.array(5, DTYPES[b]) if bz is None else bz
    return Case(made([node("QLinearMatMul", "x as az w bs bz ys yz", "y")], of(a, ("x", shape)),
                     "y", [numbers("w", weight, DTYPES[b]), const("bs", bs), const("bz", bz),
                           *grid("a", a, .015, 101), *grid("y", y, .37, 7)], [y], **more),
                inputs=all_of(shape, a), tolerance=0)


for kinds in ((U8, U8, U8), (U8, I8, U8), (I8, I8, I8)):
    each("integers_qlinear_matmul_%d_%d_%d" % kinds, lambda k=kinds: qlinear_matmul(*k))
each("integers_qlinear_matmul_columns", lambda: qlinear_matmul(
    U8, I8, U8, np.float32([.01, .03, .002, .01, .02]), np.int8([0, 4, 2, -3, 1])))


def conv_integer(x=U8, w=U8, zeros="", inits=(), shape=(2, 3, 7, 6), **attrs):
    group = attrs.get("group", 1)
    return Case(made([node("ConvInteger", "x w " + zeros, "y", **attrs)], of(x, ("x", shape)), "y",
                     [numbers("w", (6, 3 // group, 3, 2), DTYPES[w]), *inits], [I32]),
                inputs=all_of(shape, x), tolerance=0)


each("integers_conv", conv_integer)
each("integers_conv_zeros", lambda: conv_integer(zeros="xz wz", pads=[1, 0, 1, 1], strides=[2, 1],
                                                 inits=[const("xz", np.uint8(99)),
                                                        const("wz", np.uint8(120))]))
each("integers_conv_of_groups", lambda: conv_integer(zeros="xz", pads=[2] * 4, dilations=[2, 2],
                                                     group=3, inits=[const("xz", np.uint8(7))]))
each("integers_conv_same", lambda: conv_integer(zeros="xz", auto_pad="SAME_UPPER",
                                                inits=[const("xz", np.uint8([7]))]))


def qlinear_conv(x=U8, w=I8, y=U8, ws=np.float32(.004), wz=None, bias=True, shape=(1, 3, 8, 8),
                 **attrs):
    wz = np.array(0, DTYPES[w]) if wz is None else wz
    kernel = (8, 3 // attrs.get("group", 1), 3, 3)[:len(shape)]
    return Case(made([node("QLinearConv", "x as az w ws wz ys yz" + " b" * bias, "y", **attrs)],
                     of(x, ("x", shape)), "y",
                     [numbers("w", kernel, DTYPES[w]), const("ws", ws), const("wz", wz),
                      const("b", RNG.integers(-9000, 9000, 8).astype(np.int32)),
                      *grid("a", x, .02, 120), *grid("y", y, .07, 11)], [y]),
                inputs=all_of(shape, x), tolerance=0)


CHANNELS = np.float32([.004, .003, .01, .001, .005, .0042, .006, .002])
for kinds in ((U8, U8, U8), (U8, I8, U8), (I8, I8, I8)):
    each("integers_qlinear_conv_%d_%d_%d" % kinds, lambda k=kinds: qlinear_conv(*k, pads=[1] * 4))
each("integers_qlinear_conv_channels", lambda: qlinear_conv(
    ws=CHANNELS, wz=np.zeros(8, np.int8), strides=[2, 2], pads=[1, 1, 0, 0]))
each("integers_qlinear_conv_line", lambda: qlinear_conv(bias=False, shape=(2, 3, 9), pads=[1, 1]))


@case
def integers_qlinear_conv_at_run_time():
    """Scales and zero points as inputs."""
    shape, rest = [1, 3, 6, 6], [("as", []), ("ws", [8]), ("ys", [1])]
    ints = [("x", shape), ("az", []), ("yz", [])]
    x = {**all_of(shape, U8), "as": np.float32(.02), "ws": CHANNELS, "ys": np.float32([.5]),
         "az": np.uint8(3), "yz": np.uint8(120)}
    return Case(made([node("QLinearConv", "x as az w ws wz ys yz", "y")],
                     {**of(U8, *ints), **of(F, *rest)}, "y",
                     [numbers("w", (8, 3, 3, 3), np.int8), const("wz", np.zeros(8, np.int8))],
                     [U8]), inputs={k: np.asarray(v) for k, v in x.items()}, steps=1)


@case
def integers_through_a_network():
    """Zero points that are added and taken off again are not written."""
    nodes = [node("QuantizeLinear", "x as az", "q"),
             node("QLinearConv", "q as az w ws wz as az", "a", pads=[1] * 4),
             node("QLinearConv", "a as az v ws wz as az", "b", pads=[1] * 4),
             node("QLinearAdd", "a as az b as az as az", "c", domain=MS),
             node("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
             node("QLinearGlobalAveragePool", "d as az as az", "e", domain=MS, channels_last=0),
             node("Flatten", "e", "f"),
             node("QLinearMatMul", "f as az m ws wz as az", "g"),
             node("DequantizeLinear", "g as az", "y")]
    return Case(made(nodes, {"x": ["N", 3, 8, 8]}, "y", [
        numbers("w", (8, 3, 3, 3), np.int8), numbers("v", (8, 8, 3, 3), np.int8),
        numbers("m", (8, 5), np.int8), *grid("a", U8, .05, 111), *grid("w", I8, .004, 0)], [F]),
        dims={"N": 3}, text=["b.sums = Conv(a.whole, v.whole"], tolerance=.11)


# ---- DynamicQuantizeLinear ----

def dynamic(x):
    x = np.float32(x)
    return Case(made([node("DynamicQuantizeLinear", "x", "y s z")], {"x": list(x.shape)}, "y s z",
                     [], [U8, F, U8]), inputs={"x": x}, tolerance=1e-7)


each("integers_dynamic", lambda: dynamic(RNG.normal(size=(3, 4, 5))))
each("integers_dynamic_above_zero", lambda: dynamic([[.5, 1.5, 2.5, 3]]))
each("integers_dynamic_below_zero", lambda: dynamic([-.5, -1.5, -2.5]))
each("integers_dynamic_of_zeros", lambda: dynamic([[0, 0]]))


@case
def integers_dynamic_product():
    """As onnxruntime's dynamic quantisation writes it."""
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("Mul", "s ws", "p"),
             node("MatMulInteger", "q w z wz", "i"), node("Cast", "i", "f", to=F),
             node("Mul", "f p", "m"), node("Add", "m b", "y")]
    return Case(made(nodes, {"x": ["N", 16]}, "y", [
        numbers("w", (16, 4), np.uint8), const("ws", np.float32(.01)), const("wz", np.uint8(130)),
        const("b", np.float32([1, 2, 3, 4]))], [F]), dims={"N": 5}, not_text="to=i32")


@case
def integers_dynamic_dequantised():
    return Case(made([node("DynamicQuantizeLinear", "x", "q s z"), node("Reshape", "q r", "v"),
                      node("DequantizeLinear", "v s z", "y")], {"x": [3, 8]}, "y",
                     [const("r", np.int64([4, 6]))], [F]))


# ---- onnxruntime's own ----

def own(op, names, inits=(), x=U8, y=U8, shape=(2, 3, 6, 6), inputs=None, more=(), **attrs):
    kinds = dict(of(x, ("x", shape), *more))
    given = {k: v for i in kinds.values() for k, v in all_of(
        [d.dim_value for d in i.type.tensor_type.shape.dim], x, i.name).items()}
    return Case(made([node(op, names, "y", domain=MS, **attrs)], kinds, "y", [
        *grid("a", x, .0313, 100), *grid("b", x, .0117, 17), *grid("y", y, .0407, 55),
        *inits], [y]),
        inputs=inputs or given, steps=1)


OTHER = [("x2", (3, 1, 6))]
for kind in (U8, I8):
    for op in ("QLinearAdd", "QLinearMul"):
        each(f"integers_{op}_{kind}", lambda op=op, k=kind: own(
            op, "x as az x2 bs bz ys yz", x=k, y=k, more=OTHER))
        each(f"integers_{op}_of_weight_{kind}", lambda op=op, k=kind: own(
            op, "x as az w bs bz ys yz", [numbers("w", (6,), DTYPES[k])], x=k, y=k))
    each(f"integers_sigmoid_{kind}", lambda k=kind: own(
        "QLinearSigmoid", "x as az ys yz", x=k, y=k))
    each(f"integers_leaky_{kind}", lambda k=kind: own(
        "QLinearLeakyRelu", "x as az ys yz", x=k, y=k, alpha=.2))
    each(f"integers_concat_{kind}", lambda k=kind: own(
        "QLinearConcat", "ys yz x as az x2 bs bz", x=k, y=k, more=[("x2", (2, 1, 6, 6))], axis=1))
    each(f"integers_average_{kind}", lambda k=kind: own(
        "QLinearAveragePool", "x as az ys yz", x=k, y=k, kernel_shape=[3, 2], strides=[2, 1],
        pads=[1, 0, 1, 1]))
    each(f"integers_global_average_{kind}", lambda k=kind: own(
        "QLinearGlobalAveragePool", "x as az ys yz", x=k, y=k, channels_last=0))
    each(f"integers_softmax_{kind}", lambda k=kind: own(
        "QLinearSoftmax", "x as az ys yz", x=k, y=k, axis=-1, opset=13, shape=(2, 3, 9)))
each("integers_add_without_zeros", lambda: own("QLinearAdd", "x as az x2 bs bz ys", more=OTHER))
each("integers_softmax_of_matrix", lambda: own("QLinearSoftmax", "x as az ys yz", axis=1, opset=11,
                                               shape=(2, 3, 9)))


def where():
    kinds = {**of(TensorProto.BOOL, ("p", [3, 1])), **of(U8, ("x", [2, 3, 4]), ("x2", [3, 4]))}
    x = {**all_of([2, 3, 4], U8), **all_of([3, 4], U8, "x2"),
         "p": np.array([[True], [False], [True]])}
    return Case(made([node("QLinearWhere", "p x as az x2 bs bz ys yz", "y", domain=MS)], kinds,
                     "y", [*grid("a"), *grid("b", scale=.01), *grid("y", scale=.03)], [U8]),
                inputs=x, steps=1)


each("integers_where", where)


def gemm(rest, y, inits=(), **attrs):
    turned = attrs.get("transB", 0)
    return Case(made([node("QGemm", "x as az w ws wz" + rest, "y", domain=MS, **attrs)],
                     of(U8, ("x", [3, 20])), "y", [
        numbers("w", (5, 20) if turned else (20, 5), np.int8), *grid("a", U8, .02, 120),
        const("ws", np.float32([.01, .02, .01, .03, .002])), const("wz", np.zeros(5, np.int8)),
        const("c", np.int32([100, -3000, 7, 0, 99])), *grid("y", U8, .2, 101), *inits], [y]),
        inputs=all_of([3, 20], U8), tolerance=1e-6)


each("integers_gemm", lambda: gemm(" c ys yz", U8))
each("integers_gemm_turned", lambda: gemm(" _ ys yz", U8, transB=1))
each("integers_gemm_to_floats", lambda: gemm(" c", F, transB=1, alpha=1.))


@case
def integers_product_to_floats():
    return Case(made([node("MatMulIntegerToFloat", "x w as ws az wz b", "y", domain=MS)],
                     of(U8, ("x", [2, 3, 20])), "y", [
        numbers("w", (20, 5), np.uint8), *grid("a"), const("ws", np.float32([.1, .2, .3, .4, .5])),
        const("wz", np.uint8([1, 2, 3, 4, 5])), const("b", np.float32([1, 2, 3, 4, 5]))], [F]),
        inputs=all_of([2, 3, 20], U8))


@case
def integers_dynamic_product_of_one():
    return Case(made([node("DynamicQuantizeMatMul", "x w ws wz b", "y", domain=MS)],
                     {"x": ["N", 3, 16]}, "y", [
        numbers("w", (16, 4), np.int8), const("ws", np.float32(.01)), const("wz", np.int8(3)),
        const("b", np.float32([1, 2, 3, 4]))], [F]), dims={"N": 2})


def fused(**attrs):
    shapes = {"a": [2, 5, 3] if attrs.get("transA") else [2, 3, 5],
              "b": [4, 5] if attrs.get("transB") else [5, 4]}
    return Case(made([node("FusedMatMul", "a b", "y", domain=MS, **attrs)], shapes, "y", [], [F]))


each("integers_fused", fused)
each("integers_fused_turned", lambda: fused(transA=1, transB=1, alpha=.125))


def few_bits(bits, size=32, zero=None, bias=False):
    k, n = 80, 6
    blocks = -(-k // size)
    inits = [numbers("w", (n, blocks, size * bits // 8), np.uint8),
             const("s", RNG.uniform(.01, .02, (n * blocks)).astype(np.float32))]
    if zero == "packed":
        inits.append(numbers("z", (n * -(-blocks * bits // 8),), np.uint8))
    elif zero:
        inits.append(const("z", RNG.uniform(3, 9, (n * blocks)).astype(np.float32)))
    if bias:
        inits.append(const("b", RNG.normal(size=n).astype(np.float32)))
    names = "x w s " + ("z" if zero else "_") + " _ b" * bias
    return Case(made([node("MatMulNBits", names, "y", domain=MS, K=k, N=n, bits=bits,
                           block_size=size)], {"x": [3, k]}, "y", inits, [F]), tolerance=1e-4,
                text="weight w.real: f32[80,6]")


each("integers_of_4_bits", lambda: few_bits(4))
each("integers_of_4_bits_zeros", lambda: few_bits(4, zero="packed", bias=True))
each("integers_of_4_bits_real_zeros", lambda: few_bits(4, zero="real"))
each("integers_of_2_bits", lambda: few_bits(2, zero="packed"))
each("integers_of_8_bits", lambda: few_bits(8, zero="packed"))


def lstm(columns, direction="forward"):
    """Beside the recurrence of what the weights stand for, which is what is imported."""
    d, hidden = 1 + (direction == "bidirectional"), 5
    size = 4 * hidden
    w, r = (numbers(k, (d, n, size), np.int8) for k, n in (("w", 7), ("r", hidden)))
    scales = [const(k, RNG.uniform(.002, .004, (d, size) if columns else (d,)).astype(np.float32))
              for k in ("ws", "rs")]
    zeros = [const(k, RNG.integers(-5, 5, (d, size) if columns else (d,)).astype(np.int8))
             for k in ("wz", "rz")]
    b = const("b", RNG.normal(size=(d, 2 * size)).astype(np.float32))
    real = []
    for q, s, z, name in zip((w, r), scales, zeros, "wr"):
        q, s, z = (numpy_helper.to_array(t) for t in (q, s, z))
        s, z = (t.reshape(d, 1, -1) for t in (s, z))
        real.append(const(name, ((q.astype(np.float32) - z) * s).transpose(0, 2, 1)))
    attrs, shapes = {"hidden_size": hidden, "direction": direction}, {"x": [3, 2, 7]}
    return Case(made([node("DynamicQuantizeLSTM", "x w r b _ _ _ _ ws wz rs rz", "y h", domain=MS,
                           **attrs)], shapes, "y h", [w, r, b, *scales, *zeros], [F, F]),
                reference=made([node("LSTM", "x w r b", "y h", **attrs)], shapes, "y h",
                               [*real, b], [F, F]), tolerance=1e-5)


each("integers_lstm", lambda: lstm(False))
each("integers_lstm_of_columns", lambda: lstm(True, "bidirectional"))


# ---- what is refused ----

def bad(text, op="QLinearMatMul", names="x as az w ws wz ys yz", code=3, **other):
    inits = {"as": np.float32(.1), "az": np.uint8(3), "w": np.ones((4, 5), np.int8),
             "ws": np.float32(.1), "wz": np.int8(0), "ys": np.float32(.1), "yz": np.uint8(9),
             **other}
    return Case(made([node(op, names, "y")], of(U8, ("x", [2, 4])), "y",
                     [const(k, v) for k, v in inits.items()], [U8]), code=code, text=text)


each("integers_bad_scales", lambda: bad(
    "with a scale of 1 axes and 3 elements, where 5 are wanted", ws=np.ones(3, np.float32)))
each("integers_bad_zeros", lambda: bad(
    "with a zero point of 1 axes and 4 elements, where 5 are wanted", wz=np.zeros(4, np.int8)))
each("integers_bad_zeros_of_batches", lambda: bad(
    "scales or zero points that do not fit its constant", wz=np.ones((2, 4, 5), np.int8)))
each("integers_no_scales", lambda: bad("with a scale of 1 axes and 0 elements",
                                       ys=np.zeros(0, np.float32)))
each("integers_bad_type", lambda: bad("with a zero point of type i8 for integers of type u8",
                                      az=np.int8(3)))
each("integers_bad_type_of_floats", lambda: bad("with a zero point of type f32",
                                                wz=np.float32(3)))
each("integers_bad_type_of_scale", lambda: bad("with a scale of type i32", ws=np.int32(3)))
each("integers_scale_of_nothing", lambda: bad("with a scale of 0", ys=np.float32(0)))
each("integers_scale_of_nan", lambda: bad("with a scale of nan", ws=np.float32(np.nan)))
each("integers_scale_of_inf", lambda: bad("with a scale of inf", **{"as": np.float32(np.inf)}))
each("integers_wide_result", lambda: bad("to a type other than int2 to int16", code=4,
                                         yz=np.int32(9)))
each("integers_narrow_filter", lambda: bad("with a filter of 2 axes", "QLinearConv"))
each("integers_step_of_nothing", lambda: Case(made(
    [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")], {"x": [4]}, "y",
    [const("s", np.float32(0))], [F]), code=3, text="with a scale of 0"))
each("integers_channels_last", lambda: Case(made(
    [node("QLinearGlobalAveragePool", "x as az as az", "y", domain=MS, channels_last=1)],
    of(U8, ("x", [1, 2, 2, 3])), "y", grid("a"), [U8]), code=4, text="with channels last"))
each("integers_of_bad_sizes", lambda: Case(made(
    [node("MatMulNBits", "x w s", "y", domain=MS, K=80, N=6, bits=4, block_size=32)],
    {"x": [3, 80]}, "y", [numbers("w", (6, 2, 16), np.uint8), const("s", np.ones(18, np.float32))],
    [F]), code=3, text="whose weights do not have the sizes that it says"))
