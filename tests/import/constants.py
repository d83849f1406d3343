"""Cases of constants: masks that become expressions, sizes that are computed at import time."""
import numpy as np

from cases import F, I64, Case, case, const, ints, model, node, value, weight


@case
def masks_are_part_of_the_program():
    """What is 0 or lowest by diagonals is an expression, what may be trained a weight."""
    low = np.finfo(np.float32).min
    i, j = np.ogrid[0:5, 0:7]
    masks = {"causal": np.where(j <= i, 0, low), "behind": np.where(j <= i + 2, -np.inf, 0),
             "window": np.where((j <= i) & (j > i - 3), 0, low), "none": np.zeros((5, 7)),
             "spot": np.where((j <= i) | ((i == 1) & (j == 6)), 0, low),
             "soft": np.where(j <= i, 0, -2.0),
             "lower": np.where(j <= i, 0, -1e4), "twice": np.where(abs(i - j) % 4 < 2, 0, low)}
    nodes, last = [], "x"
    for name in masks:
        nodes.append(node("Add", [last, name], "with_" + name))
        last = "with_" + name
    nodes += [node("Add", [last, "bias"], "biased"), node("Add", "biased places", "all"),
              node("Softmax", "all", "y", axis=-1)]
    consts = [const(k, v[None, None].astype(np.float32)) for k, v in masks.items()]
    consts += [const("bias", np.zeros((5, 7), "f")), const("places", np.zeros((1, 5, 7), "f"))]
    made = model(nodes, {"x": [2, 3, 5, 7]}, "y", consts)
    return Case(made, text=[
        "causal[i0,i1,i2,i3] = select(idx(i3) <= idx(i2), 0, -3.4028235e38)",
        "behind[i0,i1,i2,i3] = select(idx(i3) <= idx(i2) + 2, log(0), 0)", "none[i0,i1,i2,i3] = 0",
        "window[i0,i1,i2,i3] = select(idx(i3) <= idx(i2) - 3, -3.4028235e38, select(",
        "lower[i0,i1,i2,i3] = select(idx(i3) <= idx(i2), 0, -1e4)",
        "weight spot:", "weight soft:", "weight twice:", "weight bias:",
        "weight places:"])


@case
def sizes_by_powers_and_clips():
    """The side of a square, and a border that is cut at 0, as the sizes of other operators."""
    nodes = [node("Pow", "nine half", "side"), node("Cast", "side", "whole", to=I64),
             node("Unsqueeze", "whole axes", "s"), node("Concat", "minus s s", "shape", axis=0),
             node("Reshape", "x shape", "r"), node("Clip", "border zero four", "pads"),
             node("Clip", "depth fzero _", "cut"), node("Cast", "cut", "more", to=I64),
             node("Add", "pads more", "all"), node("Pad", "r all", "y")]
    inits = [const("nine", np.float32(9)), const("half", np.float32(0.5)),
             const("axes", np.int64([0])), const("minus", np.int64([-1])),
             const("border", np.int64([0, -2, 1, 0, 9, 0])), const("zero", np.int64(0)),
             const("four", np.int64(4)), const("fzero", np.float32(0)),
             const("depth", np.float32([0, -1.5, 2, 0, 0, 1]))]
    return Case(model(nodes, {"x": [2, 9]}, "y", inits),
                text=["Reshape(x; shape=[-1,3,3])", "pads=[0,0,3,0,4,1]"])


@case
def sizes_squared():
    """A matrix as one row: its side to a whole power, as an integer and as a float."""
    nodes = [node("Shape", "x", "shape"), node("Slice", "shape one two", "side"),
             node("Pow", "side two", "square"), node("Pow", "side fthree", "cube"),
             node("Concat", "one square", "flat", axis=0), node("Reshape", "x flat", "r"),
             node("Concat", "one cube", "wide", axis=0), node("Expand", "mean wide", "m"),
             node("ReduceSum", "m one", "e"), node("Add", "r e", "y")]
    inits = [const("one", np.int64([1])), const("two", np.int64([2])),
             const("fthree", np.float32(3)), const("mean", np.float32([[0.5]]))]
    return Case(model(nodes, {"x": [1, "N", "N"]}, "y", inits), args=["--dim", "N=3"],
                dims={"N": 2}, text=["shape=[1,N*N]", "N*N*N"])


