"""What the random models of fuzz_models.py are made of."""

PADS = ["0", "0", "1", "-0.5"]  # what is read beyond a tensor


def ints(values):
    return "[%s]" % ",".join(map(str, values))


class Grown:
    """A model that grows statement by statement; `values` maps names to shapes."""

    def __init__(self, rng, dtype="f32"):
        self.rng = rng
        self.dtype = dtype
        self.lines = []
        self.values = {}
        self.count = 0

    def name(self, prefix):
        self.count += 1
        return "%s%d" % (prefix, self.count)

    def take(self, shape):
        """The input x."""
        self.lines.append("input x: %s%s" % (self.dtype, ints(shape)))
        self.values["x"] = shape

    def let(self, text, prefix="u"):
        name = self.name(prefix)
        self.lines.append("%s = %s" % (name, text))
        return name

    def put(self, text, shape):
        return self.keep(self.let(text, "t"), shape)

    def keep(self, name, shape):
        self.values[name] = shape
        return name

    def with_outputs(self, outputs):
        return "ein 1\nmodel fuzz\n%s\noutput %s\n" % (
            "\n".join(self.lines), ", ".join(sorted(outputs)))


# Sizes at the borders of tiles, warps and blocks, and beside these.
EDGES = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]
UNUSUAL = 0.25  # how often a size is one of them where a piece has such


class Piece:
    """Some statements that nothing else in a model has to do with, and their outputs: what some
    rule looks for, or just misses. Choices are the usual ones with probability `calm`; sizes are
    some at borders with `edges`, several times as large with `large`."""

    def __init__(self, rng, prefix, calm=0.0, edges=False, large=False):
        self.rng, self.prefix, self.calm, self.edges, self.large = rng, prefix, calm, edges, large
        self.lines, self.inputs, self.outputs, self.count = [], [], [], 0

    # ---- choices

    def chance(self, probability):
        return self.rng.random() < probability

    def any(self, *choices):
        return self.rng.choice(choices)

    def usual(self, *choices):
        """Mostly the first one."""
        return choices[0] if self.chance(self.calm) else self.rng.choice(choices)

    def size(self, *sizes, most=33):
        """One of the sizes, or one at a border."""
        if self.edges and self.chance(UNUSUAL):
            return self.any(*[n for n in EDGES if n <= most])
        n = self.any(*sizes)
        return n * self.any(1, 2, 4, 4, 8) if self.large and n > 3 else n

    def odd(self, k, extent):
        """An iterator of that extent, or what else reads inside of it."""
        forms = [k, k, k, f"({k}+1)%{extent}", f"{extent - 1}-{k}", f"{k}/2"]
        if extent % 2 == 0:
            half = extent // 2
            forms += [f"{k}/2*2", f"({k}%2)*{half}+{k}/2", f"({k}+{half})%{extent}"]
        return self.usual(*forms)

    def digits(self, names, extent):
        """A number below `extent`, of one or two of these iterators, and their extents."""
        sizes = [d for d in (2, 3, 4, 8, 16) if extent % d == 0 and extent > d]
        high, low = names
        if not sizes or self.chance(0.35):
            return high, {high: extent}
        d = self.any(*sizes)
        form = self.any(f"{high}*{d}+{low}", f"{high}*{d}+{low}", f"{high}+{extent // d}*{low}")
        return form, {high: extent // d, low: d}

    # ---- statements

    def name(self, kind):
        self.count += 1
        return f"{self.prefix}_{kind}{self.count}"

    def input(self, *dims, type="f32"):
        name = self.name("x")
        self.lines.append(f"input {name}: {type}{ints(dims)}")
        self.inputs.append(name)
        return name

    def weight(self, *dims, type="f32", std=0.3, between=None):
        name, seed = self.name("w"), self.rng.randrange(999)
        source = f"randn(seed={seed}, std={std:.3g})"
        if between:
            source = f"uniform(seed={seed}, lo={between[0]:g}, hi={between[1]:g})"
        self.lines.append(f"weight {name}: {type}{ints(dims)} = {source}")
        return name

    def given(self, *dims, type="f32"):
        """An input or a weight."""
        return self.any(self.input, self.weight)(*dims, type=type)

    def let(self, index, body, pad=None, out=False, **extents):
        """An equation."""
        name = self.name("v")
        where = [f"{i} in 0:{n}" for i, n in extents.items()] + ([f"pad {pad} 0"] if pad else [])
        body += " where " * bool(where) + ", ".join(where)
        self.lines.append(f"{name}[{index}] = {body}")
        return self.out(name) if out else name

    def op(self, text, out=False):
        """An operator."""
        name = self.name("v")
        self.lines.append(f"{name} = {text}")
        return self.out(name) if out else name

    def out(self, name, probability=1.0):
        """The model's output, too, now and then; inputs are none."""
        if name not in self.outputs + self.inputs and self.chance(probability):
            self.outputs.append(name)
        return name


def ranges(*extents):
    """Those of several numbers at once, for let(**...)."""
    return {name: n for each in extents for name, n in each.items()}
