#!/usr/bin/env python3
"""Random models of several operators, emitted, run on the judge and compared with the oracle.

    fuzz_models.py [--count N] [--seed S] [--keep DIR]

Images (here), sequences (fuzz_sequences.py), signals (fuzz_signals.py), equations that read in
other orders (fuzz_positions.py) and anyhow (fuzz_graphs.py) in turn, in all arithmetics, with
libraries and without, for GPUs of several sizes; `einnet verify` proves the plans. What single
operators cannot show: fusion, views, concatenations written in place, folded weights, layouts
between steps, derived forms, choices that overlap. Ends with `N passed, N failed`.
"""

import argparse
import os
import random
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "oracle")]

import ein  # noqa: E402
import fuzz_base  # noqa: E402
import fuzz_graphs  # noqa: E402
import fuzz_positions  # noqa: E402
import fuzz_sequences  # noqa: E402
import fuzz_signals  # noqa: E402
import run_models  # noqa: E402

GPUS = ["h200", "h200", "h200", "h200", "l4", "agx-orin", "orin-nano", "a100"]
UNARY = ["Relu(%s)", "Sigmoid(%s)", "Tanh(%s)", "LeakyRelu(%s; alpha=0.2)", "HardSwish(%s)",
         "Clip(%s; min=-1, max=1.5)", "Abs(%s)", "Neg(%s)", "Erf(%s)"]


