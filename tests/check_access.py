#!/usr/bin/env python3
"""What kernels move at once: emits small models whose extents allow vectors, compiles them to PTX
and looks at the width of every global load and store, at registers, spills and local memory.

    check_access.py                 the cases below; ends with `N passed, N failed`
    check_access.py --table FILE.cu...   a table of every kernel of emitted files
"""

import os
import random
import re
import subprocess
import sys
import tempfile

ARCH = "sm_90"
ACCESS = re.compile(r"\b(ld|st)\.(?:global|local)(?:\.(?:nc|relaxed|gpu|L\w+))*"
                    r"(?:\.v(\d))?\.[a-z]+(\d+)")

NAME = re.compile(r"k_[a-z]\w*?_[0-9a-f]{8}")  # of a kernel, in its mangled name


def compiled(path, folder):
    """By kernel: bytes of each load and of each store, registers, bytes of stack."""
    ptx = os.path.join(folder, os.path.basename(path) + ".ptx")
    subprocess.run(["nvcc", "-std=c++14", "-arch=" + ARCH, "-ptx", path, "-o", ptx], check=True)
    report = subprocess.run(
        ["ptxas", "-arch=" + ARCH, "-v", ptx, "-o", os.path.join(folder, "cubin")],
        check=True, capture_output=True, text=True).stderr
    with open(ptx) as f:
        text = f.read()
    kernels = {}
    for part in re.split(r"^\.(?:visible )?entry ", text, flags=re.M)[1:]:
        name = NAME.search(part).group()
        wide = {"ld": [], "st": []}
        for what, lanes, bits in ACCESS.findall(part):
            wide[what].append(int(lanes or 1) * int(bits) // 8)
        kernels[name] = [wide["ld"], wide["st"], 0, ".local" in part]
    for part in report.split("Compiling entry function '")[1:]:
        name = NAME.search(part).group()
        kernels[name][2] = int(re.search(r"Used (\d+) registers", part).group(1))
        kernels[name][3] |= not re.search(r"\b0 bytes stack frame, 0 bytes spill", part)
    return kernels


def widths(sizes):
    return " ".join("%dx%d" % (sizes.count(n), n) for n in sorted(set(sizes), reverse=True)) or "-"


def table(paths):
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            print("%s: loads, stores (number x bytes), registers, local memory" % path)
            for name, (loads, stores, registers, local) in sorted(compiled(path, folder).items()):
                print("  %-22s %-24s %-16s %3d %s" % (name, widths(loads), widths(stores),
                                                      registers, "local" if local else ""))


CONVOLUTION = """ein 1
model drawn
input x: f32[1,%(c)d,%(h)d,%(h)d]
weight k: f32[%(m)d,%(c)d,3,3] = randn(seed=1, std=0.1)
weight l: f32[%(f)d,%(m)d,%(k)d,%(k)d] = randn(seed=2, std=0.1)
output y
t = Conv(x, k; pads=1)
u = Relu(t)
y = Conv(u, l; strides=%(s)d, pads=%(p)d, dilations=%(d)d)
"""


def check_drawn(count, folder):
    """Convolutions of any sizes in FP16 mode: warpgroups multiply what is copied, so no load of
    theirs brings a single half."""
    rng, wrong, kernels = random.Random(5), [], 0
    path = os.path.join(folder, "drawn")
    for _ in range(count):
        k = rng.choice([2, 3, 4, 5, 7])
        sizes = {"c": rng.choice([3, 4, 8, 12, 16, 24, 48, 64]), "k": k,
                 "m": rng.choice([8, 12, 16, 24, 32, 48, 64, 96]), "s": rng.choice([1, 2, 2, 3]),
                 "f": rng.choice([16, 24, 48, 64, 128]), "d": rng.choice([1, 1, 2]),
                 "h": rng.choice([56, 64, 112, 128, 224]), "p": rng.choice([0, k // 2])}
        with open(path + ".ein", "w") as file:
            file.write(CONVOLUTION % sizes)
        subprocess.run(["build/einnet", "emit", path + ".ein", "--math", "fp16", "-o",
                        path + ".cu"], check=True)
        with open(path + ".cu") as file:
            text = file.read()
        for kernel in re.findall(r"^static __global__ .*?^}$", text, re.M | re.S):
            kernels += "warpgroup_tile<" in kernel
            if "warpgroup_tile<" in kernel and "fetch<__half>(" in kernel:
                wrong.append(sizes)
    if wrong or kernels < count // 8:
        return "drawn: of %d kernels by warpgroups copy no vectors: %s" % (kernels, wrong[:3])
    return None


def unary(name, shape, text, dtype="f32"):
    return "ein 1\nmodel %s\ninput x: %s[%s]\noutput y\ny = %s\n" % (name, dtype, shape, text)


def weighted(name, shape, weights, text):
    lines = ["weight %s: f32[%s] = randn(std=0.1)" % w for w in weights]
    return "ein 1\nmodel %s\ninput x: f32[%s]\n%s\noutput y\ny = %s\n" % (
        name, shape, "\n".join(lines), text)


GROUPS = """ein 1
model groups
input x: f32[16,256,64,64]
weight k: f32[256,256,3,3] = randn(std=0.02)
weight l: f32[256,256,3,3] = randn(std=0.02)
weight g: f32[256] = uniform(lo=0.5, hi=1.5)
weight b: f32[256] = randn(std=0.1)
output y
c = Conv(x, k; pads=1)
n = GroupNormalization(c, g, b; num_groups=32)
y = Conv(n, l; pads=1)
"""
DEPTHWISE = "Conv(x, k; pads=%d, strides=%d, group=%d)"
# Kernel, model, options; the narrowest store in bytes, and the least share of the loads that are at
# least as wide, in percent. What several lanes add up is stored one by one.
CASES = [
    ("map", unary("relu", "32,64,28,28", "Relu(x)"), "", 16, 100),
    ("map, bias along the vectors",
     weighted("bias", "64,768", [("b", "768")], "Add(x, b)"), "", 16, 100),
    ("map, bias across", weighted("across", "64,96,56", [("b", "96,1")], "Mul(x, b)"), "", 16, 50),
    ("map of halves", unary("halves", "32,64,56,56", "Relu(x)", "f16"), "", 16, 100),
    ("softmax of halves", unary("soft", "600,1024", "Softmax(x; axis=-1)", "f16"), "", 16, 100),
    ("softmax", unary("softmax", "600,768", "Softmax(x; axis=-1)"), "", 16, 100),
    ("softmax, a block a row", unary("wide", "60,4096", "Softmax(x; axis=-1)"), "", 16, 100),
    ("layer norm", weighted("layernorm", "600,768", [("g", "768"), ("b", "768")],
                            "LayerNormalization(x, g, b; axis=-1)"), "", 16, 100),
    ("pixels to planes", unary("planes", "2,50,40,3", "Transpose(x; perm=[0,3,1,2])"), "", 16, 100),
    ("planes to pixels", unary("pixels", "2,4,50,40", "Transpose(x; perm=[0,2,3,1])"), "", 16, 100),
    ("transpose of halves", unary("tiles", "128,256", "Transpose(x; perm=[1,0])", "f16"), "", 4,
     0),
    ("shared mean", unary("shared", "2,400000", "ReduceMean(x; axes=[1])"), "", 4, 50),
    ("mean", unary("mean", "64,2048", "ReduceMean(x; axes=[1], keepdims=0)"), "", 4, 100),
    ("global average", unary("pool", "1,1280,16,16", "GlobalAveragePool(x)"), "", 4, 100),
    ("depthwise", weighted("depthwise", "16,64,56,56", [("k", "64,1,3,3")],
                           DEPTHWISE % (1, 1, 64)), "", 16, 20),
    ("depthwise, stride 2", weighted("halved", "16,64,56,56", [("k", "64,1,3,3")],
                                     DEPTHWISE % (1, 2, 64)), "", 16, 25),
    ("max pool", unary("maxpool", "16,64,112,112",
                       "MaxPool(x; kernel_shape=[3,3], strides=[2,2], pads=1)"), "", 16, 60),
    ("bilinear, 4 times", unary("resized", "1,32,56,56",
                                "Resize(x; mode=linear, scales=[1,1,4,4])"), "", 16, 0),
    ("bilinear between corners", unary(
        "corners", "1,32,56,56", "Resize(x; mode=linear, sizes=[1,32,224,224], "
        "coordinate_transformation_mode=align_corners)"), "", 16, 0),
    ("gemv", weighted("gemv", "1,4096", [("k", "1024,4096"), ("b", "1024")],
                      "Gemm(x, k, b; transB=1)"), "--libs none", 4, 60),
    ("skinny", weighted("skinny", "2,4096", [("k", "1024,4096"), ("b", "1024")],
                        "Gemm(x, k, b; transB=1)"), "--libs none", 4, 60),
    ("winograd", weighted("winograd", "4,64,56,56", [("k", "64,64,3,3"), ("b", "64")],
                          "Conv(x, k, b; pads=1)"), "--math fp32", 16, 0),
]


# Arithmetic, an image's channels and width, what a convolution as resnet18's first has of it; of
# few channels a patch on tensor cores.
TAPS = [
    ("fp32", 3, 224, ("product_tile<64, 96, ", "tapped<32, 4>(b, taps)", "const int4 &tap")),
    ("tf32", 7, 224, ("tensor_tile<float, ", "tapped<", "const int2 &tap")),
    ("tf32", 7, 25088, ("tensor_tile<float, ", "tapped<", "const int4 &tap")),
    ("tf32", 3, 224, ("patch_tile<", ", true> tile")),
    ("fp16", 3, 224, ("patch_tile<", ", true> tile")),
]


def steps_of(text):
    return re.findall(r"^// +[0-9.]+ us est\. (\S+) +(k_\w+)", text, flags=re.M)


def check(case, folder):
    title, model, options, store, share = case
    source, path = os.path.join(folder, "model.ein"), os.path.join(folder, "model.cu")
    with open(source, "w") as f:
        f.write(model)
    subprocess.run(["build/einnet", "emit", source, "-o", path] + options.split(), check=True)
    with open(path) as f:
        steps = steps_of(f.read())
    kernels = compiled(path, folder)
    if not steps:
        return "%s: no kernel computes it" % title
    loads, stores, registers, local = kernels[steps[-1][1]]
    wide = sum(n >= 16 for n in loads) * 100 >= share * len(loads)
    if local or not stores or min(stores) < store or not wide:
        return "%s: %s loads %s, stores %s, %d registers%s" % (
            title, steps[-1][1], widths(loads), widths(stores), registers,
            ", local memory" if local else "")
    return None


# Programs, none of whose kernels that store vectors may have them as several stores: nvcc makes
# such of an address that it cannot show to be aligned.
PROGRAMS = [("models/vit_b.ein", ""), ("models/resnet18.ein", "--libs none"),
            ("models/dcgan.ein", "--math fp16 --libs none")]
STORE = re.compile(r"st\.global\.[bfu](16|32)\s+\[(%rd\d+)(?:\+(\d+))?\]")


def broken(path, folder):
    """Kernels of a file that store vectors and have four stores side by side."""
    ptx = os.path.join(folder, "stores.ptx")
    subprocess.run(["nvcc", "-std=c++14", "-arch=" + ARCH, "-ptx", path, "-o", ptx], check=True)
    with open(path) as source, open(ptx) as made:
        source, made = source.read(), made.read()
    found, seen = [], 0
    for part in re.split(r"^\.(?:visible )?entry ", made, flags=re.M)[1:]:
        name = NAME.search(part).group()
        begin = source.index(" %s(" % name)
        body = source[begin:source.index("\n}\n", begin)]
        if not re.search(r"reinterpret_cast<float4 \*>\(&?y\b|store_half4\(", body):
            continue
        seen += 1
        at = {(base, int(bits) // 8, int(offset or 0))
              for bits, base, offset in STORE.findall(part)}
        if any(all((base, n, first + k * n) in at for k in (1, 2, 3)) for base, n, first in at):
            found.append(name)
    return found, seen


def check_program(program, folder):
    path = os.path.join(folder, "program.cu")
    model, options = program
    subprocess.run(["build/einnet", "emit", model, "-o", path] + options.split(), check=True)
    found, seen = broken(path, folder)
    if found or not seen:
        return "%s %s: of %d kernels that store vectors these do not: %s" % (
            model, options, seen, " ".join(found))
    return None


def check_copies(folder):
    """Halves whose lines are whole vectors of four are copied so, not one by one."""
    path = os.path.join(folder, "copies.cu")
    subprocess.run(["build/einnet", "emit", "tests/unseen/inverted_residual.ein", "-o", path,
                    "--math", "fp16", "--only-math", "--libs", "none"], check=True)
    with open(path) as f:
        found = set(re.findall(r"return fetch<(\w+)>\(", f.read()))
    if "uint2" in found and "__half" not in found:
        return None
    return "halves are copied as %s" % sorted(found)


# Products with few rows whose streamed factor, a weight, lies along its lines or its terms: bytes
# that a thread has on their way before it waits for the kernel before, and multiplies by any.
AHEAD = [("4,1100", "1100,4096", "MatMul(x, w)", "fp32", 96),
         ("4,2048", "2048,4096", "MatMul(x, w)", "fp16", 128),
         ("1,4096", "3072,4096", "Gemm(x, w; transB=1)", "fp32", 128),
         ("1,8192", "512,8192", "Gemm(x, w; transB=1)", "fp16", 64)]


def check_ahead(case, folder):
    x, w, text, math, least = case
    source, path = os.path.join(folder, "ahead.ein"), os.path.join(folder, "ahead.cu")
    ptx = os.path.join(folder, "ahead.ptx")
    with open(source, "w") as f:
        f.write(weighted("ahead", x, [("w", w)], text))
    subprocess.run(["build/einnet", "emit", source, "-o", path, "--libs", "none", "--math", math],
                   check=True)
    subprocess.run(["nvcc", "-std=c++14", "-arch=" + ARCH, "-ptx", path, "-o", ptx], check=True)
    with open(path) as source, open(ptx) as made:
        kernel = steps_of(source.read())[-1][1]
        part = made.read().split(".entry ")[1:]
    part = next(p for p in part if kernel in p.split("(")[0])
    first = part.split("bar.warp.sync")[0] if "bar.warp.sync" in part else ""
    early = first.split("griddepcontrol.wait")[0]
    on_way = sum(int(lanes or 1) * int(bits) // 8 for what, lanes, bits in ACCESS.findall(early)
                 if what == "ld")
    if on_way >= least:
        return None
    return "%s . %s in %s: %s has %d bytes on their way" % (x, w, math, kernel, on_way)


def check_columns(folder):
    """Eight rows are on their way where threads add up neighbouring columns."""
    source, path = os.path.join(folder, "columns.ein"), os.path.join(folder, "columns.cu")
    with open(source, "w") as f:
        f.write(unary("columns", "512,512", "ReduceSum(x; axes=[0], keepdims=0)"))
    subprocess.run(["build/einnet", "emit", source, "-o", path], check=True)
    (loads, _, _, _), = compiled(path, folder).values()
    return None if len(loads) >= 8 else "sums of columns load %s" % widths(loads)


def check_lines(folder):
    """Results that have their terms in common with their neighbours have threads of their own,
    however the terms lie; those that have not, lanes."""
    source, path = os.path.join(folder, "lines.ein"), os.path.join(folder, "lines.cu")
    found = []
    for body in ("y[n,i] = sum(j) abs(x[n,j] - x[n,i])", "y[n] = sum(j) abs(x[n,j])"):
        with open(source, "w") as f:
            f.write("ein 1\nmodel lines\ninput x: f32[20000,24]\noutput y\n%s\n" % body)
        subprocess.run(["build/einnet", "emit", source, "-o", path], check=True)
        with open(path) as f:
            found.append("shfl" in f.read())
    return None if found == [False, True] else "lanes that share terms: %s" % found


def check_steps(math, folder):
    """In the steps of a plain product by warps on tensor cores no branch parts what multiplies from
    what waits for copies and loads fragments: the one is to hide the other."""
    source, path = os.path.join(folder, "model.ein"), os.path.join(folder, "steps.cu")
    with open(source, "w") as f:
        f.write(weighted("steps", "2048,2048", [("k", "2048,2048")], "MatMul(x, k)"))
    subprocess.run(["build/einnet", "emit", source, "-o", path, "--math", math, "--only-math",
                    "--libs", "none", "--gpu", "a100"], check=True)
    ptx = os.path.join(folder, "steps.ptx")
    subprocess.run(["nvcc", "-std=c++14", "-arch=" + ARCH, "-ptx", path, "-o", ptx], check=True)
    with open(ptx) as f:
        kernels = [part for part in f.read().split(".entry ")[1:] if "mma.sync" in part]
    for kernel in kernels:
        # What stands between the barrier in front of the first step and the last product.
        loop = kernel.partition("bar.sync")[2].rpartition("mma.sync")[0]
        blocks = re.split(r"^\$L\w+:|\bbra\b.*", loop, flags=re.M)
        steps = [block for block in blocks if "bar.sync" in block]
        apart = sum("mma.sync" not in block for block in steps)
        if apart or not steps:
            return "%s: %d of %d barriers stand apart from products" % (math, apart, len(steps))
    return None if kernels else "%s: nothing is computed on tensor cores" % math


# A product whose sums meet in shared memory, and what is added to them.
ENDS = """ein 1
model ends
input x: f32[128,1024]
input r: f32[128,1024]
weight w: f32[1024,1024] = randn(std=0.1)
weight b: f32[1024] = randn(std=0.1)
output y
p = MatMul(x, w)
y[i,j] = p[i,j] + b[j] + r[i,j]
"""


def check_ends(math, folder):
    """What is added to sums is asked for before they meet: behind the last barrier nothing is."""
    source, path = os.path.join(folder, "ends.ein"), os.path.join(folder, "ends.cu")
    ptx = os.path.join(folder, "ends.ptx")
    with open(source, "w") as f:
        f.write(ENDS)
    subprocess.run(["build/einnet", "emit", source, "-o", path, "--libs", "none", "--math", math,
                    "--only-math", "--gpu", "h200"], check=True)
    subprocess.run(["nvcc", "-std=c++14", "-arch=" + ARCH, "-ptx", path, "-o", ptx], check=True)
    with open(path) as f:
        kernel = steps_of(f.read())[-1][1]
    with open(ptx) as f:
        part = next(p for p in f.read().split(".entry ")[1:] if kernel in p.split("(")[0])
    before, _, rest = part.partition("st.global")
    meeting, barriers = re.split(r"ld\.global", before)[-1], r"\b(?:bar|barrier)\.[a-z]"
    if rest and re.search(barriers, meeting):
        return None
    return "%s: %s loads behind the last barrier" % (math, kernel)


def check_large(math, gpu, want, folder):
    """Of tiles with the same estimate a large product has the one of fewer words from shared memory
    for each product of numbers: warps of 64 x 64, or warpgroups of 256 columns."""
    source, path = os.path.join(folder, "model.ein"), os.path.join(folder, "large.cu")
    with open(source, "w") as f:
        f.write(weighted("large", "4096,4096", [("k", "4096,4096")], "MatMul(x, k)"))
    subprocess.run(["build/einnet", "emit", source, "-o", path, "--math", math, "--only-math",
                    "--libs", "none", "--gpu", gpu], check=True)
    with open(path) as f:
        found = set(re.findall(r"typedef (\w+_tile<\w+(?:, \d+)+)> tile_type", f.read()))
    if len(found) == 1 and re.search(want, found.pop()):
        return None
    return "%s on %s: a large product is of other tiles" % (math, gpu)


LARGE = [("tf32", "a100", "tensor_tile<.*, 64, 64, "), ("fp16", "a100", "tensor_tile<.*, 64, 64, "),
         ("tf32", "h200", "warpgroup_tile<float, 128, 256, "),
         ("fp16", "h200", "warpgroup_tile<__half, 128, 256, ")]


def check_groups(folder):
    """A norm of groups of channels, where channels lie side by side, goes along these."""
    source, path = os.path.join(folder, "model.ein"), os.path.join(folder, "groups.cu")
    with open(source, "w") as f:
        f.write(GROUPS)
    subprocess.run(["build/einnet", "emit", source, "-o", path, "--math", "fp16"], check=True)
    with open(path) as f:
        rows = [kernel for _, kernel in steps_of(f.read()) if kernel.startswith("k_row")]
    wide = compiled(path, folder)
    ok = len(rows) == 1 and min(wide[rows[0]][0] + wide[rows[0]][1]) >= 16
    return None if ok else "groups: %s" % [(row, wide[row]) for row in rows]


def check_taps(math, channels, width, want, folder):
    """What the terms of a window add to addresses comes from a table, in tiles of 96 lines, too; on
    tensor cores a word has two positions, of images that are no larger than half of it can say."""
    source, path = os.path.join(folder, "model.ein"), os.path.join(folder, "taps.cu")
    with open(source, "w") as f:
        f.write(weighted("taps", "1,%d,%d,%d" % (channels, 50176 // width, width),
                         [("k", "64,%d,7,7" % channels)],
                         "Conv(x, k; pads=3, strides=2)"))
    subprocess.run(["build/einnet", "emit", source, "-o", path, "--math", math, "--baseline",
                    "--libs", "none", "--gpu", "h200"], check=True)
    with open(path) as f:
        text = f.read()
    missing = [part for part in want if part not in text]
    return "%s, %d, %d: no %s" % (math, channels, width, missing) if missing else None


def main():
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2:])
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        found = [check(case, folder) for case in CASES]
        found += [check_program(program, folder) for program in PROGRAMS]
        found += [check_ahead(each, folder) for each in AHEAD]
        found += [check_copies(folder), check_columns(folder), check_groups(folder),
                  check_lines(folder)]
        found += [check_steps(math, folder) for math in ("tf32", "fp16")]
        found += [check_large(*case, folder) for case in LARGE]
        found += [check_ends(math, folder) for math in ("fp32", "tf32", "fp16")]
        found += [check_taps(*case, folder) for case in TAPS]
        found.append(check_drawn(60, folder))
        for wrong in found:
            failed += wrong is not None
            if wrong:
                print(wrong)
    print("%d passed, %d failed" % (len(found) - failed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