@case
def masks_of_bools():
    """Bools by diagonals are cast from an expression; what is no expression of places is data."""
    i, j = np.ogrid[0:6, 0:6]
    masks = {"tril": j <= i, "band": abs(i - j) < 2, "all": i + j >= 0,
             "odd": (i + j) % 3 == 1, "lower": np.broadcast_to(j < i - 1, (2, 3, 6, 6))}
    nodes, last = [], "x"
    for name in masks:
        nodes.append(node("Where", [name, last, "low"], "with_" + name))
        last = "with_" + name
    nodes += [node("Not", "tril", "behind"), node("Cast", "behind", "number", to=1),
              node("Mul", [last, "number"], "m"), node("Softmax", "m", "y", axis=-1)]
    consts = [const(k, v) for k, v in masks.items()] + [const("low", np.float32(-9))]
    made = model(nodes, {"x": [2, 3, 6, 6]}, "y", consts)
    return Case(made, text=[
        "tril = Cast(tril.numbers; to=bool)", "= select(idx(i1) <= idx(i0) - 2, 0, select(",
        "all.numbers[i0,i1] = 1 where", "weight odd: bool", "lower = Cast(lower.numbers; to=bool)",
        "number[i0,i1] = select(idx(i1) <= idx(i0), 0, 1)"])


@case
def masks_from_places():
    """A sliding window as exporters make it, of places of rows and keys, too large to be folded:
    these are expressions, and so is what is true of all."""
    n, size = 1030, [1, 1, 1030, 4]
    nodes = [node("Range", "zero n one", "at"), node("Reshape", "at rows", "row"),
             node("Reshape", "at keys", "key"), node("Sub", "row w", "first"),
             node("Greater", "key first", "near"), node("LessOrEqual", "key row", "seen"),
             node("And", "near seen", "both"), node("Expand", "true all", "every"),
             node("And", "every both", "window"), node("Where", "window null low", "mask"),
             node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s"),
             node("Add", "s mask", "t"), node("Softmax", "t", "a", axis=-1),
             node("MatMul", "a v", "y")]
    inits = [const("zero", np.int64(0)), const("n", np.int64(n)), const("one", np.int64(1)),
             const("rows", np.int64([1, 1, -1, 1])), const("keys", np.int64([1, 1, 1, -1])),
             const("w", np.int64(70)), const("true", np.ones((1, 1, 1, 1), bool)),
             const("all", np.int64([1, 1, n, n])), const("null", np.float32(0)),
             const("low", np.finfo(np.float32).min)]
    made = model(nodes, {"q": size, "k": size, "v": size}, "y", inits)
    return Case(made, text=["key.numbers[i0,i1,i2,i3] = idx(i3) where", "idx(i2-70) where",
                            "first = Cast(first.numbers; to=i64)", "every.numbers[i0,i1,i2,i3] = 1",
                            "window = And("])


@case
def buckets_of_distances():
    """A distance's bucket by its logarithm, in the numbers of the model: in exact arithmetic
    log(2) / 2.7725887 * 8 is a little less than 2."""
    nodes = [node("Div", "distance eight", "ratio"), node("Log", "ratio", "far"),
             node("Div", "far span", "part"), node("Mul", "part eight", "place"),
             node("Cast", "place", "bucket", to=I64), node("Cast", "bucket", "number", to=1),
             node("Exp", "number", "e"), node("Sin", "e", "s"), node("Cos", "s", "c"),
             node("Mul", "x number", "z"), node("Add", "z c", "y")]
    inits = [const("distance", np.float32(16)), const("eight", np.float32(8)),
             const("span", np.log(np.float32(16)))]
    return Case(model(nodes, {"x": [2, 3]}, "y", inits),
                text=["number[] = 2", "c[] = 0.62641"])