class Images(fuzz_base.Grown):
    """Shapes are of rank 4, N C H W."""

    def __init__(self, rng):
        super().__init__(rng)
        self.made_once = set()  # outputs that are made of weights alone
        shape = [rng.choice([1, 2]), rng.choice([3, 4, 6, 8]), rng.choice([5, 7, 8]),
                 rng.choice([5, 6, 8])]
        self.take(shape)

    def weight(self, shape, std=0.3):
        name = self.name("w")
        self.lines.append("weight %s: f32[%s] = randn(std=%g)" % (
            name, ",".join(map(str, shape)), std))
        return name

    def pick(self, same=None):
        names = [n for n, s in self.values.items() if same is None or s == same]
        return self.rng.choice(names[-4:]) if names else None

    def conv(self, x):
        n, c, h, w = self.values[x]
        r = self.rng
        group = r.choice([1, 1, 1, 2, c]) if c % 2 == 0 else r.choice([1, 1, c])
        k, s, d = r.choice([1, 2, 3]), r.choice([1, 1, 2]), r.choice([1, 1, 2])
        pads = [r.choice([0, 1, 2]) for _ in range(4)] if r.random() < 0.3 else [k // 2 * d] * 4
        f = group * r.choice([1, 2, 3, 4])
        oh = (h + pads[0] + pads[2] - d * (k - 1) - 1) // s + 1
        ow = (w + pads[1] + pads[3] - d * (k - 1) - 1) // s + 1
        if min(oh, ow) < 1:
            return None
        args = [x, self.weight([f, c // group, k, k])]
        if r.random() < 0.5:
            args.append(self.weight([f]))
        return self.put("Conv(%s; strides=%d, pads=[%s], dilations=%d, group=%d)" % (
            ", ".join(args), s, ",".join(map(str, pads)), d, group), [n, f, oh, ow])

    def deconv(self, x):
        n, c, h, w = self.values[x]
        k, s = self.rng.choice([2, 3, 4]), self.rng.choice([1, 2])
        p = self.rng.choice([0, 1]) if k > 2 else 0
        f = self.rng.choice([2, 3, 4])
        oh, ow = (h - 1) * s + k - 2 * p, (w - 1) * s + k - 2 * p
        if max(oh, ow) > 20 or min(oh, ow) < 1:
            return None
        return self.put("ConvTranspose(%s, %s; strides=%d, pads=%d)" % (
            x, self.weight([c, f, k, k]), s, p), [n, f, oh, ow])

    def norm(self, x):
        c = self.values[x][1]
        scale, bias, mean = self.weight([c]), self.weight([c]), self.weight([c])
        var = self.name("v")
        self.lines.append("weight %s: f32[%d] = uniform(lo=0.5, hi=1.5)" % (var, c))
        return self.put("BatchNormalization(%s, %s, %s, %s, %s)" % (x, scale, bias, mean, var),
                        list(self.values[x]))

    def pool(self, x):
        n, c, h, w = self.values[x]
        if min(h, w) < 3:
            return None
        r = self.rng
        op = r.choice(["MaxPool", "AveragePool"])
        k, strides = r.choice([2, 3, 3, 3]), [(2, 2), (2, 2), (1, 1), (3, 1), (1, 2)]
        down, across = r.choice(strides)
        p = [r.choice([0, 1]) for _ in range(4)] if r.random() < 0.3 else [k // 2] * 4
        return self.put("%s(%s; kernel_shape=%d, strides=[%d,%d], pads=[%s])" % (
            op, x, k, down, across, ",".join(map(str, p))), [
                n, c, (h + p[0] + p[2] - k) // down + 1, (w + p[1] + p[3] - k) // across + 1])

    def binary(self, x):
        other = self.pick(self.values[x])
        if other is None or self.rng.random() < 0.3:
            other = self.weight([self.values[x][1], 1, 1])
        return self.put("%s(%s, %s)" % (self.rng.choice(["Add", "Mul", "Sub", "Max"]), x, other),
                        list(self.values[x]))

    def concat(self, x):
        shape = self.values[x]
        axis = self.rng.choice([1, 1, 2, 3])
        others = [n for n, s in self.values.items()
                  if n != x and all(a == b for i, (a, b) in enumerate(zip(s, shape)) if i != axis)]
        if not others:
            return None
        parts = [x] + self.rng.sample(others, min(len(others), self.rng.choice([1, 1, 2, 3])))
        out = list(shape)
        out[axis] = sum(self.values[part][axis] for part in parts)
        if out[axis] >= 20:
            return None
        made = self.put("Concat(%s; axis=%d)" % (", ".join(parts), axis), out)
        if self.rng.random() < 0.4:
            return made
        # As in densely connected blocks: what is made of it comes behind the same parts.
        more = self.put(self.rng.choice(UNARY) % made, list(out))
        longer = list(out)
        longer[axis] *= 2
        return self.put("Concat(%s; axis=%d)" % (", ".join(parts + [more]), axis), longer)

    def move(self, x):
        n, c, h, w = self.values[x]
        kind = self.rng.randrange(5)
        if kind == 0:
            perm = self.rng.choice([[0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]])
            return self.put("Transpose(%s; perm=%s)" % (x, perm), [self.values[x][p] for p in perm])
        if kind == 1:
            return self.put("Reshape(%s; shape=[%d,%d,%d,%d])" % (x, n, h, c, w), [n, h, c, w])
        if kind == 2 and h > 2:
            return self.put("Slice(%s; starts=[1], ends=[%d], axes=[2])" % (x, h), [n, c, h - 1, w])
        if kind == 3:
            return self.put("Pad(%s; pads=[0,0,1,0,0,0,0,2])" % x, [n, c, h + 1, w + 2])
        if c % 2 == 0:
            a, b = self.name("t"), self.name("t")
            self.lines.append("%s, %s = Split(%s; axis=1, num_outputs=2)" % (a, b, x))
            self.values[a] = self.values[b] = [n, c // 2, h, w]
            return b
        return None

    def rows(self, x):
        shape = list(self.values[x])
        kind = self.rng.randrange(3)
        if kind == 0:
            return self.put("Softmax(%s; axis=%d)" % (x, self.rng.choice([1, 2, 3])), shape)
        if kind == 1:
            return self.put("LayerNormalization(%s, %s, %s; axis=-1)" % (
                x, self.weight([shape[3]]), self.weight([shape[3]])), shape)
        return self.put("ReduceMean(%s; axes=[2,3])" % x, [shape[0], shape[1], 1, 1])

    def matmul(self, x):
        n, c, h, w = self.values[x]
        m = self.rng.choice([3, 4, 5])
        factor = self.weight([w, m])
        if self.rng.random() < 0.3:
            factor = self.let("Tanh(%s)" % factor)
            self.made_once.add(factor)
        return self.put("MatMul(%s, %s)" % (x, factor), [n, c, h, m])

    def squeeze(self, x):
        """Channels weighed by what their means say."""
        shape = self.values[x]
        c = shape[1]
        f = self.rng.choice([2, 3])
        mean = self.put("GlobalAveragePool(%s)" % x, [shape[0], c, 1, 1])
        down = self.put("Conv(%s, %s, %s)" % (
            mean, self.weight([f, c, 1, 1]), self.weight([f])), [shape[0], f, 1, 1])
        up = self.put("Conv(%s, %s)" % (self.put("Relu(%s)" % down, [shape[0], f, 1, 1]),
                                        self.weight([c, f, 1, 1])), [shape[0], c, 1, 1])
        gate = self.put("Sigmoid(%s)" % up, [shape[0], c, 1, 1])
        return self.put("Mul(%s, %s)" % (x, gate), list(shape))

    def statistics(self, x):
        """Norms over a sample's own channels or groups of them."""
        shape = self.values[x]
        c = shape[1]
        if shape[2] * shape[3] < 4:
            return None
        args = "%s, %s, %s" % (x, self.weight([c]), self.weight([c]))
        groups = [g for g in (1, 2, 3) if c % g == 0]
        if self.rng.random() < 0.5:
            return self.put("InstanceNormalization(%s; epsilon=0.001)" % args, list(shape))
        return self.put("GroupNormalization(%s; num_groups=%d, epsilon=0.001)" % (
            args, self.rng.choice(groups)), list(shape))

    def resize(self, x):
        n, c, h, w = self.values[x]
        if max(h, w) > 10:
            return None
        mode = self.rng.choice(["nearest", "linear"])
        where = self.rng.choice(["half_pixel", "asymmetric", "align_corners"])
        oh, ow = self.rng.choice([(2 * h, 2 * w), (h + 2, w), (h, 2 * w - 1)])
        return self.put("Resize(%s; mode=%s, coordinate_transformation_mode=%s, "
                        "sizes=[%d,%d,%d,%d])" % (x, mode, where, n, c, oh, ow), [n, c, oh, ow])

    def blocks(self, x):
        """Pixels and channels in exchange, and channels dealt out."""
        n, c, h, w = self.values[x]
        kind = self.rng.randrange(3)
        mode = self.rng.choice(["DCR", "CRD"])
        if kind == 0 and c % 4 == 0 and max(h, w) < 10:
            return self.put("DepthToSpace(%s; blocksize=2, mode=%s)" % (x, mode),
                            [n, c // 4, 2 * h, 2 * w])
        if kind == 1 and h % 2 == 0 and w % 2 == 0 and c < 9:
            return self.put("SpaceToDepth(%s; blocksize=2)" % x, [n, 4 * c, h // 2, w // 2])
        if c % 2 == 0:
            t = self.name("u")
            self.lines.append("%s = Reshape(%s; shape=[%d,2,%d,%d,%d])" % (t, x, n, c // 2, h, w))
            u = self.name("u")
            self.lines.append("%s = Transpose(%s; perm=[0,2,1,3,4])" % (u, t))
            return self.put("Reshape(%s; shape=[%d,%d,%d,%d])" % (u, n, c, h, w), [n, c, h, w])
        return None

    def algebra(self, x):
        """What no operator says."""
        n, c, h, w = self.values[x]
        kind = self.rng.randrange(5)
        name = self.name("t")
        if kind == 0:
            text = "%s[n,c,i,j] = %s[n,c,%d-i,j] where i in 0:%d" % (name, x, h - 1, h)
        elif kind == 1:
            k = self.weight([3, 3])
            text = "%s[n,c,i,j] = sum(r,s) %s[n,c,i+r-1,j+2*s-2] * %s[r,s] where i in 0:%d, " \
                   "j in 0:%d, pad %s %s" % (name, x, k, h, w, x, self.rng.choice(fuzz_base.PADS))
        elif kind == 2:
            text = "%s[n,c,i,j] = max(r,s) %s[n,c,i+r,j+s] where i in 0:%d, j in 0:%d, r in 0:2, " \
                   "s in 0:2" % (name, x, h - 1, w - 1)
            h, w = h - 1, w - 1
            if min(h, w) < 1:
                return None
        elif kind == 3:
            other = self.pick([n, c, h, w])
            text = "%s[n,d,i,j] = (sum(c) %s[n,c,i,j] * %s[n,c,i,j+d-1]) / %d where d in 0:3, " \
                   "pad %s %s" % (name, x, other, c, other, self.rng.choice(fuzz_base.PADS))
            c = 3
        else:
            text = "%s[n,c,i,j] = select(%s[n,c,i,j] < 0, 0.1 * %s[n,c,i,j], idx(i+j) / 20 + " \
                   "%s[n,c,i,j])" % (name, x, x, x)
        self.lines.append(text)
        self.values[name] = [n, c, h, w]
        return name

    def grow(self, steps):
        r = self.rng
        makers = [self.conv, self.conv, self.conv, self.deconv, self.norm, self.pool, self.binary,
                  self.binary, self.concat, self.move, self.move, self.rows, self.matmul,
                  self.squeeze, self.statistics, self.resize, self.blocks, self.algebra,
                  self.algebra]
        last = "x"
        for _ in range(steps):
            x = last if r.random() < 0.7 else self.pick()
            if r.random() < 0.3:
                made = self.put(r.choice(UNARY) % x, list(self.values[x]))
            else:
                made = r.choice(makers)(x)
            last = made or last
        return last

    def text(self, last):
        outputs = {last if last != "x" else self.put("Relu(x)", self.values["x"])}
        if self.rng.random() < 0.4:
            extra = self.pick()
            if extra != "x":
                outputs.add(extra)
        return self.with_outputs(outputs | self.made_once)


def written(seed):
    """A model, with the options to emit it with."""
    rng = random.Random(seed)
    kinds = [fuzz_sequences.Sequences, Images] * 2 + [
        fuzz_signals.Signals, fuzz_positions.Positions, fuzz_graphs.Graphs]
    model = kinds[seed % len(kinds)](rng)
    text = model.text(model.grow(rng.randrange(4, 14)))
    options = ["--gpu", rng.choice(GPUS)]
    if rng.random() < 0.2:
        options += ["--baseline"]
    if rng.random() < 0.15:
        options += ["--form", str(rng.randrange(1, 4))]
    math = rng.choice(["fp32", "fp32", "tf32", "fp16"])
    return text, options, math, rng.choice([None, "none", "none", "cublas"])


def fits_halves(path, einnet, folder):
    """Whether no value of the model is too large for FP16, or as a whole too small."""
    weights = os.path.join(folder, "all.weights")
    run_models.run([einnet, "pack", path, "-o", weights])
    program = ein.load(path, False, {})
    program.outputs = [(n, n) for n, t in program.tensors.items() if t.dtype[0] in "fb"]
    values = run_models.oracle_values(program, weights, False, folder).values()
    most = [np.max(np.abs(v.astype(np.float64)), initial=0) for v in values]
    return all(m == 0 or 1e-3 < m < 30000 for m in most)


def check(path, einnet, options, math, libs, folder):
    with open(path) as f:
        text = f.read()
    if (math == "fp16" or ": f16" in text) and not fits_halves(path, einnet, folder):
        math = "tf32" if math == "fp16" else math
        with open(path, "w") as f:
            f.write(text.replace("f16", "f32"))
    args = run_models.arguments(["--einnet", einnet, "--full", "--quick", "--math", math] +
                                (["--libs", libs] if libs else []))
    args.options = options
    args.slack = 4  # differences of what is nearly the same, and the like
    run_models.check_model(path, args, folder)
    run_models.run([einnet, "verify", path, "--math", math, "--only-math"] + options +
                   (["--libs", libs] if libs else []))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--einnet", default=os.path.join(HERE, "..", "build", "einnet"))
    parser.add_argument("--keep", help="folder for models that fail")
    args = parser.parse_args()
    passed = failed = 0
    for seed in range(args.seed, args.seed + args.count):
        text, options, math, libs = written(seed)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fuzz.ein")
            with open(path, "w") as f:
                f.write(text)
            try:
                check(path, args.einnet, options, math, libs, folder)
                passed += 1
            except Exception as error:  # whatever it is, the seed shows it again
                failed += 1
                print("FAIL seed %d: %s, %s, libraries %s: %s" % (
                    seed, " ".join(options), math, libs or "all", str(error)[:300]), flush=True)
                if args.keep:
                    with open(os.path.join(args.keep, "fuzz%d.ein" % seed), "w") as f:
                        f.write(text)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
