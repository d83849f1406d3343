#!/usr/bin/env python3
"""Products of different sizes in one call: that plans have them where they pay, that they compute
what the model says in every mode, and that a table of measured costs decides.

At small sizes no product is worth a call, so invented tables of costs make calls cheap. The emitted
code runs on the judge and is compared with the oracle; also as with a toolkit that has no such
calls, and with a library that refuses them. Faults planted in what is told to the library must be
noticed. Ends with `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile

import invented
import run_models
from harness import EINNET, HERE, JUDGE, LONG, ROOT, Checks

MODEL = os.path.join(HERE, "unseen", "grouped.ein")
# Two pairs of products, each in an arithmetic of its own: a call of one pair needs what one of the
# other pair gives, so that no more than one of the two can be made.
CROSSED = """ein 1
model crossed
input x: f32[24,32]
weight a: f32[32,48] = randn(seed=1, std=0.2)
weight b: f32[48,64] = randn(seed=2, std=0.2)
weight c: f32[32,40] = randn(seed=3, std=0.2)
weight d: f32[40,72] = randn(seed=4, std=0.2)
output y, z
h = Softmax(x)
t1 = MatMul(h, a)
s1 = Softmax(t1)
f1 = MatMul(s1, b)
y = Softmax(f1)
f2 = MatMul(h, c)
s2 = Softmax(f2)
t2 = MatMul(s2, d)
z = Softmax(t2)
"""
CROSSED_OPTIONS = ["--math", "tf32", "--keep-fp32", "f1,f2", "--rules=-online"]
GUARD = ("#if CUDART_VERSION >= 12050", "#if 0")


def einnet(*arguments):
    return subprocess.run([EINNET] + list(arguments), stdout=subprocess.PIPE,
                          check=True).stdout.decode()


def grouped(text):
    """The lines of a plan that are such calls."""
    return re.findall(r"^// .* us (est\.|measured) \S+ +cuBLAS grouped (.*)$", text, re.M)


class Groups(Checks):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.costs = os.path.join(folder, "costs.tsv")

    def invent(self, options, model=MODEL):
        """A table in which products are cheap and groups of them cheaper, until none is missing."""
        keys = {}
        for _ in range(6):
            with open(self.costs, "w") as out:
                for key, ps in sorted(keys.items()):
                    out.write("h200\t%s\t%d\t0\tcudnn 91900 cublas 130100\n" % (key, ps))
            found = [k for k in invented.calls(EINNET, model, options + ["--costs", self.costs])
                     if k not in keys]
            if not found:
                break
            for key in found:
                keys[key] = 1 if key.startswith("grouped") else \
                    10**6 if key.startswith("gemm") else 10**9
        return [k for k in keys if k.startswith("grouped")]

    def planned(self):
        options = ["--small", "--math", "tf32"]
        self.invent(options)
        options = ["emit", MODEL, *options, "--costs", self.costs, "-o", "-"]
        text = einnet(*options)
        calls = grouped(text)
        self.check("a plan has a call of ten products or more",
                   calls and calls[0][1].count(" x ") >= 20, calls)
        self.check("a batch is one of them", calls and "(batch 3)" in calls[0][1], calls)
        self.check("no operand is what a caller gives", "IN(" not in
                   text.split("at[")[1].split("};")[0] if calls else False)
        off = einnet(*options, "--rules=-merge")
        self.check("none without merging", not grouped(off))
        base = einnet(*options, "--baseline")
        self.check("none in the baseline", not grouped(base))

    def built(self, name, math, planted=("", "")):
        base = os.path.join(self.folder, name)
        size = ["--small", "--math", math, "--costs", self.costs]
        try:
            run_models.run([EINNET, "emit", MODEL, "-o", base + ".cu", "--test", base + "_t.cu"] +
                           size)
            run_models.run([EINNET, "pack", MODEL, "--small", "-o", base + ".weights"])
            with open(base + ".cu") as file:
                text = file.read()
            self.check(name + ": there is what is planted", planted[0] in text)
            with open(base + ".cu", "w") as file:
                file.write(text.replace(*planted))
            run_models.run([JUDGE, "--quick", "-o", base, base + "_t.cu", base + ".cu"])
        except run_models.Failure as error:
            self.check(name + ": it is built", False, str(error))
            return None
        return base

    def runs(self, name, base, right=True, **environment):
        env = dict(os.environ, JUDGE_LEAKCHECK="1", **environment)
        done = subprocess.run([base, base + ".weights", "--check"], env=env, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode(errors="replace")
        self.check(name, (done.returncode == 0) == right, text[-300:])

    def mode(self, math):
        keys = self.invent(["--small", "--math", math])
        text = einnet("emit", MODEL, "--small", "--math", math, "--costs", self.costs, "-o", "-")
        calls = grouped(text)
        self.check("%s: measured calls, %d keys" % (math, len(keys)),
                   calls and all(how == "measured" for how, _ in calls), calls)
        self.check(math + ": a product that needs another one is none of its call",
                   calls and "12 x 12 x 8" not in calls[0][1], calls)
        args = run_models.arguments(["--einnet", EINNET, "--math", math, "--costs", self.costs])
        args.options = []
        wrong = run_models.what_is_wrong(MODEL, args)
        self.check(math + ": the oracle's values", not wrong, wrong)
        done = subprocess.run([EINNET, "verify", MODEL, "--small", "--math", math, "--costs",
                               self.costs], stdout=subprocess.DEVNULL)
        self.check(math + ": the plan is proved", not done.returncode)
        dear = os.path.join(self.folder, "dear.tsv")
        with open(self.costs) as file, open(dear, "w") as out:
            out.write(re.sub(r"^(h200\tgrouped [^\t]*\t)1\t", r"\g<1>999999999\t", file.read(),
                             flags=re.M))
        text = einnet("emit", MODEL, "--small", "--math", math, "--costs", dear, "-o", "-")
        self.check(math + ": dear calls are not made", not grouped(text), grouped(text))

    def guards(self, math):
        """Both sides of the guard of versions, for nvcc and on the judge; refusals; faults."""
        self.invent(["--small", "--math", math])
        base = self.built("new_" + math, math)
        if base:
            self.runs(math + ": it runs", base)
            self.runs(math + ": the library refuses", base, JUDGE_CUBLAS_REFUSES="grouped")
            self.runs(math + ": the call fails", base, False,
                      JUDGE_FAIL_API="cublasGemmGroupedBatchedEx")
        old = self.built("old_" + math, math, GUARD)
        if old:
            self.runs(math + ": an older toolkit", old)
        for name in [b for b in (base, old) if b]:
            done = subprocess.run(["nvcc", "-std=c++14", "-arch=sm_75" if math == "fp32" else
                                   "-arch=sm_87", "-Werror", "all-warnings", "-Xcompiler",
                                   "-Wall,-Wextra,-Werror", "-c", name + ".cu", "-o", name + ".o"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.check("%s compiles" % os.path.basename(name), not done.returncode,
                       done.stdout.decode()[-300:])

    def faults(self):
        self.invent(["--small"])
        for name, planted in (("operands exchanged", ("g->n + i, g->m + i, g->k + i", "g->m + i, "
                                                      "g->n + i, g->k + i")),
                              ("an address of another product", ("+ b * stride[o];",
                                                                 "+ b * stride[o] + (p == 1) * "
                                                                 "4;"))):
            base = self.built("fault", "fp32", planted)
            if base:
                self.runs(name + " is noticed", base, False)

    def crossed(self):
        path = os.path.join(self.folder, "crossed.ein")
        with open(path, "w") as out:
            out.write(CROSSED)
        keys = self.invent(CROSSED_OPTIONS, path)
        self.check("both pairs are asked for", len(keys) == 2, keys)
        options = ["--branches", "1", "--keep-fp32", "f1,f2", "--rules=-online"]
        text = einnet("emit", path, "--math", "tf32", "--costs", self.costs, "-o", "-", *options)
        self.check("one of two calls that need each other", len(grouped(text)) == 1, grouped(text))
        args = run_models.arguments(["--einnet", EINNET, "--math", "tf32", "--costs", self.costs])
        args.options = options
        wrong = run_models.what_is_wrong(path, args)
        self.check("the oracle's values of such a program", not wrong, wrong)

    def probe(self):
        """A row's way: asked for, measured, used."""
        path = os.path.join(self.folder, "probe")
        options = ["--math", "tf32", "--kernels", "0"]
        table = os.path.join(self.folder, "calls.tsv")
        keys, more = set(), {""}
        while more:
            with open(table, "w") as out:
                for key in sorted(keys):
                    out.write("h200\t%s\t1300000\t0\tcublas 130100\n" % key)
            more = {key for key in invented.calls(EINNET, MODEL, options + ["--costs", table])
                    if not key.startswith("grouped")} - keys
            keys |= more
        einnet("probe", MODEL, "-o", path + ".cu", "--costs", table, *options)
        with open(path + ".cu") as file:
            asked = set(re.findall(r'"((?:conv|gemm|grouped)[^"]+)"', file.read()))
        self.check("nothing but groups is missing",
                   asked and all(k.startswith("grouped f32 tf32 products=") for k in asked), asked)
        run_models.run([JUDGE, "--quick", "-o", path, path + ".cu"])
        done = subprocess.run([path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=dict(os.environ, JUDGE_LEAKCHECK="1"), timeout=300)
        rows = done.stdout.decode()
        row = r"h200\t(grouped [^\t]+)\t\d+\t\d+\tcublas \d+ cublaslt \d+ driver \d+"
        self.check("a row each", not done.returncode and
                   sorted(re.findall(row, rows)) == sorted(asked), rows[-300:])
        with open(table) as file, open(self.costs, "w") as out:
            out.write(file.read())
            out.write(re.sub(r"(\t)\d+(\t\d+\tcublas)", r"\g<1>7\2", rows))
        with open(path + ".tsv", "w") as out:
            out.write(einnet("costs", self.costs))
        with open(path + ".tsv") as file:
            self.check("tables keep it", "grouped" in file.read())
        text = einnet("emit", MODEL, "--math", "tf32", "--costs", self.costs, "-o", "-")
        self.check("the plan is made with it", [h for h, _ in grouped(text)][:1] == ["measured"],
                   grouped(text))
        both = einnet("probe", MODEL, os.path.join(ROOT, "models", "cases", "conv3x3.ein"), "-o",
                      "-", "--costs", table, *options)
        self.check("a probe of two models asks for it too", set(asked) <= set(
            re.findall(r'"(grouped [^"]+)"', both)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        z = Groups(folder)
        z.planned()
        for math in ("fp32", "tf32", "fp16"):
            z.mode(math)
        z.guards("fp32")
        z.guards("fp16")
        if LONG:
            z.faults()
        z.crossed()
        z.probe()
    return z.finish()


if __name__ == "__main__":
    sys.exit(main())
