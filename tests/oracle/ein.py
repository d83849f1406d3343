"""Reader of `.ein`: statements -> flat program with shapes.

The flat program has no blocks, repeats, dims or parameters left: every tensor has its full name,
every attribute is a number, string or list, and every constant in a subscript is an integer.
"""

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from syntax import MAX_DEPTH, EinError, parse

MAX_NODES = 200000      # statements after expansion


# ---------------------------------------------------------------- flat program

@dataclass
class Tensor:
    """`lo` is the first position on each axis: not 0 only where an equation's range says so."""
    name: str
    dtype: str
    shape: tuple
    lo: tuple
    source: tuple = None    # inputs and weights: (kind, {attr: value}) or ('blob', file, key)
    pos: tuple = None


@dataclass
class Node:
    """One operator (op, attrs, inputs) or one equation (op is None, equation set)."""
    op: str
    inputs: list
    outputs: list
    attrs: dict
    pos: tuple
    equation: object = None


@dataclass
class Equation:
    indices: list       # names of the traversal indices
    body: tuple
    ranges: dict        # from `where`: name -> (lo, hi)
    pads: dict          # tensor -> value
    extents: list = None    # (lo, hi) of every traversal index, once inferred


@dataclass
class Program:
    name: str = ""
    path: str = ""
    dims: dict = field(default_factory=dict)
    tensors: dict = field(default_factory=dict)
    inputs: list = field(default_factory=list)
    weights: list = field(default_factory=list)
    nodes: list = field(default_factory=list)
    outputs: list = field(default_factory=list)     # (published name, tensor's name)
    blobs: dict = field(default_factory=dict)


def fold(e, env, words=False):
    """Value of an integer expression (numbers may be floats) under `env`.

    With `words` a lone unknown name is a bare word: the value of attributes such as mode.
    """
    kind = e[0]
    if kind == "i":
        return e[1]
    if kind == "v":
        if e[1] in env:
            return env[e[1]]
        if words:
            return e[1]
        raise EinError("'%s' is not a dim, parameter or loop variable" % e[1], e[2])
    if kind == "neg":
        v = fold(e[1], env, words)
        if v == "inf":
            return float("-inf")
        if isinstance(v, str):
            raise EinError("'-' before a word")
        return -v
    a, b = fold(e[1], env), fold(e[2], env)
    for v in (a, b):
        if isinstance(v, (str, list)):
            raise EinError("'%s' needs numbers" % kind, e[3])
    if kind in "/%" and b == 0:
        raise EinError("division by zero", e[3])
    if kind == "/":
        return a // b if isinstance(a, int) and isinstance(b, int) else a / b
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "%": lambda: a % b}[kind]()


def fold_int(e, env, pos=None):
    v = fold(e, env)
    if not isinstance(v, int):
        raise EinError("an integer is needed here, not %r" % (v,), pos)
    return v


def fold_value(v, env):
    if v[0] == "list":
        return [fold_value(x, env) for x in v[1]]
    if v[0] == "str":
        return v[1]
    if v == ("v", "inf", v[-1]):
        return float("inf")
    return fold(v, env, words=True)


class Frame:
    """Where a statement stands: constants, visible tensors, and how new names are made."""

    def __init__(self, name, results, env):
        self.name = name            # Name of the first result called for; None for the model
        self.results = results      # a block's result -> Name on the call's left side
        self.env = env              # dims, parameters, loop variables
        self.names = {}             # local name -> full name of the tensor
        self.bound_at = {}          # local name -> rounds when it was bound
        self.rounds = ()

    def own(self, name):
        """The Name of `name`, a tensor made here."""
        rounds = "".join(".%d" % i for i in self.rounds)
        if name in self.results and not rounds:
            return self.results[name]
        brief = self.name.brief + "." + name if self.name else name
        if name in self.results:
            brief = self.results[name].brief
        return Name(brief + rounds, (self.name.path if self.name else ()) + (name + rounds,))

    def called(self, name):
        """The Name that the tensors of a block stand behind which is called for result `name`."""
        rounds = "".join(".%d" % i for i in self.rounds)
        return Name(self.own(name).brief, (self.name.path if self.name else ()) + (name + rounds,))


