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

# model, kernels that compute an attention, steps in all (None: any), further options
COUNTS = [
    ("tests/unseen/attention.ein", 1, 3, []),
    ("tests/unseen/attention.ein", 0, None, ["--rules=-online"]),
    ("tests/unseen/attention.ein", 0, None, ["--baseline"]),
    ("tests/unseen/online_forms.ein", 10, None, []),
    ("tests/unseen/online_bands.ein", 6, 6, []),
    ("tests/unseen/online_not.ein", 0, None, []),
    ("models/longformer.ein", 1, 5, []),
    ("models/longformer.ein", 1, 5, ["--gpu", "orin-nx"]),
    ("models/longformer.ein", 1, None, ["--math", "tf32"]),
    ("models/longformer.ein", 1, None, ["--math", "fp16"]),
    ("tests/unseen/attention_causal.ein", 2, 12, []),
    ("tests/unseen/attention_causal.ein", 2, 12, ["--math", "tf32"]),
    ("tests/unseen/attention_grouped.ein", 1, 2, []),
    ("tests/unseen/causal_added.ein", 3, 5, []),
    ("tests/unseen/safe_softmax.ein", 2, 2, []),
    ("tests/unseen/safe_softmax.ein", 2, 2, ["--math", "fp16"]),
    ("tests/unseen/attention_grouped.ein", 1, None, ["--math", "fp16"]),
    ("tests/unseen/attention_graph.ein", 2, 7, []),
    ("tests/unseen/attention_graph.ein", 2, 7, ["--math", "fp16"]),
    ("tests/unseen/online_forms.ein", 10, None, ["--math", "fp16"]),
    ("models/bert_base.ein", 12, None, []),
    ("models/bert_base.ein", 12, None, ["--math", "tf32"]),
    ("models/bert_base.ein", 12, None, ["--math", "fp16"]),
    ("models/vit_b.ein", 12, None, ["--math", "tf32"]),
    ("models/vit_b.ein", 12, None, ["--math", "fp16"]),
]

# batches, rows, keys, depth, columns, kind. `late`: every score of the first tiles is -inf; `none`:
# of some rows all of them are; `sums`: they are made of no product; `swapped`: dimensions in memory
# the other way round; `huge`: scores in the thousands; `causal`, `ahead`, `added`: keys behind the
# row are masked out; `soft`: as well, but with a score that counts; bands are (dilation, keys to
# each side).
MODELS = {
    "small": [
        (2, 1, 2, 2, 1, "plain"), (2, 3, 7, 3, 5, "plain"), (2, 7, 3, 4, 4, "none"),
        (2, 49, 49, 7, 3, "none"), (2, 65, 33, 12, 8, "swapped"), (2, 9, 130, 20, 24, "late"),
        (2, 64, 64, 64, 64, "plain"), (2, 5, 31, 48, 96, "plain"), (2, 8, 17, 33, 32, "huge"),
        (2, 33, 33, 4, 16, (1, 3)), (2, 50, 50, 8, 8, (2, 9)), (2, 19, 19, 5, 7, (3, 2)),
        (2, 9, 70, 1, 12, "sums"), (2, 37, 99, 8, 12, "causal"), (2, 40, 150, 20, 24, "soft"),
        (2, 33, 90, 16, 16, "ahead"), (1, 50, 150, 5, 8, "added"),
        (2, 6, 6, 3, 2, (7, 1)), (1, 150, 150, 20, 64, (-1, 33)),
        (265, 3, 40, 8, 64, "plain"),
    ],
    "large": [
        (2, 70, 65, 64, 64, "plain"), (1, 130, 40, 200, 40, "plain"), (2, 17, 40, 36, 256, "none"),
        (60, 64, 31, 16, 64, "none"), (132, 64, 20, 8, 8, "plain"),
        (2, 64, 64, 44, 48, "swapped"), (2, 70, 96, 128, 33, "huge"),
        (1, 131, 131, 64, 64, (2, 40)), (132, 33, 9, 8, 12, "late"),
        (66, 64, 130, 2, 40, "sums"), (20, 130, 190, 64, 64, "causal"),
        (2, 70, 300, 32, 32, "soft"),
        (66, 70, 65, 20, 64, "plain"),
        (132, 50, 64, 8, 128, "swapped"), (40, 140, 140, 16, 32, (3, 2)),
    ],
}
MASKS = {"causal": "select(idx(j) <= idx(i), %s, -1e9)",
         "ahead": "select(2 * idx(i) - 5 < idx(j), -1e9, %s)",
         "added": "(%s) + select(idx(i) >= idx(j) - 3, 0, log(0))",
         "soft": "select(idx(j) <= idx(i) + 2, %s, -0.5)"}
