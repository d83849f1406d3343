"""Cases of quotients and remainders that are computed at run time, and of running products."""
import numpy as np
from onnx import TensorProto

from cases import I64, Case, case, const, each, model, node, value
from places import typed

I32, I8, U8 = TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8
WIDE = np.int64([[7, -7, 7, -7, 0, 8], [1 << 40, -(1 << 40), (1 << 60) + 5, 123456789, -1, 6]])
BY = np.int64([3, 3, -3, -3, 5, -4])


@case
def quotients_and_remainders_of_integers():
    """Every sign, and what no float holds."""
    nodes = [node("Div", "a b", "q"), node("Mod", "a b", "r"), node("Mod", "a b", "s", fmod=1)]
    m = model(nodes, {"a": value("a", [2, 6], I64), "b": value("b", [6], I64)}, "q r s")
    return Case(typed(m, q=I64, r=I64, s=I64), inputs={"a": WIDE, "b": BY},
                text=["q = Div(a, b)", "r = Mod(a, b; fmod=0)", "s = Mod(a, b; fmod=1)"])


for name, dtype, array in (("i32", I32, np.int32), ("i8", I8, np.int8), ("u8", U8, np.uint8)):
    each("remainders_of_" + name, lambda d=dtype, a=array: Case(
        typed(model([node("Mod", "a b", "r"), node("Mod", "a b", "s", fmod=1)],
                    {"a": value("a", [2, 6], d), "b": value("b", [6], d)}, "r s"), r=d, s=d),
        inputs={"a": (WIDE % 100 - (0 if a is np.uint8 else 50)).astype(a),
                "b": (abs(BY) if a is np.uint8 else BY).astype(a)}))


each("image_of_bytes", lambda: Case(
    typed(model([node("Cast", "x", "f", to=TensorProto.FLOAT),
                 node("Transpose", "f", "t", perm=[0, 3, 1, 2]),
                 node("ReduceMean", "t", "m", keepdims=1, axes=[1]),
                 node("Cast", "m", "y", to=U8)],
                {"x": value("x", [1, 4, 5, 3], U8)}), y=U8),
    inputs={"x": np.arange(190, 250).astype(np.uint8).reshape(1, 4, 5, 3)},
    text="input x: u8[1,4,5,3]"))


@case
def remainders_of_floats():
    """Multiples, and quotients that a float has no digits for."""
    a = np.float32([5.5, -5.5, 5.5, -5.5, 1, 1e20, 0.3, -7])
    b = np.float32([2, 2, -2, -2, 0.1, 3, 0.1, 3.5])
    return Case(model([node("Mod", "a b", fmod=1)], {"a": [8], "b": [8]}), tolerance=1e-7,
                inputs={"a": a, "b": b})


@case
def floor_divide():
    """torch's on integers: the quotient, one less where signs differ and something is left."""
    nodes = [node("Div", "a b", "q"), node("Mod", "a b", "r"), node("Equal", "r zero", "even"),
             node("Not", "even", "odd"), node("Sign", "a", "sa"), node("Sign", "b", "sb"),
             node("Equal", "sa sb", "same"), node("Not", "same", "differ"),
             node("And", "odd differ", "less"), node("Cast", "less", "one", to=I64),
             node("Sub", "q one", "y")]
    m = model(nodes, {"a": value("a", [2, 6], I64), "b": value("b", [6], I64)}, "y",
              [const("zero", np.int64(0))])
    return Case(typed(m, y=I64), inputs={"a": WIDE, "b": BY})


@case
def rows_of_places():
    """Rows and columns of places in an image, as windows of attention have them."""
    nodes = [node("Div", "at width", "row"), node("Mod", "at width", "column"),
             node("Gather", "x row", "r"), node("Gather", "w column", "c"), node("Add", "r c", "y")]
    return Case(model(nodes, {"x": [4, 3], "w": [5, 3], "at": value("at", [2, 3], I64)}, "y",
                      [const("width", np.int64(5))]),
                inputs={"at": np.int64([[0, 4, 5], [19, 7, 12]])})


