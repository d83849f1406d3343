"""Random models of equations for fuzz_models.py in which tensors are read many times, at places
that lie anyhow to each other: maps, sums and extrema of whatever there is, at digits, mirrored, at
windows, beyond borders, beside constants, guards and selections, and a few operators."""

import math
import re

from fuzz_base import PADS, Grown, ints

NAMES = "abcdefgh"
SIZES = [1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24]
MOST = 1500  # elements of a tensor
WORK = 60000  # terms of a sum
FEW = ["relu(%s)", "tanh(%s)", "sigmoid(%s)", "%s", "%s", "%s", "-%s", "abs(%s)", "0.5 * %s",
       "sqrt(1 + abs(%s))", "exp(-abs(%s))", "min(%s, 1)", "max(%s, -0.5)", "1 / (1 + abs(%s))",
       "select(%s < 0, 0, 0.25)", "%s / 4"]


class Graphs(Grown):
    def __init__(self, rng):
        super().__init__(rng)
        self.take([rng.choice(SIZES) for _ in range(rng.choice([1, 2, 2, 3]))])
        for _ in range(rng.randrange(3)):
            shape = [rng.choice(SIZES) for _ in range(rng.choice([1, 2, 2]))]
            name = self.name("w")
            self.lines.append("weight %s: f32%s = randn(seed=%d, std=0.5)" % (
                name, ints(shape), self.count))
            self.keep(name, shape)

    # ---- places

    def place(self, extent, its, far):
        """Something of these iterators, by name their extents, that is below `extent`, or with
        `far` perhaps beyond; whether it is."""
        r = self.rng
        same = [i for i, n in its.items() if n == extent]
        if same and r.random() < 0.6:
            i = r.choice(same)
            return r.choice([i, i, i, i, "%d-%s" % (extent - 1, i),
                             "(%s+%d)%%%d" % (i, r.randrange(1, 4), extent)]), False
        if not its:
            return str(r.randrange(extent)), False
        i, n = r.choice(sorted(its.items()))
        if far and r.random() < 0.5:
            return r.choice(["%s-1" % i, "%s+%d" % (i, r.randrange(3)), "2*%s-1" % i,
                             "%d-%s" % (extent // 2, i), "(%s+1)/2" % i]), True
        pairs = [(p, q) for p in its for q in its if p != q and its[p] * its[q] <= extent]
        if pairs and r.random() < 0.5:
            p, q = r.choice(pairs)
            return r.choice(["%d*%s+%s" % (its[q], p, q), "%s+%d*%s" % (p, its[p], q)]), False
        if n <= extent:
            return r.choice([i, "%s+%d" % (i, r.randrange(extent - n + 1)),
                             "%d-%s" % (extent - 1, i)]), False
        forms = ["%s%%%d" % (i, extent), "%s/%d" % (i, -(-n // extent))]
        if extent > 3 and extent % 2 == 0:
            forms.append("%s/2%%%d" % (i, extent))
        return r.choice(forms), False

    def read(self, its, pads):
        """A read of some tensor, of the latest ones mostly."""
        r = self.rng
        names = list(self.values)
        x = r.choice(names[-3:] if r.random() < 0.7 else names)
        far = r.random() < 0.15
        places, beyond = [], False
        for extent in self.values[x]:
            text, out = self.place(extent, its, far)
            places.append(text)
            beyond |= out
        if beyond:
            pads.setdefault(x, r.choice(PADS))
        return "%s[%s]" % (x, ",".join(places))

    def term(self, its, pads, depth=0):
        """An expression of some reads."""
        r = self.rng
        kind = r.random()
        if depth > 2 or kind < 0.4:
            return r.choice(FEW) % self.read(its, pads)
        a, b = (self.term(its, pads, depth + 1) for _ in range(2))
        if kind < 0.62:
            return "(%s %s %s)" % (a, r.choice("++-*"), b)
        if kind < 0.7:
            return "%s * %s" % (self.read(its, pads), self.read(its, pads))
        if kind < 0.8 and its:
            i, j = (self.place(6, its, False)[0] for _ in range(2))
            how = r.choice(["[%s <= %s] * %s", "[%s %% 2 == %s %% 2] * %s", "[%s < %s] * %s"])
            return "(%s)" % (how % (i, j, a))
        if kind < 0.88 and its:
            i, j = (self.place(6, its, False)[0] for _ in range(2))
            return "select(idx(%s) < idx(%s), %s, %s)" % (
                i, j, a, r.choice([b, "0", "0.5", "-1"]))
        if kind < 0.94:
            return "(%s / (1 + %s * %s))" % ((a,) + (self.read(its, pads),) * 2)
        square = self.read(its, pads)
        return "(%s - %s * %s)" % (a, square, square)

    # ---- statements

    def shape(self):
        r = self.rng
        if r.random() < 0.6:
            out = list(r.choice(list(self.values.values())))
            r.shuffle(out) if r.random() < 0.4 else None
            return out
        return [r.choice(SIZES) for _ in range(r.choice([0, 1, 2, 2, 3]))]

    def equation(self):
        r = self.rng
        out, pads = self.shape(), {}
        if math.prod(out) > MOST:
            return
        its = dict(zip(NAMES, out))
        kept = list(its)
        sums = [] if r.random() < 0.55 else [r.choice(SIZES) for _ in range(r.choice([1, 1, 2]))]
        its.update(zip(NAMES[len(out):], sums))
        if math.prod(its.values()) > WORK:
            return
        body = self.term(its, pads)
        if sums:
            over = ",".join(list(its)[len(out):])
            how = r.choice(["sum", "sum", "sum", "max", "min"])
            body = "%s(%s) (%s)" % (how, over, body)
            if how == "sum":
                body = "%.3g * %s" % (1 / math.sqrt(math.prod(sums)), body)
            if r.random() < 0.3:
                body += " + %s" % self.read({k: its[k] for k in kept}, pads)
        name = self.name("t")
        where = ["%s in 0:%d" % i for i in its.items()]
        where += ["pad %s %s" % p for p in sorted(pads.items())
                  if re.search(r"\b%s\[" % p[0], body)]
        self.lines.append("%s[%s] = %s%s%s" % (
            name, ",".join(kept), body, " where " * bool(where), ", ".join(where)))
        self.keep(name, out)

    def operator(self):
        r = self.rng
        x = r.choice(list(self.values)[-4:])
        shape = self.values[x]
        rank = len(shape)
        if not rank:
            return
        axis = r.randrange(rank)
        kind = r.randrange(6)
        if kind == 0:
            self.put("Softmax(%s; axis=%d)" % (x, axis), list(shape))
        elif kind == 1:
            order = r.sample(range(rank), rank)
            self.put("Transpose(%s; perm=%s)" % (x, ints(order)), [shape[k] for k in order])
        elif kind == 2:
            flat = math.prod(shape)
            d = r.choice([d for d in range(1, flat + 1) if flat % d == 0])
            self.put("Reshape(%s; shape=%s)" % (x, ints([d, flat // d])), [d, flat // d])
        elif kind == 3:
            like = [n for n, s in self.values.items() if s == shape]
            parts = [x] + [r.choice(like) for _ in range(r.choice([1, 1, 2]))]
            made = list(shape)
            made[axis] *= len(parts)
            if math.prod(made) <= MOST:
                self.put("Concat(%s; axis=%d)" % (", ".join(parts), axis), made)
        elif kind == 4:
            made = list(shape)
            made[axis] = 1
            self.put("%s(%s; axes=[%d], keepdims=1)" % (
                r.choice(["ReduceMean", "ReduceMax", "ReduceL2"]), x, axis), made)
        elif rank > 1:
            n = r.choice(SIZES)
            w = self.name("w")
            self.lines.append("weight %s: f32%s = randn(seed=%d, std=%.3g)" % (
                w, ints([shape[-1], n]), self.count, 1 / math.sqrt(shape[-1])))
            self.put("MatMul(%s, %s)" % (x, w), shape[:-1] + [n])

    def grow(self, count):
        given = set(self.values)
        for _ in range(count):
            self.equation() if self.rng.random() < 0.7 else self.operator()
        made = [n for n in self.values if n not in given]
        if not made:
            made = [self.put("Relu(x)", self.values["x"])]
        return {made[-1]} | {n for n in made if self.rng.random() < 0.25}

    def text(self, outputs):
        return self.with_outputs(outputs)
