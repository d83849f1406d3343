#!/usr/bin/env python3
"""Attentions as one kernel: which expressions are recognised and which are not, and the kernel
itself at the sizes where its tiles, parts and vectors begin and end.

Generated models are planned for GPUs of several sizes, because tiles depend on them, emitted, run
by the judge in all its modes, and compared with the oracle; `einnet verify` proves their plans;
nvcc reports neither spills nor local memory. Ends with `N passed, N failed`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
EINNET = os.environ.get("EINNET", os.path.join(ROOT, "build", "einnet"))
sys.path.insert(0, HERE)

import run_models  # noqa: E402
from harness import LONG  # noqa: E402

# model, kernels that compute an attention, steps in all (None: any), further options
COUNTS = [
    ("tests/unseen/attention.ein", 1, 3, []),
    ("tests/unseen/attention.ein", 0, None, ["--rules=-online"]),
    ("tests/unseen/attention.ein", 0, None, ["--baseline"]),
    ("tests/unseen/online_forms.ein", 10, None, []),
    ("tests/unseen/online_bands.ein", 6, 6, []),
    ("tests/unseen/online_not.ein", 0, None, []),
    # Maps in front of an attention are part of its loads, unless others need them.
    ("tests/unseen/rotary.ein", 1, 2, []),
    ("tests/unseen/rotary.ein", 1, 2, ["--math", "tf32"]),
    ("tests/unseen/rotary.ein", 1, 2, ["--math", "fp16"]),
    ("tests/unseen/rotary.ein", 1, 4, ["--rules=-fuse"]),
    ("tests/unseen/rotary_forms.ein", 6, 9, []),
    ("tests/unseen/rotary_forms.ein", 6, 9, ["--math", "tf32"]),
    ("tests/unseen/rotary_forms.ein", 6, 9, ["--math", "fp16"]),
    ("tests/unseen/rotary_decode.ein", 1, 4, []),
    ("tests/unseen/rotary_decode.ein", 1, 4, ["--math", "fp16"]),
    ("models/longformer.ein", 1, 5, []),
    ("models/longformer.ein", 1, 4, ["--gpu", "orin-nx"]),
    ("models/longformer.ein", 1, None, ["--math", "tf32"]),
    ("models/longformer.ein", 1, None, ["--math", "fp16"]),
    ("tests/unseen/attention_chain.ein", 3, 6, []),
    ("tests/unseen/attention_causal.ein", 2, 10, []),
    ("tests/unseen/attention_causal.ein", 2, 10, ["--math", "tf32"]),
    ("tests/unseen/attention_grouped.ein", 1, 2, []),
    ("tests/unseen/attention_shared.ein", 2, 2, []),
    ("tests/unseen/attention_shared.ein", 2, 2, ["--math", "tf32"]),
    ("tests/unseen/causal_added.ein", 3, 4, []),
    ("tests/unseen/safe_softmax.ein", 2, 2, []),
    ("tests/unseen/safe_softmax.ein", 2, None, ["--math", "fp16"]),
    ("tests/unseen/attention_grouped.ein", 1, None, ["--math", "fp16"]),
    ("tests/unseen/attention_graph.ein", 2, 7, []),
    ("tests/unseen/attention_graph.ein", 2, 8, ["--math", "fp16"]),
    ("tests/unseen/attention_sliding.ein", 6, None, []),
    ("tests/unseen/attention_sliding.ein", 6, None, ["--math", "fp16"]),
    ("tests/unseen/attention_padded.ein", 2, 3, []),
    ("tests/unseen/attention_padded.ein", 2, 3, ["--math", "fp16"]),
    ("tests/unseen/attention_across.ein", 2, 2, ["--math", "tf32"]),
    ("tests/unseen/attention_across.ein", 2, 3, ["--math", "fp16"]),
    ("tests/unseen/attention_bias.ein", 5, 5, ["--math", "fp16"]),
    ("tests/unseen/attention_lowest.ein", 3, 3, []),
    ("tests/unseen/attention_lowest.ein", 3, 4, ["--math", "fp16"]),
    # A mask may leave out weights as well; what it hides must have finite scores.
    ("tests/unseen/attention_gated.ein", 2, None, []),
    ("tests/unseen/attention_gated.ein", 2, None, ["--math", "fp16"]),
    # Scores of no key are in the sums alone.
    ("tests/unseen/attention_sinks.ein", 5, 8, []),
    ("tests/unseen/attention_sinks.ein", 5, 8, ["--math", "fp16"]),
    ("tests/unseen/attention_windows.ein", 1, 3, []),
    ("tests/unseen/attention_windows.ein", 1, 3, ["--math", "fp16"]),
    # Windows of a rolled image: a norm, a product, attention, a product.
    ("tests/unseen/windows_rolled.ein", 1, 4, []),
    ("tests/unseen/windows_rolled.ein", 1, 4, ["--math", "tf32"]),
    ("tests/unseen/windows_rolled.ein", 1, 4, ["--math", "fp16"]),
    ("tests/unseen/windows_rolled.ein", 1, 6, ["--rules=-turn"]),
    # Of several products in a score the largest is the attention's.
    ("tests/unseen/attention_relative.ein", 1, 4, []),
    ("tests/unseen/attention_relative.ein", 1, 4, ["--math", "fp16", "--gpu", "orin-nx"]),
    # What the kernel does not store it need not round.
    ("tests/unseen/attention_halves.ein", 1, 3, ["--math", "fp16", "--only-math"]),
    # Heads and windows that are counted with batches are dimensions, so copies need no kernels.
    ("tests/unseen/attention_heads.ein", 1, 3, []),
    ("tests/unseen/attention_heads.ein", 1, 3, ["--math", "fp16"]),
    ("tests/unseen/attention_heads.ein", 1, 3, ["--rules=-apart"]),
    ("tests/unseen/attention_batches.ein", 1, 3, []),
    ("tests/unseen/attention_batches.ein", 1, 3, ["--math", "fp16"]),
    ("tests/unseen/attention_grid.ein", 1, 3, []),
    ("tests/unseen/attention_grid.ein", 1, 3, ["--math", "fp16"]),
    ("tests/unseen/attention_grid.ein", 1, 4, ["--rules=-apart"]),
    ("tests/unseen/online_forms.ein", 10, None, ["--math", "fp16"]),
    ("models/bert_base.ein", 12, None, []),
    ("models/bert_base.ein", 12, None, ["--math", "tf32"]),
    ("models/bert_base.ein", 12, None, ["--math", "fp16"]),
    ("models/vit_b.ein", 12, None, ["--math", "tf32"]),
    ("models/vit_b.ein", 12, None, ["--math", "fp16"]),
]

# batches, rows, keys, depth, columns, kind. `late`: every score of the first tiles is -inf; `none`:
# of some rows all of them are; `sums`: they are made of no product; `swapped`: dimensions in memory
# the other way round; `huge`: scores in the thousands; `least`: some rows and the first keys of all
# are masked by -FLT_MAX, `lowest`: as well, in scores that are no multiple of the product; `minus`:
# they are a negative one; `causal`, `ahead`, `added`: keys behind the row are masked out; `soft`:
# as well, but with a score that counts; `steep`: as well, by more than 32 bits count; `turned`:
# maps stand in front of queries, keys and values; bands are (dilation, keys to each side).
MODELS = {
    "small": [
        (2, 1, 2, 2, 1, "plain"), (2, 3, 7, 3, 5, "plain"), (2, 7, 3, 4, 4, "none"),
        (2, 49, 49, 7, 3, "none"), (2, 65, 33, 12, 8, "swapped"), (2, 9, 130, 20, 24, "late"),
        (2, 64, 64, 64, 64, "plain"), (2, 5, 31, 48, 96, "plain"), (2, 8, 17, 33, 32, "huge"),
        (2, 33, 33, 4, 16, (1, 3)), (2, 50, 50, 8, 8, (2, 9)), (2, 19, 19, 5, 7, (3, 2)),
        (2, 9, 70, 1, 12, "sums"), (2, 37, 199, 8, 12, "causal"), (2, 40, 150, 20, 24, "soft"),
        (2, 33, 190, 16, 16, "ahead"), (4, 50, 150, 32, 40, "added"),
        (2, 6, 6, 3, 2, (7, 1)), (1, 150, 150, 20, 64, (-1, 33)),
        (265, 3, 40, 8, 64, "plain"), (2, 37, 50, 8, 12, "turned"), (2, 5, 131, 33, 20, "turned"),
        (3, 66, 33, 20, 7, "turned"), (2, 9, 130, 20, 24, "least"), (2, 40, 130, 20, 24, "lowest"),
        (2, 33, 70, 8, 12, "minus"), (4, 110, 150, 16, 16, "steep"),
    ],
    "large": [
        (2, 70, 65, 64, 64, "plain"), (1, 130, 40, 200, 40, "plain"), (9, 17, 40, 36, 256, "none"),
        (60, 64, 31, 16, 64, "none"), (132, 64, 20, 8, 8, "plain"), (264, 64, 40, 16, 64, "plain"),
        (2, 64, 64, 44, 48, "swapped"), (2, 70, 96, 128, 33, "huge"),
        (1, 131, 131, 64, 64, (2, 40)), (132, 33, 9, 8, 12, "late"),
        (66, 64, 130, 2, 40, "sums"), (20, 130, 190, 64, 64, "causal"),
        (9, 140, 300, 32, 40, "soft"),
        (66, 70, 65, 20, 64, "plain"), (8, 70, 265, 32, 40, "least"),
        (8, 70, 265, 32, 40, "lowest"),
        (132, 50, 64, 8, 128, "swapped"), (40, 140, 140, 16, 32, (3, 2)),
        (4, 70, 130, 64, 64, "turned"), (1, 64, 200, 132, 48, "turned"),
        (1, 33, 70, 12, 256, "turned"),
    ],
    # Rows attend to a window of keys, at sizes where their tiles have all, some or none of a turn.
    "windows": [
        (2, 450, 450, 16, 32, "sliding"), (3, 193, 193, 20, 24, "one"),
        (2, 130, 130, 8, 12, "wide"), (2, 190, 457, 12, 16, "near"), (9, 256, 256, 32, 40, "and"),
        (2, 300, 330, 8, 8, "or"), (2, 150, 300, 16, 20, "double"), (2, 333, 333, 8, 64, "softer"),
        (5, 350, 350, 12, 8, "from"), (2, 200, 190, 16, 12, "empty"), (2, 450, 290, 8, 20, "past"),
        (7, 250, 140, 8, 16, "gone"), (1, 370, 370, 20, 12, "summed"),
        (2, 129, 400, 8, 12, "tail"), (2, 131, 200, 1, 16, "bounds"),
        (40, 200, 200, 64, 64, "sliding"),
        # Bands of which whole turns are beyond the ends.
        (20, 260, 260, 36, 40, (2, 90)), (20, 200, 200, 20, 24, (-1, 120)),
    ],
    # Heads whose columns, or parts of whose depth, leave a thread few registers.
    "deep": [
        (2, 70, 150, 128, 128, "plain"), (1, 130, 200, 160, 160, "causal"),
        (1, 40, 90, 256, 256, "none"), (1, 70, 90, 200, 144, "turned"),
        (1, 33, 70, 136, 240, "swapped"), (1, 90, 90, 128, 160, (2, 20)),
    ],
}
# batches, rows and keys, depth: heads that are one kernel on tensor cores.
DEEP = [(8, 1024, 128), (8, 4096, 128), (16, 1024, 160), (16, 256, 160)]
# heads, rows, keys, depth; whether keys and values that are f32 become halves first.
COPIED = [(8, 1024, 1024, 128, True), (8, 1024, 1024, 160, True), (4, 256, 256, 128, True),
          (8, 16, 1024, 128, False), (8, 77, 77, 64, False)]
# Keys and values of which others read all, as f32.
PRESENT = """ein 1
model present
input x: f32[1024,1024]
weight wq: f32[1024,1024] = randn(std=0.02)
weight wk: f32[1024,1024] = randn(std=0.02)
weight wv: f32[1024,1024] = randn(std=0.02)
output %s
a = MatMul(x, wq)
b = MatMul(x, wk)
c = MatMul(x, wv)
d = Reshape(a; shape=[1024,8,128])
e = Reshape(b; shape=[1024,8,128])
f = Reshape(c; shape=[1024,8,128])
q = Transpose(d; perm=[1,0,2])
k = Transpose(e; perm=[1,0,2])
v = Transpose(f; perm=[1,0,2])
s[h,i,j] = sum(d) q[h,i,d] * k[h,j,d] * 0.09
p = Softmax(s)
y[i,h,d] = sum(j) p[h,i,j] * v[h,j,d]
"""
HALVES = re.compile(r"us est\. \S+\.half +k_")  # a kernel that makes them
MASKS = {"causal": "select(idx(j) <= idx(i), %s, -1e9)",
         "ahead": "select(2 * idx(i) - 5 < idx(j), -1e9, %s)",
         "added": "(%s) + select(idx(i) >= idx(j) - 3, 0, log(0))",
         "soft": "select(idx(j) <= idx(i) + 2, %s, -0.5)",
         # Windows: of 37 keys; of one; of more than there are; to both sides; as products and
         # maxima of truths; that move two keys a row; around which scores count; that have no
         # first key; of no key; of none for the last rows, which have the mean of all values, or
         # no value; added; of the last keys; of the same ones for all.
         "sliding": "select(idx(j) <= idx(i), select(idx(i) < idx(j) + 37, %s, -1e30), -1e30)",
         "one": "select(idx(j) > idx(i), -1e9, select(idx(j) <= idx(i) - 1, -1e9, %s))",
         "wide": "select([j <= i] * [i < j + 130] == 1, %s, -1e9)",
         "near": "select(abs(idx(i) - idx(j)) <= 19, %s, -1e9)",
         "and": "select(select(idx(j) <= idx(i), 1, 0) * [i < j + 64] != 0, %s, -1e9)",
         "or": "select(max([j > i], [j + 33 <= i]) > 0, -1e9, %s)",
         "double": "select([j <= 2 * i] * [2 * i < j + 48] > 0, %s, log(0))",
         "softer": "select([j <= i] * [i < j + 20] > 0, %s, -10)",
         "from": "select(idx(j) < idx(i) - 5, -1e9, %s)",
         "empty": "select(idx(j) > idx(i) - 40, -1e9, select(idx(j) > idx(i) - 50, -1e9, %s))",
         "past": "select([j <= i] * [i < j + 21] > 0, %s, -1e9)",
         "gone": "select([j <= i] * [i < j + 70] > 0, %s, log(0))",
         "summed": "(%s) + select(idx(j) <= idx(i) - 31, log(0), 0) + "
                   "select(idx(j) <= idx(i), 0, log(0))",
         "tail": "select(idx(j) < idx(i) + 271, select(idx(j) >= idx(i) + 140, %s, -1e9), -1e9)",
         "bounds": "select([j >= 70] * [j < 150] > 0, %s, -1e9)"}
# Of 2048 keys: behind the row, some of those, some to both sides, those of the row's block, more
# than there are, and some beside which the others count.
WINDOWS = {"causal": "select(idx(j) <= idx(i), %s, -1e30)",
           "window": "select([j <= i] * [i < j + 256] > 0, %s, -1e30)",
           "both": "select(abs(idx(i) - idx(j)) <= 256, %s, -1e30)",
           "block": "select(idx(i/256) == idx(j/256), %s, -1e30)",
           "long": "select([j <= i] * [i < j + 2048] > 0, %s, -1e30)",
           "soft": "select([j <= i] * [i < j + 256] > 0, %s, -10)"}
# Masks of which no block begins with a later key.
EARLY = {"causal", "ahead", "added", "soft", "wide"}


def longer(runs, more):
    """Each form once; in a long run more of them."""
    return runs + more if LONG else runs


# GPU, the judge's mode, arithmetic
RUNS = {"small": longer([("nano", "plain", "fp32"), ("h200", "race", "tf32"),
                         ("h200", "san", "fp16")],
                        [("h200", "san", "fp32"), ("h200", "race", "fp32"),
                         ("h200", "san", "tf32"), ("h200", "race", "fp16")]),
        "large": longer([("h200", "plain", "fp32"), ("orin-nx", "plain", "fp16")],
                        [("h200", "plain", "tf32"), ("h200", "plain", "fp16")]),
        "windows": longer([("h200", "plain", "fp32"), ("orin-nx", "plain", "fp16")],
                          [("h200", "race", "fp32"), ("h200", "race", "tf32"),
                           ("nano", "san", "fp32")]),
        "deep": longer([("orin-nx", "race", "fp16")],
                       [("orin-nx", "san", "tf32"), ("orin-nx", "plain", "fp32")])}
# What is compiled for which architecture; turns of windows are few lines more in the same kernels.
NVCC = {"small": longer([("orin-nx", 87, "fp16")],
                        [("h200", 90, "fp32"), ("nano", 75, "fp32"), ("h200", 90, "tf32")]),
        "large": longer([("h200", 90, "tf32")],
                        [("nano", 75, "fp32"), ("h200", 90, "fp16"), ("h200", 90, "fp32"),
                         ("h200", 75, "tf32"), ("orin-nx", 87, "fp16")]),
        "windows": longer([("h200", 90, "fp16")],
                          [("orin-nx", 87, "fp32"), ("h200", 90, "tf32")]),
        "deep": longer([("orin-nx", 87, "fp16")],
                       [("orin-nx", 87, "tf32"), ("h200", 90, "fp16"), ("h200", 90, "tf32")])}
# On tensor cores.
TENSOR_TILES = {"W": {4, 8}, "RW": {1, 2, 4}, "RM": {1, 2}, "NK": {32, 48, 64}}
TILES = {"RM": {1, 3, 4, 5, 7, 8}, "RN": {2, 4}, "VC": {1, 2, 4}}  # all of which must occur


def turn(name, first, at, size):
    """A map tNAME that reads NAME, whose last dimension has `size` elements, at two places."""
    return ("t%(x)s[%(i)s,%(r)s,%(e)s] = 0.8 * %(x)s[%(i)s,%(r)s,%(e)s] - "
            "%(x)s[%(i)s,%(r)s,(%(e)s+%(half)d)%%%(n)d] / (2 + idx(%(e)s))\n"
            % {"x": name, "i": first, "r": at[0], "e": at[1], "n": size, "half": (size + 1) // 2})


def instance(n, batch, rows, keys, depth, cols, kind):
    """Declarations, equations and the result of one attention."""
    q, k, v, s, a, y = ("%s%d" % (name, n) for name in "qkvsay")
    if kind == "swapped":
        shapes = ["%d,%d,%d" % (depth, rows, batch), "%d,%d,%d" % (depth, batch, keys),
                  "%d,%d,%d" % (batch, cols, keys)]
        reads = ["p,i,b", "p,b,j", "b,c,j"]
    else:
        shapes = ["%d,%d,%d" % (batch, n, p) for n, p in
                  ((rows, depth), (keys, depth), (keys, cols))]
        reads = ["b,i,p", "b,j,p", "b,j,c"]
    head = "".join("input %s: f32[%s]\n" % pair for pair in zip((q, k, v), shapes))
    pads = ranges = ""
    if isinstance(kind, tuple):
        dilation, reach = kind
        place = "i+%d*(j-%d)" % (dilation, reach)
        reads[1:] = ["b,%s,p" % place, "b,%s,c" % place]
        ranges = " where j in 0:%d, pad %%s 0" % (2 * reach + 1)
    dot = "%.4f * (sum(p) %s[%s] * %s[%s])" % ((40 if kind == "huge" else 1) / depth ** 0.5, q,
                                              reads[0], k, reads[1])
    never = "log(0)"  # -inf
    if kind == "late":
        dot = "select(idx(j) < %d, %s, %s)" % (keys - 3, never, dot)
    if kind in ("least", "lowest"):
        dot = ("select(idx(i) < 2, -3.4028235e38, select(idx(j) < %d, -3.4028235e38, %s))"
               % (keys - 3, "3 * tanh(%s)" % dot if kind == "lowest" else dot))
    if kind == "steep":
        dot = "select(idx(j) <= idx(50000000 * i + 3), %s, -1e9)" % dot
    if kind == "minus":
        dot = "-2 * (%s)" % dot
    if kind == "sums":
        dot = "tanh(3 * %s[b,i,0] - %s[b,j,0])" % (q, k)
    if kind in MASKS:
        dot = MASKS[kind] % dot
    if kind == "none":
        dot = "select(idx(j) > idx(i) - 2, %s, %s)" % (never, dot)
    body = "%s[b,i,j] = %s%s\n" % (s, dot, ranges % k if ranges else "")
    if kind == "turned":
        turned = [turn(x, "b", at, size) for x, at, size in ((q, "ip", depth), (k, "jp", depth),
                                                             (v, "jc", cols))]
        body = "".join(turned) + re.sub(r"\b(%s|%s)\[" % (q, k), r"t\1[", body)
        v = "t" + v
    body += "%s = Softmax(%s)\n" % (a, s)
    body += "%s[b,i,c] = sum(j) %s[b,i,j] * %s[%s]%s\n" % (y, a, v, reads[2],
                                                         " where pad %s 0" % v if ranges else "")
    return head, body, y


def model(cases):
    parts = [instance(n, *case) for n, case in enumerate(cases)]
    return "ein 1\nmodel attentions\n%soutput %s\n%s" % (
        "".join(p[0] for p in parts), ", ".join(p[2] for p in parts), "".join(p[1] for p in parts))


def kernels(text):
    """Names of the steps that attention kernels compute, and the number of all steps."""
    steps = re.findall(r"^// +[\d.]+ us \S+ (\S+) +(\S.*)$", text, re.M)
    return [name for name, call in steps if call.startswith("k_attention_")], len(steps)


def emit(path, options):
    done = subprocess.run([EINNET, "emit", path, "-o", "-"] + options, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    text = done.stdout.decode()
    if done.returncode:
        raise run_models.Failure(text.strip())
    return text


def check_count(path, want, steps, options):
    found, count = kernels(emit(os.path.join(ROOT, path), options))
    if len(found) != want or (steps and count != steps):
        raise run_models.Failure("%d attention kernels (%s) in %d steps" % (len(found),
                                                                          " ".join(found), count))


def check_pairs(path, math):
    """What a score reads of two neighbouring keys is read at once, where pairs divide the keys."""
    text = emit(os.path.join(ROOT, path), ["--math", math, "--dim", "H=8"])
    found = text.count("float x = -INFINITY, next = -INFINITY;")
    types = {name: text.count("reinterpret_cast<const %s *>(&p3[" % name)
             for name in ("float2", "__half2", "uchar2")}
    if found != 4 or types != {"float2": 2, "__half2": 1, "uchar2": 1}:
        raise run_models.Failure("%d scores are made in pairs; %s" % (found, types))


def check_tiles(texts, tiles):
    for key, want in sorted(tiles.items()):
        found = {int(n) for text in texts for n in re.findall(r"\b%s = (\d+)," % key, text)}
        if not want <= found:
            raise run_models.Failure("no tile with %s = %s" % (key, sorted(want - found)))


def check_room(tf32, fp16):
    """Tiles take more shared memory than every block has where they gain by it; halves are
    multiplied where no block can ask for more, too, so that most of theirs do not."""
    asks = [text.count("extern __shared__") for text in (tf32, fp16)]
    static = [len(re.findall(r"__shared__ shared_words<\d+> words", x)) for x in (tf32, fp16)]
    if min(asks + static) < 1 or asks[1] > static[1]:
        raise run_models.Failure("%d and %d kernels ask, %d and %d do not" % (*asks, *static))


def check_deep(folder, math, dtype):
    """Deep heads are one kernel, and that on tensor cores."""
    for heads, n, depth in DEEP:
        path = os.path.join(folder, "deep_%d_%d_%s.ein" % (depth, n, dtype))
        with open(path, "w") as out:
            out.write(model([(heads, n, n, depth, depth, "plain")]).replace("f32[", dtype + "["))
        text = emit(path, ["--math", math])
        steps = kernels(text)[1] - bool(HALVES.search(text))
        if (len(kernels(text)[0]), steps) != (1, 1) or "mma.sync" not in text:
            raise run_models.Failure("%d x %d x %d: %s" % (heads, n, depth, kernels(text)))


def plan_us(text):
    return float(re.search(r"^// plan .*?([\d.]+) us estimated", text, re.M).group(1))


def check_copied(folder):
    """Keys and values that are f32 become halves once where many tiles of rows read them, and
    then take little more than halves do."""
    for heads, rows, keys, depth, copied in COPIED:
        path, text, us = os.path.join(folder, "copied.ein"), {}, {}
        for dtype in ("f32", "f16"):
            with open(path, "w") as out:
                out.write(model([(heads, rows, keys, depth, depth, "plain")]).replace(
                    "f32[", dtype + "["))
            text[dtype] = emit(path, ["--math", "fp16"])
            us[dtype] = plan_us(text[dtype])
        made = bool(HALVES.search(text["f32"])) and "copy_async(&keys[" in text["f32"]
        if made != copied or us["f32"] > 1.45 * us["f16"]:
            raise run_models.Failure("%d of %d x %d x %d: copied %s, %s us" %
                                     (heads, rows, keys, depth, made, us))


def check_present(folder):
    """Keys and values that are outputs as well take little more than these cost."""
    us = []
    for outputs in ("y", "y, k, v"):
        path = os.path.join(folder, "present.ein")
        with open(path, "w") as out:
            out.write(PRESENT % outputs)
        us.append(plan_us(emit(path, ["--math", "fp16"])))
    if us[1] > 1.2 * us[0]:
        raise run_models.Failure("%g us, %g without" % (us[1], us[0]))


def check_masks(text, cases):
    """Kernels that look whether further keys have weight 0."""
    # Of `none`, keys behind the row are masked as well.
    want = [c for c in cases if c[5] in MASKS or (c[5] == "none" and c[2] > 64)]
    found = text.count("const float masked = ")
    if found < len(want):
        raise run_models.Failure("%d kernels of %d look" % (found, len(want)))


def check_beyond(text):
    """Turns of a band that are all beyond an end take no products."""
    found = len(re.findall(r"const bool (absent|zeroKeys) = ", text))
    if found != 2:
        raise run_models.Failure("%d kernels leave them out" % found)


def check_late(texts, cases):
    """Windows begin with the first key that some row of a tile attends to, and are priced so."""
    want = len([c for c in cases if c[5] in MASKS and c[5] not in EARLY])
    found = [text.count("const int low = ") for text in texts]
    if found[0] < want - 1 or min(found) < want // 2:
        raise run_models.Failure("%s kernels of %d begin late" % (found, want))


def check_window(folder, math):
    """A window costs as many keys as its tiles see; scores that count around it cost all keys."""
    us = {}
    for kind, score in WINDOWS.items():
        head, body, y = instance(0, 8, 2048, 2048, 64, 64, "plain")
        body = re.sub(r"= (.*)", lambda s: "= " + score % s.group(1), body, count=1)
        path = os.path.join(folder, "window_%s_%s.ein" % (kind, math))
        with open(path, "w") as out:
            out.write("ein 1\nmodel window\n%soutput %s\n%s" % (head, y, body))
        text = emit(path, ["--math", math, "--libs", "none", "--only-math"])
        us[kind] = float(re.search(r"([\d.]+) us estimated", text).group(1))
        late = "const int low = " in text
        if late != (kind in ("window", "both", "block")) and kind != "soft":
            raise run_models.Failure("%s: late %s" % (kind, late))
    most = 0.7 * us["causal"]
    # Of a window's few turns none waits for copies as halves; those of all keys gain by them.
    if us["window"] > 0.43 * us["causal"] or us["both"] > most or us["block"] > most or \
            us["soft"] < us["causal"] or us["long"] > us["causal"]:
        raise run_models.Failure(str(us))


def check_blind(folder):
    """Places behind the last row, to which a narrow window shows no key, are told from rows that
    have none: else the last tile would go over all keys."""
    told = {"fp32": "m0 + row < 1025 ? m0 + row : 1024",
            "fp16": "&& m0 + own + lane / 4 + 16 * m + e / 2 * 8 < 1025)"}
    for wide in (3, 200):
        path = os.path.join(folder, "blind_%d.ein" % wide)
        head, body, y = instance(0, 1, 1025, 1025, 32, 32, "plain")
        score = "= select([j <= i] * [i < j + %d] > 0, %%s, -1e9)" % wide
        body = re.sub(r"= (.*)", lambda s: score % s.group(1), body, count=1)
        with open(path, "w") as out:
            out.write("ein 1\nmodel blind\n%soutput %s\n%s" % (head, y, body))
        for gpu, math in (("h200", "fp32"), ("orin-nx", "fp16")):
            text = " ".join(emit(path, ["--gpu", gpu, "--math", math]).split())
            if "const int low = " not in text or (told[math] in text) != (wide < 8):
                raise run_models.Failure("%d keys, %s, %s" % (wide, gpu, math))


def check_shared():
    """Tiles of heads that share keys end and begin with those of their positions, and cost so."""
    us = {}
    for heads in (2, 8):
        text = emit("tests/unseen/attention_shared.ein",
                    ["--dim", "M=2048", "--dim", "G=%d" % heads, "--math", "fp16"])
        us[heads] = float(re.search(r"([\d.]+) us estimated", text).group(1))
        if heads == 2 and not re.search(r"if \(u0 >= \(\(m0 \+ \d+\) / 4\) \+ 1", text):
            raise run_models.Failure("no keys of shared heads are left out")
    if us[2] > 1.1 * us[8]:
        raise run_models.Failure("%s us" % us)


def check_loads(text, most):
    """Maps in front of attentions that are kernels of their own."""
    found = re.findall(r"^// +[\d.]+ us \S+ (t[qkv]\d+) ", text, re.M)
    if len(found) > most:
        raise run_models.Failure("%s are not loaded" % " ".join(found))


def check_run(path, gpu, mode, math, cases):
    """All attentions of the model are one kernel each where the GPU is large, some elsewhere."""
    options = ["--gpu", gpu, "--math", math, "--only-math"]
    text = emit(path, options)
    found, _ = kernels(text)
    if len(found) < (len(cases) if gpu == "h200" else 3):
        raise run_models.Failure("only %s are one kernel" % " ".join(found))
    if ("mma.sync" in text) != (math != "fp32" and gpu != "nano"):
        raise run_models.Failure("tensor cores where there are none, or none where there are")
    done = subprocess.run([EINNET, "verify", path] + options, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        raise run_models.Failure("verify: " + done.stdout.decode().strip())
    args = argparse_like(mode, gpu, math)
    with tempfile.TemporaryDirectory() as folder:
        run_models.check_model(path, args, folder)


def argparse_like(mode, gpu, math):
    # The oracle is what is compared with; naive kernels take longer than all else.
    args = run_models.arguments(["--einnet", EINNET, "--mode", mode, "--math", math, "--full",
                                 "--quick"])
    args.options = ["--gpu", gpu]
    return args


def check_nvcc(path, gpu, arch, math):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "m.cu")
        with open(source, "w") as out:
            out.write(emit(path, ["--gpu", gpu, "--math", math, "--only-math"]))
        done = subprocess.run(
            ["nvcc", "-std=c++14", "-Werror", "all-warnings", "-Xptxas",
             "-warn-spills,-warn-lmem-usage", "-Xptxas", "-Werror", "-arch=sm_%d" % arch, "-cubin",
             source, "-o", os.path.join(folder, "m.cubin")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise run_models.Failure(done.stdout.decode().strip()[:2000])


# ------------------------------------------------------------------------ few rows, shared keys

# groups of heads, heads of a group, rows, keys, depth, columns, kind, type of keys and values.
# `expanded`: heads are one dimension, keys and values repeated for those of a group; `end`: the
# rows are the last ones of a causal attention; `prefix`: the first ones, whose tiles have fewer
# keys than blocks that share them; `late`, `none`, `turned` as above, of the last alone a key;
# `recent`: the last keys that there are; `loose`: as well, where scores of others count; `near`:
# each row has as many of the last keys.
FEW = [
    (2, 3, 1, 503, 64, 64, "plain", "f32"), (2, 5, 1, 500, 80, 80, "expanded", "f32"),
    (1, 1, 4, 500, 128, 128, "end", "f32"), (1, 1, 3, 500, 64, 48, "late", "f32"),
    (1, 40, 1, 390, 64, 64, "plain", "f32"), (1, 1, 200, 900, 32, 32, "prefix", "f32"),
    (1, 2, 2, 500, 7, 5, "none", "f32"), (1, 4, 1, 1001, 128, 128, "plain", "f16"),
    (2, 7, 1, 700, 96, 64, "expanded", "f32"), (1, 3, 2, 600, 64, 32, "turned", "f32"),
    (1, 4, 1, 4000, 128, 128, "recent", "f16"), (1, 2, 1, 1100, 64, 32, "loose", "f32"),
    (1, 1, 3, 1500, 64, 64, "near", "f32"), (1, 1, 70, 900, 32, 32, "near", "f32"),
]
FEW_COUNTS = [("tests/unseen/attention_decode.ein", 1, 1, []),
              ("tests/unseen/attention_decode.ein", 1, 1, ["--math", "tf32"]),
              ("tests/unseen/attention_decode.ein", 1, 1, ["--math", "fp16"])]
FEW_SCORES = {"end": "select(idx(j) <= idx(i) + %(ahead)d, %(dot)s, -1e9)",
              "prefix": "select(idx(j) <= idx(i), %(dot)s, -1e9)",
              "late": "select(idx(j) < %(last)d, log(0), %(dot)s)",
              "none": "select(idx(j) > 2 * idx(i) - 1, log(0), %(dot)s)",
              "recent": "select([j >= 1700] * [j < 3900] > 0, %(dot)s, -1e9)",
              "loose": "select(idx(j) >= 600, %(dot)s, -10)",
              "near": "select(idx(j) <= idx(i) + %(ahead)d, "
                      "select(idx(j) > idx(i) + %(ahead)d - 430, %(dot)s, -1e9), -1e9)"}
FEW_RUNS = longer([("h200", "san", "fp32"), ("h200", "race", "tf32"),
                   ("orin-nx", "plain", "fp16")], [("h200", "san", "fp16")])
FEW_NVCC = longer([("h200", 75, "fp32")], [("h200", 90, "tf32"), ("h200", 90, "fp16")])
# What must be there in each arithmetic: kernels whose keys blocks share, kernels of few rows.
FEW_FORMS = {"fp32": (9, 6), "tf32": (8, 1), "fp16": (7, 0)}
# Judge's mode, arithmetic, what is wrong then, and the text that makes it so.
FEW_FAULTS = [
    ("plain", "fp32", "a part counts as it is", "weight_of(top[p], all.top)", "1.f"),
    ("plain", "tf32", "a part counts as it is", "weight_of(top[p], all.top)", "1.f"),
    ("plain", "fp32", "shares overlap", "int until = (share + 1)", "int until = 1 + (share + 1)"),
    ("plain", "fp16", "a share is left out", "int from = share *", "int from = (share + 1) *"),
    ("race", "fp32", "no fence before the count", "__threadfence();\n        last", "last"),
    ("race", "tf32", "no fence behind the count", "== n - 1u;\n        __threadfence();",
     "== n - 1u;"),
]


def few_instance(n, groups, heads, rows, keys, depth, cols, kind, dtype):
    """Declarations, equations and the result of one attention of few rows."""
    q, k, v, y = ("%s%d" % (name, n) for name in "qkvy")
    values = {"n": n, "all": groups * heads, "groups": groups, "heads": heads, "rows": rows,
              "keys": keys, "depth": depth, "cols": cols, "type": dtype}
    dot = "%.4f * (sum(p) %s)" % (depth ** -0.5, "q%d[%s,i,p] * k%d[%s]")
    if kind == "expanded":
        head = ("input q%(n)d: f32[%(all)d,%(rows)d,%(depth)d]\n"
                "input kc%(n)d: %(type)s[%(groups)d,%(keys)d,%(depth)d]\n"
                "input vc%(n)d: %(type)s[%(groups)d,%(keys)d,%(cols)d]\n" % values)
        body = "".join("%(x)su%(n)d = Unsqueeze(%(x)sc%(n)d; axes=1)\n"
                       "%(x)se%(n)d = Expand(%(x)su%(n)d; "
                       "shape=[%(groups)d,%(heads)d,%(keys)d,%(size)d])\n"
                       "%(x)s%(n)d = Reshape(%(x)se%(n)d; shape=[%(all)d,%(keys)d,%(size)d])\n"
                       % dict(values, x=x, size=values[size]) for x, size in (("k", "depth"),
                                                                              ("v", "cols")))
        at, key, value = "h", "h,j,p", "h,j,c"
    else:
        head = ("input q%(n)d: f32[%(groups)d,%(heads)d,%(rows)d,%(depth)d]\n"
                "input k%(n)d: %(type)s[%(keys)d,%(groups)d,%(depth)d]\n"
                "input v%(n)d: %(type)s[%(keys)d,%(groups)d,%(cols)d]\n" % values)
        body, at, key, value = "", "g,h", "j,g,p", "j,g,c"
    if kind == "turned":
        dot = dot.replace("k%d[", "tk%d[")
        body += turn("k%d" % n, "j", "gp", depth)
    score = FEW_SCORES.get(kind, "%(dot)s") % {"ahead": keys - rows, "last": keys - 3,
                                               "dot": dot % (n, at, n, key)}
    body += "s%d[%s,i,j] = %s\na%d = Softmax(s%d)\n" % (n, at, score, n, n)
    body += "%s[%s,i,c] = sum(j) a%d[%s,i,j] * v%d[%s]\n" % (y, at, n, at, n, value)
    return head, body, y


def check_few(path, math):
    """All are one kernel, keys are shared, and rows stay few where tensor cores do not pay."""
    text = emit(path, ["--math", math])
    steps = re.findall(r"^// +[\d.]+ us \S+ \S+ +k_attention_\w+(.*)$", text, re.M)
    shared, few = sum("parts" in step for step in steps), text.count("GROUPS = 256 / L")
    least = FEW_FORMS[math]
    if len(steps) != len(FEW) or shared < least[0] or few < least[1]:
        raise run_models.Failure("%d kernels, %d shared, %d of few rows"
                                 % (len(steps), shared, few))


def check_few_run(path, gpu, mode, math):
    options = ["--gpu", gpu, "--math", math, "--only-math"]
    done = subprocess.run([EINNET, "verify", path] + options, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        raise run_models.Failure("verify: " + done.stdout.decode().strip())
    with tempfile.TemporaryDirectory() as folder:
        run_models.check_model(path, argparse_like(mode, gpu, math), folder)


# The same of windows.
WINDOWS_WITH_FAULTS = {"sliding", "empty", "past", "gone", (2, 90)}  # enough to notice each
WINDOW_FAULTS = [
    ("plain", "fp32", "what is masked never counts", "if (!__syncthreads_or(more)) break;",
     "__syncthreads();\n            break;"),
    ("plain", "fp16", "what is masked never counts", "if (!__syncthreads_or(more)) break;",
     "__syncthreads();\n            break;"),
    ("plain", "fp32", "blocks begin too late", "const int seen = ",
     "const int seen = 64 + "),
    ("plain", "fp16", "the first keys are left out", " : 0) {", " : low) {"),
    ("plain", "tf32", "a mask ends too late", "(ahead >= ", "(ahead >= 1 + "),
    ("plain", "fp32", "keys count as if beyond an end", "bool absent = (u0 + 63)",
     "bool absent = (u0 + 31)"),
    ("plain", "fp16", "keys count as if beyond an end", "bool zeroKeys = (u0 + ",
     "bool zeroKeys = (u0 - 256 + "),
    ("plain", "tf32", "values count as if beyond an end", "if (zeroKeys) {\n            continue",
     "if (zeroKeys || u0 < 96) {\n            continue"),
    ("race", "fp32", "weights that are still read", "if (absent) __syncthreads();", ""),
]


# What a mask leaves out counts in rows that it hides as a whole.
GATE_FAULTS = [("fp32", "s[row][j]"), ("fp32", "weight[row]"), ("tf32", "s[m][j][e]")]


FAULTY = """#!%s
import subprocess, sys
done = subprocess.run([%r] + sys.argv[1:])
if sys.argv[1] == "emit":
    path = sys.argv[sys.argv.index("-o") + 1]
    with open(path) as file:
        text = file.read()
    if %r not in text:
        sys.exit("there is no such text")
    with open(path, "w") as file:
        file.write(text.replace(%r, %r))
