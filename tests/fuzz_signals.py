"""Random models of signals (N, C, L) and volumes (N, C, D, H, W), for fuzz_models.py."""

import math

from fuzz_base import Grown, ints

UNARY = ["Relu(%s)", "Sigmoid(%s)", "Tanh(%s)", "LeakyRelu(%s; alpha=0.2)", "HardSwish(%s)",
         "Elu(%s)", "Softplus(%s)", "Neg(%s)"]


class Signals(Grown):
    """Shapes have one or three axes behind N and C."""

    def __init__(self, rng):
        super().__init__(rng)
        self.rank = rng.choice([1, 1, 1, 3])
        sizes = [16, 24, 33, 64] if self.rank == 1 else [4, 5, 6]
        shape = [rng.choice([1, 1, 2]), rng.choice([1, 3, 4, 8])]
        shape += [rng.choice(sizes) for _ in range(self.rank)]
        self.most = 128 if self.rank == 1 else 12
        self.take(shape)

    def weight(self, shape, std=None):
        name = self.name("w")
        if std is None:
            std = 1 / math.sqrt(max(1, math.prod(shape[1:])))
        self.lines.append("weight %s: f32%s = randn(seed=%d, std=%.3g)" % (
            name, ints(shape), self.count, std))
        return name

    def equation(self, indices, text, shape):
        name = self.name("t")
        self.lines.append("%s[%s] = %s" % (name, indices, text))
        self.values[name] = shape
        return name

    def conv(self, x):
        shape, r = self.values[x], self.rng
        c = shape[1]
        group = r.choice([1, 1, 1, c] + ([2] if c % 2 == 0 else []))
        filters = group * r.choice([1, 2, 3, 4]) if group < 8 else group
        k = [r.choice([1, 2, 3, 5]) for _ in shape[2:]]
        s, d = r.choice([1, 1, 1, 2, 3]), r.choice([1, 1, 2, 4])
        before = [r.choice([(n - 1) * d, (n - 1) * d // 2]) for n in k]
        behind = [(n - 1) * d - b for n, b in zip(k, before)]
        out = [(n + b + e - d * (m - 1) - 1) // s + 1
               for n, m, b, e in zip(shape[2:], k, before, behind)]
        args = [x, self.weight([filters, c // group] + k)]
        if r.random() < 0.5:
            args.append(self.weight([filters], 0.3))
        return self.put("Conv(%s; strides=%d, pads=%s, dilations=%d, group=%d)" % (
            ", ".join(args), s, ints(before + behind), d, group), [shape[0], filters] + out)

    def deconv(self, x):
        shape, r = self.values[x], self.rng
        k, s = r.choice([2, 3, 4, 5]), r.choice([1, 2, 3])
        group = r.choice([1, 1, shape[1]])
        f = r.choice([1, 2, 4])
        p, q = r.choice([0, 0, 1]), r.choice([0, 1])
        more = r.choice([0, 0, s - 1])
        out = [(n - 1) * s + k - p - q + more for n in shape[2:]]
        if max(out) > self.most or min(out) < 1:
            return None
        text = "ConvTranspose(%s, %s; strides=%d, pads=%s, output_padding=%d, group=%d)" % (
            x, self.weight([shape[1], f] + [k] * self.rank), s,
            ints([p] * self.rank + [q] * self.rank), more, group)
        return self.put(text, [shape[0], f * group] + out)

    def gated(self, x):
        """As WaveNet has it: two convolutions, one of which gates the other, and a residual."""
        shape, r = self.values[x], self.rng
        c, d, k = shape[1], r.choice([1, 2, 4]), r.choice([2, 3])
        pads = ints([(k - 1) * d] * self.rank + [0] * self.rank)
        parts = [self.put("Conv(%s, %s; pads=%s, dilations=%d)" % (
            x, self.weight([c, c] + [k] * self.rank), pads, d), list(shape)) for _ in range(2)]
        f = self.put("Tanh(%s)" % parts[0], list(shape))
        g = self.put("Sigmoid(%s)" % parts[1], list(shape))
        z = self.put("Mul(%s, %s)" % (f, g), list(shape))
        y = self.put("Conv(%s, %s)" % (z, self.weight([c, c] + [1] * self.rank)), list(shape))
        return self.put("Add(%s, %s)" % (y, x), list(shape))

    def norm(self, x):
        shape, r = self.values[x], self.rng
        c = shape[1]
        scale, bias = self.weight([c], 0.5), self.weight([c], 0.3)
        kind = r.randrange(4)
        if kind == 0:
            mean, var = self.weight([c], 0.3), self.name("v")
            self.lines.append("weight %s: f32[%d] = uniform(lo=0.5, hi=1.5)" % (var, c))
            return self.put("BatchNormalization(%s, %s, %s, %s, %s)" % (x, scale, bias, mean, var),
                            list(shape))
        if math.prod(shape[2:]) < 4:
            return None
        if kind == 1:
            return self.put("InstanceNormalization(%s, %s, %s; epsilon=0.001)" % (x, scale, bias),
                            list(shape))
        if kind == 2:
            return self.put("GroupNormalization(%s, %s, %s; num_groups=%d, epsilon=0.001)" % (
                x, scale, bias, r.choice([g for g in (1, 2, 3) if c % g == 0])), list(shape))
        return self.put("Softmax(%s; axis=%d)" % (x, r.randrange(1, len(shape))), list(shape))

    def pool(self, x):
        shape, r = self.values[x], self.rng
        k, s = r.choice([2, 3]), r.choice([1, 2])
        if min(shape[2:]) < k:
            return None
        ceil = r.choice([0, 0, 1])
        op = r.choice(["MaxPool", "AveragePool", "AveragePool"])
        more = ", count_include_pad=%d" % r.choice([0, 1]) if op == "AveragePool" else ""
        p = r.choice([0, 1])
        out = [(n + 2 * p - k + (s - 1) * ceil) // s + 1 for n in shape[2:]]
        # A window that begins behind the data does not count.
        out = [m - 1 if ceil and (m - 1) * s >= n + p else m for m, n in zip(out, shape[2:])]
        return self.put("%s(%s; kernel_shape=%s, strides=%d, pads=%d, ceil_mode=%d%s)" % (
            op, x, ints([k] * self.rank), s, p, ceil, more), shape[:2] + out)

    def binary(self, x):
        shape = self.values[x]
        others = [n for n, s in self.values.items() if s == shape]
        r = self.rng
        other = r.choice(others)
        if r.random() < 0.3:
            other = self.weight([shape[1]] + [1] * self.rank, 0.5)
        return self.put("%s(%s, %s)" % (r.choice(["Add", "Mul", "Sub", "Max"]), x, other),
                        list(shape))

    def concat(self, x):
        shape, r = self.values[x], self.rng
        others = [n for n, s in self.values.items() if n != x and s[:1] + s[2:] ==
                  shape[:1] + shape[2:]]
        if not others:
            return None
        parts = [x] + r.sample(others, min(len(others), r.choice([1, 1, 2])))
        channels = sum(self.values[p][1] for p in parts)
        if channels > 40:
            return None
        return self.put("Concat(%s; axis=1)" % ", ".join(parts), [shape[0], channels] + shape[2:])

    def squeeze(self, x):
        shape = self.values[x]
        c, ones = shape[1], [1] * self.rank
        mean = self.put("GlobalAveragePool(%s)" % x, shape[:2] + ones)
        up = self.put("Conv(%s, %s)" % (mean, self.weight([c, c] + ones)), shape[:2] + ones)
        gate = self.put("Sigmoid(%s)" % up, shape[:2] + ones)
        return self.put("Mul(%s, %s)" % (x, gate), list(shape))

    def resize(self, x):
        shape, r = self.values[x], self.rng
        if 2 * max(shape[2:]) > self.most:
            return None
        out = shape[:2] + [2 * n for n in shape[2:]]
        return self.put("Resize(%s; mode=%s, coordinate_transformation_mode=%s, sizes=%s)" % (
            x, r.choice(["nearest", "linear"]), r.choice(["half_pixel", "asymmetric"]), ints(out)),
            out)

    def cut(self, x):
        shape, r = self.values[x], self.rng
        n = shape[2]
        kind = r.randrange(4)
        if kind == 0 and n > 3:
            step = r.choice([1, 2, -1])
            begin, end = (n - 1, 0) if step < 0 else (1, n)
            out = len(range(begin, end, step))
            return self.put("Slice(%s; starts=[%d], ends=[%d], axes=[2], steps=[%d])" % (
                x, begin, end, step), shape[:2] + [out] + shape[3:])
        if kind == 1:
            mode = r.choice(["constant", "reflect", "edge"])
            pads = [0, 0, 1] + [0] * (self.rank - 1) + [0, 0, 2] + [0] * (self.rank - 1)
            if n < 4:
                return None
            return self.put("Pad(%s; pads=%s, mode=%s)" % (x, ints(pads), mode),
                            shape[:2] + [n + 3] + shape[3:])
        if kind == 2 and shape[1] % 2 == 0:
            a, b = self.name("t"), self.name("t")
            self.lines.append("%s, %s = Split(%s; axis=1, num_outputs=2)" % (a, b, x))
            self.values[a] = self.values[b] = [shape[0], shape[1] // 2] + shape[2:]
            return a
        if kind == 3 and self.rank == 1:
            return self.put("Transpose(%s; perm=[0,2,1])" % x, [shape[0], shape[2], shape[1]]) \
                if shape[2] <= 40 else None
        return None

    def algebra(self, x):
        shape, r = self.values[x], self.rng
        if self.rank != 1:
            return None
        n, c, length = shape
        kind = r.randrange(4)
        if kind == 0:
            k = r.choice([3, 4])
            w = self.weight([c, k])
            at = r.choice(["i-j", "i+2*j-3", "2*i-%d" % (length // 2)])
            return self.equation("n,c,i", "sum(j) %s[n,c,%s] * %s[c,j] where i in 0:%d, "
                                 "pad %s 0" % (x, at, w, length, x), list(shape))
        if kind == 1:
            return self.equation("n,c,i", "(sum(j) [j <= i] * %s[n,c,j]) / (1 + idx(i)) "
                                 "where i in 0:%d" % (x, length), list(shape))
        if kind == 2:
            return self.equation("n,c,i", "%s[n,c,i] - %s[n,c,%d-i]" % (x, x, length - 1),
                                 list(shape))
        return self.equation("n,c,i", "max(j) %s[n,c,i+j-1] where i in 0:%d, j in 0:3, "
                             "pad %s -1000" % (x, length, x), list(shape))

    def grow(self, steps):
        r = self.rng
        makers = [self.conv, self.conv, self.conv, self.conv, self.deconv, self.deconv, self.gated,
                  self.norm, self.norm, self.pool, self.binary, self.concat, self.concat,
                  self.squeeze, self.resize, self.cut, self.cut, self.algebra, self.algebra]
        last = "x"
        for _ in range(steps):
            x = last if r.random() < 0.7 else r.choice(list(self.values)[-4:])
            if r.random() < 0.25:
                made = self.put(r.choice(UNARY) % x, list(self.values[x]))
            else:
                made = r.choice(makers)(x)
            last = made or last
        return last

    def text(self, last):
        outputs = {last if last != "x" else self.put("Relu(x)", list(self.values["x"]))}
        extra = self.rng.choice(list(self.values))
        if self.rng.random() < 0.4 and extra != "x":
            outputs.add(extra)
        return self.with_outputs(outputs)
