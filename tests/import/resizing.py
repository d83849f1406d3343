"""Cases of Resize that are written out: cubic and antialiased weights, kept aspect ratios."""
import numpy as np

from cases import Case, case, const, each, ints, model, node, value


def cubic(scales, opset=13, **attrs):
    return model([node("Resize", "x _ s", "y", mode="cubic", **attrs)], {"x": [1, 2, 5, 6]}, "y",
                 [const("s", np.float32(scales))], opset=opset)


for way in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
    each("cubic_" + way, lambda w=way: Case(
        cubic([1, 1, 2, 1.5], coordinate_transformation_mode=w), tolerance=1e-4))
each("cubic_down", lambda: Case(cubic([1, 1, 0.6, 0.5], cubic_coeff_a=-0.5), tolerance=1e-4))
each("cubic_without_outside", lambda: Case(cubic([1, 1, 2, 2], exclude_outside=1), tolerance=1e-4))


@case
def cubic_to_sizes():
    return Case(model([node("Resize", "x _ _ s", "y", mode="cubic")],
                      {"x": value("x", ["N", 2, 5, 6])}, "y", [ints("s", 1, 2, 11, 9)], opset=13),
                tolerance=1e-4)


def resized(mode, numbers, dims=(1, 2, 9, 11), opset=19, **attrs):
    """`numbers`: scales where they are floats, else sizes."""
    scaled = isinstance(numbers[0], float)
    init = const("s", np.float32(numbers)) if scaled else ints("s", *numbers)
    return model([node("Resize", "x _ s" if scaled else "x _ _ s", "y", mode=mode, **attrs)],
                 {"x": list(dims)}, "y", [init], opset=opset)


for mode in ("linear", "cubic"):
    for name, numbers, attrs in (
            ("half", [1., 1., .5, .5], {}), ("uneven", [1., 1., .6, .37], {}),
            ("up", [1., 1., 2., 1.5], {}), ("both", [1., 1., 1.4, .3], {"exclude_outside": 1}),
            ("sizes", [1, 2, 4, 5], {"coordinate_transformation_mode": "align_corners"}),
            ("one", [1, 2, 1, 1], {}), ("inside", [1, 1, 4, 11], {}),
            ("asymmetric", [1., 1., .3, .4], {"coordinate_transformation_mode": "asymmetric"})):
        each(f"antialias_{mode}_{name}", lambda m=mode, s=numbers, a=attrs: Case(
            resized(m, s, antialias=1, **a), tolerance=1e-5))

for mode in ("linear", "cubic", "nearest"):
    for policy in ("not_larger", "not_smaller"):
        each(f"{policy}_{mode}", lambda m=mode, p=policy: Case(
            resized(m, [5, 4], axes=[2, 3], keep_aspect_ratio_policy=p)))
        each(f"{policy}_{mode}_grows", lambda m=mode, p=policy: Case(
            resized(m, [14, 31], axes=[2, 3], keep_aspect_ratio_policy=p)))
    each("half_pixel_symmetric_" + mode, lambda m=mode: Case(resized(
        m, [1., 1., 1.3, .7], coordinate_transformation_mode="half_pixel_symmetric")))

# Of opsets 11 and 12; TensorFlow's exporter writes it whatever the opset.
for rounding in ("floor", "round_prefer_ceil"):
    for name, numbers in (("up", [1., 1., 2., 1.5]), ("down", [1, 2, 4, 5]), ("by", [1, 2, 20, 7])):
        each(f"nearest_of_tensorflow_{rounding}_{name}", lambda r=rounding, s=numbers: Case(resized(
            "nearest", s, opset=17, coordinate_transformation_mode="tf_half_pixel_for_nn",
            nearest_mode=r)))

