"""Random models of sequences: projections, attention, norms, gates, lookups, in the spellings that
exporters use and as equations."""

from fuzz_base import Grown, ints

ACTIVATIONS = ["Relu(%s)", "Gelu(%s)", "Gelu(%s; approximate=tanh)", "Tanh(%s)", "Sigmoid(%s)",
               "LeakyRelu(%s; alpha=0.1)", "Softplus(%s)", "Elu(%s)"]


class Sequences(Grown):
    """Shapes are batch, length, width."""

    def __init__(self, rng):
        super().__init__(rng, rng.choice(["f32"] * 8 + ["f16"] * 2))
        r = rng
        self.batch = r.choice([1, 1, 2, 3])
        self.length = r.choice([1, 3, 7, 8, 16, 17, 33])
        self.heads = r.choice([1, 2, 3, 4])
        self.depth = r.choice([2, 4, 8, 8, 10, 16, 32])
        self.width = self.heads * self.depth
        if r.random() < 0.3:
            self.lines.append("input ids: i64[%d,%d]" % (self.batch, self.length))
            table = self.weight([r.choice([4, 11]), self.width], 1)
            self.put("Gather(%s, ids)" % table, [self.batch, self.length, self.width])
        else:
            self.take([self.batch, self.length, self.width])
        self.first = list(self.values)[0]

    def weight(self, shape, std=None):
        name = self.name("w")
        if std is None:
            std = 1 / max(1, shape[-2] if len(shape) > 1 else 1) ** 0.5
        self.lines.append("weight %s: %s%s = randn(seed=%d, std=%.3g)" % (
            name, self.dtype, ints(shape), self.count, std))
        return name

    def near_one(self, shape):
        name = self.name("g")
        self.lines.append("weight %s: %s%s = uniform(seed=%d, lo=0.5, hi=1.5)" % (
            name, self.dtype, ints(shape), self.count))
        return name

    def define(self, left, right):
        name = self.name("u")
        self.lines.append("%s[%s] = %s" % (name, left, right))
        # What an equation gives is f32.
        return name if self.dtype == "f32" else self.let("Cast(%s; to=%s)" % (name, self.dtype))

    # ---- projections

    def project(self, x, width, bias=None):
        """x times a weight, in one of the ways to say so."""
        r = self.rng
        d = self.values[x][2]
        kind = r.randrange(5)
        if kind == 0:
            w = self.weight([width, d], d ** -0.5)
            y = self.define("b,i,f", "sum(k) %s[b,i,k] * %s[f,k]" % (x, w))
        elif kind == 1:
            b, s, _ = self.values[x]
            flat = self.let("Reshape(%s; shape=[%d,%d])" % (x, b * s, d))
            w, c = self.weight([width, d], d ** -0.5), self.weight([width], 0.2)
            y = self.let("Gemm(%s, %s, %s; transB=1)" % (flat, w, c))
            return self.let("Reshape(%s; shape=[%d,%d,%d])" % (y, b, s, width))
        else:
            y = self.let("MatMul(%s, %s)" % (x, self.weight([d, width])))
        if bias if bias is not None else r.random() < 0.5:
            c = self.weight([width], 0.2)
            y = self.let("Add(%s, %s)" % ((y, c) if r.random() < 0.5 else (c, y)))
        return y

    def linear(self, x):
        b, s, d = self.values[x]
        f = self.rng.choice([d, d, 5, 12, 16, 40])
        y = self.project(x, f)
        if self.rng.random() < 0.5:
            y = self.let(self.rng.choice(ACTIVATIONS) % y)
        return self.keep(y, [b, s, f])

    def silu(self, x):
        kind = self.rng.randrange(3)
        if kind == 0:
            return self.let("Mul(%s, %s)" % (x, self.let("Sigmoid(%s)" % x)))
        if kind == 1:
            return self.define("b,i,f", "%s[b,i,f] / (1 + exp(-%s[b,i,f]))" % (x, x))
        return self.let("HardSwish(%s)" % x)

    def gated(self, x):
        b, s, d = self.values[x]
        f = self.rng.choice([8, 12, 33])
        if self.rng.random() < 0.5:
            g, u = self.project(x, f, False), self.project(x, f, False)
        else:
            both = self.project(x, 2 * f)
            g, u = self.name("u"), self.name("u")
            self.lines.append("%s, %s = Split(%s; axis=-1, num_outputs=2)" % (g, u, both))
        h = self.let("Mul(%s, %s)" % (self.silu(g), u))
        self.values[h] = [b, s, f]
        y = self.project(h, d)
        del self.values[h]
        if self.rng.random() < 0.6:
            y = self.let("Add(%s, %s)" % (x, y))
        return self.keep(y, [b, s, d])

    # ---- rows

    def norm(self, x):
        b, s, d = shape = self.values[x]
        r = self.rng
        kind = r.randrange(6)
        g, c = self.near_one([d]), self.weight([d], 0.3)
        if kind == 0:
            y = self.let("LayerNormalization(%s, %s, %s; axis=-1)" % (x, g, c))
        elif kind == 1:
            m = self.let("ReduceMean(%s; axes=-1)" % x)
            z = self.let("Sub(%s, %s)" % (x, m))
            q = self.let("ReduceMean(%s; axes=-1)" % self.let("Mul(%s, %s)" % (z, z)))
            q = self.let("Sqrt(%s)" % self.define("b,i,k", "%s[b,i,k] + 1e-3" % q))
            y = self.let("Add(%s, %s)" % (
                self.let("Mul(%s, %s)" % (self.let("Div(%s, %s)" % (z, q)), g)), c))
        elif kind == 2:
            a = self.define("b,i", "sum(k) %s[b,i,k] * %s[b,i,k]" % (x, x))
            y = self.define("b,i,k", "%s[b,i,k] / sqrt(%s[b,i] / %d + 1e-3) * %s[k]" % (x, a, d, g))
        elif kind == 3:
            a = self.define("b,i", "sum(k) %s[b,i,k] * %s[b,i,k]" % (x, x))
            y = self.define("b,i,k", "%s[b,i,k] / sqrt(%s[b,i] + 1e-3)" % (x, a))
        elif kind == 4:
            y = self.let("Softmax(%s; axis=%d)" % (x, r.choice([-1, -1, 1])))
        else:
            y = self.let("LogSoftmax(%s; axis=-1)" % x)
        return self.keep(y, list(shape))

    def residual(self, x):
        shape = self.values[x]
        others = [n for n, s in self.values.items() if s == shape]
        other = self.rng.choice(others[-4:])
        return self.put("%s(%s, %s)" % (self.rng.choice(["Add", "Add", "Sub"]), x, other),
                        list(shape))

    def act(self, x):
        return self.put(self.rng.choice(ACTIVATIONS) % x, list(self.values[x]))

    # ---- attention

    def rotary(self, x, s, p):
        """x[b,h,i,p] turned."""
        cs, sn = self.weight([s, p], 0.7), self.weight([s, p], 0.7)
        kind = self.rng.randrange(3)
        if kind == 0:
            a, b = self.name("u"), self.name("u")
            self.lines.append("%s, %s = Split(%s; axis=-1, num_outputs=2)" % (a, b, x))
            z = self.let("Concat(%s, %s; axis=-1)" % (self.let("Neg(%s)" % b), a))
            return self.let("Add(%s, %s)" % (self.let("Mul(%s, %s)" % (x, cs)),
                                             self.let("Mul(%s, %s)" % (z, sn))))
        if kind == 1:
            return self.define(
                "b,h,i,p", "%s[b,h,i,p] * %s[i,p] + (2 * idx(p%%2) - 1) * %s[b,h,i,p+1-2*(p%%2)] * "
                "%s[i,p]" % (x, cs, x, sn))
        return self.let("Mul(%s, %s)" % (x, cs))

    def split_heads(self, q, b, s, h, p):
        y = self.let("Reshape(%s; shape=[%d,%d,%d,%d])" % (q, b, s, h, p))
        return self.let("Transpose(%s; perm=[0,2,1,3])" % y)

    def scores(self, q, k, s, t, h, group, p):
        r = self.rng
        scale = "%.4f" % (p ** -0.5)
        kind = r.randrange(4)
        if kind == 0 or group > 1:
            head = "h/%d" % group if group > 1 else "h"
            a = self.define("b,h,i,j", "%s * (sum(p) %s[b,h,i,p] * %s[b,%s,j,p])" % (
                scale, q, k, head))
        else:
            f = self.let("Transpose(%s; perm=[0,1,3,2])" % k)
            if kind == 1:
                q = self.define("b,h,i,p", "%s[b,h,i,p] * %s" % (q, scale))
            a = self.let("MatMul(%s, %s)" % (q, f))
            if kind == 2:
                c = self.name("g")
                self.lines.append("weight %s: %s[] = uniform(lo=%s, hi=%s)" % (
                    c, self.dtype, scale, scale))
                a = self.let("Mul(%s, %s)" % (a, c))
            elif kind == 3:
                a = self.define("b,h,i,j", "%s[b,h,i,j] / %.3f" % (a, p ** 0.5))
        if r.random() < 0.2:
            a = self.define("b,h,i,j", "%s[b,h,i,j] + %s[i,h] - %s[j]" % (
                a, self.weight([s, h], 0.3), self.weight([t], 0.3)))
        mask = r.randrange(8)
        if mask == 0 and s == t:
            a = self.define("b,h,i,j", "select(idx(j) <= idx(i), %s[b,h,i,j], %s)" % (
                a, r.choice(["-1e9", "-3.4028234e38", "-10000"])))
        elif mask == 1:
            a = self.let("Add(%s, %s)" % (a, self.weight([s, t], 0.5)))
        elif mask == 2 and s == t:
            a = self.define("b,h,i,j", "%s[b,h,i,j] + select(idx(j) <= idx(i), 0, -1e4)" % a)
        elif mask == 3 and s == t:
            w = r.choice([2, 5])
            a = self.define(
                "b,h,i,j", "select(idx(j) <= idx(i), select(idx(i) < idx(j) + %d, %s[b,h,i,j], "
                "-1e9), -1e9)" % (w, a))
        elif mask == 4:
            hidden = r.choice(["idx(j) <= %d*idx(i)+3" % r.choice([2, 1000000, 50000000]),
                               "idx(j) >= idx(2*i-%d)" % s, "idx(j) < idx(i) - 1",
                               "idx(j)+1000 > idx(i)", "idx(j) >= %d" % (t // 2)])
            a = self.define("b,h,i,j", "select(%s, %s[b,h,i,j], -1e9)" % (hidden, a))
        return a

    def attention(self, x):
        b, s, d = shape = self.values[x]
        r = self.rng
        h, p = self.heads, self.depth
        group = r.choice([g for g in (1, 1, 1, 2, 3, 4) if h % g == 0])
        other = x
        if r.random() < 0.2:
            others = [n for n, z in self.values.items() if z[0] == b and z[1] <= 64]
            other = r.choice(others)
        t = self.values[other][1]
        if group == 1 and other == x and r.random() < 0.4:
            z = self.project(x, 3 * h * p)
            if r.random() < 0.5:
                names = [self.name("u") for _ in range(3)]
                self.lines.append("%s = Split(%s; axis=-1, num_outputs=3)" % (", ".join(names), z))
                q, k, v = (self.split_heads(n, b, s, h, p) for n in names)
            else:
                y = self.let("Reshape(%s; shape=[%d,%d,3,%d,%d])" % (z, b, s, h, p))
                q, k, v = (self.define("b,h,i,p", "%s[b,i,%d,h,p]" % (y, i)) for i in range(3))
        else:
            q = self.split_heads(self.project(x, h * p), b, s, h, p)
            k = self.split_heads(self.project(other, h // group * p), b, t, h // group, p)
            v = self.split_heads(self.project(other, h // group * p), b, t, h // group, p)
        if p % 2 == 0 and r.random() < 0.4:
            q = self.rotary(q, s, p)
            k = self.rotary(k, t, p)
        a = self.scores(q, k, s, t, h, group, p)
        a = self.let("Softmax(%s; axis=-1)" % a)
        if group > 1:
            o = self.define("b,h,i,p", "sum(j) %s[b,h,i,j] * %s[b,h/%d,j,p]" % (a, v, group))
        else:
            o = self.let("MatMul(%s, %s)" % (a, v))
        o = self.let("Transpose(%s; perm=[0,2,1,3])" % o)
        o = self.let("Reshape(%s; shape=[%d,%d,%d])" % (o, b, s, h * p))
        self.values[o] = [b, s, h * p]
        if r.random() < 0.6:
            y = self.project(o, d)
            del self.values[o]
            if r.random() < 0.6:
                y = self.let("Add(%s, %s)" % (y, x))
            return self.keep(y, list(shape))
        return o

    # ---- along the sequence

    def along(self, x):
        b, s, d = self.values[x]
        r = self.rng
        kind = r.randrange(7)
        if kind == 0:
            t = self.let("Transpose(%s; perm=[0,2,1])" % x)
            group, k = r.choice([1, d]), r.choice([1, 2, 3])
            pads = r.choice([[k - 1, 0], [k // 2, (k - 1) // 2]])
            w = self.weight([d, d // group, k], (k * d / group) ** -0.5)
            c = self.let("Conv(%s, %s; pads=%s, group=%d)" % (t, w, pads, group))
            return self.put("Transpose(%s; perm=[0,2,1])" % c, [b, s, d])
        if kind == 1:
            y = self.define("b,d", "(sum(i) %s[b,i,d]) / %d" % (x, s))
            return self.keep(self.define("b,i,d", "%s[b,i,d] * %s[b,d]" % (x, y)), [b, s, d])
        if kind == 2:
            return self.put("CumSum(%s; axis=1, exclusive=%d, reverse=%d)" % (
                x, r.choice([0, 0, 1]), r.choice([0, 0, 1])), [b, s, d])
        if kind == 3:
            y = self.let("ReduceMax(%s; axes=1)" % x)
            return self.put("Sub(%s, %s)" % (x, y), [b, s, d])
        if kind == 4 and s > 1:
            t = r.randrange(1, s)
            return self.put("Slice(%s; starts=[%d], ends=[%d], axes=[1])" % (x, t, s),
                            [b, s - t, d])
        if kind == 5:
            w = self.weight([3, d], 0.6)
            return self.keep(self.define(
                "b,i,d", "sum(k) %s[b,i+k-2,d] * %s[k,d] where i in 0:%d, k in 0:3, pad %s 0" % (
                    x, w, s, x)), [b, s, d])
        gate = self.let("Sigmoid(%s)" % self.project(x, d))
        return self.keep(self.define("b,i,d", "%s[b,i,d] * %s[b,%d-i,d]" % (x, gate, s - 1)),
                         [b, s, d])

    def shape(self, x):
        b, s, d = self.values[x]
        r = self.rng
        kind = r.randrange(6)
        if kind == 0 and s * d < 600:
            return self.put("Transpose(%s; perm=[0,2,1])" % x, [b, d, s])
        if kind == 1:
            others = [n for n, z in self.values.items() if z[:2] == [b, s] and z[2] + d < 90]
            if others:
                o = r.choice(others)
                return self.put("Concat(%s, %s; axis=2)" % (x, o), [b, s, d + self.values[o][2]])
        if kind == 2:
            others = [n for n, z in self.values.items() if z[0] == b and z[2] == d]
            o = r.choice(others)
            if s + self.values[o][1] < 70:
                return self.put("Concat(%s, %s; axis=1)" % (x, o), [b, s + self.values[o][1], d])
        if kind == 3 and d % 2 == 0:
            a, c = self.name("t"), self.name("t")
            self.lines.append("%s, %s = Split(%s; axis=-1, num_outputs=2)" % (a, c, x))
            self.values[a] = self.values[c] = [b, s, d // 2]
            return r.choice([a, c])
        if kind == 4 and s % 2 == 0:
            return self.put("Reshape(%s; shape=[%d,%d,%d])" % (x, b, s // 2, 2 * d),
                            [b, s // 2, 2 * d]) if d < 50 else None
        if kind == 5:
            return self.put("Slice(%s; starts=[0], ends=[1], axes=[1])" % x, [b, 1, d])
        return None

    def pair(self, x):
        """A product of two things computed."""
        b, s, d = self.values[x]
        r = self.rng
        others = [n for n, z in self.values.items() if z[0] == b and z[2] == d and z[1] < 99]
        o = r.choice(others)
        t = self.values[o][1]
        scale = "%.3f" % (1.0 / d)
        a = self.define("b,i,j", "%s * (sum(k) %s[b,i,k] * %s[b,j,k])" % (scale, x, o))
        if r.random() < 0.5:
            a = self.let("Relu(%s)" % a)
        if r.random() < 0.5:
            return self.keep(a, [b, s, t])
        return self.keep(self.define("b,i,d", "sum(j) %s[b,i,j] * %s[b,j,d]" % (a, o)), [b, s, d])

    def experts(self, x):
        """Weights of experts, all computed; a gate by softmax."""
        b, s, d = self.values[x]
        e, f = self.rng.choice([2, 3]), self.rng.choice([6, 8])
        g = self.let("Softmax(%s; axis=-1)" % self.project(x, e))
        w, v = self.weight([e, d, f], d ** -0.5), self.weight([e, f, d], f ** -0.5)
        h = self.define("e,b,i,f", "relu(sum(k) %s[b,i,k] * %s[e,k,f])" % (x, w))
        y = self.define("e,b,i,d", "sum(f) %s[e,b,i,f] * %s[e,f,d]" % (h, v))
        return self.keep(self.define("b,i,d", "sum(e) %s[b,i,e] * %s[e,b,i,d]" % (g, y)), [b, s, d])

    def lookup(self, x):
        b, s, d = self.values[x]
        r = self.rng
        t = r.choice([1, 2, 5])
        if s == 1:
            return None
        at = self.name("p")
        self.lines.append("weight %s: i64[%d] = uniform(seed=%d, lo=0, hi=%d)" % (
            at, t, self.count, s - 1))
        if r.random() < 0.5:
            return self.put("Gather(%s, %s; axis=1)" % (x, at), [b, t, d])
        return self.keep(self.define("b,i,d", "%s[b,@%s[i],d]" % (x, at)), [b, t, d])

    def choose(self, x):
        """Values at places that tensors of integers and truths say."""
        b, s, d = self.values[x]
        r = self.rng
        kind = r.randrange(4)
        if kind == 0:
            at = self.let("ArgMax(%s; axis=2, keepdims=0)" % self.first, "p")
            n = self.values[self.first][2]
            if self.values[self.first][:2] != [b, s]:
                return None
            table = self.weight([n, d], 0.5)
            return self.keep(self.define("b,i,d", "%s[b,i,d] + %s[@%s[b,i],d]" % (x, table, at)),
                             [b, s, d])
        if kind == 1:
            mask = self.name("m")
            self.lines.append("weight %s: bool[%d,1] = uniform(seed=%d, lo=0, hi=1)" % (
                mask, s, self.count))
            return self.put("Where(%s, %s, %s)" % (mask, x, self.weight([d], 0.5)), [b, s, d])
        if kind == 2:
            y = self.let("Expand(%s; shape=[2,%d,%d,%d])" % (x, b, s, d))
            return self.keep(self.define("b,i,d", "%s[0,b,i,d] + %s[1,b,%d-i,d]" % (y, y, s - 1)),
                             [b, s, d])
        if 2 * s > 70:
            return None
        y = self.put("Tile(%s; repeats=[1,2,1])" % x, [b, 2 * s, d])
        return y

    def grow(self, steps):
        r = self.rng
        makers = [self.linear, self.linear, self.linear, self.gated, self.norm, self.norm,
                  self.norm, self.residual, self.residual, self.act, self.attention,
                  self.attention, self.along, self.along, self.shape, self.shape, self.pair,
                  self.experts, self.lookup, self.choose, self.choose]
        last = self.first
        for _ in range(steps):
            x = last if r.random() < 0.75 else r.choice(list(self.values)[-4:])
            made = r.choice(makers)(x)
            last = made or last
        return last

    def text(self, last):
        if last == self.first:
            last = self.put("Relu(%s)" % last, list(self.values[last]))
        outputs = {last}
        if self.rng.random() < 0.4:
            extra = self.rng.choice(list(self.values)[-4:])
            if extra != "x":
                outputs.add(extra)
        return self.with_outputs(outputs)
