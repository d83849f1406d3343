"""Cases of operators that read or store at places, slices, pieces of an axis, TopK, scatters,
OneHot among them, and of activations that are written out."""
import numpy as np
from onnx import TensorProto

from cases import F, I64, Case, case, const, each, ints, model, node, value, weight

TIES = np.float32([[3, 1, 3, -np.inf, 2, 2], [-np.inf, -np.inf, 5, -np.inf, -np.inf, -np.inf]])


def typed(m, **types):
    """The model with types of outputs other than float."""
    for out in m.graph.output:
        out.type.tensor_type.elem_type = types.get(out.name, F)
    return m


@case
def more_operands_than_a_statement_takes():
    """Rows of a recurrence: 129 parts of an axis, put together again in another order."""
    parts = [f"p{i}" for i in range(129)]
    cut = [f"c{i}" for i in range(65)]
    sizes = [1 + i % 3 for i in range(65)]
    return Case(model([node("Split", "x", parts, axis=1, num_outputs=129),
                       node("Concat", parts[::-1], "back", axis=-2),
                       node("Split", "back sizes", cut, axis=-2),
                       node("Concat", cut[::-1], "y", axis=1)],
                      {"x": [2, sum(sizes), 3]}, inits=[ints("sizes", *sizes)], opset=18),
                text=["split=[64,64,1]", "Concat(y.part, c0; axis=1)"])


@case
def slice_behind_the_axis():
    """What is not rotated of a head that is rotated as a whole, up to the largest integer."""
    return Case(model([node("Relu", "x", "h"), node("Slice", "h size most last", "rest"),
                       node("Neg", "h", "turned"), node("Concat", "turned rest", "y", axis=-1)],
                      {"x": [2, 8]}, inits=[ints("size", 8), ints("most", 2**63 - 1),
                                            ints("last", -1)]), text="turned = Neg(h)")


@case
def top_k_of_ties():
    """The first of equal ones first, also where fewer are finite than are asked for."""
    return Case(typed(model([node("TopK", "x k", "v i", axis=1)], {"x": [2, 6]}, "v i",
                            [ints("k", 5)]), i=I64), inputs={"x": TIES})


@case
def top_k_few_of_many():
    """So few of so long an axis that pieces are cut again."""
    x = np.round(np.random.default_rng(5).normal(size=[2, 20000]) * 100)
    return Case(typed(model([node("TopK", "x k", "v i")], {"x": [2, 20000]}, "v i",
                            [ints("k", 2)]), i=I64), inputs={"x": x.astype(np.float32)},
                text="TopK(x; k=2)")


def pieces(shape, count, axis=-1, kind=F, outputs="v i", dims=None, **attrs):
    """Many equal ones, of an axis that is cut, where the type has what comes behind all."""
    x = np.round(np.random.default_rng(6).normal(size=[(dims or {}).get(s, s) for s in shape]) * 20)
    numpy = {F: np.float32, TensorProto.INT32: np.int32, I64: np.int64}[kind]
    made = model([node("TopK", "x k", outputs, axis=axis, **attrs)],
                 {"x": value("x", shape, kind)}, outputs.replace("_", ""), [ints("k", count)])
    return Case(typed(made, v=kind, i=I64), inputs={"x": x.astype(numpy)}, dims=dims, args=[
        "--dim=%s=%d" % pair for pair in (dims or {}).items()])


each("top_k_of_pieces", lambda: pieces([1, 24000], 300))
each("top_k_of_uneven_pieces", lambda: pieces([2, 3001], 5, largest=0))
each("top_k_of_pieces_inside", lambda: pieces([2, 4001, 3], 30, axis=1))
each("top_k_of_pieces_values", lambda: pieces([7001], 40, outputs="v _"))
each("top_k_of_pieces_places", lambda: pieces([7001], 40, outputs="_ i"))
each("top_k_of_pieces_of_integers", lambda: pieces([7001], 40, kind=TensorProto.INT32))
each("top_k_of_long_integers", lambda: pieces([3001], 40, kind=I64))
each("top_k_of_pieces_of_batches", lambda: pieces(["n", 3001], 40, dims={"n": 3}))
each("top_k_smallest", lambda: Case(
    typed(model([node("TopK", "x k", "v i", axis=0, largest=0)], {"x": [7, 3]}, "v i",
                [ints("k", 3)]), i=I64)))
