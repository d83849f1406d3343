"""Grammar of `.ein`: text -> tokens -> statements.

Written from the language definition alone; shares nothing with the generator.
"""

import re
from dataclasses import dataclass, field

DTYPES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "bool": 1}
SOURCES = {"zeros": set(), "ones": set(), "randn": {"seed", "std"},
           "uniform": {"seed", "lo", "hi"}}
REDUCTIONS = ("sum", "prod", "max", "min")
UNARY = ("relu", "tanh", "exp", "log", "sqrt", "erf", "abs", "neg", "sigmoid", "floor", "ceil",
         "rsqrt", "square", "sin", "cos", "atan")
BINARY = ("pow", "min", "max", "quot", "rem")
COMPARE = ("==", "!=", "<", "<=", ">", ">=")
MAX_DEPTH = 200     # nesting of parentheses, blocks and repeats


class EinError(Exception):
    """A mistake in a model. `pos` is (line, column), both from 1, or None."""

    def __init__(self, message, pos=None):
        super().__init__(message)
        self.message = message
        self.pos = pos
        self.path = None
        self.line = None
        self.unsupported = False

    def __str__(self):
        where = self.path or "model"
        if self.pos:
            where += ":%d:%d" % self.pos
        text = "%s: %s" % (where, self.message)
        if self.line is not None and self.pos:
            text += "\n    %s\n    %s^" % (self.line, " " * (self.pos[1] - 1))
        return text


# ---------------------------------------------------------------- tokens

@dataclass
class Token:
    kind: str       # name, string, number, op, end
    text: object    # the value: str, int or float
    pos: tuple


TOKEN = re.compile(r"""
    (?P<space>[ \t\r]+) | (?P<comment>\#.*) |
    (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?) |
    (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*) |
    (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<op>->|==|!=|<=|>=|[-+*/%()\[\]{},;:=<>@])
""", re.X)


def tokenize_line(text, number):
    tokens, at = [], 0
    while at < len(text):
        m = TOKEN.match(text, at)
        if not m:
            raise EinError("unexpected character %r" % text[at], (number, at + 1))
        kind, value = m.lastgroup, m.group()
        pos = (number, at + 1)
        at = m.end()
        if kind in ("space", "comment"):
            continue
        if kind == "number":
            if at < len(text) and re.match(r"[A-Za-z_.]", text[at]):
                raise EinError("malformed number", pos)
            value = int(value) if value.isdigit() else float(value)
        elif kind == "string":
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        tokens.append(Token(kind, value, pos))
    return tokens


def logical_lines(text):
    """Groups tokens into statements.

    At top level a line that begins with white space continues the one above. Inside braces the
    first line sets the body's indentation and only deeper lines continue.
    """
    lines, bases = [], [0]
    for number, raw in enumerate(text.split("\n"), 1):
        tokens = tokenize_line(raw, number)
        if not tokens:
            continue
        indent = tokens[0].pos[1] - 1
        if bases[-1] is None:
            bases[-1] = indent
        closing = tokens[0].kind == "op" and tokens[0].text == "}"
        if indent > bases[-1] and lines and not closing:
            lines[-1].extend(tokens)
        else:
            lines.append(tokens)
        if closing and len(bases) > 1:
            bases.pop()
        last = tokens[-1]
        if last.kind == "op" and last.text == "{":
            bases.append(None)
    return lines


# ---------------------------------------------------------------- statements

@dataclass
class Statement:
    kind: str
    pos: tuple
    data: dict = field(default_factory=dict)


