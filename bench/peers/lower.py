"""Runs a graph's nodes through an array library.

`ops` is the library (TorchOps, JaxOps, the tests' NumpyOps): it holds arrays and does what array
libraries do. Operators map one to one. Equations are read as the calls that a person would write:
convolutions, banded products (by blocks of rows, as chunked sliding-window attention does), sums of
products, slices, reshapes; what is none of these is gathered by a table of positions.
"""

import math

import numpy as np

from graph import Unsupported

GATHER_LIMIT = 1 << 28      # elements of a gathered array
BAND_ROWS = 512             # rows of a block of a banded product


def affine(e):
    """(constant, {name: factor}) of a subscript, None when it divides."""
    kind = e[0]
    if kind == "i":
        return e[1], {}
    if kind == "v":
        return 0, {e[1]: 1}
    if kind == "neg":
        inner = affine(e[1])
        return None if inner is None else combine((0, {}), inner, -1)
    if kind in "/%":
        return None
    a, b = affine(e[1]), affine(e[2])
    if a is None or b is None:
        return None
    if kind == "*":
        if a[1] and b[1]:
            return None
        a, b = (a, b) if not b[1] else (b, a)
        return combine((0, {}), a, b[0])
    return combine(a, b, -1 if kind == "-" else 1)


def combine(a, b, factor):
    terms = dict(a[1])
    for name, k in b[1].items():
        terms[name] = terms.get(name, 0) + factor * k
    return a[0] + factor * b[0], {n: k for n, k in terms.items() if k}


def position(e, at):
    """A subscript's values; `at(name)` gives an index's, ready to broadcast."""
    kind = e[0]
    if kind == "i":
        return np.int64(e[1])
    if kind == "v":
        return at(e[1])
    if kind == "neg":
        return -position(e[1], at)
    function = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide,
                "%": np.mod}[kind]
    return function(position(e[1], at), position(e[2], at))


def names_in(e):
    if e[0] == "v":
        return {e[1]}
    if e[0] == "i":
        return set()
    return names_in(e[1]) if e[0] == "neg" else names_in(e[1]) | names_in(e[2])


COMPARE = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
           ">": np.greater, ">=": np.greater_equal}


