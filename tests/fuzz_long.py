"""Pieces of models for fuzz_pieces.py whose rows are long: steps against caches, many rows of few
heads, layers behind one mask, sums of integers and places of extrema that blocks share, norms and
sums of what comes before along two dimensions, rows against columns."""

from fuzz_base import ranges

FAR = ["-1e9", "-3.4028234e38", "-65000", "-1e5"]  # of halves some have room for


def parted(p, name, extent):
    """An extent as one dimension or as two: names and extents."""
    sizes = [d for d in (1, 2, 3, 4, 4, 8) if extent % d == 0]
    if p.chance(0.5):
        return {name: extent}
    d = p.any(*sizes)
    return {name: extent // d, name + name: d}


def laid(p, parts, type="f32", map_in_front=0.4):
    """A tensor of these dimensions in some order in memory, perhaps behind a map; the reading of
    it by their names."""
    names = list(parts)
    if p.chance(0.5):
        p.rng.shuffle(names)
    x, at = p.input(*[parts[n] for n in names], type=type), ",".join(names)
    read = f"{x}[{at}]"
    if type in ("i8", "u8"):
        some = p.any(*parts)
        scale = p.weight(parts[some], between=(0.005, 0.02))
        read = f"{p.any('', '0.5*')}({read} - {p.any(0, 3)})*{scale}[{some}]"
    if p.chance(map_in_front) or type in ("i8", "u8"):
        bias = p.any(*parts)
        body = p.any("tanh(%s)*2", "0.7*%s", "%s + " + f"{p.weight(parts[bias])}[{bias}]") % read
        if p.chance(0.4):
            p.rng.shuffle(names)
        x = p.out(p.let(",".join(names), body, **parts), 0.05)
        read = f"{x}[{','.join(names)}]"
    return read


def hidden(p, score, rows, keys, row, parts):
    """A score with biases of rows, keys and heads, several at once, behind masks: of what would
    be added to the number that hides a key, f32 has some digits or none."""
    for _ in range(p.any(0, 0, 1, 2)):
        own = p.any(*parts)
        score += p.any(f" + {p.given(parts[own], keys)}[{own},j]",
                       f" + {p.weight(keys)}[{p.odd('j', keys)}] - {p.weight(rows)}[{row}]",
                       f" + {p.weight(parts[own])}[{own}]*0.1*idx(j%5)",
                       f" - 0.02*abs(idx(j-({row})))")
    for _ in range(p.any(0, 1, 1, 2, 2)):
        shift, by = p.any(0, 1, keys - rows, -3, keys // 2), p.any(2, 3, 1000, 50000000, 50000000)
        wide, low = p.any(5, 33, keys // 3 + 1), p.any(*FAR, "-20")
        holds = p.any(f"idx(j) <= idx({row}+{shift})", f"idx(j) <= idx({by}*({row})+3)",
                      f"idx(j)+{wide} > idx({row}+{shift})", f"idx({by}*j) <= idx({row})+{wide}",
                      f"idx(j) < {wide}", f"idx(j) >= {keys - wide}", f"idx(j) != idx({row})",
                      f"abs(idx(j-({row})-{shift})) < {wide}", f"idx(j+1000000) > idx({row})",
                      f"idx(j/{wide}) <= idx(({row})/{by})",
                      f"{p.given(keys)}[j] > {p.any(0, -1, 9)}")
        score = f"select({holds}, {score}, {low})"
    return score


def shared(p, types=("f32",)):
    """Attention of which blocks share the keys: rows, heads, depth and columns of two dimensions
    or one, few of rows or of heads; statistics as outputs."""
    few = p.chance(0.5)
    rows = p.any(1, 1, 2, 3, 5, 8) if few else p.any(64, 130, 301, 400)
    heads = p.any(1, 2, 4, 8) if few else p.any(1, 1, 2)
    keys = p.any(65, 300, 513, 900, 1500) if few else p.any(rows, rows, 130, 500)
    d, v = p.any(8, 16, 36, 36, 64), p.any(8, 20, 32, 33, 36)
    h, i, e, c = parted(p, "h", heads), parted(p, "i", rows), parted(p, "e", d), parted(p, "c", v)
    group = p.usual(list(h), list(h), list(h)[:1], [])
    kept, type = {n: h[n] for n in group}, p.any(*types)
    of = "f32" if type in ("i8", "u8") else type
    query = laid(p, ranges(h, i, e), p.usual("f32", of))
    key = laid(p, ranges(kept, {"j": keys}, e), type)
    value = laid(p, ranges(kept, {"j": keys}, c), p.usual(type, type, "f32"))
    if p.chance(0.1):
        value, c = key, e
    row = "i" if "ii" not in i else f"i*{i['ii']}+ii"
    outer, rest = ranges(h, i), list(ranges(h, i))
    if p.chance(0.3):
        p.rng.shuffle(rest)
    at, box = ",".join(rest), ranges(outer, {"j": keys})
    s = p.let(f"{at},j", f"sum({','.join(e)}) {query}*{key}", **box, **e)
    score = hidden(p, f"{p.any('0.2', '0.5')}*{s}[{at},j]", rows, keys, row, outer)
    t = p.let(f"{at},j", score, **box)
    weighed(p, t, value, at, box, c)


def caches(p):
    """The same with caches of other types, with scales or without."""
    shared(p, ("f16", "bf16", "i8", "u8"))


def weighed(p, t, value, at, box, c):
    """Softmax of scores `t`, or nearly; the sums that it weighs; its statistics."""
    own = p.any(*[i for i in box if i != "j"])
    some, long = {i: n for i, n in box.items() if i != "j"}, ranges(box, c)
    gate = p.usual("", "", f" * sigmoid({p.weight(box['j'])}[j])", " * 0.5",
                   f" * {p.weight(box[own], between=(0.5, 1.5))}[{own}]")
    order = at.split(",") + list(c)
    if p.chance(0.4):
        p.rng.shuffle(order)
    order = ",".join(order)
    if p.chance(0.4):
        a = p.op(f"Softmax({t}; axis=-1)")
        y = p.let(order, f"sum(j) {a}[{at},j]{gate}*{value}", **long)
    else:
        top = p.let(at, f"max(j) {t}[{at},j]", **box)
        total = p.let(at, f"sum(j) exp({t}[{at},j]-{top}[{at}])", **box)
        p.out(top, 0.15)
        p.out(total, 0.15)
        if p.chance(0.35):
            lse = p.let(at, f"{top}[{at}] + log({total}[{at}])", out=p.chance(0.8), **some)
            if p.chance(0.3):
                p.let(at, f"sigmoid({lse}[{at}] - 2)", out=True, **some)
        form = p.rng.randrange(3)
        weight = f"exp({t}[{at},j]-{top}[{at}])"
        if form == 0:
            y = p.let(order, f"(sum(j) {weight}{gate}*{value})/{total}[{at}]", **long)
        elif form == 1:
            a = p.let(f"{at},j", f"{weight}/{total}[{at}]{gate}", **box)
            y = p.let(order, f"sum(j) {a}[{at},j]*{value}", **long)
        else:
            y = p.let(order, f"sum(j) {weight}/({total}[{at}] + exp(min({p.weight(box[own])}[{own}]"
                      f"-{top}[{at}], 2))){gate}*{value}", **long)
    if p.chance(0.25):
        z = p.weight(*c.values())
        y = p.let(order, f"{y}[{order}]*{p.any('0.5', f'sigmoid({y}[{order}])')} + "
                  f"{z}[{','.join(c)}]", **some, **c)
    p.out(y)


def layers(p):
    """Layers behind one mask, of which later ones attend to what rows have that see no key."""
    b, l = p.any(1, 2), p.any(5, 16, 33, 70)
    h, d = p.any(1, 2, 4), p.any(4, 8, 16)
    # What is added leaves nothing of a score.
    e, added = h * d, p.chance(0.6)
    low = p.any("-3.4028234e38", "-3.4028235e38") if added else p.any(*FAR)
    x = p.input(b, l, e)
    keep = p.any(f"{p.input(b, l)}[b,j] > 0", f"idx(j) >= {p.any(1, 3)}", "idx(j) < 4",
                 "idx(j) >= 0")
    seen = p.any("idx(j) <= idx(i)", "idx(j) < idx(i)", "idx(j) >= idx(i)+2", "idx(j) < 99",
                 "idx(j) <= idx(i)")
    mask = p.let("b,i,j", p.any(f"select({keep}, select({seen}, 0, {low}), {low})",
                                f"(1 - select({keep}, 1, 0))*{low}",
                                f"max(select({keep}, 0, {low}) + select({seen}, 0, {low}), {low})"),
                 b=b, i=l, j=l)
    y, w = p.name("y"), p.name("w")
    form = f"select({mask}[b,i,j] == 0, {{s}}[b,h,i,j]*0.3, {low})"
    if added:
        form = p.any(f"{{s}}[b,h,i,j]*0.3 + {mask}[b,i,j]", f"({{s}}[b,h,i,j] + {mask}[b,i,j])*0.3")
    a, s, t, q, o = (p.name(k) for k in "astqo")
    p.lines.append(f"{y}[b,i,e] = {x}[b,i,e]")
    p.lines.append(f"repeat r in 0:{p.any(1, 2, 3)} {{\n"
                   f"  weight {w}: f32[{e},{3 * e}] = randn(std={0.8 / e ** 0.5:.3g})\n"
                   f"  {a} = MatMul({y}, {w})\n"
                   f"  {s}[b,h,i,j] = sum(d) {a}[b,i,h*{d}+d]*{a}[b,j,{e}+h*{d}+d] where "
                   f"h in 0:{h}, d in 0:{d}, i in 0:{l}, j in 0:{l}\n"
                   f"  {t}[b,h,i,j] = {form.format(s=s)}\n"
                   f"  {q} = Softmax({t}; axis=-1)\n"
                   f"  {o}[b,i,e] = sum(j) {q}[b,e/{d},i,j]*{a}[b,j,{2 * e}+e] where e in 0:{e}\n"
                   f"  {y}[b,i,e] = {p.any('0.5*', '')}{y}[b,i,e] + tanh({o}[b,i,e])\n}}")
    p.let("b,i,e", f"{y}[b,i,{p.odd('e', e)}]", out=True, b=b, i=l, e=e)


def counts(p):
    """What long rows of some type come to, of which blocks share some, and maps behind."""
    type = p.any("i32", "i32", "i64", "i8", "u8", "bool", "f32", "f32")
    rows, long = p.any(1, 2, 3, 20, 33), p.any(300, 4099, 30000, 60004)
    order, shape = p.any(("m,n", (rows, long)), ("n,m", (long, rows)),
                         ("m,n,o", (rows, max(1, long // 4), 4)))
    x, over = p.input(*shape, type=type), ",".join(i for i in order.split(",") if i != "m")
    axes = [k for k, i in enumerate(order.split(",")) if i != "m"]
    read, box = f"{x}[{order}]", dict(zip(order.split(","), shape))
    kind = p.rng.randrange(4)
    if kind == 0:
        term = p.any(read, read, f"select({read} > 0, 1, 0)", f"[n%3==1]*{read}")
        y = p.let("m", f"{p.any('sum', 'max', 'min')}({over}) {term}", **box)
        if type[0] == "f" and p.chance(0.5):
            y = p.let("m", f"sum({over}) square({read} - {y}[m]/{long})", **box)
    elif type in ("bool", "i8", "u8"):
        z = p.op(f"Cast({x}; to={p.any('i32', 'i64', 'f32')})")
        y = p.op(f"ReduceSum({z}; axes={axes}, keepdims=0)")
    elif kind < 3:
        red = p.any("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin")
        y = p.op(f"{red}({x}; axes={axes}, keepdims=0)")
    else:
        # Of few numbers, so that several are the largest.
        z = p.op(f"Cast({p.let(order, f'floor(2*{read})')}; to={p.any('i32', 'f32')})") \
            if type[0] == "f" else x
        axis = order.split(",").index("n")
        at = p.op(f"{p.any('ArgMax', 'ArgMin')}({z}; axis={axis}, keepdims=0, select_last_index="
                  f"{p.any(0, 1)})", out=True)
        if p.chance(0.5):
            p.op(f"Cast({at}; to={p.any('f32', 'i32')})", out=True)
        return
    p.out(y, 0.15)
    scale = 0.5 if type[0] != "f" else 0.01
    behind = p.op(f"Cast({y}; to={p.any('f32', 'f32', 'i64', 'i32')})")
    p.out(behind, 0.15)
    p.let("m", p.any(f"{scale}*{behind}[m] + idx(m)", f"{behind}[m] - {behind}[0]",
                     f"select({behind}[m] > 3, 1, 0)"), out=True, m=rows)


def whole(p):
    """Sums, extrema and running sums of what rounding makes integers of, with more digits than
    floats have; remainders of them, and what reads these at several places."""
    type, rows = p.any("i32", "i32", "i64"), p.size(1, 2, 7, 33, 64, most=65)
    long = p.any(5, 17, 48, 300, 4099)
    order, shape = p.any(("m,n", (rows, long)), ("n,m", (long, rows)))
    box, axis = dict(zip(order.split(","), shape)), order.split(",").index("n")
    x = p.input(*shape)
    scale = 2 ** (22 if long < 100 else 20 if long < 1000 else 16)
    number = p.any("floor({0}*abs({1}))", "floor({0}*{1})", "ceil({0}*{1})", "{0}*{1}",
                   "select(idx(n) < {2}, 1, -1)*floor({0}*abs({1}))").format(
                       scale, f"{x}[{order}]", long // 2)
    t = p.op(f"Cast({p.let(order, number, **box)}; to={type})", out=p.chance(0.25))
    if p.chance(0.2):
        along = p.op(f"CumSum({t}; axis={axis}, exclusive={p.any(0, 1)})", out=True)
        t = along if p.chance(0.5) else t
        if t == along and type == "i32":
            return
    red = p.any("ReduceSum", "ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin")
    s = p.op(f"{red}({t}; axes=[{axis}], keepdims=0)", out=p.chance(0.2))
    if p.chance(0.6):
        by = p.weight(1, type=type, between=(97, 97))
        s = p.op(f"{p.any('Mod', 'Mod', 'Div')}({s}, {by})", out=p.chance(0.2))
    f = p.op(f"Cast({s}; to=f32)", out=p.chance(0.2))
    g = p.let("m", p.any("tanh(exp({0}*0.01)*erf({0}*0.1)-1)", "0.5*{0}",
                         "sigmoid({0}*0.02)").format(f"max(min({f}[m], 99), -99)"), m=rows)
    p.let("k,m", f"{g}[m] - {g}[(m+k)%{rows}]", out=True, k=p.any(1, 2, 3, 8), m=rows)


def norms(p):
    """Norms over two of four dimensions, with gains by one and biases by another."""
    box = dict(n=p.size(1, 2, most=3), c=p.size(3, 4, 8), h=p.size(1, 4, 7), w=p.size(5, 8, 33))
    x = p.input(*box.values())
    over = p.any("c,w", "h,w", "n,h", "c,h", "n,w", "w,h", "c,h,w")
    kept = ",".join(i for i in box if i not in over)
    count = 1
    for i in over.split(","):
        count *= box[i]
    term = p.usual(f"{x}[n,c,h,w]", f"{x}[n,c,h,w]", f"{x}[n,c,h,{p.odd('w', box['w'])}]",
                   f"tanh({x}[n,c,h,w])")
    mean = p.out(p.let(kept, f"(sum({over}) {term})/{count}", **box), 0.1)
    square = p.let(kept, f"(sum({over}) square({term} - {mean}[{kept}]))/{count}", **box)
    p.out(square, 0.1)
    g, b, o = p.any(*box), p.any(*box), p.any(*box)
    order = p.usual("n,c,h,w", "n,c,h,w", "n,h,w,c", "n,c,w,h", "h,w,n,c")
    y = p.let(order, f"({term} - {mean}[{kept}])/sqrt({square}[{kept}] + 0.1)*"
              f"{p.weight(box[g], between=(0.5, 1.5))}[{g}] + {p.weight(box[b], box[o])}[{b},{o}]",
              **box)
    p.out(y, 0.4)
    along = p.any("c", "w", "h")
    rest = ",".join(i for i in order.split(",") if i != along)
    p.let(f"{rest},f", f"sum({along}) {y}[{order}]*{p.weight(box[along], 5)}[{along},f]", out=True,
          **box)


def before(p):
    """Sums of what comes before and behind, along any axis, of several types."""
    shape = p.any([p.any(33, 300, 1025, 2500)], [p.size(1, 3, 9), p.any(31, 64, 257)],
                  [p.any(2, 5), p.any(40, 130), p.any(1, 3, 32)])
    type = p.any("f32", "f32", "i32", "i64")
    x = p.input(*shape, type=type)
    axis = p.rng.randrange(len(shape))
    made = []
    for _ in range(p.any(1, 2)):
        y = x if type != "f32" or p.chance(0.6) else p.op(f"{p.any('Tanh', 'Relu')}({x})")
        made.append(p.op(f"CumSum({y}; axis={axis}, exclusive={p.any(0, 1)}, reverse="
                         f"{p.any(0, 1)})", out=p.chance(0.6)))
    if type != "f32":
        made = [p.op(f"Cast({y}; to=f32)") for y in made]
    names = "ijk"[:len(shape)]
    index = ",".join(names)
    twisted = ",".join(p.odd(i, n) for i, n in zip(names, shape))
    p.let(index, p.any(f"0.1*{made[0]}[{index}] + {made[-1]}[{twisted}]",
                       f"{made[0]}[{index}] - {made[-1]}[{index}]"), out=True,
          **dict(zip(names, shape)))


def crosses(p):
    """Reductions whose terms are functions of what a row and what a column have, one value of
    each or two, or of what all rows have; windows of a tensor against a filter."""
    b = p.usual({}, {}, {"b": p.any(1, 2, 3)})
    rows, cols = p.size(20, 64, 130, 200, most=129), p.size(24, 64, 140, 260, most=129)
    i, j = parted(p, "i", rows), parted(p, "j", cols)
    k = parted(p, "k", p.size(5, 16, 33, 64, 100))
    types = p.usual(("f32",), ("f32", "f16", "bf16"))
    own = p.usual(b, b, {})
    x, y = laid(p, ranges(b, i, k), p.any(*types), 0.2), laid(p, ranges(own, j, k), p.any(*types))
    more = [laid(p, ranges(p.any(b, {}), p.any(i, i, {}), k), p.any(*types)),
            laid(p, ranges(p.any(own, {}), j, k), p.any(*types), 0.2)]
    some = p.any(*k)
    v, w = f"{p.given(k[some])}[{some}]", f"{p.weight(cols)}[{flat(j, 'j')}]"
    near = f"({x} - {y})"
    term = p.any(f"abs{near}", f"abs{near}", f"max({x}, {y})", f"{v}*tanh({x} + {y})",
                 f"sqrt(square{near} + square({more[0]} - {more[1]}))", f"exp(-abs{near})",
                 f"abs({x}*{v} - {y})", f"abs({x} - {more[1]})*{y}", f"min({x}*{w}, {y})",
                 f"relu({x} + {y} - {v})", f"abs({x} + {more[0]} - {y}*{v})", f"{x} + {y}",
                 f"select({x} < {y}, {v}, {more[1]})", f"max({near}, 0.2*{near})*{v}")
    how = p.any("sum", "sum", "sum", "max", "min", "prod")
    if how == "prod":
        term = f"(1 + 0.02*({term}))"
    box, order = ranges(b, i, j), list(ranges(b, i, j))
    if p.chance(0.4):
        p.rng.shuffle(order)
    at = ",".join(order)
    z = p.let(at, f"{how}({','.join(k)}) ({term})", **box, **k)
    p.out(z, 0.5)
    if p.chance(0.6):
        axis = p.any(*box)
        p.let(at, p.any("tanh(%s)", "relu(%s) + 1", "0.1*%s") % f"({z}[{at}] + "
              f"{p.weight(box[axis])}[{axis}])", out=True, **box)
    else:
        p.out(z)


def flat(parts, name):
    """The number that one or two iterators count."""
    return name if name * 2 not in parts else f"{name}*{parts[name * 2]}+{name * 2}"


KINDS = {"shared": shared, "layers": layers, "counts": counts, "whole": whole, "norms": norms,
         "before": before, "crosses": crosses}
TYPED = {"caches": caches}
