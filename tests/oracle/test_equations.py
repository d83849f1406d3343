"""The vectorised evaluator of equations against a scalar interpreter of the same tree."""

import itertools
import math

import numpy as np

import ein
import equations
import evaluate
import tensors
from checks import TESTS, check, close, fails, only, test

# ---------------------------------------------------------------- equations, scalar reference

def scalar_sub(e, env):
    if e[0] == "i":
        return e[1]
    if e[0] == "v":
        return env[e[1]]
    if e[0] == "neg":
        return -scalar_sub(e[1], env)
    a, b = scalar_sub(e[1], env), scalar_sub(e[2], env)
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0,
            "%": a % b if b else 0}[e[0]]


def scalar_compare(op, a, b):
    return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def divide(a, b):
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


SCALAR = {"relu": lambda x: x if x > 0 else 0.0 * x if x != x else 0.0, "exp": math.exp,
          "tanh": math.tanh, "erf": math.erf, "abs": abs, "neg": lambda x: -x, "log": math.log,
          "sqrt": math.sqrt, "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "floor": math.floor,
          "ceil": math.ceil, "rsqrt": lambda x: 1 / math.sqrt(x),
          "square": lambda x: x * x, "sin": math.sin, "atan": math.atan,
          "cos": math.cos, "pow": pow, "min": min, "max": max,
          "quot": lambda x, y: math.trunc(x / y), "rem": math.fmod}


class Scalar:
    """One element at a time, straight from the tree."""

    def __init__(self, program, values, eq):
        self.program, self.values, self.eq = program, values, eq

    def at(self, e, env):
        kind = e[0]
        if kind == "num":
            return e[1]
        if kind == "idx":
            return float(scalar_sub(e[1], env))
        if kind == "neg":
            return -self.at(e[1], env)
        if kind == "expr":
            return sum(self.at(x, env) * (1 if op == "+" else -1) for op, x in e[1])
        if kind == "guard":
            return float(scalar_compare(e[1], scalar_sub(e[2], env), scalar_sub(e[3], env)))
        if kind == "term":
            for op, x in e[1]:
                if op == "*" and x[0] == "guard" and self.at(x, env) == 0:
                    return 0.0
            total = 1.0
            for op, x in e[1]:
                v = self.at(x, env)
                total = total * v if op == "*" else divide(total, v)
            return total
        if kind == "reduce":
            spans = [range(lo, hi) for _, lo, hi in e[2]]
            parts = [self.at(e[3], {**env, **dict(zip([n for n, _, _ in e[2]], at))})
                     for at in itertools.product(*spans)]
            if e[1] == "sum":
                return math.fsum(parts)
            if e[1] == "prod":
                return math.prod(parts)
            return (max if e[1] == "max" else min)(parts)
        if kind == "call":
            return SCALAR[e[1]](*(self.at(x, env) for x in e[2]))
        if kind == "select":
            return self.at(e[4] if scalar_compare(e[1], self.at(e[2], env), self.at(e[3], env))
                           else e[5], env)
        t = self.program.tensors[e[1]]
        where = [int(self.at(s[1], env)) if s[0] == "at" else scalar_sub(s, env) for s in e[2]]
        where = [w - lo for w, lo in zip(where, t.lo)]
        if all(0 <= w < n for w, n in zip(where, t.shape)):
            return float(self.values[e[1]][tuple(where)])
        return self.eq.pads[e[1]]

    def run(self):
        out = np.empty([hi - lo for lo, hi in self.eq.extents])
        for at in np.ndindex(*out.shape):
            env = {n: i + lo for n, i, (lo, _) in zip(self.eq.indices, at, self.eq.extents)}
            out[at] = self.at(self.eq.body, env)
        return out


def both_ways(text, inputs=None):
    """Evaluates a model of equations only, vectorised (whole and in chunks) and element-wise."""
    program = ein.loads("ein 1\n" + text)
    given = evaluate.default_inputs(program)
    given.update(inputs or {})
    values = {n: evaluate.widen(np.asarray(a)) for n, a in given.items()}
    values.update({n: evaluate.widen(tensors.weight(program, n)) for n in program.weights})
    for node in program.nodes:
        got = equations.evaluate(node.equation, program.tensors, values)
        wanted = Scalar(program, values, node.equation).run()
        close(got, wanted, 1e-12, node.outputs[0])
        for budget in (1, 7, 40, 300):
            saved, equations.BUDGET = equations.BUDGET, budget
            try:
                close(equations.evaluate(node.equation, program.tensors, values), wanted, 1e-12,
                      "%s, budget %d" % (node.outputs[0], budget))
            finally:
                equations.BUDGET = saved
        values[node.outputs[0]] = got
    return got


