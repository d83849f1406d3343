"""Equations: ranges of indices, and their values in float64.

A value is a pair (names, array): the array has one axis for each name, in a fixed order of all the
indices in scope, so values that depend on few indices stay small and broadcast against each other.
Sums of products are contracted by batched matrix products; everything else is elementwise. Large
equations are cut into chunks of the traversal, and where that is not enough, of the reduction.
"""

import itertools
import math

import numpy as np

from ein import children, index_names
from syntax import EinError

BUDGET = 1 << 23        # elements of one intermediate array before an equation is cut


# ---------------------------------------------------------------- ranges

def bare_ranges(e, name, tensors, out):
    """Ranges that positions T[.., name, ..] give to `name`, with the tensor each comes from."""
    if e[0] == "reduce" and name in e[2]:
        return
    if e[0] == "read":
        t = tensors[e[1]]
        if len(e[2]) != len(t.shape):
            raise EinError("'%s' has %d axes, %d subscripts are given" % (
                e[1], len(t.shape), len(e[2])), e[3])
        for axis, sub in enumerate(e[2]):
            if sub[0] == "v" and sub[1] == name:
                out.append(((t.lo[axis], t.lo[axis] + t.shape[axis]), e[1]))
    for x in children(e):
        bare_ranges(x, name, tensors, out)


def find_range(name, eq, e, tensors, declared):
    """The range of an index: `where`, else the declared result, else bare uses inside `e`."""
    given = eq.ranges.get(name)
    if given is not None:
        if declared is not None and given != declared:
            raise EinError("range %d:%d of '%s' disagrees with the declared type" % (*given, name))
        return given
    if declared is not None:
        return declared
    uses = []
    bare_ranges(e, name, tensors, uses)
    if not uses:
        raise EinError("range of index '%s' is not determined: add \"where %s in ..\"" % (
            name, name))
    for other, tensor in uses[1:]:
        if other != uses[0][0]:
            raise EinError("range of index '%s' is %d:%d by '%s' but %d:%d by '%s'" % (
                name, *uses[0][0], uses[0][1], *other, tensor))
    return uses[0][0]


def with_ranges(e, eq, tensors):
    """The body with every reduction's names replaced by (name, lo, hi)."""
    kind = e[0]
    if kind == "reduce":
        found = [(n, *find_range(n, eq, e[3], tensors, None)) for n in e[2]]
        return (kind, e[1], found, with_ranges(e[3], eq, tensors))
    if kind == "neg":
        return (kind, with_ranges(e[1], eq, tensors))
    if kind in ("expr", "term"):
        return (kind, [(op, with_ranges(x, eq, tensors)) for op, x in e[1]])
    if kind == "call":
        return (kind, e[1], [with_ranges(x, eq, tensors) for x in e[2]])
    if kind == "select":
        return e[:2] + tuple(with_ranges(x, eq, tensors) for x in e[2:])
    if kind == "read":
        t = tensors[e[1]]
        if len(e[2]) != len(t.shape):
            raise EinError("'%s' has %d axes, %d subscripts are given" % (
                e[1], len(t.shape), len(e[2])), e[3])
        for sub in e[2]:
            if sub[0] == "at":
                with_ranges(sub[1], eq, tensors)
                if tensors[sub[1][1]].dtype in ("f32", "f16", "bf16"):
                    raise EinError("'@' needs an integer tensor", sub[1][3])
    return e


def infer(eq, tensors, declared):
    """(dtype, [(lo, hi)]) of the result. Also stores what evaluation needs in `eq`."""
    if declared and len(declared[1]) != len(eq.indices):
        raise EinError("the result is declared with %d axes, %d indices are given" % (
            len(declared[1]), len(eq.indices)))
    extents = []
    for axis, name in enumerate(eq.indices):
        wanted = (0, declared[1][axis]) if declared else None
        extents.append(find_range(name, eq, eq.body, tensors, wanted))
    eq.body = with_ranges(eq.body, eq, tensors)
    eq.extents = extents
    # What has no declared type is f32, whatever is read for it.
    return declared[0] if declared else "f32", extents


