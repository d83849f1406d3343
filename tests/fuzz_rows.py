"""Pieces of models whose rows have statistics, for fuzz_pieces.py: norms and softmax in front of
products, over rows, parts and digits of them, and sums of one another."""

from fuzz_base import ranges


def norm(p):
    """Statistics, a row operation made of them, products that read it."""
    rows, heads, width = p.size(1, 3, 5, 7, 16), p.size(1, 2, 4, most=4), p.size(4, 6, 8, most=17)
    e = heads * width
    x = p.input(rows, e)
    if p.chance(0.4):
        x = p.out(p.let("m,e", f"{x}[m,e] + sum(k) {x}[m,k] * {p.weight(e, e)}[k,e]"), 0.12)
    every = p.usual(e, e, max(1, e - 1), width)
    row = p.usual("m", "m", f"{rows - 1}-m", f"(m+1)%{rows}", "0")
    term = f"{x}[{p.usual('m', row)},{p.odd('k', e) if every == e else 'k'}]"
    scale = p.usual("", "", f" * {p.weight(e)}[k]")
    total = p.out(p.let("m", f"sum(k) {term}{scale}", k=every, m=rows), 0.12)
    mean = f"{total}[m]/{p.usual(e, e, every, width, max(1, e - 1))}"
    if p.chance(0.4):
        mean = p.out(p.let("m", mean, m=rows), 0.12) + "[m]"
    other = p.usual(mean, mean, f"{total}[{row}]/{e}", f"0.5*{mean}", f"{x}[m,0]", "0")
    last = p.usual(e, e, every)
    body = p.usual(f"sum(k) ({x}[m,k]-{mean})*({x}[m,k]-{other})",
                   f"sum(k) {x}[m,k]*{x}[m,{p.odd('k', e)}]",
                   f"sum(k) square({x}[m,k]-{other})", f"{p.any('sum', 'max')}(k) abs({x}[m,k])")
    square = p.out(p.let("m", body, k=last, m=rows), 0.12)
    root = f"sqrt(abs({square}[{p.usual('m', 'm', row)}])/{p.usual(e, e, width)} + 1)"
    gain, bias = p.weight(e, between=(0.5, 1.5)), p.weight(e)
    read = f"{x}[m,{p.usual('e', 'e', p.odd('e', e))}]-{p.usual(mean, mean, other, '0')}"
    y = p.let("m,e", f"({read})/{root}*{gain}[{p.usual('e', 'e', p.odd('e', e))}] + {bias}[e]",
              m=rows, e=e)
    p.out(y, 0.25)
    for _ in range(p.usual(1, 1, 2)):
        norm_product(p, x, y, rows, heads, width)


def norm_product(p, x, y, rows, heads, width):
    """A product of rows `y`, or of what they are made of."""
    e, f = heads * width, p.size(1, 3, 8, 16, 32, most=65)
    kind = p.rng.randrange(7)
    if kind == 0:
        w = p.usual(p.weight(e, f), p.input(e, f))
        p.let("m,f", f"sum(e) {y}[m,e]*{w}[{p.usual('e', p.odd('e', e))},f]", out=True)
    elif kind == 1:
        p.let("m,h,f", f"sum(k) {y}[m,h*{width}+k]*{p.weight(width, f)}[k,f]", out=True, h=heads)
    elif kind == 2:
        at = p.any(f"k*{heads}+h", f"h*{width}+k")
        p.let("m,f", f"sum(k,h) {y}[m,h*{width}+k]*{p.weight(e, f)}[{at},f]", out=True,
              h=heads, k=width)
    elif kind == 3:
        p.let("m,f", f"sum(e) {y}[m,{p.odd('e', e)}]*{p.weight(e, f)}[e,f]", out=True, e=e)
    elif kind == 4:
        row = p.usual("m", f"{rows - 1}-m")
        p.let("m,f", f"sum(e) {y}[{row},e]*{p.weight(e, f)}[e,f] + {p.any(x, y)}[m,f%{e}]",
              out=True, m=rows)
    elif kind == 5:  # rows that are not added up whole, and what is added behind
        most = max(e - 1, 1)
        p.let("m,f", f"sum(e) {y}[m,e+{e - most}]*{p.weight(most, f)}[e,f]", out=True)
    else:
        z = p.let("m,f", f"tanh({p.input(rows, f)}[m,f])")
        p.let("m,f", f"sum(e) {y}[m,e]*{p.weight(f, e)}[f,e] + {z}[m,f]", out=True, e=e)


