"""Operators against onnxruntime's float32 kernels, and against the same operators as equations."""

import itertools
import os
import re

import numpy as np

import ein
import operators
from checks import check, close, fails, only, same_results, test

# ---------------------------------------------------------------- operators against onnxruntime

RNG = np.random.default_rng(5)


def rand(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def against_ort(op, inputs, **attrs):
    ts = [None if a is None else ein.Tensor("t", "f32" if a.dtype == np.float32 else "i64",
                                            a.shape, (0,) * a.ndim) for a in inputs]
    outputs = attrs.pop("outputs", 1)
    node = ein.Node(op, ["t" if a is not None else None for a in inputs],
                    ["y%d" % i for i in range(outputs)], dict(attrs), (1, 1))
    inferred = operators.infer(node, ts)
    wide = [a if a is None or a.dtype.kind != "f" else a.astype(np.float64) for a in inputs]
    got = operators.evaluate(node, wide)
    wanted = operators.run_ort(op, node.attrs, inputs, outputs, double=False)
    for (_, shape), g, w in zip(inferred, got, wanted):
        check(tuple(shape) == g.shape == w.shape,
              "%s %s: %s %s %s" % (op, attrs, shape, g.shape, w.shape))
        close(w, g, 2e-6, "%s %s:" % (op, attrs))
    return got


@test
def op_conv():
    x, k, b = rand(2, 4, 9, 8), rand(6, 4, 3, 2), rand(6)
    against_ort("Conv", [x, k, b])
    against_ort("Conv", [x, k], strides=2, pads=1)
    against_ort("Conv", [x, k, None][:2], strides=[2, 1], pads=[0, 1, 2, 3], dilations=[2, 3])
    against_ort("Conv", [x, rand(6, 2, 3, 3), b], group=2, pads=1)
    against_ort("Conv", [x, rand(8, 1, 3, 3)], group=4, dilations=2)
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        against_ort("Conv", [x, rand(2, 4, 4, 3)], auto_pad=mode, strides=2)
    against_ort("Conv", [rand(2, 3, 11), rand(4, 3, 5), rand(4)], strides=3, pads=2)
    against_ort("Conv", [rand(1, 3, 5, 6, 7), rand(4, 3, 3, 2, 3)], strides=[1, 2, 2], pads=1)


@test
def op_conv_in_chunks():
    x, k = rand(2, 4, 19, 8), rand(6, 2, 3, 2)
    whole = against_ort("Conv", [x, k], group=2)[0]
    saved, operators.CHUNK = operators.CHUNK, 64
    close(against_ort("Conv", [x, k], group=2)[0], whole)
    operators.CHUNK = saved


@test
def op_conv_transpose():
    x, k, b = rand(2, 4, 5, 6), rand(4, 3, 4, 3), rand(3)
    against_ort("ConvTranspose", [x, k, b])
    against_ort("ConvTranspose", [x, k], strides=2, pads=1)
    against_ort("ConvTranspose", [x, k], strides=4, pads=3, output_padding=1)
    against_ort("ConvTranspose", [x, k], strides=[2, 3], pads=[0, 1, 2, 1], dilations=[2, 1],
                output_padding=[1, 2])
    against_ort("ConvTranspose", [x, rand(4, 2, 3, 3), rand(4)], group=2, strides=2)
    against_ort("ConvTranspose", [x, k], strides=2, output_shape=[11, 13])
    against_ort("ConvTranspose", [x, k], strides=2, auto_pad="SAME_UPPER")
    against_ort("ConvTranspose", [rand(1, 3, 7), rand(3, 2, 4)], strides=3, pads=1)
    against_ort("ConvTranspose", [rand(1, 3, 3, 4, 2), rand(3, 2, 3, 3, 3)], strides=2, pads=1)


@test
def op_pools():
    x = rand(2, 3, 10, 9)
    for op in ("MaxPool", "AveragePool"):
        more = {"count_include_pad": 1} if op == "AveragePool" else {}
        against_ort(op, [x], kernel_shape=3, strides=2, pads=1)
        against_ort(op, [x], kernel_shape=3, strides=2, pads=1, **more)
        against_ort(op, [x], kernel_shape=[3, 2], strides=[2, 3], pads=[0, 1, 1, 0], ceil_mode=1)
        against_ort(op, [x], kernel_shape=3, strides=2, ceil_mode=1, **more)
        against_ort(op, [rand(1, 1, 4, 5)], kernel_shape=2, strides=3, pads=1, ceil_mode=1, **more)
        against_ort(op, [x], kernel_shape=2, auto_pad="SAME_UPPER", strides=2)
        against_ort(op, [x], kernel_shape=2, auto_pad="SAME_LOWER")
        against_ort(op, [x], kernel_shape=3, dilations=2, pads=1)
        against_ort(op, [rand(1, 2, 9)], kernel_shape=4, strides=3, ceil_mode=1, pads=1, **more)
        against_ort(op, [rand(1, 2, 5, 6, 7)], kernel_shape=2, strides=2)
    against_ort("GlobalAveragePool", [x])
    against_ort("GlobalMaxPool", [x])
    against_ort("GlobalAveragePool", [rand(1, 2, 3, 4, 5)])


@test
def op_elementwise():
    x, y = rand(2, 3, 4), rand(3, 1)
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        against_ort(op, [x, y])
    against_ort("Max", [x, y, rand(4)])
    against_ort("Sum", [x, y, rand(4)])
    against_ort("Elu", [x], alpha=0.3)
    against_ort("Pow", [abs(x), y])
    against_ort("Mod", [x, y], fmod=1)
    for op in ("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Erf", "HardSwish", "Identity",
               "Reciprocal", "Floor", "Ceil", "Softplus", "Elu",
               "LeakyRelu", "HardSigmoid", "Gelu"):
        against_ort(op, [3 * x])
    for op in ("Log", "Sqrt"):
        against_ort(op, [abs(x)])
    against_ort("LeakyRelu", [x], alpha=0.3)
    against_ort("HardSigmoid", [3 * x], alpha=0.3, beta=0.4)
    against_ort("Gelu", [x], approximate="tanh")
    against_ort("PRelu", [x, y])
    against_ort("PRelu", [x, rand(1)])
    against_ort("Clip", [x], min=-0.5, max=0.25)
    against_ort("Clip", [x], min=0)
    against_ort("Clip", [x], max=0.5)
    against_ort("Relu", [np.array([np.nan, -1, 1], np.float32)])


@test
def op_products():
    against_ort("MatMul", [rand(2, 3, 4), rand(4, 5)])
    against_ort("MatMul", [rand(2, 1, 3, 4), rand(5, 4, 2)])
    against_ort("MatMul", [rand(4), rand(3, 4, 2)])
    against_ort("Gemm", [rand(3, 4), rand(4, 5)])
    against_ort("Gemm", [rand(4, 3), rand(5, 4), rand(5)], alpha=0.5, beta=2, transA=1, transB=1)
    against_ort("Gemm", [rand(3, 4), rand(4, 5), rand(3, 1)], beta=0.25)


@test
def op_normalizations():
    x = rand(2, 3, 4, 5)
    against_ort("BatchNormalization", [x, rand(3), rand(3), rand(3), abs(rand(3))])
    against_ort("BatchNormalization", [x, rand(3), rand(3), rand(3), abs(rand(3))], epsilon=0.1)
    against_ort("LayerNormalization", [x, rand(5), rand(5)])
    against_ort("LayerNormalization", [x, rand(4, 5)], axis=2, epsilon=1e-3)
    for axis in (0, 1, -1):
        against_ort("Softmax", [x], axis=axis)
        against_ort("LogSoftmax", [x], axis=axis)
    against_ort("Softmax", [x])


@test
def op_reductions():
    x = rand(2, 3, 4, 5)
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd",
               "ReduceSumSquare", "ReduceL2"):
        against_ort(op, [x])
        against_ort(op, [x], axes=[1, -1])
        against_ort(op, [x], axes=2, keepdims=0)