class Equation:
    """One equation. A value is (names, array): one axis a name, in the order of `self.order`."""

    def __init__(self, run, node):
        self.run = run
        self.ops = run.ops
        self.node = node
        self.range = {}
        self.order = []
        for r in node.indices:
            self.declare(r)

    def declare(self, r):
        self.range[r[0]] = (r[1], r[2])
        if r[0] in self.order:
            self.order.remove(r[0])
        self.order.append(r[0])

    def size(self, name):
        lo, hi = self.range[name]
        return hi - lo

    def sizes(self, names):
        return [self.size(n) for n in names]

    def sort(self, names):
        return tuple(sorted(set(names), key=self.order.index))

    def result(self):
        names = tuple(n for n, _, _ in self.node.indices)
        value = self.value(self.node.body)
        array = self.spread(value, names)
        return self.ops.expand(array, self.sizes(names))

    def spread(self, value, names):
        """The array with the axes `names`, of length 1 where the value has none."""
        own, array = value
        if own == names:
            return array
        order = [n for n in names if n in own]
        if tuple(order) != own:
            array = self.ops.permute(array, [own.index(n) for n in order])
        return self.ops.reshape(array, [self.size(n) if n in own else 1 for n in names])

    # ---- values

    def value(self, e):
        return getattr(self, "on_" + e[0])(e)

    def on_num(self, e):
        return (), float(e[1])

    def on_neg(self, e):
        names, a = self.value(e[1])
        return names, self.ops.unary("neg", a)

    def table(self, names, function):
        """A constant array over `names`."""
        names = self.sort(names)

        def at(name):
            lo, hi = self.range[name]
            shape = [1] * len(names)
            shape[names.index(name)] = -1
            return np.arange(lo, hi, dtype=np.int64).reshape(shape)
        return names, np.broadcast_to(function(at), self.sizes(names))

    def on_guard(self, e):
        names, mask = self.table(names_in(e[2]) | names_in(e[3]), lambda at: COMPARE[e[1]](
            position(e[2], at), position(e[3], at)))
        return names, self.ops.const(mask.astype(np.float64))

    def on_idx(self, e):
        names, values = self.table(names_in(e[1]), lambda at: position(e[1], at))
        return names, self.ops.const(values.astype(np.float64))

    def together(self, values):
        names = self.sort([n for v in values for n in v[0]])
        return names, [v[1] if isinstance(v[1], float) else self.spread(v, names) for v in values]

    def chain(self, function, a, b):
        names, arrays = self.together([a, b])
        return names, self.ops.binary(function, *arrays)

    def on_expr(self, e):
        total = None
        for op, x in e[1]:
            v = self.value(x)
            if total is None:
                total = v if op == "+" else (v[0], self.ops.unary("neg", v[1]))
            else:
                total = self.chain("add" if op == "+" else "sub", total, v)
        return total

    def on_term(self, e):
        total = None
        for op, x in e[1]:
            v = self.value(x)
            if total is None and op == "*":
                total = v
            else:
                total = self.chain("mul" if op == "*" else "div", total or ((), 1.0), v)
        return total

    def on_call(self, e):
        args = [self.value(x) for x in e[2]]
        if len(args) == 1:
            return args[0][0], self.ops.unary(e[1], args[0][1])
        return self.chain(e[1], *args)

    def on_select(self, e):
        parts = [self.value(x) for x in e[2:]]
        names, (a, b, x, y) = self.together(parts)
        return names, self.ops.where(self.ops.compare(e[1], a, b), x, y)

    def on_reduce(self, e):
        outer = dict(self.range), list(self.order)
        for r in e[2]:
            self.declare(r)
        summed = [r[0] for r in e[2]]
        if e[1] == "sum":
            names, array = self.sum_of(e[3], summed)
        else:
            names, array = self.value(e[3])
            axes = [i for i, n in enumerate(names) if n in summed]
            if e[1] == "prod" and len(axes) < len(summed):
                raise Unsupported("a product over an index that it does not use")
            if axes:
                array = self.ops.reduce(e[1], array, axes, False)
            names = tuple(n for n in names if n not in summed)
        self.range, self.order = outer
        value = names, array
        return self.sort(names), self.spread(value, self.sort(names))

    # ---- reads

    def on_read(self, e):
        name, subs = e[1], e[2]
        if any(s[0] == "at" for s in subs):
            raise Unsupported("a read at a computed position")
        names = self.sort([n for s in subs for n in names_in(s)])
        if name in self.run.graph.values:
            return names, self.ops.const(self.gathered(e, names))
        for way in (self.plain_read, self.split_read, self.merged_read):
            found = way(name, subs)
            if found is not None:
                return found[0], found[1]
        return names, self.gather(e, names)

    def offset(self, name, axis):
        return self.run.graph.tensors[name].lo[axis]

    def box(self, array, name, forms):
        """The array with every axis cut or padded to its (first, last + 1, step)."""
        shape = self.run.graph.shape(name)
        pads, cuts = [], []
        for n, (first, stop, step) in zip(shape, forms):
            low = max(0, -first)
            high = max(0, stop - n)
            pads.append((low, high))
            cuts.append((first + low, stop + low, step))
        if any(p != (0, 0) for p in pads):
            array = self.ops.pad(array, pads, self.node.pads.get(name, 0.0))
        if any(c != (0, n + p + q, 1) for c, n, (p, q) in zip(cuts, shape, pads)):
            array = self.ops.slice(array, cuts)
        return array

    def plain_read(self, name, subs):
        """Every axis a constant or k * index + c, k > 0, every index once: a slice."""
        forms, names = [], []
        for axis, s in enumerate(subs):
            form = affine(s)
            if form is None or len(form[1]) > 1 or any(k < 1 for k in form[1].values()):
                return None
            first, step, count = form[0] - self.offset(name, axis), 1, 1
            for index, k in form[1].items():
                first, step, count = first + k * self.range[index][0], k, self.size(index)
                names.append(index)
            forms.append((first, first + step * (count - 1) + 1, step))
        if len(set(names)) != len(names):
            return None
        array = self.box(self.run.array(name), name, forms)
        array = self.ops.reshape(array, self.sizes(names))
        return self.ordered(names, array)

    def ordered(self, names, array):
        wanted = self.sort(names)
        if tuple(names) != wanted:
            array = self.ops.permute(array, [names.index(n) for n in wanted])
        return wanted, array

    def split_read(self, name, subs):
        """As a plain read, but an axis may be the digits h * 16 + p of several indices."""
        names = []
        for axis, s in enumerate(subs):
            form = affine(s)
            if form is None or form[0] != self.offset(name, axis):
                return None
            digits = sorted(form[1].items(), key=lambda item: -item[1])
            weight = self.run.graph.shape(name)[axis]
            for index, k in digits:
                if self.range[index][0] != 0 or k * self.size(index) != weight:
                    return None
                weight = k
            if weight != 1:
                return None
            names += [index for index, _ in digits]
        if len(set(names)) != len(names):
            return None
        return self.ordered(names, self.ops.reshape(self.run.array(name), self.sizes(names)))

    def merged_read(self, name, subs):
        """Axes e / 16 and e % 16 of one index e, the others plain: axes moved together."""
        shape = self.run.graph.shape(name)
        plain, digits = {}, {}
        for axis, s in enumerate(subs):
            if self.offset(name, axis):
                return None
            if s[0] == "v":
                plain[s[1]] = axis
            elif s[0] in "/%" and s[1][0] == "v" and s[2][0] == "i":
                digits.setdefault(s[1][1], {})[s[0]] = (axis, s[2][1])
            else:
                return None
        order, names = [], []
        for n, axis in plain.items():
            if n in digits or self.range[n] != (0, shape[axis]):
                return None
            order.append(axis)
            names.append(n)
        for n, both in digits.items():
            if set(both) != {"/", "%"} or both["/"][1] != both["%"][1] or \
                    shape[both["%"][0]] != both["%"][1] or \
                    self.range[n] != (0, shape[both["/"][0]] * both["%"][1]):
                return None
            order += [both["/"][0], both["%"][0]]
            names.append(n)
        if sorted(order) != list(range(len(subs))):
            return None
        at = sorted(range(len(names)), key=lambda i: self.order.index(names[i]))
        where = {n: [plain[n]] if n in plain else [digits[n]["/"][0], digits[n]["%"][0]]
                 for n in names}
        wanted = [names[i] for i in at]
        array = self.ops.permute(self.run.array(name), [a for n in wanted for a in where[n]])
        return tuple(wanted), self.ops.reshape(array, self.sizes(wanted))

    def flat_positions(self, e, names):
        """Positions in the flat tensor, and which of them lie inside."""
        shape = self.run.graph.shape(e[1])
        if math.prod(self.sizes(names)) > GATHER_LIMIT:
            raise Unsupported("%s: a gather of %d elements" % (
                e[1], math.prod(self.sizes(names))))
        inside = None

        def flat(at):
            nonlocal inside
            total, inside = np.int64(0), np.bool_(True)
            for axis, (n, s) in enumerate(zip(shape, e[2])):
                p = position(s, at) - self.offset(e[1], axis)
                inside = inside & (p >= 0) & (p < n)
                total = total * n + np.clip(p, 0, n - 1)
            return total
        _, positions = self.table(names, flat)
        return positions, np.broadcast_to(inside, positions.shape)

    def gathered(self, e, names):
        values = np.asarray(self.run.graph.values[e[1]])
        positions, inside = self.flat_positions(e, names)
        return np.where(inside, values.reshape(-1)[positions], self.node.pads.get(e[1], 0.0))

    def gather(self, e, names):
        positions, inside = self.flat_positions(e, names)
        shape = self.run.graph.shape(e[1])
        flat = self.ops.reshape(self.run.array(e[1]), [math.prod(shape)])
        array = self.ops.take(flat, positions)
        if inside.all():
            return array
        return self.ops.where(self.ops.const(inside), array, self.node.pads.get(e[1], 0.0))

    # ---- sums of products

    def sum_of(self, e, summed):
        factors, scale = [], 1.0
        todo = [e]
        while todo:
            x = todo.pop(0)
            if x[0] == "term" and all(op == "*" for op, _ in x[1]):
                todo = [y for _, y in x[1]] + todo
            elif x[0] == "num":
                scale *= x[1]
            else:
                factors.append(x)
        names, array = self.product(factors, summed)
        missing = [n for n in summed if not any(n in self.uses(f) for f in factors)]
        scale *= math.prod(self.sizes(missing))
        return names, array if scale == 1.0 else self.ops.binary("mul", array, scale)

    def uses(self, e):
        if e[0] == "read":
            return set().union(*(names_in(s) for s in e[2]))
        if e[0] in ("guard", "idx"):
            return set().union(*(names_in(x) for x in e[1:] if isinstance(x, tuple)))
        if e[0] in ("expr", "term"):
            return set().union(*(self.uses(x) for _, x in e[1]))
        if e[0] == "reduce":
            return self.uses(e[3]) - {n for n, _, _ in e[2]}
        parts = e[2] if e[0] == "call" else [x for x in e[1:] if isinstance(x, tuple)]
        return set().union(*(self.uses(x) for x in parts), ())

    def product(self, factors, summed):
        reads = len(factors) == 2 and all(f[0] == "read" for f in factors)
        if reads:
            for a, b in (factors, factors[::-1]):
                for way in (self.convolution, self.band):
                    found = way(a, b, summed)
                    if found is not None:
                        return found
        values = [self.value(f) for f in factors]
        gone = set(summed)
        names = self.sort([n for v in values for n in v[0] if n not in gone])
        if len(values) == 1:
            axes = [i for i, n in enumerate(values[0][0]) if n in gone]
            array = values[0][1]
            return names, self.ops.reduce("sum", array, axes, False) if axes else array
        letters = {n: chr(ord("a") + i) for i, n in enumerate(self.order)}
        text = ",".join("".join(letters[n] for n in v[0]) for v in values)
        text += "->" + "".join(letters[n] for n in names)
        return names, self.ops.einsum(text, [v[1] for v in values])

    def window(self, e, inner, outer):
        """Axes of a read as plain names or (outer, inner, stride, dilation, constant)."""
        found = []
        for axis, s in enumerate(e[2]):
            form = affine(s)
            if form is None or any(k < 1 for k in form[1].values()):
                return None
            c = form[0] - self.offset(e[1], axis)
            if s[0] == "v" and c == 0 and self.range[s[1]] == (0, self.run.graph.shape(e[1])[axis]):
                found.append(s[1])
                continue
            ins = [n for n in form[1] if n in inner]
            outs = [n for n in form[1] if n in outer]
            if len(form[1]) != 2 or len(ins) != 1 or len(outs) != 1 or \
                    any(self.range[n][0] for n in form[1]):
                return None
            found.append((outs[0], ins[0], form[1][outs[0]], form[1][ins[0]], c))
        return found

    def convolution(self, data, kernel, summed):
        """sum of data[n, c, o * stride + r * dilation - p] * kernel[f, c, r]."""
        k_names = [s[1] for s in kernel[2] if s[0] == "v"]
        if len(k_names) != len(kernel[2]) or len(set(k_names)) != len(k_names):
            return None
        kept = [n for n in self.order if n not in summed]
        axes = self.window(data, [n for n in k_names if n in summed],
                           [n for n in kept if n not in k_names])
        if axes is None:
            return None
        space = [a for a in axes if isinstance(a, tuple)]
        plain = [a for a in axes if not isinstance(a, tuple)]
        taps = [a[1] for a in space]
        channels = [n for n in plain if n in summed]
        batch = [n for n in plain if n not in summed]
        features = [n for n in k_names if n not in summed]
        if not 1 <= len(space) <= 2 or set(k_names) != set(features + channels + taps) or \
                set(batch) & set(features) or len(set(taps)) != len(taps) or \
                set(summed) != set(channels + taps) or self.node.pads.get(data[1], 0.0):
            return None
        x = self.run.array(data[1])
        where = [axes.index(n) for n in batch + channels] + [axes.index(a) for a in space]
        shape = self.run.graph.shape(data[1])
        lengths = [shape[axes.index(a)] for a in space]
        x = self.ops.permute(x, where)
        x = self.ops.reshape(x, [math.prod(self.sizes(batch)), math.prod(self.sizes(channels))] +
                             lengths)
        _, k = self.value(kernel)
        own = self.sort(k_names)
        order = features + channels + taps
        k = self.ops.permute(k, [own.index(n) for n in order])
        k = self.ops.reshape(k, [math.prod(self.sizes(features)),
                                 math.prod(self.sizes(channels))] + self.sizes(taps))
        begins = [-a[4] for a in space]
        ends = [a[2] * (self.size(a[0]) - 1) + a[3] * (self.size(a[1]) - 1) + a[4] - (n - 1)
                for a, n in zip(space, lengths)]
        y = self.run.conv(x, k, None, [a[2] for a in space], begins + ends,
                          [a[3] for a in space], 1, lengths)
        names = batch + features + [a[0] for a in space]
        return self.ordered(names, self.ops.reshape(y, self.sizes(names)))

    def band(self, data, other, summed):
        """sum over p of a[m, p] * b[m + d * j + c, p], or over j of a[m, j] * b[m + d * j + c, p].

        Row m of phase m % d meets rows of the same phase only: blocks of rows times the rows they
        meet, of which a diagonal band counts.
        """
        axes = self.window_pair(data)
        if axes is None or any(s[0] != "v" for s in other[2]):
            return None
        (axis, m, j, d, c), plain = axes
        o_names = [s[1] for s in other[2]]
        if len(set(o_names)) != len(o_names) or m not in o_names or \
                any(self.range[s[1]] != (0, self.run.graph.shape(other[1])[i])
                    for i, s in enumerate(other[2])) or \
                m in summed or len(summed) != 1 or self.node.pads.get(data[1], 0.0):
            return None
        scores = summed != [j]
        if (j in o_names) == scores or (scores and summed[0] not in plain):
            return None
        p = summed[0] if scores else None
        batch = [n for n in plain if n in o_names and n != p]
        rest = [n for n in plain if n not in o_names]
        if len(plain) - len(batch) != 1 or (scores and rest) or \
                set(o_names) != set(batch + [m, p if scores else j]):
            return None
        p = p or rest[0]
        order = batch + [m, p if scores else j]
        a = self.ops.permute(self.run.array(other[1]), [o_names.index(n) for n in order])
        where = [s[1] if s[0] == "v" else None for s in data[2]]
        b = self.ops.permute(self.run.array(data[1]),
                             [where.index(n) for n in batch] + [axis, where.index(p)])
        blocks = Blocks(self.ops, math.prod(self.sizes(batch)), self.size(m), self.size(j),
                        self.size(p), d, c, self.run.graph.shape(data[1])[axis])
        y = blocks.scores(a, b) if scores else blocks.values(a, b)
        names = batch + [m, j if scores else p]
        return self.ordered(names, self.ops.reshape(y, self.sizes(names)))

    def window_pair(self, e):
        """((axis, m, j, d, c), plain names) when one axis is m + d * j + c, the others plain."""
        pair, plain = None, []
        for axis, s in enumerate(e[2]):
            if s[0] == "v" and self.range[s[1]] == (0, self.run.graph.shape(e[1])[axis]):
                plain.append(s[1])
                continue
            form = affine(s)
            if pair or form is None or len(form[1]) != 2 or 1 not in form[1].values() or \
                    any(k < 1 for k in form[1].values()) or any(self.range[n][0] for n in form[1]):
                return None
            m, j = sorted(form[1], key=lambda n: form[1][n])
            if form[1][m] == form[1][j] and self.size(m) < self.size(j):
                m, j = j, m
            pair = (axis, m, j, form[1][j], form[0] - self.offset(e[1], axis))
        if pair is None or len(set(plain)) != len(plain) or {pair[1], pair[2]} & set(plain):
            return None
        return pair, plain


