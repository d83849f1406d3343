"""Cases of MaxPool with indices of the maxima, and of what puts elements back by them."""
import numpy as np

from cases import I64, Case, each, ints, model, node, value, weight
from places import typed


def indices(x, inputs=None, opset=12, both=True, **attrs):
    m = model([node("MaxPool", "x", "y i" if both else "_ i", **attrs)], {"x": list(x)},
              "y i" if both else "i", opset=opset)
    return Case(typed(m, i=I64), inputs=inputs)


# Numbers of which many are equal: the first one of a window counts.
TIES = np.random.default_rng(4).integers(-2, 3, (2, 3, 7, 8)).astype(np.float32)
for name, attrs in (("plain", {"kernel_shape": [2, 2], "strides": [2, 2]}),
                    ("uneven", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
                    ("ceiling", {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
                    ("dilated", {"kernel_shape": [2, 3], "dilations": [3, 2],
                                 "pads": [0, 2, 1, 1]}),
                    ("same", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
                    ("apart", {"kernel_shape": [1, 2], "strides": [3, 4]})):
    each("pool_indices_" + name, lambda a=attrs: indices([2, 3, 7, 8], {"x": TIES}, **a))
    each("pool_indices_by_columns_" + name, lambda a=attrs: indices(
        [2, 3, 7, 8], storage_order=1, **a))
each("pool_indices_of_a_line", lambda: indices([2, 3, 9], kernel_shape=[3], strides=[2],
                                               pads=[1, 1]))
each("pool_indices_of_volumes", lambda: indices([1, 2, 4, 5, 6], kernel_shape=[2, 3, 2],
                                                strides=[2, 1, 2], pads=[0, 1, 0, 0, 1, 1]))
each("pool_indices_alone", lambda: indices([1, 2, 4, 6], kernel_shape=[2, 2], both=False))


def unpooled(x, pool, unpool, shape=None, **more):
    """An encoder and a decoder, as segmentation has them."""
    nodes = [node("MaxPool", "x", "p i", **pool), node("Tanh", "p", "t"),
             node("Identity", "i", "at"),
             node("MaxUnpool", "t at" + (" s" if shape else ""), "u", **unpool),
             node("Relu", "u", "y")]
    return Case(model(nodes, {"x": x}, inits=[ints("s", *shape)] if shape else []), **more)


HALF = {"kernel_shape": [2, 2], "strides": [2, 2]}
each("max_unpool", lambda: unpooled([2, 3, 6, 8], HALF, HALF, text="Where("))
each("max_unpool_to_shape", lambda: unpooled([1, 2, 6, 8], HALF, HALF, [1, 2, 6, 8]))
each("max_unpool_of_volumes", lambda: unpooled(
    [2, 2, 4, 6, 3], *[{"kernel_shape": [2, 3, 1], "strides": [2, 3, 1]}] * 2))
each("max_unpool_padded", lambda: unpooled(
    [1, 2, 5, 7], *[{"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 0, 1]}] * 2))
each("max_unpool_of_a_line", lambda: unpooled([2, 3, 9], *[{"kernel_shape": [3], "strides": [3]}]
                                              * 2))
OTHER = "MaxUnpool whose indices are not those of a MaxPool with its windows"
each("max_unpool_overlapping", lambda: unpooled(
    [1, 2, 7, 7], *[{"kernel_shape": [3, 3], "strides": [2, 2]}] * 2, code=4, text=OTHER))
each("max_unpool_other_windows", lambda: unpooled(
    [1, 2, 6, 6], HALF, {"kernel_shape": [3, 3], "strides": [3, 3]}, code=4, text=OTHER))
each("max_unpool_short", lambda: unpooled([1, 2, 7, 6], HALF, HALF, code=4, text=OTHER))
each("max_unpool_by_columns", lambda: unpooled([1, 2, 6, 6], {**HALF, "storage_order": 1}, HALF,
                                               code=4, text=OTHER))
each("max_unpool_of_inputs", lambda: Case(
    model([node("MaxUnpool", "x i", **HALF)],
          {"x": [1, 1, 2, 2], "i": value("i", [1, 1, 2, 2], I64)}), code=4, text=OTHER))

# JAX has windows over all axes of a tensor, of which most are 1; onnxruntime pools three.
WIDE = {"kernel_shape": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "pads": [0, 1, 0, 0, 0, 1, 1, 0]}
FLAT = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


def pooled_over_all(op, batch=2, **attrs):
    """x [N,C,A,H,W,B] pooled along H and W."""
    wide = model([node(op, "x", **WIDE, **attrs)], {"x": value("x", [batch, 3, 2, 7, 6, 5])})
    flat = model([node("Transpose", "x", "t", perm=[0, 2, 5, 1, 3, 4]),
                  node("Reshape", "t s", "r"), node(op, "r", "p", **FLAT, **attrs),
                  node("Reshape", "p back", "b"),
                  node("Transpose", "b", perm=[0, 3, 1, 4, 5, 2])],
                 {"x": [2, 3, 2, 7, 6, 5]},
                 inits=[ints("s", -1, 3, 7, 6), ints("back", 2, 2, 5, 3, 4, 6)])
    return Case(wide, reference=flat)


for kind in ("MaxPool", "AveragePool"):
    each("axes_aside_" + kind, lambda k=kind: pooled_over_all(k))
    each("axes_aside_ceiling_" + kind, lambda k=kind: pooled_over_all(k, ceil_mode=1))
each("axes_aside_counted", lambda: pooled_over_all("AveragePool", count_include_pad=1))


def convolved(x, w, bias=False, **attrs):
    inits = [weight("w", *w)] + ([weight("b", w[0])] if bias else [])
    return Case(model([node("Conv", "x w b" if bias else "x w", **attrs)],
                      {"x": value("x", x)}, inits=inits))


each("axes_aside_conv", lambda: convolved(["N", 2, 2, 5, 6, 3], [4, 2, 1, 3, 2, 1], True,
                                          strides=[1, 2, 1, 1], pads=[0, 1, 0, 0, 0, 1, 1, 0]))
each("axes_aside_conv_in_groups", lambda: convolved(
    [2, 4, 3, 2, 5, 6], [6, 2, 1, 1, 3, 2], group=2, dilations=[1, 1, 1, 2]))
each("axes_aside_conv_of_nothing", lambda: convolved([1, 2, 3, 2, 2, 3], [3, 2, 1, 1, 1, 1]))
each("axes_too_many", lambda: Case(
    model([node("MaxPool", "x", kernel_shape=[2, 2, 2, 2])], {"x": [1, 1, 4, 4, 4, 4]}), code=4,
    text="x has rank 6, expected 3 to 5"))
