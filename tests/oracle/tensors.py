"""Values of tensors: seeded sources, safetensors, the weight blob, file names.

Values are kept in the numpy type of their dtype. bf16 has none: its values are float32 arrays that
hold bf16 numbers exactly.
"""

import json
import os
import re
import struct

import numpy as np

from syntax import DTYPES, EinError

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FNV_BASIS = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
CHUNK = 1 << 18
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": np.float32, "i8": np.int8,
         "u8": np.uint8, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
FLOATS = ("f32", "f16", "bf16")
MAGIC = b"EINWGHT1"
HEADER = 256


def fnv(data):
    h = FNV_BASIS
    for byte in data:
        h = ((h ^ byte) * FNV_PRIME) & MASK
    return h


def splitmix(x):
    """splitmix64 of a uint64 array; uint64 arithmetic wraps."""
    x = x + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def counter_hash(seed, first, count):
    start = (seed * GOLDEN + first) & MASK
    return splitmix(np.uint64(start) + np.arange(count, dtype=np.uint64))


def name_seed(name):
    return fnv(name.encode()) % (1 << 31)


def to_bf16(a):
    """Rounds float32 to the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(a), a, rounded.view(np.float32)).astype(np.float32)


def randn_chunk(seed, first, count, std):
    z = counter_hash(seed, first, count)
    low = np.uint64(0xFFFF)
    total = sum((z >> np.uint64(s) & low).astype(np.int64) for s in (0, 16, 32, 48)) - 131070
    return total.astype(np.float32) * np.float32(float(std) * 2.6429e-5)


def uniform_chunk(seed, first, count, lo, hi):
    z = counter_hash(seed, first, count)
    u = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -24)
    lo32 = np.float32(lo)
    return lo32 + u * np.float32(np.float32(hi) - lo32)


def integer_chunk(seed, first, count, lo, hi):
    z = counter_hash(seed, first, count)
    span = int(hi) - int(lo) + 1
    return (z % np.uint64(span)).astype(np.int64) + np.int64(lo)


def filled(shape, dtype, chunk):
    """Row-major array whose elements [first, first+count) are chunk(first, count)."""
    size = int(np.prod(shape, dtype=np.int64))
    out = np.empty(size, NUMPY[dtype])
    for first in range(0, size, CHUNK):
        count = min(CHUNK, size - first)
        part = chunk(first, count)
        out[first:first + count] = to_bf16(part) if dtype == "bf16" else part
    return out.reshape(shape)


def seeded(name, dtype, shape, source):
    """The tensor of a seeded source (kind, attributes)."""
    kind, attrs = source
    if kind in ("zeros", "ones"):
        return np.full(shape, 1 if kind == "ones" else 0, NUMPY[dtype])
    seed = attrs.get("seed", name_seed(name))
    if kind == "randn":
        if dtype not in FLOATS:
            raise EinError("randn gives floats, '%s' is %s" % (name, dtype))
        std = attrs.get("std", 1)
        return filled(shape, dtype, lambda i, n: randn_chunk(seed, i, n, std))
    lo, hi = attrs.get("lo", 0), attrs.get("hi", 1)
    if dtype in FLOATS:
        return filled(shape, dtype, lambda i, n: uniform_chunk(seed, i, n, lo, hi))
    if not isinstance(lo, int) or not isinstance(hi, int) or hi < lo:
        raise EinError("uniform needs integers lo <= hi for '%s', which is %s" % (name, dtype))
    return filled(shape, dtype, lambda i, n: integer_chunk(seed, i, n, lo, hi))


def small_integers(name, dtype, shape, positive=False, seed=None):
    """Integers in -3..3, or 1..3, or 0..1 for bool: for tests that compare exactly."""
    lo, hi = (0, 1) if dtype == "bool" else (1, 3) if positive else (-3, 3)
    seed = name_seed(name) if seed is None else seed
    return filled(shape, dtype, lambda i, n: integer_chunk(seed, i, n, lo, hi))


def input_source(index, tensor):
    """How an input's values are made where none are given: as the model says, or by default."""
    if tensor.source:
        return tensor.source
    if tensor.dtype in FLOATS:
        return "randn", {"seed": 7001 + index}
    return "uniform", {"seed": 7001 + index, "lo": 0, "hi": 1}


def default_input(index, tensor, ints=False):
    if ints and tensor.dtype in FLOATS:
        return small_integers(tensor.name, tensor.dtype, tensor.shape, seed=7001 + index)
    return seeded(tensor.name, tensor.dtype, tensor.shape, input_source(index, tensor))


# ---------------------------------------------------------------- bytes

def to_bytes(a, dtype):
    if dtype == "bf16":
        bits = np.ascontiguousarray(a, np.float32).view(np.uint32) >> np.uint32(16)
        return bits.astype("<u2").tobytes()
    return np.ascontiguousarray(a, np.dtype(NUMPY[dtype]).newbyteorder("<")).tobytes()


def from_bytes(data, dtype, shape):
    if dtype == "bf16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).reshape(shape)
    a = np.frombuffer(data, np.dtype(NUMPY[dtype]).newbyteorder("<"))
    return a.astype(NUMPY[dtype], copy=False).reshape(shape)


def byte_size(t):
    return int(np.prod(t.shape, dtype=np.int64)) * DTYPES[t.dtype]