# A scale is a float, and so is its product with a size: of 7 / 10 that is 7, of 31 / 7 it is 30.
for mode in ("linear", "cubic", "nearest"):
    for old, new in ((10, 7), (7, 11), (7, 31)):
        each(f"{mode}_by_rounded_scale_{old}_{new}", lambda m=mode, a=old, b=new: Case(
            resized(m, [1., 1., b / a, 1.], dims=(1, 2, a, 3)), tolerance=1e-4))
each("linear_by_no_fraction", lambda: Case(resized("linear", [1., 1., 1.70710678, 1.4142135])))


@case
def image_made_small():
    """As torch exports its antialias=True."""
    return Case(model([node("Resize", "x _ _ s", "r", mode="linear", antialias=1),
                       node("Relu", "r", "y")], {"x": value("x", ["N", 3, 40, 30])}, "y",
                      [ints("s", 1, 3, 7, 6)], opset=18), text="ReduceSum")


each("nearest_in_between", lambda: Case(resized(
    "nearest", [1., 1., .7, 1.3], coordinate_transformation_mode="half_pixel_symmetric",
    nearest_mode="round_prefer_ceil")))
each("antialias_nearest", lambda: Case(resized("nearest", [1., 1., .5, .5], antialias=1), code=3,
                                       text="Resize with antialias and mode 'nearest'"))
each("antialias_of_too_much", lambda: Case(
    resized("linear", [1., 1., 1e-6, 1.], dims=(1, 1, 3000000, 1), antialias=1, opset=18), code=4,
    text="Resize from 3000000 to 3 pixels with too many weights"))
each("linear_without_outside", lambda: Case(
    resized("linear", [1., 1., 2., 2.], exclude_outside=1), code=4,
    text="Resize with exclude_outside in a mode that is not cubic"))
each("aspect_of_nothing", lambda: Case(
    resized("linear", [0, 4], axes=[2, 3], keep_aspect_ratio_policy="not_larger"), code=3,
    text="Resize to a size of 0"))
each("aspect_unknown", lambda: Case(
    resized("linear", [5, 4], axes=[2, 3], keep_aspect_ratio_policy="crop"), code=3,
    text="unknown keep_aspect_ratio_policy 'crop'"))


def cropped(mode, numbers, roi, dims=(1, 2, 9, 11), opset=19, **attrs):
    scaled = isinstance(numbers[0], float)
    init = const("s", np.float32(numbers)) if scaled else ints("s", *numbers)
    return model([node("Resize", "x roi s" if scaled else "x roi _ s", "y", mode=mode,
                       coordinate_transformation_mode="tf_crop_and_resize", **attrs)],
                 {"x": list(dims)}, "y", [init, const("roi", np.float32(roi))], opset=opset)


WHOLE, PART, BEYOND = [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, .2, .1, 1, 1, .7, .9], [
    0, 0, -.2, .4, 1, 1, .7, 1.5]
for mode in ("linear", "cubic", "nearest"):
    for name, roi in (("whole", WHOLE), ("part", PART), ("beyond", BEYOND)):
        # onnxruntime looks for pixels outside behind rounding to the nearest, not before.
        each(f"crop_{mode}_{name}", lambda m=mode, n=name, r=roi: Case(
            cropped(m, [1, 2, 5, 13], r, extrapolation_value=2.5),
            compare=(m, n) != ("nearest", "beyond")))
    each(f"crop_{mode}_axes", lambda m=mode: Case(
        cropped(m, [4, 7], [.1, .2, .8, .7], axes=[3, 2]), compare=m != "cubic"))
each("crop_one", lambda: Case(cropped("linear", [1, 2, 1, 1], PART)))
each("crop_scales", lambda: Case(cropped("linear", [1., 1., 1.5, .9], PART), code=4,
                                 text="give it sizes"))
each("crop_short", lambda: Case(cropped("linear", [1, 2, 5, 5], [0, 1]), code=3,
                                text="does not name two places an axis"))
each("crop_far", lambda: Case(cropped("linear", [1, 2, 5, 5], [0, 0, 0, 0, 1, 1, 1e30, 1]), code=3,
                              text="far outside its input"))