class Name(NamedTuple):
    """`brief` stands behind one result, the parts of `path` are all results around a tensor."""
    brief: str
    path: tuple


def settle(names):
    """Name -> full name: the brief one, but where that is another's, or one that another is
    spelled, the path."""
    full, rivals = {}, {}
    for name in names:
        rivals.setdefault(name.brief, []).append(name)
    for brief, group in rivals.items():
        keeper = min(group, key=lambda n: (".".join(n.path) != brief, len(n.path)))
        full.update((n, brief if n is keeper else ".".join(n.path)) for n in group)
    again = True
    while again:
        spelled = {f for n, f in full.items() if f != n.brief}
        moved = {n for n, f in full.items() if f in spelled and f == n.brief}
        again = any(full[n] != ".".join(n.path) for n in moved)
        full.update((n, ".".join(n.path)) for n in moved)
    return full


class Expander:
    """Runs twice: without `settled`, which maps Names to full names, tensors have their paths."""

    def __init__(self, path, small, overrides, settled=None):
        self.program = Program(path=path)
        self.blocks = {}
        self.small = small
        self.overrides = dict(overrides or {})
        self.outputs = []
        self.declared = {}      # full name of a tensor -> type given by `output`
        self.depth = 0
        self.count = 0
        self.settled = settled
        self.named = {}         # Name -> key in program.tensors

    # ---- dims

    def dims(self, statements):
        given, small = {}, {}
        for s in statements:
            if s.kind in ("dim", "small"):
                table = given if s.kind == "dim" else small
                for name, e, pos in s.data["items"]:
                    if name in table:
                        raise EinError("'%s' given twice" % name, pos)
                    table[name] = (e, pos)
        for name, (_, pos) in small.items():
            if name not in given:
                raise EinError("small value for unknown dim '%s'" % name, pos)
        for name in self.overrides:
            if name not in given:
                raise EinError("there is no dim '%s'" % name)
        env = {}
        for name, (e, pos) in given.items():
            if name in self.overrides:
                env[name] = int(self.overrides[name])
            elif self.small and name in small:
                env[name] = fold_int(small[name][0], env, small[name][1])
            else:
                env[name] = fold_int(e, env, pos)
            if env[name] < 0:
                raise EinError("dim '%s' is negative" % name, pos)
        return env

    # ---- statements

    def run(self, statements):
        env = self.dims(statements)
        self.program.dims = dict(env)
        frame = Frame(None, {}, env)
        self.body(statements, frame)
        if not self.outputs:
            raise EinError("the model has no output")
        for name, type_, pos in self.outputs:
            full = self.look_up(frame, name, pos)
            if name in (n for n, _ in self.program.outputs):
                raise EinError("output '%s' is given twice" % name, pos)
            self.program.outputs.append((name, full))
            if type_:
                self.declared[full] = self.type(type_, env)
        return self.program

    def body(self, statements, frame):
        for s in statements:
            self.count += 1
            if self.count > MAX_NODES:
                raise EinError("the model is too large", s.pos)
            getattr(self, "on_" + s.kind)(s, frame)

    def top_only(self, s, frame):
        if frame.name or frame.rounds or frame.results:
            raise EinError("'%s' must stand outside blocks and repeats" % s.kind, s.pos)

    def on_model(self, s, frame):
        self.top_only(s, frame)
        if self.program.name:
            raise EinError("the model has a name already", s.pos)
        self.program.name = s.data["name"]

    def on_dim(self, s, frame):
        self.top_only(s, frame)

    on_small = on_dim

    def on_blob(self, s, frame):
        self.top_only(s, frame)
        if s.data["name"] in self.program.blobs:
            raise EinError("blob '%s' is given twice" % s.data["name"], s.pos)
        self.program.blobs[s.data["name"]] = s.data["file"]

    def on_output(self, s, frame):
        self.top_only(s, frame)
        self.outputs.extend(s.data["items"])

    def on_block(self, s, frame):
        self.top_only(s, frame)
        if s.data["name"] in self.blocks:
            raise EinError("block '%s' is defined twice" % s.data["name"], s.pos)
        self.blocks[s.data["name"]] = s

    def on_repeat(self, s, frame):
        d = s.data
        lo, hi = fold_int(d["lo"], frame.env, s.pos), fold_int(d["hi"], frame.env, s.pos)
        if hi - lo > MAX_NODES:
            raise EinError("too many rounds", s.pos)
        if d["name"] in frame.env:
            raise EinError("'%s' is a dim, parameter or loop variable already" % d["name"], s.pos)
        visible = dict(frame.names)
        for i in range(lo, hi):
            frame.env[d["name"]] = i
            frame.rounds += (i,)
            self.body(d["body"], frame)
            frame.rounds = frame.rounds[:-1]
            frame.names = {n: frame.names[n] for n in visible}
        frame.env.pop(d["name"], None)

    def on_input(self, s, frame):
        self.top_only(s, frame)
        self.tensor(s, frame, self.program.inputs)

    def on_weight(self, s, frame):
        self.tensor(s, frame, self.program.weights)

    def type(self, t, env):
        dtype, dims, pos = t
        shape = tuple(fold_int(d, env, pos) for d in dims)
        if any(d < 0 for d in shape):
            raise EinError("a negative size in the type", pos)
        return dtype, shape

    def tensor(self, s, frame, kind_list):
        dtype, shape = self.type(s.data["type"], frame.env)
        source = s.data["source"]
        if source and source[0] == "blob":
            if source[1] not in self.program.blobs:
                raise EinError("there is no blob '%s'" % source[1], source[3])
            source = source[:3]
        elif source:
            values = {}
            for key, (v, pos) in source[1].items():
                values[key] = fold_value(v, frame.env)
                if not isinstance(values[key], (int, float)):
                    raise EinError("'%s' must be a number" % key, pos)
                if key == "seed" and not isinstance(values[key], int):
                    raise EinError("a seed is an integer", pos)
            source = (source[0], values)
        full = self.bind(frame, s.data["name"], s.pos)
        self.program.tensors[full] = Tensor(full, dtype, shape, (0,) * len(shape), source, s.pos)
        kind_list.append(full)

    def bind(self, frame, name, pos, existing=None):
        """Makes `name` mean a new tensor and gives the tensor's full name.

        `existing` is the tensor of a block call's result, which the block has defined already.
        """
        own = frame.own(name)
        full = existing or (self.settled[own] if self.settled else own)
        if not existing:
            if own in self.named:
                raise EinError("'%s' is assigned twice" % own.brief, pos)
            self.named[own] = full
        if not existing and full in self.program.tensors:
            raise EinError("'%s' is assigned twice" % full, pos)
        if name in frame.names and frame.bound_at.get(name) == frame.rounds:
            raise EinError("'%s' is assigned twice" % name, pos)
        frame.names[name] = full
        frame.bound_at[name] = frame.rounds
        return full

    def look_up(self, frame, name, pos):
        if name in frame.names:
            return frame.names[name]
        behind = frame.name or Name("", ())
        brief = ".".join([behind.brief] * bool(frame.name) + [name])
        path = ".".join(behind.path + (name,))
        if "." in name:
            spelled = [n for n in self.named if ".".join(n.path) == path]
            rivals = [n for n in self.named if n.brief == brief]
            shared = len([n for n in self.named if spelled and n.brief == spelled[0].brief]) > 1
            for n in (spelled if shared else []) + rivals[:len(rivals) == 1] + spelled:
                return self.named[n]
        raise EinError("unknown tensor '%s'" % name, pos)

    def on_operator(self, s, frame):
        d = s.data
        if d["op"] in self.blocks:
            self.call(s, frame)
            return
        inputs = [None if n is None else self.look_up(frame, n, pos) for n, pos in d["args"]]
        attrs = {k: fold_value(v, frame.env) for k, (v, _) in d["attrs"].items()}
        outputs = []
        for n, pos in d["results"]:
            full = self.bind(frame, n, pos)
            self.program.tensors[full] = None
            outputs.append(full)
        self.program.nodes.append(Node(d["op"], inputs, outputs, attrs, s.pos))

    def call(self, s, frame):
        d, block = s.data, self.blocks[s.data["op"]].data
        if len(d["args"]) != len(block["inputs"]):
            raise EinError("block '%s' takes %d inputs" % (d["op"], len(block["inputs"])), s.pos)
        if len(d["results"]) != len(block["results"]):
            raise EinError("block '%s' gives %d results" % (d["op"], len(block["results"])), s.pos)
        env = dict(self.program.dims)
        given = {k: (fold_value(v, frame.env), pos) for k, (v, pos) in d["attrs"].items()}
        for name, default, _ in block["params"]:
            if name in given:
                env[name] = given.pop(name)[0]
            elif default is not None:
                env[name] = fold_value(default, env)
            else:
                raise EinError("block '%s' needs %s" % (d["op"], name), s.pos)
        for name, (_, pos) in given.items():
            raise EinError("block '%s' has no parameter '%s'" % (d["op"], name), pos)
        lefts = [frame.own(n) for n, _ in d["results"]]
        inner = Frame(frame.called(d["results"][0][0]), dict(zip(block["results"], lefts)), env)
        for name, (arg, pos) in zip(block["inputs"], d["args"]):
            if arg is not None:
                inner.names[name] = self.look_up(frame, arg, pos)
                inner.bound_at[name] = ()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise EinError("blocks call each other too deeply", s.pos)
        self.body(block["body"], inner)
        self.depth -= 1
        for (left, pos), result in zip(d["results"], block["results"]):
            if result not in inner.names:
                raise EinError("block '%s' never assigns '%s'" % (d["op"], result), s.pos)
            self.bind(frame, left, pos, inner.names[result])

    # ---- equations

    def on_equation(self, s, frame):
        d = s.data
        indices = [n for n, _ in d["indices"]]
        if len(set(indices)) != len(indices):
            raise EinError("an index stands twice on the left", s.pos)
        ranges = {}
        used = set(indices)
        body = self.resolve(d["body"], frame, used, set(indices))
        for name, (lo, hi, pos) in d["ranges"].items():
            if name not in used:
                raise EinError("'%s' is not an index of this equation" % name, pos)
            lo, hi = fold_int(lo, frame.env, pos), fold_int(hi, frame.env, pos)
            if hi < lo:
                raise EinError("empty range %d:%d" % (lo, hi), pos)
            ranges[name] = (lo, hi)
        reads = list(dict.fromkeys(tensors_read(body)))
        pads = {}
        for name, sign, value, pos in d["pads"]:
            full = self.look_up(frame, name, pos)
            if full not in reads:
                raise EinError("'%s' is not read here" % name, pos)
            if isinstance(value, tuple):
                value = fold(value, frame.env)
            if full in pads:
                raise EinError("padding of '%s' given twice" % name, pos)
            pads[full] = sign * value
        full = self.bind(frame, d["name"], s.pos)
        self.program.tensors[full] = None
        eq = Equation(indices, body, ranges, pads)
        self.program.nodes.append(Node(None, reads, [full], {}, s.pos, eq))

    def resolve(self, e, frame, used, bound):
        """Full tensor names for local ones, integers for dims; checks that indices are bound."""
        kind = e[0]
        if kind == "num":
            return e
        if kind == "neg":
            return ("neg", self.resolve(e[1], frame, used, bound))
        if kind in ("expr", "term"):
            return (kind, [(op, self.resolve(x, frame, used, bound)) for op, x in e[1]])
        if kind == "guard":
            return ("guard", e[1], self.subscript(e[2], frame, bound),
                    self.subscript(e[3], frame, bound))
        if kind == "idx":
            return ("idx", self.subscript(e[1], frame, bound))
        if kind == "reduce":
            names = [n for n, _ in e[2]]
            for n, pos in e[2]:
                if n in bound or names.count(n) > 1:
                    raise EinError("index '%s' is bound twice" % n, pos)
            used.update(names)
            return ("reduce", e[1], names, self.resolve(e[3], frame, used, bound | set(names)))
        if kind == "call":
            return ("call", e[1], [self.resolve(x, frame, used, bound) for x in e[2]])
        if kind == "select":
            return e[:2] + tuple(self.resolve(x, frame, used, bound) for x in e[2:])
        assert kind == "read"
        subs = [("at", self.resolve(x[1], frame, used, bound)) if x[0] == "at"
                else self.subscript(x, frame, bound) for x in e[2]]
        return ("read", self.look_up(frame, e[1], e[3]), subs, e[3])

    def subscript(self, e, frame, bound):
        kind = e[0]
        if kind == "i":
            if not isinstance(e[1], int):
                raise EinError("a subscript is an integer")
            return e
        if kind == "v":
            if e[1] in bound:
                return e
            if isinstance(frame.env.get(e[1]), int):
                return ("i", frame.env[e[1]])
            raise EinError("'%s' is not an index here" % e[1], e[2])
        if kind == "neg":
            return ("neg", self.subscript(e[1], frame, bound))
        a, b = self.subscript(e[1], frame, bound), self.subscript(e[2], frame, bound)
        fixed_a, fixed_b = not index_names(a), not index_names(b)
        if kind in "/%":
            if not fixed_b:
                raise EinError("the right side of '%s' must be a constant" % kind, e[3])
            if fold(b, {}) <= 0:
                raise EinError("the right side of '%s' must be positive" % kind, e[3])
        if kind == "*" and not (fixed_a or fixed_b):
            raise EinError("the product of two indices is not affine", e[3])
        return (kind, a, b, e[3])