XY = "model m\ninput x: f32[3,4]\ninput y: f32[4,3]\noutput z\n"
EQUATIONS = [
    "z[i,j] = x[i,j] + 2*y[j,i] - 0.5",
    "z[i] = sum(j) x[i,j] * y[j,i]",
    "z[i,k] = sum(j) x[i,j] * y[j,k] + x[i,0]",
    "z[i,k] = 0.125 * sum(j) -x[i,j] * 3 * y[j,k] / 2",
    "z[i] = sum(j,k) x[i,j] * y[j,k] * x[k,j]",
    "z[i] = max(j) x[i,j] * y[j,i]",
    "z[i] = min(j) relu(x[i,j]) + 1",
    "z[i] = prod(j) x[i,j] where i in 1:3",
    "z[] = sum(i,j) x[i,j]",
    "z[i] = sum(j,k) x[i,j] where k in 0:5",
    "z[i] = prod(k) x[i,1] where k in 0:3",
    "z[i,j] = x[i+1,j-2] where i in 0:3, j in -1:8, pad x 2.5",
    "z[i,j] = max(r,s) x[i+r-1,j+s-1] where i in 0:3, j in 0:4, r in 0:3, s in 0:3, pad x -inf",
    "z[i,j] = x[i/2,(j+1)%4] where i in 0:6, j in -3:5",
    "z[i,j] = x[(i-3)/2,(j-7)%4] * [(i-3)%2 == 0] where i in 0:9, j in 0:9, pad x 0",
    "z[i,j] = [i < 3] * x[i,j] + [i >= 3] * y[i-3,j] where i in 0:7, j in 0:3",
    "z[i,j] = x[i,j] * [i != j] * [j <= 2] / (1 + square(y[j,i]))",
    "z[i,j] = (x[i,j] * [i < j]) * ([j > 1] * y[j,i])",
    "z[i] = sum(j) [i == j] * x[i,j] + sum(j) x[i,j] * x[i,j]",
    "z[i,j] = idx(2*i-j) * x[i,j] + idx(j/2)",
    "z[i,j] = select(x[i,j] > y[j,i], exp(x[i,j]), idx(i)) - select(idx(i) == idx(j), 1, 2)",
    "z[i,j] = tanh(x[i,j]) + sqrt(abs(x[i,j])) + erf(y[j,i]) + sigmoid(x[i,j]) + rsqrt(exp(1))",
    "z[i,j] = pow(abs(x[i,j]), 1.5) + max(x[i,j], y[j,i]) + min(x[i,j], 0) + ceil(x[i,j])",
    "z[i,j] = log(1 + exp(x[i,j])) + neg(floor(x[i,j]))",
    "z[i,j] = sin(x[i,j]) * cos(y[j,i]) - sin(3)",
    "z[i,j] = atan(4 * x[i,j])",
    "z[i,j] = quot(4 * x[i,j], y[j,i]) + rem(x[i,j], 0.25)",
    "z[i] = x[i,i] where i in 0:3",
    "z[i] = sum(j) x[i,j] * (y[j,i] + sum(k) x[k,j] * y[j,k])",
    "z[i,k] = (sum(j) x[i,j] * y[j,k]) / (sum(j) exp(x[i,j]))",
    "z[i] = sum(j) exp(x[i,j]) / y[j,i] / (2 + x[i,0])",
    "z[e] = x[e/4,e%4] where e in 0:12",
    "z[i] = sum(k) x[i,k+1] where i in 0:2, k in 0:2",
    "z[i] = max(j) x[i,j] * [j > i] + min(j) y[j,i]",
    "z[i] = sum(r) x[i+r,0] * y[r,1] where i in 0:5, r in 0:3, pad x 0",
    "z[i,j] = sum(r,s) x[i+r-1,j+s-1] * y[r,s] * [(i+r)%2 == 0] where i in 0:3, j in 0:4, "
    "r in 0:3, s in 0:3, pad x 0",
    "z[i] = sum(k) x[i,0] * 2 where k in 0:0",
    "z[i] = 1 where i in 0:4",
    "z[i] = x[i/2+2,(i-1)%3] + x[-i/3+1,0] where i in -3:3, pad x 9",
    "z[i] = x[(i-3)/2,-i/2+2] where i in 0:7, pad x -3",
]