class Blocks:
    """Band products of `batch` matrices: `m` rows, a band of `j` diagonals, `p` features; row i
    meets row i + d * t + c of the other, t in 0..j-1, of which there are `n`."""

    def __init__(self, ops, batch, m, j, p, d, c, n):
        self.ops, self.batch, self.j, self.p, self.d, self.n = ops, batch, j, p, d, n
        self.m, self.c = m, c
        phase = -(-m // d)                                  # rows of a phase
        self.count = -(-phase // min(BAND_ROWS, phase))     # blocks of a phase
        self.rows = -(-phase // self.count)
        self.wide = self.rows + j - 1                       # rows of the other that a block meets

    def rows_of(self, a, width):
        """[batch, m, width] as [batch * d * count, rows, width]."""
        ops, total = self.ops, self.count * self.rows
        a = ops.reshape(a, [self.batch, self.m, width])
        a = ops.pad(a, [(0, 0), (0, total * self.d - self.m), (0, 0)], 0.0)
        a = ops.reshape(a, [self.batch, total, self.d, width])
        a = ops.permute(a, [0, 2, 1, 3])
        return ops.reshape(a, [self.batch * self.d * self.count, self.rows, width])

    def unrolled(self, a, width):
        ops, total = self.ops, self.count * self.rows
        a = ops.reshape(a, [self.batch, self.d, total, width])
        a = ops.permute(a, [0, 2, 1, 3])
        a = ops.reshape(a, [self.batch, total * self.d, width])
        return ops.slice(a, [(0, self.batch, 1), (0, self.m, 1), (0, width, 1)])

    def met(self, b):
        """[batch, n, p] as [batch * d * count, wide, p]: the rows that each block meets."""
        ops = self.ops
        total = (self.count - 1) * self.rows + self.wide    # of a phase
        b = ops.reshape(b, [self.batch, self.n, self.p])
        stop = self.c + total * self.d
        b = ops.pad(b, [(0, 0), (max(0, -self.c), max(0, stop - self.n)), (0, 0)], 0.0)
        first = max(0, self.c)
        b = ops.slice(b, [(0, self.batch, 1), (first, first + total * self.d, 1), (0, self.p, 1)])
        b = ops.reshape(b, [self.batch, total, self.d, self.p])
        b = ops.permute(b, [0, 2, 1, 3])
        parts = [ops.slice(b, [(0, self.batch, 1), (0, self.d, 1),
                               (i * self.rows, i * self.rows + self.wide, 1), (0, self.p, 1)])
                 for i in range(self.count)]
        b = ops.stack(parts, 2)
        return ops.reshape(b, [self.batch * self.d * self.count, self.wide, self.p])

    def scores(self, a, b):
        ops = self.ops
        dense = ops.einsum("bmp,bnp->bmn", [self.rows_of(a, self.p), self.met(b)])
        many = self.batch * self.d * self.count
        return self.unrolled(ops.diagonals(dense, many, self.rows, self.wide, self.j), self.j)

    def values(self, a, b):
        ops = self.ops
        many = self.batch * self.d * self.count
        band = ops.pad(self.rows_of(a, self.j), [(0, 0), (0, 0), (0, self.rows)], 0.0)
        flat = ops.reshape(band, [many, self.rows * (self.wide + 1)])
        flat = ops.slice(flat, [(0, many, 1), (0, self.rows * self.wide, 1)])
        dense = ops.reshape(flat, [many, self.rows, self.wide])
        return self.unrolled(ops.einsum("bmn,bnp->bmp", [dense, self.met(b)]), self.p)
