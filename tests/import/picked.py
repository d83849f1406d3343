"""Cases of rows that a condition picks at run time: NonZero, Compress, x[mask], routed experts."""
import numpy as np
from onnx import TensorProto

from cases import F, Case, case, const, each, ints, model, node, value, weight

BOOL = TensorProto.BOOL
NOTE = "note: all rows are computed where a condition picks some, which are selected after it: "
X = np.float32([[0.5, -2, 1], [-1, 3, 0.25], [2, 0.5, -0.5], [-3, -1, 4], [1.5, 2, -1]])


def rows(nodes, inits=(), given=None, **more):
    """`at` [P,1] are the rows of x [5,3] whose first number is positive, `r` [P,3] those rows."""
    picks = [node("Slice", "x zero one one", "first"), node("Squeeze", "first one", "column"),
             node("Greater", "column nought", "is"), node("NonZero", "is", "z"),
             node("Transpose", "z", "at", perm=[1, 0]), node("GatherND", "x at", "r")]
    inits = [ints("zero", 0), ints("one", 1), const("nought", np.float32(0))] + list(inits)
    return Case(model(picks + nodes, {"x": [5, 3]}, "y", inits), inputs=given or {"x": X}, **more)


def refused(name, why, nodes, inits=()):
    each("picked_refused_" + name, lambda: rows(nodes, inits, code=4, text=why))


def router(tokens, size, experts, k):
    """As transformers exports it: mask [experts,k,tokens] says of whom a token is which choice."""
    mask = [node("MatMul", "x gate", "score"), node("Softmax", "score", "soft", axis=-1),
            node("TopK", "soft k", "top which", axis=-1),
            node("OneHot", "which experts values", "hot", axis=-1),
            node("Transpose", "hot", "mask", perm=[2, 1, 0])]
    inits = [weight("gate", size, experts), ints("k", k), const("experts", np.int64(experts)),
             ints("values", 0, 1), ints("zero", 0), ints("halves", 1, 1), ints("minus", -1),
             ints("flat", -1, size), const("none", np.zeros([tokens, size], np.float32))]
    return mask, inits


def expert(e, size, hidden):
    """Tokens t<e>, ranks i<e> and what the expert makes of them, by its weights: o<e>."""
    nodes = [node("Gather", f"mask e{e}", f"of{e}", axis=0), node("NonZero", f"of{e}", f"z{e}"),
             node("Split", f"z{e} halves", f"ri{e} rt{e}", axis=0),
             node("Squeeze", f"ri{e} zero", f"i{e}"), node("Squeeze", f"rt{e} zero", f"t{e}"),
             node("Unsqueeze", "x zero", f"x{e}"), node("Gather", f"x{e} t{e}", f"p{e}", axis=1),
             node("Reshape", f"p{e} flat", f"r{e}"), node("MatMul", f"r{e} up{e}", f"u{e}"),
             node("Sigmoid", f"u{e}", f"s{e}"), node("Mul", f"u{e} s{e}", f"h{e}"),
             node("MatMul", f"h{e} down{e}", f"d{e}"),
             node("Unsqueeze", f"t{e} minus", f"ct{e}"), node("Unsqueeze", f"i{e} minus", f"ci{e}"),
             node("Concat", f"ct{e} ci{e}", f"pair{e}", axis=-1),
             node("GatherND", f"top pair{e}", f"w{e}"), node("Unsqueeze", f"w{e} minus", f"v{e}"),
             node("Mul", f"d{e} v{e}", f"o{e}")]
    return nodes, [const(f"e{e}", np.int64(e)), weight(f"up{e}", size, hidden),
                   weight(f"down{e}", hidden, size)]


@case
def picked_experts():
    """Added at their tokens, by rows of places or by a place of each element."""
    nodes, inits = router(7, 8, 3, 2)
    last = "none"
    for e in range(3):
        own, more = expert(e, 8, 12)
        nodes += own
        inits += more
        if e == 1:
            nodes += [node("Shape", f"o{e}", "size"), node("Expand", f"ct{e} size", "all"),
                      node("ScatterElements", f"{last} all o{e}", f"f{e}", axis=0,
                           reduction="add")]
        else:
            nodes += [node("ScatterND", f"{last} ct{e} o{e}", f"f{e}", reduction="add")]
        last = f"f{e}"
    nodes += [node("Identity", last, "y")]
    said = NOTE + ", ".join(f'node of output "z{e}"' for e in range(3))
    return Case(model(nodes, {"x": [7, 8]}, "y", inits, 18), text="MatMul(r0.rows, up0)",
                said=said, not_text="Gather(")


@case
def picked_experts_written():
    """Not added: of the ranks of a token the last one that is picked is written."""
    nodes, inits = router(7, 8, 3, 2)
    own, more = expert(1, 8, 12)
    nodes += own + [node("ScatterND", "none ct1 o1", "y")]
    return Case(model(nodes, {"x": [7, 8]}, "y", inits + more, 18))