class LineParser:
    """Recursive descent over one logical line."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        last = tokens[-1]
        self.end = Token("end", "end of line", (last.pos[0], last.pos[1] + len(str(last.text))))

    def peek(self, ahead=0):
        i = self.at + ahead
        return self.tokens[i] if i < len(self.tokens) else self.end

    def next(self):
        token = self.peek()
        self.at += 1
        return token

    def is_op(self, text, ahead=0):
        t = self.peek(ahead)
        return t.kind == "op" and t.text == text

    def is_word(self, text):
        t = self.peek()
        return t.kind == "name" and t.text == text

    def accept(self, text):
        if self.is_op(text):
            self.at += 1
            return True
        return False

    def fail(self, wanted):
        t = self.peek()
        raise EinError("expected %s, found '%s'" % (wanted, t.text), t.pos)

    def expect(self, text):
        if not self.accept(text):
            self.fail("'%s'" % text)

    def expect_word(self, text):
        if not self.is_word(text):
            self.fail("'%s'" % text)
        self.at += 1

    def name(self, what="a name"):
        t = self.peek()
        if t.kind not in ("name", "string"):
            self.fail(what)
        self.at += 1
        return t

    def finish(self):
        if self.peek().kind != "end":
            self.fail("end of line")

    def enter(self):
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise EinError("nested too deeply", self.peek().pos)

    # ---- integer expressions and subscripts: ('i', n) ('v', name, pos) ('neg', e) (op, a, b, pos)

    def sexpr(self):
        self.enter()
        e = self.sterm()
        while self.is_op("+") or self.is_op("-"):
            t = self.next()
            e = (t.text, e, self.sterm(), t.pos)
        self.depth -= 1
        return e

    def sterm(self):
        e = self.satom()
        while self.is_op("*") or self.is_op("/") or self.is_op("%"):
            t = self.next()
            e = (t.text, e, self.satom(), t.pos)
        return e

    def satom(self):
        t = self.next()
        if t.kind == "op" and t.text == "-":
            self.enter()
            e = ("neg", self.satom())
            self.depth -= 1
            return e
        if t.kind == "op" and t.text == "(":
            e = self.sexpr()
            self.expect(")")
            return e
        if t.kind == "number":
            return ("i", t.text)
        if t.kind == "name":
            return ("v", t.text, t.pos)
        self.at -= 1
        return self.fail("an integer, a name or '('")

    # ---- values: ('list', [..]) ('str', s) or a sexpr whose numbers may be floats

    def value(self):
        t = self.peek()
        if self.accept("["):
            self.enter()
            items = []
            while not self.is_op("]"):
                items.append(self.value())
                if not self.accept(","):
                    break
            self.expect("]")
            self.depth -= 1
            return ("list", items)
        if t.kind == "string":
            self.at += 1
            return ("str", t.text)
        return self.sexpr()

    def attrs(self):
        out = {}
        while True:
            t = self.name("an attribute name")
            self.expect("=")
            if t.text in out:
                raise EinError("attribute '%s' given twice" % t.text, t.pos)
            out[t.text] = (self.value(), t.pos)
            if not self.accept(","):
                return out

    def type(self):
        t = self.name("a type")
        if t.text not in DTYPES:
            raise EinError("unknown type '%s'" % t.text, t.pos)
        self.expect("[")
        dims = []
        if not self.is_op("]"):
            dims.append(self.sexpr())
            while self.accept(","):
                dims.append(self.sexpr())
        self.expect("]")
        return (t.text, dims, t.pos)

    # ---- expressions of equations
    # ('num', v) ('neg', e) ('expr', [(sign, e)]) ('term', [(op, e)]) ('guard', op, a, b)
    # ('reduce', kind, [(name, pos)], e) ('call', f, [e]) ('select', op, a, b, x, y)
    # ('read', name, [sub], pos) with sub a sexpr or ('at', read); ('idx', sexpr)

    def expr(self):
        self.enter()
        parts = [("+", self.term())]
        while self.is_op("+") or self.is_op("-"):
            op = self.next().text
            parts.append((op, self.term()))
        self.depth -= 1
        return parts[0][1] if len(parts) == 1 else ("expr", parts)

    def term(self):
        parts = [("*", self.factor())]
        while self.is_op("*") or self.is_op("/"):
            op = self.next().text
            parts.append((op, self.factor()))
        return parts[0][1] if len(parts) == 1 else ("term", parts)

    def factor(self):
        self.enter()
        e = self.factor_body()
        self.depth -= 1
        return e

    def factor_body(self):
        t = self.peek()
        if self.accept("-"):
            return ("neg", self.factor())
        if t.kind == "number":
            self.at += 1
            return ("num", float(t.text))
        if self.accept("("):
            e = self.expr()
            self.expect(")")
            return e
        if self.accept("["):
            a = self.sexpr()
            op = self.compare_op()
            b = self.sexpr()
            self.expect("]")
            return ("guard", op, a, b)
        if t.kind == "name" and t.text == "idx" and self.is_op("(", 1):
            self.at += 2
            e = self.sexpr()
            self.expect(")")
            return ("idx", e)
        if t.kind in ("name", "string") and self.is_op("[", 1):
            return self.read()
        if t.kind == "name" and self.is_op("(", 1):
            third, fourth = self.peek(2), self.peek(3)
            listed = third.kind == "name" and fourth.kind == "op" and fourth.text in (",", ")")
            return self.reduction() if listed else self.call()
        if t.kind == "name" and t.text in ("inf", "nan"):
            self.at += 1
            return ("num", float(t.text))
        return self.fail("an expression")

    def compare_op(self):
        t = self.peek()
        if t.kind != "op" or t.text not in COMPARE:
            self.fail("a comparison")
        self.at += 1
        return t.text

    def reduction(self):
        t = self.next()
        if t.text not in REDUCTIONS:
            raise EinError("unknown reduction '%s'" % t.text, t.pos)
        self.expect("(")
        names = [self.index_name()]
        while self.accept(","):
            names.append(self.index_name())
        self.expect(")")
        return ("reduce", t.text, names, self.term())

    def index_name(self):
        t = self.peek()
        if t.kind != "name":
            self.fail("an index name")
        self.at += 1
        return (t.text, t.pos)

    def call(self):
        t = self.next()
        self.expect("(")
        if t.text == "select":
            a = self.expr()
            op = self.compare_op()
            b = self.expr()
            self.expect(",")
            x = self.expr()
            self.expect(",")
            y = self.expr()
            self.expect(")")
            return ("select", op, a, b, x, y)
        if t.text not in UNARY and t.text not in BINARY:
            raise EinError("unknown function '%s'" % t.text, t.pos)
        args = [self.expr()]
        while self.accept(","):
            args.append(self.expr())
        self.expect(")")
        wanted = 1 if t.text in UNARY else 2
        if len(args) != wanted:
            raise EinError("%s takes %d argument(s)" % (t.text, wanted), t.pos)
        return ("call", t.text, args)

    def read(self):
        t = self.name()
        self.expect("[")
        subs = []
        if not self.is_op("]"):
            while True:
                if self.accept("@"):
                    self.enter()
                    subs.append(("at", self.read()))
                    self.depth -= 1
                else:
                    subs.append(self.sexpr())
                if not self.accept(","):
                    break
        self.expect("]")
        return ("read", t.text, subs, t.pos)

    # ---- statements

    def statement(self):
        first, second = self.peek(), self.peek(1)
        starts = second.kind in ("name", "string")
        if first.kind == "name" and starts:
            handler = getattr(self, "st_" + first.text, None)
            if handler:
                self.at += 1
                return handler(first)
        self.name("a statement")
        if self.is_op("["):
            self.at -= 1
            return self.st_equation()
        self.at -= 1
        return self.st_operator()

    def st_model(self, first):
        s = Statement("model", first.pos, {"name": self.name().text})
        self.finish()
        return s

    def st_dims(self, first):
        items = []
        while True:
            t = self.name()
            self.expect("=")
            items.append((t.text, self.sexpr(), t.pos))
            if not self.accept(","):
                break
        self.finish()
        return Statement(first.text, first.pos, {"items": items})

    st_dim = st_dims
    st_small = st_dims

    def st_blob(self, first):
        name = self.name().text
        self.expect("=")
        t = self.peek()
        if t.kind != "string":
            self.fail("a file name in quotes")
        self.at += 1
        self.finish()
        return Statement("blob", first.pos, {"name": name, "file": t.text})

    def st_tensor(self, first):
        t = self.name()
        self.expect(":")
        data = {"name": t.text, "type": self.type(), "source": None}
        if self.accept("="):
            data["source"] = self.source()
        self.finish()
        return Statement(first.text, t.pos, data)

    st_input = st_tensor
    st_weight = st_tensor

    def source(self):
        t = self.name("a source")
        if t.kind == "name" and t.text in SOURCES and self.is_op("("):
            self.expect("(")
            attrs = {} if self.is_op(")") else self.attrs()
            self.expect(")")
            for key, (_, pos) in attrs.items():
                if key not in SOURCES[t.text]:
                    raise EinError("%s has no '%s'" % (t.text, key), pos)
            return (t.text, attrs, t.pos)
        key = self.peek()
        if key.kind != "string":
            self.fail("a tensor's name in quotes")
        self.at += 1
        return ("blob", t.text, key.text, t.pos)

    def st_output(self, first):
        items = []
        while True:
            t = self.name()
            items.append((t.text, self.type() if self.accept(":") else None, t.pos))
            if not self.accept(","):
                break
        self.finish()
        return Statement("output", first.pos, {"items": items})

    def st_operator(self):
        results = [self.name()]
        while self.accept(","):
            results.append(self.name())
        self.expect("=")
        op = self.name("an operator")
        self.expect("(")
        args = []
        while not self.is_op(")") and not self.is_op(";"):
            t = self.name("a tensor name or '_'")
            args.append((None if t.kind == "name" and t.text == "_" else t.text, t.pos))
            if not self.accept(","):
                break
        attrs = {}
        if self.accept(";"):
            attrs = {} if self.is_op(")") else self.attrs()
        self.expect(")")
        self.finish()
        return Statement("operator", op.pos, {
            "op": op.text, "results": [(t.text, t.pos) for t in results],
            "args": args, "attrs": attrs})

    def st_equation(self):
        t = self.name()
        self.expect("[")
        names = []
        if not self.is_op("]"):
            names.append(self.index_name())
            while self.accept(","):
                names.append(self.index_name())
        self.expect("]")
        self.expect("=")
        body = self.expr()
        ranges, pads = {}, []
        if self.is_word("where"):
            self.at += 1
            while True:
                self.clause(ranges, pads)
                if not self.accept(","):
                    break
        self.finish()
        return Statement("equation", t.pos, {
            "name": t.text, "indices": names, "body": body, "ranges": ranges, "pads": pads})

    def clause(self, ranges, pads):
        t = self.name("an index name or 'pad'")
        if t.text == "pad" and self.peek().kind in ("name", "string") and not self.is_word("in"):
            tensor = self.name()
            sign = -1.0 if self.accept("-") else 1.0
            v = self.next()
            if v.kind == "number":
                number = float(v.text)
            elif v.kind == "name" and v.text in ("inf", "nan"):
                number = float(v.text)
            elif v.kind == "name":
                number = ("v", v.text, v.pos)
            else:
                self.at -= 1
                self.fail("a padding value")
            pads.append((tensor.text, sign, number, tensor.pos))
            return
        self.expect_word("in")
        lo = self.sexpr()
        self.expect(":")
        hi = self.sexpr()
        if t.text in ranges:
            raise EinError("range of '%s' given twice" % t.text, t.pos)
        ranges[t.text] = (lo, hi, t.pos)

    def st_block(self, first):
        name = self.name()
        self.expect("(")
        inputs, params = [], []
        while not self.is_op(")") and not self.is_op(";"):
            inputs.append(self.name().text)
            if not self.accept(","):
                break
        if self.accept(";"):
            while not self.is_op(")"):
                t = self.name()
                params.append((t.text, self.value() if self.accept("=") else None, t.pos))
                if not self.accept(","):
                    break
        self.expect(")")
        self.expect("->")
        results = [self.name().text]
        while self.accept(","):
            results.append(self.name().text)
        self.expect("{")
        self.finish()
        names = inputs + [p[0] for p in params]
        if len(set(names)) != len(names) or len(set(results)) != len(results):
            raise EinError("a name is given twice in the head of block '%s'" % name.text, name.pos)
        return Statement("block", name.pos, {
            "name": name.text, "inputs": inputs, "params": params, "results": results, "body": []})

    def st_repeat(self, first):
        t = self.name()
        self.expect_word("in")
        lo = self.sexpr()
        self.expect(":")
        hi = self.sexpr()
        self.expect("{")
        self.finish()
        return Statement("repeat", first.pos, {"name": t.text, "lo": lo, "hi": hi, "body": []})


def parse(text):
    """Text -> list of statements; bodies of blocks and repeats are nested lists."""
    lines = logical_lines(text)
    if not lines or [t.text for t in lines[0]] != ["ein", 1]:
        raise EinError("the first line must be 'ein 1'", lines[0][0].pos if lines else (1, 1))
    top, stack = [], []
    for tokens in lines[1:]:
        if tokens[0].kind == "op" and tokens[0].text == "}":
            if len(tokens) > 1 or not stack:
                raise EinError("unexpected '}'" if not stack else "'}' must stand alone",
                               tokens[0].pos)
            stack.pop()
            continue
        s = LineParser(tokens).statement()
        (stack[-1].data["body"] if stack else top).append(s)
        if s.kind in ("block", "repeat"):
            stack.append(s)
            if len(stack) > MAX_DEPTH:
                raise EinError("nested too deeply", s.pos)
    if stack:
        raise EinError("'{' is never closed", stack[-1].pos)
    return top