# ---------------------------------------------------------------- safetensors

ST_DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "I8": "i8", "U8": "u8",
             "I32": "i32", "I64": "i64", "BOOL": "bool", "F64": "f64"}


def read_safetensor(path, key):
    """(dtype, array) of one tensor; offsets of the header are checked against the file."""
    try:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            head = f.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
            if 8 + length > size:
                raise EinError("%s: not a safetensors file" % path)
            header = json.loads(f.read(length))
            if key not in header:
                raise EinError("%s has no tensor '%s'" % (path, key))
            entry = header[key]
            dtype = ST_DTYPES.get(entry["dtype"])
            if dtype is None:
                raise EinError("%s: '%s' has type %s" % (path, key, entry["dtype"]))
            shape = tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            width = 8 if dtype == "f64" else DTYPES[dtype]
            count = int(np.prod(shape, dtype=np.int64))
            if not 0 <= begin <= end <= size - 8 - length or end - begin != count * width:
                raise EinError("%s: '%s' has wrong offsets" % (path, key))
            f.seek(8 + length + begin)
            data = f.read(end - begin)
    except (ValueError, KeyError, TypeError) as error:
        raise EinError("%s: malformed header (%s)" % (path, error)) from None
    if dtype == "f64":
        return dtype, np.frombuffer(data, "<f8").reshape(shape)
    return dtype, from_bytes(data, dtype, shape)


# ---------------------------------------------------------------- weights

def variance_names(program):
    """Weights that feed a BatchNormalization's variance: they must stay positive."""
    return {node.inputs[4] for node in program.nodes
            if node.op == "BatchNormalization" and len(node.inputs) == 5}


def weight(program, name, ints=False, blobs=None, positive=()):
    t = program.tensors[name]
    if ints:
        return small_integers(name, t.dtype, t.shape, name in positive)
    if t.source is None:
        raise EinError("weight '%s' has no source" % name, t.pos)
    if t.source[0] != "blob":
        return seeded(name, t.dtype, t.shape, t.source)
    path = (blobs or {}).get(t.source[1])
    if path is None:
        path = os.path.join(os.path.dirname(program.path), program.blobs[t.source[1]])
    dtype, a = read_safetensor(path, t.source[2])
    if a.shape != t.shape:
        raise EinError("'%s' is %s in the file, %s in the model" % (
            name, list(a.shape), list(t.shape)), t.pos)
    if dtype != t.dtype:
        raise EinError("'%s' is %s in the file, %s in the model" % (name, dtype, t.dtype), t.pos)
    return a


def manifest(program):
    lines = []
    for name in program.weights:
        t = program.tensors[name]
        lines.append("%s %s[%s]\n" % (name, t.dtype, ",".join(map(str, t.shape))))
    return fnv("".join(lines).encode())


def padded(size):
    return (size + 255) // 256 * 256


def content_hash(chunks, h=FNV_BASIS):
    for chunk in chunks:
        for w in memoryview(chunk).cast("B").cast("Q"):
            h = ((h ^ w) * FNV_PRIME) & MASK
    return h


def write_blob(program, path, values):
    """Writes the blob; `values(name)` gives each weight's array."""
    h, total = FNV_BASIS, HEADER
    temporary = path + ".part"
    with open(temporary, "wb") as f:
        f.write(bytes(HEADER))
        for name in program.weights:
            t = program.tensors[name]
            data = to_bytes(values(name), t.dtype)
            data += bytes(padded(len(data)) - len(data))
            h = content_hash([data], h)
            f.write(data)
            total += len(data)
        f.seek(0)
        f.write(MAGIC + struct.pack("<IIQQQ", 1, len(program.weights), manifest(program), h, total))
    os.replace(temporary, path)


class Blob:
    """An opened blob: weights by name. The content hash is checked when asked for."""

    def __init__(self, program, path, check=True):
        self.data = np.memmap(path, np.uint8, "r")
        head = bytes(self.data[:HEADER])
        if len(head) < HEADER or head[:8] != MAGIC:
            raise EinError("%s: not a weight blob" % path)
        version, count, mhash, chash, total = struct.unpack("<IIQQQ", head[8:40])
        if version != 1 or total != len(self.data) or total % 256:
            raise EinError("%s: wrong version or size" % path)
        if count != len(program.weights) or mhash != manifest(program):
            raise EinError("%s: these weights belong to another model" % path)
        self.where, at = {}, HEADER
        for name in program.weights:
            self.where[name] = at
            at += padded(byte_size(program.tensors[name]))
        if at != total:
            raise EinError("%s: wrong size" % path)
        if check and content_hash([self.data[HEADER:]]) != chash:
            raise EinError("%s: the content hash is wrong" % path)
        self.program = program

    def __call__(self, name):
        t = self.program.tensors[name]
        at = self.where[name]
        return from_bytes(bytes(self.data[at:at + byte_size(t)]), t.dtype, t.shape)


# ---------------------------------------------------------------- file names

def file_name(name):
    """A tensor's name as a file name: bytes outside [A-Za-z0-9_.-] become %XX."""
    return re.sub(rb"[^A-Za-z0-9_.\-]", lambda m: b"%%%02X" % m.group()[0],
                  name.encode()).decode() + ".npy"