each("top_k_of_integers", lambda: Case(
    typed(model([node("TopK", "x k", "v i")], {"x": value("x", [2, 9], I64)}, "v i",
                [ints("k", 9)]), v=I64, i=I64)))


@case
def top_k_behind_boxes():
    """The tail of a detector: scores, the best boxes by them."""
    nodes = [node("ReduceMax", "s", "best", axes=[2], keepdims=0),
             node("TopK", "best k", "v i", axis=1), node("Unsqueeze", "i two", "at"),
             node("Expand", "at shape", "all"), node("GatherElements", "b all", "y", axis=1)]
    return Case(model(nodes, {"s": [1, 20, 3], "b": [1, 20, 4]}, "y v",
                      [ints("k", 4), ints("two", 2), ints("shape", 1, 4, 4)]))


each("top_k_too_many", lambda: Case(
    typed(model([node("TopK", "x k", "v i")], {"x": value("x", [99999], I64)}, "v i",
                [ints("k", 100)]), v=I64, i=I64),
    code=4, text="100 from an axis of size 99999: too much to compare"))
each("top_k_sorts", lambda: Case(
    typed(model([node("TopK", "x k", "v i", axis=1, largest=0)], {"x": [2, 100, 3]}, "v i",
                [ints("k", 100)]), i=I64)))
each("top_k_beyond", lambda: Case(
    typed(model([node("TopK", "x k", "v i")], {"x": [3]}, "v i", [ints("k", 4)]), i=I64), code=3,
    text="TopK of 4 from an axis of size 3"))


def scatter(op, at, x, u, **attrs):
    return model([node(op, "x at u", "y", **attrs)], {"x": x, "u": u}, "y",
                 [const("at", np.array(at, np.int64))], opset=18)


each("scatter_nd_rows", lambda: Case(scatter("ScatterND", [[2], [0]], [4, 3], [2, 3])))
each("scatter_nd_elements", lambda: Case(
    scatter("ScatterND", [[[0, 1], [-1, 2]], [[1, 0], [2, 2]]], [3, 3], [2, 2])))
each("scatter_nd_last_wins", lambda: Case(scatter("ScatterND", [[1], [1]], [3], [2])))
each("scatter_elements_axis", lambda: Case(
    scatter("ScatterElements", [[1, -1], [0, 2]], [3, 4], [2, 2], axis=1)))
for way in ("add", "mul", "max", "min"):
    each("scatter_nd_" + way, lambda w=way: Case(
        scatter("ScatterND", [[3], [1]], [4, 2], [2, 2], reduction=w)))
    each("scatter_elements_" + way, lambda w=way: Case(
        scatter("ScatterElements", [[2, 0, 1]], [3, 3], [1, 3], reduction=w)))
each("scatter_nd_twice", lambda: Case(
    scatter("ScatterND", [[1], [0], [1]], [3, 2], [3, 2], reduction="add")))
each("scatter_elements_twice", lambda: Case(
    scatter("ScatterElements", [[2, 0, 2, 2]], [2, 3], [1, 4], axis=1, reduction="mul")))
each("scatter_nd_outside", lambda: Case(scatter("ScatterND", [[3]], [3], [1]), code=3,
                                        text="index outside an axis of size 3"))
each("scatter_nd_wrong", lambda: Case(scatter("ScatterND", [[1]], [3], [2]), code=3,
                                      text="updates whose shape does not fit"))
