"""Operators: attributes, shapes, and values.

Operators mean ONNX opset 21. Shapes come from onnx's own shape inference on a one-node model.
Values come from onnxruntime in float64 where it has a float64 kernel, else from the numpy code
below, which the self-tests hold against onnxruntime's float32 kernels.
"""

import itertools
import math

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from equations import erf, sigmoid
from syntax import EinError

INT, FLOAT, INTS, FLOATS, WORD = "int", "float", "ints", "floats", "word"
POOL = {"kernel_shape": INTS, "strides": INTS, "pads": INTS, "ceil_mode": INT, "auto_pad": WORD}
CONV = {"kernel_shape": INTS, "strides": INTS, "pads": INTS, "dilations": INTS, "group": INT,
        "auto_pad": WORD}
REDUCE = {"axes": INTS, "keepdims": INT, "noop_with_empty_axes": INT}
PLACE = {"axis": INT, "keepdims": INT, "select_last_index": INT}

# name: (fewest inputs, most inputs, attributes)
OPERATORS = {
    "Conv": (2, 3, CONV),
    "ConvTranspose": (2, 3, {**CONV, "output_padding": INTS, "output_shape": INTS}),
    "MatMul": (2, 2, {}),
    "Gemm": (2, 3, {"alpha": FLOAT, "beta": FLOAT, "transA": INT, "transB": INT}),
    "Add": (2, 2, {}), "Sub": (2, 2, {}), "Mul": (2, 2, {}), "Div": (2, 2, {}),
    "Mod": (2, 2, {"fmod": INT}),
    "Pow": (2, 2, {}), "Max": (1, 99, {}), "Min": (1, 99, {}), "Sum": (1, 99, {}),
    "Neg": (1, 1, {}), "Abs": (1, 1, {}), "Relu": (1, 1, {}), "Sigmoid": (1, 1, {}),
    "Tanh": (1, 1, {}), "Exp": (1, 1, {}), "Log": (1, 1, {}), "Sqrt": (1, 1, {}),
    "Reciprocal": (1, 1, {}), "Floor": (1, 1, {}), "Ceil": (1, 1, {}),
    "Softplus": (1, 1, {}), "Elu": (1, 1, {"alpha": FLOAT}),
    "Erf": (1, 1, {}), "HardSwish": (1, 1, {}), "Identity": (1, 1, {}),
    "LeakyRelu": (1, 1, {"alpha": FLOAT}),
    "HardSigmoid": (1, 1, {"alpha": FLOAT, "beta": FLOAT}),
    "PRelu": (2, 2, {}),
    "Selu": (1, 1, {"alpha": FLOAT, "gamma": FLOAT}), "Celu": (1, 1, {"alpha": FLOAT}),
    "ThresholdedRelu": (1, 1, {"alpha": FLOAT}), "Softsign": (1, 1, {}), "Mish": (1, 1, {}),
    "Sign": (1, 1, {}), "Round": (1, 1, {}), "Sin": (1, 1, {}), "Cos": (1, 1, {}),
    **{op: (1, 1, {}) for op in
       "Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh".split()},
    "Equal": (2, 2, {}), "Less": (2, 2, {}), "LessOrEqual": (2, 2, {}), "Greater": (2, 2, {}),
    "GreaterOrEqual": (2, 2, {}), "And": (2, 2, {}), "Or": (2, 2, {}), "Xor": (2, 2, {}),
    "Not": (1, 1, {}), "IsNaN": (1, 1, {}), "Where": (3, 3, {}), "Cast": (1, 1, {"to": WORD}),
    "Gather": (2, 2, {"axis": INT}), "GatherElements": (2, 2, {"axis": INT}),
    "Tile": (1, 1, {"repeats": INTS}), "Trilu": (1, 1, {"k": INT, "upper": INT}),
    "CumSum": (1, 1, {"axis": INT, "exclusive": INT, "reverse": INT}),
    "Einsum": (1, 99, {"equation": WORD}),
    "InstanceNormalization": (3, 3, {"epsilon": FLOAT}),
    "GroupNormalization": (3, 3, {"num_groups": INT, "epsilon": FLOAT}),
    "LpNormalization": (1, 1, {"axis": INT, "p": INT}),
    "ReduceL1": (1, 1, REDUCE), "ReduceLogSum": (1, 1, REDUCE), "ReduceLogSumExp": (1, 1, REDUCE),
    "Clip": (1, 1, {"min": FLOAT, "max": FLOAT}),
    "Gelu": (1, 1, {"approximate": WORD}),
    "MaxPool": (1, 1, {**POOL, "dilations": INTS, "storage_order": INT}),
    "AveragePool": (1, 1, {**POOL, "dilations": INTS, "count_include_pad": INT}),
    "GlobalAveragePool": (1, 1, {}), "GlobalMaxPool": (1, 1, {}),
    "BatchNormalization": (5, 5, {"epsilon": FLOAT, "momentum": FLOAT}),
    "LayerNormalization": (2, 3, {"axis": INT, "epsilon": FLOAT}),
    "Softmax": (1, 1, {"axis": INT}), "LogSoftmax": (1, 1, {"axis": INT}),
    "ReduceMean": (1, 1, REDUCE), "ReduceSum": (1, 1, REDUCE),
    "ReduceMax": (1, 1, REDUCE), "ReduceMin": (1, 1, REDUCE),
    "ArgMax": (1, 1, PLACE), "ArgMin": (1, 1, PLACE),
    "TopK": (1, 1, {"axis": INT, "k": INTS, "largest": INT, "sorted": INT}),
    "ReduceProd": (1, 1, REDUCE), "ReduceSumSquare": (1, 1, REDUCE), "ReduceL2": (1, 1, REDUCE),
    "Concat": (1, 999, {"axis": INT}),
    "Split": (1, 1, {"axis": INT, "split": INTS, "num_outputs": INT}),
    "Slice": (1, 1, {"starts": INTS, "ends": INTS, "axes": INTS, "steps": INTS}),
    "Pad": (1, 1, {"pads": INTS, "value": FLOAT, "mode": WORD, "axes": INTS}),
    "Transpose": (1, 1, {"perm": INTS}),
    "Reshape": (1, 1, {"shape": INTS, "allowzero": INT}),
    "Flatten": (1, 1, {"axis": INT}),
    "Squeeze": (1, 1, {"axes": INTS}), "Unsqueeze": (1, 1, {"axes": INTS}),
    "Expand": (1, 1, {"shape": INTS}),
    "Resize": (1, 1, {"scales": FLOATS, "sizes": INTS, "axes": INTS, "mode": WORD,
                      "cubic_coeff_a": FLOAT,
                      "coordinate_transformation_mode": WORD, "nearest_mode": WORD}),
    "DepthToSpace": (1, 1, {"blocksize": INT, "mode": WORD}),
    "SpaceToDepth": (1, 1, {"blocksize": INT, "mode": WORD}),
    "G2BMM": (2, 2, {"w": INT, "dilation": INT}),
    "GBMM": (2, 2, {"dilation": INT}),
}