@test
def op_places():
    ties = np.round(rand(3, 4, 5))
    for op in ("ArgMax", "ArgMin"):
        for x in (rand(2, 3, 4), ties):
            against_ort(op, [x])
            against_ort(op, [x], axis=-1, keepdims=0)
            against_ort(op, [x], axis=1, select_last_index=1)


@test
def op_top():
    for x in (rand(2, 3, 40), np.round(rand(2, 3, 40)), np.round(rand(3, 9)).astype(np.int64)):
        against_ort("TopK", [x], k=[5], outputs=2)
        against_ort("TopK", [x], k=[3], axis=1, largest=0, outputs=2)
        against_ort("TopK", [x], k=[1], axis=0)


@test
def op_table():
    """The generator has no operator that the oracle does not know."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "..", "..", "gen", "parse", "ops.c")
    with open(path) as file:
        table = file.read().split("ein__op_table[] = {")[1].split("};")[0]
    names = re.findall(r'^    \{"(\w+)"', table, re.M)
    check(len(names) > 60 and set(names) <= set(operators.OPERATORS),
          "unknown: %s" % sorted(set(names) - set(operators.OPERATORS)))


@test
def op_movement():
    x = rand(2, 4, 6, 8)
    against_ort("Concat", [x, rand(2, 1, 6, 8), x], axis=1)
    against_ort("Split", [x], axis=-1, outputs=4)
    against_ort("Split", [x], axis=-1, num_outputs=3, outputs=3)
    against_ort("Split", [x], axis=2, split=[1, 2, 3], outputs=3)
    against_ort("Slice", [x], starts=[1, -3], ends=[9, -1], axes=[0, 3])
    against_ort("Slice", [x], starts=6, ends=-99, axes=3, steps=-2)
    against_ort("Slice", [x], starts=[0, 1], ends=[1, 3])
    against_ort("Pad", [x], pads=[0, 1, 2, 0, 1, 0, -1, 3], value=1.5)
    against_ort("Pad", [x], pads=[1, 2], axes=[-1])
    against_ort("Transpose", [x], perm=[0, 2, 3, 1])
    against_ort("Transpose", [x])
    against_ort("Reshape", [x], shape=[0, -1, 2])
    against_ort("Flatten", [x])
    against_ort("Flatten", [x], axis=-1)
    against_ort("Squeeze", [rand(1, 3, 1)], axes=[0, -1])
    against_ort("Squeeze", [rand(1, 3, 1)])
    against_ort("Unsqueeze", [x], axes=[0, -1])
    against_ort("Expand", [rand(3, 1)], shape=[2, 1, 4])
    for mode in ("DCR", "CRD"):
        against_ort("DepthToSpace", [x], blocksize=2, mode=mode)
    against_ort("SpaceToDepth", [x], blocksize=2)


@test
def op_space_to_depth_inverts():
    x = rand(2, 8, 4, 6)
    for mode in ("DCR", "CRD"):
        y = operators.run_ort("DepthToSpace", {"blocksize": 2, "mode": mode}, [x], 1)[0]
        close(operators.space_to_depth({"blocksize": 2, "mode": mode}, y), x)


@test
def op_resize():
    x = rand(1, 2, 5, 7)
    modes = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    for where, mode in itertools.product(modes, ("nearest", "linear", "cubic")):
        for more in ({"scales": [1, 1, 2, 3]}, {"sizes": [1, 2, 9, 11]}, {"scales": 0.6},
                     {"sizes": [1, 2, 1, 7]}):
            if mode == "cubic" and more.get("scales") == 0.6:
                continue
            against_ort("Resize", [x], mode=mode, coordinate_transformation_mode=where, **more)
    for rule in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        against_ort("Resize", [x], scales=[1, 1, 2, 2], nearest_mode=rule,
                    coordinate_transformation_mode="asymmetric")
    for axes, scales in ([-1, 2], [3, 2]), (3, 2), ([2, 3], 2):
        against_ort("Resize", [x], scales=scales, axes=axes, mode="linear")
    against_ort("Resize", [rand(1, 2, 5)], scales=2, mode="linear")
    against_ort("Resize", [rand(1, 2, 3, 4, 3)], scales=2, mode="linear")


@test
def op_errors():
    head = "model m\ninput x: f32[1,2,4,4]\nweight k: f32[3,2,3,3] = randn()\noutput y\n"
    error = fails(head + "y = Convv(x, k)\n", "unknown operator 'Convv'; did you mean 'Conv'?")
    check(error.unsupported)
    fails(head + "y = Conv(x, k; stride=2)\n", "did you mean 'strides'?")
    fails(head + "y = Conv(x)\n", "takes 2 to 3 inputs")
    fails(head + "y = Conv(k, x)\n", "Conv")
    fails(head + "y = Conv(x, k; group=2)\n", "do not fit")
    fails(head + "y = Conv(x, k; pads=[1,1])\n", "Conv")
    fails(head + "y = Reshape(x; shape=[5,5])\n", "Reshape")
    fails(head + "y = Pad(x)\n", "needs 'pads'")
    fails(head + "y = Softmax(x; axis=foo)\n", "wrong kind")


@test
def op_integers():
    text = "model m\ninput a: i64[3]\ninput b: i64[3]\noutput y\ny = Add(a, b)\n"
    got = only(text, {"a": np.array([1, 2, 3]), "b": np.array([5, 6, 2 ** 60])})
    check(got.dtype == np.int64 and got[2] == 2 ** 60 + 3)


# ---------------------------------------------------------------- operators as equations

@test
def conv_as_equation():
    same_results("""model m