def rows(*numbers):
    """Rows of positions, number by number what broadcasts."""
    return np.stack(np.broadcast_arrays(*[np.int64(v) for v in numbers]), -1)


COLUMN = np.arange(2)[:, None]
for way in ("none", "add", "max"):
    each(f"scatter_nd_window_{way}", lambda w=way: Case(
        scatter("ScatterND", rows(COLUMN, np.arange(2, 5)), [2, 6, 3], [2, 3, 3], reduction=w),
        text="Concat(", not_text="Gather"))
each("scatter_nd_window_of_one_place", lambda: Case(
    scatter("ScatterND", rows(1, COLUMN + 1, np.arange(-3, 0)), [3, 4, 5], [2, 3]),
    text="Concat(", not_text="Gather"))
each("scatter_nd_window_turned", lambda: Case(
    scatter("ScatterND", rows(np.arange(3) + 1, COLUMN), [5, 2, 2], [2, 3, 2]),
    text="Transpose(", not_text="Gather"))
each("scatter_nd_window_of_every_other", lambda: Case(
    scatter("ScatterND", rows(COLUMN * 3 + 1, 5 - 2 * np.arange(3)), [6, 7, 2], [2, 3, 2],
            reduction="add")))
each("scatter_nd_diagonal", lambda: Case(
    scatter("ScatterND", rows(np.arange(3), np.arange(3)), [4, 4], [3])))
each("gather_nd_window", lambda: Case(model(
    [node("GatherND", "x turned", "a"), node("GatherND", "x one", "b"),
     node("GatherND", "x diagonal", "c"), node("GatherND", "x more", "d")],
    {"x": [4, 5, 3]}, "a b c d",
    [const("turned", rows(3 - np.arange(3), COLUMN * 2 + 1)),
     const("one", rows(np.arange(-2, 0)[:, None, None], 2)),
     const("diagonal", rows(np.arange(4), np.arange(4))),
     const("more", rows(np.zeros(2), COLUMN))]), text=["Slice(", "Transpose("]))


@case
def window_of_many_places():
    """torch's x[:, 2:, 1:] += u with more positions than are written out, and y[..., ::2, 1:]."""
    def rows_of(name, *parts):
        made = [node("Unsqueeze", f"{p} last", f"{name}{p}") for p in parts]
        return made + [node("Concat", [f"{name}{p}" for p in parts], name, axis=-1)]
    nodes = [node("Expand", f"{v} size", v + "s") for v in "abc"] + rows_of("at", "as", "bs", "cs")
    nodes += [node("Reshape", "ds shape", "es"), node("Expand", "d size", "ds")][::-1]
    nodes += rows_of("to", "as", "es", "cs")
    nodes += [node("ScatterND", "x at u", "s", reduction="add"), node("GatherND", "s to", "y")]
    return Case(model(nodes, {"x": [2, 602, 401], "u": [2, 600, 400]}, "y",
                      [const("a", np.arange(2)[:, None, None]), ints("last", -1),
                       const("b", np.arange(2, 602)[:, None]), const("c", np.arange(1, 401)),
                       const("d", np.arange(600)[:, None]), ints("size", 2, 600, 400),
                       ints("shape", 2, 600, 400)], opset=18),
                text="Concat(", not_text="Gather")


def stored(op, at, x, u, **attrs):
    """Positions that are an input."""
    at = np.array(at, np.int64)
    return Case(model([node(op, "x at u", "y", **attrs)],
                      {"x": x, "at": value("at", list(at.shape), I64), "u": u}, "y", opset=18),
                inputs={"at": at})


for way in ("none", "add", "mul", "max", "min"):
    each("scatter_nd_computed_" + way, lambda w=way: stored(
        "ScatterND", [[[0, 1], [-1, 2]], [[1, 0], [2, 1]]], [3, 3, 2], [2, 2, 2], reduction=w))
    each("scatter_elements_computed_" + way, lambda w=way: stored(
        "ScatterElements", [[1, -1], [0, 2]], [2, 4], [2, 2], axis=1, reduction=w))
