"""Cases of what is written out as a sum or a product: blocks that overlap, Fourier transforms."""
import numpy as np

from cases import Case, case, const, each, ints, model, node, value


def col2im(image, block, x, **attrs):
    return model([node("Col2Im", "x image block", "y", **attrs)], {"x": x}, "y",
                 [ints("image", *image), ints("block", *block)], opset=18)


each("col2im_plain", lambda: Case(col2im([5, 4], [1, 4], [1, 4, 5]), text=" = sum(r0,r1) "))
each("col2im_strides", lambda: Case(
    col2im([9, 8], [3, 3], [2, 18, 20], strides=[2, 2], pads=[1, 1, 1, 1]),
    text="* [(i2+1-r0)%2 == 0]"))
each("col2im_dilations", lambda: Case(
    col2im([9, 6], [3, 2], [1, 6, 20], strides=[1, 2], dilations=[2, 1], pads=[0, 1, 0, 1]),
    text="i2-2*r0,"))
each("col2im_line", lambda: Case(col2im([11], [4], [1, 8, 4], strides=[2], pads=[0, 0])))
each("col2im_batch", lambda: Case(col2im([4, 4], [2, 2], value("x", ["N", 8, 9])), dims={"N": 3}))
each("col2im_wrong", lambda: Case(col2im([4, 4], [2, 2], [1, 8, 8]), code=3,
                                  text="whose blocks do not make up its input"))
each("col2im_huge", lambda: Case(col2im([2 ** 31 - 1] * 2, [2 ** 31 - 1] * 2, [1, 8, 8]), code=3,
                                 text="whose blocks do not make up its input"))
each("col2im_negative", lambda: Case(col2im([4, -4], [2, 2], [1, 8, 8]), code=4,
                                     text="whose image_shape is not known or not usable"))


def dft(x, opset=17, length=None, **attrs):
    inits = [] if length is None else [const("len", np.int64(length))]
    axis = attrs.pop("axis_input", None)
    names = "x" + (" len" if inits else " _" if axis is not None else "")
    if axis is not None:
        inits.append(const("axis", np.int64(axis)))
    return model([node("DFT", names + (" axis" if axis is not None else ""), "y", **attrs)],
                 {"x": x}, "y", inits, opset=opset)


for parts in (1, 2):
    each(f"dft_{parts}", lambda p=parts: Case(dft([2, 6, p]), tolerance=1e-4))
    each(f"dft_inverse_{parts}", lambda p=parts: Case(dft([2, 7, p], inverse=1), tolerance=1e-4))
    each(f"dft_middle_{parts}", lambda p=parts: Case(dft([2, 3, 4, 5, p], axis=2),
                                                     tolerance=1e-4))
    each(f"dft_longer_{parts}", lambda p=parts: Case(dft([2, 6, p], length=9), tolerance=1e-4))
    each(f"dft_shorter_{parts}", lambda p=parts: Case(dft([2, 6, p], length=4), tolerance=1e-4))
for size in (6, 7):
    each(f"dft_onesided_{size}", lambda s=size: Case(dft([2, s, 3, 1], onesided=1),
                                                     tolerance=1e-4))
each("dft_axis_input", lambda: Case(dft([2, 3, 4, 2], opset=20, axis_input=-3), tolerance=1e-4))
each("dft_default_axis", lambda: Case(dft([2, 3, 4, 1], opset=20), tolerance=1e-4))
each("dft_batch", lambda: Case(dft(value("x", ["N", 6, 1])), dims={"N": 3}, tolerance=1e-4))
each("dft_1024", lambda: Case(dft([1, 1024, 2, 1], onesided=1), tolerance=1e-3))
each("dft_inverse_4096", lambda: Case(dft([1, 16, 2], length=4096, inverse=1), tolerance=1e-4))
each("dft_too_long", lambda: Case(dft([1, 40, 1], length=2 ** 20), code=4,
                                  text="of length 1048576, whose matrix would be too large"))
each("dft_of_three", lambda: Case(dft([1, 3, 3]), code=3, text="real or complex"))


def stft(x, window, step=4, length=None, **attrs):
    inits = [const("step", np.int64(step))]
    inits += [const("w", np.float32(window))] if window is not None else []
    inits += [const("len", np.int64(length))] if length else []
    names = "x step " + ("w" if window is not None else "_") + (" len" if length else "")
    return model([node("STFT", names, "y", **attrs)], {"x": x}, "y", inits)


@case
def stft_of_a_signal():
    return Case(stft(value("x", ["N", 50, 1]), np.hanning(16)), dims={"N": 2}, tolerance=1e-4)


each("stft_both_sides", lambda: Case(stft([2, 33, 1], np.hamming(9), 3, 9, onesided=0),
                                     tolerance=1e-4))
each("stft_1024", lambda: Case(stft([1, 1300, 1], np.hanning(1024), 256), tolerance=1e-3))
each("stft_no_frame", lambda: Case(stft([1, 9, 1], None), code=4, text="an unusable frame"))


def window(op, size, **attrs):
    nodes = [node(op, "size", "w", **attrs), node("Mul", "x w")]
    return model(nodes, {"x": [2, size]}, "y", [const("size", np.int64(size))])


for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    for periodic in (0, 1):
        each(f"{op}_{periodic}", lambda op=op, p=periodic: Case(window(op, 10, periodic=p)))
each("window_of_one", lambda: Case(window("HannWindow", 1, periodic=0), code=4,
                                   text="of this size or type"))
each("window_of_integers", lambda: Case(window("HannWindow", 8, output_datatype=6), code=4,
                                        text="of this size or type"))
each("window_too_long", lambda: Case(
    model([node("HannWindow", "size", "w"), node("Mul", "x w")], {"x": [2, 1]}, "y",
          [const("size", np.int64(2 ** 40))]), code=4, text="of this size or type"))
each("center_crop_of_a_batch", lambda: Case(
    model([node("CenterCropPad", "x to", axes=[-1, 1])], {"x": value("x", ["N", 5, 4])}, "y",
          [ints("to", 9, 2)], opset=18), dims={"N": 3}, text="axes=[1])"))
each("center_crop_of_the_batch", lambda: Case(
    model([node("CenterCropPad", "x to")], {"x": value("x", ["N", 5])}, "y",
          [ints("to", 9, 2)], opset=18), code=4, text="CenterCropPad of an axis to 9"))
each("center_crop_to_nothing", lambda: Case(
    model([node("CenterCropPad", "x to")], {"x": [3, 5]}, "y",
          [ints("to", 3, -2 ** 63)], opset=18), code=4, text="CenterCropPad of an axis to -9"))
each("center_crop_twice", lambda: Case(
    model([node("CenterCropPad", "x to", axes=[0] * 99)], {"x": [3, 5]}, "y",
          [ints("to", *[2] * 99)], opset=18), code=3, text="a shape of 99 numbers for 99 axes"))
each("center_crop_wrong", lambda: Case(
    model([node("CenterCropPad", "x to", axes=[1])], {"x": [3, 5]}, "y",
          [ints("to", 9, 2)], opset=18), code=3, text="a shape of 2 numbers for 1 axes"))