def digit_norm(p):
    """Norms whose rows and columns products count by several iterators."""
    rows, e = p.size(1, 3, 4, 6, 8, 12, 16), p.any(8, 16, 24, 32)
    x = p.input(rows, e)
    if p.chance(0.5):
        x = p.out(p.let("m,e", f"{x}[m,e] + sum(k) {x}[m,k] * {p.weight(e, e)}[k,e]"), 0.12)
    gain, bias = p.weight(e, between=(0.5, 1.5)), p.weight(e)
    kind = p.rng.randrange(4)
    if kind == 0:
        y = p.op(f"LayerNormalization({x}, {gain}, {bias}; axis=-1, epsilon=0.01)")
    elif kind == 1:
        total = p.let("m", f"sum(k) {x}[m,k]*{x}[m,k]")
        y = p.let("m,e", f"{x}[m,e]/sqrt({total}[m]/{e}+0.1)*{gain}[e]")
    elif kind == 2:
        total = p.out(p.let("m", f"sum(k) {x}[m,k]"), 0.12)
        y = p.let("m,e", f"{x}[m,e] - {total}[m]/{e}")
    else:
        at, its = p.digits("kl", e)
        mean = p.let("m", f"sum({','.join(its)}) {x}[m,{at}]/{e}", **its, m=rows)
        square = p.let("m", f"sum({','.join(its)}) square({x}[m,{at}]-{mean}[m])", **its, m=rows)
        y = p.let("m,e", f"({x}[m,e]-{mean}[m])/sqrt({p.out(square, 0.12)}[m]/{e}+0.5)*{gain}[e]"
                         f"+{bias}[e]")
    p.out(y, 0.3)
    if p.chance(0.3):
        copied_norm(p, y, rows, e)
    for _ in range(p.any(1, 2, 3)):
        f = p.size(4, 8, 16, 32, 64, most=65)
        (at, its), (row, rs), (column, cs) = (
            p.digits("kl", e), p.digits("mo", rows), p.digits("fg", f))
        out = list(rs) + list(cs)
        if p.chance(0.4):
            p.rng.shuffle(out)
        behind = p.usual("", "", f" + {p.weight(f)}[{column}]", " * 0.5",
                         f" + {x}[{row},{column}]" if f <= e else "")
        p.let(",".join(out), f"sum({','.join(its)}) {y}[{row},{at}]*{p.weight(e, f)}[{at},{column}]"
              + behind, out=True, **ranges(rs, its, cs))


def copied_norm(p, y, rows, e):
    """A product of a norm by way of a copy in another order."""
    (at, its), (row, rs) = p.digits("kl", e), p.digits("mo", rows)
    order = list(rs) + list(its)
    if p.chance(0.3):
        p.rng.shuffle(order)
    copy = p.let(",".join(order), f"{y}[{row},{at}]", **ranges(rs, its))
    p.out(copy, 0.3)
    p.let(",".join([*rs, "f"]), f"sum({','.join(its)}) {copy}[{','.join(order)}]*"
          f"{p.weight(e, 16)}[{at},f]", out=True, **ranges(rs, its))


def statistics(p):
    """Sums of one box, of which one is made of the other, and what reads both."""
    extent = {"n": p.size(1, 2, most=3), "c": p.size(2, 4, 6, most=17),
              "l": p.size(4, 8, 30, most=129)}
    x = p.input(*extent.values())
    over = p.any("l", "c,l", "c", "n,l", "n,c,l")
    kept = ",".join(i for i in "ncl" if i not in over)
    count = 1
    for i in over.split(","):
        count *= extent[i]
    fewer = dict(extent)
    if p.chance(0.3 * (1 - p.calm)) and over[0] != "n":
        fewer[over[0]] = max(1, fewer[over[0]] - 1)

    def read():
        at = [p.usual(i, i, p.odd(i, extent[i])) for i in "ncl"]
        return f"{x}[{','.join(at)}]"

    total = p.let(kept, f"sum({over}) {read()}", **p.usual(extent, fewer))
    mean = f"{total}[{kept}]/{p.usual(count, count, count + 1)}"
    square = p.let(kept, f"sum({over}) ({read()} - {mean})*({read()} - {p.usual(mean, '0.5')})",
                   **extent)
    p.out(total, 0.2)
    p.out(square, 0.3)
    body = p.any(read(), f"abs({read()})", f"{read()}*{read()}")
    extra = p.let(kept, f"{p.any('max', 'sum', 'min')}({over}) {body}", **extent)
    behind = p.any("", f"+ 0.1*{extra}[{kept}]", f"* {p.weight(extent['c'])}[c]")
    y = p.let("n,c,l", f"({read()} - {mean})/sqrt(abs({square}[{kept}])/{count} + 1) {behind}",
              out=True, **extent)
    p.out(extra, 0.3)
    if p.chance(0.4):
        p.let("n,l,d", f"sum(c) {y}[n,c,l]*{p.weight(extent['c'], 6)}[c,d]", out=True)