each("scatter_nd_computed_row", lambda: stored("ScatterND", [[2]], [4, 3], [1, 3]))
each("scatter_nd_computed_twice", lambda: stored("ScatterND", [[1], [0], [1]], [3, 2], [3, 2]))
each("scatter_elements_computed_one", lambda: stored("ScatterElements", [[2, 0]], [3, 2], [1, 2]))
each("scatter_nd_nothing", lambda: Case(model(
    [node("ScatterND", "x at u", "s"), node("Relu", "s", "y")], {"x": [3, 2]}, "y",
    [const("at", np.zeros((0, 1), np.int64)), const("u", np.zeros((0, 2), np.float32))]),
    not_text="Where"))
each("scatter_nd_known", lambda: Case(model(
    [node("ScatterND", "c at u", "s"), node("ScatterND", "s none nothing", "t"),
     node("Add", "x t", "y")], {"x": [3, 2]}, "y",
    [const("at", np.int64([[0], [-1]])), const("u", np.float32([[1, 2], [3, 4]])),
     const("c", np.ones((3, 2), np.float32)), const("none", np.zeros((0, 2), np.int64)),
     const("nothing", np.zeros(0, np.float32))]), not_text=["Where", "Gather"]))
each("scatter_nd_following", lambda: Case(
    scatter("ScatterND", [[1], [2]], [4, 3], [2, 3]), text="Concat(", not_text="Gather"))
each("scatter_nd_following_add", lambda: Case(
    scatter("ScatterND", [[0], [1]], [4, 3], [2, 3], reduction="add"), not_text="Gather"))
@case
def sums_of_a_known_graph():
    """Edges of a graph that is part of the model: more of them than are compared in pairs."""
    rng = np.random.default_rng(6)
    edges = rng.integers(0, 3000, (2, 12000))
    nodes = [node("Gather", "x from", "messages"),
             node("ScatterElements", "zeros to messages", "sums", axis=0, reduction="add"),
             node("Relu", "sums", "y")]
    return Case(model(nodes, {"x": [3000, 3]}, "y", [
        const("from", edges[0]), const("to", np.broadcast_to(edges[1][:, None], (12000, 3))),
        const("zeros", np.zeros((3000, 3), np.float32))], opset=18))


for way in ("add", "mul", "max", "min"):
    each(f"scatter_nd_repeated_{way}", lambda w=way: Case(scatter(
        "ScatterND", [[2], [0], [2], [2], [0]], [4, 3], [5, 3], reduction=w)))
each("scatter_nd_repeated_of_integers", lambda: Case(typed(model(
    [node("ScatterND", "x at u", reduction="add")],
    {"x": value("x", [4], I64), "u": value("u", [3], I64)}, "y",
    [const("at", np.int64([[2], [2], [0]]))], opset=18), y=I64)))
for way in ("add", "mul", "max", "min"):
    each(f"scatter_elements_computed_integers_{way}", lambda w=way: Case(typed(model(
        [node("ScatterElements", "x at u", "y", reduction=w)],
        {"x": value("x", [4], I64), "at": value("at", [3], I64), "u": value("u", [3], I64)},
        "y", opset=18), y=I64), inputs={"x": np.int64([3, -5, 0, 7]), "at": np.int64([2, 0, 2]),
                                        "u": np.int64([4, 9, -3])}))
each("scatter_nd_too_often", lambda: Case(
    scatter("ScatterND", [[1]] * 20000, [20000], [20000], reduction="add"), code=4,
    text="too many updates of one place"))
each("scatter_nd_into_too_much", lambda: Case(
    scatter("ScatterND", [[1], [5]], [1 << 30], [2]), code=4,
    text="operator 'ScatterND' into 1073741824 places"))