input x: f32[2,4,9,8]
weight k: f32[6,4,3,2] = randn()
weight b: f32[6] = randn()
output y, z
y = Conv(x, k, b; strides=[2,1], pads=[1,0,2,1], dilations=[1,2])
z[n,f,h,w] = sum(c,r,s) x[n,c,2*h+r-1,w+2*s] * k[f,c,r,s] + b[f]
    where h in 0:5, w in 0:7, pad x 0
""")


@test
def depthwise_as_equation():
    same_results("""model m
input x: f32[2,4,9,8]
weight k: f32[8,1,3,3] = randn()
output y, z
y = Conv(x, k; pads=1, group=4)
z[n,f,h,w] = sum(r,s) x[n,f/2,h+r-1,w+s-1] * k[f,0,r,s] where h in 0:9, w in 0:8, pad x 0
""")


@test
def conv_transpose_as_equation():
    same_results("""model m
input a: f32[1,6,5,4]
weight k: f32[6,3,4,4] = randn()
output y, z
y = ConvTranspose(a, k; strides=2, pads=1)
z[n,f,h,w] = sum(c,r,s) a[n,c,(h+1-r)/2,(w+1-s)/2] * k[c,f,r,s]
      * [(h+1-r)%2 == 0] * [(w+1-s)%2 == 0]
    where h in 0:10, w in 0:8, pad a 0
