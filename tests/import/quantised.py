"""Cases of quantised exports: QuantizeLinear and DequantizeLinear around float operators."""
import numpy as np
from onnx import TensorProto

from cases import RNG, Case, case, const, ints, model, node, value


def pair(x, y, kind="u", q=None):
    q = q or y + ".q"
    return [node("QuantizeLinear", f"{x} {kind}.s {kind}.z", q),
            node("DequantizeLinear", f"{q} {kind}.s {kind}.z", y)]


GRID = [const("u.s", np.float32(0.021)), const("u.z", np.uint8(117)),
        const("i.s", np.float32(0.05)), const("i.z", np.int8(0))]


def numbers(name, shape, dtype):
    info = np.iinfo(dtype)
    return const(name, RNG.integers(info.min, info.max, shape).astype(dtype))


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
        text=["weight wf: f32[4,3,3,3]", "Clip(", "min=0, max=255"], tolerance=1e-3)


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


@case
def quantised_output():
    m = model(pair("x", "y")[:1], {"x": [3]}, "y.q", GRID)
    return Case(m, code=4, text="a quantised value as an output of the model")


@case
def quantised_in_blocks():
    return Case(model([node("QuantizeLinear", "x s", "q", axis=0, block_size=2),
                       node("DequantizeLinear", "q s", "y", axis=0, block_size=2)], {"x": [4, 2]},
                      "y", [const("s", np.ones((2, 2), np.float32))], opset=21), code=4,
                text="blocks")


@case
def quantised_at_run_time():
    return Case(model([node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")],
                      {"x": [4], "s": []}, "y"), code=4, text="a scale computed at run time")


@case
def integer_products():
    return Case(model([node("MatMulInteger", "x w", "y")], {
        "x": value("x", [2, 4], TensorProto.INT8)}, "y", [numbers("w", (4, 3), np.int8)]), code=4,
        text="products of 8-bit integers are not computed exactly; export the model without")
