"""Pieces of models for fuzz_pieces.py that are linear, or nearly: products and convolutions with
what stands in front of them and behind, and what changes places with them: pools, enlarged and
padded images, parts side by side, other orders."""

from math import prod

from fuzz_base import ranges


def behind(p, y, index, terms):
    """A map behind `y`: some of the terms, an activation."""
    body = f"{y}[{index}]"
    for _ in range(p.any(0, 1, 2, 3)):
        body = f"{body} {p.any('+', '+', '+', '-', '*')} {p.any(*terms)}"
    return p.any("%s", "relu(%s)", "tanh(%s)", "max(%s, 0)", "select(%s > 0.5, 1, 0)",
                 "sigmoid(%s)", "min(max(%s, 0), 6)") % body


def product(p):
    """A product with a map in front and one behind; what reads it."""
    b, m = p.size(1, 2, 3, most=3), p.size(1, 4, 6, 17, 32, most=129)
    k = p.size(1, 4, 8, 20, most=65)
    n = p.size(m, 1, 6, 8, 32, most=129) if b * m < 200 else p.any(4, 8, 9)
    box = dict(b=b, m=m, n=n)
    x, w = p.input(b, m, k), p.given(k, n)
    front = p.usual(f"{x}[b,m,k]", f"relu({x}[b,m,k])", f"{x}[b,m,{p.odd('k', k)}]",
                    f"{x}[b,{p.odd('m', m)},k]", f"{x}[b,m,k]*{p.weight(b, k)}[b,k]",
                    f"{x}[b,m,k]*{p.input(b, m)}[b,m]", f"({x}[b,m,k] + {p.weight(k)}[k])")
    third = p.usual("", "", f"*{p.input(b, n)}[b,n]", "*[k<=n]", "*[k<=m]",
                    f"*{p.input(b, k, n)}[b,k,n]", f"*{x}[b,m,k]")
    other = p.usual(f"{w}[k,n]", f"{w}[k,n]", f"{w}[k,n]*sigmoid({p.weight(n)}[n])",
                    f"tanh({w}[k,n])", f"({w}[k,n] - {p.weight(k)}[k])")
    t = p.let("b,m,n", f"{p.usual('', '0.5*')}sum(k) {front}*{other}{third}", **box)
    p.out(t, 0.15)
    same, bias, row = p.input(b, m, n), p.weight(n), p.input(m)
    terms = [f"{bias}[n]", f"{same}[b,m,n]", f"{same}[b,{p.odd('m', m)},{p.odd('n', n)}]",
             f"{row}[m]", f"{bias}[{p.odd('n', n)}]", f"{t}[b,m,n]", f"{same}[{b - 1}-b,m,n]",
             f"{t}[b,{p.odd('m', m)},{p.odd('n', n)}]", "[m<n]", f"{x}[b,m,n%{k}]",
             f"0.3*{t}[b,m,0]", f"{t}[b,0,n]"]
    order = p.any("n,b,m", "m,b,n", "n,m,b", "b,n,m", "m,n,b")
    terms += [f"{p.input(*[box[i] for i in order.split(',')])}[{order}]"] * 2
    if m == n:
        terms += [f"{t}[b,n,m]", f"{same}[b,n,m]", f"{bias}[m]"]
    y = p.let("b,m,n", behind(p, t, "b,m,n", terms), **box)
    product_reader(p, y, t, (b, m, n))
    if p.chance(0.3):
        p.let("b,m,n", f"sum(k) {front}*{p.weight(k, n)}[k,n] + {y}[b,m,n]", out=True, **box)


def product_reader(p, y, t, sizes):
    b, m, n = sizes
    kind = p.rng.randrange(7)
    if kind == 0:
        p.out(y)
    elif kind == 1:
        p.let("n,b,m", f"{y}[b,m,n]", out=True)
    elif kind == 2:
        p.let("b,m,j", f"sum(n) {y}[b,m,{p.odd('n', n)}]*{p.weight(n, 7)}[n,j]", out=True, n=n)
    elif kind == 3:
        p.let("b,m", f"{p.any('sum', 'max', 'min')}(n) {y}[b,m,n]", out=True)
    elif kind == 4:
        p.let("b,n", f"{p.any('sum', 'max')}(m) {y}[b,m,n]*{p.any(y, t)}[b,m,n]", out=True)
    elif kind == 5:
        p.let("e", f"{y}[e/{m * n},e/{n}%{m},e%{n}]", out=True, e=b * m * n)
    else:
        z = p.op(f"Reshape({y}; shape=[{b * n},{m}])")
        p.op(f"Softmax({z}; axis={p.any(0, 1)})", out=True)