""")


@test
def pools_as_equations():
    same_results("""model m
input x: f32[2,3,9,8]
output y, z
y = MaxPool(x; kernel_shape=3, strides=2, pads=1)
z[n,c,h,w] = max(r,s) x[n,c,2*h+r-1,2*w+s-1] where h in 0:5, w in 0:4, r in 0:3, s in 0:3,
    pad x -inf
""")
    same_results("""model m
input x: f32[2,3,9,8]
output y, z
y = AveragePool(x; kernel_shape=3, pads=1)
z[n,c,h,w] = (sum(r,s) x[n,c,h+r-1,w+s-1]) / (sum(r,s) [h+r>=1] * [h+r<=9] * [w+s>=1] * [w+s<=8])
    where h in 0:9, w in 0:8, r in 0:3, s in 0:3, pad x 0
""")


@test
def softmax_and_norms_as_equations():
    same_results("""model m
input x: f32[2,3,5]
output y, z
y = Softmax(x)
e[n,i,j] = exp(x[n,i,j] - max(k) x[n,i,k])
z[n,i,j] = e[n,i,j] / (sum(k) e[n,i,k])
""")
    same_results("""model m
input x: f32[2,3,5]
weight g: f32[5] = randn()
weight b: f32[5] = randn()
output y, z
y = LayerNormalization(x, g, b; epsilon=1e-3)
m[n,i] = 0.2 * sum(j) x[n,i,j]
v[n,i] = 0.2 * sum(j) square(x[n,i,j] - m[n,i])
z[n,i,j] = (x[n,i,j] - m[n,i]) * rsqrt(v[n,i] + 0.001) * g[j] + b[j]
""")
    same_results("""model m
input x: f32[2,3,5]
weight s: f32[3] = randn()
weight b: f32[3] = randn()
weight m: f32[3] = randn()
weight v: f32[3] = uniform(lo=0.5, hi=1.5)
output y, z
y = BatchNormalization(x, s, b, m, v)
z[n,c,h] = (x[n,c,h] - m[c]) / sqrt(v[c] + 1e-5) * s[c] + b[c]
""")
    same_results("""model m
input x: f32[2,3,5]
output y, z
y = Gelu(x)
z[n,c,h] = 0.5 * x[n,c,h] * (1 + erf(x[n,c,h] / 1.4142135623730951))
""")


@test
def movements_as_equations():
    same_results("""model m
