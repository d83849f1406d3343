"""Cases of sequences of tensors, and of what is written out or computed at import: shifts,
determinants of small matrices, mel filters."""
import numpy as np
from onnx import TensorProto, helper

from cases import I64, Case, case, const, each, ints, model, node, value
from places import typed

TYPES = {I64: np.int64, TensorProto.INT32: np.int32}


@case
def sequence_of_all():
    nodes = [node("SequenceConstruct", "x y", "s"), node("SequenceInsert", "s x2 first", "t"),
             node("Mul", "x x", "x3"), node("SequenceInsert", "t x3", "u"),
             node("Identity", "u", "v"), node("SequenceErase", "v one", "w"),
             node("SequenceAt", "w last", "a"), node("SequenceAt", "w first", "b"),
             node("SequenceLength", "w", "n"), node("Cast", "n", "f", to=TensorProto.FLOAT),
             node("Sub", "a b", "d"), node("Mul", "d f", "r")]
    return Case(model([node("Relu", "x", "x2")] + nodes, {"x": [2, 3], "y": [2, 3]}, "r",
                      [const("first", np.int64(0)), const("one", np.int64(1)),
                       const("last", np.int64(-1))], opset=17))


@case
def sequence_split_and_joined():
    nodes = [node("SplitToSequence", "x two", "s", axis=1), node("SequenceAt", "s last", "a"),
             node("SplitToSequence", "x", "t", axis=0, keepdims=0),
             node("ConcatFromSequence", "t", "b", axis=-1, new_axis=1),
             node("SplitToSequence", "x sizes", "u", axis=1),
             node("ConcatFromSequence", "u", "c", axis=1)]
    return Case(model(nodes, {"x": [3, 5]}, "a b c", [
        const("two", np.int64(2)), const("last", np.int64(-1)), ints("sizes", 1, 3, 1)], opset=17))


def sequence_fails(name, nodes, code, text, inits=(), **inputs):
    each("sequence_" + name, lambda: Case(model(
        nodes, {"x": [2, 4], **inputs}, "y", [const("at", np.int64(2)), *inits], opset=17),
        code=code, text=text))


PAIR = node("SequenceConstruct", "x x", "s")
sequence_fails("at_its_end", [PAIR, node("SequenceAt", "s at", "y")], 3,
               "a position outside its sequence")
sequence_fails("at_run_time", [PAIR, node("SequenceAt", "s p", "y")], 4,
               "a position computed at run time", p=value("p", [], I64))
sequence_fails("as_tensor", [PAIR, node("Relu", "s", "y")], 4, "operator 'Relu' on a sequence")
sequence_fails("of_tensor", [node("SequenceAt", "x at", "y")], 3, "is no sequence")
sequence_fails("output", [node("SequenceConstruct", "x", "y")], 4,
               "a sequence as an output of the model")
sequence_fails("of_nothing", [node("SequenceEmpty", "", "s"),
                              node("ConcatFromSequence", "s", "y", axis=0)], 3, "of no tensors")
sequence_fails("too_small", [node("SplitToSequence", "x sizes", "s", axis=1),
                             node("SequenceAt", "s at", "y")], 3, "do not add up to 4",
               [ints("sizes", 2, 1)])
sequence_fails("map", [PAIR, node("SequenceMap", "s", "y", body=helper.make_graph(
    [], "g", [], []))], 4, "it has a subgraph")


@case
def shifts():
    return Case(model([node("BitShift", "x by", "a", direction="RIGHT"),
                       node("Cast", "a", "y", to=TensorProto.FLOAT)],
                      {"x": value("x", [2, 3], TensorProto.INT32)}, "y",
                      [const("by", np.int32([1, 0, 4]))], opset=26),
                inputs={"x": np.int32([[-7, 5, 100], [8, -1, -33]])}, compare=False,
                text="Mod(x, ")


WORDS = np.int32([[-7, 5, 2 ** 31 - 1], [-2 ** 31, -1, 123456789]])


@case
def shifts_of_words():
    """As torch's exporter writes those of integers: by uint32, and the sign put back."""
    to = TensorProto
    nodes = [node("Cast", "x", "w", to=to.UINT32),
             node("BitShift", "w three", "l", direction="LEFT"),
             node("Cast", "l", "a", to=to.INT32),
             node("BitShift", "w three", "r", direction="RIGHT"),
             node("BitwiseOr", "r high", "s"), node("Cast", "s", "b", to=to.INT32),
             node("BitwiseAnd", "w low", "t"), node("Cast", "t", "c", to=to.INT64),
             node("BitwiseXor", "w all", "u"), node("Cast", "u", "d", to=to.INT32),
             node("Cast", "r", "e", to=to.FLOAT)]
    made = model(nodes, {"x": value("x", [2, 3], to.INT32)}, "a b c d e", [
        const("three", np.uint32(3)), const("high", np.uint32(0xE0000000)),
        const("low", np.uint32([0xFFFF, 0xF0F, 0x80000001])),
        const("all", np.uint32(0xFFFFFFFF))], opset=20)
    for out, kind in zip(made.graph.output, (to.INT32, to.INT32, I64, to.INT32, to.FLOAT)):
        out.type.tensor_type.elem_type = kind
    return Case(made, inputs={"x": WORDS})