# Attributes that ONNX takes as inputs, in the order of its inputs; None is one that stays empty.
AS_INPUTS = {
    "Clip": ["min", "max"], "ReduceMean": ["axes"], "ReduceSum": ["axes"], "ReduceMax": ["axes"],
    "ReduceMin": ["axes"], "ReduceProd": ["axes"], "ReduceSumSquare": ["axes"],
    "ReduceL2": ["axes"], "ReduceL1": ["axes"], "ReduceLogSum": ["axes"],
    "ReduceLogSumExp": ["axes"], "Tile": ["repeats"], "Trilu": ["k"], "CumSum": ["axis"],
    "TopK": ["k"], "Split": ["split"], "Slice": ["starts", "ends", "axes", "steps"],
    "Pad": ["pads", "value", "axes"], "Reshape": ["shape"], "Squeeze": ["axes"],
    "Unsqueeze": ["axes"], "Expand": ["shape"], "Resize": [None, "scales", "sizes"],
}
ELEM = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
        "i8": TensorProto.INT8, "u8": TensorProto.UINT8, "i32": TensorProto.INT32,
        "i64": TensorProto.INT64, "bool": TensorProto.BOOL, "f64": TensorProto.DOUBLE}
DTYPE = {v: k for k, v in ELEM.items()}
CONTEXT = onnx.checker.C.CheckerContext()
CONTEXT.ir_version = 10
CONTEXT.opset_imports = {"": 21}
REQUIRED = {"Concat": ["axis"], "Slice": ["starts", "ends"], "Pad": ["pads"],
            "Reshape": ["shape"], "Unsqueeze": ["axes"], "Expand": ["shape"],
            "Cast": ["to"], "Tile": ["repeats"], "CumSum": ["axis"], "Einsum": ["equation"],
            "TopK": ["k"],
            "GroupNormalization": ["num_groups"],
            "DepthToSpace": ["blocksize"], "SpaceToDepth": ["blocksize"], "G2BMM": ["w"],
            "MaxPool": ["kernel_shape"], "AveragePool": ["kernel_shape"]}
SAME_SIZE = ("Reshape", "DepthToSpace", "SpaceToDepth", "Squeeze", "Unsqueeze", "Flatten")


# ---------------------------------------------------------------- attributes

def nearest(name, names):
    def distance(a, b):
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            row, old = [i], row
            for j, y in enumerate(b, 1):
                row.append(min(old[j] + 1, row[-1] + 1, old[j - 1] + (x != y)))
        return row[-1]
    return min(sorted(names), key=lambda n: distance(name.lower(), n.lower()))


def spatial_rank(op, shapes):
    return max(len(shapes[0]) - 2, 1)


