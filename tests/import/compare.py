"""Imports an ONNX model and runs the original and the import in onnxruntime on the same inputs."""
import os
import subprocess

import numpy as np
import onnx
import onnxruntime as ort

import ein_onnx

ort.set_default_logger_severity(4)
NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
         "tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
         "tensor(bool)": np.bool_}


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(source, options, ["CPUExecutionProvider"])


def run_import(program, args, timeout=60):
    """Exit code and messages; a code below zero is a signal."""
    done = subprocess.run(program + ["import"] + args, capture_output=True, timeout=timeout)
    return done.returncode, done.stderr.decode("utf-8", "backslashreplace")


def random_input(rng, shape, dtype):
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 5, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def compare(path, ein, dims=None, inputs=None, tolerance=1e-4, steps=0):
    """None when the import does what the model does, else a message. dims: for the import.
    steps: by which one in ten integers may differ."""
    text = open(ein, encoding="utf-8").read()
    model = ein_onnx.Model(text, dims)
    weights = {}
    if model.blob:
        weights = ein_onnx.read_safetensors(os.path.join(os.path.dirname(ein), model.blob))
    built = ein_onnx.Builder(model, weights).build(model.outputs)
    ours, theirs = session(built), session(path)
    rng = np.random.default_rng(1)
    feed = {}
    for (name, dtype, shape), info in zip(model.inputs, ours.get_inputs()):
        given = (inputs or {}).get(name)
        feed[name] = given if given is not None else random_input(rng, shape, NUMPY[info.type])
    names = {i.name for i in theirs.get_inputs()}
    extra = {k: v for k, v in (inputs or {}).items() if k in names}
    got = ours.run(None, {i.name: feed[i.name] for i in ours.get_inputs()})
    want = theirs.run(None, {**{k: v for k, v in feed.items() if k in names}, **extra})
    if [o.name for o in theirs.get_outputs()] != model.outputs:
        return f"outputs {model.outputs}"
    for name, a, b in zip(model.outputs, got, want):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        integers = np.issubdtype(a.dtype, np.integer)
        a, b = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore"):     # infinities that are equal
            bad = ~(np.abs(a - b) <= tolerance * (1 + np.abs(b))) & ~(np.isnan(a) & np.isnan(b))
        bad &= a != b
        if integers and steps and np.mean(a != b) <= .1:
            bad &= np.abs(a - b) > steps
        if bad.any():
            return f"{name}: {bad.sum()} of {bad.size} differ, by {np.abs(a - b).max()}"
    return None
