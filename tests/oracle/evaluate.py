"""Evaluates a flat program: weights on demand, values freed after their last use."""

import numpy as np

import equations
import operators
import tensors
from syntax import EinError


def evaluate(program, inputs, weights):
    """Published output name -> array. `inputs` is name -> array, `weights` a function of the name.

    Floats are float64 whatever the tensor's dtype: the exact meaning, not a rounding of it.
    """
    last = {}
    for i, node in enumerate(program.nodes):
        for n in node.inputs:
            last[n] = i
    kept = {full for _, full in program.outputs}
    known = set(program.weights)
    values = {}

    def fetch(name):
        if name not in values:
            if name in inputs:
                values[name] = widen(inputs[name])
            elif name in known:
                values[name] = widen(weights(name))
            else:
                raise EinError("'%s' is used before it is assigned" % name)
        return values[name]

    for i, node in enumerate(program.nodes):
        args = [None if n is None else fetch(n) for n in node.inputs]
        try:
            if node.equation:
                results = [equations.evaluate(node.equation, program.tensors, values)]
            else:
                results = operators.evaluate(node, args)
        except EinError as error:
            error.pos = error.pos or node.pos
            error.path = error.path or program.path
            raise
        for name, a in zip(node.outputs, results):
            t = program.tensors[name]
            if a.shape != t.shape:
                raise EinError("'%s' has shape %s, inferred was %s" % (
                    name, list(a.shape), list(t.shape)), node.pos)
            values[name] = a if t.dtype in tensors.FLOATS else as_integers(a, t.dtype)
        for n in node.inputs:
            if n is not None and last[n] == i and n not in kept:
                values.pop(n, None)
    return {published: fetch(full) for published, full in program.outputs}


def as_integers(a, dtype):
    return np.trunc(a).astype(tensors.NUMPY[dtype]) if a.dtype.kind == "f" else a


def widen(a):
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def default_inputs(program, ints=False):
    return {name: tensors.default_input(j, program.tensors[name], ints)
            for j, name in enumerate(program.inputs)}


def info(program):
    work = 0
    for node in program.nodes:
        if node.equation:
            work += equations.flop(node.equation, program.tensors)
        else:
            work += operators.flop(node, program.tensors)
    shapes = {name: program.tensors[name].shape for name in program.weights}
    described = [(n, program.tensors[n]) for n in program.inputs]
    published = [(n, program.tensors[full]) for n, full in program.outputs]
    return {
        "model": program.name,
        "dims": program.dims,
        "inputs": {n: "%s%s" % (t.dtype, list(t.shape)) for n, t in described},
        "outputs": {n: "%s%s" % (t.dtype, list(t.shape)) for n, t in published},
        "weights": len(program.weights),
        "nodes": len(program.nodes),
        "parameters": int(sum(np.prod(s, dtype=np.int64) for s in shapes.values())),
        "gflop": work / 1e9,
    }