@case
def filled_with_what_no_source_makes():
    """Infinities, no number and integers beyond 2^52 are data; the lowest number is not."""
    low = np.finfo(np.float32).min
    nodes = [node("ConstantOfShape", "shape", name, value=const("v", np.float32([v])))
             for name, v in {"low": low, "inf": -np.inf, "nan": np.nan}.items()]
    nodes += [node("ConstantOfShape", "shape", "most", value=const("v", np.int64([-2**63]))),
              node("Concat", "x low inf nan", "y", axis=0), node("Concat", "n most", "all", axis=0),
              node("Cast", "all", "m", to=1)]
    made = model(nodes, {"x": [4], "n": value("n", [4], I64)}, "y m",
                 [const("shape", np.int64([4]))])
    return Case(made, text=["low: f32[4] = uniform(seed=0, lo=-3.4028235e38, hi=-3.4028235e38)",
                            "inf: f32[4] = W", "nan: f32[4] = W", "most: i64[4] = W"])


@case
def sizes_with_one_taken_from_elsewhere():
    """The shape that positions are expanded to before rows of a cache are written."""
    nodes = [node("Shape", "x", "wide"), node("Shape", "p", "long"),
             node("ScatterElements", "wide axis long", "shape", axis=0),
             node("Reshape", "p ones", "column"), node("Expand", "column shape", "places"),
             node("ScatterElements", "table at new", "filled", axis=1),
             node("Mul", "x filled", "z"), node("GatherElements", "z places", "y", axis=1)]
    inits = [const("axis", np.int64([-1])), const("ones", np.int64([1, -1])),
             const("table", np.zeros((2, 3), "f")), const("at", np.int64([[2, -3], [1, 2]])),
             const("new", np.float32([[1, 2], [3, 4]]))]
    made = model(nodes, {"x": [2, 3], "p": value("p", [4], I64)}, "y", inits)
    return Case(made, text=["Expand(column; shape=[2,4])", "weight filled: f32[2,3] = W"],
                inputs={"p": np.int64([2, 0, 1, 2])})


@case
def one_hot_of_what_is_known():
    """How often each axis is repeated, as torch's repeat_interleave is exported."""
    nodes = [node("OneHot", "at depth values", "r", axis=-1), node("Reshape", "r four", "n"),
             node("Tile", "x n")]
    return Case(model(nodes, {"x": [2, 3, 1, 5]},
                      inits=[ints("at", -2), const("depth", np.int64(4)), ints("values", 1, 4),
                             ints("four", 4)]), not_text="OneHot")


@case
def one_hot_beyond():
    return Case(model([node("OneHot", "at depth values", "r", axis=0), node("Add", "x r")],
                      {"x": [3, 2, 2]},
                      inits=[const("at", np.array([[0, 3], [-3, -4]], np.int64)),
                             const("depth", np.array([3], np.int64)),
                             const("values", np.array([-1, 0.5], np.float32))]), not_text="OneHot")


@case
def table_cut_to_a_size():
    """Positions up to the length of the input: the table in the text has as many rows."""
    x = value("x", ["N", "T", 4])
    nodes = [node("Shape", "x", "s", start=1, end=2), node("Slice", "table zero s zero", "t"),
             node("Add", "x t")]
    inits = [const("table", np.arange(32, dtype=np.float32).reshape(8, 4)), ints("zero", 0)]
    return Case(model(nodes, {"x": x}, inits=inits), args=["--dim", "N=2", "--dim", "T=3"],
                dims={"N": 5}, text=["dim N = 2\n", "input x: f32[N,3,4]"],
                said="note: the model is imported for T=3 alone, as tensors are made for it: "
                     "import it again for another size")


@case
def places_counted_up_to_a_size():
    """Read at 0, 1 .. of the batch, which the text has as a tensor."""
    nodes = [node("Shape", "x", "s", end=1), node("Squeeze", "s zero", "n"),
             node("Range", "first n step", "at"), node("Gather", "x at")]
    inits = [ints("zero", 0), const("first", np.int64(0)), const("step", np.int64(1))]
    return Case(model(nodes, {"x": value("x", ["N", 4])}, inits=inits), args=["--dim", "N=3"],
                text="input x: f32[3,4]", not_text="dim ")