sys.exit(done.returncode)
"""


def finds_fault(path, mode, math, old, new):
    """Whether the judge, or the comparison with the oracle, finds what is planted."""
    with tempfile.TemporaryDirectory() as folder:
        args = argparse_like(mode, "h200", math)
        args.einnet = os.path.join(folder, "faulty")
        with open(args.einnet, "w") as out:
            out.write(FAULTY % (sys.executable, os.path.abspath(EINNET), old, old, new))
        os.chmod(args.einnet, 0o755)
        try:
            run_models.check_model(path, args, folder)
        except run_models.Failure as error:
            if "there is no such text" in str(error) or "judgecc" in str(error):
                raise
            return True
    return False


def check_fault(path, mode, math, old, new):
    if not finds_fault(path, mode, math, old, new):
        raise run_models.Failure("nothing is found")


# What a block could go on for behind the keys of its rows, though what is masked does not count:
# the tile's first row, of which others have all keys; rows beyond the last, whose bias is read.
EARLY_ENDS = [("first rows", "fp32", (2, 400, 400, 16, 16, "causal"), False),
              ("rows beyond the last", "fp32", (20, 301, 300, 16, 32, "sliding"), True),
              ("rows beyond the last", "fp16", (20, 301, 300, 64, 64, "sliding"), True)]


def check_early(folder, math, case, bias):
    """No block sees that what is masked may count: where one does, results are made wrong."""
    head, body, y = instance(0, *case)
    if bias:
        head += "input b: f32[%d,%d]\n" % case[1:3]
        body = re.sub(r"(\(sum.*?\]\))", r"\1 + b[i,j]", body, count=1)
    path = os.path.join(folder, "early.ein")
    with open(path, "w") as out:
        out.write("ein 1\nmodel early\n%soutput %s\n%s" % (head, y, body))
    tensor = "top[m][i] = NO_KEY" in emit(path, ["--math", math])
    if finds_fault(path, "plain", math, "if (!__syncthreads_or(more)) break;",
                   "if (__syncthreads_or(more)) acc[0][0]%s = INFINITY;\n            break;"
                   % ("[0]" if tensor else "")):
        raise run_models.Failure("a block goes on")


def check_padded(folder):
    """What hides keys in FP16 is a number: rows that see none have a mean, and so have others."""
    args = run_models.arguments(["--einnet", EINNET, "--math", "fp16", "--libs", "none"])
    run_models.check_model(os.path.join(ROOT, "tests/unseen/left_padded.ein"), args, folder)


def few_jobs(folder):
    path = os.path.join(folder, "few.ein")
    parts = [few_instance(n, *case) for n, case in enumerate(FEW)]
    with open(path, "w") as out:
        out.write("ein 1\nmodel few\n%soutput %s\n%s" % (
            "".join(p[0] for p in parts), ", ".join(p[2] for p in parts),
            "".join(p[1] for p in parts)))
    jobs = [("forms of few, %s" % math, check_few, (path, math)) for math in sorted(FEW_FORMS)]
    jobs += [("few for %s, %s, %s" % run, check_few_run, (path,) + run) for run in FEW_RUNS]
    jobs += [("fault: %s, %s" % (what, math), check_fault, (path, mode, math, old, new))
             for mode, math, what, old, new in FEW_FAULTS if LONG]
    jobs += [("%s %s" % (c[0], " ".join(c[3])), check_count, c) for c in FEW_COUNTS]
    if shutil.which("nvcc"):
        jobs += [("few for %s, sm_%d, %s" % run, check_nvcc, (path,) + run) for run in FEW_NVCC]
    return jobs


def run_jobs(jobs):
    """Does those whose name has one of the command's arguments in it, if there are any."""
    failed = 0
    jobs = [j for j in jobs if not sys.argv[1:] or any(a in j[0] for a in sys.argv[1:])]
    for name, function, arguments in jobs:
        try:
            function(*arguments)
        except (run_models.Failure, subprocess.TimeoutExpired, OSError) as error:
            failed += 1
            print("FAIL %s: %s" % (name, error), flush=True)
    print("%d passed, %d failed" % (len(jobs) - failed, failed))
    return 1 if failed else 0


