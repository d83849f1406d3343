#!/usr/bin/env python3
"""A small change of a model is a small change of the emitted file.

Gives one layer of dcgan other channels: outside of the block of sizes and offsets, the banner and
the tables of tensors, only lines that name this layer, its neighbour or their weights may differ.
Renaming the file or moving it changes nothing. Other changes of one layer, in several modes: names
of memory stay but for those of the layer, steps that both programs have come in the same order, and
no more lines differ outside of tables and offsets than the change takes. Ends with `N passed, N
failed`.
"""

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks

MODEL = os.path.join(ROOT, "models", "dcgan.ein")
FREE = ("summary", "sizes and offsets", "interface", "info")
# Of two modes that cost the same a changed layer may make the other one the program's.
MODES = ([], ["--libs", "none"], ["--math", "tf32"], ["--math", "fp16", "--only-math"],
         ["--math", "fp16", "--libs", "none"])

# Model, what is replaced by what, names that may come or go, and how many lines may differ in all
# modes: what was measured when this was written, and a fifth.
CHANGES = [
    ("resnet18", [("L = 1000", "L = 100")], r"^(y|fc|bias|f)", 110),
    ("resnet18", [("r0 = Relu(stem)", "r0 = Tanh(stem)")], r"^(r0|stem)", 120),
    ("resnet18", [("O=C, K=7", "O=C, K=5")], r"^(r0|stem)", 150),
    ("resnet18", [("l1.a = basic(p0, p0", "first = basic(p0, p0"),
                  ("l1.b = basic(l1.a, l1.a", "l1.b = basic(first, first")],
     r"^(l1_a|first)", 205),
    ("resnet18", [("l2 = stage(l1.b", "l1.c = basic(l1.b, l1.b; I=C, O=C, s1=0.0417, s2=0.0417)\n"
                   "l2 = stage(l1.c")], r"^(l1_c|l1_b)", 100),
    ("resnet18", [("y = Gemm(f, fc", "z = Gemm(f, fc"),
                  ("bias; transB=1)", "bias; transB=1)\ny = Softmax(z; axis=1)")],
     r"^[yz]", 100),
    ("mobilenet_v2", [("b4 = stage(b3; I=C3, O=C4, S=2, R=3",
                       "b4 = stage(b3; I=C3, O=C4, S=2, R=4")],
     r"^b4", 90),
    ("mobilenet_v2", [("b6 = stage(b5; I=C5, O=C6, S=2, R=2",
                       "b6 = stage(b5; I=C5, O=C6, S=2, R=3")],
     r"^b6", 90),
    ("vit_b", [("Y = 12", "Y = 13")], r"_1[0-2](_|$)|^n", 220),
    ("vit_b", [("n = norm(h)\nc = Slice(n;", "c = Slice(h;")], r"^(n|c|z|p|y|h_11|b_11|fc)", 370),
    ("vit_b", [("h = Add(all, place)", "h = Add(all, spot)"), ("weight place:", "weight spot:")],
     r"^(place|spot)", 12),
]


def emit(path, options=()):
    done = subprocess.run([EINNET, "emit", path, "-o", "-", *options], stdout=subprocess.PIPE,
                          check=True)
    return done.stdout.decode().splitlines()


def places(lines):
    """Section and, for kernels, the equations above: what each line belongs to."""
    title, owner, out = "summary", "", []
    for line in lines:
        found = re.match(r"// ---- (.*?) -+$", line)
        title = found.group(1) if found else title
        if not line:
            owner = ""
        elif line.startswith("//"):
            owner += line
        out.append((title, owner))
    return out


def changed(a, b):
    """Lines of b that differ from a, with their places."""
    place = places(b)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag != "equal":
            for i in range(start, end):
                yield place[i], b[i]


def helpers(a, b):
    """Lines of b's paragraphs about types that a has not: what only a changed layer's kernels need
    comes with them."""
    types = [set(re.findall(r"struct (\w+)", "\n".join(lines))) for lines in (a, b)]
    new = types[1] - types[0]
    for block in "\n".join(b).split("\n\n"):
        if "__global__" not in block and new & set(re.findall(r"\w+", block)):
            yield from block.split("\n")
    yield ""


