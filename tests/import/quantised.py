"""Cases of quantised exports: QuantizeLinear and DequantizeLinear around float operators."""
import numpy as np
from onnx import TensorProto, helper

from cases import RNG, Case, case, const, each, ints, model, node, value


def pair(x, y, kind="u", q=None):
    q = q or y + ".q"
    return [node("QuantizeLinear", f"{x} {kind}.s {kind}.z", q),
            node("DequantizeLinear", f"{q} {kind}.s {kind}.z", y)]


GRID = [const("u.s", np.float32(0.021)), const("u.z", np.uint8(117)),
        const("i.s", np.float32(0.05)), const("i.z", np.int8(0))]


def numbers(name, shape, dtype):
    """A constant of integers. Signed ones have 7 bits: where the processor has no instruction for
    more, onnxruntime adds two of their products with u8 up in 16 bits."""
    info = np.iinfo(dtype)
    least, most = (-64, 63) if dtype is np.int8 else (info.min, info.max)
    return const(name, RNG.integers(least, most, shape).astype(dtype))


@case
def quantised_conv():
    """As torch and onnxruntime write it: weights of 8 bits, one scale a channel."""
    nodes = pair("x", "xq") + [
        node("DequantizeLinear", "w ws wz", "wf", axis=0),
        node("DequantizeLinear", "b bs", "bf", axis=0), node("Conv", "xq wf bf", "c", pads=[1] * 4),
        node("Relu", "c", "r")] + pair("r", "y", "i")
    return Case(model(nodes, {"x": [1, 3, 6, 6]}, "y", GRID + [
        numbers("w", (4, 3, 3, 3), np.int8), const("ws", np.float32([.01, .02, .005, .013])),
        const("wz", np.zeros(4, np.int8)), const("b", np.int32([5, -7, 900, 0])),
        const("bs", np.float32([.001, .002, .0005, .0013]))]),
        text=["weight wf: f32[4,3,3,3]", "Clip(", "min=-117, max=138"], tolerance=1e-3)


@case
def quantised_between():
    """Operators on quantised values: none needs to know that they are."""
    nodes = [node("QuantizeLinear", "x u.s u.z", "q"), node("Transpose", "q", "t", perm=[0, 2, 1]),
             node("Reshape", "t shape", "r"), node("DequantizeLinear", "r u.s u.z", "y")]
    return Case(model(nodes, {"x": [2, 3, 4]}, "y", GRID + [ints("shape", 2, 12)]))


@case
def quantised_per_channel():
    nodes = [node("QuantizeLinear", "x s z", "q", axis=1),
             node("DequantizeLinear", "q s z", "y", axis=-2)]
    return Case(model(nodes, {"x": [2, 3, 4]}, "y", [
        const("s", np.float32([.1, .02, .3])), const("z", np.uint8([0, 128, 3]))]))


@case
def quantised_ties_and_ends():
    x = np.float32([[-.5, .5, 1.5, 2.5, -1.5, 300, -300, 127.5]])
    return Case(model([node("QuantizeLinear", "x one z", "q"),
                       node("DequantizeLinear", "q one z", "y")], {"x": [1, 8]}, "y",
                      [const("one", np.float32(1)), const("z", np.int8(-3))]), inputs={"x": x})