def normalize(node, shapes):
    """Attributes checked and completed: a scalar where ONNX wants a list becomes that list."""
    op = node.op
    if op not in OPERATORS:
        error = EinError("unknown operator '%s'; did you mean '%s'?" % (
            op, nearest(op, OPERATORS)))
        error.unsupported = True
        raise error
    fewest, most, known = OPERATORS[op]
    if not fewest <= len(node.inputs) <= most or any(x is None for x in node.inputs[:fewest]):
        raise EinError("%s takes %s inputs" % (
            op, fewest if fewest == most else "%d to %d" % (fewest, most)))
    out = {}
    rank = spatial_rank(op, shapes)
    for key, v in node.attrs.items():
        if key not in known:
            hint = "; did you mean '%s'?" % nearest(key, known) if known else ""
            raise EinError("%s has no attribute '%s'%s" % (op, key, hint))
        kind = known[key]
        scalar_ok = {WORD: str, INT: int, INTS: int}.get(kind, (int, float))
        items = v if isinstance(v, list) else [v]
        if not all(isinstance(x, scalar_ok) for x in items) or \
                (isinstance(v, list) and kind not in (INTS, FLOATS)):
            raise EinError("%s: attribute '%s' has the wrong kind of value" % (op, key))
        if op == "Resize" and key == "axes":
            continue
        if op == "Resize" and key in ("scales", "sizes") and "axes" in node.attrs:
            v = along_axes(key, v, node.attrs["axes"], shapes[0])
        elif kind in (INTS, FLOATS) and not isinstance(v, list):
            v = widen(op, key, v, rank, shapes, node.attrs)
        elif op == "Resize" and key in ("scales", "sizes") and len(v) == rank:
            v = ([1.0, 1.0] if key == "scales" else list(shapes[0][:2])) + v
        out[key] = v
    for key in REQUIRED.get(op, ()):
        if key not in out:
            raise EinError("%s needs '%s'" % (op, key))
    return out


def along_axes(key, v, axes, shape):
    """What Resize does to every axis, where it is told what it does to some."""
    axes = axes if isinstance(axes, list) else [axes]
    v = v if isinstance(v, list) else [v] * len(axes)
    if len(v) != len(axes):
        raise EinError("Resize: %d %s for %d axes" % (len(v), key, len(axes)))
    out = [1.0] * len(shape) if key == "scales" else list(shape)
    for axis, value in zip(axes, v):
        out[axis] = value
    return out


def widen(op, key, v, rank, shapes, attrs):
    if op == "Resize":
        return ([1.0, 1.0] if key == "scales" else list(shapes[0][:2])) + [v] * rank
    if op == "Pad" and key == "pads":   # every axis, or every one that is named
        axes = attrs.get("axes", range(len(shapes[0])))
        return [v] * (2 * (len(axes) if not isinstance(axes, int) else 1))
    if key == "pads":
        return [v] * (2 * rank)
    if op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
        return [v] * rank
    return [v]


# ---------------------------------------------------------------- one-node models

