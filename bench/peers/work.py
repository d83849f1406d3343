"""What a network must at least do, from its graph: multiply-adds and bytes; and floors on a GPU.

Counted are convolutions and products. Elements, not bytes, are kept: a precision says how wide they
are.
"""

import math

from graph import syntax_children

# Dense TFLOP/s (FP32, TF32, FP16 with FP32 accumulation) and GB/s: data sheets, as DEVICES.md lists
# them; 0 where the GPU has no such units.
DEVICES = {
    "v100": (15.7, 0, 125, 900),
    "a100-40": (19.5, 156, 312, 1555),
    "a100": (19.5, 156, 312, 2039),
    "h100": (67, 495, 989, 3350),
    "h200": (67, 495, 989, 4800),
    "l4": (30.3, 60, 121, 300),
    "rtx4090": (82.6, 82.6, 165, 1008),
    "orin-nano": (1.28, 5.1, 10.2, 68),
    "orin-nx": (1.88, 7.5, 15.0, 102),
    "agx-orin": (5.3, 21, 42.6, 204.8),
    "agx-thor": (8.1, 129, 259, 273),
}
PRECISIONS = ("fp32", "tf32", "fp16")
WIDTH = {"fp32": 4, "tf32": 4, "fp16": 2}


def peak(device, precision):
    """FLOP/s and bytes/s."""
    rates = DEVICES[device]
    return rates[PRECISIONS.index(precision)] * 1e12, rates[3] * 1e9


def sums(e, outer):
    """2 * multiply-adds of sums over products of at least two values in an equation."""
    if e[0] == "reduce":
        inner = outer * math.prod(hi - lo for _, lo, hi in e[2])
        terms = [x for _, x in e[3][1]] if e[3][0] == "term" else []
        real = [x for x in terms if x[0] not in ("num", "guard", "idx")]
        return (2 * inner if e[1] == "sum" and len(real) > 1 else 0) + sums(e[3], inner)
    return sum(sums(x, outer) for x in syntax_children(e))


def node_flop(node, graph):
    out = math.prod(graph.shape(node.outputs[0]))
    if node.op is None:
        return sums(node.body, math.prod(hi - lo for _, lo, hi in node.indices))
    ins = [graph.shape(n) for n in node.inputs if n]
    if node.op == "Conv":
        return 2 * out * math.prod(ins[1][1:])
    if node.op == "ConvTranspose":
        return 2 * math.prod(ins[0]) * math.prod(ins[1][1:])
    if node.op in ("MatMul", "Linear"):
        return 2 * out * ins[0][-1]
    if node.op == "Gemm":
        return 2 * out * ins[0][0 if node.attrs.get("transA") else 1]
    return 0


def layers(graph):
    """[(FLOP, elements of weights, input and output)] of the nodes that multiply."""
    found = []
    for node in graph.nodes:
        flop = node_flop(node, graph)
        if flop:
            names = {n for n in node.inputs if n} | set(node.outputs)
            found.append((flop, sum(math.prod(graph.shape(n)) for n in names)))
    return found


def network(graph):
    """(FLOP, elements of all weights, of the inputs and of the outputs)."""
    read = {n for node in graph.nodes for n in node.inputs if n}
    names = [n for n in read if n in graph.values] + [t.name for t in graph.inputs]
    names += [tensor for _, tensor in graph.outputs]
    return sum(f for f, _ in layers(graph)), sum(math.prod(graph.shape(n)) for n in names)


def bound(flop, elements, device, precision):
    """Seconds below which nobody gets; None where the GPU lacks the units."""
    rate, bandwidth = peak(device, precision)
    return max(flop / rate, elements * WIDTH[precision] / bandwidth) if rate else None


def floors(graph, device, precision):
    """Microseconds: (everything in one kernel, one perfect kernel a layer)."""
    whole = bound(*network(graph), device, precision)
    if whole is None:
        return None
    return whole * 1e6, sum(bound(f, n, device, precision) for f, n in layers(graph)) * 1e6