# ---------------------------------------------------------------- work

def flop(eq, tensors):
    """2 * multiply-adds of every sum over a product of at least two tensors' values."""
    def walk(e, outer):
        if e[0] == "reduce":
            inner = outer * math.prod(hi - lo for _, lo, hi in e[2])
            terms = [x for _, x in e[3][1]] if e[3][0] == "term" else []
            real = [x for x in terms if x[0] not in ("num", "guard", "idx")]
            own = 2 * inner if e[1] == "sum" and len(real) > 1 else 0
            return own + walk(e[3], inner)
        return sum(walk(x, outer) for x in children(e))
    return walk(eq.body, math.prod(hi - lo for lo, hi in eq.extents))


# ---------------------------------------------------------------- labelled arrays

class Scope:
    """What a part of the body sees: order and positions of the indices, guards that hold."""

    def __init__(self, evaluator, order, positions, guards):
        self.ev = evaluator
        self.order = order              # name -> rank in the order of axes
        self.positions = positions      # name -> int64 array
        self.guards = guards            # labelled bools, all of them conditions for evaluation

    def reduced(self, ranges):
        order, positions = dict(self.order), dict(self.positions)
        for name, lo, hi in ranges:
            order[name] = len(order)
            positions[name] = np.arange(lo, hi, dtype=np.int64)
        return Scope(self.ev, order, positions, self.guards)

    def guarded(self, guards):
        return Scope(self.ev, self.order, self.positions, self.guards + guards) if guards else self

    def narrowed(self, name, part):
        positions = dict(self.positions)
        positions[name] = part
        return Scope(self.ev, self.order, positions, self.guards)

    def size(self, names):
        return math.prod(len(self.positions[n]) for n in names)

    def sort(self, names):
        return tuple(sorted(names, key=self.order.__getitem__))


def spread(value, names):
    """The array with axes of length 1 for the names it does not have."""
    own, a = value
    if own == names:
        return a
    shape, at = [], 0
    for n in names:
        if at < len(own) and own[at] == n:
            shape.append(a.shape[at])
            at += 1
        else:
            shape.append(1)
    return a.reshape(shape)


def together(values, scope):
    names = scope.sort(set().union(*(v[0] for v in values)))
    return names, [spread(v, names) for v in values]


def elementwise(function, values, scope):
    names, arrays = together(values, scope)
    return names, function(*arrays)


def subscript(e, scope):
    """A labelled int64 array of positions."""
    kind = e[0]
    if kind == "i":
        return (), np.array(e[1], np.int64)
    if kind == "v":
        return (e[1],), scope.positions[e[1]]
    if kind == "neg":
        names, a = subscript(e[1], scope)
        return names, -a
    function = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.floor_divide,
                "%": np.mod}[kind]
    return elementwise(function, [subscript(e[1], scope), subscript(e[2], scope)], scope)


COMPARE = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
           ">": np.greater, ">=": np.greater_equal}


def erf(x):
    """erf in float64: Taylor expansion around the nearest multiple of 1/32 (|h| <= 1/64)."""
    x = np.asarray(x, np.float64)
    a = np.clip(np.nan_to_num(np.abs(x), nan=0.0, posinf=6.5), 0, 6.5)
    at = np.rint(a * 32).astype(np.int64)
    h = a - at / 32.0
    result = np.zeros_like(a)
    for column in ERF_TABLE[::-1]:
        result = result * h + column[at]
    return np.where(np.isnan(x), x, np.copysign(np.minimum(result, 1.0), x))


def erf_table():
    x = np.arange(0, 32 * 7) / 32.0
    order = 11
    derivatives = [np.array([math.erf(v) for v in x]), 2 / math.sqrt(math.pi) * np.exp(-x * x)]
    for n in range(1, order):
        before = derivatives[n - 1] if n > 1 else np.zeros_like(x)
        derivatives.append(-2 * x * derivatives[n] - 2 * (n - 1) * before)
    return [d / math.factorial(n) for n, d in enumerate(derivatives)]


