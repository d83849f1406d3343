#!/usr/bin/env python3
"""Compares every operator of einnet with onnxruntime on random one-operator models.

    check_ops.py [--einnet build/einnet] [--only Conv,Resize] [--count 12] [--seed 1] [--verbose]

Each case is written as a model `y = Op(x, ..; attributes)`, run by `einnet eval`, and compared with
the same node in onnxruntime (onnx.reference where that has no kernel; numpy for operators that
ONNX has not). Then every mistake of `BAD` must be refused with its exit code and words, and every
operator of the table must have a generator here. Prints how many passed.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from refused import BAD

DTYPES = {"float32": "f32", "float16": "f16", "int8": "i8", "uint8": "u8", "int32": "i32",
          "int64": "i64", "bool": "bool"}
TRUTHS = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not",
          "IsNaN"}
EXTRA = {"G2BMM", "GBMM"}   # not ONNX operators


class Case:
    """One use of an operator. `attrs` are ONNX attributes, `consts` what ONNX passes as constant
    inputs after the operands (name, array or None), `ein` what the model writes instead, if that
    is different."""

    def __init__(self, op, inputs, attrs=None, consts=(), ein=None, nout=1):
        self.op, self.inputs, self.nout = op, inputs, nout
        self.attrs, self.consts = dict(attrs or {}), list(consts)
        self.ein = dict(self.attrs)
        for name, value in self.consts:
            if value is not None:
                self.ein[name] = value.tolist()
        self.ein.update(ein or {})
        self.ein = {k: v for k, v in self.ein.items() if v is not None}

    def outputs(self):
        return ["y"] if self.nout == 1 else ["y%d" % k for k in range(self.nout)]

    def names(self):
        return [None if a is None else "x%d" % k for k, a in enumerate(self.inputs)]

    def call(self):
        args = ", ".join(n or "_" for n in self.names())
        attrs = ", ".join("%s=%s" % (k, text(v)) for k, v in self.ein.items())
        return "%s(%s%s%s)" % (self.op, args, "; " if attrs else "", attrs)

    def model(self):
        lines = ["ein 1", "model case"]
        for name, a in zip(self.names(), self.inputs):
            if name:
                shape = ",".join(map(str, a.shape))
                lines.append("input %s: %s[%s]" % (name, DTYPES[str(a.dtype)], shape))
        lines.append("output " + ", ".join(self.outputs()))
        lines.append("%s = %s" % (", ".join(self.outputs()), self.call()))
        return "\n".join(lines) + "\n"


def text(v):
    if isinstance(v, (list, tuple)):
        return "[%s]" % ",".join(map(text, v))
    if isinstance(v, float):
        return np.format_float_positional(np.float32(v), trim="0") if np.isfinite(v) else str(v)
    return str(v)


# ---------------------------------------------------------------- random cases

R = random.Random()
G = np.random.default_rng()


def shape(rank, lo=1, hi=6):
    return [R.randint(lo, hi) for _ in range(rank)]


def array(dims, lo=None, hi=None):
    if lo is None:
        return G.standard_normal(dims).astype(np.float32)
    return G.uniform(lo, hi, dims).astype(np.float32)


def maybe(x, p=0.5):
    return x if R.random() < p else None


def shorter(values):
    """A list as the number that stands for it, when the elements are equal."""
    return values[0] if len(set(values)) == 1 and R.random() < 0.7 else values


def window(rank, kernel, sizes, deconv=False):
    """Random strides, dilations, pads, auto_pad for a window that fits."""
    attrs, ein = {}, {}
    if R.random() < 0.7:
        attrs["strides"] = shape(rank, 1, 3)
    dilations = [1] * rank
    if R.random() < 0.4:
        attrs["dilations"] = dilations = shape(rank, 1, 3)
    mode = R.choice(["NOTSET"] * 5 + ["SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode != "NOTSET":
        attrs["auto_pad"] = mode
        if mode != "VALID":     # onnxruntime wants dilation 1 here, and no stride beyond the window
            attrs.pop("dilations", None)
            dilations = [1] * rank
            if "strides" in attrs:
                attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], kernel)]
    elif R.random() < 0.8:
        pads = [R.randint(0, k - 1) for k in kernel * 2]
        if R.random() < 0.4:
            pads = [R.randint(0, min(kernel) - 1)] * (2 * rank)
        attrs["pads"] = pads
    for i in range(rank):
        extent = (kernel[i] - 1) * dilations[i] + 1
        if not deconv and sizes[i] < extent:
            sizes[i] = extent + R.randint(0, 2)
    for name in ("strides", "dilations", "pads"):
        if name in attrs:
            ein[name] = shorter(attrs[name])
    return attrs, ein


def conv(op):
    rank = R.choice([1, 2, 2, 3])
    kernel = shape(rank, 1, 4 if rank < 3 else 2)
    sizes = shape(rank, 1, 9 if rank < 3 else 5)
    attrs, ein = window(rank, kernel, sizes)
    group, c, f = R.choice([1, 1, 2, 3]), R.randint(1, 3), R.randint(1, 3)
    if group > 1 or R.random() < 0.3:
        attrs["group"] = group
    x, w = array([R.randint(1, 2), c * group] + sizes), array([f * group, c] + kernel)
    if R.random() < 0.5:
        attrs["kernel_shape"] = kernel
    return Case(op, [x, w] + ([array([f * group])] if R.random() < 0.5 else []), attrs, ein=ein)


def conv_transpose(op):
    rank = R.choice([1, 2, 2, 3])
    kernel = shape(rank, 1, 4 if rank < 3 else 2)
    sizes = shape(rank, 1, 5 if rank < 3 else 3)
    attrs, ein = window(rank, kernel, sizes, True)
    strides, dilations = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    if "auto_pad" in attrs and attrs["auto_pad"] != "VALID":
        attrs.pop("pads", None)
    full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, sizes, kernel, dilations)]
    pads = attrs.get("pads", [0] * (2 * rank))
    if any(m - pads[i] - pads[i + rank] < 1 for i, m in enumerate(full)):
        attrs.pop("pads", None)
        ein.pop("pads", None)
    more = [R.randint(0, s - 1) for s in strides]
    if R.random() < 0.4:
        attrs["output_padding"] = more
        ein["output_padding"] = shorter(more)
        full = [m + p for m, p in zip(full, more)]
    if R.random() < 0.3 and "pads" not in attrs:
        attrs["output_shape"] = [max(1, m - R.randint(0, 2)) for m in full]
    group, c, f = R.choice([1, 1, 2, 3]), R.randint(1, 3), R.randint(1, 3)
    if group > 1:
        attrs["group"] = group
    x, w = array([R.randint(1, 2), c * group] + sizes), array([c * group, f] + kernel)
    return Case(op, [x, w] + ([array([f * group])] if R.random() < 0.5 else []), attrs, ein=ein)


def pool(op):
    rank = R.choice([1, 2, 2, 3])
    kernel = shape(rank, 1, 4 if rank < 3 else 3)
    sizes = shape(rank, 1, 9 if rank < 3 else 5)
    attrs, ein = window(rank, kernel, sizes)
    attrs["kernel_shape"] = kernel
    ein["kernel_shape"] = shorter(kernel)
    if R.random() < 0.4 and "auto_pad" not in attrs:
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and R.random() < 0.5:
        attrs["count_include_pad"] = 1
    return Case(op, [array([R.randint(1, 2), R.randint(1, 3)] + sizes)], attrs, ein=ein)


def matmul(op):
    m, k, n = shape(3)
    batch = shape(R.randint(0, 3), 1, 3)
    a = [1 if R.random() < 0.3 else d for d in batch][R.randint(0, len(batch)):]
    b = [1 if R.random() < 0.3 else d for d in batch][R.randint(0, len(batch)):]
    left, right = array(a + [m, k]), array(b + [k, n])
    if R.random() < 0.2:
        left = array([k])
    if R.random() < 0.2:
        right = array([k])
    return Case(op, [left, right])


def gemm(op):
    m, k, n = shape(3)
    attrs = {}
    for name in ("transA", "transB"):
        if R.random() < 0.5:
            attrs[name] = 1
    for name in ("alpha", "beta"):
        if R.random() < 0.5:
            attrs[name] = R.choice([0.5, 2.0, -1.25])
    a = array([k, m] if "transA" in attrs else [m, k])
    b = array([n, k] if "transB" in attrs else [k, n])
    c = array(R.choice([[m, n], [n], [1, n], [m, 1], [1], []]))
    return Case(op, [a, b] + ([c] if R.random() < 0.7 else []), attrs)


def stretched(dims):
    dims = dims[R.randint(0, len(dims)):]
    return [1 if R.random() < 0.3 else d for d in dims]


def elementwise(op):
    dims = shape(R.randint(0, 4), 1, 5)
    count = R.randint(1, 4) if op in ("Max", "Min", "Sum") else 2
    shapes = [dims] + [stretched(dims) for _ in range(count - 1)]
    R.shuffle(shapes)
    inputs = [array(s) for s in shapes]
    if op in ("Add", "Sub", "Mul", "Max", "Min") and R.random() < 0.3:
        kind = R.choice(["int32", "int64"])
        inputs = [G.integers(-9, 9, s).astype(kind) for s in shapes]
    if op == "Pow":
        inputs = [array(shapes[0], 0.1, 3), array(shapes[1])]
    if op == "Div":
        inputs[1] = array(shapes[1], 0.5, 3)
    if op in ("Div", "Mod") and R.random() < 0.5:
        inputs = [G.integers(-99, 99, shapes[0]), G.integers(1, 9, shapes[1])]
        kind = R.choice(["int8", "int32", "int64"])
        inputs = [inputs[0].astype(kind), (inputs[1] * G.choice([-1, 1], shapes[1])).astype(kind)]
    attrs = {}
    if op == "Mod" and (inputs[0].dtype == np.float32 or R.random() < 0.4):
        attrs["fmod"] = 1
    return Case(op, inputs, attrs)


def unary(op):
    dims = shape(R.randint(1 if op == "Softsign" else 0, 4), 1, 5)  # the reference has no scalar
    x = array(dims) * np.float32(2.5)
    if op in ("Log", "Sqrt", "Reciprocal"):
        x = array(dims, 0.01, 4)
    if op in ("Asin", "Acos", "Atanh", "Acosh"):
        x = array(dims, 1, 4) if op == "Acosh" else array(dims, -0.95, 0.95)
    attrs = {}
    if op == "Round":
        x = np.round(2 * x) / np.float32(2)     # ties
    bent = ("LeakyRelu", "Elu", "Celu", "Selu", "ThresholdedRelu", "HardSigmoid")
    if op in bent and R.random() < 0.7:
        attrs["alpha"] = R.choice([0.25, 0.3, 1.5])
    if op == "HardSigmoid" and R.random() < 0.7:
        attrs["beta"] = R.choice([0.25, -0.1])
    if op == "Gelu":
        attrs["approximate"] = R.choice(["none", "tanh"])
    return Case(op, [x], attrs)


def prelu(op):
    dims = shape(R.randint(1, 4), 1, 5)
    return Case(op, [array(dims), array(stretched(dims))])


def clip(op):
    lo, hi = maybe(np.float32(R.choice([-1.0, 0.0, 0.5]))), maybe(np.float32(R.choice([0.25, 6.0])))
    return Case(op, [array(shape(3)) * np.float32(3)], consts=[("min", lo), ("max", hi)])


def identity(op):
    return Case(op, [anything(shape(R.randint(0, 4)))])


def anything(dims):
    """Shape operators take any type."""
    kind = R.choice(["float32"] * 4 + ["int64", "int32"])
    return array(dims) if kind == "float32" else G.integers(-9, 9, dims).astype(kind)


def global_pool(op):
    return Case(op, [array(shape(R.randint(3, 5), 1, 4))])


def reduce(op):
    rank = R.randint(1, 4)
    axes = R.sample(range(rank), R.randint(1, rank))
    axes = [a - rank if R.random() < 0.3 else a for a in axes]
    attrs = {"keepdims": R.randint(0, 1)} if R.random() < 0.7 else {}
    x = array(shape(rank))
    if op == "ReduceLogSum":
        x = np.abs(x) + np.float32(0.1)
    if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd") and R.random() < 0.4:
        x = G.integers(-3, 4, x.shape).astype(R.choice(["int32", "int64"]))
    return Case(op, [x], attrs, [("axes", maybe(np.array(axes), 0.8))])


def place(op):
    dims = shape(R.randint(1, 4))
    x = R.choice([array(dims), np.round(array(dims)), G.integers(-3, 3, dims).astype(np.int32)])
    attrs = {"axis": R.randint(-len(dims), len(dims) - 1)} if R.random() < 0.8 else {}
    for name in ("keepdims", "select_last_index"):
        if R.random() < 0.6:
            attrs[name] = R.randint(0, 1)
    return Case(op, [x], attrs)


def top(op):
    """Rows that are short, or so long that they are cut; with equal elements."""
    dims = shape(R.randint(1, 3), 1, 5)
    axis = R.randint(0, len(dims) - 1)
    dims[axis] = R.choice([1, 2, 7, 40, 700, 3001])
    whole_ = R.choice(["int8", "uint8", "int32", "int64"])
    x = R.choice([array(dims), np.round(array(dims) * 3),
                  np.abs(G.integers(-9, 9, dims)).astype(whole_)])
    if x.dtype == np.float32 and R.random() < 0.3:
        x[np.abs(x) < 1] = R.choice([-np.inf, np.inf])
    k = R.choice([1, 2, 5, dims[axis] // 2, dims[axis]])
    attrs = {"largest": R.randint(0, 1)} if R.random() < 0.7 else {}
    if axis < len(dims) - 1 or R.random() < 0.5:
        attrs["axis"] = axis - R.choice([0, len(dims)])
    return Case(op, [x], attrs, [("k", np.array([min(max(k, 1), dims[axis])]))],
                ein={"k": min(max(k, 1), dims[axis])}, nout=R.choice([1, 2, 2]))


def batch_normalization(op):
    dims = shape(R.randint(2, 5), 1, 4)
    c = [dims[1]]
    attrs = {"epsilon": R.choice([1e-3, 1e-5])} if R.random() < 0.5 else {}
    return Case(op, [array(dims), array(c), array(c), array(c), array(c, 0.5, 2)], attrs)


def layer_normalization(op):
    dims = shape(R.randint(1, 4), 2, 5)
    axis = R.randint(0, len(dims) - 1)
    attrs = {"axis": axis - R.choice([0, len(dims)]), "epsilon": R.choice([1e-5, 1e-2])}
    if axis == len(dims) - 1 and R.random() < 0.5:
        attrs = {}
    tail = dims[axis:]
    return Case(op, [array(dims), array(tail)] + ([array(tail)] if R.random() < 0.6 else []), attrs)


def softmax(op):
    dims = shape(R.randint(1, 4))
    attrs = {"axis": R.randint(-len(dims), len(dims) - 1)} if R.random() < 0.8 else {}
    return Case(op, [array(dims)], attrs)


def concat(op):
    dims = shape(R.randint(1, 4), 1, 4)
    axis = R.randint(0, len(dims) - 1)
    first = anything(dims)
    parts = [first]
    for _ in range(R.randint(0, 3)):
        d = list(dims)
        d[axis] = R.randint(1, 4)
        part = array(d) * np.float32(first.dtype == np.float32 or 9)
        parts.append(part.astype(first.dtype))
    return Case(op, parts, {"axis": axis - R.choice([0, len(dims)])})


def split(op):
    dims = shape(R.randint(1, 4), 1, 4)
    axis = R.randint(0, len(dims) - 1)
    attrs = {"axis": axis - R.choice([0, len(dims)])}
    if R.random() < 0.5:
        sizes = shape(R.randint(1, 4))
        dims[axis] = sum(sizes)
        return Case(op, [anything(dims)], attrs, [("split", np.array(sizes))], nout=len(sizes))
    pieces, chunk = R.randint(1, 4), R.randint(1, 3)
    dims[axis] = chunk * (pieces - 1) + R.randint(1, chunk)
    attrs["num_outputs"] = pieces
    return Case(op, [anything(dims)], attrs, nout=pieces)


def slice_(op):
    dims = shape(R.randint(1, 4), 1, 7)
    axes = R.sample(range(len(dims)), R.randint(1, len(dims)))
    starts, ends, steps = [], [], []
    while len(starts) < len(axes):
        d = dims[axes[len(starts)]]
        s, e = R.randint(-d - 2, d + 2), R.randint(-d - 2, d + 2)
        step = R.choice([1, 1, 2, 3, -1, -2])
        if R.random() < 0.3:
            e = 2 ** 63 - 1 if step > 0 else -2 ** 63 + 1
        if len(range(d)[s:e:step]) and (step > 0 or s >= -d):
            starts, ends, steps = starts + [s], ends + [e], steps + [step]
    some = lambda v: maybe(np.array(v))  # noqa: E731
    first = some(axes)
    if first is None:
        axes = list(range(len(starts)))
        for i, a in enumerate(axes):
            if not len(range(dims[a])[starts[i]:ends[i]:steps[i]]):
                starts[i], ends[i], steps[i] = 0, 2 ** 63 - 1, 1
    neutral = all(s == 1 for s in steps)
    if first is not None:
        first = np.array([a - len(dims) if R.random() < 0.3 else a for a in axes])
    return Case(op, [anything(dims)], {}, [
        ("starts", np.array(starts)), ("ends", np.array(ends)),
        ("axes", first), ("steps", maybe(np.array(steps)) if neutral else np.array(steps))])


def pad(op):
    dims = shape(R.randint(1, 4), 1, 5)
    x = anything(dims)
    lo = [R.randint(-1 if d > 2 else 0, 3) for d in dims]
    hi = [R.randint(-1 if d > 2 else 0, 3) for d in dims]
    value = maybe(np.array(R.choice([0, 1, -2])).astype(x.dtype))
    axes = None
    mode = R.choice(["constant", "constant", "reflect", "edge", "wrap"])
    if mode == "reflect":
        lo, hi = [[max(0, min(p, d - 1)) for p, d in zip(ps, dims)] for ps in (lo, hi)]
    if mode == "wrap":
        lo, hi = [[max(0, min(p, d)) for p, d in zip(ps, dims)] for ps in (lo, hi)]
    if mode != "constant":
        value = None
    if R.random() < 0.3:
        axes = R.sample(range(len(dims)), R.randint(1, len(dims)))
        lo, hi, axes = [lo[a] for a in axes], [hi[a] for a in axes], np.array(axes)
    ein = {"pads": shorter(lo + hi)}
    attrs = {} if mode == "constant" else {"mode": mode}
    consts = [("pads", np.array(lo + hi)), ("value", value), ("axes", axes)]
    return Case(op, [x], attrs, consts, ein)


def transpose(op):
    rank = R.randint(1, 5)
    attrs = {"perm": R.sample(range(rank), rank)} if R.random() < 0.8 else {}
    return Case(op, [anything(shape(rank, 1, 4))], attrs)


def factors(n, count):
    out = []
    for _ in range(count - 1):
        d = R.choice([d for d in range(1, n + 1) if n % d == 0])
        out.append(d)
        n //= d
    out.append(n)
    R.shuffle(out)
    return out


def reshape(op):
    dims = [R.choice([1, 2, 3, 4, 6, 12]) for _ in range(R.randint(0, 4))]
    to = factors(int(np.prod(dims)), R.randint(1, 5))
    if R.random() < 0.5:    # keep a shared head or tail
        keep = R.randint(0, len(dims))
        to = dims[:keep] + factors(int(np.prod(dims[keep:])), R.randint(1, 3))
    if R.random() < 0.4:
        to[R.randrange(len(to))] = -1
    to = [0 if i < len(dims) and d == dims[i] and R.random() < 0.3 else d for i, d in enumerate(to)]
    return Case(op, [anything(dims)], {}, [("shape", np.array(to))])


def flatten(op):
    rank = R.randint(1, 4)
    attrs = {"axis": R.randint(-rank, rank)} if R.random() < 0.8 else {}
    return Case(op, [anything(shape(rank))], attrs)


def squeeze(op):
    dims = [R.choice([1, 1, 3, 4]) for _ in range(R.randint(1, 5))]
    ones = [i - R.choice([0, len(dims)]) for i, d in enumerate(dims) if d == 1]
    axes = R.sample(ones, R.randint(1, len(ones))) if ones else None
    return Case(op, [anything(dims)], {}, [("axes", axes and maybe(np.array(axes), 0.8))])


def unsqueeze(op):
    dims = shape(R.randint(0, 3))
    n = R.randint(1, 3)
    axes = [a - R.choice([0, len(dims) + n]) for a in R.sample(range(len(dims) + n), n)]
    return Case(op, [anything(dims)], {}, [("axes", np.array(axes))])


def expand(op):
    dims = shape(R.randint(1, 4), 1, 4)
    to = stretched(dims) or [1]
    return Case(op, [anything(stretched(dims))], {}, [("shape", np.array(R.choice([dims, to])))])


def depth(op):
    b = R.randint(1, 3)
    c, h, w = R.randint(1, 3), R.randint(1, 3), R.randint(1, 3)
    attrs = {"blocksize": b}
    if op == "SpaceToDepth":
        return Case(op, [array([R.randint(1, 2), c, h * b, w * b])], attrs)
    if R.random() < 0.7:
        attrs["mode"] = R.choice(["DCR", "CRD"])
    return Case(op, [array([R.randint(1, 2), c * b * b, h, w])], attrs)


def tie(n, m):
    """Whether onnxruntime's f32 may fall on the wrong side of a rounding of
    (i + 1/2) * n / m - 1/2 or i * n / m: the scale is not exact, and some position lies on a half
    or a whole."""
    if Fraction(float(np.float32(m / n))) == Fraction(m, n):
        return False
    places = [i * Fraction(n, m) for i in range(m)]
    places += [Fraction(2 * i + 1, 2) * n / m - Fraction(1, 2) for i in range(m)]
    return any(2 * p % 1 == 0 for p in places if p)


def some_axes(ein, key, values):
    """The last axes alone, named in any order and from either end."""
    named = R.sample([(i, v) for i, v in enumerate(values, 2)], len(values))
    ein["axes"] = [i - R.choice([0, 2 + len(values)]) for i, _ in named]
    ein[key] = [v for _, v in named]


def resize(op):
    spatial = R.choice([1, 2, 2, 2, 3])
    sizes = shape(spatial, 1, 7)
    attrs = {"mode": R.choice(["nearest", "linear"])}
    if R.random() < 0.8:
        attrs["coordinate_transformation_mode"] = R.choice(
            ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    if attrs["mode"] == "nearest" and R.random() < 0.7:
        attrs["nearest_mode"] = R.choice(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    x = array([1, R.randint(1, 2)] + sizes)
    ein = dict(attrs)
    if R.random() < 0.5:
        to = [R.randint(1, 9) for _ in sizes]
        while attrs["mode"] == "nearest" and any(map(tie, sizes, to)):
            to = [R.randint(1, 9) for _ in sizes]
        full = list(x.shape[:2]) + to
        ein["sizes"] = R.choice([to, full])
        if R.random() < 0.3:
            some_axes(ein, "sizes", to)
        return Case(op, [x], attrs, [("roi", None), ("scales", None), ("sizes", np.array(full))],
                    ein)
    choices = (0.5, 2.0, 3.0, 1.5, 1.0, 4.0, 0.75, 2.5)
    scales = [R.choice([s for s in choices if int(n * s) >= 1]) for n in sizes]
    full = np.array([1, 1] + scales, np.float32)
    ein["scales"] = R.choice([shorter(scales), [1, 1] + scales])
    if R.random() < 0.3:
        some_axes(ein, "scales", scales)
    return Case(op, [x], attrs, [("roi", None), ("scales", full)], ein)


def g2bmm(op):
    batch, m, p = shape(R.randint(0, 2), 1, 3), R.randint(1, 12), R.randint(1, 5)
    w, d = R.randint(0, 4), R.choice([None, 1, 2, 3])
    x = array(batch + [m, 2 * w + 1 if op == "GBMM" else p])
    attrs = {"dilation": d} if d else {}
    if op == "G2BMM":
        attrs["w"] = w
    return Case(op, [x, array(batch + [m, p])], attrs)


def whole(dims, lo=-9, hi=9):
    return G.integers(lo, hi, dims).astype(R.choice(["int32", "int64"]))


def truths(dims):
    return G.integers(0, 2, dims).astype(bool)


def compared(op):
    dims = shape(R.randint(0, 4), 1, 5)
    number = (lambda d: np.round(array(d))) if R.random() < 0.5 else \
        (lambda d: G.integers(-2, 3, d).astype("int64"))
    shapes = [dims, stretched(dims)]
    R.shuffle(shapes)
    x = [truths(s) if op in ("And", "Or", "Xor", "Not") else number(s) for s in shapes]
    return Case(op, x[:1] if op == "Not" else x)


def is_nan(op):
    x = array(shape(R.randint(0, 4)))
    return Case(op, [np.where(x > 0, np.float32(np.nan), x).astype(np.float32)])


def where(op):
    dims = shape(R.randint(0, 4), 1, 5)
    x, y = anything(stretched(dims)), array(dims) * np.float32(5)
    return Case(op, [truths(stretched(dims)), x, y.astype(x.dtype)])


CAST = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "i8": TensorProto.INT8,
        "i32": TensorProto.INT32, "i64": TensorProto.INT64, "bool": TensorProto.BOOL}


def cast(op):
    dims = shape(R.randint(0, 4))
    x = R.choice([array(dims) * np.float32(3), whole(dims), truths(dims),
                  np.round(array(dims)).astype(np.float16)])
    to = R.choice(sorted(CAST))
    if to == "f16":     # `eval` does not round
        x = np.round(x)
    return Case(op, [x], {"to": CAST[to]}, ein={"to": to})


def gather(op):
    dims = shape(R.randint(1, 4), 1, 5)
    axis = R.randint(0, len(dims) - 1)
    to = shape(R.randint(0, 3), 1, 4)
    if op == "GatherElements":
        to = [R.randint(1, d) for d in dims]
        to[axis] = R.randint(1, 6)
    at = G.integers(0, dims[axis], to).astype(R.choice(["int32", "int64"]))
    attrs = {"axis": axis - R.choice([0, len(dims)])} if axis or R.random() < 0.5 else {}
    return Case(op, [anything(dims), at], attrs)


def tile(op):
    dims = shape(R.randint(1, 4), 1, 4)
    return Case(op, [anything(dims)], {}, [("repeats", np.array(shape(len(dims), 1, 3)))])


def trilu(op):
    dims = shape(R.randint(2, 4), 1, 5)
    attrs = {"upper": R.randint(0, 1)} if R.random() < 0.7 else {}
    return Case(op, [anything(dims)], attrs, [("k", maybe(np.array(R.randint(-3, 3))))])


def cum_sum(op):
    dims = shape(R.randint(1, 4))
    axis = R.randint(-len(dims), len(dims) - 1)
    attrs = {k: R.randint(0, 1) for k in ("exclusive", "reverse") if R.random() < 0.6}
    return Case(op, [R.choice([array(dims), whole(dims)])], attrs, [("axis", np.array(axis))])


def einsum(op):
    text_ = R.choice(["ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "i,j->ij", "ij->ji", "ii->i",
                      "ijk->", "bij, bj -> bi", "ab,bc,cd->ad", "nctkv,kvw->nctw", "ij->", "i->i"])
    size = {c: R.randint(1, 5) for c in text_}
    operands = text_.split("->")[0].replace(" ", "").split(",")
    return Case(op, [array([size[c] for c in x]) for x in operands], {"equation": text_},
                ein={"equation": '"%s"' % text_})


def grouped_normalization(op):
    groups, each = R.randint(1, 3), R.randint(1, 3)
    dims = [R.randint(1, 2), groups * each] + shape(R.randint(1, 3), 2, 5)
    attrs = {"epsilon": R.choice([1e-3, 1e-5])} if R.random() < 0.5 else {}
    if op == "GroupNormalization":
        attrs["num_groups"] = groups
    return Case(op, [array(dims), array([groups * each]), array([groups * each])], attrs)


def lp_normalization(op):
    dims = shape(R.randint(1, 4))
    attrs = {"axis": R.randint(-len(dims), len(dims) - 1)} if R.random() < 0.8 else {}
    attrs["p"] = R.choice([1, 2])
    return Case(op, [array(dims) * np.float32(R.choice([0, 1, 1, 1]))], attrs)


GENERATORS = {
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": pool, "AveragePool": pool,
    "MatMul": matmul, "Gemm": gemm, "PRelu": prelu, "Clip": clip, "Identity": identity,
    "BatchNormalization": batch_normalization, "LayerNormalization": layer_normalization,
    "Softmax": softmax, "LogSoftmax": softmax, "Concat": concat, "Split": split,
    "Slice": slice_, "Pad": pad,
    "Transpose": transpose, "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze,
    "Unsqueeze": unsqueeze, "Expand": expand, "DepthToSpace": depth, "SpaceToDepth": depth,
    "Resize": resize, "G2BMM": g2bmm, "GBMM": g2bmm,
    "GlobalMaxPool": global_pool, "GlobalAveragePool": global_pool, "ArgMax": place,
    "ArgMin": place, "IsNaN": is_nan, "Where": where, "Cast": cast, "Gather": gather,
    "GatherElements": gather, "TopK": top, "Tile": tile, "Trilu": trilu, "CumSum": cum_sum,
    "Einsum": einsum,
    "InstanceNormalization": grouped_normalization, "GroupNormalization": grouped_normalization,
    "LpNormalization": lp_normalization,
}
for _op in "Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor Not".split():
    GENERATORS[_op] = compared
for _op in "Add Sub Mul Div Mod Pow Max Min Sum".split():
    GENERATORS[_op] = elementwise
for _op in ("Neg Abs Exp Log Sqrt Reciprocal Erf Floor Ceil Tanh Sigmoid Relu LeakyRelu Elu "
            "Softplus HardSigmoid HardSwish Gelu Selu Celu ThresholdedRelu Softsign Mish Sign "
            "Round Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh").split():
    GENERATORS[_op] = unary
for _op in "Mean Sum Max Min Prod SumSquare L1 L2 LogSum LogSumExp".split():
    GENERATORS["Reduce" + _op] = reduce


# ---------------------------------------------------------------- expected results

def banded(case):
    a, b = case.inputs
    d = case.ein.get("dilation", 1)
    w = case.ein["w"] if case.op == "G2BMM" else a.shape[-1] // 2
    m = b.shape[-2]
    shape_ = list(b.shape)
    if case.op == "G2BMM":
        shape_[-1] = 2 * w + 1
    out = np.zeros(shape_)
    for i in range(m):
        for j in range(2 * w + 1):
            at = i + d * (j - w)
            if 0 <= at < m and case.op == "G2BMM":
                out[..., i, j] = (a[..., i, :].astype(float) * b[..., at, :]).sum(-1)
            elif 0 <= at < m:
                out[..., i, :] += a[..., i, j, None].astype(float) * b[..., at, :]
    return [out]


def onnx_model(case):
    names, feeds, init = [], [], []
    tensor_type = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)  # noqa: E731
    for name, a in zip(case.names(), case.inputs):
        names.append(name or "")
        if name:
            feeds.append(helper.make_tensor_value_info(name, tensor_type(a), a.shape))
    consts = list(case.consts)
    while consts and consts[-1][1] is None:
        consts.pop()
    for name, value in consts:
        names.append(name if value is not None else "")
        if value is not None:
            init.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    node = helper.make_node(case.op, names, case.outputs(), **case.attrs)
    kind = tensor_type(case.inputs[1 if case.op == "Where" else 0])
    if case.op.startswith("Arg"):
        kind = TensorProto.INT64
    elif case.op in TRUTHS:
        kind = TensorProto.BOOL
    elif case.op == "Cast":
        kind = case.attrs["to"]
    out = [helper.make_tensor_value_info(n, kind, None) for n in case.outputs()]
    graph = helper.make_graph([node], "case", feeds, out, init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def expected(case):
    if case.op in EXTRA:
        return banded(case)
    model = onnx_model(case)
    feeds = {n: a for n, a in zip(case.names(), case.inputs) if n}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception:   # no kernel for it
        try:
            return ReferenceEvaluator(model).run(None, feeds)
        except Exception:
            return None


def compare(want, got):
    if len(want) != len(got):
        return "%d results, expected %d" % (len(got), len(want))
    for k, (w, g) in enumerate(zip(want, got)):
        if tuple(w.shape) != tuple(g.shape):
            return "result %d has shape %s, expected %s" % (k, g.shape, w.shape)
        w, g = np.asarray(w, float), np.asarray(g, float)
        scale = max(1.0, float(np.abs(w[np.isfinite(w)]).max(initial=0)))
        if not np.allclose(g, w, rtol=1e-4, atol=2e-5 * scale, equal_nan=True):
            return "result %d differs by %g" % (k, np.nanmax(np.abs(w - g)))
    return None


# ---------------------------------------------------------------- running

def run_command(args, einnet, path):
    return subprocess.run([einnet] + args, capture_output=True, text=True, cwd=path, timeout=60)


def evaluate(einnet, case, path):
    """Results of einnet, or a message."""
    with open(os.path.join(path, "case.ein"), "w") as f:
        f.write(case.model())
    args = ["eval", "case.ein", "--out", "."]
    for name, a in zip(case.names(), case.inputs):
        if name:
            np.save(os.path.join(path, name + ".npy"), a)
            args += ["--in", "%s=%s.npy" % (name, name)]
    done = run_command(args, einnet, path)
    if done.returncode:
        return "exit %d: %s" % (done.returncode, done.stderr.strip())
    return [np.load(os.path.join(path, n + ".npy")) for n in case.outputs()]


def refuse(einnet, bad, path):
    call, shapes, code, words = bad
    lines = ["ein 1"] + ["input %s: %s" % (n, s) for n, s in zip("abc", shapes)]
    with open(os.path.join(path, "bad.ein"), "w") as f:
        f.write("\n".join(lines + ["output y", "y = " + call]) + "\n")
    done = run_command(["eval", "bad.ein", "--out", "."], einnet, path)
    if done.returncode != code or words not in done.stderr:
        return "exit %d, %r; expected %d, %r" % (done.returncode, done.stderr.strip(), code, words)
    return None


def table_names():
    """Names of the rows of the operator table."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "gen", "parse", "ops.c")) as f:
        return set(re.findall(r'^    \{"(\w+)", "', f.read(), re.M))


