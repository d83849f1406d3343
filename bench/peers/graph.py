"""A model as the peers run it: `einnet graph --json` and the weights of `einnet pack`.

Every peer, and the float64 reference, is built from a `Graph`; nothing here or later knows a model.
What all systems share is done here once: batch normalizations go into the convolution before them,
a matrix product with a bias behind it is one node, and products with a softmax between them may be
one node ("Attention"), which frameworks have a call for.
"""

import copy
import json
import math
import os
import struct
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "oracle"))

import syntax  # noqa: E402
import tensors  # noqa: E402

HEADER = 256
NUMPY = tensors.NUMPY


class Unsupported(Exception):
    """The model has something that the twins do not express."""


class Tensor:
    """`lo` is the first position on each axis: an equation's range may begin below 0."""

    def __init__(self, entry, lo=None):
        self.name = entry["name"]
        self.dtype = entry["dtype"]
        self.shape = tuple(entry["shape"])
        self.lo = tuple(lo) if lo else (0,) * len(self.shape)
        source = entry.get("source")
        self.source = None
        if source and source["kind"] not in ("none", "blob"):
            self.source = (source["kind"], {k: v for k, v in source.items() if k != "kind"})


class Node:
    """An operator (op, attrs) or an equation (op None; body, indices, ranges, pads)."""

    def __init__(self, op, inputs, outputs, attrs=None):
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = attrs or {}
        self.body = None
        self.indices = []   # [(name, lo, hi)] of the result
        self.pads = {}


def number(v):
    return {"inf": math.inf, "-inf": -math.inf}.get(v, v)


def with_ranges(e, ranges):
    """The body with every reduction's names replaced by (name, lo, hi); `ranges` in the order of
    the text."""
    kind = e[0]
    if kind == "reduce":
        found = [next(ranges) for _ in e[2]]
        return (kind, e[1], found, with_ranges(e[3], ranges))
    if kind == "neg":
        return (kind, with_ranges(e[1], ranges))
    if kind in ("expr", "term"):
        return (kind, [(op, with_ranges(x, ranges)) for op, x in e[1]])
    if kind == "call":
        return (kind, e[1], [with_ranges(x, ranges) for x in e[2]])
    if kind == "select":
        return e[:2] + tuple(with_ranges(x, ranges) for x in e[2:])
    return e


def equation_node(entry):
    statement = syntax.parse("ein 1\n" + entry["equation"] + "\n")[0]
    body = statement.data["body"]
    indices = [name for name, _ in statement.data["indices"]]
    ranges = [(r["index"], r["lo"], r["hi"]) for r in entry["ranges"]]
    node = Node(None, entry["inputs"], [o["name"] for o in entry["outputs"]])
    node.indices = ranges[:len(indices)]
    node.body = with_ranges(body, iter(ranges[len(indices):]))
    node.pads = {k: number(v) for k, v in entry["pads"].items()}
    return node


# Attributes of which one number stands for all spatial axes, and how many numbers an axis has.
SPATIAL = {"strides": 1, "dilations": 1, "kernel_shape": 1, "output_padding": 1, "pads": 2}
LISTS = ("axes", "starts", "ends", "steps", "shape", "perm", "split")


def operator_node(entry, shapes):
    attrs = {}
    rank = max(len(shapes[entry["inputs"][0]]) - 2, 1)
    for key, v in entry["attributes"].items():
        if key == "pads" and entry["op"] == "Pad" and not isinstance(v, list):
            v = [0, 0] + [v] * rank + [0, 0] + [v] * rank
        elif key in SPATIAL and not isinstance(v, list):
            v = [v] * (SPATIAL[key] * rank)
        elif key in LISTS and not isinstance(v, list):
            v = [v]
        attrs[key] = [number(x) for x in v] if isinstance(v, list) else number(v)
    return Node(entry["op"], entry["inputs"], [o["name"] for o in entry["outputs"]], attrs)