def memory(lines):
    """Names of what lies in memory, from the block of sizes and offsets."""
    found = (re.match(r"#define v_(\w+) ", line) for line in lines)
    return [m.group(1) for m in found if m]


def steps(lines):
    """Results of the steps of `run`, in order."""
    begin = next(i for i, line in enumerate(lines) if re.match(r"// ---- run ", line))
    text = "\n".join(lines[begin:])
    return re.findall(r"CALL\((?:launch|\w+_run)\(m[^;]*?\bv_(\w+)(?:,\s+v_workspace)?\)\);", text)


def one_change(name, pairs, own, most, options, folder):
    """What is wrong with how the program changes; nothing: all is right."""
    path = os.path.join(ROOT, "models", name + ".ein")
    text = open(path).read()
    other = os.path.join(folder, "other.ein")
    for old, new in pairs:
        if old not in text:
            return "the model has no `%s` any more" % old
        text = text.replace(old, new, 1)
    open(other, "w").write(text)
    base, now = emit(path, options), emit(other, options)
    come_or_gone = set(memory(base)) ^ set(memory(now))
    # What the first layer of a kind brings into a program, and the last one takes along.
    come_or_gone -= {"workspace", "arrived"}
    others = sorted(n for n in come_or_gone if not re.search(own, n))
    if others:
        return "names changed: " + " ".join(others[:6])
    was, is_now = steps(base), steps(now)
    if not was:
        return "no steps found"
    both = set(was) & set(is_now)
    if [s for s in was if s in both] != [s for s in is_now if s in both]:
        return "steps changed places"
    count = sum(title not in FREE for (title, _), _ in changed(base, now))
    count += sum(title not in FREE for (title, _), _ in changed(now, base))
    return "%d lines changed" % count if count > most else ""


def check_changes(checks, folder):
    for name, pairs, own, most in CHANGES:
        for options in MODES:
            wrong = one_change(name, pairs, own, most, options, folder)
            checks.check("%s %s, %s" % (name, " ".join(options), pairs[0][1]), not wrong, wrong)


def main():
    text = open(MODEL).read()
    wider = text.replace("2*C,4,4]", "4*C,4,4]").replace("[2*C,C,4,4]", "[4*C,C,4,4]")
    checks, elsewhere = Checks(), []
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "other.ein")
        open(other, "w").write(wider)
        checks.check("the model has such a layer", wider != text)
        base, now = emit(MODEL), emit(other)
        lines = list(changed(base, now))
        layer = re.compile(r"c3|c4|r3|r4|k3|k4|65536|262144|^// by |manifest|0x[0-9a-f]{16}ull|"
                           r"cudaMalloc|\"zeros\"")
        helper = set(helpers(base, now))
        kernels = {re.search(r"k_\w+", l).group(0) for (t, _), l in lines
                   if t == "kernels" and "__global__" in l}
        # Whether a step lets the next one in early depends on what that is.
        place = re.compile(r"(launch\(m, )(ALONE|FIRST|MIDDLE|LAST)\b")
        launches = {place.sub(r"\1", l) for l in base if place.search(l)}
        for (title, owner), line in lines:
            if place.search(line) and any(l.endswith(place.sub(r"\1", line)) for l in launches):
                continue
            mine = layer.search(line) or any(k in line for k in kernels)
            mine = mine or (title == "kernels" and layer.search(owner))
            mine = mine or (title == "kernels" and line in helper)
            if title not in FREE and not mine:
                elsewhere.append("%s: %s" % (title, line))
        checks.none("a changed layer changes only what is its own", elsewhere[:10])
        checks.check("few lines", 0 < len(lines) <= 170, "%d changed" % len(lines))
        copy = os.path.join(folder, "renamed.ein")
        shutil.copy(MODEL, copy)
        checks.check("the file's name is not in the output", emit(copy) == base)
        check_changes(checks, folder)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
