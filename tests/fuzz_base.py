"""What the random models of fuzz_models.py are made of."""


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