for op, what in (("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "max"),
                 ("ReduceMin", "min"), ("ReduceProd", "product"), ("ReduceSumSquare", "squares"),
                 ("ReduceL2", "length")):
    def reduces(op=op):
        """Over rows of places that are no numbers where they are not picked, and never show."""
        last = node(op, "b axes", "y") if op == "ReduceSum" else node(op, "b", "y", axes=[0],
                                                                      keepdims=0)
        return rows([node("Sqrt", "column", "root"), node("Mul", "r c", "a"),
                     node("Squeeze", "at one", "flat"), node("Gather", "root flat", "own"),
                     node("Unsqueeze", "own one", "d"), node("Div", "a d", "b"), last],
                    inits=[const("c", np.float32([0.5, 2, 1.5])), ints("axes", 0, 1)])
    each(f"picked_{what}", reduces)


@case
def picked_sum_of_none():
    return rows([node("ReduceSum", "r zero", "y", keepdims=0)], given={"x": -np.abs(X)})


@case
def picked_numbers():
    """How many there are, as a number and in shapes."""
    return rows([node("Shape", "r", "shape"), node("Gather", "shape zero", "count"),
                 node("Cast", "count", "n", to=F), node("ReduceSum", "r zero", "s", keepdims=0),
                 node("Div", "s n", "a"), node("Concat", "count three one", "to", axis=0),
                 node("Reshape", "r to", "b"), node("Squeeze", "b two", "c"),
                 node("ConstantOfShape", "shape", "d", value=const("v", np.float32([2]))),
                 node("Mul", "c d", "e"), node("ReduceSum", "e zero", "f", keepdims=0),
                 node("Size", "r", "size"), node("Cast", "size", "g", to=F),
                 node("Add", "a f", "h"), node("Reshape", "r minus", "i"),
                 node("ReduceMean", "i", "j", axes=[0]), node("Add", "h j", "k"),
                 node("Sub", "k one_", "y")],
                inits=[ints("three", 3), ints("two", 2), ints("minus", -1),
                       const("one_", np.float32(1))], not_text="?")


@case
def picked_rows_written():
    """x[mask] = 2 x[mask] + 1, then what is not picked, by another spelling of the mask."""
    return rows([node("Mul", "r two", "a"), node("Add", "a bias", "b"),
                 node("ScatterND", "x at b", "c"), node("Not", "is", "other"),
                 node("Unsqueeze", "other one", "wide"), node("Shape", "x", "size"),
                 node("Expand", "wide size", "all"), node("NonZero", "all", "zz"),
                 node("Transpose", "zz", "places", perm=[1, 0]), node("NonZero", "other", "zo"),
                 node("Transpose", "zo", "ao", perm=[1, 0]), node("GatherND", "c ao", "ro"),
                 node("Relu", "ro", "d"), node("Reshape", "d minus", "e"),
                 node("Shape", "places", "shape"), node("Gather", "shape zero", "count"),
                 node("Slice", "e zero count zero", "f"), node("ScatterND", "c places f", "y")],
                inits=[const("two", np.float32(2)), const("bias", np.float32([1, 2, 3])),
                       ints("minus", -1)])


@case
def picked_rows_filled():
    return rows([node("Shape", "r", "size"), node("Expand", "value size", "v"),
                 node("ScatterND", "x at v", "y")], inits=[const("value", np.float32(7))])


@case
def picked_rows_handed_out():
    """masked_scatter: the first rows of another tensor go where the mask is."""
    nodes = [node("Greater", "x nought", "is"), node("NonZero", "is", "z"),
             node("Transpose", "z", "at", perm=[1, 0]), node("Reshape", "w minus", "flat"),
             node("Shape", "at", "shape"), node("Gather", "shape zero", "count"),
             node("Slice", "flat zero count zero", "s"), node("ScatterND", "x at s", "y")]
    return Case(model(nodes, {"x": [5, 3], "w": [4, 3]}, "y",
                      [const("nought", np.float32(0)), ints("minus", -1), ints("zero", 0)]),
                inputs={"x": X, "w": np.arange(12, dtype=np.float32).reshape(4, 3)})


@case
def picked_row_by_number():
    return rows([node("Gather", "r zero_", "a", axis=0), node("Gather", "r two", "b", axis=0),
                 node("Sub", "a b", "y")], inits=[const("zero_", np.int64(0)), ints("two", 2)])


@case
def picked_parts():
    """As many as are picked of these inputs, as unrolled loops over experts have them."""
    return rows([node("Split", "at ones", "a b c", axis=0),
                 node("Squeeze", "b axes", "second"), node("Gather", "x second", "s", axis=0),
                 node("Gather", "w second", "t", axis=0), node("Add", "s t", "u"),
                 node("Gather", "x rest", "v", axis=0), node("Mul", "u v", "y")],
                inits=[weight("w", 5, 3), ints("axes", 0, 1), ints("ones", 1, 1, 1),
                       const("rest", np.int64(3))], text="LessOrEqual(")


@case
def picked_normed():
    """What works row by row: norms, softmax, shapes, places of tables, halves of a row."""
    return rows([node("LayerNormalization", "r g b", "n", axis=-1), node("Softmax", "n", "s"),
                 node("Transpose", "s", "t", perm=[1, 0]), node("Slice", "t zero two zero", "u"),
                 node("Transpose", "u", "v"), node("ReduceMax", "v", "m", axes=[1], keepdims=1),
                 node("Sub", "v m", "c"), node("ArgMax", "r", "p", axis=1, keepdims=0),
                 node("Gather", "table p", "q", axis=0), node("Gemm", "c w q", "o", transB=1),
                 node("Unsqueeze", "o zero", "e"), node("ReduceSum", "e one", "y")],
                inits=[ints("two", 2), weight("g", 3), weight("b", 3), weight("table", 3, 4),
                       weight("w", 4, 2)])


@case
def picked_compress():
    made = model([node("Compress", "x is", "a", axis=1), node("ReduceMean", "a", "b", axes=[1]),
                  node("Less", "x one", "few"), node("Reshape", "few minus", "f"),
                  node("Compress", "x f", "c"), node("ReduceSum", "c", "d", keepdims=0),
                  node("Mul", "b d", "y")], {"x": [4, 5], "is": value("is", [3], BOOL)}, "y",
                 [const("one", np.float32(0.5)), ints("minus", -1)])
    return Case(made, inputs={"is": np.array([True, False, True])})


@case
def picked_by_numbers():
    """Any number but 0 picks, and what is picked may be numbers that positions count on."""
    nodes = [node("Relu", "x", "some"), node("NonZero", "some", "z"),
             node("Gather", "z one", "column", axis=0), node("Gather", "z zero", "row", axis=0),
             node("Mul", "row by", "steps"), node("Add", "steps column", "at"),
             node("Mod", "at two", "odd"), node("Cast", "odd", "f", to=F),
             node("Gather", "table at", "t", axis=0), node("Mul", "f t", "p"),
             node("ReduceSum", "p", "y", keepdims=0)]
    return Case(model(nodes, {"x": [5, 3]}, "y",
                      [const("zero", np.int64(0)), const("one", np.int64(1)),
                       const("by", np.int64(3)), const("two", np.int64(2)), weight("table", 15)]),
                inputs={"x": X / 4})


@case
def picked_of_batches():
    """The size of a condition is part of the places: the model is imported for it alone."""
    made = model([node("Greater", "x nought", "is"), node("NonZero", "is", "z"),
                  node("Transpose", "z", "at", perm=[1, 0]), node("GatherND", "x at", "r"),
                  node("Exp", "r", "e"), node("ScatterND", "x at e", "y")], {"x": ["n", 3]}, "y",
                 [const("nought", np.float32(0))])
    return Case(made, args=["--dim", "n=4"], text="input x: f32[4,3]")


refused("output", ["an output of the model has sizes", '--end "is"'], [node("Relu", "r", "y")])
refused("softmax", "it mixes those that are picked",
        [node("Softmax", "r", "s", axis=0), node("ReduceSum", "s zero", "y")])
refused("product", "it mixes those that are picked",
        [node("Transpose", "r", "t"), node("MatMul", "t w", "y")],
        inits=[const("w", np.ones([3, 2], np.float32))])
refused("operator", "it is not read on such rows", [node("CumSum", "r zero", "y")])
refused("beside", "beside them stand 3 rows", [node("Add", "r w", "s"),
                                               node("ReduceSum", "s zero", "y")],
        inits=[const("w", np.ones([3, 3], np.float32))])
refused("others", "others are picked by node", [
    node("Less", "column nought", "no"), node("NonZero", "no", "zn"),
    node("Transpose", "zn", "an"), node("GatherND", "x an", "q"), node("Add", "r q", "s"),
    node("ReduceSum", "s zero", "y")])
refused("size", "how many rows are picked", [node("Shape", "r", "s"), node("Cast", "s", "y", to=F)])
refused("shape", "a shape in which its rows are not found",
        [node("Reshape", "r two", "s"), node("ReduceSum", "s", "y")], inits=[ints("two", 3, 3)])
refused("places", "several may go to one place", [
    node("Div", "at two", "same"), node("ScatterND", "x same r", "y")], inits=[ints("two", 2)])


@case
def picked_rows_to_one_place():
    return rows([node("Mul", "at zero", "same"), node("ScatterND", "x same r", "y")])
