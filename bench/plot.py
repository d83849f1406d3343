"""Two plots as SVG text: bars of times on a logarithmic axis, and positions under a roofline.

The same numbers give the same bytes; no library is needed.
"""

import math
from xml.sax.saxutils import escape

COLOURS = {"ours": "#0b6e4f", "base": "#86bba4", "eager": "#b85042", "compile": "#e0a458",
           "jax": "#4a6fa5"}
NAMES = {"ours": "einnet", "base": "einnet, no derivation", "eager": "torch eager",
         "compile": "torch.compile", "jax": "jax.jit"}
STYLE = ('<style>text{font:11px sans-serif;fill:#222}.t{font-size:13px;font-weight:bold}'
         '.g{stroke:#ddd;stroke-width:1}.a{stroke:#222;stroke-width:1}</style>')
BAR, GAP, LEFT, WIDTH = 11, 8, 150, 860


def text(x, y, words, anchor="start", kind=""):
    kind = ' class="%s"' % kind if kind else ""
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, kind,
                                                                  escape(words))


def line(x1, y1, x2, y2, kind):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>' % (x1, y1, x2, y2, kind)


def document(width, height, parts):
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">' % (
        width, height, width, height)
    return "\n".join([head, STYLE, '<rect width="%d" height="%d" fill="#fff"/>' % (width, height)] +
                     parts + ["</svg>", ""])


def short(v):
    """A number at a tick: 0.1, 10, 1000."""
    return "%g" % v


def decades(low, high):
    """Whole powers of ten around the values."""
    return math.floor(math.log10(low)), max(math.ceil(math.log10(high)),
                                            math.floor(math.log10(low)) + 1)


def legend(systems, x, y):
    parts = []
    for name in systems:
        parts.append('<rect x="%.1f" y="%.1f" width="10" height="10" fill="%s"/>' % (
            x, y - 9, COLOURS[name]))
        parts.append(text(x + 14, y, NAMES[name]))
        x += 30 + 6.5 * len(NAMES[name])
    return parts


def bars(title, unit, groups):
    """`groups`: [(label, [(system, value)])], values above 0; None stands for no value.

    Systems without any value are left out.
    """
    values = [v for _, group in groups for _, v in group if v]
    if not values:
        return None
    measured = {name for _, group in groups for name, v in group if v}
    systems = [s for s in COLOURS if s in measured]
    groups = [(label, [(s, v) for s, v in group if s in measured]) for label, group in groups]
    low, high = decades(min(values), max(values))
    right = WIDTH - 70

    def place(v):
        return LEFT + (math.log10(v) - low) / (high - low) * (right - LEFT)
    top = 58
    height = top + sum(len(g) * BAR + GAP for _, g in groups) + 30
    parts = [text(10, 20, title, kind="t")] + legend(systems, 10, 40)
    for decade in range(low, high + 1):
        x = place(10.0 ** decade)
        parts.append(line(x, top - 6, x, height - 26, "g"))
        parts.append(text(x, height - 12, short(10.0 ** decade), "middle"))
    parts.append(text(WIDTH - 8, 40, unit, "end"))
    y = top
    for label, group in groups:
        parts.append(text(LEFT - 8, y + (len(group) * BAR) / 2 + 4, label, "end"))
        for system, value in group:
            if value:
                parts.append('<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>' % (
                    LEFT, y, max(place(value) - LEFT, 1), BAR - 1, COLOURS[system]))
                parts.append(text(max(place(value), LEFT + 1) + 4, y + BAR - 2, "%.4g" % value))
            else:
                parts.append(text(LEFT + 4, y + BAR - 2, "-"))
            y += BAR
        y += GAP
    parts.append(line(LEFT, top - 6, LEFT, height - 26, "a"))
    return document(WIDTH, height, parts)


def roofline(title, peak, bandwidth, points):
    """`points`: [(label, system, FLOP a byte, FLOP/s)]; peak in FLOP/s, bandwidth in bytes/s."""
    if not points:
        return None
    height, bottom, top, right = 460, 410, 60, WIDTH - 30
    xs = [p[2] for p in points] + [peak / bandwidth]
    ys = [p[3] / 1e12 for p in points] + [peak / 1e12]
    (x0, x1), (y0, y1) = decades(min(xs), max(xs)), decades(min(ys), max(ys))

    def at(x, y):
        return (70 + (math.log10(x) - x0) / (x1 - x0) * (right - 70),
                bottom - (math.log10(y) - y0) / (y1 - y0) * (bottom - top))
    systems = [s for s in COLOURS if any(s == p[1] for p in points)]
    parts = [text(10, 20, title, kind="t")] + legend(systems, 10, 40)
    for decade in range(x0, x1 + 1):
        x, _ = at(10.0 ** decade, 10.0 ** y0)
        parts += [line(x, top, x, bottom, "g"),
                  text(x, bottom + 16, short(10.0 ** decade), "middle")]
    for decade in range(y0, y1 + 1):
        _, y = at(10.0 ** x0, 10.0 ** decade)
        parts += [line(70, y, right, y, "g"),
                  text(64, y + 4, short(10.0 ** decade), "end")]
    left = max(10.0 ** x0, 10.0 ** y0 * 1e12 / bandwidth)
    knee = at(peak / bandwidth, peak / 1e12)
    parts.append(line(*at(left, left * bandwidth / 1e12), *knee, "a"))
    parts.append(line(*knee, right, knee[1], "a"))
    parts.append(text(right, height - 8, "FLOP a byte that must move", "end"))
    parts.append(text(70, top - 6, "TFLOP/s of the network as it is written"))
    for label, system, intensity, rate in points:
        x, y = at(intensity, rate / 1e12)
        parts.append('<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>' % (x, y, COLOURS[system]))
        if system == "ours":
            parts.append(text(x + 6, y - 5, label))
    return document(WIDTH, height, parts)