def softmax(p):
    """Softmax over parts of rows, and what reads it."""
    rows, heads, keys = p.size(1, 3, 8, 17), p.size(1, 2, 3, most=3), p.size(2, 4, 8, 40, most=65)
    e = heads * keys
    x = p.input(rows, e)
    extents = dict(m=rows, h=heads, k=keys)
    at = p.usual(f"h*{keys}+k", f"k*{heads}+h", f"h*{keys}+{p.odd('k', keys)}", f"(h+k)%{e}")
    low, mine = p.usual(at, f"h*{keys}+k"), p.usual("h", f"{heads - 1}-h")
    top = p.out(p.let("m,h", f"max(k) {x}[m,{low}]", **extents), 0.1)
    total = p.let("m,h", f"sum(k) exp({x}[m,{p.usual(at, at, 'k')}]-{top}[m,{mine}])", **extents)
    p.out(total, 0.1)
    y = p.let("m,e", f"exp({x}[m,e]-{top}[m,e/{keys}])/{total}[m,"
              f"{p.usual(f'e/{keys}', f'e%{heads}')}]", m=rows, e=e)
    p.out(y, 0.5)
    kind = p.rng.randrange(5)
    if kind == 0:
        p.let("m,f", f"sum(e) {y}[m,{p.odd('e', e)}]*{p.weight(e, 5)}[e,f]", out=True, e=e)
    elif kind == 1:
        p.let("m,h", f"{p.any('sum', 'max')}(k) {y}[m,h*{keys}+k]*{x}[m,k]", out=True, h=heads,
              k=keys)
    elif kind == 2:
        p.let("m,h,f", f"sum(k) {y}[m,h*{keys}+k]*{p.weight(heads, keys, 3)}[h,k,f]", out=True)
    elif kind == 3:
        p.let("e,m", f"{y}[m,e] * 2", out=True)
    else:  # the weights of the same row's values: reductions of one row, one behind the other
        body = f"sum(k) {y}[m,h*{keys}+{p.odd('k', keys)}]*{x}[m,{p.usual(at, f'h*{keys}+k')}]"
        mean = p.let("m,h", body, **extents)
        p.let("m,h", f"sqrt(abs({mean}[m,{p.usual('h', mine)}])+1)/{total}[m,h]", out=True,
              m=rows, h=heads)


def places(p):
    """Where rows are largest or smallest, and the extrema themselves."""
    n, c, k = p.size(1, 2, 3), p.size(3, 4), p.size(5, 8, 37, most=129)
    x = p.any(p.input(n, c, k), p.input(n, c, k, type="i32"))
    if p.chance(0.5):
        x = p.out(p.let("n,c,k", f"floor(2*{x}[n,c,k])"), 0.3)
    kind = p.rng.randrange(3)
    if kind == 0:
        axis, last = p.any(0, 1, 2, -1), p.any(0, 1)
        y = p.op(f"{p.any('ArgMax', 'ArgMin')}({x}; axis={axis}, keepdims=1, "
                 f"select_last_index={last})", out=True)
        if p.chance(0.5):
            p.op(f"Cast({y}; to=f32)", out=True)
        return
    extents = dict(n=n, c=c, k=k)
    red, other, low = p.any(("max", "min", k), ("max", "max", -1), ("min", "min", k))
    best = p.out(p.let("n,c", f"{red}(k) {x}[n,c,{p.odd('k', k)}]", **extents), 0.5)
    at = p.usual("k", "k", f"2*k+1", f"{k}-k")
    far = p.usual(low, 3 * k if other == "min" else -1, 0)
    holds = p.usual("==", "==", ">=", "!=")
    place = p.let("n,c", f"{other}(k) select({x}[n,c,{p.odd('k', k)}] {holds} {best}[n,c], "
                  f"idx({at}), {far})", **extents)
    if kind == 1:
        p.out(place)
    else:
        p.let("n,c", f"0.5*{place}[n,{p.usual('c', p.odd('c', c))}] - {best}[n,c]", out=True,
              n=n, c=c)