def equation_case(line):
    def body():
        both_ways(XY + line + "\n")
    body.__name__ = "equation: " + line
    return body


for LINE in EQUATIONS:
    TESTS.append(equation_case(LINE))


@test
def guards_exclude():
    x = np.array([0.0, 1.0, -4.0])
    got = only("model m\ninput x: f32[3]\noutput y\n"
               "y[i] = sum(j) [i <= j] * [i > 0] * log(x[j]) / x[i] where i in 0:3\n", {"x": x})
    check(got[0] == 0 and np.isnan(got[1]) and np.isnan(got[2]))
    got = only("model m\ninput x: f32[3]\noutput y\n"
               "y[i] = sum(j) [j > 0] * log(x[j]) * x[i] where i in 0:3\n",
               {"x": np.array([0.0, 1.0, math.e])})
    close(got, [0.0, 1.0, math.e])
    got = only("model m\ninput x: f32[3]\noutput y\ny[i] = (1/x[i]) * [i != 0]\n", {"x": x})
    check(list(got) == [0, 1, -0.25])
    got = only("model m\ninput x: f32[3]\noutput y\ny[i] = x[i+1] * [i < 2] where i in 0:3\n",
               {"x": x})
    check(list(got) == [1, -4, 0])


@test
def gathers():
    i = np.array([2, 0, 5, -1])
    head = "model m\ninput t: f32[3,2]\ninput i: i64[4]\noutput y\n"
    both_ways(head + "y[k,j] = t[@i[k],j] * t[@i[k],1-j] where pad t 7\n", {"i": i})
    both_ways(head + "y[k,j] = t[@i[3-k],@i[j]] where k in 0:4, j in 0:2, pad t -1\n", {"i": i})
    both_ways(head + "y[k] = sum(j) t[@i[k+j],j] where k in 0:4, pad t 0, pad i 1\n", {"i": i})
    fails(head + "y[k,j] = t[@i[k],j]\n", "reads outside 't'", inputs={"i": i})
    fails("model m\ninput t: f32[3]\noutput y\ny[k] = t[@t[k]]\n", "integer tensor")


@test
def ranges_below_zero():
    got = both_ways("model m\ninput x: f32[4]\noutput z\nw[t] = x[t+1] + 1 where t in -1:3\n"
                    "v[t] = w[t] * 2\nz[i] = v[i-2] + v[i] where i in 0:5, pad v 100\n")
    check(got.shape == (5,) and got[0] > 50)


@test
def range_errors():
    head = "model m\ndim N = 4\ninput x: f32[N]\ninput w: f32[5]\noutput y\n"
    fails(head + "y[h] = x[h-1] where pad x 0\n", "range of index 'h' is not determined")
    fails(head + "y[h] = x[h] + w[h]\n", "0:4 by 'x' but 0:5 by 'w'")
    fails(head + "y[h] = x[h] where h in 0:5\n", "reads outside 'x'")
    fails("model m\ninput x: f32[4]\noutput y: f32[3]\ny[h] = x[h] where h in 0:2\n", "disagrees")
    fails(head + "y[h] = x[h,0]\n", "1 axes, 2 subscripts")
    fails(head + "y[h] = x[g]\n", "'g' is not an index")
    fails(head + "y[h] = sum(h) x[h]\n", "bound twice")
    fails(head + "y[h] = x[h*h]\n", "not affine")
    fails(head + "y[h] = x[h/0] where h in 0:1\n", "must be positive")
    fails(head + "y[h] = foo(x[h])\n", "unknown function")
    check(only("model m\ninput x: f32[4]\noutput y: f32[3]\ny[h] = x[h]\n").shape == (3,))