input x: f32[2,8,3,4]
output y, z
y = DepthToSpace(x; blocksize=2)
z[n,c,h,w] = x[n,c+2*(2*(h%2)+w%2),h/2,w/2] where c in 0:2, h in 0:6, w in 0:8
""")
    same_results("""model m
input x: f32[2,8,4,4]
output y, z
y = SpaceToDepth(x; blocksize=2)
z[n,c,h,w] = x[n,c%8,2*h+c/16,2*w+c/8%2] where c in 0:32, h in 0:2, w in 0:2
""")
    same_results("""model m
input a: f32[2,3]
input b: f32[2,4]
output y, z
y = Concat(a, b; axis=1)
z[i,j] = a[i,j] + b[i,j-3] where j in 0:7, pad a 0, pad b 0
""")
    same_results("""model m
input x: f32[1,2,5,7]
output y, z
y = Resize(x; scales=2, mode=nearest, coordinate_transformation_mode=asymmetric,
    nearest_mode=floor)
z[n,c,h,w] = x[n,c,h/2,w/2] where h in 0:10, w in 0:14
""")


BAND = """model m
dim M = 13, P = 5, W = 3, D = 2
input q: f32[2,M,P]
input k: f32[2,M,P]
output y, z
%s
"""


@test
def band_products_as_equations():
    same_results(BAND % """y = G2BMM(q, k; w=W, dilation=D)
z[b,m,j] = sum(p) q[b,m,p] * k[b,m+D*(j-W),p] where j in 0:2*W+1, pad k 0""")
    same_results(BAND % """s = G2BMM(q, k; w=W, dilation=D)
y = GBMM(s, k; dilation=D)
z[b,m,p] = sum(j) s[b,m,j] * k[b,m+D*(j-W),p] where pad k 0""")
    same_results(BAND.replace("M = 13", "M = 3") % """y = G2BMM(q, k; w=W)
z[b,m,j] = sum(p) q[b,m,p] * k[b,m+j-W,p] where j in 0:2*W+1, pad k 0""")


@test
def op_functions_and_norms():
    x = rand(2, 6, 5, 4)
    for op in ("Softsign", "Mish", "Sin", "Cos", "Round", "Sign", "Selu", "Celu"):
        against_ort(op, [2 * x])
    for op in ("Tan", "Atan", "Sinh", "Cosh", "Asinh"):
        against_ort(op, [x])
    for op in ("Asin", "Acos", "Atanh"):
        against_ort(op, [np.clip(x, -0.9, 0.9)])
    against_ort("Acosh", [1 + np.abs(x)])
    against_ort("Selu", [x], alpha=1.25, gamma=0.75)
    against_ort("Celu", [x], alpha=0.5)
    against_ort("ThresholdedRelu", [x], alpha=0.5)
    against_ort("InstanceNormalization", [x, rand(6), rand(6)], epsilon=1e-3)
    against_ort("GroupNormalization", [x, rand(6), rand(6)], num_groups=3)
    for p in (1, 2):
        against_ort("LpNormalization", [x], axis=1, p=p)
    for op in ("ReduceLogSumExp", "ReduceL1"):
        against_ort(op, [x])
        against_ort(op, [x], axes=[1, -1], keepdims=0)
    against_ort("Einsum", [rand(3, 4), rand(4, 5)], equation="ij,jk->ki")


@test
def op_positions():
    x, at = rand(3, 4, 5), np.array([[1, 0, 2]])
    against_ort("Gather", [x, at])
    against_ort("Gather", [x, at], axis=-1)
    against_ort("GatherElements", [x, np.array([[[1, 0, 2, 2, 1]]])], axis=1)
    against_ort("Tile", [x], repeats=[1, 2, 3])
    against_ort("Trilu", [x], k=1)
    against_ort("Trilu", [x], upper=0)
    against_ort("CumSum", [x], axis=1, exclusive=1)
    for mode in ("reflect", "edge", "wrap"):
        against_ort("Pad", [x], pads=[0, 1, 2, 1, 0, 3], mode=mode)
    check(operators.evaluate(ein.Node("Cast", ["t"], ["y"], {"to": "i64"}, (1, 1)),
                             [np.array([-1.5, 2.5])])[0].tolist() == [-1, 2], "Cast")
