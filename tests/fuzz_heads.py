"""Pieces of models for fuzz_pieces.py that are attention, or nearly: masks of all kinds and several
at once, biases, groups of heads, bands, caches, rotations, sums of weights that are none."""

LOWEST = ["-3.4028234e38", "-1e9", "log(0)", "-30000", "-10", "0"]
ABSORBING = ["-1e9", "-30000"]  # of a score that is added: some of its digits


def condition(p, batch, keys):
    """Which keys a row attends to."""
    shift, far = p.any(0, 0, 1, 2, -2), p.any(1, 3, 5)
    block, by, steep = p.any(2, 3, 4, 5), p.any(2, 3), p.any(3, 1000, 50000000)
    own = f"{p.input(batch, keys)}[b,j]" if p.chance(0.2) else None
    if own:
        return p.any(f"{own} > 0", f"{own} > {p.any(-9, 9)}", f"{own} == {own}")
    return p.any(
        f"idx(j) <= idx(i)+{shift}", f"idx(j) < idx(i)-{far}", f"idx(j)+{far} > idx(i)",
        f"idx(i/{block}) == idx(j/{block})", f"idx(i%{by}) == idx(j%{by})", f"idx(j) < {far}",
        f"idx(j) >= {far}", "idx(i)*2 >= idx(j)", f"idx(i-j) < {far}", f"abs(idx(i-j)) <= {far}",
        f"idx(j/{block}) <= idx(i/{by})", "idx(i+j) >= 4", f"idx(i) > {shift}",
        f"max(idx(j-i), idx(i-j-{far})) <= 0", "min(idx(j-i), idx(3-i)) <= 0",
        f"idx({keys - 1}-j) >= idx(i)", f"idx(j) != idx({block}*i)",
        f"idx(i/{block}) > idx(j/{by})", f"idx(j) <= {steep}*idx(i)+{far}",
        f"idx(j) >= idx({steep}*i-{far})", f"idx({steep}*j) <= idx(i)+{far}",
        f"idx(j)+1000000 > idx(i)", f"idx({steep}*j-{steep}*i) <= {far}")


def masked(p, score, batch, rows, keys, lows=LOWEST):
    """`score` with no mask or with one, or several. A number that is added leaves of a score what
    f32 has room for: nothing, beside the lowest one, once, or nearly all."""
    count = p.any(0, 1, 1, 2, 3)
    for last in range(count, 0, -1):
        holds, form = condition(p, batch, keys), p.rng.randrange(8)
        low = p.any(*lows)
        if low in ABSORBING and (last > 1 or form < 5):
            low = p.any("-10", "log(0)" if "log(0)" in lows else "-20")
        lows = [n for n in lows if n != "-3.4028234e38" or low != n]
        if form == 0:
            score = f"({score} + select({holds}, 0, {low}))"
        elif form == 1:
            score = f"({score} - {p.any(3, 9)}*[{p.any('j>i', 'j<i', '(i+j)%3==0', 'i/2<j')}])"
        elif form == 2:
            size, at = p.any(((1, rows), "0,0,i,j"), ((batch, 1), "b,0,0,j"),
                             ((batch, rows), "b,0,i,j"))
            mask = p.let("b,h,i,j", f"select({holds}, 0, {low})", b=size[0], h=1, i=size[1],
                         j=keys)
            score = f"({score} + {mask}[{at}])"
        elif form == 3:
            score = f"({score} + {p.given(rows, keys)}[{p.odd('i', rows)},{p.odd('j', keys)}])"
        elif form == 4:
            score = f"({score} + {p.given(batch, keys)}[b,{p.odd('j', keys)}])"
        elif form == 5:
            score = f"select({holds}, {low}, {score})"
        else:
            score = f"select({holds}, {score}, {low})"
    return score


