"""Pieces of models for fuzz_pieces.py of other types than f32, and of positions that tensors hold:
products and attention of halves, integers, truths, gathers, cells of recurrent networks."""

HALF = ["f16", "bf16", "f16"]


def cast(p, x, type, probability=0.5):
    return p.op(f"Cast({x}; to={type})") if p.chance(probability) else x


def typed(p):
    """Products and rows of halves, stored as halves or not."""
    t, m, k = p.any(*HALF), p.size(1, 5, 16, most=65), p.size(4, 8, 16, most=65)
    n = p.size(8, 5, 16, most=65)
    x, w = p.input(m, k, type=t), p.given(k, n, type=p.usual(t, t, "f32", "bf16"))
    y = p.let("m,n", f"sum(k) {x}[m,{p.odd('k', k)}]*{w}[k,n]", k=k, m=m)
    y = p.out(cast(p, y, p.any(t, "f32", "f16")), 0.2)
    bias = p.weight(n, type=p.any(t, "f32"))
    z = p.let("m,n", p.any("relu({0}[m,n] + {1}[n])", "{0}[m,n] * {1}[n]", "{0}[m,n] - {1}[n]",
                           "{0}[m,n] + {1}[n] + {2}[m,0]").format(y, bias, x))
    z = p.out(cast(p, z, p.any(t, "f16", "bf16")), 0.3)
    kind = p.rng.randrange(5)
    if kind == 0:
        p.out(cast(p, p.op(f"Softmax({z}; axis={p.any(0, 1)})"), t))
    elif kind == 1:
        p.let("m,f", f"sum(n) {z}[m,{p.odd('n', n)}]*{p.weight(n, 7, type=t)}[n,f]", out=True, n=n)
    elif kind == 2:
        p.out(cast(p, p.let("m", f"{p.any('sum', 'max')}(n) {z}[m,n]*{z}[m,n]"), t))
    elif kind == 3:
        e = p.op(f"Concat({z}, {z}; axis={p.any(0, 1)})")
        p.out(cast(p, p.op(f"Transpose({e}; perm=[1,0])"), "f32"))
    else:
        g = p.op(f"LayerNormalization({cast(p, z, 'f32', 1)}, {p.weight(n)}; axis=-1)")
        p.let("m,f", f"sum(n) {g}[m,n]*{p.weight(n, 8, type=t)}[n,f]", out=True)
    p.out(z, 0.3)


def typed_attention(p):
    """Attention over tensors and caches of halves."""
    t = p.any(*HALF)
    b, h, d = p.size(1, 2, most=2), p.any(1, 2, 4), p.any(4, 8, 16)
    l, s = p.size(1, 3, 8, 17, most=33), p.size(7, 16, 33, most=65)
    g = p.usual(h, 1)
    q, head = p.input(b, h, l, d, type=p.usual(t, "f32", "bf16")), "h" if g == h else "0"
    k, v = p.input(b, g, s, d, type=t), p.input(b, g, s, d, type=p.usual(t, t, "f32", "f16"))
    if p.chance(0.3):
        q = p.let("b,h,i,d", f"{q}[b,h,i,d]*{p.weight(d)}[d]")
    if p.chance(0.3):
        k = cast(p, p.let("b,h,j,d", f"{k}[b,h,j,d] + {p.weight(d, type=t)}[d]"), t, 0.7)
    box = dict(b=b, h=h, i=l, j=s)
    dot = p.let("b,h,i,j", f"sum(d) {q}[b,h,i,d]*{k}[b,{head},j,d]", **box)
    mask = p.usual("", f" + {p.input(b, s, type=t)}[b,j]", f" - 9*[j>i]",
                   f" + {p.weight(l, s, type='f16')}[i,j]")
    score = f"0.3*{dot}[b,h,i,j]{mask}"
    flag = p.input(b, s, type="bool")
    score = p.usual(score, f"select({flag}[b,j] == 0, -1e9, {score})",
                    f"select(idx(j) <= idx(i), {score}, -1e9)")
    x = p.let("b,h,i,j", score, **box)
    a = cast(p, p.op(f"Softmax({x}; axis=-1)"), t, 0.3)
    y = p.let("b,i,h,d", f"sum(j) {a}[b,h,i,j]*{v}[b,{head},j,d]", **box)
    p.out(cast(p, y, p.any(t, "f16")))


