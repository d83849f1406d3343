"""Files that are cut, bent or built to hurt: each must give a message and an exit code, soon."""
import glob
import os
import random
import re
import struct
import subprocess
import threading
import zipfile

import numpy as np
import onnx
import onnx.numpy_helper

import cases
import compare

TESTS = {}
CLEAN = (0, 3, 4)


def test(function):
    TESTS[function.__name__] = function
    return function


def put(folder, data, name="in.onnx"):
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def run(program, folder, data, args=(), codes=CLEAN):
    """None when the program ends by itself with one of the codes and a message."""
    out = os.path.join(folder, "out.ein")
    code, messages = compare.run_import(program, [put(folder, data), "-o", out, *args], 10)
    if code not in codes:
        return f"exit code {code}: {messages[-1500:]}"
    return None if code == 0 or messages.strip() else "no message"


def example():
    """A small model with a bit of everything."""
    inner = cases.function("F", "a b", "u", [cases.node("Add", "a b", "t"),
                                             cases.node("Clip", "t", "u", max=0.5)], opset=10)
    nodes = [cases.node("Constant", "", "c", value=cases.const("t", np.float32([[1, 2], [3, 4]]))),
             cases.node("Shape", "x", "s"), cases.node("Gather", "s k", "n"),
             cases.node("Concat", "n m", "r", axis=0),
             cases.helper.make_node("F", ["x", "w"], ["a"], "call", domain="local"),
             cases.node("Conv", "a v", "b", pads=[1, 1, 1, 1], strides=[2, 2]),
             cases.node("Reshape", "b r", "d"), cases.node("MatMul", "d c", "y")]
    inits = [cases.weight("w", 4), cases.weight("v", 2, 2, 3, 3), cases.ints("k", 0),
             cases.ints("m", -1, 2)]
    made = cases.model(nodes, {"x": ["N", 2, 4, 4]}, "y", inits, 13, [inner], ["local"])
    return made.SerializeToString()


@test
def cut_at_every_byte(program, folder):
    data = example()
    problem = run(program, folder, data, codes=(0,))
    for size in range(len(data)):
        problem = problem or run(program, folder, data[:size])
        if problem:
            return f"cut at {size}: {problem}"
    return None


@test
def flipped_bytes(program, folder):
    rng = random.Random(3)
    data = example()
    for i in range(600):
        bent = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            byte = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
            bent[rng.randrange(len(bent))] = byte
        problem = run(program, folder, bytes(bent))
        if problem:
            return f"round {i}: {problem}"
    return None


# ---- protobuf by hand ----

def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data, wire=2):
    head = varint(number << 3 | wire)
    return head + (varint(len(data)) + data if wire == 2 else data)


def graph(*parts):
    opset = field(8, field(2, varint(17), 0))
    return opset + field(7, b"".join(parts))


def nested(depth):
    """A node whose attribute holds a graph with a node whose attribute ..."""
    data = b""
    for _ in range(depth):
        data = field(1, field(4, b"If") + field(5, field(6, data)))
    return graph(data)


WIRE = {
    "empty": b"", "zeros": bytes(100), "text": b"ein 1\nmodel x\n", "ones": b"\xff" * 100,
    "tag_zero": b"\x02\x00", "group": b"\x0b\x0c", "wire_type_7": b"\x0f\x00",
    "overlong_tag": b"\xff" * 9 + b"\x01\x00", "overlong_varint": b"\x08" + b"\xff" * 11 + b"\x01",
    "huge_length": b"\x3a\xff\xff\xff\xff\x0f", "length_past_end": field(7, b"")[:1] + b"\x05abc",
    "nested_100": nested(100), "nested_10000": nested(10000),
    "sequence_nested_10000": None, "two_graphs": graph() + field(7, b""),
    "graph_as_number": b"\x38\x01", "opset_as_string": field(8, field(2, b"17")),
    "name_with_nul": graph(field(1, field(4, b"Re\0lu"))),
    "million_nodes": graph(field(1, b"") * 1000000),
    "million_unknown_fields": graph(b"\xf8\x7f\x00" * 1000000),
    "million_strings": graph(field(1, field(1, b"") * 1000000)),
    "no_opset": field(7, b""),
    "negative_opset": field(8, field(2, varint(2**64 - 5), 0)) + field(7, b""),
}
deep = b""
for _ in range(10000):
    deep = field(4, field(1, deep))
