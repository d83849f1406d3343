#!/usr/bin/env python3
"""What an emitted file defines it uses: macros, functions, templates, types, values of kernels.

Models in several arithmetics, with libraries and without; each name that a file's own lines define
at their left margin must stand in it once more. Kernels of run stand in front of those that create
alone launches; no comment is broken between the name of an operand and its tensor; no type is
defined twice. Ends with `N passed, N failed`.
"""

import collections
import os
import re
import subprocess
import sys

from harness import EINNET, ROOT, Checks

MODELS = ("models/resnet18", "models/dcgan", "models/fsrcnn", "models/longformer_short",
          "models/infogan", "models/cases/basic_block", "tests/unseen/attention",
          "tests/unseen/tail", "tests/unseen/siblings", "tests/unseen/norm_products")
OPTIONS = ("--math fp32", "--math fp32 --libs none", "--math tf32 --libs none", "--math fp16",
           "--math fp16 --libs none --gpu orin-nx")
DEFINES = (r"^#define (\w+)", r"^(?:static|__device__)\b[^=;(]*?\b(\w+)\(",
           r"^(?:typedef )?struct (?:__align__\(\w+\) )?(\w+)",
           r"^static const [\w ]*?(\w+)(?:\[| =)", r"^} (\w+);", r"^enum (\w+)")
# A filter is laid in another order at load, and by every run what is made of weights.
MOVED = """ein 1
model moved
input x: f32[16,8]
weight i: i32[1] = uniform(lo=0, hi=5)
weight t: f32[6,4] = randn(seed=1)
weight k: f32[4,3] = randn(seed=2)
weight w: f32[8,3] = randn(seed=3)
output b, c, y
b[f] = sum(e) t[@i[0],e] * k[e,f]
c[f,v] = b[f] where v in 0:7
y[m,h,f] = sum(k) x[m,h*8+k] * w[k,f] where h in 0:1
"""
EXAMPLE = """#define A 1
static int f(int a) { return a; }
int g() { return B; }
static __global__ void k(int *y) {
    const int t0 = *y;
    const int t1 = *y;
    y[t1] = 1;
}
"""
# Its loads of a window try eight neighbours, then four, then one.
WINDOWS = ("models/gcn", "--math fp16 --dim N=4")


def unused(text):
    """The names that `text` defines and does not name again."""
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', re.sub(r"//[^\n]*", "", text))
    words = collections.Counter(re.findall(r"[A-Za-z_]\w*", text))
    names = {name for define in DEFINES for name in re.findall(define, text, re.M)}
    return sorted(name for name in names if words[name] < 2)


def idle(text):
    """Numbers and values that a kernel declares and does not name again."""
    found = []
    for body in re.findall(r"^static __global__ .*?^}", text, re.M | re.S):
        words = collections.Counter(re.findall(r"[A-Za-z_]\w*", body))
        names = re.findall(r"^ +const (?:int|long long|float4?) ([tv]\d+) = ", body, re.M)
        found += [name for name in names if words[name] < 2]
    return found


def misplaced(text):
    """Kernels in front of the mark that run does not launch, and those behind it that it does."""
    kernels = re.search(r"^// ---- kernels (.*?)^// ---- state ", text, re.M | re.S).group(1)
    parts = kernels.partition("// Those that only create launches.")
    front, behind = (set(re.findall(r"^static __global__ [^{]*?\b(k_\w+)\(", part, re.M))
                     for part in parts[::2])
    launched = set(re.findall(r"launch\(m, \w+, (k_\w+)", text[text.index("\n// ---- run "):]))
    return sorted(front - launched | behind & launched)


def twice(text):
    """The types that `text` defines more than once."""
    names = collections.Counter(re.findall(r"^struct (\w+) {", text, re.M))
    return sorted(name for name in names if names[name] > 1)


def main():
    checks = Checks()
    checks.check("names that are defined alone are found", unused(EXAMPLE) == ["A", "f", "k"])
    checks.check("and what kernels do", idle(EXAMPLE) == ["t0"])
    for model, options in [(m, o) for m in MODELS for o in OPTIONS] + [WINDOWS]:
        path = os.path.join(ROOT, model + ".ein")
        done = subprocess.run([EINNET, "emit", path, "-o", "-"] + options.split(),
                              stdout=subprocess.PIPE, check=True)
        text = done.stdout.decode()
        checks.none("%s %s: kernels in their places" % (model, options), misplaced(text))
        checks.none("%s %s: operands and their tensors" % (model, options),
                    re.findall(r"^ *//.*\bp\d+:$", text, re.M))
        # What the model's sizes are called is for those who include the header.
        text = re.sub(r"^#define \w+_(ARENA|WEIGHT)_BYTES .*\n", "", text, flags=re.M)
        names = unused(text)
        checks.check("%s %s" % (model, options), not names, " ".join(names))
        checks.none("%s %s: types defined twice" % (model, options), twice(text))
        checks.none("%s %s: what kernels declare" % (model, options), idle(text))
    done = subprocess.run([EINNET, "emit", "-", "-o", "-", "--form", "2"], input=MOVED.encode(),
                          stdout=subprocess.PIPE, check=True)
    checks.none("one kernel moves weights: types defined twice", twice(done.stdout.decode()))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