def integers(p):
    """Sums and products of integers, exactly; truths; what is made of both."""
    m, k, n = p.size(1, 5, 16, most=65), p.size(4, 8, 31, most=129), p.size(3, 8, most=33)
    x = p.input(m, k, type=p.any("i8", "i32", "i64", "u8"))
    w = p.weight(k, n, type=p.any("i8", "i8", "i32"), between=(-9, 9))
    kind = p.rng.randrange(6)
    if kind == 0:
        y = p.let("m,n", f"sum(k) {x}[m,k]*{w}[k,{p.odd('n', n)}]", n=n)
        p.out(cast(p, y, p.any("i32", "i64")))
    elif kind == 1:
        a = p.op(f"Cast({x}; to=f32)")
        y = p.let("m,n", f"sum(k) {a}[m,{p.odd('k', k)}]*{w}[k,n]", k=k)
        p.let("m,n", f"0.1*{y}[m,n] + {p.weight(n)}[n]", out=True)
    elif kind == 2:
        y = p.let("m,n", f"sum(k) ({x}[m,k]-{p.any(0, 3)})*{w}[k,n]")
        p.out(p.op(f"Cast({y}; to={p.any('i32', 'f32')})"))
    elif kind == 3:
        red = p.any("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
        y = p.op(f"{red}({cast(p, x, 'i32', 1)}; axes=[{p.any(0, 1)}], keepdims={p.any(0, 1)})")
        p.out(y)
        p.op(f"Cast({y}; to=f32)", out=p.chance(0.5))
    elif kind == 4:
        z = p.input(m, k, type="i32")
        a = p.op(f"Cast({x}; to=i32)")
        y = p.op(f"{p.any('Add', 'Sub', 'Mul', 'Max', 'Min')}({a}, {z})")
        p.op(f"Concat({y}, {a}; axis={p.any(0, 1)})", out=True)
    else:
        a = p.op(f"Cast({x}; to=bool)")
        c = p.op(f"Cast({p.input(m, k)}; to=bool)")
        y = p.op(f"{p.any('And', 'Or', 'Xor')}({a}, {c})")
        z = p.op(f"Where({y}, {p.input(m, k)}, {p.input(1, k)})", out=True)
        p.let("m", f"sum(k) select({y}[m,k] == 0, {z}[m,{p.odd('k', k)}], 1)", out=True, k=k, m=m)


def gather(p):
    """Rows at positions, of tables and of what products make."""
    v, e, t, f = p.any(5, 6), p.size(4, 8, most=17), p.size(1, 5, 9, most=33), p.any(3, 8)
    table = p.given(v, e)
    ids = p.weight(t, type=p.any("i32", "i64"), between=(0, v - 1))
    at, row = f"@{ids}[{p.odd('t', t)}]", dict(t=t)
    y = p.let("t,e", f"{table}[{at},{p.odd('e', e)}]", e=e, **row)
    p.out(y, 0.2)
    kind = p.rng.randrange(4)
    if kind == 0:
        y = p.let("t,e", f"{y}[t,e] + {y}[{p.odd('t', t)},e]", **row)
    elif kind == 1:
        s = p.let("t", f"sum(e) {y}[t,e]*{y}[t,e]")
        y = p.let("t,e", f"{y}[t,e]/sqrt({s}[{p.odd('t', t)}]+1)", **row)
    elif kind == 2:
        y = p.op(f"LayerNormalization({y}, {p.weight(e)}, {p.weight(e)}; axis=-1)")
    front = p.usual(f"{y}[t,e]", f"{table}[@{ids}[t],e]", f"{y}[t,e]*{table}[@{ids}[t],e]")
    y = p.let("t,f", f"sum(e) {front}*{p.weight(e, f)}[e,f]")
    gathered(p, y, table, ids, (v, t, f))


def gathered(p, y, table, ids, sizes):
    """What reads product `y` at positions."""
    v, t, f = sizes
    kind = p.rng.randrange(6)
    far = p.weight(4, type="i32", between=(0, t - 1)) if t > 1 else None
    if kind == 0 or not far:
        p.out(y)
    elif kind == 1:
        p.let("j,f", f"{y}[@{far}[j],f]", out=True)
    elif kind == 2:
        p.let("t,v", f"sum(f) {y}[t,f]*{p.weight(v, f)}[@{ids}[v%{t}],f]", out=True, v=7)
    elif kind == 3:
        p.let("f", f"{p.any('sum', 'max')}(t) {y}[t,f]*{table}[@{ids}[t],0]", out=True)
    elif kind == 4:
        p.let("j,t", f"sum(f) {y}[@{far}[j],f]*{y}[t,f]", out=True)
    else:
        s = p.let("j", f"max(f) {y}[@{far}[j],f]")
        p.let("j,f", f"exp({y}[@{far}[j],f] - {s}[j])", out=True)


def graph(p):
    """Maps over one box that read each other in several places, integers and truths among them."""
    m, n = p.size(1, 5, 16, most=65), p.size(4, 8, 31, most=129)
    real = [p.input(m, n), p.input(m, n), p.weight(m, n)]
    t = p.any("i32", "i64")
    whole = [p.input(m, n, type=t), p.weight(m, n, type=t, between=(-900, 900))]
    truth = []
    for _ in range(p.rng.randrange(4, 14)):
        a, b = p.rng.choice(real[-4:]), p.rng.choice(real)
        i, j = p.rng.choice(whole[-3:]), p.rng.choice(whole)
        kind = p.rng.randrange(8)
        if kind < 3:
            real.append(p.op(p.any("Tanh({0})", "Sigmoid({0})", "Mul({0}, {1})", "Add({0}, {1})",
                                   "Abs({0})").format(a, b)))
        elif kind == 3:
            whole.append(p.op(f"{p.any('Add', 'Sub', 'Max', 'Min')}({i}, {j})"))
        elif kind == 4:
            # Bounded: halves hold no products of such integers.
            c = p.op(f"Cast({i}; to=f32)")
            real.append(p.op(f"Tanh({p.op(f'Mul({a}, {c})')})"))
        elif kind == 5:
            whole.append(p.op(f"Cast({p.op(f'Cast({i}; to=i8)')}; to={t})"))
        elif kind == 6:
            truth.append(p.op(f"{p.any('Less', 'Greater', 'Equal')}({i}, {j})"))
        elif truth:
            real.append(p.op(f"Where({p.rng.choice(truth)}, {a}, {b})"))
    for x in (*real[3:], *whole[2:], *truth):
        p.out(x, 0.25)
    p.let("m", f"sum(n) {real[-1]}[m,n]*{real[0]}[m,n]", out=True)


ROOM = {"i8": 2 ** 7, "u8": 2 ** 8, "i32": 2 ** 31, "i64": 2 ** 53}  # i64: what f64 has, too


class Numbers:
    """Integers of several types, and below what they are by their amount: no sum wraps unless a
    cast says so."""

    def __init__(self, p):
        self.p = p
        self.values = []  # name, type, shape, bound
        shape = [p.size(1, 2, 5, 16, most=65), p.size(4, 8, 31, most=129)]
        scale = 2 ** p.any(3, 10, 22)
        x = p.let("m,n", f"{p.any('floor', 'ceil')}({scale}*max(min({p.input(*shape)}[m,n], 8), "
                  "-8))", m=shape[0], n=shape[1])
        self.keep(p.op(f"Cast({x}; to={p.any('i32', 'i64')})"), "i32", shape, 8 * scale)
        if p.lines[-1].endswith("i64)"):
            self.values[-1][1] = "i64"
        for type in (self.values[0][1], p.any("i32", "i64", "u8", "bool")):
            self.keep(p.input(*shape, type=type), type, shape, 1)
        type, most = self.values[0][1], p.any(9, 90000)
        self.keep(p.weight(*shape, type=type, between=(-most, most)), type, shape, most)

    def keep(self, name, type, shape, bound):
        self.values.append([name, type, list(shape), bound])

    def like(self, type, shape):
        return self.p.any(*[v for v in self.values if v[1] == type and v[2] == shape])

    def step(self):
        """One more operator."""
        p = self.p
        x, type, shape, bound = p.any(*self.values[-5:])
        if type in ("bool", "i8", "u8"):
            to = p.any("i32", "i64")
            return self.keep(p.op(f"Cast({x}; to={to})"), to, shape, max(bound, 1))
        y, _, _, other = self.like(type, shape)
        kind, axis = p.rng.randrange(12), p.rng.randrange(len(shape))
        if kind < 3:
            op, most = p.any(("Add", bound + other), ("Sub", bound + other), ("Mul", bound * other),
                             ("Max", max(bound, other)), ("Min", max(bound, other)))
            if most < ROOM[type]:
                self.keep(p.op(f"{op}({x}, {y})"), type, shape, most)
        elif kind == 3:
            by = p.any(2, 3, 97, 1000)
            w = p.weight(1, type=type, between=(by, by))
            op, most = p.any(("Div", bound), ("Mod", by))
            self.keep(p.op(f"{op}({x}, {w})"), type, shape, most)
        elif kind == 4:
            to = p.any("i32", "i64", "u8", "i8")
            self.keep(p.op(f"Cast({x}; to={to})"), to, shape, min(bound, ROOM[to]))
        elif kind == 5:
            t = p.op(f"{p.any('Less', 'Greater', 'Equal', 'LessOrEqual')}({x}, {y})")
            self.keep(t if p.chance(0.5) else p.op(f"Where({t}, {y}, {x})"),
                      *((["bool", shape, 1]) if p.lines[-1].startswith(t + " ") else
                        [type, shape, max(bound, other)]))
        elif kind == 6:
            perm = p.rng.sample(range(len(shape)), len(shape))
            self.keep(p.op(f"Transpose({x}; perm={perm})"), type, [shape[i] for i in perm], bound)
        elif kind == 7:
            to = [n * (1 + (k == axis)) for k, n in enumerate(shape)]
            if max(to) < 300:
                self.keep(p.op(f"Concat({x}, {y}; axis={axis})"), type, to, max(bound, other))
        elif kind < 10:
            self.reduce(x, type, shape, bound, axis)
        elif kind == 10 and bound * shape[axis] < ROOM[type]:
            self.keep(p.op(f"CumSum({x}; axis={axis}, exclusive={p.any(0, 1)}, reverse="
                           f"{p.any(0, 1)})"), type, shape, bound * shape[axis])
        elif kind == 11:
            self.keep(p.op(f"{p.any('Abs', 'Neg')}({x})"), type, shape, bound)

    def reduce(self, x, type, shape, bound, axis):
        p = self.p
        to = [1 if k == axis else n for k, n in enumerate(shape)]
        op, most = p.any(("ReduceSum", bound * shape[axis]), ("ReduceSum", bound * shape[axis]),
                         ("ReduceMax", bound), ("ReduceMin", bound), ("ArgMax", shape[axis]))
        if most >= ROOM[type]:
            return
        if op == "ArgMax":
            y = p.op(f"ArgMax({x}; axis={axis}, keepdims=1, select_last_index={p.any(0, 1)})")
            type = "i64" if type == "i64" else type
            y = y if type == "i64" else p.op(f"Cast({y}; to={type})")
        else:
            y = p.op(f"{op}({x}; axes=[{axis}], keepdims=1)")
        self.keep(y, type, to, most)
        if p.chance(0.6) and most + bound < ROOM[type]:
            self.keep(p.op(f"{p.any('Add', 'Sub')}({x}, {y})"), type, shape, most + bound)


def numbers(p):
    """Integers beyond what floats have digits for, by all operators that take them; what they come
    to as floats, read at several places."""
    made = Numbers(p)
    given = len(made.values)
    for _ in range(p.rng.randrange(4, 14)):
        made.step()
    for x, *_ in made.values[given:]:
        p.out(x, 0.25)
    x, type, shape, bound = made.values[-1]
    f = p.op(f"Cast({x}; to=f32)")
    m, n = shape
    g = p.let("m,n", p.any("tanh({0})", "0.5*{0}", "exp(min({0}, 1))").format(
        f"{2 / max(bound, 1):.3g}*{f}[m,n]"), m=m, n=n)
    p.let("m,n", p.any(f"{g}[m,n] + {g}[(m+1)%{m},{p.odd('n', n)}]",
                       f"{g}[m,n]*{g}[{p.odd('m', m)},n] + {f}[m,n]/{max(bound, 1)}"), out=True,
          m=m, n=n)


def cell(p):
    """Steps of a recurrent network: maps that finish one product's sums at several places."""
    b, h, gates = p.size(1, 2, 5, most=17), p.size(4, 5, 8, most=33), p.any(2, 3, 4)
    w, x = p.weight(gates * h, h), p.input(p.any(2, 3), b, gates * h)
    state, kept = p.input(b, h), p.input(b, h)
    for t in range(2):
        pre = p.let("b,g", f"sum(k) {state}[b,{p.odd('k', h)}]*{w}[g,k] + {x}[{t},b,g]", k=h)
        if p.chance(0.2):
            pre = p.let("b,g", f"{pre}[b,g] + {p.weight(gates * h)}[g]")
        order = p.any("{0}*%d+h" % h, "h*%d+{0}" % gates)
        at = [f"{pre}[b,{order.format(i)}]" for i in range(gates)]
        new = f"sigmoid({at[0]})*{kept}[b,h] + sigmoid({at[-1]})*tanh({at[1]})"
        kept = p.out(p.let("b,h", p.usual(new, f"{new} + {pre}[b,0]"), h=h), 0.2)
        body = f"sigmoid({at[gates // 2]})*tanh({kept}[b,{p.usual('h', p.odd('h', h))}])"
        state = p.out(p.let("b,h", body, h=h), 0.2)
    p.out(state)


KINDS = {"gather": gather, "cell": cell, "graph": graph, "numbers": numbers}
TYPED = {"typed": typed, "typed-attention": typed_attention, "integers": integers}
