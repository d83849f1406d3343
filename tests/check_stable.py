#!/usr/bin/env python3
"""A small change of a model is a small change of the emitted file.

Gives one layer of dcgan other channels: outside of the block of sizes and offsets, the banner and
the tables of tensors, only lines that name this layer, its neighbour or their weights may differ.
Renaming the file or moving it changes nothing. Ends with `N passed, N failed`.
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


def emit(path):
    done = subprocess.run([EINNET, "emit", path, "-o", "-"], stdout=subprocess.PIPE, check=True)
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


def main():
    text = open(MODEL).read()
    wider = text.replace("2*C,4,4]", "144,4,4]").replace("[2*C,C,4,4]", "[144,C,4,4]")
    checks, elsewhere = Checks(), []
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "other.ein")
        open(other, "w").write(wider)
        checks.check("the model has such a layer", wider != text)
        base, now = emit(MODEL), emit(other)
        lines = list(changed(base, now))
        free = ("summary", "sizes and offsets", "interface", "info")
        layer = re.compile(r"c3|c4|r3|k3|k4|144|9216|manifest|0x[0-9a-f]{16}ull|cudaMalloc")
        kernels = {re.search(r"k_\w+", l).group(0) for (t, _), l in lines
                   if t == "kernels" and "__global__" in l}
        for (title, owner), line in lines:
            mine = layer.search(line) or any(k in line for k in kernels)
            mine = mine or (title == "kernels" and layer.search(owner))
            if title not in free and not mine:
                elsewhere.append("%s: %s" % (title, line))
        checks.none("a changed layer changes only what is its own", elsewhere[:10])
        checks.check("few lines", 0 < len(lines) <= 120, "%d changed" % len(lines))
        copy = os.path.join(folder, "renamed.ein")
        shutil.copy(MODEL, copy)
        checks.check("the file's name is not in the output", emit(copy) == base)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