ERF_TABLE = erf_table()


def sigmoid(x):
    t = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + t), t / (1 + t))


FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0.0), "tanh": np.tanh, "exp": np.exp, "log": np.log,
    "sqrt": np.sqrt, "erf": erf, "abs": np.abs, "neg": np.negative, "sigmoid": sigmoid,
    "floor": np.floor, "ceil": np.ceil, "rsqrt": lambda x: 1 / np.sqrt(x), "square": np.square,
    "sin": np.sin, "cos": np.cos, "atan": np.arctan,
    "pow": np.power, "min": np.minimum, "max": np.maximum,
    "quot": lambda x, y: np.trunc(x / y), "rem": np.fmod,
}


# ---------------------------------------------------------------- contraction

def contract(a, b, summed, scope):
    """Sum over `summed` of a * b, by one batched matrix product.

    Names fall into four groups: in both and kept (batch), only in a (m), only in b (n), in both and
    summed (k). What only one side has and is summed goes first.
    """
    a, b = sum_out(a, [n for n in summed if n in a[0] and n not in b[0]]), \
        sum_out(b, [n for n in summed if n in b[0] and n not in a[0]])
    both = [n for n in a[0] if n in b[0]]
    k = [n for n in both if n in summed]
    batch = [n for n in both if n not in summed]
    m = [n for n in a[0] if n not in b[0]]
    n_ = [n for n in b[0] if n not in a[0]]
    if not k:
        return elementwise(np.multiply, [a, b], scope)
    sizes = {n: a[1].shape[i] for i, n in enumerate(a[0])}
    sizes.update({n: b[1].shape[i] for i, n in enumerate(b[0])})

    def arranged(value, groups):
        names = [n for g in groups for n in g]
        array = value[1].transpose([value[0].index(n) for n in names])
        return array.reshape([sizes[n] for n in batch] +
                             [math.prod(sizes[n] for n in g) for g in groups[1:]])

    product = np.matmul(arranged(a, [batch, m, k]), arranged(b, [batch, k, n_]))
    names = batch + m + n_
    product = product.reshape([sizes[n] for n in names])
    wanted = scope.sort(names)
    return wanted, product.transpose([names.index(n) for n in wanted])


def sum_out(value, summed):
    names, a = value
    axes = tuple(i for i, n in enumerate(names) if n in summed)
    if not axes:
        return value
    return tuple(n for n in names if n not in summed), a.sum(axis=axes)


def contract_all(factors, summed, scope):
    """Sum over `summed` of the product of all factors, two at a time, smallest result first."""
    summed = list(summed)
    present = set().union(*(f[0] for f in factors))
    scale = math.prod(len(scope.positions[n]) for n in summed if n not in present)
    summed = [n for n in summed if n in present]
    factors = list(factors)
    while len(factors) > 1:
        best = None
        for i, j in itertools.combinations(range(len(factors)), 2):
            rest = set().union(*(f[0] for x, f in enumerate(factors) if x not in (i, j)), ())
            pair = set(factors[i][0]) | set(factors[j][0])
            gone = [n for n in summed if n in pair and n not in rest]
            key = (scope.size(pair - set(gone)), scope.size(pair), i, j)
            if best is None or key < best[0]:
                best = (key, gone)
        (_, _, i, j), gone = best
        b, a = factors.pop(j), factors.pop(i)
        factors.append(contract(a, b, gone, scope))
        summed = [n for n in summed if n not in gone]
    names, total = sum_out(factors[0], summed)
    return names, total * scale if scale != 1 else total


# ---------------------------------------------------------------- evaluation