WIRE["sequence_nested_10000"] = graph(field(11, field(1, b"x") + field(2, deep)))
for key, data in WIRE.items():
    TESTS["wire_" + key] = lambda program, folder, data=data: run(program, folder, data, codes=(3,))


@test
def wrong_wire_types(program, folder):
    """Every known field number of the model, graph and node with every wire type."""
    payload = {0: b"\x01", 1: bytes(8), 2: b"\x01a", 5: bytes(4)}
    for number in range(1, 27):
        for wire, data in payload.items():
            bad = varint(number << 3 | wire) + data
            for made in (bad, graph(bad), graph(field(1, bad)), graph(field(5, bad))):
                problem = run(program, folder, made)
                if problem:
                    return f"field {number}, wire type {wire}: {problem}"
    return None


@test
def operators_that_are_none(program, folder):
    """Names that are next to a known one, or nothing at all, are refused without its reason."""
    for name in ("", " ", " Unique", "Unique ", "Unique Compress", "Range ", "et"):
        model = cases.model([cases.node(name, "x", "y")], {"x": [2]}, "y")
        path = put(folder, model.SerializeToString())
        problem = expect(program, [path, "-o", path + ".ein"], 4,
                         "unsupported operator '%s' (domain '', opset 17)\n" % name)
        if problem:
            return problem
    return None


@test
def operators_of_imports_alone(program, folder):
    """A model of the language that names one is told what to do, whichever it is."""
    here = os.path.dirname(os.path.abspath(__file__))
    rows = set()
    for path in glob.glob(os.path.join(here, "..", "..", "gen", "import", "onnx_*.c")):
        with open(path) as f:
            rows |= set(re.findall(r'\{"([A-Z]\w+)", -?\d+, -?\d+, \w+\}', f.read()))
    for op in sorted(rows):
        path = put(folder, f"ein 1\nmodel m\ninput x: f32[2,3]\noutput y\ny = {op}(x)\n".encode(),
                   "m.ein")
        done = subprocess.run([*program, "equations", path], capture_output=True, text=True)
        hints = ("einnet import writes it as others", "did you mean", "; write ")
        if "unknown operator" in done.stderr and not any(h in done.stderr for h in hints):
            return done.stderr
    return None if len(rows) > 100 else f"{len(rows)} operators"


@test
def results_without_names(program, folder):
    """Graphs inside of a node whose result has no name, and an equation that ends in nonsense."""
    info, flags = onnx.helper.make_tensor_value_info, onnx.TensorProto.BOOL
    for op in ("If", "Loop", "Scan"):
        loop = op == "Loop"
        ins = [] if op == "If" else [info("i", onnx.TensorProto.INT64, []), info("c", flags, []),
                                     info("s", 1, [2])] if loop else [info("s", 1, [2])]
        outs = [info("c", flags, [])] if loop else []
        body = onnx.helper.make_graph([cases.node("Relu", "x" if op == "If" else "s", "r")], "b",
                                      ins, outs + [info("r", 1, [2])])
        body.output[-1].ClearField("name")
        more = {"If": dict(then_branch=body, else_branch=body), "Loop": dict(body=body),
                "Scan": dict(body=body, num_scan_inputs=1)}[op]
        node = cases.node(op, {"If": "on", "Loop": "n on x", "Scan": "x"}[op], "y", **more)
        scalars = [onnx.numpy_helper.from_array(np.array(1), "n"),
                   onnx.numpy_helper.from_array(np.array(True), "on")]
        model = cases.model([node], {"x": [2]}, "y", scalars)
        path = put(folder, model.SerializeToString())
        problem = expect(program, [path, "-o", path + ".ein"], 3,
                         "a graph of '%s' does not define its output" % op)
        if problem:
            return problem
    model = cases.model([cases.node("Einsum", "x x", "y", equation="ij,jk->i]")],
                        {"x": [2, 2]}, "y")
    path = put(folder, model.SerializeToString())
    return expect(program, [path, "-o", path + ".ein"], 3, "Einsum with ']' in its equation")