class Graph:
    def __init__(self, text):
        data = json.loads(text)
        if data.get("einnet_graph") != 1:
            raise Unsupported("not a graph of version 1")
        self.name = data["model"]
        self.hash = data["hash"]
        self.inputs = [Tensor(t) for t in data["inputs"]]
        self.weights = [Tensor(t) for t in data["weights"]]
        self.outputs = [(o["name"], o["tensor"]) for o in data["outputs"]]
        self.tensors = {t.name: t for t in self.inputs + self.weights}
        self.values = {}    # weights and what was computed from them, float64 or integers
        self.nodes = []
        for entry in data["nodes"]:
            shapes = {n: t.shape for n, t in self.tensors.items()}
            node = equation_node(entry) if "equation" in entry else operator_node(entry, shapes)
            lo = [r[1] for r in node.indices]
            for out in entry["outputs"]:
                self.tensors[out["name"]] = Tensor(out, lo)
            self.nodes.append(node)

    def shape(self, name):
        return self.tensors[name].shape

    def uses(self):
        """How often each tensor is read; a published one counts once more."""
        count = {}
        for name in [n for node in self.nodes for n in node.inputs if n] + \
                [tensor for _, tensor in self.outputs]:
            count[name] = count.get(name, 0) + 1
        return count

    def producers(self):
        return {out: node for node in self.nodes for out in node.outputs}

    def replace(self, name, other):
        """Readers of `name` read `other`."""
        for node in self.nodes:
            node.inputs = [other if n == name else n for n in node.inputs]
        self.outputs = [(published, other if t == name else t) for published, t in self.outputs]

    def add_value(self, name, value):
        entry = {"name": name, "dtype": "f32", "shape": value.shape}
        self.tensors[name] = Tensor(entry)
        self.values[name] = value


def load(path, weights=None):
    """The graph of a JSON file; `weights` is a packed file, else seeded sources are computed."""
    with open(path, encoding="utf-8") as f:
        graph = Graph(f.read())
    if weights:
        read_blob(graph, weights)
    else:
        for t in graph.weights:
            graph.values[t.name] = widened(tensors.seeded(t.name, t.dtype, t.shape, t.source))
    return graph


def widened(a):
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def read_blob(graph, path):
    """The weights of a packed file; refuses those of another model."""
    with open(path, "rb") as f:
        data = f.read()
    graph_like = copy.copy(graph)
    graph_like.weights = [t.name for t in graph.weights]
    if data[:8] != tensors.MAGIC or len(data) < HEADER:
        raise Unsupported("%s: not a file of weights" % path)
    _, count, manifest, _, total = struct.unpack("<IIQQQ", data[8:40])
    if count != len(graph.weights) or manifest != tensors.manifest(graph_like) or \
            total != len(data):
        raise Unsupported("%s: these weights belong to another model" % path)
    at = HEADER
    for t in graph.weights:
        size = tensors.byte_size(t)
        graph.values[t.name] = widened(tensors.from_bytes(data[at:at + size], t.dtype, t.shape))
        at += tensors.padded(size)


def input_set(graph, index):
    """The seeded inputs that emitted test programs use: set 0 is that of --check and --out."""
    out = []
    for j, t in enumerate(graph.inputs):
        kind, attributes = tensors.input_source(j, t)
        seed = attributes.get("seed", 0) + 1000 * index
        out.append(tensors.seeded(t.name, t.dtype, t.shape, (kind, dict(attributes, seed=seed))))
    return out


# ---------------------------------------------------------------- what all systems share

def prepare(graph):
    """Identities away, batch normalizations into convolutions, biases into products."""
    drop_identities(graph)
    fold_normalizations(graph)
    fuse_biases(graph)
    return graph


def drop_identities(graph):
    for node in [n for n in graph.nodes if n.op == "Identity"]:
        graph.replace(node.outputs[0], node.inputs[0])
        graph.nodes.remove(node)


def constant(graph, name):
    return name in graph.values