for power in (0, 1, 2, 7):
    each(f"power_of_integers_{power}", lambda p=power: Case(typed(
        model([node("Pow", "x p")], {"x": value("x", [2, 4], I64)}, "y", [const("p", np.int64(p))]),
        y=I64), inputs={"x": np.int64([[-9, -1, 0, 1], [2, 3, 100, -500]])}))
each("power_of_integers_by_float", lambda: Case(typed(
    model([node("Pow", "x p")], {"x": value("x", [3], I32)}, "y", [const("p", np.float32([3]))]),
    y=I32), inputs={"x": np.int32([-5, 4, 0])}))
each("power_by_integers", lambda: Case(
    model([node("Pow", "x p")], {"x": [4], "p": value("p", [4], I64)}),
    inputs={"p": np.int64([0, 2, 3, -1])}))
each("power_of_integers_computed", lambda: Case(
    typed(model([node("Pow", "x p")], {k: value(k, [3], I64) for k in "xp"}), y=I64), code=4,
    text="Pow of i64 by what is not a known number"))
each("power_of_integers_negative", lambda: Case(typed(
    model([node("Pow", "x p")], {"x": value("x", [3], I64)}, "y", [const("p", np.int64(-1))]),
    y=I64), code=4, text="Pow of i64 by -1"))
each("mod_of_floats_as_integers", lambda: Case(
    model([node("Mod", "a b")], {"a": [3], "b": [3]}), code=3, text="Mod of floats needs fmod=1"))
each("div_of_bools", lambda: Case(
    typed(model([node("Div", "a b")], {k: value(k, [3], TensorProto.BOOL) for k in "ab"}),
          y=TensorProto.BOOL), code=4, text="'Div' on values of type bool"))


def cum_prod(dims, axis, exclusive=0, reverse=0, dtype=np.float32):
    """No runtime has this operator: the reference multiplies parts one after the other."""
    count = dims[axis]
    nodes = [node("Split", "x", [f"x{i}" for i in range(count)], axis=axis, num_outputs=count),
             node("Div", "x0 x0", "product")]
    last = "product"
    for i in range(count)[::-1 if reverse else 1]:
        nodes.append(node("Mul", [last, f"x{i}"], [f"p{i}"]))
        nodes.append(node("Identity", [last if exclusive else f"p{i}"], [f"y{i}"]))
        last = f"p{i}"
    nodes.append(node("Concat", [f"y{i}" for i in range(count)], axis=axis))
    kind = {np.float32: TensorProto.FLOAT, np.int32: I32}[dtype]
    given = {"x": value("x", list(dims), kind)}
    m = model([node("CumProd", "x axis", exclusive=exclusive, reverse=reverse)], given, "y",
              [const("axis", np.int64(axis))], opset=26)
    x = np.random.default_rng(2).integers(1, 5, dims).astype(dtype)
    return Case(typed(m, y=kind), reference=typed(model(nodes, given, opset=18), y=kind),
                inputs={"x": x if dtype is np.int32 else x / np.float32(2.5)})


for exclusive in (0, 1):
    for reverse in (0, 1):
        each(f"cum_prod_{exclusive}{reverse}", lambda e=exclusive, r=reverse: cum_prod(
            (2, 5, 3), 1, e, r))
each("cum_prod_of_integers", lambda: cum_prod((4, 3), -1, dtype=np.int32))
each("cum_prod_of_one", lambda: cum_prod((3, 1), 1, exclusive=1))


# What TensorFlow's exporter leaves of its own operators.
def left_over(op, written, *order):
    nodes = [node(written, "x", "v"), node("Sub", order, "y")]
    ones = [const("one", np.float32(1))]
    return Case(model([node(op, "x", "y")], {"x": ["N", 7]}),
                reference=model(nodes, {"x": ["N", 7]}, inits=ones))


each("erfc_of_tensorflow", lambda: left_over("Erfc", "Erf", "one", "v"))
each("expm1_of_tensorflow", lambda: left_over("Expm1", "Exp", "v", "one"))