def summand(p, box):
    """A product of that shape: of a matrix with a map in front, or of windows of lines."""
    b, m, n = box["b"], box["m"], box["n"]
    if p.chance(0.35):
        c, r, stride = p.any(3, 8, 21, 32), p.any(1, 3, 5), p.any(1, 1, 2)
        x, w = p.input(b, c, m * stride), p.weight(n, c, r)
        return p.let("b,m,n", f"sum(c,r) {x}[b,c,{stride}*m+r-{r // 2}]*{w}[n,c,r]", pad=x, **box)
    k = p.any(8, 33, 64, 100, 260)
    x, w = p.input(b, m, k), p.usual(p.weight(k, n), p.input(k, n))
    front = p.usual(f"{x}[b,m,k]", f"{x}[b,m,k]", f"relu({x}[b,m,k])", f"{x}[b,{m - 1}-m,k]",
                    f"({x}[b,m,k] + {p.weight(k)}[k])")
    return p.let("b,m,n", f"{p.usual('', '0.5*')}sum(k) {front}*{w}[k,n]", **box)


def summands(p):
    """Sums of products, as a kernel may add them up, and of what stands in the way of that."""
    box = dict(b=p.usual(1, 1, 2), m=p.any(24, 70, 129, 200), n=p.any(16, 40, 72, 130))
    first, second, bias = summand(p, box), summand(p, box), p.weight(box["n"])
    s, t, c = f"{first}[b,m,n]", f"{second}[b,m,n]", f"{bias}[n]"
    body = p.usual(f"{s} + {t}", f"relu({s} + {c} + {t})", f"tanh({t} + {s} + {c})",
                   f"max({s} + {t}, {c})", f"sigmoid({s} + {t})*tanh({t} + {s} + {c})",
                   f"{s} - {t}", f"2*{s} + {t}", f"{s} + {t} + {t}", f"tanh({s}*{t})",
                   f"relu({s}) + {t}")
    if p.chance(0.2):
        body = f"{body} + {summand(p, box)}[b,m,n]"
    y = p.let("b,m,n", body, **box)
    p.out(p.any(first, second), 0.1)
    product_reader(p, y, first, tuple(box.values()))


def digit_product(p):
    """Products whose rows, terms and columns are digits, one behind the other."""
    m, k, n = p.any(4, 6, 8, 16), p.any(4, 8, 12, 16), p.any(4, 6, 8, 16)
    x = p.input(m, k)
    if p.chance(0.5):
        x = p.out(p.let("m,k", f"{p.any('tanh', 'relu')}({x}[m,k])"), 0.12)
    for _ in range(p.any(1, 2, 3)):
        (at, its), (row, rs), (column, cs) = (
            p.digits("kl", k), p.digits("mo", m), p.digits("fg", n))
        factor = f"{p.weight(k, n)}[{at},{column}]"
        if p.chance(0.3):
            factor = f"{p.input(*its.values(), *cs.values())}[{','.join([*its, *cs])}]"
        order = [*rs, *cs]
        if p.chance(0.4):
            p.rng.shuffle(order)
        index, out = ",".join(order), ranges(rs, cs)
        t = p.let(index, f"sum({','.join(its)}) {x}[{row},{at}]*{factor}", **ranges(out, its))
        p.out(t, 0.1)
        first = at.replace("k", "0").replace("l", "0")
        same = p.input(*[out[i] for i in order])
        y = p.let(index, p.any(f"relu({t}[{index}])", f"{t}[{index}] + {same}[{index}]",
                               f"{t}[{index}] + {p.weight(*cs.values())}[{','.join(cs)}]",
                               f"tanh({t}[{index}])*{x}[{row},{first}]"), **out)
        parts = {**apart(p, "m", rs), **apart(p, "k", cs)}
        x = p.let("m,k", f"{y}[{','.join(parts[i] for i in order)}]", m=m, k=n)
        p.out(x, 0.2)
        k, n = n, p.any(4, 6, 8, 16)
    p.out(x)