def model_of(op, attrs, dtypes, shapes, outputs):
    """The ONNX model of one operator; what ONNX takes as inputs become initializers."""
    outputs = 2 if op == "TopK" else outputs
    moved = AS_INPUTS.get(op, [])
    names, inputs, constants = [], [], []
    for i, (dtype, shape) in enumerate(zip(dtypes, shapes)):
        names.append("" if dtype is None else "x%d" % i)
        if dtype is not None:
            inputs.append(helper.make_tensor_value_info("x%d" % i, ELEM[dtype], shape))
    for key in moved:
        if key is None or key not in attrs:
            names.append("")
            continue
        if op == "Clip" or key == "value":
            value = numpy_helper.from_array(
                np.array(attrs[key], helper.tensor_dtype_to_np_dtype(ELEM[dtypes[0]])), key)
        elif key == "scales":
            value = numpy_helper.from_array(np.array(attrs[key], np.float32), key)
        else:   # k and axis are scalars, the others lists
            value = numpy_helper.from_array(np.array(attrs[key], np.int64), key)
        constants.append(value)
        names.append(key)
    while names and names[-1] == "":
        names.pop()
    known = OPERATORS[op][2]
    rest = {k: float(v) if known[k] == FLOAT else v for k, v in attrs.items() if k not in moved}
    if op == "Cast":
        rest["to"] = ELEM[attrs["to"]]
    node = helper.make_node(op, names, ["y%d" % i for i in range(outputs)], **rest)
    results = [helper.make_empty_tensor_value_info("y%d" % i) for i in range(outputs)]
    graph = helper.make_graph([node], "one", inputs, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    return model


def infer(node, tensors):
    """[(dtype, shape)] of the results."""
    op = node.op
    shapes = [None if t is None else t.shape for t in tensors]
    attrs = node.attrs = normalize(node, shapes)
    if op in ("G2BMM", "GBMM"):
        return [band_shape(op, attrs, tensors)]
    if op == "GroupNormalization":  # a function of ONNX: its shape is not inferred
        x = tensors[0]
        if any(t.shape != x.shape[1:2] for t in tensors[1:]) or x.shape[1] % attrs["num_groups"]:
            raise EinError("GroupNormalization: the parameters do not fit %s" % list(x.shape))
        return [(x.dtype, x.shape)]
    dtypes = [None if t is None else t.dtype for t in tensors]
    attrs = filled_attrs(op, attrs, shapes, len(node.outputs))
    if op == "Resize" and len(attrs.get("scales", ())) == len(shapes[0]):
        attrs["sizes"] = [resized(*pair) for pair in zip(shapes[0], attrs.pop("scales"))]
    try:
        model = model_of(op, attrs, dtypes, shapes, len(node.outputs))
        onnx.checker.check_node(model.graph.node[0], CONTEXT)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:
        raise EinError("%s: %s" % (op, first_line(error))) from None
    out = []
    for value in model.graph.output:
        t = value.type.tensor_type
        if not t.HasField("shape") or any(not d.HasField("dim_value") for d in t.shape.dim):
            raise EinError("%s: the result's shape cannot be inferred" % op)
        shape = tuple(d.dim_value for d in t.shape.dim)
        if op in ("MaxPool", "AveragePool"):
            shape = shape[:2] + tuple(pool_sizes(attrs, shapes[0][2:]))
        windowed = op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
        if any(d < windowed for d in shape):
            raise EinError("%s: the result would have shape %s" % (op, list(shape)))
        out.append((DTYPE[t.elem_type], shape))
    check_weights(op, attrs, shapes)
    if op in SAME_SIZE and math.prod(out[0][1]) != math.prod(shapes[0]):
        raise EinError("%s: %s cannot become %s" % (op, list(shapes[0]), list(out[0][1])))
    return out


def check_weights(op, attrs, shapes):
    """What onnx's shape inference lets through."""
    group = attrs.get("group", 1)
    if op in ("Conv", "ConvTranspose"):
        x, w = shapes[0], shapes[1]
        ok = len(w) == len(x) and len(x) > 2 and group > 0
        if ok and op == "Conv":
            ok = w[1] * group == x[1] and w[0] % group == 0
            features = w[0]
        elif ok:
            ok = w[0] == x[1] and w[0] % group == 0
            features = w[1] * group
        if not ok:
            raise EinError("%s: %s and %s do not fit" % (op, list(x), list(w)))
        if len(shapes) > 2 and shapes[2] is not None and tuple(shapes[2]) != (features,):
            raise EinError("%s: the bias is %s, not [%d]" % (op, list(shapes[2]), features))
        if tuple(attrs.get("kernel_shape", w[2:])) != tuple(w[2:]):
            raise EinError("%s: kernel_shape is not the kernel's shape" % op)
    if op == "BatchNormalization" and any(tuple(s) != (shapes[0][1],) for s in shapes[1:]):
        raise EinError("BatchNormalization: the parameters are not [%d]" % shapes[0][1])


def filled_attrs(op, attrs, shapes, outputs):
    attrs = dict(attrs)
    if op == "Split" and "split" not in attrs and "num_outputs" not in attrs:
        attrs["num_outputs"] = outputs
    if op == "SpaceToDepth":
        if attrs.pop("mode", "DCR") not in ("DCR", "CRD"):
            raise EinError("SpaceToDepth: mode is DCR or CRD")
    return attrs


def first_line(error):
    lines = [x for x in str(error).split("\n") if x.strip()]
    return lines[0] if lines else type(error).__name__


def band_shape(op, attrs, tensors):
    a, b = tensors[0], tensors[1]
    ok = len(a.shape) == len(b.shape) >= 2 and a.shape[:-1] == b.shape[:-1]
    if op == "G2BMM":
        if not ok or a.shape != b.shape or attrs["w"] < 0:
            raise EinError("G2BMM: %s and %s do not fit" % (list(a.shape), list(b.shape)))
        return a.dtype, a.shape[:-1] + (2 * attrs["w"] + 1,)
    if not ok or a.shape[-1] % 2 == 0:
        raise EinError("GBMM: %s and %s do not fit" % (list(a.shape), list(b.shape)))
    return a.dtype, a.shape[:-1] + (b.shape[-1],)


# ---------------------------------------------------------------- values by onnxruntime

def run_ort(op, attrs, inputs, outputs, double=True):
    """Values by onnxruntime, or None when it has no kernel for these types."""
    wide = np.float64 if double else np.float32
    arrays = [None if x is None else
              x.astype(wide) if x.dtype.kind == "f" else x for x in inputs]
    names = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32", np.dtype(np.int64): "i64",
             np.dtype(np.int32): "i32", np.dtype(np.int8): "i8", np.dtype(np.uint8): "u8",
             np.dtype(np.bool_): "bool"}
    dtypes = [None if a is None else names[a.dtype] for a in arrays]
    shapes = [None if a is None else a.shape for a in arrays]
    attrs = filled_attrs(op, attrs, shapes, outputs)
    if attrs.get("to") == "bf16":  # numpy has no such type: whoever keeps the value rounds it
        attrs["to"] = "f32"
    model = model_of(op, attrs, dtypes, shapes, outputs)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error) or "NotImplemented" in type(error).__name__:
            return None
        raise EinError("%s: %s" % (op, first_line(error))) from None
    feed = {"x%d" % i: np.asarray(a, order="C") for i, a in enumerate(arrays) if a is not None}
    try:
        return session.run(None, feed)
    except Exception as error:
        raise EinError("%s: %s" % (op, first_line(error))) from None