def main(evaluate_=evaluate, refuse_=refuse):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--einnet", default="build/einnet")
    p.add_argument("--only", default="")
    p.add_argument("--count", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--verbose", action="store_true")
    args = p.parse_args()
    einnet = os.path.abspath(args.einnet)
    ops = [o for o in args.only.split(",") if o] or sorted(GENERATORS)
    passed = failed = unknown = 0
    with tempfile.TemporaryDirectory() as path:
        for op in ops:
            global G
            G = np.random.default_rng(args.seed)
            R.seed("%s %d" % (op, args.seed))
            before = unknown
            for _ in range(args.count):
                case = GENERATORS[op](op)
                got = evaluate_(einnet, case, path)
                want = expected(case)
                if want is None:
                    unknown += 1
                    print("%s: no reference" % case.call())
                    continue
                problem = got if isinstance(got, str) else compare(want, got)
                passed, failed = passed + (not problem), failed + bool(problem)
                if problem or args.verbose:
                    shapes = " ".join("_" if a is None else str(list(a.shape)) for a in case.inputs)
                    print("%s  # %s: %s" % (case.call(), shapes, problem or "ok"))
            if unknown - before == args.count:
                failed += 1
                print("%s: no case was compared: expected() needs a reference of its own" % op)
        for bad in [] if args.only else BAD:
            problem = refuse_(einnet, bad, path)
            passed, failed = passed + (not problem), failed + bool(problem)
            if problem:
                print("%s: %s" % (bad[0], problem))
        for name in [] if args.only else sorted(table_names() - set(GENERATORS)):
            failed += 1
            print("%s: no test" % name)
    if unknown:
        print("%d without reference" % unknown)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