def index_names(e):
    if e[0] == "v":
        return {e[1]}
    if e[0] == "i":
        return set()
    if e[0] == "neg":
        return index_names(e[1])
    return index_names(e[1]) | index_names(e[2])


def children(e):
    kind = e[0]
    if kind == "neg":
        return [e[1]]
    if kind in ("expr", "term"):
        return [x for _, x in e[1]]
    if kind == "reduce":
        return [e[3]]
    if kind == "call":
        return e[2]
    if kind == "select":
        return list(e[2:])
    if kind == "read":
        return [x[1] for x in e[2] if x[0] == "at"]
    return []


def tensors_read(e):
    """Full names of all tensors read, in textual order."""
    out = [e[1]] if e[0] == "read" else []
    for x in children(e):
        out.extend(tensors_read(x))
    return out


# ---------------------------------------------------------------- shapes

def infer(program, declared):
    """Fills in the Tensor of every node's results, in order."""
    import equations
    import operators
    for node in program.nodes:
        try:
            if node.equation:
                name = node.outputs[0]
                dtype, extents = equations.infer(node.equation, program.tensors,
                                                 declared.get(name))
                lo = tuple(a for a, _ in extents)
                shape = tuple(b - a for a, b in extents)
                program.tensors[name] = Tensor(name, dtype, shape, lo, None, node.pos)
                continue
            ins = [None if n is None else program.tensors[n] for n in node.inputs]
            for name, (dtype, shape) in zip(node.outputs, operators.infer(node, ins)):
                if name in declared and declared[name] != (dtype, tuple(shape)):
                    raise EinError("'%s' is %s%s, declared %s%s" % (
                        name, dtype, list(shape), declared[name][0], list(declared[name][1])))
                program.tensors[name] = Tensor(name, dtype, tuple(shape), (0,) * len(shape),
                                               None, node.pos)
        except EinError as error:
            error.pos = error.pos or node.pos
            raise


def load(path, small=False, overrides=None):
    """Reads a model file into a flat program with shapes."""
    with open(path, encoding="utf-8", newline="") as f:
        text = f.read()
    return loads(text, path, small, overrides)


def loads(text, path="model.ein", small=False, overrides=None):
    try:
        expander = Expander(path, small, overrides)
        expander.run(parse(text))
        expander = Expander(path, small, overrides, settle(expander.named))
        program = expander.run(parse(text))
        if not program.name:
            program.name = os.path.splitext(os.path.basename(path))[0]
        infer(program, expander.declared)
        return program
    except EinError as error:
        error.path = error.path or path
        lines = text.split("\n")
        if error.pos and 1 <= error.pos[0] <= len(lines):
            error.line = lines[error.pos[0] - 1]
        raise