# ---------------------------------------------------------------- windows

def conv_pads(attrs, sizes, window, strides):
    """Explicit (begin, end) of every spatial axis from pads or auto_pad."""
    mode = attrs.get("auto_pad", "NOTSET")
    rank = len(sizes)
    if mode == "NOTSET":
        pads = attrs.get("pads", [0] * (2 * rank))
        return list(zip(pads[:rank], pads[rank:]))
    if mode == "VALID":
        return [(0, 0)] * rank
    out = []
    for size, k, s in zip(sizes, window, strides):
        total = max((math.ceil(size / s) - 1) * s + k - size, 0)
        small, large = total // 2, total - total // 2
        out.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return out


def padded(x, pads, value):
    """x with spatial axes padded; negative pads crop."""
    widths = [(0, 0), (0, 0)] + [(max(a, 0), max(b, 0)) for a, b in pads]
    crop = [slice(None)] * 2 + [slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in
                                zip(pads, x.shape[2:])]
    x = x[tuple(crop)]
    return np.pad(x, widths, constant_values=value) if any(w != (0, 0) for w in widths) else x


def windows(x, kernel, strides, dilations):
    """View [N, C, out.., kernel..] of a padded x."""
    outs = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in
            zip(x.shape[2:], kernel, strides, dilations)]
    steps = x.strides[2:]
    shape = x.shape[:2] + tuple(outs) + tuple(kernel)
    strides = x.strides[:2] + tuple(a * s for a, s in zip(steps, strides)) + \
        tuple(a * d for a, d in zip(steps, dilations))
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


CHUNK = 1 << 23


