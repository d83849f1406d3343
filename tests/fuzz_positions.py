"""Random models of equations, whose positions are digits of iterators and numbers of several, for
fuzz_models.py: other orders of what they read, and what is nearly that."""

import math

from fuzz_base import PADS, Grown, ints

UNARY = ["tanh(%s)", "sigmoid(%s)", "relu(%s)", "abs(%s)", "0.5 * %s", "%s", "%s"]
NAMES = "abcdefgh"
MOST = 700  # elements


def digit(name, step, size, extent):
    """Digit `name / step % size` of an iterator, without what changes nothing."""
    text = name if step == 1 else "%s/%d" % (name, step)
    return text if step * size >= extent else "%s%%%d" % (text, size)


class Positions(Grown):
    def __init__(self, rng):
        super().__init__(rng)
        self.take([rng.choice([2, 3, 4, 6, 8]) for _ in range(rng.choice([1, 2, 3]))])

    def factors(self, extent):
        """Sizes of digits whose product it is."""
        first = self.rng.choice([n for n in range(1, extent + 1) if extent % n == 0])
        return [n for n in (first, extent // first) if n > 1] or [1]

    def near(self, number):
        """That, or now and then another one."""
        r = self.rng
        return r.choice([number, r.choice([2, 3, 4, 6, 8])]) if r.random() < 0.12 else number

    def order(self, shape):
        """The shape of a tensor and where it reads one of `shape`: every element of that once, or
        nearly so; the parts are (iterator, step, size, weight)."""
        r = self.rng
        digits = []
        for axis, extent in enumerate(shape):
            weight = 1
            for size in self.factors(extent):
                digits.append((axis, weight, size))
                weight *= size
        r.shuffle(digits)
        while len(digits) > 5 or (len(digits) > 1 and r.random() < 0.2):
            digits.pop()  # what it says is 0 then
        out, parts = [], [[] for _ in shape]
        while digits:
            n, extent = r.choice([1, 1, 2, 3]), 1
            for axis, weight, size in digits[:n]:
                size = self.near(size)
                parts[axis].append((len(out), self.near(extent), size, self.near(weight)))
                extent *= size
            digits = digits[n:]
            out.append(extent)
        return out, parts

    def inside(self, parts, shape, out):
        """The subscripts, whether all that they say is inside `shape`; None: far outside."""
        texts, pad = [], False
        for part, extent in zip(parts, shape):
            terms = [digit(NAMES[i], step, size, out[i]) for i, step, size, _ in part]
            most = sum(w * (min(size, -(-out[i] // step)) - 1) for i, step, size, w in part)
            if most > 3 * extent:
                return None, False
            pad |= most >= extent
            weights = [w for _, _, _, w in part]
            texts.append("+".join(t if w == 1 else "%d*(%s)" % (w, t) if not t.isalnum()
                                  else "%d*%s" % (w, t) for t, w in zip(terms, weights)) or "0")
        return "[%s]" % ",".join(texts), pad

    def equation(self, out, body, pads):
        name = self.name("t")
        where = ["%s in 0:%d" % (NAMES[i], n) for i, n in enumerate(out)]
        where += ["pad %s %s" % (p, self.rng.choice(PADS)) for p in sorted(set(pads))]
        self.lines.append("%s[%s] = %s where %s" % (
            name, ",".join(NAMES[:len(out)]), body, ", ".join(where)))
        return self.keep(name, list(out))

    def statement(self):
        r = self.rng
        x = r.choice(list(self.values)[-3:])
        shape = self.values[x]
        out, parts = self.order(shape)
        at, pad = self.inside(parts, shape, out)
        if at is None or math.prod(out) > MOST:
            return
        pads = [x] if pad else []
        read = x + at
        if r.random() < 0.45:  # a product with weights, over one axis
            k = r.randrange(len(shape))
            own = ",".join("k" if i == k else s for i, s in enumerate(at[1:-1].split(",")))
            lane = r.randrange(len(out))
            w = self.name("w")
            self.lines.append("weight %s: f32%s = randn(seed=%d, std=%.3g)" % (
                w, ints([shape[k], out[lane]]), self.count, 1 / math.sqrt(shape[k])))
            read = "sum(k) %s * %s[k,%s]" % (r.choice(["%s", "%s", "sigmoid(%s)"]) % (
                "%s[%s]" % (x, own)), w, NAMES[lane])
            self.equation(out, read, pads)
            return
        body = r.choice(UNARY) % read
        same = [n for n, s in self.values.items() if s == out]
        if same and r.random() < 0.5:
            body += " + %s[%s]" % (r.choice(same), ",".join(NAMES[:len(out)]))
        self.equation(out, body, pads)

    def grow(self, count):
        for _ in range(count):
            self.statement()
        if len(self.values) == 1:
            self.equation(self.values["x"], "tanh(x[%s])" % ",".join(
                NAMES[:len(self.values["x"])]), [])
        names = list(self.values)[1:]
        return {names[-1]} | {n for n in names if self.rng.random() < 0.2}

    def text(self, outputs):
        return self.with_outputs(outputs)
