"""Cases of GridSample and of what else reads images between their pixels."""
import numpy as np

from cases import I64, Case, case, each, ints, model, node, value, weight


def sample(x, grid, inputs=None, **attrs):
    return Case(model([node("GridSample", "x g", "y", **attrs)], {"x": x, "g": grid}, "y",
                      opset=20), inputs=inputs, tolerance=2e-4)


# Grids of normal numbers have a third beyond the border; the far ones are beyond it several times.
FAR = np.random.default_rng(3).uniform(-7, 7, (2, 6, 5, 2)).astype(np.float32)
EDGES = np.float32([-3, -1.5, -1.25, -1, -0.95, -0.5, 0, 0.5, 0.95, 1, 1.25, 1.5, 3])
EDGES = np.stack(np.broadcast_arrays(EDGES[:, None], EDGES), -1)[None]
for mode in ("linear", "nearest", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            name = f"grid_sample_{mode}_{padding}_{corners}"
            attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            each(name, lambda a=attrs: sample([2, 3, 5, 4], [2, 3, 2, 2], **a))
            each(name + "_far", lambda a=attrs: sample([2, 3, 7, 4], [2, 6, 5, 2], {"g": FAR}, **a))
            each(name + "_edges", lambda a=attrs: sample([1, 2, 4, 6], list(EDGES.shape),
                                                         {"g": EDGES}, **a))
            if mode != "cubic":
                each(name + "_volume", lambda a=attrs: sample([2, 3, 5, 4, 3], [2, 3, 2, 4, 3],
                                                              **a))
each("grid_sample_of_one_pixel", lambda: sample([1, 2, 1, 1], [1, 3, 3, 2], align_corners=1,
                                                padding_mode="reflection"))


@case
def spatial_transformer():
    return Case(model([node("AffineGrid", "t size", "g", align_corners=1),
                       node("GridSample", "x g", "y", align_corners=1)],
                      {"x": value("x", ["N", 2, 6, 5]), "t": value("t", ["N", 2, 3])}, "y",
                      [ints("size", 1, 2, 4, 3)], opset=20))


for corners in (0, 1):
    each(f"spatial_transformer_of_volumes_{corners}", lambda c=corners: Case(
        model([node("AffineGrid", "t size", "g", align_corners=c),
               node("GridSample", "x g", "y", align_corners=c)],
              {"x": value("x", ["N", 2, 6, 5, 4]), "t": value("t", ["N", 3, 4])}, "y",
              [ints("size", 1, 2, 4, 3, 5)], opset=20), tolerance=1e-4))

each("grid_sample_cubic_of_volumes", lambda: Case(
    sample([1, 1, 4, 4, 4], [1, 2, 2, 2, 3], mode="cubic").model, code=4,
    text="GridSample of 5 axes with mode 'cubic'"))
each("grid_sample_unknown", lambda: Case(
    sample([1, 1, 4, 4], [1, 2, 2, 2], padding_mode="wrap").model, code=4,
    text="GridSample with mode 'linear' and padding_mode 'wrap'"))
each("grid_sample_unfit", lambda: Case(
    sample([1, 1, 4, 4], [1, 2, 2, 3]).model, code=3, text="a grid whose shape does not fit"))


# Regions inside, over every border, beyond it, a point, and one with its corners turned.
ROIS = np.float32([[1, 1.5, 5, 6], [-3, -2, 4, 3], [6, 4, 12, 11], [-9, -9, -4, -4], [2, 3, 2, 3],
                   [0, 0, 7, 5], [30, 1, 40, 3], [5, 5, 2, 2]])


def regions(batch=(0, 1, 1, 0, 0, 1, 0, 1), opset=16, shape=(2, 3, 8, 9), **attrs):
    return Case(model([node("RoiAlign", "x r b", "y", **attrs)],
                      {"x": list(shape), "r": [8, 4], "b": value("b", [8], I64)}, "y",
                      opset=opset), inputs={"r": ROIS, "b": np.int64(batch)})


for way in ("half_pixel", "output_half_pixel"):
    each("roi_align_" + way, lambda w=way: regions(
        output_height=3, output_width=2, sampling_ratio=2, coordinate_transformation_mode=w))
    each("roi_align_max_" + way, lambda w=way: regions(
        output_height=2, output_width=4, sampling_ratio=3, mode="max", spatial_scale=0.5,
        coordinate_transformation_mode=w))
each("roi_align_of_opset_10", lambda: regions(opset=10, output_height=7, output_width=7,
                                              sampling_ratio=1, spatial_scale=0.75))
each("roi_align_one", lambda: regions(sampling_ratio=2))
each("roi_align_of_any_number", lambda: Case(
    model([node("RoiAlign", "x r b", "y", sampling_ratio=2, output_width=3)],
          {"x": value("x", ["N", 2, 5, 6]), "r": value("r", ["R", 4]),
           "b": value("b", ["R"], I64)}, "y", opset=16), args=["--dim", "N=2"],
    inputs={"b": np.int64([0])}))
each("roi_align_adaptive", lambda: Case(regions(output_height=2).model, code=4,
                                        text="RoiAlign with sampling_ratio 0: how many pixels"))
each("roi_align_to_nothing", lambda: Case(
    regions(output_height=0, sampling_ratio=1).model, code=3, text="RoiAlign to no pixels"))
each("roi_align_too_large", lambda: Case(
    regions(output_height=1 << 20, sampling_ratio=1 << 20).model, code=4,
    text="RoiAlign of too many pixels"))
each("roi_align_unfit", lambda: Case(
    regions(sampling_ratio=1, shape=(2, 3, 8)).model, code=3, text="whose shapes do not fit"))


def pooled(height, width, batch=(0, 1, 1, 0, 0, 1, 0, 1), **attrs):
    rois = np.concatenate([np.float32(batch)[:, None], ROIS], 1)
    return Case(model([node("MaxRoiPool", "x r", "y", pooled_shape=[height, width], **attrs)],
                      {"x": [2, 3, 8, 9], "r": [8, 5]}, "y"), inputs={"r": rois})


each("max_roi_pool", lambda: pooled(2, 3))
each("max_roi_pool_scaled", lambda: pooled(3, 1, spatial_scale=0.5))
each("max_roi_pool_to_more", lambda: pooled(7, 11))
each("max_roi_pool_of_any_number", lambda: Case(
    model([node("MaxRoiPool", "x r", "y", pooled_shape=[2, 2])],
          {"x": value("x", ["N", 2, 5, 6]), "r": value("r", ["R", 5])}, "y"),
    args=["--dim", "N=2", "--dim", "R=2"], inputs={
        "r": np.float32([[1, 0, 1, 4, 4], [0, 2, 2, 2, 5]])}))
each("max_roi_pool_unfit", lambda: Case(pooled(0, 1).model, code=3, text="to, or from, 0 pixels"))


def deformed(x, filters, kernel, out, group=1, moved=1, bias=True, mask=True, **attrs):
    """`moved`: groups of offsets."""
    inside = moved * kernel[0] * kernel[1]
    inputs = {"x": x, "o": [x[0], 2 * inside, *out], "m": [x[0], inside, *out]}
    if not mask:
        del inputs["m"]
    names = "x w o " + ("b" if bias else "_") + (" m" if mask else "")
    return Case(model([node("DeformConv", names, "y", group=group, offset_group=moved, **attrs)],
                      {k: value(k, v) for k, v in inputs.items()}, "y",
                      [weight("w", filters, x[1] // group, *kernel), weight("b", filters)],
                      opset=19), tolerance=1e-4)


each("deform_conv", lambda: deformed([1, 3, 6, 7], 4, (3, 3), (6, 7), pads=[1, 1, 1, 1]))
each("deform_conv_plain", lambda: deformed([1, 2, 5, 5], 3, (2, 3), (4, 3), bias=False, mask=False))
each("deform_conv_strides", lambda: deformed([2, 2, 9, 8], 2, (3, 2), (5, 3), strides=[2, 3],
                                             pads=[1, 0, 1, 1], dilations=[1, 2],
                                             kernel_shape=[3, 2]))
each("deform_conv_groups", lambda: deformed([2, 8, 5, 6], 6, (3, 3), (5, 6), group=2, moved=4,
                                            pads=[1, 1, 1, 1]))
each("deform_conv_of_any_batch", lambda: deformed(["N", 4, 5, 6], 2, (3, 3), (3, 4), moved=2))
each("deform_conv_unfit", lambda: Case(
    deformed([1, 3, 6, 7], 4, (3, 3), (6, 7)).model, code=3,
    text="DeformConv with inputs whose shapes do not fit"))
each("deform_conv_of_a_line", lambda: Case(model(
    [node("DeformConv", "x w o", "y")], {"x": [1, 3, 6], "o": [1, 6, 4]}, "y",
    [weight("w", 2, 3, 3)], opset=19), code=4, text="DeformConv of 3 axes"))