def conv(attrs, x, w, b=None):
    rank = x.ndim - 2
    group = attrs.get("group", 1)
    strides = attrs.get("strides", [1] * rank)
    dilations = attrs.get("dilations", [1] * rank)
    kernel = w.shape[2:]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
    x = padded(x, conv_pads(attrs, x.shape[2:], spans, strides), 0.0)
    view = windows(x, kernel, strides, dilations)
    n, c = x.shape[:2]
    outs = view.shape[2:2 + rank]
    f, cg, area = w.shape[0], w.shape[1], math.prod(kernel)
    flat = w.reshape(group, f // group, cg * area)
    y = np.empty((n, group, f // group) + outs)
    row = max(1, CHUNK // max(1, c * area * math.prod(outs[1:])))
    for i in range(n):
        for first in range(0, outs[0], row):
            part = view[i, :, first:first + row]
            size = part.shape[1:1 + rank]
            order = [0] + list(range(1 + rank, 1 + 2 * rank)) + list(range(1, 1 + rank))
            columns = part.transpose(order).reshape(group, cg * area, math.prod(size))
            y[i, :, :, first:first + row] = (flat @ columns).reshape((group, f // group) + size)
    y = y.reshape((n, f) + outs)
    return y if b is None else y + b.reshape((1, f) + (1,) * rank)


def conv_transpose(attrs, x, w, b=None):
    rank = x.ndim - 2
    group = attrs.get("group", 1)
    strides = attrs.get("strides", [1] * rank)
    dilations = attrs.get("dilations", [1] * rank)
    extra = attrs.get("output_padding", [0] * rank)
    kernel, sizes = w.shape[2:], x.shape[2:]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
    full = [(i - 1) * s + k for i, s, k in zip(sizes, strides, spans)]
    mode = attrs.get("auto_pad", "NOTSET")
    if "output_shape" in attrs or mode in ("SAME_UPPER", "SAME_LOWER"):
        outs = attrs.get("output_shape", [i * s for i, s in zip(sizes, strides)])[-rank:]
        pads = []
        for a, e, o in zip(full, extra, outs):
            total = max(a + e - o, 0) if mode != "NOTSET" else a + e - o
            half = total // 2
            pads.append(half if mode == "SAME_UPPER" else total - half)
    else:
        both = conv_pads(attrs, sizes, spans, strides)
        pads = [p for p, _ in both]
        outs = [a + e - p - q for a, e, (p, q) in zip(full, extra, both)]
    n, c = x.shape[:2]
    f = w.shape[1]
    area = math.prod(kernel)
    flat = w.reshape(group, c // group, f * area).transpose(0, 2, 1)
    columns = flat @ x.reshape(n, group, c // group, math.prod(sizes))
    columns = columns.reshape((n, group * f) + tuple(kernel) + tuple(sizes))
    room = [max(a, p + o) for a, p, o in zip(full, pads, outs)]
    y = np.zeros((n, group * f) + tuple(room))
    for at in itertools.product(*(range(k) for k in kernel)):
        window = tuple(slice(i * d, i * d + (m - 1) * s + 1, s) for i, d, m, s in
                       zip(at, dilations, sizes, strides))
        y[(slice(None), slice(None)) + window] += columns[(slice(None), slice(None)) + at]
    y = shifted(y, pads, outs)
    return y if b is None else y + b.reshape((1, -1) + (1,) * rank)


def shifted(y, begins, outs):
    """y's spatial window that starts at `begins` (which may be negative) with sizes `outs`."""
    pads = [(-b, b + o - n) for b, o, n in zip(begins, outs, y.shape[2:])]
    return padded(y, pads, 0.0)


def pool_geometry(attrs, sizes):
    rank = len(sizes)
    kernel = attrs["kernel_shape"]
    strides = attrs.get("strides", [1] * rank)
    dilations = attrs.get("dilations", [1] * rank)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
    return kernel, strides, dilations, spans, conv_pads(attrs, sizes, spans, strides)


def pool_sizes(attrs, sizes):
    """The result's spatial sizes. onnx's shape inference does not know the last rule:

    with ceil_mode a window that would begin in the end padding is left out.
    """
    _, strides, _, spans, pads = pool_geometry(attrs, sizes)
    outs = []
    for n, k, s, (p, q) in zip(sizes, spans, strides, pads):
        up = attrs.get("ceil_mode", 0)
        out = -(-(n + p + q - k) // s) + 1 if up else (n + p + q - k) // s + 1
        outs.append(out - 1 if up and (out - 1) * s >= n + p else out)
    return outs


def pool_windows(attrs, x, value):
    """Windows of x padded with `value`, and of marks: 1 in x, 0.5 in the padding, 0 beyond it."""
    kernel, strides, dilations, spans, pads = pool_geometry(attrs, x.shape[2:])
    outs = pool_sizes(attrs, x.shape[2:])
    more = [(0, max((o - 1) * s + k - (n + p + q), 0))
            for o, n, k, s, (p, q) in zip(outs, x.shape[2:], spans, strides, pads)]
    body = padded(padded(x, pads, value), more, value)
    where = padded(padded(np.ones((1, 1) + x.shape[2:]), pads, 0.5), more, 0.0)
    return windows(body, kernel, strides, dilations), windows(where, kernel, strides, dilations)


def max_pool(attrs, x):
    view, _ = pool_windows(attrs, x, -math.inf)
    return view.max(axis=tuple(range(x.ndim, view.ndim)))


def average_pool(attrs, x):
    view, where = pool_windows(attrs, x, 0.0)
    axes = tuple(range(x.ndim, view.ndim))
    counted = where > 0 if attrs.get("count_include_pad", 0) else where == 1
    return view.sum(axis=axes) / counted.sum(axis=axes)


# ---------------------------------------------------------------- other operators in numpy

def prelu(attrs, x, slope):
    return np.where(x < 0, x * slope, x)


def gelu(attrs, x):
    if attrs.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def hard_sigmoid(attrs, x, alpha=0.2, beta=0.5):
    return np.clip(attrs.get("alpha", alpha) * x + attrs.get("beta", beta), 0.0, 1.0)


def layer_norm(attrs, x, scale, bias=None):
    axis = attrs.get("axis", -1) % x.ndim
    axes = tuple(range(axis, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    y = centred / np.sqrt(variance + attrs.get("epsilon", 1e-5)) * scale
    return y if bias is None else y + bias


def batch_norm(attrs, x, scale, bias, mean, var):
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale = scale / np.sqrt(var + attrs.get("epsilon", 1e-5))
    return (x - mean.reshape(shape)) * scale.reshape(shape) + bias.reshape(shape)


def group_norm(attrs, groups, x, scale, bias):
    parts = x.reshape(x.shape[0], groups, -1)
    mean, variance = parts.mean(axis=2, keepdims=True), parts.var(axis=2, keepdims=True)
    y = ((parts - mean) / np.sqrt(variance + attrs.get("epsilon", 1e-5))).reshape(x.shape)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    return y * scale.reshape(shape) + bias.reshape(shape)


def lp_norm(attrs, x):
    axis = attrs.get("axis", -1)
    norm = np.linalg.norm(x, attrs.get("p", 2), axis, keepdims=True)
    return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)


def log_sum_exp(attrs, x):
    axes = tuple(attrs.get("axes", ()))
    if not axes and attrs.get("noop_with_empty_axes", 0):
        return x
    axes = tuple(a % x.ndim for a in axes) or tuple(range(x.ndim))
    return np.logaddexp.reduce(x, axis=axes, keepdims=bool(attrs.get("keepdims", 1)))


def softmax(attrs, x):
    axis = attrs.get("axis", -1)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax(attrs, x):
    axis = attrs.get("axis", -1)
    x = x - x.max(axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def elu(attrs, x):
    return np.where(x < 0, attrs.get("alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)


def resize_axis(x, axis, out, scale, attrs):
    """Interpolates one axis; positions follow ONNX's formulas, in float64."""
    size = x.shape[axis]
    t = np.arange(out, dtype=np.float64)
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "half_pixel":
        at = (t + 0.5) / scale - 0.5
    elif mode == "pytorch_half_pixel":
        at = (t + 0.5) / scale - 0.5 if out > 1 else t * 0
    elif mode == "asymmetric":
        at = t / scale
    elif mode == "align_corners":
        at = t * (size - 1) / (out - 1) if out > 1 else t * 0
    else:
        raise EinError("Resize: coordinate_transformation_mode '%s' is not supported" % mode)
    kind = attrs.get("mode", "nearest")
    shape = [1] * x.ndim
    shape[axis] = out

    def tap(i):
        return x.take(np.clip(i, 0, size - 1).astype(np.int64), axis=axis)

    if kind == "nearest":
        rule = attrs.get("nearest_mode", "round_prefer_floor")
        rules = {"round_prefer_floor": lambda v: np.ceil(v - 0.5),
                 "round_prefer_ceil": lambda v: np.floor(v + 0.5),
                 "floor": np.floor, "ceil": np.ceil}
        if rule not in rules:
            raise EinError("Resize: nearest_mode '%s' is not supported" % rule)
        return tap(rules[rule](at))
    if kind == "linear":
        at = np.clip(at, 0, size - 1)
        low = np.floor(at)
        part = (at - low).reshape(shape)
        return tap(low) * (1 - part) + tap(low + 1) * part
    if kind == "cubic":
        a = attrs.get("cubic_coeff_a", -0.75)
        low = np.floor(at)
        part = at - low
        total = 0
        for k in (-1, 0, 1, 2):
            d = np.abs(part - k)
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            total = total + tap(low + k) * np.where(d <= 1, near, far).reshape(shape)
        return total
    raise EinError("Resize: mode '%s' is not supported" % kind)


def simplest_fraction(scale):
    """What rounds to the scale, as a float, and has the smallest denominator."""
    scale = np.float32(scale)
    for below in range(1, 4097):
        above = math.floor(float(scale) * below + 0.5)
        if above > 0 and np.float32(above / below) == scale:
            return above, below
    raise EinError("Resize: a scale is no ratio of integers")


def resized(size, scale):
    above, below = simplest_fraction(scale)
    return size * above // below


def resize(attrs, x):
    if ("scales" in attrs) == ("sizes" in attrs):
        raise EinError("Resize needs either scales or sizes")
    for axis in range(x.ndim):
        size = x.shape[axis]
        if "sizes" in attrs:
            out = attrs["sizes"][axis]
            scale = out / size
        else:
            above, below = simplest_fraction(attrs["scales"][axis])
            scale, out = above / below, resized(size, attrs["scales"][axis])
        if out != size or scale != 1:
            x = resize_axis(x, axis, out, scale, attrs)
    return x


def space_to_depth(attrs, x):
    b = attrs["blocksize"]
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.transpose(order).reshape(n, c * b * b, h // b, w // b)


def band_rows(m, offset):
    """Slices (rows, shifted rows) of the rows i with 0 <= i + offset < m."""
    lo, hi = max(0, -offset), min(m, m - offset)
    return (slice(lo, hi), slice(lo + offset, hi + offset)) if hi > lo else None


def g2bmm(attrs, q, k):
    w, d, m = attrs["w"], attrs.get("dilation", 1), q.shape[-2]
    s = np.zeros(q.shape[:-1] + (2 * w + 1,))
    for j in range(2 * w + 1):
        rows = band_rows(m, d * (j - w))
        if rows:
            s[..., rows[0], j] = np.einsum("...p,...p->...", q[..., rows[0], :], k[..., rows[1], :])
    return s


def gbmm(attrs, a, v):
    w, d, m = a.shape[-1] // 2, attrs.get("dilation", 1), a.shape[-2]
    o = np.zeros(v.shape)
    for j in range(2 * w + 1):
        rows = band_rows(m, d * (j - w))
        if rows:
            o[..., rows[0], :] += a[..., rows[0], j, None] * v[..., rows[1], :]
    return o


def place(attrs, x, largest):
    """Where x is largest or smallest along an axis; NaN is no extremum, and where nothing else is
    the place is that which would lose against all others."""
    axis, last = attrs.get("axis", 0), attrs.get("select_last_index", 0)
    extremum = (np.fmax if largest else np.fmin).reduce(x, axis=axis, keepdims=True)
    hit = np.flip(x == extremum, axis) if last else x == extremum
    at = np.argmax(hit, axis=axis, keepdims=True)
    end = x.shape[axis] - 1
    at = np.where(hit.any(axis=axis, keepdims=True), at, end)
    at = end - at if last else at
    return at if attrs.get("keepdims", 1) else np.squeeze(at, axis)


def top(attrs, x):
    """The first of equal ones first."""
    axis = attrs.get("axis", -1) % x.ndim
    if attrs.get("largest", 1):    # sorted from behind, the last of equal ones first
        at = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        at = np.argsort(x, axis, kind="stable")
    at = at.take(range(int(np.ravel(attrs["k"])[0])), axis)
    return [np.take_along_axis(x, at, axis), at]


NUMPY = {
    "TopK": top, "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool,
    "AveragePool": average_pool, "PRelu": prelu, "Gelu": gelu, "Resize": resize,
    "LayerNormalization": layer_norm, "BatchNormalization": batch_norm, "Softmax": softmax,
    "LogSoftmax": log_softmax, "Elu": elu, "Softplus": lambda attrs, x: np.logaddexp(x, 0),
    "ArgMax": lambda attrs, x: place(attrs, x, True),
    "ArgMin": lambda attrs, x: place(attrs, x, False),
    "Reciprocal": lambda attrs, x: 1 / x,
    "Floor": lambda attrs, x: np.floor(x), "Ceil": lambda attrs, x: np.ceil(x),
    "SpaceToDepth": space_to_depth, "G2BMM": g2bmm, "GBMM": gbmm,
    "Erf": lambda attrs, x: erf(x), "Sigmoid": lambda attrs, x: sigmoid(x),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda attrs, x: x * hard_sigmoid({}, x, 1 / 6, 0.5),
    "LeakyRelu": lambda attrs, x: np.where(x < 0, x * attrs.get("alpha", 0.01), x),
    "GlobalAveragePool": lambda attrs, x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
    "GlobalMaxPool": lambda attrs, x: x.max(axis=tuple(range(2, x.ndim)), keepdims=True),
    "Relu": lambda attrs, x: np.maximum(x, 0.0), "Tanh": lambda attrs, x: np.tanh(x),
    "Exp": lambda attrs, x: np.exp(x), "Log": lambda attrs, x: np.log(x),
    "Sin": lambda attrs, x: np.sin(x), "Cos": lambda attrs, x: np.cos(x),
    "Tan": lambda attrs, x: np.tan(x), "Asin": lambda attrs, x: np.arcsin(x),
    "Acos": lambda attrs, x: np.arccos(x), "Atan": lambda attrs, x: np.arctan(x),
    "Sinh": lambda attrs, x: np.sinh(x), "Cosh": lambda attrs, x: np.cosh(x),
    "Asinh": lambda attrs, x: np.arcsinh(x), "Acosh": lambda attrs, x: np.arccosh(x),
    "Atanh": lambda attrs, x: np.arctanh(x),
    "Round": lambda attrs, x: np.round(x), "Softsign": lambda attrs, x: x / (1 + np.abs(x)),
    "Mish": lambda attrs, x: x * np.tanh(np.logaddexp(x, 0)),
    "Selu": lambda attrs, x: attrs.get("gamma", 1.0507010221481323) * elu(
        {"alpha": attrs.get("alpha", 1.6732631921768188)}, x),
    "Celu": lambda attrs, x: attrs.get("alpha", 1.0) * elu({}, x / attrs.get("alpha", 1.0)),
    "ThresholdedRelu": lambda attrs, x: np.where(x > attrs.get("alpha", 1.0), x, 0),
    "InstanceNormalization": lambda attrs, *x: group_norm(attrs, x[0].shape[1], *x),
    "GroupNormalization": lambda attrs, *x: group_norm(attrs, attrs["num_groups"], *x),
    "LpNormalization": lp_norm,
    "Einsum": lambda attrs, *x: np.einsum(attrs["equation"], *x),
    "ReduceLogSumExp": log_sum_exp,
    "Sqrt": lambda attrs, x: np.sqrt(x), "MatMul": lambda attrs, x, y: np.matmul(x, y),
}


def evaluate(node, inputs):
    """Values of the node's results. Floats are float64 in and out."""
    op, attrs = node.op, node.attrs
    floats = all(x is None or x.dtype.kind == "f" for x in inputs)
    if op in NUMPY and (floats or op == "TopK"):
        with np.errstate(all="ignore"):
            results = NUMPY[op](attrs, *inputs)
        results = results if isinstance(results, list) else [results]
        return [np.asarray(r) for r in results[:len(node.outputs)]]
    results = run_ort(op, attrs, inputs, len(node.outputs))
    if results is None:
        results = run_ort(op, attrs, inputs, len(node.outputs), double=False)
    if results is None:
        raise EinError("%s cannot be evaluated for these types" % op, node.pos)
    return [r.astype(np.float64) if r.dtype.kind == "f" else r for r in results]


def flop(node, tensors):
    """2 * multiply-adds of convolutions, matrix and band products; 0 for everything else."""
    ins = [None if n is None else tensors[n].shape for n in node.inputs]
    out = tensors[node.outputs[0]].shape
    if node.op == "Conv":
        return 2 * math.prod(out) * math.prod(ins[1][1:])
    if node.op == "ConvTranspose":
        return 2 * math.prod(ins[0]) * math.prod(ins[1][1:])
    if node.op in ("MatMul", "G2BMM"):
        return 2 * math.prod(out) * ins[0][-1]
    if node.op == "Gemm":
        return 2 * math.prod(out) * ins[0][0 if node.attrs.get("transA") else 1]
    if node.op == "GBMM":
        return 2 * math.prod(out) * ins[0][-1]
    return 0