@case
def quantised_without_zero():
    return Case(model([node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")],
                      {"x": [9]}, "y", [const("s", np.float32(0.1))]))


@case
def quantised_large_weight():
    """More elements than folding makes elsewhere."""
    return Case(model([node("DequantizeLinear", "w ws", "wf"), node("MatMul", "x wf", "y")],
                      {"x": [1, 1100]}, "y", [numbers("w", (1100, 1000), np.int8),
                                              const("ws", np.float32(0.001))]), tolerance=1e-3)


def with_bytes(m, kind=TensorProto.UINT8):
    """Its output holds integers."""
    m.graph.output[0].type.tensor_type.elem_type = kind
    return m


@case
def quantised_output():
    """Nodes go on with the floats, whichever name the integers get."""
    return Case(with_bytes(model([*pair("x", "y"), node("Relu", "y", "r")], {"x": [3]}, "y.q r",
                                 GRID)), text=["y.q = Cast(", "to=u8", "r = Relu(y)"])


@case
def quantised_output_moved():
    """What only moves integers keeps their type."""
    return Case(with_bytes(model([*pair("x", "y")[:1], node("Reshape", "y.q shape", "r"),
                                  node("Split", "r", "a b", axis=0)], {"x": [4, 3]}, "a",
                                 [*GRID, ints("shape", 6, 2)], opset=11)), text="to=u8")


@case
def quantised_output_as_floats():
    return Case(model([*pair("x", "y")[:1], node("Cast", "y.q", "r", to=TensorProto.FLOAT)],
                      {"x": [3]}, "r", GRID), not_text="to=u8")


@case
def quantised_output_of_16_bits():
    return Case(with_bytes(model([node("QuantizeLinear", "x s z", "y")], {"x": [3]}, "y",
                                 [const("s", np.float32(.01)), const("z", np.int16(0))], opset=21),
                           TensorProto.INT16), code=4, text="integers of 16 bits as an output")


@case
def quantised_in_blocks():
    return Case(model([node("QuantizeLinear", "x s z", "q", axis=0, block_size=2),
                       node("DequantizeLinear", "q s z", "y", axis=0, block_size=2)], {"x": [5, 2]},
                      "y", [const("s", np.float32([[.1, .2], [.05, .3], [.2, .1]])),
                            const("z", np.uint8([[100, 3], [128, 9], [0, 200]]))], opset=21))


@case
def quantised_in_wrong_blocks():
    return Case(model([node("DequantizeLinear", "w s", "k", axis=0, block_size=2),
                       node("MatMul", "x k", "y")], {"x": [2, 4]},
                      "y", [numbers("w", (4, 3), np.int8), const("s", np.ones((3, 3), np.float32))],
                      opset=21), code=3, text="whose scales do not fit blocks of 2")


def nibbles(name, shape, kind, raw=True):
    """Integers of few bits, packed."""
    bits = 2 if kind in (TensorProto.INT2, TensorProto.UINT2) else 4
    low = -2 ** (bits - 1) if kind in (TensorProto.INT2, TensorProto.INT4) else 0
    values = RNG.integers(low, low + 2 ** bits, shape).flatten().tolist()
    tensor = helper.make_tensor(name, kind, shape, values)
    if raw:
        return tensor
    packed = list(tensor.raw_data or [d & 255 for d in tensor.int32_data])
    other = TensorProto(name=name, data_type=kind, dims=shape)
    other.int32_data.extend(packed)
    return other


def few_bits(kind, raw=True, opset=21, scale=np.float32, zero=True, block=3):
    return Case(model([node("DequantizeLinear", "w s z" if zero else "w s", "k", axis=0,
                            block_size=block),
                       node("Cast", "k", "c", to=TensorProto.FLOAT), node("MatMul", "x c", "y")],
                      {"x": [2, 7]}, "y", [
        nibbles("w", [7, 5], kind, raw), nibbles("z", [3, 5], kind, raw),
        const("s", RNG.uniform(.1, .2, (3, 5)).astype(scale))], opset=opset), tolerance=2e-3,
        text="weight c: f32[7,5]")


each("quantised_int4", lambda: few_bits(TensorProto.INT4))
each("quantised_uint4", lambda: few_bits(TensorProto.UINT4))
each("quantised_uint4_typed", lambda: few_bits(TensorProto.UINT4, raw=False))
each("quantised_int4_half", lambda: few_bits(TensorProto.INT4, scale=np.float16))
each("quantised_int2", lambda: few_bits(TensorProto.INT2, opset=25))
each("quantised_int4_symmetric", lambda: few_bits(TensorProto.INT4, zero=False))


@case
def quantised_int4_per_channel():
    return Case(model([node("DequantizeLinear", "w s z", "k", axis=1), node("MatMul", "x k", "y")],
                      {"x": [2, 3]}, "y", [
        nibbles("w", [3, 5], TensorProto.INT4), nibbles("z", [5], TensorProto.INT4),
        const("s", np.float32([.1, .2, .3, .4, .5]))], opset=21), tolerance=1e-4)


@case
def quantised_to_int4():
    """What is rounded to 4 bits keeps their range."""
    x = np.float32([[-9, -8, -7.5, 0.4, 6.6, 7, 8, 100]])
    return Case(model([node("QuantizeLinear", "x s z", "q"),
                       node("DequantizeLinear", "q s z", "y")],
                      {"x": [1, 8]}, "y", [const("s", np.float32(1)),
                                           helper.make_tensor("z", TensorProto.INT4, [], [0])],
                      opset=21), inputs={"x": x}, text="min=-8, max=7")


@case
def quantised_int4_short():
    short = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3, 5], raw_data=bytes(7))
    return Case(model([node("DequantizeLinear", "w s", "k"), node("MatMul", "x k", "y")],
                      {"x": [2, 3]}, "y", [short, const("s", np.float32(1))], opset=21), code=3,
                text="7 bytes of raw data, but the shape needs 8")


@case
def quantised_int4_input():
    return Case(model([node("DequantizeLinear", "x s", "y")],
                      {"x": value("x", [2, 4], TensorProto.INT4)}, "y",
                      [const("s", np.float32(1))], opset=21), code=4,
                text="has the unsupported element type int4")


@case
def quantised_at_run_time():
    return Case(model([node("QuantizeLinear", "x s z", "q", axis=0),
                       node("DequantizeLinear", "q s z", "y", axis=0)],
                      {"x": [4, 3], "s": [4], "z": value("z", [4], TensorProto.INT8)}, "y"),
                inputs={"s": np.float32([.1, .01, .02, .03]), "z": np.int8([0, 3, -100, 9])})
