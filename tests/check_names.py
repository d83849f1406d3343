#!/usr/bin/env python3
"""The prefix of a program's symbols meets no name that the file declares beside it: what templates
and generated text declare at file scope is read from programs of every mode, and a model of that
name must get another prefix. Tensors' names do not meet either. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

from harness import EINNET, ROOT, Checks

# Together they have every helper: calls of all libraries, shared tiles, halves, both norms.
PROGRAMS = [("models/gcn.ein", []), ("models/gcn.ein", ["--math", "fp16"]),
            ("models/resnet18.ein", ["--math", "tf32", "--libs", "none"]),
            ("models/longformer.ein", ["--math", "fp16"]),
            ("tests/unseen/grouped.ein", ["--math", "tf32"]),
            ("tests/unseen/long_rows.ein", []), ("tests/unseen/norms.ein", []),
            ("tests/unseen/norm_products.ein", ["--math", "fp16", "--libs", "none"]),
            ("tests/unseen/towers.ein", []), ("tests/unseen/half.ein", [])]
DECLARED = [r"^(?:static|template)[^;={]*?\b(\w+)\(", r"^\s*#define (\w+)",
            r"\bstruct (?:__align__\(\d+\) )?(\w+)", r"^static [\w :<>*]*?(\w+)(?:\[[^\]]*\])* =",
            r"^\} (\w+);"]
# What holds a model's own names has a prefix that no symbol begins with.
OWN = re.compile(r"(k|v|gemm|basis|CONV|MATMUL)_")
# Tensors whose names are one as identifiers; each is a call that has a row of its own.
MEETING = """ein 1
model meeting
input x: f32[1024,1024]
weight k: f32[1024,1024] = randn(std=0.03)
output y
a.b = MatMul(x, k)
s = Softmax(a.b)
a_b = MatMul(s, k)
y = Softmax(a_b)
"""
# What the headers declare that the file includes: a few of each kind.
HEADERS = ("INFINITY NAN EOF gamma gammaf lgammal index nan select random round roundf system tanh "
           "tanhf log2 log2f y0 y1f j0 div tm uint remainder trunc sincosf int64_t float4").split()
TINY = "ein 1\nmodel %s\ninput x: f32[4]\noutput y\ny = Relu(x)\n"


def declared(path, options):
    text = subprocess.run([EINNET, "emit", os.path.join(ROOT, path), "--prefix", "zz", "-o", "-"] +
                          options, stdout=subprocess.PIPE, check=True).stdout.decode()
    text = re.sub(r"//.*", "", text)
    names = {name for form in DECLARED for name in re.findall(form, text, re.M)}
    for words in re.findall(r"^enum \{(.*?)\}", text, re.M | re.S):
        names |= set(re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", words))
    return {name for name in names if not name.lower().startswith("zz") and not OWN.match(name)}


def main():
    checks, names = Checks(), set()
    for path, options in PROGRAMS:
        names |= declared(path, options)
    checks.check("names are found", len(names) > 120, "%d" % len(names))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.ein")
        for name in sorted(names) + HEADERS:
            with open(path, "w") as file:
                file.write(TINY % name)
            text = subprocess.run([EINNET, "emit", path, "-o", "-"], stdout=subprocess.PIPE,
                                  check=True).stdout.decode()
            checks.check("a model called " + name, "int %s_create(" % name not in text,
                         "gives its name to a type")
        with open(path, "w") as file:
            file.write(MEETING)
        text = subprocess.run([EINNET, "emit", path, "-o", "-"], stdout=subprocess.PIPE,
                              check=True).stdout.decode()
        rows = re.findall(r"^static const gemm_size (\w+)", text, re.M)
        checks.check("calls called a.b and a_b", len(rows) == 2 and rows[0] != rows[1], str(rows))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