# GPU, the judge's mode, arithmetic
RUNS = {"small": [("h200", "plain", "fp32"), ("h200", "race", "fp32"), ("h200", "san", "fp32"),
                  ("nano", "plain", "fp32"), ("h200", "race", "tf32"), ("h200", "san", "tf32"),
                  ("h200", "race", "fp16"), ("h200", "san", "fp16"), ("nano", "plain", "fp16")],
        "large": [("h200", "plain", "fp32"), ("orin-nx", "plain", "fp32"),
                  ("h200", "plain", "tf32"), ("h200", "plain", "fp16"),
                  ("orin-nx", "plain", "fp16")]}
NVCC = [("nano", 75, "fp32"), ("h200", 90, "fp32"), ("orin-nx", 87, "fp32"), ("h200", 75, "tf32"),
        ("h200", 90, "tf32"), ("h200", 90, "fp16"), ("orin-nx", 87, "fp16")]
TENSOR_TILES = {"RW": {1, 2, 4}, "RM": {1, 2}, "NK": {16, 32, 64}}  # on tensor cores
TILES = {"RM": {1, 3, 4, 5, 7, 8}, "RN": {2, 4}, "VC": {1, 2, 4}}  # all of which must occur


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
    if kind == "sums":
        dot = "tanh(3 * %s[b,i,0] - %s[b,j,0])" % (q, k)
    if kind in MASKS:
        dot = MASKS[kind] % dot
    if kind == "none":
        dot = "select(idx(j) > idx(i) - 2, %s, %s)" % (never, dot)
    body = "%s[b,i,j] = %s%s\n" % (s, dot, ranges % k if ranges else "")
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


def check_tiles(texts, tiles):
    for key, want in sorted(tiles.items()):
        found = {int(n) for text in texts for n in re.findall(r"\b%s = (\d+)," % key, text)}
        if not want <= found:
            raise run_models.Failure("no tile with %s = %s" % (key, sorted(want - found)))


def check_masks(text, cases):
    """Kernels that look whether further keys have weight 0."""
    # Of `none`, keys behind the row are masked as well.
    want = [c for c in cases if c[5] in MASKS or (c[5] == "none" and c[2] > 64)]
    found = text.count("const float masked = ")
    if found < len(want):
        raise run_models.Failure("%d kernels of %d look" % (found, len(want)))


def check_run(path, gpu, mode, math, cases):
    """All attentions of the model are one kernel each where the GPU is large, some elsewhere."""
    options = ["--gpu", gpu, "--math", math]
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
    args = run_models.arguments(["--einnet", EINNET, "--mode", mode, "--math", math])
    args.options = ["--gpu", gpu]
    return args


def check_nvcc(path, gpu, arch, math):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "m.cu")
        with open(source, "w") as out:
            out.write(emit(path, ["--gpu", gpu, "--math", math]))
        done = subprocess.run(
            ["nvcc", "-std=c++14", "-Werror", "all-warnings", "-Xptxas",
             "-warn-spills,-warn-lmem-usage", "-Xptxas", "-Werror", "-arch=sm_%d" % arch, "-cubin",
             source, "-o", os.path.join(folder, "m.cubin")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise run_models.Failure(done.stdout.decode().strip()[:2000])


def main():
    """Arguments: only tests whose name has one of them in it."""
    jobs = [("%s %s" % (c[0], " ".join(c[3])), check_count, c) for c in COUNTS]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        texts, tensor_texts = [], []
        for name, cases in MODELS.items():
            path = os.path.join(folder, name + ".ein")
            with open(path, "w") as out:
                out.write(model(cases))
            texts.append(emit(path, []))
            jobs.append(("masks of " + name, check_masks, (texts[-1], cases)))
            tensor_texts += [emit(path, ["--math", math]) for math in ("tf32", "fp16")]
            for gpu, mode, math in RUNS[name]:
                jobs.append(("%s for %s, %s, %s" % (name, gpu, mode, math), check_run,
                             (path, gpu, mode, math, cases)))
            for gpu, arch, math in NVCC:
                if shutil.which("nvcc"):
                    jobs.append(("%s for %s, sm_%d, %s" % (name, gpu, arch, math), check_nvcc,
                                 (path, gpu, arch, math)))
        jobs.append(("tiles", check_tiles, (texts, TILES)))
        jobs.append(("tiles on tensor cores", check_tiles, (tensor_texts, TENSOR_TILES)))
        jobs = [j for j in jobs if not sys.argv[1:] or any(a in j[0] for a in sys.argv[1:])]
        for name, function, arguments in jobs:
            try:
                function(*arguments)
            except (run_models.Failure, subprocess.TimeoutExpired, OSError) as error:
                failed += 1
                print("FAIL %s: %s" % (name, error), flush=True)
    print("%d passed, %d failed" % (len(jobs) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