def main():
    """Arguments: only tests whose name has one of them in it."""
    jobs = [("%s %s" % (c[0], " ".join(c[3])), check_count, c) for c in COUNTS]
    jobs.append(("heads that share keys", check_shared, ()))
    with tempfile.TemporaryDirectory() as folder:
        jobs.append(("rows that see no key, fp16", check_padded, (folder,)))
        jobs.append(("places behind the last row", check_blind, (folder,)))
        jobs += [("blocks end early: %s, %s" % (what, math), check_early,
                  (folder, math, case, bias))
                 for what, math, case, bias in EARLY_ENDS]
        texts, tensor_texts = [], []
        for name, cases in MODELS.items():
            path = os.path.join(folder, name + ".ein")
            with open(path, "w") as out:
                out.write(model(cases))
            texts.append(emit(path, []))
            if name != "deep":  # in FP32 those are several kernels
                jobs.append(("masks of " + name, check_masks, (texts[-1], cases)))
            jobs.append(("loads of " + name, check_loads, (texts[-1], name == "large")))
            tensor_texts += [emit(path, ["--math", math, "--only-math"])
                             for math in ("tf32", "fp16")]
            jobs.append(("loads of tensors, " + name, check_loads,
                         (tensor_texts[-1], name == "large")))
            if name == "windows":
                faulty = os.path.join(folder, "faulty.ein")
                with open(faulty, "w") as out:
                    out.write(model([case for case in cases if case[-1] in WINDOWS_WITH_FAULTS]))
                jobs += [("windows beyond an end", check_beyond, [text])
                         for text in texts[-1:] + tensor_texts[-2:]]
                jobs.append(("windows begin late", check_late, (texts[-1:] + tensor_texts[-2:],
                                                                cases)))
                jobs += [("fault of windows: %s, %s" % (what, math), check_fault,
                          (faulty, mode, math, old, new))
                         for mode, math, what, old, new in WINDOW_FAULTS if LONG]
                jobs += [("estimates of windows, %s" % math, check_window, (folder, math))
                         for math in ("fp32", "tf32", "fp16")]
            if name == "deep":
                jobs += [("heads of %s in %s" % deep[::-1], check_deep, (folder, *deep))
                         for deep in (("fp16", "f16"), ("fp16", "f32"), ("tf32", "f32"))]
                copied = [case[:4] + (case[3], "plain") for case in COPIED[2:3]]
                with open(os.path.join(folder, "few_copied.ein"), "w") as out:
                    out.write(model(copied))
                jobs += [("copies as halves", check_copied, (folder,)),
                         ("keys that are outputs", check_present, (folder,)),
                         ("copies as halves, run", check_run,
                          (os.path.join(folder, "few_copied.ein"), "h200", "race", "fp16", copied))]
            if name == "large":
                jobs.append(("room in shared memory", check_room, tensor_texts[-2:]))
            for gpu, mode, math in RUNS[name]:
                jobs.append(("%s for %s, %s, %s" % (name, gpu, mode, math), check_run,
                             (path, gpu, mode, math, cases)))
            for gpu, arch, math in NVCC[name]:
                if shutil.which("nvcc"):
                    jobs.append(("%s for %s, sm_%d, %s" % (name, gpu, arch, math), check_nvcc,
                                 (path, gpu, arch, math)))
        jobs += [("pairs of scores, %s" % math, check_pairs,
                  ("tests/unseen/attention_bias.ein", math)) for math in ("tf32", "fp16")]
        jobs.append(("tiles", check_tiles, (texts, TILES)))
        jobs.append(("tiles on tensor cores", check_tiles, (tensor_texts, TENSOR_TILES)))
        jobs += [("fault of gates: %s, %s" % (math, weight), check_fault,
                  (os.path.join(ROOT, "tests/unseen/attention_gated.ein"), "plain", math,
                   " == 0.f) " + weight, " == 2.f) " + weight))
                 for math, weight in GATE_FAULTS if LONG]
        jobs += few_jobs(folder)
        return run_jobs(jobs)


if __name__ == "__main__":
    sys.exit(main())