def apart(p, number, its):
    """What iterators are of a number that counts all of them."""
    if len(its) == 1:
        return {i: number for i in its}
    (a, m), (b, n) = its.items()
    high, low = p.any(((a, m), (b, n)), ((b, n), (a, m)))
    return {high[0]: f"{number}/{low[1]}", low[0]: f"{number}%{low[1]}"}


def convolution(p):
    """A convolution, or nearly one, a map behind, what reads both."""
    n, c, h = p.size(1, 2, most=3), p.size(1, 2, 4, 8, most=17), p.size(5, 6, 8, most=17)
    f, w = p.size(c, 1, 4, 8, most=33), p.any(h, 4, 7)
    x = p.input(n, c, h, w)
    if p.chance(0.4):
        x = p.op(f"{p.any('Relu', 'Sigmoid')}({x})")
    r, o = p.any(1, 2, 3, 3), p.any(0, 1, 1, -1, 2)
    dilation, stride = p.any(1, 1, 2), p.any(1, 1, 2)
    filters, oh = p.weight(f, c, r, r), p.usual(h, h, max(1, h - 1), h + 2)
    row = p.usual(f"h*{stride}+{dilation}*r-{o}", f"h*{stride}+{dilation}*({r - 1}-r)-{o}",
                  f"h*{stride}+r/2-{o}", f"{h - 1}-h+r-{o}", f"(h+{o}-r)/2")
    channel = p.usual("c", "c", f"{c - 1}-c", p.odd("c", c))
    factor = p.usual("", "", f" * {p.input(n, f)}[n,f]", f" * {p.weight(c)}[c]", " * [r<=s]",
                     f" * {p.weight(oh)}[h]", f" * [(h+r)%2==0]")
    y = p.let("n,f,h,w", f"sum(c,r,s) {x}[n,{channel},{row},w+s-{p.usual(o, 0)}]*"
              f"{filters}[f,c,r,s]{factor}".replace("--", "+"), pad=x, h=oh, w=w)
    p.out(y, 0.15)
    z, b = p.input(n, f, oh, w), p.weight(f)
    terms = [f"{b}[f]", f"{z}[n,f,h,w]", f"{z}[n,f,{p.odd('h', oh)},w]", f"{b}[{p.odd('f', f)}]",
             f"{y}[n,f,h,{w - 1}-w]", f"{z}[n,0,h,w]", f"{y}[n,{p.odd('f', f)},h,w]",
             f"{z}[n,f,0,0]", f"{z}[n,f,h/2,w]"]
    image_reader(p, p.let("n,f,h,w", behind(p, y, "n,f,h,w", terms), h=oh, w=w), (n, f, oh, w))