@case
def sizes_that_halve():
    """Other sizes give other texts where they are odd, as its double does not."""
    x = value("x", [1, 2, "H"])
    return Case(model([node("MaxPool", "x", kernel_shape=[3], strides=[2], auto_pad="SAME_UPPER")],
                      {"x": x}), args=["--dim", "H=8"], dims={"H": 16}, text="dim H = 8")


@case
def mask_read_by_every_batch_and_key():
    """torch indexes masks by grids of both, which read them as they are: for any batch."""
    def grid(at):
        return np.broadcast_to(at, (3, 1, 1, 4))[..., None]
    places = np.concatenate([grid(np.arange(3).reshape(3, 1, 1, 1)), grid(np.arange(4))], -1)
    nodes = [node("Shape", "m", "s", end=1), node("Slice", "grid zero s zero", "places"),
             node("GatherND", "m places", "mask"), node("Add", "x mask")]
    return Case(model(nodes, {"m": value("m", ["N", 4]), "x": value("x", ["N", 2, 5, 4])},
                      inits=[const("grid", places.astype(np.int64)), ints("zero", 0)]),
                args=["--dim", "N=2"], dims={"N": 3}, text="mask = Unsqueeze(m; axes=[1,2])")


@case
def rows_read_in_another_order():
    places = np.stack(np.meshgrid(np.arange(4), np.arange(3)[::-1], indexing="ij"), -1)[:, :, ::-1]
    return Case(model([node("GatherND", "m places")], {"m": [3, 4, 2]},
                      inits=[const("places", np.ascontiguousarray(places))]))


@case
def sizes_that_must_agree():
    """Each alone can have no other value, both together can."""
    given = {"x": value("x", ["N", 4]), "z": value("z", ["M", 4])}
    return Case(model([node("Add", "x z")], given), args=["--dim", "N=2", "--dim", "M=2"],
                dims={"N": 5, "M": 5}, text="dim N = 2, M = 2\n")


@case
def size_named_as_another_becomes():
    given = {"x": value("x", ["a b", 4]), "z": value("z", ["a_b", 4])}
    return Case(model([node("Concat", "x z", axis=0)], given), dims={"a_b": 4, "a_b_": 1},
                args=["--dim", "a b=2", "--dim", "a_b=3"], text="dim a_b = 2, a_b_ = 3\n")


@case
def sizes_through_floats():
    """As torch writes padding to a multiple of 4: sizes as floats, and the largest of them."""
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "f", to=F),
             node("ReduceMax", "f", "most", keepdims=0), node("ReduceMin", "f", "least", axes=[0]),
             node("Div", "most four", "q"), node("Ceil", "q", "c"), node("Mul", "c four", "up"),
             node("Sub", "up f", "g"), node("Mul", "least nought", "z"),
             node("Cast", "g", "more", to=I64), node("Concat", "none more", "pads", axis=0),
             node("Pad", "x pads", "p"), node("Add", "p z", "y")]
    inits = [const("four", np.float32(4)), const("nought", np.float32(0.5)), ints("none", 0, 0)]
    return Case(model(nodes, {"x": [5, 6]}, "y", inits, 13), text="pads=[0,0,3,2]")


@case
def shapes_of_a_long_chain():
    """Every shape is asked for, for several sizes: each question is about what is near alone."""
    nodes, last = [], "x"
    for i in range(1200):
        nodes += [node("Conv", f"{last} w", f"c{i}", pads=[1, 1]), node("Shape", f"c{i}", f"s{i}"),
                  node("Reshape", f"c{i} flat", f"f{i}"), node("Softmax", f"f{i}", f"m{i}", axis=1),
                  node("Reshape", f"m{i} s{i}", f"r{i}")]
        last = f"r{i}"
    nodes.append(node("Relu", last, "y"))
    return Case(model(nodes, {"x": value("x", ["N", 1, "L"])}, "y",
                      [weight("w", 1, 1, 3), ints("flat", 0, -1)], 13),
                args=["--dim", "N=2", "--dim", "L=4"], text="r0 = Reshape(m0; shape=[N,1,4])",
                compare=False)