class Evaluator:
    def __init__(self, eq, tensors, values):
        self.eq = eq
        self.tensors = tensors
        self.values = values        # name -> array
        self.cache = {}

    def floats(self, name):
        if name not in self.cache:
            self.cache[name] = np.asarray(self.values[name], np.float64)
        return self.cache[name]

    def run(self):
        eq = self.eq
        lengths = [hi - lo for lo, hi in eq.extents]
        out = np.empty(lengths, np.float64)
        if 0 in lengths:
            return out
        steps = list(lengths)
        while True:
            positions = {n: np.arange(lo, lo + s) for n, (lo, _), s in
                         zip(eq.indices, eq.extents, steps)}
            order = {n: i for i, n in enumerate(eq.indices)}
            if self.estimate(eq.body, Scope(self, order, positions, []))[1] <= BUDGET:
                break
            longest = max(range(len(steps)), key=steps.__getitem__, default=None)
            if longest is None or steps[longest] == 1:
                break
            steps[longest] = (steps[longest] + 1) // 2
        for corner in itertools.product(*(range(0, n, s) for n, s in zip(lengths, steps))):
            positions, window = {}, []
            for n, (lo, hi), c, s in zip(eq.indices, eq.extents, corner, steps):
                end = min(c + s, hi - lo)
                positions[n] = np.arange(lo + c, lo + end, dtype=np.int64)
                window.append(slice(c, end))
            scope = Scope(self, order, positions, [])
            out[tuple(window)] = spread(self.value(eq.body, scope), tuple(eq.indices))
        return out

    # ---- how large intermediate arrays get

    def estimate(self, e, scope):
        """(names, elements of the largest array) of evaluating `e`."""
        kind = e[0]
        if kind == "num":
            return set(), 1
        if kind in ("guard", "idx"):
            names = set().union(*(index_names(x) for x in e[1:] if isinstance(x, tuple)))
            return names, scope.size(names)
        if kind == "read":
            names, largest = set(), 0
            for sub in e[2]:
                if sub[0] == "at":
                    inner, size = self.estimate(sub[1], scope)
                    names |= inner
                    largest = max(largest, size)
                else:
                    names |= index_names(sub)
            plain = [s[1] for s in e[2] if s[0] == "v"]
            if len(plain) == len(e[2]) == len(set(plain)):
                return names, largest
            return names, max(largest, scope.size(names))
        if kind == "reduce":
            inner = scope.reduced(e[2])
            names, largest = self.estimate_sum(e[3], inner) if e[1] == "sum" else \
                self.estimate(e[3], inner)
            names = names - {n for n, _, _ in e[2]}
            return names, max(largest, inner.size(names))
        parts = [self.estimate(x, scope) for x in children(e)]
        names = set().union(*(p[0] for p in parts))
        return names, max([p[1] for p in parts] + [scope.size(names)])

    def estimate_sum(self, body, scope):
        """As `estimate` but a product is contracted, so it has no array of its own."""
        if body[0] != "term":
            return self.estimate(body, scope)
        parts = [self.estimate(x, scope) for _, x in body[1]]
        return set().union(*(p[0] for p in parts)), max(p[1] for p in parts)

    # ---- values

    def value(self, e, scope):
        kind = e[0]
        if kind == "num":
            return (), np.array(e[1])
        if kind == "idx":
            names, a = subscript(e[1], scope)
            return names, a.astype(np.float64)
        if kind == "neg":
            names, a = self.value(e[1], scope)
            return names, -a
        if kind == "expr":
            total = None
            for op, x in e[1]:
                v = self.value(x, scope)
                if total is None:
                    total = v
                else:
                    total = elementwise(np.add if op == "+" else np.subtract, [total, v], scope)
            return total
        if kind in ("term", "guard"):
            return self.product(e, scope)
        if kind == "reduce":
            return self.reduce(e, scope)
        if kind == "call":
            return elementwise(FUNCTIONS[e[1]], [self.value(x, scope) for x in e[2]], scope)
        if kind == "select":
            a, b, x, y = (self.value(v, scope) for v in e[2:])
            return elementwise(lambda p, q, r, s: np.where(COMPARE[e[1]](p, q), r, s),
                               [a, b, x, y], scope)
        return self.read(e, scope)

    def guard(self, e, scope):
        return elementwise(COMPARE[e[1]], [subscript(e[2], scope), subscript(e[3], scope)], scope)

    def factors(self, e, scope):
        """A term as (guards, numerators, denominators); the values are taken where the guards hold.

        A guard that is divided by is an ordinary 0 or 1.
        """
        parts = flatten(e)
        guards = [self.guard(x, scope) for op, x in parts if op == "*" and x[0] == "guard"]
        inner = scope.guarded(guards)
        up, down = [], []
        for op, x in parts:
            if op == "*" and x[0] == "guard":
                continue
            if x[0] == "guard":
                names, a = self.guard(x, scope)
                down.append((names, a.astype(np.float64)))
            else:
                (up if op == "*" else down).append(self.value(x, inner))
        return guards, up, down

    def product(self, e, scope):
        guards, up, down = self.factors(e, scope)
        total = up[0] if up else ((), np.array(1.0))
        for f in up[1:]:
            total = elementwise(np.multiply, [total, f], scope)
        for f in down:
            total = elementwise(np.divide, [total, f], scope)
        return masked(total, guards, scope)

    def reduce(self, e, scope):
        _, kind, ranges, body = e
        inner = scope.reduced(ranges)
        return self.reduce_in(kind, [n for n, _, _ in ranges], body, inner)

    def reduce_in(self, kind, names, body, scope):
        estimate = self.estimate_sum if kind == "sum" else self.estimate
        if estimate(body, scope)[1] > 2 * BUDGET:
            return self.reduce_parts(kind, names, body, scope)
        if any(len(scope.positions[n]) == 0 for n in names):
            return (), np.array({"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[kind])
        if kind == "sum":
            return self.sum(names, body, scope)
        own, a = self.value(body, scope)
        axes = tuple(i for i, n in enumerate(own) if n in names)
        missing = math.prod(len(scope.positions[n]) for n in names if n not in own)
        if axes:
            a = {"max": np.max, "min": np.min, "prod": np.prod}[kind](a, axis=axes)
        if kind == "prod" and missing != 1:
            a = a ** missing
        return tuple(n for n in own if n not in names), a

    def reduce_parts(self, kind, names, body, scope):
        longest = max(names, key=lambda n: len(scope.positions[n]))
        positions = scope.positions[longest]
        if len(positions) < 2:
            wide = [n for n in names if len(scope.positions[n]) > 1]
            if wide:
                return self.reduce_parts(kind, wide, body, scope)
            return self.sum(names, body, scope) if kind == "sum" else self.value(body, scope)
        half = len(positions) // 2
        parts = [self.reduce_in(kind, names, body, scope.narrowed(longest, p))
                 for p in (positions[:half], positions[half:])]
        function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
        return elementwise(function, parts, scope)

    def sum(self, names, body, scope):
        if body[0] not in ("term", "guard"):
            return contract_all([self.value(body, scope)], names, scope)
        guards, up, down = self.factors(body, scope)
        after = [d for d in down if not set(d[0]) & set(names)]
        during = [d for d in down if set(d[0]) & set(names)]
        up = up or [((), np.array(1.0))]
        for d in during:
            up[0] = elementwise(np.divide, [up[0], d], scope)
        if guards and not all(np.isfinite(u[1]).all() for u in up + after):
            total = up[0]
            for f in up[1:]:
                total = elementwise(np.multiply, [total, f], scope)
            total = contract_all([masked(total, guards, scope)], names, scope)
        else:
            ones = [(g[0], g[1].astype(np.float64)) for g in guards]
            total = contract_all(up + ones, names, scope)
        for d in after:
            total = elementwise(np.divide, [total, d], scope)
        return masked(total, [g for g in guards if not set(g[0]) & set(names)], scope)

    # ---- reads

    def read(self, e, scope, integers=False):
        name, subs = e[1], e[2]
        t = self.tensors[name]
        array = np.asarray(self.values[name]) if integers else self.floats(name)
        places = []
        for sub in subs:
            if sub[0] == "at":
                names, a = self.read(sub[1], scope, integers=True)
                places.append((names, a.astype(np.int64)))
            else:
                places.append(subscript(sub, scope))
        return self.gather(name, array, t.lo, places, e, scope)

    def gather(self, name, array, lo, places, e, scope):
        """Takes one group of axes after the other: axes whose subscripts share an index.

        `labels` says what each axis of the array is at the moment: an axis of the tensor, written
        as its number, or an index.
        """
        labels = list(range(array.ndim))
        groups = grouped(places)

        def growth(group):
            names = set().union(*(places[i][0] for i in group))
            return scope.size(names) / math.prod(self.tensors[name].shape[i] or 1 for i in group)

        for group in sorted(groups, key=lambda g: (growth(g), g)):
            names = scope.sort(set().union(*(places[i][0] for i in group)))
            sizes = [array.shape[labels.index(i)] for i in group]
            inside, flat = None, None
            for i, size in zip(group, sizes):
                at = spread(places[i], names) - lo[i]
                ok = (at >= 0) & (at < size)
                inside = ok if inside is None else inside & ok
                flat = at if flat is None else flat * size + at
            if len(group) > 1:
                order = [labels.index(i) for i in group]
                rest = [x for x in range(array.ndim) if x not in order]
                array = array.transpose(order + rest)
                array = array.reshape((math.prod(sizes),) + array.shape[len(order):])
                labels = [group[0]] + [labels[x] for x in rest]
            axis = labels.index(group[0])
            if not inside.all():
                array = self.with_pad(name, array, axis, e, names, inside, scope)
                flat = np.where(inside, flat, array.shape[axis] - 1)
            array = take(array, np.broadcast_to(flat, [len(scope.positions[n]) for n in names]),
                         axis)
            labels[axis:axis + 1] = names
        wanted = scope.sort(labels)
        return wanted, array.transpose([labels.index(n) for n in wanted])

    def with_pad(self, name, array, axis, e, names, inside, scope):
        """The array with one more row that holds the padding; an error when there is none."""
        pad = self.eq.pads.get(name)
        if pad is None:
            active = [(names, ~inside)] + scope.guards
            _, arrays = together(active, scope)
            hit = arrays[0]
            for a in arrays[1:]:
                hit = hit & a
            if hit.any():
                raise EinError("reads outside '%s': add \"pad %s 0\"" % (name, name), e[3])
            pad = 0
        shape = list(array.shape)
        shape[axis] = 1
        return np.concatenate([array, np.full(shape, pad, array.dtype)], axis=axis)


def flatten(e):
    """A term's factors with products in parentheses opened."""
    if e[0] != "term":
        return [("*", e)]
    out = []
    for op, x in e[1]:
        if op == "*" and x[0] == "term":
            out.extend(flatten(x))
        else:
            out.append((op, x))
    return out


def masked(value, guards, scope):
    """The value where all guards hold, else 0: what a guard excludes is not evaluated."""
    for g in guards:
        value = elementwise(lambda p, v: np.where(p, v, 0.0), [g, value], scope)
    return value


def grouped(places):
    """Axes in groups connected by shared index names."""
    groups = []
    for i, (names, _) in enumerate(places):
        joined, own = [i], set(names)
        rest = []
        for members, group_names in groups:
            if own & group_names:
                joined = members + joined
                own |= group_names
            else:
                rest.append((members, group_names))
        groups = rest + [(sorted(joined), own)]
    return [members for members, _ in groups]


def take(array, at, axis):
    """array.take along one axis with positions of any rank; a view for evenly spaced ones."""
    if at.ndim == 0:
        return array[(slice(None),) * axis + (int(at),)]
    if at.ndim == 1 and len(at):
        step = int(at[1] - at[0]) if len(at) > 1 else 1
        if step > 0 and (len(at) < 3 or (np.diff(at) == step).all()):
            return array[(slice(None),) * axis + (slice(int(at[0]), int(at[-1]) + 1, step),)]
    return np.take(array, at, axis=axis)


def evaluate(eq, tensors, values):
    """The equation's result, float64. `values` maps full tensor names to arrays."""
    with np.errstate(all="ignore"):
        return Evaluator(eq, tensors, values).run()