def fold_normalizations(graph):
    """y = (c - mean) * s + bias with c = Conv(x, k, b): the same convolution of k * s, in float64;
    without a convolution before it, a product and a sum."""
    uses, producers = graph.uses(), graph.producers()
    for node in [n for n in graph.nodes if n.op == "BatchNormalization"]:
        if not all(constant(graph, n) for n in node.inputs[1:5]):
            raise Unsupported("BatchNormalization with computed parameters")
        scale, bias, mean, var = (graph.values[n] for n in node.inputs[1:5])
        scale = scale / np.sqrt(var + node.attrs.get("epsilon", 1e-5))
        shift = bias - mean * scale
        conv = producers.get(node.inputs[0])
        out = node.outputs[0]
        foldable = conv is not None and conv.op in ("Conv", "ConvTranspose") and \
            uses[node.inputs[0]] == 1 and all(constant(graph, n) for n in conv.inputs[1:]) and \
            not (conv.op == "ConvTranspose" and conv.attrs.get("group", 1) != 1)
        if not foldable:
            shape = (-1,) + (1,) * (len(graph.shape(out)) - 2)
            graph.add_value(out + ".scale", scale.reshape(shape))
            graph.add_value(out + ".shift", shift.reshape(shape))
            at = graph.nodes.index(node)
            graph.tensors[out + ".scaled"] = graph.tensors[out]
            graph.nodes[at:at + 1] = [
                Node("Mul", [node.inputs[0], out + ".scale"], [out + ".scaled"]),
                Node("Add", [out + ".scaled", out + ".shift"], [out])]
            continue
        kernel = graph.values[conv.inputs[1]]
        along = [1] * kernel.ndim
        along[0 if conv.op == "Conv" else 1] = -1
        graph.add_value(out + ".kernel", kernel * scale.reshape(along))
        if len(conv.inputs) > 2 and conv.inputs[2]:
            shift = shift + graph.values[conv.inputs[2]] * scale
        graph.add_value(out + ".bias", shift)
        conv.inputs = [conv.inputs[0], out + ".kernel", out + ".bias"]
        conv.outputs = [out]
        graph.nodes.remove(node)


def fuse_biases(graph):
    """Add(MatMul(x, w), b) with a weight matrix and a weight vector is Linear(x, w, b)."""
    uses, producers = graph.uses(), graph.producers()
    for node in [n for n in graph.nodes if n.op == "Add"]:
        for product, bias in (node.inputs, node.inputs[::-1]):
            before = producers.get(product)
            if before is None or before.op != "MatMul" or uses[product] != 1 or \
                    not constant(graph, bias) or not constant(graph, before.inputs[1]):
                continue
            width = graph.shape(product)[-1]
            if len(graph.shape(before.inputs[1])) != 2 or graph.shape(bias) != (width,):
                continue
            node.op, node.inputs = "Linear", before.inputs + [bias]
            graph.nodes.remove(before)
            break


# ---------------------------------------------------------------- attention

class Labelled:
    """A product or scaling over named axes: sum over `summed` of factors, times `scale`."""

    def __init__(self, out, factors, summed, scale):
        self.out = out              # names of the result's axes
        self.factors = factors      # [(tensor, names)]
        self.summed = summed
        self.scale = scale


def as_product(node, graph):
    """A node that is scale * sum of a product of plain reads, else None."""
    if node.op == "MatMul":
        a, b = (graph.shape(n) for n in node.inputs)
        if len(a) != len(b) or len(a) < 2 or a[:-2] != b[:-2]:
            return None
        batch = ["b%d" % i for i in range(len(a) - 2)]
        return Labelled(batch + ["m", "n"], [(node.inputs[0], batch + ["m", "k"]),
                                             (node.inputs[1], batch + ["k", "n"])], ["k"], 1.0)
    if node.op is not None:
        return None
    scale, summed, factors = 1.0, [], []
    todo = [node.body]
    while todo:
        e = todo.pop(0)
        if e[0] == "num":
            scale *= e[1]
        elif e[0] == "term" and all(op == "*" for op, _ in e[1]):
            todo += [x for _, x in e[1]]
        elif e[0] == "reduce" and e[1] == "sum" and not summed:
            summed = [n for n, _, _ in e[2]]
            todo.append(e[3])
        elif e[0] == "read" and all(s[0] in ("v", "i") for s in e[2]):
            if any(s[0] == "i" and graph.shape(e[1])[axis] != 1 for axis, s in enumerate(e[2])):
                return None
            factors.append((e[1], [s[1] if s[0] == "v" else None for s in e[2]]))
        else:
            return None
    for name, axes in factors:      # every index runs over the whole axis
        ranges = {n: (lo, hi) for n, lo, hi in node.indices + reduced_ranges(node.body)}
        for axis, n in enumerate(axes):
            if n is not None and ranges[n] != (0, graph.shape(name)[axis]):
                return None
    return Labelled([n for n, _, _ in node.indices], factors, summed, scale)