@case
def sizes_that_do_not_fit_are_tried_quietly():
    """Halves of a skip connection agree for even sizes alone: odd ones were tried, and are no fault
    of the model."""
    nodes = [node("Conv", "x w", "a", strides=[2], pads=[1, 1]), node("Shape", "a", "s"),
             node("Resize", "a _ twice", "b", mode="nearest"),
             node("Concat", "x b", "c", axis=1), node("Shape", "c", "t"),
             node("Gather", "t two", "l"), node("Concat", "n ch l", "to", axis=0),
             node("Reshape", "c to", "y")]
    return Case(model(nodes, {"x": value("x", [1, 1, "L"])}, "y",
                      [weight("w", 1, 1, 3), const("twice", np.float32([1, 1, 2])), ints("two", 2),
                       ints("n", 1), ints("ch", 2)], 13), args=["--dim", "L=6"],
                said="note: the model is imported for L=6 alone, as tensors are made for it: "
                     "import it again for another size")


@case
def sizes_by_sums_so_far():
    """As torch repeats rows by known counts: the last of the sums so far is the number of rows."""
    nodes = [node("CumSum", "counts zero", "ends"), node("CumSum", "counts zero", "begins",
                                                         exclusive=1),
             node("CumSum", "counts zero", "left", reverse=1),
             node("CumSum", "counts zero", "behind", reverse=1, exclusive=1),
             node("Gather", "ends minus", "all"), node("Squeeze", "all zero", "rows"),
             node("Range", "none rows one", "row"), node("Unsqueeze", "ends minus", "column"),
             node("Less", "row column", "before"), node("Cast", "before", "counted", to=I64),
             node("ReduceSum", "counted zero", "over", keepdims=0), node("Sub", "three over", "at"),
             node("Gather", "x at", "picked", axis=1),
             node("Concat", "begins left behind", "sums", axis=0), node("Cast", "sums", to=F)]
    return Case(model(nodes, {"x": [2, 3, 4]}, "picked y", [
        ints("counts", 1, 2, 3), ints("zero", 0), ints("minus", -1), ints("three", 3),
        const("none", np.int64(0)), const("one", np.int64(1))]),
        inputs={"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)})


@case
def sizes_that_are_repeated():
    """As torch writes tensor_split: so many parts of one size, so many of the other, or none."""
    nodes = [node("Tile", "small none", "a"), node("Tile", "large twice", "b"),
             node("Concat", "a b", "parts", axis=0), node("SplitToSequence", "x parts", "s"),
             node("SequenceAt", "s one", "y"), node("Tile", "square times", "z")]
    return Case(model(nodes, {"x": [6]}, "y z", [
        ints("small", 2), ints("none", 0), ints("large", 3), ints("twice", 2),
        const("one", np.int64(1)), ints("times", 2, 3),
        const("square", np.float32([[1, 2], [3, 4]]))]), text="starts=[3], ends=[6]")


def frames(args=()):
    """A mask of sequences whose lengths are an input: as many places as the longest has."""
    nodes = [node("ReduceMax", "n", "most", keepdims=0), node("Range", "zero most one", "at"),
             node("Unsqueeze", "n last", "column"), node("Less", "at column", "is"),
             node("Where", "is x zeros", "y")]
    return model(nodes, {"x": [2, 5], "n": value("n", [2], I64)}, "y", [
        ints("last", -1), const("zero", np.int64(0)), const("one", np.int64(1)),
        const("zeros", np.float32(0))])


@case
def sizes_by_values_of_an_input():
    return Case(frames(), code=4, text=["'Range'", 'makes an input known, as --const "n=FILE.npy"'])


@case
def sizes_by_values_of_an_input_that_is_known():
    return Case(frames(), args=["--const", "n=n.npy"], files={"n.npy": np.int64([5, 3])},
                inputs={"n": np.int64([5, 3])})
