"""Cases of quotients and remainders that are computed at run time."""
import numpy as np
from onnx import TensorProto

from cases import I64, Case, case, const, each, model, node, value
from places import typed

I32, I8 = TensorProto.INT32, TensorProto.INT8
WIDE = np.int64([[7, -7, 7, -7, 0, 8], [1 << 40, -(1 << 40), (1 << 60) + 5, 123456789, -1, 6]])
BY = np.int64([3, 3, -3, -3, 5, -4])


@case
def quotients_and_remainders_of_integers():
    """Every sign, and what no float holds."""
    nodes = [node("Div", "a b", "q"), node("Mod", "a b", "r"), node("Mod", "a b", "s", fmod=1)]
    m = model(nodes, {"a": value("a", [2, 6], I64), "b": value("b", [6], I64)}, "q r s")
    return Case(typed(m, q=I64, r=I64, s=I64), inputs={"a": WIDE, "b": BY},
                text=["q = Div(a, b)", "r = Mod(a, b; fmod=0)", "s = Mod(a, b; fmod=1)"])


for name, dtype, array in (("i32", I32, np.int32), ("i8", I8, np.int8)):
    each("remainders_of_" + name, lambda d=dtype, a=array: Case(
        typed(model([node("Mod", "a b", "r"), node("Mod", "a b", "s", fmod=1)],
                    {"a": value("a", [2, 6], d), "b": value("b", [6], d)}, "r s"), r=d, s=d),
        inputs={"a": (WIDE % 100 - 50).astype(a), "b": BY.astype(a)}))


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


each("mod_of_floats_as_integers", lambda: Case(
    model([node("Mod", "a b")], {"a": [3], "b": [3]}), code=3, text="Mod of floats needs fmod=1"))
each("div_of_bools", lambda: Case(
    typed(model([node("Div", "a b")], {k: value(k, [3], TensorProto.BOOL) for k in "ab"}),
          y=TensorProto.BOOL), code=4, text="'Div' on values of type bool"))