def attention(p):
    """A product, what is nearly a softmax spelled out, a second product."""
    b, l, d = p.size(1, 2, 3, most=3), p.size(1, 5, 8, 13, 17), p.size(2, 4, 5, 8, most=17)
    s, v = p.size(l, 6, 9, 32, most=65), p.size(d, 3, 8, 16)
    rows, box = dict(b=b, i=l), dict(b=b, i=l, j=s)
    query, key, value = p.input(b, l, d), p.input(b, s, d), p.input(b, s, v)
    key = query if s == l and p.chance(0.2) else key
    value = key if v == d and p.chance(0.2) else value
    depth = p.usual(d, d, max(1, d - 1))
    at = f"{p.usual('b', 'b', '0', f'{b - 1}-b')},{p.odd('j', s)}"
    at += "," + p.usual("d", "d", f"{depth - 1}-d", "d/2")
    dot = p.let("b,i,j", f"sum(d) {query}[b,{p.odd('i', l)},d]*{key}[{at}]", **box, d=depth)
    scale = p.usual("0.5", "1", "-0.3", f"0.2*{p.weight(b)}[b]")
    score = masked(p, f"{scale}*{p.out(dot, 0.05)}[b,i,j]", b, l, s, lows=["-20"])
    score = p.usual(score, score, f"{score} + {p.weight(l)}[i]", f"{score} + 0.1*idx(i-j)",
                    f"tanh({score})", f"relu({score})")
    bare, row = p.chance(0.15), p.usual("i", "i", p.odd("i", l))
    # Of weights of which the largest is not 1 halves have room for some.
    score = f"max(min({score}, 4), -4)" if bare or row != "i" else score
    x = p.let("b,i,j", score, **box) + "[b,i,j]" if p.chance(0.8) else f"({score})"
    every = p.usual(s, s, s, max(1, s - 1))
    top = None if bare else p.let("b,i", f"max(j) {x}", **dict(box, j=every))
    most = f"{top}[b,{row}]" if top else "2"
    sink = f"0.3*{p.weight(l)}[i]" if top and p.chance(0.2) else None
    if sink:
        most = p.let("b,i", f"max({top}[b,{row}], {sink})", **rows) + "[b,i]"
    weight = f"exp({p.usual('', '', '0.9*')}{x} - {most})"
    if p.chance(0.7):
        weight = p.let("b,i,j", weight, **box) + "[b,i,j]"
    every = p.usual(s, s, s, max(1, s - 1))
    factor = p.usual("", "", f" * abs({key}[b,j,0])", " * [j>0]")
    total = p.out(p.let("b,i", f"sum(j) {weight}{factor}", **dict(box, j=every)), 0.08)
    if top:
        p.out(top, 0.05)
    den = p.usual(f"({total}[b,i]+0.1)", f"({total}[b,{p.odd('i', l)}]+1)")
    if s > 1 and not factor and p.chance(0.5):
        den = f"{total}[b,i]"
    if sink and p.chance(0.7):
        den = f"({den} + exp({sink} - {most}))"
    second(p, (query, key, value), weight, den, (b, l, s, d, v))


def second(p, tensors, weight, den, sizes):
    """The second product, divided before or after it."""
    (query, key, value), (b, l, s, d, v) = tensors, sizes
    rows, box = dict(b=b, i=l), dict(b=b, i=l, j=s)
    every = p.usual(s, s, s, max(1, s - 1))
    j = p.usual("j", "j", p.odd("j", s))
    val = f"{value}[b,{j},c]"
    val = p.usual(val, val, f"{value}[b,{j},{v - 1}-c]", f"{val}*{key}[b,{j},0]", f"{val}*[j!=i]",
                  f"{val}*{p.weight(l, s)}[i,j]", f"tanh({val})", f"{value}[0,{j},c]")
    some, form = dict(box, j=every, c=v), p.rng.randrange(6)
    if form == 0:
        a = p.out(p.let("b,i,j", f"{weight}/{den}", **box), 0.05)
        y = p.let("b,i,c", f"sum(j) {a}[b,i,j]*{val}", **some)
    elif form == 1:
        y = p.let("b,i,c", f"(sum(j) {weight}*{val})/{den}", **some)
    elif form == 2:
        a = p.let("b,i,c", f"sum(j) {weight}*{val}", **some)
        y = p.let("b,i,c", f"{a}[b,{p.usual('i', 'i', p.odd('i', l))},c]/{den}", **rows, c=v)
    elif form == 3:
        holds = p.any("idx(i-j) > 0", "idx(i+j) > 3", f"{key}[b,j,0] > 0", f"{query}[b,i,0] > 0")
        y = p.let("b,i,c", f"sum(j) select({holds}, {weight}/{den}, 0)*{val}", **some)
    elif form == 4:
        y = p.let("b,i,c", f"sum(j) {weight}*{val}*{query}[b,i,0]/{den}", **some)
    else:
        y = p.let("b,c,i", f"sum(j) {weight}*{val}/{den}", **some)
        y = p.let("b,i,c", f"{y}[b,c,i]", **rows, c=v)
    if p.chance(0.6):
        p.out(y)
    else:
        p.let("i,b,c", f"{y}[b,{p.usual('i', p.odd('i', l))},c] + {query}[b,i,c%{d}]", out=True,
              i=l)