def running(p):
    """Sums of what comes before, after, up to a place."""
    n, t, c = p.size(1, 2), p.size(5, 17, 40, most=129), p.size(1, 3, 8)
    x = p.input(n, t, c)
    if p.chance(0.3):
        p.op(f"CumSum({x}; axis={p.any(1, 2)}, exclusive={p.any(0, 1)}, reverse={p.any(0, 1)})",
             out=True)
    bound = p.usual("r <= i", "r < i", "r >= i", f"r <= i-{p.any(1, 3)}", "r <= i/2", "r != i",
                    "r <= 2*i")
    term = p.usual(f"{x}[n,r,c]", f"{x}[n,r,c]*{x}[n,r,0]", f"{x}[n,r,c]*{x}[n,i,c]",
                   f"exp({x}[n,r,c])", f"{x}[n,{p.odd('r', t)},c]")
    long = p.usual(t, t, t + 2, max(1, t - 1)) if "i,c" not in term else t
    y = p.let("n,i,c", f"{p.usual('sum', 'sum', 'max')}(r) {term} * [{bound}]", n=n, i=long, c=c,
              r=t)
    p.out(y, 0.3)
    p.let("n,i,c", p.any(f"{y}[n,i,c]/(1+idx(i))", f"tanh({y}[n,{p.odd('i', long)},c])",
                         f"{y}[n,i,c] - {y}[n,i/2,c]"), out=True, n=n, i=long, c=c)


def moved_norm(p):
    """Norms whose rows are read elsewhere: windows of an image, rolled, and back."""
    h, w, s, t = p.size(1, 2, 3), p.size(1, 2, 3), p.size(1, 2, 3), p.size(1, 2, 3)
    high, wide, e = h * s, w * t, p.any(8, 8, 11, 16, 24)
    x = p.input(high, wide, e)
    y = p.op(f"LayerNormalization({x}, {p.weight(e)}, {p.weight(e)}; axis=-1, epsilon=0.01)")
    down, right = p.any(0, s // 2, 1), p.any(0, t // 2, 1)
    row, column = f"(g*{s}+i+{down})%{high}", f"(o*{t}+j+{right})%{wide}"
    order = p.usual("g,o,i,j,e", "g,o,i,j,e", "g,i,o,j,e", "i,o,e,g,j")
    r = p.let(order, f"{y}[{row},{column},e]", g=h, o=w, i=s, j=t, e=e)
    p.out(r, 0.2)
    p.out(y, 0.1)
    q = p.let("g,o,i,j,f", f"sum(e) {r}[{order}]*{p.weight(e, e)}[e,f]", g=h, o=w, i=s, j=t, f=e)
    up, left = f"(a+{high - down})%{high}", f"(b+{wide - right})%{wide}"
    gain = p.usual("", "", f" * {p.weight(e)}[f]")
    back = f"{q}[({up})/{s},({left})/{t},({up})%{s},({left})%{t},f]{gain}"
    p.let("a,b,f", back + p.usual(f" + {x}[a,b,f]", "", f" + {p.weight(e)}[f]"), out=True, a=high,
          b=wide, f=e)


def front(p):
    """What norms and softmax along one of three dimensions are of, and others that read it."""
    a, b, c = p.size(1, 2, 3, 7), p.size(1, 3, 6, 9), p.size(4, 8, 33, 64, 100, most=130)
    dims = dict(i=a, j=b, k=c)
    x, z = p.input(a, b, c), p.input(*p.usual((a, b, c), (a, c), (c,)))
    at = p.lines[-1].count(",")
    other = f"{z}[{('k', 'i,k', 'i,j,k')[at]}]"
    order = p.usual("i,j,k", "i,j,k", "i,k,j", "j,i,k")
    index = p.usual("i,j,k", "i,j,k", f"i,j,{p.odd('k', c)}")
    v = p.let(order, f"{p.any('tanh', 'abs', 'relu')}({x}[{index}]) {p.any('+', '*')} {other}",
              **{i: dims[i] for i in order.split(",")})
    p.out(v, 0.35)
    read = f"{v}[{p.usual(order, order, order, order.replace('k', p.odd('k', c)))}]"
    rows = p.usual("i,j", "i,j", "i,k", "j,k")
    along = next(i for i in "ijk" if i not in rows)
    top = p.let(rows, f"max({along}) {read}", **dims)
    total = p.let(rows, f"sum({along}) {p.any('exp', 'abs')}({read}-{top}[{rows}])", **dims)
    p.out(total, 0.1)
    if p.chance(0.25):
        return p.let(rows, f"{top}[{rows}] + log({total}[{rows}]+1)", out=True)
    y = p.let("i,j,k", f"exp({read}-{top}[{rows}])/({total}[{rows}]+1)", out=True, **dims)
    if p.chance(0.4):
        p.let("i,j,k", f"{y}[i,j,k] + 0.5*{read}", out=True, **dims)


KINDS = {"norm": norm, "moved-norm": moved_norm, "front": front, "digit-norm": digit_norm,
         "statistics": statistics, "softmax": softmax, "places": places, "running": running}
