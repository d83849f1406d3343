"""Every operator of the standard, as the onnx package lists them: one that is not imported is
refused by a sentence that says why. standard.py PROGRAM [-v]; -v prints the table.

A node with inputs of floats and without attributes is given to the import: what matters is whether
the operator is known, not whether the node is right.
"""
import os
import shlex
import sys
import tempfile

import onnx
from onnx import TensorProto, helper

import compare

# What the importer says about a node of an operator that it converts.
UNKNOWN = "unsupported operator '"


def one_node(schema):
    count = max(1, schema.min_input)
    names = [f"x{i}" for i in range(count)]
    outs = [f"y{i}" for i in range(max(1, schema.min_output))]
    graph = helper.make_graph(
        [helper.make_node(schema.name, names[:schema.max_input] if schema.max_input else [], outs,
                          domain=schema.domain)], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 2, 2]) for n in names],
        [helper.make_empty_tensor_value_info(outs[0])])
    return helper.make_model(graph, opset_imports=[
        helper.make_opsetid(schema.domain, schema.since_version)], ir_version=8)


def verdict(program, folder, schema):
    """What comes of it: "supported", "refused: why", or a complaint that starts with "?"."""
    path = os.path.join(folder, "in.onnx")
    with open(path, "wb") as file:
        file.write(one_node(schema).SerializeToString())
    code, messages = compare.run_import(program, [path, "-o", os.path.join(folder, "m.ein")])
    line = next((s for s in messages.splitlines() if UNKNOWN in s), None)
    if code not in (0, 3, 4):
        return f"? exit code {code}: {messages}"
    if not line:
        return "supported"
    why = line.split("): ", 1)[1] if "): " in line else line.rpartition(") ")[2]
    if len(why) < 20 or UNKNOWN in why:
        return "? refused without a reason: " + line
    return "refused: " + why


def main():
    program = shlex.split(sys.argv[1])
    program[0] = os.path.abspath(program[0])
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        schemas = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
        for name, schema in sorted(schemas.items()):
            result = verdict(program, folder, schema)
            if result.startswith("?"):
                failed += 1
                print(f"FAIL {name}: {result[2:]}")
            else:
                passed += 1
                if "-v" in sys.argv:
                    print(f"{name:28} {result}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