@test
def memory_stays_small(program, folder):
    """The worst of the above under a limit on address space that they must not need."""
    with open(program[0], "rb") as f:
        if b"__asan_init" in f.read():
            return None  # its shadow alone is larger
    for key in ("million_nodes", "million_unknown_fields", "million_strings"):
        path = put(folder, WIRE[key])
        limited = ["sh", "-c", 'ulimit -v 700000; exec "$@"', "sh"] + program
        code, messages = compare.run_import(limited, [path, "-o", path + ".ein"], 10)
        if code != 3:
            return f"{key}: exit code {code}: {messages}"
    return None


# ---- files ----

def simple():
    return cases.model([cases.node("Add", "x w")], {"x": [2]}, "y",
                       [cases.weight("w", 2)]).SerializeToString()


def expect(program, args, code, words=""):
    got, messages = compare.run_import(program, args)
    if got != code or words not in messages:
        return f"{args}: exit code {got}, not {code}: {messages}"
    return None


def first(problems):
    return next((p for p in problems if p), None)


@test
def files_of_the_wrong_kind(program, folder):
    archive = os.path.join(folder, "a.zip")
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("m.onnx", simple())
    out = os.path.join(folder, "o.ein")
    return first([expect(program, [folder, "-o", out], 5, "Is a directory"),
                  expect(program, [folder + "/none.onnx", "-o", out], 5, "No such file"),
                  expect(program, [archive, "-o", out], 3, "not an ONNX model"),
                  expect(program, ["/dev/zero", "-o", out], 3, "larger than the limit")
                  if os.environ.get("SLOW") else None,
                  expect(program, ["/dev/null", "-o", out], 3, "not an ONNX model")])


@test
def model_from_a_pipe(program, folder):
    fifo, out = os.path.join(folder, "fifo"), os.path.join(folder, "o.ein")
    os.mkfifo(fifo)
    threading.Thread(target=lambda: open(fifo, "wb").write(simple()), daemon=True).start()
    problem = expect(program, [fifo, "-o", out], 0)
    done = subprocess.run(program + ["import", "-", "-o", "-", "--weights", folder + "/w"],
                          input=simple(), capture_output=True)
    if done.returncode or b"model model\n" not in done.stdout:
        return f"{done}"
    return problem


@test
def usage_errors(program, folder):
    path = put(folder, simple())
    return first([expect(program, args, 2) for args in (
        [], [path, path], ["--frob", path], [path, "--dim", "N"], [path, "--dim", "N=0"],
        [path, "--dim", "N=1x"], [path, "--dim", "N=99999999999"], [path, "-o"],
        [path, "--const", "x"], [path, "-o", path], [path, "-o", folder + "/a", "--weights", path],
        [path, "-o", folder + "/a", "--weights", folder + "/a"], [path], [path, "--name", "a-b"],
        [path, "--dim=N=2", "--dim=N=2"], [path, "-o", folder + "/a", "-o", folder + "/b"])])


@test
def writing(program, folder):
    path, out = put(folder, simple()), os.path.join(folder, "o.ein")
    problem = first([expect(program, [path, "-o", out], 0),
                     expect(program, [path, "-o", folder + "/none/o.ein"], 5),
                     expect(program, [path, "-o", "/dev/full", "--weights", folder + "/w"], 5),
                     expect(program, [path, "-o", "/dev/null", "--weights", "/dev/null"], 0)])
    if problem:
        return problem
    os.utime(out, (1, 1))
    expect(program, [path, "-o", out], 0)
    if os.stat(out).st_mtime != 1:
        return "an unchanged file was written again"
    expect(program, [path, "-o", out, "--name", "other"], 0)
    if os.stat(out).st_mtime == 1 or "model other" not in open(out).read():
        return "a changed file was not written"
    os.symlink("o.ein", folder + "/link.ein")
    expect(program, [path, "-o", folder + "/link.ein", "--name", "third"], 0)
    if not os.path.islink(folder + "/link.ein") or "model third" not in open(out).read():
        return "a symbolic link was not followed"
    left = [n for n in os.listdir(folder) if n.count(".") > 1]
    return f"temporaries are left: {left}" if left else None


