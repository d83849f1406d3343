"""ONNX's own node tests through `einnet import`: nodes.py PROGRAM [WORD ...]

Sources: Debian's libonnx-testdata where it is installed, and the models that the onnx package
generates. A test passes when the import gives the recorded outputs, or when it is refused with a
message (exit code 3 or 4). Inputs that must be known, like shapes, are given by --const. `-v` lists
the refusals.
"""
import glob
import os
import re
import shlex
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

import compare
import ein_onnx

DATA = "/usr/share/libonnx-testdata/data"

# onnxruntime, which runs the import, aligns corners of a size that is no integer in its own way.
NOT_COMPARED = {"test_resize_downsample_scales_linear_align_corners"}
NO_KERNEL = re.compile("bfloat16|bf16|celu_float16", re.I)  # onnxruntime has none for these types


def load(path):
    tensor = onnx.TensorProto()
    with open(path, "rb") as f:
        tensor.ParseFromString(f.read())
    return numpy_helper.to_array(tensor)


def recorded():
    """(name, model, inputs, outputs)"""
    for path in sorted(glob.glob(DATA + "/*/test_*/model.onnx")):
        folder = os.path.dirname(path)
        yield os.path.basename(folder), onnx.load(path), folder


def generated():
    try:
        from onnx.backend.test.case.node import collect_testcases
        with np.errstate(all="ignore"):
            found = collect_testcases(None)
    except Exception as e:
        print("the onnx package generates no tests here:", e)
        return
    for test in found:
        if test.model is not None and test.data_sets:
            yield "new_" + test.name, test.model, test.data_sets[0]


def arrays(model, source):
    """Inputs by name and the list of outputs; None where they are not plain tensors."""
    names = [i.name for i in model.graph.input]
    if isinstance(source, str):
        folder = source + "/test_data_set_0"
        count = lambda kind: len(glob.glob(f"{folder}/{kind}_*.pb"))
        inputs = [load(f"{folder}/input_{i}.pb") for i in range(count("input"))]
        outputs = [load(f"{folder}/output_{i}.pb") for i in range(count("output"))]
    else:
        inputs, outputs = source
    if not all(isinstance(a, (np.ndarray, np.generic)) for a in list(inputs) + list(outputs)):
        return None, None
    return {n: np.asarray(a) for n, a in zip(names, inputs)}, [np.asarray(a) for a in outputs]


def same(ein, inputs, outputs):
    with open(ein, encoding="utf-8") as f:
        model = ein_onnx.Model(f.read())
    weights = {}
    if model.blob:
        weights = ein_onnx.read_safetensors(os.path.join(os.path.dirname(ein), model.blob))
    session = compare.session(ein_onnx.Builder(model, weights).build(model.outputs))
    got = session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})
    for a, b in zip(got, outputs):
        if a.shape != b.shape:
            return f"shape {a.shape}, not {b.shape}"
        if not np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-3, 1e-5,
                           equal_nan=True):
            return "values differ"
    return None


def attempt(program, folder, model, inputs):
    """Exit code and messages, with more and more inputs given as constants."""
    path, ein = os.path.join(folder, "in.onnx"), os.path.join(folder, "m.ein")
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    code, messages = compare.run_import(program, [path, "-o", ein])
    rest = list(inputs or {})[1:]
    if code != 4 or not rest:
        return code, messages, ein
    args = []
    for i, name in enumerate(rest):
        np.save(f"{folder}/c{i}.npy", inputs[name])
        args += ["--const", f"{name}={folder}/c{i}.npy"]
    again, more = compare.run_import(program, [path, "-o", ein] + args)
    return (again, more, ein) if again in (0, 4) or again < 0 else (code, messages, ein)


def main():
    program, words = shlex.split(sys.argv[1]), [w for w in sys.argv[2:] if w != "-v"]
    program[0] = os.path.abspath(program[0])
    equal = refused = failed = 0
    folder = tempfile.mkdtemp(prefix="einnet_nodes_")
    operators = {}
    for source in (recorded(), generated()):
        for name, model, data in source:
            if words and not any(w in name for w in words):
                continue
            try:
                inputs, outputs = arrays(model, data)
            except Exception:
                inputs = outputs = None  # sequences, optionals, types numpy has not
            code, messages, ein = attempt(program, folder, model, inputs)
            problem = None
            compared = name.replace("new_", "") not in NOT_COMPARED and not NO_KERNEL.search(name)
            if code == 0 and inputs is not None and compared:
                try:
                    problem = same(ein, inputs, outputs)
                except Exception as e:
                    problem = f"{type(e).__name__}: {e}"
            elif code not in (0, 3, 4) or (code and not messages.strip()):
                problem = f"exit code {code}: {messages[-1000:]}"
            if problem:
                failed += 1
                print(f"FAILED {name}: {problem}")
            elif code:
                refused += 1
                if "-v" in sys.argv:
                    print(code, name, messages.strip().split("in.onnx: ")[-1][:150])
            else:
                equal += 1
                for op in {n.op_type for n in model.graph.node}:
                    operators[op] = operators.get(op, 0) + 1
    shutil.rmtree(folder)
    print(", ".join(f"{op} {count}" for op, count in sorted(operators.items())))
    print(f"{equal} equal, {refused} refused")
    print(f"{equal + refused} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