def windows(p):
    """Windows of channels by themselves or in groups, in front or last, forwards or backwards."""
    n, g, h = p.size(1, 2, most=3), p.any(1, 2, 4), p.size(5, 6, 9, most=33)
    c, f = p.usual(1, 2, 3), p.usual(1, 2, 4)
    last, w = p.chance(0.4), p.any(h, 4, 7)
    x = p.input(*((n, h, w, g * c) if last else (n, g * c, h, w)))
    if p.chance(0.4):
        x = p.op(f"{p.any('Relu', 'Tanh')}({x})")
    r, o = p.any(1, 2, 3, 5), p.any(0, 1, 1, 2)
    stride, dilation = p.any(1, 1, 2), p.any(1, 1, 2)
    oh = p.usual(h, (h + stride - 1) // stride, h + 1)
    weights = p.weight(g, f, c, r, r)
    row, column = f"h*{stride}+{dilation}*r-{o}", f"w+s-{o}"
    guard = p.usual("", "", " * [r<=s]", f" * {p.weight(g * f)}[g*{f}+f]")
    if p.chance(0.25):  # a transposed one
        oh, row = 2 * h, f"(h+{o}-r)/2"
        guard = f" * [(h+{o}-r)%2==0]"
    group = p.usual("g", "g", f"{g - 1}-g", f"(g+1)%{g}")
    channel = p.usual(f"({group})*{c}+c", f"({group})*{c}+c", f"c*{g}+{group}")
    at = f"n,{row},{column},{channel}" if last else f"n,{channel},{row},{column}"
    index = p.usual("n,h,w,g,f" if last else "n,g,f,h,w", "n,g,f,h,w", "n,f,g,h,w", "n,g,h,f,w")
    y = p.let(index, f"sum(c,r,s) {x}[{at}]*{weights}[g,f,c,r,s]{guard}", pad=x, h=oh, w=w, n=n,
              g=g, f=f)
    p.out(y, 0.2)
    extent = dict(n=n, g=g, f=f, h=oh, w=w)
    same, bias = p.input(*[extent[i] for i in index.split(",")]), p.weight(g, f)
    terms = [f"{bias}[g,f]", f"{same}[{index}]", f"{bias}[g,0]", f"{y}[{index}]",
             f"{same}[{index.replace('h', p.odd('h', oh))}]"]
    z = p.let(index, behind(p, y, index, terms), **extent)
    if p.chance(0.4):
        p.out(z)
    elif p.chance(0.5):
        p.let("n,g,f", f"{p.any('sum', 'max')}(h,w) {z}[{index}]", out=True)
    else:
        p.let("n,h,w,k", f"sum(g,f) {z}[{index}]*{p.weight(g, f, 5)}[g,f,k]", out=True)


def image_reader(p, y, sizes):
    n, f, h, w = sizes
    kind = p.rng.randrange(8)
    if kind == 0:
        p.out(y)
    elif kind == 1:
        red, step = p.any("max", "sum", "min"), p.any(1, 2)
        p.let("n,f,h,w", f"{red}(r,s) {y}[n,f,{step}*h+r-1,w+s-1]", out=True, pad=y, r=3,
              s=p.any(2, 3), h=p.any(max(1, h // 2), h // 2 + 1), w=w)
    elif kind == 2:
        p.let("n,f", f"sum(h,w) {y}[n,f,h,w]/{h * w}", out=True, h=p.usual(h, max(1, h - 1)), w=w)
    elif kind == 3:
        p.let("n,g,h,w", f"sum(f) {y}[n,f,{p.odd('h', h)},w]*{p.weight(3, f)}[g,f]", out=True, h=h)
    elif kind == 4:
        p.let("n,h,w,f", f"{y}[n,f,h,w]*2", out=True)
    elif kind == 5:
        p.let("n,f,h,w", f"{y}[n,f,(h-1)/2,w/2]", out=True, pad=y, h=2 * h + 1, w=2 * w)
    elif kind == 6:
        pool = p.let("n,f,h,w", f"sum(r,s) {y}[n,f,2*h+r-{p.any(0, 1)},2*w+s]", pad=y, r=2, s=2,
                     h=h // 2 + 1, w=w // 2 + 1)
        p.let("n,g,h,w", f"sum(f) {pool}[n,f,h,w]*{p.weight(3, f)}[g,f]", out=True)
    else:
        mixed = p.let("n,f,h,w", f"sum(g) {y}[n,g,h,w]*{p.weight(4, f)}[f,g]")
        p.let("n,f,h,w", f"sum(r,s) {mixed}[n,{p.usual('f', 'f+1', '3-f')},h*2+r,w*2+s]", out=True,
              pad=mixed, r=2, s=2, h=max(1, h // 2), w=max(1, w // 2), f=4)


def line_map(p, x, n, c, l):
    """A linear map of x[n,c,l] that sums no channels; with its channels and length."""
    box = dict(n=n, c=c, l=l)
    kind = p.rng.randrange(12)
    if kind == 0:
        a, o = p.any(2, 3, 4), p.any("", "+1", "-1")
        return p.let("n,c,l", f"{x}[n,c,(l{o})/{a}]", pad=x, **dict(box, l=l * a)), c, l * a
    if kind == 1:
        return p.let("n,c,l", f"{x}[n,c,(l+1)/2]*[l%2=={p.any(0, 1)}] + {x}[n,c,l/2]", pad=x,
                     **dict(box, l=2 * l)), c, 2 * l
    if kind == 2:
        factor = p.any("", "*0.5")
        return p.let("n,c,l", f"({x}[n,c,l] + {x}[n,c,{l - 1}-l]){factor}", **box), c, l
    if kind == 3:
        a = p.any(2, 2, 4)
        channel, to = p.usual("c", "c+1", "c-1", f"{c - 1}-c"), max(1, l // a + p.any(0, 0, 1))
        taps = p.usual(a, a, a + 1)
        factor = p.any("", f"/{a}", f"*{p.weight(taps)}[r]", "*[r<=l]")
        red = p.usual("sum", "sum", "max")
        return p.let("n,c,l", f"{red}(r) {x}[n,{channel},{a}*l+r-{p.any(0, 1)}]{factor}", pad=x,
                     r=taps, **dict(box, l=to)), c, to
    if kind == 4:
        more = p.any(3, c)
        other = p.input(n, more, l)
        parts = p.any([x, other], [other, x], [x, other, x])
        made = p.op(f"Concat({', '.join(parts)}; axis=1)")
        return made, c * (len(parts) - 1) + more, l
    if kind == 5:
        to = l + p.any(0, 1, 2, 3)
        return p.let("n,c,l", f"{x}[n,c,l-{p.any(1, 2)}]", pad=x, **dict(box, l=to)), c, to
    if kind == 6:
        to = 2 * l - 1
        return p.let("n,c,l", f"0.25*{x}[n,c,l/2] + 0.75*{x}[n,c,(l+1)/2]",
                     **dict(box, l=to)), c, to
    if kind == 7:
        return p.let("n,c,l", f"{x}[n,c,l]*[l>{p.any(0, 2)}] + {x}[n,c,l]*{p.weight(l)}[l]",
                     **box), c, l
    if kind == 8:
        fewer = p.usual(c, max(1, c - 1))
        return p.let("n,c,l", f"{x}[n,c+1,l]", pad=x, **dict(box, c=fewer)), fewer, l
    if kind == 9:
        return p.let("n,c,l", f"{x}[n,{p.odd('c', c)},{p.odd('l', l)}]", **box), c, l
    if kind == 10:
        return p.let("n,c,l", f"{x}[{n - 1}-n,c,l]*{p.weight(c)}[c]", **box), c, l
    return p.let("n,c,l", f"({x}[n,c,l+1] - {x}[n,c,l-1])*{p.any('0.5', '[c>0]')}", pad=x,
                 **box), c, l


def lines(p):
    """Linear maps in front of sums of channels and behind them: all of which change places."""
    n, c, l = p.any(1, 2), p.any(3, 4, 6, 8, 16, 32), p.size(6, 8, 9, 12, 16)
    x = p.input(n, c, l)
    if p.chance(0.3):
        x = p.let("n,c,l", f"relu({x}[n,c,l])")
    for _ in range(p.any(0, 1, 1, 2)):
        if l < 70:
            x, c, l = line_map(p, x, n, c, l)
    p.out(x, 0.08)
    for _ in range(p.any(1, 1, 2)):
        f, r = p.any(1, 2, 4, 6, 8), p.any(1, 1, 3)
        some = p.usual(c, c, max(1, c - 1))
        channel = p.usual("c", "c", f"{some - 1}-c", "c-1")
        bias = p.any("", "", f" + {p.weight(f)}[f]")
        w = p.weight(f, c, r)
        x = p.let("n,f,l", f"sum(c,r) {x}[n,{channel},l+r-{r // 2}]*{w}[f,c,r]{bias}", pad=x,
                  c=some, r=r, n=n, l=l)
        p.out(x, 0.1)
        c = f
        for _ in range(p.any(0, 1, 1, 2)):
            if 4 <= l <= 70:
                x, c, l = line_map(p, x, n, c, l)
    if p.chance(0.4):
        x = p.let("n,l,f", f"sum(c) {x}[n,c,l]*{p.weight(c, p.any(1, 3, 16))}[c,f]")
    p.out(x)


def images(p):
    """The same of images, one behind the other."""
    n, c, h, w = p.any(1, 2), p.any(2, 4, 6, 16), p.size(4, 5, 6, 8, most=17), p.any(4, 6, 8)
    x = p.input(n, c, h, w)
    while p.count < 4 or p.chance(0.5):
        made = image_map(p, x, n, c, h, w)
        if made:
            x, (n, c, h, w) = made
            p.out(x, 0.1)
    p.out(x)


def image_map(p, x, n, c, h, w):
    box, kind = dict(n=n, c=c, h=h, w=w), p.rng.randrange(9)
    if kind in (0, 2) and c * h * w > 6000:
        return None
    if kind == 0:
        a, b = p.any((2, 2), (2, 1), (3, 2))
        to = (n, c, h * a, w * b)
        tail = p.any("", "", "*[h%2==0]", f" + {p.weight(c)}[c]")
        return p.let("n,c,h,w", f"{x}[n,c,(h-{p.any(0, 0, 1)})/{a},w/{b}]{tail}", pad=x,
                     **dict(zip("nchw", to))), to
    if kind == 1:
        a = p.any(2, 2, 3, 4)
        b, to_h, to_w = p.any(a, 1, 2), max(1, h // a + p.any(0, 0, 1)), w
        to_w = max(1, w // b)
        channel = p.usual("c", "c+1", f"{c - 1}-c")
        tail = p.any("", "*0.25", f"/{a * b}", "*[r<=s]")
        to = (n, c, to_h, to_w)
        return p.let("n,c,h,w", f"{p.any('sum', 'sum', 'max')}(r,s) {x}[n,{channel},{a}*h+r-"
                     f"{p.any(0, 0, 1)},{b}*w+s]{tail}", pad=x, r=p.usual(a, a, a + 1), s=b,
                     **dict(zip("nchw", to))), to
    if kind == 2:
        f, r, o = p.any(1, 2, 4, 8), p.any(1, 2, 3, 3), p.any(0, 1, 1)
        step, by, across = p.usual(1, 1, 2, 3), p.usual(1, 1, 2, 3), p.usual(1, 1, 2, 3)
        to = (n, f, -(-h // step), -(-w // across))
        return p.let("n,f,h,w", f"sum(c,r,s) {x}[n,c,{step}*h+{by}*r-{o},{across}*w+s-"
                     f"{p.any(o, 0, 1)}]*{p.weight(f, c, r, r)}[f,c,r,s]", pad=x,
                     **dict(zip("nfhw", to))), to
    if kind in (3, 4):
        f, some = p.any(1, 2, 4, 8), p.usual(c, max(1, c - 1))
        channel = p.usual("c", f"{some - 1}-c")
        bias = p.any("", f" + {p.weight(f)}[f]")
        row = p.usual("h", "h/2", f"{h - 1}-h")
        return p.let("n,f,h,w", f"sum(c) {x}[n,{channel},{row},w]*{p.weight(f, c)}[f,c]{bias}",
                     **dict(box, c=some)), (n, f, h, w)
    if kind == 5:
        more = p.any(c, 2, 3)
        other = p.input(n, more, h, w)
        if more == c and p.chance(0.5):
            other = p.let("n,c,h,w", f"tanh({x}[n,c,h,w])")
        parts = p.any([x, other], [other, x], [x, other, x])
        to = (n, (len(parts) - 1) * c + more, h, w)
        return p.op(f"Concat({', '.join(parts)}; axis=1)"), to
    if kind == 6:
        to = (n, c, h + p.any(0, 1, 2), w + 1)
        return p.let("n,c,h,w", f"{x}[n,c,h-{p.any(0, 1, 2)},w-{p.any(0, 1)}]", pad=x,
                     **dict(zip("nchw", to))), to
    if kind == 7:
        tail = p.any("", f"+ {p.weight(c)}[c]", f"+ {x}[n,c,{h - 1}-h,w]")
        return p.let("n,c,h,w", f"{x}[n,c,h,w]*{p.weight(c)}[c] {tail}", **box), (n, c, h, w)
    return p.let("n,c,h,w", f"sum(r) ({x}[n,c,h+r,w] {p.any('+', '-')} {x}[n,c,h,w])*"
                 f"{p.weight(3)}[r]", pad=x, r=3, **box), (n, c, h, w)


def chain(p):
    """Maps across reshapes, concatenations, slices, reductions."""
    shape = [p.size(1, 2, 4, most=4), p.any(3, 4, 6), p.any(2, 4, 8)]
    values = {p.input(*shape): shape}
    for _ in range(p.any(3, 4, 6, 8)):
        x = p.any(*list(values)[-2:])
        made = chain_map(p, x, values)
        if made:
            values[made[0]] = made[1]
            p.out(made[0], 0.12)
    if len(values) > 1:
        p.out(list(values)[-1])


def chain_map(p, x, values):
    shape, kind = values[x], p.rng.randrange(8)
    names = "ijk"[:len(shape)]
    index, box = ",".join(names), dict(zip(names, shape))
    twisted = ",".join(p.odd(i, n) for i, n in box.items())
    axis = p.rng.randrange(len(shape))
    alike = [v for v in values if values[v] == shape]
    if kind == 0:
        total = prod(shape)
        to = p.any([total], [total // 2, 2] if total % 2 == 0 else [total, 1], [1, total, 1],
                   [shape[0], total // shape[0]], [total // shape[-1], shape[-1]],
                   [shape[-1], total // shape[-1]])
        return p.op(f"Reshape({x}; shape={to})"), to
    if kind == 1:
        return p.let(index, f"{p.any('tanh', 'relu', 'sigmoid')}({x}[{twisted}])", **box), shape
    if kind == 2:
        perm = p.rng.sample(range(len(shape)), len(shape))
        return p.op(f"Transpose({x}; perm={perm})"), [shape[i] for i in perm]
    if kind == 3:
        return p.let(index, f"{x}[{index}] {p.any('+', '*', '-')} {p.any(*alike)}[{twisted}]",
                     **box), shape
    if kind == 4:
        red = p.any("ReduceMax", "ReduceSum", "ReduceMean", "ReduceL2", "ReduceSumSquare")
        y = p.op(f"{red}({x}; axes=[{axis}], keepdims=1)")
        at = ",".join("0" if k == axis else i for k, i in enumerate(names))
        return p.let(index, f"{x}[{index}] + 0.1*{y}[{at}]", **box), shape
    if kind == 5 and shape[axis] <= 8:
        to = [n * (1 + (k == axis)) for k, n in enumerate(shape)]
        return p.op(f"Concat({x}, {p.any(*alike)}; axis={axis})"), to
    if kind == 6:
        return p.op(f"{p.any('Softmax', 'Softmax', 'LogSoftmax')}({x}; axis={axis})"), shape
    if kind == 7 and shape[axis] > 1:
        to = [n - (k == axis) for k, n in enumerate(shape)]
        at = ",".join(i + "+1" * (k == axis) for k, i in enumerate(names))
        return p.let(index, f"{x}[{at}]", **dict(zip(names, to))), to
    return None


def correlation(p):
    """Products of rows with columns near them, along one axis or two, with steps and dilations."""
    c, h, w = p.any(8, 32, 64), p.size(2, 4, 7), p.size(13, 16, 33, most=65)
    i, j = p.any(1, 3, 5), p.any(3, 5, 9)
    step, by, down = p.usual(1, 1, 2), p.usual(1, -1, 2, -2, 3), p.usual(1, -1, 2)
    x, y = p.input(c, h, w), p.input(c, h + p.any(0, 0, i - 1), step * w + p.any(0, 0, 2 * j))
    across = f"{step}*w+{by}*j-{p.any(0, by * (j // 2), 1)}".replace("--", "+").replace("+-", "-")
    place = f"c,h+{down}*i-{p.any(0, down * (i // 2))},{across}".replace("--", "+").replace(
        "+-", "-")
    index = p.usual("i,j,h,w", "h,w,i,j", "h,w,j,i", "j,w,i,h")
    own = f"{x}[c,h,{p.odd('w', w)}]"
    factors = p.usual(f"{own}*{y}[{place}]", f"{y}[{place}]*{own}", f"0.5*{own}*{y}[{place}]")
    t = p.let(index, f"sum(c) {factors}", pad=y, h=h, w=w, i=i, j=j)
    p.out(t, 0.2)
    # No thresholds, which rounding may pass.
    z = p.let(index, p.any("relu({0})", "tanh({0})", "{0}*[w<j]", "{0} + {1}[w]", "{0}*{0}").format(
        f"{t}[{index}]", p.weight(w)), h=h, w=w, i=i, j=j)
    kind = p.rng.randrange(3)
    if kind == 0:
        p.out(z)
    elif kind == 1:
        p.let("h,w", f"{p.any('sum', 'max')}(i,j) {z}[{index}]", out=True, h=h, w=w, i=i, j=j)
    else:
        v = p.input(c, h, w)
        p.let("c,h,w", f"sum(i,j) {z}[{index}]*{v}[c,h+i-{i // 2},w+j-{j // 2}]", pad=v, out=True,
              h=h, w=w, i=i, j=j)


def volumes(p):
    """Windows along three axes, each with steps, distances and places outside or none."""
    c, extents = p.any(1, 4, 12), [p.size(2, 3, 6), p.size(5, 9, 16), p.size(16, 30, 33, most=65)]
    sizes, taps, places = [], [], []
    for i, (name, n) in enumerate(zip("thw", extents)):
        k, step, by = p.any(1, 2, 3, 3, 5), p.usual(1, 1, 2), p.usual(1, 1, 2, 3)
        before = p.any(0, by * (k // 2), 1)
        taps.append(k)
        sizes.append(max(1, (n + 2 * before - by * (k - 1) - 1) // step + 1))
        places.append(f"{step}*{name}+{by}*{'pqr'[i]}-{before}")
    x, kind = p.input(c, *extents), p.rng.randrange(4)
    image = f"{x}[c,{','.join(places)}]"
    body = {0: f"sum(p,q,r) {image}*{p.given(c, *taps)}[c,p,q,r]",
            1: f"{p.any('max', 'min')}(p,q,r) {image}",
            2: f"sum(p,q,r) {image}*{p.weight(*taps)}[{p.odd('p', taps[0])},q,r]",
            3: f"0.2*sum(p,q,r) {image}"}[kind]
    box = dict(zip("cthwpqr", [c] + sizes + taps))
    y = p.let(p.usual("c,t,h,w", "t,c,h,w", "c,h,t,w"), body, pad=x, out=p.chance(0.8), **box)
    if y not in p.outputs:
        p.op(f"Tanh({y})", out=True)


def together(p):
    """Products of one tensor, or of one weight, that may be one product; parts of a product."""
    m, k = p.size(1, 4, 9, 16, most=65), p.size(4, 8, 12, most=33)
    x, other = p.input(m, k), p.input(m, k)
    made = []
    for _ in range(p.any(2, 3, 4)):
        n = p.size(4, 8, 8, 12, most=33)
        source = p.usual(x, other)
        row, at = p.usual("m", p.odd("m", m)), p.usual("k", p.odd("k", k))
        w = p.weight(k, n) if p.chance(0.8) else p.input(k, n)
        if p.chance(0.3):  # transposed
            w = p.weight(n, k)
            body = f"sum(k) {source}[{row},{at}]*{w}[n,k]"
        else:
            body = f"sum(k) {source}[{row},{at}]*{w}[k,n]"
        y = p.let("m,n", body + p.any("", f" + {p.weight(n)}[n]"), m=m, n=n, k=k)
        if p.chance(0.4):
            y = p.let("m,n", p.any("tanh({0}[m,n])", "{0}[m,n]*sigmoid({0}[m,n])",
                                   "{0}[m,n] + {1}[m,n%" + str(k) + "]").format(y, x))
        made.append((y, n))
    y, n = p.any(*made)
    alike = [z for z, size in made if size == n]
    if len(alike) > 1:
        p.let("m,n", f"{alike[0]}[m,n] {p.any('+', '*', '-')} {alike[1]}[m,{p.odd('n', n)}]",
              out=True, m=m, n=n)
    if p.chance(0.5):
        p.op(f"Concat({', '.join(z for z, _ in made)}; axis=1)", out=True)
    for z, _ in made:
        p.out(z, 0.3)
    p.out(y)


KINDS = {"product": product, "summands": summands, "digit-product": digit_product,
         "convolution": convolution, "windows": windows, "lines": lines, "images": images,
         "chain": chain, "together": together, "correlation": correlation, "volumes": volumes}