each("words_elsewhere", lambda: Case(model(
    [node("Cast", "x", "w", to=TensorProto.UINT32), node("Add", "w one", "s"),
     node("Cast", "s", "y", to=TensorProto.INT32)],
    {"x": value("x", [2, 3], TensorProto.INT32)}, "y", [const("one", np.uint32(1))]), code=4,
    text="operator 'Add' on uint32 computed at run time"))
each("words_as_output", lambda: Case(model(
    [node("Cast", "x", "y", to=TensorProto.UINT32)],
    {"x": value("x", [2, 3], TensorProto.INT32)}, "y"), code=4,
    text="uint32 computed at run time as an output"))
each("shift_bytes", lambda: Case(model([node("BitShift", "x by", direction="LEFT")], {
    "x": value("x", [3], TensorProto.UINT8)}, "y", [const("by", np.uint8([1, 2, 3]))], opset=11),
    code=4, text="BitShift of u8"))
def bitwise(op, mask, kind=I64, swapped=False):
    """What is computed at run time and a mask; the sum keeps the rest of the network there."""
    numbers = [0, 1, -1, 7, -8, 1 << 20, -(1 << 29) - 5, 123456789, -987654321]
    wide = [] if kind == TensorProto.INT32 else [(1 << 40) + 77, -(1 << 45) - 3, 2 ** 62 + 5]
    x = np.array(numbers + wide, TYPES[kind])[:, None]
    inputs = "m x" if swapped else "x m"
    made = model([node(op, inputs, "y")] if op != "BitwiseNot" else [node(op, "x")],
                 {"x": value("x", list(x.shape), kind)}, "y", [const("m", mask, TYPES[kind])],
                 opset=18)
    return Case(typed(made, y=kind), inputs={"x": x})


for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    for name, mask in (("low", 15), ("runs", [0x5A5A5A, 0, 1, 1 << 27]), ("signs", [-16, -1, ~96])):
        each(f"{op}_{name}", lambda o=op, m=mask: bitwise(o, m))
        each(f"{op}_{name}_i32", lambda o=op, m=mask: bitwise(o, m, TensorProto.INT32, True))
each("bitwise_not", lambda: bitwise("BitwiseNot", 0))
each("bitwise_wide", lambda: bitwise("BitwiseXor", [(1 << 50) - 3, 1 << 61]))
each("bitwise_computed", lambda: Case(model([node("BitwiseXor", "x z")], {
    "x": value("x", [3], I64), "z": value("z", [3], I64)}, "y", opset=18), code=4,
    text="BitwiseXor of i64, both of which are computed at run time: integers have no bits here"))
each("bitwise_of_both_signs", lambda: Case(bitwise("BitwiseAnd", [3, -3]).model, code=4,
                                           text="with -3 beside numbers of the other sign"))
each("bitwise_of_all", lambda: Case(bitwise("BitwiseAnd", 2 ** 63 - 1).model, code=4,
                                    text="BitwiseAnd with 9223372036854775807"))
each("det_2", lambda: Case(model([node("Det", "x")], {"x": [5, 2, 2]}, "y", opset=11)))
each("det_3", lambda: Case(model([node("Det", "x")], {"x": [4, 2, 3, 3]}, "y", opset=11)))
each("det_1", lambda: Case(model([node("Det", "x")], {"x": [4, 1, 1]}, "y", opset=11)))
each("det_4", lambda: Case(model([node("Det", "x")], {"x": [4, 4]}, "y", opset=11), code=4,
                           text="Det of 4 x 4; it is written out for sizes up to 3"))
each("det_oblong", lambda: Case(model([node("Det", "x")], {"x": [3, 4]}, "y", opset=11), code=3,
                                text="no square matrices"))


def mel(bins=8, size=16, rate=8192, low=0.0, high=4096.0):
    return [const("bins", np.int64(bins)), const("size", np.int64(size)),
            const("rate", np.int64(rate)), const("low", np.float32(low)),
            const("high", np.float32(high))]


def mel_case(code=0, text="", **attrs):
    return Case(model([node("MelWeightMatrix", "bins size rate low high", "m"),
                       node("MatMul", "x m", "y")], {"x": [2, 9]}, "y", mel(**attrs), opset=17),
                code=code, text=text)


each("mel_filters", lambda: mel_case(text="weight m: f32[9,8]"))
each("mel_narrow", lambda: mel_case(low=1000.0, high=1010.0))
each("mel_too_high", lambda: mel_case(code=3, text="above half of its sample rate", high=9000.0))
each("mel_no_bins", lambda: mel_case(code=4, text="of this size, edges or type", bins=0))