@test
def weights_in_a_folder(program, folder):
    path, out = put(folder, simple()), os.path.join(folder, "o.ein")
    os.mkdir(folder + "/sub")
    os.mkdir(folder + "/other")
    problem = expect(program, [path, "-o", out, "--weights", folder + "/sub/w.st"], 0)
    if problem or 'blob W = "sub/w.st"' not in open(out).read():
        return problem or open(out).read()
    return expect(program, [path, "-o", folder + "/sub/o.ein", "--weights", folder + "/other/w"], 0,
                  "--blob")


# ---- .npy ----

def npy(header, data=bytes(8), version=1, magic=b"\x93NUMPY"):
    text = header.encode()
    size = struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))
    return magic + bytes([version, 0]) + size + text + data


def describe(descr="<i8", order="False", shape="(1,)", more=""):
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}{more}, }}\n"


GOOD_NPY = {
    "v1": npy(describe()), "v2": npy(describe(), version=2), "v3": npy(describe(), version=3),
    "big_endian": npy(describe(">i8"), struct.pack(">q", 6)), "tight": npy(
        "{\"shape\":(1),'descr':'<i8','fortran_order':False}"),
    "i4": npy(describe("<i4"), struct.pack("<i", 6)),
}
BAD_NPY = {
    "empty": b"", "magic": npy(describe(), magic=b"\x92NUMPY"),
    "version": npy(describe(), version=9),
    "short_header": b"\x93NUMPY\x01\x00\xff\xff{}", "no_header": b"\x93NUMPY\x01\x00",
    "v2_cut": b"\x93NUMPY\x02\x00\x00\x00", "huge_header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
    "object": npy(describe("|O")),
    "struct": npy("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1,), }"),
    "string": npy(describe("<U2")), "no_order": npy(describe("i8")),
    "short": npy(describe(), b"1234"),
    "long": npy(describe(), bytes(16)), "negative": npy(describe(shape="(-1,)")),
    "overflow": npy(describe(shape="(9223372036854775807, 2)")),
    "product": npy(describe(shape="(4294967296, 4294967296, 4)")),
    "rank": npy(describe(shape="(" + "1," * 11 + ")")),
    "twice": npy(describe(more=", 'shape': (1,)")),
    "key": npy(describe(more=", 'x': 1")), "half": npy("{'descr': '<i8'}"), "text": npy("hello"),
    "open": npy("{'descr': '<i8"), "order": npy(describe(order="Maybe")),
}


def npy_model():
    shape = cases.value("s", [1], cases.I64)
    made = cases.model([cases.node("Reshape", "x s")], {"x": [6], "s": shape})
    return made.SerializeToString()


for key, data in {**GOOD_NPY, **BAD_NPY}.items():
    def npy_test(program, folder, data=data, good=key in GOOD_NPY):
        args = ["--const", "s=" + put(folder, data[:-8] + struct.pack("<q", 6)
                                      if good and data[-8:] == bytes(8) else data, "s.npy")]
        return run(program, folder, npy_model(), args, (0,) if good else (3,))
    TESTS["npy_" + key] = npy_test


@test
def npy_cut_at_every_byte(program, folder):
    data = npy(describe())
    for size in range(len(data)):
        args = ["--const", "s=" + put(folder, data[:size], "s.npy")]
        problem = run(program, folder, npy_model(), args, (3,))
        if problem:
            return f"cut at {size}: {problem}"
    return None