def reduced_ranges(e):
    if e[0] == "reduce":
        return list(e[2]) + reduced_ranges(e[3])
    return [r for x in syntax_children(e) for r in reduced_ranges(x)]


def syntax_children(e):
    kind = e[0]
    if kind == "neg":
        return [e[1]]
    if kind in ("expr", "term"):
        return [x for _, x in e[1]]
    if kind == "reduce":
        return [e[3]]
    if kind == "call":
        return e[2]
    if kind == "select":
        return list(e[2:])
    return []


def fuse_attention(graph):
    """softmax(scale * q k) v over the same batch is one node "Attention", with the permutation of
    each operand's axes to [batch.., rows, features]. Returns how many were found."""
    found = 0
    for softmax in [n for n in graph.nodes if n.op == "Softmax"]:
        uses, producers = graph.uses(), graph.producers()
        rank = len(graph.shape(softmax.inputs[0]))
        if softmax.attrs.get("axis", -1) % rank != rank - 1 or uses[softmax.outputs[0]] != 1:
            continue
        after = next(n for n in graph.nodes if softmax.outputs[0] in n.inputs)
        second = as_product(after, graph)
        scale, gone = 1.0, [softmax]
        first, name = None, softmax.inputs[0]
        while name in producers and uses[name] == 1 and first is None:
            node = producers[name]
            product = as_product(node, graph)
            if product is None:
                break
            gone.append(node)
            scale *= product.scale
            if len(product.factors) == 2 and product.summed:
                first = product
            elif len(product.factors) == 1 and product.factors[0][1] == product.out:
                name = product.factors[0][0]
            else:
                break
        fused = first and second and attention(graph, first, second, softmax.outputs[0], scale)
        if not fused:
            continue
        fused.outputs = after.outputs
        graph.nodes[graph.nodes.index(after)] = fused
        for node in gone:
            graph.nodes.remove(node)
        found += 1
    return found


def attention(graph, first, second, weights, scale):
    """The fused node of scores `first` and of `second`, which reads them as `weights`."""
    if len(second.factors) != 2 or len(second.summed) != 1 or len(first.summed) != 1:
        return None
    if second.factors[0][0] != weights:
        second.factors.reverse()
    (name, axes), (v, v_axes) = second.factors
    rename = dict(zip(first.out, axes))     # the scores' axes by the second product's names
    rename[first.summed[0]] = "feature"
    if name != weights or v == weights or len(set(axes)) != len(axes) or None in axes:
        return None
    key = second.summed[0]
    query_axes = [[rename.get(n) for n in names] for _, names in first.factors]
    (q, q_axes), (k, k_axes) = [(f[0], a) for f, a in zip(first.factors, query_axes)]
    if key in q_axes:
        (q, q_axes), (k, k_axes) = (k, k_axes), (q, q_axes)
    row = axes[-2]
    batch = [n for n in axes if n not in (row, key)]
    value = [n for n in v_axes if n is not None and n not in batch + [key]]
    if axes[-1] != key or len(value) != 1 or row in k_axes or row in v_axes:
        return None
    operands = []
    for names, last in ((q_axes, [row, "feature"]), (k_axes, [key, "feature"]),
                        (v_axes, [key, value[0]])):
        wanted = batch + last
        if sorted(n for n in names if n) != sorted(wanted):
            return None
        operands.append((names, wanted))
    if sorted(second.out) != sorted(batch + [row, value[0]]):
        return None
    node = Node("Attention", [q, k, v], [])
    node.attrs = {"scale": scale, "after": second.scale, "axes": operands,
                  "out": (batch + [row, value[0]], second.out)}
    return node