def projected(p, x, head, width, out, e):
    """A function that reads heads of a projection of `x`, or of `x` itself."""
    heads = out // width
    if p.chance(0.5):
        w = p.weight(out, e)
        y = p.let("b,h,i,d", f"sum(e) {x}[b,i,e]*{w}[h*{width}+d,e]", h=heads, d=width)
        if p.chance(0.4):
            y = turned(p, y, heads, width)
        return lambda i: f"{y}[b,{head},{i},d]"
    return lambda i: f"{x}[b,{i},({head})*{width}+d]"


def turned(p, x, heads, width):
    """Rotated by position, scaled or with a bias: what loads may compute."""
    half = max(1, width // 2)
    at = f"{x}[b,h,i,d]"
    body = p.any(f"{at}*(1 + 0.01*idx(i))",
                 f"{at} + {p.weight(heads, width)}[h,d]", f"0.5*{at}", f"tanh({at})")
    if width % 2 == 0 and p.chance(0.5):
        body = (f"{at}*{p.weight(half)}[d%{half}] + (2*idx(d/{half})-1)*"
                f"{x}[b,h,i,(d+{half})%{width}]*{p.weight(half)}[d%{half}]*idx(i)")
    y = p.let("b,h,i,d", body, h=heads, d=width)
    if p.chance(0.3):  # transposed as exporters have it, and back
        t = p.op(f"Transpose({y}; perm=[0,2,3,1])")
        y = p.op(f"Transpose({t}; perm=[0,3,1,2])")
    return p.out(y, 0.05)


def heads(p):
    """Attention of heads, keys perhaps shared, with masks; what exporters write."""
    b, h, d = p.size(1, 2, most=3), p.any(1, 2, 4, 6), p.size(4, 8, 6, most=17)
    l, s = p.size(1, 4, 7, 8, 12, 16), p.size(6, 8, 12, 33, most=65)
    s = l if p.chance(0.5) else s
    group = p.usual(h, 1, *[g for g in (2, 3) if h % g == 0])
    e = h * d
    box = dict(b=b, h=h, i=l, j=s)
    x = p.input(b, l, e)
    z = x if s == l and p.chance(0.5) else p.input(b, s, e)
    shared = "h" if group == h else "0" if group == 1 else p.usual(f"h/{h // group}",
                                                                   f"h%{group}")
    query = projected(p, x, "h", d, e, e)
    key, value = projected(p, z, shared, d, group * d, e), projected(p, z, shared, d, group * d, e)
    dot = p.let("b,h,i,j", f"sum(d) {query('i')}*{key(p.odd('j', s))}", **box,
                d=p.usual(d, d, max(1, d - 1)))
    score = p.usual(f"0.3*{dot}[b,h,i,j]", f"tanh({dot}[b,h,i,j])",
                    f"0.3*{dot}[b,h,i,j] + {p.weight(h, l, s)}[h,i,j]",
                    f"0.3*{dot}[b,h,i,j] - 0.1*idx(h+1)*abs(idx(i-j))")
    t = p.let("b,h,i,j", masked(p, score, b, l, s), **box)
    a = p.out(p.op(f"Softmax({t}; axis={p.usual(-1, -1, 2)})"), 0.05)
    weight = f"{a}[b,h,i,j]"
    weight = p.usual(weight, weight, f"select(idx(j)<=idx(i), {weight}, 0)",
                     f"select({weight} == {weight}, {weight}, 0)",
                     f"select({condition(p, b, s)}, {weight}, 0)",
                     f"{a}[b,h,{p.odd('i', l)},j]", weight + "*[j<=i]")
    every = p.usual(s, s, max(1, s - 1))
    order = p.usual("b,h,i,d", "b,i,h,d", "h,b,i,d", "b,h,d,i")
    y = p.let(order, f"sum(j) {weight}*{value('j')}", **dict(box, j=every, d=d))
    if p.chance(0.3):
        p.out(y)
        return
    at = ",".join({"h": f"e/{d}", "d": f"e%{d}"}.get(i, i) for i in order.split(","))
    o = p.out(p.let("b,i,e", f"{y}[{at}]", b=b, i=l, e=e), 0.1)
    p.let("b,i,f", f"sum(e) {o}[b,i,e]*{p.weight(e, e)}[e,f] + {x}[b,i,f]", out=True)


def exported(p):
    """As heads, in operators: reshapes, transpositions, expanded keys, masks as tensors."""
    b, g, r, d = p.size(1, 2, most=3), p.any(1, 2, 3), p.any(1, 2, 3), p.size(4, 8, most=17)
    l, s = p.size(1, 4, 7, 12, most=17), p.size(6, 9, 33, most=129)
    s = l if p.chance(0.4) else s
    h = g * r
    x = p.input(b, l, h * d)
    q = p.op(f"Transpose({p.op(f'Reshape({x}; shape=[{b},{l},{h},{d}])')}; perm=[0,2,1,3])")

    def cache():
        c = p.input(b, g, s, d)
        if p.chance(0.3):
            c = p.op(f"Transpose({p.input(b, s, g, d)}; perm=[0,2,1,3])")
        if r == 1:
            return c
        c = p.op(f"Expand({p.op(f'Unsqueeze({c}; axes=2)')}; shape=[{b},{g},{r},{s},{d}])")
        return p.op(f"Reshape({c}; shape=[{b},{h},{s},{d}])")

    key, value = cache(), cache()
    dot = p.op(f"MatMul({q}, {p.op(f'Transpose({key}; perm=[0,1,3,2])')})")
    kind = p.rng.randrange(4)
    if kind == 0:
        t = p.let("b,h,i,j", masked(p, f"0.3*{dot}[b,h,i,j]", b, l, s), b=b, h=h, i=l, j=s)
    elif kind == 1:
        holds, low = condition(p, b, s), p.any(*LOWEST[:3])
        flag = p.let("b,h,i,j", f"select({holds}, {p.any('1, 0', '0, 1')})", b=b, h=1, i=l, j=s)
        low = p.let("", low)
        t = p.op(f"Where({p.op(f'Cast({flag}; to=bool)')}, {dot}, {low})")
    elif kind == 2:
        t = p.op(f"Add({dot}, {p.given(b, 1, p.any(1, l), s)})")
    else:
        t = dot
    a = p.op(f"Softmax({t}; axis={p.usual(-1, 3, 2)})")
    if p.chance(0.2):
        zero = p.let("", "0")
        a = p.op(f"Where({p.op(f'IsNaN({a})')}, {zero}, {a})")
    y = p.op(f"MatMul({a}, {value})")
    if p.chance(0.5):
        y = p.op(f"Transpose({y}; perm=[0,2,1,3])")
        y = p.op(f"Reshape({y}; shape=[{b},{l},{h * d}])")
    p.out(p.op(f"Mul({y}, {y})") if p.chance(0.1) else y)


def band(p):
    """Rows that attend to keys beside them, with a dilation."""
    b, m, d = p.size(1, 2, most=3), p.size(9, 12, 20, most=65), p.size(4, 6, 8, most=17)
    w, dilation = p.any(1, 2, 3, 4), p.any(1, 1, 2, 3, -1, -2)
    n = p.usual(2 * w + 1, w + 1, 2 * w)
    x, z = p.input(b, m, d), p.input(b, m, p.any(d, 5))
    width = d if p.chance(0.3) else None
    z = x if width else z

    def at(shift=0):
        return p.usual(f"m+{dilation}*j-{w * dilation + shift}", f"m+{dilation}*(j-{w})",
                       f"m+j-{w}", f"2*m+{dilation}*j-{w}", f"m/2+{dilation}*j-{w}").replace(
                           "+-", "-")

    place = at()
    box = dict(b=b, m=m, j=n)
    s = p.let("b,m,j", f"sum(p) {x}[b,m,p]*{x}[b,{place},p]", pad=x, **box)
    score = f"{p.usual('0.4', '1')}*{s}[b,m,j]"
    score = p.usual(score, f"{score}*{p.weight(n)}[j]", f"{score} + {p.weight(m)}[m]",
                    f"select(idx(j) <= {w}, {score}, -1e9)",
                    f"select(idx(m+j) >= {w}, {score}, -1e9)",
                    f"{score} + [j<={w}]*{p.weight(m, n)}[m,j]")
    a = p.op(f"Softmax({p.let('b,m,j', score, **box)}; axis={p.usual(-1, -1, 1)})")
    other = p.usual(place, place, at(), at(1))
    index = p.usual("b,m,q", "q,b,m")
    y = p.let(index, f"sum(j) {a}[b,m,j]*{z}[b,{other},q]", pad=z, m=m,
              j=p.usual(n, n, max(1, n - 1)))
    p.out(y)


def grid(p):
    """Keys of two dimensions, in windows or not, with a bias by distance; softmax spelled out."""
    b, y, x = p.size(1, 2, most=3), p.any(2, 3, 4), p.any(3, 4, 5)
    d, l = p.size(4, 6, 8, most=17), p.size(4, 9, 12)
    box = dict(b=b, i=l, y=y, x=x)
    query = p.input(b, l, d)
    flat, windows = p.chance(0.4), p.chance(0.3)
    shape = (y * x,) if flat else (y, x)
    key, value = p.input(b, *shape, d), p.input(b, *shape, d)
    if windows:  # every row has keys of its own
        key, value = p.input(b, l, *shape, d), p.input(b, l, *shape, d)
    place = f"y*{x}+x" if flat else "y,x"
    other = p.usual(place, place, f"x*{y}+y" if flat else f"{p.odd('y', y)},{p.odd('x', x)}")
    row = f"b,{p.usual('i', p.odd('i', l))}" if windows else "b"
    dot = p.let("b,i,y,x", f"sum(d) {query}[b,i,d]*{key}[{row},{place},d]", **box)
    score = f"0.4*{dot}[b,i,y,x]"
    score = p.usual(score, f"{score} + {p.weight(l, y, x)}[i,y,x]",
                    f"{score} + {p.weight(y + l, x)}[i+y,x]",
                    f"select(idx(y*{x}+x) <= idx(i), {score}, -1e9)",
                    f"select(idx(x) <= idx(i), {score}, {p.any('-20', 'log(0)')})",
                    f"select({p.input(b, y, x)}[b,y,x] > 0, {score}, -20)")
    t = p.let("b,i,y,x", score, **box)
    order, part = p.any("y,x", "x,y"), p.usual("y,x", "y,x", "x", "y")
    index = "b,i" if len(part) > 1 else "b,i," + ("y" if part == "x" else "x")
    top = p.let(index, f"max({part if len(part) == 1 else order}) {t}[b,i,y,x]", **box)
    fewer = p.usual(box, dict(box, x=x - 1))
    weight = f"exp({t}[b,i,y,x] - {top}[{index}])"
    total = p.out(p.let("b,i", f"sum({order}) {weight}", **fewer), 0.1)
    if p.chance(0.5):
        weight = p.let("b,i,y,x", f"{weight}/{total}[b,i]", **box) + "[b,i,y,x]"
        total = None
    val = f"{value}[{row},{other},c]"
    val = p.usual(val, val, f"{val}*[y<=x]", f"{val}*{p.weight(y)}[y]")
    o = p.let("b,i,c", f"sum(y,x) {weight}*{val}", **p.usual(box, fewer))
    p.out(p.let("b,i,c", f"{o}[b,i,c]/{total}[b,i]") if total else o)


def seen(p):
    """What rows of a decoder see: windows that end behind or ahead of them, with a dilation, truths
    and numbers that are broadcast along any axes, several of the lowest numbers; grouped heads;
    results of the largest score, the sum and both."""
    b, g, r, d = p.size(1, 2, most=3), p.any(1, 2, 3), p.any(1, 1, 2, 4), p.size(4, 5, 8, most=17)
    l, v = p.size(1, 3, 16, 33, most=65), p.size(d, 3, 8, most=33)
    s, h = l + p.any(0, 0, 7, 60, 200), g * r
    s = max(s, 2)
    box, rows = dict(b=b, h=h, i=l, j=s), dict(b=b, h=h, i=l)
    query, head = p.input(b, h, l, d), f"h/{r}" if r > 1 else "h"
    shape, at = p.usual(((b, g, s, d), "b,{h},{j},{d}"), ((b, s, g, d), "b,{j},{h},{d}"),
                        ((g, d, b, s), "{h},{d},b,{j}"))
    key = p.input(*shape)
    place = at.format(h=head, j=p.odd("j", s), d="d")
    dot = p.let("b,h,i,j", f"sum(d) {query}[b,h,i,d]*{key}[{place}]", **box, d=d) + "[b,h,i,j]"
    score = p.usual(f"0.3*{dot}", f"{dot}/2.5", f"{dot}", f"{dot}*abs({p.weight(h)}[h])",
                    f"{dot}*{p.given(b, 1, l, 1)}[b,0,i,0]", f"5*tanh({dot}/5)",
                    f"0.2*({dot} + {related(p, query, box, d)})")
    if p.chance(0.2):
        size = [p.any(1, n) for n in (b, h, l, s)]
        index = ",".join(i if n > 1 else "0" for i, n in zip("bhij", size))
        score = f"({score} + {p.given(*size)}[{index}])"
    if p.chance(0.2):
        score = f"({score} - abs({p.weight(h)}[h])*abs(idx(i+{s - l}-j)))"
    low = p.any("-1e9", "-3.4028234e38", "-3e30", "-125", "-40")
    for _ in range(p.any(0, 1, 2, 2)):
        score = f"select({sight(p, b, l, s)}, {score}, {p.any(low, low, '-3.4e38', '-1e38', '-9')})"
    x = p.let("b,h,i,j", score, **box)
    other = [p.any(1, n) for n in (b, g)]
    value = p.input(*other, s, v)
    val = f"{value}[{'b' if other[0] > 1 else '0'},{head if other[1] > 1 else '0'},j,c]"
    order = p.usual("b,h,i,c", "b,i,h,c", "c,h,b,i")
    if p.chance(0.4):
        a = p.out(p.op(f"Softmax({x}; axis=-1)"), 0.05)
        p.let(order, f"sum(j) {a}[b,h,i,j]*{val}", out=True, **dict(box, c=v))
        return
    top = p.let("b,h,i", f"max(j) {x}[b,h,i,j]", **box)
    weight = f"exp({x}[b,h,i,j] - {top}[b,h,i])"
    total = p.let("b,h,i", f"sum(j) {weight}", **box) + "[b,h,i]"
    o = p.let(order, f"sum(j) {weight}*{val}", **dict(box, c=v)) + f"[{order}]"
    most = f"{top}[b,h,i]"
    y = p.usual(f"{o}/{total}", f"{o}/{total}", f"0.5*{o}/({total} + 1)", f"{o}/sqrt({total})",
                f"{o}/({total} + exp(-max({most}, -4)))", f"{o}/({total}*{total}) + {total}*0.01",
                f"{o}/{total}*tanh(log({total}) + {most}*0.1)")
    holds = p.any("<=", "==") + f" {p.any(low, '-2e38', '-1e30')}"
    p.let(order, p.any(y, f"select({most} {holds}, {p.any(0, 3)}, {y})"), out=True, **rows, c=v)


def related(p, query, box, d):
    """A product of the queries with what keys have at their distance."""
    l, s = box["i"], box["j"]
    heads = p.any(1, box["h"])
    table = p.weight(heads, l + s - 1, d)
    r = p.let("b,h,i,r", f"sum(d) {query}[b,h,i,d]*{table}[{'h' if heads > 1 else '0'},r,d]",
              **{k: n for k, n in box.items() if k != "j"}, r=l + s - 1, d=d)
    return f"{r}[b,h,i,j-i+{l - 1}]"


def sight(p, b, l, s):
    """Which keys of a cache a row sees: its end, a window before it, what flags say."""
    end, wide, by = s - l + p.usual(0, 0, -3, 2), p.any(2, 5, 17), p.any(2, 3)
    kind = p.any("bool", "i32")
    flags = p.any(((b, s), "b,j"), ((l, s), "i,j"), ((s,), "j"), ((b, l), "b,i"))
    ahead = f"idx(j) <= idx(i+{end})".replace("+-", "-")
    behind = f"idx(j) > idx(i+{end - wide})".replace("+-", "-")
    return p.any(ahead, behind, f"abs(idx(i+{s - l}-j)) < {wide}", f"idx((j-i)%{by}) == 0",
                 f"[j<=i+{s - l}]*[j>i+{s - l - wide}] > 0".replace("+-", "-"),
                 f"min(idx(j+1-{by}), idx(j/{wide}-i/{wide})) <= 0",
                 f"{p.input(*flags[0], type=kind)}[{flags[1]}] > 0", f"idx(j) < {s - wide}")


KINDS = {"attention": attention, "heads": heads, "exported": exported, "band": band, "grid": grid,
         "seen": seen}