each("scatter_computed_many", lambda: stored("ScatterND", [[0], [4999]] * 2500, [5000], [5000]))
each("scatter_computed_too_many", lambda: Case(
    stored("ScatterND", [[0]] * 20000, [20000], [20000]).model, code=4,
    text="too many to compare"))


@case
def slice_assignment():
    """torch's x[:, 1:3] = u, whose positions fold into a constant."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"),
             node("Range", "a n b", "rows"), node("Reshape", "rows col", "r"),
             node("Add", "r cols", "flat"), node("Reshape", "x all", "f"),
             node("Reshape", "flat list", "at"), node("Reshape", "u all", "uf"),
             node("ScatterND", "f at uf", "g"), node("Reshape", "g back", "y")]
    return Case(model(nodes, {"x": [1, 5], "u": [1, 2]}, "y",
                      [const("zero", np.int64(0)), const("a", np.int64(0)),
                       const("b", np.int64(1)), ints("col", -1, 1), ints("cols", 1, 2),
                       ints("all", -1), ints("list", -1, 1), ints("back", 1, 5)]))


@case
def one_hot_forms():
    at = np.int64([[0, -1], [3, 9]])
    return Case(model([node("OneHot", "at d v", "a", axis=1), node("OneHot", "at d v", "b")],
                      {"at": value("at", [2, 2], I64)}, "a b",
                      [const("d", np.int64(4)), const("v", np.float32([-1, 2.5]))]),
                inputs={"at": at})


@case
def gather_nd_forms():
    at = np.int64([[0, 2], [1, 1]])
    return Case(model([node("GatherND", "x at", "a"), node("GatherND", "x c", "b")],
                      {"x": [3, 4, 2], "at": value("at", [2, 2], I64)}, "a b",
                      [const("c", np.int64([[[-1]], [[0]]]))]), inputs={"at": at})


def gather_nd(at, x, dims, known):
    at = np.int64(at)
    given = {"x": x} if known else {"x": x, "at": value("at", list(at.shape), I64)}
    return Case(model([node("GatherND", "x at", batch_dims=dims)], given, "y",
                      [const("at", at)] if known else []), inputs=None if known else {"at": at})


for known in (True, False):
    each(f"gather_nd_of_batches_{known}", lambda k=known: gather_nd([[2], [0]], [2, 3, 4], 1, k))
    each(f"gather_nd_of_many_batches_{known}", lambda k=known: gather_nd(
        np.arange(24).reshape(2, 2, 3, 2) % 3, [2, 2, 3, 3], 2, k))
    each(f"gather_nd_of_batches_of_rows_{known}", lambda k=known: gather_nd(
        [[[1, 0], [2, 3]], [[0, 0], [1, 1]]], [2, 3, 4, 5], 1, k))
each("gather_nd_unfit", lambda: Case(gather_nd([[2], [0]], [3, 3, 4], 1, False).model, code=3,
                                     text="positions that do not fit"))
each("gather_nd_of_no_batches", lambda: Case(gather_nd([[2], [0]], [2, 3], 2, True).model, code=3,
                                             text="GatherND with 2 batch_dims"))


def reverse(lengths, x, known=False, **axes):
    lengths = np.int64(lengths)
    given = {"x": x} if known else {"x": x, "n": value("n", [len(lengths)], I64)}
    return Case(model([node("ReverseSequence", "x n", **axes)], given, "y",
                      [const("n", lengths)] if known else []),
                inputs=None if known else {"n": lengths})


each("reverse_sequence", lambda: reverse([4, 1, 3], [4, 3, 2]))
each("reverse_sequence_batch_first", lambda: reverse([2, 5], [2, 5], time_axis=1, batch_axis=0))
each("reverse_sequence_known", lambda: reverse([3, 2, 1], [3, 3, 2, 2], known=True))
each("reverse_sequence_unfit", lambda: Case(reverse([4, 1], [4, 3, 2]).model, code=3,
                                            text="numbers that do not fit its axis 1"))


def cache(first, x, u, **attrs):
    """No runtime has this operator: the reference is written with ScatterND."""
    first = None if first is None else np.int64(first)
    inputs = {"x": value("x", x), "u": value("u", u)}
    if first is not None:
        inputs["n"] = value("n", [x[0]], I64)
    m = model([node("TensorScatter", "x u n" if "n" in inputs else "x u", **attrs)], inputs, "y",
              opset=24)
    start, axis = np.zeros(x[0], int) if first is None else first, attrs.get("axis", -2) % len(x)
    at = np.stack(np.indices(u), -1)
    at[..., axis] = (at[..., axis] + start.reshape([-1] + [1] * (len(u) - 1))) % x[axis]
    flat = model([node("ScatterND", "x at u")], inputs, "y", [const("at", at)], opset=18)
    return Case(m, reference=flat, inputs=None if first is None else {"n": first})


each("tensor_scatter", lambda: cache([1, 0], [2, 2, 5, 3], [2, 2, 2, 3]))
each("tensor_scatter_whole", lambda: cache(None, [2, 4, 3], [2, 2, 3]))
each("tensor_scatter_circular", lambda: cache([4, 3], [2, 5, 3], [2, 3, 3], mode="circular",
                                              axis=1))
each("tensor_scatter_last_axis", lambda: cache([2, 0, 1], [3, 4], [3, 2], axis=-1))
each("tensor_scatter_unfit", lambda: Case(
    model([node("TensorScatter", "x u")], {"x": [2, 4, 3], "u": [2, 5, 3]}, opset=24), code=3,
    text="TensorScatter with an unknown mode or an update that does not fit"))


def gather(places, x, axis, **more):
    return Case(model([node("Gather", "x at", "y", axis=axis)], {"x": x}, "y",
                      [const("at", np.int64(places))]), **more)


each("gather_windows", lambda: gather([[0, 2, 4], [1, 3, 5], [2, 4, 6]], [2, 3, 7, 2], 2,
                                      text="y[i0,i1,i2,i3,i4] = x[i0,i1,i2+2*i3,i4]"))
each("gather_mirrored", lambda: gather([-1, -2, -3, -4], [4, 3], 0, text="x[-i0+3,i1]"))
each("gather_every_other", lambda: gather([1, 3, 5], [2, 7], 1, text="x[i0,2*i1+1]"))
each("gather_same", lambda: gather([[4, 4]], [2, 7], 1, text="x[i0,4]"))
each("gather_elements_skewed", lambda: Case(model(
    [node("GatherElements", "x at", "y", axis=2)], {"x": [2, 5, 9]}, "y",
    [const("at", np.broadcast_to(np.arange(4) - np.arange(5)[:, None] + 4, (2, 5, 4)))]),
    text="x[i0,i1,-i1+i2+4]"))
each("gather_elements_by_no_rule", lambda: Case(model(
    [node("GatherElements", "x at", "y", axis=1)], {"x": [2, 9]}, "y",
    [const("at", np.int64([[0, 1, 3], [2, 2, 2]]))]), text="GatherElements("))
each("gather_by_no_rule", lambda: gather([0, 1, 3], [2, 7], 1, text="Gather("))


@case
def eyes():
    """Ones on a diagonal of what is computed; the identity is part of the program."""
    nodes = [node("EyeLike", "x", "e"), node("EyeLike", "x", "f", k=-1, dtype=1),
             node("Sub", "x e", "s"), node("Sub", "s f", "y")]
    return Case(model(nodes, {"x": value("x", [4, 5])}), text="e[i0,i1] = select(")


@case
def activations_written_out():
    nodes = [node("Shrink", "x", "a", lambd=0.4, bias=0.1), node("Tan", "a", "b"),
             node("Cosh", "b", "c"), node("Hardmax", "x", "d", axis=0), node("Add", "c d", "y")]
    return Case(model(nodes, {"x": [4, 5]}))


@case
def inverse_and_hyperbolic():
    """Near 0 too, where differences of exponentials lose everything, and at the ends."""
    x = np.float32([-8, -1, -0.7, -1e-3, 0, 1e-5, 0.02, 0.9, 1, 9])
    unit = np.clip(x, -1, 1)
    inputs = {"Sinh": x, "Cosh": x, "Asinh": 30 * x, "Acosh": 1 + np.abs(x), "Atan": 4 * x,
              "Asin": unit, "Acos": unit, "Atanh": 0.99 * unit}
    nodes = [node(op, "x" + op, "y" + op) for op in inputs]
    outputs = " ".join("y" + op for op in inputs)
    return Case(model(nodes, {"x" + op: [10] for op in inputs}, outputs),
                inputs={"x" + op: v for op, v in inputs.items()})


for power in (1, 2, 3):
    each(f"lp_pool_{power}", lambda p=power: Case(model(
        [node("LpPool", "x", "a", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=p),
         node("GlobalLpPool", "a", "b", p=p), node("Add", "a b", "y")], {"x": [2, 3, 7, 6]})))
each("lp_pool_ceiling", lambda: Case(
    model([node("LpPool", "x", kernel_shape=[3], ceil_mode=1)], {"x": [2, 3, 7]}, opset=18),
    code=4, text="'LpPool' with ceil_mode"))
each("mean_variance", lambda: Case(
    model([node("MeanVarianceNormalization", "x", "a"),
           node("MeanVarianceNormalization", "a", axes=[2])], {"x": [2, 3, 4, 5]})))


@case
def is_inf_both_ways():
    x = np.float32([1, np.inf, -np.inf, np.nan, 3e38])
    m = model([node("IsInf", "x", "a"), node("IsInf", "x", "b", detect_negative=0),
               node("IsInf", "x", "c", detect_positive=0)], {"x": [5]}, "a b c")
    return Case(typed(m, **dict.fromkeys("abc", TensorProto.BOOL)), inputs={"x": x})


def looked_up(nodes, said, at=None):
    """What an import says about positions that may be negative."""
    return Case(model(nodes, {"x": [5, 4], "at": at or value("at", [3], I64)}, "y",
                      [const("five", np.int64(5)), ints("two", 2)]), said=said, compare=False)


each("lookup_named", lambda: looked_up(
    [node("Gather", "x at", f"y{i}", name=f"table{i}") for i in range(5)] + [
        node("Sum", "y0 y1 y2 y3 y4", "y")],
    'note: what is read at a negative position is 0, where ONNX counts from the end: node '
    '"table0", node "table1", node "table2" and 2 more'))
each("lookup_of_places", lambda: looked_up([
    node("ArgMax", "x", "a", axis=0, keepdims=1), node("Mod", "at five", "m"),
    node("ReduceMax", "m", "top", keepdims=1), node("Add", "a top", "b"),
    node("Min", "b five", "c"), node("Gather", "x c", "y", axis=1)], ""))
each("lookup_of_floors", lambda: looked_up([
    node("Relu", "at", "r"), node("Floor", "r", "f"), node("Cast", "f", "i", to=I64),
    node("Gather", "x i", "y")], "", value("at", [3])))
each("lookup_of_top_places", lambda: looked_up([
    node("TopK", "x two", "v i", axis=0), node("Gather", "x i", "y")], ""))
each("lookup_of_top_values", lambda: looked_up([
    node("Cast", "x", "n", to=I64), node("TopK", "n two", "v i", axis=0),
    node("Gather", "x v", "y")], "note: what is read at a negative position is 0, where ONNX "
    'counts from the end: node of output "y"'))
each("lookup_of_bytes", lambda: looked_up(
    [node("Cast", "at", "i", to=I64), node("Gather", "x i", "y")], "",
    value("at", [3], TensorProto.UINT8)))
